/* tensor.c: views, allocation, conversions among all dtypes, copies, the tree sum.

   Oracle of the narrow floats: every code is decoded by the format's definition with ldexp, and
   rounding is a search in that sorted list in double, ties to the even code. Inputs are every
   code, every midpoint of neighbours, the floats next to both, and random floats of all exponents.
 */
#include "neo_state.h"

#include "test.h"

static const neo_isa all_isa[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};

/* ---- the formats, by definition ---- */
typedef struct format {
    neo_dtype dtype;
    int man, bias, codes; /* codes: positive finite ones */
    int saturates;
} format;
static const format formats[] = {
    {NEO_F16, 10, 15, 0x7C00, 0},
    {NEO_BF16, 7, 127, 0x7F80, 0},
    {NEO_F8E4M3, 3, 7, 0x7F, 1},
    {NEO_F8E5M2, 2, 15, 0x7C, 0},
};
enum { FORMATS = 4 };
static double decode(const format *f, int code) {
    int e = code >> f->man, m = code & ((1 << f->man) - 1);
    return e ? ldexp(m + (1 << f->man), e - f->bias - f->man) : ldexp(m, 1 - f->bias - f->man);
}
/* The code of |x| rounded to nearest even; x finite. */
static int encode(const format *f, double x) {
    int low = 0,
        high = f->codes; /* decode(low) <= x < decode(high); the next code past the end is 2^n */
    x = fabs(x);
    if (x >= decode(f, f->codes)) return f->saturates ? f->codes - 1 : f->codes;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (decode(f, mid) <= x) low = mid;
        else high = mid;
    }
    double middle = (decode(f, low) + decode(f, high)) / 2;
    int code = x > middle || (x == middle && low % 2) ? high : low;
    return f->saturates && code >= f->codes ? f->codes - 1 : code;
}
static int sign_bit(neo_dtype d) { return neo_dtype_size(d) == 2 ? 0x8000 : 0x80; }
static int load_code(neo_dtype d, const void *p, int64_t i) {
    return neo_dtype_size(d) == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static float any_float(void) {
    uint32_t u = test_random() << 1 ^ test_random();
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static void every_code_decodes(void) {
    for (int isa = 0; isa < 4; isa++) {
        if (!neo_isa_available(all_isa[isa])) continue;
        neo_ctx *ctx = test_ctx(2, all_isa[isa], 1);
        for (int k = 0; k < FORMATS; k++) {
            const format *f = &formats[k];
            int wide = neo_dtype_size(f->dtype) == 2, n = wide ? 65536 : 256,
                sign = sign_bit(f->dtype);
            static uint16_t codes[65536];
            static float x[65536];
            static uint16_t back[65536];
            for (int i = 0; i < n; i++) {
                if (wide) codes[i] = (uint16_t)i;
                else ((uint8_t *)codes)[i] = (uint8_t)i;
            }
            neo_tensor src = neo_tensor_1d(codes, f->dtype, n), dst = neo_tensor_1d(x, NEO_F32, n);
            CHECK_OK(neo_tensor_convert(ctx, src, dst, NULL));
            CHECK_OK(neo_tensor_convert(ctx, dst, neo_tensor_1d(back, f->dtype, n), NULL));
            for (int i = 0; i < n; i++) {
                int code = i & (sign - 1), infinity = !f->saturates && code == f->codes;
                double want = infinity ? (double)INFINITY : decode(f, code);
                if (code >= f->codes && !infinity) {
                    CHECK(isnan(x[i]));
                    CHECK(bits(x[i]) & 0x400000); /* quiet */
                    CHECK((load_code(f->dtype, back, i) & (sign - 1)) > f->codes - f->saturates);
                } else {
                    CHECK((double)x[i] == (i & sign ? -want : want));
                    CHECK(bits(x[i]) >> 31 == (i & sign ? 1u : 0u));
                    CHECK_INT(load_code(f->dtype, back, i), i);
                }
            }
        }
        neo_ctx_destroy(ctx);
    }
}

static int rounding_inputs(const format *f, float **out) {
    int n = 0, most = f->codes * 5 + 20000;
    float *x = malloc((size_t)most * sizeof *x);
    *out = x;
    for (int c = 0; x && c < f->codes; c++) {
        float v = (float)decode(f, c), middle = (float)((decode(f, c) + decode(f, c + 1)) / 2);
        x[n++] = v;
        x[n++] = middle;
        x[n++] = nextafterf(middle, INFINITY);
        x[n++] = -nextafterf(middle, 0.0f);
        x[n++] = -middle;
    }
    for (int i = 0; x && i < 20000; i++) {
        float v = any_float();
        x[n++] = v - v == 0.0f ? v : 0.0f;
    }
    return x ? n : 0;
}
static void rounds_to_nearest_even(void) {
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        float *x;
        int n = rounding_inputs(f, &x);
        REQUIRE(n > 0);
        uint16_t *got = malloc((size_t)n * sizeof *got), *first = malloc((size_t)n * sizeof *got);
        REQUIRE(got && first);
        for (int isa = 0; isa < 4; isa++) {
            if (!neo_isa_available(all_isa[isa])) continue;
            neo_ctx *ctx = test_ctx(1 + isa, all_isa[isa], 1);
            CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(x, NEO_F32, n),
                                        neo_tensor_1d(isa ? got : first, f->dtype, n), NULL));
            if (isa) CHECK_BITS(got, first, (size_t)n * neo_dtype_size(f->dtype));
            neo_ctx_destroy(ctx);
        }
        for (int i = 0; i < n; i++) {
            int want = encode(f, (double)x[i]) | (bits(x[i]) >> 31 ? sign_bit(f->dtype) : 0);
            int code = load_code(f->dtype, first, i);
            if (want != code)
                FAIL("%s of %a: %#x, expected %#x", neo_dtype_name(f->dtype), (double)x[i], code,
                     want);
        }
        free(x);
        free(got);
        free(first);
    }
}
static void infinities_and_nans(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float x[40];
    uint16_t y[40];
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        neo_convert_desc desc = {.rounding = (neo_rounding)stochastic, .name = "w"};
        for (int i = 0; i < 40; i++) {
            uint32_t snan = 0x7F800001u + (uint32_t)i;
            x[i] = i % 4 == 0 ? INFINITY : i % 4 == 1 ? -INFINITY : NAN;
            if (i % 4 == 3) memcpy(&x[i], &snan, 4); /* a payload that truncation would lose */
        }
        for (int k = 0; k < FORMATS; k++) {
            const format *f = &formats[k];
            int sign = sign_bit(f->dtype), inf = f->saturates ? f->codes - 1 : f->codes;
            CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(x, NEO_F32, 40),
                                        neo_tensor_1d(y, f->dtype, 40), &desc));
            for (int i = 0; i < 40; i++) {
                int code = load_code(f->dtype, y, i);
                if (i % 4 == 0) CHECK_INT(code, inf);
                else if (i % 4 == 1) CHECK_INT(code, inf | sign);
                else CHECK((code & (sign - 1)) > inf);
            }
        }
    }
    neo_ctx_destroy(ctx);
}

