/* common.h: a small model of odd shapes in units, trained by a neo_fsdp on every rank, and by plain
   neo_params and neo_optim on one, which is the oracle: gradients of groups of leaves, added by
   hand. */
#ifndef FSDP_COMMON_H
#define FSDP_COMMON_H

#if defined(NEO_COMM_MPI)
#include <mpi.h>
#endif
#include "neo_fsdp.h"
#include "inside.h"

#include "comm/ranks.h"

enum { LEAVES = 8, LAYERS = 11, UNITS = 10, IN = 7, OUT = 8, MOST_BATCH = 40, WIDEST = 64 };
static const int width[LAYERS + 1] = {IN, 15, 3, 64, 48, 1, 16, 15, 8, 16, 17, OUT};
/* Unit 0 has the first and the last layer, and is open around the others. */
static int unit_of(int layer) { return layer == 0 || layer == LAYERS - 1 ? 0 : layer; }

typedef struct Config {
    neo_fsdp_desc desc;                       /* units: made by the model */
    int keep_root, replicate, freeze;         /* bits of units */
    int bare;                                 /* bits: units without windows, in DDP */
    int batch, steps, same_data;              /* the same samples in every step */
    float lr;
    int recompute;                            /* forward again in the backward window */
    int forward_first;                        /* forward of all pieces, then backward of all */
    int delay_ms;                             /* of rank 0, at several places */
    int infinite_rank, infinite_step;         /* a gradient that overflows there; -1: none */
} Config;
typedef struct Model {
    neo_params *set[UNITS];
    const neo_param *weight[LAYERS], *bias[LAYERS];
    float *activation[LAYERS + 1], *gradient[2], *target; /* [MOST_BATCH][width] */
    neo_fsdp_unit unit[UNITS];
    int infinite;
    double loss; /* of this rank's samples in the last step */
} Model;

static neo_status add_layer(neo_params *set, int i, const neo_param **weight,
                            const neo_param **bias) {
    char name[32];
    int64_t shape[2] = {width[i + 1], width[i]};
    neo_init init = {NEO_INIT_UNIFORM, -0.5f, 0.5f};
    snprintf(name, sizeof name, "layer.%d.weight", i);
    NEO__TRY(neo_params_add(set, name, 2, shape, init, weight));
    snprintf(name, sizeof name, "layer.%d.bias", i);
    return neo_params_add(set, name, 1, shape, init, bias);
}
/* deferred: in units; else all in set[0]. */
static neo_status model_create(neo_ctx *ctx, const Config *c, int deferred, Model *m) {
    static const char *const names[UNITS] = {"root", "b.1", "b.2", "b.3", "b.4",
                                             "b.5",  "b.6", "b.7", "b.8", "b.9"};
    memset(m, 0, sizeof *m);
    for (int u = 0; u < (deferred ? UNITS : 1); u++) {
        if (deferred) NEO__TRY(neo_params_create_deferred(ctx, &m->set[u]));
        else NEO__TRY(neo_params_create(ctx, &m->set[u]));
        m->unit[u].name = names[u];
        m->unit[u].params = m->set[u];
        m->unit[u].keep = u == 0 && c->keep_root;
        m->unit[u].replicate = c->replicate >> u & 1;
        m->unit[u].freeze = c->freeze >> u & 1;
    }
    for (int u = 0; u < UNITS; u++)
        for (int i = 0; i < LAYERS; i++)
            if (unit_of(i) == u)
                NEO__TRY(add_layer(m->set[deferred ? u : 0], i, &m->weight[i], &m->bias[i]));
    for (int i = 0; i <= LAYERS; i++)
        m->activation[i] = (float *)calloc((size_t)MOST_BATCH * width[i], sizeof(float));
    for (int i = 0; i < 2; i++)
        m->gradient[i] = (float *)calloc((size_t)MOST_BATCH * WIDEST, sizeof(float));
    m->target = (float *)calloc((size_t)MOST_BATCH * OUT, sizeof(float));
    return NEO_OK;
}
static void model_destroy(Model *m) {
    for (int u = 0; u < UNITS; u++) neo_params_destroy(m->set[u]);
    for (int i = 0; i <= LAYERS; i++) free(m->activation[i]);
    for (int i = 0; i < 2; i++) free(m->gradient[i]);
    free(m->target);
}
/* Samples [first, first + rows) of a micro-batch. */
static void model_load(Model *m, int step, int micro, int64_t first, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        for (int k = 0; k < IN; k++)
            m->activation[0][i * IN + k] = float_of((int)(first + i), k, 1000 * step + 10 * micro);
        for (int k = 0; k < OUT; k++)
            m->target[i * OUT + k] = float_of((int)(first + i), k, 1000 * step + 10 * micro + 1);
    }
}
static neo_tensor rows_of(float *data, int64_t rows, int64_t cols) {
    return neo_tensor_2d(data, NEO_F32, rows, cols);
}
static neo_status layer_forward(neo_ctx *ctx, Model *m, int i, int64_t rows) {
    return neo_linear_forward(ctx, rows_of(m->activation[i], rows, width[i]), m->weight[i]->value,
                              m->bias[i]->value, i < LAYERS - 1 ? NEO_ACT_TANH : NEO_ACT_NONE,
                              rows_of(m->activation[i + 1], rows, width[i + 1]));
}
static neo_status model_loss(neo_ctx *ctx, Model *m, int64_t rows, int64_t samples, float scale) {
    NEO__ZERO(neo_loss_desc, d);
    double loss;
    d.batch = samples;
    d.scale = scale;
    NEO__TRY(neo_mse(ctx, &d, rows_of(m->activation[LAYERS], rows, OUT),
                     rows_of(m->target, rows, OUT), rows_of(m->gradient[LAYERS % 2], rows, OUT),
                     &loss));
    m->loss += loss;
    if (m->infinite && rows) m->gradient[LAYERS % 2][0] = INFINITY;
    return NEO_OK;
}
/* frozen: its gradients are not computed. */
static neo_status layer_backward(neo_ctx *ctx, Model *m, const neo_leaves *leaves, int i,
                                 int64_t rows, int frozen) {
    neo_tensor dz = rows_of(m->gradient[(i + 1) % 2], rows, width[i + 1]);
    if (i < LAYERS - 1)
        NEO__TRY(neo_activation_backward(ctx, NEO_ACT_TANH, neo_tensor_none(),
                                         rows_of(m->activation[i + 1], rows, width[i + 1]), dz,
                                         dz));
    return neo_linear_backward(ctx, leaves, rows_of(m->activation[i], rows, width[i]),
                               m->weight[i]->value, dz,
                               i ? rows_of(m->gradient[i % 2], rows, width[i]) : neo_tensor_none(),
                               frozen ? neo_tensor_none() : m->weight[i]->grad,
                               frozen ? neo_tensor_none() : m->bias[i]->grad);
}

