/* labels.c: samples of several labels, each a task with a weight.
   Goal     every format that holds them gives label k of sample i where it belongs, beside weights
            of samples, in bags and without, shuffled, on any ranks; a missing one is NaN and has no
            part in what a loss takes; mistakes are named.
   Method   files written here by the plainest code from arrays; the numbers compared one by one. */
#include "common.h"

enum { SAMPLES = 900, LABELS = 3 };
static neo_ctx *ctx;
static float label[SAMPLES][LABELS], weight[SAMPLES]; /* label -1: missing */

static void make_samples(void) {
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < LABELS; k++) {
            label[i][k] = (float)(test_random() % 2);
            if (test_random() % 5 == 0) label[i][k] = -1;
        }
        weight[i] = (float)(test_random() % 4) / 2;
    }
}
static void write_lines(const char *path, const char *header, int labeled) {
    FILE *f = fopen(path, "w");
    if (!f) exit(1);
    fprintf(f, "%s", header);
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < LABELS && labeled; k++) {
            if (label[i][k] >= 0) fprintf(f, k == 1 ? "%.0f0" : "%.0f", (double)label[i][k]);
            fprintf(f, k == 0 ? ",%d|%d,": ",", i, i % 7);
        }
        if (!labeled) fprintf(f, "%d|%d,", i, i % 7);
        fprintf(f, "%g,%d\n", (double)weight[i], i);
    }
    fclose(f);
}
/* A whole epoch: batch i has the samples that its dense number says. */
static void check_labels(const neo_schema *s, const char *path, int64_t window, int missing) {
    for (int ranks = 1; ranks <= 3; ranks++) {
        int seen = 0;
        for (int rank = 0; rank < ranks; rank++) {
            neo_reader *r = NULL;
            neo_batch b;
            neo_reader_desc d = reader_desc(s, &path, 1, 64);
            d.rank = rank, d.world_size = ranks, d.shuffle_window = window;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            while (neo_reader_next(r, &b) == NEO_OK) {
                const float *y = b.label.data, *x = b.dense.data, *w = b.weight.data;
                float label_of[64 * LABELS], weight_of[64 * LABELS];
                CHECK(b.label.ndim == 2 && b.label.shape[0] == b.size &&
                      b.label.shape[1] == LABELS);
                neo_batch_tasks(s, &b, label_of, weight_of);
                for (int64_t i = 0; i < b.size; i++, seen++) {
                    int n = (int)x[i];
                    for (int k = 0; k < LABELS; k++) {
                        int64_t at = i * LABELS + k;
                        int has = label[n][k] >= 0 || !missing;
                        float want = label[n][k] >= 0 ? label[n][k] : 0;
                        float of = neo_schema_label(s, k).weight * (w ? weight[n] : 1);
                        CHECK(has ? y[at] == want : y[at] != y[at]);
                        CHECK(label_of[at] == want && weight_of[at] == (has ? of : 0));
                    }
                    CHECK(!w || w[i] == weight[n]);
                }
            }
            neo_reader_close(r);
        }
        CHECK_INT(seen, SAMPLES);
    }
}
static void text_lines(void) {
    const char *path = tmp_path("labels.csv");
    static const char *const ids[] = {"ids list sep=| rows=2000 hash\n",
                                      "ids category hash rows=50\n"};
    char text[400];
    for (int header = 0; header < 2; header++)
        for (int weighted = 0; weighted < 2; weighted++) {
            neo_schema *s = NULL;
            snprintf(text, sizeof text, "%sa label\n%sb label weight=0.3 positive=10\n"
                     "c label weight=2\nw %s\nx dense\n", header ? "header\n" : "",
                     ids[weighted], weighted ? "sample-weight" : "skip");
            REQUIRE_OK(neo_schema_parse(ctx, text, &s));
            CHECK_INT(neo_schema_label_count(s), LABELS);
            CHECK_INT(neo_schema_is_sample_weighted(s), weighted);
            CHECK(strcmp(neo_schema_label(s, 1).name, "b") == 0);
            CHECK(neo_schema_label(s, 0).weight == 1 && neo_schema_label(s, 2).weight == 2);
            CHECK(neo_schema_label(s, LABELS).name == NULL && !neo_schema_label(s, -1).name);
            write_lines(path, header ? "a,ids,b,c,w,x\n" : "", 1);
            check_labels(s, path, 0, 1);
            check_labels(s, path, 300, 1);
            const float weights[LABELS] = {1, 5, 0.25f}, wrong[LABELS] = {1, 0, 1};
            CHECK_OK(neo_schema_weigh_labels(s, weights, LABELS));
            check_labels(s, path, 0, 1);
            CHECK_ERR(neo_schema_weigh_labels(s, weights, 2), NEO_ERR_ARG,
                      "2 weights, and the data has 3 labels");
            CHECK_ERR(neo_schema_weigh_labels(s, wrong, LABELS), NEO_ERR_ARG,
                      "the weight of label 1 is 0");

            /* A file that lacks labels lacks all. */
            neo_reader *r = NULL;
            neo_batch b;
            write_lines(path, header ? "ids,w,x\n" : "", 0);
            neo_reader_desc d = reader_desc(s, &path, 1, 64);
            neo_status status = neo_reader_open(ctx, &d, &r);
            if (status == NEO_OK) status = neo_reader_next(r, &b);
            CHECK_INT(status, NEO_ERR_FORMAT);
            neo_reader_close(r);
            d.unlabeled = 1;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            REQUIRE_OK(neo_reader_next(r, &b));
            for (int64_t i = 0; i < b.size; i++)
                for (int k = 0; k < LABELS; k++) {
                    float y = ((const float *)b.label.data)[i * LABELS + k];
                    CHECK(y != y && ((const float *)b.dense.data)[i] == (float)i);
                }
            neo_reader_close(r);
            neo_schema_destroy(s);
        }
}
static void put(FILE *f, int32_t x) { (void)fwrite(&x, 4, 1, f); }
/* Records and arrays, which have no missing labels. */
static void records_and_arrays(void) {
    const char *path = tmp_path("labels.bin"), *prefix = tmp_path("labels_"), *one = NULL;
    static float dense[SAMPLES], y[SAMPLES][LABELS];
    static int32_t ids[SAMPLES];
    char name[1100];
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    for (int i = 0; i < SAMPLES; i++) {
        dense[i] = (float)i, ids[i] = i % 40;
        for (int k = 0; k < LABELS; k++) {
            y[i][k] = label[i][k] > 0;
            put(f, k == 1 && y[i][k] > 0 ? 0x3F800000 : (int32_t)y[i][k]);
        }
        (void)fwrite(&dense[i], 4, 1, f);
        put(f, i % 40);
    }
    fclose(f);
    neo_binary_desc d;
    memset(&d, 0, sizeof d);
    d.dense_count = d.feature_count = d.float_dense = 1;
    d.label_count = LABELS, d.paths = &path, d.path_count = 1;
    REQUIRE_OK(neo_schema_binary(ctx, &d, &s));
    CHECK(strcmp(neo_schema_label(s, 2).name, "label_2") == 0);
    check_labels(s, path, 0, 0);
    check_labels(s, path, 200, 0);
    neo_schema_destroy(s);
    d.label_count = 65537;
    CHECK_ERR(neo_schema_binary(ctx, &d, &s), NEO_ERR_ARG, "65537 labels, not 1 .. 65,536");

    snprintf(name, sizeof name, "%sdense.npy", prefix);
    REQUIRE_OK(neo_npy_write(ctx, name, neo_tensor_2d(dense, NEO_F32, SAMPLES, 1)));
    snprintf(name, sizeof name, "%ssparse.npy", prefix);
    REQUIRE_OK(neo_npy_write(ctx, name, neo_tensor_2d(ids, NEO_I32, SAMPLES, 1)));
    snprintf(name, sizeof name, "%slabels.npy", prefix);
    REQUIRE_OK(neo_npy_write(ctx, name, neo_tensor_2d(y, NEO_F32, SAMPLES, LABELS)));
    REQUIRE_OK(neo_schema_npy(ctx, &prefix, 1, NULL, 0, &s));
    check_labels(s, prefix, 0, 0);
    neo_reader_desc of = reader_desc(s, &prefix, 1, 64);
    REQUIRE_OK(neo_reader_open(ctx, &of, &r));
    one = tmp_path("labels_out_");
    CHECK_ERR(neo_npy_export(ctx, r, one), NEO_ERR_UNSUPPORTED, "several labels");
    neo_reader_close(r);
    y[3][2] = 2;
    REQUIRE_OK(neo_npy_write(ctx, name, neo_tensor_2d(y, NEO_F32, SAMPLES, LABELS)));
    REQUIRE_OK(neo_reader_open(ctx, &of, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_RANGE,
              "labels_labels.npy: row 3, column 2: expected a label in [0, 1], found 2");
    neo_reader_close(r);
    REQUIRE_OK(neo_npy_write(ctx, name, neo_tensor_2d(y, NEO_F32, SAMPLES, 2)));
    neo_status status = neo_reader_open(ctx, &of, &r);
    if (status == NEO_OK) status = neo_reader_next(r, &b);
    CHECK_INT(status, NEO_ERR_SHAPE);
    CHECK(strstr(neo_last_error(), "labels.npy has 2 columns, the schema 3") != NULL);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* The first label is that of one label; each of the others has its own signal. */
static void synthetic(void) {
    static float score[20000], of[20000];
    static char scratch[160000];
    neo_synthetic_desc d;
    memset(&d, 0, sizeof d);
    d.samples = 20000, d.rows = 100;
    neo_schema *one = NULL, *four = NULL;
    neo_reader *r = NULL, *q = NULL;
    neo_batch a, b;
    double positive[4] = {0};
    REQUIRE_OK(neo_schema_synthetic(ctx, &d, &one));
    d.label_count = 4;
    REQUIRE_OK(neo_schema_synthetic(ctx, &d, &four));
    neo_reader_desc x = reader_desc(one, NULL, 0, 100), y = reader_desc(four, NULL, 0, 100);
    REQUIRE_OK(neo_reader_open(ctx, &x, &r));
    REQUIRE_OK(neo_reader_open(ctx, &y, &q));
    int64_t n = 0;
    while (neo_reader_next(r, &a) == NEO_OK && neo_reader_next(q, &b) == NEO_OK) {
        CHECK_BITS(a.dense.data, b.dense.data, (size_t)a.size * 13 * 4);
        for (int64_t i = 0; i < a.size; i++, n++) {
            const float *labels = (const float *)b.label.data + 4 * i;
            CHECK(labels[0] == ((const float *)a.label.data)[i]);
            for (int k = 0; k < 4; k++) positive[k] += (double)labels[k];
            score[n] = labels[0], of[n] = labels[2];
        }
    }
    CHECK_INT(n, 20000);
    for (int k = 1; k < 4; k++) CHECK(positive[k] > 200 && positive[k] < 12000);
    CHECK(positive[2] < positive[0]);
    CHECK(neo_auc(score, of, n, scratch) > 0.55); /* labels 0 and 2 go together */
    neo_reader_close(r);
    neo_reader_close(q);
    neo_schema_destroy(one);
    neo_schema_destroy(four);
    d.label_count = 5;
    CHECK_ERR(neo_schema_synthetic(ctx, &d, &one), NEO_ERR_ARG, "label_count is 5");
}

int main(void) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = 1, desc.repro_shards = 6;
    CHECK_OK(neo_ctx_create(&desc, &ctx));
    size_t bytes = neo_ctx_memory(ctx).bytes;
    make_samples();
    RUN(text_lines);
    RUN(records_and_arrays);
    RUN(synthetic);
    CHECK_INT(neo_ctx_memory(ctx).bytes, bytes);
    neo_ctx_destroy(ctx);
    return test_end("data/labels");
}
