/* Cross networks of DCN-v2, and neo_addcmul under them. Bits are compared with the same network by
   public calls (linear layers, conversions), over instruction sets, threads and leaves; values with
   double. PyTorch's are in tests/golden/dense.c. */
#include "common.h"

enum { V = 8, MOST = 1 << 16 };
static void contexts_make(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    context_count = 0;
    for (int i = 0; i < 4; i++)
        if (neo_isa_available(isas[i])) contexts[context_count++] = test_ctx(1 + i % 3, isas[i], V);
}

/* ---- neo_addcmul ---- */
static void addcmul_case(int64_t rows, int64_t cols, int64_t pad) {
    box base = box_make(rows, cols, pad), y = box_make(rows, cols, pad ? pad + 1 : 0);
    box z = box_make(rows, cols, 0), x = box_make(rows, cols, pad);
    for (int with_base = 0; with_base < 2; with_base++)
        for (int in_place = 0; in_place < 4; in_place++) {
            box want = box_copy(in_place == 1 ? base : in_place == 2 ? y : in_place == 3 ? z : x);
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < cols; j++) {
                    const float a = row_of(y.t, i)[j], b = row_of(z.t, i)[j];
                    row_of(want.t, i)[j] = with_base ? fmaf(a, b, row_of(base.t, i)[j]) : a * b;
                }
            for (int k = 0; k < context_count; k++) {
                box b = box_copy(base), from = box_copy(y), by = box_copy(z), to = box_copy(x);
                box *out = in_place == 1 ? &b : in_place == 2 ? &from : in_place == 3 ? &by : &to;
                CHECK_OK(neo_addcmul(contexts[k], with_base ? b.t : none, from.t, by.t, out->t));
                CHECK(box_same(*out, want));
                free(b.block), free(from.block), free(by.block), free(to.block);
            }
            free(want.block);
        }
    free(base.block), free(y.block), free(z.block), free(x.block);
}
static void addcmul(void) {
    static const int64_t cols[] = {1, 7, 8, 16, 33, 256, 1000};
    contexts_make();
    for (int i = 0; i < 7; i++)
        for (int pad = 0; pad < 4; pad += 3) {
            addcmul_case(1, cols[i], pad);
            addcmul_case(19, cols[i], pad);
        }
    box x = box_make(3, 4, 0), y = box_make(3, 5, 0);
    neo_ctx *ctx = contexts[0];
    CHECK_OK(neo_addcmul(ctx, none, neo_tensor_rows(x.t, 0, 0), neo_tensor_rows(x.t, 0, 0),
                         neo_tensor_rows(x.t, 0, 0)));
    CHECK_ERR(neo_addcmul(ctx, none, y.t, x.t, x.t), NEO_ERR_SHAPE, "neo_addcmul: y");
    CHECK_ERR(neo_addcmul(ctx, none, x.t, y.t, x.t), NEO_ERR_SHAPE, "neo_addcmul: z");
    CHECK_ERR(neo_addcmul(ctx, y.t, x.t, x.t, x.t), NEO_ERR_SHAPE, "neo_addcmul: base");
    CHECK_ERR(neo_addcmul(ctx, none, neo_tensor_rows(x.t, 1, 2), neo_tensor_rows(x.t, 1, 2),
                          neo_tensor_rows(x.t, 0, 2)),
              NEO_ERR_ARG, "overlap");
    free(x.block), free(y.block);
    contexts_free();
}

/* ---- the network ---- */
typedef struct net {
    int64_t batch, width, rank;
    int layers;
    neo_dtype dtype;
} net;
static neo_cross_desc desc_of(const net *n) {
    return (neo_cross_desc){.name = "c", .width = n->width, .rank = n->rank, .layers = n->layers,
                            .max_batch = n->batch ? n->batch : 1, .dtype = n->dtype};
}
static neo_params *params_of(neo_ctx *ctx, const net *n, neo_cross **cross) {
    neo_params *params = NULL;
    neo_cross_desc d = desc_of(n);
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_OK(neo_cross_create(ctx, params, &d, cross));
    for (int i = 0; i < neo_params_count(params); i++) { /* biases that are not 0, too */
        neo_tensor value = neo_params_at(params, i)->value;
        if (value.ndim == 1) test_fill((float *)value.data, value.shape[0]);
    }
    return params;
}
/* y, dx and the gradients of all parameters, one after the other; returns how many numbers. */
static int64_t run(neo_ctx *ctx, const net *n, box x, box dy, int wants_dx, float *to) {
    neo_cross *cross = NULL;
    test_seed = 11;
    neo_params *params = params_of(ctx, n, &cross);
    int64_t count = n->batch * n->width;
    neo_tensor y = neo_tensor_2d(to, NEO_F32, n->batch, n->width);
    neo_tensor dx = neo_tensor_2d(to + count, NEO_F32, n->batch, n->width);
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(neo_cross_forward(cross, x.t, y));
    CHECK_OK(neo_cross_backward(cross, NULL, dy.t, wants_dx ? dx : none));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    count *= 1 + wants_dx;
    for (int i = 0; i < neo_params_count(params); i++) {
        neo_tensor grad = neo_params_at(params, i)->grad;
        memcpy(to + count, grad.data, neo_tensor_bytes(grad));
        count += neo_tensor_count(grad);
    }
    const size_t with = neo_ctx_memory(ctx).bytes;
    neo_cross_desc d = desc_of(n);
    neo_cross_destroy(cross);
    CHECK_INT(with - neo_ctx_memory(ctx).bytes, neo_cross_workspace_bytes(&d));
    neo_params_destroy(params);
    CHECK(count <= MOST);
    return count;
}

