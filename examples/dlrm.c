/* dlrm.c: train a deep learning recommendation model (DLRM, arXiv 1906.00091) on one rank or many.

     cc -O2 -I. examples/dlrm.c -o dlrm -lm -lpthread && ./dlrm --help                      ranks are threads
     mpicc -DNEO_COMM_MPI -O2 -I. examples/dlrm.c -o dlrm_mpi -lm -lpthread && mpirun -n 4 ./dlrm_mpi ...

   dense numbers -> bottom MLP --+
                                 +--> pairwise dot products --> top MLP --> logit --> BCE
   sparse ids -> embedding bags -+

   Every rank has a copy of the MLPs and computes its samples of each batch. The embedding tables lie on the ranks as
   a plan says (--plan): ids travel to the rows, pooled rows to the samples, their gradients back (neo_shard).

   With the same options and data the last line, `state <digest of all weights and optimizer state>`, is the
   same on any number of threads, any instruction set, for a run that was killed and resumed, and, with
   --repro-shards given, on any number of ranks under any plan. */
#define NEO_IMPLEMENTATION
#include "neo_fsdp.h"
#include "device.h"
#include <pthread.h>
#include <stdarg.h>

#if defined(_WIN32)
#include <direct.h>
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#define make_directory(path) (void)_mkdir(path)
#define is_special_file(path) 0
#else
#include <sys/stat.h>
#include <unistd.h>
#define make_directory(path) (void)mkdir(path, 0777)
static int is_special_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
}
#endif

enum { MAX_FILES = 64 };

typedef struct options {
    char *data, *test, *format, *columns, *optimizer, *bottom, *top, *schedule;
    char *checkpoint, *load, *predict, *report, *log, *bad_lines;
    char *plan, *save_plan, *dtype, *rows_dtype, *wire_forward, *wire_backward, *pipeline, *dense_shard, *device, *graph;
    int64_t synthetic, epochs, batch, dim, threads, seed, repro_shards, row_buckets, every, rows, shuffle,
        log_every, auc_capacity, warmup, ranks, nodes, memory, micro_batches;
    double lr, weight_decay, eps, clip_norm;
    int64_t resume, eval, show_plan, exact, help;
} options;

/* ---- options ---------------------------------------------------------------------------------- */

static const struct option {
    const char *name;
    char kind; /* s: text, i: integer in [0, most], f: number in [0, most], b: flag */
    size_t offset;
    const char *argument, *help;
    double most;
} OPTIONS[] = {
    {"data", 's', offsetof(options, data), "FILES", "training data, comma-separated; - is standard input", 0},
    {"test", 's', offsetof(options, test), "FILES", "evaluated after every epoch", 0},
    {"format", 's', offsetof(options, format), "F", "criteo (the default), adult, npy or delimited (with --columns)", 0},
    {"columns", 's', offsetof(options, columns), "FILE", "column description of delimited data", 0},
    {"rows", 'i', offsetof(options, rows), "N", "rows per table: criteo hashes ids into them (100000); synthetic (10000)", 1e15},
    {"synthetic", 'i', offsetof(options, synthetic), "N", "N generated samples instead of --data", 1e12},
    {"epochs", 'i', offsetof(options, epochs), "N", "passes over the data (1)", 1e6},
    {"batch", 'i', offsetof(options, batch), "N", "samples per batch, which is a step (128)", 1e7},
    {"micro-batches", 'i', offsetof(options, micro_batches), "K", "batches of a step (1): their gradients add, each divided by K; an epoch's last step may have fewer", 1e4},
    {"lr", 'f', offsetof(options, lr), "X", "learning rate (0.01)", 1e9},
    {"schedule", 's', offsetof(options, schedule), "S", "constant, linear or cosine decay to 0 over all epochs", 0},
    {"warmup", 'i', offsetof(options, warmup), "N", "steps of linear warm-up", 1e9},
    {"optimizer", 's', offsetof(options, optimizer), "O", "sgd, adagrad (tables: row-wise), adam, adamw or lamb", 0},
    {"weight-decay", 'f', offsetof(options, weight_decay), "X", "of the dense layers", 1e9},
    {"eps", 'f', offsetof(options, eps), "X", "of the optimizers; 0: each one's own default", 1e9},
    {"clip-norm", 'f', offsetof(options, clip_norm), "X", "the norm of all gradients, of MLPs and tables, is limited to this; 0: it is not", 1e30},
    {"dim", 'i', offsetof(options, dim), "N", "columns of every table (16)", 1e6},
    {"bottom", 's', offsetof(options, bottom), "A-B-C", "widths of the bottom MLP; A: dense numbers, C: dim", 0},
    {"top", 's', offsetof(options, top), "A-B-1", "widths of the top MLP after its input", 0},
    {"shuffle", 'i', offsetof(options, shuffle), "N", "samples shuffled together; 0: file order", 1e9},
    {"bad-lines", 's', offsetof(options, bad_lines), "P", "error (stop; the default) or skip (and count)", 0},
    {"device", 's', offsetof(options, device), "NAME", "cpu (default); cuda: the GPUs, one for each rank in turn; cuda:1 ...: that GPU", 0},
    {"exact", 'b', offsetof(options, exact), "", "on a GPU: matrix products with the bits of the CPU, slower", 0},
    {"graph", 's', offsetof(options, graph), "G", "on a GPU: on (a step is one launch; the default) or off", 0},
    {"threads", 'i', offsetof(options, threads), "N", "of each rank; 0: all cores, shared among the ranks", 256},
    {"seed", 'i', offsetof(options, seed), "N", "of initial weights and shuffling", 1e15},
    {"repro-shards", 'i', offsetof(options, repro_shards), "V", "leaves of a batch, whose gradients add by a tree; at least the ranks (and 0: as many)", 4096},
    {"row-buckets", 'i', offsetof(options, row_buckets), "R", "a pooled sum adds R ranges of rows, so that up to R ranks may share them; 0: V", 4096},
    {"ranks", 'i', offsetof(options, ranks), "W", "as threads (1); mpirun knows itself how many it starts", 1024},
    {"nodes", 'i', offsetof(options, nodes), "H", "W ranks form H nodes (1); under mpirun: give --ranks too; else by host", 1024},
    {"plan", 's', offsetof(options, plan), "P", "where tables lie: auto (searched), tw, cw, rw, dp, twrw, twcw, grid, or a file of --save-plan", 0},
    {"memory", 'i', offsetof(options, memory), "BYTES", "that the tables and their training may take on a rank; 0: no limit", 1e15},
    {"show-plan", 'b', offsetof(options, show_plan), "", "print the plan, what it is expected to take, and why it was chosen", 0},
    {"save-plan", 's', offsetof(options, save_plan), "FILE", "write the plan as text, for --plan FILE", 0},
    {"dtype", 's', offsetof(options, dtype), "T", "of what the MLPs multiply: f32 (the default) or bf16; weights and sums stay f32", 0},
    {"rows-dtype", 's', offsetof(options, rows_dtype), "T", "of table rows: f32 (the default), f16, bf16 or i8", 0},
    {"wire-forward", 's', offsetof(options, wire_forward), "T", "pooled rows travel as f32, f16, bf16, f8e4m3, f8e5m2, i8 or i4", 0},
    {"wire-backward", 's', offsetof(options, wire_backward), "T", "and their gradients", 0},
    {"pipeline", 's', offsetof(options, pipeline), "P", "on (exchanges run beside the MLPs; the default) or off", 0},
    {"dense-shard", 's', offsetof(options, dense_shard), "S", "cut the MLPs over the ranks: none (the default), zero1, zero2 or full", 0},
    {"checkpoint", 's', offsetof(options, checkpoint), "DIR", "save here at the end (the newest two stay), and", 0},
    {"every", 'i', offsetof(options, every), "N", "every N steps", 1e12},
    {"resume", 'b', offsetof(options, resume), "", "go on from the newest checkpoint, if there is one", 0},
    {"load", 's', offsetof(options, load), "FILE", "start from weights of a safetensors file (PyTorch DLRM names too)", 0},
    {"eval", 'b', offsetof(options, eval), "", "evaluate --test and stop (with --checkpoint or --load)", 0},
    {"predict", 's', offsetof(options, predict), "FILE", "write one probability per sample of --test; with a model from --checkpoint or --load nothing trains", 0},
    {"report", 's', offsetof(options, report), "FILE", "an HTML page with curves", 0},
    {"log", 's', offsetof(options, log), "FILE", "JSON lines", 0},
    {"log-every", 'i', offsetof(options, log_every), "N", "steps between points of log and report (100)", 1e9},
    {"auc-capacity", 'i', offsetof(options, auc_capacity), "N", "most samples an AUC can hold (4194304)", 1e10},
    {"help", 'b', offsetof(options, help), "", "this text", 0},
};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof OPTIONS[0] };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)
/* What the user can put right. */
#define REFUSE(...) return neo_fail(NEO_ERR_ARG, __VA_ARGS__)

static neo_status set_option(options *o, const struct option *opt, char *text) {
    char *end = text;
    void *field = (char *)o + opt->offset;
    if (opt->kind == 's') {
        *(char **)field = text;
        return NEO_OK;
    }
    errno = 0;
    if (opt->kind == 'i') *(int64_t *)field = strtoll(text, &end, 10);
    else *(double *)field = strtod(text, &end);
    double value = opt->kind == 'i' ? (double)*(int64_t *)field : *(double *)field;
    if (end == text || *end || errno || !(value >= 0 && value <= opt->most))
        REFUSE("--%s %s: not %s from 0 to %.0f", opt->name, text, opt->kind == 'i' ? "a whole number" : "a number",
               opt->most);
    return NEO_OK;
}

