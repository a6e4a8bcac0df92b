/* common.h: reads tests/golden/NAME.safetensors and compares with what is in it.

   Expected values are PyTorch's in float64, rounded once (see common.py), so the tolerance is all
   neo's: 1e-5 of the largest magnitude of the tensor unless a test says why it needs more.
   GOLDEN_VERBOSE=1 in the environment prints how far each tensor is off. */
#ifndef NEO_GOLDEN_H
#define NEO_GOLDEN_H

#include "../test.h"
#include "../../neo_state.h"

#include <stdarg.h>

#ifndef GOLDEN_DIR
#define GOLDEN_DIR "tests/golden/" /* tests run in the directory of neo.h */
#endif
#define GOLDEN_TOL 1e-5

static neo_ctx *golden_ctx; /* reads the files */
static neo_safetensors *golden_file;
enum { GOLDEN_BLOCKS = 4096 };
static void *golden_block[GOLDEN_BLOCKS]; /* freed by golden_close */
static int golden_block_count;

static inline void *golden_alloc(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p || golden_block_count == GOLDEN_BLOCKS) {
        printf("golden: no memory, or too many tensors\n");
        exit(1);
    }
    golden_block[golden_block_count++] = p;
    return p;
}

/* Frees what was loaded or copied since the count was `mark`. */
static inline void golden_release(int mark) {
    while (golden_block_count > mark) free(golden_block[--golden_block_count]);
}

/* Opens a file; the program ends when it cannot, since nothing could be tested. */
static inline void golden_open(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s%s.safetensors", GOLDEN_DIR, name);
    if (!golden_ctx) golden_ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
    if (neo_safetensors_open(golden_ctx, path, &golden_file) != NEO_OK) {
        printf("FAILED %s: %s\n", path, neo_last_error());
        exit(1);
    }
}

static inline void golden_close(void) {
    neo_safetensors_close(golden_file);
    golden_file = NULL;
    golden_release(0);
    neo_ctx_destroy(golden_ctx);
    golden_ctx = NULL;
}

static inline int golden_has(const char *name) {
    return neo_safetensors_find(golden_file, name) >= 0;
}

/* A copy of the tensor of that name, in the dtype of the file. */
static inline neo_tensor golden_load(const char *name) {
    int index = neo_safetensors_find(golden_file, name);
    neo_tensor t;
    if (index < 0 || neo_safetensors_info(golden_file, index, &t) != NEO_OK) {
        printf("FAILED golden tensor %s: %s\n", name, index < 0 ? "not there" : neo_last_error());
        exit(1);
    }
    size_t bytes =
        neo_dtype_size(t.dtype); /* t has no data yet, so neo_tensor_bytes would be 0 */
    for (int i = 0; i < t.ndim; i++) bytes *= (size_t)t.shape[i];
    t = neo_tensor_nd(golden_alloc(bytes), t.dtype, t.ndim, t.shape);
    if (neo_safetensors_read(golden_file, index, t) != NEO_OK) {
        printf("FAILED golden tensor %s: %s\n", name, neo_last_error());
        exit(1);
    }
    return t;
}

static inline const char *golden_name(const char *format, va_list args) {
    static char name[256];
    vsnprintf(name, sizeof name, format, args);
    return name;
}
/* golden: the tensor whose name is printed. */
static inline neo_tensor golden(const char *format, ...) {
    va_list args;
    va_start(args, format);
    neo_tensor t = golden_load(golden_name(format, args));
    va_end(args);
    return t;
}
/* A zeroed f32 tensor of t's shape, to put results in. */
static inline neo_tensor golden_like(neo_tensor t) {
    return neo_tensor_nd(golden_alloc((size_t)neo_tensor_count(t) * 4), NEO_F32, t.ndim, t.shape);
}
static inline float *golden_f(neo_tensor t) { return (float *)t.data; }
static inline const int64_t *golden_i(neo_tensor t) { return (const int64_t *)t.data; }

