/* cuda.c: a GPU. The ceiling of what moves memory is the copy bandwidth of the same run: bytes read
   and written by neo_tensor_copy from device to device. Products are measured twice: `exact`, with
   the CPU's bits, and by cuBLASLt.

   Build:  make cuda        Run:  make bench-cuda, or build/bench/cuda [--json FILE] [--quick]

   Before an operation is timed it runs at a small size on the CPU and on the device: all bits must
   agree (cuBLASLt's products: within rounding). A figure is the median of 21 samples, each of as
   many calls as take 2 ms at least, between two neo_ctx_synchronize; the spread is the distance of
   the quartiles. --quick: tiny sizes, for the emulation of tests/cuda/emulator/cuda_on_cpu.h; its
   figures mean nothing, so no share of a ceiling is shown.

   bags.<op>.<ids>.d<D>[.f16]   32 tables of 10^6 rows, 4096 samples, 20 ids per bag, four batches
                                in turn, already on the device. Bytes of a batch, with r the bytes
                                of a row and o = 32 x 4096 x 4 D:
       forward    ids (r + 8) + o               every looked-up row, its id, the output
       backward   rows (2 r + 8) + o + 8 ids    every distinct row and its row-wise Adagrad state
                                                read and written, the output's gradient, the ids; of
                                                what sorting moves nothing counts
     Zipf is with exponent 1.15. Its popular rows stay in the L2 cache, so its forward has no
     ceiling but is compared with uniform ids. Memory is faster where it is mostly read: shares up
     to 125 % of a forward, and up to 110 % of what else reads more than it writes, are no errors.
   gemm.<exact|cublaslt>.<trans>.<M>x<N>x<K>   4096^3, and a layer's forward (nt), dx (nn) and dw
                                               (tn) of a batch of 2048
   norm, attention, adam   bytes: each tensor that is read or written, once. Attention counts the
                           products of the triangle of a causal mask: 2 of them forward, 5 backward,
                           2 T^2/2 dim each; attention.bf16: operands rounded, on tensor cores;
                           .silu: NEO_ATTENTION_SILU; .jagged: lengths of T, 3/4, 1/2 and 1/4 T
   step.dlrm    a training step with the layers used for Criteo Kaggle, its 26 tables at their true
                sizes, 16 columns, row-wise Adagrad and Adagrad, batch 16384. `step.dlrm` takes a
                batch on the device, `step.dlrm.from_host` one in host memory.
     step.dlrm.calls  the part of a synchronized step that has passed when the host's calls have
                      returned. Above it the device works alone. At 100 % the host is what a step
                      waits for, or its calls wait for the device
     step.dlrm.busy   the step's calls, each timed alone, 20 in a row and one synchronization (so
                      that launches overlap with work), summed, over the step. An estimate of the
                      share of a step in which the device works: too high where the host takes
                      longer to launch a call than the device to do it
     step.dlrm.graph  the step as one CUDA graph (neo_cuda_graph_begin), as a trainer runs it: the
                      host notes one step while the other computes; a round is a few steps and one
                      wait. `.graph.busy`: as `.busy`, over this step */
#include "bench/model.h"
#include "neo_cuda.cuh"

enum { ROUNDS = 21, QUICK_ROUNDS = 2, MOST = 12 };

static neo_device *exact_gpu, *fast_gpu;
static neo_ctx *cpu, *exact, *fast;
static double copy_rate; /* GB/s */

static neo_ctx *make_ctx(neo_device *device) {
    neo_ctx_desc desc;
    neo_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    desc.threads = bench.threads;
    desc.seed = 1;
    desc.device = device;
    desc.repro_shards = NEO_DEVICE_SHARDS; /* also of the CPU, for its bits */
    BENCH_OK(neo_ctx_create(&desc, &ctx));
    return ctx;
}
static int rounds(void) { return bench.quick ? QUICK_ROUNDS : ROUNDS; }
static void report(const char *name, double value, const char *unit, double share, const char *peer,
                   double ratio) {
    bench_report(name, value, unit, bench.quick ? -1 : share, peer, ratio);
}
/* Bytes of a call that took `t` seconds. */
static void report_bytes(const char *name, double bytes, double t) {
    bench.most = 110; /* what reads more than it writes may be faster than a copy */
    report(name, bytes / t / 1e9, "GB/s", 100 * bytes / t / (copy_rate * 1e9), NULL, 0);
}

/* ---- an operation: tensors and a call on them ---- */
typedef struct work {
    neo_ctx *ctx;
    neo_tensor t[MOST];
    int count;
    int64_t m, n, k;
    int trans_a, trans_b;
    int silu, jagged;
    neo_params *params;
    neo_optim *optim;
} work;
typedef void (*work_fn)(work *w);

