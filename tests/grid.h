/* grid.h: how much of its grid a test runs. */
#ifndef NEO_TESTS_GRID_H
#define NEO_TESTS_GRID_H

#include <stdlib.h>
#include <string.h>

/* By NEO_FULL: 0 a part, as in `make test`; 1 more, as in `make check`; 2 ("all") the whole. */
static inline int test_grid(void) {
    const char *full = getenv("NEO_FULL");
    return !full ? 0 : strcmp(full, "all") == 0 ? 2 : 1;
}

/* The timeout of ranks of which none is to be missed, whatever else the machine does; a sixth of
   what tests/run.sh lets a program take, so that one that hangs says where. */
enum { TEST_PATIENCE_MS = 300000, TEST_HASTE_MS = 20000 };
/* The timeout of the next ranks, given how those before ended: one hang is enough to wait for. */
static inline int test_patience_ms(int timed_out) {
    static int patience = TEST_PATIENCE_MS;
    if (timed_out) patience = TEST_HASTE_MS;
    return patience;
}

/* Under a sanitizer, where all takes ten times as long, a test runs half of that part (1), where
   races are looked for, not what the numbers are, a quarter (2). */
#if defined(__SANITIZE_THREAD__)
#define TEST_WATCHED 2
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_WATCHED 2
#elif __has_feature(address_sanitizer)
#define TEST_WATCHED 1
#endif
#endif
#ifndef TEST_WATCHED
#define TEST_WATCHED 0
#endif
/* Before a reference, which one thread computes: sanitizers watch neo, and this takes an eighth of
   the time without them. */
#if TEST_WATCHED
#define TEST_UNWATCHED __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define TEST_UNWATCHED
#endif

#endif
