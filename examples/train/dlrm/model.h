/* model.h: the model of one rank: its dense layers, their optimizer, and the buffers of a step. The
   tables are in plan.h, what each --model has is in options.h (MODELS).

   dense numbers -> bottom MLP --+
                                 +--> pairwise dot products --> top MLP --> logit --> BCE
   sparse ids -> embedding bags -+    (dcnv2: cross network; wukong: Wukong layers)

   lr, fm, ffm, deepfm:
   dense numbers -> linear layer ------------------------+
                                                         + --> logit --> BCE
   sparse ids -> embedding bags -> factorization machine +
   of deepfm also dense numbers, factors --> top MLP ----+                                  */
#ifndef DLRM_MODEL_H
#define DLRM_MODEL_H
#include "../../plan/cluster.h"
#include "formats.h"
#include "neo_store.h"

enum { BOTTOM, TOP, MLPS }; /* the units of the dense layers; TOP only of models that have it */

/* Words that all ranks add up after each batch. */
typedef struct batch_sum {
    neo_exact loss;
    int64_t stops; /* ranks that a signal has asked to stop */
} batch_sum;

/* What a step is made of, as the plan has it and as the trace has it. */
enum { OPERATIONS = 9 };
static const struct {
    const char *name, *unit, *task, *span, *category;
} OPERATION[OPERATIONS] = {
    {"bottom forward", "bottom", "forward", "bottom forward", "call"},
    {"lookup", "", "lookup", "neo_bags_forward", "call"},
    {"pairs forward", "pairs", "forward", "neo_interact_forward", "compute"},
    {"top forward", "top", "forward", "top forward", "call"},
    {"top backward", "top", "backward", "top backward", "call"},
    {"pairs backward", "pairs", "backward", "neo_interact_backward", "compute"},
    {"bottom backward", "bottom", "backward", "bottom backward", "call"},
    {"update", "", "update", "neo_bags_backward", "call"},
    {"optimizer", "", "step", "neo_optim_step", "call"}};
typedef struct prediction {
    double seconds[OPERATIONS], exposed, step; /* step 0: there is none */
} prediction;

/* Two places, of a batch and of the next one: see put_in_turn. */
typedef struct turns {
    int now, ahead; /* the place of the batch; it is there already */
} turns;

/* --hot-rows, --warm-rows: see hot.h. */
enum { HOT, WARM, CLASSES };
typedef struct hot_tables {
    size_t tables;            /* of the data; 0: there are neither hot rows nor warm ones */
    int64_t **rows[CLASSES], *count[CLASSES]; /* [2 tables]: of each table; 0 behind these */
    char (*names)[160];       /* [tables][1 + CLASSES]: of the rest of a table, of its rows */
    int32_t features[CLASSES]; /* of tables that have such rows */
    neo_table_desc *desc;     /* the tables, then those of hot rows, of warm rows */
    double *ids;              /* of each, as model.ids: at most */
    unsigned *placements;     /* of each */
    neo_jagged_buffer *split[2], *between; /* between: without the hot rows */
    neo_jagged rest[2], part[2]; /* of split: the features of the plan's tables; of warm rows */
    turns turns;              /* of split */
    neo_tensor wide;          /* rows of all these tables, then their gradients */
    neo_shard *warm;          /* NULL: there are no warm rows */
    int64_t (*most)[CLASSES]; /* [tables]: at most so many rows of a class */
    int of_checkpoint;        /* which rows these are is read from there */
} hot_tables;

/* --evict score: see score.h. */
typedef struct key_scores {
    int on;
    int64_t *counts;   /* [ranks][tables]: keys; then [ranks] of one table */
    int64_t room;      /* of the lists: */
    uint64_t *keys[2]; /* of this rank, of all: those of one table */
    float *worth[2];   /* what each adds to its score */
} key_scores;

/* Batches to come of which tables are told. */
typedef struct told_batches {
    const neo_batch *at[MOST_AHEAD];
    int count;
} told_batches;

