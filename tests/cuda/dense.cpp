/* dense.cpp: the dense operations of neo_cuda.cuh, each called through the device's table and
   compared with the CPU, bit by bit where the device is exact.

   Every array is held twice, on the host and on the device, with the same contents and a margin;
   the CPU works on one, the device on the other, and then all bytes of both must agree, margins
   too. Built for the emulation by emulator/kernels.cpp, or by nvcc for a GPU (make test-cuda). The
   work memory is small here, so that what is cut to fit it is cut. NEO_EMU_SEED=n: another order of
   blocks, lanes and streams. */
#ifndef NEO_EMU_KERNELS
#define NEO_STATIC
#define NEO__CUDA_WORK_BYTES ((size_t)96 << 10)
#define NEO__CUDA_BLAS_BYTES ((size_t)1 << 20)
#endif
#include "neo_cuda.cuh"
#include "test.h"

#include <vector>

static neo_device *gpu; /* the one under test */
static neo_ctx *cpu;

/* ---- arrays in both places ---- */
enum { MARGIN = 64, MOST_ARRAYS = 32 };
typedef struct both {
    char *host, *device;
    size_t bytes; /* margins included */
    size_t size;  /* of an element: 2 of bf16 */
} both;
static both arrays[MOST_ARRAYS];
static int array_count;
/* Offsets in bytes that the next arrays get, so that addresses are not multiples of 16. */
static size_t skew;

/* The host's address of a new array of n elements, filled by what looks like numbers. */
static void *make(int64_t n, size_t size) {
    both *a = &arrays[array_count++];
    a->bytes = 2 * MARGIN + skew + (size_t)n * size;
    a->size = size;
    a->host = (char *)malloc(a->bytes);
    a->device = (char *)gpu->alloc(gpu, a->bytes);
    if (!a->host || !a->device || array_count == MOST_ARRAYS) {
        printf("no memory for an array: %s\n", neo_last_error());
        exit(1);
    }
    memset(a->host, 0x5A, a->bytes);
    return a->host + MARGIN + skew;
}
static float *floats(int64_t n) {
    float *x = (float *)make(n, sizeof(float));
    test_fill(x, n);
    return x;
}
/* The device's address of a place in a host array. */
static void *there_of(const void *p) {
    for (int i = 0; p && i < array_count; i++)
        if ((const char *)p >= arrays[i].host && (const char *)p < arrays[i].host + arrays[i].bytes)
            return arrays[i].device + ((const char *)p - arrays[i].host);
    return NULL;
}
template <class T> static T *there(T *p) { return (T *)there_of((const void *)p); }
/* All arrays as they are on the host now. */
static void upload(void) {
    for (int i = 0; i < array_count; i++)
        CHECK_OK(gpu->copy(gpu, arrays[i].device, NEO_DEVICE, arrays[i].host, NEO_HOST,
                           arrays[i].bytes));
}
static void drop(void) {
    for (int i = 0; i < array_count; i++) {
        free(arrays[i].host);
        gpu->free(gpu, arrays[i].device, arrays[i].bytes);
    }
    array_count = 0;
}
/* Both places agree: in their bits (but a NaN is a NaN), or within a tolerance. Then frees the
   arrays. */
static void compare(const char *what, double tolerance) {
    for (int i = 0; i < array_count; i++) {
        const both *a = &arrays[i];
        char *back = (char *)malloc(a->bytes);
        CHECK_OK(gpu->copy(gpu, back, NEO_HOST, a->device, NEO_DEVICE, a->bytes));
        const size_t step = a->size == 2 ? 2 : 4;
        for (size_t at = 0; at + step <= a->bytes; at += step) {
            uint32_t x_bits = 0, y_bits = 0;
            float x, y;
            memcpy((char *)&x_bits + 4 - step, a->host + at, step);
            memcpy((char *)&y_bits + 4 - step, back + at, step);
            x = neo__f32_bits(x_bits), y = neo__f32_bits(y_bits);
            if (step == 2 && tolerance > 0.0 &&
                fabs((double)x - (double)y) <= fabs((double)x) / 128)
                continue;
            if (memcmp(&x, &y, 4) == 0 || (x != x && y != y)) continue;
            if (tolerance > 0.0 &&
                fabs((double)x - (double)y) <= tolerance * (1.0 + fabs((double)x)))
                continue;
            FAIL("%s: array %d, byte %ld: host %.9g (%08x), device %.9g (%08x)", what, i,
                 (long)at - MARGIN, (double)x, neo__bits_f32(x), (double)y, neo__bits_f32(y));
            break;
        }
        if (memcmp(a->host + a->bytes / 4 * 4, back + a->bytes / 4 * 4, a->bytes % 4) != 0)
            FAIL("%s: array %d: last bytes", what, i);
        free(back);
    }
    drop();
}
static void same(const char *what) { compare(what, 0.0); }

/* Of a grid, one of `every` combinations, drawn so that no option is left out throughout. */
static int skipped(uint32_t every) { return test_grid() < 2 && test_random() % every != 0; }

static neo_tensor matrix(float *p, int64_t rows, int64_t cols, int64_t stride) {
    neo_tensor t = neo_tensor_2d(p, NEO_F32, rows, cols);
    t.stride[0] = stride;
    return t;
}
static neo_tensor column(float *p, int64_t n) { return neo_tensor_1d(p, NEO_F32, n); }

/* Leaves as a call of a device has them, of a context with `shards`. */
static neo__leaf_cut cut_of(const neo_leaves *l, int shards) {
    neo__leaf_cut c = {l->batch, l->rows_per_sample, shards, l->first, l->count};
    return c;
}
static int64_t rows_of(const neo__leaf_cut *c) { return neo__leaf_row(c, c->count); }
/* Cuts of batches: some leaves without rows, subtrees, several rows per sample. */
static const struct leaf_case {
    int shards;
    neo_leaves leaves;
} leaf_cases[] = {{1, {7, 0, 1, 1}},   {1, {0, 0, 1, 1}},  {2, {9, 0, 2, 1}},
                  {3, {10, 0, 3, 1}},  {8, {5, 0, 8, 1}},  {8, {67, 0, 8, 1}},
                  {8, {67, 4, 2, 1}},  {7, {23, 4, 3, 2}}, {5, {300, 0, 5, 1}},
                  {16, {33, 8, 8, 3}}, {4, {6, 0, 0, 1}},  {13, {131, 0, 13, 1}},
                  {1, {300, 0, 1, 1}}};
enum { LEAF_CASES = sizeof leaf_cases / sizeof leaf_cases[0] };
static neo_ctx *ctx_of(int shards) { return test_ctx(1, NEO_ISA_BEST, shards); }

/* ---- devices ---- */
static neo_device *device_make(int exact) {
    neo_cuda_desc desc = {0, exact, 0};
    neo_device *d = NULL;
    if (neo_cuda_device_create(&desc, &d) == NEO_OK) return d;
    printf("cannot make a device: %s\n", neo_last_error());
    exit(1);
}
static void test_create(void) {
    neo_cuda_desc desc = {0, 1, 0};
    neo_device *d = NULL;
    CHECK_ERR(neo_cuda_device_create(NULL, NULL), NEO_ERR_ARG, "device is NULL");
    desc.ordinal = 1000;
    CHECK_ERR(neo_cuda_device_create(&desc, &d), NEO_ERR_DEVICE, "ordinal is 1000");
    desc.ordinal = -1;
    CHECK_ERR(neo_cuda_device_create(&desc, &d), NEO_ERR_DEVICE, "ordinal is -1");
    CHECK(d == NULL);
    CHECK(neo_cuda_workspace_bytes(NULL) > neo_cuda_workspace_bytes(&desc));
    neo_cuda_device_destroy(NULL);
    REQUIRE_OK(neo_cuda_device_create(NULL, &d));
    CHECK_INT(d->bytes, sizeof *d);
    CHECK_INT(d->version, NEO__DEVICE_VERSION);
    CHECK(strncmp(d->name, "cuda:0 (", 8) == 0);
    neo_cuda_device_destroy(d);
}
/* Whatever fails during create, there is a status and a message, and nothing stays behind. */
static void test_create_fails(void) {
#ifdef NEO_CUDA_ON_CPU
    neo_device *d = NULL;
    const size_t bytes = neo_emu_live_bytes(), pinned = neo_emu_live_pinned(),
                 objects = neo_emu_live_objects();
    neo_emu_set_device_count(0);
    CHECK_ERR(neo_cuda_device_create(NULL, &d), NEO_ERR_DEVICE, "no NVIDIA GPU");
    neo_emu_set_device_count(1);
    int failures = 0;
    for (long n = 1;; n++) {
        neo_emu_fail_after(n);
        neo_status status = neo_cuda_device_create(NULL, &d);
        const int failed = neo_emu_failed();
        neo_emu_fail_after(0);
        neo_emu_reset();
        if (!failed) {
            CHECK_INT(status, NEO_OK);
            neo_cuda_device_destroy(d);
            break;
        }
        failures++;
        CHECK(status == NEO_ERR_MEMORY || status == NEO_ERR_DEVICE);
        CHECK(d == NULL && neo_last_error()[0] != 0);
        CHECK_INT(neo_emu_live_bytes(), bytes);
        CHECK_INT(neo_emu_live_pinned(), pinned);
        CHECK_INT(neo_emu_live_objects(), objects);
    }
    CHECK(failures > 8);
#else
    SKIP("faults are injected by the emulation");
#endif
}
static void test_memory(void) {
    char from[1000], to[1000];
    for (int i = 0; i < 1000; i++) from[i] = (char)i;
    char *p = (char *)gpu->alloc(gpu, 1000), *q = (char *)gpu->alloc(gpu, 1000);
    char *none = (char *)gpu->alloc(gpu, 0), *pinned = (char *)gpu->host_alloc(gpu, 1000);
    REQUIRE(p && q && none && pinned);
    CHECK(((uintptr_t)p | (uintptr_t)q) % 256 == 0);
    CHECK_OK(gpu->copy(gpu, p, NEO_DEVICE, from, NEO_HOST, 1000));
    memset(from, 0, 1000); /* it may be used again */
    CHECK_OK(gpu->fill(gpu, q, 7, 1000));
    CHECK_OK(gpu->copy(gpu, q, NEO_DEVICE, p + 100, NEO_DEVICE, 800));
    CHECK_OK(gpu->copy(gpu, pinned, NEO_HOST, q, NEO_DEVICE, 1000));
    CHECK_OK(gpu->copy(gpu, to, NEO_HOST, pinned, NEO_HOST, 1000));
    for (int i = 0; i < 1000; i++) CHECK(to[i] == (char)(i < 800 ? i + 100 : 7));
    CHECK_OK(gpu->copy(gpu, NULL, NEO_DEVICE, NULL, NEO_HOST, 0));
    CHECK_OK(gpu->fill(gpu, NULL, 0, 0));
    CHECK_OK(gpu->synchronize(gpu));
    CHECK(gpu->alloc(gpu, (size_t)1 << 50) == NULL);
    CHECK(strstr(neo_last_error(), "out of device memory") != NULL);
    CHECK_OK(gpu->synchronize(gpu)); /* which is no fault of the device; nor is this */
    char *wild = p + 500;
    CHECK_ERR(gpu->copy(gpu, wild, NEO_DEVICE, q, NEO_DEVICE, (size_t)1 << 40), NEO_ERR_DEVICE,
              "cudaMemcpyAsync");
    CHECK_OK(gpu->synchronize(gpu));
    gpu->free(gpu, p, 1000);
    gpu->free(gpu, q, 1000);
    gpu->free(gpu, none, 0);
    gpu->free(gpu, NULL, 0);
    gpu->host_free(gpu, pinned, 1000);
    gpu->host_free(gpu, NULL, 0);
}
static int warnings;
static char warning[300];
static void note_warning(neo_log_level level, const char *text, void *) {
    warnings += level == NEO_LOG_WARNING;
    snprintf(warning, sizeof warning, "%s", text);
}
/* What fits into the ring of pinned memory goes through it in parts, without a wait; what does not
   and comes to the same place three times is warned of, once by every context. */
static void test_large_copies(void) {
    const int64_t ring = (int64_t)NEO__CUDA_SENDS * NEO__CUDA_SEND_BYTES / 4, most = ring + 3;
    neo_device *d = device_make(0);
    NEO__ZERO(neo_ctx_desc, desc);
    desc.threads = 1, desc.device = d;
    desc.logger.log = note_warning;
    neo_ctx *ctx[2];
    neo_tensor to;
    for (neo_ctx *&c : ctx) CHECK_OK(neo_ctx_create(&desc, &c));
    CHECK_OK(neo_tensor_alloc(ctx[0], NEO_F32, 1, &most, &to));
    float *from = floats(most), *back = floats(most);
    warnings = 0;
    for (int i = 0; i < 10; i++) {
        const int64_t n = i < 4 ? ring - 70000 * i : most;
        const uint64_t waits = neo_cuda_get_stats(d).waits;
        for (int64_t k = 0; k < n; k++) from[k] = (float)(k + 7 * i);
        if (i == 5) { /* one that has the place of a tensor that is gone is another one */
            neo_tensor_free(ctx[0], &to);
            CHECK_OK(neo_tensor_alloc(ctx[0], NEO_F32, 1, &most, &to));
        }
        neo_tensor part = to;
        part.shape[0] = n;
        CHECK_OK(neo_tensor_copy(ctx[i > 8], neo_tensor_1d(from, NEO_F32, n), part));
        CHECK_INT((int64_t)(neo_cuda_get_stats(d).waits - waits), i < 4 ? 0 : 1);
        CHECK_INT(warnings, i < 8 ? 0 : i - 7); /* at the copy after the third one; by each */
        memset(from, 0, (size_t)n * sizeof *from);
        CHECK_OK(neo_tensor_copy(ctx[0], part, neo_tensor_1d(back, NEO_F32, n)));
        int64_t wrong = 0;
        for (int64_t k = 0; k < n; k++) wrong += back[k] != (float)(k + 7 * i);
        CHECK_INT(wrong, 0);
    }
    CHECK(strstr(warning, "copies of 1048588 bytes") && strstr(warning, "memory has 1048576"));
    CHECK(strstr(warning, "neo_cuda_graph_desc.copy_bytes"));
    neo_tensor_free(ctx[0], &to);
    for (neo_ctx *c : ctx) neo_ctx_destroy(c);
    neo_cuda_device_destroy(d);
}
/* A fault of a kernel is returned by a later call, and by every one after that. */
static void test_fault(void) {
#ifdef NEO_CUDA_ON_CPU
    neo_device *d = device_make(1);
    float *x = (float *)d->alloc(d, 64), of_the_host[6];
    const float *from = of_the_host;
    int *to = (int *)x;
    NEO__LAUNCH(neo__cuda_check_kernel, 1, 1, 0, ((neo__cuda *)d)->stream, from, to);
    CHECK_ERR(d->synchronize(d), NEO_ERR_DEVICE, "cuda:0 (");
    CHECK_ERR(d->fill(d, x, 0, 64), NEO_ERR_DEVICE, "work on the device");
    CHECK_ERR(d->synchronize(d), NEO_ERR_DEVICE, "work on the device");
    CHECK(d->alloc(d, 1) == NULL);
    neo_emu_reset();
    d->free(d, x, 64);
    neo_cuda_device_destroy(d);
#else
    SKIP("a fault would end CUDA in this process");
#endif
}

