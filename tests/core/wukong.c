/* Wukong layers. Bits are compared over instruction sets, threads and leaves in parts; values with
   PyTorch in tests/golden/dense.c, gradients with differences in tests/core/gradcheck.c. */
#include "common.h"

enum { V = 8, MOST = 1 << 16 };
static const neo_wukong_desc DESC = {.name = "w", .features = 7, .dim = 5, .linear = 3, .hidden = 9,
                                     .layers = 2, .max_batch = 40};
enum { WIDTH = 35 };

/* y, dx and all gradients, one after the other. parts: so many calls by whole subtrees, whose
   gradients add up; dx_given: dx is asked for. */
static void run(neo_ctx *ctx, neo_dtype dtype, int64_t batch, int parts, int dx_given, float *to) {
    static float x[40 * WIDTH], dy[40 * WIDTH];
    neo_wukong_desc desc = DESC;
    neo_params *params = NULL;
    neo_wukong *wukong = NULL;
    desc.dtype = dtype;
    test_seed = 5;
    test_fill(x, batch * WIDTH), test_fill(dy, batch * WIDTH);
    REQUIRE_OK(neo_params_create(ctx, &params));
    REQUIRE_OK(neo_wukong_create(ctx, params, &desc, &wukong));
    int64_t count = 2 * batch * WIDTH, at = count;
    memset(to, 0, MOST * sizeof *to);
    const neo_tensor y = neo_tensor_2d(to, NEO_F32, batch, WIDTH);
    const neo_tensor dx = neo_tensor_2d(to + batch * WIDTH, NEO_F32, batch, WIDTH);
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    for (int k = 0; k < parts; k++, at = count) {
        const neo_leaves leaves = {batch, V / parts * k, V / parts, 0};
        const int64_t first = neo_leaf_begin(batch, V, leaves.first);
        const int64_t rows = neo_leaf_begin(batch, V, leaves.first + leaves.count) - first;
        const neo_tensor given = neo_tensor_2d(x + first * WIDTH, NEO_F32, rows, WIDTH);
        CHECK_OK(neo_wukong_forward(wukong, given, neo_tensor_rows(y, first, rows)));
        CHECK_OK(neo_wukong_backward(wukong, parts > 1 ? &leaves : NULL,
                                     neo_tensor_2d(dy + first * WIDTH, NEO_F32, rows, WIDTH),
                                     dx_given ? neo_tensor_rows(dx, first, rows) : none));
        for (int i = 0; i < neo_params_count(params); i++) {
            const neo_tensor grad = neo_params_at(params, i)->grad;
            for (int64_t j = 0; j < neo_tensor_count(grad); j++)
                to[at++] += ((float *)grad.data)[j];
        }
    }
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    const size_t with = neo_ctx_memory(ctx).bytes;
    neo_wukong_destroy(wukong);
    CHECK_INT(with - neo_ctx_memory(ctx).bytes, neo_wukong_workspace_bytes(&desc));
    neo_params_destroy(params);
    for (int64_t i = 0; i < batch * WIDTH * (1 + dx_given); i++) CHECK(isfinite(to[i]));
}

static void bits(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int64_t batches[] = {0, 1, 13, 40};
    static float want[MOST], got[MOST];
    for (int narrow = 0; narrow < 2; narrow++)
        for (int b = 0; b < 4; b++) {
            const neo_dtype dtype = narrow ? NEO_BF16 : NEO_F32;
            for (int i = 0; i < 4; i++) {
                if (!neo_isa_available(isas[i])) continue;
                neo_ctx *ctx = test_ctx(1 + i % 3, isas[i], V);
                run(ctx, dtype, batches[b], 1, 1, i ? got : want);
                if (i) CHECK_BITS(got, want, sizeof got);
                run(ctx, dtype, batches[b], 2, 1, got); /* two subtrees: 0 + left, + right */
                CHECK_BITS(got, want, sizeof got);
                run(ctx, dtype, batches[b], 1, 0, got); /* dx is not asked for */
                memcpy(got + batches[b] * WIDTH, want + batches[b] * WIDTH,
                       (size_t)(batches[b] * WIDTH) * sizeof *got);
                CHECK_BITS(got, want, sizeof got);
                neo_ctx_destroy(ctx);
            }
        }
}

