/* neo_gemm and the linear layers on bf16, against the rule written plainly: in each 32 k one chain
   of fused multiply-adds over even k and one over odd k, from 0, their sum added to c, all with
   denormals as zeros. Every path gives its bits, for every transpose, stride and shape, also of
   numbers at the edges of the range, and the sums are those of double within the error of the
   roundings. A path that this machine lacks is reported as skipped. */
#include "test.h"

enum { SENTINELS = 64 };

/* ---- bf16 and the rule, without neo ---- */
static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static float wide(uint16_t h) { return float_of((uint32_t)h << 16); }
static uint16_t narrow(float x) {
    uint32_t u = bits_of(x);
    if (x != x) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}
static float flush(float x) {
    return bits_of(x) & 0x7F800000u ? x : float_of(bits_of(x) & 0x80000000u);
}
/* a b + c rounded once, zero of its sign if it is below 2^-126 then (from half a unit below it
   rounds up). */
static float step(float a, float b, float c) {
    a = flush(a), b = flush(b);
    const double sum = fma((double)a, (double)b, (double)c);
    return fabs(sum) < 0x1.ffffffp-127 ? copysignf(0.0f, (float)sum) : fmaf(a, b, c);
}

typedef enum numbers { PLAIN, TINY, NEAR_DENORMAL, ANY_FINITE, INTEGERS, NUMBERS } numbers;
static uint16_t number(numbers kind) {
    uint32_t r = test_random();
    switch (kind) {
    case TINY: return (uint16_t)((r & 0x807F) | (r >> 16 & 3) << 7);
    case NEAR_DENORMAL:
        return (uint16_t)((r & 0x807F) | (60 + (r >> 16 & 7)) << 7); /* products near 2^-126 */
    case ANY_FINITE: return (uint16_t)((r & 0x7F80) == 0x7F80 ? r & 0x80FF : r);
    case INTEGERS: return narrow((float)(int)(r % 17) - 8.0f);
    default: return narrow(test_uniform());
    }
}

typedef struct product {
    int64_t m, n, k;
    int trans_a, trans_b;
    float beta;
    int bias, out_bf16;
    neo_activation act;
    int64_t pad; /* extra elements per row */
    numbers kind;
} product;

typedef struct matrix {
    char *block;
    size_t bytes;
    neo_tensor t;
} matrix;
static matrix matrix_make(int64_t rows, int64_t cols, int64_t pad, int offset, numbers kind,
                          neo_dtype dtype) {
    matrix x;
    const int64_t ld = cols + pad, count = rows * ld + 2 * SENTINELS + offset;
    const size_t size = neo_dtype_size(dtype);
    x.bytes = (size_t)count * size;
    x.block = (char *)malloc(x.bytes);
    for (int64_t i = 0; i < count; i++) {
        const uint16_t h = number(kind);
        const float f = kind == PLAIN ? test_uniform() : wide(h);
        if (size == 2) memcpy(x.block + 2 * i, &h, 2);
        else memcpy(x.block + 4 * i, &f, 4);
    }
    x.t = neo_tensor_2d(x.block + (size_t)(SENTINELS + offset) * size, dtype, rows, cols);
    x.t.stride[0] = ld;
    return x;
}
static float at(neo_tensor t, int64_t i, int64_t j) {
    const int64_t e = i * t.stride[0] + j;
    return t.dtype == NEO_BF16 ? wide(((uint16_t *)t.data)[e]) : ((float *)t.data)[e];
}
static void put(neo_tensor t, int64_t i, int64_t j, float x) {
    const int64_t e = i * t.stride[0] + j;
    if (t.dtype == NEO_BF16) ((uint16_t *)t.data)[e] = narrow(x);
    else ((float *)t.data)[e] = x;
}

