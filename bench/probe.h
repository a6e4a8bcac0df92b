/* probe.h: what random rows cost at the least: the loops that embedding bags are measured against,
   alone and in a whole step. They do the memory work of a lookup, or of its backward with row-wise
   Adagrad, on the same rows of the same tables, and as little else as possible:

     forward   sums of rows, written to out; bags of one length, ids as they are given. After
               probe_buckets each row adds to the sum of its bucket, one of eight, and these by the
               tree; the bucket of an id is found beforehand
     backward  every touched row and its state read and written once, where the sum of its gradients
               is taken off; without the sort, which is done beforehand, into the order that is
               quickest: rows with one gradient, rows with two, ..., rising in each
     whole     all that backward needs: ids as they are given, sorted by row in two passes; sums of
               the rows' gradients; row-wise Adagrad; f16 and bf16 rounded at random, by Philox in
               vectors. No checks, bags of one length, sums along a row in any shape (not of i8)

   probe_choose times each way of fetching rows ahead, on its own, before anything is timed against
   it, and keeps the best. */
#ifndef PROBE_W
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#include "bench.h"

enum { PROBE_BATCHES = 8, PROBE_AHEAD = 128 };
/* How many rows are fetched ahead; to which level of the cache, 1 or 2; whether backward packs the
   gradients of a table first, or forward lets the first row of a bucket add to zeros, so that no
   sum is cleared. */
typedef struct probe_how {
    int ahead, level, packs;
} probe_how;
typedef struct probe_table {
    char *rows;
    float *state, *scale; /* of a row: one number; two of i8, else NULL */
} probe_table;
/* Touched row r, of all tables in turn, takes the gradients of bag[end[r - 1]] ... bag[end[r] - 1].
 */
typedef struct probe_batch {
    int64_t *ids,
        *first; /* [tables][bags][length]; [tables + 1]: where a table's touched rows begin */
    int32_t *row, *end, *bag;
    uint8_t *bucket; /* of each id, or NULL */
} probe_batch;
typedef struct probe {
    neo_ctx *ctx;
    neo_dtype dtype;
    int64_t bags, length, dim,
        stride; /* bags: of a table; stride: floats of a row of out and dout */
    int tables, batches;
    probe_table *table; /* [tables + 1], the last twice */
    probe_batch batch[PROBE_BATCHES];
    probe_how how[3]; /* forward, backward, whole */
    float *packed;    /* [threads][bags][dim] */
    uint64_t *records; /* [threads][2 bags * length + PROBE_AHEAD], row << 32 | bag */
    int row_bits;
    /* The call: its batch, out or dout, and the factor of gradients; 0 leaves rows as they are.
       backward: 2 is whole. */
    int at, backward;
    float *x, rate;
} probe;

#define PROBE_INLINE PROBE_TARGET static inline __attribute__((always_inline))
#define PROBE_JOIN(a, b) a##_##b
#define PROBE_NAME(a, b) PROBE_JOIN(a, b)
#define PROBE_FN(name) PROBE_NAME(probe_##name, PROBE_W)
#define PROBE_AT(type, p) (*(PROBE_FN(type) *)(void *)(p))
#define PROBE_EACH(v, count) _Pragma("GCC unroll 8") for (int v = 0; v < count; v++)
#define PROBE_SUM4(v, i) (((v)[i] + (v)[i + 2]) + ((v)[i + 1] + (v)[i + 3]))
#define PROBE_SIZE(dtype) (dtype == NEO_F32 ? 4 : dtype == NEO_I8 ? 1 : 2)
#if defined(__x86_64__)
#define PROBE_M(type, p) ((__m##type *)(void *)(p))
#define PROBE_W 16
#define PROBE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))
#define PROBE_MUL(a, b) ((PROBE_FN(vw))_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define PROBE_SUM(v) _mm512_reduce_add_ps((__m512)(v))
#define PROBE_ROOT(v) ((PROBE_FN(vf))_mm512_sqrt_ps((__m512)(v)))
#define PROBE_LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256(PROBE_M(256i, p)))
#define PROBE_LOAD_16(p) _mm512_cvtepu16_epi32(_mm256_loadu_si256(PROBE_M(256i, p)))
#define PROBE_LOAD_8(p) _mm512_cvtepi8_epi32(_mm_loadu_si128(PROBE_M(128i, p)))
#define PROBE_STORE_F16(p, v) _mm256_storeu_si256(PROBE_M(256i, p), _mm512_cvtps_ph(v, 8))
#define PROBE_STORE_16(p, n)                                                                       \
    _mm256_storeu_si256(PROBE_M(256i, p), _mm512_cvtepi32_epi16((__m512i)(n)))
