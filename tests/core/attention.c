/* Attention by SiLU, and of jagged batches (tests/core/transformer.c has softmax of equal lengths).

   Values and gradients are compared with naive loops in double, and with central differences; bits
   over instruction sets and numbers of threads, with the dense call of equal lengths, and with each
   sequence alone. Rows of no sequence are NaN in what a call reads, and 0 in what it writes. */
#include "attention.h"

/* ---- values ---- */
static void dense_by_silu(void) {
    static const int64_t lengths[] = {1, 2, 17, 64, 65, 130}, dims[] = {1, 8, 17, 64, 5, 100};
    contexts_make();
    for (int i = 0; i < 6; i++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t each[] = {lengths[i], lengths[i]};
            attention_case c = case_make(NEO_ATTENTION_SILU, causal, 1 + i % 3, dims[i], 2, each, 0,
                                         0);
            if (i % 2) c.desc.divisor = 37.5f, c.desc.scale = -0.3f;
            check_case(&c);
            case_free(&c);
        }
    contexts_free();
}
static void jagged(void) {
    static const int64_t lengths[][MOST] = {
        {0, 1, 7, 64, 65, 0, 130, 3}, {5, 0, 0, 63, 1, 128, 2, 0}, {0, 0, 0, 0, 0, 0, 0, 0}};
    contexts_make();
    for (int i = 0; i < 3 * 4; i++) {
        const int k = i / 4;
        attention_case c = case_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2 % 2,
                                     1 + k, k == 1 ? 17 : 8, MOST, lengths[k], k ? 70 : 0,
                                     i & 1 ? 100 : 5 * k);
        c.desc.length += k == 1 ? 1000 : 0; /* a bound need not be met */
        case_is_jagged(&c);
        check_case(&c);
        case_free(&c);
    }
    attention_case c = case_make(NEO_ATTENTION_SILU, 1, 2, 3, 0, NULL, 0, 9); /* no sequence */
    case_is_jagged(&c);
    check_case(&c);
    case_free(&c);
    contexts_free();
}
/* A sequence that is most of the batch is cut into parts, where there are threads for them. */
static void long_sequences(void) {
    static const int64_t lengths[] = {3, 400, 0, 20}, one = 270;
    contexts_make();
    for (int i = 0; i < 8; i++) {
        attention_case c = case_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2 % 2,
                                     1, 8, i < 4 ? 4 : 1, i < 4 ? lengths : &one, 2 * (i < 4), 0);
        if (i < 4) case_is_jagged(&c);
        check_case(&c);
        case_free(&c);
    }
    contexts_free();
}
/* By hand: of one key, the activation's bits, times 1/n, times v. */
static void one_key(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    const int64_t one = 1;
    for (int i = -20; i <= 20; i++) {
        attention_case c = case_make(NEO_ATTENTION_SILU, i & 1, 1, 1, 1, &one, 0, 0);
        float *x = row_of(c.qkv.t, 0), z = 0.37f * (float)i * x[1], act;
        x[0] = 0.37f * (float)i;
        c.desc.scale = 1, c.desc.divisor = 3;
        CHECK_OK(neo_activation_forward(ctx, NEO_ACT_SILU, neo_tensor_1d(&z, NEO_F32, 1),
                                        neo_tensor_1d(&act, NEO_F32, 1)));
        CHECK_OK(forward(ctx, &c));
        volatile float p = act * (1.0f / 3.0f), y = p * x[2]; /* each is rounded */
        CHECK(row_of(c.y.t, 0)[0] == y);
        case_free(&c);
    }
    neo_ctx_destroy(ctx);
}

