/* bare.h: what products cost at the least on this machine: loops that make as many multiply-adds
   and read and write the same matrices, and do as little else as they can.

     tiles    C by 14 x 32 or, of up to 16 columns, 14 x 16: as many whole tiles as come nearest,
              and bare_scale to count for the product. Operands are packed already: rows of A in
              the first-level cache, panels of B for up to 512 k in the second. A and B are fetched
              once where they lie, and C for every 512 k, in order, while tiles are multiplied. No
              packing, no edges
     rows     of up to 16 k: C row by row, B in the first-level cache
     dots, outer, sums   of one column, one k or one row: the sums themselves, in order of k
     passes   C += A B element by element, by whole lines, pages ahead fetched

   Threads divide rows of tiles, or panels. */
#ifndef NEO_BENCH_BARE_H
#define NEO_BENCH_BARE_H

#include "bench.h"

enum {
    BARE_ROWS = 14,
    BARE_DEPTH = 512,      /* k of a segment */
    BARE_PANELS = 1 << 18, /* floats of panels: 1 MiB */
    BARE_SHALLOW = 16,     /* up to so many k C is written row by row */
    BARE_FAR = 1 << 21,    /* floats: operands of 8 MiB come from memory */
    BARE_STREAM = 1 << 23  /* C of 32 MiB goes past the caches */
};
/* c [m][n] = a b; a is [m][k], b [k][n]. k_major: a is [k][m]; of one column b is [k]. Behind the
   matrices there is room for another tile. packed: BARE_PANELS floats, not NaN, for each thread. */
typedef struct bare_product {
    int64_t m, n, k;
    int k_major, interacts; /* interacts: 1, or 2 backward; see bare_interact */
    int passes;             /* a and b are [m][n]; k is 1 */
    int64_t beside;         /* floats that tiles fetch besides, behind a */
    float *a, *b, *c, *packed;
    int threads;
} bare_product;

#if defined(__x86_64__)
#define BARE_TARGET __attribute__((target("avx512f")))
#define BARE_UNROLL _Pragma("GCC unroll 4")
#define BARE_FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)

