/* mllog.h: --mllog, the log of MLPerf Training: lines ":::MLLOG {...}" with the keys that
   mlcommons/logging writes and its compliance checker asks for in dlrm_dcnv2, open division.
   Submitter and platform are placeholders. The log begins when data and model are there: a run
   that cannot start leaves an older log alone. Evaluation is after every epoch; the rules of the
   closed division want --eval-every 1/20. The pass that counts an epoch's samples is before
   run_start. Rank 0 has the file; elsewhere, and without the option, the calls do nothing. */
#ifndef DLRM_MLLOG_H
#define DLRM_MLLOG_H
#include "run.h"
#include <time.h>

/* value and metadata: as JSON; metadata without braces, may be "". */
static void mllog(const run *r, const char *type, const char *key, const char *value,
                  const char *metadata) {
    struct timespec now = {0};
    if (!r->mllog) return;
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(r->mllog,
            ":::MLLOG {\"namespace\": \"\", \"time_ms\": %lld, \"event_type\": \"%s\", "
            "\"key\": \"%s\", \"value\": %s, \"metadata\": {%s}}\n",
            (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, type, key, value, metadata);
    fflush(r->mllog);
}
static void mllog_number(const run *r, const char *key, double number) {
    char text[32];
    mllog(r, "POINT_IN_TIME", key, cli_json(number, text), "");
}
static void mllog_text(const run *r, const char *key, const char *text) {
    char value[64];
    snprintf(value, sizeof value, "\"%.50s\"", text);
    mllog(r, "POINT_IN_TIME", key, value, "");
}
/* key: epoch_start, eval_stop ...; of the epoch under way, from 1. */
static void mllog_epoch(const run *r, const char *key) {
    char metadata[64];
    snprintf(metadata, sizeof metadata, "\"epoch_num\": %lld", (long long)r->epoch + 1);
    mllog(r, strstr(key, "start") ? "INTERVAL_START" : "INTERVAL_END", key, "null", metadata);
}
/* Figures of a task, named as in --log. at: the unit's count, as {"epoch_num": 0.05}. */
static void mllog_figure(const run *r, int task, const char *unit, double at, const char *key,
                         const char *value) {
    char metadata[96];
    int length = snprintf(metadata, sizeof metadata, "\"%s\": %.12g", unit, at);
    if (r->m.tasks > 1)
        snprintf(metadata + length, sizeof metadata - (size_t)length, ", \"label\": %d", task);
    mllog(r, "POINT_IN_TIME", key, value, metadata);
}
static void mllog_stats(const run *r, int task, const char *unit, double at, const char *prefix,
                        const named_figure *all, int count) {
    char text[64 * MAX_FIGURES], number[32];
    int length = 0;
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s\"%s%s\": %s",
                           i ? ", " : "{", prefix, all[i].name, cli_json(all[i].value, number));
    snprintf(text + length, sizeof text - (size_t)length, "}");
    mllog_figure(r, task, unit, at, "tracked_stats", text);
}
/* An evaluation: AUC, which the rules call accuracy, and the other figures. epochs: trained until
   then. */
static void mllog_accuracy(const run *r, const figures *values, double epochs) {
    for (int t = 0; t < r->m.tasks; t++) {
        char auc[32];
        named_figure all[MAX_FIGURES];
        const int count = list_task(r, values, t, all);
        const int first = !strcmp(all[0].name, "auc");
        mllog_figure(r, t, "epoch_num", epochs, "eval_accuracy",
                     cli_json(values->of[t].auc, auc));
        mllog_stats(r, t, "epoch_num", epochs, "", all + first, count - first);
    }
}

/* Opens the log. */
static neo_status mllog_open(run *r) {
    const options *o = r->o;
    const int decays = strcmp(o->schedule, "constant") != 0;
    const int adagrad = strncmp(o->optimizer, "adagrad", 7) == 0;
    if (!o->mllog || r->me.rank > 0) return NEO_OK;
    r->mllog = fopen(o->mllog, o->saves.resume ? "a" : "w");
    if (!r->mllog)
        return neo_fail(NEO_ERR_IO, "--mllog %s: cannot be written: %s", o->mllog,
                        strerror(errno));
    mllog(r, "POINT_IN_TIME", "cache_clear", "true", "");
    mllog(r, "INTERVAL_START", "init_start", "null", "");
    mllog_text(r, "submission_benchmark", strcmp(o->model, "dcnv2") ? o->model : "dlrm_dcnv2");
    mllog_text(r, "submission_org", "unnamed");
    mllog_text(r, "submission_division", "open");
    mllog_text(r, "submission_status", "research");
    mllog_text(r, "submission_platform", "unnamed");
    mllog_number(r, "seed", (double)o->seed);
    mllog_number(r, "global_batch_size", (double)(o->batch * o->micro_batches));
    mllog_number(r, "gradient_accumulation_steps", (double)o->micro_batches);
    mllog_text(r, "opt_name", adagrad ? "adagrad" : o->optimizer);
    mllog_number(r, "opt_base_learning_rate", o->lr);
    mllog_number(r, "opt_weight_decay", o->weight_decay + o->l2);
    mllog_number(r, "opt_learning_rate_warmup_steps", (double)o->warmup);
    mllog_number(r, "opt_learning_rate_decay_start_step", decays ? (double)o->warmup : 0.0);
    if (!adagrad) return NEO_OK;
    mllog_number(r, "opt_adagrad_learning_rate_decay", 0.0);
    mllog_number(r, "opt_adagrad_initial_accumulator_value", 0.0);
    mllog_number(r, "opt_adagrad_epsilon", o->eps > 0 ? o->eps : 1e-10); /* of dense layers */
    return NEO_OK;
}

/* The schedule is made: training begins. samples: of an epoch. */
static void mllog_run(const run *r, int64_t samples) {
    const neo_schedule *s = &r->m.schedule;
    const int decays = s->kind != NEO_SCHEDULE_CONSTANT;
    mllog_number(r, "opt_learning_rate_decay_steps",
                 decays ? (double)(s->total_steps - s->warmup_steps) : 0.0);
    mllog_number(r, "train_samples", (double)samples);
    mllog(r, "INTERVAL_END", "init_stop", "null", "");
    mllog(r, "INTERVAL_START", "run_start", "null", "");
}

/* Training is over, or `status` or a signal ended it. */
static neo_status mllog_end(run *r, neo_status status) {
    const figures *values = r->job->valid_count ? &r->valid : &r->test;
    if (!r->mllog) return status;
    mllog_number(r, "eval_samples", (double)values->of[0].count);
    mllog(r, "INTERVAL_END", "run_stop", "null",
          status == NEO_OK && !r->stopped ? "\"status\": \"success\""
                                          : "\"status\": \"aborted\"");
    int lost = ferror(r->mllog) != 0;
    errno = 0;
    lost |= fclose(r->mllog) != 0;
    r->mllog = NULL;
    if (status == NEO_OK && lost)
        return neo_fail(NEO_ERR_IO, "--mllog %s: could not be written whole%s", r->o->mllog,
                        why_lost(errno));
    return status;
}
#endif
