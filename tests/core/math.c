/* math.c: neo's own exp, log, log1p, tanh, sigmoid, normal distribution, sin, cos.
   Goal     the stated bounds in ulps and C's special values; one answer on every instruction set.
            AMX's instructions as its kernel of bf16 products uses them.
   Method   f32: a stride of a prime over all 2^32 bit patterns against libm in double; f64 against
            libm in long double; the vector forms through the kernel tables, bit by bit against the
            scalar ones; AMX's kernel by emulated instructions against the plain one. */
#define NEO_STATIC /* as in private.c */
#include "test.h"
#include "amx_on_cpu.h"

#ifndef STRIDE
#define STRIDE 2999 /* 1.4 million floats */
#endif

/* Distance of y from the exact value in units of the f32 spacing at the exact value. */
static double ulps(float y, double exact) {
    if (isnan(exact)) return isnan(y) ? 0 : INFINITY;
    if (isinf(exact) || fabs(exact) >= 0x1.ffffffp127) /* rounds to infinity */
        return (double)y == (exact > 0 ? INFINITY : -INFINITY) ? 0 : INFINITY;
    int e = 0;
    frexp(exact, &e);
    double spacing = ldexp(1.0, (exact == 0 || e < -125 ? -125 : e) - 24);
    double d = fabs((double)y - exact) / spacing;
    return d >= 0 ? d : INFINITY;
}

static double ref_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double ref_normal(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static double ref_gelu(double x) { return x * ref_normal(x); }
static double ref_gelu_slope(double x) {
    return ref_normal(x) + x * exp(-0.5 * x * x) * 0.39894228040143267794;
}
static float cdf_scalar(float x) {
    float density;
    return neo__vnormal_scalar(x, &density);
}

typedef struct function {
    const char *name;
    float (*own)(float);
    double (*reference)(double);
    double low, high; /* arguments outside are not held to the bound */
    double bound;     /* ulps */
} function;
static float own_exp(float x) { return neo__vexp_scalar(x); }
static float own_log(float x) { return neo__vlog_scalar(x); }
static float own_log1p(float x) { return neo__vlog1p_scalar(x); }
static float own_tanh(float x) { return neo__vtanh_scalar(x); }
static float own_sigmoid(float x) { return neo__vsigmoid_scalar(x); }
static float own_sin(float x) { return neo__vsin_scalar(x); }
static float own_cos(float x) { return neo__vcos_scalar(x); }
static float own_gelu(float x) { return neo__vgelu_scalar(x); }
static float own_gelu_slope(float x) { return neo__vgelu_slope_scalar(x); }
static const function functions[] = {
    /* a little above what >>kernels-math states */
    {"exp", own_exp, exp, -INFINITY, INFINITY, 1.0},
    {"log", own_log, log, -INFINITY, INFINITY, 0.9},
    {"log1p", own_log1p, log1p, -INFINITY, INFINITY, 1.5},
    {"tanh", own_tanh, tanh, -INFINITY, INFINITY, 1.4},
    {"sigmoid", own_sigmoid, ref_sigmoid, -INFINITY, INFINITY, 2.4},
    {"normal", cdf_scalar, ref_normal, -13, INFINITY, 5.6},
    {"gelu", own_gelu, ref_gelu, -13, 1e30, 6.3},
    {"sin", own_sin, sin, -16384, 16384, 1.6},
    {"cos", own_cos, cos, -16384, 16384, 1.6},
    {"gelu slope", own_gelu_slope, ref_gelu_slope, 0, 13, 3.0},
};

/* One in so many of what there is to sweep: all with NEO_FULL. Odd, as the strides are. */
static uint32_t thin(void) { return test_grid() && !TEST_WATCHED ? 1 : 5; }
static void f32_functions_are_accurate(void) {
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        const function *fn = &functions[f];
        double worst = 0;
        float at = 0;
        for (uint64_t u = 0; u < (1ull << 32); u += STRIDE * thin()) {
            float x = neo__f32_bits((uint32_t)u);
            if (!isnan(x) && ((double)x < fn->low || (double)x > fn->high)) continue;
            double d = ulps(fn->own(x), fn->reference((double)x));
            if (d > worst) worst = d, at = x;
        }
        if (getenv("SHOW")) printf("%-10s %.3f ulp at %a\n", fn->name, worst, (double)at);
        if (!(worst <= fn->bound)) FAIL("%s: %.2f ulp at %a", fn->name, worst, (double)at);
    }
}

