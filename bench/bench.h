/* bench.h: what the benches share: arguments, timing, medians, ceilings, the output line.

   A bench program:
     int main(int argc, char **argv) {
         bench_begin(argc, argv);
         ... verify the result, then measure; for each figure:
         bench_report("gemm", flops, "GFLOP/s", 100 * flops / peak, "openblas", flops / theirs);
         return bench_end();
     }
   Arguments every bench takes:  --threads N   --json FILE   --quick
   Each figure is one line,
     bench <name> value=<x> unit=<u> ceiling=<percent> [peer=<name> ratio=<x>] [spread=<percent>]
   (ratio > 1: neo is faster), and with --json one JSON object per line appended to FILE. A share
   above 100 % of a ceiling by more than the spread says that the ceiling is not the best there is,
   or that others used the machine: a line says so. Only what is wrong fails. */
#ifndef NEO_BENCH_H
#define NEO_BENCH_H

#include "../neo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static struct {
    int threads;      /* --threads; 0: all cores */
    const char *json; /* --json; NULL: none */
    int quick;        /* --quick: fewer repeats and shapes */
    int failed;
    double spread; /* of the next figure, percent; negative: unknown */
    double most;   /* percent of its ceiling that the next figure may have; 0: 100 */
} bench = {0, NULL, 0, 0, -1.0, 0.0};

static inline void bench_fail(const char *what) {
    printf("bench FAILED: %s\n", what);
    fflush(stdout);
    bench.failed = 1;
}

/* Leaves the function with what a call returns, if it is not NEO_OK. */
#define BENCH_TRY(call)                                                                            \
    do {                                                                                           \
        neo_status bench_status = (call);                                                          \
        if (bench_status != NEO_OK) return bench_status;                                           \
    } while (0)
/* Leaves the program when a call that must work does not. */
#define BENCH_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) != NEO_OK) {                                                                    \
            printf("bench FAILED: %s: %s\n", #call, neo_last_error());                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void bench_begin(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            bench.quick = 1;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            bench.threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            bench.json = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--threads N] [--json FILE] [--quick]\n", argv[0]);
            exit(2);
        }
    }
}
static inline int bench_end(void) { return bench.failed; }

/* A context on the given number of threads (0: as --threads says), best instruction set. */
static inline neo_ctx *bench_ctx(int threads, int repro_shards) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = threads ? threads : bench.threads;
    desc.repro_shards = repro_shards;
    desc.seed = 1;
    neo_ctx *ctx = NULL;
    BENCH_OK(neo_ctx_create(&desc, &ctx));
    return ctx;
}

/* Seconds: CPU time of this thread, which others on the machine hardly disturb. */
static inline double bench_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static inline double bench_process_seconds(void) { /* of CPU, of all threads */
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- threads that the machine may lack: a clock of lists of tasks ----
   Tasks run one after another on one thread, in CPU time; each counts for the thread that is free
   first, so that a parallel loop takes as long as its longest list. What threads wait for, a start,
   a bus that they share, is not in it. One such context at a time. */
enum { BENCH_LISTS = 64 };
static struct {
    int threads;
    double saved, tick; /* seconds: of the threads beside the longest; of a look at the clock */
    double work, longest; /* seconds so far: of all tasks; of the longest list of each loop */
} bench_lists;
static inline void bench_lists_run(int64_t count, neo_task_fn task, void *arg, void *user) {
    const double begin = bench_cpu_seconds();
    double list[BENCH_LISTS] = {0}, longest = 0;
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        int to = 0;
        for (int k = 1; k < bench_lists.threads; k++)
            if (list[k] < list[to]) to = k;
        const double start = bench_cpu_seconds();
        task(arg, i, to);
        const double took = fmax(bench_cpu_seconds() - start - bench_lists.tick, 0);
        list[to] += took, bench_lists.work += took;
        longest = fmax(longest, list[to]);
    }
    bench_lists.longest += longest;
    bench_lists.saved += bench_cpu_seconds() - begin + bench_lists.tick - longest;
}
static inline int64_t bench_lists_ns(void *user) {
    (void)user;
    return (int64_t)(1e9 * (bench_cpu_seconds() - bench_lists.saved));
}
static inline neo_ctx *bench_lists_ctx(int threads, int repro_shards) {
    neo_ctx_desc desc;
    neo_ctx *ctx = NULL;
    memset(&desc, 0, sizeof desc);
    memset(&bench_lists, 0, sizeof bench_lists);
    bench_lists.threads = desc.threads = threads < BENCH_LISTS ? threads : BENCH_LISTS;
    desc.repro_shards = repro_shards;
    desc.seed = 1;
    desc.executor.run = bench_lists_run;
    desc.executor.time_ns = bench_lists_ns;
    const double start = bench_cpu_seconds();
    for (int i = 0; i < 1000; i++) bench_lists.tick = (bench_cpu_seconds() - start) / (i + 1);
    BENCH_OK(neo_ctx_create(&desc, &ctx));
    return ctx;
}
/* The clock of a context; of one thread its CPU time. */
static inline double bench_seconds(const neo_ctx *ctx) {
    return neo_ctx_threads(ctx) == 1 ? bench_cpu_seconds() : (double)neo_ctx_time_ns(ctx) * 1e-9;
}

