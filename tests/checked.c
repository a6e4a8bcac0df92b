/* checked.c: what a failed assertion of neo does in the tests. */
#include "checked.h"

#include <stdio.h>
#include <stdlib.h>

void neo_test_assert_failed(const char *text, const char *file, int line) {
    printf("assertion failed: %s:%d: %s\n", file, line, text);
    fflush(stdout);
    abort();
}
