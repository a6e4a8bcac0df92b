/* eval.h: the model on the test data: figures, and predictions to a file. */
#ifndef DLRM_EVAL_H
#define DLRM_EVAL_H
#include "mllog.h"

/* Writes the probabilities of `size` samples. They are computed where the context does, as many at
   a time as fit there. */
static neo_status write_batch(run *r, neo_tensor logits, int64_t size, FILE *predictions) {
    model *m = &r->m;
    for (int64_t i = 0, n; i < size; i += n) {
        n = size - i < m->most_samples ? size - i : m->most_samples;
        neo_tensor here = neo_tensor_rows(logits, i, n), there = here; /* [n][tasks] */
        if (neo_ctx_device(m->ctx)) {
            there = neo_tensor_rows(m->logit, 0, n);
            TRY(neo_tensor_copy(m->ctx, here, there));
        }
        TRY(neo_activation_forward(m->ctx, NEO_ACT_SIGMOID, there, there));
        if (there.place == NEO_DEVICE) TRY(neo_tensor_copy(m->ctx, there, here));
    }
    for (int64_t i = 0; i < size * m->tasks; i++)
        fprintf(predictions, "%.9g%c", (double)((float *)logits.data)[i],
                (i + 1) % m->tasks ? ',' : '\n');
    return NEO_OK;
}

/* The samples of a batch that have a label of task t, in r->column; how many. */
static int64_t pick_task(run *r, int64_t size, int64_t t) {
    const float *logit = r->logits.data, *label = r->labels.data, *weight = r->weights.data;
    float *to[3] = {r->column[0].data, r->column[1].data, r->column[2].data};
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t at = i * r->m.tasks + t;
        if (label[at] != label[at]) continue;
        to[0][count] = logit[at], to[1][count] = label[at];
        if (weight) to[2][count] = weight[i];
        count++;
    }
    return count;
}

/* Counts a batch whose logits and labels rank 0 has, in the order of its samples. metrics:
   [tasks]. */
static neo_status count_batch(run *r, int64_t size, neo_metrics **metrics) {
    for (int t = 0; t < r->m.tasks; t++) {
        int64_t count = pick_task(r, size, t);
        neo_tensor logits = neo_tensor_rows(r->column[0], 0, count);
        neo_tensor labels = neo_tensor_rows(r->column[1], 0, count);
        if (r->weights.data)
            TRY(neo_metrics_update_weighted(metrics[t], logits, labels,
                                            neo_tensor_rows(r->column[2], 0, count)));
        else TRY(neo_metrics_update(metrics[t], logits, labels));
    }
    return NEO_OK;
}

/* The samples of a test with their groups, task by task; on rank 0. */
typedef struct grouped {
    neo_grouped_sample *samples[MAX_TASKS];
    int64_t count[MAX_TASKS], room[MAX_TASKS];
} grouped;

/* Adds a batch whose groups rank 0 has, up to --auc-capacity. */
static neo_status group_batch(run *r, int64_t size, grouped *g) {
    const float *logit = r->logits.data, *label = r->labels.data;
    const int64_t tasks = r->m.tasks;
    for (int64_t at = 0; at < size * tasks; at++) {
        const int64_t t = at % tasks;
        if (label[at] != label[at]) continue;
        if (g->count[t] == g->room[t]) {
            int64_t room = 2 * g->room[t] + 4096;
            void *more = realloc(g->samples[t], (size_t)room * sizeof **g->samples);
            if (!more) return out_of_memory();
            g->samples[t] = more, g->room[t] = room;
        }
        if (g->count[t] > r->o->auc_capacity) continue;
        g->samples[t][g->count[t]++] =
            (neo_grouped_sample){r->groups[at / tasks], logit[at], label[at]};
    }
    return NEO_OK;
}

/* The first id of --group in each sample of this rank, gathered at rank 0. Collective. */
static neo_status gather_groups(run *r, const neo_batch *batch) {
    const neo_jagged *s = &batch->sparse;
    const int64_t *ids = s->ids, *offsets = s->offsets;
    for (int64_t i = 0; i < batch->size; i++) {
        int64_t bag = r->group * s->batch + i;
        if (s->inverse) bag = s->feature_bags[r->group] + s->inverse[bag];
        r->own_groups[i] = offsets[bag] < offsets[bag + 1] ? ids[offsets[bag]] : -1;
    }
    return neo_comm_gather_samples(r->me.comm, r->own_groups, r->groups, batch->global_size, 1,
                                   NEO_I64, 0, NULL);
}

