/* faults.c: ranks that leave, are lost, come late, lose what they send, or call something else: on
   the threads backend, where all of this can be done on purpose.

   Method: scenes. A scene is one job: an operation, blocking or not, a number of ranks, one of them
   (the culprit) and what that one does instead. Every rank that stays must get the right status in
   time, with a message that names rank, peer, operation and sequence number; every later call must
   give the same and not block; neo_comm_rebuild must then make a group of those that stay, and its
   sums must be right. A rank whose part of the operation is complete without the culprit may see
   the error only at its next call, so each goes on with barriers until it has seen it. Buffers are
   scribbled over and freed as soon as the operation has failed, and what an operation that returned
   NEO_OK has written must be right: a rank that comes late must not read what is not lent to it any
   more. All memory of a job goes through an allocator that must balance at its end.

   Time: scenes run on the virtual clock, so each knows exactly when an error must be seen: a
   timeout at its deadline, anything else (a rank that has left, another count) at the moment of the
   fault. Two scenes at the end use the real clock: waiting_sleeps and real_timeouts; they judge no
   time. */
#define NEO_COMM_IMPLEMENTATION /* its private names, too */
#include "ranks.h"
#include "meter.h"

#include <sys/time.h>

enum { THIN = TEST_WATCHED ? 3 : 1 }; /* every third scene */
enum {
    SHORT_MS = 150,
    POLL_MS = 5,
    LONG_MS = 60000,
    WATCHDOG_S = 900,
    RUNNERS = 4,
    MOST_RANKS = 64
};

static void sleep_ms(neo_comm *comm, int ms) { neo_comm_sleep(comm, (int64_t)ms * 1000000); }
static double now_ms(const neo_comm *comm) { return 1e-6 * (double)neo_comm_time_ns(comm); }

/* ---- scenes ---- */
typedef enum op_kind {
    OP_ALL_REDUCE_SMALL, /* up the tree and down */
    OP_ALL_REDUCE_LARGE,
    OP_REDUCE_SCATTER,
    OP_ALL_GATHER,
    OP_ALL_TO_ALL,
    OP_ALL_TO_ALLV,
    OP_BROADCAST,
    OP_GATHER,
    OP_SCATTER,
    OP_BARRIER,
    OP_SEND_RECV, /* round the ring */
    OP_ALL_TO_ALLV_ROWS,
    OP_ALL_GATHER_ROWS,
    OP_REDUCE_SCATTER_ROWS,
    OP_COUNT
} op_kind;
enum { COLS = 4 }; /* of rows */
static const struct {
    const char *label;
    neo_comm_op op;
    op_kind other; /* that the culprit calls instead */
    int64_t count;
} ops[OP_COUNT] = {
    {"small all_reduce", NEO_COMM_ALL_REDUCE, OP_BROADCAST, 100},
    {"large all_reduce", NEO_COMM_ALL_REDUCE, OP_ALL_GATHER, 5000},
    {"reduce_scatter", NEO_COMM_REDUCE_SCATTER, OP_ALL_TO_ALL, 300},
    {"all_gather", NEO_COMM_ALL_GATHER, OP_REDUCE_SCATTER, 300},
    {"all_to_all", NEO_COMM_ALL_TO_ALL, OP_ALL_GATHER, 300},
    {"all_to_allv", NEO_COMM_ALL_TO_ALL, OP_ALL_TO_ALL, 200},
    {"broadcast", NEO_COMM_BROADCAST, OP_ALL_REDUCE_SMALL, 2000},
    {"gather", NEO_COMM_GATHER, OP_SCATTER, 300},
    {"scatter", NEO_COMM_SCATTER, OP_GATHER, 300},
    {"barrier", NEO_COMM_BARRIER, OP_ALL_REDUCE_SMALL, 0},
    {"send and recv", NEO_COMM_SEND, OP_BARRIER, 700},
    {"all_to_allv of rows", NEO_COMM_ALL_TO_ALL, OP_ALL_TO_ALLV, 50},
    {"all_gather of rows", NEO_COMM_ALL_GATHER, OP_ALL_GATHER, 75},
    {"reduce_scatter of rows", NEO_COMM_REDUCE_SCATTER, OP_ALL_TO_ALL, 75},
};

typedef enum blow {
    RETURN_OK,    /* its function returns */
    RETURN_ERROR,
    KILL,         /* NEO_FAULT_KILL */
    DELAY,        /* NEO_FAULT_DELAY, past the timeout */
    DROP,         /* NEO_FAULT_DROP */
    OTHER_OP,
    OTHER_COUNT,
    OTHER_DTYPE,
    OTHER_REDUCE,
    OTHER_ROOT,
    OTHER_PAIR,   /* all_to_allv: one element more than the receiver expects */
    OTHER_WIRE,   /* of rows */
    OTHER_LABEL,  /* neo_comm_label; asynchronous: none */
    BLOWS
} blow;
static const char *const blow_label[BLOWS] = {
    "returns",           "returns an error",   "is killed",
    "is delayed",        "loses its messages", "calls another operation",
    "has another count", "has another dtype",  "has another reduction",
    "has another root",  "sends one more",     "has another wire",
    "has another label"};

typedef struct scene {
    neo_comm_fn fn;
    op_kind op;
    blow hit;
    int ranks, culprit, async, root;
    int timeout_ms, delay_ms;
    int real_clock;
    int stay;      /* ranks that meet after the fault */
    int all_after; /* try all operations on the new group, not only sums */
    int harmless;  /* the fault does nothing: the culprit sends nothing in this operation */
    int fine, hurt; /* atomic: ranks that saw no error; that saw one */
    char label[160];
    neo__mutex lock; /* of the meeting */
    neo__cond all;
    int came, turn;
    meter memory;
} scene;

#define CHECK(s, comm, cond, ...)                                                                  \
    do {                                                                                           \
        __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);                                          \
        if (cond) break;                                                                           \
        if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 40) {                             \
            char text_[700];                                                                       \
            snprintf(text_, sizeof text_, __VA_ARGS__);                                            \
            fprintf(stderr, "%s:%d: %s: rank %d: %s: %s\n", __FILE__, __LINE__, (s)->label,        \
                    (comm) ? neo_comm_rank(comm) : -1, #cond, text_);                              \
        }                                                                                          \
    } while (0)

/* What runs now, for the watchdog: it barks when no scene ends for WATCHDOG_S. */
static scene *running[RUNNERS + 1];
static void watchdog(int signal) {
    static const char head[] = "test_comm_faults: stopped by its watchdog; what was running:\n";
    ssize_t n = write(2, head, sizeof head - 1);
    (void)signal;
    for (int i = 0; i <= RUNNERS; i++) {
        scene *s = __atomic_load_n(&running[i], __ATOMIC_ACQUIRE);
        if (!s) continue;
        n += write(2, "    ", 4);
        n += write(2, s->label, strlen(s->label));
        n += write(2, "\n", 1);
    }
    _exit(n >= 0 ? 3 : 4);
}

/* All `count` ranks come here before any goes on. No part of neo, but for the clock: it must not
   know of the fault. */
static void meet(scene *s, const neo_comm *comm, int count) {
    pthread_mutex_lock(&s->lock);
    int turn = s->turn;
    if (++s->came == count) {
        s->came = 0;
        s->turn++;
        neo__clock_wake(comm->clock, &s->all);
    }
    while (s->turn == turn) (void)neo__clock_wait(comm->clock, &s->all, &s->lock, 0, 0);
    pthread_mutex_unlock(&s->lock);
}
/* White box: the public timeout is fixed at the start, but what is healthy here must have all the
   time it needs, also on a machine that is busy with other things. Nothing is in flight. */
static void set_timeout(neo_comm *comm, int ms) { comm->desc.timeout_ms = ms; }