/* Every result is one of the two neighbours; what is representable stays; the mean is the value.
 */
static void stochastic_rounding(void) {
    enum { N = 1 << 16 };
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    float *x = malloc(N * sizeof *x), *back = malloc(N * sizeof *back);
    uint16_t *y = malloc(N * sizeof *y);
    REQUIRE(x && y && back);
    neo_convert_desc desc = {.rounding = NEO_ROUND_STOCHASTIC, .name = "w"};
    for (int k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        neo_tensor tx = neo_tensor_1d(x, NEO_F32, N), ty = neo_tensor_1d(y, f->dtype, N);
        for (int i = 0; i < N; i++) x[i] = ldexpf(test_uniform(), (int)(test_random() % 40) - 24);
        CHECK_OK(neo_tensor_convert(ctx, tx, ty, &desc));
        CHECK_OK(neo_tensor_convert(ctx, ty, neo_tensor_1d(back, NEO_F32, N), NULL));
        for (int i = 0; i < N; i++) {
            int code = load_code(f->dtype, y, i) & (sign_bit(f->dtype) - 1);
            double a = fabs((double)x[i]);
            if (a >= decode(f, f->codes - 1)) continue;
            CHECK(decode(f, code) == a ||
                  (code > 0 && decode(f, code - 1) < a && decode(f, code) > a) ||
                  (decode(f, code) < a && decode(f, code + 1) > a));
            CHECK(bits(x[i]) >> 31 == bits(back[i]) >> 31);
        }
        for (int trial = 0; trial < 12;
             trial++) { /* normal, denormal, a hundred times below the least */
            double unit = decode(f, 1), value = trial < 4   ? 1.0 + 0.013 * (trial + 1)
                                                : trial < 8 ? unit * (3.1 + 0.2 * (trial - 4))
                                                            : unit * 0.01 * (trial - 7);
            desc.step = trial;
            for (int i = 0; i < N; i++) x[i] = (float)value;
            CHECK_OK(neo_tensor_convert(ctx, tx, ty, &desc));
            CHECK_OK(neo_tensor_convert(ctx, ty, neo_tensor_1d(back, NEO_F32, N), NULL));
            double sum = 0, step = trial < 4 ? ldexp(1, -f->man) : unit;
            for (int i = 0; i < N; i++) sum += (double)back[i];
            CHECK_NEAR(sum / N / step, (double)(float)value / step, 5 * 0.5 / sqrt(N));
        }
        int code = 0; /* exact values do not move */
        for (int i = 0; i < N; i++) x[i] = (float)decode(f, code++ % f->codes);
        CHECK_OK(neo_tensor_convert(ctx, tx, ty, &desc));
        CHECK_OK(neo_tensor_convert(ctx, ty, neo_tensor_1d(back, NEO_F32, N), NULL));
        CHECK_BITS(x, back, N * sizeof *x);
    }
    free(x);
    free(y);
    free(back);
    neo_ctx_destroy(ctx);
}
static void stochastic_rounding_does_not_depend_on_layout(void) {
    enum { R = 37, C = 301, N = R * C };
    static float x[N];
    static uint16_t want[N], got[N];
    test_fill(x, N);
    neo_tensor src = neo_tensor_2d(x, NEO_F32, R, C), dst = neo_tensor_2d(got, NEO_BF16, R, C);
    neo_convert_desc desc = {.rounding = NEO_ROUND_STOCHASTIC, .name = "table", .step = 7};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
    CHECK_OK(neo_tensor_convert(ctx, src, neo_tensor_2d(want, NEO_BF16, R, C), &desc));
    neo_ctx_destroy(ctx);
    for (int threads = 1; threads <= 8; threads += threads == 3 ? 5 : 1) {
        ctx = test_ctx(threads, NEO_ISA_BEST, 1);
        memset(got, 0, sizeof got);
        CHECK_OK(neo_tensor_convert(ctx, src, dst, &desc));
        CHECK_BITS(got, want, sizeof got);
        memset(got, 0, sizeof got);
        for (int r = 0; r < R; r += 10) { /* shards of rows */
            int count = r + 10 > R ? R - r : 10;
            neo_convert_desc shard = desc;
            shard.first = r * C;
            CHECK_OK(neo_tensor_convert(ctx, neo_tensor_rows(src, r, count),
                                        neo_tensor_rows(dst, r, count), &shard));
        }
        CHECK_BITS(got, want, sizeof got);
        neo_ctx_destroy(ctx);
    }
    ctx = test_ctx(1, NEO_ISA_BEST, 1);
    desc.step = 8;
    CHECK_OK(neo_tensor_convert(ctx, src, dst, &desc));
    CHECK(memcmp(got, want, sizeof got) != 0);
    desc.name = NULL;
    CHECK_ERR(neo_tensor_convert(ctx, src, dst, &desc), NEO_ERR_ARG, "name");
    neo_ctx_destroy(ctx);
}