/* Ids on their way to the device, where ranks exchange them: see bring_ids in towers.h. */
typedef struct device_ids {
    int on; /* 0: the tables take ids from the host */
    turns turns; /* of side */
    struct {
        neo_jagged batch;
        neo_tensor offsets, ids, weights, inverse;
    } side[2];
} device_ids;

/* --checkpoint-bits: see served.h. */
typedef struct served_table {
    char *codes; /* of this rank's rows */
    float *scale;
} served_table;
typedef struct served_tables {
    neo_state *state; /* NULL: there are none */
    neo_row_bits bits;
    int64_t dim;
    served_table *table;
    float *rows; /* some, gathered */
} served_tables;

typedef struct model {
    neo_comm *comm, *data; /* data: a group for tensors, where the ranks compute */
    neo_ctx *ctx;
    neo_schema *schema, *test_schema; /* one object, but for synthetic data */
    neo_params *params[MLPS];
    const model_kind *kind;
    neo_mlp *bottom, *top; /* bottom: or the linear layer; top: or NULL */
    neo_cross *cross; /* of dcnv2, a part of the unit TOP; or NULL */
    neo_wukong *wukong; /* likewise, of wukong */
    neo_fsdp *dense;  /* both MLPs, the cross network and their optimizer */
    neo_shard *tables; /* NULL: the data has no sparse features, or there are towers: */
    neo_towers *towers;
    int32_t *tower; /* of each feature; NULL: there are no towers */
    neo_params *module_params[MAX_TOWERS]; /* of the towers of this node */
    neo_mlp *modules[MAX_TOWERS];
    neo_fsdp *units_of_towers;
    neo_tier *tier; /* below the rows of tables, or NULL */
    neo_profile *profile; /* or NULL */
    hot_tables hot;
    device_ids there;
    key_scores scores;
    served_tables served;
    double *ids; /* of a sample, for each feature, in the mean: see look_at_ids */
    double hits; /* of ids in the tier's memory, predicted */
    neo_report *report;   /* on rank 0, or NULL */
    prediction predicted; /* with --report, on rank 0 */
    neo_state *state;
    neo_schedule schedule;
    int pipeline, micro_batches;
    int keeps;            /* the gradients of tables wait for the end of the step */
    int kept;             /* batches whose gradients wait */
    device_graph *graph;  /* or NULL */
    batch_sum sum[2];     /* of this batch, and of the one before, which a GPU may still run */
    int turn;             /* the index of this batch's sum */
    neo_ticket sum_ticket;
    neo_dtype dtype;      /* of the MLPs' products */
    float dropout;        /* of their hidden numbers */
    int64_t batch_number; /* of training: the step of dropout; below 0: nothing trains */
    int64_t most_samples; /* B: samples of this rank in one batch, at most */
    int64_t factors;      /* of fm and deepfm: columns of a row but the last; ffm: --dim */
    int64_t tasks;        /* labels of a sample */
    neo_tensor x, e, z, logit;     /* [B][dim], [B][tables x dim], [B][interactions], [B][tasks]; of
                                      dcnv2, wukong x, e are the columns of z; linear: x [B][1] */
    neo_tensor dx, de, dz, dlogit; /* their gradients; linear: dx is dlogit */
    neo_tensor crossed, dcrossed;  /* the cross network or the Wukong layers of z */
    neo_tensor wide;               /* linear: [B][tasks], all but the top MLP; without one, logit */
    neo_tensor of_tasks, dof_tasks; /* linear, several tasks: e by tasks, then features */
    neo_tensor one, done;           /* likewise: [B][1], a column of wide, of dlogit */
    neo_tensor given, v, dv;       /* of deepfm: columns of z, dense numbers and factors; of dz */
    neo_tensor dense_in, label;    /* [B][dense], [B][tasks]: the batch on a device */
    neo_tensor weight;             /* [B][tasks]: of losses; on a device those of samples, too */
    float *task_label, *task_weight; /* those of several tasks, in host memory */
    neo_tensor ones;               /* [B][1]: the dense number of data that has none */
} model;

/* *batch, and *next if it is not NULL, become what `put` makes of them in their places; a batch
   that was next is there. */
