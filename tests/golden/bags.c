/* bags.c: embedding bags against PyTorch (tests/golden/make_bags.py).

   Forward and gradients in every pooling mode against torch.nn.functional.embedding_bag; 20 steps
   of each table optimizer against torch.optim on the touched rows, or, where torch has none, the
   formulas written out in tests/golden/common.py. The batches of a run share one array of ids, so
   all but the first are views whose offsets start later. */
#include "common.h"

enum { FEATURES_MAX = 5, TABLES_MAX = 4 };

typedef struct layout {
    int table_count, feature_count;
    int64_t batch, max_ids;
    const int32_t *feature_table; /* NULL: one to one */
} layout;

/* Bags whose tables start as the tensors <prefix>.w.<i>. */
static neo_bags *make_bags(neo_ctx *ctx, const layout *l, const neo_pooling *pooling,
                           const neo_bag_optim *optim, const char *prefix) {
    static const char *const names[] = {"t0", "t1", "t2", "t3"};
    neo_table_desc tables[TABLES_MAX];
    neo_tensor w[TABLES_MAX];
    memset(tables, 0, sizeof tables);
    for (int i = 0; i < l->table_count; i++) {
        w[i] = golden("%s.w.%d", prefix, i);
        tables[i].name = names[i];
        tables[i].rows = w[i].shape[0];
        tables[i].dim = w[i].shape[1];
        tables[i].pooling = pooling[i];
        tables[i].optim = *optim;
    }
    neo_bags_desc desc = {.tables = tables,
                          .table_count = l->table_count,
                          .feature_table = l->feature_table,
                          .feature_count = l->feature_table ? l->feature_count : 0,
                          .max_batch = l->batch,
                          .max_ids = l->max_ids};
    neo_bags *bags = NULL;
    CHECK_OK(neo_bags_create(ctx, &desc, &bags));
    if (!bags) return NULL;
    for (int i = 0; i < l->table_count; i++)
        CHECK_OK(neo_tensor_copy(ctx, w[i], neo_bags_weight(bags, i)));
    return bags;
}

/* With all weights zero a step of SGD at rate 1 leaves minus the gradient in them. */
static void check_gradients(neo_ctx *ctx, neo_bags *bags, const neo_jagged *batch,
                            neo_tensor dout, const char *prefix) {
    for (int i = 0; i < neo_bags_table_count(bags); i++)
        CHECK_OK(neo_tensor_zero(ctx, neo_bags_weight(bags, i)));
    CHECK_OK(neo_bags_backward(bags, batch, dout, 1.0f));
    for (int i = 0; i < neo_bags_table_count(bags); i++) {
        neo_tensor w = neo_bags_weight(bags, i);
        for (int64_t k = 0; k < neo_tensor_count(w); k++) golden_f(w)[k] = -golden_f(w)[k];
        golden_check(w, "%s.dw.%d", prefix, i);
    }
}

typedef struct mode {
    const char *name;
    neo_pooling pooling[TABLES_MAX];
    int weighted;
} mode;

static void one_mode(neo_ctx *ctx, const mode *m, neo_dtype id_dtype) {
    static const int32_t feature_table[] = {0, 1, 2, 1, 3};
    int mark = golden_block_count;
    neo_tensor offsets = golden("fb.offsets"), ids = golden("fb.ids"),
               weights = golden("fb.weights");
    neo_tensor dout = golden("fb.dout"), out = golden_like(dout);
    layout l = {4, 5, dout.shape[0], neo_tensor_count(ids), feature_table};
    if (id_dtype == NEO_I32) {
        int64_t n = neo_tensor_count(ids);
        neo_tensor narrow = neo_tensor_1d(golden_alloc((size_t)n * 4), NEO_I32, n);
        CHECK_OK(neo_tensor_convert(ctx, ids, narrow, NULL));
        ids = narrow;
    }
    neo_jagged batch = {.batch = l.batch,
                        .feature_count = 5,
                        .id_dtype = id_dtype,
                        .offsets = golden_i(offsets),
                        .ids = ids.data,
                        .weights = m->weighted ? golden_f(weights) : NULL};
    neo_bag_optim optim = {.kind = NEO_BAG_SGD};
    neo_bags *bags = make_bags(ctx, &l, m->pooling, &optim, "fb");
    if (bags) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "fb.%s", m->name);
        CHECK_OK(neo_bags_forward(bags, &batch, out));
        golden_check(out, "%s.out", prefix);
        if (m->weighted) {
            neo_tensor dweights = golden_like(weights);
            CHECK_OK(neo_bags_weight_grad(bags, &batch, dout, golden_f(dweights)));
            golden_check(dweights, "%s.dweights", prefix);
        }
        check_gradients(ctx, bags, &batch, dout, prefix);
    }
    neo_bags_destroy(bags);
    golden_release(mark);
}

