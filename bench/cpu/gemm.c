/* Products, the layers made of them and the dot interaction: neo against the machine's multiply-add
   peak and, where libopenblas.so.0 can be loaded, against OpenBLAS; products of bf16 against the
   peak of the instruction that they use, and against f32.

   Build:  cc -O2 bench/cpu/gemm.c neo.o -o gemm -lm -lpthread -ldl        Run:  gemm [--threads N]
   [--quick]

   Every shape is verified first. A round measures peak, neo, peer, peer, neo, peak; the figure is
   the median over rounds, the ratio the median of the rounds' ratios, the ceiling the highest peak
   of one core in these rounds times threads; of f32 products the roofline, where the bytes of all
   three matrices, at the rate at which so many are read again and again, take longer.
   gemm.<trans>.<m>x<n>x<k>.t<threads>; linear.dw: the weight gradient in V leaves; bf16.<trans>...:
   of bf16 operands, sums in f32; ...bare: the peer is the bare loop of bare.h, which tells how much
   of the roofline is within reach. With one thread time is the processor's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench/bare.h"
#include <dlfcn.h>

enum { ROUNDS = 15, QUICK_ROUNDS = 5, ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
static sgemm_fn peer_sgemm;
static void (*peer_threads)(int);

static void load_peer(void) {
    setenv("OPENBLAS_THREAD_TIMEOUT", "4",
           1); /* its waiting threads spin otherwise, on our cores */
    /* A release older than the processor takes it for a Prescott: name what it would run. */
    if (neo_isa_available(NEO_ISA_AVX512)) setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
    else if (neo_isa_available(NEO_ISA_AVX2)) setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        printf("# libopenblas.so.0 is not here: no peer\n");
        return;
    }
    *(void **)&peer_sgemm = dlsym(lib, "cblas_sgemm");
    *(void **)&peer_threads = dlsym(lib, "openblas_set_num_threads");
    if (!peer_threads) peer_sgemm = NULL;
    char *(*core)(void) = NULL;
    *(void **)&core = dlsym(lib, "openblas_get_corename");
    if (core) printf("# peer: OpenBLAS for %s\n", core());
}

/* What is measured: run once; flops of a run. peer may be NULL. */
typedef struct subject {
    void (*run)(void *arg);
    void (*peer)(void *arg);
    void *arg;
    double flops, bytes;   /* bytes: of a roofline; 0: there is none */
    const char *peer_name; /* NULL: openblas */
    double peer_scale;     /* its time counts so often; 0: once */
    double (*peak)(void);  /* NULL: of f32 */
} subject;

static double now_ns(int threads) {
    return threads == 1 ? 1e9 * bench_cpu_seconds() : (double)neo_time_ns();
}
static double time_of(void (*run)(void *), void *arg, int64_t repeats, int threads) {
    const double start = now_ns(threads);
    for (int64_t i = 0; i < repeats; i++) run(arg);
    return (now_ns(threads) - start) / (double)repeats;
}

/* The share of the ceiling, in percent; *times, if not NULL: the peer's time over neo's. */
static double measure(const char *name, const subject *s, int threads, double *times) {
    int rounds = bench.quick ? QUICK_ROUNDS : ROUNDS;
    double ours[ROUNDS], ratio[ROUNDS], peak = 0;
    double (*const peak_once)(void) = s->peak ? s->peak : bench_fma_once;
    s->run(s->arg);
    double once = time_of(s->run, s->arg, 3, threads);
    int64_t repeats = 1 + (int64_t)((bench.quick ? 1e6 : 3e6) / once);
    if (s->peer) time_of(s->peer, s->arg, 2, threads);
    for (int r = 0; r < rounds; r++) {
        peak = fmax(peak, peak_once());
        double a = time_of(s->run, s->arg, repeats, threads), b = 0;
        for (int i = 0; s->peer && i < 2; i++) b += time_of(s->peer, s->arg, repeats, threads);
        a += time_of(s->run, s->arg, repeats, threads);
        peak = fmax(peak, peak_once());
        ours[r] = s->flops * 2 / a;
        ratio[r] = b / a * (s->peer_scale > 0 ? s->peer_scale : 1);
    }
    const double value = bench_median(ours, rounds), beside = bench_median(ratio, rounds);
    double most = peak * threads;
    if (s->bytes > 0) {
        neo_ctx *ctx = bench_ctx(threads, 1);
        most = fmin(most, s->flops / s->bytes * bench_read_rate(ctx, (int64_t)s->bytes));
        neo_ctx_destroy(ctx);
    }
    bench_spread(ours, rounds);
    bench_report(name, value, "GFLOP/s", 100 * value / most,
                 !s->peer ? NULL : s->peer_name ? s->peer_name : "openblas", beside);
    if (times) *times = beside;
    return 100 * value / most;
}