typedef neo_status (*put_fn)(model *m, int place, int is_there, const neo_jagged **batch);
static neo_status put_in_turn(model *m, turns *t, put_fn put, const neo_jagged **batch,
                              const neo_jagged **next) {
    TRY(put(m, t->now, t->ahead, batch));
    t->ahead = *next != NULL;
    if (!*next) return NEO_OK;
    t->now = !t->now;
    return put(m, t->now, 0, next);
}

static neo_status parse_rows_dtype(const char *name, neo_dtype *dtype) {
    if (cluster_rows_dtype(name, dtype)) return NEO_OK;
    REFUSE("--rows-dtype %s: not f32, f16, bf16 or i8", name);
}

static neo_status parse_wires(const options *o, neo_wire *forward, neo_wire *backward) {
    const int forward_is_known = neo_wire_parse(o->wire_forward, forward) == NEO_OK;
    if (forward_is_known && neo_wire_parse(o->wire_backward, backward) == NEO_OK) return NEO_OK;
    REFUSE("--wire-%s %s: not f32, f16, bf16, f8e4m3, f8e5m2, i8 or i4",
           forward_is_known ? "backward" : "forward",
           forward_is_known ? o->wire_backward : o->wire_forward);
}

static neo_status parse_optimizer(const char *name, neo_optim_kind *dense,
                                  neo_bag_optim_kind *bag) {
    typedef struct kind { const char *name; neo_optim_kind dense; neo_bag_optim_kind bag; } kind;
    static const kind KINDS[] = {
        {"sgd", NEO_OPTIM_SGD, NEO_BAG_SGD},
        {"adagrad", NEO_OPTIM_ADAGRAD, NEO_BAG_ROWWISE_ADAGRAD},
        {"adagrad-full", NEO_OPTIM_ADAGRAD, NEO_BAG_ADAGRAD},
        {"adam", NEO_OPTIM_ADAM, NEO_BAG_ADAM},
        {"adamw", NEO_OPTIM_ADAMW, NEO_BAG_ADAM},
        {"lamb", NEO_OPTIM_LAMB, NEO_BAG_LAMB},
        {"ftrl", NEO_OPTIM_FTRL, NEO_BAG_FTRL},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(name, KINDS[i].name)) continue;
        *dense = KINDS[i].dense;
        *bag = KINDS[i].bag;
        return NEO_OK;
    }
    REFUSE("--optimizer %s: not sgd, adagrad, adagrad-full, adam, adamw, lamb or ftrl", name);
}

static neo_status parse_dense_shard(const char *name, neo_fsdp_mode *mode) {
    if (strcmp(name, "none") == 0) name = neo_fsdp_mode_name(NEO_FSDP_DDP);
    for (int i = 0; i < NEO_FSDP_MODE_COUNT; i++) {
        *mode = (neo_fsdp_mode)i;
        if (strcmp(name, neo_fsdp_mode_name(*mode)) == 0) return NEO_OK;
    }
    REFUSE("--dense-shard %s: not none, zero1, zero2 or full", name);
}

static neo_status parse_schedule(const char *name, neo_schedule_kind *kind) {
    if (strcmp(name, "constant") == 0) *kind = NEO_SCHEDULE_CONSTANT;
    else if (strcmp(name, "linear") == 0) *kind = NEO_SCHEDULE_LINEAR;
    else if (strcmp(name, "cosine") == 0) *kind = NEO_SCHEDULE_COSINE;
    else REFUSE("--schedule %s: not constant, linear or cosine", name);
    return NEO_OK;
}

/* "13-512-16" -> {13, 512, 16}; returns how many, 0 if it is not such a list. */
static int parse_widths(const char *text, int64_t *widths, int most) {
    int count = 0;
    for (const char *p = text;;) {
        char *end;
        long long width = strtoll(p, &end, 10);
        if (end == p || width < 1 || count == most) return 0;
        widths[count++] = width;
        if (*end == 0) return count;
        if (*end != '-') return 0;
        p = end + 1;
    }
}

/* ---- the dense layers ---- */

/* spec: the text of the option; in, out: the widths that the data and the other layers ask for. The
   width of the top's input follows from the model: its option leaves it out. */
