/* train.h: the epochs of a run. */
#ifndef DLRM_TRAIN_H
#define DLRM_TRAIN_H
#include "eval.h"
#include "score.h"

/* A batch that trains; its loss is in m.sum[turn] when it is over. */
typedef struct batch_under_way {
    int turn;
    int64_t size; /* 0: there is none */
    int64_t end;  /* samples up to its last one */
    int64_t step; /* its step, counted from 1 */
} batch_under_way;

/* Reads r->next and its position, --prefetch - 1 batches ahead: on all ranks, or on none. */
static neo_status fetch(run *r) {
    neo_status status = NEO_OK;
    r->told -= r->told > 0; /* what was next is the batch that trains */
    while (r->count < r->o->prefetch && status == NEO_OK) {
        const int at = (r->first + r->count) % MOST_AHEAD;
        r->ahead[at].position = neo_reader_position(r->train.reader);
        status = agree(r->me.comm, read_batch(r, r->train.reader, &r->ahead[at].batch));
        r->count += status == NEO_OK;
    }
    r->position = r->ahead[r->first].position;
    if (r->count == 0 || (status != NEO_OK && status != NEO_END)) return status;
    r->next = r->ahead[r->first].batch;
    r->first = (r->first + 1) % MOST_AHEAD;
    r->count--;
    return NEO_OK;
}
/* `next` and those behind it that tables do not know. */
static told_batches new_batches(run *r) {
    told_batches to = {{0}, 0};
    for (; r->told <= r->count && r->told < r->o->prefetch; r->told++)
        to.at[to.count++] = r->told ? &r->ahead[(r->first + r->told - 1) % MOST_AHEAD].batch
                                    : &r->next;
    return to;
}

/* Adds the loss of a batch that is over. */
static neo_status count_loss(run *r, neo_progress *bar, const batch_under_way *b) {
    neo_exact *loss = &r->m.sum[b->turn].loss;
    TRY(sum_loss(&r->m, loss));
    neo_exact_merge(&r->loss, loss);
    neo_exact_merge(&r->epoch_loss, loss);
    r->epoch_samples += b->size;
    r->loss_samples += b->size;
    r->samples += b->size;
    double mean = neo_exact_value(loss) / (double)b->size;
    neo_progress_update(bar, b->end, mean);
    return cli_check_loss(&r->me, r->m.state, b->step, mean, r->m.dense);
}

/* Waits for the batch that may still run on a GPU. */
static neo_status finish_batch(run *r, neo_progress *bar, batch_under_way *b) {
    if (b->size == 0) return NEO_OK;
    TRY(graph_wait(r->m.graph));
    batch_under_way over = *b;
    b->size = 0;
    return count_loss(r, bar, &over);
}

/* Trains a batch, and counts its loss. With a graph it counts the loss of the batch before: this
   batch runs on a GPU while the next one is read and prepared. more: a next batch follows it. */
static neo_status launch_batch(run *r, neo_progress *bar, neo_batch *batch, int last, int more,
                               int64_t samples_before, batch_under_way *b) {
    float lr = neo_schedule_lr(&r->m.schedule, r->step);
    int64_t end = samples_before + batch->first + batch->global_size;
    neo_batch read = *batch;
    r->m.turn = 1 - r->m.turn;
    TRY(send_own_ids(&r->m, batch));
    TRY(graph_begin(r->m.graph));
    r->m.batch_number = r->step * r->o->micro_batches + r->m.kept;
    const told_batches next = more ? new_batches(r) : (told_batches){{0}, 0};
    TRY(train_batch(&r->m, batch, &next, last, lr));
    TRY(graph_end(r->m.graph));
    read.sparse = batch->sparse;
    TRY(score_keys(&r->m, &read));
    if (b->size) TRY(count_loss(r, bar, b));
    *b = (batch_under_way){r->m.turn, batch->global_size, end, r->step + 1};
    if (r->m.graph && !r->o->window) return NEO_OK;
    TRY(finish_batch(r, bar, b));
    if (!r->o->window) return NEO_OK;
    TRY(gather_batch(r, &read));
    return agree(r->me.comm, r->me.rank ? NEO_OK
                                        : count_batch(r, read.global_size, r->window));
}

