/* model.h: the model of tests/model.h in the sizes used for Criteo Kaggle, and generated batches:
   13 dense numbers and 26 tables with one id per sample, bottom 13-512-256-64-16, tables of 16
   columns, top 367-512-256-1; row-wise Adagrad on tables and Adagrad on layers. */
#ifndef NEO_BENCH_MODEL_H
#define NEO_BENCH_MODEL_H

#include "../neo_data.h"
#include "bench.h"

#include "../tests/model.h"

enum { DENSE = 13, TABLES = 26, DIM = 16, WIDTH = DIM + TABLES * (TABLES + 1) / 2 };
enum { BATCHES = 8, MOST_BATCHES = 64 };
static const int64_t BOTTOM[] = {DENSE, 512, 256, 64, DIM}, TOP[] = {WIDTH, 512, 256, 1};

/* d: the batch, and what else is not Kaggle's: layers, dtype, the accumulator of Adagrad. rows: of
   each table. keys: their ids are keys. */
static inline neo_status kaggle_create(model *m, neo_ctx *ctx, model_desc d, const int64_t *rows,
                                       int keys) {
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    if (d.bottom_count == 0) {
        d.bottom = BOTTOM, d.bottom_count = 5;
        d.top = TOP + 1, d.top_count = 3;
    }
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = (neo_table_desc){.name = names[t],
                                     .rows = rows[t],
                                     .dim = d.bottom[d.bottom_count - 1],
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD},
                                     .keys = {.on = keys}};
    }
    d.tables = tables, d.table_count = TABLES;
    d.max_ids = d.batch * TABLES;
    d.optim.kind = NEO_OPTIM_ADAGRAD;
    return model_create(m, ctx, &d);
}
static inline const int64_t *same_rows(int64_t *of_tables, int64_t rows) {
    for (int t = 0; t < TABLES; t++) of_tables[t] = rows;
    return of_tables;
}
static inline model make_model(neo_ctx *ctx, int64_t batch, int64_t rows) {
    model m;
    int64_t of_tables[TABLES];
    BENCH_OK(kaggle_create(&m, ctx, (model_desc){.batch = batch}, same_rows(of_tables, rows), 0));
    return m;
}

/* Batches, made once: [batch][..] dense, label, and jagged views. */
typedef struct data {
    int count;
    neo_tensor dense[MOST_BATCHES], label[MOST_BATCHES];
    neo_jagged_buffer *ids[MOST_BATCHES];
} data;

/* zipf: exponent of the law by which ids are drawn; 0: neo_schema_synthetic's own. */
static inline data make_data_of(neo_ctx *ctx, int count, int64_t batch, int64_t rows, float zipf) {
    const neo_synthetic_desc synthetic = {.samples = batch * count, .rows = rows, .zipf = zipf};
    const neo_jagged_desc ids = {
        .feature_count = TABLES, .max_bags = batch * TABLES, .max_ids = batch * TABLES};
    data d = {.count = count};
    neo_schema *schema;
    neo_reader *reader;
    neo_batch b;
    BENCH_OK(neo_schema_synthetic(ctx, &synthetic, &schema));
    BENCH_OK(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = batch}, &reader));
    for (int i = 0; i < count; i++) {
        const neo_jagged *part = &b.sparse;
        BENCH_OK(neo_reader_next(reader, &b));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, b.dense.shape, &d.dense[i]));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 1, b.label.shape, &d.label[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.dense, d.dense[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.label, d.label[i]));
        BENCH_OK(neo_jagged_create(ctx, &ids, &d.ids[i]));
        BENCH_OK(neo_jagged_stack(d.ids[i], &part, 1));
    }
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    return d;
}
static inline data make_data(neo_ctx *ctx, int64_t batch, int64_t rows) {
    return make_data_of(ctx, BATCHES, batch, rows, 0);
}
static inline void free_data(neo_ctx *ctx, data *d) {
    for (int i = 0; i < d->count; i++) {
        neo_tensor_free(ctx, &d->dense[i]);
        neo_tensor_free(ctx, &d->label[i]);
        neo_jagged_destroy(d->ids[i]);
    }
}
/* A step with batch i. */
static inline void step(model *m, const data *d, int i) {
    const neo_jagged *ids = neo_jagged_view(d->ids[i]);
    const model_batch b = {d->dense[i], d->label[i], ids};
    BENCH_OK(model_step(m, &b, 0.01f, NULL));
}

#endif
