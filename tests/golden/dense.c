/* dense.c: activations, linear layers, MLPs, cross nets, interactions, losses, dense optimizers,
   schedules and narrow floats against PyTorch (tests/golden/make_dense.py). */
#include "common.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct {
    const char *name;
    neo_activation act;
} acts[] = {{"none", NEO_ACT_NONE}, {"relu", NEO_ACT_RELU}, {"sigmoid", NEO_ACT_SIGMOID},
            {"tanh", NEO_ACT_TANH}, {"gelu", NEO_ACT_GELU}, {"hardswish", NEO_ACT_HARDSWISH},
            {"silu", NEO_ACT_SILU}, {"leaky_relu", NEO_ACT_LEAKY_RELU}};

static neo_activation act_of(const char *name) {
    for (size_t i = 0; i < COUNT(acts); i++)
        if (strcmp(acts[i].name, name) == 0) return acts[i].act;
    FAIL("no activation %s", name);
    return NEO_ACT_NONE;
}
/* GELU, hard-swish and SiLU differentiate by z, the others by y; the other one may be none. */
static int reads_z(neo_activation act) {
    return act == NEO_ACT_GELU || act == NEO_ACT_HARDSWISH || act == NEO_ACT_SILU;
}

/* ---- activations: each element to 1e-5 of itself ----

   Floors: in f32, 1 + erf, 1 - y and 1 - y^2 cancel where an activation saturates, which leaves
   about 2^-24 absolute; so gelu's tail and the gradients are held to 1e-6 absolute (times |z| and
   |dy|, a few). */
static void activations(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(acts); i++) {
            int mark = golden_block_count;
            neo_activation act = acts[i].act;
            neo_tensor z = golden("act.z"), dy = golden("act.dy"), y = golden_like(z),
                       dz = golden_like(z);
            CHECK_OK(neo_activation_forward(ctx, act, z, y));
            golden_check_each(y, 1e-5, act == NEO_ACT_GELU ? 1e-6 : 1e-20, "act.%s.y",
                              acts[i].name);
            CHECK_OK(neo_activation_backward(ctx, act, reads_z(act) ? z : neo_tensor_none(),
                                             reads_z(act) ? neo_tensor_none() : y, dy, dz));
            golden_check_each(dz, 1e-5, 1e-6, "act.%s.dz", acts[i].name);
            /* in place */
            CHECK_OK(neo_activation_backward(ctx, act, z, y, dy, dy));
            CHECK_BITS(dy.data, dz.data, neo_tensor_bytes(dz));
            CHECK_OK(neo_activation_forward(ctx, act, z, z));
            CHECK_BITS(z.data, y.data, neo_tensor_bytes(y));
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

static void linear_layers(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(acts); i++) {
            int mark = golden_block_count;
            const char *name = acts[i].name;
            neo_tensor x = golden("linear.x"), w = golden("linear.w"), b = golden("linear.b");
            neo_tensor dy = golden("linear.dy"), y = golden_like(dy), z = golden_like(dy);
            neo_tensor dx = golden_like(x), dw = golden_like(w), db = golden_like(b);
            CHECK_OK(neo_linear_forward(ctx, x, w, b, acts[i].act, y));
            golden_check(y, "linear.%s.y", name);
            CHECK_OK(neo_linear_forward(ctx, x, w, b, NEO_ACT_NONE, z));
            CHECK_OK(neo_activation_backward(ctx, acts[i].act, z, y, dy, dy));
            CHECK_OK(neo_linear_backward(ctx, NULL, x, w, dy, dx, dw, db));
            golden_check(dx, "linear.%s.dx", name);
            golden_check(dw, "linear.%s.dw", name);
            golden_check(db, "linear.%s.db", name);
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

/* As MLPS in make_dense.py. */
static const struct mlp_case {
    const char *name, *act, *last_act;
    int width_count;
    int64_t widths[4];
} mlps[] = {
    {"relu", "relu", "none", 4, {6, 11, 8, 3}},
    {"sigmoid", "sigmoid", "sigmoid", 4, {6, 11, 8, 3}},
    {"tanh", "tanh", "relu", 4, {6, 11, 8, 3}},
    {"gelu", "gelu", "tanh", 4, {6, 11, 8, 3}},
    {"hardswish", "hardswish", "gelu", 4, {6, 11, 8, 3}},
    {"wide", "relu", "hardswish", 3, {33, 70, 17, 0}},
    {"silu", "silu", "leaky_relu", 4, {6, 11, 8, 3}},
    {"one", "relu", "none", 2, {1, 1, 0, 0}},
};

/* Values of parameters "net.<key>" are <kind>.<name>.<key>, gradients <kind>.<name>.grad.<key>. */
static void take_values(neo_ctx *ctx, const neo_params *params, const char *kind,
                        const char *name) {
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        CHECK_OK(neo_tensor_copy(ctx, golden("%s.%s.%s", kind, name, p->name + 4), p->value));
    }
}
static void check_grads(const neo_params *params, const char *kind, const char *name) {
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        golden_check(p->grad, "%s.%s.grad.%s", kind, name, p->name + 4);
    }
}