#if defined(__linux__) && !defined(__cplusplus) && !defined(MADV_HUGEPAGE)
extern int madvise(void *begin, size_t size, int advice); /* hidden under _POSIX_C_SOURCE */
#endif
/* Zeros; large blocks in huge pages where the system gives them on request, as of a context. */
static inline void *bench_alloc(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;
    if (posix_memalign(&p, bytes >= huge ? huge : 64, bytes ? bytes : 1) != 0) {
        printf("bench FAILED: no memory for %zu bytes\n", bytes);
        exit(1);
    }
#if defined(__linux__)
    if (bytes >= huge) (void)madvise(p, bytes / huge * huge, 14); /* MADV_HUGEPAGE */
#endif
    memset(p, 0, bytes);
    return p;
}

/* A plain generator for test data; uniform in [-1, 1). */
static uint64_t bench_seed = 1;
static inline uint32_t bench_random(void) {
    bench_seed = bench_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(bench_seed >> 33);
}
static inline void bench_fill(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)bench_random() / 1073741824.0f - 1.0f;
}

static inline int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* bench_median: sorts v. bench_quantile: of a sorted v, q in [0, 1]. */
static inline double bench_quantile(const double *v, int n, double q) {
    double at = q * (n - 1);
    int i = (int)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}
static inline double bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, bench_compare);
    return bench_quantile(v, n, 0.5);
}
/* The distance of the quartiles of a sorted v, in percent of its median; shown with the next
   figure. */
static inline double bench_spread(const double *v, int n) {
    double median = bench_quantile(v, n, 0.5);
    bench.spread =
        median > 0 ? 100.0 * (bench_quantile(v, n, 0.75) - bench_quantile(v, n, 0.25)) / median : 0;
    return bench.spread;
}

/* One figure. ceiling_percent < 0: there is none. peer NULL: there is none. */
static inline void bench_report(const char *name, double value, const char *unit,
                                double ceiling_percent, const char *peer, double ratio) {
    char ceiling[32] = "none";
    double noise = bench.spread > 1.0 ? bench.spread : 1.0; /* percent */
    if (ceiling_percent >= 0) snprintf(ceiling, sizeof ceiling, "%.1f", ceiling_percent);
    printf("bench %s value=%.4g unit=%s ceiling=%s", name, value, unit, ceiling);
    if (peer) printf(" peer=%s ratio=%.3f", peer, ratio);
    if (bench.spread >= 0) printf(" spread=%.1f", bench.spread);
    printf("\n");
    fflush(stdout);
    if (ceiling_percent > (bench.most > 0 ? bench.most : 100.0) + noise)
        printf("# %s: at %.1f %% of its ceiling, not the best then, or others used the machine\n",
               name, ceiling_percent);
    /* Far above it a kernel leaves out work, or the ceiling is none. */
    if (!isfinite(value) || ceiling_percent > 200) bench_fail(name);
    FILE *f = bench.json ? fopen(bench.json, "a") : NULL;
    if (bench.json && !f) bench_fail("cannot append to the --json file");
    if (f) {
        fprintf(f, "{\"bench\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"", name, value, unit);
        if (ceiling_percent >= 0) fprintf(f, ",\"ceiling\":%.2f", ceiling_percent);
        if (peer) fprintf(f, ",\"peer\":\"%s\",\"ratio\":%.4f", peer, ratio);
        if (bench.spread >= 0) fprintf(f, ",\"spread\":%.2f", bench.spread);
        fprintf(f, "}\n");
        fclose(f);
    }
    bench.spread = -1.0;
    bench.most = 0.0;
}

/* ---- ceiling: fused multiply-adds of one core ----
   24 independent chains held in registers (latency 4 x 2 units needs 8). The empty asm keeps each
   in its register and the loop in place. Returns multiply-adds done. */
#define BENCH_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#if defined(__x86_64__)
#define BENCH_STEP512(i) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(c##i) : "v"(x), "v"(y));
__attribute__((target("avx512f"))) static double bench_fma_avx512(int64_t loops, float *sink) {
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f), s = y;
#define BENCH_DECLARE(i) __m512 c##i = y;
    BENCH_CHAINS(BENCH_DECLARE)
#undef BENCH_DECLARE
    for (int64_t i = 0; i < loops; i++) { BENCH_CHAINS(BENCH_STEP512) BENCH_CHAINS(BENCH_STEP512) }
#define BENCH_SUM(i) s = _mm512_add_ps(s, c##i);
    BENCH_CHAINS(BENCH_SUM)
#undef BENCH_SUM
    *sink += _mm512_cvtss_f32(s);
    return (double)loops * 24 * 16;
}
__attribute__((target("avx2,fma"))) static double bench_fma_avx2(int64_t loops, float *sink) {
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f), s = y;
#define BENCH_DECLARE(i) __m256 c##i = y;
    BENCH_CHAINS(BENCH_DECLARE)