/* Tensors of a case, freed at its end. */
static neo_tensor taken[100];
static int taken_count;
static neo_tensor fresh(neo_ctx *ctx, neo_dtype dtype, int64_t rows, int64_t cols) {
    neo_tensor *t = &taken[taken_count++];
    CHECK_OK(neo_tensor_alloc(ctx, dtype, 2, (int64_t[]){rows, cols}, t));
    return *t;
}
/* A copy in the dtype of the products. */
static neo_tensor narrowed(neo_ctx *ctx, const net *n, neo_tensor t) {
    neo_tensor to = fresh(ctx, n->dtype, t.shape[0], t.shape[1]);
    CHECK_OK(neo_tensor_convert(ctx, t, to, NULL));
    return to;
}
static neo_tensor value_of(neo_params *params, const char *kind, int layer, int grad) {
    char name[64];
    snprintf(name, sizeof name, "c.%s.%d", kind, layer);
    const neo_param *p = neo_params_find(params, name);
    return grad ? p->grad : p->value;
}
/* The same by public calls. */
static void by_calls(neo_ctx *ctx, const net *n, neo_params *params, neo_tensor x0, neo_tensor dy,
                     neo_tensor y, neo_tensor dx) {
    neo_tensor x[8], in[8], u[8], v[8], grad, above = dy;
    const int64_t batch = n->batch, width = n->width, rank = n->rank;
    x[0] = x0;
    for (int l = 0; l < n->layers; l++) {
        neo_tensor w = narrowed(ctx, n, value_of(params, rank ? "W_kernels" : "kernels", l, 0));
        in[l] = v[l] = narrowed(ctx, n, x[l]);
        if (rank) {
            v[l] = fresh(ctx, n->dtype, batch, rank);
            CHECK_OK(neo_linear_forward(
                ctx, in[l], narrowed(ctx, n, value_of(params, "V_kernels", l, 0)), none,
                NEO_ACT_NONE, v[l]));
        }
        u[l] = fresh(ctx, NEO_F32, batch, width);
        CHECK_OK(neo_linear_forward(ctx, v[l], w, value_of(params, "bias", l, 0), NEO_ACT_NONE,
                                      u[l]));
        x[l + 1] = l + 1 < n->layers ? fresh(ctx, NEO_F32, batch, width) : y;
        CHECK_OK(neo_addcmul(ctx, x[l], x0, u[l], x[l + 1]));
    }
    for (int l = n->layers - 1; l >= 0; l--) {
        neo_tensor du = fresh(ctx, NEO_F32, batch, width), narrow_du, dv = none;
        CHECK_OK(neo_addcmul(ctx, none, above, x0, du));
        CHECK_OK(neo_addcmul(ctx, l + 1 < n->layers ? dx : none, above, u[l], dx));
        narrow_du = dv = narrowed(ctx, n, du);
        if (rank) dv = fresh(ctx, n->dtype, batch, rank);
        neo_tensor w = value_of(params, rank ? "W_kernels" : "kernels", l, 0);
        neo_tensor dw = value_of(params, rank ? "W_kernels" : "kernels", l, 1);
        CHECK_OK(neo_linear_backward(ctx, NULL, rank ? v[l] : in[l], narrowed(ctx, n, w),
                                       narrow_du, rank ? dv : none, dw,
                                       value_of(params, "bias", l, 1)));
        neo_tensor first = rank ? value_of(params, "V_kernels", l, 0) : w;
        first = narrowed(ctx, n, first);
        if (rank)
            CHECK_OK(neo_linear_backward(ctx, NULL, in[l], first, dv, none,
                                           value_of(params, "V_kernels", l, 1), none));
        grad = l ? fresh(ctx, NEO_F32, batch, width) : dx;
        if (l) CHECK_OK(neo_tensor_copy(ctx, above, grad));
        else CHECK_OK(neo_add(ctx, dx, above));
        CHECK_OK(neo_gemm(ctx, &(neo_gemm_desc){.beta = 1.0f}, dv, first, grad));
        above = grad;
    }
}