/* ---- tiles ---- */
typedef struct bare_tile {
    int64_t k, c_row;
    int adds; /* to c */
    const float *a, *b;
    float *c;
    const char *at[3]; /* what is fetched, so many bytes a k */
    int64_t step[3];
} bare_tile;
#define BARE_EACH_ROW _Pragma("GCC unroll 14") for (int r = 0; r < BARE_ROWS; r++)
#define BARE_EACH_FETCH _Pragma("GCC unroll 3") for (int i = 0; i < 3; i++)
BARE_TARGET static inline __attribute__((always_inline)) void
bare_tile_of(const bare_tile *t, const int vecs, const int lines) {
    const int64_t c_row = t->c_row, step[3] = {t->step[0], t->step[1], t->step[2]};
    const char *at[3] = {t->at[0], t->at[1], t->at[2]};
    const float *a = t->a, *b = t->b;
    float *c = t->c;
    __m512 c0[BARE_ROWS], c1[BARE_ROWS];
    BARE_EACH_ROW {
        c0[r] = t->adds ? _mm512_loadu_ps(c + r * c_row) : _mm512_setzero_ps();
        if (vecs > 1)
            c1[r] = t->adds ? _mm512_loadu_ps(c + r * c_row + 16) : _mm512_setzero_ps();
    }
    for (int64_t k = t->k; k > 0; k--, a += BARE_ROWS, b += 16 * vecs) {
        const __m512 b0 = _mm512_loadu_ps(b), b1 = vecs > 1 ? _mm512_loadu_ps(b + 16) : b0;
        BARE_EACH_FETCH {
            BARE_FETCH(at[i]);
            if (lines > 1) BARE_FETCH(at[i] + 64);
            at[i] += step[i];
        }
        BARE_EACH_ROW {
            const __m512 x = _mm512_set1_ps(a[r]);
            c0[r] = _mm512_fmadd_ps(x, b0, c0[r]);
            if (vecs > 1) c1[r] = _mm512_fmadd_ps(x, b1, c1[r]);
        }
    }
    BARE_EACH_ROW {
        _mm512_storeu_ps(c + r * c_row, c0[r]);
        if (vecs > 1) _mm512_storeu_ps(c + r * c_row + 16, c1[r]);
    }
}
BARE_TARGET static void bare_tile_1(const bare_tile *t) { bare_tile_of(t, 1, 1); }
BARE_TARGET static void bare_tile_1_2(const bare_tile *t) { bare_tile_of(t, 1, 2); }
BARE_TARGET static void bare_tile_2(const bare_tile *t) { bare_tile_of(t, 2, 1); }
BARE_TARGET static void bare_tile_2_2(const bare_tile *t) { bare_tile_of(t, 2, 2); }
static inline void bare_tile_run(const bare_tile *t, int64_t vecs) {
    const int twice = t->step[0] > 64 || t->step[1] > 64 || t->step[2] > 64;
    if (vecs > 1) (twice ? bare_tile_2_2 : bare_tile_2)(t);
    else (twice ? bare_tile_1_2 : bare_tile_1)(t);
}
static inline int64_t bare_parts(int64_t count, int64_t size) {
    return count > size / 2 ? (count + size / 2) / size : 1;
}
static void bare_tiles(const bare_product *p, int thread) {
    static float rows[BARE_ROWS * BARE_DEPTH];
    const int64_t vecs = p->n > 16 ? 2 : 1, width = 16 * vecs, segments = (p->k + 511) / BARE_DEPTH;
    const int64_t tiles = bare_parts(p->m, BARE_ROWS), panels = bare_parts(p->n, width);
    const int by_rows = tiles >= panels;
    const int64_t t0 = by_rows ? tiles * thread / p->threads : 0,
                  t1 = by_rows ? tiles * (thread + 1) / p->threads : tiles,
                  p0 = by_rows ? 0 : panels * thread / p->threads,
                  p1 = by_rows ? panels : panels * (thread + 1) / p->threads;
    const int64_t calls = segments * (t1 - t0) * (p1 - p0);
    bare_tile t = {.k = p->k / segments, .c_row = p->n, .a = rows};
    /* bytes of A, B and C a call: of a segment's C and of the thread's own part */
    const int64_t part = by_rows ? t1 - t0 : p1 - p0, whole = by_rows ? tiles : panels;
    const int64_t rows_a = p->m + p->beside / p->k;
    const int64_t mine = 4 * p->k * (by_rows ? rows_a : p->n) * part / whole,
                  shared = 4 * p->k * (by_rows ? p->n : rows_a), c = 4 * p->m * p->n / whole * part;
    const int64_t bytes[3] = {(by_rows ? mine : shared) / (calls > 0 ? calls : 1),
                              (by_rows ? shared : mine) / (calls > 0 ? calls : 1),
                              c * segments / (calls > 0 ? calls : 1)};
    for (int i = 0; i < 3; i++) t.step[i] = (bytes[i] + t.k - 1) / t.k;
    t.at[0] = (const char *)p->a + (by_rows ? 4 * p->k * p->m / tiles * t0 : 0);
    t.at[1] = (const char *)p->b + (by_rows ? 0 : 4 * p->k * p->n / panels * p0);
    const float *packed = p->packed + thread * BARE_PANELS;
    for (int64_t s = 0; s < segments; s++) {
        t.at[2] = (const char *)(p->c + (by_rows ? t0 * BARE_ROWS * p->n : 0)) + bytes[2];
        t.adds = s > 0;
        for (int64_t row = t0; row < t1; row++)
            for (int64_t panel = p0; panel < p1; panel++) {
                t.b = packed + panel * width * t.k % (BARE_PANELS - width * BARE_DEPTH);
                t.c = p->c + row * BARE_ROWS * p->n + panel * width;
                bare_tile_run(&t, vecs);
                for (int i = 0; i < 3; i++) t.at[i] += bytes[i];
            }
    }
}
/* C row by row, 128 columns at a time. */
BARE_TARGET static void bare_rows(const bare_product *p, int thread) {
    const int64_t end = p->m * (thread + 1) / p->threads;
    const int streams = p->m * p->n >= BARE_STREAM && p->n % 16 == 0;
    for (int64_t i = p->m * thread / p->threads; i < end; i++)
        for (int64_t j = 0; j + 128 <= p->n; j += 128) {
            float *c = p->c + i * p->n + j;
            __m512 sum[8];
#define BARE_EIGHT _Pragma("GCC unroll 8") for (int v = 0; v < 8; v++)
            BARE_EIGHT sum[v] = _mm512_setzero_ps();
            for (int64_t k = 0; k < p->k; k++) {
                const __m512 x = _mm512_set1_ps(p->a[i * p->k + k]);
                BARE_EIGHT sum[v] =
                    _mm512_fmadd_ps(x, _mm512_loadu_ps(p->packed + k * p->n + j + 16 * v), sum[v]);
            }
            if (streams) BARE_EIGHT _mm512_stream_ps(c + 16 * v, sum[v]);
            else BARE_EIGHT _mm512_storeu_ps(c + 16 * v, sum[v]);
        }
    if (streams) _mm_sfence();
}