/* ---- on one rank, by hand ---- */
static int64_t samples_in(int64_t batch, int first, int count) {
    return neo_leaf_begin(batch, LEAVES, first + count) - neo_leaf_begin(batch, LEAVES, first);
}
static neo_status oracle_micro(neo_ctx *ctx, const Config *c, Model *m, int step, int micro,
                               int micros, neo_leaves leaves) {
    int64_t first = neo_leaf_begin(c->batch, LEAVES, leaves.first),
            rows = samples_in(c->batch, leaves.first, leaves.count);
    model_load(m, step, micro, first, rows);
    for (int i = 0; i < LAYERS; i++) NEO__TRY(layer_forward(ctx, m, i, rows));
    NEO__TRY(model_loss(ctx, m, rows, (int64_t)c->batch * micros, 1.0f));
    for (int i = LAYERS - 1; i >= 0; i--) NEO__TRY(layer_backward(ctx, m, &leaves, i, rows, 0));
    return NEO_OK;
}
/* The digest after c->steps steps of f32 training, micro-batches adding in `groups` subtrees. */
static inline neo_status oracle_digest(neo_ctx *ctx, const Config *c, int groups,
                                       uint64_t *digest) {
    Model m;
    neo_optim *optim;
    neo_state *state;
    int micros = c->desc.micro_batches ? c->desc.micro_batches : 1;
    neo_tensor sum[2 * LAYERS][LEAVES];
    NEO__TRY(model_create(ctx, c, 0, &m));
    NEO__TRY(neo_optim_create(ctx, m.set[0], &c->desc.optim, &optim));
    for (int p = 0; p < 2 * LAYERS; p++)
        for (int g = 0; g < groups; g++) {
            neo_tensor grad = neo_params_at(m.set[0], p)->grad;
            NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, grad.ndim, grad.shape, &sum[p][g]));
        }
    for (int step = 0; step < c->steps; step++) {
        for (int micro = 0; micro < micros; micro++)
            for (int g = 0; g < groups; g++) {
                NEO__ZERO(neo_leaves, leaves);
                leaves.batch = c->batch;
                leaves.first = g * (LEAVES / groups);
                leaves.count = LEAVES / groups;
                NEO__TRY(oracle_micro(ctx, c, &m, step, micro, micros, leaves));
                for (int p = 0; p < 2 * LAYERS; p++) {
                    neo_tensor grad = neo_params_at(m.set[0], p)->grad;
                    float *to = (float *)sum[p][g].data;
                    const float *from = (const float *)grad.data;
                    for (int64_t i = 0; i < neo_tensor_count(grad); i++)
                        to[i] = micro ? to[i] + from[i] : from[i];
                }
            }
        for (int p = 0; p < 2 * LAYERS; p++)
            NEO__TRY(neo_tree_sum(ctx, sum[p], groups, neo_params_at(m.set[0], p)->grad));
        NEO__TRY(neo_optim_step(optim, c->lr));
    }
    NEO__TRY(neo_state_create(ctx, &state));
    NEO__TRY(neo_state_add_params(state, m.set[0]));
    NEO__TRY(neo_state_add_optim(state, optim));
    *digest = neo_state_digest(state);
    neo_state_destroy(state);
    for (int p = 0; p < 2 * LAYERS; p++)
        for (int g = 0; g < groups; g++) neo_tensor_free(ctx, &sum[p][g]);
    neo_optim_destroy(optim);
    model_destroy(&m);
    return NEO_OK;
}