/* Whatever fails while steps are recorded, made into graphs and launched, there is a status,
   nothing stays behind, and the device is as good as before. */
#ifdef NEO_CUDA_ON_CPU
static neo_status graph_steps(neo_device *d, float *x, float *result) {
    const neo_cuda_graph_desc desc = {4096, 0, 0};
    neo_cuda_graph *g;
    neo__gemm_call c;
    float one[64];
    memset(&c, 0, sizeof c);
    c.m = c.n = c.k = 64;
    c.a = x, c.b = x, c.c = x + 4096;
    c.a_row = c.b_k = c.c_row = 64;
    c.a_k = c.b_col = 1;
    for (int i = 0; i < 64; i++) one[i] = 1.0f;
    NEO__ZERO(neo__cuda_scanning, scan); /* of CUB, which fails while it is captured, too */
    scan.keys = (uint32_t *)(x + 2 * 4096), scan.sorted_keys = (uint32_t *)(x + 2 * 4096) + 64;
    scan.temp = x + 2 * 4096 + 128, scan.bytes = (4096 - 128) * sizeof *x;
    scan.count = 64;
    NEO__TRY(neo_cuda_graph_create(d, &desc, &g));
    neo_status status = NEO_OK;
    for (int step = 0; step < 3 && status == NEO_OK; step++) {
        status = neo_cuda_graph_begin(g);
        for (int i = 0; i < 64 && status == NEO_OK; i++) {
            one[0] = (float)(step + 1);
            status = d->copy(d, x + 64 * i, NEO_DEVICE, one, NEO_HOST, sizeof one);
        }
        if (status == NEO_OK) status = d->gemm(d, &c);
        if (status == NEO_OK)
            status = neo__cuda_do((neo__cuda *)d, neo__cuda_scan_now, &scan, sizeof scan);
        if (status == NEO_OK) status = neo_cuda_graph_end(g);
    }
    if (status == NEO_OK) status = neo_cuda_graph_wait(g);
    if (status == NEO_OK)
        status = d->copy(d, result, NEO_HOST, x + 4096, NEO_DEVICE, sizeof *result);
    neo_cuda_graph_destroy(g);
    return status;
}
#endif
static void test_graph_fails(void) {
#ifdef NEO_CUDA_ON_CPU
    neo_device *d = device_make(0);
    float *x = (float *)d->alloc(d, 3 * 4096 * sizeof *x), result = 0.0f;
    REQUIRE(x);
    CHECK_OK(graph_steps(d, x, &result)); /* what cuBLASLt says of a shape is remembered */
    CHECK(result == 3.0f * 3.0f + 63.0f * 3.0f);
    const size_t bytes = neo_emu_live_bytes(), pinned = neo_emu_live_pinned(),
                 objects = neo_emu_live_objects();
    const neo_cuda_graph_desc desc = {5000, 0, 0};
    neo_cuda_graph *g = NULL;
    CHECK_OK(neo_cuda_graph_create(d, &desc, &g));
    CHECK_INT(neo_emu_live_bytes() - bytes, neo_cuda_graph_bytes(&desc));
    neo_cuda_graph_destroy(g);
    int failures = 0, unseen = 0;
    for (long n = 1;; n++) {
        result = 0.0f;
        neo_emu_fail_after(n);
        neo_status status = graph_steps(d, x, &result);
        const int failed = neo_emu_failed();
        neo_emu_fail_after(0);
        neo_emu_reset();
        CHECK_INT(neo_emu_live_bytes(), bytes);
        CHECK_INT(neo_emu_live_pinned(), pinned);
        CHECK_INT(neo_emu_live_objects(), objects);
        if (status == NEO_OK) CHECK(result == 3.0f * 3.0f + 63.0f * 3.0f);
        if (!failed) break;
        failures++;
        unseen += status == NEO_OK;
        CHECK(status == NEO_OK || status == NEO_ERR_MEMORY || status == NEO_ERR_DEVICE);
        CHECK(!((neo__cuda *)d)->failed);
    }
    CHECK(failures > 30);
    /* Three calls of neo_cuda_graph_destroy, which has no status, and the six of a begin that makes
       room for as much as the last step copied: without it the step is split as that one was. */
    CHECK_INT(unseen, 3 + 6);
    d->free(d, x, 0);
    neo_cuda_device_destroy(d);
#else
    SKIP("faults are injected by the emulation");
#endif
}

/* ---- elements ---- */
static void fill_edges(float *x, int64_t n) {
    static const float edge[] = {0.0f,   -0.0f, 1e-40f, -1e-40f, 1e30f, -1e30f, 88.0f,
                                 -88.0f, 16.0f, -16.0f, 0.6f,    -3.0f, 3.0f,   1e-8f};
    for (int64_t i = 0; i < n; i++) x[i] = i % 3 == 0 ? edge[(size_t)(i / 3) % 14] : 4.0f * x[i];
}
static void test_elements(void) {
    static const int64_t sizes[] = {0, 1, 3, 4, 5, 31, 257, 5000};
    for (int i = 0; i < 8; i++)
        for (skew = 0; skew <= 4; skew += 4) {
            const int64_t n = sizes[i];
            float *x = floats(n), *y = floats(n);
            fill_edges(x, n);
            upload();
            cpu->vec->add(x, y, n);
            NEO__ZERO(neo__blend_call, c);
            c.x = there(x), c.y = there(y);
            c.rows = 1, c.cols = c.x_row = c.y_row = n;
            CHECK_OK(gpu->blend(gpu, &c)); /* add */
            int infinite = 0;
            for (int64_t k = 0; k < n; k++) y[k] *= -0.37f;
            c.kind = NEO__BLEND_SCALE;
            c.x = there(y);
            c.factor = -0.37f;
            c.infinite = &infinite;
            CHECK_OK(gpu->blend(gpu, &c));
            CHECK_INT(infinite, 0);
            same("add, scale");
        }
    skew = 0;
}
/* Sums of every pair of float dtypes, and what rounding to one leaves. */
static void test_blend(void) {
    const int64_t n = 301;
    for (int a = NEO_F32; a <= NEO_F8E5M2; a++)
        for (int b = NEO_F32; b <= NEO_F8E5M2; b++) {
            float *wide = floats(n);
            fill_edges(wide, n);
            void *x = make(n, neo_dtype_size((neo_dtype)a)),
                 *y = make(n, neo_dtype_size((neo_dtype)b));
            neo_tensor from = column(wide, n), tx = neo_tensor_1d(x, (neo_dtype)a, n),
                       ty = neo_tensor_1d(y, (neo_dtype)b, n);
            CHECK_OK(neo_tensor_convert(cpu, from, tx, NULL));
            for (int64_t i = 0; i < n; i++) wide[i] *= 0.7f;
            CHECK_OK(neo_tensor_convert(cpu, from, ty, NULL));
            upload();
            NEO__ZERO(neo__blend_call, c);
            c.x = there_of(x), c.x_dtype = (neo_dtype)a;
            c.y = there_of(y), c.y_dtype = (neo_dtype)b;
            c.rows = 1, c.cols = c.x_row = c.y_row = n;
            CHECK_OK(gpu->blend(gpu, &c));
            CHECK_OK(neo_add(cpu, tx, ty));
            same("blend: add");
        }
    for (int a = NEO_F16; a <= NEO_F8E5M2; a++) {
        float *x = floats(n), *y = floats(n);
        fill_edges(x, n);
        upload();
        NEO__ZERO(neo__blend_call, c);
        c.kind = NEO__BLEND_ROUND;
        c.x = there(x), c.y = there(y), c.dtype = (neo_dtype)a;
        c.rows = 1, c.cols = c.x_row = c.y_row = n;
        CHECK_OK(gpu->blend(gpu, &c));
        CHECK_OK(neo_round(cpu, (neo_dtype)a, column(x, n), column(y, n)));
        same("blend: round");
    }
}
static void test_activation(void) {
    for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++)
        for (int strided = 0; strided < 3; strided++) {
            const int64_t rows = 5, cols = 77, s = cols + (strided == 1 ? 3 : 0);
            skew = strided == 2 ? 4 : 0;
            float *z = floats(rows * s), *y = floats(rows * s), *dy = floats(rows * s),
                  *dz = floats(rows * s);
            fill_edges(z, rows * s);
            upload();
            for (int64_t r = 0; r < rows; r++) {
                cpu->vec->act_forward((neo_activation)act, z + r * s, y + r * s, cols);
                cpu->vec->act_backward((neo_activation)act, z + r * s, y + r * s, dy + r * s,
                                       dz + r * s, cols);
            }
            NEO__ZERO(neo__activation_call, c);
            c.act = (neo_activation)act;
            c.rows = rows, c.cols = cols;
            c.z = there(z), c.z_row = s;
            c.out = there(y), c.out_row = s;
            CHECK_OK(gpu->activation(gpu, &c));
            c.backward = 1;
            if (!neo__act_needs_z(c.act)) c.z = NULL;
            if (!neo__act_needs_y(c.act)) c.y = NULL;
            else c.y = there(y);
            c.y_row = c.dy_row = s;
            c.dy = there(dy), c.out = there(dz);
            CHECK_OK(gpu->activation(gpu, &c));
            same("activation");
        }
    skew = 0;
}
static void test_tree_sum(void) {
    static const int counts[] = {1, 2, 3, 5, 8, 13, 128, 129, 300};
    for (int i = 0; i < 9; i++)
        for (int own = 0; own < 2; own++) {
            const int count = counts[i];
            const int64_t n = count > 100 ? 5 : 37;
            neo_tensor part[300];
            neo_tensor device[300];
            float *all = floats(300 * n), *out = floats(n);
            upload();
            for (int p = 0; p < count; p++) {
                part[p] = column(all + p * n, n);
                device[p] = column(there(all + p * n), n);
            }
            float *to = own ? out : all;
            CHECK_OK(neo_tree_sum(cpu, part, count, column(to, n)));
            const neo__tree_sum_call call = {device, count, there(to), n};
            CHECK_OK(gpu->tree_sum(gpu, &call));
            if (count > 1) { /* parts may be overwritten: only the sum counts */
                float *sum = (float *)malloc((size_t)n * 4);
                CHECK_OK(gpu->copy(gpu, sum, NEO_HOST, there(to), NEO_DEVICE, (size_t)n * 4));
                CHECK_BITS(sum, to, (size_t)n * 4);
                free(sum);
                drop();
            } else {
                same("tree_sum");
            }
        }
}

/* ---- products ---- */
typedef struct gemm_case {
    int64_t m, n, k;
    int trans_a, trans_b; /* a_row = 1, b_k = 1 */
    float beta;
    int bias, pad;        /* pad: elements between rows */
    neo_activation act;
    int backward, apart;  /* apart: y is not c */
} gemm_case;

static void gemm_check(const gemm_case *t, double tolerance) {
    const int64_t a_ld = (t->trans_a ? t->m : t->k) + t->pad,
                  b_ld = (t->trans_b ? t->k : t->n) + t->pad;
    const int64_t c_ld = t->n + 2 * t->pad;
    float *a = floats((t->trans_a ? t->k : t->m) * a_ld),
          *b = floats((t->trans_b ? t->n : t->k) * b_ld);
    float *c = floats(t->m * c_ld), *y = floats(t->m * c_ld), *z = floats(t->m * c_ld),
          *bias = floats(t->n);
    NEO__ZERO(neo__gemm_call, g);
    g.m = t->m, g.n = t->n, g.k = t->k;
    g.a_row = t->trans_a ? 1 : a_ld, g.a_k = t->trans_a ? a_ld : 1;
    g.b_k = t->trans_b ? 1 : b_ld, g.b_col = t->trans_b ? b_ld : 1;
    g.c_row = c_ld;
    g.beta = t->beta;
    g.a = a, g.b = b, g.c = c;
    if (t->bias) g.bias = bias;
    g.finish.act = t->act;
    g.finish.backward = t->backward;
    g.finish.y_row = g.finish.z_row = c_ld;
    if (t->apart || t->backward) g.finish.y = y;
    if (t->backward) g.finish.z = z;
    neo__gemm_call d = g;
    d.a = there(a), d.b = there(b), d.c = there(c), d.bias = there(g.bias);
    d.finish.y = there(g.finish.y), d.finish.z = there(g.finish.z);
    upload();
    CHECK_OK(cpu->on->gemm(cpu->on, &g));
    CHECK_OK(gpu->gemm(gpu, &d));
    char what[160];
    snprintf(what, sizeof what,
             "gemm %dx%dx%d trans %d%d beta %g bias %d act %d backward %d apart %d pad %d",
             (int)t->m, (int)t->n, (int)t->k, t->trans_a, t->trans_b, (double)t->beta, t->bias,
             (int)t->act, t->backward, t->apart, t->pad);
    compare(what, tolerance);
}
static const int64_t gemm_sizes[][3] = {{1, 1, 1},     {1, 1, 0},    {3, 5, 0},     {0, 4, 3},
                                        {4, 0, 3},     {1, 1, 300},  {64, 1, 70},   {129, 1, 33},
                                        {300, 3, 9},   {1, 65, 37},  {4, 130, 40},  {5, 7, 9},
                                        {64, 64, 16},  {65, 63, 17}, {33, 129, 31}, {130, 70, 50},
                                        {17, 19, 100}, {2, 2, 513},  {512, 600, 3}, {16, 512, 24}};
enum { GEMM_SIZES = sizeof gemm_sizes / sizeof gemm_sizes[0] };

