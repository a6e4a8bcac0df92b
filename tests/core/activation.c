/* activation.c: activations, their slopes, and neo_gradcheck itself.
   Goal     values of double formulas, gradient check, one answer for every thread count and
            instruction set, in place and out of place, and clear refusals.
   Method   a naive double reference; neo_gradcheck; memcmp. */
#include "neo_run.h"
#include "test.h"

static const neo_activation acts[] = {NEO_ACT_NONE, NEO_ACT_RELU, NEO_ACT_SIGMOID,
                                      NEO_ACT_TANH, NEO_ACT_GELU, NEO_ACT_HARDSWISH,
                                      NEO_ACT_SILU, NEO_ACT_LEAKY_RELU, NEO_ACT_GELU_TANH};
static const char *const names[] = {"none",      "relu", "sigmoid",    "tanh",     "gelu",
                                    "hardswish", "silu", "leaky_relu", "gelu_tanh"};
enum { ACTS = 9 };
/* Half the argument of the sigmoid that GELU_TANH is x times, and its slope. */
static double tanh_of(double x) { return sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x); }
static double tanh_slope(double x) { return sqrt(2 / acos(-1.0)) * (1 + 0.134145 * x * x); }

static double ref_value(neo_activation act, double x) {
    switch (act) {
    case NEO_ACT_NONE: return x;
    case NEO_ACT_RELU: return x > 0 ? x : 0;
    case NEO_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case NEO_ACT_TANH: return tanh(x);
    case NEO_ACT_GELU: return 0.5 * x * erfc(-x / sqrt(2));
    case NEO_ACT_HARDSWISH: return x * fmin(fmax(x + 3, 0), 6) / 6;
    case NEO_ACT_SILU: return x / (1 + exp(-x));
    case NEO_ACT_LEAKY_RELU: return x > 0 ? x : 0.01 * x;
    case NEO_ACT_GELU_TANH: return x / (1 + exp(-2 * tanh_of(x)));
    }
    return NAN;
}
static double ref_slope(neo_activation act, double x) {
    double s = 1 / (1 + exp(-x));
    switch (act) {
    case NEO_ACT_NONE: return 1;
    case NEO_ACT_RELU: return x > 0;
    case NEO_ACT_SIGMOID: return s * (1 - s);
    case NEO_ACT_TANH: return 1 - tanh(x) * tanh(x);
    case NEO_ACT_GELU: return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(8 * atan(1));
    case NEO_ACT_HARDSWISH: return x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1;
    case NEO_ACT_SILU: return s * (1 + x * (1 - s));
    case NEO_ACT_LEAKY_RELU: return x > 0 ? 1 : 0.01;
    case NEO_ACT_GELU_TANH: {
        const double t = tanh(tanh_of(x));
        return (1 + t) / 2 + x / 2 * (1 - t * t) * tanh_slope(x);
    }
    }
    return NAN;
}

