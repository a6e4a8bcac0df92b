/* shard.c: sharded embedding tables, by ranks that are threads, one core each while there are
   enough: bytes and times of the placements and of the planner's own plan; what a pipeline hides on
   slow links.

   Two sets of tables: the 26 of Criteo Kaggle with one id each, large ones cut down; and bags of up
   to 16 ids that follow a Zipf law, over tables of different sizes. Forward and backward of a batch
   of 2048 over all ranks; four ranks are two nodes. Verified first: after some steps weights and
   optimizer state have the digest of one rank's.
     shard.<set>.<plan>.w<W>.bytes     that a rank sends in a step, the mean; peer: the formula of
                                       neo_fsdp.h, counted from the plan's pieces and the ids (they
                                       must be equal)
     shard.<set>.<plan>.w<W>.step      median; peer: one rank, one thread, with the whole batch,
                                       alternating
     shard.<set>.<plan>.w<W>.predicted by the planner, for this machine, its memory shared by the
     ranks and for links;
                                       peer: the measured step (the ratio is how much longer that
                                       is)
     shard.<set>.<plan>.w<W>.waits     share of the step that a rank waits for others; the rest is
                                       its own work
     shard.w1                          a group of one rank; peer: neo_bags, alternating
     shard.wire.f16.rows               pooled rows and gradients in f16; peer: the same in f32
                                       (twice the bytes)

   On slow links (the link model of neo_comm.h) a trainer's step: bottom layers b while rows travel,
   top layers, then b' of bottom's backward while gradients travel, and the ids of the next batch
   beside all that. Tables are placed whole. The bandwidth is such that the exchanges take as long
   as everything else. Exposed is what a rank waits. Of what ids, rows and gradients take if nothing
   runs beside them, I, F and B, a pipeline can hide min(F, b) + min(B, b') + I: rows are needed by
   the top layers, gradients come from them.
     shard.link.<set>.w<W>.step        with the pipeline; peer: without
     shard.link.<set>.w<W>.exposed     with the pipeline; peer: without
     shard.link.<set>.w<W>.hidden      share of what can be hidden */
#include "bench/bench.h"

#include "neo_data.h"
#include "neo_fsdp.h"

enum {
    MAX_TABLES = 26,
    MAX_RANKS = 4,
    BATCH = 2048,
    BATCHES = 4,
    LEAVES = 8,
    MAX_ROUNDS = 400,
    DENSE = 13,
    PLANNED = NEO_PLACEMENT_COUNT
};

typedef struct set {
    const char *name;
    int tables, most; /* most ids of a bag; 1: each has one */
    int64_t rows[MAX_TABLES], dims[MAX_TABLES];
} set;
static const set sets[] = {
    {"criteo",
     26,
     1,
     {1460, 583,   20000, 20000, 305,  24,   12517, 633,   3,  20000, 5683,  20000, 3194,
      27,   14992, 20000, 10,    5652, 2173, 4,     20000, 18, 15,    20000, 105,   20000},
     {32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32,
      32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32}},
    {"zipf",
     8,
     16,
     {50000, 200, 20000, 5000, 1000, 30000, 64, 10000},
     {32, 64, 128, 64, 32, 64, 48, 80}}};

/* What all ranks of a run share. */
typedef struct job {
    const set *set;
    neo_table_desc tables[MAX_TABLES];
    char names[MAX_TABLES][8];
    neo_bags_desc bags;
    neo_plan_desc plan;
    int kind; /* a placement, or PLANNED */
    double ids_per_sample[MAX_TABLES];
    int64_t *offsets[BATCHES], *ids[BATCHES], width;
    float *dout; /* of all samples; that of every batch */
    uint64_t digest; /* of one rank, after each batch once */
    neo_link link;   /* the model; zeros: none */
    int find_link;   /* run_link sets it */
    double sent; /* bytes of a rank and step, found by a run; of them pooled rows and gradients */
    double rows_sent, predicted; /* seconds */
} job;