/* With these the model is only read: nothing trains, nothing is saved. */
static int reads_only(const options *o) {
    return o->eval || (o->predict && !o->resume && (o->checkpoint || o->load));
}

static neo_status check_files(const options *o) {
    const char *outputs[] = {o->predict, o->report, o->log, o->save_plan};
    const char *inputs[] = {o->data, o->test, o->load, o->columns, o->plan};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 5; k++)
            if (outputs[i] && inputs[k] && strcmp(outputs[i], inputs[k]) == 0)
                REFUSE("%s is both read and written", outputs[i]);
        for (int k = 0; k < i; k++)
            if (outputs[i] && outputs[k] && strcmp(outputs[i], outputs[k]) == 0)
                REFUSE("%s is to be written twice", outputs[i]);
    }
    return NEO_OK;
}

static neo_status check_options(const options *o) {
    int has_test = o->test || o->synthetic, from_stdin = o->data && strcmp(o->data, "-") == 0;
    if (!o->data && !o->synthetic && !o->test) REFUSE("give --data, --synthetic or --test (--help explains)");
    if (!o->data && !o->synthetic && !o->checkpoint && !o->load)
        REFUSE("--test without --data needs a model: --checkpoint or --load");
    if (o->batch < 1) REFUSE("--batch must be at least 1");
    if (o->micro_batches < 1) REFUSE("--micro-batches must be at least 1");
    if (o->dim < 1) REFUSE("--dim must be at least 1");
    if (o->log_every < 1) REFUSE("--log-every must be at least 1");
    if (o->auc_capacity < 1) REFUSE("--auc-capacity must be at least 1");
    if (o->ranks < 1) REFUSE("--ranks must be at least 1");
    if (o->nodes < 1 || o->ranks % o->nodes)
        REFUSE("--nodes %lld: must divide the %lld of --ranks", (long long)o->nodes, (long long)o->ranks);
    if (strcmp(o->pipeline, "on") && strcmp(o->pipeline, "off"))
        REFUSE("--pipeline %s: neither on nor off", o->pipeline);
    if (strcmp(o->dtype, "f32") && strcmp(o->dtype, "bf16")) REFUSE("--dtype %s: neither f32 nor bf16", o->dtype);
    if (strcmp(o->graph, "on") && strcmp(o->graph, "off")) REFUSE("--graph %s: neither on nor off", o->graph);
    if (strcmp(o->bad_lines, "skip") && strcmp(o->bad_lines, "error"))
        REFUSE("--bad-lines %s: neither error nor skip", o->bad_lines);
    if (o->load && o->checkpoint && (o->resume || reads_only(o)))
        REFUSE("--load and --checkpoint would both give the weights: leave one out");
    if ((o->resume || o->every) && !o->checkpoint) REFUSE("--resume and --every need --checkpoint");
    if (o->checkpoint && !o->checkpoint[0]) REFUSE("--checkpoint needs the name of a directory");
    if ((o->eval || o->predict) && !has_test) REFUSE("--eval and --predict need --test");
    if (o->eval && !o->checkpoint && !o->load) REFUSE("--eval needs --checkpoint or --load");
    if (o->columns && strcmp(o->format, "delimited") && strcmp(o->format, "adult"))
        REFUSE("--columns is for --format delimited or adult, not %s", o->format);
    if (from_stdin && o->epochs > 1) REFUSE("--data - can be read once: use --epochs 1");
    if (from_stdin && o->test && strcmp(o->test, "-") == 0) REFUSE("--data and --test cannot both be -");
    if (o->test && strcmp(o->test, "-") == 0 && !reads_only(o))
        REFUSE("--test - can be read once: use it with --eval or --predict and a checkpoint");
    if (from_stdin && strcmp(o->format, "npy") == 0) REFUSE("--format npy cannot come from standard input");
    return check_files(o);
}

static neo_status parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const struct option *opt = NULL;
        for (int k = 0; k < OPTION_COUNT; k++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, OPTIONS[k].name) == 0) opt = &OPTIONS[k];
        if (strcmp(argv[i], "-h") == 0) return o->help = 1, NEO_OK;
        if (!opt) REFUSE("%s: no such option (--help lists them)", argv[i]);
        if (opt->kind == 'b') *(int64_t *)((char *)o + opt->offset) = 1;
        else if (i + 1 == argc) REFUSE("--%s: needs a value", opt->name);
        else TRY(set_option(o, opt, argv[++i]));
    }
    return o->help ? NEO_OK : check_options(o);
}

static void print_help(void) {
    printf("dlrm: train a recommendation model; see the comment at the top of examples/dlrm.c\n\n");
    for (int k = 0; k < OPTION_COUNT; k++) {
        const struct option *opt = &OPTIONS[k];
        printf("  --%s %-*s %s\n", opt->name, 16 - (int)strlen(opt->name), opt->argument, opt->help);
    }
    printf("\nNEO_ISA=scalar|avx2|avx512|avx512bf16|amx|neon in the environment forces an instruction set.\n");
}

/* "13-512-16" -> {13, 512, 16}; returns how many, 0 if it is not such a list. */
static int parse_widths(const char *text, int64_t *widths, int most) {
    int count = 0;
    for (const char *p = text;;) {
        char *end;
        long long w = strtoll(p, &end, 10);
        if (end == p || w < 1 || count == most) return 0;
        widths[count++] = w;
        if (*end == 0) return count;
        if (*end != '-') return 0;
        p = end + 1;
    }
}

/* Cuts a comma-separated list in place. */
static int split_list(char *text, const char **items, int most) {
    int count = 0;
    for (char *p = text; p && *p && count < most;) {
        items[count++] = p;
        p = strchr(p, ',');
        if (p) *p++ = 0;
    }
    return count;
}

/* ---- model ------------------------------------------------------------------------------------ */

enum { BOTTOM, TOP }; /* the units of the dense layers */

typedef struct model {
    neo_comm *comm, *data; /* data: of tensors where the ranks compute */
    neo_ctx *ctx;
    neo_schema *schema, *test_schema; /* the same but for synthetic data, where test samples come later */
    neo_params *params[2]; /* of the bottom and the top MLP: the units of `dense` */
    neo_mlp *bottom, *top;
    neo_fsdp *dense;
    neo_shard *tables;
    neo_state *state;
    neo_schedule schedule;
    int pipeline, micro_batches; /* micro_batches: whose gradients make a step */
    int keeps, kept; /* keeps: the tables' gradients wait for the step; kept: batches that do */
    device_graph *graph; /* or NULL */
    neo_exact loss[2];   /* sums of this batch, and of the one before, which may still run on a GPU */
    int turn;            /* which is this batch's */
    neo_ticket loss_ticket;
    /* the samples of this rank in one batch: B samples, D columns, F features, Z interactions */
    int64_t most_samples;
    neo_dtype dtype; /* of the MLPs' products */
    neo_tensor x, e, z, logit; /* [B][D], [B][F D], [B][Z], [B][1] */
    neo_tensor dense_in, label; /* [B][dense], [B][1]: of the batch, on a device */
    neo_tensor dx, de, dz, dlogit;
} model;

/* What all ranks bring, as one status for all: none acts on an error alone. */
static neo_status agree(neo_comm *comm, neo_status mine) {
    return neo_comm_size(comm) == 1 ? mine : neo_comm_agree(comm, mine);
}

/* The dtype of table rows. */
static neo_status parse_rows_dtype(const char *name, neo_dtype *dtype) {
    static const neo_dtype known[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    for (int i = 0; i < 4; i++) {
        *dtype = known[i];
        if (strcmp(name, neo_dtype_name(*dtype)) == 0) return NEO_OK;
    }
    REFUSE("--rows-dtype %s: not f32, f16, bf16 or i8", name);
}
/* By default as many buckets of rows as leaves: neither depends on how many ranks there are, if V is given. */
static int32_t row_buckets(const neo_ctx *ctx, const options *o) {
    return o->row_buckets ? (int32_t)o->row_buckets : (int32_t)neo_ctx_repro_shards(ctx);
}

static neo_status out_of_memory(void) { return neo_fail(NEO_ERR_MEMORY, "out of memory"); }

static neo_status create_schema(model *m, const options *o, const char *const *files, int file_count) {
    if (o->synthetic) {
        neo_synthetic_desc train = {.samples = o->synthetic, .rows = o->rows};
        neo_synthetic_desc test = {.samples = o->synthetic / 4 + 1, .rows = o->rows, .first_sample = o->synthetic};
        TRY(neo_schema_synthetic(m->ctx, &train, &m->schema));
        return neo_schema_synthetic(m->ctx, &test, &m->test_schema);
    }
    char columns[4096];
    if (strcmp(o->format, "criteo") == 0) {
        TRY(neo_schema_criteo(m->ctx, NEO_IDS_HASH, o->rows ? o->rows : 100000, NULL, &m->schema));
    } else if (strcmp(o->format, "npy") == 0) {
        TRY(neo_schema_npy(m->ctx, files, file_count, NULL, 0, &m->schema));
    } else if (strcmp(o->format, "adult") == 0 || strcmp(o->format, "delimited") == 0) {
        const char *first = files[0], *slash = strrchr(first, '/');
        if (o->columns) snprintf(columns, sizeof columns, "%s", o->columns);
        else if (o->format[0] == 'd') REFUSE("--format delimited needs --columns FILE");
        else if (strcmp(first, "-") == 0) REFUSE("--format adult from standard input needs --columns FILE");
        else snprintf(columns, sizeof columns, "%.*sadult.columns", slash ? (int)(slash - first + 1) : 0, first);
        TRY(neo_schema_parse(m->ctx, columns, &m->schema));
    } else {
        REFUSE("--format %s: not adult, criteo, npy or delimited", o->format);
    }
    m->test_schema = m->schema;
    return NEO_OK;
}

static neo_status parse_optimizer(const char *name, neo_optim_kind *dense, neo_bag_optim_kind *bag) {
    static const struct { const char *name; neo_optim_kind dense; neo_bag_optim_kind bag; } KINDS[] = {
        {"sgd", NEO_OPTIM_SGD, NEO_BAG_SGD},    {"adagrad", NEO_OPTIM_ADAGRAD, NEO_BAG_ROWWISE_ADAGRAD},
        {"adam", NEO_OPTIM_ADAM, NEO_BAG_ADAM}, {"adamw", NEO_OPTIM_ADAMW, NEO_BAG_ADAM},
        {"lamb", NEO_OPTIM_LAMB, NEO_BAG_LAMB},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(name, KINDS[i].name)) continue;
        *dense = KINDS[i].dense;
        *bag = KINDS[i].bag;
        return NEO_OK;
    }
    REFUSE("--optimizer %s: not sgd, adagrad, adam, adamw or lamb", name);
}

