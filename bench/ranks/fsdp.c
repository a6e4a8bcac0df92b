/* fsdp.c: dense parameters in shards, by ranks that are threads, one core each while there are
   enough: what the modes take of time, wire and memory; what prefetching hides on slow links.

   A stack of square layers with ReLU, each a unit, trained with AdamW on one batch over all ranks;
   f32 everywhere. Verified first: after two steps weights and optimizer state have the digest of
   plain neo_params and neo_optim on one rank; what is asked of the allocator, and sent, is what
   neo_fsdp_predict said; a step allocates nothing. full.s2 has two slots, .np does not prefetch;
   hybrid cuts inside halves of the ranks.
     fsdp.one.w1.step             a group of one rank; peer: neo_params and neo_optim, alternating
     fsdp.<mode>.w<W>.step        median; peer: neo_params and neo_optim on one rank and thread with
                                  the whole batch, alternating
     fsdp.<mode>.w<W>.ddp         the same step; peer: ddp on as many ranks, alternating
     fsdp.<mode>.w<W>.waits       share of the step that windows and the step wait for the wire; the
                                  rest is a rank's own work
     fsdp.<mode>.w<W>.sent        bytes of a rank and step; peer: neo_fsdp_predict (they must be
                                  equal)
     fsdp.<mode>.w<W>.memory      of a rank, but for its groups; peer: ddp's; the prediction must be
                                  equal
   On slow links (the link model of neo_comm.h) the layers are pauses, as if another device computed
   them, so that ranks that share a core hide as much as those that do not. Bytes of full.s2 take as
   long as all pauses. The ceiling is the longer of two: what the model says that the mode's bytes
   take, and the pauses.
     fsdp.link.<mode>.w<W>.step     peer: the same without prefetching, alternating (ddp: none)
     fsdp.link.<mode>.w<W>.exposed  what a rank waits of it; peer: the same
     fsdp.link.<mode>.w<W>.hidden   share of the bytes' time that is not waited for */
#define NEO_IMPLEMENTATION /* its private names, too */
#include "bench/bench.h"

#include "neo_fsdp.h"
#include <time.h>

enum { LAYERS = 8, LEAVES = 8, MAX_RANKS = 4, MAX_ROUNDS = 40, LINK_WIDE = 256, PAUSE_US = 2000 };
static int wide, batch, rounds; /* --quick: smaller */

typedef struct mode {
    const char *name;
    neo_fsdp_mode mode;
    int slots, no_prefetch, hybrid;
} mode;
static const mode modes[] = {
    {"ddp", NEO_FSDP_DDP, 0, 0, 0},       {"zero1", NEO_FSDP_ZERO1, 0, 0, 0},
    {"zero2", NEO_FSDP_ZERO2, 0, 0, 0},   {"full.s1", NEO_FSDP_FULL, 1, 0, 0},
    {"full.s2", NEO_FSDP_FULL, 2, 0, 0},  {"full.s2.np", NEO_FSDP_FULL, 2, 1, 0},
    {"full.s3", NEO_FSDP_FULL, 3, 0, 0},  {"full.s3.np", NEO_FSDP_FULL, 3, 1, 0},
    {"hybrid.s2", NEO_FSDP_FULL, 2, 0, 1}};
enum { MODES = sizeof modes / sizeof *modes, DDP = 0, FULL_S2 = 4 };

typedef struct job {
    const mode *mode;
    int ranks;
    uint64_t digest; /* of one rank after two steps */
    neo_link link;   /* zeros: none, and layers are computed */
    double sent;     /* bytes of a rank and step, found by a run */
} job;

/* One way to train, or with plain parameters (fsdp NULL). */
typedef struct trainer {
    neo_params *set[LAYERS]; /* plain: all in the first */
    const neo_param *weight[LAYERS], *bias[LAYERS];
    neo_fsdp_unit unit[LAYERS];
    neo_fsdp *fsdp;
    neo_optim *optim;
    neo_fsdp_prediction prediction;
} trainer;
typedef struct member {
    job *job;
    neo_comm *comm;
    neo_ctx *ctx;
    int rank, ranks;
    float *act[LAYERS + 1], *grad[2]; /* [batch][wide] */
    float *input, *target;            /* the same on all ranks */
} member;

