/* fault_rank.c: one rank of an MPI job that has a fault, for tests/comm/mpi_faults.sh.

   comm_fault_rank FOLDER FAULT OPERATION [async]
   Rank 1 does what FAULT says instead of OPERATION: exit0, exit3, kill, stop (itself, by a signal),
   sleep, delay (by neo_comm_inject), abort, fail or return (its function). OPERATION "midway":
   while it sends a large message to rank 0. Each other rank writes FOLDER/rank.R, a line for each
   thing that it saw:
       what <tab> status <tab> message
   A rank whose part of the operation is complete without rank 1 goes on with barriers until it sees
   the error. All leave without MPI_Finalize, which would wait for the lost. FAULT "divergence" is
   many faults in one job: rank 1 calls something else or comes late, each time on a group of its
   own, made from one that must go on working; OPERATION "even" or "odd": half of the operations.
   FAULT "unheard": rank 2 sends to rank 3, whose function has returned; all hear of it. */
#define NEO_IMPLEMENTATION
#include "ranks.h"

#include <signal.h>

enum {
    SHORT_MS = 700,
    STOP_MS = 60000, /* the longest time for which a thread is stopped */
    LONG_MS = TEST_PATIENCE_MS,
    LIFE_S = 880,
    CULPRIT = 1,
    N = 300,
    LARGE = 300000,
    MOST = 16
};
static const char *folder, *fault, *operation;
static int async_calls, world_size, world_rank;
static FILE *file;

static void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}
static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }
static void say(const char *what, neo_status status) {
    static const char *const names[] = {"OK", "TIMEOUT", "PEER", "DIVERGED"};
    static const neo_status known[] = {NEO_OK, NEO_ERR_TIMEOUT, NEO_ERR_PEER, NEO_ERR_DIVERGED};
    const char *name = neo_status_string(status);
    for (int i = 0; i < 4; i++)
        if (status == known[i]) name = names[i];
    fprintf(file, "%s\t%s\t%s\n", what, name, status == NEO_OK ? "" : neo_last_error());
    fflush(file);
}
/* White box: what is healthy must have all the time it needs; the fault must show soon. Nothing is
   in flight. */
static void set_timeout(neo_comm *comm, int ms) { comm->desc.timeout_ms = ms; }

/* Rank 1 comes when the others have given up, however long their threads are stopped; or not. */
static void sleep_over(neo_comm *comm) {
    for (int i = 0; i < LONG_MS / 20 && neo_comm_status(comm) == NEO_OK; i++) sleep_ms(20);
}
/* The operation `name`; twist: what rank 1 does otherwise, or "". */
static neo_status call(neo_comm *c, const char *name, const char *twist, neo_ticket *t) {
    static float in[LARGE * MOST], out[LARGE * MOST];
    int64_t in_counts[MOST], out_counts[MOST], n = strstr(name, "large") ? LARGE : N;
    int size = neo_comm_size(c), rank = neo_comm_rank(c), root = is(twist, "root") ? 0 : size - 1;
    neo_dtype dtype = is(twist, "dtype") ? NEO_I32 : NEO_F32;
    neo_reduce reduce = is(twist, "reduce") ? NEO_REDUCE_MAX : NEO_REDUCE_SUM;
    if (is(twist, "size")) n += 16;
    if (is(fault, "divergence"))
        neo_comm_label(c, is(twist, "label") ? "h.3" : strchr(name, 'l') ? "h.2" : NULL);
    for (int p = 0; p < size; p++) {
        in_counts[p] = n + (rank + 2 * p) % 3 + (is(twist, "pair") && p == 0);
        out_counts[p] = n + (p + 2 * rank) % 3;
    }
    if (strstr(name, "all_reduce")) return neo_comm_all_reduce(c, reduce, in, out, n, dtype, t);
    if (strstr(name, "reduce_scatter"))
        return neo_comm_reduce_scatter(c, reduce, in, out, n, NULL, dtype, t);
    if (strstr(name, "all_gather")) return neo_comm_all_gather(c, in, out, n, NULL, dtype, t);
    if (strstr(name, "all_to_allv"))
        return neo_comm_all_to_allv(c, in, in_counts, out, out_counts, dtype, t);
    if (strstr(name, "all_to_all")) return neo_comm_all_to_all(c, in, out, n, dtype, t);
    if (strstr(name, "broadcast")) return neo_comm_broadcast(c, out, n, dtype, root, t);
    if (strstr(name, "gather")) return neo_comm_gather(c, in, out, n, NULL, dtype, root, t);
    if (strstr(name, "scatter")) return neo_comm_scatter(c, in, out, n, NULL, dtype, root, t);
    if (is(name, "midway") && rank == 0) return neo_comm_recv(c, out, LARGE, dtype, CULPRIT, t);
    if (is(name, "midway") && rank == CULPRIT) return neo_comm_send(c, in, LARGE, dtype, 0, t);
    return neo_comm_barrier(c, t);
}
static neo_status settled(neo_comm *c, const char *name, const char *twist, int async) {
    neo_ticket ticket = -1;
    neo_status status = call(c, name, twist, async ? &ticket : NULL);
    return status == NEO_OK && async && ticket >= 0 ? neo_comm_wait(c, ticket) : status;
}
/* Until it sees an error. */
static neo_status suffer(neo_comm *c, const char *what, const char *name, const char *twist) {
    neo_status status = settled(c, name, twist, async_calls);
    for (int i = 0; status == NEO_OK && i < 16; i++)
        status = settled(c, "barrier", "", async_calls);
    say(what, status);
    return status;
}