/* The next tensor, of numbers that are the same in every context. */
static void add(work *w, int64_t rows, int64_t cols) {
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    int64_t shape[2] = {rows, cols};
    char name[16];
    neo_tensor *t = &w->t[w->count++];
    snprintf(name, sizeof name, "t%d", w->count);
    BENCH_OK(neo_tensor_alloc(w->ctx, NEO_F32, cols ? 2 : 1, shape, t));
    BENCH_OK(neo_tensor_init(w->ctx, *t, name, normal, 0));
}
static void drop(work *w) {
    for (int i = 0; i < w->count; i++) neo_tensor_free(w->ctx, &w->t[i]);
    neo_optim_destroy(w->optim);
    neo_params_destroy(w->params);
}
/* A tensor's numbers in host memory, to be freed. */
static float *fetch(neo_ctx *ctx, neo_tensor t) {
    neo_tensor host = t;
    host.data = bench_alloc(neo_tensor_bytes(t));
    host.place = NEO_HOST;
    BENCH_OK(neo_tensor_copy(ctx, t, host));
    return (float *)host.data;
}
/* Largest difference of two tensors, over the largest number; 0: the bits agree. */
static double difference(neo_ctx *ctx_a, neo_tensor a, neo_ctx *ctx_b, neo_tensor b) {
    float *x = fetch(ctx_a, a), *y = fetch(ctx_b, b);
    double most = 0, size = 1e-30;
    int same = memcmp(x, y, neo_tensor_bytes(a)) == 0;
    for (int64_t i = 0; i < neo_tensor_count(a); i++) {
        double d = fabs((double)x[i] - y[i]);
        most = d <= most ? most : d; /* a NaN stays */
        size = fmax(size, fabs((double)x[i]));
    }
    free(x), free(y);
    return same ? 0.0 : fmax(most / size, 1e-300);
}

/* Seconds of a call: one sample of `repeats` of them. */
static double sample(work *w, work_fn run, int repeats) {
    BENCH_OK(neo_ctx_synchronize(w->ctx));
    int64_t start = neo_time_ns();
    for (int i = 0; i < repeats; i++) run(w);
    BENCH_OK(neo_ctx_synchronize(w->ctx));
    return (double)(neo_time_ns() - start) / 1e9 / repeats;
}
static double time_of(work *w, work_fn run) {
    double t[ROUNDS];
    sample(w, run, 1);
    double once = sample(w, run, 1);
    int repeats = bench.quick ? 1 : (int)fmin(1 + 2e-3 / once, 500);
    for (int r = 0; r < rounds(); r++) t[r] = sample(w, run, repeats);
    double median = bench_median(t, rounds());
    bench_spread(t, rounds());
    return median;
}

/* Both contexts do the same; tolerance 0: with the same bits. w: sizes. */
static void verify(const char *name, work w, neo_ctx *ctx, work_fn make, const work_fn *run,
                   int calls, double tolerance) {
    work a = w, b = w;
    a.ctx = cpu, b.ctx = ctx;
    make(&a), make(&b);
    for (int i = 0; i < calls; i++) run[i](&a), run[i](&b);
    for (int i = 0; i < a.count; i++) {
        double d = difference(cpu, a.t[i], ctx, b.t[i]);
        if (d <= tolerance) continue;
        printf("%s: tensor %d is off by %g of its largest number\n", name, i, d);
        bench_fail("the device and the CPU differ");
    }
    for (int i = 0; a.params && i < neo_params_count(a.params); i++)
        if (difference(cpu, neo_params_at(a.params, i)->value, ctx,
                       neo_params_at(b.params, i)->value) > tolerance)
            bench_fail("the device's parameters differ from the CPU's");
    drop(&a), drop(&b);
}

/* ---- copy ---- */
static void make_copy(work *w) { add(w, w->m, 0), add(w, w->m, 0); }
static void run_copy(work *w) { BENCH_OK(neo_tensor_copy(w->ctx, w->t[0], w->t[1])); }
static void bench_copy(void) {
    const work_fn run[] = {run_copy};
    work small = {.m = 1001}, w = {.ctx = fast, .m = bench.quick ? 100000 : (int64_t)1 << 29};
    verify("copy", small, exact, make_copy, run, 1, 0);
    make_copy(&w);
    copy_rate = 2.0 * (double)neo_tensor_bytes(w.t[0]) / time_of(&w, run_copy) / 1e9;
    report("copy", copy_rate, "GB/s", -1, NULL, 0);
    drop(&w);
}

