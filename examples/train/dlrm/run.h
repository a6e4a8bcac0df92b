/* run.h: the run of one rank: its model, its readers, and what it logs. */
#ifndef DLRM_RUN_H
#define DLRM_RUN_H
#include "served.h"
#include "step.h"

/* Shared by the ranks of a process; constant once they have started, but for `cli`. */
typedef struct job {
    cli_job cli;
    options o;
    const char *train_files[MAX_FILES], *test_files[MAX_FILES], *valid_files[MAX_FILES];
    int train_count, test_count, valid_count;
    neo_ctx *ctx;          /* of generated */
    neo_schema *generated; /* for ranks that are threads: the generator, whose figures they share */
} job;

/* Of each task. */
typedef struct figures {
    neo_metric_values of[MAX_TASKS];
    neo_grouped_values groups[MAX_TASKS]; /* of --group */
} figures;

/* A reader, and the stream of its standard input, if it has one. */
typedef struct source {
    neo_reader *reader;
    neo_comm_input *input;
} source;

/* Charts of the report about --tier. */
static const char *const TIER_CHARTS[] = {"Ids whose rows the tier has in memory, rank 0, %",
                                          "Rows that the tier moves in a step, rank 0",
                                          "Tables of the tier, rank 0, MiB"};

typedef struct run {
    cli_rank me;
    model m;
    const job *job;
    const options *o;
    source train;
    neo_batch next;
    neo_position position; /* of `next`; saved with the state */
    struct {
        neo_batch batch;
        neo_position position;
    } ahead[MOST_AHEAD]; /* batches behind `next`, or its own, from `first` on */
    int first, count;
    int told; /* of `next` and these: tables know them */
    int64_t step;          /* steps taken, in all runs */
    int64_t samples;       /* trained in this run, on all ranks */
    int64_t test_steps;    /* from one evaluation of --eval-every to the next; 0: none */
    int64_t train_ns;      /* time of those samples; of evaluation, if nothing trains */
    int64_t epoch;
    neo_exact loss;        /* since the last point of the log */
    int64_t loss_samples;
    double last_loss;      /* mean of the last point */
    neo_tier_stats tier;   /* of rank 0 at the last point of the report, */
    int64_t tier_step;     /* after so many steps */
    neo_tensor logits, labels; /* [batch][tasks]: of all ranks, on rank 0 */
    neo_tensor weights;        /* [batch][1], likewise */
    neo_tensor column[3];      /* [batch][1]: logits, labels, weights of one task, on rank 0 */
    neo_tensor own_logits;     /* of this rank, in host memory */
    int32_t group;             /* --group: the feature, or -1 */
    int64_t *own_groups, *groups; /* [batch]: ids; the second on rank 0 */
    neo_metrics *window[MAX_TASKS]; /* of training, on rank 0; or NULL */
    neo_jsonl *log;        /* of rank 0, as are the next four */
    neo_events *events;    /* of TensorBoard */
    FILE *mllog;
    neo_exact epoch_loss;  /* since the epoch began, or the run went on in it */
    int64_t epoch_samples;
    cli_best best;         /* epoch and log loss; on all ranks */
    figures test, valid;
    int tested;            /* on all ranks */
    int stopped;           /* by a signal; on all ranks */
    int saved;             /* the checkpoint of `step` is there */
} run;

static double samples_per_s(const run *r) {
    return (double)r->samples / ((double)(r->train_ns + 1) * 1e-9);
}

/* Opens a reader of this rank's samples, in batches of --batch unless d has another: on rank 0
   first, which leaves an index of text to the others, and sends standard input to all ranks.
   Collective. */
static neo_status open_source(run *r, neo_reader_desc d, source *s) {
    int from_stdin = 0;
    for (int i = 0; i < d.path_count; i++) from_stdin |= is_stdin(d.paths[i]);
    if (!d.batch) d.batch = r->o->batch;
    d.skip_bad_lines = r->o->bad_lines[0] == 's';
    d.dedup = r->o->dedup != 0;
    d.rank = r->me.rank;
    d.world_size = r->me.ranks;
    if (from_stdin && r->me.ranks > 1) {
        TRY(agree(r->me.comm, neo_comm_input_open(r->me.comm, NULL, &s->input)));
        d.input = neo_comm_input_source(s->input);
    }
    for (int turn = 0; turn < 2; turn++) {
        neo_status status = NEO_OK;
        if (turn == (r->me.rank > 0))
            status = advise_data(r->o, neo_reader_open(r->m.ctx, &d, &s->reader));
        TRY(agree(r->me.comm, status));
    }
    return NEO_OK;
}