/* spec: the option's text; in, out: the widths that the data and the other layers ask for. */
static neo_status create_mlp(model *m, const char *name, const char *spec, int64_t in, int64_t out, neo_params *params,
                             neo_mlp **mlp) {
    int is_bottom = strcmp(name, "bottom") == 0, first = is_bottom ? 0 : 1; /* the top's input follows from the model */
    neo_mlp_desc d = {.name = name, .max_batch = m->most_samples, .act = NEO_ACT_RELU, .dtype = m->dtype,
                      .last_act = is_bottom ? NEO_ACT_RELU : NEO_ACT_NONE, .widths = {in}};
    int count = parse_widths(spec, d.widths + first, NEO_MAX_LAYERS + 1 - first);
    d.width_count = count + first;
    if (in < 1) REFUSE("the data has no dense numbers, which the bottom MLP needs");
    if (!count || d.width_count < 2 || d.widths[0] != in || d.widths[d.width_count - 1] != out) {
        char begin[80] = "";
        if (is_bottom)
            snprintf(begin, sizeof begin, " beginning with %lld (the dense numbers of this data),", (long long)in);
        REFUSE("--%s %s: must be widths joined by '-',%s ending with %lld", name, spec, begin, (long long)out);
    }
    return neo_mlp_create(m->ctx, params, &d, mlp);
}

static neo_status parse_dense_shard(const char *name, neo_fsdp_mode *mode) {
    if (strcmp(name, "none") == 0) name = neo_fsdp_mode_name(NEO_FSDP_DDP);
    for (int i = 0; i < NEO_FSDP_MODE_COUNT; i++) {
        *mode = (neo_fsdp_mode)i;
        if (strcmp(name, neo_fsdp_mode_name(*mode)) == 0) return NEO_OK;
    }
    REFUSE("--dense-shard %s: not none, zero1, zero2 or full", name);
}

static neo_status alloc_2d(model *m, int64_t cols, neo_tensor *a, neo_tensor *b) {
    int64_t shape[2] = {m->most_samples, cols};
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, a));
    return neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, b);
}

/* Samples of a whole batch that are this rank's: no smaller batch gives it more. */
static int64_t most_samples(const neo_comm *comm, int64_t batch) {
    neo_leaves parts[NEO_MAX_SUBTREES];
    int64_t shards = neo_ctx_repro_shards(neo_comm_ctx(comm)), leaves = 0;
    for (int i = neo_comm_subtrees(comm, neo_comm_rank(comm), batch, parts); i-- > 0;) leaves += parts[i].count;
    return (batch * leaves + shards - 1) / shards;
}

/* Everything but the tables, and what ranks make together. */
static neo_status create_dense(model *m, const options *o) {
    int64_t features = neo_schema_feature_count(m->schema), dense = neo_schema_dense_count(m->schema);
    int64_t width = neo_interact_width(o->dim, features, 0);
    char bottom[64];
    snprintf(bottom, sizeof bottom, "%lld-64-%lld", (long long)dense, (long long)o->dim);
    m->most_samples = most_samples(m->comm, o->batch);
    m->dtype = strcmp(o->dtype, "bf16") ? NEO_F32 : NEO_BF16;
    m->pipeline = strcmp(o->pipeline, "on") == 0;
    m->micro_batches = (int)o->micro_batches;
    m->keeps = o->clip_norm > 0 || m->micro_batches > 1;
    for (int i = 0; i < 2; i++) TRY(neo_params_create_deferred(m->ctx, &m->params[i]));
    TRY(create_mlp(m, "bottom", o->bottom ? o->bottom : bottom, dense, o->dim, m->params[BOTTOM], &m->bottom));
    TRY(create_mlp(m, "top", o->top, width, 1, m->params[TOP], &m->top));
    TRY(alloc_2d(m, o->dim, &m->x, &m->dx));
    TRY(alloc_2d(m, features * o->dim, &m->e, &m->de));
    TRY(alloc_2d(m, width, &m->z, &m->dz));
    TRY(alloc_2d(m, 1, &m->logit, &m->dlogit));
    if (!neo_ctx_device(m->ctx)) return NEO_OK;
    size_t batch = (size_t)m->most_samples * (size_t)(dense * 4 + 4 + features * 16); /* numbers, label, ids, offsets */
    batch += 65536 + (size_t)features * 1024; /* what tables and their steps are described by */
    if (strcmp(o->graph, "on") == 0) TRY(graph_open(neo_ctx_device(m->ctx), batch, &m->graph));
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->most_samples, dense}, &m->dense_in));
    return neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->most_samples, 1}, &m->label);
}

/* The MLPs' parameters and their optimizer, of which each rank has a part or all. Collective. */
static neo_status create_units(model *m, const options *o) {
    neo_fsdp_unit units[] = {{.name = "bottom", .params = m->params[BOTTOM]}, {.name = "top", .params = m->params[TOP]}};
    neo_fsdp_desc d = {.units = units, .unit_count = 2, .micro_batches = m->micro_batches,
                       .optim = {.weight_decay = (float)o->weight_decay, .eps = (float)o->eps, .clip_norm = (float)o->clip_norm}};
    neo_bag_optim_kind of_tables;
    neo_status status = parse_dense_shard(o->dense_shard, &d.mode);
    if (status == NEO_OK) status = parse_optimizer(o->optimizer, &d.optim.kind, &of_tables);
    TRY(agree(m->comm, status));
    TRY(device_group(m->comm, &m->data));
    return neo_fsdp_create(m->data, &d, &m->dense);
}

/* ---- tables and their plan -------------------------------------------------------------------- */

/* Ranks of a node, if nodes have equally many and hold them in order; else all ranks count as one node. */
static int ranks_per_node(const neo_comm *comm) {
    int ranks = neo_comm_size(comm), n = 1;
    while (n < ranks && neo_comm_node(comm, n) == neo_comm_node(comm, 0)) n++;
    for (int r = 0; r < ranks; r++)
        if (ranks % n || neo_comm_node(comm, r) != r / n) return ranks;
    return n;
}

/* Multiplications and additions of a sample in an MLP, forward. */
static double mlp_flops(const neo_params *params) {
    double flops = 0;
    for (int i = 0; i < neo_params_count(params); i++) {
        neo_tensor w = neo_params_at(params, i)->value;
        if (w.ndim == 2) flops += 2.0 * (double)neo_tensor_count(w);
    }
    return flops;
}
static int64_t mlp_elements(const neo_params *params) {
    int64_t elements = 0;
    for (int i = 0; i < neo_params_count(params); i++) elements += neo_tensor_count(neo_params_at(params, i)->value);
    return elements;
}

static neo_status create_plan(model *m, const options *o, const neo_bags_desc *bags, neo_plan **plan) {
    neo_placement placement;
    neo_plan_desc d = {.bags = bags, .pipeline = m->pipeline, .kept_batches = m->keeps ? m->micro_batches : 0,
                       .cluster = {.ranks = neo_comm_size(m->comm), .ranks_per_node = ranks_per_node(m->comm),
                                   .memory_bytes = o->memory},
                       .dense_flops_bottom = mlp_flops(m->params[BOTTOM]),
                       .dense_flops_top = mlp_flops(m->params[TOP]),
                       .dense_params = mlp_elements(m->params[BOTTOM]) + mlp_elements(m->params[TOP])};
    TRY(neo_wire_parse(o->wire_forward, &d.wire_forward));
    TRY(neo_wire_parse(o->wire_backward, &d.wire_backward));
    if (strcmp(o->plan, "auto") == 0) return neo_plan_create(m->ctx, &d, plan);
    if (neo_placement_parse(o->plan, &placement) == NEO_OK) return neo_plan_create_uniform(m->ctx, &d, placement, plan);
    neo_status status = neo_plan_read(m->ctx, &d, o->plan, plan);
    if (status == NEO_ERR_NOT_FOUND)
        REFUSE("--plan %s: neither auto, tw, cw, rw, dp, twrw, twcw, grid, nor a file", o->plan);
    return status;
}