/* ---- one operation: inputs, call, check ---- */
typedef struct plan {
    op_kind op;
    int64_t count;
    neo_dtype dtype; /* of 4 bytes */
    neo_reduce reduce;
    int root, pair;
    neo_wire wire;
    const char *label;
} plan;
static int number(int rank, int64_t i, int to) { return (int)((rank * 31 + i * 7 + to * 13) % 61); }
static void put(void *data, neo_dtype dtype, int64_t i, int x) {
    if (dtype == NEO_F32) ((float *)data)[i] = (float)x;
    else ((int32_t *)data)[i] = x;
}
static int get(const void *data, neo_dtype dtype, int64_t i) {
    return dtype == NEO_F32 ? (int)((const float *)data)[i] : ((const int32_t *)data)[i];
}
static int has_pairs(const plan *p) {
    return p->op == OP_ALL_TO_ALLV || p->op == OP_ALL_TO_ALLV_ROWS;
}
static int64_t pair_count(const plan *p, int from, int to) {
    return has_pairs(p) ? p->count + (from + 2 * to) % 3 : p->count;
}
static int64_t width_of(const plan *p) { return p->op >= OP_ALL_TO_ALLV_ROWS ? COLS : 1; }
static int reduced(const plan *p, int ranks, int64_t i) {
    int sum = number(0, i, 0);
    for (int r = 1; r < ranks; r++) {
        int x = number(r, i, 0);
        if (p->reduce == NEO_REDUCE_SUM) sum += x;
        else if (p->reduce == NEO_REDUCE_MAX) sum = x > sum ? x : sum;
        else sum = x < sum ? x : sum;
    }
    return sum;
}
typedef struct buffers {
    void *in, *out, *work;
    size_t in_bytes, out_bytes, work_bytes;
    int64_t in_counts[8], out_counts[8];
} buffers;
/* Elements of in and out, and what is in them before. */
static void buffers_new(buffers *b, const plan *p, neo_comm *comm) {
    int ranks = neo_comm_size(comm), rank = neo_comm_rank(comm);
    int64_t in = p->count, out = p->count, width = width_of(p);
    memset(b, 0, sizeof *b);
    for (int q = 0; q < ranks && ranks <= 8; q++) {
        b->in_counts[q] = pair_count(p, rank, q) + (p->pair && q == (rank + 1) % ranks);
        b->out_counts[q] = pair_count(p, q, rank);
    }
    switch (p->op) {
    case OP_REDUCE_SCATTER:
    case OP_REDUCE_SCATTER_ROWS: in *= ranks; break;
    case OP_ALL_GATHER:
    case OP_ALL_GATHER_ROWS: out *= ranks; break;
    case OP_ALL_TO_ALL: in *= ranks, out *= ranks; break;
    case OP_ALL_TO_ALLV:
    case OP_ALL_TO_ALLV_ROWS:
        in = out = 0;
        for (int q = 0; q < ranks; q++) in += b->in_counts[q], out += b->out_counts[q];
        break;
    case OP_GATHER: out = rank == p->root ? out * ranks : 1; break;
    case OP_SCATTER: in = rank == p->root ? in * ranks : 1; break;
    default: break;
    }
    b->work_bytes =
        width > 1 ? neo_comm_rows_bytes(comm, p->wire, COLS, ops[p->op].op, in, out) : 0;
    in *= width;
    b->in_bytes = (size_t)in * 4;
    b->out_bytes = (size_t)(out * width) * 4;
    b->work = malloc(b->work_bytes + 1);
    b->in = malloc(b->in_bytes + 1); /* of its own size, so that a sanitizer sees its end */
    b->out = malloc(b->out_bytes + 1);
    if (!b->in || !b->out || !b->work) abort();
    memset(b->out, 0x77, b->out_bytes);
    int64_t at = 0;
    int parts = p->op == OP_ALL_TO_ALL || has_pairs(p) || (p->op == OP_SCATTER && rank == p->root);
    if (!parts)
        for (int64_t i = 0; i < in; i++) put(b->in, p->dtype, i, number(rank, i, 0));
    for (int q = 0; parts && q < ranks; q++) {
        int64_t n = has_pairs(p) ? b->in_counts[q] * width : p->count;
        for (int64_t i = 0; i < n; i++) put(b->in, p->dtype, at++, number(rank, i, q));
    }
    if (p->op == OP_BROADCAST && rank == p->root) memcpy(b->out, b->in, b->in_bytes);
}
static void buffers_free(buffers *b) {
    memset(b->in, 0xEE, b->in_bytes);
    memset(b->out, 0xEE, b->out_bytes);
    memset(b->work, 0xEE, b->work_bytes);
    free(b->in);
    free(b->out);
    free(b->work);
}
/* The first element that is wrong, or -1. */
static int64_t wrong_at(const buffers *b, const plan *p, int ranks, int rank) {
    int64_t at = 0, width = width_of(p), n = p->count * width;
    switch (p->op) {
    case OP_ALL_REDUCE_SMALL:
    case OP_ALL_REDUCE_LARGE:
        for (int64_t i = 0; i < p->count; i++)
            if (get(b->out, p->dtype, i) != reduced(p, ranks, i)) return i;
        return -1;
    case OP_REDUCE_SCATTER:
    case OP_REDUCE_SCATTER_ROWS:
        for (int64_t i = 0; i < n; i++)
            if (get(b->out, p->dtype, i) != reduced(p, ranks, rank * n + i)) return i;
        return -1;
    case OP_GATHER:
        if (rank != p->root) return -1;
        /* fall through */
    case OP_ALL_GATHER:
    case OP_ALL_GATHER_ROWS:
    case OP_ALL_TO_ALL:
    case OP_ALL_TO_ALLV:
    case OP_ALL_TO_ALLV_ROWS:
        for (int q = 0; q < ranks; q++)
            for (int64_t i = 0; i < pair_count(p, q, rank) * width; i++, at++)
                if (get(b->out, p->dtype, at) !=
                    number(q, i, p->op == OP_ALL_TO_ALL || has_pairs(p) ? rank : 0))
                    return at;
        return -1;
    case OP_BROADCAST:
    case OP_SEND_RECV:
    case OP_SCATTER:
        for (int64_t i = 0; i < p->count; i++) {
            int from = p->op == OP_SEND_RECV ? (rank + ranks - 1) % ranks : p->root;
            if (get(b->out, p->dtype, i) != number(from, i, p->op == OP_SCATTER ? rank : 0))
                return i;
        }
        return -1;
    default: return -1;
    }
}
/* An asynchronous call is waited for in two ways: odd ranks wait at once, the others look every
   POLL_MS. */
static neo_status settle(neo_comm *comm, int async, neo_status status, const neo_ticket *ticket) {
    if (status != NEO_OK || !async) return status;
    int done = neo_comm_rank(comm) % 2;
    while (!done) {
        sleep_ms(comm, POLL_MS);
        status = neo_comm_test(comm, *ticket, &done);
        if (status != NEO_OK) return status;
    }
    return neo_comm_wait(comm, *ticket);
}
static neo_status call(neo_comm *c, const plan *p, const buffers *b, int async) {
    int size = neo_comm_size(c), rank = neo_comm_rank(c), next = (rank + 1) % size,
        before = (rank + size - 1) % size;
    neo_ticket ticket = -1, *t = async ? &ticket : NULL;
    neo_status status = NEO_OK;
    neo_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.wire = p->wire;
    rows.cols = COLS;
    rows.workspace = b->work;
    rows.workspace_bytes = b->work_bytes;
    const float *in = (const float *)b->in;
    float *out = (float *)b->out;
    neo_comm_label(c, p->label);
    switch (p->op) {
    case OP_ALL_REDUCE_SMALL:
    case OP_ALL_REDUCE_LARGE:
        status = neo_comm_all_reduce(c, p->reduce, b->in, b->out, p->count, p->dtype, t);
        break;
    case OP_REDUCE_SCATTER:
        status = neo_comm_reduce_scatter(c, p->reduce, b->in, b->out, p->count, NULL, p->dtype, t);
        break;
    case OP_ALL_GATHER:
        status = neo_comm_all_gather(c, b->in, b->out, p->count, NULL, p->dtype, t);
        break;
    case OP_ALL_TO_ALL:
        status = neo_comm_all_to_all(c, b->in, b->out, p->count, p->dtype, t);
        break;
    case OP_ALL_TO_ALLV:
        status = neo_comm_all_to_allv(c, b->in, b->in_counts, b->out, b->out_counts, p->dtype, t);
        break;
    case OP_BROADCAST:
        status = neo_comm_broadcast(c, b->out, p->count, p->dtype, p->root, t);
        break;
    case OP_GATHER:
        status = neo_comm_gather(c, b->in, b->out, p->count, NULL, p->dtype, p->root, t);
        break;
    case OP_SCATTER:
        status = neo_comm_scatter(c, b->in, b->out, p->count, NULL, p->dtype, p->root, t);
        break;
    case OP_BARRIER: status = neo_comm_barrier(c, t); break;
    case OP_SEND_RECV:
        for (int turn = 0; turn < 2 && status == NEO_OK; turn++) { /* even ranks send first */
            neo_comm_label(c, p->label);
            status = (turn == 0) == (rank % 2 == 0)
                         ? neo_comm_send(c, b->in, p->count, p->dtype, next, t)
                         : neo_comm_recv(c, b->out, p->count, p->dtype, before, t);
            if (!async || turn == 1) status = settle(c, async, status, &ticket);
        }
        if (async && status != NEO_OK) (void)neo_comm_wait_all(c);
        break;
    case OP_ALL_TO_ALLV_ROWS:
        status = neo_comm_all_to_allv_rows(c, &rows, in, b->in_counts, out, b->out_counts, t);
        break;
    case OP_ALL_GATHER_ROWS:
        status = neo_comm_all_gather_rows(c, &rows, in, out, p->count, NULL, t);
        break;
    case OP_REDUCE_SCATTER_ROWS:
        status = neo_comm_reduce_scatter_rows(c, &rows, in, out, p->count, NULL, t);
        break;
    case OP_COUNT: break;
    }
    return p->op == OP_SEND_RECV ? status : settle(c, async, status, &ticket);
}
/* The operation from beginning to end. */
static neo_status perform(scene *s, neo_comm *comm, const plan *p, int judged) {
    int size = neo_comm_size(comm), rank = neo_comm_rank(comm);
    buffers b;
    buffers_new(&b, p, comm);
    neo_status status = call(comm, p, &b, s->async);
    int64_t wrong = status == NEO_OK && judged ? wrong_at(&b, p, size, rank) : -1;
    CHECK(s, comm, wrong < 0, "%s gave NEO_OK, but element %" PRId64 " is wrong", ops[p->op].label,
          wrong);
    buffers_free(&b);
    return status;
}
static plan plan_of(const scene *s, int rank) {
    plan p = {s->op,
              ops[s->op].count,
              NEO_F32,
              NEO_REDUCE_SUM,
              s->root,
              0,
              NEO_WIRE_BF16, /* exact: small integers */
              s->hit == OTHER_LABEL || s->op % 2 ? "h.2" : NULL};
    if (rank != s->culprit) return p;
    switch (s->hit) {
    case OTHER_OP:
        p.op = ops[s->op].other;
        p.count = ops[p.op].count;
        break;
    case OTHER_COUNT: p.count += 16; break;
    case OTHER_DTYPE: p.dtype = NEO_I32; break;
    case OTHER_REDUCE: p.reduce = NEO_REDUCE_MAX; break;
    case OTHER_ROOT: p.root = (s->root + 1) % s->ranks; break;
    case OTHER_PAIR: p.pair = 1; break;
    case OTHER_WIRE: p.wire = NEO_WIRE_F16; break; /* as many bytes */
    case OTHER_LABEL: p.label = s->async ? NULL : "h.3"; break;
    case KILL: /* faults are counted by collectives: one that only the lost rank calls */
        if (s->op == OP_SEND_RECV) p.op = OP_BARRIER, p.count = 0;
        break;
    default: break;
    }
    return p;
}
static int applies(op_kind op, blow hit) {
    switch (hit) {
    case DROP: return op != OP_SEND_RECV; /* see KILL above */
    case OTHER_COUNT: return op != OP_BARRIER && op != OP_ALL_TO_ALLV && op != OP_ALL_TO_ALLV_ROWS;
    case OTHER_DTYPE: return op != OP_BARRIER && op < OP_ALL_TO_ALLV_ROWS;
    case OTHER_REDUCE: return op <= OP_REDUCE_SCATTER;
    case OTHER_ROOT: return op == OP_BROADCAST || op == OP_GATHER || op == OP_SCATTER;
    case OTHER_PAIR: return op == OP_ALL_TO_ALLV || op == OP_ALL_TO_ALLV_ROWS;
    case OTHER_WIRE: return op >= OP_ALL_TO_ALLV_ROWS;
    default: return 1;
    }
}
/* Whether the culprit sends anything in its operation. */
static int sends(const scene *s) {
    int from_root = (s->culprit - s->root + s->ranks) % s->ranks;
    switch (s->op) {
    case OP_GATHER: return s->culprit != s->root;
    case OP_SCATTER: return s->culprit == s->root;
    case OP_BROADCAST: return from_root == 0 || (from_root % 2 == 0 && from_root + 1 < s->ranks);
    default: return 1;
    }
}