static void one_mlp(neo_ctx *ctx, const struct mlp_case *m) {
    int mark = golden_block_count;
    neo_tensor x = golden("mlp.%s.x", m->name), dy = golden("mlp.%s.dy", m->name);
    neo_tensor y = golden_like(dy), dx = golden_like(x);
    neo_mlp_desc desc = {.name = "net",
                         .width_count = m->width_count,
                         .max_batch = x.shape[0],
                         .act = act_of(m->act),
                         .last_act = act_of(m->last_act)};
    memcpy(desc.widths, m->widths, sizeof m->widths);
    neo_params *params = NULL;
    neo_mlp *mlp = NULL;
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_OK(neo_mlp_create(ctx, params, &desc, &mlp));
    if (mlp) {
        CHECK_INT(neo_params_count(params), 2 * (m->width_count - 1));
        take_values(ctx, params, "mlp", m->name);
        CHECK_OK(neo_mlp_forward(mlp, x, y));
        CHECK_OK(neo_mlp_backward(mlp, NULL, dy, dx));
        golden_check(y, "mlp.%s.y", m->name);
        golden_check(dx, "mlp.%s.dx", m->name);
        check_grads(params, "mlp", m->name);
    }
    neo_mlp_destroy(mlp);
    neo_params_destroy(params);
    golden_release(mark);
}

static void mlp_stacks(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(mlps); i++) one_mlp(ctx, &mlps[i]);
        neo_ctx_destroy(ctx);
    }
}

static void one_cross(neo_ctx *ctx, const char *name, int64_t rank, int layers) {
    int mark = golden_block_count;
    neo_tensor x = golden("cross.%s.x", name), dy = golden("cross.%s.dy", name);
    neo_tensor y = golden_like(dy), dx = golden_like(x);
    neo_cross_desc desc = {.name = "net", .width = x.shape[1], .rank = rank, .layers = layers,
                           .max_batch = x.shape[0]};
    neo_params *params = NULL;
    neo_cross *cross = NULL;
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_OK(neo_cross_create(ctx, params, &desc, &cross));
    if (cross) {
        CHECK_INT(neo_params_count(params), layers * (rank ? 3 : 2));
        take_values(ctx, params, "cross", name);
        CHECK_OK(neo_cross_forward(cross, x, y));
        CHECK_OK(neo_cross_backward(cross, NULL, dy, dx));
        golden_check(y, "cross.%s.y", name);
        golden_check(dx, "cross.%s.dx", name);
        check_grads(params, "cross", name);
    }
    neo_cross_destroy(cross);
    neo_params_destroy(params);
    golden_release(mark);
}
static void crosses(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        one_cross(ctx, "full", 0, 3);
        one_cross(ctx, "low", 4, 3);
        one_cross(ctx, "one", 2, 1);
        neo_ctx_destroy(ctx);
    }
}

