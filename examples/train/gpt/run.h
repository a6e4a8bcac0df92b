/* run.h: the run of one rank: setting up, checkpoints, and the count of memory and traffic. */
#ifndef GPT_RUN_H
#define GPT_RUN_H
#include "../../plan/cluster.h"
#include "../summary.h"
#include "options.h"
#include "seconds.h"

/* Shared by the ranks of a process; constant once they have started, but for `cli`. */
typedef struct job {
    cli_job cli;
    options o;
    text text;
} job;

typedef struct run {
    cli_rank me;
    trainer t;
    const options *o;
    const text *text;
    neo_state *state;
    int64_t step;       /* steps taken, in all runs */
    int64_t seen;       /* steps whose loss was summed: with a graph one less */
    cli_best best;      /* step and validation loss */
    int over;           /* --patience is at its end */
    int saved;          /* the checkpoint of `step` is there */
    int64_t started_ns; /* of the steps since the last validation */
    neo_events *events; /* of TensorBoard, on rank 0; or NULL */
    int64_t point_ns;   /* of the last point there */
    neo_fsdp_desc desc; /* without units */
    neo_fsdp_prediction predicted;
    size_t counted;     /* bytes that neo_fsdp_create took */
    double sent[3][2];  /* bytes of a step: of all_gather ...; predicted and counted */
    neo_cluster cluster; /* of --cluster, on rank 0 */
    int64_t sent_before; /* bytes that counters no longer have: --memory sets them to 0 */
} run;

/* ---- setting up ---- */

static neo_status describe_fsdp(run *r) {
    static const struct { const char *name; neo_fsdp_mode mode; } MODES[] = {
        {"none", NEO_FSDP_DDP},  {"zero1", NEO_FSDP_ZERO1},  {"zero2", NEO_FSDP_ZERO2},
        {"full", NEO_FSDP_FULL}, {"hybrid", NEO_FSDP_FULL}};
    const options *o = r->o;
    int ranks = r->me.ranks;
    neo_fsdp_desc d = {.slots = (int)o->slots, .micro_batches = (int)o->accumulate};
    d.optim.kind = NEO_OPTIM_ADAMW;
    d.optim.weight_decay = (float)o->weight_decay;
    d.optim.clip_norm = (float)o->clip;
    d.optim.beta2 = o->beta2 > 0 ? o->beta2 : -1;
    d.param_dtype = d.reduce_dtype = strcmp(o->dtype, "bf16") ? NEO_F32 : NEO_BF16;
    d.accumulate = strcmp(o->accumulate_mode, "end") ? NEO_ACCUMULATE_EACH : NEO_ACCUMULATE_AT_END;
    if (strcmp(o->shard, "hybrid") == 0) {
        if (!o->factor && ranks > 1 && ranks % 2)
            REFUSE("--shard hybrid: %d ranks have no half, give --factor", ranks);
        d.factor = o->factor ? (int)o->factor : ranks > 1 ? ranks / 2 : 1;
    }
    r->desc = d;
    for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++) {
        r->desc.mode = MODES[i].mode;
        if (strcmp(o->shard, MODES[i].name) == 0) return NEO_OK;
    }
    REFUSE("--shard %s: not none, zero1, zero2, full or hybrid", o->shard);
}

