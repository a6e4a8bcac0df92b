/* formats.c: libsvm, libffm, records of 32-bit numbers and numpy.savez's archives. Files are
   written here by the plainest code from arrays; batches must have the numbers of those arrays,
   in the same order for any threads, ranks and places to resume at. Then what is refused, and where
   it is said to be. */
#include "common.h"

#include <unistd.h>

enum { SAMPLES = 1500, FEATURES = 5, DENSE = 3, MOST = 6 };
static neo_ctx *ctx;
static float label[SAMPLES], dense[SAMPLES][DENSE], weight[SAMPLES][FEATURES][MOST];
static int64_t id[SAMPLES][FEATURES][MOST];
static int hot[FEATURES], count[SAMPLES][FEATURES]; /* ids: as many as in archives; in text */

static void make_samples(void) {
    static const int sizes[FEATURES] = {3, 1, 6, 2, 1};
    for (int t = 0; t < FEATURES; t++) hot[t] = sizes[t];
    for (int i = 0; i < SAMPLES; i++) {
        label[i] = (float)(test_random() % 2);
        for (int d = 0; d < DENSE; d++) dense[i][d] = (float)(int)(test_random() % 2000 - 100) / 8;
        for (int t = 0; t < FEATURES; t++) {
            count[i][t] = (int)(test_random() % (MOST + 1));
            for (int k = 0; k < MOST; k++) {
                id[i][t][k] = test_random() % (uint32_t)(20 + 30 * t);
                weight[i][t][k] = (float)(int)(test_random() % 4000 - 1000) / 100;
            }
        }
    }
}

/* ---- whole epochs ---- */
/* Everything of sample k of a batch. */
static uint64_t hash_sample(const neo_batch *b, int64_t k) {
    int64_t d = b->dense.shape[1], n = b->sparse.batch;
    const int64_t *ids = (const int64_t *)b->sparse.ids;
    uint64_t h = hash_more(1, (const float *)b->label.data + k, 4);
    h = hash_more(h, (const float *)b->dense.data + k * d, (size_t)d * 4);
    for (int32_t t = 0; t < b->sparse.feature_count; t++) {
        int64_t from = b->sparse.offsets[t * n + k], to = b->sparse.offsets[t * n + k + 1];
        h = hash_more(h, &t, sizeof t);
        for (int64_t j = from; j < to; j++) {
            h = hash_more(h, &ids[j], 8);
            if (b->sparse.weights) h = hash_more(h, &b->sparse.weights[j], 4);
        }
    }
    return h;
}
/* Hashes of an epoch's samples in order, read by so many ranks in turn; with a stop after `stop`
   batches, where a second reader goes on. */
static int64_t epoch(const neo_schema *s, const char *const *paths, int files, int threads,
                     int ranks, int64_t window, int64_t stop, uint64_t *out) {
    neo_reader *r[3] = {NULL, NULL, NULL};
    neo_status status = NEO_OK;
    neo_batch b;
    int64_t n = 0, samples = 0;
    for (int pass = 0; pass < 2; pass++) {
        neo_position at;
        for (int i = 0; i < ranks; i++) {
            neo_reader_desc d = reader_desc(s, paths, files, 64);
            d.threads = threads;
            d.shuffle_window = window;
            d.rank = i;
            d.world_size = ranks;
            if (pass) at = neo_reader_position(r[i]);
            neo_reader_close(r[i]);
            r[i] = NULL;
            CHECK_OK(neo_reader_open(ctx, &d, &r[i]));
            if (!r[i]) return -1;
            if (pass) CHECK_OK(neo_reader_seek(r[i], &at));
        }
        for (; status == NEO_OK && (pass || n < stop); n++)
            for (int i = 0; i < ranks; i++) {
                status = neo_reader_next(r[i], &b);
                if (status != NEO_OK) continue;
                for (int64_t k = 0; k < b.size; k++) out[samples++] = hash_sample(&b, k);
            }
    }
    if (status != NEO_END) printf("reading: %s\n", neo_last_error());
    CHECK(status == NEO_END);
    for (int i = 0; i < ranks; i++) neo_reader_close(r[i]);
    return samples;
}
/* The same samples in the same order whatever reads them. */
static void check_epochs(const neo_schema *s, const char *const *paths, int files, int64_t all) {
    static uint64_t want[2 * SAMPLES], got[2 * SAMPLES];
    for (int64_t window = 0; window <= 200; window += 200) {
        CHECK_INT(epoch(s, paths, files, 1, 1, window, 5, want), all);
        for (int i = 0; i < 3; i++) {
            memset(got, 0, sizeof got);
            CHECK_INT(epoch(s, paths, files, i == 1 ? 3 : 1, i + 1, window, 2 + 3 * i, got), all);
            CHECK_BITS(got, want, (size_t)all * sizeof *got);
        }
    }
}
/* The first batches hold the arrays above. text: bags of `count` ids with weights, no dense. */
static void check_samples(const neo_schema *s, const char *const *paths, int text) {
    neo_reader_desc d = reader_desc(s, paths, 1, 100);
    neo_reader *r = NULL;
    neo_batch b;
    int64_t i = 0;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (; neo_reader_next(r, &b) == NEO_OK; i += b.size) {
        const int64_t *ids = (const int64_t *)b.sparse.ids;
        for (int64_t k = 0; k < b.size; k++) {
            CHECK(((const float *)b.label.data)[k] == label[i + k]);
            if (!text) CHECK_BITS((const float *)b.dense.data + k * DENSE, dense[i + k], 4 * DENSE);
            for (int32_t t = 0; t < b.sparse.feature_count; t++) {
                const int64_t *o = b.sparse.offsets + t * b.size + k;
                int n = text ? count[i + k][t] : hot[t];
                CHECK_INT(o[1] - o[0], n);
                CHECK_BITS(ids + o[0], id[i + k][t], (size_t)n * 8);
                if (text) CHECK_BITS(b.sparse.weights + o[0], weight[i + k][t], (size_t)n * 4);
            }
        }
    }
    CHECK_INT(i, SAMPLES);
    neo_reader_close(r);
}
/* A reader's error on a file of this text, or (text NULL) the file as it lies there. */
static void refused(const neo_schema *s, const char *path, const char *text, neo_status status,
                    const char *message) {
    neo_reader_desc d = reader_desc(s, &path, 1, 4);
    neo_reader *r = NULL;
    neo_batch b;
    if (text) write_text(path, text);
    neo_status st = neo_reader_open(ctx, &d, &r);
    while (st == NEO_OK) st = neo_reader_next(r, &b);
    CHECK_ERR(st, status, message);
    neo_reader_close(r);
}

