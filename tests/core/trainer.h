/* trainer.h: the model of tests/model.h with everything a trainer has: generated samples through a
   reader, metrics, a position that can be saved. Include neo.h (or test.h) before. */
#ifndef NEO_TEST_TRAINER_H
#define NEO_TEST_TRAINER_H

#include "../model.h"

enum { TRAINER_BATCH = 48, TRAINER_DIM = 8, TRAINER_FEATURES = 5, TRAINER_DENSE = 4 };
enum { TRAINER_SAMPLES = 480 };

typedef struct trainer_desc {
    neo_optim_kind optim;
    neo_bag_optim_kind bag_optim;
    float clip_norm;
    int parsers; /* threads of the reader */
} trainer_desc;

typedef struct trainer {
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader;
    model dlrm;
    neo_metrics *metrics;
    neo_position position;
    int64_t step;
    double loss;
} trainer;

static inline void trainer_destroy(trainer *t) {
    if (!t->ctx) return;
    neo_metrics_destroy(t->metrics);
    model_destroy(&t->dlrm);
    neo_reader_close(t->reader);
    neo_schema_destroy(t->schema);
    neo_ctx_destroy(t->ctx);
    memset(t, 0, sizeof *t);
}

static inline neo_status trainer_reader(trainer *t, int parsers) {
    neo_synthetic_desc synthetic;
    neo_reader_desc reader;
    memset(&synthetic, 0, sizeof synthetic);
    memset(&reader, 0, sizeof reader);
    synthetic.samples = TRAINER_SAMPLES;
    synthetic.dense_count = TRAINER_DENSE;
    synthetic.feature_count = TRAINER_FEATURES;
    synthetic.rows = 100;
    MODEL_TRY(neo_schema_synthetic(t->ctx, &synthetic, &t->schema));
    reader.schema = t->schema;
    reader.batch = TRAINER_BATCH;
    reader.shuffle_window = 100;
    reader.threads = parsers;
    return neo_reader_open(t->ctx, &reader, &t->reader);
}
static inline neo_status trainer_model(trainer *t, const trainer_desc *desc) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const int64_t bottom[] = {TRAINER_DENSE, 16, TRAINER_DIM}, top[] = {16, 1};
    neo_table_desc tables[TRAINER_FEATURES];
    model_desc d;
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < TRAINER_FEATURES; i++) {
        neo_feature feature = neo_schema_feature(t->schema, i);
        tables[i].name = feature.name;
        tables[i].rows = feature.rows;
        tables[i].dim = TRAINER_DIM;
        tables[i].optim.kind = desc->bag_optim;
        tables[i].dtype = dtypes[i % 4];
    }
    d.batch = TRAINER_BATCH;
    d.max_ids = TRAINER_BATCH * TRAINER_FEATURES;
    d.tables = tables;
    d.table_count = TRAINER_FEATURES;
    d.bottom = bottom, d.bottom_count = 3;
    d.top = top, d.top_count = 2;
    d.optim.kind = desc->optim;
    d.optim.clip_norm = desc->clip_norm;
    return model_create(&t->dlrm, t->ctx, &d);
}
/* t must be zeroed; after a failure, too, trainer_destroy takes it apart. */
static inline neo_status trainer_create(trainer *t, const neo_ctx_desc *ctx_desc,
                                        const trainer_desc *desc) {
    neo_metrics_desc metrics;
    memset(&metrics, 0, sizeof metrics);
    MODEL_TRY(neo_ctx_create(ctx_desc, &t->ctx));
    MODEL_TRY(trainer_reader(t, desc->parsers));
    MODEL_TRY(trainer_model(t, desc));
    metrics.capacity = TRAINER_SAMPLES * 100;
    metrics.window = 1000;
    MODEL_TRY(neo_metrics_create(t->ctx, &metrics, &t->metrics));
    neo_state *state = t->dlrm.state;
    MODEL_TRY(neo_state_add(state, NEO_STATE_PROGRESS, "reader.position",
                            neo_tensor_1d(t->position.word, NEO_I64, NEO_POSITION_WORDS)));
    MODEL_TRY(neo_state_add(state, NEO_STATE_PROGRESS, "step",
                            neo_tensor_1d(&t->step, NEO_I64, 1)));
    return neo_state_define(state, "repro_shards", "any");
}

/* `steps` steps, starting epochs as needed. */
static inline neo_status trainer_steps(trainer *t, int64_t steps) {
    neo_batch batch;
    for (int64_t i = 0; i < steps; i++) {
        neo_status status = neo_reader_next(t->reader, &batch);
        if (status == NEO_END) {
            t->position = neo_reader_position(t->reader);
            MODEL_TRY(neo_reader_epoch(t->reader, t->step * TRAINER_BATCH / TRAINER_SAMPLES));
            status = neo_reader_next(t->reader, &batch);
        }
        MODEL_TRY(status);
        const model_batch b = {batch.dense, batch.label, &batch.sparse};
        MODEL_TRY(model_step(&t->dlrm, &b, 0.02f, &t->loss));
        const neo_tensor y = neo_tensor_rows(t->dlrm.y, 0, batch.size);
        MODEL_TRY(neo_metrics_update(t->metrics, y, batch.label));
        t->step++;
    }
    t->position = neo_reader_position(t->reader);
    return NEO_OK;
}
#endif