/* What the plan is expected to take, and why it is so. */
static void show_plan(const neo_plan *plan) {
    char text[4096];
    const neo_plan_desc *d = neo_plan_desc_of(plan);
    neo_plan_step step = neo_plan_step_of(plan);
    printf("plan: %d tables on %d ranks, %d of a node; a step is predicted to take %.3f ms, pipelined %.3f ms\n",
           (int)d->bags->table_count, (int)d->cluster.ranks, (int)d->cluster.ranks_per_node, 1e3 * step.plain,
           1e3 * step.pipelined);
    for (int r = 0; r < d->cluster.ranks; r++) {
        neo_plan_rank rank = neo_plan_rank_of(plan, r);
        printf("rank %d: %.1f MB of weights, %.1f of optimizer state, %.1f of buffers; %.3f ms\n", r,
               1e-6 * (double)rank.weight_bytes, 1e-6 * (double)rank.state_bytes, 1e-6 * (double)rank.buffer_bytes,
               1e3 * rank.seconds);
    }
    for (int32_t t = 0; t < d->bags->table_count; t++) {
        const neo_table_desc *table = &d->bags->tables[t];
        neo_plan_why(plan, t, text, sizeof text);
        printf("table %s, %lld x %lld\n%s%s", table->name, (long long)table->rows, (long long)table->dim, text,
               text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
    }
}

/* A table that cannot be placed as asked is table-wise. */
static void warn_of_plan(const neo_plan *plan, const options *o) {
    neo_placement asked;
    int32_t count = neo_plan_desc_of(plan)->bags->table_count, other = 0;
    if (neo_placement_parse(o->plan, &asked) != NEO_OK) return;
    for (int32_t t = 0; t < count; t++) other += neo_plan_placement(plan, t) != asked;
    if (other)
        fprintf(stderr, "warning: --plan %s: %d of %d tables cannot be placed so (--show-plan says why)\n", o->plan,
                (int)other, (int)count);
}

static neo_status describe_tables(model *m, const options *o, neo_table_desc *tables, neo_plan **plan) {
    int32_t count = neo_schema_feature_count(m->schema);
    neo_bag_optim optim = {.eps = (float)o->eps};
    neo_optim_kind dense;
    neo_dtype dtype;
    TRY(parse_optimizer(o->optimizer, &dense, &optim.kind));
    TRY(parse_rows_dtype(o->rows_dtype, &dtype));
    for (int32_t t = 0; t < count; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        tables[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = o->dim, .optim = optim,
                                     .row_buckets = row_buckets(m->ctx, o), .dtype = dtype};
    }
    TRY(create_plan(m, o, &(neo_bags_desc){.tables = tables, .table_count = count, .max_batch = o->batch,
                                           .max_ids = o->batch * count}, plan));
    if (neo_comm_rank(m->comm) > 0) return NEO_OK;
    warn_of_plan(*plan, o);
    if (o->show_plan) show_plan(*plan);
    return o->save_plan ? neo_plan_write(*plan, o->save_plan) : NEO_OK;
}

static neo_status create_tables(model *m, const options *o) {
    neo_plan *plan = NULL;
    neo_table_desc *tables = calloc((size_t)neo_schema_feature_count(m->schema) + 1, sizeof *tables);
    neo_status status = agree(m->comm, tables ? describe_tables(m, o, tables, &plan) : out_of_memory());
    if (status == NEO_OK) status = agree(m->comm, neo_shard_create(m->data, plan, &m->tables));
    neo_plan_destroy(plan);
    free(tables);
    return status;
}

static void destroy_model(model *m) {
    graph_close(m->graph);
    neo_tensor *buffers[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit, &m->dense_in, &m->label};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) neo_tensor_free(m->ctx, buffers[i]);
    neo_state_destroy(m->state);
    neo_shard_destroy(m->tables);
    neo_fsdp_destroy(m->dense);
    device_group_end(m->comm, m->data);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    for (int i = 0; i < 2; i++) neo_params_destroy(m->params[i]);
    if (m->test_schema != m->schema) neo_schema_destroy(m->test_schema);
    neo_schema_destroy(m->schema);
}

/* ---- one step --------------------------------------------------------------------------------- */

/* The dense numbers and labels of a batch where the MLPs compute; the tables take ids from the host. */
static neo_status bring(model *m, neo_batch *batch) {
    if (!neo_ctx_device(m->ctx)) return NEO_OK;
    neo_tensor dense = neo_tensor_rows(m->dense_in, 0, batch->size);
    neo_tensor label = neo_tensor_rows(m->label, 0, batch->size);
    if (batch->label.ndim == 1) label = neo_tensor_reshape(label, 1, &batch->size);
    TRY(neo_tensor_copy(m->ctx, batch->dense, dense));
    TRY(neo_tensor_copy(m->ctx, batch->label, label));
    batch->dense = dense;
    batch->label = label;
    return NEO_OK;
}

/* Samples [first, first + rows) of this rank's: a part of the batch whose gradients add up here. */
typedef struct part {
    neo_leaves leaves;
    int64_t first, rows;
} part;

/* One part, if the leaves of a rank are a whole subtree (see >>leaves in neo.h); a rank may have fewer than others,
   and then parts without samples. */
static int cut_batch(const model *m, int64_t global_size, part *parts) {
    int shards = neo_ctx_repro_shards(m->ctx), count = neo_fsdp_pieces(m->dense);
    int64_t start = neo_leaf_begin(global_size, shards, neo_fsdp_piece(m->dense, 0, global_size).first);
    for (int k = 0; k < count; k++) {
        neo_leaves leaves = neo_fsdp_piece(m->dense, k, global_size);
        int64_t begin = neo_leaf_begin(global_size, shards, leaves.first);
        int64_t end = neo_leaf_begin(global_size, shards, leaves.first + leaves.count);
        parts[k] = (part){leaves, begin - start, end - begin};
    }
    return count;
}

/* Forward and backward of the top MLP, and the loss. The gradients of all ranks begin to add up at its end. */
static neo_status step_top(model *m, const neo_batch *batch, const part *parts, int count) {
    int64_t samples = batch->global_size ? batch->global_size : 1;
    neo_exact *loss = &m->loss[m->turn];
    neo_loss_desc d = {.batch = samples * m->micro_batches, .sum = loss};
    neo_exact_zero(loss);
    for (int k = 0; k < count; k++) {
        int64_t first = parts[k].first, n = parts[k].rows;
        neo_tensor z = neo_tensor_rows(m->z, first, n), dz = neo_tensor_rows(m->dz, first, n);
        neo_tensor logit = neo_tensor_rows(m->logit, first, n), dlogit = neo_tensor_rows(m->dlogit, first, n);
        TRY(neo_fsdp_backward_begin(m->dense, TOP, k));
        TRY(neo_mlp_forward(m->top, z, logit));
        TRY(neo_bce_with_logits(m->ctx, &d, logit, neo_tensor_rows(batch->label, first, n), dlogit, NULL));
        TRY(neo_mlp_backward(m->top, &parts[k].leaves, dlogit, dz));
        TRY(neo_fsdp_backward_end(m->dense, TOP));
    }
    if (neo_comm_size(m->comm) == 1) return NEO_OK;
    if (m->graph) TRY(neo_ctx_synchronize(m->ctx)); /* what is recorded runs: only then is the loss there */
    return neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, loss, loss, sizeof *loss / sizeof(int64_t), NEO_I64,
                               &m->loss_ticket); /* exact sums are integers: they add in any order */
}

static neo_status step_bottom(model *m, const neo_batch *batch, const part *parts, int count) {
    for (int k = 0; k < count; k++) {
        int64_t first = parts[k].first, n = parts[k].rows;
        TRY(neo_fsdp_backward_begin(m->dense, BOTTOM, k));
        if (count > 1 || batch->global_size == 0) /* an MLP remembers one forward pass: each part has its own */
            TRY(neo_mlp_forward(m->bottom, neo_tensor_rows(batch->dense, first, n), neo_tensor_rows(m->x, first, n)));
        TRY(neo_mlp_backward(m->bottom, &parts[k].leaves, neo_tensor_rows(m->dx, first, n), neo_tensor_none()));
        TRY(neo_fsdp_backward_end(m->dense, BOTTOM));
    }
    return NEO_OK;
}

static neo_status forward_bottom(model *m, const neo_batch *batch, neo_tensor x) {
    TRY(neo_fsdp_forward_begin(m->dense, BOTTOM));
    TRY(neo_mlp_forward(m->bottom, batch->dense, x));
    return neo_fsdp_forward_end(m->dense, BOTTOM);
}

static neo_status end_tables(model *m, float lr) {
    return m->keeps ? neo_shard_accumulate_end(m->tables) : neo_shard_backward_end(m->tables, lr);
}
/* The end of a step whose gradients were kept. A step of the MLPs has them of all batches: where an epoch ends before,
   those of the batches that lack are zeros. */
static neo_status step_kept(model *m, float lr) {
    part parts[NEO_MAX_SUBTREES];
    neo_exact loss = m->loss[m->turn];
    neo_batch none = {.dense = neo_tensor_2d(m->x.data, NEO_F32, 0, neo_schema_dense_count(m->schema)),
                      .label = neo_tensor_rows(m->logit, 0, 0)};
    none.dense.place = m->x.place;
    for (; m->kept < m->micro_batches; m->kept++) {
        int count = cut_batch(m, 0, parts);
        TRY(step_top(m, &none, parts, count));
        if (neo_comm_size(m->comm) > 1) TRY(neo_comm_wait(m->comm, m->loss_ticket));
        TRY(step_bottom(m, &none, parts, count));
    }
    m->kept = 0;
    m->loss[m->turn] = loss;
    return neo_fsdp_step_tables(m->dense, m->tables, lr);
}

