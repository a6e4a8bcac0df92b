/* sweep.c: how the cost of the parts grows with each size, and the exponent of that growth.

   Build:  make build/bench/sweep        Run:  sweep [--quick]

   Bags: 8 tables of 1e5 rows of 64 columns, 512 samples, 10 ids per bag, all but one of these
   fixed; ids are uniform. A size draws its batches from as many samples as the others, so that
   small batches do not just stay in the cache.

     sweep.forward.<size>, sweep.backward.<size>  neo_bags_forward, neo_bags_backward with row-wise
                                                  Adagrad; over
                 B (samples), T (tables), D (columns), L (ids per bag) and rows (of a table: the
                 same work)
     sweep.step.B                  a whole step of the DLRM of model.h, over samples
     sweep.interact.T              dot interaction of 16 columns, 512 samples, forward and backward,
                                   over tables
     sweep.shard.ranks             neo_shard_forward and _backward of 16 tables placed whole, 2048
                                   samples over all ranks, 1 .. 16 of them, threads: the same work;
                                   CPU time of all ranks together
     sweep.reduce.ranks            all-reduce of 8 Mi / ranks floats on each rank: all together sum
                                   the same bytes

   One line per point: us of CPU time, the median over rounds; all points of a sweep take turns in a
   round. peer is the machine's own cost of the same, measured beside it, and ratio how much that
   takes of neo's time:
     touch   one number read (forward) or changed (backward) in every cache line of the rows looked
             up, fetched ahead; in backward also one read in every line of the gradients, in the
             order of the sorted ids
     stream  every layer's outputs read and written once
     fmas    the same number of multiply-adds in registers
     meet    as many all-to-alls as neo_shard has exchanges, of as many bytes together, and the
             waits for the others
   Then <name>.exponent: least squares of log time over log size; the peer's over the same points,
   ratio theirs over ours. Left out are small sizes, where fixed cost shows: it is taken to be what
   the line through the two smallest sizes has at 0, and where that is above a fifth of the time a
   point does not count, as long as three are left. Where the work stays the same (rows, ranks) all
   points count, but for one rank. By its work a cost has exponent 1, interaction over T 2 (each
   pair of T + 1 rows), over rows and ranks 0, of reduce 0.29 (a share (W - 1) / W of the bytes
   travels). One that is more than 0.1 above that prints why, if the peer, which does nothing else,
   grows as much; if it does not, and by more than 0.25, a whole run fails. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench/model.h"

#include "neo_fsdp.h"

#include <time.h>

enum { MOST_POINTS = 12, ROUNDS = 9, QUICK_ROUNDS = 3, AHEAD = 24, LINE = 16 /* floats */ };

static double cpu_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* ---- a sweep: points, their times, the exponent ---- */
typedef struct point {
    double size, ns[ROUNDS], peer_ns[ROUNDS];
} point;
typedef struct sweep {
    const char *name, *over, *peer; /* sweep.<name>.<over> */
    const char *why;                /* what of the peer's may grow faster than the work */
    double work;                    /* the exponent of the work */
    int flat, first; /* the work stays the same, or nearly; of the points that may be fitted */
    int count, rounds;
    point at[MOST_POINTS];
} sweep;

static double fit(const double *x, const double *y, int first, int count) {
    double n = count - first, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = first; i < count; i++) {
        double a = log(x[i]), b = log(y[i]);
        sx += a, sy += b, sxx += a * a, sxy += a * b;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}
