/* schedules.c: random programs of collectives on random ranks, of which some go wrong, on the
   virtual clock of the threads backend.

   A schedule is made from its number alone: 2 to 6 ranks, up to 24 steps (an operation on the world
   or, in some schedules, on the half of a rank, blocking or waited for later, with sleeps between),
   and up to two culprits, each with one fault at one step. Every rank makes all steps to the end,
   whatever it has seen:
     - what an operation gave with NEO_OK is right, and a group without a culprit works to its end;
     - the group of the fault (of a rank that has gone: all its groups) is broken on every rank
       of it that is left, by a message that names a culprit, and every later call says the same;
     - survivors that call neo_comm_rebuild agree on who is in the new group, and its sum is right;
       (Of ranks that wait for each other in a ring none may stand out: in one of 1000 schedules
       a timeout may name another.)
     - nothing hangs (a watchdog ends the program), all memory is given back.

     schedules [FIRST COUNT]    by default the first 400 schedules, a million where ATTACK is set */
#include "../comm/ranks.h"
#include "inside_comm.h"
#include "meter.h"

#include <signal.h>

enum { MOST_RANKS = 6, MOST_STEPS = 24, MOST_COUNT = 3000, TIMEOUT_MS = 1000, WATCHDOG_S = 900 };
/* Halves wait longer than the world, so that a rank that waits for the world is not late there. */
enum { HALF_TIMEOUT_MS = 100 * TIMEOUT_MS };

typedef enum op_kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    BROADCAST,
    GATHER,
    SCATTER,
    BARRIER,
    SEND_RECV, /* from the root to the rank after it */
    OPS
} op_kind;
static const char *const op_name[OPS] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                         "broadcast",  "gather",         "scatter",    "barrier",
                                         "send/recv"};
typedef enum fault {
    NONE,
    LEAVES,
    FAILS,      /* its function returns an error */
    ABORTS,     /* neo_comm_abort, and it leaves */
    LATE,       /* and goes on */
    STOPPED,    /* late by days */
    SKIPS,      /* it leaves a call out */
    TWICE,
    OTHER_OP,
    OTHER_COUNT,
    OTHER_DTYPE,
    UNHEARD,    /* sends what nobody receives */
    UNSENT,     /* waits for what nobody sends */
    FAULTS
} fault;
static const char *const fault_name[FAULTS] = {
    "nothing", "leaves",   "fails",       "aborts",      "late",    "stopped", "skips",
    "twice",   "other op", "other count", "other dtype", "unheard", "unsent"};
static int goes(fault f) { return f == LEAVES || f == FAILS || f == ABORTS; }

typedef struct step {
    op_kind op;
    int half, async, root; /* root: modulo the size of the group */
    int64_t count;
    neo_dtype dtype;
    int sleep_ms[MOST_RANKS];
} step;
typedef struct schedule {
    uint64_t number, state;
    int ranks, halves, step_count;
    step steps[MOST_STEPS];
    fault faults[MOST_RANKS]; /* of each rank */
    int fault_at[MOST_RANKS];
    int rebuild, misnamed; /* misnamed: atomic: a timeout names no culprit */
    int members[MOST_RANKS]; /* bits: who is in a rank's new group; 0: it has none */
    meter memory;
} schedule;

static int below(schedule *s, int n) {
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((s->state >> 33) % (uint64_t)n);
}
static int half_of(int rank) { return rank % 2; }
static int is_culprit(const schedule *s, int rank) { return s->faults[rank] != NONE; }
static int faults_of(const schedule *s, int half) { /* half -1: of all */
    int n = 0;
    for (int r = 0; r < s->ranks; r++)
        n += is_culprit(s, r) && (half < 0 || half_of(r) == half);
    return n;
}

