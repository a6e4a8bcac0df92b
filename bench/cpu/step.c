/* step.c: one training step of the DLRM with the layers used for Criteo Kaggle (bottom
   13-512-256-64-16, 26 tables of 16 columns, top 367-512-256-1) and for MLPerf (13-512-256-128,
   columns 128, top 479-1024-1024-512-256-1), and of MLPerf's DLRM-DCNv2 (a cross network of 3
   layers of rank 512 over the 27 x 128 columns in place of dot products), row-wise Adagrad on
   tables, Adagrad on layers, at batches of 128 and 2048 (DCNv2: in quick runs of 128 alone).

   Verified first: a few steps on one thread with the scalar kernels, and on all threads with the
   best ones, must end in the same digest.

   The ceiling is a roofline measured in the same run: the sum over the parts of a step, and in
   layers over their products, of what takes longest: multiply-adds at the peak of the threads;
   bytes, each once, at the rate at which a working set of that size is read again and again; or
   random rows, by the probe of the same rows (probe.h). Up to 512 samples layers step in their
   backward (neo_optim_begin), whose parts then have the optimizer's share of the bytes.

     step.<layers>.b<B>          samples per second, without leaves (repro_shards = 1)
     step.<layers>.b<B>.<part>   ms of a part; the peer is what bounds most of it, the ratio its
                                 share
     step.<layers>.b<B>.<part>.bare, step.<layers>.b<B>.bare
                                 ms of the bare loops (bare.h) of a part, on memory of their own:
                                 its products, where these are multiplied with a relu's derivative
                                 with what that is of, the sums for biases, the passes of a cross
                                 network; and the step were each part as fast as these or the
                                 probe; their share of the roofline; ratio: neo's of theirs
     step.<layers>.b<B>.two_threads
                                 how many times as fast two threads are, were they never held up: in
                                 CPU time, one thread over the longer of two lists of tasks, each
                                 task given to the thread that is free first, and what lies between;
                                 then where the rest goes, in percent of a step on two threads:
                                 what lies between the lists, work that one thread does not have,
                                 and lists of unlike length; and how many times as fast two bare
                                 threads are, by the wall clock, that multiply and add, or copy
     step.<layers>.b<B>.leaves8_cost
                                 how much longer a step with repro_shards = 8 takes, in percent of
                                 one with 1, and then of each part; the goal is at most 8 % at 128
                                 samples, 5 % at 2048. Both models take turns, in both orders; the
                                 median over rounds */
#include "bench/model.h"

#include "bench/bare.h"
#include "bench/probe.h"

enum { MAX_ROUNDS = 400, PARTS = MODEL_CALLS, BARE_BYTES = 1 << 18, EARLY_ROWS = 512 };

static const int64_t MLPERF_BOTTOM[] = {DENSE, 512, 256, 128},
                     MLPERF_TOP[] = {1024, 1024, 512, 256, 1};
typedef struct layers {
    const char *name;
    const int64_t *bottom, *top; /* with the bottom's input, without the top's */
    int bottom_count, top_count, cross_layers;
    int64_t cross_rank;
} layers;
static const layers kaggle = {"kaggle", BOTTOM, TOP + 1, 5, 3, 0, 0},
                    mlperf = {"mlperf", MLPERF_BOTTOM, MLPERF_TOP, 4, 5, 0, 0},
                    dcnv2 = {"dcnv2", MLPERF_BOTTOM, MLPERF_TOP, 4, 5, 3, 512};

