/* Biases of attention's scores: by rows, by times, both, of each head and of all.

   Values and gradients are compared with naive loops in double, the table's gradient with central
   differences, too; bits over instruction sets and numbers of threads, of each sequence alone, and
   of leaves that are computed one by one. A table of zeros is no bias, in bits. */
#include "attention.h"

/* How a bias is. */
enum { BY_TIMES = 1, BY_ASKED = 2, OF_ALL_HEADS = 4, CLIPPED = 8 };
static void case_add(attention_case *c, int how) {
    const int b = c->desc.bias_count++;
    const int64_t buckets = how & CLIPPED ? 1 + (int64_t)(test_random() % 9) : LARGEST;
    int64_t at = how & BY_TIMES ? -3 : -buckets / 2;
    for (int64_t n = 0; n < buckets - 1; n++) {
        c->bounds[b][n] = at;
        if (n % 5 != 2) /* else two are equal, and no difference is between them */
            at += how & BY_TIMES ? 1 + n * n * (int64_t)(test_random() % 3) : 1 + n / 12;
    }
    c->table[b] = box_make(how & OF_ALL_HEADS ? 1 : c->desc.heads, buckets, 3);
    c->dtable[b] = box_make(how & OF_ALL_HEADS ? 1 : c->desc.heads, buckets, 0);
    c->each[b] = box_make(c->sequences * c->desc.heads, buckets, 0);
    c->bias[b].times.ndim = how & BY_TIMES, c->bias[b].asked.ndim = !!(how & BY_ASKED);
}
/* A case with times; jagged: with 2 rows of none before the sequences and 3 behind. */
static attention_case timed_make(neo_attention_kind kind, int causal, int64_t heads, int64_t dim,
                                 int64_t count, const int64_t *lengths, int jagged) {
    attention_case c =
        case_make(kind, causal, heads, dim, count, lengths, jagged ? 2 : 0, jagged ? 3 : 0);
    int64_t time = 0;
    c.desc.offsets.ndim = jagged;
    for (int64_t i = 0; i < c.rows; i++) {
        c.times[i] = time += test_random() % 40;
        c.asked[i] = time + test_random() % 40;
    }
    if (c.rows > 20) /* some that are out of order, or so far apart that differences wrap */
        c.times[7] = -500, c.times[9] = INT64_MIN, c.asked[11] = INT64_MAX, c.times[15] = 1 << 30;
    return c;
}

/* ---- values ---- */
static const int hows[][2] = {{0, -1},
                              {BY_TIMES, -1},
                              {CLIPPED | OF_ALL_HEADS, BY_TIMES | BY_ASKED},
                              {BY_TIMES | OF_ALL_HEADS, 0},
                              {BY_TIMES | CLIPPED, BY_TIMES | BY_ASKED | OF_ALL_HEADS}};
static void add_both(attention_case *c, int i) {
    if (c->desc.offsets.ndim) case_is_jagged(c);
    for (int b = 0; b < 2; b++)
        if (hows[i][b] >= 0) case_add(c, hows[i][b]);
}
static void dense(void) {
    static const int64_t lengths[] = {1, 5, 64, 65, 130}, dims[] = {8, 17, 1, 64, 12};
    contexts_make();
    for (int i = 0; i < 5 * 4; i++) {
        const int64_t each[] = {lengths[i % 5], lengths[i % 5]};
        attention_case c = timed_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2 % 2,
                                      1 + i % 3, dims[(i + i / 5) % 5], 2, each, 0);
        if (i % 3 == 1) c.desc.scale = -0.3f;
        if (i & 1) c.desc.divisor = 12.5f;
        add_both(&c, (i + i / 5) % 5);
        check_case(&c);
        case_free(&c);
    }
    contexts_free();
}
static void jagged(void) {
    static const int64_t lengths[][MOST] = {{0, 1, 7, 64, 65, 0, 130, 3}, {5, 0, 0, 63, 1, 128, 2}};
    const int64_t nothing[MOST] = {0};
    contexts_make();
    for (int i = 0; i < 20; i++) {
        attention_case c = timed_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2 % 2,
                                      1 + i % 3, 9, MOST, i == 19 ? nothing : lengths[i / 5 % 2],
                                      1);
        add_both(&c, i % 5);
        check_case(&c);
        case_free(&c);
    }
    attention_case c = timed_make(NEO_ATTENTION_SILU, 1, 2, 3, 0, NULL, 1); /* no sequence */
    add_both(&c, 2);
    check_case(&c);
    case_free(&c);
    contexts_free();
}

