/* losses.c: the four losses.
   Goal     values and gradients of double formulas, sample weights, global batch, saturated cases,
            refusals that write nothing, one answer for every cut of the batch, thread count and
            instruction set.
   Method   a naive double reference; neo_gradcheck; memcmp. */
#include "neo_run.h"
#include "test.h"

typedef enum kind { BCE_LOGITS, BCE, MSE, CROSS_ENTROPY, KINDS } kind;
static const char *const names[] = {"bce_with_logits", "bce", "mse", "cross_entropy"};

/* A batch of any of the losses: x [B][width], y as wide (or classes). */
typedef struct batch {
    kind k;
    int64_t rows, width;
    float *x, *y, *dx, *weight;
    int64_t *label;
} batch;

static batch make(kind k, int64_t rows, int64_t width) {
    batch b = {k, rows, width, NULL, NULL, NULL, NULL, NULL};
    size_t n = (size_t)(rows * width) + 1;
    b.x = calloc(n, sizeof *b.x);
    b.y = calloc(n, sizeof *b.y);
    b.dx = calloc(n, sizeof *b.dx);
    b.weight = calloc((size_t)rows + 1, sizeof *b.weight);
    b.label = calloc((size_t)rows + 1, sizeof *b.label);
    for (int64_t i = 0; i < rows * width; i++) {
        float u = test_uniform();
        b.x[i] = k == BCE ? 0.5f + 0.49f * u : 6.0f * u;
        b.y[i] = k == MSE ? test_uniform() : i % 4 == 3 ? 0.3f : (float)(test_random() % 2);
    }
    for (int64_t i = 0; i < rows; i++) {
        b.weight[i] = 0.5f + test_uniform() * 0.5f;
        b.label[i] = (int64_t)(test_random() % (uint32_t)width);
    }
    return b;
}
static void drop(batch *b) {
    free(b->x);
    free(b->y);
    free(b->dx);
    free(b->weight);
    free(b->label);
}
static neo_tensor view(const batch *b, float *data) {
    if (!data) return neo_tensor_none();
    return b->width == 1 ? neo_tensor_1d(data, NEO_F32, b->rows)
                         : neo_tensor_2d(data, NEO_F32, b->rows, b->width);
}
static neo_status run(neo_ctx *ctx, const batch *b, const neo_loss_desc *d, float *dx,
                      double *loss) {
    neo_tensor x = view(b, b->x), y = view(b, b->y), g = view(b, dx);
    if (b->k == BCE_LOGITS) return neo_bce_with_logits(ctx, d, x, y, g, loss);
    if (b->k == BCE) return neo_bce(ctx, d, x, y, g, loss);
    if (b->k == MSE) return neo_mse(ctx, d, x, y, g, loss);
    x = neo_tensor_2d(b->x, NEO_F32, b->rows, b->width);
    if (dx) g = neo_tensor_2d(dx, NEO_F32, b->rows, b->width);
    return neo_cross_entropy(ctx, d, x, neo_tensor_1d(b->label, NEO_I64, b->rows), g, loss);
}

/* Loss of one sample, and its gradients in dx, in double. */
static double reference(const batch *b, int64_t row, double *dx) {
    const float *x = b->x + row * b->width, *y = b->y + row * b->width;
    double sum = 0, loss = 0, max = -INFINITY;
    if (b->k == BCE_LOGITS) {
        double p = 1 / (1 + exp(-(double)x[0]));
        dx[0] = p - (double)y[0];
        return fmax((double)x[0], 0) - (double)x[0] * (double)y[0] +
               log1p(exp(-fabs((double)x[0])));
    }
    if (b->k == BCE) {
        double p = (double)x[0], t = (double)y[0];
        dx[0] = (p - t) / fmax(p * (1 - p), 1e-12);
        return -(t * fmax(log(p), -100) + (1 - t) * fmax(log1p(-p), -100));
    }
    for (int64_t i = 0; i < b->width; i++) {
        double d = (double)x[i] - (double)y[i];
        loss += d * d / (double)b->width;
        if (b->k == MSE) dx[i] = 2 * d / (double)b->width;
        max = fmax(max, (double)x[i]);
    }
    if (b->k == MSE) return loss;
    for (int64_t i = 0; i < b->width; i++) sum += exp((double)x[i] - max);
    for (int64_t i = 0; i < b->width; i++)
        dx[i] = exp((double)x[i] - max) / sum - (i == b->label[row]);
    return log(sum) + max - (double)x[b->label[row]];
}

