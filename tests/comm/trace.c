/* trace.c: traces of ranks, as threads; and, compiled with NEO_COMM_MPI, the same under mpirun.

   Every byte of the counters is in the file, by operation and level; spans nest, and lie inside
   those around them; clocks that differ are brought together; what has no room is counted; no span
   takes memory; a rank that cannot write ends the call on all. The file is read line by line, as it
   has a span on each; tests/programs/traces.sh reads it as JSON. */
#if defined(NEO_COMM_MPI)
#include <mpi.h>
#endif
#include "neo_run.h"
#include "ranks.h"
#include <pthread.h>

static char path[200];

/* A span of the file. */
typedef struct line {
    int pid, tid;
    double ts, dur;
    char name[64], cat[32];
    char text[1200];
} line;
static int64_t field(const line *l, const char *key) {
    char word[40];
    snprintf(word, sizeof word, "\"%s\":", key);
    const char *at = strstr(l->text, word);
    return at ? strtoll(at + strlen(word), NULL, 10) : -1;
}
static int next_span(FILE *f, line *l) {
    while (fgets(l->text, sizeof l->text, f))
        if (sscanf(l->text,
                   "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lf,\"dur\":%lf,"
                   "\"name\":\"%63[^\"]\",\"cat\":\"%31[^\"]\"",
                   &l->pid, &l->tid, &l->ts, &l->dur, l->name, l->cat) == 6)
            return 1;
    return 0;
}