/* Figures of training: of --window, and of all samples so far. */
static neo_status log_window(run *r, int task, int is_lifetime) {
    const char *name = is_lifetime ? "lifetime" : "window";
    char curve[128], prefix[16];
    named_figure all[MAX_FIGURES];
    neo_metric_values v;
    TRY(is_lifetime ? neo_metrics_lifetime(r->window[task], &v)
                    : neo_metrics_window(r->window[task], &v));
    int count = list_figures(&v, NULL, all);
    if (is_lifetime) all[count++] = (named_figure){"auc_error", v.auc_error};
    TRY(log_figures(r, name, task, all, count));
    snprintf(prefix, sizeof prefix, "%s_", name);
    mllog_stats(r, task, "step", (double)r->step, prefix, all, count);
    if (!r->m.report) return NEO_OK;
    name_task(r, name, " ", task, curve);
    TRY(neo_report_point(r->m.report, "Normalized entropy of training", curve, (double)r->step,
                         v.ne));
    return neo_report_point(r->m.report, "AUC of training", curve, (double)r->step, v.auc);
}

static neo_tier_stats tier_stats(const run *r) {
    return r->m.tier ? neo_tier_get_stats(r->m.tier) : (neo_tier_stats){0};
}
/* Leaves out of the report's next points what the tier has counted since `before`. */
static void forget_tier(run *r, neo_tier_stats before) {
    const neo_tier_stats s = tier_stats(r);
    r->tier.lookups += s.lookups - before.lookups;
    r->tier.hits += s.hits - before.hits;
    r->tier.read += s.read - before.read;
    r->tier.prefetched += s.prefetched - before.prefetched;
    r->tier.late += s.late - before.late;
    r->tier.written += s.written - before.written;
}
/* Points of the report about the tier of rank 0: of the steps since the last ones, and bytes. */
static neo_status report_tier(run *r) {
    neo_report *to = r->m.report;
    const neo_tier_stats s = tier_stats(r), last = r->tier;
    const double x = (double)r->step, steps = (double)(r->step - r->tier_step),
                 ids = (double)(s.lookups - last.lookups);
    const int64_t waited = s.read - s.prefetched - (last.read - last.prefetched);
    r->tier = s;
    r->tier_step = r->step;
    TRY(neo_report_point(to, TIER_CHARTS[0], "in memory", x,
                         ids > 0 ? 100 * (double)(s.hits - last.hits) / ids : 100));
    TRY(neo_report_point(to, TIER_CHARTS[1], "waited for", x, (double)waited / steps));
    TRY(neo_report_point(to, TIER_CHARTS[1], "late ones of these", x,
                         (double)(s.late - last.late) / steps));
    TRY(neo_report_point(to, TIER_CHARTS[1], "written", x,
                         (double)(s.written - last.written) / steps));
    TRY(neo_report_point(to, TIER_CHARTS[2], "memory", x, (double)s.memory_bytes / (1 << 20)));
    return neo_report_point(to, TIER_CHARTS[2], "below", x, (double)s.below_bytes / (1 << 20));
}

/* A point of the log and of the report's curves: the mean loss since the last one. */
static neo_status log_loss(run *r, double lr) {
    if (r->m.report) {
        TRY(neo_report_point(r->m.report, "Training loss", "train", (double)r->step, r->last_loss));
        TRY(neo_report_point(r->m.report, "Learning rate", "lr", (double)r->step, lr));
        if (r->m.tier) TRY(report_tier(r));
    }
    neo_jsonl_int(r->log, "step", r->step);
    neo_jsonl_int(r->log, "epoch", r->epoch);
    TRY(log_number(r, "loss", r->last_loss));
    TRY(log_number(r, "lr", lr));
    TRY(log_number(r, "samples_per_s", samples_per_s(r)));
    for (int t = 0; r->window[t] && t < r->m.tasks; t++)
        for (int k = 0; k < 2; k++) TRY(log_window(r, t, k));
    return r->log ? neo_jsonl_end(r->log) : NEO_OK;
}
static neo_status log_point(run *r, double lr) {
    if (!r->loss_samples) return NEO_OK;
    r->last_loss = neo_exact_value(&r->loss) / (double)r->loss_samples;
    neo_exact_zero(&r->loss);
    r->loss_samples = 0;
    return agree(r->me.comm, log_loss(r, lr));
}