/* ---- libsvm, libffm ---- */
/* Pairs of a sample: all features' by turns (libffm: fields in no order), or the first's. */
static void write_svm(const char *path, int ffm, int crlf) {
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    fprintf(f, "# a comment\n\n");
    for (int i = 0; i < SAMPLES; i++) {
        fprintf(f, "%s", label[i] > 0 ? "+1" : i % 3 ? "-1" : "0.0");
        if (i % 5 == 0) fprintf(f, " qid:%d", i);
        for (int k = 0; k < MOST; k++)
            for (int t = ffm ? FEATURES - 1 : 0; t >= 0; t--) {
                if (k >= count[i][t]) continue;
                fprintf(f, k % 2 ? " " : " \t");
                if (ffm) fprintf(f, "%d:", t);
                fprintf(f, k % 3 ? "%d:%g" : "0%d:%.9e", (int)id[i][t][k],
                        (double)weight[i][t][k]);
            }
        fprintf(f, i % 7 == 0 ? " # more: 1:2" : i % 11 == 0 ? " " : "");
        fprintf(f, crlf ? "\r\n" : "\n");
    }
    fclose(f);
}
static void svm_batches(void) {
    const char *paths[2] = {tmp_path("a.svm"), tmp_path("b.svm")};
    for (int ffm = 0; ffm < 2; ffm++) {
        neo_libsvm_desc d;
        neo_schema *s = NULL, *given = NULL, *narrow = NULL;
        int64_t most[FEATURES] = {0};
        memset(&d, 0, sizeof d);
        d.with_fields = ffm;
        d.paths = paths;
        d.path_count = 2;
        write_svm(paths[0], ffm, 0);
        write_svm(paths[1], ffm, 1);
        REQUIRE_OK(neo_schema_libsvm(ctx, &d, &s));
        CHECK_INT(neo_schema_feature_count(s), ffm ? FEATURES : 1);
        CHECK(neo_schema_dense_count(s) == 0 && neo_schema_is_weighted(s) &&
              neo_schema_is_fitted(s));
        CHECK(strcmp(neo_schema_feature(s, 0).name, ffm ? "field_0" : "feature_0") == 0);
        for (int i = 0; i < SAMPLES; i++)
            for (int t = 0; t < (ffm ? FEATURES : 1); t++)
                for (int k = 0; k < count[i][t]; k++)
                    if (id[i][t][k] >= most[t]) most[t] = id[i][t][k] + 1;
        for (int t = 0; t < (ffm ? FEATURES : 1); t++)
            CHECK_INT(neo_schema_feature(s, t).rows, most[t]);
        check_samples(s, paths, 1);
        check_epochs(s, paths, 2, 2 * SAMPLES);
        d.fields = ffm ? FEATURES : 1; /* everything is given: no pass */
        d.rows = 1000;
        d.paths = NULL;
        REQUIRE_OK(neo_schema_libsvm(ctx, &d, &given));
        check_samples(given, paths, 1);
        d.rows = 7;
        d.modulo = 1;
        REQUIRE_OK(neo_schema_libsvm(ctx, &d, &narrow));
        neo_reader_desc rd = reader_desc(narrow, paths, 1, 64);
        neo_reader *r = NULL;
        neo_batch b;
        REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
        REQUIRE_OK(neo_reader_next(r, &b));
        for (int t = 0; t < (ffm ? FEATURES : 1); t++)
            for (int k = 0; k < count[0][t]; k++)
                CHECK_INT(((const int64_t *)b.sparse.ids)[b.sparse.offsets[t * b.size] + k],
                          id[0][t][k] % 7);
        neo_reader_close(r);
        neo_schema_destroy(s);
        neo_schema_destroy(given);
        neo_schema_destroy(narrow);
    }
}
static void svm_numbers(void) { /* short ones are divided, others go the long way: both exact */
    static const char *const texts[] = {"1",       "0.1",      ".5",   "-0.3",      "1234567",
                                        "0.00001", "123456.7", "-2.5", "12345678",  "0.1234567",
                                        "1e-3",    "16777217", "3.",   "0000000.5", "9.999999"};
    const char *path = tmp_path("numbers.svm");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        neo_libsvm_desc d;
        neo_schema *s = NULL;
        neo_reader *r = NULL;
        neo_batch b;
        char line[64];
        memset(&d, 0, sizeof d);
        d.rows = 4;
        snprintf(line, sizeof line, "1 3:%s", texts[i]);
        write_text(path, line);
        REQUIRE_OK(neo_schema_libsvm(ctx, &d, &s));
        neo_reader_desc rd = reader_desc(s, &path, 1, 4);
        REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
        REQUIRE_OK(neo_reader_next(r, &b));
        CHECK(b.sparse.weights[0] == strtof(texts[i], NULL));
        neo_reader_close(r);
        neo_schema_destroy(s);
    }
}
static void svm_refused(void) {
    static const struct {
        int ffm;
        const char *text, *message;
        neo_status status;
    } grid[] = {
        {0, "1 1:1\n 1:2\n", "x.svm:2:2: the label is missing", NEO_ERR_FORMAT},
        {0, "# \n3:4 1:1\n", ":2:1: the label is missing", NEO_ERR_FORMAT},
        {0, "1 5:x\n", ":1:3: expected index:number, found '5:x'", NEO_ERR_FORMAT},
        {0, "1 3:nan\n", ":1:3: expected index:number, found '3:nan'", NEO_ERR_FORMAT},
        {0, "1 5\n", ":1:3: expected index:number, found '5'", NEO_ERR_FORMAT},
        {0, "1 -5:1\n", ":1:3: expected index:number, found '-5:1'", NEO_ERR_FORMAT},
        {0, "1 1:2:3\n", ":1:3: expected index:number, found '1:2:3'", NEO_ERR_FORMAT},
        {0, "1 1:\n", ":1:3: expected index:number, found '1:'", NEO_ERR_FORMAT},
        {0, "1 1:1e99\n", ":1:3: expected a value within the range of f32", NEO_ERR_RANGE},
        {0, "1 1:1 qid:3\n", ":1:7: expected index:number, found 'qid:3'", NEO_ERR_FORMAT},
        {0, "1 qid:x 1:1\n", ":1:3: expected qid:number, found 'qid:x'", NEO_ERR_FORMAT},
        {0, "2 1:1\n", ":1:1: expected a label of -1, +1 or in [0, 1], found '2'", NEO_ERR_RANGE},
        {0, "1,2 1:1\n", ":1:1: expected a label, found '1,2'", NEO_ERR_FORMAT},
        {0, "1 9223372036854775808:1\n",
         ":1:3: expected an index of at most 2^63 - 1, found '9223372036854775808:1'",
         NEO_ERR_RANGE},
        {0, "1 99999999999999999999999:1\n", ":1:3: expected an index of at most 2^63 - 1",
         NEO_ERR_RANGE},
        {0, "1 9223372036854775807:1\n", ":1:3: index 9223372036854775807 is not in [0, 100)",
         NEO_ERR_RANGE},
        {0, "1 1:1 0100:2\n", ":1:7: index 100 is not in [0, 100), the rows of its table",
         NEO_ERR_RANGE},
        {0, "1 1:1#x\n1 1:#2\n", ":2:3: expected index:number, found '1:'", NEO_ERR_FORMAT},
        {0, " \n\t# 1 1:1\n#1\n", ":1:2: the label is missing", NEO_ERR_FORMAT},
        {0, "\t# 1 1:1\n#1\n", "holds no sample", NEO_ERR_FORMAT},
        {0, "# nothing\n", "holds no sample", NEO_ERR_FORMAT},
        {1, "1 2:3:1 5:1:1\n", ":1:9: field 5 is not in [0, 4)", NEO_ERR_RANGE},
        {1, "1 2:1\n", ":1:3: expected field:index:number, found '2:1'", NEO_ERR_FORMAT},
        {1, "1 99999999999999999999:1:1\n", ":1:3: expected a field of at most 2^63 - 1",
         NEO_ERR_RANGE},
    };
    const char *path = tmp_path("x.svm");
    static char wide[8000000];
    neo_libsvm_desc d;
    neo_schema *s[2];
    memset(&d, 0, sizeof d);
    d.rows = 100;
    for (int ffm = 0; ffm < 2; ffm++) {
        d.with_fields = ffm;
        d.fields = ffm ? 4 : 0;
        REQUIRE_OK(neo_schema_libsvm(ctx, &d, &s[ffm]));
    }
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++)
        refused(s[grid[i].ffm], path, grid[i].text, grid[i].status, grid[i].message);
    write_bytes(path, "1 1:1\n1 2:\0 3:4\n", 16);
    refused(s[0], path, NULL, NEO_ERR_FORMAT, ":2:5: a NUL byte");
    char *p = wide + sprintf(wide, "1"); /* a million columns in one line */
    for (int i = 0; i < 1000000 && p < wide + sizeof wide - 16; i++) p += sprintf(p, " %d:1", i);
    refused(s[0], path, wide, NEO_ERR_FORMAT, ":1:65537: the line is over 65536 bytes");
    for (int ffm = 0; ffm < 2; ffm++) neo_schema_destroy(s[ffm]);
}
/* Rows, and fields, that are counted in files. */
static void svm_counted(void) {
    const char *path = tmp_path("x.svm");
    neo_libsvm_desc d;
    neo_schema *found = NULL;
    /* a million columns in two lines are no trouble */
    write_text(path, "1 1:1 500000:2\n1 1000000:0.5\n");
    memset(&d, 0, sizeof d);
    d.paths = &path;
    d.path_count = 1;
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &found));
    CHECK_INT(neo_schema_feature(found, 0).rows, 1000001);
    neo_schema_destroy(found);
    write_text(path, "1 1:1 x\n1 5:1\n");
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_FORMAT, ":1:7: expected index:number");
    d.skip_bad_lines = 1;
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &found));
    CHECK_INT(neo_schema_feature(found, 0).rows, 6);
    neo_schema_destroy(found);
    write_text(path, "1 9223372036854775807:1\n");
    d.skip_bad_lines = 0;
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_RANGE, ":1:3: index 9223372036854775807");
    write_text(path, "1 2147483646:1\n1 1:1 2147483647:1\n");
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_RANGE,
              "x.svm:2:7: index 2147483647 is not in [0, 2147483647), from which rows are counted");
    d.skip_bad_lines = 1; /* by the count; a reader takes it for bad, too */
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &found));
    CHECK_INT(neo_schema_feature(found, 0).rows, INT32_MAX);
    neo_schema_destroy(found);
    found = NULL;
    d.skip_bad_lines = 0;
    d.with_fields = d.modulo = 1;
    d.rows = 10; /* the pass for the number of fields leaves indices alone */
    write_text(path, "1 2:99999999999999:1\n");
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &found));
    CHECK_INT(neo_schema_feature_count(found), 3);
    neo_schema_destroy(found);
    found = NULL;
    d.rows = d.modulo = 0;
    write_text(path, "1 1000000:1:1\n");
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_RANGE,
              ":1:3: field 1000000 is not in [0, 65536)");
    d.path_count = 0;
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_ARG, "no paths");
    d.fields = 65537;
    CHECK_ERR(neo_schema_libsvm(ctx, &d, &found), NEO_ERR_ARG, "65537 fields");
    CHECK(!found);
}
/* Lines without labels; labels of one kind alone; many fields and short lines, whose records would
   not fit beside a block's text. */
