/* neo_gemm and the linear layers on bf16, against the rule written plainly: in each 32 k one chain of fused
   multiply-adds over even k and one over odd k, from 0, their sum added to c, all with denormals as zeros.
   Every path gives its bits, for every transpose, stride and shape, also of numbers at the edges of the range,
   and the sums are those of double within the error of the roundings. A path that this machine lacks is
   reported as skipped. */
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
static float flush(float x) { return bits_of(x) & 0x7F800000u ? x : float_of(bits_of(x) & 0x80000000u); }
/* a b + c rounded once, zero of its sign if it is below 2^-126 then (from half a unit below it rounds up). */
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
    case NEAR_DENORMAL: return (uint16_t)((r & 0x807F) | (60 + (r >> 16 & 7)) << 7); /* products near 2^-126 */
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
static matrix matrix_make(int64_t rows, int64_t cols, int64_t pad, int offset, numbers kind, neo_dtype dtype) {
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
static float sum_of(neo_tensor a, neo_tensor b, int trans_a, int trans_b, int64_t i, int64_t j, int64_t begin,
                    int64_t end, float sum, double *exact, double *size) {
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
static void reference(const product *p, neo_tensor a, neo_tensor b, const float *bias, neo_tensor c) {
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
    matrix a = matrix_make(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->pad, (int)(p->pad & 3), p->kind,
                           NEO_BF16);
    matrix b = matrix_make(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->pad / 2, (int)(p->pad & 1),
                           p->kind, NEO_BF16);
    matrix c = matrix_make(p->m, p->n, p->pad, 0, p->kind, p->out_bf16 ? NEO_BF16 : NEO_F32);
    float *bias = (float *)malloc((size_t)(p->n + 1) * sizeof(float));
    char *start = (char *)malloc(c.bytes), *want = (char *)malloc(c.bytes);
    for (int64_t j = 0; j < p->n; j++) bias[j] = p->kind == PLAIN ? test_uniform() : wide(number(p->kind));
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
            FAIL("%s, %d threads: m %d n %d k %d trans %d%d beta %g bias %d act %d pad %d out %s numbers %d",
                 neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]), (int)p->m, (int)p->n,
                 (int)p->k, p->trans_a, p->trans_b, (double)p->beta, p->bias, (int)p->act, (int)p->pad,
                 p->out_bf16 ? "bf16" : "f32", (int)p->kind);
    }
    free(a.block), free(b.block), free(c.block), free(bias), free(start), free(want);
}

static void shapes(void) {
    static const int64_t sizes[] = {0, 1, 2, 5, 17, 31, 32, 33, 65};
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++)
            for (int l = 0; l < 9; l++) {
                uint32_t r = test_random();
                product p = {sizes[i], sizes[j], sizes[l], r & 1, r >> 1 & 1, 0.0f, r >> 2 & 1, r >> 3 & 1,
                             r >> 4 & 1 ? NEO_ACT_RELU : NEO_ACT_NONE, r >> 5 & 7, (numbers)(r >> 8 & 7)};
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

/* Shapes on two numbers of threads; the scalar path runs the plain C that the others are compared with. */
static void with_path(neo_isa isa) {
    if (!neo_isa_available(isa)) SKIP("this machine does not have it");
    contexts[0] = test_ctx(1, isa, 1), contexts[1] = test_ctx(3, isa, 1);
    test_seed = 7;
    const int64_t before = neo_ctx_memory(contexts[1]).alloc_count;
    shapes();
    CHECK_INT(neo_ctx_memory(contexts[1]).alloc_count, before);
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
    return test_end("test_bf16");
}