/* The part that a rank makes by itself. */
static neo_status prepare(run *r) {
    const options *o = r->o;
    trainer *t = &r->t;
    model *m = &t->m;
    int64_t leaves = neo_ctx_repro_shards(r->me.ctx);
    TRY(cli_check_ranks(&r->me, &o->machine));
    TRY(describe_fsdp(r));
    t->comm = r->me.comm;
    t->text = r->text;
    t->batch = o->batch;
    t->micro_batches = o->accumulate;
    t->schedule = (neo_schedule){.kind = NEO_SCHEDULE_COSINE, .lr = (float)o->lr,
                                 .end_lr = (float)o->min_lr, .warmup_steps = o->warmup,
                                 .total_steps = o->steps};
    for (int i = 0; i < 2; i++) neo_exact_zero(&t->loss[i]);
    m->ctx = r->me.ctx;
    m->layers = o->layers, m->heads = o->heads, m->width = o->width, m->context = o->context;
    m->vocabulary = r->text->vocabulary;
    m->recompute = (int)o->recompute;
    m->products_bf16 = strcmp(o->products, "bf16") == 0;
    m->gelu = strcmp(o->gelu, "tanh") ? NEO_ACT_GELU : NEO_ACT_GELU_TANH;
    m->residual_bf16 = strcmp(o->residual, "bf16") == 0;
    if (m->residual_bf16 && shared_dtype(m) != NEO_BF16)
        REFUSE("--residual bf16 needs --products bf16, --device cuda without --exact, and heads of "
               "a multiple of 8 columns");
    m->weights_kept = m->products_bf16 && !m->recompute && /* where they are whole all the time */
                      (r->me.ranks == 1 || r->desc.mode != NEO_FSDP_FULL);
    m->weights_first = m->weights_kept && (r->me.ranks == 1 || r->desc.mode == NEO_FSDP_DDP);
    m->pairs = m->weights_first && r->me.ranks == 1 && shared_dtype(m) == NEO_BF16 &&
               o->slots != 1 && /* two blocks' windows are open at once */
               strcmp(o->machine.graph, "on") == 0; /* products wait where steps are recorded */
    int64_t rows = (o->batch + leaves - 1) / leaves * o->context; /* a piece is a leaf */
    return create_model(m, o->summary ? 0 : rows);
}

/* The graph's memory has room for the ids and targets of a piece. */
static neo_status open_graph(run *r) {
    trainer *t = &r->t;
    size_t bytes = 2 * (neo_tensor_bytes(t->m.ids) + 256);
    if (strcmp(r->o->machine.graph, "off") == 0) return NEO_OK;
    return graph_open(neo_ctx_device(r->me.ctx), bytes, 1, &t->graph);
}

/* ---- checkpoints ---- */

/* The state of a run, and the words that a resumed run must agree with. */
static neo_status create_state(run *r) {
    const options *o = r->o;
    const text *t = r->text;
    char words[64];
    const struct { const char *key; int64_t value; } numbers[] = {
        {"batch", o->batch}, {"heads", o->heads}, {"context", o->context}};
    TRY(neo_state_create(r->me.ctx, &r->state));
    TRY(neo_state_add_fsdp(r->state, r->t.fsdp));
    for (int i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "%lld", (long long)numbers[i].value);
        TRY(neo_state_define(r->state, numbers[i].key, words));
    }
    TRY(neo_state_define(r->state, "products", o->products));
    if (strcmp(o->gelu, "erf")) TRY(neo_state_define(r->state, "gelu", o->gelu));
    if (r->t.m.residual_bf16) TRY(neo_state_define(r->state, "residual", o->residual));
    TRY(cli_define_sums(r->state, &o->machine, r->me.ranks));
    snprintf(words, sizeof words, "%lld %s, CRC32C %08x", (long long)t->length,
             t->is_tokens ? "tokens" : "characters", (unsigned)t->checksum);
    return neo_state_define(r->state, "text", words);
}

/* model.json of the checkpoints, from which neo_model_load (neo_serve.h) makes the model again: the
   text, of malloc; NULL: there is no memory. */
static char *describe_model(const run *r) {
    const options *o = r->o;
    const size_t most = 512 + 5 * 256;
    char *json = malloc(most), *p = json;
    if (!json) return NULL;
    p += sprintf(p, "{\"neo_model\": 1,\n \"model\": \"gpt\", \"layers\": %lld, \"heads\": %lld, "
                    "\"width\": %lld, \"context\": %lld,\n \"dtype\": \"%s\", "
                    "\"weights_dtype\": \"%s\"%s,\n", (long long)o->layers, (long long)o->heads,
                 (long long)o->width, (long long)o->context, o->products, o->dtype,
                 strcmp(o->gelu, "erf") ? ", \"gelu\": \"tanh\"" : "");
    if (r->text->is_tokens) {
        sprintf(p, " \"vocabulary\": %d}\n", r->text->vocabulary);
        return json;
    }
    p += sprintf(p, " \"bytes\": [");
    for (int i = 0; i < r->text->vocabulary; i++)
        p += sprintf(p, i ? ", %d" : "%d", (int)r->text->letter[i]);
    (void)strcpy(p, "]}\n");
    return json;
}

