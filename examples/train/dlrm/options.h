/* options.h: the options of dlrm, and the ones that contradict each other. */
#ifndef DLRM_OPTIONS_H
#define DLRM_OPTIONS_H
#include "files.h"

enum { MAX_TASKS = 16 }; /* labels of a sample */
enum { MAX_TOWERS = 256, MOST_AHEAD = 64 };

typedef struct options {
    char *data, *test, *valid, *format, *columns, *hot, *bad_lines;
    char *model, *cross, *wukong, *bottom, *top, *dtype, *rows_dtype, *optimizer, *schedule;
    char *tier, *plan, *save_plan, *wire_forward, *wire_backward, *pipeline, *dense_shard;
    char *cluster, *load, *predict, *report, *log, *mllog, *preset, *eval_every, *tasks, *group;
    char *evict, *profile, *save_profile, *save_plan_model;
    int64_t synthetic, epochs, batch, micro_batches, shuffle, rows, dim, seed, warmup;
    int64_t patience, summary, nodes, memory, row_buckets, show_plan, eval, log_every, auc_capacity;
    int64_t window, ndcg, dedup, keys, key_rows, admit, bloom, towers, hot_rows, skip_empty;
    int64_t warm_rows, checkpoint_bits, prefetch;
    int64_t replicas, sync_every;
    int no_format; /* --format is not given */
    double lr, weight_decay, eps, l1, l2, clip_norm, dropout, distinct, prune;
    cli_machine machine;
    cli_board board;
    cli_saves saves;
    int64_t full_every;
    neo_cluster measured; /* the lines of --cluster, by check_words */
} options;

/* What a model does with the pooled rows of the features. The last three add their result, one
   number, to a linear layer of the dense numbers. */
typedef enum meeting {
    DOTS,    /* dot products of all pairs, the bottom MLP's output being one more row */
    BESIDE,  /* rows and the bottom MLP's output lie side by side */
    WEIGHTS, /* rows are weights: their sum */
    MACHINE, /* a factorization machine: rows are factors and, last, a weight. One row for both, not
                a table more, is one look into memory, and `dim` columns stay whole vectors */
    AWARE    /* field-aware: a row has `dim` factors for every feature and, last, a weight */
} meeting;

/* What a model has. */
static const struct model_kind {
    const char *name, *bottom; /* of the layers of the dense numbers: an MLP, or one linear layer */
    meeting meets;
    enum { PLAIN, CROSSES, STACKS } between; /* with BESIDE: a cross network, Wukong layers */
    int top;                                 /* a top MLP */
    int64_t dim;      /* of --dim, unless given */
} MODELS[] = {
    {"dlrm", "bottom", DOTS, PLAIN, 1, 16},     {"dcnv2", "bottom", BESIDE, CROSSES, 1, 16},
    {"lr", "linear", WEIGHTS, PLAIN, 0, 1},     {"fm", "linear", MACHINE, PLAIN, 0, 16},
    {"deepfm", "linear", MACHINE, PLAIN, 1, 16}, {"ffm", "linear", AWARE, PLAIN, 0, 4},
    {"wukong", "bottom", BESIDE, STACKS, 1, 16},
};
typedef struct model_kind model_kind;
/* NULL: no model has that name. */
static const model_kind *kind_of(const options *o) {
    for (size_t i = 0; i < sizeof MODELS / sizeof MODELS[0]; i++)
        if (strcmp(o->model, MODELS[i].name) == 0) return &MODELS[i];
    return NULL;
}

/* Columns of a table; of the models without a bottom MLP those of each task, side by side. */
static int64_t row_width(const model_kind *kind, const options *o, int64_t features,
                         int64_t tasks) {
    int64_t one = kind->meets == AWARE ? features * o->dim + 1 : o->dim;
    return kind->meets < WEIGHTS ? one : tasks * one;
}