/* ---- judging ---- */
static int status_fits(const scene *s, neo_status status) {
    switch (s->hit) {
    case RETURN_OK:
    case RETURN_ERROR:
    case KILL: return status == NEO_ERR_PEER;
    case DELAY: return status == NEO_ERR_TIMEOUT;
    case DROP: /* who goes on after a lost message is seen to call what comes next */
        return status == NEO_ERR_TIMEOUT || (s->async && status == NEO_ERR_DIVERGED);
    case OTHER_OP: /* both may wait for messages that the other does not send */
    case OTHER_ROOT: return status == NEO_ERR_TIMEOUT || status == NEO_ERR_DIVERGED;
    default: return status == NEO_ERR_DIVERGED;
    }
}
/* "rank A: op #n ...": the two ranks, the operation and its number. */
typedef struct said {
    int rank, peer;
    char op[32];
    long long sequence;
} said;
static int message_parse(const char *text, said *m) {
    char digits[24] = "";
    memset(m, 0, sizeof *m);
    if (sscanf(text, "rank %d: %31[a-z_/] #%23[0-9]", &m->rank, m->op, digits) != 3) return 0;
    m->sequence = atoll(digits);
    const char *peer = strstr(text + 5, "rank ");
    return peer && sscanf(peer, "rank %d", &m->peer) == 1;
}
/* The operation as messages call it. */
static const char *called(int op) {
    if (ops[op].op == NEO_COMM_SEND) return "send/recv";
    return strncmp(ops[op].label, "all_to_allv", 11) == 0 ? "all_to_allv"
                                                          : neo_comm_op_name(ops[op].op);
}
/* Each of the two ranks with its label; the culprit of an asynchronous call has none. */
static void judge_labels(scene *s, neo_comm *comm, const char *text) {
    const char *but = strstr(text, ", but rank"), *his = strstr(text, "of 'h.3'"),
               *ours = strstr(text, "of 'h.2'");
    char first[24];
    snprintf(first, sizeof first, "rank %d: ", s->culprit);
    int begins = strncmp(text, first, strlen(first)) == 0;
    CHECK(s, comm, but && ours && (ours > but) == begins, "%s", text);
    if (s->async) CHECK(s, comm, !his, "%s", text);
    else CHECK(s, comm, but && his && (his < but) == begins, "%s", text);
}
static void judge_message(scene *s, neo_comm *comm, neo_status status, const char *text) {
    said m;
    int parsed = message_parse(text, &m), known = 0, gone = -1;
    if (s->hit == RETURN_ERROR &&
        sscanf(text, "rank %d has given up: the disk is full", &gone) == 1) {
        CHECK(s, comm, gone == s->culprit && strstr(text, "the disk is full"), "%s", text);
        return;
    }
    CHECK(s, comm, parsed, "message names no rank, operation and peer: %s", text);
    if (!parsed) return;
    CHECK(s, comm,
          m.rank >= 0 && m.rank < s->ranks && m.peer >= 0 && m.peer < s->ranks && m.rank != m.peer,
          "ranks in: %s", text);
    int64_t at = s->op == OP_SEND_RECV ? 0 : 2;
    known |= strcmp(m.op, called(s->op)) == 0 && m.sequence == at;
    known |= s->hit == OTHER_OP && strcmp(m.op, called(ops[s->op].other)) == 0 && m.sequence == 2;
    known |=
        strcmp(m.op, "barrier") == 0 && m.sequence >= 2 && m.sequence < 20; /* those that follow */
    CHECK(s, comm, known, "operation and number in: %s", text);
    if (status == NEO_ERR_PEER)
        CHECK(s, comm, m.peer == s->culprit && strstr(text, "has left"), "%s", text);
    if (status == NEO_ERR_DIVERGED) {
        CHECK(s, comm, m.rank == s->culprit || m.peer == s->culprit, "%s", text);
        CHECK(s, comm, strstr(text, s->hit == OTHER_PAIR ? "expects" : ", but rank"), "%s", text);
        if (s->hit == OTHER_LABEL) judge_labels(s, comm, text);
    }
    if (status == NEO_ERR_TIMEOUT) {
        char late[64];
        snprintf(late, sizeof late, "did not come within %d ms", s->timeout_ms);
        CHECK(s, comm, strstr(text, late), "%s", text);
    }
}
/* The group is broken: every call says so, with the same words, and at once. */
static void judge_later_calls(scene *s, neo_comm *comm, neo_status status, const char *text) {
    float x[2] = {1, 2}, y[2 * MOST_RANKS], z[2 * MOST_RANKS];
    int peer = neo_comm_rank(comm) == 0, done = 0;
    neo_comm *sub = comm, *cross = comm;
    double began = now_ms(comm);
    memset(z, 0, sizeof z);
#define SAME(what)                                                                                 \
    do {                                                                                           \
        neo_status again = (what);                                                                 \
        CHECK(s, comm, again == status && strcmp(neo_last_error(), text) == 0,                     \
              "%s: %s: %s, not %s", #what, neo_status_string(again), neo_last_error(), text);      \
    } while (0)
    for (int async = 0; async < 2; async++) {
        neo_ticket ticket, *t = async ? &ticket : NULL;
        SAME(neo_comm_barrier(comm, t));
        SAME(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, x, y, 2, NEO_F32, t));
        SAME(neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, z, y, 2, NULL, NEO_F32, t));
        SAME(neo_comm_all_gather(comm, x, y, 2, NULL, NEO_F32, t));
        SAME(neo_comm_all_to_all(comm, z, y, 2, NEO_F32, t));
        SAME(neo_comm_broadcast(comm, x, 2, NEO_F32, 0, t));
        SAME(neo_comm_gather(comm, x, y, 2, NULL, NEO_F32, 0, t));
        SAME(neo_comm_scatter(comm, z, y, 2, NULL, NEO_F32, 0, t));
        SAME(neo_comm_send(comm, x, 2, NEO_F32, peer, t));
        SAME(neo_comm_recv(comm, x, 2, NEO_F32, peer, t));
    }
    SAME(neo_comm_status(comm));
    SAME(neo_comm_wait_all(comm));
    SAME(neo_comm_split(comm, 0, 0, &sub));
    SAME(neo_comm_split_nodes(comm, &sub, &cross));
    CHECK(s, comm, !sub && !cross, "a group out of a broken one");
    if (comm->queue.issued > 0) { /* a ticket: of an operation that went well, or not */
        int well = comm->queue.succeeded > 0;
        if (well) CHECK(s, comm, neo_comm_wait(comm, 0) == NEO_OK, "it went well");
        else SAME(neo_comm_wait(comm, 0));
        if (well) CHECK(s, comm, neo_comm_test(comm, 0, &done) == NEO_OK, "it went well");
        else SAME(neo_comm_test(comm, 0, &done));
        CHECK(s, comm, done, "neo_comm_test of an operation of a broken group");
    }