#define PROBE_STORE_8(p, n) _mm_storeu_si128(PROBE_M(128i, p), _mm512_cvtepi32_epi8((__m512i)(n)))
#include "probe.h"
#define PROBE_W 8
#define PROBE_TARGET __attribute__((target("avx2,fma,f16c")))
#define PROBE_MUL(a, b) ((PROBE_FN(vw))_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define PROBE_ROOT(v) ((PROBE_FN(vf))_mm256_sqrt_ps((__m256)(v)))
#define PROBE_SUM(v) (PROBE_SUM4(v, 0) + PROBE_SUM4(v, 4))
#define PROBE_LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128(PROBE_M(128i, p)))
#define PROBE_LOAD_16(p) _mm256_cvtepu16_epi32(_mm_loadu_si128(PROBE_M(128i, p)))
#define PROBE_LOAD_8(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64(PROBE_M(128i, p)))
#define PROBE_STORE_F16(p, v) _mm_storeu_si128(PROBE_M(128i, p), _mm256_cvtps_ph(v, 8))
#define PROBE_PACK(n)                                                                              \
    _mm_packus_epi32(_mm256_castsi256_si128((__m256i)(n)),                                         \
                     _mm256_extracti128_si256((__m256i)(n), 1))
#define PROBE_STORE_16(p, n) _mm_storeu_si128(PROBE_M(128i, p), PROBE_PACK(n))
#define PROBE_STORE_8(p, n)                                                                        \
    _mm_storel_epi64(PROBE_M(128i, p), _mm_packus_epi16(PROBE_PACK((n)&255), _mm_setzero_si128()))
#include "probe.h"
#endif
#define PROBE_W 4
#define PROBE_TARGET
#define PROBE_MUL(a, b) (((a) & 0xFFFFFFFFu) * (b))
#define PROBE_SUM(v) PROBE_SUM4(v, 0)
#define PROBE_ROOT(v)                                                                              \
    ((PROBE_FN(vf)){sqrtf((v)[0]), sqrtf((v)[1]), sqrtf((v)[2]), sqrtf((v)[3])})
#if defined(__aarch64__)
#define PROBE_LOAD_F16(p) vcvt_f32_f16(vld1_f16((const float16_t *)(const void *)(p)))
#define PROBE_STORE_F16(p, v) vst1_f16((float16_t *)(void *)(p), vcvt_f16_f32((float32x4_t)(v)))
#else
#define PROBE_LOAD_F16(p) PROBE_AT(vf, p) /* probe_possible says no */
#define PROBE_STORE_F16(p, v) ((void)(p), (void)(v))
#endif
#define PROBE_LOAD_16(p) __builtin_convertvector(PROBE_AT(vh, p), PROBE_FN(vi))
#define PROBE_LOAD_8(p) __builtin_convertvector(PROBE_AT(vb, p), PROBE_FN(vi))
#define PROBE_STORE_16(p, n) (PROBE_AT(vh, p) = __builtin_convertvector(n, PROBE_FN(vh)))
#define PROBE_STORE_8(p, n) (PROBE_AT(vb, p) = __builtin_convertvector(n, PROBE_FN(vb)))
#include "probe.h"

static inline int probe_width(void) {
    return neo_isa_available(NEO_ISA_AVX512) ? 16 : neo_isa_available(NEO_ISA_AVX2) ? 8 : 4;
}
/* Whether there is a whole loop, too. */
static inline int probe_is_whole(const probe *p) {
    return p->dtype != NEO_I8 && p->dim <= 128 && p->row_bits <= 24;
}
/* Whether there are loops for such rows: whole vectors; f16 where instructions convert it. */
static inline int probe_possible(neo_dtype dtype, int64_t dim) {
    return dim % probe_width() == 0 &&
           (dtype != NEO_F16 || probe_width() > 4 || neo_isa_available(NEO_ISA_NEON));
}