/* Saves a checkpoint, if the run has not diverged. Collective. */
static neo_status save(run *r) {
    neo_metric lr = {"lr", r->o->lr};
    neo_save_desc d = {.dir = r->o->saves.dir, .step = r->step, .metrics = &lr, .metric_count = 1};
    TRY(cli_save_run(&r->me, &r->o->saves, r->state, d));
    r->saved = d.dir != NULL;
    return NEO_OK;
}

static neo_status open_checkpoints(const cli_saves *saves) {
    if (!saves->resume) TRY(check_fresh(saves));
    return make_saves(saves);
}

static neo_status load_weights(run *r) {
    char names[256];
    snprintf(names, sizeof names, "%.200s*", r->o->prefix);
    neo_name_map map = {.file_name = names, .state_name = "*"};
    TRY(neo_load_safetensors(r->me.ctx, r->o->load, &map, 1, 0, r->state, NULL));
    say(&r->me, "loaded the weights of %s\n", r->o->load);
    return NEO_OK;
}

static neo_status restore(run *r) {
    const options *o = r->o;
    const char *dir = o->saves.dir;
    neo_group group = neo_comm_group(r->me.comm);
    neo_load_desc d = {.dir = dir, .group = &group};
    if (o->load) TRY(agree(r->me.comm, load_weights(r)));
    if (dir) TRY(agree(r->me.comm, r->me.rank ? NEO_OK : open_checkpoints(&o->saves)));
    if (!o->saves.resume) return NEO_OK;
    return cli_go_on(&r->me, &o->saves, d, r->state, o->lr, "--layers, --width and --data",
                     &r->step, &r->saved);
}

/* --summary: a sample is a sequence; the token table is multiplied at the end, attention is
   causal. */
static neo_status print_summary(const run *r) {
    const model *m = &r->t.m;
    summary s = {0};
    summary_params(&s, m->root, 2, m->context, "wpe.weight");
    for (int i = 0; i < m->layers; i++) summary_params(&s, m->block[i].params, 2, m->context, NULL);
    s.flops += 2.0 * (double)(m->layers * m->context * m->context * m->width);
    return summary_end(&s, "sequence");
}

/* What a rank has allocated, and with it its peers in this process, fits into the machine: a system
   that promises more memory than it has would kill the run later, without a word. */
static neo_status check_allocated(const run *r) {
#if defined(_SC_PHYS_PAGES)
    const neo_memory m = neo_ctx_memory(r->me.ctx);
    const int together = neo_comm_get_backend(r->me.comm) == NEO_BACKEND_THREADS;
    const double bytes = (together ? r->me.ranks : 1) * (double)(m.bytes - m.device_bytes);
    const double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (has > 0 && bytes > has)
        REFUSE("training takes %.0f GB, this machine has %.0f: give a smaller --batch, "
               "with more --accumulate", 1e-9 * bytes, 1e-9 * has);
#endif
    (void)r;
    return NEO_OK;
}

/* Memory that was not granted: what it was for, and what takes less. */
static neo_status advise_memory(neo_status status, const char *part, const char *less) {
    if (status != NEO_ERR_MEMORY) return status;
    return neo_fail(status, "%s, for the %s: give %s", neo_last_error(), part, less);
}