/* Copies this rank's logits to host memory. */
static neo_status fetch_logits(run *r, int64_t n) {
    neo_tensor there = neo_tensor_rows(r->m.logit, 0, n);
    if (!neo_ctx_device(r->m.ctx)) return NEO_OK;
    return neo_tensor_copy(r->m.ctx, there, neo_tensor_rows(r->own_logits, 0, n));
}

/* Whether a signal asks any rank to stop: in training that travels with the losses. Collective. */
static neo_status look_for_stop(run *r) {
    int64_t asked = neo_stop_signal() != 0;
    if (r->me.ranks > 1)
        TRY(neo_comm_all_reduce(r->me.comm, NEO_REDUCE_MAX, &asked, &asked, 1, NEO_I64, NULL));
    r->stopped = asked != 0;
    return NEO_OK;
}

/* The next batch of test or validation data. Collective. */
static neo_status next_of_tests(run *r, neo_reader *reader, neo_batch *batch) {
    return agree(r->me.comm, read_batch(r, reader, batch));
}

/* Gathers the logits, labels and weights of a batch as it was read at rank 0. Collective. */
static neo_status gather_batch(run *r, const neo_batch *read) {
    neo_comm *comm = r->me.comm;
    const int64_t tasks = r->m.tasks, size = read->global_size;
    TRY(fetch_logits(r, read->size));
    TRY(neo_comm_gather_samples(comm, r->own_logits.data, r->logits.data, size, tasks, NEO_F32, 0,
                                NULL));
    TRY(neo_comm_gather_samples(comm, read->label.data, r->labels.data, size, tasks, NEO_F32, 0,
                                NULL));
    if (!neo_schema_is_sample_weighted(r->m.schema)) return NEO_OK;
    return neo_comm_gather_samples(comm, read->weight.data, r->weights.data, size, 1, NEO_F32, 0,
                                   NULL);
}

/* What rank 0 does with a batch of a test that it has gathered. */
static neo_status use_batch(run *r, int64_t size, neo_metrics **metrics, grouped *g,
                            FILE *predictions) {
    neo_tensor logits = neo_tensor_rows(r->logits, 0, size);
    TRY(count_batch(r, size, metrics));
    if (r->group >= 0) TRY(group_batch(r, size, g));
    return predictions ? write_batch(r, logits, size, predictions) : NEO_OK;
}

static neo_status evaluate_batches(run *r, neo_reader *reader, neo_metrics **metrics, grouped *g,
                                   FILE *predictions) {
    neo_comm *comm = r->me.comm;
    neo_batch batch;
    neo_status status;
    int64_t batches = 0;
    while ((status = next_of_tests(r, reader, &batch)) == NEO_OK) {
        if (batches++ % 16 == 15) TRY(look_for_stop(r));
        if (r->stopped) return NEO_OK;
        const neo_batch read = batch;
        TRY(bring(&r->m, &batch));
        TRY(forward(&r->m, &batch));
        TRY(gather_batch(r, &read));
        if (r->group >= 0) TRY(gather_groups(r, &read));
        TRY(agree(comm, r->me.rank ? NEO_OK
                                   : use_batch(r, read.global_size, metrics, g, predictions)));
    }
    if (status != NEO_END) return status;
    return NEO_OK;
}

static void warn_of_test(const run *r, const neo_reader *reader, const figures *values) {
    int64_t bad_lines = neo_reader_get_stats(reader).bad_lines;
    const char *name = values == &r->test ? "test" : "validation";
    if (values->of[0].auc_count < values->of[0].count)
        say(&r->me, "warning: no AUC: the %s data has %lld samples, --auc-capacity is %lld\n",
            name, (long long)values->of[0].count, (long long)r->o->auc_capacity);
    if (bad_lines)
        say(&r->me, "skipped %lld bad line%s of the %s data\n", (long long)bad_lines,
            PLURAL(bad_lines), name);
}

/* A reader of the test data, or of the validation data. */
static neo_reader_desc describe_test(const run *r, int is_valid) {
    const job *j = r->job;
    return (neo_reader_desc){.schema = r->m.test_schema,
                             .paths = is_valid ? j->valid_files : j->test_files,
                             .path_count = is_valid ? j->valid_count : j->test_count};
}

