/* npy.c: NumPy arrays written, read, and refused; triples of them as a
 * data source. */
#include "common.h"

static neo_ctx *ctx;

/* ---- single arrays ---- */
static void round_trips(void) {
    const char *path = tmp_path("a.npy");
    const neo_dtype dtypes[6] = {NEO_F32, NEO_F16, NEO_I8, NEO_I32, NEO_I64, NEO_U8};
    const int64_t shapes[6][4] = {{7}, {3, 5}, {2, 3, 4}, {2, 1, 3, 2}, {0, 4}, {1}};
    const int dims[6] = {1, 2, 3, 4, 2, 1};
    unsigned char data[512];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)test_random();
    for (int k = 0; k < 6; k++) {
        for (int m = 0; m < 6; m++) {
            neo_tensor t = neo_tensor_nd(data, dtypes[k], dims[m], shapes[m]), u;
            REQUIRE_OK(neo_npy_write(ctx, path, t));
            REQUIRE_OK(neo_npy_read(ctx, path, &u));
            CHECK(u.dtype == t.dtype && u.ndim == t.ndim &&
                  neo_tensor_bytes(u) == neo_tensor_bytes(t));
            for (int d = 0; d < t.ndim; d++) CHECK_INT(u.shape[d], t.shape[d]);
            CHECK_BITS(u.data, data, neo_tensor_bytes(t));
            neo_tensor_free(ctx, &u);
        }
    }
    neo_tensor t = neo_tensor_2d(data, NEO_BF16, 2, 2), none;
    CHECK_ERR(neo_npy_write(ctx, path, t), NEO_ERR_UNSUPPORTED, "NumPy has no bf16");
    t = neo_tensor_transpose(neo_tensor_2d(data, NEO_F32, 2, 3), 0, 1);
    CHECK_ERR(neo_npy_write(ctx, path, t), NEO_ERR_SHAPE, "not contiguous");
    t = neo_tensor_1d(data, NEO_F32, 3);
    t.ndim = 5;
    CHECK_ERR(neo_npy_write(ctx, path, t), NEO_ERR_SHAPE, "the tensor has 5 dimensions");
    CHECK_ERR(neo_npy_read(ctx, "no-such.npy", &none), NEO_ERR_NOT_FOUND, "no-such.npy");
    CHECK_ERR(neo_npy_read(ctx, ".", &none), NEO_ERR_IO, "directory");
    CHECK_ERR(neo_npy_write(ctx, "no/such/dir.npy", neo_tensor_1d(data, NEO_U8, 3)),
              NEO_ERR_NOT_FOUND, "no/such");
    CHECK_ERR(neo_npy_write(ctx, "/dev/full", neo_tensor_1d(data, NEO_U8, 3)), NEO_ERR_IO,
              "/dev/full");
}

