/* common.h: what tests of layers share: matrices with guarded rows that lie apart. */
#ifndef CORE_COMMON_H
#define CORE_COMMON_H

#include "../test.h"

enum { GUARD = 32 };
static const neo_tensor none; /* data NULL */

typedef struct box {
    float *block;
    int64_t count;
    neo_tensor t;
} box;
static inline box box_make(int64_t rows, int64_t cols, int64_t pad) {
    box b;
    b.count = rows * (cols + pad) + 2 * GUARD;
    b.block = (float *)malloc((size_t)b.count * sizeof(float));
    test_fill(b.block, b.count);
    b.t = neo_tensor_2d(b.block + GUARD, NEO_F32, rows, cols);
    b.t.stride[0] = cols + pad;
    return b;
}
static inline box box_copy(box b) {
    box c = b;
    c.block = (float *)malloc((size_t)b.count * sizeof(float));
    memcpy(c.block, b.block, (size_t)b.count * sizeof(float));
    c.t.data = c.block + GUARD;
    return c;
}
/* The same bits, guards and padding included. */
static inline int box_same(box a, box b) {
    return memcmp(a.block, b.block, (size_t)a.count * sizeof(float)) == 0;
}
TEST_UNWATCHED static inline float *row_of(neo_tensor t, int64_t i) {
    return (float *)t.data + i * t.stride[0];
}

/* Contexts of a test, of several instruction sets and numbers of threads. */
static neo_ctx *contexts[16];
static int context_count;
static inline void contexts_free(void) {
    for (int i = 0; i < context_count; i++) neo_ctx_destroy(contexts[i]);
}
#endif