/* ---- gemm and linear ---- */
typedef struct product {
    neo_ctx *ctx;
    int m, n, k, trans_a, trans_b;
    neo_tensor a, b, c, bias, w; /* w: of dw, of which the shape alone counts */
    bare_product bare;
} product;

static void run_gemm(void *arg) {
    product *p = (product *)arg;
    neo_gemm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.trans_a = p->trans_a, desc.trans_b = p->trans_b;
    BENCH_OK(neo_gemm(p->ctx, &desc, p->a, p->b, p->c));
}
static void run_peer(void *arg) {
    product *p = (product *)arg;
    peer_sgemm(ROW_MAJOR, p->trans_a ? TRANS : NO_TRANS, p->trans_b ? TRANS : NO_TRANS, p->m, p->n,
               p->k, 1.0f, (const float *)p->a.data, p->trans_a ? p->m : p->k,
               (const float *)p->b.data, p->trans_b ? p->k : p->n, 0.0f, (float *)p->c.data, p->n);
}
/* y = relu(x w^T + b): a is x, b is w. */
static void run_forward(void *arg) {
    product *p = (product *)arg;
    BENCH_OK(neo_linear_forward(p->ctx, p->a, p->b, p->bias, NEO_ACT_RELU, p->c));
}
static void run_bare(void *arg) {
    product *p = (product *)arg;
    bare_run(p->ctx, &p->bare);
}
/* dw = dz^T x: a is dz, b is x. */
static void run_dw(void *arg) {
    product *p = (product *)arg;
    BENCH_OK(neo_linear_backward(p->ctx, NULL, p->b, p->w, p->a, neo_tensor_none(), p->c,
                                 neo_tensor_none()));
}

/* Some elements against the chain in order of k (in V leaves the order differs: within rounding of
   double). */
static void verify(const product *p, int chain, const char *name) {
    const float *a = (const float *)p->a.data, *b = (const float *)p->b.data,
                *c = (const float *)p->c.data;
    for (int trial = 0; trial < 300; trial++) {
        int i = (int)(bench_random() % (uint32_t)p->m), j = (int)(bench_random() % (uint32_t)p->n);
        float sum = 0;
        double exact = 0, size = 0;
        for (int k = 0; k < p->k; k++) {
            float x = p->trans_a ? a[(int64_t)k * p->m + i] : a[(int64_t)i * p->k + k];
            float y = p->trans_b ? b[(int64_t)j * p->k + k] : b[(int64_t)k * p->n + j];
            sum = fmaf(x, y, sum);
            exact += (double)x * y;
            size += fabs((double)x * y);
        }
        float got = c[(int64_t)i * p->n + j];
        if (chain ? memcmp(&got, &sum, sizeof got) != 0 : !(fabs(got - exact) <= 1e-6 * size)) {
            printf("%s: [%d][%d] is %.9g, expected %.9g\n", name, i, j, (double)got, (double)sum);
            bench_fail("a result is wrong");
            return;
        }
    }
}

/* The same product's bare loop as the peer. */
static void bench_bare(char *name, subject *s, product *p, int threads) {
    const int64_t m = p->m, n = p->n, k = p->k;
    float *packed = (float *)bench_alloc((size_t)(threads * BARE_PANELS * 4));
    float *c = (float *)bench_alloc((size_t)((m + 14) * (n + 32) * 4));
    const neo_tensor own = p->c;
    double times;
    p->bare = (bare_product){.m = m,
                             .n = n,
                             .k = k,
                             .k_major = p->trans_a && !p->trans_b,
                             .a = (float *)p->a.data,
                             .b = (float *)p->b.data,
                             .c = c,
                             .packed = packed,
                             .threads = threads};
    bare_turn(&p->bare);
    s->peer = bare_of(&p->bare) ? run_bare : NULL, s->peer_name = "bare_loop";
    s->peer_scale = bare_scale(&p->bare);
    if (s->peer && bare_is_exact(&p->bare)) {
        run_bare(p);
        p->c.data = c;
        verify(p, 1, "the bare loop");
        p->c = own;
    }
    strcat(name, ".bare");
    if (s->peer) {
        const double share = measure(name, s, threads, &times);
        printf("# %s: the bare loop is at %.1f %% of the roofline\n", name, share / times);
    }
    free(packed), free(c);
}