/* The forward in double. */
static void check_values(const net *n, neo_params *params, box x, neo_tensor y) {
    double *now = malloc((size_t)n->width * 2 * sizeof *now), *low, worst = 0;
    low = malloc((size_t)(n->rank + 1) * sizeof *low);
    for (int64_t i = 0; i < n->batch; i++) {
        double *next = now + n->width;
        for (int64_t j = 0; j < n->width; j++) now[j] = (double)row_of(x.t, i)[j];
        for (int l = 0; l < n->layers; l++) {
            neo_tensor w = value_of(params, n->rank ? "W_kernels" : "kernels", l, 0);
            const float *bias = value_of(params, "bias", l, 0).data;
            for (int64_t r = 0; r < n->rank; r++) {
                const float *v = row_of(value_of(params, "V_kernels", l, 0), r);
                low[r] = 0;
                for (int64_t j = 0; j < n->width; j++) low[r] += (double)v[j] * now[j];
            }
            for (int64_t j = 0; j < n->width; j++) {
                double u = (double)bias[j];
                for (int64_t k = 0; k < w.shape[1]; k++)
                    u += (double)row_of(w, j)[k] * (n->rank ? low[k] : now[k]);
                next[j] = (double)row_of(x.t, i)[j] * u + now[j];
            }
            memcpy(now, next, (size_t)n->width * sizeof *now);
        }
        for (int64_t j = 0; j < n->width; j++)
            worst = fmax(worst, fabs((double)row_of(y, i)[j] - now[j]) / (1 + fabs(now[j])));
    }
    CHECK(worst < 1e-4);
    free(now), free(low);
}

static void network_case(net n, int64_t pad) {
    static float want[MOST], got[MOST];
    box x = box_make(n.batch, n.width, pad), dy = box_make(n.batch, n.width, pad);
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, V);
    neo_cross *cross = NULL;
    test_seed = 11;
    neo_params *params = params_of(ctx, &n, &cross);
    int64_t count = n.batch * n.width;
    neo_tensor y = neo_tensor_2d(want, NEO_F32, n.batch, n.width);
    by_calls(ctx, &n, params, x.t, dy.t, y, neo_tensor_2d(want + count, NEO_F32, n.batch, n.width));
    if (n.dtype == NEO_F32) check_values(&n, params, x, y);
    count *= 2;
    for (int i = 0; i < neo_params_count(params); i++) {
        neo_tensor grad = neo_params_at(params, i)->grad;
        memcpy(want + count, grad.data, neo_tensor_bytes(grad));
        count += neo_tensor_count(grad);
    }
    for (int k = 0; k < context_count; k++) {
        CHECK_INT(run(contexts[k], &n, x, dy, 1, got), count);
        CHECK_BITS(got, want, (size_t)count * sizeof(float));
        const int64_t rows = n.batch * n.width; /* without dx the rest is the same */
        CHECK_INT(run(contexts[k], &n, x, dy, 0, got), count - rows);
        CHECK_BITS(got + rows, want + 2 * rows, (size_t)(count - 2 * rows) * sizeof(float));
    }
    neo_cross_destroy(cross);
    neo_params_destroy(params);
    while (taken_count) neo_tensor_free(ctx, &taken[--taken_count]);
    neo_ctx_destroy(ctx);
    free(x.block), free(dy.block);
}
static void network(void) {
    contexts_make();
    for (int dtype = 0; dtype < 2; dtype++) {
        const neo_dtype d = dtype ? NEO_BF16 : NEO_F32;
        network_case((net){45, 37, 0, 3, d}, 0);
        network_case((net){45, 37, 10, 3, d}, 5);
        network_case((net){1, 1, 1, 1, d}, 0);
        network_case((net){3, 70, 33, 2, d}, 2);
        network_case((net){70, 16, 0, 1, d}, 3);
        network_case((net){0, 5, 2, 2, d}, 0);
    }
    contexts_free();
}