#undef SAME
    CHECK(s, comm, now_ms(comm) == began, "later calls took %g ms", now_ms(comm) - began);
}
/* The ranks that stay make a new group; all are here. */
static neo_comm *judge_rebuild(scene *s, neo_comm *comm, const int *lost) {
    int size = 0, mine = -1, world[MOST_RANKS];
    for (int r = 0; r < neo_comm_size(comm); r++) {
        if (lost[r]) continue;
        if (r == neo_comm_rank(comm)) mine = size;
        world[size++] = neo_comm_world_rank(comm, r);
    }
    neo_comm *next = NULL;
    neo_status status = neo_comm_rebuild(comm, &next);
    CHECK(s, comm, status == NEO_OK && next, "neo_comm_rebuild: %s", neo_last_error());
    if (!next) return NULL;
    CHECK(s, comm, neo_comm_size(next) == size && neo_comm_rank(next) == mine,
          "rank %d of %d, not %d of %d", neo_comm_rank(next), neo_comm_size(next), mine, size);
    CHECK(s, comm, neo_comm_status(next) == NEO_OK, "%s", neo_last_error());
    CHECK(s, comm, neo_comm_status(comm) != NEO_OK, "the broken group works again");
    for (int r = 0; r < size && r < neo_comm_size(next); r++)
        CHECK(s, comm, neo_comm_world_rank(next, r) == world[r], "world rank %d is %d, not %d", r,
              neo_comm_world_rank(next, r), world[r]);
    if (neo_comm_size(next) != size) return next;
    for (int op = 0; op < (s->all_after ? OP_COUNT : OP_REDUCE_SCATTER); op++) {
        plan p = {(op_kind)op, ops[op].count, NEO_F32, NEO_REDUCE_SUM, size - 1,
                  0,           NEO_WIRE_BF16, NULL};
        if (op == OP_SEND_RECV && size == 1) continue;
        status = perform(s, next, &p, 1);
        CHECK(s, comm, status == NEO_OK, "%s of the new group: %s", ops[op].label,
              neo_last_error());
    }
    return next;
}

/* ---- every operation, every fault ---- */
static neo_status faulty(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm), culprit = rank == s->culprit, lost[8] = {0};
    int64_t one = 1, sum = 0;
    char text[NEO__COMM_MESSAGE] = "";
    plan p = plan_of(s, rank);
    neo_status status = neo_comm_barrier(comm, NULL); /* #0 and #1: all is well */
    CHECK(s, comm, status == NEO_OK, "%s", neo_last_error());
    status = neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &one, &sum, 1, NEO_I64, NULL);
    CHECK(s, comm, status == NEO_OK && sum == s->ranks, "%s", neo_last_error());
    set_timeout(comm, s->timeout_ms);
    if (culprit && s->hit >= KILL && s->hit <= DROP) {
        neo_fault fault = {s->hit == KILL   ? NEO_FAULT_KILL
                           : s->hit == DROP ? NEO_FAULT_DROP
                                            : NEO_FAULT_DELAY,
                           2, s->delay_ms};
        status = neo_comm_inject(comm, fault);
        CHECK(s, comm, status == NEO_OK, "%s", neo_last_error());
    }
    meet(s, comm, s->ranks);
    if (culprit && s->hit == RETURN_OK) return NEO_OK;
    if (culprit && s->hit == RETURN_ERROR) return neo_fail(NEO_ERR_IO, "the disk is full");
    double began = now_ms(comm);
    if (culprit && s->hit == DELAY && s->op == OP_SEND_RECV) sleep_ms(comm, s->delay_ms);
    status = perform(s, comm, &p, !culprit || s->hit < OTHER_OP);
    if (culprit && s->hit == DROP && !s->harmless && !s->async) /* it knows of nothing */
        while (__atomic_load_n(&s->hurt, __ATOMIC_ACQUIRE) < s->ranks - 1) sleep_ms(comm, 1);
    for (int i = 0; status == NEO_OK && i < 16 && !(s->harmless && i == 2);
         i++) { /* until it has seen the error */
        neo_ticket ticket;
        status = neo_comm_barrier(comm, s->async ? &ticket : NULL);
        status = settle(comm, s->async, status, &ticket);
    }
    double took = now_ms(comm) - began, due = status == NEO_ERR_TIMEOUT ? s->timeout_ms : 0;
    if (culprit && s->hit == DELAY) due = s->delay_ms;
    __atomic_fetch_add(&s->hurt, status != NEO_OK, __ATOMIC_RELEASE);
    if (status == NEO_OK) {
        __atomic_fetch_add(&s->fine, 1, __ATOMIC_RELAXED);
        meet(s, comm, s->stay);
        return NEO_OK;
    }
    snprintf(text, sizeof text, "%s", neo_last_error());
    double polls =
        s->async ? 16 * POLL_MS : culprit && s->hit == DROP; /* it looks every millisecond */
    CHECK(s, comm, took >= due && took <= due + polls, "saw it after %g ms, not %g: %s", took, due,
          text);
    if (culprit && s->hit == KILL) {
        neo_comm *next = comm;
        CHECK(s, comm, status == NEO_ERR_PEER && strstr(text, "lost on purpose"), "%s", text);
        judge_later_calls(s, comm, status, text);
        status = neo_comm_rebuild(comm, &next);
        CHECK(s, comm, status == NEO_ERR_PEER && !next, "neo_comm_rebuild by the lost rank: %s",
              neo_last_error());
        return NEO_OK;
    }
    CHECK(s, comm, status_fits(s, status), "%s: %s", neo_status_string(status), text);
    judge_message(s, comm, status, text);
    meet(s, comm, s->stay); /* so that none is seen to leave before all know the reason */
    judge_later_calls(s, comm, status, text);
    set_timeout(comm, LONG_MS);
    lost[s->culprit] = s->hit <= KILL;
    neo_comm_destroy(judge_rebuild(s, comm, lost));
    return NEO_OK;
}

#define IS_OK(s, comm, what)                                                                       \
    do {                                                                                           \
        neo_status status_ = (what);                                                               \
        CHECK(s, comm, status_ == NEO_OK, "%s: %s: %s", #what, neo_status_string(status_),         \
              neo_last_error());                                                                   \
    } while (0)
#define IS_ERR(s, comm, what, want, part)                                                          \
    do {                                                                                           \
        neo_status status_ = (what);                                                               \
        CHECK(s, comm, status_ == (want) && strstr(neo_last_error(), (part)),                      \
              "%s: %s: %s, not %s", #what, neo_status_string(status_), neo_last_error(), part);    \
    } while (0)
static neo_status sum_of_ones(neo_comm *comm, int64_t *sum) {
    int64_t one = 1;
    return neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &one, sum, 1, NEO_I64, NULL);
}
/* The group works: small and large sums are right. */
static void works(scene *s, neo_comm *comm, const char *what) {
    for (int op = OP_ALL_REDUCE_SMALL; op <= OP_ALL_REDUCE_LARGE; op++) {
        plan p = {(op_kind)op, ops[op].count, NEO_F32, NEO_REDUCE_SUM, 0, 0, NEO_WIRE_F32, NULL};
        neo_status status = perform(s, comm, &p, 1);
        CHECK(s, comm, status == NEO_OK, "%s: %s", what, neo_last_error());
    }
}

/* A rank that comes when the others have gone on is told so. */
static neo_status late(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm), mine = rank == s->culprit;
    neo_comm *next = NULL;
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    set_timeout(comm, SHORT_MS);
    meet(s, comm, s->ranks);
    if (mine) {
        meet(s, comm, s->ranks); /* they have given up */
        meet(s, comm, s->ranks); /* they have a new group */
        IS_ERR(s, comm, neo_comm_barrier(comm, NULL), NEO_ERR_TIMEOUT, "did not come within");
        IS_ERR(s, comm, neo_comm_rebuild(comm, &next), NEO_ERR_PEER, "came too late");
        CHECK(s, comm, !next, "a group all the same");
        return NEO_OK;
    }
    IS_ERR(s, comm, neo_comm_barrier(comm, NULL), NEO_ERR_TIMEOUT, "did not come within");
    set_timeout(comm, 3000); /* to wait for the late one; and time enough for the others */
    meet(s, comm, s->ranks);
    IS_OK(s, comm, neo_comm_rebuild(comm, &next));
    if (next) {
        set_timeout(next, LONG_MS);
        CHECK(s, next, neo_comm_size(next) == s->ranks - 1, "%d ranks", neo_comm_size(next));
        works(s, next, "without the late one");
    }
    meet(s, comm, s->ranks);
    if (next) works(s, next, "after the late one has come");
    neo_comm_destroy(next);
    return NEO_OK;
}

static void scene_open(scene *s) {
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->all, NULL);
    s->came = s->turn = s->fine = s->hurt = 0;
    memset(&s->memory, 0, sizeof s->memory);
    s->memory.refuse_at = -1;
}
static void scene_close(scene *s) {
    CHECK(s, (neo_comm *)NULL, s->memory.live == 0 && s->memory.wrong == 0,
          "%" PRId64 " blocks not freed, %" PRId64 " freed wrongly, of %" PRId64, s->memory.live,
          s->memory.wrong, s->memory.calls);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->all);
}
static neo_status scene_spawn(scene *s, neo_comm_fn fn, neo_status *rank_status) {
    neo_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ctx.allocator.alloc = meter_alloc;
    desc.ctx.allocator.free = meter_free;
    desc.ctx.allocator.user = &s->memory;
    desc.timeout_ms = s->timeout_ms < 0 ? s->timeout_ms : LONG_MS;
    if (s->real_clock) desc.timeout_ms = TEST_PATIENCE_MS;
    desc.queue_length = 4;
    desc.virtual_clock = !s->real_clock;
    return neo_comm_spawn(s->ranks, &desc, fn, s, rank_status);
}
static void scene_run(scene *s) {
    neo_status rank_status[8];
    scene_open(s);
    neo_status status = scene_spawn(s, s->fn, rank_status);
    neo_status want = s->hit == RETURN_ERROR ? NEO_ERR_IO : NEO_OK;
    char text[64];
    snprintf(text, sizeof text, "rank %d: the disk is full", s->culprit);
    CHECK(s, (neo_comm *)NULL,
          status == want && (want == NEO_OK || strcmp(neo_last_error(), text) == 0),
          "the job: %s: %s", neo_status_string(status), neo_last_error());
    for (int r = 0; r < s->ranks; r++)
        CHECK(s, (neo_comm *)NULL, rank_status[r] == (r == s->culprit ? want : NEO_OK),
              "rank %d: %s", r, neo_status_string(rank_status[r]));
    scene_close(s);
    CHECK(s, (neo_comm *)NULL, s->fine == (s->harmless ? s->ranks : 0),
          "%d of %d ranks saw no error", s->fine, s->ranks);
}