/* A file of some version, header text and elements. */
static void write_npy(const char *path, int version, const char *header, const void *data,
                      size_t bytes) {
    static char file[200000];
    size_t n = strlen(header), prefix = version == 1 ? 10 : 12;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)version;
    file[7] = 0;
    for (size_t i = 8; i < prefix; i++) file[i] = (char)(n >> (8 * (i - 8)));
    memcpy(file + prefix, header, n);
    memcpy(file + prefix + n, data, bytes);
    write_bytes(path, file, prefix + n + bytes);
}
static void foreign_headers(void) {
    static const char *const good[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }             "
        "   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}",
        "{\"shape\":(2,2,),\"descr\":\"<f4\",\"fortran_order\":False}\n",
        "{ 'fortran_order' : False ,\n 'shape' : ( 2 , 2 ) , 'descr' : '<f4' , } "
        " \n",
    };
    const char *path = tmp_path("foreign.npy");
    const float data[4] = {1, -2, 3.5f, 4};
    neo_tensor t;
    for (int version = 1; version <= 3; version++) {
        for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
            write_npy(path, version, good[i], data, sizeof data);
            REQUIRE_OK(neo_npy_read(ctx, path, &t));
            CHECK(t.ndim == 2 && t.shape[0] == 2 && t.shape[1] == 2 && t.dtype == NEO_F32);
            CHECK_BITS(t.data, data, sizeof data);
            neo_tensor_free(ctx, &t);
        }
    }
    const double wide[3] = {1.5, 1e-300, 0.1};
    const float narrow[3] = {1.5f, 0.0f, 0.1f};
    write_npy(path, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n", wide,
              sizeof wide);
    REQUIRE_OK(neo_npy_read(ctx, path, &t));
    CHECK(t.dtype == NEO_F32);
    CHECK_BITS(t.data, narrow, sizeof narrow);
    neo_tensor_free(ctx, &t);
    write_npy(path, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", "\7", 1);
    REQUIRE_OK(neo_npy_read(ctx, path, &t));
    CHECK(t.ndim == 1 && t.shape[0] == 1 && *(uint8_t *)t.data == 7);
    neo_tensor_free(ctx, &t);
}
static void refused_headers(void) {
    static const struct {
        const char *header, *message;
        neo_status status;
    } grid[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
         "byte 44: Fortran order is not supported", NEO_ERR_UNSUPPORTED},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }",
         "byte 20: big-endian elements are not supported", NEO_ERR_UNSUPPORTED},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
         "byte 20: elements of type '<c8' are not supported", NEO_ERR_UNSUPPORTED},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }", "type '<U4'",
         NEO_ERR_UNSUPPORTED},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (16,), }", "type '|b1'",
         NEO_ERR_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }",
         "byte 20: descr is not one plain type", NEO_ERR_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,2,2), }",
         "more than 4 dimensions", NEO_ERR_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks descr, fortran_order or shape",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (4,), }", "byte 27: expected the keys",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (4,), }", "byte 44: expected True or False",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }",
         "expected a length in the shape", NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 4, }", "expected ( of the shape",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4 4), }",
         "expected , or ) in the shape", NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), } x", "text after the header's }",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", "expected , or } in the header",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1}", "expected the keys",
         NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(99999999999999999999,), }",
         "the shape overflows", NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': "
         "(4000000000000,4000000000000,), }",
         "the array's size overflows", NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }",
         ": 16 bytes of elements follow, the shape needs 20", NEO_ERR_FORMAT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
         ": 16 bytes of elements follow, the shape needs 12", NEO_ERR_FORMAT},
        {"[1]", "byte 10: expected { of the header", NEO_ERR_FORMAT},
        {"", "byte 10: expected { of the header", NEO_ERR_FORMAT},
    };
    const char *path = tmp_path("refused.npy");
    const float data[4] = {1, 2, 3, 4};
    neo_tensor t;
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        write_npy(path, 1, grid[i].header, data, sizeof data);
        CHECK_ERR(neo_npy_read(ctx, path, &t), grid[i].status, grid[i].message);
        CHECK(t.data == NULL);
    }
    write_npy(path, 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", data,
              sizeof data);
    CHECK_ERR(neo_npy_read(ctx, path, &t), NEO_ERR_FORMAT,
              "byte 0: not a NumPy array of version 1 to 3");
    write_text(path, "PK\3\4 this is no array");
    CHECK_ERR(neo_npy_read(ctx, path, &t), NEO_ERR_FORMAT, "byte 0: not a NumPy array");
    write_bytes(path, "\x93NUMPY\1\0\xff\xff{}", 12);
    CHECK_ERR(neo_npy_read(ctx, path, &t), NEO_ERR_FORMAT,
              "byte 8: the header is longer than the file");
    write_bytes(path, "", 0);
    CHECK_ERR(neo_npy_read(ctx, path, &t), NEO_ERR_FORMAT, "not a NumPy array");
}

/* ---- triples ---- */
/* Criteo text exported as a triple and read back: the same dense numbers, ids
 * and labels. */
