/* guard.h: what a long run needs besides training: it stops where a signal asks it to, and goes on
   from there; a run that has diverged ends, and saves nothing; of all evaluations the best model is
   kept. */
#ifndef EXAMPLE_GUARD_H
#define EXAMPLE_GUARD_H
#include "digests.h"
#include <math.h>

/* From here on a signal stops the run after a step; before, when nothing is trained yet, it ends
   the program at once. Collective. */
static neo_status cli_catch_signals(const cli_rank *me) {
    int is_first = me->rank == 0 || me->job->silent; /* of its process */
    return agree(me->comm, is_first ? neo_stop_on_signals() : NEO_OK);
}

/* The last message of a run that a signal has stopped, and its exit status. saved: its checkpoint
   is there. */
static void cli_end_stopped(const cli_rank *me, const cli_saves *saves, int64_t step, int saved) {
    cli_job *job = me->job;
    pthread_mutex_lock(&job->lock);
    job->stopped = neo_stop_signal() ? neo_stop_signal() : 15; /* or another rank's */
    pthread_mutex_unlock(&job->lock);
    say(me, "%s: stopped at step %lld; ", job->program->name, (long long)step);
    if (saved) say(me, "saved to %s; go on with --resume\n", saves->dir);
    else if (saves->dir) say(me, "nothing was trained\n");
    else say(me, "nothing is saved without --checkpoint\n");
}

/* ---- a run that has diverged: it ends before it saves over good checkpoints ---- */

/* No model has larger weights. Optimizer state may have larger numbers. */
static const float MOST_WEIGHT = 1e8f;

static int is_weight(const char *name) {
    const char *end = strrchr(name, '.');
    return end && (!strcmp(end, ".weight") || !strcmp(end, ".bias") || !strcmp(end, ".scale"));
}

/* The largest weight of this rank, or a tensor that is not finite (*most is infinity). */
static neo_status largest_of_state(const neo_state *state, float *most, const char **name) {
    float here;
    *most = 0, *name = "all of them";
    for (int i = 0; i < neo_state_count(state); i++) {
        TRY(neo_state_look(state, i, &here, NULL));
        if (here < INFINITY && !is_weight(neo_state_name(state, i))) continue;
        if (here > *most) *most = here, *name = neo_state_name(state, i);
    }
    return NEO_OK;
}

/* "; the largest gradient norm is nan, of top.0.weight", of the dense layers. Collective. */
static neo_status largest_gradient(const cli_rank *me, neo_fsdp *dense, char *words, size_t bytes) {
    const int count = neo_fsdp_norm_count(dense);
    neo_param_norm *norms = malloc((size_t)(count + 1) * sizeof *norms);
    neo_status status = agree(me->comm, norms ? NEO_OK : out_of_memory());
    if (status == NEO_OK) status = neo_fsdp_norms(dense, norms);
    const int at = status == NEO_OK ? neo_norms_largest(norms, count) : -1;
    if (at >= 0)
        snprintf(words, bytes, "; the largest gradient norm at hand is %g, of %s", norms[at].grad,
                 norms[at].name);
    free(norms);
    return status;
}

/* Ends a run whose loss is not finite, or from whose state none can go on, before it saves over
   good checkpoints: a number of the state is not finite, or a weight above MOST_WEIGHT. The error
   names the tensor with the largest numbers of all ranks. Collective. loss: of the batch before the
   state, or 0, with the layers that it trained. is_saved: looks at the state although the loss is
   finite. */
static neo_status cli_check(const cli_rank *me, const neo_state *state, int64_t step, double loss,
                            neo_fsdp *dense, int is_saved) {
    float most, all;
    char words[256] = "the run has diverged";
    const char *name;
    if (loss - loss == 0 && !is_saved) return NEO_OK;
    TRY(agree(me->comm, largest_of_state(state, &most, &name)));
    TRY(neo_comm_all_reduce(me->comm, NEO_REDUCE_MAX, &most, &all, 1, NEO_F32, NULL));
    if (loss - loss == 0 && all <= MOST_WEIGHT) return NEO_OK;
    if (loss - loss != 0) {
        size_t length = (size_t)snprintf(words, sizeof words, "the loss is %g", loss);
        TRY(largest_gradient(me, dense, words + length, sizeof words - length));
    }
    if (most < all) return agree(me->comm, NEO_OK); /* another rank has the name */
    if (all < INFINITY)
        return agree(me->comm, neo_fail(NEO_ERR_NUMERIC, "step %lld: %s; the largest weight is %g, "
                                        "in %s", (long long)step, words, (double)all, name));
    return agree(me->comm, neo_fail(NEO_ERR_NUMERIC, "step %lld: %s; %s is not finite",
                                    (long long)step, words, name));
}
static neo_status cli_check_loss(const cli_rank *me, const neo_state *state, int64_t step,
                                 double loss, neo_fsdp *dense) {
    return cli_check(me, state, step, loss, dense, 0);
}
/* What is saved: before every checkpoint, and at the end of a run. */
static neo_status cli_check_state(const cli_rank *me, const neo_state *state, int64_t step) {
    return cli_check(me, state, step, 0, NULL, 1);
}