static scene *scenes;
static int scene_count, scene_next;
static void *runner(void *arg) {
    scene **mine = (scene **)arg;
    for (int i; (i = __atomic_fetch_add(&scene_next, 1, __ATOMIC_RELAXED)) < scene_count;) {
        __atomic_store_n(mine, &scenes[i], __ATOMIC_RELEASE);
        if (i % THIN == 0) scene_run(&scenes[i]);
        alarm(WATCHDOG_S);
        __atomic_store_n(mine, NULL, __ATOMIC_RELEASE);
    }
    return NULL;
}
static void scene_add(op_kind op, blow hit, int ranks, int culprit, int async) {
    scene s;
    memset(&s, 0, sizeof s);
    s.fn = faulty;
    s.op = op;
    s.hit = hit;
    s.ranks = ranks;
    s.culprit = culprit;
    s.async = async;
    s.root = ranks > 2;
    s.all_after = (op + (int)hit + ranks + culprit + async) % 4 == 0;
    s.timeout_ms =
        hit == DELAY || hit == DROP || hit == OTHER_OP || hit == OTHER_ROOT ? SHORT_MS : LONG_MS;
    s.delay_ms = hit == DELAY ? 2 * SHORT_MS : 0;
    s.stay = ranks - (hit <= KILL);
    s.harmless = hit == DROP && !sends(&s);
    if (s.harmless) s.timeout_ms = LONG_MS;
    snprintf(s.label, sizeof s.label, "%s%s, %d ranks, rank %d %s", async ? "asynchronous " : "",
             ops[op].label, ranks, culprit, blow_label[hit]);
    if (scenes) scenes[scene_count] = s;
    scene_count++;
}
static void add_scenes(void) {
    static const struct {
        int ranks, culprit; /* the root is rank 1, of two ranks rank 0 */
    } who[] = {{2, 0}, {2, 1}, {3, 0}, {3, 1}, {3, 2}, {4, 0},
               {4, 1}, {5, 1}, {5, 4}, {8, 0}, {8, 7}};
    scene_count = 0;
    /* Those that wait longest first. */
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int last = 0; last < 2; last++) {
            scene_add(OP_BARRIER, DELAY, ranks, last ? ranks - 1 : 0, 0);
            if (!scenes) continue;
            scene *s = &scenes[scene_count - 1];
            s->fn = late;
            snprintf(s->label, sizeof s->label,
                     "%d ranks, rank %d comes after the others have gone on", ranks, s->culprit);
        }
    static const blow order[BLOWS] = {
        DELAY,       DROP,        OTHER_OP,     OTHER_ROOT, KILL,       RETURN_OK,  RETURN_ERROR,
        OTHER_COUNT, OTHER_DTYPE, OTHER_REDUCE, OTHER_PAIR, OTHER_WIRE, OTHER_LABEL};
    for (int b = 0; b < BLOWS; b++)
        for (int op = 0; op < OP_COUNT; op++)
            for (size_t w = 0; w < sizeof who / sizeof who[0] && applies((op_kind)op, order[b]);
                 w++)
                for (int async = 0; async < 2; async++)
                    scene_add((op_kind)op, order[b], who[w].ranks, who[w].culprit, async);
}
static void every_operation_every_fault(void) {
    pthread_t thread[RUNNERS];
    add_scenes();
    scenes = (scene *)malloc((size_t)scene_count * sizeof *scenes);
    if (!scenes) abort();
    add_scenes();
    for (int i = 0; i < RUNNERS; i++)
        if (pthread_create(&thread[i], NULL, runner, &running[i]) != 0) abort();
    for (int i = 0; i < RUNNERS; i++) pthread_join(thread[i], NULL);
    free(scenes);
}


/* ---- single scenes ---- */
static void scene_single(scene *s, int ranks, const char *label) {
    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    s->culprit = -1;
    s->timeout_ms = LONG_MS;
    snprintf(s->label, sizeof s->label, "%s, %d ranks", label, ranks);
    __atomic_store_n(&running[RUNNERS], s, __ATOMIC_RELEASE);
    scene_open(s);
}
/* Runs it; every rank must have returned `want`. */
static void scene_single_run(scene *s, neo_comm_fn fn, neo_status want) {
    neo_status rank_status[MOST_RANKS], status = scene_spawn(s, fn, rank_status);
    CHECK(s, (neo_comm *)NULL, status == want, "the job: %s: %s", neo_status_string(status),
          neo_last_error());
    for (int r = 0; r < s->ranks; r++)
        CHECK(s, (neo_comm *)NULL, rank_status[r] == want, "rank %d: %s", r,
              neo_status_string(rank_status[r]));
    scene_close(s);
    __atomic_store_n(&running[RUNNERS], (scene *)NULL, __ATOMIC_RELEASE);
    alarm(WATCHDOG_S);
}
/* One rank gives up. The others are in an operation, come to one later, or only ask now and then.
   */
static neo_status aborted(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm), lost[8] = {0};
    char want[80];
    neo_status status;
    snprintf(want, sizeof want, "rank %d has given up: %s", s->culprit,
             s->harmless ? "(no reason given)" : "the disk is full");
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    meet(s, comm, s->ranks);
    if (rank == s->culprit) {
        /* or by the message of another group, as neo_last_error has it */
        neo_comm_abort(comm, s->harmless ? NULL : s->async ? want : "the disk is full");
        neo_comm_abort(comm, "and this comes too late");
        __atomic_store_n(&s->hurt, 1, __ATOMIC_RELEASE);
        status = neo_comm_status(comm);
    } else if (rank == (s->culprit + 1) % s->ranks) { /* only asks */
        while (!__atomic_load_n(&s->hurt, __ATOMIC_ACQUIRE)) sleep_ms(comm, 1);
        status = neo_comm_status(comm);
        CHECK(s, comm, status != NEO_OK, "neo_comm_status does not see that rank %d has given up",
              s->culprit);
        if (status == NEO_OK) status = neo_comm_barrier(comm, NULL);
    } else if (rank == (s->culprit + 2) % s->ranks) { /* calls something afterwards */
        while (!__atomic_load_n(&s->hurt, __ATOMIC_ACQUIRE)) sleep_ms(comm, 1);
        status = neo_comm_barrier(comm, NULL);
    } else {
        plan p = {OP_ALL_REDUCE_LARGE, 5000, NEO_F32, NEO_REDUCE_SUM, 0, 0, NEO_WIRE_F32, NULL};
        status = perform(s, comm, &p, 1);
    }
    CHECK(s, comm, status == NEO_ERR_PEER && strcmp(neo_last_error(), want) == 0, "%s: %s",
          neo_status_string(status), neo_last_error());
    meet(s, comm, s->ranks);
    judge_later_calls(s, comm, NEO_ERR_PEER, want);
    neo_comm_destroy(judge_rebuild(s, comm, lost)); /* nobody is lost */
    return NEO_OK;
}
static void aborts(void) {
    static const int worlds[] = {2, 3, 4, 5, 8};
    for (int w = 0; w < 5; w++)
        for (int last = 0; last < 2; last++)
            for (int async = 0; async < 2; async++) {
                scene s;
                scene_single(&s, worlds[w], "neo_comm_abort");
                s.culprit = last ? worlds[w] - 1 : 0;
                s.async = async;
                s.harmless = w == 2;
                scene_single_run(&s, aborted, NEO_OK);
            }
}

/* All leave at once when they have seen the error: none may be taken for the one that was the
   reason. */
static neo_status leaves_at_once(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    neo_status status = neo_comm_barrier(comm, NULL);
    if (status == NEO_OK && neo_comm_rank(comm) == s->culprit)
        neo_comm_abort(comm, "the disk is full");
    for (int i = 0; status == NEO_OK && i < 16; i++) status = neo_comm_barrier(comm, NULL);
    CHECK(s, comm, strstr(neo_last_error(), "has given up: the disk is full"), "%s",
          neo_last_error());
    return status;
}
static void the_first_reason_stands(void) {
    for (int i = 0; i < 40; i++) {
        scene s;
        scene_single(&s, i % 4 == 0 ? MOST_RANKS : 3 + i % 8, "all leave after an abort");
        s.culprit = i % s.ranks;
        scene_single_run(&s, leaves_at_once, NEO_ERR_PEER);
    }
}