/* Metrics of each task, on rank 0. Collective. */
static neo_status create_metrics(run *r, neo_metrics **metrics) {
    neo_status status = NEO_OK;
    const neo_metrics_desc d = {.capacity = r->o->auc_capacity,
                                .weighted = neo_schema_is_sample_weighted(r->m.schema)};
    for (int t = 0; !r->me.rank && status == NEO_OK && t < r->m.tasks; t++)
        status = neo_metrics_create(r->m.ctx, &d, &metrics[t]);
    if (status == NEO_ERR_MEMORY)
        status = neo_fail(status, "--auc-capacity %lld: %s", (long long)r->o->auc_capacity,
                          neo_last_error());
    return agree(r->me.comm, status);
}
static void destroy_metrics(neo_metrics **metrics) {
    for (int t = 0; t < MAX_TASKS; t++) neo_metrics_destroy(metrics[t]);
}

/* Runs the model over what d reads, and gives the figures on rank 0; changes no state. Ends early
   at a signal. predictions: of rank 0, or NULL; values: &r->test or &r->valid. */
static neo_status evaluate(run *r, neo_reader_desc d, FILE *predictions, figures *values) {
    source test = {NULL, NULL};
    neo_metrics *metrics[MAX_TASKS] = {NULL};
    grouped groups = {{NULL}, {0}, {0}};
    neo_status status = create_metrics(r, metrics);
    if (status == NEO_OK) status = open_source(r, d, &test);
    if (status == NEO_OK) status = evaluate_batches(r, test.reader, metrics, &groups, predictions);
    if (status == NEO_OK && !r->stopped) {
        for (int t = 0; !r->me.rank && status == NEO_OK && t < r->m.tasks; t++) {
            int64_t count = groups.count[t] > r->o->auc_capacity ? 0 : groups.count[t];
            status = neo_metrics_lifetime(metrics[t], &values->of[t]);
            if (status == NEO_OK)
                status = neo_grouped(groups.samples[t], count, r->o->ndcg, &values->groups[t]);
        }
        status = agree(r->me.comm, status);
    }
    if (status == NEO_OK && !r->stopped) warn_of_test(r, test.reader, values);
    close_source(&test);
    destroy_metrics(metrics);
    for (int t = 0; t < r->m.tasks; t++) free(groups.samples[t]);
    if (values == &r->test) r->tested = !r->stopped;
    return status;
}

/* Closes the file of predictions. `partial` takes the name of --predict when it is whole; it is
   that name already for a device or a pipe. */
static neo_status close_predictions(run *r, FILE *f, const char *partial, neo_status status) {
    const char *path = r->o->predict;
    int beside = strcmp(partial, path) != 0, lost = ferror(f) != 0;
    int whole = status == NEO_OK && !r->stopped;
    errno = 0;
    lost |= fclose(f) != 0;
    if (whole && !lost && beside) lost = rename(partial, path) != 0;
    const char *why = why_lost(errno);
    if (beside && (!whole || lost)) remove(partial);
    if (status == NEO_OK && lost)
        return neo_fail(NEO_ERR_IO, "--predict %s: could not be written whole%s", path, why);
    return status;
}

static neo_status evaluate_to_file(run *r) {
    const char *path = r->o->predict;
    char partial[4096];
    FILE *f = NULL;
    neo_status status = NEO_OK;
    neo_reader_desc d = describe_test(r, 0);
    if (!path) return evaluate(r, d, NULL, &r->test);
    d.unlabeled = 1;
    if (r->me.rank == 0) {
        snprintf(partial, sizeof partial, "%s%s", path, is_special_file(path) ? "" : ".partial");
        f = fopen(partial, "w");
        if (!f)
            status = neo_fail(NEO_ERR_IO, "--predict %s: cannot be written: %s", partial,
                              strerror(errno));
    }
    TRY(agree(r->me.comm, status));
    status = evaluate(r, d, f, &r->test);
    return agree(r->me.comm, f ? close_predictions(r, f, partial, status) : status);
}

/* Evaluates the model as it is now, also for a resumed run that had nothing left to train. */
static neo_status evaluate_now(run *r) {
    int64_t started = neo_time_ns();
    TRY_SPAN(r->m.ctx, "evaluation", evaluate_to_file(r));
    if (r->samples || r->stopped) return NEO_OK;
    r->samples = r->test.of[0].count;
    r->train_ns = neo_time_ns() - started;
    return agree(r->me.comm, log_values(r, "test", &r->test));
}
#endif