/* ---- products ---- */
static void make_gemm(work *w) {
    add(w, w->trans_a ? w->k : w->m, w->trans_a ? w->m : w->k);
    add(w, w->trans_b ? w->n : w->k, w->trans_b ? w->k : w->n);
    add(w, w->m, w->n);
}
static void run_gemm(work *w) {
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_a = w->trans_a, desc.trans_b = w->trans_b;
    BENCH_OK(neo_gemm(w->ctx, &desc, w->t[0], w->t[1], w->t[2]));
}
/* A layer's dW, by leaves: t[0] is dz, t[1] x, and t[2] dw. */
static void run_dw(work *w) {
    const neo_tensor none = neo_tensor_none();
    BENCH_OK(neo_linear_backward(w->ctx, NULL, w->t[1], w->t[2], w->t[0], none, w->t[3], none));
}
static void make_dw(work *w) {
    make_gemm(w);
    add(w, w->m, w->n);
}
static void bench_gemm(int64_t m, int64_t n, int64_t k, const char *trans) {
    const int by_leaves = trans[0] == 't' && m < 4096, most = bench.quick ? 40 : 1 << 20;
    const work_fn run[] = {by_leaves ? run_dw : run_gemm}, make = by_leaves ? make_dw : make_gemm;
    work w = {.m = m < most ? m : most, .n = n < most ? n : most, .k = k < most ? k : most,
              .trans_a = trans[0] == 't', .trans_b = trans[1] == 't'};
    work small = w;
    small.m = m < 131 ? m : 131, small.n = n < 67 ? n : 67, small.k = k < 259 ? k : 259;
    if (bench.quick) small = w;
    char name[96];
    double t[2], spread[2];
    for (int i = 0; i < 2; i++) {
        work big = w;
        verify("gemm", small, i ? fast : exact, make, run, 1, i ? 1e-5 : 0);
        big.ctx = i ? fast : exact;
        make(&big);
        t[i] = time_of(&big, run[0]);
        spread[i] = bench.spread;
        drop(&big);
    }
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "gemm.%s.%s.%dx%dx%d", i ? "cublaslt" : "exact", trans, (int)m,
                 (int)n, (int)k);
        bench.spread = spread[i];
        report(name, flops / t[i] / 1e9, "GFLOP/s", -1, i ? NULL : "cublaslt", t[1] / t[0]);
    }
}
static void bench_products(void) {
    static const int layers[][2] = {{256, 512}, {512, 367}, {64, 256},
                                    {16, 64},   {512, 13},  {1, 256}};
    bench_gemm(4096, 4096, 4096, "nn");
    bench_gemm(4096, 4096, 4096, "nt");
    bench_gemm(4096, 4096, 4096, "tn");
    for (int i = 0; i < (bench.quick ? 1 : 6); i++) {
        const int out = layers[i][0], in = layers[i][1];
        bench_gemm(2048, out, in, "nt");
        bench_gemm(2048, in, out, "nn");
        bench_gemm(out, in, 2048, "tn");
    }
}

/* ---- layer norm ---- */
enum {
    NORM_X,
    NORM_WEIGHT,
    NORM_BIAS,
    NORM_Y,
    NORM_STATS,
    NORM_DY,
    NORM_DX,
    NORM_DWEIGHT,
    NORM_DBIAS
};
static void make_norm(work *w) {
    const int64_t rows[] = {w->m, w->n, w->n, w->m, w->m, w->m, w->m, w->n, w->n};
    const int64_t cols[] = {w->n, 0, 0, w->n, 2, w->n, w->n, 0, 0};
    for (int i = 0; i < 9; i++) add(w, rows[i], cols[i]);
}
static void run_norm(work *w) {
    neo_tensor *t = w->t;
    BENCH_OK(neo_layer_norm_forward(w->ctx, t[NORM_X], t[NORM_WEIGHT], t[NORM_BIAS], 1e-5f,
                                    t[NORM_Y], t[NORM_STATS]));
}
static void run_norm_back(work *w) {
    neo_tensor *t = w->t;
    BENCH_OK(neo_layer_norm_backward(w->ctx, NULL, t[NORM_X], t[NORM_WEIGHT], t[NORM_STATS],
                                     t[NORM_DY], t[NORM_DX], t[NORM_DWEIGHT], t[NORM_DBIAS]));
}
static void bench_norm(void) {
    const work_fn run[] = {run_norm, run_norm_back};
    work small = {.m = 13, .n = 96},
         w = {.ctx = exact, .m = bench.quick ? 13 : 131072, .n = bench.quick ? 96 : 768};
    verify("layer_norm", small, exact, make_norm, run, 2, 0);
    make_norm(&w);
    double tensor = 4.0 * (double)w.m * (double)w.n, stats = 8.0 * (double)w.m,
           t = time_of(&w, run_norm);
    report_bytes("layer_norm.forward.131072x768", 2 * tensor + stats, t);
    t = time_of(&w, run_norm_back);
    report_bytes("layer_norm.backward.131072x768", 3 * tensor + stats, t);
    drop(&w);
}

/* ---- attention: q, k, v are slices of one matrix, as a GPT has them; m sequences of n, k heads of
   64 ---- */