static void plan(schedule *s, uint64_t number) {
    static const int64_t counts[] = {0, 1, 17, 300, MOST_COUNT};
    static const neo_dtype dtypes[] = {NEO_F32, NEO_I32, NEO_I64};
    memset(s, 0, sizeof *s);
    s->number = number;
    s->state = number * 0x9E3779B97F4A7C15u + 1;
    s->memory.refuse_at = -1;
    for (int i = 0; i < 4; i++) (void)below(s, 2);
    s->ranks = 2 + below(s, MOST_RANKS - 1);
    s->halves = s->ranks >= 4 && below(s, 2);
    s->step_count = 3 + below(s, MOST_STEPS - 2);
    for (int i = 0; i < s->step_count; i++) {
        step *t = &s->steps[i];
        t->op = (op_kind)below(s, OPS);
        t->half = s->halves && below(s, 2);
        t->async = below(s, 3) == 0;
        t->root = below(s, s->ranks);
        t->count = counts[below(s, 5)];
        t->dtype = dtypes[below(s, 3)];
        for (int r = 0; r < s->ranks; r++)
            t->sleep_ms[r] = below(s, 2) ? below(s, TIMEOUT_MS / 100) : 0;
    }
    s->rebuild = below(s, 2);
    for (int n = below(s, 8) ? 1 + (below(s, 4) == 0) : 0; n > 0 && n < s->ranks; n--) {
        int r = below(s, s->ranks);
        s->faults[r] = (fault)(1 + below(s, FAULTS - 1));
        s->fault_at[r] = below(s, s->step_count);
    }
}

/* ---- one rank ---- */
typedef struct place {
    neo_comm *group;
    int half;      /* 0: of the world */
    int may_break; /* a culprit is in it */
    int broken;
    neo_status status;
    char message[512];
} place;
typedef struct in_flight {
    char *in, *out;
    neo_ticket ticket;
    int waits;
} in_flight;
typedef struct player {
    schedule *s;
    int rank;
    place world, mine; /* mine: of its half */
    in_flight flights[MOST_STEPS];
} player;

#define CHECK(p, cond, ...)                                                                        \
    do {                                                                                           \
        __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);                                          \
        if (cond) break;                                                                           \
        if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 30) {                             \
            char text_[900];                                                                       \
            snprintf(text_, sizeof text_, __VA_ARGS__);                                            \
            fprintf(stderr, "FAILED schedule %" PRIu64 ", rank %d: %s\n", (p)->s->number,          \
                    (p)->rank, text_);                                                             \
        }                                                                                          \
    } while (0)

