/* Embedding bags: neo's lookup against the best plain gather loop, and its backward with row-wise
   Adagrad against the bytes that must move.

   Build:  cc -O2 bench/cpu/bags.c neo.o -o bags -lm -lpthread
   Run:    bags [--threads N] [--quick]

   32 tables of 1e5 rows, 512 samples, 20 ids per bag, D = 16, 64, 128; ids uniform, or Zipf 1.15
   with the popular rows spread over the table. Several batches take turns (one repeated would stay
   in the cache). Everything is verified first. A round measures ceiling, neo, neo, ceiling; the
   figure is the median over rounds.

     bags.forward.<ids>.d<D>    ceiling: the plain loop: no checks, tables in turn, rows fetched
                                ahead at the best of several distances (gather.h); its fastest round
     bags.backward.<ids>.d<D>   ceiling: every touched row read and written once, its state too,
                                dout and ids read once, at the copy bandwidth of this run
     bags.forward.<dtype>.d<D>, bags.backward.<dtype>.d<D>
                                narrow rows, uniform ids, against f32 rows in the same rounds (the
                                ratio is the speed-up); verified to be the lookup of the decoded
                                rows
     bags.forward.buckets8.l<L>.d<D>, bags.backward.buckets8.l<L>.d<D>
                                sums over 8 buckets of rows (as on any number of ranks up to 8), L
                                uniform ids per bag, against one bucket in the same rounds
   GB/s count the bytes of the ceiling's definition: for forward every looked-up row, out and ids.
   */
#include "bench/gather.h"

enum {
    TABLES = 32,
    ROWS = 100000,
    BATCH = 512,
    LENGTH = 20,
    BATCHES = 4,
    ROUNDS = 11,
    QUICK_ROUNDS = 4
};
enum { BAGS = TABLES * BATCH, IDS = BAGS * LENGTH };

typedef struct subject {
    neo_ctx *ctx;
    neo_bags *bags;
    int64_t dim, width;
    int length; /* ids of a bag */
    neo_jagged batch[BATCHES];
    int64_t *offsets;
    double unique; /* touched rows of a batch, over all tables; the mean over batches */
    float *out, *want;
    gather plain; /* the plain loop, for any of the tables */
    int turn;
} subject;

static void gather_table(void *arg, int64_t t, int worker) {
    subject *s = (subject *)arg;
    gather g = s->plain;
    (void)worker;
    g.table = neo_bags_weight(s->bags, (int32_t)t).data;
    g.ids = (const int64_t *)s->batch[s->turn].ids + t * BATCH * s->length;
    g.out = s->want + t * s->dim;
    gather_run(&g);
}

/* ---- batches ---- */
/* Ranks with P(rank r) ~ (r + 1)^-1.15, through the cumulated distribution. */
static double *zipf_table(void) {
    double *cdf = (double *)bench_alloc(sizeof *cdf * ROWS), sum = 0;
    for (int r = 0; r < ROWS; r++) cdf[r] = sum += pow(r + 1, -1.15);
    for (int r = 0; r < ROWS; r++) cdf[r] /= sum;
    return cdf;
}
static int64_t draw(const double *cdf) {
    if (!cdf) return (int64_t)(bench_random() % ROWS);
    double u = (double)bench_random() / 2147483648.0;
    int64_t lo = 0, hi = ROWS - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (cdf[mid] > u) hi = mid;
        else lo = mid + 1;
    }
    return lo * 7919 % ROWS; /* 7919 and ROWS have no common factor */
}
static void make_batches(subject *s, int zipf) {
    double *cdf = zipf ? zipf_table() : NULL;
    char *seen = (char *)bench_alloc(ROWS);
    s->offsets = (int64_t *)bench_alloc(sizeof(int64_t) * (BAGS + 1));
    const int length = s->length;
    for (int64_t i = 0; i <= BAGS; i++) s->offsets[i] = i * length;
    s->unique = 0;
    for (int n = 0; n < BATCHES; n++) {
        int64_t *ids = (int64_t *)bench_alloc(sizeof *ids * (size_t)(BAGS * length));
        for (int t = 0; t < TABLES; t++) {
            memset(seen, 0, ROWS);
            for (int k = t * BATCH * length; k < (t + 1) * BATCH * length; k++) {
                ids[k] = draw(cdf);
                s->unique += !seen[ids[k]];
                seen[ids[k]] = 1;
            }
        }
        neo_jagged j = {.batch = BATCH,
                        .feature_count = TABLES,
                        .id_dtype = NEO_I64,
                        .offsets = s->offsets,
                        .ids = ids};
        s->batch[n] = j;
    }
    s->unique /= BATCHES;
    free(seen);
    free(cdf);
}

