/* npy.c: headers of NumPy arrays. An accepted one must describe a possible
   array, and writing such a header and reading it again must give the same. The
   last byte 1: the input is a saved dictionary block instead. */

static const fuzz_seed npy_seeds[] = {
    FUZZ_TEXT("\x93NUMPY\1\0\x46\0{'descr': '<f4', 'fortran_order': False, "
              "'shape': (3, 4), }          \n\0"),
    FUZZ_TEXT("\x93NUMPY\2\0\x3c\0\0\0{'descr': '|i1', 'fortran_order': False, "
              "'shape': (3,), }  \n\0"),
    FUZZ_TEXT("\x93NUMPY\3\0\x38\0\0\0{\"shape\":(),\"descr\":\"<f8\","
              "\"fortran_order\":False}           \0"),
    FUZZ_TEXT("NEODICT1\1\0\0\0\0\0\0\0\1\0\0\0a\2\0\0\0\0\0\0\0\3\0\0\0red\4\0"
              "\0\0blue\1"),
    FUZZ_TEXT("NEODICT2\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\1\0\0\0a"
              "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
              "\2\0\0\0\0\0\0\0\3\0\0\0red\4\0\0\0blue\1"),
    FUZZ_TEXT("NEODICT2\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\1\0\0\0b"
              "\2\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
              "\1\0\0\0\0\0\0\0\3\0\0\0red\1"),
};

/* What is accepted is saved and loaded again as it is; a block of the second version is saved as it
   was. */
static void try_dictionaries(const uint8_t *data, size_t size) {
    static const char first[] = "NEODICT1\1\0\0\0\0\0\0\0\1\0\0\0a\1\0\0\0\0\0\0\0\3\0\0\0red";
    static const char *const columns[2] = {"a category rows=9\n",
                                           "b category rows=9 min_count=2\n"};
    for (int i = 0; i < 2; i++) {
        neo_schema *s = NULL;
        FUZZ_CHECK(neo_schema_parse(fuzz_ctx(), columns[i], &s) == NEO_OK);
        neo_status st = fuzz_load_words(s, first, sizeof first - 1); /* of the first version */
        FUZZ_CHECK(st == (i ? NEO_ERR_MISMATCH : NEO_OK) && s->rows[0] == (i ? 0 : 2));
        neo_schema_destroy(s);
        FUZZ_CHECK(neo_schema_parse(fuzz_ctx(), columns[i], &s) == NEO_OK);
        st = fuzz_load_words(s, data, size);
        FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_CORRUPT || st == NEO_ERR_MISMATCH);
        FUZZ_CHECK((st == NEO_OK) == (s->fitted != 0));
        if (st == NEO_OK) {
            size_t bytes = neo__schema_save_size(s);
            char *copy = (char *)malloc(bytes);
            FUZZ_CHECK(copy && neo__schema_save(s, copy) == NEO_OK);
            FUZZ_CHECK(fuzz_load_words(s, copy, bytes) == NEO_OK);
            FUZZ_CHECK(data[7] == '1' || (bytes == size && memcmp(copy, data, size) == 0));
            FUZZ_CHECK(s->rows[0] <= 9);
            free(copy);
        }
        neo_schema_destroy(s);
    }
}
static int npy_input(const uint8_t *data, size_t size) {
    neo__npy_info info, again;
    char header[NEO__NPY_MADE_BYTES];
    if (size < 1) return 0;
    if (data[size - 1] == 1) {
        try_dictionaries(data, size - 1);
        return 0;
    }
    neo_status st = neo__npy_parse("fuzz.npy", (const char *)data, size - 1, &info);
    FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT || st == NEO_ERR_UNSUPPORTED);
    if (st != NEO_OK) return 0;
    FUZZ_CHECK(info.ndim >= 1 && info.ndim <= NEO_MAX_DIMS && info.item_bytes >= 1 &&
               info.item_bytes <= 8);
    FUZZ_CHECK(info.data_offset >= 10 && info.data_offset <= (int64_t)size - 1);
    for (int i = 0; i < info.ndim; i++) FUZZ_CHECK(info.shape[i] >= 0);
    if (info.f64) return 0;
    size_t n = neo__npy_header(header, info.dtype, info.ndim, info.shape, 0);
    FUZZ_CHECK(n % 64 == 0 && neo__npy_parse("again.npy", header, n, &again) == NEO_OK);
    FUZZ_CHECK(again.dtype == info.dtype && again.ndim == info.ndim &&
               again.data_offset == (int64_t)n);
    FUZZ_CHECK(memcmp(again.shape, info.shape, sizeof info.shape) == 0);
    return 0;
}