static neo_status read_batch(const run *r, neo_reader *reader, neo_batch *batch) {
    return advise_data(r->o, neo_reader_next(reader, batch));
}
static void close_source(source *s) {
    neo_reader_close(s->reader);
    neo_comm_input_close(s->input);
}

/* "test", or of several tasks "test" SEPARATOR "click". */
static void name_task(const run *r, const char *name, const char *separator, int task,
                      char text[128]) {
    snprintf(text, 128, r->m.tasks > 1 ? "%s%s%.90s" : "%s", name, separator,
             neo_schema_label(r->m.schema, task).name);
}

/* A number into the line of the log that is being written, and onto the board. */
static neo_status log_number(run *r, const char *key, double value) {
    neo_jsonl_number(r->log, key, value);
    return board_number(r->events, key, r->step, value);
}

/* Figures by their names in logs, without areas under curves where too many samples came for them;
   behind FIGURES those of --group, if groups is not NULL. There is room for one more. */
enum { FIGURES = 8, AREAS = 2, MAX_FIGURES = FIGURES + 3 };
typedef struct named_figure {
    const char *name;
    double value;
} named_figure;
static int list_figures(const neo_metric_values *v, const neo_grouped_values *groups,
                        named_figure all[MAX_FIGURES]) {
    const named_figure list[] = {
        {"auc", v->auc}, {"pr_auc", v->pr_auc}, {"logloss", v->logloss}, {"ne", v->ne},
        {"mse", v->mse}, {"mae", v->mae}, {"calibration", v->calibration},
        {"accuracy", v->accuracy}, {"gauc", groups ? groups->auc : 0},
        {"ndcg", groups ? groups->ndcg : 0}};
    const int first = v->auc_count < v->count ? AREAS : 0;
    const int count = (groups ? FIGURES + 2 : FIGURES) - first;
    memcpy(all, list + first, (size_t)count * sizeof *all);
    return count;
}
static int list_task(const run *r, const figures *values, int task,
                     named_figure all[MAX_FIGURES]) {
    return list_figures(&values->of[task], r->group < 0 ? NULL : &values->groups[task], all);
}

/* The figures of a task. */
static neo_status log_figures(run *r, const char *name, int task, const named_figure *all,
                              int count) {
    char key[160], of_task[128];
    name_task(r, name, "_", task, of_task);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s_%s", of_task, all[i].name);
        TRY(log_number(r, key, all[i].value));
    }
    return NEO_OK;
}

/* name: "test" or "valid". */
static neo_status log_values(run *r, const char *name, const figures *values) {
    char task[128];
    for (int t = 0; r->m.report && t < r->m.tasks; t++) {
        const neo_metric_values *v = &values->of[t];
        name_task(r, name, " ", t, task);
        TRY(neo_report_point(r->m.report, "Test AUC", task, (double)r->step, v->auc));
        TRY(neo_report_point(r->m.report, "Test log loss", task, (double)r->step, v->logloss));
    }
    if (!r->log && !r->events) return NEO_OK;
    neo_jsonl_int(r->log, "step", r->step);
    for (int t = 0; t < r->m.tasks; t++) {
        named_figure all[MAX_FIGURES];
        TRY(log_figures(r, name, t, all, list_task(r, values, t, all)));
    }
    return r->log ? neo_jsonl_end(r->log) : NEO_OK;
}

/* The log loss of all tasks together, as the training's loss is made. */
static double total_loss(const run *r, const figures *values) {
    double sum = 0;
    if (r->m.tasks == 1) return values->of[0].logloss;
    for (int t = 0; t < r->m.tasks; t++)
        if (values->of[t].count)
            sum += (double)neo_schema_label(r->m.schema, t).weight * values->of[t].logloss;
    return sum;
}

/* Saves a checkpoint, if the run has not diverged. Collective. */
static neo_status save(run *r) {
    neo_state *state = r->m.served.state ? r->m.served.state : r->m.state;
    neo_metric lr = {"lr", r->o->lr};
    neo_save_desc d = {.dir = r->o->saves.dir, .step = r->step, .metrics = &lr, .metric_count = 1,
                       .copy_bytes = r->o->tier ? (size_t)r->o->memory / 8 : 0,
                       .full_every = (int)r->o->full_every};
    if (r->m.served.state && d.dir) {
        TRY(cli_check_state(&r->me, r->m.state, r->step));
        TRY(encode_served(&r->m));
    }
    TRY(cli_save_run(&r->me, &r->o->saves, state, d));
    r->saved = d.dir != NULL;
    return NEO_OK;
}
#endif
