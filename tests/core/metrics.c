/* metrics.c: AUC, log loss, normalized entropy, calibration, accuracy, average precision, squared
   and absolute errors; AUC and NDCG in groups.

   Oracles: AUC by comparing all pairs; precision at every threshold; the rest in double with libm.
   Then: order, threads and instruction set do not change a bit; the window equals fresh metrics
   over its samples; bins are the same of logits cut to them, and no further from those of uncut
   ones than they say; edge cases and errors. */
#include "neo_run.h"
#include "test.h"

static double naive_auc(const float *x, const float *y, int n) {
    double won = 0, pairs = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (y[i] > 0.5f && y[j] < 0.5f) {
                pairs++;
                won += x[i] > x[j] ? 1.0 : x[i] == x[j] ? 0.5 : 0.0;
            }
    return won / pairs; /* NaN without pairs */
}
/* Recall gained at each distinct score, from the highest, times precision there. */
static double naive_precision(const float *x, const float *y, int n) {
    double total = 0, positive = 0;
    for (int i = 0; i < n; i++) {
        double counted[2] = {0, 0};
        for (int j = 0; j < n; j++)
            if (x[j] >= x[i]) counted[y[j] > 0.5f]++;
        if (y[i] > 0.5f) total += counted[1] / (counted[0] + counted[1]), positive++;
    }
    return total / positive;
}
/* Scores with many ties when levels is small. */
static void make(float *x, float *y, int n, int levels) {
    for (int i = 0; i < n; i++) {
        y[i] = test_random() % 4 == 0 ? 1.0f : 0.0f;
        x[i] = 3.0f * test_uniform() + y[i];
        if (levels) x[i] = (float)((int)(x[i] * (float)levels)) / (float)levels; /* -0 too */
    }
}
static neo_metrics *metrics(neo_ctx *ctx, int64_t capacity, int64_t window) {
    neo_metrics_desc desc = {capacity, window, 0, 0};
    neo_metrics *m = NULL;
    CHECK_OK(neo_metrics_create(ctx, &desc, &m));
    return m;
}
static void update(neo_metrics *m, float *x, float *y, int n) {
    CHECK_OK(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, n), neo_tensor_2d(y, NEO_F32, n, 1)));
}

static void auc_equals_all_pairs(void) {
    static float x[700], y[700];
    static char scratch[700 * 8];
    for (int round = 0; round < 60; round++) {
        int n = 1 + (int)(test_random() % 699), levels = round % 3 == 0   ? 0
                                                         : round % 3 == 1 ? 2
                                                                          : 10;
        make(x, y, n, levels);
        double want = naive_auc(x, y, n);
        CHECK(neo_auc_scratch_bytes(n) <= sizeof scratch);
        double got = neo_auc(x, y, n, scratch);
        CHECK((isnan(want) && isnan(got)) || fabs(want - got) < 1e-14);
    }
    float edge_x[] = {-INFINITY, -1e-45f, -0.0f, 0.0f, 1e-45f, INFINITY},
          edge_y[] = {0, 0, 0, 1, 1, 1};
    CHECK(neo_auc(edge_x, edge_y, 6, scratch) == (1.0 + 1 + 0.5 + 1 + 1 + 1 + 1 + 1 + 1) / 9);
    edge_x[3] = NAN;
    CHECK(isnan(neo_auc(edge_x, edge_y, 6, scratch)));
    CHECK(isnan(neo_auc(edge_x, edge_y, 0, scratch)));
    CHECK(isnan(neo_auc(edge_x, edge_y, 3, scratch))); /* all labels alike */
    CHECK_INT(neo_auc_scratch_bytes(0), 0);
}