static void pooling_modes(void) {
    static const mode modes[] = {
        {"sum", {NEO_POOL_SUM, NEO_POOL_SUM, NEO_POOL_SUM, NEO_POOL_SUM}, 0},
        {"mean", {NEO_POOL_MEAN, NEO_POOL_MEAN, NEO_POOL_MEAN, NEO_POOL_MEAN}, 0},
        {"sum_weighted", {NEO_POOL_SUM, NEO_POOL_SUM, NEO_POOL_SUM, NEO_POOL_SUM}, 1},
        {"mean_weighted", {NEO_POOL_MEAN, NEO_POOL_MEAN, NEO_POOL_MEAN, NEO_POOL_MEAN}, 1},
        {"mixed", {NEO_POOL_SUM, NEO_POOL_MEAN, NEO_POOL_MEAN, NEO_POOL_SUM}, 0},
    };
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            one_mode(ctx, &modes[i], NEO_I64);
            one_mode(ctx, &modes[i], NEO_I32);
        }
        neo_ctx_destroy(ctx);
    }
}

/* One row per id, as torch.nn.functional.embedding. */
static void no_pooling(void) {
    static const neo_pooling pooling[] = {NEO_POOL_NONE, NEO_POOL_NONE};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        int mark = golden_block_count;
        neo_tensor offsets = golden("none.offsets"), ids = golden("none.ids");
        neo_tensor dout = golden("none.dout"), out = golden_like(dout);
        int64_t batch_size = (neo_tensor_count(offsets) - 1) / 2;
        layout l = {2, 2, batch_size, neo_tensor_count(ids), NULL};
        neo_jagged batch = {.batch = batch_size,
                            .feature_count = 2,
                            .id_dtype = NEO_I32,
                            .offsets = golden_i(offsets),
                            .ids = ids.data};
        neo_bag_optim optim = {.kind = NEO_BAG_SGD};
        neo_bags *bags = make_bags(ctx, &l, pooling, &optim, "none");
        if (bags) {
            CHECK_OK(neo_bags_forward(bags, &batch, out));
            golden_check(out, "none.out");
            CHECK_BITS(out.data, golden("none.out").data, neo_tensor_bytes(out));
            check_gradients(ctx, bags, &batch, dout, "none");
        }
        neo_bags_destroy(bags);
        golden_release(mark);
        neo_ctx_destroy(ctx);
    }
}

/* ---- optimizers: the same names and numbers as CASES in make_bags.py ---- */

typedef struct optim_case {
    const char *name;
    float lr;
    neo_bag_optim optim;
} optim_case;

static const optim_case cases[] = {
    {"sgd", 0.1f, {.kind = NEO_BAG_SGD}},
    {"sgd_l2", 0.1f, {.kind = NEO_BAG_SGD, .decay = NEO_DECAY_L2, .weight_decay = 0.05f}},
    {"sgd_decoupled",
     0.1f,
     {.kind = NEO_BAG_SGD, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.05f}},
    {"sgd_clip", 0.1f, {.kind = NEO_BAG_SGD, .clip_gradient = 0.5f}},
    {"sgd_max_norm", 0.1f, {.kind = NEO_BAG_SGD, .max_norm = 1.5f}},
    {"sgd_lr_scale", 0.1f, {.kind = NEO_BAG_SGD, .lr_scale = 0.25f}},
    {"adagrad", 0.1f, {.kind = NEO_BAG_ADAGRAD, .initial_accumulator = 0.1f}},
    {"adagrad_l2",
     0.1f,
     {.kind = NEO_BAG_ADAGRAD, .decay = NEO_DECAY_L2, .weight_decay = 0.05f, .eps = 1e-3f}},
    {"adagrad_decoupled",
     0.1f,
     {.kind = NEO_BAG_ADAGRAD, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.05f}},
    {"rowwise_adagrad", 0.1f, {.kind = NEO_BAG_ROWWISE_ADAGRAD}},
    {"rowwise_adagrad_l2",
     0.1f,
     {.kind = NEO_BAG_ROWWISE_ADAGRAD,
      .decay = NEO_DECAY_L2,
      .weight_decay = 0.05f,
      .initial_accumulator = 0.2f,
      .eps = 1e-2f}},
    {"rowwise_adagrad_decoupled",
     0.1f,
     {.kind = NEO_BAG_ROWWISE_ADAGRAD, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.05f}},
    {"adam", 0.02f, {.kind = NEO_BAG_ADAM}},
    {"adam_l2",
     0.02f,
     {.kind = NEO_BAG_ADAM,
      .decay = NEO_DECAY_L2,
      .weight_decay = 0.05f,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .eps = 1e-3f}},
    {"adamw", 0.02f, {.kind = NEO_BAG_ADAM, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.1f}},
    {"partial_adam", 0.02f, {.kind = NEO_BAG_PARTIAL_ADAM}},
    {"partial_adam_l2",
     0.02f,
     {.kind = NEO_BAG_PARTIAL_ADAM, .decay = NEO_DECAY_L2, .weight_decay = 0.05f, .eps = 1e-3f}},
    {"partial_adam_decoupled",
     0.02f,
     {.kind = NEO_BAG_PARTIAL_ADAM, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.1f}},
    {"lamb", 0.02f, {.kind = NEO_BAG_LAMB}},
    {"lamb_decay", 0.02f, {.kind = NEO_BAG_LAMB, .weight_decay = 0.05f, .eps = 1e-6f}},
    {"partial_lamb", 0.02f, {.kind = NEO_BAG_PARTIAL_LAMB}},
    {"partial_lamb_decay",
     0.02f,
     {.kind = NEO_BAG_PARTIAL_LAMB, .weight_decay = 0.05f, .eps = 1e-6f}},
    {"lars_sgd",
     0.1f,
     {.kind = NEO_BAG_LARS_SGD, .momentum = 0.9f, .weight_decay = 0.01f, .eta = 0.1f}},
    {"lars_sgd_plain", 0.1f, {.kind = NEO_BAG_LARS_SGD, .eta = 0.5f}},
    {"ftrl", 0.1f, {.kind = NEO_BAG_FTRL}},
    {"ftrl_l1",
     0.2f,
     {.kind = NEO_BAG_FTRL,
      .eps = 0.5f,
      .l1 = 1.0f,
      .weight_decay = 0.1f,
      .initial_accumulator = 0.1f}},
};