/* One batch, and the step if it is the last of one; the sum of its losses, over all ranks, is left in m->loss[m->turn].
   Between begin and end of the tables' calls rows travel: with a pipeline the bottom MLP and the reductions run meanwhile, and the ids of the next batch
   travel through the whole step. With --clip-norm or --micro-batches all gradients are there before a weight moves.
   next: NULL after the last batch of an epoch. */
static neo_status train_batch(model *m, neo_batch *batch, const neo_batch *next, int last, float lr) {
    part parts[NEO_MAX_SUBTREES];
    TRY(bring(m, batch));
    int count = cut_batch(m, batch->global_size, parts), overlap = m->pipeline;
    int64_t n = batch->size;
    neo_tensor x = neo_tensor_rows(m->x, 0, n), e = neo_tensor_rows(m->e, 0, n), z = neo_tensor_rows(m->z, 0, n);
    neo_tensor dx = neo_tensor_rows(m->dx, 0, n), de = neo_tensor_rows(m->de, 0, n), dz = neo_tensor_rows(m->dz, 0, n);

    TRY(neo_shard_forward_begin(m->tables, &batch->sparse, batch->global_size));
    if (overlap && next) TRY(neo_shard_prefetch(m->tables, &next->sparse, next->global_size));
    if (!overlap) TRY(neo_shard_forward_end(m->tables, e));
    TRY(forward_bottom(m, batch, x));
    if (overlap) TRY(neo_shard_forward_end(m->tables, e));
    TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    TRY(step_top(m, batch, parts, count));
    TRY(neo_interact_backward(m->ctx, 0, x, e, dz, dx, de));
    TRY(neo_shard_backward_begin(m->tables, de));
    if (!overlap) TRY(end_tables(m, lr));
    TRY(step_bottom(m, batch, parts, count));
    if (overlap) TRY(end_tables(m, lr));
    if (neo_comm_size(m->comm) > 1) TRY(neo_comm_wait(m->comm, m->loss_ticket));
    if (!m->keeps) return neo_fsdp_step(m->dense, lr);
    m->kept++;
    return last ? step_kept(m, lr) : NEO_OK;
}

/* ---- a run of one rank ------------------------------------------------------------------------ */

/* What all ranks of a process share; nobody writes it once they have started, but for log_stderr. */
typedef struct job {
    options o;
    const char *train_files[MAX_FILES], *test_files[MAX_FILES];
    int train_count, test_count;
    device_choice device;
    char refused[1024]; /* why the options are refused, or "" */
    pthread_mutex_t lock;
    uint64_t said[64];  /* hashes of the last lines of the log */
    int said_count;
    int silent;         /* another process speaks for all */
    int told;           /* the error that all ranks have is printed */
} job;

/* A reader, and where its standard input comes from. */
typedef struct source {
    neo_reader *reader;
    neo_comm_input *input;
} source;

typedef struct run {
    model m;
    neo_comm *comm;
    const job *job;
    const options *o;
    int rank, ranks;
    source train;
    neo_batch next;
    neo_position position; /* of `next`; saved with the state */
    int64_t step, samples; /* taken in all runs; in this one, on all ranks */
    int64_t train_ns;      /* spent on those samples (evaluation left out, unless there is nothing else) */
    int64_t epoch;
    neo_exact loss;        /* since the last point of the log */
    int64_t loss_samples;
    double last_loss;      /* mean of the last point */
    neo_tensor logits, labels; /* [batch][1]: of all ranks, on rank 0 */
    neo_tensor own_logits;     /* of this rank, in host memory */
    /* of rank 0, which speaks for all */
    neo_jsonl *log;
    neo_report *report;
    neo_metric_values test;
    int tested;            /* (on all ranks) */
} run;

/* Rank 0 says it. */
static void say(const run *r, const char *format, ...) {
    va_list args;
    if (r->rank) return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}
static void write_stderr(const char *text, void *user) {
    (void)user;
    fputs(text, stderr);
    fflush(stderr);
}
static void write_nothing(const char *text, void *user) { (void)text, (void)user; }
/* neo's warnings. Every rank reads all lines and finds the same bad ones: a line is said once. */
static void log_stderr(neo_log_level level, const char *message, void *user) {
    job *j = user;
    uint64_t hash = neo_hash(message);
    int most = sizeof j->said / sizeof j->said[0], new = 1;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < most; i++) new &= j->said[i] != hash;
    if (new) j->said[j->said_count++ % most] = hash;
    if (new && !j->silent) fprintf(stderr, "%s%s\n", level == NEO_LOG_WARNING ? "warning: " : "", message);
    pthread_mutex_unlock(&j->lock);
}

/* Opens a reader of this rank's samples. Lines on standard input come to all ranks by way of rank 0. Collective. */
static neo_status open_source(run *r, neo_reader_desc d, source *s) {
    int from_stdin = 0;
    for (int i = 0; i < d.path_count; i++) from_stdin |= strcmp(d.paths[i], "-") == 0;
    d.batch = r->o->batch;
    d.skip_bad_lines = r->o->bad_lines[0] == 's';
    d.rank = r->rank;
    d.world_size = r->ranks;
    if (from_stdin && r->ranks > 1) {
        TRY(agree(r->comm, neo_comm_input_open(r->comm, NULL, &s->input)));
        d.input = neo_comm_input_source(s->input);
    }
    return agree(r->comm, neo_reader_open(r->m.ctx, &d, &s->reader));
}
static void close_source(source *s) {
    neo_reader_close(s->reader);
    neo_comm_input_close(s->input);
}

/* ---- evaluation ------------------------------------------------------------------------------- */

/* The logits of this rank's samples. */
static neo_status forward(model *m, const neo_batch *batch) {
    int64_t n = batch->size;
    neo_tensor x = neo_tensor_rows(m->x, 0, n), e = neo_tensor_rows(m->e, 0, n), z = neo_tensor_rows(m->z, 0, n);
    TRY(neo_shard_forward(m->tables, &batch->sparse, batch->global_size, e));
    TRY(forward_bottom(m, batch, x));
    TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    TRY(neo_fsdp_forward_begin(m->dense, TOP));
    TRY(neo_mlp_forward(m->top, z, neo_tensor_rows(m->logit, 0, n)));
    return neo_fsdp_forward_end(m->dense, TOP);
}

/* Rank 0 has the logits of the whole batch, in the order of its samples. */
static neo_status count_batch(run *r, int64_t size, neo_metrics *metrics, FILE *predictions) {
    neo_tensor logits = neo_tensor_rows(r->logits, 0, size);
    TRY(neo_metrics_update(metrics, logits, neo_tensor_rows(r->labels, 0, size)));
    if (!predictions) return NEO_OK;
    for (int64_t i = 0, n; i < size; i += n) { /* where the context computes, as many as fit there */
        n = size - i < r->m.most_samples ? size - i : r->m.most_samples;
        neo_tensor these = neo_tensor_rows(logits, i, n), there = these;
        if (neo_ctx_device(r->m.ctx)) TRY(neo_tensor_copy(r->m.ctx, these, there = neo_tensor_rows(r->m.logit, 0, n)));
        TRY(neo_activation_forward(r->m.ctx, NEO_ACT_SIGMOID, there, there));
        if (there.place == NEO_DEVICE) TRY(neo_tensor_copy(r->m.ctx, there, these));
    }
    for (int64_t i = 0; i < size; i++) fprintf(predictions, "%.9g\n", (double)((float *)logits.data)[i]);
    return NEO_OK;
}

/* This rank's logits, in host memory. */
static neo_status fetch_logits(run *r, int64_t n) {
    if (!neo_ctx_device(r->m.ctx)) return NEO_OK;
    return neo_tensor_copy(r->m.ctx, neo_tensor_rows(r->m.logit, 0, n), neo_tensor_rows(r->own_logits, 0, n));
}
static neo_status evaluate_batches(run *r, neo_reader *reader, neo_metrics *metrics, FILE *predictions) {
    neo_batch batch;
    neo_status status;
    while ((status = agree(r->comm, neo_reader_next(reader, &batch))) == NEO_OK) {
        int64_t size = batch.global_size;
        const void *label = batch.label.data;
        TRY(bring(&r->m, &batch));
        TRY(forward(&r->m, &batch));
        TRY(fetch_logits(r, batch.size));
        TRY(neo_comm_gather_samples(r->comm, r->own_logits.data, r->logits.data, size, 1, NEO_F32, 0, NULL));
        TRY(neo_comm_gather_samples(r->comm, label, r->labels.data, size, 1, NEO_F32, 0, NULL));
        TRY(agree(r->comm, r->rank ? NEO_OK : count_batch(r, size, metrics, predictions)));
    }
    if (status != NEO_END) return status;
    return agree(r->comm, r->rank ? NEO_OK : neo_metrics_lifetime(metrics, &r->test));
}

/* Runs the model over the test data; changes no state. predictions: of rank 0, or NULL. r->test: on rank 0. */
static neo_status evaluate(run *r, int unlabeled, FILE *predictions) {
    source test = {NULL, NULL};
    neo_metrics *metrics = NULL;
    neo_status status = r->rank ? NEO_OK
        : neo_metrics_create(r->m.ctx, &(neo_metrics_desc){.capacity = r->o->auc_capacity}, &metrics);
    status = agree(r->comm, status);
    if (status == NEO_OK)
        status = open_source(r, (neo_reader_desc){.schema = r->m.test_schema, .paths = r->job->test_files,
                                                  .path_count = r->job->test_count, .unlabeled = unlabeled}, &test);
    if (status == NEO_OK) status = evaluate_batches(r, test.reader, metrics, predictions);
    if (status == NEO_OK && r->rank == 0 && r->test.auc_count < r->test.count)
        say(r, "warning: no AUC: the test data has %lld samples, --auc-capacity is %lld\n", (long long)r->test.count,
            (long long)r->o->auc_capacity);
    if (status == NEO_OK && neo_reader_get_stats(test.reader).bad_lines)
        say(r, "skipped %lld bad lines of the test data\n", (long long)neo_reader_get_stats(test.reader).bad_lines);
    close_source(&test);
    neo_metrics_destroy(metrics);
    r->tested = 1;
    return status;
}