static void export_and_read(void) {
    const char *tsv = tmp_path("e.tsv"), *prefix = tmp_path("day_0_");
    neo_schema *criteo = NULL, *npy = NULL;
    neo_reader *a = NULL, *b = NULL;
    neo_batch x, y;
    int64_t rows[26];
    write_criteo(ctx, tsv, 0, 2000);
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 1000, NULL, &criteo));
    neo_reader_desc d = reader_desc(criteo, &tsv, 1, 300);
    REQUIRE_OK(neo_reader_open(ctx, &d, &a));
    REQUIRE_OK(neo_npy_export(ctx, a, prefix));
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &npy));
    CHECK_INT(neo_schema_dense_count(npy), 13);
    CHECK_INT(neo_schema_feature_count(npy), 26);
    CHECK(strcmp(neo_schema_feature(npy, 3).name, "cat_3") == 0);
    d = reader_desc(npy, &prefix, 1, 300);
    d.threads = 2;
    REQUIRE_OK(neo_reader_open(ctx, &d, &b));
    CHECK_INT(neo_reader_get_stats(b).total_samples, 2000);
    REQUIRE_OK(neo_reader_epoch(a, 0));
    int64_t most = 0, n = 0;
    while (neo_reader_next(a, &x) == NEO_OK) {
        REQUIRE_OK(neo_reader_next(b, &y));
        CHECK(hash_batch(1, &x) == hash_batch(1, &y));
        for (int64_t i = 0; i < x.size; i++)
            if (((const int64_t *)x.sparse.ids)[i] > most)
                most = ((const int64_t *)x.sparse.ids)[i];
        n += x.size;
    }
    CHECK(neo_reader_next(b, &y) == NEO_END);
    CHECK_INT(n, 2000);
    CHECK_INT(neo_schema_feature(npy, 0).rows, most + 1);
    neo_reader_close(b);
    neo_schema_destroy(npy);
    for (int i = 0; i < 26; i++) rows[i] = 50; /* modulo, and out of range */
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, rows, 1, &npy));
    d.schema = npy;
    REQUIRE_OK(neo_reader_open(ctx, &d, &b));
    REQUIRE_OK(neo_reader_epoch(a, 0));
    REQUIRE_OK(neo_reader_next(a, &x));
    REQUIRE_OK(neo_reader_next(b, &y));
    for (int64_t i = 0; i < 26 * 300; i++)
        CHECK(((const int64_t *)y.sparse.ids)[i] == ((const int64_t *)x.sparse.ids)[i] % 50);
    neo_reader_close(b);
    neo_schema_destroy(npy);
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, rows, 0, &npy));
    d.schema = npy;
    REQUIRE_OK(neo_reader_open(ctx, &d, &b));
    CHECK_ERR(neo_reader_next(b, &y), NEO_ERR_RANGE, "day_0_sparse.npy: row ");
    CHECK(strstr(neo_last_error(), "is not in [0, 50)"));
    neo_reader_close(b);
    neo_reader_close(a);
    neo_schema_destroy(npy);
    neo_schema_destroy(criteo);
}
static char *triple(const char *prefix, const char *name) {
    static char path[2048];
    snprintf(path, sizeof path, "%s%s.npy", prefix, name);
    return path;
}
static void write_triple(const char *prefix, int rows, int first) {
    double dense[600];
    int64_t sparse[600];
    float label[300];
    char header[128];
    for (int i = 0; i < rows; i++) {
        label[i] = (float)(i % 2);
        for (int k = 0; k < 2; k++)
            dense[2 * i + k] = 0.5 * (first + i) + k, sparse[2 * i + k] = (first + i) % (7 + k);
    }
    snprintf(header, sizeof header,
             "{'descr': '<f8', 'fortran_order': False, 'shape': (%d, 2), }\n", rows);
    write_npy(triple(prefix, "dense"), 2, header, dense, (size_t)rows * 16);
    neo_tensor t = neo_tensor_2d(sparse, NEO_I64, rows, 2);
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), t));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(label, NEO_F32, rows)));
}
/* Ids of any i64 modulo rows of any i64. */
static void modulo_of_large_rows(void) {
    const char *prefix = tmp_path("large_");
    const int64_t large = ((int64_t)1 << 62) + 5, rows[2] = {large, 10};
    const int64_t ids[8] = {INT64_MAX, INT64_MAX, INT64_MIN, INT64_MIN, -1, -1, large - 1, 7};
    int64_t lowest = INT64_MIN % large;
    float dense[4] = {0, 0, 0, 0}, label[4] = {0, 1, 0, 1};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "dense"), neo_tensor_2d(dense, NEO_F32, 4, 1)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"),
                           neo_tensor_2d((void *)(uintptr_t)ids, NEO_I64, 4, 2)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(label, NEO_F32, 4)));
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, rows, 1, &s));
    neo_reader_desc d = reader_desc(s, &prefix, 1, 4);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    const int64_t *got = (const int64_t *)b.sparse.ids; /* the first feature's, then the second's */
    CHECK_INT(got[0], INT64_MAX - large);
    CHECK_INT(got[1], lowest < 0 ? lowest + large : lowest);
    CHECK_INT(got[2], large - 1);
    CHECK_INT(got[3], large - 1);
    const int64_t second[4] = {7, 2, 9, 7}; /* 9223372036854775807, -...808, -1, 7 */
    for (int i = 0; i < 4; i++) CHECK_INT(got[4 + i], second[i]);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void several_triples(void) {
    const char *prefixes[2] = {tmp_path("t0_"), tmp_path("t1_")};
    static uint64_t want[512], got[512];
    static neo_position at[512];
    write_triple(prefixes[0], 300, 0);
    write_triple(prefixes[1], 250, 300);
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_schema_npy(ctx, prefixes, 2, NULL, 0, &s));
    CHECK_INT(neo_schema_feature(s, 0).rows, 7);
    CHECK_INT(neo_schema_feature(s, 1).rows, 8);
    neo_reader_desc d = reader_desc(s, prefixes, 2, 16);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int64_t n = 0;
    while (neo_reader_next(r, &b) == NEO_OK) {
        for (int64_t i = 0; i < b.size; i++, n++) {
            const float *x = (const float *)b.dense.data + 2 * i;
            CHECK(x[0] == 0.5f * (float)n && x[1] == 0.5f * (float)n + 1.0f);
            CHECK_INT(((const int64_t *)b.sparse.ids)[i], n % 7);
            CHECK_INT(((const int64_t *)b.sparse.ids)[b.size + i], n % 8);
            CHECK(((const float *)b.label.data)[i] == (float)((n < 300 ? n : n - 300) % 2));
        }
    }
    CHECK_INT(n, 550);
    neo_reader_close(r);
    d.shuffle_window = 64;
    d.threads = 3;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (n = 0; at[n] = neo_reader_position(r), neo_reader_next(r, &b) == NEO_OK; n++)
        want[n] = hash_batch(1, &b);
    for (int64_t i = 0; i <= n; i += 5) {
        REQUIRE_OK(neo_reader_seek(r, &at[i]));
        CHECK_INT(read_hashes(r, got, 512), n - i);
        CHECK_BITS(got, want + i, (size_t)(n - i) * 8);
    }
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void triples_that_do_not_fit(void) {
    const char *prefix = tmp_path("bad_"), *other = tmp_path("t0_"), *both[2] = {other, prefix};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    float data[64] = {0};
    int32_t ids[8] = {0, 1, 2, -3};
    write_triple(prefix, 10, 0);
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 9)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_SHAPE,
              "have 10, 10 and 9 rows");
    const int64_t cube[3] = {10, 2, 1};
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"),
                           neo_tensor_reshape(neo_tensor_1d(data, NEO_F32, 20), 3, cube)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_SHAPE,
              "must be [N], [N, 1] or [N, labels]");
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(data, NEO_F32, 10, 2)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 10)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_SHAPE, "sparse.npy holds f32");
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(ids, NEO_I32, 4, 1)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "dense"), neo_tensor_2d(data, NEO_F32, 4, 2)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 4)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_RANGE,
              "bad_sparse.npy: row 3, column 0 (feature 0): id -3 is not in [0, 2147483647)");
    ids[3] = INT32_MAX;
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(ids, NEO_I32, 4, 1)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_RANGE,
              "(feature 0): id 2147483647 is not in [0, 2147483647), from which rows are counted");
    int64_t wide[4] = {0, 1, 2, 5000000000}, seven = 7; /* hashes, say */
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(wide, NEO_I64, 4, 1)));
    CHECK_ERR(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_RANGE,
              "id 5000000000 is not in [0, 2147483647), from which rows are counted (else give "
              "rows, and modulo)");
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, &seven, 1, &s));
    neo_reader_desc of_wide = reader_desc(s, &prefix, 1, 4);
    REQUIRE_OK(neo_reader_open(ctx, &of_wide, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK_INT(((const int64_t *)b.sparse.ids)[3], 5000000000 % 7);
    neo_reader_close(r);
    neo_schema_destroy(s);
    ids[3] = -3;
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(ids, NEO_I32, 4, 1)));
    CHECK_ERR(neo_schema_npy(ctx, both, 2, NULL, 0, &s), NEO_ERR_SHAPE, "the schema 2 and 2");
    int64_t rows = 3;
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, &rows, 0, &s));
    neo_reader_desc d = reader_desc(s, &prefix, 1, 2);
    d.skip_bad_lines = 1;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int64_t n = 0;
    while (neo_reader_next(r, &b) == NEO_OK) n += b.size;
    CHECK_INT(n, 3);
    CHECK_INT(neo_reader_get_stats(r).bad_lines, 1);
    neo_reader_close(r);
    data[1] = 2.0f;
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 4)));
    d.skip_bad_lines = 0;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_RANGE,
              "bad_labels.npy: row 1: expected a label in [0, 1], found 2");
    neo_reader_close(r);
    data[1] = 0.0f;
    data[5] = NAN;
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 4)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "dense"), neo_tensor_2d(data, NEO_F32, 4, 2)));
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_OK(neo_reader_next(r, &b)); /* rows 0 and 1: the batch before the bad row */
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_RANGE,
              "bad_dense.npy: row 2, column 1: expected a finite number");
    neo_reader_close(r);
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "dense"), neo_tensor_2d(data, NEO_F32, 0, 2)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "sparse"), neo_tensor_2d(ids, NEO_I32, 0, 1)));
    CHECK_OK(neo_npy_write(ctx, triple(prefix, "labels"), neo_tensor_1d(data, NEO_F32, 0)));
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "holds no sample");
    neo_reader_close(r);
    neo_schema_destroy(s);
    /* export refuses what a triple cannot hold */
    const char *lists = tmp_path("lists2.csv"), *out = tmp_path("out_");
    write_text(lists, "1,a|b\n");
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nx list sep=| rows=9 hash\n", &s));
    d = reader_desc(s, &lists, 1, 2);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_npy_export(ctx, r, out), NEO_ERR_UNSUPPORTED,
              "sample 0: feature 0 has not exactly one id");
    neo_reader_close(r);
    write_text(lists, "0.5,a\n");
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_npy_export(ctx, r, out), NEO_ERR_UNSUPPORTED, "label 0.5 is not 0 or 1");
    neo_reader_close(r);
    neo_schema_destroy(s);
}

int main(void) {
    ctx = test_ctx(2, NEO_ISA_BEST, 1);
    size_t bytes = neo_ctx_memory(ctx).bytes;
    RUN(round_trips);
    RUN(foreign_headers);
    RUN(refused_headers);
    RUN(export_and_read);
    RUN(modulo_of_large_rows);
    RUN(several_triples);
    RUN(triples_that_do_not_fit);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/npy");
}