/* ---- the model ---- */
static neo_optim_desc adamw(void) {
    neo_optim_desc d;
    memset(&d, 0, sizeof d);
    d.kind = NEO_OPTIM_ADAMW;
    d.weight_decay = 0.01f;
    return d;
}
static void make_sets(trainer *t, neo_ctx *ctx, int deferred) {
    static const char *const names[LAYERS] = {"l.0", "l.1", "l.2", "l.3",
                                              "l.4", "l.5", "l.6", "l.7"};
    const int64_t shape[] = {wide, wide};
    float bound = 1.0f / sqrtf((float)wide);
    memset(t, 0, sizeof *t);
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        if (deferred) BENCH_OK(neo_params_create_deferred(ctx, &t->set[i]));
        else if (i == 0) BENCH_OK(neo_params_create(ctx, &t->set[0]));
        neo_params *set = t->set[deferred ? i : 0];
        snprintf(name, sizeof name, "l.%d.weight", i);
        BENCH_OK(neo_params_add(set, name, 2, shape,
                                (neo_init){NEO_INIT_UNIFORM, -2 * bound, 2 * bound},
                                &t->weight[i]));
        snprintf(name, sizeof name, "l.%d.bias", i);
        BENCH_OK(neo_params_add(set, name, 1, shape, (neo_init){NEO_INIT_UNIFORM, -bound, bound},
                                &t->bias[i]));
        t->unit[i] = (neo_fsdp_unit){names[i], set, 0, 0, 0};
    }
}
static void free_trainer(trainer *t) {
    neo_fsdp_destroy(t->fsdp);
    neo_optim_destroy(t->optim);
    for (int i = 0; i < LAYERS; i++) neo_params_destroy(t->set[i]);
}
static void make_plain(trainer *t, neo_ctx *ctx) {
    neo_optim_desc optim = adamw();
    make_sets(t, ctx, 0);
    BENCH_OK(neo_optim_create(ctx, t->set[0], &optim, &t->optim));
}
/* Checks that the memory is what was predicted. */
static void make_sharded(trainer *t, member *m, const mode *how) {
    neo_fsdp_desc d;
    neo_comm_desc group;
    size_t of_groups = 0;
    memset(&d, 0, sizeof d);
    memset(&group, 0, sizeof group);
    make_sets(t, m->ctx, 1);
    d.units = t->unit;
    d.unit_count = LAYERS;
    d.optim = adamw();
    d.mode = how->mode;
    d.slots = how->slots;
    d.no_prefetch = how->no_prefetch;
    d.factor = how->hybrid ? m->ranks / 2 : 0;
    BENCH_OK(neo_fsdp_predict(m->ctx, &d, m->ranks, m->rank, &t->prediction));
    size_t before = neo_ctx_memory(m->ctx).bytes;
    BENCH_OK(neo_fsdp_create(m->comm, &d, &t->fsdp));
    group.ctx.repro_shards = LEAVES;
    neo_comm *const groups[] = {t->fsdp->shard, t->fsdp->replica, t->fsdp->all};
    for (int i = 0; i < 3; i++)
        if (groups[i])
            of_groups += neo_comm_workspace_bytes(&group, neo_comm_size(groups[i]),
                                                  neo_comm_get_backend(m->comm));
    if (neo_ctx_memory(m->ctx).bytes - before != t->prediction.bytes + of_groups)
        bench_fail("memory is not what was predicted");
}
static neo_tensor rows_of(float *data, int64_t rows) {
    return neo_tensor_2d(data, NEO_F32, rows, wide);
}
static void pause_us(int64_t us) {
    int64_t end = neo_time_ns() + 1000 * us;
    for (int64_t left = end - neo_time_ns(); left > 0; left = end - neo_time_ns())
        nanosleep(&(struct timespec){0, (long)left}, NULL);
}
static void layer_forward(const member *m, const trainer *t, int i, int64_t rows) {
    if (m->job->link.bandwidth > 0) {
        pause_us(PAUSE_US);
        return;
    }
    BENCH_OK(neo_linear_forward(m->ctx, rows_of(m->act[i], rows), t->weight[i]->value,
                                t->bias[i]->value, NEO_ACT_RELU, rows_of(m->act[i + 1], rows)));
}
static void layer_backward(const member *m, const trainer *t, const neo_leaves *leaves, int i,
                           int64_t rows) {
    neo_tensor dz = rows_of(m->grad[(i + 1) % 2], rows);
    if (m->job->link.bandwidth > 0) {
        pause_us(2 * PAUSE_US);
        *(float *)t->weight[i]->grad.data = *(float *)t->bias[i]->grad.data =
            0.0f; /* an unwritten gradient is refused */
        return;
    }
    BENCH_OK(neo_activation_backward(m->ctx, NEO_ACT_RELU, neo_tensor_none(),
                                     rows_of(m->act[i + 1], rows), dz, dz));
    BENCH_OK(neo_linear_backward(m->ctx, leaves, rows_of(m->act[i], rows), t->weight[i]->value, dz,
                                 i ? rows_of(m->grad[i % 2], rows) : neo_tensor_none(),
                                 t->weight[i]->grad, t->bias[i]->grad));
}
static void loss(const member *m, int64_t first, int64_t rows) {
    neo_loss_desc d;
    memset(&d, 0, sizeof d);
    d.batch = batch;
    d.scale = 1.0f;
    BENCH_OK(neo_mse(m->ctx, &d, rows_of(m->act[LAYERS], rows),
                     rows_of(m->target + first * wide, rows), rows_of(m->grad[LAYERS % 2], rows),
                     NULL));
}
static void load(member *m, int64_t first, int64_t rows) {
    memcpy(m->act[0], m->input + first * wide, sizeof(float) * (size_t)(rows * wide));
}
static void step_plain(member *m, trainer *t) {
    neo_leaves leaves;
    memset(&leaves, 0, sizeof leaves);
    leaves.batch = batch;
    leaves.count = LEAVES;
    load(m, 0, batch);
    for (int i = 0; i < LAYERS; i++) layer_forward(m, t, i, batch);
    loss(m, 0, batch);
    for (int i = LAYERS - 1; i >= 0; i--) layer_backward(m, t, &leaves, i, batch);
    BENCH_OK(neo_optim_step(t->optim, 1e-4f));
}
static void step_sharded(member *m, trainer *t) {
    for (int piece = 0; piece < neo_fsdp_pieces(t->fsdp); piece++) {
        neo_leaves part = neo_fsdp_piece(t->fsdp, piece, batch);
        int64_t first = neo_leaf_begin(batch, LEAVES, part.first);
        int64_t rows = neo_leaf_begin(batch, LEAVES, part.first + part.count) - first;
        load(m, first, rows);
        for (int i = 0; i < LAYERS; i++) {
            BENCH_OK(neo_fsdp_forward_begin(t->fsdp, i));
            layer_forward(m, t, i, rows);
            BENCH_OK(neo_fsdp_forward_end(t->fsdp, i));
        }
        loss(m, first, rows);
        for (int i = LAYERS - 1; i >= 0; i--) {
            BENCH_OK(neo_fsdp_backward_begin(t->fsdp, i, piece));
            layer_backward(m, t, &part, i, rows);
            BENCH_OK(neo_fsdp_backward_end(t->fsdp, i));
        }
    }
    BENCH_OK(neo_fsdp_step(t->fsdp, 1e-4f));
}