static void integers(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float x[] = {0.5f,    1.5f,  2.5f,        -0.5f,      -1.5f,    -2.5f,     127.5f,
                 -128.5f, 1e10f, -1e10f,      NAN,        INFINITY, -INFINITY, 0x1p62f,
                 255.4f,  -0.0f, 0.49999997f, 8388609.0f, 1e30f,    -1e30f};
    enum { N = sizeof x / sizeof x[0] };
    static const int64_t want[N] = {0,           2,
                                    2,           0,
                                    -2,          -2,
                                    128,         -128,
                                    10000000000, -10000000000,
                                    0,           INT64_MAX,
                                    INT64_MIN,   INT64_C(1) << 62,
                                    255,         0,
                                    0,           8388609,
                                    INT64_MAX,   INT64_MIN};
    int64_t i64[N];
    int32_t i32[N];
    int8_t i8[N];
    uint8_t u8[N];
    neo_tensor t = neo_tensor_1d(x, NEO_F32, N);
    CHECK_OK(neo_tensor_convert(ctx, t, neo_tensor_1d(i64, NEO_I64, N), NULL));
    CHECK_OK(neo_tensor_convert(ctx, t, neo_tensor_1d(i32, NEO_I32, N), NULL));
    CHECK_OK(neo_tensor_convert(ctx, t, neo_tensor_1d(i8, NEO_I8, N), NULL));
    CHECK_OK(neo_tensor_convert(ctx, t, neo_tensor_1d(u8, NEO_U8, N), NULL));
    for (int i = 0; i < N; i++) {
        CHECK_INT(i64[i], want[i]);
        CHECK_INT(i32[i], want[i] > INT32_MAX   ? INT32_MAX
                          : want[i] < INT32_MIN ? INT32_MIN
                                                : want[i]);
        CHECK_INT(i8[i], want[i] > 127 ? 127 : want[i] < -128 ? -128 : want[i]);
        CHECK_INT(u8[i], want[i] > 255 ? 255 : want[i] < 0 ? 0 : want[i]);
    }
    /* Integers to floats round once: 2^24 + 1 and the halves of f16 between 2048 and 4096. */
    int64_t big[] = {16777217,
                     16777219,
                     -16777217,
                     INT64_MAX,
                     INT64_MIN,
                     2049,
                     2051,
                     4098,
                     65519,
                     65520,
                     (INT64_C(1) << 53) + 1,
                     (INT64_C(257) << 40) + 1,
                     INT64_C(257) << 40,
                     0,
                     -1,
                     -2049};
    enum { M = sizeof big / sizeof big[0] };
    float y[M];
    uint16_t h[M];
    neo_tensor tb = neo_tensor_1d(big, NEO_I64, M);
    CHECK_OK(neo_tensor_convert(ctx, tb, neo_tensor_1d(y, NEO_F32, M), NULL));
    for (int i = 0; i < M; i++) CHECK(y[i] == (float)big[i]);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(neo_tensor_convert(ctx, tb, neo_tensor_1d(h, formats[k].dtype, M), NULL));
        for (int i = 0; i < M; i++) {
            /* long double holds an int64 exactly; below its 53 bits a double decides the same */
            double v = (double)big[i];
            if (i == 11) v = ldexp(257, 40) * (1 + 0x1p-52);
            CHECK_INT(h[i], encode(&formats[k], v) | (big[i] < 0 ? 0x8000 : 0));
        }
    }
    int32_t narrow[] = {300, -300, 127, -128, 5, INT32_MAX};
    CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(narrow, NEO_I32, 6),
                                neo_tensor_1d(i8, NEO_I8, 6), NULL));
    CHECK(i8[0] == 127 && i8[1] == -128 && i8[2] == 127 && i8[3] == -128 && i8[4] == 5 &&
          i8[5] == 127);
    CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(narrow, NEO_I32, 6),
                                neo_tensor_1d(i64, NEO_I64, 6), NULL));
    CHECK(i64[1] == -300 && i64[5] == INT32_MAX);
    /* Stochastic to an integer: unbiased. */
    enum { S = 20000 };
    static float v[S];
    static int32_t r[S];
    for (int i = 0; i < S; i++) v[i] = -2.7f;
    neo_convert_desc desc = {.rounding = NEO_ROUND_STOCHASTIC, .name = "q"};
    CHECK_OK(
        neo_tensor_convert(ctx, neo_tensor_1d(v, NEO_F32, S), neo_tensor_1d(r, NEO_I32, S), &desc));
    double sum = 0;
    for (int i = 0; i < S; i++) {
        CHECK(r[i] == -3 || r[i] == -2);
        sum += r[i];
    }
    CHECK_NEAR(sum / S, -2.7, 0.02);
    neo_ctx_destroy(ctx);
}

