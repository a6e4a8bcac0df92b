/* plan.h: the embedding tables of the DLRM, on the ranks as a plan says (--plan): ids travel to the
   rows, pooled rows to the samples, gradients back (neo_shard). */
#ifndef DLRM_PLAN_H
#define DLRM_PLAN_H
#include "model.h"

/* Ranks of a node, if nodes have equally many and in order; else all ranks count as one node. */
static int ranks_per_node(const neo_comm *comm) {
    int ranks = neo_comm_size(comm), n = 1;
    while (n < ranks && neo_comm_node(comm, n) == neo_comm_node(comm, 0)) n++;
    for (int r = 0; r < ranks; r++)
        if (ranks % n || neo_comm_node(comm, r) != r / n) return ranks;
    return n;
}

/* An MLP: multiplications and additions of one sample, forward; numbers of it that layers take and
   make; parameters. */
typedef struct mlp_size {
    double flops, values;
    int64_t params;
} mlp_size;
static mlp_size size_of_mlp(const neo_params *params) {
    mlp_size s = {0, 0, 0};
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_tensor w = neo_params_at(params, i)->value; /* [out][in] */
        s.params += neo_tensor_count(w);
        if (w.ndim != 2) continue;
        s.flops += 2.0 * (double)neo_tensor_count(w);
        s.values += (double)(w.shape[0] + (s.values > 0 ? 0 : w.shape[1]));
    }
    return s;
}

/* The default is the number of leaves, which no number of ranks up to it changes. */
static int32_t row_buckets(const neo_ctx *ctx, const options *o) {
    return (int32_t)(o->row_buckets ? o->row_buckets : neo_ctx_repro_shards(ctx));
}

/* Of keys whole sets of 32 in each bucket. */
static int64_t table_rows(const neo_ctx *ctx, const options *o, neo_feature f) {
    const int64_t unit = 32 * (int64_t)row_buckets(ctx, o);
    const int64_t rows = o->key_rows ? o->key_rows : f.rows;
    return o->keys ? (rows + unit - 1) / unit * unit : f.rows;
}

/* Ids of a batch in so many features: where their number varies, a quarter more than the mean. */
static int64_t most_ids(int64_t batch, const double *ids, int32_t features) {
    double sum = 0;
    for (int32_t f = 0; f < features; f++) sum += ids[f] > floor(ids[f]) ? 1.25 * ids[f] : ids[f];
    return (int64_t)ceil((double)batch * sum) + (sum <= 0);
}

static neo_status describe_plan(model *m, const options *o, const neo_bags_desc *bags,
                                neo_plan_desc *to) {
    const mlp_size bottom = size_of_mlp(m->params[BOTTOM]), top = size_of_mlp(m->params[TOP]);
    const int ranks = neo_comm_size(m->comm), groups = (int)o->replicas;
    m->there.on = neo_ctx_device(m->ctx) && ranks > 1 && groups == 1 && !o->tier && !o->keys;
    if (ranks % groups)
        REFUSE("--replicas %d: must divide the %d rank%s into groups", groups, ranks,
               PLURAL(ranks));
    const int own = m->there.on && strcmp(o->machine.graph, "on") == 0; /* see send_own_ids */
    neo_plan_desc d = {.bags = bags, .ids_per_sample = m->hot.tables ? m->hot.ids : m->ids,
                       .weighted = neo_schema_is_weighted(m->schema),
                       .pipeline = m->pipeline ? (int)o->prefetch : own, .distinct = o->distinct,
                       .kept_batches = m->keeps ? m->micro_batches : 0,
                       .device_ids = m->there.on ? 2 : 0, /* see bring_ids */
                       .replicas = groups, .sync_every = (int32_t)o->sync_every,
                       .cluster = o->measured,
                       .dense_flops_bottom = bottom.flops, .dense_flops_top = top.flops,
                       .dense_params = bottom.params + top.params,
                       .dense_values = bottom.values + top.values,
                       .table_placements = m->hot.placements,
                       .skip_empty = groups == 1 && (o->skip_empty || m->hot.tables),
                       .profile = o->tier ? m->profile : NULL};
    d.cluster.ranks = ranks / groups;
    d.cluster.ranks_per_node = ranks_per_node(m->comm);
    d.cluster.memory_bytes = o->tier ? 0 : o->memory;
    TRY(parse_wires(o, &d.wire_forward, &d.wire_backward));
    if (neo_comm_get_backend(m->comm) == NEO_BACKEND_THREADS && o->nodes <= 1 && !d.skip_empty &&
        d.wire_forward == NEO_WIRE_F32 && d.wire_backward == NEO_WIRE_F32)
        d.cluster.link[NEO_LEVEL_LOCAL].bandwidth = 1e12; /* rows of f32 are lent, not sent */
    *to = d;
    return NEO_OK;
}
/* As --plan says. */
static neo_status find_plan(model *m, const options *o, const neo_plan_desc *d, neo_plan **plan) {
    neo_placement placement;
    if (strcmp(o->plan, "auto") == 0) return neo_plan_create(m->ctx, d, plan);
    if (neo_placement_parse(o->plan, &placement) == NEO_OK)
        return neo_plan_create_uniform(m->ctx, d, placement, plan);
    return neo_plan_read(m->ctx, d, o->plan, plan);
}
/* By rank 0, for all. warm: of warm rows, which take a part of --memory; or NULL. Collective. */
static neo_status create_plan(model *m, const options *o, const neo_bags_desc *bags,
                              const neo_plan *warm, neo_plan **plan) {
    const int64_t taken = warm ? neo_plan_step_of(warm).most_bytes : 0;
    neo_plan_desc d = {0};
    neo_status status = describe_plan(m, o, bags, &d);
    const int64_t left = status == NEO_OK ? d.cluster.memory_bytes : 0;
    if (left && left <= taken)
        status = neo_fail(NEO_ERR_CAPACITY, "--memory %lld: warm rows alone take %lld",
                          (long long)o->memory, (long long)taken);
    if (left) d.cluster.memory_bytes -= taken;
    if (status == NEO_OK && neo_comm_rank(m->comm) == 0) {
        status = find_plan(m, o, &d, plan);
        if (status == NEO_ERR_CAPACITY && taken)
            status = neo_fail(status, "%s, and %lld of warm rows besides", neo_last_error(),
                              (long long)taken);
    }
    return neo_plan_broadcast(m->comm, &d, status, plan);
}