/* Predictions go to a file beside, which takes the name when it is whole; straight to a device or pipe. */
static neo_status write_predictions(run *r, FILE *f, const char *partial, neo_status status) {
    const char *path = r->o->predict;
    int beside = strcmp(partial, path) != 0, lost = ferror(f) != 0;
    lost |= fclose(f) != 0;
    if (status == NEO_OK && !lost && beside) lost = rename(partial, path) != 0;
    if (beside && (status != NEO_OK || lost)) remove(partial);
    if (status == NEO_OK && lost) return neo_fail(NEO_ERR_IO, "--predict %s: could not be written whole", path);
    return status;
}
static neo_status evaluate_to_file(run *r) {
    char partial[4096];
    FILE *f = NULL;
    neo_status status = NEO_OK;
    if (!r->o->predict) return evaluate(r, 0, NULL);
    if (r->rank == 0) {
        snprintf(partial, sizeof partial, "%s%s", r->o->predict, is_special_file(r->o->predict) ? "" : ".partial");
        f = fopen(partial, "w");
        if (!f) status = neo_fail(NEO_ERR_IO, "--predict %s: cannot be written: %s", partial, strerror(errno));
    }
    TRY(agree(r->comm, status));
    status = evaluate(r, 1, f);
    return agree(r->comm, f ? write_predictions(r, f, partial, status) : status);
}

/* ---- training --------------------------------------------------------------------------------- */

static neo_status save(run *r) {
    neo_group group = neo_comm_group(r->comm);
    return neo_save(r->m.ctx, &(neo_save_desc){.dir = r->o->checkpoint, .step = r->step, .group = &group}, r->m.state);
}

/* A point of the log and of the report's curves: the mean loss since the last one. */
static neo_status log_loss(run *r, double lr) {
    if (r->report) {
        TRY(neo_report_point(r->report, "Training loss", "train", (double)r->step, r->last_loss));
        TRY(neo_report_point(r->report, "Learning rate", "lr", (double)r->step, lr));
    }
    if (!r->log) return NEO_OK;
    neo_jsonl_int(r->log, "step", r->step);
    neo_jsonl_int(r->log, "epoch", r->epoch);
    neo_jsonl_number(r->log, "loss", r->last_loss);
    neo_jsonl_number(r->log, "lr", lr);
    neo_jsonl_number(r->log, "samples_per_s", (double)r->samples / ((double)(r->train_ns + 1) * 1e-9));
    return neo_jsonl_end(r->log);
}
static neo_status log_point(run *r, double lr) {
    if (!r->loss_samples) return NEO_OK;
    r->last_loss = neo_exact_value(&r->loss) / (double)r->loss_samples;
    neo_exact_zero(&r->loss);
    r->loss_samples = 0;
    return agree(r->comm, log_loss(r, lr));
}

static neo_status log_test(run *r) {
    if (r->report) {
        TRY(neo_report_point(r->report, "Test AUC", "test", (double)r->step, r->test.auc));
        TRY(neo_report_point(r->report, "Test log loss", "test", (double)r->step, r->test.logloss));
    }
    if (!r->log) return NEO_OK;
    neo_jsonl_int(r->log, "step", r->step);
    neo_jsonl_number(r->log, "test_auc", r->test.auc);
    neo_jsonl_number(r->log, "test_logloss", r->test.logloss);
    neo_jsonl_number(r->log, "test_ne", r->test.ne);
    return neo_jsonl_end(r->log);
}

/* A batch that trains; its loss is in m.loss[turn] when it is over. */
typedef struct step_under_way {
    int turn;
    int64_t size, end; /* size 0: there is none; end: samples up to its last one */
} step_under_way;

/* r->next and where it stands: on all ranks, or on none. */
static neo_status fetch(run *r) {
    r->position = neo_reader_position(r->train.reader);
    return agree(r->comm, neo_reader_next(r->train.reader, &r->next));
}

/* A batch whose loss is there; `turn` is where. */
static void count_loss(run *r, neo_progress *bar, const step_under_way *s) {
    const neo_exact *loss = &r->m.loss[s->turn];
    neo_exact_merge(&r->loss, loss);
    r->loss_samples += s->size;
    r->samples += s->size;
    neo_progress_update(bar, s->end, neo_exact_value(loss) / (double)s->size);
}
/* Waits for the batch that may still run on a GPU. */
static neo_status finish_batch(run *r, neo_progress *bar, step_under_way *s) {
    if (s->size == 0) return NEO_OK;
    TRY(graph_wait(r->m.graph));
    count_loss(r, bar, s);
    s->size = 0;
    return NEO_OK;
}
/* train_batch, and the outcome of this batch; with a graph that of the one before, and this one runs on a GPU while the
   next is read and prepared. */
static neo_status launch_batch(run *r, neo_progress *bar, neo_batch *batch, int last, int more, int64_t samples_before,
                               float lr, step_under_way *s) {
    r->m.turn = 1 - r->m.turn;
    TRY(graph_begin(r->m.graph));
    TRY(train_batch(&r->m, batch, more ? &r->next : NULL, last, lr));
    TRY(graph_end(r->m.graph));
    if (s->size) count_loss(r, bar, s);
    *s = (step_under_way){r->m.turn, batch->global_size, samples_before + batch->first + batch->global_size};
    return r->m.graph ? NEO_OK : finish_batch(r, bar, s);
}

static neo_status train_epoch(run *r, neo_progress *bar, int64_t samples_before) {
    int64_t started = neo_time_ns();
    step_under_way s = {0};
    neo_status status = fetch(r);
    while (status == NEO_OK) {
        neo_batch batch = r->next;
        float lr = neo_schedule_lr(&r->m.schedule, r->step);
        status = fetch(r);
        if (status != NEO_OK && status != NEO_END) {
            TRY(finish_batch(r, bar, &s)); /* its error comes first */
            return status;
        }
        int last = status == NEO_END || r->m.kept + 1 == r->m.micro_batches;
        TRY(launch_batch(r, bar, &batch, last, status == NEO_OK, samples_before, lr, &s));
        if (!last) continue;
        r->step++;
        int saves = r->o->every && r->step % r->o->every == 0, logs = r->step % r->o->log_every == 0;
        if (saves || logs) TRY(finish_batch(r, bar, &s));
        if (saves) TRY(save(r));
        if (logs) {
            r->train_ns += neo_time_ns() - started;
            started = neo_time_ns();
            TRY(log_point(r, (double)lr));
        }
    }
    TRY(finish_batch(r, bar, &s));
    r->train_ns += neo_time_ns() - started;
    return status == NEO_END ? NEO_OK : status;
}

/* Samples per epoch, for the schedule and the bar: counted by reading the data once; 0 if it cannot be
   read twice. Data of one label, most often a misspelt positive=, teaches nothing: a warning. */
static neo_status count_samples(run *r, int64_t *samples) {
    neo_batch batch;
    neo_status status = NEO_OK;
    float most[2] = {-1, 0}; /* of minus the labels, and of the labels */
    *samples = r->o->synthetic;
    if (*samples || strcmp(r->job->train_files[0], "-") == 0) return NEO_OK;
    while ((status = neo_reader_next(r->train.reader, &batch)) == NEO_OK) {
        const float *label = batch.label.data;
        *samples += batch.global_size;
        for (int64_t i = 0; i < batch.size; i++) {
            most[0] = -label[i] > most[0] ? -label[i] : most[0];
            most[1] = label[i] > most[1] ? label[i] : most[1];
        }
    }
    status = agree(r->comm, status);
    if (status != NEO_END) return status;
    TRY(neo_comm_all_reduce(r->comm, NEO_REDUCE_MAX, most, most, 2, NEO_F32, NULL));
    if (*samples && -most[0] == most[1]) say(r, "warning: all labels of the training data are %g\n", (double)most[1]);
    return agree(r->comm, neo_reader_epoch(r->train.reader, 0));
}

static neo_status make_schedule(run *r, int64_t samples) {
    const options *o = r->o;
    int64_t batches = (samples + o->batch - 1) / o->batch;
    int64_t steps = (batches + o->micro_batches - 1) / o->micro_batches * o->epochs;
    r->m.schedule = (neo_schedule){.lr = (float)o->lr, .warmup_steps = o->warmup, .total_steps = steps};
    if (strcmp(o->schedule, "linear") == 0) r->m.schedule.kind = NEO_SCHEDULE_LINEAR;
    else if (strcmp(o->schedule, "cosine") == 0) r->m.schedule.kind = NEO_SCHEDULE_COSINE;
    else if (strcmp(o->schedule, "constant")) REFUSE("--schedule %s: not constant, linear or cosine", o->schedule);
    if (!samples && strcmp(o->schedule, "constant"))
        REFUSE("--schedule %s: standard input has no known length; use constant", o->schedule);
    return NEO_OK;
}