/* A sequence that is most of the batch is cut into parts, one of them for the tables. */
static void long_sequences(void) {
    static const int64_t lengths[] = {3, 400, 0, 20};
    contexts_make();
    for (int i = 0; i < 4; i++) {
        attention_case c = timed_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2, 2,
                                      8, 4, lengths, 1);
        add_both(&c, 2 + i % 3);
        check_case(&c);
        case_free(&c);
    }
    contexts_free();
}

/* ---- bits ---- */
/* Of a softmax a table of zeros changes no bit: products times scale are rounded as without. */
static void zeros(void) {
    static const int64_t lengths[] = {130, 3, 70};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int causal = 0; causal < 2; causal++) {
        attention_case c = timed_make(NEO_ATTENTION_SOFTMAX, causal, 2, 20, 3, lengths, 1), bare;
        add_both(&c, 2);
        for (int b = 0; b < 2; b++)
            for (int64_t h = 0; h < c.table[b].t.shape[0]; h++)
                memset(row_of(c.table[b].t, h), 0, (size_t)c.table[b].t.shape[1] * sizeof(float));
        bare = c;
        bare.desc.bias_count = 0;
        case_outputs(&bare, &c);
        CHECK_OK(forward(ctx, &c));
        CHECK_OK(backward(ctx, &c));
        CHECK_OK(forward(ctx, &bare));
        CHECK_OK(backward(ctx, &bare));
        CHECK(same_outputs(&bare, &c));
        outputs_free(&bare);
        case_free(&c);
    }
    neo_ctx_destroy(ctx);
}
/* By hand: one query and key; the first bound that is not above the difference of 0 is the last. */
static void one_key(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    const int64_t one = 1;
    attention_case c = timed_make(NEO_ATTENTION_SILU, 1, 1, 1, 1, &one, 0);
    float *x = row_of(c.qkv.t, 0), z, act;
    case_add(&c, 0);
    for (int64_t n = 0; n < LARGEST - 1; n++) c.bounds[0][n] = n - 20;
    x[0] = 0.3f, x[1] = 1.7f, c.desc.scale = 0.7f, c.desc.divisor = 3;
    volatile float s = x[0] * x[1], t = s * 0.7f; /* each is rounded */
    z = t + row_of(c.table[0].t, 0)[21];
    CHECK_OK(neo_activation_forward(ctx, NEO_ACT_SILU, neo_tensor_1d(&z, NEO_F32, 1),
                                    neo_tensor_1d(&act, NEO_F32, 1)));
    CHECK_OK(forward(ctx, &c));
    volatile float p = act * (1.0f / 3.0f), y = p * x[2];
    CHECK(row_of(c.y.t, 0)[0] == y);
    CHECK_OK(backward(ctx, &c));
    for (int64_t n = 0; n < LARGEST; n++) {
        CHECK((row_of(c.dtable[0].t, 0)[n] != 0) == (n == 21));
        CHECK(row_of(c.each[0].t, 0)[n] == row_of(c.dtable[0].t, 0)[n]);
    }
    case_free(&c);
    neo_ctx_destroy(ctx);
}
/* Leaf by leaf, as ranks have them: what a sequence adds has the same bits, and dtable is the tree
   sum of the leaves'. */
static void leaves(void) {
    static const int64_t lengths[] = {3, 90, 0, 64, 1, 70, 5};
    for (int shards = 1; shards <= 5; shards++) {
        neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, shards);
        attention_case all = timed_make(NEO_ATTENTION_SILU, 1, 2, 4, 7, lengths, 1);
        add_both(&all, 2);
        CHECK_OK(forward(ctx, &all));
        CHECK_OK(backward(ctx, &all));
        box parts[5][2];
        neo_tensor part_tensors[2][5];
        for (int v = 0; v < shards; v++) {
            attention_case one = all;
            case_outputs(&one, &all);
            const int64_t begin = neo_leaf_begin(7, shards, v);
            const neo_leaves leaf = {7, v, 1, 33};
            one.sequences = neo_leaf_begin(7, shards, v + 1) - begin, one.desc.leaves = &leaf;
            for (int64_t i = 0; i <= one.sequences; i++) one.offsets[i] = all.offsets[begin + i];
            case_is_jagged(&one);
            for (int b = 0; b < 2; b++) one.each[b].t.shape[0] = 2 * one.sequences;
            CHECK_OK(backward(ctx, &one));
            for (int b = 0; b < 2; b++) {
                const int64_t buckets = one.each[b].t.shape[1];
                CHECK_BITS(one.each[b].t.data, row_of(all.each[b].t, 2 * begin),
                           (size_t)(2 * one.sequences * buckets) * sizeof(float));
                parts[v][b] = box_copy(one.dtable[b]), part_tensors[b][v] = parts[v][b].t;
            }
            outputs_free(&one);
        }
        for (int b = 0; b < 2; b++) {
            box sum = box_copy(all.dtable[b]);
            CHECK_OK(neo_tree_sum(ctx, part_tensors[b], shards, sum.t));
            CHECK(box_same(sum, all.dtable[b]));
            free(sum.block);
            for (int v = 0; v < shards; v++) free(parts[v][b].block);
        }
        case_free(&all);
        neo_ctx_destroy(ctx);
    }
}
/* The last queries alone have the bits that they have among all. */
static void queries(void) {
    enum { T = 130, Q = 70 };
    const int64_t each[] = {T, T};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    attention_case all = timed_make(NEO_ATTENTION_SOFTMAX, 1, 2, 8, 2, each, 0), last = all;
    add_both(&all, 2);
    CHECK_OK(forward(ctx, &all));
    last = all;
    last.y = box_make(2 * Q, 16, 0), last.desc.queries = Q;
    box q = box_make(2 * Q, 16, 0);
    for (int64_t i = 0; i < 2 * Q; i++)
        memcpy(row_of(q.t, i), row_of(all.qkv.t, i / Q * T + T - Q + i % Q), 16 * sizeof(float));
    bind(&last);
    CHECK_OK(neo_attention_forward(ctx, &last.desc, q.t, third(&all, all.qkv.t, 1),
                                   third(&all, all.qkv.t, 2), last.y.t, none));
    for (int64_t i = 0; i < 2 * Q; i++)
        CHECK_BITS(row_of(last.y.t, i), row_of(all.y.t, i / Q * T + T - Q + i % Q), 16 * 4);
    free(q.block), free(last.y.block);
    case_free(&all);
    neo_ctx_destroy(ctx);
}

