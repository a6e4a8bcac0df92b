/* ranks.h: what tests of neo_comm.h share: checks that ranks may make at the same time, inputs, and
   the naive results. A test file defines a function for every rank; run_ranks runs it on W threads,
   or, compiled with NEO_COMM_MPI and started by mpirun, on the ranks of mpirun. */
#ifndef COMM_RANKS_H
#define COMM_RANKS_H

#include "neo_comm.h"

#include "grid.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures, checks, skipped; /* the first two atomic */
static int ranks_at; /* atomic: the line of the last call that a rank began */
/* Atomic: how the first check that failed in a case (made_again) did so. */
enum { NONE_FAILED, TIME_WAS_OUT, FAILED };
static int failed_by;
static inline void failed_with(neo_status status) {
    int none = NONE_FAILED;
    (void)__atomic_compare_exchange_n(&failed_by, &none,
                                      status == NEO_ERR_TIMEOUT ? TIME_WAS_OUT : FAILED, 0,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
#define EXPECT(comm, cond, ...)                                                                    \
    do {                                                                                           \
        __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);                                          \
        if (cond) break;                                                                           \
        failed_with(NEO_OK);                                                                       \
        if (__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED) < 20) {                             \
            char text_[300];                                                                       \
            snprintf(text_, sizeof text_, __VA_ARGS__);                                            \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: %s\n", __FILE__, __LINE__,                  \
                    neo_comm_rank(comm), neo_comm_size(comm), #cond, text_);                       \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(comm, call)                                                                      \
    do {                                                                                           \
        __atomic_store_n(&ranks_at, __LINE__, __ATOMIC_RELAXED);                                   \
        neo_status status_ = (call);                                                               \
        if (status_ != NEO_OK) failed_with(status_);                                               \
        EXPECT(comm, status_ == NEO_OK, "%s: %s", #call, neo_last_error());                        \
        if (status_ != NEO_OK) return status_;                                                     \
    } while (0)
#define EXPECT_ERR(comm, call, expected, part)                                                     \
    do {                                                                                           \
        neo_status status_ = (call);                                                               \
        if (status_ != (expected) || !strstr(neo_last_error(), (part))) failed_with(status_);      \
        EXPECT(comm, status_ == (expected), "%s: %s", neo_status_string(status_),                  \
               neo_last_error());                                                                  \
        EXPECT(comm, strstr(neo_last_error(), (part)), "message lacks '%s': %s", (part),           \
               neo_last_error());                                                                  \
    } while (0)

/* A number of a rank's input: any, but reproducible; small enough that no sum overflows a narrow
   type. */
static inline uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 31) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}
static inline float float_of(int rank, int64_t i, int salt) {
    uint64_t u = mixed((uint64_t)i * 4096 + (uint64_t)rank + (uint64_t)salt * 0x100000000u);
    return (float)((int64_t)(u >> 40) - (1 << 23)) *
           0x1p-22f; /* 24 bits in [-2, 2): order shows in sums */
}
static inline void fill(const neo_comm *comm, void *data, neo_dtype dtype, int64_t count, int rank,
                        int salt) {
    for (int64_t i = 0; i < count; i++) {
        float x = float_of(rank, i, salt);
        uint64_t u = mixed((uint64_t)i * 64 + (uint64_t)rank + 77u * (uint64_t)salt);
        switch (dtype) {
        case NEO_I8: ((int8_t *)data)[i] = (int8_t)u; break;
        case NEO_U8: ((uint8_t *)data)[i] = (uint8_t)u; break;
        case NEO_I32: ((int32_t *)data)[i] = (int32_t)u; break;
        case NEO_I64: ((int64_t *)data)[i] = (int64_t)u; break;
        default:
            neo_floats_encode(neo_comm_ctx(comm), dtype, &x,
                              (char *)data + (size_t)i * neo_dtype_size(dtype), 1);
        }
    }
}
/* One element reduced over numbers [lo, hi) of piece[], by the recursion that NUMERICS defines. */
typedef struct element {
    float f;
    int64_t i;
} element;
static inline element reduce_tree(const neo_ctx *ctx, neo_dtype dtype, neo_reduce reduce,
                                  const element *piece, int n) {
    if (n == 1) return piece[0];
    int half = 1;
    while (2 * half < n) half *= 2;
    element a = reduce_tree(ctx, dtype, reduce, piece, half),
            b = reduce_tree(ctx, dtype, reduce, piece + half, n - half);
    element r = {0, 0};
    switch (reduce) {
    case NEO_REDUCE_SUM:
        r.f = a.f + b.f;
        r.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
        break;
    case NEO_REDUCE_MAX:
        r.f = a.f > b.f ? a.f : b.f;
        r.i = a.i > b.i ? a.i : b.i;
        break;
    case NEO_REDUCE_MIN:
        r.f = a.f < b.f ? a.f : b.f;
        r.i = a.i < b.i ? a.i : b.i;
        break;
    }
    if (dtype == NEO_I8) r.i = (int8_t)r.i;
    if (dtype == NEO_U8) r.i = (uint8_t)r.i;
    if (dtype == NEO_I32) r.i = (int32_t)r.i;
    char narrow[8];
    neo_floats_encode(ctx, dtype == NEO_F32 || dtype >= NEO_I8 ? NEO_F32 : dtype, &r.f, narrow, 1);
    neo_floats_decode(ctx, dtype == NEO_F32 || dtype >= NEO_I8 ? NEO_F32 : dtype, narrow, &r.f, 1);
    return r;
}
static inline element element_at(const neo_ctx *ctx, const void *data, neo_dtype dtype, int64_t i) {
    element e = {0, 0};
    switch (dtype) {
    case NEO_I8: e.i = ((const int8_t *)data)[i]; break;
    case NEO_U8: e.i = ((const uint8_t *)data)[i]; break;
    case NEO_I32: e.i = ((const int32_t *)data)[i]; break;
    case NEO_I64: e.i = ((const int64_t *)data)[i]; break;
    default:
        neo_floats_decode(ctx, dtype, (const char *)data + (size_t)i * neo_dtype_size(dtype), &e.f,
                          1);
    }
    return e;
}