#undef BENCH_DECLARE
    for (int64_t i = 0; i < loops; i++) { BENCH_CHAINS(BENCH_STEP512) BENCH_CHAINS(BENCH_STEP512) }
#define BENCH_SUM(i) s = _mm256_add_ps(s, c##i);
    BENCH_CHAINS(BENCH_SUM)
#undef BENCH_SUM
    *sink += _mm256_cvtss_f32(s);
    return (double)loops * 24 * 8;
}
#elif defined(__aarch64__)
static double bench_fma_neon(int64_t loops, float *sink) {
    float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(1e-3f), s = y;
#define BENCH_DECLARE(i) float32x4_t c##i = y;
    BENCH_CHAINS(BENCH_DECLARE)
#undef BENCH_DECLARE
#define BENCH_STEP(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(c##i) : "w"(x), "w"(y));
    for (int64_t i = 0; i < loops; i++) { BENCH_CHAINS(BENCH_STEP) BENCH_CHAINS(BENCH_STEP) }
#undef BENCH_STEP
#define BENCH_SUM(i) s = vaddq_f32(s, c##i);
    BENCH_CHAINS(BENCH_SUM)
#undef BENCH_SUM
    *sink += vgetq_lane_f32(s, 0);
    return (double)loops * 24 * 4;
}
#endif
static double bench_fma_scalar(int64_t loops, float *sink) {
    float x = 0.999f, y = 1e-3f, s = y;
#define BENCH_DECLARE(i) float c##i = y;
    BENCH_CHAINS(BENCH_DECLARE)
#undef BENCH_DECLARE
    for (int64_t n = 0; n < loops; n++) {
#define BENCH_STEP(i) c##i = c##i * x + y;
        BENCH_CHAINS(BENCH_STEP)
#undef BENCH_STEP
    }
#define BENCH_SUM(i) s += c##i;
    BENCH_CHAINS(BENCH_SUM)
#undef BENCH_SUM
    *sink += s;
    return (double)loops * 12;
}

/* bench_fmas: so many loops; the multiply-adds done. bench_fma_once: GFLOP/s of one core in one
   burst of about 2 ms. bench_fma_peak: the best of 9 bursts. Measure bursts next to what they are
   compared with: a shared machine's clock moves. */
static inline double bench_fmas(int64_t loops) {
    static float sink;
    (void)bench_fma_scalar;
#if defined(__x86_64__)
    if (neo_isa_available(NEO_ISA_AVX512)) return bench_fma_avx512(loops, &sink);
    if (neo_isa_available(NEO_ISA_AVX2)) return bench_fma_avx2(loops, &sink);
    return bench_fma_scalar(loops, &sink);
#elif defined(__aarch64__)
    return bench_fma_neon(loops, &sink);
#else
    return bench_fma_scalar(loops, &sink);
#endif
}
static inline double bench_fma_once(void) {
    const double start = bench_cpu_seconds(), fmas = bench_fmas(400000);
    return 2e-9 * fmas / (bench_cpu_seconds() - start);
}
static inline double bench_fma_peak(void) {
    double best = 0;
    for (int i = 0; i < 9; i++) {
        double once = bench_fma_once();
        if (once > best) best = once;
    }
    return best;
}