/* C's special values, signs of zero included. */
typedef struct special {
    float (*own)(float);
    float x, y;
} special;
static void f32_special_values(void) {
    static const special list[] = {
        {own_exp, 0.0f, 1.0f},
        {own_exp, -0.0f, 1.0f},
        {own_exp, INFINITY, INFINITY},
        {own_exp, -INFINITY, 0.0f},
        {own_exp, 88.73f, INFINITY},
        {own_exp, -104.0f, 0.0f},
        {own_exp, -103.5f, 0x1p-149f},
        {own_exp, NAN, NAN},
        {own_log, 1.0f, 0.0f},
        {own_log, 0.0f, -INFINITY},
        {own_log, -0.0f, -INFINITY},
        {own_log, -1.0f, NAN},
        {own_log, -0x1p-149f, NAN},
        {own_log, INFINITY, INFINITY},
        {own_log, -INFINITY, NAN},
        {own_log, NAN, NAN},
        {own_log1p, 0.0f, 0.0f},
        {own_log1p, -0.0f, -0.0f},
        {own_log1p, -1.0f, -INFINITY},
        {own_log1p, -1.5f, NAN},
        {own_log1p, INFINITY, INFINITY},
        {own_log1p, NAN, NAN},
        {own_log1p, 0x1p-149f, 0x1p-149f},
        {own_log1p, -0x1p-149f, -0x1p-149f},
        {own_tanh, 0.0f, 0.0f},
        {own_tanh, -0.0f, -0.0f},
        {own_tanh, INFINITY, 1.0f},
        {own_tanh, -INFINITY, -1.0f},
        {own_tanh, 0x1p-149f, 0x1p-149f},
        {own_tanh, NAN, NAN},
        {own_tanh, -3e38f, -1.0f},
        {own_sigmoid, 0.0f, 0.5f},
        {own_sigmoid, INFINITY, 1.0f},
        {own_sigmoid, -INFINITY, 0.0f},
        {own_sigmoid, NAN, NAN},
        {own_sigmoid, 40.0f, 1.0f},
        {own_sin, 0.0f, 0.0f},
        {own_cos, 0.0f, 1.0f},
        {own_sin, NAN, NAN},
        {own_cos, NAN, NAN},
        {cdf_scalar, 0.0f, 0.5f},
        {cdf_scalar, INFINITY, 1.0f},
        {cdf_scalar, -INFINITY, 0.0f},
        {cdf_scalar, NAN, NAN},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        float y = list[i].own(list[i].x);
        int same = isnan(list[i].y) ? isnan(y) : neo__bits_f32(y) == neo__bits_f32(list[i].y);
        if (!same)
            FAIL("entry %zu: f(%a) is %a, not %a", i, (double)list[i].x, (double)y,
                 (double)list[i].y);
    }
}

static void f64_functions_are_accurate(void) {
    double log_worst = 0, exp_worst = 0, cos_worst = 0, pow_worst = 0;
    for (uint32_t i = 0; i < 400000 / thin(); i++) {
        uint64_t random =
            (uint64_t)test_random() << 33 ^ (uint64_t)test_random() << 11 ^ test_random();
        double any = neo__f64_bits(random & 0x7FFFFFFFFFFFFFFFu),
               unit = (double)(random >> 11) * 0x1p-53;
        if (any - any == 0 && any > 0) {
            long double l = logl((long double)any);
            log_worst = fmax(log_worst, (double)fabsl(((long double)neo__log_f64(any) - l) / l));
        }
        double near = 1 + (unit - 0.5) * 0.1;
        log_worst =
            fmax(log_worst,
                 (double)fabsl((long double)neo__log_f64(near) / logl((long double)near) - 1));
        double x = (unit - 0.5) * 1400;
        exp_worst = fmax(exp_worst,
                         (double)fabsl((long double)neo__exp_f64(x) / expl((long double)x) - 1));
        double a = (unit - 0.5) * 2000;
        cos_worst =
            fmax(cos_worst, (double)fabsl((long double)neo__cos_f64(a) - cosl((long double)a)));
        double y = (double)(i % 1000);
        long double p = powl((long double)unit, (long double)y);
        if (p > 0x1p-1020L) {
            double scale = 1 + fabs(y * log(unit));
            pow_worst =
                fmax(pow_worst, (double)fabsl((long double)neo__pow_f64(unit, y) / p - 1) / scale);
        }
    }
    if (getenv("SHOW"))
        printf("log %.2g exp %.2g cos %.2g (absolute) pow %.2g, in units of 2^-53\n",
               log_worst * 0x1p53, exp_worst * 0x1p53, cos_worst * 0x1p53, pow_worst * 0x1p53);
    CHECK(log_worst <= 1.4 * 0x1p-53 && exp_worst <= 1.3 * 0x1p-53 && cos_worst <= 1.5 * 0x1p-53);
    CHECK(pow_worst <= 2.5 * 0x1p-53);
    CHECK(neo__log_f64(1.0) == 0.0 && isinf(neo__log_f64(0.0)) && neo__log_f64(0.0) < 0);
    CHECK(isnan(neo__log_f64(-1.0)) && isnan(neo__log_f64((double)NAN)) &&
          isinf(neo__log_f64((double)INFINITY)));
    CHECK(neo__exp_f64(0.0) == 1.0 && isinf(neo__exp_f64(1e9)) && neo__exp_f64(-1e9) == 0.0);
    CHECK(isnan(neo__exp_f64((double)NAN)) && neo__cos_f64(0.0) == 1.0);
    CHECK_NEAR(neo__exp_f64(-740.0) / exp(-740.0), 1, 1e-1); /* a denormal */
    CHECK(neo__pow_f64(0.0, 2.0) == 0.0 && neo__pow_f64(0.0, 0.0) == 1.0 &&
          neo__pow_f64(0.5, 1.0) == 0.5);
}