/* ---- tables and batches ---- */
static void make_job(job *j, const set *of) {
    memset(j, 0, sizeof *j);
    j->set = of;
    for (int t = 0; t < of->tables; t++) {
        snprintf(j->names[t], sizeof j->names[t], "C%d", t + 1);
        j->tables[t] = (neo_table_desc){.name = j->names[t],
                                        .rows = of->rows[t],
                                        .dim = of->dims[t],
                                        .row_buckets = LEAVES,
                                        .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
        j->width += of->dims[t];
    }
    for (int k = 0; k < BATCHES; k++) {
        int64_t n = 0;
        j->offsets[k] = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(of->tables * BATCH + 1));
        j->ids[k] =
            (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(of->tables * BATCH * of->most));
        for (int64_t i = 0; i < of->tables * BATCH; i++) {
            int64_t t = i / BATCH,
                    length = of->most == 1 ? 1 : (int64_t)bench_random() % (of->most + 1);
            for (j->offsets[k][i + 1] = n + length; n < j->offsets[k][i + 1]; n++)
                j->ids[k][n] =
                    neo_zipf((float)(bench_random() >> 8) * 0x1p-23f, of->rows[t], 1.15f);
            j->ids_per_sample[t] += (double)length / (BATCH * BATCHES);
        }
    }
    j->dout = (float *)bench_alloc(sizeof(float) * (size_t)(BATCH * j->width));
    bench_fill(j->dout, BATCH * j->width);
    j->bags = (neo_bags_desc){.tables = j->tables, .table_count = of->tables, .max_batch = BATCH,
                              .max_ids = (int64_t)BATCH * of->tables * of->most};
    j->plan = (neo_plan_desc){.bags = &j->bags, .ids_per_sample = j->ids_per_sample, .skew = 1.15};
}
static void free_job(job *j) {
    for (int k = 0; k < BATCHES; k++) free(j->offsets[k]), free(j->ids[k]);
    free(j->dout);
}

/* A rank, its samples and its layers. */
typedef struct member {
    job *job;
    neo_comm *comm;
    neo_ctx *ctx;
    int rank, ranks;
    int64_t first, samples;
    neo_jagged batch[BATCHES];
    neo_shard *shard[2]; /* without and with a pipeline */
    neo_tensor x, y, out, dout, top, dtop, de, dy;
    neo_params *params;
    neo_mlp *bottom_mlp, *top_mlp;
} member;
static void cut_batch(member *m, int k) {
    const job *j = m->job;
    const int64_t *from = j->offsets[k];
    int64_t *offsets =
        (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(j->set->tables * m->samples + 1));
    int64_t *ids = (int64_t *)bench_alloc(sizeof(int64_t) *
                                          (size_t)(j->set->tables * m->samples * j->set->most));
    int64_t n = 0, bag = 0;
    for (int64_t t = 0; t < j->set->tables; t++)
        for (int64_t i = t * BATCH + m->first; i < t * BATCH + m->first + m->samples; i++) {
            memcpy(ids + n, j->ids[k] + from[i], sizeof(int64_t) * (size_t)(from[i + 1] - from[i]));
            offsets[++bag] = n += from[i + 1] - from[i];
        }
    m->batch[k] = (neo_jagged){.batch = m->samples,
                               .feature_count = j->set->tables,
                               .id_dtype = NEO_I64,
                               .offsets = offsets,
                               .ids = ids};
}
static neo_tensor alloc_rows(const member *m, int64_t columns) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->samples, columns}, &t));
    return t;
}
static void make_member(member *m, neo_comm *comm, job *j) {
    memset(m, 0, sizeof *m);
    m->job = j;
    m->comm = comm;
    m->ctx = neo_comm_ctx(comm);
    m->rank = neo_comm_rank(comm);
    m->ranks = neo_comm_size(comm);
    BENCH_OK(neo_comm_samples(comm, BATCH, &m->first, &m->samples));
    for (int k = 0; k < BATCHES; k++) cut_batch(m, k);
    m->out = alloc_rows(m, j->width);
    m->dout = neo_tensor_2d(j->dout + m->first * j->width, NEO_F32, m->samples, j->width);
}
static void free_member(member *m) {
    for (int k = 0; k < BATCHES; k++) {
        free((void *)(uintptr_t)m->batch[k].offsets);
        free((void *)(uintptr_t)m->batch[k].ids);
    }
    neo_tensor_free(m->ctx, &m->out);
    for (int p = 0; p < 2; p++) neo_shard_destroy(m->shard[p]);
}
static void make_shard(member *m, int pipeline) {
    neo_plan *plan;
    neo_plan_desc d = m->job->plan;
    d.pipeline = pipeline;
    if (m->job->kind == PLANNED) BENCH_OK(neo_plan_create(m->ctx, &d, &plan));
    else BENCH_OK(neo_plan_create_uniform(m->ctx, &d, (neo_placement)m->job->kind, &plan));
    BENCH_OK(neo_shard_create(m->comm, plan, &m->shard[pipeline]));
    neo_plan_destroy(plan);
}
static void sum_ranks(member *m, int64_t *x, int64_t count) {
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, x, x, count, NEO_I64, NULL));
}
static void most_of_ranks(member *m, int64_t *x, int64_t count) {
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_MAX, x, x, count, NEO_I64, NULL));
}

