/* model.h: a small DLRM with everything a trainer has, for tests of the whole: create, step, destroy. Every
   function returns the status of the first call that failed. Include neo.h (or test.h) before. */
#ifndef NEO_TEST_MODEL_H
#define NEO_TEST_MODEL_H

#include "neo_data.h"
#include <string.h>

enum { MODEL_BATCH = 48, MODEL_DIM = 8, MODEL_FEATURES = 5, MODEL_DENSE = 4, MODEL_SAMPLES = 480 };

typedef struct model_desc {
    neo_optim_kind optim;
    neo_bag_optim_kind bag_optim;
    float clip_norm;
    int parsers; /* threads of the reader */
} model_desc;

typedef struct model {
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader;
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_optim *optim;
    neo_bags *bags;
    neo_state *state;
    neo_metrics *metrics;
    neo_tensor x, e, z, logit, dx, de, dz, dlogit;
    neo_position position;
    int64_t step;
    double loss;
} model;

#define MODEL_TRY(call)                                                                            \
    do {                                                                                           \
        neo_status model_status = (call);                                                          \
        if (model_status != NEO_OK) return model_status;                                           \
    } while (0)

static void model_destroy(model *m) {
    neo_tensor *tensors[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit};
    if (!m->ctx) return;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) neo_tensor_free(m->ctx, tensors[i]);
    neo_metrics_destroy(m->metrics);
    neo_state_destroy(m->state);
    neo_bags_destroy(m->bags);
    neo_optim_destroy(m->optim);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    neo_reader_close(m->reader);
    neo_schema_destroy(m->schema);
    neo_ctx_destroy(m->ctx);
    memset(m, 0, sizeof *m);
}

static neo_status model_tensors(model *m, int64_t width) {
    neo_tensor *tensors[][2] = {{&m->x, &m->dx}, {&m->e, &m->de}, {&m->z, &m->dz}, {&m->logit, &m->dlogit}};
    int64_t columns[] = {MODEL_DIM, MODEL_DIM * MODEL_FEATURES, width, 1};
    for (int i = 0; i < 4; i++) {
        int64_t shape[2] = {MODEL_BATCH, columns[i]};
        MODEL_TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, tensors[i][0]));
        MODEL_TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, tensors[i][1]));
    }
    return NEO_OK;
}

static neo_status model_layers(model *m, int64_t width) {
    neo_mlp_desc d;
    memset(&d, 0, sizeof d);
    d.max_batch = MODEL_BATCH;
    d.act = NEO_ACT_RELU;
    d.width_count = 3;
    d.name = "bottom";
    d.last_act = NEO_ACT_RELU;
    d.widths[0] = MODEL_DENSE, d.widths[1] = 16, d.widths[2] = MODEL_DIM;
    MODEL_TRY(neo_mlp_create(m->ctx, m->params, &d, &m->bottom));
    d.name = "top";
    d.last_act = NEO_ACT_NONE;
    d.widths[0] = width, d.widths[1] = 16, d.widths[2] = 1;
    return neo_mlp_create(m->ctx, m->params, &d, &m->top);
}

static neo_status model_bags(model *m, neo_bag_optim_kind kind) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    neo_table_desc tables[MODEL_FEATURES];
    neo_bags_desc d;
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    for (int t = 0; t < MODEL_FEATURES; t++) {
        neo_feature feature = neo_schema_feature(m->schema, t);
        tables[t].name = feature.name;
        tables[t].rows = feature.rows;
        tables[t].dim = MODEL_DIM;
        tables[t].optim.kind = kind;
        tables[t].dtype = dtypes[t % 4];
    }
    d.tables = tables;
    d.table_count = MODEL_FEATURES;
    d.max_batch = MODEL_BATCH;
    d.max_ids = MODEL_BATCH * MODEL_FEATURES;
    return neo_bags_create(m->ctx, &d, &m->bags);
}

static neo_status model_state(model *m) {
    MODEL_TRY(neo_state_create(m->ctx, &m->state));
    MODEL_TRY(neo_state_add_params(m->state, m->params));
    MODEL_TRY(neo_state_add_optim(m->state, m->optim));
    MODEL_TRY(neo_state_add_bags(m->state, m->bags));
    MODEL_TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "reader.position",
                            neo_tensor_1d(m->position.word, NEO_I64, NEO_POSITION_WORDS)));
    MODEL_TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "step", neo_tensor_1d(&m->step, NEO_I64, 1)));
    return neo_state_define(m->state, "repro_shards", "any");
}