static void test_gemm(void) {
    static const float betas[] = {0.0f, 1.0f, 0.5f};
    for (int i = 0; i < GEMM_SIZES; i++)
        for (int trans = 0; trans < 4; trans++)
            for (int option = 0; option < 6; option++) {
                if (skipped(i >= 18 ? 20 : 3)) continue;
                const gemm_case t = {gemm_sizes[i][0],
                                     gemm_sizes[i][1],
                                     gemm_sizes[i][2],
                                     trans & 1,
                                     trans >> 1,
                                     betas[option % 3],
                                     option & 1,
                                     option % 3,
                                     NEO_ACT_NONE,
                                     0,
                                     0};
                gemm_check(&t, 0.0);
            }
}
static void test_gemm_finish(void) {
    static const int64_t sizes[][3] = {{7, 33, 12}, {70, 2, 5}, {65, 66, 20}};
    for (int i = 0; i < 3; i++)
        for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++)
            for (int option = 0; option < 3; option++) {
                const gemm_case t = {
                    sizes[i][0], sizes[i][1], sizes[i][2],         0,           1,          0.0f,
                    option < 2,  act % 2,     (neo_activation)act, option == 2, option == 1};
                gemm_check(&t, 0.0);
            }
}
/* Sums that stay -0 from the first term to the last: nothing but the terms is added. */
static void test_gemm_signs(void) {
    static const int64_t sizes[][3] = {{5, 7, 9}, {65, 63, 17}, {300, 3, 9}, {2, 40, 33}};
    for (int i = 0; i < 4; i++) {
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        float *a = floats(m * k), *b = floats(k * n), *c = floats(m * n);
        for (int64_t e = 0; e < m * k; e++) a[e] = 0.0f;
        for (int64_t e = 0; e < k * n; e++) b[e] = -1.0f;
        for (int64_t e = 0; e < m * n; e++) c[e] = -0.0f;
        upload();
        NEO__ZERO(neo__gemm_call, g);
        g.m = m, g.n = n, g.k = k, g.beta = 1.0f;
        g.a = there(a), g.a_row = k, g.a_k = 1;
        g.b = there(b), g.b_k = n, g.b_col = 1;
        g.c = there(c), g.c_row = n;
        CHECK_OK(gpu->gemm(gpu, &g));
        same("gemm of zeros"); /* the host's C is as it was: -0 */
    }
}
/* Products over the batch by leaves, and column sums, against neo_linear_backward. */
static void leaves_check(const struct leaf_case *l, int64_t out, int64_t in, int pad,
                         double tolerance) {
    neo_ctx *ctx = ctx_of(l->shards);
    const neo__leaf_cut cut = cut_of(&l->leaves, l->shards);
    const int64_t rows = rows_of(&cut);
    float *x = floats(rows * (in + pad)), *dz = floats(rows * (out + pad)), *w = floats(out * in);
    float *dw = floats(out * (in + pad)), *db = floats(out);
    upload();
    CHECK_OK(neo_linear_backward(ctx, &l->leaves, matrix(x, rows, in, in + pad),
                                 matrix(w, out, in, in), matrix(dz, rows, out, out + pad),
                                 neo_tensor_none(), matrix(dw, out, in, in + pad),
                                 column(db, out)));
    NEO__ZERO(neo__gemm_call, g);
    g.m = out, g.n = in, g.k = rows;
    g.a = there(dz), g.a_row = 1, g.a_k = out + pad;
    g.b = there(x), g.b_k = in + pad, g.b_col = 1;
    g.c = there(dw), g.c_row = in + pad;
    g.tree = 1;
    g.leaves = cut;
    NEO__ZERO(neo__linear_grads_call, grads);
    grads.dw = g;
    grads.dbias.from = there(dz), grads.dbias.from_row = out + pad, grads.dbias.cols = out;
    grads.dbias.to = there(db);
    grads.dbias.leaves = cut;
    CHECK_OK(gpu->linear_grads(gpu, &grads));
    char what[100];
    snprintf(what, sizeof what, "leaves %d of %d, batch %d, %dx%d", l->leaves.count, l->shards,
             (int)l->leaves.batch, (int)out, (int)in);
    compare(what, tolerance);
    neo_ctx_destroy(ctx);
}
static void test_gemm_leaves(void) {
    static const int64_t sizes[][2] = {{1, 1}, {1, 40}, {40, 1}, {5, 70}, {66, 35}, {130, 129}};
    for (int l = 0; l < LEAF_CASES; l++)
        for (int i = 0; i < 6; i++)
            if (!skipped(i == 5 ? 5 : 2))
                leaves_check(&leaf_cases[l], sizes[i][0], sizes[i][1], i % 2, 0.0);
}
/* cuBLASLt's part: within rounding of the CPU, the same bits again, and no matter how leaves are
   dealt. */
static void test_gemm_blas(void) {
    neo_device *exact = gpu;
    gpu = device_make(0);
    for (int i = 0; i < 24; i++) {
        const gemm_case t = {64 + i % 5, 66 + i % 3, 70 + i % 2,
                             i & 1,      i >> 1 & 1, i % 3 == 0 ? 0.5f : 0.0f,
                             i % 4 > 0,  i % 5,      (neo_activation)(i % 6),
                             i % 4 == 0, i % 4 == 1};
        gemm_check(&t, 1e-5);
    }
    for (int i = 0; i < 24; i++) { /* four columns at a time, but where addresses forbid it */
        skew = i % 8 == 7 ? 4 : 0;
        const gemm_case t = {64 + i % 5, 68, 70, 0, 1, 0.0f, i % 3 > 0, i / 3 % 2 * 2,
                             (neo_activation)(i % 8), i % 3 == 0, i % 3 == 1};
        gemm_check(&t, 1e-5);
    }
    skew = 0;
    for (int l = 0; l < LEAF_CASES; l++) leaves_check(&leaf_cases[l], 70, 64 + l % 3, l % 2, 1e-5);
    drop();
    const int64_t m = 64, n = 68, k = 24;
    float *a = floats(k * m), *b = floats(k * n), *whole = floats(m * n),
          *halves = floats(2 * m * n);
    upload();
    NEO__ZERO(neo__gemm_call, g);
    g.m = m, g.n = n, g.k = k;
    g.a_row = 1, g.a_k = m, g.b_k = n, g.b_col = 1, g.c_row = n;
    g.tree = 1;
    float *out = (float *)malloc((size_t)(m * n) * 4),
          *again = (float *)malloc((size_t)(m * n) * 4);
    for (int ranks = 1; ranks <= 2; ranks++) {
        neo_tensor parts[2];
        for (int r = 0; r < ranks; r++) {
            const neo__leaf_cut cut = {k, 1, 2, r, 2 / ranks};
            g.leaves = cut;
            g.k = rows_of(&cut);
            g.a = there(a) + r * (k / 2) * m, g.b = there(b) + r * (k / 2) * n;
            g.c = ranks == 1 ? there(whole) : there(halves) + r * m * n;
            parts[r] = column(g.c, m * n);
            CHECK_OK(gpu->gemm(gpu, &g));
        }
        const neo__tree_sum_call both = {parts, 2, (float *)parts[0].data, m * n};
        if (ranks == 2) CHECK_OK(gpu->tree_sum(gpu, &both));
        CHECK_OK(gpu->copy(gpu, ranks == 1 ? out : again, NEO_HOST, parts[0].data, NEO_DEVICE,
                           (size_t)(m * n) * 4));
    }
    CHECK_BITS(out, again, (size_t)(m * n) * 4);
    free(out);
    free(again);
    drop();
    neo_cuda_device_destroy(gpu);
    gpu = exact;
}

static neo_ctx *device_ctx(int shards) {
    neo_ctx_desc d = {};
    neo_ctx *ctx = NULL;
    d.threads = 1;
    d.repro_shards = shards;
    d.device = gpu;
    CHECK_OK(neo_ctx_create(&d, &ctx));
    return ctx;
}
static neo_tensor on_device(neo_tensor t) {
    t.data = there_of(t.data);
    t.place = NEO_DEVICE;
    return t;
}
/* How leaves are cut further depends on the batch and V alone: pieces of a subtree of the leaves
   are those that it has among all, and no piece is in two leaves. */
static void pieces_check(const neo__leaf_cut *all, int64_t rows) {
    const neo__cuda d = {};
    const neo__leaf_cut whole = neo__cuda_pieces(&d, *all, rows);
    const int times = whole.shards / all->shards;
    for (int i = 0; i <= all->shards; i++)
        CHECK_INT(neo__leaf_row(&whole, i * times), neo__leaf_row(all, i));
    for (int first = 0; first < all->shards; first++)
        for (int count = 1; count <= all->shards - first; count++) {
            const neo_leaves leaves = {all->batch, first, count, all->rows_per_sample};
            if (neo__leaves_check_tree(&leaves, all->shards, "pieces") != NEO_OK) continue;
            const neo__leaf_cut some = neo__cuda_pieces(&d, cut_of(&leaves, all->shards), rows);
            CHECK_INT(some.shards, whole.shards);
            CHECK_INT(some.count, count * times);
            for (int i = 0; i <= some.count; i++)
                CHECK_INT(neo__leaf_row(all, first) + neo__leaf_row(&some, i),
                          neo__leaf_row(&whole, first * times + i));
        }
}
static void test_pieces(void) {
    static const int64_t batches[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 33, 1001};
    static const int64_t each[] = {1, 2, 3, 1000, 1023, 1024, 4096};
    for (int b = 0; b < 12; b++)
        for (int e = 0; e < 7; e++)
            for (int shards = 1; shards < 18; shards++) {
                const neo__leaf_cut all = {batches[b], each[e], shards, 0, shards};
                pieces_check(&all, 128);
                pieces_check(&all, 2);
            }
}
/* And sums of them, one sample a leaf, are the same on one rank and on two. */
static void samples_check(int samples, int left, int64_t each, int64_t out, int64_t in) {
    const neo__leaf_cut cut[] = {{samples, each, samples, 0, samples},
                                 {samples, each, samples, 0, left},
                                 {samples, each, samples, left, samples - left}};
    float *x = floats(samples * each * in), *dz = floats(samples * each * out);
    float *sum[3];
    const int64_t count = out * (in + 1);
    for (int i = 0; i < 3; i++) sum[i] = floats(count);
    upload();
    neo_tensor of[2];
    for (int i = 0; i < 3; i++) {
        const int64_t row = cut[i].first * each;
        NEO__ZERO(neo__linear_grads_call, g);
        g.dw.m = out, g.dw.n = in, g.dw.k = rows_of(&cut[i]), g.dw.tree = 1;
        g.dw.a = there(dz) + row * out, g.dw.b = there(x) + row * in, g.dw.c = there(sum[i]);
        g.dw.a_row = g.dw.b_col = 1, g.dw.a_k = out, g.dw.b_k = g.dw.c_row = in;
        g.dbias.from = g.dw.a, g.dbias.from_row = g.dbias.cols = out;
        g.dbias.to = g.dw.c + out * in, g.dw.leaves = g.dbias.leaves = cut[i];
        CHECK_OK(gpu->linear_grads(gpu, &g));
        if (i) of[i - 1] = column(g.dw.c, count);
    }
    const neo__tree_sum_call both = {of, 2, there(sum[1]), count};
    CHECK_OK(gpu->tree_sum(gpu, &both));
    for (int i = 0; i < 2; i++)
        CHECK_OK(gpu->copy(gpu, sum[i], NEO_HOST, there(sum[i]), NEO_DEVICE, (size_t)count * 4));
    CHECK_BITS(sum[0], sum[1], (size_t)count * 4);
    drop();
}
static void test_samples(void) {
    neo_device *exact = gpu;
    gpu = device_make(0);
    static const int64_t each[] = {1024, 1023, 1536, 4096};
    for (int i = 0; i < 4; i++) {
        samples_check(2, 1, each[i], 9, 5);
        samples_check(3, 2, each[i], 17, 3);
        samples_check(5, 4, each[i] / 2, 3, 33);
    }
    samples_check(3, 2, 2048, 64, 68); /* cuBLASLt's */
    samples_check(20, 16, 2048, 64, 64);
    neo_cuda_device_destroy(gpu);
    gpu = exact;
}

/* Without `exact`. A row of a product has the same bits whatever rows lie beside it, and a leaf
   whatever leaves are here: more than one call takes, of two sizes. Pieces of leaves are those of
   as many times the leaves: bits of the CPU where own kernels add them. */