/* Converting a strided, transposed or misaligned view equals converting a packed copy. Every pair
   of dtypes. */
static void any_strides(void) {
    enum { A = 3, B = 5, C = 70, N = A * B * C };
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    static float x[N];
    for (int i = 0; i < N; i++) x[i] = (float)((int)(test_random() % 256) - 100);
    static char store[NEO_DTYPE_COUNT][N * 8], flat[N * 8], view[N * 2 * 8];
    int64_t shape[3] = {A, B, C};
    for (int d = 0; d < NEO_DTYPE_COUNT; d++)
        CHECK_OK(neo_tensor_convert(ctx, neo_tensor_nd(x, NEO_F32, 3, shape),
                                    neo_tensor_nd(store[d], (neo_dtype)d, 3, shape), NULL));
    for (int from = 0; from < NEO_DTYPE_COUNT; from++)
        for (int to = 0; to < NEO_DTYPE_COUNT; to++) {
            size_t size = neo_dtype_size((neo_dtype)to);
            neo_tensor src = neo_tensor_nd(store[from], (neo_dtype)from, 3, shape);
            CHECK_OK(
                neo_tensor_convert(ctx, src, neo_tensor_nd(flat, (neo_dtype)to, 3, shape), NULL));
            /* dst: every second element of a transposed block */
            int64_t wide[3] = {C, A, 2 * B};
            neo_tensor dst = neo_tensor_nd(view, (neo_dtype)to, 3, wide);
            dst.shape[2] = B;
            dst.stride[2] = 2;
            dst = neo_tensor_transpose(neo_tensor_transpose(dst, 0, 1), 1, 2); /* [A][B][C] */
            memset(view, 0x55, sizeof view);
            CHECK_OK(neo_tensor_convert(ctx, src, dst, NULL));
            int bad = 0;
            for (int a = 0; a < A; a++)
                for (int b = 0; b < B; b++)
                    for (int c = 0; c < C; c++) {
                        char *p = view + (size_t)((c * A + a) * 2 * B + 2 * b) * size;
                        bad += memcmp(p, flat + (size_t)((a * B + b) * C + c) * size, size) != 0;
                        bad += p[size] != 0x55;
                    }
            CHECK_INT(bad, 0);
            /* and back from the view */
            memset(flat, 0, sizeof flat);
            neo_tensor packed = neo_tensor_nd(flat, (neo_dtype)to, 3, shape);
            CHECK_OK(neo_tensor_copy(ctx, dst, packed));
            static char again[N * 8];
            CHECK_OK(
                neo_tensor_convert(ctx, src, neo_tensor_nd(again, (neo_dtype)to, 3, shape), NULL));
            CHECK_BITS(flat, again, N * size);
        }
    neo_ctx_destroy(ctx);
}

