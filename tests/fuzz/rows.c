/* rows.c: archives of numpy.savez, and binary records. The last byte 1: the input is a file of
   records, of which every row is read again here, plainly. Else it is an archive: what is accepted
   describes arrays that lie inside the file, and all of their bytes can be read. */
#include <unistd.h>

/* An archive of one member of [2][2], its sizes in the zip64 field or not. */
static const fuzz_seed rows_seeds[] = {
    FUZZ_TEXT("PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\220\0\0\0\220\0\0\0\5\0\0\0" "0.npy\223N"
              "UMPY\1\0v\0{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }      "
              "                                                    \12\1\0\0\0\2\0\0\0\3\0"
              "\0\0\4\0\0\0PK\1\2\24\0\24\0\0\0\0\0\0\0\0\0\0\0\0\0\220\0\0\0\220\0\0\0\5\0"
              "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" "0.npyPK\5\6\0\0\0\0\1\0\1\0" "3\0\0\0\263"
              "\0\0\0\0\0\0"),
    FUZZ_TEXT("PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\220\0\0\0\220\0\0\0\5\0\0\0" "0.npy\223N"
              "UMPY\1\0v\0{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }      "
              "                                                    \12\1\0\0\0\2\0\0\0\3\0"
              "\0\0\4\0\0\0PK\1\2\24\0\24\0\0\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377\377\377"
              "\377\377\5\0\34\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377" "0.npy\1\0\30\0\220\0"
              "\0\0\0\0\0\0\220\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0PK\6\6,\0\0\0\0\0\0\0-\0-\0\0"
              "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0O\0\0\0\0\0\0\0\263\0\0\0\0\0"
              "\0\0PK\6\7\0\0\0\0\2\1\0\0\0\0\0\0\1\0\0\0PK\5\6\0\0\0\0\377\377\377\377\377"
              "\377\377\377\377\377\377\377\2\0..\0"),
    FUZZ_TEXT("\1\0\0\0\0\0\0\x40\0\0\0\0\7\0\0\0\0\0\0\0\0\0\x80\x3F"
              "\5\0\0\0\0\0\0\0\6\0\0\0\7\0\0\0\1"),
    FUZZ_TEXT("\0\0\x80\x3F\0\0\xC0\x7F\1\0\0\0\2\0\0\0\1"),
};

static int32_t rows_word(const char *p) {
    int32_t x;
    memcpy(&x, p, 4);
    return x;
}
/* Rows of label, one dense number, and features of one and two ids below 8. */
static void try_records(const uint8_t *data, size_t size) {
    static neo_schema *schema;
    static neo__block b;
    static const int32_t hot[2] = {1, 2};
    enum { ROW = 20 };
    if (!schema) {
        neo_binary_desc d;
        memset(&d, 0, sizeof d);
        d.dense_count = 1;
        d.feature_count = 2;
        d.ids_per_feature = hot;
        d.float_dense = 1;
        d.rows = 8;
        FUZZ_CHECK(neo_schema_binary(fuzz_ctx(), &d, &schema) == NEO_OK);
        FUZZ_CHECK(neo__block_create(fuzz_ctx(), schema, 0, &b) == NEO_OK);
    }
    b.bytes = NEO__MIN((int64_t)(size / ROW), b.capacity);
    memcpy(b.raw, data, (size_t)b.bytes * ROW);
    for (int32_t k = 0; k < schema->plane_count; k++) {
        b.planes[k] = neo__binary_plane(schema, k);
        b.planes[k].at = (size_t)b.planes[k].within;
    }
    NEO__ZERO(neo__parse_options, o);
    o.skip_bad = 1;
    FUZZ_CHECK(neo__block_parse(schema, &o, &b) == NEO_OK);
    int64_t samples = 0, bad = 0;
    for (int64_t i = 0; i < b.bytes; i++) {
        const char *p = b.raw + i * ROW;
        float dense;
        memcpy(&dense, p + 4, 4);
        int32_t label = rows_word(p);
        int good = (label == 0 || label == 1 || label == 0x3F800000) && dense - dense == 0.0f;
        for (int k = 2; k < 5; k++) good = good && (uint32_t)rows_word(p + 4 * k) < 8;
        bad += !good;
        if (!good) continue;
        float *record = neo__block_record(schema, &b, samples++);
        const int64_t *ids = neo__record_ids(schema, record);
        FUZZ_CHECK(samples <= b.count && record[0] == (float)(label != 0) && record[1] == dense);
        FUZZ_CHECK(ids[0] == 3 * (samples - 1) && ids[1] == 1 && ids[2] == 3);
        for (int k = 0; k < 3; k++) FUZZ_CHECK(b.ids[ids[0] + k] == rows_word(p + 4 * (k + 2)));
    }
    FUZZ_CHECK(samples == b.count && bad == b.bad);
}
static void try_archive(const uint8_t *data, size_t size) {
    static char path[1100];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/neo-fuzz-%d.npz", dir ? dir : "/tmp", (int)getpid());
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
    neo__triple triple;
    memset(&triple, 0, sizeof triple);
    neo_status st = neo__npz_open(fuzz_ctx(), path, &triple);
    FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT || st == NEO_ERR_UNSUPPORTED ||
               st == NEO_ERR_SHAPE);
    FUZZ_CHECK(st != NEO_OK || triple.id_count >= 1);
    for (int64_t k = 0; st == NEO_OK && k < triple.id_count; k++) {
        const neo__npy_info *info = &triple.ids[k];
        FUZZ_CHECK(info->ndim == 2 && info->shape[0] >= 0 && info->shape[1] >= 1);
        FUZZ_CHECK(info->data_offset + neo__npy_count(info) * (int64_t)info->item_bytes <=
                   (int64_t)size);
    }
    if (st == NEO_OK) (void)neo__file_close(&triple.files[1]);
    neo__triple_close(fuzz_ctx(), &triple);
    remove(path);
}
static int rows_input(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    if (data[size - 1] == 1) try_records(data, size - 1);
    else try_archive(data, size - 1);
    return 0;
}