static void svm_shapes(void) {
    const char *path = tmp_path("shapes.svm");
    neo_libsvm_desc d;
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    memset(&d, 0, sizeof d);
    d.rows = 10;
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &s));
    write_text(path, "1:1 2:2\n1 3:3\n 4:4\n");
    neo_reader_desc rd = reader_desc(s, &path, 1, 4);
    rd.unlabeled = 1;
    REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 3 && b.sparse.offsets[3] == 4);
    CHECK(((const float *)b.label.data)[0] == 0 && ((const float *)b.label.data)[1] == 1);
    neo_reader_close(r);
    write_text(path, "-1 1:1#2:2\n -1 2:2#\n \t# 5:5\n#\n-1#1:1\r\n0.25 qid:7#\n0 #1\n");
    rd.unlabeled = 0; /* with comments, of which some hold what could be samples */
    REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 4 && b.sparse.offsets[4] == 2 && b.sparse.offsets[2] == 2);
    CHECK(((const float *)b.label.data)[3] == 0.25f);
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 1 && b.sparse.offsets[1] == 0);
    neo_reader_close(r);
    write_text(path, "-1 1:1\n-1 2:2\n-1\n0.25 3:1");
    REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 4 && ((const float *)b.label.data)[3] == 0.25f &&
          ((const float *)b.label.data)[2] == 0 && b.sparse.offsets[3] == b.sparse.offsets[2]);
    neo_reader_close(r);
    neo_schema_destroy(s);

    enum { FIELDS = 2000, LINES = 9000 };
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < LINES; i++) fprintf(f, "%d %d:%d:1\n", i % 2, i % FIELDS, i % 10);
    if (f) fclose(f);
    d.with_fields = 1;
    d.fields = FIELDS;
    REQUIRE_OK(neo_schema_libsvm(ctx, &d, &s));
    rd = reader_desc(s, &path, 1, 50);
    REQUIRE_OK(neo_reader_open(ctx, &rd, &r));
    int64_t i = 0;
    for (; neo_reader_next(r, &b) == NEO_OK; i += b.size)
        for (int64_t k = 0; k < b.size; k++) {
            int64_t bag = (i + k) % FIELDS * b.size + k, at = b.sparse.offsets[bag];
            CHECK(b.sparse.offsets[bag + 1] == at + 1 &&
                  ((const int64_t *)b.sparse.ids)[at] == (i + k) % 10);
        }
    CHECK_INT(i, LINES);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* ---- records ---- */