/* ---- ranks ---- */
static void make_member(member *m, neo_comm *comm, job *j) {
    size_t bytes = sizeof(float) * (size_t)(batch * wide);
    memset(m, 0, sizeof *m);
    m->job = j;
    m->comm = comm;
    m->ctx = neo_comm_ctx(comm);
    m->rank = neo_comm_rank(comm);
    m->ranks = neo_comm_size(comm);
    for (int i = 0; i <= LAYERS; i++) m->act[i] = (float *)bench_alloc(bytes);
    for (int i = 0; i < 2; i++) m->grad[i] = (float *)bench_alloc(bytes);
    m->input = (float *)bench_alloc(bytes);
    m->target = (float *)bench_alloc(bytes);
    for (int64_t i = 0; i < (int64_t)batch * wide; i++) {
        m->input[i] = (float)((i * 37 + i / wide * 11) % 101 - 50) / 50.0f;
        m->target[i] = (float)((i * 53 + i / wide * 7) % 89) / 89.0f;
    }
}
static void free_member(member *m) {
    for (int i = 0; i <= LAYERS; i++) free(m->act[i]);
    for (int i = 0; i < 2; i++) free(m->grad[i]);
    free(m->input);
    free(m->target);
}
static void most_of_ranks(const member *m, int64_t *x, int64_t count) {
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_MAX, x, x, count, NEO_I64, NULL));
}
static void sum_ranks(const member *m, int64_t *x, int64_t count) {
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, x, x, count, NEO_I64, NULL));
}
/* The slowest rank's time. */
static double timed(member *m, trainer *t, void (*step)(member *, trainer *)) {
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    int64_t start = neo_time_ns();
    if (t) step(m, t);
    int64_t ns = neo_time_ns() - start;
    most_of_ranks(m, &ns, 1);
    return (double)ns / 1e6;
}
static int64_t bytes_of(const neo_comm_stats *s) {
    int64_t n = 0;
    for (int op = 0; op < NEO_COMM_OP_COUNT; op++)
        for (int l = 0; l < NEO_LEVEL_COUNT; l++) n += s->op[op].bytes[l];
    return n;
}
static int64_t bytes_sent(const neo_fsdp_stats *s) {
    return bytes_of(&s->shard) + bytes_of(&s->replica) + bytes_of(&s->all);
}
static double predicted(const neo_fsdp_prediction *p) {
    return p->all_gather_bytes + p->reduce_scatter_bytes + p->all_reduce_bytes;
}
/* Two steps: digest, bytes, allocations. Returns what a rank sends in a step. */
static double verify(member *m, trainer *t) {
    neo_group all = neo_comm_group(m->comm);
    neo_state *state;
    uint64_t digest = 0;
    neo_fsdp_reset_stats(t->fsdp);
    step_sharded(m, t);
    int64_t calls = neo_ctx_memory(m->ctx).alloc_count;
    step_sharded(m, t);
    if (neo_ctx_memory(m->ctx).alloc_count != calls) bench_fail("a step allocates");
    neo_fsdp_stats s = neo_fsdp_get_stats(t->fsdp);
    int64_t sent[] = {bytes_sent(&s), (int64_t)(2 * predicted(&t->prediction))};
    sum_ranks(m, sent, 2);
    if (sent[0] != sent[1]) {
        printf("# %lld bytes sent, %lld predicted\n", (long long)sent[0], (long long)sent[1]);
        bench_fail("bytes are not what was predicted");
    }
    BENCH_OK(neo_state_create(m->ctx, &state));
    BENCH_OK(neo_state_add_fsdp(state, t->fsdp));
    BENCH_OK(neo_state_digest_group(state, &all, &digest));
    neo_state_destroy(state);
    if (m->job->link.bandwidth == 0 && digest != m->job->digest)
        bench_fail("the digest is not that of one rank");
    return (double)sent[0] / (2 * m->ranks);
}
static void spawn(job *j, neo_comm_fn fn) {
    neo_comm_desc d;
    memset(&d, 0, sizeof d);
    d.ctx.threads = 1;
    d.ctx.repro_shards = LEAVES;
    d.ctx.seed = 1;
    for (int l = 0; l < NEO_LEVEL_COUNT; l++) d.link[l] = j->link;
    if (!bench.failed && neo_comm_spawn(j->ranks, &d, fn, j, NULL) != NEO_OK)
        bench_fail(neo_last_error());
}