/* ---- what is timed ---- */
static void run_forward(subject *s) {
    BENCH_OK(neo_bags_forward(s->bags, &s->batch[s->turn],
                              neo_tensor_2d(s->out, NEO_F32, BATCH, s->width)));
}
static void run_gather(subject *s) { neo_parallel_for(s->ctx, TABLES, gather_table, s); }
static void run_backward(subject *s) {
    BENCH_OK(neo_bags_backward(s->bags, &s->batch[s->turn],
                               neo_tensor_2d(s->out, NEO_F32, BATCH, s->width), 0.01f));
}
/* Seconds of one run, over all batches in turn. */
static double time_of(subject *s, void (*run)(subject *)) {
    int64_t start = neo_time_ns();
    for (s->turn = 0; s->turn < BATCHES; s->turn++) run(s);
    s->turn = 0;
    return (double)(neo_time_ns() - start) / 1e9 / BATCHES;
}

/* Forward: the plain loop's bits. Backward: the rows of table 1 by a naive loop. */
static void verify(subject *s) {
    for (s->turn = 0; s->turn < BATCHES; s->turn++) {
        run_forward(s);
        run_gather(s);
        if (memcmp(s->out, s->want, sizeof(float) * (size_t)(BATCH * s->width)) != 0)
            bench_fail("a lookup is wrong");
    }
    s->turn = 0;
    int64_t dim = s->dim, n = ROWS * dim;
    const int64_t *ids = (const int64_t *)s->batch[0].ids + BATCH * LENGTH; /* of table 1 */
    float *w = (float *)neo_bags_weight(s->bags, 1).data,
          *before = (float *)bench_alloc(sizeof(float) * (size_t)n);
    float *state = (float *)neo_bags_state(s->bags, 1, 0).data;
    double *g = (double *)bench_alloc(sizeof(double) * (size_t)n);
    double *state_before = (double *)bench_alloc(sizeof(double) * ROWS);
    memcpy(before, w, sizeof(float) * (size_t)n);
    for (int r = 0; r < ROWS; r++) state_before[r] = state[r];
    for (int b = 0; b < BATCH; b++)
        for (int k = b * LENGTH; k < (b + 1) * LENGTH; k++)
            for (int64_t d = 0; d < dim; d++) g[ids[k] * dim + d] += s->out[b * s->width + dim + d];
    run_backward(s);
    for (int64_t r = 0; r < ROWS; r++) {
        double square = 0;
        for (int64_t d = 0; d < dim; d++) square += g[r * dim + d] * g[r * dim + d];
        double rate = 0.01 / (sqrt(state_before[r] + square / (double)dim) + 1e-8);
        for (int64_t d = 0; d < dim; d++) {
            double want =
                square > 0 ? before[r * dim + d] - rate * g[r * dim + d] : before[r * dim + d];
            if (!(fabs(w[r * dim + d] - want) <= 1e-5)) {
                bench_fail("an update is wrong");
                r = ROWS;
                break;
            }
        }
    }
    free(g), free(before), free(state_before);
}

static void run_gather_batches(void *s) { time_of((subject *)s, run_gather); }