static void values_equal_reference(void) {
    enum { N = 3000 };
    static float x[N], y[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_metrics *m = metrics(ctx, N, 0);
    make(x, y, N, 50);
    for (int i = 0; i < 20; i++) x[i] *= 20.0f; /* saturated */
    for (int at = 0; at < N; at += 271) update(m, x + at, y + at, at + 271 > N ? N - at : 271);
    double loss = 0, prediction = 0, positive = 0, correct = 0, square = 0, distance = 0;
    for (int i = 0; i < N; i++) {
        double z = (double)x[i], p = 1 / (1 + exp(-z));
        loss += fmax(z, 0) - z * (double)y[i] + log1p(exp(-fabs(z)));
        prediction += p;
        positive += (double)y[i];
        correct += (p >= 0.5) == (y[i] > 0.5f);
        square += (p - (double)y[i]) * (p - (double)y[i]);
        distance += fabs(p - (double)y[i]);
    }
    double rate = positive / N, entropy = -rate * log(rate) - (1 - rate) * log(1 - rate);
    neo_metric_values v;
    CHECK_OK(neo_metrics_lifetime(m, &v));
    CHECK_INT(v.count, N);
    CHECK_INT(v.auc_count, N);
    CHECK_NEAR(v.auc, naive_auc(x, y, N), 1e-14);
    CHECK_NEAR(v.logloss, loss / N, 1e-7);
    CHECK_NEAR(v.ne, loss / N / entropy, 2e-7);
    CHECK_NEAR(v.calibration, prediction / positive, 1e-7);
    CHECK(v.accuracy == correct / N);
    CHECK(v.base_rate == rate);
    CHECK_NEAR(v.pr_auc, naive_precision(x, y, N), 1e-13);
    CHECK_NEAR(v.mse, square / N, 1e-7);
    CHECK_NEAR(v.mae, distance / N, 1e-7);
    neo_metric_values again; /* asking sorts, and changes nothing */
    CHECK_OK(neo_metrics_lifetime(m, &again));
    CHECK_BITS(&v, &again, sizeof v);
    neo_metrics_destroy(m);
    neo_ctx_destroy(ctx);
}

/* Weights that are whole numbers are repeated samples; weights of 1 change no bit. */
static void weights_are_repetitions(void) {
    enum { N = 900, MOST = 4 * N };
    static float x[N], y[N], w[N], rx[MOST], ry[MOST];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_metrics_desc d = {MOST, 0, 1, 0};
    neo_metric_values a, b;
    for (int round = 0; round < 6; round++) {
        neo_metrics *weighted = NULL, *repeated = metrics(ctx, MOST, 0);
        CHECK_OK(neo_metrics_create(ctx, &d, &weighted));
        make(x, y, N, round % 3 * 5);
        int n = 0;
        for (int i = 0; i < N; i++) {
            w[i] = round ? (float)(test_random() % 4) : 1.0f;
            for (int k = 0; k < (int)w[i]; k++, n++) rx[n] = x[i], ry[n] = y[i];
        }
        update(repeated, rx, ry, n);
        for (int i = N; i > 0; i -= 300) /* from the end: the order does not matter */
            CHECK_OK(neo_metrics_update_weighted(
                weighted, neo_tensor_1d(x + i - 300, NEO_F32, 300),
                neo_tensor_1d(y + i - 300, NEO_F32, 300),
                neo_tensor_1d(w + i - 300, NEO_F32, 300)));
        CHECK_OK(neo_metrics_lifetime(repeated, &a));
        CHECK_OK(neo_metrics_lifetime(weighted, &b));
        CHECK_INT(b.count, N);
        CHECK_NEAR(a.auc, b.auc, 1e-14);
        CHECK_NEAR(a.pr_auc, b.pr_auc, 1e-13);
        CHECK_NEAR(a.logloss, b.logloss, 1e-7);
        CHECK_NEAR(a.ne, b.ne, 1e-7);
        CHECK_NEAR(a.calibration, b.calibration, 1e-7);
        CHECK(a.accuracy == b.accuracy && a.base_rate == b.base_rate);
        CHECK_NEAR(a.mse, b.mse, 1e-7);
        CHECK_NEAR(a.mae, b.mae, 1e-7);
        if (round == 0) {
            CHECK(a.logloss == b.logloss && a.ne == b.ne && a.auc == b.auc && a.mse == b.mse);
            CHECK_NEAR(a.pr_auc, b.pr_auc, 1e-15);
        }
        neo_metrics_destroy(repeated);
        neo_metrics_destroy(weighted);
    }
    neo_metrics *m = NULL, *plain = metrics(ctx, 10, 0);
    neo_tensor tx = neo_tensor_1d(x, NEO_F32, 2), ty = neo_tensor_1d(y, NEO_F32, 2),
               tw = neo_tensor_1d(w, NEO_F32, 2);
    CHECK_OK(neo_metrics_create(ctx, &d, &m));
    CHECK_ERR(neo_metrics_update(m, tx, ty), NEO_ERR_STATE, "created for weights");
    CHECK_ERR(neo_metrics_update_weighted(plain, tx, ty, tw), NEO_ERR_STATE, "have no weights");
    w[1] = -1;
    CHECK_ERR(neo_metrics_update_weighted(m, tx, ty, tw), NEO_ERR_RANGE, "sample 1 is -1");
    w[1] = INFINITY;
    CHECK_ERR(neo_metrics_update_weighted(m, tx, ty, tw), NEO_ERR_RANGE, "sample 1 is inf");
    CHECK_ERR(neo_metrics_update_weighted(m, tx, ty, neo_tensor_none()), NEO_ERR_SHAPE, "weight");
    w[0] = w[1] = 0; /* nothing counts */
    CHECK_OK(neo_metrics_update_weighted(m, tx, ty, tw));
    CHECK_OK(neo_metrics_lifetime(m, &b));
    CHECK(b.count == 2 && isnan(b.auc) && isnan(b.logloss) && isnan(b.pr_auc));
    neo_metrics_destroy(m);
    neo_metrics_destroy(plain);
    neo_ctx_destroy(ctx);
}

static void order_and_path_do_not_matter(void) {
    enum { N = 4000 };
    static float x[N], y[N];
    static const neo_isa isa[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    neo_metric_values first, v;
    memset(&first, 0, sizeof first);
    make(x, y, N, 100);
    for (int round = 0; round < 12; round++) {
        if (!neo_isa_available(isa[round % 4])) continue;
        neo_ctx *ctx = test_ctx(1 + round % 3, isa[round % 4], 1);
        neo_metrics *m = metrics(ctx, N, N);
        for (int at = 0, n; at < N; at += n) {
            n = 1 + (int)(test_random() % 600);
            n = at + n > N ? N - at : n;
            update(m, x + at, y + at, n);
        }
        CHECK_OK(neo_metrics_lifetime(m, &v));
        if (round == 0) first = v;
        CHECK_BITS(&v, &first, sizeof v);
        CHECK_OK(neo_metrics_window(m, &v));
        CHECK_BITS(&v, &first, sizeof v);
        neo_metrics_destroy(m);
        neo_ctx_destroy(ctx);
        for (int i = N - 1; i > 0; i--) { /* shuffle for the next round */
            int j = (int)(test_random() % (uint32_t)(i + 1));
            float tx = x[i], ty = y[i];
            x[i] = x[j], y[i] = y[j];
            x[j] = tx, y[j] = ty;
        }
    }
}

static void window_is_the_last_samples(void) {
    enum { N = 2000, W = 300 };
    static float x[N], y[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_metrics *m = metrics(ctx, N, W);
    make(x, y, N, 20);
    neo_metric_values got, want;
    for (int at = 0, n; at < N; at += n) {
        n = 1 + (int)(test_random() % 500);
        n = at + n > N ? N - at : n;
        update(m, x + at, y + at, n);
        int from = at + n > W ? at + n - W : 0;
        neo_metrics *fresh = metrics(ctx, N, 0);
        update(fresh, x + from, y + from, at + n - from);
        CHECK_OK(neo_metrics_window(m, &got));
        CHECK_OK(neo_metrics_lifetime(fresh, &want));
        CHECK_BITS(&got, &want, sizeof got);
        neo_metrics_destroy(fresh);
    }
    CHECK_OK(neo_metrics_lifetime(m, &got)); /* and the lifetime kept all */
    CHECK_NEAR(got.auc, naive_auc(x, y, N), 1e-14);
    neo_metrics_reset(m);
    CHECK_OK(neo_metrics_window(m, &got));
    CHECK_INT(got.count, 0);
    CHECK(isnan(got.auc) && isnan(got.logloss) && isnan(got.base_rate));
    CHECK(isnan(got.pr_auc) && isnan(got.mse) && isnan(got.mae) && isnan(got.auc_error));
    update(m, x, y, 100);
    CHECK_OK(neo_metrics_window(m, &got));
    CHECK_OK(neo_metrics_lifetime(m, &want));
    CHECK_BITS(&got, &want, sizeof got);
    CHECK_INT(got.count, 100);
    neo_metrics_destroy(m);
    neo_ctx_destroy(ctx);
}

static void *dirty_alloc(size_t size, size_t align, void *user) {
    (void)user;
    void *p = aligned_alloc(align, (size + align - 1) / align * align);
    if (p) memset(p, 0xFF, size);
    return p;
}
static void dirty_free(void *p, size_t size, void *user) {
    (void)size, (void)user;
    free(p);
}
/* What a checkpoint has of a window that is not full, or of metrics begun anew, is no remainder. */
static void windows_begin_empty(void) {
    neo_ctx *ctx;
    const neo_ctx_desc desc = {.threads = 1, .allocator = {dirty_alloc, dirty_free, NULL}};
    REQUIRE_OK(neo_ctx_create(&desc, &ctx));
    neo_metrics *m = metrics(ctx, 100, 9);
    float one = 1.0f;
    for (int turn = 0; turn < 2; turn++) {
        const char *name;
        const neo_tensor t = neo_metrics_tensor(m, 2, &name);
        CHECK(strcmp(name, "window.logit") == 0);
        CHECK_INT(t.shape[0], 9);
        for (int64_t k = 0; k < t.shape[0]; k++) CHECK(((float *)t.data)[k] == 0.0f);
        const neo_tensor sample = neo_tensor_1d(&one, NEO_F32, 1);
        CHECK_OK(neo_metrics_update(m, sample, sample));
        neo_metrics_reset(m);
    }
    neo_metrics_destroy(m);
    const neo_metrics_desc binned = {1, 0, 0, 1};
    REQUIRE_OK(neo_metrics_create(ctx, &binned, &m));
    const neo_tensor bins = neo_metrics_tensor(m, 2, NULL);
    CHECK_INT(bins.shape[0], 2 * 65536);
    for (int64_t k = 0; k < bins.shape[0]; k++) CHECK(((double *)bins.data)[k] == 0.0);
    neo_metrics_destroy(m);
    neo_ctx_destroy(ctx);
}

/* All samples in turn, or from the last to the first; `by` of them at once, and half-way all that
   was counted goes to other metrics, as by a checkpoint. */
static neo_metric_values count_all(neo_ctx *ctx, const neo_metrics_desc *desc, float *x, float *y,
                                   float *w, int n, int by, int backwards) {
    neo_metrics *m = NULL, *next = NULL;
    neo_metric_values v;
    CHECK_OK(neo_metrics_create(ctx, desc, &m));
    for (int i = 0, at; i < n; i += by) {
        at = backwards ? n - i - by : i;
        neo_tensor tx = neo_tensor_1d(x + at, NEO_F32, by), ty = neo_tensor_1d(y + at, NEO_F32, by);
        CHECK_OK(w ? neo_metrics_update_weighted(m, tx, ty, neo_tensor_1d(w + at, NEO_F32, by))
                   : neo_metrics_update(m, tx, ty));
        if (i != n / 2 / by * by) continue;
        CHECK_OK(neo_metrics_create(ctx, desc, &next));
        for (int k = 0; neo_metrics_tensor(m, k, NULL).data; k++) {
            neo_tensor a = neo_metrics_tensor(m, k, NULL), b = neo_metrics_tensor(next, k, NULL);
            memcpy(b.data, a.data, neo_tensor_bytes(a));
        }
        neo_metrics_destroy(m);
        m = next;
    }
    CHECK_OK(neo_metrics_lifetime(m, &v));
    neo_metrics_destroy(m);
    return v;
}
static void bins_beyond_capacity(void) {
    enum { N = 3000, MOST = 3 * N };
    static float x[N], y[N], w[N], cut[N], rx[MOST], ry[MOST];
    static const float edge[] = {-FLT_MAX, -17, -16, -15.9999f, -1e-45f, 0, 1e-45f, 15.9999f, 16,
                                 FLT_MAX};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    const neo_metrics_desc bins = {100, 20, 0, 1}, plain = {100, 20, 0, 0}, whole = {N, 20, 0, 0};
    const neo_metrics_desc room = {N, 20, 0, 1}, weights = {100, 20, 1, 1};
    for (int round = 0; round < 4; round++) {
        make(x, y, N, round == 3 ? 20 : 0);
        int n = 0;
        double tied = 0, positive = 0;
        for (int i = 0; i < N; i++) {
            x[i] = i < 20 ? edge[i % 10] : x[i] * (round == 1 ? 0.01f : round == 2 ? 6.0f : 1.0f);
            const double at = floor((double)x[i] * 2048) / 2048;
            cut[i] = (float)(at < -16 ? -16 : at >= 16 ? 16 - 1.0 / 2048 : at);
            w[i] = (float)(test_random() % 4);
            for (int k = 0; k < (int)w[i] && n < MOST; k++, n++) rx[n] = x[i], ry[n] = y[i];
        }
        for (int i = 0; i < N; i++) {
            positive += y[i] > 0.5f;
            for (int j = 0; j < N && y[i] > 0.5f; j++) tied += y[j] < 0.5f && cut[i] == cut[j];
        }
        const neo_metric_values v = count_all(ctx, &bins, x, y, NULL, N, 250, 0);
        CHECK(v.auc == naive_auc(cut, y, N)); /* of whole numbers below 2^53, divided once */
        CHECK(v.auc_error == 0.5 * tied / (positive * (N - positive)) && v.auc_error > 0);
        CHECK(fabs(v.auc - naive_auc(x, y, N)) <= v.auc_error + 1e-15);
        CHECK(round || v.auc_error < 2e-4);
        CHECK_NEAR(v.pr_auc, naive_precision(cut, y, N), 1e-13);
        CHECK_INT(v.auc_count, N);
        /* The order, other batches: the same bits. Other figures are no matter of bins. */
        neo_metric_values u = count_all(ctx, &bins, x, y, NULL, N, 15, 1);
        CHECK_BITS(&u, &v, sizeof v);
        u = count_all(ctx, &plain, x, y, NULL, N, 250, 0);
        CHECK(isnan(u.auc) && isnan(u.pr_auc) && isnan(u.auc_error) && u.auc_count == 100);
        CHECK(u.logloss == v.logloss && u.ne == v.ne && u.mse == v.mse);
        /* Within capacity there are no bins. */
        const neo_metric_values exact = count_all(ctx, &whole, x, y, NULL, N, 250, 0);
        u = count_all(ctx, &room, x, y, NULL, N, 250, 0);
        CHECK_BITS(&u, &exact, sizeof u);
        CHECK(u.auc_error == 0);
        /* Whole weights are repeated samples; weights of 1 change no bit. */
        u = count_all(ctx, &weights, x, y, w, N, 250, 0);
        const neo_metric_values repeated = count_all(ctx, &bins, rx, ry, NULL, n, 1, 0);
        CHECK(u.auc == repeated.auc && u.auc_error == repeated.auc_error);
        CHECK(u.pr_auc == repeated.pr_auc && u.auc_count == N);
        for (int i = 0; i < N; i++) w[i] = 1;
        u = count_all(ctx, &weights, x, y, w, N, 250, 1);
        CHECK(u.auc == v.auc && u.auc_error == v.auc_error && u.pr_auc == v.pr_auc);
    }
    for (int i = 0; i < N; i++) y[i] = 1; /* all labels are alike */
    const neo_metric_values v = count_all(ctx, &bins, x, y, NULL, N, 250, 0);
    CHECK(isnan(v.auc) && isnan(v.auc_error) && v.pr_auc == 1 && v.auc_count == N);
    neo_metrics *m[2];
    size_t bytes[3];
    for (int k = 0; k < 2; k++) {
        bytes[k] = neo_ctx_memory(ctx).bytes;
        REQUIRE_OK(neo_metrics_create(ctx, k ? &bins : &plain, &m[k]));
        bytes[k + 1] = neo_ctx_memory(ctx).bytes;
    }
    CHECK_INT((bytes[2] - bytes[1]) - (bytes[1] - bytes[0]), 1 << 20);
    for (int k = 0; k < 2; k++) neo_metrics_destroy(m[k]);
    neo_ctx_destroy(ctx);
}

/* Of weighted samples too, and after what was counted went through other metrics, as through a
   checkpoint. */
static void weighted_window_goes_on(void) {
    enum { N = 1500, W = 200 };
    static float x[N], y[N], w[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    make(x, y, N, 20);
    for (int i = 0; i < N; i++) w[i] = (float)(test_random() % 5) / 3.0f;
    for (int weighted = 0; weighted < 2; weighted++) {
        neo_metrics_desc desc = {N - 100, W, weighted, 0}, plain = {N, 0, weighted, 0};
        neo_metrics *m = NULL, *next = NULL, *fresh = NULL;
        neo_metric_values got, want;
        CHECK_OK(neo_metrics_create(ctx, &desc, &m));
        for (int at = 0, n, parts; at < N; at += n) {
            n = 1 + (int)(test_random() % 300);
            n = at + n > N ? N - at : n;
            int end = at + n, from = end > W ? end - W : 0, count = end - from;
            neo_tensor tx = neo_tensor_1d(x, NEO_F32, N), ty = neo_tensor_1d(y, NEO_F32, N);
            neo_tensor tw = neo_tensor_1d(w, NEO_F32, N);
#define SOME(t, first, rows) neo_tensor_rows(t, first, rows)
            CHECK_OK(neo_metrics_create(ctx, &plain, &fresh));
            if (weighted) {
                CHECK_OK(neo_metrics_update_weighted(m, SOME(tx, at, n), SOME(ty, at, n),
                                                     SOME(tw, at, n)));
                CHECK_OK(neo_metrics_update_weighted(fresh, SOME(tx, from, count),
                                                     SOME(ty, from, count),
                                                     SOME(tw, from, count)));
            } else {
                CHECK_OK(neo_metrics_update(m, SOME(tx, at, n), SOME(ty, at, n)));
                CHECK_OK(neo_metrics_update(fresh, SOME(tx, from, count),
                                            SOME(ty, from, count)));
            }
            CHECK_OK(neo_metrics_window(m, &got));
            CHECK_OK(neo_metrics_lifetime(fresh, &want));
            CHECK_BITS(&got, &want, sizeof got);
            CHECK_OK(neo_metrics_lifetime(m, &want));
            neo_metrics_destroy(fresh);
            CHECK_OK(neo_metrics_create(ctx, &desc, &next));
            for (parts = 0;; parts++) {
                const char *name = NULL, *other = NULL;
                neo_tensor a = neo_metrics_tensor(m, parts, &name);
                neo_tensor b = neo_metrics_tensor(next, parts, &other);
                if (!a.data) break;
                CHECK(strcmp(name, other) == 0 && neo_tensor_bytes(a) == neo_tensor_bytes(b));
                memcpy(b.data, a.data, neo_tensor_bytes(a));
            }
            CHECK_INT(parts, 4 + weighted);
            neo_metrics_destroy(m);
            m = next;
            CHECK_OK(neo_metrics_lifetime(m, &got));
            CHECK_BITS(&got, &want, sizeof got);
        }
        int64_t *sums = neo_metrics_tensor(m, 0, NULL).data, count = sums[0];
        sums[0] = -1;
        CHECK_ERR(neo_metrics_window(m, &got), NEO_ERR_STATE, "is of other ones");
        sums[0] = count, sums[3] = (int64_t)1 << 40;
        CHECK_ERR(neo_metrics_lifetime(m, &got), NEO_ERR_STATE, "is of other ones");
        neo_metrics_destroy(m);
    }
    neo_ctx_destroy(ctx);
}

static void alike_labels_and_overflow(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float x[10], y[10];
    neo_metric_values v;
    for (int label = 0; label < 2; label++) {
        neo_metrics *m = metrics(ctx, 10, 0);
        for (int i = 0; i < 10; i++) x[i] = test_uniform(), y[i] = (float)label;
        update(m, x, y, 10);
        CHECK_OK(neo_metrics_lifetime(m, &v));
        CHECK(isnan(v.auc) && isnan(v.ne) && v.base_rate == label && v.logloss > 0);
        CHECK(label ? v.calibration > 0 : isnan(v.calibration));
        CHECK(label ? v.pr_auc == 1 : isnan(v.pr_auc));
        neo_metrics_destroy(m);
    }
    neo_metrics *m = metrics(ctx, 15, 8);
    for (int i = 0; i < 10; i++) y[i] = (float)(i % 2);
    update(m, x, y, 10);
    CHECK_OK(neo_metrics_lifetime(m, &v));
    CHECK(!isnan(v.auc));
    update(m, x, y, 10); /* beyond the capacity: sums go on, AUC says so */
    CHECK_OK(neo_metrics_lifetime(m, &v));
    CHECK(isnan(v.pr_auc) && v.mse > 0);
    CHECK(isnan(v.auc) && v.count == 20 && v.auc_count == 15 && v.base_rate == 0.5 &&
          v.logloss > 0);
    CHECK_OK(neo_metrics_window(m, &v));
    CHECK(!isnan(v.auc) && v.count == 8);
    neo_metrics_destroy(m);
    neo_ctx_destroy(ctx);
}

static void errors_and_memory(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_metrics_desc desc = {0, 0, 0, 0};
    neo_metrics *m;
    CHECK_ERR(neo_metrics_create(ctx, &desc, &m), NEO_ERR_ARG, "capacity");
    desc.capacity = 10;
    desc.window = -1;
    CHECK_ERR(neo_metrics_create(ctx, &desc, &m), NEO_ERR_ARG, "window");
    CHECK(m == NULL);
    m = metrics(ctx, 1000, 0);
    float x[3] = {0, NAN, 1}, y[3] = {0, 1, 1};
    neo_metric_values v;
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 3), neo_tensor_1d(y, NEO_F32, 3)),
              NEO_ERR_NUMERIC, "sample 1");
    x[1] = INFINITY;
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 3), neo_tensor_1d(y, NEO_F32, 3)),
              NEO_ERR_NUMERIC, "sample 1");
    x[1] = 0;
    y[2] = 0.5f;
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 3), neo_tensor_1d(y, NEO_F32, 3)),
              NEO_ERR_RANGE, "sample 2");
    y[2] = NAN;
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 3), neo_tensor_1d(y, NEO_F32, 3)),
              NEO_ERR_RANGE, "sample 2");
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 3), neo_tensor_1d(y, NEO_F32, 2)),
              NEO_ERR_SHAPE, "[B]");
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_I32, 3), neo_tensor_1d(y, NEO_F32, 3)),
              NEO_ERR_SHAPE, "i32");
    CHECK_ERR(neo_metrics_update(m, neo_tensor_none(), neo_tensor_1d(y, NEO_F32, 3)), NEO_ERR_ARG,
              "none");
    CHECK_ERR(neo_metrics_window(m, &v), NEO_ERR_STATE, "window");
    CHECK_OK(neo_metrics_lifetime(m, &v));
    CHECK_INT(v.count, 0); /* nothing was counted */
    CHECK_OK(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 0), neo_tensor_1d(y, NEO_F32, 0)));
    y[2] = 1;
    update(m, x, y, 3);
    CHECK_OK(neo_metrics_lifetime(m, &v));
    CHECK_INT(v.count, 3);
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    neo_metrics_destroy(m);
    neo_metrics_destroy(NULL);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}

