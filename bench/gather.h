/* The best plain loop of a pooled lookup, what embedding bags are measured against: no checks, bags
   of one length in one table after another, rows fetched ahead, as many sums in registers as there
   are columns up to eight vectors. */
#ifndef BENCH_GATHER_H
#define BENCH_GATHER_H

#include "bench.h"

typedef struct gather {
    const void *table; /* rows [dim] of f32, or f16 */
    int f16;
    const int64_t *ids; /* [bags][length] */
    float *out;         /* bag b at out + b * stride */
    int64_t bags, length, stride, dim;
    int64_t ahead; /* ids that rows are fetched ahead, */
    int far;       /* to the second-level cache alone */
} gather;

/* Columns from c on, COUNT vectors of WIDTH at a time. */
#define GATHER_COLUMNS(COUNT, ROW, WIDTH, VECTOR, ZERO, LOAD, ADD, STORE)                          \
    for (; c + COUNT * WIDTH <= g->dim; c += COUNT * WIDTH) {                                      \
        VECTOR sum[COUNT];                                                                         \
        _Pragma("GCC unroll 8") for (int v = 0; v < COUNT; v++) sum[v] = ZERO;                     \
        for (const int64_t *stop = id + g->length, *at = id; at < stop; at++) {                    \
            if (end - at > g->ahead) {                                                             \
                const ROW *next = table + at[g->ahead] * g->dim + c;                               \
                for (int f = 0; f < COUNT * WIDTH; f += 64 / (int)sizeof(ROW)) {                   \
                    if (g->far)                                                                    \
                        __builtin_prefetch(next + f, 0, 2);                                        \
                    else                                                                           \
                        __builtin_prefetch(next + f);                                              \
                }                                                                                  \
            }                                                                                      \
            const ROW *row = table + *at * g->dim + c;                                             \
            _Pragma("GCC unroll 8") for (int v = 0; v < COUNT; v++) sum[v] =                       \
                ADD(sum[v], LOAD(row + v * WIDTH));                                                \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int v = 0; v < COUNT; v++)                                    \
            STORE(out + c + v * WIDTH, sum[v]);                                                    \
    }
#define GATHER(NAME, TARGET, ROW, ...)                                                             \
    TARGET static void gather_##NAME(const gather *g) {                                            \
        const int64_t *id = g->ids, *end = id + g->bags * g->length;                               \
        const ROW *table = (const ROW *)g->table;                                                  \
        float *out = g->out;                                                                       \
        for (; id < end; id += g->length, out += g->stride) {                                      \
            int64_t c = 0;                                                                         \
            GATHER_COLUMNS(8, ROW, __VA_ARGS__)                                                    \
            GATHER_COLUMNS(4, ROW, __VA_ARGS__)                                                    \
            GATHER_COLUMNS(1, ROW, __VA_ARGS__)                                                    \
        }                                                                                          \
    }
#if defined(__x86_64__)
#define GATHER_AVX2 __attribute__((target("avx2,f16c")))
#define GATHER_AVX512 __attribute__((target("avx512f")))
#define GATHER_HALVES(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define GATHER_HALVES16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
GATHER(avx2, GATHER_AVX2, float, 8, __m256, _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_add_ps,
       _mm256_storeu_ps)
GATHER(avx2_f16, GATHER_AVX2, uint16_t, 8, __m256, _mm256_setzero_ps(), GATHER_HALVES,
       _mm256_add_ps, _mm256_storeu_ps)
GATHER(avx512, GATHER_AVX512, float, 16, __m512, _mm512_setzero_ps(), _mm512_loadu_ps,
       _mm512_add_ps, _mm512_storeu_ps)
GATHER(avx512_f16, GATHER_AVX512, uint16_t, 16, __m512, _mm512_setzero_ps(), GATHER_HALVES16,
       _mm512_add_ps, _mm512_storeu_ps)
#elif defined(__aarch64__)
#define GATHER_HALVES(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
GATHER(neon, , float, 4, float32x4_t, vdupq_n_f32(0), vld1q_f32, vaddq_f32, vst1q_f32)
GATHER(neon_f16, , uint16_t, 4, float32x4_t, vdupq_n_f32(0), GATHER_HALVES, vaddq_f32, vst1q_f32)
#endif
#define GATHER_LOAD(p) (*(p))
#define GATHER_ADD(a, b) ((a) + (b))
#define GATHER_STORE(p, v) (*(p) = (v))
GATHER(plain, , float, 1, float, 0.0f, GATHER_LOAD, GATHER_ADD, GATHER_STORE)

/* Whether there is a loop for such rows: of f32 always (dim of whole vectors), of f16 where
   instructions convert them. */
static inline int gather_possible(const gather *g) {
    const int vector = neo_isa_available(NEO_ISA_AVX512) ? 16
                       : neo_isa_available(NEO_ISA_AVX2) ? 8
                                                         : 4;
    return g->dim % vector == 0 && (!g->f16 || vector > 4 || neo_isa_available(NEO_ISA_NEON));
}
static inline void gather_run(const gather *g) {
#if defined(__x86_64__)
    if (neo_isa_available(NEO_ISA_AVX512)) (g->f16 ? gather_avx512_f16 : gather_avx512)(g);
    else if (neo_isa_available(NEO_ISA_AVX2)) (g->f16 ? gather_avx2_f16 : gather_avx2)(g);
    else gather_plain(g);
#elif defined(__aarch64__)
    (g->f16 ? gather_neon_f16 : gather_neon)(g);
#else
    gather_plain(g);
#endif
}

/* Sets how far ahead rows are best fetched, by running `run` some times for each distance. */
static inline void gather_choose(gather *g, void (*run)(void *subject), void *subject) {
    static const int ahead[] = {8, 12, 16, 24, 32, 48, 64, 96};
    const int count = (int)(sizeof ahead / sizeof *ahead);
    double best = 1e18;
    gather chosen = *g;
    for (int i = 0; i < 2 * count; i++) {
        g->ahead = ahead[i / 2], g->far = i % 2;
        for (int k = 0; k < 2; k++) {
            const int64_t start = neo_time_ns();
            run(subject);
            const double time = (double)(neo_time_ns() - start);
            if (time < best) best = time, chosen = *g;
        }
    }
    g->ahead = chosen.ahead, g->far = chosen.far;
}
#endif