/* bench_bf16_once: the same of what neo multiplies bf16 with: AMX's tiles, vdpbf16ps, or else f32.
   */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static double bench_bf16_avx512(int64_t loops) {
    __m512 x = _mm512_setzero_ps(), y = x; /* zeros: the time does not depend on it */
#define BENCH_DECLARE(i) __m512 c##i = x;
    BENCH_CHAINS(BENCH_DECLARE)
#undef BENCH_DECLARE
#define BENCH_STEP(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(c##i) : "v"(x), "v"(y));
    for (int64_t i = 0; i < loops; i++) { BENCH_CHAINS(BENCH_STEP) BENCH_CHAINS(BENCH_STEP) }
#undef BENCH_STEP
    return (double)loops * 24 * 32;
}
static double bench_bf16_amx(int64_t loops) {
    unsigned char config[64] = {1};
    for (int i = 0; i < 8; i++) config[16 + 2 * i] = 64, config[48 + i] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(config)); /* tiles are zero */
    for (int64_t i = 0; i < loops; i++)
        __asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
                         "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
                         "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
                         "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" : : : "memory");
    __asm__ volatile("tilerelease");
    return (double)loops * 4 * 16 * 16 * 32;
}
#endif
static inline double bench_bf16_once(void) {
#if defined(__x86_64__)
    const int amx = neo_isa_available(NEO_ISA_AMX);
    if (amx || neo_isa_available(NEO_ISA_AVX512BF16)) {
        int64_t start = neo_time_ns();
        double fmas = amx ? bench_bf16_amx(60000) : bench_bf16_avx512(200000);
        return 2.0 * fmas / (double)(neo_time_ns() - start);
    }
#endif
    return bench_fma_once();
}

/* ---- ceiling: reading memory ----
   GB/s at which the context's threads together read a working set of `bytes`, again and again, the
   best of 25 short bursts: what its place in the caches allows. */
typedef struct bench_read_job {
    const char *data;
    int64_t piece, passes;
} bench_read_job;
#define BENCH_READ(NAME, TARGET, WORD, SIZE, C)                                                    \
    TARGET static void bench_read_##NAME(const char *p, int64_t bytes) {                           \
        for (const char *end = p + bytes - 8 * SIZE; p <= end; p += 8 * SIZE)                      \
            _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {                                  \
                const WORD x = *(const WORD *)(const void *)(p + i * SIZE);                        \
                __asm__ volatile("" : : C(x));                                                     \
            }                                                                                      \
    }
#if defined(__x86_64__)
BENCH_READ(avx512, __attribute__((target("avx512f"))), __m512i, 64, "v")
BENCH_READ(avx2, __attribute__((target("avx2"))), __m256i, 32, "x")
#endif
BENCH_READ(plain, , uint64_t, 8, "r")
static inline void bench_read_task(void *arg, int64_t i, int worker) {
    const bench_read_job *j = (const bench_read_job *)arg;
    void (*read)(const char *, int64_t) = bench_read_plain;
    (void)worker;
#if defined(__x86_64__)
    if (neo_isa_available(NEO_ISA_AVX2)) read = bench_read_avx2;
    if (neo_isa_available(NEO_ISA_AVX512)) read = bench_read_avx512;
#endif
    for (int64_t k = 0; k < j->passes; k++) read(j->data + i * j->piece, j->piece);
}
static inline double bench_read_rate(neo_ctx *ctx, int64_t bytes) {
    const int threads = neo_ctx_threads(ctx);
    const int64_t piece = bytes / threads / 64 * 64;
    bench_read_job j = {(char *)bench_alloc((size_t)bytes), piece, 1 + 6000000 / bytes};
    double best = 0;
    for (int i = 0; i < 25; i++) {
        const double start = bench_seconds(ctx);
        neo_parallel_for(ctx, threads, bench_read_task, &j);
        const double rate = (double)(piece * threads * j.passes) / (bench_seconds(ctx) - start);
        if (rate > best) best = rate;
    }
    free((void *)(uintptr_t)j.data);
    return best / 1e9;
}

#endif
