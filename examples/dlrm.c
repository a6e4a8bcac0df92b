/* dlrm.c: train a deep learning recommendation model (DLRM, arXiv 1906.00091) on one machine.

     cc -O2 -I. examples/dlrm.c -o dlrm -lm -lpthread && ./dlrm --help

   dense numbers -> bottom MLP --+
                                 +--> pairwise dot products --> top MLP --> logit --> BCE
   sparse ids -> embedding bags -+

   With the same options and data the last line, `state <digest of all weights and optimizer state>`, is the
   same on any number of threads, any instruction set, and for a run that was killed and resumed. */
#define NEO_IMPLEMENTATION
#include "neo.h"

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
    char *checkpoint, *load, *predict, *report, *log, *bad_lines, *rows_dtype;
    int64_t synthetic, epochs, batch, dim, threads, seed, repro_shards, pieces, every, rows, shuffle,
        log_every, auc_capacity, warmup;
    double lr, weight_decay, eps;
    int64_t resume, eval, reset_definition, help;
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
    {"batch", 'i', offsetof(options, batch), "N", "samples per step (128)", 1e7},
    {"lr", 'f', offsetof(options, lr), "X", "learning rate (0.01)", 1e9},
    {"schedule", 's', offsetof(options, schedule), "S", "constant, linear or cosine decay to 0 over all epochs", 0},
    {"warmup", 'i', offsetof(options, warmup), "N", "steps of linear warm-up", 1e9},
    {"optimizer", 's', offsetof(options, optimizer), "O", "sgd, adagrad (tables: row-wise), adam, adamw or lamb", 0},
    {"weight-decay", 'f', offsetof(options, weight_decay), "X", "of the dense layers", 1e9},
    {"eps", 'f', offsetof(options, eps), "X", "of the optimizers; 0: each one's own default", 1e9},
    {"dim", 'i', offsetof(options, dim), "N", "columns of every table (16)", 1e6},
    {"rows-dtype", 's', offsetof(options, rows_dtype), "T", "of the tables: f32, f16, bf16 or i8 (narrow rows are rounded stochastically)", 0},
    {"bottom", 's', offsetof(options, bottom), "A-B-C", "widths of the bottom MLP; A: dense numbers, C: dim", 0},
    {"top", 's', offsetof(options, top), "A-B-1", "widths of the top MLP after its input", 0},
    {"shuffle", 'i', offsetof(options, shuffle), "N", "samples shuffled together; 0: file order", 1e9},
    {"bad-lines", 's', offsetof(options, bad_lines), "P", "error (stop; the default) or skip (and count)", 0},
    {"threads", 'i', offsetof(options, threads), "N", "0: all cores", 256},
    {"seed", 'i', offsetof(options, seed), "N", "of initial weights and shuffling", 1e15},
    {"repro-shards", 'i', offsetof(options, repro_shards), "V", "virtual shards of a batch (1)", 4096},
    {"pieces", 'i', offsetof(options, pieces), "P", "compute each step in P pieces, as P ranks would (1)", 4096},
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

static int fail(const char *format, const char *what) {
    fprintf(stderr, "dlrm: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "\n");
    return 0;
}

static int set_option(options *o, const struct option *opt, char *text) {
    char *end = text;
    void *field = (char *)o + opt->offset;
    if (opt->kind == 's') {
        *(char **)field = text;
        return 1;
    }
    errno = 0;
    if (opt->kind == 'i') *(int64_t *)field = strtoll(text, &end, 10);
    else *(double *)field = strtod(text, &end);
    double value = opt->kind == 'i' ? (double)*(int64_t *)field : *(double *)field;
    if (end == text || *end || errno || !(value >= 0 && value <= opt->most)) {
        fprintf(stderr, "dlrm: --%s %s: not %s from 0 to %.0f\n", opt->name, text,
                opt->kind == 'i' ? "a whole number" : "a number", opt->most);
        return 0;
    }
    return 1;
}

/* With these the model is only read: nothing trains, nothing is saved. */
static int reads_only(const options *o) {
    return o->eval || (o->predict && !o->resume && (o->checkpoint || o->load));
}

/* The dtype of table rows by its name; NEO_DTYPE_COUNT: it is none of them. */
static neo_dtype parse_dtype(const char *name) {
    static const neo_dtype known[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, neo_dtype_name(known[i])) == 0) return known[i];
    return NEO_DTYPE_COUNT;
}