/* ---- one rank with everything ---- */
static neo_bags *make_bags(const job *j, neo_ctx *ctx) {
    neo_bags *bags;
    BENCH_OK(neo_bags_create(ctx, &j->bags, &bags));
    return bags;
}
static int64_t bags_ns(const job *j, neo_bags *bags, int k, neo_tensor out) {
    neo_jagged b = {.batch = BATCH,
                    .feature_count = j->set->tables,
                    .id_dtype = NEO_I64,
                    .offsets = j->offsets[k],
                    .ids = j->ids[k]};
    int64_t start = neo_time_ns();
    BENCH_OK(neo_bags_forward(bags, &b, out));
    BENCH_OK(neo_bags_backward(bags, &b, neo_tensor_2d(j->dout, NEO_F32, BATCH, j->width), 0.01f));
    return neo_time_ns() - start;
}
static void find_digest(job *j) {
    neo_ctx *ctx = bench_ctx(1, LEAVES);
    neo_bags *bags = make_bags(j, ctx);
    neo_state *state;
    float *out = (float *)bench_alloc(sizeof(float) * (size_t)(BATCH * j->width));
    for (int k = 0; k < BATCHES; k++)
        bags_ns(j, bags, k, neo_tensor_2d(out, NEO_F32, BATCH, j->width));
    BENCH_OK(neo_state_create(ctx, &state));
    BENCH_OK(neo_state_add_bags(state, bags));
    j->digest = neo_state_digest(state);
    neo_state_destroy(state);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    free(out);
}

/* ---- bytes by the formula: of all ranks, for a batch ---- */
static int64_t bucket_begin(int64_t rows, int64_t b) {
    return b * (rows / LEAVES) + b * (rows % LEAVES) / LEAVES;
}
/* A piece of some buckets is a part for each of their subtrees that has rows. */
static int64_t parts_of(int64_t rows, const neo_piece *p) {
    int64_t parts = 0, n;
    if (p->rows == rows) return 1;
    for (int64_t b = 0; b < LEAVES; b += n) {
        for (n = 1; b % (2 * n) == 0 && 2 * n <= LEAVES;) n *= 2;
        for (;; n /= 2) {
            int64_t first = bucket_begin(rows, b), end = bucket_begin(rows, b + n);
            int inside = first >= p->first_row && end <= p->first_row + p->rows;
            if (n > 1 && !inside) continue;
            parts += inside && end > first;
            break;
        }
    }
    return parts;
}
static int64_t ids_between(const job *j, int k, int t, int64_t first, int64_t rows, int64_t from,
                           int64_t to) {
    int64_t n = 0;
    for (int64_t i = j->offsets[k][t * BATCH + from]; i < j->offsets[k][t * BATCH + to]; i++)
        n += j->ids[k][i] >= first && j->ids[k][i] < first + rows;
    return n;
}
static int64_t rows_touched(const job *j, int k, const neo_piece *p, char *seen) {
    int64_t n = 0;
    memset(seen, 0, (size_t)p->rows);
    for (int64_t i = j->offsets[k][p->table * BATCH]; i < j->offsets[k][(p->table + 1) * BATCH];
         i++) {
        int64_t row = j->ids[k][i] - p->first_row;
        if (row < 0 || row >= p->rows || seen[row]) continue;
        seen[row] = 1;
        n++;
    }
    return n;
}
static int64_t piece_bytes(const job *j, const neo_piece *pieces, int64_t count, int64_t i, int k,
                           char *seen) {
    const neo_cluster *c = &j->plan.cluster;
    const neo_piece *p = &pieces[i];
    int64_t rows = j->set->rows[p->table], w = c->ranks, l = c->ranks_per_node, mine = BATCH / w,
            bytes = 0, like = 0;
    int again = 0, inside = w > l, there[MAX_RANKS] = {0};
    if (p->rank == NEO_EVERY_RANK) return 2 * (w - 1) * rows * (4 * p->cols + 1);
    for (int64_t q = 0; q < count; q++) {
        const neo_piece *o = &pieces[q];
        if (o->table != p->table) continue;
        again |= q < i && o->rank == p->rank && o->first_row == p->first_row;
        like += o->first_col == p->first_col;
        if (o->first_col == p->first_col && o->rank / l != p->rank / l) inside = 0;
        if (o->first_row == p->first_row) there[o->rank] = 1;
    }
    there[p->rank] = 0;
    inside &= like > 1;
    int64_t parts = parts_of(rows, p), first = p->rank * mine;
    if (!again) {
        bytes += 4 * parts * (BATCH - mine); /* lengths */
        bytes += 4 * (ids_between(j, k, p->table, p->first_row, p->rows, 0, first) +
                      ids_between(j, k, p->table, p->first_row, p->rows, first + mine, BATCH));
    }
    neo_wire out = p->rows < rows ? NEO_WIRE_F32 : j->plan.wire_forward;
    int64_t both = (int64_t)(neo_wire_row_bytes(out, p->cols) +
                             neo_wire_row_bytes(j->plan.wire_backward, p->cols));
    if (!inside) bytes += parts * (BATCH - mine) * both;
    else bytes += parts * (BATCH - BATCH / l) * 8 * p->cols;
    if (inside && p->first_row == 0)
        bytes += (BATCH - l * mine) * (int64_t)(neo_wire_row_bytes(j->plan.wire_forward, p->cols) +
                                                neo_wire_row_bytes(j->plan.wire_backward, p->cols));
    if (p->cols < j->set->dims[p->table]) /* one sum for 16 columns of a row */
        for (int r = 0; r < w; r++)
            if (there[r]) bytes += 4 * rows_touched(j, k, p, seen) * ((p->cols + 15) / 16);
    return bytes;
}
static int64_t formula(const job *j, const neo_piece *pieces, int64_t count, int k) {
    int64_t bytes = 4 * j->plan.cluster.ranks * (j->plan.cluster.ranks - 1); /* status words */
    char *seen = (char *)bench_alloc(50000);
    for (int64_t i = 0; i < count; i++) bytes += piece_bytes(j, pieces, count, i, k, seen);
    free(seen);
    return bytes;
}

