/* served.h: --checkpoint-bits: checkpoints for build/serve alone. Each rank takes a range of the
   rows of every table, whatever the plan, and saves them in fewer bits; dense layers and
   dictionaries are those of the run. */
#ifndef DLRM_SERVED_H
#define DLRM_SERVED_H
#include "towers.h"

enum { SERVED_ROWS = 4096, SERVED_TASK = 64 }; /* rows that are gathered at once, and coded */

static neo_status create_served(model *m, const options *o) {
    served_tables *s = &m->served;
    const int32_t count = neo_schema_feature_count(m->schema);
    const int ranks = neo_comm_size(m->comm), rank = neo_comm_rank(m->comm);
    char name[1024];
    s->bits = o->checkpoint_bits == 8 ? NEO_ROWS_I8 : o->checkpoint_bits == 4 ? NEO_ROWS_I4
                                                                             : NEO_ROWS_I2;
    s->dim = row_width(m->kind, o, count, m->tasks);
    s->table = calloc((size_t)count + 1, sizeof *s->table);
    s->rows = malloc((size_t)(SERVED_ROWS * s->dim) * sizeof *s->rows);
    if (!s->table || !s->rows) return out_of_memory();
    const int64_t cols = (int64_t)neo_frozen_row_bytes(s->bits, s->dim);
    TRY(neo_state_create(m->ctx, &s->state));
    TRY(neo_state_add_fsdp(s->state, m->dense));
    TRY(neo_state_add_schema(s->state, m->schema));
    for (int32_t t = 0; t < count; t++) {
        served_table *table = &s->table[t];
        const neo_feature f = neo_schema_feature(m->schema, t);
        neo_part place = {.rows = f.rows, .cols = cols, .first_row = f.rows * rank / ranks};
        const int64_t rows = f.rows * (rank + 1) / ranks - place.first_row;
        table->codes = malloc((size_t)(rows * cols) + 1);
        table->scale = malloc((size_t)rows * 2 * sizeof(float) + 1);
        if (!table->codes || !table->scale) return out_of_memory();
        snprintf(name, sizeof name, "bags.%s.weight", f.name);
        const neo_dtype dtype = s->bits == NEO_ROWS_I8 ? NEO_I8 : NEO_U8;
        TRY(neo_state_add_part(s->state, NEO_STATE_WEIGHT, name,
                               neo_tensor_2d(table->codes, dtype, rows, cols), &place));
        snprintf(name, sizeof name, "bags.%s.scale", f.name);
        place.cols = 2;
        TRY(neo_state_add_part(s->state, NEO_STATE_WEIGHT, name,
                               neo_tensor_2d(table->scale, NEO_F32, rows, 2), &place));
    }
    snprintf(name, sizeof name, "%lld, to be served, not trained", (long long)o->checkpoint_bits);
    return neo_state_define(s->state, "checkpoint_bits", name);
}

/* The rows as they are now. The search for ranges is most of the time: ranks and threads share it.
   Collective. */
typedef struct served_piece {
    const served_tables *s;
    char *codes;
    float *scale;
    int64_t rows;
    neo_status status[SERVED_ROWS / SERVED_TASK];
} served_piece;
static void encode_task(void *of_piece, int64_t task, int worker) {
    served_piece *p = of_piece;
    const served_tables *s = p->s;
    const int64_t at = task * SERVED_TASK, left = p->rows - at;
    (void)worker;
    p->status[task] =
        neo_frozen_encode(s->bits, left < SERVED_TASK ? left : SERVED_TASK, s->dim,
                          s->rows + at * s->dim,
                          p->codes + (size_t)at * neo_frozen_row_bytes(s->bits, s->dim),
                          p->scale + 2 * at);
}
static neo_status encode_served(model *m) {
    const served_tables *s = &m->served;
    const int ranks = neo_comm_size(m->comm), me = neo_comm_rank(m->comm);
    const size_t bytes = neo_frozen_row_bytes(s->bits, s->dim);
    for (int32_t t = 0; t < neo_schema_feature_count(m->schema); t++) {
        const int64_t rows = neo_schema_feature(m->schema, t).rows;
        const int64_t most = (rows + ranks - 1) / ranks;
        for (int64_t at = 0; at < most; at += SERVED_ROWS) { /* of the rows of each rank */
            served_piece mine = {.s = s};
            for (int rank = 0; rank < ranks; rank++) {
                const int64_t first = rows * rank / ranks + at, end = rows * (rank + 1) / ranks;
                const int64_t n = end - first < SERVED_ROWS ? end - first : SERVED_ROWS;
                if (n <= 0) continue;
                TRY(neo_shard_get_rows(m->tables, t, first, n, rank, s->rows));
                if (rank == me) mine.rows = n;
            }
            mine.codes = s->table[t].codes + (size_t)at * bytes;
            mine.scale = s->table[t].scale + 2 * at;
            const int64_t tasks = (mine.rows + SERVED_TASK - 1) / SERVED_TASK;
            neo_parallel_for(m->ctx, tasks, encode_task, &mine);
            for (int64_t i = 0; i < tasks; i++) TRY(mine.status[i]);
        }
    }
    return NEO_OK;
}

static void destroy_served(model *m) {
    served_tables *s = &m->served;
    neo_state_destroy(s->state);
    for (int32_t t = 0; s->table && t < neo_schema_feature_count(m->schema); t++) {
        free(s->table[t].codes);
        free(s->table[t].scale);
    }
    free(s->table);
    free(s->rows);
}
#endif