/* Saves and logs after a step, where it is time. *started: of the time not counted yet. */
static neo_status end_step(run *r, neo_progress *bar, batch_under_way *b, int64_t *started) {
    const options *o = r->o;
    double lr = (double)neo_schedule_lr(&r->m.schedule, r->step++);
    r->saved = 0;
    r->stopped = r->m.sum[r->m.turn].stops > 0 && r->step % o->sync_every == 0;
    int saves = o->saves.every && r->step % o->saves.every == 0;
    int logs = r->step % o->log_every == 0;
    if (saves || logs || cli_digests_at(&o->saves, r->step)) TRY(finish_batch(r, bar, b));
    TRY(cli_digest(&r->me, &o->saves, r->m.state, r->step));
    TRY(board_histograms(&r->me, &o->board, r->events, r->m.dense, r->step));
    TRY(cli_save_poll(&r->me, r->step));
    if (saves) TRY(save(r));
    if (!logs) return NEO_OK;
    r->train_ns += neo_time_ns() - *started;
    *started = neo_time_ns();
    return log_point(r, lr);
}

/* Steps of an epoch; 0: not known. */
static int64_t epoch_steps(const run *r) { return r->m.schedule.total_steps / r->o->epochs; }

/* Whether --eval-every asks for an evaluation after step `step`, and the epoch has as many steps
   more as lie between two. */
static int is_test_step(const run *r, int64_t step) {
    int64_t steps = epoch_steps(r), done = step - r->epoch * steps;
    return r->test_steps && done % r->test_steps == 0 && steps - done >= r->test_steps;
}

/* Figures on the validation data, or else the test data. epochs: trained so far, as 0.05; text:
   empty. */
enum { LOOK_BYTES = 160 * MAX_TASKS };
static neo_status look_within(run *r, double epochs, char *text, size_t size) {
    int is_valid = r->job->valid_count > 0;
    figures *values = is_valid ? &r->valid : &r->test;
    const char *name = is_valid ? "valid" : "test";
    const neo_tier_stats before = tier_stats(r);
    mllog_epoch(r, "eval_start");
    TRY_SPAN(r->m.ctx, "evaluation", evaluate(r, describe_test(r, is_valid), NULL, values));
    forget_tier(r, before);
    if (r->stopped) return NEO_OK;
    mllog_accuracy(r, values, epochs);
    mllog_epoch(r, "eval_stop");
    TRY(agree(r->me.comm, log_values(r, name, values)));
    for (int t = 0; t < r->m.tasks; t++) {
        char task[128];
        size_t used = strlen(text);
        name_task(r, name, " ", t, task);
        snprintf(text + used, size - used, "  %s auc=%.4f logloss=%.4f", task, values->of[t].auc,
                 values->of[t].logloss);
    }
    return NEO_OK;
}

/* An evaluation of --eval-every. No batch is under way, and no ids of the next one travel. */
static neo_status test_within(run *r) {
    char text[LOOK_BYTES] = "";
    double epochs = (double)r->step / (double)epoch_steps(r);
    TRY(look_within(r, epochs, text, sizeof text));
    if (!r->stopped) cli_line(&r->me, "epoch %.3f%s\n", epochs, text);
    r->stopped &= r->step % r->o->sync_every == 0; /* else at the next step with replicas alike */
    return NEO_OK;
}

/* Reads a batch, and trains the one before; NEO_END: there is none more. *tests: an evaluation
   follows. */
static neo_status take_batch(run *r, neo_progress *bar, int64_t samples_before, batch_under_way *b,
                             int64_t *started, int *tests) {
    neo_batch batch = r->next;
    neo_status status = fetch(r);
    if (status != NEO_OK && status != NEO_END) {
        TRY(finish_batch(r, bar, b)); /* its error comes first */
        return status;
    }
    int last = status == NEO_END || r->m.kept + 1 == r->m.micro_batches;
    *tests = last && status == NEO_OK && is_test_step(r, r->step + 1);
    TRY(launch_batch(r, bar, &batch, last, status == NEO_OK && !*tests, samples_before, b));
    if (last) TRY(end_step(r, bar, b, started));
    if (*tests && !r->stopped) TRY(finish_batch(r, bar, b));
    return status;
}