static void values_and_slopes_equal_the_formulas(void) {
    enum { N = 4001 };
    static float z[N], y[N], dy[N], dz[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tensor tz = neo_tensor_1d(z, NEO_F32, N), ty = neo_tensor_1d(y, NEO_F32, N);
    neo_tensor tdy = neo_tensor_1d(dy, NEO_F32, N), tdz = neo_tensor_1d(dz, NEO_F32, N);
    for (int i = 0; i < N; i++) z[i] = (float)(i - N / 2) * 0.01f; /* -20 .. 20, with 0 and +-3 */
    test_fill(dy, N);
    for (int a = 0; a < ACTS; a++) {
        REQUIRE_OK(neo_activation_forward(ctx, acts[a], tz, ty));
        REQUIRE_OK(neo_activation_backward(ctx, acts[a], tz, ty, tdy, tdz));
        for (int i = 0; i < N; i++) {
            double x = (double)z[i], v = ref_value(acts[a], x),
                   s = ref_slope(acts[a], x) * (double)dy[i];
            /* what is rounded is the argument of an exponential */
            const double far = acts[a] == NEO_ACT_GELU_TANH ? 3e-7 * fabs(tanh_of(x)) : 0;
            if (!(fabs((double)y[i] - v) <= (1e-6 + far) * fabs(v) + 1e-30))
                FAIL("%s(%g) = %g, not %g", names[a], x, (double)y[i], v);
            /* 1 - the sigmoid, times up to 35 */
            if (!(fabs((double)dz[i] - s) <= (acts[a] == NEO_ACT_GELU_TANH ? 3e-6 : 1e-6)))
                FAIL("%s'(%g) dy = %g, not %g", names[a], x, (double)dz[i], s);
        }
    }
    neo_ctx_destroy(ctx);
}

static void extreme_arguments(void) {
    float z[8] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-40f, -0.0f, 0.0f}, y[8], dz[8];
    float dy[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tensor tz = neo_tensor_1d(z, NEO_F32, 8), ty = neo_tensor_1d(y, NEO_F32, 8);
    neo_tensor tdy = neo_tensor_1d(dy, NEO_F32, 8), tdz = neo_tensor_1d(dz, NEO_F32, 8);
    static const float expect[][2] = {
        {1, 0}, {1, -1}, {3e38f, 0}}; /* sigmoid, tanh, gelu at +-3e38 */
    for (int a = 0; a < ACTS; a++) {
        REQUIRE_OK(neo_activation_forward(ctx, acts[a], tz, ty));
        REQUIRE_OK(neo_activation_backward(ctx, acts[a], tz, ty, tdy, tdz));
        CHECK(isnan(y[2]));
        if (a >= 2 && a <= 4) {
            CHECK_NEAR(y[3], expect[a - 2][0], 1e31);
            CHECK(y[4] == expect[a - 2][1]);
        }
        if (a == 1) CHECK(isinf(y[0]) && y[1] == 0 && dz[1] == 0 && dz[6] == 0 && dz[7] == 0);
        if (a == 2 || a == 3)
            CHECK(y[0] == 1 && y[1] == expect[a - 2][1] && dz[0] == 0 && dz[1] == 0);
        if (a == 4) CHECK(isinf(y[0]) && dz[0] == 1 && dz[1] == 0);
        if (a == 5 || a == 6) CHECK(dz[0] == 1 && dz[1] == 0);
        if (a == 6) CHECK(isinf(y[0]) && y[4] == 0);
        if (a == 8) CHECK(isinf(y[0]) && y[3] == z[3] && y[4] == 0 && dz[0] == 1 && dz[1] == 0);
        if (a == 7) CHECK(isinf(y[1]) && dz[0] == 1 && dz[1] == 0.01f && dz[7] == 0.01f);
    }
    neo_ctx_destroy(ctx);
}

enum { N = 70001 };
/* half, of bf16, is what neo_tensor_convert makes of wide. */
static void check_rounded(neo_ctx *ctx, neo_tensor half, neo_tensor wide) {
    static uint16_t rounded[N];
    CHECK_OK(neo_tensor_convert(ctx, wide, neo_tensor_1d(rounded, NEO_BF16, N), NULL));
    CHECK_BITS(half.data, rounded, sizeof rounded);
}
static void same_bits_everywhere(void) {
    static float z[N], dy[N], y[N], dz[N], y0[N], dz0[N];
    static uint16_t halves[N];
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int threads[] = {1, 2, 3, 8};
    for (int i = 0; i < N; i++) z[i] = test_uniform() * (i % 3 ? 4.0f : 30.0f);
    test_fill(dy, N);
    for (int a = 0; a < ACTS; a++)
        for (int k = 0; k < 4; k++)
            for (int t = 0; t < 4; t++) {
                if (!neo_isa_available(isas[k]) || (k > 0 && t != k % 4)) continue;
                neo_ctx *ctx = test_ctx(threads[t], isas[k], 1);
                memcpy(y, z, sizeof y);
                memcpy(dz, dy, sizeof dz);
                neo_tensor tz = neo_tensor_1d(z, NEO_F32, N), ty = neo_tensor_1d(y, NEO_F32, N);
                neo_tensor tdz = neo_tensor_1d(dz, NEO_F32, N);
                CHECK_OK(neo_activation_forward(ctx, acts[a], ty, ty)); /* in place */
                CHECK_OK(neo_activation_backward(ctx, acts[a], tz, ty, tdz, tdz));
                if (k == 0 && t == 0) {
                    memcpy(y0, y, sizeof y);
                    memcpy(dz0, dz, sizeof dz);
                }
                CHECK_BITS(y, y0, sizeof y);
                CHECK_BITS(dz, dz0, sizeof dz);
                neo_tensor half = neo_tensor_1d(halves, NEO_BF16, N);
                tdz = neo_tensor_1d(dy, NEO_F32, N);
                CHECK_OK(neo_activation_forward(ctx, acts[a], tz, half));
                check_rounded(ctx, half, ty);
                CHECK_OK(neo_activation_backward(ctx, acts[a], tz, ty, tdz, half));
                check_rounded(ctx, half, neo_tensor_1d(dz, NEO_F32, N));
                neo_ctx_destroy(ctx);
            }
}

static void edges_keep_their_neighbours(void) {
    float z[48], y[48];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int a = 0; a < ACTS; a++)
        for (int n = 0; n <= 40; n++)
            for (int shift = 0; shift < 3; shift++) {
                test_fill(z, 48);
                for (int i = 0; i < 48; i++) y[i] = 77.0f;
                CHECK_OK(neo_activation_forward(ctx, acts[a], neo_tensor_1d(z + shift, NEO_F32, n),
                                                neo_tensor_1d(y + shift, NEO_F32, n)));
                for (int i = 0; i < 48; i++)
                    if (i < shift || i >= shift + n) CHECK(y[i] == 77.0f);
                    else CHECK_NEAR(y[i], ref_value(acts[a], (double)z[i]), 1e-6);
            }
    neo_ctx_destroy(ctx);
}