/* The largest logits there are: no sum overflows, ties are ties, every value is finite. */
static void extreme_logits(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    static float x[1000], y[1000];
    const neo_metrics_desc d = {1000, 600, 0, 0};
    neo_metrics *m;
    neo_metric_values v[2];
    REQUIRE_OK(neo_metrics_create(ctx, &d, &m));
    for (int i = 0; i < 1000; i++) {
        x[i] = i % 4 < 2 ? FLT_MAX : -FLT_MAX; /* half of them wrong, by FLT_MAX each */
        y[i] = (float)(i % 2);
    }
    REQUIRE_OK(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 1000),
                                  neo_tensor_1d(y, NEO_F32, 1000)));
    REQUIRE_OK(neo_metrics_lifetime(m, &v[0]));
    REQUIRE_OK(neo_metrics_window(m, &v[1]));
    for (int i = 0; i < 2; i++) {
        CHECK(v[i].auc == 0.5 && v[i].accuracy == 0.5 && v[i].base_rate == 0.5);
        CHECK(v[i].calibration == 1.0);
        CHECK(v[i].logloss == (double)FLT_MAX / 2);
        CHECK_NEAR(v[i].ne / (v[i].logloss / log(2.0)), 1.0, 1e-12);
    }
    x[7] = -INFINITY; /* nothing of the batch counts */
    CHECK_ERR(neo_metrics_update(m, neo_tensor_1d(x, NEO_F32, 1000),
                                 neo_tensor_1d(y, NEO_F32, 1000)),
              NEO_ERR_NUMERIC, "logit of sample 7 is -inf");
    REQUIRE_OK(neo_metrics_lifetime(m, &v[0]));
    CHECK_INT(v[0].count, 1000);
    CHECK(v[0].logloss == (double)FLT_MAX / 2);
    neo_metrics_destroy(m);
    neo_ctx_destroy(ctx);
}