/* compare: |got - want| <= tol (relative to the largest |want| of the tensor, or with `each` to
   its own |want| plus `floor`). got is contiguous f32. */
static inline void golden_compare(const char *name, neo_tensor got, neo_tensor want, double tol,
                                  int each, double floor) {
    int64_t n = neo_tensor_count(want), worst = 0, bad = 0;
    if (neo_tensor_count(got) != n || got.dtype != NEO_F32 || want.dtype != NEO_F32) {
        FAIL("%s: %" PRId64 " elements, expected %" PRId64 " of f32", name, neo_tensor_count(got),
             n);
        return;
    }
    const float *a = golden_f(got), *b = golden_f(want);
    double largest = 0, worst_ratio = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)b[i]) > largest) largest = fabs((double)b[i]);
    for (int64_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);
        double scale = each ? fabs((double)b[i]) + floor / tol : largest;
        double ratio = diff > 0 ? diff / scale : diff; /* a NaN stays */
        if (!(ratio <= tol)) bad++;
        if (ratio > worst_ratio || (isnan(ratio) && !isnan(worst_ratio)))
            worst_ratio = ratio, worst = i;
    }
    if (getenv("GOLDEN_VERBOSE")) printf("    %-44s %.1e\n", name, worst_ratio);
    if (bad)
        FAIL("%s: %" PRId64 " of %" PRId64 " are off; the worst is element %" PRId64
             ": %.9g, expected"
             " %.9g (%.2g of %s; allowed %.2g)",
             name, bad, n, worst, (double)a[worst], (double)b[worst], worst_ratio,
             each ? "itself" : "the largest", tol);
}
/* got against the tensor whose name is printed, to GOLDEN_TOL of its largest magnitude. */
static inline void golden_check(neo_tensor got, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *name = golden_name(format, args);
    va_end(args);
    int mark = golden_block_count;
    golden_compare(name, got, golden_load(name), GOLDEN_TOL, 0, 0);
    golden_release(mark);
}
/* Elementwise: |got - want| <= tol |want| + floor. */
static inline void golden_check_each(neo_tensor got, double tol, double floor, const char *format,
                                     ...) {
    va_list args;
    va_start(args, format);
    const char *name = golden_name(format, args);
    va_end(args);
    int mark = golden_block_count;
    golden_compare(name, got, golden_load(name), tol, 1, floor);
    golden_release(mark);
}

/* State of a dense optimizer: the tensor <name><kind> of the state against
   <prefix><kind>[.<suffix>] of the file, for each kind torch.optim has; one has it if and only if
   the other has. */
static inline void golden_check_state(const neo_state *state, const char *name,
                                      const char *prefix, const char *suffix) {
    static const char *const kinds[] = {"momentum_buffer", "sum", "exp_avg", "exp_avg_sq"};
    for (int k = 0; k < 4; k++) {
        char ours[192], theirs[192];
        int found = -1;
        snprintf(ours, sizeof ours, "%s%s", name, kinds[k]);
        snprintf(theirs, sizeof theirs, "%s%s%s%s", prefix, kinds[k], *suffix ? "." : "", suffix);
        for (int i = 0; i < neo_state_count(state); i++)
            if (strcmp(neo_state_name(state, i), ours) == 0) found = i;
        if ((found >= 0) != golden_has(theirs))
            FAIL("%s is %s", ours, found >= 0 ? "not in the file" : "missing");
        else if (found >= 0)
            golden_check(neo_state_tensor(state, found), "%s", theirs);
    }
}

/* The contexts every golden is compared on: the plainest, and the widest with threads and leaves.
 */
enum { GOLDEN_CONTEXTS = 2 };
static inline neo_ctx *golden_context(int i) {
    return i == 0 ? test_ctx(1, NEO_ISA_SCALAR, 1) : test_ctx(3, NEO_ISA_BEST, 4);
}

#endif
