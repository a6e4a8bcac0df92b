/* hot.h: --hot-rows: the rows of a table that a profile names as those used most are a table of
   their own, with a copy on every rank: their ids, rows and gradients do not travel. The row of a
   bag is the sum of the rows that both tables give ("hot rows" of neo_fsdp.h). */
#ifndef DLRM_HOT_H
#define DLRM_HOT_H
#include "plan.h"

static int by_row(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

/* A profile of fewer hot rows than asked for, though more were used, is of another --hot-rows. */
static neo_status check_named(const options *o, const neo_row_use *use, int64_t groups,
                              const char *table, int64_t named) {
    int64_t used = 0;
    for (int64_t i = 0; i < groups; i++) used += use[i].ids > 0 ? use[i].rows : 0;
    if (named > 0 && named < o->hot_rows && named < used)
        REFUSE("--hot-rows %lld: --profile %s names %lld hot rows of table '%s': count again by "
               "--save-profile with --hot-rows %lld", (long long)o->hot_rows, o->profile,
               (long long)named, table, (long long)o->hot_rows);
    return NEO_OK;
}
/* Without a profile: room for those that are read from a checkpoint, which names them. */
static neo_status place_hot_rows(model *m, const options *o, const neo_bags_desc *bags) {
    hot_tables *h = &m->hot;
    for (int32_t t = 0; t < bags->table_count; t++) {
        h->count[t] = o->hot_rows < bags->tables[t].rows ? o->hot_rows : 0;
        h->rows[t] = calloc((size_t)h->count[t] + 1, sizeof(int64_t));
        if (!h->rows[t]) return out_of_memory();
        for (int64_t i = 0; i < h->count[t]; i++) h->rows[t][i] = i;
        h->features += h->count[t] > 0;
    }
    return NEO_OK;
}
/* The hot rows of each table, rising: at most --hot-rows, and not all. */
static neo_status read_hot_rows(model *m, const options *o, const neo_bags_desc *bags) {
    hot_tables *h = &m->hot;
    int64_t rows, ids, groups, named, step;
    if (!o->profile && (!o->saves.dir || neo_find_checkpoint(o->saves.dir, &step) != NEO_OK))
        REFUSE("--hot-rows needs --profile, which names them: there is no checkpoint that does");
    if (!o->profile) return place_hot_rows(m, o, bags);
    for (int32_t t = 0; t < bags->table_count; t++) {
        const neo_table_desc *table = &bags->tables[t];
        const neo_row_use *use =
            neo_profile_uses(m->profile, table->name, &groups, &rows, &ids);
        if (!use || rows != table->rows)
            REFUSE("--profile %s: the profile has no table '%s' of %lld rows", o->profile,
                   table->name, (long long)table->rows);
        const int64_t *most = neo_profile_rows(m->profile, table->name, &named);
        TRY(check_named(o, use, groups, table->name, named));
        h->count[t] = named < o->hot_rows ? named : o->hot_rows;
        if (h->count[t] >= table->rows) h->count[t] = 0; /* a copy of all is the plan's to choose */
        h->rows[t] = calloc((size_t)h->count[t] + 1, sizeof(int64_t));
        if (!h->rows[t]) return out_of_memory();
        for (int64_t i = 0; i < h->count[t]; i++) h->rows[t][i] = most[i];
        qsort(h->rows[t], (size_t)h->count[t], sizeof(int64_t), by_row);
        h->features += h->count[t] > 0;
    }
    if (!h->features)
        REFUSE("--profile %s names no hot rows: write it by --save-profile and --hot-rows",
               o->profile);
    return NEO_OK;
}

/* The tables, and those of hot rows behind them, whose rows begin alike. */
static neo_status split_tables(model *m, const options *o, neo_bags_desc *bags) {
    hot_tables *h = &m->hot;
    const size_t count = h->tables = (size_t)bags->table_count;
    int32_t next = bags->table_count;
    h->rows = calloc(count, sizeof *h->rows), h->count = calloc(count, sizeof *h->count);
    h->names = calloc(2 * count, sizeof *h->names), h->desc = calloc(2 * count, sizeof *h->desc);
    h->placements = calloc(2 * count, sizeof *h->placements);
    if (!h->rows || !h->count || !h->names || !h->desc || !h->placements) return out_of_memory();
    TRY(read_hot_rows(m, o, bags));
    memcpy(h->desc, bags->tables, count * sizeof *h->desc);
    for (int32_t t = 0; t < bags->table_count; t++) {
        neo_table_desc *hot = &h->desc[next];
        if (!h->count[t]) continue;
        *hot = h->desc[t];
        snprintf(h->names[2 * t], sizeof *h->names, "%.150s.cold", hot->name);
        snprintf(h->names[2 * t + 1], sizeof *h->names, "%.150s.hot", hot->name);
        h->desc[t].name = h->names[2 * t]; /* not that of a table which has all rows */
        hot->name = h->names[2 * t + 1], hot->rows = h->count[t], hot->row_buckets = 0;
        if (!hot->init.kind) {
            const float most = 1 / sqrtf((float)h->desc[t].rows);
            hot->init = (neo_init){NEO_INIT_UNIFORM, -most, most};
        }
        h->placements[next++] = neo_comm_size(m->comm) > 1 ? 1u << NEO_DATA_PARALLEL : 0;
    }
    bags->tables = h->desc, bags->table_count = next, bags->max_ids = bags->max_batch * next;
    for (int i = 0; i < 2; i++)
        TRY(neo_jagged_create(m->ctx, &(neo_jagged_desc){.feature_count = next,
                                  .max_bags = m->most_samples * next,
                                  .max_ids = m->most_samples * (int64_t)count,
                                  .weighted = neo_schema_is_weighted(m->schema)}, &h->split[i]));
    return alloc_rows(m, next * h->desc[0].dim, &h->wide);
}

static neo_status split_batch(neo_jagged_buffer *to, const hot_tables *h, const neo_jagged *batch) {
    const int64_t features = neo_jagged_view(to)->feature_count;
    TRY(neo_jagged_reserve(to, batch->batch * features, neo_jagged_id_count(batch)));
    return neo_jagged_split_hot(to, batch, (const int64_t *const *)h->rows, h->count);
}
/* *batch, and *next if it is not NULL, become their split ones; a batch that was next is split. */
static neo_status split_batches(model *m, const neo_jagged **batch, const neo_jagged **next) {
    hot_tables *h = &m->hot;
    if (!h->tables) return NEO_OK;
    if (!h->ahead) TRY(split_batch(h->split[h->turn], h, *batch));
    *batch = neo_jagged_view(h->split[h->turn]);
    h->ahead = *next != NULL;
    if (!*next) return NEO_OK;
    h->turn = !h->turn;
    TRY(split_batch(h->split[h->turn], h, *next));
    *next = neo_jagged_view(h->split[h->turn]);
    return NEO_OK;
}

/* The rows of both tables to e; and gradients of e to both. */
static neo_status move_hot_rows(model *m, neo_tensor wide, neo_tensor e, int back) {
    const int64_t dim = m->hot.desc[0].dim;
    neo_tensor cold = neo_tensor_slice(wide, 1, 0, e.shape[1]);
    TRY(neo_tensor_copy(m->ctx, back ? e : cold, back ? cold : e));
    for (int64_t t = 0, at = e.shape[1]; t < (int64_t)m->hot.tables; t++) {
        if (!m->hot.count[t]) continue;
        neo_tensor mine = neo_tensor_slice(e, 1, t * dim, dim);
        neo_tensor hot = neo_tensor_slice(wide, 1, at, dim);
        TRY(back ? neo_tensor_copy(m->ctx, mine, hot) : neo_add(m->ctx, mine, hot));
        at += dim;
    }
    return NEO_OK;
}
static neo_status take_hot_rows(model *m, neo_tensor e) {
    neo_tensor wide = neo_tensor_rows(m->hot.wide, 0, e.shape[0]);
    TRY(neo_shard_forward_end(m->tables, wide));
    return move_hot_rows(m, wide, e, 0);
}
static neo_status return_hot_rows(model *m, neo_tensor de) {
    neo_tensor wide = neo_tensor_rows(m->hot.wide, 0, de.shape[0]);
    TRY(move_hot_rows(m, wide, de, 1));
    return neo_shard_backward_begin(m->tables, wide);
}

/* Which rows are hot is a part of the model: a checkpoint's go on. */
static neo_status add_hot_rows(const model *m, const options *o) {
    char name[200];
    snprintf(name, sizeof name, "%lld", (long long)o->hot_rows);
    TRY(neo_state_define(m->state, "hot_rows", name));
    for (size_t t = 0; t < m->hot.tables; t++) {
        snprintf(name, sizeof name, "bags.%s.rows", m->hot.names[2 * t + 1]);
        if (m->hot.count[t])
            TRY(neo_state_add(m->state, NEO_STATE_WEIGHT, name,
                              neo_tensor_1d(m->hot.rows[t], NEO_I64, m->hot.count[t])));
    }
    return NEO_OK;
}
/* Those that a checkpoint named: rows of their tables, rising. */
static neo_status check_read_rows(const model *m, const char *dir) {
    const hot_tables *h = &m->hot;
    for (size_t t = 0; t < h->tables; t++)
        for (int64_t i = 0, before = -1; i < h->count[t]; before = h->rows[t][i++])
            if (h->rows[t][i] <= before || h->rows[t][i] >= h->desc[t].rows)
                return neo_fail(NEO_ERR_CORRUPT, "%s: bags.%s.rows: number %lld is %lld, behind "
                                "%lld and of %lld rows", dir, h->names[2 * t + 1], (long long)i,
                                (long long)h->rows[t][i], (long long)before,
                                (long long)h->desc[t].rows);
    return NEO_OK;
}
static void destroy_hot_rows(model *m) {
    hot_tables *h = &m->hot;
    for (int i = 0; i < 2; i++) neo_jagged_destroy(h->split[i]);
    for (size_t t = 0; t < h->tables && h->rows; t++) free(h->rows[t]);
    neo_tensor_free(m->ctx, &h->wide);
    free(h->rows), free(h->count), free(h->names), free(h->desc), free(h->placements);
}
#endif