/* ---- without links ---- */
/* The median of v, and the ratio of others to it. */
static void report(const job *j, const char *prefix, const char *what, double *v, const char *unit,
                   double ceiling, const char *peer, double *others) {
    double ratio[MAX_ROUNDS];
    char name[80];
    for (int i = 0; i < rounds && others; i++) ratio[i] = others[i] / v[i];
    snprintf(name, sizeof name, "%s.%s.w%d.%s", prefix, j->mode->name, j->ranks, what);
    double median = bench_median(v, rounds), times = others ? bench_median(ratio, rounds) : 0;
    bench_spread(others ? ratio : v, rounds);
    bench_report(name, median, unit, ceiling > 0 ? 100 * ceiling / median : -1, peer, times);
}
static neo_status run_mode(neo_comm *comm, void *user) {
    double one[MAX_ROUNDS], ddp[MAX_ROUNDS], ours[MAX_ROUNDS], copy[MAX_ROUNDS], waits[MAX_ROUNDS];
    job *j = (job *)user;
    member m;
    trainer plain, all, t;
    int with_ddp = j->ranks > 1 && j->mode != &modes[DDP];
    make_member(&m, comm, j);
    make_sharded(&t, &m, j->mode);
    double sent = verify(&m, &t);
    if (with_ddp) make_sharded(&all, &m, &modes[DDP]), step_sharded(&m, &all);
    if (m.rank == 0) make_plain(&plain, m.ctx), step_plain(&m, &plain);
    for (int i = 0; i < rounds; i++) {
        neo_fsdp_reset_stats(t.fsdp);
        ours[i] = i & 1 ? timed(&m, &t, step_sharded) : 0;
        one[i] = timed(&m, m.rank == 0 ? &plain : NULL, step_plain);
        ddp[i] = with_ddp ? timed(&m, &all, step_sharded) : 0;
        if (!(i & 1)) ours[i] = timed(&m, &t, step_sharded);
        int64_t ns = neo_fsdp_get_stats(t.fsdp).wait_ns;
        sum_ranks(&m, &ns, 1);
        waits[i] = (double)ns / 1e6 / m.ranks;
    }
    if (m.rank == 0) {
        char name[80];
        memcpy(copy, ours, sizeof ours);
        for (int i = 0; i < rounds; i++) waits[i] *= 100 / ours[i];
        report(j, "fsdp", "step", ours, "ms", -1, "one", one);
        if (with_ddp) report(j, "fsdp", "ddp", copy, "ms", -1, "ddp", ddp);
        if (m.ranks > 1) report(j, "fsdp", "waits", waits, "percent", -1, NULL, NULL);
        if (m.ranks > 1) {
            snprintf(name, sizeof name, "fsdp.%s.w%d.sent", j->mode->name, m.ranks);
            bench_report(name, sent / 1e6, "MB", -1, "predicted",
                         1.0); /* verify has failed otherwise */
        }
        if (with_ddp) {
            snprintf(name, sizeof name, "fsdp.%s.w%d.memory", j->mode->name, m.ranks);
            bench_report(name, (double)t.prediction.bytes / 1e6, "MB", -1, "ddp",
                         (double)all.prediction.bytes / (double)t.prediction.bytes);
        }
        free_trainer(&plain);
    }
    if (with_ddp) free_trainer(&all);
    free_trainer(&t);
    free_member(&m);
    return NEO_OK;
}