static void views(void) {
    float x[24];
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    int64_t shape[3] = {2, 3, 4};
    neo_tensor t = neo_tensor_nd(x, NEO_F32, 3, shape);
    CHECK_INT(neo_tensor_count(t), 24);
    CHECK_INT(neo_tensor_bytes(t), 96);
    CHECK(neo_tensor_is_contiguous(t));
    neo_tensor s = neo_tensor_slice(t, 2, 1, 2);
    CHECK(((float *)s.data)[0] == 1 && s.shape[2] == 2 && !neo_tensor_is_contiguous(s));
    CHECK(((float *)neo_tensor_rows(t, 1, 1).data)[0] == 12);
    CHECK(neo_tensor_is_contiguous(neo_tensor_rows(t, 1, 1)));
    neo_tensor tr = neo_tensor_transpose(t, 0, 2);
    CHECK(tr.shape[0] == 4 && tr.stride[0] == 1 && tr.shape[2] == 2 && tr.stride[2] == 12);
    int64_t flat[2] = {4, 6}, wrong[2] = {4, 5}, negative[2] = {-4, -6};
    CHECK_INT(neo_tensor_reshape(t, 2, flat).stride[0], 6);
    CHECK(neo_tensor_reshape(t, 2, wrong).data == NULL);
    CHECK(neo_tensor_reshape(t, 2, negative).data == NULL);
    CHECK(neo_tensor_reshape(tr, 2, flat).data == NULL);
    CHECK(neo_tensor_reshape(t, 5, flat).data == NULL);
    CHECK(neo_tensor_slice(t, 3, 0, 1).data == NULL);
    CHECK(neo_tensor_slice(t, 0, 1, 2).data == NULL);
    CHECK(neo_tensor_slice(t, 0, -1, 1).data == NULL);
    CHECK(neo_tensor_slice(t, 0, INT64_MAX, 1).data == NULL);
    CHECK(neo_tensor_slice(t, 0, 1, INT64_MAX).data == NULL);
    CHECK(neo_tensor_slice(t, 0, 2, 0).data != NULL);
    CHECK(neo_tensor_transpose(t, 0, 3).data == NULL);
    CHECK(neo_tensor_nd(x, NEO_F32, 5, shape).data == NULL);
    CHECK_INT(neo_tensor_count(neo_tensor_none()), 0);
    CHECK_INT(neo_tensor_count(neo_tensor_nd(x, NEO_F32, 0, NULL)), 1);
    CHECK(strcmp(neo_dtype_name(NEO_F8E5M2), "f8e5m2") == 0 &&
          strcmp(neo_dtype_name((neo_dtype)99), "unknown") == 0);
    static const size_t sizes[] = {4, 2, 2, 1, 1, 1, 4, 8, 1};
    for (int d = 0; d < NEO_DTYPE_COUNT; d++) CHECK_INT(neo_dtype_size((neo_dtype)d), sizes[d]);
}