/* ---- plans ---- */
static int64_t bytes_of(const neo_comm_stats *s) {
    int64_t n = 0;
    for (int op = 0; op < NEO_COMM_OP_COUNT; op++)
        for (int l = 0; l < NEO_LEVEL_COUNT; l++) n += s->op[op].bytes[l];
    return n;
}
static int64_t bytes_sent(const neo_shard_stats *s) {
    return bytes_of(&s->ids) + bytes_of(&s->rows) + bytes_of(&s->node) + bytes_of(&s->cross);
}
static int64_t ns_waited(const neo_shard_stats *s) {
    return s->ids.wait_ns + s->rows.wait_ns + s->node.wait_ns + s->cross.wait_ns;
}
static void step(member *m, int k) {
    BENCH_OK(neo_shard_forward(m->shard[0], &m->batch[k], BATCH, m->out));
    BENCH_OK(neo_shard_backward(m->shard[0], m->dout, 0.01f));
}
/* Each batch once: the digest is that of one rank, the bytes are those of the formula. Narrow wires
   change bits. */
static void verify(member *m) {
    const job *j = m->job;
    neo_group all = neo_comm_group(m->comm);
    neo_state *state;
    neo_plan *plan;
    uint64_t digest = 0;
    int64_t sent, expected = 0, count;
    neo_shard_reset_stats(m->shard[0]);
    for (int k = 0; k < BATCHES; k++) step(m, k);
    BENCH_OK(neo_state_create(m->ctx, &state));
    BENCH_OK(neo_state_add_shard(state, m->shard[0]));
    BENCH_OK(neo_state_digest_group(state, &all, &digest));
    neo_state_destroy(state);
    neo_shard_stats stats = neo_shard_get_stats(m->shard[0]);
    sent = bytes_sent(&stats);
    sum_ranks(m, &sent, 1);
    if (m->rank > 0) return;
    if (j->kind == PLANNED) BENCH_OK(neo_plan_create(m->ctx, &j->plan, &plan));
    else BENCH_OK(neo_plan_create_uniform(m->ctx, &j->plan, (neo_placement)j->kind, &plan));
    const neo_piece *pieces = neo_plan_pieces(plan, &count);
    for (int k = 0; k < BATCHES; k++) expected += formula(j, pieces, count, k);
    m->job->predicted = neo_plan_step_of(plan).plain;
    neo_plan_destroy(plan);
    m->job->sent = (double)sent / (BATCHES * m->ranks);
    if (j->plan.wire_forward == NEO_WIRE_F32 && digest != j->digest)
        bench_fail("the digest is not that of one rank");
    if (sent != expected) {
        printf("# %lld bytes sent, %lld by the formula\n", (long long)sent, (long long)expected);
        bench_fail("bytes are not those of the formula");
    }
}
static void name_of(char name[80], const job *j, const char *what) {
    snprintf(name, 80, "shard.%s.%s.w%d.%s", j->set->name,
             j->kind == PLANNED ? "planned" : neo_placement_name((neo_placement)j->kind),
             (int)j->plan.cluster.ranks, what);
}
static neo_status run_plan(neo_comm *comm, void *user) {
    static double t[MAX_ROUNDS], ratio[MAX_ROUNDS];
    member m;
    job *j = (job *)user;
    int rounds = bench.quick ? 2 * BATCHES : 6 * BATCHES;
    int64_t ns[MAX_ROUNDS], one[MAX_ROUNDS], sums[2] = {0, 0};
    char name[80];
    make_member(&m, comm, j);
    make_shard(&m, 0);
    verify(&m);
    neo_bags *bags = m.rank == 0 ? make_bags(j, m.ctx) : NULL;
    neo_tensor out = neo_tensor_none();
    if (bags) BENCH_OK(neo_tensor_alloc(m.ctx, NEO_F32, 2, (int64_t[]){BATCH, j->width}, &out));
    neo_shard_reset_stats(m.shard[0]);
    for (int i = 0; i < rounds; i++) {
        one[i] = bags ? bags_ns(j, bags, i % BATCHES, out) : 0;
        BENCH_OK(neo_comm_barrier(comm, NULL));
        int64_t start = neo_time_ns();
        step(&m, i % BATCHES);
        ns[i] = neo_time_ns() - start;
        sums[0] += ns[i];
        BENCH_OK(neo_comm_barrier(comm, NULL));
    }
    neo_shard_stats stats = neo_shard_get_stats(m.shard[0]);
    sums[1] = ns_waited(&stats);
    most_of_ranks(&m, ns, rounds);
    sum_ranks(&m, sums, 2);
    if (m.rank == 0) {
        for (int i = 0; i < rounds; i++)
            t[i] = (double)ns[i] / 1000, ratio[i] = (double)one[i] / (double)ns[i];
        name_of(name, j, "bytes");
        bench_report(name, j->sent / 1000, "KB", -1, "formula", 1.0);
        name_of(name, j, "step");
        double median = bench_median(t, rounds), times = bench_median(ratio, rounds);
        bench_spread(t, rounds);
        bench_report(name, median, "us", -1, "bags", times);
        name_of(name, j, "predicted");
        bench_report(name, 1e6 * j->predicted, "us", -1, "measured", 1e-6 * median / j->predicted);
        name_of(name, j, "waits");
        bench_report(name, 100 * (double)sums[1] / (double)sums[0], "percent", -1, NULL, 0);
        neo_tensor_free(m.ctx, &out);
        neo_bags_destroy(bags);
    }
    free_member(&m);
    return NEO_OK;
}
static void spawn(job *j, neo_comm_fn fn) {
    neo_comm_desc d;
    memset(&d, 0, sizeof d);
    d.ctx.threads = 1;
    d.ctx.repro_shards = LEAVES;
    d.ctx.seed = 1;
    d.ranks_per_node = j->plan.cluster.ranks_per_node;
    d.link[NEO_LEVEL_LOCAL] = d.link[NEO_LEVEL_CROSS] = j->link;
    if (neo_comm_spawn(j->plan.cluster.ranks, &d, fn, j, NULL) != NEO_OK)
        bench_fail(neo_last_error());
}
/* This machine, shared by the ranks. */
static void set_ranks(job *j, const neo_cluster *machine, int ranks, int nodes) {
    int cores = bench.threads;
    double share = ranks > cores ? (double)cores / ranks : 1;
    j->plan.cluster = *machine;
    j->plan.cluster.ranks = ranks;
    j->plan.cluster.ranks_per_node = ranks / nodes;
    j->plan.cluster.memory_bandwidth *= share;
    j->plan.cluster.flops *= share;
    for (int l = 0; l < NEO_LEVEL_COUNT; l++)
        j->plan.cluster.link[l].bandwidth = j->plan.cluster.memory_bandwidth;
}
static void bench_plans(job *j, const neo_cluster *machine) {
    for (int w = 2; w <= MAX_RANKS; w *= 2) {
        set_ranks(j, machine, w, w / 2);
        for (j->kind = 0; j->kind <= PLANNED && !bench.failed; j->kind++) {
            int needs_nodes = j->kind == NEO_TABLE_ROW_WISE || j->kind == NEO_TABLE_COLUMN_WISE ||
                              j->kind == NEO_GRID;
            if (!needs_nodes || w > 2) spawn(j, run_plan);
        }
    }
}