/* ---- on slow links ---- */
static double pauses_ms(void) { return 3e-3 * LAYERS * PAUSE_US; }
static neo_status run_link(neo_comm *comm, void *user) {
    double on[2][MAX_ROUNDS], waits[2][MAX_ROUNDS], hidden[MAX_ROUNDS];
    job *j = (job *)user;
    member m;
    trainer t[2];
    mode other = *j->mode;
    int ways = j->mode == &modes[DDP] ? 1 : 2;
    other.no_prefetch = 1;
    make_member(&m, comm, j);
    make_sharded(&t[0], &m, j->mode);
    double sent = verify(&m, &t[0]);
    if (ways > 1) make_sharded(&t[1], &m, &other), step_sharded(&m, &t[1]);
    for (int i = 0; i < 2 * rounds; i++) {
        int which = (i & 1) ^ (i >> 1 & 1); /* 0 1 1 0 */
        if (which >= ways) continue;
        neo_fsdp_reset_stats(t[which].fsdp);
        on[which][i / 2] = timed(&m, &t[which], step_sharded);
        int64_t ns = neo_fsdp_get_stats(t[which].fsdp).wait_ns;
        sum_ranks(&m, &ns, 1);
        waits[which][i / 2] = (double)ns / 1e6 / m.ranks;
    }
    if (m.rank == 0) {
        const char *peer = ways > 1 ? "np" : NULL;
        double wire = 1e3 * sent / j->link.bandwidth,
               bound = wire > pauses_ms() ? wire : pauses_ms();
        for (int i = 0; i < rounds; i++) hidden[i] = 100 * (wire - waits[0][i]) / wire;
        report(j, "fsdp.link", "step", on[0], "ms", bound, peer, peer ? on[1] : NULL);
        report(j, "fsdp.link", "exposed", waits[0], "ms", -1, peer, peer ? waits[1] : NULL);
        report(j, "fsdp.link", "hidden", hidden, "percent", -1, NULL, NULL);
    }
    for (int i = 0; i < ways; i++) free_trainer(&t[i]);
    free_member(&m);
    return NEO_OK;
}