/* early: weights step in the backward of their layers. */
static model make(neo_ctx *ctx, const layers *l, int64_t batch, int64_t rows, int early) {
    const model_desc d = {.batch = batch,
                          .bottom = l->bottom,
                          .bottom_count = l->bottom_count,
                          .top = l->top,
                          .top_count = l->top_count,
                          .cross_layers = l->cross_layers,
                          .cross_rank = l->cross_rank,
                          .early = early};
    int64_t of_tables[TABLES];
    model m;
    BENCH_OK(kaggle_create(&m, ctx, d, same_rows(of_tables, rows), 0));
    return m;
}
static void free_model(model *m) {
    neo_ctx *ctx = m->ctx;
    model_destroy(m);
    neo_ctx_destroy(ctx);
}
/* With 8 leaves. */
static uint64_t digest_after(int threads, neo_isa isa, const layers *l, const data *d,
                             int64_t batch) {
    const neo_ctx_desc desc = {.threads = threads, .isa = isa, .repro_shards = 8, .seed = 1};
    neo_ctx *ctx;
    BENCH_OK(neo_ctx_create(&desc, &ctx));
    model m = make(ctx, l, batch, 1000, isa != NEO_ISA_SCALAR);
    for (int i = 0; i < (batch > 1000 ? 1 : 3); i++) step(&m, d, i);
    uint64_t digest = neo_state_digest(m.state);
    free_model(&m);
    return digest;
}
static void verify(const layers *l, int64_t batch) {
    neo_ctx *ctx = bench_ctx(0, 1);
    data d = make_data(ctx, batch, 1000);
    if (digest_after(1, NEO_ISA_SCALAR, l, &d, batch) !=
        digest_after(neo_ctx_threads(ctx), NEO_ISA_BEST, l, &d, batch))
        bench_fail("step: the digest depends on threads or instruction set");
    free_data(ctx, &d);
    neo_ctx_destroy(ctx);
}

/* ---- the roofline ---- */
typedef struct bound {
    double fma, bytes, rows; /* seconds of what each bounds */
} bound;
static double peak; /* multiply-adds per second of all threads */
static double stepped[PARTS]; /* of bytes, those of the optimizer's steps in a backward */
static double bound_seconds(bound b) { return b.fma + b.bytes + b.rows; }
static void bound_add(bound *b, neo_ctx *ctx, double fmas, double floats) {
    static double rates[32];
    int k = 14;
    while (k < 26 && 4 * floats >= (double)(INT64_C(2) << k)) k++;
    rates[k] = fmax(rates[k], 1e9 * bench_read_rate(ctx, INT64_C(1) << k));
    if (fmas / peak > 4 * floats / rates[k]) b->fma += fmas / peak;
    else b->bytes += 4 * floats / rates[k];
}
/* Layer by layer y = x w, or dw = dz x and (but of data) dx = dz w. */
static bound bound_layers(neo_ctx *ctx, const int64_t *widths, int count, double n, int backward,
                          int of_data) {
    bound b = {0, 0, 0};
    for (int l = 0; l + 1 < count; l++) {
        const double in = (double)widths[l], out = (double)widths[l + 1];
        for (int k = 0; k < (backward && (l || !of_data) ? 2 : 1); k++)
            bound_add(&b, ctx, n * in * out, n * in + in * out + n * out);
    }
    return b;
}
/* A pass over a cross network: the two products of a layer, or the four of its gradients, and what
   is read and written between them. */