static int check_options(const options *o) {
    const char *outputs[] = {o->predict, o->report, o->log}, *inputs[] = {o->data, o->test, o->load, o->columns};
    int has_test = o->test || o->synthetic, from_stdin = o->data && strcmp(o->data, "-") == 0;
    if (!o->data && !o->synthetic && !o->test) return fail("%s", "give --data, --synthetic or --test (--help explains)");
    if (!o->data && !o->synthetic && !o->checkpoint && !o->load)
        return fail("%s", "--test without --data needs a model: --checkpoint or --load");
    if (o->batch < 1) return fail("--batch %s", "must be at least 1");
    if (o->dim < 1) return fail("--dim %s", "must be at least 1");
    if (o->log_every < 1) return fail("--log-every %s", "must be at least 1");
    if (o->auc_capacity < 1) return fail("--auc-capacity %s", "must be at least 1");
    int64_t per_piece = o->pieces > 0 && o->repro_shards > 0 ? o->repro_shards / o->pieces : 0;
    if (per_piece * o->pieces != o->repro_shards || per_piece < 1)
        return fail("--pieces %s", "must divide --repro-shards");
    if (o->pieces > 1 && (per_piece & (per_piece - 1)))
        return fail("--pieces %s", "must leave 1, 2, 4, 8 ... shards to a piece: others are no subtree of the leaf tree");
    if (strcmp(o->bad_lines, "skip") && strcmp(o->bad_lines, "error"))
        return fail("--bad-lines %s: neither error nor skip", o->bad_lines);
    if (parse_dtype(o->rows_dtype) == NEO_DTYPE_COUNT)
        return fail("--rows-dtype %s: not f32, f16, bf16 or i8", o->rows_dtype);
    if (o->load && o->checkpoint && (o->resume || reads_only(o)))
        return fail("%s", "--load and --checkpoint would both give the weights: leave one out");
    if ((o->resume || o->every) && !o->checkpoint) return fail("%s", "--resume and --every need --checkpoint");
    if (o->checkpoint && !o->checkpoint[0]) return fail("%s", "--checkpoint needs the name of a directory");
    if ((o->eval || o->predict) && !has_test) return fail("%s", "--eval and --predict need --test");
    if (o->eval && !o->checkpoint && !o->load) return fail("%s", "--eval needs --checkpoint or --load");
    if (from_stdin && o->epochs > 1) return fail("%s", "--data - can be read once: use --epochs 1");
    if (from_stdin && o->test && strcmp(o->test, "-") == 0) return fail("%s", "--data and --test cannot both be -");
    if (o->test && strcmp(o->test, "-") == 0 && !reads_only(o))
        return fail("%s", "--test - can be read once: use it with --eval or --predict and a checkpoint");
    if (from_stdin && strcmp(o->format, "npy") == 0) return fail("%s", "--format npy cannot come from standard input");
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++)
            if (outputs[i] && inputs[k] && strcmp(outputs[i], inputs[k]) == 0)
                return fail("%s is both read and written", outputs[i]);
        for (int k = 0; k < i; k++)
            if (outputs[i] && outputs[k] && strcmp(outputs[i], outputs[k]) == 0)
                return fail("%s is to be written twice", outputs[i]);
    }
    return 1;
}

static int parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const struct option *opt = NULL;
        for (int k = 0; k < OPTION_COUNT; k++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, OPTIONS[k].name) == 0) opt = &OPTIONS[k];
        if (!opt) return fail("%s: no such option (--help lists them)", argv[i]);
        if (opt->kind == 'b') *(int64_t *)((char *)o + opt->offset) = 1;
        else if (i + 1 == argc) return fail("--%s: needs a value", opt->name);
        else if (!set_option(o, opt, argv[++i])) return 0;
    }
    return o->help || check_options(o);
}

static void print_help(void) {
    printf("dlrm: train a recommendation model; see the comment at the top of examples/dlrm.c\n\n");
    for (int k = 0; k < OPTION_COUNT; k++) {
        const struct option *opt = &OPTIONS[k];
        printf("  --%s %-*s %s\n", opt->name, 16 - (int)strlen(opt->name), opt->argument, opt->help);
    }
    printf("\nNEO_ISA=scalar|avx2|avx512|neon in the environment forces an instruction set.\n");
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

typedef struct model {
    neo_ctx *ctx;
    neo_schema *schema, *test_schema; /* the same but for synthetic data, where test samples come later */
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_bags *bags;
    neo_optim *optim;
    neo_state *state;
    neo_schedule schedule;
    /* one batch: B samples, D columns, F features, Z interactions */
    neo_tensor x, e, z, logit;      /* [B][D], [B][F D], [B][Z], [B][1] */
    neo_tensor dx, de, dz, dlogit;
    neo_jagged_buffer *piece_ids;   /* --pieces: the ids of one piece */
    neo_tensor *piece_grads;        /*   and the gradients of each piece, [pieces] per parameter */
    int64_t pieces;
} model;

static neo_status out_of_memory(void) {
    fprintf(stderr, "dlrm: out of memory\n");
    exit(1);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)

static neo_status usage_error(const char *format, const char *what) {
    fail(format, what);
    exit(2);
}

static neo_status create_schema(model *m, const options *o, const char **files, int file_count) {
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
        else if (o->format[0] == 'd') usage_error("%s", "--format delimited needs --columns FILE");
        else if (strcmp(first, "-") == 0) usage_error("%s", "--format adult from standard input needs --columns FILE");
        else snprintf(columns, sizeof columns, "%.*sadult.columns", slash ? (int)(slash - first + 1) : 0, first);
        TRY(neo_schema_parse(m->ctx, columns, &m->schema));
    } else {
        usage_error("--format %s: not adult, criteo, npy or delimited", o->format);
    }
    m->test_schema = m->schema;
    return NEO_OK;
}