static void measure(subject *s, const char *ids, double copy) {
    int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    double forward[ROUNDS], backward[ROUNDS], gather = 1e9;
    char name[96];
    for (int r = 0; r < rounds; r++) {
        gather = fmin(gather, time_of(s, run_gather));
        forward[r] = (time_of(s, run_forward) + time_of(s, run_forward)) / 2;
        gather = fmin(gather, time_of(s, run_gather));
    }
    for (int r = 0; r < rounds; r++) backward[r] = time_of(s, run_backward);
    double row = 4.0 * (double)s->dim, bytes = IDS * (row + 8) + BAGS * row;
    double t = bench_median(forward, rounds);
    bench_spread(forward, rounds);
    snprintf(name, sizeof name, "bags.forward.%s.d%d", ids, (int)s->dim);
    bench_report(name, bytes / t / 1e9, "GB/s", 100 * gather / t, "plain_gather_loop", gather / t);
    t = bench_median(backward, rounds);
    bench_spread(backward, rounds);
    bytes = s->unique * (2 * row + 8) + BAGS * row + IDS * 8.0;
    snprintf(name, sizeof name, "bags.backward.%s.d%d", ids, (int)s->dim);
    bench_report(name, bytes / t / 1e9, "GB/s", 100 * bytes / (copy * 1e9) / t, NULL, 0);
}

static subject subject_make(int64_t dim, neo_dtype dtype, int length, int buckets) {
    static char names[TABLES][8];
    neo_table_desc tables[TABLES];
    memset(tables, 0, sizeof tables);
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "t%d", t);
        tables[t].name = names[t];
        tables[t].rows = ROWS;
        tables[t].dim = dim;
        tables[t].dtype = dtype;
        tables[t].row_buckets = buckets;
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    neo_bags_desc desc = {.tables = tables,
                          .table_count = TABLES,
                          .max_batch = BATCH,
                          .max_ids = BAGS * length};
    subject s = {.ctx = bench_ctx(0, 1), .dim = dim, .width = TABLES * dim, .length = length};
    s.plain = (gather){.bags = BATCH, .length = LENGTH, .stride = s.width, .dim = dim, .ahead = 16};
    BENCH_OK(neo_bags_create(s.ctx, &desc, &s.bags));
    return s;
}
/* Narrow rows against f32 rows of the same values. */
static void bench_narrow(int64_t dim, neo_dtype dtype) {
    subject s = subject_make(dim, dtype, LENGTH, 1), wide = subject_make(dim, NEO_F32, LENGTH, 1);
    size_t out_bytes = sizeof(float) * (size_t)(BATCH * s.width);
    int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    double time[2][ROUNDS], wide_time[2][ROUNDS];
    char name[96];
    s.out = (float *)bench_alloc(out_bytes);
    wide.out = (float *)bench_alloc(out_bytes);
    make_batches(&s, 0);
    memcpy(wide.batch, s.batch, sizeof s.batch);
    for (int32_t t = 0; t < TABLES; t++)
        BENCH_OK(
            neo_bags_get_rows(s.bags, t, 0, ROWS, (float *)neo_bags_weight(wide.bags, t).data));
    run_forward(&s);
    run_forward(&wide);
    if (memcmp(s.out, wide.out, out_bytes) != 0) bench_fail("a lookup of narrow rows is wrong");
    for (int r = 0; r < rounds; r++) {
        time[0][r] = time_of(&s, run_forward), wide_time[0][r] = time_of(&wide, run_forward);
        time[1][r] = time_of(&s, run_backward), wide_time[1][r] = time_of(&wide, run_backward);
    }
    double row = (double)neo_dtype_size(dtype) * (double)dim + (dtype == NEO_I8 ? 8 : 0),
           out = BAGS * 4.0 * (double)dim;
    double bytes[2] = {IDS * (row + 8) + out, s.unique * (2 * row + 8) + out + IDS * 8.0};
    for (int i = 0; i < 2; i++) {
        double t = bench_median(time[i], rounds);
        bench_spread(time[i], rounds);
        snprintf(name, sizeof name, "bags.%s.%s.d%d", i ? "backward" : "forward",
                 neo_dtype_name(dtype), (int)dim);
        bench_report(name, bytes[i] / t / 1e9, "GB/s", -1, "f32_rows",
                     bench_median(wide_time[i], rounds) / t);
    }
    for (int n = 0; n < BATCHES; n++) free((void *)(uintptr_t)s.batch[n].ids);
    free(s.offsets), free(s.out), free(wide.out);
    neo_bags_destroy(s.bags);
    neo_bags_destroy(wide.bags);
    neo_ctx_destroy(s.ctx);
    neo_ctx_destroy(wide.ctx);
}