static void test_deterministic(void) {
    enum { ROWS = 75, N = 68, K = 48, LEAVES = 40, EACH = 3 };
    neo_device *exact = gpu;
    for (int tf32 = 0; tf32 < 2; tf32++) {
        neo_cuda_desc desc = {0, 0, tf32};
        REQUIRE_OK(neo_cuda_device_create(&desc, &gpu));
        drop();
        float *x = floats(ROWS * K), *w = floats(N * K), *bias = floats(N), *y = floats(ROWS * N),
              *parts = floats(ROWS * N);
        upload();
        NEO__ZERO(neo__gemm_call, g);
        g.n = N, g.k = K, g.a_row = K, g.a_k = 1, g.b_k = 1, g.b_col = K, g.c_row = N;
        g.b = there(w), g.bias = there(bias), g.finish.act = NEO_ACT_RELU;
        static const int cuts[] = {0, ROWS, 0, 1, 18, 57, ROWS};
        for (int i = 0; i < 6; i++) {
            if (cuts[i + 1] < cuts[i]) continue;
            g.m = cuts[i + 1] - cuts[i], g.a = there(x) + cuts[i] * K;
            g.c = (i ? there(parts) : there(y)) + cuts[i] * N;
            CHECK_OK(gpu->gemm(gpu, &g));
        }
        float *all[2] = {y, parts};
        for (int i = 0; i < 2; i++)
            CHECK_OK(gpu->copy(gpu, all[i], NEO_HOST, there(all[i]), NEO_DEVICE, ROWS * N * 4));
        CHECK_BITS(y, parts, ROWS * N * 4);
        drop();
        float *a = floats(LEAVES * EACH * N), *b = floats(LEAVES * EACH * N);
        float *sum[3] = {floats(N * N), floats(N * N), floats(N * N)};
        upload();
        NEO__ZERO(neo__gemm_call, dw);
        dw.m = dw.n = N, dw.a_row = 1, dw.a_k = dw.b_k = dw.c_row = N, dw.b_col = 1, dw.tree = 1;
        static const neo__leaf_cut cut[] = {{LEAVES * EACH - 7, 1, LEAVES, 0, LEAVES},
                                            {LEAVES * EACH - 7, 1, LEAVES, 0, 32},
                                            {LEAVES * EACH - 7, 1, LEAVES, 32, 8}};
        neo_tensor of[2];
        for (int i = 0; i < 3; i++) {
            const int64_t k0 = neo_leaf_begin(cut[i].batch, LEAVES, cut[i].first);
            dw.leaves = cut[i], dw.k = rows_of(&cut[i]);
            dw.a = there(a) + k0 * N, dw.b = there(b) + k0 * N, dw.c = there(sum[i]);
            if (i) of[i - 1] = column(dw.c, N * N);
            CHECK_OK(gpu->gemm(gpu, &dw));
        }
        const neo__tree_sum_call both = {of, 2, there(sum[1]), N * N};
        CHECK_OK(gpu->tree_sum(gpu, &both));
        for (int i = 0; i < 2; i++)
            CHECK_OK(gpu->copy(gpu, sum[i], NEO_HOST, there(sum[i]), NEO_DEVICE, N * N * 4));
        CHECK_BITS(sum[0], sum[1], N * N * 4);
        const float first = sum[0][0];
        double naive = 0.0;
        for (int64_t i = 0; i < cut[0].batch; i++) naive += (double)a[i * N] * (double)b[i * N];
        CHECK(fabs((double)first - naive) < (tf32 ? 1e-2 : 1e-4));
        drop();
        neo_cuda_device_destroy(gpu);
    }
    gpu = device_make(0);
    static const int pieces[][4] = {{1, 512, 4, 2}, {3, 1800, 12, 6}, {2, 127, 2, 2}};
    for (int i = 0; i < 3; i++) {
        const int rows = pieces[i][1], out = 15, in = 33;
        neo_ctx *cpu_of[2] = {ctx_of(pieces[i][2]), ctx_of(pieces[i][3])}, *there_of_it;
        float *x = floats(rows * in), *dz = floats(rows * out), *w = floats(out * in),
              *dw = floats(out * in), *db = floats(out);
        upload();
        there_of_it = device_ctx(pieces[i][0]);
        for (int k = 0; k < 2; k++)
            CHECK_OK(neo_linear_backward(cpu_of[k], NULL, matrix(x, rows, in, in),
                                         matrix(w, out, in, in), matrix(dz, rows, out, out),
                                         neo_tensor_none(),
                                         k ? matrix(dw, out, in, in) : neo_tensor_none(),
                                         k ? neo_tensor_none() : column(db, out)));
        CHECK_OK(neo_linear_backward(
            there_of_it, NULL, on_device(matrix(x, rows, in, in)),
            on_device(matrix(w, out, in, in)), on_device(matrix(dz, rows, out, out)),
            neo_tensor_none(), on_device(matrix(dw, out, in, in)), on_device(column(db, out))));
        same("pieces of leaves"); /* too small for cuBLASLt, */
        CHECK_INT(neo_cuda_get_stats(gpu).own_products, 0);
        for (int k = 0; k < 2; k++) neo_ctx_destroy(cpu_of[k]);
        neo_ctx_destroy(there_of_it);
    }
#ifdef NEO_CUDA_ON_CPU /* and a shape for which that has no algorithm */
    const gemm_case none = {40, 61, 50, 0, 1, 0.0f, 1, 0, NEO_ACT_GELU, 0, 0};
    gemm_check(&none, 0.0);
    CHECK_INT(neo_cuda_get_stats(gpu).own_products, 1);
#endif
    /* Epilogues that cuBLASLt has, and those of kernels behind it. */
    static const struct { neo_activation act; int apart, of_others; } finishes[] = {
        {NEO_ACT_NONE, 0, 0}, {NEO_ACT_RELU, 0, 0}, {NEO_ACT_GELU, 0, 1}, {NEO_ACT_RELU, 1, 1}};
    for (int i = 0; i < 4; i++) {
        const uint64_t before = neo_cuda_get_stats(gpu).own_epilogues;
        const gemm_case c = {64, 64, 64, 0, 1, 0.0f, 1, 0, finishes[i].act, 0, finishes[i].apart};
        gemm_check(&c, 1e-5);
        CHECK_INT(neo_cuda_get_stats(gpu).own_epilogues - before, finishes[i].of_others);
    }
    neo_cuda_device_destroy(gpu);
    gpu = exact;
}

/* ---- products of bf16 ---- */
enum { PLAIN, TINY };
/* TINY: products about the smallest normal number, denormals, zeros. */
static uint16_t *halves(int64_t n, int kind) {
    uint16_t *x = (uint16_t *)make(n, 2);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t r = test_random();
        if (kind == PLAIN) x[i] = neo__bf16_from_f32(test_uniform());
        else if (r % 16 == 0) x[i] = (uint16_t)(r >> 16 & 0x807F); /* a denormal */
        else if (r % 16 == 1) x[i] = (uint16_t)(r >> 16 & 0x8000);
        else x[i] = (uint16_t)((r >> 16 & 0x807F) | (58 + r % 11) << 7); /* 2^-69 to 2^-59 */
    }
    return x;
}
static void test_narrow_activation(void) {
    enum { N = 5 * 77 };
    for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++)
        for (int option = 0; option < 8; option++) {
            skew = option & 2 ? 4 : 0;
            NEO__ZERO(neo__activation_call, c);
            c.act = (neo_activation)act, c.backward = option & 1;
            c.rows = 5, c.cols = 77, c.z_row = c.y_row = c.dy_row = c.out_row = 77;
            c.narrow_z = c.narrow_out = 1, c.narrow_dy = option >> 2;
            c.z = (const float *)(const void *)halves(N, PLAIN), c.y = c.dy = floats(N);
            if (c.narrow_dy) c.dy = (const float *)(const void *)halves(N, PLAIN);
            c.out = (float *)(void *)halves(N, PLAIN);
            upload();
            neo__activation_call d = c;
            d.z = there(c.z), d.y = there(c.y), d.dy = there(c.dy), d.out = there(c.out);
            CHECK_OK(cpu->on->activation(cpu->on, &c));
            CHECK_OK(gpu->activation(gpu, &d));
            same("activation of bf16");
        }
    skew = 0;
}
/* What is checked: a product, which of c, y, z are bf16, numbers. */
typedef struct narrow_case {
    gemm_case g;
    int c, y, z, kind, bias; /* bias: it is bf16 */
} narrow_case;
static neo_tensor either(int narrow, int64_t rows, int64_t cols, int64_t ld, int kind) {
    void *p = narrow ? (void *)halves(rows * ld, kind) : floats(rows * ld);
    neo_tensor t = neo_tensor_2d(p, narrow ? NEO_BF16 : NEO_F32, rows, cols);
    t.stride[0] = ld;
    for (int64_t i = 0; !narrow && kind == TINY && i < rows * ld; i++) ((float *)p)[i] *= 0x1p-125f;
    return t;
}
static void narrow_check(const narrow_case *n, double tolerance) {
    const gemm_case *t = &n->g;
    const int64_t a_ld = (t->trans_a ? t->m : t->k) + t->pad,
                  b_ld = (t->trans_b ? t->k : t->n) + t->pad;
    const int64_t c_ld = t->n + 2 * t->pad;
    uint16_t *a = halves((t->trans_a ? t->k : t->m) * a_ld, n->kind);
    uint16_t *b = halves((t->trans_b ? t->n : t->k) * b_ld, n->kind);
    const neo_tensor none = neo_tensor_none(), c = either(n->c, t->m, t->n, c_ld, n->kind);
    const float *bias = !t->bias  ? NULL
                        : n->bias ? (const float *)(const void *)halves(t->n, PLAIN)
                                  : floats(t->n);
    const neo_tensor y = t->apart || t->backward ? either(n->y, t->m, t->n, c_ld, PLAIN) : none;
    const neo_tensor z = t->backward ? either(n->z, t->m, t->n, c_ld, PLAIN) : none;
    upload();
    NEO__ZERO(neo__gemm_call, g);
    g.narrow = 1, g.narrow_c = n->c, g.narrow_bias = n->bias;
    g.m = t->m, g.n = t->n, g.k = t->k;
    g.a = (const float *)(const void *)a, g.b = (const float *)(const void *)b;
    g.a_row = t->trans_a ? 1 : a_ld, g.a_k = t->trans_a ? a_ld : 1;
    g.b_k = t->trans_b ? 1 : b_ld, g.b_col = t->trans_b ? b_ld : 1;
    g.c = (float *)c.data, g.c_row = c_ld;
    g.beta = t->beta;
    g.bias = bias;
    neo__gemm_call_finish(&g, t->act, t->backward, y, z);
    neo__gemm_call d = g;
    d.a = there(g.a), d.b = there(g.b), d.bias = there(bias);
    d.c = (float *)there_of(c.data);
    d.finish.y = (float *)there_of(y.data), d.finish.z = (const float *)there_of(z.data);
    CHECK_OK(cpu->on->gemm(cpu->on, &g));
    CHECK_OK(gpu->gemm(gpu, &d));
    char what[200];
    snprintf(what, sizeof what,
             "bf16 %dx%dx%d trans %d%d beta %g bias %d act %d backward %d apart %d pad %d, bf16 "
             "are %d%d%d, "
             "numbers %d",
             (int)t->m, (int)t->n, (int)t->k, t->trans_a, t->trans_b, (double)t->beta, t->bias,
             (int)t->act, t->backward, t->apart, t->pad, n->c, n->y, n->z, n->kind);
    compare(what, tolerance);
}
static void test_narrow(void) {
    static const int64_t deep[] = {31, 32, 33, 64, 95};
    static const float betas[] = {0.0f, 1.0f, 0.5f};
    for (int i = 0; i < GEMM_SIZES; i++)
        for (int trans = 0; trans < 4; trans++)
            for (int option = 0; option < 12; option++) {
                if (skipped(i >= 18 ? 40 : 6)) continue;
                const int64_t k = option % 2 ? deep[(i + option) % 5] : gemm_sizes[i][2];
                const narrow_case n = {{gemm_sizes[i][0], gemm_sizes[i][1], k, trans & 1,
                                        trans >> 1, betas[option % 3], option & 1, option % 3,
                                        NEO_ACT_NONE, 0, 0},
                                       option / 6,
                                       0,
                                       0,
                                       option / 3 % 2,
                                       option / 2 % 2};
                narrow_check(&n, 0.0);
            }
    for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++)
        for (int option = 0; option < 12; option++) {
            if (skipped(2)) continue;
            const narrow_case n = {{option % 2 ? 7 : 70, 33, 37, 0, 1, 0.0f, option % 3 < 2,
                                    act % 2, (neo_activation)act, option % 3 == 2, option % 3 == 1},
                                   option / 2 % 2,
                                   option / 3 % 2,
                                   option / 6,
                                   PLAIN,
                                   option / 4 % 2};
            narrow_check(&n, 0.0);
        }
}
/* A sum whose exact value lies about half a unit below the smallest normal number, by little. */
static void test_narrow_tiny(void) {
    enum { CASES = 64 };
    NEO__ZERO(neo__gemm_call, g);
    g.narrow = 1;
    g.m = g.n = CASES, g.k = 7;
    uint16_t *a = halves(CASES * 7, PLAIN), *b = halves(CASES * 7, PLAIN);
    memset(a, 0, CASES * 7 * 2), memset(b, 0, CASES * 7 * 2);
    for (int i = 0; i < CASES; i++) { /* of even k: 2^-126 less what is near 2^-151 */
        const float sign = i & 1 ? -1.0f : 1.0f;
        a[7 * i] = neo__bf16_from_f32(sign * 0x1p-63f), b[7 * i] = neo__bf16_from_f32(0x1p-63f);
        a[7 * i + 2] = neo__bf16_from_f32(-sign * 0x1p-75f * (1.0f + (float)(i % 8 - 4) / 128.0f));
        b[7 * i + 2] =
            neo__bf16_from_f32((i & 2 ? 0x1p-76f : 0x1p-75f) * (1.0f + (float)(i / 8) / 128.0f));
        a[7 * i + 4] = neo__bf16_from_f32(sign * 0x1p-63f),
                  b[7 * i + 4] = neo__bf16_from_f32(i & 4 ? 0x1p-60f : 0.0f);
    }
    g.a = (const float *)(const void *)a, g.a_row = 7, g.a_k = 1;
    g.b = (const float *)(const void *)b, g.b_k = 1, g.b_col = 7;
    g.c = floats(CASES * CASES), g.c_row = CASES;
    upload();
    neo__gemm_call d = g;
    d.a = there(g.a), d.b = there(g.b), d.c = there(g.c);
    CHECK_OK(cpu->on->gemm(cpu->on, &g));
    CHECK_OK(gpu->gemm(gpu, &d));
    int zeros = 0, least = 0;
    for (int i = 0; i < CASES * CASES; i++) {
        const float x = fabsf(g.c[i]);
        zeros += x == 0.0f, least += x == 0x1p-126f;
    }
    CHECK(zeros > 100 && least > 100);
    same("bf16 about the smallest normal number");
}
/* pad: 0, where two columns of dz are one load; 1; or 2, where dz begins behind the first one. */
static void narrow_leaves_check(const struct leaf_case *l, int64_t out, int64_t in, int pad,
                                double tolerance) {
    neo_ctx *ctx[2] = {ctx_of(l->shards), device_ctx(l->shards)};
    const neo__leaf_cut cut = cut_of(&l->leaves, l->shards);
    const int64_t rows = rows_of(&cut);
    neo_tensor x = either(1, rows, in, in + pad, PLAIN),
               dz = either(1, rows, out, out + pad, PLAIN);
    neo_tensor w = either(1, out, in, in, PLAIN), dw = either(0, out, in, in + pad, PLAIN),
               db = column(floats(out), out);
    if (pad == 2) dz.data = (uint16_t *)dz.data + 1;
    upload();
    CHECK_OK(neo_linear_backward(ctx[0], &l->leaves, x, w, dz, neo_tensor_none(), dw, db));
    CHECK_OK(neo_linear_backward(ctx[1], &l->leaves, on_device(x), on_device(w), on_device(dz),
                                 neo_tensor_none(), on_device(dw), on_device(db)));
    char what[100];
    snprintf(what, sizeof what, "bf16, leaves %d of %d, batch %d, %dx%d", l->leaves.count,
             l->shards, (int)l->leaves.batch, (int)out, (int)in);
    compare(what, tolerance);
    for (int i = 0; i < 2; i++) neo_ctx_destroy(ctx[i]);
}
static void test_narrow_leaves(void) {
    static const int64_t sizes[][2] = {{1, 1}, {1, 40}, {40, 1}, {66, 35}, {70, 129}};
    for (int l = 0; l < LEAF_CASES; l++)
        for (int i = 0; i < 5; i++)
            if (!skipped(i == 4 ? 5 : 2))
                narrow_leaves_check(&leaf_cases[l], sizes[i][0], sizes[i][1], i % 3, 0.0);
}
/* By cuBLASLt: sums in another order, of f32; the same bits again; outputs of bf16 by way of the
   work memory, or by cuBLASLt itself. */
