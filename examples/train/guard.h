/* guard.h: what a long run needs besides training: it stops where a signal asks it to, and goes on
   from there; of all evaluations it keeps the best model; it ends at a loss that is not finite. */
#ifndef EXAMPLE_GUARD_H
#define EXAMPLE_GUARD_H
#include "job.h"
#include <math.h>

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

/* ---- the best model of all evaluations, in best/ of the checkpoints, with metrics.json ---- */

typedef struct cli_best {
    int64_t at; /* its epoch or step; -1: none yet */
    double loss;
} cli_best;

static const char *cli_best_path(const cli_saves *saves, const char *file, char *path) {
    snprintf(path, 4096, "%s/best%s", saves->dir, file);
    return path;
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
    return at > best->at && (best->at < 0 || loss < best->loss);
}

/* Keeps the state as the best. more: fields of metrics.json, from ',' on. Collective. */
static neo_status cli_best_keep(const cli_rank *me, const cli_saves *saves, neo_state *state,
                                int64_t step, const cli_best *best, const char *more) {
    char dir[4096], path[4096], partial[4096 + 8];
    neo_group group = neo_comm_group(me->comm);
    neo_save_desc d = {.dir = cli_best_path(saves, "", dir), .step = step, .keep = 1,
                       .group = &group};
    TRY(neo_save(me->ctx, &d, state));
    if (me->rank) return agree(me->comm, NEO_OK);
    snprintf(partial, sizeof partial, "%s.partial", cli_best_path(saves, "/metrics.json", path));
    FILE *f = fopen(partial, "w");
    int lost = !f;
    if (f) {
        fprintf(f, "{\"at\":%lld,\"loss\":%.17g,\"step\":%lld%s}\n", (long long)best->at,
                best->loss, (long long)step, more);
        lost = ferror(f) != 0;
        lost |= fclose(f) != 0;
    }
    if (!lost) lost = replace_file(partial, path) != 0;
    neo_status mine = NEO_OK;
    if (lost) mine = neo_fail(NEO_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    return agree(me->comm, mine);
}

/* ---- a loss that is not finite ---- */

/* The largest number of an f32 tensor without its sign; infinity for one that is not finite. */
static neo_status largest_of(neo_ctx *ctx, neo_tensor t, float *most) {
    int64_t rows = t.ndim ? t.shape[0] : 1, columns = t.ndim > 1 ? t.shape[1] : 1;
    void *copy = NULL;
    if (t.dtype != NEO_F32 || t.ndim > 2 || rows * columns == 0) return NEO_OK;
    if (t.place == NEO_DEVICE) {
        copy = malloc((size_t)(rows * columns) * sizeof(float));
        if (!copy) return out_of_memory();
        neo_tensor host = neo_tensor_nd(copy, NEO_F32, t.ndim, t.shape);
        neo_status status = neo_tensor_copy(ctx, t, host);
        if (status != NEO_OK) return free(copy), status;
        t = host;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            int64_t at = (t.ndim ? i * t.stride[0] : 0) + (t.ndim > 1 ? k * t.stride[1] : 0);
            float x = fabsf(((const float *)t.data)[at]);
            if (!(x <= *most)) *most = x < INFINITY ? x : INFINITY;
        }
    free(copy);
    return NEO_OK;
}

/* Ends a run whose loss is not finite, before it saves over good checkpoints: the error names the
   weights, or numbers of their optimizer, that are the largest on all ranks. Collective. */
static neo_status cli_check_loss(const cli_rank *me, const cli_saves *saves,
                                 const neo_state *state, int64_t step, double loss) {
    float most = -1, all;
    int64_t saved;
    char back[256] = "there is no checkpoint";
    const char *name = "";
    if (loss - loss == 0) return NEO_OK;
    for (int i = 0; i < neo_state_count(state); i++) {
        float before = most;
        TRY(largest_of(me->ctx, neo_state_tensor(state, i), &most));
        if (most > before) name = neo_state_name(state, i);
    }
    TRY(neo_comm_all_reduce(me->comm, NEO_REDUCE_MAX, &most, &all, 1, NEO_F32, NULL));
    if (saves->dir && neo_find_checkpoint(saves->dir, &saved) == NEO_OK)
        snprintf(back, sizeof back, "--resume goes back to step %lld", (long long)saved);
    if (most < all) return agree(me->comm, NEO_OK); /* another rank has the name */
    const char *how = all < INFINITY ? "has the largest of all numbers" : "is not finite";
    return agree(me->comm,
                 neo_fail(NEO_ERR_NUMERIC,
                          "step %lld: the loss is %g; %s %s; %s, and a smaller --lr or clipping "
                          "may help", (long long)step, loss, name, how, back));
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