/* ---- errors ---- */
static void errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL;
    neo_cross *cross = NULL;
    net n = {4, 6, 2, 2, NEO_F32};
    const struct { const char *says; neo_cross_desc d; } wrong[] = {
        {"a name is required", {.width = 6, .layers = 1, .max_batch = 1}},
        {"c: layers is 0, not in 1 .. 32", {.name = "c", .width = 6, .max_batch = 1}},
        {"layers is 33", {.name = "c", .width = 6, .layers = 33, .max_batch = 1}},
        {"c: width is 0", {.name = "c", .layers = 1, .max_batch = 1}},
        {"c: rank is -1", {.name = "c", .width = 6, .rank = -1, .layers = 1, .max_batch = 1}},
        {"c: max_batch is 0", {.name = "c", .width = 6, .layers = 1}},
        {"c: dtype f16 is neither f32 nor bf16",
         {.name = "c", .width = 6, .layers = 1, .max_batch = 1, .dtype = NEO_F16}}};
    REQUIRE_OK(neo_params_create(ctx, &params));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_ERR(neo_cross_create(ctx, params, &wrong[i].d, &cross), NEO_ERR_ARG, wrong[i].says);
        CHECK(cross == NULL && neo_cross_workspace_bytes(&wrong[i].d) == 0);
    }
    neo_cross_desc d = desc_of(&n);
    REQUIRE_OK(neo_cross_create(ctx, params, &d, &cross));
    neo_cross *again = NULL;
    CHECK_ERR(neo_cross_create(ctx, params, &d, &again), NEO_ERR_ARG, "c.V_kernels.0");
    CHECK_INT(neo_params_count(params), 6);
    box x = box_make(5, 6, 0), y = box_make(4, 6, 0), dy = box_make(4, 7, 0);
    neo_tensor in = neo_tensor_rows(x.t, 0, 4);
    CHECK_ERR(neo_cross_backward(cross, NULL, y.t, none), NEO_ERR_STATE, "there was no forward");
    CHECK_ERR(neo_cross_forward(cross, x.t, y.t), NEO_ERR_CAPACITY, "a batch of 5");
    CHECK_ERR(neo_cross_forward(cross, in, dy.t), NEO_ERR_SHAPE, "neo_cross_forward: y");
    CHECK_ERR(neo_cross_forward(cross, in, in), NEO_ERR_ARG, "overlap");
    CHECK_OK(neo_cross_forward(cross, in, y.t));
    CHECK_ERR(neo_cross_backward(cross, NULL, dy.t, none), NEO_ERR_SHAPE, "dy");
    CHECK_ERR(neo_cross_backward(cross, NULL, x.t, none), NEO_ERR_SHAPE,
              "dy has 5 rows, the last neo_cross_forward had 4");
    CHECK_ERR(neo_cross_backward(cross, NULL, y.t, in), NEO_ERR_ARG, "overlap");
    CHECK_ERR(neo_cross_forward(NULL, in, y.t), NEO_ERR_ARG, "cross is NULL");
    neo_cross_destroy(cross);
    neo_cross_destroy(NULL);
    neo_params_destroy(params);

    REQUIRE_OK(neo_params_create_deferred(ctx, &params)); /* what has to be there is named */
    REQUIRE_OK(neo_cross_create(ctx, params, &d, &cross));
    CHECK_ERR(neo_cross_forward(cross, in, y.t), NEO_ERR_STATE, "c.V_kernels.0 has no data");
    neo_cross_destroy(cross);
    neo_params_destroy(params);
    free(x.block), free(y.block), free(dy.block);
    neo_ctx_destroy(ctx);
}

/* What is not finite has the names of the formula in neo.h. */
static void not_finite(void) {
    neo_ctx *ctx = NULL;
    REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.check_finite = 1}, &ctx));
    net n = {2, 4, 0, 2, NEO_F32};
    neo_cross *cross = NULL;
    neo_params *params = params_of(ctx, &n, &cross);
    box x = box_make(2, 4, 0), y = box_make(2, 4, 0), dy = box_make(2, 4, 0);
    CHECK_OK(neo_cross_forward(cross, x.t, y.t));
    row_of(dy.t, 1)[3] = NAN;
    CHECK_ERR(neo_cross_backward(cross, NULL, dy.t, none), NEO_ERR_NUMERIC,
              "neo_cross_backward: du_l[1][3] is nan, after c.kernels.1, from dy[1][3], which is "
              "nan");
    row_of(x.t, 1)[3] = 3e38f;
    CHECK_ERR(neo_cross_forward(cross, x.t, y.t), NEO_ERR_NUMERIC,
              "neo_cross_forward: x_(l+1)[1][3] is");
    free(x.block), free(y.block), free(dy.block);
    neo_cross_destroy(cross);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(addcmul);
    RUN(network);
    RUN(errors);
    RUN(not_finite);
    return test_end("core/cross");
}