enum { ATT_QKV, ATT_Y, ATT_LSE, ATT_DY, ATT_DQKV, ATT_OFFSETS, ATT_DIM = 64, ATT_MOST = 64 };
static int64_t length_of(const work *w, int64_t sequence) {
    return w->jagged ? w->n - sequence % 4 * w->n / 4 : w->n;
}
static void make_attention(work *w) {
    const int64_t width = w->k * ATT_DIM, count = w->m + 1;
    int64_t offsets[ATT_MOST + 1] = {0};
    for (int64_t i = 0; i < w->m; i++) offsets[i + 1] = offsets[i] + length_of(w, i);
    const int64_t rows = offsets[w->m];
    add(w, rows, 3 * width), add(w, rows, width), add(w, rows, w->k), add(w, rows, width),
        add(w, rows, 3 * width);
    neo_tensor *there = &w->t[w->count++];
    BENCH_OK(neo_tensor_alloc(w->ctx, NEO_I64, 1, &count, there));
    BENCH_OK(neo_tensor_copy(w->ctx, neo_tensor_1d(offsets, NEO_I64, count), *there));
}
static neo_attention_desc attention_of(const work *w) {
    neo_attention_desc d = {.length = w->n, .heads = w->k, .causal = 1,
                            .dtype = w->ctx == fast ? NEO_BF16 : NEO_F32};
    if (w->silu) d.kind = NEO_ATTENTION_SILU;
    if (w->jagged) d.offsets = w->t[ATT_OFFSETS];
    return d;
}
static neo_tensor part(neo_tensor qkv, int i) {
    return neo_tensor_slice(qkv, 1, i * qkv.shape[1] / 3, qkv.shape[1] / 3);
}
static void run_attention(work *w) {
    const neo_attention_desc d = attention_of(w);
    neo_tensor *t = w->t, q = t[ATT_QKV];
    BENCH_OK(neo_attention_forward(w->ctx, &d, part(q, 0), part(q, 1), part(q, 2), t[ATT_Y],
                                   w->silu ? neo_tensor_none() : t[ATT_LSE]));
}
static void run_attention_back(work *w) {
    const neo_attention_desc d = attention_of(w);
    neo_tensor *t = w->t, q = t[ATT_QKV], dq = t[ATT_DQKV];
    BENCH_OK(neo_attention_backward(w->ctx, &d, part(q, 0), part(q, 1), part(q, 2), t[ATT_Y],
                                    t[ATT_LSE], t[ATT_DY], part(dq, 0), part(dq, 1), part(dq, 2)));
}
static void bench_attention(neo_ctx *ctx, const char *name, int64_t batch, double tolerance,
                            int silu, int jagged) {
    const work_fn run[] = {run_attention, run_attention_back};
    work small = {.m = 1 + 3 * jagged, .n = bench.quick ? 9 : 130, .k = 2, .silu = silu,
                  .jagged = jagged};
    work w = {.m = batch, .n = 1024, .k = 12, .silu = silu, .jagged = jagged};
    char text[96];
    if (bench.quick) w = small;
    w.ctx = ctx;
    verify(name, small, ctx, make_attention, run, 2, tolerance);
    make_attention(&w);
    double product = 0;
    for (int64_t i = 0; i < w.m; i++)
        product += (double)w.k * (double)length_of(&w, i) * (double)length_of(&w, i) * ATT_DIM;
    for (int i = 0; i < 2; i++) {
        double t = time_of(&w, run[i]);
        snprintf(text, sizeof text, "%s.%s.b%d.t1024.h12.d64", name, i ? "backward" : "forward",
                 (int)batch);
        report(text, (i ? 5 : 2) * product / t / 1e9, "GFLOP/s", -1, NULL, 0);
    }
    drop(&w);
}

/* ---- Adam ---- */
static void make_adam(work *w) {
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    const neo_param *p;
    neo_optim_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = NEO_OPTIM_ADAM;
    BENCH_OK(neo_params_create(w->ctx, &w->params));
    BENCH_OK(neo_params_add(w->params, "w", 1, &w->m, normal, &p));
    BENCH_OK(neo_tensor_init(w->ctx, p->grad, "grad", normal, 0));
    BENCH_OK(neo_optim_create(w->ctx, w->params, &desc, &w->optim));
}
static void run_adam(work *w) { BENCH_OK(neo_optim_step(w->optim, 1e-3f)); }
static void bench_adam(void) {
    const work_fn run[] = {run_adam, run_adam};
    work small = {.m = 1003}, w = {.ctx = exact, .m = bench.quick ? 1003 : 100000000};
    verify("adam", small, exact, make_adam, run, 2, 0);
    make_adam(&w);
    report_bytes("adam.1e8", 28.0 * (double)w.m, time_of(&w, run_adam)); /* w, m, v both ways; g */
    drop(&w);
}

/* ---- batches of ids ---- */
typedef struct batch {
    neo_tensor offsets, ids, dense, label; /* dense, label: of a whole model's */
    neo_jagged view;
    double unique; /* rows that it touches, over all tables */
} batch;