static void values_and_gradients_equal_the_formulas(void) {
    static const int64_t rows[] = {1, 2, 7, 255, 257, 1000},
                         widths[] = {1, 2, 16, 255, 256, 257, 700};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    static double dx[700];
    for (int k = 0; k < KINDS; k++)
        for (int r = 0; r < 6; r++)
            for (int w = 0; w < (k < MSE ? 1 : 7); w++)
                for (int weighted = 0; weighted < 2; weighted++) {
                    if (rows[r] * widths[w] > 100000) continue;
                    batch b = make((kind)k, rows[r], widths[w]);
                    neo_loss_desc d = {.batch = 2 * rows[r]};
                    if (weighted) d.weight = neo_tensor_1d(b.weight, NEO_F32, b.rows);
                    double loss = -1, expect = 0;
                    REQUIRE_OK(run(ctx, &b, &d, b.dx, &loss));
                    for (int64_t i = 0; i < b.rows; i++) {
                        double factor = weighted ? (double)b.weight[i] : 1;
                        expect += factor * reference(&b, i, dx) / (double)d.batch;
                        for (int64_t j = 0; j < b.width; j++)
                            CHECK_NEAR(b.dx[i * b.width + j], dx[j] * factor / (double)d.batch,
                                       3e-7 * (fabs(dx[j]) + 1) / (double)d.batch);
                    }
                    CHECK_NEAR(loss, expect,
                               1e-6 * expect +
                                   (k == CROSS_ENTROPY ? 1e-7 : 0)); /* log of a f32 sum */
                    /* no gradient wanted; and the gradient over the input */
                    double again = -1;
                    CHECK_OK(run(ctx, &b, &d, NULL, &again));
                    CHECK(again == loss);
                    CHECK_OK(run(ctx, &b, &d, b.x, &again));
                    CHECK(again == loss);
                    CHECK_BITS(b.x, b.dx, (size_t)(b.rows * b.width) * sizeof(float));
                    drop(&b);
                }
    neo_ctx_destroy(ctx);
}