/* ---- gradcheck ---- */
typedef struct problem {
    neo_ctx *ctx;
    neo_activation act;
    neo_tensor z, y;
    const float *dy;
    int fail;
} problem;
static neo_status problem_loss(void *user, double *loss) {
    problem *p = user;
    if (p->fail) return NEO_ERR_STATE;
    neo_status status = neo_activation_forward(p->ctx, p->act, p->z, p->y);
    *loss = 0;
    for (int64_t i = 0; i < neo_tensor_count(p->y); i++)
        *loss += (double)((float *)p->y.data)[i] * (double)p->dy[i];
    return status;
}
static void gradients_pass_the_check_and_wrong_ones_do_not(void) {
    enum { N = 37 };
    float z[N], y[N], dy[N], dz[N], before[N];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int a = 0; a < ACTS; a++) {
        problem p = {ctx, acts[a], neo_tensor_1d(z, NEO_F32, N), neo_tensor_1d(y, NEO_F32, N),
                     dy,  0};
        neo_tensor tdz = neo_tensor_1d(dz, NEO_F32, N);
        test_fill(dy, N);
        for (int i = 0; i < N; i++)
            z[i] = (float)(i - 18) * 0.23f + 0.05f; /* away from the kinks */
        memcpy(before, z, sizeof z);
        REQUIRE_OK(neo_activation_forward(ctx, acts[a], p.z, p.y));
        REQUIRE_OK(
            neo_activation_backward(ctx, acts[a], p.z, p.y, neo_tensor_1d(dy, NEO_F32, N), tdz));
        neo_gradcheck_desc d = {.loss = problem_loss,
                                .user = &p,
                                .value = p.z,
                                .grad = tdz,
                                .step = 1e-3,
                                .abs_tol = 1e-3,
                                .name = "z"};
        neo_gradcheck_result r;
        CHECK_OK(neo_gradcheck(&d, &r));
        CHECK_INT(r.checked, N);
        CHECK_INT(r.failed, 0);
        CHECK_BITS(z, before, sizeof z);
        d.max_elements = 5;
        CHECK_OK(neo_gradcheck(&d, &r));
        CHECK_INT(r.checked, 5);
        d.max_elements = 0;
        dz[20] += 0.5f;
        CHECK_ERR(neo_gradcheck(&d, &r), NEO_ERR_MISMATCH,
                  "z: 1 of 37 gradients are off, most at element 20");
        CHECK_INT(r.worst_element, 20);
        dz[3] = NAN;
        CHECK_ERR(neo_gradcheck(&d, &r), NEO_ERR_MISMATCH, "element 3");
        CHECK_INT(r.failed, 2);
        p.fail = 1;
        CHECK(neo_gradcheck(&d, NULL) == NEO_ERR_STATE);
        CHECK_BITS(z, before, sizeof z);
    }
    neo_ctx_destroy(ctx);
}

static void refusals(void) {
    float z[6] = {0}, y[6] = {0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tensor a = neo_tensor_1d(z, NEO_F32, 6), b = neo_tensor_2d(y, NEO_F32, 2, 3),
               none = neo_tensor_none();
    CHECK_ERR(neo_activation_forward(ctx, (neo_activation)9, a, a), NEO_ERR_ARG,
              "no activation 9");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_RELU, a, b), NEO_ERR_SHAPE, "y has");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_RELU, none, b), NEO_ERR_SHAPE, "z is none");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_RELU, b, neo_tensor_transpose(b, 0, 1)),
              NEO_ERR_SHAPE, "y is not");
    CHECK_ERR(neo_activation_backward(ctx, NEO_ACT_GELU, none, a, a, a), NEO_ERR_SHAPE,
              "z is none");
    CHECK_ERR(neo_activation_backward(ctx, NEO_ACT_TANH, a, none, a, a), NEO_ERR_SHAPE,
              "y is none");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_RELU, neo_tensor_1d(z, NEO_I32, 6), a),
              NEO_ERR_SHAPE, "z is not");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_RELU, a, neo_tensor_1d(z, NEO_BF16, 6)),
              NEO_ERR_ARG, "y overlaps z");
    CHECK_ERR(neo_activation_backward(ctx, NEO_ACT_TANH, none, a, a, neo_tensor_1d(y, NEO_F16, 6)),
              NEO_ERR_SHAPE, "dz is not");
    CHECK_OK(neo_activation_backward(ctx, NEO_ACT_TANH, none, a, a, a));
    neo_gradcheck_desc d = {.value = a, .grad = a};
    CHECK_ERR(neo_gradcheck(&d, NULL), NEO_ERR_ARG, "no loss function");
    neo_ctx_destroy(ctx);
}