/* ---- bits ---- */
/* Equal lengths: the dense call's bits, all rows being of a sequence. */
static void jagged_is_dense(void) {
    static const int64_t lengths[] = {1, 64, 100};
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    for (int i = 0; i < 3 * 4; i++) {
        const int64_t n = lengths[i / 4], each[] = {n, n, n, n};
        attention_case dense = case_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX,
                                         i / 2 % 2, 2, 12, 4, each, 0, 0);
        attention_case some = dense;
        case_outputs(&some, &dense);
        case_is_jagged(&some);
        CHECK_OK(forward(ctx, &dense));
        CHECK_OK(backward(ctx, &dense));
        CHECK_OK(forward(ctx, &some));
        CHECK_OK(backward(ctx, &some));
        CHECK(same_outputs(&some, &dense));
        outputs_free(&some);
        case_free(&dense);
    }
    neo_ctx_destroy(ctx);
}
/* Rows [first, first + n) of all boxes as a dense batch of one sequence. */
static attention_case case_alone(const attention_case *c, int64_t first, int64_t n) {
    attention_case one = *c;
    one.desc.offsets = none, one.desc.length = one.rows = n;
    box *boxes[] = {&one.qkv, &one.dy, &one.y, &one.lse, &one.dqkv};
    for (int k = 0; k < 5; k++) boxes[k]->t = neo_tensor_rows(boxes[k]->t, first, n);
    return one;
}
static void jagged_is_each_alone(void) {
    static const int64_t lengths[] = {3, 150, 0, 64, 1, 90};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int i = 0; i < 4; i++) {
        attention_case all = case_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2, 3,
                                       20, 6, lengths, 11, 4);
        if (i & 1) all.desc.divisor = 150;
        attention_case apart = all;
        case_outputs(&apart, &all);
        case_is_jagged(&all);
        CHECK_OK(forward(ctx, &all));
        CHECK_OK(backward(ctx, &all));
        for (int b = 0; b < 6; b++) {
            if (lengths[b] == 0) continue;
            attention_case one = case_alone(&apart, all.offsets[b], lengths[b]);
            CHECK_OK(forward(ctx, &one));
            CHECK_OK(backward(ctx, &one));
            for (int64_t r = all.offsets[b]; r < all.offsets[b + 1]; r++) {
                CHECK_BITS(row_of(apart.y.t, r), row_of(all.y.t, r), 60 * 4);
                CHECK_BITS(row_of(apart.dqkv.t, r), row_of(all.dqkv.t, r), 180 * 4);
                if (!(i & 1)) CHECK_BITS(row_of(apart.lse.t, r), row_of(all.lse.t, r), 3 * 4);
            }
        }
        outputs_free(&apart);
        case_free(&all);
    }
    neo_ctx_destroy(ctx);
}
/* The last queries of equal lengths by SiLU, as attention_queries of transformer.c has softmax. */
static void queries_by_silu(void) {
    enum { T = 130, Q = 70 };
    const int64_t each = T;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    attention_case all = case_make(NEO_ATTENTION_SILU, 1, 2, 8, 1, &each, 0, 0), last = all;
    case_outputs(&last, &all);
    CHECK_OK(forward(ctx, &all));
    last.desc.queries = Q;
    CHECK_OK(neo_attention_forward(
        ctx, &last.desc, neo_tensor_rows(third(&all, all.qkv.t, 0), T - Q, Q),
        third(&all, all.qkv.t, 1), third(&all, all.qkv.t, 2), neo_tensor_rows(last.y.t, 0, Q),
        none));
    for (int64_t i = 0; i < Q; i++)
        CHECK_BITS(row_of(last.y.t, i), row_of(all.y.t, T - Q + i), 16 * 4);
    outputs_free(&last);
    case_free(&all);
    neo_ctx_destroy(ctx);
}
/* Infinite scores and values, and products that underflow: all paths spoil the same sums. */
static void not_finite(void) {
    static const int64_t lengths[] = {70, 40};
    attention_case c = case_make(NEO_ATTENTION_SILU, 1, 1, 5, 2, lengths, 0, 0), first, each;
    row_of(c.qkv.t, 33)[1] = INFINITY;      /* of q: half of its scores are -infinity */
    row_of(c.qkv.t, 37)[2 * 5 + 1] = INFINITY; /* of v */
    row_of(c.dy.t, 45)[2] = INFINITY;
    for (int d = 0; d < 5; d++) {
        row_of(c.qkv.t, 71)[d] = 100, row_of(c.qkv.t, 70)[5 + d] = -1; /* silu(-223) is near 0 */
        row_of(c.qkv.t, 70)[10 + d] = 1e-30f, row_of(c.qkv.t, 71)[10 + d] = -0.0f;
    }
    case_is_jagged(&c);
    contexts_make();
    for (int i = 0; i < context_count; i++) {
        each = c;
        case_outputs(&each, &c);
        CHECK_OK(forward(contexts[i], &each));
        CHECK_OK(backward(contexts[i], &each));
        if (i == 0) first = each;
        for (int k = 0; k < 2; k++) {
            const box a = k ? each.dqkv : each.y, b = k ? first.dqkv : first.y;
            for (int64_t j = 0; j < a.count; j++)
                if (isnan(a.block[j]) ? !isnan(b.block[j])
                                      : memcmp(&a.block[j], &b.block[j], 4) != 0) {
                    FAIL("%s: %g, not %g", neo_isa_name(neo_ctx_isa(contexts[i])),
                         (double)a.block[j], (double)b.block[j]);
                    break;
                }
        }
        if (i > 0) outputs_free(&each);
    }
    CHECK(isnan(row_of(first.y.t, 40)[1]) || isinf(row_of(first.y.t, 40)[1]));
    outputs_free(&first);
    case_free(&c);
    contexts_free();
}