/* ---- the counters ---- */
enum { WORDS = 3 * NEO_COMM_OP_COUNT };
static void add(int64_t words[WORDS], neo_comm_stats s) {
    for (int op = 0; op < NEO_COMM_OP_COUNT; op++) {
        words[3 * op] += s.op[op].bytes[NEO_LEVEL_LOCAL];
        words[3 * op + 1] += s.op[op].bytes[NEO_LEVEL_CROSS];
        words[3 * op + 2] += s.op[op].control_bytes;
    }
}
/* A bit of everything, blocking and not, in the group and in one of its halves. */
static neo_status talk(neo_comm *comm, neo_comm *half) {
    static float in[16 * 1000], out[16][16 * 1000];
    const int w = neo_comm_size(comm), rank = neo_comm_rank(comm);
    float *mine = out[rank];
    neo_ticket ticket[3];
    neo_comm_label(comm, "a \"quoted\" name");
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, in, mine, 1000, NEO_F32, NULL));
    EXPECT_OK(comm, neo_comm_all_gather(comm, in, mine, 900, NULL, NEO_F32, &ticket[0]));
    EXPECT_OK(comm, neo_comm_all_to_all(half, in, mine + 8 * 1000, 50, NEO_F32, &ticket[1]));
    EXPECT_OK(comm, neo_comm_wait(comm, ticket[0]));
    EXPECT_OK(comm, neo_comm_wait(half, ticket[1]));
    EXPECT_OK(comm, neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, in, mine, 77, NULL, NEO_F32,
                                            &ticket[2]));
    EXPECT_OK(comm, neo_comm_wait_all(comm));
    EXPECT_OK(comm, neo_comm_broadcast(comm, mine, 10, NEO_F32, w - 1, NULL));
    EXPECT_OK(comm, neo_comm_gather(comm, in, mine, 3, NULL, NEO_F32, 0, NULL));
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    if (w > 1 && rank == 0)
        EXPECT_OK(comm, neo_comm_send(comm, in, 7, NEO_F32, w - 1, NULL));
    if (w > 1 && rank == w - 1) EXPECT_OK(comm, neo_comm_recv(comm, mine, 7, NEO_F32, 0, NULL));
    return neo_comm_agree(comm, NEO_OK);
}
static void look_at_bytes(neo_comm *comm, const int64_t words[WORDS]) {
    static const char *const keys[3] = {"local_bytes", "cross_bytes", "control_bytes"};
    static int64_t found[WORDS];
    static line l;
    int waits = 0, labels = 0, inside = 0, recvs = 0;
    double begin[16] = {0}, end[16] = {0};
    memset(found, 0, sizeof found);
    FILE *f = fopen(path, "r");
    EXPECT(comm, f, "%s", path);
    while (f && next_span(f, &l)) {
        waits += strcmp(l.cat, "wait") == 0;
        labels += strstr(l.text, "\"of\":\"a \\\"quoted\\\" name\"") != NULL;
        recvs += strcmp(l.name, "recv") == 0;
        if (strcmp(l.name, "talk") == 0) begin[l.pid] = l.ts, end[l.pid] = l.ts + l.dur;
        for (int op = 0; op < NEO_COMM_OP_COUNT; op++) {
            const char *name = strcmp(l.name, "recv") ? l.name : "send";
            if (strcmp(name, neo_comm_op_name((neo_comm_op)op))) continue;
            for (int k = 0; k < 3; k++) found[3 * op + k] += field(&l, keys[k]);
        }
    }
    rewind(f);
    while (next_span(f, &l))
        inside += strcmp(l.cat, "communication") == 0 && l.ts >= begin[l.pid] - 1e-3 &&
                  l.ts + l.dur <= end[l.pid] + 1e-3;
    fclose(f);
    const int w = neo_comm_size(comm);
    for (int i = 0; i < WORDS; i++)
        EXPECT(comm, found[i] == words[i], "%s, %s: %" PRId64 " in the trace, counted %" PRId64,
               neo_comm_op_name((neo_comm_op)(i / 3)), keys[i % 3], found[i], words[i]);
    EXPECT(comm, waits == 3 * w, "%d waits of %d ranks", waits, w);
    EXPECT(comm, labels == w, "%d labels of %d ranks", labels, w);
    EXPECT(comm, recvs == (w > 1), "%d recvs", recvs);
    EXPECT(comm, inside == 8 * w + 2 * (w > 1), "%d collectives inside talk", inside);
}
static neo_status counted(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_group group = neo_comm_group(comm);
    neo_trace_desc desc = {.group = &group};
    neo_trace *trace, *second;
    neo_comm *half;
    int64_t words[WORDS] = {0}, blocks;
    (void)user;
    EXPECT_OK(comm, neo_comm_split(comm, neo_comm_rank(comm) % 2, 0, &half));
    EXPECT_OK(comm, neo_trace_create(ctx, &desc, &trace));
    EXPECT_ERR(comm, neo_trace_create(ctx, &desc, &second), NEO_ERR_STATE, "has a trace already");
    neo_comm_reset_stats(comm);
    neo_comm_reset_stats(half);
    blocks = neo_ctx_memory(ctx).alloc_count;
    neo_trace_begin(ctx, "talk", 5);
    neo_status status = talk(comm, half);
    neo_trace_end(ctx);
    if (status != NEO_OK) return status;
    EXPECT(comm, neo_ctx_memory(ctx).alloc_count == blocks, "spans took memory");
    add(words, neo_comm_get_stats(comm));
    add(words, neo_comm_get_stats(half));
    neo_trace_stats own = neo_trace_get_stats(trace);
    EXPECT(comm, own.spans > 9 && own.dropped == 0, "%" PRId64, own.spans);
    EXPECT_OK(comm, neo_trace_write(trace, neo_comm_rank(comm) ? NULL : path));
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, words, words, WORDS, NEO_I64, NULL));
    int64_t sum = 0;
    for (int i = 0; i < WORDS; i++) sum += i % 3 < 2 ? words[i] : 0;
    neo_trace_stats all = neo_trace_get_stats(trace);
    EXPECT(comm, all.sent_bytes == sum, "%" PRId64 " of %" PRId64, all.sent_bytes, sum);
    EXPECT(comm, all.spans >= own.spans, "%" PRId64 " spans", all.spans);
    if (neo_comm_rank(comm) == 0) look_at_bytes(comm, words);
    EXPECT_ERR(comm, neo_trace_write(trace, neo_comm_rank(comm) ? NULL : "/nowhere/t.json"),
               NEO_ERR_NOT_FOUND, "/nowhere/t.json");
    neo_trace_destroy(trace);
    neo_comm_destroy(half);
    return NEO_OK;
}