/* neo_linear_act_...: the bits of a layer and its activation one after the other, of f32 and of
   bf16, whose bias may be bf16. */
static neo_tensor operand(neo_ctx *ctx, int narrow, float *x, uint16_t *half, int64_t rows,
                          int64_t cols) {
    test_fill(x, rows * cols);
    if (narrow) {
        neo_floats_encode(ctx, NEO_BF16, x, half, rows * cols);
        neo_floats_decode(ctx, NEO_BF16, half, x, rows * cols);
    }
    return neo_tensor_2d(narrow ? (void *)half : x, narrow ? NEO_BF16 : NEO_F32, rows, cols);
}
static void a_layer_with_its_activation_is_both(void) {
    enum { B = 9, IN = 24, OUT = 40, UP = 7, MOST = OUT * IN };
    static float x[5][MOST], z[2][B * OUT], y[2][B * OUT], dz[2][B * OUT];
    static uint16_t half[5][MOST];
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    const neo_tensor none = neo_tensor_none();
    for (int k = 0; k < 2 * ACTS; k++) {
        const int narrow = k % 2;
        const neo_activation act = acts[k / 2];
        const neo_tensor in = operand(ctx, narrow, x[0], half[0], B, IN),
                         w = operand(ctx, narrow, x[1], half[1], OUT, IN),
                         b = operand(ctx, narrow, x[2], half[2], 1, OUT),
                         dy = operand(ctx, narrow, x[3], half[3], B, UP),
                         up = operand(ctx, narrow, x[4], half[4], UP, OUT);
        neo_tensor tz[2], ty[2], tdz[2], bias = neo_tensor_1d(b.data, b.dtype, OUT);
        for (int i = 0; i < 2; i++) {
            tz[i] = neo_tensor_2d(z[i], NEO_F32, B, OUT);
            ty[i] = neo_tensor_2d(y[i], NEO_F32, B, OUT);
            tdz[i] = neo_tensor_2d(dz[i], NEO_F32, B, OUT);
        }
        CHECK_OK(neo_linear_act_forward(ctx, in, w, bias, act, tz[0], ty[0]));
        CHECK_OK(neo_linear_forward(ctx, in, w, neo_tensor_1d(x[2], NEO_F32, OUT), NEO_ACT_NONE,
                                    tz[1]));
        CHECK_OK(neo_activation_forward(ctx, act, tz[1], ty[1]));
        CHECK_BITS(z[0], z[1], sizeof z[0]);
        CHECK_BITS(y[0], y[1], sizeof y[0]);
        const neo_status status = neo_linear_act_backward(ctx, dy, up, act, tz[0], tdz[0]);
        if (act < NEO_ACT_GELU || act == NEO_ACT_LEAKY_RELU) {
            CHECK_ERR(status, NEO_ERR_ARG, "is not of z, but of y");
            continue;
        }
        CHECK_OK(status);
        neo_tensor like = neo_tensor_2d(narrow ? (void *)half[1] : x[1], w.dtype, B, OUT);
        CHECK_OK(neo_linear_backward(ctx, NULL, like, up, dy, tdz[1], none, none));
        CHECK_OK(neo_activation_backward(ctx, act, tz[1], none, tdz[1], tdz[1]));
        CHECK_BITS(dz[0], dz[1], sizeof dz[0]);
    }
    CHECK_ERR(neo_linear_act_forward(ctx, neo_tensor_2d(x[0], NEO_F32, B, IN),
                                     neo_tensor_2d(x[1], NEO_F32, OUT, IN), none, NEO_ACT_GELU,
                                     neo_tensor_2d(z[0], NEO_F32, B, OUT),
                                     neo_tensor_2d(z[0], NEO_F32, B, OUT)),
              NEO_ERR_ARG, "z overlaps y in memory");
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(values_and_slopes_equal_the_formulas);
    RUN(extreme_arguments);
    RUN(same_bits_everywhere);
    RUN(edges_keep_their_neighbours);
    RUN(gradients_pass_the_check_and_wrong_ones_do_not);
    RUN(refusals);
    RUN(a_layer_with_its_activation_is_both);
    return test_end("core/activation");
}