/* An MLP's option, as far as it needs no look at the data. out: its last width; 0: any. */
static neo_status check_widths(const char *option, const char *spec, int64_t out) {
    int64_t widths[NEO_MAX_LAYERS + 1];
    const int count = spec ? parse_widths(spec, widths, NEO_MAX_LAYERS + 1) : 0;
    if (!spec || (count && (!out || widths[count - 1] == out))) return NEO_OK;
    if (!count) REFUSE("--%s %s: not up to %d widths joined by '-'", option, spec, NEO_MAX_LAYERS);
    REFUSE("--%s %s: must end with %lld, which is --dim", option, spec, (long long)out);
}
/* Words of tables and layers that need no look at the data, which may be long, and the lines of
   --cluster. A plan's file may come later where the run ends before it is read. */
static neo_status check_words(options *o) {
    neo_placement placement;
    neo_dtype rows_dtype;
    neo_wire wires[2];
    neo_optim_kind of_mlps;
    neo_bag_optim_kind of_tables;
    neo_fsdp_mode mode;
    neo_schedule_kind schedule;
    neo_cross_desc cross;
    neo_wukong_desc wukong;
    struct stat s;
    TRY(parse_optimizer(o->optimizer, &of_mlps, &of_tables));
    TRY(parse_rows_dtype(o->rows_dtype, &rows_dtype));
    TRY(parse_wires(o, &wires[0], &wires[1]));
    TRY(parse_dense_shard(o->dense_shard, &mode));
    TRY(parse_schedule(o->schedule, &schedule));
    TRY(parse_cross(o->cross, &cross));
    TRY(parse_wukong(o->wukong, &wukong));
    TRY(check_widths("bottom", o->bottom, o->dim));
    TRY(check_widths("top", o->top, 0));
    if (o->summary || only_counts(o)) return NEO_OK;
    if (o->cluster) TRY(cluster_read("cluster", o->cluster, o->machine.device, &o->measured));
    if (strcmp(o->plan, "auto") && neo_placement_parse(o->plan, &placement) != NEO_OK &&
        stat(o->plan, &s) != 0 && errno == ENOENT)
        REFUSE("--plan %s: neither auto, tw, cw, rw, dp, twrw, twcw, grid, nor a file", o->plan);
    return NEO_OK;
}

