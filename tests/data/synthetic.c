/* synthetic.c: the generator with planted truth: samples depend on their
   numbers alone, come back the same through a Criteo file, follow the laws they
   promise, and can be learned up to the best AUC it announces. */
#include "common.h"

static neo_ctx *ctx;

static neo_schema *make(neo_synthetic_desc d) {
    neo_schema *s = NULL;
    if (neo_schema_synthetic(ctx, &d, &s) != NEO_OK) {
        printf("%s\n", neo_last_error());
        exit(1);
    }
    return s;
}
static neo_reader *open_reader(const neo_schema *s, int64_t batch, int threads, int64_t window) {
    neo_reader *r = NULL;
    neo_reader_desc d = reader_desc(s, NULL, 0, batch);
    d.threads = threads;
    d.shuffle_window = window;
    if (neo_reader_open(ctx, &d, &r) != NEO_OK) {
        printf("%s\n", neo_last_error());
        exit(1);
    }
    return r;
}

static void defaults_and_arguments(void) {
    neo_schema *s = make((neo_synthetic_desc){.samples = 10});
    CHECK(neo_schema_format(s) == NEO_FORMAT_SYNTHETIC);
    CHECK_INT(neo_schema_dense_count(s), 13);
    CHECK_INT(neo_schema_feature_count(s), 26);
    CHECK_INT(neo_schema_feature(s, 7).rows, 10000);
    CHECK(strcmp(neo_schema_feature(s, 7).name, "C8") == 0 && neo_schema_is_fitted(s));
    const char *path = "x";
    neo_reader *r = NULL;
    neo_reader_desc d = reader_desc(s, &path, 1, 4);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "takes no paths");
    neo_schema_destroy(s);
    const neo_synthetic_desc bad[] = {{.samples = 0},
                                      {.samples = 5, .first_sample = -1},
                                      {.samples = 5, .rows = -2},
                                      {.samples = 5, .zipf = -1.0f},
                                      {.samples = 5, .ids_per_bag = -3},
                                      {.samples = 5, .signal = NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(neo_schema_synthetic(ctx, &bad[i], &s) == NEO_ERR_ARG);
        CHECK(s == NULL);
    }
}
/* The samples of [100, 400) are those of an epoch [0, 1000) there; threads,
 * shuffles and seeks as for files. */
static void samples_depend_on_their_number(void) {
    neo_synthetic_desc d = {.samples = 1000, .rows = 50, .seed = 7};
    neo_schema *all = make(d);
    d.samples = 300;
    d.first_sample = 100;
    neo_schema *part = make(d);
    neo_schema *same = make((neo_synthetic_desc){.samples = 300, .first_sample = 100, .of = all});
    neo_reader *a = open_reader(all, 100, 1, 0), *b = open_reader(part, 100, 2, 0),
               *c = open_reader(same, 100, 1, 0);
    neo_batch x, y, z;
    REQUIRE_OK(neo_reader_next(a, &x));
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(neo_reader_next(a, &x));
        REQUIRE_OK(neo_reader_next(b, &y));
        REQUIRE_OK(neo_reader_next(c, &z));
        y.first += 100, z.first += 100;
        CHECK(hash_batch(1, &x) == hash_batch(1, &y));
        CHECK(hash_batch(1, &x) == hash_batch(1, &z));
    }
    CHECK(neo_reader_next(b, &y) == NEO_END && neo_reader_next(c, &z) == NEO_END);
    neo_reader_close(c);
    neo_schema_destroy(same);
    CHECK_INT(neo_reader_get_stats(a).total_samples, 1000);
    neo_reader_close(a);
    neo_reader_close(b);
    static uint64_t want[64], got[64];
    a = open_reader(all, 32, 1, 200);
    int64_t n = read_hashes(a, want, 64);
    neo_reader_close(a);
    a = open_reader(all, 32, 3, 200);
    CHECK_INT(read_hashes(a, got, 64), n);
    CHECK_BITS(want, got, n * 8);
    REQUIRE_OK(neo_reader_epoch(a, 0));
    for (int i = 0; i < 9; i++) REQUIRE_OK(neo_reader_next(a, &x));
    neo_position p = neo_reader_position(a);
    REQUIRE_OK(neo_reader_seek(a, &p));
    CHECK_INT(read_hashes(a, got, 64), n - 9);
    CHECK_BITS(want + 9, got, (n - 9) * 8);
    neo_reader_close(a);
    neo_schema_destroy(all);
    neo_schema_destroy(part);
    d.seed = 8; /* another truth, another data set */
    neo_schema *other = make(d);
    a = open_reader(other, 300, 1, 0);
    REQUIRE_OK(neo_reader_next(a, &x));
    CHECK(hash_batch(1, &x) != want[0]);
    neo_reader_close(a);
    neo_schema_destroy(other);
}
/* The first samples, as this generator has always made them: the same on every
 * machine. */