static bound bound_cross(neo_ctx *ctx, const layers *l, double n, double width, int backward) {
    const double rank = (double)l->cross_rank;
    bound b = {0, 0, 0};
    for (int k = 0; k < l->cross_layers; k++) {
        for (int i = 0; i < (backward ? 4 : 2); i++)
            bound_add(&b, ctx, n * width * rank, n * width + width * rank + n * rank);
        bound_add(&b, ctx, 0, (backward ? 5 : 4) * n * width);
    }
    return b;
}
static double parameters(const int64_t *widths, int count) {
    double sum = 0;
    for (int l = 0; l + 1 < count; l++) sum += (double)((widths[l] + 1) * widths[l + 1]);
    return sum;
}
static void bound_parts(const layers *l, const model *m, const double *probed, bound *part) {
    int64_t top[NEO_MAX_LAYERS + 1] = {m->width};
    const double n = (double)m->batch, dim = (double)l->bottom[l->bottom_count - 1],
                 z = (double)m->width;
    const double dots = n * TABLES * (TABLES + 1) / 2 * dim, rows = n * (TABLES + 1) * dim;
    const int tops = l->top_count + 1, bottoms = l->bottom_count;
    neo_ctx *ctx = m->ctx;
    memcpy(top + 1, l->top, (size_t)l->top_count * sizeof *top);
    memset(part, 0, PARTS * sizeof *part);
    part[0] = bound_layers(ctx, l->bottom, bottoms, n, 0, 1);
    part[1].rows = probed[0];
    if (m->cross) part[2] = bound_cross(ctx, l, n, z, 0), part[6] = bound_cross(ctx, l, n, z, 1);
    else bound_add(&part[2], ctx, dots, rows + n * z);
    part[3] = bound_layers(ctx, top, tops, n, 0, 0);
    bound_add(&part[4], ctx, 0, 3 * n);
    part[5] = bound_layers(ctx, top, tops, n, 1, 0);
    if (!m->cross) bound_add(&part[6], ctx, 2 * dots, 2 * rows + n * z);
    part[7].rows = probed[1];
    part[8] = bound_layers(ctx, l->bottom, bottoms, n, 1, 1);
    const double crossed = l->cross_layers * z * (2.0 * (double)l->cross_rank + 1);
    const double all = parameters(l->bottom, bottoms) + parameters(top, tops) + crossed;
    bound_add(&part[9], ctx, 0, 3 * all);
    part[9].bytes *= 5 / 3.0; /* values and state are also written */
    const double early[] = {parameters(top, tops), crossed, parameters(l->bottom + 1, bottoms - 1)};
    const double each = part[9].bytes / all;
    static const int of[] = {5, 6, 8};
    memset(stepped, 0, sizeof stepped);
    for (int k = 0; k < 3 && m->early && m->batch <= EARLY_ROWS; k++) {
        stepped[of[k]] = each * early[k];
        part[of[k]].bytes += stepped[of[k]], part[9].bytes -= stepped[of[k]];
    }
}

/* ---- bare loops ---- */
enum { PRODUCTS = 32, BLOCKS = 100 };
typedef struct bare_step {
    bare_product product[PARTS][PRODUCTS];
    int count[PARTS], blocks;
    neo_tensor block[BLOCKS]; /* like the model's */
    float *packed;
} bare_step;
static float *bare_block(neo_ctx *ctx, bare_step *s, int64_t rows, int64_t cols) {
    const int64_t shape[2] = {rows + 14, cols + 32};
    neo_tensor *t = &s->block[s->blocks++];
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, shape, t));
    BENCH_OK(neo_tensor_zero(ctx, *t));
    return (float *)t->data;
}
static void bare_add(bare_step *s, int part, bare_product p) {
    p.packed = s->packed;
    bare_turn(&p);
    if (bare_of(&p)) s->product[part][s->count[part]++] = p;
}
/* Layers from x, whose gradient is dx or NULL; the outputs of the last and their gradients. linear:
   without relu, and with the bias of the last alone. */