static void allocation(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_memory before = neo_ctx_memory(ctx);
    neo_tensor t;
    int64_t shape[2] = {1000, 3}, negative[2] = {1, -1}, huge[3] = {INT64_MAX, INT64_MAX, 2};
    int64_t much[2] = {INT64_C(1) << 45, 4}, zero[3] = {INT64_MAX, INT64_MAX, 0};
    REQUIRE_OK(neo_tensor_alloc(ctx, NEO_BF16, 2, shape, &t));
    CHECK_INT(neo_ctx_memory(ctx).bytes - before.bytes, 6000);
    CHECK_INT((uintptr_t)t.data % 64, 0);
    CHECK_OK(neo_tensor_zero(ctx, t));
    for (int i = 0; i < 3000; i++) CHECK(((uint16_t *)t.data)[i] == 0);
    neo_tensor_free(ctx, &t);
    CHECK(t.data == NULL);
    neo_tensor_free(ctx, &t);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before.bytes);
    CHECK_ERR(neo_tensor_alloc(ctx, NEO_F32, 2, negative, &t), NEO_ERR_ARG, "shape[1]");
    CHECK_ERR(neo_tensor_alloc(ctx, NEO_F32, 3, huge, &t), NEO_ERR_ARG, "overflows");
    CHECK_ERR(neo_tensor_alloc(ctx, NEO_F32, 5, huge, &t), NEO_ERR_ARG, "dimensions");
    CHECK_ERR(neo_tensor_alloc(ctx, (neo_dtype)42, 2, shape, &t), NEO_ERR_ARG, "dtype");
    CHECK(t.data == NULL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_ERR(neo_tensor_alloc(ctx, NEO_I64, 2, much, &t), NEO_ERR_MEMORY, "bytes");
#else
    (void)much;
#endif
    REQUIRE_OK(neo_tensor_alloc(ctx, NEO_F32, 3, zero, &t));
    CHECK(t.data != NULL);
    CHECK_INT(neo_tensor_count(t), 0);
    neo_tensor_free(ctx, &t);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before.bytes);
    neo_ctx_destroy(ctx);
}

static void copies(void) {
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    enum { R = 301, C = 403 };
    static int64_t x[R * C], y[R * C], z[R * C];
    for (int i = 0; i < R * C; i++) x[i] = i;
    neo_tensor tx = neo_tensor_2d(x, NEO_I64, R, C);
    CHECK_OK(neo_tensor_copy(ctx, tx, neo_tensor_2d(y, NEO_I64, R, C)));
    CHECK_BITS(x, y, sizeof x);
    neo_tensor tz = neo_tensor_2d(z, NEO_I64, C, R);
    CHECK_OK(neo_tensor_copy(ctx, tx, neo_tensor_transpose(tz, 0, 1)));
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) CHECK(z[c * R + r] == x[r * C + c]);
    neo_tensor row = neo_tensor_rows(tx, 0, 1); /* a stride of 0 repeats */
    row.shape[0] = R;
    row.stride[0] = 0;
    CHECK_OK(neo_tensor_copy(ctx, row, neo_tensor_2d(y, NEO_I64, R, C)));
    CHECK(y[0] == 0 && y[(R - 1) * C + 5] == 5);
    CHECK_ERR(neo_tensor_copy(ctx, tx, tz), NEO_ERR_SHAPE, "extents");
    CHECK_ERR(neo_tensor_copy(ctx, tx, neo_tensor_2d(y, NEO_F32, R, C)), NEO_ERR_SHAPE, "i64");
    CHECK_ERR(neo_tensor_copy(ctx, tx, neo_tensor_none()), NEO_ERR_ARG, "none");
    CHECK_ERR(neo_tensor_convert(ctx, tx, neo_tensor_1d(y, NEO_F32, 2), NULL), NEO_ERR_SHAPE,
              "dimensions");
    CHECK_ERR(neo_tensor_zero(ctx, neo_tensor_transpose(tz, 0, 1)), NEO_ERR_SHAPE, "contiguous");
    CHECK_OK(neo_tensor_zero(ctx, tz));
    for (int i = 0; i < R * C; i++) CHECK(z[i] == 0);
    neo_ctx_destroy(ctx);
}