/* ---- one rank, narrow wires ---- */
static neo_status run_one(neo_comm *comm, void *user) {
    static double t[MAX_ROUNDS], ratio[MAX_ROUNDS];
    member m;
    job *j = (job *)user;
    int rounds = bench.quick ? 4 * BATCHES : 16 * BATCHES;
    make_member(&m, comm, j);
    make_shard(&m, 0);
    neo_bags *bags = make_bags(j, m.ctx);
    for (int i = -BATCHES; i < rounds; i++) { /* ours, theirs, theirs, ours */
        int64_t ours = 0, theirs = 0;
        for (int half = 0; half < 2; half++) {
            if (half) theirs += bags_ns(j, bags, (i + BATCHES) % BATCHES, m.out);
            int64_t start = neo_time_ns();
            step(&m, (i + BATCHES) % BATCHES);
            ours += neo_time_ns() - start;
            if (!half) theirs += bags_ns(j, bags, (i + BATCHES) % BATCHES, m.out);
        }
        if (i < 0) continue;
        t[i] = (double)ours / 2000;
        ratio[i] = (double)theirs / (double)ours;
    }
    double median = bench_median(t, rounds), times = bench_median(ratio, rounds);
    bench_spread(ratio, rounds);
    bench_report("shard.w1", median, "us", -1, "bags", times);
    neo_bags_destroy(bags);
    free_member(&m);
    return NEO_OK;
}
static neo_status run_rows(neo_comm *comm, void *user) {
    member m;
    job *j = (job *)user;
    make_member(&m, comm, j);
    make_shard(&m, 0);
    verify(&m);
    neo_shard_stats stats = neo_shard_get_stats(m.shard[0]);
    int64_t sent = bytes_of(&stats.rows);
    sum_ranks(&m, &sent, 1);
    if (m.rank == 0) j->rows_sent = (double)sent / (BATCHES * m.ranks);
    free_member(&m);
    return NEO_OK;
}
static void bench_one_and_wires(job *j, const neo_cluster *machine) {
    set_ranks(j, machine, 1, 1);
    j->kind = NEO_TABLE_WISE;
    spawn(j, run_one);
    set_ranks(j, machine, 2, 1);
    spawn(j, run_rows);
    double f32 = j->rows_sent;
    j->plan.wire_forward = j->plan.wire_backward = NEO_WIRE_F16;
    spawn(j, run_rows);
    j->plan.wire_forward = j->plan.wire_backward = NEO_WIRE_F32;
    bench_report("shard.wire.f16.rows", j->rows_sent / 1000, "KB", -1, "f32", f32 / j->rows_sent);
}