static void errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    static float f[4 * 41 * WIDTH];
    const neo_tensor x = neo_tensor_2d(f, NEO_F32, 4, WIDTH),
                     y = neo_tensor_2d(f + 4 * WIDTH, NEO_F32, 4, WIDTH);
    neo_params *params = NULL;
    neo_wukong *wukong = NULL;
    REQUIRE_OK(neo_params_create(ctx, &params));
#define REFUSED(member, value, text)                                                               \
    do {                                                                                           \
        neo_wukong_desc desc = DESC;                                                               \
        desc.member = value;                                                                       \
        CHECK_ERR(neo_wukong_create(ctx, params, &desc, &wukong), NEO_ERR_ARG, text);              \
        CHECK(!wukong && neo_params_count(params) == 0 && !neo_wukong_workspace_bytes(&desc));     \
    } while (0)
    REFUSED(name, NULL, "neo_wukong_create: a name is required");
    REFUSED(features, 1, "features is 1, not in 2 .. 4096");
    REFUSED(linear, 0, "linear is 0, not in 1 .. features - 1");
    REFUSED(linear, 7, "linear is 7");
    REFUSED(dim, 0, "dim is 0");
    REFUSED(hidden, 0, "hidden 0");
    REFUSED(max_batch, 0, "max_batch 0");
    REFUSED(layers, 0, "layers is 0");
    REFUSED(layers, NEO_MAX_LAYERS + 1, "not in 1 .. 32");
    REFUSED(dtype, NEO_F16, "dtype f16 is neither f32 nor bf16");
    CHECK_ERR(neo_wukong_create(ctx, params, &DESC, NULL), NEO_ERR_ARG, "wukong is NULL");
    CHECK_ERR(neo_wukong_create(ctx, NULL, &DESC, &wukong), NEO_ERR_ARG, "params is NULL");
    REQUIRE_OK(neo_wukong_create(ctx, params, &DESC, &wukong));
    neo_wukong *again = NULL;
    CHECK_ERR(neo_wukong_create(ctx, params, &DESC, &again), NEO_ERR_ARG, "w.0.pairs.weight");
    CHECK(!again && neo_params_count(params) == 2 * 9);
    CHECK_ERR(neo_wukong_backward(wukong, NULL, y, none), NEO_ERR_STATE, "there was no forward");
    CHECK_ERR(neo_wukong_forward(wukong, neo_tensor_2d(f, NEO_F32, 41, WIDTH), y),
              NEO_ERR_CAPACITY, "a batch of 41, but max_batch is 40");
    CHECK_ERR(neo_wukong_forward(wukong, x, x), NEO_ERR_ARG, "y overlaps x");
    CHECK_ERR(neo_wukong_forward(wukong, x, neo_tensor_rows(y, 0, 3)), NEO_ERR_SHAPE, "y");
    CHECK_ERR(neo_wukong_forward(wukong,
                                 neo_tensor_slice(neo_tensor_2d(f + 8 * WIDTH, NEO_F32, 4, 40), 1,
                                                  0, WIDTH),
                                 y),
              NEO_ERR_SHAPE, "x or y is not contiguous");
    CHECK_OK(neo_wukong_forward(wukong, x, y));
    CHECK_ERR(neo_wukong_backward(wukong, NULL, y, x), NEO_ERR_ARG, "dx overlaps x");
    CHECK_ERR(neo_wukong_backward(wukong, NULL, neo_tensor_rows(y, 0, 3), none), NEO_ERR_SHAPE,
              "dy has 3 rows");
    neo_wukong_destroy(wukong);
    neo_wukong_destroy(NULL);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(bits);
    RUN(errors);
    return test_end("core/wukong");
}