/* The first point with at most a fifth of fixed cost; three are left at least. */
static int first_fitted(const sweep *s, const double *size, const double *t) {
    if (s->flat) return s->first;
    double a = pow(size[0], s->work), b = pow(size[1], s->work),
           fixed = t[0] - (t[1] - t[0]) / (b - a) * a;
    int i = s->first;
    while (i < s->count - 3 && fixed > 0.2 * t[i]) i++;
    return i;
}
static void report(sweep *s) {
    double size[MOST_POINTS], ours[MOST_POINTS], theirs[MOST_POINTS];
    char name[80];
    for (int i = 0; i < s->count; i++) {
        point *p = &s->at[i];
        size[i] = p->size;
        theirs[i] = bench_median(p->peer_ns, s->rounds);
        ours[i] = bench_median(p->ns, s->rounds);
        bench_spread(p->ns, s->rounds);
        snprintf(name, sizeof name, "sweep.%s.%s%.0f", s->name, s->over, p->size);
        bench_report(name, ours[i] / 1e3, "us", -1, s->peer, theirs[i] / ours[i]);
    }
    int first = first_fitted(s, size, ours);
    double e = fit(size, ours, first, s->count), peer = fit(size, theirs, first, s->count);
    snprintf(name, sizeof name, "sweep.%s.%s.exponent", s->name, s->over);
    bench_report(name, e, "exponent", -1, s->peer, peer / e);
    printf("# fitted over %s = %.0f .. %.0f; the exponent of the work is %g, of %s %.2f\n", s->over,
           size[first], size[s->count - 1], s->work, s->peer, peer);
    if (e <= s->work + 0.1) return;
    if (e <= peer + 0.1)
        printf("# above that of the work, as %s alone: %s\n", s->peer, s->why);
    else printf("# above that of the work, and %s alone does not show why\n", s->peer);
    if (e > s->work + 0.25 && e > peer + 0.25 && !bench.quick)
        bench_fail("a cost grows faster than its work and its memory");
}

/* Times every point in turns; `run(point, peer)` returns ns of CPU time. */
typedef double (*run_fn)(void *user, int point, int peer);
static void take_turns(sweep *s, run_fn run, void *user) {
    s->rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    for (int r = -1; r < s->rounds; r++)
        for (int k = 0; k < s->count; k++) {
            int i = r & 1 ? s->count - 1 - k : k;
            double ns = run(user, i, 0), peer_ns = run(user, i, 1);
            peer_ns += run(user, i, 1);
            ns += run(user, i, 0);
            if (r >= 0) s->at[i].ns[r] = ns / 2, s->at[i].peer_ns[r] = peer_ns / 2;
        }
    report(s);
}

/* ---- bags ---- */
typedef struct bag_point {
    int64_t tables, rows, dim, batch, length, batches, ids_of_batch;
    neo_bags *bags;
    int64_t *offsets, *ids, *sorted; /* ids, sorted: [batches][tables][batch length] */
    int64_t turn;
} bag_point;
typedef struct bag_sweep {
    neo_ctx *ctx;
    float *arena; /* rows of all points: they share them */
    size_t arena_floats;
    float *out, *dout;
    int backward;
    bag_point at[MOST_POINTS];
} bag_sweep;
typedef enum size_of { OVER_B, OVER_T, OVER_D, OVER_L, OVER_ROWS, SIZES } size_of;