static void one_wukong(neo_ctx *ctx, const char *name, const neo_wukong_desc *desc) {
    int mark = golden_block_count;
    neo_tensor x = golden("wukong.%s.x", name), dy = golden("wukong.%s.dy", name);
    neo_tensor y = golden_like(x), dx = golden_like(x);
    neo_params *params = NULL;
    neo_wukong *wukong = NULL;
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_OK(neo_wukong_create(ctx, params, desc, &wukong));
    if (wukong) {
        CHECK_INT(neo_params_count(params), desc->layers * 9);
        take_values(ctx, params, "wukong", name);
        CHECK_OK(neo_wukong_forward(wukong, x, y));
        CHECK_OK(neo_wukong_backward(wukong, NULL, dy, dx));
        golden_check(y, "wukong.%s.y", name);
        golden_check(dx, "wukong.%s.dx", name);
        check_grads(params, "wukong", name);
    }
    neo_wukong_destroy(wukong);
    neo_params_destroy(params);
    golden_release(mark);
}
/* As WUKONG in make_dense.py. */
static void wukongs(void) {
    const neo_wukong_desc two = {.name = "net", .features = 5, .dim = 4, .linear = 2, .hidden = 7,
                                 .layers = 2, .max_batch = 6};
    const neo_wukong_desc one = {.name = "net", .features = 2, .dim = 3, .linear = 1, .hidden = 4,
                                 .layers = 1, .max_batch = 4};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        one_wukong(ctx, "two", &two);
        one_wukong(ctx, "one", &one);
        neo_ctx_destroy(ctx);
    }
}

