/* avx512_on_cpu.h: AVX-512's intrinsics where there is no AVX-512: SIMDe's in plain C, and here
   those that it lacks, or rounds twice. avx512.sh compiles the AVX-512 kernels of neo.h with it. */
#ifndef NEO_AVX512_ON_CPU_H
#define NEO_AVX512_ON_CPU_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* The two halves of a vector of 64 bytes. */
typedef struct halves { __m256 low, high; } halves;
static inline halves on_cpu_halves(simde__m512 v) {
    halves h;
    memcpy(&h, &v, sizeof h);
    return h;
}
static inline simde__m512 on_cpu_join(__m256 low, __m256 high) {
    const halves h = {low, high};
    simde__m512 v;
    memcpy(&v, &h, sizeof v);
    return v;
}
static inline simde__m512 on_cpu_fmadd(simde__m512 x, simde__m512 y, simde__m512 z) {
    const halves a = on_cpu_halves(x), b = on_cpu_halves(y), c = on_cpu_halves(z);
    return on_cpu_join(_mm256_fmadd_ps(a.low, b.low, c.low),
                       _mm256_fmadd_ps(a.high, b.high, c.high));
}
static inline simde__m512 on_cpu_fnmadd(simde__m512 x, simde__m512 y, simde__m512 z) {
    const halves a = on_cpu_halves(x), b = on_cpu_halves(y), c = on_cpu_halves(z);
    return on_cpu_join(_mm256_fnmadd_ps(a.low, b.low, c.low),
                       _mm256_fnmadd_ps(a.high, b.high, c.high));
}
static inline __m256 on_cpu_half(simde__m512 v, int high) {
    const halves h = on_cpu_halves(v);
    return high ? h.high : h.low;
}
static inline simde__m512i on_cpu_round(simde__m512 v) {
    const halves h = on_cpu_halves(v);
    const __m256i i[2] = {_mm256_cvtps_epi32(h.low), _mm256_cvtps_epi32(h.high)};
    simde__m512i r;
    memcpy(&r, i, sizeof r);
    return r;
}
static inline simde__m512 on_cpu_from_half(__m256i v) {
    __m128i h[2];
    memcpy(h, &v, sizeof h);
    return on_cpu_join(_mm256_cvtph_ps(h[0]), _mm256_cvtph_ps(h[1]));
}
static inline __m256i on_cpu_to_half(simde__m512 v) {
    const halves f = on_cpu_halves(v);
    const __m128i h[2] = {_mm256_cvtps_ph(f.low, 0), _mm256_cvtps_ph(f.high, 0)};
    __m256i r;
    memcpy(&r, h, sizeof r);
    return r;
}
/* An operation that takes `count` elements of one type to another. */
#define ON_CPU_CONVERT(name, to_vector, to, from_vector, from, count)                              \
    static inline to_vector name(from_vector v) {                                                  \
        from x[count];                                                                             \
        to y[count];                                                                               \
        to_vector r = {0};                                                                         \
        memcpy(x, &v, sizeof x);                                                                   \
        for (int i = 0; i < (count); i++) y[i] = (to)x[i];                                         \
        memcpy(&r, y, sizeof y);                                                                   \
        return r;                                                                                  \
    }