static void put_i32(FILE *f, int64_t x) {
    uint32_t u = (uint32_t)x;
    for (int i = 0; i < 4; i++) fputc((int)(u >> (8 * i) & 255), f);
}
static void put_f32(FILE *f, float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    put_i32(f, u);
}
/* HugeCTR's Raw: floats and several ids. float_label: so is the label. */
static void write_raw(const char *path, int float_label) {
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    for (int i = 0; i < SAMPLES; i++) {
        if (float_label) put_f32(f, label[i]);
        else put_i32(f, label[i] > 0);
        for (int d = 0; d < DENSE; d++) put_f32(f, dense[i][d]);
        for (int t = 0; t < FEATURES; t++)
            for (int k = 0; k < hot[t]; k++) put_i32(f, id[i][t][k]);
    }
    fclose(f);
}
static neo_binary_desc raw_desc(const char *const *paths, int files) {
    neo_binary_desc d;
    memset(&d, 0, sizeof d);
    d.dense_count = DENSE;
    d.feature_count = FEATURES;
    d.ids_per_feature = hot;
    d.float_dense = 1;
    d.paths = paths;
    d.path_count = files;
    return d;
}
static void binary_batches(void) {
    const char *paths[2] = {tmp_path("a.bin"), tmp_path("b.bin")};
    neo_schema *s = NULL, *whole = NULL, *text = NULL;
    write_raw(paths[0], 0);
    write_raw(paths[1], 1);
    neo_binary_desc d = raw_desc(paths, 2);
    REQUIRE_OK(neo_schema_binary(ctx, &d, &s));
    CHECK(neo_schema_feature_count(s) == FEATURES && neo_schema_feature(s, 2).rows == 80 &&
          !neo_schema_is_weighted(s));
    check_samples(s, paths, 0);
    check_samples(s, paths + 1, 0);
    check_epochs(s, paths, 2, 2 * SAMPLES);
    neo_schema_destroy(s);

    /* MLPerf's: the same dense numbers as of Criteo's text, ids as they are */
    const char *bin = tmp_path("int.bin"), *tsv = tmp_path("int.tsv");
    FILE *f = fopen(bin, "wb"), *g = fopen(tsv, "wb");
    if (!f || !g) exit(1);
    for (int i = 0; i < SAMPLES; i++) {
        put_i32(f, i % 3 == 0);
        fprintf(g, "%d", i % 3 == 0);
        for (int k = 0; k < 13; k++) {
            int x = (int)(test_random() % (k < 6 ? 100 : 2000000000)) - 3;
            put_i32(f, x);
            fprintf(g, "\t%d", x);
        }
        for (int k = 0; k < 26; k++) {
            uint32_t x = test_random() % 1000;
            put_i32(f, x + (i == 7 && k == 3 ? 3000000000u : 0));
            fprintf(g, "\t%x", x);
        }
        fprintf(g, "\n");
    }
    fclose(f);
    fclose(g);
    memset(&d, 0, sizeof d);
    d.rows = (int64_t)1 << 32;
    REQUIRE_OK(neo_schema_binary(ctx, &d, &whole));
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 100000, NULL, &text));
    neo_reader_desc a = reader_desc(whole, &bin, 1, 128), c = reader_desc(text, &tsv, 1, 128);
    neo_reader *r = NULL, *q = NULL;
    neo_batch x, y;
    REQUIRE_OK(neo_reader_open(ctx, &a, &r));
    REQUIRE_OK(neo_reader_open(ctx, &c, &q));
    CHECK_INT(neo_reader_get_stats(r).total_samples, SAMPLES);
    int64_t n = 0;
    for (; neo_reader_next(r, &x) == NEO_OK && neo_reader_next(q, &y) == NEO_OK; n += x.size) {
        CHECK_BITS(x.dense.data, y.dense.data, (size_t)x.size * 13 * 4);
        CHECK_BITS(x.label.data, y.label.data, (size_t)x.size * 4);
        for (int64_t k = 0; k < 26 * x.size; k++)
            CHECK_INT(((const int64_t *)x.sparse.ids)[k] + 1,
                      ((const int64_t *)y.sparse.ids)[k] +
                          (n == 0 && k == 3 * x.size + 7 ? 3000000000 : 0));
    }
    CHECK_INT(n, SAMPLES);
    neo_reader_close(r);
    neo_reader_close(q);
    check_epochs(whole, &bin, 1, SAMPLES);
    neo_schema_destroy(whole);
    neo_schema_destroy(text);
}
/* Records in file order go straight into batches; where bad ones may be skipped, by way of windows:
   the same batches and positions, and either resumes at the other's. */