/* ---- a pipeline on slow links ---- */
static const int64_t bottom_widths[] = {DENSE, 512, 256, 64};
enum { LINK_STEPS = BATCHES, LINK_TURNS = 21 };
typedef struct times { /* ns, summed over the steps of a turn */
    int64_t step, exposed, ids, rows, grads, bottom, bottom_back, sent;
} times;

static void make_layers(member *m) {
    neo_mlp_desc bottom = {.name = "bottom",
                           .width_count = 4,
                           .max_batch = m->samples,
                           .act = NEO_ACT_RELU,
                           .last_act = NEO_ACT_RELU};
    neo_mlp_desc top = {.name = "top",
                        .widths = {m->job->width, 64, 1},
                        .width_count = 3,
                        .max_batch = m->samples,
                        .act = NEO_ACT_RELU};
    memcpy(bottom.widths, bottom_widths, sizeof bottom_widths);
    BENCH_OK(neo_params_create(m->ctx, &m->params));
    BENCH_OK(neo_mlp_create(m->ctx, m->params, &bottom, &m->bottom_mlp));
    BENCH_OK(neo_mlp_create(m->ctx, m->params, &top, &m->top_mlp));
    m->x = alloc_rows(m, DENSE), m->y = alloc_rows(m, 64), m->dy = alloc_rows(m, 64);
    m->top = alloc_rows(m, 1), m->dtop = alloc_rows(m, 1), m->de = alloc_rows(m, m->job->width);
    neo_tensor *inputs[] = {&m->x, &m->dy, &m->dtop};
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < inputs[i]->shape[0] * inputs[i]->shape[1]; k++)
            ((float *)inputs[i]->data)[k] = (float)((k * 37 + 11) % 101 - 50) / 50.0f;
}
static void free_layers(member *m) {
    neo_tensor *all[] = {&m->x, &m->y, &m->dy, &m->top, &m->dtop, &m->de};
    for (int i = 0; i < 6; i++) neo_tensor_free(m->ctx, all[i]);
    neo_mlp_destroy(m->top_mlp);
    neo_mlp_destroy(m->bottom_mlp);
    neo_params_destroy(m->params);
}
static void bottom_forward(member *m, times *t) {
    int64_t start = neo_time_ns();
    BENCH_OK(neo_mlp_forward(m->bottom_mlp, m->x, m->y));
    t->bottom += neo_time_ns() - start;
}
static void bottom_backward(member *m, times *t) {
    int64_t start = neo_time_ns();
    BENCH_OK(neo_mlp_backward(m->bottom_mlp, NULL, m->dy, neo_tensor_none()));
    t->bottom_back += neo_time_ns() - start;
}
static void top_layers(member *m) {
    BENCH_OK(neo_mlp_forward(m->top_mlp, m->out, m->top));
    BENCH_OK(neo_mlp_backward(m->top_mlp, NULL, m->dtop, m->de));
}
static void step_without(member *m, int k, times *t) {
    neo_shard *s = m->shard[0];
    neo_shard_reset_stats(s);
    BENCH_OK(neo_shard_forward(s, &m->batch[k], BATCH, m->out));
    neo_shard_stats forward = neo_shard_get_stats(s);
    bottom_forward(m, t);
    top_layers(m);
    BENCH_OK(neo_shard_backward(s, m->de, 0.0f));
    neo_shard_stats all = neo_shard_get_stats(s);
    bottom_backward(m, t);
    t->ids += forward.ids.wait_ns;
    t->rows += ns_waited(&forward) - forward.ids.wait_ns;
    t->grads += ns_waited(&all) - ns_waited(&forward);
    t->exposed += ns_waited(&all);
    t->sent += bytes_sent(&all);
}
static void step_with(member *m, int k, int last, times *t) {
    neo_shard *s = m->shard[1];
    BENCH_OK(neo_shard_forward_begin(s, &m->batch[k], BATCH));
    if (!last) BENCH_OK(neo_shard_prefetch(s, &m->batch[(k + 1) % BATCHES], BATCH));
    bottom_forward(m, t);
    BENCH_OK(neo_shard_forward_end(s, m->out));
    top_layers(m);
    BENCH_OK(neo_shard_backward_begin(s, m->de));
    bottom_backward(m, t);
    BENCH_OK(neo_shard_backward_end(s, 0.0f));
}
/* Means over ranks. Statistics are read when nothing is in flight: so the first step of a turn has
   no prefetch. */