static neo_status train(run *r) {
    const options *o = r->o;
    int64_t samples = 0;
    TRY(count_samples(r, &samples));
    TRY(agree(r->comm, make_schedule(r, samples)));
    int64_t first = r->position.word[0];
    if (r->step > 0) TRY(agree(r->comm, neo_reader_seek(r->train.reader, &r->position)));
    r->position = neo_reader_position(r->train.reader);
    neo_progress bar = {.write = r->rank ? write_nothing : write_stderr, .terminal = isatty(fileno(stderr)),
                        .label = "train", .total = samples * o->epochs,
                        .first = samples * first + r->position.word[1]};
    neo_progress_begin(&bar);
    for (r->epoch = first; r->epoch < o->epochs; r->epoch++) {
        if (r->epoch > first) TRY(agree(r->comm, neo_reader_epoch(r->train.reader, r->epoch)));
        TRY(train_epoch(r, &bar, samples * r->epoch));
        if (!r->job->test_count && !o->synthetic) continue;
        TRY(evaluate(r, 0, NULL));
        TRY(agree(r->comm, log_test(r)));
    }
    r->epoch = o->epochs - 1;
    /* What is left since the last point, unless it is too little to mean something beside the others. */
    if (r->step < o->log_every || 2 * r->loss_samples >= o->log_every * o->batch * o->micro_batches)
        TRY(log_point(r, (double)neo_schedule_lr(&r->m.schedule, r->step)));
    if (r->samples) neo_progress_end(&bar, r->last_loss);
    else say(r, "nothing left to train: the run has had its %lld epochs\n", (long long)o->epochs);
    neo_reader_stats stats = neo_reader_get_stats(r->train.reader);
    if (stats.bad_lines) say(r, "skipped %lld bad lines\n", (long long)stats.bad_lines);
    return o->checkpoint ? save(r) : NEO_OK;
}

/* ---- set up, report --------------------------------------------------------------------------- */

/* Everything a resumed run must find again, and the words it must agree with. */
static neo_status create_state(run *r) {
    model *m = &r->m;
    char word[32];
    TRY(neo_state_create(m->ctx, &m->state));
    TRY(neo_state_add_fsdp(m->state, m->dense));
    TRY(neo_state_add_shard(m->state, m->tables));
    TRY(neo_state_add_schema(m->state, m->schema));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "reader.position",
                      neo_tensor_1d(r->position.word, NEO_I64, NEO_POSITION_WORDS)));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "step", neo_tensor_1d(&r->step, NEO_I64, 1)));
    const struct { const char *key; int64_t value; } numbers[] = {
        {"row_buckets", row_buckets(m->ctx, r->o)}, {"batch", r->o->batch}, {"shuffle", r->o->shuffle}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(word, sizeof word, "%lld", (long long)numbers[i].value);
        TRY(neo_state_define(m->state, numbers[i].key, word));
    }
    TRY(neo_state_define(m->state, "dtype", r->o->dtype));
    TRY(neo_state_define(m->state, "rows_dtype", r->o->rows_dtype));
    TRY(neo_state_define(m->state, "wire_forward", r->o->wire_forward));
    TRY(neo_state_define(m->state, "wire_backward", r->o->wire_backward));
    return neo_state_define(m->state, "optimizer", r->o->optimizer);
}

/* Weights from elsewhere: neo's own names, or those of facebookresearch/dlrm's PyTorch model. */
static neo_status load_weights(run *r) {
    int32_t tables = neo_schema_feature_count(r->m.schema);
    neo_name_map *map = calloc((size_t)tables + 2, sizeof *map);
    char (*names)[2][160] = calloc((size_t)tables + 1, sizeof *names);
    int loaded = 0;
    neo_status status = map && names ? NEO_OK : out_of_memory();
    if (status == NEO_OK) {
        map[0] = (neo_name_map){"bot_l.*", "bottom.*", 0};
        map[1] = (neo_name_map){"top_l.*", "top.*", 0};
        for (int32_t t = 0; t < tables; t++) {
            snprintf(names[t][0], sizeof names[t][0], "emb_l.%d.weight", t);
            snprintf(names[t][1], sizeof names[t][1], "bags.%s.weight", neo_schema_feature(r->m.schema, t).name);
            map[t + 2] = (neo_name_map){names[t][0], names[t][1], 0};
        }
        status = neo_load_safetensors(r->m.ctx, r->o->load, map, tables + 2, 0, r->m.state, &loaded);
        if (status == NEO_OK) say(r, "loaded %d tensors from %s\n", loaded, r->o->load);
    }
    free(names);
    free(map);
    return status;
}

static neo_status check_fresh(const options *o) {
    int64_t there = -1;
    if (neo_find_checkpoint(o->checkpoint, &there) != NEO_OK) return NEO_OK;
    REFUSE("--checkpoint %s: holds step %lld of an earlier run: add --resume to go on with it, or name another "
           "directory", o->checkpoint, (long long)there);
}

static neo_status restore(run *r) {
    const options *o = r->o;
    neo_group group = neo_comm_group(r->comm);
    if (o->load) TRY(agree(r->comm, load_weights(r)));
    if (!o->checkpoint) return NEO_OK;
    if (!reads_only(o) && !o->resume) return agree(r->comm, check_fresh(o));
    neo_load_desc d = {.dir = o->checkpoint, .any_definition = reads_only(o) && !o->resume, .group = &group};
    neo_status status = neo_load(r->m.ctx, &d, r->m.state, &r->step);
    if (status == NEO_ERR_NOT_FOUND && o->resume && !reads_only(o) && r->train.reader) {
        say(r, "no checkpoint in %s yet: starting from the beginning\n", o->checkpoint);
        return NEO_OK;
    }
    if (status == NEO_OK) say(r, "loaded step %lld from %s\n", (long long)r->step, o->checkpoint);
    return status;
}

static neo_status write_report(run *r, double samples_per_s) {
    char text[64];
    const char *tensors = r->ranks > 1 ? "Tensors of rank 0" : "Tensors";
    const struct { const char *name, *format; double value; } facts[] = {
        {"Test AUC", "%.4f", r->test.auc}, {"Test log loss", "%.4f", r->test.logloss},
        {"Normalized entropy", "%.4f", r->test.ne}, {"Calibration", "%.3f", r->test.calibration},
        {"Accuracy", "%.4f", r->test.accuracy}, {"Samples per second", "%.0f", samples_per_s}};
    for (size_t i = r->test.count ? 0 : 5; i < sizeof facts / sizeof facts[0]; i++) {
        snprintf(text, sizeof text, facts[i].format, facts[i].value);
        TRY(neo_report_fact(r->report, facts[i].name, text));
    }
    const char *charts[] = {"Training loss", "Learning rate", "Test AUC", "Test log loss"};
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        TRY(neo_report_axis(r->report, charts[i], "step", ""));
    TRY(neo_report_row(r->report, tensors, (const char *[]){"name", "dtype", "shape"}, 3));
    for (int i = 0; i < neo_state_count(r->m.state); i++) {
        neo_tensor t = neo_state_tensor(r->m.state, i);
        char shape[96] = "";
        for (int32_t k = 0; k < t.ndim; k++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", k ? " x " : "",
                     (long long)t.shape[k]);
        const char *cells[] = {neo_state_name(r->m.state, i), neo_dtype_name(t.dtype), shape};
        TRY(neo_report_row(r->report, tensors, cells, 3));
    }
    return neo_report_write(r->report, r->o->report);
}

/* Dictionaries come from the training files, or from a checkpoint when only a test file is given. */
static neo_status fit_schema(run *r) {
    const job *j = r->job;
    neo_state *dictionaries;
    if (neo_schema_is_fitted(r->m.schema)) return NEO_OK;
    if (j->train_count && strcmp(j->train_files[0], "-") == 0)
        REFUSE("words become ids by dictionaries, which need a pass of their own: --data - cannot give it");
    if (j->train_count && (!reads_only(r->o) || !r->o->checkpoint))
        return neo_schema_fit(r->m.schema, j->train_files, j->train_count, r->o->bad_lines[0] == 's');
    if (!r->o->checkpoint) REFUSE("words become ids by dictionaries: give --data or --checkpoint");
    TRY(neo_state_create(r->m.ctx, &dictionaries));
    neo_status status = neo_state_add_schema(dictionaries, r->m.schema);
    if (status == NEO_OK)
        status = neo_load(r->m.ctx, &(neo_load_desc){.dir = r->o->checkpoint, .schema_only = 1}, dictionaries, NULL);
    neo_state_destroy(dictionaries);
    return status;
}

/* What cannot be written is better known before the training than after it. */
static neo_status check_writable(const char *option, const char *path) {
    FILE *f = fopen(path, "rb");
    int existed = f != NULL;
    if (f) fclose(f);
    f = fopen(path, "ab");
    if (!f) return neo_fail(NEO_ERR_IO, "--%s: %s: %s", option, path, strerror(errno));
    fclose(f);
    if (!existed) remove(path);
    return NEO_OK;
}
static neo_status check_outputs(const options *o) {
    char path[4096];
    if (o->report) TRY(check_writable("report", o->report));
    if (o->predict) TRY(check_writable("predict", o->predict));
    if (!o->checkpoint || reads_only(o)) return NEO_OK;
    for (size_t i = 1; i <= strlen(o->checkpoint); i++) { /* make it, and what is above it */
        if (o->checkpoint[i] != 0 && o->checkpoint[i] != '/') continue;
        snprintf(path, sizeof path, "%.*s", (int)i, o->checkpoint);
        make_directory(path);
    }
    snprintf(path, sizeof path, "%s/.writable", o->checkpoint);
    return check_writable("checkpoint", path);
}
static neo_status open_outputs(run *r) {
    const options *o = r->o;
    TRY(check_outputs(o));
    if (o->report) TRY(neo_report_create(r->m.ctx, "neo: DLRM training", &r->report));
    if (!o->log) return NEO_OK;
    TRY(neo_jsonl_open(r->m.ctx, o->log, o->resume || reads_only(o), &r->log));
    if (!r->step) return NEO_OK;
    neo_jsonl_int(r->log, reads_only(o) ? "loaded_step" : "resumed_step", r->step);
    return neo_jsonl_end(r->log);
}