/* Positions of a table's ids in a batch, by row: the order in which backward reads gradients. */
static int64_t *sort_ids; /* of qsort's comparison */
static int by_row(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b, i = sort_ids[x], j = sort_ids[y];
    return i != j ? (i > j) - (i < j) : (x > y) - (x < y);
}
static void make_bag_point(bag_sweep *s, bag_point *p, int64_t samples) {
    const int64_t of_table = p->batch * p->length;
    p->ids_of_batch = p->tables * of_table;
    p->batches = samples / p->batch;
    p->turn = 0;
    p->offsets = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(p->tables * p->batch + 1));
    p->ids = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(p->batches * p->ids_of_batch));
    p->sorted = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(p->batches * p->ids_of_batch));
    for (int64_t i = 0; i <= p->tables * p->batch; i++) p->offsets[i] = i * p->length;
    for (int64_t i = 0; i < p->batches * p->ids_of_batch; i++) {
        p->ids[i] = (int64_t)(bench_random() % (uint32_t)p->rows);
        p->sorted[i] = i % of_table;
    }
    for (int64_t i = 0; s->backward && i < p->batches * p->tables; i++) {
        sort_ids = p->ids + i * of_table;
        qsort(p->sorted + i * of_table, (size_t)of_table, sizeof(int64_t), by_row);
    }
    neo_table_desc *tables = (neo_table_desc *)bench_alloc(sizeof *tables * (size_t)p->tables);
    char(*names)[8] = (char(*)[8])bench_alloc(sizeof *names * (size_t)p->tables);
    for (int64_t t = 0; t < p->tables; t++) {
        snprintf(names[t], sizeof names[t], "t%d", (int)t);
        tables[t] = (neo_table_desc){.name = names[t],
                                     .rows = p->rows,
                                     .dim = p->dim,
                                     .weight = s->arena + t * p->rows * p->dim,
                                     .init = {.kind = NEO_INIT_NONE},
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    if ((size_t)(p->tables * p->rows * p->dim) > s->arena_floats)
        bench_fail("the arena is too small");
    BENCH_OK(neo_bags_create(s->ctx,
                             &(neo_bags_desc){.tables = tables,
                                              .table_count = (int32_t)p->tables,
                                              .max_batch = p->batch,
                                              .max_ids = p->ids_of_batch},
                             &p->bags));
    free(tables), free(names);
}
static void free_bag_point(bag_point *p) {
    neo_bags_destroy(p->bags);
    free(p->offsets), free(p->ids), free(p->sorted);
}
static void run_bags(bag_sweep *s, bag_point *p, int64_t k) {
    neo_jagged j = {.batch = p->batch,
                    .feature_count = (int32_t)p->tables,
                    .id_dtype = NEO_I64,
                    .offsets = p->offsets,
                    .ids = p->ids + k * p->ids_of_batch};
    if (s->backward)
        BENCH_OK(neo_bags_backward(
            p->bags, &j, neo_tensor_2d(s->dout, NEO_F32, p->batch, p->tables * p->dim), 0.01f));
    else
        BENCH_OK(neo_bags_forward(p->bags, &j,
                                  neo_tensor_2d(s->out, NEO_F32, p->batch, p->tables * p->dim)));
}
static void touch_rows(bag_sweep *s, bag_point *p, int64_t k) {
    const int64_t of_table = p->batch * p->length, width = p->tables * p->dim;
    float sum = 0;
    for (int64_t t = 0; t < p->tables; t++) {
        const int64_t *ids = p->ids + k * p->ids_of_batch + t * of_table,
                      *order = p->sorted + (ids - p->ids);
        float *table = s->arena + t * p->rows * p->dim;
        for (int64_t i = 0; i < of_table; i++) {
            const int64_t at = order[i], next = order[i + AHEAD < of_table ? i + AHEAD : i];
            float *row = table + ids[at] * p->dim;
            const float *grad = s->dout + at / p->length * width + t * p->dim;
            for (int64_t c = 0; c < p->dim; c += LINE)
                __builtin_prefetch(table + ids[next] * p->dim + c);
            if (!s->backward) {
                for (int64_t c = 0; c < p->dim; c += LINE) sum += row[c];
                continue;
            }
            const float *next_grad = s->dout + next / p->length * width + t * p->dim;
            for (int64_t c = 0; c < p->dim; c += LINE) __builtin_prefetch(next_grad + c);
            for (int64_t c = 0; c < p->dim; c += LINE) row[c] += 1e-6f * grad[c];
        }
    }
    s->out[0] = sum;
}
static double run_bag_point(void *user, int i, int peer) {
    bag_sweep *s = (bag_sweep *)user;
    bag_point *p = &s->at[i];
    const int64_t calls = 1 + 60000 / p->ids_of_batch;
    double start = 0;
    for (int64_t k = -1; k < calls; k++) { /* the first one only warms */
        if (k == 0) start = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        p->turn = (p->turn + 1) % p->batches;
        (peer ? touch_rows : run_bags)(s, p, p->turn);
    }
    return (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)calls;
}

/* Of the first batch: lookups against sums in order; the steps of some rows against doubles. */
static void verify_bags(bag_sweep *s, bag_point *p) {
    const int64_t of_table = p->batch * p->length, width = p->tables * p->dim;
    if (!s->backward) {
        run_bags(s, p, 0);
        for (int64_t t = 0; t < p->tables; t++)
            for (int64_t i = 0; i < p->batch * p->dim; i++) {
                const int64_t b = i / p->dim, c = i % p->dim;
                const float *table = s->arena + t * p->rows * p->dim;
                float sum = 0;
                for (int64_t k = b * p->length; k < (b + 1) * p->length; k++)
                    sum += table[p->ids[t * of_table + k] * p->dim + c];
                if (sum == s->out[b * width + t * p->dim + c]) continue;
                bench_fail("a lookup is wrong");
                return;
            }
        return;
    }
    enum { ROWS_CHECKED = 8, MOST_DIM = 512 };
    static float before[ROWS_CHECKED][MOST_DIM], state_before[ROWS_CHECKED];
    const float *state = (const float *)neo_bags_state(p->bags, 0, 0).data;
    for (int r = 0; r < ROWS_CHECKED; r++) {
        memcpy(before[r], s->arena + p->ids[r] * p->dim, sizeof(float) * (size_t)p->dim);
        state_before[r] = state[p->ids[r]];
    }
    run_bags(s, p, 0);
    for (int r = 0; r < ROWS_CHECKED; r++) {
        double g[MOST_DIM] = {0}, square = 0;
        for (int64_t k = 0; k < of_table; k++)
            for (int64_t c = 0; p->ids[k] == p->ids[r] && c < p->dim; c++)
                g[c] += s->dout[k / p->length * width + c];
        for (int64_t c = 0; c < p->dim; c++) square += g[c] * g[c];
        double rate = 0.01 / (sqrt(state_before[r] + square / (double)p->dim) + 1e-8);
        for (int64_t c = 0; c < p->dim; c++)
            if (!(fabs(s->arena[p->ids[r] * p->dim + c] - (before[r][c] - rate * g[c])) <= 1e-5)) {
                bench_fail("an update is wrong");
                return;
            }
    }
}

static void bench_bags(neo_ctx *ctx) {
    static const struct {
        const char *name;
        double work;
        int64_t from, to, quick_to, factor;
    } over[SIZES] = {{"B", 1, 16, 4096, 1024, 2},
                     {"T", 1, 1, 32, 8, 2},
                     {"D", 1, 4, 256, 128, 2},
                     {"L", 1, 1, 64, 16, 2},
                     {"rows", 0, 1000, 1024000, 64000, 4}};
    static bag_sweep s;
    s.ctx = ctx;
    s.arena_floats = (size_t)256 << 20 >> (bench.quick ? 1 : 0);
    neo_tensor arena;
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 1, (int64_t[]){(int64_t)s.arena_floats}, &arena));
    s.arena = (float *)arena.data;
    bench_fill(s.arena, 1 << 20);
    for (size_t i = (size_t)1 << 20; i < s.arena_floats; i++)
        s.arena[i] = s.arena[i & ((1 << 20) - 1)];
    s.out = (float *)bench_alloc(sizeof(float) * 4096 * 8 * 64);
    s.dout = (float *)bench_alloc(sizeof(float) * 4096 * 8 * 64);
    bench_fill(s.dout, 4096 * 8 * 64);
    for (int of = 0; of < SIZES; of++)
        for (s.backward = 0; s.backward < 2; s.backward++) {
            static sweep w;
            w = (sweep){.name = s.backward ? "backward" : "forward",
                        .over = over[of].name,
                        .peer = "touch",
                        .work = over[of].work,
                        .flat = over[of].work == 0,
                        .why = "more of the rows looked up lie outside of the caches"};
            for (int64_t n = over[of].from; n <= (bench.quick ? over[of].quick_to : over[of].to);
                 n *= over[of].factor) {
                bag_point *p = &s.at[w.count];
                *p =
                    (bag_point){.tables = 8, .rows = 100000, .dim = 64, .batch = 512, .length = 10};
                *(of == OVER_B   ? &p->batch
                  : of == OVER_T ? &p->tables
                  : of == OVER_D ? &p->dim
                  : of == OVER_L ? &p->length
                                 : &p->rows) = n;
                if (of == OVER_ROWS) p->tables = 4;
                make_bag_point(&s, p, bench.quick ? 1024 : 4096);
                verify_bags(&s, p);
                w.at[w.count++].size = (double)n;
            }
            take_turns(&w, run_bag_point, &s);
            for (int i = 0; i < w.count; i++) free_bag_point(&s.at[i]);
        }
    free(s.out), free(s.dout);
    neo_tensor_free(ctx, &arena);
}