/* Ranks with P(rank r) ~ (r + 1)^-1.15, through the cumulated distribution. */
static double *zipf_table(int64_t rows) {
    double *cdf = (double *)bench_alloc(sizeof *cdf * (size_t)rows), sum = 0;
    for (int64_t r = 0; r < rows; r++) cdf[r] = sum += pow((double)(r + 1), -1.15);
    for (int64_t r = 0; r < rows; r++) cdf[r] /= sum;
    return cdf;
}
static int64_t draw(const double *cdf, int64_t rows) {
    if (!cdf) return (int64_t)(bench_random() % (uint32_t)rows);
    double u = (double)bench_random() / 2147483648.0;
    int64_t lo = 0, hi = rows - 1;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (cdf[mid] > u) hi = mid;
        else lo = mid + 1;
    }
    return lo * 7919 % rows; /* popular rows are spread over the table */
}
static void make_ids(int64_t *ids, batch *b, int count, const int64_t *rows, int tables,
                     int64_t per_table, int zipf) {
    for (int t = 0; t < tables; t++) {
        double *cdf = zipf ? zipf_table(rows[t]) : NULL;
        char *seen = (char *)bench_alloc((size_t)rows[t]);
        for (int n = 0; n < count; n++) {
            int64_t *to = ids + (n * tables + t) * per_table;
            memset(seen, 0, (size_t)rows[t]);
            for (int64_t k = 0; k < per_table; k++) {
                to[k] = draw(cdf, rows[t]);
                b[n].unique += !seen[to[k]];
                seen[to[k]] = 1;
            }
        }
        free(seen), free(cdf);
    }
}
static neo_tensor bring(neo_ctx *ctx, neo_tensor host) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(ctx, host.dtype, host.ndim, host.shape, &t));
    BENCH_OK(neo_tensor_copy(ctx, host, t));
    return t;
}
/* `count` batches where ctx computes, or, if `there` is 0, in host memory. */
static void make_batches(neo_ctx *ctx, int there, batch *b, int count, const int64_t *rows,
                         int tables, int64_t samples, int64_t length, int zipf) {
    const int64_t bags = tables * samples, total = bags * length;
    int64_t *offsets = (int64_t *)bench_alloc(sizeof *offsets * (size_t)(bags + 1));
    int64_t *ids = (int64_t *)bench_alloc(sizeof *ids * (size_t)(total * count));
    neo_ctx *holder = there ? ctx : cpu;
    bench_seed = 1;
    memset(b, 0, sizeof *b * (size_t)count);
    for (int64_t i = 0; i <= bags; i++) offsets[i] = i * length;
    make_ids(ids, b, count, rows, tables, samples * length, zipf);
    for (int n = 0; n < count; n++) {
        b[n].offsets = bring(holder, neo_tensor_1d(offsets, NEO_I64, bags + 1));
        b[n].ids = bring(holder, neo_tensor_1d(ids + n * total, NEO_I64, total));
        b[n].view.batch = samples;
        b[n].view.feature_count = tables;
        b[n].view.id_dtype = NEO_I64;
        b[n].view.offsets = (const int64_t *)b[n].offsets.data;
        b[n].view.ids = b[n].ids.data;
        b[n].view.place = b[n].ids.place;
    }
    free(offsets), free(ids);
}
static void free_batches(neo_ctx *ctx, int there, batch *b, int count) {
    neo_ctx *holder = there ? ctx : cpu;
    for (int n = 0; n < count; n++) {
        neo_tensor *all[] = {&b[n].offsets, &b[n].ids, &b[n].dense, &b[n].label};
        for (int i = 0; i < 4; i++) neo_tensor_free(holder, all[i]);
    }
}

/* ---- bags ---- */
enum { BAG_TABLES = 32, TURNS = 4 }; /* batches in turn */
typedef struct bag_sizes {
    int tables;
    int64_t rows, samples, length, dim;
    neo_dtype dtype;
} bag_sizes;
typedef struct bags {
    neo_ctx *ctx;
    bag_sizes size;
    int64_t rows[BAG_TABLES];
    neo_bags *bags;
    neo_tensor out;
    batch batch[TURNS];
} bags;

static neo_status make_bags(bags *b, neo_ctx *ctx, bag_sizes size) {
    static char names[BAG_TABLES][16];
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    neo_table_desc tables[BAG_TABLES];
    neo_bags_desc desc;
    memset(b, 0, sizeof *b);
    memset(tables, 0, sizeof tables);
    memset(&desc, 0, sizeof desc);
    b->ctx = ctx;
    b->size = size;
    for (int t = 0; t < size.tables; t++) {
        snprintf(names[t], sizeof names[t], "t%d", t);
        b->rows[t] = size.rows;
        tables[t].name = names[t];
        tables[t].rows = size.rows;
        tables[t].dim = size.dim;
        tables[t].dtype = size.dtype;
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    desc.tables = tables;
    desc.table_count = size.tables;
    desc.max_batch = size.samples;
    desc.max_ids = size.tables * size.samples * size.length;
    neo_status status = neo_bags_create(ctx, &desc, &b->bags);
    if (status != NEO_OK) return status;
    int64_t shape[2] = {size.samples, size.tables * size.dim};
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, shape, &b->out));
    BENCH_OK(neo_tensor_init(ctx, b->out, "dout", normal, 0));
    return NEO_OK;
}
static void free_bags(bags *b) {
    neo_tensor_free(b->ctx, &b->out);
    neo_bags_destroy(b->bags);
}