/* ---- clocks that differ: rank 0's is an hour ahead, and in the run runs away by another ---- */
typedef struct skewed {
    neo_group real;
    int answers;
} skewed;
static const int64_t AHEAD = INT64_C(3600000000000), AWAY = INT64_C(3600000000000);
static neo_status skewed_pass(void *user, int from, int to, void *data, size_t bytes) {
    skewed *s = user;
    neo_status status = s->real.pass(s->real.user, from, to, data, bytes);
    int64_t *words = data;
    if (s->real.rank == 0 || from != 0) return status;
    const int late = s->answers++ >= 8; /* the comparison at the end */
    words[0] += AHEAD + (late ? AWAY : 0), words[1] += AHEAD;
    return status;
}
static neo_status skewed_agree(void *user, neo_status mine) {
    skewed *s = user;
    return s->real.agree(s->real.user, mine);
}
static neo_status skewed_sum(void *user, uint64_t *words, int count) {
    skewed *s = user;
    return s->real.sum(s->real.user, words, count);
}
/* Looks at the clock of a rank, which all ranks of a machine share. */
typedef struct moments {
    int64_t before, made, first, slept, ended, wrote;
} moments;
/* A span that began between two looks, `early` and `late`, lies where these and the looks around
   both comparisons let it, however long any of it took. */
static void look_at_clock(neo_comm *comm, const line *l, const moments *all, int64_t early,
                          int64_t late) {
    const moments *m = &all[l->pid];
    double low = (double)(early - all->made), high = (double)(late - all->before);
    if (l->pid) {
        const double way = (double)(m->made - m->before + m->wrote - m->ended);
        low += (double)AWAY * (double)(early - m->made) / (double)(m->wrote - m->made) - way;
        high += (double)AWAY * (double)(late - m->before) / (double)(m->ended - m->before) + way;
    }
    EXPECT(comm, 1e3 * l->ts >= low - 1e3 && 1e3 * l->ts <= high + 1e3,
           "rank %d: %s begins at %.3f us, not in %.3f to %.3f", l->pid, l->name, l->ts, low / 1e3,
           high / 1e3);
}
static neo_status clocks(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    skewed s = {neo_comm_group(comm), 0};
    neo_group group = {s.real.rank, s.real.size, skewed_agree, skewed_sum,
                       &s,          NULL,        skewed_pass,  NULL};
    neo_trace *trace;
    moments m, all[16];
    (void)user;
    neo_trace_desc desc = {.group = &group};
    m.before = neo_time_ns();
    EXPECT_OK(comm, neo_trace_create(ctx, &desc, &trace));
    m.made = neo_time_ns();
    neo_trace_begin(ctx, "first", -1);
    neo_trace_end(ctx);
    m.first = neo_time_ns();
    neo_comm_sleep(comm, 30000000);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    m.slept = neo_time_ns();
    neo_trace_begin(ctx, "last", 1);
    neo_trace_end(ctx);
    m.ended = neo_time_ns();
    EXPECT_OK(comm, neo_trace_write(trace, neo_comm_rank(comm) ? NULL : path));
    m.wrote = neo_time_ns();
    neo_trace_destroy(trace);
    EXPECT_OK(comm, neo_comm_all_gather(comm, &m, all, sizeof m / sizeof m.before, NULL, NEO_I64,
                                        NULL));
    if (neo_comm_rank(comm)) return NEO_OK;
    static line l;
    FILE *f = fopen(path, "r");
    int seen = 0;
    while (f && next_span(f, &l)) {
        const moments *own = &all[l.pid];
        const int first = strcmp(l.name, "first") == 0, last = strcmp(l.name, "last") == 0;
        if (first) look_at_clock(comm, &l, all, own->made, own->first);
        if (last) look_at_clock(comm, &l, all, own->slept, own->ended);
        seen += first || last;
    }
    if (f) fclose(f);
    EXPECT(comm, seen == 2 * neo_comm_size(comm), "%d spans", seen);
    return NEO_OK;
}