/* ---- central differences of sum(dy * y) ---- */
static void gradients(void) {
    static const int64_t lengths[] = {4, 0, 1, 3};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int i = 0; i < 4; i++) {
        attention_case c = case_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2, 2,
                                     3, 4, lengths, 0, 0);
        free(c.qkv.block), free(c.dqkv.block); /* rows next to each other, as gradcheck has them */
        c.qkv = box_make(c.rows, 18, 0), c.dqkv = box_make(c.rows, 18, 0);
        case_is_jagged(&c);
        if (i & 1) c.desc.divisor = 2, c.desc.scale = 1.25f;
        probe p = {ctx, &c};
        CHECK_OK(forward(ctx, &c));
        CHECK_OK(backward(ctx, &c));
        neo_gradcheck_desc d;
        memset(&d, 0, sizeof d);
        d.loss = probe_loss, d.user = &p, d.name = "dq, dk, dv", d.rel_tol = 2e-3, d.abs_tol = 1e-3;
        d.value = c.qkv.t, d.grad = c.dqkv.t;
        CHECK_OK(neo_gradcheck(&d, NULL));
        case_free(&c);
    }
    neo_ctx_destroy(ctx);
}

/* ---- errors ---- */
static void errors(void) {
    static const int64_t lengths[] = {4, 2, 3};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    attention_case c = case_make(NEO_ATTENTION_SOFTMAX, 1, 2, 3, 3, lengths, 0, 1), had;
    had = c;
    case_outputs(&had, &c);
    case_is_jagged(&c);
    c.offsets[2] = 3;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_FORMAT, "offsets decrease at sequence 1, from 4 to 3");
    CHECK_ERR(backward(ctx, &c), NEO_ERR_FORMAT, "neo_attention_backward: offsets decrease");
    c.offsets[2] = 6, c.offsets[3] = 11, c.desc.length = 5;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_RANGE, "sequence 2 has rows 6 .. 11 of 10");
    c.offsets[3] = 9, c.offsets[0] = -1;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_RANGE, "sequence 0 has rows -1 .. 4 of 10");
    c.offsets[0] = 0, c.desc.length = 3;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_RANGE, "0 has rows 0 .. 4, more than a length of 3");
    c.desc.length = 4, c.desc.queries = 1;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_UNSUPPORTED, "queries with offsets");
    CHECK_ERR(backward(ctx, &c), NEO_ERR_UNSUPPORTED, "queries are of a forward alone");
    c.desc.queries = 0;
    c.desc.offsets = neo_tensor_1d(c.offsets, NEO_F32, 4);
    CHECK_ERR(forward(ctx, &c), NEO_ERR_SHAPE, "offsets is not a contiguous i64 tensor [B + 1]");
    c.desc.offsets = neo_tensor_1d(c.offsets, NEO_I64, 0);
    CHECK_ERR(forward(ctx, &c), NEO_ERR_SHAPE, "offsets is not a contiguous i64 tensor [B + 1]");
    case_is_jagged(&c);
    c.desc.offsets.data = NULL, c.desc.offsets.absent = "it was not read";
    CHECK_ERR(forward(ctx, &c), NEO_ERR_STATE, "offsets has no data, it was not read");
    c.desc.offsets.absent = NULL, c.desc.length = 5; /* rows that would be whole sequences */
    CHECK_ERR(forward(ctx, &c), NEO_ERR_SHAPE, "offsets has no data");
    c.desc.length = 4;
    c.desc.offsets = neo_tensor_1d(row_of(c.y.t, 0), NEO_I64, 4);
    CHECK_ERR(forward(ctx, &c), NEO_ERR_ARG, "y overlaps offsets");
    case_is_jagged(&c);
    c.desc.divisor = 2;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_ARG, "a divisor of 2, without SiLU");
    c.desc.kind = (neo_attention_kind)2;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_ARG, "no kind has number 2");
    c.desc.kind = NEO_ATTENTION_SILU;
    static const float bad[] = {-1.0f, INFINITY, NAN, 1e-39f}; /* the last has no finite inverse */
    for (int i = 0; i < 4; i++) {
        c.desc.divisor = bad[i];
        CHECK_ERR(forward(ctx, &c), NEO_ERR_ARG, "not a normal number above 0");
    }
    c.desc.divisor = 0;
    had.dy.t.dtype = NEO_BF16;
    CHECK_ERR(neo_attention_backward(ctx, &c.desc, third(&c, c.qkv.t, 0), third(&c, c.qkv.t, 1),
                                     third(&c, c.qkv.t, 2), none, none, had.dy.t, none, none, none),
              NEO_ERR_UNSUPPORTED, "dy is bf16");
    CHECK_ERR(neo_attention_forward(ctx, &c.desc, third(&c, c.qkv.t, 0), third(&c, c.qkv.t, 1),
                                    third(&c, c.qkv.t, 2), c.y.t, c.lse.t),
              NEO_ERR_ARG, "SiLU has no lse");
    CHECK(same_outputs(&c, &had));
    outputs_free(&had);
    case_free(&c);
    neo_ctx_destroy(ctx);
}
/* Of numbers that are not finite those are named that a sequence reads, not those behind them. */
static void named(void) {
    static const int64_t lengths[] = {3, 2};
    neo_ctx *ctx;
    REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 1, .check_finite = 1}, &ctx));
    attention_case c = case_make(NEO_ATTENTION_SILU, 0, 1, 2, 2, lengths, 0, 3);
    case_is_jagged(&c);
    CHECK_OK(forward(ctx, &c));
    CHECK_OK(backward(ctx, &c));
    row_of(c.qkv.t, 4)[4] = NAN;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_NUMERIC, "y[3][0] is nan, from v[4][0], which is nan");
    case_free(&c);
    neo_ctx_destroy(ctx);
}
/* A length that no sequence comes near, the largest number, changes nothing. */
static void bounded(void) {
    static const int64_t lengths[] = {70, 0, 3};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    attention_case c = case_make(NEO_ATTENTION_SOFTMAX, 1, 2, 8, 3, lengths, 2, 2), had;
    case_is_jagged(&c);
    CHECK_OK(forward(ctx, &c));
    CHECK_OK(backward(ctx, &c));
    had = c;
    case_outputs(&had, &c);
    c.desc.length = INT64_MAX;
    CHECK_OK(forward(ctx, &c));
    CHECK_OK(backward(ctx, &c));
    CHECK(same_outputs(&c, &had));
    outputs_free(&had);
    case_free(&c);
    neo_ctx_destroy(ctx);
}
/* Nothing here asks the allocator for memory. */
static void memory(void) {
    static const int64_t lengths[] = {70, 0, 3};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    attention_case c = case_make(NEO_ATTENTION_SILU, 1, 2, 8, 3, lengths, 2, 2);
    case_is_jagged(&c);
    const int64_t before = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(forward(ctx, &c));
    CHECK_OK(backward(ctx, &c));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, before);
    case_free(&c);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(dense_by_silu);
    RUN(jagged);
    RUN(long_sequences);
    RUN(one_key);
    RUN(jagged_is_dense);
    RUN(jagged_is_each_alone);
    RUN(queries_by_silu);
    RUN(not_finite);
    RUN(gradients);
    RUN(errors);
    RUN(named);
    RUN(bounded);
    RUN(memory);
    return test_end("core/attention");
}