/* Eight buckets against one. */
static void bench_buckets(int64_t dim, int length) {
    subject eight = subject_make(dim, NEO_F32, length, 8);
    subject one = subject_make(dim, NEO_F32, length, 1);
    int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    double time[2][ROUNDS], ratio[2][ROUNDS];
    const int64_t floats = BATCH * one.width;
    char name[96];
    eight.out = (float *)bench_alloc(sizeof(float) * (size_t)floats);
    one.out = (float *)bench_alloc(sizeof(float) * (size_t)floats);
    make_batches(&one, 0);
    memcpy(eight.batch, one.batch, sizeof one.batch);
    run_forward(&eight);
    run_forward(&one);
    for (int64_t i = 0; i < floats; i++)
        if (!(fabsf(eight.out[i] - one.out[i]) <= 1e-4f)) bench_fail("sums over buckets are wrong");
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++) {
            void (*run)(subject *) = i ? run_backward : run_forward;
            double before = time_of(&one, run);
            time[i][r] = (time_of(&eight, run) + time_of(&eight, run)) / 2;
            ratio[i][r] = (before + time_of(&one, run)) / 2 / time[i][r];
        }
    double row = 4.0 * (double)dim, ids = (double)BAGS * length, out = BAGS * row;
    double bytes[2] = {ids * (row + 8) + out, one.unique * (2 * row + 8) + out + ids * 8.0};
    for (int i = 0; i < 2; i++) {
        bench_spread(ratio[i], rounds);
        snprintf(name, sizeof name, "bags.%s.buckets8.l%d.d%d", i ? "backward" : "forward", length,
                 (int)dim);
        bench_report(name, bytes[i] / bench_median(time[i], rounds) / 1e9, "GB/s", -1, "one_bucket",
                     bench_median(ratio[i], rounds));
    }
    for (int n = 0; n < BATCHES; n++) free((void *)(uintptr_t)one.batch[n].ids);
    free(one.offsets), free(one.out), free(eight.out);
    neo_bags_destroy(eight.bags);
    neo_bags_destroy(one.bags);
    neo_ctx_destroy(eight.ctx);
    neo_ctx_destroy(one.ctx);
}

static void bench_dim(int64_t dim, double copy) {
    subject s = subject_make(dim, NEO_F32, LENGTH, 1);
    s.out = (float *)bench_alloc(sizeof(float) * (size_t)(BATCH * s.width));
    s.want = (float *)bench_alloc(sizeof(float) * (size_t)(BATCH * s.width));
    for (int zipf = 0; zipf < 2; zipf++) {
        make_batches(&s, zipf);
        verify(&s);
        gather_choose(&s.plain, run_gather_batches, &s);
        measure(&s, zipf ? "zipf" : "uniform", copy);
        for (int n = 0; n < BATCHES; n++) free((void *)(uintptr_t)s.batch[n].ids);
        free(s.offsets);
    }
    free(s.out), free(s.want);
    neo_bags_destroy(s.bags);
    neo_ctx_destroy(s.ctx);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    double copy = bench_copy_bandwidth();
    neo_ctx *ctx = bench_ctx(0, 1);
    printf("# %d threads, copy %.1f GB/s\n", neo_ctx_threads(ctx), copy);
    neo_ctx_destroy(ctx);
    bench_dim(16, copy);
    bench_dim(64, copy);
    bench_dim(128, copy);
    for (int i = 0; i < 3; i++) {
        static const neo_dtype narrow[] = {NEO_F16, NEO_BF16, NEO_I8};
        bench_narrow(16, narrow[i]);
        bench_narrow(64, narrow[i]);
        bench_narrow(128, narrow[i]);
    }
    for (int dim = 16; dim <= 128; dim *= 2)
        for (int i = 0; i < 5; i++) {
            static const int lengths[] = {1, 2, 5, 20, 100};
            bench_buckets(dim, lengths[i]);
        }
    return bench_end();
}
