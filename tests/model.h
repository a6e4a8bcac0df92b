/* model.h: a small DLRM and its training step, for tests and benches: a bottom MLP of the dense
   numbers, tables, their interaction, a top MLP, the loss, and the optimizers of both. Functions
   return the status of the first call that failed. Include neo.h (or test.h) before. */
#ifndef NEO_TEST_MODEL_H
#define NEO_TEST_MODEL_H

#include "neo_data.h"
#include <string.h>

typedef struct model_desc {
    int64_t batch, max_ids;       /* most of a step */
    const neo_table_desc *tables; /* of one dim, but without a bottom */
    int table_count;
    neo_tier *tier; /* or NULL */
    /* Widths. The bottom's are from the dense numbers to the dim; the top's input goes without
       saying. No bottom: there is no interaction, and the top takes the rows side by side. */
    const int64_t *bottom, *top;
    int bottom_count, top_count;
    neo_dtype dtype; /* of what the layers multiply: NEO_F32 or NEO_BF16 */
    neo_optim_desc optim;
    int lazy_init;      /* as of neo_bags_desc */
    int cross_layers;   /* with a bottom: a cross network in place of the dot products; 0: none */
    int64_t cross_rank;
    int early;          /* layers step in their backward, see neo_optim_begin */
} model_desc;

typedef struct model {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *bottom, *top; /* bottom: or NULL */
    neo_cross *cross;      /* or NULL; then x and e are columns of all, dx and de of dall */
    neo_bags *bags;
    neo_optim *optim;
    neo_state *state; /* params, optim and bags */
    int64_t batch, width; /* width: of the top's input */
    int early;
    neo_tensor x, e, z, y, dx, de, dz, dy; /* outputs of bottom, bags, interaction and top */
    neo_tensor all, dall;
} model;

/* tensors where the context computes; the label of sample i may be label[i] or label[i][0]. */
typedef struct model_batch {
    neo_tensor dense, label;
    const neo_jagged *ids;
} model_batch;

#define MODEL_TRY(call)                                                                            \
    do {                                                                                           \
        neo_status model_status = (call);                                                          \
        if (model_status != NEO_OK) return model_status;                                           \
    } while (0)

/* The context is the caller's. */
static inline void model_destroy(model *m) {
    neo_tensor *tensors[] = {&m->all, &m->dall, &m->z, &m->y, &m->dz,
                             &m->dy,  &m->x,    &m->e, &m->dx, &m->de};
    for (int i = 0; m->ctx && i < (m->cross ? 6 : 10); i++) neo_tensor_free(m->ctx, tensors[i]);
    neo_state_destroy(m->state);
    neo_bags_destroy(m->bags);
    neo_optim_destroy(m->optim);
    neo_mlp_destroy(m->top);
    neo_cross_destroy(m->cross);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    memset(m, 0, sizeof *m);
}