/* The sum of k in [begin, end), from `sum`; *exact and *size in double. */
static float sum_of(neo_tensor a, neo_tensor b, int trans_a, int trans_b, int64_t i, int64_t j,
                    int64_t begin, int64_t end, float sum, double *exact, double *size) {
    for (int64_t k0 = begin; k0 < end; k0 += 32) {
        float chain[2] = {0, 0};
        for (int64_t k = k0; k < k0 + 32; k++) {
            const float x = k >= end ? 0.0f : trans_a ? at(a, k, i) : at(a, i, k);
            const float y = k >= end ? 0.0f : trans_b ? at(b, j, k) : at(b, k, j);
            chain[(k - k0) % 2] = step(x, y, chain[(k - k0) % 2]);
            *exact += (double)x * y;
            *size += fabs((double)x * y);
        }
        sum = flush(flush(sum) + flush(chain[0] + chain[1]));
    }
    return sum;
}
static void reference(const product *p, neo_tensor a, neo_tensor b, const float *bias,
                      neo_tensor c) {
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = p->beta != 0.0f ? p->beta * at(c, i, j) : 0.0f;
            double exact = sum, size = fabs(exact);
            sum = sum_of(a, b, p->trans_a, p->trans_b, i, j, 0, p->k, sum, &exact, &size);
            if (p->kind == PLAIN) CHECK_NEAR(sum, exact, size * 0x1p-23 * 8);
            if (p->kind == INTEGERS && p->beta == 0.0f) CHECK_INT(sum, exact);
            if (bias) sum = sum + bias[j];
            if (p->act == NEO_ACT_RELU) sum = 0.0f > sum ? 0.0f : sum;
            put(c, i, j, sum);
        }
}

/* Alike, or both NaN. */
static int same(const matrix *x, const char *want) {
    const size_t size = neo_dtype_size(x->t.dtype);
    if (memcmp(x->block, want, x->bytes) == 0) return 1;
    for (size_t i = 0; i < x->bytes; i += size) {
        uint32_t u = 0, w = 0;
        memcpy((char *)&u + 4 - size, x->block + i, size);
        memcpy((char *)&w + 4 - size, want + i, size);
        if (u != w && !((u & 0x7FFFFFFF) > 0x7F800000 && (w & 0x7FFFFFFF) > 0x7F800000)) return 0;
    }
    return 1;
}

static neo_ctx *contexts[2];
static void check(const product *p) {
    matrix a = matrix_make(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->pad,
                           (int)(p->pad & 3), p->kind, NEO_BF16);
    matrix b = matrix_make(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->pad / 2,
                           (int)(p->pad & 1), p->kind, NEO_BF16);
    matrix c = matrix_make(p->m, p->n, p->pad, 0, p->kind, p->out_bf16 ? NEO_BF16 : NEO_F32);
    float *bias = (float *)malloc((size_t)(p->n + 1) * sizeof(float));
    char *start = (char *)malloc(c.bytes), *want = (char *)malloc(c.bytes);
    for (int64_t j = 0; j < p->n; j++)
        bias[j] = p->kind == PLAIN ? test_uniform() : wide(number(p->kind));
    memcpy(start, c.block, c.bytes);
    reference(p, a.t, b.t, p->bias ? bias : NULL, c.t);
    memcpy(want, c.block, c.bytes);
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_a = p->trans_a, desc.trans_b = p->trans_b, desc.beta = p->beta;
    desc.bias = p->bias ? bias : NULL;
    desc.act = p->act;
    for (int i = 0; i < 2; i++) {
        memcpy(c.block, start, c.bytes);
        CHECK_OK(neo_gemm(contexts[i], &desc, a.t, b.t, c.t));
        if (!same(&c, want))
            FAIL("%s, %d threads: m %d n %d k %d trans %d%d beta %g bias %d act %d pad %d out %s "
                 "numbers %d",
                 neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]), (int)p->m,
                 (int)p->n, (int)p->k, p->trans_a, p->trans_b, (double)p->beta, p->bias,
                 (int)p->act, (int)p->pad, p->out_bf16 ? "bf16" : "f32", (int)p->kind);
    }
    free(a.block), free(b.block), free(c.block), free(bias), free(start), free(want);
}