static neo_optim_kind parse_optimizer(const char *name, neo_bag_optim *bag) {
    static const struct { const char *name; neo_optim_kind dense; neo_bag_optim_kind bag; } KINDS[] = {
        {"sgd", NEO_OPTIM_SGD, NEO_BAG_SGD},    {"adagrad", NEO_OPTIM_ADAGRAD, NEO_BAG_ROWWISE_ADAGRAD},
        {"adam", NEO_OPTIM_ADAM, NEO_BAG_ADAM}, {"adamw", NEO_OPTIM_ADAMW, NEO_BAG_ADAM},
        {"lamb", NEO_OPTIM_LAMB, NEO_BAG_LAMB},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (strcmp(name, KINDS[i].name) == 0) {
            bag->kind = KINDS[i].bag;
            return KINDS[i].dense;
        }
    }
    usage_error("--optimizer %s: not sgd, adagrad, adam, adamw or lamb", name);
    return NEO_OPTIM_SGD;
}

static neo_status create_mlp(model *m, const options *o, const char *name, const char *option, const char *spec,
                             int64_t in, int64_t out, neo_mlp **mlp) {
    neo_mlp_desc d = {.name = name, .max_batch = o->batch, .act = NEO_ACT_RELU};
    int is_bottom = strcmp(name, "bottom") == 0;
    d.last_act = is_bottom ? NEO_ACT_RELU : NEO_ACT_NONE;
    int first = is_bottom ? 0 : 1; /* the top's input width follows from the model */
    d.widths[0] = in;
    int count = parse_widths(spec, d.widths + first, NEO_MAX_LAYERS + 1 - first);
    d.width_count = count + first;
    if (in < 1) usage_error("%s", "the data has no dense numbers, which the bottom MLP needs");
    if (!count || d.width_count < 2 || d.widths[0] != in || d.widths[d.width_count - 1] != out) {
        char text[400], begin[80] = "";
        if (is_bottom) snprintf(begin, sizeof begin, " beginning with %lld (the dense numbers of this data),", (long long)in);
        snprintf(text, sizeof text, "--%s %s: must be widths joined by '-',%s ending with %lld", option, spec, begin,
                 (long long)out);
        usage_error("%s", text);
    }
    return neo_mlp_create(m->ctx, m->params, &d, mlp);
}

static neo_status create_bags(model *m, const options *o, neo_bag_optim optim) {
    int32_t count = neo_schema_feature_count(m->schema);
    neo_table_desc *tables = calloc((size_t)count + 1, sizeof *tables);
    if (!tables) return out_of_memory();
    for (int32_t t = 0; t < count; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        tables[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = o->dim, .optim = optim,
                                     .dtype = parse_dtype(o->rows_dtype)};
    }
    neo_status status = neo_bags_create(m->ctx, &(neo_bags_desc){
        .tables = tables, .table_count = count, .max_batch = o->batch, .max_ids = o->batch * count}, &m->bags);
    free(tables);
    return status;
}

static neo_status alloc_2d(model *m, int64_t rows, int64_t cols, neo_tensor *a, neo_tensor *b) {
    int64_t shape[2] = {rows, cols};
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, a));
    return neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, b);
}

static neo_status create_pieces(model *m, const options *o) {
    int count = neo_params_count(m->params);
    m->pieces = o->pieces;
    if (o->pieces == 1) return NEO_OK;
    m->piece_grads = calloc((size_t)(count * o->pieces), sizeof *m->piece_grads);
    if (!m->piece_grads) return out_of_memory();
    for (int64_t i = 0; i < count * o->pieces; i++) {
        neo_tensor grad = neo_params_at(m->params, (int)(i / o->pieces))->grad;
        TRY(neo_tensor_alloc(m->ctx, NEO_F32, grad.ndim, grad.shape, &m->piece_grads[i]));
    }
    int32_t features = neo_schema_feature_count(m->schema);
    return neo_jagged_create(m->ctx, &(neo_jagged_desc){
        .feature_count = features, .max_bags = o->batch * features, .max_ids = o->batch * features}, &m->piece_ids);
}

static neo_status create_model(model *m, const options *o) {
    int64_t features = neo_schema_feature_count(m->schema), dense = neo_schema_dense_count(m->schema);
    int64_t width = neo_interact_width(o->dim, features, 0);
    char bottom[64];
    snprintf(bottom, sizeof bottom, "%lld-64-%lld", (long long)dense, (long long)o->dim);
    neo_bag_optim bag = {.eps = (float)o->eps};
    neo_optim_desc optim = {.kind = parse_optimizer(o->optimizer, &bag), .weight_decay = (float)o->weight_decay,
                            .eps = (float)o->eps};

    TRY(neo_params_create(m->ctx, &m->params));
    TRY(create_mlp(m, o, "bottom", "bottom", o->bottom ? o->bottom : bottom, dense, o->dim, &m->bottom));
    TRY(create_mlp(m, o, "top", "top", o->top, width, 1, &m->top));
    TRY(create_bags(m, o, bag));
    TRY(neo_optim_create(m->ctx, m->params, &optim, &m->optim));
    TRY(alloc_2d(m, o->batch, o->dim, &m->x, &m->dx));
    TRY(alloc_2d(m, o->batch, features * o->dim, &m->e, &m->de));
    TRY(alloc_2d(m, o->batch, width, &m->z, &m->dz));
    TRY(alloc_2d(m, o->batch, 1, &m->logit, &m->dlogit));
    return create_pieces(m, o);
}

