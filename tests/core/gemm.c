/* neo_gemm against a chain of fmaf written plainly: every element is beta c, then one fused
   multiply-add per k in order, then the bias, then the activation. So the comparison is memcmp,
   over instruction sets, threads, transposes, strides and shapes. (fmaf rounds once.) */
#include "test.h"

static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
enum { ISAS = 4, SENTINELS = 64 };

typedef struct product {
    int64_t m, n, k;
    int trans_a, trans_b;
    float beta;
    int bias;
    neo_activation act;
    int64_t pad; /* extra floats per row */
} product;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* A tensor of rows x cols in memory with pad extra floats per row and sentinels around. */
typedef struct matrix {
    float *block;
    int64_t count;
    neo_tensor t;
} matrix;
static matrix matrix_make(int64_t rows, int64_t cols, int64_t pad, int offset) {
    matrix x;
    int64_t ld = cols + pad;
    x.count = rows * ld + 2 * SENTINELS + offset;
    x.block = (float *)malloc((size_t)x.count * sizeof(float));
    test_fill(x.block, x.count);
    x.t = neo_tensor_2d(x.block + SENTINELS + offset, NEO_F32, rows, cols);
    x.t.stride[0] = ld;
    return x;
}
TEST_UNWATCHED static float at(neo_tensor t, int64_t i, int64_t j) {
    return ((float *)t.data)[i * t.stride[0] + j];
}

TEST_UNWATCHED
static void reference(const product *p, neo_tensor a, neo_tensor b, const float *bias,
                      neo_tensor c) {
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            float *out = (float *)c.data + i * c.stride[0] + j;
            float sum = p->beta != 0.0f ? p->beta * *out : 0.0f;
            for (int64_t k = 0; k < p->k; k++)
                sum = fmaf(p->trans_a ? at(a, k, i) : at(a, i, k),
                           p->trans_b ? at(b, j, k) : at(b, k, j), sum);
            if (bias) sum = sum + bias[j];
            if (p->act == NEO_ACT_RELU) sum = 0.0f > sum ? 0.0f : sum;
            *out = sum;
        }
    }
}

/* The product on ctx[0 .. count) gives the reference's bits, and touches nothing else. */
static void check(const product *p, neo_ctx *const *ctx, int count) {
    matrix a =
        matrix_make(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->pad, (int)(p->pad & 3));
    matrix b = matrix_make(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->pad / 2,
                           (int)(p->pad & 1));
    matrix c = matrix_make(p->m, p->n, p->pad, 0);
    float *bias = (float *)malloc((size_t)(p->n + 1) * sizeof(float));
    float *start = (float *)malloc((size_t)c.count * sizeof(float));
    float *want = (float *)malloc((size_t)c.count * sizeof(float));
    test_fill(bias, p->n);
    memcpy(start, c.block, (size_t)c.count * sizeof(float));
    reference(p, a.t, b.t, p->bias ? bias : NULL, c.t);
    memcpy(want, c.block, (size_t)c.count * sizeof(float));
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_a = p->trans_a, desc.trans_b = p->trans_b, desc.beta = p->beta;
    desc.bias = p->bias ? bias : NULL;
    desc.act = p->act;
    for (int i = 0; i < count; i++) {
        memcpy(c.block, start, (size_t)c.count * sizeof(float));
        CHECK_OK(neo_gemm(ctx[i], &desc, a.t, b.t, c.t));
        if (memcmp(c.block, want, (size_t)c.count * sizeof(float)) != 0) {
            int64_t at_count = 0, first = -1;
            for (int64_t e = 0; e < c.count; e++)
                if (memcmp(c.block + e, want + e, sizeof(float)) != 0) {
                    if (first < 0) first = e;
                    at_count++;
                }
            first -= SENTINELS;
            FAIL("%s, %d threads: m %d n %d k %d trans %d%d beta %g bias %d act %d pad %d: %d "
                 "differ, first [%d][%d]",
                 neo_isa_name(neo_ctx_isa(ctx[i])), neo_ctx_threads(ctx[i]), (int)p->m, (int)p->n,
                 (int)p->k, p->trans_a, p->trans_b, (double)p->beta, p->bias, (int)p->act,
                 (int)p->pad, (int)at_count, (int)(first / max64(1, c.t.stride[0])),
                 (int)(first % max64(1, c.t.stride[0])));
        }
    }
    free(a.block), free(b.block), free(c.block), free(bias), free(start), free(want);
}