/* The last row of every table is in no batch: it keeps its bits, and its state its first value.
 */
static void check_untouched(neo_bags *bags, const optim_case *c, int table) {
    neo_tensor w = neo_bags_weight(bags, table), first = golden("opt.w.%d", table);
    int64_t row = w.shape[0] - 1, dim = w.shape[1];
    CHECK_BITS(golden_f(w) + row * dim, golden_f(first) + row * dim, dim * 4);
    for (int k = 0; k < 2; k++) {
        neo_tensor s = neo_bags_state(bags, table, k);
        if (!s.data) continue;
        int64_t width = neo_tensor_count(s) / s.shape[0];
        for (int64_t i = 0; i < width; i++)
            CHECK(golden_f(s)[row * width + i] == (k == 0 ? c->optim.initial_accumulator : 0.0f));
    }
}

static void one_optimizer(neo_ctx *ctx, const optim_case *c) {
    static const int32_t feature_table[] = {0, 1, 2, 1};
    static const neo_pooling pooling[] = {NEO_POOL_SUM, NEO_POOL_MEAN, NEO_POOL_SUM};
    int mark = golden_block_count;
    neo_tensor offsets = golden("opt.offsets"), ids = golden("opt.ids"),
               dout = golden("opt.dout");
    neo_tensor factor = golden("opt.lr_factor");
    layout l = {3, 4, dout.shape[1], neo_tensor_count(ids), feature_table};
    neo_bags *bags = make_bags(ctx, &l, pooling, &c->optim, "opt");
    for (int64_t step = 0; bags && step < dout.shape[0]; step++) {
        neo_jagged batch = {.batch = l.batch,
                            .feature_count = 4,
                            .id_dtype = NEO_I64,
                            .offsets = golden_i(offsets) + step * offsets.shape[1],
                            .ids = ids.data};
        neo_tensor d = neo_tensor_2d(golden_f(dout) + step * dout.shape[1] * dout.shape[2],
                                     NEO_F32, dout.shape[1], dout.shape[2]);
        CHECK_OK(neo_bags_backward(bags, &batch, d, c->lr * golden_f(factor)[step]));
    }
    for (int i = 0; bags && i < l.table_count; i++) {
        golden_check(neo_bags_weight(bags, i), "opt.%s.w.%d", c->name, i);
        for (int k = 0; k < 2; k++) {
            char name[64];
            snprintf(name, sizeof name, "opt.%s.momentum%d.%d", c->name, k + 1, i);
            neo_tensor state = neo_bags_state(bags, i, k);
            if (!state.data != !golden_has(name))
                FAIL("%s: state is %s", name, state.data ? "not expected" : "missing");
            else if (state.data)
                golden_check(state, "%s", name);
        }
        check_untouched(bags, c, i);
    }
    neo_bags_destroy(bags);
    golden_release(mark);
}

static void optimizers(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) one_optimizer(ctx, &cases[i]);
        neo_ctx_destroy(ctx);
    }
}

int main(void) {
    golden_open("bags");
    RUN(pooling_modes);
    RUN(no_pooling);
    RUN(optimizers);
    golden_close();
    return test_end("golden/bags");
}