static void destroy_model(model *m) {
    neo_tensor *buffers[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) neo_tensor_free(m->ctx, buffers[i]);
    if (m->piece_grads)
        for (int64_t i = 0; i < neo_params_count(m->params) * m->pieces; i++)
            neo_tensor_free(m->ctx, &m->piece_grads[i]);
    free(m->piece_grads);
    neo_jagged_destroy(m->piece_ids);
    neo_state_destroy(m->state);
    neo_optim_destroy(m->optim);
    neo_bags_destroy(m->bags);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    if (m->test_schema != m->schema) neo_schema_destroy(m->test_schema);
    neo_schema_destroy(m->schema);
    neo_ctx_destroy(m->ctx);
}

/* Rows [first, first + n) of every buffer: one piece of the batch. */
static neo_status forward(model *m, neo_tensor dense, const neo_jagged *sparse, int64_t first) {
    int64_t n = dense.shape[0];
    neo_tensor x = neo_tensor_rows(m->x, first, n), e = neo_tensor_rows(m->e, first, n);
    neo_tensor z = neo_tensor_rows(m->z, first, n), logit = neo_tensor_rows(m->logit, first, n);
    TRY(neo_bags_forward(m->bags, sparse, e));
    TRY(neo_mlp_forward(m->bottom, dense, x));
    TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    return neo_mlp_forward(m->top, z, logit);
}

/* The gradients of one piece: those of the MLPs into params, that of the bags' output into de. */
static neo_status backward(model *m, const neo_leaves *leaves, neo_tensor label, int64_t first, neo_exact *loss) {
    int64_t n = label.shape[0];
    neo_tensor x = neo_tensor_rows(m->x, first, n), e = neo_tensor_rows(m->e, first, n);
    neo_tensor dx = neo_tensor_rows(m->dx, first, n), de = neo_tensor_rows(m->de, first, n);
    neo_tensor dz = neo_tensor_rows(m->dz, first, n), dlogit = neo_tensor_rows(m->dlogit, first, n);
    neo_loss_desc d = {.batch = leaves->batch, .sum = loss};
    TRY(neo_bce_with_logits(m->ctx, &d, neo_tensor_rows(m->logit, first, n), label, dlogit, NULL));
    TRY(neo_mlp_backward(m->top, leaves, dlogit, dz));
    TRY(neo_interact_backward(m->ctx, 0, x, e, dz, dx, de));
    return neo_mlp_backward(m->bottom, leaves, dx, neo_tensor_none());
}

/* One training step, in pieces of whole leaves as ranks would compute them: the sums over pieces follow
   the same tree as inside a piece, so the bits do not depend on their number. */
static neo_status train_step(model *m, const neo_batch *batch, float lr, neo_exact *loss) {
    int shards = neo_ctx_repro_shards(m->ctx), per_piece = shards / (int)m->pieces;
    TRY(neo_bags_reserve(m->bags, batch->size, neo_jagged_id_count(&batch->sparse)));
    for (int p = 0; p < m->pieces; p++) {
        neo_leaves leaves = {batch->size, p * per_piece, per_piece};
        int64_t first = neo_leaf_begin(batch->size, shards, leaves.first);
        int64_t n = neo_leaf_begin(batch->size, shards, leaves.first + per_piece) - first;
        const neo_jagged *sparse = &batch->sparse;
        if (m->pieces > 1) {
            TRY(neo_jagged_reserve(m->piece_ids, 0, neo_jagged_id_count(sparse)));
            TRY(neo_jagged_slice(m->piece_ids, sparse, first, n));
            sparse = neo_jagged_view(m->piece_ids);
        }
        TRY(forward(m, neo_tensor_rows(batch->dense, first, n), sparse, first));
        TRY(backward(m, &leaves, neo_tensor_rows(batch->label, first, n), first, loss));
        for (int i = 0; m->pieces > 1 && i < neo_params_count(m->params); i++)
            TRY(neo_tensor_copy(m->ctx, neo_params_at(m->params, i)->grad, m->piece_grads[i * m->pieces + p]));
    }
    for (int i = 0; m->pieces > 1 && i < neo_params_count(m->params); i++)
        TRY(neo_tree_sum(m->ctx, m->piece_grads + i * m->pieces, (int)m->pieces, neo_params_at(m->params, i)->grad));
    TRY(neo_bags_backward(m->bags, &batch->sparse, neo_tensor_rows(m->de, 0, batch->size), lr));
    return neo_optim_step(m->optim, lr);
}

/* ---- evaluation ------------------------------------------------------------------------------- */