static void binary_direct(void) {
    static const int64_t sizes[] = {1, 31, 33, 500, 700, 1500, 2999, 4000};
    const char *paths[3] = {tmp_path("d.bin"), tmp_path("e.bin"), tmp_path("f.bin")};
    neo_schema *s = NULL;
    for (int i = 0; i < 3; i++) write_raw(paths[i], i % 2);
    neo_binary_desc desc = raw_desc(paths, 3);
    REQUIRE_OK(neo_schema_binary(ctx, &desc, &s));
    for (size_t i = 0; i < 3 * sizeof sizes / sizeof *sizes; i++) {
        neo_reader *r[2] = {NULL, NULL};
        neo_position at[2];
        neo_batch b[2];
        neo_status status = NEO_OK;
        for (int k = 0; k < 2; k++) {
            neo_reader_desc d = reader_desc(s, paths, 3, sizes[i / 3]);
            d.skip_bad_lines = k;
            d.threads = 1 + (int)i % 2;
            d.drop_last = i % 3 == 2;
            d.world_size = 1 + (i % 3 == 1), d.rank = i % 3 == 1;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r[k]));
        }
        for (int n = 0; status == NEO_OK; n++) {
            for (int k = 0; k < 2; k++) at[k] = neo_reader_position(r[k]);
            CHECK_BITS(at[0].word, at[1].word, sizeof at[0].word);
            if (n == 3 || n == 5)
                for (int k = 0; k < 2; k++) CHECK_OK(neo_reader_seek(r[k], &at[1 - k]));
            status = neo_reader_next(r[0], &b[0]);
            REQUIRE(neo_reader_next(r[1], &b[1]) == status);
            if (status != NEO_OK) continue;
            CHECK(b[0].first == b[1].first && b[0].global_size == b[1].global_size);
            CHECK(b[0].size == b[1].size);
            for (int64_t k = 0; k < b[0].size; k++)
                CHECK(hash_sample(&b[0], k) == hash_sample(&b[1], k));
            if (i < 6 && n == 60) break;
        }
        CHECK(i < 6 || status == NEO_END);
        neo_reader_close(r[0]), neo_reader_close(r[1]);
    }
    /* The batches before that of a bad row come. */
    neo_reader_desc d = reader_desc(s, paths, 3, 100);
    neo_reader *r = NULL;
    neo_batch b;
    FILE *f = fopen(paths[1], "r+b");
    if (!f || fseek(f, 777 * 4 * (1 + DENSE + 13), SEEK_SET)) exit(1);
    put_i32(f, 9);
    fclose(f);
    d.threads = 3;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (int i = 0; i < 22; i++) CHECK_OK(neo_reader_next(r, &b));
    for (int i = 0; i < 2; i++)
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_RANGE,
                  "e.bin: row 777, column 0: expected a label in [0, 1], found 9");
    neo_reader_close(r);
    write_bytes(paths[1], "", 0);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (int i = 0; i < 12; i++) CHECK_OK(neo_reader_next(r, &b)); /* two whole windows */
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "e.bin: holds no sample");
    neo_reader_close(r);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    write_raw(paths[0], 0);
    f = fopen(paths[0], "ab");
    for (int i = 0; f && i < 1 + DENSE + 13; i++) put_i32(f, 0);
    if (f) fclose(f);
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_MISMATCH, "d.bin: has 1501 rows, it had 1500");
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* Ids of all of 32 bits in tables of all sizes, by their remainders or refused, with vector
   instructions and without. */