/* m must be zeroed; after a failure too, model_destroy takes it apart. */
static neo_status model_create(model *m, const neo_ctx_desc *ctx_desc, const model_desc *desc) {
    neo_synthetic_desc synthetic;
    neo_reader_desc reader;
    neo_optim_desc optim;
    neo_metrics_desc metrics;
    int64_t width = neo_interact_width(MODEL_DIM, MODEL_FEATURES, 0);
    memset(&synthetic, 0, sizeof synthetic);
    memset(&reader, 0, sizeof reader);
    memset(&optim, 0, sizeof optim);
    memset(&metrics, 0, sizeof metrics);
    MODEL_TRY(neo_ctx_create(ctx_desc, &m->ctx));
    synthetic.samples = MODEL_SAMPLES;
    synthetic.dense_count = MODEL_DENSE;
    synthetic.feature_count = MODEL_FEATURES;
    synthetic.rows = 100;
    MODEL_TRY(neo_schema_synthetic(m->ctx, &synthetic, &m->schema));
    reader.schema = m->schema;
    reader.batch = MODEL_BATCH;
    reader.shuffle_window = 100;
    reader.threads = desc->parsers;
    MODEL_TRY(neo_reader_open(m->ctx, &reader, &m->reader));
    MODEL_TRY(neo_params_create(m->ctx, &m->params));
    MODEL_TRY(model_layers(m, width));
    optim.kind = desc->optim;
    optim.clip_norm = desc->clip_norm;
    MODEL_TRY(neo_optim_create(m->ctx, m->params, &optim, &m->optim));
    MODEL_TRY(model_bags(m, desc->bag_optim));
    MODEL_TRY(model_tensors(m, width));
    metrics.capacity = MODEL_SAMPLES * 100;
    metrics.window = 1000;
    MODEL_TRY(neo_metrics_create(m->ctx, &metrics, &m->metrics));
    return model_state(m);
}

static neo_status model_train(model *m, const neo_batch *batch) {
    neo_tensor x = neo_tensor_rows(m->x, 0, batch->size), dx = neo_tensor_rows(m->dx, 0, batch->size);
    neo_tensor e = neo_tensor_rows(m->e, 0, batch->size), de = neo_tensor_rows(m->de, 0, batch->size);
    neo_tensor z = neo_tensor_rows(m->z, 0, batch->size), dz = neo_tensor_rows(m->dz, 0, batch->size);
    neo_tensor y = neo_tensor_rows(m->logit, 0, batch->size), dy = neo_tensor_rows(m->dlogit, 0, batch->size);
    MODEL_TRY(neo_mlp_forward(m->bottom, batch->dense, x));
    MODEL_TRY(neo_bags_forward(m->bags, &batch->sparse, e));
    MODEL_TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    MODEL_TRY(neo_mlp_forward(m->top, z, y));
    MODEL_TRY(neo_metrics_update(m->metrics, y, batch->label));
    MODEL_TRY(neo_bce_with_logits(m->ctx, NULL, y, batch->label, dy, &m->loss));
    MODEL_TRY(neo_mlp_backward(m->top, NULL, dy, dz));
    MODEL_TRY(neo_interact_backward(m->ctx, 0, x, e, dz, dx, de));
    MODEL_TRY(neo_mlp_backward(m->bottom, NULL, dx, neo_tensor_none()));
    MODEL_TRY(neo_bags_backward(m->bags, &batch->sparse, de, 0.03f));
    MODEL_TRY(neo_optim_step(m->optim, 0.01f));
    m->step++;
    return NEO_OK;
}

/* `steps` steps, starting epochs as needed. */
static neo_status model_steps(model *m, int64_t steps) {
    neo_batch batch;
    for (int64_t i = 0; i < steps; i++) {
        neo_status status = neo_reader_next(m->reader, &batch);
        if (status == NEO_END) {
            m->position = neo_reader_position(m->reader);
            MODEL_TRY(neo_reader_epoch(m->reader, m->step * MODEL_BATCH / MODEL_SAMPLES));
            status = neo_reader_next(m->reader, &batch);
        }
        MODEL_TRY(status);
        MODEL_TRY(model_train(m, &batch));
    }
    m->position = neo_reader_position(m->reader);
    return NEO_OK;
}
#endif