ON_CPU_CONVERT(on_cpu_to_16, __m256i, int16_t, simde__m512i, int32_t, 16)
ON_CPU_CONVERT(on_cpu_to_8, __m128i, int8_t, simde__m512i, int32_t, 16)
ON_CPU_CONVERT(on_cpu_from_8, simde__m512i, int32_t, __m128i, int8_t, 16)
ON_CPU_CONVERT(on_cpu_from_16, simde__m512i, uint32_t, __m256i, uint16_t, 16)
ON_CPU_CONVERT(on_cpu_from_32, simde__m512i, uint64_t, __m256i, uint32_t, 8)
ON_CPU_CONVERT(on_cpu_64_to_8, __m128i, int8_t, simde__m512i, int64_t, 8)
#undef ON_CPU_CONVERT
/* Elements of `size` bytes whose bit of the mask is set; no other is touched. */
static inline void on_cpu_copy(void *to, unsigned mask, const void *from, size_t size, int count) {
    for (int i = 0; i < count; i++)
        if (mask >> i & 1) memcpy((char *)to + i * size, (const char *)from + i * size, size);
}
static inline void on_cpu_store(void *p, unsigned mask, simde__m512 v) {
    on_cpu_copy(p, mask, &v, 4, 16);
}
static inline simde__m512 on_cpu_load(unsigned mask, const void *p) {
    simde__m512 v = {0};
    on_cpu_copy(&v, mask, p, 4, 16);
    return v;
}
static inline void on_cpu_store_64(void *p, unsigned mask, simde__m512i v) {
    on_cpu_copy(p, mask, &v, 8, 8);
}
static inline simde__m512i on_cpu_load_64(unsigned mask, const void *p) {
    simde__m512i v = {0};
    on_cpu_copy(&v, mask, p, 8, 8);
    return v;
}
/* A bit for each pair of numbers that are different, or the first of which is below the second. */
#define ON_CPU_COMPARE(name, operator)                                                             \
    static inline unsigned name(simde__m512i a, simde__m512i b) {                                  \
        uint64_t x[8], y[8];                                                                       \
        unsigned mask = 0;                                                                         \
        memcpy(x, &a, sizeof x);                                                                   \
        memcpy(y, &b, sizeof y);                                                                   \
        for (int i = 0; i < 8; i++) mask |= (unsigned)(x[i] operator y[i]) << i;                   \
        return mask;                                                                               \
    }
ON_CPU_COMPARE(on_cpu_differ_64, !=)
ON_CPU_COMPARE(on_cpu_below_64, <)
#undef ON_CPU_COMPARE
static inline simde__m512i on_cpu_gather(simde__m512i old, unsigned mask, simde__m512i at,
                                            const void *from) {
    int64_t i[8];
    memcpy(i, &at, sizeof i);
    for (int k = 0; k < 8; k++)
        if (mask >> k & 1) memcpy((char *)&old + 8 * k, (const char *)from + 8 * i[k], 8);
    return old;
}
static inline simde__m512i on_cpu_shuffle(simde__m512i old, unsigned mask, simde__m512i v,
                                          int order) {
    uint32_t x[16], y[16];
    memcpy(x, &v, sizeof x);
    for (int i = 0; i < 16; i++) y[i] = x[(i & ~3) + (order >> 2 * (i & 3) & 3)];
    on_cpu_copy(&old, mask, y, 4, 16);
    return old;
}

#undef _mm512_stream_ps
#define _mm512_stream_ps(p, v) _mm512_storeu_ps(p, v)
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps on_cpu_fmadd
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps on_cpu_fnmadd
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd(v, high) ((__m256d)on_cpu_half((simde__m512)(v), high))
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 on_cpu_round
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps on_cpu_from_half
#undef _mm512_maskz_cvtps_ph
#define _mm512_maskz_cvtps_ph(mask, v, rounding) on_cpu_to_half(v) /* to nearest, all of it */
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 on_cpu_to_16
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 on_cpu_to_8
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 on_cpu_from_8
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 on_cpu_from_16
#undef _mm512_cvtepu32_epi64
#define _mm512_cvtepu32_epi64 on_cpu_from_32
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps on_cpu_store
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps on_cpu_load
#undef _mm512_mask_storeu_epi64
#define _mm512_mask_storeu_epi64 on_cpu_store_64
#undef _mm512_maskz_loadu_epi64
#define _mm512_maskz_loadu_epi64 on_cpu_load_64
#undef _mm512_cmplt_epu64_mask
#define _mm512_cmplt_epu64_mask on_cpu_below_64
#undef _mm512_cmpneq_epi64_mask
#define _mm512_cmpneq_epi64_mask on_cpu_differ_64
#undef _mm512_mask_i64gather_epi64
#define _mm512_mask_i64gather_epi64(old, mask, at, from, bytes) on_cpu_gather(old, mask, at, from)
#undef _mm512_cvtepi64_epi8
#define _mm512_cvtepi64_epi8 on_cpu_64_to_8
#undef _mm512_mask_shuffle_epi32
#define _mm512_mask_shuffle_epi32 on_cpu_shuffle

#endif