/* The vector forms, one kernel after the other over a sweep of all floats. */
enum { CHUNK = 4099 };
typedef struct sweep {
    float x[CHUNK], label[CHUNK], out[8][CHUNK];
} sweep;
static void run_kernels(neo_ctx *ctx, sweep *s) {
    const neo__vec_kernels *v = ctx->vec;
    static float positive[CHUNK];
    for (int i = 0; i < CHUNK; i++) positive[i] = fabsf(s->x[i]);
    v->act_forward(NEO_ACT_SIGMOID, s->x, s->out[0], CHUNK);
    v->act_forward(NEO_ACT_TANH, s->x, s->out[1], CHUNK);
    v->act_forward(NEO_ACT_GELU, s->x, s->out[2], CHUNK);
    v->act_backward(NEO_ACT_GELU, s->x, s->x, s->label, s->out[3], CHUNK);
    v->bce_logits(s->x, s->label, NULL, 1.0f, s->out[4], s->out[5], CHUNK);
    v->bce(s->x, s->label, positive, 1.0f, s->out[6], s->out[7], CHUNK);
}
static void vectors_equal_scalars(void) {
    static const neo_isa isas[] = {NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static sweep plain, wide;
    neo_ctx *scalar = test_ctx(1, NEO_ISA_SCALAR, 1), *vector[3] = {NULL};
    for (int k = 0; k < 3; k++)
        if (neo_isa_available(isas[k])) vector[k] = test_ctx(1, isas[k], 1);
    uint32_t u = 12345;
    for (uint32_t chunk = 0; chunk < 100 / thin(); chunk++) {
        for (int i = 0; i < CHUNK; i++, u += 10487u * thin()) { /* 4.3e9/(100 CHUNK), odd */
            plain.x[i] = neo__f32_bits(u);
            plain.label[i] = (float)(i % 5) * 0.25f;
        }
        run_kernels(scalar, &plain);
        for (int k = 0; k < 3; k++) {
            if (!vector[k]) continue;
            memcpy(wide.x, plain.x, sizeof wide.x);
            memcpy(wide.label, plain.label, sizeof wide.label);
            run_kernels(vector[k], &wide);
            for (int f = 0; f < 8; f++)
                for (int i = 0; i < CHUNK; i++) {
                    float a = plain.out[f][i], b = wide.out[f][i];
                    if (isnan(a) ? !isnan(b) : neo__bits_f32(a) != neo__bits_f32(b))
                        FAIL("%s, kernel %d at %a: %a, scalar %a", neo_isa_name(isas[k]), f,
                             (double)plain.x[i], (double)b, (double)a);
                }
        }
    }
    for (int k = 0; k < 3; k++)
        if (vector[k]) neo_ctx_destroy(vector[k]);
    neo_ctx_destroy(scalar);
}

/* Block sums: the shape itself, tails, and one answer for all. */
static void block_sums_have_the_stated_shape(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    float x[260], t[260];
    for (int k = 0; k < 4; k++) {
        if (!neo_isa_available(isas[k])) continue;
        neo_ctx *ctx = test_ctx(1, isas[k], 1);
        for (int n = 0; n <= 256; n++) {
            test_fill(x, 260);
            float most = 0;
            for (int i = 0; i < n; i++) t[i] = x[i] * x[i];
            float square = test_lanes(t, n);
            for (int i = 0; i < n; i++) t[i] = fabsf(x[i]), most = t[i] > most ? t[i] : most;
            CHECK(ctx->vec->block_square(x, n) == square);
            CHECK(ctx->vec->block_abs(x, n) == test_lanes(t, n));
            CHECK(ctx->vec->block_max(x, n) == most);
            CHECK_INT(ctx->vec->find_outside(x, -2.0f, 2.0f, n), n);
            if (n > 0) {
                int at = (int)(test_random() % (uint32_t)n);
                x[at] = NAN;
                CHECK(isnan(ctx->vec->block_max(x, n)));
                CHECK_INT(ctx->vec->find_outside(x, -2.0f, 2.0f, n), at);
                x[at] = 2.5f;
                CHECK_INT(ctx->vec->find_outside(x, -2.0f, 2.0f, n), at);
            }
        }
        neo_ctx_destroy(ctx);
    }
}

#if defined(AMX_ON_CPU) && defined(NEO__X86_BF16)
/* Products by the AMX kernels of ctx, and without. */
static void compare_amx_products(neo_ctx *ctx) {
    static const int sizes[][3] = {{32, 32, 32},  {1, 1, 1},   {33, 40, 70},
                                   {64, 33, 530}, {5, 3, 100}, {150, 65, 40}};
    static uint16_t a[150 * 70], b[530 * 70];
    static float c[150 * 70], want[150 * 70];
    neo_ctx *plain = test_ctx(1, NEO_ISA_SCALAR, 1);
    for (int i = 0; i < 24; i++) {
        const int m = sizes[i / 4][0], n = sizes[i / 4][1], k = sizes[i / 4][2];
        neo_gemm_desc d;
        memset(&d, 0, sizeof d);
        d.trans_a = i & 1, d.trans_b = i >> 1 & 1, d.beta = 1.0f;
        for (int j = 0; j < 150 * 70; j++) c[j] = want[j] = test_uniform();
        for (int j = 0; j < 530 * 70; j++)
            b[j] = (uint16_t)((test_random() & 0x807F) | (50 + test_random() % 90) << 7);
        for (int j = 0; j < 150 * 70; j++)
            a[j] = (uint16_t)((test_random() & 0x807F) | (50 + test_random() % 90) << 7);
        neo_tensor ta =
            neo_tensor_2d(k > 100 ? b : a, NEO_BF16, d.trans_a ? k : m, d.trans_a ? m : k);
        neo_tensor tb = neo_tensor_2d(b, NEO_BF16, d.trans_b ? n : k, d.trans_b ? k : n);
        CHECK_OK(neo_gemm(plain, &d, ta, tb, neo_tensor_2d(want, NEO_F32, m, n)));
        CHECK_OK(neo_gemm(ctx, &d, ta, tb, neo_tensor_2d(c, NEO_F32, m, n)));
        CHECK_BITS(c, want, sizeof c);
    }
    neo_ctx_destroy(plain);
}
#endif
/* By the processor, where it has AMX; before the system is asked for that, by the stand-in. */
static void amx_follows_the_plain_kernel(void) {
#if defined(AMX_ON_CPU) && defined(NEO__X86_BF16)
    if (!neo_isa_available(NEO_ISA_AVX512)) SKIP("no AVX-512, which packs for it");
    neo_ctx *ctx = test_ctx(1, NEO_ISA_AVX512, 1);
    struct sigaction old;
    ctx->bf16 = &neo__bf16_kernels_amx;
    REQUIRE(amx_on_cpu_begin(&old));
    compare_amx_products(ctx);
    CHECK(amx.done > 1000 && !amx.broken);
    REQUIRE(sigaction(SIGILL, &old, NULL) == 0);
    neo_ctx_destroy(ctx);
    if (!neo_isa_available(NEO_ISA_AMX)) return;
    ctx = test_ctx(1, NEO_ISA_AMX, 1);
    compare_amx_products(ctx);
    neo_ctx_destroy(ctx);
#else
    SKIP("not x86-64 Linux, or without vectors");
#endif
}

int main(void) {
    RUN(amx_follows_the_plain_kernel);
    RUN(f32_functions_are_accurate);
    RUN(f32_special_values);
    RUN(f64_functions_are_accurate);
    RUN(vectors_equal_scalars);
    RUN(block_sums_have_the_stated_shape);
    return test_end("core/math");
}