static neo_status create_mlp(model *m, int which, const char *spec, int64_t in, int64_t out,
                             neo_mlp **mlp) {
    const char *name = which == BOTTOM ? m->kind->bottom : "top";
    int given = which == BOTTOM ? 0 : 1; /* the first width that the option gives */
    char begin[80] = "";
    neo_mlp_desc d = {.name = name, .max_batch = m->most_samples, .dtype = m->dtype,
                      .widths = {in}, .act = NEO_ACT_RELU, .dropout = m->dropout};
    int count = parse_widths(spec, d.widths + given, NEO_MAX_LAYERS + 1 - given);
    d.width_count = count + given;
    if (which == BOTTOM && m->kind->meets < WEIGHTS) d.last_act = NEO_ACT_RELU;
    else if (which == BOTTOM) d.init = NEO_MLP_INIT_ZERO;
    if (count && d.width_count >= 2 && d.widths[0] == in && d.widths[d.width_count - 1] == out)
        return neo_mlp_create(m->ctx, m->params[which], &d, mlp);
    if (which == BOTTOM)
        snprintf(begin, sizeof begin, " beginning with %lld (%s dense numbers),", (long long)in,
                 neo_schema_dense_count(m->schema) ? "this data's" : "this data has no");
    REFUSE("--%s %s: must be widths joined by '-',%s ending with %lld%s", name, spec, begin,
           (long long)out, which == TOP && m->tasks > 1 ? ", the labels of a sample" : "");
}

/* "3x64" -> layers 3, *number 64, at least 1; "3": it stays. Returns whether it is one of them. */
static int parse_layers(const char *text, int *layers, int64_t *number) {
    char *end;
    const long count = strtol(text, &end, 10);
    const int both = *end == 'x';
    if (both) *number = strtoll(end + 1, &end, 10);
    *layers = (int)count;
    return !*end && count >= 1 && count <= NEO_MAX_LAYERS && (!both || *number >= 1);
}
/* Without x: rank 0, square matrices. text: NULL, unless given. */
static neo_status parse_cross(const char *text, neo_cross_desc *d) {
    *d = (neo_cross_desc){.name = "cross"};
    if (parse_layers(text ? text : CROSS, &d->layers, &d->rank)) return NEO_OK;
    REFUSE("--cross %s: not layers (1 .. %d), or layers x rank, as 3x64", text, NEO_MAX_LAYERS);
}
static neo_status create_cross(model *m, const options *o, int64_t width) {
    neo_cross_desc d;
    TRY(parse_cross(o->cross, &d));
    d.width = width, d.max_batch = m->most_samples, d.dtype = m->dtype;
    if (!o->cross && d.rank > width) d.rank = width;
    if (d.rank > width)
        REFUSE("--cross %s: the rank is above the %lld columns", o->cross, (long long)width);
    return neo_cross_create(m->ctx, m->params[TOP], &d, &m->cross);
}

/* "2x64" -> layers 2, 64 hidden. text: NULL, unless given. */
static neo_status parse_wukong(const char *text, neo_wukong_desc *d) {
    *d = (neo_wukong_desc){.name = "wukong"};
    if (parse_layers(text ? text : WUKONG, &d->layers, &d->hidden) && d->hidden) return NEO_OK;
    REFUSE("--wukong %s: not layers (1 .. %d) x hidden numbers, as %s", text, NEO_MAX_LAYERS,
           WUKONG);
}
static neo_status create_wukong(model *m, const options *o, int64_t features) {
    neo_wukong_desc d;
    TRY(parse_wukong(o->wukong, &d));
    d.features = features + 1, d.dim = o->dim, d.linear = (features + 1) / 2;
    d.max_batch = m->most_samples, d.dtype = m->dtype;
    if (!features) REFUSE("--model wukong pairs sparse features, and this data has none");
    return neo_wukong_create(m->ctx, m->params[TOP], &d, &m->wukong);
}