/* Far logits: the loss is |x| or e^-|x|, the gradient -1, 1, or the small rest; never a NaN. */
static void saturated_cases(void) {
    float x[8] = {200, 200, -200, -200, 40, -40, 1e30f, -90}, y[8] = {1, 0, 1, 0, 1, 0, 0, 0},
          dx[8], p[4] = {0, 1, 0, 1};
    float t[4] = {0, 1, 1, 0}, dp[4];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    double loss = 0, expect = 0 + 200 + 200 + 0 + exp(-40) + exp(-40) + (double)1e30f + 0;
    CHECK_OK(neo_bce_with_logits(ctx, NULL, neo_tensor_1d(x, NEO_F32, 8),
                                 neo_tensor_1d(y, NEO_F32, 8), neo_tensor_1d(dx, NEO_F32, 8),
                                 &loss));
    CHECK_NEAR(loss, expect / 8, 1e-6 * expect);
    CHECK(dx[0] == 0 && dx[3] == 0); /* e^-200 is below every float */
    CHECK_NEAR(dx[1], 0.125, 0);
    CHECK_NEAR(dx[2], -0.125, 0);
    CHECK_NEAR(dx[6], 0.125, 0);
    CHECK_NEAR(dx[4] / (float)(-exp(-40) / 8), 1,
               1e-6); /* a right answer still has its gradient */
    CHECK_NEAR(dx[5] / (float)(exp(-40) / 8), 1, 1e-6);
    CHECK_NEAR(dx[7] / (float)(exp(-90) / 8), 1, 1e-2); /* denormal */

    neo_exact sum;
    neo_exact_zero(&sum);
    neo_loss_desc d = {.sum = &sum};
    CHECK_OK(neo_bce(ctx, &d, neo_tensor_1d(p, NEO_F32, 4), neo_tensor_1d(t, NEO_F32, 4),
                     neo_tensor_1d(dp, NEO_F32, 4), &loss));
    CHECK_NEAR(loss, 50, 0); /* logarithms end at -100 */
    CHECK_NEAR(neo_exact_value(&sum), 200, 0);
    CHECK(dp[0] == 0 && dp[1] == 0);
    CHECK_NEAR(dp[2], -0.25e12, 1e6);
    CHECK_NEAR(dp[3], 0.25e12, 1e6);

    float far[6] = {1000, 0, -1000, -1000, -1000, 1000}, dfar[6];
    int64_t label[2] = {0, 0};
    CHECK_OK(neo_cross_entropy(ctx, NULL, neo_tensor_2d(far, NEO_F32, 2, 3),
                               neo_tensor_1d(label, NEO_I64, 2),
                               neo_tensor_2d(dfar, NEO_F32, 2, 3), &loss));
    CHECK_NEAR(loss, 1000, 0);
    CHECK(dfar[0] == 0 && dfar[1] == 0 && dfar[3] == -0.5f && dfar[5] == 0.5f);
    neo_ctx_destroy(ctx);
}

/* An infinite logit loses an infinity where the label says less than 1, on every instruction
   set. */
static void infinite_logits(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    for (int i = 0; i < 4; i++) {
        if (!neo_isa_available(isas[i])) continue;
        neo_ctx *ctx = test_ctx(1, isas[i], 1);
        for (int at = 0; at < 20; at++) {
            float x[20] = {0}, y[20] = {0}, dx[20];
            double loss = 0;
            x[at] = INFINITY, y[at] = at % 2 ? 0.5f : 0.0f;
            neo_tensor tx = neo_tensor_1d(x, NEO_F32, 20), ty = neo_tensor_1d(y, NEO_F32, 20);
            CHECK_OK(neo_bce_with_logits(ctx, NULL, tx, ty, neo_tensor_1d(dx, NEO_F32, 20), &loss));
            CHECK(loss == (double)INFINITY && dx[at] == (1.0f - y[at]) / 20);
        }
        float p = 1.0000001f, one = 1.0f, d;
        neo_tensor tp = neo_tensor_1d(&p, NEO_F32, 1), ty = neo_tensor_1d(&one, NEO_F32, 1);
        CHECK_ERR(neo_bce(ctx, NULL, tp, ty, neo_tensor_1d(&d, NEO_F32, 1), NULL), NEO_ERR_RANGE,
                  "is 1.00000012, not in [0, 1]");
        neo_ctx_destroy(ctx);
    }
}
/* A row of logits with a NaN, or without any number, has one NaN for all slopes, whatever the NaNs
   that it holds, as f32 and as bf16, on every instruction set; other rows have their own. */