/* ---- the dot interaction of 27 rows: p is of [batch] samples, m; [27][n] rows, a; their products
   and n more, c; back: the rows' gradients, c, from them, b ---- */
enum { BARE_VECTORS = 27 };
static inline int64_t bare_pairs(int64_t dim) {
    return dim + BARE_VECTORS * (BARE_VECTORS - 1) / 2;
}
static void bare_interact(const bare_product *p, int thread) {
    static float rows[BARE_ROWS * BARE_DEPTH];
    const int64_t dim = p->n, floats = BARE_VECTORS * dim, end = p->m * (thread + 1) / p->threads;
    bare_tile t = {.k = dim, .a = rows, .b = p->packed + thread * BARE_PANELS};
    t.step[0] = 2 * BARE_VECTORS, t.step[1] = (2 * bare_pairs(dim) + dim - 1) / dim;
    for (int64_t i = p->m * thread / p->threads; i < end; i++)
        for (int vecs = 1; vecs <= 2; vecs++) {
            t.at[0] = (const char *)(p->a + (i + 1) * floats) + (vecs - 1) * t.step[0] * dim;
            t.at[1] = (const char *)(p->c + (i + 1) * bare_pairs(dim)) +
                      (vecs - 1) * t.step[1] * dim;
            t.at[2] = t.at[1];
            t.c = p->c + i * bare_pairs(dim) + dim + (vecs - 1) * BARE_ROWS * 13 / 2;
            t.c_row = vecs > 1 ? 20 : 7; /* floats of a row of the triangle, by and by */
            bare_tile_run(&t, vecs);
        }
}
static void bare_interact_back(const bare_product *p, int thread) {
    static float rows[BARE_ROWS * BARE_DEPTH];
    const int64_t dim = p->n, floats = BARE_VECTORS * dim, end = p->m * (thread + 1) / p->threads,
                  panels = (dim + 31) / 32, calls = 2 * panels;
    const int64_t bytes[3] = {4 * floats / calls, 4 * bare_pairs(dim) / calls, 4 * floats / calls};
    bare_tile t = {.k = BARE_VECTORS, .c_row = dim, .a = rows};
    t.b = p->packed + thread * BARE_PANELS;
    for (int i = 0; i < 3; i++) t.step[i] = bytes[i] / BARE_VECTORS + 1;
    for (int64_t i = p->m * thread / p->threads; i < end; i++) {
        t.at[0] = (const char *)(p->a + (i + 1) * floats);
        t.at[1] = (const char *)(p->b + (i + 1) * bare_pairs(dim));
        t.at[2] = (const char *)(p->c + (i + 1) * floats);
        for (int64_t call = 0; call < calls; call++) {
            t.c = p->c + i * floats + call / panels * BARE_ROWS * dim + call % panels * 32;
            bare_tile_run(&t, dim > 16 ? 2 : 1);
            for (int k = 0; k < 3; k++) t.at[k] += bytes[k];
        }
    }
}