static times take_turn(member *m, int pipeline) {
    times t;
    memset(&t, 0, sizeof t);
    neo_shard_reset_stats(m->shard[pipeline]);
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    int64_t start = neo_time_ns();
    for (int i = 0; i < LINK_STEPS; i++) {
        if (pipeline) step_with(m, i % BATCHES, i == LINK_STEPS - 1, &t);
        else step_without(m, i % BATCHES, &t);
    }
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    t.step = neo_time_ns() - start;
    if (pipeline) {
        neo_shard_stats all = neo_shard_get_stats(m->shard[1]);
        t.exposed = ns_waited(&all);
    }
    sum_ranks(m, (int64_t *)&t, sizeof t / sizeof(int64_t));
    for (size_t i = 0; i < sizeof t / sizeof(int64_t); i++) ((int64_t *)&t)[i] /= m->ranks;
    return t;
}
static double less(int64_t a, int64_t b) { return (double)(a < b ? a : b); }
static void report_link(const job *j, const times *off, const times *on, int turns) {
    static double v[5][LINK_TURNS], part[4][LINK_TURNS];
    char name[80];
    for (int i = 0; i < turns; i++) {
        double n = LINK_STEPS * 1e6, ids = (double)off[i].ids * (LINK_STEPS - 1) /
                                           LINK_STEPS; /* the first ones have no step before */
        double hideable =
            less(off[i].rows, off[i].bottom) + less(off[i].grads, off[i].bottom_back) + ids;
        v[0][i] = (double)on[i].step / n;
        v[1][i] = (double)off[i].step / (double)on[i].step;
        v[2][i] = (double)on[i].exposed / n;
        v[3][i] = (double)off[i].exposed / (double)on[i].exposed;
        v[4][i] = 100 * (double)(off[i].exposed - on[i].exposed) / hideable;
        part[0][i] = 100 * (double)off[i].exposed / (double)off[i].step;
        part[1][i] = (double)off[i].step / n;
        part[2][i] = (double)off[i].exposed / n;
        part[3][i] = hideable / n;
    }
    for (int i = 0; i < 5; i++) bench_median(v[i], turns);
    for (int i = 0; i < 4; i++) bench_median(part[i], turns);
    printf("# %s, %d ranks, links of %.1f MB/s: without a pipeline a step takes %.1f ms, of which "
           "%.0f %% is exposed "
           "(%.1f ms, %.1f ms can be hidden)\n",
           j->set->name, (int)j->plan.cluster.ranks, j->link.bandwidth / 1e6,
           bench_quantile(part[1], turns, 0.5), bench_quantile(part[0], turns, 0.5),
           bench_quantile(part[2], turns, 0.5), bench_quantile(part[3], turns, 0.5));
    const char *const what[] = {"step", "exposed", "hidden"}, *const unit[] = {"ms", "ms",
                                                                               "percent"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "shard.link.%s.w%d.%s", j->set->name,
                 (int)j->plan.cluster.ranks, what[i]);
        bench_spread(v[2 * i], turns);
        bench_report(name, bench_quantile(v[2 * i], turns, 0.5), unit[i], -1, i < 2 ? "off" : NULL,
                     i < 2 ? bench_quantile(v[2 * i + 1], turns, 0.5) : 0);
    }
}
/* The bandwidth at which the exchanges take as long as all else, from a few turns without
   a model, or with the one found so far. */