/* --show-plan: the memory and the time that the plan is expected to take, and its reasons. */
static void show_plan(const neo_plan *plan) {
    char text[4096];
    const neo_plan_desc *d = neo_plan_desc_of(plan);
    neo_plan_step step = neo_plan_step_of(plan);
    printf("plan: %d table%s on %d rank%s, %d of a node; a step is predicted to take %.3f ms, "
           "pipelined %.3f ms\n",
           (int)d->bags->table_count, PLURAL(d->bags->table_count), (int)d->cluster.ranks,
           PLURAL(d->cluster.ranks), (int)d->cluster.ranks_per_node,
           1e3 * step.plain, 1e3 * step.pipelined);
    if (d->replicas > 1)
        printf("replicas: %d such groups; rank r stands for ranks r + %d g\n", (int)d->replicas,
               (int)d->cluster.ranks);
    for (int r = 0; r < d->cluster.ranks; r++) {
        neo_plan_rank rank = neo_plan_rank_of(plan, r);
        printf("rank %d: %.1f MB of weights, %.1f of optimizer state, %.1f of buffers; %.3f ms\n",
               r, 1e-6 * (double)rank.weight_bytes, 1e-6 * (double)rank.state_bytes,
               1e-6 * (double)rank.buffer_bytes, 1e3 * rank.seconds);
    }
    for (int32_t t = 0; t < d->bags->table_count; t++) {
        const neo_table_desc *table = &d->bags->tables[t];
        neo_plan_why(plan, t, text, sizeof text);
        printf("table %s, %lld x %lld\n%s%s", table->name, (long long)table->rows,
               (long long)table->dim, text, text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
    }
}

/* A table that cannot be placed as asked is table-wise. */
static void warn_of_plan(const neo_plan *plan, const options *o, int32_t hot) {
    neo_placement asked;
    int32_t count = neo_plan_desc_of(plan)->bags->table_count - hot, other = 0;
    if (neo_placement_parse(o->plan, &asked) != NEO_OK) return;
    for (int32_t t = 0; t < count; t++) other += neo_plan_placement(plan, t) != asked;
    if (other)
        fprintf(stderr,
                "warning: --plan %s: %d of %d tables cannot be placed so (--show-plan says why)\n",
                o->plan, (int)other, (int)count);
}

/* The file of this rank's rows; with a pipeline the next batches are known. */
static neo_status create_tier(model *m, const options *o, neo_bags_desc *bags) {
    char path[4096];
    const int one = neo_comm_size(m->comm) == 1;
    int n = snprintf(path, sizeof path, one ? "%s" : "%s.%d", o->tier, neo_comm_rank(m->comm));
    if (n < 0 || n >= (int)sizeof path) REFUSE("--tier %.100s...: the path is too long", o->tier);
    if (o->prefetch > 1 && !m->pipeline) REFUSE("--prefetch above 1 needs --pipeline on");
    neo_keys policy;
    TRY(parse_keys(o, &policy));
    if (o->keys) policy = (neo_keys){0}; /* --evict is of the keys */
    neo_tier_desc tier = {.path = strcmp(o->tier, "-") ? path : NULL, .memory_bytes = o->memory,
                          .prefetch = m->pipeline ? (int)o->prefetch : 0, .evict = policy.evict,
                          .period = policy.period};
    TRY(neo_tier_create(neo_comm_ctx(m->data), &tier, &m->tier));
    bags->tier = m->tier;
    return NEO_OK;
}
/* Rows that change are seen by the saves that leave others out or go on beside training. */
static int tracks_rows(const options *o) {
    return (o->full_every || o->saves.behind) && strcmp(o->machine.device, "cpu") == 0;
}

/* The widths of a chain of layers, by the shapes of their weights; 0: they are no chain. */
enum { MOST_WIDTHS = 3 * NEO_MAX_LAYERS + 2 };
static int32_t widths_of(const neo_params *params, int64_t *widths) {
    int32_t count = 0;
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_tensor w = neo_params_at(params, i)->value; /* [out][in] */
        if (w.ndim != 2) continue;
        if (count == 0) widths[count++] = w.shape[1];
        if (count == MOST_WIDTHS || widths[count - 1] != w.shape[1]) return 0;
        widths[count++] = w.shape[0];
    }
    return count;
}
static const char *const PLACES = "Where tables lie";
/* Of tables with a copy in each node the ranks are those of one. */
static neo_status report_places(neo_report *report, const neo_plan *plan) {
    const neo_plan_desc *d = neo_plan_desc_of(plan);
    char text[5][96];
    const char *cells[] = {text[0], text[1], text[2], text[3], text[4]};
    for (int32_t t = 0; t < d->bags->table_count; t++) {
        int64_t count;
        const neo_piece *piece = neo_plan_table_pieces(plan, t, &count);
        const neo_table_desc *table = &d->bags->tables[t];
        size_t at = 0;
        for (int64_t i = 0; i < count && at + 32 < sizeof text[4]; i++)
            at += (size_t)snprintf(text[4] + at, sizeof text[4] - at, "%s%s%.0d", i ? ", " : "",
                                   piece[i].rank < 0 ? "all" : piece[i].rank ? "" : "0",
                                   piece[i].rank < 0 ? 0 : (int)piece[i].rank);
        if (at + 32 >= sizeof text[4])
            at = (size_t)snprintf(text[4], 96, "%lld ranks", (long long)count);
        if (d->sync_every < 0) snprintf(text[4] + at, 96 - at, " of each node");
        snprintf(text[0], 96, "%.90s", table->name);
        snprintf(text[1], 96, "%lld", (long long)table->rows);
        snprintf(text[2], 96, "%lld", (long long)table->dim);
        snprintf(text[3], 96, "%s", neo_placement_name(neo_plan_placement(plan, t)));
        TRY(neo_report_row(report, PLACES, cells, 5));
    }
    return NEO_OK;
}
static neo_status report_plan(neo_report *report, const neo_plan *plan) {
    static const char *const memory = "Memory of ranks, predicted, MiB";
    const neo_plan_desc *d = neo_plan_desc_of(plan);
    char text[5][96];
    const char *cells[] = {text[0], text[1], text[2], text[3], text[4]};
    TRY(neo_report_row(report, PLACES, (const char *[]){"table", "rows", "columns", "placement",
                                                        "ranks"}, 5));
    TRY(report_places(report, plan));
    TRY(neo_report_row(report, memory, (const char *[]){"rank", "weights", "optimizer", "buffers",
                                                        "all"}, 5));
    for (int32_t r = 0; r < d->cluster.ranks; r++) {
        const neo_plan_rank k = neo_plan_rank_of(plan, r);
        const double mib[] = {(double)k.weight_bytes, (double)k.state_bytes,
                              (double)k.buffer_bytes,
                              (double)(k.weight_bytes + k.state_bytes + k.buffer_bytes)};
        snprintf(text[0], 96, "%d", (int)r);
        for (int i = 0; i < 4; i++) snprintf(text[i + 1], 96, "%.2f", mib[i] / (1 << 20));
        TRY(neo_report_row(report, memory, cells, 5));
    }
    return NEO_OK;
}
/* The tasks of a step, and what each operation sends. */
static neo_status report_step(neo_report *report, const neo_timeline *timeline) {
    static const char *const step = "A step as predicted",
        *const traffic = "What a rank sends in a step, predicted, KiB";
    int32_t count;
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    const neo_timeline_sum sum = neo_timeline_sum_of(timeline);
    char text[2][32], name[96];
    TRY(neo_report_axis(report, step, "ms", ""));
    for (int32_t i = 0; i < count; i++)
        TRY(neo_report_bar(report, step, task[i].name, neo_lane_name(task[i].lane),
                           1e3 * task[i].begin, 1e3 * (task[i].begin + task[i].seconds)));
    if (!(sum.bytes[NEO_LANE_LOCAL] + sum.bytes[NEO_LANE_CROSS] > 0)) return NEO_OK;
    TRY(neo_report_row(report, traffic, (const char *[]){"operation", "in its node", "to others"},
                       3));
    for (int32_t i = 0; i < count; i++) {
        double sent[2] = {0, 0};
        int told = 0;
        for (int32_t k = 0; k < count; k++) {
            if (strcmp(task[k].name, task[i].name) || strcmp(task[k].unit, task[i].unit)) continue;
            told |= k < i;
            if (task[k].lane != NEO_LANE_COMPUTE)
                sent[task[k].lane == NEO_LANE_CROSS] += task[k].bytes;
        }
        if (told || !(sent[0] + sent[1] > 0)) continue;
        snprintf(name, sizeof name, "%.40s%s%s", task[i].unit, task[i].unit[0] ? " " : "",
                 task[i].name);
        for (int k = 0; k < 2; k++) snprintf(text[k], 32, "%.1f", sent[k] / 1024);
        TRY(neo_report_row(report, traffic, (const char *[]){name, text[0], text[1]}, 3));
    }
    return NEO_OK;
}
/* The dense layers: of the bottom and the top MLP the widths, to `widths`, if they are chains. A
   cross network counts as its products. */