/* Ids are copied: fetches run on behind their end. bag: its number; run: so many of one row. */
static inline int probe_compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
static inline void probe_sort_table(const probe *p, probe_batch *b, int t, uint64_t *id,
                                    uint64_t *run) {
    const int64_t count = p->bags * p->length, from = t * count;
    int64_t runs = 0, rows = b->first[t], bags = from;
    for (int64_t k = 0; k < count; k++)
        id[k] = (uint64_t)b->ids[from + k] << 32 | (uint64_t)(k / p->length);
    qsort(id, (size_t)count, sizeof *id, probe_compare);
    for (int64_t k = 0, begin = 0; k < count; k++) {
        if (k + 1 < count && id[k + 1] >> 32 == id[k] >> 32) continue;
        run[runs++] = (uint64_t)(k + 1 - begin) << 32 | (uint64_t)begin;
        begin = k + 1;
    }
    qsort(run, (size_t)runs, sizeof *run, probe_compare);
    for (int64_t r = 0; r < runs; r++, rows++) {
        const uint64_t *at = id + (uint32_t)run[r];
        b->row[rows] = (int32_t)(at[0] >> 32);
        for (uint64_t k = 0; k < run[r] >> 32; k++) b->bag[bags++] = (int32_t)(uint32_t)at[k];
        b->end[rows] = (int32_t)bags;
    }
    b->first[t + 1] = rows;
}
static inline void probe_batch_make(const probe *p, probe_batch *b, const int64_t *ids) {
    const size_t count = (size_t)(p->bags * p->length), all = count * (size_t)p->tables;
    uint64_t *id = (uint64_t *)bench_alloc(count * sizeof *id),
             *run = (uint64_t *)bench_alloc(count * sizeof *run);
    b->ids = (int64_t *)bench_alloc((all + PROBE_AHEAD) * sizeof *ids);
    b->first = (int64_t *)bench_alloc((size_t)(p->tables + 1) * sizeof *b->first);
    b->row = (int32_t *)bench_alloc((all + PROBE_AHEAD) * sizeof *b->row);
    b->end = (int32_t *)bench_alloc((all + 1) * sizeof *b->end) + 1; /* end[-1] is 0 */
    b->bag = (int32_t *)bench_alloc(all * sizeof *b->bag);
    memcpy(b->ids, ids, all * sizeof *ids);
    for (int t = 0; t < p->tables; t++) probe_sort_table(p, b, t, id, run);
    free(id), free(run);
}
/* table: [tables]; ids: of each batch. */
static inline probe probe_make(neo_ctx *ctx, neo_dtype dtype, int64_t bags, int64_t length,
                               int64_t dim, const probe_table *table, int tables,
                               const int64_t *const *ids, int batches) {
    probe p = {.ctx = ctx, .dtype = dtype, .bags = bags, .length = length, .dim = dim};
    p.stride = tables * dim, p.tables = tables;
    p.how[0] = p.how[1] = p.how[2] = (probe_how){16, 2, 1};
    p.table = (probe_table *)bench_alloc((size_t)(tables + 1) * sizeof *table);
    memcpy(p.table, table, (size_t)tables * sizeof *table);
    p.table[tables] = table[tables - 1];
    p.packed = (float *)bench_alloc((size_t)(neo_ctx_threads(ctx) * bags * dim) * sizeof(float));
    for (; p.batches < batches; p.batches++)
        probe_batch_make(&p, &p.batch[p.batches], ids[p.batches]);
    const int64_t room = 2 * bags * length + PROBE_AHEAD;
    p.records =
        (uint64_t *)bench_alloc((size_t)(neo_ctx_threads(ctx) * room) * sizeof *p.records);
    for (int64_t i = 0; i < bags * length * tables; i++)
        for (int n = 0; n < batches; n++)
            while (ids[n][i] >> p.row_bits) p.row_bits++;
    return p;
}
/* From now on forward is over eight buckets of tables of so many rows. */
static inline void probe_buckets(probe *p, int64_t rows) {
    const int64_t ids = p->tables * p->bags * p->length;
    for (int i = 0; i < p->batches; i++) {
        probe_batch *b = &p->batch[i];
        b->bucket = (uint8_t *)bench_alloc((size_t)ids);
        for (int64_t k = 0; k < ids; k++) b->bucket[k] = (uint8_t)((8 * b->ids[k] + 7) / rows);
    }
}
static inline void probe_free(probe *p) {
    for (int i = 0; i < p->batches; i++) {
        const probe_batch *b = &p->batch[i];
        free(b->ids), free(b->first), free(b->row), free(b->end - 1), free(b->bag);
        free(b->bucket);
    }
    free(p->table), free(p->packed), free(p->records);
}

/* A share of the tables. */
static inline int64_t probe_tasks(const probe *p) {
    const int threads = neo_ctx_threads(p->ctx), most = threads == 1 ? 1 : 4 * threads;
    return most < p->tables ? most : p->tables;
}
static inline void probe_task(void *arg, int64_t i, int worker) {
    const probe *p = (const probe *)arg;
    const int64_t tasks = probe_tasks(p), end = (i + 1) * p->tables / tasks;
    float *packed = p->packed + worker * p->bags * p->dim;
    uint64_t *records = p->records + worker * (2 * p->bags * p->length + PROBE_AHEAD);
    for (int64_t t = i * p->tables / tasks; t < end; t++) {
#if defined(__x86_64__)
        if (probe_width() == 16) probe_run_16(p, t, packed, records);
        if (probe_width() == 8) probe_run_8(p, t, packed, records);
#endif
        if (probe_width() == 4) probe_run_4(p, t, packed, records);
    }
}
/* Batch `at`; x: out of forward, dout of backward. */
static inline void probe_run(probe *p, int backward, int at, float *x, float rate) {
    p->backward = backward, p->at = at, p->x = x, p->rate = rate;
    neo_parallel_for(p->ctx, probe_tasks(p), probe_task, p);
}

