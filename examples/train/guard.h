/* guard.h: what a long run needs besides training: it stops where a signal asks it to, and goes on
   from there. */
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
#endif