static void shapes(void) {
    static const int64_t sizes[] = {0, 1, 5, 17, 32, 33, 65};
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++)
            for (int l = 0; l < 7; l++) {
                uint32_t r = test_random();
                product p = {sizes[i],
                             sizes[j],
                             sizes[l],
                             r & 1,
                             r >> 1 & 1,
                             0.0f,
                             r >> 2 & 1,
                             r >> 3 & 1,
                             r >> 4 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE,
                             r >> 5 & 7,
                             (numbers)(r >> 8 & 7)};
                if (p.kind >= NUMBERS) p.kind = PLAIN;
                p.beta = (r >> 16 & 3) == 0 ? 1.0f : (r >> 16 & 3) == 1 ? 0.37f : 0.0f;
                check(&p);
            }
    static const product list[] = {
        {40, 70, 530, 0, 1, 0.0f, 1, 0, NEO_ACT_RELU, 0, PLAIN},
        {40, 70, 1100, 1, 0, 1.0f, 0, 1, NEO_ACT_NONE, 3, PLAIN},
        {3, 600, 77, 0, 0, 0.5f, 1, 0, NEO_ACT_NONE, 1, ANY_FINITE},
        {600, 3, 77, 1, 1, 0.0f, 1, 1, NEO_ACT_RELU, 2, NEAR_DENORMAL},
        {150, 150, 96, 0, 0, 0.0f, 1, 0, NEO_ACT_NONE, 0, NEAR_DENORMAL},
        {1, 1, 2000, 0, 1, 0.0f, 0, 0, NEO_ACT_NONE, 0, INTEGERS},
        {130, 260, 64, 1, 1, 1.0f, 1, 0, NEO_ACT_RELU, 5, TINY},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) check(&list[i]);
}

/* ---- layers ---- */
enum { V = 5, OUT = 37, IN = 50 };

/* The sum of leaves[0 .. count), which a binary tree adds. */
static float tree_sum(const float *leaves, int count) {
    int left = 1;
    if (count == 1) return leaves[0];
    while (2 * left < count) left *= 2;
    return tree_sum(leaves, left) + tree_sum(leaves + left, count - left);
}
/* Forward and backward of one layer against the rule. */
static void linear(int batch, int shards, neo_dtype narrow_out) {
    neo_ctx *ctx = contexts[shards > 1];
    matrix x = matrix_make(batch, IN, 3, 1, PLAIN, NEO_BF16),
           w = matrix_make(OUT, IN, 1, 0, PLAIN, NEO_BF16);
    matrix dz = matrix_make(batch, OUT, 2, 0, PLAIN, NEO_BF16),
           y = matrix_make(batch, OUT, 5, 0, PLAIN, narrow_out);
    matrix dx = matrix_make(batch, IN, 0, 0, PLAIN, narrow_out),
           dw = matrix_make(OUT, IN, 4, 0, PLAIN, NEO_F32);
    matrix want_y = matrix_make(batch, OUT, 5, 0, PLAIN, narrow_out);
    float bias[OUT], dbias[OUT];
    double exact = 0, size = 0;
    test_fill(bias, OUT);
    CHECK_OK(
        neo_linear_forward(ctx, x.t, w.t, neo_tensor_1d(bias, NEO_F32, OUT), NEO_ACT_RELU, y.t));
    CHECK_OK(neo_linear_backward(ctx, NULL, x.t, w.t, dz.t, dx.t, dw.t,
                                 neo_tensor_1d(dbias, NEO_F32, OUT)));
    int wrong = 0;
    for (int i = 0; i < batch; i++) {
        for (int j = 0; j < OUT; j++) {
            float z = sum_of(x.t, w.t, 0, 1, i, j, 0, IN, 0.0f, &exact, &size) + bias[j];
            put(want_y.t, i, j, 0.0f > z ? 0.0f : z);
            wrong += at(y.t, i, j) != at(want_y.t, i, j);
        }
        for (int j = 0; j < IN; j++) {
            float d = sum_of(dz.t, w.t, 0, 0, i, j, 0, OUT, 0.0f, &exact, &size);
            wrong += at(dx.t, i, j) != (narrow_out == NEO_BF16 ? wide(narrow(d)) : d);
        }
    }
    CHECK_INT(wrong, 0);
    float leaf[V];
    for (int j = 0; j < OUT; j++) {
        for (int i = 0; i < IN; i++) {
            for (int v = 0; v < shards; v++)
                leaf[v] = sum_of(dz.t, x.t, 1, 0, j, i, neo_leaf_begin(batch, shards, v),
                                 neo_leaf_begin(batch, shards, v + 1), 0.0f, &exact, &size);
            wrong += at(dw.t, j, i) != tree_sum(leaf, shards);
        }
        for (int v = 0; v < shards; v++) {
            leaf[v] = 0;
            for (int64_t r = neo_leaf_begin(batch, shards, v);
                 r < neo_leaf_begin(batch, shards, v + 1); r++)
                leaf[v] = leaf[v] + at(dz.t, r, j);
        }
        wrong += dbias[j] != tree_sum(leaf, shards);
    }
    CHECK_INT(wrong, 0);
    free(x.block), free(w.block), free(dz.block), free(y.block), free(dx.block), free(dw.block),
        free(want_y.block);
}