enum { UNITS = 3 };
static void describe_units(const model *m, int32_t tables, int64_t widths[MLPS][MOST_WIDTHS],
                           neo_dense_unit units[UNITS]) {
    static const char *const names[UNITS] = {"bottom", "pairs", "top"};
    const int64_t dim = m->x.shape[1], rows = tables + 1;
    for (int i = 0; i < UNITS; i++) units[i] = (neo_dense_unit){.name = names[i], .after = i > 0};
    for (int k = 0; k < MLPS; k++) {
        neo_dense_unit *u = &units[2 * k];
        const mlp_size size = size_of_mlp(m->params[k]);
        u->width_count = widths_of(m->params[k], widths[k]);
        u->widths = u->width_count ? widths[k] : NULL;
        u->flops = size.flops, u->params = size.params;
    }
    if (m->kind->meets != DOTS) return;
    units[1].flops = (double)(rows * rows * dim);
    units[1].dots[0] = rows, units[1].dots[1] = dim;
}
/* The seconds of a step, of rank 0: of layers by their shapes, with --cluster. */
static neo_status predict(model *m, const neo_plan *plan) {
    neo_timeline *timeline;
    int32_t count;
    int64_t widths[MLPS][MOST_WIDTHS];
    neo_dense_unit units[UNITS];
    describe_units(m, neo_plan_desc_of(plan)->bags->table_count, widths, units);
    TRY(neo_timeline_create(plan, units, UNITS, m->pipeline, &timeline));
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    for (int32_t i = 0; i < count; i++)
        for (int k = 0; k < OPERATIONS; k++)
            if (!strcmp(task[i].name, OPERATION[k].task) &&
                !strcmp(task[i].unit, OPERATION[k].unit))
                m->predicted.seconds[k] += task[i].seconds;
    m->predicted.exposed = neo_timeline_sum_of(timeline).exposed;
    m->predicted.step = neo_timeline_sum_of(timeline).steady;
    neo_status status = report_step(m->report, timeline);
    neo_timeline_destroy(timeline);
    return status == NEO_OK ? report_plan(m->report, plan) : status;
}

