/* gradcheck.c: every forward/backward pair of layers and bags against central differences, by the
   public neo_gradcheck. The loss is sum(out * r) with fixed r, so the gradient of out is r. */
#include "neo_run.h"
#include "test.h"

enum { B = 6, IN = 5, HID = 7, OUT = 3, TABLES = 2, ROWS = 9, DIM = 4, IDS = 40 };

typedef struct net {
    neo_ctx *ctx;
    neo_mlp *mlp;
    neo_cross *cross;
    neo_wukong *wukong;
    neo_bags *bags;
    neo_jagged ids;
    neo_tensor x, e, out;
    const float *r;
    int diagonal;
} net;

static double weighted(neo_tensor out, const float *r) {
    double sum = 0;
    for (int64_t i = 0; i < neo_tensor_count(out); i++)
        sum += (double)((float *)out.data)[i] * (double)r[i];
    return sum;
}
static neo_status mlp_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_mlp_forward(n->mlp, n->x, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static neo_status cross_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_cross_forward(n->cross, n->x, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static neo_status wukong_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_wukong_forward(n->wukong, n->x, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static neo_status interact_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_interact_forward(n->ctx, n->diagonal, n->x, n->e, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static neo_status fm_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_fm_forward(n->ctx, n->diagonal, 1, n->e, n->out, n->x);
    *loss = weighted(n->out, n->r) + weighted(n->x, n->r + B);
    return status;
}
static neo_status ffm_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_ffm_forward(n->ctx, 3, n->diagonal, 1, n->e, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static neo_status bags_loss(void *user, double *loss) {
    net *n = user;
    neo_status status = neo_bags_forward(n->bags, &n->ids, n->out);
    *loss = weighted(n->out, n->r);
    return status;
}
static void check(net *n, neo_gradcheck_fn loss, neo_tensor value, neo_tensor grad,
                  const char *name) {
    CHECK_OK(neo_gradcheck(
        &(neo_gradcheck_desc){.loss = loss, .user = n, .value = value, .grad = grad, .name = name},
        NULL));
    ((float *)grad.data)[0] += 1.0f; /* and it does see a wrong one */
    CHECK_ERR(neo_gradcheck(
                  &(neo_gradcheck_desc){
                      .loss = loss, .user = n, .value = value, .grad = grad, .name = name},
                  NULL),
              NEO_ERR_MISMATCH, name);
    ((float *)grad.data)[0] -= 1.0f;
}
static void check_params(net *n, neo_gradcheck_fn loss, const neo_params *params) {
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        check(n, loss, p->value, p->grad, p->name);
    }
}

static void mlp(void) {
    static float x[B * IN], dx[B * IN], out[B * OUT], r[B * OUT];
    for (int act = NEO_ACT_SIGMOID; act <= NEO_ACT_GELU; act++) {
        net n = {.ctx = test_ctx(2, NEO_ISA_BEST, 3), .r = r};
        neo_params *params;
        test_fill(x, B * IN);
        test_fill(r, B * OUT);
        n.x = neo_tensor_2d(x, NEO_F32, B, IN), n.out = neo_tensor_2d(out, NEO_F32, B, OUT);
        neo_tensor d = neo_tensor_2d(dx, NEO_F32, B, IN);
        double loss;
        REQUIRE_OK(neo_params_create(n.ctx, &params));
        REQUIRE_OK(neo_mlp_create(n.ctx, params,
                                  &(neo_mlp_desc){.name = "m",
                                                  .width_count = 3,
                                                  .widths = {IN, HID, OUT},
                                                  .max_batch = B,
                                                  .act = (neo_activation)act,
                                                  .last_act = NEO_ACT_TANH},
                                  &n.mlp));
        CHECK_OK(mlp_loss(&n, &loss));
        CHECK_OK(neo_mlp_backward(n.mlp, NULL, neo_tensor_2d(r, NEO_F32, B, OUT), d));
        check(&n, mlp_loss, n.x, d, "x");
        check_params(&n, mlp_loss, params);
        neo_mlp_destroy(n.mlp);
        neo_params_destroy(params);
        neo_ctx_destroy(n.ctx);
    }
}

static void cross(void) {
    static float x[B * IN], dx[B * IN], out[B * IN], r[B * IN];
    for (int rank = 0; rank < 4; rank += 3) {
        net n = {.ctx = test_ctx(2, NEO_ISA_BEST, 3), .r = r};
        neo_params *params;
        neo_cross_desc desc = {.name = "c", .width = IN, .rank = rank, .layers = 3, .max_batch = B};
        test_fill(x, B * IN), test_fill(r, B * IN);
        n.x = neo_tensor_2d(x, NEO_F32, B, IN), n.out = neo_tensor_2d(out, NEO_F32, B, IN);
        neo_tensor d = neo_tensor_2d(dx, NEO_F32, B, IN);
        double loss;
        REQUIRE_OK(neo_params_create(n.ctx, &params));
        REQUIRE_OK(neo_cross_create(n.ctx, params, &desc, &n.cross));
        CHECK_OK(cross_loss(&n, &loss));
        CHECK_OK(neo_cross_backward(n.cross, NULL, neo_tensor_2d(r, NEO_F32, B, IN), d));
        check(&n, cross_loss, n.x, d, "x");
        check_params(&n, cross_loss, params);
        neo_cross_destroy(n.cross);
        neo_params_destroy(params);
        neo_ctx_destroy(n.ctx);
    }
}

static void wukong(void) {
    enum { COLS = 4 * DIM };
    static float x[B * COLS], dx[B * COLS], out[B * COLS], r[B * COLS];
    net n = {.ctx = test_ctx(2, NEO_ISA_BEST, 3), .r = r};
    neo_params *params;
    neo_wukong_desc desc = {.name = "w", .features = 4, .dim = DIM, .linear = 1, .hidden = HID,
                            .layers = 2, .max_batch = B};
    test_seed = 2; /* no ReLU is at its kink */
    test_fill(x, B * COLS), test_fill(r, B * COLS);
    n.x = neo_tensor_2d(x, NEO_F32, B, COLS), n.out = neo_tensor_2d(out, NEO_F32, B, COLS);
    neo_tensor d = neo_tensor_2d(dx, NEO_F32, B, COLS);
    double loss;
    REQUIRE_OK(neo_params_create(n.ctx, &params));
    REQUIRE_OK(neo_wukong_create(n.ctx, params, &desc, &n.wukong));
    CHECK_OK(wukong_loss(&n, &loss));
    CHECK_OK(neo_wukong_backward(n.wukong, NULL, neo_tensor_2d(r, NEO_F32, B, COLS), d));
    check(&n, wukong_loss, n.x, d, "x");
    check_params(&n, wukong_loss, params);
    neo_wukong_destroy(n.wukong);
    neo_params_destroy(params);
    neo_ctx_destroy(n.ctx);
}

static void interact(void) {
    static float x[B * DIM], e[B * 3 * DIM], z[B * 16], r[B * 16], dx[B * DIM], de[B * 3 * DIM];
    for (int diagonal = 0; diagonal < 2; diagonal++) {
        int64_t width = neo_interact_width(DIM, 3, diagonal);
        net n = {.ctx = test_ctx(1, NEO_ISA_BEST, 1), .r = r, .diagonal = diagonal};
        test_fill(x, B * DIM), test_fill(e, B * 3 * DIM), test_fill(r, B * 16);
        n.x = neo_tensor_2d(x, NEO_F32, B, DIM), n.e = neo_tensor_2d(e, NEO_F32, B, 3 * DIM);
        n.out = neo_tensor_2d(z, NEO_F32, B, width);
        neo_tensor gx = neo_tensor_2d(dx, NEO_F32, B, DIM),
                   ge = neo_tensor_2d(de, NEO_F32, B, 3 * DIM);
        CHECK_OK(neo_interact_backward(n.ctx, diagonal, n.x, n.e,
                                       neo_tensor_2d(r, NEO_F32, B, width), gx, ge));
        check(&n, interact_loss, n.x, gx, "x");
        check(&n, interact_loss, n.e, ge, "e");
        neo_ctx_destroy(n.ctx);
    }
}

/* Factors and weights, through y and through v. n.diagonal is the dim, n.x is v. */
static void fm(void) {
    enum { F = 3, COLS = F * (DIM + 1) };
    static float e[B * COLS], v[B * F * DIM], y[B], r[B + B * F * DIM], de[B * COLS];
    net n = {.ctx = test_ctx(1, NEO_ISA_BEST, 1), .r = r, .diagonal = DIM};
    test_fill(e, B * COLS), test_fill(r, B + B * F * DIM);
    n.e = neo_tensor_2d(e, NEO_F32, B, COLS), n.x = neo_tensor_2d(v, NEO_F32, B, F * DIM);
    n.out = neo_tensor_2d(y, NEO_F32, B, 1);
    neo_tensor grad = neo_tensor_2d(de, NEO_F32, B, COLS);
    CHECK_OK(neo_fm_backward(n.ctx, DIM, 1, n.e, neo_tensor_1d(r, NEO_F32, B),
                             neo_tensor_2d(r + B, NEO_F32, B, F * DIM), grad));
    check(&n, fm_loss, n.e, grad, "e");
    neo_ctx_destroy(n.ctx);
}

/* n.diagonal is the dim. */
static void ffm(void) {
    enum { F = 3, COLS = F * (F * DIM + 1) };
    static float e[B * COLS], y[B], r[B], de[B * COLS];
    net n = {.ctx = test_ctx(1, NEO_ISA_BEST, 1), .r = r, .diagonal = DIM};
    test_fill(e, B * COLS), test_fill(r, B);
    n.e = neo_tensor_2d(e, NEO_F32, B, COLS), n.out = neo_tensor_2d(y, NEO_F32, B, 1);
    neo_tensor grad = neo_tensor_2d(de, NEO_F32, B, COLS);
    CHECK_OK(neo_ffm_backward(n.ctx, F, DIM, 1, n.e, neo_tensor_1d(r, NEO_F32, B), grad));
    check(&n, ffm_loss, n.e, grad, "e");
    neo_ctx_destroy(n.ctx);
}

/* The gradient of the rows is what one SGD step of lr 1 takes off them. */
static void bags(void) {
    static float w[TABLES][ROWS * DIM], before[TABLES][ROWS * DIM], out[B * TABLES * DIM],
        r[B * TABLES * DIM];
    static float weights[IDS], dweights[IDS];
    static int64_t ids[IDS], offsets[TABLES * B + 1];
    for (int weighted_bags = 0; weighted_bags < 2; weighted_bags++) {
        net n = {.ctx = test_ctx(2, NEO_ISA_BEST, 2), .r = r};
        neo_table_desc tables[TABLES] = {{.name = "sum",
                                          .rows = ROWS,
                                          .dim = DIM,
                                          .optim = {.kind = NEO_BAG_SGD},
                                          .weight = w[0]},
                                         {.name = "mean",
                                          .rows = ROWS,
                                          .dim = DIM,
                                          .optim = {.kind = NEO_BAG_SGD},
                                          .pooling = NEO_POOL_MEAN,
                                          .weight = w[1]}};
        for (int i = 0; i < IDS; i++) ids[i] = test_random() % ROWS;
        for (int i = 0; i < TABLES * B; i++)
            offsets[i + 1] = offsets[i] + i % 4; /* empty bags too */
        test_fill(weights, IDS), test_fill(r, B * TABLES * DIM);
        n.ids = (neo_jagged){.batch = B,
                             .feature_count = TABLES,
                             .id_dtype = NEO_I64,
                             .offsets = offsets,
                             .ids = ids,
                             .weights = weighted_bags ? weights : NULL};
        n.out = neo_tensor_2d(out, NEO_F32, B, TABLES * DIM);
        neo_tensor dout = neo_tensor_2d(r, NEO_F32, B, TABLES * DIM);
        REQUIRE_OK(neo_bags_create(
            n.ctx,
            &(neo_bags_desc){
                .tables = tables, .table_count = TABLES, .max_batch = B, .max_ids = IDS},
            &n.bags));
        int64_t count = neo_jagged_id_count(&n.ids);
        if (weighted_bags) {
            CHECK_OK(neo_bags_weight_grad(n.bags, &n.ids, dout, dweights));
            check(&n, bags_loss, neo_tensor_1d(weights, NEO_F32, count),
                  neo_tensor_1d(dweights, NEO_F32, count), "weights");
        }
        memcpy(before, w, sizeof w);
        CHECK_OK(neo_bags_backward(n.bags, &n.ids, dout, 1.0f));
        for (int t = 0; t < TABLES; t++) {
            static float grad[ROWS * DIM];
            for (int i = 0; i < ROWS * DIM; i++) grad[i] = before[t][i] - w[t][i];
            memcpy(w[t], before[t], sizeof w[t]);
            neo_tensor value = neo_tensor_1d(w[t], NEO_F32, ROWS * DIM);
            check(&n, bags_loss, value, neo_tensor_1d(grad, NEO_F32, ROWS * DIM), tables[t].name);
        }
        neo_bags_destroy(n.bags);
        neo_ctx_destroy(n.ctx);
    }
}

int main(void) {
    RUN(mlp);
    RUN(cross);
    RUN(wukong);
    RUN(interact);
    RUN(fm);
    RUN(ffm);
    RUN(bags);
    return test_end("core/gradcheck");
}