static size_t bytes_of(neo_dtype dtype) { return dtype == NEO_I64 ? 8 : 4; }
static int64_t value(int step_at, int rank, int64_t i, int to) {
    return (step_at * 5 + rank * 31 + i * 7 + to * 13) % 61;
}
static void put(char *data, neo_dtype dtype, int64_t i, int64_t x) {
    if (dtype == NEO_F32) ((float *)data)[i] = (float)x;
    else if (dtype == NEO_I32) ((int32_t *)data)[i] = (int32_t)x;
    else ((int64_t *)data)[i] = x;
}
static int64_t get(const char *data, neo_dtype dtype, int64_t i) {
    if (dtype == NEO_F32) return (int64_t)((const float *)data)[i];
    if (dtype == NEO_I32) return ((const int32_t *)data)[i];
    return ((const int64_t *)data)[i];
}
static int64_t summed(int at, int size, int64_t i) {
    int64_t sum = 0;
    for (int q = 0; q < size; q++) sum += value(at, q, i, 0);
    return sum;
}
/* What belongs at element i of out, or -1 where nothing is said. */
static int64_t expected(const step *t, int at, int size, int rank, int root, int64_t i) {
    int64_t n = t->count, from = n ? i / n : 0;
    switch (t->op) {
    case ALL_REDUCE: return i < n ? summed(at, size, i) : -1;
    case REDUCE_SCATTER: return i < n ? summed(at, size, rank * n + i) : -1;
    case ALL_GATHER: return value(at, (int)from, i - from * n, 0);
    case GATHER: return rank == root ? value(at, (int)from, i - from * n, 0) : -1;
    case ALL_TO_ALL: return value(at, (int)from, rank * n + i - from * n, 0);
    case BROADCAST: return i < n ? value(at, root, i, 0) : -1;
    case SCATTER: return i < n ? value(at, root, rank * n + i, 0) : -1;
    case SEND_RECV: return i < n && rank == (root + 1) % size ? value(at, root, i, 0) : -1;
    default: return -1;
    }
}
static neo_status call(neo_comm *c, const step *t, int at, const in_flight *f, neo_ticket *ticket) {
    int size = neo_comm_size(c), rank = neo_comm_rank(c), root = t->root % size;
    char label[24];
    snprintf(label, sizeof label, "s.%d", at);
    neo_comm_label(c, label);
    switch (t->op) {
    case ALL_REDUCE:
        return neo_comm_all_reduce(c, NEO_REDUCE_SUM, f->in, f->out, t->count, t->dtype, ticket);
    case REDUCE_SCATTER:
        return neo_comm_reduce_scatter(c, NEO_REDUCE_SUM, f->in, f->out, t->count, NULL, t->dtype,
                                       ticket);
    case ALL_GATHER:
        return neo_comm_all_gather(c, f->in, f->out, t->count, NULL, t->dtype, ticket);
    case ALL_TO_ALL: return neo_comm_all_to_all(c, f->in, f->out, t->count, t->dtype, ticket);
    case BROADCAST:
        if (rank == root) memcpy(f->out, f->in, (size_t)t->count * bytes_of(t->dtype));
        return neo_comm_broadcast(c, f->out, t->count, t->dtype, root, ticket);
    case GATHER:
        return neo_comm_gather(c, f->in, f->out, t->count, NULL, t->dtype, root, ticket);
    case SCATTER:
        return neo_comm_scatter(c, f->in, f->out, t->count, NULL, t->dtype, root, ticket);
    case SEND_RECV:
        if (size > 1 && rank == root)
            return neo_comm_send(c, f->in, t->count, t->dtype, (root + 1) % size, ticket);
        if (size > 1 && rank == (root + 1) % size)
            return neo_comm_recv(c, f->out, t->count, t->dtype, root, ticket);
        neo_comm_label(c, NULL);
        if (ticket) *ticket = -1;
        return neo_comm_status(c);
    default: return neo_comm_barrier(c, ticket);
    }
}
/* The message names the rank of a culprit. After a timeout it may name another where ranks wait for
   each other across groups, or in a ring that a message without its other end has closed. */
static int names_culprit(const schedule *s, neo_status status, const char *text) {
    int rings = s->halves;
    for (int r = 0; r < s->ranks; r++) rings |= s->faults[r] == UNHEARD || s->faults[r] == UNSENT;
    if (status == NEO_ERR_TIMEOUT && rings) return 1;
    for (const char *at = text; (at = strstr(at, "rank ")) != NULL; at += 5) {
        int r = atoi(at + 5);
        if (r >= 0 && r < s->ranks && is_culprit(s, r)) return 1;
    }
    return 0;
}
/* A call on the group has given this. */
static void judge(player *p, place *where, neo_status status, const char *what) {
    const char *text = status == NEO_OK ? "" : neo_last_error();
    if (status == NEO_OK) {
        CHECK(p, !where->broken, "%s: NEO_OK on a group that is broken", what);
        return;
    }
    if (!where->broken) {
        where->broken = 1;
        where->status = status;
        snprintf(where->message, sizeof where->message, "%s", text);
        CHECK(p, where->may_break, "%s: a group without a culprit: %s", what, text);
        int named = names_culprit(p->s, status, text);
        if (!named && status == NEO_ERR_TIMEOUT)
            __atomic_store_n(&p->s->misnamed, 1, __ATOMIC_RELAXED);
        else CHECK(p, named, "%s: names no culprit: %s", what, text);
        return;
    }
    CHECK(p, status == where->status && strcmp(text, where->message) == 0, "%s: %s, but before: %s",
          what, text, where->message);
}
/* The results of a step that went well. own: the step as this rank has called it. */
static void judge_results(player *p, const place *where, int at) {
    const step *t = &p->s->steps[at];
    const in_flight *f = &p->flights[at];
    int size = neo_comm_size(where->group), rank = neo_comm_rank(where->group), bad = 0;
    for (int64_t i = 0; i < t->count * size; i++) {
        int64_t want = expected(t, at, size, rank, t->root % size, i);
        if (want >= 0 && get(f->out, t->dtype, i) != want) bad++;
    }
    CHECK(p, bad == 0, "step %d, %s: %d elements are wrong", at, op_name[t->op], bad);
}
static place *place_of(player *p, int at) { return p->s->steps[at].half ? &p->mine : &p->world; }