/* Two batches forward and backward, on the CPU and on the device. */
static void verify_bags(bag_sizes size, int zipf) {
    bags both[2];
    size.tables = 3, size.rows = 50, size.samples = bench.quick ? 5 : 33;
    float *w[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        bags *b = &both[i];
        BENCH_OK(make_bags(b, i ? exact : cpu, size));
        make_batches(b->ctx, 1, b->batch, 2, b->rows, size.tables, size.samples, size.length, zipf);
        for (int n = 0; n < 2; n++) {
            BENCH_OK(neo_bags_forward(b->bags, &b->batch[n].view, b->out));
            BENCH_OK(neo_bags_backward(b->bags, &b->batch[n].view, b->out, 0.01f));
        }
    }
    if (difference(cpu, both[0].out, exact, both[1].out) != 0)
        bench_fail("a lookup's bits are not the CPU's");
    for (int t = 0; t < size.tables; t++) {
        size_t bytes = sizeof(float) * (size_t)(size.rows * size.dim);
        for (int i = 0; i < 2; i++) {
            w[i] = (float *)bench_alloc(bytes);
            BENCH_OK(neo_bags_get_rows(both[i].bags, t, 0, size.rows, w[i]));
        }
        if (memcmp(w[0], w[1], bytes) != 0) bench_fail("a step's bits are not the CPU's");
        free(w[0]), free(w[1]);
    }
    for (int i = 0; i < 2; i++) free_batches(both[i].ctx, 1, both[i].batch, 2), free_bags(&both[i]);
}

/* Seconds of one forward, and of one backward after it, over all batches in turn. */
static void time_bags(bags *b, double *forward, double *backward) {
    int64_t spent[2] = {0, 0};
    for (int n = 0; n < TURNS; n++)
        for (int back = 0; back < 2; back++) {
            BENCH_OK(neo_ctx_synchronize(b->ctx));
            int64_t start = neo_time_ns();
            if (back) BENCH_OK(neo_bags_backward(b->bags, &b->batch[n].view, b->out, 0.01f));
            else BENCH_OK(neo_bags_forward(b->bags, &b->batch[n].view, b->out));
            BENCH_OK(neo_ctx_synchronize(b->ctx));
            spent[back] += neo_time_ns() - start;
        }
    *forward = (double)spent[0] / 1e9 / TURNS;
    *backward = (double)spent[1] / 1e9 / TURNS;
}
/* uniform[2]: seconds forward and backward with uniform ids; zipf: those are compared with. */
static void measure_bags(bags *b, int zipf, double *uniform) {
    double t[2][ROUNDS], warm[2], unique = 0;
    char name[96];
    time_bags(b, &warm[0], &warm[1]);
    for (int r = 0; r < rounds(); r++) time_bags(b, &t[0][r], &t[1][r]);
    for (int n = 0; n < TURNS; n++) unique += b->batch[n].unique / TURNS;
    const double row = (double)neo_dtype_size(b->size.dtype) * (double)b->size.dim;
    const double out = (double)neo_tensor_bytes(b->out),
                 ids = (double)neo_tensor_count(b->batch[0].ids);
    const double bytes[2] = {ids * (row + 8) + out, unique * (2 * row + 8) + out + 8 * ids};
    for (int back = 0; back < 2; back++) {
        double median = bench_median(t[back], rounds()),
               share = 100 * bytes[back] / median / (copy_rate * 1e9);
        bench_spread(t[back], rounds());
        snprintf(name, sizeof name, "bags.%s.%s.d%d%s", back ? "backward" : "forward",
                 zipf ? "zipf" : "uniform", (int)b->size.dim,
                 b->size.dtype == NEO_F16 ? ".f16" : "");
        if (!back) bench.most = 125;
        report(name, bytes[back] / median / 1e9, "GB/s", zipf && !back ? -1 : share,
               zipf ? "uniform_ids" : NULL, uniform[back] / median);
        if (!zipf) uniform[back] = median;
    }
}
static void bench_bags(int64_t dim, neo_dtype dtype) {
    bag_sizes size = {BAG_TABLES, 1000000, 4096, 20, dim, dtype};
    if (bench.quick) size.tables = 2, size.rows = 40, size.samples = 3, size.length = 4;
    double uniform[2] = {0, 0};
    bags b;
    for (int zipf = 0; zipf < 2; zipf++) verify_bags(size, zipf);
    if (make_bags(&b, exact, size) != NEO_OK) {
        printf("# skipped bags d%d %s: %s\n", (int)dim, neo_dtype_name(dtype), neo_last_error());
        return;
    }
    for (int zipf = 0; zipf < 2; zipf++) {
        make_batches(b.ctx, 1, b.batch, TURNS, b.rows, size.tables, size.samples, size.length,
                     zipf);
        measure_bags(&b, zipf, uniform);
        free_batches(b.ctx, 1, b.batch, TURNS);
    }
    free_bags(&b);
}

/* ---- a step of DLRM ---- */
enum { AGAIN = 20 };
static const int64_t KAGGLE[TABLES] = {
    1460, 583,   10131227, 2202608, 305,  24, 12517,   633, 3,  93145,  5683, 8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4, 7046547, 18,  15, 286181, 105,  142572};
