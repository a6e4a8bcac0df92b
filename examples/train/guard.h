/* guard.h: what a long run needs besides training: it stops where a signal asks it to, and goes on
   from there; of all evaluations it keeps the best model. */
#ifndef EXAMPLE_GUARD_H
#define EXAMPLE_GUARD_H
#include "job.h"

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

/* ---- the best model of all evaluations, in <checkpoints>/best, its figures in metrics.json ---- */

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