static void binary_ids(void) {
    enum { T = 13, N = 75 };
    static const int64_t rows[T] = {1,          2,          3,        7,         1000,
                                    1 << 20,    0x7FFFFFFF, 999983,   1ll << 32, 1ll << 33,
                                    0xFFFFFFFF, 0x80000001, 123456789};
    const char *path = tmp_path("ids.bin");
    uint32_t record[N][2 + T];
    for (int i = 0; i < N; i++) {
        record[i][0] = record[i][1] = (uint32_t)i % 2;
        for (int t = 0; t < T; t++) {
            const uint32_t edge[4] = {0, (uint32_t)(rows[t] - 1), (uint32_t)rows[t], 0xFFFFFFFF};
            record[i][2 + t] = i % 3 ? test_random() << 1 | (uint32_t)(i & 1) : edge[i / 3 % 4];
            if (i % 2) record[i][2 + t] %= (uint32_t)(rows[t] < 1ll << 32 ? rows[t] : 0xFFFFFFFF);
        }
    }
    write_bytes(path, record, sizeof record);
    for (int i = 0; i < 4; i++) {
        neo_ctx *own = test_ctx(1, i % 2 ? NEO_ISA_BEST : NEO_ISA_SCALAR, 1);
        neo_binary_desc desc;
        neo_schema *s = NULL;
        neo_reader *r = NULL;
        neo_batch b;
        memset(&desc, 0, sizeof desc);
        desc.dense_count = 1;
        desc.feature_count = T;
        desc.rows_per_feature = rows;
        desc.modulo = i / 2;
        REQUIRE_OK(neo_schema_binary(own, &desc, &s));
        neo_reader_desc d = reader_desc(s, &path, 1, 34);
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(own, &d, &r));
        int64_t left = 0, n = 0;
        for (int k = 0; k < N; k++) {
            int good = 1;
            for (int t = 0; t < T; t++) good &= desc.modulo || (int64_t)record[k][2 + t] < rows[t];
            if (!good) continue;
            if (left == 0) {
                REQUIRE_OK(neo_reader_next(r, &b));
                left = b.size;
            }
            for (int t = 0; t < T; t++)
                CHECK_INT(((const int64_t *)b.sparse.ids)[t * b.size + b.size - left],
                          (int64_t)record[k][2 + t] % rows[t]);
            left--, n++;
        }
        CHECK(left == 0 && neo_reader_next(r, &b) == NEO_END);
        CHECK(desc.modulo ? n == N : n >= N / 2 && n < N);
        neo_reader_close(r);
        neo_schema_destroy(s);
        neo_ctx_destroy(own);
    }
}
static void binary_refused(void) {
    const char *path = tmp_path("bad.bin");
    static char bytes[100000];
    neo_schema *s = NULL, *none = NULL;
    neo_binary_desc d = raw_desc(&path, 1);
    d.rows = 200;
    write_raw(path, 0);
    FILE *f = fopen(path, "rb");
    size_t row = 4 * (1 + DENSE + 13), n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    REQUIRE_OK(neo_schema_binary(ctx, &d, &s));
    write_bytes(path, bytes, 5 * row + 11);
    refused(s, path, NULL, NEO_ERR_FORMAT,
            "bad.bin: byte 351: the file ends inside row 5 (a row has 68 bytes)");
    write_bytes(path, bytes, 0);
    refused(s, path, NULL, NEO_ERR_FORMAT, "holds no sample");
    write_bytes(path, "\x1F\x8B\x08\x00 of any length", 17); /* before it is cut into rows */
    refused(s, path, NULL, NEO_ERR_FORMAT, "bad.bin: is compressed with gzip: unpack it");
    memcpy(bytes + 2 * row, "\7\0\0\0", 4);
    write_bytes(path, bytes, n / row * row);
    refused(s, path, NULL, NEO_ERR_RANGE,
            "bad.bin: row 2, column 0: expected a label in [0, 1], found 7");
    memcpy(bytes + 2 * row, "\1\0\0\0", 4);
    memcpy(bytes + 3 * row + 8, "\0\0\xC0\x7F", 4);
    write_bytes(path, bytes, n / row * row);
    refused(s, path, NULL, NEO_ERR_RANGE, "row 3, column 2: expected a finite number");
    memcpy(bytes + 3 * row + 8, bytes, 4);
    memcpy(bytes + 4 * row + 4 * (1 + DENSE + 4), "\xFF\xFF\xFF\xFF", 4);
    write_bytes(path, bytes, n / row * row);
    refused(s, path, NULL, NEO_ERR_RANGE,
            "row 4, column 8: id 4294967295 is not in [0, 200), the rows of its table");
    d.rows = 0; /* counted */
    CHECK_ERR(neo_schema_binary(ctx, &d, &none), NEO_ERR_RANGE,
              "bad.bin: row 4, column 8 (feature 2): id 4294967295 is not in [0, 2147483647), from "
              "which rows are counted");
    memcpy(bytes + 4 * row, "\7\0\0\0", 4); /* an earlier fault than the id's */
    write_bytes(path, bytes, n / row * row);
    CHECK_ERR(neo_schema_binary(ctx, &d, &none), NEO_ERR_RANGE,
              "bad.bin: row 4, column 0: expected a label in [0, 1], found 7");
    d.path_count = 0;
    CHECK_ERR(neo_schema_binary(ctx, &d, &none), NEO_ERR_ARG, "neither rows nor paths");
    int32_t wrong[FEATURES] = {1, 1, 0, 1, 1};
    d.ids_per_feature = wrong;
    CHECK_ERR(neo_schema_binary(ctx, &d, &none), NEO_ERR_ARG, "feature 2 has 0 ids");
    refused(s, "-", NULL, NEO_ERR_ARG, "cannot come from standard input");
    neo_schema_destroy(s);
}

static int warned;
static void count_warning(neo_log_level level, const char *message, void *user) {
    (void)user;
    warned += level == NEO_LOG_WARNING &&
              strstr(message, "raw.bin: its numbers are the bits of floats") != NULL;
}
/* Floats that are read as integers are said to be; integers, and floats as such, are not. */
static void binary_of_floats(void) {
    const char *path = tmp_path("raw.bin");
    neo_ctx_desc desc;
    neo_ctx *own = NULL;
    neo_schema *s = NULL;
    memset(&desc, 0, sizeof desc);
    desc.logger.log = count_warning;
    REQUIRE_OK(neo_ctx_create(&desc, &own));
    neo_binary_desc d = raw_desc(&path, 1);
    write_raw(path, 0);
    for (int i = 0; i < 4; i++) { /* with rows, and counted */
        d.float_dense = i % 2;
        d.rows = i < 2 ? 200 : 0;
        warned = 0;
        REQUIRE_OK(neo_schema_binary(own, &d, &s));
        CHECK_INT(warned, !d.float_dense);
        neo_schema_destroy(s);
    }
    static const int32_t numbers[][DENSE] = {
        {0, 0, 0}, {1, 0, -1}, {800000000, 1065353216, 0}, {1065353216, 0, -1082130432}};
    d.float_dense = 0;
    for (int i = 0; i < 4; i++) {
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        for (int k = 0; k < 1 + DENSE + 13; k++)
            put_i32(f, k && k <= DENSE ? numbers[i][k - 1] : 0);
        fclose(f);
        warned = 0;
        REQUIRE_OK(neo_schema_binary(own, &d, &s));
        CHECK_INT(warned, i == 3);
        neo_schema_destroy(s);
    }
    neo_ctx_destroy(own);
}