/* Saves a state that has not diverged, with metrics in its manifest: where d.dir is NULL it only
   looks. Collective. */
static neo_status cli_save(const cli_rank *me, const neo_state *state, neo_save_desc d) {
    neo_group group = neo_comm_group(me->comm);
    d.group = &group;
    d.model = me->job->model;
    TRY(cli_check_state(me, state, d.step));
    return d.dir ? neo_save(me->ctx, &d, state) : NEO_OK;
}
/* The same for a checkpoint of the run. Under --checkpoint-async it only begins: cli_save_poll
   after each step, or neo_save_wait, ends it. */
static neo_status cli_save_run(cli_rank *me, const cli_saves *saves, const neo_state *state,
                               neo_save_desc d) {
    neo_group group = neo_comm_group(me->comm);
    if (!saves->behind) return cli_save(me, state, d);
    d.group = &group;
    d.model = me->job->model;
    TRY(cli_check_state(me, state, d.step));
    return neo_save_begin(me->ctx, &d, state, &me->saving);
}
static neo_status cli_save_poll(cli_rank *me, int64_t step) {
    return step % 8 == 0 ? neo_save_poll(&me->saving) : NEO_OK; /* ranks ask each other */
}

/* Adds to the error of a run that has diverged where its numbers are large, unless cli_check says
   so, and what to do. */
static neo_status cli_advise(const cli_rank *me, const cli_saves *saves, const neo_state *state,
                             neo_status status) {
    char what[1024];
    int64_t saved;
    float most;
    const char *name;
    const char *clip = cli_find(me->job->program, "--clip") ? "--clip" : "--clip-norm";
    if (status != NEO_ERR_NUMERIC) return status;
    snprintf(what, sizeof what, "%s", neo_last_error());
    if (!strstr(what, "is not finite") && !strstr(what, "the largest weight")) {
        size_t length = strlen(what);
        if (largest_of_state(state, &most, &name) == NEO_OK)
            snprintf(what + length, sizeof what - length, "; the largest weight%s is %g, in %s",
                     me->ranks > 1 ? " of this rank" : "", (double)most, name);
    }
    if (saves->dir && neo_find_checkpoint(saves->dir, &saved) == NEO_OK)
        return neo_fail(status, "%s; --resume goes back to step %lld: give it a smaller --lr or "
                        "%s, or it diverges again", what, (long long)saved, clip);
    return neo_fail(status, "%s; there is no checkpoint: begin again with a smaller --lr or %s",
                    what, clip);
}

/* ---- the best model of all evaluations, in best/ of the checkpoints, with metrics.json ---- */

typedef struct cli_best {
    int64_t at; /* its epoch or step; -1: none yet */
    double loss;
} cli_best;

static const char *cli_best_path(const cli_saves *saves, const char *file, char *path) {
    snprintf(path, 4096, "%s/best%s", saves->dir, file);
    return path;
}

/* What neo_load says behind the fault of a checkpoint, and which has it, by the path there: its
   step, or -1. A newest one that is differential may be whole, and what it builds on not. */
#define CLI_BEFORE "; the checkpoint before it"
static long long cli_step_of(const char *said, const char *dir) {
    const char *at = strstr(said, dir);
    if (!at || strncmp(at + strlen(dir), "/step-", 6)) return -1;
    return strtoll(at + strlen(dir) + 6, NULL, 10);
}

/* Adds to the error of a load what makes the checkpoint fit, or the one before it come next. dir:
   of the checkpoint; sizes: the options that give shapes. */
static neo_status cli_advise_load(const cli_rank *me, neo_status status, const char *dir,
                                  neo_difference difference, const char *sizes) {
    const char *said = status == NEO_OK ? "" : neo_last_error(), *name = me->job->program->name;
    const char *of = strstr(said, ": heads is '")         ? "gpt" : /* the first word of its own */
                     strstr(said, ": row_buckets is '") ? "dlrm" : name;
    int64_t newest;
    if (strcmp(of, name) && strstr(said, "not defined here"))
        return neo_fail(status, "%s: it is a checkpoint of %s, not of %s", said, of, name);
    if (difference == NEO_DIFFERS_DEFINITION)
        return neo_fail(status, "%s: give the options of its training (\"not defined\" is the "
                        "default)", said);
    if (difference == NEO_DIFFERS_TENSORS)
        return neo_fail(status, "%s: give the %s of its training", said, sizes);
    if (difference == NEO_DIFFERS_DICTIONARY)
        return neo_fail(status, "%s: give the --data and --columns of its training", said);
    if (status == NEO_ERR_CORRUPT && strstr(said, CLI_BEFORE) &&
        neo_find_checkpoint(dir, &newest) == NEO_OK) {
        const long long damaged = cli_step_of(said, dir);
        if (damaged >= 0 && damaged < newest)
            return neo_fail(status, "%.*s; what follows step %lld builds on it: to go on from "
                            "before that, move %s/step-%012lld and all newer ones away",
                            (int)(strstr(said, CLI_BEFORE) - said), said, damaged, dir, damaged);
        return neo_fail(status, "%s: to go on from that, move %s/step-%012lld away", said, dir,
                        (long long)newest);
    }
    return status;
}