/* What rank 1 does to itself. */
static neo_status strike(neo_comm *comm) {
    neo_fault delay = {NEO_FAULT_DELAY, 3, STOP_MS + 5 * SHORT_MS};
    neo_ticket ticket;
    if (is(operation, "midway")) EXPECT_OK(comm, call(comm, operation, "", &ticket));
    sleep_ms(200); /* the others are done with what went before, the message is on its way */
    if (is(fault, "exit0")) _exit(0);
    if (is(fault, "exit3")) _exit(3);
    if (is(fault, "kill")) raise(SIGKILL);
    if (is(fault, "stop")) raise(SIGSTOP); /* until rank 0 kills it */
    if (is(fault, "sleep")) sleep_over(comm);
    if (is(fault, "delay")) EXPECT_OK(comm, neo_comm_inject(comm, delay));
    if (is(fault, "abort")) neo_comm_abort(comm, "the disk is full");
    return NEO_OK;
}
static neo_status lost(neo_comm *comm, void *user) {
    int64_t one = 1, sum = 0;
    (void)user;
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &one, &sum, 1, NEO_I64, NULL));
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    if (!is(fault, "abort") && !is(fault, "fail"))
        set_timeout(comm, SHORT_MS); /* those need no timeout */
    if (world_rank == CULPRIT) {
        EXPECT_OK(comm, strike(comm));
        if (is(fault, "fail")) return neo_fail(NEO_ERR_IO, "the disk is full");
        if (is(fault, "return")) return NEO_OK;
    }
    if (is(operation, "midway")) sleep_ms(500);
    neo_status status = suffer(comm, "fault", operation, "");
    say("again", neo_comm_barrier(comm, NULL));
    say("again", neo_comm_status(comm));
    neo_comm *next;
    EXPECT_ERR(comm, neo_comm_rebuild(comm, &next), NEO_ERR_UNSUPPORTED, "threads backend");
    EXPECT(comm, !next, "a new group");
    return neo_fail(status, "%s", comm->failure.message);
}