/* ---- archives of numpy.savez ---- */
typedef struct zip_options {
    int zip64, comment, method, features, cut, twice, skip; /* of the features: one is left out */
    const char *descr;
} zip_options;
static char zip_file[400000];
static size_t zip_bytes;
static void zip_put(uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++) zip_file[zip_bytes++] = i < 8 ? (char)(x >> (8 * i)) : 0;
}
static void zip_text(const char *text) {
    memcpy(zip_file + zip_bytes, text, strlen(text));
    zip_bytes += strlen(text);
}
/* Sizes, place and name of a member, in its local header or (directory) its entry. */
static void zip_member(const zip_options *o, int directory, int k, uint64_t size, uint64_t at) {
    char name[24];
    int n = snprintf(name, sizeof name, "%d.npy", k);
    int extra = o->zip64 ? 4 + (directory ? 24 : 16) : 0;
    zip_put(directory ? 0x02014B50 : 0x04034B50, 4);
    if (directory) zip_put(20, 2);
    zip_put(20, 2);
    zip_put(0, 2);
    zip_put((uint64_t)o->method, 2);
    zip_put(0, 8); /* time, date, checksum */
    zip_put(o->zip64 ? 0xFFFFFFFFu : size, 4);
    zip_put(o->zip64 ? 0xFFFFFFFFu : size, 4);
    zip_put((uint64_t)n, 2);
    zip_put((uint64_t)extra, 2);
    if (directory) zip_put(0, 10); /* comment, disk, attributes */
    if (directory) zip_put(o->zip64 ? 0xFFFFFFFFu : at, 4);
    zip_text(name);
    if (!extra) return;
    zip_put(1, 2);
    zip_put((uint64_t)extra - 4, 2);
    zip_put(size, 8);
    zip_put(size, 8);
    if (directory) zip_put(at, 8);
}
static void write_npz(const char *path, zip_options o) {
    uint64_t at[FEATURES + 1], size[FEATURES + 1];
    int features = o.features ? o.features : FEATURES, members = features + o.twice;
    char header[128];
    zip_bytes = 0;
    for (int m = 0; m < members; m++) {
        int k = m % features, width = hot[k];
        at[m] = zip_bytes;
        int n = snprintf(header, sizeof header,
                         "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }\n",
                         o.descr ? o.descr : "<i4", SAMPLES, width);
        size[m] = 10 + (uint64_t)n + (uint64_t)(4 * SAMPLES * width);
        zip_member(&o, 0, k, size[m], at[m]);
        zip_text("\x93NUMPY\1");
        zip_put(0, 1);
        zip_put((uint64_t)n, 2);
        zip_text(header);
        for (int i = 0; i < SAMPLES; i++)
            for (int j = 0; j < width; j++) zip_put((uint64_t)id[i][k][j], 4);
    }
    uint64_t directory = zip_bytes;
    for (int m = 0; m < members; m++)
        if (!o.skip || m != o.skip) zip_member(&o, 1, m % features, size[m], at[m]);
    uint64_t end = zip_bytes;
    uint64_t entries = (uint64_t)(members - (o.skip != 0));
    if (o.zip64) {
        zip_text("PK\6\6");
        zip_put(44, 8);
        zip_put(0, 12);
        zip_put(entries, 8);
        zip_put(entries, 8);
        zip_put(end - directory, 8);
        zip_put(directory, 8);
        zip_text("PK\6\7");
        zip_put(0, 4);
        zip_put(end, 8);
        zip_put(1, 4);
    }
    zip_text("PK\5\6");
    zip_put(0, 4);
    zip_put(o.zip64 ? 0xFFFF : entries, 2);
    zip_put(o.zip64 ? 0xFFFF : entries, 2);
    zip_put(o.zip64 ? 0xFFFFFFFFu : end - directory, 4);
    zip_put(o.zip64 ? 0xFFFFFFFFu : directory, 4);
    zip_put((uint64_t)o.comment, 2);
    for (int i = 0; i < o.comment; i++) zip_put('.', 1);
    write_bytes(path, zip_file, zip_bytes - (size_t)o.cut);
}
static const char *part(const char *prefix, const char *name) {
    static char paths[4][1100];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s%s", prefix, name);
    return path;
}
static void write_others(const char *prefix) {
    CHECK_OK(neo_npy_write(ctx, part(prefix, "dense.npy"),
                           neo_tensor_2d(dense, NEO_F32, SAMPLES, DENSE)));
    CHECK_OK(neo_npy_write(ctx, part(prefix, "labels.npy"),
                           neo_tensor_2d(label, NEO_F32, SAMPLES, 1)));
}
static void npz_batches(void) {
    const char *prefixes[2] = {tmp_path("z0_"), tmp_path("z1_")};
    neo_schema *s = NULL;
    for (int i = 0; i < 2; i++) {
        zip_options o = {i, i ? 300 : 0, 0, 0, 0, 0, 0, NULL};
        write_npz(part(prefixes[i], "sparse_multi_hot.npz"), o);
        write_others(prefixes[i]);
    }
    REQUIRE_OK(neo_schema_npz(ctx, prefixes, 2, NULL, 0, &s));
    CHECK(neo_schema_format(s) == NEO_FORMAT_NPZ && neo_schema_feature(s, 2).rows == 80);
    check_samples(s, prefixes, 0);
    check_samples(s, prefixes + 1, 0);
    check_epochs(s, prefixes, 2, 2 * SAMPLES);
    neo_schema_destroy(s);
    hot[0] = hot[2] = hot[3] = 1; /* one id of each: a fixed record */
    zip_options plain = {0, 0, 0, 0, 0, 0, 0, NULL};
    write_npz(part(prefixes[0], "sparse_multi_hot.npz"), plain);
    REQUIRE_OK(neo_schema_npz(ctx, prefixes, 1, NULL, 0, &s));
    check_samples(s, prefixes, 0);
    check_epochs(s, prefixes, 1, SAMPLES);
    neo_schema_destroy(s);
    CHECK_ERR(neo_schema_npz(ctx, prefixes, 2, NULL, 0, &s), NEO_ERR_SHAPE,
              "sparse_multi_hot.npz: 0.npy has 3 columns, the schema 1");
    make_samples();
    /* a file of numpy's own; ids (7 i + 3 k + 11 j) % (10 + k), sizes 3, 1, 2 */
    write_npz(part(prefixes[0], "sparse_multi_hot.npz"), plain);
    FILE *f = fopen("tests/golden/multi_hot.npz", "rb"),
         *to = fopen(part(prefixes[0], "sparse_multi_hot.npz"), "wb");
    size_t n = f ? fread(zip_file, 1, sizeof zip_file, f) : 0;
    CHECK(to && n > 0 && fwrite(zip_file, 1, n, to) == n);
    if (f) fclose(f);
    if (to) fclose(to);
    CHECK_OK(neo_npy_write(ctx, part(prefixes[0], "dense.npy"),
                           neo_tensor_2d(dense, NEO_F32, 5, DENSE)));
    CHECK_OK(neo_npy_write(ctx, part(prefixes[0], "labels.npy"),
                           neo_tensor_2d(label, NEO_F32, 5, 1)));
    REQUIRE_OK(neo_schema_npz(ctx, prefixes, 1, NULL, 0, &s));
    neo_reader_desc d = reader_desc(s, prefixes, 1, 8);
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    for (int k = 0, sizes[3] = {3, 1, 2}; k < 3; k++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < sizes[k]; j++)
                CHECK_INT(((const int64_t *)b.sparse.ids)[b.sparse.offsets[k * 5 + i] + j],
                          (7 * i + 3 * k + 11 * j) % (10 + k));
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void npz_refused(void) {
    static const struct {
        zip_options o;
        const char *message;
        neo_status status;
    } grid[] = {
        {{0, 0, 8, 0, 0, 0, 0, NULL},
         "sparse_multi_hot.npz: 0.npy: is compressed (method 8): numpy.savez stores",
         NEO_ERR_UNSUPPORTED},
        {{1, 0, 8, 0, 0, 0, 0, NULL}, "0.npy: is compressed (method 8)", NEO_ERR_UNSUPPORTED},
        {{0, 0, 0, 0, 10, 0, 0, NULL},
         "the file is cut off, or is not of numpy.savez", NEO_ERR_FORMAT},
        {{1, 40, 0, 0, 40, 0, 0, NULL}, "no directory of a zip ends here", NEO_ERR_FORMAT},
        {{0, 0, 0, 0, 0, 1, 0, NULL}, "has 0.npy twice", NEO_ERR_FORMAT},
        {{0, 0, 0, 0, 0, 0, 2, NULL}, "has 4.npy, but not all before it", NEO_ERR_FORMAT},
        {{0, 0, 0, 0, 0, 0, 0, "<f4"}, "0.npy: expected i32 or i64 of [samples]", NEO_ERR_SHAPE},
        {{0, 0, 0, 0, 0, 0, 0, "<i8"}, "0.npy: has ", NEO_ERR_FORMAT},
        {{0, 0, 0, 0, 0, 0, 0, ">i4"}, "0.npy: byte 20: big-endian", NEO_ERR_UNSUPPORTED},
    };
    const char *prefix = tmp_path("zbad_"), *path = part(prefix, "sparse_multi_hot.npz");
    neo_schema *s = NULL;
    char name[1100];
    snprintf(name, sizeof name, "%s", path);
    write_others(prefix);
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        write_npz(name, grid[i].o);
        CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), grid[i].status, grid[i].message);
    }
    zip_options plain = {0, 0, 0, 0, 0, 0, 0, NULL};
    write_npz(name, plain);
    zip_file[0] = 'Q';
    write_bytes(name, zip_file, zip_bytes);
    CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_FORMAT,
              "0.npy: byte 0: no member begins here");
    write_npz(name, plain);
    REQUIRE_OK(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s));
    const int64_t rows[FEATURES] = {1000, 1000, 1000, 1000, 5};
    neo_schema_destroy(s);
    REQUIRE_OK(neo_schema_npz(ctx, &prefix, 1, rows, 0, &s));
    refused(s, prefix, NULL, NEO_ERR_RANGE, "sparse_multi_hot.npz: 4.npy: row ");
    CHECK(strstr(neo_last_error(), "column 0: id ") && strstr(neo_last_error(), "not in [0, 5)"));
    neo_schema_destroy(s);
    REQUIRE_OK(neo_schema_npz(ctx, &prefix, 1, rows, 1, &s)); /* modulo: none is outside */
    neo_reader_desc d = reader_desc(s, &prefix, 1, 64);
    neo_reader *r = NULL;
    uint64_t hashes[64];
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_INT(read_hashes(r, hashes, 64), (SAMPLES + 63) / 64);
    neo_reader_close(r);
    neo_schema_destroy(s);
    write_text(name, "no zip");
    CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_FORMAT, "byte 6: no directory");
    write_text(name, "");
    CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_FORMAT, "byte 0: no directory");
    remove(name);
    REQUIRE(symlink("/dev/zero", name) == 0);
    CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_IO, "must be a file");
    remove(name);
    CHECK_ERR(neo_schema_npz(ctx, &prefix, 1, NULL, 0, &s), NEO_ERR_NOT_FOUND, "multi_hot.npz");
    CHECK(!s);
}

int main(void) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = 1;
    desc.repro_shards = 6;
    CHECK_OK(neo_ctx_create(&desc, &ctx));
    size_t bytes = neo_ctx_memory(ctx).bytes;
    make_samples();
    RUN(svm_batches);
    RUN(svm_numbers);
    RUN(svm_refused);
    RUN(svm_counted);
    RUN(svm_shapes);
    RUN(binary_batches);
    RUN(binary_direct);
    RUN(binary_ids);
    RUN(binary_refused);
    RUN(binary_of_floats);
    RUN(npz_batches);
    RUN(npz_refused);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/formats");
}