/* An MLP's outputs and gradients, one after the other; returns their number. */
enum { MLP_BATCH = 45, MLP_IN = 21, MLP_OUT = 6, MLP_NUMBERS = 8192 };
static int64_t mlp(neo_ctx *ctx, neo_dtype dtype, neo_activation act, neo_activation last_act,
                   float *to) {
    static float x[MLP_BATCH * MLP_IN], dy[MLP_BATCH * MLP_OUT];
    neo_params *params = NULL;
    neo_mlp *m = NULL;
    neo_mlp_desc d;
    memset(&d, 0, sizeof d);
    d.name = "m", d.width_count = 4, d.max_batch = MLP_BATCH, d.act = act, d.last_act = last_act,
    d.dtype = dtype, d.dropout = act == NEO_ACT_SIGMOID || act == NEO_ACT_GELU ? 0.25f : 0;
    d.widths[0] = MLP_IN, d.widths[1] = 70, d.widths[2] = 34, d.widths[3] = MLP_OUT;
    test_seed = 3;
    test_fill(x, MLP_BATCH * MLP_IN), test_fill(dy, MLP_BATCH * MLP_OUT);
    CHECK_OK(neo_params_create(ctx, &params));
    const size_t before = neo_ctx_memory(ctx).bytes;
    CHECK_OK(neo_mlp_create(ctx, params, &d, &m));
    size_t taken = neo_ctx_memory(ctx).bytes;
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    neo_tensor y = neo_tensor_2d(to, NEO_F32, MLP_BATCH, MLP_OUT);
    neo_tensor dx = neo_tensor_2d(to + MLP_BATCH * MLP_OUT, NEO_F32, MLP_BATCH, MLP_IN);
    int64_t at_number = MLP_BATCH * (MLP_OUT + MLP_IN);
    neo_mlp_drop(m, 5, 11);
    CHECK_OK(neo_mlp_forward(m, neo_tensor_2d(x, NEO_F32, MLP_BATCH, MLP_IN), y));
    CHECK_OK(neo_mlp_backward(m, NULL, neo_tensor_2d(dy, NEO_F32, MLP_BATCH, MLP_OUT), dx));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        memcpy(to + at_number, p->grad.data, neo_tensor_bytes(p->grad));
        at_number += neo_tensor_count(p->grad);
    }
    neo_mlp_destroy(m);
    CHECK_INT(taken - neo_ctx_memory(ctx).bytes, neo_mlp_workspace_bytes(&d));
    CHECK(taken > before);
    neo_params_destroy(params);
    return at_number;
}
static void layers(void) {
    static float narrow_mlp[MLP_NUMBERS], want[MLP_NUMBERS], full[MLP_NUMBERS];
    for (int i = 0; i < 2; i++)
        for (int batch = 0; batch < 300; batch = batch ? 7 * batch : 3)
            linear(batch, i ? V : 1, batch & 1 ? NEO_F32 : NEO_BF16);
    neo_ctx *plain[2] = {test_ctx(1, NEO_ISA_SCALAR, 1), test_ctx(2, NEO_ISA_SCALAR, V)};
    for (int act = NEO_ACT_RELU; act <= NEO_ACT_GELU_TANH; act++)
        for (int i = 0; i < 2; i++) {
            const neo_activation last = act % 2 ? NEO_ACT_NONE : (neo_activation)act;
            const int64_t count = mlp(plain[i], NEO_BF16, (neo_activation)act, last, want);
            mlp(plain[i], NEO_F32, (neo_activation)act, last, full);
            CHECK_INT(mlp(contexts[i], NEO_BF16, (neo_activation)act, last, narrow_mlp), count);
            CHECK(count <= MLP_NUMBERS);
            CHECK_BITS(narrow_mlp, want, (size_t)count * sizeof(float));
            /* 2^-9 a rounding, a few one after the other; and where a number crosses 0, the slope
               of a relu is another. */
            const double most = act == NEO_ACT_LEAKY_RELU ? 0.06 : 0.0195;
            double error = 0, norm = 0;
            for (int64_t k = 0; k < count; k++) {
                error += ((double)want[k] - full[k]) * ((double)want[k] - full[k]);
                norm += (double)full[k] * full[k];
            }
            CHECK_NEAR(sqrt(error / norm), most / 2, most / 2 - 0.0005);
        }
    neo_ctx_destroy(plain[0]), neo_ctx_destroy(plain[1]);
}