/* ---- a step of a DLRM ---- */
typedef struct step_sweep {
    model m[MOST_POINTS];
    data d[MOST_POINTS];
    float *stream;
    int64_t floats; /* of a sample: outputs of all layers */
} step_sweep;
static double run_step_point(void *user, int i, int peer) {
    step_sweep *s = (step_sweep *)user;
    model *m = &s->m[i];
    const int64_t calls = 1 + 256 / m->batch;
    double start = 0;
    for (int64_t k = -1; k < calls; k++) {
        if (k == 0) start = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        if (!peer) step(m, &s->d[i], (int)(k + 1) % BATCHES);
        else
            for (int64_t c = 0; c < m->batch * s->floats; c++) s->stream[c] += 1e-6f;
    }
    return (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)calls;
}
/* Some steps must lower the loss. */
static void verify_step(model *m, const data *d) {
    double first, last;
    for (int i = 0; i < 9; i++) {
        step(m, d, 0);
        BENCH_OK(neo_bce_with_logits(m->ctx, NULL, m->y, d->label[0], m->dy, i ? &last : &first));
    }
    if (!(last < first)) bench_fail("a step does not lower the loss");
}
static void bench_step(void) {
    static step_sweep s;
    static sweep w;
    const int64_t most = bench.quick ? 512 : 2048;
    w = (sweep){.name = "step", .over = "B", .peer = "stream", .work = 1,
                .why = "the layers' outputs no longer fit into the cache"};
    s.floats = TABLES * DIM;
    for (int l = 1; l < 5; l++) s.floats += BOTTOM[l];
    for (int l = 0; l < 4; l++) s.floats += TOP[l];
    s.stream = (float *)bench_alloc(sizeof(float) * (size_t)(most * s.floats));
    for (int64_t b = 16; b <= most; b *= 2) {
        neo_ctx *ctx = bench_ctx(1, 1);
        s.m[w.count] = make_model(ctx, b, 20000);
        s.d[w.count] = make_data(ctx, b, 20000);
        verify_step(&s.m[w.count], &s.d[w.count]);
        w.at[w.count++].size = (double)b;
    }
    take_turns(&w, run_step_point, &s);
    for (int i = 0; i < w.count; i++) {
        neo_ctx *ctx = s.m[i].ctx;
        free_data(ctx, &s.d[i]);
        model_destroy(&s.m[i]);
        neo_ctx_destroy(ctx);
    }
    free(s.stream);
}