/* Rank 1 calls something else, or comes late: a group for each. */
static neo_status one_divergence(neo_comm *comm, const char *name, const char *twist,
                                 const char *other) {
    neo_comm *group = NULL;
    char what[80];
    snprintf(what, sizeof what, "%s/%s", twist, name);
    EXPECT_OK(comm, neo_comm_split(comm, 0, 0, &group));
    EXPECT_OK(group, neo_comm_barrier(group, NULL));
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    /* With these both may wait for messages that the other does not send. */
    if (is(twist, "root") || is(twist, "other") || is(twist, "late")) set_timeout(group, SHORT_MS);
    int mine = world_rank == CULPRIT;
    if (mine && is(twist, "late")) sleep_over(group);
    (void)suffer(group, what, mine && is(twist, "other") ? other : name, mine ? twist : "");
    say("again", neo_comm_barrier(group, NULL));
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL)); /* the parent works */
    neo_comm_destroy(group);
    return NEO_OK;
}
static neo_status divergence(neo_comm *comm, void *user) {
    static const char *const names[][2] = {{"all_reduce", "broadcast"},
                                           {"large all_reduce", "large all_gather"},
                                           {"reduce_scatter", "all_to_all"},
                                           {"all_gather", "reduce_scatter"},
                                           {"large all_gather", "barrier"},
                                           {"all_to_all", "all_gather"},
                                           {"all_to_allv", "all_to_all"},
                                           {"large all_to_allv", "broadcast"},
                                           {"broadcast", "all_reduce"},
                                           {"large broadcast", "scatter"},
                                           {"gather", "scatter"},
                                           {"scatter", "gather"},
                                           {"barrier", "all_reduce"}};
    static const char *const twists[] = {"size", "dtype", "reduce", "root",
                                         "pair", "other", "late",   "label"};
    (void)user;
    for (size_t k = is(operation, "odd"); k < sizeof names / sizeof names[0]; k += 2)
        for (int t = 0; t < 8; t++) {
            const char *name = names[k][0];
            if (t < 2 && (is(name, "barrier") || (t == 0 && strstr(name, "allv")))) continue;
            if (t == 2 && !strstr(name, "reduce")) continue;
            if (t == 3 && !strstr(name, "broadcast") && !is(name, "gather") && !is(name, "scatter"))
                continue;
            if (t == 4 && !strstr(name, "allv")) continue;
            if (t == 6 && k % 3 != 0) continue; /* they take long */
            async_calls = (int)(k / 2 + (size_t)t) % 2;
            NEO__TRY(one_divergence(comm, name, twists[t], names[k][1]));
        }
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    return NEO_OK;
}

static int files_of_others(void) {
    int there = 0;
    for (int r = 0; r < world_size; r++) {
        char path[600];
        snprintf(path, sizeof path, "%s/done.%d", folder, r);
        there += access(path, F_OK) == 0;
    }
    return there;
}
static neo_status unheard(neo_comm *comm, void *user) {
    int64_t numbers[16] = {0};
    (void)user;
    return neo_comm_rank(comm) == 2 ? neo_comm_send(comm, numbers, 16, NEO_I64, 3, NULL) : NEO_OK;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *rank =
        getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    folder = argv[1];
    fault = argv[2];
    operation = argv[3];
    async_calls = argc > 4;
    world_rank = rank ? atoi(rank) : 0;
    world_size = launched();
    char path[600];
    alarm(LIFE_S); /* a launcher that is stopped may not reach its ranks */
    snprintf(path, sizeof path, "%s/pid.%d", folder, world_rank);
    FILE *pid = fopen(path, "w");
    if (!pid) return 2;
    fprintf(pid, "%d\n", (int)getpid());
    fclose(pid);
    snprintf(path, sizeof path, "%s/rank.%d", folder, world_rank);
    file = fopen(path, "w");
    if (!file) return 2;
    neo_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = LONG_MS;
    desc.queue_length = 8;
    neo_comm_fn run = is(fault, "divergence") ? divergence : is(fault, "unheard") ? unheard : lost;
    if (run == unheard) checks = 1;
    neo_status status = neo_comm_init_env(&desc, run, NULL);
    say("end", status); /* with the message that it was left with */
    fprintf(file, "checks\t%d\t%d\n", checks, failures);
    fclose(file);
    snprintf(path, sizeof path, "%s/done.%d", folder, world_rank);
    FILE *done = fopen(path, "w");
    if (done) fclose(done);
    /* A launcher may end all when one leaves: first all that are still there write their files. */
    int there = world_size - (is(fault, "exit0") || is(fault, "exit3") || is(fault, "kill") ||
                              is(fault, "stop"));
    for (int i = 0; i < 10000 && files_of_others() < there; i++) sleep_ms(20);
    if (is(fault, "stop") && world_rank == 0) { /* the stopped one cannot leave */
        int stopped = 0;
        snprintf(path, sizeof path, "%s/pid.%d", folder, CULPRIT);
        pid = fopen(path, "r");
        if (pid && fscanf(pid, "%d", &stopped) == 1 && stopped > 1) kill(stopped, SIGKILL);
    }
    _exit(0);
}