static void errors(void) {
    float f[64] = {0};
    uint16_t h[64] = {0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tensor a = neo_tensor_2d(h, NEO_BF16, 4, 3), b = neo_tensor_2d(h, NEO_BF16, 3, 5);
    neo_tensor c = neo_tensor_2d(f, NEO_F32, 4, 5), bad, none = neo_tensor_none();
    CHECK_OK(neo_gemm(ctx, NULL, a, b, c));
    CHECK_ERR(neo_gemm(ctx, NULL, a, neo_tensor_2d(f, NEO_F32, 3, 5), c), NEO_ERR_SHAPE,
              " is not bf16 [");
    CHECK_ERR(neo_gemm(ctx, NULL, neo_tensor_2d(f, NEO_F32, 4, 3), b, c), NEO_ERR_SHAPE,
              "b is not f32 [");
    CHECK_ERR(neo_gemm(ctx, NULL, a, b, neo_tensor_2d(h, NEO_F16, 4, 5)), NEO_ERR_SHAPE,
              "c is not f32 [");
    CHECK_ERR(neo_gemm(ctx, NULL, neo_tensor_2d(f, NEO_F32, 4, 3), neo_tensor_2d(f, NEO_F32, 3, 5),
                       neo_tensor_2d(h, NEO_BF16, 4, 5)), NEO_ERR_SHAPE, "c is not f32 [");
    bad = b, bad.shape[0] = 2;
    CHECK_ERR(neo_gemm(ctx, NULL, a, bad, c), NEO_ERR_SHAPE, "b is [2][5]");
    CHECK_ERR(neo_linear_forward(ctx, neo_tensor_2d(f, NEO_F32, 4, 3),
                                 neo_tensor_2d(h, NEO_BF16, 5, 3), none, NEO_ACT_NONE, c),
              NEO_ERR_SHAPE, " is not bf16 [");
    CHECK_ERR(
        neo_linear_backward(ctx, NULL, a, neo_tensor_2d(h, NEO_BF16, 5, 3), c, none, none, none),
        NEO_ERR_SHAPE, " is not bf16 [");
    CHECK_ERR(neo_linear_backward(ctx, NULL, a, neo_tensor_2d(h, NEO_BF16, 5, 3),
                                  neo_tensor_2d(h, NEO_BF16, 4, 5), none,
                                  neo_tensor_2d(h, NEO_BF16, 5, 3), none),
              NEO_ERR_SHAPE, "dw is not f32 [");
    neo_params *params = NULL;
    neo_mlp *m = NULL;
    neo_mlp_desc d;
    memset(&d, 0, sizeof d);
    d.name = "m", d.width_count = 2, d.widths[0] = d.widths[1] = 3, d.max_batch = 4,
    d.dtype = NEO_F16;
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &m), NEO_ERR_ARG, "neither f32 nor bf16");
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

