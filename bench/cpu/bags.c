/* Embedding bags: neo's lookup, and its backward with row-wise Adagrad, against the fastest loop
   that touches the same rows (probe.h).

   Build:  cc -O2 bench/cpu/bags.c neo.o -o bags -lm -lpthread
   Run:    bags [--threads N] [--quick]

   16384 bags of 20 ids in all: 512 samples of 32 tables of 1e5 rows, 2048 of 8 tables of 1e6, 8192
   of 2 tables of 1e7; ids uniform, or Zipf 1.15 with the popular rows spread over the table. Four
   batches take turns (one repeated would stay in the cache). Everything is verified first. A round
   measures probe, neo, peer, and again backwards; shares and ratios are the medians of the rounds'.

     bags.<pass>.<ids>.<dtype>.r<rows>.d<D>
                                GB/s, and the share of the probe's; narrow rows of 1e5 also against
                                f32 rows (the ratio is the speed-up)
     bags.whole.<ids>.<dtype>.r<rows>.d<D>
                                backward again, and the share of a loop that does all it does (not
                                of i8)
     bags.<pass>.buckets8.[f16.|i8.]l<L>.d<D>
                                sums over 8 buckets of rows (as on any number of ranks up to 8), L
                                uniform ids per bag, against one bucket (the ratio is the speed-up);
                                in forward the share is of the probe's over the same buckets, and a
                                line says how long that takes in terms of the probe's over one, and
                                neo in terms of its own over one
     bags.create.<dtype>.<initial values>
                                a new table of 64 columns (1 GB of f32), and the share of the rate
                                at which the same threads write as many bytes of new memory once
   GB/s count: forward every looked-up row, out and ids; backward every touched row and its state
   read and written once, dout and ids read once. Quick runs leave out rows of 128 columns, tables
   of 1e7 rows, and narrow rows where there are buckets or 1e6 rows. */
#include "bench/probe.h"

enum { BAGS = 32 * 512, BATCHES = 4, ROUNDS = 7, QUICK_ROUNDS = 3, MOST_TABLES = 32 };

typedef struct shape {
    int tables, length; /* length: ids of a bag */
    int64_t rows, dim;
    neo_dtype dtype;
    int buckets, zipf;
} shape;
typedef struct subject {
    shape is;
    neo_ctx *ctx;
    neo_bags *bags;
    int64_t batch, width; /* out is [batch][width] */
    int64_t *offsets, *ids[BATCHES];
    float *out;
    probe probe;
} subject;

/* ---- batches ---- */
/* Ranks with P(rank r) ~ (r + 1)^-1.15, through the cumulated distribution. */
static double *zipf_table(int64_t rows) {
    double *cdf = (double *)bench_alloc(sizeof *cdf * (size_t)rows), sum = 0;
    for (int64_t r = 0; r < rows; r++) cdf[r] = sum += pow((double)(r + 1), -1.15);
    for (int64_t r = 0; r < rows; r++) cdf[r] /= sum;
    return cdf;
}
static int64_t draw(const double *cdf, int64_t rows) {
    if (!cdf) return (int64_t)(bench_random() % rows);
    double u = (double)bench_random() / 2147483648.0;
    int64_t lo = 0, hi = rows - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (cdf[mid] > u) hi = mid;
        else lo = mid + 1;
    }
    return lo * 7919 % rows; /* 7919 and the rows have no common factor */
}
static void make_batches(subject *s) {
    double *cdf = s->is.zipf ? zipf_table(s->is.rows) : NULL;
    const int64_t ids = BAGS * s->is.length;
    bench_seed = 1; /* a peer has the same */
    s->offsets = (int64_t *)bench_alloc(sizeof(int64_t) * (BAGS + 1));
    for (int64_t i = 0; i <= BAGS; i++) s->offsets[i] = i * s->is.length;
    for (int n = 0; n < BATCHES; n++) {
        s->ids[n] = (int64_t *)bench_alloc(sizeof(int64_t) * (size_t)ids);
        for (int64_t k = 0; k < ids; k++) s->ids[n][k] = draw(cdf, s->is.rows);
    }
    free(cdf);
}