/* --resume: goes on from the newest checkpoint, or, where there is none, from the best model; where
   there is neither, nothing is loaded. *saved: the checkpoint of *step is there. lr: of this run,
   which says so where it was another one. sizes: the options that give shapes. Collective. */
static neo_status cli_go_on(const cli_rank *me, const cli_saves *saves, neo_load_desc d,
                            neo_state *state, double lr, const char *sizes, int64_t *step,
                            int *saved) {
    char best[4096];
    double was;
    neo_difference difference = NEO_DIFFERS_NOT;
    d.difference = &difference;
    neo_status status = neo_load(me->ctx, &d, state, step);
    *saved = status == NEO_OK;
    if (status == NEO_ERR_NOT_FOUND) {
        d.dir = cli_best_path(saves, "", best);
        status = neo_load(me->ctx, &d, state, step);
    }
    if (status == NEO_OK)
        say(me, "loaded step %lld from %s\n", (long long)*step, d.dir);
    if (status == NEO_OK && me->rank == 0 &&
        neo_checkpoint_metric(me->ctx, d.dir, *step, "lr", &was) == NEO_OK && was != lr)
        say(me, "warning: step %lld was saved with --lr %g, the run goes on with --lr %g\n",
            (long long)*step, was, lr);
    if (status != NEO_ERR_NOT_FOUND)
        return cli_advise_load(me, status, d.dir, difference, sizes);
    say(me, "no checkpoint in %s yet: starting from the beginning\n", saves->dir);
    return NEO_OK;
}

/* What the run that is resumed has reached. Collective. */
static neo_status cli_best_read(const cli_rank *me, const cli_saves *saves, cli_best *best) {
    char path[4096];
    long long at;
    double loss;
    best->at = -1;
    FILE *f = me->rank ? NULL : fopen(cli_best_path(saves, "/metrics.json", path), "r");
    if (f && fscanf(f, "{\"at\":%lld,\"loss\":%lf", &at, &loss) == 2)
        *best = (cli_best){at, loss};
    if (f) fclose(f);
    if (me->ranks == 1) return NEO_OK;
    return neo_comm_broadcast(me->comm, best, (int64_t)(sizeof *best / 8), NEO_I64, 0, NULL);
}

/* The evaluation `at` had this loss: is it the best so far? A run that goes on from before the best
   one comes by it again, and knows it. */
static int cli_best_is(const cli_best *best, int64_t at, double loss) {
    return loss - loss == 0 && at > best->at && (best->at < 0 || loss < best->loss);
}

/* A number of a JSON file. */
static const char *cli_json(double number, char text[32]) {
    snprintf(text, 32, number - number == 0 ? "%.17g" : "null", number);
    return text;
}

/* Keeps the state as the best, whose manifest has its loss, too. more: fields of metrics.json, from
   ',' on. Collective. */
static neo_status cli_best_keep(const cli_rank *me, const cli_saves *saves, neo_state *state,
                                int64_t step, double lr, const cli_best *best, const char *more) {
    char dir[4096], path[4096], partial[4096 + 8], loss[32];
    neo_metric metrics[] = {{"lr", lr}, {"valid_loss", best->loss}};
    neo_save_desc d = {.dir = cli_best_path(saves, "", dir), .step = step, .keep = 1,
                       .metrics = metrics, .metric_count = 2};
    TRY(cli_save(me, state, d));
    if (me->rank) return agree(me->comm, NEO_OK);
    snprintf(partial, sizeof partial, "%s.partial", cli_best_path(saves, "/metrics.json", path));
    FILE *f = fopen(partial, "w");
    int lost = !f;
    if (f) {
        fprintf(f, "{\"at\":%lld,\"loss\":%s,\"step\":%lld%s}\n", (long long)best->at,
                cli_json(best->loss, loss), (long long)step, more);
        lost = ferror(f) != 0;
        lost |= fclose(f) != 0;
    }
    if (!lost) lost = replace_file(partial, path) != 0;
    neo_status mine = NEO_OK;
    if (lost) mine = neo_fail(NEO_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    return agree(me->comm, mine);
}

/* Prints a line of an evaluation, on rank 0, over the bar of a terminal. */
static void cli_line(const cli_rank *me, const char *format, ...) {
    va_list args;
    if (me->rank) return;
    if (isatty(fileno(stderr))) fputs("\r\033[K", stderr);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}
#endif