/* [B][1] in host memory, also where the context has a device. */
static neo_status host_column(run *r, neo_tensor *t) {
    void *data = neo_alloc(r->m.ctx, (size_t)r->o->batch * sizeof(float));
    *t = data ? neo_tensor_2d(data, NEO_F32, r->o->batch, 1) : neo_tensor_none();
    return data ? NEO_OK : out_of_memory();
}
/* What a rank makes by itself. */
static neo_status prepare(run *r) {
    const job *j = r->job;
    if (neo_comm_get_backend(r->comm) == NEO_BACKEND_MPI && r->o->ranks > 1 && r->o->ranks != r->ranks)
        REFUSE("--ranks %lld, but the launcher has started %d", (long long)r->o->ranks, r->ranks);
    if (neo_ctx_repro_shards(r->m.ctx) < r->ranks)
        REFUSE("--repro-shards %d: must be at least the %d ranks", neo_ctx_repro_shards(r->m.ctx), r->ranks);
    TRY(create_schema(&r->m, r->o, j->train_count ? j->train_files : j->test_files,
                      j->train_count ? j->train_count : j->test_count));
    TRY(fit_schema(r));
    TRY(create_dense(&r->m, r->o));
    neo_exact_zero(&r->loss);
    r->own_logits = r->m.logit;
    if (neo_ctx_device(r->m.ctx)) TRY(host_column(r, &r->own_logits));
    if (r->rank) return NEO_OK;
    TRY(host_column(r, &r->logits));
    return host_column(r, &r->labels);
}

static neo_status set_up(run *r) {
    const job *j = r->job;
    TRY(agree(r->comm, prepare(r)));
    TRY(create_units(&r->m, r->o));
    TRY(create_tables(&r->m, r->o));
    if (j->train_count || r->o->synthetic)
        TRY(open_source(r, (neo_reader_desc){.schema = r->m.schema, .paths = j->train_files,
                                             .path_count = j->train_count, .shuffle_window = r->o->shuffle,
                                             .hold = 2}, &r->train)); /* a batch and the next one */
    TRY(agree(r->comm, create_state(r)));
    TRY(restore(r));
    return agree(r->comm, r->rank ? NEO_OK : open_outputs(r));
}

/* The test data with the model as it is now; also for a resumed run that had nothing left to train. */
static neo_status evaluate_now(run *r) {
    int64_t started = neo_time_ns();
    TRY(evaluate_to_file(r));
    if (r->samples) return NEO_OK;
    r->samples = r->test.count;
    r->train_ns = neo_time_ns() - started;
    return agree(r->comm, log_test(r));
}

/* The words of rank 0. */
static neo_status print_results(run *r, uint64_t digest) {
    const options *o = r->o;
    double auc, logloss, samples_per_s = (double)r->samples / ((double)(r->train_ns + 1) * 1e-9);
    if (o->synthetic) {
        TRY(neo_schema_best(r->m.test_schema, o->synthetic, o->synthetic / 4 + 1, &auc, &logloss));
        printf("best possible auc=%.4f logloss=%.4f\n", auc, logloss);
    }
    if (r->report) TRY(write_report(r, samples_per_s));
    if (r->test.count) {
        if (r->test.base_rate <= 0 || r->test.base_rate >= 1)
            say(r, "warning: all labels of the test data are alike\n");
        printf("test auc=%.4f logloss=%.4f ne=%.4f samples/s=%.0f\n", r->test.auc, r->test.logloss, r->test.ne,
               samples_per_s);
    }
    printf("state %016llx\n", (unsigned long long)digest);
    if (fflush(stdout) != 0 || ferror(stdout))
        return neo_fail(NEO_ERR_IO, "standard output: could not be written whole");
    return NEO_OK;
}

static neo_status run_all(run *r) {
    const job *j = r->job;
    neo_group group = neo_comm_group(r->comm);
    uint64_t digest;
    TRY(set_up(r));
    if (!reads_only(r->o) && r->train.reader) TRY(train(r));
    if (r->o->predict || (!r->tested && (j->test_count || r->o->synthetic))) TRY(evaluate_now(r));
    TRY(neo_state_digest_group(r->m.state, &group, &digest));
    return agree(r->comm, r->rank ? NEO_OK : print_results(r, digest));
}

/* An error that all ranks have (agreement puts "rank 2: " before it) is printed by rank 0, and none leaves before: a
   launcher ends the job when one does. After one that a rank has alone the others would wait for it: it breaks the
   group. When a rank is lost every process says what it has seen. */
static void stop(const run *r, job *j, neo_status status) {
    int lost = status == NEO_ERR_TIMEOUT || status == NEO_ERR_PEER || status == NEO_ERR_DIVERGED;
    if (r->ranks > 1 && (lost || strncmp(neo_last_error(), "rank ", 5))) {
        neo_comm_abort(r->comm, neo_last_error());
        return;
    }
    if (r->rank == 0) fprintf(stderr, "%sdlrm: %s\n", isatty(fileno(stderr)) ? "\n" : "", neo_last_error());
    if (r->rank == 0 || j->silent) j->told = 1;
    (void)agree(r->comm, NEO_OK);
}

/* What every rank runs. */
static neo_status run_rank(neo_comm *comm, void *user) {
    job *j = user;
    run r = {.comm = comm, .job = j, .o = &j->o, .rank = neo_comm_rank(comm), .ranks = neo_comm_size(comm),
             .m = {.comm = comm, .data = comm, .ctx = neo_comm_ctx(comm)}};
    if (neo_comm_get_backend(comm) == NEO_BACKEND_MPI) j->silent = r.rank > 0;
    neo_status status = agree(comm, j->refused[0] ? neo_fail(NEO_ERR_ARG, "%s", j->refused) : NEO_OK);
    if (status == NEO_OK && j->o.help && r.rank == 0) print_help();
    if (status == NEO_OK && !j->o.help) status = run_all(&r);
    if (status != NEO_OK) stop(&r, j, status);
    neo_comm_wait_all(comm); /* after an error: nothing uses the buffers any more */
    close_source(&r.train);
    neo_jsonl_close(r.log);
    neo_report_destroy(r.report);
    if (neo_ctx_device(r.m.ctx)) neo_tensor_free(r.m.ctx, &r.own_logits);
    neo_tensor_free(r.m.ctx, &r.logits);
    neo_tensor_free(r.m.ctx, &r.labels);
    destroy_model(&r.m);
    return status;
}

/* ---- the job ---------------------------------------------------------------------------------- */

#if defined(NEO_COMM_MPI)
static int threads_of_a_rank(int64_t ranks) { (void)ranks; return 0; } /* it knows how many ranks a host has */
#else
static int threads_of_a_rank(int64_t ranks) {
    neo_ctx *ctx;
    if (neo_ctx_create(NULL, &ctx) != NEO_OK) return 1;
    int cores = neo_ctx_threads(ctx);
    neo_ctx_destroy(ctx);
    return cores > ranks ? cores / (int)ranks : 1;
}
#endif

static neo_status parse_job(int argc, char **argv, job *j, neo_comm_desc *desc) {
    options *o = &j->o;
    const char *isa = getenv("NEO_ISA");
    neo_comm_desc d = {.ctx = {.seed = 0, .logger = {log_stderr, j}}};
    TRY(parse_options(argc, argv, o));
    if (isa) TRY(neo_isa_parse(isa, &d.ctx.isa));
    TRY(device_check(o->device));
    j->device = (device_choice){o->device, o->exact != 0};
    d.open_device = o->help ? NULL : device_open, d.open_user = &j->device;
    j->train_count = split_list(o->data, j->train_files, MAX_FILES);
    j->test_count = split_list(o->test, j->test_files, MAX_FILES);
    d.ctx.seed = (uint64_t)o->seed;
    d.ctx.repro_shards = (int)o->repro_shards;
    d.ctx.threads = o->threads ? (int)o->threads : threads_of_a_rank(o->ranks);
    d.ranks = (int)o->ranks;
    if (o->nodes > 1) d.ranks_per_node = (int)(o->ranks / o->nodes);
    *desc = d;
    return NEO_OK;
}

int main(int argc, char **argv) {
    static job j = {.o = {.format = "criteo", .device = "cpu", .graph = "on", .optimizer = "adagrad", .top = "64-1", .schedule = "constant",
                          .bad_lines = "error", .plan = "auto", .dtype = "f32", .rows_dtype = "f32", .wire_forward = "f32", .wire_backward = "f32",
                          .pipeline = "on", .dense_shard = "none", .epochs = 1, .batch = 128, .micro_batches = 1, .dim = 16, .ranks = 1, .nodes = 1,
                          .log_every = 100, .auc_capacity = 4194304, .lr = 0.01},
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    neo_comm_desc desc = {.ranks = 1}; /* enough to say what is wrong with the options */
    if (parse_job(argc, argv, &j, &desc) != NEO_OK) snprintf(j.refused, sizeof j.refused, "%s", neo_last_error());
    neo_status status = neo_comm_init_env(&desc, run_rank, &j);
    if (status == NEO_OK) return 0;
    if (!j.told) fprintf(stderr, "dlrm: %s\n", neo_last_error());
    return 1;
}