/* The tree as its definition says: split n at the largest power of two below n. */
static float tree(float *const *parts, int first, int n, int64_t at) {
    if (n == 1) return parts[first][at];
    int p = 1;
    while (p * 2 < n) p *= 2;
    return tree(parts, first, p, at) + tree(parts, first + p, n - p, at);
}
static void tree_sum(void) {
    enum { MOST = 17, N = 20003 };
    float *parts[MOST], *want = malloc(N * sizeof *want), *out = malloc(N * sizeof *out);
    neo_tensor tensors[MOST];
    REQUIRE(want && out);
    for (int i = 0; i < MOST; i++) {
        parts[i] = malloc(N * sizeof(float));
        REQUIRE(parts[i]);
        tensors[i] = neo_tensor_1d(parts[i], NEO_F32, N);
    }
    for (int count = 1; count <= MOST; count++)
        for (int alias = 0; alias < 2; alias++) {
            neo_ctx *ctx = test_ctx(1 + count % 3, count % 2 ? NEO_ISA_BEST : NEO_ISA_SCALAR, 1);
            for (int i = 0; i < count; i++) test_fill(parts[i], N);
            for (int i = 0; i < N; i++) want[i] = tree(parts, 0, count, i);
            neo_tensor to = alias ? tensors[0] : neo_tensor_1d(out, NEO_F32, N);
            CHECK_OK(neo_tree_sum(ctx, tensors, count, to));
            CHECK_BITS(to.data, want, N * sizeof *want);
            neo_ctx_destroy(ctx);
        }
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    CHECK_ERR(neo_tree_sum(ctx, tensors, 0, tensors[0]), NEO_ERR_ARG, "count");
    CHECK_ERR(neo_tree_sum(ctx, tensors, 2, neo_tensor_1d(out, NEO_F32, 5)), NEO_ERR_SHAPE,
              "extents");
    CHECK_ERR(neo_tree_sum(ctx, tensors, 2, neo_tensor_1d(out, NEO_I32, N)), NEO_ERR_SHAPE, "f32");
    neo_ctx_destroy(ctx);
    for (int i = 0; i < MOST; i++) free(parts[i]);
    free(want);
    free(out);
}

/* A tensor that is away is not none: its views are away too, and whoever needs its data says why it
   has none, even where none would do. */
static void absent(void) {
    static const char why[] = "unit 'h.0' is not gathered";
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    const neo_tensor none = neo_tensor_none();
    float f[64] = {0};
    neo_tensor x = neo_tensor_2d(f, NEO_F32, 2, 3), y = neo_tensor_2d(f + 16, NEO_F32, 2, 4);
    neo_tensor w = neo_tensor_2d(NULL, NEO_F32, 4, 3), b = neo_tensor_1d(NULL, NEO_F32, 4);
    CHECK(!x.absent && !w.absent && !none.absent && !neo_tensor_rows(x, 0, 1).absent);
    CHECK_INT(neo_tensor_count(w), 0);
    CHECK_ERR(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, y), NEO_ERR_SHAPE, "w has no data");
    CHECK_OK(neo_linear_forward(ctx, x, neo_tensor_2d(f, NEO_F32, 4, 3), b, NEO_ACT_NONE, y));

    w.absent = b.absent = why;
    CHECK_INT(neo_tensor_count(w), 12);
    CHECK_INT(neo_tensor_bytes(w), 48);
    neo_tensor row = neo_tensor_rows(w, 1, 2), t = neo_tensor_transpose(w, 0, 1);
    CHECK(!row.data && row.absent == why && row.shape[0] == 2 && row.stride[0] == 3);
    CHECK(!t.data && t.absent == why && t.shape[0] == 3 && t.stride[1] == 3);
    t = neo_tensor_reshape(w, 1, &(int64_t){12});
    CHECK(!t.data && t.absent == why && t.ndim == 1 && t.shape[0] == 12);
    CHECK(!neo_tensor_reshape(w, 1, &(int64_t){11}).absent && neo_tensor_slice(w, 0, 3, 2).absent);
    CHECK(strstr(neo_tensor_rows(w, 3, 2).absent, "rows outside of a tensor"));

    neo_tensor v = neo_tensor_2d(f, NEO_F32, 4, 3);
#define NEEDS(call, name) \
    CHECK_ERR(call, NEO_ERR_STATE, name " has no data, unit 'h.0' is not gathered")
    NEEDS(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, y), "neo_linear_forward: w");
    NEEDS(neo_linear_forward(ctx, x, v, b, NEO_ACT_NONE, y), "neo_linear_forward: bias");
    NEEDS(neo_linear_backward(ctx, NULL, x, v, y, none, w, none), "neo_linear_backward: dw");
    NEEDS(neo_linear_backward(ctx, NULL, x, v, y, none, none, b), "neo_linear_backward: dbias");
    NEEDS(neo_gemm(ctx, NULL, row, x, x), "neo_gemm: a");
    NEEDS(neo_activation_forward(ctx, NEO_ACT_RELU, w, w), "neo_activation_forward: z");
    NEEDS(neo_tensor_copy(ctx, w, v), "neo_tensor_copy: src");
    NEEDS(neo_tensor_zero(ctx, w), "neo_tensor_zero: t");
    NEEDS(neo_mse(ctx, NULL, b, b, none, NULL), "neo_mse: pred");
    NEEDS(neo_mse(ctx, NULL, v, v, w, NULL), "neo_mse: dpred");
    NEEDS(neo_bce(ctx, NULL, b, b, none, NULL), "neo_bce: prob");
    neo_tensor label = neo_tensor_1d(NULL, NEO_I64, 4);
    label.absent = why;
    NEEDS(neo_cross_entropy(ctx, NULL, v, label, none, NULL), "neo_cross_entropy: label");
    neo_state *state = NULL;
    CHECK_OK(neo_state_create(ctx, &state));
    NEEDS(neo_state_add(state, NEO_STATE_WEIGHT, "n", w), "neo_state_add: n");
    neo_state_destroy(state);