static inline neo_status model_layers(model *m, const model_desc *desc) {
    neo_mlp_desc d;
    memset(&d, 0, sizeof d);
    d.max_batch = desc->batch;
    d.act = NEO_ACT_RELU;
    d.dtype = desc->dtype;
    if (desc->bottom_count > 0) {
        d.name = "bottom";
        d.last_act = NEO_ACT_RELU;
        d.width_count = desc->bottom_count;
        memcpy(d.widths, desc->bottom, (size_t)d.width_count * sizeof *d.widths);
        MODEL_TRY(neo_mlp_create(m->ctx, m->params, &d, &m->bottom));
    }
    if (desc->cross_layers > 0) {
        neo_cross_desc c;
        memset(&c, 0, sizeof c);
        c.name = "cross";
        c.width = m->width;
        c.rank = desc->cross_rank;
        c.layers = desc->cross_layers;
        c.max_batch = desc->batch;
        c.dtype = desc->dtype;
        MODEL_TRY(neo_cross_create(m->ctx, m->params, &c, &m->cross));
    }
    d.name = "top";
    d.last_act = NEO_ACT_NONE;
    d.width_count = desc->top_count + 1;
    d.widths[0] = m->width;
    memcpy(d.widths + 1, desc->top, (size_t)desc->top_count * sizeof *d.widths);
    return neo_mlp_create(m->ctx, m->params, &d, &m->top);
}
static inline neo_status model_bags(model *m, const model_desc *desc) {
    neo_bags_desc d;
    memset(&d, 0, sizeof d);
    d.tables = desc->tables;
    d.table_count = desc->table_count;
    d.max_batch = desc->batch;
    d.max_ids = desc->max_ids;
    d.tier = desc->tier;
    d.lazy_init = desc->lazy_init;
    return neo_bags_create(m->ctx, &d, &m->bags);
}
static inline neo_status model_tensors(model *m, int64_t dim) {
    neo_tensor *tensors[][2] = {{&m->e, &m->de}, {&m->y, &m->dy}, {&m->x, &m->dx}, {&m->z, &m->dz}};
    const int64_t columns[] = {neo_bags_out_width(m->bags), 1, dim, m->width};
    for (int i = 0; m->cross && i < 2; i++) {
        const int64_t shape[2] = {m->batch, m->width};
        neo_tensor *all = i ? &m->dall : &m->all;
        MODEL_TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, all));
        MODEL_TRY(neo_tensor_zero(m->ctx, *all));
        *tensors[2][i] = neo_tensor_slice(*all, 1, 0, dim);
        *tensors[0][i] = neo_tensor_slice(*all, 1, dim, m->width - dim);
    }
    for (int i = 0; i < (m->bottom ? 8 : 4); i++) {
        if (m->cross && i / 2 % 2 == 0) continue; /* x and e */
        const int64_t shape[2] = {m->batch, columns[i / 2]};
        MODEL_TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, tensors[i / 2][i % 2]));
        MODEL_TRY(neo_tensor_zero(m->ctx, *tensors[i / 2][i % 2]));
    }
    return NEO_OK;
}
static inline neo_status model_state(model *m) {
    MODEL_TRY(neo_state_create(m->ctx, &m->state));
    MODEL_TRY(neo_state_add_params(m->state, m->params));
    MODEL_TRY(neo_state_add_optim(m->state, m->optim));
    return neo_state_add_bags(m->state, m->bags);
}
/* After a failure, too, model_destroy takes away what there is. */
static inline neo_status model_create(model *m, neo_ctx *ctx, const model_desc *desc) {
    const int64_t dim = desc->tables[0].dim;
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    m->batch = desc->batch;
    m->early = desc->early;
    if (desc->bottom_count > 0) m->width = neo_interact_width(dim, desc->table_count, 0);
    if (desc->cross_layers > 0) m->width = dim * (desc->table_count + 1);
    for (int t = 0; desc->bottom_count == 0 && t < desc->table_count; t++)
        m->width += desc->tables[t].dim;
    MODEL_TRY(neo_params_create(ctx, &m->params));
    MODEL_TRY(model_layers(m, desc));
    MODEL_TRY(neo_optim_create(ctx, m->params, &desc->optim, &m->optim));
    MODEL_TRY(model_bags(m, desc));
    MODEL_TRY(model_tensors(m, dim));
    return model_state(m);
}

/* One of the MODEL_CALLS calls of a step. loss: NULL, or set to the mean by its call. */
enum { MODEL_CALLS = 10 };
static inline neo_status model_call(model *m, const model_batch *b, int call, float lr,
                                    double *loss) {
    const int64_t n = b->ids->batch;
    const neo_tensor e = neo_tensor_rows(m->e, 0, n), de = neo_tensor_rows(m->de, 0, n);
    const neo_tensor y = neo_tensor_rows(m->y, 0, n), dy = neo_tensor_rows(m->dy, 0, n);
    neo_tensor x = neo_tensor_none(), dx = x, z = e, dz = de;
    if (m->bottom) {
        x = neo_tensor_rows(m->x, 0, n), dx = neo_tensor_rows(m->dx, 0, n);
        z = neo_tensor_rows(m->z, 0, n), dz = neo_tensor_rows(m->dz, 0, n);
    } else if (call == 0 || call == 2 || call == 6 || call == 8) {
        return NEO_OK;
    }
    switch (call) {
    case 0: return neo_mlp_forward(m->bottom, b->dense, x);
    case 1: return neo_bags_forward(m->bags, b->ids, e);
    case 2:
        return m->cross ? neo_cross_forward(m->cross, neo_tensor_rows(m->all, 0, n), z)
                        : neo_interact_forward(m->ctx, 0, x, e, z);
    case 3: return neo_mlp_forward(m->top, z, y);
    case 4: return neo_bce_with_logits(m->ctx, NULL, y, b->label, dy, loss);
    case 5:
        if (m->early) MODEL_TRY(neo_optim_begin(m->optim, lr));
        return neo_mlp_backward(m->top, NULL, dy, dz);
    case 6:
        return m->cross ? neo_cross_backward(m->cross, NULL, dz, neo_tensor_rows(m->dall, 0, n))
                        : neo_interact_backward(m->ctx, 0, x, e, dz, dx, de);
    case 7: return neo_bags_backward(m->bags, b->ids, de, lr);
    case 8: return neo_mlp_backward(m->bottom, NULL, dx, neo_tensor_none());
    default: return neo_optim_step(m->optim, lr);
    }
}
static inline neo_status model_step(model *m, const model_batch *b, float lr, double *loss) {
    for (int call = 0; call < MODEL_CALLS; call++) MODEL_TRY(model_call(m, b, call, lr, loss));
    return NEO_OK;
}
#endif