static void bare_layers(neo_ctx *ctx, bare_step *s, int forward, int backward, int linear,
                        const int64_t *widths, int count, int64_t n, float *x, float *dx, float **y,
                        float **dy) {
    for (int l = 0; l + 1 < count; l++, x = *y, dx = *dy) {
        const int64_t in = widths[l], out = widths[l + 1];
        float *w = bare_block(ctx, s, out, in), *dw = bare_block(ctx, s, out, in);
        *y = bare_block(ctx, s, n, out), *dy = bare_block(ctx, s, n, out);
        bare_add(s, forward, (bare_product){.m = n, .n = out, .k = in, .a = x, .b = w, .c = *y});
        bare_add(
            s, backward,
            (bare_product){.m = out, .n = in, .k = n, .k_major = 1, .a = *dy, .b = x, .c = dw});
        if (dx)
            bare_add(s, backward,
                     (bare_product){.m = n,
                                    .n = in,
                                    .k = out,
                                    .a = *dy,
                                    .b = w,
                                    .c = dx,
                                    .beside = l && !linear ? n * in : 0});
        if (!linear || l) /* by a vector of any numbers */
            bare_add(s, backward,
                     (bare_product){.m = 1, .n = out, .k = n, .a = x, .b = *dy, .c = dw});
    }
}
static bare_step bare_make(const layers *l, const model *m) {
    const int64_t n = m->batch, dim = l->bottom[l->bottom_count - 1];
    neo_ctx *ctx = m->ctx;
    int64_t top[NEO_MAX_LAYERS + 1] = {m->width};
    bare_step s;
    memset(&s, 0, sizeof s);
    memcpy(top + 1, l->top, (size_t)l->top_count * sizeof *top);
    s.packed = bare_block(ctx, &s, neo_ctx_threads(ctx), BARE_PANELS);
    float *x = bare_block(ctx, &s, n, DENSE), *e = bare_block(ctx, &s, n + 2, (TABLES + 1) * dim),
          *y, *dy, *de = bare_block(ctx, &s, n + 2, (TABLES + 1) * dim),
          *z = bare_block(ctx, &s, n + 2, m->width), *dz = bare_block(ctx, &s, n + 2, m->width);
    bare_layers(ctx, &s, 0, 8, 0, l->bottom, l->bottom_count, n, x, NULL, &y, &dy);
    if (!m->cross) {
        bare_add(&s, 2, (bare_product){.interacts = 1, .m = n, .n = dim, .a = e, .c = z});
        bare_add(&s, 6, (bare_product){.interacts = 2, .m = n, .n = dim, .a = e, .b = dz, .c = de});
    }
    for (int k = 0; m->cross && k < l->cross_layers; k++) {
        const int64_t widths[] = {m->width, l->cross_rank, m->width};
        float *const from = k ? y : z, *const back = k ? dy : dz;
        bare_layers(ctx, &s, 2, 6, 1, widths, 3, n, from, back, &y, &dy);
        bare_product pass = {.passes = 1, .m = n, .n = m->width, .k = 1, .a = z, .b = from, .c = y};
        bare_add(&s, 2, pass);
        pass.a = dy, pass.c = back;
        for (int i = 0; i < 2; i++) bare_add(&s, 6, pass);
    }
    bare_layers(ctx, &s, 3, 5, 0, top, l->top_count + 1, n, m->cross ? y : z, m->cross ? dy : dz,
                &y, &dy);
    return s;
}
static void bare_free(neo_ctx *ctx, bare_step *s) {
    for (int i = 0; i < s->blocks; i++) neo_tensor_free(ctx, &s->block[i]);
}
/* Seconds of a part's loops. */
static double bare_part(neo_ctx *ctx, bare_step *s, int part) {
    double sum = 0;
    for (int i = 0; i < s->count[part]; i++) {
        const double start = bench_seconds(ctx);
        bare_run(ctx, &s->product[part][i]);
        sum += (bench_seconds(ctx) - start) * bare_scale(&s->product[part][i]);
    }
    return sum;
}

/* ---- measuring ---- */
static probe make_probe(const model *m, const data *d) {
    probe_table tables[TABLES];
    const int64_t *ids[BATCHES];
    for (int t = 0; t < TABLES; t++)
        tables[t] = (probe_table){.rows = (char *)neo_bags_weight(m->bags, t).data,
                                  .state = (float *)neo_bags_state(m->bags, t, 0).data};
    for (int i = 0; i < BATCHES; i++) ids[i] = (const int64_t *)neo_jagged_view(d->ids[i])->ids;
    if (neo_jagged_view(d->ids[0])->id_dtype != NEO_I64) bench_fail("step: ids are not i64");
    return probe_make(m->ctx, NEO_F32, m->batch, 1, m->e.shape[1] / TABLES, tables, TABLES, ids,
                      BATCHES);
}
/* A step: adds the seconds of its parts; the whole. */
static double parts(model *m, const data *d, int i, double *part) {
    const model_batch b = {d->dense[i % BATCHES], d->label[i % BATCHES],
                           neo_jagged_view(d->ids[i % BATCHES])};
    const double start = bench_seconds(m->ctx);
    double last = start;
    for (int call = 0; call < PARTS; call++) {
        BENCH_OK(model_call(m, &b, call, 0.01f, NULL));
        const double now = bench_seconds(m->ctx);
        part[call] += now - last;
        last = now;
    }
    return last - start;
}
static const char *const part_names[PARTS + 1] = {
    "bottom_forward",    "bags_forward",  "interact_forward", "top_forward", "loss", "top_backward",
    "interact_backward", "bags_backward", "bottom_backward",  "optimizer",   NULL};