static void test_narrow_blas(void) {
    neo_device *exact = gpu;
    gpu = device_make(0);
    for (int i = 0; i < 24; i++) {
        const int64_t rows = i == 5 ? 400 : 64 + i % 5; /* 400 of bf16: in parts */
        const narrow_case n = {{rows, 66 + i % 3, i == 5 ? 40 : 70 + i % 2, i & 1, i >> 1 & 1,
                                i % 3 == 0 ? 0.5f : 0.0f, i % 4 > 0, i % 5, (neo_activation)(i % 6),
                                i % 4 == 0, i % 4 == 1},
                               i & 1,
                               i >> 1 & 1,
                               i >> 2 & 1,
                               PLAIN,
                               i / 3 % 2};
        narrow_check(&n, 1e-5);
    }
    for (int i = 0; i < 24; i++) { /* four columns at a time */
        const narrow_case n = {{64 + i % 5, 68, 70, 0, 1, i % 2 ? 0.5f : 0.0f, i % 3 > 0,
                                i / 3 % 2 * 2, (neo_activation)(i % 9), i % 3 == 0, i % 3 == 1},
                               i & 1,
                               i >> 1 & 1,
                               i >> 2 & 1,
                               PLAIN,
                               i / 2 % 2};
        narrow_check(&n, 1e-5);
    }
    for (int i = 0; i < 8; i++) {
        const narrow_case n = {{i == 7 ? 400 : 64 + i, 66 + i % 3, 70, i & 1, i >> 1 & 1,
                                i > 5 ? 0.5f : 0.0f, 0, i % 3, NEO_ACT_NONE, 0, 0}, 1, 0, 0, PLAIN,
                               0};
        narrow_check(&n, 1e-5);
    }
    /* GELU by tanh beside its z, or the gradient times its slope there: one launch where all is
       bf16 and z in steps of 16 bytes; else by the work memory. */
    for (int i = 0; i < 24; i++) {
        const int back = i & 1, bias = i >> 1 & 1, pad = i % 3 ? 0 : 4, odd = i % 8 == 7;
        const int z = i % 12 != 10, launches = z && !odd ? 1 : 2;
        const narrow_case n = {{64 + i, odd ? 68 : 72, 64, 0, back, 0.0f, bias && !back, pad,
                                NEO_ACT_GELU_TANH, back, !back}, back || z, !back || z, z, PLAIN,
                               bias};
        const uint64_t before = neo_cuda_get_stats(gpu).launches;
        narrow_check(&n, 1e-5);
        CHECK_INT(neo_cuda_get_stats(gpu).launches - before, launches);
    }
    for (int l = 0; l < LEAF_CASES; l++)
        narrow_leaves_check(&leaf_cases[l], 70, 64 + l % 3, l % 3, 1e-5);
    neo__cuda *d = (neo__cuda *)gpu;
    int used[4] = {0, 0, 0, 0};
    for (int i = 0; i < NEO__CUDA_PRODUCTS; i++)
        used[d->product[i].shape.used] += d->product[i].matmul != NULL;
    CHECK(used[1] == 0 && used[2] > 20 && used[3] >= 7);
    neo_cuda_device_destroy(gpu);
    gpu = exact;
}

/* ---- norms ---- */
static void norm_check(const struct leaf_case *l, int centered, int64_t cols, int option) {
    neo_ctx *ctx = ctx_of(l->shards);
    const neo__leaf_cut cut = cut_of(&l->leaves, l->shards);
    const int64_t rows = rows_of(&cut), s = cols + option % 2 * 3;
    float *x = floats(rows * s), *w = floats(cols), *b = floats(cols), *y = floats(rows * s),
          *dy = floats(rows * s);
    float *narrow = (float *)make(rows * s, 2);
    float *stats = floats(rows * 2), *dx = option == 2 ? dy : floats(rows * s), *dw = floats(cols),
          *db = floats(cols);
    upload();
    const neo_tensor xt = matrix(x, rows, cols, s), yt = matrix(y, rows, cols, s),
                     dyt = matrix(dy, rows, cols, s);
    neo_tensor nt = neo_tensor_2d(narrow, NEO_BF16, rows, cols);
    nt.stride[0] = s;
    const neo_tensor dxt = matrix(dx, rows, cols, s), none = neo_tensor_none();
    const neo_tensor wt = option == 3 ? none : column(w, cols),
                     bt = option == 3 ? none : column(b, cols);
    if (centered) {
        const neo_tensor st = neo_tensor_2d(stats, NEO_F32, rows, 2);
        CHECK_OK(neo_layer_norm_forward(ctx, xt, wt, bt, 1e-5f, yt, st));
        CHECK_OK(neo_layer_norm_forward(ctx, xt, wt, bt, 1e-5f, nt, st));
        CHECK_OK(neo_layer_norm_backward(ctx, &l->leaves, xt, wt, st, dyt, dxt, column(dw, cols),
                                         column(db, cols)));
    } else {
        const neo_tensor st = column(stats, rows);
        CHECK_OK(neo_rms_norm_forward(ctx, xt, wt, 1e-5f, yt, st));
        CHECK_OK(neo_rms_norm_forward(ctx, xt, wt, 1e-5f, nt, st));
        CHECK_OK(neo_rms_norm_backward(ctx, &l->leaves, xt, wt, st, dyt, dxt, column(dw, cols)));
    }
    NEO__ZERO(neo__norm_call, c);
    c.centered = centered;
    c.rows = rows, c.cols = cols, c.eps = 1e-5f;
    c.x = there(x), c.x_row = c.y_row = c.dy_row = c.dx_row = s;
    c.weight = option == 3 ? NULL : there(w);
    c.bias = option == 3 || !centered ? NULL : there(b);
    c.stats = there(stats), c.y = there(narrow), c.narrow_y = 1;
    c.leaves = cut;
    CHECK_OK(gpu->norm(gpu, &c));
    c.y = there(y), c.narrow_y = 0;
    CHECK_OK(gpu->norm(gpu, &c));
    c.backward = 1;
    c.dy = there(dy), c.dx = there(dx), c.dweight = there(dw);
    c.dbias = centered ? there(db) : NULL;
    CHECK_OK(gpu->norm(gpu, &c));
    same("norm");
    neo_ctx_destroy(ctx);
}
/* Of bf16: what the CPU computes of the same numbers in f32, rounded once. */
static void norm_half_check(const struct leaf_case *l, int centered, int64_t cols, int option) {
    enum { OF_X, OF_Y, OF_DY, OF_DX, KINDS };
    neo_ctx *ctx = ctx_of(l->shards);
    const neo__leaf_cut cut = cut_of(&l->leaves, l->shards);
    const int64_t rows = rows_of(&cut), s = cols + option % 2 * 3;
    std::vector<float> wide[KINDS];
    uint16_t *half[KINDS];
    neo_tensor t[KINDS];
    for (int k = 0; k < KINDS; k++) {
        half[k] = k == OF_DX && option == 2 ? half[OF_DY] : (uint16_t *)make(rows * s, 2);
        wide[k].resize((size_t)(rows * s + 1));
        for (int64_t i = 0; k % 2 == 0 && i < rows * s; i++) {
            half[k][i] = neo__bf16_from_f32(test_uniform());
            wide[k][(size_t)i] = neo__f32_from_bf16(half[k][i]);
        }
        t[k] = matrix(wide[k].data(), rows, cols, s);
    }
    float *w = floats(cols), *b = floats(cols), *stats = floats(rows * 2);
    float *dw = floats(cols), *db = floats(cols);
    const neo_tensor none = neo_tensor_none(), wt = option == 3 ? none : column(w, cols);
    const neo_tensor st = centered ? neo_tensor_2d(stats, NEO_F32, rows, 2) : column(stats, rows);
    upload();
    if (centered) {
        CHECK_OK(neo_layer_norm_forward(ctx, t[OF_X], wt, column(b, cols), 1e-5f, t[OF_Y], st));
        CHECK_OK(neo_layer_norm_backward(ctx, &l->leaves, t[OF_X], wt, st, t[OF_DY], t[OF_DX],
                                         column(dw, cols), column(db, cols)));
    } else {
        CHECK_OK(neo_rms_norm_forward(ctx, t[OF_X], wt, 1e-5f, t[OF_Y], st));
        CHECK_OK(neo_rms_norm_backward(ctx, &l->leaves, t[OF_X], wt, st, t[OF_DY], t[OF_DX],
                                       column(dw, cols)));
    }
    for (int k = OF_Y; k < KINDS; k += 2)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                half[k][i * s + j] = neo__bf16_from_f32(wide[k][(size_t)(i * s + j)]);
    NEO__ZERO(neo__norm_call, c);
    c.centered = centered, c.narrow_x = c.narrow_y = 1;
    c.rows = rows, c.cols = cols, c.eps = 1e-5f, c.leaves = cut;
    c.x_row = c.y_row = c.dy_row = c.dx_row = s;
    c.x = (float *)there_of(half[OF_X]), c.y = (float *)there_of(half[OF_Y]);
    c.weight = option == 3 ? NULL : there(w), c.bias = centered ? there(b) : NULL;
    c.stats = there(stats);
    CHECK_OK(gpu->norm(gpu, &c));
    c.backward = 1;
    c.dy = (float *)there_of(half[OF_DY]), c.dx = (float *)there_of(half[OF_DX]);
    c.dweight = there(dw), c.dbias = centered ? there(db) : NULL;
    CHECK_OK(gpu->norm(gpu, &c));
    same("norm of bf16");
    neo_ctx_destroy(ctx);
}
static void test_norm(void) {
    static const int64_t cols[] = {1, 15, 16, 33, 256, 300, 600, 512, 768, 1024, 1280};
    for (int l = 0; l < LEAF_CASES; l++)
        for (int i = 0; i < 11; i++)
            for (int option = 0; option < 4; option++)
                for (int centered = 0; centered < 2; centered++)
                    if (!skipped(i >= 6 ? 13 : 5)) {
                        norm_check(&leaf_cases[l], centered, cols[i], option);
                        norm_half_check(&leaf_cases[l], centered, cols[i], option);
                    }
}

/* ---- what a device found ---- */
static neo__later answer_to(void *job, neo_status (*fn)(void *job, const void *answer)) {
    const neo__later later = {fn, job, 0};
    return later;
}
/* Position of the first bad id; -1: none. */
static neo_status found_id(void *job, const void *answer) {
    memcpy(job, answer, sizeof(int64_t)); /* its place */
    return NEO_OK;
}
struct loss_answer {
    neo_exact *sum;
    int64_t bad; /* the first sample that is outside, or -1 */
    int what;    /* 0: its label, 1: its probability */
    double value;
    int64_t label; /* of cross entropy, instead */
};
static neo_status found_loss(void *job, const void *answer) {
    struct loss_answer *a = (struct loss_answer *)job;
    neo__loss_found found;
    memcpy(&found, answer, sizeof found);
    a->what = found.bad[0] == UINT64_MAX && found.bad[1] != UINT64_MAX;
    a->bad = (int64_t)found.bad[a->what], a->value = found.value;
    a->label = found.label;
    if (a->bad < 0) neo_exact_merge(a->sum, &found.sum);
    return NEO_OK;
}

/* ---- embedding ---- */
static void embedding_check(const struct leaf_case *l, int64_t table_rows, int64_t dim, int is_i32,
                            int add, int pad) {
    neo_ctx *ctx = ctx_of(l->shards);
    const neo__leaf_cut cut = cut_of(&l->leaves, l->shards);
    const int64_t count = rows_of(&cut), s = dim + pad;
    float *table = floats(table_rows * s), *out = floats(count * s), *dout = floats(count * s),
          *grad = floats(table_rows * s);
    void *ids = make(count, is_i32 ? 4 : 8);
    for (int64_t i = 0; i < count; i++) {
        const int64_t id =
            test_random() % 3 ? (int64_t)(test_random() % (uint32_t)table_rows) : table_rows / 2;
        if (is_i32) ((int32_t *)ids)[i] = (int32_t)id;
        else ((int64_t *)ids)[i] = id;
    }
    for (int64_t i = 0; i < table_rows * s; i += 3) grad[i] = -0.0f;
    for (int64_t i = 0; i < count * s; i += 2) dout[i] = -0.0f;
    upload();
    const neo_tensor it = neo_tensor_1d(ids, is_i32 ? NEO_I32 : NEO_I64, count);
    CHECK_OK(neo_embedding_forward(ctx, it, matrix(table, table_rows, dim, s),
                                   matrix(out, count, dim, s)));
    CHECK_OK(neo_embedding_backward(ctx, &l->leaves, it, matrix(dout, count, dim, s),
                                    matrix(grad, table_rows, dim, s), add));
    int64_t bad = 5;
    NEO__ZERO(neo__embedding_call, c);
    c.later = answer_to(&bad, found_id);
    c.is_i32 = is_i32;
    c.ids = there((char *)ids);
    c.count = count, c.rows = table_rows, c.dim = dim;
    c.from = there(table), c.to = there(out), c.from_row = c.to_row = s;
    c.leaves = cut;
    CHECK_OK(gpu->embedding(gpu, &c));
    CHECK_INT(bad, -1);
    c.backward = 1, c.add = add, bad = 5;
    c.from = there(dout), c.to = there(grad);
    CHECK_OK(gpu->embedding(gpu, &c));
    CHECK_INT(bad, -1);
    same("embedding");
    neo_ctx_destroy(ctx);
}
static void test_embedding(void) {
    static const int64_t sizes[][2] = {{1, 1}, {5, 4}, {9, 130}, {300, 7}, {33, 256}};
    for (int l = 0; l < LEAF_CASES; l++)
        for (int i = 0; i < 5; i++)
            for (int option = 0; option < 8; option++)
                if (!skipped(5))
                    embedding_check(&leaf_cases[l], sizes[i][0], sizes[i][1], option & 1,
                                    option >> 1 & 1, option >> 2);
    const struct leaf_case many = {3, {12000, 0, 3, 1}}; /* more than the work memory holds */
    embedding_check(&many, 50, 4, 0, 0, 0);
}
/* A bad id: its position is told, and nothing is written. */
static void test_embedding_bad(void) {
    for (int backward = 0; backward < 2; backward++)
        for (int low = 0; low < 2; low++) {
            float *table = floats(40), *out = floats(64);
            int64_t *ids = (int64_t *)make(16, 8), bad = 0;
            for (int i = 0; i < 16; i++) ids[i] = i % 10;
            ids[5] = low ? -1 : 10, ids[9] = 1000;
            upload();
            NEO__ZERO(neo__embedding_call, c);
            c.backward = backward;
            c.ids = there(ids), c.count = 16, c.rows = 10, c.dim = 4;
            c.from = backward ? there(out) : there(table),
            c.to = backward ? there(table) : there(out);
            c.from_row = c.to_row = 4;
            c.leaves.batch = 16, c.leaves.rows_per_sample = 1, c.leaves.shards = c.leaves.count = 1;
            c.later = answer_to(&bad, found_id);
            CHECK_OK(gpu->embedding(gpu, &c));
            CHECK_INT(bad, 5);
            same("embedding with a bad id");
        }
}