/* What falls below 2^-126 by less than half a unit rounds up to it and stays; in either chain. */
static void edge_of_the_range(void) {
    enum { N = 40, K = 5 };
    static const float minus[4] = {0x1p-76f, 0x1.8p-76f, 0x1p-75f, 0x1p-30f};
    static const float want[4] = {0x1p-126f, 0x1p-126f, 0.0f, 0x1p-126f - 0x1p-106f};
    uint16_t a[K], b[K][N];
    float c[N];
    for (int odd = 0; odd < 2; odd++)
        for (int i = 0; i < 4; i++) {
            memset(a, 0, sizeof a), memset(b, 0, sizeof b);
            a[odd] = narrow(0x1p-63f), a[odd + 2] = narrow(i < 2   ? -0x1p-76f
                                                           : i < 3 ? -0x1p-75f
                                                                   : -0x1p-76f);
            for (int j = 0; j < N; j++)
                b[odd][j] = a[odd], b[odd + 2][j] = narrow(j == 7 ? minus[i] : 0.0f);
            CHECK_OK(neo_gemm(contexts[0], NULL, neo_tensor_2d(a, NEO_BF16, 1, K),
                              neo_tensor_2d(b, NEO_BF16, K, N), neo_tensor_2d(c, NEO_F32, 1, N)));
            for (int j = 0; j < N; j++)
                CHECK_BITS(&c[j], j == 7 ? &want[i] : &want[0], sizeof c[j]);
        }
}

/* Shapes on two numbers of threads; the scalar path runs the plain C that the others are compared
   with. */
static void with_path(neo_isa isa) {
    if (!neo_isa_available(isa)) SKIP("this machine does not have it");
    contexts[0] = test_ctx(1, isa, 1), contexts[1] = test_ctx(3, isa, V);
    test_seed = 7;
    const int64_t before = neo_ctx_memory(contexts[1]).alloc_count;
    shapes();
    CHECK_INT(neo_ctx_memory(contexts[1]).alloc_count, before);
    edge_of_the_range();
    layers();
    neo_ctx_destroy(contexts[0]), neo_ctx_destroy(contexts[1]);
}
static void path_scalar(void) { with_path(NEO_ISA_SCALAR); }
static void path_avx2(void) { with_path(NEO_ISA_AVX2); }
static void path_avx512(void) { with_path(NEO_ISA_AVX512); }
static void path_avx512bf16(void) { with_path(NEO_ISA_AVX512BF16); }
static void path_amx(void) { with_path(NEO_ISA_AMX); }
static void path_neon(void) { with_path(NEO_ISA_NEON); }

int main(void) {
    RUN(path_scalar);
    RUN(path_avx2);
    RUN(path_avx512);
    RUN(path_avx512bf16);
    RUN(path_amx);
    RUN(path_neon);
    RUN(errors);
    return test_end("core/bf16");
}