/* Medians of seconds over rounds, part by part and of the whole. */
static double t1[PARTS + 1][MAX_ROUNDS], ratio[PARTS + 1][MAX_ROUNDS], peaks[MAX_ROUNDS],
    rows[2][MAX_ROUNDS], twice[MAX_ROUNDS], rest[3][MAX_ROUNDS], bare[PARTS][MAX_ROUNDS];
static void report(const layers *l, const model *m, const bare_step *s, int rounds) {
    const double probed[2] = {bench_median(rows[0], rounds), bench_median(rows[1], rounds)};
    const long long batch = m->batch;
    bound part[PARTS], all = {0, 0, 0};
    double least = 0;
    char name[96];
    peak = bench_median(peaks, rounds) * 1e9 / 2 * neo_ctx_threads(m->ctx);
    for (int k = 0; k < 2; k++) bound_parts(l, m, probed, part); /* rates: the best of several */
    for (int k = 0; k <= PARTS; k++) {
        const bound b = k < PARTS ? part[k] : all;
        const double t = bench_median(t1[k], rounds), most = bound_seconds(b);
        const char *by = b.rows > b.fma + b.bytes ? "random_rows"
                         : b.fma > b.bytes        ? "multiply_adds"
                                                  : "bytes";
        const int loops = k < PARTS && s->count[k] > 0;
        const double loop = !loops ? (k < PARTS ? most : least)
                                  : bench_median(bare[k], rounds) + stepped[k];
        all.fma += b.fma, all.bytes += b.bytes, all.rows += b.rows;
        least += loop;
        bench_spread(t1[k], rounds);
        snprintf(name, sizeof name, "step.%s.b%lld%s%s", l->name, batch, k < PARTS ? "." : "",
                 k < PARTS ? part_names[k] : "");
        if (k < PARTS) bench_report(name, 1e3 * t, "ms", 100 * most / t, by, most / t);
        else
            bench_report(name, (double)batch / t, "samples/s", 100 * most / t, "roofline",
                         most / t);
        if (k < PARTS && !loops) continue;
        strcat(name, ".bare");
        bench_report(name, 1e3 * loop, "ms", 100 * most / loop, "bare_loops", loop / t);
    }
    if (neo_ctx_threads(m->ctx) == 1) {
        const double times = bench_median(twice, rounds);
        bench_spread(twice, rounds);
        snprintf(name, sizeof name, "step.%s.b%lld.two_threads", l->name, batch);
        bench_report(name, times, "times", -1, NULL, 0);
        printf("# the rest: %.1f percent between the lists, %.1f more work, %.1f unlike lists\n",
               bench_median(rest[0], rounds), bench_median(rest[1], rounds),
               bench_median(rest[2], rounds));
    }
    const double cost = 100 * (bench_median(ratio[PARTS], rounds) - 1);
    bench_spread(ratio[PARTS], rounds);
    snprintf(name, sizeof name, "step.%s.b%lld.leaves8_cost", l->name, batch);
    bench_report(name, cost, "percent", -1, NULL, 0);
    if (cost > (batch >= 2048 ? 5 : 8)) printf("# %s: above the goal\n", name);
    printf("# by part:");
    for (int k = 0; k < PARTS; k++)
        printf(" %s %+.0f", part_names[k], 100 * (bench_median(ratio[k], rounds) - 1));
    printf("\n");
}
static void bench_batch(const layers *l, int64_t batch) {
    const int64_t of_tables = bench.quick ? 20000 : 100000;
    if (batch < 1000 || !bench.quick) verify(l, batch);
    model one = make(bench_ctx(0, 1), l, batch, of_tables, 1),
          eight = make(bench_ctx(0, 8), l, batch, of_tables, 1),
          two = make(bench_lists_ctx(2, 1), l, batch, of_tables, 1);
    data d = make_data(one.ctx, batch, of_tables);
    probe p = make_probe(&one, &d);
    bare_step loops = bare_make(l, &one);
    for (int backward = 0; backward < 2; backward++)
        probe_choose(&p, backward, backward ? one.de.data : one.e.data);
    double none[PARTS] = {0}, each = 0;
    for (int i = 0; i < BATCHES; i++)
        each += parts(&one, &d, i, none) / BATCHES, parts(&eight, &d, i, none),
            step(&two, &d, i);
    int rounds = (int)((bench.quick ? 2 : 12) / (5 * each)), n = 0;
    rounds = rounds < 9 ? 9 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    for (int i = 0; i < rounds; i++, n += 2) {
        double a[PARTS] = {0}, b[PARTS] = {0}, all = parts(&one, &d, n, a),
               all8 = parts(&eight, &d, n, b);
        all8 += parts(&eight, &d, n + 1, b), all += parts(&one, &d, n + 1, a);
        const double start = bench_seconds(two.ctx);
        bench_lists.work = bench_lists.longest = 0;
        step(&two, &d, n % BATCHES);
        const double took = bench_seconds(two.ctx) - start, between = took - bench_lists.longest;
        twice[i] = all / 2 / took;
        rest[0][i] = 50 * between / took;
        rest[1][i] = 50 * (between + bench_lists.work - all / 2) / took;
        rest[2][i] = 100 * (bench_lists.longest - bench_lists.work / 2) / took;
        for (int k = 0; k <= PARTS; k++) {
            t1[k][i] = (k < PARTS ? a[k] : all) / 2;
            ratio[k][i] = (k < PARTS ? b[k] : all8) / 2 / t1[k][i];
        }
        for (int k = 0; k < PARTS; k++) bare[k][i] = bare_part(one.ctx, &loops, k);
        for (int k = 0; k < 2; k++)
            rows[k][i] = probe_time(&p, k, n, (float *)(k ? one.de.data : one.e.data), p.how[k]);
        peaks[i] =
            i % 16 ? peaks[i - 1] : bench_fma_peak(); /* the clock of a shared machine moves */
    }
    report(l, &one, &loops, rounds);
    bare_free(one.ctx, &loops);
    probe_free(&p);
    free_data(one.ctx, &d);
    free_model(&two);
    free_model(&eight);
    free_model(&one);
}