/* ---- dot interaction ---- */
enum { INTERACT_BATCH = 512, MOST_TABLES = 128 };
typedef struct interact_sweep {
    neo_ctx *ctx;
    int64_t tables[MOST_POINTS];
    float *x, *e, *z, *dx, *de;
} interact_sweep;
static double run_interact_point(void *user, int i, int peer) {
    interact_sweep *s = (interact_sweep *)user;
    const int64_t t = s->tables[i], b = INTERACT_BATCH, width = neo_interact_width(DIM, t, 0);
    const int64_t calls = 1 + 1000 / (t * t);
    neo_tensor x = neo_tensor_2d(s->x, NEO_F32, b, DIM),
               e = neo_tensor_2d(s->e, NEO_F32, b, t * DIM),
               z = neo_tensor_2d(s->z, NEO_F32, b, width),
               dx = neo_tensor_2d(s->dx, NEO_F32, b, DIM),
               de = neo_tensor_2d(s->de, NEO_F32, b, t * DIM);
    double start = 0;
    for (int64_t k = -1; k < calls; k++) {
        if (k == 0) start = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
        if (peer) {
            bench_fmas(b * 3 * DIM * t * (t + 1) / 2 / (24 * 16));
        } else {
            BENCH_OK(neo_interact_forward(s->ctx, 0, x, e, z));
            BENCH_OK(neo_interact_backward(s->ctx, 0, x, e, z, dx, de));
        }
    }
    return (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)calls;
}
/* z of some samples by plain sums. */
static void verify_interact(const interact_sweep *s, int64_t t) {
    const int64_t width = neo_interact_width(DIM, t, 0);
    for (int64_t b = 0; b < INTERACT_BATCH; b += 101) {
        const float *z = s->z + b * width + DIM, *rows = s->e + b * t * DIM, *x = s->x + b * DIM;
        for (int64_t i = 1; i <= t; i++)
            for (int64_t j = 0; j < i; j++) {
                const float *p = rows + (i - 1) * DIM, *q = j ? rows + (j - 1) * DIM : x;
                double sum = 0;
                for (int c = 0; c < DIM; c++) sum += (double)p[c] * q[c];
                if (!(fabs(sum - *z++) <= 1e-5)) {
                    bench_fail("an interaction is wrong");
                    return;
                }
            }
    }
}
static void bench_interact(neo_ctx *ctx) {
    static interact_sweep s;
    static sweep w;
    const int64_t most = bench.quick ? 32 : MOST_TABLES;
    const size_t rows = sizeof(float) * INTERACT_BATCH * (size_t)(most * DIM);
    s = (interact_sweep){.ctx = ctx,
                         .x = (float *)bench_alloc(rows),
                         .e = (float *)bench_alloc(rows),
                         .dx = (float *)bench_alloc(rows),
                         .de = (float *)bench_alloc(rows),
                         .z = (float *)bench_alloc(sizeof(float) * INTERACT_BATCH *
                                                   (size_t)neo_interact_width(DIM, most, 0))};
    w = (sweep){.name = "interact", .over = "T", .peer = "fmas", .work = 2, .why = ""};
    bench_fill(s.x, INTERACT_BATCH * DIM);
    bench_fill(s.e, INTERACT_BATCH * most * DIM);
    for (int64_t t = 4; t <= most; t *= 2) {
        s.tables[w.count] = t;
        run_interact_point(&s, w.count, 0);
        verify_interact(&s, t);
        w.at[w.count++].size = (double)t;
    }
    take_turns(&w, run_interact_point, &s);
    free(s.x), free(s.e), free(s.z), free(s.dx), free(s.de);
}