static neo_status set_up(run *r) {
    const char *cluster = r->o->cluster;
    TRY(advise_memory(agree(r->me.comm, prepare(r)), "activations",
                      "--recompute, or a smaller --batch (with more --accumulate) or --context"));
    TRY(agree(r->me.comm, cluster && !r->me.rank ? cluster_read("cluster", cluster,
                                                                r->o->machine.device, &r->cluster)
                                                 : NEO_OK));
    if (r->o->summary) return agree(r->me.comm, r->me.rank ? NEO_OK : print_summary(r));
    TRY(device_group(r->me.comm, r->o->machine.sums, &r->t.data));
    size_t before = neo_ctx_memory(r->me.ctx).bytes;
    TRY(advise_memory(create_fsdp(&r->t, r->desc, &r->predicted),
                      "weights, gradients and the optimizer's state",
                      "more ranks on more machines, or a smaller --layers or --width"));
    r->counted = neo_ctx_memory(r->me.ctx).bytes - before;
    TRY(agree(r->me.comm, check_allocated(r)));
    TRY(agree(r->me.comm, open_graph(r)));
    TRY(agree(r->me.comm, create_state(r)));
    if (r->me.rank == 0) r->me.job->model = describe_model(r);
    TRY(agree(r->me.comm, r->me.rank || r->me.job->model ? NEO_OK : out_of_memory()));
    TRY(restore(r));
    return agree(r->me.comm, board_open(&r->me, &r->o->board, &r->events));
}

/* After an error, too. */
static void tear_down(run *r) {
    if (r->me.rank == 0) {
        free(r->me.job->model);
        r->me.job->model = NULL;
    }
    graph_close(r->t.graph);
    neo_events_close(r->events);
    neo_state_destroy(r->state);
    neo_fsdp_destroy(r->t.fsdp);
    device_group_end(r->me.comm, r->t.data);
    destroy_model(&r->t.m);
}

/* ---- memory and traffic ---- */

/* Bytes of the groups of ranks that an FSDP makes for itself, which its prediction leaves out. */
static size_t group_bytes(const run *r) {
    const neo_comm_desc *desc = &r->me.job->comm;
    neo_comm_backend host = neo_comm_get_backend(r->me.comm);
    int factor = r->desc.factor ? r->desc.factor : r->me.ranks;
    int sizes[2] = {factor > 1 ? factor : r->me.ranks, factor > 1 ? r->me.ranks / factor : 1};
    size_t bytes = 0;
    if (r->desc.mode == NEO_FSDP_DDP) sizes[0] = r->me.ranks, sizes[1] = 1;
    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 1) continue;
        bytes += neo_comm_workspace_bytes(desc, sizes[i], host);
        if (r->t.data != r->me.comm)
            bytes += neo_comm_workspace_bytes(desc, sizes[i], NEO_BACKEND_NCCL) +
                     neo_comm_device_bytes(desc, sizes[i], NEO_BACKEND_NCCL);
        else if (neo_ctx_device(r->me.ctx))
            bytes += neo_comm_device_bytes(desc, sizes[i], host);
    }
    return bytes;
}

static int64_t sent_by(const neo_comm_stats *s, neo_comm_op op) {
    return (int64_t)s->op[op].bytes[NEO_LEVEL_LOCAL] + (int64_t)s->op[op].bytes[NEO_LEVEL_CROSS];
}

/* Sums over all ranks what a step has sent since neo_fsdp_reset_stats. An all-reduce in a sharding
   group is not of gradients, but of the clipping norm, which is not predicted. */
static neo_status count_traffic(run *r) {
    static const neo_comm_op ops[3] = {NEO_COMM_ALL_GATHER, NEO_COMM_REDUCE_SCATTER,
                                       NEO_COMM_ALL_REDUCE};
    neo_fsdp_stats s = neo_fsdp_get_stats(r->t.fsdp);
    const neo_comm_stats *groups[3] = {&s.shard, &s.replica, &s.all};
    const double predicted[3] = {r->predicted.all_gather_bytes, r->predicted.reduce_scatter_bytes,
                                 r->predicted.all_reduce_bytes};
    int64_t bytes[6] = {0};
    for (int i = 0; i < 3; i++) {
        int first = ops[i] == NEO_COMM_ALL_REDUCE ? 1 : 0;
        bytes[2 * i] = (int64_t)predicted[i];
        for (int k = first; k < 3; k++) bytes[2 * i + 1] += sent_by(groups[k], ops[i]);
    }
    TRY(neo_comm_all_reduce(r->me.comm, NEO_REDUCE_SUM, bytes, bytes, 6, NEO_I64, NULL));
    for (int i = 0; i < 6; i++) r->sent[i / 2][i % 2] = (double)bytes[i];
    return NEO_OK;
}