/* ---- one column, k or row ---- */
/* Each sum is a chain in order of k, so lanes go over rows, which are turned in registers: on an
   AMD EPYC that takes 57 to 59 GB/s even of rows in the first-level cache, by vectors of 8 lanes or
   16, of four k or eight, one chain or two, and is half of what the second level gives. Sixteen
   rows at a time: of more that are 2 KiB apart lines share places in the first level. Where the
   rows come from memory those of the next 16 are fetched. */
#define BARE_ROW(i) _mm_loadu_ps(x + (i)*ld)
#define BARE_FOUR(i)                                                                               \
    _mm512_insertf32x4(_mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(BARE_ROW(i)),  \
                                                             BARE_ROW(i + 4), 1),                  \
                                          BARE_ROW(i + 8), 2),                                     \
                       BARE_ROW(i + 12), 3)
#define BARE_SUM(half, x, y)                                                                       \
    sum = _mm512_fmadd_ps(_mm512_set1_ps(*w++), (__m512)_mm512_unpack##half##_pd(x, y), sum)
BARE_TARGET static void bare_dots(const bare_product *p, int thread) {
    const int64_t ld = p->k, end = p->m / 16 * (thread + 1) / p->threads * 16;
    for (int64_t i = p->m / 16 * thread / p->threads * 16; i < end; i += 16) {
        const float *x = p->a + i * ld, *w = p->b;
        const float *next = i + 32 <= p->m && p->m * ld >= BARE_FAR ? x + 16 * ld : NULL;
        __m512 sum = _mm512_setzero_ps();
        for (int64_t k = 0; k < p->k; k += 4, x += 4) {
            const float *line = next + k / 16 * 16 + k % 16 / 4 * ld;
            if (next) BARE_UNROLL for (int r = 0; r < 4; r++) BARE_FETCH(line + 4 * r * ld);
            const __m512 r0 = BARE_FOUR(0), r1 = BARE_FOUR(1), r2 = BARE_FOUR(2), r3 = BARE_FOUR(3);
            const __m512d a = (__m512d)_mm512_unpacklo_ps(r0, r1),
                          b = (__m512d)_mm512_unpacklo_ps(r2, r3),
                          c = (__m512d)_mm512_unpackhi_ps(r0, r1),
                          d = (__m512d)_mm512_unpackhi_ps(r2, r3);
            BARE_SUM(lo, a, b), BARE_SUM(hi, a, b), BARE_SUM(lo, c, d), BARE_SUM(hi, c, d);
        }
        _mm512_storeu_ps(p->c + i, sum);
    }
}
/* One k: nothing but the writing. */
__attribute__((target("avx2,fma"))) static void bare_outer(const bare_product *p, int thread) {
    const int64_t end = p->m * (thread + 1) / p->threads;
    for (int64_t i = p->m * thread / p->threads; i < end; i++) {
        float *c = p->c + i * p->n;
        const __m256 a = _mm256_set1_ps(p->a[i]);
        for (int64_t j = 0; j < p->n; j += 32)
            BARE_UNROLL for (int g = 0; g < 32; g += 8) _mm256_storeu_ps(
                c + j + g, _mm256_fmadd_ps(a, _mm256_loadu_ps(p->b + j + g), _mm256_setzero_ps()));
    }
}
/* One row: nothing but the reading of b, row by row; those to come from memory fetched. */
__attribute__((target("avx2,fma"))) static void bare_sums(const bare_product *p, int thread) {
    const int64_t j0 = p->n / 16 * thread / p->threads * 16,
                  j1 = p->n / 16 * (thread + 1) / p->threads * 16, n = p->n;
    const float *b = p->b;
    memset(p->c + j0, 0, (size_t)(j1 - j0) * sizeof *p->c);
    for (int64_t k = 0; k < p->k; k += 4, b += 4 * n) {
        const __m256 v[4] = {_mm256_set1_ps(p->a[k]), _mm256_set1_ps(p->a[k + 1]),
                             _mm256_set1_ps(p->a[k + 2]), _mm256_set1_ps(p->a[k + 3])};
        const int far = k + 12 <= p->k && p->k * n >= BARE_FAR;
        for (int64_t j = j0; j < j1; j += 8) {
            __m256 sum = _mm256_loadu_ps(p->c + j);
            if (far && j % 16 == 0)
                BARE_UNROLL for (int i = 0; i < 4; i++) BARE_FETCH(b + (8 + i) * n + j);
            BARE_UNROLL for (int i = 0; i < 4; i++) sum =
                _mm256_fmadd_ps(v[i], _mm256_loadu_ps(b + i * n + j), sum);
            _mm256_storeu_ps(p->c + j, sum);
        }
    }
}

BARE_TARGET static void bare_passes(const bare_product *p, int thread) {
    const int64_t lines = p->m * p->n / 16, end = lines * (thread + 1) / p->threads * 16;
    for (int64_t i = lines * thread / p->threads * 16; i < end; i += 16) {
        BARE_FETCH(p->a + i + 512), BARE_FETCH(p->b + i + 512), BARE_FETCH(p->c + i + 512);
        _mm512_storeu_ps(p->c + i, _mm512_fmadd_ps(_mm512_loadu_ps(p->a + i),
                                                   _mm512_loadu_ps(p->b + i),
                                                   _mm512_loadu_ps(p->c + i)));
    }
}

/* ---- a product ---- */
typedef void (*bare_fn)(const bare_product *p, int thread);
static inline bare_fn bare_of(const bare_product *p) {
    if (!neo_isa_available(NEO_ISA_AVX512)) return NULL;
    if (p->passes) return bare_passes;
    if (p->interacts) return p->interacts > 1 ? bare_interact_back : bare_interact;
    if (p->m == 1 && p->n % 16 == 0 && p->k % 4 == 0) return bare_sums;
    if (p->n == 1 && p->m % 16 == 0 && p->k % 16 == 0) return bare_dots;
    if (p->k == 1 && p->n % 32 == 0) return bare_outer;
    if (p->m == 1 || p->n == 1) return NULL;
    if (p->k <= BARE_SHALLOW && p->n % 128 == 0 && p->k * p->n <= 1 << 13) return bare_rows;
    return bare_tiles;
}
/* Of few columns, both operands k-major: rows and columns change places. */
static inline void bare_turn(bare_product *p) {
    const bare_product old = *p;
    if (!p->k_major || p->n > 16 || p->m <= p->n) return;
    p->m = old.n, p->n = old.m, p->a = old.b, p->b = old.a;
}
/* Whether the loop makes the sums; and what its time is multiplied by. */
static inline int bare_is_exact(const bare_product *p) {
    const bare_fn f = bare_of(p);
    return f == bare_dots || f == bare_outer || f == bare_sums;
}
static inline double bare_scale(const bare_product *p) {
    if (bare_of(p) != bare_tiles) return 1;
    const int64_t width = p->n > 16 ? 32 : 16, segments = (p->k + 511) / BARE_DEPTH;
    const double cols = p->n > 16 ? (double)p->n / (double)(width * bare_parts(p->n, width)) : 1;
    return cols * (double)p->m / (double)(BARE_ROWS * bare_parts(p->m, BARE_ROWS)) * (double)p->k /
           (double)(p->k / segments * segments);
}
#else
typedef void (*bare_fn)(const bare_product *p, int thread);
static inline bare_fn bare_of(const bare_product *p) {
    (void)p;
    return NULL;
}
static inline int bare_is_exact(const bare_product *p) { return bare_of(p) != NULL; }
static inline double bare_scale(const bare_product *p) { return bare_of(p) ? 0 : 1; }
static inline void bare_turn(bare_product *p) { (void)p; }
#endif
static inline void bare_thread(void *arg, int64_t i, int worker) {
    const bare_product *p = (const bare_product *)arg;
    (void)worker;
    bare_of(p)(p, (int)i);
}
static inline void bare_run(neo_ctx *ctx, bare_product *p) {
    p->threads = neo_ctx_threads(ctx);
    if (p->threads == 1) bare_of(p)(p, 0);
    else neo_parallel_for(ctx, p->threads, bare_thread, p);
}

#endif
