/* neo.h: training loops for recommendation models and other large models, in plain C.

   One file to copy. It needs a C11 or C++17 compiler, libc, libm and threads, and nothing else. MIT licence
   (at the end of the file).

   WHAT IT DOES
     - tensors, matrix products, MLPs, dot interaction, norms, attention, losses, dense optimizers
       (as torch.optim)
     - jagged batches and embedding bags: many tables as one object, fused and exact sparse optimizers
     - readers (Criteo TSV, delimited text, .npy, generated data), metrics, checkpoints (safetensors),
       progress, JSON lines, an HTML report
     - the same bits: with the same seed, data and numeric definition, weights and optimizer state are
       bit-identical for any number of threads and any instruction set, and across kill and resume

   WHAT IT DOES NOT DO
     - no autograd: a layer is a pair neo_x_forward / neo_x_backward; write your own as one more pair
     - it never aborts, exits or prints: calls return a neo_status, neo_last_error() says what and where
     - a training step allocates nothing: objects take all they need when created

   QUICK START
     In exactly one .c file of your program:
         #define NEO_IMPLEMENTATION
         #include "neo.h"
     In the others: #include "neo.h". Link with -lm -lpthread. For a separate object file, make a neo.c of these two
     lines. README.md has a complete trainer of about 40 lines.

   GLOSSARY
     table, row      an embedding table is a matrix; a sparse id selects one row
     bag, pooling    the ids of one (feature, sample); their rows are summed or averaged to one vector
     jagged          a batch of bags of different lengths: offsets and ids
     leaf            a fixed part of a batch inside which gradients add in order; see >>leaves
     numeric definition   what the bits depend on besides seed and data: the number of leaves, for one

   THREADS
     A context and the objects made from it belong to one thread at a time; distinct contexts are independent.

   CONTENTS (grep -nE '^ *>>|---- >>' neo.h is the map)
     >>config >>status >>ctx >>leaves >>tensor >>random >>exact >>gemm >>params >>layers
     >>losses >>optim >>gradcheck >>jagged >>bags >>schema >>reader >>state >>checkpoint
     >>safetensors >>metrics >>progress >>jsonl >>report >>shared >>platform >>impl-status >>impl-fp
     >>impl-ctx >>impl-leaves >>files >>isa >>impl-math >>impl-tensor >>impl-random >>impl-exact
     >>impl-gemm >>impl-linear >>impl-mlp >>impl-interact >>impl-activation >>impl-norm
     >>impl-embedding >>impl-attention >>impl-losses
     >>impl-params >>impl-optim >>impl-gradcheck >>impl-jagged >>bag-optim >>impl-bags
     >>impl-bags-forward >>impl-bags-backward >>impl-schema >>impl-dictionary-file >>impl-number
     >>impl-columns >>impl-parse >>impl-source >>impl-reader >>impl-npy >>impl-synthetic
     >>impl-json >>impl-crc32c >>impl-state >>impl-group >>impl-safetensors >>impl-checkpoint
     >>impl-metrics >>impl-progress >>impl-jsonl >>impl-report >>kernels >>kernels-math
     >>kernels-vec >>kernels-tensor >>kernels-gemm >>kernels-bags
*/
#ifndef NEO__PASS
#ifndef NEO_H
#define NEO_H

/* ------------------------------------------------------------------------------------------------
   >>config

   Macros a user may define. "everywhere": in every file that includes neo.h; "implementation": only
   in the one file that defines NEO_IMPLEMENTATION.

     NEO_IMPLEMENTATION   implementation  emits the function bodies (exactly one file of a program)
     NEO_STATIC           everywhere      functions are static: a private copy in each file
     NEO_SHARED           everywhere      functions are exported from (or imported into) a shared object
     NEO_ASSERT(x)        implementation  checks neo's own invariants; default: nothing
     NEO_SGEMM(...)       implementation  your BLAS for large f32 products; see >>gemm. Gives up the
                                          same-bits promise unless that BLAS keeps it.
     NEO_NO_SIMD          implementation  compile the scalar kernels only
     NEO_NO_COLD          implementation  optimize all code alike: compiles for twice as long
   ------------------------------------------------------------------------------------------------ */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "neo.h: -ffast-math (or -fassociative-math) breaks the same-bits contract: compile without it"
#endif
/* Strict modes hide POSIX; in GNU modes nothing is defined, which would hide other names from your file. */
#if defined(__STRICT_ANSI__) && !defined(_WIN32) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) &&    \
    !defined(__cplusplus)
#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && defined(_FEATURES_H)
#error "neo.h: under -std=c11 include neo.h before any system header, or define _POSIX_C_SOURCE=200809L"
#endif
#define _POSIX_C_SOURCE 200809L
#endif

#include <float.h>
#include <stddef.h>
#include <stdint.h>

/* 16: only _Float16 is special (gcc with AVX512-FP16). */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "neo.h: FLT_EVAL_METHOD must be 0 (on 32-bit x86 compile with -msse2 -mfpmath=sse)"
#endif

#if defined(NEO_STATIC)
#if defined(__GNUC__) || defined(__clang__)
#define NEO_API __attribute__((unused)) static
#else
#define NEO_API static
#endif
#elif defined(NEO_SHARED) && defined(_WIN32)
#if defined(NEO_IMPLEMENTATION)
#define NEO_API __declspec(dllexport)
#else
#define NEO_API __declspec(dllimport)
#endif
#elif defined(NEO_SHARED)
#define NEO_API extern __attribute__((visibility("default")))
#elif defined(_WIN32)
#define NEO_API extern
#else
#define NEO_API extern __attribute__((visibility("hidden")))
#endif

#if defined(__GNUC__) || defined(__clang__)
#define NEO__CHECK_UNUSED __attribute__((warn_unused_result))
#if defined(__MINGW32__) && !defined(__clang__)
#define NEO__PRINTF(f, a) __attribute__((format(gnu_printf, f, a)))
#else
#define NEO__PRINTF(f, a) __attribute__((format(printf, f, a)))
#endif
#else
#define NEO__CHECK_UNUSED
#define NEO__PRINTF(f, a)
#endif

/* What the implementations of neo's headers share. */
#ifndef NEO_ASSERT
#define NEO_ASSERT(x) ((void)0)
#endif
#define NEO__CHECK(cond, status, ...)                                                              \
    do {                                                                                           \
        if (!(cond)) return neo_fail(status, __VA_ARGS__);                                         \
    } while (0)
#define NEO__TRY(call)                                                                             \
    do {                                                                                           \
        neo_status neo__status = (call);                                                           \
        if (neo__status != NEO_OK) return neo__status;                                             \
    } while (0)
/* A zeroed variable, in C and in C++. */
#define NEO__ZERO(type, name)                                                                      \
    type name;                                                                                     \
    memset(&name, 0, sizeof name)
#ifdef __cplusplus
#define NEO__STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define NEO__STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#define NEO_VERSION_MAJOR 0
#define NEO_VERSION_MINOR 1

/* Two files of one program compiled against different versions do not link: the constructor's symbol carries
   the version. */
#define NEO__VERSIONED_(name, major, minor) name##_v##major##_##minor
#define NEO__VERSIONED(name, major, minor) NEO__VERSIONED_(name, major, minor)
#define neo_ctx_create NEO__VERSIONED(neo_ctx_create, NEO_VERSION_MAJOR, NEO_VERSION_MINOR)

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
   >>status

   Every call that can fail returns a neo_status. On failure outputs are NULL or untouched, state is
   as it was before the call, and neo_last_error() says in one line what was wrong and where.
   ------------------------------------------------------------------------------------------------ */
#define NEO_STATUS_LIST(X)                                                                         \
    X(NEO_OK, "ok")                                                                                \
    X(NEO_END, "end of data")                                                                      \
    X(NEO_ERR_ARG, "invalid argument")                                                             \
    X(NEO_ERR_SHAPE, "shapes or dtypes do not match")                                              \
    X(NEO_ERR_MEMORY, "out of memory")                                                             \
    X(NEO_ERR_RANGE, "id or number out of range")                                                  \
    X(NEO_ERR_CAPACITY, "declared capacity exceeded")                                              \
    X(NEO_ERR_IO, "input/output error")                                                            \
    X(NEO_ERR_NOT_FOUND, "not found")                                                              \
    X(NEO_ERR_FORMAT, "malformed input")                                                           \
    X(NEO_ERR_CORRUPT, "corrupted file")                                                           \
    X(NEO_ERR_MISMATCH, "does not match what was saved or declared")                               \
    X(NEO_ERR_UNSUPPORTED, "not supported here")                                                   \
    X(NEO_ERR_NUMERIC, "not a finite number, or compiler flags that change arithmetic")            \
    X(NEO_ERR_STATE, "call out of order")                                                          \
    X(NEO_ERR_SYSTEM, "operating system error")                                                    \
    X(NEO_ERR_TIMEOUT, "another rank did not come in time")                                        \
    X(NEO_ERR_PEER, "another rank is lost or has given up")                                        \
    X(NEO_ERR_DIVERGED, "ranks make different calls")

typedef enum neo_status {
#define NEO__STATUS_ENUM(name, text) name,
    NEO_STATUS_LIST(NEO__STATUS_ENUM)
#undef NEO__STATUS_ENUM
    NEO_STATUS_COUNT
} neo_status;

/* neo_status_string: the fixed text of a status, for example "out of memory". Never NULL. */
NEO_API const char *neo_status_string(neo_status status);

/* neo_last_error: what the last failed call of this thread had to say; "" before any failure.
   Valid until the next failure on the same thread. */
NEO_API const char *neo_last_error(void);

/* neo_fail: record what went wrong, as printf writes it, for neo_last_error, and return the status:
   `return neo_fail(NEO_ERR_SHAPE, "my_layer: x has %d columns", n);` in a layer of your own. */
NEO_API neo_status neo_fail(neo_status status, const char *format, ...) NEO__PRINTF(2, 3);

/* neo_version: "0.1.0". */
NEO_API const char *neo_version(void);

/* ------------------------------------------------------------------------------------------------
   >>ctx

   A context holds what all objects of one trainer share: the allocator, the logger, the threads, the
   instruction set, the seed and the number of virtual shards. Every object is made from one and must
   be destroyed before it.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_ctx neo_ctx;

/* An allocator. free gets the size that was asked for. alloc returns NULL when it cannot. */
typedef struct neo_allocator {
    void *(*alloc)(size_t size, size_t align, void *user);
    void (*free)(void *ptr, size_t size, void *user);
    void *user;
} neo_allocator;

typedef enum neo_log_level { NEO_LOG_INFO, NEO_LOG_WARNING } neo_log_level;

/* A logger. message is one line without its newline. May be called from any thread. */
typedef struct neo_logger {
    void (*log)(neo_log_level level, const char *message, void *user);
    void *user;
} neo_logger;

/* An executor runs task(arg, i, worker) once for every i in [0, count) and returns when all are done.
   worker is in [0, neo_ctx_desc.threads) and no two tasks run at the same time with the same worker.
   Give one to run neo's work on your own thread pool; by default neo has its own. */
typedef void (*neo_task_fn)(void *arg, int64_t task, int worker);
typedef struct neo_executor {
    void (*run)(int64_t count, neo_task_fn task, void *arg, void *user);
    void *user;
} neo_executor;

typedef enum neo_isa {
    NEO_ISA_BEST, /* the widest this machine has */
    NEO_ISA_SCALAR,
    NEO_ISA_AVX2, /* with FMA and F16C */
    NEO_ISA_AVX512, /* F, BW, DQ, VL */
    NEO_ISA_NEON
} neo_isa;

/* All zeros is a good default. */
typedef struct neo_ctx_desc {
    neo_allocator allocator; /* default: the C library, aligned */
    neo_logger logger;       /* default: silent */
    neo_executor executor;   /* default: a pool of the context's own */
    int threads;             /* workers, the caller included; 0: all cores the process may use */
    neo_isa isa;             /* a path this machine lacks: NEO_ERR_UNSUPPORTED */
    int repro_shards;        /* V, the virtual shards of a batch (see >>leaves); 0: 1 */
    uint64_t seed;           /* of every random number; 0 is a seed like any other */
} neo_ctx_desc;

/* neo_ctx_create: make a context. desc may be NULL (all defaults).
   Errors   NEO_ERR_ARG: a negative number of threads or shards, half an allocator or executor.
            NEO_ERR_UNSUPPORTED: no such instruction set here. NEO_ERR_NUMERIC: the compiler flags
            change floating-point arithmetic (the message names the check). NEO_ERR_SYSTEM: a thread
            does not start. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_ctx_create(const neo_ctx_desc *desc, neo_ctx **ctx);

/* neo_ctx_destroy: NULL is allowed. All objects made from ctx must be destroyed before. */
NEO_API void neo_ctx_destroy(neo_ctx *ctx);

NEO_API int neo_ctx_threads(const neo_ctx *ctx);
NEO_API neo_isa neo_ctx_isa(const neo_ctx *ctx);
NEO_API int neo_ctx_repro_shards(const neo_ctx *ctx);
NEO_API uint64_t neo_ctx_seed(const neo_ctx *ctx);

/* neo_isa_name, neo_isa_parse: "best", "scalar", "avx2", "avx512", "neon". parse gives
   NEO_ERR_ARG for another word. neo_isa_available: 1 if this machine can run it. */
NEO_API const char *neo_isa_name(neo_isa isa);
NEO_API neo_status neo_isa_parse(const char *name, neo_isa *isa);
NEO_API int neo_isa_available(neo_isa isa);

/* What the context's allocator has handed out. */
typedef struct neo_memory {
    size_t bytes;        /* now */
    size_t peak_bytes;   /* highest so far */
    int64_t alloc_count; /* calls of alloc so far: a training step adds none */
} neo_memory;
NEO_API neo_memory neo_ctx_memory(const neo_ctx *ctx);
/* neo_alloc: 64-byte aligned memory of the context's allocator, counted, not cleared; NULL when there is
   none (record it with neo_fail). Zero bytes give a pointer too. neo_free takes the same size; NULL is
   allowed. neo_log: to the context's logger, if it has one. Threads: any. */
NEO_API void *neo_alloc(neo_ctx *ctx, size_t bytes);
NEO_API void neo_free(neo_ctx *ctx, void *ptr, size_t bytes);
NEO_API void neo_log(neo_ctx *ctx, neo_log_level level, const char *format, ...) NEO__PRINTF(3, 4);

/* neo_parallel_for: run task(arg, i, worker) for every i in [0, count) on the context's threads; the
   caller takes part. Tasks may not call neo_parallel_for on the same context.
   Threads: one caller per context at a time, as for everything made from it. */
NEO_API void neo_parallel_for(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg);

/* neo_time_ns: a monotonic clock, for measuring intervals. */
NEO_API int64_t neo_time_ns(void);

/* ------------------------------------------------------------------------------------------------
   >>leaves

   Sums over a batch have one shape, whatever computes them: sample i of a batch of B belongs to leaf
   v where v B / V <= i < (v + 1) B / V (integer division); inside a leaf samples add in order; over
   leaves the sums add by a binary tree that splits n leaves at the largest power of two below n. V is
   neo_ctx_desc.repro_shards. A caller that holds only some leaves of a batch (a rank, or a step
   computed in pieces) says so with a neo_leaves; NULL means all of them, with one row each.

   A sample may be several rows, the positions of a sequence for one: rows_per_sample. Tensors have
   then that many times the samples of the leaves, and rows of a leaf add in order.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_leaves {
    int64_t batch; /* samples of the whole (global) batch */
    int first;     /* first leaf held here */
    int count;     /* leaves held here: [first, first + count) must be a whole subtree; or 0: an
                      empty part of no rows, whose gradients are zeros */
    int64_t rows_per_sample; /* 0: 1 */
} neo_leaves;

/* neo_leaf_begin: first sample of leaf v when a batch of `batch` is cut into V leaves.
   Leaf v is [neo_leaf_begin(batch, V, v), neo_leaf_begin(batch, V, v + 1)); its rows are these
   times rows_per_sample. */
NEO_API int64_t neo_leaf_begin(int64_t batch, int shards, int leaf);

/* ------------------------------------------------------------------------------------------------
   >>tensor

   A tensor is a view: it owns nothing and is passed by value. Strides count elements. A tensor
   whose data is NULL stands for "none" where a function allows that; one that also says why, in
   `absent`, is not none but away: it has its shape, and calls that need its data, an optional one
   too, fail with NEO_ERR_STATE and that text.
   ------------------------------------------------------------------------------------------------ */
typedef enum neo_dtype {
    NEO_F32,
    NEO_F16,
    NEO_BF16,
    NEO_F8E4M3, /* OCP FP8: no infinity, largest 448 */
    NEO_F8E5M2, /* OCP FP8: infinities, largest 57344 */
    NEO_I8,
    NEO_I32,
    NEO_I64,
    NEO_U8,
    NEO_DTYPE_COUNT
} neo_dtype;

enum { NEO_MAX_DIMS = 4 };

typedef struct neo_tensor {
    void *data;
    int64_t shape[NEO_MAX_DIMS];
    int64_t stride[NEO_MAX_DIMS];
    int32_t ndim;
    neo_dtype dtype;
    const char *absent; /* data NULL: why there is none just now, for messages; not owned */
} neo_tensor;

NEO_API size_t neo_dtype_size(neo_dtype dtype);
NEO_API const char *neo_dtype_name(neo_dtype dtype); /* "f32", "bf16", ... */

/* neo_tensor_1d, _2d, _nd: contiguous (row-major) views of data; absent is NULL. */
NEO_API neo_tensor neo_tensor_1d(void *data, neo_dtype dtype, int64_t count);
NEO_API neo_tensor neo_tensor_2d(void *data, neo_dtype dtype, int64_t rows, int64_t cols);
NEO_API neo_tensor neo_tensor_nd(void *data, neo_dtype dtype, int ndim, const int64_t *shape);
NEO_API neo_tensor neo_tensor_none(void);

/* neo_tensor_slice: [first, first + count) of dimension dim. neo_tensor_rows: of dimension 0.
   Out of range gives neo_tensor_none(). Views of an absent tensor are absent as it is. */
NEO_API neo_tensor neo_tensor_slice(neo_tensor t, int dim, int64_t first, int64_t count);
NEO_API neo_tensor neo_tensor_rows(neo_tensor t, int64_t first, int64_t count);
NEO_API neo_tensor neo_tensor_transpose(neo_tensor t, int dim_a, int dim_b);
/* neo_tensor_reshape: a contiguous tensor under another shape of as many elements; else none. */
NEO_API neo_tensor neo_tensor_reshape(neo_tensor t, int ndim, const int64_t *shape);
NEO_API int64_t neo_tensor_count(neo_tensor t); /* elements; of none: 0 */
NEO_API size_t neo_tensor_bytes(neo_tensor t);
NEO_API int neo_tensor_is_contiguous(neo_tensor t);

/* neo_tensor_alloc: a contiguous tensor in memory of the context (64-byte aligned, not cleared).
   neo_tensor_free: gives it back and sets *t to none; none is allowed.
   Errors   NEO_ERR_ARG: a negative extent or a size that overflows. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_tensor_alloc(neo_ctx *ctx, neo_dtype dtype, int ndim,
                                                      const int64_t *shape, neo_tensor *t);
NEO_API void neo_tensor_free(neo_ctx *ctx, neo_tensor *t);

typedef enum neo_rounding {
    NEO_ROUND_NEAREST,   /* ties to even */
    NEO_ROUND_STOCHASTIC /* up with the probability of the remainder; see neo_random */
} neo_rounding;

typedef struct neo_convert_desc {
    neo_rounding rounding;
    const char *name; /* stochastic: the random stream is keyed by (seed, name, step), the number
                         by the element's row-major index in src */
    int64_t step;
    int64_t first;    /* added to that index: the place of src in a whole parameter */
} neo_convert_desc;

/* neo_tensor_convert: dst = src in dst's dtype, elementwise, rounded once; any strides; desc may
   be NULL (nearest). To an integer saturates (a NaN gives 0); to f8e4m3 saturates to +-448,
   infinities too; to f32, f16, bf16, f8e5m2 overflows to infinity. NaNs stay NaNs. Integers go to
   f32 by nearest always. Aliasing  src and dst may not overlap unless they are the same tensor of
   the same dtype.
   Errors    NEO_ERR_SHAPE: the shapes differ. NEO_ERR_ARG: a tensor is none or malformed. */
NEO_API neo_status neo_tensor_convert(neo_ctx *ctx, neo_tensor src, neo_tensor dst,
                                      const neo_convert_desc *desc);
/* neo_tensor_copy: same shape and dtype, any strides. neo_tensor_zero: contiguous. */
NEO_API neo_status neo_tensor_copy(neo_ctx *ctx, neo_tensor src, neo_tensor dst);
NEO_API neo_status neo_tensor_zero(neo_ctx *ctx, neo_tensor t);

/* neo_tree_sum: out = the sum of parts[0..count) in the order of the leaf tree (see >>leaves):
   what a reduction over ranks that each hold an equal power-of-two share of the leaves computes.
   Shapes   all alike, contiguous f32. Aliasing: out may be parts[0]; parts are overwritten. */
NEO_API neo_status neo_tree_sum(neo_ctx *ctx, const neo_tensor *parts, int count, neo_tensor out);

/* neo_floats_decode, _encode: `count` numbers of dtype f32, f16, bf16 or f8 to and from f32, to nearest,
   as neo_tensor_convert. neo_floats_add: x[i] += y[i]. On the calling thread alone, so any number of
   threads may call them beside everything else that a context does. */
NEO_API void neo_floats_decode(const neo_ctx *ctx, neo_dtype dtype, const void *src, float *dst, int64_t count);
NEO_API void neo_floats_encode(const neo_ctx *ctx, neo_dtype dtype, const float *src, void *dst, int64_t count);
NEO_API void neo_floats_add(const neo_ctx *ctx, float *x, const float *y, int64_t count);

/* ------------------------------------------------------------------------------------------------
   >>random

   Counter-based: Philox4x32-10 with key = seed and a counter made of a 64-bit hash of (name, step,
   stream) and the element's index. A number depends on nothing else: not on threads, order or
   layout.
   ------------------------------------------------------------------------------------------------ */
typedef enum neo_stream { /* what the numbers are for, so that uses never share numbers */
    NEO_STREAM_INIT,
    NEO_STREAM_ROUNDING,
    NEO_STREAM_SHUFFLE,
    NEO_STREAM_DATA,
    NEO_STREAM_USER = 16 /* yours: NEO_STREAM_USER + k */
} neo_stream;

/* neo_hash: 64-bit hash of a name, as used for random streams: FNV-1a over its bytes, then the
   finalizer of MurmurHash3 (h ^= h >> 33; h *= 0xFF51AFD7ED558CCD; h ^= h >> 33;
   h *= 0xC4CEB9FE1A85EC53; h ^= h >> 33), so that like names get unlike hashes. NULL is "". */
NEO_API uint64_t neo_hash(const char *name);
/* neo_random_u32x4: four 32-bit numbers of block `index`: Philox4x32-10 with
     key     (seed low, seed high)
     counter (index low, index high, h low, h high)
     h       mix(mix(name_hash + 0x9E3779B97F4A7C15 (stream + 1)) + step), mix the finalizer above,
   so for one name and stream no two steps share numbers.
   neo_random_uniform: in [0, 1), a multiple of 2^-24, of element `index` (block index / 4, word
   index % 4). neo_random_normal: mean 0, deviation 1, by Box and Muller from two words of the same
   block; at most 6.66 deviations out. */
NEO_API void neo_random_u32x4(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                              uint64_t index, uint32_t out[4]);
NEO_API float neo_random_uniform(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                 uint64_t index);
NEO_API float neo_random_normal(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                uint64_t index);

typedef enum neo_init_kind {
    NEO_INIT_DEFAULT,  /* chosen by whoever takes the neo_init; stated there */
    NEO_INIT_NONE,     /* leave the memory as the allocator gave it */
    NEO_INIT_CONSTANT, /* a */
    NEO_INIT_UNIFORM,  /* [a, b) */
    NEO_INIT_NORMAL    /* mean a, standard deviation b */
} neo_init_kind;
typedef struct neo_init {
    neo_init_kind kind;
    float a, b;
} neo_init;

/* neo_tensor_init: fill a contiguous f32 tensor from the stream (seed of ctx, name, step 0,
   NEO_STREAM_INIT). first is the index of t's first element in the whole parameter, so that a
   shard gets the values of its place. Element i is fma(neo_random_uniform, b - a, a), at most the
   float below b; or fma(neo_random_normal, b, a).
   Errors   NEO_ERR_ARG: NEO_INIT_DEFAULT; bounds or a range that are not finite; b < a of a
            uniform, b < 0 of a normal; first < 0. NEO_ERR_SHAPE: t is not contiguous f32. */
NEO_API neo_status neo_tensor_init(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                   int64_t first);

/* ------------------------------------------------------------------------------------------------
   >>exact

   A sum of floats that does not depend on order: a fixed-point integer as wide as f32's whole
   range (to 2^-149 .. 2^128, and room for 2^31 terms between two normalisations, which add does by
   itself). Losses, norms and metrics use it, so ranks can add in any order (element by element, as
   integers).
   ------------------------------------------------------------------------------------------------ */
enum { NEO_EXACT_WORDS = 12 };
typedef struct neo_exact {
    int64_t word[NEO_EXACT_WORDS]; /* sum of word[i] * 2^(32 i - 160) */
    int64_t terms;                 /* added since the words were last normalised */
    int64_t nan, pos_inf, neg_inf; /* how many of each were added: they are not in the words */
} neo_exact;
NEO_API void neo_exact_zero(neo_exact *sum);
NEO_API void neo_exact_add(neo_exact *sum, float x);
/* neo_exact_merge: sum += other. Adding words and counts as integers does the same as long as
   terms stay below 2^31; neo_exact_normalize makes room (terms becomes 1), and after it sums that
   are equal have equal words. */
NEO_API void neo_exact_merge(neo_exact *sum, const neo_exact *other);
NEO_API void neo_exact_normalize(neo_exact *sum);
/* neo_exact_value: the sum rounded once to double, ties to even (NaN and infinities as IEEE sums
   would give; a zero sum is +0). */
NEO_API double neo_exact_value(const neo_exact *sum);

/* ------------------------------------------------------------------------------------------------
   >>gemm
   ------------------------------------------------------------------------------------------------ */
typedef enum neo_activation {
    NEO_ACT_NONE,
    NEO_ACT_RELU,
    NEO_ACT_SIGMOID,
    NEO_ACT_TANH,
    NEO_ACT_GELU,     /* x/2 (1 + erf(x/sqrt 2)) */
    NEO_ACT_HARDSWISH /* x relu6(x + 3)/6 */
} neo_activation;

typedef struct neo_gemm_desc {
    int trans_a;        /* 1: a is stored [K][M] */
    int trans_b;        /* 1: b is stored [N][K] */
    float beta;         /* 0: c is not read */
    neo_activation act; /* applied last */
    const float *bias;  /* [N], or NULL */
} neo_gemm_desc;

/* neo_gemm: c = act(beta c + op(a) op(b) + bias).
   Shapes    op(a) [M][K], op(b) [K][N], c [M][N]; f32; the last stride of each is 1, row strides free.
             M, N, K may be 0 (K = 0: c = act(beta c + bias)).
   Numerics  every element starts at beta c (0 if beta is 0), adds a_k b_k by fused multiply-add in
             order of k, then the bias: the same bits on every path and for every shape around it.
   Aliasing  c may not overlap a, b or bias.
   Errors    NEO_ERR_SHAPE.
   Hook      with NEO_SGEMM defined (in the implementation file, as a function or macro
             NEO_SGEMM(trans_a, trans_b, M, N, K, a, lda, b, ldb, beta, c, ldc), row-major), it computes
             beta c + op(a) op(b) of products of at least 2^15 multiply-adds, here and in the layers;
             not weight gradients over several leaves, whose order a BLAS does not know. */
NEO_API neo_status neo_gemm(neo_ctx *ctx, const neo_gemm_desc *desc, neo_tensor a, neo_tensor b,
                            neo_tensor c);

/* ------------------------------------------------------------------------------------------------
   >>params

   Named dense parameters, each with its gradient. Layers add theirs; an optimizer takes the whole
   set. Values start at multiples of 256 elements (padding is zero and stays zero).
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_params neo_params;
typedef struct neo_param {
    const char *name; /* owned by the set */
    neo_tensor value; /* f32 */
    neo_tensor grad;  /* f32, same shape; backward functions overwrite it */
} neo_param;

NEO_API NEO__CHECK_UNUSED neo_status neo_params_create(neo_ctx *ctx, neo_params **params);
NEO_API void neo_params_destroy(neo_params *params);
/* neo_params_add: a new parameter, initialised (see neo_tensor_init; DEFAULT is zeros).
   *param stays valid as long as the set; may be NULL.
   Errors   NEO_ERR_ARG: empty name, or a name already in the set. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_params_add(neo_params *params, const char *name, int ndim,
                                                    const int64_t *shape, neo_init init,
                                                    const neo_param **param);
NEO_API int neo_params_count(const neo_params *params);
NEO_API const neo_param *neo_params_at(const neo_params *params, int index);
NEO_API const neo_param *neo_params_find(const neo_params *params, const char *name); /* or NULL */

/* neo_params_create_deferred: a set whose parameters are only described, so that a model that does
   not fit into this memory can be made. neo_params_add records name, shape and initialiser; value
   and grad are absent tensors of that shape until the owner of the set (a neo_fsdp) puts memory
   there. Layers are created on it as on any set. neo_optim_create refuses it: the owner steps what
   it holds.
   Errors   NEO_ERR_ARG: params or ctx is NULL. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_params_create_deferred(neo_ctx *ctx, neo_params **params);
NEO_API int neo_params_is_deferred(const neo_params *params);
/* neo_params_initializer: with what parameter `index` begins: neo_tensor_init under its name
   (first: the place of a shard in it) gives the values it has in a set that is not deferred. Never
   NEO_INIT_DEFAULT. An index outside gives NEO_INIT_NONE.
   neo_params_bind: for the owner of a deferred set: value and grad of parameter `index` are now at
   these addresses, contiguous f32 (backward overwrites the gradient). NULL: not in memory, for the
   reason `absent` (kept, not copied; NULL: "its set is not in memory").
   Errors   NEO_ERR_ARG: no such index, or the set is not deferred; nothing changes.
   Threads  none may use the set meanwhile. */
NEO_API neo_init neo_params_initializer(const neo_params *params, int index);
NEO_API neo_status neo_params_bind(neo_params *params, int index, void *value, void *grad,
                                   const char *absent);

/* ------------------------------------------------------------------------------------------------
   >>layers

   Pairs: neo_x_forward computes outputs, neo_x_backward the gradients of its inputs and parameters.
   A gradient tensor that is none is not computed. Gradients are overwritten, not added to.
   ------------------------------------------------------------------------------------------------ */

/* neo_activation_forward: y = act(z), elementwise; y may be z. _backward: dz = dy act'(z). For NONE, RELU, SIGMOID
   and TANH only y is read (z may be none); for GELU and HARDSWISH only z. dz may be dy.
   Shapes   contiguous f32, all alike. */
NEO_API neo_status neo_activation_forward(neo_ctx *ctx, neo_activation act, neo_tensor z, neo_tensor y);
NEO_API neo_status neo_activation_backward(neo_ctx *ctx, neo_activation act, neo_tensor z, neo_tensor y,
                                           neo_tensor dy, neo_tensor dz);

/* neo_linear_forward: y = act(x w^T + bias), as torch.nn.Linear.
   Shapes   x [B][in], w [out][in], bias [out] or none, y [B][out]; f32, last stride 1.
   neo_linear_backward: dx = dz w, dw = dz^T x, dbias = sum of dz over the batch (dz: the gradient
   before the activation). dw and dbias add in the order of the leaf tree.
   Shapes   x [B][in], w [out][in], dz [B][out]; dx [B][in], dw [out][in], dbias [out], each or none.
   leaves   NULL: the rows are the whole batch. Errors: NEO_ERR_SHAPE; NEO_ERR_ARG: bad leaves.
   Memory   uses the context's scratch; allocates nothing. */
NEO_API neo_status neo_linear_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                      neo_activation act, neo_tensor y);
NEO_API neo_status neo_linear_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x, neo_tensor w,
                                       neo_tensor dz, neo_tensor dx, neo_tensor dw, neo_tensor dbias);

/* A stack of linear layers. widths = {in, hidden..., out}. */
typedef struct neo_mlp neo_mlp;
enum { NEO_MAX_LAYERS = 32 };
typedef enum neo_mlp_init {
    NEO_MLP_INIT_DLRM, /* W ~ N(0, sqrt(2/(in + out))), b ~ N(0, sqrt(1/out)) */
    NEO_MLP_INIT_TORCH /* both ~ U(+-1/sqrt(in)), as torch.nn.Linear */
} neo_mlp_init;
typedef struct neo_mlp_desc {
    const char *name;          /* parameters are <name>.<2i>.weight and .bias, as torch.nn.Sequential
                                  of Linear and activation modules numbers them; required */
    int width_count;           /* 2 .. NEO_MAX_LAYERS + 1; required */
    int64_t widths[NEO_MAX_LAYERS + 1];
    int64_t max_batch;         /* largest batch of forward; required */
    neo_activation act;        /* after every layer but the last */
    neo_activation last_act;   /* after the last */
    neo_mlp_init init;
} neo_mlp_desc;

/* neo_mlp_create: add the layers' parameters to params and reserve activations for max_batch rows.
   neo_mlp_workspace_bytes: exactly what create takes from the allocator besides the parameters.
   The parameters belong to params and outlive the mlp. */
NEO_API NEO__CHECK_UNUSED neo_status neo_mlp_create(neo_ctx *ctx, neo_params *params,
                                                    const neo_mlp_desc *desc, neo_mlp **mlp);
NEO_API void neo_mlp_destroy(neo_mlp *mlp);
NEO_API size_t neo_mlp_workspace_bytes(const neo_mlp_desc *desc);
/* neo_mlp_forward: y = mlp(x). x and y must stay as they are until the backward of the same batch.
   neo_mlp_backward: the gradients of all parameters, and dx unless it is none. dy is not changed.
   Shapes   x [B][in], y [B][out], dy [B][out], dx [B][in]; B <= max_batch; f32, last stride 1.
   Errors   NEO_ERR_CAPACITY: B > max_batch. NEO_ERR_STATE: backward without its forward. */
NEO_API neo_status neo_mlp_forward(neo_mlp *mlp, neo_tensor x, neo_tensor y);
NEO_API neo_status neo_mlp_backward(neo_mlp *mlp, const neo_leaves *leaves, neo_tensor dy, neo_tensor dx);

/* neo_add: x += y, elementwise: a residual, or the gradients of the two ways into it.
   Shapes   contiguous f32, both alike; y may be x. */
NEO_API neo_status neo_add(neo_ctx *ctx, neo_tensor x, neo_tensor y);

/* neo_layer_norm_forward: y = (x - mean) scale weight + bias along each row, scale =
   1/sqrt(variance + eps), as torch.nn.LayerNorm over the last dimension. stats takes mean and scale
   of each row, for the backward.
   neo_rms_norm_forward: y = x scale weight, scale = 1/sqrt(mean of x^2 + eps), as torch.nn.RMSNorm.
   _backward: dx, dweight = sum of dy (x - mean) scale over the batch, dbias = sum of dy. dweight
   and dbias add in the order of the leaf tree.
   Shapes   x, y, dy, dx [rows][n], n > 0, f32, last stride 1; stats contiguous f32, [rows][2] of a
            layer norm, [rows] of an RMS norm; weight, bias, dweight, dbias [n] or none. dx none:
            not computed.
   Numerics sums along a row: blocks of 256 columns, each over 16 lanes and their tree.
   leaves   NULL: the rows are the whole batch.
   Aliasing y may be x for a forward without backward; dx may be dy.
   Errors   NEO_ERR_SHAPE; NEO_ERR_ARG: bad leaves, an eps below 0 or not finite.
   Memory   uses the context's scratch; allocates nothing. */
NEO_API neo_status neo_layer_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight,
                                          neo_tensor bias, float eps, neo_tensor y,
                                          neo_tensor stats);
NEO_API neo_status neo_layer_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                           neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                           neo_tensor dx, neo_tensor dweight, neo_tensor dbias);
NEO_API neo_status neo_rms_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight, float eps,
                                        neo_tensor y, neo_tensor stats);
NEO_API neo_status neo_rms_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                         neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                         neo_tensor dx, neo_tensor dweight);

/* neo_embedding_forward: out[i] = table[ids[i]], as torch.nn.Embedding: tokens, or the positions of
   a sequence. neo_embedding_backward: the dense gradient: dtable[r] = the sum of dout[i] where
   ids[i] is r, in order of i inside a leaf, over leaves by the tree; add != 0: this is added to
   what dtable holds (a table that is also the output layer's weight. For the same bits on several
   ranks call both with one leaf at a time, and add the results by neo_tree_sum.)
   Shapes   ids [N] contiguous i32 or i64; table, dtable [R][D], out, dout [N][D] f32, last stride 1.
   leaves   NULL: the ids are the whole batch.
   Errors   NEO_ERR_RANGE: an id is outside the table (the message names position and id); nothing
            is written. NEO_ERR_SHAPE. NEO_ERR_ARG: bad leaves.
   Memory   uses the context's scratch; allocates nothing. Each task walks all ids; there is one at
            least for every 2 MB of table, times the levels of the leaf tree. */
NEO_API neo_status neo_embedding_forward(neo_ctx *ctx, neo_tensor ids, neo_tensor table,
                                         neo_tensor out);
NEO_API neo_status neo_embedding_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor ids,
                                          neo_tensor dout, neo_tensor dtable, int add);

/* Attention of several heads inside each sequence of a batch. */
enum { NEO_MAX_HEAD_DIM = 512 };
typedef struct neo_attention_desc {
    int64_t length; /* T, rows of a sequence; required */
    int64_t heads;  /* required */
    int causal;     /* 1: row i sees rows 0 .. i of its sequence; 0: all of them */
    float scale;    /* of the products q k; 0: 1/sqrt(dim) */
} neo_attention_desc;
/* neo_attention_forward: y_i = sum_j p_ij v_j, p_i = softmax over j of scale q_i k_j, for each head
   and sequence: torch.nn.functional.scaled_dot_product_attention. lse takes the logarithm of each
   softmax's denominator, for the backward; none: not kept. _backward: dq, dk, dv, each or none.
   Shapes   q, k, v, y, dy, dq, dk, dv [B T][heads dim], lse [B T][heads]; f32, last stride 1; rows
            may lie apart, so slices of one [B T][3 heads dim] matrix serve.
   Numerics a sequence's result depends on itself alone. Products add by fma in order of dim, of
            keys (y, dq) and of queries (dk, dv); keys are taken in tiles of 64: the maximum so far,
            and the sum of a tile over 16 lanes and their tree. No matrix [T][T] is kept. Values
            must be finite, those that a causal row does not see too.
   Aliasing outputs overlap no input and no other output.
   Errors   NEO_ERR_ARG: length or heads below 1, a scale that is not finite. NEO_ERR_SHAPE: also
            rows that are not whole sequences, columns that are not whole heads.
            NEO_ERR_UNSUPPORTED: dim above NEO_MAX_HEAD_DIM.
   Memory   uses the context's scratch; allocates nothing. Threads take (sequence, head), in the
            forward also tiles of 64 queries. */
NEO_API neo_status neo_attention_forward(neo_ctx *ctx, const neo_attention_desc *desc, neo_tensor q,
                                         neo_tensor k, neo_tensor v, neo_tensor y, neo_tensor lse);
NEO_API neo_status neo_attention_backward(neo_ctx *ctx, const neo_attention_desc *desc,
                                          neo_tensor q, neo_tensor k, neo_tensor v, neo_tensor y,
                                          neo_tensor lse, neo_tensor dy, neo_tensor dq,
                                          neo_tensor dk, neo_tensor dv);

/* neo_interact_forward: pairwise dot products of T = [x; e_1 .. e_F], as DLRM's interact_features:
   z = [x, (T_i . T_j for i = 0 .. F, j < i)], row-major in (i, j).
   With diagonal != 0 also j = i. neo_interact_width: columns of z: D + F(F+1)/2 [+ F+1].
   Shapes    x [B][D], e [B][F D], z [B][width]; dz, dx, de alike; f32, last stride 1.
   Numerics  dots add by fma in order of D. dT_i starts at dz's copy part (row 0) or 0 and adds the
             partners j = 0 .. F in order (j = i enters once: with twice its dz, without diagonal with 0).
   Errors    NEO_ERR_SHAPE. NEO_ERR_UNSUPPORTED: more than 4095 features.
   Source    github.com/facebookresearch/dlrm. */
NEO_API int64_t neo_interact_width(int64_t dim, int64_t features, int diagonal);
NEO_API neo_status neo_interact_forward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e, neo_tensor z);
NEO_API neo_status neo_interact_backward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                         neo_tensor dz, neo_tensor dx, neo_tensor de);

/* ------------------------------------------------------------------------------------------------
   >>losses

   Mean losses and their gradients in one call. Gradients are divided by the number of samples of the
   whole batch, so that partial results only add. A sample weight multiplies its loss and gradient (the
   divisor stays the sample count, as torch's functional losses with `weight` and reduction="mean").
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_loss_desc {
    int64_t batch;     /* samples of the whole (global) batch; 0: the rows given */
    neo_tensor weight; /* [B] f32 or none */
    neo_exact *sum;    /* the weighted sample losses are also added here; or NULL */
} neo_loss_desc;

/* neo_bce_with_logits: binary cross entropy of sigmoid(logit). neo_bce: of probabilities, their logarithms
   clamped at -100, as torch. neo_mse: mean of squared differences over all elements.
   neo_cross_entropy: softmax cross entropy; label [B] i64 class numbers; as torch's default (mean over
   samples). For sequences a sample is a position: logit [B T][C], and desc->batch counts positions.
   desc may be NULL.
   Shapes   bce: logit, label, dlogit [B] or [B][1]; mse: pred, target, dpred alike, [B] or [B][n]; cross entropy:
            logit, dlogit [B][C]. f32, contiguous; the gradient may be none, or the input itself.
   loss     the sum over these rows divided by the batch; may be NULL. An empty batch gives 0.
   Numerics a sample's loss is one f32 (mse of n columns: the mean of its n squares); they add in a
            neo_exact, so no order shows. Sums along a row: blocks of 256 columns, each over 16
            lanes and their tree.
   Memory   uses the context's scratch; allocates nothing.
   Errors   NEO_ERR_SHAPE. NEO_ERR_RANGE: a class outside [0, C); a bce label outside [0, 1]; a
            probability outside [0, 1]; the message names the sample. NEO_ERR_ARG: batch is less
            than the rows given. On an error nothing is written. */
NEO_API neo_status neo_bce_with_logits(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                       neo_tensor label, neo_tensor dlogit, double *loss);
NEO_API neo_status neo_bce(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor prob, neo_tensor label,
                           neo_tensor dprob, double *loss);
NEO_API neo_status neo_mse(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor pred, neo_tensor target,
                           neo_tensor dpred, double *loss);
NEO_API neo_status neo_cross_entropy(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                     neo_tensor label, neo_tensor dlogit, double *loss);

/* ------------------------------------------------------------------------------------------------
   >>optim

   Dense optimizers over a neo_params, with the semantics of torch.optim (LAMB: arXiv 1904.00962 as
   FBGEMM and apex apply it: Adam direction with bias correction plus weight_decay w, scaled per
   parameter tensor by |w|/|update| where both are positive, else by 1).
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_optim neo_optim;
typedef enum neo_optim_kind {
    NEO_OPTIM_SGD,
    NEO_OPTIM_ADAGRAD,
    NEO_OPTIM_ADAM,  /* weight_decay is L2: added to the gradient */
    NEO_OPTIM_ADAMW, /* weight_decay is decoupled */
    NEO_OPTIM_LAMB
} neo_optim_kind;
typedef struct neo_optim_desc {
    neo_optim_kind kind;
    float weight_decay;
    float momentum, dampening;  /* SGD */
    int nesterov;               /* SGD; needs momentum > 0 and dampening 0 */
    float lr_decay;             /* Adagrad */
    float initial_accumulator;  /* Adagrad */
    double beta1, beta2;        /* Adam family; 0: 0.9 and 0.999; below 0: none (0) */
    float eps;                  /* outside the root; 0: 1e-10 (Adagrad), 1e-8 (Adam), 1e-6 (LAMB) */
    float clip_norm;            /* 0: off; else the norm of the gradients of all parameters of this
                                   optimizer (not of embedding bags) is limited to this */
    float clip_norm_type;       /* 1, 2 (0 means 2) or INFINITY; as torch.nn.utils.clip_grad_norm_ */
    const char *name;           /* prefix of the state's names; NULL: "optim" */
} neo_optim_desc;

/* neo_optim_create: state for every parameter now in params (add parameters first).
   neo_optim_state_bytes: exactly what create asks of the allocator (state, its names, the record).
   Errors   NEO_ERR_ARG: a number out of its range (the message names it); a deferred set. */
NEO_API NEO__CHECK_UNUSED neo_status neo_optim_create(neo_ctx *ctx, neo_params *params,
                                                      const neo_optim_desc *desc, neo_optim **optim);
NEO_API void neo_optim_destroy(neo_optim *optim);
NEO_API size_t neo_optim_state_bytes(const neo_params *params, const neo_optim_desc *desc);
/* neo_optim_step: one step from the gradients in params. Clipping leaves them as they are: its factor,
   min(1, clip_norm/(norm + 1e-6)), enters the step. Allocates nothing.
   Errors   NEO_ERR_NUMERIC: lr, or with clipping the gradient norm, is not finite. NEO_ERR_STATE:
            parameters were added after create. Nothing has changed then. */
NEO_API neo_status neo_optim_step(neo_optim *optim, float lr);
NEO_API int64_t neo_optim_step_count(const neo_optim *optim);
/* neo_optim_grad_norm: the norm before clipping of the last step; 0 without clipping. */
NEO_API double neo_optim_grad_norm(const neo_optim *optim);

typedef enum neo_schedule_kind {
    NEO_SCHEDULE_CONSTANT,
    NEO_SCHEDULE_LINEAR, /* to end_lr at total_steps */
    NEO_SCHEDULE_COSINE,
    NEO_SCHEDULE_POLY    /* (1 - t)^power, as DLRM's LRPolicyScheduler with power 2 */
} neo_schedule_kind;
typedef struct neo_schedule {
    neo_schedule_kind kind;
    float lr, end_lr;     /* peak and final */
    int64_t warmup_steps; /* linear from lr/warmup_steps up to lr */
    int64_t hold_steps;   /* at lr between warm-up and decay */
    int64_t total_steps;  /* end of the decay; from here on end_lr (so 0 gives end_lr throughout,
                             except with NEO_SCHEDULE_CONSTANT, which does not read it) */
    float power;          /* poly; 0: 2 */
} neo_schedule;
/* neo_schedule_lr: the learning rate of step 0, 1, ... The same bits everywhere. */
NEO_API float neo_schedule_lr(const neo_schedule *schedule, int64_t step);

/* ------------------------------------------------------------------------------------------------
   >>gradcheck

   Compares an analytic gradient with central differences of a scalar function.
   ------------------------------------------------------------------------------------------------ */
typedef neo_status (*neo_gradcheck_fn)(void *user, double *loss); /* forward only, from current values */
typedef struct neo_gradcheck_desc {
    neo_gradcheck_fn loss;
    void *user;
    neo_tensor value;    /* f32, contiguous: nudged one element at a time, restored */
    neo_tensor grad;     /* the gradient of loss with respect to value, from your backward */
    double step;         /* 0: 1e-2 (f32 sums are coarse) */
    double rel_tol;      /* 0: 2e-2 */
    double abs_tol;      /* 0: 1e-4 */
    int64_t max_elements;/* 0: all; else that many, spread evenly */
    const char *name;    /* for the message */
} neo_gradcheck_desc;
typedef struct neo_gradcheck_result {
    int64_t checked, failed;
    int64_t worst_element; /* of the largest |analytic - numeric| / (abs_tol + rel_tol |numeric|) */
    double worst_ratio, analytic, numeric;
} neo_gradcheck_result;
/* neo_gradcheck: Errors NEO_ERR_MISMATCH: some element is off (the message names the worst; result is
   filled). A NaN fails. Errors of loss() are passed on. result may be NULL. */
NEO_API neo_status neo_gradcheck(const neo_gradcheck_desc *desc, neo_gradcheck_result *result);

/* ------------------------------------------------------------------------------------------------
   >>jagged

   A jagged batch: for each of T features and B samples a bag of ids, of any length. Feature-major:
   bag (t, b) is ids[offsets[t B + b] .. offsets[t B + b + 1]). The struct is a view; a
   neo_jagged_buffer owns memory for one.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_jagged {
    int64_t batch;          /* B; not read when feature_bags is given */
    int32_t feature_count;  /* T */
    neo_dtype id_dtype;     /* NEO_I64 or NEO_I32 */
    const int64_t *offsets; /* [bag count + 1]; offsets[0] may be above 0: views may start later */
    const void *ids;        /* indexed by offsets */
    const float *weights;   /* per id, indexed by offsets; or NULL */
    const int64_t *feature_bags; /* [T + 1]: feature t has bags feature_bags[t] .. feature_bags[t+1];
                                    NULL: every feature has B bags */
} neo_jagged;

NEO_API int64_t neo_jagged_bag_count(const neo_jagged *j); /* T B, or feature_bags[T] */
NEO_API int64_t neo_jagged_id_count(const neo_jagged *j);

/* neo_jagged_validate: offsets never decrease, counts fit, ids are inside [0, rows[t]) for the T
   numbers in rows (NULL: not checked). Reads every offset and id. It cannot know how long your arrays
   are: ids must reach to the last offset.
   Errors   NEO_ERR_ARG: a NULL pointer, a negative count, an id dtype that is not i32 or i64.
            NEO_ERR_FORMAT: offsets that decrease; the message names feature and sample.
            NEO_ERR_RANGE: an id outside its table; it names feature, sample, position and id. */
NEO_API neo_status neo_jagged_validate(const neo_jagged *j, const int64_t *rows);

typedef struct neo_jagged_desc {
    int32_t feature_count; /* required */
    int64_t max_bags;      /* capacity; required */
    int64_t max_ids;       /* capacity; required */
    neo_dtype id_dtype;    /* NEO_I64 (given as 0 too) or NEO_I32 */
    int weighted;          /* 1: with weights */
} neo_jagged_desc;
/* A buffer with capacity, and a view of what is in it. */
typedef struct neo_jagged_buffer neo_jagged_buffer;
NEO_API NEO__CHECK_UNUSED neo_status neo_jagged_create(neo_ctx *ctx, const neo_jagged_desc *desc,
                                                       neo_jagged_buffer **buffer);
NEO_API void neo_jagged_destroy(neo_jagged_buffer *buffer);
NEO_API const neo_jagged *neo_jagged_view(const neo_jagged_buffer *buffer);
/* neo_jagged_reserve: grow to at least these capacities, keeping the content; counted. */
NEO_API NEO__CHECK_UNUSED neo_status neo_jagged_reserve(neo_jagged_buffer *buffer, int64_t max_bags,
                                                        int64_t max_ids);
NEO_API int64_t neo_jagged_grow_count(const neo_jagged_buffer *buffer);

/* Writers: each replaces the buffer's content. On any error the buffer keeps its old content;
   NEO_ERR_CAPACITY names the capacity needed. Sources may not be views of the same buffer. Ids convert
   between i32 and i64 (NEO_ERR_RANGE if they do not fit); a weighted buffer fed from an unweighted
   source gets ones; weights never get lost silently (NEO_ERR_ARG). The result must have the buffer's
   feature_count (NEO_ERR_SHAPE). Sources with feature_bags: concat and select take them (the result then
   has feature_bags too), slice, stack and transpose do not (NEO_ERR_ARG).
     set          from lengths [T B] (i32 or i64 as length_dtype) and ids: "combined format": all
                  lengths, then all ids
     from_lists   from lists[t B + b], an array of counts[t B + b] ids (not read where the count is 0)
     concat       the features of several batches of the same B, one after another
     select       the features in the order given (repeats allowed): permute, split, select in one
     slice        samples [first, first + count) of every feature
     stack        several batches of the same T, one after another in the sample direction
     transpose    from sample-major (bag b T + t) to feature-major */
NEO_API neo_status neo_jagged_set(neo_jagged_buffer *out, int64_t batch, const void *lengths,
                                  neo_dtype length_dtype, const void *ids, neo_dtype id_dtype,
                                  const float *weights);
NEO_API neo_status neo_jagged_from_lists(neo_jagged_buffer *out, int64_t batch,
                                         const int64_t *const *lists, const int64_t *counts);
NEO_API neo_status neo_jagged_concat(neo_jagged_buffer *out, const neo_jagged *const *parts,
                                     int count);
NEO_API neo_status neo_jagged_select(neo_jagged_buffer *out, const neo_jagged *in,
                                     const int32_t *features, int count);
NEO_API neo_status neo_jagged_slice(neo_jagged_buffer *out, const neo_jagged *in, int64_t first,
                                    int64_t count);
NEO_API neo_status neo_jagged_stack(neo_jagged_buffer *out, const neo_jagged *const *parts,
                                    int count);
NEO_API neo_status neo_jagged_transpose(neo_jagged_buffer *out, const neo_jagged *sample_major);

/* ------------------------------------------------------------------------------------------------
   >>bags

   Many embedding tables as one object: one call looks up and pools every bag of every table; one
   call merges the gradients per row and takes one exact optimizer step per touched row. Untouched
   rows keep their bits. No dense gradient is ever built.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_bags neo_bags;
typedef enum neo_pooling { NEO_POOL_SUM, NEO_POOL_MEAN, NEO_POOL_NONE } neo_pooling;
typedef enum neo_bounds { /* what to do with an id outside its table */
    NEO_BOUNDS_ERROR,     /* refuse the batch: nothing is written */
    NEO_BOUNDS_DROP,      /* leave the id out, and count it */
    NEO_BOUNDS_CLAMP      /* use the nearest row, and count it */
} neo_bounds;

typedef enum neo_bag_optim_kind { /* g: merged gradient of a row; t from 1 */
    NEO_BAG_SGD,             /* w -= lr g */
    NEO_BAG_ADAGRAD,         /* m += g^2; w -= lr g/(sqrt(m) + eps) */
    NEO_BAG_ROWWISE_ADAGRAD, /* s += mean(g^2), one float per row; w -= lr g/(sqrt(s) + eps) */
    NEO_BAG_ADAM,            /* bias corrected; t counts the steps of the whole object */
    NEO_BAG_PARTIAL_ADAM,    /* v one float per row: v = b2 v + (1-b2) mean(g^2) */
    NEO_BAG_LAMB,            /* r = u + wd w, u as Adam's; w -= lr |w|/|r| r per row (1 if a norm is 0) */
    NEO_BAG_PARTIAL_LAMB,    /* LAMB on partial Adam */
    NEO_BAG_LARS_SGD,        /* a = lr eta |w|/(|g| + wd |w|) (0 if that is 0/0);
                                m = mu m + a (g + wd w); w -= m */
    NEO_BAG_OPTIM_COUNT
} neo_bag_optim_kind;
typedef enum neo_decay {
    NEO_DECAY_NONE,     /* weight_decay must be 0. LARS and LAMB allow only this mode and use
                           weight_decay as stated above */
    NEO_DECAY_L2,       /* g += weight_decay w, after the clip */
    NEO_DECAY_DECOUPLED /* w -= lr weight_decay w, before the step (Adam with it is AdamW) */
} neo_decay;
typedef struct neo_bag_optim {
    neo_bag_optim_kind kind;
    neo_decay decay;
    float weight_decay;
    float eps;                 /* outside the root; 0: 1e-8 */
    float initial_accumulator; /* Adagrad, row-wise Adagrad */
    double beta1, beta2;       /* 0: 0.9 and 0.999; below 0: none (0). 1 - beta is taken in double */
    float momentum;            /* LARS: mu */
    float eta;                 /* LARS; 0: 0.001 */
    float lr_scale;            /* times the lr of backward; 0: 1 */
    float clip_gradient;       /* 0: off; else merged gradients are clamped to +-this */
    float max_norm;            /* 0: off; else a touched row's 2-norm is cut to this after its step */
} neo_bag_optim;

/* Where a table lies in a larger one, of which it holds the columns from first_col and the rows from
   first_row on. Initial values, row buckets, norms and means are then those of the larger table. Zeros: a
   table by itself. */
typedef struct neo_table_part {
    int64_t rows, dim; /* of the larger table */
    int64_t first_row, first_col;
} neo_table_part;
typedef struct neo_table_desc {
    const char *name;    /* tensors are <bags>.<name>.weight, ...; required */
    int64_t rows;        /* required */
    int64_t dim;         /* D; required */
    neo_pooling pooling; /* NEO_POOL_NONE: for all tables of an object or none */
    neo_bag_optim optim;
    neo_init init;       /* DEFAULT: U(+-1/sqrt(rows)), as DLRM */
    int32_t row_buckets; /* R: pooled sums add bucket by bucket (bucket r has the rows from r rows/R up
                            to (r + 1) rows/R), then over buckets by the leaves' tree, + 0.0f,
                            whatever the plan; 0: 1. Above 1 the lookup is slower */
    void *weight;        /* [rows][dim] of dtype in memory of yours (init still applies); NULL:
                            neo's */
    neo_table_part part; /* parts of one table have one name. first_col is a multiple of 16, and so is dim
                            unless the part has the last column; a part of the rows is whole buckets */
    neo_dtype dtype;     /* of the rows: NEO_F32, NEO_F16, NEO_BF16 or NEO_I8; see "narrow rows" */
    int round_nearest;   /* narrow rows are rounded to nearest after a step, not stochastically */
} neo_table_desc;

/* ---- narrow rows ----
   Rows of f16, bf16 or i8 take half or a quarter of the memory, and of the bytes that a lookup
   reads. All arithmetic and the optimizer's state are f32: a lookup decodes; a step decodes the row,
   steps it as a row of f32 is stepped, and rounds the new row. To nearest, a row would
   stand still once steps are below half its last place. So a step rounds up or down at random, with
   the probability of the remainder, and the mean of what is stored is the row that was computed
   (but for f32's own rounding). Initial values, and rows written by neo_bags_set_rows, are rounded to
   nearest.

   The random number of an element is word e % 4 of block e / 4 of neo_random_u32x4 (the context's
   seed, neo_hash("<bags>.<table>.weight"), t, NEO_STREAM_ROUNDING): e = row * dim + column in the
   table, or in the larger table of which this one is a part; t is the number of this step, from 1.
   So no layout, order, thread or instruction set matters, and a run that is resumed rounds alike.

   f16, bf16   as neo_tensor_convert with that name, step and index; infinity beyond the largest
   i8          a row has codes in [-127, 127] and two f32, scale and bias; an element is fma(code,
               scale, bias). Of a new row w, with one rounding per operation:
                 h = 0.5 max(w) - 0.5 min(w)
                 scale = h / 127, 0 if below 2^-126;  bias = min(w) + h
                 x = (w - bias) (1 / scale), cut to [-127, 127];  n = floor(x)
                 code = n + 1 if x - n > (word >> 8) 2^-24, else n; nearest: x, ties to even
               If scale is 0 (a constant row) all codes are 0. A row with a NaN or an infinity
               becomes NaN as a whole: codes 0, scale 0, bias NaN. Scale and bias need the whole
               row: a table of i8 may be cut by rows, not by columns.
   ---- */

/* Sums along rows of which this object has some columns: a row-wise optimizer, LAMB, LARS and max_norm need
   them over whole rows. For each part that is cut by columns: blocks [sums][rows][blocks], the sums of this
   part's blocks of 16 columns (see >>bag-optim); total [sums][rows], to be filled with the sums of all blocks
   of the row, added from 0 in order of column. Parts of the same rows of one table that saw the same batches
   have the same rows in the same order. */
typedef struct neo_cut_sums {
    int32_t table; /* of this object */
    int32_t sums;  /* per row: 1 or 2 */
    int64_t rows, blocks_per_row;
    const float *blocks;
    float *total;
} neo_cut_sums;
/* Called on the thread that called backward or step, before anything has changed; an error ends that call,
   and nothing has changed. */
typedef neo_status (*neo_cut_sums_fn)(void *user, const neo_cut_sums *cuts, int32_t count);

typedef struct neo_bags_desc {
    const char *name;             /* NULL: "bags" */
    const neo_table_desc *tables; /* required; copied */
    int32_t table_count;          /* required */
    const int32_t *feature_table; /* [feature_count] table of each feature; NULL: feature t, table t */
    int32_t feature_count;        /* with feature_table */
    int64_t max_batch;            /* samples (of any one feature); required */
    int64_t max_ids;              /* ids of a batch over all features; required. See neo_bags_reserve */
    neo_bounds bounds;
    int64_t max_kept_rows; /* rows that neo_bags_accumulate may keep between two steps, over all tables;
                              0: not used */
    neo_cut_sums_fn cut_sums; /* with a part whose optimizer needs sums over whole rows: required */
    void *cut_sums_user;
} neo_bags_desc;

/* neo_bag_cut_rounds: how many times a step of a table that is cut by columns asks for sums: 0 to 3. */
NEO_API int neo_bag_cut_rounds(const neo_bag_optim *optim);

/* neo_bags_create: allocate and initialise the tables, their optimizer state, and the workspace of
   forward and backward for batches up to max_batch and max_ids. Initial values do not depend on anything
   but the seed and the tensor's name, "<bags>.<table>.weight".
   Errors   NEO_ERR_ARG: a field of desc, the table named. NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: rows of a
            table times max_ids (or max_kept_rows) beyond 2^64; i8 rows cut by columns.
   neo_bags_bytes: exactly what create asks of the allocator: weights (those not in memory of yours,
   and the scales of i8 rows), optimizer state, and workspace (descriptions included). */
typedef struct neo_bags_memory {
    size_t weight_bytes, state_bytes, workspace_bytes;
} neo_bags_memory;
NEO_API NEO__CHECK_UNUSED neo_status neo_bags_create(neo_ctx *ctx, const neo_bags_desc *desc,
                                                     neo_bags **bags);
NEO_API void neo_bags_destroy(neo_bags *bags);
NEO_API neo_status neo_bags_bytes(neo_ctx *ctx, const neo_bags_desc *desc,
                                  neo_bags_memory *memory);
/* neo_bags_reserve: grow the workspace to these capacities; call it between batches, when a batch
   may be larger than declared. A no-op when it fits; counted otherwise. On failure nothing changes.
   Errors   NEO_ERR_STATE: gradients are kept. NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: as create. */
NEO_API NEO__CHECK_UNUSED neo_status neo_bags_reserve(neo_bags *bags, int64_t max_batch,
                                                      int64_t max_ids);

/* neo_bags_forward: pool the rows of every bag of every feature.
   Shapes    batch: T features x B samples; out [B][sum of the features' dims] f32, last stride 1.
             With feature_bags (a batch size per feature): out is 1-d, feature after feature, each
             [B_t][D_t]. NEO_POOL_NONE: all tables have one dim D; out [ids][D], one row per id in order.
   Numerics  elements of narrow rows become f32 (see "narrow rows"). A bag adds w_k * row_k by fma
             (weights) or row_k by addition in order of position, from 0;
             MEAN then divides by the bag's length (before any id was dropped). NONE copies the row,
             times its weight where there are weights; a dropped id gives zeros.
   Aliasing  out may not overlap an input. Threads: safe on distinct bags objects of distinct contexts.
   Errors    NEO_ERR_RANGE: an id outside its table under NEO_BOUNDS_ERROR: table, feature, sample,
             position and id are named. NEO_ERR_CAPACITY: more samples or ids than reserved.
             NEO_ERR_FORMAT: offsets that decrease. NEO_ERR_SHAPE. Nothing is written then.
   Source    torch.nn.EmbeddingBag; an empty bag gives zeros. */
NEO_API neo_status neo_bags_forward(neo_bags *bags, const neo_jagged *batch, neo_tensor out);

/* neo_bags_backward: merge the gradients per row, then one optimizer step per touched row, fused.
   Shapes    dout as out of forward, for the same batch.
   Numerics  d is dout of a bag, divided by its length for MEAN. An occurrence of a row adds d, or
             w_k * d by fma, in order of (feature, sample, position) inside a leaf; leaves (of the
             feature's samples, see >>leaves) add by tree, then + 0.0f. What follows is in >>bag-optim:
             clip_gradient, decay, the optimizer, max_norm.
   Errors    as forward. NEO_ERR_NUMERIC: lr is not finite. NEO_ERR_STATE: gradients are kept. Those of
             cut_sums. Nothing has changed then. */
NEO_API neo_status neo_bags_backward(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                     float lr);

/* ---- unfused: gradients that are kept ----
   Over several micro-batches or losses, and where all gradients must be known before any weight moves
   (clipping by a global norm, loss scaling): accumulate any number of times, then one step. Needs
   max_kept_rows.

   neo_bags_accumulate: merge the gradients of a batch per row, as backward does, and add them to those kept.
   leaves: the batch is these leaves of a larger one (then without feature_bags); NULL: it is all of it. With
   one call per step, accumulate and step are backward, bit for bit. Of several calls the merged gradients
   add in order of call.
   Errors   as backward. NEO_ERR_CAPACITY: more rows than max_kept_rows; nothing has been added then.
   neo_bags_add_grad: add gradients of your own, in order: rows [count] of one table, grad [count][dim]
   f32.
   Errors   NEO_ERR_RANGE: a row outside the table. NEO_ERR_SHAPE. NEO_ERR_CAPACITY, as above.
   neo_bags_kept_count, neo_bags_kept_row: what is kept: row i, in the order they came: its table, its
   number, and its gradient, as many floats as the table has columns. Valid until the next call that keeps,
   steps or clears.
   neo_bags_grad_squares: add the squares of all kept gradients to sum, exactly but for one rounding in each
   product and in the tree of 16 columns: no order matters. neo_bags_scale_grads: multiply them.
   neo_bags_step: one optimizer step for each row that is kept; then none is. neo_bags_clear: forget them. */
NEO_API neo_status neo_bags_accumulate(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves);
NEO_API neo_status neo_bags_add_grad(neo_bags *bags, int32_t table, const int64_t *rows, int64_t count,
                                     neo_tensor grad);
NEO_API int64_t neo_bags_kept_count(const neo_bags *bags);
NEO_API const float *neo_bags_kept_row(const neo_bags *bags, int64_t i, int32_t *table, int64_t *row);
NEO_API void neo_bags_grad_squares(const neo_bags *bags, neo_exact *sum);
NEO_API void neo_bags_scale_grads(neo_bags *bags, float scale);
NEO_API neo_status neo_bags_step(neo_bags *bags, float lr);
NEO_API void neo_bags_clear(neo_bags *bags);

/* neo_bags_weight_grad: dweights[k] = the gradient of the per-id weight k of the batch (counted
   from its first id; a batch without weights stands for ones): dout of its bag . row. The sum has the
   fixed shape of rows (see >>bag-optim); MEAN then divides it by the bag's length; 0 for a dropped
   id. Call it before backward changes the rows. dweights: as many floats as the batch has ids.
   Errors: as forward. */
NEO_API neo_status neo_bags_weight_grad(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                        float *dweights);

NEO_API int32_t neo_bags_table_count(const neo_bags *bags);
NEO_API int64_t neo_bags_out_width(const neo_bags *bags); /* sum of the features' dims */
NEO_API const char *neo_bags_table_name(const neo_bags *bags, int32_t table);
/* neo_bags_weight: a view of a table's rows, [rows][dim] of the table's dtype. neo_bags_scale: of
   scale and bias of each row of i8, [rows][2] f32; none for other dtypes. neo_bags_state: of its
   optimizer state k (0: "momentum1", 1: "momentum2"; [rows] or [rows][dim]); none when it has no
   such state. */
NEO_API neo_tensor neo_bags_weight(const neo_bags *bags, int32_t table);
NEO_API neo_tensor neo_bags_scale(const neo_bags *bags, int32_t table);
NEO_API neo_tensor neo_bags_state(const neo_bags *bags, int32_t table, int k);
/* neo_bags_get_rows: rows [first, first + count) of a table as f32, [count][dim], whatever its
   dtype. neo_bags_set_rows: write them, rounded to nearest; optimizer state stays as it is.
   Threads  on the calling thread alone; not beside another call on the same object.
   Errors   NEO_ERR_RANGE: rows outside the table. NEO_ERR_ARG: no such table, rows is NULL. */
NEO_API neo_status neo_bags_get_rows(const neo_bags *bags, int32_t table, int64_t first,
                                     int64_t count, float *rows);
NEO_API neo_status neo_bags_set_rows(neo_bags *bags, int32_t table, int64_t first, int64_t count,
                                     const float *rows);
typedef struct neo_bags_stats {
    int64_t steps;        /* backward calls: the t of Adam */
    int64_t out_of_range; /* ids dropped or clamped by forward so far */
    int64_t grow_count;   /* times reserve grew the workspace */
} neo_bags_stats;
NEO_API neo_bags_stats neo_bags_get_stats(const neo_bags *bags);
/* neo_bags_set_steps: steps taken so far, for optimizer state that comes from elsewhere. */
NEO_API void neo_bags_set_steps(neo_bags *bags, int64_t steps);

/* ------------------------------------------------------------------------------------------------
   >>schema

   A schema says what one sample of a data source becomes: a label, dense numbers, and for each
   sparse feature a bag of ids in [0, rows). Readers parse by it; trainers size their tables from
   it; it owns the dictionaries that turn words into ids, so one schema serves training and test
   files. Id 0 of a feature stands for a missing word, and in a dictionary for an unseen one too.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_schema neo_schema;

typedef enum neo_format {
    NEO_FORMAT_CRITEO,    /* label \t 13 integers \t 26 hex words; empty fields allowed */
    NEO_FORMAT_DELIMITED, /* text columns, by a column description */
    NEO_FORMAT_NPY,       /* TorchRec's day_<i>_{dense,sparse,labels}.npy */
    NEO_FORMAT_SYNTHETIC  /* generated, Criteo-like, with a known best AUC */
} neo_format;

typedef enum neo_ids {
    NEO_IDS_HASH,      /* 1 + hash of the word modulo (rows - 1) */
    NEO_IDS_DICTIONARY /* numbered from 1 in order of first sight by neo_schema_fit */
} neo_ids;

typedef struct neo_feature {
    const char *name; /* owned by the schema */
    int64_t rows;     /* ids are in [0, rows); 0 while its dictionary is still to be built */
} neo_feature;

/* neo_schema_criteo: 13 dense (log(x + 1), negative and empty ones 0), 26 sparse features C1 ..
   C26, one id each. A word is 1 to 8 hex digits; with NEO_IDS_HASH the id is 1 + its number modulo
   (rows - 1), as the words are hashes already. rows_per_feature: [26] table sizes, or NULL:
   max_rows for all. With NEO_IDS_DICTIONARY these are the largest sizes (words seen after that are
   unseen).
   Errors   NEO_ERR_ARG: a size below 1. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_criteo(neo_ctx *ctx, neo_ids ids, int64_t max_rows,
                                                       const int64_t *rows_per_feature,
                                                       neo_schema **schema);
/* neo_schema_parse: a column description, as text: one line per column of the file, in order,
       <name> <what>...          where what is one or more of
     label [positive=W,W]        1 if the field is one of the words; without positive=, a number
                                 in [0, 1]
     dense [log] [shift=a] [scale=b] [missing=c]
                                 (x - a) * b; with log x is first log(x + 1), 0 for x <= 0;
                                 c when the field is missing (default 0)
     category [rows=N] [hash]    a dictionary of at most N rows (when they are used up, further words
                                 get id 0, as unseen ones do); or with hash, which needs rows,
                                 1 + neo_hash(word) modulo (rows - 1)
     bucket e1,e2,...            a sparse feature: 1 + how many edges are <= x; 0 when missing
     cross <other column> rows=N 1 + a hash of both fields modulo (rows - 1)
     list sep=C [rows=N] [hash]  several words in one field: a bag
     skip                        the column is not used
   The sparse features are in the order of the lines; a feature is called as its column, with
   "_bucket" or "_x_<other>" added for bucket and cross. Before the columns may stand
     delimiter C     text between two fields (default ","); "tab" and "space" stand for those
     missing W       a word that means "no value", as an empty field always does; may be repeated
     skip-lines N    the first N lines of every file hold no sample;   header   is skip-lines 1
                     (names in it are not compared with the description)
     comment T       lines that begin with T hold no sample; may be repeated
   '#' and what follows it on the line is a comment of the description, at the start of a line or
   after a space. Spaces and tabs around a field are left out (unless they delimit); blank lines
   hold no sample. Quotes mean nothing: a field is what stands between two delimiters.
   path_or_text: text if it contains a newline, else the path of a file.
   Errors   NEO_ERR_FORMAT: the message has file:line:column. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_parse(neo_ctx *ctx, const char *path_or_text,
                                                      neo_schema **schema);
/* neo_schema_npy: for triples <prefix>dense.npy [N, D] (f32, f16, f64 or integers),
   <prefix>sparse.npy [N, T] (i32 or i64), <prefix>labels.npy [N] or [N, 1] (numbers in [0, 1]); D
   and T are taken from the first triple. rows: [T], or NULL: found by reading the sparse files
   (the largest id + 1). Ids are taken modulo rows if modulo != 0; else one outside is an error of
   the reader. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_npy(neo_ctx *ctx, const char *const *prefixes,
                                                    int prefix_count, const int64_t *rows,
                                                    int modulo, neo_schema **schema);
/* A Criteo-like generator with planted truth: logit = bias + linear dense + one planted weight per
   (feature, id), label ~ Bernoulli(sigmoid(logit)); ids follow a Zipf law per feature. A sample is
   a function of (desc, its number) alone, so any order and any share of them is the same data. */
typedef struct neo_synthetic_desc {
    int64_t samples;        /* per epoch; required */
    uint64_t seed;          /* of the truth and the samples; not the context's */
    int32_t dense_count;    /* 0: 13; below 0: none */
    int32_t feature_count;  /* 0: 26; below 0: none */
    int64_t rows;           /* 0: 10,000; per feature, or see rows_per_feature */
    const int64_t *rows_per_feature; /* [feature_count] or NULL */
    float zipf;             /* exponent; 0: 1.1 */
    int32_t ids_per_bag;    /* mean bag length; 0 or 1: exactly one; else uniform, 0 .. 2 of it */
    float signal;           /* deviation of the planted logit; 0: 1.5 */
    int64_t first_sample;   /* an epoch is samples [first_sample, first_sample + samples): another
                               range is another data set of the same truth */
} neo_synthetic_desc;
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_synthetic(neo_ctx *ctx,
                                                          const neo_synthetic_desc *desc,
                                                          neo_schema **schema);
NEO_API void neo_schema_destroy(neo_schema *schema);
NEO_API neo_format neo_schema_format(const neo_schema *schema);
NEO_API int32_t neo_schema_dense_count(const neo_schema *schema);
NEO_API int32_t neo_schema_feature_count(const neo_schema *schema);
/* neo_schema_feature: name NULL and rows 0 when there is no such feature. */
NEO_API neo_feature neo_schema_feature(const neo_schema *schema, int32_t feature);
/* neo_schema_is_fitted: 0 while dictionaries are still to be built. neo_schema_fit: build them
   from these files, one pass (it fixes the features' rows); nothing to do for a schema without
   dictionaries. A loaded checkpoint fits the schema too. skip_bad_lines as in neo_reader_desc.
   Errors   NEO_ERR_STATE: fitted already. Those of a reader. The schema is then as before. */
NEO_API int neo_schema_is_fitted(const neo_schema *schema);
NEO_API neo_status neo_schema_fit(neo_schema *schema, const char *const *paths, int path_count,
                                  int skip_bad_lines);
/* neo_schema_best: the AUC and log loss that a model knowing the planted truth reaches on samples
   [first, first + count) of the synthetic data (numbered as first_sample is): no model can be
   expected to do better. Other schemas: NEO_ERR_UNSUPPORTED. */
NEO_API neo_status neo_schema_best(const neo_schema *schema, int64_t first, int64_t count,
                                   double *auc, double *logloss);
/* neo_synthetic_write_tsv: synthetic samples [first, first + count) as a Criteo TSV file. A schema
   by neo_schema_criteo with NEO_IDS_HASH and the same rows reads back the same numbers and ids.
   Errors   NEO_ERR_UNSUPPORTED: other than 13 dense, 26 features of one id and at least 2 rows.
   NEO_ERR_IO. */
NEO_API neo_status neo_synthetic_write_tsv(neo_ctx *ctx, const neo_schema *schema,
                                           const char *path, int64_t first, int64_t count);

/* ------------------------------------------------------------------------------------------------
   >>reader

   Batches from files, parsed ahead by threads of the reader's own. The same batches in the same
   order for any number of threads; a position saved and sought resumes exactly.
   On W ranks there is one global order too: a batch is cut into the leaves of the context (see
   >>leaves), and each rank gets the samples of its leaves. So 1, 2, 3 or 8 ranks see the same
   samples in the same leaves, and a run saved on 4 ranks resumes on 3. Every rank parses the whole
   input, as lines that are skipped move all that follow: text costs each rank as much as it costs
   one rank alone. Of npy and generated data in file order a rank reads its own rows only.
   Text lines end in \n or \r\n; the last one may lack it. A line over 65,536 bytes, one with a NUL
   byte, a wrong number of fields, or a field that is not what it should be is a bad line.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_reader neo_reader;

typedef struct neo_batch { /* views; for how long: neo_reader_desc.hold */
    neo_tensor dense;      /* [B][dense_count] f32 */
    neo_tensor label;      /* [B] f32 */
    neo_jagged sparse;     /* feature_count x B, ids i64, no weights */
    int64_t first;         /* number of its first sample in the epoch as read, over all ranks */
    int64_t size;          /* B: samples of this rank; 0 where a batch has too few for all */
    int64_t global_size;   /* samples over all ranks: the batch of neo_leaves and of the loss */
} neo_batch;

/* Where the bytes of standard input come from, if not from this process: neo_comm_input of neo_comm.h
   gives every rank those of rank 0. read: the next bytes, 1 to `bytes` of them, to buffer. *got 0 and
   NEO_OK: nothing has come for a while (it returns within 0.1 s, so that closing the reader need not
   wait for it). NEO_END: the end. Other statuses, with neo_fail, end the stream.
   Threads: called from the reader's threads, one at a time, in the order of the bytes. */
typedef struct neo_input {
    neo_status (*read)(void *user, void *buffer, size_t bytes, size_t *got);
    void *user;
} neo_input;

typedef struct neo_reader_desc {
    const neo_schema *schema; /* required; outlives the reader */
    const char *const *paths; /* files in order; "-" is standard input; npy: prefixes "dir/day_0_";
                                 synthetic: none */
    int32_t path_count;
    int64_t batch;          /* samples per batch, over all ranks; required */
    int drop_last;          /* 1: leave out a last batch that is not full */
    int64_t shuffle_window; /* 0: file order; else samples are permuted inside windows of this many
                               (rounded up to whole batches), keyed by (seed of the context, epoch,
                               window). Two windows are held in memory, on every rank. */
    int skip_bad_lines;     /* 0: a bad line is an error; 1: it is skipped, counted and logged (the
                               first 10 of an epoch) */
    int32_t rank, world_size; /* rank r of W gets leaves [r V/W, (r+1) V/W) of every batch, V being
                                 repro_shards of the context; 0 of 0: all */
    int threads;            /* parsers; 0: 1 */
    int prefetch;           /* batches ready ahead; 0: 4 */
    int unlabeled;          /* 1: text lines, or a description, without the label column: label 0 */
    int32_t hold;           /* a batch is valid until so many more calls of neo_reader_next, or one of
                               any other call that moves or closes the reader; 0: 1. 2: batch i + 1 can
                               be fetched while batch i is computed on. Each costs one more buffer. */
    neo_input input;        /* where "-" comes from; read NULL: this process, and one rank */
} neo_reader_desc;

/* neo_reader_open: look at every file, take all memory. Reading starts with the first
   neo_reader_next.
   Errors   NEO_ERR_NOT_FOUND, NEO_ERR_IO: the path is named. NEO_ERR_STATE: the schema is not
   fitted. NEO_ERR_ARG: fewer leaves than ranks; standard input on several ranks without desc.input. */
NEO_API NEO__CHECK_UNUSED neo_status neo_reader_open(neo_ctx *ctx, const neo_reader_desc *desc,
                                                     neo_reader **reader);
/* neo_reader_close: at any time; joins the reader's threads. NULL is allowed. */
NEO_API void neo_reader_close(neo_reader *reader);
/* neo_reader_next: the next batch. NEO_END after the last one of an epoch; then neo_reader_epoch
   starts epoch `epoch` (0 is the first) from its beginning (standard input cannot be read twice:
   NEO_ERR_UNSUPPORTED). Allocates nothing, but for features of several ids, whose buffers grow to
   the largest batch.
   Ranks    All get the same number of batches, empty ones included, and NEO_END after the same one.
            A bad line is found by all at the same batch. What only one finds (its disk fails; a bad
            row of npy that it alone reads) the others learn by neo_comm_agree on the status.
   Errors   NEO_ERR_FORMAT, NEO_ERR_RANGE: the message has file:line:column and what was expected
   there;
            NEO_ERR_IO. A file without any sample is NEO_ERR_FORMAT. Whole windows of batches
            before the bad line still come; after an error every further call returns it again. */
NEO_API neo_status neo_reader_next(neo_reader *reader, neo_batch *batch);
NEO_API neo_status neo_reader_epoch(neo_reader *reader, int64_t epoch);

/* neo_reader_position: where the next batch starts. neo_reader_seek: continue from there, with the
   same files, batch, window and seed: the same batches follow, on any number of ranks. It is plain
   numbers, the same on all ranks: save it as i64. Seeking in standard input reads forward, and only
   before the first neo_reader_next.
   Errors   NEO_ERR_MISMATCH: made under another schema, batch, window or seed, or the file is not
            the same (as far as can be seen). */
enum { NEO_POSITION_WORDS = 8 };
typedef struct neo_position {
    int64_t word[NEO_POSITION_WORDS]; /* [0] epoch, [1] samples read in it over all ranks; others:
                                         the reader's */
} neo_position;
NEO_API neo_position neo_reader_position(const neo_reader *reader);
NEO_API neo_status neo_reader_seek(neo_reader *reader, const neo_position *position);

typedef struct neo_reader_stats {
    int64_t samples;        /* delivered to this rank in this epoch (since a seek: from there on);
                               over all ranks: word[1] of neo_reader_position */
    int64_t bad_lines;      /* skipped in this epoch so far (since a seek: from there on) */
    int64_t bytes;          /* of this epoch up to the delivered batch: for a progress bar */
    int64_t total_bytes;    /* of all files; 0 when unknown */
    int64_t total_samples;  /* of an epoch, over all ranks; 0 when unknown (text) */
    int64_t stall_ns;       /* time neo_reader_next waited for a batch, all epochs */
    int64_t stall_count;
    int64_t grow_count;     /* times a buffer grew: only features of several ids do that */
} neo_reader_stats;
NEO_API neo_reader_stats neo_reader_get_stats(const neo_reader *reader);

/* neo_npy_write, neo_npy_read: one array. read allocates (free with neo_tensor_free); f32, f16,
   i8, i32, i64, u8, C order, little-endian, versions 1 to 3; f64 is read as f32; a scalar as [1].
   Errors   NEO_ERR_FORMAT names file and byte offset. NEO_ERR_UNSUPPORTED: another dtype or order,
   more
            than NEO_MAX_DIMS dimensions. */
NEO_API neo_status neo_npy_write(neo_ctx *ctx, const char *path, neo_tensor t);
NEO_API NEO__CHECK_UNUSED neo_status neo_npy_read(neo_ctx *ctx, const char *path, neo_tensor *t);
/* neo_npy_export: what is left of a reader's epoch (on several ranks: of this rank's part) as the
   triple <prefix>dense.npy (f32), sparse.npy (i32) and labels.npy (i32 [N, 1]), as TorchRec's.
   Errors   NEO_ERR_UNSUPPORTED: a feature without exactly one id, a label that is not 0 or 1, an
   id over
            i32; those of the reader; NEO_ERR_IO. The files are then incomplete. */
NEO_API neo_status neo_npy_export(neo_ctx *ctx, neo_reader *reader, const char *prefix);

/* neo_zipf: id of a Zipf law with exponent s > 0 over [0, rows), from a uniform u in [0, 1); 0 is
   the most frequent (the inverse of the continuous law x^-s over [1, rows + 1), cut to integers).
   */
NEO_API int64_t neo_zipf(float u, int64_t rows, float s);

/* ------------------------------------------------------------------------------------------------
   >>state

   Everything that makes up a training run, as a list of named tensors (views): weights, optimizer
   state, step counters, reader position; and the run's numeric definition, as words. The digest,
   checkpoints and resume work on it.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_state neo_state;
typedef enum neo_state_kind {
    NEO_STATE_WEIGHT,    /* in the digest; saved in model-*.safetensors */
    NEO_STATE_OPTIMIZER, /* in the digest; saved in state-*.safetensors */
    NEO_STATE_PROGRESS   /* not in the digest: positions, counts of what was read; saved there too */
} neo_state_kind;

NEO_API NEO__CHECK_UNUSED neo_status neo_state_create(neo_ctx *ctx, neo_state **state);
NEO_API void neo_state_destroy(neo_state *state);
/* neo_state_add: t is contiguous; its memory must outlive the state. A reader's position is added
   as NEO_STATE_PROGRESS, i64[8].
   Errors   NEO_ERR_ARG: the name is taken, empty, reserved ("schema", or one that ends like that of
            a part in a file: "[0:8]", "[0:8,0:4]") or not UTF-8, or t is not contiguous. */
NEO_API neo_status neo_state_add(neo_state *state, neo_state_kind kind, const char *name,
                                 neo_tensor t);
/* Where a part of a tensor is, when ranks hold tensors in parts: rectangles of a tensor of two
   dimensions, or runs of one of one dimension. */
typedef struct neo_part {
    int64_t rows, cols;           /* of the whole tensor; cols 0: it has one dimension */
    int64_t first_row, first_col; /* where the part begins */
    int copy; /* 1: another part has these elements too (one float per row, of a table that is cut by
                 columns): they are loaded, but neither saved nor counted in the digest */
} neo_part;
/* neo_state_add_part: t is this rank's part of the tensor `name`. Parts of all ranks together cover
   the tensor, each element once; a part may be all of it (a table that one rank holds). What
   neo_state_add added is the other case: every rank has all of it, with equal bits.
   Shapes   t [n][m] in a tensor [rows][cols], or [n] in a tensor [rows]; rows may lie apart (a view
            of columns), the elements of a row may not. A part without elements is allowed.
   Errors   NEO_ERR_ARG: as neo_state_add; the part leaves the tensor, overlaps another part that
            was added (neither is a copy), or has another dtype, whole shape or kind than that.
   Each part is an entry of its own for neo_state_count, _name (which repeats) and _tensor. */
NEO_API neo_status neo_state_add_part(neo_state *state, neo_state_kind kind, const char *name,
                                      neo_tensor t, const neo_part *part);
/* neo_state_add_params, _optim, _bags: all tensors of the object, under the names it gives them:
   weights "bottom.0.weight", "bags.<table>.weight"; optimizer state and step counters beside them.
   All or, on an error, none. */
NEO_API neo_status neo_state_add_params(neo_state *state, const neo_params *params);
NEO_API neo_status neo_state_add_optim(neo_state *state, neo_optim *optim);
NEO_API neo_status neo_state_add_bags(neo_state *state, neo_bags *bags);
/* neo_state_add_schema: the dictionaries, so that a resumed or deployed model maps words to
   the same ids. One schema per state. It may still be unfitted: loading fits it. */
NEO_API neo_status neo_state_add_schema(neo_state *state, neo_schema *schema);
/* neo_state_define: a word of the numeric definition, for example ("optimizer", "adagrad"). Saved
   with a checkpoint; loading under another value is refused. Defining a key again replaces its
   value. "repro_shards" and "seed" of the context are defined from the start. */
NEO_API neo_status neo_state_define(neo_state *state, const char *key, const char *value);
NEO_API int neo_state_count(const neo_state *state);
NEO_API const char *neo_state_name(const neo_state *state, int index);
NEO_API neo_tensor neo_state_tensor(const neo_state *state, int index);

/* neo_state_digest: 64-bit hash over each weight's and optimizer tensor's name, dtype, shape and
   bytes in its logical layout. A sum of keyed hashes per element, so it depends on no order; NaNs
   count alike. Parts count at their place in the whole. The formula is at >>impl-state. Threads:
   uses the context's. */
NEO_API uint64_t neo_state_digest(const neo_state *state);

/* How ranks meet that save, load or digest together; neo_comm.h makes one of a communicator. Both
   calls are collective: every rank makes them, in the same order. NULL where a group is asked for,
   or size 1: this rank alone. */
typedef struct neo_group {
    int rank, size;
    /* NEO_OK if all ranks gave NEO_OK; else, on every rank, the status of the lowest rank that did
       not, and its neo_last_error as this rank's. */
    neo_status (*agree)(void *user, neo_status mine);
    /* words[i] = the sum over all ranks, modulo 2^64. */
    neo_status (*sum)(void *user, uint64_t *words, int count);
    void *user;
} neo_group;
/* neo_state_digest_group: the digest of the state that all ranks hold together: parts count at
   their place, what every rank has counts once. So it is that of the same state on one rank, under
   any plan. Collective. Takes 80 bytes for each part of all ranks.
   Errors   on all ranks the same, *digest untouched. NEO_ERR_MISMATCH names the tensor and the
            ranks: parts that do not cover it exactly once, or disagree on its dtype or shape; a
            tensor of neo_state_add whose bits are not those of rank 0, or that not all ranks have.
            NEO_ERR_MEMORY; what the group's calls return. */
NEO_API neo_status neo_state_digest_group(const neo_state *state, const neo_group *group,
                                          uint64_t *digest);

/* ------------------------------------------------------------------------------------------------
   >>checkpoint

   A directory with one subdirectory per checkpoint, step-<12 digits>, and in it
     model-00001-of-00001.safetensors   the weights
     state-00001-of-00001.safetensors   optimizer state, counters, positions, dictionaries
     model.safetensors.index.json       which file holds which weight, as Hugging Face writes it
     manifest.json                      step, numeric definition, sizes and CRC32C; written last
   A checkpoint without a manifest does not exist; so a kill at any moment leaves the previous one.
   step-<12 digits>.partial is being written or removed; one that a killed process left is removed
   by the next save. One process at a time may save into a directory; others may load from it
   (one that meets a checkpoint while it is removed gets an error and may try again).

   W ranks save one checkpoint together, and any number of ranks loads it, under any cut of the
   tensors, one rank with whole tensors among them:
       state = the parts of this rank (neo_state_add_part), and what every rank has (neo_state_add)
       save.group = &group; neo_save(ctx, &save, state);       every rank, the same step
       load.group = &group; neo_load(ctx, &load, state, NULL); every rank
   Rank k writes model-<k + 1>-of-<W>.safetensors and state-<k + 1>-of-<W>.safetensors with its
   parts; rank 0 also what every rank has, the dictionaries, the index and the manifest, which
   lists the files of all ranks. There a part is the tensor "bags.user.weight[0:100,0:16]" (rows,
   columns), and the file's __metadata__ says under that name where it belongs: "[0,0] of [500,16]
   bags.user.weight"; a part that is all of its tensor keeps the plain name. No rank needs memory
   for more than its own parts. The directory is on one file system that all ranks see.
   A group fails as one: when a rank cannot go on, every rank returns its status and message ("rank
   2: ..."), what was written is removed, and the checkpoint before stays.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_save_desc {
    const char *dir; /* required; made if missing */
    int64_t step;    /* required, >= 0 */
    int keep;        /* remove all but the newest n (this one included) after a good save; 0: 2;
                        below 0: keep all */
    const neo_group *group; /* the ranks that save together; NULL: this one alone */
} neo_save_desc;
/* neo_save: write a checkpoint; one of the same step is replaced atomically. When it returns, the
   checkpoint is flushed to disk. Tensors are written from their own memory: it allocates about 16
   KiB, 300 bytes and twice the name per tensor, the dictionaries, and in a group 80 bytes for each
   part of all ranks; not part of a step. A group is checked first as by neo_state_digest_group, but
   the bits of parts are not looked at. An old checkpoint that cannot be removed is only logged.
   Errors   NEO_ERR_IO (a full disk, no permission, ...): the message names the file; earlier
            checkpoints are untouched, and what was written is removed. Also: a rank does not see
            what another one wrote. NEO_ERR_NOT_FOUND: the folder that dir should be made in.
            NEO_ERR_MISMATCH: ranks differ in step, definition, or as neo_state_digest_group says.
            NEO_ERR_ARG, NEO_ERR_MEMORY; what the group's calls return. */
NEO_API neo_status neo_save(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state);

/* neo_find_checkpoint: the step of the newest whole checkpoint in a directory.
   Errors   NEO_ERR_NOT_FOUND: there is none, or no such directory; *step is untouched then. */
NEO_API neo_status neo_find_checkpoint(const char *dir, int64_t *step);

typedef struct neo_load_desc {
    const char *dir;    /* required */
    int64_t step;       /* 0 and below: the newest whole one (a checkpoint of step 0 is read only
                           when it is the newest) */
    int any_definition; /* 1: load although the numeric definition differs */
    int weights_only;   /* 1: only NEO_STATE_WEIGHT tensors and schema dictionaries (evaluation);
                           the definition may differ */
    int schema_only;    /* 1: only the dictionaries: they say how many rows the tables have, so a
                           trainer loads them first, makes its tables, and then loads the rest */
    const neo_group *group; /* the ranks that load together, as many as there are now; NULL: this
                               one alone */
} neo_load_desc;
/* A trainer that goes on where it was killed:
       make ctx, schema, parameters, optimizer, bags, reader
       state = all of them, and a tensor over neo_position's words as NEO_STATE_PROGRESS
       if (neo_find_checkpoint(dir, &step) == NEO_OK) {
           neo_load(ctx, &(neo_load_desc){.dir = dir, .step = step}, state, NULL);
           neo_reader_seek(reader, &position);
       }
       every N steps: position = neo_reader_position(reader); neo_save(ctx, &save, state);
   With dictionaries in the schema, load schema_only first: tables need their rows.
   examples/dlrm.c does this.

   neo_load: read a checkpoint into the tensors of state. Everything is checked (checksums, names,
   shapes, dtypes, definition; no tensor may be missing or too many) before the first byte of state
   changes, so that an error leaves it as it was; only a disk that fails between check and read
   leaves it half loaded (NEO_ERR_IO). loaded_step may be NULL.
   A group shares the check of the files' bytes; then every rank reads the rows and columns that its
   own parts need, no matter how they were cut when they were saved. Its ranks load the step that
   rank 0 finds. A part may be wanted by several ranks, or by none. Memory: headers, one file at a
   time, 8 bytes for each tensor of the files, and about 100 for each part that is read.
   Errors   NEO_ERR_NOT_FOUND: no whole checkpoint there. NEO_ERR_CORRUPT: which file, and how.
            NEO_ERR_MISMATCH: the definition or tensor that differs, with both values.
            NEO_ERR_FORMAT: a manifest or file of another program. NEO_ERR_IO (also: a rank does
            not see what rank 0 sees), NEO_ERR_MEMORY; what the group's calls return. */
NEO_API neo_status neo_load(neo_ctx *ctx, const neo_load_desc *desc, neo_state *state,
                            int64_t *loaded_step);

/* ------------------------------------------------------------------------------------------------
   >>safetensors

   The file format of weights (github.com/huggingface/safetensors): a JSON header and the tensors'
   bytes.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_safetensors neo_safetensors; /* an open file */
/* neo_safetensors_open: read and check the header (8-byte length, JSON, offsets that tile the data
   exactly). The file stays open until close. Tensors are numbered in the order of their data.
   Errors   NEO_ERR_FORMAT: file and byte offset, or tensor. NEO_ERR_NOT_FOUND, NEO_ERR_IO,
            NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_safetensors_open(neo_ctx *ctx, const char *path,
                                                          neo_safetensors **file);
NEO_API void neo_safetensors_close(neo_safetensors *file);
NEO_API int neo_safetensors_count(const neo_safetensors *file);
NEO_API const char *neo_safetensors_name(const neo_safetensors *file, int index);
NEO_API int neo_safetensors_find(const neo_safetensors *file, const char *name); /* -1: none */
/* neo_safetensors_metadata: the value of a key of __metadata__, or NULL. */
NEO_API const char *neo_safetensors_metadata(const neo_safetensors *file, const char *key);
/* neo_safetensors_info: dtype and shape (data NULL). NEO_ERR_UNSUPPORTED: a dtype neo has not
   (f64, bool...), or more than NEO_MAX_DIMS dimensions. */
NEO_API neo_status neo_safetensors_info(const neo_safetensors *file, int index, neo_tensor *t);
/* neo_safetensors_read: into t: contiguous, the same shape, the same dtype; among f16, bf16 and
   f32 it converts (to nearest). Errors: NEO_ERR_MISMATCH: shape or dtype, with both;
   NEO_ERR_IO. */
NEO_API neo_status neo_safetensors_read(neo_safetensors *file, int index, neo_tensor t);
/* neo_safetensors_write: names and tensors (contiguous) of one file; metadata: metadata_count
   pairs key, value, key, value ... Written to <path>.partial, flushed to disk and renamed: path is
   whole or as before.
   Errors   NEO_ERR_ARG: a name or key that is there twice or not UTF-8; NEO_ERR_IO,
            NEO_ERR_MEMORY. */
NEO_API neo_status neo_safetensors_write(neo_ctx *ctx, const char *path, const char *const *names,
                                         const neo_tensor *tensors, int count,
                                         const char *const *metadata, int metadata_count);
/* neo_load_safetensors: fill the weights of state from one file by tensor name. map: pairs {name
   in the file, name in state}, map_count pairs, tried in order after the same name; a '*' in both
   stands for the same text: {"bot_l.*.weight", "bottom.*.weight"}. Tensors of the file that no
   weight asks for are left alone. Every weight must be found unless partial != 0. loaded (may be
   NULL) counts them. f16, bf16 and f32 convert. Of a weight held in parts (neo_state_add_part) the
   file has the whole tensor, and only the parts are read.
   Errors   NEO_ERR_MISMATCH: shape or dtype; NEO_ERR_NOT_FOUND: names the weight. Nothing changes
            on error, unless the disk fails while reading (NEO_ERR_IO). */
typedef struct neo_name_map { const char *file_name, *state_name; } neo_name_map;
NEO_API neo_status neo_load_safetensors(neo_ctx *ctx, const char *path, const neo_name_map *map,
                                        int map_count, int partial, neo_state *state, int *loaded);

/* neo_crc32c: the checksum of data, continuing from crc (0 to start). Of "123456789" it is
   0xE3069283. */
NEO_API uint32_t neo_crc32c(uint32_t crc, const void *data, size_t bytes);

/* ------------------------------------------------------------------------------------------------
   >>metrics

   Of a binary classifier, over everything seen (lifetime) and over the last samples (window). Sums
   are exact and AUC counts pairs in integers with ties grouped, so the order of updates does not
   matter. On several ranks: one of them updates with the samples of all, in their order (see
   neo_comm_gather_samples in neo_comm.h); all values are then those of one rank.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_metrics neo_metrics;
typedef struct neo_metrics_desc {
    int64_t capacity; /* samples the lifetime AUC can hold (8 bytes each), to 2^32; required */
    int64_t window;   /* samples of the window (13 bytes each at most); 0: no window */
} neo_metrics_desc;
typedef struct neo_metric_values {
    int64_t count;
    double auc;         /* NaN: all labels are alike, or more than capacity was seen */
    double logloss;     /* mean, natural logarithm */
    double ne;          /* normalized entropy: logloss / entropy of the base rate */
    double calibration; /* sum of predictions / sum of labels; NaN without positive labels */
    double accuracy;    /* a prediction >= 0.5 (a logit >= 0) counts as positive */
    double base_rate;   /* share of positive labels */
    int64_t auc_count;  /* samples in the AUC */
} neo_metric_values; /* all NaN while count is 0 */
NEO_API NEO__CHECK_UNUSED neo_status neo_metrics_create(neo_ctx *ctx, const neo_metrics_desc *desc,
                                                        neo_metrics **metrics);
NEO_API void neo_metrics_destroy(neo_metrics *metrics);
NEO_API void neo_metrics_reset(neo_metrics *metrics);
/* neo_metrics_update: logits (before the sigmoid) and labels (0 or 1) of a batch, [B] or [B][1]
   f32. Allocates nothing. Errors: NEO_ERR_SHAPE; NEO_ERR_NUMERIC: a logit that is not finite;
   NEO_ERR_RANGE: a label that is not 0 or 1 (both name the sample; nothing of the batch is
   counted).
   neo_metrics_lifetime, _window: values of all samples since create or reset; of the last `window`
   of them. They sort (about 10 ns per sample). Errors: NEO_ERR_STATE: created without a window. */
NEO_API neo_status neo_metrics_update(neo_metrics *metrics, neo_tensor logit, neo_tensor label);
NEO_API neo_status neo_metrics_lifetime(neo_metrics *metrics, neo_metric_values *values);
NEO_API neo_status neo_metrics_window(neo_metrics *metrics, neo_metric_values *values);
/* neo_auc: of count scores and labels (>= 0.5 is positive), ties grouped. scratch:
   neo_auc_scratch_bytes(count) bytes, 4-byte aligned. NaN when a score is NaN, all labels are
   alike or count is not in 1 .. 2^32. */
NEO_API size_t neo_auc_scratch_bytes(int64_t count);
NEO_API double neo_auc(const float *score, const float *label, int64_t count, void *scratch);

/* ------------------------------------------------------------------------------------------------
   >>progress

   One line that rewrites itself on a terminal, plain lines now and then elsewhere. neo prints
   nothing by itself: the text goes to your write function.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_progress {
    void (*write)(const char *text, void *user); /* required */
    void *user;
    int terminal;           /* 1: redraw one line with \r; 0: plain lines */
    const char *label;      /* "train" */
    int64_t total;          /* samples; 0: unknown */
    int64_t first;          /* samples done before begin, as in a resumed run: not in the rate */
    int64_t interval_ms;    /* between lines; 0: 100 on a terminal, 5,000 elsewhere */
    int columns;            /* of the terminal; 0: 80 */
    int ascii;              /* 1: a bar of # and . instead of UTF-8 line characters */
    int hide_loss;          /* 1: there is no loss to show */
    int64_t started_ns, last_ns, done; /* neo's */
    int shown;                         /* neo's */
} neo_progress;
NEO_API void neo_progress_begin(neo_progress *progress);
/* neo_progress_update: done samples so far; shows bar, percent, samples/s, loss, ETA when it is
   time to.
   neo_progress_end: the last line, with the time taken; ends the terminal's line. */
NEO_API void neo_progress_update(neo_progress *progress, int64_t done, double loss);
NEO_API void neo_progress_end(neo_progress *progress, double loss);

/* ------------------------------------------------------------------------------------------------
   >>jsonl

   A log of JSON lines: {"step":100,"loss":0.31,...}. Each line goes to the system in one write
   when it ends, so a killed process leaves whole lines.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_jsonl neo_jsonl;
/* neo_jsonl_open: append != 0 keeps what the file has. Errors: NEO_ERR_NOT_FOUND, NEO_ERR_IO,
   NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_jsonl_open(neo_ctx *ctx, const char *path, int append,
                                                    neo_jsonl **log);
NEO_API void neo_jsonl_close(neo_jsonl *log);
/* Build a line from fields, then end it. Numbers are written so that they read back exactly; a NaN
   or infinity is null, as is a NULL string. Errors are kept and returned by neo_jsonl_end
   (NEO_ERR_CAPACITY: the line is over 4,096 bytes and is not written; NEO_ERR_IO: a full disk, for
   example; the next line may succeed). Allocates nothing. */
NEO_API void neo_jsonl_int(neo_jsonl *log, const char *key, int64_t value);
NEO_API void neo_jsonl_number(neo_jsonl *log, const char *key, double value);
NEO_API void neo_jsonl_string(neo_jsonl *log, const char *key, const char *value);
NEO_API neo_status neo_jsonl_end(neo_jsonl *log);

/* ------------------------------------------------------------------------------------------------
   >>report

   One self-contained HTML page with SVG curves and tables; no script, no network.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_report neo_report;
NEO_API NEO__CHECK_UNUSED neo_status neo_report_create(neo_ctx *ctx, const char *title,
                                                       neo_report **report);
NEO_API void neo_report_destroy(neo_report *report);
/* Text is UTF-8 and is escaped. Errors of all calls that add: NEO_ERR_MEMORY (the report stays as
   it was).
   neo_report_fact: a headline figure, for example ("test AUC", "0.9141"); a name given again takes
   the new value. neo_report_note: a paragraph under the title. */
NEO_API neo_status neo_report_fact(neo_report *report, const char *name, const char *value);
NEO_API neo_status neo_report_note(neo_report *report, const char *text);
/* neo_report_point: append (x, y) to a curve of a chart; both are made when first named, and only
   then is memory asked for. Curves are thinned (to every second point) beyond 2,048 points, the
   newest is always shown. A point that is not finite leaves a gap. */
NEO_API neo_status neo_report_point(neo_report *report, const char *chart, const char *curve,
                                    double x, double y);
/* neo_report_axis: titles of a chart's axes; NULL for none. */
NEO_API neo_status neo_report_axis(neo_report *report, const char *chart, const char *x_title,
                                   const char *y_title);
/* neo_report_row: append a row of cells to a table; the first row is its header. Columns of
   numbers are set flush right. */
NEO_API neo_status neo_report_row(neo_report *report, const char *table, const char *const *cells,
                                  int count);
/* neo_report_write: the page as it is now; may be called again and again. A report that was there
   before is replaced only when the new one is complete. Errors: NEO_ERR_NOT_FOUND, NEO_ERR_IO. */
NEO_API neo_status neo_report_write(const neo_report *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif /* NEO_H */

/* ================================================================================================
   Stop here if you only want the API: what follows is the implementation.
   ================================================================================================ */

/* ------------------------------------------------------------------------------------------------
   >>shared

   What the implementations of neo's headers have in common, each of which may be in a file of its own.
   ------------------------------------------------------------------------------------------------ */
#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_COMM_IMPLEMENTATION) ||               \
     defined(NEO_FSDP_IMPLEMENTATION)) &&                                                                    \
    !defined(NEO__SHARED)
#define NEO__SHARED

#include <string.h>
#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

#define NEO__MIN(a, b) ((a) < (b) ? (a) : (b))
#define NEO__MAX(a, b) ((a) > (b) ? (a) : (b))

#if defined(__GNUC__) || defined(__clang__)
#define NEO__INLINE static inline __attribute__((always_inline, unused))
#define NEO__UNUSED __attribute__((unused))
#define NEO__NOINLINE __attribute__((noinline))
#define NEO__RESTRICT __restrict__
#else
#define NEO__INLINE static inline
#define NEO__UNUSED
#define NEO__NOINLINE
#define NEO__RESTRICT
#endif

/* Code that runs once per file, model or call is compiled without optimization: optimizing it
   takes half of the compile time and gains nothing. Loops over samples, ids and elements stay
   outside; so do calls of open, read and poll, whose checks in glibc (_FORTIFY_SOURCE) need the
   optimizer. NEO_NO_COLD compiles everything at the level of the command line. */
#if defined(__OPTIMIZE__) && !defined(NEO_NO_COLD) && (defined(__GNUC__) || defined(__clang__))
#define NEO__COLD 1
#endif
#if defined(NEO__COLD) && defined(__clang__)
#define NEO__COLD_BEGIN _Pragma("clang optimize off")
#define NEO__COLD_END _Pragma("clang optimize on")
#elif defined(NEO__COLD)
#define NEO__COLD_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"O0\")")
#define NEO__COLD_END _Pragma("GCC pop_options")
#else
#define NEO__COLD_BEGIN
#define NEO__COLD_END
#endif

/* One rounding mode for all of neo: to nearest even, denormals kept. Entry points and workers set it and put
   the caller's back. */
#if defined(__x86_64__) || defined(_M_X64)
typedef unsigned int neo__fp_state;
NEO__INLINE neo__fp_state neo__fp_enter(void) {
    neo__fp_state old = _mm_getcsr();
    _mm_setcsr(0x1F80u);
    return old;
}
NEO__INLINE void neo__fp_leave(neo__fp_state old) { _mm_setcsr(old); }
#elif defined(__aarch64__)
typedef uint64_t neo__fp_state;
NEO__INLINE neo__fp_state neo__fp_enter(void) {
    uint64_t old, standard = 0;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(old));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(standard));
    return old;
}
NEO__INLINE void neo__fp_leave(neo__fp_state old) { __asm__ __volatile__("msr fpcr, %0" : : "r"(old)); }
#else
typedef int neo__fp_state;
NEO__INLINE neo__fp_state neo__fp_enter(void) { return 0; }
NEO__INLINE void neo__fp_leave(neo__fp_state old) { (void)old; }
#endif

NEO__INLINE uint32_t neo__bits_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
NEO__INLINE float neo__f32_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* A tensor that is not none; it may be absent. */
NEO__INLINE int neo__given(neo_tensor t) { return t.data || t.absent; }
/* The failure of a call that needs the data of a tensor without any: `status`, or NEO_ERR_STATE
   with its reason. */
NEO__UNUSED static neo_status neo__no_data(const char *function, const char *name, neo_tensor t,
                                           neo_status status) {
    if (!t.absent) return neo_fail(status, "%s: %s has no data", function, name);
    return neo_fail(NEO_ERR_STATE, "%s: %s has no data, %s", function, name, t.absent);
}

/* The highest bit in which the numbers of two leaves differ: the level of the tree at which they join. */
NEO__INLINE int neo__tree_level(int64_t a, int64_t b) {
    return 63 - __builtin_clzll((uint64_t)(a ^ b));
}
/* First row of bucket b when rows are cut in R: b rows / R, without overflow. */
NEO__INLINE int64_t neo__bucket_begin(int64_t rows, int64_t buckets, int64_t b) {
    return b * (rows / buckets) + b * (rows % buckets) / buckets;
}
/* The bucket of a row. */
NEO__INLINE int64_t neo__bucket_of(int64_t rows, int64_t buckets, int64_t row) {
    return ((row + 1) * buckets - 1) / rows;
}
#endif /* NEO__SHARED */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__IMPLEMENTED)
#define NEO__IMPLEMENTED

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#include <direct.h>
#include <io.h>
#include <malloc.h>
#else
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#endif

#if !defined(NEO_NO_SIMD) && (defined(__x86_64__) || defined(_M_X64)) && !defined(__CUDACC__)
#define NEO__X86 1
#include <immintrin.h>
#elif !defined(NEO_NO_SIMD) && defined(__aarch64__)
#define NEO__ARM 1
#include <arm_neon.h>
#endif

/* Products and sums fuse only where the code says fma (NUMERICS: one rounding per written operation). */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#if defined(__OPTIMIZE__) && !defined(NEO_NO_COLD)
/* Passes that take a seventh of the compile time and make nothing here faster. */
#pragma GCC optimize("no-tree-vrp", "no-tree-pre", "no-code-hoisting", "no-gcse")
#pragma GCC optimize("no-schedule-insns2")
#pragma GCC optimize("no-ipa-cp", "no-ipa-sra", "no-ipa-icf", "no-reorder-blocks-and-partition")
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif


#ifdef __cplusplus
#define NEO__THREAD_LOCAL thread_local
#else
#define NEO__THREAD_LOCAL _Thread_local
#endif

/* ------------------------------------------------------------------------------------------------
   >>platform

   Everything that differs between POSIX and Windows: threads, clock, aligned memory, files.
   ------------------------------------------------------------------------------------------------ */
#if defined(_WIN32)
typedef SRWLOCK neo__mutex;
typedef CONDITION_VARIABLE neo__cond;
typedef HANDLE neo__thread;
static void neo__mutex_init(neo__mutex *m) { InitializeSRWLock(m); }
static void neo__mutex_destroy(neo__mutex *m) { (void)m; }
static void neo__mutex_lock(neo__mutex *m) { AcquireSRWLockExclusive(m); }
static void neo__mutex_unlock(neo__mutex *m) { ReleaseSRWLockExclusive(m); }
static void neo__cond_init(neo__cond *c) { InitializeConditionVariable(c); }
static void neo__cond_destroy(neo__cond *c) { (void)c; }
static void neo__cond_wait(neo__cond *c, neo__mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void neo__cond_signal(neo__cond *c) { WakeConditionVariable(c); }
static void neo__cond_broadcast(neo__cond *c) { WakeAllConditionVariable(c); }
#else
typedef pthread_mutex_t neo__mutex;
typedef pthread_cond_t neo__cond;
typedef pthread_t neo__thread;
static void neo__mutex_init(neo__mutex *m) { pthread_mutex_init(m, NULL); }
static void neo__mutex_destroy(neo__mutex *m) { pthread_mutex_destroy(m); }
static void neo__mutex_lock(neo__mutex *m) { pthread_mutex_lock(m); }
static void neo__mutex_unlock(neo__mutex *m) { pthread_mutex_unlock(m); }
static void neo__cond_init(neo__cond *c) { pthread_cond_init(c, NULL); }
static void neo__cond_destroy(neo__cond *c) { pthread_cond_destroy(c); }
static void neo__cond_wait(neo__cond *c, neo__mutex *m) { pthread_cond_wait(c, m); }
static void neo__cond_signal(neo__cond *c) { pthread_cond_signal(c); }
static void neo__cond_broadcast(neo__cond *c) { pthread_cond_broadcast(c); }
#endif

/* A thread's entry; kept by the starter until the thread is joined. */
typedef struct neo__thread_start {
    void (*fn)(void *arg);
    void *arg;
} neo__thread_start;

#if defined(_WIN32)
static DWORD WINAPI neo__thread_main(LPVOID p) {
    neo__thread_start *s = (neo__thread_start *)p;
    s->fn(s->arg);
    return 0;
}
static int neo__thread_create(neo__thread *t, neo__thread_start *start) {
    *t = CreateThread(NULL, 0, neo__thread_main, start, 0, NULL);
    return *t != NULL;
}
static void neo__thread_join(neo__thread t) {
    WaitForSingleObject(t, INFINITE);
    CloseHandle(t);
}
static int neo__core_count(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}
static void *neo__aligned_alloc(size_t size, size_t align) { return _aligned_malloc(size, align); }
static void neo__aligned_free(void *p) { _aligned_free(p); }
NEO_API int64_t neo_time_ns(void) {
    LARGE_INTEGER t, f;
    QueryPerformanceCounter(&t);
    QueryPerformanceFrequency(&f);
    return (int64_t)(t.QuadPart / f.QuadPart * 1000000000 + t.QuadPart % f.QuadPart * 1000000000 / f.QuadPart);
}
#else
static void *neo__thread_main(void *p) {
    neo__thread_start *s = (neo__thread_start *)p;
    s->fn(s->arg);
    return NULL;
}
/* Signals are for the program's own threads: those of neo block all of them. */
static int neo__thread_create(neo__thread *t, neo__thread_start *start) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(t, NULL, neo__thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}
static void neo__thread_join(neo__thread t) { pthread_join(t, NULL); }

/* Cores this process may run on: the affinity mask where the system tells (Linux), else all. */
static int neo__core_count(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int allowed = 0;
    char line[1024];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "Cpus_allowed:", 13) != 0) continue;
        for (const char *p = line + 13; *p; p++) {
            int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : 0;
            for (; digit; digit &= digit - 1) allowed++;
        }
        break;
    }
    if (f) fclose(f);
    if (cores < 1) cores = 1;
    return allowed > 0 && allowed < cores ? allowed : (int)cores;
}
/* Large blocks ask for huge pages where the system gives them on request: random rows of a large table then
   cost fewer page walks (lookups of uniform ids run about 1.3 times as fast). */
#if defined(__linux__)
#if !defined(__cplusplus) && !defined(MADV_HUGEPAGE)
extern int madvise(void *begin, size_t size, int advice); /* hidden under _POSIX_C_SOURCE */
#endif
static void neo__advise_huge(void *p, size_t size) {
    const uintptr_t huge = (uintptr_t)2 << 20, begin = ((uintptr_t)p + huge - 1) & ~(huge - 1);
    const uintptr_t end = ((uintptr_t)p + size) & ~(huge - 1);
    if (begin < end) (void)madvise((void *)begin, end - begin, 14 /* MADV_HUGEPAGE */);
}
#else
static void neo__advise_huge(void *p, size_t size) {
    (void)p;
    (void)size;
}
#endif
static void *neo__aligned_alloc(size_t size, size_t align) {
    void *p = NULL;
    if (posix_memalign(&p, align, size) != 0) return NULL;
    if (size >= (size_t)8 << 20) {
        int error = errno; /* advice that is refused is not an error */
        neo__advise_huge(p, size);
        errno = error;
    }
    return p;
}
static void neo__aligned_free(void *p) { free(p); }
NEO_API int64_t neo_time_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#endif

static void neo__cpu_pause(void) {
#if defined(NEO__X86)
    _mm_pause();
#elif defined(NEO__ARM)
    __asm__ __volatile__("yield");
#endif
}

/* ------------------------------------------------------------------------------------------------
   >>impl-status
   ------------------------------------------------------------------------------------------------ */
enum { NEO__ERROR_BYTES = 512 };
static NEO__THREAD_LOCAL char neo__error_text[NEO__ERROR_BYTES];

NEO_API neo_status neo_fail(neo_status status, const char *format, ...) {
    char text[NEO__ERROR_BYTES]; /* arguments may point into the old text */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(neo__error_text, text, sizeof text);
    return status;
}

static neo_status neo__check_ctx(const char *function, const neo_ctx *ctx) {
    NEO__CHECK(ctx, NEO_ERR_ARG, "%s: ctx is NULL", function);
    return NEO_OK;
}

NEO_API const char *neo_last_error(void) { return neo__error_text; }
NEO_API const char *neo_version(void) { return "0.1.0"; }
NEO_API const char *neo_status_string(neo_status status) {
    static const char *const text[] = {
#define NEO__STATUS_TEXT(name, string) string,
        NEO_STATUS_LIST(NEO__STATUS_TEXT)
#undef NEO__STATUS_TEXT
    };
    return (unsigned)status < (unsigned)NEO_STATUS_COUNT ? text[status] : "unknown status";
}

/* Size arithmetic that saturates: a product or sum that overflows gives SIZE_MAX, which no allocator grants. */
NEO__INLINE size_t neo__size_mul(size_t a, size_t b) {
    return a != 0 && b > SIZE_MAX / a ? SIZE_MAX : a * b;
}
NEO__INLINE size_t neo__size_add(size_t a, size_t b) { return b > SIZE_MAX - a ? SIZE_MAX : a + b; }

/* ------------------------------------------------------------------------------------------------
   >>impl-fp
   ------------------------------------------------------------------------------------------------ */
NEO__INLINE uint64_t neo__bits_f64(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
NEO__INLINE double neo__f64_bits(uint64_t u) {
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* neo__fma: a b + c rounded once, without trusting libm (some round twice). */
#if defined(__FMA__) || defined(__aarch64__)
NEO__INLINE float neo__fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
/* The product of two floats is exact in double; the sum is rounded to odd there, which makes the last
   rounding to float correct. Not inline: it is used everywhere in the scalar kernels. */
static NEO__UNUSED NEO__NOINLINE float neo__fma(float a, float b, float c) {
    double product = (double)a * (double)b, addend = (double)c;
    double sum = product + addend;
    double back = sum - product;
    double error = (product - (sum - back)) + (addend - back);
    uint64_t bits = neo__bits_f64(sum);
    int finite = (bits >> 52 & 0x7FF) != 0x7FF;
    if (finite && error != 0.0 && !(bits & 1)) bits += (error > 0.0) == (sum > 0.0) ? 1u : (uint64_t)-1;
    return (float)neo__f64_bits(bits);
}
#endif

/* Compiler flags that change arithmetic without defining a macro show in these results. */
static const char *neo__fp_self_check(void) {
    volatile float va = 1.0f + 0x1p-12f, vc = -1.0f - 0x1p-11f, tiny = 0x1p-140f, one = 1.0f;
    volatile float small = 0x1p-30f, zero = 0.0f;
    float a = va, c = vc, x = one, y = small, z = zero;
    volatile double tenth = 0.1;
    if (tenth == (double)0.1f) return "double constants are cut to float (-fsingle-precision-constant)";
    if (a * a + c != 0.0f) return "products and sums are contracted to fma (-ffp-contract=fast)";
    if (tiny * one != tiny) return "denormals are flushed to zero (-ffast-math when linking)";
    if ((x + y) - x != 0.0f) return "sums are reassociated (-fassociative-math)";
    z = z / z;
    if (!(z != z)) return "NaNs are assumed away (-ffinite-math-only)";
    if (neo__bits_f32(-zero) != 0x80000000u || neo__bits_f32(0.0f - zero) != 0)
        return "signed zeros are ignored (-fno-signed-zeros)";
    for (int i = 1; i < 64; i++) {
        volatile float n = (float)i, d = 49.0f;
        float by_constant = n / 49.0f, by_variable = n / d;
        if (by_constant != by_variable) return "divisions are replaced (-freciprocal-math)";
    }
    if (neo__bits_f32(neo__fma(a, a, c)) != neo__bits_f32(0x1p-24f)) return "fma is rounded twice";
    return NULL;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-ctx
   ------------------------------------------------------------------------------------------------ */
enum {
    NEO__ALIGN = 64,
    NEO__MAX_THREADS = 256,
    NEO__WORKER_SCRATCH_BYTES = 2 << 20, /* per worker: packed tiles, leaf partial sums */
    NEO__SHARED_SCRATCH_BYTES = 16 << 20 /* of the caller: packed operands shared by all workers */
};

/* Threads that park while idle. A job is open from the moment it is published until its tasks are handed out;
   workers join while it is open, so one that wakes late is not waited for. */
typedef struct neo__pool {
    neo__mutex lock;
    neo__cond wake, done;
    neo_task_fn task;
    void *arg;
    int64_t count;
    int64_t next;        /* atomic */
    int64_t generation;  /* atomic: of the last published job */
    int open, quit;      /* under lock */
    int active;          /* atomic: workers inside the job; changed under lock */
    int worker_count;    /* threads besides the caller */
    struct neo__worker *workers;
} neo__pool;
typedef struct neo__worker {
    neo__pool *pool;
    neo__thread thread;
    neo__thread_start start;
    int index; /* 1 ..: the caller is worker 0 */
} neo__worker;

typedef struct neo__gemm_kernels neo__gemm_kernels;
typedef struct neo__vec_kernels neo__vec_kernels;
typedef struct neo__bag_kernels neo__bag_kernels;
typedef struct neo__tensor_kernels neo__tensor_kernels;

struct neo_ctx {
    neo_allocator allocator;
    neo_logger logger;
    neo_executor executor;
    int threads;
    neo_isa isa;
    int repro_shards;
    uint64_t seed;
    const neo__gemm_kernels *gemm; /* of the instruction set */
    const neo__vec_kernels *vec;
    const neo__bag_kernels *bag;
    const neo__tensor_kernels *tensor;
    neo__pool pool;
    char *scratch; /* threads x NEO__WORKER_SCRATCH_BYTES, then NEO__SHARED_SCRATCH_BYTES */
    size_t scratch_bytes;
    size_t bytes, peak_bytes; /* atomic */
    int64_t alloc_count;      /* atomic */
};

NEO__INLINE char *neo__worker_scratch(neo_ctx *ctx, int worker) {
    return ctx->scratch + (size_t)worker * NEO__WORKER_SCRATCH_BYTES;
}
NEO__INLINE char *neo__shared_scratch(neo_ctx *ctx) {
    return ctx->scratch + (size_t)ctx->threads * NEO__WORKER_SCRATCH_BYTES;
}

NEO__COLD_BEGIN
static void *neo__default_alloc(size_t size, size_t align, void *user) {
    (void)user;
    return neo__aligned_alloc(size, align);
}
static void neo__default_free(void *ptr, size_t size, void *user) {
    (void)size;
    (void)user;
    neo__aligned_free(ptr);
}

NEO_API void *neo_alloc(neo_ctx *ctx, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    if (bytes == 0) bytes = 1;
    void *p = ctx->allocator.alloc(bytes, NEO__ALIGN, ctx->allocator.user);
    if (!p) return NULL;
    __atomic_fetch_add(&ctx->alloc_count, 1, __ATOMIC_RELAXED);
    size_t now = __atomic_add_fetch(&ctx->bytes, bytes, __ATOMIC_RELAXED);
    size_t peak = __atomic_load_n(&ctx->peak_bytes, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&ctx->peak_bytes, &peak, now, 1, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
    }
    return p;
}
static void *neo__alloc_zero(neo_ctx *ctx, size_t bytes) {
    void *p = neo_alloc(ctx, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}
NEO_API void neo_free(neo_ctx *ctx, void *ptr, size_t bytes) {
    if (!ptr) return;
    if (bytes == 0) bytes = 1;
    __atomic_fetch_sub(&ctx->bytes, bytes, __ATOMIC_RELAXED);
    ctx->allocator.free(ptr, bytes, ctx->allocator.user);
}
/* A copy of a string in the context's memory; free with neo__string_free. */
static char *neo__string_copy(neo_ctx *ctx, const char *s) {
    size_t bytes = strlen(s) + 1;
    char *p = (char *)neo_alloc(ctx, bytes);
    if (p) memcpy(p, s, bytes);
    return p;
}
static void neo__string_free(neo_ctx *ctx, char *s) {
    if (s) neo_free(ctx, s, strlen(s) + 1);
}

NEO_API void neo_log(neo_ctx *ctx, neo_log_level level, const char *format, ...) {
    if (!ctx->logger.log) return;
    char text[NEO__ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ctx->logger.log(level, text, ctx->logger.user);
}
NEO__COLD_END

/* ---- the pool ---- */
enum { NEO__SPINS = 4000 }; /* polls before parking: about 50 us, more than the gap between two kernels */

static void neo__pool_take(neo__pool *pool, int worker) {
    neo__fp_state fp = neo__fp_enter();
    for (;;) {
        int64_t i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->count) break;
        pool->task(pool->arg, i, worker);
    }
    neo__fp_leave(fp);
}

static void neo__worker_main(void *arg) {
    neo__worker *self = (neo__worker *)arg;
    neo__pool *pool = self->pool;
    int64_t seen = 0;
    for (;;) {
        for (int i = 0; i < NEO__SPINS; i++) {
            if (__atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE) != seen) break;
            neo__cpu_pause();
        }
        neo__mutex_lock(&pool->lock);
        while (pool->generation == seen && !pool->quit) neo__cond_wait(&pool->wake, &pool->lock);
        if (pool->quit) {
            neo__mutex_unlock(&pool->lock);
            return;
        }
        seen = pool->generation;
        int join = pool->open;
        if (join) __atomic_fetch_add(&pool->active, 1, __ATOMIC_RELAXED);
        neo__mutex_unlock(&pool->lock);
        if (!join) continue;
        neo__pool_take(pool, self->index);
        neo__mutex_lock(&pool->lock);
        if (__atomic_sub_fetch(&pool->active, 1, __ATOMIC_RELEASE) == 0) neo__cond_signal(&pool->done);
        neo__mutex_unlock(&pool->lock);
    }
}

static void neo__pool_run(neo__pool *pool, int64_t count, neo_task_fn task, void *arg) {
    neo__mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->count = count;
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    pool->open = 1;
    __atomic_fetch_add(&pool->generation, 1, __ATOMIC_RELEASE);
    neo__cond_broadcast(&pool->wake);
    neo__mutex_unlock(&pool->lock);

    neo__pool_take(pool, 0);

    for (int i = 0; i < NEO__SPINS && __atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0; i++)
        neo__cpu_pause();
    neo__mutex_lock(&pool->lock);
    pool->open = 0;
    while (__atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0) neo__cond_wait(&pool->done, &pool->lock);
    neo__mutex_unlock(&pool->lock);
}

NEO__COLD_BEGIN
static void neo__pool_stop(neo__pool *pool, int started) {
    neo__mutex_lock(&pool->lock);
    pool->quit = 1;
    neo__cond_broadcast(&pool->wake);
    neo__mutex_unlock(&pool->lock);
    for (int i = 0; i < started; i++) neo__thread_join(pool->workers[i].thread);
    neo__mutex_destroy(&pool->lock);
    neo__cond_destroy(&pool->wake);
    neo__cond_destroy(&pool->done);
}

static neo_status neo__pool_start(neo__pool *pool, neo__worker *workers, int worker_count) {
    neo__mutex_init(&pool->lock);
    neo__cond_init(&pool->wake);
    neo__cond_init(&pool->done);
    pool->workers = workers;
    pool->worker_count = worker_count;
    for (int i = 0; i < worker_count; i++) {
        workers[i].pool = pool;
        workers[i].index = i + 1;
        workers[i].start.fn = neo__worker_main;
        workers[i].start.arg = &workers[i];
        if (!neo__thread_create(&workers[i].thread, &workers[i].start)) {
            neo__pool_stop(pool, i);
            return neo_fail(NEO_ERR_SYSTEM, "neo_ctx_create: cannot start thread %d of %d", i + 2,
                             worker_count + 1);
        }
    }
    return NEO_OK;
}
NEO__COLD_END

/* A user's executor runs on threads whose rounding mode neo does not know. */
typedef struct neo__guarded_task {
    neo_task_fn task;
    void *arg;
} neo__guarded_task;
static void neo__run_guarded(void *arg, int64_t i, int worker) {
    neo__guarded_task *g = (neo__guarded_task *)arg;
    neo__fp_state fp = neo__fp_enter();
    g->task(g->arg, i, worker);
    neo__fp_leave(fp);
}

NEO_API void neo_parallel_for(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg) {
    if (count <= 0) return;
    if (count == 1 || ctx->threads == 1) {
        neo__fp_state fp = neo__fp_enter();
        for (int64_t i = 0; i < count; i++) task(arg, i, 0);
        neo__fp_leave(fp);
    } else if (ctx->executor.run) {
        neo__guarded_task g = {task, arg};
        ctx->executor.run(count, neo__run_guarded, &g, ctx->executor.user);
    } else {
        neo__pool_run(&ctx->pool, count, task, arg);
    }
}

/* Tasks of equal pieces of [0, count): about four per worker, each at least `grain` long. */
NEO__INLINE int64_t neo__task_count(const neo_ctx *ctx, int64_t count, int64_t grain) {
    int64_t most = ctx->threads == 1 ? 1 : 4 * (int64_t)ctx->threads;
    int64_t tasks = grain > 0 ? count / grain : count;
    return tasks < 1 ? 1 : tasks > most ? most : tasks;
}
/* The piece [begin, end) of task i, cut at multiples of `unit`. */
NEO__INLINE void neo__task_range(int64_t count, int64_t tasks, int64_t i, int64_t unit, int64_t *begin,
                                 int64_t *end) {
    int64_t units = (count + unit - 1) / unit;
    *begin = NEO__MIN(units * i / tasks * unit, count);
    *end = NEO__MIN(units * (i + 1) / tasks * unit, count);
}

/* ---- instruction sets ---- */
NEO__COLD_BEGIN
NEO_API const char *neo_isa_name(neo_isa isa) {
    switch (isa) {
    case NEO_ISA_BEST: return "best";
    case NEO_ISA_SCALAR: return "scalar";
    case NEO_ISA_AVX2: return "avx2";
    case NEO_ISA_AVX512: return "avx512";
    case NEO_ISA_NEON: return "neon";
    }
    return "unknown";
}
NEO_API neo_status neo_isa_parse(const char *name, neo_isa *isa) {
    NEO__CHECK(isa, NEO_ERR_ARG, "neo_isa_parse: isa is NULL");
    for (int i = NEO_ISA_BEST; i <= NEO_ISA_NEON; i++) {
        if (name && strcmp(name, neo_isa_name((neo_isa)i)) == 0) {
            *isa = (neo_isa)i;
            return NEO_OK;
        }
    }
    return neo_fail(NEO_ERR_ARG, "neo_isa_parse: '%s' is none of best, scalar, avx2, avx512, neon",
                     name ? name : "(null)");
}
NEO_API int neo_isa_available(neo_isa isa) {
    switch (isa) {
    case NEO_ISA_BEST:
    case NEO_ISA_SCALAR: return 1;
#if defined(NEO__X86)
    case NEO_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* all have F16C */
    case NEO_ISA_AVX512:
        return neo_isa_available(NEO_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    case NEO_ISA_NEON: return 0;
#elif defined(NEO__ARM)
    case NEO_ISA_NEON: return 1;
    case NEO_ISA_AVX2:
    case NEO_ISA_AVX512: return 0;
#else
    case NEO_ISA_AVX2:
    case NEO_ISA_AVX512:
    case NEO_ISA_NEON: return 0;
#endif
    }
    return 0;
}
static neo_isa neo__isa_best(void) {
    for (int i = NEO_ISA_NEON; i > NEO_ISA_SCALAR; i--)
        if (neo_isa_available((neo_isa)i)) return (neo_isa)i;
    return NEO_ISA_SCALAR;
}
static void neo__isa_bind(neo_ctx *ctx); /* sets the kernel tables; see >>isa */

/* ---- create, destroy ---- */
static neo_status neo__ctx_check(const neo_ctx_desc *d) {
    NEO__CHECK(d->threads >= 0 && d->threads <= NEO__MAX_THREADS, NEO_ERR_ARG,
               "neo_ctx_create: threads is %d, not in 0 (all cores) .. %d", d->threads, NEO__MAX_THREADS);
    NEO__CHECK(d->repro_shards >= 0 && d->repro_shards <= 4096, NEO_ERR_ARG,
               "neo_ctx_create: repro_shards is %d, not in 0 .. 4096", d->repro_shards);
    NEO__CHECK(!d->allocator.alloc == !d->allocator.free, NEO_ERR_ARG,
               "neo_ctx_create: allocator needs both alloc and free");
    NEO__CHECK(!d->executor.run || d->threads > 0, NEO_ERR_ARG,
               "neo_ctx_create: an executor needs threads, the number of its workers");
    NEO__CHECK(neo_isa_available(d->isa), NEO_ERR_UNSUPPORTED,
               "neo_ctx_create: this machine cannot run the %s path", neo_isa_name(d->isa));
    neo__fp_state fp = neo__fp_enter();
    const char *broken = neo__fp_self_check();
    neo__fp_leave(fp);
    NEO__CHECK(!broken, NEO_ERR_NUMERIC, "neo_ctx_create: the compiler changed arithmetic: %s", broken);
    return NEO_OK;
}

NEO_API neo_status neo_ctx_create(const neo_ctx_desc *desc, neo_ctx **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_ctx_create: ctx is NULL");
    *out = NULL;
    NEO__ZERO(neo_ctx_desc, d);
    if (desc) d = *desc;
    NEO__TRY(neo__ctx_check(&d));
    if (!d.allocator.alloc) {
        d.allocator.alloc = neo__default_alloc;
        d.allocator.free = neo__default_free;
    }
    neo_ctx *ctx = (neo_ctx *)d.allocator.alloc(sizeof *ctx, NEO__ALIGN, d.allocator.user);
    NEO__CHECK(ctx, NEO_ERR_MEMORY, "neo_ctx_create: no memory for %zu bytes", sizeof *ctx);
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = d.allocator;
    ctx->logger = d.logger;
    ctx->executor = d.executor;
    ctx->threads = d.threads ? d.threads : NEO__MIN(neo__core_count(), NEO__MAX_THREADS);
    ctx->isa = d.isa == NEO_ISA_BEST ? neo__isa_best() : d.isa;
    ctx->repro_shards = d.repro_shards ? d.repro_shards : 1;
    ctx->seed = d.seed;
    ctx->bytes = ctx->peak_bytes = sizeof *ctx;
    ctx->alloc_count = 1;
    neo__isa_bind(ctx);

    ctx->scratch_bytes = (size_t)ctx->threads * NEO__WORKER_SCRATCH_BYTES + NEO__SHARED_SCRATCH_BYTES;
    ctx->scratch = (char *)neo_alloc(ctx, ctx->scratch_bytes);
    size_t worker_bytes = (size_t)(ctx->threads - 1) * sizeof(neo__worker);
    neo__worker *workers = (neo__worker *)neo__alloc_zero(ctx, worker_bytes);
    neo_status status = NEO_OK;
    if (!ctx->scratch || !workers)
        status = neo_fail(NEO_ERR_MEMORY, "neo_ctx_create: no memory for %zu bytes of scratch",
                           ctx->scratch_bytes);
    else
        status = neo__pool_start(&ctx->pool, workers, ctx->executor.run ? 0 : ctx->threads - 1);
    if (status != NEO_OK) {
        neo_free(ctx, workers, worker_bytes);
        neo_free(ctx, ctx->scratch, ctx->scratch_bytes);
        d.allocator.free(ctx, sizeof *ctx, d.allocator.user);
        return status;
    }
    *out = ctx;
    return NEO_OK;
}

NEO_API void neo_ctx_destroy(neo_ctx *ctx) {
    if (!ctx) return;
    neo_allocator allocator = ctx->allocator;
    neo__pool_stop(&ctx->pool, ctx->pool.worker_count);
    neo_free(ctx, ctx->pool.workers, (size_t)(ctx->threads - 1) * sizeof(neo__worker));
    neo_free(ctx, ctx->scratch, ctx->scratch_bytes);
    allocator.free(ctx, sizeof *ctx, allocator.user);
}

NEO_API int neo_ctx_threads(const neo_ctx *ctx) { return ctx->threads; }
NEO_API neo_isa neo_ctx_isa(const neo_ctx *ctx) { return ctx->isa; }
NEO_API int neo_ctx_repro_shards(const neo_ctx *ctx) { return ctx->repro_shards; }
NEO_API uint64_t neo_ctx_seed(const neo_ctx *ctx) { return ctx->seed; }
NEO_API neo_memory neo_ctx_memory(const neo_ctx *ctx) {
    neo_memory m;
    m.bytes = __atomic_load_n(&ctx->bytes, __ATOMIC_RELAXED);
    m.peak_bytes = __atomic_load_n(&ctx->peak_bytes, __ATOMIC_RELAXED);
    m.alloc_count = __atomic_load_n(&ctx->alloc_count, __ATOMIC_RELAXED);
    return m;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-leaves

   The tree over n leaves, n > 1, has the first p leaves on the left and the rest on the right, p the largest
   power of two below n. Walking the leaves in order, that tree is a binary counter: a stack of subtree sums
   of falling sizes; pushing a leaf merges equal sizes, and at the end the stack merges from the top down.
   So log2(V) + 1 buffers are enough.
   ------------------------------------------------------------------------------------------------ */
NEO_API int64_t neo_leaf_begin(int64_t batch, int shards, int leaf) {
    if (shards < 1) return 0;
    return (int64_t)((leaf * (batch / shards)) + leaf * (batch % shards) / shards);
}
/* How many merges follow when leaf number `leaf` (from 0) has been pushed: its trailing one bits. */
NEO__INLINE int neo__tree_merges(int64_t leaf) {
    int merges = 0;
    for (; leaf & 1; leaf >>= 1) merges++;
    return merges;
}
/* Buffers the walk over n leaves needs at most (the pushed leaf included). */
NEO__INLINE int neo__tree_depth(int64_t n) {
    int depth = 1;
    for (; n > 1; n = (n + 1) / 2) depth++;
    return depth;
}
/* They are a whole subtree of the leaf tree, or none. */
static neo_status neo__leaves_check_tree(const neo_leaves *leaves, int shards,
                                         const char *function) {
    int lo = 0, n = shards; /* walk down the tree to the subtree */
    if (leaves->count == 0) return NEO_OK;
    while (n > 1 && (lo != leaves->first || n != leaves->count)) {
        int p = 1;
        while (p * 2 < n) p *= 2;
        if (leaves->first < lo + p) n = p;
        else lo += p, n -= p;
    }
    NEO__CHECK(lo == leaves->first && n == leaves->count, NEO_ERR_ARG,
               "%s: leaves [%d, %d) of %d are not one subtree of the leaf tree", function,
               leaves->first, leaves->first + leaves->count, shards);
    return NEO_OK;
}
/* The leaves of a call: those of `leaves`, or all of a batch of `rows`. Checks that they hold `rows`
   samples and are a whole subtree. */
static neo_status neo__leaves_resolve(const neo_ctx *ctx, const neo_leaves *leaves, int64_t rows,
                                      neo_leaves *out, const char *function) {
    int shards = ctx->repro_shards;
    if (!leaves) {
        out->batch = rows;
        out->first = 0;
        out->count = shards;
        out->rows_per_sample = 1;
        return NEO_OK;
    }
    *out = *leaves;
    if (out->rows_per_sample == 0) out->rows_per_sample = 1;
    NEO__CHECK(out->rows_per_sample > 0, NEO_ERR_ARG,
               "%s: rows_per_sample of the leaves is %" PRId64, function, out->rows_per_sample);
    NEO__CHECK(out->batch >= 0 && out->first >= 0 && out->count >= 0 &&
                   out->first <= shards - out->count,
               NEO_ERR_ARG, "%s: %d leaves from %d are not within the %d of the context", function,
               out->count, out->first, shards);
    NEO__TRY(neo__leaves_check_tree(out, shards, function));
    const int64_t each = out->rows_per_sample;
    int64_t samples = neo_leaf_begin(out->batch, shards, out->first + out->count) -
                      neo_leaf_begin(out->batch, shards, out->first);
    NEO__CHECK(rows % each == 0 && samples == rows / each, NEO_ERR_SHAPE,
               "%s: leaves [%d, %d) of %d hold %" PRId64 " samples of a batch of %" PRId64
               ", %" PRId64 " rows each; the tensors have %" PRId64 " rows",
               function, out->first, out->first + out->count, shards, samples, out->batch, each,
               rows);
    return NEO_OK;
}
/* Row range of leaf `i` (0 .. count - 1) of the resolved leaves, relative to the caller's rows. */
NEO__INLINE void neo__leaf_rows(const neo_ctx *ctx, const neo_leaves *leaves, int i, int64_t *begin, int64_t *end) {
    const int64_t each = leaves->rows_per_sample;
    int64_t base = neo_leaf_begin(leaves->batch, ctx->repro_shards, leaves->first);
    *begin = (neo_leaf_begin(leaves->batch, ctx->repro_shards, leaves->first + i) - base) * each;
    *end = (neo_leaf_begin(leaves->batch, ctx->repro_shards, leaves->first + i + 1) - base) * each;
}

/* ------------------------------------------------------------------------------------------------
   >>files

   Files and directories on POSIX and Windows. Paths are UTF-8; offsets and sizes 64-bit. Every
   failure leaves one line in neo_last_error(): "<path>: cannot <verb>: <what the system says>".
   Status   NEO_ERR_NOT_FOUND: no such file or directory. NEO_ERR_ARG: a path that is empty or too
            long. NEO_ERR_IO: all else (permission, full disk, a directory where a file is
            expected).
   ------------------------------------------------------------------------------------------------ */
enum { NEO__PATH_BYTES = 4096 };

/* An open file. path is the caller's (kept for messages) and must outlive it. */
typedef struct neo__file {
#if defined(_WIN32)
    HANDLE handle;
#else
    int fd;
#endif
    const char *path;
} neo__file;

typedef enum neo__file_mode {
    NEO__FILE_READ,   /* an existing file (pipes and devices too, without size) */
    NEO__FILE_CREATE, /* for writing, emptied if it exists */
    NEO__FILE_APPEND  /* for writing at the end, made if missing */
} neo__file_mode;

typedef enum neo__path_kind {
    NEO__PATH_NONE, /* nothing there, or not to be seen */
    NEO__PATH_FILE,
    NEO__PATH_DIR,
    NEO__PATH_OTHER /* a pipe, a device, ... */
} neo__path_kind;

/* Called by neo__dir_list for each entry ("." and ".." left out); a status other than NEO_OK ends
   the listing and becomes its result. */
typedef neo_status (*neo__dir_fn)(const char *name, void *user);

/* Reads and writes go through the system in pieces no larger than this (some systems take an
   int). */
#define NEO__IO_PIECE ((size_t)1 << 30)

/* dir/name into out[NEO__PATH_BYTES]. */
static neo_status neo__path_join(char *out, const char *dir, const char *name) {
    size_t length = strlen(dir);
    int slash = length > 0 && dir[length - 1] != '/';
    int n = snprintf(out, NEO__PATH_BYTES, "%s%s%s", dir, slash ? "/" : "", name);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s...: the path is too long", dir);
    return NEO_OK;
}
/* The directory that holds path, into out[NEO__PATH_BYTES]: "." for a bare name. */
static neo_status neo__path_parent(char *out, const char *path) {
    size_t n = strlen(path);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s: the path is empty or too long",
               path);
    memcpy(out, path, n + 1);
    while (n > 1 && out[n - 1] == '/') n--;
    while (n > 0 && out[n - 1] != '/') n--;
    while (n > 1 && out[n - 1] == '/') n--;
    out[n] = 0;
    if (n == 0) memcpy(out, ".", 2);
    return NEO_OK;
}

#if defined(_WIN32)
static void neo__system_text(unsigned long code, char *text, size_t bytes) {
    DWORD n = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                             code, 0, text, (DWORD)bytes, NULL);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '.')) n--;
    if (n > 0) text[n] = 0;
    else snprintf(text, bytes, "system error %lu", code);
}
static neo_status neo__file_fail(const char *path, const char *verb) {
    unsigned long code = GetLastError();
    char text[160];
    neo__system_text(code, text, sizeof text);
    int missing = code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND;
    return neo_fail(missing ? NEO_ERR_NOT_FOUND : NEO_ERR_IO, "%s: cannot %s: %s", path, verb,
                     text);
}
/* UTF-8 to what the system takes. */
static neo_status neo__wide_path(const char *path, wchar_t out[NEO__PATH_BYTES]) {
    int n = path[0] ? MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out,
                                          NEO__PATH_BYTES)
                    : 0;
    NEO__CHECK(n > 0, NEO_ERR_ARG, "%.200s: the path is empty, too long or not UTF-8", path);
    return NEO_OK;
}

static neo_status neo__file_open(neo__file *f, const char *path, neo__file_mode mode) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    DWORD access = mode == NEO__FILE_READ     ? GENERIC_READ
                   : mode == NEO__FILE_CREATE ? GENERIC_WRITE
                                              : FILE_APPEND_DATA;
    DWORD how = mode == NEO__FILE_READ     ? OPEN_EXISTING
                : mode == NEO__FILE_CREATE ? CREATE_ALWAYS
                                           : OPEN_ALWAYS;
    DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    f->path = path;
    f->handle = CreateFileW(wide, access, share, NULL, how, FILE_ATTRIBUTE_NORMAL, NULL);
    if (f->handle == INVALID_HANDLE_VALUE)
        return neo__file_fail(path, mode == NEO__FILE_READ ? "open" : "open for writing");
    return NEO_OK;
}
static void neo__file_stdin(neo__file *f) {
    f->path = "standard input";
    f->handle = GetStdHandle(STD_INPUT_HANDLE);
}
static neo_status neo__file_read(neo__file *f, void *data, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes) {
        DWORD n = 0, want = (DWORD)NEO__MIN(bytes - *got, NEO__IO_PIECE);
        if (!ReadFile(f->handle, (char *)data + *got, want, &n, NULL)) {
            if (GetLastError() == ERROR_BROKEN_PIPE) break; /* the end of a pipe */
            return neo__file_fail(f->path, "read");
        }
        if (n == 0) break;
        *got += n;
    }
    return NEO_OK;
}
static neo_status neo__file_read_at(const neo__file *f, int64_t offset, void *data, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        DWORD n = 0, want = (DWORD)NEO__MIN(bytes - got, NEO__IO_PIECE);
        NEO__ZERO(OVERLAPPED, place);
        uint64_t at = (uint64_t)offset + got;
        place.Offset = (DWORD)(at & 0xFFFFFFFFu);
        place.OffsetHigh = (DWORD)(at >> 32);
        int ok = ReadFile(f->handle, (char *)data + got, want, &n, &place) != 0;
        if (!ok && GetLastError() != ERROR_HANDLE_EOF) return neo__file_fail(f->path, "read");
        NEO__CHECK(n > 0, NEO_ERR_IO, "%s: ends before byte %" PRIu64, f->path,
                   (uint64_t)offset + bytes);
        got += n;
    }
    return NEO_OK;
}
static neo_status neo__file_write(neo__file *f, const void *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        DWORD n = 0, want = (DWORD)NEO__MIN(bytes - done, NEO__IO_PIECE);
        if (!WriteFile(f->handle, (const char *)data + done, want, &n, NULL))
            return neo__file_fail(f->path, "write");
        NEO__CHECK(n > 0, NEO_ERR_IO, "%s: cannot write: no space left", f->path);
        done += n;
    }
    return NEO_OK;
}
static neo_status neo__file_seek(neo__file *f, int64_t offset) {
    LARGE_INTEGER to;
    to.QuadPart = offset;
    return SetFilePointerEx(f->handle, to, NULL, FILE_BEGIN) ? NEO_OK
                                                             : neo__file_fail(f->path, "seek");
}
static int64_t neo__file_size(const neo__file *f) {
    LARGE_INTEGER size;
    if (GetFileType(f->handle) != FILE_TYPE_DISK || !GetFileSizeEx(f->handle, &size)) return -1;
    return (int64_t)size.QuadPart;
}
static neo_status neo__file_sync(neo__file *f) {
    return FlushFileBuffers(f->handle) ? NEO_OK : neo__file_fail(f->path, "flush to disk");
}
static neo_status neo__file_close(neo__file *f) {
    HANDLE handle = f->handle;
    f->handle = INVALID_HANDLE_VALUE;
    if (handle == INVALID_HANDLE_VALUE || handle == GetStdHandle(STD_INPUT_HANDLE)) return NEO_OK;
    return CloseHandle(handle) ? NEO_OK : neo__file_fail(f->path, "close");
}
static neo__path_kind neo__path_look(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    if (!path[0] || !MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, NEO__PATH_BYTES))
        return NEO__PATH_NONE;
    DWORD attributes = GetFileAttributesW(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) return NEO__PATH_NONE;
    if (attributes & FILE_ATTRIBUTE_DIRECTORY)
        return attributes & FILE_ATTRIBUTE_REPARSE_POINT ? NEO__PATH_OTHER : NEO__PATH_DIR;
    return NEO__PATH_FILE;
}
static neo_status neo__file_remove(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    return DeleteFileW(wide) ? NEO_OK : neo__file_fail(path, "remove");
}
static neo_status neo__path_rename(const char *from, const char *to) {
    wchar_t a[NEO__PATH_BYTES], b[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(from, a));
    NEO__TRY(neo__wide_path(to, b));
    if (MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) return NEO_OK;
    return neo__file_fail(from, "rename");
}
static neo_status neo__dir_make_one(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    if (CreateDirectoryW(wide, NULL) || neo__path_look(path) == NEO__PATH_DIR) return NEO_OK;
    return neo__file_fail(path, "make the directory");
}
static neo_status neo__dir_remove_one(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    return RemoveDirectoryW(wide) ? NEO_OK : neo__file_fail(path, "remove the directory");
}
/* Windows keeps directories in order by itself. */
static neo_status neo__dir_sync(const char *path) {
    (void)path;
    return NEO_OK;
}
static neo_status neo__dir_list(const char *path, neo__dir_fn fn, void *user) {
    char pattern[NEO__PATH_BYTES], name[3 * MAX_PATH];
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__path_join(pattern, path, "*"));
    NEO__TRY(neo__wide_path(pattern, wide));
    WIN32_FIND_DATAW found;
    HANDLE search = FindFirstFileW(wide, &found);
    if (search == INVALID_HANDLE_VALUE) return neo__file_fail(path, "list the directory");
    neo_status status = NEO_OK;
    do {
        int n = WideCharToMultiByte(CP_UTF8, 0, found.cFileName, -1, name, (int)sizeof name, NULL,
                                    NULL);
        if (n > 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) status = fn(name, user);
    } while (status == NEO_OK && FindNextFileW(search, &found));
    if (status == NEO_OK && GetLastError() != ERROR_NO_MORE_FILES)
        status = neo__file_fail(path, "list the directory");
    FindClose(search);
    return status;
}
#else
static neo_status neo__file_fail(const char *path, const char *verb) {
    int code = errno;
    char text[160];
    text[0] = 0;
    /* The GNU form returns the text, the POSIX form fills the buffer. */
#if defined(_GNU_SOURCE) && (defined(__GLIBC__) || defined(__BIONIC__))
    const char *what = strerror_r(code, text, sizeof text);
#else
    const char *what = strerror_r(code, text, sizeof text) == 0 ? text : "unknown error";
#endif
    return neo_fail(code == ENOENT || code == ENOTDIR ? NEO_ERR_NOT_FOUND : NEO_ERR_IO,
                     "%s: cannot %s: %s", path, verb, what);
}

/* neo__file_open: on failure *f needs no close. A directory is refused. */
static neo_status neo__file_open(neo__file *f, const char *path, neo__file_mode mode) {
    int flags = mode == NEO__FILE_READ ? O_RDONLY
                : mode == NEO__FILE_CREATE ? O_WRONLY | O_CREAT | O_TRUNC
                                           : O_WRONLY | O_CREAT | O_APPEND;
    f->path = path;
    f->fd = -1;
    NEO__CHECK(path[0], NEO_ERR_ARG, "the path of a file is empty");
    do {
        f->fd = open(path, flags | O_CLOEXEC, 0666);
    } while (f->fd < 0 && errno == EINTR);
    if (f->fd < 0)
        return neo__file_fail(path, mode == NEO__FILE_READ ? "open" : "open for writing");
    struct stat info;
    if (fstat(f->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        close(f->fd);
        f->fd = -1;
        return neo_fail(NEO_ERR_IO, "%s: cannot open: is a directory", path);
    }
    return NEO_OK;
}
/* neo__file_stdin: closing it leaves standard input open. */
static void neo__file_stdin(neo__file *f) {
    f->path = "standard input";
    f->fd = 0;
}
/* neo__file_read: the next bytes; fewer than asked for only at the end of the file or pipe. */
static neo_status neo__file_read(neo__file *f, void *data, size_t bytes, size_t *got) {
    *got = 0;
    while (*got < bytes) {
        ssize_t n = read(f->fd, (char *)data + *got, NEO__MIN(bytes - *got, NEO__IO_PIECE));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return neo__file_fail(f->path, "read");
        if (n == 0) break;
        *got += (size_t)n;
    }
    return NEO_OK;
}
/* neo__file_read_at: exactly these bytes, without moving the place of neo__file_read: for several
   threads at once. A file that ends before is NEO_ERR_IO. */
static neo_status neo__file_read_at(const neo__file *f, int64_t offset, void *data, size_t bytes) {
    size_t got = 0;
    while (got < bytes) {
        int64_t at = offset + (int64_t)got;
        NEO__CHECK((int64_t)(off_t)at == at, NEO_ERR_IO,
                   "%s: offsets are 32-bit: compile with -D_FILE_OFFSET_BITS=64", f->path);
        ssize_t n =
            pread(f->fd, (char *)data + got, NEO__MIN(bytes - got, NEO__IO_PIECE), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return neo__file_fail(f->path, "read");
        NEO__CHECK(n > 0, NEO_ERR_IO, "%s: ends before byte %" PRId64, f->path,
                   offset + (int64_t)bytes);
        got += (size_t)n;
    }
    return NEO_OK;
}
/* neo__file_write: all of it, or an error. */
static neo_status neo__file_write(neo__file *f, const void *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(f->fd, (const char *)data + done, NEO__MIN(bytes - done, NEO__IO_PIECE));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return neo__file_fail(f->path, "write");
        NEO__CHECK(n > 0, NEO_ERR_IO, "%s: cannot write: no space left", f->path);
        done += (size_t)n;
    }
    return NEO_OK;
}
static neo_status neo__file_seek(neo__file *f, int64_t offset) {
    NEO__CHECK((int64_t)(off_t)offset == offset, NEO_ERR_IO,
               "%s: offsets are 32-bit: compile with -D_FILE_OFFSET_BITS=64", f->path);
    return lseek(f->fd, (off_t)offset, SEEK_SET) >= 0 ? NEO_OK : neo__file_fail(f->path, "seek");
}
/* neo__file_size: -1 for what has no size (a pipe, a device). */
static int64_t neo__file_size(const neo__file *f) {
    struct stat info;
    if (fstat(f->fd, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
    return (int64_t)info.st_size;
}
/* neo__file_sync: return once the bytes are on the disk. */
static neo_status neo__file_sync(neo__file *f) {
    int result;
    do {
        result = fsync(f->fd);
    } while (result != 0 && errno == EINTR);
    /* devices and pipes cannot be flushed */
    return result == 0 || errno == EINVAL ? NEO_OK : neo__file_fail(f->path, "flush to disk");
}
/* neo__file_close: a second close is allowed. The system may report a failed write only here. */
static neo_status neo__file_close(neo__file *f) {
    int fd = f->fd;
    f->fd = -1;
    if (fd <= 0 || close(fd) == 0 || errno == EINTR) return NEO_OK;
    return neo__file_fail(f->path, "close");
}
/* neo__path_look: what is at path; links are not followed, and are NEO__PATH_OTHER, unless they
   lead to a file. */
static neo__path_kind neo__path_look(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return NEO__PATH_NONE;
    if (S_ISDIR(info.st_mode)) return NEO__PATH_DIR;
    if (S_ISLNK(info.st_mode) && stat(path, &info) != 0) return NEO__PATH_OTHER;
    return S_ISREG(info.st_mode) ? NEO__PATH_FILE : NEO__PATH_OTHER;
}
static neo_status neo__file_remove(const char *path) {
    return unlink(path) == 0 ? NEO_OK : neo__file_fail(path, "remove");
}
/* neo__path_rename: atomic; an existing file at `to` is replaced. Both on one file system. */
static neo_status neo__path_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? NEO_OK : neo__file_fail(from, "rename");
}
static neo_status neo__dir_make_one(const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return NEO_OK;
    int code = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return NEO_OK;
    errno = code;
    return neo__file_fail(path, "make the directory");
}
static neo_status neo__dir_remove_one(const char *path) {
    return rmdir(path) == 0 ? NEO_OK : neo__file_fail(path, "remove the directory");
}
/* neo__dir_sync: return once the names in the directory are on the disk. */
static neo_status neo__dir_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return neo__file_fail(path, "open the directory");
    int failed =
        fsync(fd) != 0 && errno != EINVAL && errno != EROFS; /* some file systems cannot */
    neo_status status = failed ? neo__file_fail(path, "flush the directory to disk") : NEO_OK;
    close(fd);
    return status;
}
static neo_status neo__dir_list(const char *path, neo__dir_fn fn, void *user) {
    DIR *dir = opendir(path);
    if (!dir) return neo__file_fail(path, "list the directory");
    neo_status status = NEO_OK;
    while (status == NEO_OK) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0) status = neo__file_fail(path, "list the directory");
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = fn(entry->d_name, user);
    }
    closedir(dir);
    return status;
}
#endif

NEO__COLD_BEGIN
/* neo__dir_make: the directory and those above it; one that exists is fine. */
static neo_status neo__dir_make(const char *path) {
    char part[NEO__PATH_BYTES];
    size_t n = strlen(path);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s: the path is empty or too long",
               path);
    for (size_t i = 1; i < n; i++) {
        if (path[i] != '/' || path[i - 1] == '/' || path[i - 1] == ':') continue;
        memcpy(part, path, i);
        part[i] = 0;
        NEO__TRY(neo__dir_make_one(part));
    }
    return neo__dir_make_one(path);
}

enum { NEO__TREE_DEPTH = 16 };
typedef struct neo__tree_remove_state {
    const char *dir;
    int depth;
} neo__tree_remove_state;
static neo_status neo__tree_remove_at(const char *path, int depth);
static neo_status neo__tree_remove_entry(const char *name, void *user) {
    const neo__tree_remove_state *state = (const neo__tree_remove_state *)user;
    char path[NEO__PATH_BYTES];
    NEO__TRY(neo__path_join(path, state->dir, name));
    return neo__tree_remove_at(path, state->depth + 1);
}
static neo_status neo__tree_remove_at(const char *path, int depth) {
    neo__tree_remove_state state = {path, depth};
    NEO__CHECK(depth < NEO__TREE_DEPTH, NEO_ERR_IO, "%s: cannot remove: too deep", path);
    switch (neo__path_look(path)) {
    case NEO__PATH_NONE: return NEO_OK;
    case NEO__PATH_DIR:
        NEO__TRY(neo__dir_list(path, neo__tree_remove_entry, &state));
        return neo__dir_remove_one(path);
    default: return neo__file_remove(path);
    }
}
/* neo__tree_remove: a file, or a directory with everything in it (links are removed, not
   followed). Nothing there is fine. Stops at the first failure. */
static neo_status neo__tree_remove(const char *path) { return neo__tree_remove_at(path, 0); }
NEO__COLD_END
/* A tile: up to `rows` rows by one panel of columns of a product, with its sums in registers from
   the first k to the last. Operands are read in place or packed: a[r * a_row + k * a_k], b[k * b_k
   + j]. */
typedef struct neo__tile {
    int64_t k;
    const float *a;
    int64_t a_row, a_k;
    const float *b;
    int64_t b_k;
    int64_t b_col, b_cols; /* dots: b[k + j * b_col], j < b_cols <= 2 lanes */
    const float *init;     /* sums start there; NULL: at zero */
    int64_t init_row;
    float *c;
    int64_t c_row;
    const float *merge; /* then, `merges` times: left subtree sum + own; each next one `merge_step`
                           floats below */
    int64_t merges, merge_step;
    const float *bias; /* then + bias; NULL: none */
    int relu;          /* then relu */
} neo__tile;
typedef void (*neo__tile_fn)(const neo__tile *t);

enum {
    NEO__TILE_MAX_FLOATS = 512, /* rows x panel of any path */
    NEO__INTERACT_MAX_FEATURES = 4095,
    NEO__INTERACT_FLOATS = 1 << 18 /* of the scratch; a quarter of that more for the factors */
};

/* Samples of the dot interaction; see >>impl-interact. */
typedef struct neo__interact {
    int64_t dim, features, diagonal;
    const float *x, *e, *dz;
    float *z, *dx, *de;
    int64_t x_row, e_row, z_row, dz_row, dx_row, de_row;
} neo__interact;

struct neo__gemm_kernels {
    int rows;  /* of the largest tile */
    int lanes; /* a panel has 2 lanes columns; `lanes` where that is enough; 8 lanes for a single
                  row */
    const neo__tile_fn *tile1; /* [rows / 2]: lanes columns; 1, 2, 4, 6 .. rows rows */
    const neo__tile_fn *tile2; /* 2 lanes columns */
    neo__tile_fn row8;         /* 8 lanes columns, one row */
    neo__tile_fn
        dots; /* 2 lanes columns, one row: b is read in place, transposed; no merges, no bias */
    /* to[k * width + j] = from[k * ld + j] for j < cols, 0 for cols <= j < width; k < rows */
    void (*pack)(float *to, int64_t width, const float *from, int64_t ld, int64_t rows,
                 int64_t cols);
    /* to[k * width + j] = from[j * ld + k], likewise */
    void (*pack_transposed)(float *to, int64_t width, const float *from, int64_t ld, int64_t rows,
                            int64_t cols);
    /* to[j] = the sum over rows, in order from 0, of from[row * ld + j]; j < cols */
    void (*column_sums)(float *to, const float *from, int64_t ld, int64_t rows, int64_t cols);
    void (*interact_forward)(const neo__interact *job, int64_t sample, float *scratch);
    void (*interact_backward)(const neo__interact *job, int64_t sample, float *scratch);
};
/* Sums have one shape: NEO__BLOCK consecutive elements go to 16 lanes (element i to lane i % 16),
   each lane adds in order, the lanes add by the tree of NEO__TREE16; blocks add in order. */
enum { NEO__BLOCK = 256 };
/* Keys of a tile of attention, and queries: a multiple of the columns of any panel. */
enum { NEO__KEYS = 64 };

/* The numbers of one optimizer step, each computed once in double and rounded to f32 (see
   >>impl-optim). */
typedef struct neo__step {
    float clip;                /* the gradient is multiplied by this first; 1: no clipping */
    float lr;                  /* Adagrad: lr/(1 + (t - 1) lr_decay); LAMB: lr times trust ratio */
    float weight_decay;        /* w times this is added to the gradient (LAMB: to the direction) */
    float keep;                /* AdamW: w is multiplied by this, 1 - lr weight_decay; else 1 */
    float momentum, undamped;  /* SGD; undamped = 1 - dampening */
    float rest1, beta2, rest2; /* Adam: rest = 1 - beta */
    float unbias1;             /* Adam: lr/(1 - beta1^t); LAMB: the same without lr */
    float root_unbias2;        /* Adam: sqrt(1 - beta2^t) */
    float eps;
    int first, nesterov;       /* SGD; first: there is no momentum buffer yet */
} neo__step;

/* Elementwise work on contiguous f32, n >= 0; any alignment. An output may be one of the inputs,
   never a shifted overlap. */
struct neo__vec_kernels {
    void (*add)(float *y, const float *x, int64_t n); /* y += x */
    void (*act_forward)(neo_activation act, const float *z, float *y, int64_t n);
    void (*act_backward)(neo_activation act, const float *z, const float *y, const float *dy,
                         float *dz, int64_t n);

    /* The first element outside [low, high] (a NaN is), or n. */
    int64_t (*find_outside)(const float *x, float low, float high, int64_t n);
    /* Losses of n samples and, unless dx is NULL, their gradients times g; weight may be NULL. */
    void (*bce_logits)(const float *x, const float *y, const float *weight, float g, float *loss,
                       float *dx, int64_t n);
    void (*bce)(const float *x, const float *y, const float *weight, float g, float *loss,
                float *dx, int64_t n);
    void (*mse)(const float *x, const float *y, const float *weight, float g, float *loss,
                float *dx, int64_t n);
    /* One sample of n outputs: returns the sum of squares; dx = (x - y) g unless NULL. */
    float (*mse_row)(const float *x, const float *y, float g, float *dx, int64_t n);
    /* Returns sum of e^(x - max); *max; e = e^(x - max) unless NULL. */
    float (*softmax_row)(const float *x, float *max, float *e, int64_t n);
    void (*softmax_grad)(float *e, float sum, float g, int64_t n); /* e = e/sum g */

    /* One row of a layer norm (stats: mean, 1/deviation) or, not centered, an RMS norm (stats:
       1/rms): y; dx (which may be dy); what it adds to dw and db. w, b, dw, db may be NULL. */
    void (*norm_forward)(const float *x, const float *w, const float *b, float eps, int centered,
                         float *y, float *stats, int64_t n);
    void (*norm_backward)(const float *x, const float *w, const float *dy, const float *stats,
                          int centered, float *dx, int64_t n);
    void (*norm_add)(const float *x, const float *dy, const float *stats, int centered, float *dw,
                     float *db, int64_t n);
    /* One query against a tile of keys, n <= NEO__KEYS of which it sees: s, their products, becomes
       e^(s scale - max), 0 from n on. *max, *sum and out [dim] are those of the tiles before,
       brought to the new maximum; *sum then holds the tile too. */
    void (*softmax_tile)(float *s, int64_t n, float scale, float *max, float *sum, float *out,
                         int64_t dim);
    /* After the last tile: out is divided by sum; returns the logarithm of the denominator. */
    float (*softmax_end)(float *out, float max, float sum, int64_t dim);
    /* A tile backward: s becomes p = e^(s scale - lse), dp becomes p (dp - delta) scale; 0 from n
       on. */
    void (*softmax_tile_grad)(float *s, float *dp, int64_t n, float scale, float lse, float delta);

    /* Of one block, n <= NEO__BLOCK: sum of |x|, sum of squares, largest |x| (a NaN above all). */
    float (*block_abs)(const float *x, int64_t n);
    float (*block_square)(const float *x, int64_t n);
    float (*block_max)(const float *x, int64_t n);

    /* One step of n elements: w weight, g gradient, the rest state; buf: NULL without momentum. */
    void (*sgd)(const neo__step *s, float *w, const float *g, float *buf, int64_t n);
    void (*adagrad)(const neo__step *s, float *w, const float *g, float *sum, int64_t n);
    void (*adam)(const neo__step *s, float *w, const float *g, float *m, float *v, int64_t n);
    /* LAMB: new moments; square sum of the direction in one block; the move along it. */
    void (*lamb_moments)(const neo__step *s, const float *g, float *m, float *v, int64_t n);
    float (*lamb_square)(const neo__step *s, const float *w, const float *m, const float *v,
                         int64_t n);
    void (*lamb_move)(const neo__step *s, float *w, const float *m, const float *v, int64_t n);
};
/* A stream of random blocks; block i is philox(seed, (i, h)). */
typedef struct neo__random_key {
    uint64_t seed, h;
} neo__random_key;

/* The rows of a table in memory. Element (row, column) has number first + row * stride + column in
   the larger table, by which it is rounded. */
typedef struct neo__bag_rows {
    neo_dtype dtype;
    char *data;
    float *scale; /* of i8: [rows][2], scale and bias */
    int64_t dim, row_bytes;
    uint64_t first, stride;
} neo__bag_rows;
/* Of a row: its first element's number, and how many random blocks its elements are in. */
NEO__INLINE uint64_t neo__bag_number(const neo__bag_rows *t, int64_t row) {
    return t->first + (uint64_t)row * t->stride;
}
NEO__INLINE int64_t neo__bag_blocks_of(const neo__bag_rows *t, int64_t row) {
    return ((int64_t)(neo__bag_number(t, row) % 4) + t->dim + 3) / 4;
}

/* A run of bags of one feature, to look up. Offsets start at its first bag; ids and weights are
   indexed by them. next_*: the lookup that follows, whose first rows are fetched ahead. */
typedef struct neo__bag_lookup {
    const neo__bag_rows *store;
    const float *table; /* the rows if they are f32, or NULL */
    int64_t rows, dim;
    const void *ids;
    int is_i32;
    const float *weights; /* or NULL */
    const int64_t *offsets;
    int64_t bags;
    float *out; /* of the first bag; NEO_POOL_NONE: of the first id */
    int64_t out_stride;
    const float *dout; /* of weight_grad, with out_stride */
    int mean, pooled;  /* pooled 0: NEO_POOL_NONE */
    neo_bounds bounds;
    int32_t buckets; /* of the table whose rows from first_row on these are */
    int64_t bucket_rows, first_row;
    const neo__bag_rows *next_store;
    int64_t next_id, next_count;
} neo__bag_lookup;

/* The tree over parts with rising numbers (leaves of a batch, buckets of rows) of which some may
   be absent: a stack of sums of n floats, stride apart. Two neighbours join before a later part is
   pushed when their subtree ends before it: when the highest bit in which their numbers differ is
   lower. */
enum { NEO__PART_DEPTH = 14 }; /* for numbers below 4096: one level per bit, and one */
enum { NEO__CAREFUL_WIDTH = 64 }; /* columns at a time of the careful lookup */
typedef struct neo__part_tree {
    float *sum; /* [NEO__PART_DEPTH][stride] */
    int64_t n, stride;
    int64_t number[NEO__PART_DEPTH];
    int depth;
} neo__part_tree;
/* The last v with leaf[v] <= low. */
NEO__INLINE int neo__leaf_of(const int64_t *leaf, int leaf_count, int64_t low) {
    int v = 0;
    for (int n = leaf_count; n > 1;) {
        int half = n / 2;
        if (leaf[v + half] <= low) v += half, n -= half;
        else n = half;
    }
    return v;
}
NEO__INLINE int64_t neo__jagged_id(const void *ids, int is_i32, int64_t k) {
    return is_i32 ? (int64_t)((const int32_t *)ids)[k] : ((const int64_t *)ids)[k];
}

/* The numbers of one optimizer step, resolved for one table: see >>bag-optim. */
typedef struct neo__bag_step {
    neo_bag_optim_kind kind;
    int adjusts; /* clip, L2 or decoupled decay */
    float lr, clip, l2, keep, decay, eps, beta1, beta2, rest1, rest2, fix1, fix2, momentum, eta,
        max_norm;
} neo__bag_step;

/* Rows merged before they are stepped, so that the latencies of several overlap: as many as stay
   close. */
enum { NEO__BAG_GROUP = 16 };
NEO__INLINE int64_t neo__bag_group(int64_t dim) {
    int64_t rows = 4096 / dim;
    return rows < 1 ? 1 : rows > NEO__BAG_GROUP ? (int64_t)NEO__BAG_GROUP : rows;
}
/* Floats in which a narrow row is decoded, stepped and rounded: the row, filled up to 16s, and the
   random words of a group of rows, of which the last may be a vector of blocks. */
NEO__INLINE int64_t neo__bag_room(int64_t dim) { return (dim + 15) / 16 * 16; }
NEO__INLINE int64_t neo__bag_narrow_scratch(neo_dtype dtype, int64_t dim) {
    return dtype == NEO_F32 ? 0 : neo__bag_room(dim) + neo__bag_group(dim) * (dim + 8) + 96;
}
/* Blocks of 16 columns, along which rows are summed. */
NEO__INLINE int64_t neo__bag_blocks(int64_t dim) { return (dim + 15) / 16; }
/* A group and one row; or the gradient, direction, weights and moments of a row of a cut table. */
NEO__INLINE int64_t neo__bag_scratch(int64_t dim) {
    int64_t rows = neo__bag_group(dim) + 1;
    return (rows < 5 ? 5 : rows) * dim;
}

/* Sorted occurrences of one table, to merge per row and apply. A record is row << low_bits | low;
   low is a row of grad, or (grad_row given) an index into grad_row and grad_weight. leaf[v] is the
   first low of leaf v. Records begin and end at row boundaries. */
typedef struct neo__bag_update {
    const uint64_t *records;
    int64_t count;
    int low_bits;
    const float *grad;
    int64_t grad_stride;
    const int64_t *grad_row;  /* or NULL */
    const float *grad_weight; /* or NULL: ones */
    const int64_t *leaf;      /* [leaf_count + 1] */
    int leaf_count;
    const neo__bag_rows *store;
    float *weight, *state[2];  /* weight: the rows if they are f32, or NULL */
    int64_t dim, state_dim[2]; /* floats per row: dim or 1 */
    neo__bag_step step;
    const neo__random_key *round; /* of narrow rows; NULL: to nearest */
    int fetch_grads; /* gradient rows may be far from the cache */
    float *scratch;  /* neo__bag_scratch(dim) floats, and neo__bag_narrow_scratch() */
    /* Not a step but a sum that is kept: that of the row whose first record is i goes to keep_to + (keep_at[i]
       >> 1), added to what is there unless the lowest bit is set. */
    const int64_t *keep_at; /* or NULL */
    float *keep_to;
} neo__bag_update;

/* A step of rows of which only some columns are here. It asks for sums over whole rows in a fixed order; the
   first `have` are given. With want > 0 nothing changes: the next `want` are computed over the columns here,
   block by block. One record is one row. */
typedef struct neo__bag_cut {
    int have, want;
    float dim;          /* of the whole row */
    const float *total; /* [have][rows]: of record 0 */
    float *blocks;      /* [want][rows][blocks]: of record 0 */
    int64_t rows, blocks_per_row;
} neo__bag_cut;

struct neo__bag_kernels {
    void (*pool)(const neo__bag_lookup *a);         /* all ids are inside, one bucket */
    void (*pool_careful)(const neo__bag_lookup *a); /* bounds policy, row buckets */
    void (*copy)(const neo__bag_lookup *a);         /* NEO_POOL_NONE */
    void (*weight_grad)(const neo__bag_lookup *a, float *dweights); /* dweights of the first id */
    /* to[b] = from[b], divided by the length of bag b if offsets is given; empty bags are left out
       */
    void (*pack)(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                 int64_t bags, int64_t dim, const int64_t *offsets);
    void (*update)(const neo__bag_update *u);
    void (*update_cut)(const neo__bag_update *u, const neo__bag_cut *cut);
    /* out[i] = the sum over block i of 16 columns of x y */
    void (*blocks)(const float *x, const float *y, int64_t n, float *out);
    /* Narrow rows: columns [col, col + n) of a row to f32, and a row from f32. w has
       neo__bag_room(dim) floats; word: the random blocks its elements are in, NULL: to nearest. */
    void (*decode)(const neo__bag_rows *t, int64_t row, int64_t col, int64_t n, float *to);
    void (*encode)(const neo__bag_rows *t, int64_t row, float *w, const float *word);
};
/* ---- narrow floats and random numbers: scalar forms, and the tensor kernels' table ---- */

/* f16 and bf16, nearest even. A NaN keeps its sign and upper payload bits and becomes quiet, as
   the processors' own conversions do. */
NEO__INLINE uint16_t neo__f16_from_f32(float x) {
    uint32_t u = neo__bits_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7C00u); /* 2^16 and more */
    /* below 2^-14: in [0.5, 1) a float's last place is f16's denormal unit */
    if (a < 0x38800000u)
        return (uint16_t)(sign | (neo__bits_f32(neo__f32_bits(a) + 0.5f) - 0x3F000000u));
    return (uint16_t)(sign | (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13);
}
NEO__INLINE float neo__f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7FFFu;
    if (a > 0x7C00u) return neo__f32_bits(sign | 0x7FC00000u | a << 13);
    if (a == 0x7C00u) return neo__f32_bits(sign | 0x7F800000u);
    if (a >= 0x400u) return neo__f32_bits(sign | ((a << 13) + 0x38000000u));
    return neo__f32_bits(sign | neo__bits_f32((float)a * 0x1p-24f));
}
NEO__INLINE uint16_t neo__bf16_from_f32(float x) {
    uint32_t u = neo__bits_f32(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
NEO__INLINE float neo__f32_from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    return neo__f32_bits((u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x400000u : u);
}

/* A binary format narrower than f32: `man` stored bits of significand, smallest normal exponent
   emin; `top` is the code that overflow gives (infinity, or the largest finite number). */
typedef struct neo__narrow {
    int man, emin;
    uint32_t top, nan;
    int shift; /* of the sign bit from its place in f32 */
} neo__narrow;
static const neo__narrow neo__narrow_f16 = {10, -14, 0x7C00u, 0x7E00u, 16};
static const neo__narrow neo__narrow_bf16 = {7, -126, 0x7F80u, 0x7FC0u, 16};
static const neo__narrow neo__narrow_e4m3 = {3, -6, 0x7Eu, 0x7Fu, 24};
static const neo__narrow neo__narrow_e5m2 = {2, -14, 0x7Cu, 0x7Eu, 24};

/* The magnitude of x in units of the format's last place is a fixed-point number with 32 bits of
   fraction. Nearest even adds just under or exactly one half; stochastic rounding adds 32 random
   bits, so that x goes up with the probability of its remainder. A carry runs into the exponent by
   itself. */
NEO__INLINE uint32_t neo__narrow_encode(const neo__narrow *f, float x, int stochastic,
                                        uint32_t random) {
    uint32_t u = neo__bits_f32(x), a = u & 0x7FFFFFFFu;
    uint32_t sign = (u & 0x80000000u) >> f->shift;
    if (a > 0x7F800000u) return sign | f->nan;
    if (a == 0x7F800000u) return sign | f->top;
    int e = a >> 23 ? (int)(a >> 23) : 1;
    uint64_t m = (a & 0x7FFFFFu) | (a >> 23 ? 0x800000u : 0u); /* |x| = m 2^(e - 150) */
    int unit = NEO__MAX(e - 127, f->emin);
    int drop = unit - f->man - (e - 150);
    uint64_t fixed = drop < 64 ? m << 32 >> drop : 0;
    uint64_t code = (fixed + (stochastic ? random : 0x7FFFFFFFu + (fixed >> 32 & 1u))) >> 32;
    code += (uint64_t)(unit - f->emin) << f->man;
    return sign | (code > f->top ? f->top : (uint32_t)code);
}
NEO__INLINE float neo__f32_from_e5m2(uint8_t c) { return neo__f32_from_f16((uint16_t)(c << 8)); }
NEO__INLINE float neo__f32_from_e4m3(uint8_t c) {
    uint32_t sign = (uint32_t)(c & 0x80u) << 24, a = c & 0x7Fu;
    if (a == 0x7Fu) return neo__f32_bits(sign | 0x7FC00000u);
    if (a >= 8u) return neo__f32_bits(sign | ((a << 20) + 0x3C000000u));
    return neo__f32_bits(sign | neo__bits_f32((float)a * 0x1p-9f));
}

/* Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). */
#define NEO__PHILOX_M0 0xD2511F53u
#define NEO__PHILOX_M1 0xCD9E8D57u
#define NEO__PHILOX_W0 0x9E3779B9u
#define NEO__PHILOX_W1 0xBB67AE85u
NEO__INLINE void neo__philox(uint32_t key0, uint32_t key1, uint32_t x[4]) {
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)NEO__PHILOX_M0 * x[0], p1 = (uint64_t)NEO__PHILOX_M1 * x[2];
        x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ key0;
        x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ key1;
        x[1] = (uint32_t)p1;
        x[3] = (uint32_t)p0;
        key0 += NEO__PHILOX_W0;
        key1 += NEO__PHILOX_W1;
    }
}
NEO__INLINE uint64_t neo__mix64(uint64_t h) { /* MurmurHash3's finalizer */
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDu;
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 33;
}
NEO__INLINE neo__random_key neo__random_key_make(uint64_t seed, uint64_t name_hash, int64_t step,
                                                 int stream) {
    neo__random_key key;
    key.seed = seed;
    key.h = neo__mix64(name_hash + 0x9E3779B97F4A7C15u * ((uint64_t)stream + 1));
    key.h = neo__mix64(key.h + (uint64_t)step);
    return key;
}
NEO__INLINE void neo__random_block(const neo__random_key *key, uint64_t block, uint32_t out[4]) {
    out[0] = (uint32_t)block;
    out[1] = (uint32_t)(block >> 32);
    out[2] = (uint32_t)key->h;
    out[3] = (uint32_t)(key->h >> 32);
    neo__philox((uint32_t)key->seed, (uint32_t)(key->seed >> 32), out);
}

/* Kernels over n >= 0 contiguous elements; the random ones over whole blocks of four elements. */
struct neo__tensor_kernels {
    void (*f16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_f16)(float *y, const uint16_t *x, int64_t n);
    void (*bf16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_bf16)(float *y, const uint16_t *x, int64_t n);
    /* y = a + scale u, at most top; u uniform in [0, 1) */
    void (*uniform)(float *y, int64_t blocks, const neo__random_key *key, uint64_t first, float a,
                    float scale, float top);
    /* y = a + scale z; z normal */
    void (*normal)(float *y, int64_t blocks, const neo__random_key *key, uint64_t first, float a,
                   float scale);
};
/* ------------------------------------------------------------------------------------------------
   >>isa

   The kernels' text is at the end of this file and is read once per instruction set: the header includes itself
   with NEO__PASS set. (If you rename the file, set NEO_HEADER to its name.)
   ------------------------------------------------------------------------------------------------ */
#ifndef NEO_HEADER
#define NEO_HEADER "neo.h"
#endif
/* Where there are vectors the scalar kernels are the reference, and all but never run: they are
   compiled with little optimization, but not without any, because tests run them. */
#if defined(NEO__COLD) && (defined(NEO__X86) || defined(NEO__ARM)) && defined(__clang__)
#define NEO__SPARE_BEGIN                                                                           \
    _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#define NEO__SPARE_END _Pragma("clang attribute pop")
#elif defined(NEO__COLD) && (defined(NEO__X86) || defined(NEO__ARM))
#define NEO__SPARE_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"O1\")")
#define NEO__SPARE_END _Pragma("GCC pop_options")
#else
#define NEO__SPARE_BEGIN
#define NEO__SPARE_END
#endif

#define NEO__PASS_SCALAR 1
#define NEO__PASS_AVX2 2
#define NEO__PASS_AVX512 3
#define NEO__PASS_NEON 4

#define NEO__PASS NEO__PASS_SCALAR
NEO__SPARE_BEGIN
#include NEO_HEADER
NEO__SPARE_END
#undef NEO__PASS
#if defined(NEO__X86)
#define NEO__PASS NEO__PASS_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include NEO_HEADER
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef NEO__PASS
#define NEO__PASS NEO__PASS_AVX512
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#pragma GCC diagnostic push /* gcc 12's avx512 headers, compiled as C++, warn of themselves */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include NEO_HEADER
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
#undef NEO__PASS
#elif defined(NEO__ARM)
#define NEO__PASS NEO__PASS_NEON
#include NEO_HEADER
#undef NEO__PASS
#endif

#define NEO__BIND(isa)                                                                             \
    do {                                                                                           \
        ctx->gemm = &neo__gemm_kernels_##isa;                                                      \
        ctx->vec = &neo__vec_kernels_##isa;                                                        \
        ctx->bag = &neo__bag_kernels_##isa;                                                        \
        ctx->tensor = &neo__tensor_kernels_##isa;                                                  \
    } while (0)
static void neo__isa_bind(neo_ctx *ctx) {
    switch (ctx->isa) {
#if defined(NEO__X86)
    case NEO_ISA_AVX2: NEO__BIND(avx2); break;
    case NEO_ISA_AVX512: NEO__BIND(avx512); break;
#elif defined(NEO__ARM)
    case NEO_ISA_NEON: NEO__BIND(neon); break;
#endif
    default: NEO__BIND(scalar); break;
    }
}


/* ------------------------------------------------------------------------------------------------
   >>impl-math

   Double-precision functions with the same bits everywhere, for schedules, bias corrections and
   metrics: plain sums and products, no libm. (The f32 functions of kernels are at >>kernels-math;
   here the scalar pass's can be called, as neo__vexp_scalar.) Largest relative errors measured, in
   units of 2^-53: log 1.4, exp 1.3, pow 2.5 (1 + |y log x|); cos 1.5, absolute.
   ------------------------------------------------------------------------------------------------ */
#define NEO__LN2_HIGH 0x1.62e42fefp-1 /* ln 2 to 33 bits: a product with an exponent is exact */
#define NEO__LN2_LOW 0x1.473de6af278edp-34

/* log x: with f = m - 1 and s = f/(2 + f), log(1 + f) = 2 atanh s = f - (f^2/2 - s (f^2/2 + r)),
   r = 2 s^2/3 + 2 s^4/5 + ...; the form keeps f exact. */
NEO__UNUSED static double neo__log_f64(double x) {
    uint64_t bits = neo__bits_f64(x);
    int64_t k = 0;
    if (!(x > 0.0))
        return x == 0.0 ? neo__f64_bits(0xFFF0000000000000u) : neo__f64_bits(0x7FF8000000000000u);
    if (bits >= 0x7FF0000000000000u) return x;
    if (bits < 0x0010000000000000u) {
        bits = neo__bits_f64(x * 0x1p54);
        k = -54;
    }
    int64_t e = ((int64_t)bits - 0x3FE6A09E667F3BCD) >> 52; /* m in [sqrt(1/2), sqrt(2)) */
    k += e;
    double f = neo__f64_bits(bits - ((uint64_t)e << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s, r = 0.0;
    for (int i = 23; i >= 3; i -= 2) r = z * (r + 2.0 / (double)i);
    double half = 0.5 * f * f, kd = (double)k;
    return kd * NEO__LN2_HIGH - ((half - (s * (half + r) + kd * NEO__LN2_LOW)) - f);
}

/* e^x = 2^n e^r, |r| <= ln(2)/2, by its series; 2^n in two halves so that a denormal result rounds
   once. */
NEO__UNUSED static double neo__exp_f64(double x) {
    if (x != x) return x;
    if (x > 710.0) x = 710.0;
    if (x < -746.0) x = -746.0;
    double scaled = x * 0x1.71547652b82fep+0;
    int64_t n = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5)), half = n >> 1;
    double high = x - (double)n * NEO__LN2_HIGH, low = (double)n * NEO__LN2_LOW;
    double r = high - low, error = (high - r) - low, q = 0.0;
    for (int i = 14; i >= 3; i--) q = (q + 1.0) * r / (double)i;
    double p = 1.0 + (r + (error + 0.5 * r * r * (1.0 + q)));
    p *= neo__f64_bits((uint64_t)(half + 1023) << 52);
    return p * neo__f64_bits((uint64_t)(n - half + 1023) << 52);
}

/* x^y for x >= 0 (a negative x gives NaN); x^0 is 1. */
NEO__UNUSED static double neo__pow_f64(double x, double y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (x == 0.0) return y > 0.0 ? 0.0 : neo__f64_bits(0x7FF0000000000000u);
    return neo__exp_f64(y * neo__log_f64(x));
}

/* cos x for |x| < 2^20: the rest r of x by pi/2, and the series of the quadrant. */
NEO__UNUSED static double neo__cos_f64(double x) {
    double scaled = x * 0x1.45f306dc9c883p-1; /* 2/pi */
    int64_t n = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    double k = (double)n;
    double r = ((x - k * 0x1.921fb54p+0) - k * 0x1.10b461p-30) - k * 0x1.a62633145c06ep-58,
           u = r * r;
    double c = 0.0, s = 0.0;
    for (int i = 18; i >= 2; i -= 2) {
        c = (1.0 - c) * u / (double)(i * (i - 1));
        s = (1.0 - s) * u / (double)(i * (i + 1));
    }
    double value = n & 1 ? r - r * s : 1.0 - c;
    return (n + 1) & 2 ? -value : value;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-tensor

   Elementwise work walks a tensor in row-major order as runs: stretches along the last dimension
   of at most NEO__RUN elements. Two contiguous tensors are walked as one dimension. Every run is
   packed into a small buffer where its stride is not 1, so that the inner loops see contiguous
   data only.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__RUN = 256, NEO__ELEMENT_GRAIN = 1 << 15 };

NEO__COLD_BEGIN
NEO_API size_t neo_dtype_size(neo_dtype dtype) {
    switch (dtype) {
    case NEO_F32:
    case NEO_I32: return 4;
    case NEO_F16:
    case NEO_BF16: return 2;
    case NEO_F8E4M3:
    case NEO_F8E5M2:
    case NEO_I8:
    case NEO_U8: return 1;
    case NEO_I64: return 8;
    case NEO_DTYPE_COUNT: break;
    }
    return 0;
}
NEO_API const char *neo_dtype_name(neo_dtype dtype) {
    static const char *const name[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                                       "i8",  "i32", "i64",  "u8"};
    NEO__STATIC_ASSERT(sizeof name / sizeof name[0] == NEO_DTYPE_COUNT, "a name for every dtype");
    return (unsigned)dtype < (unsigned)NEO_DTYPE_COUNT ? name[dtype] : "unknown";
}

/* ---- views ---- */
NEO_API neo_tensor neo_tensor_none(void) {
    NEO__ZERO(neo_tensor, t);
    return t;
}
NEO_API neo_tensor neo_tensor_nd(void *data, neo_dtype dtype, int ndim, const int64_t *shape) {
    if (ndim < 0 || ndim > NEO_MAX_DIMS || (ndim > 0 && !shape)) return neo_tensor_none();
    NEO__ZERO(neo_tensor, t);
    t.data = data;
    t.dtype = dtype;
    t.ndim = ndim;
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        t.shape[d] = shape[d];
        t.stride[d] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)NEO__MAX(shape[d], 1));
    }
    return t;
}
NEO_API neo_tensor neo_tensor_1d(void *data, neo_dtype dtype, int64_t count) {
    return neo_tensor_nd(data, dtype, 1, &count);
}
NEO_API neo_tensor neo_tensor_2d(void *data, neo_dtype dtype, int64_t rows, int64_t cols) {
    int64_t shape[2] = {rows, cols};
    return neo_tensor_nd(data, dtype, 2, shape);
}
NEO_API neo_tensor neo_tensor_slice(neo_tensor t, int dim, int64_t first, int64_t count) {
    if (!neo__given(t) || dim < 0 || dim >= t.ndim || first < 0 || count < 0 ||
        first > t.shape[dim] || count > t.shape[dim] - first)
        return neo_tensor_none();
    if (t.data) t.data = (char *)t.data + first * t.stride[dim] * (int64_t)neo_dtype_size(t.dtype);
    t.shape[dim] = count;
    return t;
}
NEO_API neo_tensor neo_tensor_rows(neo_tensor t, int64_t first, int64_t count) {
    return neo_tensor_slice(t, 0, first, count);
}
NEO_API neo_tensor neo_tensor_transpose(neo_tensor t, int dim_a, int dim_b) {
    if (dim_a < 0 || dim_a >= t.ndim || dim_b < 0 || dim_b >= t.ndim) return neo_tensor_none();
    int64_t shape = t.shape[dim_a], stride = t.stride[dim_a];
    t.shape[dim_a] = t.shape[dim_b];
    t.stride[dim_a] = t.stride[dim_b];
    t.shape[dim_b] = shape;
    t.stride[dim_b] = stride;
    return t;
}
NEO_API neo_tensor neo_tensor_reshape(neo_tensor t, int ndim, const int64_t *shape) {
    if (!neo__given(t) || !neo_tensor_is_contiguous(t)) return neo_tensor_none();
    neo_tensor r = neo_tensor_nd(t.data, t.dtype, ndim, shape);
    r.absent = t.absent;
    for (int d = 0; d < r.ndim; d++)
        if (r.shape[d] < 0) return neo_tensor_none();
    return neo_tensor_count(r) == neo_tensor_count(t) ? r : neo_tensor_none();
}
/* Elements of a shape; -1 when an extent is negative or the product is beyond int64. */
static int64_t neo__shape_count(int ndim, const int64_t *shape) {
    int64_t count = 1;
    int empty = 0;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0) return -1;
        if (shape[d] == 0) empty = 1;
        else if (count > INT64_MAX / shape[d]) count = -1;
        else count *= shape[d];
        if (count < 0) break;
    }
    for (int d = 0; d < ndim && count < 0; d++) empty |= shape[d] == 0;
    return empty ? 0 : count;
}
NEO_API int64_t neo_tensor_count(neo_tensor t) {
    int valid = neo__given(t) && t.ndim >= 0 && t.ndim <= NEO_MAX_DIMS;
    int64_t count = valid ? neo__shape_count(t.ndim, t.shape) : 0;
    return NEO__MAX(count, 0);
}
NEO_API size_t neo_tensor_bytes(neo_tensor t) {
    return neo__size_mul((size_t)neo_tensor_count(t), neo_dtype_size(t.dtype));
}
NEO_API int neo_tensor_is_contiguous(neo_tensor t) {
    int64_t stride = 1;
    for (int d = t.ndim - 1; d >= 0; d--) {
        if (t.shape[d] == 0) return 1;
        if (t.shape[d] != 1 && t.stride[d] != stride) return 0;
        stride *= t.shape[d];
    }
    return 1;
}

NEO_API neo_status neo_tensor_alloc(neo_ctx *ctx, neo_dtype dtype, int ndim, const int64_t *shape,
                                    neo_tensor *t) {
    NEO__CHECK(ctx && t, NEO_ERR_ARG, "neo_tensor_alloc: ctx or t is NULL");
    *t = neo_tensor_none();
    NEO__CHECK(ndim >= 0 && ndim <= NEO_MAX_DIMS && (ndim == 0 || shape), NEO_ERR_ARG,
               "neo_tensor_alloc: %d dimensions, not 0 .. %d", ndim, NEO_MAX_DIMS);
    NEO__CHECK(neo_dtype_size(dtype) != 0, NEO_ERR_ARG, "neo_tensor_alloc: unknown dtype %d",
               (int)dtype);
    for (int d = 0; d < ndim; d++)
        NEO__CHECK(shape[d] >= 0, NEO_ERR_ARG, "neo_tensor_alloc: shape[%d] is %" PRId64, d,
                   shape[d]);
    int64_t count = neo__shape_count(ndim, shape);
    size_t bytes = count < 0 ? SIZE_MAX : neo__size_mul((size_t)count, neo_dtype_size(dtype));
    NEO__CHECK(bytes <= SIZE_MAX / 2, NEO_ERR_ARG,
               "neo_tensor_alloc: the size in bytes overflows");
    void *data = neo_alloc(ctx, bytes);
    NEO__CHECK(data, NEO_ERR_MEMORY, "neo_tensor_alloc: no memory for %zu bytes", bytes);
    *t = neo_tensor_nd(data, dtype, ndim, shape);
    return NEO_OK;
}
NEO_API void neo_tensor_free(neo_ctx *ctx, neo_tensor *t) {
    if (!t) return;
    if (t->data) neo_free(ctx, t->data, neo_tensor_bytes(*t));
    *t = neo_tensor_none();
}

/* ---- elementwise: runs ---- */
static neo_status neo__tensor_check(neo_tensor t, const char *function, const char *name) {
    if (t.absent && !t.data) return neo__no_data(function, name, t, NEO_ERR_STATE);
    NEO__CHECK(t.data, NEO_ERR_ARG, "%s: %s is none", function, name);
    NEO__CHECK(t.ndim >= 0 && t.ndim <= NEO_MAX_DIMS && neo_dtype_size(t.dtype) != 0 &&
                   neo__shape_count(t.ndim, t.shape) >= 0,
               NEO_ERR_ARG, "%s: %s is not a tensor (dimensions, extents or dtype)", function,
               name);
    return NEO_OK;
}
static neo_status neo__same_shape(neo_tensor a, neo_tensor b, const char *function) {
    NEO__TRY(neo__tensor_check(a, function, "src"));
    NEO__TRY(neo__tensor_check(b, function, "dst"));
    NEO__CHECK(a.ndim == b.ndim, NEO_ERR_SHAPE, "%s: src has %d dimensions, dst %d", function,
               (int)a.ndim, (int)b.ndim);
    for (int d = 0; d < a.ndim; d++)
        NEO__CHECK(a.shape[d] == b.shape[d], NEO_ERR_SHAPE,
                   "%s: extents of dimension %d are %" PRId64 " and %" PRId64, function, d,
                   a.shape[d], b.shape[d]);
    return NEO_OK;
}
NEO__COLD_END

typedef struct neo__walk {
    neo_ctx *ctx;
    neo_tensor src, dst;
    int64_t count, tasks;
    int stochastic;
    int64_t first;
    neo__random_key key;
} neo__walk;

/* A run of both tensors: pointers, strides in elements, index of its first element. */
typedef struct neo__run {
    const char *src;
    char *dst;
    int64_t src_stride, dst_stride, count, index;
} neo__run;

static void neo__walk_init(neo__walk *w, neo_ctx *ctx, neo_tensor src, neo_tensor dst) {
    memset(w, 0, sizeof *w);
    w->ctx = ctx;
    w->count = neo_tensor_count(src);
    if (src.ndim == 0 || (neo_tensor_is_contiguous(src) && neo_tensor_is_contiguous(dst))) {
        src = neo_tensor_1d(src.data, src.dtype, w->count);
        dst = neo_tensor_1d(dst.data, dst.dtype, w->count);
    }
    w->src = src;
    w->dst = dst;
    w->tasks = neo__task_count(ctx, w->count, NEO__ELEMENT_GRAIN);
}
static void neo__walk_run(const neo__walk *w, int64_t index, int64_t end, neo__run *run) {
    int64_t rest = index, src = 0, dst = 0, column = 0;
    int last = w->src.ndim - 1;
    for (int d = last; d >= 0; d--) {
        int64_t i = rest % w->src.shape[d];
        rest /= w->src.shape[d];
        src += i * w->src.stride[d];
        dst += i * w->dst.stride[d];
        if (d == last) column = i;
    }
    run->src = (const char *)w->src.data + src * (int64_t)neo_dtype_size(w->src.dtype);
    run->dst = (char *)w->dst.data + dst * (int64_t)neo_dtype_size(w->dst.dtype);
    run->src_stride = w->src.stride[last];
    run->dst_stride = w->dst.stride[last];
    run->index = index;
    run->count = NEO__MIN(NEO__MIN(end - index, w->src.shape[last] - column), (int64_t)NEO__RUN);
}

/* Elements of 1, 2, 4 or 8 bytes between strided places. */
static void neo__move(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                      size_t size, int64_t count) {
    if (dst_stride == 1 && src_stride == 1) {
        memmove(dst, src, (size_t)count * size);
        return;
    }
    dst_stride *= (int64_t)size;
    src_stride *= (int64_t)size;
    switch (size) {
    case 1:
        for (int64_t i = 0; i < count; i++) dst[i * dst_stride] = src[i * src_stride];
        break;
    case 2:
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * dst_stride, src + i * src_stride, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * dst_stride, src + i * src_stride, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++) memcpy(dst + i * dst_stride, src + i * src_stride, 8);
        break;
    }
}

/* ---- conversions of a contiguous run ---- */
NEO__INLINE int neo__is_float(neo_dtype t) { return t <= NEO_F8E5M2; }

static void neo__decode_float(const neo_ctx *ctx, neo_dtype dtype, const void *x, float *y,
                              int64_t n) {
    const uint8_t *byte = (const uint8_t *)x;
    switch (dtype) {
    case NEO_F16: ctx->tensor->f32_from_f16(y, (const uint16_t *)x, n); break;
    case NEO_BF16: ctx->tensor->f32_from_bf16(y, (const uint16_t *)x, n); break;
    case NEO_F8E4M3:
        for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_e4m3(byte[i]);
        break;
    case NEO_F8E5M2:
        for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_e5m2(byte[i]);
        break;
    default: memcpy(y, x, (size_t)n * sizeof *y); break;
    }
}
static void neo__decode_int(neo_dtype dtype, const void *x, int64_t *y, int64_t n) {
    switch (dtype) {
    case NEO_I8:
        for (int64_t i = 0; i < n; i++) y[i] = ((const int8_t *)x)[i];
        break;
    case NEO_U8:
        for (int64_t i = 0; i < n; i++) y[i] = ((const uint8_t *)x)[i];
        break;
    case NEO_I32:
        for (int64_t i = 0; i < n; i++) y[i] = ((const int32_t *)x)[i];
        break;
    default: memcpy(y, x, (size_t)n * sizeof *y); break;
    }
}
/* Random words of elements [index, index + n), or NULL when rounding to nearest. */
static const uint32_t *neo__run_random(const neo__walk *w, int64_t index, uint32_t *out,
                                       int64_t n) {
    if (!w->stochastic) return NULL;
    uint32_t block[4];
    uint64_t at = (uint64_t)w->first + (uint64_t)index;
    for (int64_t i = 0; i < n; i++, at++) {
        if (i == 0 || at % 4 == 0) neo__random_block(&w->key, at / 4, block);
        out[i] = block[at % 4];
    }
    return out;
}
static void neo__encode_narrow16(const neo__narrow *f, const float *x, uint16_t *y,
                                 const uint32_t *r, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = (uint16_t)neo__narrow_encode(f, x[i], 1, r[i]);
}
static void neo__encode_narrow8(const neo__narrow *f, const float *x, uint8_t *y,
                                const uint32_t *r, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (uint8_t)neo__narrow_encode(f, x[i], r != NULL, r ? r[i] : 0);
}
static void neo__encode_float(const neo_ctx *ctx, neo_dtype dtype, const float *x, void *y,
                              const uint32_t *r, int64_t n) {
    switch (dtype) {
    case NEO_F16:
        if (r) neo__encode_narrow16(&neo__narrow_f16, x, (uint16_t *)y, r, n);
        else ctx->tensor->f16_from_f32((uint16_t *)y, x, n);
        break;
    case NEO_BF16:
        if (r) neo__encode_narrow16(&neo__narrow_bf16, x, (uint16_t *)y, r, n);
        else ctx->tensor->bf16_from_f32((uint16_t *)y, x, n);
        break;
    case NEO_F8E4M3: neo__encode_narrow8(&neo__narrow_e4m3, x, (uint8_t *)y, r, n); break;
    case NEO_F8E5M2: neo__encode_narrow8(&neo__narrow_e5m2, x, (uint8_t *)y, r, n); break;
    default: memcpy(y, x, (size_t)n * sizeof *x); break;
    }
}
static void neo__encode_int(neo_dtype dtype, const int64_t *x, void *y, int64_t n) {
    switch (dtype) {
    case NEO_I8:
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)y)[i] =
                (int8_t)NEO__MIN(NEO__MAX(x[i], (int64_t)INT8_MIN), (int64_t)INT8_MAX);
        break;
    case NEO_U8:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)y)[i] = (uint8_t)NEO__MIN(NEO__MAX(x[i], (int64_t)0), (int64_t)UINT8_MAX);
        break;
    case NEO_I32:
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)y)[i] =
                (int32_t)NEO__MIN(NEO__MAX(x[i], (int64_t)INT32_MIN), (int64_t)INT32_MAX);
        break;
    default: memcpy(y, x, (size_t)n * sizeof *x); break;
    }
}

/* Rounded to an integer within int64; a NaN gives 0. */
static int64_t neo__int_from_f32(float x, int stochastic, uint32_t random) {
    if (!(x == x)) return 0;
    if (x >= 0x1p63f) return INT64_MAX;
    if (x <= -0x1p63f) return INT64_MIN;
    int64_t whole = (int64_t)x; /* towards zero */
    double rest = (double)x - (double)whole;
    if (rest < 0.0) {
        whole--;
        rest += 1.0;
    }
    if (stochastic) return whole + (rest * 0x1p32 > (double)random);
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)));
}
/* Rounded to odd: kept exact, or between its neighbours with the last bit set, so that rounding
   once more to a narrower float rounds correctly. */
static float neo__f32_from_int_odd(int64_t x) {
    uint64_t a = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    uint64_t sticky = 0;
    float scale = 1.0f;
    for (; a >> 24; a >>= 1, scale *= 2.0f) sticky |= a & 1;
    float value = (float)(a | sticky) * scale;
    return x < 0 ? -value : value;
}

static void neo__convert_run(const neo__walk *w, const neo__run *run) {
    union {
        int64_t i[NEO__RUN];
        float f[NEO__RUN];
    } wide, packed_src, packed_dst;
    int64_t ints[NEO__RUN];
    uint32_t random[NEO__RUN];
    neo_dtype from = w->src.dtype, to = w->dst.dtype;
    int64_t n = run->count;
    const void *src = run->src;
    void *dst = run->dst_stride == 1 ? (void *)run->dst : (void *)packed_dst.i;
    if (run->src_stride != 1) {
        neo__move((char *)packed_src.i, 1, run->src, run->src_stride, neo_dtype_size(from), n);
        src = packed_src.i;
    }
    const uint32_t *r = neo__run_random(w, run->index, random, n);
    if (neo__is_float(from)) {
        const float *x = from == NEO_F32 ? (const float *)src : wide.f;
        if (from != NEO_F32) neo__decode_float(w->ctx, from, src, wide.f, n);
        if (neo__is_float(to)) {
            neo__encode_float(w->ctx, to, x, dst, r, n);
        } else {
            for (int64_t i = 0; i < n; i++)
                ints[i] = neo__int_from_f32(x[i], r != NULL, r ? r[i] : 0);
            neo__encode_int(to, ints, dst, n);
        }
    } else {
        neo__decode_int(from, src, ints, n);
        if (neo__is_float(to)) {
            for (int64_t i = 0; i < n; i++)
                wide.f[i] = to == NEO_F32 ? (float)ints[i] : neo__f32_from_int_odd(ints[i]);
            neo__encode_float(w->ctx, to, wide.f, dst, r, n);
        } else {
            neo__encode_int(to, ints, dst, n);
        }
    }
    if (run->dst_stride != 1)
        neo__move(run->dst, run->dst_stride, (const char *)packed_dst.i, 1, neo_dtype_size(to), n);
}
static void neo__convert_task(void *arg, int64_t task, int worker) {
    const neo__walk *w = (const neo__walk *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(w->count, w->tasks, task, NEO__RUN, &begin, &end);
    for (neo__run run; begin < end; begin += run.count) {
        neo__walk_run(w, begin, end, &run);
        neo__convert_run(w, &run);
    }
}
static void neo__copy_task(void *arg, int64_t task, int worker) {
    const neo__walk *w = (const neo__walk *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(w->count, w->tasks, task, NEO__RUN, &begin, &end);
    for (neo__run run; begin < end; begin += run.count) {
        neo__walk_run(w, begin, end, &run);
        if (w->src.ndim == 1 && run.src_stride == 1 && run.dst_stride == 1)
            run.count = end - begin;
        neo__move(run.dst, run.dst_stride, run.src, run.src_stride, neo_dtype_size(w->src.dtype),
                  run.count);
    }
}

NEO__COLD_BEGIN
NEO_API neo_status neo_tensor_convert(neo_ctx *ctx, neo_tensor src, neo_tensor dst,
                                      const neo_convert_desc *desc) {
    NEO__TRY(neo__check_ctx("neo_tensor_convert", ctx));
    NEO__TRY(neo__same_shape(src, dst, "neo_tensor_convert"));
    if (src.dtype == dst.dtype) return neo_tensor_copy(ctx, src, dst);
    neo__walk w;
    neo__walk_init(&w, ctx, src, dst);
    if (desc && desc->rounding == NEO_ROUND_STOCHASTIC) {
        NEO__CHECK(desc->name, NEO_ERR_ARG,
                   "neo_tensor_convert: stochastic rounding needs a name");
        NEO__CHECK(desc->first >= 0, NEO_ERR_ARG, "neo_tensor_convert: first is %" PRId64,
                   desc->first);
        w.stochastic = 1;
        w.first = desc->first;
        w.key =
            neo__random_key_make(ctx->seed, neo_hash(desc->name), desc->step, NEO_STREAM_ROUNDING);
    }
    neo_parallel_for(ctx, w.count ? w.tasks : 0, neo__convert_task, &w);
    return NEO_OK;
}
NEO_API neo_status neo_tensor_copy(neo_ctx *ctx, neo_tensor src, neo_tensor dst) {
    NEO__TRY(neo__check_ctx("neo_tensor_copy", ctx));
    NEO__TRY(neo__same_shape(src, dst, "neo_tensor_copy"));
    NEO__CHECK(src.dtype == dst.dtype, NEO_ERR_SHAPE, "neo_tensor_copy: src is %s, dst %s",
               neo_dtype_name(src.dtype), neo_dtype_name(dst.dtype));
    neo__walk w;
    neo__walk_init(&w, ctx, src, dst);
    neo_parallel_for(ctx, w.count ? w.tasks : 0, neo__copy_task, &w);
    return NEO_OK;
}
static void neo__zero_task(void *arg, int64_t task, int worker) {
    const neo__walk *w = (const neo__walk *)arg;
    int64_t begin, end, size = (int64_t)neo_dtype_size(w->dst.dtype);
    (void)worker;
    neo__task_range(w->count, w->tasks, task, NEO__RUN, &begin, &end);
    memset((char *)w->dst.data + begin * size, 0, (size_t)((end - begin) * size));
}
NEO_API neo_status neo_tensor_zero(neo_ctx *ctx, neo_tensor t) {
    NEO__TRY(neo__check_ctx("neo_tensor_zero", ctx));
    NEO__TRY(neo__tensor_check(t, "neo_tensor_zero", "t"));
    NEO__CHECK(neo_tensor_is_contiguous(t), NEO_ERR_SHAPE, "neo_tensor_zero: t is not contiguous");
    neo__walk w;
    neo__walk_init(&w, ctx, t, t);
    neo_parallel_for(ctx, w.count ? w.tasks : 0, neo__zero_task, &w);
    return NEO_OK;
}

/* ---- the tree over parts ---- */
typedef struct neo__tree_sum_job {
    neo_ctx *ctx;
    const neo_tensor *parts;
    int count;
    float *out;
    int64_t n, tasks;
} neo__tree_sum_job;

/* Adding part i + s to part i for s = 1, 2, 4 ... is the tree that splits at the largest power of
   two. */
static void neo__tree_sum_task(void *arg, int64_t task, int worker) {
    const neo__tree_sum_job *job = (const neo__tree_sum_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(job->n, job->tasks, task, 1024, &begin, &end);
    for (int64_t at = begin; at < end; at += 1024) { /* pieces that stay in the cache */
        int64_t n = NEO__MIN(end - at, (int64_t)1024);
        for (int s = 1; s < job->count; s *= 2)
            for (int i = 0; i + s < job->count; i += 2 * s)
                job->ctx->vec->add((float *)job->parts[i].data + at,
                                   (const float *)job->parts[i + s].data + at, n);
        if (job->out != (float *)job->parts[0].data)
            memcpy(job->out + at, (const float *)job->parts[0].data + at,
                   (size_t)n * sizeof(float));
    }
}
NEO_API void neo_floats_decode(const neo_ctx *ctx, neo_dtype dtype, const void *src, float *dst, int64_t count) {
    neo__fp_state fp = neo__fp_enter();
    neo__decode_float(ctx, dtype, src, dst, count);
    neo__fp_leave(fp);
}
NEO_API void neo_floats_encode(const neo_ctx *ctx, neo_dtype dtype, const float *src, void *dst, int64_t count) {
    neo__fp_state fp = neo__fp_enter();
    neo__encode_float(ctx, dtype, src, dst, NULL, count);
    neo__fp_leave(fp);
}
NEO_API void neo_floats_add(const neo_ctx *ctx, float *x, const float *y, int64_t count) {
    neo__fp_state fp = neo__fp_enter();
    ctx->vec->add(x, y, count);
    neo__fp_leave(fp);
}

NEO_API neo_status neo_tree_sum(neo_ctx *ctx, const neo_tensor *parts, int count, neo_tensor out) {
    NEO__CHECK(ctx && parts && count > 0, NEO_ERR_ARG,
               "neo_tree_sum: ctx or parts is NULL, or count < 1");
    NEO__TRY(neo__tensor_check(out, "neo_tree_sum", "out"));
    for (int i = 0; i <= count; i++) {
        neo_tensor t = i < count ? parts[i] : out;
        NEO__TRY(neo__same_shape(t, out, "neo_tree_sum"));
        NEO__CHECK(t.dtype == NEO_F32 && neo_tensor_is_contiguous(t), NEO_ERR_SHAPE,
                   "neo_tree_sum: tensor %d is not contiguous f32", i);
    }
    neo__tree_sum_job job;
    job.ctx = ctx;
    job.parts = parts;
    job.count = count;
    job.out = (float *)out.data;
    job.n = neo_tensor_count(out);
    job.tasks = neo__task_count(ctx, job.n, 1 << 14);
    neo_parallel_for(ctx, job.n ? job.tasks : 0, neo__tree_sum_task, &job);
    return NEO_OK;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-random
   ------------------------------------------------------------------------------------------------ */
NEO_API uint64_t neo_hash(const char *name) {
    uint64_t h = 0xCBF29CE484222325u;
    for (const char *p = name ? name : ""; *p; p++) h = (h ^ (unsigned char)*p) * 0x100000001B3u;
    return neo__mix64(h);
}
NEO_API void neo_random_u32x4(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                              uint64_t index, uint32_t out[4]) {
    neo__random_key key = neo__random_key_make(seed, name_hash, step, stream);
    neo__random_block(&key, index, out);
}
NEO_API float neo_random_uniform(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                 uint64_t index) {
    neo__random_key key = neo__random_key_make(seed, name_hash, step, stream);
    uint32_t block[4];
    neo__random_block(&key, index / 4, block);
    return (float)(block[index % 4] >> 8) * 0x1p-24f;
}
NEO_API float neo_random_normal(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                uint64_t index) {
    neo__random_key key = neo__random_key_make(seed, name_hash, step, stream);
    float z[4];
    neo__fp_state fp = neo__fp_enter();
    neo__random_normal_scalar(z, 1, &key, index / 4, 0.0f, 1.0f);
    neo__fp_leave(fp);
    return z[index % 4];
}

/* ---- initial values ---- */
typedef struct neo__init_job {
    neo_ctx *ctx;
    float *out;
    int64_t count, tasks;
    int64_t cols, stride; /* of the rows of `out`, and of the whole parameter */
    uint64_t first;
    neo_init init;
    float scale, top;
    neo__random_key key;
} neo__init_job;

static void neo__init_blocks(const neo__init_job *job, float *y, int64_t blocks, uint64_t block) {
    if (job->init.kind == NEO_INIT_UNIFORM)
        job->ctx->tensor->uniform(y, blocks, &job->key, block, job->init.a, job->scale, job->top);
    else job->ctx->tensor->normal(y, blocks, &job->key, block, job->init.a, job->init.b);
}
/* Whole blocks go straight to memory; the ragged ends through a block of their own. */
static void neo__init_task(void *arg, int64_t task, int worker) {
    const neo__init_job *job = (const neo__init_job *)arg;
    int64_t i, end;
    (void)worker;
    neo__task_range(job->count, job->tasks, task, 256, &i, &end);
    if (job->init.kind == NEO_INIT_CONSTANT) {
        for (; i < end; i++) job->out[i] = job->init.a;
        return;
    }
    while (i < end) {
        int64_t row = i / job->cols, left = NEO__MIN(end, (row + 1) * job->cols) - i;
        uint64_t at = job->first + (uint64_t)(i + row * (job->stride - job->cols));
        int64_t blocks = left / 4;
        if (at % 4 == 0 && blocks > 0) {
            neo__init_blocks(job, job->out + i, blocks, at / 4);
            i += 4 * blocks;
        } else {
            float y[4];
            neo__init_blocks(job, y, 1, at / 4);
            for (uint64_t w = at % 4; w < 4 && left > 0; w++, left--) job->out[i++] = y[w];
        }
    }
}
NEO__COLD_BEGIN
/* The largest float below x. */
static float neo__float_below(float x) {
    uint32_t u = neo__bits_f32(x);
    if ((u & 0x7FFFFFFFu) == 0) return neo__f32_bits(0x80000001u);
    return neo__f32_bits(u >> 31 ? u + 1 : u - 1);
}
static neo_status neo__init_check(const neo_init *init, const char *name) {
    float a = init->a, b = init->b;
    switch (init->kind) {
    case NEO_INIT_NONE: break;
    case NEO_INIT_CONSTANT:
        NEO__CHECK(a - a == 0.0f, NEO_ERR_ARG, "neo_tensor_init: %s: the constant is not finite",
                   name);
        break;
    case NEO_INIT_UNIFORM:
        NEO__CHECK((b - a) - (b - a) == 0.0f && b >= a, NEO_ERR_ARG,
                   "neo_tensor_init: %s: uniform bounds %g, %g are not a finite range", name,
                   (double)a, (double)b);
        break;
    case NEO_INIT_NORMAL:
        NEO__CHECK(a - a == 0.0f && b - b == 0.0f && b >= 0.0f, NEO_ERR_ARG,
                   "neo_tensor_init: %s: normal of mean %g, deviation %g", name, (double)a,
                   (double)b);
        break;
    case NEO_INIT_DEFAULT:
    default:
        return neo_fail(NEO_ERR_ARG, "neo_tensor_init: %s: init kind %d says no values", name,
                         (int)init->kind);
    }
    return NEO_OK;
}
static neo__init_job neo__init_job_make(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                        int64_t first, int64_t stride) {
    neo__init_job job;
    job.ctx = ctx;
    job.out = (float *)t.data;
    job.count = neo_tensor_count(t);
    job.tasks = neo__task_count(ctx, job.count, 1 << 14);
    job.cols = stride ? t.shape[1] : NEO__MAX(job.count, (int64_t)1);
    job.stride = stride ? stride : job.cols;
    job.first = (uint64_t)first;
    job.init = init;
    job.scale = init.b - init.a;
    job.top = neo__float_below(init.b);
    job.key = neo__random_key_make(ctx->seed, neo_hash(name), 0, NEO_STREAM_INIT);
    if (init.kind == NEO_INIT_UNIFORM && init.a == init.b) job.init.kind = NEO_INIT_CONSTANT;
    return job;
}
/* stride: elements of the whole parameter from one row of t, a matrix, to the next; 0: t is one run of them. */
static neo_status neo__tensor_init(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                   int64_t first, int64_t stride) {
    NEO__CHECK(ctx && name, NEO_ERR_ARG, "neo_tensor_init: ctx or name is NULL");
    NEO__TRY(neo__tensor_check(t, "neo_tensor_init", name));
    NEO__CHECK(t.dtype == NEO_F32 && neo_tensor_is_contiguous(t), NEO_ERR_SHAPE,
               "neo_tensor_init: %s is not contiguous f32", name);
    NEO__CHECK(first >= 0, NEO_ERR_ARG, "neo_tensor_init: %s: first is %" PRId64, name, first);
    NEO__TRY(neo__init_check(&init, name));
    neo__init_job job = neo__init_job_make(ctx, t, name, init, first, stride);
    if (init.kind != NEO_INIT_NONE)
        neo_parallel_for(ctx, job.count ? job.tasks : 0, neo__init_task, &job);
    return NEO_OK;
}
NEO_API neo_status neo_tensor_init(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                   int64_t first) {
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__tensor_init(ctx, t, name, init, first, 0);
    neo__fp_leave(fp);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-exact

   A float is m 2^(p - 160) with a 24-bit integer m and p in [11, 264], so it falls on at most two
   of the 32-bit digits. A digit is kept in 64 bits and takes 2^31 terms before it could overflow;
   normalising carries, and leaves digits in [0, 2^32) under a top word that holds the sign. Sums
   equal in value then have equal words, whatever the order was.
   ------------------------------------------------------------------------------------------------ */
#define NEO__EXACT_TERMS ((int64_t)1 << 30)

NEO_API void neo_exact_zero(neo_exact *sum) { memset(sum, 0, sizeof *sum); }

NEO_API void neo_exact_normalize(neo_exact *sum) {
    int64_t carry = 0;
    for (int i = 0; i < NEO_EXACT_WORDS - 1; i++) {
        int64_t word = sum->word[i] + carry;
        int64_t digit = (int64_t)((uint64_t)word & 0xFFFFFFFFu);
        carry = (word - digit) / ((int64_t)1 << 32);
        sum->word[i] = digit;
    }
    sum->word[NEO_EXACT_WORDS - 1] += carry;
    sum->terms = 1; /* digits as large as one term can make them */
}

NEO_API void neo_exact_add(neo_exact *sum, float x) {
    uint32_t u = neo__bits_f32(x);
    uint32_t e = u >> 23 & 0xFFu, m = u & 0x7FFFFFu;
    if (e == 0xFFu) {
        if (m) sum->nan++;
        else if (u >> 31) sum->neg_inf++;
        else sum->pos_inf++;
        return;
    }
    if (sum->terms >= NEO__EXACT_TERMS) neo_exact_normalize(sum);
    sum->terms++;
    if (e) m |= 0x800000u;
    else e = 1;
    uint32_t p = e + 10u; /* e - 150 + 160 */
    uint64_t wide = (uint64_t)m << (p & 31u);
    int64_t low = (int64_t)(wide & 0xFFFFFFFFu), high = (int64_t)(wide >> 32);
    int64_t sign = -(int64_t)(u >> 31); /* 0 or -1: (v ^ sign) - sign negates */
    int64_t *word = sum->word + (p >> 5);
    word[0] += (low ^ sign) - sign;
    word[1] += (high ^ sign) - sign;
}

NEO_API void neo_exact_merge(neo_exact *sum, const neo_exact *other) {
    neo_exact o = *other;
    if (o.terms >= NEO__EXACT_TERMS) neo_exact_normalize(&o);
    if (sum->terms >= NEO__EXACT_TERMS) neo_exact_normalize(sum);
    for (int i = 0; i < NEO_EXACT_WORDS; i++) sum->word[i] += o.word[i];
    sum->terms += o.terms;
    sum->nan += o.nan;
    sum->pos_inf += o.pos_inf;
    sum->neg_inf += o.neg_inf;
}

NEO_API double neo_exact_value(const neo_exact *sum) {
    if (sum->nan || (sum->pos_inf && sum->neg_inf)) return neo__f64_bits(0x7FF8000000000000u);
    if (sum->pos_inf) return neo__f64_bits(0x7FF0000000000000u);
    if (sum->neg_inf) return neo__f64_bits(0xFFF0000000000000u);
    neo_exact s = *sum;
    neo_exact_normalize(&s);
    int negative = s.word[NEO_EXACT_WORDS - 1] < 0;
    if (negative) {
        for (int i = 0; i < NEO_EXACT_WORDS; i++) s.word[i] = -s.word[i];
        neo_exact_normalize(&s);
    }
    uint32_t digit[NEO_EXACT_WORDS + 1]; /* the top word as two digits */
    for (int i = 0; i < NEO_EXACT_WORDS; i++) digit[i] = (uint32_t)s.word[i];
    digit[NEO_EXACT_WORDS] = (uint32_t)((uint64_t)s.word[NEO_EXACT_WORDS - 1] >> 32);
    int top = NEO_EXACT_WORDS;
    while (top >= 0 && digit[top] == 0) top--;
    if (top < 0) return 0.0;
    int bits = 32; /* of the top digit */
    while (!(digit[top] >> (bits - 1))) bits--;

    /* The first 64 bits, then round to 53 by the bits that remain. */
    uint64_t head = 0;
    int sticky = 0, low = 32 * top + bits - 64; /* position of head's last bit */
    for (int i = top; i >= 0; i--) {
        int shift = 32 * i - low;
        if (shift >= 0) head |= (uint64_t)digit[i] << shift;
        else if (shift > -32)
            head |= digit[i] >> -shift, sticky |= (digit[i] << (32 + shift)) != 0;
        else sticky |= digit[i] != 0;
    }
    uint64_t rest = head & 0x7FFu, mantissa = head >> 11;
    if (rest > 0x400u || (rest == 0x400u && (sticky || (mantissa & 1)))) mantissa++;
    /* The value is at least 2^-149 and below 2^256: a normal double. A carry of the rounding runs
       into the exponent. */
    uint64_t exponent = (uint64_t)(low + 11 + 52 - 160 + 1023);
    uint64_t code = ((exponent - 1) << 52) + mantissa;
    return neo__f64_bits(code | (uint64_t)negative << 63);
}
/* ------------------------------------------------------------------------------------------------
   >>impl-gemm

   C = beta C + A B for f32. Every element is one chain of fused multiply-adds over k, so lanes go
   over columns (over rows for products with very few columns: then A and B change roles and C is
   written transposed), and blocks of k store their partial sums and go on from there. A tile (see
   >>kernels-gemm) holds about 14 x 32 sums in registers. C is cut into rectangles of tiles, the
   tasks; each goes over k in segments, packs the segment's panels of B into its worker's scratch
   (they stay in the second-level cache), then takes tile rows one by one: packs the row's part of A
   where that pays (it stays in the first level), and runs along the panels.

   With leaves (see >>impl-leaves), k is the sample: each leaf's sum starts at zero and merges into
   the tree while it is in registers; the waiting subtree sums of a tile stand in the worker's
   scratch.
   ------------------------------------------------------------------------------------------------ */
enum {
    NEO__GEMM_SEGMENT = 512,           /* of k */
    NEO__GEMM_B_FLOATS = 1 << 18,      /* packed panels of a task: 1 MiB */
    NEO__GEMM_GROUP = 8,               /* rows of tiles packed together */
    NEO__GEMM_A_FLOATS = 16 * 8 * 512, /* their part of A: 256 KiB */
    NEO__GEMM_SUM_FLOATS = 160 << 10,  /* subtree sums: 640 KiB */
    NEO__GEMM_MAX_PIECES = 4096 + 1,   /* of a segment: as many as there are leaves, and one cut */
    NEO__GEMM_GRAIN = 1 << 17,         /* multiply-adds that are worth a task */
    NEO__GEMM_SWAP_COLS = 4            /* up to so many columns, lanes go over rows */
};

/* A part of a leaf inside a segment. */
typedef struct neo__gemm_piece {
    int32_t begin, count; /* of k, in the segment */
    int32_t resume;       /* goes on from what an earlier segment left in `slot` */
    int32_t slot;         /* subtree sums waiting */
    int32_t merges;       /* of them, with this leaf */
    int32_t last;         /* the result is the whole sum */
} neo__gemm_piece;
NEO__STATIC_ASSERT((size_t)(NEO__GEMM_B_FLOATS + NEO__GEMM_A_FLOATS + NEO__GEMM_SUM_FLOATS) *
                               sizeof(float) +
                           NEO__GEMM_MAX_PIECES * sizeof(neo__gemm_piece) <=
                       NEO__WORKER_SCRATCH_BYTES,
                   "a worker's scratch holds a task of >>impl-gemm");

/* What happens to finished rows of C while they are in the cache. */
typedef struct neo__gemm_finish {
    neo_activation act;
    int backward;   /* 0: y = act(c). 1: c = c act'(z, y) */
    float *y;       /* NULL: c itself (forward) */
    const float *z; /* backward */
    int64_t y_row, z_row;
} neo__gemm_finish;

typedef struct neo__gemm {
    neo_ctx *ctx;
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_row, a_k, b_k, b_col; /* strides; of each operand one is 1 */
    float *c;
    int64_t c_row;
    float beta;
    const float *bias;
    neo__gemm_finish finish;
    neo_leaves leaves;
    int tree; /* sum by leaves */
    /* planned */
    int swapped; /* m, n, a, b are those of C transposed */
    int dots;    /* one column: the wide operand is transposed on the way, not packed */
    int pack_a, pack_b;
    int64_t width, last_width, panels, segments;
    int64_t tiles,
        even_tiles; /* rows of tiles; those with an even number of rows, which come first */
    int64_t task_tiles, task_panels, row_tasks, col_tasks;
    int depth; /* of the tree: waiting subtree sums of a tile */
} neo__gemm;

static void neo__gemm_swap(neo__gemm *g) {
    const float *a = g->a;
    int64_t m = g->m, a_row = g->a_row, a_k = g->a_k;
    g->m = g->n, g->n = m;
    g->a = g->b, g->a_row = g->b_col, g->a_k = g->b_k;
    g->b = a, g->b_col = a_row, g->b_k = a_k;
    g->swapped = 1;
}

/* Cut C into tasks: panels that fit the scratch, then halves of the longer side until there are
   enough. Panels that have to be transposed are dear: every task of a column packs them again, so
   columns are cut more readily. */
static void neo__gemm_plan(neo__gemm *g) {
    const neo__gemm_kernels *kern = g->ctx->gemm;
    const int64_t lanes = kern->lanes, dear = g->b_col != 1 ? 4 : 1;
    if (g->k == 0) { /* operands may have no memory */
        g->a = g->b = g->c;
        g->a_row = g->a_k = g->b_k = g->b_col = 0;
    }
    if (!g->tree && g->n <= NEO__GEMM_SWAP_COLS && g->m >= 2 * lanes && g->m > g->n)
        neo__gemm_swap(g);
    g->dots = g->swapped && g->m == 1 && g->b_k == 1;
    g->width = 2 * lanes;
    if (!g->dots && g->n <= lanes) g->width = lanes;
    if (!g->dots && g->m == 1 && g->n > 2 * lanes) g->width = 8 * lanes;
    g->panels = (g->n + g->width - 1) / g->width;
    g->last_width = g->width;
    if (!g->dots && g->width == 2 * lanes && g->n - (g->panels - 1) * g->width <= lanes)
        g->last_width = lanes;
    g->even_tiles = (g->m / 2 + kern->rows / 2 - 1) / (kern->rows / 2);
    g->tiles = g->even_tiles + g->m % 2;
    g->segments = g->dots ? 1 : NEO__MAX(1, (g->k + NEO__GEMM_SEGMENT - 1) / NEO__GEMM_SEGMENT);
    g->depth = g->tree ? neo__tree_depth(g->leaves.count) : 0;

    const int64_t segment = (g->k + g->segments - 1) / g->segments;
    int64_t cols = NEO__MAX(1, NEO__GEMM_B_FLOATS / (NEO__MAX(segment, 1) * g->width));
    int64_t rows = g->tiles;
    cols = NEO__MIN(cols, g->panels);
    const int64_t sums =
        g->tree ? NEO__GEMM_SUM_FLOATS / (g->depth * kern->rows * g->width) : INT64_MAX;
    const int64_t enough = g->ctx->threads == 1 ? 1 : 4 * (int64_t)g->ctx->threads;
    for (;;) {
        int64_t tasks = ((g->tiles + rows - 1) / rows) * ((g->panels + cols - 1) / cols);
        double work = (double)(rows * kern->rows) * (double)(cols * g->width) * (double)g->k;
        int fits = rows <= sums / cols;
        if (fits && (tasks >= enough || work < 2.0 * (double)NEO__GEMM_GRAIN)) break;
        if (rows == 1 && cols == 1) break;
        if (cols == 1 || (rows > 1 && rows * kern->rows >= dear * cols * g->width))
            rows = (rows + 1) / 2;
        else cols = (cols + 1) / 2;
    }
    g->task_tiles = NEO__MAX(rows, 1);
    g->task_panels = NEO__MAX(cols, 1);
    g->row_tasks = (g->tiles + g->task_tiles - 1) / g->task_tiles;
    g->col_tasks = (g->panels + g->task_panels - 1) / g->task_panels;
    g->pack_b = !g->dots && (g->b_col != 1 || rows >= 3);
    g->pack_a = g->a_row == 1 ? cols >= 4 : cols >= 12 || (g->a_row % 1024 == 0 && cols >= 2);
}

/* ---- leaves ---- */
typedef struct neo__gemm_walk {
    int leaf, height, open; /* open: the leaf has begun in an earlier segment */
    int64_t k;
} neo__gemm_walk;

/* The pieces of the segment [walk->k, end), and the walk moved behind it. */
static int neo__gemm_pieces(const neo__gemm *g, neo__gemm_walk *walk, int64_t end,
                            neo__gemm_piece *piece) {
    const int64_t base = walk->k;
    int count = 0;
    while (walk->leaf < g->leaves.count) {
        int64_t leaf_begin, leaf_end;
        neo__leaf_rows(g->ctx, &g->leaves, walk->leaf, &leaf_begin, &leaf_end);
        const int64_t stop = NEO__MIN(leaf_end, end);
        if (leaf_end > end && stop == walk->k) break;
        const int last = walk->leaf == g->leaves.count - 1;
        neo__gemm_piece *p = &piece[count++];
        p->begin = (int32_t)(walk->k - base);
        p->count = (int32_t)(stop - walk->k);
        p->resume = walk->open;
        p->slot = walk->height;
        p->last = 0;
        walk->k = stop;
        if (leaf_end > end) {
            p->merges = 0;
            walk->open = 1;
            break;
        }
        p->last = last;
        p->merges = last ? walk->height : neo__tree_merges(walk->leaf);
        walk->height += 1 - p->merges;
        walk->open = 0;
        walk->leaf++;
    }
    return count;
}

/* ---- a tile ---- */
typedef struct neo__gemm_place {
    int64_t m0, rows, n0, cols, width; /* rows x cols of C, in a panel of `width` */
    int first, final;                  /* segment */
} neo__gemm_place;

NEO__INLINE void neo__gemm_kernel(const neo__gemm *g, const neo__tile *t, int64_t rows,
                                  int64_t width) {
    const neo__gemm_kernels *kern = g->ctx->gemm;
    if (g->dots) kern->dots(t);
    else if (width == kern->lanes) kern->tile1[rows / 2](t);
    else if (width == 2 * kern->lanes) kern->tile2[rows / 2](t);
    else kern->row8(t);
}

/* Where a tile is narrower than its panel, or C is scaled or transposed, the sums pass through a
   buffer. */
NEO__INLINE float *neo__gemm_at(const neo__gemm *g, int64_t m, int64_t n) {
    return g->c + (g->swapped ? n * g->c_row + m : m * g->c_row + n);
}
static void neo__gemm_gather(const neo__gemm *g, const neo__gemm_place *p, float scale,
                             float *buffer) {
    for (int64_t i = 0; i < p->rows; i++) {
        const float *c = neo__gemm_at(g, p->m0 + i, p->n0);
        const int64_t step = g->swapped ? g->c_row : 1;
        for (int64_t j = 0; j < p->cols; j++) buffer[i * p->width + j] = scale * c[j * step];
        for (int64_t j = p->cols; j < p->width; j++) buffer[i * p->width + j] = 0.0f;
    }
}
static void neo__gemm_scatter(const neo__gemm *g, const neo__gemm_place *p, const float *buffer) {
    const float *bias = g->swapped && p->final ? g->bias : NULL;
    for (int64_t i = 0; i < p->rows; i++, buffer += p->width) {
        float *c = neo__gemm_at(g, p->m0 + i, p->n0);
        if (!g->swapped) {
            memcpy(c, buffer, (size_t)p->cols * sizeof *c);
        } else if (bias) {
            for (int64_t j = 0; j < p->cols; j++) c[j * g->c_row] = buffer[j] + bias[p->m0 + i];
        } else {
            for (int64_t j = 0; j < p->cols; j++) c[j * g->c_row] = buffer[j];
        }
    }
}

/* t holds the operands of the segment; its k and everything about C is set here. */
static void neo__gemm_tile(const neo__gemm *g, neo__tile *t, const neo__gemm_place *p) {
    float buffer[NEO__TILE_MAX_FLOATS], bias[NEO__TILE_MAX_FLOATS];
    const float scale = p->first ? g->beta : 1.0f;
    const int direct = p->cols == p->width && !g->swapped && (scale == 0.0f || scale == 1.0f);
    t->c = direct ? neo__gemm_at(g, p->m0, p->n0) : buffer;
    t->c_row = direct ? g->c_row : p->width;
    t->init = scale != 0.0f ? t->c : NULL;
    t->init_row = t->c_row;
    if (!direct && t->init) neo__gemm_gather(g, p, scale, buffer);
    t->bias = NULL;
    t->relu = 0;
    if (p->final && !g->swapped) {
        t->relu = g->finish.act == NEO_ACT_RELU && !g->finish.backward && !g->finish.y;
        if (g->bias && direct) {
            t->bias = g->bias + p->n0;
        } else if (g->bias) {
            for (int64_t j = 0; j < p->width; j++)
                bias[j] = j < p->cols ? g->bias[p->n0 + j] : 0.0f;
            t->bias = bias;
        }
    }
    neo__gemm_kernel(g, t, p->rows, p->width);
    if (!direct) neo__gemm_scatter(g, p, buffer);
}

/* The same over leaves; sums: the waiting subtree sums of this tile. Only the whole goes to C. */
static void neo__gemm_tree_tile(const neo__gemm *g, neo__tile *t, const neo__gemm_place *p,
                                const neo__gemm_piece *piece, int pieces, float *sums) {
    float buffer[NEO__TILE_MAX_FLOATS];
    const float *a = t->a, *b = t->b;
    const int64_t step = (int64_t)g->ctx->gemm->rows * g->width;
    const int direct = p->cols == p->width;
    t->bias = NULL;
    t->relu = 0;
    t->merge_step = step;
    t->init_row = p->width;
    for (int i = 0; i < pieces; i++, piece++) {
        float *slot = sums + piece->slot * step;
        t->k = piece->count;
        t->a = a + piece->begin * t->a_k;
        t->b = b + piece->begin * t->b_k;
        t->init = piece->resume ? slot : NULL;
        t->merges = piece->merges;
        t->merge = slot - step;
        if (piece->last && direct) {
            t->c = neo__gemm_at(g, p->m0, p->n0);
            t->c_row = g->c_row;
        } else {
            t->c = piece->last ? buffer : slot - piece->merges * step;
            t->c_row = p->width;
        }
        neo__gemm_kernel(g, t, p->rows, p->width);
        if (piece->last && !direct) neo__gemm_scatter(g, p, buffer);
    }
}

/* ---- a task ---- */
/* Rows [m0, m1), columns [n0, n1) of C as the caller knows it are done. */
static void neo__gemm_finish_rows(const neo__gemm *g, int64_t m0, int64_t m1, int64_t n0,
                                  int64_t n1) {
    const neo__gemm_finish *f = &g->finish;
    const neo__vec_kernels *vec = g->ctx->vec;
    if (f->act == NEO_ACT_NONE && !f->y) return;
    const int whole = g->c_row == n1 - n0 && (!f->y || f->y_row == g->c_row) &&
                      (!f->z || f->z_row == g->c_row); /* contiguous: one call */
    const int64_t calls = whole ? 1 : m1 - m0, count = whole ? (m1 - m0) * (n1 - n0) : n1 - n0;
    for (int64_t i = m0; i < m0 + calls; i++) {
        float *c = g->c + i * g->c_row + n0, *y = f->y ? f->y + i * f->y_row + n0 : NULL;
        const float *z = f->z ? f->z + i * f->z_row + n0 : NULL;
        if (f->backward) vec->act_backward(f->act, z, y, c, c, count);
        else vec->act_forward(f->act, c, y ? y : c, count);
    }
}

/* Panels [p0, p1) of B, rows [k0, k1). */
static void neo__gemm_pack_b(const neo__gemm *g, float *to, int64_t p0, int64_t p1, int64_t k0,
                             int64_t k1) {
    const neo__gemm_kernels *kern = g->ctx->gemm;
    for (int64_t p = p0; p < p1 && !g->dots; p++) {
        const int64_t n0 = p * g->width, cols = NEO__MIN(g->width, g->n - n0);
        const int64_t width = p == g->panels - 1 ? g->last_width : g->width;
        float *panel = to + (p - p0) * g->width * (k1 - k0);
        if (!g->pack_b && cols == width) continue;
        const float *from = g->b + k0 * g->b_k + n0 * g->b_col;
        if (g->b_col == 1) kern->pack(panel, width, from, g->b_k, k1 - k0, cols);
        else kern->pack_transposed(panel, width, from, g->b_col, k1 - k0, cols);
    }
}
/* First row of a row of tiles. All have about as many rows, in twos; an odd last row has a tile of
   its own. */
NEO__INLINE int64_t neo__gemm_tile_begin(const neo__gemm *g, int64_t tile) {
    if (tile > g->even_tiles) return g->m;
    return g->even_tiles ? g->m / 2 * tile / g->even_tiles * 2 : 0;
}
/* A's rows of tiles [t0, t1), k in [k0, k1), each to its own panel. Where A lies k-major, a few k
   at a time for all of them: its lines are longer than a tile, and far apart. */
static void neo__gemm_pack_a(const neo__gemm *g, float *to, int64_t t0, int64_t t1, int64_t k0,
                             int64_t k1) {
    const neo__gemm_kernels *kern = g->ctx->gemm;
    const int64_t base = neo__gemm_tile_begin(g, t0), step = g->a_row == 1 ? 32 : k1 - k0;
    for (int64_t k = k0; k < k1; k += step) {
        const int64_t count = NEO__MIN(step, k1 - k);
        for (int64_t t = t0; t < t1; t++) {
            const int64_t m0 = neo__gemm_tile_begin(g, t),
                          rows = neo__gemm_tile_begin(g, t + 1) - m0;
            const float *from = g->a + m0 * g->a_row + k * g->a_k;
            float *panel = to + (m0 - base) * (k1 - k0) + (k - k0) * rows;
            if (g->a_row == 1) kern->pack(panel, rows, from, g->a_k, count, rows);
            else kern->pack_transposed(panel, rows, from, g->a_row, count, rows);
        }
    }
}

typedef struct neo__gemm_scratch {
    float *b, *a, *sums;
    neo__gemm_piece *piece;
    int pieces;
} neo__gemm_scratch;

/* A row of tiles of a task in one segment; packed_a: its part of A, or NULL. */
static void neo__gemm_tile_row(const neo__gemm *g, const neo__gemm_scratch *s, int64_t tile,
                               int64_t first_tile, const float *packed_a, int64_t p0, int64_t p1,
                               int64_t k0, int64_t k1) {
    NEO__ZERO(neo__tile, t);
    neo__gemm_place p;
    p.m0 = neo__gemm_tile_begin(g, tile);
    p.rows = neo__gemm_tile_begin(g, tile + 1) - p.m0;
    p.first = k0 == 0;
    p.final = k1 == g->k;
    t.a = packed_a ? packed_a : g->a + p.m0 * g->a_row + k0 * g->a_k;
    t.a_row = packed_a ? 1 : g->a_row;
    t.a_k = packed_a ? p.rows : g->a_k;
    const float *a = t.a;
    const int64_t slot_floats = g->depth * (int64_t)g->ctx->gemm->rows * g->width;
    for (int64_t panel = p0; panel < p1; panel++) {
        p.n0 = panel * g->width;
        p.cols = NEO__MIN(g->width, g->n - p.n0);
        p.width = panel == g->panels - 1 ? g->last_width : g->width;
        t.a = a;
        t.k = k1 - k0;
        if (g->dots) {
            t.b = g->b + p.n0 * g->b_col;
            t.b_col = g->b_col;
            t.b_cols = p.cols;
        } else if (g->pack_b || p.cols < p.width) {
            t.b = s->b + (panel - p0) * g->width * (k1 - k0);
            t.b_k = p.width;
        } else {
            t.b = g->b + k0 * g->b_k + p.n0;
            t.b_k = g->b_k;
        }
        if (g->tree)
            neo__gemm_tree_tile(g, &t, &p, s->piece, s->pieces,
                                s->sums +
                                    ((tile - first_tile) * (p1 - p0) + panel - p0) * slot_floats);
        else neo__gemm_tile(g, &t, &p);
    }
    if (!p.final) return;
    const int64_t n0 = p0 * g->width, n1 = NEO__MIN(p1 * g->width, g->n);
    if (g->swapped) neo__gemm_finish_rows(g, n0, n1, p.m0, p.m0 + p.rows);
    else if (g->finish.act != NEO_ACT_RELU || g->finish.backward || g->finish.y)
        neo__gemm_finish_rows(g, p.m0, p.m0 + p.rows, n0, n1);
}

static void neo__gemm_task(void *arg, int64_t index, int worker) {
    const neo__gemm *g = (const neo__gemm *)arg;
    const int64_t row = index / g->col_tasks, col = index % g->col_tasks;
    const int64_t t0 = g->tiles * row / g->row_tasks, t1 = g->tiles * (row + 1) / g->row_tasks;
    const int64_t p0 = g->panels * col / g->col_tasks, p1 = g->panels * (col + 1) / g->col_tasks;
    neo__gemm_scratch s;
    s.b = (float *)(void *)neo__worker_scratch(g->ctx, worker);
    s.a = s.b + NEO__GEMM_B_FLOATS;
    s.sums = s.a + NEO__GEMM_A_FLOATS;
    s.piece = (neo__gemm_piece *)(void *)(s.sums + NEO__GEMM_SUM_FLOATS);
    s.pieces = 0;
    NEO__ZERO(neo__gemm_walk, walk);
    for (int64_t i = 0; i < g->segments; i++) {
        const int64_t k0 = g->k * i / g->segments, k1 = g->k * (i + 1) / g->segments;
        if (g->tree) s.pieces = neo__gemm_pieces(g, &walk, k1, s.piece);
        neo__gemm_pack_b(g, s.b, p0, p1, k0, k1);
        for (int64_t t = t0; t < t1; t++) {
            const float *a = NULL;
            const int64_t group = t0 + (t - t0) / NEO__GEMM_GROUP * NEO__GEMM_GROUP;
            if (g->pack_a) {
                if (t == group)
                    neo__gemm_pack_a(g, s.a, group, NEO__MIN(group + NEO__GEMM_GROUP, t1), k0, k1);
                a = s.a + (neo__gemm_tile_begin(g, t) - neo__gemm_tile_begin(g, group)) * (k1 - k0);
            }
            neo__gemm_tile_row(g, &s, t, t0, a, p0, p1, k0, k1);
        }
    }
}

/* ---- the user's BLAS ---- */
#ifdef NEO_SGEMM
static void neo__gemm_finish_task(void *arg, int64_t row, int worker) {
    const neo__gemm *g = (const neo__gemm *)arg;
    (void)worker;
    if (g->bias) g->ctx->vec->add(g->c + row * g->c_row, g->bias, g->n);
    neo__gemm_finish_rows(g, row, row + 1, 0, g->n);
}
static int neo__gemm_by_hook(neo__gemm *g) {
    if (g->tree || (double)g->m * (double)g->n * (double)g->k < 32768.0) return 0;
    const int trans_a = g->a_k != 1, trans_b = g->b_col != 1;
    const int64_t a_cols = trans_a ? g->m : g->k, b_cols = trans_b ? g->k : g->n;
    int64_t lda = trans_a ? g->a_k : g->a_row, ldb = trans_b ? g->b_col : g->b_k, ldc = g->c_row;
    if ((trans_a ? g->k : g->m) == 1) lda = a_cols; /* a BLAS checks the distance even of one row */
    if ((trans_b ? g->n : g->k) == 1) ldb = b_cols;
    if (g->m == 1) ldc = g->n;
    if (lda < a_cols || ldb < b_cols || ldc < g->n) return 0; /* rows that overlap or run backwards */
    NEO_SGEMM(trans_a, trans_b, g->m, g->n, g->k, g->a, lda, g->b, ldb, g->beta, g->c, ldc);
    neo_parallel_for(g->ctx, g->m, neo__gemm_finish_task, g);
    return 1;
}
#else
static int neo__gemm_by_hook(const neo__gemm *g) {
    (void)g;
    return 0;
}
#endif

static void neo__gemm_run(neo__gemm *g) {
    if (g->m == 0 || g->n == 0 || neo__gemm_by_hook(g)) return;
    neo__gemm_plan(g);
    neo_parallel_for(g->ctx, g->row_tasks * g->col_tasks, neo__gemm_task, g);
}

/* ---- checks ---- */
/* A matrix [rows][cols] of f32 with last stride 1. An output's rows may not overlap. */
static neo_status neo__check_matrix(neo_tensor t, int64_t rows, int64_t cols, int output,
                                    const char *function, const char *name) {
    NEO__CHECK(t.ndim == 2 && t.dtype == NEO_F32, NEO_ERR_SHAPE,
               "%s: %s is not a two-dimensional f32 tensor", function, name);
    NEO__CHECK(rows >= 0 && cols >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function, name);
    NEO__CHECK(t.shape[0] == rows && t.shape[1] == cols, NEO_ERR_SHAPE,
               "%s: %s is [%" PRId64 "][%" PRId64 "], expected [%" PRId64 "][%" PRId64 "]",
               function, name, t.shape[0], t.shape[1], rows, cols);
    if (rows == 0 || cols == 0) return NEO_OK;
    if (!t.data) return neo__no_data(function, name, t, NEO_ERR_SHAPE);
    NEO__CHECK(cols == 1 || t.stride[1] == 1, NEO_ERR_SHAPE,
               "%s: the last stride of %s is %" PRId64 ", not 1", function, name, t.stride[1]);
    NEO__CHECK(!output || rows == 1 || t.stride[0] >= cols || t.stride[0] <= -cols, NEO_ERR_SHAPE,
               "%s: the rows of %s overlap (stride %" PRId64 ")", function, name, t.stride[0]);
    return NEO_OK;
}
static neo_status neo__check_vector(neo_tensor t, int64_t count, const char *function,
                                    const char *name) {
    NEO__CHECK(t.ndim == 1 && t.dtype == NEO_F32 && t.shape[0] == count, NEO_ERR_SHAPE,
               "%s: %s is not an f32 tensor [%" PRId64 "]", function, name, count);
    if (count > 0 && !t.data) return neo__no_data(function, name, t, NEO_ERR_SHAPE);
    NEO__CHECK(count <= 1 || t.stride[0] == 1, NEO_ERR_SHAPE, "%s: %s is not contiguous", function,
               name);
    return NEO_OK;
}
NEO__INLINE float *neo__f32(neo_tensor t) { return (float *)t.data; }

NEO_API neo_status neo_gemm(neo_ctx *ctx, const neo_gemm_desc *desc, neo_tensor a, neo_tensor b,
                            neo_tensor c) {
    NEO__TRY(neo__check_ctx("neo_gemm", ctx));
    NEO__ZERO(neo_gemm_desc, d);
    if (desc) d = *desc;
    NEO__CHECK(a.ndim == 2 && b.ndim == 2 && c.ndim == 2, NEO_ERR_SHAPE,
               "neo_gemm: a, b and c must have two dimensions");
    NEO__CHECK((unsigned)d.act <= (unsigned)NEO_ACT_HARDSWISH, NEO_ERR_ARG,
               "neo_gemm: unknown activation %d", (int)d.act);
    NEO__ZERO(neo__gemm, g);
    g.ctx = ctx;
    g.m = c.shape[0];
    g.n = c.shape[1];
    g.k = a.shape[d.trans_a ? 0 : 1];
    NEO__TRY(
        neo__check_matrix(a, d.trans_a ? g.k : g.m, d.trans_a ? g.m : g.k, 0, "neo_gemm", "a"));
    NEO__TRY(
        neo__check_matrix(b, d.trans_b ? g.n : g.k, d.trans_b ? g.k : g.n, 0, "neo_gemm", "b"));
    NEO__TRY(neo__check_matrix(c, g.m, g.n, 1, "neo_gemm", "c"));
    g.a = neo__f32(a);
    g.a_row = d.trans_a ? 1 : a.stride[0];
    g.a_k = d.trans_a ? a.stride[0] : 1;
    g.b = neo__f32(b);
    g.b_k = d.trans_b ? 1 : b.stride[0];
    g.b_col = d.trans_b ? b.stride[0] : 1;
    g.c = neo__f32(c);
    g.c_row = c.stride[0];
    g.beta = d.beta;
    g.bias = d.bias;
    g.finish.act = d.act;
    neo__gemm_run(&g);
    return NEO_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-linear

   dW = dZ^T X is a product whose k is the sample: >>impl-gemm sums it by leaves. db adds the
   columns of dZ leaf by leaf, in the same parallel region. dX = dZ W can be multiplied by the
   derivative of the activation before it while its rows are in the cache.
   ------------------------------------------------------------------------------------------------ */
enum {
    NEO__BIAS_COLS = 256, /* columns of db that a task adds */
    NEO__BIAS_DEPTH = 16  /* subtree sums waiting: more than any tree of 4096 leaves has */
};

typedef struct neo__linear_grads {
    neo__gemm dw;
    int64_t dw_tasks;
    const float *dz;
    int64_t dz_row, out;
    float *dbias;
} neo__linear_grads;

static void neo__linear_bias_task(const neo__linear_grads *g, int64_t j0, int worker) {
    neo_ctx *ctx = g->dw.ctx;
    const int64_t cols = NEO__MIN((int64_t)NEO__BIAS_COLS, g->out - j0);
    float *sums = (float *)(void *)neo__worker_scratch(ctx, worker);
    int height = 0;
    for (int leaf = 0; leaf < g->dw.leaves.count; leaf++) {
        int64_t begin, end;
        neo__leaf_rows(ctx, &g->dw.leaves, leaf, &begin, &end);
        float *slot = sums + height * NEO__BIAS_COLS;
        ctx->gemm->column_sums(slot, g->dz + begin * g->dz_row + j0, g->dz_row, end - begin, cols);
        int merges = leaf == g->dw.leaves.count - 1 ? height : neo__tree_merges(leaf);
        for (int i = 0; i < merges; i++, slot -= NEO__BIAS_COLS)
            ctx->vec->add(slot - NEO__BIAS_COLS, slot, cols);
        height += 1 - merges;
        NEO_ASSERT(height < NEO__BIAS_DEPTH);
    }
    if (g->dw.leaves.count > 0) memcpy(g->dbias + j0, sums, (size_t)cols * sizeof *sums);
    else memset(g->dbias + j0, 0, (size_t)cols * sizeof *sums);
}
static void neo__linear_grads_task(void *arg, int64_t index, int worker) {
    neo__linear_grads *g = (neo__linear_grads *)arg;
    if (index < g->dw_tasks) neo__gemm_task(&g->dw, index, worker);
    else neo__linear_bias_task(g, (index - g->dw_tasks) * NEO__BIAS_COLS, worker);
}

/* dw and dbias of checked tensors. */
static void neo__linear_grads_run(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                  neo_tensor dz, neo_tensor dw, neo_tensor dbias) {
    NEO__ZERO(neo__linear_grads, g);
    g.dw.ctx = ctx;
    g.dw.m = dz.shape[1];
    g.dw.n = x.shape[1];
    g.dw.k = x.shape[0];
    g.dw.a = neo__f32(dz), g.dw.a_row = 1, g.dw.a_k = dz.stride[0];
    g.dw.b = neo__f32(x), g.dw.b_k = x.stride[0], g.dw.b_col = 1;
    g.dw.c = neo__f32(dw), g.dw.c_row = dw.stride[0];
    g.dw.leaves = *leaves;
    g.dw.tree = leaves->count > 1;
    g.dz =
        dz.shape[0] > 0 ? neo__f32(dz) : neo__f32(dbias); /* a batch of none may have no memory */
    g.dz_row = dz.stride[0];
    g.out = dz.shape[1];
    g.dbias = neo__f32(dbias);
    if (dw.data && g.dw.m > 0 && g.dw.n > 0 && !neo__gemm_by_hook(&g.dw)) {
        neo__gemm_plan(&g.dw);
        g.dw_tasks = g.dw.row_tasks * g.dw.col_tasks;
    }
    const int64_t bias_tasks = dbias.data ? (g.out + NEO__BIAS_COLS - 1) / NEO__BIAS_COLS : 0;
    neo_parallel_for(ctx, g.dw_tasks + bias_tasks, neo__linear_grads_task, &g);
}

/* y = x w^T + bias, then what `finish` says. */
static void neo__linear_run(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias, neo_tensor y,
                            neo__gemm_finish finish) {
    NEO__ZERO(neo__gemm, g);
    g.ctx = ctx;
    g.m = x.shape[0], g.n = w.shape[0], g.k = w.shape[1];
    g.a = neo__f32(x), g.a_row = x.stride[0], g.a_k = 1;
    g.b = neo__f32(w), g.b_k = 1, g.b_col = w.stride[0];
    g.c = neo__f32(y), g.c_row = y.stride[0];
    g.bias = neo__f32(bias);
    g.finish = finish;
    neo__gemm_run(&g);
}
/* dx = dz w, then what `finish` says. */
static void neo__linear_dx_run(neo_ctx *ctx, neo_tensor w, neo_tensor dz, neo_tensor dx,
                               neo__gemm_finish finish) {
    NEO__ZERO(neo__gemm, g);
    g.ctx = ctx;
    g.m = dz.shape[0], g.n = w.shape[1], g.k = w.shape[0];
    g.a = neo__f32(dz), g.a_row = dz.stride[0], g.a_k = 1;
    g.b = neo__f32(w), g.b_k = w.stride[0], g.b_col = 1;
    g.c = neo__f32(dx), g.c_row = dx.stride[0];
    g.finish = finish;
    neo__gemm_run(&g);
}

NEO_API neo_status neo_linear_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                      neo_activation act, neo_tensor y) {
    static const char *const fn = "neo_linear_forward";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK((unsigned)act <= (unsigned)NEO_ACT_HARDSWISH, NEO_ERR_ARG,
               "%s: unknown activation %d", fn, (int)act);
    const int64_t batch = x.shape[0], in = w.shape[1], out = w.shape[0];
    NEO__TRY(neo__check_matrix(w, out, in, 0, fn, "w"));
    NEO__TRY(neo__check_matrix(x, batch, in, 0, fn, "x"));
    NEO__TRY(neo__check_matrix(y, batch, out, 1, fn, "y"));
    if (neo__given(bias)) NEO__TRY(neo__check_vector(bias, out, fn, "bias"));
    NEO__ZERO(neo__gemm_finish, finish);
    finish.act = act;
    neo__linear_run(ctx, x, w, bias, y, finish);
    return NEO_OK;
}

NEO_API neo_status neo_linear_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                       neo_tensor w, neo_tensor dz, neo_tensor dx, neo_tensor dw,
                                       neo_tensor dbias) {
    static const char *const fn = "neo_linear_backward";
    const int64_t batch = dz.shape[0], in = w.shape[1], out = w.shape[0];
    neo_leaves held;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_matrix(w, out, in, 0, fn, "w"));
    NEO__TRY(neo__check_matrix(x, batch, in, 0, fn, "x"));
    NEO__TRY(neo__check_matrix(dz, batch, out, 0, fn, "dz"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(dx, batch, in, 1, fn, "dx"));
    if (neo__given(dw)) NEO__TRY(neo__check_matrix(dw, out, in, 1, fn, "dw"));
    if (neo__given(dbias)) NEO__TRY(neo__check_vector(dbias, out, fn, "dbias"));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    NEO__ZERO(neo__gemm_finish, finish);
    if (dw.data || dbias.data) neo__linear_grads_run(ctx, &held, x, dz, dw, dbias);
    if (dx.data) neo__linear_dx_run(ctx, w, dz, dx, finish);
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-mlp

   One block of memory: the struct, then the hidden layers' outputs y (and z, where the activation's
   derivative is a function of z), then two buffers that the gradients of layers take in turn.
   ------------------------------------------------------------------------------------------------ */
struct neo_mlp {
    neo_ctx *ctx;
    size_t bytes;
    int layers;
    int64_t widths[NEO_MAX_LAYERS + 1];
    int64_t max_batch;
    neo_activation act, last_act;
    const neo_param *weight[NEO_MAX_LAYERS], *bias[NEO_MAX_LAYERS];
    float *y[NEO_MAX_LAYERS]; /* of hidden layers */
    float *z[NEO_MAX_LAYERS]; /* before the activation; NULL: not kept */
    float *dz[2];
    neo_tensor in, out; /* of the last forward */
    int forward_done;
};

NEO__INLINE int neo__act_needs_z(neo_activation act) {
    return act == NEO_ACT_GELU || act == NEO_ACT_HARDSWISH;
}

NEO__COLD_BEGIN
static neo_status neo__mlp_check(const neo_mlp_desc *d, const char *fn) {
    NEO__CHECK(d && d->name && d->name[0], NEO_ERR_ARG, "%s: a name is required", fn);
    NEO__CHECK(d->width_count >= 2 && d->width_count <= NEO_MAX_LAYERS + 1, NEO_ERR_ARG,
               "%s: %s: width_count is %d, not in 2 .. %d", fn, d->name, d->width_count,
               NEO_MAX_LAYERS + 1);
    NEO__CHECK(d->max_batch > 0, NEO_ERR_ARG, "%s: %s: max_batch is %" PRId64, fn, d->name,
               d->max_batch);
    NEO__CHECK((unsigned)d->act <= (unsigned)NEO_ACT_HARDSWISH &&
                   (unsigned)d->last_act <= (unsigned)NEO_ACT_HARDSWISH,
               NEO_ERR_ARG, "%s: %s: unknown activation", fn, d->name);
    NEO__CHECK(d->init == NEO_MLP_INIT_DLRM || d->init == NEO_MLP_INIT_TORCH, NEO_ERR_ARG,
               "%s: %s: unknown initialiser %d", fn, d->name, (int)d->init);
    for (int i = 0; i < d->width_count; i++)
        NEO__CHECK(d->widths[i] > 0, NEO_ERR_ARG, "%s: %s: widths[%d] is %" PRId64, fn, d->name, i,
                   d->widths[i]);
    return NEO_OK;
}

/* Lays the buffers out from `base` (NULL: counts only) and returns the bytes of the whole block. */
static size_t neo__mlp_layout(neo_mlp *mlp, const neo_mlp_desc *d, char *base) {
    const int layers = d->width_count - 1;
    size_t bytes = neo__size_add(sizeof(neo_mlp), NEO__ALIGN - 1) / NEO__ALIGN * NEO__ALIGN;
    int64_t widest = d->last_act != NEO_ACT_NONE ? d->widths[layers] : 0;
    for (int i = 0; i < layers - 1; i++) widest = NEO__MAX(widest, d->widths[i + 1]);
    for (int i = 0; i < 2 * layers + 2; i++) {
        const int layer = i / 2, is_z = i & 1;
        int64_t width;
        float **to = NULL;
        if (layer == layers) { /* with one hidden layer a second gradient buffer is not used */
            width =
                is_z && layers < 3 && !(layers == 2 && d->last_act != NEO_ACT_NONE) ? 0 : widest;
            if (base) to = &mlp->dz[is_z];
        } else {
            const neo_activation act = layer == layers - 1 ? d->last_act : d->act;
            width = is_z ? (neo__act_needs_z(act) ? d->widths[layer + 1] : 0)
                         : (layer < layers - 1 ? d->widths[layer + 1] : 0);
            if (base) to = is_z ? &mlp->z[layer] : &mlp->y[layer];
        }
        size_t piece =
            neo__size_mul(neo__size_mul((size_t)d->max_batch, (size_t)width), sizeof(float));
        piece = neo__size_add(piece, NEO__ALIGN - 1) / NEO__ALIGN * NEO__ALIGN;
        if (to && piece) *to = (float *)(void *)(base + bytes);
        bytes = neo__size_add(bytes, piece);
    }
    return bytes;
}

NEO_API size_t neo_mlp_workspace_bytes(const neo_mlp_desc *desc) {
    return neo__mlp_check(desc, "neo_mlp_workspace_bytes") == NEO_OK
               ? neo__mlp_layout(NULL, desc, NULL)
               : 0;
}

static neo_status neo__mlp_add_params(neo_mlp *mlp, neo_params *params, const neo_mlp_desc *d,
                                      char *name, size_t name_bytes) {
    for (int i = 0; i < mlp->layers; i++) {
        const int64_t in = d->widths[i], out = d->widths[i + 1], shape[2] = {out, in};
        neo_init weight, bias;
        if (d->init == NEO_MLP_INIT_DLRM) {
            weight.kind = bias.kind = NEO_INIT_NORMAL;
            weight.a = bias.a = 0.0f;
            weight.b = (float)sqrt(2.0 / ((double)in + (double)out));
            bias.b = (float)sqrt(1.0 / (double)out);
        } else {
            weight.kind = NEO_INIT_UNIFORM;
            weight.b = (float)sqrt(1.0 / (double)in);
            weight.a = -weight.b;
            bias = weight;
        }
        snprintf(name, name_bytes, "%s.%d.weight", d->name, 2 * i);
        NEO__TRY(neo_params_add(params, name, 2, shape, weight, &mlp->weight[i]));
        snprintf(name, name_bytes, "%s.%d.bias", d->name, 2 * i);
        NEO__TRY(neo_params_add(params, name, 1, shape, bias, &mlp->bias[i]));
    }
    return NEO_OK;
}

static void neo__params_truncate(neo_params *params, int count); /* see >>impl-params */

NEO_API neo_status neo_mlp_create(neo_ctx *ctx, neo_params *params, const neo_mlp_desc *desc,
                                  neo_mlp **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_mlp_create: mlp is NULL");
    *out = NULL;
    NEO__CHECK(ctx && params, NEO_ERR_ARG, "neo_mlp_create: ctx or params is NULL");
    NEO__TRY(neo__mlp_check(desc, "neo_mlp_create"));
    char name[256];
    NEO__CHECK(strlen(desc->name) + 24 <= sizeof name, NEO_ERR_ARG,
               "neo_mlp_create: the name is too long");
    const size_t bytes = neo__mlp_layout(NULL, desc, NULL);
    neo_mlp *mlp = (neo_mlp *)neo_alloc(ctx, bytes);
    NEO__CHECK(mlp, NEO_ERR_MEMORY, "neo_mlp_create: %s: no memory for %zu bytes", desc->name,
               bytes);
    memset(mlp, 0, sizeof *mlp);
    neo__mlp_layout(mlp, desc, (char *)mlp);
    mlp->ctx = ctx;
    mlp->bytes = bytes;
    mlp->layers = desc->width_count - 1;
    memcpy(mlp->widths, desc->widths, sizeof mlp->widths);
    mlp->max_batch = desc->max_batch;
    mlp->act = desc->act;
    mlp->last_act = desc->last_act;
    const int before = neo_params_count(params);
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__mlp_add_params(mlp, params, desc, name, sizeof name);
    neo__fp_leave(fp);
    if (status != NEO_OK) {
        neo__params_truncate(params, before);
        neo_free(ctx, mlp, bytes);
        return status;
    }
    *out = mlp;
    return NEO_OK;
}
NEO_API void neo_mlp_destroy(neo_mlp *mlp) {
    if (mlp) neo_free(mlp->ctx, mlp, mlp->bytes);
}

/* Its parameters' values, or gradients, are in memory. */
static neo_status neo__mlp_present(const neo_mlp *mlp, int grads, const char *fn) {
    for (int i = 0; i < 2 * mlp->layers; i++) {
        const neo_param *p = i & 1 ? mlp->bias[i / 2] : mlp->weight[i / 2];
        neo_tensor t = grads ? p->grad : p->value;
        if (t.absent && !t.data) return neo__no_data(fn, p->name, t, NEO_ERR_STATE);
    }
    return NEO_OK;
}

/* Rows of a buffer of the mlp as a tensor. */
static neo_tensor neo__mlp_rows(float *data, int64_t rows, int64_t width) {
    return data ? neo_tensor_2d(data, NEO_F32, rows, width) : neo_tensor_none();
}

NEO_API neo_status neo_mlp_forward(neo_mlp *mlp, neo_tensor x, neo_tensor y) {
    const int64_t batch = x.shape[0];
    NEO__CHECK(x.ndim == 2, NEO_ERR_SHAPE, "neo_mlp_forward: x must have two dimensions");
    NEO__CHECK(batch <= mlp->max_batch, NEO_ERR_CAPACITY,
               "neo_mlp_forward: a batch of %" PRId64 ", but max_batch is %" PRId64, batch,
               mlp->max_batch);
    NEO__TRY(neo__check_matrix(x, batch, mlp->widths[0], 0, "neo_mlp_forward", "x"));
    NEO__TRY(neo__check_matrix(y, batch, mlp->widths[mlp->layers], 1, "neo_mlp_forward", "y"));
    NEO__TRY(neo__mlp_present(mlp, 0, "neo_mlp_forward"));
    neo_tensor in = x;
    for (int i = 0; i < mlp->layers; i++) {
        const int last = i == mlp->layers - 1;
        neo_tensor out = last ? y : neo__mlp_rows(mlp->y[i], batch, mlp->widths[i + 1]), sums = out;
        NEO__ZERO(neo__gemm_finish, finish);
        finish.act = last ? mlp->last_act : mlp->act;
        if (mlp->z[i]) { /* c is z; the activation goes on to y */
            sums = neo__mlp_rows(mlp->z[i], batch, mlp->widths[i + 1]);
            finish.y = neo__f32(out);
            finish.y_row = out.stride[0];
        }
        neo__linear_run(mlp->ctx, in, mlp->weight[i]->value, mlp->bias[i]->value, sums, finish);
        in = out;
    }
    mlp->in = x;
    mlp->out = y;
    mlp->forward_done = 1;
    return NEO_OK;
}

/* dz of the last layer from dy, row by row (rows may be apart). */
typedef struct neo__mlp_last {
    const neo_mlp *mlp;
    neo_tensor dy, dz, y;
    const float *z;
    int64_t tasks;
} neo__mlp_last;
static void neo__mlp_last_task(void *arg, int64_t index, int worker) {
    const neo__mlp_last *l = (const neo__mlp_last *)arg;
    const int64_t width = l->dz.shape[1];
    int64_t begin, end;
    (void)worker;
    neo__task_range(l->dz.shape[0], l->tasks, index, 1, &begin, &end);
    const int whole = l->dy.stride[0] == width && l->y.stride[0] == width;
    const int64_t count = whole ? (end - begin) * width : width;
    for (int64_t i = begin; i < (whole ? NEO__MIN(begin + 1, end) : end); i++)
        l->mlp->ctx->vec->act_backward(
            l->mlp->last_act, l->z ? l->z + i * width : NULL, neo__f32(l->y) + i * l->y.stride[0],
            neo__f32(l->dy) + i * l->dy.stride[0], neo__f32(l->dz) + i * width, count);
}

NEO_API neo_status neo_mlp_backward(neo_mlp *mlp, const neo_leaves *leaves, neo_tensor dy,
                                    neo_tensor dx) {
    static const char *const fn = "neo_mlp_backward";
    neo_ctx *ctx = mlp->ctx;
    const int layers = mlp->layers;
    NEO__CHECK(mlp->forward_done, NEO_ERR_STATE, "neo_mlp_backward: there was no forward");
    const int64_t batch = mlp->in.shape[0];
    neo_leaves held;
    NEO__TRY(neo__check_matrix(dy, batch, mlp->widths[layers], 0, fn, "dy"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(dx, batch, mlp->widths[0], 1, fn, "dx"));
    NEO__TRY(neo__mlp_present(mlp, 0, fn));
    NEO__TRY(neo__mlp_present(mlp, 1, fn));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    int turn = 0;
    neo_tensor dz = dy;
    if (mlp->last_act != NEO_ACT_NONE) {
        NEO__ZERO(neo__mlp_last, l);
        dz = neo__mlp_rows(mlp->dz[turn++ & 1], batch, mlp->widths[layers]);
        l.mlp = mlp, l.dy = dy, l.dz = dz, l.y = mlp->out, l.z = mlp->z[layers - 1];
        l.tasks = neo__task_count(ctx, batch, 1 + 8192 / mlp->widths[layers]);
        neo_parallel_for(ctx, l.tasks, neo__mlp_last_task, &l);
    }
    for (int i = layers - 1; i >= 0; i--) {
        neo_tensor in = i == 0 ? mlp->in : neo__mlp_rows(mlp->y[i - 1], batch, mlp->widths[i]);
        neo__linear_grads_run(ctx, &held, in, dz, mlp->weight[i]->grad, mlp->bias[i]->grad);
        NEO__ZERO(neo__gemm_finish, finish);
        if (i == 0) {
            if (dx.data) neo__linear_dx_run(ctx, mlp->weight[0]->value, dz, dx, finish);
            break;
        }
        neo_tensor below = neo__mlp_rows(mlp->dz[turn++ & 1], batch, mlp->widths[i]);
        finish.act = mlp->act;
        finish.backward = 1;
        finish.y = mlp->y[i - 1];
        finish.z = mlp->z[i - 1];
        finish.y_row = finish.z_row = mlp->widths[i];
        neo__linear_dx_run(ctx, mlp->weight[i]->value, dz, below, finish);
        dz = below;
    }
    return NEO_OK;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-interact

   The dot interaction of DLRM (github.com/facebookresearch/dlrm, interact_features), a sample at a
   time; see the kernels under >>kernels-gemm.
   ------------------------------------------------------------------------------------------------ */
NEO__STATIC_ASSERT((size_t)NEO__INTERACT_FLOATS / 4 * 5 * sizeof(float) <=
                       NEO__WORKER_SCRATCH_BYTES,
                   "a worker's scratch holds a sample of >>impl-interact");

typedef struct neo__interact_run {
    neo_ctx *ctx;
    neo__interact job;
    int64_t batch, tasks;
    int backward;
} neo__interact_run;

static void neo__interact_task(void *arg, int64_t index, int worker) {
    const neo__interact_run *r = (const neo__interact_run *)arg;
    float *scratch = (float *)(void *)neo__worker_scratch(r->ctx, worker);
    int64_t begin, end;
    neo__task_range(r->batch, r->tasks, index, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        if (r->backward) r->ctx->gemm->interact_backward(&r->job, i, scratch);
        else r->ctx->gemm->interact_forward(&r->job, i, scratch);
    }
}

NEO__COLD_BEGIN
NEO_API int64_t neo_interact_width(int64_t dim, int64_t features, int diagonal) {
    return dim + features * (features + 1) / 2 + (diagonal ? features + 1 : 0);
}

/* The sizes that x, e and z must agree on. */
static neo_status neo__interact_prepare(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                        neo__interact_run *r, const char *fn) {
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(x.ndim == 2 && e.ndim == 2, NEO_ERR_SHAPE, "%s: x and e must have two dimensions",
               fn);
    const int64_t batch = x.shape[0], dim = x.shape[1], features = dim > 0 ? e.shape[1] / dim : 0;
    NEO__CHECK(dim > 0, NEO_ERR_SHAPE, "%s: x has no columns", fn);
    NEO__TRY(neo__check_matrix(x, batch, dim, 0, fn, "x"));
    NEO__TRY(neo__check_matrix(e, batch, features * dim, 0, fn, "e"));
    NEO__CHECK(features <= NEO__INTERACT_MAX_FEATURES, NEO_ERR_UNSUPPORTED,
               "%s: %" PRId64 " features, more than %d", fn, features,
               (int)NEO__INTERACT_MAX_FEATURES);
    memset(r, 0, sizeof *r);
    r->ctx = ctx;
    r->batch = batch;
    r->tasks = neo__task_count(ctx, batch, 1 + (1 << 16) / ((features + 1) * (features + 1) * dim));
    r->job.dim = dim;
    r->job.features = features;
    r->job.diagonal = diagonal != 0;
    r->job.x = neo__f32(x), r->job.x_row = x.stride[0];
    r->job.e = neo__f32(e), r->job.e_row = e.stride[0];
    return NEO_OK;
}

NEO_API neo_status neo_interact_forward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                        neo_tensor z) {
    static const char *const fn = "neo_interact_forward";
    neo__interact_run r;
    NEO__TRY(neo__interact_prepare(ctx, diagonal, x, e, &r, fn));
    const int64_t width = neo_interact_width(r.job.dim, r.job.features, diagonal);
    NEO__TRY(neo__check_matrix(z, r.batch, width, 1, fn, "z"));
    r.job.z = neo__f32(z), r.job.z_row = z.stride[0];
    if (r.batch > 0) neo_parallel_for(ctx, r.tasks, neo__interact_task, &r);
    return NEO_OK;
}

NEO_API neo_status neo_interact_backward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                         neo_tensor dz, neo_tensor dx, neo_tensor de) {
    static const char *const fn = "neo_interact_backward";
    neo__interact_run r;
    NEO__TRY(neo__interact_prepare(ctx, diagonal, x, e, &r, fn));
    const int64_t width = neo_interact_width(r.job.dim, r.job.features, diagonal);
    NEO__TRY(neo__check_matrix(dz, r.batch, width, 0, fn, "dz"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(dx, r.batch, r.job.dim, 1, fn, "dx"));
    if (neo__given(de))
        NEO__TRY(neo__check_matrix(de, r.batch, r.job.features * r.job.dim, 1, fn, "de"));
    r.backward = 1;
    r.job.dz = neo__f32(dz), r.job.dz_row = dz.stride[0];
    r.job.dx = neo__f32(dx), r.job.dx_row = dx.stride[0];
    r.job.de = neo__f32(de), r.job.de_row = de.stride[0];
    if (r.batch > 0 && (dx.data || de.data)) neo_parallel_for(ctx, r.tasks, neo__interact_task, &r);
    return NEO_OK;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-activation
   ------------------------------------------------------------------------------------------------ */
enum { NEO__VEC_GRAIN = 16384 }; /* elements of elementwise work worth a task */

typedef struct neo__activation_job {
    neo_ctx *ctx;
    neo_activation act;
    int backward;
    const float *z, *y, *dy; /* forward: only z */
    float *out;
    int64_t count, tasks;
} neo__activation_job;

static void neo__activation_task(void *arg, int64_t i, int worker) {
    const neo__activation_job *j = (const neo__activation_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(j->count, j->tasks, i, 16, &begin, &end);
    const float *z = j->z ? j->z + begin : NULL, *y = j->y ? j->y + begin : NULL;
    if (j->backward)
        j->ctx->vec->act_backward(j->act, z, y, j->dy + begin, j->out + begin, end - begin);
    else j->ctx->vec->act_forward(j->act, z, j->out + begin, end - begin);
}

NEO__COLD_BEGIN
/* t is contiguous f32 of `like`'s shape. */
static neo_status neo__check_like(const char *function, const char *name, neo_tensor t,
                                  neo_tensor like) {
    NEO__CHECK(t.dtype == NEO_F32 && t.ndim >= 1 && t.ndim <= NEO_MAX_DIMS && neo_tensor_is_contiguous(t),
               NEO_ERR_SHAPE, "%s: %s is not a contiguous f32 tensor", function, name);
    int64_t count = neo__shape_count(t.ndim, t.shape);
    NEO__CHECK(count >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function, name);
    if (!t.data && count > 0) return neo__no_data(function, name, t, NEO_ERR_SHAPE);
    int same = t.ndim == like.ndim;
    for (int d = 0; same && d < t.ndim; d++) same = t.shape[d] == like.shape[d];
    NEO__CHECK(same, NEO_ERR_SHAPE,
               "%s: %s has %" PRId64 " elements in another shape than the %" PRId64
               " of the first tensor",
               function, name, neo_tensor_count(t), neo_tensor_count(like));
    return NEO_OK;
}
static neo_status neo__check_activation(const char *function, neo_activation act) {
    NEO__CHECK(act >= NEO_ACT_NONE && act <= NEO_ACT_HARDSWISH, NEO_ERR_ARG,
               "%s: no activation %d", function, (int)act);
    return NEO_OK;
}
static void neo__activation_run(neo__activation_job *j) {
    j->tasks = neo__task_count(j->ctx, j->count, NEO__VEC_GRAIN);
    neo_parallel_for(j->ctx, j->tasks, neo__activation_task, j);
}

NEO_API neo_status neo_activation_forward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                          neo_tensor y) {
    const char *function = "neo_activation_forward";
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__TRY(neo__check_activation(function, act));
    NEO__TRY(neo__check_like(function, "z", z, z));
    NEO__TRY(neo__check_like(function, "y", y, z));
    NEO__ZERO(neo__activation_job, job);
    job.ctx = ctx;
    job.act = act;
    job.z = (const float *)z.data;
    job.out = (float *)y.data;
    job.count = neo_tensor_count(z);
    neo__activation_run(&job);
    return NEO_OK;
}

NEO_API neo_status neo_activation_backward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                           neo_tensor y, neo_tensor dy, neo_tensor dz) {
    const char *function = "neo_activation_backward";
    int needs_z = act == NEO_ACT_GELU || act == NEO_ACT_HARDSWISH;
    int needs_y = act == NEO_ACT_RELU || act == NEO_ACT_SIGMOID || act == NEO_ACT_TANH;
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__TRY(neo__check_activation(function, act));
    NEO__TRY(neo__check_like(function, "dy", dy, dy));
    NEO__TRY(neo__check_like(function, "dz", dz, dy));
    if (needs_z) NEO__TRY(neo__check_like(function, "z", z, dy));
    if (needs_y) NEO__TRY(neo__check_like(function, "y", y, dy));
    NEO__ZERO(neo__activation_job, job);
    job.ctx = ctx;
    job.act = act;
    job.backward = 1;
    if (needs_z) job.z = (const float *)z.data;
    if (needs_y) job.y = (const float *)y.data;
    job.dy = (const float *)dy.data;
    job.out = (float *)dz.data;
    job.count = neo_tensor_count(dy);
    neo__activation_run(&job);
    return NEO_OK;
}
NEO__COLD_END

/* ---- neo_add ---- */
typedef struct neo__add_job {
    neo_ctx *ctx;
    float *x;
    const float *y;
    int64_t count, tasks;
} neo__add_job;
static void neo__add_task(void *arg, int64_t i, int worker) {
    const neo__add_job *j = (const neo__add_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(j->count, j->tasks, i, 16, &begin, &end);
    j->ctx->vec->add(j->x + begin, j->y + begin, end - begin);
}
NEO_API neo_status neo_add(neo_ctx *ctx, neo_tensor x, neo_tensor y) {
    NEO__TRY(neo__check_ctx("neo_add", ctx));
    NEO__TRY(neo__check_like("neo_add", "x", x, x));
    NEO__TRY(neo__check_like("neo_add", "y", y, x));
    NEO__ZERO(neo__add_job, j);
    j.ctx = ctx;
    j.x = neo__f32(x);
    j.y = neo__f32(y);
    j.count = neo_tensor_count(x);
    j.tasks = neo__task_count(ctx, j.count, NEO__VEC_GRAIN);
    if (j.count > 0) neo_parallel_for(ctx, j.tasks, neo__add_task, &j);
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-norm

   Layer norm and RMS norm: rows are independent but for dweight and dbias, which add row by row
   inside a leaf, over leaves by the tree, for a few columns at a time (so dx, which may be dy,
   comes after).
   ------------------------------------------------------------------------------------------------
   */
enum {
    NEO__NORM_COLS = 64, /* columns of dweight and dbias that a task adds */
    NEO__NORM_DEPTH = 16 /* subtree sums waiting: more than any tree of 4096 leaves has */
};
typedef struct neo__norm_job {
    neo_ctx *ctx;
    const char *fn;
    int centered;
    int64_t rows, cols, tasks;
    float eps;
    const float *x, *weight, *bias, *dy;
    float *stats, *y, *dx, *dweight, *dbias;
    int64_t x_row, y_row, dy_row, dx_row;
    neo_leaves leaves;
} neo__norm_job;

NEO__INLINE float *neo__norm_stats(const neo__norm_job *j, int64_t row) {
    return j->stats + row * (j->centered ? 2 : 1);
}
static void neo__norm_forward_task(void *arg, int64_t index, int worker) {
    const neo__norm_job *j = (const neo__norm_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(j->rows, j->tasks, index, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        j->ctx->vec->norm_forward(j->x + i * j->x_row, j->weight, j->bias, j->eps, j->centered,
                                  j->y + i * j->y_row, neo__norm_stats(j, i), j->cols);
}
static void neo__norm_dx_task(void *arg, int64_t index, int worker) {
    const neo__norm_job *j = (const neo__norm_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(j->rows, j->tasks, index, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        j->ctx->vec->norm_backward(j->x + i * j->x_row, j->weight, j->dy + i * j->dy_row,
                                   neo__norm_stats(j, i), j->centered, j->dx + i * j->dx_row,
                                   j->cols);
}
/* A slot of the tree: NEO__NORM_COLS of dweight, then as many of dbias. */
static void neo__norm_grads_task(void *arg, int64_t index, int worker) {
    const neo__norm_job *j = (const neo__norm_job *)arg;
    const int64_t j0 = index * NEO__NORM_COLS,
                  cols = NEO__MIN((int64_t)NEO__NORM_COLS, j->cols - j0);
    const int64_t step = 2 * (int64_t)NEO__NORM_COLS;
    float *sums = (float *)(void *)neo__worker_scratch(j->ctx, worker);
    int height = 0;
    memset(sums, 0, (size_t)step * sizeof *sums);
    for (int leaf = 0; leaf < j->leaves.count; leaf++) {
        int64_t begin, end;
        neo__leaf_rows(j->ctx, &j->leaves, leaf, &begin, &end);
        float *slot = sums + height * step;
        memset(slot, 0, (size_t)step * sizeof *slot);
        for (int64_t i = begin; i < end; i++)
            j->ctx->vec->norm_add(j->x + i * j->x_row + j0, j->dy + i * j->dy_row + j0,
                                  neo__norm_stats(j, i), j->centered, j->dweight ? slot : NULL,
                                  j->dbias ? slot + NEO__NORM_COLS : NULL, cols);
        const int merges = leaf == j->leaves.count - 1 ? height : neo__tree_merges(leaf);
        for (int i = 0; i < merges; i++, slot -= step) j->ctx->vec->add(slot - step, slot, step);
        height += 1 - merges;
        NEO_ASSERT(height < NEO__NORM_DEPTH);
    }
    if (j->dweight) memcpy(j->dweight + j0, sums, (size_t)cols * sizeof *sums);
    if (j->dbias) memcpy(j->dbias + j0, sums + NEO__NORM_COLS, (size_t)cols * sizeof *sums);
}

NEO__COLD_BEGIN
/* x, stats and what belongs to the columns. */
static neo_status neo__norm_begin(neo__norm_job *j, neo_ctx *ctx, const char *fn, int centered,
                                  neo_tensor x, neo_tensor weight, neo_tensor stats) {
    memset(j, 0, sizeof *j);
    NEO__TRY(neo__check_ctx(fn, ctx));
    j->ctx = ctx;
    j->fn = fn;
    j->centered = centered;
    j->rows = x.shape[0];
    j->cols = x.shape[1];
    NEO__TRY(neo__check_matrix(x, j->rows, j->cols, 0, fn, "x"));
    NEO__CHECK(j->cols > 0, NEO_ERR_SHAPE, "%s: x has no columns", fn);
    if (neo__given(weight)) NEO__TRY(neo__check_vector(weight, j->cols, fn, "weight"));
    if (centered) {
        NEO__TRY(neo__check_matrix(stats, j->rows, 2, 1, fn, "stats"));
        NEO__CHECK(neo_tensor_is_contiguous(stats), NEO_ERR_SHAPE, "%s: stats is not contiguous",
                   fn);
    } else {
        NEO__TRY(neo__check_vector(stats, j->rows, fn, "stats"));
    }
    j->x = neo__f32(x), j->x_row = x.stride[0];
    j->weight = neo__f32(weight);
    j->stats = neo__f32(stats);
    j->tasks = neo__task_count(ctx, j->rows, 1 + NEO__VEC_GRAIN / 4 / j->cols);
    return NEO_OK;
}
static neo_status neo__norm_forward(neo__norm_job *j, neo_tensor bias, float eps, neo_tensor y) {
    NEO__TRY(neo__check_matrix(y, j->rows, j->cols, 1, j->fn, "y"));
    if (neo__given(bias)) NEO__TRY(neo__check_vector(bias, j->cols, j->fn, "bias"));
    NEO__CHECK(eps >= 0.0f && eps <= FLT_MAX, NEO_ERR_ARG, "%s: eps is %g", j->fn, (double)eps);
    j->bias = neo__f32(bias);
    j->eps = eps;
    j->y = neo__f32(y), j->y_row = y.stride[0];
    if (j->rows > 0) neo_parallel_for(j->ctx, j->tasks, neo__norm_forward_task, j);
    return NEO_OK;
}
static neo_status neo__norm_backward(neo__norm_job *j, const neo_leaves *leaves, neo_tensor dy,
                                     neo_tensor dx, neo_tensor dweight, neo_tensor dbias) {
    NEO__TRY(neo__check_matrix(dy, j->rows, j->cols, 0, j->fn, "dy"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(dx, j->rows, j->cols, 1, j->fn, "dx"));
    if (neo__given(dweight)) NEO__TRY(neo__check_vector(dweight, j->cols, j->fn, "dweight"));
    if (neo__given(dbias)) NEO__TRY(neo__check_vector(dbias, j->cols, j->fn, "dbias"));
    NEO__TRY(neo__leaves_resolve(j->ctx, leaves, j->rows, &j->leaves, j->fn));
    j->dy = neo__f32(dy), j->dy_row = dy.stride[0];
    j->dx = neo__f32(dx), j->dx_row = dx.stride[0];
    j->dweight = neo__f32(dweight);
    j->dbias = neo__f32(dbias);
    const int64_t chunks = (j->cols + NEO__NORM_COLS - 1) / NEO__NORM_COLS;
    if (j->dweight || j->dbias) neo_parallel_for(j->ctx, chunks, neo__norm_grads_task, j);
    if (j->dx && j->rows > 0) neo_parallel_for(j->ctx, j->tasks, neo__norm_dx_task, j);
    return NEO_OK;
}

NEO_API neo_status neo_layer_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight,
                                          neo_tensor bias, float eps, neo_tensor y,
                                          neo_tensor stats) {
    neo__norm_job job;
    NEO__TRY(neo__norm_begin(&job, ctx, "neo_layer_norm_forward", 1, x, weight, stats));
    return neo__norm_forward(&job, bias, eps, y);
}
NEO_API neo_status neo_layer_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                           neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                           neo_tensor dx, neo_tensor dweight, neo_tensor dbias) {
    neo__norm_job job;
    NEO__TRY(neo__norm_begin(&job, ctx, "neo_layer_norm_backward", 1, x, weight, stats));
    return neo__norm_backward(&job, leaves, dy, dx, dweight, dbias);
}
NEO_API neo_status neo_rms_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight, float eps,
                                        neo_tensor y, neo_tensor stats) {
    neo__norm_job job;
    NEO__TRY(neo__norm_begin(&job, ctx, "neo_rms_norm_forward", 0, x, weight, stats));
    return neo__norm_forward(&job, neo_tensor_none(), eps, y);
}
NEO_API neo_status neo_rms_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                         neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                         neo_tensor dx, neo_tensor dweight) {
    neo__norm_job job;
    NEO__TRY(neo__norm_begin(&job, ctx, "neo_rms_norm_backward", 0, x, weight, stats));
    return neo__norm_backward(&job, leaves, dy, dx, dweight, neo_tensor_none());
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-embedding

   The gradient is dense, so the tree over leaves is that of any other parameter: each leaf's sums
   start at zero everywhere. A task has a range of rows and of columns of the table whose subtree
   sums fit its worker's scratch; it walks all ids and adds those in its range. One leaf that is not
   added to anything is summed in place.
   ------------------------------------------------------------------------------------------------
   */
enum { NEO__EMBEDDING_COLS = 256 }; /* columns of a task */
typedef struct neo__embedding_job {
    neo_ctx *ctx;
    const void *ids;
    int is_i32, add, in_place;
    int64_t count, rows, dim, tasks;
    const float *from; /* table or dout */
    float *to;         /* out or dtable */
    int64_t from_row, to_row;
    int64_t task_rows, col_tasks, area; /* area: floats of a subtree's sums */
    neo_leaves leaves;
} neo__embedding_job;

static void neo__embedding_task(void *arg, int64_t index, int worker) {
    const neo__embedding_job *j = (const neo__embedding_job *)arg;
    int64_t begin, end;
    (void)worker;
    neo__task_range(j->count, j->tasks, index, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        memcpy(j->to + i * j->to_row, j->from + neo__jagged_id(j->ids, j->is_i32, i) * j->from_row,
               (size_t)j->dim * sizeof *j->to);
}
/* Adds rows [begin, end) of dout to sums of rows [r0, r1) of the table, columns [c0, c0 + cols). */
static void neo__embedding_add(const neo__embedding_job *j, int64_t begin, int64_t end, int64_t r0,
                               int64_t r1, int64_t c0, int64_t cols, float *sums, int64_t step) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = neo__jagged_id(j->ids, j->is_i32, i);
        if (id < r0 || id >= r1) continue;
        j->ctx->vec->add(sums + (id - r0) * step, j->from + i * j->from_row + c0, cols);
    }
}
static void neo__embedding_grad_task(void *arg, int64_t index, int worker) {
    const neo__embedding_job *j = (const neo__embedding_job *)arg;
    const int64_t r0 = index / j->col_tasks * j->task_rows,
                  r1 = NEO__MIN(r0 + j->task_rows, j->rows);
    const int64_t c0 = index % j->col_tasks * NEO__EMBEDDING_COLS;
    const int64_t cols = NEO__MIN(j->dim - c0, (int64_t)NEO__EMBEDDING_COLS);
    const int64_t area = (r1 - r0) * cols;
    float *to = j->to + r0 * j->to_row + c0,
          *sums = (float *)(void *)neo__worker_scratch(j->ctx, worker);
    if (j->in_place) {
        for (int64_t r = 0; r < r1 - r0; r++)
            memset(to + r * j->to_row, 0, (size_t)cols * sizeof *to);
        neo__embedding_add(j, 0, j->count, r0, r1, c0, cols, to, j->to_row);
        return;
    }
    int height = 0;
    for (int leaf = 0; leaf < j->leaves.count; leaf++) {
        int64_t begin, end;
        float *slot = sums + height * j->area;
        neo__leaf_rows(j->ctx, &j->leaves, leaf, &begin, &end);
        memset(slot, 0, (size_t)area * sizeof *slot);
        neo__embedding_add(j, begin, end, r0, r1, c0, cols, slot, cols);
        const int merges = leaf == j->leaves.count - 1 ? height : neo__tree_merges(leaf);
        for (int i = 0; i < merges; i++, slot -= j->area)
            j->ctx->vec->add(slot - j->area, slot, area);
        height += 1 - merges;
    }
    for (int64_t r = 0; r < r1 - r0; r++, to += j->to_row, sums += cols) {
        if (j->add) j->ctx->vec->add(to, sums, cols);
        else memcpy(to, sums, (size_t)cols * sizeof *to);
    }
}
/* Cut the table so that every task's sums fit its scratch and there are enough tasks. */
static void neo__embedding_cut(neo__embedding_job *j) {
    const int64_t depth = neo__tree_depth(j->leaves.count),
                  cols = NEO__MIN(j->dim, (int64_t)NEO__EMBEDDING_COLS);
    const int64_t room = NEO__WORKER_SCRATCH_BYTES / (int64_t)sizeof(float) / depth / cols;
    const int64_t wanted = j->ctx->threads == 1 ? 1 : 4 * (int64_t)j->ctx->threads;
    j->col_tasks = (j->dim + NEO__EMBEDDING_COLS - 1) / NEO__EMBEDDING_COLS;
    const int64_t row_tasks = NEO__MAX((wanted + j->col_tasks - 1) / j->col_tasks, 1);
    j->task_rows = NEO__MAX((j->rows + row_tasks - 1) / row_tasks, 1);
    if (!j->in_place) j->task_rows = NEO__MIN(j->task_rows, room);
    j->area = j->task_rows * cols;
    j->tasks = (j->rows + j->task_rows - 1) / j->task_rows * j->col_tasks;
}

/* Fills the job: ids, a table of `rows` rows, the matrix of their rows. */
static neo_status neo__embedding_begin(neo__embedding_job *j, neo_ctx *ctx, const char *fn,
                                       neo_tensor ids, neo_tensor table, neo_tensor each,
                                       const char *const names[2], int forward) {
    memset(j, 0, sizeof *j);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(ids.ndim == 1 && (ids.dtype == NEO_I32 || ids.dtype == NEO_I64) &&
                   ids.shape[0] >= 0 && neo_tensor_is_contiguous(ids),
               NEO_ERR_SHAPE, "%s: ids is not a contiguous i32 or i64 tensor [N]", fn);
    j->ctx = ctx;
    j->count = ids.shape[0];
    j->rows = table.shape[0];
    j->dim = table.shape[1];
    if (!ids.data && j->count > 0) return neo__no_data(fn, "ids", ids, NEO_ERR_SHAPE);
    NEO__TRY(neo__check_matrix(table, j->rows, j->dim, !forward, fn, names[0]));
    NEO__TRY(neo__check_matrix(each, j->count, j->dim, forward, fn, names[1]));
    j->ids = ids.data;
    j->is_i32 = ids.dtype == NEO_I32;
    for (int64_t i = 0; i < j->count; i++) {
        const int64_t id = neo__jagged_id(j->ids, j->is_i32, i);
        NEO__CHECK(id >= 0 && id < j->rows, NEO_ERR_RANGE,
                   "%s: the id at position %" PRId64 " is %" PRId64 ", not in [0, %" PRId64 ")", fn,
                   i, id, j->rows);
    }
    return NEO_OK;
}
NEO_API neo_status neo_embedding_forward(neo_ctx *ctx, neo_tensor ids, neo_tensor table,
                                         neo_tensor out) {
    static const char *const names[2] = {"table", "out"};
    neo__embedding_job j;
    NEO__TRY(neo__embedding_begin(&j, ctx, "neo_embedding_forward", ids, table, out, names, 1));
    j.from = neo__f32(table), j.from_row = table.stride[0];
    j.to = neo__f32(out), j.to_row = out.stride[0];
    j.tasks = neo__task_count(ctx, j.count, 1 + NEO__VEC_GRAIN / NEO__MAX(j.dim, 1));
    if (j.count > 0 && j.dim > 0) neo_parallel_for(ctx, j.tasks, neo__embedding_task, &j);
    return NEO_OK;
}
NEO_API neo_status neo_embedding_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor ids,
                                          neo_tensor dout, neo_tensor dtable, int add) {
    static const char *const names[2] = {"dtable", "dout"}, *const fn = "neo_embedding_backward";
    neo__embedding_job j;
    NEO__TRY(neo__embedding_begin(&j, ctx, fn, ids, dtable, dout, names, 0));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, j.count, &j.leaves, fn));
    j.from = neo__f32(dout), j.from_row = dout.stride[0];
    j.to = neo__f32(dtable), j.to_row = dtable.stride[0];
    j.add = add != 0;
    j.in_place = !add && j.leaves.count <= 1; /* of no leaves: zeros */
    if (j.rows == 0 || j.dim == 0 || (add && j.leaves.count == 0)) return NEO_OK;
    neo__embedding_cut(&j);
    neo_parallel_for(ctx, j.tasks, neo__embedding_grad_task, &j);
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-attention

   Softmax of tiles of keys in turn, with the maximum so far (Milakov and Gimelshein, arXiv
   1805.02867); backward from the logarithm of the denominators, which recomputes the tiles (Dao et
   al., arXiv 2205.14135). Tiles are NEO__KEYS by NEO__KEYS, cut at fixed places of the sequence,
   and every sum over keys or queries is one chain over tiles in order: so neither the batch, nor
   the threads, nor the instruction set shows.

   Forward, per tile of queries: S = Q K^T, P from S row by row, O = fade O + P V. Backward, per
   tile of keys, over tiles of queries: S and dP = dY V^T, then P and dS = scale P (dP - delta) with
   delta = dY Y row by row, dV += P^T dY, dK += dS^T Q, dQ += dS K. Products are tiles of
   >>kernels-gemm over operands packed in panels; P and dS are read transposed in place.
   ------------------------------------------------------------------------------------------------
   */
enum { NEO__ATTENTION_SIDE = NEO__KEYS * NEO_MAX_HEAD_DIM }; /* floats of a packed operand */
NEO__STATIC_ASSERT((8 * (size_t)NEO__ATTENTION_SIDE + 2 * NEO__KEYS * NEO__KEYS) * sizeof(float) <=
                       NEO__WORKER_SCRATCH_BYTES,
                   "a worker's scratch holds the tiles of >>impl-attention");
typedef struct neo__attention {
    neo_ctx *ctx;
    int64_t length, heads, dim, wide; /* wide: dim, filled up to whole panels */
    int64_t sequences, tiles;         /* tiles: of a sequence */
    int causal;
    float scale;
    neo_tensor q, k, v, y, lse, dy, dq, dk, dv;
} neo__attention;

/* Row i of a sequence in the columns of a head. */
NEO__INLINE float *neo__attention_at(const neo__attention *a, neo_tensor t, int64_t sequence,
                                     int64_t head, int64_t i) {
    return neo__f32(t) + (sequence * a->length + i) * t.stride[0] + head * a->dim;
}
/* Panels of rows [count][dim], one behind the other. */
static void neo__attention_pack(const neo__attention *a, float *to, const float *from, int64_t ld,
                                int64_t count) {
    const int64_t width = 2 * a->ctx->gemm->lanes;
    for (int64_t j = 0; j < a->dim; j += width)
        a->ctx->gemm->pack(to + j * count, width, from + j, ld, count, NEO__MIN(width, a->dim - j));
}
/* The same transposed: panels [dim][width] of `count` columns. */
static void neo__attention_flip(const neo__attention *a, float *to, const float *from, int64_t ld,
                                int64_t count) {
    const int64_t width = 2 * a->ctx->gemm->lanes;
    for (int64_t j = 0; j < count; j += width)
        a->ctx->gemm->pack_transposed(to + j * a->dim, width, from + j * ld, ld, a->dim,
                                      NEO__MIN(width, count - j));
}
/* c [m][cols] = x y, or c + x y: k terms each, y packed in panels, cols rounded up to whole ones.
   */
static void neo__attention_product(const neo__attention *a, int64_t m, int64_t cols, int64_t k,
                                   const float *x, int64_t x_row, int64_t x_k, const float *y,
                                   float *c, int64_t c_row, int add) {
    const neo__gemm_kernels *kern = a->ctx->gemm;
    const int64_t width = 2 * kern->lanes;
    NEO__ZERO(neo__tile, t);
    t.k = k;
    t.a_row = x_row, t.a_k = x_k;
    t.b_k = width;
    t.c_row = t.init_row = c_row;
    for (int64_t i = 0, rows; i < m; i += rows) {
        rows = NEO__MIN((int64_t)kern->rows, m - i);
        if (rows > 1) rows -= rows & 1;
        t.a = x + i * x_row;
        for (int64_t j = 0; j < cols; j += width) {
            t.b = y + j * k;
            t.c = c + i * c_row + j;
            t.init = add ? t.c : NULL;
            kern->tile2[rows / 2](&t);
        }
    }
}
/* Keys of the tile from k0 that query i sees; n: keys of the tile. */
NEO__INLINE int64_t neo__attention_seen(const neo__attention *a, int64_t i, int64_t k0, int64_t n) {
    return a->causal ? NEO__MIN(i - k0 + 1, n) : n;
}

static void neo__attention_forward_task(void *arg, int64_t index, int worker) {
    const neo__attention *a = (const neo__attention *)arg;
    const neo__vec_kernels *vec = a->ctx->vec;
    const int64_t head = index / a->tiles % a->heads, sequence = index / a->tiles / a->heads;
    const int64_t q0 = index % a->tiles * NEO__KEYS,
                  m = NEO__MIN((int64_t)NEO__KEYS, a->length - q0);
    float *keys = (float *)(void *)neo__worker_scratch(a->ctx, worker);
    float *values = keys + NEO__ATTENTION_SIDE, *out = values + NEO__ATTENTION_SIDE;
    float *s = out + NEO__ATTENTION_SIDE, max[NEO__KEYS], sum[NEO__KEYS];
    const float *q = neo__attention_at(a, a->q, sequence, head, q0);
    for (int64_t i = 0; i < m; i++) {
        max[i] = neo__f32_bits(0xFF800000u);
        sum[i] = 0.0f;
    }
    memset(out, 0, (size_t)(m * a->wide) * sizeof *out);
    for (int64_t k0 = 0; k0 < (a->causal ? q0 + m : a->length); k0 += NEO__KEYS) {
        const int64_t n = NEO__MIN((int64_t)NEO__KEYS, a->length - k0);
        neo__attention_flip(a, keys, neo__attention_at(a, a->k, sequence, head, k0), a->k.stride[0],
                            n);
        neo__attention_pack(a, values, neo__attention_at(a, a->v, sequence, head, k0),
                            a->v.stride[0], n);
        neo__attention_product(a, m, n, a->dim, q, a->q.stride[0], 1, keys, s, NEO__KEYS, 0);
        for (int64_t i = 0; i < m; i++)
            vec->softmax_tile(s + i * NEO__KEYS, neo__attention_seen(a, q0 + i, k0, n), a->scale,
                              &max[i], &sum[i], out + i * a->wide, a->dim);
        neo__attention_product(a, m, a->dim, n, s, NEO__KEYS, 1, values, out, a->wide, 1);
    }
    for (int64_t i = 0; i < m; i++) {
        const float lse = vec->softmax_end(out + i * a->wide, max[i], sum[i], a->dim);
        memcpy(neo__attention_at(a, a->y, sequence, head, q0 + i), out + i * a->wide,
               (size_t)a->dim * sizeof *out);
        if (a->lse.data)
            neo__f32(a->lse)[(sequence * a->length + q0 + i) * a->lse.stride[0] + head] = lse;
    }
}

/* The operands and sums of a worker in the backward. */
typedef struct neo__attention_scratch {
    float *keys_flipped, *values_flipped, *keys, *queries, *dy, *dk, *dv, *dq, *p, *ds;
} neo__attention_scratch;
static neo__attention_scratch neo__attention_scratch_of(const neo__attention *a, int worker) {
    neo__attention_scratch s;
    float *at = (float *)(void *)neo__worker_scratch(a->ctx, worker);
    s.keys_flipped = at;
    s.values_flipped = at + NEO__ATTENTION_SIDE;
    s.keys = at + 2 * NEO__ATTENTION_SIDE;
    s.queries = at + 3 * NEO__ATTENTION_SIDE;
    s.dy = at + 4 * NEO__ATTENTION_SIDE;
    s.dk = at + 5 * NEO__ATTENTION_SIDE;
    s.dv = at + 6 * NEO__ATTENTION_SIDE;
    s.dq = at + 7 * NEO__ATTENTION_SIDE;
    s.p = at + 8 * NEO__ATTENTION_SIDE;
    s.ds = s.p + NEO__KEYS * NEO__KEYS;
    return s;
}
/* dY Y of row i: blocks of 16 columns by their tree, in order. */
static float neo__attention_delta(const neo__attention *a, int64_t sequence, int64_t head,
                                  int64_t i) {
    float part[NEO_MAX_HEAD_DIM / 16], sum = 0.0f;
    a->ctx->bag->blocks(neo__attention_at(a, a->dy, sequence, head, i),
                        neo__attention_at(a, a->y, sequence, head, i), a->dim, part);
    for (int64_t b = 0; b < (a->dim + 15) / 16; b++) sum += part[b];
    return sum;
}
/* Between arrays [rows][dim] of which the rows lie apart. */
static void neo__attention_copy(const neo__attention *a, float *to, int64_t to_row,
                                const float *from, int64_t from_row, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_row, from + i * from_row, (size_t)a->dim * sizeof *to);
}
/* The tile of n keys from k0, packed in s, with the tile of queries from q0; first: of those it
   meets. */
static void neo__attention_pair(const neo__attention *a, const neo__attention_scratch *s,
                                int64_t sequence, int64_t head, int64_t k0, int64_t n, int64_t q0,
                                int first) {
    const int64_t m = NEO__MIN((int64_t)NEO__KEYS, a->length - q0), wide = a->wide;
    const float *q = neo__attention_at(a, a->q, sequence, head, q0);
    const float *dy = neo__attention_at(a, a->dy, sequence, head, q0);
    neo__attention_product(a, m, n, a->dim, q, a->q.stride[0], 1, s->keys_flipped, s->p, NEO__KEYS,
                           0);
    neo__attention_product(a, m, n, a->dim, dy, a->dy.stride[0], 1, s->values_flipped, s->ds,
                           NEO__KEYS, 0);
    for (int64_t i = 0; i < m; i++) {
        const int64_t row = sequence * a->length + q0 + i;
        a->ctx->vec->softmax_tile_grad(s->p + i * NEO__KEYS, s->ds + i * NEO__KEYS,
                                       neo__attention_seen(a, q0 + i, k0, n), a->scale,
                                       neo__f32(a->lse)[row * a->lse.stride[0] + head],
                                       neo__attention_delta(a, sequence, head, q0 + i));
    }
    if (a->dv.data) {
        neo__attention_pack(a, s->dy, dy, a->dy.stride[0], m);
        neo__attention_product(a, n, a->dim, m, s->p, 1, NEO__KEYS, s->dy, s->dv, wide, !first);
    }
    if (a->dk.data) {
        neo__attention_pack(a, s->queries, q, a->q.stride[0], m);
        neo__attention_product(a, n, a->dim, m, s->ds, 1, NEO__KEYS, s->queries, s->dk, wide,
                               !first);
    }
    if (a->dq.data) {
        float *dq = neo__attention_at(a, a->dq, sequence, head, q0);
        if (k0 > 0) neo__attention_copy(a, s->dq, wide, dq, a->dq.stride[0], m);
        neo__attention_product(a, m, a->dim, n, s->ds, NEO__KEYS, 1, s->keys, s->dq, wide, k0 > 0);
        neo__attention_copy(a, dq, a->dq.stride[0], s->dq, wide, m);
    }
}
static void neo__attention_backward_task(void *arg, int64_t index, int worker) {
    const neo__attention *a = (const neo__attention *)arg;
    const int64_t head = index % a->heads, sequence = index / a->heads;
    const neo__attention_scratch s = neo__attention_scratch_of(a, worker);
    for (int64_t k0 = 0; k0 < a->length; k0 += NEO__KEYS) {
        const int64_t n = NEO__MIN((int64_t)NEO__KEYS, a->length - k0), start = a->causal ? k0 : 0;
        const float *k = neo__attention_at(a, a->k, sequence, head, k0);
        neo__attention_flip(a, s.keys_flipped, k, a->k.stride[0], n);
        neo__attention_flip(a, s.values_flipped, neo__attention_at(a, a->v, sequence, head, k0),
                            a->v.stride[0], n);
        if (a->dq.data) neo__attention_pack(a, s.keys, k, a->k.stride[0], n);
        for (int64_t q0 = start; q0 < a->length; q0 += NEO__KEYS)
            neo__attention_pair(a, &s, sequence, head, k0, n, q0, q0 == start);
        if (a->dk.data)
            neo__attention_copy(a, neo__attention_at(a, a->dk, sequence, head, k0), a->dk.stride[0],
                                s.dk, a->wide, n);
        if (a->dv.data)
            neo__attention_copy(a, neo__attention_at(a, a->dv, sequence, head, k0), a->dv.stride[0],
                                s.dv, a->wide, n);
    }
}

NEO__COLD_BEGIN
static neo_status neo__attention_begin(neo__attention *a, neo_ctx *ctx, const char *fn,
                                       const neo_attention_desc *d, neo_tensor q, neo_tensor k,
                                       neo_tensor v, neo_tensor y) {
    memset(a, 0, sizeof *a);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(d, NEO_ERR_ARG, "%s: desc is NULL", fn);
    NEO__CHECK(d->length >= 1 && d->heads >= 1, NEO_ERR_ARG,
               "%s: a length of %" PRId64 " and %" PRId64 " heads, both must be 1 or more", fn,
               d->length, d->heads);
    NEO__CHECK(d->scale - d->scale == 0.0f, NEO_ERR_ARG, "%s: scale is %g", fn, (double)d->scale);
    const int64_t rows = q.shape[0], cols = q.shape[1];
    NEO__TRY(neo__check_matrix(q, rows, cols, 0, fn, "q"));
    NEO__TRY(neo__check_matrix(k, rows, cols, 0, fn, "k"));
    NEO__TRY(neo__check_matrix(v, rows, cols, 0, fn, "v"));
    NEO__CHECK(rows % d->length == 0, NEO_ERR_SHAPE,
               "%s: q has %" PRId64 " rows, not whole sequences of %" PRId64, fn, rows, d->length);
    NEO__CHECK(cols > 0 && cols % d->heads == 0, NEO_ERR_SHAPE,
               "%s: q has %" PRId64 " columns, not whole ones of %" PRId64 " heads", fn, cols,
               d->heads);
    a->ctx = ctx;
    a->length = d->length;
    a->heads = d->heads;
    a->dim = cols / d->heads;
    NEO__CHECK(a->dim <= NEO_MAX_HEAD_DIM, NEO_ERR_UNSUPPORTED,
               "%s: heads of %" PRId64 " columns, more than %d", fn, a->dim, (int)NEO_MAX_HEAD_DIM);
    const int64_t width = 2 * (int64_t)ctx->gemm->lanes;
    a->wide = (a->dim + width - 1) / width * width;
    a->sequences = rows / d->length;
    a->tiles = (d->length + NEO__KEYS - 1) / NEO__KEYS;
    a->causal = d->causal != 0;
    a->scale = d->scale == 0.0f ? (float)(1.0 / sqrt((double)a->dim)) : d->scale;
    a->q = q, a->k = k, a->v = v, a->y = y;
    return NEO_OK;
}
NEO_API neo_status neo_attention_forward(neo_ctx *ctx, const neo_attention_desc *desc, neo_tensor q,
                                         neo_tensor k, neo_tensor v, neo_tensor y, neo_tensor lse) {
    static const char *const fn = "neo_attention_forward";
    neo__attention a;
    NEO__TRY(neo__attention_begin(&a, ctx, fn, desc, q, k, v, y));
    NEO__TRY(neo__check_matrix(y, q.shape[0], q.shape[1], 1, fn, "y"));
    if (neo__given(lse)) NEO__TRY(neo__check_matrix(lse, q.shape[0], a.heads, 1, fn, "lse"));
    a.lse = lse;
    neo_parallel_for(ctx, a.sequences * a.heads * a.tiles, neo__attention_forward_task, &a);
    return NEO_OK;
}
NEO_API neo_status neo_attention_backward(neo_ctx *ctx, const neo_attention_desc *desc,
                                          neo_tensor q, neo_tensor k, neo_tensor v, neo_tensor y,
                                          neo_tensor lse, neo_tensor dy, neo_tensor dq,
                                          neo_tensor dk, neo_tensor dv) {
    static const char *const fn = "neo_attention_backward";
    const int64_t rows = q.shape[0], cols = q.shape[1];
    neo__attention a;
    NEO__TRY(neo__attention_begin(&a, ctx, fn, desc, q, k, v, y));
    NEO__TRY(neo__check_matrix(y, rows, cols, 0, fn, "y"));
    NEO__TRY(neo__check_matrix(lse, rows, a.heads, 0, fn, "lse"));
    NEO__TRY(neo__check_matrix(dy, rows, cols, 0, fn, "dy"));
    if (neo__given(dq)) NEO__TRY(neo__check_matrix(dq, rows, cols, 1, fn, "dq"));
    if (neo__given(dk)) NEO__TRY(neo__check_matrix(dk, rows, cols, 1, fn, "dk"));
    if (neo__given(dv)) NEO__TRY(neo__check_matrix(dv, rows, cols, 1, fn, "dv"));
    a.lse = lse, a.dy = dy, a.dq = dq, a.dk = dk, a.dv = dv;
    neo_parallel_for(ctx, a.sequences * a.heads, neo__attention_backward_task, &a);
    return NEO_OK;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-losses

   A sample's loss is one f32, rounded as its formula says; the losses of the batch add in a
   neo_exact, so no order of tasks, leaves or ranks shows. Every worker adds to a sum of its own
   (in its scratch); they are merged at the end. Labels are checked before anything is written.
   ------------------------------------------------------------------------------------------------ */
typedef void (*neo__loss_kernel)(const float *x, const float *y, const float *weight, float g,
                                 float *loss, float *dx, int64_t n);
typedef struct neo__loss_job {
    neo_ctx *ctx;
    const char *function;
    neo__loss_kernel kernel; /* samples of one element; else row by row */
    const float *x, *y, *weight;
    const int64_t *label; /* cross entropy */
    float *dx;
    int64_t rows, width, batch, tasks;
    float g; /* gradients are multiplied by this */
} neo__loss_job;

NEO__INLINE neo_exact *neo__worker_exact(neo_ctx *ctx, int worker) {
    return (neo_exact *)(void *)neo__worker_scratch(ctx, worker);
}
static void neo__exact_start(neo_ctx *ctx, int sums) {
    for (int w = 0; w < ctx->threads; w++)
        for (int i = 0; i < sums; i++) neo_exact_zero(neo__worker_exact(ctx, w) + i);
}
static neo_exact neo__exact_finish(neo_ctx *ctx, int index) {
    neo_exact sum;
    neo_exact_zero(&sum);
    for (int w = 0; w < ctx->threads; w++)
        neo_exact_merge(&sum, neo__worker_exact(ctx, w) + index);
    return sum;
}

static void neo__loss_elements(const neo__loss_job *j, int64_t begin, int64_t end,
                               neo_exact *sum) {
    float loss[NEO__BLOCK];
    for (int64_t at = begin; at < end; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(end - at, (int64_t)NEO__BLOCK);
        j->kernel(j->x + at, j->y + at, j->weight ? j->weight + at : NULL, j->g, loss,
                  j->dx ? j->dx + at : NULL, n);
        for (int64_t i = 0; i < n; i++) neo_exact_add(sum, loss[i]);
    }
}
static float neo__mse_row(const neo__loss_job *j, int64_t row) {
    float weight = j->weight ? j->weight[row] : 1.0f;
    int64_t at = row * j->width;
    float squares = j->ctx->vec->mse_row(j->x + at, j->y + at, weight * j->g,
                                         j->dx ? j->dx + at : NULL, j->width);
    return weight * (squares / (float)j->width);
}
/* With m the largest logit and s = sum e^(x - m): loss log s - (x_label - m), slope e^(x - m)/s -
   (1 at label). */
static float neo__cross_entropy_row(const neo__loss_job *j, int64_t row) {
    float weight = j->weight ? j->weight[row] : 1.0f, max = 0.0f, g = weight * j->g;
    int64_t label = j->label[row];
    const float *x = j->x + row * j->width;
    float *dx = j->dx ? j->dx + row * j->width : NULL;
    float x_label = x[label]; /* dx may be x */
    float sum = j->ctx->vec->softmax_row(x, &max, dx, j->width);
    if (dx) {
        float p = dx[label] / sum;
        j->ctx->vec->softmax_grad(dx, sum, g, j->width);
        dx[label] = (p - 1.0f) * g;
    }
    return weight * (neo__vlog_scalar(sum) - (x_label - max));
}
static void neo__loss_task(void *arg, int64_t i, int worker) {
    const neo__loss_job *j = (const neo__loss_job *)arg;
    neo_exact *sum = neo__worker_exact(j->ctx, worker);
    int64_t begin, end;
    neo__task_range(j->rows, j->tasks, i, 1, &begin, &end);
    if (j->kernel) {
        neo__loss_elements(j, begin, end, sum);
        return;
    }
    for (int64_t row = begin; row < end; row++)
        neo_exact_add(sum, j->label ? neo__cross_entropy_row(j, row) : neo__mse_row(j, row));
}

/* A tensor of `rows` f32, [B] or [B][1]. */
static neo_status neo__check_column(const char *function, const char *name, neo_tensor t,
                                    int64_t rows) {
    if (!t.data && t.absent && rows > 0) return neo__no_data(function, name, t, NEO_ERR_SHAPE);
    NEO__CHECK((t.data || rows == 0) && t.dtype == NEO_F32 &&
                   (t.ndim == 1 || (t.ndim == 2 && t.shape[1] == 1)) && neo_tensor_is_contiguous(t),
               NEO_ERR_SHAPE, "%s: %s is not a contiguous f32 tensor [B] or [B][1]", function,
               name);
    NEO__CHECK(rows >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function, name);
    NEO__CHECK(t.shape[0] == rows, NEO_ERR_SHAPE,
               "%s: %s has %" PRId64 " samples, the first tensor %" PRId64, function, name,
               t.shape[0], rows);
    return NEO_OK;
}
NEO__COLD_BEGIN
static neo_status neo__loss_options(neo__loss_job *j, neo_ctx *ctx, const char *function,
                                    const neo_loss_desc *desc, neo_tensor x, neo_tensor dx) {
    memset(j, 0, sizeof *j);
    j->ctx = ctx;
    j->function = function;
    j->rows = j->batch = x.shape[0];
    j->width = x.ndim == 2 ? x.shape[1] : 1;
    j->x = (const float *)x.data;
    j->dx = (float *)dx.data;
    if (!desc) return NEO_OK;
    if (desc->batch != 0) j->batch = desc->batch;
    NEO__CHECK(j->batch >= j->rows, NEO_ERR_ARG,
               "%s: batch is %" PRId64 ", less than the %" PRId64 " rows given", function,
               j->batch, j->rows);
    if (neo__given(desc->weight))
        NEO__TRY(neo__check_column(function, "weight", desc->weight, j->rows));
    j->weight = (const float *)desc->weight.data;
    return NEO_OK;
}
static neo_status neo__check_range(const neo__loss_job *j, const char *name, const float *x) {
    int64_t at = j->ctx->vec->find_outside(x, 0.0f, 1.0f, j->rows);
    NEO__CHECK(at == j->rows, NEO_ERR_RANGE, "%s: %s of sample %" PRId64 " is %g, not in [0, 1]",
               j->function, name, at, (double)x[at]);
    return NEO_OK;
}
/* The gradient's factor is numerator/(batch divisor); divisor: the outputs of one sample. */
static void neo__loss_run(neo__loss_job *j, const neo_loss_desc *desc, double numerator,
                          int64_t divisor, double *loss) {
    enum { NEO__LOSS_GRAIN = 8192 };
    neo__fp_state fp = neo__fp_enter();
    double batch = (double)j->batch;
    j->g = j->batch > 0 && divisor > 0 ? (float)(numerator / (batch * (double)divisor)) : 0.0f;
    neo__exact_start(j->ctx, 1);
    if (j->width > 0) {
        j->tasks = neo__task_count(j->ctx, j->rows, 1 + NEO__LOSS_GRAIN / j->width);
        neo_parallel_for(j->ctx, j->tasks, neo__loss_task, j);
    }
    neo_exact sum = neo__exact_finish(j->ctx, 0);
    if (loss) *loss = j->batch > 0 ? neo_exact_value(&sum) / batch : 0.0;
    if (desc && desc->sum) neo_exact_merge(desc->sum, &sum);
    neo__fp_leave(fp);
}

static neo_status neo__bce_run(neo_ctx *ctx, const char *function, const neo_loss_desc *desc,
                               const char *names[3], const neo_tensor x, neo_tensor label,
                               neo_tensor dx, int logits, double *loss) {
    neo__loss_job job;
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__TRY(neo__check_column(function, names[0], x, x.shape[0]));
    NEO__TRY(neo__check_column(function, names[1], label, x.shape[0]));
    if (neo__given(dx)) NEO__TRY(neo__check_column(function, names[2], dx, x.shape[0]));
    NEO__TRY(neo__loss_options(&job, ctx, function, desc, x, dx));
    job.y = (const float *)label.data;
    job.kernel = logits ? ctx->vec->bce_logits : ctx->vec->bce;
    NEO__TRY(neo__check_range(&job, names[1], job.y));
    if (!logits) NEO__TRY(neo__check_range(&job, names[0], job.x));
    neo__loss_run(&job, desc, 1.0, 1, loss);
    return NEO_OK;
}

NEO_API neo_status neo_bce_with_logits(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                       neo_tensor label, neo_tensor dlogit, double *loss) {
    const char *names[3] = {"logit", "label", "dlogit"};
    return neo__bce_run(ctx, "neo_bce_with_logits", desc, names, logit, label, dlogit, 1, loss);
}
NEO_API neo_status neo_bce(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor prob,
                           neo_tensor label, neo_tensor dprob, double *loss) {
    const char *names[3] = {"prob", "label", "dprob"};
    return neo__bce_run(ctx, "neo_bce", desc, names, prob, label, dprob, 0, loss);
}

NEO_API neo_status neo_mse(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor pred,
                           neo_tensor target, neo_tensor dpred, double *loss) {
    const char *function = "neo_mse";
    neo__loss_job job;
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__TRY(neo__check_like(function, "pred", pred, pred));
    NEO__TRY(neo__check_like(function, "target", target, pred));
    if (neo__given(dpred)) NEO__TRY(neo__check_like(function, "dpred", dpred, pred));
    NEO__CHECK(pred.ndim == 1 || pred.ndim == 2, NEO_ERR_SHAPE,
               "%s: pred has %d dimensions, not 1 or 2", function, (int)pred.ndim);
    NEO__TRY(neo__loss_options(&job, ctx, function, desc, pred, dpred));
    job.y = (const float *)target.data;
    if (job.width == 1) job.kernel = ctx->vec->mse;
    neo__loss_run(&job, desc, 2.0, job.width, loss);
    return NEO_OK;
}
NEO__COLD_END

NEO_API neo_status neo_cross_entropy(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                     neo_tensor label, neo_tensor dlogit, double *loss) {
    const char *function = "neo_cross_entropy";
    neo__loss_job job;
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__TRY(neo__check_like(function, "logit", logit, logit));
    NEO__CHECK(logit.ndim == 2 && logit.shape[1] > 0, NEO_ERR_SHAPE,
               "%s: logit is not [B][C] with C > 0", function);
    if (neo__given(dlogit)) NEO__TRY(neo__check_like(function, "dlogit", dlogit, logit));
    if (label.absent && !label.data) return neo__no_data(function, "label", label, NEO_ERR_SHAPE);
    NEO__CHECK((label.data || logit.shape[0] == 0) && label.dtype == NEO_I64 && label.ndim == 1 &&
                   neo_tensor_is_contiguous(label) && label.shape[0] == logit.shape[0],
               NEO_ERR_SHAPE, "%s: label is not a contiguous i64 tensor of %" PRId64 " samples",
               function, logit.shape[0]);
    NEO__TRY(neo__loss_options(&job, ctx, function, desc, logit, dlogit));
    job.label = (const int64_t *)label.data;
    for (int64_t i = 0; i < job.rows; i++)
        NEO__CHECK(job.label[i] >= 0 && job.label[i] < job.width, NEO_ERR_RANGE,
                   "%s: label of sample %" PRId64 " is %" PRId64 ", not in [0, %" PRId64 ")",
                   function, i, job.label[i], job.width);
    neo__loss_run(&job, desc, 1.0, 1, loss);
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-params

   A parameter is one allocation: its record, its value and its gradient, both filled up with zeros
   to a multiple of NEO__BLOCK elements, and its name. In a deferred set it is its record and its
   name.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__param_slot {
    neo_param param; /* first: a neo_param handed out is a slot */
    neo_init init;   /* not DEFAULT */
    size_t bytes;    /* of the allocation */
} neo__param_slot;
struct neo_params {
    neo_ctx *ctx;
    neo__param_slot **slot;
    int count, capacity;
    int deferred;
};
static const char *const neo__params_absent = "its set is not in memory";

NEO__INLINE size_t neo__align_up(size_t bytes) {
    return neo__size_add(bytes, NEO__ALIGN - 1) / NEO__ALIGN * NEO__ALIGN;
}
/* Elements with the padding. */
NEO__INLINE int64_t neo__block_pad(int64_t count) {
    return (count + NEO__BLOCK - 1) / NEO__BLOCK * NEO__BLOCK;
}

NEO__COLD_BEGIN
static neo_status neo__params_make(neo_ctx *ctx, neo_params **out, int deferred, const char *fn) {
    NEO__CHECK(out, NEO_ERR_ARG, "%s: params is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_ctx(fn, ctx));
    neo_params *p = (neo_params *)neo__alloc_zero(ctx, sizeof *p);
    NEO__CHECK(p, NEO_ERR_MEMORY, "%s: no memory for %zu bytes", fn, sizeof *p);
    p->ctx = ctx;
    p->deferred = deferred;
    *out = p;
    return NEO_OK;
}
NEO_API neo_status neo_params_create(neo_ctx *ctx, neo_params **out) {
    return neo__params_make(ctx, out, 0, "neo_params_create");
}
NEO_API neo_status neo_params_create_deferred(neo_ctx *ctx, neo_params **out) {
    return neo__params_make(ctx, out, 1, "neo_params_create_deferred");
}

/* Takes back the parameters added after the first `count`. */
static void neo__params_truncate(neo_params *p, int count) {
    while (p->count > count) {
        neo__param_slot *slot = p->slot[--p->count];
        neo_free(p->ctx, slot, slot->bytes);
    }
}

NEO_API void neo_params_destroy(neo_params *p) {
    if (!p) return;
    neo__params_truncate(p, 0);
    neo_free(p->ctx, p->slot, (size_t)p->capacity * sizeof *p->slot);
    neo_free(p->ctx, p, sizeof *p);
}

/* Room for one more pointer. */
static neo_status neo__params_reserve(neo_params *p) {
    if (p->count < p->capacity) return NEO_OK;
    int capacity = p->capacity ? 2 * p->capacity : 16;
    size_t bytes = (size_t)capacity * sizeof *p->slot;
    neo__param_slot **slot = (neo__param_slot **)neo__alloc_zero(p->ctx, bytes);
    NEO__CHECK(slot, NEO_ERR_MEMORY, "neo_params_add: no memory for %zu bytes", bytes);
    if (p->count) memcpy(slot, p->slot, (size_t)p->count * sizeof *slot);
    neo_free(p->ctx, p->slot, (size_t)p->capacity * sizeof *p->slot);
    p->slot = slot;
    p->capacity = capacity;
    return NEO_OK;
}

static neo_status neo__params_check(const neo_params *p, const char *name, int ndim,
                                    const int64_t *shape, int64_t *count) {
    NEO__CHECK(p, NEO_ERR_ARG, "neo_params_add: params is NULL");
    NEO__CHECK(name && name[0], NEO_ERR_ARG, "neo_params_add: a parameter needs a name");
    NEO__CHECK(!neo_params_find(p, name), NEO_ERR_ARG,
               "neo_params_add: there is a parameter '%s' already", name);
    NEO__CHECK(ndim >= 0 && ndim <= NEO_MAX_DIMS && (ndim == 0 || shape), NEO_ERR_ARG,
               "neo_params_add: '%s' has %d dimensions, not 0 .. %d", name, ndim, NEO_MAX_DIMS);
    *count = 1;
    for (int d = 0; d < ndim; d++) {
        NEO__CHECK(shape[d] >= 0, NEO_ERR_ARG, "neo_params_add: dimension %d of '%s' is %" PRId64,
                   d, name, shape[d]);
        NEO__CHECK(shape[d] == 0 || *count <= INT64_MAX / 64 / shape[d], NEO_ERR_ARG,
                   "neo_params_add: '%s' has too many elements", name);
        *count *= shape[d];
    }
    return NEO_OK;
}

/* The memory of a parameter: record, then value and gradient unless deferred, then name; gradient
   and padding zero. */
static neo__param_slot *neo__param_alloc(neo_params *p, const char *name, int ndim,
                                         const int64_t *shape, int64_t count) {
    size_t name_bytes = strlen(name) + 1, head = neo__align_up(sizeof(neo__param_slot));
    size_t used = (size_t)count * sizeof(float);
    size_t padded = p->deferred ? 0 : (size_t)neo__block_pad(count) * sizeof(float);
    size_t bytes = neo__size_add(neo__size_add(head, 2 * padded), name_bytes);
    char *memory = (char *)neo_alloc(p->ctx, bytes);
    if (!memory) {
        neo_fail(NEO_ERR_MEMORY, "neo_params_add: no memory for %zu bytes of '%s'", bytes, name);
        return NULL;
    }
    neo__param_slot *slot = (neo__param_slot *)(void *)memory;
    char *value = memory + head, *grad = value + padded, *own_name = grad + padded;
    memset(memory, 0, head);
    memcpy(own_name, name, name_bytes);
    slot->bytes = bytes;
    slot->param.name = own_name;
    slot->param.value = neo_tensor_nd(p->deferred ? NULL : value, NEO_F32, ndim, shape);
    slot->param.grad = neo_tensor_nd(p->deferred ? NULL : grad, NEO_F32, ndim, shape);
    if (p->deferred) {
        slot->param.value.absent = slot->param.grad.absent = neo__params_absent;
    } else {
        memset(value + used, 0, padded - used);
        memset(grad, 0, padded);
    }
    return slot;
}

NEO_API neo_status neo_params_add(neo_params *p, const char *name, int ndim, const int64_t *shape,
                                  neo_init init, const neo_param **param) {
    int64_t count = 0;
    if (param) *param = NULL;
    NEO__TRY(neo__params_check(p, name, ndim, shape, &count));
    NEO__TRY(neo__params_reserve(p));
    if (init.kind == NEO_INIT_DEFAULT) init.kind = NEO_INIT_CONSTANT, init.a = 0.0f, init.b = 0.0f;
    if (p->deferred) NEO__TRY(neo__init_check(&init, name));
    neo__param_slot *slot = neo__param_alloc(p, name, ndim, shape, count);
    if (!slot) return NEO_ERR_MEMORY;
    slot->init = init;

    neo_status status = NEO_OK;
    if (!p->deferred && init.kind != NEO_INIT_NONE)
        status = neo_tensor_init(p->ctx, slot->param.value, slot->param.name, init, 0);
    if (status != NEO_OK) {
        neo_free(p->ctx, slot, slot->bytes);
        return status;
    }
    p->slot[p->count++] = slot;
    if (param) *param = &slot->param;
    return NEO_OK;
}

NEO_API int neo_params_is_deferred(const neo_params *p) { return p->deferred; }
NEO_API neo_init neo_params_initializer(const neo_params *p, int index) {
    NEO__ZERO(neo_init, none);
    none.kind = NEO_INIT_NONE;
    return index >= 0 && index < p->count ? p->slot[index]->init : none;
}
NEO_API neo_status neo_params_bind(neo_params *p, int index, void *value, void *grad,
                                   const char *absent) {
    NEO__CHECK(p && index >= 0 && index < p->count, NEO_ERR_ARG,
               "neo_params_bind: params is NULL or there is no parameter %d", index);
    neo_param *param = &p->slot[index]->param;
    NEO__CHECK(p->deferred, NEO_ERR_ARG,
               "neo_params_bind: '%s': the set is not deferred, it has memory of its own",
               param->name);
    const char *why = absent ? absent : neo__params_absent;
    param->value.data = value;
    param->value.absent = value ? NULL : why;
    param->grad.data = grad;
    param->grad.absent = grad ? NULL : why;
    return NEO_OK;
}
NEO_API int neo_params_count(const neo_params *p) { return p->count; }
NEO_API const neo_param *neo_params_at(const neo_params *p, int index) {
    return index >= 0 && index < p->count ? &p->slot[index]->param : NULL;
}
NEO_API const neo_param *neo_params_find(const neo_params *p, const char *name) {
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->slot[i]->param.name, name) == 0) return &p->slot[i]->param;
    return NULL;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-optim

   torch.optim's rules, one f32 kernel per optimizer. What depends only on the step (bias
   corrections, decayed rates) is computed once in double with neo's own pow and rounded to f32.
   Everything lives in one allocation: record, slots, list of state tensors, their names, then the
   state itself, each tensor at a multiple of NEO__BLOCK elements.

   Work is cut at blocks of NEO__BLOCK elements of a parameter. Norms are f32 sums inside a block,
   by its fixed shape, then a neo_exact over blocks: no cut of the work shows. Clipping reads all
   gradients before any weight moves; the gradients themselves stay as they are, the factor enters
   the step.

   For checkpoints: neo__optim_state_count and neo__optim_state_at list the tensors that a resumed
   run needs, in the order of the parameters: <optim name>.<parameter>.momentum_buffer (SGD with
   momentum), .sum (Adagrad), .exp_avg and .exp_avg_sq (Adam family), f32 of the parameter's shape;
   last <optim name>.step, i64 [1]. Loading writes into their data.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__optim_slot {
    float *state[2];
    int64_t first_block; /* of the parameter, counting over all */
} neo__optim_slot;
typedef struct neo__optim_entry {
    const char *name;
    neo_tensor tensor;
} neo__optim_entry;
struct neo_optim {
    neo_ctx *ctx;
    neo_params *params;
    neo_optim_desc desc; /* defaults filled in; name: owned */
    size_t bytes;
    int param_count, state_count; /* state_count: per element */
    neo__optim_slot *slot;
    neo__optim_entry *entry;
    int64_t block_count;
    int64_t step;
    double grad_norm;
};

NEO__COLD_BEGIN
/* Names of the state an optimizer keeps per element; the count is returned. */
static int neo__optim_states(const neo_optim_desc *d, const char *names[2]) {
    names[0] = names[1] = NULL;
    switch (d->kind) {
    case NEO_OPTIM_SGD: names[0] = "momentum_buffer"; return d->momentum != 0.0f;
    case NEO_OPTIM_ADAGRAD: names[0] = "sum"; return 1;
    case NEO_OPTIM_ADAM:
    case NEO_OPTIM_ADAMW:
    case NEO_OPTIM_LAMB:
        names[0] = "exp_avg";
        names[1] = "exp_avg_sq";
        return 2;
    }
    return 0;
}

/* Where things lie in the allocation. */
typedef struct neo__optim_layout {
    size_t slot, entry, names, state, bytes;
} neo__optim_layout;
static neo__optim_layout neo__optim_plan(const neo_params *params, const neo_optim_desc *d) {
    const char *kinds[2];
    int states = neo__optim_states(d, kinds), count = neo_params_count(params);
    const char *name = d->name ? d->name : "optim";
    size_t prefix = strlen(name) + 1, names = prefix + prefix + strlen("step") + 1, state = 0;
    for (int i = 0; i < count; i++) {
        const neo_param *p = neo_params_at(params, i);
        for (int s = 0; s < states; s++) {
            names += prefix + strlen(p->name) + 1 + strlen(kinds[s]) + 1;
            state += (size_t)neo__block_pad(neo_tensor_count(p->value)) * sizeof(float);
        }
    }
    neo__optim_layout l;
    l.slot = neo__align_up(sizeof(neo_optim));
    l.entry = neo__align_up(l.slot + (size_t)count * sizeof(neo__optim_slot));
    l.names =
        neo__align_up(l.entry + ((size_t)count * (size_t)states + 1) * sizeof(neo__optim_entry));
    l.state = neo__align_up(l.names + names);
    l.bytes = neo__size_add(l.state, state);
    return l;
}
NEO_API size_t neo_optim_state_bytes(const neo_params *params, const neo_optim_desc *desc) {
    return neo__optim_plan(params, desc).bytes;
}

static neo_status neo__optim_number(const char *name, double x, double low, double high) {
    NEO__CHECK(x >= low && x <= high, NEO_ERR_ARG, "neo_optim_create: %s is %g, not in [%g, %g]",
               name, x, low, high);
    return NEO_OK;
}
static neo_status neo__optim_check(const neo_optim_desc *d) {
    const double most = (double)FLT_MAX, below_one = 1.0 - 0x1p-53;
    NEO__CHECK(d->kind >= NEO_OPTIM_SGD && d->kind <= NEO_OPTIM_LAMB, NEO_ERR_ARG,
               "neo_optim_create: no optimizer kind %d", (int)d->kind);
    NEO__TRY(neo__optim_number("weight_decay", (double)d->weight_decay, 0, most));
    NEO__TRY(neo__optim_number("momentum", (double)d->momentum, 0, most));
    NEO__TRY(neo__optim_number("dampening", (double)d->dampening, -most, most));
    NEO__TRY(neo__optim_number("lr_decay", (double)d->lr_decay, 0, most));
    NEO__TRY(neo__optim_number("initial_accumulator", (double)d->initial_accumulator, 0, most));
    NEO__TRY(neo__optim_number("beta1", d->beta1, -most, below_one));
    NEO__TRY(neo__optim_number("beta2", d->beta2, -most, below_one));
    NEO__TRY(neo__optim_number("eps", (double)d->eps, 0, most));
    NEO__TRY(neo__optim_number("clip_norm", (double)d->clip_norm, 0, most));
    float type = d->clip_norm_type;
    NEO__CHECK(type == 0.0f || type == 1.0f || type == 2.0f || type > FLT_MAX, NEO_ERR_ARG,
               "neo_optim_create: clip_norm_type is %g, not 1, 2 or infinity", (double)type);
    NEO__CHECK(!d->nesterov || (d->momentum > 0.0f && d->dampening == 0.0f), NEO_ERR_ARG,
               "neo_optim_create: nesterov needs momentum > 0 and dampening 0, not %g and %g",
               (double)d->momentum, (double)d->dampening);
    return NEO_OK;
}
static void neo__optim_defaults(neo_optim_desc *d) {
    if (d->beta1 == 0.0) d->beta1 = 0.9;
    if (d->beta2 == 0.0) d->beta2 = 0.999;
    if (d->beta1 < 0.0) d->beta1 = 0.0;
    if (d->beta2 < 0.0) d->beta2 = 0.0;
    if (d->eps == 0.0f)
        d->eps = d->kind == NEO_OPTIM_ADAGRAD ? 1e-10f : d->kind == NEO_OPTIM_LAMB ? 1e-6f : 1e-8f;
    if (d->clip_norm_type == 0.0f) d->clip_norm_type = 2.0f;
}

/* Appends "a.b" or "a.b.c" to the names and returns it. */
static const char *neo__optim_name(char **at, const char *a, const char *b, const char *c) {
    char *name = *at;
    size_t room = strlen(a) + strlen(b) + (c ? strlen(c) + 1 : 0) + 2;
    snprintf(name, room, c ? "%s.%s.%s" : "%s.%s", a, b, c);
    *at = name + room;
    return name;
}
static void neo__optim_fill(neo_optim *o, const neo__optim_layout *l) {
    char *memory = (char *)o, *names = memory + l->names;
    float *state = (float *)(void *)(memory + l->state);
    const char *kinds[2], *prefix = o->desc.name ? o->desc.name : "optim";
    neo__optim_entry *entry = (neo__optim_entry *)(void *)(memory + l->entry);
    memcpy(names, prefix, strlen(prefix) + 1);
    o->desc.name = names;
    names += strlen(prefix) + 1;
    o->entry = entry;
    o->slot = (neo__optim_slot *)(void *)(memory + l->slot);
    o->param_count = neo_params_count(o->params);
    o->state_count = neo__optim_states(&o->desc, kinds);
    for (int i = 0; i < o->param_count; i++) {
        const neo_param *p = neo_params_at(o->params, i);
        int64_t count = neo_tensor_count(p->value), padded = neo__block_pad(count);
        o->slot[i].first_block = o->block_count;
        o->block_count += padded / NEO__BLOCK;
        for (int s = 0; s < o->state_count; s++, entry++, state += padded) {
            o->slot[i].state[s] = state;
            entry->name = neo__optim_name(&names, o->desc.name, p->name, kinds[s]);
            entry->tensor = p->value;
            entry->tensor.data = state;
            entry->tensor.absent = NULL;
            if (o->desc.kind == NEO_OPTIM_ADAGRAD)
                for (int64_t k = 0; k < count; k++) state[k] = o->desc.initial_accumulator;
        }
    }
    entry->name = neo__optim_name(&names, o->desc.name, "step", NULL);
    entry->tensor = neo_tensor_1d(&o->step, NEO_I64, 1);
}

NEO_API neo_status neo_optim_create(neo_ctx *ctx, neo_params *params, const neo_optim_desc *desc,
                                    neo_optim **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_optim_create: optim is NULL");
    *out = NULL;
    NEO__CHECK(ctx && params && desc, NEO_ERR_ARG, "neo_optim_create: ctx, params or desc is NULL");
    NEO__CHECK(!params->deferred, NEO_ERR_ARG,
               "neo_optim_create: params is a deferred set, which its owner steps");
    NEO__TRY(neo__optim_check(desc));
    neo__optim_layout l = neo__optim_plan(params, desc);
    neo_optim *o = (neo_optim *)neo__alloc_zero(ctx, l.bytes);
    NEO__CHECK(o, NEO_ERR_MEMORY, "neo_optim_create: no memory for %zu bytes of state", l.bytes);
    o->ctx = ctx;
    o->params = params;
    o->desc = *desc;
    o->bytes = l.bytes;
    neo__optim_defaults(&o->desc);
    neo__optim_fill(o, &l);
    *out = o;
    return NEO_OK;
}
NEO_API void neo_optim_destroy(neo_optim *o) {
    if (o) neo_free(o->ctx, o, o->bytes);
}
NEO_API int64_t neo_optim_step_count(const neo_optim *o) { return o->step; }
NEO_API double neo_optim_grad_norm(const neo_optim *o) { return o->grad_norm; }
NEO__COLD_END

NEO__UNUSED static int neo__optim_state_count(const neo_optim *o) {
    return o->param_count * o->state_count + 1;
}
/* State tensor i; its name lives as long as the optimizer. */
NEO__UNUSED static void neo__optim_state_at(neo_optim *o, int i, const char **name,
                                            neo_tensor *tensor) {
    NEO_ASSERT(i >= 0 && i < neo__optim_state_count(o));
    *name = o->entry[i].name;
    *tensor = o->entry[i].tensor;
}

/* ---- work over blocks ---- */
/* A stretch of one parameter, whole blocks of it. */
typedef struct neo__optim_span {
    float *w, *state[2];
    const float *grad;
    int64_t count;
} neo__optim_span;
typedef struct neo__optim_job neo__optim_job;
typedef void (*neo__optim_span_fn)(const neo__optim_job *job, const neo__optim_span *span,
                                   int worker);
struct neo__optim_job {
    neo_optim *optim;
    neo__optim_span_fn fn;
    const neo__step *step;
    int64_t first_block, block_count, tasks;
};

static void neo__optim_task(void *arg, int64_t task, int worker) {
    const neo__optim_job *j = (const neo__optim_job *)arg;
    const neo_optim *o = j->optim;
    int64_t block, end;
    neo__task_range(j->block_count, j->tasks, task, 1, &block, &end);
    block += j->first_block;
    end += j->first_block;
    int i = 0, high = o->param_count; /* the last parameter that starts at or before block */
    while (high - i > 1) {
        int middle = i + (high - i) / 2;
        if (o->slot[middle].first_block <= block) i = middle;
        else high = middle;
    }
    for (; i < o->param_count && block < end; i++) {
        const neo_param *p = neo_params_at(o->params, i);
        const neo__optim_slot *slot = &o->slot[i];
        int64_t at = (block - slot->first_block) * NEO__BLOCK;
        int64_t last =
            NEO__MIN((end - slot->first_block) * NEO__BLOCK, neo_tensor_count(p->value));
        if (at >= last) continue;
        neo__optim_span span;
        span.w = (float *)p->value.data + at;
        span.grad = (const float *)p->grad.data + at;
        for (int s = 0; s < 2; s++) span.state[s] = slot->state[s] ? slot->state[s] + at : NULL;
        span.count = last - at;
        j->fn(j, &span, worker);
        block += (span.count + NEO__BLOCK - 1) / NEO__BLOCK;
    }
}
/* fn on all blocks, or on those of one parameter. */
static void neo__optim_run(neo_optim *o, const neo__step *step, int param, neo__optim_span_fn fn) {
    neo__optim_job j;
    j.optim = o;
    j.fn = fn;
    j.step = step;
    j.first_block = param < 0 ? 0 : o->slot[param].first_block;
    int64_t end =
        param < 0 || param + 1 == o->param_count ? o->block_count : o->slot[param + 1].first_block;
    j.block_count = end - j.first_block;
    j.tasks = neo__task_count(o->ctx, j.block_count, NEO__VEC_GRAIN / NEO__BLOCK);
    if (j.block_count > 0) neo_parallel_for(o->ctx, j.tasks, neo__optim_task, &j);
}

/* ---- the gradient's norm ---- */
static void neo__optim_norm_span(const neo__optim_job *j, const neo__optim_span *span,
                                 int worker) {
    const neo__vec_kernels *vec = j->optim->ctx->vec;
    neo_exact *sum = neo__worker_exact(j->optim->ctx, worker);
    float type = j->optim->desc.clip_norm_type, *most = (float *)(void *)(sum + 1);
    for (int64_t at = 0; at < span->count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(span->count - at, (int64_t)NEO__BLOCK);
        const float *g = span->grad + at;
        if (type == 1.0f) neo_exact_add(sum, vec->block_abs(g, n));
        else if (type == 2.0f) neo_exact_add(sum, vec->block_square(g, n));
        else {
            float max = vec->block_max(g, n);
            if (neo__bits_f32(max) > neo__bits_f32(*most)) *most = max;
        }
    }
}
static double neo__optim_norm(neo_optim *o) {
    neo_ctx *ctx = o->ctx;
    float most = 0.0f;
    neo__exact_start(ctx, 2); /* the second holds the largest element */
    neo__optim_run(o, NULL, -1, neo__optim_norm_span);
    if (o->desc.clip_norm_type > FLT_MAX) {
        for (int w = 0; w < ctx->threads; w++) {
            float max = *(const float *)(const void *)(neo__worker_exact(ctx, w) + 1);
            if (neo__bits_f32(max) > neo__bits_f32(most)) most = max;
        }
        return (double)most;
    }
    neo_exact sum = neo__exact_finish(ctx, 0);
    double value = neo_exact_value(&sum);
    return o->desc.clip_norm_type == 1.0f ? value : sqrt(value);
}

/* ---- the step ---- */
static void neo__optim_step_span(const neo__optim_job *j, const neo__optim_span *span,
                                 int worker) {
    const neo__vec_kernels *vec = j->optim->ctx->vec;
    (void)worker;
    switch (j->optim->desc.kind) {
    case NEO_OPTIM_SGD: vec->sgd(j->step, span->w, span->grad, span->state[0], span->count); break;
    case NEO_OPTIM_ADAGRAD:
        vec->adagrad(j->step, span->w, span->grad, span->state[0], span->count);
        break;
    case NEO_OPTIM_ADAM:
    case NEO_OPTIM_ADAMW:
        vec->adam(j->step, span->w, span->grad, span->state[0], span->state[1], span->count);
        break;
    case NEO_OPTIM_LAMB:
        vec->lamb_move(j->step, span->w, span->state[0], span->state[1], span->count);
        break;
    }
}
/* LAMB's moments, and the square sums of weights and direction. */
static void neo__optim_lamb_span(const neo__optim_job *j, const neo__optim_span *span,
                                 int worker) {
    const neo__vec_kernels *vec = j->optim->ctx->vec;
    neo_exact *sum = neo__worker_exact(j->optim->ctx, worker);
    vec->lamb_moments(j->step, span->grad, span->state[0], span->state[1], span->count);
    for (int64_t at = 0; at < span->count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(span->count - at, (int64_t)NEO__BLOCK);
        const float *w = span->w + at;
        neo_exact_add(sum, vec->block_square(w, n));
        neo_exact_add(sum + 1,
                      vec->lamb_square(j->step, w, span->state[0] + at, span->state[1] + at, n));
    }
}
NEO__COLD_BEGIN
static void neo__optim_lamb(neo_optim *o, const neo__step *step, float lr) {
    for (int i = 0; i < o->param_count; i++) {
        neo__step s = *step;
        neo__exact_start(o->ctx, 2);
        neo__optim_run(o, &s, i, neo__optim_lamb_span);
        neo_exact w2 = neo__exact_finish(o->ctx, 0), u2 = neo__exact_finish(o->ctx, 1);
        double w = sqrt(neo_exact_value(&w2)), u = sqrt(neo_exact_value(&u2));
        s.lr = (float)(w > 0.0 && u > 0.0 ? (double)lr * (w / u) : (double)lr);
        neo__optim_run(o, &s, i, neo__optim_step_span);
    }
}

/* The numbers of step t = 1, 2, ... */
static neo__step neo__optim_numbers(const neo_optim_desc *d, int64_t t, double lr, double clip) {
    NEO__ZERO(neo__step, s);
    double steps = (double)t, decay = (double)d->weight_decay;
    int decoupled = d->kind == NEO_OPTIM_ADAMW;
    s.clip = (float)clip;
    s.lr = (float)(d->kind == NEO_OPTIM_ADAGRAD ? lr / (1.0 + (steps - 1.0) * (double)d->lr_decay)
                                                : lr);
    s.weight_decay = decoupled ? 0.0f : d->weight_decay;
    s.keep = decoupled ? (float)(1.0 - lr * decay) : 1.0f;
    s.momentum = d->momentum;
    s.undamped = (float)(1.0 - (double)d->dampening);
    s.first = t == 1;
    s.nesterov = d->nesterov;
    s.rest1 = (float)(1.0 - d->beta1);
    s.beta2 = (float)d->beta2;
    s.rest2 = (float)(1.0 - d->beta2);
    double unbias1 = 1.0 / (1.0 - neo__pow_f64(d->beta1, steps));
    s.unbias1 = (float)(d->kind == NEO_OPTIM_LAMB ? unbias1 : lr * unbias1);
    s.root_unbias2 = (float)sqrt(1.0 - neo__pow_f64(d->beta2, steps));
    s.eps = d->eps;
    return s;
}

static neo_status neo__optim_step_inside(neo_optim *o, float lr) {
    const neo_optim_desc *d = &o->desc;
    double clip = 1.0, norm = 0.0;
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "neo_optim_step: lr is %g", (double)lr);
    NEO__CHECK(neo_params_count(o->params) == o->param_count, NEO_ERR_STATE,
               "neo_optim_step: the set has %d parameters, had %d at neo_optim_create",
               neo_params_count(o->params), o->param_count);
    for (int i = 0; i < o->param_count; i++) {
        const neo_param *p = neo_params_at(o->params, i);
        const neo_tensor t = p->value.data ? p->grad : p->value;
        if (t.absent && !t.data) return neo__no_data("neo_optim_step", p->name, t, NEO_ERR_STATE);
    }
    if (d->clip_norm > 0.0f) {
        norm = neo__optim_norm(o);
        NEO__CHECK(norm - norm == 0.0, NEO_ERR_NUMERIC,
                   "neo_optim_step: the gradient's norm is %g at step %" PRId64, norm,
                   o->step + 1);
        clip = (double)d->clip_norm / (norm + 1e-6);
        if (clip > 1.0) clip = 1.0;
    }
    neo__step s = neo__optim_numbers(d, o->step + 1, (double)lr, clip);
    if (d->kind == NEO_OPTIM_LAMB) neo__optim_lamb(o, &s, lr);
    else neo__optim_run(o, &s, -1, neo__optim_step_span);
    o->step++;
    o->grad_norm = norm;
    return NEO_OK;
}
NEO_API neo_status neo_optim_step(neo_optim *o, float lr) {
    NEO__CHECK(o, NEO_ERR_ARG, "neo_optim_step: optim is NULL");
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__optim_step_inside(o, lr);
    neo__fp_leave(fp);
    return status;
}

/* ---- schedules ---- */
static double neo__schedule_lr_f64(const neo_schedule *s, int64_t step) {
    double lr = (double)s->lr, end = (double)s->end_lr;
    int64_t start = s->warmup_steps + s->hold_steps;
    if (step < s->warmup_steps) return lr * (double)(step + 1) / (double)s->warmup_steps;
    if (s->kind == NEO_SCHEDULE_CONSTANT || step < start) return lr;
    if (step >= s->total_steps) return end;
    double t = (double)(step - start) / (double)(s->total_steps - start), left = 0.0;
    switch (s->kind) {
    case NEO_SCHEDULE_CONSTANT: break;
    case NEO_SCHEDULE_LINEAR: left = 1.0 - t; break;
    case NEO_SCHEDULE_COSINE: left = 0.5 * (1.0 + neo__cos_f64(t * 3.14159265358979323846)); break;
    case NEO_SCHEDULE_POLY:
        left = neo__pow_f64(1.0 - t, s->power == 0.0f ? 2.0 : (double)s->power);
        break;
    }
    return end + (lr - end) * left;
}
NEO_API float neo_schedule_lr(const neo_schedule *schedule, int64_t step) {
    neo__fp_state fp = neo__fp_enter();
    volatile float lr = (float)neo__schedule_lr_f64(schedule, step); /* rounded before leave, not after */
    neo__fp_leave(fp);
    return lr;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-gradcheck
   ------------------------------------------------------------------------------------------------ */
NEO__COLD_BEGIN
/* Central difference at one element: the step that counts is the one the f32 value really took. */
static neo_status neo__numeric_slope(const neo_gradcheck_desc *d, float *x, double step,
                                     double *slope) {
    float saved = *x;
    double loss[2] = {0.0, 0.0}, at[2] = {0.0, 0.0};
    neo_status status = NEO_OK;
    for (int side = 0; side < 2 && status == NEO_OK; side++) {
        *x = (float)((double)saved + (side ? step : -step));
        at[side] = (double)*x;
        status = d->loss(d->user, &loss[side]);
    }
    *x = saved;
    *slope = (loss[1] - loss[0]) / (at[1] - at[0]);
    return status;
}

NEO_API neo_status neo_gradcheck(const neo_gradcheck_desc *d, neo_gradcheck_result *result) {
    NEO__ZERO(neo_gradcheck_result, r);
    NEO__CHECK(d && d->loss, NEO_ERR_ARG, "neo_gradcheck: no loss function");
    NEO__TRY(neo__check_like("neo_gradcheck", "value", d->value, d->value));
    NEO__TRY(neo__check_like("neo_gradcheck", "grad", d->grad, d->value));
    double step = d->step > 0 ? d->step : 1e-2;
    double rel_tol = d->rel_tol > 0 ? d->rel_tol : 2e-2,
           abs_tol = d->abs_tol > 0 ? d->abs_tol : 1e-4;
    const char *name = d->name ? d->name : "value";
    int64_t count = neo_tensor_count(d->value);
    int64_t checks = d->max_elements > 0 ? NEO__MIN(d->max_elements, count) : count;
    float *x = (float *)d->value.data;
    const float *grad = (const float *)d->grad.data;
    for (int64_t i = 0; i < checks; i++) {
        int64_t at = (int64_t)((double)i / (double)checks * (double)count);
        double analytic = (double)grad[at], numeric = 0.0;
        NEO__TRY(neo__numeric_slope(d, x + at, step, &numeric));
        double size = numeric < 0 ? -numeric : numeric, off = analytic - numeric;
        double ratio = (off < 0 ? -off : off) / (abs_tol + rel_tol * size);
        int worse =
            !(ratio <= r.worst_ratio) && r.worst_ratio == r.worst_ratio; /* a NaN is the worst */
        r.checked++;
        if (!(ratio <= 1.0)) r.failed++;
        if (worse || i == 0) {
            r.worst_element = at;
            r.worst_ratio = ratio;
            r.analytic = analytic;
            r.numeric = numeric;
        }
    }
    if (result) *result = r;
    NEO__CHECK(r.failed == 0, NEO_ERR_MISMATCH,
               "neo_gradcheck: %s: %" PRId64 " of %" PRId64
               " gradients are off, most at element %" PRId64
               ": %g from backward, %g by differences",
               name, r.failed, r.checked, r.worst_element, r.analytic, r.numeric);
    return NEO_OK;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-jagged

   Views are checked before they are followed: neo__jagged_check looks at the struct and the two
   ends of the offsets, neo__jagged_check_offsets at every offset. Writers make one pass that
   checks (counts, capacity, ids that fit) and one that writes, so that a failed call leaves the
   buffer as it was.
   ------------------------------------------------------------------------------------------------ */
struct neo_jagged_buffer {
    neo_ctx *ctx;
    neo_jagged view;
    int64_t max_bags, max_ids;
    int64_t *offsets;      /* [max_bags + 1] */
    int64_t *feature_bags; /* [feature_count + 1] */
    void *ids;             /* [max_ids] */
    float *weights;        /* [max_ids], or NULL */
    int64_t grow_count;
};

NEO__INLINE int64_t neo__jagged_first_bag(const neo_jagged *j, int64_t feature) {
    return j->feature_bags ? j->feature_bags[feature] : feature * j->batch;
}

NEO_API int64_t neo_jagged_bag_count(const neo_jagged *j) {
    return neo__jagged_first_bag(j, j->feature_count);
}
NEO_API int64_t neo_jagged_id_count(const neo_jagged *j) {
    int64_t bags = neo_jagged_bag_count(j);
    return bags > 0 ? j->offsets[bags] - j->offsets[0] : 0;
}

NEO__COLD_BEGIN
/* The struct, its pointers and counts, and the first and last offset. */
static neo_status neo__jagged_check(const neo_jagged *j, const char *fn) {
    NEO__CHECK(j, NEO_ERR_ARG, "%s: the batch is NULL", fn);
    NEO__CHECK(j->feature_count >= 0, NEO_ERR_ARG, "%s: feature_count is %d", fn,
               j->feature_count);
    NEO__CHECK(j->id_dtype == NEO_I64 || j->id_dtype == NEO_I32, NEO_ERR_ARG,
               "%s: ids are %s, not i64 or i32", fn, neo_dtype_name(j->id_dtype));
    if (j->feature_bags) {
        NEO__CHECK(j->feature_bags[0] == 0, NEO_ERR_FORMAT,
                   "%s: feature_bags[0] is %" PRId64 ", not 0", fn, j->feature_bags[0]);
        for (int32_t t = 0; t < j->feature_count; t++)
            NEO__CHECK(j->feature_bags[t] <= j->feature_bags[t + 1], NEO_ERR_FORMAT,
                       "%s: feature_bags decrease at feature %d: %" PRId64 " then %" PRId64, fn, t,
                       j->feature_bags[t], j->feature_bags[t + 1]);
    } else {
        NEO__CHECK(j->batch >= 0, NEO_ERR_ARG, "%s: batch is %" PRId64, fn, j->batch);
        NEO__CHECK(j->feature_count == 0 || j->batch < INT64_MAX / 16 / j->feature_count,
                   NEO_ERR_ARG, "%s: %d features x %" PRId64 " samples do not fit 64 bits", fn,
                   j->feature_count, j->batch);
    }
    int64_t bags = neo_jagged_bag_count(j);
    if (bags == 0) return NEO_OK;
    NEO__CHECK(j->offsets, NEO_ERR_ARG, "%s: offsets is NULL", fn);
    NEO__CHECK(j->offsets[0] >= 0, NEO_ERR_FORMAT, "%s: offsets[0] is %" PRId64, fn,
               j->offsets[0]);
    NEO__CHECK(j->offsets[bags] >= j->offsets[0], NEO_ERR_FORMAT,
               "%s: offsets go from %" PRId64 " down to %" PRId64, fn, j->offsets[0],
               j->offsets[bags]);
    NEO__CHECK(j->ids || j->offsets[bags] == j->offsets[0], NEO_ERR_ARG, "%s: ids is NULL", fn);
    return NEO_OK;
}
NEO__COLD_END

/* Every offset. After it, [offsets[bag], offsets[bag + 1]) may be followed for every bag. */
static neo_status neo__jagged_check_offsets(const neo_jagged *j, const char *fn) {
    for (int32_t t = 0; t < j->feature_count; t++) {
        int64_t first = neo__jagged_first_bag(j, t), end = neo__jagged_first_bag(j, t + 1);
        for (int64_t i = first; i < end; i++)
            NEO__CHECK(j->offsets[i] <= j->offsets[i + 1], NEO_ERR_FORMAT,
                       "%s: offsets decrease at feature %d, sample %" PRId64 ": offsets[%" PRId64
                       "] is %" PRId64 ", the next is %" PRId64,
                       fn, t, i - first, i, j->offsets[i], j->offsets[i + 1]);
    }
    return NEO_OK;
}

/* Where an id was found that does not fit. */
typedef struct neo__jagged_place {
    int64_t sample, position, id;
} neo__jagged_place;

/* The first id of feature t outside [0, rows). Offsets have been checked. */
static int neo__jagged_find_bad(const neo_jagged *j, int32_t t, int64_t rows,
                                neo__jagged_place *place) {
    int64_t first = neo__jagged_first_bag(j, t), end = neo__jagged_first_bag(j, t + 1);
    int is_i32 = j->id_dtype == NEO_I32;
    for (int64_t i = first; i < end; i++) {
        for (int64_t k = j->offsets[i]; k < j->offsets[i + 1]; k++) {
            int64_t id = neo__jagged_id(j->ids, is_i32, k);
            if (id >= 0 && id < rows) continue;
            place->sample = i - first;
            place->position = k - j->offsets[i];
            place->id = id;
            return 1;
        }
    }
    return 0;
}

NEO__COLD_BEGIN
NEO_API neo_status neo_jagged_validate(const neo_jagged *j, const int64_t *rows) {
    const char *fn = "neo_jagged_validate";
    NEO__TRY(neo__jagged_check(j, fn));
    NEO__TRY(neo__jagged_check_offsets(j, fn));
    for (int32_t t = 0; rows && t < j->feature_count; t++) {
        neo__jagged_place at;
        NEO__CHECK(rows[t] >= 0, NEO_ERR_ARG, "%s: rows[%d] is %" PRId64, fn, t, rows[t]);
        if (neo__jagged_find_bad(j, t, rows[t], &at))
            return neo_fail(NEO_ERR_RANGE,
                             "%s: feature %d, sample %" PRId64 ", position %" PRId64
                             ": id %" PRId64 " is not in [0, %" PRId64 ")",
                             fn, t, at.sample, at.position, at.id, rows[t]);
    }
    return NEO_OK;
}

/* ---- buffers ---- */
static size_t neo__jagged_bag_bytes(int64_t bags) {
    return neo__size_mul(neo__size_add((size_t)bags, 1), sizeof(int64_t));
}
static size_t neo__jagged_id_bytes(const neo_jagged_buffer *b, int64_t ids) {
    return neo__size_mul((size_t)ids, neo_dtype_size(b->view.id_dtype));
}
static size_t neo__jagged_weight_bytes(int64_t ids) {
    return neo__size_mul((size_t)ids, sizeof(float));
}

/* New arrays of these capacities, with the old content; the old arrays are freed. */
static neo_status neo__jagged_resize(neo_jagged_buffer *b, int64_t max_bags, int64_t max_ids,
                                     int weighted, const char *fn) {
    neo_ctx *ctx = b->ctx;
    int64_t *offsets = (int64_t *)neo_alloc(ctx, neo__jagged_bag_bytes(max_bags));
    void *ids = neo_alloc(ctx, neo__jagged_id_bytes(b, max_ids));
    float *weights = weighted ? (float *)neo_alloc(ctx, neo__jagged_weight_bytes(max_ids)) : NULL;
    if (!offsets || !ids || (weighted && !weights)) {
        neo_free(ctx, offsets, neo__jagged_bag_bytes(max_bags));
        neo_free(ctx, ids, neo__jagged_id_bytes(b, max_ids));
        neo_free(ctx, weights, neo__jagged_weight_bytes(max_ids));
        return neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " bags and %" PRId64 " ids",
                         fn, max_bags, max_ids);
    }
    int64_t bags = b->offsets ? neo_jagged_bag_count(&b->view) : 0;
    size_t count = b->offsets ? (size_t)neo_jagged_id_count(&b->view) : 0;
    offsets[0] = 0;
    if (b->offsets) memcpy(offsets, b->offsets, (size_t)(bags + 1) * sizeof *offsets);
    if (count) memcpy(ids, b->ids, count * neo_dtype_size(b->view.id_dtype));
    if (count && weights) memcpy(weights, b->weights, count * sizeof *weights);
    neo_free(ctx, b->offsets, neo__jagged_bag_bytes(b->max_bags));
    neo_free(ctx, b->ids, neo__jagged_id_bytes(b, b->max_ids));
    neo_free(ctx, b->weights, neo__jagged_weight_bytes(b->max_ids));
    b->view.offsets = b->offsets = offsets;
    b->view.ids = b->ids = ids;
    b->view.weights = b->weights = weights;
    b->max_bags = max_bags;
    b->max_ids = max_ids;
    return NEO_OK;
}

NEO_API neo_status neo_jagged_create(neo_ctx *ctx, const neo_jagged_desc *desc,
                                     neo_jagged_buffer **out) {
    const char *fn = "neo_jagged_create";
    NEO__CHECK(ctx && desc && out, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    *out = NULL;
    neo_dtype dtype = (int)desc->id_dtype == 0 ? NEO_I64 : desc->id_dtype;
    NEO__CHECK(desc->feature_count >= 0 && desc->max_bags >= 0 && desc->max_ids >= 0, NEO_ERR_ARG,
               "%s: feature_count %d, max_bags %" PRId64 " or max_ids %" PRId64 " is below 0", fn,
               desc->feature_count, desc->max_bags, desc->max_ids);
    NEO__CHECK(dtype == NEO_I64 || dtype == NEO_I32, NEO_ERR_ARG,
               "%s: id_dtype is %s, not i64 or i32", fn, neo_dtype_name(dtype));
    neo_jagged_buffer *b = (neo_jagged_buffer *)neo__alloc_zero(ctx, sizeof *b);
    NEO__CHECK(b, NEO_ERR_MEMORY, "%s: no memory for %zu bytes", fn, sizeof *b);
    b->ctx = ctx;
    b->view.feature_count = desc->feature_count;
    b->view.id_dtype = dtype;
    b->feature_bags = (int64_t *)neo_alloc(ctx, neo__jagged_bag_bytes(desc->feature_count));
    neo_status status =
        b->feature_bags
            ? neo__jagged_resize(b, desc->max_bags, desc->max_ids, desc->weighted, fn)
            : neo_fail(NEO_ERR_MEMORY, "%s: no memory for %d features", fn, desc->feature_count);
    if (status != NEO_OK) {
        neo_jagged_destroy(b);
        return status;
    }
    *out = b;
    return NEO_OK;
}

NEO_API void neo_jagged_destroy(neo_jagged_buffer *b) {
    if (!b) return;
    neo_free(b->ctx, b->offsets, neo__jagged_bag_bytes(b->max_bags));
    neo_free(b->ctx, b->ids, neo__jagged_id_bytes(b, b->max_ids));
    neo_free(b->ctx, b->weights, neo__jagged_weight_bytes(b->max_ids));
    neo_free(b->ctx, b->feature_bags, neo__jagged_bag_bytes(b->view.feature_count));
    neo_free(b->ctx, b, sizeof *b);
}

NEO_API const neo_jagged *neo_jagged_view(const neo_jagged_buffer *b) { return &b->view; }
NEO_API int64_t neo_jagged_grow_count(const neo_jagged_buffer *b) { return b->grow_count; }

NEO_API neo_status neo_jagged_reserve(neo_jagged_buffer *b, int64_t max_bags, int64_t max_ids) {
    NEO__CHECK(b, NEO_ERR_ARG, "neo_jagged_reserve: buffer is NULL");
    if (max_bags <= b->max_bags && max_ids <= b->max_ids) return NEO_OK;
    NEO__TRY(neo__jagged_resize(b, NEO__MAX(max_bags, b->max_bags), NEO__MAX(max_ids, b->max_ids),
                                b->weights != NULL, "neo_jagged_reserve"));
    b->grow_count++;
    return NEO_OK;
}
NEO__COLD_END

/* ---- writers: what they share ---- */

/* Ids [k, k + count) of a source can be stored in b. */
static neo_status neo__jagged_check_fit(const neo_jagged_buffer *b, neo_dtype from,
                                        const void *ids, int64_t k, int64_t count,
                                        const char *fn) {
    if (b->view.id_dtype != NEO_I32 || from != NEO_I64) return NEO_OK;
    const int64_t *p = (const int64_t *)ids + k;
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(p[i] >= INT32_MIN && p[i] <= INT32_MAX, NEO_ERR_RANGE,
                   "%s: id %" PRId64 " (number %" PRId64 " of its source) does not fit i32", fn,
                   p[i], k + i);
    return NEO_OK;
}
static neo_status neo__jagged_check_room(const neo_jagged_buffer *b, int64_t bags, int64_t ids,
                                         const char *fn) {
    NEO__CHECK(bags <= b->max_bags, NEO_ERR_CAPACITY,
               "%s: %" PRId64 " bags are needed, the buffer has room for %" PRId64
               " (neo_jagged_reserve grows it)",
               fn, bags, b->max_bags);
    NEO__CHECK(ids <= b->max_ids, NEO_ERR_CAPACITY,
               "%s: %" PRId64 " ids are needed, the buffer has room for %" PRId64
               " (neo_jagged_reserve grows it)",
               fn, ids, b->max_ids);
    return NEO_OK;
}
/* Store ids [k, k + count) of a source, and their weights (NULL: ones), at place `at` of b. */
static void neo__jagged_put(neo_jagged_buffer *b, int64_t at, neo_dtype from, const void *ids,
                            const float *weights, int64_t k, int64_t count) {
    if (count == 0) return;
    size_t size = neo_dtype_size(from);
    if (from == b->view.id_dtype) {
        memcpy((char *)b->ids + (size_t)at * size, (const char *)ids + (size_t)k * size,
               (size_t)count * size);
    } else if (from == NEO_I32) {
        int64_t *to = (int64_t *)b->ids + at;
        for (int64_t i = 0; i < count; i++) to[i] = ((const int32_t *)ids)[k + i];
    } else {
        int32_t *to = (int32_t *)b->ids + at;
        for (int64_t i = 0; i < count; i++) to[i] = (int32_t)((const int64_t *)ids)[k + i];
    }
    if (b->weights && weights)
        memcpy(b->weights + at, weights + k, (size_t)count * sizeof *weights);
    else if (b->weights)
        for (int64_t i = 0; i < count; i++) b->weights[at + i] = 1.0f;
}
static neo_status neo__jagged_check_weights(const neo_jagged_buffer *b, const float *weights,
                                            const char *fn) {
    NEO__CHECK(
        b->weights || !weights, NEO_ERR_ARG,
        "%s: the source has weights, the buffer was made without (neo_jagged_desc.weighted)", fn);
    return NEO_OK;
}

/* ---- set, from_lists ---- */
NEO_API neo_status neo_jagged_set(neo_jagged_buffer *b, int64_t batch, const void *lengths,
                                  neo_dtype length_dtype, const void *ids, neo_dtype id_dtype,
                                  const float *weights) {
    const char *fn = "neo_jagged_set";
    NEO__CHECK(b, NEO_ERR_ARG, "%s: the buffer is NULL", fn);
    int64_t features = b->view.feature_count;
    NEO__CHECK(batch >= 0 && (features == 0 || batch < INT64_MAX / 16 / features), NEO_ERR_ARG,
               "%s: batch is %" PRId64, fn, batch);
    NEO__CHECK(length_dtype == NEO_I32 || length_dtype == NEO_I64, NEO_ERR_ARG,
               "%s: lengths are %s, not i32 or i64", fn, neo_dtype_name(length_dtype));
    NEO__CHECK(id_dtype == NEO_I32 || id_dtype == NEO_I64, NEO_ERR_ARG,
               "%s: ids are %s, not i32 or i64", fn, neo_dtype_name(id_dtype));
    int64_t bags = features * batch, count = 0;
    int is_i32 = length_dtype == NEO_I32;
    NEO__CHECK(lengths || bags == 0, NEO_ERR_ARG, "%s: lengths is NULL", fn);
    NEO__TRY(neo__jagged_check_room(b, bags, 0, fn));
    for (int64_t i = 0; i < bags; i++) {
        int64_t n = neo__jagged_id(lengths, is_i32, i);
        NEO__CHECK(n >= 0 && n <= INT64_MAX / 16 - count, NEO_ERR_FORMAT,
                   "%s: the length of feature %" PRId64 ", sample %" PRId64 " is %" PRId64, fn,
                   i / batch, i % batch, n);
        count += n;
    }
    NEO__TRY(neo__jagged_check_room(b, bags, count, fn));
    NEO__CHECK(ids || count == 0, NEO_ERR_ARG, "%s: ids is NULL", fn);
    NEO__CHECK(ids != b->ids, NEO_ERR_ARG, "%s: ids are those of the buffer that is written", fn);
    NEO__TRY(neo__jagged_check_weights(b, weights, fn));
    NEO__TRY(neo__jagged_check_fit(b, id_dtype, ids, 0, count, fn));
    for (int64_t i = 0; i < bags; i++)
        b->offsets[i + 1] = b->offsets[i] + neo__jagged_id(lengths, is_i32, i);
    neo__jagged_put(b, 0, id_dtype, ids, weights, 0, count);
    b->view.batch = batch;
    b->view.feature_bags = NULL;
    return NEO_OK;
}

NEO_API neo_status neo_jagged_from_lists(neo_jagged_buffer *b, int64_t batch,
                                         const int64_t *const *lists, const int64_t *counts) {
    const char *fn = "neo_jagged_from_lists";
    NEO__CHECK(b, NEO_ERR_ARG, "%s: the buffer is NULL", fn);
    int64_t features = b->view.feature_count;
    NEO__CHECK(batch >= 0 && (features == 0 || batch < INT64_MAX / 16 / features), NEO_ERR_ARG,
               "%s: batch is %" PRId64, fn, batch);
    int64_t bags = features * batch, count = 0;
    NEO__CHECK((lists && counts) || bags == 0, NEO_ERR_ARG, "%s: lists or counts is NULL", fn);
    NEO__TRY(neo__jagged_check_room(b, bags, 0, fn));
    for (int64_t i = 0; i < bags; i++) {
        NEO__CHECK(counts[i] >= 0 && counts[i] <= INT64_MAX / 16 - count, NEO_ERR_FORMAT,
                   "%s: the count of feature %" PRId64 ", sample %" PRId64 " is %" PRId64, fn,
                   i / batch, i % batch, counts[i]);
        NEO__CHECK(lists[i] || counts[i] == 0, NEO_ERR_ARG,
                   "%s: the list of feature %" PRId64 ", sample %" PRId64 " is NULL", fn,
                   i / batch, i % batch);
        NEO__TRY(neo__jagged_check_fit(b, NEO_I64, lists[i], 0, counts[i], fn));
        count += counts[i];
    }
    NEO__TRY(neo__jagged_check_room(b, bags, count, fn));
    for (int64_t i = 0; i < bags; i++) {
        neo__jagged_put(b, b->offsets[i], NEO_I64, lists[i], NULL, 0, counts[i]);
        b->offsets[i + 1] = b->offsets[i] + counts[i];
    }
    b->view.batch = batch;
    b->view.feature_bags = NULL;
    return NEO_OK;
}

/* ---- concat, select, slice, stack, transpose: each is a sequence of runs of bags of its sources ---- */
typedef enum neo__jagged_op {
    NEO__JAGGED_CONCAT,
    NEO__JAGGED_SELECT,
    NEO__JAGGED_SLICE,
    NEO__JAGGED_STACK,
    NEO__JAGGED_TRANSPOSE
} neo__jagged_op;
typedef struct neo__jagged_runs {
    const char *fn;
    neo__jagged_op op;
    const neo_jagged *const *parts;
    int part_count;
    const int32_t *features; /* select */
    int64_t first, count;    /* slice: samples; select: features */
    int64_t run_count;
    int64_t features_out, batch_out;
    int variable; /* the result has feature_bags */
} neo__jagged_runs;

/* Run i: `bags` bags of *source from bag `first` on. */
static void neo__jagged_run(const neo__jagged_runs *r, int64_t i, const neo_jagged **source,
                            int64_t *first, int64_t *bags) {
    const neo_jagged *s = r->parts[0];
    int64_t feature = i;
    switch (r->op) {
    case NEO__JAGGED_CONCAT:
        *source = r->parts[i];
        *first = 0;
        *bags = neo_jagged_bag_count(r->parts[i]);
        return;
    case NEO__JAGGED_SELECT: feature = r->features[i]; break;
    case NEO__JAGGED_SLICE:
        *source = s;
        *first = i * s->batch + r->first;
        *bags = r->count;
        return;
    case NEO__JAGGED_STACK:
        s = r->parts[i % r->part_count];
        feature = i / r->part_count;
        break;
    case NEO__JAGGED_TRANSPOSE:
        *source = s;
        *first = i % s->batch * s->feature_count + i / s->batch;
        *bags = 1;
        return;
    }
    *source = s;
    *first = neo__jagged_first_bag(s, feature);
    *bags = neo__jagged_first_bag(s, feature + 1) - *first;
}

/* feature_bags of the result of concat or select. */
static void neo__jagged_write_feature_bags(neo_jagged_buffer *b, const neo__jagged_runs *r) {
    int64_t *to = b->feature_bags;
    *to = 0;
    for (int64_t i = 0; i < r->run_count; i++) {
        const neo_jagged *s = r->parts[r->op == NEO__JAGGED_CONCAT ? i : 0];
        int64_t t = r->op == NEO__JAGGED_CONCAT ? 0 : r->features[i];
        int64_t end = r->op == NEO__JAGGED_CONCAT ? s->feature_count : t + 1;
        for (; t < end; t++, to++)
            to[1] = to[0] + neo__jagged_first_bag(s, t + 1) - neo__jagged_first_bag(s, t);
    }
}

static neo_status neo__jagged_write_runs(neo_jagged_buffer *b, const neo__jagged_runs *r) {
    NEO__CHECK(r->features_out == b->view.feature_count, NEO_ERR_SHAPE,
               "%s: the result has %" PRId64 " features, the buffer is for %d", r->fn,
               r->features_out, b->view.feature_count);
    const neo_jagged *s = NULL;
    int64_t first = 0, bags = 0, all_bags = 0, all_ids = 0;
    for (int64_t i = 0; i < r->run_count; i++) {
        neo__jagged_run(r, i, &s, &first, &bags);
        if (bags == 0) continue;
        int64_t k = s->offsets[first], n = s->offsets[first + bags] - k;
        NEO__TRY(neo__jagged_check_fit(b, s->id_dtype, s->ids, k, n, r->fn));
        NEO__CHECK(n <= INT64_MAX / 16 - all_ids, NEO_ERR_ARG, "%s: too many ids", r->fn);
        all_bags += bags;
        all_ids += n;
    }
    NEO__TRY(neo__jagged_check_room(b, all_bags, all_ids, r->fn));
    int64_t *offset = b->offsets;
    for (int64_t i = 0; i < r->run_count; i++) {
        neo__jagged_run(r, i, &s, &first, &bags);
        if (bags == 0) continue;
        const int64_t *from = s->offsets + first;
        neo__jagged_put(b, *offset, s->id_dtype, s->ids, s->weights, from[0],
                        from[bags] - from[0]);
        int64_t shift = *offset - from[0];
        for (int64_t k = 1; k <= bags; k++) offset[k] = from[k] + shift;
        offset += bags;
    }
    if (r->variable) neo__jagged_write_feature_bags(b, r);
    b->view.feature_bags = r->variable ? b->feature_bags : NULL;
    b->view.batch = r->variable ? 0 : r->batch_out;
    return NEO_OK;
}

NEO__COLD_BEGIN
/* The sources of a writer can be followed, and are not the buffer itself. */
static neo_status neo__jagged_check_sources(const neo_jagged_buffer *b,
                                            const neo_jagged *const *parts, int count,
                                            int takes_feature_bags, const char *fn) {
    NEO__CHECK(b, NEO_ERR_ARG, "%s: the buffer is NULL", fn);
    NEO__CHECK(parts && count > 0, NEO_ERR_ARG, "%s: no source is given", fn);
    for (int i = 0; i < count; i++) {
        NEO__TRY(neo__jagged_check(parts[i], fn));
        NEO__TRY(neo__jagged_check_offsets(parts[i], fn));
        NEO__TRY(neo__jagged_check_weights(b, parts[i]->weights, fn));
        NEO__CHECK(parts[i]->offsets != b->offsets, NEO_ERR_ARG,
                   "%s: source %d is a view of the buffer that is written", fn, i);
        NEO__CHECK(takes_feature_bags || !parts[i]->feature_bags, NEO_ERR_ARG,
                   "%s: source %d has feature_bags", fn, i);
    }
    return NEO_OK;
}

NEO_API neo_status neo_jagged_concat(neo_jagged_buffer *b, const neo_jagged *const *parts,
                                     int count) {
    NEO__ZERO(neo__jagged_runs, r);
    r.fn = "neo_jagged_concat";
    r.op = NEO__JAGGED_CONCAT;
    r.parts = parts;
    r.part_count = count;
    NEO__TRY(neo__jagged_check_sources(b, parts, count, 1, r.fn));
    r.run_count = count;
    r.batch_out = parts[0]->batch;
    for (int i = 0; i < count; i++) {
        r.features_out += parts[i]->feature_count;
        if (parts[i]->feature_bags) r.variable = 1;
    }
    for (int i = 0; i < count; i++)
        NEO__CHECK(r.variable || parts[i]->batch == r.batch_out, NEO_ERR_SHAPE,
                   "%s: source %d has %" PRId64 " samples, source 0 has %" PRId64, r.fn, i,
                   parts[i]->batch, r.batch_out);
    return neo__jagged_write_runs(b, &r);
}

NEO_API neo_status neo_jagged_select(neo_jagged_buffer *b, const neo_jagged *in,
                                     const int32_t *features, int count) {
    NEO__ZERO(neo__jagged_runs, r);
    r.fn = "neo_jagged_select";
    r.op = NEO__JAGGED_SELECT;
    r.parts = &in;
    r.part_count = 1;
    NEO__TRY(neo__jagged_check_sources(b, &in, 1, 1, r.fn));
    NEO__CHECK(count >= 0 && (features || count == 0), NEO_ERR_ARG, "%s: no features are given",
               r.fn);
    for (int i = 0; i < count; i++)
        NEO__CHECK(features[i] >= 0 && features[i] < in->feature_count, NEO_ERR_RANGE,
                   "%s: features[%d] is %d, the batch has %d", r.fn, i, features[i],
                   in->feature_count);
    r.features = features;
    r.features_out = r.run_count = count;
    r.batch_out = in->batch;
    r.variable = in->feature_bags != NULL;
    return neo__jagged_write_runs(b, &r);
}

NEO_API neo_status neo_jagged_slice(neo_jagged_buffer *b, const neo_jagged *in, int64_t first,
                                    int64_t count) {
    NEO__ZERO(neo__jagged_runs, r);
    r.fn = "neo_jagged_slice";
    r.op = NEO__JAGGED_SLICE;
    r.parts = &in;
    r.part_count = 1;
    NEO__TRY(neo__jagged_check_sources(b, &in, 1, 0, r.fn));
    NEO__CHECK(first >= 0 && count >= 0 && first <= in->batch && count <= in->batch - first,
               NEO_ERR_RANGE,
               "%s: %" PRId64 " samples from %" PRId64 " on are not within %" PRId64, r.fn, count,
               first, in->batch);
    r.first = first;
    r.count = r.batch_out = count;
    r.features_out = r.run_count = in->feature_count;
    return neo__jagged_write_runs(b, &r);
}

NEO_API neo_status neo_jagged_stack(neo_jagged_buffer *b, const neo_jagged *const *parts,
                                    int count) {
    NEO__ZERO(neo__jagged_runs, r);
    r.fn = "neo_jagged_stack";
    r.op = NEO__JAGGED_STACK;
    r.parts = parts;
    r.part_count = count;
    NEO__TRY(neo__jagged_check_sources(b, parts, count, 0, r.fn));
    r.features_out = parts[0]->feature_count;
    for (int i = 0; i < count; i++) {
        NEO__CHECK(parts[i]->feature_count == r.features_out, NEO_ERR_SHAPE,
                   "%s: source %d has %d features, source 0 has %" PRId64, r.fn, i,
                   parts[i]->feature_count, r.features_out);
        r.batch_out += parts[i]->batch;
    }
    r.run_count = r.features_out * count;
    return neo__jagged_write_runs(b, &r);
}

NEO_API neo_status neo_jagged_transpose(neo_jagged_buffer *b, const neo_jagged *sample_major) {
    NEO__ZERO(neo__jagged_runs, r);
    r.fn = "neo_jagged_transpose";
    r.op = NEO__JAGGED_TRANSPOSE;
    r.parts = &sample_major;
    r.part_count = 1;
    NEO__TRY(neo__jagged_check_sources(b, &sample_major, 1, 0, r.fn));
    r.features_out = sample_major->feature_count;
    r.batch_out = sample_major->batch;
    r.run_count = r.features_out * r.batch_out;
    return neo__jagged_write_runs(b, &r);
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>bag-optim

   One step of one row, f32, each operation written here rounded once (a b + c is one fma). g is
   the merged gradient, w the row, lr = lr of backward * lr_scale, wd = weight_decay, t the number
   of this backward call from 1, D the row's length. Row sums are the sums of rounded products in
   blocks of 16 columns, each by the tree (i and i + 8, + 4, + 2, + 1), the last filled up with
   zeros, added block by block from 0; mean(g^2) is the row sum of g g divided by D, |x| the square
   root of that of x x.

     clip_gradient c   g = g > -c ? g : -c, then g < c ? g : c
     L2                g = wd w + g
     decoupled         w = (1 - lr wd) w
     SGD               w = -lr g + w
     Adagrad           m = g g + m;  w = -lr (g / (sqrt(m) + eps)) + w
     row-wise Adagrad  s = s + mean(g^2);  r = lr / (sqrt(s) + eps);  w = -r g + w
     Adam              m = b1 m + ((1 - b1) g);  v = b2 v + (((1 - b2) g) g)
                       u = (m k1) / (sqrt(v k2) + eps);  w = -lr u + w
                       b, 1 - b and k = 1 / (1 - b^t) are rounded from double to f32, b^t is by squaring
     partial Adam      the same with one v per row: v = b2 v + ((1 - b2) mean(g^2))
     LAMB              u as Adam's;  u' = wd w + u;  r = |w| / |u'|, 1 if one of them is 0
                       w = -(lr r) u' + w
     partial LAMB      the same on partial Adam's u
     LARS-SGD          a = ((lr eta) |w|) / (wd |w| + |g|), 0 if that sum is 0
                       m = mu m + (a (wd w + g));  w = w - m
     max_norm n        if |w| > n: w = (n / |w|) w
   ------------------------------------------------------------------------------------------------ */

NEO__COLD_BEGIN
/* Defaults filled in. */
static neo_bag_optim neo__bag_optim_resolve(const neo_bag_optim *from) {
    neo_bag_optim o = *from;
    if (o.eps == 0.0f) o.eps = 1e-8f;
    o.beta1 = o.beta1 == 0.0 ? 0.9 : o.beta1 < 0.0 ? 0.0 : o.beta1;
    o.beta2 = o.beta2 == 0.0 ? 0.999 : o.beta2 < 0.0 ? 0.0 : o.beta2;
    if (o.eta == 0.0f) o.eta = 0.001f;
    if (o.lr_scale == 0.0f) o.lr_scale = 1.0f;
    return o;
}

/* 1 / (1 - beta^t) */
static float neo__bag_bias_fix(double beta, int64_t t) {
    double power = 1.0, square = beta;
    for (; t > 0; t >>= 1, square *= square)
        if (t & 1) power *= square;
    return (float)(1.0 / (1.0 - power));
}

static neo__bag_step neo__bag_step_make(const neo_bag_optim *o, float lr, int64_t t) {
    NEO__ZERO(neo__bag_step, s);
    s.kind = o->kind;
    s.lr = lr * o->lr_scale;
    s.clip = o->clip_gradient;
    s.l2 = o->decay == NEO_DECAY_L2 ? o->weight_decay : 0.0f;
    s.keep = 1.0f;
    if (o->decay == NEO_DECAY_DECOUPLED) {
        float decay = s.lr * o->weight_decay;
        s.keep = 1.0f - decay;
    }
    s.adjusts = s.clip > 0.0f || s.l2 != 0.0f || s.keep != 1.0f;
    s.decay = o->weight_decay;
    s.eps = o->eps;
    s.beta1 = (float)o->beta1;
    s.beta2 = (float)o->beta2;
    s.rest1 = (float)(1.0 - o->beta1);
    s.rest2 = (float)(1.0 - o->beta2);
    s.fix1 = neo__bag_bias_fix(o->beta1, t);
    s.fix2 = neo__bag_bias_fix(o->beta2, t);
    s.momentum = o->momentum;
    s.eta = o->eta;
    s.max_norm = o->max_norm;
    return s;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-bags

   Memory: one block of descriptions (tables, features, names), each table's weights and optimizer
   state, and one block of workspace sized by max_batch and max_ids. neo_bags_bytes and
   neo_bags_create run the same layout functions, once without and once with a base address.

   A call first looks at every offset and id (in parallel, and cheap next to the rows), so that a
   bad batch changes nothing and the inner loops need no checks. Work is cut by cost (floats
   moved), not by table: a task finds the bag where its share of the whole begins and ends.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__bag_table {
    char *name, *weight_name; /* weight_name: of the tensor, "<bags>.<table>.weight" */
    int64_t rows, dim;
    neo_pooling pooling;
    neo_bag_optim optim; /* defaults resolved */
    int32_t buckets;
    neo__bag_rows store;
    uint64_t name_hash; /* of weight_name: rounding is keyed by it */
    int round_nearest, owns_weight;
    float *state[2];
    int64_t state_dim[2];                 /* floats per row */
    int32_t first_feature, feature_count; /* within neo_bags.table_features */
    int row_bits, low_bits;               /* of a record: see >>impl-bags-backward */
    neo_table_part part;                  /* of a table by itself: all of it */
    int cut;                              /* its optimizer needs columns that are elsewhere */
    float *total;                         /* of this step: see neo__bag_cut */
} neo__bag_table;

/* A row whose gradient is kept, at kept_grad + at. */
typedef struct neo__bag_slot {
    int64_t row, at;
    int32_t table;
} neo__bag_slot;

/* A feature in the batch of the running call. */
typedef struct neo__bag_feature {
    int32_t table;
    int64_t col; /* of out */
    int64_t first_bag, bags;
    int64_t first_id, ids;
    int64_t out_at, out_stride; /* of its first bag, in floats; NEO_POOL_NONE: of its first id */
    int64_t cost_begin;         /* of all features before */
    int64_t pack_task;          /* backward: tasks of all packed features before */
    int64_t bad;                /* atomic: ids out of range */
} neo__bag_feature;

/* A table in the backward of the running call: see >>impl-bags-backward. */
typedef struct neo__bag_merge {
    int whole, pack,
        indirect; /* indirect: records have occurrence numbers, for grad_row and grad_weight */
    int keep;      /* sums are kept, not stepped */
    int have, want; /* of a cut table: see neo__bag_cut */
    float *blocks;
    int64_t bags, count, kept; /* count: occurrences; kept: those not dropped */
    int64_t first;             /* where its occurrences begin in the buffers */
    uint64_t *from, *to;       /* its records, and room for as many */
    const float *grad;
    int64_t grad_stride;
    float *pack_to;
    int64_t cost_begin; /* of all shared tables before */
    neo__bag_step step;
    neo__random_key round;
} neo__bag_merge;

/* NEO__BAG_CUT_SUMS: sums over a row that a step may need at most. */
enum { NEO__BAG_DIGIT_BITS = 9, NEO__BAG_DIGITS = 1 << NEO__BAG_DIGIT_BITS, NEO__BAG_CUT_SUMS = 4 };
/* A piece of a table whose sort is shared by all threads. */
typedef struct neo__bag_chunk {
    int64_t table, begin, end;
    int64_t count[NEO__BAG_DIGITS];
} neo__bag_chunk;

/* The lengths that memory depends on. */
typedef struct neo__bag_sizes {
    int64_t tables, features, shards, threads, max_dim, scratch, width, max_batch, max_ids;
    int none;                        /* NEO_POOL_NONE */
    int64_t max_kept_rows;           /* as declared */
    int64_t cut_tables, cut_blocks;  /* tables cut by columns; most blocks of a row of one */
    int64_t cut_rows, cut_floats;    /* all their rows, and numbers */
    int64_t rows, floats;            /* of all tables */
    size_t name_bytes;
} neo__bag_sizes;

struct neo_bags {
    neo_ctx *ctx;
    char *name;
    neo__bag_sizes sizes;
    neo_bounds bounds;
    neo__bag_table *tables;
    neo__bag_feature *features; /* [features + 1]: the last has the ends */
    int32_t *table_features;    /* features, table by table */
    int64_t steps, out_of_range, grow_count;
    size_t meta_bytes, work_bytes;
    char *work;
    /* in work */
    uint64_t *records[2];
    int64_t *grad_row;
    float *grad_weight;
    float *packed;
    int64_t *leaf;         /* [tables][shards + 1] */
    int64_t *feature_leaf; /* [features][shards] */
    neo__bag_merge *merge; /* [tables + 1] */
    neo__bag_chunk *chunks;
    float *scratch; /* per worker sizes.scratch */
    /* kept gradients */
    neo__bag_slot *slots;
    uint32_t *slot_of;     /* hash table of (table, row): slot + 1, 0 is empty; a power of two of them */
    uint64_t slot_mask;
    int64_t slot_count, slot_capacity, kept_floats;
    float *kept_grad;
    int64_t *keep_at;      /* per record: see neo__bag_update */
    float *cut_blocks, *cut_totals;
    neo_cut_sums *cuts;
    neo_cut_sums_fn cut_sums;
    void *cut_sums_user;
};

/* ---- layout ---- */

NEO__COLD_BEGIN
/* The next `bytes` of a block, 64-byte aligned; NULL while only counting. */
static void *neo__bag_carve(char *base, size_t *at, size_t count, size_t size) {
    size_t here = *at;
    *at = neo__size_add(here, neo__size_add(neo__size_mul(count, size), 63) & ~(size_t)63);
    return base ? base + here : NULL;
}
static size_t neo__bags_meta_layout(const neo__bag_sizes *s, char *base, neo_bags **bags,
                                    char **names) {
    size_t at = 0;
    NEO__ZERO(neo_bags, none);
    neo_bags *b = (neo_bags *)neo__bag_carve(base, &at, 1, sizeof *b);
    neo_bags *to = b ? b : &none;
    to->tables =
        (neo__bag_table *)neo__bag_carve(base, &at, (size_t)s->tables, sizeof(neo__bag_table));
    to->features = (neo__bag_feature *)neo__bag_carve(base, &at, (size_t)s->features + 1,
                                                      sizeof(neo__bag_feature));
    to->table_features =
        (int32_t *)neo__bag_carve(base, &at, (size_t)s->features, sizeof(int32_t));
    char *text = (char *)neo__bag_carve(base, &at, s->name_bytes, 1);
    if (bags) *bags = b;
    if (names) *names = text;
    return at;
}

/* Pieces a call is cut into, and pieces of shared sorts, at most. */
NEO__INLINE int64_t neo__bags_most_tasks(int64_t threads) {
    return threads == 1 ? 1 : 8 * threads;
}
/* Rows whose gradients can be kept, and their numbers. What backward keeps for a moment are rows of cut
   tables. */
static int64_t neo__bags_kept_rows(const neo__bag_sizes *s) {
    return NEO__MIN(NEO__MAX(s->max_kept_rows, NEO__MIN(s->max_ids, s->cut_rows)), s->rows);
}
static int64_t neo__bags_kept_floats(const neo__bag_sizes *s) {
    int64_t rows = neo__bags_kept_rows(s);
    size_t most = neo__size_mul((size_t)rows, (size_t)s->max_dim);
    return (int64_t)NEO__MIN(most, (size_t)(s->max_kept_rows ? s->floats : s->cut_floats));
}
/* Slots of the hash table: at most half are used. */
static int64_t neo__bags_slot_places(int64_t rows) {
    int64_t n = rows ? 16 : 0;
    while (n < 2 * rows) n *= 2;
    return n;
}
/* What steps of rows that are kept, and cuts, need. */
static void neo__bags_kept_layout(const neo__bag_sizes *s, char *base, size_t *at, neo_bags *to) {
    size_t rows = (size_t)neo__bags_kept_rows(s), tables = (size_t)s->tables;
    size_t cut_rows = s->cut_tables ? rows : 0;
    to->slots = (neo__bag_slot *)neo__bag_carve(base, at, rows, sizeof(neo__bag_slot));
    to->slot_of = (uint32_t *)neo__bag_carve(base, at, (size_t)neo__bags_slot_places((int64_t)rows),
                                             sizeof(uint32_t));
    to->kept_grad =
        (float *)neo__bag_carve(base, at, (size_t)neo__bags_kept_floats(s), sizeof(float));
    to->keep_at =
        (int64_t *)neo__bag_carve(base, at, rows ? (size_t)s->max_ids : 0, sizeof(int64_t));
    to->cut_blocks = (float *)neo__bag_carve(base, at, cut_rows,
                                             2 * (size_t)s->cut_blocks * sizeof(float));
    to->cut_totals =
        (float *)neo__bag_carve(base, at, cut_rows, NEO__BAG_CUT_SUMS * sizeof(float));
    to->cuts = (neo_cut_sums *)neo__bag_carve(base, at, s->cut_tables ? tables : 0,
                                              sizeof(neo_cut_sums));
}
static size_t neo__bags_work_layout(const neo__bag_sizes *s, char *base, neo_bags *b) {
    NEO__ZERO(neo_bags, none);
    neo_bags *to = b ? b : &none;
    int64_t kept = neo__bags_kept_rows(s);
    size_t at = 0, ids = (size_t)NEO__MAX(s->max_ids, kept), tables = (size_t)s->tables,
           threads = (size_t)s->threads;
    int64_t chunks = s->threads == 1 ? 0 : neo__bags_most_tasks(s->threads);
    for (int i = 0; i < 2; i++)
        to->records[i] = (uint64_t *)neo__bag_carve(base, &at, ids, sizeof(uint64_t));
    to->grad_row = (int64_t *)neo__bag_carve(base, &at, ids, sizeof(int64_t));
    to->grad_weight = (float *)neo__bag_carve(base, &at, ids, sizeof(float));
    to->packed = (float *)neo__bag_carve(
        base, &at, s->none ? 0 : neo__size_mul((size_t)s->max_batch, (size_t)s->width),
        sizeof(float));
    to->leaf =
        (int64_t *)neo__bag_carve(base, &at, tables * ((size_t)s->shards + 1), sizeof(int64_t));
    to->feature_leaf = (int64_t *)neo__bag_carve(
        base, &at, (size_t)s->features * (size_t)s->shards, sizeof(int64_t));
    to->merge = (neo__bag_merge *)neo__bag_carve(base, &at, tables + 1, sizeof(neo__bag_merge));
    if (kept) chunks = neo__bags_most_tasks(s->threads) + s->tables + 4;
    to->chunks = (neo__bag_chunk *)neo__bag_carve(base, &at, (size_t)chunks, sizeof(neo__bag_chunk));
    to->scratch = (float *)neo__bag_carve(base, &at, threads, (size_t)s->scratch * sizeof(float));
    neo__bags_kept_layout(s, base, &at, to);
    return at;
}

/* ---- descriptions: checks ---- */
static int neo__bags_finite(float x) { return x - x == 0.0f; }
static neo_status neo__bag_optim_check(const neo_bag_optim *o, const char *fn, const char *table) {
    NEO__CHECK((unsigned)o->kind < NEO_BAG_OPTIM_COUNT, NEO_ERR_ARG,
               "%s: table '%s': optimizer %d does not exist", fn, table, (int)o->kind);
    NEO__CHECK((unsigned)o->decay <= NEO_DECAY_DECOUPLED, NEO_ERR_ARG,
               "%s: table '%s': decay mode %d does not exist", fn, table, (int)o->decay);
    int own_decay =
        o->kind == NEO_BAG_LAMB || o->kind == NEO_BAG_PARTIAL_LAMB || o->kind == NEO_BAG_LARS_SGD;
    NEO__CHECK(!own_decay || o->decay == NEO_DECAY_NONE, NEO_ERR_ARG,
               "%s: table '%s': LAMB and LARS apply weight_decay by themselves: leave decay at "
               "NEO_DECAY_NONE",
               fn, table);
    NEO__CHECK(own_decay || o->decay != NEO_DECAY_NONE || o->weight_decay == 0.0f, NEO_ERR_ARG,
               "%s: table '%s': weight_decay is %g and decay is NEO_DECAY_NONE", fn, table,
               (double)o->weight_decay);
    const struct {
        const char *name;
        float value;
    } field[] = {{"weight_decay", o->weight_decay},
                 {"eps", o->eps},
                 {"initial_accumulator", o->initial_accumulator},
                 {"momentum", o->momentum},
                 {"eta", o->eta},
                 {"lr_scale", o->lr_scale},
                 {"clip_gradient", o->clip_gradient},
                 {"max_norm", o->max_norm}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        NEO__CHECK(neo__bags_finite(field[i].value) && field[i].value >= 0.0f, NEO_ERR_ARG,
                   "%s: table '%s': %s is %g, not a finite number from 0 up", fn, table,
                   field[i].name, (double)field[i].value);
    NEO__CHECK(o->beta1 < 1.0 && o->beta2 < 1.0, NEO_ERR_ARG,
               "%s: table '%s': betas %g, %g are not below 1", fn, table, o->beta1, o->beta2);
    return NEO_OK;
}

/* Sums over whole rows that a step needs: how many can be had next when `have` are there. */
static int neo__bag_cut_next(const neo_bag_optim *o, int have) {
    int sums = 0;
    switch (o->kind) {
    case NEO_BAG_ROWWISE_ADAGRAD:
    case NEO_BAG_PARTIAL_ADAM: sums = 1; break;
    case NEO_BAG_LAMB:
    case NEO_BAG_LARS_SGD: sums = 2; break;
    case NEO_BAG_PARTIAL_LAMB: /* the direction needs the mean, then the norms the direction */
        sums = 3;
        if (have == 0) return 1;
        break;
    case NEO_BAG_SGD:
    case NEO_BAG_ADAGRAD:
    case NEO_BAG_ADAM:
    case NEO_BAG_OPTIM_COUNT: break;
    }
    if (have < sums) return sums - have;
    return have == sums && o->max_norm > 0.0f;
}
NEO_API int neo_bag_cut_rounds(const neo_bag_optim *optim) {
    int rounds = 0;
    for (int have = 0, next; (next = neo__bag_cut_next(optim, have)) > 0; have += next) rounds++;
    return rounds;
}
/* 1: columns that are elsewhere take part in a step of this table. */
static int neo__bag_is_cut(const neo_table_desc *t) {
    return t->part.rows && t->dim < t->part.dim && neo__bag_cut_next(&t->optim, 0) > 0;
}
static neo_status neo__bag_part_check(const neo_bags_desc *d, const neo_table_desc *t, const char *fn) {
    neo_table_part p = t->part;
    if (p.rows == 0 && p.dim == 0 && p.first_row == 0 && p.first_col == 0) return NEO_OK;
    NEO__CHECK(p.first_row >= 0 && p.first_col >= 0 && p.first_row <= p.rows - t->rows &&
                   p.first_col <= p.dim - t->dim,
               NEO_ERR_ARG,
               "%s: table '%s': rows from %" PRId64 " and columns from %" PRId64 " of %" PRId64 " x %" PRId64
               " do not hold a part of %" PRId64 " x %" PRId64,
               fn, t->name, p.first_row, p.first_col, p.rows, p.dim, t->rows, t->dim);
    NEO__CHECK(p.first_col % 16 == 0 && (t->dim % 16 == 0 || p.first_col + t->dim == p.dim), NEO_ERR_ARG,
               "%s: table '%s': columns [%" PRId64 ", %" PRId64 ") of %" PRId64
               " are not cut at multiples of 16",
               fn, t->name, p.first_col, p.first_col + t->dim, p.dim);
    NEO__CHECK(t->dtype != NEO_I8 || t->dim == p.dim, NEO_ERR_UNSUPPORTED,
               "%s: table '%s': i8 rows have one scale each: cut the table by rows, not by columns",
               fn, t->name);
    NEO__CHECK(!neo__bag_is_cut(t) || d->cut_sums, NEO_ERR_ARG,
               "%s: table '%s': its optimizer needs sums over whole rows: give cut_sums", fn, t->name);
    int32_t buckets = t->row_buckets > 1 && t->rows < p.rows ? t->row_buckets : 0;
    for (int side = 0; side < 2 && buckets; side++) {
        int64_t row = p.first_row + side * t->rows;
        NEO__CHECK(row == p.rows ||
                       neo__bucket_begin(p.rows, buckets, neo__bucket_of(p.rows, buckets, row)) == row,
                   NEO_ERR_ARG, "%s: table '%s': row %" PRId64 " is not where one of %d buckets begins", fn,
                   t->name, row, buckets);
    }
    return NEO_OK;
}
static neo_status neo__bag_table_check(const neo_bags_desc *d, int32_t t, const char *fn) {
    const neo_table_desc *table = &d->tables[t];
    NEO__CHECK(table->name && table->name[0], NEO_ERR_ARG, "%s: table %d has no name", fn, t);
    for (int32_t i = 0; i < t; i++)
        NEO__CHECK(strcmp(d->tables[i].name, table->name) != 0 ||
                       (table->part.rows && d->tables[i].part.rows == table->part.rows),
                   NEO_ERR_ARG, "%s: tables %d and %d are both named '%s'", fn, i, t, table->name);
    const char *name = table->name;
    NEO__CHECK(table->rows > 0 && table->dim > 0, NEO_ERR_ARG,
               "%s: table '%s': rows %" PRId64 " and dim %" PRId64 " must be above 0", fn, name,
               table->rows, table->dim);
    NEO__CHECK(neo__size_mul(neo__size_mul((size_t)table->rows, (size_t)table->dim),
                             sizeof(float)) < SIZE_MAX / 4,
               NEO_ERR_ARG,
               "%s: table '%s': %" PRId64 " x %" PRId64 " floats do not fit in memory", fn, name,
               table->rows, table->dim);
    NEO__CHECK(table->dtype == NEO_F32 || table->dtype == NEO_F16 || table->dtype == NEO_BF16 ||
                   table->dtype == NEO_I8,
               NEO_ERR_ARG, "%s: table '%s': rows of dtype %d (%s), not f32, f16, bf16 or i8", fn,
               name, (int)table->dtype, neo_dtype_name(table->dtype));
    NEO__CHECK((unsigned)table->pooling <= NEO_POOL_NONE, NEO_ERR_ARG,
               "%s: table '%s': pooling %d does not exist", fn, name, (int)table->pooling);
    NEO__CHECK((table->pooling == NEO_POOL_NONE) == (d->tables[0].pooling == NEO_POOL_NONE),
               NEO_ERR_ARG, "%s: table '%s': NEO_POOL_NONE is for all tables or for none", fn,
               name);
    NEO__CHECK(table->pooling != NEO_POOL_NONE || table->dim == d->tables[0].dim, NEO_ERR_ARG,
               "%s: table '%s': dim is %" PRId64 ", not %" PRId64
               ": under NEO_POOL_NONE all are alike",
               fn, name, table->dim, d->tables[0].dim);
    NEO__CHECK(table->row_buckets >= 0 && table->row_buckets <= 4096 &&
                   (table->row_buckets <= 1 || table->rows < INT64_MAX / 8192),
               NEO_ERR_ARG, "%s: table '%s': row_buckets is %d, not in 0 .. 4096", fn, name,
               table->row_buckets);
    NEO__CHECK((unsigned)table->init.kind <= NEO_INIT_NORMAL, NEO_ERR_ARG,
               "%s: table '%s': init kind %d does not exist", fn, name, (int)table->init.kind);
    NEO__TRY(neo__bag_part_check(d, table, fn));
    return neo__bag_optim_check(&table->optim, fn, name);
}

static neo_status neo__bags_desc_check(const neo_ctx *ctx, const neo_bags_desc *d,
                                       const char *fn) {
    NEO__CHECK(ctx && d, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    NEO__CHECK(d->tables && d->table_count > 0, NEO_ERR_ARG, "%s: no tables are given", fn);
    for (int32_t t = 0; t < d->table_count; t++) NEO__TRY(neo__bag_table_check(d, t, fn));
    NEO__CHECK(d->feature_table ? d->feature_count > 0
                                : d->feature_count == 0 || d->feature_count == d->table_count,
               NEO_ERR_ARG, "%s: feature_count is %d %s feature_table", fn, d->feature_count,
               d->feature_table ? "with a" : "without a");
    for (int32_t f = 0; d->feature_table && f < d->feature_count; f++)
        NEO__CHECK(d->feature_table[f] >= 0 && d->feature_table[f] < d->table_count, NEO_ERR_ARG,
                   "%s: feature_table[%d] is %d, there are %d tables", fn, f, d->feature_table[f],
                   d->table_count);
    NEO__CHECK(d->max_batch > 0 && d->max_ids > 0, NEO_ERR_ARG,
               "%s: max_batch %" PRId64 " and max_ids %" PRId64 " must be above 0", fn,
               d->max_batch, d->max_ids);
    NEO__CHECK((unsigned)d->bounds <= NEO_BOUNDS_CLAMP, NEO_ERR_ARG,
               "%s: bounds policy %d does not exist", fn, (int)d->bounds);
    NEO__CHECK(d->max_kept_rows >= 0 && d->max_kept_rows < INT32_MAX, NEO_ERR_ARG,
               "%s: max_kept_rows is %" PRId64 ", not in 0 .. 2^31", fn, d->max_kept_rows);
    return NEO_OK;
}

static int32_t neo__bags_feature_table(const neo_bags_desc *d, int64_t f) {
    return d->feature_table ? d->feature_table[f] : (int32_t)f;
}
static const char *neo__bags_desc_name(const neo_bags_desc *d) {
    return d->name ? d->name : "bags";
}

static neo__bag_sizes neo__bags_sizes_of(const neo_ctx *ctx, const neo_bags_desc *d) {
    NEO__ZERO(neo__bag_sizes, s);
    s.tables = d->table_count;
    s.features = d->feature_table ? d->feature_count : d->table_count;
    s.shards = ctx->repro_shards;
    s.threads = ctx->threads;
    s.max_batch = d->max_batch;
    s.max_ids = d->max_ids;
    s.none = d->tables[0].pooling == NEO_POOL_NONE;
    s.max_kept_rows = d->max_kept_rows;
    s.name_bytes = strlen(neo__bags_desc_name(d)) + 1;
    for (int32_t t = 0; t < d->table_count; t++) {
        const neo_table_desc *table = &d->tables[t];
        int64_t floats = table->rows * table->dim;
        s.rows += table->rows;
        s.floats += floats;
        if (neo__bag_is_cut(table)) {
            s.cut_tables++;
            s.cut_rows += table->rows;
            s.cut_floats += floats;
            s.cut_blocks = NEO__MAX(s.cut_blocks, neo__bag_blocks(table->dim));
        }
        s.max_dim = NEO__MAX(s.max_dim, d->tables[t].dim);
        int64_t narrow = neo__bag_narrow_scratch(table->dtype, table->dim);
        s.scratch = NEO__MAX(s.scratch, neo__bag_room(neo__bag_scratch(table->dim) + narrow));
        s.name_bytes += 2 * strlen(d->tables[t].name) + strlen(neo__bags_desc_name(d)) + 10;
    }
    for (int64_t f = 0; f < s.features; f++)
        s.width += d->tables[neo__bags_feature_table(d, f)].dim;
    return s;
}

/* Floats of state per row: 0 none, 1 or dim. */
static int64_t neo__bag_state_dim(neo_bag_optim_kind kind, int64_t dim, int k) {
    switch (kind) {
    case NEO_BAG_ADAGRAD:
    case NEO_BAG_LARS_SGD: return k == 0 ? dim : 0;
    case NEO_BAG_ROWWISE_ADAGRAD: return k == 0 ? 1 : 0;
    case NEO_BAG_ADAM:
    case NEO_BAG_LAMB: return dim;
    case NEO_BAG_PARTIAL_ADAM:
    case NEO_BAG_PARTIAL_LAMB: return k == 0 ? dim : 1;
    case NEO_BAG_SGD:
    case NEO_BAG_OPTIM_COUNT: break;
    }
    return 0;
}
static size_t neo__bag_bytes(int64_t rows, int64_t dim) {
    return neo__size_mul(neo__size_mul((size_t)rows, (size_t)dim), sizeof(float));
}

/* Of weights, and of the scales of i8 rows. */
static size_t neo__bag_weight_bytes(int64_t rows, int64_t dim, neo_dtype dtype) {
    return neo__size_mul(neo__size_mul((size_t)rows, (size_t)dim), neo_dtype_size(dtype));
}
static size_t neo__bag_scale_bytes(int64_t rows, neo_dtype dtype) {
    return dtype == NEO_I8 ? neo__bag_bytes(rows, 2) : 0;
}

static int neo__bits_for(uint64_t largest) { return largest ? 64 - __builtin_clzll(largest) : 0; }
/* Records of backward: the row above, a bag or an occurrence below. */
static void neo__bag_record_bits(neo__bag_table *t, neo_bounds bounds, int64_t max_batch,
                                 int64_t max_ids) { /* max_ids: or rows kept */
    int64_t bags = (int64_t)neo__size_mul((size_t)max_batch, (size_t)t->feature_count);
    t->row_bits = neo__bits_for((uint64_t)(bounds == NEO_BOUNDS_DROP ? t->rows : t->rows - 1));
    t->low_bits = neo__bits_for((uint64_t)NEO__MAX(bags, max_ids));
}
static neo_status neo__bags_record_check(const neo_bags *b, const neo__bag_sizes *s, const char *fn) {
    int64_t max_batch = s->max_batch, max_ids = NEO__MAX(s->max_ids, neo__bags_kept_rows(s));
    for (int64_t i = 0; i < b->sizes.tables; i++) {
        neo__bag_table t = b->tables[i];
        neo__bag_record_bits(&t, b->bounds, max_batch, max_ids);
        NEO__CHECK(t.row_bits + t.low_bits <= 64, NEO_ERR_UNSUPPORTED,
                   "%s: table '%s': %" PRId64 " rows times %" PRId64 " ids or %" PRId64
                   " samples go beyond 2^64",
                   fn, t.name, t.rows, max_ids, max_batch);
    }
    return NEO_OK;
}

/* ---- create, destroy ---- */
NEO_API void neo_bags_destroy(neo_bags *b) {
    if (!b) return;
    for (int64_t i = 0; i < b->sizes.tables; i++) {
        neo__bag_table *t = &b->tables[i];
        if (t->owns_weight)
            neo_free(b->ctx, t->store.data, neo__bag_weight_bytes(t->rows, t->dim, t->store.dtype));
        neo_free(b->ctx, t->store.scale, neo__bag_scale_bytes(t->rows, t->store.dtype));
        for (int k = 0; k < 2; k++)
            neo_free(b->ctx, t->state[k], neo__bag_bytes(t->rows, t->state_dim[k]));
    }
    neo_free(b->ctx, b->work, b->work_bytes);
    neo_free(b->ctx, b, b->meta_bytes);
}

/* Copy the description. Names go to `text`. */
static void neo__bags_describe(neo_bags *b, const neo_bags_desc *d, char *text) {
    const char *name = neo__bags_desc_name(d);
    b->name = text;
    text += snprintf(text, strlen(name) + 1, "%s", name) + 1;
    b->bounds = d->bounds;
    for (int32_t i = 0; i < d->table_count; i++) {
        const neo_table_desc *from = &d->tables[i];
        neo__bag_table *t = &b->tables[i];
        size_t room = strlen(name) + strlen(from->name) + 9;
        t->name = text;
        text += snprintf(text, room, "%s", from->name) + 1;
        t->weight_name = text;
        text += snprintf(text, room, "%s.%s.weight", name, from->name) + 1;
        t->rows = from->rows;
        t->dim = from->dim;
        t->pooling = from->pooling;
        t->optim = neo__bag_optim_resolve(&from->optim);
        t->buckets = from->row_buckets ? from->row_buckets : 1;
        t->part = from->part;
        if (!t->part.rows) t->part.rows = t->rows, t->part.dim = t->dim;
        t->owns_weight = !from->weight;
        t->round_nearest = from->round_nearest;
        t->name_hash = neo_hash(t->weight_name);
        t->store.dtype = from->dtype;
        t->store.data = (char *)from->weight;
        t->store.dim = t->dim;
        t->store.row_bytes = t->dim * (int64_t)neo_dtype_size(from->dtype);
        t->store.first = (uint64_t)(t->part.first_row * t->part.dim + t->part.first_col);
        t->store.stride = (uint64_t)t->part.dim;
        t->cut = neo__bag_is_cut(from);
        for (int k = 0; k < 2; k++) t->state_dim[k] = neo__bag_state_dim(t->optim.kind, t->dim, k);
    }
    int64_t col = 0;
    for (int32_t f = 0; f < b->sizes.features; f++) {
        b->features[f].table = neo__bags_feature_table(d, f);
        b->features[f].col = col;
        col += b->tables[b->features[f].table].dim;
        b->tables[b->features[f].table].feature_count++;
    }
    int32_t at = 0;
    for (int32_t i = 0; i < d->table_count; i++) {
        b->tables[i].first_feature = at;
        for (int32_t f = 0; f < b->sizes.features; f++)
            if (b->features[f].table == i) b->table_features[at++] = f;
    }
    b->cut_sums = d->cut_sums;
    b->cut_sums_user = d->cut_sums_user;
}
NEO__COLD_END

typedef struct neo__bag_fill {
    float *to, value;
    int64_t count, tasks;
} neo__bag_fill;
static void neo__bag_fill_task(void *arg, int64_t i, int worker) {
    neo__bag_fill *f = (neo__bag_fill *)arg;
    (void)worker;
    int64_t begin, end;
    neo__task_range(f->count, f->tasks, i, 1024, &begin, &end);
    if (f->value == 0.0f) {
        memset(f->to + begin, 0, (size_t)(end - begin) * sizeof *f->to);
    } else {
        for (int64_t k = begin; k < end; k++) f->to[k] = f->value;
    }
}

NEO__COLD_BEGIN
/* All memory is asked for before the first value is written: a weight may be the user's. */
static neo_status neo__bags_alloc_tables(neo_bags *b, const char *fn) {
    for (int64_t i = 0; i < b->sizes.tables; i++) {
        neo__bag_table *t = &b->tables[i];
        size_t weight_bytes = neo__bag_weight_bytes(t->rows, t->dim, t->store.dtype),
               scale_bytes = neo__bag_scale_bytes(t->rows, t->store.dtype);
        if (t->owns_weight) t->store.data = (char *)neo_alloc(b->ctx, weight_bytes);
        NEO__CHECK(t->store.data, NEO_ERR_MEMORY,
                   "%s: table '%s': no memory for %zu bytes of weights", fn, t->name, weight_bytes);
        if (scale_bytes) {
            t->store.scale = (float *)neo__alloc_zero(b->ctx, scale_bytes);
            NEO__CHECK(t->store.scale, NEO_ERR_MEMORY,
                       "%s: table '%s': no memory for %zu bytes of scales", fn, t->name,
                       scale_bytes);
        }
        for (int k = 0; k < 2 && t->state_dim[k]; k++) {
            size_t bytes = neo__bag_bytes(t->rows, t->state_dim[k]);
            t->state[k] = (float *)neo_alloc(b->ctx, bytes);
            NEO__CHECK(t->state[k], NEO_ERR_MEMORY,
                       "%s: table '%s': no memory for %zu bytes of momentum%d", fn, t->name, bytes, k + 1);
        }
    }
    return NEO_OK;
}
/* Initial values of narrow rows: each row in f32, then rounded. */
typedef struct neo__bag_init {
    neo_bags *b;
    const neo__bag_table *table;
    neo__init_job row; /* of row 0 */
    int64_t tasks;
} neo__bag_init;
static void neo__bag_init_task(void *arg, int64_t i, int worker) {
    const neo__bag_init *job = (const neo__bag_init *)arg;
    const neo__bag_table *t = job->table;
    neo__init_job row = job->row;
    int64_t begin, end;
    row.out = job->b->scratch + worker * job->b->sizes.scratch;
    neo__task_range(t->rows, job->tasks, i, 1, &begin, &end);
    for (; begin < end; begin++) {
        row.first = t->store.first + (uint64_t)begin * t->store.stride;
        neo__init_task(&row, 0, worker);
        job->b->ctx->bag->encode(&t->store, begin, row.out, NULL);
    }
}
static neo_status neo__bags_init_weight(neo_bags *b, const neo__bag_table *t, neo_init init) {
    int64_t first = (int64_t)t->store.first, stride = t->part.dim;
    if (init.kind == NEO_INIT_NONE) return NEO_OK;
    if (t->store.dtype == NEO_F32) {
        neo_tensor weight = neo_tensor_2d(t->store.data, NEO_F32, t->rows, t->dim);
        return neo__tensor_init(b->ctx, weight, t->weight_name, init, first, stride);
    }
    neo__bag_init job;
    NEO__TRY(neo__init_check(&init, t->weight_name));
    job.b = b;
    job.table = t;
    job.row = neo__init_job_make(b->ctx, neo_tensor_2d(b->scratch, NEO_F32, 1, t->dim),
                                 t->weight_name, init, first, stride);
    job.row.tasks = 1;
    job.tasks = neo__task_count(b->ctx, t->rows, 1 + (1 << 14) / t->dim);
    neo_parallel_for(b->ctx, job.tasks, neo__bag_init_task, &job);
    return NEO_OK;
}
static neo_status neo__bags_init_tables(neo_bags *b, const neo_bags_desc *d) {
    for (int64_t i = 0; i < b->sizes.tables; i++) {
        neo__bag_table *t = &b->tables[i];
        neo_init init = d->tables[i].init;
        if (init.kind == NEO_INIT_DEFAULT) {
            init.kind = NEO_INIT_UNIFORM;
            init.b = (float)(1.0 / sqrt((double)t->part.rows));
            init.a = -init.b;
        }
        NEO__TRY(neo__bags_init_weight(b, t, init));
        for (int k = 0; k < 2 && t->state_dim[k]; k++) {
            int sums = t->optim.kind == NEO_BAG_ADAGRAD || t->optim.kind == NEO_BAG_ROWWISE_ADAGRAD;
            neo__bag_fill fill;
            fill.to = t->state[k];
            fill.count = t->rows * t->state_dim[k];
            fill.value = sums ? t->optim.initial_accumulator : 0.0f;
            fill.tasks = neo__task_count(b->ctx, fill.count, 65536);
            neo_parallel_for(b->ctx, fill.tasks, neo__bag_fill_task, &fill);
        }
    }
    return NEO_OK;
}

static neo_status neo__bags_work_alloc(neo_bags *b, int64_t max_batch, int64_t max_ids,
                                       const char *fn) {
    neo__bag_sizes sizes = b->sizes;
    sizes.max_batch = max_batch;
    sizes.max_ids = max_ids;
    NEO__TRY(neo__bags_record_check(b, &sizes, fn));
    size_t bytes = neo__bags_work_layout(&sizes, NULL, NULL);
    char *work = (char *)neo_alloc(b->ctx, bytes);
    NEO__CHECK(work, NEO_ERR_MEMORY, "%s: no memory for %zu bytes of workspace", fn, bytes);
    neo_free(b->ctx, b->work, b->work_bytes);
    b->work = work;
    b->work_bytes = bytes;
    b->sizes = sizes;
    neo__bags_work_layout(&sizes, work, b);
    b->slot_capacity = neo__bags_kept_rows(&sizes);
    b->slot_mask = (uint64_t)neo__bags_slot_places(b->slot_capacity) - 1;
    if (b->slot_capacity) memset(b->slot_of, 0, (size_t)(b->slot_mask + 1) * sizeof *b->slot_of);
    for (int64_t t = 0; t < sizes.tables; t++)
        neo__bag_record_bits(&b->tables[t], b->bounds, max_batch, NEO__MAX(max_ids, b->slot_capacity));
    return NEO_OK;
}

NEO_API neo_status neo_bags_create(neo_ctx *ctx, const neo_bags_desc *desc, neo_bags **out) {
    const char *fn = "neo_bags_create";
    NEO__CHECK(out, NEO_ERR_ARG, "%s: bags is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__bags_desc_check(ctx, desc, fn));
    neo__bag_sizes sizes = neo__bags_sizes_of(ctx, desc);
    size_t bytes = neo__bags_meta_layout(&sizes, NULL, NULL, NULL);
    char *base = (char *)neo__alloc_zero(ctx, bytes), *names = NULL;
    NEO__CHECK(base, NEO_ERR_MEMORY, "%s: no memory for %zu bytes", fn, bytes);
    neo_bags *b = NULL;
    neo__bags_meta_layout(&sizes, base, &b, &names);
    b->ctx = ctx;
    b->meta_bytes = bytes;
    b->sizes = sizes;
    neo__bags_describe(b, desc, names);
    neo_status status = neo__bags_work_alloc(b, desc->max_batch, desc->max_ids, fn);
    if (status == NEO_OK) status = neo__bags_alloc_tables(b, fn);
    if (status == NEO_OK) {
        neo__fp_state fp = neo__fp_enter();
        status = neo__bags_init_tables(b, desc);
        neo__fp_leave(fp);
    }
    if (status != NEO_OK) {
        neo_bags_destroy(b);
        return status;
    }
    *out = b;
    return NEO_OK;
}

NEO_API neo_status neo_bags_bytes(neo_ctx *ctx, const neo_bags_desc *desc,
                                  neo_bags_memory *memory) {
    NEO__CHECK(memory, NEO_ERR_ARG, "neo_bags_bytes: memory is NULL");
    NEO__TRY(neo__bags_desc_check(ctx, desc, "neo_bags_bytes"));
    memset(memory, 0, sizeof *memory);
    neo__bag_sizes sizes = neo__bags_sizes_of(ctx, desc);
    memory->workspace_bytes = neo__size_add(neo__bags_meta_layout(&sizes, NULL, NULL, NULL),
                                            neo__bags_work_layout(&sizes, NULL, NULL));
    for (int32_t t = 0; t < desc->table_count; t++) {
        const neo_table_desc *d = &desc->tables[t];
        if (!d->weight)
            memory->weight_bytes = neo__size_add(memory->weight_bytes,
                                                 neo__bag_weight_bytes(d->rows, d->dim, d->dtype));
        memory->weight_bytes =
            neo__size_add(memory->weight_bytes, neo__bag_scale_bytes(d->rows, d->dtype));
        for (int k = 0; k < 2; k++)
            memory->state_bytes = neo__size_add(
                memory->state_bytes,
                neo__bag_bytes(d->rows, neo__bag_state_dim(d->optim.kind, d->dim, k)));
    }
    return NEO_OK;
}

NEO_API neo_status neo_bags_reserve(neo_bags *b, int64_t max_batch, int64_t max_ids) {
    NEO__CHECK(b, NEO_ERR_ARG, "neo_bags_reserve: bags is NULL");
    if (max_batch <= b->sizes.max_batch && max_ids <= b->sizes.max_ids) return NEO_OK;
    NEO__CHECK(b->slot_count == 0, NEO_ERR_STATE,
               "neo_bags_reserve: bags '%s': %" PRId64 " rows of gradients are kept: step first", b->name,
               b->slot_count);
    NEO__TRY(neo__bags_work_alloc(b, NEO__MAX(max_batch, b->sizes.max_batch),
                                  NEO__MAX(max_ids, b->sizes.max_ids), "neo_bags_reserve"));
    b->grow_count++;
    return NEO_OK;
}

/* ---- what a bags object tells ---- */
NEO_API int32_t neo_bags_table_count(const neo_bags *b) { return (int32_t)b->sizes.tables; }
NEO_API int64_t neo_bags_out_width(const neo_bags *b) { return b->sizes.width; }
NEO_API const char *neo_bags_table_name(const neo_bags *b, int32_t table) {
    return table >= 0 && table < b->sizes.tables ? b->tables[table].name : NULL;
}
NEO_API neo_tensor neo_bags_weight(const neo_bags *b, int32_t table) {
    if (table < 0 || table >= b->sizes.tables) return neo_tensor_none();
    const neo__bag_table *t = &b->tables[table];
    return neo_tensor_2d(t->store.data, t->store.dtype, t->rows, t->dim);
}
NEO_API neo_tensor neo_bags_scale(const neo_bags *b, int32_t table) {
    if (table < 0 || table >= b->sizes.tables) return neo_tensor_none();
    const neo__bag_table *t = &b->tables[table];
    return t->store.scale ? neo_tensor_2d(t->store.scale, NEO_F32, t->rows, 2) : neo_tensor_none();
}
static neo_status neo__bags_check_rows(const neo_bags *b, int32_t table, int64_t first,
                                       int64_t count, const float *rows, const char *fn) {
    NEO__CHECK(b && table >= 0 && table < b->sizes.tables && (rows || count == 0), NEO_ERR_ARG,
               "%s: an argument is NULL, or there is no table %d", fn, table);
    const neo__bag_table *t = &b->tables[table];
    NEO__CHECK(first >= 0 && count >= 0 && first <= t->rows - count, NEO_ERR_RANGE,
               "%s: table '%s': %" PRId64 " rows from %" PRId64 " on, it has %" PRId64, fn, t->name,
               count, first, t->rows);
    return NEO_OK;
}
NEO_API neo_status neo_bags_get_rows(const neo_bags *b, int32_t table, int64_t first,
                                     int64_t count, float *rows) {
    NEO__TRY(neo__bags_check_rows(b, table, first, count, rows, "neo_bags_get_rows"));
    const neo__bag_rows *t = &b->tables[table].store;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        float *to = rows + i * t->dim;
        const char *from = t->data + (first + i) * t->row_bytes;
        if (t->dtype == NEO_F32) memcpy(to, from, (size_t)t->row_bytes);
        else b->ctx->bag->decode(t, first + i, 0, t->dim, to);
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO_API neo_status neo_bags_set_rows(neo_bags *b, int32_t table, int64_t first, int64_t count,
                                     const float *rows) {
    NEO__TRY(neo__bags_check_rows(b, table, first, count, rows, "neo_bags_set_rows"));
    const neo__bag_rows *t = &b->tables[table].store;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        const float *from = rows + i * t->dim;
        size_t bytes = (size_t)t->dim * sizeof *from;
        if (t->dtype == NEO_F32) {
            memcpy(t->data + (first + i) * t->row_bytes, from, bytes);
        } else {
            memcpy(b->scratch, from, bytes);
            b->ctx->bag->encode(t, first + i, b->scratch, NULL);
        }
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
/* State k is one float per row. */
static int neo__bag_state_per_row(neo_bag_optim_kind kind, int k) {
    return k == 0 ? kind == NEO_BAG_ROWWISE_ADAGRAD
                  : kind == NEO_BAG_PARTIAL_ADAM || kind == NEO_BAG_PARTIAL_LAMB;
}
NEO_API neo_tensor neo_bags_state(const neo_bags *b, int32_t table, int k) {
    if (table < 0 || table >= b->sizes.tables || k < 0 || k > 1) return neo_tensor_none();
    const neo__bag_table *t = &b->tables[table];
    if (t->state_dim[k] == 0) return neo_tensor_none();
    return neo__bag_state_per_row(t->optim.kind, k)
               ? neo_tensor_1d(t->state[k], NEO_F32, t->rows)
               : neo_tensor_2d(t->state[k], NEO_F32, t->rows, t->dim);
}
NEO_API neo_bags_stats neo_bags_get_stats(const neo_bags *b) {
    neo_bags_stats s;
    s.steps = b->steps;
    s.out_of_range = b->out_of_range;
    s.grow_count = b->grow_count;
    return s;
}
NEO_API void neo_bags_set_steps(neo_bags *b, int64_t steps) { b->steps = steps; }
/* The name of the object, and the t of Adam: what a checkpoint needs beside weights and state. The
   tensors are "<bags>.<table>.weight", ".scale", ".momentum1", ".momentum2", and "<bags>.step". */
static NEO__UNUSED const char *neo__bags_name(const neo_bags *b) { return b->name; }
static NEO__UNUSED int64_t *neo__bags_steps(neo_bags *b) { return &b->steps; }
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-bags-forward
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__bags_call {
    neo_bags *b;
    const neo_jagged *j;
    const char *fn;
    float *out;
    const float *dout;
    float *dweights;
    neo_leaves leaves; /* of a batch that is a part of one; count 0: the batch is whole */
    int64_t tasks, cost;
    int bad_offsets; /* atomic */
} neo__bags_call;

/* Floats a bag and an id stand for, what each costs on top in instructions included. */
NEO__INLINE int64_t neo__bag_cost(int64_t dim) { return dim + 16; }

/* ---- the checks of a call ---- */

/* Where the bags of each feature are, and the floats that go with them. Reads no offsets. */
static neo_status neo__bags_place_bags(const neo__bags_call *c, neo_tensor t) {
    neo_bags *b = c->b;
    const neo_jagged *j = c->j;
    int64_t features = b->sizes.features, at = 0;
    for (int64_t f = 0; f <= features; f++) {
        neo__bag_feature *p = &b->features[f];
        int64_t dim = f < features ? b->tables[p->table].dim : 0;
        p->first_bag = neo__jagged_first_bag(j, f);
        p->bags = f < features ? neo__jagged_first_bag(j, f + 1) - p->first_bag : 0;
        NEO__CHECK(p->bags <= b->sizes.max_batch, NEO_ERR_CAPACITY,
                   "%s: bags '%s': feature %" PRId64 " has %" PRId64
                   " samples, reserved are %" PRId64 " (neo_bags_reserve grows it)",
                   c->fn, b->name, f, p->bags, b->sizes.max_batch);
        p->bad = 0;
        p->out_stride = j->feature_bags && !b->sizes.none ? dim : t.stride[0];
        p->out_at = j->feature_bags ? at : p->col;
        at += p->bags * dim;
    }
    return NEO_OK;
}
/* Where their ids are. Offsets have been checked. */
static void neo__bags_place_ids(neo__bags_call *c) {
    neo_bags *b = c->b;
    const int64_t *offsets = c->j->offsets;
    int64_t any = neo_jagged_bag_count(c->j) > 0;
    for (int64_t f = 0; f <= b->sizes.features; f++) {
        neo__bag_feature *p = &b->features[f];
        p->cost_begin = c->cost;
        p->first_id = any ? offsets[p->first_bag] : 0;
        p->ids = any ? offsets[p->first_bag + p->bags] - p->first_id : 0;
        if (b->sizes.none && any) p->out_at = (p->first_id - offsets[0]) * p->out_stride;
        if (f < b->sizes.features)
            c->cost += (p->ids + p->bags) * neo__bag_cost(b->tables[p->table].dim);
    }
}

static neo_status neo__bags_check_tensor(const neo__bags_call *c, neo_tensor t, const char *what) {
    const neo_jagged *j = c->j;
    const neo__bag_sizes *s = &c->b->sizes;
    int64_t rows = s->none ? neo_jagged_id_count(j) : j->batch,
            cols = s->none ? s->max_dim : s->width;
    if (j->feature_bags && !s->none) {
        int64_t count = 0;
        for (int64_t f = 0; f < s->features; f++)
            count += (j->feature_bags[f + 1] - j->feature_bags[f]) *
                     c->b->tables[c->b->features[f].table].dim;
        NEO__CHECK(t.ndim == 1 && t.dtype == NEO_F32 && t.shape[0] == count, NEO_ERR_SHAPE,
                   "%s: bags '%s': with feature_bags %s must be a 1-d f32 tensor of %" PRId64
                   " elements",
                   c->fn, c->b->name, what, count);
        NEO__CHECK(t.stride[0] == 1 || count <= 1, NEO_ERR_SHAPE,
                   "%s: bags '%s': %s is not contiguous", c->fn, c->b->name, what);
        if (!t.data && count > 0) return neo__no_data(c->fn, what, t, NEO_ERR_ARG);
        return NEO_OK;
    }
    NEO__CHECK(t.ndim == 2 && t.dtype == NEO_F32 && t.shape[0] == rows && t.shape[1] == cols,
               NEO_ERR_SHAPE,
               "%s: bags '%s': %s must be f32 [%" PRId64 "][%" PRId64
               "], it is %s with %d dimensions [%" PRId64 "][%" PRId64 "]",
               c->fn, c->b->name, what, rows, cols, neo_dtype_name(t.dtype), t.ndim, t.shape[0],
               t.shape[1]);
    NEO__CHECK((t.stride[1] == 1 || cols == 1) && (t.stride[0] >= cols || rows <= 1),
               NEO_ERR_SHAPE,
               "%s: bags '%s': the strides of %s are %" PRId64 ", %" PRId64
               ", not at least %" PRId64 ", 1",
               c->fn, c->b->name, what, t.stride[0], t.stride[1], cols);
    if (!t.data && rows > 0) return neo__no_data(c->fn, what, t, NEO_ERR_ARG);
    return NEO_OK;
}

NEO__INLINE int64_t neo__bags_count_bad(const void *ids, int is_i32, int64_t k, int64_t end,
                                        int64_t rows) {
    int64_t bad = 0;
    for (; k < end; k++) bad += (uint64_t)neo__jagged_id(ids, is_i32, k) >= (uint64_t)rows;
    return bad;
}
/* Bags of task i: offsets that never decrease and stay inside, then ids. */
static void neo__bags_check_task(void *arg, int64_t i, int worker) {
    neo__bags_call *c = (neo__bags_call *)arg;
    const neo_jagged *j = c->j;
    neo_bags *b = c->b;
    (void)worker;
    int64_t begin, end, last = neo_jagged_bag_count(j);
    neo__task_range(last, c->tasks, i, 1, &begin, &end);
    int bad = 0;
    for (int64_t k = begin; k < end; k++) bad |= j->offsets[k + 1] < j->offsets[k];
    if (bad || j->offsets[begin] < j->offsets[0] || j->offsets[end] > j->offsets[last]) {
        __atomic_store_n(&c->bad_offsets, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t f = 0; f < b->sizes.features; f++) {
        neo__bag_feature *p = &b->features[f];
        int64_t lo = NEO__MAX(begin, p->first_bag), hi = NEO__MIN(end, p->first_bag + p->bags);
        if (lo >= hi) continue;
        int64_t rows = b->tables[p->table].rows, k = j->offsets[lo], k_end = j->offsets[hi];
        int64_t count = j->id_dtype == NEO_I32 ? neo__bags_count_bad(j->ids, 1, k, k_end, rows)
                                               : neo__bags_count_bad(j->ids, 0, k, k_end, rows);
        if (count) __atomic_fetch_add(&p->bad, count, __ATOMIC_RELAXED);
    }
}

/* Everything that can be wrong with a batch and the tensor that goes with it. */
static neo_status neo__bags_begin(neo__bags_call *c, neo_tensor t, const char *what) {
    neo_bags *b = c->b;
    NEO__CHECK(b, NEO_ERR_ARG, "%s: bags is NULL", c->fn);
    NEO__TRY(neo__jagged_check(c->j, c->fn));
    NEO__CHECK(c->j->feature_count == b->sizes.features, NEO_ERR_SHAPE,
               "%s: the batch has %d features, bags '%s' has %" PRId64, c->fn, c->j->feature_count,
               b->name, b->sizes.features);
    int64_t ids = neo_jagged_id_count(c->j), bags = neo_jagged_bag_count(c->j);
    NEO__CHECK(ids <= b->sizes.max_ids, NEO_ERR_CAPACITY,
               "%s: bags '%s': the batch has %" PRId64 " ids, reserved are %" PRId64
               " (neo_bags_reserve grows it)",
               c->fn, b->name, ids, b->sizes.max_ids);
    NEO__TRY(neo__bags_check_tensor(c, t, what));
    NEO__TRY(neo__bags_place_bags(c, t));
    c->tasks = NEO__MIN(neo__bags_most_tasks(b->sizes.threads), 1 + (bags + ids) / 4096);
    neo_parallel_for(b->ctx, bags ? c->tasks : 0, neo__bags_check_task, c);
    if (c->bad_offsets) {
        NEO__TRY(neo__jagged_check_offsets(c->j, c->fn));
        return neo_fail(NEO_ERR_FORMAT, "%s: offsets decrease", c->fn);
    }
    neo__bags_place_ids(c);
    for (int64_t f = 0; b->bounds == NEO_BOUNDS_ERROR && f < b->sizes.features; f++) {
        const neo__bag_table *table = &b->tables[b->features[f].table];
        neo__jagged_place at;
        if (b->features[f].bad && neo__jagged_find_bad(c->j, (int32_t)f, table->rows, &at))
            return neo_fail(NEO_ERR_RANGE,
                             "%s: bags '%s': table '%s' (feature %" PRId64 "), sample %" PRId64
                             ", position %" PRId64 ": id %" PRId64 " is not in [0, %" PRId64 ")",
                             c->fn, b->name, table->name, f, at.sample, at.position, at.id,
                             table->rows);
    }
    return NEO_OK;
}

/* ---- work by cost ---- */
typedef struct neo__bags_cut {
    int64_t feature, bag; /* bag: within its feature */
} neo__bags_cut;

/* The first bag before which at least `target` of the cost lies. */
static neo__bags_cut neo__bags_seek(const neo__bags_call *c, int64_t target) {
    const neo_bags *b = c->b;
    neo__bags_cut cut;
    int64_t lo = 0, hi = b->sizes.features;
    cut.bag = 0;
    while (lo < hi) { /* the last feature that begins at or before target */
        int64_t mid = (lo + hi + 1) / 2;
        if (b->features[mid].cost_begin <= target) lo = mid;
        else hi = mid - 1;
    }
    cut.feature = lo;
    if (lo == b->sizes.features) return cut;
    const neo__bag_feature *p = &b->features[lo];
    const int64_t *offsets = c->j->offsets + p->first_bag;
    int64_t unit = neo__bag_cost(b->tables[p->table].dim);
    for (lo = 0, hi = p->bags; lo < hi;) {
        int64_t mid = (lo + hi) / 2;
        if ((offsets[mid] - p->first_id + mid) * unit >= target - p->cost_begin) hi = mid;
        else lo = mid + 1;
    }
    cut.bag = lo;
    return cut;
}
static void neo__bags_cut_tasks(neo__bags_call *c) {
    c->tasks = NEO__MIN(neo__bags_most_tasks(c->b->sizes.threads), 1 + c->cost / 32768);
}

/* Bags [bag, end) of feature f as a lookup. */
static neo__bag_lookup neo__bags_lookup(const neo__bags_call *c, int64_t f, int64_t bag,
                                        int64_t end) {
    const neo_bags *b = c->b;
    const neo_jagged *j = c->j;
    const neo__bag_feature *p = &b->features[f];
    const neo__bag_table *t = &b->tables[p->table];
    NEO__ZERO(neo__bag_lookup, a);
    a.store = &t->store;
    a.table = t->store.dtype == NEO_F32 ? (const float *)(const void *)t->store.data : NULL;
    a.rows = t->rows;
    a.dim = t->dim;
    a.ids = j->ids;
    a.is_i32 = j->id_dtype == NEO_I32;
    a.weights = j->weights;
    a.offsets = j->offsets + p->first_bag + bag;
    a.bags = end - bag;
    int64_t at = p->out_at + (b->sizes.none ? a.offsets[0] - p->first_id : bag) * p->out_stride;
    a.out = c->out ? c->out + at : NULL;
    a.dout = c->dout ? c->dout + at : NULL;
    a.out_stride = p->out_stride;
    a.mean = t->pooling == NEO_POOL_MEAN;
    a.pooled = !b->sizes.none;
    a.bounds = b->bounds;
    a.buckets = t->buckets;
    a.bucket_rows = t->part.rows;
    a.first_row = t->part.first_row;
    if (end == p->bags && f + 1 < b->sizes.features && b->features[f + 1].bad == 0) {
        a.next_store = &b->tables[b->features[f + 1].table].store;
        a.next_id = b->features[f + 1].first_id;
        a.next_count = b->features[f + 1].ids;
    }
    return a;
}

/* Call `each` for the bags of task i, feature by feature. */
static void neo__bags_each(neo__bags_call *c, int64_t i,
                           void (*each)(neo__bags_call *c, int64_t f, const neo__bag_lookup *a)) {
    neo__bags_cut from = neo__bags_seek(c, c->cost / c->tasks * i +
                                               c->cost % c->tasks * i / c->tasks),
                  to;
    i++;
    to = neo__bags_seek(c, c->cost / c->tasks * i + c->cost % c->tasks * i / c->tasks);
    for (int64_t f = from.feature; f <= to.feature && f < c->b->sizes.features; f++) {
        int64_t bag = f == from.feature ? from.bag : 0;
        int64_t end = f == to.feature ? to.bag : c->b->features[f].bags;
        if (bag >= end) continue;
        neo__bag_lookup a = neo__bags_lookup(c, f, bag, end);
        each(c, f, &a);
    }
}

/* ---- forward, weight_grad ---- */
/* Sums of one row are the same in any order of buckets. */
static int neo__bags_are_single(const neo__bag_lookup *a) {
    int64_t most = 0;
    for (int64_t b = 0; b < a->bags; b++) most = NEO__MAX(most, a->offsets[b + 1] - a->offsets[b]);
    return most <= 1 && !a->weights; /* a weight may leave -0, which buckets make 0 */
}
static void neo__bags_forward_each(neo__bags_call *c, int64_t f, const neo__bag_lookup *a) {
    const neo__bag_kernels *k = c->b->ctx->bag;
    int plain = c->b->features[f].bad == 0 && (a->buckets == 1 || neo__bags_are_single(a));
    if (!a->pooled) k->copy(a);
    else if (plain) k->pool(a);
    else k->pool_careful(a);
}
static void neo__bags_forward_task(void *arg, int64_t i, int worker) {
    (void)worker;
    neo__bags_each((neo__bags_call *)arg, i, neo__bags_forward_each);
}
NEO_API neo_status neo_bags_forward(neo_bags *b, const neo_jagged *batch, neo_tensor out) {
    NEO__ZERO(neo__bags_call, c);
    c.b = b;
    c.j = batch;
    c.fn = "neo_bags_forward";
    c.out = (float *)out.data;
    NEO__TRY(neo__bags_begin(&c, out, "out"));
    for (int64_t f = 0; f < b->sizes.features; f++) b->out_of_range += b->features[f].bad;
    neo__bags_cut_tasks(&c);
    neo_parallel_for(b->ctx, c.tasks, neo__bags_forward_task, &c);
    return NEO_OK;
}

static void neo__bags_weight_grad_each(neo__bags_call *c, int64_t f, const neo__bag_lookup *a) {
    (void)f;
    c->b->ctx->bag->weight_grad(a, c->dweights + (a->offsets[0] - c->j->offsets[0]));
}
static void neo__bags_weight_grad_task(void *arg, int64_t i, int worker) {
    (void)worker;
    neo__bags_each((neo__bags_call *)arg, i, neo__bags_weight_grad_each);
}
NEO_API neo_status neo_bags_weight_grad(neo_bags *b, const neo_jagged *batch, neo_tensor dout,
                                        float *dweights) {
    NEO__ZERO(neo__bags_call, c);
    c.b = b;
    c.j = batch;
    c.fn = "neo_bags_weight_grad";
    c.dout = (const float *)dout.data;
    c.dweights = dweights;
    NEO__TRY(neo__bags_begin(&c, dout, "dout"));
    NEO__CHECK(dweights || neo_jagged_id_count(batch) == 0, NEO_ERR_ARG, "%s: dweights is NULL",
               c.fn);
    neo__bags_cut_tasks(&c);
    neo_parallel_for(b->ctx, c.tasks, neo__bags_weight_grad_task, &c);
    return NEO_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-bags-backward

   Per table: write one record per occurrence of an id in the canonical order (leaf, feature,
   sample, position); sort the records by row, stably; then walk them row by row: add the gradient
   rows of a run, and take the optimizer's step at once. The sorted order is unique, so how the
   sort is cut over threads does not show in the result.

   A record is row << low_bits | low. low numbers the bags of the table in canonical order and is
   the row of the gradient that the occurrence adds. With per-id weights (and for NEO_POOL_NONE
   with several features per table and leaves) low is instead the occurrence's number in canonical
   order, and grad_row, grad_weight say what to add. A dropped id is a record of row `rows`, which
   sorts behind all others.

   Gradients are packed first, bag after bag in canonical order, where that pays (each is read
   several times and dout's rows are far apart) or must be (MEAN divides them; several features of
   one table).

   The sort is a radix sort from the low digit up. A table that is a small part of the batch is
   done whole by one thread, all steps in a row while its data is in the cache, in buffers that the
   thread uses again for the next. Other tables are shared: sorted in chunks (count digits, add up,
   scatter), then stepped in pieces of about equal numbers of records, cut between rows. Rows
   belong to one piece, so no two threads touch the same.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__BAG_PACK_BAGS = 128, NEO__BAG_CHUNK = 2048, NEO__BAG_NEAR_FLOATS = 1 << 17 };

typedef struct neo__bags_back {
    neo__bags_call call;
    float lr;
    int keep, all; /* keep: sums are kept, of all tables or of cut ones; else tables not cut step */
    int64_t chunk_count, pack_tasks;
    int64_t step_cost, step_tasks;
    int pass;                      /* of the shared sorts */
    int reuse;                     /* whole tables: buffers per worker, else per table */
    int64_t reuse_ids, reuse_pack; /* size of a worker's buffers */
    int64_t whole_ids, whole_pack; /* where the buffers of whole tables begin */
} neo__bags_back;

/* ---- plan ---- */

/* Leaves of the batch. */
NEO__INLINE int64_t neo__bags_leaf_count(const neo__bags_call *c) {
    return c->leaves.count ? c->leaves.count : c->b->sizes.shards;
}
/* Bags of feature p in leaf v: [*begin, *end). */
NEO__INLINE void neo__bags_leaf_bags(const neo__bags_call *c, const neo__bag_feature *p, int64_t v,
                                     int64_t *begin, int64_t *end) {
    neo_leaves all = {p->bags, 0, 0, 1};
    neo__leaf_rows(c->b->ctx, c->leaves.count ? &c->leaves : &all, (int)v, begin, end);
}
/* Features of a table are walked leaf by leaf when it has several and there are leaves. */
NEO__INLINE int64_t neo__bags_rounds(const neo__bags_call *c, const neo__bag_table *t) {
    return t->feature_count > 1 ? neo__bags_leaf_count(c) : 1;
}
/* Bags of feature p in round v: [*begin, *end). */
NEO__INLINE void neo__bags_round(const neo__bags_call *c, const neo__bag_feature *p, int64_t rounds,
                                 int64_t v, int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = p->bags;
    if (rounds > 1) neo__bags_leaf_bags(c, p, v, begin, end);
}
/* The round in which bag `bag` of p is. */
static int64_t neo__bags_round_of(const neo__bags_call *c, const neo__bag_feature *p, int64_t rounds,
                                  int64_t bag) {
    int64_t v = 0, begin, end;
    for (int64_t n = rounds; n > 1;) { /* the last round that begins at or before it */
        int64_t half = n / 2;
        neo__bags_round(c, p, rounds, v + half, &begin, &end);
        if (begin <= bag) v += half, n -= half;
        else n = half;
    }
    return v;
}

/* The first low of every leaf of table ti, and of every (feature, leaf): minus its first bag. */
static void neo__bags_plan_leaves(const neo__bags_call *c, int64_t ti) {
    neo_bags *b = c->b;
    const neo__bag_table *t = &b->tables[ti];
    const neo__bag_merge *m = &b->merge[ti];
    int64_t shards = b->sizes.shards, leaves = neo__bags_leaf_count(c), low = 0, occurrence = 0;
    int64_t *leaf = b->leaf + ti * (shards + 1);
    for (int64_t v = 0; v < leaves; v++) {
        leaf[v] = m->indirect ? occurrence : low;
        for (int32_t q = 0; q < t->feature_count; q++) {
            int32_t f = b->table_features[t->first_feature + q];
            const neo__bag_feature *p = &b->features[f];
            const int64_t *offsets = c->j->offsets + p->first_bag;
            int64_t begin, end;
            neo__bags_leaf_bags(c, p, v, &begin, &end);
            b->feature_leaf[f * shards + v] = low - begin;
            if (p->bags == 0) continue;
            occurrence += offsets[end] - offsets[begin];
            if (b->sizes.none) low = offsets[end] - c->j->offsets[0];
            else low += end - begin;
        }
        if (b->sizes.none && v == 0 && t->feature_count && !m->indirect)
            leaf[0] = b->features[b->table_features[t->first_feature]].first_id -
                      (neo_jagged_bag_count(c->j) ? c->j->offsets[0] : 0);
    }
    leaf[leaves] = INT64_MAX;
}

/* The random numbers by which this step rounds. */
static neo__random_key neo__bags_round_key(const neo_bags *b, const neo__bag_table *t) {
    return neo__random_key_make(b->ctx->seed, t->name_hash, b->steps + 1, NEO_STREAM_ROUNDING);
}
/* How table ti is done. Buffers come later. */
static void neo__bags_plan_table(neo__bags_back *k, int64_t ti) {
    neo__bags_call *c = &k->call;
    neo_bags *b = c->b;
    const neo__bag_table *t = &b->tables[ti];
    neo__bag_merge *m = &b->merge[ti];
    int64_t dropped = 0;
    memset(m, 0, sizeof *m);
    m->keep = k->keep;
    m->whole = 1;
    if (!k->all && k->keep != t->cut) return; /* not in this walk */
    for (int32_t q = 0; q < t->feature_count; q++) {
        const neo__bag_feature *p = &b->features[b->table_features[t->first_feature + q]];
        m->count += p->ids;
        m->bags += p->bags;
        dropped += p->bad;
    }
    m->kept = m->count - (b->bounds == NEO_BOUNDS_DROP ? dropped : 0);
    m->whole = !m->keep && (b->sizes.threads == 1 || (m->count + m->bags) * neo__bag_cost(t->dim) <=
                                                         c->cost / (4 * b->sizes.threads));
    m->indirect = c->j->weights || (b->sizes.none && t->feature_count > 1 && b->sizes.shards > 1);
    m->step = neo__bag_step_make(&t->optim, k->lr, b->steps + 1);
    m->round = neo__bags_round_key(b, t);
    m->pack = !b->sizes.none &&
              (t->pooling == NEO_POOL_MEAN || t->feature_count > 1 || m->count >= 4 * m->bags);
    if (!m->pack && t->feature_count) {
        const neo__bag_feature *p = &b->features[b->table_features[t->first_feature]];
        m->grad = c->dout + (b->sizes.none ? 0 : p->out_at);
        m->grad_stride = p->out_stride;
    }
    neo__bags_plan_leaves(c, ti);
}

/* The buffers of a table: `first` counts occurrences, `pack` floats. */
static void neo__bags_give_buffers(const neo_bags *b, int64_t ti, int64_t first, int64_t pack) {
    neo__bag_merge *m = &b->merge[ti];
    m->first = first;
    m->from = b->records[0] + first;
    m->to = b->records[1] + first;
    if (m->pack) {
        m->grad = m->pack_to = b->packed + pack;
        m->grad_stride = b->tables[ti].dim;
    }
}
/* Shared tables first; whole tables after them, each in its place, or all in one place per worker
   when these places fit into the same room. */
static void neo__bags_plan_buffers(neo__bags_back *k) {
    const neo_bags *b = k->call.b;
    int64_t first = 0, pack = 0, threads = b->sizes.threads, ids = 0, floats = 0;
    for (int whole = 0; whole < 2; whole++) {
        if (whole) k->whole_ids = first, k->whole_pack = pack;
        for (int64_t ti = 0; ti < b->sizes.tables; ti++) {
            const neo__bag_merge *m = &b->merge[ti];
            int64_t packed = m->pack ? m->bags * b->tables[ti].dim : 0;
            if (m->whole != whole) continue;
            neo__bags_give_buffers(b, ti, first, pack);
            first += m->count;
            pack += packed;
            if (whole) ids = NEO__MAX(ids, m->count), floats = NEO__MAX(floats, packed);
        }
    }
    k->reuse_ids = (ids + 7) / 8 * 8;
    k->reuse_pack = (floats + 15) / 16 * 16;
    k->reuse = k->whole_ids + k->reuse_ids * threads <= b->sizes.max_ids &&
               k->whole_pack + k->reuse_pack * threads <= b->sizes.max_batch * b->sizes.width;
}

/* Pieces of the sort of shared tables. There are fewer than 4 threads of these. */
static void neo__bags_plan_chunks(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    int64_t threads = b->sizes.threads,
            most = NEO__MAX((int64_t)NEO__BAG_CHUNK, k->whole_ids / (4 * threads) + 1);
    for (int64_t ti = 0; ti < b->sizes.tables; ti++) {
        const neo__bag_merge *m = &b->merge[ti];
        int64_t pieces = m->whole ? 0 : (m->count + most - 1) / most;
        for (int64_t i = 0; i < pieces; i++) {
            neo__bag_chunk *chunk = &b->chunks[k->chunk_count++];
            chunk->table = ti;
            neo__task_range(m->count, pieces, i, 1, &chunk->begin, &chunk->end);
        }
    }
    NEO_ASSERT(k->chunk_count <= neo__bags_most_tasks(threads) + (b->slot_capacity ? b->sizes.tables + 4 : 0));
}

static void neo__bags_plan(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    k->chunk_count = k->pack_tasks = k->step_cost = 0;
    k->pass = 0;
    for (int64_t ti = 0; ti < b->sizes.tables; ti++) neo__bags_plan_table(k, ti);
    neo__bags_plan_buffers(k);
    neo__bags_plan_chunks(k);
    for (int64_t f = 0; f <= b->sizes.features; f++) {
        neo__bag_feature *p = &b->features[f];
        p->pack_task = k->pack_tasks;
        if (f < b->sizes.features && b->merge[p->table].pack && !b->merge[p->table].whole)
            k->pack_tasks += (p->bags + NEO__BAG_PACK_BAGS - 1) / NEO__BAG_PACK_BAGS;
    }
}

/* ---- gather ---- */

/* Records of ids [k, end) of feature f, which begin in bag `bag`; to[0] is occurrence `number` of
   the table; low_of_bag: added to a bag's number. */
NEO__INLINE void neo__bags_record_run(const neo__bags_call *c, int64_t f, int64_t bag, int64_t k,
                                      int64_t end, int64_t low_of_bag, int64_t number, int is_i32,
                                      int plain) {
    const neo_bags *b = c->b;
    const neo__bag_feature *p = &b->features[f];
    const neo__bag_table *t = &b->tables[p->table];
    const neo__bag_merge *m = &b->merge[p->table];
    const int64_t *offsets = c->j->offsets + p->first_bag;
    uint64_t *to = m->from + number;
    int low_bits = t->low_bits;
    for (; k < end; bag++) {
        int64_t stop = NEO__MIN(offsets[bag + 1], end), low = low_of_bag + bag;
        for (; k < stop; k++, number++) {
            int64_t row = neo__jagged_id(c->j->ids, is_i32, k);
            if (!plain) {
                if (row < 0 || row >= t->rows)
                    row = b->bounds == NEO_BOUNDS_DROP ? t->rows : row < 0 ? 0 : t->rows - 1;
                low = b->sizes.none ? k - c->j->offsets[0] : low_of_bag + bag;
                if (m->indirect) {
                    b->grad_row[m->first + number] = low;
                    if (c->j->weights) b->grad_weight[m->first + number] = c->j->weights[k];
                    low = number;
                }
            }
            *to++ = (uint64_t)row << low_bits | (uint64_t)low;
        }
    }
}

/* Occurrences [begin, end) of table ti, in canonical order. */
static void neo__bags_gather(const neo__bags_call *c, int64_t ti, int64_t begin, int64_t end) {
    const neo_bags *b = c->b;
    const neo__bag_table *t = &b->tables[ti];
    int64_t rounds = neo__bags_rounds(c, t), number = 0, bag, bag_end;
    for (int64_t v = 0; v < rounds; v++) {
        for (int32_t q = 0; q < t->feature_count && number < end; q++) {
            int32_t f = b->table_features[t->first_feature + q];
            const neo__bag_feature *p = &b->features[f];
            const int64_t *offsets = c->j->offsets + p->first_bag;
            if (p->bags == 0) continue;
            neo__bags_round(c, p, rounds, v, &bag, &bag_end);
            int64_t base = offsets[bag], count = offsets[bag_end] - base;
            int64_t lo = NEO__MAX(begin - number, (int64_t)0), hi = NEO__MIN(end - number, count);
            if (lo < hi) {
                while (bag + 1 < bag_end) { /* the bag that holds id base + lo */
                    int64_t mid = (bag + bag_end) / 2;
                    if (offsets[mid] <= base + lo) bag = mid;
                    else bag_end = mid;
                }
                int64_t low = b->feature_leaf[f * b->sizes.shards + v], from = base + lo,
                        to = base + hi;
                int plain = p->bad == 0 && !b->sizes.none && !b->merge[ti].indirect;
                int is_i32 = c->j->id_dtype == NEO_I32;
                if (plain && is_i32)
                    neo__bags_record_run(c, f, bag, from, to, low, number + lo, 1, 1);
                else if (plain) neo__bags_record_run(c, f, bag, from, to, low, number + lo, 0, 1);
                else neo__bags_record_run(c, f, bag, from, to, low, number + lo, is_i32, 0);
            }
            number += count;
        }
    }
}

/* ---- sort ---- */
NEO__INLINE int neo__bag_passes(int row_bits) {
    return (row_bits + NEO__BAG_DIGIT_BITS - 1) / NEO__BAG_DIGIT_BITS;
}
NEO__INLINE int neo__bag_digit_bits(int row_bits) {
    int passes = neo__bag_passes(row_bits);
    return passes ? (row_bits + passes - 1) / passes : 0;
}
static void neo__bag_sort_few(uint64_t *r, int64_t n, int shift) {
    for (int64_t i = 1; i < n; i++) {
        uint64_t x = r[i];
        int64_t at = i;
        for (; at > 0 && r[at - 1] >> shift > x >> shift; at--) r[at] = r[at - 1];
        r[at] = x;
    }
}
/* count[pass][digit] of n records, for `passes` digits from bit `shift` on. */
static void neo__bag_count_digits(const uint64_t *record, int64_t n, int shift, int bits,
                                  int passes, int64_t *count) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    int pass = 0;
    for (; pass + 2 <= passes; pass += 2, count += 2 * NEO__BAG_DIGITS, shift += 2 * bits) {
        for (int64_t i = 0; i < n; i++) {
            uint64_t x = record[i] >> shift;
            count[x & mask]++;
            count[NEO__BAG_DIGITS + (x >> bits & mask)]++;
        }
    }
    for (int64_t i = 0; pass < passes && i < n; i++) count[record[i] >> shift & mask]++;
}
static void neo__bag_scatter(uint64_t *NEO__RESTRICT to, const uint64_t *NEO__RESTRICT from,
                             int64_t n, int shift, int bits, int64_t *NEO__RESTRICT at) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < n; i++) to[at[from[i] >> shift & mask]++] = from[i];
}
/* Sort the records of a table by row on one thread. All digits are counted in one go. */
static void neo__bag_sort(neo__bag_merge *m, const neo__bag_table *t) {
    enum { MOST_PASSES = (64 + NEO__BAG_DIGIT_BITS - 1) / NEO__BAG_DIGIT_BITS };
    int64_t count[MOST_PASSES][NEO__BAG_DIGITS];
    int passes = neo__bag_passes(t->row_bits), bits = neo__bag_digit_bits(t->row_bits);
    if (m->count <= 32) {
        neo__bag_sort_few(m->from, m->count, t->low_bits);
        return;
    }
    memset(count, 0, (size_t)passes * sizeof count[0]);
    neo__bag_count_digits(m->from, m->count, t->low_bits, bits, passes, count[0]);
    for (int pass = 0; pass < passes; pass++) {
        int64_t *at = count[pass];
        for (int64_t d = 0, sum = 0; d < NEO__BAG_DIGITS; d++) {
            int64_t n = at[d];
            at[d] = sum;
            sum += n;
        }
        neo__bag_scatter(m->to, m->from, m->count, t->low_bits + pass * bits, bits, at);
        uint64_t *other = m->from;
        m->from = m->to;
        m->to = other;
    }
}

/* Count the digits of one chunk; gathers before the first pass. */
static void neo__bags_count_chunk(neo__bags_back *k, neo__bag_chunk *chunk) {
    const neo_bags *b = k->call.b;
    const neo__bag_merge *m = &b->merge[chunk->table];
    const neo__bag_table *t = &b->tables[chunk->table];
    int passes = neo__bag_passes(t->row_bits), bits = neo__bag_digit_bits(t->row_bits);
    if (k->pass == 0) neo__bags_gather(&k->call, chunk->table, chunk->begin, chunk->end);
    if (k->pass >= passes) return;
    memset(chunk->count, 0, sizeof chunk->count);
    neo__bag_count_digits(m->from + chunk->begin, chunk->end - chunk->begin,
                          t->low_bits + k->pass * bits, bits, 1, chunk->count);
}
static void neo__bags_count_task(void *arg, int64_t i, int worker) {
    neo__bags_back *k = (neo__bags_back *)arg;
    (void)worker;
    neo__bags_count_chunk(k, &k->call.b->chunks[i]);
}
static void neo__bags_scatter_task(void *arg, int64_t task, int worker) {
    neo__bags_back *k = (neo__bags_back *)arg;
    const neo_bags *b = k->call.b;
    neo__bag_chunk *chunk = &b->chunks[task];
    const neo__bag_merge *m = &b->merge[chunk->table];
    const neo__bag_table *t = &b->tables[chunk->table];
    int passes = neo__bag_passes(t->row_bits), bits = neo__bag_digit_bits(t->row_bits);
    int shift = t->low_bits + k->pass * bits;
    (void)worker;
    if (k->pass >= passes) return;
    neo__bag_scatter(m->to, m->from + chunk->begin, chunk->end - chunk->begin, shift, bits,
                     chunk->count);
}
/* Counts become places: digit by digit, chunk by chunk. */
static void neo__bags_place_digits(neo__bag_chunk *chunk, int64_t chunks) {
    int64_t sum = 0;
    for (int64_t d = 0; d < NEO__BAG_DIGITS; d++) {
        for (int64_t i = 0; i < chunks; i++) {
            int64_t n = chunk[i].count[d];
            chunk[i].count[d] = sum;
            sum += n;
        }
    }
}
/* The passes of all shared sorts; the first count is done. */
static void neo__bags_sort_shared(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    int passes = 0;
    for (int64_t i = 0; i < k->chunk_count; i++)
        passes = NEO__MAX(passes, neo__bag_passes(b->tables[b->chunks[i].table].row_bits));
    for (k->pass = 0; k->pass < passes; k->pass++) {
        if (k->pass > 0) neo_parallel_for(b->ctx, k->chunk_count, neo__bags_count_task, k);
        for (int64_t i = 0, end; i < k->chunk_count; i = end) {
            end = i + 1;
            while (end < k->chunk_count && b->chunks[end].table == b->chunks[i].table) end++;
            if (k->pass < neo__bag_passes(b->tables[b->chunks[i].table].row_bits))
                neo__bags_place_digits(b->chunks + i, end - i);
        }
        neo_parallel_for(b->ctx, k->chunk_count, neo__bags_scatter_task, k);
        for (int64_t i = 0; i < k->chunk_count; i++) {
            neo__bag_merge *m = &b->merge[b->chunks[i].table];
            if (i > 0 && b->chunks[i - 1].table == b->chunks[i].table) continue;
            if (k->pass >= neo__bag_passes(b->tables[b->chunks[i].table].row_bits)) continue;
            uint64_t *other = m->from;
            m->from = m->to;
            m->to = other;
        }
    }
}

/* ---- pack ---- */

/* Gradients of bags [bag, end) of feature f, to their places in canonical order. */
static void neo__bags_pack(const neo__bags_call *c, int64_t f, int64_t bag, int64_t end) {
    const neo_bags *b = c->b;
    const neo__bag_feature *p = &b->features[f];
    const neo__bag_table *t = &b->tables[p->table];
    int64_t rounds = neo__bags_rounds(c, t);
    const int64_t *offsets = c->j->offsets + p->first_bag;
    for (int64_t v = neo__bags_round_of(c, p, rounds, bag); bag < end; v++) {
        int64_t begin, stop;
        neo__bags_round(c, p, rounds, v, &begin, &stop);
        stop = NEO__MIN(stop, end);
        if (stop <= bag) continue;
        int64_t low = bag + b->feature_leaf[f * b->sizes.shards + v];
        b->ctx->bag->pack(b->merge[p->table].pack_to + low * t->dim, t->dim,
                          c->dout + p->out_at + bag * p->out_stride, p->out_stride, stop - bag,
                          t->dim, t->pooling == NEO_POOL_MEAN ? offsets + bag : NULL);
        bag = stop;
    }
}
/* Packing task of a shared table. */
static void neo__bags_pack_task(const neo__bags_call *c, int64_t task) {
    const neo__bag_feature *features = c->b->features;
    int64_t lo = 0, hi = c->b->sizes.features;
    while (lo + 1 < hi) { /* the last feature whose tasks begin at or before */
        int64_t mid = (lo + hi) / 2;
        if (features[mid].pack_task <= task) lo = mid;
        else hi = mid;
    }
    int64_t bag = (task - features[lo].pack_task) * NEO__BAG_PACK_BAGS;
    neo__bags_pack(c, lo, bag, NEO__MIN(bag + NEO__BAG_PACK_BAGS, features[lo].bags));
}

/* ---- merge and step ---- */

/* The record of which table is `target` of the cost; at the begin of a row. */
static void neo__bags_seek_record(const neo__bags_back *k, int64_t target, int64_t *table,
                                  int64_t *record) {
    const neo_bags *b = k->call.b;
    int64_t lo = 0, hi = b->sizes.tables;
    while (lo < hi) {
        int64_t mid = (lo + hi + 1) / 2;
        if (b->merge[mid].cost_begin <= target) lo = mid;
        else hi = mid - 1;
    }
    *table = lo;
    *record = 0;
    if (lo == b->sizes.tables) return;
    const neo__bag_merge *m = &b->merge[lo];
    int shift = b->tables[lo].low_bits;
    int64_t at = (target - m->cost_begin) / neo__bag_cost(b->tables[lo].dim);
    if (at > 0 && at < m->kept && m->from[at] >> shift == m->from[at - 1] >> shift) {
        uint64_t row = m->from[at] >> shift;
        hi = m->kept;
        while (at < hi) { /* the first record of a later row */
            int64_t mid = (at + hi) / 2;
            if (m->from[mid] >> shift > row) hi = mid;
            else at = mid + 1;
        }
    }
    *record = NEO__MIN(at, m->kept);
}

static void neo__bags_step_records(const neo__bags_back *k, int64_t ti, int64_t begin, int64_t end,
                                   int worker) {
    const neo_bags *b = k->call.b;
    const neo__bag_table *t = &b->tables[ti];
    const neo__bag_merge *m = &b->merge[ti];
    NEO__ZERO(neo__bag_update, u);
    u.records = m->from + begin;
    u.count = end - begin;
    u.low_bits = t->low_bits;
    u.grad = m->grad;
    u.grad_stride = m->grad_stride;
    u.grad_row = m->indirect ? b->grad_row + m->first : NULL;
    u.grad_weight = k->call.j && k->call.j->weights ? b->grad_weight + m->first : NULL;
    u.leaf = b->leaf + ti * (b->sizes.shards + 1);
    u.leaf_count = k->call.j ? (int)neo__bags_leaf_count(&k->call) : 1;
    u.store = &t->store;
    u.weight = t->store.dtype == NEO_F32 ? (float *)(void *)t->store.data : NULL;
    u.dim = t->dim;
    for (int i = 0; i < 2; i++) {
        u.state[i] = t->state[i];
        u.state_dim[i] = t->state_dim[i];
    }
    u.step = m->step;
    u.round = t->round_nearest ? NULL : &m->round;
    u.fetch_grads = !m->pack || m->bags * t->dim > NEO__BAG_NEAR_FLOATS;
    u.scratch = b->scratch + worker * b->sizes.scratch;
    u.keep_at = m->keep ? b->keep_at + m->first + begin : NULL;
    u.keep_to = b->kept_grad;
    if (k->call.j || !t->cut) {
        b->ctx->bag->update(&u);
        return;
    }
    neo__bag_cut cut;
    cut.have = m->have;
    cut.want = m->want;
    cut.dim = (float)t->part.dim;
    cut.total = t->total + begin;
    cut.rows = m->kept;
    cut.blocks_per_row = neo__bag_blocks(t->dim);
    cut.blocks = m->blocks + (m->want ? begin * cut.blocks_per_row : 0);
    b->ctx->bag->update_cut(&u, &cut);
}

static void neo__bags_step_task(void *arg, int64_t i, int worker) {
    neo__bags_back *k = (neo__bags_back *)arg;
    int64_t table, record, table_end, record_end, cost = k->step_cost, tasks = k->step_tasks;
    neo__bags_seek_record(k, cost / tasks * i + cost % tasks * i / tasks, &table, &record);
    i++;
    neo__bags_seek_record(k, cost / tasks * i + cost % tasks * i / tasks, &table_end, &record_end);
    for (; table <= table_end && table < k->call.b->sizes.tables; table++, record = 0) {
        const neo__bag_merge *m = &k->call.b->merge[table];
        int64_t end = table == table_end ? record_end : m->kept;
        if (!m->whole && record < end) neo__bags_step_records(k, table, record, end, worker);
    }
}

/* A whole table. */
static void neo__bags_do_table(neo__bags_back *k, int64_t ti, int worker) {
    neo_bags *b = k->call.b;
    const neo__bag_table *t = &b->tables[ti];
    neo__bag_merge *m = &b->merge[ti];
    if (m->count == 0) return;
    if (k->reuse)
        neo__bags_give_buffers(b, ti, k->whole_ids + worker * k->reuse_ids,
                               k->whole_pack + worker * k->reuse_pack);
    for (int32_t q = 0; m->pack && q < t->feature_count; q++) {
        int32_t f = b->table_features[t->first_feature + q];
        neo__bags_pack(&k->call, f, 0, b->features[f].bags);
    }
    neo__bags_gather(&k->call, ti, 0, m->count);
    neo__bag_sort(m, t);
    neo__bags_step_records(k, ti, 0, m->kept, worker);
}
/* First the chunks of shared sorts, then packing for them, then whole tables. */
static void neo__bags_first_task(void *arg, int64_t i, int worker) {
    neo__bags_back *k = (neo__bags_back *)arg;
    neo_bags *b = k->call.b;
    if (i < k->chunk_count) {
        neo__bags_count_chunk(k, &b->chunks[i]);
        return;
    }
    i -= k->chunk_count;
    if (i < k->pack_tasks) {
        neo__bags_pack_task(&k->call, i);
        return;
    }
    i -= k->pack_tasks;
    if (b->merge[i].whole) neo__bags_do_table(k, i, worker);
}

/* Shared tables, cut in pieces of equal cost. */
static void neo__bags_step_shared(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    k->step_cost = 0;
    for (int64_t t = 0; t <= b->sizes.tables; t++) {
        b->merge[t].cost_begin = k->step_cost;
        if (t < b->sizes.tables && !b->merge[t].whole)
            k->step_cost += b->merge[t].kept * neo__bag_cost(b->tables[t].dim);
    }
    k->step_tasks = NEO__MIN(neo__bags_most_tasks(b->sizes.threads), 1 + k->step_cost / 32768);
    neo_parallel_for(b->ctx, k->step_tasks, neo__bags_step_task, k);
}

/* ---- gradients that are kept ----

   A hash table finds the slot of a (table, row). Rows get their slots one by one, so that what is kept where
   depends on no thread; then the sums are made and added by all threads. */

static uint64_t neo__bag_slot_place(const neo_bags *b, int32_t table, int64_t row) {
    uint64_t i = neo__mix64((uint64_t)row * 0x9E3779B97F4A7C15u + (uint64_t)table) & b->slot_mask;
    for (; b->slot_of[i]; i = (i + 1) & b->slot_mask) {
        const neo__bag_slot *slot = &b->slots[b->slot_of[i] - 1];
        if (slot->row == row && slot->table == table) break;
    }
    return i;
}
/* Forget all slots from `count` on: in reverse order, so that no chain of the hash table breaks. */
static void neo__bags_drop_slots(neo_bags *b, int64_t count) {
    while (b->slot_count > count) {
        const neo__bag_slot *slot = &b->slots[--b->slot_count];
        b->slot_of[neo__bag_slot_place(b, slot->table, slot->row)] = 0;
        b->kept_floats = slot->at;
    }
}
/* The slot of a row, made if it is not there. 0: no room. */
static int neo__bags_find_slot(neo_bags *b, int64_t table, int64_t row, int64_t *at, int *fresh) {
    uint64_t place = neo__bag_slot_place(b, (int32_t)table, row);
    *fresh = b->slot_of[place] == 0;
    if (*fresh) {
        if (b->slot_count == b->slot_capacity) return 0;
        neo__bag_slot *slot = &b->slots[b->slot_count++];
        slot->table = (int32_t)table;
        slot->row = row;
        slot->at = b->kept_floats;
        b->kept_floats += b->tables[table].dim;
        b->slot_of[place] = (uint32_t)b->slot_count;
    }
    *at = b->slots[b->slot_of[place] - 1].at;
    return 1;
}
static neo_status neo__bags_no_slot(neo_bags *b, const char *fn, int64_t before) {
    neo__bags_drop_slots(b, before);
    return neo_fail(NEO_ERR_CAPACITY, "%s: bags '%s': gradients of more than %" PRId64
                    " rows (max_kept_rows)", fn, b->name, b->slot_capacity);
}
/* Slots for the rows of all sorted records. */
static neo_status neo__bags_keep_slots(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    int64_t before = b->slot_count;
    for (int64_t ti = 0; ti < b->sizes.tables; ti++) {
        const neo__bag_merge *m = &b->merge[ti];
        int shift = b->tables[ti].low_bits;
        for (int64_t i = 0; i < m->kept; i++) {
            int64_t at;
            int fresh;
            if (i > 0 && m->from[i] >> shift == m->from[i - 1] >> shift) continue;
            if (!neo__bags_find_slot(b, ti, (int64_t)(m->from[i] >> shift), &at, &fresh))
                return neo__bags_no_slot(b, k->call.fn, before);
            b->keep_at[m->first + i] = at << 1 | fresh;
        }
    }
    return NEO_OK;
}
/* The tables of this walk: gather, sort, and step or keep. */
static neo_status neo__bags_walk(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    neo__fp_state fp = neo__fp_enter();
    neo__bags_plan(k);
    neo__fp_leave(fp);
    neo_parallel_for(b->ctx, k->chunk_count + k->pack_tasks + b->sizes.tables, neo__bags_first_task, k);
    if (!k->chunk_count) return NEO_OK;
    neo__bags_sort_shared(k);
    if (k->keep) NEO__TRY(neo__bags_keep_slots(k));
    neo__bags_step_shared(k);
    return NEO_OK;
}

/* What is kept as records, table by table, each a row; in the order of the slots. */
static void neo__bags_kept_records(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    int64_t first = 0;
    memset(b->merge, 0, (size_t)(b->sizes.tables + 1) * sizeof *b->merge);
    for (int64_t i = 0; i < b->slot_count; i++) b->merge[b->slots[i].table].kept++;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t t = 0; t < b->sizes.tables; t++) {
        neo__bag_merge *m = &b->merge[t];
        m->first = first;
        m->from = b->records[0] + first;
        m->grad = b->kept_grad;
        m->grad_stride = 1;
        m->indirect = 1;
        m->step = neo__bag_step_make(&b->tables[t].optim, k->lr, b->steps + 1);
        m->round = neo__bags_round_key(b, &b->tables[t]);
        first += m->kept;
    }
    neo__fp_leave(fp);
    for (int64_t i = 0; i < b->slot_count; i++) {
        const neo__bag_slot *slot = &b->slots[i];
        neo__bag_merge *m = &b->merge[slot->table];
        b->grad_row[m->first + m->count] = slot->at;
        m->from[m->count] = (uint64_t)slot->row << b->tables[slot->table].low_bits | (uint64_t)m->count;
        m->count++;
    }
}
/* The sums that each cut table can have next, block by block, to b->cuts; returns of how many tables. */
static int32_t neo__bags_cut_blocks(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    float *blocks = b->cut_blocks;
    int32_t count = 0;
    for (int64_t t = 0; t < b->sizes.tables; t++) {
        const neo__bag_table *table = &b->tables[t];
        neo__bag_merge *m = &b->merge[t];
        m->want = table->cut ? neo__bag_cut_next(&table->optim, m->have) : 0;
        m->whole = m->want == 0; /* not in this walk */
        if (m->want == 0) continue;
        neo_cut_sums *cut = &b->cuts[count++];
        cut->table = (int32_t)t;
        cut->sums = m->want;
        cut->rows = m->kept;
        cut->blocks_per_row = neo__bag_blocks(table->dim);
        cut->blocks = m->blocks = blocks;
        cut->total = table->total + m->have * m->kept;
        blocks += m->want * m->kept * cut->blocks_per_row;
    }
    neo__bags_step_shared(k);
    return count;
}
/* Sums over whole rows: rounds of computing what can be had, and asking for the rest of it. */
static neo_status neo__bags_cut_rounds(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    float *total = b->cut_totals;
    for (int64_t t = 0; t < b->sizes.tables; t++) {
        b->tables[t].total = total;
        if (b->tables[t].cut) total += NEO__BAG_CUT_SUMS * b->merge[t].kept;
    }
    for (int32_t count; (count = neo__bags_cut_blocks(k)) > 0;) {
        NEO__TRY(b->cut_sums(b->cut_sums_user, b->cuts, count));
        for (int64_t t = 0; t < b->sizes.tables; t++) b->merge[t].have += b->merge[t].want;
    }
    return NEO_OK;
}
/* One step of each row that is kept. The sums of cut tables are there. */
static void neo__bags_step_kept(neo__bags_back *k) {
    neo_bags *b = k->call.b;
    neo__bags_kept_records(k);
    for (int64_t t = 0; t < b->sizes.tables; t++) {
        const neo__bag_table *table = &b->tables[t];
        int next = table->cut;
        for (int *have = &b->merge[t].have; next; *have += next)
            next = neo__bag_cut_next(&table->optim, *have);
    }
    neo__bags_step_shared(k);
    neo__bags_drop_slots(b, 0);
}
static void neo__bags_kept_begin(neo__bags_back *kept, neo_bags *b, const char *fn, float lr) {
    memset(kept, 0, sizeof *kept);
    kept->call.b = b;
    kept->call.fn = fn;
    kept->lr = lr;
}

NEO_API neo_status neo_bags_backward(neo_bags *b, const neo_jagged *batch, neo_tensor dout,
                                     float lr) {
    neo__bags_back kept;
    NEO__ZERO(neo__bags_back, k);
    k.call.b = b;
    k.call.j = batch;
    k.call.fn = "neo_bags_backward";
    k.call.dout = (const float *)dout.data;
    k.lr = lr;
    NEO__TRY(neo__bags_begin(&k.call, dout, "dout"));
    NEO__CHECK(neo__bags_finite(lr), NEO_ERR_NUMERIC, "%s: lr is %g", k.call.fn, (double)lr);
    NEO__CHECK(b->slot_count == 0, NEO_ERR_STATE,
               "%s: bags '%s': %" PRId64 " rows of gradients are kept: step or clear first", k.call.fn, b->name,
               b->slot_count);
    neo__bags_kept_begin(&kept, b, k.call.fn, lr);
    if (b->sizes.cut_tables) {
        k.keep = 1;
        neo_status status = neo__bags_walk(&k);
        if (status == NEO_OK) {
            neo__bags_kept_records(&kept);
            status = neo__bags_cut_rounds(&kept);
        }
        if (status != NEO_OK) {
            neo__bags_drop_slots(b, 0);
            return status;
        }
        k.keep = 0;
    }
    NEO__TRY(neo__bags_walk(&k));
    if (b->sizes.cut_tables) neo__bags_step_kept(&kept);
    b->steps++;
    return NEO_OK;
}

NEO__COLD_BEGIN
static neo_status neo__bags_check_keeps(const neo_bags *b, const char *fn) {
    NEO__CHECK(b, NEO_ERR_ARG, "%s: bags is NULL", fn);
    NEO__CHECK(b->sizes.max_kept_rows, NEO_ERR_STATE, "%s: bags '%s' keeps no gradients: give max_kept_rows",
               fn, b->name);
    return NEO_OK;
}
NEO_API neo_status neo_bags_accumulate(neo_bags *b, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves) {
    NEO__ZERO(neo__bags_back, k);
    k.call.b = b;
    k.call.j = batch;
    k.call.fn = "neo_bags_accumulate";
    k.call.dout = (const float *)dout.data;
    k.keep = k.all = 1;
    NEO__TRY(neo__bags_check_keeps(b, k.call.fn));
    NEO__TRY(neo__bags_begin(&k.call, dout, "dout"));
    if (leaves) {
        NEO__CHECK(!batch->feature_bags, NEO_ERR_ARG, "%s: a batch with feature_bags has no leaves", k.call.fn);
        NEO__TRY(neo__leaves_resolve(b->ctx, leaves, batch->batch, &k.call.leaves, k.call.fn));
    }
    return neo__bags_walk(&k);
}
NEO_API neo_status neo_bags_add_grad(neo_bags *b, int32_t table, const int64_t *rows, int64_t count,
                                     neo_tensor grad) {
    const char *fn = "neo_bags_add_grad";
    NEO__TRY(neo__bags_check_keeps(b, fn));
    NEO__CHECK(table >= 0 && table < b->sizes.tables && count >= 0 && (rows || count == 0), NEO_ERR_ARG,
               "%s: bags '%s': table %d, %" PRId64 " rows", fn, b->name, table, count);
    const neo__bag_table *t = &b->tables[table];
    NEO__CHECK(grad.ndim == 2 && grad.dtype == NEO_F32 && grad.shape[0] == count && grad.shape[1] == t->dim &&
                   (grad.stride[1] == 1 || t->dim == 1),
               NEO_ERR_SHAPE, "%s: table '%s': grad must be f32 [%" PRId64 "][%" PRId64 "]", fn, t->name, count,
               t->dim);
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(rows[i] >= 0 && rows[i] < t->rows, NEO_ERR_RANGE,
                   "%s: table '%s': rows[%" PRId64 "] is %" PRId64 ", not in [0, %" PRId64 ")", fn, t->name, i,
                   rows[i], t->rows);
    int64_t before = b->slot_count, at;
    int fresh;
    for (int64_t i = 0; i < count; i++) { /* all rows have a place before a kept number changes */
        if (!neo__bags_find_slot(b, table, rows[i], &at, &fresh)) return neo__bags_no_slot(b, fn, before);
        if (fresh) memset(b->kept_grad + at, 0, (size_t)t->dim * sizeof(float));
    }
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        const float *from = (const float *)grad.data + i * grad.stride[0];
        neo__bags_find_slot(b, table, rows[i], &at, &fresh);
        for (int64_t c = 0; c < t->dim; c++) b->kept_grad[at + c] += from[c];
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO_API int64_t neo_bags_kept_count(const neo_bags *b) { return b->slot_count; }
NEO_API const float *neo_bags_kept_row(const neo_bags *b, int64_t i, int32_t *table, int64_t *row) {
    if (i < 0 || i >= b->slot_count) return NULL;
    if (table) *table = b->slots[i].table;
    if (row) *row = b->slots[i].row;
    return b->kept_grad + b->slots[i].at;
}
NEO_API void neo_bags_clear(neo_bags *b) { neo__bags_drop_slots(b, 0); }
NEO__COLD_END
NEO_API void neo_bags_grad_squares(const neo_bags *b, neo_exact *sum) {
    enum { BLOCKS = 64 };
    float block[BLOCKS];
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < b->slot_count; i++) {
        const float *g = b->kept_grad + b->slots[i].at;
        int64_t dim = b->tables[b->slots[i].table].dim;
        for (int64_t c = 0; c < dim; c += 16 * BLOCKS) {
            int64_t n = NEO__MIN(dim - c, (int64_t)(16 * BLOCKS));
            b->ctx->bag->blocks(g + c, g + c, n, block);
            for (int64_t k = 0; k < neo__bag_blocks(n); k++) neo_exact_add(sum, block[k]);
        }
    }
    neo__fp_leave(fp);
}
NEO_API void neo_bags_scale_grads(neo_bags *b, float scale) {
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < b->kept_floats; i++) b->kept_grad[i] *= scale;
    neo__fp_leave(fp);
}
NEO_API neo_status neo_bags_step(neo_bags *b, float lr) {
    neo__bags_back k;
    const char *fn = "neo_bags_step";
    NEO__TRY(neo__bags_check_keeps(b, fn));
    NEO__CHECK(neo__bags_finite(lr), NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    neo__bags_kept_begin(&k, b, fn, lr);
    if (b->sizes.cut_tables) {
        neo__bags_kept_records(&k);
        NEO__TRY(neo__bags_cut_rounds(&k));
    }
    neo__bags_step_kept(&k);
    b->steps++;
    return NEO_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-schema

   A schema is read-only once made and fitted, so readers share it without locks. Its small parts
   (names, column operations, bucket edges) live in an arena and go with it.

   A parsed sample is a record of fixed size: label, dense numbers, then one id per feature; or,
   when a feature may have several ids, one more number (where the sample's ids begin in a stream
   beside the records) and per feature where its ids end, counted from there.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__CRITEO_DENSE = 13, NEO__CRITEO_FEATURES = 26, NEO__LOG_TABLE = 4097 };

/* ---- arena ---- */
typedef struct neo__arena_chunk {
    struct neo__arena_chunk *next;
    size_t bytes;
} neo__arena_chunk;
typedef struct neo__arena {
    neo_ctx *ctx;
    neo__arena_chunk *chunks;
    char *at;
    size_t left;
} neo__arena;

/* Cleared memory that lives as long as the arena; NULL when there is none. */
static void *neo__arena_alloc(neo__arena *a, size_t bytes) {
    enum { HEADER = 64, CHUNK = 8192 };
    bytes = neo__size_add(bytes, 15) & ~(size_t)15;
    if (bytes > a->left) {
        size_t size = neo__size_add(NEO__MAX(bytes, (size_t)CHUNK), HEADER);
        neo__arena_chunk *chunk = (neo__arena_chunk *)neo__alloc_zero(a->ctx, size);
        if (!chunk) return NULL;
        chunk->next = a->chunks;
        chunk->bytes = size;
        a->chunks = chunk;
        a->at = (char *)chunk + HEADER;
        a->left = size - HEADER;
    }
    char *p = a->at;
    a->at += bytes;
    a->left -= bytes;
    return p;
}
static char *neo__arena_text(neo__arena *a, const char *text, size_t bytes) {
    char *p = (char *)neo__arena_alloc(a, neo__size_add(bytes, 1));
    if (p) memcpy(p, text, bytes);
    return p;
}
static void neo__arena_free(neo__arena *a) {
    while (a->chunks) {
        neo__arena_chunk *next = a->chunks->next;
        neo_free(a->ctx, a->chunks, a->chunks->bytes);
        a->chunks = next;
    }
    a->at = NULL;
    a->left = 0;
}

/* ---- dictionaries: words to ids 1, 2, ... in order of insertion; open addressing ---- */
typedef struct neo__dict {
    uint64_t *slots;     /* upper half: part of the hash; lower: id, 0 for an empty slot */
    uint64_t slot_count; /* a power of two, or 0 */
    char *bytes;         /* the words, one after another */
    size_t byte_count, byte_capacity;
    uint64_t *ends; /* ends[id]: where word id ends in bytes; ends[0] = 0 */
    int64_t count, capacity;
    int64_t max_words;
} neo__dict;

/* Equal to neo_hash for a text without NUL. */
static uint64_t neo__hash_bytes(const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return neo__mix64(h);
}
static void neo__dict_free(neo_ctx *ctx, neo__dict *d) {
    neo_free(ctx, d->slots, (size_t)d->slot_count * sizeof *d->slots);
    neo_free(ctx, d->bytes, d->byte_capacity);
    neo_free(ctx, d->ends, (size_t)d->capacity * sizeof *d->ends);
    d->slots = d->ends = NULL;
    d->bytes = NULL;
    d->slot_count = 0;
    d->byte_count = d->byte_capacity = 0;
    d->count = d->capacity = 0;
}
static int64_t neo__dict_find(const neo__dict *d, uint64_t hash, const char *word, size_t bytes) {
    if (d->slot_count == 0) return 0;
    uint64_t mask = d->slot_count - 1, tag = hash & 0xFFFFFFFF00000000u;
    for (uint64_t i = hash & mask; d->slots[i]; i = (i + 1) & mask) {
        uint64_t id = d->slots[i] & 0xFFFFFFFFu;
        if ((d->slots[i] & 0xFFFFFFFF00000000u) != tag) continue;
        size_t start = (size_t)d->ends[id - 1], length = (size_t)d->ends[id] - start;
        if (length == bytes && memcmp(d->bytes + start, word, bytes) == 0) return (int64_t)id;
    }
    return 0;
}
static void neo__dict_place(uint64_t *slots, uint64_t mask, uint64_t entry, uint64_t hash) {
    uint64_t i = hash & mask;
    while (slots[i]) i = (i + 1) & mask;
    slots[i] = entry;
}
/* A larger copy of an array; the old one when there is no memory (*ok = 0). */
static void *neo__dict_grow(neo_ctx *ctx, void *old, size_t old_bytes, size_t bytes, int *ok) {
    void *p = neo_alloc(ctx, bytes);
    if (!p) {
        *ok = 0;
        return old;
    }
    if (old) memcpy(p, old, NEO__MIN(old_bytes, bytes));
    neo_free(ctx, old, old_bytes);
    return p;
}
typedef uint64_t (*neo__dict_hash)(const void *word, size_t bytes);
static int neo__dict_rehash(neo_ctx *ctx, neo__dict *d, neo__dict_hash hash) {
    uint64_t n = d->slot_count ? 2 * d->slot_count : 64;
    uint64_t *slots = (uint64_t *)neo__alloc_zero(ctx, neo__size_mul((size_t)n, sizeof *slots));
    if (!slots) return 0;
    for (int64_t id = 1; id <= d->count; id++) {
        uint64_t h = hash(d->bytes + d->ends[id - 1], (size_t)(d->ends[id] - d->ends[id - 1]));
        neo__dict_place(slots, n - 1, (h & 0xFFFFFFFF00000000u) | (uint64_t)id, h);
    }
    neo_free(ctx, d->slots, (size_t)d->slot_count * sizeof *slots);
    d->slots = slots;
    d->slot_count = n;
    return 1;
}
/* Insert unless it is there or the dictionary is full. 0: no memory. */
static int neo__dict_add(neo_ctx *ctx, neo__dict *d, neo__dict_hash hash, const char *word,
                         size_t bytes) {
    uint64_t h = hash(word, bytes);
    int ok = 1;
    if (d->count >= d->max_words || neo__dict_find(d, h, word, bytes)) return 1;
    if ((uint64_t)(d->count + 1) * 2 > d->slot_count && !neo__dict_rehash(ctx, d, hash)) return 0;
    if (d->count + 2 > d->capacity) {
        int64_t n = NEO__MAX(2 * d->capacity, 32);
        d->ends =
            (uint64_t *)neo__dict_grow(ctx, d->ends, (size_t)d->capacity * 8, (size_t)n * 8, &ok);
        if (!ok) return 0;
        if (d->capacity == 0) d->ends[0] = 0;
        d->capacity = n;
    }
    if (bytes > d->byte_capacity - d->byte_count) {
        size_t n = NEO__MAX(2 * d->byte_capacity, d->byte_count + bytes + 256);
        d->bytes = (char *)neo__dict_grow(ctx, d->bytes, d->byte_capacity, n, &ok);
        if (!ok) return 0;
        d->byte_capacity = n;
    }
    memcpy(d->bytes + d->byte_count, word, bytes);
    d->byte_count += bytes;
    d->count++;
    d->ends[d->count] = d->byte_count;
    neo__dict_place(d->slots, d->slot_count - 1, (h & 0xFFFFFFFF00000000u) | (uint64_t)d->count,
                    h);
    return 1;
}

/* ---- the schema ---- */
typedef enum neo__op_kind {
    NEO__OP_LABEL,
    NEO__OP_DENSE,
    NEO__OP_CATEGORY,
    NEO__OP_BUCKET,
    NEO__OP_CROSS,
    NEO__OP_LIST
} neo__op_kind;
typedef struct neo__text {
    const char *p;
    size_t bytes;
} neo__text;
/* What one word of a column description makes of a column. */
typedef struct neo__op {
    neo__op_kind kind;
    int32_t column, other; /* other: the second column of a cross */
    int32_t out;           /* dense or feature number */
    int log;
    int hashed;
    float missing;
    double shift, scale;
    int64_t rows;   /* 0: not given */
    char separator; /* of a list */
    float *edges;
    int32_t edge_count;
    neo__text *words; /* of a label; NULL: a number */
    int32_t word_count;
} neo__op;
typedef struct neo__column {
    char *name;
    int32_t line; /* in the description */
} neo__column;

typedef struct neo__synthetic neo__synthetic;

struct neo_schema {
    neo_ctx *ctx;
    neo__arena arena;
    neo_format format;
    int32_t dense_count, feature_count;
    char **feature_names;
    int64_t *rows;
    int64_t *max_rows; /* cap of a dictionary */
    uint8_t *has_dict; /* per feature */
    neo__dict *dicts;  /* [feature_count], used where has_dict */
    int dict_count;
    int fitted;
    int multi;                       /* a feature may have other than one id */
    size_t ids_offset, record_bytes; /* of a parsed sample */
    double *log_table;               /* log(n), n < NEO__LOG_TABLE */
    /* Criteo */
    uint8_t *hex;      /* value of a hex digit, 0xFF for other characters */
    uint32_t *modulus; /* rows - 1, or 0: no modulo needed */
    /* delimited */
    neo__column *columns;
    neo__op *ops;
    int32_t column_count, op_count, label_column; /* label_column -1: none */
    char delimiter[16];
    int32_t delimiter_bytes;
    neo__text *missing, *comments;
    int32_t missing_count, comment_count;
    int64_t skip_lines;
    /* npy */
    int modulo;
    neo__synthetic *synthetic;
};

NEO__COLD_BEGIN
/* Memory for `features` features and the record's shape. The first member set is ctx. */
static neo_status neo__schema_begin(neo_ctx *ctx, const char *function, neo_format format,
                                    neo_schema **out) {
    *out = NULL;
    neo_schema *s = (neo_schema *)neo__alloc_zero(ctx, sizeof *s);
    NEO__CHECK(s, NEO_ERR_MEMORY, "%s: no memory for a schema", function);
    s->ctx = ctx;
    s->arena.ctx = ctx;
    s->format = format;
    s->label_column = -1;
    *out = s;
    return NEO_OK;
}
static neo_status neo__schema_features(neo_schema *s, const char *function, int32_t dense,
                                       int32_t features) {
    size_t n = (size_t)NEO__MAX(features, 1);
    neo__arena *a = &s->arena;
    s->dense_count = dense;
    s->feature_count = features;
    s->feature_names = (char **)neo__arena_alloc(a, n * sizeof(char *));
    s->rows = (int64_t *)neo__arena_alloc(a, n * sizeof(int64_t));
    s->max_rows = (int64_t *)neo__arena_alloc(a, n * sizeof(int64_t));
    s->has_dict = (uint8_t *)neo__arena_alloc(a, n);
    s->dicts = (neo__dict *)neo__arena_alloc(a, n * sizeof(neo__dict));
    s->log_table = (double *)neo__arena_alloc(a, NEO__LOG_TABLE * sizeof(double));
    int ok = s->feature_names && s->rows && s->max_rows && s->has_dict && s->dicts && s->log_table;
    NEO__CHECK(ok, NEO_ERR_MEMORY, "%s: no memory for %d features", function, features);
    for (int i = 1; i < NEO__LOG_TABLE; i++) s->log_table[i] = neo__log_f64((double)i);
    s->ids_offset = ((size_t)(1 + dense) * sizeof(float) + 7) & ~(size_t)7;
    return NEO_OK;
}
/* Once it is known which features have a dictionary or several ids. */
static void neo__schema_end(neo_schema *s) {
    s->record_bytes =
        s->ids_offset + (size_t)(s->feature_count + (s->multi != 0)) * sizeof(int64_t);
    s->dict_count = 0;
    for (int32_t f = 0; f < s->feature_count; f++) {
        if (!s->has_dict[f]) continue;
        s->dict_count++;
        s->rows[f] = 0;
        s->dicts[f].max_words = NEO__MIN(s->max_rows[f] - 1, (int64_t)0xFFFFFFFE);
    }
    s->fitted = s->dict_count == 0;
}
static neo_status neo__schema_name(neo_schema *s, const char *function, int32_t feature,
                                   const char *format, const char *a, const char *b) {
    char text[256];
    int n = snprintf(text, sizeof text, format, a, b);
    NEO__CHECK(n > 0 && n < (int)sizeof text, NEO_ERR_ARG, "%s: the name %.60s... is too long",
               function, a);
    s->feature_names[feature] = neo__arena_text(&s->arena, text, (size_t)n);
    NEO__CHECK(s->feature_names[feature], NEO_ERR_MEMORY, "%s: no memory for a name", function);
    return NEO_OK;
}

NEO_API void neo_schema_destroy(neo_schema *s) {
    if (!s) return;
    for (int32_t f = 0; s->dicts && f < s->feature_count; f++)
        neo__dict_free(s->ctx, &s->dicts[f]);
    neo__arena_free(&s->arena);
    neo_free(s->ctx, s, sizeof *s);
}
NEO_API neo_format neo_schema_format(const neo_schema *s) { return s->format; }
NEO_API int32_t neo_schema_dense_count(const neo_schema *s) { return s->dense_count; }
NEO_API int32_t neo_schema_feature_count(const neo_schema *s) { return s->feature_count; }
NEO_API neo_feature neo_schema_feature(const neo_schema *s, int32_t feature) {
    NEO__ZERO(neo_feature, f);
    if (feature < 0 || feature >= s->feature_count) return f;
    f.name = s->feature_names[feature];
    f.rows = s->rows[feature];
    return f;
}
NEO_API int neo_schema_is_fitted(const neo_schema *s) { return s->fitted; }
NEO__COLD_END

/* Criteo's words are 32-bit numbers; a dictionary keeps their four bytes, lowest first. */
static uint64_t neo__criteo_hash(const void *word, size_t bytes) {
    const unsigned char *p = (const unsigned char *)word;
    uint64_t key = 0;
    for (size_t i = 0; i < bytes && i < 8; i++) key |= (uint64_t)p[i] << (8 * i);
    return neo__mix64(key);
}
static neo__dict_hash neo__schema_hash(const neo_schema *s) {
    return s->format == NEO_FORMAT_CRITEO ? neo__criteo_hash : neo__hash_bytes;
}

NEO__COLD_BEGIN
static neo_status neo__criteo_init(neo_schema *s, neo_ids ids, int64_t max_rows,
                                   const int64_t *rows) {
    NEO__TRY(
        neo__schema_features(s, "neo_schema_criteo", NEO__CRITEO_DENSE, NEO__CRITEO_FEATURES));
    s->hex = (uint8_t *)neo__arena_alloc(&s->arena, 256);
    s->modulus = (uint32_t *)neo__arena_alloc(&s->arena, NEO__CRITEO_FEATURES * sizeof(uint32_t));
    NEO__CHECK(s->hex && s->modulus, NEO_ERR_MEMORY, "neo_schema_criteo: no memory");
    memset(s->hex, 0xFF, 256);
    for (int i = 0; i < 10; i++) s->hex['0' + i] = (uint8_t)i;
    for (int i = 0; i < 6; i++) s->hex['a' + i] = s->hex['A' + i] = (uint8_t)(10 + i);
    for (int32_t f = 0; f < NEO__CRITEO_FEATURES; f++) {
        char number[16];
        int64_t n = rows ? rows[f] : max_rows;
        NEO__CHECK(n >= 1, NEO_ERR_ARG,
                   "neo_schema_criteo: C%d has %" PRId64 " rows, fewer than 1", f + 1, n);
        snprintf(number, sizeof number, "%d", f + 1);
        NEO__TRY(neo__schema_name(s, "neo_schema_criteo", f, "C%s%s", number, ""));
        s->rows[f] = s->max_rows[f] = n;
        s->modulus[f] = n - 1 <= (int64_t)0xFFFFFFFF ? (uint32_t)(n - 1) : 0;
        s->has_dict[f] = ids == NEO_IDS_DICTIONARY;
    }
    neo__schema_end(s);
    return NEO_OK;
}
NEO_API neo_status neo_schema_criteo(neo_ctx *ctx, neo_ids ids, int64_t max_rows,
                                     const int64_t *rows, neo_schema **schema) {
    NEO__CHECK(ctx && schema, NEO_ERR_ARG, "neo_schema_criteo: ctx or schema is NULL");
    *schema = NULL;
    NEO__CHECK(ids == NEO_IDS_HASH || ids == NEO_IDS_DICTIONARY, NEO_ERR_ARG,
               "neo_schema_criteo: ids is %d, neither hash nor dictionary", (int)ids);
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_criteo", NEO_FORMAT_CRITEO, &s));
    neo_status status = neo__criteo_init(s, ids, max_rows, rows);
    if (status == NEO_OK)
        *schema = s;
    else
        neo_schema_destroy(s);
    return status;
}
NEO__COLD_END

/* ------------------------------------------------------------------------------------------------
   >>impl-dictionary-file

   The fitted dictionaries as one block of bytes, for checkpoints. Little-endian:
     "NEODICT1", u64 number of dictionaries, then for each, in order of the features: u32 length
     and bytes of the feature's name, u64 number of words, and for each word in order of its id:
     u32 length, bytes.
   So equal dictionaries give equal bytes. A schema without dictionaries gives the first 16 bytes.
     neo__schema_save_size  bytes that save writes; 0: not fitted yet, nothing to save
     neo__schema_save       writes exactly that many
     neo__schema_load       reads such a block, checking every length, count and word, beside the
                            schema; neo__schema_install(s, dicts, !s->fitted) then fits it
     A schema
                            that is fitted already must hold the same words (NEO_ERR_MISMATCH; also
                            when the features differ). NEO_ERR_CORRUPT: the bytes are no such
                            block. On failure the schema is as before.
   ------------------------------------------------------------------------------------------------ */
static size_t neo__schema_save_size(const neo_schema *s) {
    size_t bytes = 16;
    if (!s->fitted) return 0;
    for (int32_t f = 0; f < s->feature_count; f++)
        if (s->has_dict[f])
            bytes += 12 + strlen(s->feature_names[f]) + 4 * (size_t)s->dicts[f].count +
                     s->dicts[f].byte_count;
    return bytes;
}
static char *neo__put_le(char *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *p++ = (char)(unsigned char)(value >> (8 * i));
    return p;
}
static char *neo__put_bytes(char *p, const char *data, size_t bytes) {
    p = neo__put_le(p, bytes, 4);
    if (bytes) memcpy(p, data, bytes);
    return p + bytes;
}
static neo_status neo__schema_save(const neo_schema *s, void *buf) {
    char *p = (char *)buf;
    NEO__CHECK(s->fitted, NEO_ERR_STATE, "the schema's dictionaries are not built yet");
    memcpy(p, "NEODICT1", 8);
    p = neo__put_le(p + 8, (uint64_t)s->dict_count, 8);
    for (int32_t f = 0; f < s->feature_count; f++) {
        const neo__dict *d = &s->dicts[f];
        if (!s->has_dict[f]) continue;
        p = neo__put_bytes(p, s->feature_names[f], strlen(s->feature_names[f]));
        p = neo__put_le(p, (uint64_t)d->count, 8);
        for (int64_t i = 0; i < d->count; i++)
            p = neo__put_bytes(p, d->bytes + d->ends[i], (size_t)(d->ends[i + 1] - d->ends[i]));
    }
    NEO_ASSERT((size_t)(p - (char *)buf) == neo__schema_save_size(s));
    return NEO_OK;
}

typedef struct neo__bytes_in {
    const char *p, *end;
} neo__bytes_in;
static int neo__take_le(neo__bytes_in *in, int bytes, uint64_t *value) {
    if (in->end - in->p < bytes) return 0;
    *value = 0;
    for (int i = 0; i < bytes; i++) *value |= (uint64_t)(unsigned char)in->p[i] << (8 * i);
    in->p += bytes;
    return 1;
}
static int neo__take_bytes(neo__bytes_in *in, neo__text *text) {
    uint64_t bytes = 0;
    if (!neo__take_le(in, 4, &bytes) || bytes > (uint64_t)(in->end - in->p)) return 0;
    text->p = in->p;
    text->bytes = (size_t)bytes;
    in->p += bytes;
    return 1;
}
/* Reads one dictionary into d. */
static neo_status neo__dict_load(const neo_schema *s, int32_t f, neo__bytes_in *in, neo__dict *d) {
    static const char corrupt[] = "the saved dictionary of feature '%s' is damaged";
    const char *name = s->feature_names[f];
    neo__text text;
    uint64_t count = 0;
    NEO__CHECK(neo__take_bytes(in, &text), NEO_ERR_CORRUPT, corrupt, name);
    NEO__CHECK(text.bytes == strlen(name) && memcmp(text.p, name, text.bytes) == 0,
               NEO_ERR_MISMATCH,
               "the saved dictionary is of feature '%.*s', the schema has '%s' there",
               (int)NEO__MIN(text.bytes, 60), text.p, name);
    NEO__CHECK(neo__take_le(in, 8, &count) && count <= (uint64_t)(in->end - in->p) / 4,
               NEO_ERR_CORRUPT, corrupt, name);
    d->max_words = s->dicts[f].max_words;
    NEO__CHECK(count <= (uint64_t)d->max_words, NEO_ERR_MISMATCH,
               "the saved dictionary of feature '%s' has %" PRIu64
               " words, the schema allows %" PRId64,
               name, count, d->max_words);
    for (uint64_t i = 0; i < count; i++) {
        int known = neo__take_bytes(in, &text) && text.bytes > 0;
        NEO__CHECK(known && (s->format != NEO_FORMAT_CRITEO || text.bytes == 4), NEO_ERR_CORRUPT,
                   corrupt, name);
        NEO__CHECK(neo__dict_add(s->ctx, d, neo__schema_hash(s), text.p, text.bytes),
                   NEO_ERR_MEMORY, "no memory for the dictionary of feature '%s'", name);
        NEO__CHECK(d->count == (int64_t)i + 1, NEO_ERR_CORRUPT, corrupt, name); /* a word twice */
    }
    return NEO_OK;
}
NEO__COLD_BEGIN
static int neo__dict_equal(const neo__dict *a, const neo__dict *b) {
    if (a->count != b->count || a->byte_count != b->byte_count) return 0;
    if (a->count == 0) return 1;
    return memcmp(a->ends, b->ends, (size_t)(a->count + 1) * sizeof *a->ends) == 0 &&
           (a->byte_count == 0 || memcmp(a->bytes, b->bytes, a->byte_count) == 0);
}
static neo_status neo__dicts_load(neo_schema *s, neo__dict *dicts, const void *buf, size_t bytes) {
    neo__bytes_in in;
    uint64_t count = 0;
    in.p = (const char *)buf;
    in.end = in.p + bytes;
    NEO__CHECK(bytes >= 16 && memcmp(buf, "NEODICT1", 8) == 0, NEO_ERR_CORRUPT,
               "the saved dictionaries do not begin with NEODICT1");
    in.p += 8;
    neo__take_le(&in, 8, &count);
    NEO__CHECK(count == (uint64_t)s->dict_count, NEO_ERR_MISMATCH,
               "%" PRIu64 " dictionaries were saved, the schema has %d", count, s->dict_count);
    for (int32_t f = 0; f < s->feature_count; f++) {
        if (!s->has_dict[f]) continue;
        NEO__TRY(neo__dict_load(s, f, &in, &dicts[f]));
        NEO__CHECK(!s->fitted || neo__dict_equal(&dicts[f], &s->dicts[f]), NEO_ERR_MISMATCH,
                   "the saved dictionary of feature '%s' holds other words than the schema's",
                   s->feature_names[f]);
    }
    NEO__CHECK(in.p == in.end, NEO_ERR_CORRUPT, "%zu bytes follow the saved dictionaries",
               (size_t)(in.end - in.p));
    return NEO_OK;
}
/* Puts dictionaries built beside the schema in their place (or frees them). */
static void neo__schema_install(neo_schema *s, neo__dict *dicts, int keep) {
    for (int32_t f = 0; f < s->feature_count; f++) {
        if (keep && s->has_dict[f]) {
            neo__dict_free(s->ctx, &s->dicts[f]);
            s->dicts[f] = dicts[f];
            s->rows[f] = dicts[f].count + 1;
        } else {
            neo__dict_free(s->ctx, &dicts[f]);
        }
    }
    if (keep) s->fitted = 1;
    neo_free(s->ctx, dicts, (size_t)s->feature_count * sizeof *dicts);
}
static neo_status neo__schema_load(neo_schema *s, const void *buf, size_t bytes,
                                   neo__dict **out) {
    neo__dict *dicts =
        (neo__dict *)neo__alloc_zero(s->ctx, (size_t)s->feature_count * sizeof *dicts);
    NEO__CHECK(dicts, NEO_ERR_MEMORY, "no memory for dictionaries");
    neo_status status = neo__dicts_load(s, dicts, buf, bytes);
    if (status == NEO_OK) *out = dicts;
    else neo__schema_install(s, dicts, 0);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-number

   Decimal text to f32, correctly rounded, without libc (whose result depends on the locale).
   Fast: up to 2^53 times or over a power of ten up to 10^22, both exact in double, so the double
   is the correctly rounded value; it may be rounded again to float unless it lies exactly between
   two floats (then the digits it lost decide). Slow: the quotient of two big integers, bit by bit.
   ------------------------------------------------------------------------------------------------ */
enum {
    NEO__NUMBER_DIGITS = 128, /* a number halfway between two floats has at most 113 */
    NEO__BIG_WORDS = 24       /* 768 bits: 10^129 shifted by 26, and 10^(45 + 129) */
};
typedef struct neo__decimal {
    uint64_t high;    /* value of the first 19 digits */
    int32_t digits;   /* significant digits kept in digit[] */
    int32_t exponent; /* value = 0.d1 d2 d3 ... * 10^exponent */
    int negative;
    int more; /* nonzero digits beyond those kept */
    uint8_t digit[NEO__NUMBER_DIGITS];
} neo__decimal;
typedef struct neo__big {
    uint32_t word[NEO__BIG_WORDS];
} neo__big;

static void neo__big_mul(neo__big *a, uint32_t factor, uint32_t add) {
    uint64_t carry = add;
    for (int i = 0; i < NEO__BIG_WORDS; i++) {
        carry += (uint64_t)a->word[i] * factor;
        a->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
    NEO_ASSERT(carry == 0);
}
static void neo__big_shift(neo__big *a, int bits) { /* left */
    int words = bits / 32, rest = bits % 32;
    for (int i = NEO__BIG_WORDS - 1; i >= 0; i--) {
        uint32_t high = i >= words ? a->word[i - words] : 0;
        uint32_t low = i > words ? a->word[i - words - 1] : 0;
        a->word[i] = rest ? (high << rest) | (low >> (32 - rest)) : high;
    }
}
static int neo__big_bits(const neo__big *a) {
    for (int i = NEO__BIG_WORDS - 1; i >= 0; i--)
        for (int b = 31; a->word[i] && b >= 0; b--)
            if (a->word[i] >> b & 1) return 32 * i + b + 1;
    return 0;
}
static int neo__big_less(const neo__big *a, const neo__big *b) {
    for (int i = NEO__BIG_WORDS - 1; i >= 0; i--)
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i];
    return 0;
}
static void neo__big_sub(neo__big *a, const neo__big *b) {
    int64_t carry = 0;
    for (int i = 0; i < NEO__BIG_WORDS; i++) {
        carry += (int64_t)a->word[i] - (int64_t)b->word[i];
        a->word[i] = (uint32_t)(carry & 0xFFFFFFFF);
        carry = carry < 0 ? -1 : 0;
    }
}

/* The float nearest to d (d.digits > 0, the value within 1e-46 .. 1e39); ties to even. */
static float neo__decimal_exact(const neo__decimal *d) {
    NEO__ZERO(neo__big, n);
    NEO__ZERO(neo__big, m);
    int scale = d->exponent - d->digits, sticky = d->more;
    m.word[0] = 1;
    for (int i = 0; i < d->digits; i++) neo__big_mul(&n, 10, d->digit[i]);
    for (int i = 0; i < scale; i++) neo__big_mul(&n, 10, 0);
    for (int i = scale; i < 0; i++) neo__big_mul(&m, 10, 0);
    int e = neo__big_bits(&n) - neo__big_bits(&m) - 26; /* n/m = q 2^e, q of 26 or 27 bits */
    if (e < -151) e = -151;
    if (e > 0)
        neo__big_shift(&m, e);
    else
        neo__big_shift(&n, -e);
    neo__big_shift(&m, 27);
    uint32_t q = 0;
    for (int i = 0; i < 28; i++) {
        q <<= 1;
        if (!neo__big_less(&n, &m)) {
            neo__big_sub(&n, &m);
            q |= 1;
        }
        neo__big_shift(&n, 1);
    }
    if (neo__big_bits(&n) > 0) sticky = 1;
    int bits = 0;
    while (bits < 32 && q >> bits) bits++;
    int drop = NEO__MAX(bits - 24, -149 - e);
    uint32_t half = (uint32_t)1 << (drop - 1), low = q & (2 * half - 1), r = q >> drop;
    if (low > half || (low == half && (sticky || (r & 1)))) r++;
    e += drop;
    if (r >> 24) r >>= 1, e++;
    if (e > 104) return neo__f32_bits(0x7F800000u);
    return neo__f32_bits(r >> 23 ? (uint32_t)(e + 150) << 23 | (r & 0x7FFFFFu) : r);
}

/* Takes [p, end) apart. 0: not a number. */
static int neo__decimal_scan(const char *p, const char *end, neo__decimal *d) {
    int any = 0, point = 0, high_digits = 0;
    d->high = 0;
    d->digits = d->exponent = d->more = 0;
    d->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    for (; p < end; p++) {
        unsigned c = (unsigned)(unsigned char)*p - '0';
        if (*p == '.' && !point) {
            point = 1;
            continue;
        }
        if (c > 9) break;
        any = 1;
        if (d->digits == 0 && c == 0) { /* leading zeros */
            d->exponent -= point;
            continue;
        }
        if (!point) d->exponent++;
        if (high_digits < 19) d->high = d->high * 10 + c, high_digits++;
        if (d->digits < NEO__NUMBER_DIGITS)
            d->digit[d->digits++] = (uint8_t)c;
        else if (c)
            d->more = 1;
    }
    if (!any) return 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        int negative = ++p < end && *p == '-', value = 0;
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end) return 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (value < 1000000) value = value * 10 + (*p - '0');
        d->exponent += negative ? -value : value;
    }
    return p == end;
}

enum { NEO__NUMBER_OK, NEO__NUMBER_BAD, NEO__NUMBER_RANGE };
/* neo__number: the text as a float. [+-] digits [. digits] [e [+-] digits]; no other form (no inf,
   nan, hex). A result too large for f32 is NEO__NUMBER_RANGE; one too small is a denormal or 0. */
static int neo__number(const char *p, size_t bytes, float *out) {
    static const double power[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    neo__decimal d;
    float x = 0.0f;
    *out = 0.0f;
    if (bytes > 1 << 20 || !neo__decimal_scan(p, p + bytes, &d)) return NEO__NUMBER_BAD;
    int scale = d.exponent - NEO__MIN(d.digits, 19);
    if (d.digits == 0 || d.exponent < -46) {
        x = 0.0f;
    } else if (d.exponent > 39) {
        return NEO__NUMBER_RANGE;
    } else {
        int exact = d.digits <= 19 && d.high <= (uint64_t)1 << 53 && scale >= -22 && scale <= 22;
        if (exact) {
            double v = (double)d.high;
            v = scale < 0 ? v / power[-scale] : v * power[scale];
            exact = v >= 0x1p-125 && (neo__bits_f64(v) & 0x1FFFFFFFu) != 0x10000000u;
            if (exact) x = (float)v; /* may be infinity */
        }
        if (!exact) x = neo__decimal_exact(&d);
        if (neo__bits_f32(x) == 0x7F800000u) return NEO__NUMBER_RANGE;
    }
    *out = d.negative ? -x : x;
    return NEO__NUMBER_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-columns

   The column description (see neo_schema_parse): read line by line into columns and operations;
   crosses find their other column, and the outputs their numbers, when all lines are known.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__COLUMNS_MAX = 4096, NEO__DESCRIPTION_BYTES = 4 << 20 };

typedef struct neo__describe {
    neo_schema *s;
    const char *file;                 /* for messages */
    const char *line_begin, *p, *end; /* of the line, its comment cut off */
    int32_t line;
    const char *at; /* of the word being looked at: errors point there */
} neo__describe;

/* A path as a reader names it in messages. */
static const char *neo__path_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}
static int neo__is_space(char c) { return c == ' ' || c == '\t'; }
static neo__text neo__trim(const char *p, const char *end) {
    neo__text t;
    while (p < end && neo__is_space(*p)) p++;
    while (end > p && neo__is_space(end[-1])) end--;
    t.p = p;
    t.bytes = (size_t)(end - p);
    return t;
}
static int neo__text_is(neo__text t, const char *word) {
    return t.bytes == strlen(word) && memcmp(t.p, word, t.bytes) == 0;
}
NEO__COLD_BEGIN
static neo_status neo__describe_fail(const neo__describe *d, const char *format, ...)
    NEO__PRINTF(2, 3);
static neo_status neo__describe_fail(const neo__describe *d, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return neo_fail(NEO_ERR_FORMAT, "%s:%d:%d: %s", d->file, d->line,
                     (int)(d->at - d->line_begin) + 1, text);
}
/* How much of a text a message shows: "%.*s", NEO__SHOW(t). */
#define NEO__SHOW(t) (int)NEO__MIN((t).bytes, (size_t)60), (t).p

/* The next word of the line; 0: none. */
static int neo__describe_word(neo__describe *d, neo__text *word) {
    while (d->p < d->end && neo__is_space(*d->p)) d->p++;
    d->at = word->p = d->p;
    while (d->p < d->end && !neo__is_space(*d->p)) d->p++;
    word->bytes = (size_t)(d->p - word->p);
    return word->bytes > 0;
}
/* If word is key=value: the value. */
static int neo__describe_value(neo__text word, const char *key, neo__text *value) {
    size_t n = strlen(key);
    if (word.bytes < n + 1 || memcmp(word.p, key, n) != 0 || word.p[n] != '=') return 0;
    value->p = word.p + n + 1;
    value->bytes = word.bytes - n - 1;
    return 1;
}
static neo_status neo__describe_count(const neo__describe *d, neo__text t, int64_t least,
                                      int64_t *out) {
    int64_t n = 0;
    int good = t.bytes > 0 && t.bytes <= 15;
    for (size_t i = 0; good && i < t.bytes; i++) {
        good = t.p[i] >= '0' && t.p[i] <= '9';
        n = n * 10 + (t.p[i] - '0');
    }
    if (!good || n < least)
        return neo__describe_fail(d, "expected a whole number from %" PRId64 ", found '%.*s'",
                                  least, NEO__SHOW(t));
    *out = n;
    return NEO_OK;
}
static neo_status neo__describe_number(const neo__describe *d, neo__text t, float *out) {
    if (neo__number(t.p, t.bytes, out) != NEO__NUMBER_OK)
        return neo__describe_fail(d, "expected a number, found '%.*s'", NEO__SHOW(t));
    return NEO_OK;
}
static neo_status neo__describe_memory(void) {
    return neo_fail(NEO_ERR_MEMORY, "neo_schema_parse: no memory for the description");
}
static neo_status neo__describe_keep(neo__describe *d, neo__text t, neo__text *out) {
    char *copy = neo__arena_text(&d->s->arena, t.p, t.bytes);
    if (!copy) return neo__describe_memory();
    out->p = copy;
    out->bytes = t.bytes;
    return NEO_OK;
}

/* ---- what a column becomes ---- */
static neo_status neo__describe_label(neo__describe *d, neo__op *op) {
    neo__text word, value;
    const char *before = d->p;
    if (d->s->label_column >= 0) return neo__describe_fail(d, "a second label");
    d->s->label_column = op->column;
    if (!neo__describe_word(d, &word) || !neo__describe_value(word, "positive", &value)) {
        d->p = before;
        return NEO_OK;
    }
    size_t count = 1;
    for (size_t i = 0; i < value.bytes; i++) count += value.p[i] == ',';
    op->words = (neo__text *)neo__arena_alloc(&d->s->arena, count * sizeof(neo__text));
    if (!op->words) return neo__describe_memory();
    const char *p = value.p, *end = p + value.bytes;
    while (p <= end) {
        neo__text w;
        w.p = p;
        while (p < end && *p != ',') p++;
        w.bytes = (size_t)(p++ - w.p);
        if (w.bytes == 0) return neo__describe_fail(d, "positive= has an empty word");
        NEO__TRY(neo__describe_keep(d, w, &op->words[op->word_count++]));
    }
    return NEO_OK;
}
static neo_status neo__describe_dense(neo__describe *d, neo__op *op) {
    neo__text word, value;
    float x;
    op->scale = 1.0;
    for (const char *before = d->p; neo__describe_word(d, &word); before = d->p) {
        if (neo__text_is(word, "log")) {
            op->log = 1;
        } else if (neo__describe_value(word, "shift", &value)) {
            NEO__TRY(neo__describe_number(d, value, &x));
            op->shift = (double)x;
        } else if (neo__describe_value(word, "scale", &value)) {
            NEO__TRY(neo__describe_number(d, value, &x));
            op->scale = (double)x;
        } else if (neo__describe_value(word, "missing", &value)) {
            NEO__TRY(neo__describe_number(d, value, &op->missing));
        } else {
            d->p = before;
            break;
        }
    }
    return NEO_OK;
}
/* category, list, cross: rows=N, hash, sep=C. */
static neo_status neo__describe_ids(neo__describe *d, neo__op *op) {
    neo__text word, value;
    const char *start = d->at;
    for (const char *before = d->p; neo__describe_word(d, &word); before = d->p) {
        if (neo__text_is(word, "hash") && op->kind != NEO__OP_CROSS) {
            op->hashed = 1;
        } else if (neo__describe_value(word, "rows", &value)) {
            NEO__TRY(neo__describe_count(d, value, 2, &op->rows));
        } else if (op->kind == NEO__OP_LIST && neo__describe_value(word, "sep", &value)) {
            if (value.bytes != 1) return neo__describe_fail(d, "sep= needs one character");
            op->separator = value.p[0];
        } else {
            d->p = before;
            break;
        }
    }
    d->at = start;
    if (op->hashed && op->rows == 0) return neo__describe_fail(d, "a hashed feature needs rows=");
    if (op->kind == NEO__OP_LIST && !op->separator)
        return neo__describe_fail(d, "a list needs sep=");
    return NEO_OK;
}
static neo_status neo__describe_bucket(neo__describe *d, neo__op *op) {
    neo__text word;
    if (!neo__describe_word(d, &word))
        return neo__describe_fail(d, "bucket needs its edges: e1,e2,...");
    size_t count = 1;
    for (size_t i = 0; i < word.bytes; i++) count += word.p[i] == ',';
    op->edges = (float *)neo__arena_alloc(&d->s->arena, count * sizeof(float));
    if (!op->edges) return neo__describe_memory();
    const char *p = word.p, *end = p + word.bytes;
    while (p <= end) {
        neo__text t;
        d->at = t.p = p;
        while (p < end && *p != ',') p++;
        t.bytes = (size_t)(p++ - t.p);
        float *edge = &op->edges[op->edge_count];
        NEO__TRY(neo__describe_number(d, t, edge));
        if (op->edge_count > 0 && !(edge[0] > edge[-1]))
            return neo__describe_fail(d, "edges must rise");
        op->edge_count++;
    }
    op->rows = (int64_t)op->edge_count + 2;
    return NEO_OK;
}
static neo_status neo__describe_cross(neo__describe *d, neo__op *op) {
    neo__text word;
    const char *start = d->at;
    if (!neo__describe_word(d, &word))
        return neo__describe_fail(d, "cross needs the other column");
    op->words = (neo__text *)neo__arena_alloc(&d->s->arena, sizeof(neo__text));
    if (!op->words) return neo__describe_memory();
    NEO__TRY(neo__describe_keep(d, word, op->words));
    NEO__TRY(neo__describe_ids(d, op));
    d->at = start;
    op->hashed = 1;
    return op->rows ? NEO_OK : neo__describe_fail(d, "a cross needs rows=");
}

static neo_status neo__describe_column(neo__describe *d, neo__text name) {
    static const struct {
        const char *word;
        neo__op_kind kind;
    } kinds[] = {{"label", NEO__OP_LABEL},       {"dense", NEO__OP_DENSE},
                 {"category", NEO__OP_CATEGORY}, {"bucket", NEO__OP_BUCKET},
                 {"cross", NEO__OP_CROSS},       {"list", NEO__OP_LIST}};
    neo_schema *s = d->s;
    neo__text word;
    int32_t c = s->column_count, count = 0;
    if (c == NEO__COLUMNS_MAX)
        return neo__describe_fail(d, "more than %d columns", NEO__COLUMNS_MAX);
    for (int32_t i = 0; i < c; i++)
        if (neo__text_is(name, s->columns[i].name))
            return neo__describe_fail(d, "column '%.*s' is on line %d already", NEO__SHOW(name),
                                      s->columns[i].line);
    s->columns[c].name = neo__arena_text(&s->arena, name.p, name.bytes);
    s->columns[c].line = d->line;
    if (!s->columns[c].name) return neo__describe_memory();
    s->column_count++;
    for (; neo__describe_word(d, &word); count++) {
        if (neo__text_is(word, "skip")) continue;
        size_t k = 0;
        while (k < sizeof kinds / sizeof kinds[0] && !neo__text_is(word, kinds[k].word)) k++;
        if (k == sizeof kinds / sizeof kinds[0])
            return neo__describe_fail(
                d,
                "expected label, dense, category, bucket, cross, list or skip, found "
                "'%.*s'",
                NEO__SHOW(word));
        neo__op *op = &s->ops[s->op_count++];
        op->kind = kinds[k].kind;
        op->column = c;
        switch (op->kind) {
        case NEO__OP_LABEL: NEO__TRY(neo__describe_label(d, op)); break;
        case NEO__OP_DENSE: NEO__TRY(neo__describe_dense(d, op)); break;
        case NEO__OP_BUCKET: NEO__TRY(neo__describe_bucket(d, op)); break;
        case NEO__OP_CROSS: NEO__TRY(neo__describe_cross(d, op)); break;
        case NEO__OP_CATEGORY:
        case NEO__OP_LIST: NEO__TRY(neo__describe_ids(d, op)); break;
        }
    }
    if (count == 0)
        return neo__describe_fail(d, "column '%.*s': expected what it becomes (skip: nothing)",
                                  NEO__SHOW(name));
    return NEO_OK;
}

/* The lines before the columns. *known 0: it is none of them. */
static neo_status neo__describe_setting(neo__describe *d, neo__text name, int *known) {
    neo_schema *s = d->s;
    const char *after = d->p;
    neo__text rest = neo__trim(d->p, d->end);
    *known = 1;
    d->p = d->end;
    if (neo__text_is(name, "header") && rest.bytes == 0) {
        s->skip_lines = 1;
        return NEO_OK;
    }
    d->at = rest.p;
    if (neo__text_is(name, "skip-lines")) return neo__describe_count(d, rest, 0, &s->skip_lines);
    if (neo__text_is(name, "delimiter")) {
        if (neo__text_is(rest, "tab"))
            rest.p = "\t", rest.bytes = 1;
        else if (neo__text_is(rest, "space"))
            rest.p = " ", rest.bytes = 1;
        if (rest.bytes < 1 || rest.bytes >= sizeof s->delimiter)
            return neo__describe_fail(d, "expected a delimiter of 1 to %d bytes",
                                      (int)sizeof s->delimiter - 1);
        memcpy(s->delimiter, rest.p, rest.bytes);
        s->delimiter_bytes = (int32_t)rest.bytes;
        return NEO_OK;
    }
    if (neo__text_is(name, "missing")) {
        if (rest.bytes == 0) return neo__describe_fail(d, "expected the word that means no value");
        return neo__describe_keep(d, rest, &s->missing[s->missing_count++]);
    }
    if (neo__text_is(name, "comment")) {
        if (rest.bytes == 0)
            return neo__describe_fail(d, "expected what comment lines begin with");
        return neo__describe_keep(d, rest, &s->comments[s->comment_count++]);
    }
    *known = 0;
    d->p = after;
    return NEO_OK;
}

static neo_status neo__describe_lines(neo__describe *d, const char *text, const char *end) {
    for (const char *p = text; p < end; d->line++) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        d->line_begin = d->p = p;
        d->end = stop;
        if (d->end > p && d->end[-1] == '\r') d->end--;
        for (const char *q = p; q < d->end; q++) {
            if (*q == '#' && (q == p || neo__is_space(q[-1]))) {
                d->end = q;
                break;
            }
        }
        p = stop + 1;
        neo__text name;
        int known = 0;
        if (!neo__describe_word(d, &name)) continue;
        if (d->s->column_count == 0) NEO__TRY(neo__describe_setting(d, name, &known));
        d->at = name.p;
        if (!known) NEO__TRY(neo__describe_column(d, name));
    }
    return NEO_OK;
}

/* Names, numbers and sizes of the outputs. */
static neo_status neo__describe_feature(neo__describe *d, neo__op *op) {
    neo_schema *s = d->s;
    const char *name = s->columns[op->column].name, *other = "";
    const char *form = op->kind == NEO__OP_BUCKET  ? "%s_bucket%s"
                       : op->kind == NEO__OP_CROSS ? "%s_x_%s"
                                                   : "%s%s";
    if (op->kind == NEO__OP_CROSS) {
        int32_t c = 0;
        while (c < s->column_count && !neo__text_is(op->words[0], s->columns[c].name)) c++;
        if (c == s->column_count)
            return neo__describe_fail(d, "cross: there is no column '%.*s'",
                                      NEO__SHOW(op->words[0]));
        op->other = c;
        other = s->columns[c].name;
    }
    NEO__TRY(neo__schema_name(s, "neo_schema_parse", op->out, form, name, other));
    for (int32_t f = 0; f < op->out; f++)
        if (strcmp(s->feature_names[f], s->feature_names[op->out]) == 0)
            return neo__describe_fail(d, "feature '%s' is there already", s->feature_names[f]);
    s->rows[op->out] = op->rows;
    s->max_rows[op->out] = op->rows ? op->rows : (int64_t)0xFFFFFFFF;
    s->has_dict[op->out] =
        (op->kind == NEO__OP_CATEGORY || op->kind == NEO__OP_LIST) && !op->hashed;
    if (op->kind == NEO__OP_LIST) s->multi = 1;
    return NEO_OK;
}
static neo_status neo__describe_finish(neo__describe *d) {
    neo_schema *s = d->s;
    int32_t dense = 0, features = 0;
    d->at = d->line_begin;
    for (int32_t i = 0; i < s->op_count; i++) {
        neo__op *op = &s->ops[i];
        op->out = op->kind == NEO__OP_LABEL ? 0 : op->kind == NEO__OP_DENSE ? dense++ : features++;
    }
    if (s->op_count == 0) return neo__describe_fail(d, "no column is used");
    NEO__TRY(neo__schema_features(s, "neo_schema_parse", dense, features));
    for (int32_t i = 0; i < s->op_count; i++) {
        if (s->ops[i].kind == NEO__OP_LABEL || s->ops[i].kind == NEO__OP_DENSE) continue;
        d->line = s->columns[s->ops[i].column].line;
        NEO__TRY(neo__describe_feature(d, &s->ops[i]));
    }
    neo__schema_end(s);
    return NEO_OK;
}
static neo_status neo__describe_text(neo_schema *s, const char *file, const char *text,
                                     size_t bytes) {
    size_t lines = 1, words = 1;
    for (size_t i = 0; i < bytes; i++) {
        lines += text[i] == '\n';
        words += neo__is_space(text[i]) || text[i] == '\n';
    }
    NEO__ZERO(neo__describe, d);
    d.s = s;
    d.file = file;
    d.line = 1;
    d.line_begin = d.at = text;
    if (memchr(text, 0, bytes)) return neo__describe_fail(&d, "a NUL byte");
    s->columns = (neo__column *)neo__arena_alloc(&s->arena, lines * sizeof *s->columns);
    s->ops = (neo__op *)neo__arena_alloc(&s->arena, words * sizeof *s->ops);
    s->missing = (neo__text *)neo__arena_alloc(&s->arena, lines * sizeof *s->missing);
    s->comments = (neo__text *)neo__arena_alloc(&s->arena, lines * sizeof *s->comments);
    if (!s->columns || !s->ops || !s->missing || !s->comments) return neo__describe_memory();
    s->delimiter[0] = ',';
    s->delimiter_bytes = 1;
    NEO__TRY(neo__describe_lines(&d, text, text + bytes));
    return neo__describe_finish(&d);
}
static neo_status neo__describe_file(neo_schema *s, const char *path) {
    neo__file f;
    NEO__TRY(neo__file_open(&f, path, NEO__FILE_READ));
    int64_t size = neo__file_size(&f);
    neo_status status = NEO_OK;
    size_t got = 0;
    char *text = NULL;
    if (size < 0 || size > NEO__DESCRIPTION_BYTES)
        status =
            neo_fail(NEO_ERR_FORMAT, "%s: not a column description (a file of up to %d bytes)",
                      path, NEO__DESCRIPTION_BYTES);
    if (status == NEO_OK && !(text = (char *)neo_alloc(s->ctx, (size_t)size)))
        status = neo__describe_memory();
    if (status == NEO_OK) status = neo__file_read(&f, text, (size_t)size, &got);
    if (status == NEO_OK) status = neo__describe_text(s, path, text, got);
    neo_free(s->ctx, text, (size_t)size);
    (void)neo__file_close(&f);
    return status;
}
NEO_API neo_status neo_schema_parse(neo_ctx *ctx, const char *path_or_text, neo_schema **schema) {
    NEO__CHECK(ctx && path_or_text && schema, NEO_ERR_ARG,
               "neo_schema_parse: an argument is NULL");
    *schema = NULL;
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_parse", NEO_FORMAT_DELIMITED, &s));
    neo_status status = strchr(path_or_text, '\n')
                            ? neo__describe_text(s, "columns", path_or_text, strlen(path_or_text))
                            : neo__describe_file(s, path_or_text);
    if (status == NEO_OK)
        *schema = s;
    else
        neo_schema_destroy(s);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-parse

   Text is parsed block by block: whole lines, as the source cut them, always ended by \n and
   followed by 16 more bytes that may be read, so inner loops need no end test: every field stops
   at a \n at the latest. A block's buffers are sized for the worst case (every line as short as it
   can be), so parsing allocates nothing. Lines are counted from the start of the block; who puts
   the blocks in order knows the rest.
   ------------------------------------------------------------------------------------------------ */
#ifndef NEO__CHUNK_BYTES
#define NEO__CHUNK_BYTES 131072 /* of text in a block */
#endif
#ifndef NEO__LINE_BYTES
#define NEO__LINE_BYTES 65536 /* longest line; at most NEO__CHUNK_BYTES / 2 */
#endif
enum {
    NEO__BLOCK_PAD = 16,
    NEO__BLOCK_ISSUES = 4, /* bad lines of a block that keep their message */
    NEO__ISSUE_TEXT = 176
};

enum { NEO__NPY_FILES = 3 }; /* dense, sparse, labels */
typedef struct neo__npy_info {
    neo_dtype dtype;
    int f64; /* dtype is then NEO_F32, the file holds doubles */
    int32_t ndim;
    int64_t shape[NEO_MAX_DIMS];
    int64_t data_offset; /* of the first element, in the file */
    size_t item_bytes;
} neo__npy_info;

typedef struct neo__issue {
    neo_status status;
    int64_t line;   /* from 0, in the block */
    int64_t column; /* from 1; 0: the message follows the path directly */
    char text[NEO__ISSUE_TEXT];
} neo__issue;

/* The samples of an epoch that belong to this rank; those of others need not be read or parsed. */
typedef struct neo__share {
    int64_t batch, total;        /* samples of a whole batch, of all */
    int shards, first, end; /* it has leaves [first, end) of them */
} neo__share;
/* The first run of own samples in [from, end): returns where it begins (end: there is none), *stop
   is where it ends. */
static int64_t neo__share_next(const neo__share *share, int64_t from, int64_t end, int64_t *stop) {
    while (from < end) {
        int64_t begin = from / share->batch * share->batch;
        int64_t all = NEO__MIN(share->total - begin, share->batch);
        int64_t a = begin + neo_leaf_begin(all, share->shards, share->first);
        int64_t b = begin + neo_leaf_begin(all, share->shards, share->end);
        if (from < b) {
            *stop = NEO__MIN(b, end);
            return NEO__MIN(NEO__MAX(a, from), end);
        }
        from = begin + share->batch;
    }
    return *stop = end;
}

typedef struct neo__block {
    /* from the source */
    char *raw;
    size_t raw_bytes; /* text with its last \n; rows of npy */
    int32_t file;
    int64_t offset, bytes;             /* in the file; npy and synthetic: rows */
    int64_t skip_lines;                /* so many lines at the start hold no sample */
    int file_end;                      /* the last block of its file */
    neo__npy_info npy[NEO__NPY_FILES]; /* of npy rows */
    int end;                           /* nothing is left: this block holds nothing */
    const neo__share *share;           /* rows to parse; NULL: all */
    int64_t sample;                    /* its first row, as the share counts */
    neo_status status;                 /* of reading */
    char error[NEO__ERROR_BYTES];
    /* from parsing */
    char *records;
    int64_t count, capacity;
    int64_t *ids; /* of a schema with several ids per feature */
    int64_t id_count, id_capacity;
    uint32_t *end_offset, *end_line; /* where the next line starts, per sample */
    int64_t lines;                   /* in the block */
    int64_t bad;
    int failed; /* stopped at issues[0] */
    int issue_count;
    neo__issue issues[NEO__BLOCK_ISSUES];
    neo__text *fields; /* scratch: one per column */
    int32_t field_capacity;
    int64_t taken; /* samples that have gone on */
} neo__block;

typedef struct neo__parse_options {
    int skip_bad;
    int unlabeled;
    neo__dict *fit; /* [feature_count]: collect words here instead of looking them up; or NULL */
} neo__parse_options;

static int64_t neo__synthetic_ids(const neo_schema *s, int64_t samples);

/* ---- messages ---- */
NEO__COLD_BEGIN
static void neo__issue_set(neo__issue *e, neo_status status, int64_t column, const char *format,
                           ...) NEO__PRINTF(4, 5);
static void neo__issue_set(neo__issue *e, neo_status status, int64_t column, const char *format,
                           ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    e->status = status;
    e->column = column;
}
/* A field for a message: in quotes, cut, with a ? for bytes that cannot be shown. */
typedef struct neo__quoted {
    char text[48];
} neo__quoted;
static neo__quoted neo__quote(const char *p, size_t bytes) {
    neo__quoted q;
    size_t n = 0, most = 40;
    q.text[n++] = '\'';
    for (size_t i = 0; i < bytes && i < most; i++) {
        unsigned char c = (unsigned char)p[i];
        q.text[n++] = c < 32 || c == 127 ? '?' : (char)c;
    }
    if (bytes > most) {
        memcpy(q.text + n, "...", 3);
        n += 3;
    }
    q.text[n++] = '\'';
    q.text[n] = 0;
    return q;
}
NEO__COLD_END

/* ---- samples ---- */
static float *neo__block_record(const neo_schema *s, const neo__block *b, int64_t sample) {
    return (float *)(void *)(b->records + (size_t)sample * s->record_bytes);
}
static int64_t *neo__record_ids(const neo_schema *s, void *record) {
    return (int64_t *)(void *)((char *)record + s->ids_offset);
}
/* Logarithms by the schema's table: x = m 2^k (1 + r) with m in [2048, 4096) and 0 <= r < 2^-11.
   Within 1e-15 (relative to 1 + |log x|), and several times faster than neo__log_f64. */
static double neo__log_near(const double *table, double m, int whole, int k) {
    double base = (double)whole, r = (m - base) / base;
    double tail = r * (1.0 - r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * 0.2))));
    return (table[whole] + (double)k * NEO__LN2_HIGH) + (tail + (double)k * NEO__LN2_LOW);
}
/* log x for a normal x > 0. */
static double neo__log_positive(const double *table, double x) {
    uint64_t bits = neo__bits_f64(x);
    int k = (int)(bits >> 52) - 1023 - 11;
    double m = neo__f64_bits((bits & 0x000FFFFFFFFFFFFFu) | (uint64_t)(1023 + 11) << 52);
    return neo__log_near(table, m, (int)m, k);
}
/* log n for a whole n in 1 .. 2^62. */
static double neo__log_whole(const double *table, uint64_t n) {
    return n < NEO__LOG_TABLE ? table[n] : neo__log_positive(table, (double)n);
}

/* ---- Criteo ---- */
enum { NEO__CRITEO_FIELDS = 1 + NEO__CRITEO_DENSE + NEO__CRITEO_FEATURES };

/* Not too long, no NUL byte. */
static int neo__line_whole(const char *line, const char *end, neo__issue *e) {
    if (end - line > NEO__LINE_BYTES) {
        neo__issue_set(e, NEO_ERR_FORMAT, NEO__LINE_BYTES + 1, "the line is over %d bytes",
                       NEO__LINE_BYTES);
        return 0;
    }
    const char *nul = end > line ? (const char *)memchr(line, 0, (size_t)(end - line)) : NULL;
    if (nul) neo__issue_set(e, NEO_ERR_FORMAT, nul - line + 1, "a NUL byte");
    return nul == NULL;
}
NEO__COLD_BEGIN
/* What is wrong with a line that the parser refused. */
static void neo__criteo_issue(const char *line, const char *end, int may_lack_label,
                              neo__issue *e) {
    if (!neo__line_whole(line, end, e)) return;
    int tabs = 0;
    for (const char *p = line; p < end; p++) tabs += *p == '\t';
    int first = may_lack_label && tabs == NEO__CRITEO_FIELDS - 2, fields = first + 1 + tabs;
    if (fields != NEO__CRITEO_FIELDS) {
        neo__issue_set(e, NEO_ERR_FORMAT, 1,
                       "%d field%s, expected %d (label, 13 integers, 26 hex words)", fields - first,
                       fields - first == 1 ? "" : "s", NEO__CRITEO_FIELDS - first);
        return;
    }
    const char *p = line;
    for (int f = first; f < NEO__CRITEO_FIELDS; f++) {
        const char *q = p, *digits = p;
        while (q < end && *q != '\t') q++;
        size_t n = (size_t)(q - p), whole = 0;
        neo__quoted shown = neo__quote(p, n);
        if (f == 0 && (n != 1 || (*p != '0' && *p != '1'))) {
            neo__issue_set(e, NEO_ERR_FORMAT, p - line + 1, "expected label 0 or 1, found %s",
                           shown.text);
            return;
        }
        if (f >= 1 && f <= NEO__CRITEO_DENSE && n > 0) {
            if (*digits == '-') digits++;
            while (digits + whole < q && digits[whole] >= '0' && digits[whole] <= '9') whole++;
            if (whole == 0 || digits + whole != q || whole > 18) {
                int range = whole > 18 && digits + whole == q;
                neo__issue_set(e, range ? NEO_ERR_RANGE : NEO_ERR_FORMAT, p - line + 1,
                               "I%d: expected an integer of up to 18 digits or nothing, found %s",
                               f, shown.text);
                return;
            }
        }
        if (f > NEO__CRITEO_DENSE) {
            while (whole < n &&
                   ((p[whole] >= '0' && p[whole] <= '9') || (p[whole] >= 'a' && p[whole] <= 'f') ||
                    (p[whole] >= 'A' && p[whole] <= 'F')))
                whole++;
            if (whole != n || n > 8) {
                neo__issue_set(e, NEO_ERR_FORMAT, p - line + 1,
                               "C%d: expected up to 8 hex digits or nothing, found %s",
                               f - NEO__CRITEO_DENSE, shown.text);
                return;
            }
        }
        p = q + 1;
    }
    neo__issue_set(e, NEO_ERR_FORMAT, end - line + 1, "expected the end of the line");
}
NEO__COLD_END

/* The dense fields; the place after them, or NULL. */
static const char *neo__criteo_dense(const neo_schema *s, const char *p, float *dense) {
    for (int d = 0; d < NEO__CRITEO_DENSE; d++) {
        uint64_t v = 0;
        unsigned c;
        dense[d] = 0.0f;
        if (*p == '\t') {
            p++;
            continue;
        }
        int negative = *p == '-';
        p += negative;
        const char *digits = p;
        while ((c = (unsigned)(unsigned char)*p - '0') <= 9) v = v * 10 + c, p++;
        if (p == digits || p - digits > 18 || *p != '\t') return NULL;
        p++;
        if (!negative) dense[d] = (float)neo__log_whole(s->log_table, v + 1);
    }
    return p;
}
/* The words: key[f] is the number, present[f] 0 for an empty one. */
static const char *neo__criteo_words(const uint8_t *hex, const char *text, uint32_t *key,
                                     uint8_t *present) {
    const unsigned char *p = (const unsigned char *)text;
    for (int f = 0; f < NEO__CRITEO_FEATURES; f++) {
        uint32_t a = hex[p[0]], b = hex[p[1]], c = hex[p[2]], d = hex[p[3]];
        uint32_t e = hex[p[4]], g = hex[p[5]], h = hex[p[6]], i = hex[p[7]], v = 0;
        int n = 8;
        if ((a | b | c | d | e | g | h | i) < 16) {
            v = a << 28 | b << 24 | c << 20 | d << 16 | e << 12 | g << 8 | h << 4 | i;
        } else {
            for (n = 0; n < 8 && hex[p[n]] < 16; n++) v = v << 4 | hex[p[n]];
        }
        p += n;
        key[f] = v;
        present[f] = n > 0;
        if (f == NEO__CRITEO_FEATURES - 1) break;
        if (*p != '\t') return NULL;
        p++;
    }
    if (*p == '\r') p++;
    return *p == '\n' ? (const char *)p + 1 : NULL;
}
static neo_status neo__criteo_fit(const neo_schema *s, neo__dict *fit, const uint32_t *key,
                                  const uint8_t *present) {
    for (int f = 0; f < NEO__CRITEO_FEATURES; f++) {
        char word[4];
        if (!s->has_dict[f] || !present[f]) continue;
        neo__put_le(word, key[f], 4);
        if (!neo__dict_add(s->ctx, &fit[f], neo__criteo_hash, word, 4)) return NEO_ERR_MEMORY;
    }
    return NEO_OK;
}
/* One line into a record. Returns where the next begins, or NULL: a bad line. */
static const char *neo__criteo_line(const neo_schema *s, const neo__parse_options *o,
                                    const char *p, float *record, neo_status *fit_status) {
    uint32_t key[NEO__CRITEO_FEATURES];
    uint8_t present[NEO__CRITEO_FEATURES];
    int64_t *ids = neo__record_ids(s, record);
    int labeled = 1;
    if (o->unlabeled) {
        int tabs = 0;
        for (const char *q = p; *q != '\n'; q++) tabs += *q == '\t';
        labeled = tabs != NEO__CRITEO_FIELDS - 2;
    }
    record[0] = 0.0f;
    if (labeled) {
        if ((p[0] != '0' && p[0] != '1') || p[1] != '\t') return NULL;
        record[0] = (float)(p[0] - '0');
        p += 2;
    }
    p = neo__criteo_dense(s, p, record + 1);
    if (!p) return NULL;
    p = neo__criteo_words(s->hex, p, key, present);
    if (!p) return NULL;
    if (o->fit) {
        *fit_status = neo__criteo_fit(s, o->fit, key, present);
    } else if (s->dict_count) {
        for (int f = 0; f < NEO__CRITEO_FEATURES; f++) {
            char word[4];
            neo__put_le(word, key[f], 4);
            ids[f] = present[f] ? neo__dict_find(&s->dicts[f], neo__mix64(key[f]), word, 4) : 0;
        }
    } else {
        for (int f = 0; f < NEO__CRITEO_FEATURES; f++) {
            uint32_t m = s->modulus[f], r = m ? key[f] % m : key[f];
            ids[f] = present[f] && s->rows[f] > 1 ? 1 + (int64_t)r : 0;
        }
    }
    return p;
}

/* ---- delimited ---- */
static int neo__field_missing(const neo_schema *s, neo__text t) {
    if (t.bytes == 0) return 1;
    for (int32_t i = 0; i < s->missing_count; i++)
        if (t.bytes == s->missing[i].bytes && memcmp(t.p, s->missing[i].p, t.bytes) == 0) return 1;
    return 0;
}
/* Cuts [p, end) at the delimiters; returns the number of fields, of which at most `most` are kept.
   */
static int32_t neo__fields(const neo_schema *s, const char *p, const char *end, neo__text *fields,
                           int32_t most) {
    const char *word = s->delimiter;
    size_t bytes = (size_t)s->delimiter_bytes;
    char blank = memchr(word, ' ', bytes) ? '\t' : ' ',
         other = memchr(word, '\t', bytes) ? blank : '\t';
    int32_t count = 0;
    for (;;) {
        const char *q = p;
        for (;;) {
            q = (const char *)memchr(q, word[0], (size_t)(end - q));
            if (!q || bytes == 1) break;
            if ((size_t)(end - q) >= bytes && memcmp(q, word, bytes) == 0) break;
            q++;
        }
        const char *stop = q ? q : end;
        if (count < most) {
            const char *from = p, *to = stop;
            while (from < to && (*from == blank || *from == other)) from++;
            while (to > from && (to[-1] == blank || to[-1] == other)) to--;
            fields[count].p = from;
            fields[count].bytes = (size_t)(to - from);
        }
        count++;
        if (!q) return count;
        p = q + bytes;
    }
}
static int neo__field_number(const neo_schema *s, const neo__op *op, neo__text t, const char *line,
                             float *x, neo__issue *e) {
    int kind = neo__number(t.p, t.bytes, x);
    if (kind == NEO__NUMBER_OK) return 1;
    neo__issue_set(e, kind == NEO__NUMBER_BAD ? NEO_ERR_FORMAT : NEO_ERR_RANGE, t.p - line + 1,
                   kind == NEO__NUMBER_BAD
                       ? "%s: expected a number, found %s"
                       : "%s: expected a number within the range of f32, found %s",
                   s->columns[op->column].name, neo__quote(t.p, t.bytes).text);
    return 0;
}
static int neo__op_label(const neo_schema *s, const neo__op *op, neo__text t, const char *line,
                         float *label, neo__issue *e) {
    if (neo__field_missing(s, t)) {
        neo__issue_set(e, NEO_ERR_FORMAT, t.p - line + 1, "%s: the label is missing",
                       s->columns[op->column].name);
        return 0;
    }
    if (op->words) {
        *label = 0.0f;
        for (int32_t i = 0; i < op->word_count; i++)
            if (t.bytes == op->words[i].bytes && memcmp(t.p, op->words[i].p, t.bytes) == 0)
                *label = 1.0f;
        return 1;
    }
    if (!neo__field_number(s, op, t, line, label, e)) return 0;
    if (*label >= 0.0f && *label <= 1.0f) return 1;
    neo__issue_set(e, NEO_ERR_RANGE, t.p - line + 1, "%s: expected a label in [0, 1], found %s",
                   s->columns[op->column].name, neo__quote(t.p, t.bytes).text);
    return 0;
}
static float neo__op_dense(const neo_schema *s, const neo__op *op, float x) {
    double v = (double)x;
    if (op->log && !(v > 0.0)) {
        v = 0.0;
    } else if (op->log) {
        int whole = v < 1e15 && (double)(uint64_t)v == v;
        v = whole ? neo__log_whole(s->log_table, (uint64_t)v + 1)
                  : neo__log_positive(s->log_table, v + 1.0);
    }
    return (float)((v - op->shift) * op->scale);
}
static int64_t neo__op_word(const neo_schema *s, const neo__op *op, neo__text t) {
    uint64_t hash = neo__hash_bytes(t.p, t.bytes);
    if (op->hashed) return 1 + (int64_t)(hash % (uint64_t)(op->rows - 1));
    return neo__dict_find(&s->dicts[op->out], hash, t.p, t.bytes);
}
static int64_t neo__op_bucket(const neo__op *op, float x) {
    int32_t low = 0, high = op->edge_count; /* edges before low are <= x */
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (op->edges[mid] <= x)
            low = mid + 1;
        else
            high = mid;
    }
    return 1 + (int64_t)low;
}
static int64_t neo__op_cross(const neo_schema *s, const neo__op *op, neo__text a, neo__text b) {
    uint64_t ha = neo__field_missing(s, a) ? 0 : neo__hash_bytes(a.p, a.bytes);
    uint64_t hb = neo__field_missing(s, b) ? 0 : neo__hash_bytes(b.p, b.bytes);
    return 1 +
           (int64_t)(neo__mix64(ha + 0x9E3779B97F4A7C15u * (hb | 1)) % (uint64_t)(op->rows - 1));
}
/* The next word of a list field, from *p on. */
static int neo__list_next(const neo__op *op, const char **p, const char *end, neo__text *word) {
    while (*p < end) {
        const char *q = (const char *)memchr(*p, op->separator, (size_t)(end - *p));
        if (!q) q = end;
        *word = neo__trim(*p, q);
        *p = q + 1;
        if (word->bytes > 0) return 1;
    }
    return 0;
}
/* The bag of a feature: one id, or the words of a list, appended to the block's stream. */
static void neo__op_list(const neo_schema *s, const neo__op *op, neo__text t, neo__block *b) {
    const char *p = t.p, *end = t.p + t.bytes;
    neo__text word;
    if (neo__field_missing(s, t)) return;
    while (neo__list_next(op, &p, end, &word)) {
        NEO_ASSERT(b->id_count < b->id_capacity);
        b->ids[b->id_count++] = neo__op_word(s, op, word);
    }
}
static neo_status neo__delimited_fit(const neo_schema *s, neo__dict *fit,
                                     const neo__text *fields) {
    for (int32_t i = 0; i < s->op_count; i++) {
        const neo__op *op = &s->ops[i];
        if (op->kind != NEO__OP_CATEGORY && op->kind != NEO__OP_LIST) continue;
        neo__text t = fields[op->column], word;
        const char *p = t.p, *end = t.p + t.bytes;
        if (op->hashed || neo__field_missing(s, t)) continue;
        if (op->kind == NEO__OP_CATEGORY) {
            if (!neo__dict_add(s->ctx, &fit[op->out], neo__hash_bytes, p, t.bytes))
                return NEO_ERR_MEMORY;
            continue;
        }
        while (neo__list_next(op, &p, end, &word))
            if (!neo__dict_add(s->ctx, &fit[op->out], neo__hash_bytes, word.p, word.bytes))
                return NEO_ERR_MEMORY;
    }
    return NEO_OK;
}
/* The fields of a good line through the operations. 0: a bad field. */
static int neo__delimited_ops(const neo_schema *s, neo__block *b, const char *line, int labeled,
                              float *record, neo__issue *e) {
    int64_t *ids = neo__record_ids(s, record), start = b->id_count;
    record[0] = 0.0f;
    for (int32_t i = 0; i < s->op_count; i++) {
        const neo__op *op = &s->ops[i];
        neo__text t = b->fields[op->column];
        int64_t id = 0;
        float x;
        switch (op->kind) {
        case NEO__OP_LABEL:
            if (labeled && !neo__op_label(s, op, t, line, record, e)) return 0;
            continue;
        case NEO__OP_DENSE:
            record[1 + op->out] = op->missing;
            if (neo__field_missing(s, t)) continue;
            if (!neo__field_number(s, op, t, line, &x, e)) return 0;
            record[1 + op->out] = neo__op_dense(s, op, x);
            if (record[1 + op->out] - record[1 + op->out] == 0.0f) continue;
            neo__issue_set(e, NEO_ERR_RANGE, t.p - line + 1,
                           "%s: shift and scale take %s out of f32's range",
                           s->columns[op->column].name, neo__quote(t.p, t.bytes).text);
            return 0;
        case NEO__OP_CATEGORY: id = neo__field_missing(s, t) ? 0 : neo__op_word(s, op, t); break;
        case NEO__OP_BUCKET:
            if (neo__field_missing(s, t)) break;
            if (!neo__field_number(s, op, t, line, &x, e)) return 0;
            id = neo__op_bucket(op, x);
            break;
        case NEO__OP_CROSS: id = neo__op_cross(s, op, t, b->fields[op->other]); break;
        case NEO__OP_LIST: neo__op_list(s, op, t, b); break;
        }
        if (!s->multi) {
            ids[op->out] = id;
            continue;
        }
        if (op->kind != NEO__OP_LIST) b->ids[b->id_count++] = id;
        ids[1 + op->out] = b->id_count - start;
    }
    if (s->multi) ids[0] = start;
    return 1;
}
/* One line of [line, end) into a record. 1: a sample; 0: a bad line; -1: no sample (a comment). */
static int neo__delimited_line(const neo_schema *s, const neo__parse_options *o, neo__block *b,
                               const char *line, const char *end, float *record, neo__issue *e,
                               neo_status *fit_status) {
    int32_t columns = s->column_count;
    int labeled = 1;
    if (!neo__line_whole(line, end, e)) return 0;
    for (int32_t i = 0; i < s->comment_count; i++) {
        neo__text c = s->comments[i];
        if ((size_t)(end - line) >= c.bytes && memcmp(line, c.p, c.bytes) == 0) return -1;
    }
    int32_t count = neo__fields(s, line, end, b->fields, columns);
    if (o->unlabeled && s->label_column >= 0 && count == columns - 1) {
        for (int32_t c = columns - 1; c > s->label_column; c--) b->fields[c] = b->fields[c - 1];
        b->fields[s->label_column].p = line;
        b->fields[s->label_column].bytes = 0;
        labeled = 0;
    } else if (count != columns) {
        neo__issue_set(e, NEO_ERR_FORMAT, 1, "%d field%s, expected %d", count, count == 1 ? "" : "s",
                       columns);
        return 0;
    }
    int64_t start = b->id_count;
    if (!neo__delimited_ops(s, b, line, labeled, record, e)) {
        b->id_count = start;
        return 0;
    }
    if (o->fit) {
        b->id_count = start;
        *fit_status = neo__delimited_fit(s, o->fit, b->fields);
    }
    return 1;
}

/* ---- a block of text ---- */
/* Shortest line that can be a sample, its \n included. */
static size_t neo__least_line(const neo_schema *s, int unlabeled) {
    if (s->format == NEO_FORMAT_CRITEO)
        return (size_t)(NEO__CRITEO_FIELDS + 1 - 2 * (unlabeled != 0));
    int32_t fields = s->column_count - (unlabeled && s->label_column >= 0);
    size_t least = (size_t)NEO__MAX(fields - 1, 0) * (size_t)s->delimiter_bytes + 1;
    return NEO__MAX(least, 2);
}
/* Most ids that `samples` samples of one block can have: a word of a list takes a byte at least.
   */
static int64_t neo__block_ids(const neo_schema *s, int64_t samples) {
    return s->format == NEO_FORMAT_SYNTHETIC ? neo__synthetic_ids(s, samples)
                                             : samples * s->feature_count + NEO__CHUNK_BYTES;
}
static void neo__block_bad(neo__block *b, const neo__parse_options *o, const neo__issue *e) {
    if (b->issue_count < NEO__BLOCK_ISSUES) {
        b->issues[b->issue_count] = *e;
        b->issues[b->issue_count++].line = b->lines;
    }
    b->bad++;
    b->failed = !o->skip_bad;
}
static const char *neo__block_start(neo__block *b) {
    const char *p = b->raw, *end = b->raw + b->raw_bytes;
    b->count = b->id_count = b->lines = b->bad = b->taken = 0;
    b->failed = b->issue_count = 0;
    if (b->offset == 0 && b->raw_bytes >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        p += 3; /* UTF-8 mark */
    for (; b->lines < b->skip_lines && p < end; b->lines++)
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
    return p;
}
/* Parses all of the block. Returns NEO_ERR_MEMORY only (while fitting). */
static neo_status neo__block_parse_text(const neo_schema *s, const neo__parse_options *o,
                                        neo__block *b) {
    const char *p = neo__block_start(b), *end = b->raw + b->raw_bytes;
    neo_status fit_status = NEO_OK;
    int criteo = s->format == NEO_FORMAT_CRITEO;
    while (p < end && !b->failed && fit_status == NEO_OK) {
        if (p[0] == '\n' || (p[0] == '\r' && p[1] == '\n')) { /* blank */
            p += p[0] == '\n' ? 1 : 2;
            b->lines++;
            continue;
        }
        float *record = neo__block_record(s, b, b->count);
        neo__issue e;
        NEO_ASSERT(b->count < b->capacity);
        const char *next = criteo ? neo__criteo_line(s, o, p, record, &fit_status) : NULL;
        int sample = next != NULL;
        if (!next) {
            const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
            next = stop + 1;
            if (stop > p && stop[-1] == '\r') stop--;
            if (criteo)
                neo__criteo_issue(p, stop, o->unlabeled, &e);
            else
                sample = neo__delimited_line(s, o, b, p, stop, record, &e, &fit_status);
        }
        if (sample == 0) neo__block_bad(b, o, &e);
        b->lines++;
        if (sample == 1) {
            b->end_offset[b->count] = (uint32_t)(next - b->raw);
            b->end_line[b->count] = (uint32_t)b->lines;
            if (!o->fit)
                b->count++;
            else
                b->taken++;
        }
        p = next;
    }
    return fit_status;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-source

   A source hands out its files' text in blocks of whole lines, one after another: it fills a
   block, cuts it at the last line end and carries the rest over to the next. Blocks never span
   files. The arrays of a npy triple and synthetic samples are handed out in the same way, by rows;
   with a share, the rows of other ranks are there in number only.
   One thread at a time.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__source {
    neo_ctx *ctx;
    const neo_schema *schema;
    char **paths;
    int32_t path_count;
    int32_t file;   /* being read; path_count: all done */
    int64_t offset; /* in it, of the next block: bytes or rows */
    int open;
    int piped;          /* reads may wait for a writer */
    int fed;            /* by input, not by a file */
    neo_input input;    /* of standard input; or none */
    int at_end;         /* of the file: the carry is all that is left */
    int64_t skip_lines; /* lines at the start of the file still to be skipped */
    neo__file handle;
    char *carry; /* [NEO__CHUNK_BYTES] */
    size_t carry_bytes;
    int64_t rows; /* npy, synthetic: of this file */
    const int64_t *file_rows; /* npy: rows of the files before file i, when they were looked at; or NULL */
    const neo__share *share;  /* npy, synthetic: or NULL */
    int64_t sample;           /* rows handed out since the last seek */
    neo__file npy[NEO__NPY_FILES];
    neo__npy_info info[NEO__NPY_FILES];
    char *npy_path;  /* [NEO__NPY_FILES][NEO__PATH_BYTES] */
    const int *stop; /* atomic: give up waiting; or NULL */
} neo__source;

static neo_status neo__source_npy_open(neo__source *source);
static neo_status neo__source_npy(neo__source *source, neo__block *b);
static neo_status neo__source_synthetic(neo__source *source, neo__block *b);
static int64_t neo__synthetic_samples(const neo_schema *s);

static void neo__source_close_file(neo__source *source) {
    if (!source->open) return;
    if (source->schema->format == NEO_FORMAT_NPY)
        for (int i = 0; i < NEO__NPY_FILES; i++) (void)neo__file_close(&source->npy[i]);
    else if (source->schema->format != NEO_FORMAT_SYNTHETIC && !source->fed)
        (void)neo__file_close(&source->handle);
    source->open = 0;
}
static int neo__source_stopped(const neo__source *source) {
    return source->stop && __atomic_load_n(source->stop, __ATOMIC_RELAXED);
}
/* As neo__source_read_pipe, of the user's function. */
static neo_status neo__source_read_input(neo__source *source, char *data, size_t bytes,
                                         size_t *got) {
    neo_status status = NEO_OK;
    *got = 0;
    while (status == NEO_OK && *got == 0 && !neo__source_stopped(source)) {
        status = source->input.read(source->input.user, data, bytes, got);
        NEO__CHECK(*got <= bytes, NEO_ERR_ARG, "standard input: read gave %zu bytes, asked for %zu",
                   *got, bytes);
    }
    if (status != NEO_OK) *got = 0;
    return status == NEO_END ? NEO_OK : status;
}

/* Bytes of a pipe: what has come so far, waiting for the first; so that a slow writer's lines are
   not held back, and closing the reader need not wait for it. */
static neo_status neo__source_read_pipe(neo__source *source, char *data, size_t bytes,
                                        size_t *got) {
    if (source->fed) return neo__source_read_input(source, data, bytes, got);
#if defined(_WIN32)
    return neo__file_read(&source->handle, data, bytes, got);
#else
    struct pollfd wait;
    wait.fd = source->handle.fd;
    wait.events = POLLIN;
    *got = 0;
    for (;;) {
        int ready = poll(&wait, 1, source->stop ? 50 : -1);
        if (neo__source_stopped(source)) return NEO_OK;
        if (ready <= 0) {
            if (ready < 0 && errno != EINTR)
                return neo__file_fail(source->handle.path, "wait for data");
            continue;
        }
        ssize_t n = read(source->handle.fd, data, bytes);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return neo__file_fail(source->handle.path, "read");
        *got = (size_t)n;
        return NEO_OK;
    }
#endif
}
NEO__COLD_BEGIN
/* Fewer bytes than asked for: the end (of a pipe: 0 bytes). */
static neo_status neo__source_fill(neo__source *source, char *data, size_t bytes, size_t *got) {
    *got = 0;
    if (!source->piped) {
        NEO__TRY(neo__file_read(&source->handle, data, bytes, got));
        if (*got < bytes) source->at_end = 1;
        return NEO_OK;
    }
    while (*got < bytes) {
        size_t n;
        NEO__TRY(neo__source_read_pipe(source, data + *got, bytes - *got, &n));
        if (n == 0) {
            source->at_end = 1;
            return NEO_OK;
        }
        int line = memchr(data + *got, '\n', n) != NULL;
        *got += n;
        if (line) break; /* something to go on with */
    }
    return NEO_OK;
}
static neo_status neo__source_open_text(neo__source *source) {
    const char *path = source->paths[source->file];
    int64_t offset = source->offset;
    source->fed = source->input.read && strcmp(path, "-") == 0;
    if (strcmp(path, "-") == 0)
        neo__file_stdin(&source->handle);
    else
        NEO__TRY(neo__file_open(&source->handle, path, NEO__FILE_READ));
    source->open = 1;
    source->at_end = 0;
    source->carry_bytes = 0;
    source->skip_lines = offset == 0 ? source->schema->skip_lines : 0;
    int64_t size = source->fed ? -1 : neo__file_size(&source->handle);
    source->piped = size < 0;
    if (offset == 0 || source->piped) {
        size_t got = 1;
        for (int64_t left = offset; left > 0 && got > 0;
             left -= (int64_t)got) /* read forward and drop */
            NEO__TRY(neo__source_read_pipe(
                source, source->carry, (size_t)NEO__MIN(left, (int64_t)NEO__CHUNK_BYTES), &got));
        return NEO_OK;
    }
    char before = '\n';
    NEO__CHECK(offset <= size, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " bytes, the saved position is at byte %" PRId64, path, size,
               offset);
    if (offset < size) NEO__TRY(neo__file_read_at(&source->handle, offset - 1, &before, 1));
    NEO__CHECK(before == '\n', NEO_ERR_MISMATCH,
               "%s: no line starts at byte %" PRId64 ", where the saved position is", path,
               offset);
    return neo__file_seek(&source->handle, offset);
}
/* Compressed text is known by its first bytes, and better refused by its name than by its first line. */
static neo_status neo__source_refuse_compressed(const char *path, const char *text, size_t bytes) {
    static const struct {
        const char *magic;
        size_t bytes;
        const char *name;
    } formats[] = {{"\x1F\x8B", 2, "gzip"},
                   {"\x28\xB5\x2F\xFD", 4, "zstd"},
                   {"\xFD\x37zXZ", 5, "xz"},
                   {"PK\x03\x04", 4, "zip"}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        NEO__CHECK(bytes < formats[i].bytes || memcmp(text, formats[i].magic, formats[i].bytes) != 0,
                   NEO_ERR_FORMAT, "%s: is compressed with %s: unpack it, or pipe it in as standard input ('-')",
                   path, formats[i].name);
    return NEO_OK;
}
/* A line longer than a block: keep its beginning (which will be refused for its length), drop the
   rest. */
static neo_status neo__source_drop_line(neo__source *source, neo__block *b) {
    while (!source->at_end) {
        size_t got;
        NEO__TRY(neo__source_fill(source, source->carry, NEO__CHUNK_BYTES, &got));
        const char *stop = (const char *)memchr(source->carry, '\n', got);
        size_t dropped = stop ? (size_t)(stop + 1 - source->carry) : got;
        b->bytes += (int64_t)dropped;
        if (!stop) {
            if (neo__source_stopped(source)) break;
            continue;
        }
        source->carry_bytes = got - dropped;
        memmove(source->carry, source->carry + dropped, source->carry_bytes);
        return NEO_OK;
    }
    return NEO_OK;
}
static neo_status neo__source_text(neo__source *source, neo__block *b) {
    size_t n = source->carry_bytes, got = 0;
    if (!source->open) NEO__TRY(neo__source_open_text(source));
    n = source->carry_bytes;
    memcpy(b->raw, source->carry, n);
    source->carry_bytes = 0;
    b->file = source->file;
    b->offset = source->offset;
    if (!source->at_end)
        NEO__TRY(neo__source_fill(source, b->raw + n, NEO__CHUNK_BYTES - n, &got));
    n += got;
    if (b->offset == 0) NEO__TRY(neo__source_refuse_compressed(neo__path_name(source->paths[b->file]), b->raw, n));
    size_t cut = n;
    if (!source->at_end)
        while (cut > 0 && b->raw[cut - 1] != '\n') cut--;
    b->bytes = (int64_t)cut;
    if (cut == 0 && n > 0) {
        if (n < NEO__CHUNK_BYTES) { /* a pipe: part of a line */
            memcpy(source->carry, b->raw, n);
            source->carry_bytes = n;
        } else {
            cut = n;
            b->bytes = (int64_t)n;
            NEO__TRY(neo__source_drop_line(source, b));
        }
    } else {
        source->carry_bytes = n - cut;
        memcpy(source->carry, b->raw + cut, n - cut);
    }
    b->raw_bytes = cut;
    if (cut > 0 && b->raw[cut - 1] != '\n') b->raw[b->raw_bytes++] = '\n';
    memset(b->raw + b->raw_bytes, '\n', NEO__BLOCK_PAD);
    for (const char *p = b->raw, *end = p + b->raw_bytes; p < end && source->skip_lines > 0; p++) {
        p = (const char *)memchr(p, '\n', (size_t)(end - p));
        b->skip_lines++;
        source->skip_lines--;
    }
    source->offset += b->bytes;
    b->file_end = source->at_end && source->carry_bytes == 0;
    return NEO_OK;
}

/* neo__source_next: the next block; b->end when there is none. A failure is in b->status too. */
static neo_status neo__source_next(neo__source *source, neo__block *b) {
    b->raw_bytes = 0;
    b->bytes = b->count = 0;
    b->file_end = b->end = b->failed = 0;
    b->lines = b->bad = b->taken = b->skip_lines = 0;
    b->issue_count = 0;
    b->file = source->file;
    b->offset = source->offset;
    b->share = source->share;
    b->sample = source->sample;
    b->status = NEO_OK;
    if (source->file == source->path_count) {
        b->end = 1;
        return NEO_OK;
    }
    switch (source->schema->format) {
    case NEO_FORMAT_NPY: b->status = neo__source_npy(source, b); break;
    case NEO_FORMAT_SYNTHETIC: b->status = neo__source_synthetic(source, b); break;
    case NEO_FORMAT_CRITEO:
    case NEO_FORMAT_DELIMITED: b->status = neo__source_text(source, b); break;
    }
    if (b->status != NEO_OK) {
        memcpy(b->error, neo_last_error(), sizeof b->error);
    } else if (b->file_end) {
        neo__source_close_file(source);
        source->file++;
        source->offset = 0;
    }
    return b->status;
}
/* Start (again) at a place. */
static void neo__source_seek(neo__source *source, int32_t file, int64_t offset) {
    neo__source_close_file(source);
    source->file = file;
    source->offset = offset;
    source->carry_bytes = 0;
    source->at_end = 0;
    source->sample = 0;
}
static void neo__source_destroy(neo__source *source) {
    if (!source->ctx) return;
    neo__source_close_file(source);
    for (int32_t i = 0; source->paths && i < source->path_count; i++)
        neo__string_free(source->ctx, source->paths[i]);
    neo_free(source->ctx, source->paths, (size_t)source->path_count * sizeof(char *));
    neo_free(source->ctx, source->carry, NEO__CHUNK_BYTES);
    neo_free(source->ctx, source->npy_path, NEO__NPY_FILES * NEO__PATH_BYTES);
    memset(source, 0, sizeof *source);
}
static neo_status neo__source_create(neo__source *source, const char *function,
                                     const neo_schema *schema, const char *const *paths,
                                     int32_t path_count) {
    neo_ctx *ctx = schema->ctx;
    int input = 0;
    memset(source, 0, sizeof *source);
    if (schema->format == NEO_FORMAT_SYNTHETIC) {
        NEO__CHECK(path_count == 0, NEO_ERR_ARG, "%s: synthetic data takes no paths", function);
        source->ctx = ctx;
        source->schema = schema;
        return NEO_OK;
    }
    NEO__CHECK(path_count >= 1 && paths, NEO_ERR_ARG, "%s: no paths", function);
    for (int32_t i = 0; i < path_count; i++) {
        NEO__CHECK(paths[i] && paths[i][0], NEO_ERR_ARG, "%s: path %d is empty", function, i);
        input += strcmp(paths[i], "-") == 0;
    }
    NEO__CHECK(input <= 1, NEO_ERR_ARG, "%s: standard input ('-') is there twice", function);
    NEO__CHECK(input == 0 || schema->format != NEO_FORMAT_NPY, NEO_ERR_ARG,
               "%s: npy triples cannot come from standard input", function);
    source->ctx = ctx;
    source->schema = schema;
    source->path_count = path_count;
    source->paths = (char **)neo__alloc_zero(ctx, (size_t)path_count * sizeof(char *));
    source->carry = (char *)neo_alloc(ctx, NEO__CHUNK_BYTES);
    source->npy_path = (char *)neo__alloc_zero(ctx, NEO__NPY_FILES * NEO__PATH_BYTES);
    int ok = source->paths && source->carry && source->npy_path;
    for (int32_t i = 0; ok && i < path_count; i++)
        ok = (source->paths[i] = neo__string_copy(ctx, paths[i])) != NULL;
    if (ok) return NEO_OK;
    neo__source_destroy(source);
    return neo_fail(NEO_ERR_MEMORY, "%s: no memory for %d paths", function, path_count);
}

/* ---- blocks ---- */
/* Rows of npy arrays or synthetic samples in a block. */
static int64_t neo__block_rows(const neo_schema *s) {
    size_t bytes = (size_t)(s->dense_count + 1) * 8 + (size_t)s->feature_count * 8;
    int64_t rows = (int64_t)(NEO__CHUNK_BYTES / bytes);
    return NEO__MAX(rows, 1);
}
static void neo__block_destroy(neo_ctx *ctx, const neo_schema *s, neo__block *b) {
    size_t n = (size_t)b->capacity;
    size_t raw =
        NEO__MAX((size_t)NEO__CHUNK_BYTES,
                 (size_t)neo__block_rows(s) * (size_t)(s->dense_count + 1 + s->feature_count) * 8);
    neo_free(ctx, b->raw, raw + 1 + NEO__BLOCK_PAD);
    neo_free(ctx, b->records, neo__size_mul(n, s->record_bytes));
    neo_free(ctx, b->ids, (size_t)b->id_capacity * sizeof(int64_t));
    neo_free(ctx, b->end_offset, n * sizeof(uint32_t));
    neo_free(ctx, b->end_line, n * sizeof(uint32_t));
    neo_free(ctx, b->fields, (size_t)b->field_capacity * sizeof(neo__text));
    memset(b, 0, sizeof *b);
}
static neo_status neo__block_create(neo_ctx *ctx, const neo_schema *s, int unlabeled,
                                    neo__block *b) {
    int text = s->format == NEO_FORMAT_CRITEO || s->format == NEO_FORMAT_DELIMITED;
    size_t raw =
        NEO__MAX((size_t)NEO__CHUNK_BYTES,
                 (size_t)neo__block_rows(s) * (size_t)(s->dense_count + 1 + s->feature_count) * 8);
    memset(b, 0, sizeof *b);
    b->capacity = text ? (int64_t)((NEO__CHUNK_BYTES + 1) / neo__least_line(s, unlabeled)) + 2
                       : neo__block_rows(s);
    b->field_capacity = s->column_count;
    if (s->multi) b->id_capacity = neo__block_ids(s, b->capacity);
    size_t n = (size_t)b->capacity;
    b->raw = (char *)neo_alloc(ctx, raw + 1 + NEO__BLOCK_PAD);
    b->records = (char *)neo_alloc(ctx, neo__size_mul(n, s->record_bytes));
    b->ids = (int64_t *)neo_alloc(ctx, (size_t)b->id_capacity * sizeof(int64_t));
    b->end_offset = (uint32_t *)neo_alloc(ctx, n * sizeof(uint32_t));
    b->end_line = (uint32_t *)neo_alloc(ctx, n * sizeof(uint32_t));
    b->fields = (neo__text *)neo_alloc(ctx, (size_t)b->field_capacity * sizeof(neo__text));
    if (b->raw && b->records && b->ids && b->end_offset && b->end_line && b->fields) return NEO_OK;
    neo__block_destroy(ctx, s, b);
    return neo_fail(NEO_ERR_MEMORY, "no memory for a block of %zu samples of %zu bytes", n,
                     s->record_bytes);
}
/* "file:line:column: message" of an issue, its block starting at `line`. */
static void neo__issue_text(char *out, size_t bytes, const char *path, int64_t line,
                            const neo__issue *e) {
    if (e->column == 0)
        snprintf(out, bytes, "%.300s%s", path, e->text);
    else
        snprintf(out, bytes, "%.300s:%" PRId64 ":%" PRId64 ": %s", path, line + e->line, e->column,
                 e->text);
}

/* ---- fitting ---- */
typedef struct neo__fit {
    neo__source source;
    neo__block block;
    neo__parse_options options;
    int64_t line, samples, logged;
} neo__fit;

enum { NEO__LOG_BAD_LINES = 10 };
static neo_status neo__fit_block(neo_schema *s, neo__fit *fit) {
    neo__block *b = &fit->block;
    char text[NEO__ERROR_BYTES];
    NEO__TRY(neo__source_next(&fit->source, b));
    if (b->end) return NEO_END;
    const char *path = neo__path_name(fit->source.paths[b->file]);
    if (b->offset == 0) {
        fit->line = 1;
        fit->samples = 0;
    }
    NEO__CHECK(neo__block_parse_text(s, &fit->options, b) == NEO_OK, NEO_ERR_MEMORY,
               "neo_schema_fit: no memory for the dictionaries (%s)", path);
    for (int i = 0; i < b->issue_count; i++) {
        neo__issue_text(text, sizeof text, path, fit->line, &b->issues[i]);
        if (b->failed) return neo_fail(b->issues[i].status, "%s", text);
        if (fit->logged++ < NEO__LOG_BAD_LINES)
            neo_log(s->ctx, NEO_LOG_WARNING, "skipped: %s", text);
    }
    fit->line += b->lines;
    fit->samples += b->taken;
    NEO__CHECK(!b->file_end || fit->samples > 0, NEO_ERR_FORMAT, "%s: holds no sample", path);
    return NEO_OK;
}
NEO_API neo_status neo_schema_fit(neo_schema *s, const char *const *paths, int path_count,
                                  int skip_bad_lines) {
    NEO__CHECK(s, NEO_ERR_ARG, "neo_schema_fit: schema is NULL");
    if (s->dict_count == 0) return NEO_OK;
    NEO__CHECK(!s->fitted, NEO_ERR_STATE, "neo_schema_fit: the schema is fitted already");
    NEO__ZERO(neo__fit, fit);
    neo__dict *dicts =
        (neo__dict *)neo__alloc_zero(s->ctx, (size_t)s->feature_count * sizeof *dicts);
    NEO__CHECK(dicts, NEO_ERR_MEMORY, "neo_schema_fit: no memory for dictionaries");
    for (int32_t f = 0; f < s->feature_count; f++) dicts[f].max_words = s->dicts[f].max_words;
    fit.options.skip_bad = skip_bad_lines;
    fit.options.fit = dicts;
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__source_create(&fit.source, "neo_schema_fit", s, paths, path_count);
    if (status == NEO_OK) {
        status = neo__block_create(s->ctx, s, 0, &fit.block);
        while (status == NEO_OK) status = neo__fit_block(s, &fit);
        neo__block_destroy(s->ctx, s, &fit.block);
    }
    neo__source_destroy(&fit.source);
    neo__fp_leave(fp);
    neo__schema_install(s, dicts, status == NEO_END);
    return status == NEO_END ? NEO_OK : status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-reader

   A pipeline of three stages, run by the reader's threads under one lock, each in order of number:
     blocks   read (one thread at a time) and parsed (many at once) into records;
     windows  filled from the blocks in order (one thread at a time). A window is a whole number of
              batches; the last one of an epoch may be short. Its order is a permutation keyed
              by (seed, epoch, window number), or none;
     slots    this rank's part of batches, gathered from the windows (many at once), handed out in
              order by neo_reader_next.
   Which ranks there are matters to the last stage only: blocks, windows and positions are those of
   the whole stream on all of them.
   Each stage has a fixed number of buffers, and a thread takes the work nearest to the consumer
   that is ready, so memory is bounded, nothing waits in a circle, and what comes out depends on no
   timing. A position is the place in the files where a window starts and how many of its samples
   are used up; resuming reads that window again. Errors end the stream behind the windows
   completed before them.
   ------------------------------------------------------------------------------------------------ */
enum {
    NEO__WINDOWS = 2,
    NEO__WINDOW_LEAST = 512, /* samples: small batches share a window */
    NEO__SHUFFLE_MAX = 1 << 30
};
typedef struct neo__place {
    int32_t file;
    int64_t offset, line; /* line from 1 */
} neo__place;

typedef enum neo__window_state { NEO__WINDOW_FILLING, NEO__WINDOW_FULL } neo__window_state;
typedef struct neo__window {
    neo__window_state state;
    char *records; /* [window samples] */
    int64_t *ids;
    int64_t id_count, id_capacity;
    uint32_t *order; /* of the samples; NULL: as they come */
    int64_t number, count;
    int64_t first; /* number of its first sample in the epoch */
    int64_t batches, assigned, done;
    neo__place begin, end;
    int64_t bad_begin, bad_end; /* bad lines of the epoch before its begin and end */
} neo__window;

typedef enum neo__slot_state {
    NEO__SLOT_FREE,
    NEO__SLOT_BUSY,
    NEO__SLOT_READY,
    NEO__SLOT_OUT
} neo__slot_state;
typedef struct neo__slot {
    neo__slot_state state;
    float *dense, *label;
    int64_t *offsets, *ids, id_capacity;
    neo_batch batch;
    neo_position after;
    int64_t bad, bytes;
} neo__slot;

typedef struct neo__reader_thread {
    neo_reader *reader;
    neo__thread thread;
    neo__thread_start start;
} neo__reader_thread;

struct neo_reader {
    neo_ctx *ctx;
    const neo_schema *schema;
    neo_reader_desc desc;
    int64_t window_samples;
    int first_leaf, end_leaf; /* of every batch */
    neo__share share;         /* the same, where rows of other ranks need not be read */
    neo__parse_options options;
    int64_t *file_bytes; /* bytes of the files before file i; NULL: unknown */
    int64_t *file_rows;  /* npy: rows of them */
    int64_t total_bytes, total_samples;
    int has_input;  /* standard input is among the files */
    int touched;    /* it has been read from */
    uint64_t check; /* of what a position depends on */

    neo__mutex lock;
    neo__cond work, ready;
    neo__reader_thread *threads;
    int thread_count, started;
    int stop; /* atomic; workers leave their loop */
    int quit;

    neo__source source;
    neo__block *blocks;
    int block_count;
    uint8_t *parsed; /* per block: waits to be taken */
    int64_t read_number, fill_number;
    int reading, filling, read_done;
    neo__window windows[NEO__WINDOWS];
    int64_t fill_window, take_window;
    neo__place place; /* end of the last sample that went into a window */
    int64_t line_base, file_samples, logged, bad, samples_seen;
    int whole_file;      /* the file was read from its start: it must hold a sample */
    int64_t window_base; /* number of the first window after a seek */
    int64_t skip;        /* samples of it that are used up */
    neo__slot *slots;
    int slot_count;
    int64_t assign_number, next_number, end_number; /* batches; end_number -1: unknown */
    int64_t closed_batches;
    neo_status end_status;
    char end_text[NEO__ERROR_BYTES];
    int64_t epoch;
    int hold; /* batches that the caller may hold */
    neo_position position;
    neo_reader_stats stats;
};

/* ---- filling windows ---- */
static uint64_t neo__shuffle_below(uint64_t bits, uint64_t n) { /* bits * n / 2^64, n < 2^32 */
    return ((bits >> 32) * n + (((bits & 0xFFFFFFFFu) * n) >> 32)) >> 32;
}
/* Fisher-Yates; the number for place i is block i / 2 of the stream, its low or high half. */
static void neo__window_shuffle(const neo_reader *r, neo__window *w) {
    char name[64];
    uint32_t block[4] = {0, 0, 0, 0};
    uint64_t loaded = (uint64_t)-1;
    snprintf(name, sizeof name, "reader.window.%" PRId64, w->number);
    neo__random_key key =
        neo__random_key_make(r->ctx->seed, neo_hash(name), r->epoch, NEO_STREAM_SHUFFLE);
    for (int64_t i = 0; i < w->count; i++) w->order[i] = (uint32_t)i;
    for (int64_t i = w->count - 1; i > 0; i--) {
        if ((uint64_t)i / 2 != loaded) {
            loaded = (uint64_t)i / 2;
            neo__random_block(&key, loaded, block);
        }
        const uint32_t *half = block + 2 * (i & 1);
        uint64_t j = neo__shuffle_below((uint64_t)half[0] << 32 | half[1], (uint64_t)i + 1);
        uint32_t swap = w->order[i];
        w->order[i] = w->order[j];
        w->order[j] = swap;
    }
}
/* Count of an array that must hold `need`: doubled until it does. NULL: no memory. */
static int neo__reader_grow(neo_reader *r, int64_t **array, int64_t *capacity, int64_t need,
                            int64_t keep) {
    if (need <= *capacity) return 1;
    int64_t n = NEO__MAX(2 * *capacity, need);
    int64_t *p = (int64_t *)neo_alloc(r->ctx, neo__size_mul((size_t)n, sizeof *p));
    if (!p) return 0;
    memcpy(p, *array, (size_t)keep * sizeof *p);
    neo_free(r->ctx, *array, (size_t)*capacity * sizeof *p);
    *array = p;
    *capacity = n;
    __atomic_fetch_add(&r->stats.grow_count, 1, __ATOMIC_RELAXED);
    return 1;
}
/* Samples [b->taken, b->taken + n) of the block to the end of the window. */
static neo_status neo__window_append(neo_reader *r, neo__window *w, neo__block *b, int64_t n) {
    const neo_schema *s = r->schema;
    char *to = w->records + (size_t)w->count * s->record_bytes;
    const char *from = b->records + (size_t)b->taken * s->record_bytes;
    memcpy(to, from, (size_t)n * s->record_bytes);
    if (s->multi) {
        int64_t first = neo__record_ids(s, neo__block_record(s, b, b->taken))[0];
        int64_t *last = neo__record_ids(s, neo__block_record(s, b, b->taken + n - 1));
        int64_t ids = last[0] + last[s->feature_count] - first;
        NEO__CHECK(neo__reader_grow(r, &w->ids, &w->id_capacity, w->id_count + ids, w->id_count),
                   NEO_ERR_MEMORY, "neo_reader_next: no memory for a window of %" PRId64 " ids",
                   w->id_count + ids);
        memcpy(w->ids + w->id_count, b->ids + first, (size_t)ids * sizeof(int64_t));
        for (int64_t i = 0; i < n; i++)
            neo__record_ids(s, to + (size_t)i * s->record_bytes)[0] += w->id_count - first;
        w->id_count += ids;
    }
    w->count += n;
    b->taken += n;
    return NEO_OK;
}
/* The window is as full as it will be. */
static void neo__window_close(neo_reader *r, neo__window *w) {
    w->end = r->place;
    w->bad_end = r->bad;
    w->batches = r->desc.drop_last ? w->count / r->desc.batch
                                   : (w->count + r->desc.batch - 1) / r->desc.batch;
    if (w->order) neo__window_shuffle(r, w);
}
static void neo__window_begin(neo_reader *r, neo__window *w, int64_t number) {
    w->state = NEO__WINDOW_FILLING;
    w->count = w->id_count = w->batches = w->assigned = w->done = 0;
    w->number = number;
    w->first = r->samples_seen;
    w->begin = r->place;
    w->bad_begin = r->bad;
}
NEO__COLD_BEGIN
/* What the block tells beside its samples, once these are taken. */
static neo_status neo__reader_block_done(neo_reader *r, neo__block *b) {
    char text[NEO__ERROR_BYTES];
    const char *path = r->source.paths ? neo__path_name(r->source.paths[b->file]) : "synthetic";
    for (int i = 0; i < b->issue_count; i++) {
        neo__issue_text(text, sizeof text, path, r->line_base, &b->issues[i]);
        if (b->failed) return neo_fail(b->issues[i].status, "%s", text);
        if (r->logged++ < NEO__LOG_BAD_LINES)
            neo_log(r->ctx, NEO_LOG_WARNING, "skipped: %s", text);
    }
    r->bad += b->bad;
    r->line_base += b->lines;
    NEO__CHECK(!b->file_end || !r->whole_file || r->file_samples > 0, NEO_ERR_FORMAT,
               "%s: holds no sample", path);
    return NEO_OK;
}
/* One step of the filling thread: from the block in turn into the window in turn. *window_done: it
   is full; *block_done: the block may be used again; *ended: this was all. */
static neo_status neo__reader_fill(neo_reader *r, neo__block *b, neo__window *w, int *window_done,
                                   int *block_done, int *ended) {
    *window_done = *block_done = *ended = 0;
    if (b->status != NEO_OK) return neo_fail(b->status, "%s", b->error);
    if (b->end) {
        neo__window_close(r, w);
        *ended = *window_done = *block_done = 1;
        return NEO_OK;
    }
    if (b->offset == 0 && b->taken == 0) {
        r->line_base = 1;
        r->file_samples = 0;
        r->whole_file = 1;
    }
    int64_t n = NEO__MIN(b->count - b->taken, r->window_samples - w->count);
    if (n > 0) {
        NEO__TRY(neo__window_append(r, w, b, n));
        int64_t next = (int64_t)b->end_offset[b->taken - 1];
        r->place.file = b->file;
        r->place.offset = b->offset + NEO__MIN(next, b->bytes);
        r->place.line = r->line_base + (int64_t)b->end_line[b->taken - 1];
        r->samples_seen += n;
        r->file_samples += n;
    }
    if (b->taken == b->count) {
        NEO__TRY(neo__reader_block_done(r, b));
        *block_done = 1;
    }
    if (w->count == r->window_samples) {
        neo__window_close(r, w);
        *window_done = 1;
    }
    return NEO_OK;
}
NEO__COLD_END

/* ---- gathering batches ---- */
static void neo__position_set(const neo_reader *r, neo_position *p, int64_t samples,
                              int64_t window, int64_t used, neo__place place) {
    p->word[0] = r->epoch;
    p->word[1] = samples;
    p->word[2] = place.file;
    p->word[3] = place.offset;
    p->word[4] = place.line;
    p->word[5] = window;
    p->word[6] = used;
    p->word[7] = (int64_t)r->check;
}
static void neo__gather_fixed(const neo_schema *s, const neo__window *w, int64_t first, int64_t n,
                              neo__slot *slot) {
    enum { TILE = 16 };
    int64_t features = s->feature_count, dense = s->dense_count;
    const int64_t *ids[TILE];
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t m = NEO__MIN(n - i, (int64_t)TILE);
        for (int64_t k = 0; k < m; k++) {
            int64_t at = w->order ? (int64_t)w->order[first + i + k] : first + i + k;
            const float *record =
                (const float *)(const void *)(w->records + (size_t)at * s->record_bytes);
            slot->label[i + k] = record[0];
            memcpy(slot->dense + (i + k) * dense, record + 1, (size_t)dense * sizeof(float));
            ids[k] = (const int64_t *)(const void *)((const char *)record + s->ids_offset);
        }
        for (int64_t t = 0; t < features; t++)
            for (int64_t k = 0; k < m; k++) slot->ids[t * n + i + k] = ids[k][t];
    }
    for (int64_t i = 0; i <= features * n; i++) slot->offsets[i] = i;
}
static neo_status neo__gather_multi(neo_reader *r, const neo__window *w, int64_t first, int64_t n,
                                    neo__slot *slot) {
    const neo_schema *s = r->schema;
    int64_t features = s->feature_count, dense = s->dense_count, total = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = w->order ? (int64_t)w->order[first + i] : first + i;
        const float *record =
            (const float *)(const void *)(w->records + (size_t)at * s->record_bytes);
        const int64_t *ends =
            (const int64_t *)(const void *)((const char *)record + s->ids_offset);
        slot->label[i] = record[0];
        memcpy(slot->dense + i * dense, record + 1, (size_t)dense * sizeof(float));
        for (int64_t t = 0; t < features; t++)
            slot->offsets[t * n + i + 1] = ends[t + 1] - (t ? ends[t] : 0);
    }
    slot->offsets[0] = 0;
    for (int64_t i = 0; i < features * n; i++)
        slot->offsets[i + 1] = total += slot->offsets[i + 1];
    NEO__CHECK(neo__reader_grow(r, &slot->ids, &slot->id_capacity, total, 0), NEO_ERR_MEMORY,
               "neo_reader_next: no memory for a batch of %" PRId64 " ids", total);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = w->order ? (int64_t)w->order[first + i] : first + i;
        const int64_t *ends =
            (const int64_t *)(const void *)(w->records + (size_t)at * s->record_bytes +
                                            s->ids_offset);
        const int64_t *ids = w->ids + ends[0];
        for (int64_t t = 0; t < features; t++) {
            int64_t from = t ? ends[t] : 0, to = slot->offsets[t * n + i];
            for (int64_t k = from; k < ends[t + 1]; k++) slot->ids[to + k - from] = ids[k];
        }
    }
    return NEO_OK;
}
/* Batch k of a window: this rank's share. */
static neo_status neo__reader_gather(neo_reader *r, const neo__window *w, int64_t k,
                                     neo__slot *slot) {
    const neo_schema *s = r->schema;
    int64_t begin = k * r->desc.batch, all = NEO__MIN(w->count - begin, r->desc.batch);
    int shards = r->ctx->repro_shards;
    int64_t first = begin + neo_leaf_begin(all, shards, r->first_leaf);
    int64_t n = begin + neo_leaf_begin(all, shards, r->end_leaf) - first;
    if (s->multi)
        NEO__TRY(neo__gather_multi(r, w, first, n, slot));
    else
        neo__gather_fixed(s, w, first, n, slot);
    slot->batch.dense = neo_tensor_2d(slot->dense, NEO_F32, n, s->dense_count);
    slot->batch.label = neo_tensor_1d(slot->label, NEO_F32, n);
    memset(&slot->batch.sparse, 0, sizeof slot->batch.sparse);
    slot->batch.sparse.batch = n;
    slot->batch.sparse.feature_count = s->feature_count;
    slot->batch.sparse.id_dtype = NEO_I64;
    slot->batch.sparse.offsets = slot->offsets;
    slot->batch.sparse.ids = slot->ids;
    slot->batch.first = w->first + first;
    slot->batch.size = n;
    slot->batch.global_size = all;
    int last = k + 1 == w->batches;
    int64_t samples = w->first + begin + all;
    if (last)
        neo__position_set(r, &slot->after, w->first + w->count, w->number + 1, 0, w->end);
    else
        neo__position_set(r, &slot->after, samples, w->number, begin + all, w->begin);
    slot->bad = last ? w->bad_end : w->bad_begin;
    slot->bytes = 0;
    if (r->file_bytes) {
        int64_t a = r->file_bytes[w->begin.file] + w->begin.offset,
                b = r->file_bytes[w->end.file] + w->end.offset;
        slot->bytes = a + (int64_t)((double)(b - a) * (double)(begin + all) / (double)w->count);
    }
    return NEO_OK;
}

/* ---- the threads ---- */
NEO__COLD_BEGIN
static void neo__reader_finish(neo_reader *r, neo_status status) { /* locked */
    r->end_number = r->closed_batches;
    r->end_status = status;
    if (status != NEO_END) memcpy(r->end_text, neo_last_error(), sizeof r->end_text);
    neo__cond_broadcast(&r->ready);
    neo__cond_broadcast(&r->work);
}
/* The window that batches are gathered from; NULL: none is full. Only windows in [take, fill) are
   looked at: the others belong to the filling thread. */
static neo__window *neo__reader_taken(neo_reader *r) {
    for (; r->take_window < r->fill_window; r->take_window++) {
        neo__window *w = &r->windows[r->take_window % NEO__WINDOWS];
        if (w->assigned < w->batches) return w;
    }
    return NULL;
}
static int neo__reader_try_gather(neo_reader *r) { /* locked, as the others */
    neo__window *w = neo__reader_taken(r);
    if (!w) return 0;
    int64_t number = r->assign_number;
    neo__slot *slot = &r->slots[number % r->slot_count];
    if (slot->state != NEO__SLOT_FREE) return 0;
    int64_t k = w->assigned++;
    r->assign_number++;
    slot->state = NEO__SLOT_BUSY;
    neo__mutex_unlock(&r->lock);
    neo_status status = neo__reader_gather(r, w, k, slot);
    neo__mutex_lock(&r->lock);
    if (status != NEO_OK && (r->end_number < 0 || number < r->end_number)) {
        r->closed_batches = number;
        neo__reader_finish(r, status);
    }
    slot->state = NEO__SLOT_READY;
    w->done++;
    neo__cond_broadcast(&r->ready);
    if (w->done == w->batches) neo__cond_broadcast(&r->work);
    return 1;
}
/* The window in turn, if it is free to be filled. */
static neo__window *neo__reader_window(neo_reader *r) {
    neo__window *w = &r->windows[r->fill_window % NEO__WINDOWS];
    if (w->state == NEO__WINDOW_FILLING) return w;
    if (w->done < w->batches) return NULL;
    (void)neo__reader_taken(r); /* step past it: it is used up */
    neo__window_begin(r, w, r->window_base + r->fill_window);
    return w;
}
static int neo__reader_try_fill(neo_reader *r) {
    int slot = (int)(r->fill_number % r->block_count);
    if (r->filling || r->end_number >= 0 || r->fill_number == r->read_number || !r->parsed[slot])
        return 0;
    neo__window *w = neo__reader_window(r);
    if (!w) return 0;
    neo__block *b = &r->blocks[slot];
    int window_done, block_done, ended;
    r->filling = 1;
    neo__mutex_unlock(&r->lock);
    neo_status status = neo__reader_fill(r, b, w, &window_done, &block_done, &ended);
    if (status == NEO_OK && window_done && r->skip > w->count)
        status = neo_fail(NEO_ERR_MISMATCH,
                           "the files hold fewer samples than when the position was saved");
    neo__mutex_lock(&r->lock);
    r->filling = 0;
    if (status != NEO_OK) {
        neo__reader_finish(r, status);
        return 1;
    }
    if (block_done) {
        r->parsed[slot] = 0;
        r->fill_number++;
    }
    if (window_done) {
        w->assigned = w->done =
            NEO__MIN((r->skip + r->desc.batch - 1) / r->desc.batch, w->batches);
        r->skip = 0;
        r->closed_batches += w->batches - w->assigned;
        w->state = NEO__WINDOW_FULL;
        r->fill_window++;
    }
    if (ended) neo__reader_finish(r, NEO_END);
    neo__cond_broadcast(&r->work);
    return 1;
}
static neo_status neo__block_parse(const neo_schema *s, const neo__parse_options *o,
                                   neo__block *b);
static int neo__reader_try_read(neo_reader *r) {
    int slot = (int)(r->read_number % r->block_count);
    if (r->reading || r->read_done || r->end_number >= 0) return 0;
    if (r->read_number - r->fill_number >= r->block_count) return 0;
    neo__block *b = &r->blocks[slot];
    r->reading = 1;
    r->parsed[slot] = 0;
    r->read_number++;
    neo__mutex_unlock(&r->lock);
    neo_status status = neo__source_next(&r->source, b);
    neo__mutex_lock(&r->lock);
    r->reading = 0;
    if (b->end || status != NEO_OK) r->read_done = 1;
    neo__cond_signal(&r->work); /* another may read on while this one parses */
    neo__mutex_unlock(&r->lock);
    if (status == NEO_OK && !b->end) (void)neo__block_parse(r->schema, &r->options, b);
    neo__mutex_lock(&r->lock);
    r->parsed[slot] = 1;
    neo__cond_broadcast(&r->work);
    return 1;
}
static void neo__reader_main(void *arg) {
    neo_reader *r = ((neo__reader_thread *)arg)->reader;
    neo__fp_state fp = neo__fp_enter();
    neo__mutex_lock(&r->lock);
    while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
        if (neo__reader_try_gather(r) || neo__reader_try_fill(r) || neo__reader_try_read(r))
            continue;
        neo__cond_wait(&r->work, &r->lock);
    }
    neo__mutex_unlock(&r->lock);
    neo__fp_leave(fp);
}
static void neo__reader_stop(neo_reader *r) {
    neo__mutex_lock(&r->lock);
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED);
    neo__cond_broadcast(&r->work);
    neo__mutex_unlock(&r->lock);
    for (int i = 0; i < r->started; i++) neo__thread_join(r->threads[i].thread);
    r->started = 0;
    __atomic_store_n(&r->stop, 0, __ATOMIC_RELAXED);
}
static neo_status neo__reader_start(neo_reader *r) {
    for (int i = 0; i < r->thread_count; i++) {
        neo__reader_thread *t = &r->threads[i];
        t->reader = r;
        t->start.fn = neo__reader_main;
        t->start.arg = t;
        if (!neo__thread_create(&t->thread, &t->start)) {
            neo__reader_stop(r);
            return neo_fail(NEO_ERR_SYSTEM, "neo_reader_next: cannot start thread %d of %d",
                             i + 1, r->thread_count);
        }
        r->started = i + 1;
    }
    r->touched = 1;
    return NEO_OK;
}

/* ---- open, close ---- */
/* Everything as before the first block; the threads are not running. */
static void neo__reader_reset(neo_reader *r, const neo_position *p) {
    r->epoch = p->word[0];
    r->place.file = (int32_t)p->word[2];
    r->place.offset = p->word[3];
    r->place.line = p->word[4];
    r->window_base = p->word[5];
    r->skip = p->word[6];
    r->samples_seen = p->word[1] - p->word[6];
    r->line_base = r->place.line;
    r->whole_file = 0;
    r->file_samples = r->bad = r->logged = 0;
    neo__source_seek(&r->source, r->place.file, r->place.offset);
    r->share.total = r->total_samples - r->place.offset;
    if (r->file_rows) r->share.total -= r->file_rows[r->place.file];
    for (int i = 0; i < r->block_count; i++) r->parsed[i] = 0;
    r->read_number = r->fill_number = 0;
    r->reading = r->filling = r->read_done = 0;
    r->fill_window = r->take_window = 0;
    neo__window_begin(r, &r->windows[0], r->window_base);
    for (int i = 1; i < NEO__WINDOWS; i++) {
        r->windows[i].state = NEO__WINDOW_FULL; /* and used up: free */
        r->windows[i].batches = r->windows[i].done = r->windows[i].assigned = 0;
    }
    for (int i = 0; i < r->slot_count; i++) r->slots[i].state = NEO__SLOT_FREE;
    r->assign_number = r->next_number = r->closed_batches = 0;
    r->end_number = -1;
    r->end_status = NEO_OK;
    r->position = *p;
    r->stats.samples = r->stats.bad_lines = 0;
    r->stats.bytes = r->file_bytes ? r->file_bytes[r->place.file] + r->place.offset : 0;
}
static void neo__reader_begin(neo_reader *r, int64_t epoch) {
    NEO__ZERO(neo_position, p);
    p.word[0] = epoch;
    p.word[4] = 1;
    p.word[7] = (int64_t)r->check;
    neo__reader_reset(r, &p);
}
/* No batch, full or not, has more for this rank. */
static size_t neo__slot_samples(const neo_reader *r) {
    int64_t shards = r->ctx->repro_shards, leaves = r->end_leaf - r->first_leaf;
    return (size_t)((r->desc.batch * leaves + shards - 1) / shards);
}
static neo_status neo__reader_memory(neo_reader *r) {
    const neo_schema *s = r->schema;
    neo_ctx *ctx = r->ctx;
    size_t n = (size_t)r->window_samples, b = neo__slot_samples(r), t = (size_t)s->feature_count;
    r->threads =
        (neo__reader_thread *)neo__alloc_zero(ctx, (size_t)r->thread_count * sizeof *r->threads);
    r->blocks = (neo__block *)neo__alloc_zero(ctx, (size_t)r->block_count * sizeof *r->blocks);
    r->parsed = (uint8_t *)neo__alloc_zero(ctx, (size_t)r->block_count);
    r->slots = (neo__slot *)neo__alloc_zero(ctx, (size_t)r->slot_count * sizeof *r->slots);
    int ok = r->threads && r->blocks && r->parsed && r->slots;
    for (int i = 0; ok && i < r->block_count; i++)
        NEO__TRY(neo__block_create(ctx, s, r->desc.unlabeled, &r->blocks[i]));
    for (int i = 0; ok && i < NEO__WINDOWS; i++) {
        neo__window *w = &r->windows[i];
        w->id_capacity = s->multi ? (int64_t)neo__size_mul(n, 2 * t) : 0;
        w->records = (char *)neo_alloc(ctx, neo__size_mul(n, s->record_bytes));
        w->ids =
            (int64_t *)neo_alloc(ctx, neo__size_mul((size_t)w->id_capacity, sizeof(int64_t)));
        if (r->desc.shuffle_window)
            w->order = (uint32_t *)neo_alloc(ctx, neo__size_mul(n, sizeof(uint32_t)));
        ok = w->records && w->ids && (w->order || !r->desc.shuffle_window);
    }
    for (int i = 0; ok && i < r->slot_count; i++) {
        neo__slot *slot = &r->slots[i];
        slot->id_capacity = (int64_t)neo__size_mul(b, s->multi ? 2 * t : t);
        slot->label = (float *)neo_alloc(ctx, neo__size_mul(b, sizeof(float)));
        slot->dense =
            (float *)neo_alloc(ctx, neo__size_mul(b, (size_t)s->dense_count * sizeof(float)));
        slot->offsets =
            (int64_t *)neo_alloc(ctx, neo__size_mul(neo__size_mul(b, t) + 1, sizeof(int64_t)));
        slot->ids =
            (int64_t *)neo_alloc(ctx, neo__size_mul((size_t)slot->id_capacity, sizeof(int64_t)));
        ok = slot->label && slot->dense && slot->offsets && slot->ids;
    }
    NEO__CHECK(ok, NEO_ERR_MEMORY,
               "neo_reader_open: no memory for batches of %zu samples, windows of %zu", b, n);
    return NEO_OK;
}
static void neo__reader_free(neo_reader *r) {
    neo_ctx *ctx = r->ctx;
    const neo_schema *s = r->schema;
    size_t n = (size_t)r->window_samples, b = neo__slot_samples(r), t = (size_t)s->feature_count;
    for (int i = 0; r->blocks && i < r->block_count; i++)
        if (r->blocks[i].raw) neo__block_destroy(ctx, s, &r->blocks[i]);
    for (int i = 0; i < NEO__WINDOWS; i++) {
        neo__window *w = &r->windows[i];
        neo_free(ctx, w->records, neo__size_mul(n, s->record_bytes));
        neo_free(ctx, w->ids, (size_t)w->id_capacity * sizeof(int64_t));
        neo_free(ctx, w->order, n * sizeof(uint32_t));
    }
    for (int i = 0; r->slots && i < r->slot_count; i++) {
        neo__slot *slot = &r->slots[i];
        neo_free(ctx, slot->label, b * sizeof(float));
        neo_free(ctx, slot->dense, b * (size_t)s->dense_count * sizeof(float));
        neo_free(ctx, slot->offsets, (b * t + 1) * sizeof(int64_t));
        neo_free(ctx, slot->ids, (size_t)slot->id_capacity * sizeof(int64_t));
    }
    neo_free(ctx, r->slots, (size_t)r->slot_count * sizeof *r->slots);
    neo_free(ctx, r->parsed, (size_t)r->block_count);
    neo_free(ctx, r->blocks, (size_t)r->block_count * sizeof *r->blocks);
    neo_free(ctx, r->threads, (size_t)r->thread_count * sizeof *r->threads);
    neo_free(ctx, r->file_bytes, ((size_t)r->source.path_count + 1) * sizeof(int64_t));
    neo_free(ctx, r->file_rows, ((size_t)r->source.path_count + 1) * sizeof(int64_t));
    neo__source_destroy(&r->source);
    neo_free(ctx, r, sizeof *r);
}
NEO_API void neo_reader_close(neo_reader *r) {
    if (!r) return;
    neo__reader_stop(r);
    neo__mutex_destroy(&r->lock);
    neo__cond_destroy(&r->work);
    neo__cond_destroy(&r->ready);
    neo__reader_free(r);
}

static neo_status neo__reader_check(neo_ctx *ctx, const neo_reader_desc *d) {
    NEO__CHECK(d->schema, NEO_ERR_ARG, "neo_reader_open: no schema");
    NEO__CHECK(d->schema->ctx == ctx, NEO_ERR_ARG,
               "neo_reader_open: the schema is of another context");
    NEO__CHECK(d->batch >= 1 && d->batch <= NEO__SHUFFLE_MAX, NEO_ERR_ARG,
               "neo_reader_open: batch is %" PRId64 ", not in 1 .. %d", d->batch,
               NEO__SHUFFLE_MAX);
    NEO__CHECK(d->shuffle_window >= 0 && d->shuffle_window <= NEO__SHUFFLE_MAX, NEO_ERR_ARG,
               "neo_reader_open: shuffle_window is %" PRId64 ", not in 0 .. %d", d->shuffle_window,
               NEO__SHUFFLE_MAX);
    int split = d->world_size > 0 && d->rank >= 0 && d->rank < d->world_size;
    NEO__CHECK(split || (d->world_size == 0 && d->rank == 0), NEO_ERR_ARG,
               "neo_reader_open: rank %d of %d", d->rank, d->world_size);
    NEO__CHECK(d->threads >= 0 && d->threads <= NEO__MAX_THREADS, NEO_ERR_ARG,
               "neo_reader_open: threads is %d, not in 0 .. %d", d->threads, NEO__MAX_THREADS);
    NEO__CHECK(d->prefetch >= 0 && d->prefetch <= 4096, NEO_ERR_ARG,
               "neo_reader_open: prefetch is %d, not in 0 .. 4096", d->prefetch);
    NEO__CHECK(d->hold >= 0 && d->hold <= 4096, NEO_ERR_ARG,
               "neo_reader_open: hold is %d, not in 0 .. 4096", d->hold);
    NEO__CHECK(d->world_size <= neo_ctx_repro_shards(ctx), NEO_ERR_ARG,
               "neo_reader_open: %d ranks share the leaves of a batch, of which there are %d: set "
               "repro_shards of every rank's context to %d or more",
               d->world_size, neo_ctx_repro_shards(ctx), d->world_size);
    NEO__CHECK(d->unlabeled || d->schema->format != NEO_FORMAT_DELIMITED ||
                   d->schema->label_column >= 0,
               NEO_ERR_ARG,
               "neo_reader_open: no column of the description is the label (desc.unlabeled allows it)");
    NEO__CHECK(d->schema->fitted, NEO_ERR_STATE,
               "neo_reader_open: the schema's dictionaries are not built yet: call "
               "neo_schema_fit, or load "
               "a checkpoint");
    return NEO_OK;
}
/* Every triple is there; their rows. */
static neo_status neo__reader_look_npy(neo_reader *r) {
    int32_t count = r->source.path_count;
    int64_t *rows = (int64_t *)neo__alloc_zero(r->ctx, ((size_t)count + 1) * sizeof(int64_t));
    NEO__CHECK(rows, NEO_ERR_MEMORY, "neo_reader_open: no memory for %d paths", count);
    r->file_rows = rows;
    for (int32_t i = 0; i < count; i++) {
        neo__source_seek(&r->source, i, 0);
        NEO__TRY(neo__source_npy_open(&r->source));
        rows[i + 1] = rows[i] + r->source.rows;
        neo__source_close_file(&r->source);
    }
    r->total_samples = rows[count];
    r->source.file_rows = rows;
    return NEO_OK;
}
/* Every file is there; their sizes. */
static neo_status neo__reader_look(neo_reader *r) {
    int32_t count = r->source.path_count;
    int64_t *sizes = (int64_t *)neo__alloc_zero(r->ctx, ((size_t)count + 1) * sizeof(int64_t));
    NEO__CHECK(sizes, NEO_ERR_MEMORY, "neo_reader_open: no memory for %d paths", count);
    r->file_bytes = sizes;
    int known = 1, input = 0;
    for (int32_t i = 0; i < count; i++) {
        int64_t size = -1;
        if (strcmp(r->source.paths[i], "-") == 0) {
            input = r->has_input = 1;
        } else if (neo__path_look(r->source.paths[i]) !=
                   NEO__PATH_OTHER) { /* opening a pipe takes from it */
            neo__file f;
            NEO__TRY(neo__file_open(&f, r->source.paths[i], NEO__FILE_READ));
            size = neo__file_size(&f);
            (void)neo__file_close(&f);
        } else {
            r->has_input = 1;
        }
        if (size < 0) known = 0;
        sizes[i + 1] = sizes[i] + NEO__MAX(size, 0);
    }
    r->total_bytes = known ? sizes[count] : 0;
    if (!known) {
        neo_free(r->ctx, sizes, ((size_t)count + 1) * sizeof(int64_t));
        r->file_bytes = NULL;
    }
    NEO__CHECK(input || !r->desc.input.read, NEO_ERR_ARG,
               "neo_reader_open: desc.input is set, but no path is '-'");
    NEO__CHECK(!input || r->desc.input.read || r->desc.world_size == 1, NEO_ERR_ARG,
               "neo_reader_open: standard input ('-') is one process's, and there are %d ranks: set "
               "desc.input (neo_comm_input of neo_comm.h gives it to all)",
               r->desc.world_size);
    return NEO_OK;
}
static uint64_t neo__reader_key(const neo_reader *r) {
    uint64_t h = neo__mix64((uint64_t)r->schema->format + 1);
    h = neo__mix64(h + (uint64_t)r->schema->feature_count * 4096 +
                   (uint64_t)r->schema->dense_count);
    h = neo__mix64(h + (uint64_t)r->desc.batch);
    h = neo__mix64(h + (uint64_t)r->window_samples * 2 + (r->desc.shuffle_window != 0));
    if (r->desc.shuffle_window) h = neo__mix64(h + r->ctx->seed);
    return neo__mix64(h + (uint64_t)r->source.path_count) >> 1;
}
static neo_status neo__reader_init(neo_reader *r) {
    neo_reader_desc *d = &r->desc;
    NEO__TRY(
        neo__source_create(&r->source, "neo_reader_open", r->schema, d->paths, d->path_count));
    if (r->schema->format == NEO_FORMAT_SYNTHETIC) {
        r->source.path_count = 1; /* as one file */
        r->total_samples = neo__synthetic_samples(r->schema);
    } else if (r->schema->format == NEO_FORMAT_NPY) {
        NEO__TRY(neo__reader_look_npy(r));
    } else {
        NEO__TRY(neo__reader_look(r));
    }
    r->source.input = d->input;
    /* In file order a sample's number is its row's, unless bad rows are skipped. */
    int rows = r->schema->format == NEO_FORMAT_SYNTHETIC ||
               (r->schema->format == NEO_FORMAT_NPY && !d->skip_bad_lines);
    r->share.batch = d->batch;
    r->share.shards = r->ctx->repro_shards;
    r->share.first = r->first_leaf;
    r->share.end = r->end_leaf;
    if (rows && d->world_size > 1 && !d->shuffle_window) r->source.share = &r->share;
    int64_t least =
        r->has_input ? 1 : NEO__WINDOW_LEAST; /* a live stream: do not hold samples back */
    int64_t window = d->shuffle_window ? d->shuffle_window : least;
    r->window_samples = (window + r->desc.batch - 1) / r->desc.batch * r->desc.batch;
    r->source.stop = &r->stop;
    r->check = neo__reader_key(r);
    NEO__TRY(neo__reader_memory(r));
    r->stats.total_bytes = r->total_bytes;
    r->stats.total_samples = r->total_samples;
    neo__reader_begin(r, 0);
    return NEO_OK;
}
NEO_API neo_status neo_reader_open(neo_ctx *ctx, const neo_reader_desc *desc,
                                   neo_reader **reader) {
    NEO__CHECK(ctx && desc && reader, NEO_ERR_ARG, "neo_reader_open: an argument is NULL");
    *reader = NULL;
    NEO__TRY(neo__reader_check(ctx, desc));
    neo_reader *r = (neo_reader *)neo__alloc_zero(ctx, sizeof *r);
    NEO__CHECK(r, NEO_ERR_MEMORY, "neo_reader_open: no memory for a reader");
    r->ctx = ctx;
    r->schema = desc->schema;
    r->desc = *desc;
    if (r->desc.world_size == 0) r->desc.world_size = 1;
    r->first_leaf = (int)((int64_t)ctx->repro_shards * r->desc.rank / r->desc.world_size);
    r->end_leaf = (int)((int64_t)ctx->repro_shards * (r->desc.rank + 1) / r->desc.world_size);
    r->options.skip_bad = desc->skip_bad_lines;
    r->options.unlabeled = desc->unlabeled;
    r->thread_count = NEO__MAX(desc->threads, 1);
    r->block_count = 2 * r->thread_count + 2;
    r->hold = NEO__MAX(desc->hold, 1);
    r->slot_count = r->hold + (desc->prefetch ? desc->prefetch : 4);
    neo_status status = neo__reader_init(r);
    if (status != NEO_OK) {
        neo__reader_free(r);
        return status;
    }
    r->desc.paths = NULL; /* the source has copies */
    neo__mutex_init(&r->lock);
    neo__cond_init(&r->work);
    neo__cond_init(&r->ready);
    *reader = r;
    return NEO_OK;
}

/* ---- the caller's side ---- */
NEO_API neo_status neo_reader_next(neo_reader *r, neo_batch *batch) {
    NEO__CHECK(r && batch, NEO_ERR_ARG, "neo_reader_next: reader or batch is NULL");
    if (r->started == 0 && r->end_number < 0) NEO__TRY(neo__reader_start(r));
    neo__mutex_lock(&r->lock);
    if (r->next_number >= r->hold) { /* the oldest that the caller may hold */
        neo__slot *oldest = &r->slots[(r->next_number - r->hold) % r->slot_count];
        if (oldest->state == NEO__SLOT_OUT) oldest->state = NEO__SLOT_FREE;
        neo__cond_signal(&r->work);
    }
    neo__slot *slot = &r->slots[r->next_number % r->slot_count];
    int64_t began = 0;
    while (!(slot->state == NEO__SLOT_READY ||
             (r->end_number >= 0 && r->next_number >= r->end_number))) {
        if (!began) {
            began = neo_time_ns();
            r->stats.stall_count++;
        }
        neo__cond_wait(&r->ready, &r->lock);
    }
    if (began) r->stats.stall_ns += neo_time_ns() - began;
    neo_status status = NEO_OK;
    if (r->end_number >= 0 && r->next_number >= r->end_number) {
        status = r->end_status;
        r->stats.bad_lines = r->bad;
        if (status == NEO_END && r->file_bytes) r->stats.bytes = r->total_bytes;
    } else {
        slot->state = NEO__SLOT_OUT;
        r->next_number++;
        *batch = slot->batch;
        r->position = slot->after;
        r->stats.samples += slot->batch.size;
        r->stats.bad_lines = slot->bad;
        r->stats.bytes = slot->bytes;
    }
    neo__mutex_unlock(&r->lock);
    return status == NEO_OK || status == NEO_END ? status : neo_fail(status, "%s", r->end_text);
}
NEO_API neo_status neo_reader_epoch(neo_reader *r, int64_t epoch) {
    NEO__CHECK(r, NEO_ERR_ARG, "neo_reader_epoch: reader is NULL");
    NEO__CHECK(epoch >= 0, NEO_ERR_ARG, "neo_reader_epoch: epoch %" PRId64 " is negative", epoch);
    NEO__CHECK(!r->has_input || !r->touched, NEO_ERR_UNSUPPORTED,
               "neo_reader_epoch: standard input (or a pipe) cannot be read twice");
    neo__reader_stop(r);
    neo__reader_begin(r, epoch);
    return NEO_OK;
}
NEO_API neo_position neo_reader_position(const neo_reader *r) { return r->position; }
NEO_API neo_status neo_reader_seek(neo_reader *r, const neo_position *position) {
    NEO__CHECK(r && position, NEO_ERR_ARG, "neo_reader_seek: reader or position is NULL");
    const int64_t *w = position->word;
    NEO__CHECK(w[7] == (int64_t)r->check, NEO_ERR_MISMATCH,
               "neo_reader_seek: the position is of another schema, number of files, batch, "
               "window or seed");
    int good = w[0] >= 0 && w[1] >= 0 && w[2] >= 0 && w[2] <= r->source.path_count && w[3] >= 0 &&
               w[4] >= 0 && w[5] >= 0 && w[6] >= 0 && w[6] < r->window_samples && w[6] <= w[1];
    good = good && (w[2] < r->source.path_count || w[3] == 0);
    NEO__CHECK(good, NEO_ERR_ARG, "neo_reader_seek: the position holds numbers that cannot be");
    NEO__CHECK(
        !r->has_input || !r->touched, NEO_ERR_UNSUPPORTED,
        "neo_reader_seek: standard input (or a pipe) cannot be sought once reading has begun");
    neo__reader_stop(r);
    neo__reader_reset(r, position);
    return NEO_OK;
}
NEO_API neo_reader_stats neo_reader_get_stats(const neo_reader *r) {
    neo_reader_stats stats = r->stats;
    stats.grow_count = __atomic_load_n(&r->stats.grow_count, __ATOMIC_RELAXED);
    return stats;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-npy

   NumPy's array files: 6 bytes "\x93NUMPY", version (major, minor), the header's length (2 bytes
   in version 1, 4 in 2 and 3), the header - a Python dictionary with the keys descr, fortran_order
   and shape, padded with spaces and ended by \n - and the elements.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__NPY_HEADER_BYTES = 65536, NEO__NPY_EXPORT_BYTES = 128, NEO__NPY_MADE_BYTES = 256 };

typedef struct neo__npy_in {
    const char *path, *begin, *p, *end;
} neo__npy_in;
NEO__COLD_BEGIN
static neo_status neo__npy_fail(const neo__npy_in *in, neo_status status, const char *what) {
    return neo_fail(status, "%s: byte %d: %s", in->path, (int)(in->p - in->begin), what);
}
static void neo__npy_space(neo__npy_in *in) {
    while (in->p < in->end && (neo__is_space(*in->p) || *in->p == '\n')) in->p++;
}
static int neo__npy_char(neo__npy_in *in, char c) {
    neo__npy_space(in);
    if (in->p == in->end || *in->p != c) return 0;
    in->p++;
    return 1;
}
static int neo__npy_string(neo__npy_in *in, neo__text *t) {
    neo__npy_space(in);
    if (in->p == in->end || (*in->p != '\'' && *in->p != '"')) return 0;
    const char *stop = (const char *)memchr(in->p + 1, *in->p, (size_t)(in->end - in->p - 1));
    if (!stop) return 0;
    t->p = in->p + 1;
    t->bytes = (size_t)(stop - t->p);
    in->p = stop + 1;
    return 1;
}
static neo_status neo__npy_descr(neo__npy_in *in, neo__npy_info *info) {
    static const struct {
        char text[3];
        neo_dtype dtype;
        int f64;
        size_t bytes;
    } known[] = {{"f4", NEO_F32, 0, 4}, {"f2", NEO_F16, 0, 2}, {"f8", NEO_F32, 1, 8},
                 {"i1", NEO_I8, 0, 1},  {"u1", NEO_U8, 0, 1},  {"i4", NEO_I32, 0, 4},
                 {"i8", NEO_I64, 0, 8}};
    const char *start = in->p;
    neo__text t;
    if (!neo__npy_string(in, &t))
        return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "descr is not one plain type");
    for (size_t i = 0; t.bytes == 3 && i < sizeof known / sizeof known[0]; i++) {
        if (t.p[1] != known[i].text[0] || t.p[2] != known[i].text[1]) continue;
        in->p = start;
        if (t.p[0] == '>' && known[i].bytes > 1)
            return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "big-endian elements are not supported");
        if (!strchr("<=|>", t.p[0])) break;
        in->p = t.p + 4;
        info->dtype = known[i].dtype;
        info->f64 = known[i].f64;
        info->item_bytes = known[i].bytes;
        return NEO_OK;
    }
    in->p = start;
    return neo_fail(NEO_ERR_UNSUPPORTED, "%s: byte %d: elements of type %s are not supported",
                     in->path, (int)(in->p - in->begin), neo__quote(t.p, t.bytes).text);
}
static neo_status neo__npy_shape(neo__npy_in *in, neo__npy_info *info) {
    info->ndim = 0;
    if (!neo__npy_char(in, '('))
        return neo__npy_fail(in, NEO_ERR_FORMAT, "expected ( of the shape");
    while (!neo__npy_char(in, ')')) {
        int64_t n = 0;
        int digits = 0;
        neo__npy_space(in);
        for (; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++, digits++) {
            if (n > (INT64_MAX - 9) / 10)
                return neo__npy_fail(in, NEO_ERR_FORMAT, "the shape overflows");
            n = n * 10 + (*in->p - '0');
        }
        if (digits == 0)
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected a length in the shape");
        if (info->ndim == NEO_MAX_DIMS)
            return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "more than 4 dimensions");
        info->shape[info->ndim++] = n;
        if (neo__npy_char(in, ',')) continue;
        if (!neo__npy_char(in, ')'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected , or ) in the shape");
        break;
    }
    if (info->ndim == 0) info->shape[info->ndim++] = 1;
    return NEO_OK;
}
static neo_status neo__npy_dictionary(neo__npy_in *in, neo__npy_info *info) {
    int seen = 0;
    if (!neo__npy_char(in, '{'))
        return neo__npy_fail(in, NEO_ERR_FORMAT, "expected { of the header");
    while (!neo__npy_char(in, '}')) {
        neo__text key;
        int bit = 0;
        neo__npy_space(in);
        const char *start = in->p;
        if (!neo__npy_string(in, &key))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected a key in quotes");
        bit = neo__text_is(key, "descr")           ? 1
              : neo__text_is(key, "fortran_order") ? 2
              : neo__text_is(key, "shape")         ? 4
                                                   : 0;
        if (bit == 0 || (seen & bit)) {
            in->p = start;
            return neo__npy_fail(in, NEO_ERR_FORMAT,
                                 "expected the keys descr, fortran_order and shape, once each");
        }
        seen |= bit;
        if (!neo__npy_char(in, ':'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected : after the key");
        neo__npy_space(in);
        if (bit == 1) {
            NEO__TRY(neo__npy_descr(in, info));
        } else if (bit == 4) {
            NEO__TRY(neo__npy_shape(in, info));
        } else if (in->end - in->p >= 5 && memcmp(in->p, "False", 5) == 0) {
            in->p += 5;
        } else if (in->end - in->p >= 4 && memcmp(in->p, "True", 4) == 0) {
            return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "Fortran order is not supported");
        } else {
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected True or False");
        }
        if (neo__npy_char(in, ',')) continue;
        if (!neo__npy_char(in, '}'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected , or } in the header");
        break;
    }
    if (seen != 7)
        return neo__npy_fail(in, NEO_ERR_FORMAT, "the header lacks descr, fortran_order or shape");
    neo__npy_space(in);
    return in->p == in->end ? NEO_OK
                            : neo__npy_fail(in, NEO_ERR_FORMAT, "text after the header's }");
}
/* Bytes before the header's text; 0: the 12 bytes at data are not the start of such a file. */
static size_t neo__npy_prefix(const unsigned char *data, size_t *header_bytes) {
    if (memcmp(data, "\x93NUMPY", 6) != 0 || data[6] < 1 || data[6] > 3) return 0;
    *header_bytes = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] == 1) return 10;
    *header_bytes |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    return 12;
}
/* data: at least 12 bytes, and the file's whole header if it is at most NEO__NPY_HEADER_BYTES
   long. */
static neo_status neo__npy_parse(const char *path, const char *data, size_t bytes,
                                 neo__npy_info *info) {
    size_t header = 0;
    neo__npy_in in;
    memset(info, 0, sizeof *info);
    in.path = path;
    in.begin = in.p = data;
    in.end = data + bytes;
    size_t prefix = bytes < 12 ? 0 : neo__npy_prefix((const unsigned char *)data, &header);
    if (prefix == 0)
        return neo__npy_fail(&in, NEO_ERR_FORMAT, "not a NumPy array of version 1 to 3");
    in.p += 8;
    if (header > NEO__NPY_HEADER_BYTES - prefix || header > bytes - prefix)
        return neo__npy_fail(&in, NEO_ERR_FORMAT,
                             "the header is longer than the file, or than 64 KiB");
    in.p = data + prefix;
    in.end = in.p + header;
    NEO__TRY(neo__npy_dictionary(&in, info));
    info->data_offset = (int64_t)(prefix + header);
    size_t size = info->item_bytes;
    for (int i = 0; i < info->ndim; i++) size = neo__size_mul(size, (size_t)info->shape[i]);
    if (size > SIZE_MAX / 2)
        return neo__npy_fail(&in, NEO_ERR_FORMAT, "the array's size overflows");
    return NEO_OK;
}
static int64_t neo__npy_count(const neo__npy_info *info) {
    int64_t n = 1;
    for (int i = 0; i < info->ndim; i++) n *= info->shape[i];
    return n;
}
/* Open a file, read its header, check its size. The file is closed again on failure. */
static neo_status neo__npy_open(neo_ctx *ctx, neo__file *f, const char *path,
                                neo__npy_info *info) {
    NEO__TRY(neo__file_open(f, path, NEO__FILE_READ));
    char *data = (char *)neo_alloc(ctx, NEO__NPY_HEADER_BYTES);
    size_t got = 0;
    neo_status status = data ? neo__file_read(f, data, NEO__NPY_HEADER_BYTES, &got)
                             : neo_fail(NEO_ERR_MEMORY, "%s: no memory to read the header", path);
    if (status == NEO_OK) status = neo__npy_parse(path, data, got, info);
    neo_free(ctx, data, NEO__NPY_HEADER_BYTES);
    if (status == NEO_OK) {
        int64_t size = neo__file_size(f), bytes = neo__npy_count(info) * (int64_t)info->item_bytes;
        if (size != info->data_offset + bytes)
            status = neo_fail(NEO_ERR_FORMAT,
                               "%s: byte %" PRId64 ": %" PRId64
                               " bytes of elements follow, the shape needs %" PRId64,
                               path, info->data_offset, size - info->data_offset, bytes);
    }
    if (status != NEO_OK) (void)neo__file_close(f);
    return status;
}
NEO__COLD_END

/* ---- single arrays ---- */
static neo_status neo__npy_read_f64(neo_ctx *ctx, const neo__file *f, const neo__npy_info *info,
                                    float *out) {
    enum { PIECE = 4096 };
    double *piece = (double *)neo_alloc(ctx, PIECE * sizeof(double));
    NEO__CHECK(piece, NEO_ERR_MEMORY, "%s: no memory to convert f64", f->path);
    neo_status status = NEO_OK;
    int64_t count = neo__npy_count(info);
    for (int64_t i = 0; status == NEO_OK && i < count; i += PIECE) {
        int64_t n = NEO__MIN(count - i, (int64_t)PIECE);
        status = neo__file_read_at(f, info->data_offset + i * 8, piece, (size_t)n * 8);
        for (int64_t k = 0; status == NEO_OK && k < n; k++) out[i + k] = (float)piece[k];
    }
    neo_free(ctx, piece, PIECE * sizeof(double));
    return status;
}
NEO__COLD_BEGIN
NEO_API neo_status neo_npy_read(neo_ctx *ctx, const char *path, neo_tensor *t) {
    NEO__CHECK(ctx && path && t, NEO_ERR_ARG, "neo_npy_read: an argument is NULL");
    neo__file f;
    neo__npy_info info;
    neo_tensor made = neo_tensor_none();
    *t = neo_tensor_none();
    NEO__TRY(neo__npy_open(ctx, &f, path, &info));
    neo_status status = neo_tensor_alloc(ctx, info.dtype, info.ndim, info.shape, &made);
    if (status == NEO_OK) {
        neo__fp_state fp = neo__fp_enter();
        if (info.f64)
            status = neo__npy_read_f64(ctx, &f, &info, (float *)made.data);
        else
            status = neo__file_read_at(&f, info.data_offset, made.data, neo_tensor_bytes(made));
        neo__fp_leave(fp);
    }
    (void)neo__file_close(&f);
    if (status == NEO_OK)
        *t = made;
    else
        neo_tensor_free(ctx, &made);
    return status;
}
/* A header of a multiple of 64 bytes, at least `least`; returns its length. */
static size_t neo__npy_header(char out[NEO__NPY_MADE_BYTES], neo_dtype dtype, int ndim,
                              const int64_t *shape, size_t least) {
    const char *descr = dtype == NEO_F32   ? "<f4"
                        : dtype == NEO_F16 ? "<f2"
                        : dtype == NEO_I8  ? "|i1"
                        : dtype == NEO_U8  ? "|u1"
                        : dtype == NEO_I32 ? "<i4"
                                           : "<i8";
    char dims[96];
    size_t n = 0;
    dims[0] = 0;
    for (int i = 0; i < ndim; i++)
        n += (size_t)snprintf(dims + n, sizeof dims - n, "%s%" PRId64, i ? ", " : "", shape[i]);
    n = 10 + (size_t)snprintf(out + 10, NEO__NPY_MADE_BYTES - 10,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }", descr,
                              dims, ndim == 1 ? "," : "");
    size_t total = NEO__MAX((n + 1 + 63) / 64 * 64, least);
    memset(out + n, ' ', total - n);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01", 7);
    out[7] = 0;
    neo__put_le(out + 8, total - 10, 2);
    return total;
}
NEO_API neo_status neo_npy_write(neo_ctx *ctx, const char *path, neo_tensor t) {
    char header[NEO__NPY_MADE_BYTES];
    NEO__CHECK(ctx && path, NEO_ERR_ARG, "neo_npy_write: an argument is NULL");
    NEO__CHECK(t.dtype != NEO_BF16 && t.dtype != NEO_F8E4M3 && t.dtype != NEO_F8E5M2,
               NEO_ERR_UNSUPPORTED, "neo_npy_write: %s: NumPy has no %s", path,
               neo_dtype_name(t.dtype));
    NEO__CHECK(neo_tensor_is_contiguous(t), NEO_ERR_SHAPE,
               "neo_npy_write: %s: the tensor is not contiguous", path);
    neo__file f;
    size_t n = neo__npy_header(header, t.dtype, t.ndim, t.shape, 0);
    NEO__TRY(neo__file_open(&f, path, NEO__FILE_CREATE));
    neo_status status = neo__file_write(&f, header, n);
    if (status == NEO_OK) status = neo__file_write(&f, t.data, neo_tensor_bytes(t));
    neo_status closed = neo__file_close(&f);
    return status != NEO_OK ? status : closed;
}

/* ---- triples ---- */
static const char *neo__npy_name(int k) {
    return k == 0 ? "dense.npy" : k == 1 ? "sparse.npy" : "labels.npy";
}
static neo_status neo__npy_path(char out[NEO__PATH_BYTES], const char *prefix, int k) {
    int n = snprintf(out, NEO__PATH_BYTES, "%s%s", prefix, neo__npy_name(k));
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s...: the path is too long",
               prefix);
    return NEO_OK;
}
/* The triple fits together and fits the schema (its counts below 0: any). */
static neo_status neo__npy_triple_check(const neo__npy_info *info, const char *prefix,
                                        int32_t dense, int32_t features) {
    NEO__CHECK(info[0].ndim == 2 && info[1].ndim == 2, NEO_ERR_SHAPE,
               "%s: dense.npy and sparse.npy must have 2 dimensions, they have %d and %d", prefix,
               info[0].ndim, info[1].ndim);
    NEO__CHECK(info[2].ndim == 1 || (info[2].ndim == 2 && info[2].shape[1] == 1), NEO_ERR_SHAPE,
               "%s: labels.npy must be [N] or [N, 1]", prefix);
    NEO__CHECK(info[0].shape[0] == info[1].shape[0] && info[0].shape[0] == info[2].shape[0],
               NEO_ERR_SHAPE,
               "%s: dense.npy, sparse.npy and labels.npy have %" PRId64 ", %" PRId64
               " and %" PRId64 " rows",
               prefix, info[0].shape[0], info[1].shape[0], info[2].shape[0]);
    NEO__CHECK(info[1].dtype == NEO_I32 || info[1].dtype == NEO_I64, NEO_ERR_SHAPE,
               "%s: sparse.npy holds %s, not i32 or i64", prefix, neo_dtype_name(info[1].dtype));
    NEO__CHECK(info[0].shape[1] <= 65536 && info[1].shape[1] <= 65536, NEO_ERR_SHAPE,
               "%s: over 65,536 columns", prefix);
    NEO__CHECK((dense < 0 || dense == info[0].shape[1]) &&
                   (features < 0 || features == info[1].shape[1]),
               NEO_ERR_SHAPE,
               "%s: has %" PRId64 " dense and %" PRId64 " sparse columns, the schema %d and %d",
               prefix, info[0].shape[1], info[1].shape[1], dense, features);
    return NEO_OK;
}
/* paths: [NEO__NPY_FILES][NEO__PATH_BYTES], kept while the files are open. */
static neo_status neo__npy_triple_open(neo_ctx *ctx, const char *prefix, char *paths,
                                       neo__file *files, neo__npy_info *info) {
    for (int k = 0; k < NEO__NPY_FILES; k++) {
        char *path = paths + (size_t)k * NEO__PATH_BYTES;
        neo_status status = neo__npy_path(path, prefix, k);
        if (status == NEO_OK) status = neo__npy_open(ctx, &files[k], path, &info[k]);
        if (status == NEO_OK) continue;
        while (k-- > 0) (void)neo__file_close(&files[k]);
        return status;
    }
    return NEO_OK;
}
static neo_status neo__source_npy_open(neo__source *source) {
    const neo_schema *s = source->schema;
    const char *prefix = source->paths[source->file];
    NEO__TRY(
        neo__npy_triple_open(source->ctx, prefix, source->npy_path, source->npy, source->info));
    source->open = 1;
    NEO__TRY(neo__npy_triple_check(source->info, prefix, s->dense_count, s->feature_count));
    source->rows = source->info[0].shape[0];
    NEO__CHECK(source->offset <= source->rows, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " rows, the saved position is at row %" PRId64, prefix,
               source->rows, source->offset);
    const int64_t *before = source->file_rows;
    int64_t known = before ? before[source->file + 1] - before[source->file] : source->rows;
    NEO__CHECK(source->rows == known, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " rows, it had %" PRId64 " when the reader was opened", prefix,
               source->rows, known);
    return NEO_OK;
}
/* n rows of array k to `to`: those of the share, and what lies between two of its runs if that is
   less than another read would cost. */
static neo_status neo__source_npy_read(neo__source *source, int k, int64_t n, int64_t row,
                                       char *to) {
    enum { GAP_BYTES = 16384 };
    const neo__share *share = source->share;
    int64_t at = 0, end = n, stop = 0, base = source->sample;
    int64_t from = source->info[k].data_offset + source->offset * row;
    while (at < n) {
        if (share) {
            at = neo__share_next(share, base + at, base + n, &stop) - base;
            end = stop - base;
            for (int64_t next = end; next < n;) {
                next = neo__share_next(share, base + next, base + n, &stop) - base;
                if (next == n || (next - end) * row > GAP_BYTES) break;
                next = end = stop - base;
            }
        }
        if (at < end)
            NEO__TRY(neo__file_read_at(&source->npy[k], from + at * row, to + at * row,
                                       (size_t)((end - at) * row)));
        at = end;
    }
    return NEO_OK;
}
/* Rows [offset, offset + n): dense, then sparse, then labels. */
static neo_status neo__source_npy(neo__source *source, neo__block *b) {
    if (!source->open) NEO__TRY(neo__source_npy_open(source));
    int64_t n = NEO__MIN(source->rows - source->offset, neo__block_rows(source->schema));
    char *to = b->raw;
    for (int k = 0; k < NEO__NPY_FILES; k++) {
        const neo__npy_info *info = &source->info[k];
        int64_t row = (info->ndim == 2 ? info->shape[1] : 1) * (int64_t)info->item_bytes;
        NEO__TRY(neo__source_npy_read(source, k, n, row, to));
        b->npy[k] = *info;
        to += n * row;
    }
    b->raw_bytes = (size_t)(to - b->raw);
    b->bytes = n;
    source->offset += n;
    source->sample += n;
    b->file_end = source->offset == source->rows;
    return NEO_OK;
}
NEO__COLD_END
static double neo__npy_number(const neo__npy_info *info, const char *p) {
    double d;
    float f;
    uint16_t h;
    int64_t l;
    int32_t i;
    if (info->f64) return memcpy(&d, p, 8), d;
    switch (info->dtype) {
    case NEO_F32: return memcpy(&f, p, 4), (double)f;
    case NEO_F16: return memcpy(&h, p, 2), (double)neo__f32_from_f16(h);
    case NEO_I32: return memcpy(&i, p, 4), (double)i;
    case NEO_I64: return memcpy(&l, p, 8), (double)l;
    case NEO_I8: return (double)(signed char)*p;
    default: return (double)(unsigned char)*p;
    }
}
static int64_t neo__npy_id(const neo__npy_info *info, const char *p) {
    int64_t l;
    int32_t i;
    if (info->dtype == NEO_I64) return memcpy(&l, p, 8), l;
    return memcpy(&i, p, 4), (int64_t)i;
}
/* Row i of the block into a record. 0: a bad row. */
static int neo__npy_row(const neo_schema *s, const neo__block *b, int64_t i, float *record,
                        neo__issue *e) {
    size_t size[NEO__NPY_FILES], d = (size_t)s->dense_count, t = (size_t)s->feature_count;
    for (int k = 0; k < NEO__NPY_FILES; k++) size[k] = b->npy[k].item_bytes;
    const char *dense = b->raw + (size_t)i * d * size[0];
    const char *sparse = b->raw + (size_t)b->bytes * d * size[0] + (size_t)i * t * size[1];
    const char *label =
        b->raw + (size_t)b->bytes * (d * size[0] + t * size[1]) + (size_t)i * size[2];
    int64_t *ids = neo__record_ids(s, record), row = b->offset + i;
    double y = neo__npy_number(&b->npy[2], label);
    if (!(y >= 0.0 && y <= 1.0)) {
        neo__issue_set(e, NEO_ERR_RANGE, 0,
                       "labels.npy: row %" PRId64 ": expected a label in [0, 1], found %g", row,
                       y);
        return 0;
    }
    record[0] = (float)y;
    for (size_t k = 0; k < d; k++) {
        float x = record[1 + k] = (float)neo__npy_number(&b->npy[0], dense + k * size[0]);
        if (x - x == 0.0f) continue;
        neo__issue_set(e, NEO_ERR_RANGE, 0,
                       "dense.npy: row %" PRId64
                       ", column %d: expected a finite number of f32's range",
                       row, (int)k);
        return 0;
    }
    for (size_t k = 0; k < t; k++) {
        int64_t id = neo__npy_id(&b->npy[1], sparse + k * size[1]), rows = s->rows[k];
        if (s->modulo) id = (id % rows + rows) % rows;
        ids[k] = id;
        if (id >= 0 && id < rows) continue;
        neo__issue_set(e, NEO_ERR_RANGE, 0,
                       "sparse.npy: row %" PRId64 ", column %d (%.40s): id %" PRId64
                       " is not in [0, %" PRId64 ")",
                       row, (int)k, s->feature_names[k], id, rows);
        return 0;
    }
    return 1;
}
/* The next run of own rows from row i on, if the block has a share: its begin, and in *stop its end. */
static int64_t neo__block_mine(const neo__block *b, int64_t i, int64_t *stop) {
    int64_t base = b->sample, mine = neo__share_next(b->share, base + i, base + b->bytes, stop);
    *stop -= base;
    return mine - base;
}
static void neo__block_parse_npy(const neo_schema *s, const neo__parse_options *o, neo__block *b) {
    int64_t mine = 0, stop = b->bytes;
    b->count = b->bad = b->taken = 0;
    for (int64_t i = 0; i < b->bytes && !b->failed; i++) {
        neo__issue e;
        if (b->share && (i == 0 || i == stop)) mine = neo__block_mine(b, i, &stop);
        if (i >= mine && !neo__npy_row(s, b, i, neo__block_record(s, b, b->count), &e)) {
            neo__block_bad(b, o, &e);
            continue;
        }
        b->end_offset[b->count] = (uint32_t)(i + 1);
        b->end_line[b->count++] = 0;
    }
}

/* ---- the schema ---- */
/* The largest id of each column of one sparse file, into rows as largest + 1. */
static neo_status neo__npy_scan(neo_ctx *ctx, const neo__file *f, const neo__npy_info *info,
                                int64_t *rows) {
    int64_t columns = info->shape[1], count = neo__npy_count(info);
    size_t size = info->item_bytes;
    char *piece = (char *)neo_alloc(ctx, NEO__CHUNK_BYTES);
    NEO__CHECK(piece, NEO_ERR_MEMORY, "%s: no memory to scan the ids", f->path);
    neo_status status = NEO_OK;
    int64_t step = (int64_t)(NEO__CHUNK_BYTES / size);
    for (int64_t i = 0; status == NEO_OK && i < count; i += step) {
        int64_t n = NEO__MIN(count - i, step);
        status =
            neo__file_read_at(f, info->data_offset + i * (int64_t)size, piece, (size_t)n * size);
        for (int64_t k = 0; status == NEO_OK && k < n; k++) {
            int64_t id = neo__npy_id(info, piece + (size_t)k * size), column = (i + k) % columns;
            if (id < 0 || id == INT64_MAX)
                status =
                    neo_fail(NEO_ERR_RANGE,
                              "%s: row %" PRId64 ", column %" PRId64 ": id %" PRId64 " cannot be",
                              f->path, (i + k) / columns, column, id);
            else if (id >= rows[column])
                rows[column] = id + 1;
        }
    }
    neo_free(ctx, piece, NEO__CHUNK_BYTES);
    return status;
}
NEO__COLD_BEGIN
static neo_status neo__npy_schema_triple(neo_schema *s, const char *prefix, char *paths, int first,
                                         const int64_t *rows) {
    neo__file files[NEO__NPY_FILES];
    neo__npy_info info[NEO__NPY_FILES];
    NEO__TRY(neo__npy_triple_open(s->ctx, prefix, paths, files, info));
    neo_status status = neo__npy_triple_check(info, prefix, first ? -1 : s->dense_count,
                                              first ? -1 : s->feature_count);
    if (status == NEO_OK && first)
        status = neo__schema_features(s, "neo_schema_npy", (int32_t)info[0].shape[1],
                                      (int32_t)info[1].shape[1]);
    if (status == NEO_OK && !rows) status = neo__npy_scan(s->ctx, &files[1], &info[1], s->rows);
    for (int k = 0; k < NEO__NPY_FILES; k++) (void)neo__file_close(&files[k]);
    return status;
}
static neo_status neo__npy_init(neo_schema *s, const char *const *prefixes, int count,
                                const int64_t *rows, int modulo) {
    char *paths = (char *)neo_alloc(s->ctx, NEO__NPY_FILES * NEO__PATH_BYTES);
    NEO__CHECK(paths, NEO_ERR_MEMORY, "neo_schema_npy: no memory");
    neo_status status = NEO_OK;
    for (int i = 0; status == NEO_OK && i < count; i++)
        status = neo__npy_schema_triple(s, prefixes[i], paths, i == 0, rows);
    neo_free(s->ctx, paths, NEO__NPY_FILES * NEO__PATH_BYTES);
    NEO__TRY(status);
    s->modulo = modulo != 0;
    for (int32_t f = 0; f < s->feature_count; f++) {
        char number[16];
        snprintf(number, sizeof number, "%d", f);
        NEO__TRY(neo__schema_name(s, "neo_schema_npy", f, "cat_%s%s", number, ""));
        if (rows)
            s->rows[f] = rows[f];
        else
            s->rows[f] = NEO__MAX(s->rows[f], 1);
        NEO__CHECK(s->rows[f] >= 1, NEO_ERR_ARG,
                   "neo_schema_npy: feature %d has %" PRId64 " rows, fewer than 1", f, s->rows[f]);
    }
    neo__schema_end(s);
    return NEO_OK;
}
NEO_API neo_status neo_schema_npy(neo_ctx *ctx, const char *const *prefixes, int prefix_count,
                                  const int64_t *rows, int modulo, neo_schema **schema) {
    NEO__CHECK(ctx && schema && prefixes && prefix_count >= 1, NEO_ERR_ARG,
               "neo_schema_npy: an argument is NULL, or there is no prefix");
    *schema = NULL;
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_npy", NEO_FORMAT_NPY, &s));
    neo_status status = neo__npy_init(s, prefixes, prefix_count, rows, modulo);
    if (status == NEO_OK)
        *schema = s;
    else
        neo_schema_destroy(s);
    return status;
}
NEO__COLD_END

/* ---- export ---- */
typedef struct neo__npy_out {
    neo_ctx *ctx;
    neo__file files[NEO__NPY_FILES];
    char paths[NEO__NPY_FILES][NEO__PATH_BYTES];
    int opened;
    int32_t *cells; /* a batch's labels, then its ids, sample by sample */
    int64_t cell_capacity, rows;
} neo__npy_out;
static neo_status neo__npy_out_batch(neo__npy_out *out, const neo_batch *batch) {
    int64_t n = batch->size, t = batch->sparse.feature_count,
            *ids = (int64_t *)(uintptr_t)batch->sparse.ids;
    const float *label = (const float *)batch->label.data;
    if (n * (t + 1) > out->cell_capacity) {
        neo_free(out->ctx, out->cells, (size_t)out->cell_capacity * 4);
        out->cell_capacity = n * (t + 1);
        out->cells = (int32_t *)neo_alloc(out->ctx, (size_t)out->cell_capacity * 4);
        if (!out->cells) out->cell_capacity = 0;
        NEO__CHECK(out->cells, NEO_ERR_MEMORY, "neo_npy_export: no memory for a batch of %" PRId64,
                   n);
    }
    for (int64_t i = 0; i < n; i++) {
        NEO__CHECK(label[i] == 0.0f || label[i] == 1.0f, NEO_ERR_UNSUPPORTED,
                   "neo_npy_export: sample %" PRId64 ": label %g is not 0 or 1", batch->first + i,
                   (double)label[i]);
        out->cells[i] = label[i] == 1.0f;
        for (int64_t k = 0; k < t; k++) {
            int64_t bag = k * n + i, at = batch->sparse.offsets[bag];
            NEO__CHECK(batch->sparse.offsets[bag + 1] == at + 1 && ids[at] <= INT32_MAX,
                       NEO_ERR_UNSUPPORTED,
                       "neo_npy_export: sample %" PRId64 ": feature %" PRId64
                       " has not exactly one id within i32",
                       batch->first + i, k);
            out->cells[n + i * t + k] = (int32_t)ids[at];
        }
    }
    out->rows += n;
    NEO__TRY(neo__file_write(&out->files[0], batch->dense.data, neo_tensor_bytes(batch->dense)));
    NEO__TRY(neo__file_write(&out->files[1], out->cells + n, (size_t)(n * t) * 4));
    return neo__file_write(&out->files[2], out->cells, (size_t)n * 4);
}
NEO__COLD_BEGIN
/* The headers, for what has been written; at the start with 0 rows. */
static neo_status neo__npy_out_headers(neo__npy_out *out, const neo_schema *s) {
    for (int k = 0; k < NEO__NPY_FILES; k++) {
        char header[NEO__NPY_MADE_BYTES];
        int64_t shape[2];
        shape[0] = out->rows;
        shape[1] = k == 0 ? s->dense_count : k == 1 ? s->feature_count : 1;
        size_t n =
            neo__npy_header(header, k == 0 ? NEO_F32 : NEO_I32, 2, shape, NEO__NPY_EXPORT_BYTES);
        NEO_ASSERT(n == NEO__NPY_EXPORT_BYTES);
        NEO__TRY(neo__file_seek(&out->files[k], 0));
        NEO__TRY(neo__file_write(&out->files[k], header, n));
    }
    return NEO_OK;
}
static neo_status neo__npy_out_all(neo__npy_out *out, neo_reader *reader, const char *prefix) {
    neo_batch batch;
    neo_status status;
    for (int k = 0; k < NEO__NPY_FILES; k++) {
        NEO__TRY(neo__npy_path(out->paths[k], prefix, k));
        NEO__TRY(neo__file_open(&out->files[k], out->paths[k], NEO__FILE_CREATE));
        out->opened = k + 1;
    }
    NEO__TRY(neo__npy_out_headers(out, reader->schema));
    while ((status = neo_reader_next(reader, &batch)) == NEO_OK)
        NEO__TRY(neo__npy_out_batch(out, &batch));
    if (status != NEO_END) return status;
    return neo__npy_out_headers(out, reader->schema);
}
NEO_API neo_status neo_npy_export(neo_ctx *ctx, neo_reader *reader, const char *prefix) {
    NEO__CHECK(ctx && reader && prefix, NEO_ERR_ARG, "neo_npy_export: an argument is NULL");
    neo__npy_out *out = (neo__npy_out *)neo__alloc_zero(ctx, sizeof *out);
    NEO__CHECK(out, NEO_ERR_MEMORY, "neo_npy_export: no memory");
    out->ctx = ctx;
    neo_status status = neo__npy_out_all(out, reader, prefix);
    for (int k = 0; k < out->opened; k++) {
        neo_status closed = neo__file_close(&out->files[k]);
        if (status == NEO_OK) status = closed;
    }
    neo_free(ctx, out->cells, (size_t)out->cell_capacity * 4);
    neo_free(ctx, out, sizeof *out);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-synthetic

   Sample n draws from the stream (seed, "synthetic.sample", n): block 0 the label, block 1 + d
   dense number d, blocks from (t + 1) 2^32 on the bag of feature t. A dense number is log(x + 1)
   of a whole x with a log-normal law; an id follows Zipf's law. The planted weight of (t, id) is
   its own random number, so that no table of them is kept. Dense and sparse parts of the logit are
   measured on 4,096 samples that nobody else uses (numbers below 0), centred, and scaled to 40 %
   and 60 % of its variance. All arithmetic is in double with neo's own exp and log, so the data is
   the same everywhere.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__SYNTHETIC_PROBE = 4096 };
struct neo__synthetic {
    neo_synthetic_desc desc;
    uint64_t sample_name, truth_name;
    int64_t most_ids; /* of a bag */
    double *dense_weight;
    double *zipf_scale; /* per feature; see neo__zipf_id */
    double dense_mean, dense_scale, sparse_mean, sparse_scale, bias;
};
typedef struct neo__synthetic_sums {
    double dense, sparse;
} neo__synthetic_sums;

/* Four words to a number of mean 0 and variance 1: their sum, nearly normal. */
static double neo__near_normal(const uint32_t w[4]) {
    uint64_t sum = (uint64_t)w[0] + w[1] + w[2] + w[3];
    return ((double)sum - 8589934590.0) * (1.7320508075688772 / 4294967296.0);
}
static int neo__zipf_is_log(double s) { return s > 1.0 - 1e-6 && s < 1.0 + 1e-6; }
/* (R + 1)^(1 - s) - 1, or log(R + 1) for s = 1. */
static double neo__zipf_constant(int64_t rows, double s) {
    double n = neo__log_f64((double)rows + 1.0);
    return neo__zipf_is_log(s) ? n : neo__exp_f64((1.0 - s) * n) - 1.0;
}
/* e^x for |x| < 700, within 2e-15: 2^n by its bits, e^r by its series for |r| <= ln(2)/2. */
static double neo__exp_near(double x) {
    double scaled = x * 0x1.71547652b82fep+0;
    int64_t n = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    double r = (x - (double)n * NEO__LN2_HIGH) - (double)n * NEO__LN2_LOW, p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    return (p * r + 1.0) * neo__f64_bits((uint64_t)(n + 1023) << 52);
}
/* table: logarithms as a schema holds; NULL: none at hand. */
static int64_t neo__zipf_id(const double *table, double u, int64_t rows, double s,
                            double constant) {
    double x = u * constant;
    if (!neo__zipf_is_log(s)) {
        x = 1.0 + x;
        if (x < 1e-300) return rows - 1;
        x = (table ? neo__log_positive(table, x) : neo__log_f64(x)) / (1.0 - s);
    }
    x = x < 690.0 ? neo__exp_near(x) : 1e299;
    int64_t id = x < (double)rows + 1.0 ? (int64_t)x - 1 : rows - 1;
    return id < 0 ? 0 : id >= rows ? rows - 1 : id;
}
NEO_API int64_t neo_zipf(float u, int64_t rows, float s) {
    if (rows <= 1 || !(s > 0.0f)) return 0;
    neo__fp_state fp = neo__fp_enter();
    int64_t id = neo__zipf_id(NULL, u > 0.0f ? (double)u : 0.0, rows, (double)s,
                              neo__zipf_constant(rows, (double)s));
    neo__fp_leave(fp);
    return id;
}

static double neo__synthetic_weight(const neo__synthetic *g, int32_t t, int64_t id) {
    uint32_t w[4];
    neo__random_key key = neo__random_key_make(g->desc.seed, g->truth_name, t, NEO_STREAM_DATA);
    neo__random_block(&key, (uint64_t)id, w);
    return neo__near_normal(w);
}
/* Dense number d: the whole x, at most 2^30. */
static uint32_t neo__synthetic_whole(const neo__random_key *key, int32_t d) {
    uint32_t w[4];
    neo__random_block(key, 1 + (uint64_t)d, w);
    return (uint32_t)neo__exp_near(1.0 + 1.5 * neo__near_normal(w));
}
/* The bag of feature t into ids; returns its length. */
static int64_t neo__synthetic_bag(const neo_schema *s, const neo__random_key *key, int32_t t,
                                  int64_t *ids) {
    const neo__synthetic *g = s->synthetic;
    uint64_t base = ((uint64_t)t + 1) << 32;
    uint32_t w[4] = {0, 0, 0, 0};
    int64_t n = 1;
    if (s->multi) {
        neo__random_block(key, base++, w);
        n = (int64_t)(((uint64_t)w[0] * (uint64_t)(g->most_ids + 1)) >> 32);
    }
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) neo__random_block(key, base + (uint64_t)i / 4, w);
        ids[i] = neo__zipf_id(s->log_table, (double)w[i % 4] * 0x1p-32, s->rows[t],
                              (double)g->desc.zipf, g->zipf_scale[t]);
    }
    return n;
}
static neo__random_key neo__synthetic_key(const neo__synthetic *g, int64_t sample) {
    return neo__random_key_make(g->desc.seed, g->sample_name, sample, NEO_STREAM_DATA);
}
/* The unscaled parts of the logit. bag: scratch of most_ids. */
static neo__synthetic_sums neo__synthetic_sum(const neo_schema *s, int64_t sample, int64_t *bag) {
    const neo__synthetic *g = s->synthetic;
    neo__random_key key = neo__synthetic_key(g, sample);
    neo__synthetic_sums sums = {0.0, 0.0};
    for (int32_t d = 0; d < s->dense_count; d++) {
        double x = neo__log_whole(s->log_table, (uint64_t)neo__synthetic_whole(&key, d) + 1);
        sums.dense += g->dense_weight[d] * (double)(float)x;
    }
    for (int32_t t = 0; t < s->feature_count; t++) {
        int64_t n = neo__synthetic_bag(s, &key, t, bag);
        for (int64_t i = 0; i < n; i++) sums.sparse += neo__synthetic_weight(g, t, bag[i]);
    }
    return sums;
}
static double neo__synthetic_logit(const neo__synthetic *g, neo__synthetic_sums sums) {
    return g->bias + (sums.dense - g->dense_mean) * g->dense_scale +
           (sums.sparse - g->sparse_mean) * g->sparse_scale;
}
static double neo__synthetic_sigmoid(double z) { return 1.0 / (1.0 + neo__exp_f64(-z)); }
static float neo__synthetic_label(const neo__random_key *key, double logit) {
    uint32_t w[4];
    neo__random_block(key, 0, w);
    return (double)w[0] * 0x1p-32 < neo__synthetic_sigmoid(logit) ? 1.0f : 0.0f;
}

/* ---- as a source ---- */
static int64_t neo__synthetic_samples(const neo_schema *s) { return s->synthetic->desc.samples; }
static int64_t neo__synthetic_ids(const neo_schema *s, int64_t samples) {
    return (int64_t)neo__size_mul(neo__size_mul((size_t)samples, (size_t)s->feature_count),
                                  (size_t)s->synthetic->most_ids);
}
static neo_status neo__source_synthetic(neo__source *source, neo__block *b) {
    int64_t total = neo__synthetic_samples(source->schema);
    NEO__CHECK(source->offset <= total, NEO_ERR_MISMATCH,
               "synthetic: has %" PRId64 " samples, the saved position is at %" PRId64, total,
               source->offset);
    b->bytes = NEO__MIN(total - source->offset, neo__block_rows(source->schema));
    source->offset += b->bytes;
    source->sample += b->bytes;
    b->file_end = source->offset == total;
    return NEO_OK;
}
/* Sample i of the block into its record. */
static void neo__synthetic_row(const neo_schema *s, neo__block *b, int64_t i, float *record) {
    const neo__synthetic *g = s->synthetic;
    int64_t *ids = neo__record_ids(s, record), start = b->id_count;
    neo__random_key key = neo__synthetic_key(g, g->desc.first_sample + b->offset + i);
    neo__synthetic_sums sums = {0.0, 0.0};
    for (int32_t d = 0; d < s->dense_count; d++) {
        uint64_t whole = neo__synthetic_whole(&key, d);
        record[1 + d] = (float)neo__log_whole(s->log_table, whole + 1);
        sums.dense += g->dense_weight[d] * (double)record[1 + d];
    }
    for (int32_t t = 0; t < s->feature_count; t++) {
        int64_t *bag = s->multi ? b->ids + b->id_count : ids + t;
        int64_t n = neo__synthetic_bag(s, &key, t, bag);
        for (int64_t k = 0; k < n; k++) sums.sparse += neo__synthetic_weight(g, t, bag[k]);
        b->id_count += n;
        if (s->multi) ids[1 + t] = b->id_count - start;
    }
    if (s->multi) ids[0] = start;
    record[0] = neo__synthetic_label(&key, neo__synthetic_logit(g, sums));
}
static void neo__block_parse_synthetic(const neo_schema *s, neo__block *b) {
    int64_t mine = 0, stop = b->bytes;
    b->id_count = b->taken = 0;
    for (b->count = 0; b->count < b->bytes; b->count++) {
        int64_t i = b->count;
        float *record = neo__block_record(s, b, i);
        if (b->share && (i == 0 || i == stop)) mine = neo__block_mine(b, i, &stop);
        b->end_offset[i] = (uint32_t)(i + 1);
        b->end_line[i] = 0;
        if (i >= mine) {
            neo__synthetic_row(s, b, i, record);
        } else if (s->multi) { /* of another rank: no ids */
            int64_t *ids = neo__record_ids(s, record);
            memset(ids, 0, ((size_t)s->feature_count + 1) * sizeof *ids);
            ids[0] = b->id_count;
        }
    }
}
static neo_status neo__block_parse(const neo_schema *s, const neo__parse_options *o,
                                   neo__block *b) {
    if (s->format == NEO_FORMAT_NPY)
        neo__block_parse_npy(s, o, b);
    else if (s->format == NEO_FORMAT_SYNTHETIC)
        neo__block_parse_synthetic(s, b);
    else
        return neo__block_parse_text(s, o, b);
    return NEO_OK;
}

/* ---- the schema ---- */
NEO__COLD_BEGIN
static neo_status neo__synthetic_measure(neo_schema *s) {
    neo__synthetic *g = s->synthetic;
    double n = (double)NEO__SYNTHETIC_PROBE, signal = (double)g->desc.signal;
    double dense_square = 0.0, sparse_square = 0.0;
    int64_t *bag = (int64_t *)neo_alloc(s->ctx, (size_t)g->most_ids * sizeof(int64_t));
    NEO__CHECK(bag, NEO_ERR_MEMORY, "neo_schema_synthetic: no memory for a bag of %" PRId64,
               g->most_ids);
    for (int64_t i = 1; i <= NEO__SYNTHETIC_PROBE; i++) {
        neo__synthetic_sums sums = neo__synthetic_sum(s, -i, bag);
        g->dense_mean += sums.dense;
        g->sparse_mean += sums.sparse;
        dense_square += sums.dense * sums.dense;
        sparse_square += sums.sparse * sums.sparse;
    }
    neo_free(s->ctx, bag, (size_t)g->most_ids * sizeof(int64_t));
    g->dense_mean /= n;
    g->sparse_mean /= n;
    double dense_part = s->feature_count == 0 ? 1.0 : 0.4,
           sparse_part = s->dense_count == 0 ? 1.0 : 0.6;
    double dense_var = dense_square / n - g->dense_mean * g->dense_mean;
    double sparse_var = sparse_square / n - g->sparse_mean * g->sparse_mean;
    if (dense_var > 1e-12) g->dense_scale = signal * sqrt(dense_part / dense_var);
    if (sparse_var > 1e-12) g->sparse_scale = signal * sqrt(sparse_part / sparse_var);
    g->bias = -1.2;
    return NEO_OK;
}
static neo_status neo__synthetic_check(neo_synthetic_desc *d) {
    if (d->dense_count == 0) d->dense_count = NEO__CRITEO_DENSE;
    if (d->feature_count == 0) d->feature_count = NEO__CRITEO_FEATURES;
    d->dense_count = NEO__MAX(d->dense_count, 0);
    d->feature_count = NEO__MAX(d->feature_count, 0);
    if (d->rows == 0) d->rows = 10000;
    if (d->zipf == 0.0f) d->zipf = 1.1f;
    if (d->signal == 0.0f) d->signal = 1.5f;
    if (d->ids_per_bag == 0) d->ids_per_bag = 1;
    NEO__CHECK(d->samples >= 1 && d->samples <= INT64_MAX / 4, NEO_ERR_ARG,
               "neo_schema_synthetic: samples is %" PRId64 ", it is required", d->samples);
    NEO__CHECK(d->first_sample >= 0 && d->first_sample <= INT64_MAX / 4, NEO_ERR_ARG,
               "neo_schema_synthetic: first_sample %" PRId64 " is out of range", d->first_sample);
    NEO__CHECK(d->dense_count <= 65536 && d->feature_count <= 65536, NEO_ERR_ARG,
               "neo_schema_synthetic: over 65,536 dense numbers or features");
    NEO__CHECK(d->ids_per_bag >= 1 && d->ids_per_bag <= 65536, NEO_ERR_ARG,
               "neo_schema_synthetic: ids_per_bag is %d, not in 0 .. 65,536", d->ids_per_bag);
    NEO__CHECK(d->zipf > 0.0f && d->zipf <= 100.0f && d->signal > 0.0f && d->signal <= 1000.0f,
               NEO_ERR_ARG, "neo_schema_synthetic: zipf %g or signal %g is out of range",
               (double)d->zipf, (double)d->signal);
    return NEO_OK;
}
static neo_status neo__synthetic_init(neo_schema *s, const neo_synthetic_desc *d) {
    NEO__TRY(neo__schema_features(s, "neo_schema_synthetic", d->dense_count, d->feature_count));
    neo__synthetic *g = (neo__synthetic *)neo__arena_alloc(&s->arena, sizeof *g);
    NEO__CHECK(g, NEO_ERR_MEMORY, "neo_schema_synthetic: no memory");
    s->synthetic = g;
    g->desc = *d;
    g->desc.rows_per_feature = NULL;
    g->sample_name = neo_hash("synthetic.sample");
    g->truth_name = neo_hash("synthetic.truth");
    g->most_ids = d->ids_per_bag > 1 ? 2 * (int64_t)d->ids_per_bag : 1;
    s->multi = d->ids_per_bag > 1;
    g->dense_weight =
        (double *)neo__arena_alloc(&s->arena, (size_t)d->dense_count * sizeof(double));
    g->zipf_scale =
        (double *)neo__arena_alloc(&s->arena, (size_t)d->feature_count * sizeof(double));
    NEO__CHECK(g->dense_weight && g->zipf_scale, NEO_ERR_MEMORY,
               "neo_schema_synthetic: no memory");
    for (int32_t i = 0; i < d->dense_count; i++)
        g->dense_weight[i] = neo__synthetic_weight(g, -1, i);
    for (int32_t f = 0; f < d->feature_count; f++) {
        char number[16];
        int64_t rows = d->rows_per_feature ? d->rows_per_feature[f] : d->rows;
        NEO__CHECK(rows >= 1 && rows <= (int64_t)1 << 40, NEO_ERR_ARG,
                   "neo_schema_synthetic: feature %d has %" PRId64 " rows, not in 1 .. 2^40", f,
                   rows);
        snprintf(number, sizeof number, "%d", f + 1);
        NEO__TRY(neo__schema_name(s, "neo_schema_synthetic", f, "C%s%s", number, ""));
        s->rows[f] = rows;
        g->zipf_scale[f] = neo__zipf_constant(rows, (double)d->zipf);
    }
    neo__schema_end(s);
    return neo__synthetic_measure(s);
}
NEO_API neo_status neo_schema_synthetic(neo_ctx *ctx, const neo_synthetic_desc *desc,
                                        neo_schema **schema) {
    NEO__CHECK(ctx && desc && schema, NEO_ERR_ARG, "neo_schema_synthetic: an argument is NULL");
    *schema = NULL;
    neo_synthetic_desc d = *desc;
    neo_schema *s;
    NEO__TRY(neo__synthetic_check(&d));
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_synthetic", NEO_FORMAT_SYNTHETIC, &s));
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__synthetic_init(s, &d);
    neo__fp_leave(fp);
    if (status == NEO_OK)
        *schema = s;
    else
        neo_schema_destroy(s);
    return status;
}
NEO__COLD_END

/* ---- what is best, and as text ---- */
static void neo__synthetic_best(const neo_schema *s, int64_t first, int64_t count, int64_t *bag,
                                float *score, float *label, double *logloss) {
    double loss = 0.0;
    for (int64_t i = 0; i < count; i++) {
        neo__random_key key = neo__synthetic_key(s->synthetic, first + i);
        double z = neo__synthetic_logit(s->synthetic, neo__synthetic_sum(s, first + i, bag));
        score[i] = (float)z;
        label[i] = neo__synthetic_label(&key, z);
        double margin = label[i] > 0.5f ? z : -z, a = margin < 0.0 ? -margin : margin;
        loss += neo__log_f64(1.0 + neo__exp_f64(-a)) + (margin < 0.0 ? a : 0.0);
    }
    *logloss = loss / (double)count;
}
NEO__COLD_BEGIN
NEO_API neo_status neo_schema_best(const neo_schema *s, int64_t first, int64_t count, double *auc,
                                   double *logloss) {
    NEO__CHECK(s && auc && logloss, NEO_ERR_ARG, "neo_schema_best: an argument is NULL");
    NEO__CHECK(s->synthetic, NEO_ERR_UNSUPPORTED, "neo_schema_best: the data is not synthetic");
    NEO__CHECK(first >= 0 && count >= 1 && count <= (int64_t)1 << 32, NEO_ERR_ARG,
               "neo_schema_best: samples [%" PRId64 ", + %" PRId64 ")", first, count);
    size_t n = (size_t)count, bag_bytes = (size_t)s->synthetic->most_ids * sizeof(int64_t);
    size_t scratch_bytes = neo_auc_scratch_bytes(count);
    int64_t *bag = (int64_t *)neo_alloc(s->ctx, bag_bytes);
    float *score = (float *)neo_alloc(s->ctx, n * sizeof(float));
    float *label = (float *)neo_alloc(s->ctx, n * sizeof(float));
    void *scratch = neo_alloc(s->ctx, scratch_bytes);
    int ok = bag && score && label && scratch;
    if (ok) {
        neo__fp_state fp = neo__fp_enter();
        neo__synthetic_best(s, first, count, bag, score, label, logloss);
        *auc = neo_auc(score, label, count, scratch);
        neo__fp_leave(fp);
    }
    neo_free(s->ctx, scratch, scratch_bytes);
    neo_free(s->ctx, label, n * sizeof(float));
    neo_free(s->ctx, score, n * sizeof(float));
    neo_free(s->ctx, bag, bag_bytes);
    return ok ? NEO_OK
              : neo_fail(NEO_ERR_MEMORY, "neo_schema_best: no memory for %" PRId64 " samples",
                          count);
}
NEO__COLD_END

static char *neo__put_decimal(char *p, uint32_t value) {
    char digits[10];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *p++ = digits[--n];
    return p;
}
static char *neo__synthetic_line(const neo_schema *s, int64_t sample, char *p) {
    const neo__synthetic *g = s->synthetic;
    neo__random_key key = neo__synthetic_key(g, sample);
    int64_t id;
    double z = neo__synthetic_logit(g, neo__synthetic_sum(s, sample, &id));
    *p++ = neo__synthetic_label(&key, z) > 0.5f ? '1' : '0';
    for (int32_t d = 0; d < s->dense_count; d++) {
        *p++ = '\t';
        p = neo__put_decimal(p, neo__synthetic_whole(&key, d));
    }
    for (int32_t t = 0; t < s->feature_count; t++) {
        neo__synthetic_bag(s, &key, t, &id);
        *p++ = '\t';
        if (id == 0) continue; /* as a missing word */
        for (int shift = 28; shift >= 0; shift -= 4)
            *p++ = "0123456789abcdef"[((uint64_t)id - 1) >> shift & 15];
    }
    *p++ = '\n';
    return p;
}
NEO__COLD_BEGIN
NEO_API neo_status neo_synthetic_write_tsv(neo_ctx *ctx, const neo_schema *s, const char *path,
                                           int64_t first, int64_t count) {
    enum { BUFFER = 1 << 16, LINE = 1024 };
    NEO__CHECK(ctx && s && path, NEO_ERR_ARG, "neo_synthetic_write_tsv: an argument is NULL");
    NEO__CHECK(first >= 0 && count >= 0, NEO_ERR_ARG,
               "neo_synthetic_write_tsv: samples [%" PRId64 ", + %" PRId64 ")", first, count);
    int fits = s->synthetic && !s->multi && s->dense_count == NEO__CRITEO_DENSE &&
               s->feature_count == NEO__CRITEO_FEATURES;
    for (int32_t f = 0; fits && f < s->feature_count; f++)
        fits = s->rows[f] >= 2 && s->rows[f] <= (int64_t)1 << 32;
    NEO__CHECK(fits, NEO_ERR_UNSUPPORTED,
               "neo_synthetic_write_tsv: needs synthetic data with 13 dense numbers and 26 "
               "features of one id and 2 to 2^32 rows");
    neo__file f;
    NEO__TRY(neo__file_open(&f, path, NEO__FILE_CREATE));
    char *buffer = (char *)neo_alloc(ctx, BUFFER), *p = buffer;
    neo_status status =
        buffer ? NEO_OK : neo_fail(NEO_ERR_MEMORY, "%s: no memory for a buffer", path);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; status == NEO_OK && i < count; i++) {
        p = neo__synthetic_line(s, first + i, p);
        if (p - buffer < BUFFER - LINE && i + 1 < count) continue;
        status = neo__file_write(&f, buffer, (size_t)(p - buffer));
        p = buffer;
    }
    neo__fp_leave(fp);
    neo_free(ctx, buffer, BUFFER);
    neo_status closed = neo__file_close(&f);
    return status != NEO_OK ? status : closed;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-json

   Strict JSON (RFC 8259) for headers and manifests. The reader walks a text once, front to back,
   and the caller says what it expects; there is no tree. Strings are decoded in place (a decoded
   string is never longer than its source), so that reading allocates nothing. Nothing in the text
   is trusted: UTF-8, escapes, numbers, nesting and what follows the end are all checked. The
   writer, neo__out, sends bytes to a file through a small buffer, counting them and their CRC32C;
   without a file it only counts.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__json {
    char *text; /* strings in it are overwritten by their decoded form, with a NUL behind */
    size_t size, at;
    const char *file; /* for messages */
    uint64_t offset;  /* of text[0] in the file */
    int depth;
} neo__json;
enum { NEO__JSON_DEPTH = 64 };

NEO__COLD_BEGIN
static neo_status neo__json_fail(const neo__json *j, size_t at, const char *what) {
    return neo_fail(NEO_ERR_FORMAT, "%s: byte %" PRIu64 ": %s", j->file, j->offset + at, what);
}
/* The next character that is not white space; 0 at the end. */
static int neo__json_peek(neo__json *j) {
    while (j->at < j->size) {
        char c = j->text[j->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return (unsigned char)c;
        j->at++;
    }
    return 0;
}
static neo_status neo__json_expect(neo__json *j, char c) {
    char what[] = "expected '?'";
    what[10] = c;
    if (neo__json_peek(j) != c) return neo__json_fail(j, j->at, what);
    j->at++;
    return NEO_OK;
}

/* Bytes of the UTF-8 character at s (1 .. 4), or 0: malformed, overlong, a surrogate, above
   U+10FFFF. */
static int neo__utf8_length(const char *s, size_t left) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return 1;
    int n = u[0] >= 0xC2 && u[0] < 0xE0   ? 2
            : u[0] >= 0xE0 && u[0] < 0xF0 ? 3
            : u[0] >= 0xF0 && u[0] < 0xF5 ? 4
                                          : 0;
    if (n == 0 || left < (size_t)n) return 0;
    for (int i = 1; i < n; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    if (u[0] == 0xE0 && u[1] < 0xA0) return 0;
    if (u[0] == 0xED && u[1] > 0x9F) return 0;
    if (u[0] == 0xF0 && u[1] < 0x90) return 0;
    if (u[0] == 0xF4 && u[1] > 0x8F) return 0;
    return n;
}
static int neo__utf8_valid(const char *s) {
    size_t left = strlen(s);
    while (left > 0) {
        int n = neo__utf8_length(s, left);
        if (n == 0) return 0;
        s += n;
        left -= (size_t)n;
    }
    return 1;
}
static size_t neo__utf8_put(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Four hexadecimal digits at j->at; -1 if they are not. */
static int32_t neo__json_hex4(neo__json *j) {
    int32_t value = 0;
    if (j->size - j->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = j->text[j->at + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    j->at += 4;
    return value;
}
/* The escape behind a backslash: its character, or 0xFFFFFFFF. A \u0000 is refused: strings are C
   strings. */
static uint32_t neo__json_escape(neo__json *j) {
    if (j->at >= j->size) return 0xFFFFFFFFu;
    char c = j->text[j->at++];
    switch (c) {
    case '"':
    case '\\':
    case '/': return (uint32_t)c;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return 0xFFFFFFFFu;
    }
    int32_t high = neo__json_hex4(j);
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000)) return 0xFFFFFFFFu;
    if (high < 0xD800 || high >= 0xE000) return (uint32_t)high;
    if (j->size - j->at < 2 || j->text[j->at] != '\\' || j->text[j->at + 1] != 'u')
        return 0xFFFFFFFFu;
    j->at += 2;
    int32_t low = neo__json_hex4(j);
    if (low < 0xDC00 || low >= 0xE000) return 0xFFFFFFFFu;
    return 0x10000u + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
}
/* A string: *out points into the text, decoded, with a NUL behind. */
static neo_status neo__json_string(neo__json *j, char **out) {
    if (neo__json_peek(j) != '"') return neo__json_fail(j, j->at, "expected a string");
    char *to = j->text + ++j->at;
    *out = to;
    while (j->at < j->size) {
        size_t start = j->at;
        unsigned char c = (unsigned char)j->text[j->at];
        if (c == '"') {
            j->at++;
            *to = 0;
            return NEO_OK;
        }
        if (c < 0x20) return neo__json_fail(j, start, "a control character inside a string");
        if (c == '\\') {
            j->at++;
            uint32_t code = neo__json_escape(j);
            if (code == 0xFFFFFFFFu)
                return neo__json_fail(j, start, "a bad escape inside a string");
            to += neo__utf8_put(to, code);
            continue;
        }
        int n = neo__utf8_length(j->text + j->at, j->size - j->at);
        if (n == 0) return neo__json_fail(j, start, "a string that is not UTF-8");
        memmove(to, j->text + j->at, (size_t)n);
        to += n;
        j->at += (size_t)n;
    }
    return neo__json_fail(j, j->at, "a string without its closing quote");
}

/* A number's text: grammar checked. *integer: 1 if it has no fraction and no exponent. */
static neo_status neo__json_number(neo__json *j, const char **begin, size_t *length,
                                   int *integer) {
    neo__json_peek(j);
    size_t start = j->at, i = start, n = j->size;
    const char *t = j->text;
    *integer = 1;
    if (i < n && t[i] == '-') i++;
    if (i >= n || t[i] < '0' || t[i] > '9') return neo__json_fail(j, i, "expected a number");
    if (t[i] == '0') i++;
    else
        while (i < n && t[i] >= '0' && t[i] <= '9') i++;
    if (i < n && t[i] == '.') {
        size_t digits = ++i;
        *integer = 0;
        while (i < n && t[i] >= '0' && t[i] <= '9') i++;
        if (i == digits) return neo__json_fail(j, i, "expected a digit");
    }
    if (i < n && (t[i] == 'e' || t[i] == 'E')) {
        *integer = 0;
        if (++i < n && (t[i] == '+' || t[i] == '-')) i++;
        size_t digits = i;
        while (i < n && t[i] >= '0' && t[i] <= '9') i++;
        if (i == digits) return neo__json_fail(j, i, "expected a digit");
    }
    if (i < n && t[i] >= '0' && t[i] <= '9')
        return neo__json_fail(j, i, "a number with a leading zero");
    *begin = t + start;
    *length = i - start;
    j->at = i;
    return NEO_OK;
}
/* An integer in [0, INT64_MAX]: all that headers and manifests hold. */
static neo_status neo__json_count(neo__json *j, int64_t *out) {
    const char *t = NULL;
    size_t n = 0;
    int integer = 0;
    int64_t value = 0;
    NEO__TRY(neo__json_number(j, &t, &n, &integer));
    size_t start = (size_t)(t - j->text);
    if (!integer || t[0] == '-')
        return neo__json_fail(j, start, "expected an integer, not negative");
    for (size_t i = 0; i < n; i++) {
        int digit = t[i] - '0';
        if (value > (INT64_MAX - digit) / 10)
            return neo__json_fail(j, start, "an integer above 2^63 - 1");
        value = value * 10 + digit;
    }
    *out = value;
    return NEO_OK;
}

/* neo__json_open, neo__json_next: walk the members of an object ('{', '}') or array ('[', ']'):
     open(j, '{'); for (int i = 0;; i++) { next(j, '}', i, &more); if (!more) break; ... }  */
static neo_status neo__json_open(neo__json *j, char bracket) {
    NEO__TRY(neo__json_expect(j, bracket));
    if (++j->depth > NEO__JSON_DEPTH) return neo__json_fail(j, j->at, "nested too deep");
    return NEO_OK;
}
static neo_status neo__json_next(neo__json *j, char bracket, int index, int *more) {
    *more = neo__json_peek(j) != bracket;
    if (*more) return index > 0 ? neo__json_expect(j, ',') : NEO_OK;
    j->at++;
    j->depth--;
    return NEO_OK;
}
static neo_status neo__json_key(neo__json *j, char **key) {
    NEO__TRY(neo__json_string(j, key));
    return neo__json_expect(j, ':');
}
/* Any value. */
static neo_status neo__json_skip(neo__json *j) {
    int c = neo__json_peek(j), more = 1, integer = 0;
    char *string = NULL, close = c == '{' ? '}' : ']';
    const char *number = NULL;
    size_t length = 0;
    if (c == '"') return neo__json_string(j, &string);
    if (c == '{' || c == '[') {
        NEO__TRY(neo__json_open(j, (char)c));
        for (int i = 0;; i++) {
            NEO__TRY(neo__json_next(j, close, i, &more));
            if (!more) return NEO_OK;
            if (c == '{') NEO__TRY(neo__json_key(j, &string));
            NEO__TRY(neo__json_skip(j));
        }
    }
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (j->size - j->at < n || memcmp(j->text + j->at, words[i], n) != 0) continue;
        j->at += n;
        return NEO_OK;
    }
    return neo__json_number(j, &number, &length, &integer);
}
/* Nothing but white space may follow. */
static neo_status neo__json_end(neo__json *j) {
    neo__json_peek(j);
    return j->at == j->size
               ? NEO_OK
               : neo__json_fail(j, j->at, "something follows the end of the JSON text");
}

/* ---- output ---- */
typedef struct neo__out {
    neo__file *file;   /* NULL: count only */
    neo_status status; /* the first failure; later calls do nothing */
    uint32_t crc;
    uint64_t bytes;
    size_t used;
    char buffer[4096];
} neo__out;

static void neo__out_begin(neo__out *out, neo__file *file) {
    out->file = file;
    out->status = NEO_OK;
    out->crc = 0;
    out->bytes = 0;
    out->used = 0;
}
static neo_status neo__out_flush(neo__out *out) {
    if (out->status == NEO_OK && out->used > 0) {
        out->crc = neo_crc32c(out->crc, out->buffer, out->used);
        if (out->file) out->status = neo__file_write(out->file, out->buffer, out->used);
    }
    out->used = 0;
    return out->status;
}
/* Large data goes straight from its own memory, in pieces that stay in cache between checksum and
   write. */
static void neo__out_bytes(neo__out *out, const void *data, size_t bytes) {
    const char *p = (const char *)data;
    out->bytes += bytes;
    if (bytes <= sizeof out->buffer - out->used) {
        memcpy(out->buffer + out->used, p, bytes);
        out->used += bytes;
        return;
    }
    neo__out_flush(out);
    while (bytes > 0 && out->status == NEO_OK) {
        size_t piece = NEO__MIN(bytes, (size_t)1 << 18);
        out->crc = neo_crc32c(out->crc, p, piece);
        if (out->file) out->status = neo__file_write(out->file, p, piece);
        p += piece;
        bytes -= piece;
    }
}
static void neo__out_text(neo__out *out, const char *text) {
    neo__out_bytes(out, text, strlen(text));
}
static void neo__out_format(neo__out *out, const char *format, ...) NEO__PRINTF(2, 3);
static void neo__out_format(neo__out *out, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    NEO_ASSERT(n >= 0 && n < (int)sizeof text); /* strings of users go through neo__out_string */
    (void)n;
    neo__out_text(out, text);
}
/* A JSON string, quoted; s is UTF-8. */
static void neo__out_string(neo__out *out, const char *s) {
    neo__out_bytes(out, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') neo__out_format(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F) neo__out_format(out, "\\u%04x", c);
        else neo__out_bytes(out, s, 1);
    }
    neo__out_bytes(out, "\"", 1);
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-crc32c

   CRC-32C (Castagnoli; reflected polynomial 0x82F63B78), as iSCSI and ext4 use it. With the
   instruction where the machine has one (asked at run time), else eight bytes per step through
   eight tables ("slicing by 8"): table k holds the checksum of a byte with k zero bytes behind.
   Checksums are linear over xor, so the entries of the eight powers of two give a table, and the
   compiler computes it.
   ------------------------------------------------------------------------------------------------ */
#define NEO__CRC_1(i, a, b, c, d, e, f, g, h)                                                      \
    (((i) & 1 ? a : 0u) ^ ((i) & 2 ? b : 0u) ^ ((i) & 4 ? c : 0u) ^ ((i) & 8 ? d : 0u) ^           \
     ((i) & 16 ? e : 0u) ^ ((i) & 32 ? f : 0u) ^ ((i) & 64 ? g : 0u) ^ ((i) & 128 ? h : 0u))
#define NEO__CRC_4(i, a, b, c, d, e, f, g, h)                                                      \
    NEO__CRC_1(i, a, b, c, d, e, f, g, h), NEO__CRC_1((i) + 1, a, b, c, d, e, f, g, h),            \
    NEO__CRC_1((i) + 2, a, b, c, d, e, f, g, h), NEO__CRC_1((i) + 3, a, b, c, d, e, f, g, h)
#define NEO__CRC_16(i, a, b, c, d, e, f, g, h)                                                     \
    NEO__CRC_4(i, a, b, c, d, e, f, g, h), NEO__CRC_4((i) + 4, a, b, c, d, e, f, g, h),            \
    NEO__CRC_4((i) + 8, a, b, c, d, e, f, g, h), NEO__CRC_4((i) + 12, a, b, c, d, e, f, g, h)
#define NEO__CRC_64(i, a, b, c, d, e, f, g, h)                                                     \
    NEO__CRC_16(i, a, b, c, d, e, f, g, h), NEO__CRC_16((i) + 16, a, b, c, d, e, f, g, h),         \
    NEO__CRC_16((i) + 32, a, b, c, d, e, f, g, h), NEO__CRC_16((i) + 48, a, b, c, d, e, f, g, h)
#define NEO__CRC_TABLE(a, b, c, d, e, f, g, h)                                                     \
    {                                                                                              \
        NEO__CRC_64(0, a, b, c, d, e, f, g, h), NEO__CRC_64(64, a, b, c, d, e, f, g, h),           \
        NEO__CRC_64(128, a, b, c, d, e, f, g, h), NEO__CRC_64(192, a, b, c, d, e, f, g, h)         \
    }
static const uint32_t neo__crc_table[8][256] = {
    NEO__CRC_TABLE(0xF26B8303u, 0xE13B70F7u, 0xC79A971Fu, 0x8AD958CFu,
                   0x105EC76Fu, 0x20BD8EDEu, 0x417B1DBCu, 0x82F63B78u),
    NEO__CRC_TABLE(0x13A29877u, 0x274530EEu, 0x4E8A61DCu, 0x9D14C3B8u,
                   0x3FC5F181u, 0x7F8BE302u, 0xFF17C604u, 0xFBC3FAF9u),
    NEO__CRC_TABLE(0xA541927Eu, 0x4F6F520Du, 0x9EDEA41Au, 0x38513EC5u,
                   0x70A27D8Au, 0xE144FB14u, 0xC76580D9u, 0x8B277743u),
    NEO__CRC_TABLE(0xDD45AAB8u, 0xBF672381u, 0x7B2231F3u, 0xF64463E6u,
                   0xE964B13Du, 0xD725148Bu, 0xABA65FE7u, 0x52A0C93Fu),
    NEO__CRC_TABLE(0x38116FACu, 0x7022DF58u, 0xE045BEB0u, 0xC5670B91u,
                   0x8F2261D3u, 0x1BA8B557u, 0x37516AAEu, 0x6EA2D55Cu),
    NEO__CRC_TABLE(0xEF306B19u, 0xDB8CA0C3u, 0xB2F53777u, 0x6006181Fu,
                   0xC00C303Eu, 0x85F4168Du, 0x0E045BEBu, 0x1C08B7D6u),
    NEO__CRC_TABLE(0x68032CC8u, 0xD0065990u, 0xA5E0C5D1u, 0x4E2DFD53u,
                   0x9C5BFAA6u, 0x3D5B83BDu, 0x7AB7077Au, 0xF56E0EF4u),
    NEO__CRC_TABLE(0x493C7D27u, 0x9278FA4Eu, 0x211D826Du, 0x423B04DAu,
                   0x847609B4u, 0x0D006599u, 0x1A00CB32u, 0x34019664u),
};
#undef NEO__CRC_TABLE
#undef NEO__CRC_64
#undef NEO__CRC_16
#undef NEO__CRC_4
#undef NEO__CRC_1

/* The running checksum, not inverted. */
static uint32_t neo__crc32c_table(uint32_t crc, const unsigned char *p, size_t bytes) {
    const uint32_t(*t)[256] = neo__crc_table;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        crc = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^
              t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    for (; bytes > 0; p++, bytes--) crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
    return crc;
}

#if defined(NEO__X86)
__attribute__((target("sse4.2"))) static uint32_t
neo__crc32c_machine(uint32_t crc, const unsigned char *p, size_t bytes) {
    uint64_t wide = crc;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; p++, bytes--) crc = _mm_crc32_u8(crc, *p);
    return crc;
}
static int neo__crc32c_has_machine(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(NEO__ARM) && (defined(__linux__) || defined(__APPLE__))
#if defined(__linux__)
#include <sys/auxv.h>
#endif
/* Inline assembly: compilers declare the intrinsics only when the whole file targets +crc. */
static uint32_t neo__crc32c_machine(uint32_t crc, const unsigned char *p, size_t bytes) {
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; bytes > 0; p++, bytes--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*p));
    return crc;
}
static int neo__crc32c_has_machine(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1u << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1;
#endif
}
#else
#define NEO__CRC32C_TABLE_ONLY 1
#endif

NEO_API uint32_t neo_crc32c(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
#if !defined(NEO__CRC32C_TABLE_ONLY)
    if (neo__crc32c_has_machine()) return ~neo__crc32c_machine(~crc, p, bytes);
#endif
    return ~neo__crc32c_table(~crc, p, bytes);
}
/* ------------------------------------------------------------------------------------------------
   >>impl-state

   A list of named views, found by name through an open-addressing table of 32-bit slots. Names are
   in the file formats, so they are UTF-8 and unique. Parts of one tensor share its name: the table
   finds the first, which leads to the next ones. Every tensor is also seen as rows x columns (one
   column for one dimension; the first dimension against all others for more than two), and an entry
   as a rectangle of that.

   The digest. All arithmetic modulo 2^64; mix is neo__mix64, MurmurHash3's finaliser:
     mix(x): x ^= x >> 33; x *= 0xFF51AFD7ED558CCD;
             x ^= x >> 33; x *= 0xC4CEB9FE1A85EC53; x ^= x >> 33
     key   of a tensor: k = mix(neo_hash(name)); k = mix(k + dtype + 1); k = mix(k + ndim);
           for each dimension: k = mix(k + extent)
     bits  of an element: its bytes as an unsigned integer; 0x7FC00000 for a NaN of any float type
     part  of a range of elements: sum of mix((key ^ bits * 0xC2B2AE3D27D4EB4F) + (i + 1) *
           0x9E3779B97F4A7C15), i the element's row-major index in the whole, unsharded tensor
     state digest = mix(sum of all parts + mix(sum of mix(key))), both sums over the weights and
           optimizer tensors
   Sums commute, so tensors, shards and threads may come in any order, and parts of ranks add as
   integers.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__rect {
    int64_t row, col, rows, cols;
} neo__rect;
/* Memory that holds a rectangle of a tensor. */
typedef struct neo__slab {
    char *data;
    neo_dtype dtype;
    neo__rect place;
    int64_t step; /* elements from row to row */
} neo__slab;
typedef struct neo__state_entry {
    char *name;
    uint64_t hash;
    neo_state_kind kind;
    neo_tensor tensor, whole; /* what was given; the tensor it is, or is a part of, without data */
    neo__slab slab;
    int is_part, is_copy; /* is_copy: another part has it too */
    int first, next; /* entries: the first part of this name; the next one, or -1 */
} neo__state_entry;
typedef struct neo__state_word {
    char *key, *value;
} neo__state_word;
struct neo_state {
    neo_ctx *ctx;
    neo__state_entry *entries;
    int count, capacity;
    int32_t *slots; /* entry number + 1, or 0; a power of two of them, at most half of them used */
    int slot_count;
    neo__state_word *words;
    int word_count, word_capacity;
    neo_schema *schema; /* its dictionaries are saved too; or NULL */
};

/* The tensor in the state file that holds the dictionaries. */
#define NEO__SCHEMA_NAME "schema"

NEO__COLD_BEGIN
/* neo__grow: *items holds at least `need` items afterwards; the old ones are kept. */
static neo_status neo__grow(neo_ctx *ctx, void **items, int *capacity, int need,
                            size_t item_bytes) {
    if (need <= *capacity) return NEO_OK;
    int larger = *capacity > INT32_MAX / 2 ? INT32_MAX : NEO__MAX(*capacity * 2, 16);
    larger = NEO__MAX(larger, need);
    void *p = neo_alloc(ctx, neo__size_mul((size_t)larger, item_bytes));
    NEO__CHECK(p, NEO_ERR_MEMORY, "no memory for a list of %d items", larger);
    if (*capacity > 0) memcpy(p, *items, (size_t)*capacity * item_bytes);
    neo_free(ctx, *items, (size_t)*capacity * item_bytes);
    *items = p;
    *capacity = larger;
    return NEO_OK;
}

NEO_API neo_status neo_state_create(neo_ctx *ctx, neo_state **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_state_create: state is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_state_create", ctx));
    neo_state *state = (neo_state *)neo__alloc_zero(ctx, sizeof *state);
    NEO__CHECK(state, NEO_ERR_MEMORY, "neo_state_create: no memory for %zu bytes", sizeof *state);
    state->ctx = ctx;
    char text[32];
    snprintf(text, sizeof text, "%d", ctx->repro_shards);
    neo_status status = neo_state_define(state, "repro_shards", text);
    if (status == NEO_OK) {
        snprintf(text, sizeof text, "%" PRIu64, ctx->seed);
        status = neo_state_define(state, "seed", text);
    }
    if (status != NEO_OK) {
        neo_state_destroy(state);
        return status;
    }
    *out = state;
    return NEO_OK;
}

/* "[2, 3]" into text, for messages. */
static const char *neo__shape_text(const neo_tensor *t, char text[96]) {
    int n = snprintf(text, 96, "[");
    for (int d = 0; d < t->ndim; d++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}
static int neo__shapes_equal(const neo_tensor *a, const neo_tensor *b) {
    if (a->ndim != b->ndim) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return 0;
    return 1;
}
/* All of a tensor as rows x columns. */
static neo__rect neo__rect_whole(const neo_tensor *t) {
    neo__rect all = {0, 0, t->ndim > 0 ? t->shape[0] : 1, 1};
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0) all.rows = 0; /* the product of the others may overflow */
    }
    for (int d = 1; d < t->ndim && all.rows > 0; d++) all.cols *= t->shape[d];
    return all;
}
/* What two rectangles share; without rows or without columns: nothing. */
static neo__rect neo__rect_cut(const neo__rect *a, const neo__rect *b) {
    neo__rect cut;
    cut.row = NEO__MAX(a->row, b->row);
    cut.col = NEO__MAX(a->col, b->col);
    cut.rows = NEO__MIN(a->row + a->rows, b->row + b->rows) - cut.row;
    cut.cols = NEO__MIN(a->col + a->cols, b->col + b->cols) - cut.col;
    if (cut.rows <= 0 || cut.cols <= 0) cut.rows = cut.cols = 0;
    return cut;
}
static neo__slab neo__slab_whole(const neo_tensor *t) {
    neo__slab slab;
    slab.data = (char *)t->data;
    slab.dtype = t->dtype;
    slab.place = neo__rect_whole(t);
    slab.step = slab.place.cols;
    return slab;
}
/* "[0:100,0:16]", or "[0:100]" of one dimension: where an entry is in its tensor. */
static const char *neo__place_text(const neo__state_entry *entry, char text[96]) {
    const neo__rect *r = &entry->slab.place;
    int n = snprintf(text, 96, "[%" PRId64 ":%" PRId64, r->row, r->row + r->rows);
    if (entry->whole.ndim > 1)
        n += snprintf(text + n, 96 - (size_t)n, ",%" PRId64 ":%" PRId64, r->col, r->col + r->cols);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}
/* 1: a name that ends like that of a part in a file. */
static int neo__ends_as_part(const char *name) {
    const char *open = strrchr(name, '[');
    if (!open) return 0;
    size_t n = strspn(open + 1, "0123456789:,");
    return n > 0 && strcmp(open + 1 + n, "]") == 0 && strchr(open, ':') != NULL;
}

/* 1: files can hold t: in one piece, and not none (an empty tensor may have no memory). */
static int neo__tensor_is_storable(const neo_tensor *t) {
    int empty = 0;
    if ((unsigned)t->dtype >= (unsigned)NEO_DTYPE_COUNT || t->ndim < 0 || t->ndim > NEO_MAX_DIMS)
        return 0;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] < 0) return 0;
        empty |= t->shape[d] == 0;
    }
    return (t->data || empty) && neo_tensor_is_contiguous(*t);
}

/* ---- names ---- */
static void neo__state_put_slot(neo_state *state, int entry) {
    uint64_t mask = (uint64_t)state->slot_count - 1, i = state->entries[entry].hash & mask;
    while (state->slots[i]) i = (i + 1) & mask;
    state->slots[i] = entry + 1;
}
static void neo__state_fill_slots(neo_state *state) {
    if (state->slot_count == 0) return;
    memset(state->slots, 0, (size_t)state->slot_count * sizeof *state->slots);
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].first == i) neo__state_put_slot(state, i);
}
/* The first entry of a name, or -1. */
static int neo__state_find(const neo_state *state, const char *name) {
    if (state->slot_count == 0) return -1;
    uint64_t hash = neo_hash(name), mask = (uint64_t)state->slot_count - 1;
    for (uint64_t i = hash & mask; state->slots[i]; i = (i + 1) & mask) {
        const neo__state_entry *entry = &state->entries[state->slots[i] - 1];
        if (entry->hash == hash && strcmp(entry->name, name) == 0) return state->slots[i] - 1;
    }
    return -1;
}
/* Room for one more entry and its slot. */
static neo_status neo__state_reserve(neo_state *state) {
    void *entries = state->entries;
    NEO__TRY(neo__grow(state->ctx, &entries, &state->capacity, state->count + 1,
                       sizeof *state->entries));
    state->entries = (neo__state_entry *)entries;
    if (state->slot_count >= 2 * state->capacity) return NEO_OK;
    int count = 32;
    while (count < 2 * state->capacity) count *= 2;
    int32_t *slots = (int32_t *)neo_alloc(state->ctx, (size_t)count * sizeof *slots);
    NEO__CHECK(slots, NEO_ERR_MEMORY, "neo_state_add: no memory for %d slots", count);
    neo_free(state->ctx, state->slots, (size_t)state->slot_count * sizeof *slots);
    state->slots = slots;
    state->slot_count = count;
    neo__state_fill_slots(state);
    return NEO_OK;
}
/* Forget the entries from `count` on: what an add of several tensors does when one of them
   fails. */
static void neo__state_truncate(neo_state *state, int count) {
    for (int i = count; i < state->count; i++)
        neo__string_free(state->ctx, state->entries[i].name);
    state->count = count;
    for (int i = 0; i < count; i++)
        if (state->entries[i].next >= count) state->entries[i].next = -1;
    neo__state_fill_slots(state);
}

static neo_status neo__state_check(const neo_state *state, const char *function,
                                   neo_state_kind kind, const char *name) {
    NEO__CHECK(state && name && name[0], NEO_ERR_ARG, "%s: state is NULL or the name is empty",
               function);
    NEO__CHECK(kind >= NEO_STATE_WEIGHT && kind <= NEO_STATE_PROGRESS, NEO_ERR_ARG,
               "%s: %s: kind is %d, none of neo_state_kind", function, name, (int)kind);
    NEO__CHECK(neo__utf8_valid(name), NEO_ERR_ARG, "%s: %s: the name is not UTF-8", function, name);
    NEO__CHECK(strcmp(name, NEO__SCHEMA_NAME) != 0 && strcmp(name, "__metadata__") != 0 &&
                   !neo__ends_as_part(name),
               NEO_ERR_ARG, "%s: the name %s is reserved", function, name);
    return NEO_OK;
}
/* One more entry; first: the entry of the same name, or -1. The rest of it is set already. */
static neo_status neo__state_put(neo_state *state, neo__state_entry *entry, const char *name,
                                 int first) {
    NEO__TRY(neo__state_reserve(state));
    entry->name = neo__string_copy(state->ctx, name);
    NEO__CHECK(entry->name, NEO_ERR_MEMORY, "neo_state_add: no memory for the name %s", name);
    entry->hash = neo_hash(name);
    entry->first = first >= 0 ? first : state->count;
    entry->next = -1;
    state->entries[state->count] = *entry;
    if (first < 0) {
        neo__state_put_slot(state, state->count++);
        return NEO_OK;
    }
    while (state->entries[first].next >= 0) first = state->entries[first].next;
    state->entries[first].next = state->count++;
    return NEO_OK;
}

NEO_API neo_status neo_state_add(neo_state *state, neo_state_kind kind, const char *name,
                                 neo_tensor t) {
    NEO__TRY(neo__state_check(state, "neo_state_add", kind, name));
    if (t.absent && !t.data) return neo__no_data("neo_state_add", name, t, NEO_ERR_STATE);
    NEO__CHECK(neo__tensor_is_storable(&t), NEO_ERR_ARG,
               "neo_state_add: %s: the tensor is none or not contiguous", name);
    NEO__CHECK(neo__state_find(state, name) < 0, NEO_ERR_ARG, "neo_state_add: %s is there already",
               name);
    NEO__ZERO(neo__state_entry, entry);
    entry.kind = kind;
    entry.tensor = t;
    entry.whole = neo_tensor_nd(NULL, t.dtype, t.ndim, t.shape);
    entry.slab = neo__slab_whole(&t);
    return neo__state_put(state, &entry, name, -1);
}

/* The tensor and its place make sense by themselves. */
static neo_status neo__state_check_part(const char *name, const neo_tensor *t,
                                        const neo_part *part) {
    NEO__CHECK(part && (t->ndim == 1 || t->ndim == 2) &&
                   (unsigned)t->dtype < (unsigned)NEO_DTYPE_COUNT,
               NEO_ERR_ARG,
               "neo_state_add_part: %s: no place, or a tensor that is not [n] or [n][m]", name);
    int flat = t->ndim == 1;
    int64_t n = t->shape[0], m = flat ? 1 : t->shape[1], cols = flat ? 1 : part->cols;
    if (t->absent && !t->data) return neo__no_data("neo_state_add_part", name, *t, NEO_ERR_STATE);
    NEO__CHECK(n >= 0 && m >= 0 && (t->data || n == 0 || m == 0), NEO_ERR_ARG,
               "neo_state_add_part: %s: the tensor is none", name);
    NEO__CHECK((m <= 1 || flat || t->stride[1] == 1) && (n <= 1 || t->stride[0] >= m), NEO_ERR_ARG,
               "neo_state_add_part: %s: the elements of a row are not one behind the other", name);
    NEO__CHECK(part->rows >= 1 && cols >= 1 && part->rows <= INT64_MAX / 64 / cols &&
                   (!flat || (part->cols == 0 && part->first_col == 0)),
               NEO_ERR_ARG,
               "neo_state_add_part: %s: a whole of %" PRId64 " rows and %" PRId64
               " columns is none for a part of %d dimensions (1 dimension: 0 columns)",
               name, part->rows, part->cols, (int)t->ndim);
    NEO__CHECK(part->first_row >= 0 && n <= part->rows && part->first_row <= part->rows - n &&
                   part->first_col >= 0 && m <= cols && part->first_col <= cols - m,
               NEO_ERR_ARG,
               "neo_state_add_part: %s: %" PRId64 " x %" PRId64 " elements at row %" PRId64
               ", column %" PRId64 " leave the tensor of %" PRId64 " x %" PRId64,
               name, n, m, part->first_row, part->first_col, part->rows, cols);
    return NEO_OK;
}
/* It goes together with the parts of the same name. */
static neo_status neo__state_check_parts(const neo_state *state, int first, const char *name,
                                         const neo__state_entry *entry) {
    for (int i = first; i >= 0; i = state->entries[i].next) {
        const neo__state_entry *other = &state->entries[i];
        char a[96], b[96];
        NEO__CHECK(other->is_part, NEO_ERR_ARG,
                   "neo_state_add_part: %s is there already, as a whole", name);
        NEO__CHECK(other->kind == entry->kind && other->whole.dtype == entry->whole.dtype &&
                       neo__shapes_equal(&other->whole, &entry->whole),
                   NEO_ERR_ARG,
                   "neo_state_add_part: %s: a part of %s %s, another one is of %s %s%s", name,
                   neo_dtype_name(entry->whole.dtype), neo__shape_text(&entry->whole, a),
                   neo_dtype_name(other->whole.dtype), neo__shape_text(&other->whole, b),
                   other->kind == entry->kind ? "" : " and another kind");
        NEO__CHECK(other->is_copy || entry->is_copy ||
                       neo__rect_cut(&other->slab.place, &entry->slab.place).rows == 0,
                   NEO_ERR_ARG,
                   "neo_state_add_part: %s: part %s overlaps part %s", name,
                   neo__place_text(entry, a), neo__place_text(other, b));
    }
    return NEO_OK;
}
NEO_API neo_status neo_state_add_part(neo_state *state, neo_state_kind kind, const char *name,
                                      neo_tensor t, const neo_part *part) {
    NEO__TRY(neo__state_check(state, "neo_state_add_part", kind, name));
    NEO__TRY(neo__state_check_part(name, &t, part));
    int64_t shape[2] = {part->rows, part->cols};
    NEO__ZERO(neo__state_entry, entry);
    entry.kind = kind;
    entry.tensor = t;
    entry.is_part = 1;
    entry.is_copy = part->copy != 0;
    entry.whole = neo_tensor_nd(NULL, t.dtype, t.ndim, shape);
    entry.slab.data = (char *)t.data;
    entry.slab.dtype = t.dtype;
    entry.slab.place.row = part->first_row;
    entry.slab.place.col = part->first_col;
    entry.slab.place.rows = t.shape[0];
    entry.slab.place.cols = t.ndim == 1 ? 1 : t.shape[1];
    entry.slab.step = t.shape[0] > 1 ? t.stride[0] : entry.slab.place.cols;
    int first = neo__state_find(state, name);
    NEO__TRY(neo__state_check_parts(state, first, name, &entry));
    return neo__state_put(state, &entry, name, first);
}

NEO_API neo_status neo_state_add_params(neo_state *state, const neo_params *params) {
    NEO__CHECK(state && params, NEO_ERR_ARG, "neo_state_add_params: an argument is NULL");
    int before = state->count;
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *param = neo_params_at(params, i);
        neo_status status = neo_state_add(state, NEO_STATE_WEIGHT, param->name, param->value);
        if (status == NEO_OK) continue;
        neo__state_truncate(state, before);
        return status;
    }
    return NEO_OK;
}

NEO_API neo_status neo_state_add_optim(neo_state *state, neo_optim *optim) {
    NEO__CHECK(state && optim, NEO_ERR_ARG, "neo_state_add_optim: an argument is NULL");
    int before = state->count;
    const char *name = NULL;
    neo_tensor t = neo_tensor_none();
    for (int i = 0; i < neo__optim_state_count(optim); i++) {
        neo__optim_state_at(optim, i, &name, &t);
        neo_status status = neo_state_add(state, NEO_STATE_OPTIMIZER, name, t);
        if (status == NEO_OK) continue;
        neo__state_truncate(state, before);
        return status;
    }
    return NEO_OK;
}

/* <bags>.<table>.weight, .scale (of i8), .momentum1, .momentum2, and <bags>.step. */
static neo_status neo__state_add_table(neo_state *state, neo_bags *bags, int32_t table) {
    static const char *const suffix[] = {"weight", "scale", "momentum1", "momentum2"};
    char name[1024];
    for (int k = 0; k < 4; k++) {
        neo_tensor t = k == 0   ? neo_bags_weight(bags, table)
                       : k == 1 ? neo_bags_scale(bags, table)
                                : neo_bags_state(bags, table, k - 2);
        if (!t.data && k > 0) continue;
        int n = snprintf(name, sizeof name, "%s.%s.%s", neo__bags_name(bags),
                         neo_bags_table_name(bags, table), suffix[k]);
        NEO__CHECK(n > 0 && n < (int)sizeof name, NEO_ERR_ARG,
                   "neo_state_add_bags: the name %.100s... is too long", name);
        NEO__TRY(neo_state_add(state, k < 2 ? NEO_STATE_WEIGHT : NEO_STATE_OPTIMIZER, name, t));
    }
    return NEO_OK;
}
NEO_API neo_status neo_state_add_bags(neo_state *state, neo_bags *bags) {
    NEO__CHECK(state && bags, NEO_ERR_ARG, "neo_state_add_bags: an argument is NULL");
    int before = state->count;
    neo_status status = NEO_OK;
    for (int32_t i = 0; i < neo_bags_table_count(bags) && status == NEO_OK; i++)
        status = neo__state_add_table(state, bags, i);
    char name[1024];
    snprintf(name, sizeof name, "%s.step", neo__bags_name(bags));
    if (status == NEO_OK)
        status = neo_state_add(state, NEO_STATE_OPTIMIZER, name,
                               neo_tensor_1d(neo__bags_steps(bags), NEO_I64, 1));
    if (status != NEO_OK) neo__state_truncate(state, before);
    return status;
}

NEO_API neo_status neo_state_add_schema(neo_state *state, neo_schema *schema) {
    NEO__CHECK(state && schema, NEO_ERR_ARG, "neo_state_add_schema: an argument is NULL");
    NEO__CHECK(!state->schema, NEO_ERR_ARG,
               "neo_state_add_schema: the state has a schema already");
    state->schema = schema;
    return NEO_OK;
}

NEO_API neo_status neo_state_define(neo_state *state, const char *key, const char *value) {
    NEO__CHECK(state && key && key[0] && value, NEO_ERR_ARG,
               "neo_state_define: an argument is NULL or the key is empty");
    NEO__CHECK(neo__utf8_valid(key) && neo__utf8_valid(value), NEO_ERR_ARG,
               "neo_state_define: %s: the key or its value is not UTF-8", key);
    neo_ctx *ctx = state->ctx;
    char *copy = neo__string_copy(ctx, value), *key_copy = NULL;
    NEO__CHECK(copy, NEO_ERR_MEMORY, "neo_state_define: no memory for %s", key);
    for (int i = 0; i < state->word_count; i++) {
        if (strcmp(state->words[i].key, key) != 0) continue;
        neo__string_free(ctx, state->words[i].value);
        state->words[i].value = copy;
        return NEO_OK;
    }
    void *words = state->words;
    neo_status status =
        neo__grow(ctx, &words, &state->word_capacity, state->word_count + 1, sizeof *state->words);
    state->words = (neo__state_word *)words;
    if (status == NEO_OK) {
        key_copy = neo__string_copy(ctx, key);
        if (!key_copy)
            status = neo_fail(NEO_ERR_MEMORY, "neo_state_define: no memory for %s", key);
    }
    if (status != NEO_OK) {
        neo__string_free(ctx, copy);
        return status;
    }
    state->words[state->word_count].key = key_copy;
    state->words[state->word_count++].value = copy;
    return NEO_OK;
}

NEO_API void neo_state_destroy(neo_state *state) {
    if (!state) return;
    neo_ctx *ctx = state->ctx;
    neo__state_truncate(state, 0);
    for (int i = 0; i < state->word_count; i++) {
        neo__string_free(ctx, state->words[i].key);
        neo__string_free(ctx, state->words[i].value);
    }
    neo_free(ctx, state->words, (size_t)state->word_capacity * sizeof *state->words);
    neo_free(ctx, state->slots, (size_t)state->slot_count * sizeof *state->slots);
    neo_free(ctx, state->entries, (size_t)state->capacity * sizeof *state->entries);
    neo_free(ctx, state, sizeof *state);
}

NEO_API int neo_state_count(const neo_state *state) { return state->count; }
NEO_API const char *neo_state_name(const neo_state *state, int index) {
    return index >= 0 && index < state->count ? state->entries[index].name : NULL;
}
NEO_API neo_tensor neo_state_tensor(const neo_state *state, int index) {
    return index >= 0 && index < state->count ? state->entries[index].tensor : neo_tensor_none();
}
NEO__COLD_END

/* ---- digest ---- */
#define NEO__DIGEST_INDEX UINT64_C(0x9E3779B97F4A7C15)
#define NEO__DIGEST_BITS UINT64_C(0xC2B2AE3D27D4EB4F)
#define NEO__DIGEST_NAN 0x7FC00000u

static uint64_t neo__digest_key(const char *name, neo_dtype dtype, int ndim,
                                const int64_t *shape) {
    uint64_t key = neo__mix64(neo_hash(name));
    key = neo__mix64(key + (uint64_t)dtype + 1);
    key = neo__mix64(key + (uint64_t)ndim);
    for (int d = 0; d < ndim; d++) key = neo__mix64(key + (uint64_t)shape[d]);
    return key;
}
/* A float's bits: above `infinity`, without the sign, they are a NaN. */
NEO__INLINE uint64_t neo__digest_bits(uint32_t bits, uint32_t sign, uint32_t infinity) {
    return (bits & ~sign) > infinity ? NEO__DIGEST_NAN : bits;
}
#define NEO__DIGEST_LOOP(type, expression)                                                        \
    do {                                                                                          \
        const char *p = (const char *)data;                                                       \
        for (int64_t i = 0; i < count; i++, at += NEO__DIGEST_INDEX) {                            \
            type v;                                                                               \
            memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                       \
            sum += neo__mix64((key ^ (uint64_t)(expression)*NEO__DIGEST_BITS) + at);              \
        }                                                                                         \
    } while (0)
/* neo__digest_part: of `count` elements at data, whose first is element `first` of the whole
   tensor. */
static uint64_t neo__digest_part(uint64_t key, neo_dtype dtype, const void *data, int64_t first,
                                 int64_t count) {
    uint64_t sum = 0, at = ((uint64_t)first + 1) * NEO__DIGEST_INDEX;
    switch (dtype) {
    case NEO_F32: NEO__DIGEST_LOOP(uint32_t, neo__digest_bits(v, 0x80000000u, 0x7F800000u)); break;
    case NEO_F16: NEO__DIGEST_LOOP(uint16_t, neo__digest_bits(v, 0x8000u, 0x7C00u)); break;
    case NEO_BF16: NEO__DIGEST_LOOP(uint16_t, neo__digest_bits(v, 0x8000u, 0x7F80u)); break;
    case NEO_F8E4M3: NEO__DIGEST_LOOP(uint8_t, neo__digest_bits(v, 0x80u, 0x7Eu)); break;
    case NEO_F8E5M2: NEO__DIGEST_LOOP(uint8_t, neo__digest_bits(v, 0x80u, 0x7Cu)); break;
    case NEO_I8:
    case NEO_U8: NEO__DIGEST_LOOP(uint8_t, v); break;
    case NEO_I32: NEO__DIGEST_LOOP(uint32_t, v); break;
    case NEO_I64: NEO__DIGEST_LOOP(uint64_t, v); break;
    case NEO_DTYPE_COUNT: break;
    }
    return sum;
}
#undef NEO__DIGEST_LOOP

typedef struct neo__digest_job {
    const neo__slab *slab;
    uint64_t key;
    int64_t whole_cols, count, tasks;
    uint64_t sum; /* atomic */
} neo__digest_job;
static void neo__digest_task(void *arg, int64_t task, int worker) {
    neo__digest_job *job = (neo__digest_job *)arg;
    const neo__slab *slab = job->slab;
    const neo__rect *place = &slab->place;
    int64_t begin, end, cols = place->cols;
    uint64_t sum = 0;
    (void)worker;
    neo__task_range(job->count, job->tasks, task, 1, &begin, &end);
    if (cols == job->whole_cols && cols == slab->step) cols = job->count; /* in one piece */
    if (begin == end) return;
    int64_t row = begin / cols, col = begin % cols;
    for (int64_t at = begin, n; at < end; at += n, row++, col = 0) {
        n = NEO__MIN(end - at, cols - col);
        int64_t first = (place->row + row) * job->whole_cols + place->col + col;
        sum += neo__digest_part(job->key, slab->dtype,
                                slab->data + (size_t)(row * slab->step + col) *
                                                  neo_dtype_size(slab->dtype),
                                first, n);
    }
    __atomic_fetch_add(&job->sum, sum, __ATOMIC_RELAXED);
}
static uint64_t neo__entry_key(const neo__state_entry *entry) {
    const neo_tensor *whole = &entry->whole;
    return neo__digest_key(entry->name, whole->dtype, whole->ndim, whole->shape);
}
/* The sum over the elements of an entry. */
static uint64_t neo__entry_digest(const neo_state *state, const neo__state_entry *entry) {
    neo__digest_job job;
    job.slab = &entry->slab;
    job.key = neo__entry_key(entry);
    job.whole_cols = neo__rect_whole(&entry->whole).cols;
    job.count = entry->slab.place.rows * entry->slab.place.cols;
    job.tasks = neo__task_count(state->ctx, job.count, 65536);
    job.sum = 0;
    neo_parallel_for(state->ctx, job.tasks, neo__digest_task, &job);
    return job.sum;
}
NEO_API uint64_t neo_state_digest(const neo_state *state) {
    uint64_t parts = 0, keys = 0;
    for (int i = 0; i < state->count; i++) {
        const neo__state_entry *entry = &state->entries[i];
        if (entry->kind == NEO_STATE_PROGRESS) continue;
        if (!entry->is_copy) parts += neo__entry_digest(state, entry);
        if (entry->first == i) keys += neo__mix64(neo__entry_key(entry));
    }
    return neo__mix64(parts + neo__mix64(keys));
}
/* ------------------------------------------------------------------------------------------------
   >>impl-group

   Ranks that save, load or digest together. All that they tell each other goes through the two
   calls of neo_group: a sum in which all but one rank give zeros hands that rank's words to all.
   Every rank makes the same calls in the same order: what may fail on one rank alone (an
   allocation, a file) is followed by an agreement before the next sum.

   Who holds what is checked before a save and in a digest:
   - Replicas (neo_state_add): rank 0 hands out name hash, key and digest of each; the other ranks
     compare with their own.
   - Parts: every rank gets the list of all parts of all ranks. Sorted by name and row, neighbours
     that overlap show by a sweep, and the counts of elements then tell whether all is covered.
   The rank that finds a fault and knows the tensor's name words the message for all.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__meet {
    neo_ctx *ctx;
    neo_group group;
    uint64_t *each; /* a word of every rank: see neo__meet_each */
} neo__meet;
/* A part, as all ranks get to know it. Nothing but words, so that it travels through a sum. */
typedef struct neo__part_words {
    uint64_t name, key, kind, elements; /* elements: of the whole tensor */
    uint64_t rank, entry, row, col, rows, cols;
} neo__part_words;
typedef struct neo__replica_words {
    uint64_t name, key, kind, digest;
} neo__replica_words;
typedef struct neo__census {
    neo__part_words *parts; /* of all ranks, by name, row, column and rank */
    int64_t part_count;
    neo__replica_words *replicas; /* as rank 0 has them */
    int64_t replica_count;
} neo__census;
enum { NEO__MEET_WORDS = 1 << 16 }; /* of one sum */

NEO__COLD_BEGIN
/* All ranks go on, or none: with the status and message of the lowest that cannot. */
static neo_status neo__meet_agree(const neo__meet *meet, neo_status status) {
    if (meet->group.size == 1) return status;
    if (status != NEO_OK)
        status = neo_fail(status, "rank %d: %.480s", meet->group.rank, neo__error_text);
    return meet->group.agree(meet->group.user, status);
}
static neo_status neo__meet_sum(const neo__meet *meet, void *words, int64_t count) {
    uint64_t *w = (uint64_t *)words;
    for (int64_t at = 0; at < count && meet->group.size > 1; at += NEO__MEET_WORDS) {
        int n = (int)NEO__MIN(count - at, (int64_t)NEO__MEET_WORDS);
        NEO__TRY(meet->group.sum(meet->group.user, w + at, n));
    }
    return NEO_OK;
}
/* meet->each[r] = the word of rank r. */
static neo_status neo__meet_each(const neo__meet *meet, uint64_t word) {
    memset(meet->each, 0, (size_t)meet->group.size * sizeof *meet->each);
    meet->each[meet->group.rank] = word;
    return neo__meet_sum(meet, meet->each, meet->group.size);
}
/* A word that must be that of rank 0. */
static neo_status neo__meet_same(const neo__meet *meet, uint64_t word, const char *function,
                                 const char *what) {
    NEO__TRY(neo__meet_each(meet, word));
    neo_status status = NEO_OK;
    if (word != meet->each[0])
        status = neo_fail(NEO_ERR_MISMATCH, "%s: %s differs from that of rank 0", function, what);
    return neo__meet_agree(meet, status);
}
static void neo__meet_end(neo__meet *meet) {
    if (meet->each) neo_free(meet->ctx, meet->each, (size_t)meet->group.size * sizeof *meet->each);
    meet->each = NULL;
}
static neo_status neo__meet_begin(neo__meet *meet, neo_ctx *ctx, const char *function,
                                  const neo_group *group) {
    memset(meet, 0, sizeof *meet);
    meet->ctx = ctx;
    meet->group.size = 1;
    if (group) meet->group = *group;
    int rank = meet->group.rank, size = meet->group.size;
    NEO__CHECK(size >= 1 && rank >= 0 && rank < size, NEO_ERR_ARG,
               "%s: the group has rank %d of %d", function, rank, size);
    NEO__CHECK(size == 1 || (meet->group.agree && meet->group.sum), NEO_ERR_ARG,
               "%s: the group lacks agree or sum", function);
    size_t bytes = neo__size_mul((size_t)size, sizeof *meet->each);
    meet->each = (uint64_t *)neo_alloc(ctx, bytes);
    neo_status status = NEO_OK;
    if (!meet->each)
        status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %d words", function, size);
    status = neo__meet_agree(meet, status);
    if (status != NEO_OK) neo__meet_end(meet);
    return status;
}

/* ---- replicas ---- */
static void neo__census_free(neo_ctx *ctx, neo__census *census) {
    neo_free(ctx, census->parts, (size_t)census->part_count * sizeof *census->parts);
    neo_free(ctx, census->replicas, (size_t)census->replica_count * sizeof *census->replicas);
}
/* The entry behind a hash of a name, or NULL. */
static const neo__state_entry *neo__state_find_hash(const neo_state *state, uint64_t hash) {
    if (state->slot_count == 0) return NULL;
    uint64_t mask = (uint64_t)state->slot_count - 1;
    for (uint64_t i = hash & mask; state->slots[i]; i = (i + 1) & mask)
        if (state->entries[state->slots[i] - 1].hash == hash)
            return &state->entries[state->slots[i] - 1];
    return NULL;
}
/* Progress is equal on all ranks when it is saved; a digest may come at any time. */
static int neo__census_takes(const neo__state_entry *entry, int progress) {
    return progress || entry->kind != NEO_STATE_PROGRESS;
}
static neo__replica_words neo__replica_of(const neo_state *state, const neo__state_entry *entry) {
    neo__replica_words words;
    words.name = entry->hash;
    words.key = neo__entry_key(entry);
    words.kind = (uint64_t)entry->kind;
    words.digest = neo__entry_digest(state, entry);
    return words;
}
/* 1: this rank has the replica with the same bits. */
static int neo__replica_agrees(const neo_state *state, const neo__replica_words *want) {
    const neo__state_entry *entry = neo__state_find_hash(state, want->name);
    if (!entry || entry->is_part) return 0;
    neo__replica_words mine = neo__replica_of(state, entry);
    return memcmp(&mine, want, sizeof mine) == 0;
}
/* Rank 0 names the ranks whose replica is another: meet->each has 1 for those. */
static neo_status neo__replica_fail(const neo_state *state, const neo__meet *meet,
                                    const char *function, uint64_t hash) {
    char ranks[64];
    int n = 0, more = 0;
    for (int r = 0; r < meet->group.size; r++) {
        if (!meet->each[r]) continue;
        if (n > 40) more++;
        else n += snprintf(ranks + n, sizeof ranks - (size_t)n, "%s%d", n ? ", " : "", r);
    }
    if (more) snprintf(ranks + n, sizeof ranks - (size_t)n, " and %d more", more);
    return neo_fail(NEO_ERR_MISMATCH,
                    "%s: tensor %s is not the same on all ranks: ranks that lack it or hold other "
                    "bits than rank 0: %s",
                    function, neo__state_find_hash(state, hash)->name, ranks);
}
/* What this rank has that rank 0 has not. */
static neo_status neo__replica_extra(const neo_state *state, const neo__census *census,
                                     const char *function, int progress) {
    for (int i = 0; i < state->count; i++) {
        const neo__state_entry *entry = &state->entries[i];
        int64_t k = 0;
        if (entry->is_part || !neo__census_takes(entry, progress)) continue;
        while (k < census->replica_count && census->replicas[k].name != entry->hash) k++;
        NEO__CHECK(k < census->replica_count, NEO_ERR_MISMATCH,
                   "%s: tensor %s is not on rank 0 as it is here, not in parts", function,
                   entry->name);
    }
    return NEO_OK;
}
/* Rank 0's list of replicas on every rank. */
static neo_status neo__replicas_share(const neo_state *state, const neo__meet *meet,
                                      const char *function, int progress, neo__census *census) {
    int64_t mine = 0, at = 0;
    neo_status status = NEO_OK;
    for (int i = 0; i < state->count; i++)
        mine += !state->entries[i].is_part && neo__census_takes(&state->entries[i], progress);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    int64_t count = (int64_t)meet->each[0];
    census->replicas = (neo__replica_words *)neo__alloc_zero(
        meet->ctx, (size_t)count * sizeof *census->replicas);
    if (census->replicas) census->replica_count = count;
    else
        status =
            neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " tensors", function, count);
    for (int i = 0; i < state->count && status == NEO_OK && meet->group.rank == 0; i++)
        if (!state->entries[i].is_part && neo__census_takes(&state->entries[i], progress))
            census->replicas[at++] = neo__replica_of(state, &state->entries[i]);
    NEO__TRY(neo__meet_agree(meet, status));
    return neo__meet_sum(meet, census->replicas, 4 * count);
}
/* Each rank against that list. differs: as many words, zeros. */
static neo_status neo__replicas_compare(const neo_state *state, const neo__meet *meet,
                                        const char *function, int progress,
                                        const neo__census *census, uint64_t *differs) {
    int64_t count = census->replica_count, k = 0;
    int rank = meet->group.rank;
    neo_status status = NEO_OK;
    for (int64_t i = 0; i < count && rank > 0; i++)
        differs[i] = !neo__replica_agrees(state, &census->replicas[i]);
    NEO__TRY(neo__meet_sum(meet, differs, count));
    while (k < count && !differs[k]) k++;
    if (k == count)
        return neo__meet_agree(meet, neo__replica_extra(state, census, function, progress));
    int mine = rank > 0 && !neo__replica_agrees(state, &census->replicas[k]);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    if (rank == 0) status = neo__replica_fail(state, meet, function, census->replicas[k].name);
    return neo__meet_agree(meet, status);
}
static neo_status neo__census_replicas(const neo_state *state, const neo__meet *meet,
                                       const char *function, int progress, neo__census *census) {
    NEO__TRY(neo__replicas_share(state, meet, function, progress, census));
    size_t bytes = (size_t)census->replica_count * sizeof(uint64_t);
    uint64_t *differs = (uint64_t *)neo__alloc_zero(meet->ctx, bytes);
    neo_status status = NEO_OK;
    if (!differs)
        status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes", function, bytes);
    status = neo__meet_agree(meet, status);
    if (status == NEO_OK)
        status = neo__replicas_compare(state, meet, function, progress, census, differs);
    neo_free(meet->ctx, differs, bytes);
    return status;
}

/* ---- parts ---- */
static int neo__part_compare(const void *a, const void *b) {
    const neo__part_words *x = (const neo__part_words *)a, *y = (const neo__part_words *)b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->col != y->col) return x->col < y->col ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}
static void neo__part_fill(const neo_state *state, int index, int rank, neo__part_words *out) {
    const neo__state_entry *entry = &state->entries[index];
    const neo__rect *place = &entry->slab.place;
    neo__rect all = neo__rect_whole(&entry->whole);
    out->name = entry->hash;
    out->key = neo__entry_key(entry);
    out->kind = (uint64_t)entry->kind;
    out->elements = (uint64_t)all.rows * (uint64_t)all.cols;
    out->rank = (uint64_t)rank;
    out->entry = (uint64_t)index;
    out->row = (uint64_t)place->row;
    out->col = (uint64_t)place->col;
    out->rows = (uint64_t)place->rows;
    out->cols = (uint64_t)place->cols;
}
static int neo__entry_is_own(const neo__state_entry *entry) {
    return entry->is_part && !entry->is_copy;
}
/* The list of all parts of all ranks, on every rank. */
static neo_status neo__parts_share(const neo_state *state, const neo__meet *meet,
                                   const char *function, neo__census *census) {
    int64_t mine = 0, total = 0, at = 0;
    neo_status status = NEO_OK;
    for (int i = 0; i < state->count; i++) mine += neo__entry_is_own(&state->entries[i]);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    for (int r = 0; r < meet->group.size; r++) {
        if (r == meet->group.rank) at = total;
        total += (int64_t)meet->each[r];
    }
    size_t bytes = neo__size_mul((size_t)total, sizeof *census->parts);
    census->parts = (neo__part_words *)neo__alloc_zero(meet->ctx, bytes);
    if (census->parts) census->part_count = total;
    else status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " parts", function, total);
    NEO__TRY(neo__meet_agree(meet, status));
    for (int i = 0; i < state->count; i++)
        if (neo__entry_is_own(&state->entries[i]))
            neo__part_fill(state, i, meet->group.rank, &census->parts[at++]);
    NEO__TRY(neo__meet_sum(meet, census->parts, 10 * total));
    if (total > 1)
        qsort(census->parts, (size_t)total, sizeof *census->parts, neo__part_compare);
    return NEO_OK;
}
static neo__rect neo__part_rect(const neo__part_words *p) {
    neo__rect rect = {(int64_t)p->row, (int64_t)p->col, (int64_t)p->rows, (int64_t)p->cols};
    return rect;
}
/* Parts [0, count) are those of one tensor: NEO_OK or, on the rank of the first of them, what is
   wrong. fault: on all ranks, whether something is. */
static neo_status neo__parts_check(const neo_state *state, int rank, const char *function,
                                   const neo__part_words *part, int64_t count, int *fault) {
    uint64_t elements = 0;
    int speaks = part->rank == (uint64_t)rank;
    const char *name = speaks ? state->entries[part->entry].name : "";
    for (int64_t i = 0; i < count && !*fault; i++) {
        const neo__part_words *a = &part[i];
        elements += a->rows * a->cols;
        *fault = a->key != part->key || a->kind != part->kind;
        if (*fault && speaks)
            return neo_fail(NEO_ERR_MISMATCH,
                            "%s: tensor %s has another dtype, whole shape or kind on rank %" PRIu64
                            " than on rank %" PRIu64,
                            function, name, a->rank, part->rank);
        for (int64_t k = i + 1; k < count && part[k].row < a->row + a->rows && !*fault; k++) {
            neo__rect x = neo__part_rect(a), y = neo__part_rect(&part[k]);
            neo__rect cut = neo__rect_cut(&x, &y);
            *fault = cut.rows > 0;
            if (*fault && speaks)
                return neo_fail(NEO_ERR_MISMATCH,
                                "%s: tensor %s: rows %" PRId64 " to %" PRId64 ", columns %" PRId64
                                " to %" PRId64 " are on rank %" PRIu64 " and on rank %" PRIu64,
                                function, name, cut.row, cut.row + cut.rows - 1, cut.col,
                                cut.col + cut.cols - 1, a->rank, part[k].rank);
        }
    }
    if (*fault || elements == part->elements) return NEO_OK;
    *fault = 1;
    NEO__CHECK(!speaks, NEO_ERR_MISMATCH,
               "%s: tensor %s: the parts of all ranks hold %" PRIu64 " of its %" PRIu64 " elements",
               function, name, elements, part->elements);
    return NEO_OK;
}
static neo_status neo__census_parts(const neo_state *state, const neo__meet *meet,
                                    const char *function, neo__census *census) {
    NEO__TRY(neo__parts_share(state, meet, function, census));
    neo_status status = NEO_OK;
    int fault = 0;
    for (int64_t i = 0, end; i < census->part_count && !fault; i = end) {
        for (end = i + 1; end < census->part_count;) {
            if (census->parts[end].name != census->parts[i].name) break;
            end++;
        }
        status = neo__parts_check(state, meet->group.rank, function, &census->parts[i], end - i,
                                  &fault);
    }
    return neo__meet_agree(meet, status);
}
/* Who has what, and that it makes one state. */
static neo_status neo__census_take(const neo_state *state, const neo__meet *meet,
                                   const char *function, int progress, neo__census *census) {
    NEO__TRY(neo__census_replicas(state, meet, function, progress, census));
    return neo__census_parts(state, meet, function, census);
}

/* ---- digest ---- */
static neo_status neo__digest_meet(const neo_state *state, const neo__meet *meet,
                                   uint64_t *digest) {
    NEO__ZERO(neo__census, census);
    uint64_t sum = 0, keys = 0;
    neo_status status = neo__census_take(state, meet, "neo_state_digest_group", 0, &census);
    for (int i = 0; i < state->count && status == NEO_OK; i++)
        if (neo__entry_is_own(&state->entries[i]) && neo__census_takes(&state->entries[i], 0))
            sum += neo__entry_digest(state, &state->entries[i]);
    if (status == NEO_OK) status = neo__meet_sum(meet, &sum, 1);
    for (int64_t i = 0; i < census.replica_count; i++) {
        sum += census.replicas[i].digest;
        keys += neo__mix64(census.replicas[i].key);
    }
    for (int64_t i = 0; i < census.part_count; i++) {
        const neo__part_words *part = &census.parts[i];
        int again = i > 0 && part[-1].name == part->name;
        if (!again && part->kind != (uint64_t)NEO_STATE_PROGRESS) keys += neo__mix64(part->key);
    }
    if (status == NEO_OK) *digest = neo__mix64(sum + neo__mix64(keys));
    neo__census_free(meet->ctx, &census);
    return status;
}
NEO_API neo_status neo_state_digest_group(const neo_state *state, const neo_group *group,
                                          uint64_t *digest) {
    NEO__CHECK(state && digest, NEO_ERR_ARG, "neo_state_digest_group: an argument is NULL");
    neo__meet meet;
    NEO__TRY(neo__meet_begin(&meet, state->ctx, "neo_state_digest_group", group));
    neo_status status = neo__digest_meet(state, &meet, digest);
    neo__meet_end(&meet);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-safetensors

   A file is: 8 bytes, the length N of the header (little-endian); N bytes of JSON,
     {"__metadata__": {"key": "value"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
     [0, 24]}};
   then the data, which the offset ranges tile without gap or overlap. The reader believes nothing:
   N is bounded by the file and by 100 MB (as the reference implementation), keys are unique, a
   range is exactly as long as dtype and shape say. The writer sorts by element size, so that every
   tensor is aligned, and pads the header with spaces to a multiple of 8. It writes to
   "<path>.partial" and renames.
   ------------------------------------------------------------------------------------------------ */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "neo.h: its file formats are little-endian, and so must be the machine"
#endif
enum { NEO__ST_HEADER_BYTES = 100000000 };

typedef struct neo__st_dtype {
    const char *name;
    int bits;
    int dtype; /* neo_dtype, or -1: known to the format only */
} neo__st_dtype;
static const neo__st_dtype neo__st_dtypes[] = {
    {"F32", 32, NEO_F32},
    {"F16", 16, NEO_F16},
    {"BF16", 16, NEO_BF16},
    {"F8_E4M3", 8, NEO_F8E4M3},
    {"F8_E5M2", 8, NEO_F8E5M2},
    {"I8", 8, NEO_I8},
    {"I32", 32, NEO_I32},
    {"I64", 64, NEO_I64},
    {"U8", 8, NEO_U8},
    {"F64", 64, -1},
    {"I16", 16, -1},
    {"U16", 16, -1},
    {"U32", 32, -1},
    {"U64", 64, -1},
    {"BOOL", 8, -1},
    {"C64", 64, -1},
    {"F8_E8M0", 8, -1},
    {"F4", 4, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
};
enum { NEO__ST_DTYPE_COUNT = sizeof neo__st_dtypes / sizeof neo__st_dtypes[0] };

typedef struct neo__st_tensor {
    const char *name; /* in the header's text */
    int64_t begin, end;
    int64_t shape[NEO_MAX_DIMS];
    int ndim;  /* of the file: may exceed NEO_MAX_DIMS; then shape is not all of it */
    int dtype; /* in neo__st_dtypes */
} neo__st_tensor;
struct neo_safetensors {
    neo_ctx *ctx;
    char *path;
    neo__file file;
    char *header;
    size_t header_bytes;
    int64_t data_offset, data_bytes;
    neo__st_tensor *tensors; /* in the order of their data */
    int count, capacity;
    const neo__st_tensor **by_name;
    const char **metadata; /* key, value, key, value ... */
    int has_metadata, metadata_count, metadata_capacity;
};

/* ---- reading the header ---- */
NEO__COLD_BEGIN
static neo_status neo__st_parse_dtype(neo__json *j, neo__st_tensor *t) {
    char *name = NULL;
    size_t at = j->at;
    NEO__TRY(neo__json_string(j, &name));
    for (int i = 0; i < NEO__ST_DTYPE_COUNT; i++) {
        t->dtype = i;
        if (strcmp(name, neo__st_dtypes[i].name) == 0) return NEO_OK;
    }
    return neo__json_fail(j, at, "a dtype the format does not know");
}
/* The shape, and its number of elements. */
static neo_status neo__st_parse_shape(neo__json *j, neo__st_tensor *t, int64_t *elements) {
    int more = 1, empty = 0;
    int64_t product = 1;
    NEO__TRY(neo__json_open(j, '['));
    for (t->ndim = 0;; t->ndim++) {
        int64_t extent = 0;
        NEO__TRY(neo__json_next(j, ']', t->ndim, &more));
        if (!more) break;
        NEO__TRY(neo__json_count(j, &extent));
        if (t->ndim < NEO_MAX_DIMS) t->shape[t->ndim] = extent;
        if (extent == 0) empty = 1;
        else if (product > INT64_MAX / 64 / extent)
            return neo__json_fail(j, j->at, "a shape that is too large");
        else product *= extent;
    }
    *elements = empty ? 0 : product;
    return NEO_OK;
}
static neo_status neo__st_parse_range(neo__json *j, neo__st_tensor *t) {
    NEO__TRY(neo__json_expect(j, '['));
    NEO__TRY(neo__json_count(j, &t->begin));
    NEO__TRY(neo__json_expect(j, ','));
    NEO__TRY(neo__json_count(j, &t->end));
    return neo__json_expect(j, ']');
}
/* {"dtype": ..., "shape": ..., "data_offsets": ...}, each once. */
static neo_status neo__st_parse_tensor(neo__json *j, neo__st_tensor *t) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int seen = 0, more = 1;
    int64_t elements = 0;
    size_t start = j->at;
    NEO__TRY(neo__json_open(j, '{'));
    for (int i = 0;; i++) {
        char *key = NULL;
        NEO__TRY(neo__json_next(j, '}', i, &more));
        if (!more) break;
        size_t at = j->at;
        NEO__TRY(neo__json_key(j, &key));
        int k = 0;
        while (k < 3 && strcmp(key, keys[k]) != 0) k++;
        if (k == 3)
            return neo__json_fail(j, at, "a key that is none of dtype, shape, data_offsets");
        if (seen & 1 << k) return neo__json_fail(j, at, "a key that is there twice");
        seen |= 1 << k;
        if (k == 0) NEO__TRY(neo__st_parse_dtype(j, t));
        if (k == 1) NEO__TRY(neo__st_parse_shape(j, t, &elements));
        if (k == 2) NEO__TRY(neo__st_parse_range(j, t));
    }
    if (seen != 7)
        return neo__json_fail(j, start, "a tensor without dtype, shape or data_offsets");
    int64_t bits = elements * neo__st_dtypes[t->dtype].bits;
    if (t->end < t->begin || bits % 8 != 0 || t->end - t->begin != bits / 8)
        return neo_fail(NEO_ERR_FORMAT,
                         "%s: byte %" PRIu64 ": tensor %s: data_offsets [%" PRId64 ", %" PRId64
                         "] do not hold %" PRId64 " elements of %s",
                         j->file, j->offset + start, t->name, t->begin, t->end, elements,
                         neo__st_dtypes[t->dtype].name);
    return NEO_OK;
}
static int neo__compare_strings(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
/* Sorts pairs (key, value) by key and refuses equal keys. */
static neo_status neo__st_parse_metadata(neo__json *j, neo_safetensors *file) {
    int more = 1;
    size_t start = j->at;
    if (file->has_metadata) return neo__json_fail(j, start, "__metadata__ is there twice");
    file->has_metadata = 1;
    NEO__TRY(neo__json_open(j, '{'));
    for (int i = 0;; i++) {
        char *key = NULL, *value = NULL;
        NEO__TRY(neo__json_next(j, '}', i, &more));
        if (!more) break;
        NEO__TRY(neo__json_key(j, &key));
        NEO__TRY(neo__json_string(j, &value));
        void *pairs = (void *)file->metadata;
        NEO__TRY(neo__grow(file->ctx, &pairs, &file->metadata_capacity, file->metadata_count + 1,
                           2 * sizeof *file->metadata));
        file->metadata = (const char **)pairs;
        file->metadata[2 * file->metadata_count] = key;
        file->metadata[2 * file->metadata_count + 1] = value;
        file->metadata_count++;
    }
    int n = file->metadata_count;
    if (n > 1)
        qsort((void *)file->metadata, (size_t)n, 2 * sizeof *file->metadata, neo__compare_strings);
    for (int i = 1; i < n; i++)
        if (strcmp(file->metadata[2 * i - 2], file->metadata[2 * i]) == 0)
            return neo__json_fail(j, start, "a metadata key that is there twice");
    return NEO_OK;
}

static int neo__st_compare_ranges(const void *a, const void *b) {
    const neo__st_tensor *x = (const neo__st_tensor *)a, *y = (const neo__st_tensor *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}
static int neo__st_compare_names(const void *a, const void *b) {
    const neo__st_tensor *x = *(const neo__st_tensor *const *)a,
                         *y = *(const neo__st_tensor *const *)b;
    return strcmp(x->name, y->name);
}
/* Orders the tensors by their data and by name; ranges must tile the data and names must
   differ. */
static neo_status neo__st_index(neo_safetensors *file) {
    int n = file->count;
    file->by_name =
        (const neo__st_tensor **)neo_alloc(file->ctx, (size_t)n * sizeof *file->by_name);
    NEO__CHECK(file->by_name, NEO_ERR_MEMORY, "%s: no memory for an index of %d tensors",
               file->path, n);
    if (n > 1) qsort(file->tensors, (size_t)n, sizeof *file->tensors, neo__st_compare_ranges);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        const neo__st_tensor *t = &file->tensors[i];
        NEO__CHECK(t->begin == at, NEO_ERR_FORMAT,
                   "%s: tensor %s: its data begins at byte %" PRId64
                   " of the data, the one before ends at %" PRId64,
                   file->path, t->name, t->begin, at);
        at = t->end;
        file->by_name[i] = t;
    }
    NEO__CHECK(at == file->data_bytes, NEO_ERR_FORMAT,
               "%s: the header describes %" PRId64 " bytes of data, the file has %" PRId64,
               file->path, at, file->data_bytes);
    if (n > 1)
        qsort((void *)file->by_name, (size_t)n, sizeof *file->by_name, neo__st_compare_names);
    for (int i = 1; i < n; i++)
        NEO__CHECK(strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) != 0, NEO_ERR_FORMAT,
                   "%s: tensor %s is there twice", file->path, file->by_name[i]->name);
    return NEO_OK;
}
/* The header's text is in file->header, the sizes are set. */
static neo_status neo__st_parse(neo_safetensors *file) {
    NEO__ZERO(neo__json, j);
    j.text = file->header;
    j.size = file->header_bytes;
    j.file = file->path;
    j.offset = 8;
    int more = 1;
    if (j.size == 0 || j.text[0] != '{')
        return neo__json_fail(&j, 0, "the header does not begin with '{'");
    NEO__TRY(neo__json_open(&j, '{'));
    for (int i = 0;; i++) {
        char *name = NULL;
        NEO__TRY(neo__json_next(&j, '}', i, &more));
        if (!more) break;
        NEO__TRY(neo__json_key(&j, &name));
        if (strcmp(name, "__metadata__") == 0) {
            NEO__TRY(neo__st_parse_metadata(&j, file));
            continue;
        }
        void *tensors = file->tensors;
        NEO__TRY(neo__grow(file->ctx, &tensors, &file->capacity, file->count + 1,
                           sizeof *file->tensors));
        file->tensors = (neo__st_tensor *)tensors;
        neo__st_tensor *t = &file->tensors[file->count++];
        memset(t, 0, sizeof *t);
        t->name = name;
        NEO__TRY(neo__st_parse_tensor(&j, t));
    }
    NEO__TRY(neo__json_end(&j));
    return neo__st_index(file);
}
static neo_status neo__st_read_header(neo_safetensors *file) {
    unsigned char length[8];
    int64_t size = neo__file_size(&file->file);
    NEO__CHECK(size >= 8, NEO_ERR_FORMAT, "%s: not a safetensors file: %s", file->path,
               size < 0 ? "it has no size" : "shorter than 8 bytes");
    NEO__TRY(neo__file_read_at(&file->file, 0, length, 8));
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)length[i] << 8 * i;
    NEO__CHECK(n >= 2 && n <= NEO__ST_HEADER_BYTES && n <= (uint64_t)(size - 8), NEO_ERR_FORMAT,
               "%s: byte 0: a header of %" PRIu64 " bytes cannot be in a file of %" PRId64,
               file->path, n, size);
    file->data_offset = 8 + (int64_t)n;
    file->data_bytes = size - file->data_offset;
    file->header = (char *)neo_alloc(file->ctx, (size_t)n);
    NEO__CHECK(file->header, NEO_ERR_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes",
               file->path, n);
    file->header_bytes = (size_t)n;
    NEO__TRY(neo__file_read_at(&file->file, 8, file->header, (size_t)n));
    return neo__st_parse(file);
}

NEO_API neo_status neo_safetensors_open(neo_ctx *ctx, const char *path, neo_safetensors **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_safetensors_open: file is NULL");
    *out = NULL;
    NEO__CHECK(ctx && path, NEO_ERR_ARG, "neo_safetensors_open: ctx or path is NULL");
    neo__file handle;
    NEO__TRY(neo__file_open(&handle, path, NEO__FILE_READ));
    neo_safetensors *file = (neo_safetensors *)neo__alloc_zero(ctx, sizeof *file);
    char *copy = neo__string_copy(ctx, path);
    if (!file || !copy) {
        neo__string_free(ctx, copy);
        neo_free(ctx, file, sizeof *file);
        neo__file_close(&handle);
        return neo_fail(NEO_ERR_MEMORY, "neo_safetensors_open: %s: no memory", path);
    }
    file->ctx = ctx;
    file->path = copy;
    file->file = handle;
    file->file.path = copy;
    neo_status status = neo__st_read_header(file);
    if (status != NEO_OK) {
        neo_safetensors_close(file);
        return status;
    }
    *out = file;
    return NEO_OK;
}
NEO_API void neo_safetensors_close(neo_safetensors *file) {
    if (!file) return;
    neo_ctx *ctx = file->ctx;
    neo__file_close(&file->file);
    if (file->by_name)
        neo_free(ctx, (void *)file->by_name, (size_t)file->count * sizeof *file->by_name);
    neo_free(ctx, (void *)file->metadata,
              (size_t)file->metadata_capacity * 2 * sizeof *file->metadata);
    neo_free(ctx, file->tensors, (size_t)file->capacity * sizeof *file->tensors);
    neo_free(ctx, file->header, file->header_bytes);
    neo__string_free(ctx, file->path);
    neo_free(ctx, file, sizeof *file);
}

/* ---- reading ---- */
NEO_API int neo_safetensors_count(const neo_safetensors *file) { return file->count; }
NEO_API const char *neo_safetensors_name(const neo_safetensors *file, int index) {
    return index >= 0 && index < file->count ? file->tensors[index].name : NULL;
}
NEO_API int neo_safetensors_find(const neo_safetensors *file, const char *name) {
    int lo = 0, hi = file->count;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, order = strcmp(file->by_name[mid]->name, name);
        if (order == 0) return (int)(file->by_name[mid] - file->tensors);
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return -1;
}
NEO_API const char *neo_safetensors_metadata(const neo_safetensors *file, const char *key) {
    int lo = 0, hi = file->metadata_count; /* sorted by key */
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, order = strcmp(file->metadata[2 * mid], key);
        if (order == 0) return file->metadata[2 * mid + 1];
        if (order < 0) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}
NEO_API neo_status neo_safetensors_info(const neo_safetensors *file, int index, neo_tensor *t) {
    NEO__CHECK(t && index >= 0 && index < file->count, NEO_ERR_ARG,
               "neo_safetensors_info: %s: t is NULL or there is no tensor %d", file->path, index);
    const neo__st_tensor *in = &file->tensors[index];
    const neo__st_dtype *dtype = &neo__st_dtypes[in->dtype];
    NEO__CHECK(dtype->dtype >= 0, NEO_ERR_UNSUPPORTED,
               "%s: tensor %s has dtype %s, which neo has not", file->path, in->name, dtype->name);
    NEO__CHECK(in->ndim <= NEO_MAX_DIMS, NEO_ERR_UNSUPPORTED,
               "%s: tensor %s has %d dimensions, more than %d", file->path, in->name, in->ndim,
               NEO_MAX_DIMS);
    *t = neo_tensor_nd(NULL, (neo_dtype)dtype->dtype, in->ndim, in->shape);
    return NEO_OK;
}

static int neo__converts(neo_dtype from, neo_dtype to) {
    int wide = from == NEO_F32 || from == NEO_F16 || from == NEO_BF16;
    return from == to || (wide && (to == NEO_F32 || to == NEO_F16 || to == NEO_BF16));
}
/* What read would say, without reading: shape and dtype of the whole tensor. */
static neo_status neo__st_check(const neo_safetensors *file, int index, const neo_tensor *t) {
    neo_tensor info;
    NEO__TRY(neo_safetensors_info(file, index, &info));
    char a[96], b[96];
    const char *name = file->tensors[index].name;
    NEO__CHECK(neo__shapes_equal(&info, t), NEO_ERR_MISMATCH,
               "%s: tensor %s has shape %s, expected %s", file->path, name,
               neo__shape_text(&info, a), neo__shape_text(t, b));
    NEO__CHECK(neo__converts(info.dtype, t->dtype), NEO_ERR_MISMATCH,
               "%s: tensor %s is %s, expected %s", file->path, name, neo_dtype_name(info.dtype),
               neo_dtype_name(t->dtype));
    return NEO_OK;
}
/* A rectangle of a tensor as a file holds it, row by row. */
typedef struct neo__st_rect {
    int64_t offset; /* in the file */
    neo_dtype dtype;
    neo__rect place;
} neo__st_rect;
static neo__st_rect neo__st_rect_of(const neo_safetensors *file, int index) {
    neo__st_rect rect;
    neo_tensor info;
    const neo__st_tensor *t = &file->tensors[index];
    rect.dtype = (neo_dtype)neo__st_dtypes[t->dtype].dtype;
    rect.offset = file->data_offset + t->begin;
    info = neo_tensor_nd(NULL, rect.dtype, t->ndim, t->shape);
    rect.place = neo__rect_whole(&info);
    return rect;
}
/* Rows shorter than this are read several at once, with what lies between them, through a buffer
   of that many bytes. */
enum { NEO__ST_ROW_BYTES = 4096, NEO__ST_BUFFER_BYTES = 1 << 18 };
/* From buffer [rows][width], from_step apart, to memory, to_step apart. */
static neo_status neo__st_scatter(neo_ctx *ctx, char *buffer, neo_dtype from, int64_t from_step,
                                  char *data, neo_dtype to, int64_t to_step, int64_t rows,
                                  int64_t width) {
    size_t size = neo_dtype_size(from);
    if (from != to) {
        neo_tensor src = neo_tensor_2d(buffer, from, rows, width);
        neo_tensor dst = neo_tensor_2d(data, to, rows, width);
        src.stride[0] = from_step;
        dst.stride[0] = to_step;
        return neo_tensor_convert(ctx, src, dst, NULL);
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(data + (size_t)(r * to_step) * size, buffer + (size_t)(r * from_step) * size,
               (size_t)width * size);
    return NEO_OK;
}
/* What rect and slab share, from the file to memory. The context's scratch is the buffer. */
static neo_status neo__st_read_rect(neo_ctx *ctx, const neo__file *file, const neo__st_rect *rect,
                                    const neo__slab *slab) {
    neo__rect cut = neo__rect_cut(&rect->place, &slab->place);
    if (cut.rows == 0) return NEO_OK;
    size_t from = neo_dtype_size(rect->dtype), to = neo_dtype_size(slab->dtype);
    int64_t rows = cut.rows, width = cut.cols, from_step = rect->place.cols, to_step = slab->step;
    int64_t at = (cut.row - rect->place.row) * from_step + cut.col - rect->place.col;
    char *buffer = neo__shared_scratch(ctx), *data = slab->data;
    data += (size_t)((cut.row - slab->place.row) * to_step + cut.col - slab->place.col) * to;
    if (width == from_step && width == to_step) { /* one piece on both sides */
        width *= rows;
        rows = 1;
    }
    int direct = rect->dtype == slab->dtype &&
                 (rows == 1 || (size_t)width * from >= NEO__ST_ROW_BYTES);
    int64_t room = (int64_t)(NEO__ST_BUFFER_BYTES / from);
    int64_t piece = direct ? width : NEO__MIN(width, room); /* of a row */
    int64_t batch = direct ? 1 : NEO__MIN((room - piece) / from_step + 1, rows);
    for (int64_t r = 0; r < rows; r += batch) {
        int64_t n = NEO__MIN(batch, rows - r);
        for (int64_t c = 0, w; c < width; c += w) {
            w = NEO__MIN(piece, width - c);
            int64_t offset = rect->offset + (at + r * from_step + c) * (int64_t)from;
            char *out = data + (size_t)(r * to_step + c) * to;
            size_t bytes = (size_t)((n - 1) * from_step + w) * from;
            NEO__TRY(neo__file_read_at(file, offset, direct ? out : buffer, bytes));
            if (direct) continue;
            NEO__TRY(neo__st_scatter(ctx, buffer, rect->dtype, from_step, out, slab->dtype,
                                     to_step, n, w));
        }
    }
    return NEO_OK;
}
NEO_API neo_status neo_safetensors_read(neo_safetensors *file, int index, neo_tensor t) {
    NEO__CHECK(file && index >= 0 && index < file->count, NEO_ERR_ARG,
               "neo_safetensors_read: file is NULL or there is no tensor %d", index);
    NEO__TRY(neo__st_check(file, index, &t));
    if (t.absent && !t.data)
        return neo__no_data("neo_safetensors_read", file->tensors[index].name, t, NEO_ERR_STATE);
    NEO__CHECK(neo__tensor_is_storable(&t), NEO_ERR_ARG,
               "%s: tensor %s: what to read into is none or not contiguous", file->path,
               file->tensors[index].name);
    neo__st_rect rect = neo__st_rect_of(file, index);
    neo__slab slab = neo__slab_whole(&t);
    return neo__st_read_rect(file->ctx, &file->file, &rect, &slab);
}

/* ---- writing ---- */
typedef struct neo__st_item {
    const char *name;
    const neo_tensor *tensor;
} neo__st_item;
static int neo__st_compare_items(const void *a, const void *b) {
    const neo__st_item *x = (const neo__st_item *)a, *y = (const neo__st_item *)b;
    size_t sx = neo_dtype_size(x->tensor->dtype), sy = neo_dtype_size(y->tensor->dtype);
    if (sx != sy) return sx > sy ? -1 : 1;
    return strcmp(x->name, y->name);
}
static void neo__st_put_header(neo__out *out, const neo__st_item *items, int count,
                               const char *const *metadata, int metadata_count) {
    uint64_t at = 0;
    neo__out_text(out, "{\"__metadata__\":{");
    for (int i = 0; i < metadata_count; i++) {
        if (i > 0) neo__out_text(out, ",");
        neo__out_string(out, metadata[2 * i]);
        neo__out_text(out, ":");
        neo__out_string(out, metadata[2 * i + 1]);
    }
    neo__out_text(out, "}");
    for (int i = 0; i < count; i++) {
        const neo_tensor *t = items[i].tensor;
        const char *dtype = "";
        for (int k = 0; k < NEO__ST_DTYPE_COUNT; k++)
            if (neo__st_dtypes[k].dtype == (int)t->dtype) dtype = neo__st_dtypes[k].name;
        neo__out_text(out, ",");
        neo__out_string(out, items[i].name);
        neo__out_format(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
        for (int d = 0; d < t->ndim; d++)
            neo__out_format(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        uint64_t end = at + neo_tensor_bytes(*t);
        neo__out_format(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
        at = end;
    }
    neo__out_text(out, "}");
}
/* A tensor of any shape in one piece, or one of 1 or 2 dimensions whose rows lie apart. */
static void neo__st_put_data(neo__out *out, const neo_tensor *t) {
    if (neo_tensor_is_contiguous(*t)) {
        neo__out_bytes(out, t->data, neo_tensor_bytes(*t));
        return;
    }
    size_t size = neo_dtype_size(t->dtype), width = t->ndim > 1 ? (size_t)t->shape[1] * size : size;
    for (int64_t r = 0; r < t->shape[0]; r++)
        neo__out_bytes(out, (const char *)t->data + (size_t)(r * t->stride[0]) * size, width);
}
/* A whole file into out. Sorts items. The caller checked names and tensors. */
static neo_status neo__st_put(neo__out *out, neo__st_item *items, int count,
                              const char *const *metadata, int metadata_count) {
    if (count > 1) qsort(items, (size_t)count, sizeof *items, neo__st_compare_items);
    neo__out length;
    neo__out_begin(&length, NULL);
    neo__st_put_header(&length, items, count, metadata, metadata_count);
    uint64_t bytes = (length.bytes + 7) / 8 * 8;
    NEO__CHECK(bytes <= NEO__ST_HEADER_BYTES, NEO_ERR_CAPACITY,
               "%s: a header of %" PRIu64 " bytes is too long", out->file->path, bytes);
    neo__out_bytes(out, &bytes, 8);
    neo__st_put_header(out, items, count, metadata, metadata_count);
    neo__out_bytes(out, "       ", (size_t)(bytes - length.bytes));
    for (int i = 0; i < count; i++) neo__st_put_data(out, items[i].tensor);
    return neo__out_flush(out);
}
static int neo__st_compare_item_names(const void *a, const void *b) {
    return strcmp(((const neo__st_item *)a)->name, ((const neo__st_item *)b)->name);
}
static neo_status neo__st_check_items(neo__st_item *items, int count) {
    for (int i = 0; i < count; i++) {
        const neo_tensor *t = items[i].tensor;
        const char *name = items[i].name;
        NEO__CHECK(name && neo__utf8_valid(name), NEO_ERR_ARG,
                   "neo_safetensors_write: the name of tensor %d is NULL or not UTF-8", i);
        NEO__CHECK(strcmp(name, "__metadata__") != 0, NEO_ERR_ARG,
                   "neo_safetensors_write: the name __metadata__ is reserved");
        if (t->absent && !t->data)
            return neo__no_data("neo_safetensors_write", name, *t, NEO_ERR_STATE);
        NEO__CHECK(neo__tensor_is_storable(t), NEO_ERR_ARG,
                   "neo_safetensors_write: tensor %s is none or not contiguous", name);
    }
    if (count > 1) qsort(items, (size_t)count, sizeof *items, neo__st_compare_item_names);
    for (int i = 1; i < count; i++)
        NEO__CHECK(strcmp(items[i - 1].name, items[i].name) != 0, NEO_ERR_ARG,
                   "neo_safetensors_write: the name %s is there twice", items[i].name);
    return NEO_OK;
}
/* A new file at path: written under another name, flushed to disk, renamed. On failure path is as
   before. */
static neo_status neo__st_write_items(const char *path, neo__st_item *items, int count,
                                      const char *const *metadata, int metadata_count) {
    char partial[NEO__PATH_BYTES], error[NEO__ERROR_BYTES];
    neo__file file;
    neo__out out;
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    NEO__CHECK(n > 0 && n < (int)sizeof partial, NEO_ERR_ARG, "%.200s...: the path is too long",
               path);
    NEO__TRY(neo__file_open(&file, partial, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo_status status = neo__st_put(&out, items, count, metadata, metadata_count);
    if (status == NEO_OK) status = neo__file_sync(&file);
    neo_status closed = neo__file_close(&file);
    if (status == NEO_OK) status = closed;
    if (status == NEO_OK) status = neo__path_rename(partial, path);
    if (status == NEO_OK) status = neo__path_parent(partial, path);
    if (status == NEO_OK) return neo__dir_sync(partial);
    memcpy(error, neo__error_text, sizeof error); /* what follows may fail too, and matters less */
    neo__file_remove(partial);
    return neo_fail(status, "%s", error);
}
NEO_API neo_status neo_safetensors_write(neo_ctx *ctx, const char *path, const char *const *names,
                                         const neo_tensor *tensors, int count,
                                         const char *const *metadata, int metadata_count) {
    NEO__CHECK(ctx && path && count >= 0 && (count == 0 || (names && tensors)), NEO_ERR_ARG,
               "neo_safetensors_write: an argument is NULL or count is negative");
    NEO__CHECK(metadata_count >= 0 && (metadata_count == 0 || metadata), NEO_ERR_ARG,
               "neo_safetensors_write: metadata is NULL or its count negative");
    for (int i = 0; i < 2 * metadata_count; i++)
        NEO__CHECK(metadata[i] && neo__utf8_valid(metadata[i]), NEO_ERR_ARG,
                   "neo_safetensors_write: metadata string %d is NULL or not UTF-8", i);
    for (int i = 0; i < metadata_count; i++)
        for (int k = 0; k < i; k++)
            NEO__CHECK(strcmp(metadata[2 * i], metadata[2 * k]) != 0, NEO_ERR_ARG,
                       "neo_safetensors_write: metadata key %s is there twice", metadata[2 * i]);
    size_t bytes = neo__size_mul((size_t)count, sizeof(neo__st_item));
    neo__st_item *items = (neo__st_item *)neo_alloc(ctx, bytes);
    NEO__CHECK(items, NEO_ERR_MEMORY, "neo_safetensors_write: %s: no memory for %d tensors", path,
               count);
    for (int i = 0; i < count; i++) {
        items[i].name = names[i];
        items[i].tensor = &tensors[i];
    }
    neo_status status = neo__st_check_items(items, count);
    if (status == NEO_OK)
        status = neo__st_write_items(path, items, count, metadata, metadata_count);
    neo_free(ctx, items, bytes);
    return status;
}

/* ---- weights from another trainer ---- */
/* out = `to` with its '*' replaced by what the '*' of `from` stands for in `name`; 0 if from does
   not match or the result is too long. */
static int neo__map_name(const char *from, const char *to, const char *name, char *out,
                         size_t bytes) {
    const char *star = strchr(from, '*'), *to_star = strchr(to, '*');
    size_t n = strlen(name);
    if (!star || !to_star) {
        size_t length = strlen(to);
        if (star || to_star || strcmp(from, name) != 0 || length >= bytes) return 0;
        memcpy(out, to, length + 1);
        return 1;
    }
    size_t head = (size_t)(star - from), tail = strlen(star + 1);
    if (n < head + tail || memcmp(name, from, head) != 0 || strcmp(name + n - tail, star + 1) != 0)
        return 0;
    int length = snprintf(out, bytes, "%.*s%.*s%s", (int)(to_star - to), to,
                          (int)(n - head - tail), name + head, to_star + 1);
    return length >= 0 && (size_t)length < bytes;
}
/* The tensor of the file for a weight, or -1. */
static int neo__st_find_mapped(const neo_safetensors *file, const neo_name_map *map, int map_count,
                               const char *name) {
    char other[1024];
    int index = neo_safetensors_find(file, name);
    for (int i = 0; i < map_count && index < 0; i++)
        if (neo__map_name(map[i].state_name, map[i].file_name, name, other, sizeof other))
            index = neo_safetensors_find(file, other);
    return index;
}
/* Two passes over the weights: check all of them, then read. */
static neo_status neo__st_load_weights(neo_safetensors *file, const neo_name_map *map,
                                       int map_count, int partial, const neo_state *state,
                                       int *loaded) {
    *loaded = 0; /* the parts of a weight are one */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < state->count; i++) {
            const neo__state_entry *entry = &state->entries[i];
            if (entry->kind != NEO_STATE_WEIGHT) continue;
            int index = neo__st_find_mapped(file, map, map_count, entry->name);
            NEO__CHECK(index >= 0 || partial, NEO_ERR_NOT_FOUND,
                       "%s: no tensor for the weight %s, under this name or by the name map",
                       file->path, entry->name);
            if (index < 0) continue;
            if (pass == 0) NEO__TRY(neo__st_check(file, index, &entry->whole));
            if (pass == 0) continue;
            neo__st_rect rect = neo__st_rect_of(file, index);
            NEO__TRY(neo__st_read_rect(file->ctx, &file->file, &rect, &entry->slab));
            *loaded += entry->first == i;
        }
    }
    return NEO_OK;
}
NEO_API neo_status neo_load_safetensors(neo_ctx *ctx, const char *path, const neo_name_map *map,
                                        int map_count, int partial, neo_state *state,
                                        int *loaded) {
    NEO__CHECK(ctx && path && state && map_count >= 0 && (map || map_count == 0), NEO_ERR_ARG,
               "neo_load_safetensors: an argument is NULL");
    for (int i = 0; i < map_count; i++) {
        const char *a = map[i].file_name, *b = map[i].state_name;
        const char *star_a = a ? strchr(a, '*') : NULL, *star_b = b ? strchr(b, '*') : NULL;
        NEO__CHECK(
            a && b && !star_a == !star_b &&
                (!star_a || (!strchr(star_a + 1, '*') && !strchr(star_b + 1, '*'))),
            NEO_ERR_ARG,
            "neo_load_safetensors: map[%d] ('%s', '%s') needs one '*' in both names or in none", i,
            a ? a : "NULL", b ? b : "NULL");
    }
    neo_safetensors *file = NULL;
    int count = 0;
    NEO__TRY(neo_safetensors_open(ctx, path, &file));
    neo_status status = neo__st_load_weights(file, map, map_count, partial, state, &count);
    neo_safetensors_close(file);
    if (status == NEO_OK && loaded) *loaded = count;
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-checkpoint

   Saving. Everything is written into step-<12 digits>.partial, which no reader looks at: the
   safetensors files straight from the tensors' memory, the index, and manifest.json under another
   name, each flushed to disk; then the manifest is renamed, the directory flushed, and the
   directory renamed to step-<12 digits>. A checkpoint of the same step moves to step-<12
   digits>.old for the moment between the two renames; readers accept it there, and the next save
   puts it back if the process died in between. So at every moment the newest whole checkpoint is
   found whole. Old ones are renamed to .partial before they are removed; what a dead process left
   under .partial goes at the next save.

   In a group every rank writes its two files and tells the others their sizes and checksums. Rank 0
   does all the rest: it makes the directory, looks whether it sees each file at its size, makes the
   index from the headers of the files, and commits. The ranks agree before the directory is made
   (who has what: >>impl-group), when it is there, when the files are written, and at the end; when
   they do not, rank 0 removes what was written.

   The manifest is JSON; its last member is the CRC32C of all bytes before that member, so that
   every byte of a checkpoint is under some checksum:
     {"format": "neo-checkpoint", "version": 1, "step": 12,
      "definition": {"repro_shards": "1", ...},
      "files": [{"name": "model-00001-of-00001.safetensors", "bytes": 1, "crc32c": "0a1b2c3d"},
                ...],
      "manifest_crc32c": "0a1b2c3d"}
   Version 2 is one with parts, or of several ranks.

   Loading reads the files twice: once for the checksums, of which the ranks of a group take turns,
   and, when names, shapes, dtypes and the definition agree too, once into the tensors. Between the
   two every rank goes through all headers, one file at a time, and notes what each rectangle there
   shares with its own parts. To see that these pieces cover a part exactly once it keeps no list of
   them, but adds up their corners: a corner counts as a hash of its place, the first and the last
   with +, the other two with -. Where pieces meet, corners cancel; what stays are the four corners
   of the part, and nothing else, if and (but for a chance of 2^-64) only if each element is covered
   once. Tensors that no rank asks for come out by a sum over the ranks of one word per tensor.
   ------------------------------------------------------------------------------------------------ */
#define NEO__CKPT_FIRST_STATE "state-00001-of-" /* of rank 0: it has the dictionaries */
#define NEO__CKPT_INDEX "model.safetensors.index.json"
#define NEO__CKPT_MANIFEST "manifest.json"
#define NEO__CKPT_FORMAT "neo-checkpoint"
#define NEO__CKPT_TAIL ",\n \"manifest_crc32c\": \"%08" PRIx32 "\"}\n"
enum { NEO__CKPT_TAIL_BYTES = 34, NEO__CKPT_MANIFEST_BYTES = 1 << 26, NEO__CKPT_NAME_BYTES = 80 };
#define NEO__CKPT_MAX_STEP INT64_C(999999999999)

/* ---- names of steps ---- */
typedef enum neo__ckpt_suffix {
    NEO__CKPT_WHOLE,
    NEO__CKPT_OLD,
    NEO__CKPT_PARTIAL
} neo__ckpt_suffix;
static const char *const neo__ckpt_suffixes[] = {"", ".old", ".partial"};

NEO__COLD_BEGIN
/* <dir>/step-<step><suffix> into out[NEO__PATH_BYTES]. */
static neo_status neo__ckpt_path(char *out, const char *dir, int64_t step,
                                 neo__ckpt_suffix suffix) {
    char name[64];
    snprintf(name, sizeof name, "step-%012" PRId64 "%s", step, neo__ckpt_suffixes[suffix]);
    return neo__path_join(out, dir, name);
}
/* Reads such a name; anything else gives 0. */
static int neo__ckpt_parse_name(const char *name, int64_t *step, neo__ckpt_suffix *suffix) {
    if (strncmp(name, "step-", 5) != 0) return 0;
    *step = 0;
    for (int i = 5; i < 17; i++) {
        if (name[i] < '0' || name[i] > '9') return 0;
        *step = *step * 10 + (name[i] - '0');
    }
    for (int i = 0; i < 3; i++) {
        *suffix = (neo__ckpt_suffix)i;
        if (strcmp(name + 17, neo__ckpt_suffixes[i]) == 0) return 1;
    }
    return 0;
}
static int neo__ckpt_is_whole(const char *path) {
    char manifest[NEO__PATH_BYTES];
    if (neo__path_join(manifest, path, NEO__CKPT_MANIFEST) != NEO_OK) return 0;
    return neo__path_look(manifest) == NEO__PATH_FILE;
}

/* ---- files of one checkpoint ---- */
typedef struct neo__ckpt_file {
    char name[NEO__CKPT_NAME_BYTES];
    int64_t bytes;
    uint32_t crc;
} neo__ckpt_file;

/* The end of a file: its content is in out. Flush it to disk, close it, note size and checksum. */
static neo_status neo__ckpt_finish(neo__out *out, neo_status status, neo__ckpt_file *record) {
    if (status == NEO_OK) status = neo__out_flush(out);
    if (status == NEO_OK) status = neo__file_sync(out->file);
    neo_status closed = NEO_OK;
    if (status == NEO_OK) closed = neo__file_close(out->file);
    else {
        char error[NEO__ERROR_BYTES];
        memcpy(error, neo__error_text, sizeof error);
        if (neo__file_close(out->file) != NEO_OK) memcpy(neo__error_text, error, sizeof error);
    }
    record->bytes = (int64_t)out->bytes;
    record->crc = out->crc;
    return status != NEO_OK ? status : closed;
}

static const char *const neo__ckpt_apart =
    "all ranks must save into, and load from, one directory of one file system";

/* What one save works with. */
typedef struct neo__ckpt_save {
    neo_ctx *ctx;
    const neo_state *state;
    const neo_save_desc *desc;
    neo__meet meet;
    char partial[NEO__PATH_BYTES], whole[NEO__PATH_BYTES], old[NEO__PATH_BYTES];
    neo__st_item *items;   /* room for every tensor and the schema */
    const char **metadata; /* room for three pairs and one for every part */
    int pair_count, part_count;
    char *texts; /* names and places of parts, behind one another */
    size_t text_bytes, text_used;
    char *schema; /* the dictionaries, or NULL */
    neo_tensor schema_tensor;
    int64_t *steps; /* of the whole checkpoints there before */
    int step_count, step_capacity;
    neo__ckpt_file *files; /* the model's of every rank, the state's of every rank, the index */
    int file_count;
    uint64_t *marks; /* size and checksum of each but the index */
} neo__ckpt_save;

static int neo__rects_equal(const neo__rect *a, const neo__rect *b) {
    return a->row == b->row && a->col == b->col && a->rows == b->rows && a->cols == b->cols;
}
/* A tensor for the list of a file, under the name that it has there. */
static void neo__ckpt_put_item(neo__ckpt_save *save, const neo__state_entry *entry, int count) {
    neo__rect all = neo__rect_whole(&entry->whole);
    const neo__rect *place = &entry->slab.place;
    save->items[count].name = entry->name;
    save->items[count].tensor = &entry->tensor;
    if (!entry->is_part || neo__rects_equal(place, &all)) return;
    char text[96];
    char *key = save->texts + save->text_used;
    size_t room = save->text_bytes - save->text_used;
    size_t n = (size_t)snprintf(key, room, "%s%s", entry->name, neo__place_text(entry, text)) + 1;
    char *value = key + n;
    n += (size_t)(entry->whole.ndim == 1
                      ? snprintf(value, room - n, "[%" PRId64 "] of [%" PRId64 "] %s", place->row,
                                 all.rows, entry->name)
                      : snprintf(value, room - n,
                                 "[%" PRId64 ",%" PRId64 "] of [%" PRId64 ",%" PRId64 "] %s",
                                 place->row, place->col, all.rows, all.cols, entry->name)) +
         1;
    NEO_ASSERT(n <= room);
    save->text_used += n;
    save->items[count].name = key;
    save->metadata[2 * save->pair_count] = key;
    save->metadata[2 * save->pair_count++ + 1] = value;
}
/* The tensors of this rank that belong into a file; their number. */
static int neo__ckpt_list_items(neo__ckpt_save *save, int weights) {
    int count = 0, rank = save->meet.group.rank;
    save->text_used = 0;
    save->pair_count = 3;
    for (int i = 0; i < save->state->count; i++) {
        const neo__state_entry *entry = &save->state->entries[i];
        if ((entry->kind == NEO_STATE_WEIGHT) != weights) continue;
        if (entry->is_part ? neo__entry_is_own(entry) && neo_tensor_count(entry->tensor) > 0
                           : rank == 0)
            neo__ckpt_put_item(save, entry, count++);
    }
    if (save->schema && !weights) {
        save->items[count].name = NEO__SCHEMA_NAME;
        save->items[count++].tensor = &save->schema_tensor;
    }
    return count;
}
static neo_status neo__ckpt_write_tensors(neo__ckpt_save *save, int weights,
                                          neo__ckpt_file *record) {
    char path[NEO__PATH_BYTES], step[32];
    int count = neo__ckpt_list_items(save, weights);
    snprintf(step, sizeof step, "%" PRId64, save->desc->step);
    const char *metadata[] = {"format", "pt",     "step",
                              step,     "writer", "neo"}; /* "pt": for loaders that ask */
    memcpy((void *)save->metadata, metadata, sizeof metadata);
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    neo__file file;
    neo__out out;
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo_status status = neo__st_put(&out, save->items, count, save->metadata, save->pair_count);
    return neo__ckpt_finish(&out, status, record);
}
/* Rank 0 looks at the file of a rank: there at the size that it was written with. */
static neo_status neo__ckpt_see(const neo__ckpt_save *save, const neo__ckpt_file *record,
                                int rank) {
    char path[NEO__PATH_BYTES];
    neo__file file;
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    int64_t size = -1;
    if (neo__path_look(path) == NEO__PATH_FILE) {
        NEO__TRY(neo__file_open(&file, path, NEO__FILE_READ));
        size = neo__file_size(&file);
        neo__file_close(&file);
    }
    NEO__CHECK(size >= 0, NEO_ERR_IO, "%s: rank 0 does not see what rank %d wrote: %s", path, rank,
               neo__ckpt_apart);
    NEO__CHECK(size == record->bytes, NEO_ERR_IO,
               "%s: rank 0 sees %" PRId64 " bytes, rank %d wrote %" PRId64 ": %s", path, size, rank,
               record->bytes, neo__ckpt_apart);
    return NEO_OK;
}
/* model.safetensors.index.json, as Hugging Face writes it: which file holds which weight. */
static neo_status neo__ckpt_put_index(const neo__ckpt_save *save, neo__out *out) {
    char path[NEO__PATH_BYTES];
    uint64_t total = 0;
    int written = 0, ranks = save->meet.group.size;
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < ranks; k++) {
            neo_safetensors *file = NULL;
            NEO__TRY(neo__path_join(path, save->partial, save->files[k].name));
            NEO__TRY(neo_safetensors_open(save->ctx, path, &file));
            if (pass == 0) total += (uint64_t)file->data_bytes;
            for (int i = 0; i < file->count && pass == 1; i++) {
                neo__out_text(out, written++ ? ",\n    " : "\n    ");
                neo__out_string(out, file->tensors[i].name);
                neo__out_format(out, ": \"%s\"", save->files[k].name);
            }
            neo_safetensors_close(file);
        }
        if (pass == 0)
            neo__out_format(out,
                            "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
                            "\n  },\n  \"weight_map\": {",
                            total);
    }
    neo__out_text(out, "\n  }\n}\n");
    return NEO_OK;
}
static neo_status neo__ckpt_write_index(neo__ckpt_save *save, neo__ckpt_file *record) {
    char path[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    return neo__ckpt_finish(&out, neo__ckpt_put_index(save, &out), record);
}
static neo_status neo__ckpt_write_manifest(neo__ckpt_save *save) {
    char path[NEO__PATH_BYTES], temporary[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    neo__ckpt_file record;
    const neo_state *state = save->state;
    int version = save->meet.group.size > 1 || save->part_count > 0 ? 2 : 1;
    NEO__TRY(neo__path_join(path, save->partial, NEO__CKPT_MANIFEST));
    NEO__TRY(neo__path_join(temporary, save->partial, NEO__CKPT_MANIFEST ".partial"));
    NEO__TRY(neo__file_open(&file, temporary, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo__out_format(
        &out, "{\"format\": \"%s\", \"version\": %d, \"step\": %" PRId64 ",\n \"definition\": {",
        NEO__CKPT_FORMAT, version, save->desc->step);
    for (int i = 0; i < state->word_count; i++) {
        neo__out_text(&out, i ? ",\n  " : "\n  ");
        neo__out_string(&out, state->words[i].key);
        neo__out_text(&out, ": ");
        neo__out_string(&out, state->words[i].value);
    }
    neo__out_text(&out, "},\n \"files\": [");
    for (int i = 0; i < save->file_count; i++)
        neo__out_format(
            &out, "%s{\"name\": \"%s\", \"bytes\": %" PRId64 ", \"crc32c\": \"%08" PRIx32 "\"}",
            i ? ",\n  " : "\n  ", save->files[i].name, save->files[i].bytes, save->files[i].crc);
    neo__out_text(&out, "]");
    neo_status status = neo__out_flush(&out);
    neo__out_format(&out, NEO__CKPT_TAIL, out.crc);
    NEO__TRY(neo__ckpt_finish(&out, status, &record));
    NEO__TRY(neo__path_rename(temporary, path));
    return neo__dir_sync(save->partial);
}

/* ---- the directory ---- */
/* Removes what dead saves left behind and notes the whole checkpoints. Failures to remove do not
   matter here: a leftover is invisible, and a save that needs its name reports what is wrong. */
static neo_status neo__ckpt_clean(const char *name, void *user) {
    neo__ckpt_save *save = (neo__ckpt_save *)user;
    neo__ckpt_suffix suffix;
    int64_t step = 0;
    char path[NEO__PATH_BYTES], whole[NEO__PATH_BYTES];
    if (!neo__ckpt_parse_name(name, &step, &suffix)) return NEO_OK;
    NEO__TRY(neo__ckpt_path(path, save->desc->dir, step, suffix));
    NEO__TRY(neo__ckpt_path(whole, save->desc->dir, step, NEO__CKPT_WHOLE));
    if (neo__path_look(path) != NEO__PATH_DIR) return NEO_OK;
    if (suffix == NEO__CKPT_PARTIAL) {
        (void)neo__tree_remove(path);
        return NEO_OK;
    }
    if (suffix == NEO__CKPT_OLD) {
        if (neo__ckpt_is_whole(whole)) {
            (void)neo__tree_remove(path);
            return NEO_OK;
        }
        if (!neo__ckpt_is_whole(path) || neo__path_rename(path, whole) != NEO_OK) return NEO_OK;
    }
    if (!neo__ckpt_is_whole(whole)) return NEO_OK;
    for (int i = 0; i < save->step_count; i++) /* a renamed one may be listed twice */
        if (save->steps[i] == step) return NEO_OK;
    void *steps = save->steps;
    NEO__TRY(neo__grow(save->ctx, &steps, &save->step_capacity, save->step_count + 1,
                       sizeof *save->steps));
    save->steps = (int64_t *)steps;
    save->steps[save->step_count++] = step;
    return NEO_OK;
}
/* The directory under its final name. */
static neo_status neo__ckpt_commit(neo__ckpt_save *save) {
    int replaces = neo__path_look(save->whole) != NEO__PATH_NONE;
    if (replaces) {
        NEO__TRY(neo__tree_remove(save->old));
        NEO__TRY(neo__path_rename(save->whole, save->old));
    }
    neo_status status = neo__path_rename(save->partial, save->whole);
    if (status != NEO_OK) {
        char error[NEO__ERROR_BYTES];
        memcpy(error, neo__error_text, sizeof error);
        if (replaces) (void)neo__path_rename(save->old, save->whole);
        return neo_fail(status, "%s", error);
    }
    status = neo__dir_sync(save->desc->dir);
    if (status == NEO_OK && replaces) (void)neo__tree_remove(save->old);
    return status;
}
static int neo__compare_steps_down(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}
/* Removes all but the newest `keep`, this one always among them. What cannot be removed is logged:
   the save itself is done. */
static void neo__ckpt_prune(neo__ckpt_save *save) {
    int keep = save->desc->keep == 0 ? 2 : save->desc->keep, kept = 1;
    if (keep < 0) return;
    if (save->step_count > 1)
        qsort(save->steps, (size_t)save->step_count, sizeof *save->steps, neo__compare_steps_down);
    for (int i = 0; i < save->step_count; i++) {
        char from[NEO__PATH_BYTES], to[NEO__PATH_BYTES];
        if (save->steps[i] == save->desc->step || kept++ < keep) continue;
        neo_status status = neo__ckpt_path(from, save->desc->dir, save->steps[i], NEO__CKPT_WHOLE);
        if (status == NEO_OK)
            status = neo__ckpt_path(to, save->desc->dir, save->steps[i], NEO__CKPT_PARTIAL);
        if (status == NEO_OK) status = neo__path_rename(from, to);
        if (status == NEO_OK) status = neo__tree_remove(to);
        if (status != NEO_OK)
            neo_log(save->ctx, NEO_LOG_WARNING, "neo_save: an old checkpoint stays: %s",
                     neo__error_text);
    }
}

/* ---- neo_save ---- */
/* This rank's two files. */
static neo_status neo__ckpt_write_own(neo__ckpt_save *save) {
    int rank = save->meet.group.rank, ranks = save->meet.group.size;
    NEO__CHECK(neo__path_look(save->partial) == NEO__PATH_DIR, NEO_ERR_IO,
               "%s: does not see this directory, which rank 0 made: %s", save->partial,
               neo__ckpt_apart);
    for (int weights = 1; weights >= 0; weights--) {
        int k = weights ? rank : ranks + rank;
        NEO__TRY(neo__ckpt_write_tensors(save, weights, &save->files[k]));
        save->marks[2 * k] = (uint64_t)save->files[k].bytes;
        save->marks[2 * k + 1] = save->files[k].crc;
    }
    return ranks > 1 ? neo__dir_sync(save->partial) : NEO_OK;
}
/* What rank 0 does when the files of all ranks are written. */
static neo_status neo__ckpt_close(neo__ckpt_save *save) {
    int ranks = save->meet.group.size;
    for (int k = 0; k < 2 * ranks; k++) {
        save->files[k].bytes = (int64_t)save->marks[2 * k];
        save->files[k].crc = (uint32_t)save->marks[2 * k + 1];
        if (k % ranks > 0) NEO__TRY(neo__ckpt_see(save, &save->files[k], k % ranks));
    }
    NEO__TRY(neo__ckpt_write_index(save, &save->files[2 * ranks]));
    NEO__TRY(neo__ckpt_write_manifest(save));
    return neo__ckpt_commit(save);
}
static neo_status neo__ckpt_write(neo__ckpt_save *save) {
    const neo__meet *meet = &save->meet;
    int first = meet->group.rank == 0;
    neo_status status = first ? neo__dir_make_one(save->partial) : NEO_OK;
    status = neo__meet_agree(meet, status);
    if (status == NEO_OK) status = neo__meet_agree(meet, neo__ckpt_write_own(save));
    if (status == NEO_OK) status = neo__meet_sum(meet, save->marks, 4 * (int64_t)meet->group.size);
    if (status == NEO_OK)
        status = neo__meet_agree(meet, first ? neo__ckpt_close(save) : NEO_OK);
    if (status == NEO_OK || !first) return status;
    char error[NEO__ERROR_BYTES];
    memcpy(error, neo__error_text, sizeof error);
    (void)neo__tree_remove(save->partial);
    return neo_fail(status, "%s", error);
}
static neo_status neo__ckpt_prepare_lists(neo__ckpt_save *save) {
    int ranks = save->meet.group.size;
    for (int i = 0; i < save->state->count; i++) {
        const neo__state_entry *entry = &save->state->entries[i];
        if (!entry->is_part) continue;
        save->part_count++;
        save->text_bytes += 2 * strlen(entry->name) + 192; /* eight numbers and their brackets */
    }
    size_t items = (size_t)save->state->count + 1, files = 2 * (size_t)ranks + 1;
    size_t pairs = 3 + (size_t)save->part_count;
    save->items = (neo__st_item *)neo_alloc(save->ctx, items * sizeof *save->items);
    save->metadata = (const char **)neo_alloc(save->ctx, 2 * pairs * sizeof *save->metadata);
    save->texts = (char *)neo_alloc(save->ctx, save->text_bytes);
    save->files = (neo__ckpt_file *)neo__alloc_zero(save->ctx, files * sizeof *save->files);
    save->marks = (uint64_t *)neo__alloc_zero(save->ctx, 2 * files * sizeof *save->marks);
    NEO__CHECK(save->items && save->metadata && save->texts && save->files && save->marks,
               NEO_ERR_MEMORY, "neo_save: no memory for a list of %zu tensors", items);
    save->file_count = (int)files;
    for (int k = 0; k < 2 * ranks; k++)
        snprintf(save->files[k].name, sizeof save->files[k].name, "%s-%05d-of-%05d.safetensors",
                 k < ranks ? "model" : "state", k % ranks + 1, ranks);
    snprintf(save->files[2 * ranks].name, sizeof save->files[0].name, "%s", NEO__CKPT_INDEX);
    return NEO_OK;
}
static neo_status neo__ckpt_prepare_dir(neo__ckpt_save *save) {
    neo__path_kind there = neo__path_look(save->whole);
    NEO__CHECK(there == NEO__PATH_NONE || there == NEO__PATH_DIR, NEO_ERR_IO,
               "%s: is in the way, and is not a directory", save->whole);
    neo_schema *schema = save->state->schema;
    size_t bytes = schema ? neo__schema_save_size(schema) : 0;
    if (bytes > 0) {
        save->schema_tensor = neo_tensor_1d(NULL, NEO_U8, (int64_t)bytes);
        save->schema = (char *)neo_alloc(save->ctx, bytes);
        NEO__CHECK(save->schema, NEO_ERR_MEMORY,
                   "neo_save: no memory for %zu bytes of dictionaries", bytes);
        save->schema_tensor.data = save->schema;
        NEO__TRY(neo__schema_save(schema, save->schema));
    }
    NEO__TRY(neo__dir_make(save->desc->dir));
    return neo__dir_list(save->desc->dir, neo__ckpt_clean, save);
}
static uint64_t neo__definition_hash(const neo_state *state) {
    uint64_t hash = 0;
    for (int i = 0; i < state->word_count; i++)
        hash += neo__mix64(neo__mix64(neo_hash(state->words[i].key)) +
                           neo_hash(state->words[i].value));
    return hash;
}
/* What the ranks have makes one state, and they save the same of it. */
static neo_status neo__ckpt_prepare_group(neo__ckpt_save *save) {
    const neo__meet *meet = &save->meet;
    if (meet->group.size == 1 && save->part_count == 0) return NEO_OK;
    NEO__ZERO(neo__census, census);
    NEO__TRY(neo__meet_same(meet, (uint64_t)save->desc->step, "neo_save", "desc.step"));
    NEO__TRY(neo__meet_same(meet, neo__definition_hash(save->state), "neo_save",
                            "the numeric definition"));
    neo_status status = neo__census_take(save->state, meet, "neo_save", 1, &census);
    neo__census_free(meet->ctx, &census);
    return status;
}
static neo_status neo__ckpt_prepare(neo__ckpt_save *save) {
    const neo_save_desc *desc = save->desc;
    const neo__meet *meet = &save->meet;
    neo_status status = neo__ckpt_path(save->partial, desc->dir, desc->step, NEO__CKPT_PARTIAL);
    if (status == NEO_OK)
        status = neo__ckpt_path(save->whole, desc->dir, desc->step, NEO__CKPT_WHOLE);
    if (status == NEO_OK) status = neo__ckpt_path(save->old, desc->dir, desc->step, NEO__CKPT_OLD);
    if (status == NEO_OK) status = neo__ckpt_prepare_lists(save);
    NEO__TRY(neo__meet_agree(meet, status));
    NEO__TRY(neo__ckpt_prepare_group(save));
    return neo__meet_agree(meet, meet->group.rank == 0 ? neo__ckpt_prepare_dir(save) : NEO_OK);
}
static void neo__ckpt_save_free(neo__ckpt_save *save) {
    neo_ctx *ctx = save->ctx;
    size_t files = 2 * (size_t)save->meet.group.size + 1;
    neo_free(ctx, save->steps, (size_t)save->step_capacity * sizeof *save->steps);
    neo_free(ctx, save->schema, neo_tensor_bytes(save->schema_tensor));
    neo_free(ctx, save->marks, 2 * files * sizeof *save->marks);
    neo_free(ctx, save->files, files * sizeof *save->files);
    neo_free(ctx, save->texts, save->text_bytes);
    neo_free(ctx, (void *)save->metadata,
             2 * (3 + (size_t)save->part_count) * sizeof *save->metadata);
    neo_free(ctx, save->items, ((size_t)save->state->count + 1) * sizeof *save->items);
    neo_free(ctx, save, sizeof *save);
}
static neo_status neo__check_save(const neo_ctx *ctx, const neo_save_desc *desc,
                                  const neo_state *state) {
    NEO__CHECK(ctx && state && desc->dir && desc->dir[0], NEO_ERR_ARG,
               "neo_save: an argument is NULL or desc.dir is empty");
    NEO__CHECK(desc->step >= 0 && desc->step <= NEO__CKPT_MAX_STEP, NEO_ERR_ARG,
               "neo_save: desc.step is %" PRId64 ", not in 0 .. %" PRId64, desc->step,
               NEO__CKPT_MAX_STEP);
    return NEO_OK;
}
NEO_API neo_status neo_save(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state) {
    NEO__CHECK(ctx && desc, NEO_ERR_ARG, "neo_save: an argument is NULL or desc.dir is empty");
    neo__meet meet;
    NEO__TRY(neo__meet_begin(&meet, ctx, "neo_save", desc->group));
    neo_status status = neo__check_save(ctx, desc, state);
    neo__ckpt_save *save = NULL;
    if (status == NEO_OK) {
        save = (neo__ckpt_save *)neo__alloc_zero(ctx, sizeof *save);
        if (!save)
            status = neo_fail(NEO_ERR_MEMORY, "neo_save: no memory for %zu bytes", sizeof *save);
    }
    status = neo__meet_agree(&meet, status);
    if (save) {
        save->ctx = ctx;
        save->desc = desc;
        save->state = state;
        save->meet = meet;
        if (status == NEO_OK) status = neo__ckpt_prepare(save);
        if (status == NEO_OK) status = neo__ckpt_write(save);
        if (status == NEO_OK && meet.group.rank == 0) neo__ckpt_prune(save);
        neo__ckpt_save_free(save);
    }
    neo__meet_end(&meet);
    return status;
}

/* ---- finding a checkpoint ---- */
typedef struct neo__ckpt_search {
    const char *dir;
    int64_t wanted;                /* 0 and below: the newest */
    int64_t newest, found, before; /* steps; -1: none. before: the newest below found */
    neo__ckpt_suffix suffix;       /* of found */
} neo__ckpt_search;
static neo_status neo__ckpt_visit(const char *name, void *user) {
    neo__ckpt_search *search = (neo__ckpt_search *)user;
    neo__ckpt_suffix suffix;
    int64_t step = 0;
    char path[NEO__PATH_BYTES];
    if (!neo__ckpt_parse_name(name, &step, &suffix) || suffix == NEO__CKPT_PARTIAL) return NEO_OK;
    NEO__TRY(neo__ckpt_path(path, search->dir, step, suffix));
    if (!neo__ckpt_is_whole(path)) return NEO_OK;
    search->newest = NEO__MAX(search->newest, step);
    int64_t limit = search->wanted > 0 ? search->wanted : search->found;
    if (step < limit || (step > limit && search->wanted > 0)) {
        if (step < limit) search->before = NEO__MAX(search->before, step);
        return NEO_OK;
    }
    if (step == search->found && suffix == NEO__CKPT_OLD) return NEO_OK;
    if (step > search->found) search->before = NEO__MAX(search->before, search->found);
    search->found = step;
    search->suffix = suffix;
    return NEO_OK;
}
static neo_status neo__ckpt_find(const char *dir, int64_t wanted, neo__ckpt_search *search) {
    search->dir = dir;
    search->wanted = wanted;
    search->newest = search->found = search->before = -1;
    search->suffix = NEO__CKPT_WHOLE;
    NEO__TRY(neo__dir_list(dir, neo__ckpt_visit, search));
    NEO__CHECK(search->newest >= 0, NEO_ERR_NOT_FOUND, "%s: no whole checkpoint here", dir);
    NEO__CHECK(search->found >= 0, NEO_ERR_NOT_FOUND,
               "%s: no whole checkpoint of step %" PRId64 "; the newest is of step %" PRId64, dir,
               wanted, search->newest);
    return NEO_OK;
}

NEO_API neo_status neo_find_checkpoint(const char *dir, int64_t *step) {
    NEO__CHECK(dir && dir[0] && step, NEO_ERR_ARG,
               "neo_find_checkpoint: an argument is NULL or dir is empty");
    neo__ckpt_search search;
    NEO__TRY(neo__ckpt_find(dir, 0, &search));
    *step = search.found;
    return NEO_OK;
}

/* ---- reading a manifest ---- */
/* A rectangle of a file that an entry of the state needs some of. */
typedef struct neo__ckpt_run {
    neo__st_rect rect;
    int file, entry;
} neo__ckpt_run;
/* What the files have for an entry. */
typedef struct neo__ckpt_cover {
    uint64_t corners;
    int64_t elements;
    int found;
} neo__ckpt_cover;
typedef struct neo__ckpt_load {
    neo_ctx *ctx;
    const neo_load_desc *desc;
    neo_state *state;
    char dir[NEO__PATH_BYTES], path[NEO__PATH_BYTES]; /* of the step; of the file at hand */
    int64_t step, before; /* before: the step of the checkpoint before this one, or -1 */
    char *manifest;
    size_t manifest_bytes;
    uint32_t manifest_crc;
    neo__ckpt_file *files;
    int file_count, file_capacity;
    const char **words; /* the definition saved: key, value, ... */
    int word_count, word_capacity;
    char *schema; /* the dictionaries of the checkpoint, or NULL */
    size_t schema_bytes;
    neo__dict *dicts; /* read from them, or NULL */
    int any_schema;   /* a rank asks for them */
    neo__meet meet;
    neo__ckpt_cover *covers; /* of every entry */
    neo__ckpt_run *runs;     /* by file */
    int run_count, run_capacity;
    uint64_t *known; /* of each tensor of the files, in their order: 1: it is asked for */
    int known_count, known_capacity;
    uint64_t headers; /* a hash of the names in the headers */
} neo__ckpt_load;

static int neo__ckpt_hex8(const char *s, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 8; i++) {
        int digit = s[i] >= '0' && s[i] <= '9'   ? s[i] - '0'
                    : s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10
                                                 : -1;
        if (digit < 0) return 0;
        *out = *out << 4 | (uint32_t)digit;
    }
    return s[8] == 0;
}
/* A file name as this program writes them: nothing that could leave the directory. */
static int neo__ckpt_plain_name(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= NEO__CKPT_NAME_BYTES || name[0] == '.') return 0;
    for (; *name; name++) {
        int letter = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
        if (!letter && !(*name >= '0' && *name <= '9') && !strchr("-._", *name)) return 0;
    }
    return 1;
}
static neo_status neo__ckpt_parse_file(neo__json *j, neo__ckpt_load *load) {
    int more = 1, seen = 0;
    size_t start = j->at;
    void *files = load->files;
    NEO__TRY(neo__grow(load->ctx, &files, &load->file_capacity, load->file_count + 1,
                       sizeof *load->files));
    load->files = (neo__ckpt_file *)files;
    neo__ckpt_file *file = &load->files[load->file_count];
    memset(file, 0, sizeof *file);
    load->file_count++;
    NEO__TRY(neo__json_open(j, '{'));
    for (int i = 0;; i++) {
        char *key = NULL, *text = NULL;
        NEO__TRY(neo__json_next(j, '}', i, &more));
        if (!more) break;
        NEO__TRY(neo__json_key(j, &key));
        if (strcmp(key, "name") == 0) {
            NEO__TRY(neo__json_string(j, &text));
            if (!neo__ckpt_plain_name(text))
                return neo__json_fail(j, start, "not a plain file name");
            memcpy(file->name, text, strlen(text) + 1);
            seen |= 1;
        } else if (strcmp(key, "bytes") == 0) {
            NEO__TRY(neo__json_count(j, &file->bytes));
            seen |= 2;
        } else if (strcmp(key, "crc32c") == 0) {
            NEO__TRY(neo__json_string(j, &text));
            if (!neo__ckpt_hex8(text, &file->crc))
                return neo__json_fail(j, start, "crc32c is not 8 hex digits");
            seen |= 4;
        } else {
            NEO__TRY(neo__json_skip(j));
        }
    }
    return seen == 7 ? NEO_OK : neo__json_fail(j, start, "a file without name, bytes or crc32c");
}
static neo_status neo__ckpt_parse_definition(neo__json *j, neo__ckpt_load *load) {
    int more = 1;
    NEO__TRY(neo__json_open(j, '{'));
    for (int i = 0;; i++) {
        char *key = NULL, *value = NULL;
        NEO__TRY(neo__json_next(j, '}', i, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__json_key(j, &key));
        NEO__TRY(neo__json_string(j, &value));
        void *words = (void *)load->words;
        NEO__TRY(neo__grow(load->ctx, &words, &load->word_capacity, load->word_count + 1,
                           2 * sizeof *load->words));
        load->words = (const char **)words;
        load->words[2 * load->word_count] = key;
        load->words[2 * load->word_count++ + 1] = value;
    }
}
static neo_status neo__ckpt_parse_files(neo__json *j, neo__ckpt_load *load) {
    int more = 1;
    NEO__TRY(neo__json_open(j, '['));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_next(j, ']', i, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__ckpt_parse_file(j, load));
    }
}
/* Unknown members are skipped: later versions may add some. */
static neo_status neo__ckpt_parse_manifest(neo__json *j, neo__ckpt_load *load) {
    int more = 1, seen = 0;
    int64_t version = 0, step = -1;
    NEO__TRY(neo__json_open(j, '{'));
    for (int i = 0;; i++) {
        char *key = NULL, *text = NULL;
        NEO__TRY(neo__json_next(j, '}', i, &more));
        if (!more) break;
        NEO__TRY(neo__json_key(j, &key));
        if (strcmp(key, "format") == 0) {
            NEO__TRY(neo__json_string(j, &text));
            seen |= strcmp(text, NEO__CKPT_FORMAT) == 0;
        } else if (strcmp(key, "version") == 0) {
            NEO__TRY(neo__json_count(j, &version));
            seen |= 2;
        } else if (strcmp(key, "step") == 0) {
            NEO__TRY(neo__json_count(j, &step));
            seen |= 4;
        } else if (strcmp(key, "definition") == 0 && !(seen & 8)) {
            NEO__TRY(neo__ckpt_parse_definition(j, load));
            seen |= 8;
        } else if (strcmp(key, "files") == 0 && !(seen & 16)) {
            NEO__TRY(neo__ckpt_parse_files(j, load));
            seen |= 16;
        } else {
            NEO__TRY(neo__json_skip(j));
        }
    }
    NEO__TRY(neo__json_end(j));
    NEO__CHECK(seen == 31, NEO_ERR_FORMAT, "%s: not the manifest of a neo checkpoint", j->file);
    NEO__CHECK(version == 1 || version == 2, NEO_ERR_UNSUPPORTED,
               "%s: format version %" PRId64 ", this program reads 1 and 2", j->file, version);
    NEO__CHECK(step == load->step, NEO_ERR_CORRUPT,
               "%s: is of step %" PRId64 ", in a directory of step %" PRId64, j->file, step,
               load->step);
    return NEO_OK;
}
/* manifest.json in memory: its own checksum first, then its members. */
static neo_status neo__ckpt_check_manifest(neo__ckpt_load *load, const char *path) {
    char tail[NEO__CKPT_TAIL_BYTES + 8];
    size_t n = load->manifest_bytes, body = n - NEO__CKPT_TAIL_BYTES;
    int tail_bytes = n < NEO__CKPT_TAIL_BYTES ? -1
                                              : snprintf(tail, sizeof tail, NEO__CKPT_TAIL,
                                                         neo_crc32c(0, load->manifest, body));
    NEO__CHECK(tail_bytes == NEO__CKPT_TAIL_BYTES &&
                   memcmp(load->manifest + body, tail, NEO__CKPT_TAIL_BYTES) == 0,
               NEO_ERR_CORRUPT, "%s: its checksum does not match its content", path);
    NEO__ZERO(neo__json, j);
    j.text = load->manifest;
    j.size = n;
    j.file = path;
    return neo__ckpt_parse_manifest(&j, load);
}
static neo_status neo__ckpt_read_manifest(neo__ckpt_load *load) {
    neo__file file;
    NEO__TRY(neo__path_join(load->path, load->dir, NEO__CKPT_MANIFEST));
    NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
    int64_t size = neo__file_size(&file);
    neo_status status = NEO_OK;
    if (size < 0 || size > NEO__CKPT_MANIFEST_BYTES) {
        status =
            neo_fail(NEO_ERR_CORRUPT, "%s: %" PRId64 " bytes are no manifest", load->path, size);
    } else {
        load->manifest_bytes = (size_t)size;
        load->manifest = (char *)neo_alloc(load->ctx, (size_t)size);
        if (!load->manifest)
            status = neo_fail(NEO_ERR_MEMORY, "%s: no memory to read it", load->path);
        else status = neo__file_read_at(&file, 0, load->manifest, (size_t)size);
    }
    neo__file_close(&file);
    NEO__TRY(status);
    load->manifest_crc = neo_crc32c(0, load->manifest, load->manifest_bytes);
    return neo__ckpt_check_manifest(load, load->path);
}

/* ---- checks ---- */
static neo_status neo__ckpt_check_definition(const neo__ckpt_load *load) {
    const neo_state *state = load->state;
    if (load->desc->any_definition || load->desc->weights_only || load->desc->schema_only)
        return NEO_OK;
    for (int i = 0; i < state->word_count; i++) {
        const char *saved = NULL, *key = state->words[i].key, *here = state->words[i].value;
        for (int k = 0; k < load->word_count; k++)
            if (strcmp(load->words[2 * k], key) == 0) saved = load->words[2 * k + 1];
        NEO__CHECK(saved && strcmp(saved, here) == 0, NEO_ERR_MISMATCH,
                   "%s: saved under another numeric definition: %s is %s%s%s there, '%s' here",
                   load->dir, key, saved ? "'" : "", saved ? saved : "not defined",
                   saved ? "'" : "", here);
    }
    for (int k = 0; k < load->word_count; k++) {
        int known = 0;
        for (int i = 0; i < state->word_count; i++)
            known |= strcmp(load->words[2 * k], state->words[i].key) == 0;
        NEO__CHECK(
            known, NEO_ERR_MISMATCH,
            "%s: saved under another numeric definition: %s is '%s' there, not defined here",
            load->dir, load->words[2 * k], load->words[2 * k + 1]);
    }
    return NEO_OK;
}
static int neo__ckpt_starts(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}
/* 1: tensors of this file are asked for. Evaluation reads no optimizer state, but may need
   dictionaries. */
static int neo__ckpt_wants(const neo__ckpt_load *load, const char *name) {
    int model = neo__ckpt_starts(name, "model-"), state = neo__ckpt_starts(name, "state-");
    int first = neo__ckpt_starts(name, NEO__CKPT_FIRST_STATE);
    if (load->desc->schema_only) return first;
    if (load->desc->weights_only) return model || (first && load->any_schema);
    return model || state;
}
/* The file at load->path is there, at its size. */
static neo_status neo__ckpt_check_size(neo__ckpt_load *load, const neo__ckpt_file *record) {
    neo__file file;
    NEO__TRY(neo__path_join(load->path, load->dir, record->name));
    NEO__CHECK(neo__path_look(load->path) == NEO__PATH_FILE, NEO_ERR_CORRUPT,
               "%s: missing, the manifest lists it", load->path);
    NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
    int64_t size = neo__file_size(&file);
    neo__file_close(&file);
    NEO__CHECK(size == record->bytes, NEO_ERR_CORRUPT,
               "%s: %" PRId64 " bytes, the manifest says %" PRId64, load->path, size,
               record->bytes);
    return NEO_OK;
}
/* Its checksum. The context's scratch is the buffer: nothing computes now. */
static neo_status neo__ckpt_check_crc(neo__ckpt_load *load, const neo__ckpt_file *record) {
    neo__file file;
    uint32_t crc = 0;
    char *buffer = neo__shared_scratch(load->ctx);
    neo_status status = NEO_OK;
    NEO__TRY(neo__path_join(load->path, load->dir, record->name));
    NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
    for (int64_t at = 0; at < record->bytes && status == NEO_OK;) {
        size_t piece = (size_t)NEO__MIN(record->bytes - at, (int64_t)1 << 18);
        status = neo__file_read_at(&file, at, buffer, piece);
        crc = neo_crc32c(crc, buffer, piece);
        at += (int64_t)piece;
    }
    neo__file_close(&file);
    if (status == NEO_OK && crc != record->crc)
        status = neo_fail(NEO_ERR_CORRUPT,
                          "%s: its checksum is %08" PRIx32 ", the manifest says %08" PRIx32,
                          load->path, crc, record->crc);
    return status;
}
/* Every rank sees all files; all of their bytes are checked, each file's by one rank. */
static neo_status neo__ckpt_check_files(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    int all = !load->desc->weights_only && !load->desc->schema_only;
    neo_status status = NEO_OK;
    for (int i = 0; i < load->file_count && status == NEO_OK; i++)
        if (all || neo__ckpt_wants(load, load->files[i].name))
            status = neo__ckpt_check_size(load, &load->files[i]);
    NEO__TRY(neo__meet_each(meet, status != NEO_OK));
    if (status != NEO_OK && !meet->each[0])
        status = neo_fail(NEO_ERR_IO, "%.300s; rank 0 sees it as it should be: %s",
                          neo__error_text, neo__ckpt_apart);
    NEO__TRY(neo__meet_agree(meet, status));
    for (int i = 0; i < load->file_count && status == NEO_OK; i++)
        if (i % meet->group.size == meet->group.rank)
            if (all || neo__ckpt_wants(load, load->files[i].name))
                status = neo__ckpt_check_crc(load, &load->files[i]);
    return neo__meet_agree(meet, status);
}

/* ---- what is in the files ---- */
/* A tensor of a file: which tensor it is, or is a part of, and where. */
typedef struct neo__ckpt_piece {
    const char *name;
    neo_tensor whole;
    neo__st_rect rect;
} neo__ckpt_piece;
/* "[a]" or "[a,b]", as many numbers as there are dimensions; the text behind it, or NULL. */
static const char *neo__ckpt_parse_numbers(const char *text, int ndim, int64_t out[2]) {
    for (int d = 0; d < ndim; d++) {
        if (*text++ != (d ? ',' : '[') || *text < '0' || *text > '9') return NULL;
        for (out[d] = 0; *text >= '0' && *text <= '9'; text++) {
            if (out[d] > INT64_MAX / 10 - 1) return NULL;
            out[d] = out[d] * 10 + (*text - '0');
        }
    }
    return *text == ']' ? text + 1 : NULL;
}
/* The place of a part, as the file's metadata has it under the tensor's name; NULL: no part. */
static const char *neo__ckpt_place_of(const neo_safetensors *file, int index) {
    const char *key = neo_safetensors_name(file, index);
    return neo__ends_as_part(key) ? neo_safetensors_metadata(file, key) : NULL;
}
/* The name of the tensor that a tensor of a file is, or is a part of. */
static const char *neo__ckpt_name_of(const neo_safetensors *file, int index) {
    const char *place = neo__ckpt_place_of(file, index);
    for (int i = 0; i < 2 && place; i++) { /* behind the second bracket */
        place = strchr(place, ']');
        if (place) place++;
    }
    return place && place[0] == ' ' && place[1] ? place + 1 : neo_safetensors_name(file, index);
}
static neo_status neo__ckpt_piece_of(const neo_safetensors *file, int index,
                                     neo__ckpt_piece *piece) {
    const char *text = neo__ckpt_place_of(file, index);
    int64_t first[2] = {0, 0}, all[2] = {0, 0};
    NEO__TRY(neo_safetensors_info(file, index, &piece->whole));
    piece->name = neo__ckpt_name_of(file, index);
    piece->rect = neo__st_rect_of(file, index);
    if (!text) return NEO_OK;
    int ndim = piece->whole.ndim, fits = ndim == 1 || ndim == 2;
    const char *more = fits ? neo__ckpt_parse_numbers(text, ndim, first) : NULL;
    if (more) more = strncmp(more, " of ", 4) == 0 ? more + 4 : NULL;
    if (more) more = neo__ckpt_parse_numbers(more, ndim, all);
    fits = more && more[0] == ' ' && more[1];
    for (int d = 0; d < ndim && fits; d++) {
        int64_t n = piece->whole.shape[d];
        fits = all[d] > 0 && n <= all[d] && first[d] <= all[d] - n &&
               all[0] <= INT64_MAX / 64 / NEO__MAX(all[1], (int64_t)1);
    }
    NEO__CHECK(fits, NEO_ERR_FORMAT, "%s: tensor %s: its place is given as '%.100s'", file->path,
               neo_safetensors_name(file, index), text);
    piece->rect.place.row = first[0];
    piece->rect.place.col = first[1];
    piece->whole = neo_tensor_nd(NULL, piece->whole.dtype, ndim, all);
    return NEO_OK;
}
static uint64_t neo__corner(int64_t row, int64_t col) {
    return neo__mix64(neo__mix64((uint64_t)row + 1) + (uint64_t)col);
}
static uint64_t neo__corners(const neo__rect *r) {
    int64_t row = r->row + r->rows, col = r->col + r->cols;
    return neo__corner(r->row, r->col) - neo__corner(row, r->col) - neo__corner(r->row, col) +
           neo__corner(row, col);
}
/* 1: this tensor of the state is to be loaded. */
static int neo__ckpt_takes(const neo__ckpt_load *load, const neo__state_entry *entry) {
    if (load->desc->schema_only) return 0;
    return !load->desc->weights_only || entry->kind == NEO_STATE_WEIGHT;
}
/* A tensor of a file against an entry of that name. */
static neo_status neo__ckpt_match(neo__ckpt_load *load, int file, const neo__ckpt_piece *piece,
                                  int index) {
    const neo__state_entry *entry = &load->state->entries[index];
    neo__ckpt_cover *cover = &load->covers[index];
    char a[96], b[96];
    NEO__CHECK(neo__shapes_equal(&piece->whole, &entry->whole), NEO_ERR_MISMATCH,
               "%s: tensor %s has shape %s, expected %s", load->dir, entry->name,
               neo__shape_text(&piece->whole, a), neo__shape_text(&entry->whole, b));
    NEO__CHECK(piece->whole.dtype == entry->whole.dtype, NEO_ERR_MISMATCH,
               "%s: tensor %s is %s there, %s here", load->dir, entry->name,
               neo_dtype_name(piece->whole.dtype), neo_dtype_name(entry->whole.dtype));
    cover->found = 1;
    neo__rect cut = neo__rect_cut(&piece->rect.place, &entry->slab.place);
    if (cut.rows == 0) return NEO_OK;
    cover->elements += cut.rows * cut.cols;
    cover->corners += neo__corners(&cut);
    void *runs = load->runs;
    NEO__TRY(neo__grow(load->ctx, &runs, &load->run_capacity, load->run_count + 1,
                       sizeof *load->runs));
    load->runs = (neo__ckpt_run *)runs;
    neo__ckpt_run *run = &load->runs[load->run_count++];
    run->rect = piece->rect;
    run->file = file;
    run->entry = index;
    return NEO_OK;
}
static neo_status neo__ckpt_survey_tensor(neo__ckpt_load *load, int number,
                                          const neo_safetensors *file, int index) {
    const neo_state *state = load->state;
    int weights = neo__ckpt_starts(load->files[number].name, "model-"), entry = -1;
    int schema = !weights && strcmp(neo_safetensors_name(file, index), NEO__SCHEMA_NAME) == 0;
    if (!schema) entry = neo__state_find(state, neo__ckpt_name_of(file, index));
    if (entry >= 0 && (state->entries[entry].kind == NEO_STATE_WEIGHT) != weights) entry = -1;
    void *known = load->known;
    NEO__TRY(neo__grow(load->ctx, &known, &load->known_capacity, load->known_count + 1,
                       sizeof *load->known));
    load->known = (uint64_t *)known;
    load->known[load->known_count++] = schema ? state->schema != NULL : entry >= 0;
    load->headers = neo__mix64(load->headers + neo_hash(neo_safetensors_name(file, index)));
    if (entry < 0) return NEO_OK;
    neo__ckpt_piece piece;
    NEO__TRY(neo__ckpt_piece_of(file, index, &piece));
    for (; entry >= 0; entry = state->entries[entry].next)
        NEO__TRY(neo__ckpt_match(load, number, &piece, entry));
    return NEO_OK;
}
/* 1: the tensors of the file are compared with the state. */
static int neo__ckpt_surveys(const neo__ckpt_load *load, int number) {
    const char *name = load->files[number].name;
    if (!neo__ckpt_wants(load, name) || load->desc->schema_only) return 0;
    return neo__ckpt_starts(name, "model-") || !load->desc->weights_only;
}
static neo_status neo__ckpt_open(neo__ckpt_load *load, int number, neo_safetensors **file) {
    NEO__TRY(neo__path_join(load->path, load->dir, load->files[number].name));
    return neo_safetensors_open(load->ctx, load->path, file);
}
/* What every entry needs is there, once. */
static neo_status neo__ckpt_check_cover(const neo__ckpt_load *load) {
    for (int i = 0; i < load->state->count; i++) {
        const neo__state_entry *entry = &load->state->entries[i];
        const neo__ckpt_cover *cover = &load->covers[i];
        const neo__rect *place = &entry->slab.place;
        char text[96];
        if (!neo__ckpt_takes(load, entry)) continue;
        NEO__CHECK(cover->found, NEO_ERR_MISMATCH, "%s: it has no tensor %s", load->dir,
                   entry->name);
        NEO__CHECK(cover->elements == place->rows * place->cols &&
                       (cover->elements == 0 || cover->corners == neo__corners(place)),
                   NEO_ERR_MISMATCH,
                   "%s: of tensor %s%s its files have %" PRId64
                   " elements, not each of the %" PRId64 " once",
                   load->dir, entry->name, neo__place_text(entry, text), cover->elements,
                   place->rows * place->cols);
    }
    return NEO_OK;
}
static neo_status neo__ckpt_survey(neo__ckpt_load *load) {
    size_t bytes = (size_t)load->state->count * sizeof *load->covers;
    load->covers = (neo__ckpt_cover *)neo__alloc_zero(load->ctx, bytes);
    NEO__CHECK(load->covers, NEO_ERR_MEMORY, "neo_load: no memory for a list of %d tensors",
               load->state->count);
    for (int i = 0; i < load->file_count; i++) {
        neo_safetensors *file = NULL;
        if (!neo__ckpt_surveys(load, i)) continue;
        neo_status status = neo__ckpt_open(load, i, &file);
        for (int k = 0; status == NEO_OK && k < file->count; k++)
            status = neo__ckpt_survey_tensor(load, i, file, k);
        neo_safetensors_close(file);
        NEO__TRY(status);
    }
    return neo__ckpt_check_cover(load);
}
/* Names the tensor of the files that no rank asks for. */
static neo_status neo__ckpt_fail_extra(neo__ckpt_load *load, int index) {
    for (int i = 0; i < load->file_count; i++) {
        neo_safetensors *file = NULL;
        if (!neo__ckpt_surveys(load, i)) continue;
        NEO__TRY(neo__ckpt_open(load, i, &file));
        neo_status status = NEO_OK;
        if (index < file->count)
            status = neo_fail(NEO_ERR_MISMATCH,
                              "%s: it has the tensor %s (in %s), this run has not", load->dir,
                              neo__ckpt_name_of(file, index), load->files[i].name);
        index -= file->count;
        neo_safetensors_close(file);
        NEO__TRY(status);
    }
    return NEO_OK;
}
/* A tensor in the files that the state has not, or has in the other file, is a difference too. */
static neo_status neo__ckpt_check_extra(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    NEO__TRY(neo__meet_same(meet, load->headers, "neo_load", "what is in the files' headers"));
    NEO__TRY(neo__meet_sum(meet, load->known, load->known_count));
    int k = 0;
    while (k < load->known_count && load->known[k]) k++;
    neo_status status = NEO_OK;
    if (k < load->known_count && meet->group.rank == 0) status = neo__ckpt_fail_extra(load, k);
    return neo__meet_agree(meet, status);
}

/* ---- neo_load ---- */
static neo_status neo__ckpt_take_schema(neo__ckpt_load *load, neo_safetensors *file, int index) {
    neo_tensor t;
    NEO__TRY(neo_safetensors_info(file, index, &t));
    NEO__CHECK(t.dtype == NEO_U8 && t.ndim == 1, NEO_ERR_MISMATCH,
               "%s: the tensor %s is not u8[n]", load->dir, NEO__SCHEMA_NAME);
    load->schema_bytes = (size_t)t.shape[0];
    load->schema = (char *)neo_alloc(load->ctx, load->schema_bytes);
    NEO__CHECK(load->schema, NEO_ERR_MEMORY, "%s: no memory for %zu bytes of dictionaries",
               load->dir, load->schema_bytes);
    t.data = load->schema;
    NEO__TRY(neo_safetensors_read(file, index, t));
    return neo__schema_load(load->state->schema, load->schema, load->schema_bytes, &load->dicts);
}
/* The dictionaries, beside the schema. A checkpoint without any leaves the schema as it is, unless
   only they were wanted. */
static neo_status neo__ckpt_read_schema(neo__ckpt_load *load) {
    if (!load->state->schema) return NEO_OK;
    for (int i = 0; i < load->file_count; i++) {
        neo_safetensors *file = NULL;
        if (!neo__ckpt_starts(load->files[i].name, NEO__CKPT_FIRST_STATE)) continue;
        NEO__TRY(neo__ckpt_open(load, i, &file));
        int index = neo_safetensors_find(file, NEO__SCHEMA_NAME);
        neo_status status = index < 0 ? NEO_OK : neo__ckpt_take_schema(load, file, index);
        neo_safetensors_close(file);
        if (status != NEO_OK || index >= 0) return status;
    }
    NEO__CHECK(!load->desc->schema_only, NEO_ERR_NOT_FOUND, "%s: it has no dictionaries",
               load->dir);
    return NEO_OK;
}
static neo_status neo__ckpt_read_runs(neo__ckpt_load *load) {
    neo__file file;
    neo_status status = NEO_OK;
    for (int i = 0; i < load->run_count && status == NEO_OK;) {
        int number = load->runs[i].file;
        NEO__TRY(neo__path_join(load->path, load->dir, load->files[number].name));
        NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
        for (; i < load->run_count && load->runs[i].file == number && status == NEO_OK; i++)
            status = neo__st_read_rect(load->ctx, &file, &load->runs[i].rect,
                                       &load->state->entries[load->runs[i].entry].slab);
        neo__file_close(&file);
    }
    return status;
}
/* The checkpoint that rank 0 finds, for all ranks. */
static neo_status neo__ckpt_choose(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    const neo_load_desc *desc = load->desc;
    neo__ckpt_search search;
    uint64_t words[4] = {0, 0, 0, load->state->schema ? 1u : 0u};
    uint64_t flags = (desc->any_definition ? 1u : 0u) + (desc->weights_only ? 2u : 0u) +
                     (desc->schema_only ? 4u : 0u);
    NEO__TRY(neo__meet_same(meet, (uint64_t)desc->step * 8 + flags, "neo_load", "desc"));
    neo_status status = NEO_OK;
    if (meet->group.rank == 0) {
        status = neo__ckpt_find(desc->dir, desc->step, &search);
        words[0] = (uint64_t)search.found;
        words[1] = (uint64_t)search.before;
        words[2] = (uint64_t)search.suffix;
    }
    NEO__TRY(neo__meet_agree(meet, status));
    NEO__TRY(neo__meet_sum(meet, words, 4));
    load->any_schema = words[3] > 0;
    load->step = (int64_t)words[0];
    load->before = (int64_t)words[1];
    status = neo__ckpt_path(load->dir, desc->dir, load->step, (neo__ckpt_suffix)words[2]);
    if (status == NEO_OK && !neo__ckpt_is_whole(load->dir))
        status = neo_fail(NEO_ERR_IO, "%s: does not see this checkpoint, which rank 0 found: %s",
                          load->dir, neo__ckpt_apart);
    return neo__meet_agree(meet, status);
}
static neo_status neo__ckpt_read(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    NEO__TRY(neo__ckpt_choose(load));
    neo_status status = neo__ckpt_read_manifest(load);
    if (status == NEO_OK) status = neo__ckpt_check_definition(load);
    NEO__TRY(neo__meet_agree(meet, status));
    NEO__TRY(neo__meet_same(meet, load->manifest_crc, "neo_load", "the manifest"));
    NEO__TRY(neo__ckpt_check_files(load));
    NEO__TRY(neo__meet_agree(meet, neo__ckpt_survey(load)));
    NEO__TRY(neo__ckpt_check_extra(load));
    NEO__TRY(neo__meet_agree(meet, neo__ckpt_read_schema(load)));
    /* from here on state changes */
    neo_schema *schema = load->state->schema;
    if (load->dicts) neo__schema_install(schema, load->dicts, !schema->fitted);
    load->dicts = NULL;
    return neo__meet_agree(meet, neo__ckpt_read_runs(load));
}
static void neo__ckpt_load_free(neo__ckpt_load *load) {
    neo_ctx *ctx = load->ctx;
    if (load->dicts) neo__schema_install(load->state->schema, load->dicts, 0);
    neo_free(ctx, load->known, (size_t)load->known_capacity * sizeof *load->known);
    neo_free(ctx, load->runs, (size_t)load->run_capacity * sizeof *load->runs);
    if (load->covers)
        neo_free(ctx, load->covers, (size_t)load->state->count * sizeof *load->covers);
    neo_free(ctx, load->schema, load->schema_bytes);
    neo_free(ctx, (void *)load->words, (size_t)load->word_capacity * 2 * sizeof *load->words);
    neo_free(ctx, load->files, (size_t)load->file_capacity * sizeof *load->files);
    neo_free(ctx, load->manifest, load->manifest_bytes);
    neo_free(ctx, load, sizeof *load);
}
static neo_status neo__check_load(const neo_load_desc *desc, const neo_state *state) {
    NEO__CHECK(state && desc->dir && desc->dir[0], NEO_ERR_ARG,
               "neo_load: an argument is NULL or desc.dir is empty");
    NEO__CHECK(!desc->schema_only || state->schema, NEO_ERR_ARG,
               "neo_load: desc.schema_only, but the state has no schema");
    return NEO_OK;
}
NEO_API neo_status neo_load(neo_ctx *ctx, const neo_load_desc *desc, neo_state *state,
                            int64_t *loaded_step) {
    NEO__CHECK(ctx && desc, NEO_ERR_ARG, "neo_load: an argument is NULL or desc.dir is empty");
    neo__meet meet;
    NEO__TRY(neo__meet_begin(&meet, ctx, "neo_load", desc->group));
    neo_status status = neo__check_load(desc, state);
    neo__ckpt_load *load = NULL;
    if (status == NEO_OK) {
        load = (neo__ckpt_load *)neo__alloc_zero(ctx, sizeof *load);
        if (!load)
            status = neo_fail(NEO_ERR_MEMORY, "neo_load: no memory for %zu bytes", sizeof *load);
    }
    status = neo__meet_agree(&meet, status);
    if (load) {
        load->ctx = ctx;
        load->desc = desc;
        load->state = state;
        load->before = -1;
        load->meet = meet;
        if (status == NEO_OK) status = neo__ckpt_read(load);
        if (status == NEO_ERR_CORRUPT && load->before >= 0)
            status = neo_fail(status, "%.440s; the checkpoint before it is of step %" PRId64,
                              neo__error_text, load->before);
        if (status == NEO_OK && loaded_step) *loaded_step = load->step;
        neo__ckpt_load_free(load);
    }
    neo__meet_end(&meet);
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-metrics

   AUC is the share of (positive, negative) pairs that the score orders rightly, ties counting one
   half: the Mann-Whitney statistic. Scores become integers that sort alike; those of positives
   fill one array from the front, those of negatives from its end, so a sample takes four bytes.
   Both parts are radix sorted and merged, and twice the number of right pairs is an integer.
   ------------------------------------------------------------------------------------------------ */
#define NEO__METRICS_CAPACITY ((int64_t)1 << 32) /* twice the pairs stay below 2^63 */

/* What adds up over samples, in any order. */
typedef struct neo__metric_sums {
    int64_t count, positive, correct;
    neo_exact logloss, prediction;
} neo__metric_sums;

struct neo_metrics {
    neo_ctx *ctx;
    int64_t capacity, window;
    neo__metric_sums lifetime;
    uint32_t *keys; /* [capacity]: positives, free space, negatives */
    int64_t positives, negatives;
    float *ring_logit;   /* [window]: the last samples */
    uint8_t *ring_label; /* [window] */
    uint32_t *scratch;
    size_t scratch_bytes;
};

/* An integer that orders as the float does; -0 and 0 are equal. */
NEO__INLINE uint32_t neo__sort_key(float x) {
    uint32_t u = neo__bits_f32(x + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}
/* Stable, by bytes from the lowest; bytes that are all alike are skipped. scratch: n keys. */
static void neo__radix_sort(uint32_t *keys, uint32_t *scratch, int64_t n) {
    int64_t count[4][256];
    memset(count, 0, sizeof count);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++) count[b][keys[i] >> 8 * b & 255]++;
    uint32_t *from = keys, *to = scratch;
    for (int b = 0; b < 4; b++) {
        if (n == 0 || count[b][from[0] >> 8 * b & 255] == n) continue;
        int64_t at[256], sum = 0;
        for (int d = 0; d < 256; d++) {
            at[d] = sum;
            sum += count[b][d];
        }
        for (int64_t i = 0; i < n; i++) to[at[from[i] >> 8 * b & 255]++] = from[i];
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys) memcpy(keys, from, (size_t)n * sizeof *keys);
}
/* AUC of unsorted keys; sorts both in place. scratch: as many keys as the longer has. */
static double neo__auc_of_keys(uint32_t *pos, int64_t pos_count, uint32_t *neg, int64_t neg_count,
                               uint32_t *scratch) {
    if (pos_count == 0 || neg_count == 0) return neo__f64_bits(0x7FF8000000000000u);
    neo__radix_sort(pos, scratch, pos_count);
    neo__radix_sort(neg, scratch, neg_count);
    uint64_t twice = 0;
    int64_t below = 0, upto = 0; /* negatives < key, <= key */
    for (int64_t i = 0; i < pos_count; i++) {
        if (i == 0 || pos[i] != pos[i - 1]) {
            below = upto;
            while (below < neg_count && neg[below] < pos[i]) below++;
            upto = below;
            while (upto < neg_count && neg[upto] == pos[i]) upto++;
        }
        twice += (uint64_t)(below + upto);
    }
    return (double)twice / (2.0 * ((double)pos_count * (double)neg_count));
}

NEO_API size_t neo_auc_scratch_bytes(int64_t count) {
    return count <= 0 ? 0 : neo__size_mul((size_t)count, 2 * sizeof(uint32_t));
}
NEO_API double neo_auc(const float *score, const float *label, int64_t count, void *scratch) {
    uint32_t *keys = (uint32_t *)scratch;
    int64_t pos = 0, neg = 0;
    if (count <= 0 || count > NEO__METRICS_CAPACITY) return neo__f64_bits(0x7FF8000000000000u);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        if (!(score[i] == score[i])) break;
        if (label[i] >= 0.5f) keys[pos++] = neo__sort_key(score[i]);
        else keys[count - ++neg] = neo__sort_key(score[i]);
    }
    double auc = pos + neg < count ? neo__f64_bits(0x7FF8000000000000u)
                                   : neo__auc_of_keys(keys, pos, keys + pos, neg, keys + count);
    neo__fp_leave(fp);
    return auc;
}

NEO__COLD_BEGIN
NEO_API neo_status neo_metrics_create(neo_ctx *ctx, const neo_metrics_desc *desc,
                                      neo_metrics **out) {
    NEO__CHECK(ctx && desc && out, NEO_ERR_ARG,
               "neo_metrics_create: ctx, desc or metrics is NULL");
    *out = NULL;
    NEO__CHECK(desc->capacity > 0 && desc->capacity <= NEO__METRICS_CAPACITY, NEO_ERR_ARG,
               "neo_metrics_create: capacity is %" PRId64 ", not in 1 .. 2^32", desc->capacity);
    NEO__CHECK(desc->window >= 0 && desc->window <= NEO__METRICS_CAPACITY, NEO_ERR_ARG,
               "neo_metrics_create: window is %" PRId64 ", not in 0 .. 2^32", desc->window);
    neo_metrics *m = (neo_metrics *)neo__alloc_zero(ctx, sizeof *m);
    NEO__CHECK(m, NEO_ERR_MEMORY, "neo_metrics_create: no memory for %zu bytes", sizeof *m);
    m->ctx = ctx;
    m->capacity = desc->capacity;
    m->window = desc->window;
    m->scratch_bytes =
        neo__size_mul((size_t)NEO__MAX(m->capacity, 2 * m->window), sizeof *m->scratch);
    m->keys = (uint32_t *)neo_alloc(ctx, (size_t)m->capacity * sizeof *m->keys);
    m->scratch = (uint32_t *)neo_alloc(ctx, m->scratch_bytes);
    if (m->window) {
        m->ring_logit = (float *)neo_alloc(ctx, (size_t)m->window * sizeof *m->ring_logit);
        m->ring_label = (uint8_t *)neo_alloc(ctx, (size_t)m->window);
    }
    if (!m->keys || !m->scratch || (m->window && (!m->ring_logit || !m->ring_label))) {
        neo_metrics_destroy(m);
        return neo_fail(NEO_ERR_MEMORY,
                         "neo_metrics_create: no memory for a capacity of %" PRId64
                         " and a window of %" PRId64,
                         desc->capacity, desc->window);
    }
    *out = m;
    return NEO_OK;
}
NEO_API void neo_metrics_destroy(neo_metrics *m) {
    if (!m) return;
    neo_ctx *ctx = m->ctx;
    neo_free(ctx, m->keys, (size_t)m->capacity * sizeof *m->keys);
    neo_free(ctx, m->scratch, m->scratch_bytes);
    neo_free(ctx, m->ring_logit, (size_t)m->window * sizeof *m->ring_logit);
    neo_free(ctx, m->ring_label, (size_t)m->window);
    neo_free(ctx, m, sizeof *m);
}
NEO_API void neo_metrics_reset(neo_metrics *m) {
    if (!m) return;
    memset(&m->lifetime, 0, sizeof m->lifetime);
    m->positives = m->negatives = 0;
}
NEO__COLD_END

/* ---- updates ---- */
static neo_status neo__metrics_check(neo_tensor logit, neo_tensor label) {
    NEO__CHECK(neo__given(logit) && neo__given(label), NEO_ERR_ARG,
               "neo_metrics_update: logit or label is none");
    if (!logit.data) return neo__no_data("neo_metrics_update", "logit", logit, NEO_ERR_ARG);
    if (!label.data) return neo__no_data("neo_metrics_update", "label", label, NEO_ERR_ARG);
    NEO__CHECK(logit.dtype == NEO_F32 && label.dtype == NEO_F32, NEO_ERR_SHAPE,
               "neo_metrics_update: logit is %s, label %s, both must be f32",
               neo_dtype_name(logit.dtype), neo_dtype_name(label.dtype));
    NEO__CHECK(logit.ndim >= 1 && label.ndim >= 1 && neo_tensor_is_contiguous(logit) &&
                   neo_tensor_is_contiguous(label) && neo_tensor_count(logit) == logit.shape[0] &&
                   neo_tensor_count(label) == label.shape[0] && logit.shape[0] == label.shape[0],
               NEO_ERR_SHAPE,
               "neo_metrics_update: logit and label must be contiguous [B] or [B][1]");
    const float *x = (const float *)logit.data, *y = (const float *)label.data;
    for (int64_t i = 0; i < logit.shape[0]; i++) {
        NEO__CHECK(x[i] - x[i] == 0.0f, NEO_ERR_NUMERIC,
                   "neo_metrics_update: logit of sample %" PRId64 " is %g", i, (double)x[i]);
        NEO__CHECK(y[i] == 0.0f || y[i] == 1.0f, NEO_ERR_RANGE,
                   "neo_metrics_update: label of sample %" PRId64 " is %g, not 0 or 1", i,
                   (double)y[i]);
    }
    return NEO_OK;
}
static void neo__metric_sums_add(const neo_ctx *ctx, neo__metric_sums *sums, const float *x,
                                 const float *y, int64_t n) {
    float loss[NEO__RUN], prediction[NEO__RUN];
    for (int64_t at = 0; at < n; at += NEO__RUN) {
        int64_t part = NEO__MIN(n - at, (int64_t)NEO__RUN);
        ctx->vec->bce_logits(x + at, y + at, NULL, 0.0f, loss, NULL, part);
        ctx->vec->act_forward(NEO_ACT_SIGMOID, x + at, prediction, part);
        for (int64_t i = 0; i < part; i++) {
            neo_exact_add(&sums->logloss, loss[i]);
            neo_exact_add(&sums->prediction, prediction[i]);
            int positive = y[at + i] > 0.0f;
            sums->positive += positive;
            sums->correct += (x[at + i] >= 0.0f) == positive;
        }
    }
    sums->count += n;
}
NEO_API neo_status neo_metrics_update(neo_metrics *m, neo_tensor logit, neo_tensor label) {
    NEO__CHECK(m, NEO_ERR_ARG, "neo_metrics_update: metrics is NULL");
    NEO__TRY(neo__metrics_check(logit, label));
    const float *x = (const float *)logit.data, *y = (const float *)label.data;
    neo__fp_state fp = neo__fp_enter();
    int64_t slot = m->window ? m->lifetime.count % m->window : 0;
    for (int64_t i = 0; i < logit.shape[0]; i++) {
        if (m->positives + m->negatives < m->capacity) {
            uint32_t key = neo__sort_key(x[i]);
            if (y[i] > 0.0f) m->keys[m->positives++] = key;
            else m->keys[m->capacity - ++m->negatives] = key;
        }
        if (m->window) {
            m->ring_logit[slot] = x[i];
            m->ring_label[slot] = y[i] > 0.0f;
            if (++slot == m->window) slot = 0;
        }
    }
    neo__metric_sums_add(m->ctx, &m->lifetime, x, y, logit.shape[0]);
    neo__fp_leave(fp);
    return NEO_OK;
}

/* ---- values ---- */
NEO__COLD_BEGIN
static void neo__metric_values_of(const neo__metric_sums *s, double auc, int64_t auc_count,
                                  neo_metric_values *v) {
    double nan = neo__f64_bits(0x7FF8000000000000u), n = (double)s->count, p = (double)s->positive;
    v->count = s->count;
    v->auc = auc;
    v->auc_count = auc_count;
    v->logloss = v->ne = v->calibration = v->accuracy = v->base_rate = nan;
    if (s->count == 0) return;
    v->logloss = neo_exact_value(&s->logloss) / n;
    v->accuracy = (double)s->correct / n;
    v->base_rate = p / n;
    if (s->positive > 0) v->calibration = neo_exact_value(&s->prediction) / p;
    if (s->positive > 0 && s->positive < s->count) {
        double rate = p / n, rest = (n - p) / n;
        v->ne = v->logloss / -(rate * neo__log_f64(rate) + rest * neo__log_f64(rest));
    }
}
NEO_API neo_status neo_metrics_lifetime(neo_metrics *m, neo_metric_values *values) {
    NEO__CHECK(m && values, NEO_ERR_ARG, "neo_metrics_lifetime: metrics or values is NULL");
    double auc = neo__f64_bits(0x7FF8000000000000u);
    neo__fp_state fp = neo__fp_enter();
    if (m->lifetime.count <= m->capacity)
        auc = neo__auc_of_keys(m->keys, m->positives, m->keys + m->capacity - m->negatives,
                               m->negatives, m->scratch);
    neo__metric_values_of(&m->lifetime, auc, m->positives + m->negatives, values);
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO__COLD_END
NEO_API neo_status neo_metrics_window(neo_metrics *m, neo_metric_values *values) {
    NEO__CHECK(m && values, NEO_ERR_ARG, "neo_metrics_window: metrics or values is NULL");
    NEO__CHECK(m->window, NEO_ERR_STATE,
               "neo_metrics_window: metrics were created without a window");
    int64_t n = NEO__MIN(m->lifetime.count, m->window), pos = 0, neg = 0;
    uint32_t *keys = m->scratch, *scratch = m->scratch + m->window;
    NEO__ZERO(neo__metric_sums, sums);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t at = 0; at < n; at += NEO__RUN) {
        float label[NEO__RUN];
        int64_t part = NEO__MIN(n - at, (int64_t)NEO__RUN);
        for (int64_t i = 0; i < part; i++) {
            label[i] = m->ring_label[at + i] ? 1.0f : 0.0f;
            uint32_t key = neo__sort_key(m->ring_logit[at + i]);
            if (m->ring_label[at + i]) keys[pos++] = key;
            else keys[m->window - ++neg] = key;
        }
        neo__metric_sums_add(m->ctx, &sums, m->ring_logit + at, label, part);
    }
    double auc = neo__auc_of_keys(keys, pos, keys + m->window - neg, neg, scratch);
    neo__metric_values_of(&sums, auc, n, values);
    neo__fp_leave(fp);
    return NEO_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-progress
   ------------------------------------------------------------------------------------------------ */
enum { NEO__PROGRESS_BYTES = 1024, NEO__PROGRESS_COLUMNS = 200 };

NEO__COLD_BEGIN
/* Three significant digits and a letter: 950, 1.23k, 45.6M. Room for 32 bytes. */
static void neo__human(double x, char *out) {
    static const char unit[] = {'k', 'M', 'G', 'T', 'P'};
    if (!(x < 1e18)) x = 1e18;
    if (x < 999.5) {
        snprintf(out, 32, "%.0f", x);
        return;
    }
    int u = -1;
    for (; x >= 999.5 && u < 4; u++) x /= 1000.0;
    snprintf(out, 32, "%.*f%c", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, unit[u]);
}
/* 7:05, 2:03:09, 4d 03h. Room for 32 bytes. */
static void neo__duration(double seconds, char *out) {
    int64_t s = seconds < 9e15 ? (int64_t)(seconds + 0.5) : INT64_C(9000000000000000);
    if (s >= 86400) snprintf(out, 32, "%" PRId64 "d %02dh", s / 86400, (int)(s % 86400 / 3600));
    else if (s >= 3600)
        snprintf(out, 32, "%d:%02d:%02d", (int)(s / 3600), (int)(s % 3600 / 60), (int)(s % 60));
    else snprintf(out, 32, "%d:%02d", (int)(s / 60), (int)(s % 60));
}
static void neo__append(char *text, size_t bytes, const char *format, ...) NEO__PRINTF(3, 4);
static void neo__append(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}
/* A bar of `columns` characters; block characters take three bytes and have half steps. */
static void neo__bar(const neo_progress *p, double share, int columns, char *out) {
    int halves = (int)(share * 2.0 * columns + 0.5);
    out[0] = 0;
    for (int i = 0; i < columns; i++) {
        const char *full = p->ascii ? "#" : "\xE2\x94\x81",
                   *half = p->ascii ? "." : "\xE2\x95\xB8";
        const char *none = p->ascii ? "." : "\xE2\x94\x80";
        strcat(out, halves >= 2 * i + 2 ? full : halves == 2 * i + 1 ? half : none);
    }
}

/* The text after the bar: samples, rate, loss, time. */
static void neo__progress_tail(const neo_progress *p, double loss, int final, char *text,
                               size_t bytes) {
    char done[32], total[32], rate[32], time[32];
    double seconds = (double)(p->last_ns - p->started_ns) * 1e-9;
    double new_samples = (double)(p->done - p->first);
    double per_second = seconds > 0.0 ? new_samples / seconds : 0.0;
    neo__human((double)p->done, done);
    neo__human((double)p->total, total);
    neo__human(per_second, rate);
    if (p->total > 0 && !final) neo__append(text, bytes, "  %s/%s", done, total);
    else neo__append(text, bytes, "  %s samples", done);
    if (new_samples > 0.0) neo__append(text, bytes, "  %s samples/s", rate);
    if (!p->hide_loss) neo__append(text, bytes, "  loss %.4f", loss);
    if (final) {
        neo__duration(seconds, time);
        neo__append(text, bytes, "  in %s", time);
    } else if (p->total > 0 && per_second > 0.0) {
        neo__duration((double)NEO__MAX(p->total - p->done, (int64_t)0) / per_second, time);
        neo__append(text, bytes, "  ETA %s", time);
    }
}
static void neo__progress_draw(neo_progress *p, double loss, int final) {
    char line[NEO__PROGRESS_BYTES], tail[256], bar[3 * NEO__PROGRESS_COLUMNS + 1];
    int columns = p->columns > 0 ? NEO__MIN(p->columns, (int)NEO__PROGRESS_COLUMNS) : 80;
    double share = p->total > 0 ? (double)p->done / (double)p->total : 0.0;
    share = NEO__MIN(NEO__MAX(share, 0.0), 1.0);
    tail[0] = 0;
    if (p->total > 0) neo__append(tail, sizeof tail, " %3d%%", (int)(share * 100.0));
    neo__progress_tail(p, loss, final, tail, sizeof tail);
    line[0] = 0;
    if (p->terminal) neo__append(line, sizeof line, "\r");
    neo__append(line, sizeof line, "%.64s", p->label ? p->label : "");
    if (!p->terminal) {
        neo__append(line, sizeof line, "%s\n", tail);
        p->write(line, p->user);
        return;
    }
    /* The bar takes the columns that are left by the longest usual tail, so that it keeps its
       width; the last column stays free: some terminals wrap after it. */
    int head = (int)strlen(line) - 1, used = head + (int)strlen(tail);
    int room = NEO__MIN(columns - 2 - head - NEO__MAX((int)strlen(tail), 61), 40);
    if (p->total > 0 && room >= 8) {
        neo__bar(p, share, room, bar);
        neo__append(line, sizeof line, " %s", bar);
        used += 1 + room;
    }
    neo__append(line, sizeof line, "%.*s", NEO__MAX(columns - 1 - used + (int)strlen(tail), 0),
                tail);
    int before = p->shown; /* blank what a longer line left behind */
    p->shown = used = NEO__MIN(used, columns - 1);
    if (before > used) neo__append(line, sizeof line, "%*s", before - used, "");
    if (final) neo__append(line, sizeof line, "\n");
    p->write(line, p->user);
}

NEO_API void neo_progress_begin(neo_progress *p) {
    if (!p || !p->write) return;
    p->started_ns = p->last_ns = neo_time_ns();
    p->done = p->first;
    p->shown = 0;
}
NEO_API void neo_progress_update(neo_progress *p, int64_t done, double loss) {
    if (!p || !p->write) return;
    int64_t now = neo_time_ns(), ms = p->interval_ms ? p->interval_ms : p->terminal ? 100 : 5000;
    p->done = done;
    if (p->last_ns != p->started_ns && now - p->last_ns < ms * 1000000) return;
    if (p->last_ns == p->started_ns && !p->terminal && now - p->started_ns < ms * 1000000) return;
    p->last_ns = now;
    neo__progress_draw(p, loss, 0);
}
NEO_API void neo_progress_end(neo_progress *p, double loss) {
    if (!p || !p->write) return;
    p->last_ns = neo_time_ns();
    neo__progress_draw(p, loss, 1);
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-jsonl

   A line is built in a fixed buffer and goes to the system in one write, so that it is whole in
   the file even when the process is killed after it. A line that a full disk cut short is ended by
   the newline that the next one writes first.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__JSONL_BYTES = 4096 };
struct neo_jsonl {
    neo_ctx *ctx;
    neo__file file;
    char *path;
    neo_status status; /* of the line being built */
    int torn;
    size_t used;
    char line[NEO__JSONL_BYTES + 1];
};

NEO__COLD_BEGIN
NEO__INLINE size_t neo__put(char *out, size_t bytes, size_t used, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (used + i < bytes) out[used + i] = text[i];
    return used + n;
}
/* JSON text of a string, quotes included: control characters, quote and backslash escaped; bytes
   that are not UTF-8 become U+FFFD. Returns its length; writes nothing beyond `bytes`. */
static size_t neo__jsonl_escape(char *out, size_t bytes, const char *s) {
    size_t used = neo__put(out, bytes, 0, "\"", 1);
    const char *end = s + strlen(s);
    while (s < end) {
        char code[8];
        unsigned char c = (unsigned char)*s;
        size_t n = (size_t)neo__utf8_length(s, (size_t)(end - s));
        if (n == 0) {
            used = neo__put(out, bytes, used, "\xEF\xBF\xBD", 3);
            s++;
            continue;
        }
        if (c == '"' || c == '\\') {
            code[0] = '\\';
            code[1] = (char)c;
            used = neo__put(out, bytes, used, code, 2);
        } else if (c < 0x20) {
            const char *at = strchr("\bb\nn\tt\rr\ff", c);
            if (at) snprintf(code, sizeof code, "\\%c", at[1]);
            else snprintf(code, sizeof code, "\\u%04x", (unsigned)c);
            used = neo__put(out, bytes, used, code, strlen(code));
        } else {
            used = neo__put(out, bytes, used, s, n);
        }
        s += n;
    }
    return neo__put(out, bytes, used, "\"", 1);
}

NEO_API neo_status neo_jsonl_open(neo_ctx *ctx, const char *path, int append, neo_jsonl **out) {
    NEO__CHECK(ctx && path && out, NEO_ERR_ARG, "neo_jsonl_open: ctx, path or log is NULL");
    *out = NULL;
    neo_jsonl *log = (neo_jsonl *)neo__alloc_zero(ctx, sizeof *log);
    char *copy = neo__string_copy(ctx, path);
    neo_status status = NEO_OK;
    if (!log || !copy)
        status = neo_fail(NEO_ERR_MEMORY, "neo_jsonl_open: no memory for %s", path);
    else status = neo__file_open(&log->file, copy, append ? NEO__FILE_APPEND : NEO__FILE_CREATE);
    if (status != NEO_OK) {
        neo_free(ctx, log, sizeof *log);
        neo__string_free(ctx, copy);
        return status;
    }
    log->ctx = ctx;
    log->path = copy;
    *out = log;
    return NEO_OK;
}
NEO_API void neo_jsonl_close(neo_jsonl *log) {
    if (!log) return;
    neo_ctx *ctx = log->ctx;
    (void)neo__file_close(&log->file); /* every line was reported when it was written */
    neo__string_free(ctx, log->path);
    neo_free(ctx, log, sizeof *log);
}

/* The bytes of the line may not pass its end; the first failure is kept. */
static void neo__jsonl_text(neo_jsonl *log, const char *text, size_t n) {
    if (log->status != NEO_OK) return;
    if (n > NEO__JSONL_BYTES - log->used) {
        log->status = NEO_ERR_CAPACITY;
        return;
    }
    memcpy(log->line + log->used, text, n);
    log->used += n;
}
static void neo__jsonl_quoted(neo_jsonl *log, const char *s) {
    size_t room = NEO__JSONL_BYTES - log->used;
    size_t n = neo__jsonl_escape(log->line + log->used, room, s ? s : "");
    if (log->status != NEO_OK) return;
    if (n > room) log->status = NEO_ERR_CAPACITY;
    else log->used += n;
}
static void neo__jsonl_key(neo_jsonl *log, const char *key) {
    neo__jsonl_text(log, log->used ? "," : "{", 1);
    neo__jsonl_quoted(log, key);
    neo__jsonl_text(log, ":", 1);
}
NEO_API void neo_jsonl_int(neo_jsonl *log, const char *key, int64_t value) {
    char text[32];
    if (!log) return;
    neo__jsonl_key(log, key);
    neo__jsonl_text(log, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}
/* Few digits, but enough to read back as x; whatever decimal point the locale prints. */
static void neo__number_text(double x, char *out, size_t bytes) {
    if (!(x - x == 0.0)) {
        snprintf(out, bytes, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 3 : 1) {
        snprintf(out, bytes, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    for (char *p = out; *p; p++)
        if (*p == ',') *p = '.';
}
NEO_API void neo_jsonl_number(neo_jsonl *log, const char *key, double value) {
    char text[40];
    if (!log) return;
    neo__jsonl_key(log, key);
    neo__number_text(value, text, sizeof text);
    neo__jsonl_text(log, text, strlen(text));
}
NEO_API void neo_jsonl_string(neo_jsonl *log, const char *key, const char *value) {
    if (!log) return;
    neo__jsonl_key(log, key);
    if (value) neo__jsonl_quoted(log, value);
    else neo__jsonl_text(log, "null", 4);
}
NEO_API neo_status neo_jsonl_end(neo_jsonl *log) {
    NEO__CHECK(log, NEO_ERR_ARG, "neo_jsonl_end: log is NULL");
    if (!log->used) neo__jsonl_text(log, "{", 1);
    neo__jsonl_text(log, "}\n", 2);
    neo_status status = log->status;
    size_t used = log->used;
    log->status = NEO_OK;
    log->used = 0;
    NEO__CHECK(status == NEO_OK, status, "%s: a line of more than %d bytes was not written",
               log->path, (int)NEO__JSONL_BYTES);
    if (log->torn) {
        NEO__TRY(neo__file_write(&log->file, "\n", 1));
        log->torn = 0;
    }
    status = neo__file_write(&log->file, log->line, used);
    if (status != NEO_OK) log->torn = 1;
    return status;
}
NEO__COLD_END
/* ------------------------------------------------------------------------------------------------
   >>impl-report

   The page is plain HTML: cards of facts, charts, tables. A chart's SVG holds only grid lines and
   curves, in a 1000 x 1000 box that is stretched to the frame with strokes that do not scale; its
   labels are HTML placed in percent, so that text keeps its size from a phone to a wide screen.
   Colours are CSS variables, one set for light and one for dark. Facts, charts, curves, tables and
   rows are lists in the order in which they were first named.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__CURVE_POINTS = 2048, NEO__CURVE_COLORS = 8 };

typedef struct neo__curve {
    struct neo__curve *next;
    char *name;
    double *x, *y; /* [NEO__CURVE_POINTS] */
    int count;
    int64_t every, seen;   /* one of `every` points is kept */
    double last_x, last_y; /* the newest point, kept or not */
} neo__curve;
typedef struct neo__chart {
    struct neo__chart *next;
    char *name, *x_title, *y_title;
    neo__curve *curves;
} neo__chart;
typedef struct neo__row {
    struct neo__row *next;
    int count;
    char *cells[1]; /* [count] */
} neo__row;
typedef struct neo__table {
    struct neo__table *next;
    char *name;
    neo__row *rows;
} neo__table;
typedef struct neo__fact {
    struct neo__fact *next;
    char *name, *value;
} neo__fact;

struct neo_report {
    neo_ctx *ctx;
    char *title;
    neo__fact *facts, *notes;
    neo__chart *charts;
    neo__table *tables;
};

/* ---- collecting ---- */
NEO__COLD_BEGIN
static neo_status neo__report_memory(void) {
    return neo_fail(NEO_ERR_MEMORY, "neo_report: no memory for another entry");
}
NEO_API neo_status neo_report_create(neo_ctx *ctx, const char *title, neo_report **out) {
    NEO__CHECK(ctx && title && out, NEO_ERR_ARG,
               "neo_report_create: ctx, title or report is NULL");
    *out = NULL;
    neo_report *r = (neo_report *)neo__alloc_zero(ctx, sizeof *r);
    if (!r) return neo__report_memory();
    r->ctx = ctx;
    r->title = neo__string_copy(ctx, title);
    if (!r->title) {
        neo_free(ctx, r, sizeof *r);
        return neo__report_memory();
    }
    *out = r;
    return NEO_OK;
}
static void neo__curve_free(neo_ctx *ctx, neo__curve *c) {
    neo__string_free(ctx, c->name);
    neo_free(ctx, c->x, 2 * NEO__CURVE_POINTS * sizeof *c->x);
    neo_free(ctx, c, sizeof *c);
}
static void neo__row_free(neo_ctx *ctx, neo__row *row) {
    for (int i = 0; i < row->count; i++) neo__string_free(ctx, row->cells[i]);
    neo_free(ctx, row, sizeof *row + (size_t)row->count * sizeof row->cells[0]);
}
static void neo__fact_free(neo_ctx *ctx, neo__fact *f) {
    neo__string_free(ctx, f->name);
    neo__string_free(ctx, f->value);
    neo_free(ctx, f, sizeof *f);
}
static void neo__chart_free(neo_ctx *ctx, neo__chart *chart) {
    for (neo__curve *c = chart->curves, *next; c; c = next) {
        next = c->next;
        neo__curve_free(ctx, c);
    }
    neo__string_free(ctx, chart->name);
    neo__string_free(ctx, chart->x_title);
    neo__string_free(ctx, chart->y_title);
    neo_free(ctx, chart, sizeof *chart);
}
static void neo__table_free(neo_ctx *ctx, neo__table *t) {
    for (neo__row *row = t->rows, *next; row; row = next) {
        next = row->next;
        neo__row_free(ctx, row);
    }
    neo__string_free(ctx, t->name);
    neo_free(ctx, t, sizeof *t);
}
NEO_API void neo_report_destroy(neo_report *r) {
    if (!r) return;
    neo_ctx *ctx = r->ctx;
    for (neo__fact *f = r->facts, *next; f; f = next) {
        next = f->next;
        neo__fact_free(ctx, f);
    }
    for (neo__fact *f = r->notes, *next; f; f = next) {
        next = f->next;
        neo__fact_free(ctx, f);
    }
    for (neo__chart *c = r->charts, *next; c; c = next) {
        next = c->next;
        neo__chart_free(ctx, c);
    }
    for (neo__table *t = r->tables, *next; t; t = next) {
        next = t->next;
        neo__table_free(ctx, t);
    }
    neo__string_free(ctx, r->title);
    neo_free(ctx, r, sizeof *r);
}

static neo_status neo__fact_add(neo_ctx *ctx, neo__fact **list, const char *name,
                                const char *value) {
    while (*list && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    char *copy = neo__string_copy(ctx, value);
    if (!copy) return neo__report_memory();
    if (*list) { /* a new value for an old name */
        neo__string_free(ctx, (*list)->value);
        (*list)->value = copy;
        return NEO_OK;
    }
    neo__fact *f = (neo__fact *)neo__alloc_zero(ctx, sizeof *f);
    char *key = neo__string_copy(ctx, name);
    if (!f || !key) {
        neo__string_free(ctx, copy);
        neo__string_free(ctx, key);
        neo_free(ctx, f, sizeof *f);
        return neo__report_memory();
    }
    f->name = key;
    f->value = copy;
    *list = f;
    return NEO_OK;
}
NEO_API neo_status neo_report_fact(neo_report *r, const char *name, const char *value) {
    NEO__CHECK(r && name && value, NEO_ERR_ARG, "neo_report_fact: report, name or value is NULL");
    return neo__fact_add(r->ctx, &r->facts, name, value);
}
NEO_API neo_status neo_report_note(neo_report *r, const char *text) {
    NEO__CHECK(r && text, NEO_ERR_ARG, "neo_report_note: report or text is NULL");
    return neo__fact_add(r->ctx, &r->notes, text, "");
}

static neo_status neo__chart_get(neo_report *r, const char *name, neo__chart **out) {
    neo__chart **list = &r->charts;
    while (*list && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    if (!*list) {
        neo__chart *chart = (neo__chart *)neo__alloc_zero(r->ctx, sizeof *chart);
        char *key = neo__string_copy(r->ctx, name);
        if (!chart || !key) {
            neo__string_free(r->ctx, key);
            neo_free(r->ctx, chart, sizeof *chart);
            return neo__report_memory();
        }
        chart->name = key;
        *list = chart;
    }
    *out = *list;
    return NEO_OK;
}
static neo_status neo__curve_get(neo_ctx *ctx, neo__chart *chart, const char *name,
                                 neo__curve **out) {
    neo__curve **list = &chart->curves;
    while (*list && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    if (!*list) {
        neo__curve *c = (neo__curve *)neo__alloc_zero(ctx, sizeof *c);
        double *points = (double *)neo_alloc(ctx, 2 * NEO__CURVE_POINTS * sizeof *points);
        char *key = neo__string_copy(ctx, name);
        if (!c || !points || !key) {
            neo__string_free(ctx, key);
            neo_free(ctx, points, 2 * NEO__CURVE_POINTS * sizeof *points);
            neo_free(ctx, c, sizeof *c);
            return neo__report_memory();
        }
        c->name = key;
        c->x = points;
        c->y = points + NEO__CURVE_POINTS;
        c->every = 1;
        *list = c;
    }
    *out = *list;
    return NEO_OK;
}
NEO_API neo_status neo_report_point(neo_report *r, const char *chart_name, const char *curve_name,
                                    double x, double y) {
    NEO__CHECK(r && chart_name && curve_name, NEO_ERR_ARG,
               "neo_report_point: report, chart or curve is NULL");
    neo__chart *chart = NULL;
    neo__curve *c = NULL;
    NEO__TRY(neo__chart_get(r, chart_name, &chart));
    NEO__TRY(neo__curve_get(r->ctx, chart, curve_name, &c));
    c->last_x = x;
    c->last_y = y;
    if (c->seen++ % c->every != 0) return NEO_OK;
    if (c->count == NEO__CURVE_POINTS) {
        for (int i = 0; i < NEO__CURVE_POINTS / 2; i++) {
            c->x[i] = c->x[2 * i];
            c->y[i] = c->y[2 * i];
        }
        c->count = NEO__CURVE_POINTS / 2;
        c->every *= 2;
        if ((c->seen - 1) % c->every != 0) return NEO_OK;
    }
    c->x[c->count] = x;
    c->y[c->count++] = y;
    return NEO_OK;
}
NEO_API neo_status neo_report_axis(neo_report *r, const char *chart_name, const char *x_title,
                                   const char *y_title) {
    NEO__CHECK(r && chart_name, NEO_ERR_ARG, "neo_report_axis: report or chart is NULL");
    neo__chart *chart = NULL;
    NEO__TRY(neo__chart_get(r, chart_name, &chart));
    char *x = neo__string_copy(r->ctx, x_title ? x_title : "");
    char *y = neo__string_copy(r->ctx, y_title ? y_title : "");
    if (!x || !y) {
        neo__string_free(r->ctx, x);
        neo__string_free(r->ctx, y);
        return neo__report_memory();
    }
    neo__string_free(r->ctx, chart->x_title);
    neo__string_free(r->ctx, chart->y_title);
    chart->x_title = x;
    chart->y_title = y;
    return NEO_OK;
}
static neo_status neo__table_get(neo_report *r, const char *name, neo__table **out) {
    neo__table **list = &r->tables;
    while (*list && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    if (!*list) {
        neo__table *t = (neo__table *)neo__alloc_zero(r->ctx, sizeof *t);
        char *key = neo__string_copy(r->ctx, name);
        if (!t || !key) {
            neo__string_free(r->ctx, key);
            neo_free(r->ctx, t, sizeof *t);
            return neo__report_memory();
        }
        t->name = key;
        *list = t;
    }
    *out = *list;
    return NEO_OK;
}
NEO_API neo_status neo_report_row(neo_report *r, const char *table_name, const char *const *cells,
                                  int count) {
    NEO__CHECK(r && table_name && (cells || count == 0) && count >= 0, NEO_ERR_ARG,
               "neo_report_row: report, table or cells is NULL, or count < 0");
    neo__table *t = NULL;
    NEO__TRY(neo__table_get(r, table_name, &t));
    neo__row *row =
        (neo__row *)neo__alloc_zero(r->ctx, sizeof *row + (size_t)count * sizeof row->cells[0]);
    if (!row) return neo__report_memory();
    row->count = count;
    for (int i = 0; i < count; i++) {
        row->cells[i] = neo__string_copy(r->ctx, cells[i] ? cells[i] : "");
        if (!row->cells[i]) {
            neo__row_free(r->ctx, row);
            return neo__report_memory();
        }
    }
    neo__row **list = &t->rows;
    while (*list) list = &(*list)->next;
    *list = row;
    return NEO_OK;
}

/* ---- writing: text and numbers ---- */

/* Text between tags or in a quoted attribute. Control characters become spaces, what is not UTF-8
   U+FFFD. */
static void neo__html_text(neo__out *out, const char *s) {
    const char *end = s + strlen(s);
    while (s < end) {
        size_t n = (size_t)neo__utf8_length(s, (size_t)(end - s));
        switch (*s) {
        case '&': neo__out_text(out, "&amp;"); break;
        case '<': neo__out_text(out, "&lt;"); break;
        case '>': neo__out_text(out, "&gt;"); break;
        case '"': neo__out_text(out, "&quot;"); break;
        case '\'': neo__out_text(out, "&#39;"); break;
        default:
            if (n == 0) neo__out_text(out, "\xEF\xBF\xBD");
            else if ((unsigned char)*s < 0x20 || *s == 0x7F) neo__out_text(out, " ");
            else neo__out_bytes(out, s, n);
        }
        s += n ? n : 1;
    }
}
static void neo__html_element(neo__out *out, const char *open, const char *text,
                              const char *close) {
    neo__out_text(out, open);
    neo__html_text(out, text);
    neo__out_text(out, close);
}

/* An axis: [low, high] and round ticks first, first + step, ... */
typedef struct neo__axis {
    double low, high, first, step, unit; /* labels show value/unit */
    const char *suffix;
    int ticks, digits;
} neo__axis;

static void neo__axis_labels(neo__axis *a) {
    static const struct {
        double unit;
        const char *suffix;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double most = NEO__MAX(fabs(a->low), fabs(a->high));
    a->unit = 1.0;
    a->suffix = "";
    for (int i = 0; i < 4; i++) {
        if (most < units[i].unit * (i == 3 ? 10.0 : 1.0)) continue;
        a->unit = units[i].unit;
        a->suffix = units[i].suffix;
        break;
    }
    a->digits = 0;
    for (double s = a->step / a->unit; s < 0.999999 && a->digits < 12; s *= 10.0) a->digits++;
}
/* About `wanted` steps of 1, 2 or 5 times a power of ten. widen: move both ends out to ticks. */
static void neo__axis_make(neo__axis *a, double low, double high, int wanted, int widen) {
    double least = NEO__MAX(fabs(low), fabs(high)) * 1e-9;
    if (!(high - low > least)) { /* one value: give it room */
        double room = fabs(low) > 1e-300 ? fabs(low) : 1.0;
        low -= room;
        high += room;
    }
    if (!widen && low > 0.0 && low < 0.1 * high) low = 0.0;
    double raw = (high - low) / wanted, power = pow(10.0, floor(log10(raw)));
    double lead = raw / power;
    a->step = power * (lead < 1.42 ? 1.0 : lead < 3.17 ? 2.0 : lead < 7.08 ? 5.0 : 10.0);
    a->low = low;
    a->high = high;
    a->first = ceil(low / a->step - 1e-9) * a->step;
    if (widen) {
        a->low = a->first = floor(low / a->step + 1e-9) * a->step;
        a->high = ceil(high / a->step - 1e-9) * a->step;
    }
    a->ticks = (int)((a->high - a->first) / a->step + 1.000001);
    a->ticks = NEO__MIN(NEO__MAX(a->ticks, 1), 20);
    neo__axis_labels(a);
}
static double neo__axis_tick(const neo__axis *a, int i) { return a->first + a->step * i; }
/* Room for 64 bytes. */
static void neo__axis_label(const neo__axis *a, int i, char *out) {
    double v = neo__axis_tick(a, i) / a->unit;
    if (fabs(v) < a->step / a->unit * 1e-6) v = 0.0;
    double most = NEO__MAX(fabs(a->low), fabs(a->high)) / a->unit;
    if (v == 0.0) snprintf(out, 64, "0");
    else if (a->digits > 6 || most >= 1e6) snprintf(out, 64, "%.4g", v * a->unit);
    else snprintf(out, 64, "%.*f%s", a->digits, v, a->suffix);
}
/* About four significant digits. Room for 64 bytes. */
static void neo__value_text(double v, char *out) {
    double a = fabs(v);
    if (a >= 1e5 && a < 1e15) {
        neo__human(a, out + (v < 0.0));
        if (v < 0.0) out[0] = '-';
    } else if (a < 1e5 && v == floor(v)) {
        snprintf(out, 64, "%.0f", v);
    } else {
        snprintf(out, 64,
                 a >= 1e3 && a < 1e5    ? "%.1f"
                 : a >= 1e-4 && a < 1e3 ? "%#.4g"
                                        : "%.3g",
                 v);
    }
}

/* ---- writing: charts ---- */
NEO__INLINE int neo__drawable(double x, double y) { return fabs(x) < 1e300 && fabs(y) < 1e300; }
/* Points of a curve: those kept, then the newest. */
static int neo__curve_points(const neo__curve *c) {
    return c->count + (c->count > 0 && (c->seen - 1) % c->every != 0);
}
static void neo__curve_point(const neo__curve *c, int i, double *x, double *y) {
    *x = i < c->count ? c->x[i] : c->last_x;
    *y = i < c->count ? c->y[i] : c->last_y;
}
/* The place of a value on an axis, in `scale`ths from its low end. */
static double neo__axis_place(const neo__axis *a, double v, double scale) {
    return (v - a->low) / (a->high - a->low) * scale;
}
/* Axes around all points; 0 when there is nothing to draw. */
static int neo__chart_axes(const neo__chart *chart, neo__axis *ax, neo__axis *ay) {
    double box[4] = {1e301, -1e301, 1e301, -1e301};
    for (const neo__curve *c = chart->curves; c; c = c->next)
        for (int i = 0; i < neo__curve_points(c); i++) {
            double x, y;
            neo__curve_point(c, i, &x, &y);
            if (!neo__drawable(x, y)) continue;
            box[0] = NEO__MIN(box[0], x);
            box[1] = NEO__MAX(box[1], x);
            box[2] = NEO__MIN(box[2], y);
            box[3] = NEO__MAX(box[3], y);
        }
    if (box[0] > box[1]) return 0;
    neo__axis_make(ax, box[0], box[1], 5, 0);
    neo__axis_make(ay, box[2], box[3], 4, 1);
    return 1;
}
static void neo__chart_legend(neo__out *out, const neo__chart *chart) {
    int color = 0;
    neo__out_text(out, "<ul>");
    for (const neo__curve *c = chart->curves; c; c = c->next, color++) {
        char last[64];
        neo__value_text(c->last_y, last);
        neo__out_format(out, "<li><i class=\"c%d%s\"></i>", color % NEO__CURVE_COLORS,
                        color >= NEO__CURVE_COLORS ? " dash" : "");
        neo__html_text(out, c->name);
        neo__html_element(out, " <b>", last, "</b></li>");
    }
    neo__out_text(out, "</ul>");
}
/* A curve that goes up and down over its whole range many times is drawn faint, under its running
   mean. */
static int neo__curve_is_noisy(const neo__curve *c) {
    double x, y, before = 0.0, low = 1e301, high = -1e301, way = 0.0;
    int n = 0;
    for (int i = 0; i < neo__curve_points(c); i++) {
        neo__curve_point(c, i, &x, &y);
        if (!neo__drawable(x, y)) continue;
        if (n++) way += fabs(y - before);
        low = NEO__MIN(low, y);
        high = NEO__MAX(high, y);
        before = y;
    }
    return n >= 100 && way > 8.0 * (high - low);
}
static int neo__mean_reach(const neo__curve *c) { return NEO__MAX(neo__curve_points(c) / 50, 2); }
/* Point i with y averaged over the drawable points within `reach` on both sides; at the first
   points, where curves fall steeply, over fewer on both; at the last over half of that on the
   left. */
static void neo__curve_mean(const neo__curve *c, int i, int reach, double *x, double *y) {
    int last = neo__curve_points(c) - 1, n = 0;
    int left = NEO__MIN(NEO__MAX(NEO__MIN(reach, last - i), reach / 2), i),
        right = NEO__MIN(reach, last - i);
    double sum = 0.0, px, py;
    right = NEO__MIN(right, i);
    for (int k = i - left; k <= i + right; k++) {
        neo__curve_point(c, k, &px, &py);
        if (!neo__drawable(px, py)) continue;
        sum += py;
        n++;
    }
    neo__curve_point(c, i, x, y);
    if (n && neo__drawable(*x, *y)) *y = sum / n;
}
/* One path; a point that is not finite leaves a gap. With area, each stretch is closed along the
   lower edge. */
static void neo__curve_path(neo__out *out, const neo__curve *c, const neo__axis *ax,
                            const neo__axis *ay, const char *css, int color, int area, int reach) {
    int open = 0;
    double x, y, px = 0.0, start = 0.0;
    neo__out_format(out, "<path class=\"%s c%d%s\" d=\"", css, color % NEO__CURVE_COLORS,
                    color >= NEO__CURVE_COLORS ? " dash" : "");
    for (int i = 0; i < neo__curve_points(c); i++) {
        if (reach) neo__curve_mean(c, i, reach, &x, &y);
        else neo__curve_point(c, i, &x, &y);
        if (!neo__drawable(x, y)) {
            if (open && area) neo__out_format(out, "L%.1f 1000L%.1f 1000Z", px, start);
            open = 0;
            continue;
        }
        px = neo__axis_place(ax, x, 1000.0);
        if (!open) start = px;
        neo__out_format(out, "%c%.1f %.1f", open ? 'L' : 'M', px,
                        1000.0 - neo__axis_place(ay, y, 1000.0));
        open = 1;
    }
    if (open && area) neo__out_format(out, "L%.1f 1000L%.1f 1000Z", px, start);
    neo__out_text(out, "\" />");
}
/* A dot on the last point that can be drawn. */
static void neo__curve_dot(neo__out *out, const neo__curve *c, const neo__axis *ax,
                           const neo__axis *ay, int color) {
    int reach = neo__curve_is_noisy(c) ? neo__mean_reach(c) : 0;
    for (int i = neo__curve_points(c) - 1; i >= 0; i--) {
        double x, y;
        if (reach) neo__curve_mean(c, i, reach, &x, &y);
        else neo__curve_point(c, i, &x, &y);
        if (!neo__drawable(x, y)) continue;
        neo__out_format(out, "<i class=\"dot c%d\" style=\"left:%.2f%%;top:%.2f%%\"></i>",
                        color % NEO__CURVE_COLORS, neo__axis_place(ax, x, 100.0),
                        100.0 - neo__axis_place(ay, y, 100.0));
        return;
    }
}
static void neo__chart_curves(neo__out *out, const neo__chart *chart, const neo__axis *ax,
                              const neo__axis *ay) {
    const neo__curve *only = chart->curves->next ? NULL : chart->curves;
    int color = 0;
    if (only && !neo__curve_is_noisy(only)) neo__curve_path(out, only, ax, ay, "area", 0, 1, 0);
    for (const neo__curve *c = chart->curves; c; c = c->next, color++)
        if (neo__curve_is_noisy(c)) neo__curve_path(out, c, ax, ay, "line faint", color, 0, 0);
    color = 0;
    for (const neo__curve *c = chart->curves; c; c = c->next, color++)
        neo__curve_path(out, c, ax, ay, "line", color, 0,
                        neo__curve_is_noisy(c) ? neo__mean_reach(c) : 0);
}
static void neo__chart_frame(neo__out *out, const neo__chart *chart, const neo__axis *ax,
                             const neo__axis *ay) {
    char label[64];
    int widest = 1;
    for (int i = 0; i < ay->ticks; i++) {
        neo__axis_label(ay, i, label);
        widest = NEO__MAX(widest, (int)strlen(label));
    }
    neo__out_format(out, "<div class=\"plot\" style=\"--n:%d\"><div class=\"frame\">\n", widest);
    neo__html_element(
        out,
        "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
        chart->name, "\"><path class=\"grid\" d=\"");
    for (int i = 0; i < ay->ticks; i++)
        neo__out_format(out, "M0 %.1fH1000",
                        1000.0 - neo__axis_place(ay, neo__axis_tick(ay, i), 1000.0));
    neo__out_text(out, "\" /><path class=\"base\" d=\"M0 1000H1000\" />\n");
    neo__chart_curves(out, chart, ax, ay);
    neo__out_text(out, "</svg>\n");
    int color = 0;
    for (const neo__curve *c = chart->curves; c; c = c->next)
        neo__curve_dot(out, c, ax, ay, color++);
    for (int i = 0; i < ay->ticks; i++) {
        neo__axis_label(ay, i, label);
        neo__out_format(out, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>",
                        100.0 - neo__axis_place(ay, neo__axis_tick(ay, i), 100.0), label);
    }
    for (int i = 0; i < ax->ticks; i++) {
        neo__axis_label(ax, i, label);
        neo__out_format(out, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>",
                        neo__axis_place(ax, neo__axis_tick(ax, i), 100.0), label);
    }
    neo__out_text(out, "</div></div>\n");
}
static void neo__chart_write(neo__out *out, const neo__chart *chart) {
    neo__axis ax, ay;
    if (!chart->curves) return;
    neo__html_element(out, "<figure><figcaption><h2>", chart->name, "</h2>");
    neo__chart_legend(out, chart);
    neo__out_text(out, "</figcaption>\n");
    if (neo__chart_axes(chart, &ax, &ay)) {
        int noisy = 0;
        for (const neo__curve *c = chart->curves; c; c = c->next) noisy |= neo__curve_is_noisy(c);
        neo__html_element(out, "<p class=\"yt\">", chart->y_title ? chart->y_title : "", "</p>\n");
        neo__chart_frame(out, chart, &ax, &ay);
        neo__html_element(out, "<p class=\"xt\"><span>",
                          noisy ? "faint: all points; line: running mean" : "", "</span>");
        neo__html_element(out, "<span>", chart->x_title ? chart->x_title : "", "</span></p>\n");
    } else {
        neo__out_text(out, "<p class=\"yt\">no finite points</p>\n");
    }
    neo__out_text(out, "</figure>\n");
}

/* ---- writing: tables ---- */
/* Whether a cell reads as a number, perhaps with a sign, separators, a unit letter or a percent
   sign. */
static int neo__cell_is_number(const char *s) {
    int digits = 0;
    if (*s == '-' || *s == '+') s++;
    for (; (*s >= '0' && *s <= '9') || *s == '.' || *s == ','; s++)
        digits += *s >= '0' && *s <= '9';
    if (digits && (*s == 'e' || *s == 'E') && (s[1] == '-' || s[1] == '+')) {
        for (s += 2; *s >= '0' && *s <= '9'; s++) digits++;
    }
    if (*s == ' ') s++;
    size_t unit = strspn(s, "%/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return digits && unit <= 4 && s[unit] == 0;
}
/* Whether all cells of a column below the header are numbers. */
static int neo__column_is_number(const neo__table *t, int column) {
    int numbers = 0;
    for (const neo__row *row = t->rows->next; row; row = row->next) {
        if (column >= row->count || !row->cells[column][0]) continue;
        if (!neo__cell_is_number(row->cells[column])) return 0;
        numbers++;
    }
    return numbers > 0;
}
static void neo__table_write(neo__out *out, const neo__table *t) {
    if (!t->rows) return;
    int slim = t->rows->count <= 3;
    neo__html_element(
        out, slim ? "<section class=\"table slim\"><h2>" : "<section class=\"table\"><h2>",
        t->name, "</h2><div><table>\n");
    for (const neo__row *row = t->rows; row; row = row->next) {
        int head = row == t->rows;
        neo__out_text(out, head ? "<thead><tr>" : "<tr>");
        for (int i = 0; i < row->count; i++) {
            const char *css = neo__column_is_number(t, i) ? " class=\"n\"" : "";
            neo__out_format(out, "<%s%s>", head ? "th" : "td", css);
            neo__html_text(out, row->cells[i]);
            neo__out_format(out, "</%s>", head ? "th" : "td");
        }
        neo__out_text(out, head ? "</tr></thead><tbody>\n" : "</tr>\n");
    }
    neo__out_text(out, "</tbody></table></div></section>\n");
}

/* ---- writing: the page ---- */
static const char *const neo__report_css[] = {
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#15181e;--soft:#626b7a;",
    "--rule:#e3e6eb;--accent:#2f5fe0;--c0:#2f6bed;--c1:#e8702a;--c2:#119c7c;--c3:#9557e6;",
    "--c4:#d63a74;--c5:#9a7b0e;--c6:#0d93c4;--c7:#6b7688}\n",
    "@media(prefers-color-scheme:dark){:root{--bg:#0d1014;--card:#161a21;--ink:#e9ecf1;",
    "--soft:#949eae;--rule:#272d37;--accent:#86a8ff;--c0:#6f9dff;--c1:#ff9a56;--c2:#43cfa9;",
    "--c3:#bb92ff;--c4:#ff7fa8;--c5:#dcbc4a;--c6:#56c3ee;--c7:#9aa5b5}}\n",
    "*{box-sizing:border-box;margin:0;padding:0}\n",
    "body{background:var(--bg);color:var(--ink);padding:clamp(20px,4vw,48px) clamp(14px,4vw,",
    "40px);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,",
    "sans-serif;-webkit-text-size-adjust:100%;overflow-wrap:anywhere}\n",
    "main{max-width:1120px;margin:0 auto;display:grid;gap:clamp(16px,2.4vw,28px)}\n",
    "header p{color:var(--soft);max-width:72ch}header .mark{color:var(--accent);",
    "font-weight:650;font-size:.8rem;letter-spacing:.09em;text-transform:uppercase}\n",
    "h1{font-size:clamp(1.55rem,4.6vw,2.3rem);line-height:1.15;letter-spacing:-.02em;",
    "font-weight:700;margin:.15em 0 .3em}h2{font-size:1rem;font-weight:650;",
    "letter-spacing:-.005em}\n",
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(150px,44%),1fr));",
    "gap:12px}\n",
    ".facts div,figure,.table{background:var(--card);border:1px solid var(--rule);",
    "border-radius:12px}\n",
    ".facts div{padding:13px 16px 11px}.facts dt{color:var(--soft);font-size:.82rem}",
    ".facts dd{font-size:clamp(1.25rem,3.6vw,1.6rem);font-weight:650;letter-spacing:-.02em;",
    "line-height:1.3;font-variant-numeric:tabular-nums}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));",
    "gap:16px}\n",
    ".charts figure:last-child:nth-child(odd){grid-column:1/-1}\n",
    "figure{padding:16px 18px 14px;min-width:0}figcaption{display:flex;flex-wrap:wrap;",
    "gap:4px 20px;justify-content:space-between;align-items:baseline}\n",
    "ul{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;color:var(--soft);",
    "font-size:.85rem}li b{color:var(--ink);font-weight:600;",
    "font-variant-numeric:tabular-nums}li i{display:inline-block;width:18px;",
    "border-top:3px solid;border-radius:2px;margin-right:7px;vertical-align:middle;",
    "position:relative;top:-1px}li i.dash{border-top-style:dashed}\n",
    ".yt,.xt{color:var(--soft);font-size:.76rem}.yt{margin-top:8px;min-height:1.5em}.xt{",
    "display:flex;justify-content:space-between;gap:16px;padding-right:6px;min-height:1.5em}\n",
    ".plot{font-size:.76rem;padding:10px 10px 24px calc(var(--n)*.6em + 10px)}\n",
    ".frame{position:relative;height:clamp(190px,26vw,260px)}\n",
    "svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}\n",
    "path{fill:none;vector-effect:non-scaling-stroke}.grid{stroke:var(--rule);stroke-width:1}\n",
    ".base{stroke:var(--soft);stroke-width:1;opacity:.55}.line{stroke:currentColor;",
    "stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.line.dash{",
    "stroke-dasharray:6 5}.line.faint{opacity:.28;stroke-width:1.2}.area{fill:currentColor;",
    "opacity:.09}\n",
    ".dot{position:absolute;width:8px;height:8px;margin:-4px;border-radius:50%;",
    "background:currentColor;box-shadow:0 0 0 2px var(--card)}\n",
    ".frame span{position:absolute;color:var(--soft);white-space:nowrap;line-height:1;",
    "font-variant-numeric:tabular-nums}.y{right:100%;margin-right:8px;",
    "transform:translateY(-50%)}.x{top:100%;margin-top:9px;transform:translateX(-50%)}\n",
    ".tables{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),",
    "1fr));gap:16px}.table{grid-column:1/-1}.slim{grid-column:auto}\n",
    ".table{padding:16px 0 6px;min-width:0}.table h2{padding:0 18px 8px}.table div{",
    "overflow-x:auto}\n",
    "table{border-collapse:collapse;width:100%;font-size:.88rem;overflow-wrap:normal}\n",
    "th,td{text-align:left;padding:7px 18px;border-top:1px solid var(--rule);",
    "white-space:nowrap}th{color:var(--soft);font-weight:550;border-top:0;font-size:.8rem}.n{",
    "text-align:right;font-variant-numeric:tabular-nums}\n",
    "footer{color:var(--soft);font-size:.78rem}\n",
    ".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{",
    "color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}\n",
    ".slim:only-child{grid-column:1/-1}@media(max-width:600px){th,td{padding:7px 12px}",
    "td:not(.n){white-space:normal}}\n",
    "@media print{body{background:#fff}figure,.table,.facts div{break-inside:avoid}}\n",
};

static void neo__report_head(neo__out *out, const neo_report *r) {
    neo__out_text(out,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n");
    neo__html_element(out, "<title>", r->title, "</title>\n<style>\n");
    for (size_t i = 0; i < sizeof neo__report_css / sizeof neo__report_css[0]; i++)
        neo__out_text(out, neo__report_css[i]);
    neo__html_element(
        out, "</style>\n</head>\n<body>\n<main>\n<header><p class=\"mark\">neo report</p><h1>",
        r->title, "</h1>\n");
    for (const neo__fact *f = r->notes; f; f = f->next)
        neo__html_element(out, "<p>", f->name, "</p>\n");
    neo__out_text(out, "</header>\n");
}
static void neo__report_body(neo__out *out, const neo_report *r) {
    neo__report_head(out, r);
    if (r->facts) neo__out_text(out, "<dl class=\"facts\">\n");
    for (const neo__fact *f = r->facts; f; f = f->next) {
        neo__html_element(out, "<div><dt>", f->name, "</dt>");
        neo__html_element(out, "<dd>", f->value, "</dd></div>\n");
    }
    if (r->facts) neo__out_text(out, "</dl>\n");
    if (r->charts) neo__out_text(out, "<div class=\"charts\">\n");
    for (const neo__chart *c = r->charts; c; c = c->next) neo__chart_write(out, c);
    if (r->charts) neo__out_text(out, "</div>\n");
    if (r->tables) neo__out_text(out, "<div class=\"tables\">\n");
    for (const neo__table *t = r->tables; t; t = t->next) neo__table_write(out, t);
    if (r->tables) neo__out_text(out, "</div>\n");
    neo__out_format(
        out,
        "<footer>neo %s. This page is complete in itself.</footer>\n</main>\n</body>\n</html>\n",
        neo_version());
}
/* To a file beside it that is renamed over the old report when complete; devices and links are
   written directly. */
NEO_API neo_status neo_report_write(const neo_report *r, const char *path) {
    NEO__CHECK(r && path, NEO_ERR_ARG, "neo_report_write: report or path is NULL");
    neo__path_kind kind = neo__path_look(path);
    int direct = kind == NEO__PATH_OTHER || kind == NEO__PATH_DIR;
    char beside[NEO__PATH_BYTES];
    int length = snprintf(beside, sizeof beside, direct ? "%s" : "%s.tmp", path);
    NEO__CHECK(length > 0 && length < (int)sizeof beside, NEO_ERR_ARG,
               "neo_report_write: the path is too long");
    neo__file file;
    neo__out out;
    NEO__TRY(neo__file_open(&file, path[0] ? beside : path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo__report_body(&out, r);
    neo_status status = neo__out_flush(&out), closed = neo__file_close(&file);
    if (status == NEO_OK) status = closed;
    if (status == NEO_OK && !direct) status = neo__path_rename(beside, path);
    if (status != NEO_OK && !direct) {
        char why[NEO__ERROR_BYTES];
        snprintf(why, sizeof why, "%s", neo_last_error());
        (void)neo__file_remove(beside);
        neo_fail(status, "%s", why);
    }
    return status;
}
NEO__COLD_END
#ifdef __cplusplus
}
#endif

#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif /* NEO_IMPLEMENTATION */

#else /* NEO__PASS */
/* ================================================================================================
   >>kernels

   Read once per instruction set by >>isa. Kernels are written with the operations below, each one IEEE
   operation per lane, so every width gives the same bits. Names end in the instruction set: NEO__FN(x)
   is neo__x_avx2 in the AVX2 pass.

     NEO__W            lanes of a vector          NEO__VF, NEO__VI, NEO__VM   vectors of f32, i32; a mask
     NEO__LOAD(p) NEO__STORE(p, v)                unaligned
     NEO__LOADN(p, n) NEO__STOREN(p, v, n)        the first n < NEO__W lanes; other lanes are 0
     NEO__SET(x) NEO__SETI(i)                     all lanes
     NEO__ADD SUB MUL DIV SQRT FMA(a,b,c): a b + c    FNMA(a,b,c): c - a b
     NEO__MAX_(a, b): a > b ? a : b, MIN_(a, b): a < b ? a : b   (b when unordered or equal)
     NEO__LT LE GT EQ (a, b): mask    NEO__SELECT(m, a, b): m ? a : b
     NEO__AND_M(m, k) NEO__ANY(m)
     NEO__ADDI SUBI MULI ANDI ORI XORI SHLI(v, n) SHRI(v, n) (logical) SRAI(v, n)   i32 lanes, n constant
     NEO__GTI(a, b) EQI(a, b): mask   NEO__SELECTI(m, a, b)
     NEO__TO_I(v): to i32, nearest even   NEO__TO_F(vi)   NEO__AS_I(v) NEO__AS_F(vi): the same bits
     NEO__LOADI(p) NEO__STOREI(p, v)              i32
     NEO__TREE16(p): the sum of 16 floats at p by the fixed tree (i + 8, + 4, + 2, + 1)
   ================================================================================================ */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__FN(name) neo__##name##_scalar
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__FN(name) neo__##name##_avx2
#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__FN(name) neo__##name##_avx512
#else
#define NEO__FN(name) neo__##name##_neon
#endif

#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__W 1
#define NEO__VF float
#define NEO__VI int32_t
#define NEO__VM int
#define NEO__LOAD(p) (*(const float *)(p))
#define NEO__STORE(p, v) (*(float *)(p) = (v))
#define NEO__LOADN(p, n) ((void)(p), (void)(n), 0.0f)
#define NEO__STOREN(p, v, n) ((void)(p), (void)(v), (void)(n))
#define NEO__SET(x) ((float)(x))
#define NEO__SETI(x) ((int32_t)(x))
#define NEO__ADD(a, b) ((a) + (b))
#define NEO__SUB(a, b) ((a) - (b))
#define NEO__MUL(a, b) ((a) * (b))
#define NEO__DIV(a, b) ((a) / (b))
#define NEO__SQRT(a) sqrtf(a)
#define NEO__FMA(a, b, c) neo__fma(a, b, c)
#define NEO__FNMA(a, b, c) neo__fma(-(a), b, c)
#define NEO__MAX_(a, b) ((a) > (b) ? (a) : (b))
#define NEO__MIN_(a, b) ((a) < (b) ? (a) : (b))
#define NEO__LT(a, b) ((a) < (b))
#define NEO__LE(a, b) ((a) <= (b))
#define NEO__GT(a, b) ((a) > (b))
#define NEO__EQ(a, b) ((a) == (b))
#define NEO__SELECT(m, a, b) ((m) ? (a) : (b))
#define NEO__AND_M(m, k) ((m) & (k))
#define NEO__ANY(m) (m)
#define NEO__ADDI(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define NEO__SUBI(a, b) ((int32_t)((uint32_t)(a) - (uint32_t)(b)))
#define NEO__MULI(a, b) ((int32_t)((uint32_t)(a) * (uint32_t)(b)))
#define NEO__ANDI(a, b) ((a) & (b))
#define NEO__ORI(a, b) ((a) | (b))
#define NEO__XORI(a, b) ((a) ^ (b))
#define NEO__SHLI(a, n) ((int32_t)((uint32_t)(a) << (n)))
#define NEO__SHRI(a, n) ((int32_t)((uint32_t)(a) >> (n)))
#define NEO__SRAI(a, n) ((a) >> (n))
#define NEO__GTI(a, b) ((a) > (b))
#define NEO__EQI(a, b) ((a) == (b))
#define NEO__SELECTI(m, a, b) ((m) ? (a) : (b))
#define NEO__TO_I(v) neo__round_to_i32(v)
#define NEO__TO_F(v) ((float)(v))
#define NEO__AS_I(v) ((int32_t)neo__bits_f32(v))
#define NEO__AS_F(v) neo__f32_bits((uint32_t)(v))
#define NEO__LOADI(p) (*(const int32_t *)(p))
#define NEO__STOREI(p, v) (*(int32_t *)(p) = (v))
/* To nearest even for |x| < 2^22, by the sum's own rounding. */
NEO__INLINE int32_t neo__round_to_i32(float x) {
    float shifted = x + 12582912.0f; /* 1.5 * 2^23 */
    return (int32_t)neo__bits_f32(shifted) - 0x4B400000;
}
#define NEO__TREE16(p) NEO__FN(tree16)(p)
NEO__INLINE float NEO__FN(tree16)(const float *p) {
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = p[i] + p[i + 8];
    for (int i = 0; i < 4; i++) a[i] = a[i] + a[i + 4];
    return (a[0] + a[2]) + (a[1] + a[3]);
}

#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__W 16
#define NEO__VF __m512
#define NEO__VI __m512i
#define NEO__VM __mmask16
#define NEO__LANES(n) ((__mmask16)((1u << (n)) - 1u))
#define NEO__LOAD(p) _mm512_loadu_ps(p)
#define NEO__STORE(p, v) _mm512_storeu_ps(p, v)
#define NEO__LOADN(p, n) _mm512_maskz_loadu_ps(NEO__LANES(n), p)
#define NEO__STOREN(p, v, n) _mm512_mask_storeu_ps(p, NEO__LANES(n), v)
#define NEO__SET(x) _mm512_set1_ps(x)
#define NEO__SETI(x) _mm512_set1_epi32(x)
#define NEO__ADD(a, b) _mm512_add_ps(a, b)
#define NEO__SUB(a, b) _mm512_sub_ps(a, b)
#define NEO__MUL(a, b) _mm512_mul_ps(a, b)
#define NEO__DIV(a, b) _mm512_div_ps(a, b)
#define NEO__SQRT(a) _mm512_sqrt_ps(a)
#define NEO__FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define NEO__FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define NEO__MAX_(a, b) _mm512_max_ps(a, b)
#define NEO__MIN_(a, b) _mm512_min_ps(a, b)
#define NEO__LT(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)
#define NEO__LE(a, b) _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)
#define NEO__GT(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define NEO__EQ(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#define NEO__SELECT(m, a, b) _mm512_mask_blend_ps(m, b, a)
#define NEO__AND_M(m, k) ((__mmask16)((m) & (k)))
#define NEO__ANY(m) ((m) != 0)
#define NEO__ADDI(a, b) _mm512_add_epi32(a, b)
#define NEO__SUBI(a, b) _mm512_sub_epi32(a, b)
#define NEO__MULI(a, b) _mm512_mullo_epi32(a, b)
#define NEO__ANDI(a, b) _mm512_and_si512(a, b)
#define NEO__ORI(a, b) _mm512_or_si512(a, b)
#define NEO__XORI(a, b) _mm512_xor_si512(a, b)
#define NEO__SHLI(a, n) _mm512_slli_epi32(a, n)
#define NEO__SHRI(a, n) _mm512_srli_epi32(a, n)
#define NEO__SRAI(a, n) _mm512_srai_epi32(a, n)
#define NEO__GTI(a, b) _mm512_cmpgt_epi32_mask(a, b)
#define NEO__EQI(a, b) _mm512_cmpeq_epi32_mask(a, b)
#define NEO__SELECTI(m, a, b) _mm512_mask_blend_epi32(m, b, a)
#define NEO__TO_I(v) _mm512_cvtps_epi32(v)
#define NEO__TO_F(v) _mm512_cvtepi32_ps(v)
#define NEO__AS_I(v) _mm512_castps_si512(v)
#define NEO__AS_F(v) _mm512_castsi512_ps(v)
#define NEO__LOADI(p) _mm512_loadu_si512((const void *)(p))
#define NEO__STOREI(p, v) _mm512_storeu_si512((void *)(p), v)
#define NEO__TREE16(p) NEO__FN(tree16v)(_mm512_loadu_ps(p))
NEO__INLINE float NEO__FN(tree16v)(__m512 v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__W 8
#define NEO__VF __m256
#define NEO__VI __m256i
#define NEO__VM __m256
#define NEO__LANES(n) NEO__FN(lanes)(n)
NEO__INLINE __m256i NEO__FN(lanes)(int64_t n) {
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(const void *)(mask + 8 - n));
}
#define NEO__LOAD(p) _mm256_loadu_ps(p)
#define NEO__STORE(p, v) _mm256_storeu_ps(p, v)
#define NEO__LOADN(p, n) _mm256_maskload_ps(p, NEO__LANES(n))
#define NEO__STOREN(p, v, n) _mm256_maskstore_ps(p, NEO__LANES(n), v)
#define NEO__SET(x) _mm256_set1_ps(x)
#define NEO__SETI(x) _mm256_set1_epi32(x)
#define NEO__ADD(a, b) _mm256_add_ps(a, b)
#define NEO__SUB(a, b) _mm256_sub_ps(a, b)
#define NEO__MUL(a, b) _mm256_mul_ps(a, b)
#define NEO__DIV(a, b) _mm256_div_ps(a, b)
#define NEO__SQRT(a) _mm256_sqrt_ps(a)
#define NEO__FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define NEO__FNMA(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define NEO__MAX_(a, b) _mm256_max_ps(a, b)
#define NEO__MIN_(a, b) _mm256_min_ps(a, b)
#define NEO__LT(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
#define NEO__LE(a, b) _mm256_cmp_ps(a, b, _CMP_LE_OQ)
#define NEO__GT(a, b) _mm256_cmp_ps(a, b, _CMP_GT_OQ)
#define NEO__EQ(a, b) _mm256_cmp_ps(a, b, _CMP_EQ_OQ)
#define NEO__SELECT(m, a, b) _mm256_blendv_ps(b, a, m)
#define NEO__AND_M(m, k) _mm256_and_ps(m, k)
#define NEO__ANY(m) (_mm256_movemask_ps(m) != 0)
#define NEO__ADDI(a, b) _mm256_add_epi32(a, b)
#define NEO__SUBI(a, b) _mm256_sub_epi32(a, b)
#define NEO__MULI(a, b) _mm256_mullo_epi32(a, b)
#define NEO__ANDI(a, b) _mm256_and_si256(a, b)
#define NEO__ORI(a, b) _mm256_or_si256(a, b)
#define NEO__XORI(a, b) _mm256_xor_si256(a, b)
#define NEO__SHLI(a, n) _mm256_slli_epi32(a, n)
#define NEO__SHRI(a, n) _mm256_srli_epi32(a, n)
#define NEO__SRAI(a, n) _mm256_srai_epi32(a, n)
#define NEO__GTI(a, b) _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b))
#define NEO__EQI(a, b) _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))
#define NEO__SELECTI(m, a, b) _mm256_blendv_epi8(b, a, _mm256_castps_si256(m))
#define NEO__TO_I(v) _mm256_cvtps_epi32(v)
#define NEO__TO_F(v) _mm256_cvtepi32_ps(v)
#define NEO__AS_I(v) _mm256_castps_si256(v)
#define NEO__AS_F(v) _mm256_castsi256_ps(v)
#define NEO__LOADI(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define NEO__STOREI(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), v)
#define NEO__TREE16(p) NEO__FN(tree16)(p)
NEO__INLINE float NEO__FN(tree16)(const float *p) {
    __m256 a = _mm256_add_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#else
#define NEO__W 4
#define NEO__VF float32x4_t
#define NEO__VI int32x4_t
#define NEO__VM uint32x4_t
#define NEO__LOAD(p) vld1q_f32(p)
#define NEO__STORE(p, v) vst1q_f32(p, v)
#define NEO__LOADN(p, n) NEO__FN(loadn)(p, n)
#define NEO__STOREN(p, v, n) NEO__FN(storen)(p, v, n)
NEO__INLINE float32x4_t NEO__FN(loadn)(const float *p, int64_t n) {
    float lane[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++) lane[i] = p[i];
    return vld1q_f32(lane);
}
NEO__INLINE void NEO__FN(storen)(float *p, float32x4_t v, int64_t n) {
    float lane[4];
    vst1q_f32(lane, v);
    for (int64_t i = 0; i < n; i++) p[i] = lane[i];
}
#define NEO__SET(x) vdupq_n_f32(x)
#define NEO__SETI(x) vdupq_n_s32(x)
#define NEO__ADD(a, b) vaddq_f32(a, b)
#define NEO__SUB(a, b) vsubq_f32(a, b)
#define NEO__MUL(a, b) vmulq_f32(a, b)
#define NEO__DIV(a, b) vdivq_f32(a, b)
#define NEO__SQRT(a) vsqrtq_f32(a)
#define NEO__FMA(a, b, c) vfmaq_f32(c, a, b)
#define NEO__FNMA(a, b, c) vfmsq_f32(c, a, b)
#define NEO__MAX_(a, b) NEO__FN(max)(a, b)
#define NEO__MIN_(a, b) NEO__FN(min)(a, b)
NEO__INLINE float32x4_t NEO__FN(max)(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
NEO__INLINE float32x4_t NEO__FN(min)(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
#define NEO__LT(a, b) vcltq_f32(a, b)
#define NEO__LE(a, b) vcleq_f32(a, b)
#define NEO__GT(a, b) vcgtq_f32(a, b)
#define NEO__EQ(a, b) vceqq_f32(a, b)
#define NEO__SELECT(m, a, b) vbslq_f32(m, a, b)
#define NEO__AND_M(m, k) vandq_u32(m, k)
#define NEO__ANY(m) (vmaxvq_u32(m) != 0)
#define NEO__ADDI(a, b) vaddq_s32(a, b)
#define NEO__SUBI(a, b) vsubq_s32(a, b)
#define NEO__MULI(a, b) vmulq_s32(a, b)
#define NEO__ANDI(a, b) vandq_s32(a, b)
#define NEO__ORI(a, b) vorrq_s32(a, b)
#define NEO__XORI(a, b) veorq_s32(a, b)
#define NEO__SHLI(a, n) vshlq_n_s32(a, n)
#define NEO__SHRI(a, n) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), n))
#define NEO__SRAI(a, n) vshrq_n_s32(a, n)
#define NEO__GTI(a, b) vcgtq_s32(a, b)
#define NEO__EQI(a, b) vceqq_s32(a, b)
#define NEO__SELECTI(m, a, b) vbslq_s32(m, a, b)
#define NEO__TO_I(v) vcvtnq_s32_f32(v)
#define NEO__TO_F(v) vcvtq_f32_s32(v)
#define NEO__AS_I(v) vreinterpretq_s32_f32(v)
#define NEO__AS_F(v) vreinterpretq_f32_s32(v)
#define NEO__LOADI(p) vld1q_s32(p)
#define NEO__STOREI(p, v) vst1q_s32(p, v)
#define NEO__TREE16(p) NEO__FN(tree16)(p)
NEO__INLINE float NEO__FN(tree16)(const float *p) {
    float32x4_t a = vaddq_f32(vld1q_f32(p), vld1q_f32(p + 8));
    float32x4_t b = vaddq_f32(vld1q_f32(p + 4), vld1q_f32(p + 12));
    float32x4_t c = vaddq_f32(a, b);
    float32x2_t d = vadd_f32(vget_low_f32(c), vget_high_f32(c));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
#endif


/* ---- >>kernels-math ----
   exp, log, log1p, tanh, sigmoid, the normal distribution (for GELU), sin and cos on vectors of
   f32. No table, no libm: argument reduction and a minimax polynomial, every step one IEEE
   operation, so that all widths agree. The scalar pass's functions serve the rest of the file:
   neo__vexp_scalar(x). Largest errors of a sweep of 43 million floats (tests/unit_math.c): exp
   0.99 ulp, log 0.83, log1p 1.41, tanh 1.3, sigmoid 2.3, normal distribution function 5.4
   (x > -13), sin and cos 1.6 (|x| <= 2^14). Infinities, NaNs, signed zeros and denormals give what
   C's functions give (but sin(-0) is +0). */

/* c[0] + x (c[1] + ... + x c[count - 1]) by Horner's rule with fma; unrolled by the compiler. */
NEO__INLINE NEO__VF NEO__FN(vpoly)(NEO__VF x, const float *c, int count) {
    NEO__VF p = NEO__SET(c[count - 1]);
    for (int i = count - 2; i >= 0; i--) p = NEO__FMA(p, x, NEO__SET(c[i]));
    return p;
}
NEO__INLINE NEO__VF NEO__FN(vabs)(NEO__VF x) {
    return NEO__AS_F(NEO__ANDI(NEO__AS_I(x), NEO__SETI(0x7FFFFFFF)));
}
/* |x| with the sign of s; x >= 0. */
NEO__INLINE NEO__VF NEO__FN(vsigned)(NEO__VF x, NEO__VF s) {
    return NEO__AS_F(NEO__ORI(NEO__AS_I(x), NEO__ANDI(NEO__AS_I(s), NEO__SETI(INT32_MIN))));
}
/* 2^n for n in [-126, 127]. */
NEO__INLINE NEO__VF NEO__FN(vpow2i)(NEO__VI n) {
    return NEO__AS_F(NEO__SHLI(NEO__ADDI(n, NEO__SETI(127)), 23));
}

/* e^x = 2^n e^r, |r| <= ln(2)/2, e^r = 1 + r + r^2 q(r). The factor 2^n is applied in two halves,
   the first exact, so results that are denormal round once. */
NEO__INLINE NEO__VF NEO__FN(vexp)(NEO__VF x) {
    static const float q[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558bp-5f, 0x1.12398ep-7f,
                               0x1.6a4d6p-10f};
    x = NEO__MIN_(NEO__SET(89.0f), x); /* e^89 overflows, e^-104 rounds to 0; a NaN stays */
    x = NEO__MAX_(NEO__SET(-104.0f), x);
    NEO__VI n = NEO__TO_I(NEO__MUL(x, NEO__SET(0x1.715476p+0f)));
    NEO__VF k = NEO__TO_F(n);
    NEO__VF r = NEO__FNMA(k, NEO__SET(0x1.62e43p-1f), x);
    r = NEO__FNMA(k, NEO__SET(-0x1.05c61p-29f), r);
    NEO__VF p = NEO__FMA(NEO__MUL(r, r), NEO__FN(vpoly)(r, q, 5), r);
    p = NEO__ADD(NEO__SET(1.0f), p);
    NEO__VI half = NEO__SRAI(n, 1);
    p = NEO__MUL(p, NEO__FN(vpow2i)(half));
    return NEO__MUL(p, NEO__FN(vpow2i)(NEO__SUBI(n, half)));
}

/* k ln 2 + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]: f - f^2/2 + f^3 p(f). */
NEO__INLINE NEO__VF NEO__FN(vlog_reduced)(NEO__VF f, NEO__VF k) {
    static const float p[10] = {-0.5f,           0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a476p-3f,
                                -0x1.555c46p-3f, 0x1.233ba8p-3f, -0x1.fc2886p-4f, 0x1.e6bf3ap-4f,
                                -0x1.de02bcp-4f, 0x1.14760cp-4f};
    NEO__VF t = NEO__MUL(k, NEO__SET(-0x1.05c61p-29f));
    t = NEO__FMA(NEO__MUL(f, f), NEO__FN(vpoly)(f, p, 10), t);
    return NEO__FMA(k, NEO__SET(0x1.62e43p-1f), NEO__ADD(f, t));
}
/* The exponent k of u = 2^k m with m in [sqrt(1/2), sqrt(2)), u positive and normal. */
NEO__INLINE NEO__VI NEO__FN(vlog_exponent)(NEO__VF u) {
    return NEO__SRAI(NEO__SUBI(NEO__AS_I(u), NEO__SETI(0x3F3504F3)), 23);
}
/* r where the logarithm's argument 1 + x or x is positive and finite; else what IEEE asks. pole:
   where it is 0. */
NEO__INLINE NEO__VF NEO__FN(vlog_special)(NEO__VF x, NEO__VF pole, NEO__VF r) {
    r = NEO__SELECT(NEO__LT(x, NEO__AS_F(NEO__SETI(0x7F800000))), r,
                    NEO__ADD(x, x)); /* inf, NaN */
    r = NEO__SELECT(NEO__EQ(x, pole), NEO__AS_F(NEO__SETI((int32_t)0xFF800000u)), r);
    return NEO__SELECT(NEO__LT(x, pole), NEO__AS_F(NEO__SETI(0x7FC00000)), r);
}
NEO__INLINE NEO__VF NEO__FN(vlog)(NEO__VF x) {
    NEO__VM tiny = NEO__LT(x, NEO__SET(0x1p-126f));
    NEO__VF u = NEO__SELECT(tiny, NEO__MUL(x, NEO__SET(0x1p23f)), x);
    NEO__VI k = NEO__FN(vlog_exponent)(u);
    NEO__VF m = NEO__AS_F(NEO__SUBI(NEO__AS_I(u), NEO__SHLI(k, 23)));
    NEO__VF kf = NEO__SUB(NEO__TO_F(k), NEO__SELECT(tiny, NEO__SET(23.0f), NEO__SET(0.0f)));
    NEO__VF r = NEO__FN(vlog_reduced)(NEO__SUB(m, NEO__SET(1.0f)), kf);
    return NEO__FN(vlog_special)(x, NEO__SET(0.0f), r);
}
/* log(1 + x): the exponent k comes from the rounded 1 + x, the reduced argument 2^-k (1 + x) - 1
   from x itself by one fma, so nothing of a small x is lost. */
NEO__INLINE NEO__VF NEO__FN(vlog1p)(NEO__VF x) {
    NEO__VF one = NEO__SET(1.0f), u = NEO__ADD(one, x);
    NEO__VI k = NEO__FN(vlog_exponent)(u);
    NEO__VF m = NEO__AS_F(NEO__SUBI(NEO__AS_I(u), NEO__SHLI(k, 23)));
    NEO__VF s = NEO__FN(vpow2i)(NEO__SUBI(NEO__SETI(0), k));
    NEO__VF f = NEO__FMA(x, s, NEO__SUB(s, one));
    f = NEO__SELECT(NEO__GTI(k, NEO__SETI(24)), NEO__SUB(m, one), f); /* there 1 does not matter */
    NEO__VF r = NEO__FN(vlog_reduced)(f, NEO__TO_F(k));
    r = NEO__SELECT(NEO__EQ(x, NEO__SET(0.0f)), x, r); /* -0 */
    return NEO__FN(vlog_special)(x, NEO__SET(-1.0f), r);
}

/* 1/(1 + e^-x), from e^-|x| so that neither end loses digits. */
NEO__INLINE NEO__VF NEO__FN(vsigmoid)(NEO__VF x) {
    NEO__VF zero = NEO__SET(0.0f), one = NEO__SET(1.0f);
    NEO__VF e = NEO__FN(vexp)(NEO__SUB(zero, NEO__FN(vabs)(x)));
    return NEO__DIV(NEO__SELECT(NEO__LT(x, zero), e, one), NEO__ADD(one, e));
}
/* With x's sign: a + a^3 p(a^2) for a = |x| < 0.6, else 1 - 2/(e^2a + 1). */
NEO__INLINE NEO__VF NEO__FN(vtanh)(NEO__VF x) {
    static const float p[5] = {-0x1.55553ep-2f, 0x1.1109bep-3f, -0x1.b89abap-5f, 0x1.54c3c2p-6f,
                               -0x1.828776p-8f};
    NEO__VF one = NEO__SET(1.0f), a = NEO__FN(vabs)(x), u = NEO__MUL(x, x);
    NEO__VF low = NEO__FMA(NEO__MUL(a, u), NEO__FN(vpoly)(u, p, 5), a);
    NEO__VF e = NEO__FN(vexp)(NEO__ADD(a, a));
    NEO__VF high = NEO__SUB(one, NEO__DIV(NEO__SET(2.0f), NEO__ADD(e, one)));
    return NEO__FN(vsigned)(NEO__SELECT(NEO__LT(a, NEO__SET(0.6f)), low, high), x);
}
/* The standard normal distribution function, and its density in *density. With a = |x| the upper
   tail is e^(-a^2/2) h(s), s = (a - 3)/(a + 3); a^2 is carried in two parts, or the exponential
   would lose its digits. */
NEO__INLINE NEO__VF NEO__FN(vnormal)(NEO__VF x, NEO__VF *density) {
    static const float h[10] = {
        0x1.f1b89cp-4f, -0x1.a6b66cp-3f,  0x1.f8bad4p-4f,   -0x1.7a93eep-5f, 0x1.91d942p-8f,
        0x1.7c971p-9f,  -0x1.018346p-10f, -0x1.61deb4p-12f, 0x1.ddb3dcp-14f, 0x1.b2b944p-15f};
    NEO__VF three = NEO__SET(3.0f), half = NEO__SET(0.5f), zero = NEO__SET(0.0f);
    NEO__VF a = NEO__MIN_(NEO__SET(16.0f), NEO__FN(vabs)(x)); /* the tail beyond is 0 in f32 */
    NEO__VF square = NEO__MUL(a, a), rest = NEO__FMA(a, a, NEO__SUB(zero, square));
    NEO__VF e = NEO__FN(vexp)(NEO__MUL(NEO__SET(-0.5f), square));
    e = NEO__FNMA(NEO__MUL(half, rest), e, e);
    NEO__VF s = NEO__DIV(NEO__SUB(a, three), NEO__ADD(a, three));
    NEO__VF tail = NEO__MUL(e, NEO__FN(vpoly)(s, h, 10));
    *density = NEO__MUL(e, NEO__SET(0x1.988454p-2f)); /* 1/sqrt(2 pi) */
    return NEO__SELECT(NEO__LT(x, zero), tail, NEO__SUB(NEO__SET(1.0f), tail));
}

/* sin and cos: x - n pi/2 with pi/2 in three parts, n rounded; then the polynomial of the
   quadrant. */
NEO__INLINE void NEO__FN(vsincos)(NEO__VF x, NEO__VF *sine, NEO__VF *cosine) {
    static const float ps[3] = {-0x1.555546p-3f, 0x1.110774p-7f, -0x1.9951fap-13f};
    static const float pc[3] = {0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e816p-16f};
    NEO__VI n = NEO__TO_I(NEO__MUL(x, NEO__SET(0x1.45f306p-1f))); /* 2/pi */
    NEO__VF k = NEO__TO_F(n);
    NEO__VF r = NEO__FNMA(k, NEO__SET(0x1.921fb6p+0f), x);
    r = NEO__FNMA(k, NEO__SET(-0x1.777a5cp-25f), r);
    r = NEO__FNMA(k, NEO__SET(-0x1.ee59dap-50f), r);
    NEO__VF u = NEO__MUL(r, r);
    NEO__VF s = NEO__FMA(NEO__MUL(r, u), NEO__FN(vpoly)(u, ps, 3), r);
    NEO__VF c = NEO__FMA(u, NEO__SET(-0.5f), NEO__SET(1.0f));
    c = NEO__FMA(NEO__MUL(u, u), NEO__FN(vpoly)(u, pc, 3), c);
    NEO__VI one = NEO__SETI(1);
    NEO__VM even = NEO__EQI(NEO__ANDI(n, one), NEO__SETI(0));
    NEO__VI sign_s = NEO__SHLI(NEO__ANDI(n, NEO__SETI(2)), 30);
    NEO__VI sign_c = NEO__SHLI(NEO__ANDI(NEO__ADDI(n, one), NEO__SETI(2)), 30);
    *sine = NEO__AS_F(NEO__XORI(NEO__AS_I(NEO__SELECT(even, s, c)), sign_s));
    *cosine = NEO__AS_F(NEO__XORI(NEO__AS_I(NEO__SELECT(even, c, s)), sign_c));
}
NEO__INLINE NEO__VF NEO__FN(vsin)(NEO__VF x) {
    NEO__VF s, c;
    NEO__FN(vsincos)(x, &s, &c);
    return s;
}
NEO__INLINE NEO__VF NEO__FN(vcos)(NEO__VF x) {
    NEO__VF s, c;
    NEO__FN(vsincos)(x, &s, &c);
    return c;
}

/* ---- >>kernels-vec ----
   A kernel's body is a macro over the way to load and store: NEO__LOOP runs it on whole vectors,
   then once on the masked rest; scalars have no rest. NEO__LONG_LOOP is for bodies next to which
   masks cost nothing: with AVX-512 they are compiled once, always masked. */
#define NEO__LD(p) NEO__LOAD((p) + i)
#define NEO__ST(p, v) NEO__STORE((p) + i, v)
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__LOOP(BODY)                                            \
    do {                                                           \
        for (int64_t i = 0; i < n; i++) { BODY(NEO__LD, NEO__ST) } \
    } while (0)
#else
#define NEO__LDN(p) NEO__LOADN((p) + i, n - i)
#define NEO__STN(p, v) NEO__STOREN((p) + i, v, n - i)
#define NEO__LOOP(BODY)                                                 \
    do {                                                                \
        int64_t i = 0;                                                  \
        for (; i + NEO__W <= n; i += NEO__W) { BODY(NEO__LD, NEO__ST) } \
        if (i < n) { BODY(NEO__LDN, NEO__STN) }                         \
    } while (0)
#endif
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__LDM(p) _mm512_maskz_loadu_ps(lanes, (p) + i)
#define NEO__STM(p, v) _mm512_mask_storeu_ps((p) + i, lanes, v)
#define NEO__LONG_LOOP(BODY)                               \
    do {                                                   \
        NEO__VM lanes = 0xFFFF;                            \
        for (int64_t i = 0; i < n; i += NEO__W) {          \
            if (n - i < NEO__W) lanes = NEO__LANES(n - i); \
            BODY(NEO__LDM, NEO__STM)                       \
        }                                                  \
    } while (0)
#else
#define NEO__LONG_LOOP(BODY) NEO__LOOP(BODY)
#endif

static void NEO__FN(vec_add)(float *y, const float *x, int64_t n) {
#define NEO__BODY(L, S) S(y, NEO__ADD(L(y), L(x)));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}

/* ---- activations ---- */
NEO__INLINE NEO__VF NEO__FN(vgelu)(NEO__VF x) {
    NEO__VF density;
    NEO__VF cdf = NEO__FN(vnormal)(x, &density);
    return NEO__MUL(x, cdf);
}
NEO__INLINE NEO__VF NEO__FN(vgelu_slope)(NEO__VF x) {
    NEO__VF density;
    NEO__VF cdf = NEO__FN(vnormal)(x, &density);
    NEO__VF bounded =
        NEO__MAX_(NEO__SET(-16.0f), NEO__MIN_(NEO__SET(16.0f), x)); /* inf 0 is a NaN */
    return NEO__FMA(bounded, density, cdf);
}
NEO__INLINE NEO__VF NEO__FN(vhardswish)(NEO__VF x) {
    NEO__VF six = NEO__SET(6.0f);
    NEO__VF gate = NEO__MAX_(NEO__SET(0.0f), NEO__ADD(x, NEO__SET(3.0f)));
    return NEO__DIV(NEO__MUL(x, NEO__MIN_(six, gate)), six);
}
NEO__INLINE NEO__VF NEO__FN(vhardswish_slope)(NEO__VF x) {
    NEO__VF three = NEO__SET(3.0f);
    NEO__VF middle = NEO__ADD(NEO__DIV(x, three), NEO__SET(0.5f));
    NEO__VF slope = NEO__SELECT(NEO__LT(x, three), middle, NEO__SET(1.0f));
    return NEO__SELECT(NEO__LE(x, NEO__SET(-3.0f)), NEO__SET(0.0f), slope);
}

static void NEO__FN(vec_act_forward)(neo_activation act, const float *z, float *y, int64_t n) {
    switch (act) {
    case NEO_ACT_NONE:
        if (y != z) memmove(y, z, (size_t)n * sizeof *y);
        break;
    case NEO_ACT_RELU: {
        NEO__VF zero = NEO__SET(0.0f);
#define NEO__BODY(L, S) S(y, NEO__MAX_(zero, L(z)));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    }
    case NEO_ACT_SIGMOID:
#define NEO__BODY(L, S) S(y, NEO__FN(vsigmoid)(L(z)));
        NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_TANH:
#define NEO__BODY(L, S) S(y, NEO__FN(vtanh)(L(z)));
        NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_GELU:
#define NEO__BODY(L, S) S(y, NEO__FN(vgelu)(L(z)));
        NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_HARDSWISH:
#define NEO__BODY(L, S) S(y, NEO__FN(vhardswish)(L(z)));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    }
}
static void NEO__FN(vec_act_backward)(neo_activation act, const float *z, const float *y,
                                      const float *dy, float *dz, int64_t n) {
    NEO__VF zero = NEO__SET(0.0f), one = NEO__SET(1.0f);
    switch (act) {
    case NEO_ACT_NONE:
        if (dz != dy) memmove(dz, dy, (size_t)n * sizeof *dz);
        break;
    case NEO_ACT_RELU:
#define NEO__BODY(L, S) S(dz, NEO__SELECT(NEO__LE(L(y), zero), zero, L(dy)));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_SIGMOID:
#define NEO__BODY(L, S) \
    NEO__VF a = L(y);   \
    S(dz, NEO__MUL(NEO__MUL(L(dy), NEO__SUB(one, a)), a));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_TANH:
#define NEO__BODY(L, S) \
    NEO__VF a = L(y);   \
    S(dz, NEO__MUL(L(dy), NEO__FNMA(a, a, one)));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_GELU:
#define NEO__BODY(L, S) S(dz, NEO__MUL(L(dy), NEO__FN(vgelu_slope)(L(z))));
        NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    case NEO_ACT_HARDSWISH:
#define NEO__BODY(L, S) S(dz, NEO__MUL(L(dy), NEO__FN(vhardswish_slope)(L(z))));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        break;
    }
}

/* ---- sums of one block ---- */
/* The sum of groups x 16 floats at t, by the block's shape. */
NEO__INLINE float NEO__FN(lane_sum)(const float *t, int64_t groups) {
    float lane[16];
    for (int l = 0; l < 16; l += NEO__W) {
        NEO__VF sum = NEO__SET(0.0f);
        for (int64_t j = 0; j < groups; j++) sum = NEO__ADD(sum, NEO__LOAD(t + 16 * j + l));
        NEO__STORE(lane + l, sum);
    }
    return NEO__TREE16(lane);
}
/* Fills up a block of n floats to a multiple of 16 with zeros; returns the groups of 16. */
NEO__INLINE int64_t NEO__FN(pad16)(float *t, int64_t n) {
    int64_t groups = (n + 15) / 16;
    for (int64_t i = n; i < 16 * groups; i++) t[i] = 0.0f;
    return groups;
}
static float NEO__FN(vec_block_abs)(const float *x, int64_t n) {
    float t[NEO__BLOCK];
#define NEO__BODY(L, S) S(t, NEO__FN(vabs)(L(x)));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    return NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
}
static float NEO__FN(vec_block_square)(const float *x, int64_t n) {
    float t[NEO__BLOCK];
#define NEO__BODY(L, S) \
    NEO__VF a = L(x);   \
    S(t, NEO__MUL(a, a));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    return NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
}
/* As integers the bits of |x| compare like the numbers, and a NaN is above infinity. */
static float NEO__FN(vec_block_max)(const float *x, int64_t n) {
    float lane[NEO__W];
    NEO__VI most = NEO__SETI(0);
#define NEO__BODY(L, S)                         \
    NEO__VI a = NEO__AS_I(NEO__FN(vabs)(L(x))); \
    most = NEO__SELECTI(NEO__GTI(a, most), a, most);
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    NEO__STORE(lane, NEO__AS_F(most));
    float max = lane[0];
    for (int l = 1; l < NEO__W; l++)
        if (neo__bits_f32(lane[l]) > neo__bits_f32(max)) max = lane[l];
    return max;
}

/* ---- losses ---- */
static int64_t NEO__FN(vec_find_outside)(const float *x, float low, float high, int64_t n) {
    int64_t i = 0;
    NEO__VF vl = NEO__SET(low), vh = NEO__SET(high), zero = NEO__SET(0.0f), one = NEO__SET(1.0f);
    for (; i + NEO__W <= n; i += NEO__W) {
        NEO__VF a = NEO__LOAD(x + i);
        NEO__VF in = NEO__SELECT(NEO__AND_M(NEO__LE(vl, a), NEO__LE(a, vh)), one, zero);
        if (NEO__ANY(NEO__EQ(in, zero))) break;
    }
    for (; i < n; i++)
        if (!(x[i] >= low && x[i] <= high)) return i;
    return n;
}
/* max(x, 0) - x y + log(1 + e^-|x|); its slope sigmoid(x) - y as (1 - y) - sigmoid(-x) for x >= 0,
   so that a saturated right answer has a small gradient and not none. */
static void NEO__FN(vec_bce_logits)(const float *x, const float *y, const float *weight, float g,
                                    float *loss, float *dx, int64_t n) {
    NEO__VF zero = NEO__SET(0.0f), one = NEO__SET(1.0f), vg = NEO__SET(g);
#define NEO__BODY(L, S)                                                                           \
    NEO__VF a = L(x), label = L(y), w = weight ? L(weight) : one;                                 \
    NEO__VF e = NEO__FN(vexp)(NEO__SUB(zero, NEO__FN(vabs)(a)));                                  \
    NEO__VF linear = NEO__FNMA(a, label, NEO__MAX_(zero, a));                                     \
    S(loss, NEO__MUL(w, NEO__ADD(linear, NEO__FN(vlog1p)(e))));                                   \
    if (dx) {                                                                                     \
        NEO__VF q = NEO__DIV(e, NEO__ADD(one, e));                                                \
        NEO__VF d =                                                                               \
            NEO__SELECT(NEO__LT(a, zero), NEO__SUB(q, label), NEO__SUB(NEO__SUB(one, label), q)); \
        S(dx, NEO__MUL(NEO__MUL(d, w), vg));                                                      \
    }
    NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
}
/* Logarithms clamped at -100 and the slope's denominator at 1e-12, as torch does. */
static void NEO__FN(vec_bce)(const float *x, const float *y, const float *weight, float g,
                             float *loss, float *dx, int64_t n) {
    NEO__VF one = NEO__SET(1.0f), floor = NEO__SET(-100.0f), vg = NEO__SET(g),
            least = NEO__SET(1e-12f);
#define NEO__BODY(L, S)                                                                    \
    NEO__VF p = L(x), label = L(y), w = weight ? L(weight) : one;                          \
    NEO__VF yes = NEO__MAX_(floor, NEO__FN(vlog)(p));                                      \
    NEO__VF no = NEO__MAX_(floor, NEO__FN(vlog1p)(NEO__SUB(NEO__SET(0.0f), p)));           \
    NEO__VF value = NEO__SUB(NEO__MUL(NEO__SUB(label, one), no), NEO__MUL(label, yes));    \
    S(loss, NEO__MUL(w, value));                                                           \
    if (dx) {                                                                              \
        NEO__VF d =                                                                        \
            NEO__DIV(NEO__SUB(p, label), NEO__MAX_(least, NEO__MUL(NEO__SUB(one, p), p))); \
        S(dx, NEO__MUL(NEO__MUL(d, w), vg));                                               \
    }
    NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
}
static void NEO__FN(vec_mse)(const float *x, const float *y, const float *weight, float g,
                             float *loss, float *dx, int64_t n) {
    NEO__VF one = NEO__SET(1.0f), vg = NEO__SET(g);
#define NEO__BODY(L, S)                                             \
    NEO__VF w = weight ? L(weight) : one, d = NEO__SUB(L(x), L(y)); \
    S(loss, NEO__MUL(w, NEO__MUL(d, d)));                           \
    if (dx) S(dx, NEO__MUL(d, NEO__MUL(w, vg)));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static float NEO__FN(vec_mse_row)(const float *x, const float *y, float g, float *dx,
                                  int64_t count) {
    float sum = 0.0f, t[NEO__BLOCK];
    NEO__VF vg = NEO__SET(g);
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        const float *xb = x + at, *yb = y + at;
        float *db = dx ? dx + at : NULL;
#define NEO__BODY(L, S)                 \
    NEO__VF d = NEO__SUB(L(xb), L(yb)); \
    S(t, NEO__MUL(d, d));               \
    if (db) S(db, NEO__MUL(d, vg));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        sum += NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
    }
    return sum;
}
static float NEO__FN(vec_softmax_row)(const float *x, float *max, float *e, int64_t count) {
    float most = x[0], sum = 0.0f, t[NEO__BLOCK], lane[NEO__W];
    int64_t head = count - count % NEO__W;
    NEO__VF vm = NEO__SET(most);
    for (int64_t i = 0; i < head; i += NEO__W) vm = NEO__MAX_(vm, NEO__LOAD(x + i));
    NEO__STORE(lane, vm);
    for (int l = 0; l < NEO__W; l++) most = lane[l] > most ? lane[l] : most;
    for (int64_t i = head; i < count; i++) most = x[i] > most ? x[i] : most;
    vm = NEO__SET(most);
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
        const float *xb = x + at;
        float *eb = e ? e + at : NULL;
#define NEO__BODY(L, S)                             \
    NEO__VF p = NEO__FN(vexp)(NEO__SUB(L(xb), vm)); \
    S(t, p);                                        \
    if (eb) S(eb, p);
        NEO__LONG_LOOP(NEO__BODY);
#undef NEO__BODY
        sum += NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
    }
    *max = most;
    return sum;
}
static void NEO__FN(vec_softmax_grad)(float *e, float sum, float g, int64_t n) {
    NEO__VF vs = NEO__SET(sum), vg = NEO__SET(g);
#define NEO__BODY(L, S) S(e, NEO__MUL(NEO__DIV(L(e), vs), vg));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}

/* ---- norms along a row: two passes over it for the sums, one for the result ---- */
static void NEO__FN(vec_norm_forward)(const float *x, const float *w, const float *b, float eps,
                                      int centered, float *y, float *stats, int64_t count) {
    float sum = 0.0f, mean = 0.0f, t[NEO__BLOCK];
    int64_t n;
    for (int64_t at = 0; at < count && centered; at += NEO__BLOCK) {
        const float *xb = x + at;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
#define NEO__BODY(L, S) S(t, L(xb));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        sum += NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
    }
    mean = sum / (float)count;
    NEO__VF vm = NEO__SET(mean);
    sum = 0.0f;
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        const float *xb = x + at;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
#define NEO__BODY(L, S)                 \
    NEO__VF d = NEO__SUB(L(xb), vm);    \
    S(t, NEO__MUL(d, d));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        sum += NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
    }
    float scale = 1.0f / sqrtf(sum / (float)count + eps);
    NEO__VF vs = NEO__SET(scale), one = NEO__SET(1.0f), zero = NEO__SET(0.0f);
    n = count;
#define NEO__BODY(L, S)                                          \
    NEO__VF v = NEO__MUL(NEO__SUB(L(x), vm), vs);                \
    S(y, NEO__FMA(v, w ? L(w) : one, b ? L(b) : zero));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    if (centered) *stats++ = mean;
    *stats = scale;
}
/* With z the normalised row and g = dy w: dx = scale (g - mean of g - z mean of g z). */
static void NEO__FN(vec_norm_backward)(const float *x, const float *w, const float *dy,
                                       const float *stats, int centered, float *dx, int64_t count) {
    float sum = 0.0f, sum_z = 0.0f, t[NEO__BLOCK], tz[NEO__BLOCK];
    NEO__VF vm = NEO__SET(centered ? stats[0] : 0.0f), vs = NEO__SET(stats[centered ? 1 : 0]);
    NEO__VF one = NEO__SET(1.0f);
    int64_t n;
    for (int64_t at = 0; at < count; at += NEO__BLOCK) {
        const float *xb = x + at, *db = dy + at, *wb = w ? w + at : NULL;
        n = NEO__MIN(count - at, (int64_t)NEO__BLOCK);
#define NEO__BODY(L, S)                                                  \
    NEO__VF g = NEO__MUL(L(db), wb ? L(wb) : one);                       \
    S(t, g);                                                             \
    S(tz, NEO__MUL(g, NEO__MUL(NEO__SUB(L(xb), vm), vs)));
        NEO__LOOP(NEO__BODY);
#undef NEO__BODY
        sum += NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
        sum_z += NEO__FN(lane_sum)(tz, NEO__FN(pad16)(tz, n));
    }
    NEO__VF mean = NEO__SET(centered ? sum / (float)count : 0.0f);
    NEO__VF mean_z = NEO__SET(sum_z / (float)count);
    n = count;
#define NEO__BODY(L, S)                                                       \
    NEO__VF g = NEO__MUL(L(dy), w ? L(w) : one);                              \
    NEO__VF z = NEO__MUL(NEO__SUB(L(x), vm), vs);                             \
    S(dx, NEO__MUL(vs, NEO__FNMA(z, mean_z, NEO__SUB(g, mean))));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static void NEO__FN(vec_norm_add)(const float *x, const float *dy, const float *stats, int centered,
                                  float *dw, float *db, int64_t n) {
    NEO__VF vm = NEO__SET(centered ? stats[0] : 0.0f), vs = NEO__SET(stats[centered ? 1 : 0]);
#define NEO__BODY(L, S)                                                                    \
    NEO__VF d = L(dy);                                                                     \
    if (dw) S(dw, NEO__FMA(d, NEO__MUL(NEO__SUB(L(x), vm), vs), L(dw)));                   \
    if (db) S(db, NEO__ADD(L(db), d));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}

/* ---- attention: one query, one tile of keys ---- */
static void NEO__FN(vec_softmax_tile)(float *s, int64_t keys, float scale, float *max, float *sum,
                                      float *out, int64_t n) {
    float most = *max, lane[NEO__W];
    NEO__VF vs = NEO__SET(scale), vm = NEO__SET(most);
    for (int64_t i = 0; i < keys; i += NEO__W) NEO__STORE(s + i, NEO__MUL(NEO__LOAD(s + i), vs));
    for (int64_t i = keys; i % NEO__W != 0; i++)
        s[i] = s[0]; /* no new maximum, and no slow exponential */
    for (int64_t i = 0; i < keys; i += NEO__W) vm = NEO__MAX_(vm, NEO__LOAD(s + i));
    NEO__STORE(lane, vm);
    for (int l = 0; l < NEO__W; l++) most = lane[l] > most ? lane[l] : most;
    vm = NEO__SET(most);
    for (int64_t i = 0; i < keys; i += NEO__W)
        NEO__STORE(s + i, NEO__FN(vexp)(NEO__SUB(NEO__LOAD(s + i), vm)));
    for (int64_t i = keys; i < NEO__KEYS; i++) s[i] = 0.0f;
    NEO__VF vf = NEO__FN(vexp)(NEO__SUB(NEO__SET(*max), vm));
    NEO__STORE(lane, vf);
    *sum = *sum * lane[0] + NEO__FN(lane_sum)(s, NEO__KEYS / 16);
    if (*max == most) return;
    *max = most;
#define NEO__BODY(L, S) S(out, NEO__MUL(L(out), vf));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static float NEO__FN(vec_softmax_end)(float *out, float max, float sum, int64_t n) {
    float lane[NEO__W];
    NEO__VF vs = NEO__SET(sum);
    NEO__STORE(lane, NEO__ADD(NEO__SET(max), NEO__FN(vlog)(vs)));
#define NEO__BODY(L, S) S(out, NEO__DIV(L(out), vs));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    return lane[0];
}
static void NEO__FN(vec_softmax_tile_grad)(float *s, float *dp, int64_t keys, float scale,
                                           float lse, float delta) {
    NEO__VF vs = NEO__SET(scale), vl = NEO__SET(lse), vd = NEO__SET(delta);
    for (int64_t i = 0; i < keys; i += NEO__W) {
        NEO__VF p = NEO__FN(vexp)(NEO__SUB(NEO__MUL(NEO__LOAD(s + i), vs), vl));
        NEO__STORE(s + i, p);
        NEO__STORE(dp + i, NEO__MUL(NEO__MUL(p, NEO__SUB(NEO__LOAD(dp + i), vd)), vs));
    }
    for (int64_t i = keys; i < NEO__KEYS; i++) s[i] = dp[i] = 0.0f;
}

/* ---- optimizer steps: torch.optim's formulas, products and sums fused where they meet ---- */
static void NEO__FN(vec_sgd)(const neo__step *s, float *w, const float *g, float *buf, int64_t n) {
    NEO__VF clip = NEO__SET(s->clip), lr = NEO__SET(s->lr), decay = NEO__SET(s->weight_decay);
    NEO__VF momentum = NEO__SET(s->momentum), undamped = NEO__SET(s->undamped);
    int first = s->first, nesterov = s->nesterov;
#define NEO__BODY(L, S)                                                            \
    NEO__VF a = L(w), d = NEO__FMA(decay, a, NEO__MUL(clip, L(g)));                \
    if (buf) {                                                                     \
        NEO__VF b = first ? d : NEO__FMA(momentum, L(buf), NEO__MUL(undamped, d)); \
        S(buf, b);                                                                 \
        d = nesterov ? NEO__FMA(momentum, b, d) : b;                               \
    }                                                                              \
    S(w, NEO__FNMA(lr, d, a));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static void NEO__FN(vec_adagrad)(const neo__step *s, float *w, const float *g, float *sum,
                                 int64_t n) {
    NEO__VF clip = NEO__SET(s->clip), lr = NEO__SET(s->lr), decay = NEO__SET(s->weight_decay);
    NEO__VF eps = NEO__SET(s->eps);
#define NEO__BODY(L, S)                                             \
    NEO__VF a = L(w), d = NEO__FMA(decay, a, NEO__MUL(clip, L(g))); \
    NEO__VF t = NEO__FMA(d, d, L(sum));                             \
    S(sum, t);                                                      \
    S(w, NEO__FNMA(lr, NEO__DIV(d, NEO__ADD(NEO__SQRT(t), eps)), a));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static void NEO__FN(vec_adam)(const neo__step *s, float *w, const float *g, float *m, float *v,
                              int64_t n) {
    NEO__VF clip = NEO__SET(s->clip), decay = NEO__SET(s->weight_decay), keep = NEO__SET(s->keep);
    NEO__VF rest1 = NEO__SET(s->rest1), beta2 = NEO__SET(s->beta2), rest2 = NEO__SET(s->rest2);
    NEO__VF unbias1 = NEO__SET(s->unbias1), root = NEO__SET(s->root_unbias2),
            eps = NEO__SET(s->eps);
#define NEO__BODY(L, S)                                                          \
    NEO__VF a = L(w), d = NEO__FMA(decay, a, NEO__MUL(clip, L(g))), mean = L(m); \
    mean = NEO__FMA(rest1, NEO__SUB(d, mean), mean);                             \
    NEO__VF square = NEO__FMA(NEO__MUL(rest2, d), d, NEO__MUL(beta2, L(v)));     \
    NEO__VF below = NEO__ADD(NEO__DIV(NEO__SQRT(square), root), eps);            \
    S(m, mean);                                                                  \
    S(v, square);                                                                \
    S(w, NEO__FNMA(unbias1, NEO__DIV(mean, below), NEO__MUL(keep, a)));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
static void NEO__FN(vec_lamb_moments)(const neo__step *s, const float *g, float *m, float *v,
                                      int64_t n) {
    NEO__VF clip = NEO__SET(s->clip);
    NEO__VF rest1 = NEO__SET(s->rest1), beta2 = NEO__SET(s->beta2), rest2 = NEO__SET(s->rest2);
#define NEO__BODY(L, S)                             \
    NEO__VF d = NEO__MUL(clip, L(g)), mean = L(m);  \
    S(m, NEO__FMA(rest1, NEO__SUB(d, mean), mean)); \
    S(v, NEO__FMA(NEO__MUL(rest2, d), d, NEO__MUL(beta2, L(v))));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}
NEO__INLINE NEO__VF NEO__FN(lamb_direction)(const neo__step *s, NEO__VF w, NEO__VF m, NEO__VF v) {
    NEO__VF below = NEO__ADD(NEO__DIV(NEO__SQRT(v), NEO__SET(s->root_unbias2)), NEO__SET(s->eps));
    return NEO__FMA(NEO__SET(s->weight_decay), w,
                    NEO__DIV(NEO__MUL(NEO__SET(s->unbias1), m), below));
}
static float NEO__FN(vec_lamb_square)(const neo__step *s, const float *w, const float *m,
                                      const float *v, int64_t n) {
    float t[NEO__BLOCK];
#define NEO__BODY(L, S)                                       \
    NEO__VF d = NEO__FN(lamb_direction)(s, L(w), L(m), L(v)); \
    S(t, NEO__MUL(d, d));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
    return NEO__FN(lane_sum)(t, NEO__FN(pad16)(t, n));
}
static void NEO__FN(vec_lamb_move)(const neo__step *s, float *w, const float *m, const float *v,
                                   int64_t n) {
    NEO__VF lr = NEO__SET(s->lr);
#define NEO__BODY(L, S) \
    NEO__VF a = L(w);   \
    S(w, NEO__FNMA(lr, NEO__FN(lamb_direction)(s, a, L(m), L(v)), a));
    NEO__LOOP(NEO__BODY);
#undef NEO__BODY
}

static const neo__vec_kernels NEO__FN(vec_kernels) = {
    NEO__FN(vec_add),
    NEO__FN(vec_act_forward),
    NEO__FN(vec_act_backward),
    NEO__FN(vec_find_outside),
    NEO__FN(vec_bce_logits),
    NEO__FN(vec_bce),
    NEO__FN(vec_mse),
    NEO__FN(vec_mse_row),
    NEO__FN(vec_softmax_row),
    NEO__FN(vec_softmax_grad),
    NEO__FN(vec_norm_forward),
    NEO__FN(vec_norm_backward),
    NEO__FN(vec_norm_add),
    NEO__FN(vec_softmax_tile),
    NEO__FN(vec_softmax_end),
    NEO__FN(vec_softmax_tile_grad),
    NEO__FN(vec_block_abs),
    NEO__FN(vec_block_square),
    NEO__FN(vec_block_max),
    NEO__FN(vec_sgd),
    NEO__FN(vec_adagrad),
    NEO__FN(vec_adam),
    NEO__FN(vec_lamb_moments),
    NEO__FN(vec_lamb_square),
    NEO__FN(vec_lamb_move),
};
#undef NEO__LD
#undef NEO__LDN
#undef NEO__LDM
#undef NEO__LONG_LOOP
#undef NEO__LOOP
#undef NEO__ST
#undef NEO__STM
#undef NEO__STN

/* ---- >>kernels-tensor: conversions, random numbers ---- */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__STORE_H(p, v) (*(uint16_t *)(void *)(p) = (uint16_t)(v))
#define NEO__LOAD_H(p) ((int32_t) * (const uint16_t *)(const void *)(p))
#define NEO__LOAD_F16(p) neo__f32_from_f16(*(const uint16_t *)(const void *)(p))
static void NEO__FN(f16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__f16_from_f32(x[i]);
}
static void NEO__FN(f32_from_f16s)(float *y, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_f16(x[i]);
}
static void NEO__FN(bf16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__bf16_from_f32(x[i]);
}
static void NEO__FN(f32_from_bf16s)(float *y, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = neo__f32_from_bf16(x[i]);
}

#else
/* Vectors of NEO__W 16-bit numbers: f16 by the processor's conversion, which rounds to nearest
   even and keeps denormals; bf16 by integer arithmetic, stored from the low halves of 32-bit
   lanes. */
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__STORE_H(p, v) _mm256_storeu_si256((__m256i *)(void *)(p), _mm512_cvtepi32_epi16(v))
#define NEO__LOAD_H(p)                                                                            \
    _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define NEO__STORE_F16(p, v)                                                                      \
    _mm256_storeu_si256(                                                                          \
        (__m256i *)(void *)(p),                                                                   \
        _mm512_maskz_cvtps_ph(0xFFFFu, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define NEO__LOAD_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__STORE_H(p, v)                                                                        \
    _mm_storeu_si128((__m128i *)(void *)(p),                                                      \
                     _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)))
#define NEO__LOAD_H(p) _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define NEO__STORE_F16(p, v)                                                                      \
    _mm_storeu_si128((__m128i *)(void *)(p),                                                      \
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define NEO__LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#else
#define NEO__STORE_H(p, v)                                                                        \
    vst1_u16((uint16_t *)(void *)(p), vmovn_u32(vreinterpretq_u32_s32(v)))
#define NEO__LOAD_H(p)                                                                            \
    vreinterpretq_s32_u32(vmovl_u16(vld1_u16((const uint16_t *)(const void *)(p))))
#define NEO__STORE_F16(p, v) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)))
#define NEO__LOAD_F16(p)                                                                          \
    vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)(const void *)(p))))
#endif

static void NEO__FN(f16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) NEO__STORE_F16(y + i, NEO__LOAD(x + i));
    for (; i < n; i++) y[i] = neo__f16_from_f32(x[i]);
}
static void NEO__FN(f32_from_f16s)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) NEO__STORE(y + i, NEO__LOAD_F16(x + i));
    for (; i < n; i++) y[i] = neo__f32_from_f16(x[i]);
}
static void NEO__FN(bf16_from_f32s)(uint16_t *y, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) {
        NEO__VI u = NEO__LOADI((const void *)(x + i));
        NEO__VI top = NEO__SHRI(u, 16);
        NEO__VI lsb = NEO__ANDI(top, NEO__SETI(1));
        NEO__VI rounded = NEO__SHRI(NEO__ADDI(NEO__ADDI(u, lsb), NEO__SETI(0x7FFF)), 16);
        NEO__VM nan = NEO__GTI(NEO__ANDI(u, NEO__SETI(0x7FFFFFFF)), NEO__SETI(0x7F800000));
        NEO__STORE_H(y + i, NEO__SELECTI(nan, NEO__ORI(top, NEO__SETI(0x40)), rounded));
    }
    for (; i < n; i++) y[i] = neo__bf16_from_f32(x[i]);
}
static void NEO__FN(f32_from_bf16s)(float *y, const uint16_t *x, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) {
        NEO__VI u = NEO__SHLI(NEO__LOAD_H(x + i), 16);
        NEO__VM nan = NEO__GTI(NEO__ANDI(u, NEO__SETI(0x7FFFFFFF)), NEO__SETI(0x7F800000));
        NEO__STOREI((void *)(y + i), NEO__SELECTI(nan, NEO__ORI(u, NEO__SETI(0x400000)), u));
    }
    for (; i < n; i++) y[i] = neo__f32_from_bf16(x[i]);
}
#undef NEO__STORE_F16
#endif

/* Philox in lanes: lane l of a group of NEO__W blocks computes block NEO__FN(lane_blocks)[l], an
   order chosen so that a transpose inside 128-bit lanes (NEO__FN(store_blocks)) puts whole blocks
   next to each other. mul_wide: the high and low halves of the products of unsigned lanes. */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__LANE_BLOCKS 0
NEO__INLINE void NEO__FN(mul_wide)(int32_t a, uint32_t m, int32_t *hi, int32_t *lo) {
    uint64_t p = (uint64_t)(uint32_t)a * m;
    *hi = (int32_t)(uint32_t)(p >> 32);
    *lo = (int32_t)(uint32_t)p;
}
NEO__INLINE void NEO__FN(store_blocks)(float *y, const float v[4]) { memcpy(y, v, 4 * sizeof *y); }
#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__LANE_BLOCKS _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
NEO__INLINE void NEO__FN(mul_wide)(__m512i a, uint32_t m, __m512i *hi, __m512i *lo) {
    __m512i k = _mm512_set1_epi32((int)m);
    __m512i even = _mm512_mul_epu32(a, k), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), k);
    *hi = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *lo = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}
NEO__INLINE void NEO__FN(store_blocks)(float *y, const __m512 v[4]) {
    __m512 a = _mm512_unpacklo_ps(v[0], v[1]), b = _mm512_unpackhi_ps(v[0], v[1]);
    __m512 c = _mm512_unpacklo_ps(v[2], v[3]), d = _mm512_unpackhi_ps(v[2], v[3]);
    _mm512_storeu_ps(y, _mm512_shuffle_ps(a, c, 0x44));
    _mm512_storeu_ps(y + 16, _mm512_shuffle_ps(a, c, 0xEE));
    _mm512_storeu_ps(y + 32, _mm512_shuffle_ps(b, d, 0x44));
    _mm512_storeu_ps(y + 48, _mm512_shuffle_ps(b, d, 0xEE));
}
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__LANE_BLOCKS _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)
NEO__INLINE void NEO__FN(mul_wide)(__m256i a, uint32_t m, __m256i *hi, __m256i *lo) {
    __m256i k = _mm256_set1_epi32((int)m);
    __m256i even = _mm256_mul_epu32(a, k), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), k);
    *hi = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *lo = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
NEO__INLINE void NEO__FN(store_blocks)(float *y, const __m256 v[4]) {
    __m256 a = _mm256_unpacklo_ps(v[0], v[1]), b = _mm256_unpackhi_ps(v[0], v[1]);
    __m256 c = _mm256_unpacklo_ps(v[2], v[3]), d = _mm256_unpackhi_ps(v[2], v[3]);
    _mm256_storeu_ps(y, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(y + 8, _mm256_shuffle_ps(a, c, 0xEE));
    _mm256_storeu_ps(y + 16, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(y + 24, _mm256_shuffle_ps(b, d, 0xEE));
}
#else
#define NEO__LANE_BLOCKS NEO__FN(lane_blocks)()
NEO__INLINE int32x4_t NEO__FN(lane_blocks)(void) {
    static const int32_t lane[4] = {0, 1, 2, 3};
    return vld1q_s32(lane);
}
NEO__INLINE void NEO__FN(mul_wide)(int32x4_t a, uint32_t m, int32x4_t *hi, int32x4_t *lo) {
    uint32x4_t u = vreinterpretq_u32_s32(a);
    uint32x4_t low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(u), vdup_n_u32(m)));
    uint32x4_t high = vreinterpretq_u32_u64(vmull_u32(vget_high_u32(u), vdup_n_u32(m)));
    *hi = vreinterpretq_s32_u32(vuzp2q_u32(low, high));
    *lo = vreinterpretq_s32_u32(vuzp1q_u32(low, high));
}
NEO__INLINE void NEO__FN(store_blocks)(float *y, const float32x4_t v[4]) {
    float32x4x4_t all = {{v[0], v[1], v[2], v[3]}};
    vst4q_f32(y, all);
}
#endif

/* Of the blocks whose numbers are in x[0] (low half) and x[1]. */
NEO__INLINE void NEO__FN(philox_rounds)(const neo__random_key *key, NEO__VI x[4]) {
    uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);
    x[2] = NEO__SETI((int32_t)(uint32_t)key->h);
    x[3] = NEO__SETI((int32_t)(uint32_t)(key->h >> 32));
    for (int round = 0; round < 10; round++) {
        NEO__VI hi0, lo0, hi1, lo1;
        NEO__FN(mul_wide)(x[0], NEO__PHILOX_M0, &hi0, &lo0);
        NEO__FN(mul_wide)(x[2], NEO__PHILOX_M1, &hi1, &lo1);
        x[0] = NEO__XORI(NEO__XORI(hi1, x[1]), NEO__SETI((int32_t)k0));
        x[2] = NEO__XORI(NEO__XORI(hi0, x[3]), NEO__SETI((int32_t)k1));
        x[1] = lo1;
        x[3] = lo0;
        k0 += NEO__PHILOX_W0;
        k1 += NEO__PHILOX_W1;
    }
}
/* Blocks [first, first + NEO__W), which may not cross a multiple of 2^32. */
NEO__INLINE void NEO__FN(philox_lanes)(const neo__random_key *key, uint64_t first, NEO__VI x[4]) {
    x[0] = NEO__ADDI(NEO__SETI((int32_t)(uint32_t)first), NEO__LANE_BLOCKS);
    x[1] = NEO__SETI((int32_t)(uint32_t)(first >> 32));
    NEO__FN(philox_rounds)(key, x);
}
#if NEO__PASS != NEO__PASS_SCALAR
/* Whether a whole vector of blocks can start at `block` of `blocks` left. */
NEO__INLINE int NEO__FN(philox_fits)(uint64_t block, int64_t left) {
    return left >= NEO__W && (uint32_t)block <= UINT32_MAX - (NEO__W - 1);
}
#endif

static void NEO__FN(random_uniform)(float *y, int64_t blocks, const neo__random_key *key,
                                    uint64_t first, float a, float scale, float top) {
    for (int64_t i = 0; i < blocks;) {
#if NEO__PASS != NEO__PASS_SCALAR
        if (!NEO__FN(philox_fits)(first + (uint64_t)i, blocks - i)) {
            neo__random_uniform_scalar(y + 4 * i, 1, key, first + (uint64_t)i, a, scale, top);
            i++;
            continue;
        }
#endif
        NEO__VI x[4];
        NEO__VF v[4];
        NEO__FN(philox_lanes)(key, first + (uint64_t)i, x);
        for (int w = 0; w < 4; w++) {
            NEO__VF u = NEO__MUL(NEO__TO_F(NEO__SHRI(x[w], 8)), NEO__SET(0x1p-24f));
            v[w] = NEO__MIN_(NEO__FMA(u, NEO__SET(scale), NEO__SET(a)), NEO__SET(top));
        }
        NEO__FN(store_blocks)(y + 4 * i, v);
        i += NEO__W;
    }
}

/* Box and Muller: two normal numbers from two words. The radius is sqrt(-2 log u) of u = (w + 1)
   2^-32 in (0, 1]; the angle is 2 pi n 2^-24. */
NEO__INLINE void NEO__FN(box_muller)(NEO__VI wr, NEO__VI wa, NEO__VF *z0, NEO__VF *z1) {
    NEO__VF high = NEO__TO_F(NEO__SHRI(wr, 16)), sine, cosine;
    NEO__VF low = NEO__TO_F(NEO__ADDI(NEO__ANDI(wr, NEO__SETI(0xFFFF)), NEO__SETI(1)));
    NEO__VF u = NEO__MUL(NEO__FMA(high, NEO__SET(65536.0f), low), NEO__SET(0x1p-32f));
    NEO__VF r = NEO__SQRT(NEO__MUL(NEO__SET(-2.0f), NEO__FN(vlog)(u)));
    NEO__VF angle = NEO__MUL(NEO__TO_F(NEO__SHRI(wa, 8)), NEO__SET(0x1.921fb6p-22f));
    NEO__FN(vsincos)(angle, &sine, &cosine);
    *z0 = NEO__MUL(r, cosine);
    *z1 = NEO__MUL(r, sine);
}
static void NEO__FN(random_normal)(float *y, int64_t blocks, const neo__random_key *key,
                                   uint64_t first, float a, float scale) {
    for (int64_t i = 0; i < blocks;) {
#if NEO__PASS != NEO__PASS_SCALAR
        if (!NEO__FN(philox_fits)(first + (uint64_t)i, blocks - i)) {
            neo__random_normal_scalar(y + 4 * i, 1, key, first + (uint64_t)i, a, scale);
            i++;
            continue;
        }
#endif
        NEO__VI x[4];
        NEO__VF v[4];
        NEO__FN(philox_lanes)(key, first + (uint64_t)i, x);
        NEO__FN(box_muller)(x[0], x[1], &v[0], &v[1]);
        NEO__FN(box_muller)(x[2], x[3], &v[2], &v[3]);
        for (int w = 0; w < 4; w++) v[w] = NEO__FMA(v[w], NEO__SET(scale), NEO__SET(a));
        NEO__FN(store_blocks)(y + 4 * i, v);
        i += NEO__W;
    }
}

static const neo__tensor_kernels NEO__FN(tensor_kernels) = {
    NEO__FN(f16_from_f32s),  NEO__FN(f32_from_f16s),  NEO__FN(bf16_from_f32s),
    NEO__FN(f32_from_bf16s), NEO__FN(random_uniform), NEO__FN(random_normal),
};

/* ---- >>kernels-gemm ----
   The tile: every accumulator is a named variable, so that the compiler keeps it in a register.
   Rows are listed as (row, row / 3, row % 3): three rows share a base pointer, which is what x86
   addressing offers. */
#if NEO__PASS == NEO__PASS_AVX512
#define NEO__ROWS 14 /* 28 sums, 2 of b, 1 of a: 31 of 32 registers */
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__ROWS 6 /* 12 + 2 + 1 of 16 */
#elif NEO__PASS == NEO__PASS_NEON
#define NEO__ROWS 12 /* 24 + 2 + 1 of 32 */
#else
#define NEO__ROWS 4
#endif
#define NEO__ROW_LIST_4(X) X(0, 0, 0) X(1, 0, 1) X(2, 0, 2) X(3, 1, 0)
#define NEO__ROW_LIST_6(X) NEO__ROW_LIST_4(X) X(4, 1, 1) X(5, 1, 2)
#define NEO__ROW_LIST_12(X)                                                                        \
    NEO__ROW_LIST_6(X) X(6, 2, 0) X(7, 2, 1) X(8, 2, 2) X(9, 3, 0) X(10, 3, 1) X(11, 3, 2)
#define NEO__ROW_LIST_14(X) NEO__ROW_LIST_12(X) X(12, 4, 0) X(13, 4, 1)
#if NEO__ROWS == 14
#define NEO__ROW_LIST(X) NEO__ROW_LIST_14(X)
#define NEO__GROUP_LIST(X) X(0) X(1) X(2) X(3) X(4)
#elif NEO__ROWS == 12
#define NEO__ROW_LIST(X) NEO__ROW_LIST_12(X)
#define NEO__GROUP_LIST(X) X(0) X(1) X(2) X(3)
#elif NEO__ROWS == 6
#define NEO__ROW_LIST(X) NEO__ROW_LIST_6(X)
#define NEO__GROUP_LIST(X) X(0) X(1)
#else
#define NEO__ROW_LIST(X) NEO__ROW_LIST_4(X)
#define NEO__GROUP_LIST(X) X(0) X(1)
#endif

#define NEO__TILE_DECLARE(r, g, i) NEO__VF c##r##_0 = zero, c##r##_1 = zero;
#define NEO__TILE_INIT(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__LOAD(t->init + r * t->init_row);                                           \
        if (vecs > 1) c##r##_1 = NEO__LOAD(t->init + r * t->init_row + NEO__W);                    \
    }
#define NEO__TILE_FMA(r, g, i)                                                                     \
    if (rows > r) {                                                                                \
        NEO__VF av = NEO__SET(a##g[i * a_row]);                                                    \
        c##r##_0 = NEO__FMA(av, b0, c##r##_0);                                                     \
        if (vecs > 1) c##r##_1 = NEO__FMA(av, b1, c##r##_1);                                       \
    }
#define NEO__TILE_MERGE(r, g, i)                                                                   \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__ADD(NEO__LOAD(merge + r * vecs * NEO__W), c##r##_0);                       \
        if (vecs > 1)                                                                              \
            c##r##_1 = NEO__ADD(NEO__LOAD(merge + r * vecs * NEO__W + NEO__W), c##r##_1);          \
    }
#define NEO__TILE_BIAS(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__ADD(c##r##_0, b0);                                                         \
        if (vecs > 1) c##r##_1 = NEO__ADD(c##r##_1, b1);                                           \
    }
#define NEO__TILE_RELU(r, g, i)                                                                    \
    if (rows > r) {                                                                                \
        c##r##_0 = NEO__MAX_(zero, c##r##_0);                                                      \
        if (vecs > 1) c##r##_1 = NEO__MAX_(zero, c##r##_1);                                        \
    }
#define NEO__TILE_STORE(r, g, i)                                                                   \
    if (rows > r) {                                                                                \
        NEO__STORE(t->c + r * t->c_row, c##r##_0);                                                 \
        if (vecs > 1) NEO__STORE(t->c + r * t->c_row + NEO__W, c##r##_1);                          \
    }
#define NEO__TILE_GROUP(g) const float *a##g = t->a + (rows > 3 * g ? 3 * g * a_row : 0);
#define NEO__TILE_STEP(g)                                                                          \
    if (rows > 3 * g) a##g += a_k;

/* rows and vecs are constants where this is inlined: the conditions on them vanish. */
NEO__INLINE void NEO__FN(tile)(const neo__tile *t, const int rows, const int vecs) {
    const int64_t a_row = t->a_row, a_k = t->a_k, b_k = t->b_k;
    const float *b = t->b;
    const NEO__VF zero = NEO__SET(0.0f);
    NEO__GROUP_LIST(NEO__TILE_GROUP)
    NEO__ROW_LIST(NEO__TILE_DECLARE)
    if (t->init) { NEO__ROW_LIST(NEO__TILE_INIT) }
    for (int64_t k = t->k; k > 0; k--) {
        NEO__VF b0 = NEO__LOAD(b), b1 = vecs > 1 ? NEO__LOAD(b + NEO__W) : b0;
        NEO__ROW_LIST(NEO__TILE_FMA)
        NEO__GROUP_LIST(NEO__TILE_STEP)
        b += b_k;
        (void)b1;
    }
    const float *merge = t->merge;
    for (int64_t i = t->merges; i > 0; i--) {
        NEO__ROW_LIST(NEO__TILE_MERGE)
        merge -= t->merge_step;
    }
    if (t->bias) {
        NEO__VF b0 = NEO__LOAD(t->bias), b1 = vecs > 1 ? NEO__LOAD(t->bias + NEO__W) : b0;
        NEO__ROW_LIST(NEO__TILE_BIAS)
        (void)b1;
    }
    if (t->relu) { NEO__ROW_LIST(NEO__TILE_RELU) }
    NEO__ROW_LIST(NEO__TILE_STORE)
}
#define NEO__TILE_DEFINE(rows)                                                                     \
    static void NEO__FN(tile1_##rows)(const neo__tile *t) { NEO__FN(tile)(t, rows, 1); }           \
    static void NEO__FN(tile2_##rows)(const neo__tile *t) { NEO__FN(tile)(t, rows, 2); }
#define NEO__TILE_FEW(X) X(1) X(2) X(4)
#if NEO__ROWS == 14
#define NEO__TILE_SIZES(X) NEO__TILE_FEW(X) X(6) X(8) X(10) X(12) X(14)
#elif NEO__ROWS == 12
#define NEO__TILE_SIZES(X) NEO__TILE_FEW(X) X(6) X(8) X(10) X(12)
#elif NEO__ROWS == 6
#define NEO__TILE_SIZES(X) NEO__TILE_FEW(X) X(6)
#else
#define NEO__TILE_SIZES(X) NEO__TILE_FEW(X)
#endif
NEO__TILE_SIZES(NEO__TILE_DEFINE)
#define NEO__TILE1_NAME(rows) NEO__FN(tile1_##rows),
#define NEO__TILE2_NAME(rows) NEO__FN(tile2_##rows),
static const neo__tile_fn NEO__FN(tile1)[] = {NEO__TILE_SIZES(NEO__TILE1_NAME)};
static const neo__tile_fn NEO__FN(tile2)[] = {NEO__TILE_SIZES(NEO__TILE2_NAME)};

/* One row needs more columns to have enough independent sums. */
#define NEO__EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
static void NEO__FN(row8)(const neo__tile *t) {
    const float *a = t->a, *b = t->b, *merge = t->merge;
    const NEO__VF zero = NEO__SET(0.0f);
#define NEO__ROW8_START(v) NEO__VF c##v = t->init ? NEO__LOAD(t->init + v * NEO__W) : zero;
    NEO__EIGHT(NEO__ROW8_START)
    for (int64_t k = t->k; k > 0; k--) {
        const NEO__VF av = NEO__SET(*a);
#define NEO__ROW8_FMA(v) c##v = NEO__FMA(av, NEO__LOAD(b + v * NEO__W), c##v);
        NEO__EIGHT(NEO__ROW8_FMA)
        a += t->a_k;
        b += t->b_k;
    }
    for (int64_t i = t->merges; i > 0; i--) {
#define NEO__ROW8_MERGE(v) c##v = NEO__ADD(NEO__LOAD(merge + v * NEO__W), c##v);
        NEO__EIGHT(NEO__ROW8_MERGE)
        merge -= t->merge_step;
    }
    if (t->bias) {
#define NEO__ROW8_BIAS(v) c##v = NEO__ADD(c##v, NEO__LOAD(t->bias + v * NEO__W));
        NEO__EIGHT(NEO__ROW8_BIAS)
    }
    if (t->relu) {
#define NEO__ROW8_RELU(v) c##v = NEO__MAX_(zero, c##v);
        NEO__EIGHT(NEO__ROW8_RELU)
    }
#define NEO__ROW8_STORE(v) NEO__STORE(t->c + v * NEO__W, c##v);
    NEO__EIGHT(NEO__ROW8_STORE)
}

/* ---- packing ---- */
static void NEO__FN(pack)(float *to, int64_t width, const float *from, int64_t ld, int64_t rows,
                          int64_t cols) {
    if (width == cols && width <= NEO__W) { /* a row of tiles of A */
        for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
            if (width == NEO__W) NEO__STORE(to, NEO__LOAD(from));
            else NEO__STOREN(to, NEO__LOADN(from, width), width);
        }
        return;
    }
    if (width == cols && width == 2 * NEO__W) { /* a full panel of B */
        for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
            NEO__STORE(to, NEO__LOAD(from));
            NEO__STORE(to + NEO__W, NEO__LOAD(from + NEO__W));
        }
        return;
    }
    for (int64_t k = 0; k < rows; k++, from += ld, to += width) {
        int64_t j = 0;
        for (; j + NEO__W <= cols; j += NEO__W) NEO__STORE(to + j, NEO__LOAD(from + j));
        for (; j < width; j += NEO__W) {
            NEO__VF v = j < cols ? NEO__LOADN(from + j, cols - j) : NEO__SET(0.0f);
            if (width - j >= NEO__W) NEO__STORE(to + j, v);
            else NEO__STOREN(to + j, v, width - j);
        }
    }
}

/* transpose4: out[i] holds element k + i of NEO__W rows. */
#if NEO__PASS == NEO__PASS_AVX512
NEO__INLINE __m512 NEO__FN(four_rows)(const float *const *row, int64_t k) {
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(row[0] + k));
    v = _mm512_insertf32x4(v, _mm_loadu_ps(row[4] + k), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(row[8] + k), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(row[12] + k), 3);
}
#define NEO__LOW(a, b) _mm512_unpacklo_ps(a, b)
#define NEO__HIGH(a, b) _mm512_unpackhi_ps(a, b)
#define NEO__LOW2(a, b)                                                                            \
    _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#define NEO__HIGH2(a, b)                                                                           \
    _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#elif NEO__PASS == NEO__PASS_AVX2
NEO__INLINE __m256 NEO__FN(four_rows)(const float *const *row, int64_t k) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[0] + k)),
                                _mm_loadu_ps(row[4] + k), 1);
}
#define NEO__LOW(a, b) _mm256_unpacklo_ps(a, b)
#define NEO__HIGH(a, b) _mm256_unpackhi_ps(a, b)
#define NEO__LOW2(a, b)                                                                            \
    _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
#define NEO__HIGH2(a, b)                                                                           \
    _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
#elif NEO__PASS == NEO__PASS_NEON
#define NEO__LOW(a, b) vzip1q_f32(a, b)
#define NEO__HIGH(a, b) vzip2q_f32(a, b)
#define NEO__LOW2(a, b)                                                                            \
    vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)))
#define NEO__HIGH2(a, b)                                                                           \
    vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)))
#endif
NEO__INLINE void NEO__FN(transpose4)(const float *const *row, int64_t k, NEO__VF *out) {
#if NEO__PASS != NEO__PASS_SCALAR
    __asm__("" : "+r"(row)); /* read the pointers again each time: there are more than registers */
#endif
#if NEO__PASS == NEO__PASS_SCALAR
    for (int i = 0; i < 4; i++) out[i] = row[0][k + i];
#else
#if NEO__PASS == NEO__PASS_NEON
    NEO__VF r0 = NEO__LOAD(row[0] + k), r1 = NEO__LOAD(row[1] + k);
    NEO__VF r2 = NEO__LOAD(row[2] + k), r3 = NEO__LOAD(row[3] + k);
#else
    NEO__VF r0 = NEO__FN(four_rows)(row, k), r1 = NEO__FN(four_rows)(row + 1, k);
    NEO__VF r2 = NEO__FN(four_rows)(row + 2, k), r3 = NEO__FN(four_rows)(row + 3, k);
#endif
    NEO__VF low01 = NEO__LOW(r0, r1), high01 = NEO__HIGH(r0, r1);
    NEO__VF low23 = NEO__LOW(r2, r3), high23 = NEO__HIGH(r2, r3);
    out[0] = NEO__LOW2(low01, low23);
    out[1] = NEO__HIGH2(low01, low23);
    out[2] = NEO__LOW2(high01, high23);
    out[3] = NEO__HIGH2(high01, high23);
#endif
}

/* to[k * ld + i] = row[i][k] for i < lanes <= NEO__W, k < rows; all NEO__W rows are read. */
NEO__INLINE void NEO__FN(transpose)(float *to, int64_t ld, int64_t lanes, const float *const *row,
                                    int64_t rows) {
    int64_t k = 0;
    for (; k + 4 <= rows; k += 4, to += 4 * ld) {
        NEO__VF v[4];
        NEO__FN(transpose4)(row, k, v);
        if (lanes == NEO__W) {
            NEO__STORE(to, v[0]);
            NEO__STORE(to + ld, v[1]);
            NEO__STORE(to + 2 * ld, v[2]);
            NEO__STORE(to + 3 * ld, v[3]);
        } else {
            for (int i = 0; i < 4; i++) NEO__STOREN(to + i * ld, v[i], lanes);
        }
    }
    for (; k < rows; k++, to += ld)
        for (int64_t i = 0; i < lanes; i++) to[i] = row[i][k];
}
/* Rows of `from` past the last are read from the last, then cleared. */
static void NEO__FN(pack_transposed)(float *to, int64_t width, const float *from, int64_t ld,
                                     int64_t rows, int64_t cols) {
    for (int64_t j = 0; j < cols; j += NEO__W) {
        const float *row[NEO__W];
        for (int64_t i = 0; i < NEO__W; i++) row[i] = from + NEO__MIN(j + i, cols - 1) * ld;
        NEO__FN(transpose)(to + j, width, NEO__MIN(width - j, NEO__W), row, rows);
    }
    if (cols < width)
        for (int64_t k = 0; k < rows; k++)
            for (int64_t j = cols; j < width; j++) to[k * width + j] = 0.0f;
}

/* One column of sums in place of a tile: lanes go over the rows of the wide operand, which are
   transposed on their way into the sums. Two vectors of rows hide the latency of the chains. */
static void NEO__FN(dots)(const neo__tile *t) {
    const float *row[2 * NEO__W], *a = t->a;
    const int64_t a_k = t->a_k;
    NEO__VF s0 = NEO__SET(0.0f), s1 = s0;
    for (int64_t i = 0; i < 2 * NEO__W; i++) row[i] = t->b + NEO__MIN(i, t->b_cols - 1) * t->b_col;
    if (t->init) {
        s0 = NEO__LOAD(t->init);
        s1 = NEO__LOAD(t->init + NEO__W);
    }
    int64_t k = 0;
    for (; k + 4 <= t->k; k += 4) {
        NEO__VF v0[4], v1[4];
        NEO__FN(transpose4)(row, k, v0);
        NEO__FN(transpose4)(row + NEO__W, k, v1);
#define NEO__DOTS_STEP(i)                                                                          \
    s0 = NEO__FMA(NEO__SET(a[(k + i) * a_k]), v0[i], s0);                                          \
    s1 = NEO__FMA(NEO__SET(a[(k + i) * a_k]), v1[i], s1);
        NEO__DOTS_STEP(0)
        NEO__DOTS_STEP(1)
        NEO__DOTS_STEP(2)
        NEO__DOTS_STEP(3)
    }
    for (; k < t->k; k++) {
        float lane[2 * NEO__W];
        for (int64_t i = 0; i < 2 * NEO__W; i++) lane[i] = row[i][k];
        s0 = NEO__FMA(NEO__SET(a[k * a_k]), NEO__LOAD(lane), s0);
        s1 = NEO__FMA(NEO__SET(a[k * a_k]), NEO__LOAD(lane + NEO__W), s1);
    }
    NEO__STORE(t->c, s0);
    NEO__STORE(t->c + NEO__W, s1);
}

static void NEO__FN(column_sums)(float *to, const float *from, int64_t ld, int64_t rows,
                                 int64_t cols) {
    int64_t j = 0;
    for (; j + 4 * NEO__W <= cols; j += 4 * NEO__W) {
        NEO__VF s0 = NEO__SET(0.0f), s1 = s0, s2 = s0, s3 = s0;
        const float *p = from + j;
        for (int64_t i = 0; i < rows; i++, p += ld) {
            s0 = NEO__ADD(s0, NEO__LOAD(p));
            s1 = NEO__ADD(s1, NEO__LOAD(p + NEO__W));
            s2 = NEO__ADD(s2, NEO__LOAD(p + 2 * NEO__W));
            s3 = NEO__ADD(s3, NEO__LOAD(p + 3 * NEO__W));
        }
        NEO__STORE(to + j, s0);
        NEO__STORE(to + j + NEO__W, s1);
        NEO__STORE(to + j + 2 * NEO__W, s2);
        NEO__STORE(to + j + 3 * NEO__W, s3);
    }
    for (; j < cols; j += NEO__W) {
        int64_t n = NEO__MIN(cols - j, NEO__W);
        NEO__VF s = NEO__SET(0.0f);
        for (int64_t i = 0; i < rows; i++) {
            const float *p = from + i * ld + j;
            s = NEO__ADD(s, n == NEO__W ? NEO__LOAD(p) : NEO__LOADN(p, n));
        }
        if (n == NEO__W) NEO__STORE(to + j, s);
        else NEO__STOREN(to + j, s, n);
    }
}

/* ---- dot interaction ----
   Forward: T is transposed into a panel P[dim][rows of T]; then both operands of a tile of T T^t
   are read from it, lanes over j. Backward: dT = S T, where S is symmetric and holds dz; tiles of S
   are laid out k-major. Scratch holds NEO__INTERACT_FLOATS. */
NEO__INLINE void NEO__FN(copy)(float *to, const float *from, int64_t n) {
    int64_t i = 0;
    for (; i + NEO__W <= n; i += NEO__W) NEO__STORE(to + i, NEO__LOAD(from + i));
    if (i < n) NEO__STOREN(to + i, NEO__LOADN(from + i, n - i), n - i);
}
NEO__INLINE void NEO__FN(run_tile)(const neo__tile *t, int64_t rows, int64_t width) {
    (width > NEO__W ? NEO__FN(tile2) : NEO__FN(tile1))[rows / 2](t);
}
/* The tile that holds `rows` rows: an odd number takes one more, whose sums nobody reads. */
NEO__INLINE int64_t NEO__FN(tile_rows)(int64_t rows) { return rows == 1 ? 1 : rows + (rows & 1); }
/* Row i of T of a sample. */
NEO__INLINE const float *NEO__FN(interact_row)(const neo__interact *job, int64_t sample,
                                               int64_t i) {
    return i == 0 ? job->x + sample * job->x_row
                  : job->e + sample * job->e_row + (i - 1) * job->dim;
}
/* Where row i of the triangle begins. */
NEO__INLINE int64_t NEO__FN(triangle)(const neo__interact *job, int64_t i) {
    return job->dim + (job->diagonal ? i * (i + 1) / 2 : i * (i - 1) / 2);
}

static void NEO__FN(interact_forward)(const neo__interact *job, int64_t sample, float *panel) {
    const int64_t n = job->features + 1, dim = job->dim, diagonal = job->diagonal != 0;
    const int64_t ld = (n + NEO__W - 1) / NEO__W * NEO__W;
    const int64_t chunk = NEO__MAX(1, NEO__INTERACT_FLOATS / ld); /* of dim: one, but for huge T */
    float *z = job->z + sample * job->z_row, sum[NEO__TILE_MAX_FLOATS];
    NEO__FN(copy)(z, job->x + sample * job->x_row, dim);
    for (int64_t d = 0; d < dim || d == 0; d += chunk) {
        for (int64_t j = 0; j < n; j += NEO__W) {
            const float *row[NEO__W];
            for (int64_t i = 0; i < NEO__W; i++)
                row[i] = NEO__FN(interact_row)(job, sample, NEO__MIN(j + i, n - 1)) + d;
            NEO__FN(transpose)(panel + j, ld, NEO__W, row, NEO__MIN(chunk, dim - d));
        }
        for (int64_t i0 = 0; i0 < n; i0 += NEO__ROWS) {
            const int64_t rows = NEO__MIN(NEO__ROWS, n - i0), end = i0 + rows - 1 + diagonal;
            for (int64_t j0 = 0, width; j0 < end; j0 += width) {
                width = end - j0 > NEO__W && ld - j0 > NEO__W ? 2 * NEO__W : NEO__W;
                NEO__ZERO(neo__tile, t);
                t.k = NEO__MIN(chunk, dim - d);
                t.a = panel + i0, t.a_row = 1, t.a_k = ld;
                t.b = panel + j0, t.b_k = ld;
                t.c = sum, t.c_row = width;
                if (d > 0) {
                    t.init = sum, t.init_row = width;
                    for (int64_t i = 0; i < rows; i++)
                        for (int64_t j = 0; j < width; j++)
                            sum[i * width + j] = j0 + j < i0 + i + diagonal
                                                     ? z[NEO__FN(triangle)(job, i0 + i) + j0 + j]
                                                     : 0.0f;
                }
                NEO__FN(run_tile)(&t, NEO__FN(tile_rows)(rows), width);
                for (int64_t i = NEO__MAX(0, j0 - i0 + 1 - diagonal); i < rows; i++)
                    NEO__FN(copy)(z + NEO__FN(triangle)(job, i0 + i) + j0, sum + i * width,
                     NEO__MIN(width, i0 + i + diagonal - j0));
            }
        }
    }
}

/* s[j * ld + i] = S(i0 + i, j) for all j: left of the diagonal block, the block, right of it. A row
   that pads the tile is zero. */
NEO__INLINE void NEO__FN(interact_factors)(const neo__interact *job, const float *dz, int64_t i0,
                                           int64_t rows, int64_t ld, float *s) {
    const int64_t n = job->features + 1;
    for (int64_t r = 0; r < rows && i0 > 0; r += NEO__W) {
        const float *row[NEO__W];
        for (int64_t i = 0; i < NEO__W; i++)
            row[i] = dz + NEO__FN(triangle)(job, i0 + NEO__MIN(r + i, rows - 1));
        NEO__FN(transpose)(s + r, ld, NEO__MIN(NEO__W, rows - r), row, i0);
    }
    for (int64_t i = 0; i < rows; i++) {
        const float *row = dz + NEO__FN(triangle)(job, i0 + i) + i0;
        float *block = s + i0 * ld;
        for (int64_t j = 0; j < i; j++) block[j * ld + i] = block[i * ld + j] = row[j];
        block[i * ld + i] = job->diagonal ? 2.0f * row[i] : 0.0f;
    }
    for (int64_t j = i0 + rows; j < n; j++)
        NEO__FN(copy)(s + j * ld, dz + NEO__FN(triangle)(job, j) + i0, rows);
    for (int64_t j = 0; j < n && rows < ld; j++) s[j * ld + rows] = 0.0f;
}

/* Columns [d, d + cols) of dT; t is T's columns there, one panel after the other. */
static void NEO__FN(interact_columns)(const neo__interact *job, int64_t sample, int64_t d,
                                      int64_t cols, const float *t, float *s) {
    const int64_t n = job->features + 1;
    const float *dz = job->dz + sample * job->dz_row;
    float sum[NEO__TILE_MAX_FLOATS];
    for (int64_t i0 = job->dx ? 0 : 1, end = job->de ? n : 1, rows; i0 < end; i0 += rows) {
        /* the odd row goes to the first tile, which passes through `sum` anyhow */
        rows = end - i0 > NEO__ROWS ? NEO__ROWS - ((end - i0) & 1) : end - i0;
        const int64_t ld = NEO__FN(tile_rows)(rows);
        NEO__FN(interact_factors)(job, dz, i0, rows, ld, s);
        const float *panel = t;
        for (int64_t j = 0, width; j < cols; j += width) {
            width = cols - j > NEO__W ? 2 * NEO__W : NEO__W;
            const int64_t part = NEO__MIN(width, cols - j);
            const int in_place = i0 > 0 && part == width && rows == ld;
            float *de = job->de ? job->de + sample * job->de_row + d + j : NULL;
            NEO__ZERO(neo__tile, tile);
            tile.k = n;
            tile.a = s, tile.a_row = 1, tile.a_k = ld;
            tile.b = panel, tile.b_k = width;
            tile.c = in_place ? de + (i0 - 1) * job->dim : sum;
            tile.c_row = in_place ? job->dim : width;
            if (i0 == 0) {
                memset(sum, 0, sizeof sum);
                NEO__FN(copy)(sum, dz + d + j, part);
                tile.init = sum, tile.init_row = width;
            }
            NEO__FN(run_tile)(&tile, ld, width);
            panel += n * width;
            if (in_place) continue;
            for (int64_t i = 0; i < rows; i++)
                NEO__FN(copy)(i0 + i == 0 ? job->dx + sample * job->dx_row + d + j
                             : de + (i0 + i - 1) * job->dim,
                 sum + i * width, part);
        }
    }
}
static void NEO__FN(interact_backward)(const neo__interact *job, int64_t sample, float *scratch) {
    const int64_t n = job->features + 1;
    const int64_t most = NEO__INTERACT_FLOATS / n / (2 * NEO__W) * (2 * NEO__W);
    float *s = scratch + NEO__INTERACT_FLOATS;
    for (int64_t d = 0; d < job->dim; d += most) {
        const int64_t cols = NEO__MIN(most, job->dim - d);
        float *panel = scratch;
        for (int64_t j = 0, width; j < cols; j += width) {
            width = cols - j > NEO__W ? 2 * NEO__W : NEO__W;
            const int64_t part = NEO__MIN(width, cols - j);
            NEO__FN(pack)(panel, width, job->x + sample * job->x_row + d + j, 0, 1, part);
            NEO__FN(pack)(panel + width, width, job->e + sample * job->e_row + d + j, job->dim,
                          n - 1, part);
            panel += n * width;
        }
        NEO__FN(interact_columns)(job, sample, d, cols, scratch, s);
    }
}

static const neo__gemm_kernels NEO__FN(gemm_kernels) = {
    NEO__ROWS,
    NEO__W,
    NEO__FN(tile1),
    NEO__FN(tile2),
    NEO__FN(row8),
    NEO__FN(dots),
    NEO__FN(pack),
    NEO__FN(pack_transposed),
    NEO__FN(column_sums),
    NEO__FN(interact_forward),
    NEO__FN(interact_backward),
};
#undef NEO__DOTS_STEP
#undef NEO__EIGHT
#undef NEO__GROUP_LIST
#undef NEO__HIGH
#undef NEO__HIGH2
#undef NEO__LOW
#undef NEO__LOW2
#undef NEO__ROW8_BIAS
#undef NEO__ROW8_FMA
#undef NEO__ROW8_MERGE
#undef NEO__ROW8_RELU
#undef NEO__ROW8_START
#undef NEO__ROW8_STORE
#undef NEO__ROWS
#undef NEO__ROW_LIST
#undef NEO__ROW_LIST_12
#undef NEO__ROW_LIST_14
#undef NEO__ROW_LIST_4
#undef NEO__ROW_LIST_6
#undef NEO__TILE1_NAME
#undef NEO__TILE2_NAME
#undef NEO__TILE_BIAS
#undef NEO__TILE_DECLARE
#undef NEO__TILE_DEFINE
#undef NEO__TILE_FEW
#undef NEO__TILE_FMA
#undef NEO__TILE_GROUP
#undef NEO__TILE_INIT
#undef NEO__TILE_MERGE
#undef NEO__TILE_RELU
#undef NEO__TILE_SIZES
#undef NEO__TILE_STEP
#undef NEO__TILE_STORE
/* ---- >>kernels-bags ----

   Sums run down the rows in registers: a chunk of 8, 4, 2 or 1 vectors of columns, or a rest narrower than
   a vector, at a time. Which chunk a column is in changes nothing: every column is a chain of its own. */
#define NEO__EACH1(X) X(0)
#define NEO__EACH2(X) X(0) X(1)
#define NEO__EACH4(X) NEO__EACH2(X) X(2) X(3)
#define NEO__EACH8(X) NEO__EACH4(X) X(4) X(5) X(6) X(7)
#define NEO__X_ZERO(i) NEO__VF s##i = NEO__SET(0.0f);
#define NEO__X_ADD(i) s##i = NEO__ADD(s##i, NEO__LOAD(row + (i)*NEO__W));
#define NEO__X_FMA(i) s##i = NEO__FMA(w, NEO__LOAD(row + (i)*NEO__W), s##i);
#define NEO__X_DIV(i) s##i = NEO__DIV(s##i, w);
#define NEO__X_ADDW(i) s##i = NEO__ADD(s##i, w);
#define NEO__X_STORE(i) NEO__STORE(to + (i)*NEO__W, s##i);
/* One prefetch per cache line of a chunk. */
#define NEO__X_FETCH(i)                                                                           \
    if ((i)*NEO__W % 16 == 0) __builtin_prefetch(row + (i)*NEO__W);

/* Vectors of a row of which `left` columns remain: a whole one, or its first part. */
NEO__INLINE NEO__VF NEO__FN(load_left)(const float *p, int64_t left) {
    return left >= NEO__W ? NEO__LOAD(p) : NEO__LOADN(p, left);
}
NEO__INLINE void NEO__FN(store_left)(float *p, NEO__VF v, int64_t left) {
    if (left >= NEO__W) NEO__STORE(p, v);
    else NEO__STOREN(p, v, left);
}

/* ---- narrow rows; see neo_table_desc for the formulas ---- */
#if NEO__PASS == NEO__PASS_SCALAR
#define NEO__LOAD_B(p) ((int32_t) * (const int8_t *)(p))
#define NEO__STORE_B(p, v) (*(int8_t *)(p) = (int8_t)(v))
#elif NEO__PASS == NEO__PASS_AVX512
#define NEO__LOAD_B(p) _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define NEO__STORE_B(p, v) _mm_storeu_si128((__m128i *)(void *)(p), _mm512_cvtepi32_epi8(v))
#elif NEO__PASS == NEO__PASS_AVX2
#define NEO__LOAD_B(p) _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define NEO__STORE_B(p, v) NEO__FN(store_b)(p, v)
NEO__INLINE void NEO__FN(store_b)(void *p, __m256i v) {
    __m128i h = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(h, h));
}
#else
#define NEO__LOAD_B(p) NEO__FN(load_b)(p)
#define NEO__STORE_B(p, v) NEO__FN(store_b)(p, v)
NEO__INLINE int32x4_t NEO__FN(load_b)(const void *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint64_t)four))));
}
NEO__INLINE void NEO__FN(store_b)(void *p, int32x4_t v) {
    int16x4_t h = vmovn_s32(v);
    uint64_t b = vget_lane_u64(vreinterpret_u64_s8(vmovn_s16(vcombine_s16(h, h))), 0);
    uint32_t four = (uint32_t)b;
    memcpy(p, &four, sizeof four);
}
#endif
/* A vector of elements as f32; `left` are there. */
NEO__INLINE NEO__VF NEO__FN(row_load)(neo_dtype dtype, const char *p, NEO__VF scale, NEO__VF bias) {
    if (dtype == NEO_F16) return NEO__LOAD_F16(p);
    if (dtype == NEO_BF16) return NEO__AS_F(NEO__SHLI(NEO__LOAD_H(p), 16));
    return NEO__FMA(NEO__TO_F(NEO__LOAD_B(p)), scale, bias);
}
NEO__INLINE NEO__VF NEO__FN(row_load_left)(neo_dtype dtype, const char *p, int64_t left,
                                           NEO__VF scale, NEO__VF bias) {
    int16_t few[16];
    if (NEO__W == 1 || left >= NEO__W) return NEO__FN(row_load)(dtype, p, scale, bias);
    memset(few, 0, sizeof few);
    memcpy(few, p, (size_t)left * (dtype == NEO_I8 ? 1 : 2));
    return NEO__FN(row_load)(dtype, (const char *)few, scale, bias);
}
static NEO__NOINLINE void NEO__FN(rows_decode)(const neo__bag_rows *t, int64_t row, int64_t col,
                                               int64_t n, float *to) {
    int64_t size = t->dtype == NEO_I8 ? 1 : 2;
    const char *p = t->data + row * t->row_bytes + col * size;
    NEO__VF scale = NEO__SET(t->scale ? t->scale[2 * row] : 0.0f);
    NEO__VF bias = NEO__SET(t->scale ? t->scale[2 * row + 1] : 0.0f);
    for (int64_t c = 0; c < n; c += NEO__W)
        NEO__FN(store_left)
        (to + c, NEO__FN(row_load_left)(t->dtype, p + c * size, n - c, scale, bias), n - c);
}
/* The largest integer up to x, |x| < 2^22. */
NEO__INLINE NEO__VI NEO__FN(floor_i)(NEO__VF x) {
    NEO__VI n = NEO__TO_I(x);
    return NEO__SELECTI(NEO__GT(NEO__TO_F(n), x), NEO__SUBI(n, NEO__SETI(1)), n);
}
/* neo__narrow_encode for bf16 and f16. Above f16's denormals the bits dropped are 13 of f32, so
   that 13 random bits decide. A denormal is an integer and a fraction of 32 bits of 2^-24, made in two
   halves. */
NEO__INLINE NEO__VI NEO__FN(bf16_round)(NEO__VF x, NEO__VI r) {
    NEO__VI u = NEO__AS_I(x), a = NEO__ANDI(u, NEO__SETI(0x7FFFFFFF));
    NEO__VI code = NEO__SHRI(NEO__ADDI(u, NEO__SHRI(r, 16)), 16);
    NEO__VI nan = NEO__ORI(NEO__SHRI(NEO__XORI(u, a), 16), NEO__SETI(0x7FC0));
    return NEO__SELECTI(NEO__GTI(a, NEO__SETI(0x7F800000)), nan, code);
}
NEO__INLINE NEO__VI NEO__FN(f16_round)(NEO__VF x, NEO__VI r) {
    NEO__VI u = NEO__AS_I(x), a = NEO__ANDI(u, NEO__SETI(0x7FFFFFFF));
    NEO__VI code = NEO__SUBI(NEO__SHRI(NEO__ADDI(a, NEO__SHRI(r, 19)), 13), NEO__SETI(112 << 10));
    code = NEO__SELECTI(NEO__GTI(code, NEO__SETI(0x7C00)), NEO__SETI(0x7C00), code);
    NEO__VM denormal = NEO__GTI(NEO__SETI(0x38800000), a);
    NEO__VF y = NEO__SELECT(denormal, NEO__MUL(NEO__AS_F(a), NEO__SET(0x1p24f)), NEO__SET(0.0f));
    NEO__VI n = NEO__FN(floor_i)(y);
    y = NEO__MUL(NEO__SUB(y, NEO__TO_F(n)), NEO__SET(65536.0f));
    NEO__VI high = NEO__FN(floor_i)(y);
    y = NEO__MUL(NEO__SUB(y, NEO__TO_F(high)), NEO__SET(65536.0f));
    NEO__VI rest = NEO__ORI(NEO__SHLI(high, 16), NEO__FN(floor_i)(y));
    /* rest + r >= 2^32: rest > ~r, unsigned */
    NEO__VI over = NEO__XORI(r, NEO__SETI(INT32_MAX));
    NEO__VM up = NEO__GTI(NEO__XORI(rest, NEO__SETI(INT32_MIN)), over);
    n = NEO__SELECTI(up, NEO__ADDI(n, NEO__SETI(1)), n);
    code = NEO__SELECTI(denormal, n, code);
    code = NEO__SELECTI(NEO__GTI(a, NEO__SETI(0x7F800000)), NEO__SETI(0x7E00), code);
    return NEO__ORI(code, NEO__SHRI(NEO__XORI(u, a), 16));
}
/* The random words of rows, as the bits of floats: row by row whole blocks, the last vector of them
   written whole. Blocks of several rows share a vector; a run of them ends with the row, and where
   the high half of the number changes. */
static NEO__NOINLINE void NEO__FN(rows_words)(const neo__bag_rows *t, const int64_t *row,
                                              int64_t count, const neo__random_key *key,
                                              float *word) {
    int64_t left = neo__bag_blocks_of(t, row[0]);
    uint64_t block = neo__bag_number(t, row[0]) / 4;
    NEO__VI place = NEO__ADDI(NEO__SETI(0), NEO__LANE_BLOCKS);
    for (int64_t r = 0; r < count; word += 4 * NEO__W) {
        NEO__VI x[4] = {place, place, place, place};
        NEO__VF v[4];
        for (int64_t lane = 0, n; lane < NEO__W && r < count; lane += n) {
            uint32_t low = (uint32_t)block;
            NEO__VM here = NEO__GTI(place, NEO__SETI((int32_t)lane - 1));
            NEO__VI number = NEO__ADDI(place, NEO__SETI((int32_t)(low - (uint32_t)lane)));
            x[0] = NEO__SELECTI(here, number, x[0]); /* lanes behind the run are set again */
            x[1] = NEO__SELECTI(here, NEO__SETI((int32_t)(uint32_t)(block >> 32)), x[1]);
            n = NEO__MIN(NEO__MIN(left, NEO__W - lane), (int64_t)UINT32_MAX - low + 1);
            block += (uint64_t)n;
            left -= n;
            if (left > 0 || ++r == count) continue;
            left = neo__bag_blocks_of(t, row[r]);
            block = neo__bag_number(t, row[r]) / 4;
        }
        NEO__FN(philox_rounds)(key, x);
        for (int k = 0; k < 4; k++) v[k] = NEO__AS_F(x[k]);
        NEO__FN(store_blocks)(word, v);
    }
}
/* Scale and bias of a row of i8; w is filled up to whole vectors. Returns the scale; 0: all codes
   are 0. */
static float NEO__FN(rows_scale)(const float *w, int64_t n, float *scale) {
    NEO__VF low = NEO__LOAD(w), high = low, zero = NEO__SET(0.0f), odd = zero;
    float least[NEO__W], most[NEO__W];
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__LOAD(w + c);
        low = NEO__MIN_(x, low);
        high = NEO__MAX_(x, high);
        odd = NEO__ADD(odd, NEO__SUB(x, x)); /* a NaN if one of them is not finite */
    }
    odd = NEO__SELECT(NEO__EQ(odd, zero), zero, NEO__SET(1.0f));
    if (NEO__ANY(NEO__GT(odd, zero))) {
        scale[0] = 0.0f;
        scale[1] = neo__f32_bits(0x7FC00000u);
        return 0.0f;
    }
    NEO__STORE(least, low);
    NEO__STORE(most, high);
    for (int half = NEO__W / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            least[i] = NEO__MIN(least[i], least[i + half]);
            most[i] = NEO__MAX(most[i], most[i + half]);
        }
    }
    float half = 0.5f * most[0] - 0.5f * least[0], unit = half / 127.0f;
    scale[0] = unit < FLT_MIN ? 0.0f : unit;
    scale[1] = least[0] + half; /* 0 of both signs gives 0 */
    return scale[0];
}
NEO__INLINE NEO__VI NEO__FN(i8_round)(NEO__VF w, NEO__VF inverse, NEO__VF bias, NEO__VI r,
                                      int stochastic) {
    NEO__VF x = NEO__MUL(NEO__SUB(w, bias), inverse);
    x = NEO__MIN_(NEO__SET(127.0f), NEO__MAX_(NEO__SET(-127.0f), x));
    if (!stochastic) return NEO__TO_I(x);
    NEO__VI n = NEO__FN(floor_i)(x);
    NEO__VF u = NEO__MUL(NEO__TO_F(NEO__SHRI(r, 8)), NEO__SET(0x1p-24f));
    NEO__VM up = NEO__GT(NEO__SUB(x, NEO__TO_F(n)), u);
    return NEO__SELECTI(up, NEO__ADDI(n, NEO__SETI(1)), n);
}
/* A vector of codes, of which `left` are stored. */
NEO__INLINE void NEO__FN(row_store)(neo_dtype dtype, char *p, NEO__VI code, int64_t left) {
    int16_t few[16];
    int whole = NEO__W == 1 || left >= NEO__W;
    char *to = whole ? p : (char *)few;
    if (dtype == NEO_I8) NEO__STORE_B(to, code);
    else NEO__STORE_H(to, code);
    if (!whole) memcpy(p, few, (size_t)left * (dtype == NEO_I8 ? 1 : 2));
}
static NEO__NOINLINE void NEO__FN(rows_encode)(const neo__bag_rows *t, int64_t row, float *w,
                                               const float *word) {
    int64_t n = t->dim, whole = neo__bag_room(n), size = t->dtype == NEO_I8 ? 1 : 2;
    char *to = t->data + row * t->row_bytes;
    NEO__VF inverse = NEO__SET(0.0f), bias = inverse;
    if (!word && t->dtype == NEO_F16) NEO__FN(f16_from_f32s)((uint16_t *)(void *)to, w, n);
    if (!word && t->dtype == NEO_BF16) NEO__FN(bf16_from_f32s)((uint16_t *)(void *)to, w, n);
    if (!word && t->dtype != NEO_I8) return;
    for (int64_t c = n; c < whole; c++) w[c] = w[0];
    if (t->dtype == NEO_I8) {
        float *scale = t->scale + 2 * row;
        if (NEO__FN(rows_scale)(w, n, scale) == 0.0f) {
            memset(to, 0, (size_t)n);
            return;
        }
        inverse = NEO__SET(1.0f / scale[0]), bias = NEO__SET(scale[1]);
    }
    if (word) word += neo__bag_number(t, row) % 4;
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__LOAD(w + c);
        NEO__VI r = word ? NEO__AS_I(NEO__LOAD(word + c)) : NEO__SETI(0);
        NEO__VI code;
        if (t->dtype == NEO_F16) code = NEO__FN(f16_round)(x, r);
        else if (t->dtype == NEO_BF16) code = NEO__FN(bf16_round)(x, r);
        else code = NEO__FN(i8_round)(x, inverse, bias, r, word != NULL);
        NEO__FN(row_store)(t->dtype, to + c * size, code, n - c);
    }
}

/* Rows fetched ahead of their use: far enough to cover memory, not so far that they leave the
   cache. */
NEO__INLINE int64_t NEO__FN(bag_ahead)(int64_t dim) {
    return dim <= 16 ? 48 : dim <= 32 ? 32 : dim <= 64 ? 24 : dim <= 128 ? 16 : 8;
}
NEO__INLINE void NEO__FN(bag_fetch_row)(const float *row, int64_t dim) {
    for (int64_t c = 0; c < dim; c += 16) __builtin_prefetch(row + c);
}
NEO__INLINE void NEO__FN(bag_fetch_id)(const neo__bag_rows *t, int64_t id) {
    const char *row = t->data + id * t->row_bytes;
    for (int64_t c = 0; c < t->row_bytes; c += 64) __builtin_prefetch(row + c);
    if (t->scale) __builtin_prefetch(t->scale + 2 * id);
}
/* Fetch rows [k, k_end) of the ids, which may run on into the next lookup. */
static NEO__NOINLINE void NEO__FN(bag_fetch_ahead)(const neo__bag_lookup *a, int is_i32, int64_t k,
                                                   int64_t k_end) {
    int64_t end = a->offsets[a->bags];
    for (; k < k_end && k < end; k++)
        NEO__FN(bag_fetch_id)(a->store, neo__jagged_id(a->ids, is_i32, k));
    for (; k < k_end && k - end < a->next_count; k++)
        NEO__FN(bag_fetch_id)(a->next_store, neo__jagged_id(a->ids, is_i32, a->next_id + k - end));
}

/* The sum of rows [k, k_end) of the ids, `dim` floats apart. */
#define NEO__BAG_SUM_ROWS(EACH, AHEAD)                                                            \
    if (a->weights) {                                                                             \
        for (; k < k_end; k++) {                                                                  \
            const float *row;                                                                     \
            AHEAD                                                                                 \
            NEO__VF w = NEO__SET(a->weights[k]);                                                  \
            row = a->table + neo__jagged_id(a->ids, is_i32, k) * dim + col;                       \
            EACH(NEO__X_FMA)                                                                      \
        }                                                                                         \
    } else {                                                                                      \
        for (; k < k_end; k++) {                                                                  \
            const float *row;                                                                     \
            AHEAD                                                                                 \
            row = a->table + neo__jagged_id(a->ids, is_i32, k) * dim + col;                       \
            EACH(NEO__X_ADD)                                                                      \
        }                                                                                         \
    }
/* bags_<n>: bags [b, b_end), n vectors of columns from col on. Near the end of the lookup the rows
   fetched ahead are those of the next one. rows_<n>: all bags, when a row is n vectors (then dim is a
   constant). */
#define NEO__BAG_POOL(N, EACH)                                                                    \
    NEO__INLINE void NEO__FN(bag_bags_as_##N)(const neo__bag_lookup *a, int64_t b, int64_t b_end, \
                                              int64_t col, int64_t dim, int is_i32) {             \
        const int64_t ahead = NEO__FN(bag_ahead)(dim);                                            \
        int64_t k = a->offsets[b], near_end = a->offsets[a->bags] - ahead;                        \
        float *to = a->out + b * a->out_stride + col;                                             \
        for (; b < b_end; b++, to += a->out_stride) {                                             \
            int64_t k_end = a->offsets[b + 1], length = k_end - k;                                \
            EACH(NEO__X_ZERO)                                                                     \
            if (k_end <= near_end) {                                                              \
                NEO__BAG_SUM_ROWS(                                                                \
                    EACH, row = a->table + neo__jagged_id(a->ids, is_i32, k + ahead) * dim + col; \
                    EACH(NEO__X_FETCH))                                                           \
            } else {                                                                              \
                if (col == 0) NEO__FN(bag_fetch_ahead)(a, is_i32, k + ahead, k_end + ahead);      \
                NEO__BAG_SUM_ROWS(EACH, )                                                         \
            }                                                                                     \
            if (a->mean && length > 1) {                                                          \
                NEO__VF w = NEO__SET((float)length);                                              \
                EACH(NEO__X_DIV)                                                                  \
            }                                                                                     \
            EACH(NEO__X_STORE)                                                                    \
        }                                                                                         \
    }                                                                                             \
    static NEO__NOINLINE NEO__UNUSED void NEO__FN(bag_rows_##N)(const neo__bag_lookup *a) {       \
        if (a->is_i32) NEO__FN(bag_bags_as_##N)(a, 0, a->bags, 0, (N)*NEO__W, 1);                 \
        else NEO__FN(bag_bags_as_##N)(a, 0, a->bags, 0, (N)*NEO__W, 0);                           \
    }                                                                                             \
    static NEO__NOINLINE void NEO__FN(bag_chunk_##N)(const neo__bag_lookup *a, int64_t b,         \
                                                     int64_t col) {                               \
        NEO__FN(bag_bags_as_##N)(a, b, b + 1, col, a->dim, a->is_i32);                            \
    }
NEO__BAG_POOL(8, NEO__EACH8)
NEO__BAG_POOL(4, NEO__EACH4)
NEO__BAG_POOL(2, NEO__EACH2)
NEO__BAG_POOL(1, NEO__EACH1)

/* The last n < NEO__W columns. */
static NEO__NOINLINE void NEO__FN(bag_chunk_rest)(const neo__bag_lookup *a, int64_t b,
                                                  int64_t col) {
    int64_t n = a->dim - col, length = a->offsets[b + 1] - a->offsets[b];
    (void)n;
    NEO__VF s = NEO__SET(0.0f);
    for (int64_t k = a->offsets[b]; k < a->offsets[b + 1]; k++) {
        const float *row = a->table + neo__jagged_id(a->ids, a->is_i32, k) * a->dim + col;
        NEO__VF x = NEO__LOADN(row, n);
        s = a->weights ? NEO__FMA(NEO__SET(a->weights[k]), x, s) : NEO__ADD(s, x);
    }
    if (a->mean && length > 1) s = NEO__DIV(s, NEO__SET((float)length));
    NEO__STOREN(a->out + b * a->out_stride + col, s, n);
}

/* ---- the careful lookup ---- */

static NEO__NOINLINE void NEO__FN(part_join)(neo__part_tree *t) {
    t->depth--;
    float *to = t->sum + (t->depth - 1) * t->stride;
    const float *from = t->sum + t->depth * t->stride;
    t->number[t->depth - 1] = t->number[t->depth];
    for (int64_t c = 0; c < t->n; c += NEO__W)
        NEO__FN(store_left)
        (to + c,
         NEO__ADD(NEO__FN(load_left)(to + c, t->n - c), NEO__FN(load_left)(from + c, t->n - c)),
         t->n - c);
}
/* Where the sum of part `number` goes. */
static float *NEO__FN(part_push)(neo__part_tree *t, int64_t number) {
    while (t->depth >= 2 && neo__tree_level(t->number[t->depth - 2], t->number[t->depth - 1]) <
                                neo__tree_level(t->number[t->depth - 1], number))
        NEO__FN(part_join)(t);
    t->number[t->depth] = number;
    return t->sum + t->depth++ * t->stride;
}

NEO__INLINE int64_t NEO__FN(bag_clamp)(const neo__bag_lookup *a, int64_t id) {
    if (id >= 0 && id < a->rows) return id;
    if (a->bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : a->rows - 1;
}
/* Columns [col, col + n) of a row as f32: where they are, or decoded in room. */
NEO__INLINE const float *NEO__FN(bag_row)(const neo__bag_lookup *a, int64_t id, int64_t col,
                                          int64_t n, float *room) {
    if (a->table) return a->table + id * a->dim + col;
    NEO__FN(rows_decode)(a->store, id, col, n, room);
    return room;
}
/* to += the rows of bag [k, k_end) that are in [row_begin, row_end), columns [col, col + n).
   Returns the lowest row not below row_end, or -1: the next bucket is its bucket. */
static NEO__NOINLINE int64_t NEO__FN(bag_sum_rows)(const neo__bag_lookup *a, int64_t k,
                                                   int64_t k_end, int64_t row_begin,
                                                   int64_t row_end, int64_t col, int64_t n,
                                                   float *to) {
    int64_t next = -1;
    float room[NEO__CAREFUL_WIDTH];
    for (int64_t c = 0; c < n; c++) to[c] = 0.0f;
    for (; k < k_end; k++) {
        int64_t id = NEO__FN(bag_clamp)(a, neo__jagged_id(a->ids, a->is_i32, k));
        if (id >= row_end && (next < 0 || id < next)) next = id;
        if (id < row_begin || id >= row_end) continue;
        const float *row = NEO__FN(bag_row)(a, id, col, n, room);
        for (int64_t c = 0; c < n; c += NEO__W) {
            NEO__VF s = NEO__FN(load_left)(to + c, n - c), x = NEO__FN(load_left)(row + c, n - c);
            s = a->weights ? NEO__FMA(NEO__SET(a->weights[k]), x, s) : NEO__ADD(s, x);
            NEO__FN(store_left)(to + c, s, n - c);
        }
    }
    return next;
}
static void NEO__FN(bag_pool_careful)(const neo__bag_lookup *a) {
    enum { WIDTH = NEO__CAREFUL_WIDTH };
    float sum[NEO__PART_DEPTH * WIDTH];
    int64_t buckets = a->buckets, rows = a->bucket_rows, first = a->first_row;
    for (int64_t b = 0; b < a->bags; b++) {
        int64_t k = a->offsets[b], k_end = a->offsets[b + 1];
        for (int64_t col = 0; col < a->dim; col += WIDTH) {
            neo__part_tree tree;
            tree.sum = sum;
            tree.n = NEO__MIN(a->dim - col, (int64_t)WIDTH);
            tree.stride = WIDTH;
            tree.depth = 0;
            for (int64_t row = 0; row >= 0;) {
                int64_t bucket = buckets == 1 ? 0 : neo__bucket_of(rows, buckets, row + first);
                row = NEO__FN(bag_sum_rows)(a, k, k_end,
                                            neo__bucket_begin(rows, buckets, bucket) - first,
                                            neo__bucket_begin(rows, buckets, bucket + 1) - first, col,
                                            tree.n, NEO__FN(part_push)(&tree, bucket));
            }
            while (tree.depth > 1) NEO__FN(part_join)(&tree);
            float *to = a->out + b * a->out_stride + col;
            for (int64_t c = 0; c < tree.n; c++) {
                float x = buckets == 1 ? sum[c] : sum[c] + 0.0f;
                to[c] = a->mean && k_end - k > 1 ? x / (float)(k_end - k) : x;
            }
        }
    }
}

/* ---- the lookup of ids that are all inside, in one bucket ---- */

#if NEO__PASS != NEO__PASS_SCALAR
/* Narrow rows: a bag, n vectors of columns from col on. An id without a weight has weight 1, which
   rounds as the sum does. Ids before fetch_end fetch the row `ahead` of them. */
#define NEO__X_FMA_F16(i) s##i = NEO__FMA(w, NEO__LOAD_F16(row + (i)*NEO__W * 2), s##i);
#define NEO__X_FMA_BF16(i)                                                                        \
    s##i = NEO__FMA(w, NEO__AS_F(NEO__SHLI(NEO__LOAD_H(row + (i)*NEO__W * 2), 16)), s##i);
#define NEO__X_FMA_I8(i)                                                                          \
    s##i = NEO__FMA(w, NEO__FMA(NEO__TO_F(NEO__LOAD_B(row + (i)*NEO__W)), scale, bias), s##i);
#define NEO__BAG_NARROW(N, EACH)                                                                  \
    static NEO__NOINLINE void NEO__FN(bag_narrow_##N)(const neo__bag_lookup *a, int64_t b,        \
                                                      int64_t col, int64_t ahead,                 \
                                                      int64_t fetch_end) {                        \
        const neo__bag_rows *t = a->store;                                                        \
        int64_t k = a->offsets[b], k_end = a->offsets[b + 1], length = k_end - k;                 \
        int64_t skip = t->dtype == NEO_I8 ? col : 2 * col;                                        \
        float *to = a->out + b * a->out_stride + col;                                             \
        EACH(NEO__X_ZERO)                                                                         \
        for (; k < k_end; k++) {                                                                  \
            int64_t id = neo__jagged_id(a->ids, a->is_i32, k);                                    \
            const char *row = t->data + id * t->row_bytes + skip;                                 \
            NEO__VF w = NEO__SET(a->weights ? a->weights[k] : 1.0f);                              \
            if (k < fetch_end)                                                                    \
                NEO__FN(bag_fetch_id)(t, neo__jagged_id(a->ids, a->is_i32, k + ahead));           \
            if (t->dtype == NEO_F16) {                                                            \
                EACH(NEO__X_FMA_F16)                                                              \
            } else if (t->dtype == NEO_BF16) {                                                    \
                EACH(NEO__X_FMA_BF16)                                                             \
            } else {                                                                              \
                NEO__VF scale = NEO__SET(t->scale[2 * id]), bias = NEO__SET(t->scale[2 * id + 1]); \
                EACH(NEO__X_FMA_I8)                                                               \
            }                                                                                     \
        }                                                                                         \
        if (a->mean && length > 1) {                                                              \
            NEO__VF w = NEO__SET((float)length);                                                  \
            EACH(NEO__X_DIV)                                                                      \
        }                                                                                         \
        EACH(NEO__X_STORE)                                                                        \
    }
NEO__BAG_NARROW(4, NEO__EACH4)
NEO__BAG_NARROW(1, NEO__EACH1)
static NEO__NOINLINE void NEO__FN(bag_pool_narrow)(const neo__bag_lookup *a) {
    int64_t ahead = NEO__FN(bag_ahead)(a->store->row_bytes / 4);
    for (int64_t b = 0; b < a->bags; b++) {
        int64_t col = 0, k = a->offsets[b], k_end = a->offsets[b + 1];
        int64_t fetch_end = k_end <= a->offsets[a->bags] - ahead ? k_end : -1;
        if (fetch_end < 0) NEO__FN(bag_fetch_ahead)(a, a->is_i32, k + ahead, k_end + ahead);
        for (; col + 4 * NEO__W <= a->dim; col += 4 * NEO__W, fetch_end = -1)
            NEO__FN(bag_narrow_4)(a, b, col, ahead, fetch_end);
        for (; col + NEO__W <= a->dim; col += NEO__W, fetch_end = -1)
            NEO__FN(bag_narrow_1)(a, b, col, ahead, fetch_end);
        if (col == a->dim) continue;
        float *to = a->out + b * a->out_stride;
        NEO__FN(bag_sum_rows)(a, k, k_end, 0, a->rows, col, a->dim - col, to + col);
        for (; col < a->dim && a->mean && k_end - k > 1; col++) to[col] /= (float)(k_end - k);
    }
}
#else
static void NEO__FN(bag_pool_narrow)(const neo__bag_lookup *a) { NEO__FN(bag_pool_careful)(a); }
#endif

static void NEO__FN(bag_pool)(const neo__bag_lookup *a) {
    int64_t dim = a->dim;
    if (!a->table) {
        NEO__FN(bag_pool_narrow)(a);
        return;
    }
#if NEO__PASS != NEO__PASS_SCALAR
    switch (dim) {
    case 8 * NEO__W: NEO__FN(bag_rows_8)(a); return;
    case 4 * NEO__W: NEO__FN(bag_rows_4)(a); return;
    case 2 * NEO__W: NEO__FN(bag_rows_2)(a); return;
    case NEO__W: NEO__FN(bag_rows_1)(a); return;
    default: break;
    }
#endif
    for (int64_t b = 0; b < a->bags; b++) {
        int64_t col = 0;
        for (; col + 8 * NEO__W <= dim; col += 8 * NEO__W) NEO__FN(bag_chunk_8)(a, b, col);
        if (col + 4 * NEO__W <= dim) NEO__FN(bag_chunk_4)(a, b, col), col += 4 * NEO__W;
        if (col + 2 * NEO__W <= dim) NEO__FN(bag_chunk_2)(a, b, col), col += 2 * NEO__W;
        if (col + NEO__W <= dim) NEO__FN(bag_chunk_1)(a, b, col), col += NEO__W;
        if (col < dim) NEO__FN(bag_chunk_rest)(a, b, col);
    }
}

/* ---- NEO_POOL_NONE, gradients of per-id weights, packing of gradients ---- */
static void NEO__FN(bag_copy)(const neo__bag_lookup *a) {
    int64_t dim = a->dim, ahead = NEO__FN(bag_ahead)(dim), end = a->offsets[a->bags];
    float *to = a->out;
    for (int64_t k = a->offsets[0]; k < end; k++, to += a->out_stride) {
        int64_t id = k + ahead < end ? neo__jagged_id(a->ids, a->is_i32, k + ahead) : -1;
        if (id >= 0 && id < a->rows) NEO__FN(bag_fetch_id)(a->store, id);
        id = NEO__FN(bag_clamp)(a, neo__jagged_id(a->ids, a->is_i32, k));
        const float *row = id < 0 ? to : NEO__FN(bag_row)(a, id, 0, dim, to);
        NEO__VF w = NEO__SET(a->weights ? a->weights[k] : 1.0f);
        for (int64_t c = 0; c < dim; c += NEO__W) {
            NEO__VF x = id < 0 ? NEO__SET(0.0f) : NEO__FN(load_left)(row + c, dim - c);
            NEO__FN(store_left)(to + c, id >= 0 && a->weights ? NEO__MUL(w, x) : x, dim - c);
        }
    }
}

/* sum + the sum of x[i] y[i]: products rounded, blocks of 16 by the fixed tree, blocks in order. */
NEO__INLINE float NEO__FN(row_dot_on)(float sum, const float *x, const float *y, int64_t n) {
    float q[16];
    for (; n >= 16; x += 16, y += 16, n -= 16) {
        for (int i = 0; i < 16; i += NEO__W)
            NEO__STORE(q + i, NEO__MUL(NEO__LOAD(x + i), NEO__LOAD(y + i)));
        sum += NEO__TREE16(q);
    }
    if (n > 0) {
        for (int64_t i = 0; i < 16; i++) q[i] = i < n ? x[i] * y[i] : 0.0f;
        sum += NEO__TREE16(q);
    }
    return sum;
}

NEO__INLINE float NEO__FN(row_dot_in)(const float *x, const float *y, int64_t n) {
    return NEO__FN(row_dot_on)(0.0f, x, y, n);
}
static NEO__NOINLINE float NEO__FN(row_dot)(float sum, const float *x, const float *y, int64_t n) {
    return NEO__FN(row_dot_on)(sum, x, y, n);
}

static void NEO__FN(row_blocks)(const float *x, const float *y, int64_t n, float *out) {
    for (; n > 0; x += 16, y += 16, n -= 16)
        *out++ = NEO__FN(row_dot_in)(x, y, NEO__MIN(n, (int64_t)16));
}
/* A sum over a row, the next that its step asks for. */
typedef struct NEO__FN(row_sums) {
    const neo__bag_cut *cut; /* NULL: the row is whole */
    int64_t row;             /* of the cut's */
    int next;
} NEO__FN(row_sums);
NEO__INLINE float NEO__FN(row_sum)(NEO__FN(row_sums) * s, const float *x, const float *y, int64_t n) {
    const neo__bag_cut *cut = s->cut;
    if (!cut) return NEO__FN(row_dot)(0.0f, x, y, n);
    int i = s->next++;
    if (i < cut->have) return cut->total[i * cut->rows + s->row];
    if (i < cut->have + cut->want)
        NEO__FN(row_blocks)
        (x, y, n, cut->blocks + ((i - cut->have) * cut->rows + s->row) * cut->blocks_per_row);
    return 1.0f;
}
NEO__INLINE float NEO__FN(row_mean)(NEO__FN(row_sums) * s, const float *g, int64_t n) {
    return NEO__FN(row_sum)(s, g, g, n) / (s->cut ? s->cut->dim : (float)n);
}

/* A row of a lookup . d. */
static NEO__NOINLINE float NEO__FN(bag_dot)(const neo__bag_lookup *a, int64_t id, const float *d) {
    enum { WIDTH = 256 };
    float room[WIDTH], sum = 0.0f;
    if (a->table) return NEO__FN(row_dot)(0.0f, d, a->table + id * a->dim, a->dim);
    for (int64_t c = 0; c < a->dim; c += WIDTH) {
        int64_t n = NEO__MIN(a->dim - c, (int64_t)WIDTH);
        NEO__FN(rows_decode)(a->store, id, c, n, room);
        sum = NEO__FN(row_dot)(sum, d + c, room, n);
    }
    return sum;
}
static void NEO__FN(bag_weight_grad)(const neo__bag_lookup *a, float *dweights) {
    int64_t ahead = NEO__FN(bag_ahead)(a->dim), end = a->offsets[a->bags], first = a->offsets[0];
    for (int64_t b = 0; b < a->bags; b++) {
        int64_t length = a->offsets[b + 1] - a->offsets[b];
        for (int64_t k = a->offsets[b]; k < a->offsets[b + 1]; k++) {
            int64_t id = k + ahead < end ? neo__jagged_id(a->ids, a->is_i32, k + ahead) : -1;
            if (id >= 0 && id < a->rows) NEO__FN(bag_fetch_id)(a->store, id);
            id = NEO__FN(bag_clamp)(a, neo__jagged_id(a->ids, a->is_i32, k));
            const float *d = a->dout + (a->pooled ? b : k - first) * a->out_stride;
            float sum = id < 0 ? 0.0f : NEO__FN(bag_dot)(a, id, d);
            dweights[k - first] = a->mean && length > 1 ? sum / (float)length : sum;
        }
    }
}

static void NEO__FN(bag_pack)(float *to, int64_t to_stride, const float *from, int64_t from_stride,
                              int64_t bags, int64_t dim, const int64_t *offsets) {
    for (int64_t b = 0; b < bags; b++, to += to_stride, from += from_stride) {
        int64_t length = offsets ? offsets[b + 1] - offsets[b] : 1;
        if (length == 0) continue;
        NEO__VF w = NEO__SET((float)length);
        for (int64_t c = 0; c < dim; c += NEO__W) {
            NEO__VF x = NEO__FN(load_left)(from + c, dim - c);
            NEO__FN(store_left)(to + c, length > 1 ? NEO__DIV(x, w) : x, dim - c);
        }
    }
}

/* ---- the optimizers: one merged gradient g of one row; >>bag-optim has the arithmetic in words ---- */

/* Clip, L2 decay into g, decoupled decay of w. */
static NEO__NOINLINE void NEO__FN(bag_adjust)(const neo__bag_step *o, float *w, float *g,
                                              int64_t n) {
    NEO__VF clip = NEO__SET(o->clip), low = NEO__SET(-o->clip), l2 = NEO__SET(o->l2),
            keep = NEO__SET(o->keep);
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__FN(load_left)(g + c, n - c), y = NEO__FN(load_left)(w + c, n - c);
        if (o->clip > 0.0f) x = NEO__MIN_(clip, NEO__MAX_(low, x));
        if (o->l2 != 0.0f) x = NEO__FMA(l2, y, x);
        NEO__FN(store_left)(g + c, x, n - c);
        if (o->keep != 1.0f) NEO__FN(store_left)(w + c, NEO__MUL(keep, y), n - c);
    }
}
/* w -= rate x */
NEO__INLINE void NEO__FN(bag_descend_in)(float rate, const float *x, float *w, int64_t n) {
    NEO__VF r = NEO__SET(rate);
    for (int64_t c = 0; c < n; c += NEO__W)
        NEO__FN(store_left)
        (w + c, NEO__FNMA(r, NEO__FN(load_left)(x + c, n - c), NEO__FN(load_left)(w + c, n - c)),
         n - c);
}
static NEO__NOINLINE void NEO__FN(bag_descend)(float rate, const float *x, float *w, int64_t n) {
    NEO__FN(bag_descend_in)(rate, x, w, n);
}
static NEO__NOINLINE void NEO__FN(bag_adagrad)(const neo__bag_step *o, float *w, const float *g,
                                               float *m, int64_t n) {
    NEO__VF rate = NEO__SET(o->lr), eps = NEO__SET(o->eps);
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__FN(load_left)(g + c, n - c);
        NEO__VF s = NEO__FMA(x, x, NEO__FN(load_left)(m + c, n - c));
        NEO__FN(store_left)(m + c, s, n - c);
        x = NEO__DIV(x, NEO__ADD(NEO__SQRT(s), eps));
        NEO__FN(store_left)(w + c, NEO__FNMA(rate, x, NEO__FN(load_left)(w + c, n - c)), n - c);
    }
}
static NEO__NOINLINE void NEO__FN(bag_rowwise_adagrad)(const neo__bag_step *o, NEO__FN(row_sums) * sums,
                                                       float *w, const float *g, float *s, int64_t n) {
    *s += NEO__FN(row_mean)(sums, g, n);
    NEO__FN(bag_descend)(o->lr / (sqrtf(*s) + o->eps), g, w, n);
}
/* u = the bias-corrected direction of Adam; v is a row, or one float of the row (partial). */
static NEO__NOINLINE void NEO__FN(bag_adam_direction)(const neo__bag_step *o, NEO__FN(row_sums) * sums,
                                                      const float *g, float *m, float *v, float *u,
                                                      int64_t n, int partial) {
    NEO__VF b1 = NEO__SET(o->beta1), r1 = NEO__SET(o->rest1), b2 = NEO__SET(o->beta2);
    NEO__VF r2 = NEO__SET(o->rest2), f1 = NEO__SET(o->fix1), f2 = NEO__SET(o->fix2),
            eps = NEO__SET(o->eps);
    NEO__VF below = eps;
    if (partial) {
        *v = neo__fma(o->beta2, *v, o->rest2 * NEO__FN(row_mean)(sums, g, n));
        below = NEO__SET(sqrtf(*v * o->fix2) + o->eps);
    }
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF x = NEO__FN(load_left)(g + c, n - c);
        NEO__VF a = NEO__FMA(b1, NEO__FN(load_left)(m + c, n - c), NEO__MUL(r1, x));
        NEO__FN(store_left)(m + c, a, n - c);
        if (!partial) {
            NEO__VF q =
                NEO__FMA(b2, NEO__FN(load_left)(v + c, n - c), NEO__MUL(NEO__MUL(r2, x), x));
            NEO__FN(store_left)(v + c, q, n - c);
            below = NEO__ADD(NEO__SQRT(NEO__MUL(q, f2)), eps);
        }
        NEO__FN(store_left)(u + c, NEO__DIV(NEO__MUL(a, f1), below), n - c);
    }
}
static NEO__NOINLINE void NEO__FN(bag_lamb)(const neo__bag_step *o, NEO__FN(row_sums) * sums, float *w,
                                            float *u, int64_t n) {
    NEO__VF decay = NEO__SET(o->decay);
    for (int64_t c = 0; c < n; c += NEO__W)
        NEO__FN(store_left)
        (u + c,
         NEO__FMA(decay, NEO__FN(load_left)(w + c, n - c), NEO__FN(load_left)(u + c, n - c)),
         n - c);
    float w_norm = sqrtf(NEO__FN(row_sum)(sums, w, w, n));
    float u_norm = sqrtf(NEO__FN(row_sum)(sums, u, u, n));
    float trust = w_norm > 0.0f && u_norm > 0.0f ? w_norm / u_norm : 1.0f;
    NEO__FN(bag_descend)(o->lr * trust, u, w, n);
}
static NEO__NOINLINE void NEO__FN(bag_lars)(const neo__bag_step *o, NEO__FN(row_sums) * sums, float *w,
                                            const float *g, float *m, int64_t n) {
    float w_norm = sqrtf(NEO__FN(row_sum)(sums, w, w, n));
    float g_norm = sqrtf(NEO__FN(row_sum)(sums, g, g, n));
    float below = neo__fma(o->decay, w_norm, g_norm);
    float rate = below > 0.0f ? o->lr * o->eta * w_norm / below : 0.0f;
    NEO__VF a = NEO__SET(rate), decay = NEO__SET(o->decay), mu = NEO__SET(o->momentum);
    for (int64_t c = 0; c < n; c += NEO__W) {
        NEO__VF y = NEO__FN(load_left)(w + c, n - c);
        NEO__VF d = NEO__MUL(a, NEO__FMA(decay, y, NEO__FN(load_left)(g + c, n - c)));
        d = NEO__FMA(mu, NEO__FN(load_left)(m + c, n - c), d);
        NEO__FN(store_left)(m + c, d, n - c);
        NEO__FN(store_left)(w + c, NEO__SUB(y, d), n - c);
    }
}
static NEO__NOINLINE void NEO__FN(bag_cut_norm)(float max_norm, NEO__FN(row_sums) * sums, float *w,
                                                int64_t n) {
    float norm = sqrtf(NEO__FN(row_sum)(sums, w, w, n));
    if (!(norm > max_norm)) return;
    NEO__VF scale = NEO__SET(max_norm / norm);
    for (int64_t c = 0; c < n; c += NEO__W)
        NEO__FN(store_left)(w + c, NEO__MUL(scale, NEO__FN(load_left)(w + c, n - c)), n - c);
}

/* One row: its weights w and states m, v by its gradient g. spare: n floats. */
static NEO__NOINLINE void NEO__FN(bag_step_row)(const neo__bag_step *o, NEO__FN(row_sums) * sums, float *w,
                                                float *m, float *v, float *g, float *spare, int64_t n) {
    if (o->adjusts) NEO__FN(bag_adjust)(o, w, g, n);
    switch (o->kind) {
    case NEO_BAG_SGD: NEO__FN(bag_descend)(o->lr, g, w, n); break;
    case NEO_BAG_ADAGRAD: NEO__FN(bag_adagrad)(o, w, g, m, n); break;
    case NEO_BAG_ROWWISE_ADAGRAD: NEO__FN(bag_rowwise_adagrad)(o, sums, w, g, m, n); break;
    case NEO_BAG_ADAM:
    case NEO_BAG_PARTIAL_ADAM:
        NEO__FN(bag_adam_direction)(o, sums, g, m, v, spare, n, o->kind == NEO_BAG_PARTIAL_ADAM);
        NEO__FN(bag_descend)(o->lr, spare, w, n);
        break;
    case NEO_BAG_LAMB:
    case NEO_BAG_PARTIAL_LAMB:
        NEO__FN(bag_adam_direction)(o, sums, g, m, v, spare, n, o->kind == NEO_BAG_PARTIAL_LAMB);
        NEO__FN(bag_lamb)(o, sums, w, spare, n);
        break;
    case NEO_BAG_LARS_SGD: NEO__FN(bag_lars)(o, sums, w, g, m, n); break;
    case NEO_BAG_OPTIM_COUNT: break;
    }
    if (o->max_norm > 0.0f) NEO__FN(bag_cut_norm)(o->max_norm, sums, w, n);
}
NEO__INLINE float *NEO__FN(bag_state)(const neo__bag_update *k, int i, int64_t row) {
    return k->state[i] ? k->state[i] + row * k->state_dim[i] : NULL;
}
/* word: the random words by which a narrow row is rounded, or NULL. */
static NEO__NOINLINE void NEO__FN(bag_step)(const neo__bag_update *k, int64_t row, float *g,
                                            float *spare, const float *word) {
    NEO__FN(row_sums) sums = {NULL, 0, 0};
    float *w = k->weight ? k->weight + row * k->dim : k->scratch + neo__bag_scratch(k->dim);
    if (!k->weight) NEO__FN(rows_decode)(k->store, row, 0, k->dim, w);
    NEO__FN(bag_step_row)
    (&k->step, &sums, w, NEO__FN(bag_state)(k, 0, row), NEO__FN(bag_state)(k, 1, row), g, spare,
     k->dim);
    if (!k->weight) NEO__FN(rows_encode)(k->store, row, w, word);
}
/* Rows of a cut table. To ask for sums, the step is taken on a copy of the row. */
static void NEO__FN(bag_update_cut)(const neo__bag_update *k, const neo__bag_cut *cut) {
    int64_t n = k->dim;
    float *g = k->scratch, *spare = g + n;
    for (int64_t i = 0; i < k->count; i++) {
        uint64_t low = k->records[i] & (((uint64_t)1 << k->low_bits) - 1);
        int64_t row = (int64_t)(k->records[i] >> k->low_bits);
        float *to[3] = {NULL, NEO__FN(bag_state)(k, 0, row), NEO__FN(bag_state)(k, 1, row)};
        NEO__FN(row_sums) sums = {cut, i, 0};
        to[0] = k->weight ? k->weight + row * n : k->scratch + neo__bag_scratch(n);
        if (!k->weight) NEO__FN(rows_decode)(k->store, row, 0, n, to[0]);
        for (int j = k->weight ? 0 : 1; j < 3 && cut->want; j++) {
            int64_t floats = j == 0 ? n : k->state_dim[j - 1];
            float *copy = k->scratch + (2 + j) * n;
            if (!to[j]) continue;
            memcpy(copy, to[j], (size_t)floats * sizeof *copy);
            to[j] = copy;
        }
        memcpy(g, k->grad + k->grad_row[low], (size_t)n * sizeof *g);
        NEO__FN(bag_step_row)(&k->step, &sums, to[0], to[1], to[2], g, spare, n);
        if (k->weight || cut->want) continue;
        float *word = k->round ? to[0] + neo__bag_room(n) : NULL;
        if (word) NEO__FN(rows_words)(k->store, &row, 1, k->round, word);
        NEO__FN(rows_encode)(k->store, row, to[0], word);
    }
}

/* ---- merging ---- */

/* The gradient row and weight of record i. */
NEO__INLINE const float *NEO__FN(bag_grad)(const neo__bag_update *u, int64_t i, float *weight) {
    uint64_t low = u->records[i] & (((uint64_t)1 << u->low_bits) - 1);
    *weight = u->grad_weight ? u->grad_weight[low] : 1.0f;
    return u->grad + (u->grad_row ? u->grad_row[low] : (int64_t)low) * u->grad_stride;
}
/* to = the sum of records [i, end), one row in one leaf, in order, + 0.0f; a chunk of columns. */
#define NEO__BAG_MERGE(N, EACH)                                                                   \
    NEO__INLINE void NEO__FN(bag_merge_in_##N)(const neo__bag_update *u, int64_t i, int64_t end,  \
                                               int64_t col, float *to) {                          \
        float weight;                                                                             \
        EACH(NEO__X_ZERO)                                                                         \
        if (!u->grad_row) {                                                                       \
            const float *grad = u->grad + col;                                                    \
            const uint64_t *record = u->records, mask = ((uint64_t)1 << u->low_bits) - 1;         \
            int64_t stride = u->grad_stride;                                                      \
            for (; i < end; i++) {                                                                \
                const float *row = grad + (int64_t)(record[i] & mask) * stride;                   \
                EACH(NEO__X_ADD)                                                                  \
            }                                                                                     \
        }                                                                                         \
        for (; i < end; i++) {                                                                    \
            const float *row = NEO__FN(bag_grad)(u, i, &weight) + col;                            \
            NEO__VF w = NEO__SET(weight);                                                         \
            EACH(NEO__X_FMA)                                                                      \
        }                                                                                         \
        NEO__VF w = NEO__SET(0.0f);                                                               \
        EACH(NEO__X_ADDW)                                                                         \
        EACH(NEO__X_STORE)                                                                        \
    }                                                                                             \
    static NEO__NOINLINE void NEO__FN(bag_merge_##N)(const neo__bag_update *u, int64_t i,         \
                                                     int64_t end, int64_t col, float *to) {       \
        NEO__FN(bag_merge_in_##N)(u, i, end, col, to);                                            \
    }
NEO__BAG_MERGE(8, NEO__EACH8)
NEO__BAG_MERGE(4, NEO__EACH4)
NEO__BAG_MERGE(2, NEO__EACH2)
NEO__BAG_MERGE(1, NEO__EACH1)
static NEO__NOINLINE void NEO__FN(bag_merge_rest)(const neo__bag_update *u, int64_t i, int64_t end,
                                                  int64_t col, float *to) {
    int64_t n = u->dim - col;
    (void)n;
    NEO__VF s = NEO__SET(0.0f);
    for (; i < end; i++) {
        float weight;
        const float *row = NEO__FN(bag_grad)(u, i, &weight) + col;
        NEO__VF x = NEO__LOADN(row, n);
        s = u->grad_weight ? NEO__FMA(NEO__SET(weight), x, s) : NEO__ADD(s, x);
    }
    s = NEO__ADD(s, NEO__SET(0.0f));
    NEO__STOREN(to, s, n);
}
/* Columns [col, col + 8 vectors), or what there is of them. */
static NEO__NOINLINE void NEO__FN(bag_merge_8_or_less)(const neo__bag_update *u, int64_t i,
                                                       int64_t end, int64_t col, float *to) {
    int64_t left = u->dim - col;
    if (left >= 8 * NEO__W) {
        NEO__FN(bag_merge_8)(u, i, end, col, to);
        return;
    }
    if (left & (4 * NEO__W)) {
        NEO__FN(bag_merge_4)(u, i, end, col, to);
        col += 4 * NEO__W, to += 4 * NEO__W;
    }
    if (left & (2 * NEO__W)) {
        NEO__FN(bag_merge_2)(u, i, end, col, to);
        col += 2 * NEO__W, to += 2 * NEO__W;
    }
    if (left & NEO__W) {
        NEO__FN(bag_merge_1)(u, i, end, col, to);
        col += NEO__W, to += NEO__W;
    }
    if (col < u->dim) NEO__FN(bag_merge_rest)(u, i, end, col, to);
}

/* Records [i, end) of one row that lie in several leaves. */
static NEO__NOINLINE void NEO__FN(bag_merge_leaves)(const neo__bag_update *u, int64_t i,
                                                    int64_t end, float *g) {
    float sum[NEO__PART_DEPTH * 8 * NEO__W];
    uint64_t mask = ((uint64_t)1 << u->low_bits) - 1;
    for (int64_t col = 0; col < u->dim; col += 8 * NEO__W) {
        neo__part_tree tree;
        tree.sum = sum;
        tree.n = NEO__MIN(u->dim - col, (int64_t)(8 * NEO__W));
        tree.stride = 8 * NEO__W;
        tree.depth = 0;
        int64_t at = i;
        while (at < end) {
            int64_t leaf = neo__leaf_of(u->leaf, u->leaf_count, (int64_t)(u->records[at] & mask));
            int64_t stop = at + 1;
            while (stop < end && (int64_t)(u->records[stop] & mask) < u->leaf[leaf + 1]) stop++;
            NEO__FN(bag_merge_8_or_less)(u, at, stop, col, NEO__FN(part_push)(&tree, leaf));
            at = stop;
        }
        while (tree.depth > 1) NEO__FN(part_join)(&tree);
        memcpy(g + col, sum, (size_t)tree.n * sizeof *g);
    }
}

/* Fetch the weights and state of a row into the second-level cache: the first has few lines on
   their way at a time, and the gradients need them. */
NEO__INLINE void NEO__FN(bag_fetch_state)(const neo__bag_update *u, int64_t row) {
    const char *w = u->store->data + row * u->store->row_bytes;
    for (int64_t c = 0; c < u->store->row_bytes; c += 64) __builtin_prefetch(w + c, 1, 2);
    if (u->store->scale) __builtin_prefetch(u->store->scale + 2 * row, 1, 2);
    for (int k = 0; k < 2 && u->state[k]; k++) {
        const float *m = u->state[k] + row * u->state_dim[k];
        for (int64_t c = 0; c < u->state_dim[k]; c += 16) __builtin_prefetch(m + c, 1, 2);
    }
}

/* The walk over the records: `at` is the next one. Two cursors run ahead: `rows` fetches weights,
   a number of rows ahead (not of records: hot rows have long runs), `grads` gradient rows, a number
   of records ahead. */
typedef struct NEO__FN(bag_walk) {
    int64_t at, rows, waiting, grads, ahead;
    uint64_t last;
} NEO__FN(bag_walk);
NEO__INLINE void NEO__FN(bag_walk_fetch)(const neo__bag_update *u, NEO__FN(bag_walk) * k,
                                         int64_t end) {
    for (; k->waiting < k->ahead && k->rows < u->count; k->rows++) {
        uint64_t next = u->records[k->rows] >> u->low_bits;
        if (next == k->last) continue;
        k->last = next;
        k->waiting++;
        NEO__FN(bag_fetch_state)(u, (int64_t)next);
    }
    k->waiting--;
    if (!u->fetch_grads) return;
    float weight;
    for (int64_t stop = NEO__MIN(end + k->ahead, u->count); k->grads < stop; k->grads++)
        NEO__FN(bag_fetch_row)(NEO__FN(bag_grad)(u, k->grads, &weight), u->dim);
}
/* Records [at, end) are of one row; whether they lie in one leaf. */
NEO__INLINE int NEO__FN(bag_one_leaf)(const neo__bag_update *u, int64_t at, int64_t end) {
    if (u->leaf_count == 1 || end - at == 1) return 1;
    uint64_t mask = ((uint64_t)1 << u->low_bits) - 1;
    int leaf = neo__leaf_of(u->leaf, u->leaf_count, (int64_t)(u->records[at] & mask));
    return (int64_t)(u->records[end - 1] & mask) < u->leaf[leaf + 1];
}
/* Merge the next rows, `most` at most: where their records begin to first, their gradients to g. Returns how
   many. chunks: a row is this many vectors, or 0: any length. */
NEO__INLINE int64_t NEO__FN(bag_merge_group)(const neo__bag_update *u, NEO__FN(bag_walk) * k,
                                             int64_t most, int64_t *first, float *g, int chunks) {
    int64_t n = 0;
    for (; n < most && k->at < u->count; n++, g += u->dim) {
        uint64_t key = u->records[k->at] >> u->low_bits;
        int64_t at = k->at, end = at + 1;
        while (end < u->count && u->records[end] >> u->low_bits == key) end++;
        NEO__FN(bag_walk_fetch)(u, k, end);
        first[n] = at;
        k->at = end;
        if (!NEO__FN(bag_one_leaf)(u, at, end)) NEO__FN(bag_merge_leaves)(u, at, end, g);
        else if (chunks == 8) NEO__FN(bag_merge_in_8)(u, at, end, 0, g);
        else if (chunks == 4) NEO__FN(bag_merge_in_4)(u, at, end, 0, g);
        else if (chunks == 2) NEO__FN(bag_merge_in_2)(u, at, end, 0, g);
        else if (chunks == 1) NEO__FN(bag_merge_in_1)(u, at, end, 0, g);
        else
            for (int64_t col = 0; col < u->dim; col += 8 * NEO__W)
                NEO__FN(bag_merge_8_or_less)(u, at, end, col, g + col);
    }
    return n;
}
/* Row-wise Adagrad on a group: sums, then rates, then rows, so that rows overlap. */
NEO__INLINE void NEO__FN(bag_rowwise_group)(const neo__bag_update *u, const int64_t *row,
                                            int64_t count, const float *g, int64_t n) {
    const neo__bag_step *o = &u->step;
    float rate[NEO__BAG_GROUP], s[NEO__BAG_GROUP];
    for (int64_t r = 0; r < count; r++)
        s[r] = u->state[0][row[r]] + NEO__FN(row_dot_in)(g + r * n, g + r * n, n) / (float)n;
    for (int64_t r = 0; r < count; r += NEO__W) {
        NEO__VF x = NEO__ADD(NEO__SQRT(NEO__FN(load_left)(s + r, count - r)), NEO__SET(o->eps));
        NEO__FN(store_left)(rate + r, NEO__DIV(NEO__SET(o->lr), x), count - r);
    }
    for (int64_t r = 0; r < count; r++) {
        u->state[0][row[r]] = s[r];
        NEO__FN(bag_descend_in)(rate[r], g + r * n, u->weight + row[r] * n, n);
    }
}
static NEO__NOINLINE void NEO__FN(bag_step_group)(const neo__bag_update *u, const int64_t *row,
                                                  int64_t count, float *g) {
    if (u->weight && u->step.kind == NEO_BAG_ROWWISE_ADAGRAD && !u->step.adjusts &&
        !(u->step.max_norm > 0.0f)) {
#if NEO__PASS != NEO__PASS_SCALAR
        switch (u->dim) { /* short rows gain from a known length */
        case 16: NEO__FN(bag_rowwise_group)(u, row, count, g, 16); return;
        case 64: NEO__FN(bag_rowwise_group)(u, row, count, g, 64); return;
        default: break;
        }
#endif
        NEO__FN(bag_rowwise_group)(u, row, count, g, u->dim);
        return;
    }
    float *spare = u->scratch + neo__bag_group(u->dim) * u->dim;
    float *word = NULL;
    if (!u->weight && u->round && count > 0) {
        word = u->scratch + neo__bag_scratch(u->dim) + neo__bag_room(u->dim);
        NEO__FN(rows_words)(u->store, row, count, u->round, word);
    }
    for (int64_t r = 0; r < count; r++) {
        NEO__FN(bag_step)(u, row[r], g + r * u->dim, spare, word);
        if (word) word += 4 * neo__bag_blocks_of(u->store, row[r]);
    }
}
static NEO__NOINLINE void NEO__FN(bag_keep_group)(const neo__bag_update *u, const int64_t *first,
                                                  int64_t count, const float *g) {
    for (int64_t r = 0; r < count; r++, g += u->dim) {
        int64_t at = u->keep_at[first[r]];
        float *to = u->keep_to + (at >> 1);
        for (int64_t c = 0; c < u->dim; c++) to[c] = at & 1 ? g[c] : to[c] + g[c];
    }
}
NEO__INLINE void NEO__FN(bag_update_as)(const neo__bag_update *u, int chunks) {
    int64_t row[NEO__BAG_GROUP], most = neo__bag_group(u->dim);
    NEO__FN(bag_walk) walk = {0, 0, 0, 0, 0, ~(uint64_t)0};
    walk.ahead = 2 * NEO__FN(bag_ahead)(u->dim);
    for (int64_t count = 1; count > 0;) {
        count = NEO__FN(bag_merge_group)(u, &walk, most, row, u->scratch, chunks);
        if (u->keep_at) {
            NEO__FN(bag_keep_group)(u, row, count, u->scratch);
            continue;
        }
        for (int64_t r = 0; r < count; r++) row[r] = (int64_t)(u->records[row[r]] >> u->low_bits);
        NEO__FN(bag_step_group)(u, row, count, u->scratch);
    }
}
static void NEO__FN(bag_update)(const neo__bag_update *u) {
#if NEO__PASS != NEO__PASS_SCALAR
    switch (u->dim) {
    case 8 * NEO__W: NEO__FN(bag_update_as)(u, 8); return;
    case 4 * NEO__W: NEO__FN(bag_update_as)(u, 4); return;
    case 2 * NEO__W: NEO__FN(bag_update_as)(u, 2); return;
    case NEO__W: NEO__FN(bag_update_as)(u, 1); return;
    default: break;
    }
#endif
    NEO__FN(bag_update_as)(u, 0);
}

static const neo__bag_kernels NEO__FN(bag_kernels) = {
    NEO__FN(bag_pool),        NEO__FN(bag_pool_careful), NEO__FN(bag_copy),
    NEO__FN(bag_weight_grad), NEO__FN(bag_pack),         NEO__FN(bag_update),
    NEO__FN(bag_update_cut),  NEO__FN(row_blocks),       NEO__FN(rows_decode),
    NEO__FN(rows_encode),
};
#undef NEO__EACH1
#undef NEO__EACH2
#undef NEO__EACH4
#undef NEO__EACH8
#undef NEO__X_ZERO
#undef NEO__X_ADD
#undef NEO__X_FMA
#undef NEO__X_DIV
#undef NEO__X_ADDW
#undef NEO__X_STORE
#undef NEO__X_FETCH
#undef NEO__BAG_POOL
#undef NEO__BAG_NARROW
#undef NEO__X_FMA_F16
#undef NEO__X_FMA_BF16
#undef NEO__X_FMA_I8
#undef NEO__LANE_BLOCKS
#undef NEO__LOAD_B
#undef NEO__STORE_B
#undef NEO__LOAD_H
#undef NEO__STORE_H
#undef NEO__LOAD_F16
#undef NEO__BAG_SUM_ROWS
#undef NEO__BAG_MERGE

#undef NEO__ADD
#undef NEO__ADDI
#undef NEO__ANDI
#undef NEO__AND_M
#undef NEO__ANY
#undef NEO__AS_F
#undef NEO__AS_I
#undef NEO__DIV
#undef NEO__EQ
#undef NEO__EQI
#undef NEO__FMA
#undef NEO__FN
#undef NEO__FNMA
#undef NEO__GT
#undef NEO__GTI
#undef NEO__LANES
#undef NEO__LE
#undef NEO__LOAD
#undef NEO__LOADI
#undef NEO__LOADN
#undef NEO__LT
#undef NEO__MAX_
#undef NEO__MIN_
#undef NEO__MUL
#undef NEO__MULI
#undef NEO__ORI
#undef NEO__SELECT
#undef NEO__SELECTI
#undef NEO__SET
#undef NEO__SETI
#undef NEO__SHLI
#undef NEO__SHRI
#undef NEO__SQRT
#undef NEO__SRAI
#undef NEO__STORE
#undef NEO__STOREI
#undef NEO__STOREN
#undef NEO__SUB
#undef NEO__SUBI
#undef NEO__TO_F
#undef NEO__TO_I
#undef NEO__TREE16
#undef NEO__VF
#undef NEO__VI
#undef NEO__VM
#undef NEO__W
#undef NEO__XORI
#endif /* NEO__PASS */

/* ------------------------------------------------------------------------------------------------
   MIT License, Copyright (c) 2026 the neo contributors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
   documentation files (the "Software"), to deal in the Software without restriction, including without limitation
   the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and
   to permit persons to whom the Software is furnished to do so, subject to the following conditions: the above
   copyright notice and this permission notice shall be included in all copies or substantial portions of the
   Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
   LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT
   SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION
   OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
   DEALINGS IN THE SOFTWARE.
   ------------------------------------------------------------------------------------------------ */