typedef struct trainer {
    model m;
    int64_t rows[TABLES];
    neo_tensor dense, label; /* of a batch that comes from the host */
} trainer;

static void make_trainer(trainer *t, neo_ctx *ctx, int64_t samples, int64_t most_rows) {
    static const int64_t bottom[] = {DENSE, 8, 8, 8, DIM}, top[] = {8, 8, 1};
    const int64_t dense[2] = {samples, DENSE}, label[2] = {samples, 1};
    model_desc d = {.batch = samples};
    if (bench.quick) d.bottom = bottom, d.bottom_count = 5, d.top = top, d.top_count = 3;
    for (int i = 0; i < TABLES; i++) t->rows[i] = KAGGLE[i] < most_rows ? KAGGLE[i] : most_rows;
    BENCH_OK(kaggle_create(&t->m, ctx, d, t->rows, 0));
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, dense, &t->dense));
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, label, &t->label));
}
static void free_trainer(trainer *t) {
    neo_tensor_free(t->m.ctx, &t->dense);
    neo_tensor_free(t->m.ctx, &t->label);
    model_destroy(&t->m);
}
/* Batches of one Zipf id per bag, with dense numbers and labels. */
static void make_turns(const trainer *t, int there, batch *b) {
    const int64_t n = t->m.batch;
    float *x = (float *)bench_alloc(sizeof(float) * (size_t)(n * DENSE));
    neo_ctx *holder = there ? t->m.ctx : cpu;
    make_batches(t->m.ctx, there, b, TURNS, t->rows, TABLES, n, 1, 1);
    for (int i = 0; i < TURNS; i++) {
        bench_fill(x, n * DENSE);
        b[i].dense = bring(holder, neo_tensor_2d(x, NEO_F32, n, DENSE));
        for (int64_t k = 0; k < n; k++) x[k] = x[k] > 0.5f ? 1.0f : 0.0f;
        b[i].label = bring(holder, neo_tensor_2d(x, NEO_F32, n, 1));
    }
    free(x);
}

/* Where the trainer computes; one from the host was brought before. */
static model_batch batch_of(const trainer *t, const batch *b) {
    const int away = b->dense.place != t->dense.place;
    const model_batch there = {away ? t->dense : b->dense, away ? t->label : b->label, &b->view};
    return there;
}
static void one_step(trainer *t, const batch *b) {
    const model_batch there = batch_of(t, b);
    if (b->dense.place != t->dense.place) {
        BENCH_OK(neo_tensor_copy(t->m.ctx, b->dense, t->dense));
        BENCH_OK(neo_tensor_copy(t->m.ctx, b->label, t->label));
    }
    BENCH_OK(model_step(&t->m, &there, 0.01f, NULL));
}
static void graph_step(neo_cuda_graph *g, trainer *t, const batch *b) {
    BENCH_OK(neo_cuda_graph_begin(g));
    one_step(t, b);
    BENCH_OK(neo_cuda_graph_end(g));
}
static uint64_t digest_of(neo_ctx *ctx, int graph) {
    trainer t;
    batch b[TURNS];
    neo_cuda_graph *g = NULL;
    if (graph) BENCH_OK(neo_cuda_graph_create(neo_ctx_device(ctx), NULL, &g));
    make_trainer(&t, ctx, bench.quick ? 12 : 100, bench.quick ? 30 : 1000);
    make_turns(&t, ctx == cpu, b); /* to the device they come from the host */
    for (int i = 0; i < (bench.quick ? 1 : 3); i++) {
        if (g) graph_step(g, &t, &b[i]);
        else one_step(&t, &b[i]);
    }
    if (g) BENCH_OK(neo_cuda_graph_wait(g));
    neo_cuda_graph_destroy(g);
    uint64_t digest = neo_state_digest(t.m.state);
    free_batches(ctx, ctx == cpu, b, TURNS);
    free_trainer(&t);
    return digest;
}

