/* test.h: the harness of neo's tests.

   A test program is a list of functions: int main(void) { RUN(a); RUN(b); return test_end("test");
   } A check that fails prints where and why, and the function is counted as failed; the rest still
   runs. Comparisons are written so that a NaN fails. */
#ifndef NEO_TEST_H
#define NEO_TEST_H

#include "../neo.h"
#include "grid.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path in $TMPDIR (build/tmp under make, else /tmp); a few at a time. */
static inline const char *tmp_path(const char *name) {
    static char paths[8][1024];
    static int next;
    const char *dir = getenv("TMPDIR");
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/neo-test-%s", dir ? dir : "/tmp", name);
    return path;
}

static int test_passed, test_failed, test_skipped;
static int test_errors;                  /* failed checks of the running function */
static const char *test_skip_reason;     /* set by SKIP */

/* The first few failures of a function are printed, the rest counted. */
enum { TEST_SHOW = 8 };
#define FAIL(...)                                                                                  \
    do {                                                                                           \
        if (test_errors++ < TEST_SHOW) {                                                           \
            printf("  %s:%d: ", __FILE__, __LINE__);                                               \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) FAIL("%s", #cond);                                                            \
    } while (0)
/* REQUIRE leaves the test function when it fails: for what the rest depends on. */
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            FAIL("%s", #cond);                                                                     \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        neo_status test_st = (call);                                                               \
        if (test_st != NEO_OK)                                                                     \
            FAIL("%s: %s: %s", #call, neo_status_string(test_st), neo_last_error());               \
    } while (0)
#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        neo_status test_st = (call);                                                               \
        if (test_st != NEO_OK) {                                                                   \
            FAIL("%s: %s: %s", #call, neo_status_string(test_st), neo_last_error());               \
            return;                                                                                \
        }                                                                                          \
    } while (0)
/* CHECK_ERR: the call gives this status and its message contains `part`. */
#define CHECK_ERR(call, status, part)                                                              \
    do {                                                                                           \
        neo_status test_st = (call);                                                               \
        if (test_st != (status))                                                                   \
            FAIL("%s: got %s, expected %s (%s)", #call, neo_status_string(test_st),                \
                 neo_status_string(status), neo_last_error());                                     \
        else if (!strstr(neo_last_error(), part))                                                  \
            FAIL("%s: message lacks '%s': %s", #call, part, neo_last_error());                     \
    } while (0)
#define CHECK_INT(a, b)                                                                            \
    do {                                                                                           \
        int64_t test_a = (int64_t)(a), test_b = (int64_t)(b);                                      \
        if (test_a != test_b) FAIL("%s is %" PRId64 ", expected %" PRId64, #a, test_a, test_b);    \
    } while (0)
#define CHECK_NEAR(a, b, tol)                                                                      \
    do {                                                                                           \
        double test_a = (double)(a), test_b = (double)(b);                                         \
        if (!(fabs(test_a - test_b) <= (double)(tol)))                                             \
            FAIL("%s is %.9g, expected %.9g within %g", #a, test_a, test_b, (double)(tol));        \
    } while (0)
#define CHECK_BITS(a, b, bytes)                                                                    \
    do {                                                                                           \
        if (memcmp((a), (b), (size_t)(bytes)) != 0) FAIL("%s and %s differ in their bits", #a, #b);\
    } while (0)
#define SKIP(reason)                                                                               \
    do {                                                                                           \
        test_skip_reason = (reason);                                                               \
        return;                                                                                    \
    } while (0)

#define RUN(function)                                                                              \
    do {                                                                                           \
        test_errors = 0;                                                                           \
        test_skip_reason = NULL;                                                                   \
        function();                                                                                \
        test_report(#function);                                                                    \
    } while (0)

static inline void test_report(const char *name) {
    if (test_errors) {
        test_failed++;
        printf("FAILED %s: %d checks\n", name, test_errors);
    } else if (test_skip_reason) {
        test_skipped++;
        printf("skipped %s: %s\n", name, test_skip_reason);
    } else {
        test_passed++;
    }
    fflush(stdout);
}

/* The line tests/run.sh adds up; the program's exit status. */
static inline int test_end(const char *program) {
    printf("%s: %d passed, %d failed, %d skipped\n", program, test_passed, test_failed,
           test_skipped);
    return test_failed ? 1 : 0;
}

/* A plain linear congruential generator, so that test data does not depend on the code under test.
   */
static uint64_t test_seed = 1;
static inline uint32_t test_random(void) {
    test_seed = test_seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(test_seed >> 33);
}
/* In [-1, 1). */
static inline float test_uniform(void) { return (float)test_random() / 1073741824.0f - 1.0f; }
/* The sum of n <= 256 numbers in the shape of a block: 16 lanes, then their tree. */
static inline float test_lanes(const float *t, int n) {
    float lane[16] = {0};
    for (int i = 0; i < n; i++) lane[i % 16] += t[i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}
static inline void test_fill(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = test_uniform();
}

/* A context on `threads` threads and an instruction set (scalar and the like); exits the program
   when it cannot be made, since nothing could be tested. */
static inline neo_ctx *test_ctx(int threads, neo_isa isa, int repro_shards) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = threads;
    desc.isa = isa;
    desc.repro_shards = repro_shards;
    desc.seed = 1;
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(&desc, &ctx) != NEO_OK) {
        printf("cannot create a context: %s\n", neo_last_error());
        exit(1);
    }
    return ctx;
}

#endif