/* Trains to the end of the epoch, or until a signal. */
static neo_status train_epoch(run *r, neo_progress *bar, int64_t samples_before) {
    int64_t started = neo_time_ns();
    batch_under_way b = {0};
    neo_exact_zero(&r->epoch_loss);
    r->epoch_samples = 0;
    neo_trace_begin(r->m.ctx, "first batch", -1);
    neo_status status = fetch(r);
    neo_trace_end(r->m.ctx);
    while (status == NEO_OK && !r->stopped) {
        int tests = 0;
        neo_trace_begin(r->m.ctx, "step", r->step);
        status = take_batch(r, bar, samples_before, &b, &started, &tests);
        neo_trace_end(r->m.ctx);
        if (status != NEO_OK && status != NEO_END) return status;
        if (!tests || r->stopped) continue;
        r->train_ns += neo_time_ns() - started;
        TRY(test_within(r));
        started = neo_time_ns();
    }
    TRY(finish_batch(r, bar, &b));
    if (r->m.tables) TRY(neo_shard_sync(r->m.tables)); /* replicas of tables */
    r->train_ns += neo_time_ns() - started;
    return status == NEO_END ? NEO_OK : status;
}

/* Labels of each task, and weights, as 1 minus the least and 1 plus the most, and the most. */
typedef struct extremes {
    float of[2 * MAX_TASKS + 1];
} extremes;
static void see_labels(extremes *most, const neo_batch *batch, int tasks) {
    const float *label = batch->label.data, *weight = batch->weight.data;
    float *heaviest = &most->of[2 * tasks];
    for (int64_t i = 0; weight && i < batch->size; i++)
        *heaviest = weight[i] > *heaviest ? weight[i] : *heaviest;
    for (int64_t i = 0; i < batch->size * tasks; i++) {
        float *of_task = most->of + 2 * (i % tasks);
        of_task[0] = 1 - label[i] > of_task[0] ? 1 - label[i] : of_task[0];
        of_task[1] = 1 + label[i] > of_task[1] ? 1 + label[i] : of_task[1];
    }
}
static int is_missing(const extremes *most, int task) { return most->of[2 * task + 1] == 0; }
static int is_uniform(const extremes *most, int task) {
    return 1 - most->of[2 * task] == most->of[2 * task + 1] - 1;
}
/* Every task has two labels, and a sample its weight: there is nothing to warn of. */
static int are_varied(const extremes *most, int tasks, int weighted) {
    int varied = !weighted || most->of[2 * tasks] > 0;
    for (int t = 0; t < tasks; t++)
        varied &= !is_missing(most, t) && !is_uniform(most, t);
    return varied;
}

/* Counts the samples of an epoch, for the schedule and the bar; 0 if the data cannot be read twice.
   Data of one label teaches nothing (a misspelt positive=, most often): a warning. Where the reader
   knows how many there are, it reads until there is nothing to warn of, else all. */
static neo_status count_samples(run *r, int64_t *samples) {
    neo_batch batch;
    neo_status status = NEO_OK;
    const int tasks = (int)r->m.tasks, weighted = neo_schema_is_sample_weighted(r->m.schema);
    int64_t known = 0;
    extremes most = {{0}};
    *samples = r->o->synthetic;
    if (*samples || is_stdin(r->job->train_files[0])) return NEO_OK;
    TRY(agree(r->me.comm, neo_reader_samples(r->train.reader, &known)));
    while ((status = read_batch(r, r->train.reader, &batch)) == NEO_OK) {
        see_labels(&most, &batch, tasks);
        *samples += batch.global_size;
        if (!known || !are_varied(&most, tasks, weighted)) continue;
        *samples = known;
        status = NEO_END;
        break;
    }
    status = agree(r->me.comm, status);
    if (status != NEO_END) return status;
    TRY(neo_comm_all_reduce(r->me.comm, NEO_REDUCE_MAX, most.of, most.of, 2 * tasks + 1, NEO_F32,
                            NULL));
    if (*samples && weighted && most.of[2 * tasks] == 0)
        say(&r->me, "warning: all weights of the training data's samples are 0\n");
    for (int t = 0; *samples && t < tasks; t++) {
        char task[128];
        name_task(r, "all labels", " ", t, task);
        if (is_missing(&most, t))
            say(&r->me, "warning: %s of the training data are missing\n", task);
        else if (is_uniform(&most, t))
            say(&r->me, "warning: %s of the training data are %g\n", task,
                (double)(most.of[2 * t + 1] - 1));
    }
    return agree(r->me.comm, neo_reader_epoch(r->train.reader, 0));
}

