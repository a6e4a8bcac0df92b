/* model.h: a DLRM of 13 dense numbers and 26 tables with one id per sample, row-wise Adagrad on tables and Adagrad on
   layers, and its training step. By itself the layers are those used for Criteo Kaggle: bottom 13-512-256-64-16, tables
   of 16 columns, top 367-512-256-1. Also generated batches. */
#ifndef NEO_BENCH_MODEL_H
#define NEO_BENCH_MODEL_H

#include "../neo_data.h"
#include "bench.h"

enum { DENSE = 13, TABLES = 26, DIM = 16, BATCHES = 8, WIDTH = DIM + TABLES * (TABLES + 1) / 2 };
static const int64_t BOTTOM[] = {DENSE, 512, 256, 64, DIM}, TOP[] = {WIDTH, 512, 256, 1};

typedef struct model_desc {
    int64_t batch, rows;        /* samples; rows of every table */
    const int64_t *bottom, *top; /* widths behind the input; the bottom's last is the tables' dim; NULL: Kaggle's */
    int bottoms, tops;
    neo_dtype dtype; /* of what the layers multiply, NEO_F32 or NEO_BF16; parameters and sums are f32 */
    float initial;   /* of the layers' Adagrad */
    int no_init;     /* tables are left as the allocator gives them */
} model_desc;

typedef struct model {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_bags *bags;
    neo_optim *optim;
    int64_t batch, dim, width; /* of a table's rows, of the interaction */
    neo_dtype dtype;
    neo_tensor x, e, z, y, dx, de, dz, dy;
} model;

/* BATCHES batches, made once: [batch][..] dense, label, and jagged views. */
typedef struct data {
    neo_tensor dense[BATCHES], label[BATCHES];
    neo_jagged_buffer *ids[BATCHES];
} data;

static inline neo_status model_mlp(const model *m, const char *name, int64_t in, const int64_t *widths, int count,
                                   neo_activation last, neo_mlp **mlp) {
    neo_mlp_desc d = {.name = name, .width_count = count + 1, .max_batch = m->batch, .act = NEO_ACT_RELU,
                      .last_act = last, .dtype = m->dtype};
    d.widths[0] = in;
    memcpy(d.widths + 1, widths, (size_t)count * sizeof *widths);
    return neo_mlp_create(m->ctx, m->params, &d, mlp);
}
/* m takes over ctx, also where it fails: then model_free takes away what there is. */
static inline neo_status model_create(neo_ctx *ctx, const model_desc *d, model *m) {
    const model_desc kaggle = {.bottom = BOTTOM + 1, .bottoms = 4, .top = TOP + 1, .tops = 3};
    const model_desc *layers = d->bottom ? d : &kaggle;
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    *m = (model){.ctx = ctx, .batch = d->batch, .dim = layers->bottom[layers->bottoms - 1], .dtype = d->dtype};
    m->width = neo_interact_width(m->dim, TABLES, 0);
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = (neo_table_desc){.name = names[t], .rows = d->rows, .dim = m->dim,
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
        if (d->no_init) tables[t].init.kind = NEO_INIT_NONE;
    }
    BENCH_TRY(neo_params_create(ctx, &m->params));
    BENCH_TRY(model_mlp(m, "bottom", DENSE, layers->bottom, layers->bottoms, NEO_ACT_RELU, &m->bottom));
    BENCH_TRY(model_mlp(m, "top", m->width, layers->top, layers->tops, NEO_ACT_NONE, &m->top));
    BENCH_TRY(neo_bags_create(ctx, &(neo_bags_desc){.tables = tables, .table_count = TABLES, .max_batch = d->batch,
                                                    .max_ids = d->batch * TABLES}, &m->bags));
    BENCH_TRY(neo_optim_create(ctx, m->params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD,
                                                                 .initial_accumulator = d->initial}, &m->optim));
    neo_tensor *all[] = {&m->x, &m->dx, &m->e, &m->de, &m->z, &m->dz, &m->y, &m->dy};
    const int64_t columns[] = {m->dim, TABLES * m->dim, m->width, 1};
    for (int i = 0; i < 8; i++)
        BENCH_TRY(neo_tensor_alloc(ctx, NEO_F32, 2, (int64_t[]){d->batch, columns[i / 2]}, all[i]));
    return NEO_OK;
}
static inline void model_free(model *m) {
    neo_tensor *all[] = {&m->x, &m->e, &m->z, &m->y, &m->dx, &m->de, &m->dz, &m->dy};
    for (int i = 0; i < 8; i++) neo_tensor_free(m->ctx, all[i]);
    neo_optim_destroy(m->optim);
    neo_bags_destroy(m->bags);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    neo_ctx_destroy(m->ctx);
}
/* Forward, backward and the optimizers' steps. loss: NULL, or the mean. */
static inline neo_status model_step(model *m, neo_tensor dense, neo_tensor label, const neo_jagged *ids, float lr,
                                    double *loss) {
    BENCH_TRY(neo_mlp_forward(m->bottom, dense, m->x));
    BENCH_TRY(neo_bags_forward(m->bags, ids, m->e));
    BENCH_TRY(neo_interact_forward(m->ctx, 0, m->x, m->e, m->z));
    BENCH_TRY(neo_mlp_forward(m->top, m->z, m->y));
    BENCH_TRY(neo_bce_with_logits(m->ctx, NULL, m->y, label, m->dy, loss));
    BENCH_TRY(neo_mlp_backward(m->top, NULL, m->dy, m->dz));
    BENCH_TRY(neo_interact_backward(m->ctx, 0, m->x, m->e, m->dz, m->dx, m->de));
    BENCH_TRY(neo_bags_backward(m->bags, ids, m->de, lr));
    BENCH_TRY(neo_mlp_backward(m->bottom, NULL, m->dx, neo_tensor_none()));
    return neo_optim_step(m->optim, lr);
}

static inline data make_data(neo_ctx *ctx, int64_t batch, int64_t rows) {
    data d;
    neo_schema *schema;
    neo_reader *reader;
    neo_batch b;
    BENCH_OK(neo_schema_synthetic(ctx, &(neo_synthetic_desc){.samples = batch * BATCHES, .rows = rows}, &schema));
    BENCH_OK(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = batch}, &reader));
    for (int i = 0; i < BATCHES; i++) {
        const neo_jagged *part = &b.sparse;
        BENCH_OK(neo_reader_next(reader, &b));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, b.dense.shape, &d.dense[i]));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 1, b.label.shape, &d.label[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.dense, d.dense[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.label, d.label[i]));
        BENCH_OK(neo_jagged_create(ctx, &(neo_jagged_desc){.feature_count = TABLES, .max_bags = batch * TABLES,
                                                           .max_ids = neo_jagged_id_count(part)}, &d.ids[i]));
        BENCH_OK(neo_jagged_stack(d.ids[i], &part, 1));
    }
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    return d;
}
static inline void free_data(neo_ctx *ctx, data *d) {
    for (int i = 0; i < BATCHES; i++) {
        neo_tensor_free(ctx, &d->dense[i]);
        neo_tensor_free(ctx, &d->label[i]);
        neo_jagged_destroy(d->ids[i]);
    }
}

static inline model make_model(neo_ctx *ctx, int64_t batch, int64_t rows) {
    model m;
    BENCH_OK(model_create(ctx, &(model_desc){.batch = batch, .rows = rows}, &m));
    return m;
}
/* A step with batch i. */
static inline void step(model *m, const data *d, int i) {
    BENCH_OK(model_step(m, d->dense[i], d->label[i], neo_jagged_view(d->ids[i]), 0.01f, NULL));
}

#endif