static void logits_that_are_none(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    enum { ROWS = 4, WIDTH = 300 };
    static float x[ROWS * WIDTH], dx[ROWS * WIDTH];
    static uint16_t narrow[ROWS * WIDTH], narrow_x[ROWS * WIDTH];
    const uint32_t nan[] = {0xFFC12300u, 0x7FC45600u};
    int64_t label[ROWS] = {0, 7, 299, 1};
    for (int i = 0; i < 4 * 2; i++) {
        if (!neo_isa_available(isas[i / 2])) continue;
        neo_ctx *ctx = test_ctx(1, isas[i / 2], 1);
        const neo_tensor to = neo_tensor_2d(dx, NEO_F32, ROWS, WIDTH), tl =
            neo_tensor_1d(label, NEO_I64, ROWS);
        neo_tensor of = neo_tensor_2d(x, NEO_F32, ROWS, WIDTH), half = of;
        double loss = 0;
        for (int k = 0; k < ROWS * WIDTH; k++) x[k] = (float)(k % 11);
        memcpy(&x[3], &nan[0], 4);
        memcpy(&x[290], &nan[1], 4);
        for (int k = 0; k < WIDTH; k++) x[WIDTH + k] = -INFINITY;
        x[2 * WIDTH + 5] = INFINITY;
        half.data = narrow, half.dtype = NEO_BF16;
        if (i % 2) {
            neo_floats_encode(ctx, NEO_BF16, x, narrow_x, ROWS * WIDTH);
            of.data = narrow_x, of.dtype = NEO_BF16;
        } else CHECK_OK(neo_cross_entropy(ctx, NULL, of, tl, to, &loss));
        CHECK_OK(neo_cross_entropy(ctx, NULL, of, tl, half, &loss));
        CHECK(loss != loss);
        for (int k = 0; k < ROWS * WIDTH; k++) {
            uint32_t bits;
            memcpy(&bits, &dx[k], 4);
            if (k >= 3 * WIDTH) CHECK(isfinite(dx[k]) && (narrow[k] & 0x7F80) != 0x7F80);
            else CHECK(bits == 0x7FC00000u && narrow[k] == 0x7FC0);
        }
        neo_ctx_destroy(ctx);
    }
}
static void same_bits_for_every_cut(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int threads[] = {1, 2, 3, 8};
    for (int k = 0; k < KINDS; k++) {
        int64_t rows = k < MSE ? 40001 : 3001, width = k < MSE ? 1 : 37;
        batch b = make((kind)k, rows, width);
        size_t bytes = (size_t)(rows * width) * sizeof(float);
        float *first = malloc(bytes);
        double loss0 = 0;
        for (int c = 0; c < 8; c++) {
            neo_isa isa = isas[c % 4];
            if (!neo_isa_available(isa)) continue;
            neo_ctx *ctx = test_ctx(threads[(c + c / 4) % 4], isa, 1);
            neo_loss_desc d = {.weight = neo_tensor_1d(b.weight, NEO_F32, rows)};
            double loss = 0;
            int64_t allocs = neo_ctx_memory(ctx).alloc_count;
            CHECK_OK(run(ctx, &b, &d, b.dx, &loss));
            CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
            if (c == 0) {
                loss0 = loss;
                memcpy(first, b.dx, bytes);
            }
            CHECK_BITS(&loss, &loss0, sizeof loss);
            CHECK_BITS(b.dx, first, bytes);
            neo_ctx_destroy(ctx);
        }
        /* in pieces, as ranks would: partial sums add without rounding, gradients are the same */
        neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
        neo_exact sum;
        neo_exact_zero(&sum);
        memset(b.dx, 0, bytes);
        for (int64_t at = 0; at < rows; at += 977) {
            int64_t n = rows - at < 977 ? rows - at : 977;
            batch piece = {b.k,  n,    width,       b.x + at * width, b.y + at * width,
                           NULL, NULL, b.label + at};
            neo_loss_desc d = {
                .batch = rows, .weight = neo_tensor_1d(b.weight + at, NEO_F32, n), .sum = &sum};
            CHECK_OK(run(ctx, &piece, &d, b.dx + at * width, NULL));
        }
        double loss = neo_exact_value(&sum) / (double)rows;
        CHECK_BITS(&loss, &loss0, sizeof loss);
        CHECK_BITS(b.dx, first, bytes);
        neo_ctx_destroy(ctx);
        free(first);
        drop(&b);
    }
}

/* A gradient of bf16, its rows apart: that of f32, converted, on every instruction set; the gaps
   stay, and the logits. */