/* Runs the model over a data set; changes no state. predictions may be NULL. */
static neo_status evaluate(model *m, const options *o, const char **files, int file_count, FILE *predictions,
                           neo_metric_values *values) {
    neo_reader *reader = NULL;
    neo_metrics *metrics = NULL;
    neo_batch batch;
    neo_status status = neo_metrics_create(m->ctx, &(neo_metrics_desc){.capacity = o->auc_capacity}, &metrics);
    if (status == NEO_OK)
        status = neo_reader_open(m->ctx, &(neo_reader_desc){
            .schema = m->test_schema, .paths = files, .path_count = file_count, .batch = o->batch,
            .skip_bad_lines = o->bad_lines[0] == 's', .unlabeled = predictions != NULL}, &reader);
    while (status == NEO_OK && (status = neo_reader_next(reader, &batch)) == NEO_OK) {
        neo_tensor logit = neo_tensor_rows(m->logit, 0, batch.size);
        status = neo_bags_reserve(m->bags, batch.size, neo_jagged_id_count(&batch.sparse));
        if (status == NEO_OK) status = forward(m, batch.dense, &batch.sparse, 0);
        if (status == NEO_OK) status = neo_metrics_update(metrics, logit, batch.label);
        if (status != NEO_OK || !predictions) continue;
        status = neo_activation_forward(m->ctx, NEO_ACT_SIGMOID, logit, logit);
        for (int64_t i = 0; i < batch.size && status == NEO_OK; i++)
            fprintf(predictions, "%.9g\n", (double)((float *)logit.data)[i]);
    }
    if (status == NEO_END) status = neo_metrics_lifetime(metrics, values);
    if (status == NEO_OK && values->auc_count < values->count)
        fprintf(stderr, "warning: no AUC: the test data has %lld samples, --auc-capacity is %lld\n",
                (long long)values->count, (long long)o->auc_capacity);
    if (status == NEO_OK && neo_reader_get_stats(reader).bad_lines)
        fprintf(stderr, "skipped %lld bad lines of the test data\n",
                (long long)neo_reader_get_stats(reader).bad_lines);
    neo_reader_close(reader);
    neo_metrics_destroy(metrics);
    return status;
}

/* Predictions go to a file beside, which takes the name when it is whole; straight to a device or pipe. */
static neo_status evaluate_to_file(model *m, const options *o, const char **files, int file_count,
                                   neo_metric_values *values) {
    char partial[4096];
    if (!o->predict) return evaluate(m, o, files, file_count, NULL, values);
    int beside = !is_special_file(o->predict);
    snprintf(partial, sizeof partial, "%s%s", o->predict, beside ? ".partial" : "");
    FILE *f = fopen(partial, "w");
    if (!f) usage_error("--predict %s: cannot be written", partial);
    neo_status status = evaluate(m, o, files, file_count, f, values);
    int lost = ferror(f) != 0;
    lost |= fclose(f) != 0;
    if (status == NEO_OK && !lost && beside) lost = rename(partial, o->predict) != 0;
    if (beside && (status != NEO_OK || lost)) remove(partial);
    if (status == NEO_OK && lost) usage_error("--predict %s: could not be written whole", o->predict);
    return status;
}

/* ---- training --------------------------------------------------------------------------------- */

typedef struct run {
    model m;
    options o;
    const char *train_files[MAX_FILES], *test_files[MAX_FILES];
    int train_count, test_count;
    neo_reader *reader;
    neo_position position; /* of the next batch; saved with the state */
    int64_t step, samples; /* taken in all runs; in this one */
    int64_t train_ns;      /* spent on those samples (evaluation left out, unless there is nothing else) */
    neo_jsonl *log;
    neo_report *report;
    int64_t epoch;
    neo_exact loss;        /* since the last point of the log */
    int64_t loss_samples;
    double last_loss;      /* mean of the last point */
    neo_metric_values test;
} run;

static void write_stderr(const char *text, void *user) {
    (void)user;
    fputs(text, stderr);
    fflush(stderr);
}
static void log_stderr(neo_log_level level, const char *message, void *user) {
    (void)user;
    fprintf(stderr, "%s%s\n", level == NEO_LOG_WARNING ? "warning: " : "", message);
}

static neo_status save(run *r) {
    r->position = neo_reader_position(r->reader);
    return neo_save(r->m.ctx, &(neo_save_desc){.dir = r->o.checkpoint, .step = r->step}, r->m.state);
}

