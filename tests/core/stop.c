/* stop.c: a signal is kept for neo_stop_signal, the same one delivered twice counts once, a read
   that it interrupts goes on, and another one later ends the program; one that is ignored stays so.

   A child process makes it all, and tells by its exit status how far it came. */
#include "neo_run.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_ms(int64_t ms) {
    int64_t until = neo_time_ns() + ms * 1000000;
    while (neo_time_ns() < until) usleep(1000);
}
/* Signals the thread that reads, and then lets it read. */
static void *signal_reader(void *pipe_and_reader) {
    void **args = pipe_and_reader;
    wait_ms(50);
    pthread_kill(*(pthread_t *)args[1], SIGINT);
    wait_ms(50);
    if (write(((int *)args[0])[1], "x", 1) != 1) _exit(9);
    return NULL;
}
static int child(void) {
    int ends[2];
    char got = 0;
    pthread_t self = pthread_self(), other;
    void *args[2] = {ends, &self};
    if (neo_stop_on_signals() != NEO_OK || neo_stop_signal() != 0 || pipe(ends) != 0) return 1;
    if (pthread_create(&other, NULL, signal_reader, args) != 0) return 2;
    if (read(ends[0], &got, 1) != 1 || got != 'x') return 3; /* not EINTR */
    pthread_join(other, NULL);
    if (neo_stop_signal() != SIGINT) return 4;
    raise(SIGTERM); /* less than half a second later */
    if (neo_stop_signal() != SIGINT) return 5;
    wait_ms(600);
    raise(SIGTERM);
    return 6;
}
/* SIGINT is ignored, as in a script's background. */
static int child_ignoring(void) {
    signal(SIGINT, SIG_IGN);
    if (neo_stop_on_signals() != NEO_OK) return 1;
    raise(SIGINT);
    if (neo_stop_signal() != 0) return 2;
    raise(SIGTERM);
    return neo_stop_signal() == SIGTERM ? 0 : 3;
}

static void signals(void) {
    int status = 0;
    CHECK_INT(neo_stop_signal(), 0);
    pid_t pid = fork();
    if (pid == 0) _exit(child());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status)) CHECK_INT(WEXITSTATUS(status), -1);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK_INT(neo_stop_signal(), 0);
    pid = fork();
    if (pid == 0) _exit(child_ignoring());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

int main(void) {
    RUN(signals);
    return test_end("core/stop");
}