/* tables: [features]. */
static neo_status describe_tables(model *m, const options *o, neo_table_desc *tables,
                                  neo_bags_desc *bags) {
    int32_t count = neo_schema_feature_count(m->schema);
    neo_bag_optim optim = {.eps = (float)o->eps, .l1 = (float)o->l1,
                           .weight_decay = (float)o->l2};
    neo_optim_kind of_mlps;
    neo_dtype dtype;
    neo_keys keys;
    TRY(parse_optimizer(o->optimizer, &of_mlps, &optim.kind));
    TRY(parse_rows_dtype(o->rows_dtype, &dtype));
    TRY(parse_keys(o, &keys));
    m->scores.on = keys.sums;
    if (!o->keys) keys = (neo_keys){0}; /* --evict is of the tier */
    for (int32_t t = 0; t < count; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        tables[t] = (neo_table_desc){.name = f.name, .rows = table_rows(m->ctx, o, f),
                                     .dim = row_width(m->kind, o, count, m->tasks), .optim = optim,
                                     .row_buckets = row_buckets(m->ctx, o), .dtype = dtype,
                                     .track_rows = tracks_rows(o), .keys = keys};
        if (m->kind->meets == WEIGHTS) tables[t].init.kind = NEO_INIT_CONSTANT; /* zeros */
    }
    *bags = (neo_bags_desc){.tables = tables, .table_count = count, .max_batch = o->batch,
                            .max_ids = most_ids(o->batch, m->ids, count), .inverse = o->dedup != 0,
                            .lazy_init = 1};
    return o->tier ? create_tier(m, o, bags) : NEO_OK;
}

static neo_status make_plan(model *m, const options *o, const neo_bags_desc *bags,
                            const neo_plan *warm, neo_plan **plan) {
    TRY(create_plan(m, o, bags, warm, plan));
    if (neo_comm_rank(m->comm) > 0) return NEO_OK;
    if (neo_comm_size(m->comm) == 1 && strcmp(o->plan, "auto") && !o->show_plan)
        fprintf(stderr, "note: --plan %s: one rank has all tables; --ranks gives more\n", o->plan);
    warn_of_plan(*plan, o, m->hot.features[HOT]);
    if (o->show_plan) show_plan(*plan);
    for (int32_t t = 0, tiered = 0; t < bags->table_count; t++) {
        const neo_plan_tier tier = neo_plan_tier_of(*plan, t);
        if (tier.file_bytes || tier.host_bytes)
            m->hits += (tier.hits - m->hits) / ++tiered; /* one id of each table */
    }
    if (m->report && o->machine.trace) /* the first table, which write_report fills */
        TRY(neo_report_row(m->report, "A step of rank 0, predicted and measured",
                           (const char *[]){"operation", "predicted, ms", "measured, ms", "error"},
                           4));
    if (m->report) TRY(predict(m, *plan));
    if (!o->save_plan) return NEO_OK;
    TRY(check_writable("save-plan", o->save_plan));
    return neo_plan_write(*plan, o->save_plan);
}
#endif