static void narrow_gradients_are_the_wide_ones_rounded(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int64_t widths[] = {1, 2, 17, 256, 257, 700};
    enum { ROWS = 9, APART = 704 };
    for (int c = 0; c < 4 * 6; c++) {
        const int64_t width = widths[c / 4];
        if (!neo_isa_available(isas[c % 4])) continue;
        neo_ctx *ctx = test_ctx(2, isas[c % 4], 1);
        batch b = make(CROSS_ENTROPY, ROWS, width);
        uint16_t *got = malloc(ROWS * APART * sizeof *got), *want = malloc(700 * sizeof *want);
        float *x = malloc((size_t)(ROWS * width) * sizeof *x);
        neo_loss_desc d = {.batch = 40, .scale = 1024,
                           .weight = neo_tensor_1d(b.weight, NEO_F32, ROWS)};
        double loss = 0, again = 1;
        neo_tensor logit = neo_tensor_2d(b.x, NEO_F32, ROWS, width), narrow = logit;
        neo_tensor label = neo_tensor_1d(b.label, NEO_I64, ROWS);
        narrow.data = got, narrow.dtype = NEO_BF16, narrow.stride[0] = APART;
        if (width > 2) b.x[0] = -INFINITY, b.label[0] = 1;
        memcpy(x, b.x, (size_t)(ROWS * width) * sizeof *x);
        memset(got, 0x5A, ROWS * APART * sizeof *got);
        REQUIRE_OK(run(ctx, &b, &d, b.dx, &loss));
        CHECK_OK(neo_cross_entropy(ctx, &d, logit, label, narrow, &again));
        CHECK(loss == again);
        CHECK_BITS(x, b.x, (size_t)(ROWS * width) * sizeof *x);
        for (int64_t i = 0; i < ROWS; i++) {
            neo_floats_encode(ctx, NEO_BF16, b.dx + i * width, want, width);
            CHECK_BITS(got + i * APART, want, (size_t)width * sizeof *want);
            for (int64_t j = width; j < APART; j++) CHECK_INT(got[i * APART + j], 0x5A5A);
        }
        narrow.data = b.x;
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, narrow, NULL), NEO_ERR_ARG,
                  "dlogit overlaps logit in memory");
        narrow.data = got, narrow.shape[1]++;
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, narrow, NULL), NEO_ERR_SHAPE,
                  "dlogit is [9][");
        free(got);
        free(want);
        free(x);
        drop(&b);
        neo_ctx_destroy(ctx);
    }
}

/* Logits of bf16, their rows apart: loss and gradient are those of the same numbers in f32, the
   gradient rounded, in place or not; the gaps stay. */