/* Groups of a group: each breaks by itself, and names world ranks. Two nodes of three ranks. */
static neo_status apart(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm), lost[8] = {0};
    neo_comm *local = NULL, *cross = NULL, *odd = NULL, *next = NULL;
    int64_t sum = 0;
    float x = 1, y = 0;
    char text[NEO__COMM_MESSAGE];
    for (int r = 0; r < 6; r++) comm->node[r] = r / 3; /* as ranks_per_node would */
    IS_OK(s, comm, neo_comm_split_nodes(comm, &local, &cross));
    IS_OK(s, comm, neo_comm_split(comm, rank % 2, -rank, &odd)); /* backwards */
    if (!local || !cross || !odd) {
        failures++;
        return NEO_ERR_STATE;
    }
    CHECK(s, odd, neo_comm_world_rank(odd, 0) == 4 + rank % 2, "world rank %d",
          neo_comm_world_rank(odd, 0));
    meet(s, comm, 6);
    /* Rank 1 is lost to its node. */
    if (rank == 1) {
        neo_fault kill = {NEO_FAULT_KILL, 0, 0};
        IS_OK(s, comm, neo_comm_inject(local, kill));
    }
    if (rank == 1)
        IS_ERR(s, local, neo_comm_barrier(local, NULL), NEO_ERR_PEER,
               "rank 1: lost on purpose at barrier #0");
    else if (rank < 3)
        IS_ERR(s, local, neo_comm_barrier(local, NULL), NEO_ERR_PEER,
               "barrier #0: rank 1 has left");
    else works(s, local, "the other node");
    works(s, comm, "the parent");
    works(s, cross, "the ranks across");
    works(s, odd, "odd and even");
    /* The group across of ranks 2 and 5 is given up by rank 5. */
    meet(s, comm, 6);
    if (rank == 5) neo_comm_abort(cross, "enough");
    if (rank % 3 == 2)
        IS_ERR(s, cross, sum_of_ones(cross, &sum), NEO_ERR_PEER, "rank 5 has given up: enough");
    else works(s, cross, "the other ranks across");
    works(s, comm, "the parent");
    works(s, odd, "odd and even");
    if (rank >= 3) works(s, local, "the other node");
    /* The odd ranks disagree: rank 3, which is in their middle. */
    if (rank % 2) {
        neo_status status = neo_comm_all_reduce(odd, rank == 3 ? NEO_REDUCE_MAX : NEO_REDUCE_SUM,
                                                &x, &y, 1, NEO_F32, NULL);
        snprintf(text, sizeof text, "%s", neo_last_error());
        CHECK(s, odd,
              status == NEO_ERR_DIVERGED && strstr(text, "rank 3: all_reduce #") &&
                  strstr(text, "max"),
              "%s", text);
        CHECK(s, odd, strstr(text, "rank 1: all_reduce") || strstr(text, "rank 5: all_reduce"),
              "%s", text);
    } else works(s, odd, "even");
    works(s, comm, "the parent");
    /* Node 0 goes on without rank 1, the odd ranks with all. */
    lost[1] = 1;
    if (rank == 1)
        IS_ERR(s, local, neo_comm_rebuild(local, &next), NEO_ERR_PEER, "rank 1 is the lost one");
    if (rank == 0 || rank == 2) neo_comm_destroy(judge_rebuild(s, local, lost));
    lost[1] = 0;
    if (rank % 2) neo_comm_destroy(judge_rebuild(s, odd, lost));
    /* The parent breaks: what works goes on working. */
    works(s, comm, "the parent");
    meet(s, comm,
         6); /* an abort hits also those that are not done yet with what this rank has done */
    if (rank == 0) neo_comm_abort(comm, "the end");
    IS_ERR(s, comm, neo_comm_barrier(comm, NULL), NEO_ERR_PEER, "rank 0 has given up: the end");
    if (rank >= 3) works(s, local, "the other node, without a parent");
    if (rank % 3 != 2) works(s, cross, "across, without a parent");
    if (rank % 2 == 0) works(s, odd, "even, without a parent");
    meet(s, comm, 6);
    neo_comm_destroy(judge_rebuild(s, comm, lost));
    neo_comm_destroy(local);
    neo_comm_destroy(cross);
    neo_comm_destroy(odd);
    return NEO_OK;
}

/* Labels: which calls take one, which leave or drop it; long ones differ wherever they do. */
static neo_status labelled(neo_comm *comm, void *user) {
    static const char *const pairs[][4] = {
        /* two labels, and how messages show them (NULL: any way) */
        {"h.2", "h.3", "of 'h.2'", "of 'h.3'"},
        {"123456789012345678901234567890123456789", "123456789012345678901234567890123456780",
         "of '123456789012345678901234567890123456789'",
         "of '123456789012345678901234567890123456780'"},
        {"model.layers.11.attention.query.weight.of.rank",
         "model.layers.12.attention.query.weight.of.rank", "of 'model.layers.1~",
         "~.weight.of.rank'"},
        {"model.layers.11.attention.query.weight.of.rank", "model.layers.1", "~.weight.of.rank'",
         "of 'model.layers.1'"},
        {"", "h.3", "barrier #0", "of 'h.3'"}};
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm), last = rank == s->ranks - 1;
    int64_t sum = 0, before = s->memory.calls;
    neo_ticket ticket;
    float x = 1, y[MOST_RANKS];
    neo_comm_label(NULL, "h.3");
    meet(s, comm, s->ranks);
    /* Equal ones, of every kind; the next call has none. */
    neo_comm_label(comm, "h.3");
    IS_OK(s, comm, sum_of_ones(comm, &sum));
    if (last) neo_comm_label(comm, "another"), neo_comm_label(comm, NULL); /* none after all */
    IS_OK(s, comm, neo_comm_all_gather(comm, &x, y, 1, NULL, NEO_F32, NULL));
    for (int i = 0; i < 6; i++) { /* taken when the call is made */
        neo_comm_label(comm, i % 2 ? "odd" : "even");
        IS_OK(s, comm, neo_comm_barrier(comm, &ticket));
    }
    neo_comm_label(comm, "to be overwritten");
    neo_comm_label(comm, "long");
    IS_OK(s, comm, neo_comm_wait_all(comm));
    /* A refused call leaves it to the next. */
    if (last)
        IS_ERR(s, comm, neo_comm_all_gather(comm, NULL, y, 1, NULL, NEO_F32, NULL), NEO_ERR_ARG,
               "in is NULL");
    IS_OK(s, comm, neo_comm_all_gather(comm, &x, y, 1, NULL, NEO_F32, NULL));
    CHECK(s, comm, s->memory.calls == before, "labels allocate");
    /* Of a call that this rank alone could not make: agreement and splitting have none. */
    if (last) neo_comm_label(comm, "of one rank");
    IS_ERR(s, comm, neo_comm_agree(comm, last ? neo_fail(NEO_ERR_IO, "the disk is full") : NEO_OK),
           NEO_ERR_IO, "full");
    for (int i = 0; i < (int)(sizeof pairs / sizeof pairs[0]); i++) {
        neo_comm *group = NULL;
        if (last) neo_comm_label(comm, "of one rank");
        IS_OK(s, comm, neo_comm_split(comm, 0, 0, &group));
        if (!group) return NEO_ERR_STATE;
        neo_comm_label(group, pairs[i][last]);
        neo_status status = neo_comm_barrier(group, NULL);
        if (status == NEO_OK)
            status = neo_comm_barrier(group, NULL); /* it did not meet the last rank */
        const char *text = neo_last_error();
        CHECK(s, group, status == NEO_ERR_DIVERGED && strstr(text, ", but rank "), "%s", text);
        CHECK(s, group, strstr(text, pairs[i][2]) && strstr(text, pairs[i][3]), "labels %d: %s", i,
              text);
        meet(s, comm, s->ranks);
        neo_comm_destroy(group);
    }
    return NEO_OK;
}
static void labels(void) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        scene s;
        scene_single(&s, ranks, "labels");
        scene_single_run(&s, labelled, NEO_OK);
    }
}

/* Fault after fault: 5 ranks, 4, 3, 2, 1. Each broken group is destroyed as soon as there is a new
   one. */
static neo_status one_after_another(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    neo_comm *group = NULL, *next;
    IS_OK(s, comm, neo_comm_split(comm, 0, 0, &group));
    for (int left = s->ranks; group && left > 1; left--) {
        int victim = left % 2 ? 0 : neo_comm_size(group) - 1, lost = neo_comm_rank(group) == victim;
        int64_t sum = 0;
        works(s, group, "the next group");
        if (lost) {
            neo_fault kill = {NEO_FAULT_KILL, group->next.sequence, 0};
            IS_OK(s, group, neo_comm_inject(group, kill));
        }
        meet(s, comm, left); /* the fault must not overtake what worked */
        IS_ERR(s, group, sum_of_ones(group, &sum), NEO_ERR_PEER,
               lost ? "lost on purpose" : "has left");
        next = NULL;
        if (lost) IS_ERR(s, group, neo_comm_rebuild(group, &next), NEO_ERR_PEER, "is the lost one");
        else IS_OK(s, group, neo_comm_rebuild(group, &next));
        neo_comm_destroy(group);
        group = next;
    }
    if (group) works(s, group, "a group of one");
    neo_comm_destroy(group);
    works(s, comm, "the parent");
    return NEO_OK;
}