/* ---- attention ---- */
enum { SILU = 1, JAGGED = 2, BIASED = 4 }; /* kinds */
/* A call as neo.h makes it of a description, of tensors that are set after it. */
static neo__attention_call attention_call(const neo_attention_desc *desc, int64_t rows, int64_t dim,
                                          int64_t sequences) {
    NEO__ZERO(neo__attention_call, c);
    const double n = desc->divisor == 0.0f ? (double)desc->length : (double)desc->divisor;
    c.causal = desc->causal, c.silu = desc->kind == NEO_ATTENTION_SILU;
    c.length = c.queries = desc->length, c.heads = desc->heads, c.dim = dim;
    c.sequences = sequences, c.rows = rows, c.scale = desc->scale;
    c.share = (float)(1.0 / n), c.slope = (float)((double)c.scale / n);
    c.offsets = neo__given(desc->offsets) ? there((const int64_t *)desc->offsets.data) : NULL;
    c.biases = desc->bias_count;
    for (int b = 0; b < c.biases; b++) {
        const neo_attention_bias *from = &desc->bias[b];
        neo__attention_bias *to = &c.bias[b];
        to->table = there((const float *)from->table.data), to->buckets = from->table.shape[1];
        to->table_row = from->table.shape[0] > 1 ? from->table.stride[0] : 0;
        to->bounds = there((const int64_t *)from->bounds.data);
        if (from->times.data) to->times = to->asked = there((const int64_t *)from->times.data);
        if (from->asked.data) to->asked = there((const int64_t *)from->asked.data);
    }
    return c;
}
/* Two biases: by rows, of each head; by times, of all heads or, with `option`, of buckets that are
   many, and asked for at other times. */
static void bias_make(neo_attention_bias *bias, int64_t rows, int64_t heads, int64_t sequences,
                      int option) {
    for (int b = 0; b < 2; b++) {
        const int64_t buckets = b == 0 ? 1 + 30 * (option != 3) : option ? 200 : 5;
        const int64_t tables = b == 0 || option ? heads : 1;
        int64_t *bounds = (int64_t *)make(buckets + 1, sizeof *bounds); /* none has no memory */
        for (int64_t n = 0; n < buckets; n++)
            bounds[n] = b == 0 ? 3 * n - 40 : option ? n / 2 * 4 - 100 : n * n * n;
        bias[b].table = matrix(floats(tables * buckets), tables, buckets, buckets);
        bias[b].dtable = matrix(floats(tables * buckets), tables, buckets, buckets);
        bias[b].each =
            matrix(floats(sequences * heads * buckets), sequences * heads, buckets, buckets);
        bias[b].bounds = neo_tensor_1d(bounds, NEO_I64, buckets - 1);
        for (int t = 0; b == 1 && t < 1 + (option != 0); t++) {
            int64_t *times = (int64_t *)make(rows, sizeof *times);
            for (int64_t i = 0; i < rows; i++) times[i] = 3 * i - test_random() % 50;
            *(t ? &bias[b].asked : &bias[b].times) = neo_tensor_1d(times, NEO_I64, rows);
        }
    }
}
static void attention_check(int64_t length, int64_t heads, int64_t dim, int64_t sequences,
                            int causal, int option, int kind) {
    const int64_t rows = sequences * length, cols = heads * dim, s = 3 * cols + option % 2;
    float *qkv = floats(rows * s), *y = floats(rows * cols), *lse = floats(rows * heads),
          *dy = floats(rows * cols);
    float *dqkv = floats(rows * s);
    for (int64_t i = 0; i < rows * s; i++) qkv[i] *= 3.0f;
    NEO__ZERO(neo_attention_desc, desc);
    desc.length = length, desc.heads = heads, desc.causal = causal;
    desc.scale = 0.3f;
    if (kind & SILU) desc.kind = NEO_ATTENTION_SILU, desc.divisor = option % 2 ? 5.0f : 0.0f;
    if (kind & JAGGED) { /* some empty, some as long as may be, and rows of no sequence */
        int64_t *offsets = (int64_t *)make(sequences + 1, sizeof *offsets);
        offsets[0] = length > 1 ? test_random() % 2 : 0;
        for (int64_t i = 0; i < sequences; i++) {
            const int64_t most = NEO__MIN(length, rows - offsets[i]), how = test_random() % 4;
            offsets[i + 1] = offsets[i] + (how == 0   ? 0
                                           : how == 1 ? most
                                                      : test_random() % (uint32_t)(most + 1));
        }
        desc.offsets = neo_tensor_1d(offsets, NEO_I64, sequences + 1);
    }
    neo_attention_bias bias[2];
    memset(bias, 0, sizeof bias);
    if (kind & BIASED) {
        bias_make(bias, rows, heads, sequences, option);
        desc.bias = bias, desc.bias_count = option == 2 ? 1 : 2;
    }
    upload();
    const neo_tensor q = matrix(qkv, rows, cols, s), k = matrix(qkv + cols, rows, cols, s);
    const neo_tensor v = matrix(qkv + 2 * cols, rows, cols, s), yt = matrix(y, rows, cols, cols);
    const neo_tensor lt = matrix(lse, rows, heads, heads), none = neo_tensor_none();
    CHECK_OK(neo_attention_forward(cpu, &desc, q, k, v, yt, kind & SILU ? none : lt));
    CHECK_OK(neo_attention_backward(cpu, &desc, q, k, v, yt, lt, matrix(dy, rows, cols, cols),
                                    option == 2 ? none : matrix(dqkv, rows, cols, s),
                                    option == 3 ? none : matrix(dqkv + cols, rows, cols, s),
                                    option >= 2 ? none : matrix(dqkv + 2 * cols, rows, cols, s)));
    neo__attention_call c = attention_call(&desc, rows, dim, sequences);
    c.q = there(qkv), c.k = there(qkv) + cols, c.v = there(qkv) + 2 * cols;
    c.q_row = c.k_row = c.v_row = c.dq_row = c.dk_row = c.dv_row = s;
    c.y = there(y), c.lse = kind & SILU ? NULL : there(lse);
    c.y_row = c.dy_row = cols, c.lse_row = heads;
    CHECK_OK(gpu->attention(gpu, &c));
    c.backward = 1;
    if (kind & SILU) c.y = NULL;
    c.dy = there(dy);
    c.dq = option == 2 ? NULL : there(dqkv);
    c.dk = option == 3 ? NULL : there(dqkv) + cols;
    c.dv = option >= 2 ? NULL : there(dqkv) + 2 * cols;
    for (int b = 0; b < c.biases; b++) c.bias[b].each = there((float *)bias[b].each.data);
    CHECK_OK(gpu->attention(gpu, &c));
    for (int b = 0; b < c.biases; b++) {
        const int64_t add = c.bias[b].table_row ? 1 : heads;
        NEO__ZERO(neo__linear_grads_call, sums);
        sums.dbias.from = c.bias[b].each, sums.dbias.to = there((float *)bias[b].dtable.data);
        sums.dbias.cols = sums.dbias.from_row = c.bias[b].buckets * heads / add;
        sums.dbias.leaves.batch = sequences, sums.dbias.leaves.rows_per_sample = add;
        sums.dbias.leaves.shards = sums.dbias.leaves.count = 1;
        CHECK_OK(gpu->linear_grads(gpu, &sums));
    }
    char what[100];
    snprintf(what, sizeof what,
             "attention of %d heads of %d, %d x %d, causal %d, option %d, kind %d", (int)heads,
             (int)dim, (int)sequences, (int)length, causal, option, kind);
    same(what);
}
static void test_attention(void) {
    static const int64_t sizes[][4] = {{1, 1, 1, 1},    {5, 2, 8, 3},    {64, 1, 16, 1},
                                       {65, 2, 7, 1},   {130, 1, 33, 1}, {30, 1, 65, 2},
                                       {66, 1, 130, 1}, {3, 1, 512, 1}};
    for (int i = 0; i < 8; i++)
        for (int causal = 0; causal < 2; causal++)
            for (int option = 0; option < 4; option++)
                for (int kind = 0; kind < 8; kind++)
                    if (!skipped(kind ? 6 : 3))
                        attention_check(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], causal,
                                        option, kind);
    for (int kind = 0; kind < 8; kind++) attention_check(70, 2, 5, 40, kind % 2, 0, kind | JAGGED);
}
/* Bad offsets: the first sequence that has them is told, and nothing is written. Where nobody asks,
   and in a recorded step, kernels go on: what they then read is within all rows. */
static neo_status found_offsets(void *job, const void *answer) {
    *(neo__attention_found *)job = *(const neo__attention_found *)answer;
    return ((const neo__attention_found *)answer)->bad == UINT64_MAX ? NEO_OK : NEO_ERR_RANGE;
}
static void test_attention_bad(void) {
    enum { ROWS = 50, D = 4, LENGTH = 20, B = 4 };
    static const struct { int64_t offsets[B + 1], bad; } cases[] = {
        {{0, 20, 41, 45, 50}, 1}, {{0, 3, 2, 9, 50}, 1},   {{-1, 5, 6, 7, 8}, 0},
        {{0, 5, 6, 40, 51}, 2},   {{5, 5, 5, 45, 60}, 2},  {{0, 0, 9, 29, 51}, 3},
        {{INT64_MAX, 1, 2, 3, 4}, 0}, {{0, 5, INT64_MIN / 2, 3, 4}, 1},
        {{0, 1, 1, 1, INT64_MAX}, 3}, {{51, 51, 51, 51, 51}, 0}};
    for (const auto &t : cases)
        for (int way = 0; way < 8; way++) { /* backward, SiLU, asked or not */
            float *x[8];
            int64_t *offsets = (int64_t *)make(B + 1, sizeof *offsets);
            for (float *&p : x) p = floats(ROWS * D);
            memcpy(offsets, t.offsets, sizeof t.offsets);
            upload();
            NEO__ZERO(neo_attention_desc, desc);
            NEO__ZERO(neo__attention_found, found);
            desc.length = LENGTH, desc.heads = 1, desc.causal = way >> 1 & 1, desc.scale = 1.0f;
            if (way & 2) desc.kind = NEO_ATTENTION_SILU;
            desc.offsets = neo_tensor_1d(offsets, NEO_I64, B + 1);
            neo__attention_call c = attention_call(&desc, ROWS, D, B);
            c.q_row = c.k_row = c.v_row = c.y_row = c.dy_row = c.dq_row = c.dk_row = c.dv_row = D;
            c.q = there(x[0]), c.k = there(x[1]), c.v = there(x[2]), c.y = there(x[3]);
            c.lse = way & 2 ? NULL : there(x[7]), c.lse_row = 1;
            c.backward = way & 1, c.dy = there(x[1]);
            if (c.backward) c.dq = there(x[4]), c.dk = there(x[5]), c.dv = there(x[6]);
            if (way & 4) {
                CHECK_OK(gpu->attention(gpu, &c));
                CHECK_OK(gpu->synchronize(gpu));
                drop();
                continue;
            }
            c.later = answer_to(&found, found_offsets);
            CHECK(gpu->attention(gpu, &c) == NEO_ERR_RANGE);
            CHECK_INT(found.bad, t.bad);
            CHECK_INT(found.begin, t.offsets[t.bad]);
            CHECK_INT(found.end, t.offsets[t.bad + 1]);
            same("attention with bad offsets");
        }
}
/* Zeros of both signs: a sum whose products underflow to -0 may not depend on how many of the terms
   of keys that a query does not see are added. */
static void test_attention_zeros(void) {
    enum { T = 64, D = 3 };
    float *q = floats(T * D), *k = floats(T * D), *v = floats(T * D), *y = floats(T * D),
          *lse = floats(T);
    float *dy = floats(T * D), *dq = floats(T * D), *dk = floats(T * D), *dv = floats(T * D);
    for (int i = 0; i < T * D; i++) {
        q[i] = 1.0f;
        k[i] = i < D ? -30.0f : 0.0f; /* key 0 weighs e^-90 */
        v[i] = i < D ? -1e-20f : i < 40 * D ? -0.0f : 1.0f;
    }
    upload();
    NEO__ZERO(neo_attention_desc, desc);
    desc.length = T, desc.heads = 1, desc.causal = 1, desc.scale = 1.0f;
    const neo_tensor qt = matrix(q, T, D, D), kt = matrix(k, T, D, D), vt = matrix(v, T, D, D);
    const neo_tensor yt = matrix(y, T, D, D), lt = matrix(lse, T, 1, 1);
    CHECK_OK(neo_attention_forward(cpu, &desc, qt, kt, vt, yt, lt));
    CHECK_OK(neo_attention_backward(cpu, &desc, qt, kt, vt, yt, lt, matrix(dy, T, D, D),
                                    matrix(dq, T, D, D), matrix(dk, T, D, D), matrix(dv, T, D, D)));
    neo__attention_call c = attention_call(&desc, T, D, 1);
    c.q = there(q), c.k = there(k), c.v = there(v), c.y = there(y), c.lse = there(lse);
    c.q_row = c.k_row = c.v_row = c.y_row = c.dy_row = c.dq_row = c.dk_row = c.dv_row = D;
    c.lse_row = 1;
    CHECK_OK(gpu->attention(gpu, &c));
    c.backward = 1;
    c.dy = there(dy), c.dq = there(dq), c.dk = there(dk), c.dv = there(dv);
    CHECK_OK(gpu->attention(gpu, &c));
    same("attention of zeros");
}

