/* custom.c: a trainer with a layer of its own. A layer is a forward and a backward function on
   tensors; its parameters go into neo_params, and neo_gradcheck compares the backward with central
   differences.

     cc -O2 -I. examples/custom.c examples/neo.c -o custom -lm -lpthread && ./custom

   The layer is a cross layer as in DCN-v2: y = x * (x w^T + b) + x (elementwise product). The task
   is to learn t = a b - c d from four numbers, which no linear model can: expect a mean squared
   error of about 0.5 at first (the variance of t is 0.22) and below 0.002 at the end.
   NEO_EXACT_BEGIN: the layer has the same bits on every machine, whatever flags compile it. */
#include "neo_run.h"
#include <stdio.h>

enum { WIDTH = 4, BATCH = 256, STEPS = 2000 };

NEO_EXACT_BEGIN

typedef struct cross {
    neo_ctx *ctx;
    const neo_param *w, *b; /* [WIDTH][WIDTH], [WIDTH] */
    neo_tensor x;           /* input of the last forward; must stay until backward */
    neo_tensor u, du;       /* x w^T + b and its gradient, [BATCH][WIDTH] */
} cross;

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

static neo_status cross_create(neo_ctx *ctx, neo_params *params, cross *c) {
    int64_t square[2] = {WIDTH, WIDTH}, batch[2] = {BATCH, WIDTH};
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.3f}, zero = {NEO_INIT_CONSTANT, 0, 0};
    c->ctx = ctx;
    TRY(neo_params_add(params, "cross.weight", 2, square, normal, &c->w));
    TRY(neo_params_add(params, "cross.bias", 1, square, zero, &c->b));
    TRY(neo_tensor_alloc(ctx, NEO_F32, 2, batch, &c->u));
    return neo_tensor_alloc(ctx, NEO_F32, 2, batch, &c->du);
}

static void cross_destroy(cross *c) {
    neo_tensor_free(c->ctx, &c->u);
    neo_tensor_free(c->ctx, &c->du);
}

static neo_status cross_forward(cross *c, neo_tensor x, neo_tensor y) {
    c->x = x;
    TRY(neo_linear_forward(c->ctx, x, c->w->value, c->b->value, NEO_ACT_NONE, c->u));
    const float *xv = x.data, *u = c->u.data;
    float *out = y.data;
    for (int64_t i = 0; i < neo_tensor_count(y); i++) out[i] = xv[i] * u[i] + xv[i];
    return NEO_OK;
}

/* du = dy x; then what the linear part passes back, plus dx = dy (u + 1). */
static neo_status cross_backward(cross *c, neo_tensor dy, neo_tensor dx) {
    const float *xv = c->x.data, *u = c->u.data, *d = dy.data;
    float *du = c->du.data, *out = dx.data;
    for (int64_t i = 0; i < neo_tensor_count(dy); i++) du[i] = d[i] * xv[i];
    TRY(neo_linear_backward(c->ctx, NULL, c->x, c->w->value, c->du, dx, c->w->grad, c->b->grad));
    for (int64_t i = 0; i < neo_tensor_count(dy); i++) out[i] += d[i] * (u[i] + 1.0f);
    return NEO_OK;
}

typedef struct net {
    neo_ctx *ctx;
    neo_params *params;
    neo_optim *optim;
    cross layer;
    neo_mlp *head;
    neo_tensor x, target, y, pred, dpred, dy, dx;
} net;