static inline double probe_time(probe *p, int backward, int at, float *x, probe_how how) {
    const double start = bench_seconds(p->ctx);
    p->how[backward] = how;
    probe_run(p, backward, at % p->batches, x, 0.0f);
    return bench_seconds(p->ctx) - start;
}
/* Set p->how: the fastest of three runs of every way, each after other memory has gone through the
   caches, as it does where neo's turn is between. */
static inline void probe_choose(probe *p, int backward, float *x) {
    static const int ahead[] = {2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    enum { AHEADS = sizeof ahead / sizeof *ahead };
    const int ways = AHEADS * (backward || p->batch[0].bucket ? 4 : 2);
    const size_t others = 32 << 20;
    char *other = (char *)bench_alloc(others);
    probe_how how = {16, 2, 1}, chosen = how;
    double best = 1e9;
    for (int n = 0; n < 3 * ways; n++) {
        how = (probe_how){ahead[n % AHEADS], 1 + n / AHEADS % 2, n / AHEADS / 2 % 2};
        memset(other, n, others);
        const double time = probe_time(p, backward, n + n / ways, x, how);
        if (time < best) best = time, chosen = how;
    }
    p->how[backward] = chosen;
    free(other);
}
#endif
#else
/* The loops, read once for each width of vectors. Parameters from `dtype` or `level` on are
   constants where a loop is inlined. */
typedef float PROBE_FN(vf) __attribute__((vector_size(4 * PROBE_W), aligned(4), may_alias));
typedef int32_t PROBE_FN(vi) __attribute__((vector_size(4 * PROBE_W)));
typedef uint32_t PROBE_FN(vu) __attribute__((vector_size(4 * PROBE_W)));
typedef uint64_t PROBE_FN(vw) __attribute__((vector_size(4 * PROBE_W), aligned(8), may_alias));
typedef uint16_t PROBE_FN(vh) __attribute__((vector_size(2 * PROBE_W), aligned(2), may_alias));
typedef int8_t PROBE_FN(vb) __attribute__((vector_size(PROBE_W), aligned(1), may_alias));

/* scale: of i8, a factor and what is added. */
PROBE_INLINE PROBE_FN(vf) PROBE_FN(load)(char *p, const float *scale, neo_dtype dtype) {
    if (dtype == NEO_F32) return PROBE_AT(vf, p);
    if (dtype == NEO_F16) return (PROBE_FN(vf))PROBE_LOAD_F16(p);
    if (dtype == NEO_BF16) return (PROBE_FN(vf))((PROBE_FN(vi))PROBE_LOAD_16(p) << 16);
    return __builtin_convertvector((PROBE_FN(vi))PROBE_LOAD_8(p), PROBE_FN(vf)) * scale[0] +
           scale[1];
}
PROBE_INLINE void PROBE_FN(store)(char *p, PROBE_FN(vf) v, const float *scale, float inverse,
                                  neo_dtype dtype) {
    if (dtype == NEO_F32) PROBE_AT(vf, p) = v;
    if (dtype == NEO_F16) PROBE_STORE_F16(p, v);
    if (dtype == NEO_BF16) PROBE_STORE_16(p, (PROBE_FN(vi))v >> 16 & 0xFFFF);
    if (dtype != NEO_I8) return;
    v = (v - scale[1]) * inverse + 0x1.8p23f; /* its low byte is the code */
    PROBE_STORE_8(p, (PROBE_FN(vi))v);
}
PROBE_INLINE void PROBE_FN(fetch)(const void *p, int64_t bytes, int level) {
    _Pragma("GCC unroll 8") for (int64_t at = 0; at < bytes; at += 64) {
        if (level == 1) __builtin_prefetch((const char *)p + at, 0, 3);
        if (level == 2) __builtin_prefetch((const char *)p + at, 0, 2);
    }
}

/* The row of id *at, `count` vectors of its columns from c on, and what scales it. One ahead is
   fetched, past `end` the next table's. */
PROBE_INLINE char *PROBE_FN(row)(const probe *p, const probe_table *t, const int64_t *at,
                                 const int64_t *end, int64_t c, neo_dtype dtype, int count,
                                 int level, const float **scale) {
    const int64_t size = PROBE_SIZE(dtype), next = at[p->how[0].ahead];
    const probe_table *of = at + p->how[0].ahead < end ? t : t + 1;
    PROBE_FN(fetch)(of->rows + (next * p->dim + c) * size, count * PROBE_W * size, level);
    if (dtype == NEO_I8) {
        PROBE_FN(fetch)(of->scale + 2 * next, 8, level);
        *scale = t->scale + 2 * *at;
    }
    return t->rows + (*at * p->dim + c) * size;
}
/* `count` vectors from column c on of the bag whose ids begin at `at`. */
PROBE_INLINE void PROBE_FN(pool)(const probe *p, const probe_table *t, const int64_t *at,
                                 const int64_t *end, float *out, int64_t c, neo_dtype dtype,
                                 int count, int level) {
    const float *scale = NULL;
    PROBE_FN(vf) sum[8];
    PROBE_EACH(v, count) sum[v] = (PROBE_FN(vf)){0};
    for (const int64_t *stop = at + p->length; at < stop; at++) {
        char *row = PROBE_FN(row)(p, t, at, end, c, dtype, count, level, &scale);
        PROBE_EACH(v, count)
        sum[v] += PROBE_FN(load)(row + v * PROBE_W * PROBE_SIZE(dtype), scale, dtype);
    }
    PROBE_EACH(v, count) PROBE_AT(vf, out + c + v * PROBE_W) = sum[v];
}
/* The same over eight buckets. sums: of each, zeros unless `writes`; then zeros. */
PROBE_INLINE void PROBE_FN(pool_eight)(const probe *p, const probe_table *t, const int64_t *at,
                                       const int64_t *end, const uint8_t *bucket, float *sums,
                                       float *out, int64_t c, neo_dtype dtype, int count,
                                       int level, int writes) {
    const float *scale = NULL;
    float *zeros = sums + 8 * count * PROBE_W, *from[8];
    uint32_t has = 0;
    for (const int64_t *stop = at + p->length; at < stop; at++, bucket++) {
        char *row = PROBE_FN(row)(p, t, at, end, c, dtype, count, level, &scale);
        float *sum = sums + (size_t)*bucket * (size_t)(count * PROBE_W),
              *old = !writes || has >> *bucket & 1 ? sum : zeros;
        PROBE_EACH(v, count)
        PROBE_AT(vf, sum + v * PROBE_W) =
            PROBE_AT(vf, old + v * PROBE_W) +
            PROBE_FN(load)(row + v * PROBE_W * PROBE_SIZE(dtype), scale, dtype);
        has |= 1u << *bucket;
    }
    PROBE_EACH(j, 8) from[j] = !writes || has >> j & 1 ? sums + j * count * PROBE_W : zeros;
    PROBE_EACH(v, count) {
        PROBE_FN(vf) x[8];
        PROBE_EACH(j, 8) x[j] = PROBE_AT(vf, from[j] + v * PROBE_W);
        if (!writes)
            PROBE_EACH(j, 8) PROBE_AT(vf, from[j] + v * PROBE_W) = (PROBE_FN(vf)){0};
        PROBE_AT(vf, out + c + v * PROBE_W) =
            ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    }
}
PROBE_INLINE void PROBE_FN(forward)(const probe *p, int64_t i, neo_dtype dtype, int count,
                                    int level) {
    const int64_t ids = p->bags * p->length;
    const int64_t *id = p->batch[p->at].ids + i * ids, *end = id + ids;
    const uint8_t *bucket = p->batch[p->at].bucket;
    float *out = p->x + i * p->dim, sums[9 * 8 * PROBE_W] __attribute__((aligned(64))) = {0};
    if (!bucket || p->length < 3) { /* two add in any order */
        for (; id < end; id += p->length, out += p->stride)
            for (int64_t c = 0; c < p->dim; c += count * PROBE_W)
                PROBE_FN(pool)(p, p->table + i, id, end, out, c, dtype, count, level);
        return;
    }
    bucket += i * ids;
    for (; id < end; id += p->length, bucket += p->length, out += p->stride)
        for (int64_t c = 0; c < p->dim; c += count * PROBE_W)
            if (p->how[0].packs)
                PROBE_FN(pool_eight)
                (p, p->table + i, id, end, bucket, sums, out, c, dtype, count, level, 1);
            else
                PROBE_FN(pool_eight)
                (p, p->table + i, id, end, bucket, sums, out, c, dtype, count, level, 0);
}

/* `count` vectors of a touched row, less those of the gradients at `grad` of bags [bag, end). */
PROBE_INLINE float PROBE_FN(step)(char *to, const float *scale, float inverse, const float *grad,
                                  int64_t stride, const int32_t *bag, const int32_t *end,
                                  float rate, neo_dtype dtype, int count) {
    PROBE_FN(vf) sum[8];
    PROBE_EACH(v, count) sum[v] = (PROBE_FN(vf)){0};
    for (; bag < end; bag++) {
        const float *g = grad + *bag * stride;
        PROBE_EACH(v, count) sum[v] += *(const PROBE_FN(vf) *)(g + v * PROBE_W);
    }
    PROBE_EACH(v, count) {
        char *at = to + v * PROBE_W * PROBE_SIZE(dtype);
        PROBE_FN(store)
        (at, PROBE_FN(load)(at, scale, dtype) - sum[v] * rate, scale, inverse, dtype);
    }
    return sum[0][0];
}
PROBE_INLINE void PROBE_FN(pack)(const probe *p, int64_t i, float *packed) {
    for (int64_t k = 0; k < p->bags; k++) {
        const float *from = p->x + i * p->dim + k * p->stride;
        PROBE_FN(fetch)(from + 8 * p->stride, 4 * p->dim, 1);
        for (int64_t c = 0; c < p->dim; c += PROBE_W)
            PROBE_AT(vf, packed + k * p->dim + c) = *(const PROBE_FN(vf) *)(from + c);
    }
}
PROBE_INLINE void PROBE_FN(backward)(const probe *p, int64_t i, float *packed, neo_dtype dtype,
                                     int count, int level) {
    const probe_batch *b = &p->batch[p->at];
    const int64_t dim = p->dim, row_bytes = dim * PROBE_SIZE(dtype), ahead = p->how[1].ahead;
    const int packs = p->how[1].packs;
    const probe_table *t = p->table + i;
    const float *grad = packs ? packed : p->x + i * dim, rate = p->rate;
    const int64_t stride = packs ? dim : p->stride, end = b->first[i + 1];
    if (packs) PROBE_FN(pack)(p, i, packed);
    for (int64_t r = b->first[i]; r < end; r++) {
        const int64_t row = b->row[r], next = b->row[r + ahead];
        const probe_table *of = r + ahead < end ? t : t + 1;
        PROBE_FN(fetch)(of->rows + next * row_bytes, row_bytes, level);
        PROBE_FN(fetch)(of->state + next, 4, level);
        if (dtype == NEO_I8) PROBE_FN(fetch)(of->scale + 2 * next, 8, level);
        float *scale = dtype == NEO_I8 ? t->scale + 2 * row : NULL, first = 0.0f;
        const float inverse = scale ? 1.0f / *scale : 0.0f;
        for (int64_t c = 0; c < dim; c += count * PROBE_W)
            first += PROBE_FN(step)(t->rows + row * row_bytes + c * PROBE_SIZE(dtype), scale,
                                    inverse, grad + c, stride, b->bag + b->end[r - 1],
                                    b->bag + b->end[r], rate, dtype, count);
        t->state[row] += first * rate;
        if (scale) *scale += 0.0f * rate;
    }
}
/* Sort the records of table i by row, stably, in two passes. Returns where they are. */
PROBE_INLINE const uint64_t *PROBE_FN(sort)(const probe *p, int64_t i, uint64_t *to) {
    int32_t count[2][1 << 12];
    const int64_t ids = p->bags * p->length, *id = p->batch[p->at].ids + i * ids;
    const int bits = (p->row_bits + 1) / 2;
    const int64_t mask = ((int64_t)1 << bits) - 1;
    int32_t low = 0, high = 0;
    memset(count[0], 0, sizeof **count << bits), memset(count[1], 0, sizeof **count << bits);
    for (int64_t k = 0; k < ids; k++) count[0][id[k] & mask]++, count[1][id[k] >> bits]++;
    for (int64_t d = 0; d <= mask; d++) {
        low += count[0][d], high += count[1][d];
        count[0][d] = low - count[0][d], count[1][d] = high - count[1][d];
    }
    for (int64_t bag = 0; bag < p->bags; bag++)
        for (const int64_t *end = id + p->length; id < end; id++)
            to[count[0][*id & mask]++] = (uint64_t)*id << 32 | (uint64_t)bag;
    for (int64_t k = 0; k < ids; k++) to[ids + count[1][to[k] >> (32 + bits)]++] = to[k];
    return to + ids;
}
/* The words of blocks of Philox4x32-10, in any order. */
PROBE_INLINE void PROBE_FN(words)(const uint64_t *block, int64_t blocks, uint64_t *word) {
    for (int64_t n = 0; n < blocks; n += PROBE_W / 2, word += 2 * PROBE_W / 2) {
        PROBE_FN(vw) c0 = *(const PROBE_FN(vw) *)(const void *)(block + n), zero = c0 ^ c0;
        PROBE_FN(vw) c1 = zero, c2 = zero + 0x12345678, c3 = zero + 0x9ABCDEF0u;
        uint32_t k0 = 1, k1 = 2;
        _Pragma("GCC unroll 10") for (int r = 0; r < 10; r++) {
            const PROBE_FN(vw) a = PROBE_MUL(c0, zero + 0xD2511F53u);
            const PROBE_FN(vw) b = PROBE_MUL(c2, zero + 0xCD9E8D57u);
            c0 = b >> 32 ^ c1 ^ k0, c1 = b, c2 = a >> 32 ^ c3 ^ k1, c3 = a;
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        *(PROBE_FN(vw) *)(void *)word = (c0 & 0xFFFFFFFFu) | c1 << 32;
        *(PROBE_FN(vw) *)(void *)(word + PROBE_W / 2) = (c2 & 0xFFFFFFFFu) | c3 << 32;
    }
}
PROBE_INLINE void PROBE_FN(random_store)(char *p, PROBE_FN(vf) v, const uint32_t *word,
                                         neo_dtype dtype) {
    const PROBE_FN(vu) r = *(const PROBE_FN(vu) *)(const void *)word;
    PROBE_FN(vu) u = (PROBE_FN(vu))v;
    if (dtype == NEO_F16) u = (u + (r >> 19)) & ~(uint32_t)0x1FFF;
    if (dtype == NEO_BF16) u = u + (r >> 16);
    PROBE_FN(store)(p, (PROBE_FN(vf))u, NULL, 0.0f, dtype);
}
/* Rows that are summed, then stepped, together, so that they overlap. */
enum { PROBE_FN(GROUP) = 16 };
typedef struct PROBE_FN(group) {
    float sum[PROBE_FN(GROUP) * 128], rate[PROBE_FN(GROUP)], state[PROBE_FN(GROUP)];
    uint64_t block[PROBE_FN(GROUP) * 32 + 16], word[PROBE_FN(GROUP) * 64 + 32];
} PROBE_FN(group);
/* Row-wise Adagrad of rows at[0] ... at[rows - 1]; one so far ahead is fetched for each. */
PROBE_INLINE void PROBE_FN(adagrad)(const probe_table *t, PROBE_FN(group) * g, const uint32_t *at,
                                    int64_t rows, int64_t ahead, float rate, neo_dtype dtype,
                                    int count, int level) {
    const int64_t dim = count * PROBE_W, row_bytes = dim * PROBE_SIZE(dtype);
    for (int64_t r = 0; r < rows; r++) {
        PROBE_FN(vf) square = {0};
        PROBE_EACH(v, count) {
            const PROBE_FN(vf) x = PROBE_AT(vf, g->sum + r * dim + v * PROBE_W);
            square += x * x;
        }
        g->state[r] = t->state[at[r]] + PROBE_SUM(square) / (float)dim * rate;
    }
    for (int64_t r = 0; r < PROBE_FN(GROUP); r += PROBE_W)
        PROBE_AT(vf, g->rate + r) = rate / (PROBE_ROOT(PROBE_AT(vf, g->state + r)) + 1e-8f);
    for (int64_t r = 0; r < rows && dtype != NEO_F32; r++)
        for (int64_t b = 0; b < dim / 4; b++)
            g->block[r * dim / 4 + b] = (uint64_t)(at[r] * (dim / 4) + b);
    if (dtype != NEO_F32) PROBE_FN(words)(g->block, rows * dim / 4, g->word);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t row = at[r], then = at[r + ahead];
        const uint32_t *word = (const uint32_t *)g->word + r * dim;
        PROBE_FN(fetch)(t->rows + then * row_bytes, row_bytes, level);
        PROBE_FN(fetch)(t->state + then, 4, level);
        t->state[row] = g->state[r];
        PROBE_EACH(v, count) {
            char *to = t->rows + row * row_bytes + v * PROBE_W * PROBE_SIZE(dtype);
            const PROBE_FN(vf) x = PROBE_FN(load)(to, NULL, dtype) -
                                   PROBE_AT(vf, g->sum + r * dim + v * PROBE_W) * g->rate[r];
            if (dtype == NEO_F32) PROBE_AT(vf, to) = x;
            else PROBE_FN(random_store)(to, x, word + v * PROBE_W, dtype);
        }
    }
}
/* No branch depends on where a row's records end: each is added to the sum before it, or to 0, and
   what that gives is stored at its row's place. The rows are listed first, to be fetched ahead. */
PROBE_INLINE void PROBE_FN(whole)(const probe *p, int64_t i, float *packed, uint64_t *records,
                                  neo_dtype dtype, int count, int level) {
    const int64_t dim = count * PROBE_W, ids = p->bags * p->length;
    const int packs = p->how[2].packs;
    const uint64_t *record = PROBE_FN(sort)(p, i, records), *end = record + ids;
    uint32_t *row = (uint32_t *)(void *)records; /* in the room of the first pass */
    const float *grad = packs ? packed : p->x + i * dim;
    const int64_t stride = packs ? dim : p->stride;
    int64_t rows = 0;
    PROBE_FN(group) g;
    if (packs) PROBE_FN(pack)(p, i, packed);
    memset(&g, 0, sizeof g);
    for (int64_t k = 0; k < ids; k++) {
        row[rows] = (uint32_t)(record[k] >> 32);
        rows += k + 1 == ids || record[k + 1] >> 32 != row[rows];
    }
    for (int64_t k = rows; k < rows + PROBE_AHEAD; k++) row[k] = row[rows - 1];
    for (int64_t begin = 0; begin < rows; begin += PROBE_FN(GROUP)) {
        const int64_t some = rows - begin < PROBE_FN(GROUP) ? rows - begin : PROBE_FN(GROUP);
        const uint32_t most = row[begin + some - 1];
        float *to = g.sum;
        uint32_t last = row[begin];
        PROBE_FN(vf) sum[8];
        PROBE_EACH(v, count) sum[v] = (PROBE_FN(vf)){0};
        for (; record < end && *record >> 32 <= most; record++) {
            const uint32_t same = (uint32_t)0 - (uint32_t)(*record >> 32 == last);
            const float *from = grad + (int64_t)(uint32_t)*record * stride;
            to += ~same & (uint32_t)dim, last = (uint32_t)(*record >> 32);
            PROBE_EACH(v, count) {
                sum[v] = (PROBE_FN(vf))((PROBE_FN(vu))sum[v] & same) +
                         *(const PROBE_FN(vf) *)(from + v * PROBE_W);
                PROBE_AT(vf, to + v * PROBE_W) = sum[v];
            }
        }
        PROBE_FN(adagrad)
        (p->table + i, &g, row + begin, some, p->how[2].ahead, p->rate, dtype, count, level);
    }
}
PROBE_INLINE void PROBE_FN(run_count)(const probe *p, int64_t i, float *packed, uint64_t *records,
                                      neo_dtype dtype, int count) {
    const int level = p->how[p->backward].level;
    if (!p->backward && level == 1) PROBE_FN(forward)(p, i, dtype, count, 1);
    if (!p->backward && level == 2) PROBE_FN(forward)(p, i, dtype, count, 2);
    if (p->backward == 1 && level == 1) PROBE_FN(backward)(p, i, packed, dtype, count, 1);
    if (p->backward == 1 && level == 2) PROBE_FN(backward)(p, i, packed, dtype, count, 2);
    if (p->backward < 2 || dtype == NEO_I8) return;
    if (level == 1) PROBE_FN(whole)(p, i, packed, records, dtype, count, 1);
    if (level == 2) PROBE_FN(whole)(p, i, packed, records, dtype, count, 2);
}
PROBE_INLINE void PROBE_FN(run_dtype)(const probe *p, int64_t i, float *packed, uint64_t *records,
                                      neo_dtype dtype) {
    const int64_t vectors = p->dim / PROBE_W;
    if (vectors % 8 == 0) PROBE_FN(run_count)(p, i, packed, records, dtype, 8);
    else if (vectors % 4 == 0) PROBE_FN(run_count)(p, i, packed, records, dtype, 4);
    else if (vectors % 2 == 0) PROBE_FN(run_count)(p, i, packed, records, dtype, 2);
    else PROBE_FN(run_count)(p, i, packed, records, dtype, 1);
}
/* Table i. */
PROBE_TARGET static void PROBE_FN(run)(const probe *p, int64_t i, float *packed,
                                       uint64_t *records) {
    if (p->dtype == NEO_F32) PROBE_FN(run_dtype)(p, i, packed, records, NEO_F32);
    if (p->dtype == NEO_F16) PROBE_FN(run_dtype)(p, i, packed, records, NEO_F16);
    if (p->dtype == NEO_BF16) PROBE_FN(run_dtype)(p, i, packed, records, NEO_BF16);
    if (p->dtype == NEO_I8) PROBE_FN(run_dtype)(p, i, packed, records, NEO_I8);
}
#undef PROBE_W
#undef PROBE_TARGET
#undef PROBE_LOAD_F16
#undef PROBE_MUL
#undef PROBE_SUM
#undef PROBE_ROOT
#undef PROBE_LOAD_16
#undef PROBE_LOAD_8
#undef PROBE_STORE_F16
#undef PROBE_STORE_16
#undef PROBE_STORE_8
#endif