static neo_ctx *all_ctx[16];
static int all_count;
static void make_contexts(void) {
    static const int threads[] = {1, 3};
    if (TEST_WATCHED == 2) { /* races need threads, and are alike on all */
        all_ctx[all_count++] = test_ctx(3, NEO_ISA_BEST, 1);
        return;
    }
    for (int i = 0; i < ISAS; i++)
        for (int t = 0; t < 2; t++)
            if (neo_isa_available(isas[i])) all_ctx[all_count++] = test_ctx(threads[t], isas[i], 1);
}

/* Every path of small shapes: all transposes, with and without what else there is. */
static void small_shapes(void) {
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 31, 33};
    const int count = (int)(sizeof sizes / sizeof *sizes);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            for (int l = 0; l < count; l++)
                for (int trans = 0; trans < 4; trans++) {
                    if ((i + j + l + trans) % (1 << TEST_WATCHED)) continue;
                    product p = {sizes[i], sizes[j], sizes[l],     trans & 1, trans >> 1,
                                 0.0f,     0,        NEO_ACT_NONE, 0};
                    uint32_t r = test_random();
                    p.beta = (r & 3) == 0 ? 1.0f : (r & 3) == 1 ? 0.37f : 0.0f;
                    p.bias = r >> 2 & 1;
                    p.act = r >> 3 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE;
                    p.pad = r >> 4 & 7;
                    check(&p, all_ctx, all_count);
                }
}

/* Shapes that cross the edges of tiles, panels, segments of k and tasks. */
static void odd_shapes(void) {
    for (int i = 0; i < 60 >> TEST_WATCHED; i++) {
        product p = {1 + test_random() % 160,
                     1 + test_random() % 160,
                     1 + test_random() % 200,
                     0,
                     0,
                     0.0f,
                     0,
                     NEO_ACT_NONE,
                     0};
        uint32_t r = test_random();
        p.trans_a = r & 1, p.trans_b = r >> 1 & 1;
        p.beta = (r >> 2 & 3) == 0 ? 1.0f : (r >> 2 & 3) == 1 ? -0.5f : 0.0f;
        p.bias = r >> 4 & 1;
        p.act = r >> 5 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE;
        p.pad = r >> 6 & 15;
        check(&p, all_ctx, all_count);
    }
}

/* Few k: C is written row by row, over whole panels and a part of one. */
static void few_k(void) {
    static const int64_t cols[] = {8, 63, 64, 65, 127, 128, 129, 256, 300, 513};
    for (size_t j = 0; j < sizeof cols / sizeof *cols; j++)
        for (int64_t k = 0; k <= 18; k += k < 2 ? 1 : 1 + test_random() % 5) {
            const uint32_t r = test_random();
            product p = {1 + test_random() % 40, cols[j], k, r & 1, r >> 1 & 1, 0.0f, 0,
                         NEO_ACT_NONE,           0};
            p.beta = (r >> 2 & 3) == 0 ? 1.0f : (r >> 2 & 3) == 1 ? -0.5f : 0.0f;
            p.bias = r >> 4 & 1;
            p.act = r >> 5 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE;
            p.pad = r >> 6 & 7;
            check(&p, all_ctx, all_count);
        }
}