/* Samples of a whole batch that are this rank's: no smaller batch gives it more. */
static int64_t most_samples(const neo_comm *comm, int64_t batch) {
    neo_leaves parts[NEO_MAX_SUBTREES];
    int64_t shards = neo_ctx_repro_shards(neo_comm_ctx(comm)), leaves = 0;
    for (int i = neo_comm_subtrees(comm, neo_comm_rank(comm), batch, parts); i-- > 0;)
        leaves += parts[i].count;
    return (batch * leaves + shards - 1) / shards;
}

/* Samples [first, first + rows) of this rank's: a part of the batch whose gradients add up here. */
typedef struct part {
    neo_leaves leaves;
    int64_t first, rows;
} part;

/* Cuts this rank's samples, of the group of `units`: one part, if its leaves are a whole subtree
   (see >>leaves in neo.h). A rank may have fewer than others, and then parts without samples. */
static int cut_batch(const model *m, const neo_fsdp *units, int64_t global_size, part *parts) {
    int shards = neo_ctx_repro_shards(m->ctx), count = neo_fsdp_pieces(units);
    int first_leaf = neo_fsdp_piece(units, 0, global_size).first;
    int64_t start = neo_leaf_begin(global_size, shards, first_leaf);
    for (int k = 0; k < count; k++) {
        neo_leaves leaves = neo_fsdp_piece(units, k, global_size);
        int64_t begin = neo_leaf_begin(global_size, shards, leaves.first);
        int64_t end = neo_leaf_begin(global_size, shards, leaves.first + leaves.count);
        parts[k] = (part){leaves, begin - start, end - begin};
    }
    return count;
}

static neo_status alloc_rows(model *m, int64_t columns, neo_tensor *t) {
    return neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->most_samples, columns}, t);
}

static neo_status alloc_both(model *m, int64_t columns, neo_tensor *value, neo_tensor *grad) {
    TRY(alloc_rows(m, columns, value));
    return alloc_rows(m, columns, grad);
}

/* pooled: columns of e; width: of z. */
static neo_status create_buffers(model *m, int64_t dim, int64_t pooled, int64_t width) {
    meeting meets = m->kind->meets;
    if (m->top) TRY(alloc_both(m, width, &m->z, &m->dz));
    if (m->kind->between) TRY(alloc_both(m, width, &m->crossed, &m->dcrossed));
    TRY(alloc_both(m, m->tasks, &m->logit, &m->dlogit));
    if (meets != BESIDE) TRY(alloc_both(m, pooled, &m->e, &m->de));
    if (meets == DOTS) return alloc_both(m, dim, &m->x, &m->dx);
    if (meets == BESIDE) {
        m->x = neo_tensor_slice(m->z, 1, 0, dim), m->e = neo_tensor_slice(m->z, 1, dim, pooled);
        m->dx = neo_tensor_slice(m->dz, 1, 0, dim);
        m->de = neo_tensor_slice(m->dz, 1, dim, pooled);
        return NEO_OK;
    }
    m->dx = m->dlogit, m->wide = m->logit;
    TRY(alloc_rows(m, m->tasks, &m->x));
    if (m->tasks > 1) TRY(alloc_both(m, pooled, &m->of_tasks, &m->dof_tasks));
    if (m->tasks > 1) TRY(alloc_both(m, 1, &m->one, &m->done));
    if (!m->top) return NEO_OK;
    int64_t dense = neo_schema_dense_count(m->schema);
    if (dense) m->given = neo_tensor_slice(m->z, 1, 0, dense);
    m->v = neo_tensor_slice(m->z, 1, dense, width - dense);
    m->dv = neo_tensor_slice(m->dz, 1, dense, width - dense);
    return alloc_rows(m, m->tasks, &m->wide);
}

/* Data without dense numbers gives the bottom MLP a 1, from which it learns one vector (the linear
   layer: one number). */
static neo_status create_ones(model *m) {
    static float one = 1;
    TRY(alloc_rows(m, 1, &m->ones));
    for (int64_t i = 0; i < m->most_samples; i++)
        TRY(neo_tensor_copy(m->ctx, neo_tensor_2d(&one, NEO_F32, 1, 1),
                            neo_tensor_rows(m->ones, i, 1)));
    return NEO_OK;
}