static void finish(player *p, int at) {
    in_flight *f = &p->flights[at];
    if (!f->waits) return;
    f->waits = 0;
    place *where = place_of(p, at);
    neo_status status = neo_comm_wait(where->group, f->ticket);
    if (status == NEO_OK) judge_results(p, where, at); /* even if the group has broken since */
    else judge(p, where, status, op_name[p->s->steps[at].op]);
}
/* A step as it is planned, or as the culprit makes it. */
static void play(player *p, int at, fault twist) {
    const step *planned = &p->s->steps[at];
    step t = *planned;
    place *where = place_of(p, at);
    in_flight *f = &p->flights[at];
    size_t bytes = (size_t)(t.count + 1) * MOST_RANKS * bytes_of(NEO_I64);
    f->in = (char *)malloc(bytes);
    f->out = (char *)malloc(bytes);
    if (!f->in || !f->out) abort();
    int rank = neo_comm_rank(where->group);
    memset(f->out, 0x77, bytes);
    for (int64_t i = 0; i < t.count * MOST_RANKS; i++)
        put(f->in, t.dtype, i, value(at, rank, i, 0));
    if (twist == OTHER_OP) t.op = (op_kind)((t.op + 1) % OPS);
    if (twist == OTHER_COUNT) t.count++;
    if (twist == OTHER_DTYPE) t.dtype = t.dtype == NEO_I32 ? NEO_F32 : NEO_I32;
    neo_status status = call(where->group, &t, at, f, t.async ? &f->ticket : NULL);
    if (status == NEO_OK && t.async && f->ticket >= 0) f->waits = 1;
    else judge(p, where, status, op_name[t.op]);
    if (twist != NONE) { /* what it gives is not judged */
        if (f->waits) judge(p, where, neo_comm_wait(where->group, f->ticket), op_name[t.op]);
        f->waits = 0;
    } else if (status == NEO_OK && !t.async) judge_results(p, where, at);
}
/* The fault of this rank; 1: it makes the step all the same. */
static int err(player *p, int at) {
    int64_t number = 7;
    place *where = place_of(p, at);
    neo_comm *c = where->group;
    int next = (neo_comm_rank(c) + 1) % neo_comm_size(c);
    switch (p->s->faults[p->rank]) {
    case LATE: neo_comm_sleep(c, (int64_t)HALF_TIMEOUT_MS * 3 * 1000000); return 1;
    case STOPPED: neo_comm_sleep(c, (int64_t)86400 * 3 * 1000000000); return 1;
    case SKIPS: return 0;
    case TWICE: play(p, at, TWICE); free(p->flights[at].in); free(p->flights[at].out); return 1;
    case OTHER_OP:
    case OTHER_COUNT:
    case OTHER_DTYPE: play(p, at, p->s->faults[p->rank]); return 0;
    case UNHEARD:
        neo_comm_label(c, "unheard");
        if (neo_comm_size(c) > 1)
            judge(p, where, neo_comm_send(c, &number, 1, NEO_I64, next, NULL), "unheard");
        return 1;
    case UNSENT:
        neo_comm_label(c, "unsent");
        if (neo_comm_size(c) > 1)
            judge(p, where, neo_comm_recv(c, &number, 1, NEO_I64, next, NULL), "unsent");
        return 1;
    default: return 1;
    }
}
/* Some faults do nothing: a barrier has no count, who has no part in a message calls nothing. */
static int is_harmless(const schedule *s, int rank) {
    const step *t = &s->steps[s->fault_at[rank]];
    int size = s->ranks, place = rank;
    if (t->half) {
        size = s->ranks / 2 + (half_of(rank) == 0 && s->ranks % 2);
        place = rank / 2;
    }
    int root = t->root % size, in_message = place == root || place == (root + 1) % size;
    if (size == 1) return 1;
    switch (s->faults[rank]) {
    case SKIPS:
    case TWICE: return t->op == SEND_RECV && !in_message;
    case OTHER_OP: return 0;
    case OTHER_COUNT:
    case OTHER_DTYPE:
        return t->op == BARRIER || (t->op == SEND_RECV && !in_message) ||
               (t->count == 0 && s->faults[rank] == OTHER_DTYPE);
    default: return 0;
    }
}
/* Barriers until the group is seen to be broken. */
static void outlast(player *p, place *where) {
    int must = 0;
    if (!where->group) return;
    for (int r = 0; r < p->s->ranks; r++) {
        int in = where == &p->world || half_of(r) == half_of(p->rank);
        int at_this = (where == &p->mine) == p->s->steps[p->s->fault_at[r]].half;
        must |= in && faults_of(p->s, -1) == 1 && is_culprit(p->s, r) && !is_harmless(p->s, r) &&
                (goes(p->s->faults[r]) || at_this);
    }
    for (int i = 0; i < 12; i++) judge(p, where, neo_comm_barrier(where->group, NULL), "the end");
    if (neo_comm_size(where->group) > 1)
        CHECK(p, where->broken || !must, "the group of the fault is not broken");
}
/* Who is left makes a new group. */
static void rebuild(player *p) {
    neo_comm *next = NULL;
    int64_t bit = (int64_t)1 << p->rank, sum = 0;
    if (!p->world.broken || !p->s->rebuild) return;
    neo_status status = neo_comm_rebuild(p->world.group, &next);
    CHECK(p, (status == NEO_OK) == (next != NULL), "neo_comm_rebuild: %s", neo_last_error());
    CHECK(p, status == NEO_OK || status == NEO_ERR_PEER, "neo_comm_rebuild: %s", neo_last_error());
    if (!next) return;
    status = neo_comm_all_reduce(next, NEO_REDUCE_SUM, &bit, &sum, 1, NEO_I64, NULL);
    CHECK(p, status == NEO_OK, "the sum of the new group: %s", neo_last_error());
    p->s->members[p->rank] = (int)sum;
    neo_comm_destroy(next);
}