static void golden_samples(void) {
    neo_schema *s = make((neo_synthetic_desc){.samples = 64, .seed = 1});
    neo_reader *r = open_reader(s, 64, 1, 0);
    neo_batch b;
    double auc, loss;
    REQUIRE_OK(neo_reader_next(r, &b));
    if (hash_batch(1, &b) != 0xc6563e736b2991c9u)
        FAIL("the samples hash to %016" PRIx64, hash_batch(1, &b));
    REQUIRE_OK(neo_schema_best(s, 0, 20000, &auc, &loss));
    CHECK_NEAR(auc, 0.814595, 1e-6);
    CHECK_NEAR(loss, 0.461843, 1e-6);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void through_a_criteo_file(void) {
    const char *path = tmp_path("synthetic.tsv");
    int64_t rows[26];
    for (int i = 0; i < 26; i++) rows[i] = 2 + 37 * i * i;
    neo_schema *s = make((neo_synthetic_desc){
                   .samples = 700, .rows_per_feature = rows, .first_sample = 50}),
               *c = NULL;
    neo_reader *r = NULL;
    neo_batch x, y;
    REQUIRE_OK(neo_synthetic_write_tsv(ctx, s, path, 50, 700));
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 0, rows, &c));
    neo_reader_desc d = reader_desc(c, &path, 1, 128);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    neo_reader *direct = open_reader(s, 128, 1, 0);
    int n = 0;
    while (neo_reader_next(r, &x) == NEO_OK) {
        REQUIRE_OK(neo_reader_next(direct, &y));
        CHECK(hash_batch(1, &x) == hash_batch(1, &y));
        n++;
    }
    CHECK_INT(n, 6);
    neo_reader_close(r);
    neo_reader_close(direct);
    CHECK_ERR(neo_synthetic_write_tsv(ctx, c, path, 0, 5), NEO_ERR_UNSUPPORTED,
              "needs synthetic data");
    CHECK_ERR(neo_synthetic_write_tsv(ctx, s, "no/such/dir", 0, 5), NEO_ERR_NOT_FOUND,
              "no/such/dir");
    CHECK_ERR(neo_synthetic_write_tsv(ctx, s, "/dev/full", 0, 500), NEO_ERR_IO, "/dev/full");
    double auc, loss;
    CHECK_ERR(neo_schema_best(c, 0, 5, &auc, &loss), NEO_ERR_UNSUPPORTED, "not synthetic");
    neo_synthetic_desc of = {.samples = 5, .of = c};
    neo_schema *none = NULL;
    CHECK_ERR(neo_schema_synthetic(ctx, &of, &none), NEO_ERR_ARG, "`of` is not synthetic");
    CHECK_ERR(neo_schema_best(s, 0, 0, &auc, &loss), NEO_ERR_ARG, "samples [0, + 0)");
    neo_schema_destroy(s);
    neo_schema_destroy(c);
}

/* zipf: monotone in u, all of [0, rows), and the shares of the law (of the
 * continuous one it is cut from). */