/* Labels and weights of several tasks, made of the batch's. */
static neo_status create_task_buffers(model *m) {
    size_t bytes = (size_t)(m->most_samples * m->tasks) * sizeof(float);
    if (m->tasks == 1) return NEO_OK;
    m->task_label = neo_alloc(m->ctx, bytes);
    m->task_weight = neo_alloc(m->ctx, bytes);
    return m->task_label && m->task_weight ? NEO_OK : out_of_memory();
}

/* A copy of the batch on the device, and a graph whose memory has room for it; rows below the
   device's memory cannot come within a graph. */
static neo_status create_device_buffers(model *m, const options *o, int64_t dense,
                                        int64_t features) {
    int64_t sample = dense * 4 + m->tasks * 8 + features * 16; /* labels, weights; ids, offsets */
    size_t batch = (size_t)(m->most_samples * sample);
    batch += 65536 + (size_t)features * 1024; /* descriptions of tables and of their steps */
    if (!neo_ctx_device(m->ctx)) return NEO_OK;
    if (strcmp(o->machine.graph, "on") == 0 && !o->tier)
        TRY(graph_open(neo_ctx_device(m->ctx), batch, 2, &m->graph));
    TRY(alloc_rows(m, dense, &m->dense_in));
    if (neo_schema_is_sample_weighted(m->schema) || m->tasks > 1)
        TRY(alloc_rows(m, m->tasks, &m->weight));
    return alloc_rows(m, m->tasks, &m->label);
}

/* What the bottom MLP takes. */
static int64_t dense_width(const model *m) {
    int32_t dense = neo_schema_dense_count(m->schema);
    return dense ? dense : 1;
}

/* Columns of what the top MLP or the cross network takes. */
static int64_t top_width(const model *m, int64_t dim, int64_t features) {
    if (m->kind->meets == DOTS) return neo_interact_width(dim, features, 0);
    if (m->kind->meets == BESIDE) return (features + 1) * dim;
    return neo_schema_dense_count(m->schema) + m->tasks * features * (dim - 1);
}

/* All of the model but the tables, and but what ranks make together. */
static neo_status create_dense(model *m, const options *o) {
    int64_t tables = neo_schema_feature_count(m->schema), features = tables;
    int64_t dense = dense_width(m);
    if (o->towers > tables)
        REFUSE("--towers %lld: the data has %lld sparse feature%s, each tower needs one",
               (long long)o->towers, (long long)tables, PLURAL(tables));
    if (o->towers) features = o->towers;
    m->kind = kind_of(o);
    m->factors = m->kind->meets == AWARE ? o->dim : o->dim - 1;
    m->tasks = neo_schema_label_count(m->schema);
    int linear = m->kind->meets >= WEIGHTS;
    int64_t width = top_width(m, o->dim, features), out = linear ? m->tasks : o->dim;
    char bottom[64], top[32];
    snprintf(top, sizeof top, "64-%lld", (long long)m->tasks);
    if (m->kind->meets >= MACHINE && !features)
        REFUSE("--model %s pairs sparse features, and this data has none", o->model);
    if (m->kind->meets >= MACHINE && !m->kind->top && features == 1)
        REFUSE("--model %s pairs features, not the ids of one, and this data has one feature: "
               "libffm makes one of every field", o->model);
    snprintf(bottom, sizeof bottom, linear ? "%lld-%lld" : "%lld-64-%lld", (long long)dense,
             (long long)out);
    m->most_samples = most_samples(m->comm, o->batch);
    if (neo_schema_dense_count(m->schema) == 0) TRY(create_ones(m));
    m->dtype = strcmp(o->dtype, "bf16") ? NEO_F32 : NEO_BF16;
    m->dropout = (float)o->dropout;
    m->pipeline = strcmp(o->pipeline, "on") == 0;
    m->micro_batches = (int)o->micro_batches;
    m->keeps = o->clip_norm > 0 || m->micro_batches > 1;
    for (int i = 0; i < MLPS; i++) TRY(neo_params_create_deferred(m->ctx, &m->params[i]));
    TRY(create_mlp(m, BOTTOM, o->bottom ? o->bottom : bottom, dense, out, &m->bottom));
    if (m->kind->between == CROSSES) TRY(create_cross(m, o, width));
    if (m->kind->between == STACKS) TRY(create_wukong(m, o, features));
    if (m->kind->top) TRY(create_mlp(m, TOP, o->top ? o->top : top, width, m->tasks, &m->top));
    TRY(create_buffers(m, o->dim, features * row_width(m->kind, o, features, m->tasks),
                       width));
    TRY(create_task_buffers(m));
    return create_device_buffers(m, o, dense, tables);
}