/* The number of processes that mpirun has started; 0: none has. */
static inline int launched(void) {
    const char *text =
        getenv("OMPI_COMM_WORLD_SIZE") ? getenv("OMPI_COMM_WORLD_SIZE") : getenv("PMI_SIZE");
    return text ? atoi(text) : 0;
}
/* Ranks that hang, where no timeout ends them: the line of the last call says where. No check since
   the last look is a hang, however long all of them take. */
enum { RANKS_LOOK_S = 2 * TEST_PATIENCE_MS / 1000 }; /* timeouts are over, also of one more call */
static int ranks_checks; /* at the last look */
static inline void ranks_hang(int number) {
    int made = __atomic_load_n(&checks, __ATOMIC_RELAXED);
    if (made != __atomic_exchange_n(&ranks_checks, made, __ATOMIC_RELAXED)) {
        alarm(RANKS_LOOK_S);
        return;
    }
    char text[] = "ranks hang: the last EXPECT_OK that began is in line 00000\n";
    int line = __atomic_load_n(&ranks_at, __ATOMIC_RELAXED);
    for (char *digit = strchr(text, 0) - 2; *digit == '0'; digit--, line /= 10)
        *digit = (char)('0' + line % 10);
    ssize_t told = write(2, text, sizeof text - 1);
    (void)number, (void)told;
    _exit(1);
}
/* run_ranks: returns how many ranks this process knows to have failed. They wait for one that is
   late, unless desc has a timeout. */
static inline int run_ranks(int ranks, const neo_comm_desc *desc, neo_comm_fn fn, void *user) {
    neo_comm_desc d = {0};
    if (desc) d = *desc;
    if (!d.timeout_ms && !d.virtual_clock) d.timeout_ms = test_patience_ms(0);
    d.ranks = ranks;
    __atomic_store_n(&ranks_checks, checks, __ATOMIC_RELAXED);
    signal(SIGALRM, ranks_hang);
    alarm(RANKS_LOOK_S);
    neo_status status = neo_comm_init_env(&d, fn, user);
    alarm(0);
    (void)test_patience_ms(status == NEO_ERR_TIMEOUT);
    if (status != NEO_OK) fprintf(stderr, "%d ranks: %s\n", ranks, neo_last_error());
    return status != NEO_OK;
}
/* for (int was = -1; made_again(FIRST, &ms, &was);) { a case that the clock decides }: ms is its
   timeout. Where the first check that failed has got NEO_ERR_TIMEOUT, a thread may have been
   stopped for longer: it is made again with twice the time, at last with more than a minute. */
static inline int made_again(int first, int *ms, int *was) {
    const int begins = *was < 0;
    const int over = !begins && (failures == *was || *ms > 60000 || failed_by != TIME_WAS_OUT);
    *ms = begins || over ? first : 2 * *ms;
    if (begins) *was = failures;
    else if (!over) failures = *was;
    failed_by = NONE_FAILED;
    return !over;
}
static inline int ranks_end(const char *name, int bad) {
    const char *rank =
        getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    if (!rank || strcmp(rank, "0") == 0 || failures || bad)
        printf("%s: %d passed, %d failed, %d skipped\n", name, checks - failures,
               failures + (failures == 0 && bad), skipped);
    return failures || bad;
}
#endif