static void deep_and_narrow(void) {
    static const product list[] = {
        {3, 5, 513, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
        {3, 5, 1700, 1, 0, 0.5f, 1, NEO_ACT_RELU, 3},
        {200, 1, 300, 0, 1, 0.0f, 1, NEO_ACT_NONE, 0},
        {200, 1, 1100, 0, 1, 1.0f, 1, NEO_ACT_RELU, 1},
        {200, 3, 600, 0, 0, 0.25f, 1, NEO_ACT_RELU, 5},
        {129, 4, 77, 1, 1, 0.0f, 1, NEO_ACT_NONE, 2},
        {1, 300, 700, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
        {1, 60, 35000, 0, 0, 0.0f, 1, NEO_ACT_NONE, 0}, /* operands from memory, narrow panels */
        {1, 700, 33, 1, 0, 1.0f, 0, NEO_ACT_NONE, 0},
        {2, 300, 700, 0, 0, 0.0f, 1, NEO_ACT_RELU, 0},
        {16, 1100, 40, 0, 0, 0.0f, 1, NEO_ACT_RELU, 0},
        {600, 16, 40, 0, 1, 0.0f, 1, NEO_ACT_NONE, 0},
        {40, 48, 1024, 0, 1, 0.0f, 0, NEO_ACT_NONE, 0},
        {256, 256, 64, 1, 1, 1.0f, 1, NEO_ACT_RELU, 0},
        {65, 400, 530, 0, 0, 0.0f, 0, NEO_ACT_NONE, 7},
        {65, 400, 1030, 0, 1, 0.5f, 1, NEO_ACT_RELU, 3},
        {66, 300, 1024, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0}, /* rows that share places in a cache */
        {37, 600, 2048, 0, 0, 1.0f, 0, NEO_ACT_NONE, 0},
        {131, 13, 1024, 0, 0, 0.0f, 0, NEO_ACT_NONE, 0},
        {90, 600, 1100, 1, 0, 0.0f, 1, NEO_ACT_NONE, 0},
        {8300, 1, 256, 0, 1, 0.5f, 1, NEO_ACT_RELU, 0}, /* operands of more than a cache holds */
        {1050, 1, 131, 0, 1, 0.0f, 0, NEO_ACT_NONE, 5},
        {512, 13, 4200, 1, 0, 0.0f, 1, NEO_ACT_NONE, 0},
        {4100, 512, 13, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i += TEST_WATCHED == 2 ? 4 : 1)
        check(&list[i], all_ctx, all_count);
}

/* A product drawn at random for what there is besides sizes. */
static product drawn(int64_t m, int64_t n, int64_t k, int trans_a, int trans_b) {
    static const float betas[] = {0.0f, 0.0f, 1.0f, -0.5f};
    const uint32_t r = test_random();
    product p = {m,          n, k, trans_a, trans_b, betas[r & 3], r >> 2 & 1, NEO_ACT_NONE,
                 r >> 4 & 7};
    p.act = r >> 3 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE;
    return p;
}
/* k-major operands of a small C are read in place, in short parts: over the sizes of tiles and
   panels, the largest C that counts as small, and a k that is cut. */
static void thin(void) {
    static const int64_t sizes[][2] = {
        {1, 256},  {16, 64},  {7, 65},   {15, 16}, {17, 33}, {64, 128},
        {64, 129}, {13, 496}, {496, 13}, {1, 511}, {1, 512}, {14, 17}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t k = 0; k < 1100; k = 2 * k + 1 + test_random() % 90) {
            const product p = drawn(sizes[i][0], sizes[i][1], k, 1, 0);
            check(&p, all_ctx, all_count);
        }
}
/* Few k: one call for a row of tiles, over whole panels and a part of one. */
static void brief(void) {
    static const int64_t cols[] = {15, 16, 17, 31, 32, 33, 48, 64, 95, 96, 160, 512, 515};
    for (size_t j = 0; j < sizeof cols / sizeof *cols; j++)
        for (int64_t k = 5; k <= 66; k += k >= 62 ? 1 : 19) {
            const product p = drawn(1 + test_random() % 50, cols[j], k, test_random() & 1,
                                    test_random() & 1);
            check(&p, all_ctx, all_count);
        }
}
/* Few rows, which are packed where there are many columns and read in place by others: over the
   sizes of tiles, panels and segments. */
static void few_rows(void) {
    static const int64_t rows[] = {31, 32, 47, 100, 130}, depths[] = {63, 64, 513, 1024};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t l = 0; l < sizeof depths / sizeof *depths; l += TEST_WATCHED == 2 ? 2 : 1) {
            product p = drawn(rows[i], 2 * rows[i] - 1 + test_random() % 50, depths[l], 0, 1);
            if (i > 0) p.beta = 0.0f;
            check(&p, all_ctx, all_count);
        }
    const product edges[] = {{256, 513, 64, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
                             {257, 514, 64, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
                             {32, 400, 700, 0, 1, 0.0f, 1, NEO_ACT_RELU, 3}, /* weights in place: */
                             {62, 200, 2200, 0, 1, 0.0f, 1, NEO_ACT_NONE, 5}, /* two segments */
                             {128, 4200, 128, 0, 1, 0.0f, 0, NEO_ACT_RELU, 0}}; /* two tasks */
    for (int i = 0; i < 5; i++) check(&edges[i], all_ctx, all_count);
}
/* A C of more than caches hold is written past them where it is aligned: the bits of one that is
   not. */
static void streams(void) {
    enum { M = 16389, N = 512, K = 13 };
    static float a[M + K], b[N * K], bias[N];
    float *block = (float *)malloc((2 * (size_t)M * N + 64) * sizeof *block);
    CHECK(block != NULL);
    test_fill(a, M + K), test_fill(b, N * K), test_fill(bias, N);
    neo_tensor ta = neo_tensor_2d(a, NEO_F32, M, K);
    ta.stride[0] = 1;
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_b = 1, desc.bias = bias;
    for (int i = 0; block && i < all_count; i++) {
        float *c = block + (64 - (uintptr_t)block % 64) % 64 / 4, *apart = c + (size_t)M * N + 1;
        memset(c, 0xFF, (size_t)M * N * sizeof *c);
        CHECK_OK(neo_gemm(all_ctx[i], &desc, ta, neo_tensor_2d(b, NEO_F32, N, K),
                          neo_tensor_2d(c, NEO_F32, M, N)));
        CHECK_OK(neo_gemm(all_ctx[i], &desc, ta, neo_tensor_2d(b, NEO_F32, N, K),
                          neo_tensor_2d(apart, NEO_F32, M, N)));
        CHECK_BITS(c, apart, (size_t)M * N * sizeof *c);
    }
    free(block);
}
/* What is not finite reaches the sums it belongs to, and no other. */
static void not_finite(void) {
    static const product list[] = {{16, 65, 700, 1, 0, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {1, 256, 300, 1, 0, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {21, 70, 13, 0, 1, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {70, 1, 256, 0, 1, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {32, 70, 600, 0, 1, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {35, 90, 600, 0, 1, 0.0f, 0, NEO_ACT_NONE, 0}};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t l = 0; l < sizeof list / sizeof *list; l++)
        for (int e = 0; e < 3; e++) {
            const product *p = &list[l];
            matrix a = matrix_make(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, 0, 0);
            matrix b = matrix_make(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, 0, 0);
            matrix want = matrix_make(p->m, p->n, 0, 0), c = matrix_make(p->m, p->n, 0, 0);
            ((float *)a.t.data)[p->m * p->k / 2] = bad[e];
            ((float *)b.t.data)[p->n * p->k - 1] = bad[e];
            reference(p, a.t, b.t, NULL, want.t);
            neo_gemm_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.trans_a = p->trans_a, desc.trans_b = p->trans_b;
            for (int i = 0; i < all_count; i++) {
                int wrong = 0;
                CHECK_OK(neo_gemm(all_ctx[i], &desc, a.t, b.t, c.t));
                for (int64_t j = 0; j < p->m * p->n; j++) {
                    const float x = ((float *)c.t.data)[j], y = ((float *)want.t.data)[j];
                    wrong += isnan(y) ? !isnan(x) : memcmp(&x, &y, sizeof x) != 0;
                }
                CHECK_INT(wrong, 0);
            }
            free(a.block), free(b.block), free(want.block), free(c.block);
        }
}

/* More threads than cores. */
static void many_threads(void) {
    neo_ctx *ctx[3] = {test_ctx(2, NEO_ISA_BEST, 1), test_ctx(3, NEO_ISA_BEST, 1),
                       test_ctx(8, NEO_ISA_BEST, 1)};
    static const product list[] = {{300, 260, 520, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0},
                                   {512, 13, 600, 1, 0, 0.0f, 0, NEO_ACT_NONE, 0},
                                   {900, 1, 256, 0, 1, 0.0f, 1, NEO_ACT_NONE, 0},
                                   {100, 700, 600, 0, 1, 0.0f, 1, NEO_ACT_RELU, 3}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check(&list[i], ctx, 3);
    for (int i = 0; i < 3; i++) neo_ctx_destroy(ctx[i]);
}

/* A user's executor: one worker takes all tasks, `step` apart, so that tasks of two products and
   sums of a bias come between each other. */
typedef struct turns {
    int64_t step, tasks; /* tasks: the most that were to be done */
    int worker;
} turns;
static void in_turns(int64_t count, neo_task_fn task, void *arg, void *user) {
    turns *t = (turns *)user;
    t->tasks = max64(t->tasks, count);
    for (int64_t first = 0; first < t->step; first++)
        for (int64_t i = first; i < count; i += t->step) task(arg, i, t->worker);
}
static void any_order(void) {
    enum { BATCH = 100, IN = 1024, OUT = 64, THREADS = 40, PATHS = 3 };
    static float x[BATCH * IN], dz[BATCH * OUT], w[OUT * IN], dw[2][OUT * IN], dbias[2][OUT],
        dx[2][BATCH * IN];
    static const int workers[PATHS] = {0, 3, THREADS - 1}, threads[PATHS] = {4, 4, THREADS};
    test_fill(x, BATCH * IN), test_fill(dz, BATCH * OUT), test_fill(w, OUT * IN);
    for (int shards = 1; shards <= 4; shards += 3)
        for (int path = 0; path <= PATHS; path++) { /* the first: one thread */
            turns t = {1, 0, path > 0 ? workers[path - 1] : 0};
            neo_ctx_desc desc;
            neo_ctx *ctx;
            memset(&desc, 0, sizeof desc);
            desc.repro_shards = shards;
            desc.threads = path > 0 ? threads[path - 1] : 1;
            desc.executor.run = in_turns, desc.executor.user = &t;
            CHECK_OK(neo_ctx_create(&desc, &ctx));
            for (; t.step < (path > 0 ? 8 : 2); t.step++) {
                const int to = path > 0;
                memset(dw[to], 0xFF, sizeof dw[to]), memset(dbias[to], 0xFF, sizeof dbias[to]);
                memset(dx[to], 0xFF, sizeof dx[to]);
                CHECK_OK(neo_linear_backward(
                    ctx, NULL, neo_tensor_2d(x, NEO_F32, BATCH, IN),
                    neo_tensor_2d(w, NEO_F32, OUT, IN), neo_tensor_2d(dz, NEO_F32, BATCH, OUT),
                    neo_tensor_2d(dx[to], NEO_F32, BATCH, IN),
                    neo_tensor_2d(dw[to], NEO_F32, OUT, IN),
                    neo_tensor_1d(dbias[to], NEO_F32, OUT)));
                CHECK(memcmp(dw[to], dw[0], sizeof dw[0]) == 0 &&
                      memcmp(dbias[to], dbias[0], sizeof dbias[0]) == 0 &&
                      memcmp(dx[to], dx[0], sizeof dx[0]) == 0);
            }
            CHECK(path == 0 ? t.tasks == 0 : t.tasks > 16);
            neo_ctx_destroy(ctx);
        }
}

/* A product of small integers is exact, whatever the order. */
static void exact_integers(void) {
    enum { M = 70, N = 90, K = 1000 };
    static float a[M * K], b[K * N], c[M * N];
    for (int i = 0; i < M * K; i++) a[i] = (float)(int)(test_random() % 17) - 8.0f;
    for (int i = 0; i < K * N; i++) b[i] = (float)(int)(test_random() % 17) - 8.0f;
    CHECK_OK(neo_gemm(all_ctx[all_count - 1], NULL, neo_tensor_2d(a, NEO_F32, M, K),
                      neo_tensor_2d(b, NEO_F32, K, N), neo_tensor_2d(c, NEO_F32, M, N)));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            int64_t sum = 0;
            for (int k = 0; k < K; k++) sum += (int64_t)a[i * K + k] * (int64_t)b[k * N + j];
            CHECK_INT(c[i * N + j], sum);
        }
}

/* Against double: the error of a chain of k roundings. */
static void double_reference(void) {
    enum { M = 33, N = 47, K = 300 };
    static float a[M * K], b[K * N], c[M * N];
    test_fill(a, M * K), test_fill(b, K * N);
    for (int i = 0; i < all_count; i++) {
        CHECK_OK(neo_gemm(all_ctx[i], NULL, neo_tensor_2d(a, NEO_F32, M, K),
                          neo_tensor_2d(b, NEO_F32, K, N), neo_tensor_2d(c, NEO_F32, M, N)));
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double sum = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    sum += (double)a[m * K + k] * b[k * N + n];
                    size += fabs((double)a[m * K + k] * b[k * N + n]);
                }
                CHECK_NEAR(c[m * N + n], sum, size * 1.2e-7 * 10);
            }
    }
}

/* Every activation: what neo_activation_forward makes of the plain product. */
static void activations(void) {
    enum { M = 45, N = 70, K = 20 };
    static float a[M * K], b[N * K], bias[N], z[M * N], want[M * N], c[M * N];
    test_fill(a, M * K), test_fill(b, N * K), test_fill(bias, N);
    for (int i = 0; i < all_count; i++)
        for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++)
            for (int n = 1; n <= N; n += N - 1) {
                neo_gemm_desc desc;
                memset(&desc, 0, sizeof desc);
                desc.trans_b = 1, desc.bias = bias;
                neo_tensor ta = neo_tensor_2d(a, NEO_F32, M, K),
                           tb = neo_tensor_2d(b, NEO_F32, n, K);
                CHECK_OK(neo_gemm(all_ctx[i], &desc, ta, tb, neo_tensor_2d(z, NEO_F32, M, n)));
                CHECK_OK(neo_activation_forward(all_ctx[i], (neo_activation)act,
                                                neo_tensor_1d(z, NEO_F32, M * n),
                                                neo_tensor_1d(want, NEO_F32, M * n)));
                desc.act = (neo_activation)act;
                CHECK_OK(neo_gemm(all_ctx[i], &desc, ta, tb, neo_tensor_2d(c, NEO_F32, M, n)));
                CHECK_BITS(c, want, (size_t)(M * n) * sizeof(float));
            }
}

/* A row of the result does not depend on the rows around it; beta = 0 does not read c. */
static void rows_stand_alone(void) {
    enum { M = 100, N = 60, K = 90 };
    static float a[M * K], b[N * K], all[M * N], one[N];
    test_fill(a, M * K), test_fill(b, N * K);
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_b = 1;
    for (int i = 0; i < M * N; i++) all[i] = NAN;
    neo_ctx *ctx = all_ctx[all_count - 1];
    CHECK_OK(neo_gemm(ctx, &desc, neo_tensor_2d(a, NEO_F32, M, K), neo_tensor_2d(b, NEO_F32, N, K),
                      neo_tensor_2d(all, NEO_F32, M, N)));
    for (int i = 0; i < M; i++) {
        CHECK_OK(neo_gemm(ctx, &desc, neo_tensor_2d(a + i * K, NEO_F32, 1, K),
                          neo_tensor_2d(b, NEO_F32, N, K), neo_tensor_2d(one, NEO_F32, 1, N)));
        CHECK_BITS(one, all + i * N, sizeof one);
    }
}

static void errors(void) {
    float x[64] = {0};
    neo_ctx *ctx = all_ctx[0];
    neo_tensor a = neo_tensor_2d(x, NEO_F32, 4, 3), b = neo_tensor_2d(x, NEO_F32, 3, 5);
    neo_tensor c = neo_tensor_2d(x, NEO_F32, 4, 5), bad;
    CHECK_ERR(neo_gemm(ctx, NULL, a, neo_tensor_2d(x, NEO_F32, 2, 5), c), NEO_ERR_SHAPE,
              "b is [2][5]");
    CHECK_ERR(neo_gemm(ctx, NULL, neo_tensor_1d(x, NEO_F32, 4), b, c), NEO_ERR_SHAPE,
              "two dimensions");
    CHECK_ERR(neo_gemm(ctx, NULL, neo_tensor_2d(x, NEO_I32, 4, 3), b, c), NEO_ERR_SHAPE,
              "a is not");
    CHECK_ERR(neo_gemm(ctx, NULL, neo_tensor_none(), b, c), NEO_ERR_SHAPE, "two dimensions");
    bad = a, bad.stride[1] = 2;
    CHECK_ERR(neo_gemm(ctx, NULL, bad, b, c), NEO_ERR_SHAPE, "stride of a is 2");
    bad = c, bad.stride[0] = 4;
    CHECK_ERR(neo_gemm(ctx, NULL, a, b, bad), NEO_ERR_SHAPE, "overlap");
    bad = c, bad.data = NULL;
    CHECK_ERR(neo_gemm(ctx, NULL, a, b, bad), NEO_ERR_SHAPE, "c has no data");
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.act = (neo_activation)17;
    CHECK_ERR(neo_gemm(ctx, &desc, a, b, c), NEO_ERR_ARG, "activation 17");
    desc.act = NEO_ACT_NONE, desc.trans_a = 1;
    CHECK_ERR(neo_gemm(ctx, &desc, a, b, c), NEO_ERR_SHAPE, "a is [4][3], expected [4][4]");
}

/* A column so long that it has no room packed: rows of a overlap, sums are exact. */
static void long_column(void) {
    enum { M = 128, K = 6000000 }; /* more than all scratch of one thread */
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float *v = calloc(M + K, sizeof *v), *x = calloc(K, sizeof *x), y[M];
    CHECK(v && x);
    for (int i = 0; v && x && i < M + K; i++) v[i] = (float)(i % 3 - 1);
    for (int i = 0; v && x && i < K; i++) x[i] = (float)(i % 7 - 3);
    neo_tensor a = neo_tensor_2d(v, NEO_F32, M, K);
    a.stride[0] = 1;
    if (v && x) {
        CHECK_OK(neo_gemm(ctx, NULL, a, neo_tensor_2d(x, NEO_F32, K, 1),
                          neo_tensor_2d(y, NEO_F32, M, 1)));
        int wrong = 0;
        for (int i = 0; i < M; i += 37) {
            int64_t sum = 0;
            for (int k = 0; k < K; k++) sum += ((i + k) % 3 - 1) * (k % 7 - 3);
            wrong += y[i] != (float)sum;
        }
        CHECK_INT(wrong, 0);
    }
    free(v);
    free(x);
    neo_ctx_destroy(ctx);
}
static void allocates_nothing(void) {
    neo_ctx *ctx = all_ctx[all_count - 1];
    int64_t before = neo_ctx_memory(ctx).alloc_count;
    product p = {150, 150, 600, 0, 1, 0.0f, 1, NEO_ACT_RELU, 0};
    check(&p, &ctx, 1);
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, before);
}

int main(void) {
    make_contexts();
    RUN(small_shapes);
    RUN(odd_shapes);
    RUN(few_k);
    RUN(deep_and_narrow);
    RUN(thin);
    RUN(brief);
    RUN(few_rows);
    RUN(streams);
    RUN(not_finite);
    RUN(many_threads);
    RUN(any_order);
    if (TEST_WATCHED < 2) RUN(long_column); /* one thread has no races */
    RUN(exact_integers);
    RUN(double_reference);
    RUN(activations);
    RUN(rows_stand_alone);
    RUN(errors);
    RUN(allocates_nothing);
    for (int i = 0; i < all_count; i++) neo_ctx_destroy(all_ctx[i]);
    return test_end("core/gemm");
}