static neo_status net_create(net *n) {
    int64_t wide[2] = {BATCH, WIDTH}, narrow[2] = {BATCH, 1};
    neo_tensor *wides[] = {&n->x, &n->y, &n->dy, &n->dx};
    neo_tensor *narrows[] = {&n->target, &n->pred, &n->dpred};
    neo_mlp_desc head = {.name = "head", .width_count = 3, .widths = {WIDTH, 16, 1},
                         .max_batch = BATCH, .act = NEO_ACT_TANH};
    TRY(neo_ctx_create(&(neo_ctx_desc){.seed = 7}, &n->ctx));
    TRY(neo_params_create(n->ctx, &n->params));
    TRY(cross_create(n->ctx, n->params, &n->layer));
    TRY(neo_mlp_create(n->ctx, n->params, &head, &n->head));
    TRY(neo_optim_create(n->ctx, n->params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAM}, &n->optim));
    for (int i = 0; i < 4; i++) TRY(neo_tensor_alloc(n->ctx, NEO_F32, 2, wide, wides[i]));
    for (int i = 0; i < 3; i++) TRY(neo_tensor_alloc(n->ctx, NEO_F32, 2, narrow, narrows[i]));
    return NEO_OK;
}

static void net_destroy(net *n) {
    neo_tensor *all[] = {&n->x, &n->y, &n->dy, &n->dx, &n->target, &n->pred, &n->dpred};
    for (int i = 0; i < 7; i++) neo_tensor_free(n->ctx, all[i]);
    neo_optim_destroy(n->optim);
    neo_mlp_destroy(n->head);
    cross_destroy(&n->layer);
    neo_params_destroy(n->params);
    neo_ctx_destroy(n->ctx);
}

static void make_batch(net *n, int64_t step) {
    float *x = n->x.data, *t = n->target.data;
    for (int64_t i = 0; i < BATCH * WIDTH; i++)
        x[i] =
            2.0f * neo_random_uniform(7, neo_hash("x"), step, NEO_STREAM_DATA, (uint64_t)i) - 1.0f;
    for (int64_t i = 0; i < BATCH; i++, x += WIDTH) t[i] = x[0] * x[1] - x[2] * x[3];
}

static neo_status net_loss(void *user, double *loss) {
    net *n = user;
    TRY(cross_forward(&n->layer, n->x, n->y));
    TRY(neo_mlp_forward(n->head, n->y, n->pred));
    return neo_mse(n->ctx, NULL, n->pred, n->target, n->dpred, loss);
}

static neo_status net_backward(net *n) {
    TRY(neo_mlp_backward(n->head, NULL, n->dpred, n->dy));
    return cross_backward(&n->layer, n->dy, n->dx);
}

static neo_status net_check_gradients(net *n) {
    double loss;
    make_batch(n, 0);
    TRY(net_loss(n, &loss));
    TRY(net_backward(n));
    const neo_param *checked[] = {n->layer.w, n->layer.b};
    for (int i = 0; i < 2; i++) {
        neo_gradcheck_result result;
        neo_gradcheck_desc d = {.loss = net_loss, .user = n, .name = checked[i]->name,
                                .value = checked[i]->value, .grad = checked[i]->grad};
        TRY(neo_gradcheck(&d, &result));
        printf("gradient of %-12s %lld elements agree\n", checked[i]->name,
               (long long)result.checked);
    }
    return NEO_OK;
}

static neo_status net_train(net *n) {
    double loss;
    for (int64_t step = 0; step < STEPS; step++) {
        make_batch(n, step);
        TRY(net_loss(n, &loss));
        TRY(net_backward(n));
        TRY(neo_optim_step(n->optim, 0.01f));
        if (step % 500 == 0 || step == STEPS - 1)
            printf("step %4lld  loss %.5f\n", (long long)step, loss);
    }
    return loss < 0.002 ? NEO_OK : NEO_ERR_NUMERIC;
}

NEO_EXACT_END

int main(void) {
    static net n; /* zeroed */
    neo_status status = net_create(&n);
    if (status == NEO_OK) status = net_check_gradients(&n);
    if (status == NEO_OK) status = net_train(&n);
    if (status != NEO_OK)
        fprintf(stderr, "custom: %s: %s\n", neo_status_string(status), neo_last_error());
    net_destroy(&n);
    return status == NEO_OK ? 0 : 1;
}