static void narrow_logits_are_widened(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int64_t widths[] = {1, 2, 17, 256, 257, 700};
    enum { ROWS = 9, APART = 704 };
    for (int c = 0; c < 4 * 6 * 3; c++) {
        const int64_t width = widths[c / 12];
        const int in_place = c / 4 % 3 == 0, none = c / 4 % 3 == 1;
        if (!neo_isa_available(isas[c % 4])) continue;
        neo_ctx *ctx = test_ctx(2, isas[c % 4], 1);
        batch b = make(CROSS_ENTROPY, ROWS, width);
        uint16_t x[2][ROWS * APART], want[700];
        neo_loss_desc d = {.batch = 40, .weight = neo_tensor_1d(b.weight, NEO_F32, ROWS)};
        double loss = 0, again = 1;
        neo_tensor logit = neo_tensor_2d(x[0], NEO_BF16, ROWS, width), dlogit = logit;
        neo_tensor label = neo_tensor_1d(b.label, NEO_I64, ROWS);
        memset(x, 0x5A, sizeof x);
        if (width > 2) b.x[0] = -INFINITY, b.label[0] = 1;
        for (int64_t i = 0; i < ROWS; i++) {
            neo_floats_encode(ctx, NEO_BF16, b.x + i * width, x[0] + i * APART, width);
            neo_floats_decode(ctx, NEO_BF16, x[0] + i * APART, b.x + i * width, width);
        }
        logit.stride[0] = dlogit.stride[0] = APART;
        dlogit.data = in_place ? x[0] : x[1];
        REQUIRE_OK(run(ctx, &b, &d, b.dx, &loss));
        CHECK_OK(neo_cross_entropy(ctx, &d, logit, label, none ? neo_tensor_none() : dlogit,
                                   &again));
        CHECK(loss == again && isfinite(again));
        for (int64_t i = 0; i < ROWS && !none; i++) {
            const uint16_t *got = (const uint16_t *)dlogit.data + i * APART;
            neo_floats_encode(ctx, NEO_BF16, b.dx + i * width, want, width);
            CHECK_BITS(got, want, (size_t)width * sizeof *want);
            for (int64_t j = width; j < APART; j++) CHECK_INT(got[j], 0x5A5A);
        }
        dlogit = neo_tensor_2d(b.dx, NEO_F32, ROWS, width);
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, dlogit, NULL), NEO_ERR_SHAPE,
                  "dlogit is f32, but logit bf16");
        dlogit.dtype = NEO_F16;
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, dlogit, NULL), NEO_ERR_SHAPE,
                  "dlogit is f16: f32 or bf16 is possible");
        CHECK_ERR(neo_cross_entropy(ctx, &d, dlogit, label, logit, NULL), NEO_ERR_SHAPE,
                  ": logit is f16: f32 or bf16 is possible");
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, neo_tensor_none(), logit, NULL),
                  NEO_ERR_SHAPE, "label is none");
        dlogit = logit, dlogit.data = x[0] + 1;
        if (width > 1)
            CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, dlogit, NULL), NEO_ERR_ARG,
                      "dlogit overlaps logit in memory");
        logit.shape[1] = 0;
        CHECK_ERR(neo_cross_entropy(ctx, &d, logit, label, neo_tensor_none(), NULL), NEO_ERR_SHAPE,
                  "logit is not [B][C] with C > 0");
        drop(&b);
        neo_ctx_destroy(ctx);
    }
}

typedef struct problem {
    neo_ctx *ctx;
    const batch *b;
    const neo_loss_desc *d;
} problem;
static neo_status problem_loss(void *user, double *loss) {
    problem *p = user;
    return run(p->ctx, p->b, p->d, NULL, loss);
}
static void gradients_pass_the_check(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int k = 0; k < KINDS; k++) {
        batch b = make((kind)k, 9, k < MSE ? 1 : 5);
        neo_loss_desc d = {.weight = neo_tensor_1d(b.weight, NEO_F32, 9)};
        problem p = {ctx, &b, &d};
        if (k == BCE)
            for (int i = 0; i < 9; i++) b.x[i] = 0.2f + 0.07f * (float)i;
        REQUIRE_OK(run(ctx, &b, &d, b.dx, NULL));
        neo_gradcheck_desc c = {.loss = problem_loss,
                                .user = &p,
                                .value = view(&b, b.x),
                                .grad = view(&b, b.dx),
                                .step = 1e-2,
                                .name = names[k]};
        CHECK_OK(neo_gradcheck(&c, NULL));
        drop(&b);
    }
    neo_ctx_destroy(ctx);
}

