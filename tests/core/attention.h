/* attention.h: what core/attention and core/attention_bias share: cases, naive loops in double, and
   a case on all paths. */
#include "common.h"
#include "neo_run.h"

enum { MOST = 8, LARGEST = 40 }; /* sequences and buckets of a case */
typedef struct attention_case {
    neo_attention_desc desc;
    neo_attention_bias bias[2];
    int64_t sequences, dim, rows;
    int64_t offsets[MOST + 1], bounds[2][LARGEST], times[512], asked[512];
    box qkv, dy, table[2]; /* [rows][3 cols], [rows][cols] */
    box y, lse, dqkv, dtable[2], each[2]; /* what the calls write */
} attention_case;

static int64_t cols_of(const attention_case *c) { return c->desc.heads * c->dim; }
static neo_tensor third(const attention_case *c, neo_tensor t, int i) {
    return neo_tensor_slice(t, 1, i * cols_of(c), cols_of(c));
}
static neo_tensor integers(int64_t *data, int64_t count) {
    return neo_tensor_1d(data, NEO_I64, count);
}
/* Descriptors point into the case, so they are set where it stands. */
static void bind(attention_case *c) {
    c->desc.bias = c->desc.bias_count > 0 ? c->bias : NULL;
    for (int b = 0; b < c->desc.bias_count; b++) {
        neo_attention_bias *bias = &c->bias[b];
        bias->table = c->table[b].t, bias->dtable = c->dtable[b].t, bias->each = c->each[b].t;
        bias->bounds = integers(c->bounds[b], bias->table.shape[1] - 1);
        if (bias->times.ndim) bias->times = integers(c->times, c->rows);
        if (bias->asked.ndim) bias->asked = integers(c->asked, c->rows);
    }
}
static void case_is_jagged(attention_case *c) {
    c->desc.offsets = integers(c->offsets, c->sequences + 1);
}
/* Sequences of these lengths, behind `before` rows of none and with `behind` such at the end. */
static attention_case case_make(neo_attention_kind kind, int causal, int64_t heads, int64_t dim,
                             int64_t count, const int64_t *lengths, int64_t before,
                             int64_t behind) {
    attention_case c;
    memset(&c, 0, sizeof c);
    c.sequences = count, c.dim = dim, c.offsets[0] = before;
    c.desc.heads = heads, c.desc.causal = causal, c.desc.kind = kind, c.desc.length = 1;
    for (int64_t b = 0; b < count; b++) {
        c.offsets[b + 1] = c.offsets[b] + lengths[b];
        if (lengths[b] > c.desc.length) c.desc.length = lengths[b];
    }
    c.rows = c.offsets[count] + behind;
    const int64_t cols = cols_of(&c);
    c.qkv = box_make(c.rows, 3 * cols, 2), c.dy = box_make(c.rows, cols, 1);
    c.y = box_make(c.rows, cols, 3), c.lse = box_make(c.rows, heads, 1);
    c.dqkv = box_make(c.rows, 3 * cols, 5);
    for (int64_t i = 0; i < c.rows; i++) {
        if (i >= before && i < c.offsets[count]) continue;
        for (int64_t j = 0; j < 3 * cols; j++) row_of(c.qkv.t, i)[j] = NAN;
        for (int64_t j = 0; j < cols; j++) row_of(c.dy.t, i)[j] = NAN;
    }
    return c;
}
static void case_outputs(attention_case *c, const attention_case *from) {
    c->y = box_copy(from->y), c->lse = box_copy(from->lse), c->dqkv = box_copy(from->dqkv);
    for (int b = 0; b < c->desc.bias_count; b++)
        c->dtable[b] = box_copy(from->dtable[b]), c->each[b] = box_copy(from->each[b]);
}
static void outputs_free(attention_case *c) {
    free(c->y.block), free(c->lse.block), free(c->dqkv.block);
    for (int b = 0; b < c->desc.bias_count; b++) free(c->dtable[b].block), free(c->each[b].block);
}
static void case_free(attention_case *c) {
    outputs_free(c);
    free(c->qkv.block), free(c->dy.block);
    for (int b = 0; b < c->desc.bias_count; b++) free(c->table[b].block);
}
static neo_tensor lse_of(const attention_case *c) {
    return c->desc.kind == NEO_ATTENTION_SILU ? none : c->lse.t;
}
static neo_status forward(neo_ctx *ctx, attention_case *c) {
    bind(c);
    return neo_attention_forward(ctx, &c->desc, third(c, c->qkv.t, 0), third(c, c->qkv.t, 1),
                                 third(c, c->qkv.t, 2), c->y.t, lse_of(c));
}
static neo_status backward(neo_ctx *ctx, attention_case *c) {
    const neo_tensor y = c->desc.kind == NEO_ATTENTION_SILU ? none : c->y.t;
    bind(c);
    return neo_attention_backward(ctx, &c->desc, third(c, c->qkv.t, 0), third(c, c->qkv.t, 1),
                                  third(c, c->qkv.t, 2), y, lse_of(c), c->dy.t,
                                  third(c, c->dqkv.t, 0), third(c, c->dqkv.t, 1),
                                  third(c, c->dqkv.t, 2));
}