#undef NEEDS
    CHECK_OK(neo_linear_forward(ctx, neo_tensor_rows(x, 0, 0), v, none, NEO_ACT_NONE,
                                neo_tensor_rows(y, 0, 0)));
    neo_ctx_destroy(ctx);
}

/* ---- tensors that share memory ---- */
enum { FIELD = 400 }; /* bytes of the buffer that random views are of */
/* A random view inside the buffer; its strides may be 0, negative, or make elements share bytes. */
static neo_tensor random_view(char *field, neo_dtype dtype, int ndim, const int64_t *shape) {
    const int64_t size = (int64_t)neo_dtype_size(dtype);
    for (;;) {
        neo_tensor t = neo_tensor_nd(field, dtype, ndim, shape);
        int64_t low = 0, high = size;
        for (int d = 0; d < ndim; d++) {
            t.stride[d] = test_random() % 4 ? (int64_t)(test_random() % 24) - 4 : t.stride[d];
            const int64_t length = (shape[d] - 1) * t.stride[d] * size;
            *(length < 0 ? &low : &high) += length;
        }
        if (high - low > FIELD) continue;
        t.data = field - low + test_random() % (uint64_t)(FIELD - (high - low) + 1) / 4 * 4;
        return t;
    }
}
/* Mark the bytes of all elements; 1: one was marked before. */
static int mark(const neo_tensor *t, const char *field, char *marks) {
    int met = 0;
    for (int64_t i = 0; i < neo_tensor_count(*t); i++) {
        int64_t at = 0, rest = i, size = (int64_t)neo_dtype_size(t->dtype);
        for (int d = t->ndim - 1; d >= 0; rest /= t->shape[d], d--)
            at += rest % t->shape[d] * t->stride[d];
        const char *element = (const char *)t->data + at * size;
        for (int64_t b = 0; b < size; b++) met |= marks[element + b - field]++ > 0;
    }
    return met;
}
/* Copies and conversions are refused just where an element of src shares bytes with one of dst. */
static void shared_memory(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    _Alignas(8) char field[FIELD] = {0};
    int refused = 0, accepted = 0;
    for (int round = 0; round < 60000; round++) {
        char marks[FIELD] = {0}, none[FIELD] = {0};
        const neo_dtype to = round % 2 ? NEO_F32 : NEO_I32;
        int64_t shape[3] = {1 + (int64_t)(test_random() % 5), 1 + (int64_t)(test_random() % 5),
                            1 + (int64_t)(test_random() % 5)};
        const int ndim = (int)(test_random() % 4);
        neo_tensor src = random_view(field, NEO_F32, ndim, shape);
        neo_tensor dst = random_view(field, to, ndim, shape);
        (void)mark(&src, field, marks);
        for (int i = 0; i < FIELD; i++) none[i] = 0;
        (void)mark(&dst, field, none); /* an element of dst may share bytes with another of dst */
        int met = 0, same = to == NEO_F32 && src.data == dst.data;
        for (int i = 0; i < FIELD; i++) met |= marks[i] && none[i];
        for (int d = 0; d < ndim; d++)
            same &= shape[d] == 1 || src.stride[d] == dst.stride[d];
        neo_status status = neo_tensor_convert(ctx, src, dst, NULL);
        CHECK_INT(status, met && !same ? NEO_ERR_ARG : NEO_OK);
        if (status == NEO_ERR_ARG) CHECK(strstr(neo_last_error(), "dst overlaps src in memory"));
        refused += status != NEO_OK, accepted += status == NEO_OK && !same;
        memset(field, 0, sizeof field);
    }
    CHECK(refused > 5000 && accepted > 5000);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(views);
    RUN(absent);
    RUN(allocation);
    RUN(every_code_decodes);
    RUN(rounds_to_nearest_even);
    RUN(infinities_and_nans);
    RUN(stochastic_rounding);
    RUN(stochastic_rounding_does_not_depend_on_layout);
    RUN(integers);
    RUN(any_strides);
    RUN(copies);
    RUN(tree_sum);
    RUN(shared_memory);
    return test_end("core/tensor");
}