/* ---- groups ---- */
/* Every sample's gain at its mean discount among equal scores; the best order by taking the largest
   label that is left. */
static double naive_ndcg(const float *x, const float *y, int n, int k) {
    double got = 0, best = 0;
    int taken[64] = {0};
    for (int i = 0; i < n; i++) {
        int above = 0, equal = 0, most = -1;
        double discount = 0;
        for (int j = 0; j < n; j++) {
            above += x[j] > x[i], equal += x[j] == x[i];
            if (!taken[j] && (most < 0 || y[j] > y[most])) most = j;
        }
        for (int r = above; r < above + equal && r < k; r++) discount += 1 / log2(r + 2);
        got += (double)y[i] * discount / equal;
        taken[most] = 1;
        if (i < k) best += (double)y[most] / log2(i + 2);
    }
    return got / best;
}
static void groups_equal_references(void) {
    enum { N = 600, GROUPS = 40, MOST = 64 };
    static float x[GROUPS][MOST], y[GROUPS][MOST];
    static neo_grouped_sample s[N];
    for (int round = 0; round < 40; round++) {
        int size[GROUPS] = {0}, k = round % 4 * 3, graded = round % 2;
        double auc = 0, weight = 0, ndcg = 0, auc_groups = 0, ndcg_groups = 0, groups = 0;
        for (int i = 0; i < N; i++) {
            int g = (int)(test_random() % GROUPS), at = size[g];
            if (at == MOST - 1) g = 0, at = size[0];
            if (at == MOST - 1) break;
            x[g][at] = (float)((int)(4 * test_uniform())) / (round % 3 ? 4.0f : 1.0f);
            y[g][at] = test_random() % 5 ? 0.0f : graded ? (float)(test_random() % 4) : 1.0f;
            s[i] = (neo_grouped_sample){(g - 7) * INT64_C(1000000007), x[g][at], y[g][at]};
            size[g]++;
        }
        for (int g = 0; g < GROUPS; g++) {
            double a = naive_auc(x[g], y[g], size[g]),
                   d = naive_ndcg(x[g], y[g], size[g], k ? k : N);
            groups += size[g] > 0;
            if (!isnan(a)) auc += a * size[g], weight += size[g], auc_groups++;
            if (!isnan(d)) ndcg += d, ndcg_groups++;
        }
        neo_grouped_values v, again;
        CHECK_OK(neo_grouped(s, N, k, &v));
        CHECK(v.groups == groups && v.auc_groups == auc_groups && v.ndcg_groups == ndcg_groups);
        CHECK_NEAR(v.auc, auc / weight, 1e-12);
        CHECK_NEAR(v.ndcg, ndcg / ndcg_groups, 1e-12);
        for (int i = N - 1; i > 0; i--) {
            int j = (int)(test_random() % (uint32_t)(i + 1));
            neo_grouped_sample swap = s[i];
            s[i] = s[j], s[j] = swap;
        }
        CHECK_OK(neo_grouped(s, N, k, &again));
        CHECK_BITS(&v, &again, sizeof v);
    }
    neo_grouped_values v;
    CHECK_OK(neo_grouped(NULL, 0, 5, &v));
    CHECK(v.groups == 0 && isnan(v.auc) && isnan(v.ndcg));
    s[3].score = NAN;
    CHECK_ERR(neo_grouped(s, 9, 5, &v), NEO_ERR_NUMERIC, "score of sample 3 is nan");
    s[3].score = 0, s[5].label = -1;
    CHECK_ERR(neo_grouped(s, 9, 5, &v), NEO_ERR_RANGE, "label of sample 5 is -1");
    CHECK_ERR(neo_grouped(s, -1, 5, &v), NEO_ERR_ARG, "count or k");
    CHECK_ERR(neo_grouped(s, 3, -1, &v), NEO_ERR_ARG, "count or k");
}

int main(void) {
    RUN(groups_equal_references);
    RUN(auc_equals_all_pairs);
    RUN(values_equal_reference);
    RUN(weights_are_repetitions);
    RUN(order_and_path_do_not_matter);
    RUN(window_is_the_last_samples);
    RUN(windows_begin_empty);
    RUN(bins_beyond_capacity);
    RUN(weighted_window_goes_on);
    RUN(alike_labels_and_overflow);
    RUN(extreme_logits);
    RUN(errors_and_memory);
    return test_end("core/metrics");
}