/* ---- interaction ---- */
static void interact_check(int64_t batch, int64_t features, int64_t dim, int diagonal, int pad,
                           int parts) {
    const int64_t width = neo_interact_width(dim, features, diagonal), cols = features * dim;
    float *x = floats(batch * (dim + pad)), *e = floats(batch * (cols + pad)),
          *z = floats(batch * (width + pad));
    float *dz = floats(batch * (width + pad)), *dx = floats(batch * (dim + pad)),
          *de = floats(batch * (cols + pad));
    upload();
    const neo_tensor xt = matrix(x, batch, dim, dim + pad), et = matrix(e, batch, cols, cols + pad);
    CHECK_OK(neo_interact_forward(cpu, diagonal, xt, et, matrix(z, batch, width, width + pad)));
    CHECK_OK(neo_interact_backward(
        cpu, diagonal, xt, et, matrix(dz, batch, width, width + pad),
        parts == 1 ? neo_tensor_none() : matrix(dx, batch, dim, dim + pad),
        parts == 2 ? neo_tensor_none() : matrix(de, batch, cols, cols + pad)));
    NEO__ZERO(neo__interact_call, c);
    c.batch = batch, c.dim = dim, c.features = features, c.diagonal = diagonal;
    c.x = there(x), c.e = there(e), c.z = there(z);
    c.x_row = c.dx_row = dim + pad, c.e_row = c.de_row = cols + pad,
    c.z_row = c.dz_row = width + pad;
    CHECK_OK(gpu->interact(gpu, &c));
    c.backward = 1;
    c.dz = there(dz);
    c.dx = parts == 1 ? NULL : there(dx), c.de = parts == 2 ? NULL : there(de);
    CHECK_OK(gpu->interact(gpu, &c));
    same("interact");
}
static void test_interact(void) {
    static const int64_t sizes[][3] = {{0, 2, 3},   {1, 0, 4},   {3, 1, 1}, {2, 4, 5},
                                       {2, 31, 16}, {1, 33, 40}, {2, 70, 9}, {9, 26, 16},
                                       {3, 31, 32}, {5, 7, 32},  {1, 0, 16}, {2, 32, 16}};
    for (int i = 0; i < 12; i++)
        for (int diagonal = 0; diagonal < 2; diagonal++)
            for (int parts = 0; parts < 3; parts++)
                if (!skipped(2))
                    interact_check(sizes[i][0], sizes[i][1], sizes[i][2], diagonal, parts, parts);
}

/* ---- losses ---- */
static void exact_same(const neo_exact *a, const neo_exact *b, const char *what) {
    neo_exact x = *a, y = *b;
    neo_exact_normalize(&x);
    neo_exact_normalize(&y);
    if (memcmp(x.word, y.word, sizeof x.word) != 0 || x.nan != y.nan || x.pos_inf != y.pos_inf ||
        x.neg_inf != y.neg_inf)
        FAIL("%s: sums differ: %.17g, %.17g", what, neo_exact_value(&x), neo_exact_value(&y));
}
static void loss_check(neo__loss_kind kind, int64_t rows, int64_t width, int option,
                       double tolerance) {
    const int in_place = option == 2 || option == 7, has_dx = option != 1 && option != 9;
    float *x = floats(rows * width), *y = floats(rows * width), *weight = floats(rows);
    const int narrow = kind == NEO__LOSS_CROSS_ENTROPY && option >= 5; /* 6, 8: rows apart, odd */
    const int narrow_x = narrow && option >= 7;
    const int64_t apart = option == 6 || option == 8 ? width + 3 - width % 2
                          : narrow_x                 ? width + width % 2
                                                     : width;
    float *logits = narrow_x ? (float *)make(rows * apart, 2) : x;
    float *dx = in_place ? logits : narrow ? (float *)make(rows * apart, 2) : floats(rows * width);
    int64_t *label = (int64_t *)make(rows, 8);
    for (int64_t i = 0; i < rows; i++) label[i] = (int64_t)(test_random() % (uint32_t)width);
    for (int64_t i = 0; i < rows * width; i++) {
        if (kind == NEO__LOSS_BCE) x[i] = i % 5 == 0 ? (float)(i % 2) : 0.5f + 0.5f * x[i];
        else if (kind != NEO__LOSS_MSE) x[i] *= 20.0f;
        if (kind != NEO__LOSS_MSE) y[i] = 0.5f + 0.5f * y[i];
        const int64_t col = i % width; /* of 256 threads some have no finite number, others late */
        if (option == 4 && (col % 256 < 70 || col < 2048) && col != label[i / width])
            x[i] = -INFINITY;
    }
    for (int64_t i = 0; i < rows * apart && narrow_x; i++)
        ((uint16_t *)(void *)logits)[i] =
            i % apart < width ? neo__bf16_from_f32(x[i / apart * width + i % apart]) : 0x7FC0;
    upload();
    neo_exact want, got;
    neo_exact_zero(&want);
    neo_exact_add(&want, 0.25f);
    got = want;
    NEO__ZERO(neo_loss_desc, desc);
    desc.batch = rows + 3;
    if (option != 3) desc.weight = column(weight, rows);
    desc.sum = &want;
    double loss = 0.0;
    const int flat = width == 1;
    const neo_tensor xt = flat ? column(x, rows) : neo_tensor_2d(x, NEO_F32, rows, width);
    const neo_tensor yt = flat ? column(y, rows) : neo_tensor_2d(y, NEO_F32, rows, width);
    neo_tensor dt = flat ? column(dx, rows) : neo_tensor_2d(dx, NEO_F32, rows, width);
    if (!has_dx) dt = neo_tensor_none();
    neo_tensor entropy_x = neo_tensor_2d(logits, narrow_x ? NEO_BF16 : NEO_F32, rows, width);
    entropy_x.stride[0] = apart;
    if (!narrow_x) entropy_x.stride[0] = width;
    neo_tensor entropy_dx = neo_tensor_2d(dx, narrow ? NEO_BF16 : NEO_F32, rows, width);
    entropy_dx.stride[0] = apart;
    if (!has_dx) entropy_dx = neo_tensor_none();
    switch (kind) {
    case NEO__LOSS_BCE_LOGITS: CHECK_OK(neo_bce_with_logits(cpu, &desc, xt, yt, dt, &loss)); break;
    case NEO__LOSS_BCE: CHECK_OK(neo_bce(cpu, &desc, xt, yt, dt, &loss)); break;
    case NEO__LOSS_MSE: CHECK_OK(neo_mse(cpu, &desc, xt, yt, dt, &loss)); break;
    case NEO__LOSS_CROSS_ENTROPY:
        CHECK_OK(neo_cross_entropy(cpu, &desc, entropy_x, neo_tensor_1d(label, NEO_I64, rows),
                                   entropy_dx, &loss));
        break;
    }
    struct loss_answer answer = {&got, 3, 3, 0.0, 0};
    NEO__ZERO(neo__loss_call, c);
    c.later = answer_to(&answer, found_loss);
    c.kind = kind;
    c.x = there(logits), c.y = there(y), c.weight = option == 3 ? NULL : there(weight);
    c.label = kind == NEO__LOSS_CROSS_ENTROPY ? there(label) : NULL;
    c.dx = has_dx ? there(dx) : NULL;
    c.rows = rows, c.width = width;
    c.narrow_x = narrow_x, c.narrow_dx = narrow && has_dx, c.x_row = c.dx_row = apart;
    const int64_t divisor = kind == NEO__LOSS_MSE ? width : 1;
    c.g = (float)((kind == NEO__LOSS_MSE ? 2.0 : 1.0) / ((double)(rows + 3) * (double)divisor));
    CHECK_OK(gpu->loss(gpu, &c));
    CHECK_INT(answer.bad, -1);
    if (tolerance == 0.0) exact_same(&want, &got, "loss");
    else
        CHECK_NEAR(neo_exact_value(&want), neo_exact_value(&got), /* rows of both signs cancel */
                   tolerance * (fabs(neo_exact_value(&want)) + (double)rows));
    char text[60];
    snprintf(text, sizeof text, "loss %d of %d x %d, option %d", (int)kind, (int)rows, (int)width,
             option);
    compare(text, tolerance);
}
/* Wide rows have a block each, by one order where the device is exact; option 4: most logits are
   masked. */
static void test_losses_wide(void) {
    neo_device *exact = gpu;
    gpu = device_make(0);
    for (int option = 0; option < 10; option++)
        for (int w = 0; w < 4; w++)
            loss_check(NEO__LOSS_CROSS_ENTROPY, 1 + 2 * option,
                       w == 3 ? 2050 : 1023 + 1100 * w, option, 1e-6);
    neo_cuda_device_destroy(gpu);
    gpu = exact;
    /* Of several rounds: their maximum comes in the first, or any later one. */
    for (int option = 0; option < 10; option++) {
        loss_check(NEO__LOSS_CROSS_ENTROPY, 5, 9000 + option, option, 0);
        loss_check(NEO__LOSS_CROSS_ENTROPY, 2, 1023 + option, option, 0);
    }
    loss_check(NEO__LOSS_CROSS_ENTROPY, 1, (int64_t)NEO__ROW_SUMS * NEO__BLOCK, 2, 0);
    loss_check(NEO__LOSS_CROSS_ENTROPY, 1, (int64_t)NEO__ROW_SUMS * NEO__BLOCK + 1, 0, 0);
    NEO__ZERO(neo__loss_call, none);
    none.kind = NEO__LOSS_CROSS_ENTROPY, none.narrow_x = 1;
    none.rows = 1, none.width = (int64_t)NEO__ROW_SUMS * NEO__BLOCK + 1;
    CHECK_ERR(gpu->loss(gpu, &none), NEO_ERR_UNSUPPORTED, "262145 logits of bf16 in a row");
}
static void test_losses(void) {
    static const int64_t rows[] = {0, 1, 7, 16, 100, 700}, widths[] = {2, 17, 300};
    for (int kind = NEO__LOSS_BCE_LOGITS; kind <= NEO__LOSS_CROSS_ENTROPY; kind++)
        for (int i = 0; i < 6; i++)
            for (int option = 0; option < 10; option++) {
                if (option == 4 || (option > 4 && kind != NEO__LOSS_CROSS_ENTROPY)) continue;
                loss_check((neo__loss_kind)kind, rows[i], 1, option, 0);
                if (kind >= NEO__LOSS_MSE && i < 5)
                    for (int w = 0; w < 3; w++)
                        loss_check((neo__loss_kind)kind, rows[i], widths[w], option, 0);
            }
}
/* Labels are looked at before probabilities, and nothing is written. */
static void test_losses_bad(void) {
    for (int t = 0; t < 4; t++) {
        float *x = floats(40), *y = floats(40), *dx = floats(40);
        int64_t *label = (int64_t *)make(20, 8);
        for (int i = 0; i < 40; i++) x[i] = y[i] = 0.5f;
        for (int i = 0; i < 20; i++) label[i] = i % 2;
        x[3] = 1.5f;
        if (t == 0) y[11] = -0.25f;
        if (t == 1) y[12] = NAN;
        if (t == 3) label[7] = 2, label[9] = -1;
        upload();
        neo_exact sum;
        neo_exact_zero(&sum);
        struct loss_answer answer = {&sum, 0, 5, 5.0, 5};
        NEO__ZERO(neo__loss_call, c);
        c.later = answer_to(&answer, found_loss);
        c.kind = t == 3 ? NEO__LOSS_CROSS_ENTROPY : NEO__LOSS_BCE;
        c.x = there(x), c.y = there(y), c.dx = there(dx);
        if (t == 3) c.label = there(label);
        c.rows = 20, c.width = t == 3 ? 2 : 1;
        CHECK_OK(gpu->loss(gpu, &c));
        CHECK_INT(answer.bad, t == 0 ? 11 : t == 1 ? 12 : t == 2 ? 3 : 7);
        CHECK_INT(answer.what, t == 2);
        if (t == 1) CHECK(answer.value != answer.value);
        else CHECK_NEAR(answer.value, t == 0 ? -0.25 : t == 2 ? 1.5 : 0.0, 0);
        CHECK_INT(answer.label, t == 3 ? 2 : 0);
        CHECK(neo_exact_value(&sum) == 0.0 && sum.terms == 0);
        same("loss with a bad label");
    }
}

/* ---- random values ---- */
static void test_init(void) {
    static const int64_t counts[] = {0, 1, 3, 4, 6, 300};
    for (int kind = NEO_INIT_NONE; kind <= NEO_INIT_NORMAL; kind++)
        for (int i = 0; i < 6; i++)
            for (int64_t first = 0; first < 4; first++) {
                const int64_t n = counts[i], base = first == 3 ? ((int64_t)4 << 32) - 7 : first;
                const neo_init init = {(neo_init_kind)kind, -0.75f, 1.25f};
                float *x = floats(n);
                upload();
                CHECK_OK(neo_tensor_init(cpu, column(x, n), "w", init, base));
                NEO__ZERO(neo__init_call, c);
                c.out = there(x), c.count = n;
                c.cols = c.stride = n > 0 ? n : 1;
                c.first = (uint64_t)base;
                c.init = init;
                c.scale = init.b - init.a, c.top = neo__float_below(init.b);
                c.key = neo__random_key_make(neo_ctx_seed(cpu), neo_hash("w"), 0, NEO_STREAM_INIT);
                CHECK_OK(gpu->init(gpu, &c));
                same("init");
            }
    for (int kind = NEO_INIT_UNIFORM; kind <= NEO_INIT_NORMAL;
         kind++) { /* rows of a wider parameter */
        const neo_init init = {(neo_init_kind)kind, 0.5f, 2.0f};
        float *x = floats(9 * 7);
        upload();
        CHECK_OK(neo__tensor_init(cpu, neo_tensor_2d(x, NEO_F32, 9, 7), "w", init, 5, 31));
        NEO__ZERO(neo__init_call, c);
        c.out = there(x), c.count = 63, c.cols = 7, c.stride = 31, c.first = 5;
        c.init = init;
        c.scale = init.b - init.a, c.top = neo__float_below(init.b);
        c.key = neo__random_key_make(neo_ctx_seed(cpu), neo_hash("w"), 0, NEO_STREAM_INIT);
        CHECK_OK(gpu->init(gpu, &c));
        same("init of rows");
    }
}