typedef enum kind { GEMM, FORWARD, DW } kind;
static void bench_product(kind what, int m, int n, int k, int trans_a, int trans_b, int threads,
                          int shards) {
    static const char *const kinds[] = {"gemm", "linear.forward", "linear.dw"};
    char name[96];
    product p = {.ctx = bench_ctx(threads, shards),
                 .m = m,
                 .n = n,
                 .k = k,
                 .trans_a = trans_a,
                 .trans_b = trans_b};
    float *a = (float *)bench_alloc((size_t)m * (size_t)k * 4),
          *b = (float *)bench_alloc((size_t)n * (size_t)k * 4);
    float *c = (float *)bench_alloc((size_t)m * (size_t)n * 4),
          *bias = (float *)bench_alloc((size_t)n * 4);
    float *w = (float *)bench_alloc(what == DW ? (size_t)m * (size_t)n * 4 : 4);
    bench_fill(a, (int64_t)m * k), bench_fill(b, (int64_t)n * k);
    p.a = neo_tensor_2d(a, NEO_F32, trans_a ? k : m, trans_a ? m : k);
    p.b = neo_tensor_2d(b, NEO_F32, trans_b ? n : k, trans_b ? k : n);
    p.c = neo_tensor_2d(c, NEO_F32, m, n);
    p.bias = neo_tensor_1d(bias, NEO_F32, n);
    p.w = neo_tensor_2d(w, NEO_F32, m, n);
    if (what == DW)
        snprintf(name, sizeof name, "%s.V%d.%dx%dx%d.t%d", kinds[what], shards, m, n, k, threads);
    else if (what == GEMM)
        snprintf(name, sizeof name, "gemm.%c%c.%dx%dx%d.t%d", trans_a ? 't' : 'n',
                 trans_b ? 't' : 'n', m, n, k, threads);
    else snprintf(name, sizeof name, "%s.%dx%dx%d.t%d", kinds[what], m, n, k, threads);
    subject s = {.run = what == GEMM ? run_gemm : what == FORWARD ? run_forward : run_dw,
                 .peer = peer_sgemm ? run_peer : NULL, .arg = &p, .flops = 2.0 * m * n * k,
                 .bytes = 4.0 * ((double)m * k + (double)k * n + (double)m * n)};
    if (peer_threads) peer_threads(threads);
    if (what == FORWARD) run_gemm(&p);
    else s.run(&p);
    verify(&p, shards == 1, name);
    measure(name, &s, threads, NULL);
    bench_bare(name, &s, &p, threads);
    free(a), free(b), free(c), free(bias), free(w);
    neo_ctx_destroy(p.ctx);
}

/* ---- bf16 ---- */
typedef struct both {
    product narrow, wide;
} both;
static void run_narrow(void *arg) { run_gemm(&((both *)arg)->narrow); }
static void run_wide(void *arg) { run_gemm(&((both *)arg)->wide); }
static void bench_bf16(int m, int n, int k, int trans_a, int trans_b, int threads) {
    char name[96];
    both p = {.wide = {.ctx = bench_ctx(threads, 1),
                       .m = m,
                       .n = n,
                       .k = k,
                       .trans_a = trans_a,
                       .trans_b = trans_b}};
    neo_tensor *wide[3] = {&p.wide.a, &p.wide.b, &p.wide.c};
    const int64_t shape[3][2] = {
        {trans_a ? k : m, trans_a ? m : k}, {trans_b ? n : k, trans_b ? k : n}, {m, n}};
    for (int i = 0; i < 3; i++) {
        const int64_t count = shape[i][0] * shape[i][1];
        *wide[i] = neo_tensor_2d(bench_alloc((size_t)count * 4), NEO_F32, shape[i][0], shape[i][1]);
        bench_fill((float *)wide[i]->data, count);
    }
    p.narrow = p.wide;
    neo_tensor *narrow[2] = {&p.narrow.a, &p.narrow.b};
    for (int i = 0; i < 2; i++) { /* both multiply the same numbers */
        narrow[i]->dtype = NEO_BF16;
        narrow[i]->data = bench_alloc((size_t)neo_tensor_count(*wide[i]) * 2);
        BENCH_OK(neo_tensor_convert(p.wide.ctx, *wide[i], *narrow[i], NULL));
        BENCH_OK(neo_tensor_convert(p.wide.ctx, *narrow[i], *wide[i], NULL));
    }
    snprintf(name, sizeof name, "bf16.%c%c.%dx%dx%d.t%d", trans_a ? 't' : 'n', trans_b ? 't' : 'n',
             m, n, k, threads);
    run_narrow(&p);
    verify(&p.wide, 0, name); /* c of bf16 operands, the operands as f32 */
    subject s = {.run = run_narrow,
                 .peer = run_wide,
                 .arg = &p,
                 .flops = 2.0 * m * n * k,
                 .peer_name = "f32",
                 .peak = bench_bf16_once};
    measure(name, &s, threads, NULL);
    for (int i = 0; i < 3; i++) free(wide[i]->data);
    for (int i = 0; i < 2; i++) free(narrow[i]->data);
    neo_ctx_destroy(p.wide.ctx);
}