/* ---- in shards ---- */
static void linger(neo_comm *comm, const Config *c) {
    if (!c->delay_ms || neo_comm_rank(comm) != 0) return;
    for (int64_t end = neo_time_ns() + c->delay_ms * (int64_t)1000000; neo_time_ns() < end;) {}
}
static int has_window(const Config *c, int u) { return !(c->bare >> u & 1); }
static neo_status unit_forward(neo_ctx *ctx, const Config *c, neo_fsdp *f, Model *m, int i,
                               int64_t rows) {
    int u = unit_of(i), window = u && has_window(c, u);
    if (window) NEO__TRY(neo_fsdp_forward_begin(f, u));
    NEO__TRY(layer_forward(ctx, m, i, rows));
    return window ? neo_fsdp_forward_end(f, u) : NEO_OK;
}
static neo_status forward(neo_comm *comm, const Config *c, neo_fsdp *f, Model *m, int64_t rows) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    if (has_window(c, 0)) NEO__TRY(neo_fsdp_forward_begin(f, 0));
    for (int i = 0; i < LAYERS; i++) {
        NEO__TRY(unit_forward(ctx, c, f, m, i, rows));
        if (i == 1 || i == LAYERS - 1) linger(comm, c);
    }
    return has_window(c, 0) ? neo_fsdp_forward_end(f, 0) : NEO_OK;
}
static neo_status backward(neo_comm *comm, const Config *c, neo_fsdp *f, Model *m, int piece,
                           int64_t rows) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_leaves leaves = neo_fsdp_piece(f, piece, c->batch);
    int micros = c->desc.micro_batches ? c->desc.micro_batches : 1;
    if (has_window(c, 0)) NEO__TRY(neo_fsdp_backward_begin(f, 0, piece));
    NEO__TRY(model_loss(ctx, m, rows, (int64_t)c->batch * micros, neo_fsdp_loss_scale(f)));
    for (int i = LAYERS - 1; i >= 0; i--) {
        int u = unit_of(i), window = u && has_window(c, u);
        if (window) NEO__TRY(neo_fsdp_backward_begin(f, u, piece));
        if (u && c->recompute) NEO__TRY(layer_forward(ctx, m, i, rows));
        NEO__TRY(layer_backward(ctx, m, &leaves, i, rows, c->freeze >> u & 1));
        if (i == 2) linger(comm, c);
        if (window) NEO__TRY(neo_fsdp_backward_end(f, u));
    }
    return has_window(c, 0) ? neo_fsdp_backward_end(f, 0) : NEO_OK;
}
static neo_status train_step(neo_comm *comm, const Config *c, neo_fsdp *f, Model *m, int step) {
    int micros = c->desc.micro_batches ? c->desc.micro_batches : 1;
    m->loss = 0;
    m->infinite = neo_comm_rank(comm) == c->infinite_rank && step == c->infinite_step;
    for (int micro = 0; micro < micros; micro++)
        for (int piece = 0; piece < neo_fsdp_pieces(f); piece++) {
            neo_leaves part = neo_fsdp_piece(f, piece, c->batch);
            int64_t first = neo_leaf_begin(c->batch, LEAVES, part.first);
            int64_t rows = samples_in(c->batch, part.first, part.count);
            model_load(m, c->same_data ? 0 : step, micro, first, rows);
            NEO__TRY(forward(comm, c, f, m, rows));
            if (c->forward_first) NEO__TRY(forward(comm, c, f, m, rows));
            NEO__TRY(backward(comm, c, f, m, piece, rows));
            int last = micro == micros - 1 && piece == neo_fsdp_pieces(f) - 1;
            if (c->bare ? !last || step % 2 == 0 : step == 1) /* with windows it may be called */
                NEO__TRY(neo_fsdp_piece_end(f));
        }
    linger(comm, c);
    return neo_fsdp_step(f, c->lr);
}
static neo_status fsdp_digest(neo_comm *comm, neo_fsdp *f, uint64_t *digest) {
    neo_state *state;
    neo_group group = neo_comm_group(comm);
    NEO__TRY(neo_state_create(neo_comm_ctx(comm), &state));
    NEO__TRY(neo_state_add_fsdp(state, f));
    neo_status status = neo_state_digest_group(state, &group, digest);
    neo_state_destroy(state);
    return status;
}
static Config config_new(void) {
    Config c;
    memset(&c, 0, sizeof c);
    c.desc.unit_count = UNITS;
    c.desc.optim.kind = NEO_OPTIM_ADAMW;
    c.desc.optim.weight_decay = 0.01f;
    c.keep_root = 1;
    c.batch = 13;
    c.steps = 3;
    c.lr = 0.05f;
    c.infinite_rank = -1;
    return c;
}
static inline neo_status fsdp_create(neo_comm *comm, const Config *c, Model *m, neo_fsdp **f) {
    NEO__TRY(model_create(neo_comm_ctx(comm), c, 1, m));
    neo_fsdp_desc d = c->desc;
    d.units = m->unit;
    return neo_fsdp_create(comm, &d, f);
}
#endif