/* ---- conversions ---- */
static void convert_fill(void *p, neo_dtype type, int64_t n) {
    static const float edge[] = {0.0f,   -0.0f,  1e-40f,   65504.0f, 65520.0f, 1e30f,
                                 -3e38f, 448.0f, 465.0f,   57344.0f, 6e-8f,    1.5e-3f,
                                 0.5f,   1.5f,   2.5f,     -0.5f,    3e9f,     -3e9f,
                                 1e19f,  127.5f, INFINITY, -INFINITY};
    const size_t size = neo_dtype_size(type);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits =
            (uint64_t)test_random() << 33 ^ (uint64_t)test_random() << 11 ^ test_random();
        memcpy((char *)p + (size_t)i * size, &bits, size);
        if (type == NEO_F32)
            ((float *)p)[i] = i % 4 == 0 ? edge[(size_t)(i / 4) % 22]
                                         : ldexpf(test_uniform(), (int)(test_random() % 60) - 40);
        if (type == NEO_F16 && (((uint16_t *)p)[i] & 0x7C00) == 0x7C00)
            ((uint16_t *)p)[i] &= 0xFC00;
        if (type == NEO_BF16 && (((uint16_t *)p)[i] & 0x7F80) == 0x7F80)
            ((uint16_t *)p)[i] &= 0xFF80;
        if (type == NEO_I64 && i % 3) ((int64_t *)p)[i] >>= test_random() % 63;
    }
}
static void test_convert(void) {
    for (int from = 0; from < NEO_DTYPE_COUNT; from++)
        for (int to = 0; to < NEO_DTYPE_COUNT; to++)
            for (int option = 0; option < 4; option++) {
                const int64_t shape[3] = {3, 5, 7}, n = 105;
                void *src = make(2 * n, neo_dtype_size((neo_dtype)from)),
                     *dst = make(2 * n, neo_dtype_size((neo_dtype)to));
                convert_fill(src, (neo_dtype)from, 2 * n);
                upload();
                NEO__ZERO(neo__convert_call, c);
                neo_tensor s = neo_tensor_nd(src, (neo_dtype)from, 3, shape),
                           d = neo_tensor_nd(dst, (neo_dtype)to, 3, shape);
                if (option == 2) s.stride[2] = 2, s.stride[1] = 14, s.stride[0] = 70;
                if (option == 3) d.stride[0] = 7, d.stride[1] = 21; /* transposed */
                NEO__ZERO(neo_convert_desc, desc);
                desc.rounding =
                    option == 1 || option == 3 ? NEO_ROUND_STOCHASTIC : NEO_ROUND_NEAREST;
                desc.name = "w", desc.step = 3, desc.first = option;
                CHECK_OK(neo_tensor_convert(cpu, s, d, &desc));
                c.src = s, c.dst = d;
                c.src.data = there((char *)src), c.dst.data = there((char *)dst);
                c.count = n;
                c.stochastic = desc.rounding == NEO_ROUND_STOCHASTIC;
                c.first = desc.first;
                c.key =
                    neo__random_key_make(neo_ctx_seed(cpu), neo_hash("w"), 3, NEO_STREAM_ROUNDING);
                CHECK_OK(gpu->convert(gpu, &c));
                char what[80];
                snprintf(what, sizeof what, "convert %s to %s, option %d",
                         neo_dtype_name((neo_dtype)from), neo_dtype_name((neo_dtype)to), option);
                same(what);
            }
    for (int option = 0; option < 8; option++) { /* rows of operands, filled up or not */
        const int64_t rows = 5, cols = option & 1 ? 24 : 21, gap = option & 2 ? 3 : 0,
                      to_row = option & 4 ? 32 : 25;
        float *src = floats(rows * (cols + gap));
        uint16_t *dst = (uint16_t *)make(rows * to_row, 2);
        convert_fill(src, NEO_F32, rows * (cols + gap));
        upload();
        NEO__ZERO(neo__convert_call, c);
        c.src = matrix(src, rows, cols, cols + gap);
        c.dst = neo_tensor_2d(dst, NEO_BF16, rows, cols), c.dst.stride[0] = to_row;
        CHECK_OK(neo_tensor_convert(cpu, c.src, c.dst, NULL));
        c.src.data = there(src), c.dst.data = there(dst), c.count = rows * cols;
        CHECK_OK(gpu->convert(gpu, &c));
        same("convert rows to bf16");
    }
    neo_tensor none = neo_tensor_2d(NULL, NEO_F32, 0, 4);
    NEO__ZERO(neo__convert_call, c);
    c.src = c.dst = none;
    CHECK_OK(gpu->convert(gpu, &c));
}

/* ---- optimizers ---- */
enum { SPANS = 70 }; /* more than one launch takes */
typedef struct optim_case {
    neo__optim_span host[SPANS], device[SPANS];
    int64_t count;
} optim_case;
static void optim_make(optim_case *o, int64_t count, int momentum) {
    static const int64_t sizes[] = {1, 0, 15, 16, 255, 256, 257, 700};
    o->count = count;
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += sizes[i % 8];
    float *w = floats(total), *g = floats(total), *a = floats(total), *b = floats(total);
    for (int64_t i = 0; i < total; i++) a[i] = 0.1f * fabsf(a[i]), b[i] = fabsf(b[i]);
    for (int64_t i = 0; i < count; i++) {
        NEO__ZERO(neo__optim_span, s);
        const int64_t n = sizes[i % 8];
        s.w = w, s.grad = g, s.state[0] = momentum ? a : NULL, s.state[1] = b, s.count = n;
        s.elsewhere = i % 5 == 3;
        s.lr = 0.01f * (float)(i + 1);
        o->host[i] = s;
        s.w = there(w), s.grad = there((float *)g), s.state[0] = momentum ? there(a) : NULL,
        s.state[1] = there(b);
        o->device[i] = s;
        w += n, g += n, a += n, b += n;
    }
}
static neo__optim_call optim_call(const optim_case *o, neo_optim_kind kind, const neo__step *step,
                                  neo__optim_pass pass) {
    NEO__ZERO(neo__optim_call, c);
    c.pass = pass;
    c.kind = kind;
    c.step = *step;
    c.spans = o->device, c.span_count = o->count;
    return c;
}
static neo__step optim_numbers(neo_optim_kind kind, int64_t t, int option) {
    NEO__ZERO(neo_optim_desc, d);
    d.kind = kind;
    d.weight_decay = option & 1 ? 0.05f : 0.0f;
    d.momentum = option & 2 ? 0.9f : 0.0f;
    d.nesterov = option == 3;
    d.l1 = option & 1 ? 0.02f : 0.0f;
    neo__optim_defaults(&d);
    return neo__optim_numbers(&d, t, 0.01, option & 1 ? 0.3 : 1.0);
}
static void optim_step_check(neo_optim_kind kind, int64_t t, int option) {
    optim_case o;
    const neo__vec_kernels *vec = cpu->vec;
    const neo__step step = optim_numbers(kind, t, option);
    optim_make(&o, option == 1 ? SPANS : 8, kind != NEO_OPTIM_SGD || option >= 2);
    upload();
    for (int64_t i = 0; i < o.count; i++) {
        const neo__optim_span *s = &o.host[i];
        neo__step lamb = step;
        lamb.lr = s->lr;
        vec->step[kind](kind == NEO_OPTIM_LAMB ? &lamb : &step, s->w, s->grad, s->state[0],
                        s->state[1], s->count);
    }
    const neo__optim_call c = optim_call(&o, kind, &step, NEO__OPTIM_STEP);
    CHECK_OK(gpu->optim(gpu, &c));
    same("optimizer step");
}
static void test_optim(void) {
    for (int kind = NEO_OPTIM_SGD; kind < NEO_OPTIM_COUNT; kind++)
        for (int option = 0; option < 4; option++)
            for (int64_t t = 1; t < 3; t++) optim_step_check((neo_optim_kind)kind, t, option);
    const neo__step step = optim_numbers(NEO_OPTIM_SGD, 1, 0);
    optim_case none;
    none.count = 0;
    const neo__optim_call c = optim_call(&none, NEO_OPTIM_SGD, &step, NEO__OPTIM_STEP);
    CHECK_OK(gpu->optim(gpu, &c));
}
static void test_optim_lamb(void) {
    static neo_exact want[2 * SPANS], got[2 * SPANS];
    optim_case o;
    const neo__step step = optim_numbers(NEO_OPTIM_LAMB, 2, 1);
    optim_make(&o, SPANS, 1);
    upload();
    for (int i = 0; i < 2 * SPANS; i++) {
        neo_exact_zero(&want[i]);
        neo_exact_add(&want[i], (float)i); /* what is there stays */
        got[i] = want[i];
    }
    for (int i = 0; i < SPANS; i++) {
        const neo__optim_span *s = &o.host[i];
        cpu->vec->lamb_moments(&step, s->grad, s->state[0], s->state[1], s->count);
        for (int64_t at = 0; at < s->count && !s->elsewhere; at += NEO__BLOCK) {
            const int64_t n = NEO__MIN(s->count - at, (int64_t)NEO__BLOCK);
            neo_exact_add(&want[2 * i], cpu->vec->block_square(s->w + at, n));
            neo_exact_add(
                &want[2 * i + 1],
                cpu->vec->lamb_square(&step, s->w + at, s->state[0] + at, s->state[1] + at, n));
        }
    }
    neo__optim_call c = optim_call(&o, NEO_OPTIM_LAMB, &step, NEO__OPTIM_LAMB_MOMENTS);
    c.sums = got;
    CHECK_OK(gpu->optim(gpu, &c));
    for (int i = 0; i < 2 * SPANS; i++) exact_same(&want[i], &got[i], "LAMB's squares");
    same("LAMB's moments");
}
static void test_optim_norms(void) {
    for (int special = 0; special < 3; special++) {
        optim_case o;
        const neo__step step = optim_numbers(NEO_OPTIM_SGD, 1, 0);
        optim_make(&o, SPANS, 1);
        float *g = (float *)o.host[4].grad;
        if (special) g[100] = special == 1 ? NAN : -INFINITY;
        upload();
        for (int pass = NEO__OPTIM_NORM_1; pass <= NEO__OPTIM_NORM_INF; pass++) {
            neo_exact want, got;
            float most = 0.25f, found = 0.25f;
            neo_exact_zero(&want);
            neo_exact_add(&want, 2.0f);
            got = want;
            for (int i = 0; i < SPANS; i++)
                for (int64_t at = 0; at < o.host[i].count && !o.host[i].elsewhere;
                     at += NEO__BLOCK) {
                    const int64_t n = NEO__MIN(o.host[i].count - at, (int64_t)NEO__BLOCK);
                    const float *x = o.host[i].grad + at;
                    if (pass == NEO__OPTIM_NORM_1) neo_exact_add(&want, cpu->vec->block_abs(x, n));
                    else if (pass == NEO__OPTIM_NORM_2)
                        neo_exact_add(&want, cpu->vec->block_square(x, n));
                    else {
                        const float max = cpu->vec->block_max(x, n);
                        if (neo__bits_f32(max) > neo__bits_f32(most)) most = max;
                    }
                }
            neo__optim_call c = optim_call(&o, NEO_OPTIM_SGD, &step, (neo__optim_pass)pass);
            c.sums = &got, c.most = &found;
            CHECK_OK(gpu->optim(gpu, &c));
            exact_same(&want, &got, "a norm");
            CHECK((most != most && found != found) || neo__bits_f32(most) == neo__bits_f32(found));
        }
        same("norms");
    }
}

/* No operation takes memory of the device a second time. */
static void test_no_allocation(void) {
#ifdef NEO_CUDA_ON_CPU
    const size_t bytes = neo_emu_live_bytes(), objects = neo_emu_live_objects(),
                 pinned = neo_emu_live_pinned();
    test_optim_norms();
    test_embedding_bad();
    test_gemm_finish();
    for (int kind = 0; kind < 4; kind++) attention_check(5, 2, 8, 3, 1, 0, kind);
    loss_check(NEO__LOSS_CROSS_ENTROPY, 7, 17, 0, 0);
    CHECK_INT(neo_emu_live_bytes(), bytes);
    CHECK_INT(neo_emu_live_objects(), objects);
    CHECK_INT(neo_emu_live_pinned(), pinned);
#else
    SKIP("the emulation counts");
#endif
}

int main(void) {
#ifdef NEO_CUDA_ON_CPU
    const char *seed = getenv("NEO_EMU_SEED");
    neo_emu_set_order(seed ? (uint64_t)strtoull(seed, NULL, 10) : 1);
#endif
    RUN(test_create);
    RUN(test_create_fails);
    RUN(test_fault);
    cpu = test_ctx(1, NEO_ISA_BEST, 1);
    gpu = device_make(1);
    RUN(test_memory);
    RUN(test_large_copies);
    RUN(test_graph_fails);
    RUN(test_elements);
    RUN(test_blend);
    RUN(test_activation);
    RUN(test_tree_sum);
    RUN(test_gemm);
    RUN(test_gemm_finish);
    RUN(test_gemm_signs);
    RUN(test_gemm_leaves);
    RUN(test_pieces);
    RUN(test_samples);
    RUN(test_gemm_blas);
    RUN(test_deterministic);
    RUN(test_narrow_activation);
    RUN(test_narrow);
    RUN(test_narrow_tiny);
    RUN(test_narrow_leaves);
    RUN(test_narrow_blas);
    RUN(test_norm);
    RUN(test_embedding);
    RUN(test_embedding_bad);
    RUN(test_attention);
    RUN(test_attention_bad);
    RUN(test_attention_zeros);
    RUN(test_interact);
    RUN(test_losses);
    RUN(test_losses_wide);
    RUN(test_losses_bad);
    RUN(test_init);
    RUN(test_convert);
    RUN(test_optim);
    RUN(test_optim_lamb);
    RUN(test_optim_norms);
    RUN(test_no_allocation);
    neo_cuda_device_destroy(gpu);
    neo_ctx_destroy(cpu);
    return test_end("cuda/dense");
}