/* The defaults of --cross and --wukong, of the models that have them. */
#define CROSS "3x64"
#define WUKONG "2x64"
static const cli_option DLRM_OPTIONS[] = {
    CLI_GROUP("Data"),
    CLI_TEXT("data", data, "FILES", NULL,
             "training data, comma-separated; - is standard input, of mpirun rank 0's (of which "
             "MPICH hands on 64 KiB). Ranks leave FILE.neoindex beside text of 4 MiB or more, by "
             "which each parses its own part"),
    CLI_TEXT("test", test, "FILES", NULL,
             "test data, evaluated after every epoch; with --valid only at the end"),
    CLI_TEXT("valid", valid, "FILES", NULL,
             "validation data, evaluated after every epoch; the model with the least log loss is "
             "kept in best/ of --checkpoint, its figures in best/metrics.json"),
    CLI_COUNT("patience", patience, "N", NULL, 0, 1e6,
              "stop after N epochs without a better log loss of --valid; 0: never"),
    CLI_TEXT("format", format, "F", NULL,
             "criteo (label, 13 integers, 26 hex words, tab-separated), adult, delimited (any "
             "text, with --columns), libsvm (one feature: lr), libffm, npy or npz (TorchRec's, one "
             "or many ids; --data is what names begin with, as dir/day_0_), binary (MLPerf's "
             "int32[40]), raw (HugeCTR's, with --hot), or auto: by a look at the first file. "
             "Without it that look, or criteo: where it tells nothing, and of standard input"),
    CLI_TEXT("columns", columns, "FILE", NULL,
             "*description of the columns of delimited data. A column sample-weight multiplies "
             "losses (whose mean stays over samples, as torch's) and counts in all figures; each "
             "of several columns label is a task. Of criteo the names of those that are used, as "
             "I1-I5,C1,C14"),
    CLI_TEXT("tasks", tasks, "W,W,...", NULL,
             "*weights of the losses of a sample's labels, each a task with its own logit and "
             "figures: of synthetic data (up to 4), binary and raw, whose labels these are, and of "
             "npy and npz; of delimited data the description has them (label weight=W)"),
    CLI_TEXT("hot", hot, "A,B,C", NULL,
             "*raw: the ids that each feature has in every record, 13 f32 before them"),
    CLI_COUNT("rows", rows, "N", NULL, 0, 1e15,
              "*rows of each table: criteo hashes ids into them (100000); synthetic (10000); "
              "libsvm, libffm, npy, npz, binary and raw take ids modulo N (else as they are, and "
              "the largest of --data gives the rows)"),
    CLI_TEXT("bad-lines", bad_lines, "P", "error",
             "what a malformed line does: error (it stops the run) or skip (it is counted)"),
    CLI_COUNT("synthetic", synthetic, "N", NULL, 1, 1e12,
              "N generated samples with a planted truth, instead of --data, and a quarter as many "
              "to test (of --preset mlperf-dcnv2 MLPerf's part, 1/47); the best AUC that any model "
              "can reach on them is printed"),
    CLI_COUNT("epochs", epochs, "N", "1", 0, 1e6, "passes over the data"),
    CLI_COUNT("batch", batch, "N", "128", 1, 1e7, "*samples of a batch, on all ranks together"),
    CLI_COUNT("micro-batches", micro_batches, "K", "1", 1, 1e4,
              "*batches of a step: their gradients add, each divided by K; the last step of an "
              "epoch may have fewer"),
    CLI_COUNT("shuffle", shuffle, "N", NULL, 0, 1e9,
              "*samples shuffled together; 0: the order of the file"),

    CLI_FLAG("dedup", dedup,
             "bags of a feature that are equal within a rank's part of a batch (of a user's "
             "session, say) are sent and looked up once; no bit of the model changes"),
    CLI_NUMBER("distinct", distinct, "X", NULL, 1,
               "of --dedup: the part of the ids that are sent, by which plans and predictions "
               "count (a run prints its own at its end); 0: all"),
    CLI_TEXT("eval-every", eval_every, "F", NULL,
             "evaluate within an epoch too, every so much of it, as 1/20 or 0.05: after as many "
             "whole steps as fit; the last one is at the epoch's end"),

    CLI_GROUP("Model"),
    CLI_TEXT("preset", preset, "NAME", NULL,
             "*mlperf-dcnv2 or criteo-kaggle: options of a published configuration (below), which "
             "others override. Criteo's 26 tables have its rows, at most --rows; mlperf-dcnv2 "
             "generates its 214 ids a sample; its rules want --eval-every 1/20"),
    CLI_TEXT("model", model, "M", "dlrm",
             "*dlrm (pairwise dot products of the bottom MLP's output and all pooled rows), dcnv2 "
             "(a cross network over them), wukong (Wukong layers over them), lr (logistic "
             "regression: a weight of each dense number and id), fm (lr, and dot products of all "
             "pairs of pooled rows of two features; a row's last column is its weight; dense "
             "numbers stay linear), ffm (field-aware: a row has other factors for each feature "
             "that it meets) or deepfm (fm, and the top MLP over dense numbers and rows without "
             "their weights)"),
    CLI_TEXT("cross", cross, "LxR", NULL,
             "*dcnv2: L layers of rank R; L alone: layers of square matrices [" CROSS "; no more "
             "than columns]"),
    CLI_TEXT("wukong", wukong, "LxH", NULL,
             "*wukong: L layers whose MLP has H hidden numbers; half of the rows that a layer "
             "gives are linear in those it takes [" WUKONG "]"),
    CLI_COUNT("dim", dim, "N", NULL, 1, 1e6,
              "*columns of every table [16; lr: 1]; ffm: factors for each feature [4]. Rows of lr, "
             "fm, ffm and deepfm have as many for each of several labels"),
    CLI_TEXT("bottom", bottom, "A-B-C", NULL,
             "*widths of the bottom MLP: A is the dense numbers of the data (1: it has none), C is "
             "--dim [A-64-C]"),
    CLI_TEXT("top", top, "A-B-1", NULL,
             "*widths of the top MLP after its input; the last are the labels of a sample [64-1]"),
    CLI_NUMBER("dropout", dropout, "P", NULL, 1,
               "*share of the hidden numbers of the bottom and the top MLP that are 0 in a step of "
               "training, below 1; the others are divided by 1 - P"),
    CLI_TEXT("dtype", dtype, "T", "f32",
             "*numbers that the dense layers multiply: f32 or bf16, to which inputs, activations, "
             "their gradients and a copy of the weights are rounded; sums and weights stay f32"),
    CLI_TEXT("rows-dtype", rows_dtype, "T", "f32", "*numbers of table rows: f32, f16, bf16 or i8"),
    CLI_FLAG("keys", keys,
             "*ids are keys, hashes too (--rows is then their range, to 1e15), whose rows, of "
             "which there are --key-rows, come when they are seen and go when a set of rows is "
             "full; on a GPU a step is no graph then"),
    CLI_COUNT("key-rows", key_rows, "N", NULL, 0, 1e15,
              "*of --keys: rows of a table, filled up to a multiple of 32 R of --row-buckets; 0: "
              "as many as ids, which --rows says"),
    CLI_TEXT("evict", evict, "E", "lru",
             "*of --keys: who goes: lru (unused longest), lfu:N (used least; counts halve every N "
             "steps, without N never), age:N (unused for more than N steps) or score (the smallest "
             "sum of its samples' labels, times their weights: of clicks, say; what ranks send for "
             "it, 12 bytes a key, is in no prediction). Of --tier without --keys, lru or lfu: "
             "which rows leave memory; no bit depends on it"),
    CLI_COUNT("admit", admit, "N", NULL, 0, 1e15,
              "*of --keys: a key gets a row when it is seen for the Nth time; 0: the first"),
    CLI_FLAG("bloom", bloom,
             "*of --admit 2 to 15: how often a key was seen is counted in a Bloom filter of 8 "
             "bytes a row, which some keys pass too early, in place of 17 bytes a row"),
    CLI_NUMBER("prune", prune, "X", NULL, 1e9,
               "*of --keys: at the end of an epoch keys go whose row has a 2-norm below X"),

    CLI_GROUP("Optimizer"),
    CLI_TEXT("optimizer", optimizer, "O", "adagrad",
             "*sgd, adagrad (tables: row-wise), adagrad-full (tables: element by element), adam, "
             "adamw, lamb or ftrl (FTRL-proximal: --lr is its alpha, --eps its beta [1]; gradients "
             "are means over the batch, so a beta, --l1 and --l2 for sums are divided by "
             "--batch)"),
    CLI_NUMBER("lr", lr, "X", "0.01", 1e9, "learning rate"),
    CLI_TEXT("schedule", schedule, "S", "constant",
             "constant, or linear or cosine decay to 0 over all epochs"),
    CLI_COUNT("warmup", warmup, "N", NULL, 0, 1e9, "steps of linear warm-up"),
    CLI_NUMBER("weight-decay", weight_decay, "X", NULL, 1e9, "of the dense layers"),
    CLI_NUMBER("eps", eps, "X", NULL, 1e9, "of the optimizers; 0: the default of each"),
    CLI_NUMBER("l1", l1, "X", NULL, 1e9,
               "of ftrl, dense layers and tables: the larger, the more weights are exactly 0"),
    CLI_NUMBER("l2", l2, "X", NULL, 1e9, "of ftrl, likewise: draws weights towards 0"),
    CLI_NUMBER("clip-norm", clip_norm, "X", NULL, 1e30,
               "limit of the norm of all gradients, of dense layers and tables together; 0: none"),
    CLI_COUNT("seed", seed, "N", NULL, 0, 1e15, "*of initial weights and shuffling"),

    CLI_GROUP("Tables and MLPs on many ranks"),
    CLI_TEXT("plan", plan, "P", "auto",
             "where the tables lie: auto (a plan is searched), all by table (tw), columns (cw), "
             "rows (rw), as copies (dp), by combinations with nodes (twrw, twcw, grid), or as a "
             "file of --save-plan says"),
    CLI_COUNT("memory", memory, "BYTES", NULL, 0, 1e15,
              "that tables and their training may take on a rank, 64M or 2G too (of 1024 KiB or "
              "MiB, as plan has it); 0: no limit"),
    CLI_TEXT("tier", tier, "FILE", NULL,
             "of tables larger than memory: rows lie in a file, below a cache that takes, with "
             "copies of tables, --memory of each rank (the process takes 20 to 40 MB more, "
             "--checkpoint-async an eighth of --memory); it is scratch: made anew when the "
             "run resumes. Rank R of several has FILE.R. On a GPU --memory is the GPU's, - for "
             "FILE is memory of the host, and a step is no graph"),
    CLI_COUNT("prefetch", prefetch, "N", "1", 1, MOST_AHEAD,
              "of --tier: batches whose rows are known ahead: those that are in the file are read, "
              "and with 2 and more those that are in memory stay"),
    CLI_TEXT("profile", profile, "FILE", NULL,
             "of --tier: how often rows are used, by which tables share memory; without it evenly. "
             "Of --hot-rows and --warm-rows: which rows are used most"),
    CLI_TEXT("save-profile", save_profile, "FILE", NULL,
             "count how often the rows of tables are used by the training data, write it as text, "
             "for --profile FILE of dlrm and plan, and stop"),
    CLI_TEXT("save-plan-model", save_plan_model, "FILE", NULL,
             "count the ids of the training data, write batch, layers and tables as a model, for "
             "build/plan FILE CLUSTER --ranks ..., and stop: what other ranks and clusters would "
             "take. With --save-profile one pass counts for both"),
    CLI_COUNT("hot-rows", hot_rows, "N", NULL, CLI_AUTO, 1000000,
              "*the N rows of each table that are used most by --profile FILE (of --save-profile "
              "with this N or more; a checkpoint has its own) have a copy on every rank: their "
              "ids, rows and gradients do not travel; with --skip-empty, but for --replicas. auto: "
              "of each table as many as the links of the ranks that begin the training make worth "
              "it, within --memory: on others, another model, on one, none; a checkpoint's stay, "
              "on any ranks"),
    CLI_COUNT("warm-rows", warm_rows, "N", NULL, CLI_AUTO, 1000000,
              "*the next N rows, behind --hot-rows, have a copy on each of --nodes, cut over its "
              "ranks: their ids and rows stay in the node, their gradients cross once a row; V of "
              "--repro-shards is H of --nodes times a power of two; or auto, as of --hot-rows"),
    CLI_FLAG("skip-empty", skip_empty,
             "between ranks, rows of bags without an id in a rank's part of a table do not travel: "
             "for bags of few ids and tables cut by rows; ranks that are threads lend each other "
             "rows without it"),
    CLI_TEXT("cluster", cluster, "FILE", NULL,
             "how fast a rank computes, as plan --calibrate prints it: for plans, and for what "
             "--show-plan and --report predict"),
    CLI_FLAG("show-plan", show_plan, "print where each table is and why, and what a step takes"),
    CLI_TEXT("save-plan", save_plan, "FILE", NULL, "write the plan as text, for --plan FILE"),
    CLI_COUNT("row-buckets", row_buckets, "R", NULL, 0, 4096,
              "*ranges of rows that pooled sums add one by one, so that up to R ranks may share "
              "them; 0: V of --repro-shards; 1: a little faster on one rank"),
    CLI_TEXT("wire-forward", wire_forward, "T", "f32",
             "*how pooled rows travel: f32, f16, bf16, f8e4m3, f8e5m2, i8 or i4; on one rank too "
             "they are rounded to it"),
    CLI_TEXT("wire-backward", wire_backward, "T", "f32",
             "*how the gradients of pooled rows travel"),
    CLI_TEXT("pipeline", pipeline, "P", "on", "on (exchanges run beside the MLPs) or off"),
    CLI_TEXT("dense-shard", dense_shard, "S", "none",
             "how the dense layers are cut over the ranks: none, zero1, zero2 or full"),
    CLI_COUNT("towers", towers, "T", NULL, 1, MAX_TOWERS,
              "*put the tables of dlrm, dcnv2 or wukong in T towers, one or more on every node, of "
              "which a layer makes one row of --dim columns: only these rows leave the nodes"),
    CLI_COUNT("replicas", replicas, "R", "1", 1, 1024,
              "groups that the ranks form, each with all tables: --plan is of one group, and "
              "pooled rows stay in it"),
    CLI_COUNT("sync-every", sync_every, "K", "1", 1, 1e9,
              "*of --replicas: steps after which groups that step by their own samples average "
              "tables; 1: all step by all samples, with the bits of one rank"),
    CLI_COUNT("nodes", nodes, "H", "1", 1, 1024,
              "nodes that the ranks form; under mpirun hosts count, unless --ranks is given too"),

    CLI_MACHINE,
    CLI_SAVES,
    CLI_COUNT("checkpoint-delta", full_every, "N", NULL, 2, 1e9,
              "of N checkpoints one is full; the others have the rows of tables that have changed "
              "since the one before; not on a GPU yet"),
    CLI_COUNT("checkpoint-bits", checkpoint_bits, "N", NULL, 2, 8,
              "8, 4 or 2: checkpoints are for build/serve alone, with that many bits for each "
              "number of the tables, in a range that is searched for each row: they lose "
              "precision, and no run goes on from them"),
    CLI_TEXT("load", load, "FILE", NULL,
             "start from the weights of a safetensors file, by neo's names or those of "
             "facebookresearch/dlrm (bot_l.0.weight, top_l.0.weight, emb_l.3.weight)"),
    CLI_FLAG("eval", eval, "evaluate --test with the model of --checkpoint or --load, and stop"),
    CLI_TEXT("predict", predict, "FILE", NULL,
             "write a line for each sample of --test: a probability, or with several labels one "
             "of each, comma-separated; with --checkpoint or --load the model is read, and nothing "
             "trains but with --resume"),

    CLI_GROUP("Output"),
    CLI_FLAG("summary", summary, "print the model's layers, sizes and work, and stop"),
    CLI_TEXT("report", report, "FILE", NULL,
             "an HTML page with curves, where tables lie, what ranks hold and send, and with "
             "--trace what a step is made of, predicted and measured"),
    CLI_TEXT("log", log, "FILE", NULL, "JSON lines"),
    CLI_BOARD,
    CLI_TEXT("mllog", mllog, "FILE", NULL,
             "the log of MLPerf Training, open division, of benchmark dlrm_dcnv2 where --model is "
             "dcnv2: AUC is its eval_accuracy; other figures, of --window too, are tracked_stats; "
             "a resume adds to it"),
    CLI_COUNT("log-every", log_every, "N", "100", 1, 1e9, "steps between points of log and report"),
    CLI_COUNT("auc-capacity", auc_capacity, "N", "4194304", 1, 4294967296.0,
              "most samples of an evaluation's AUC, 8 bytes each; of more it has none"),
    CLI_COUNT("window", window, "N", NULL, 0, 1e9,
              "*figures of training in log, mllog and report: of the last N samples (window; of "
              "each task: with its label) and of all so far (lifetime, later epochs too), each "
              "predicted before the step that learns from it. AUC and PR AUC of all so far are "
              "of 65,536 bins of the logit, 2^-11 wide in -16 .. 16 (1 MiB of each task, in a "
              "checkpoint too); the exact AUC is no further off than lifetime_auc_error"),
    CLI_TEXT("group", group, "FEATURE", NULL,
             "figures of test and validation data in groups: the samples whose first id of this "
             "sparse feature is one, as a user's: AUC of each, and NDCG; weights do not count"),
    CLI_COUNT("ndcg", ndcg, "K", "10", 1, 1e9,
              "scores of a group that its NDCG looks at, with --group"),
};
/* Published configurations: options, and for generated and Criteo data the rows of each table (at
   most --rows) and, generated, the ids of each feature in a sample. */