/* A point of the log and of the report's curves: the mean loss since the last one. */
static neo_status log_point(run *r, double lr) {
    if (!r->loss_samples) return NEO_OK;
    double loss = r->last_loss = neo_exact_value(&r->loss) / (double)r->loss_samples;
    neo_exact_zero(&r->loss);
    r->loss_samples = 0;
    if (r->report) {
        TRY(neo_report_point(r->report, "Training loss", "train", (double)r->step, loss));
        TRY(neo_report_point(r->report, "Learning rate", "lr", (double)r->step, lr));
    }
    if (!r->log) return NEO_OK;
    neo_jsonl_int(r->log, "step", r->step);
    neo_jsonl_int(r->log, "epoch", r->epoch);
    neo_jsonl_number(r->log, "loss", loss);
    neo_jsonl_number(r->log, "lr", lr);
    neo_jsonl_number(r->log, "samples_per_s", (double)r->samples / ((double)(r->train_ns + 1) * 1e-9));
    return neo_jsonl_end(r->log);
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

static neo_status train_epoch(run *r, neo_progress *bar, int64_t samples_before) {
    neo_batch batch;
    neo_status status;
    float lr = 0;
    int64_t started = neo_time_ns(), done = 0;
    while ((status = neo_reader_next(r->reader, &batch)) == NEO_OK) {
        neo_exact loss;
        neo_exact_zero(&loss);
        lr = neo_schedule_lr(&r->m.schedule, r->step);
        TRY(train_step(&r->m, &batch, lr, &loss));
        neo_exact_merge(&r->loss, &loss);
        r->loss_samples += batch.size;
        r->samples += batch.size;
        r->step++;
        done = batch.first + batch.size;
        neo_progress_update(bar, samples_before + done, neo_exact_value(&loss) / (double)batch.size);
        if (r->o.every && r->step % r->o.every == 0) TRY(save(r));
        if (r->step % r->o.log_every == 0) {
            r->train_ns += neo_time_ns() - started;
            started = neo_time_ns();
            TRY(log_point(r, (double)lr));
        }
    }
    r->train_ns += neo_time_ns() - started;
    return status == NEO_END ? NEO_OK : status;
}

/* Samples per epoch, for the schedule and the bar: counted by reading the data once; 0 if it cannot be
   read twice. Data of one label, most often a misspelt positive=, teaches nothing: a warning. */
static neo_status count_samples(run *r, int64_t *samples) {
    neo_batch batch;
    neo_status status = NEO_OK;
    float low = 1, high = 0;
    *samples = r->o.synthetic;
    if (*samples || strcmp(r->train_files[0], "-") == 0) return NEO_OK;
    while ((status = neo_reader_next(r->reader, &batch)) == NEO_OK) {
        const float *label = batch.label.data;
        *samples += batch.size;
        for (int64_t i = 0; i < batch.size; i++) {
            low = label[i] < low ? label[i] : low;
            high = label[i] > high ? label[i] : high;
        }
    }
    if (*samples && low == high) fprintf(stderr, "warning: all labels of the training data are %g\n", (double)low);
    return status == NEO_END ? neo_reader_epoch(r->reader, 0) : status;
}

static neo_status train(run *r) {
    const options *o = &r->o;
    int64_t samples = 0;
    TRY(count_samples(r, &samples));
    int64_t steps = (samples + o->batch - 1) / o->batch * o->epochs;
    r->m.schedule = (neo_schedule){.lr = (float)o->lr, .warmup_steps = o->warmup, .total_steps = steps};
    if (strcmp(o->schedule, "linear") == 0) r->m.schedule.kind = NEO_SCHEDULE_LINEAR;
    else if (strcmp(o->schedule, "cosine") == 0) r->m.schedule.kind = NEO_SCHEDULE_COSINE;
    else if (strcmp(o->schedule, "constant")) usage_error("--schedule %s: not constant, linear or cosine", o->schedule);
    if (!samples && strcmp(o->schedule, "constant"))
        usage_error("--schedule %s: standard input has no known length; use constant", o->schedule);

    neo_progress bar = {.write = write_stderr, .terminal = isatty(fileno(stderr)), .label = "train",
                        .total = samples * o->epochs};
    int64_t first = r->position.word[0];
    if (r->step > 0) TRY(neo_reader_seek(r->reader, &r->position));
    bar.first = samples * first + r->position.word[1];
    neo_progress_begin(&bar);
    for (r->epoch = first; r->epoch < o->epochs; r->epoch++) {
        if (r->epoch > first) TRY(neo_reader_epoch(r->reader, r->epoch));
        TRY(train_epoch(r, &bar, samples * r->epoch));
        if (!r->test_count && !o->synthetic) continue;
        TRY(evaluate(&r->m, o, r->test_files, r->test_count, NULL, &r->test));
        TRY(log_test(r));
    }
    r->epoch = o->epochs - 1;
    /* What is left since the last point, unless it is too little to mean something beside the others. */
    if (r->step < o->log_every || 2 * r->loss_samples >= o->log_every * o->batch)
        TRY(log_point(r, (double)neo_schedule_lr(&r->m.schedule, r->step)));
    if (r->samples) neo_progress_end(&bar, r->last_loss);
    else fprintf(stderr, "nothing left to train: the run has had its %lld epochs\n", (long long)o->epochs);
    neo_reader_stats stats = neo_reader_get_stats(r->reader);
    if (stats.bad_lines) fprintf(stderr, "skipped %lld bad lines\n", (long long)stats.bad_lines);
    return o->checkpoint ? save(r) : NEO_OK;
}

/* ---- set up, report --------------------------------------------------------------------------- */

static neo_status open_reader(run *r) {
    const options *o = &r->o;
    if (!r->train_count && !o->synthetic) return NEO_OK;
    return neo_reader_open(r->m.ctx, &(neo_reader_desc){
        .schema = r->m.schema, .paths = r->train_files, .path_count = r->train_count, .batch = o->batch,
        .shuffle_window = o->shuffle, .skip_bad_lines = o->bad_lines[0] == 's'}, &r->reader);
}

/* Everything a resumed run must find again, and the words it must agree with. */
static neo_status create_state(run *r) {
    model *m = &r->m;
    char word[32];
    TRY(neo_state_create(m->ctx, &m->state));
    TRY(neo_state_add_params(m->state, m->params));
    TRY(neo_state_add_optim(m->state, m->optim));
    TRY(neo_state_add_bags(m->state, m->bags));
    TRY(neo_state_add_schema(m->state, m->schema));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "reader.position",
                      neo_tensor_1d(r->position.word, NEO_I64, NEO_POSITION_WORDS)));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "step", neo_tensor_1d(&r->step, NEO_I64, 1)));
    const struct { const char *key; int64_t value; } words[] = {
        {"repro_shards", r->o.repro_shards}, {"batch", r->o.batch}, {"seed", r->o.seed}, {"shuffle", r->o.shuffle}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        snprintf(word, sizeof word, "%lld", (long long)words[i].value);
        TRY(neo_state_define(m->state, words[i].key, word));
    }
    TRY(neo_state_define(m->state, "rows_dtype", r->o.rows_dtype));
    return neo_state_define(m->state, "optimizer", r->o.optimizer);
}