/* Seconds of a step; *calls: until its calls have returned. */
static double time_step(trainer *t, const batch *b, double *calls) {
    int64_t start = neo_time_ns();
    one_step(t, b);
    int64_t returned = neo_time_ns();
    BENCH_OK(neo_ctx_synchronize(t->m.ctx));
    *calls = (double)(returned - start) / 1e9;
    return (double)(neo_time_ns() - start) / 1e9;
}
/* Every call of a step alone, often enough that the device need not wait for launches. */
static double time_calls(trainer *t, const batch *b) {
    const model_batch there = batch_of(t, b);
    double sum = 0;
    for (int i = 0; i < MODEL_CALLS; i++) {
        BENCH_OK(neo_ctx_synchronize(t->m.ctx));
        int64_t start = neo_time_ns();
        int again = bench.quick ? 1 : AGAIN;
        for (int k = 0; k < again; k++) BENCH_OK(model_call(&t->m, &there, i, 0.01f, NULL));
        BENCH_OK(neo_ctx_synchronize(t->m.ctx));
        sum += (double)(neo_time_ns() - start) / 1e9 / again;
    }
    return sum;
}
/* Steps as graphs; the median of a round's time per step. */
static double measure_graph(trainer *t, int there, const batch *b) {
    double took[ROUNDS];
    neo_cuda_graph *g;
    const neo_cuda_graph_desc desc = {there ? 0 : (size_t)t->m.batch * 1024, 0, 0};
    BENCH_OK(neo_cuda_graph_create(neo_ctx_device(t->m.ctx), &desc, &g));
    for (int i = 0; i < TURNS; i++) graph_step(g, t, &b[i]);
    BENCH_OK(neo_cuda_graph_wait(g));
    for (int r = 0; r < rounds(); r++) {
        int64_t start = neo_time_ns();
        for (int i = 0; i < TURNS; i++) graph_step(g, t, &b[i]);
        BENCH_OK(neo_cuda_graph_wait(g));
        took[r] = (double)(neo_time_ns() - start) / 1e9 / TURNS;
    }
    const neo_cuda_graph_stats stats = neo_cuda_graph_get_stats(g);
    if (stats.launches != stats.steps) bench_fail("step: a step is more than one graph");
    neo_cuda_graph_destroy(g);
    double median = bench_median(took, rounds());
    bench_spread(took, rounds());
    report(there ? "step.dlrm.graph" : "step.dlrm.graph.from_host", 1e3 * median, "ms", -1, NULL,
           0);
    return median;
}
static void measure_step(trainer *t, int there) {
    double took[ROUNDS * TURNS], share[ROUNDS * TURNS], busy[ROUNDS], calls;
    int n = rounds() * TURNS;
    batch b[TURNS];
    make_turns(t, there, b);
    for (int i = 0; i < TURNS; i++) time_step(t, &b[i], &calls);
    for (int i = 0; i < n; i++) {
        took[i] = time_step(t, &b[i % TURNS], &calls);
        share[i] = 100 * calls / took[i];
    }
    double median = bench_median(took, n);
    bench_spread(took, n);
    report(there ? "step.dlrm" : "step.dlrm.from_host", 1e3 * median, "ms", -1, NULL, 0);
    report(there ? "step.dlrm.samples" : "step.dlrm.from_host.samples",
           (double)t->m.batch / median, "samples/s", -1, NULL, 0);
    double part_of_calls = bench_median(share, n);
    bench_spread(share, n);
    report(there ? "step.dlrm.calls" : "step.dlrm.from_host.calls", part_of_calls, "percent", -1,
           NULL, 0);
    double graph = measure_graph(t, there, b);
    for (int r = 0; there && r < rounds(); r++) busy[r] = 100 * time_calls(t, &b[r % TURNS]);
    if (there) {
        double value = bench_median(busy, rounds());
        bench_spread(busy, rounds());
        report("step.dlrm.busy", fmin(value / median, 100.0), "percent", -1, NULL, 0);
        report("step.dlrm.graph.busy", fmin(value / graph, 100.0), "percent", -1, NULL, 0);
    }
    free_batches(t->m.ctx, there, b, TURNS);
}
static void bench_step(void) {
    trainer t;
    const uint64_t digest = digest_of(cpu, 0);
    if (digest_of(exact, 0) != digest) bench_fail("step: the device's digest is not the CPU's");
    if (digest_of(exact, 1) != digest)
        bench_fail("step: the digest of steps as graphs is not the CPU's");
    make_trainer(&t, fast, bench.quick ? 12 : 16384, bench.quick ? 30 : INT64_MAX);
    measure_step(&t, 1);
    measure_step(&t, 0);
    free_trainer(&t);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    const neo_cuda_desc same_bits = {0, 1, 0};
    BENCH_OK(neo_cuda_device_create(&same_bits, &exact_gpu));
    BENCH_OK(neo_cuda_device_create(NULL, &fast_gpu));
    cpu = make_ctx(NULL), exact = make_ctx(exact_gpu), fast = make_ctx(fast_gpu);
    bench_copy();
    for (int f16 = 0; f16 < 2; f16++)
        for (int dim = 128; dim >= 16; dim /= dim == 128 ? 2 : 4)
            if (!bench.quick || dim == (f16 ? 16 : 128)) bench_bags(dim, f16 ? NEO_F16 : NEO_F32);
    bench_products();
    bench_norm();
    for (int silu = 0; silu < 2; silu++) {
        bench_attention(exact, silu ? "attention.silu" : "attention", 4, 0, silu, 0);
        bench_attention(fast, silu ? "attention.silu.bf16" : "attention.bf16", 16, 0.02, silu, 0);
        bench_attention(fast, silu ? "attention.silu.jagged.bf16" : "attention.jagged.bf16", 16,
                        0.02, silu, 1);
    }
    bench_adam();
    bench_step();
    neo_ctx_destroy(fast), neo_ctx_destroy(exact), neo_ctx_destroy(cpu);
    neo_cuda_device_destroy(fast_gpu);
    neo_cuda_device_destroy(exact_gpu);
    return bench_end();
}