/* ---- ranks ---- */
enum {
    MOST_RANKS = 16,
    RANK_BATCH = 2048,
    RANK_TABLES = 16,
    RANK_ROWS = 20000,
    RANK_DIM = 64,
    RANK_LENGTH = 10,
    RANK_BATCHES = 4,
    REDUCED = 8 << 20,
    PASSES = 3,
    IDS_EACH = RANK_BATCH * RANK_LENGTH
};
typedef struct rank_job {
    neo_table_desc tables[RANK_TABLES];
    char names[RANK_TABLES][8];
    neo_bags_desc bags;
    int64_t *ids; /* [batches][tables][samples length] */
    float *dout;
    uint64_t digest; /* of the first group, with one rank */
    int pass, point;
    sweep shard, reduce;
} rank_job;
typedef struct rank_of {
    rank_job *job;
    neo_comm *comm;
    neo_shard *shard;
    neo_jagged batch[RANK_BATCHES];
    neo_tensor out, dout;
    float *from, *to; /* exchanged and reduced */
    int64_t ranks, samples;
} rank_of;

static void meet(rank_of *r, int64_t floats) { /* of all ranks together */
    BENCH_OK(neo_comm_all_to_all(r->comm, r->from, r->to, floats / (r->ranks * r->ranks), NEO_F32,
                                 NULL));
}
enum { SHARD, SHARD_PEER, REDUCE, REDUCE_PEER };
static void rank_work(rank_of *r, int what, int64_t k) {
    const neo_jagged *b = &r->batch[k % RANK_BATCHES];
    switch (what) {
    case SHARD:
        BENCH_OK(neo_shard_forward(r->shard, b, RANK_BATCH, r->out));
        BENCH_OK(neo_shard_backward(r->shard, r->dout, 0.01f));
        break;
    case SHARD_PEER: /* status, lengths, ids, rows, gradients */
        meet(r, r->ranks * r->ranks);
        meet(r, RANK_BATCH * RANK_TABLES);
        meet(r, IDS_EACH * RANK_TABLES);
        meet(r, RANK_BATCH * RANK_TABLES * RANK_DIM);
        meet(r, RANK_BATCH * RANK_TABLES * RANK_DIM);
        break;
    case REDUCE:
        BENCH_OK(neo_comm_all_reduce(r->comm, NEO_REDUCE_SUM, r->from, r->to, REDUCED / r->ranks,
                                     NEO_F32, NULL));
        break;
    default:
        meet(r, REDUCED);
        meet(r, REDUCED);
    }
}
/* ns of CPU time of all ranks. */
static double rank_ns(rank_of *r, int what, int calls) {
    rank_work(r, what, 0);
    BENCH_OK(neo_comm_barrier(r->comm, NULL));
    double start = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int k = 1; k <= calls; k++) rank_work(r, what, k);
    BENCH_OK(neo_comm_barrier(r->comm, NULL));
    return (cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / calls;
}
static void make_rank(rank_of *r, neo_comm *comm, rank_job *j) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_plan *plan;
    neo_plan_desc d = {.bags = &j->bags};
    int64_t first;
    *r = (rank_of){.job = j, .comm = comm, .ranks = neo_comm_size(comm)};
    d.cluster.ranks = d.cluster.ranks_per_node = (int32_t)r->ranks;
    BENCH_OK(neo_comm_samples(comm, RANK_BATCH, &first, &r->samples));
    for (int k = 0; k < RANK_BATCHES; k++) {
        int64_t n = r->samples * RANK_LENGTH,
                *ids = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)(RANK_TABLES * n)),
                *offsets = (int64_t *)bench_alloc(sizeof(int64_t) *
                                                  (size_t)(RANK_TABLES * r->samples + 1));
        for (int64_t t = 0; t < RANK_TABLES; t++)
            memcpy(ids + t * n, j->ids + (k * RANK_TABLES + t) * IDS_EACH + first * RANK_LENGTH,
                   sizeof(int64_t) * (size_t)n);
        for (int64_t i = 0; i <= RANK_TABLES * r->samples; i++) offsets[i] = i * RANK_LENGTH;
        r->batch[k] = (neo_jagged){.batch = r->samples,
                                   .feature_count = RANK_TABLES,
                                   .id_dtype = NEO_I64,
                                   .offsets = offsets,
                                   .ids = ids};
    }
    BENCH_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
    BENCH_OK(neo_shard_create(comm, plan, &r->shard));
    neo_plan_destroy(plan);
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, (int64_t[]){r->samples, RANK_TABLES * RANK_DIM},
                              &r->out));
    r->dout = neo_tensor_2d(j->dout + first * RANK_TABLES * RANK_DIM, NEO_F32, r->samples,
                            RANK_TABLES * RANK_DIM);
    const int64_t most = (int64_t)REDUCED / r->ranks; /* more than pooled rows, or ids */
    r->from = (float *)bench_alloc(sizeof(float) * (size_t)most),
    r->to = (float *)bench_alloc(sizeof(float) * (size_t)most);
    for (int64_t i = 0; i < most; i++) r->from[i] = (float)(neo_comm_rank(comm) + i % 5);
}
/* After a step with each batch the tables are those of one rank; the sums are right. */
static void verify_rank(rank_of *r) {
    neo_group all = neo_comm_group(r->comm);
    neo_state *state;
    uint64_t digest = 0;
    for (int k = 0; k < RANK_BATCHES; k++) rank_work(r, SHARD, k);
    BENCH_OK(neo_state_create(neo_comm_ctx(r->comm), &state));
    BENCH_OK(neo_state_add_shard(state, r->shard));
    BENCH_OK(neo_state_digest_group(state, &all, &digest));
    neo_state_destroy(state);
    if (neo_comm_rank(r->comm) == 0 && r->ranks == 1) r->job->digest = digest;
    if (digest != r->job->digest) bench_fail("the tables are not those of one rank");
    rank_work(r, REDUCE, 0);
    for (int64_t i = 0; i < REDUCED / r->ranks; i++)
        if (r->to[i] != (float)(r->ranks * (r->ranks - 1) / 2 + r->ranks * (i % 5))) {
            bench_fail("a sum is wrong");
            break;
        }
}
static neo_status run_ranks(neo_comm *comm, void *user) {
    rank_job *j = (rank_job *)user;
    rank_of r;
    make_rank(&r, comm, j);
    verify_rank(&r);
    const int each = (bench.quick ? QUICK_ROUNDS : ROUNDS) / PASSES,
              calls = bench.quick ? 1 : RANK_BATCHES;
    for (int i = 0; i < each; i++)
        for (int what = SHARD; what <= REDUCE; what += 2) {
            double ns = rank_ns(&r, what, calls), peer = rank_ns(&r, what + 1, calls);
            peer += rank_ns(&r, what + 1, calls);
            ns += rank_ns(&r, what, calls);
            point *p = &(what == SHARD ? &j->shard : &j->reduce)->at[j->point];
            if (neo_comm_rank(comm) == 0)
                p->ns[j->pass * each + i] = ns / 2, p->peer_ns[j->pass * each + i] = peer / 2;
        }
    BENCH_OK(neo_comm_barrier(comm, NULL));
    for (int k = 0; k < RANK_BATCHES; k++)
        free((void *)(uintptr_t)r.batch[k].offsets), free((void *)(uintptr_t)r.batch[k].ids);
    neo_shard_destroy(r.shard);
    neo_tensor_free(neo_comm_ctx(comm), &r.out);
    free(r.from), free(r.to);
    return NEO_OK;
}
static void bench_ranks(void) {
    static rank_job j;
    const int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    const char *why = "smaller pieces go to more ranks, and more ranks wait for each other";
    j.shard = (sweep){.name = "shard",
                      .over = "ranks",
                      .peer = "meet",
                      .flat = 1,
                      .first = 1,
                      .rounds = rounds,
                      .why = why};
    /* (W - 1) / W of the bytes travel and are added: 0.29 from 2 to 16 ranks. */
    j.reduce = (sweep){.name = "reduce",
                       .over = "ranks",
                       .peer = "meet",
                       .work = 0.29,
                       .flat = 1,
                       .first = 1,
                       .rounds = rounds,
                       .why = why};
    for (int t = 0; t < RANK_TABLES; t++) {
        snprintf(j.names[t], sizeof j.names[t], "t%d", t);
        j.tables[t] = (neo_table_desc){.name = j.names[t],
                                       .rows = RANK_ROWS,
                                       .dim = RANK_DIM,
                                       .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    j.bags = (neo_bags_desc){.tables = j.tables,
                             .table_count = RANK_TABLES,
                             .max_batch = RANK_BATCH,
                             .max_ids = IDS_EACH * RANK_TABLES};
    j.ids = (int64_t *)bench_alloc(sizeof(int64_t) * RANK_BATCHES * RANK_TABLES * IDS_EACH);
    for (int64_t i = 0; i < (int64_t)RANK_BATCHES * RANK_TABLES * IDS_EACH; i++)
        j.ids[i] = (int64_t)(bench_random() % RANK_ROWS);
    j.dout = (float *)bench_alloc(sizeof(float) * RANK_BATCH * RANK_TABLES * RANK_DIM);
    bench_fill(j.dout, RANK_BATCH * RANK_TABLES * RANK_DIM);
    for (j.pass = 0; j.pass < PASSES && !bench.failed; j.pass++)
        for (int w = 1; w <= MOST_RANKS && !bench.failed; w *= 2) {
            neo_comm_desc d;
            memset(&d, 0, sizeof d);
            d.ctx = (neo_ctx_desc){.threads = 1, .repro_shards = MOST_RANKS, .seed = 1};
            for (j.point = 0; 1 << j.point < w;) j.point++;
            j.shard.at[j.point].size = j.reduce.at[j.point].size = w;
            j.shard.count = j.reduce.count = 5;
            if (neo_comm_spawn(w, &d, run_ranks, &j, NULL) != NEO_OK) bench_fail(neo_last_error());
        }
    if (!bench.failed) report(&j.shard), report(&j.reduce);
    free(j.ids), free(j.dout);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    neo_ctx *ctx = bench_ctx(1, 1);
    bench_bags(ctx);
    bench_interact(ctx);
    neo_ctx_destroy(ctx);
    bench_step();
    bench_ranks();
    return bench_end();
}