/* ---- central differences of sum(dy * y) ---- */
static void gradients(void) {
    static const int64_t lengths[] = {4, 0, 1, 5};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int i = 0; i < 4; i++) {
        attention_case c = timed_make(i & 1 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX, i / 2, 2,
                                      3, 4, lengths, 1);
        add_both(&c, 2 + i % 3);
        probe p = {ctx, &c};
        CHECK_OK(forward(ctx, &c));
        CHECK_OK(backward(ctx, &c));
        for (int b = 0; b < 2; b++) {
            free(c.table[b].block); /* rows next to each other, as gradcheck has them */
            c.table[b] = box_make(c.dtable[b].t.shape[0], c.dtable[b].t.shape[1], 0);
        }
        CHECK_OK(forward(ctx, &c));
        CHECK_OK(backward(ctx, &c));
        for (int b = 0; b < 2; b++) {
            neo_gradcheck_desc d;
            memset(&d, 0, sizeof d);
            d.loss = probe_loss, d.user = &p, d.name = "dtable", d.rel_tol = 2e-3;
            d.abs_tol = 1e-3, d.value = c.table[b].t, d.grad = c.dtable[b].t;
            CHECK_OK(neo_gradcheck(&d, NULL));
        }
        case_free(&c);
    }
    neo_ctx_destroy(ctx);
}

/* ---- errors ---- */
static neo_status plain(neo_ctx *ctx, const attention_case *c, int back) { /* without bind */
    const neo_tensor q = third(c, c->qkv.t, 0), k = third(c, c->qkv.t, 1);
    const neo_tensor v = third(c, c->qkv.t, 2);
    return back ? neo_attention_backward(ctx, &c->desc, q, k, v, c->y.t, lse_of(c), c->dy.t, none,
                                         none, none)
                : neo_attention_forward(ctx, &c->desc, q, k, v, c->y.t, lse_of(c));
}
#define REFUSES(back, change, status, text)                                                        \
    do {                                                                                           \
        bind(&c);                                                                                  \
        change;                                                                                    \
        CHECK_ERR(plain(ctx, &c, back), status, text);                                             \
        c.bias[0] = kept[0], c.bias[1] = kept[1], c.desc = desc;                                   \
    } while (0)