static neo_status run_rank(neo_comm *comm, void *user) {
    player p;
    memset(&p, 0, sizeof p);
    p.s = (schedule *)user;
    p.rank = neo_comm_rank(comm);
    p.world.group = comm;
    p.world.may_break = faults_of(p.s, -1) > 0;
    p.mine.half = 1;
    p.mine.may_break = faults_of(p.s, half_of(p.rank)) > 0;
    fault mine = p.s->faults[p.rank];
    int left = 0;
    if (p.s->halves) EXPECT_OK(comm, neo_comm_split(comm, half_of(p.rank), 0, &p.mine.group));
    neo_comm_sleep(comm, 1000000); /* until all have left the split */
    if (p.mine.group) inside_set_timeout(p.mine.group, HALF_TIMEOUT_MS);
    for (int at = 0; at < p.s->step_count && !left; at++) {
        int now = mine != NONE && p.s->fault_at[p.rank] == at;
        neo_comm_sleep(comm, (int64_t)p.s->steps[at].sleep_ms[p.rank] * 1000000);
        if (now && mine == ABORTS) neo_comm_abort(comm, "the disk is full");
        left = now && goes(mine);
        if (!left && (!now || err(&p, at))) play(&p, at, NONE);
        if (at >= 4 && !left) finish(&p, at - 4);
    }
    for (int at = 0; at < p.s->step_count; at++)
        if (!left) finish(&p, at);
    if (!left) {
        outlast(&p, &p.world);
        outlast(&p, &p.mine);
        rebuild(&p);
    }
    (void)neo_comm_wait_all(comm);
    if (p.mine.group) (void)neo_comm_wait_all(p.mine.group);
    neo_comm_destroy(p.mine.group);
    for (int at = 0; at < p.s->step_count; at++) {
        free(p.flights[at].in);
        free(p.flights[at].out);
    }
    return left && mine == FAILS ? neo_fail(NEO_ERR_IO, "the disk is full") : NEO_OK;
}

