/* panels.c: products by weights that are laid out as panels (neo__gemm_call.panels).
   Goal     the bits of the product that packs its weights: so a model that is served predicts what
            the trainer evaluates.
   Method   memcmp against the same product without panels, over instruction sets, threads, widths
            about multiples of lanes, depths about the blocks of a list and up to the longest list,
            and inputs of few and many zeros, of both signs, that are not finite, whose products
            underflow; weights that are not finite and a bias of -0 get no panels. */
#define NEO_STATIC
#include "neo_serve.h"

#include "test.h"

enum { SENTINELS = 32 };
typedef struct product {
    int64_t m, n, k, pad;
    int relu, percent; /* of places that are 0 */
} product;

static void fill(float *x, int64_t count, int percent) {
    static const float ODD[] = {1e-30f, -1e-30f, 1e-42f, -0.0f, 1e30f};
    test_fill(x, count);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t drawn = test_random() % 1000;
        if ((int)(drawn / 10) < percent) x[i] = drawn % 10 ? 0.0f : -0.0f;
        else if (drawn % 10 == 9) x[i] = ODD[test_random() % 5];
    }
}
/* A weight [n][k], its bias behind it, and its panels. */
static void weight_make(neo_ctx *ctx, neo__weight *weight, int64_t n, int64_t k) {
    float *w = malloc((size_t)(n * (k + 1)) * sizeof *w), *bias = w + n * k;
    fill(w, n * k, 3);
    test_fill(bias, n);
    for (int64_t i = 0; i < n; i += 3) bias[i] = 0.0f;
    weight[0].t = neo_tensor_2d(w, NEO_F32, n, k);
    weight[1].t = neo_tensor_1d(bias, NEO_F32, n);
    const int64_t floats = neo__model_panel_floats(ctx, weight);
    weight->turned = floats ? malloc((size_t)floats * sizeof(float)) : NULL;
    if (floats) CHECK_OK(neo__model_panels(ctx, weight, floats));
}
static void weight_free(neo__weight *weight) {
    free(weight[0].t.data);
    free(weight->turned);
}
static void one_product(neo_ctx *ctx, const neo__weight *weight, const product *p, int whole) {
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
        neo__gemm_call call = neo__gemm_call_make(x, 0, weight->t, 1, y);
        call.bias = weight[1].t.data;
        call.panels = i ? weight->turned : NULL;
        neo__gemm_call_finish(&call, p->relu ? NEO_ACT_RELU : NEO_ACT_NONE, 0, neo_tensor_none(),
                              neo_tensor_none());
        CHECK_OK(NEO__RUN(ctx, "panels", gemm, &call));
    }
    if (memcmp(c[0], c[1], (size_t)count * sizeof **c))
        FAIL("%s, %d threads: %d x %d x %d, relu %d, %d %% zeros, finite %d: other bits",
             neo_isa_name(neo_ctx_isa(ctx)), ctx->threads, (int)p->m, (int)p->n, (int)p->k,
             p->relu, p->percent, whole);
    free(a), free(c[0]), free(c[1]);
}
static void shapes(neo_ctx *ctx) {
    static const int64_t DEPTHS[] = {1, 2, 47, 48, 49, 63, 64, 97, 255, 513};
    static const int64_t ROWS[] = {1, 2, 7, 63, 64, 65, 129, 300};
    static const int PERCENTS[] = {0, 10, 50, 90, 100};
    const int64_t lanes = ctx->gemm->lanes;
    for (int64_t part = 1; part <= 18; part++)
        for (int64_t n = part * lanes - 1; n <= part * lanes + 1; n++)
            for (int d = 0; d < 10; d++) {
                neo__weight weight[2];
                if (n < 1 || (!test_grid() && test_random() % (12 << TEST_WATCHED))) continue;
                memset(weight, 0, sizeof weight);
                weight_make(ctx, weight, n, DEPTHS[d]);
                for (int r = 0; weight->turned && r < 8; r++) {
                    const product p = {ROWS[r], n, DEPTHS[d], (int64_t)(test_random() % 3),
                                       (int)(test_random() % 2), PERCENTS[test_random() % 5]};
                    one_product(ctx, weight, &p, test_random() % 4 > 0);
                }
                CHECK(!weight->turned == (n < lanes || n <= NEO__GEMM_SWAP_COLS));
                weight_free(weight);
            }
}
static void longest(neo_ctx *ctx) {
    static const int64_t ROWS[] = {1, 65};
    const int64_t n = NEO__MAX(2 * ctx->gemm->lanes + 1, 5);
    for (int64_t k = NEO__LISTED_PLACES - 1; k <= NEO__LISTED_PLACES; k++) {
        neo__weight weight[2];
        memset(weight, 0, sizeof weight);
        weight_make(ctx, weight, n, k);
        CHECK(!weight->turned == (k == NEO__LISTED_PLACES));
        for (int r = 0; weight->turned && r < 2; r++) {
            const product p = {ROWS[r], n, k, 1, r, 30};
            one_product(ctx, weight, &p, 1);
        }
        weight_free(weight);
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
    neo__weight weight[2];
    neo_ctx *ctx;
    CHECK_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 1}, &ctx));
    for (int i = 0; i < 4; i++) {
        memset(weight, 0, sizeof weight);
        weight_make(ctx, weight, 40, 9);
        CHECK(weight->turned != NULL);
        if (i < 3) ((float *)weight[0].t.data)[40 * 9 - 1] = WRONG[i];
        else ((float *)weight[1].t.data)[39] = -0.0f;
        CHECK_INT(neo__model_panel_floats(ctx, weight), 0);
        weight_free(weight);
    }
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(bits);
    RUN(longest_lists);
    RUN(refused);
    return test_end("serve/panels");
}