static neo_status make_schedule(run *r, int64_t samples) {
    const options *o = r->o;
    int64_t batches = (samples + o->batch - 1) / o->batch;
    int64_t steps = (batches + o->micro_batches - 1) / o->micro_batches * o->epochs;
    neo_schedule s = {.lr = (float)o->lr, .warmup_steps = o->warmup, .total_steps = steps};
    TRY(parse_schedule(o->schedule, &s.kind));
    double fraction;
    TRY(parse_eval_every(o->eval_every, &fraction));
    if (!samples && fraction > 0 && fraction < 1)
        REFUSE("--eval-every: standard input has no known length");
    if (!samples && s.kind != NEO_SCHEDULE_CONSTANT)
        REFUSE("--schedule %s: standard input has no known length; use constant", o->schedule);
    r->m.schedule = s;
    if (fraction > 0 && (r->job->valid_count || r->job->test_count || o->synthetic)) {
        r->test_steps = (int64_t)((double)epoch_steps(r) * fraction + 1e-9);
        if (r->test_steps < 1) r->test_steps = 1;
    }
    return NEO_OK;
}

/* The loss of the last point; of a run that was too short for one, of its samples. */
static double latest_loss(const run *r) {
    const int none = r->last_loss == 0 && r->loss_samples;
    return none ? neo_exact_value(&r->loss) / (double)r->loss_samples : r->last_loss;
}
/* Ends the bar, logs the steps since the last point, unless they are too few for their loss to mean
   something beside the other points (figures of --window do), and saves, or without --checkpoint
   looks at what it would save. */
static neo_status end_training(run *r, neo_progress *bar) {
    const options *o = r->o;
    int64_t point = o->log_every * o->batch * o->micro_batches; /* samples between two points */
    int64_t bad_lines = neo_reader_get_stats(r->train.reader).bad_lines;
    if (r->step < o->log_every || o->window || 2 * r->loss_samples >= point)
        TRY(log_point(r, (double)neo_schedule_lr(&r->m.schedule, r->step)));
    if (r->samples) neo_progress_end(bar, latest_loss(r));
    else if (r->epoch >= o->epochs - 1 && !r->stopped)
        say(&r->me, "nothing left to train: the run has had its %lld epoch%s\n",
            (long long)o->epochs, PLURAL(o->epochs));
    if (bad_lines)
        say(&r->me, "skipped %lld bad line%s\n", (long long)bad_lines, PLURAL(bad_lines));
    if (!r->saved) TRY(save(r));
    return neo_save_wait(&r->me.saving);
}

/* Keeps the model if it is the best on the validation data so far. */
static neo_status keep_best(run *r) {
    char more[128], auc[32], ne[32];
    cli_best now = {r->epoch, total_loss(r, &r->valid)}; /* known to rank 0 */
    TRY(neo_comm_broadcast(r->me.comm, &now.loss, 1, NEO_I64, 0, NULL));
    if (!cli_best_is(&r->best, now.at, now.loss)) return NEO_OK;
    r->best = now;
    if (!r->o->saves.dir) return NEO_OK;
    snprintf(more, sizeof more, ",\"valid_auc\":%s,\"valid_ne\":%s",
             cli_json(r->valid.of[0].auc, auc), cli_json(r->valid.of[0].ne, ne));
    return cli_best_keep(&r->me, &r->o->saves, r->m.state, r->step, r->o->lr, &now,
                         more);
}

/* Figures on the validation or the test data after an epoch, and the epoch's line. is_part: the
   run went on within it. */