/* ---- interaction ---- */
typedef struct interaction {
    neo_ctx *ctx;
    neo_tensor x, e, z, dx, de;
} interaction;
static void run_interact_forward(void *arg) {
    interaction *p = (interaction *)arg;
    BENCH_OK(neo_interact_forward(p->ctx, 0, p->x, p->e, p->z));
}
static void run_interact_backward(void *arg) {
    interaction *p = (interaction *)arg;
    BENCH_OK(neo_interact_backward(p->ctx, 0, p->x, p->e, p->z, p->dx, p->de));
}
static void bench_interact(int dim, int threads) {
    enum { BATCH = 1024, F = 26 };
    char name[96];
    const int64_t width = neo_interact_width(dim, F, 0),
                  sizes[5] = {dim, F * dim, width, dim, F * dim};
    interaction p = {.ctx = bench_ctx(threads, 1)};
    neo_tensor *t[5] = {&p.x, &p.e, &p.z, &p.dx, &p.de};
    for (int i = 0; i < 5; i++) {
        *t[i] =
            neo_tensor_2d(bench_alloc((size_t)(BATCH * sizes[i]) * 4), NEO_F32, BATCH, sizes[i]);
        bench_fill((float *)t[i]->data, BATCH * sizes[i]);
    }
    run_interact_forward(&p);
    const float *z = (const float *)p.z.data, *e = (const float *)p.e.data;
    for (int s = 0; s < BATCH; s += 101) {
        float dot = 0; /* of the last pair, e[F - 1] . e[F - 2] */
        const float *last = e + (s + 1) * F * dim - dim;
        for (int d = 0; d < dim; d++) dot = fmaf(last[d], last[d - dim], dot);
        if (memcmp(&dot, z + (s + 1) * width - 1, sizeof dot) != 0)
            bench_fail("an interaction is wrong");
    }
    subject s = {
        .run = run_interact_forward, .arg = &p, .flops = (double)BATCH * F * (F + 1) * dim};
    snprintf(name, sizeof name, "interact.forward.%dx27x%d.t%d", (int)BATCH, dim, threads);
    measure(name, &s, threads, NULL);
    s.run = run_interact_backward;
    s.flops = 2.0 * BATCH * F * (F + 1) * dim;
    snprintf(name, sizeof name, "interact.backward.%dx27x%d.t%d", (int)BATCH, dim, threads);
    measure(name, &s, threads, NULL);
    for (int i = 0; i < 5; i++) free(t[i]->data);
    neo_ctx_destroy(p.ctx);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    load_peer();
    neo_ctx *all = bench_ctx(0, 1);
    const int most = neo_ctx_threads(all);
    neo_ctx_destroy(all);
    static const int layers[][2] = {{256, 512}, {512, 13},  {64, 256},
                                    {16, 64},   {512, 367}, {1, 256}};
    const int count = (int)(sizeof layers / sizeof *layers);
    for (int threads = 1; threads <= most;
         threads = threads < most && 2 * threads > most ? most : 2 * threads) {
        if (threads > 2 && threads < most) continue;
        bench_product(GEMM, 1024, 1024, 1024, 0, 1, threads, 1);
        bench_product(GEMM, 1024, 1024, 1024, 0, 0, threads, 1);
        bench_product(GEMM, 1024, 1024, 1024, 1, 0, threads, 1);
        if (!bench.quick) bench_product(GEMM, 2048, 2048, 2048, 0, 0, threads, 1);
        for (int trans = 0; trans < 3; trans++)
            bench_bf16(1024, 1024, 1024, trans == 2, trans == 0, threads);
        if (!bench.quick) bench_bf16(2048, 2048, 2048, 0, 0, threads);
        bench_bf16(2048, 256, 512, 0, 1, threads);
        bench_bf16(256, 512, 2048, 1, 0, threads);
        for (int batch = 128; batch <= (bench.quick ? 2048 : 16384);
             batch *= bench.quick ? 16 : batch < 2048 ? 4 : 8)
            for (int i = 0; i < count; i++) {
                const int out = layers[i][0], in = layers[i][1];
                bench_product(FORWARD, batch, out, in, 0, 1, threads, 1);
                bench_product(GEMM, batch, in, out, 0, 0, threads, 1); /* dx */
                bench_product(DW, out, in, batch, 1, 0, threads, 1);
                bench_product(DW, out, in, batch, 1, 0, threads, 8);
            }
        for (int dim = 16; dim <= 128; dim *= dim == 16 ? 4 : 2) bench_interact(dim, threads);
    }
    return bench_end();
}