/* The least times of one thread and of two, of a burst in registers or of copies. */
static void bare_task(void *arg, int64_t i, int worker) {
    char *memory = (char *)arg;
    (void)worker;
    if (!memory) bench_fmas(20000);
    for (int k = 0; memory && k < 8; k++)
        memcpy(memory + (2 * i + 1) * BARE_BYTES, memory + 2 * i * BARE_BYTES, BARE_BYTES);
}
static double bare_times(neo_ctx *two, char *memory) {
    double least[2] = {1e9, 1e9};
    for (int k = 0; k < 400; k++) {
        const int64_t start = neo_time_ns();
        if (k % 2) neo_parallel_for(two, 2, bare_task, memory);
        else bare_task(memory, 0, 0);
        least[k % 2] = fmin(least[k % 2], (double)(neo_time_ns() - start));
    }
    return 2 * least[0] / least[1];
}
static void bare_threads(void) {
    neo_ctx *two = bench_ctx(2, 1);
    char *memory = (char *)bench_alloc(4 * BARE_BYTES);
    const double fmas = bare_times(two, NULL);
    printf("# two bare threads: %.2f times one that multiplies and adds, %.2f one that copies\n",
           fmas, bare_times(two, memory));
    free(memory);
    neo_ctx_destroy(two);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    bare_threads();
    bench_batch(&kaggle, 128);
    bench_batch(&kaggle, 2048);
    bench_batch(&mlperf, 128);
    bench_batch(&mlperf, 2048);
    bench_batch(&dcnv2, 128);
    if (!bench.quick) bench_batch(&dcnv2, 2048);
    return bench_end();
}