/* ---- nesting, names, what has no room, and arguments; on each rank alone ---- */
static void *write_elsewhere(void *trace) {
    return neo_trace_write(trace, path) == NEO_OK ? trace : NULL;
}
/* Written by another thread: what is open there is dropped, and nothing waits for its end. */
static neo_status alone_elsewhere(neo_comm *comm, neo_ctx *ctx) {
    neo_trace *trace;
    pthread_t thread;
    void *wrote = NULL;
    EXPECT_OK(comm, neo_trace_create(ctx, NULL, &trace));
    neo_trace_begin(ctx, "outer", -1);
    neo_trace_begin(ctx, "inner", -1);
    neo_trace_end(ctx);
    EXPECT(comm, pthread_create(&thread, NULL, write_elsewhere, trace) == 0, "no thread");
    EXPECT(comm, pthread_join(thread, &wrote) == 0 && wrote == trace, "it did not write");
    neo_trace_stats s = neo_trace_get_stats(trace);
    EXPECT(comm, s.spans == 1 && s.dropped == 1, "%" PRId64 ", %" PRId64, s.spans, s.dropped);
    neo_trace_destroy(trace);
    return NEO_OK;
}
static neo_status alone(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_trace *trace;
    neo_trace_desc few = {.spans = 3}, none = {.spans = -1};
    neo_group lacks = neo_comm_group(comm);
    (void)user;
    if (neo_comm_rank(comm)) return NEO_OK;
    neo_trace_begin(ctx, "of no trace", 0);
    neo_trace_end(ctx);
    neo_trace_begin(NULL, "of no context", 0);
    EXPECT_ERR(comm, neo_trace_create(ctx, &none, &trace), NEO_ERR_ARG, "spans is -1");
    EXPECT_ERR(comm, neo_trace_create(NULL, NULL, &trace), NEO_ERR_ARG, "ctx");
    lacks.pass = NULL, lacks.size = 2;
    EXPECT_ERR(comm, neo_trace_create(ctx, &(neo_trace_desc){.group = &lacks}, &trace), NEO_ERR_ARG,
               "lacks agree, sum or pass");
    EXPECT_OK(comm, neo_trace_create(ctx, &few, &trace));
    neo_trace_end(ctx); /* of nothing */
    neo_trace_begin(ctx, "out\\er \xff\n\"", 7);
    neo_trace_begin(ctx, "inner", -1);
    neo_trace_end(ctx);
    neo_trace_end(ctx);
    int64_t inner_count, all_count, none_count;
    int64_t inner_ns = neo_trace_time(trace, "out\\er \xff\n\"", "call", "inner", &inner_count);
    EXPECT(comm, inner_ns <= neo_trace_time(trace, NULL, "call", NULL, &all_count) &&
                     !neo_trace_time(trace, "inner", "call", NULL, &none_count) &&
                     !neo_trace_time(trace, NULL, "wait", NULL, &none_count),
           "%" PRId64, inner_ns);
    EXPECT(comm, inner_count == 1 && all_count == 2 && none_count == 0, "%" PRId64, all_count);
    for (int i = 0; i < 70; i++) neo_trace_begin(ctx, "deep", i);
    for (int i = 0; i < 69; i++) neo_trace_end(ctx); /* the last one ends with the recording */
    EXPECT_ERR(comm, neo_trace_write(trace, NULL), NEO_ERR_ARG, "path is NULL");
    EXPECT_ERR(comm, neo_trace_write_chakra(trace, NULL), NEO_ERR_ARG, "prefix is NULL");
    EXPECT_OK(comm, neo_trace_write(trace, path));
    neo_trace_stats s = neo_trace_get_stats(trace);
    EXPECT(comm, s.spans == 3 && s.dropped == 69, "%" PRId64 ", %" PRId64, s.spans, s.dropped);
    static line inner, outer, deep;
    FILE *f = fopen(path, "r");
    EXPECT(comm, f && next_span(f, &inner) && fgets(outer.text, sizeof outer.text, f) &&
                     next_span(f, &deep),
           "%s", path);
    fclose(f);
    EXPECT(comm, strcmp(inner.name, "inner") == 0 && strcmp(inner.cat, "call") == 0 &&
                     field(&inner, "number") == -1 && field(&deep, "number") == 63,
           "%.140s%.140s", inner.text, deep.text);
    EXPECT(comm, strstr(outer.text, "\"out\\\\er \xEF\xBF\xBD\\n\\\"\"") &&
                     field(&outer, "number") == 7,
           "%.280s", outer.text);
    neo_trace_destroy(trace);
    neo_trace_destroy(NULL);
    return alone_elsewhere(comm, ctx);
}

static neo_status all(neo_comm *comm, void *user) {
    EXPECT_OK(comm, counted(comm, user));
    EXPECT_OK(comm, clocks(comm, user));
    return neo_comm_agree(comm, alone(comm, user));
}
int main(void) {
    int bad = 0;
    const char *folder = getenv("B");
    snprintf(path, sizeof path, "%s/comm_trace.%d.json", folder ? folder : "build", (int)getpid());
    for (int w = 1; w <= (launched() ? 1 : 4); w++) {
        neo_comm_desc desc = {.ranks_per_node = w % 2 ? 0 : w / 2};
        bad |= run_ranks(w, &desc, all, NULL);
    }
    remove(path);
    return ranks_end("comm/trace", bad);
}