/* Losses and gradients of several labels of a sample are those of as many columns, and add. */
static void several_labels(void) {
    enum { B = 37, L = 3 };
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    for (int k = BCE_LOGITS; k <= BCE; k++) {
        float w[B * L], one[3][B], dx[B];
        batch all = make((kind)k, B, L), column = make((kind)k, B, 1);
        neo_exact sum, sums;
        neo_exact_zero(&sum);
        neo_exact_zero(&sums);
        for (int i = 0; i < B * L; i++) w[i] = i % 4 ? 0.3f * (float)(i % 5) : 0;
        neo_loss_desc d = {.batch = 50, .sum = &sum, .weight = neo_tensor_2d(w, NEO_F32, B, L)};
        neo_loss_desc of = {.batch = 50, .sum = &sums};
        double loss, losses[L];
        CHECK_OK(run(ctx, &all, &d, all.dx, &loss));
        for (int t = 0; t < L; t++) {
            for (int i = 0; i < B; i++) {
                one[0][i] = all.x[i * L + t], one[1][i] = all.y[i * L + t];
                one[2][i] = w[i * L + t];
            }
            memcpy(column.x, one[0], sizeof one[0]);
            memcpy(column.y, one[1], sizeof one[1]);
            of.weight = neo_tensor_1d(one[2], NEO_F32, B);
            CHECK_OK(run(ctx, &column, &of, dx, &losses[t]));
            for (int i = 0; i < B; i++) CHECK_BITS(&dx[i], &all.dx[i * L + t], sizeof *dx);
        }
        CHECK_BITS(&sum, &sums, sizeof sum);
        CHECK_NEAR(loss, losses[0] + losses[1] + losses[2], 1e-12);
        all.y[7 * L + 2] = 1.5f;
        CHECK_ERR(run(ctx, &all, &d, all.dx, &loss), NEO_ERR_RANGE, "label of sample 7 is 1.5");
        of.weight = neo_tensor_1d(w, NEO_F32, B);
        CHECK_ERR(run(ctx, &all, &of, all.dx, &loss), NEO_ERR_SHAPE,
                  "weight is not a contiguous f32 tensor [B][3], it is f32 with 1 dim");
        drop(&all);
        drop(&column);
    }
    neo_ctx_destroy(ctx);
}