static void errors(void) {
    static const int64_t lengths[] = {4, 2, 3};
    static int64_t wide[NEO_MAX_TIME_BUCKETS];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 2);
    attention_case c = timed_make(NEO_ATTENTION_SILU, 1, 2, 3, 3, lengths, 1), had;
    add_both(&c, 2);
    box many = box_make(1, NEO_MAX_TIME_BUCKETS, 0);
    had = c;
    case_outputs(&had, &c);
    bind(&c);
    const neo_attention_bias kept[2] = {c.bias[0], c.bias[1]};
    const neo_attention_desc desc = c.desc;
    const neo_leaves bad = {3, 0, 1, 0};
    int64_t *bound = c.bounds[1];
    for (int64_t i = 0; i < NEO_MAX_TIME_BUCKETS; i++) wide[i] = i;
    for (int back = 0; back < 2; back++) {
        REFUSES(back, c.desc.bias_count = 3, NEO_ERR_ARG, "bias_count is 3, not in [1, 2]");
        REFUSES(back, c.desc.bias_count = 0, NEO_ERR_ARG, "bias_count is 0, not in [1, 2]");
        REFUSES(back, c.desc.bias = NULL, NEO_ERR_ARG, "bias is NULL");
        REFUSES(back, c.bias[1].table.shape[0] = 3, NEO_ERR_SHAPE,
                "bias[1].table is [3][40], expected [2][40]");
        REFUSES(back, c.bias[0].table.shape[1] = 0, NEO_ERR_SHAPE, "bias[0].table has no buckets");
        REFUSES(back, c.bias[0].table = none, NEO_ERR_SHAPE, "bias[0].table is none");
        REFUSES(back, c.bias[1].bounds.shape[0] = 40, NEO_ERR_SHAPE,
                "bias[1].bounds is not a contiguous i64 tensor [39]");
        REFUSES(back, c.bias[1].bounds = none, NEO_ERR_SHAPE, "bias[1].bounds is not");
        REFUSES(back, c.bias[1].bounds.data = NULL, NEO_ERR_SHAPE, "bias[1].bounds has no data");
        const int64_t was = bound[5];
        bound[5] = bound[4] - 1;
        CHECK_ERR(plain(ctx, &c, back), NEO_ERR_FORMAT, "bias[1].bounds decrease at 5");
        bound[5] = was;
        REFUSES(back, c.bias[1].times.dtype = NEO_I32, NEO_ERR_SHAPE,
                "bias[1].times is not a contiguous i64 tensor [14]");
        REFUSES(back, c.bias[1].asked.shape[0] = 13, NEO_ERR_SHAPE,
                "bias[1].asked is not a contiguous i64 tensor [14]");
        REFUSES(back, c.bias[1].times = none, NEO_ERR_ARG, "bias[1].asked without times");
        REFUSES(back,
                (c.bias[0] = c.bias[1], c.bias[0].table = many.t, c.bias[0].dtable = none,
                 c.bias[0].bounds = integers(wide, NEO_MAX_TIME_BUCKETS - 1)),
                NEO_ERR_UNSUPPORTED, "4136 buckets by times, more than 4096");
    }
    REFUSES(0, c.bias[0].table.data = row_of(c.y.t, 0), NEO_ERR_ARG, "y overlaps bias[0].table");
    REFUSES(1, c.bias[1].each = none, NEO_ERR_ARG, "bias[1].dtable without each");
    REFUSES(1, c.bias[1].each.shape[0] = 3, NEO_ERR_SHAPE, "bias[1].each is [3][40], expected [6]");
    REFUSES(1, c.bias[1].each.stride[0] = 41, NEO_ERR_SHAPE, "bias[1].each is not contiguous");
    REFUSES(1, c.bias[1].dtable.shape[0] = 1, NEO_ERR_SHAPE, "bias[1].dtable is [1][40]");
    REFUSES(1, c.bias[1].each = c.dy.t, NEO_ERR_SHAPE, "bias[1].each is [14][6], expected [6][40]");
    REFUSES(1, c.bias[1].each.data = c.bias[1].dtable.data, NEO_ERR_ARG,
            "bias[1].dtable overlaps bias[1].each");
    REFUSES(1, c.bias[1].dtable.data = row_of(c.dy.t, 0), NEO_ERR_ARG,
            "bias[1].dtable overlaps dy");
    REFUSES(1, c.desc.leaves = &bad, NEO_ERR_SHAPE,
            "leaves [0, 1) of 2 hold 1 samples of a batch of 3");
    CHECK(same_outputs(&c, &had));
    free(many.block);
    outputs_free(&had);
    case_free(&c);
    neo_ctx_destroy(ctx);
}
/* A number of a table that is not finite is named. Nothing here asks the allocator for memory. */
static void named(void) {
    static const int64_t lengths[] = {3, 3};
    neo_ctx *ctx;
    REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 2, .check_finite = 1}, &ctx));
    attention_case c = timed_make(NEO_ATTENTION_SILU, 1, 1, 2, 2, lengths, 0);
    case_add(&c, BY_TIMES);
    CHECK_OK(forward(ctx, &c));
    const int64_t before = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(backward(ctx, &c));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, before);
    for (int64_t n = 0; n < LARGEST; n++) row_of(c.table[0].t, 0)[n] = NAN;
    CHECK_ERR(forward(ctx, &c), NEO_ERR_NUMERIC, "from bias[0].table[0][0], which is nan");
    case_free(&c);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(dense);
    RUN(jagged);
    RUN(long_sequences);
    RUN(zeros);
    RUN(one_key);
    RUN(leaves);
    RUN(queries);
    RUN(gradients);
    RUN(errors);
    RUN(named);
    return test_end("core/attention_bias");
}