/* Calls that are wrong, and faults that do nothing. */
static neo_status odds(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    neo_comm *next = comm;
    neo_fault fault = {NEO_FAULT_DELAY, 2, -1};
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    IS_ERR(s, comm, neo_comm_rebuild(comm, &next), NEO_ERR_STATE, "the group works");
    CHECK(s, comm, !next, "a group out of one that works");
    IS_ERR(s, comm, neo_comm_rebuild(NULL, &next), NEO_ERR_ARG, "NULL");
    IS_ERR(s, comm, neo_comm_rebuild(comm, NULL), NEO_ERR_ARG, "NULL");
    IS_ERR(s, comm, neo_comm_status(NULL), NEO_ERR_ARG, "NULL");
    IS_ERR(s, comm, neo_comm_inject(NULL, fault), NEO_ERR_ARG, "NULL");
    IS_ERR(s, comm, neo_comm_inject(comm, fault), NEO_ERR_ARG, "no fault");
    fault.kind = (neo_fault_kind)9;
    IS_ERR(s, comm, neo_comm_inject(comm, fault), NEO_ERR_ARG, "no fault");
    neo_comm_abort(NULL, "nothing");
    meet(s, comm, s->ranks);
    for (int op = 0; op < OP_COUNT; op++) { /* late, but in time; with no timeout always */
        plan p = {(op_kind)op, ops[op].count, NEO_F32, NEO_REDUCE_SUM, 1, 0, NEO_WIRE_BF16, NULL};
        neo_fault delay = {NEO_FAULT_DELAY, comm->next.sequence, 10};
        if (neo_comm_rank(comm) == op % s->ranks) IS_OK(s, comm, neo_comm_inject(comm, delay));
        IS_OK(s, comm, perform(s, comm, &p, 1));
    }
    if (neo_comm_rank(comm) == 2) return NEO_OK; /* and leaves */
    IS_ERR(s, comm, neo_comm_barrier(comm, NULL), NEO_ERR_PEER, "has left");
    meet(s, comm, s->ranks - 1);
    IS_OK(s, comm, neo_comm_rebuild(comm, &next));
    if (next) works(s, next, "without rank 2");
    meet(s, comm, s->ranks - 1);
    neo_comm *again = comm; /* once is enough */
    neo_status status = neo_comm_rebuild(comm, &again);
    CHECK(s, comm, status != NEO_OK && !again, "a second group out of a broken one: %s",
          neo_status_string(status));
    if (next) works(s, next, "after that");
    neo_comm_destroy(next);
    return NEO_OK;
}

/* Twelve asynchronous operations, of which the seventh breaks the group; the queue takes four. */
static neo_status in_flight(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    enum { MANY = 12, AT = 6, N = 600 };
    int rank = neo_comm_rank(comm), issued = 0, done = 0;
    neo_fault kill = {NEO_FAULT_KILL, AT, 0};
    neo_status status = NEO_OK;
    neo_ticket ticket[MANY];
    float *in = (float *)malloc(N * sizeof *in), *out = (float *)malloc(MANY * N * sizeof *out);
    if (!in || !out) abort();
    for (int i = 0; i < N; i++) in[i] = (float)(rank + i);
    if (rank == s->culprit) IS_OK(s, comm, neo_comm_inject(comm, kill));
    while (issued < MANY && status == NEO_OK) {
        status = neo_comm_all_reduce(comm, NEO_REDUCE_SUM, in, out + N * issued, N, NEO_F32,
                                     &ticket[issued]);
        if (status == NEO_OK) issued++;
    }
    /* The seventh is refused where the group broke before this rank came to it. */
    CHECK(s, comm, issued >= AT, "only %d were taken: %s", issued, neo_last_error());
    if (issued == AT) IS_ERR(s, comm, status, NEO_ERR_PEER, "all_reduce #6");
    for (int k = 0; k < issued; k++) {
        status = neo_comm_wait(comm, ticket[k]);
        CHECK(s, comm, status == (k < AT ? NEO_OK : NEO_ERR_PEER), "operation %d: %s", k,
              neo_status_string(status));
        IS_ERR(s, comm, status == NEO_OK ? neo_fail(NEO_OK, "all_reduce #6") : status, status,
               "all_reduce #6");
        int64_t sum = s->ranks * (s->ranks - 1) / 2;
        for (int i = 0; status == NEO_OK && i < N; i++)
            if (out[N * k + i] != (float)(sum + (int64_t)s->ranks * i)) {
                CHECK(s, comm, 0, "element %d of operation %d", i, k);
                break;
            }
    }
    IS_ERR(s, comm, neo_comm_wait_all(comm), NEO_ERR_PEER,
           rank == s->culprit ? "lost on purpose" : "has left");
    CHECK(s, comm, neo_comm_test(comm, ticket[0], &done) == NEO_OK && done,
          "the first went well: %s", neo_last_error());
    if (issued > AT) {
        IS_ERR(s, comm, neo_comm_test(comm, ticket[AT], &done), NEO_ERR_PEER, "all_reduce #6");
        CHECK(s, comm, done, "not done");
    }
    meet(s, comm, s->ranks);
    memset(in, 0xEE, N * sizeof *in);
    free(in);
    free(out);
    return NEO_OK;
}

/* A rank that returns with an operation in flight takes part in it to its end. */
static neo_status returns_in_flight(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    static float in[MOST_RANKS][5000], out[MOST_RANKS][5000];
    int rank = neo_comm_rank(comm);
    neo_ticket ticket;
    for (int i = 0; i < 5000; i++) in[rank][i] = (float)(rank + i % 100);
    if (rank != s->culprit) sleep_ms(comm, 20);
    IS_OK(s, comm,
          neo_comm_all_reduce(comm, NEO_REDUCE_SUM, in[rank], out[rank], 5000, NEO_F32, &ticket));
    if (rank == s->culprit) return NEO_OK;
    /* One that is done already may find in the barrier that the culprit has left, and break the
       group under the others. */
    neo_status status = neo_comm_wait(comm, ticket);
    CHECK(s, comm,
          status == NEO_OK || (status == NEO_ERR_PEER && strstr(neo_last_error(), "barrier #1")),
          "%s", neo_last_error());
    float want = (float)(s->ranks * (s->ranks - 1) / 2 + s->ranks * 99);
    CHECK(s, comm, status != NEO_OK || out[rank][4999] == want, "%g", (double)out[rank][4999]);
    IS_ERR(s, comm, neo_comm_barrier(comm, NULL), NEO_ERR_PEER, "has left");
    meet(s, comm, s->ranks - 1);
    return NEO_OK;
}

/* A rank that returns with groups left has left these, too: nobody waits for it there. */
static neo_status leaves_groups(neo_comm *comm, void *user) {
    static neo_comm *forgotten[2];
    scene *s = (scene *)user;
    const int rank = neo_comm_rank(comm);
    neo_comm *group[2];
    IS_OK(s, comm, neo_comm_split(comm, 0, rank, &group[0]));
    IS_OK(s, comm, neo_comm_split(group[0], 0, rank, &group[1]));
    meet(s, comm, s->ranks); /* a group that breaks hits also those that are not done with a call */
    if (rank == s->culprit) {
        memcpy(forgotten, group, sizeof group);
        return NEO_OK;
    }
    for (int i = 1; i >= 0; i--)
        IS_ERR(s, comm, neo_comm_barrier(group[i], NULL), NEO_ERR_PEER, "has left");
    CHECK(s, comm, now_ms(comm) < LONG_MS, "%g ms", now_ms(comm));
    meet(s, comm, s->ranks - 1);
    for (int i = 1; i >= 0; i--) neo_comm_destroy(group[i]);
    /* Groups are their own thread's: time goes on, so that this one wakes, when that has ended. */
    if (rank == (s->culprit == 0)) sleep_ms(comm, 1);
    for (int i = 1; i >= 0 && rank == (s->culprit == 0); i--) neo_comm_destroy(forgotten[i]);
    return NEO_OK;
}

static void groups_and_rebuilding(void) {
    scene s;
    scene_single(&s, 6, "groups apart");
    scene_single_run(&s, apart, NEO_OK);
    scene_single(&s, 5, "one after another");
    scene_single_run(&s, one_after_another, NEO_OK);
    for (int never = 0; never < 2; never++) {
        scene_single(&s, 3, never ? "odds, no timeout" : "odds");
        if (never) s.timeout_ms = -1;
        scene_single_run(&s, odds, NEO_OK);
    }
    for (int culprit = 0; culprit < 3; culprit++) {
        scene_single(&s, 3, "many in flight");
        s.culprit = culprit;
        scene_single_run(&s, in_flight, NEO_OK);
        scene_single(&s, 4, "returns with one in flight");
        s.culprit = culprit;
        scene_single_run(&s, returns_in_flight, NEO_OK);
        scene_single(&s, 3, "returns before its groups are gone");
        s.culprit = culprit;
        scene_single_run(&s, leaves_groups, NEO_OK);
    }
}

/* ---- memory ---- */
/* Groups, an operation in each, a fault, a new group; every status is passed on. */
static neo_status needy(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    int rank = neo_comm_rank(comm);
    int64_t sum = 0, one = 1;
    neo_comm *sub = NULL, *next = NULL;
    neo_ticket ticket;
    NEO__TRY(neo_comm_split(comm, rank % 2, rank, &sub));
    neo_status status = sum_of_ones(sub, &sum);
    if (status == NEO_OK)
        status = neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &one, &sum, 1, NEO_I64, &ticket);
    if (status == NEO_OK) status = neo_comm_wait(comm, ticket);
    CHECK(s, comm, status != NEO_OK || sum == s->ranks, "sum %" PRId64, sum);
    if (status == NEO_OK && rank == 0) neo_comm_abort(comm, "a break");
    if (status == NEO_OK && neo_comm_barrier(comm, NULL) != NEO_OK)
        status = neo_comm_rebuild(comm, &next);
    if (status == NEO_OK) status = sum_of_ones(next, &sum);
    CHECK(s, comm, status != NEO_OK || sum <= s->ranks, "sum %" PRId64, sum);
    char text[NEO__COMM_MESSAGE];
    snprintf(text, sizeof text, "%s", neo_last_error());
    CHECK(s, comm, now_ms(comm) == 0, "waited %g ms: %s", now_ms(comm), text);
    neo_comm_destroy(next);
    neo_comm_destroy(sub);
    return status == NEO_OK ? NEO_OK : neo_fail(status, "%s", text);
}
static void memory_refused(void) {
    int refusals = 0;
    for (int64_t n = 0;; n++) {
        scene s;
        scene_single(&s, 3, "memory refused");
        snprintf(s.label, sizeof s.label, "allocation %" PRId64 " refused", n);
        s.memory.refuse_at = n;
        neo_status rank_status[3];
        neo_status status = scene_spawn(&s, needy, rank_status);
        int refused = s.memory.refused > 0;
        CHECK(&s, (neo_comm *)NULL,
              refused ? status != NEO_OK && neo_last_error()[0] : status == NEO_OK, "%s: %s",
              neo_status_string(status), neo_last_error());
        int memory = status == NEO_ERR_MEMORY;
        for (int r = 0; r < 3; r++) {
            memory |= rank_status[r] == NEO_ERR_MEMORY;
            CHECK(&s, (neo_comm *)NULL,
                  rank_status[r] == NEO_OK || rank_status[r] == NEO_ERR_MEMORY ||
                      rank_status[r] == NEO_ERR_PEER || rank_status[r] == NEO_ERR_STATE,
                  "rank %d: %s", r, neo_status_string(rank_status[r]));
        }
        CHECK(&s, (neo_comm *)NULL, memory == refused, "nobody said that memory was short");
        scene_close(&s);
        __atomic_store_n(&running[RUNNERS], (scene *)NULL, __ATOMIC_RELEASE);
        refusals += refused;
        if (!refused) break;
    }
    CHECK(&(scene){0}, (neo_comm *)NULL, refusals > 20, "only %d allocations", refusals);
}