static uint64_t running;
static void watchdog(int signal) {
    char text[80];
    (void)signal;
    snprintf(text, sizeof text, "FAILED schedule %" PRIu64 " hangs\n", running);
    _exit(write(2, text, strlen(text)) > 0 ? 3 : 4);
}
static int run(uint64_t number, int tally[FAULTS]) { /* 1: a timeout named no culprit */
    static schedule s;
    int failures_before = failures;
    neo_comm_desc desc;
    player whole;
    plan(&s, number);
    memset(&desc, 0, sizeof desc);
    memset(&whole, 0, sizeof whole);
    whole.s = &s;
    whole.rank = -1;
    desc.timeout_ms = TIMEOUT_MS;
    desc.virtual_clock = 1;
    desc.queue_length = 3;
    desc.ctx.allocator.alloc = meter_alloc;
    desc.ctx.allocator.free = meter_free;
    desc.ctx.allocator.user = &s.memory;
    running = number;
    alarm(WATCHDOG_S);
    neo_status status = neo_comm_spawn(s.ranks, &desc, run_rank, &s, NULL);
    int fails = 0;
    for (int r = 0; r < s.ranks; r++) tally[s.faults[r]]++, fails |= s.faults[r] == FAILS;
    CHECK(&whole, (status == NEO_OK) == !fails, "the job: %s", neo_last_error());
    CHECK(&whole, s.memory.live == 0 && s.memory.wrong == 0, "%" PRId64 " blocks are not freed",
          s.memory.live);
    for (int r = 0; r < s.ranks; r++)
        for (int q = 0; q < s.ranks; q++)
            if (s.members[r] & (1 << q))
                CHECK(&whole, s.members[q] == s.members[r], "new groups of ranks %d and %d: %x, %x",
                      r, q, (unsigned)s.members[r], (unsigned)s.members[q]);
    for (int r = 0; r < s.ranks && failures > failures_before && failures < 60; r++) {
        const step *t = &s.steps[s.fault_at[r]];
        if (is_culprit(&s, r))
            fprintf(stderr, "    %d ranks; rank %d: %s at step %d: %s%s of %s\n", s.ranks, r,
                    fault_name[s.faults[r]], s.fault_at[r], t->async ? "asynchronous " : "",
                    op_name[t->op], t->half ? "its half" : "the world");
    }
    return s.misnamed;
}

int main(int argc, char **argv) {
    const char *attack = getenv("ATTACK");
    uint64_t from = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : attack && *attack ? 1000000 : 400;
    uint64_t misnamed = 0;
    int tally[FAULTS] = {0};
    signal(SIGALRM, watchdog);
    for (uint64_t n = from; n < from + count; n++) misnamed += (uint64_t)run(n, tally);
    if (misnamed * 1000 > count) {
        failures++;
        fprintf(stderr, "FAILED timeouts of %" PRIu64 " schedules name no culprit\n", misnamed);
    }
    printf("attack: %" PRIu64 " schedules, %" PRIu64 " name another rank; faults of ranks:", count,
           misnamed);
    for (int f = 0; f < FAULTS; f++) printf("%s %s %d", f ? "," : "", fault_name[f], tally[f]);
    printf("\n");
    return ranks_end("attack/schedules", failures != 0);
}