static neo_status end_epoch(run *r, int64_t started, int is_part) {
    int is_valid = r->job->valid_count > 0, tests = r->job->test_count || r->o->synthetic;
    char text[LOOK_BYTES] = "";
    if (is_valid || tests) TRY(look_within(r, (double)r->epoch + 1, text, sizeof text));
    if (r->stopped) return NEO_OK;
    if (is_valid) TRY(keep_best(r));
    if (!r->epoch_samples) return NEO_OK; /* a resumed run had nothing left of it */
    cli_line(&r->me, "epoch %lld/%lld  loss=%.4f%s%s%s  %.1f s\n", (long long)r->epoch + 1,
             (long long)r->o->epochs, neo_exact_value(&r->epoch_loss) / (double)r->epoch_samples,
             is_part ? " (since the resume)" : "", text,
             is_valid && r->best.at == r->epoch ? " (best)" : "",
             1e-9 * (double)(neo_time_ns() - started));
    return NEO_OK;
}

/* --prune: keys whose rows are next to nothing go. To do it again changes nothing: a run may be
   resumed before or behind it. Collective. */
static neo_status prune_keys(run *r) {
    int64_t gone, sum = 0;
    if (!(r->o->prune > 0) || r->stopped) return NEO_OK;
    for (int32_t t = 0; t < neo_schema_feature_count(r->m.schema); t++, sum += gone)
        TRY(neo_shard_prune_keys(r->m.tables, t, (float)r->o->prune, 0, &gone));
    if (sum) cli_line(&r->me, "pruned %lld key%s\n", (long long)sum, PLURAL(sum));
    return NEO_OK;
}

/* --patience is at its end. */
static int is_over(const run *r) {
    int64_t waited = r->epoch - r->best.at;
    if (!r->o->patience || waited < r->o->patience) return 0;
    say(&r->me, "no better log loss for %lld epoch%s: stopped\n", (long long)waited,
        PLURAL(waited));
    return 1;
}

/* To where the checkpoint's run was in its data. */
static neo_status seek(const run *r, neo_reader *reader) {
    const neo_status status = neo_reader_seek(reader, &r->position);
    if (status != NEO_ERR_MISMATCH) return status;
    return neo_fail(status, "--%s: %s", r->o->synthetic ? "synthetic" : "data", neo_last_error());
}
static neo_status train(run *r) {
    const options *o = r->o;
    neo_comm *comm = r->me.comm;
    neo_reader *reader = r->train.reader;
    int64_t samples = 0;
    TRY(count_samples(r, &samples));
    TRY(agree(comm, make_schedule(r, samples)));
    mllog_run(r, samples);
    TRY(cli_catch_signals(&r->me));
    const int64_t first = r->position.word[0], done = r->position.word[1]; /* of that epoch */
    if (r->step > 0) TRY(agree(comm, seek(r, reader)));
    r->position = neo_reader_position(reader);
    TRY(cli_digests_begin(&r->me, &o->saves, r->m.state, r->step));
    r->tier = tier_stats(r), r->tier_step = r->step;
    r->best.at = -1;
    if (r->step > 0 && o->valid && o->saves.dir) TRY(cli_best_read(&r->me, &o->saves, &r->best));
    neo_progress bar = cli_progress(&r->me, samples * first + r->position.word[1],
                                    samples * o->epochs);
    neo_progress_begin(&bar);
    for (r->epoch = first; r->epoch < o->epochs; r->epoch++) {
        int64_t started = neo_time_ns();
        if (r->epoch > first) TRY(agree(comm, neo_reader_epoch(reader, r->epoch)));
        mllog_epoch(r, "epoch_start");
        TRY(train_epoch(r, &bar, samples * r->epoch));
        mllog_epoch(r, "epoch_stop");
        TRY(prune_keys(r));
        int last = r->stopped || r->epoch == o->epochs - 1;
        if (last) TRY(end_training(r, &bar)); /* saves before a long evaluation */
        else TRY(cli_check_state(&r->me, r->m.state, r->step));
        if (!r->stopped) TRY(end_epoch(r, started, r->epoch == first && done > 0));
        if (last) return NEO_OK;
        if (r->stopped || is_over(r)) break;
    }
    return end_training(r, &bar);
}
#endif