static const cli_preset PRESETS[] = {
    /* MLPerf Training, recommendation_v2/torchrec_dlrm of mlcommons/training */
    {"mlperf-dcnv2",
     {"model", "dcnv2", "dim", "128", "bottom", "13-512-256-128", "cross", "3x512", "top",
      "1024-1024-512-256-1", "optimizer", "adagrad-full", "lr", "0.005", "eps", "1e-8", "batch",
      "65536", NULL}},
    /* bench/dlrm_s_criteo_kaggle.sh of facebookresearch/dlrm */
    {"criteo-kaggle",
     {"model", "dlrm", "dim", "16", "bottom", "13-512-256-64-16", "top", "512-256-1", "optimizer",
      "sgd", "lr", "0.1", "batch", "128", NULL}},
    {NULL, {NULL}},
};
typedef struct preset_tables {
    int64_t rows[26];
    int32_t hot[26];
    int test_part; /* generated test samples are this part of the training samples */
} preset_tables;
static const preset_tables PRESET_TABLES[] = {
    {{40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209,
      11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36},
     {3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1},
     47}, /* 4,195,197,692 / 89,137,319 */
    {{1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992,
      5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
     4},
};
/* The tables of --preset, or NULL. rows: of each, at most --rows. */
static const preset_tables *tables_of_preset(const options *o, int64_t rows[26]) {
    int k = 0;
    if (!o->preset) return NULL;
    while (strcmp(PRESETS[k].name, o->preset)) k++;
    for (int t = 0; t < 26; t++)
        rows[t] = o->rows && o->rows < PRESET_TABLES[k].rows[t] ? o->rows
                                                                : PRESET_TABLES[k].rows[t];
    return &PRESET_TABLES[k];
}
/* Samples of generated test data, after those of training. */
static int64_t synthetic_tests(const options *o) {
    int64_t rows[26];
    const preset_tables *preset = tables_of_preset(o, rows);
    return o->synthetic / (preset ? preset->test_part : 4) + 1;
}

static const cli_program DLRM = {"dlrm", "train a recommendation model on one rank or many",
                                 DLRM_OPTIONS, sizeof DLRM_OPTIONS / sizeof DLRM_OPTIONS[0],
                                 PRESETS};

/* The training data is only counted. */
static int only_counts(const options *o) { return o->save_profile || o->save_plan_model; }
/* The model is only read: nothing trains, nothing is saved. */
static int reads_only(const options *o) {
    return o->eval || (o->predict && !o->saves.resume && (o->saves.dir || o->load));
}

static neo_status check_files(const options *o) {
    const char *outputs[] = {o->predict, o->report, o->log, o->save_plan, o->save_profile,
                             o->save_plan_model, o->mllog, o->machine.trace};
    const char *lists[] = {o->data, o->test, o->valid};
    const char *files[] = {o->load, o->columns, o->plan, o->cluster, o->profile};
    enum { OUTPUTS = sizeof outputs / sizeof *outputs, LISTS = 3, FILES = 5 };
    TRY(check_list("data", o->data, MAX_FILES));
    TRY(check_list("test", o->test, MAX_FILES));
    TRY(check_list("valid", o->valid, MAX_FILES));
    for (int i = 0; i < OUTPUTS; i++) {
        for (int k = 0; k < FILES; k++)
            if (outputs[i] && ((k < LISTS && is_in_list(lists[k], outputs[i])) ||
                               (files[k] && is_same_file(files[k], outputs[i]))))
                REFUSE("%s is both read and written", outputs[i]);
        for (int k = 0; k < i; k++)
            if (outputs[i] && outputs[k] && is_same_file(outputs[i], outputs[k]))
                REFUSE("%s is to be written twice", outputs[i]);
    }
    return NEO_OK;
}

/* --format of who gives none, before a look at the data. --columns is a file of delimited text, or
   the names of Criteo's columns. */
static void guess_format(options *o) {
    FILE *description = o->columns && !o->format ? fopen(o->columns, "r") : NULL;
    o->no_format = !o->format;
    if (o->format) return;
    o->format = o->synthetic ? "criteo" : description ? "delimited" : o->hot ? "raw" : "criteo";
    if (description) (void)fclose(description);
}

/* Formats, and options that have no effect with them: formats.h. */
static neo_status check_format(const options *o);

/* Standard input is read once. */
static neo_status check_stdin(const options *o) {
    if (is_stdin(o->data) && o->epochs > 1) REFUSE("--data - can be read once: use --epochs 1");
    if (is_stdin(o->data) && is_stdin(o->test)) REFUSE("--data and --test cannot both be -");
    if (is_stdin(o->test) && !reads_only(o))
        REFUSE("--test - can be read once: use it with --eval or --predict and a checkpoint");
    if (is_stdin(o->valid)) REFUSE("--valid is read after every epoch: it cannot be -");
    return NEO_OK;
}

/* --tasks: weights of losses; how many, 0: not given. */
static neo_status parse_tasks(const char *text, float *weights, int *count) {
    const char *p = text;
    *count = 0;
    while (p && (p == text || *p == ',')) {
        char *end;
        if (p > text) p++;
        double weight = strtod(p, &end);
        if (end == p || !((float)weight > 0 && weight <= 1e9) || *count == MAX_TASKS) break;
        weights[(*count)++] = (float)weight;
        p = end;
    }
    if (p && (*p || !*count || p[-1] == ','))
        REFUSE("--tasks %s: not up to %d numbers above 0, joined by ','", text, MAX_TASKS);
    if (*count == 1 && !(weights[0] >= 1 && weights[0] <= 1))
        REFUSE("--tasks %s: a single label has nothing to be weighed against: give a number for "
               "each of several, as 1,0.5", text);
    return NEO_OK;
}

/* --eval-every: F in (0, 1], or 0: not given. */
static neo_status parse_eval_every(const char *text, double *fraction) {
    char *end = NULL;
    *fraction = 0;
    if (!text) return NEO_OK;
    *fraction = strtod(text, &end);
    if (end != text && *end == '/') {
        const char *below = end + 1;
        *fraction /= strtod(below, &end);
        if (end == below) end = NULL;
    }
    if (end == text || !end || *end || !(*fraction > 0 && *fraction <= 1))
        REFUSE("--eval-every %s: not a part of an epoch, as 1/20 or 0.05", text);
    return NEO_OK;
}

/* The model, and what it has not. */
static neo_status check_model(const options *o) {
    const model_kind *kind = kind_of(o);
    if (!kind) REFUSE("--model %s: not dlrm, dcnv2, wukong, lr, fm, ffm or deepfm", o->model);
    if (o->cross && kind->between != CROSSES) REFUSE("--cross is for --model dcnv2");
    if (o->wukong && kind->between != STACKS) REFUSE("--wukong is for --model wukong");
    if (o->bottom && kind->meets >= WEIGHTS)
        REFUSE("--bottom: --model %s has no bottom MLP", o->model);
    if (o->top && !kind->top) REFUSE("--top: --model %s has no top MLP", o->model);
    if (o->dropout > 0 && kind->meets >= WEIGHTS && !kind->top)
        REFUSE("--dropout: --model %s has no MLP", o->model);
    if (!(o->dropout < 1)) REFUSE("--dropout %g: must be below 1", o->dropout);
    if (o->dim > 1 && kind->meets == WEIGHTS)
        REFUSE("--dim %lld: --model %s has one weight of each id", (long long)o->dim, o->model);
    if (o->dim == 1 && kind->between == STACKS)
        REFUSE("--dim 1: the norms of --model wukong make 0 of a single column");
    if (o->dim == 1 && kind->meets == MACHINE)
        REFUSE("--dim 1: --model %s has a weight and at least one factor of each id", o->model);
    return NEO_OK;
}

/* --keys, --evict, --admit. */
enum { EVICTS = 4 };
static const char *const EVICT_NAMES[EVICTS] = {"lru", "lfu", "age", "score"}; /* as neo_evict */
static neo_status parse_keys(const options *o, neo_keys *keys) {
    const char *evict = o->evict, *colon = strchr(evict, ':');
    const size_t length = colon ? (size_t)(colon - evict) : strlen(evict);
    const char *given = o->admit       ? "admit" :
                        o->key_rows    ? "key-rows" :
                        o->prune > 0   ? "prune" : NULL;
    char *end = NULL;
    int policy = 0;
    *keys = (neo_keys){.on = o->keys != 0, .admit = o->admit, .bloom = o->bloom != 0};
    if (!o->keys && given) REFUSE("--%s is of --keys", given);
    if (!o->keys && !o->tier && cli_is_given("evict")) REFUSE("--evict is of --keys or --tier");
    if (o->bloom && (o->admit < 2 || o->admit > 15))
        REFUSE("--bloom is of --admit 2 to 15, which is %lld%s", (long long)o->admit,
               o->keys ? "" : ", and of --keys");
    while (policy < EVICTS && (length != strlen(EVICT_NAMES[policy]) ||
                               memcmp(evict, EVICT_NAMES[policy], length)))
        policy++;
    errno = 0;
    if (colon) keys->period = strtoll(colon + 1, &end, 10);
    const int bad = colon && (end == colon + 1 || *end || keys->period < 1 || errno);
    if (policy == EVICTS || bad || (colon && policy != NEO_EVICT_LFU && policy != NEO_EVICT_AGE) ||
        (!colon && policy == NEO_EVICT_AGE))
        REFUSE("--evict %s: not lru, lfu, lfu:N, age:N or score, N above 0", evict);
    keys->evict = (neo_evict)policy;
    keys->sums = policy == NEO_EVICT_SCORE;
    if (o->tier && !o->keys && policy >= NEO_EVICT_AGE)
        REFUSE("--evict %s: --tier has lru and lfu", evict);
    return NEO_OK;
}

/* Other options, and whether they are given. */
typedef struct other_option {
    const char *name;
    int given;
} other_option;
static neo_status goes_without(const char *option, const other_option *others, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (others[i].given) REFUSE("--%s does not go with --%s", option, others[i].name);
    return NEO_OK;
}

/* Towers, and what they do not do. */
static neo_status check_towers(const options *o) {
    const other_option without[] = {
        {"dedup", o->dedup != 0}, {"keys", o->keys != 0}, {"tier", o->tier != NULL},
        {"clip-norm", o->clip_norm > 0}, {"replicas", o->replicas > 1},
        {"micro-batches above 1", o->micro_batches > 1}, {"plan", strcmp(o->plan, "auto") != 0},
        {"show-plan", o->show_plan != 0}, {"save-plan", o->save_plan != NULL},
        {"summary", o->summary != 0}};
    if (!o->towers) return NEO_OK;
    if (kind_of(o)->meets >= WEIGHTS) REFUSE("--towers is for --model dlrm, dcnv2 or wukong");
    if (o->towers < o->nodes)
        REFUSE("--towers %lld: each of the %lld --nodes needs one", (long long)o->towers,
               (long long)o->nodes);
    return goes_without("towers", without, sizeof without / sizeof without[0]);
}

/* Hot rows, and what they do not do. */
static neo_status check_hot_rows(const options *o) {
    const other_option without[] = {
        {"dedup", o->dedup != 0}, {"keys", o->keys != 0}, {"tier", o->tier != NULL},
        {"load", o->load != NULL}, {"summary", o->summary != 0}, {"towers", o->towers != 0}};
    const int device = strcmp(o->machine.device, "cpu") != 0;
    if (o->skip_empty && (o->towers || device))
        REFUSE("--skip-empty is for --device cpu, and not for --towers");
    const char *name = o->hot_rows ? "hot-rows" : "warm-rows";
    if (!o->hot_rows && !o->warm_rows) return NEO_OK;
    if (!o->profile && !only_counts(o) && !reads_only(o) && !o->saves.resume)
        REFUSE("--%s needs --profile FILE, of a run with --save-profile FILE --%s ..., which names "
               "them", name, name);
    if (device) REFUSE("--%s is for --device cpu", name);
    if (o->hot_rows == CLI_AUTO && o->replicas > 1)
        REFUSE("--hot-rows auto does not go with --replicas: give a number");
    if (o->warm_rows && o->replicas > 1) REFUSE("--warm-rows does not go with --replicas");
    return goes_without(name, without, sizeof without / sizeof without[0]);
}
/* Replicas, and what they do not do. */
static neo_status check_replicas(const options *o) {
    const other_option without[] = {
        {"keys", o->keys != 0}, {"tier", o->tier != NULL}, {"skip-empty", o->skip_empty != 0}};
    const int apart = o->sync_every > 1;
    if (apart && o->replicas == 1) REFUSE("--sync-every is of --replicas");
    if (o->replicas > 1)
        TRY(goes_without("replicas", without, sizeof without / sizeof without[0]));
    if (apart && (o->clip_norm > 0 || o->micro_batches > 1))
        REFUSE("--sync-every above 1 does not go with --%s: gradients are those of a group",
               o->clip_norm > 0 ? "clip-norm" : "micro-batches above 1");
    if (apart && strcmp(o->rows_dtype, "f32"))
        REFUSE("--sync-every above 1 averages rows of f32, not of %s", o->rows_dtype);
    if (o->saves.every % o->sync_every)
        REFUSE("--every %lld: replicas are alike after each --sync-every %lld steps: a multiple",
               (long long)o->saves.every, (long long)o->sync_every);
    return NEO_OK;
}

/* Checkpoints to be served, and what they do not do. */
static neo_status check_served(const options *o) {
    const other_option without[] = {
        {"resume", o->saves.resume != 0}, {"checkpoint-delta", o->full_every != 0},
        {"valid", o->valid != NULL}, {"keys", o->keys != 0}, {"hot-rows", o->hot_rows != 0},
        {"warm-rows", o->warm_rows != 0},
        {"towers", o->towers != 0}};
    const int64_t bits = o->checkpoint_bits;
    if (!bits) return NEO_OK;
    if (bits != 8 && bits != 4 && bits != 2)
        REFUSE("--checkpoint-bits %lld: not 8, 4 or 2", (long long)bits);
    if (!o->saves.dir || strcmp(o->machine.device, "cpu"))
        REFUSE("--checkpoint-bits needs --checkpoint, and is for --device cpu");
    return goes_without("checkpoint-bits", without, sizeof without / sizeof without[0]);
}

/* Rows below memory, and what they do not do. */
static neo_status check_tier(const options *o) {
    if (o->profile && !o->tier && !o->hot_rows && !o->warm_rows)
        REFUSE("--profile is of --tier, --hot-rows and --warm-rows");
    const char *counts = o->save_profile ? "save-profile" : "save-plan-model";
    if (only_counts(o) && !o->data && !o->synthetic)
        REFUSE("--%s needs --data or --synthetic", counts);
    if (only_counts(o) && o->keys)
        REFUSE("--keys does not go with --%s: rows come and go", counts);
    if (only_counts(o) && o->summary) REFUSE("--summary does not go with --%s: each stops", counts);
    if (o->save_plan_model && o->towers)
        REFUSE("--towers does not go with --save-plan-model: build/plan knows none");
    if (o->prefetch > 1 && !o->tier) REFUSE("--prefetch is of --tier");
    if (!o->tier) return NEO_OK;
    if (!o->memory) REFUSE("--tier needs --memory, the bytes of its cache");
    if (!strcmp(o->tier, "-") && !strcmp(o->machine.device, "cpu"))
        REFUSE("--tier -: memory of the host is below that of --device cuda alone: name a file");
    return NEO_OK;
}

static neo_status check_options(const options *o) {
    int64_t ranks = o->machine.ranks;
    int has_data = o->data || o->synthetic, has_test = o->test || o->synthetic;
    int has_model = o->saves.dir || o->load;
    if (!has_data && !o->test) REFUSE("give --data, --synthetic or --test (--help explains)");
    if (!has_data && !has_model)
        REFUSE("--test without --data needs a model: --checkpoint or --load");
    if (o->valid && !o->data) REFUSE("--valid needs --data");
    if (o->patience && !o->valid) REFUSE("--patience needs --valid");
    if (ranks % o->nodes)
        REFUSE("--nodes %lld: must divide the %lld of --ranks", (long long)o->nodes,
               (long long)ranks);
    double fraction;
    TRY(parse_eval_every(o->eval_every, &fraction));
    if (o->eval_every && !has_test && !o->valid)
        REFUSE("--eval-every needs --test or --valid");
    TRY(cli_check_either("pipeline", o->pipeline, "on", "off"));
    TRY(check_hot_rows(o));
    TRY(check_tier(o));
    TRY(check_served(o));
    TRY(check_model(o));
    neo_keys keys;
    TRY(parse_keys(o, &keys));
    if ((o->l1 > 0 || o->l2 > 0) && strcmp(o->optimizer, "ftrl"))
        REFUSE("--%s is for --optimizer ftrl", o->l1 > 0 ? "l1" : "l2");
    if (o->weight_decay > 0 && strcmp(o->optimizer, "ftrl") == 0)
        REFUSE("--optimizer ftrl has --l2 instead of --weight-decay");
    TRY(cli_check_either("dtype", o->dtype, "f32", "bf16"));
    TRY(cli_check_machine(&o->machine));
    TRY(cli_check_either("bad-lines", o->bad_lines, "error", "skip"));
    if (o->load && o->saves.dir && (o->saves.resume || reads_only(o)))
        REFUSE("--load and --checkpoint would both give the weights: leave one out");
    TRY(cli_check_board(&o->board, &o->machine));
    TRY(cli_check_saves(&o->saves));
    if (o->full_every && (!o->saves.dir || strcmp(o->machine.device, "cpu")))
        REFUSE("--checkpoint-delta needs --checkpoint, and is not on a GPU yet");
    if ((o->eval || o->predict) && !has_test)
        REFUSE("--%s needs --test", o->eval ? "eval" : "predict");
    TRY(cli_check_load(o->load));
    if (o->eval && !has_model) REFUSE("--eval needs --checkpoint or --load");
    if (o->mllog && (o->summary || reads_only(o) || !has_data))
        REFUSE("--mllog is the log of a training");
    if (o->window && !has_data) REFUSE("--window is of training data");
    if (o->group && !has_test && !o->valid) REFUSE("--group needs --test or --valid");
    if (cli_is_given("ndcg") && !o->group) REFUSE("--ndcg is of groups: give --group");
    if (o->distinct > 0 && !o->dedup) REFUSE("--distinct is of --dedup");
    TRY(check_towers(o));
    TRY(check_replicas(o));
    TRY(check_format(o));
    TRY(check_stdin(o));
    return check_files(o);
}
#endif