/* ---- waiting costs nothing ---- */
static int64_t cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
/* One rank sleeps while all others wait for it; it looks at what the process has used meanwhile. */
enum { REST_MS = 300 };
static neo_status asleep(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    static const op_kind what[] = {OP_ALL_REDUCE_SMALL, OP_ALL_REDUCE_LARGE, OP_ALL_TO_ALL,
                                   OP_BARRIER};
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    for (int k = 0; k < (s->ranks == MOST_RANKS ? 4 : 1); k++) {
        plan p = {what[k], ops[what[k]].count, NEO_F32, NEO_REDUCE_SUM, 0, 0, NEO_WIRE_F32, NULL};
        if (neo_comm_rank(comm) == s->culprit) {
            int64_t cpu = REST_MS;
            for (int turn = 0; turn < 200 && cpu > REST_MS / 8;
                 turn++) { /* the others come to rest */
                int64_t before = cpu_ms();
                sleep_ms(comm, REST_MS);
                cpu = cpu_ms() - before;
            }
            CHECK(s, comm, cpu <= REST_MS / 8,
                  "%s: ranks that wait used %" PRId64 " ms of the cores in %d ms or more",
                  ops[what[k]].label, cpu, REST_MS);
        }
        IS_OK(s, comm, perform(s, comm, &p, 1));
    }
    return NEO_OK;
}
static void waiting_sleeps(void) {
    static const int worlds[] = {2, 5, MOST_RANKS};
    for (int w = 0; w < 3; w++) {
        scene s;
        scene_single(&s, worlds[w], "waiting");
        s.real_clock = 1;
        s.culprit = worlds[w] / 2;
        s.async = w == 1;
        scene_single_run(&s, asleep, NEO_OK);
    }
}

/* A rank that never comes, by the real clock. */
static neo_status absent(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    set_timeout(comm, SHORT_MS);
    meet(s, comm, s->ranks);
    if (neo_comm_rank(comm) != s->culprit) {
        plan p = {OP_ALL_REDUCE_LARGE, 5000, NEO_F32, NEO_REDUCE_SUM, 0, 0, NEO_WIRE_F32, NULL};
        neo_status status = perform(s, comm, &p, 1);
        CHECK(s, comm,
              status == NEO_ERR_TIMEOUT && strstr(neo_last_error(), "did not come within 150 ms"),
              "%s", neo_last_error());
    }
    meet(s, comm, s->ranks);
    return NEO_OK;
}
static void real_timeouts(void) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        scene s;
        scene_single(&s, ranks, "a rank never comes");
        s.culprit = ranks - 1;
        s.async = ranks == 3;
        s.real_clock = 1;
        scene_single_run(&s, absent, NEO_OK);
    }
}

/* The whole process is stopped for a minute, which the culprit does to the clock: no rank is late
   by more than 0.6 s of its second. DELAY: it was not stopped, and the culprit is late. */
static neo_status stopped(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    set_timeout(comm, 1000);
    int is_late = s->hit == DELAY;
    for (int again = 0; again < 3; again++) {
        if (neo_comm_rank(comm) == s->culprit) {
            sleep_ms(comm, is_late ? 2000 : 100);
            if (!is_late) __atomic_fetch_add(&comm->clock->now_ns, 60000000000, __ATOMIC_RELAXED);
            sleep_ms(comm, is_late ? 0 : 500);
        }
        plan p = {OP_ALL_REDUCE_LARGE, 5000, NEO_F32, NEO_REDUCE_SUM, 0, 0, NEO_WIRE_F32, NULL};
        neo_status status = perform(s, comm, &p, 1);
        if (!is_late) CHECK(s, comm, status == NEO_OK, "%s", neo_last_error());
        else CHECK(s, comm, status == NEO_ERR_TIMEOUT, "%s", neo_last_error());
    }
    meet(s, comm, s->ranks);
    return NEO_OK;
}
/* Between work on files ranks wait ten times as long, and not longer; after it as before. */
static neo_status slow_disk(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    static const int late_ms[] = {9900, 1100};
    neo_group group = neo_comm_group(comm);
    uint64_t word;
    IS_OK(s, comm, neo_comm_barrier(comm, NULL));
    set_timeout(comm, 1000);
    for (int k = 0; k < 2; k++) {
        group.patient(group.user, k == 0);
        if (neo_comm_rank(comm) == s->culprit) sleep_ms(comm, late_ms[k]);
        word = 1;
        neo_status status = group.sum(group.user, &word, 1);
        if (k == 0)
            CHECK(s, comm, status == NEO_OK && word == (uint64_t)s->ranks, "%s", neo_last_error());
        else CHECK(s, comm, status == NEO_ERR_TIMEOUT && strstr(neo_last_error(), "within 1000 ms"),
                   "%s", neo_last_error());
    }
    meet(s, comm, s->ranks);
    return NEO_OK;
}
/* Rank 0 waits for rank 1, which waits in another group for rank 2, which sleeps; or rank 1 waits
   there for rank 0; or rank 1 sleeps, while an asynchronous call of its other group waits. */
static neo_status waits_elsewhere(neo_comm *comm, void *user) {
    scene *s = (scene *)user;
    const int rank = neo_comm_rank(comm), is_ring = s->hit == OTHER_OP;
    const int sleeps = s->hit == RETURN_ERROR;
    float word = 1;
    neo_ticket ticket;
    neo_comm *pair = NULL;
    IS_OK(s, comm, neo_comm_split(comm, rank == (is_ring ? 2 : 0), 0, &pair));
    set_timeout(comm, SHORT_MS);
    if (rank == 2) sleep_ms(comm, 4 * SHORT_MS);
    if (rank == 1) sleep_ms(comm, SHORT_MS / 2); /* not late before rank 0 */
    if (rank == 1)
        (void)neo_comm_recv(pair, &word, 1, NEO_F32, is_ring ? 0 : 1, sleeps ? &ticket : NULL);
    if (rank == 1 && sleeps) sleep_ms(comm, 4 * SHORT_MS);
    if (rank == 0)
        IS_ERR(s, comm, neo_comm_recv(comm, &word, 1, NEO_F32, 1, NULL), NEO_ERR_TIMEOUT,
               is_ring  ? "rank 1 did not come within 150 ms; it waits for rank 0 in send/recv #0 "
                          "of another group"
               : sleeps ? "rank 1 did not come within 150 ms"
                        : "rank 2 did not come within 150 ms");
    neo_comm_destroy(pair);
    return NEO_OK;
}
static void timeouts_over_groups(void) {
    for (int k = 0; k < 3; k++) {
        scene s;
        scene_single(&s, 3, "a rank waits in another group");
        s.hit = k == 2 ? RETURN_ERROR : k ? OTHER_OP : s.hit;
        scene_single_run(&s, waits_elsewhere, NEO_OK);
    }
}
static void times_that_do_not_count(void) {
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int k = 0; k < 3; k++) {
            scene s;
            scene_single(&s, ranks, k < 2 ? "the process is stopped" : "a slow disk");
            s.culprit = ranks - 1;
            s.async = ranks == 3 && k < 2;
            s.hit = k == 1 ? DELAY : s.hit;
            scene_single_run(&s, k < 2 ? stopped : slow_disk, NEO_OK);
        }
}

int main(int argc, char **argv) {
    (void)argv;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = watchdog;
    sigaction(SIGALRM, &action, NULL);
    alarm(WATCHDOG_S);
    int64_t began = neo_time_ns();
#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        if (argc > 1)                                                                              \
            fprintf(stderr, "%6" PRId64 " ms after %s\n", (neo_time_ns() - began) / 1000000,       \
                    #test);                                                                        \
    } while (0)
    RUN(waiting_sleeps);
    RUN(aborts);
    RUN(the_first_reason_stands);
    RUN(labels);
    RUN(groups_and_rebuilding);
    RUN(timeouts_over_groups);
    RUN(times_that_do_not_count);
    RUN(memory_refused);
    RUN(every_operation_every_fault);
    RUN(real_timeouts);
    if (argc > 1) fprintf(stderr, "%d scenes\n", scene_count);
    return ranks_end("comm/faults", 0);
}
