/* panels.c: products by weights that are laid out as panels (neo__gemm_call.panels).
   Goal     the bits of the product that packs its weights: so a model that is served predicts what
            the trainer evaluates.
   Method   memcmp against the same product without panels, over instruction sets, threads, widths
            about multiples of lanes, depths about the blocks of a list and up to the longest list,
            and inputs of few and many zeros, of both signs, that are not finite, whose products
            underflow; weights that are not finite and a bias of -0 get no panels. */
#include "panels.h"
#include "test.h"

enum { SENTINELS = 32 };
typedef struct product {
    int64_t m, n, k, pad;
    int relu, percent; /* of places that are 0 */
} product;
/* [n][k] and a bias, which lies behind; the panels, or NULL. */
typedef struct weight {
    neo_tensor w, bias;
    float *panels;
} weight;
static void fill(float *x, int64_t count, int percent) {
    static const float ODD[] = {1e-30f, -1e-30f, 1e-42f, -0.0f, 1e30f};
    test_fill(x, count);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t drawn = test_random() % 1000;
        if ((int)(drawn / 10) < percent) x[i] = drawn % 10 ? 0.0f : -0.0f;
        else if (drawn % 10 == 9) x[i] = ODD[test_random() % 5];
    }
}
static weight weight_make(neo_ctx *ctx, int64_t n, int64_t k) {
    float *w = malloc((size_t)(n * (k + 1)) * sizeof *w), *bias = w + n * k;
    fill(w, n * k, 3);
    test_fill(bias, n);
    for (int64_t i = 0; i < n; i += 3) bias[i] = 0.0f;
    weight made = {neo_tensor_2d(w, NEO_F32, n, k), neo_tensor_1d(bias, NEO_F32, n), NULL};
    const int64_t floats = panels_floats(ctx, made.w, made.bias);
    if (!floats) return made;
    made.panels = malloc((size_t)floats * sizeof(float));
    CHECK_OK(panels_make(ctx, made.w, made.bias, made.panels, floats));
    return made;
}
static void weight_free(weight *w) {
    free(w->w.data);
    free(w->panels);
}
static void one_product(neo_ctx *ctx, const weight *w, const product *p, int whole) {
    const int64_t row = p->k + p->pad, c_row = p->n + p->pad, count = p->m * c_row + SENTINELS;
    float *a = malloc((size_t)(p->m * row + 1) * sizeof *a);
    float *c[2];
    fill(a, p->m * row, p->percent);
    if (!whole) a[test_random() % (uint64_t)(p->m * row)] = test_random() % 2 ? NAN : INFINITY;
    for (int i = 0; i < 2; i++) {
        neo_tensor x = neo_tensor_2d(a, NEO_F32, p->m, p->k);
        c[i] = malloc((size_t)count * sizeof **c);
        for (int64_t e = 0; e < count; e++) c[i][e] = 77.0f;
        neo_tensor y = neo_tensor_2d(c[i], NEO_F32, p->m, p->n);
        x.stride[0] = row, y.stride[0] = c_row;
        CHECK_OK(panels_product(ctx, x, w->w, w->bias, i ? w->panels : NULL,
                                p->relu ? NEO_ACT_RELU : NEO_ACT_NONE, y));
    }
    if (memcmp(c[0], c[1], (size_t)count * sizeof **c))
        FAIL("%s, %d threads: %d x %d x %d, relu %d, %d %% zeros, finite %d: other bits",
             neo_isa_name(neo_ctx_isa(ctx)), neo_ctx_threads(ctx), (int)p->m, (int)p->n, (int)p->k,
             p->relu, p->percent, whole);
    free(a), free(c[0]), free(c[1]);
}
static void shapes(neo_ctx *ctx) {
    static const int64_t DEPTHS[] = {1, 2, 47, 48, 49, 63, 64, 97, 255, 513};
    static const int64_t ROWS[] = {1, 2, 7, 63, 64, 65, 129, 300};
    static const int PERCENTS[] = {0, 10, 50, 90, 100};
    const panels_limits l = panels_limits_of(ctx);
    for (int64_t part = 1; part <= 18; part++)
        for (int64_t n = part * l.lanes - 1; n <= part * l.lanes + 1; n++)
            for (int d = 0; d < 10; d++) {
                if (n < 1 || (!test_grid() && test_random() % (12 << TEST_WATCHED))) continue;
                weight w = weight_make(ctx, n, DEPTHS[d]);
                for (int r = 0; w.panels && r < 8; r++) {
                    const product p = {ROWS[r], n, DEPTHS[d], (int64_t)(test_random() % 3),
                                       (int)(test_random() % 2), PERCENTS[test_random() % 5]};
                    one_product(ctx, &w, &p, test_random() % 4 > 0);
                }
                CHECK(!w.panels == (n < l.least_n));
                weight_free(&w);
            }
}
static void longest(neo_ctx *ctx) {
    static const int64_t ROWS[] = {1, 65};
    const panels_limits l = panels_limits_of(ctx);
    const int64_t n = l.lanes > 1 ? 2 * l.lanes + 1 : 5;
    for (int64_t k = l.most_k; k <= l.most_k + 1; k++) {
        weight w = weight_make(ctx, n, k);
        CHECK(!w.panels == (k > l.most_k));
        for (int r = 0; w.panels && r < 2; r++) {
            const product p = {ROWS[r], n, k, 1, r, 30};
            one_product(ctx, &w, &p, 1);
        }
        weight_free(&w);
    }
}
static void each_way(void (*test)(neo_ctx *)) {
    for (int i = NEO_ISA_SCALAR; i <= NEO_ISA_NEON; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            neo_ctx *ctx;
            if (neo_ctx_create(&(neo_ctx_desc){.threads = threads, .isa = (neo_isa)i}, &ctx))
                continue; /* this machine has none */
            test(ctx);
            neo_ctx_destroy(ctx);
        }
}
static void bits(void) { each_way(shapes); }
static void longest_lists(void) { each_way(longest); }

static void refused(void) {
    static const float WRONG[] = {NAN, INFINITY, -INFINITY};
    neo_ctx *ctx;
    CHECK_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 1}, &ctx));
    for (int i = 0; i < 4; i++) {
        weight w = weight_make(ctx, 40, 9);
        CHECK(w.panels != NULL);
        if (i < 3) ((float *)w.w.data)[40 * 9 - 1] = WRONG[i];
        else ((float *)w.bias.data)[39] = -0.0f;
        CHECK_INT(panels_floats(ctx, w.w, w.bias), 0);
        weight_free(&w);
    }
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(bits);
    RUN(longest_lists);
    RUN(refused);
    return test_end("serve/panels");
}