/* Weights from elsewhere: neo's own names, or those of facebookresearch/dlrm's PyTorch model. */
static neo_status load_weights(run *r) {
    int32_t tables = neo_bags_table_count(r->m.bags);
    neo_name_map *map = calloc((size_t)tables + 2, sizeof *map);
    char (*names)[2][160] = calloc((size_t)tables + 1, sizeof *names);
    int loaded = 0;
    neo_status status = map && names ? NEO_OK : out_of_memory();
    if (status == NEO_OK) {
        map[0] = (neo_name_map){"bot_l.*", "bottom.*"};
        map[1] = (neo_name_map){"top_l.*", "top.*"};
        for (int32_t t = 0; t < tables; t++) {
            snprintf(names[t][0], sizeof names[t][0], "emb_l.%d.weight", t);
            snprintf(names[t][1], sizeof names[t][1], "bags.%s.weight", neo_bags_table_name(r->m.bags, t));
            map[t + 2] = (neo_name_map){names[t][0], names[t][1]};
        }
        status = neo_load_safetensors(r->m.ctx, r->o.load, map, tables + 2, 0, r->m.state, &loaded);
        if (status == NEO_OK) fprintf(stderr, "loaded %d tensors from %s\n", loaded, r->o.load);
    }
    free(names);
    free(map);
    return status;
}

static neo_status restore(run *r) {
    const options *o = &r->o;
    if (o->load) TRY(load_weights(r));
    if (!o->checkpoint) return NEO_OK;
    int64_t there = -1;
    if (!reads_only(o) && !o->resume) {
        if (neo_find_checkpoint(o->checkpoint, &there) == NEO_OK) {
            fprintf(stderr, "dlrm: --checkpoint %s: holds step %lld of an earlier run: add --resume to go on with it, "
                            "or name another directory\n", o->checkpoint, (long long)there);
            exit(2);
        }
        return NEO_OK;
    }
    neo_load_desc d = {.dir = o->checkpoint, .any_definition = reads_only(o) && !o->resume};
    neo_status status = neo_load(r->m.ctx, &d, r->m.state, &r->step);
    if (status == NEO_ERR_NOT_FOUND && o->resume && !reads_only(o) && r->reader) {
        fprintf(stderr, "no checkpoint in %s yet: starting from the beginning\n", o->checkpoint);
        return NEO_OK;
    }
    if (status == NEO_OK) fprintf(stderr, "loaded step %lld from %s\n", (long long)r->step, o->checkpoint);
    return status;
}

