/* hot.h: --hot-rows: the rows of a table that a profile names as those used most are a table of
   their own, with a copy on every rank: their ids, rows and gradients do not travel. --warm-rows:
   the rows behind them are another, with a copy on each node, cut over its ranks: a neo_shard of
   its own. The row of a bag is the sum of the rows that all its tables give ("hot rows" and "warm
   rows" of neo_fsdp.h). */
#ifndef DLRM_HOT_H
#define DLRM_HOT_H
#include "plan.h"

static int by_row(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

/* "6", "auto". */
static const char *rows_asked(int64_t rows, char text[32]) {
    snprintf(text, 32, "%lld", (long long)rows);
    return rows == CLI_AUTO ? "auto" : text;
}
static neo_status count_again(const options *o, const char *why) {
    char hot[32], warm[32];
    REFUSE("--profile %s names %s: count again by --save-profile with --hot-rows %s --warm-rows %s",
           o->profile, why, rows_asked(o->hot_rows, hot), rows_asked(o->warm_rows, warm));
}
/* A profile of fewer rows than are wanted, though more were used, is of other options. */
static neo_status check_named(const options *o, const neo_row_use *use, int64_t groups,
                              const char *table, int64_t named, int64_t wanted) {
    char why[256];
    int64_t used = 0;
    for (int64_t i = 0; i < groups; i++) used += use[i].ids > 0 ? use[i].rows : 0;
    if (named <= 0 || named >= wanted || named >= used) return NEO_OK;
    snprintf(why, sizeof why, "%lld hot rows of table '%.150s'", (long long)named, table);
    return count_again(o, why);
}

/* ---- how many rows of each table are hot, and warm ---- */
/* Those of the checkpoint that the run goes on from, which also names them; of one that has none
   loading it will say so. */
static neo_status counts_of_checkpoint(model *m, const options *o, int64_t step) {
    static const char *const lists[CLASSES] = {"hot_rows", "warm_rows"};
    const int64_t asked[CLASSES] = {o->hot_rows, o->warm_rows};
    hot_tables *h = &m->hot;
    int64_t *counts = calloc(h->tables + 1, sizeof *counts);
    neo_status status = counts ? NEO_OK : out_of_memory();
    h->of_checkpoint = 1;
    for (int c = 0; c < CLASSES && status == NEO_OK; c++) {
        if (!asked[c]) continue;
        status = neo_checkpoint_counts(m->ctx, o->saves.dir, step, lists[c], counts,
                                       (int32_t)h->tables);
        for (size_t t = 0; t < h->tables && status == NEO_OK; t++)
            h->most[t][c] = counts[t] < h->desc[t].rows ? counts[t] : h->desc[t].rows;
        if (status == NEO_ERR_NOT_FOUND) status = NEO_OK;
    }
    free(counts);
    return status;
}
/* As many as are worth it on links, by a plan of whole tables. Collective. */
static neo_status counts_of_plan(model *m, const options *o, const neo_bags_desc *bags) {
    neo_plan *plan = NULL;
    neo_plan_desc d = {0};
    neo_status status = describe_plan(m, o, bags, &d);
    d.cluster.memory_bytes = 0;
    if (status == NEO_OK && neo_comm_rank(m->comm) == 0)
        status = neo_plan_create_uniform(m->ctx, &d, NEO_TABLE_WISE, &plan);
    TRY(neo_plan_broadcast(m->comm, &d, status, &plan));
    for (int32_t t = 0; status == NEO_OK && t < bags->table_count; t++) {
        int64_t *to = m->hot.most[t];
        const int64_t most[NEO_HEAT_COUNT] = {0, o->warm_rows == CLI_AUTO ? INT64_MAX : 0,
                                              o->hot_rows == CLI_AUTO ? INT64_MAX : o->hot_rows};
        neo_row_level level[NEO_HEAT_COUNT];
        status = neo_plan_levels(plan, t, m->profile, most, level);
        if (status == NEO_OK && o->hot_rows == CLI_AUTO) to[HOT] = level[NEO_HOT].rows;
        if (status == NEO_OK && o->warm_rows == CLI_AUTO) to[WARM] = level[NEO_WARM].rows;
    }
    neo_plan_destroy(plan);
    return status;
}
static neo_status alloc_hot_rows(hot_tables *h) {
    const size_t count = h->tables, most = (1 + CLASSES) * count;
    for (int c = 0; c < CLASSES; c++) {
        h->rows[c] = calloc(2 * count, sizeof *h->rows[c]);
        h->count[c] = calloc(2 * count, sizeof *h->count[c]);
        if (!h->rows[c] || !h->count[c]) return out_of_memory();
    }
    h->names = calloc(most, sizeof *h->names), h->desc = calloc(most, sizeof *h->desc);
    h->placements = calloc(most, sizeof *h->placements), h->most = calloc(count, sizeof *h->most);
    h->ids = calloc(most, sizeof *h->ids);
    return h->names && h->desc && h->ids && h->placements && h->most ? NEO_OK : out_of_memory();
}
/* Unless a checkpoint or a plan says: none. */
static int64_t most_of(int64_t asked) { return asked == CLI_AUTO ? 0 : asked; }
static neo_status find_rows(model *m, const options *o, const neo_bags_desc *bags, int chooses) {
    hot_tables *h = &m->hot;
    const int goes_on = o->saves.dir && (o->saves.resume || reads_only(o));
    int64_t step, rows;
    h->tables = (size_t)bags->table_count;
    TRY(alloc_hot_rows(h));
    memcpy(h->desc, bags->tables, h->tables * sizeof *h->desc);
    memcpy(h->ids, m->ids, h->tables * sizeof *h->ids);
    for (size_t t = 0; t < h->tables; t++)
        h->most[t][HOT] = most_of(o->hot_rows), h->most[t][WARM] = most_of(o->warm_rows);
    if ((chooses || !o->profile) && goes_on && neo_find_checkpoint(o->saves.dir, &step) == NEO_OK)
        return counts_of_checkpoint(m, o, step);
    if (!o->profile)
        REFUSE("--%s needs --profile, which names them: there is no checkpoint that does",
               o->hot_rows ? "hot-rows" : "warm-rows");
    for (size_t t = 0; t < h->tables; t++) {
        int64_t groups;
        if (!neo_profile_uses(m->profile, h->desc[t].name, &groups, &rows, NULL) ||
            rows != h->desc[t].rows)
            REFUSE("--profile %s: the profile has no table '%s' of %lld rows", o->profile,
                   h->desc[t].name, (long long)h->desc[t].rows);
    }
    return NEO_OK;
}
/* status: of the rank so far. Collective. */
static neo_status choose_rows(model *m, const options *o, const neo_bags_desc *bags,
                              neo_status status) {
    const int chooses = o->hot_rows == CLI_AUTO || o->warm_rows == CLI_AUTO;
    if (status == NEO_OK) status = find_rows(m, o, bags, chooses);
    TRY(agree(m->comm, status));
    return chooses && !m->hot.of_checkpoint ? counts_of_plan(m, o, bags) : NEO_OK;
}
/* Half as many rows, where those that the plan has chosen do not fit --memory. Returns 0 if there
   are none left. */
static int fewer_rows(model *m, const options *o, neo_status *status) {
    const int64_t asked[] = {o->hot_rows, o->warm_rows};
    int64_t left = 0;
    for (size_t q = 0; !m->hot.of_checkpoint && q < CLASSES * m->hot.tables; q++) {
        int64_t *most = &m->hot.most[q / CLASSES][q % CLASSES];
        if (asked[q % CLASSES] == CLI_AUTO) left += *most, *most /= 2;
    }
    if (left) *status = NEO_OK;
    return left > 0;
}

/* ---- which they are ---- */
/* Of the rows of a table that are named, the most used first: how many are hot, and warm. A copy of
   all is the plan's to choose: some are neither. */
static neo_status count_classes(hot_tables *h, int32_t t, int64_t named) {
    int64_t rows = h->desc[t].rows;
    for (int c = 0; c < CLASSES; c++) {
        int64_t *count = &h->count[c][t];
        *count = named < h->most[t][c] ? named : h->most[t][c];
        if (*count >= rows) *count = 0;
        named -= *count, rows -= *count;
        h->features[c] += *count > 0;
        free(h->rows[c][t]);
        h->rows[c][t] = calloc((size_t)*count + 1, sizeof(int64_t));
        if (!h->rows[c][t]) return out_of_memory();
    }
    return NEO_OK;
}
/* Room for those that are read from a checkpoint, which names them. */
static neo_status place_hot_rows(hot_tables *h) {
    for (int32_t t = 0; t < (int32_t)h->tables; t++) {
        TRY(count_classes(h, t, h->most[t][HOT] + h->most[t][WARM]));
        for (int c = 0; c < CLASSES; c++)
            for (int64_t i = 0; i < h->count[c][t]; i++) h->rows[c][t][i] = i;
    }
    return NEO_OK;
}
/* The hot rows of each table, rising: as many as are chosen, and not all; then its warm ones. */
static neo_status read_hot_rows(model *m, const options *o) {
    hot_tables *h = &m->hot;
    int64_t groups, named, all_named = 0, wanted = 0;
    char text[32];
    if (h->of_checkpoint) return place_hot_rows(h);
    for (int32_t t = 0; t < (int32_t)h->tables; t++) {
        const char *table = h->desc[t].name;
        const neo_row_use *use = neo_profile_uses(m->profile, table, &groups, NULL, NULL);
        const int64_t *most = neo_profile_rows(m->profile, table, &named);
        TRY(check_named(o, use, groups, table, named, h->most[t][HOT] + h->most[t][WARM]));
        all_named += named, wanted += h->most[t][HOT] + h->most[t][WARM];
        TRY(count_classes(h, t, named));
        for (int c = 0; c < CLASSES; most += h->count[c++][t]) {
            if (h->count[c][t])
                memcpy(h->rows[c][t], most, (size_t)h->count[c][t] * sizeof *most);
            qsort(h->rows[c][t], (size_t)h->count[c][t], sizeof(int64_t), by_row);
        }
    }
    if (!all_named) return count_again(o, "no hot rows"); /* also where none are worth it */
    if (h->features[HOT] || h->features[WARM] || !wanted) return NEO_OK;
    REFUSE("--%s %s: no table has more rows: copies of all are --plan dp",
           o->hot_rows ? "hot-rows" : "warm-rows",
           rows_asked(o->hot_rows ? o->hot_rows : o->warm_rows, text));
}
/* The choice of auto is a part of the model, and may be another on other ranks. */
static void tell_choice(const model *m, const options *o) {
    const hot_tables *h = &m->hot;
    const int ranks = neo_comm_size(m->comm), some = h->features[HOT] || h->features[WARM];
    long long count[CLASSES] = {0};
    for (size_t q = 0; q < CLASSES * h->tables; q++)
        count[q % CLASSES] += (long long)h->count[q % CLASSES][q / CLASSES];
    if (h->of_checkpoint || neo_comm_rank(m->comm) > 0) return;
    if (o->hot_rows == CLI_AUTO || o->warm_rows == CLI_AUTO)
        fprintf(stderr, "note: %lld hot and %lld warm rows, by the links of %d rank%s: checkpoints "
                "keep them, a training that begins on others may have %s\n", count[HOT],
                count[WARM], ranks, PLURAL(ranks), some ? "others" : "some");
}

/* Tables of a class of rows of others, from `next` on, whose rows begin as those of the others.
   Returns where they end. */
static int32_t add_tables(model *m, int kind, int32_t next) {
    static const char *const words[] = {"hot", "warm"};
    hot_tables *h = &m->hot;
    for (size_t t = 0; t < h->tables; t++) {
        neo_table_desc *of = &h->desc[next];
        char (*names)[160] = &h->names[(1 + CLASSES) * t];
        if (!h->count[kind][t]) continue;
        *of = h->desc[t];
        h->ids[next] = h->ids[t];
        snprintf(names[1 + kind], sizeof *names, "%.150s.%s", of->name, words[kind]);
        of->name = names[1 + kind], of->rows = h->count[kind][t];
        if (kind == HOT) of->row_buckets = 0;
        if (!of->init.kind) {
            const float most = 1 / sqrtf((float)h->desc[t].rows);
            of->init = (neo_init){NEO_INIT_UNIFORM, -most, most};
        }
        h->placements[next++] =
            kind == HOT && neo_comm_size(m->comm) > 1 ? 1u << NEO_DATA_PARALLEL : 0;
    }
    return next;
}
/* The tables, and those of hot rows behind them; those of warm rows are for another neo_shard. */
static neo_status split_tables(model *m, const options *o, neo_bags_desc *bags) {
    hot_tables *h = &m->hot;
    const int32_t count = bags->table_count;
    memcpy(h->desc, bags->tables, h->tables * sizeof *h->desc);
    h->features[HOT] = h->features[WARM] = 0;
    TRY(read_hot_rows(m, o));
    const int32_t rest = add_tables(m, HOT, count);
    (void)add_tables(m, WARM, rest);
    for (int32_t t = 0; t < count; t++) {
        char (*names)[160] = &h->names[(1 + CLASSES) * t];
        if (!h->count[HOT][t] && !h->count[WARM][t]) continue;
        snprintf(names[0], sizeof *names, "%.150s.cold", h->desc[t].name);
        h->desc[t].name = names[0]; /* not that of a table which has all rows */
    }
    bags->tables = h->desc, bags->table_count = rest;
    bags->max_ids = most_ids(bags->max_batch, h->ids, rest);
    return NEO_OK;
}
/* Split batches of so many features, and their rows. */
static neo_status alloc_split(model *m, int32_t count) {
    hot_tables *h = &m->hot;
    const int32_t rest = count + h->features[HOT], all = rest + h->features[WARM];
    for (int i = 0; i < 2 + (rest > count && all > rest); i++)
        TRY(neo_jagged_create(m->ctx, &(neo_jagged_desc){.feature_count = i < 2 ? all : rest,
                                  .max_bags = m->most_samples * all,
                                  .max_ids = most_ids(m->most_samples, h->ids, count),
                                  .weighted = neo_schema_is_weighted(m->schema)},
                              i < 2 ? &h->split[i] : &h->between));
    return alloc_rows(m, all * h->desc[0].dim, &h->wide);
}
static neo_status check_leaves(int leaves, int nodes) {
    int fits = nodes;
    while (fits < leaves) fits *= 2;
    if (nodes > 1 && fits != leaves)
        REFUSE("--repro-shards %d: for --warm-rows on %d nodes it must be %d times a power of two, "
               "as %d", leaves, nodes, nodes, fits);
    return NEO_OK;
}
/* The tables of warm rows: by ranges of rows over the ranks of a node, alike in all nodes.
   others: the tables of the rest, before those of warm rows. Collective. */
static neo_status plan_warm(model *m, const options *o, const neo_bags_desc *others,
                            neo_plan **plan) {
    const int ranks = neo_comm_size(m->comm), per_node = ranks_per_node(m->comm);
    neo_bags_desc bags = *others;
    neo_plan_desc d = {0};
    const double *ids = m->hot.ids + others->table_count;
    bags.name = "warm";
    bags.tables = others->tables + others->table_count, bags.table_count = m->hot.features[WARM];
    bags.max_ids = most_ids(bags.max_batch, ids, bags.table_count);
    neo_status status = describe_plan(m, o, &bags, &d);
    d.table_placements = NULL, d.ids_per_sample = ids;
    d.replicas = ranks / per_node, d.sync_every = NEO_SYNC_MERGED, d.skip_empty = 1;
    d.cluster.ranks = per_node, d.cluster.memory_bytes = 0;
    d.dense_flops_bottom = d.dense_flops_top = 0, d.dense_params = 0;
    if (status == NEO_OK) status = check_leaves(neo_ctx_repro_shards(m->ctx), d.replicas);
    if (status == NEO_OK && neo_comm_rank(m->comm) == 0)
        status = neo_plan_create_uniform(m->ctx, &d, NEO_ROW_WISE, plan);
    return neo_plan_broadcast(m->comm, &d, status, plan);
}
/* Collective. */
static neo_status create_warm(model *m, const options *o, const neo_plan *plan) {
    neo_status status = NEO_OK;
    if (neo_comm_rank(m->comm) == 0) {
        if (o->show_plan) show_plan(plan);
        if (m->report) status = report_places(m->report, plan);
    }
    TRY(agree(m->comm, status));
    return agree(m->comm, neo_shard_create(m->data, plan, &m->hot.warm));
}

static neo_status split_batch(hot_tables *h, neo_jagged_buffer *to, const neo_jagged *batch) {
    const int64_t ids = neo_jagged_id_count(batch);
    for (int c = 0; c < CLASSES; c++) {
        neo_jagged_buffer *apart = c == HOT && h->between ? h->between : to;
        if (!h->features[c]) continue;
        TRY(neo_jagged_reserve(apart, batch->batch * neo_jagged_view(apart)->feature_count, ids));
        TRY(neo_jagged_split_hot(apart, batch, (const int64_t *const *)h->rows[c], h->count[c]));
        batch = neo_jagged_view(apart);
    }
    return NEO_OK;
}
/* The features of split batch i for the plan; those of warm rows stay behind. */
static const neo_jagged *split_features(hot_tables *h, int i) {
    const neo_jagged *all = neo_jagged_view(h->split[i]);
    h->rest[i] = h->part[i] = *all;
    h->rest[i].feature_count -= h->features[WARM];
    h->part[i].feature_count = h->features[WARM];
    h->part[i].offsets += h->rest[i].feature_count * all->batch;
    return &h->rest[i];
}
/* Batches become their split ones. */
static neo_status put_split(model *m, int turn, int is_there, const neo_jagged **batch) {
    hot_tables *h = &m->hot;
    if (!is_there) TRY(split_batch(h, h->split[turn], *batch));
    *batch = split_features(h, turn);
    return NEO_OK;
}
static neo_status split_batches(model *m, const neo_jagged **batch, const neo_jagged **next) {
    if (!m->hot.features[HOT] && !m->hot.features[WARM]) return NEO_OK;
    return put_in_turn(m, &m->hot.turns, put_split, batch, next);
}

/* ---- warm rows: as the other tables, by their own calls ---- */
static neo_status begin_warm_rows(model *m, int64_t global_size, const neo_batch *next) {
    const hot_tables *h = &m->hot;
    const turns *t = &h->turns;
    TRY(neo_shard_forward_begin(h->warm, &h->part[t->ahead ? !t->now : t->now], global_size));
    return t->ahead ? neo_shard_prefetch(h->warm, &h->part[t->now], next->global_size) : NEO_OK;
}
static neo_status end_warm_rows(model *m, float lr) {
    return m->keeps ? neo_shard_accumulate_end(m->hot.warm)
                    : neo_shard_backward_end(m->hot.warm, lr);
}
/* Before a step of gradients that were kept: their part of the norm. After it: their step. */
static neo_status count_warm_rows(model *m) {
    neo_exact squares;
    neo_exact_zero(&squares);
    TRY(neo_shard_grad_squares(m->hot.warm, &squares));
    neo_fsdp_add_squares(m->dense, &squares);
    return NEO_OK;
}
static neo_status step_warm_rows(model *m, float lr) {
    const float factor = neo_fsdp_clip_factor(m->dense);
    if (factor != 1) TRY(neo_shard_scale_grads(m->hot.warm, factor));
    return neo_shard_step(m->hot.warm, lr);
}

/* The rows of all tables to e; and gradients of e to all. */
static neo_status move_hot_rows(model *m, neo_tensor wide, neo_tensor e, int back) {
    const int64_t dim = m->hot.desc[0].dim;
    neo_tensor cold = neo_tensor_slice(wide, 1, 0, e.shape[1]);
    TRY(neo_tensor_copy(m->ctx, back ? e : cold, back ? cold : e));
    for (int64_t q = 0, at = e.shape[1]; q < CLASSES * (int64_t)m->hot.tables; q++) {
        const int64_t t = q % (int64_t)m->hot.tables;
        if (!m->hot.count[q / (int64_t)m->hot.tables][t]) continue;
        neo_tensor mine = neo_tensor_slice(e, 1, t * dim, dim);
        neo_tensor hot = neo_tensor_slice(wide, 1, at, dim);
        TRY(back ? neo_tensor_copy(m->ctx, mine, hot) : neo_add(m->ctx, mine, hot));
        at += dim;
    }
    return NEO_OK;
}
/* The columns of the plan's tables, or of those of warm rows. */
static neo_tensor wide_columns(const model *m, neo_tensor wide, int warm) {
    const int64_t cols = m->hot.features[WARM] * m->hot.desc[0].dim, rest = wide.shape[1] - cols;
    return neo_tensor_slice(wide, 1, warm ? rest : 0, warm ? cols : rest);
}
static neo_status take_hot_rows(model *m, neo_tensor e) {
    neo_tensor wide = neo_tensor_rows(m->hot.wide, 0, e.shape[0]);
    TRY(neo_shard_forward_end(m->tables, wide_columns(m, wide, 0)));
    if (m->hot.warm) TRY(neo_shard_forward_end(m->hot.warm, wide_columns(m, wide, 1)));
    return move_hot_rows(m, wide, e, 0);
}
static neo_status return_hot_rows(model *m, neo_tensor de) {
    neo_tensor wide = neo_tensor_rows(m->hot.wide, 0, de.shape[0]);
    TRY(move_hot_rows(m, wide, de, 1));
    if (m->hot.warm) TRY(neo_shard_backward_begin(m->hot.warm, wide_columns(m, wide, 1)));
    return neo_shard_backward_begin(m->tables, wide_columns(m, wide, 0));
}

/* "bags.C1.hot.rows", "warm.C1.warm.rows". */
static void name_rows(const hot_tables *h, int kind, size_t t, char *name, size_t bytes) {
    snprintf(name, bytes, "%s.%.159s.rows", kind == HOT ? "bags" : "warm",
             h->names[(1 + CLASSES) * t + 1 + (size_t)kind]);
}
/* Which rows are hot, or warm, is a part of the model: a checkpoint's go on. */
static neo_status add_hot_rows(const model *m, const options *o) {
    char name[200];
    TRY(neo_state_define(m->state, "hot_rows", rows_asked(o->hot_rows, name)));
    if (o->warm_rows)
        TRY(neo_state_define(m->state, "warm_rows", rows_asked(o->warm_rows, name)));
    for (int c = 0; c < CLASSES; c++)
        for (size_t t = 0; t < m->hot.tables; t++) {
            name_rows(&m->hot, c, t, name, sizeof name);
            if (m->hot.count[c][t])
                TRY(neo_state_add(m->state, NEO_STATE_WEIGHT, name,
                                  neo_tensor_1d(m->hot.rows[c][t], NEO_I64, m->hot.count[c][t])));
        }
    return NEO_OK;
}
/* Those that a checkpoint named: rows of their tables, rising. */
static neo_status check_read_rows(const model *m, const char *dir) {
    const hot_tables *h = &m->hot;
    char name[200];
    for (size_t q = 0; q < CLASSES * h->tables; q++) {
        const int c = (int)(q / h->tables);
        const size_t t = q % h->tables;
        const int64_t *rows = h->rows[c][t];
        for (int64_t i = 0, before = -1; i < h->count[c][t]; before = rows[i++]) {
            if (rows[i] > before && rows[i] < h->desc[t].rows) continue;
            name_rows(h, c, t, name, sizeof name);
            return neo_fail(NEO_ERR_CORRUPT, "%s: %s: number %lld is %lld, behind %lld and of "
                            "%lld rows", dir, name, (long long)i, (long long)rows[i],
                            (long long)before, (long long)h->desc[t].rows);
        }
    }
    return NEO_OK;
}
static void destroy_hot_rows(model *m) {
    hot_tables *h = &m->hot;
    for (int i = 0; i < 2; i++) neo_jagged_destroy(h->split[i]);
    neo_jagged_destroy(h->between);
    for (int c = 0; c < CLASSES; c++) {
        for (size_t t = 0; t < h->tables && h->rows[c]; t++) free(h->rows[c][t]);
        free(h->rows[c]), free(h->count[c]);
    }
    neo_tensor_free(m->ctx, &h->wide);
    free(h->names), free(h->desc), free(h->ids), free(h->placements), free(h->most);
}
#endif