static void zipf_law(void) {
    const float exponents[4] = {0.6f, 1.0f, 1.1f, 2.5f};
    for (int k = 0; k < 4; k++) {
        double s = (double)exponents[k], total = 0, below = 0;
        int64_t last = 0;
        for (int i = 0; i <= 1000; i++) {
            int64_t id = neo_zipf((float)i / 1001.0f, 500, exponents[k]);
            CHECK(id >= last && id < 500);
            last = id;
        }
        CHECK_INT(neo_zipf(0.0f, 500, exponents[k]), 0);
        total = s == 1.0 ? log(501.0) : (pow(501, 1 - s) - 1) / (1 - s);
        for (int64_t id = 0; id < 40; id++) { /* the border between id and id + 1 */
            below = (s == 1.0 ? log((double)id + 2) : (pow((double)id + 2, 1 - s) - 1) / (1 - s)) /
                    total;
            if (below > 0.99) break;
            CHECK_INT(neo_zipf((float)(below - 1e-4), 500, exponents[k]), id);
            CHECK(neo_zipf((float)(below + 1e-4), 500, exponents[k]) > id);
        }
    }
    CHECK_INT(neo_zipf(0.999999f, 1, 1.1f), 0);
    CHECK_INT(neo_zipf(0.99999994f, 10, 1.1f), 9);
    CHECK_INT(neo_zipf(2.0f, 10, 1.1f), 9);
    CHECK_INT(neo_zipf(-1.0f, 10, 1.1f), 0);
    CHECK_INT(neo_zipf(NAN, 10, 1.1f), 0);
    CHECK_INT(neo_zipf(0.5f, 10, 0.0f), 0);
}
static void bags_of_several_ids(void) {
    neo_schema *s = make((neo_synthetic_desc){
        .samples = 2000, .dense_count = -1, .feature_count = 3, .rows = 100, .ids_per_bag = 5});
    CHECK_INT(neo_schema_dense_count(s), 0);
    neo_reader *r = open_reader(s, 500, 2, 0);
    neo_batch b;
    int64_t ids = 0, empty = 0, longest = 0;
    while (neo_reader_next(r, &b) == NEO_OK) {
        int64_t rows[3] = {100, 100, 100};
        CHECK_OK(neo_jagged_validate(&b.sparse, rows));
        for (int64_t i = 0; i < 1500; i++) {
            int64_t n = b.sparse.offsets[i + 1] - b.sparse.offsets[i];
            ids += n;
            empty += n == 0;
            if (n > longest) longest = n;
        }
    }
    CHECK_NEAR((double)ids / 6000.0, 5.0, 0.2);
    CHECK_INT(longest, 10);
    CHECK(empty > 300 && empty < 800);
    double auc, loss;
    CHECK_OK(neo_schema_best(s, 0, 5000, &auc, &loss));
    CHECK(auc > 0.75 && auc < 0.9);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* A linear model with one weight per id (which the truth is) learns it, up to
 * what the best one reaches. */
enum { ROWS = 50, TRAIN = 60000, TEST = 8000 };
static void can_be_learned(void) {
    static double w[13], g[13], v[26][ROWS], h[26][ROWS], bias, gb;
    static float score[TEST], label[TEST];
    neo_schema *s = make((neo_synthetic_desc){.samples = TRAIN, .rows = ROWS}), *t;
    double auc, loss, base = 0;
    CHECK_OK(neo_schema_best(s, TRAIN, TEST, &auc, &loss));
    for (int e = 0; e < 4; e++) {
        t = e < 3
                ? s
                : make((neo_synthetic_desc){.samples = TEST, .rows = ROWS, .first_sample = TRAIN});
        neo_reader *r = open_reader(t, 1000, 2, 0);
        neo_batch b;
        int64_t n = 0;
        while (neo_reader_next(r, &b) == NEO_OK) {
            for (int64_t i = 0; i < b.size; i++, n++) {
                const float *x = (const float *)b.dense.data + 13 * i;
                const int64_t *ids = (const int64_t *)b.sparse.ids + i;
                double z = bias, y = (double)((const float *)b.label.data)[i];
                for (int k = 0; k < 13; k++) z += w[k] * (double)x[k];
                for (int k = 0; k < 26; k++) z += v[k][ids[k * b.size]];
                if (e == 3) {
                    score[n] = (float)z;
                    label[n] = (float)y;
                    base += y / TEST;
                    continue;
                }
                double d = 1 / (1 + exp(-z)) - y, lr = e == 0 ? 0.05 : e == 1 ? 0.03 : 0.01;
                bias -= lr * d / (sqrt(gb += d * d) + 1);
                for (int k = 0; k < 13; k++)
                    w[k] -= lr * d * (double)x[k] /
                            (sqrt(g[k] += d * d * (double)(x[k] * x[k])) + 1e-8);
                for (int k = 0; k < 26; k++) {
                    int64_t id = ids[k * b.size];
                    v[k][id] -= lr * d / (sqrt(h[k][id] += d * d) + 1e-8);
                }
            }
        }
        neo_reader_close(r);
        if (e == 3) neo_schema_destroy(t);
    }
    void *scratch = malloc(neo_auc_scratch_bytes(TEST));
    REQUIRE(scratch);
    double got = neo_auc(score, label, TEST, scratch);
    double entropy = -(base * log(base) + (1 - base) * log(1 - base));
    CHECK(auc > 0.78 && auc < 0.9);
    CHECK(loss > 0.3 * entropy && loss < 0.9 * entropy);
    CHECK(base > 0.2 && base < 0.4);
    CHECK(got > auc - 0.015 && got < auc + 0.005);
    free(scratch);
    neo_schema_destroy(s);
}

/* Bags of fixed lengths: each feature has its own, and the first id determines the others, which
   spread over all rows. */
static void fixed_bags(void) {
    enum { SAMPLES = 3000, ROWS = 50, MOST = 100 };
    static int64_t seen[3][ROWS][MOST];
    static char used[ROWS];
    const int32_t hot[3] = {MOST, 1, 3};
    const int64_t rows[3] = {ROWS, ROWS, 7};
    int distinct = 0;
    neo_synthetic_desc d = {.samples = SAMPLES, .feature_count = 3, .rows_per_feature = rows,
                            .hot = hot};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    memset(seen, 0xFF, sizeof seen);
    CHECK_OK(neo_schema_synthetic(ctx, &d, &s));
    REQUIRE(s);
    neo_reader_desc rd = {.schema = s, .batch = 128, .threads = 2};
    CHECK_OK(neo_reader_open(ctx, &rd, &r));
    while (neo_reader_next(r, &b) == NEO_OK)
        for (int t = 0; t < 3; t++)
            for (int64_t i = 0; i < b.size; i++) {
                int64_t begin = b.sparse.offsets[t * b.size + i];
                const int64_t *ids = (const int64_t *)b.sparse.ids + begin;
                REQUIRE(b.sparse.offsets[t * b.size + i + 1] - begin == hot[t]);
                for (int k = 0; k < hot[t]; k++) {
                    REQUIRE(ids[k] >= 0 && ids[k] < rows[t]);
                    CHECK(seen[t][ids[0]][k] == -1 || seen[t][ids[0]][k] == ids[k]);
                    seen[t][ids[0]][k] = ids[k];
                    if (t == 0 && k > 0) used[ids[k]] = 1;
                }
            }
    for (int i = 0; i < ROWS; i++) distinct += used[i];
    CHECK(distinct == ROWS);
    neo_reader_close(r);
    neo_schema_destroy(s);
    const int32_t wrong[3] = {1, 0, 3};
    d.hot = wrong;
    CHECK_ERR(neo_schema_synthetic(ctx, &d, &s), NEO_ERR_ARG, "hot of feature 1 is 0");
}

/* Bags that repeat in a batch come once: written out they are those of a reader without. */
static void bags_come_once(void) {
    for (int n = 0; n < 6; n++) {
        neo_synthetic_desc d = {.samples = 700, .rows = 9, .ids_per_bag = n % 3, .zipf = 1.1f};
        neo_schema *s = make(d);
        neo_reader *plain = open_reader(s, 100, 1, n % 2 ? 300 : 0), *once;
        neo_reader_desc rd = reader_desc(s, NULL, 0, 100);
        rd.shuffle_window = n % 2 ? 300 : 0;
        rd.threads = 2;
        rd.dedup = 1;
        CHECK_OK(neo_reader_open(ctx, &rd, &once));
        const neo_jagged_desc jd = {.feature_count = 26, .max_bags = 2600, .max_ids = 100000};
        neo_jagged_buffer *buffer;
        CHECK_OK(neo_jagged_create(ctx, &jd, &buffer));
        int64_t given = 0, full = 0;
        for (int epoch = 0; epoch < 2; epoch++) {
            neo_batch x, y;
            neo_status status;
            while ((status = neo_reader_next(plain, &x)) == NEO_OK) {
                REQUIRE_OK(neo_reader_next(once, &y));
                CHECK_OK(neo_jagged_validate(&y.sparse, NULL));
                given += neo_jagged_id_count(&y.sparse);
                full += neo_jagged_id_count(&x.sparse);
                CHECK_OK(neo_jagged_expand(buffer, &y.sparse));
                y.sparse = *neo_jagged_view(buffer);
                CHECK(hash_batch(1, &x) == hash_batch(1, &y));
            }
            CHECK(status == NEO_END && neo_reader_next(once, &y) == NEO_END);
            CHECK_OK(neo_reader_epoch(plain, epoch + 1));
            CHECK_OK(neo_reader_epoch(once, epoch + 1));
        }
        CHECK(n % 3 > 1 || 2 * given < full);
        CHECK(given < full);
        if (n == 0)
            CHECK_ERR(neo_npy_export(ctx, once, tmp_path("once_")), NEO_ERR_UNSUPPORTED,
                      "neo_reader_desc.dedup");
        neo_jagged_destroy(buffer);
        neo_reader_close(plain), neo_reader_close(once);
        neo_schema_destroy(s);
    }
}

int main(void) {
    ctx = test_ctx(2, NEO_ISA_BEST, 1);
    size_t bytes = neo_ctx_memory(ctx).bytes;
    RUN(defaults_and_arguments);
    RUN(samples_depend_on_their_number);
    RUN(bags_come_once);
    RUN(golden_samples);
    RUN(through_a_criteo_file);
    RUN(zipf_law);
    RUN(bags_of_several_ids);
    RUN(fixed_bags);
    RUN(can_be_learned);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/synthetic");
}
