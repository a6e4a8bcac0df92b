/* gpt.c: layer norm, RMS norm, attention and embedding, and a whole small GPT, against
   PyTorch (tests/golden/make_gpt.py).

   The GPT: 2 layers, vocabulary 65, width 32, 4 heads, 6 sequences of 16 positions, trained 10
   steps with AdamW. Compared: the logits and gradients of the first step, the loss of each, the
   final weights, to 1e-5 of each tensor's largest magnitude. It is trained whole, and leaf by leaf
   as ranks do it; the second must have the same bits on every instruction set and number of
   threads. */
#include "common.h"

#include "gpt_model.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- layers ---- */
static void norms(void) {
    static const char *const names[] = {"small", "wide", "one"};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(names); i++) {
            int mark = golden_block_count;
            const char *name = names[i];
            neo_tensor x = golden("norm.%s.x", name), w = golden("norm.%s.w", name);
            neo_tensor b = golden("norm.%s.b", name), dy = golden("norm.%s.dy", name),
                       y = golden_like(x);
            neo_tensor dx = golden_like(x), dw = golden_like(w), db = golden_like(w);
            int64_t shape[2] = {x.shape[0], 2};
            neo_tensor stats =
                neo_tensor_nd(golden_alloc((size_t)x.shape[0] * 8), NEO_F32, 2, shape);
            CHECK_OK(neo_layer_norm_forward(ctx, x, w, b, 1e-5f, y, stats));
            CHECK_OK(neo_layer_norm_backward(ctx, NULL, x, w, stats, dy, dx, dw, db));
            golden_check(y, "norm.%s.layer.y", name);
            golden_check(db, "norm.%s.layer.db", name);
            const int one = x.shape[1] == 1; /* then x - mean is zero, and with it dx and dw */
            golden_check_each(dx, 1e-5, one ? 1e-12 : 1e-6, "norm.%s.layer.dx", name);
            golden_check_each(dw, 1e-5, one ? 1e-12 : 1e-6, "norm.%s.layer.dw", name);
            stats = neo_tensor_1d(stats.data, NEO_F32, x.shape[0]);
            CHECK_OK(neo_rms_norm_forward(ctx, x, w, 1e-5f, y, stats));
            CHECK_OK(neo_rms_norm_backward(ctx, NULL, x, w, stats, dy, dx, dw));
            golden_check(y, "norm.%s.rms.y", name);
            golden_check(dw, "norm.%s.rms.dw", name);
            if (x.shape[1] > 1) golden_check(dx, "norm.%s.rms.dx", name);
            else
                golden_check_each(dx, 1e-5, 1e-6, "norm.%s.rms.dx",
                                  name); /* eps/x^3: what cancels */
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

/* As ATTENTION in make_gpt.py. */
static const struct attention_golden {
    const char *name;
    neo_attention_desc desc;
} attentions[] = {
    {"causal", {12, 3, 1, 0, .dtype = NEO_F32}},
    {"full", {12, 3, 0, 0, .dtype = NEO_F32}},
    {"long", {150, 1, 1, 0, .dtype = NEO_F32}},
    {"long_full", {70, 2, 0, 0.3f, .dtype = NEO_F32}},
    {"one", {1, 2, 1, 0, .dtype = NEO_F32}},
};
static void attention(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(attentions); i++) {
            int mark = golden_block_count;
            const char *n = attentions[i].name;
            const neo_attention_desc *d = &attentions[i].desc;
            neo_tensor q = golden("attention.%s.q", n), k = golden("attention.%s.k", n);
            neo_tensor v = golden("attention.%s.v", n), dy = golden("attention.%s.dy", n),
                       y = golden_like(q);
            neo_tensor dq = golden_like(q), dk = golden_like(q), dv = golden_like(q);
            int64_t shape[2] = {q.shape[0], d->heads};
            neo_tensor lse =
                neo_tensor_nd(golden_alloc((size_t)(shape[0] * shape[1]) * 4), NEO_F32, 2, shape);
            CHECK_OK(neo_attention_forward(ctx, d, q, k, v, y, lse));
            CHECK_OK(neo_attention_backward(ctx, d, q, k, v, y, lse, dy, dq, dk, dv));
            golden_check(y, "attention.%s.y", n);
            golden_check(dv, "attention.%s.dv", n);
            if (d->length > 1) {
                golden_check(dq, "attention.%s.dq", n);
                golden_check(dk, "attention.%s.dk", n);
            } else { /* one key: the softmax is constant */
                golden_check_each(dq, 1e-5, 1e-5, "attention.%s.dq", n);
                golden_check_each(dk, 1e-5, 1e-5, "attention.%s.dk", n);
            }
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}
/* As JAGGED in make_gpt.py. */
static const struct attention_golden jaggeds[] = {
    {"silu", {70, 2, 1, .kind = NEO_ATTENTION_SILU}},
    {"silu_full", {66, 1, 0, -0.7f, .kind = NEO_ATTENTION_SILU, .divisor = 12}},
    {"softmax", {68, 2, 1, .kind = NEO_ATTENTION_SOFTMAX}},
    {"softmax_full", {65, 1, 0, 0.4f, .kind = NEO_ATTENTION_SOFTMAX}},
};
static void jagged_attention(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(jaggeds); i++) {
            int mark = golden_block_count;
            const char *n = jaggeds[i].name;
            neo_attention_desc d = jaggeds[i].desc;
            neo_tensor q = golden("jagged.%s.q", n), k = golden("jagged.%s.k", n);
            neo_tensor v = golden("jagged.%s.v", n), dy = golden("jagged.%s.dy", n);
            neo_tensor y = golden_like(q), dq = golden_like(q), dk = golden_like(q);
            neo_tensor dv = golden_like(q), lse = neo_tensor_none();
            int64_t shape[2] = {q.shape[0], d.heads};
            if (d.kind == NEO_ATTENTION_SOFTMAX)
                lse = neo_tensor_nd(golden_alloc((size_t)(shape[0] * shape[1]) * 4), NEO_F32, 2,
                                    shape);
            d.offsets = golden("jagged.%s.offsets", n);
            CHECK_OK(neo_attention_forward(ctx, &d, q, k, v, y, lse));
            CHECK_OK(neo_attention_backward(ctx, &d, q, k, v, y, lse, dy, dq, dk, dv));
            golden_check(y, "jagged.%s.y", n);
            golden_check(dq, "jagged.%s.dq", n);
            golden_check(dk, "jagged.%s.dk", n);
            golden_check(dv, "jagged.%s.dv", n);
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

static void embedding(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        int mark = golden_block_count;
        neo_tensor ids = golden("embedding.ids"), table = golden("embedding.table");
        neo_tensor dy = golden("embedding.dy"), y = golden_like(dy), dtable = golden_like(table);
        CHECK_OK(neo_embedding_forward(ctx, ids, table, y));
        CHECK_OK(neo_embedding_backward(ctx, NULL, ids, dy, dtable, 0));
        golden_check_each(y, 0, 0, "embedding.y");
        golden_check(dtable, "embedding.dtable");
        golden_release(mark);
        neo_ctx_destroy(ctx);
    }
}

/* ---- a GPT ---- */
enum { LENGTH = 16, BATCH = 6, STEPS = 10, PARAMS = 64, LEAVES_MAX = 4 };
static const gpt_desc desc = {65, 32, 4, LENGTH, 2, BATCH};
typedef struct trainer {
    neo_ctx *ctx;
    neo_params *params;
    neo_optim *optim;
    neo_state *state;
    gpt model;
    neo_tensor part[LEAVES_MAX][PARAMS]; /* gradients of each leaf */
} trainer;

static neo_status trainer_create(trainer *t) {
    neo_optim_desc adamw;
    memset(&adamw, 0, sizeof adamw);
    adamw.kind = NEO_OPTIM_ADAMW;
    adamw.beta2 = 0.95;
    adamw.weight_decay = 0.1f;
    GPT_TRY(neo_params_create(t->ctx, &t->params));
    GPT_TRY(gpt_create(t->ctx, t->params, &desc, &t->model));
    GPT_TRY(neo_optim_create(t->ctx, t->params, &adamw, &t->optim));
    GPT_TRY(neo_state_create(t->ctx, &t->state));
    GPT_TRY(neo_state_add_params(t->state, t->params));
    GPT_TRY(neo_state_add_optim(t->state, t->optim));
    for (int i = 0; i < neo_params_count(t->params); i++) {
        const neo_param *p = neo_params_at(t->params, i);
        GPT_TRY(neo_tensor_copy(t->ctx, golden("init.%s", p->name), p->value));
        for (int v = 0; v < LEAVES_MAX; v++) t->part[v][i] = golden_like(p->grad);
    }
    return NEO_OK;
}
static void trainer_destroy(trainer *t) {
    neo_state_destroy(t->state);
    neo_optim_destroy(t->optim);
    gpt_destroy(&t->model);
    neo_params_destroy(t->params);
}
/* Forward and backward of one leaf; its gradients are in the parameters then. */
static neo_status leaf_step(trainer *t, int leaf, neo_tensor ids, neo_tensor targets,
                            neo_exact *sum) {
    const int shards = neo_ctx_repro_shards(t->ctx);
    const int64_t begin = neo_leaf_begin(BATCH, shards, leaf) * LENGTH;
    const int64_t rows = neo_leaf_begin(BATCH, shards, leaf + 1) * LENGTH - begin;
    const neo_leaves leaves = {BATCH, leaf, 1, LENGTH};
    const neo_tensor mine = neo_tensor_rows(ids, begin, rows);
    GPT_TRY(gpt_forward(&t->model, mine));
    if (shards == 1 && neo_optim_step_count(t->optim) == 0) golden_check(t->model.logits, "logits");
    GPT_TRY(gpt_loss(&t->model, neo_tensor_rows(targets, begin, rows), BATCH * LENGTH, sum));
    return gpt_backward(&t->model, &leaves, mine);
}
/* One step; the gradients of leaves, kept, add by the tree as those of ranks do. */
static neo_status train_step(trainer *t, neo_tensor ids, neo_tensor targets, double *loss) {
    const int shards = neo_ctx_repro_shards(t->ctx), count = neo_params_count(t->params);
    neo_exact sum;
    neo_exact_zero(&sum);
    for (int v = 0; v < shards; v++) {
        GPT_TRY(leaf_step(t, v, ids, targets, &sum));
        for (int i = 0; i < count; i++)
            GPT_TRY(neo_tensor_copy(t->ctx, neo_params_at(t->params, i)->grad, t->part[v][i]));
    }
    for (int i = 0; i < count; i++) {
        neo_tensor parts[LEAVES_MAX];
        for (int v = 0; v < shards; v++) parts[v] = t->part[v][i];
        GPT_TRY(neo_tree_sum(t->ctx, parts, shards, neo_params_at(t->params, i)->grad));
    }
    *loss = neo_exact_value(&sum) / (BATCH * LENGTH);
    return NEO_OK;
}
/* The gradient with respect to a bias of the keys is zero, for softmax does not see it: what is
   left is rounding, which AdamW makes as large as any other. */
static void check_all(const trainer *t, const char *what, int grads) {
    for (int i = 0; i < neo_params_count(t->params); i++) {
        const neo_param *p = neo_params_at(t->params, i);
        neo_tensor got = golden_like(p->value), want = golden("%s.%s", what, p->name);
        memcpy(got.data, grads ? p->grad.data : p->value.data, neo_tensor_bytes(got));
        if (strstr(p->name, "c_attn.bias"))
            memcpy(golden_f(got) + desc.width, golden_f(want) + desc.width, (size_t)desc.width * 4);
        golden_check(got, "%s.%s", what, p->name);
    }
}
/* Trains and compares; returns the digest of weights and optimizer state. */
static uint64_t train(int threads, neo_isa isa, int shards) {
    int mark = golden_block_count;
    static int64_t ids[BATCH * LENGTH], targets[BATCH * LENGTH];
    neo_tensor tokens = golden("ids"), want = golden("losses");
    neo_tensor x = neo_tensor_1d(ids, NEO_I64, BATCH * LENGTH), y = x;
    trainer t;
    memset(&t, 0, sizeof t);
    y.data = targets;
    t.ctx = test_ctx(threads, isa, shards);
    neo_status status = trainer_create(&t);
    const int64_t allocations = neo_ctx_memory(t.ctx).alloc_count;
    for (int64_t step = 0; status == NEO_OK && step < STEPS; step++) {
        double loss = -1, expected = (double)golden_f(want)[step];
        for (int64_t i = 0; i < BATCH * LENGTH; i++) {
            const int64_t *at =
                golden_i(tokens) + (step * BATCH + i / LENGTH) * (LENGTH + 1) + i % LENGTH;
            ids[i] = at[0], targets[i] = at[1];
        }
        status = train_step(&t, x, y, &loss);
        if (!(fabs(loss - expected) <= 1e-5))
            FAIL("step %d: loss %.9g, expected %.9g", (int)step, loss, expected);
        if (step == 0) check_all(&t, "grad", 1);
        if (status == NEO_OK) status = neo_optim_step(t.optim, 3e-3f);
    }
    if (status != NEO_OK) FAIL("%s: %s", neo_status_string(status), neo_last_error());
    CHECK_INT(neo_ctx_memory(t.ctx).alloc_count, allocations);
    uint64_t digest = 0;
    if (status == NEO_OK) {
        check_all(&t, "final", 0);
        digest = neo_state_digest(t.state);
        if (getenv("GOLDEN_VERBOSE")) printf("    V %d: state %016" PRIx64 "\n", shards, digest);
    }
    trainer_destroy(&t);
    neo_ctx_destroy(t.ctx);
    golden_release(mark);
    return digest;
}
static void gpt_trains(void) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    for (int shards = 1; shards <= 4; shards += 3) {
        uint64_t digest = train(1, NEO_ISA_BEST, shards);
        for (int i = 0; i < 4; i++)
            if (neo_isa_available(isas[i])) CHECK(train(2 * i + 2, isas[i], shards) == digest);
    }
}

int main(void) {
    golden_open("transformer");
    RUN(norms);
    RUN(attention);
    RUN(embedding);
    golden_close();
    golden_open("jagged");
    RUN(jagged_attention);
    golden_close();
    golden_open("gpt");
    RUN(gpt_trains);
    golden_close();
    return test_end("golden/gpt");
}