static neo_status count_bytes(neo_comm *comm, void *user) {
    job *j = (job *)user;
    member m;
    trainer t;
    make_member(&m, comm, j);
    make_sharded(&t, &m, j->mode);
    double sent = verify(&m, &t);
    if (m.rank == 0) j->sent = sent;
    free_trainer(&t);
    free_member(&m);
    return NEO_OK;
}
static neo_status find_digest(neo_comm *comm, void *user) {
    job *j = (job *)user;
    neo_state *state;
    trainer t;
    member m;
    make_member(&m, comm, j);
    make_plain(&t, m.ctx);
    for (int i = 0; i < 2; i++) step_plain(&m, &t);
    BENCH_OK(neo_state_create(m.ctx, &state));
    BENCH_OK(neo_state_add_params(state, t.set[0]));
    BENCH_OK(neo_state_add_optim(state, t.optim));
    j->digest = neo_state_digest(state);
    neo_state_destroy(state);
    free_trainer(&t);
    free_member(&m);
    return NEO_OK;
}
int main(int argc, char **argv) {
    static const mode one = {"one", NEO_FSDP_FULL, 0, 0, 0};
    static job j;
    bench_begin(argc, argv);
    wide = bench.quick ? 256 : 768;
    batch = bench.quick ? 64 : 96;
    rounds = bench.quick ? 5 : 7;
    j.ranks = 1;
    j.mode = &one;
    spawn(&j, find_digest);
    spawn(&j, run_mode);
    for (j.ranks = 2; j.ranks <= MAX_RANKS; j.ranks *= 2)
        for (int i = 0; i < MODES; i++) {
            j.mode = &modes[i];
            if (j.ranks > 2 || !modes[i].hybrid) spawn(&j, run_mode);
        }
    wide = LINK_WIDE;
    for (j.ranks = 2; j.ranks <= MAX_RANKS; j.ranks *= 2) {
        j.link = (neo_link){50, 1e15}; /* to count bytes */
        j.mode = &modes[FULL_S2];
        spawn(&j, count_bytes);
        j.link.bandwidth = 1e3 * j.sent / pauses_ms();
        printf(
            "# %d ranks, links of %.1f MB/s: %.0f ms for the bytes of full.s2, %.0f ms of pauses\n",
            j.ranks, j.link.bandwidth / 1e6, pauses_ms(), pauses_ms());
        for (int i = 0; i < MODES; i++) {
            j.mode = &modes[i];
            if (!modes[i].no_prefetch && modes[i].slots != 1 && (j.ranks > 2 || !modes[i].hybrid))
                spawn(&j, run_link);
        }
    }
    return bench_end();
}