static subject subject_make(shape is) {
    static char names[MOST_TABLES][8];
    neo_table_desc tables[MOST_TABLES];
    probe_table rows[MOST_TABLES];
    subject s = {
        .is = is, .ctx = bench_ctx(0, 1), .batch = BAGS / is.tables, .width = is.tables * is.dim};
    memset(tables, 0, sizeof tables);
    for (int t = 0; t < is.tables; t++) {
        snprintf(names[t], sizeof names[t], "t%d", t);
        tables[t] = (neo_table_desc){.name = names[t],
                                     .rows = is.rows,
                                     .dim = is.dim,
                                     .dtype = is.dtype,
                                     .row_buckets = is.buckets,
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    neo_bags_desc desc = {.tables = tables,
                          .table_count = is.tables,
                          .max_batch = s.batch,
                          .max_ids = BAGS * is.length};
    BENCH_OK(neo_bags_create(s.ctx, &desc, &s.bags));
    s.out = (float *)bench_alloc(sizeof(float) * (size_t)(BAGS * is.dim));
    make_batches(&s);
    for (int t = 0; t < is.tables; t++)
        rows[t] = (probe_table){(char *)neo_bags_weight(s.bags, t).data,
                                (float *)neo_bags_state(s.bags, t, 0).data,
                                (float *)neo_bags_scale(s.bags, t).data};
    s.probe = probe_make(s.ctx, is.dtype, s.batch, is.length, is.dim, rows, is.tables,
                         (const int64_t *const *)s.ids, BATCHES);
    if (is.buckets == 8) probe_buckets(&s.probe, is.rows);
    return s;
}
static void subject_free(subject *s) {
    probe_free(&s->probe);
    for (int n = 0; n < BATCHES; n++) free(s->ids[n]);
    free(s->offsets), free(s->out);
    neo_bags_destroy(s->bags);
    neo_ctx_destroy(s->ctx);
}

/* ---- what is timed ---- */
static void run_neo(subject *s, int backward, int n) {
    const neo_jagged j = {.batch = s->batch,
                          .feature_count = s->is.tables,
                          .id_dtype = NEO_I64,
                          .offsets = s->offsets,
                          .ids = s->ids[n]};
    const neo_tensor out = neo_tensor_2d(s->out, NEO_F32, s->batch, s->width);
    BENCH_OK(backward ? neo_bags_backward(s->bags, &j, out, 0.01f)
                      : neo_bags_forward(s->bags, &j, out));
}
/* Seconds of one run, over all batches in turn. of_probe: 2 is its whole loop. */
static double time_of(subject *s, int backward, int of_probe) {
    const double start = bench_seconds(s->ctx);
    for (int n = 0; n < BATCHES; n++) {
        if (of_probe) probe_run(&s->probe, backward * of_probe, n, s->out, 0.0f);
        else run_neo(s, backward, n);
    }
    return (bench_seconds(s->ctx) - start) / BATCHES;
}

/* ---- verification ---- */
static void verify_forward(subject *s) {
    const size_t floats = (size_t)(BAGS * s->is.dim);
    const float most = s->is.dtype == NEO_I8 ? 1e-4f : 0.0f;
    float *want = (float *)bench_alloc(sizeof *want * floats);
    for (int n = 0; n < BATCHES; n++) {
        run_neo(s, 0, n);
        probe_run(&s->probe, 0, n, want, 0.0f);
        size_t same = 0;
        for (size_t i = 0; i < floats; i++) same += fabsf(s->out[i] - want[i]) <= most;
        if (same < floats) bench_fail("a lookup is wrong");
    }
    free(want);
}
/* The last table's touched rows, by a naive loop: neo's update of them, and the probes' of f32 (the
   whole one adds half of the squares to the state, its rate); no other row's state may change. */
static void verify_backward(subject *s, int of_probe) {
    const int t = s->is.tables - 1;
    const probe_batch *b = &s->probe.batch[0];
    const int64_t dim = s->is.dim, first = b->first[t], count = b->first[t + 1] - first;
    const float *state = (const float *)neo_bags_state(s->bags, t, 0).data;
    const double near = s->is.dtype == NEO_F32 ? 1e-5 : s->is.dtype == NEO_F16 ? 1e-3 : 1e-2;
    float *old = (float *)bench_alloc(sizeof *old * (size_t)s->is.rows), row[128];
    float *w = (float *)bench_alloc(sizeof *w * (size_t)(count * dim));
    int64_t changed = 0, right = 0;
    memcpy(old, state, sizeof *old * (size_t)s->is.rows);
    for (int64_t r = 0; r < count; r++)
        BENCH_OK(neo_bags_get_rows(s->bags, t, b->row[first + r], 1, w + r * dim));
    probe_run(&s->probe, of_probe ? of_probe : 1, 0, s->out, of_probe ? 0.5f : 0.0f);
    if (!of_probe) run_neo(s, 1, 0);
    for (int64_t r = 0; r < s->is.rows; r++)
        changed += memcmp(&old[r], &state[r], sizeof *old) != 0;
    for (int64_t r = first; r < first + count; r++) {
        double g[128] = {0}, square = 0;
        for (int32_t k = b->end[r - 1]; k < b->end[r]; k++)
            for (int64_t d = 0; d < dim; d++) g[d] += s->out[b->bag[k] * s->width + t * dim + d];
        for (int64_t d = 0; d < dim; d++) square += g[d] * g[d] / (double)dim;
        const double lr = of_probe ? 0.5 : 0.01, part = of_probe ? 0.5 : 1;
        const double rate = of_probe == 1 ? lr : lr / (sqrt(old[b->row[r]] + part * square) + 1e-8);
        BENCH_OK(neo_bags_get_rows(s->bags, t, b->row[r], 1, row));
        for (int64_t d = 0; d < dim; d++)
            right += fabs(row[d] - (w[(r - first) * dim + d] - rate * g[d])) <=
                     near * (1 + fabs(rate * g[d]));
    }
    if (right < count * dim || changed != count)
        bench_fail(of_probe ? "the probe is wrong" : "an update is wrong");
    free(old), free(w);
}

/* peer: NULL, or of the same sizes. */
static void measure(subject *s, subject *peer, const char *peer_name, const char *what) {
    const int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    double row =
        (double)neo_dtype_size(s->is.dtype) * (double)s->is.dim + (s->is.dtype == NEO_I8 ? 8 : 0);
    double ids = (double)BAGS * s->is.length, out = BAGS * 4.0 * (double)s->is.dim, touched = 0;
    for (int n = 0; n < BATCHES; n++)
        touched += (double)s->probe.batch[n].first[s->is.tables] / BATCHES;
    verify_forward(s);
    verify_backward(s, 0);
    if (s->is.dtype == NEO_F32) verify_backward(s, 2), verify_backward(s, 1);
    const int whole = s->is.buckets == 1 && probe_is_whole(&s->probe);
    for (int kind = 0; kind < (whole ? 3 : 2); kind++) {
        const int backward = kind > 0, of = kind == 2 ? 2 : 1;
        const int both = !backward && s->is.buckets > 1; /* also the peer's probe */
        double time[ROUNDS], share[ROUNDS], ratio[ROUNDS], bare[ROUNDS], theirs, probes;
        const double bytes =
            backward ? touched * (2 * row + 8) + out + ids * 8 : ids * (row + 8) + out;
        char name[96];
        probe_choose(&s->probe, kind, s->out);
        if (both) probe_choose(&peer->probe, 0, peer->out);
        for (int r = 0; r < rounds; r++) {
            probes = time_of(s, backward, of);
            time[r] = time_of(s, backward, 0);
            theirs = peer && of == 1 ? time_of(peer, backward, 0) + time_of(peer, backward, 0) : 0;
            if (both) bare[r] = time_of(peer, 0, 1) + time_of(peer, 0, 1);
            time[r] += time_of(s, backward, 0);
            probes += time_of(s, backward, of);
            share[r] = 100 * probes / time[r];
            ratio[r] = theirs / time[r];
            if (both) bare[r] = probes / bare[r];
        }
        snprintf(name, sizeof name, "bags.%s.%s.d%d",
                 kind == 2 ? "whole" : backward ? "backward" : "forward", what, (int)s->is.dim);
        const probe_how how = s->probe.how[kind];
        const double t = bench_median(time, rounds) / 2, most = bench_median(share, rounds);
        bench_spread(share, rounds);
        printf("# probe: %d ahead, to level %d, packs %d\n", how.ahead, how.level, how.packs);
        if (both)
            printf("# time over that of one bucket: bare loops %.2f, neo %.2f\n",
                   bench_median(bare, rounds), 1 / bench_median(ratio, rounds));
        bench_report(name, bytes / t / 1e9, "GB/s", most,
                     peer && of == 1 ? peer_name : NULL, bench_median(ratio, rounds));
    }
}
static void bench_shape(shape is, shape other, const char *peer_name, const char *what) {
    subject s = subject_make(is), peer;
    if (peer_name) {
        peer = subject_make(other);
        run_neo(&peer, 0, 0); /* gradients */
    }
    measure(&s, peer_name ? &peer : NULL, peer_name, what);
    if (peer_name) subject_free(&peer);
    subject_free(&s);
}

/* ---- start ---- */
enum { PIECE = 2 << 20 };
static void touch_piece(void *block, int64_t piece, int worker) {
    (void)worker;
    memset((char *)block + piece * PIECE, 0, PIECE);
}
static void bench_create(neo_dtype dtype, neo_init init, const char *what) {
    neo_ctx *ctx = bench_ctx(0, 1);
    const neo_table_desc table = {.name = "t",
                                  .rows = bench.quick ? 1 << 19 : 1 << 22,
                                  .dim = 64,
                                  .dtype = dtype,
                                  .init = init};
    const neo_bags_desc desc = {.tables = &table, .table_count = 1, .max_batch = 1, .max_ids = 1};
    const size_t bytes = (size_t)(table.rows * table.dim) * neo_dtype_size(dtype);
    double time[2 * ROUNDS], share[2 * ROUNDS];
    for (int r = 0; r < 2 * ROUNDS; r++) {
        double start = bench_seconds(ctx);
        void *block = neo_alloc(ctx, bytes);
        neo_bags *bags;
        if (!block) bench_fail("no memory for a table");
        else neo_parallel_for(ctx, (int64_t)(bytes / PIECE), touch_piece, block);
        share[r] = bench_seconds(ctx) - start;
        neo_free(ctx, block, bytes);
        start = bench_seconds(ctx);
        BENCH_OK(neo_bags_create(ctx, &desc, &bags));
        time[r] = bench_seconds(ctx) - start;
        neo_bags_destroy(bags);
        share[r] *= 100 / time[r];
    }
    const double t = bench_median(time, 2 * ROUNDS), most = bench_median(share, 2 * ROUNDS);
    char name[64];
    snprintf(name, sizeof name, "bags.create.%s.%s", neo_dtype_name(dtype), what);
    bench_spread(share, 2 * ROUNDS);
    bench_report(name, (double)bytes / t / 1e9, "GB/s", most, NULL, 0);
    neo_ctx_destroy(ctx);
}

int main(int argc, char **argv) {
    static const int64_t dims[] = {16, 64, 128}, rows[] = {100000, 1000000, 10000000};
    static const int tables[] = {32, 8, 2}, lengths[] = {1, 2, 5, 20, 100};
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    char what[64];
    bench_begin(argc, argv);
    const int widths = bench.quick ? 2 : 3, sizes = widths; /* without the largest */
    for (int size = 0; size < sizes; size++)
        for (int d = 0; d < (size ? 2 : widths); d++)
            for (int k = 0; k < (!size ? 4 : bench.quick ? 1 : 2); k++)
                for (int zipf = 0; zipf < 2; zipf++) {
                    shape is = {tables[size], 20, rows[size], dims[d], dtypes[k], 1, zipf},
                          wide = is;
                    wide.dtype = NEO_F32;
                    snprintf(what, sizeof what, "%s.%s.r1e%d", zipf ? "zipf" : "uniform",
                             neo_dtype_name(is.dtype), 5 + size);
                    bench_shape(is, wide, k && !size ? "f32_rows" : NULL, what);
                }
    for (int k = 0; k < (bench.quick ? 1 : 4); k++)
        for (int d = 0; d < (dtypes[k] == NEO_BF16 ? 0 : widths); d++)
            for (int i = 0; i < 5; i++) {
                const shape one = {32, lengths[i], rows[0], dims[d], dtypes[k], 1, 0};
                shape eight = one;
                eight.buckets = 8;
                snprintf(what, sizeof what, "buckets8.%s%sl%d", k ? neo_dtype_name(dtypes[k]) : "",
                         k ? "." : "", lengths[i]);
                bench_shape(eight, one, "one_bucket", what);
            }
    const neo_init uniform = {NEO_INIT_UNIFORM, -0.01f, 0.01f};
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.01f};
    bench_create(NEO_F32, uniform, "uniform");
    bench_create(NEO_F32, normal, "normal");
    bench_create(NEO_F16, uniform, "uniform");
    bench_create(NEO_I8, uniform, "uniform");
    return bench_end();
}
