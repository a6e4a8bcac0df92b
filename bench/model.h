/* model.h: the DLRM with the layers used for Criteo Kaggle (bottom 13-512-256-64-16, 26 tables of 16 columns, top
   367-512-256-1; row-wise Adagrad on tables, Adagrad on layers), its batches and its training step. */
#ifndef NEO_BENCH_MODEL_H
#define NEO_BENCH_MODEL_H

#include "bench.h"

enum { DENSE = 13, TABLES = 26, DIM = 16, BATCHES = 8, WIDTH = DIM + TABLES * (TABLES + 1) / 2 };
static const int64_t BOTTOM[] = {DENSE, 512, 256, 64, DIM}, TOP[] = {WIDTH, 512, 256, 1};

typedef struct model {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_bags *bags;
    neo_optim *optim;
    int64_t batch;
    neo_tensor x, e, z, y, dx, de, dz, dy;
} model;

/* BATCHES batches, made once: [batch][..] dense, label, and jagged views. */
typedef struct data {
    neo_tensor dense[BATCHES], label[BATCHES];
    neo_jagged_buffer *ids[BATCHES];
} data;

static inline neo_mlp *make_mlp(model *m, const char *name, const int64_t *widths, int count, neo_activation last) {
    neo_mlp_desc d = {.name = name, .width_count = count, .max_batch = m->batch, .act = NEO_ACT_RELU, .last_act = last};
    memcpy(d.widths, widths, (size_t)count * sizeof *widths);
    neo_mlp *mlp;
    BENCH_OK(neo_mlp_create(m->ctx, m->params, &d, &mlp));
    return mlp;
}
static inline neo_tensor make_tensor(model *m, int64_t columns) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->batch, columns}, &t));
    return t;
}

/* Tables of `rows` rows. The model takes over ctx. */
static inline model make_model(neo_ctx *ctx, int64_t batch, int64_t rows) {
    model m = {.ctx = ctx, .batch = batch};
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = (neo_table_desc){.name = names[t], .rows = rows, .dim = DIM, .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    BENCH_OK(neo_params_create(ctx, &m.params));
    m.bottom = make_mlp(&m, "bottom", BOTTOM, 5, NEO_ACT_RELU);
    m.top = make_mlp(&m, "top", TOP, 4, NEO_ACT_NONE);
    BENCH_OK(neo_bags_create(ctx, &(neo_bags_desc){.tables = tables, .table_count = TABLES, .max_batch = batch,
                                                   .max_ids = batch * TABLES}, &m.bags));
    BENCH_OK(neo_optim_create(ctx, m.params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD}, &m.optim));
    m.x = make_tensor(&m, DIM), m.dx = make_tensor(&m, DIM);
    m.e = make_tensor(&m, TABLES * DIM), m.de = make_tensor(&m, TABLES * DIM);
    m.z = make_tensor(&m, WIDTH), m.dz = make_tensor(&m, WIDTH);
    m.y = make_tensor(&m, 1), m.dy = make_tensor(&m, 1);
    return m;
}
static inline void free_model(model *m) {
    neo_tensor *all[] = {&m->x, &m->e, &m->z, &m->y, &m->dx, &m->de, &m->dz, &m->dy};
    for (int i = 0; i < 8; i++) neo_tensor_free(m->ctx, all[i]);
    neo_optim_destroy(m->optim);
    neo_bags_destroy(m->bags);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    neo_ctx_destroy(m->ctx);
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

static inline void step(model *m, const data *d, int i) {
    const neo_jagged *ids = neo_jagged_view(d->ids[i]);
    BENCH_OK(neo_mlp_forward(m->bottom, d->dense[i], m->x));
    BENCH_OK(neo_bags_forward(m->bags, ids, m->e));
    BENCH_OK(neo_interact_forward(m->ctx, 0, m->x, m->e, m->z));
    BENCH_OK(neo_mlp_forward(m->top, m->z, m->y));
    BENCH_OK(neo_bce_with_logits(m->ctx, NULL, m->y, d->label[i], m->dy, NULL));
    BENCH_OK(neo_mlp_backward(m->top, NULL, m->dy, m->dz));
    BENCH_OK(neo_interact_backward(m->ctx, 0, m->x, m->e, m->dz, m->dx, m->de));
    BENCH_OK(neo_bags_backward(m->bags, ids, m->de, 0.01f));
    BENCH_OK(neo_mlp_backward(m->bottom, NULL, m->dx, neo_tensor_none()));
    BENCH_OK(neo_optim_step(m->optim, 0.01f));
}

#endif