static neo_status write_report(run *r, double samples_per_s) {
    char text[64];
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
    TRY(neo_report_row(r->report, "Tensors", (const char *[]){"name", "dtype", "shape"}, 3));
    for (int i = 0; i < neo_state_count(r->m.state); i++) {
        neo_tensor t = neo_state_tensor(r->m.state, i);
        char shape[96] = "";
        for (int32_t k = 0; k < t.ndim; k++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", k ? " x " : "", (long long)t.shape[k]);
        TRY(neo_report_row(r->report, "Tensors", (const char *[]){neo_state_name(r->m.state, i), neo_dtype_name(t.dtype), shape}, 3));
    }
    return neo_report_write(r->report, r->o.report);
}

/* Dictionaries come from the training files, or from a checkpoint when only a test file is given. */
static neo_status fit_schema(run *r) {
    neo_state *dictionaries;
    if (neo_schema_is_fitted(r->m.schema)) return NEO_OK;
    if (r->train_count && strcmp(r->train_files[0], "-") == 0)
        return usage_error("%s", "words become ids by dictionaries, which need a pass of their own: --data - cannot give it");
    if (r->train_count && (!reads_only(&r->o) || !r->o.checkpoint))
        return neo_schema_fit(r->m.schema, r->train_files, r->train_count, r->o.bad_lines[0] == 's');
    if (!r->o.checkpoint) return usage_error("%s", "words become ids by dictionaries: give --data or --checkpoint");
    TRY(neo_state_create(r->m.ctx, &dictionaries));
    neo_status status = neo_state_add_schema(dictionaries, r->m.schema);
    if (status == NEO_OK)
        status = neo_load(r->m.ctx, &(neo_load_desc){.dir = r->o.checkpoint, .schema_only = 1}, dictionaries, NULL);
    neo_state_destroy(dictionaries);
    return status;
}

/* What cannot be written is better known before the training than after it. */
static void check_writable(const char *option, const char *path) {
    FILE *f = fopen(path, "rb");
    int existed = f != NULL;
    if (f) fclose(f);
    f = fopen(path, "ab");
    if (!f) {
        fprintf(stderr, "dlrm: --%s: %s: %s\n", option, path, strerror(errno));
        exit(1);
    }
    fclose(f);
    if (!existed) remove(path);
}
static void check_outputs(const options *o) {
    char probe[4096];
    if (o->report) check_writable("report", o->report);
    if (o->predict) check_writable("predict", o->predict);
    if (!o->checkpoint || reads_only(o)) return;
    for (char *p = o->checkpoint + 1;; p++) { /* make it, and what is above it */
        char c = *p;
        if (c != 0 && c != '/') continue;
        *p = 0;
        make_directory(o->checkpoint);
        *p = c;
        if (c == 0) break;
    }
    snprintf(probe, sizeof probe, "%s/.writable", o->checkpoint);
    check_writable("checkpoint", probe);
}

static neo_status set_up(run *r) {
    options *o = &r->o;
    neo_ctx_desc d = {.threads = (int)o->threads, .seed = (uint64_t)o->seed,
                      .repro_shards = (int)o->repro_shards, .logger = {.log = log_stderr}};
    if (getenv("NEO_ISA")) TRY(neo_isa_parse(getenv("NEO_ISA"), &d.isa));
    TRY(neo_ctx_create(&d, &r->m.ctx));
    r->train_count = split_list(o->data, r->train_files, MAX_FILES);
    r->test_count = split_list(o->test, r->test_files, MAX_FILES);
    TRY(create_schema(&r->m, o, r->train_count ? r->train_files : r->test_files,
                      r->train_count ? r->train_count : r->test_count));
    TRY(fit_schema(r));
    TRY(create_model(&r->m, o));
    TRY(open_reader(r));
    TRY(create_state(r));
    neo_exact_zero(&r->loss);
    TRY(restore(r));
    check_outputs(o);
    if (o->report) TRY(neo_report_create(r->m.ctx, "neo: DLRM training", &r->report));
    if (!o->log) return NEO_OK;
    TRY(neo_jsonl_open(r->m.ctx, o->log, o->resume || reads_only(o), &r->log));
    if (!r->step) return NEO_OK;
    neo_jsonl_int(r->log, reads_only(o) ? "loaded_step" : "resumed_step", r->step);
    return neo_jsonl_end(r->log);
}

/* The test data with the model as it is now; also for a resumed run that had nothing left to train. */
static neo_status evaluate_now(run *r) {
    int64_t started = neo_time_ns();
    TRY(evaluate_to_file(&r->m, &r->o, r->test_files, r->test_count, &r->test));
    if (r->samples) return NEO_OK;
    r->samples = r->test.count;
    r->train_ns = neo_time_ns() - started;
    return log_test(r);
}

static neo_status run_all(run *r) {
    const options *o = &r->o;
    double auc, logloss;
    TRY(set_up(r));
    if (!reads_only(o) && r->reader) TRY(train(r));
    if (o->predict || (!r->test.count && (r->test_count || o->synthetic))) TRY(evaluate_now(r));
    double samples_per_s = (double)r->samples / ((double)(r->train_ns + 1) * 1e-9);
    if (o->synthetic) {
        TRY(neo_schema_best(r->m.test_schema, o->synthetic, o->synthetic / 4 + 1, &auc, &logloss));
        printf("best possible auc=%.4f logloss=%.4f\n", auc, logloss);
    }
    if (r->report) TRY(write_report(r, samples_per_s));
    if (r->test.count) {
        if (r->test.base_rate <= 0 || r->test.base_rate >= 1)
            fprintf(stderr, "warning: all labels of the test data are alike\n");
        printf("test auc=%.4f logloss=%.4f ne=%.4f samples/s=%.0f\n", r->test.auc, r->test.logloss, r->test.ne, samples_per_s);
    }
    printf("state %016llx\n", (unsigned long long)neo_state_digest(r->m.state));
    return NEO_OK;
}

int main(int argc, char **argv) {
    static run r; /* zeroed */
    r.o = (options){.format = "criteo", .optimizer = "adagrad", .top = "64-1", .schedule = "constant",
                    .bad_lines = "error", .rows_dtype = "f32", .epochs = 1, .batch = 128, .dim = 16,
                    .repro_shards = 1, .pieces = 1, .log_every = 100, .auc_capacity = 4194304, .lr = 0.01};
    if (!parse_options(argc, argv, &r.o)) return 2;
    if (r.o.help) {
        print_help();
        return 0;
    }
    neo_status status = run_all(&r);
    if (status == NEO_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        fail("%s", "standard output: could not be written whole");
        status = NEO_ERR_IO;
    } else if (status != NEO_OK) fprintf(stderr, "%sdlrm: %s\n", isatty(fileno(stderr)) ? "\n" : "", neo_last_error());
    neo_reader_close(r.reader);
    neo_jsonl_close(r.log);
    neo_report_destroy(r.report);
    destroy_model(&r.m);
    return status == NEO_OK ? 0 : 1;
}