static void find_link(job *j, const times *off, int turns) {
    double t[LINK_TURNS];
    for (int i = 0; i < turns; i++) {
        double rest = (double)(off[i].step - off[i].exposed), exposed = (double)off[i].exposed;
        t[i] = j->link.bandwidth > 0 ? j->link.bandwidth * exposed / rest
                                     : (double)off[i].sent * 1e9 / rest;
    }
    j->link = (neo_link){50, bench_median(t, turns)};
}
static neo_status run_link(neo_comm *comm, void *user) {
    static times off[MAX_RANKS][LINK_TURNS], on[MAX_RANKS][LINK_TURNS];
    member m;
    job *j = (job *)user;
    int turns = j->find_link ? 3 : bench.quick ? 5 : LINK_TURNS;
    make_member(&m, comm, j);
    make_layers(&m);
    for (int p = 0; p < 2; p++) {
        make_shard(&m, p);
        take_turn(&m, p);
    }
    for (int i = 0; i < turns; i++) {
        if (i & 1) on[m.rank][i] = take_turn(&m, 1);
        off[m.rank][i] = take_turn(&m, 0);
        if (!(i & 1)) on[m.rank][i] = take_turn(&m, 1);
    }
    BENCH_OK(neo_comm_barrier(comm, NULL));
    if (m.rank == 0 && j->find_link) find_link(j, off[0], turns);
    else if (m.rank == 0) report_link(j, off[0], on[0], turns);
    free_layers(&m);
    free_member(&m);
    return NEO_OK;
}
static void bench_link(job *j, const neo_cluster *machine) {
    j->kind = NEO_TABLE_WISE;
    for (int w = 2; w <= MAX_RANKS; w *= 2) {
        set_ranks(j, machine, w, 1);
        j->find_link = 1;
        for (int i = 0; i < 3 && !bench.failed; i++) spawn(j, run_link);
        j->find_link = 0;
        if (!bench.failed) spawn(j, run_link);
        j->link = (neo_link){0, 0};
    }
}

int main(int argc, char **argv) {
    static job j;
    neo_cluster machine;
    memset(&machine, 0, sizeof machine);
    bench_begin(argc, argv);
    neo_ctx *ctx = bench_ctx(0, LEAVES);
    bench.threads = neo_ctx_threads(ctx);
    neo_ctx_destroy(ctx);
    ctx = bench_ctx(1, LEAVES);
    BENCH_OK(neo_calibrate(ctx, &machine));
    neo_ctx_destroy(ctx);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        make_job(&j, &sets[i]);
        find_digest(&j);
        bench_plans(&j, &machine);
        if (i == 1) bench_one_and_wires(&j, &machine);
        bench_link(&j, &machine);
        free_job(&j);
    }
    return bench_end();
}