static void refusals_write_nothing(void) {
    float x[6] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, y[6] = {0, 1, 0, 1, 0, 1},
          dx[6] = {7, 7, 7, 7, 7, 7}, kept[6];
    int64_t label[3] = {0, 1, 0};
    double loss = 7;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_exact sum;
    neo_exact_zero(&sum);
    neo_loss_desc d = {.sum = &sum};
    neo_tensor tx = neo_tensor_1d(x, NEO_F32, 6), ty = neo_tensor_1d(y, NEO_F32, 6),
               tdx = neo_tensor_1d(dx, NEO_F32, 6);
    neo_tensor m = neo_tensor_2d(x, NEO_F32, 3, 2), dm = neo_tensor_2d(dx, NEO_F32, 3, 2);
    neo_tensor tl = neo_tensor_1d(label, NEO_I64, 3), none = neo_tensor_none();
    memcpy(kept, dx, sizeof dx);
    y[4] = 1.5f;
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_RANGE,
              "label of sample 4 is 1.5, not in [0, 1]");
    y[4] = NAN;
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_RANGE,
              "label of sample 4");
    CHECK_ERR(neo_bce(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_RANGE, "neo_bce: label of sample 4");
    y[4] = 0;
    x[2] = -0.25f;
    CHECK_ERR(neo_bce(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_RANGE, "prob of sample 2 is -0.25");
    x[2] = 0.5f;
    label[1] = 2;
    CHECK_ERR(neo_cross_entropy(ctx, &d, m, tl, dm, &loss), NEO_ERR_RANGE,
              "label of sample 1 is 2, not in [0, 2)");
    label[1] = -1;
    CHECK_ERR(neo_cross_entropy(ctx, &d, m, tl, dm, &loss), NEO_ERR_RANGE,
              "label of sample 1 is -1");
    label[1] = 0;
    CHECK_ERR(neo_bce_with_logits(ctx, &d, m, ty, tdx, &loss), NEO_ERR_SHAPE, "logit is not");
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, neo_tensor_rows(ty, 0, 5), tdx, &loss),
              NEO_ERR_SHAPE, "label has 5");
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, none, tdx, &loss), NEO_ERR_SHAPE, "label is not");
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, ty, dm, &loss), NEO_ERR_SHAPE, "dlogit is not");
    CHECK_ERR(neo_mse(ctx, &d, m, tx, dm, &loss), NEO_ERR_SHAPE,
              "neo_mse: target has ndim 1, the first tensor 2");
    CHECK_ERR(neo_mse(ctx, &d, m, neo_tensor_2d(x, NEO_F32, 3, 1), dm, &loss), NEO_ERR_SHAPE,
              "neo_mse: target has shape[1] 1, the first tensor 2");
    CHECK_ERR(neo_cross_entropy(ctx, &d, m, ty, dm, &loss), NEO_ERR_SHAPE, "label is not");
    CHECK_ERR(neo_cross_entropy(ctx, &d, tx, tl, dm, &loss), NEO_ERR_SHAPE, "logit is not [B][C]");
    d.batch = 5;
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_ARG,
              "batch is 5, less than the 6 rows");
    d.batch = 0;
    d.weight = neo_tensor_1d(x, NEO_F32, 4);
    CHECK_ERR(neo_bce_with_logits(ctx, &d, tx, ty, tdx, &loss), NEO_ERR_SHAPE, "weight has 4");
    CHECK(loss == 7 && neo_exact_value(&sum) == 0);
    CHECK_BITS(dx, kept, sizeof dx);
    /* [B][1] beside [B]; an empty batch */
    CHECK_OK(neo_bce_with_logits(ctx, NULL, neo_tensor_2d(x, NEO_F32, 6, 1), ty,
                                 neo_tensor_2d(dx, NEO_F32, 6, 1), &loss));
    CHECK_OK(neo_bce_with_logits(ctx, NULL, neo_tensor_1d(x, NEO_F32, 0),
                                 neo_tensor_1d(y, NEO_F32, 0), none, &loss));
    CHECK(loss == 0);
    neo_tensor empty = neo_tensor_2d(NULL, NEO_F32, 0, 3); /* which needs no data */
    CHECK_OK(neo_bce(ctx, NULL, neo_tensor_1d(NULL, NEO_F32, 0), neo_tensor_1d(NULL, NEO_F32, 0),
                     none, &loss));
    CHECK_OK(neo_mse(ctx, NULL, empty, empty, empty, &loss));
    CHECK_OK(neo_cross_entropy(ctx, NULL, empty, neo_tensor_1d(NULL, NEO_I64, 0), empty, &loss));
    CHECK_OK(neo_activation_forward(ctx, NEO_ACT_GELU, empty, empty));
    CHECK_OK(neo_activation_backward(ctx, NEO_ACT_GELU, empty, empty, empty, empty));
    neo_tensor hollow = neo_tensor_1d(NULL, NEO_F32, 6);
    CHECK_ERR(neo_bce(ctx, NULL, hollow, ty, none, &loss), NEO_ERR_SHAPE, "prob");
    CHECK_ERR(neo_activation_forward(ctx, NEO_ACT_GELU, hollow, ty), NEO_ERR_SHAPE,
              "z has no data");
    /* no context */
    CHECK_ERR(neo_bce(NULL, NULL, tx, ty, none, &loss), NEO_ERR_ARG, "neo_bce: ctx is NULL");
    CHECK_ERR(neo_bce_with_logits(NULL, NULL, tx, ty, none, &loss), NEO_ERR_ARG, "ctx is NULL");
    CHECK_ERR(neo_mse(NULL, NULL, tx, ty, none, &loss), NEO_ERR_ARG, "ctx is NULL");
    CHECK_ERR(neo_cross_entropy(NULL, NULL, empty, ty, none, &loss), NEO_ERR_ARG, "ctx is NULL");
    CHECK_ERR(neo_activation_forward(NULL, NEO_ACT_GELU, tx, ty), NEO_ERR_ARG, "ctx is NULL");
    CHECK_ERR(neo_activation_backward(NULL, NEO_ACT_GELU, tx, ty, ty, ty), NEO_ERR_ARG,
              "ctx is NULL");
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(values_and_gradients_equal_the_formulas);
    RUN(saturated_cases);
    RUN(infinite_logits);
    RUN(logits_that_are_none);
    RUN(same_bits_for_every_cut);
    RUN(narrow_gradients_are_the_wide_ones_rounded);
    RUN(narrow_logits_are_widened);
    RUN(gradients_pass_the_check);
    RUN(several_labels);
    RUN(refusals_write_nothing);
    return test_end("core/losses");
}