static void interaction(void) {
    static const char *const names[] = {"small", "thin", "odd", "criteo"};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(names) * 2; i++) {
            int mark = golden_block_count, diagonal = (int)(i % 2);
            const char *name = names[i / 2];
            neo_tensor x = golden("interact.%s.x", name), e = golden("interact.%s.e", name);
            neo_tensor dz = golden("interact.%s.%d.dz", name, diagonal), z = golden_like(dz);
            neo_tensor dx = golden_like(x), de = golden_like(e);
            int64_t features = e.shape[1] / x.shape[1];
            CHECK_INT(neo_interact_width(x.shape[1], features, diagonal), z.shape[1]);
            CHECK_OK(neo_interact_forward(ctx, diagonal, x, e, z));
            CHECK_OK(neo_interact_backward(ctx, diagonal, x, e, dz, dx, de));
            golden_check(z, "interact.%s.%d.z", name, diagonal);
            golden_check(dx, "interact.%s.%d.dx", name, diagonal);
            golden_check(de, "interact.%s.%d.de", name, diagonal);
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

static void machine(void) {
    static const char *const names[] = {"small", "odd"};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (int i = 0; i < 2; i++) {
            int mark = golden_block_count;
            neo_tensor e = golden("fm.%s.e", names[i]), dy = golden("fm.%s.dy", names[i]);
            neo_tensor dv = golden("fm.%s.dv", names[i]), v = golden_like(dv);
            neo_tensor y = golden_like(dy), de = golden_like(e);
            const int64_t dim = i ? 15 : 8;
            CHECK_OK(neo_fm_forward(ctx, dim, 1, e, y, v));
            CHECK_OK(neo_fm_backward(ctx, dim, 1, e, dy, dv, de));
            golden_check(y, "fm.%s.y", names[i]);
            golden_check(v, "fm.%s.v", names[i]);
            golden_check(de, "fm.%s.de", names[i]);
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

static void aware_machine(void) {
    static const char *const names[] = {"small", "odd"};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (int i = 0; i < 2; i++) {
            int mark = golden_block_count;
            neo_tensor e = golden("ffm.%s.e", names[i]), dy = golden("ffm.%s.dy", names[i]);
            neo_tensor y = golden_like(dy), de = golden_like(e);
            const int64_t features = i ? 9 : 3, dim = i ? 5 : 4;
            CHECK_OK(neo_ffm_forward(ctx, features, dim, 1, e, y));
            CHECK_OK(neo_ffm_backward(ctx, features, dim, 1, e, dy, de));
            golden_check(y, "ffm.%s.y", names[i]);
            golden_check(de, "ffm.%s.de", names[i]);
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

/* ---- losses: the loss to 1e-5 of itself; each gradient to 1e-5 of itself plus 1e-8, since p - y
   cancels to 2^-24 / batch where p is all but y ---- */
typedef neo_status (*loss_fn)(neo_ctx *, const neo_loss_desc *, neo_tensor, neo_tensor,
                              neo_tensor, double *);
static const struct loss_case {
    const char *name;
    loss_fn fn;
} loss_cases[] = {
    {"bce_logits", neo_bce_with_logits},
    {"bce_logits_extreme", neo_bce_with_logits},
    {"bce", neo_bce},
    {"bce_ends", neo_bce},
    {"mse", neo_mse},
    {"ce", neo_cross_entropy},
    {"ce_extreme", neo_cross_entropy},
    {"ce_two", neo_cross_entropy},
};

static void one_loss(neo_ctx *ctx, const struct loss_case *l, int weighted) {
    int mark = golden_block_count;
    const char *tag = weighted ? "weighted" : "plain";
    neo_tensor x = golden("loss.%s.x", l->name), target = golden("loss.%s.target", l->name);
    neo_tensor dx = golden_like(x), want = golden("loss.%s.%s.loss", l->name, tag);
    neo_exact sum;
    neo_exact_zero(&sum);
    neo_loss_desc desc = {.weight = weighted ? golden("loss.weight") : neo_tensor_none(),
                          .sum = &sum};
    double loss = -1, expected = (double)golden_f(want)[0];
    CHECK_OK(l->fn(ctx, &desc, x, target, dx, &loss));
    if (!(fabs(loss - expected) <= 1e-5 * fabs(expected)))
        FAIL("loss.%s.%s.loss is %.9g, expected %.9g", l->name, tag, loss, expected);
    golden_check_each(dx, 1e-5, 1e-8, "loss.%s.%s.dx", l->name, tag);
    /* the sum over samples: of bce, of cross entropy; the loss is its mean */
    CHECK_NEAR(neo_exact_value(&sum) / (double)x.shape[0], loss, 1e-6 * fabs(loss));
    /* without a gradient, and in place of the input */
    double again = -1;
    CHECK_OK(l->fn(ctx, &desc, x, target, neo_tensor_none(), &again));
    CHECK(again == loss);
    CHECK_OK(l->fn(ctx, &desc, x, target, x, NULL));
    CHECK_BITS(x.data, dx.data, neo_tensor_bytes(dx));
    golden_release(mark);
}

static void losses(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(loss_cases); i++) {
            one_loss(ctx, &loss_cases[i], 0);
            one_loss(ctx, &loss_cases[i], 1);
        }
        neo_ctx_destroy(ctx);
    }
}

/* ---- optimizers: the same names and numbers as OPTIMS in make_dense.py ---- */

static const struct optim_case {
    const char *name;
    float lr;
    neo_optim_desc desc;
} optims[] = {
    {"sgd", 0.1f, {.kind = NEO_OPTIM_SGD}},
    {"sgd_l2", 0.1f, {.kind = NEO_OPTIM_SGD, .weight_decay = 0.05f}},
    {"sgd_momentum", 0.1f, {.kind = NEO_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 0.01f}},
    {"sgd_dampening", 0.1f, {.kind = NEO_OPTIM_SGD, .momentum = 0.8f, .dampening = 0.3f}},
    {"sgd_nesterov",
     0.1f,
     {.kind = NEO_OPTIM_SGD, .momentum = 0.9f, .nesterov = 1, .weight_decay = 0.01f}},
    {"adagrad", 0.1f, {.kind = NEO_OPTIM_ADAGRAD}},
    {"adagrad_full",
     0.1f,
     {.kind = NEO_OPTIM_ADAGRAD,
      .eps = 1e-3f,
      .lr_decay = 0.05f,
      .initial_accumulator = 0.1f,
      .weight_decay = 0.05f}},
    {"adam", 0.02f, {.kind = NEO_OPTIM_ADAM}},
    {"adam_l2",
     0.02f,
     {.kind = NEO_OPTIM_ADAM,
      .eps = 1e-3f,
      .beta1 = 0.8,
      .beta2 = 0.95,
      .weight_decay = 0.05f}},
    {"adamw", 0.02f, {.kind = NEO_OPTIM_ADAMW, .weight_decay = 0.1f}},
    {"adamw_beta0", 0.02f, {.kind = NEO_OPTIM_ADAMW, .beta1 = -1.0, .beta2 = 0.95}},
    {"lamb", 0.02f, {.kind = NEO_OPTIM_LAMB}},
    {"lamb_decay", 0.02f, {.kind = NEO_OPTIM_LAMB, .weight_decay = 0.05f}},
    {"rmsprop", 0.02f, {.kind = NEO_OPTIM_RMSPROP, .eps = 1e-4f}},
    {"rmsprop_momentum",
     0.02f,
     {.kind = NEO_OPTIM_RMSPROP,
      .eps = 1e-3f,
      .beta2 = 0.9,
      .momentum = 0.8f,
      .weight_decay = 0.05f}},
    {"ftrl", 0.1f, {.kind = NEO_OPTIM_FTRL}},
    {"ftrl_l1",
     0.2f,
     {.kind = NEO_OPTIM_FTRL,
      .eps = 0.5f,
      .l1 = 1.0f,
      .weight_decay = 0.1f,
      .initial_accumulator = 0.1f}},
    {"clip1", 0.1f, {.kind = NEO_OPTIM_SGD, .clip_norm = 40.0f, .clip_norm_type = 1.0f}},
    {"clip2", 0.1f, {.kind = NEO_OPTIM_SGD, .momentum = 0.9f, .clip_norm = 2.0f}},
    {"clipinf", 0.1f, {.kind = NEO_OPTIM_SGD, .clip_norm = 0.5f, .clip_norm_type = INFINITY}},
    {"clip_off", 0.1f, {.kind = NEO_OPTIM_SGD, .clip_norm = 1e4f, .clip_norm_type = 2.0f}},
    {"clip_adam", 0.02f, {.kind = NEO_OPTIM_ADAM, .clip_norm = 1.0f, .clip_norm_type = 2.0f}},
};
static const char *const param_names[] = {"w", "b", "one", "long", "zero"};
enum { PARAMS = 5 };

/* Runs all steps, comparing the gradient norms; the parameters and their state are compared
 * after. */
static void optim_steps(neo_ctx *ctx, const struct optim_case *c, neo_params *params,
                        neo_optim *optim) {
    neo_tensor factor = golden("optim.lr_factor"), grads[PARAMS], norms = neo_tensor_none();
    for (int i = 0; i < PARAMS; i++) grads[i] = golden("optim.grad.%s", param_names[i]);
    if (c->desc.clip_norm > 0) norms = golden("optim.%s.norm", c->name);
    for (int64_t step = 0; step < factor.shape[0]; step++) {
        for (int i = 0; i < PARAMS; i++) {
            const neo_param *p = neo_params_at(params, i);
            neo_tensor g = neo_tensor_rows(grads[i], step, 1);
            CHECK_OK(neo_tensor_copy(ctx, neo_tensor_reshape(g, p->grad.ndim, p->grad.shape),
                                     p->grad));
        }
        CHECK_OK(neo_optim_step(optim, c->lr * golden_f(factor)[step]));
        if (norms.data)
            CHECK_NEAR(neo_optim_grad_norm(optim), golden_f(norms)[step],
                       1e-5 * golden_f(norms)[step]);
        else
            CHECK(neo_optim_grad_norm(optim) == 0.0);
    }
    CHECK_INT(neo_optim_step_count(optim), factor.shape[0]);
}

/* The state tensors, under the names of torch.optim: optim.<parameter>.exp_avg and the like. */
static void check_optim_state(neo_ctx *ctx, const struct optim_case *c, neo_optim *optim) {
    neo_state *state = NULL;
    CHECK_OK(neo_state_create(ctx, &state));
    if (!state) return;
    CHECK_OK(neo_state_add_optim(state, optim));
    for (int i = 0; i < PARAMS; i++) {
        char name[96], prefix[96];
        snprintf(name, sizeof name, "optim.%s.", param_names[i]);
        snprintf(prefix, sizeof prefix, "optim.%s.", c->name);
        golden_check_state(state, name, prefix, param_names[i]);
    }
    neo_state_destroy(state);
}

static void one_optim(neo_ctx *ctx, const struct optim_case *c) {
    int mark = golden_block_count;
    neo_params *params = NULL;
    neo_optim *optim = NULL;
    CHECK_OK(neo_params_create(ctx, &params));
    if (!params) return;
    for (int i = 0; i < PARAMS; i++) {
        neo_tensor w = golden("optim.%s", param_names[i]);
        const neo_param *p = NULL;
        neo_init init = {.kind = NEO_INIT_CONSTANT};
        CHECK_OK(neo_params_add(params, param_names[i], w.ndim, w.shape, init, &p));
        if (p) CHECK_OK(neo_tensor_copy(ctx, w, p->value));
    }
    CHECK_OK(neo_optim_create(ctx, params, &c->desc, &optim));
    if (optim) {
        optim_steps(ctx, c, params, optim);
        for (int i = 0; i < PARAMS; i++)
            golden_check(neo_params_at(params, i)->value, "optim.%s.%s", c->name, param_names[i]);
        check_optim_state(ctx, c, optim);
    }
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    golden_release(mark);
}

static void optimizers(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (size_t i = 0; i < COUNT(optims); i++) one_optim(ctx, &optims[i]);
        neo_ctx_destroy(ctx);
    }
}

/* Learning rates to 1e-5 of the peak: f32 hyperparameters, and a cosine near its end cancels. */
static void schedules(void) {
    static const struct {
        const char *name;
        neo_schedule schedule;
    } cases[] = {
        {"linear", {.kind = NEO_SCHEDULE_LINEAR, .end_lr = 0.01f}},
        {"cosine", {.kind = NEO_SCHEDULE_COSINE, .end_lr = 0.01f}},
        {"poly2", {.kind = NEO_SCHEDULE_POLY}},
        {"poly3", {.kind = NEO_SCHEDULE_POLY, .power = 3.0f}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        neo_schedule s = cases[i].schedule;
        s.lr = 0.3f;
        s.warmup_steps = 5;
        s.hold_steps = 4;
        s.total_steps = 30;
        neo_tensor want = golden("schedule.%s", cases[i].name), got = golden_like(want);
        for (int64_t k = 0; k < want.shape[0]; k++) golden_f(got)[k] = neo_schedule_lr(&s, k);
        golden_check(got, "schedule.%s", cases[i].name);
    }
    neo_schedule constant = {.lr = 0.3f};
    CHECK(neo_schedule_lr(&constant, 0) == 0.3f && neo_schedule_lr(&constant, 1000000) == 0.3f);
}

/* ---- narrow floats: bit for bit ---- */
static void narrow_floats(void) {
    static const char *const names[] = {"bf16", "f16", "f8e4m3", "f8e5m2"};
    static const neo_dtype dtypes[] = {NEO_BF16, NEO_F16, NEO_F8E4M3, NEO_F8E5M2};
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        neo_tensor x = golden("x");
        for (size_t i = 0; i < COUNT(names); i++) {
            int mark = golden_block_count;
            neo_tensor want = golden("to.%s", names[i]);
            CHECK_INT(want.dtype, dtypes[i]);
            size_t size = neo_dtype_size(want.dtype);
            neo_tensor got =
                neo_tensor_1d(golden_alloc(neo_tensor_bytes(want)), want.dtype, want.shape[0]);
            CHECK_OK(neo_tensor_convert(ctx, x, got, NULL));
            for (int64_t k = 0; k < x.shape[0]; k++) {
                uint32_t a = 0, b = 0;
                memcpy(&a, (char *)got.data + (size_t)k * size, size);
                memcpy(&b, (char *)want.data + (size_t)k * size, size);
                if (a != b)
                    FAIL("%a to %s is 0x%x, expected 0x%x", (double)golden_f(x)[k], names[i], a,
                         b);
            }
            neo_tensor from = golden("from.%s", names[i]), f32 = golden("from.%s.f32", names[i]);
            neo_tensor back = golden_like(f32);
            CHECK_OK(neo_tensor_convert(ctx, from, back, NULL));
            CHECK_BITS(back.data, f32.data, neo_tensor_bytes(f32));
            golden_release(mark);
        }
        neo_ctx_destroy(ctx);
    }
}

int main(void) {
    golden_open("dense");
    RUN(activations);
    RUN(linear_layers);
    RUN(mlp_stacks);
    RUN(crosses);
    RUN(interaction);
    RUN(machine);
    RUN(aware_machine);
    RUN(wukongs);
    RUN(losses);
    RUN(optimizers);
    RUN(schedules);
    golden_close();
    golden_open("numbers");
    RUN(narrow_floats);
    golden_close();
    return test_end("golden/dense");
}