/* ---- in double ---- */
/* The bucket of rows i and j of the sequence from `first`: how many bounds are not above. */
static int64_t bucket_of(const attention_case *c, int b, int64_t first, int64_t i, int64_t j) {
    const neo_attention_bias *bias = &c->bias[b];
    const int64_t *asked = bias->asked.ndim ? c->asked : c->times;
    const uint64_t apart = (uint64_t)asked[first + i] - (uint64_t)c->times[first + j];
    const int64_t difference = bias->times.ndim ? (int64_t)apart : i - j;
    int64_t bucket = 0;
    for (int64_t n = 0; n < c->table[b].t.shape[1] - 1; n++)
        bucket += c->bounds[b][n] <= difference;
    return bucket;
}
typedef struct wanted {
    double *y, *lse, *dq, *dk, *dv, *each[2], *dtable[2];
} wanted;
static void reference_head(const attention_case *c, int64_t sequence, int64_t h, wanted *to) {
    const int64_t first = c->offsets[sequence], T = c->offsets[sequence + 1] - first, D = c->dim;
    const int64_t cols = cols_of(c);
    const double n = c->desc.divisor != 0 ? (double)c->desc.divisor : (double)c->desc.length;
    const double scale = c->desc.scale != 0 ? (double)c->desc.scale : 1 / sqrt((double)D);
#define IN(part, i, d) ((double)row_of(c->qkv.t, first + (i))[(part) * cols + h * D + (d)])
#define AT(i, d) ((first + (i)) * cols + h * D + (d))
    double *p = (double *)calloc((size_t)(3 * T + 1), sizeof *p), *slope = p + T, *dp = slope + T;
    for (int64_t i = 0; i < T; i++) {
        const int64_t seen = c->desc.causal ? i + 1 : T;
        const float *dy = row_of(c->dy.t, first + i) + h * D;
        double most = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j < seen; j++) {
            p[j] = dp[j] = 0;
            for (int64_t d = 0; d < D; d++) {
                p[j] += scale * IN(0, i, d) * IN(1, j, d);
                dp[j] += (double)dy[d] * IN(2, j, d);
            }
            for (int b = 0; b < c->desc.bias_count; b++)
                p[j] += (double)row_of(c->table[b].t, c->table[b].t.shape[0] > 1 ? h : 0)[bucket_of(
                    c, b, first, i, j)];
            most = p[j] > most ? p[j] : most;
        }
        for (int64_t j = 0; j < seen; j++) {
            const double s = p[j], gate = 1 / (1 + exp(-s));
            p[j] = c->desc.kind == NEO_ATTENTION_SILU ? s * gate / n : exp(s - most);
            slope[j] = gate * (1 + s * (1 - gate)) / n;
            sum += p[j];
        }
        to->lse[(first + i) * c->desc.heads + h] = most + log(sum);
        for (int64_t j = 0; j < seen && c->desc.kind == NEO_ATTENTION_SOFTMAX; j++) p[j] /= sum;
        for (int64_t j = 0; j < seen; j++) delta += p[j] * dp[j];
        for (int64_t j = 0; j < seen; j++) {
            const double ds =
                c->desc.kind == NEO_ATTENTION_SILU ? slope[j] * dp[j] : p[j] * (dp[j] - delta);
            for (int64_t d = 0; d < D; d++) {
                to->y[AT(i, d)] += p[j] * IN(2, j, d);
                to->dv[AT(j, d)] += p[j] * (double)dy[d];
                to->dq[AT(i, d)] += scale * ds * IN(1, j, d);
                to->dk[AT(j, d)] += scale * ds * IN(0, i, d);
            }
            for (int b = 0; b < c->desc.bias_count; b++) {
                const int64_t buckets = c->table[b].t.shape[1];
                const int64_t at = bucket_of(c, b, first, i, j);
                const int64_t head = c->table[b].t.shape[0] > 1 ? h : 0;
                to->each[b][(sequence * c->desc.heads + h) * buckets + at] += ds;
                to->dtable[b][head * buckets + at] += ds;
            }
        }
    }
    free(p);
}
/* by_rows: rows of no sequence are 0, and not -0. */
static void near(const attention_case *c, const char *what, neo_tensor got, const double *want,
                 int by_rows, double tol) {
    for (int64_t i = 0; i < got.shape[0]; i++)
        for (int64_t j = 0; j < got.shape[1]; j++) {
            const float g = row_of(got, i)[j];
            const double w = want[i * got.shape[1] + j];
            const int inside = i >= c->offsets[0] && i < c->offsets[c->sequences];
            if (!by_rows || inside ? fabs((double)g - w) <= tol * (1 + fabs(w))
                                   : g == 0 && !signbit(g))
                continue;
            FAIL("%s of kind %d, causal %d: [%d][%d] is %.9g, expected %.9g", what,
                 (int)c->desc.kind, c->desc.causal, (int)i, (int)j, (double)g, w);
            return;
        }
}
static void near_reference(const attention_case *c) {
    const int64_t size = c->rows * cols_of(c), lses = c->rows * c->desc.heads;
    const int64_t sums = (c->sequences + 1) * c->desc.heads * LARGEST;
    double *all = (double *)calloc((size_t)(4 * size + lses + 4 * sums + 1), sizeof *all);
    wanted want = {all, all + 4 * size, all + size, all + 2 * size, all + 3 * size, {0}, {0}};
    for (int b = 0; b < 2; b++) {
        want.each[b] = all + 4 * size + lses + 2 * b * sums;
        want.dtable[b] = want.each[b] + sums;
    }
    for (int64_t b = 0; b < c->sequences; b++)
        for (int64_t h = 0; h < c->desc.heads; h++) reference_head(c, b, h, &want);
    near(c, "y", c->y.t, want.y, 1, 3e-6);
    near(c, "dq", third(c, c->dqkv.t, 0), want.dq, 1, 6e-6);
    near(c, "dk", third(c, c->dqkv.t, 1), want.dk, 1, 6e-6);
    near(c, "dv", third(c, c->dqkv.t, 2), want.dv, 1, 6e-6);
    if (c->desc.kind == NEO_ATTENTION_SOFTMAX) near(c, "lse", c->lse.t, want.lse, 1, 3e-6);
    for (int b = 0; b < c->desc.bias_count; b++) {
        near(c, b ? "each of 1" : "each of 0", c->each[b].t, want.each[b], 0, 6e-6);
        near(c, b ? "dtable of 1" : "dtable of 0", c->dtable[b].t, want.dtable[b], 0, 2e-5);
    }
    free(all);
}
/* Beside its numbers a call leaves memory as it was. */
static void only_numbers(const attention_case *c, const attention_case *before) {
    const box *got[] = {&c->y, &c->dqkv}, *had[] = {&before->y, &before->dqkv};
    for (int k = 0; k < 2; k++) {
        box copy = box_copy(*got[k]);
        for (int64_t i = 0; i < c->rows; i++)
            memcpy(row_of(copy.t, i), row_of(had[k]->t, i),
                   (size_t)copy.t.shape[1] * sizeof(float));
        CHECK(box_same(copy, *had[k]));
        free(copy.block);
    }
}
static int same_outputs(const attention_case *a, const attention_case *b) {
    int same = box_same(a->y, b->y) && box_same(a->dqkv, b->dqkv) && box_same(a->lse, b->lse);
    for (int i = 0; i < a->desc.bias_count; i++)
        same &= box_same(a->dtable[i], b->dtable[i]) && box_same(a->each[i], b->each[i]);
    return same;
}
/* A case on all paths: near the reference, with the same bits. */
static void check_case(attention_case *c) {
    attention_case first, each = *c;
    for (int i = 0; i < context_count; i++) {
        case_outputs(&each, c);
        CHECK_OK(forward(contexts[i], &each));
        CHECK_OK(backward(contexts[i], &each));
        if (i == 0) {
            near_reference(&each);
            only_numbers(&each, c);
            first = each;
            continue;
        }
        if (!same_outputs(&each, &first))
            FAIL("kind %d, causal %d, %d heads of %d: %s with %d threads has other bits",
                 (int)c->desc.kind, c->desc.causal, (int)c->desc.heads, (int)c->dim,
                 neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]));
        outputs_free(&each);
    }
    outputs_free(&first);
}
static void contexts_make(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    context_count = 0;
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 5 && neo_isa_available(isas[i]); threads += 2)
            if (threads != 3 || i == 0 || i == 3 || !neo_isa_available(isas[i + 1]))
                contexts[context_count++] = test_ctx(threads, isas[i], 1);
}

/* ---- central differences of sum(dy * y) ---- */
typedef struct probe {
    neo_ctx *ctx;
    attention_case *c;
} probe;
static neo_status probe_loss(void *user, double *loss) {
    const probe *p = (const probe *)user;
    const attention_case *c = p->c;
    const neo_status status = forward(p->ctx, p->c);
    *loss = 0;
    for (int64_t i = c->offsets[0]; i < c->offsets[c->sequences]; i++)
        for (int64_t j = 0; j < cols_of(c); j++)
            *loss += (double)row_of(c->y.t, i)[j] * (double)row_of(c->dy.t, i)[j];
    return status;
}