/* The MLPs' parameters and their optimizer, of which each rank has a part or all. Collective. */
static neo_status create_units(model *m, const options *o) {
    neo_fsdp_unit units[MLPS] = {{.name = m->kind->bottom, .params = m->params[BOTTOM]},
                                 {.name = "top", .params = m->params[TOP]}};
    neo_fsdp_desc d = {.units = units, .unit_count = m->top ? MLPS : 1,
                       .micro_batches = m->micro_batches,
                       .optim = {.weight_decay = (float)(o->weight_decay + o->l2),
                                 .l1 = (float)o->l1, .eps = (float)o->eps,
                                 .clip_norm = (float)o->clip_norm}};
    neo_bag_optim_kind of_tables;
    neo_status status = parse_dense_shard(o->dense_shard, &d.mode);
    if (status == NEO_OK) status = parse_optimizer(o->optimizer, &d.optim.kind, &of_tables);
    TRY(agree(m->comm, status));
    TRY(device_group(m->comm, o->machine.sums, &m->data));
    return neo_fsdp_create(m->data, &d, &m->dense);
}

static void destroy_model(model *m) {
    neo_tensor *buffers[] = {&m->z,  &m->logit,  &m->crossed,  &m->dense_in, &m->x,  &m->e,
                             &m->dz, &m->dlogit, &m->dcrossed, &m->label,    &m->dx, &m->de,
                             &m->ones, &m->wide, &m->weight, &m->one, &m->done,
                             &m->of_tasks, &m->dof_tasks};
    graph_close(m->graph);
    if (m->crossed.data) m->x = m->e = m->dx = m->de = neo_tensor_none(); /* columns of others */
    if (m->dx.data == m->dlogit.data) m->dx = neo_tensor_none();
    if (m->wide.data == m->logit.data) m->wide = neo_tensor_none();
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        neo_tensor_free(m->ctx, buffers[i]);
    for (int i = 0; i < 2; i++) {
        neo_tensor_free(m->ctx, &m->there.side[i].offsets);
        neo_tensor_free(m->ctx, &m->there.side[i].ids);
        neo_tensor_free(m->ctx, &m->there.side[i].weights);
        neo_tensor_free(m->ctx, &m->there.side[i].inverse);
    }
    size_t task_bytes = (size_t)(m->most_samples * m->tasks) * sizeof(float);
    neo_free(m->ctx, m->task_label, task_bytes);
    neo_free(m->ctx, m->task_weight, task_bytes);
    neo_state_destroy(m->state);
    neo_shard_destroy(m->tables);
    neo_shard_destroy(m->hot.warm);
    neo_fsdp_destroy(m->units_of_towers);
    for (int k = 0; k < MAX_TOWERS; k++) {
        neo_mlp_destroy(m->modules[k]);
        neo_params_destroy(m->module_params[k]);
    }
    neo_towers_destroy(m->towers);
    free(m->tower);
    free(m->ids);
    neo_tier_destroy(m->tier);
    neo_profile_destroy(m->profile);
    neo_fsdp_destroy(m->dense);
    device_group_end(m->comm, m->data);
    neo_mlp_destroy(m->top);
    neo_cross_destroy(m->cross);
    neo_wukong_destroy(m->wukong);
    neo_mlp_destroy(m->bottom);
    for (int i = 0; i < MLPS; i++) neo_params_destroy(m->params[i]);
    if (m->test_schema != m->schema) neo_schema_destroy(m->test_schema);
    neo_schema_destroy(m->schema);
}
#endif