/* What a step of a rank is made of, by the spans of its trace. */
enum { OPERATIONS = 6, SPANS = 5 };
static const struct {
    const char *name, *category, *span[SPANS];
} OPERATION[OPERATIONS] = {
    {"layers forward", "compute", {"neo_linear_forward", "neo_linear_act_forward"}},
    {"attention forward", "compute", {"neo_attention_forward"}},
    {"layers backward", "compute", {"neo_linear_backward", "neo_linear_act_backward"}},
    {"attention backward", "compute", {"neo_attention_backward"}},
    {"norms, GELU, sums", "compute", {"neo_layer_norm_forward", "neo_layer_norm_backward",
                                      "neo_activation_forward", "neo_activation_backward",
                                      "neo_add"}},
    {"optimizer", "call", {"neo_optim_step"}}};
/* Seconds of each, of an even share of the sequences. */
static void predict_operations(const run *r, double *seconds) {
    const model *m = &r->t.m;
    const double pieces = (double)(neo_fsdp_pieces(r->t.fsdp) * r->o->accumulate);
    const gpt_sizes sizes = {
        (double)(r->o->batch * r->o->accumulate * r->o->context) / (r->me.ranks * pieces),
        pieces * (m->recompute ? 2 : 1), pieces, m->layers, m->width, m->heads, m->context,
        m->vocabulary, (double)r->predicted.master_bytes / 4};
    double part[GPT_PARTS];
    gpt_seconds(&r->cluster, &sizes, part);
    for (int back = 0; back < 2; back++) {
        const double *of = part + back * GPT_BACK;
        seconds[2 * back] = of[GPT_LAYERS] + of[GPT_HEAD];
        seconds[2 * back + 1] = of[GPT_ATTENTION];
    }
    seconds[4] = part[GPT_REST] + part[GPT_BACK + GPT_REST];
    seconds[5] = part[GPT_OPTIMIZER];
}
/* --cluster: rank 0's steps beside the prediction, and the operation that is off most. */
static void print_operations(const run *r) {
    double predicted[OPERATIONS], most = -1;
    int64_t steps, count;
    int off = 0;
    (void)neo_trace_time(r->me.trace, NULL, "call", "step", &steps);
    if (!steps) return;
    predict_operations(r, predicted);
    printf("a step of rank 0     predicted, ms  measured, ms  error\n");
    for (int i = 0; i < OPERATIONS; i++) {
        int64_t ns = 0;
        for (int k = 0; k < SPANS && OPERATION[i].span[k]; k++)
            ns += neo_trace_time(r->me.trace, "step", OPERATION[i].category, OPERATION[i].span[k],
                                 &count);
        const double took = 1e-9 * (double)ns / (double)steps;
        if (fabs(predicted[i] - took) > most) off = i, most = fabs(predicted[i] - took);
        printf("%-20s %13.4f %13.4f  %+.0f %%\n", OPERATION[i].name, 1e3 * predicted[i],
               1e3 * took, 100 * (predicted[i] / took - 1));
    }
    printf("predicted worst: %s, by %.4f ms\n", OPERATION[off].name, 1e3 * most);
}

static void print_memory(const run *r, int trained) {
    static const char *const names[3] = {"all-gather", "reduce-scatter", "all-reduce"};
    const neo_fsdp_prediction *p = &r->predicted;
    size_t groups = group_bytes(r), activations = 0;
    for (int i = 0; i < r->t.m.owned_count; i++) activations += neo_tensor_bytes(*r->t.m.owned[i]);
    printf("memory of rank 0: predicted %zu bytes, counted %zu\n", p->bytes + groups, r->counted);
    printf("  masters %zu, gradients %zu, optimizer %zu; gathered %zu, gradients under way %zu; "
           "records %zu, groups of ranks %zu\n", p->master_bytes, p->grad_bytes, p->state_bytes,
           p->gathered_bytes, p->window_bytes, p->record_bytes, groups);
    printf("  besides: activations %zu\n", activations);
    for (int i = 0; i < 3 && trained; i++)
        printf("%s of a step, bytes of all ranks: predicted %.0f, counted %.0f\n", names[i],
               r->sent[i][0], r->sent[i][1]);
}
#endif
