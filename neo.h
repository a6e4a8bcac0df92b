/* neo.h: training loops for recommendation models and other large models, in plain C.

   Two files to copy: it includes neo_kernels.h, its inner loops. They need a C11 or C++17 compiler,
   libc, libm and threads, and nothing else. MIT licence (at the end of the file).

   WHAT IT DOES
     - tensors, matrix products, MLPs, cross networks, dot interaction, FMs, norms, attention,
       losses, dense optimizers (as torch.optim)
     - jagged batches and embedding bags: many tables as one object, fused exact sparse optimizers
     - beside it: neo_run.h has metrics, progress, traces and a report, neo_state.h checkpoints,
       neo_data.h readers of training data
     - the same bits: with the same seed, data and numeric definition, weights and optimizer state
       are bit-identical for any number of threads and instruction set, and across kill and resume

   WHAT IT DOES NOT DO
     - no autograd: a layer is a pair neo_x_forward, neo_x_backward; write your own as one more
     - it never aborts, exits or prints: calls return a neo_status; neo_last_error() is the text
     - a training step allocates nothing: objects take all they need when created

   QUICK START
     In exactly one .c file of your program:
         #define NEO_IMPLEMENTATION
         #include "neo.h"
     In the others: #include "neo.h". Link with -lm -lpthread. A file of its own for these lines,
     neo.c, keeps the others quick to compile. README.md has a complete trainer of some 60 lines.

   GLOSSARY
     table, row      an embedding table is a matrix; a sparse id selects one row
     bag, pooling    the ids of one (feature, sample); their rows are summed or averaged
     jagged          a batch of bags of different lengths: offsets and ids
     leaf            a fixed part of a batch inside which gradients add in order; see >>leaves
     numeric definition   all that the bits depend on besides seed and data, as the number of leaves

   THREADS
     A context and the objects made from it belong to one thread at a time; distinct contexts are
     independent.

   A NEW OPERATION, x (example: the norms)
     1. >>layers        its public calls, neo_x_forward and neo_x_backward, with their comment
     2. struct neo_device, in >>deferred-answers: its row, neo_status (*x)(neo_device *, const
                        neo__x_call *); above it the record, neo__x_call: sizes, addresses,
                        distances between rows. Its name in NEO__CHECKED_LIST
     3. >>impl-x        the public calls check their tensors (neo__check_matrix, _leaves_resolve),
                        fill the record and end in NEO__RUN(ctx, fn, x, &call)
     4. below them      the CPU's neo__cpu_x: neo__cpu_run hands parts of the work to functions as
                        neo__norm_rows_part, between NEO__HOT_BEGIN and _END. Sums over samples walk
                        the leaves by neo__tree_push. Loops over columns are at >>kernels-vec
     5. >>impl-cpu      the row d->x = neo__cpu_x; >>impl-finite: neo__see_x, what it reads, writes
     6. neo_cuda.cuh    neo__cuda_x in a section of its own, over the same kernels (their _warp
                        forms), and its row in neo__cuda_table
     7. tests           a row in tests/operations.h, which compares the bits of
                        both devices; the numbers themselves in tests/core

   WHERE TO ADD (>>kernel... is in neo_kernels.h; budgets of lines: tests/build/sections.txt)
     an optimizer      for dense layers: neo_optim_kind (>>optim); its states, defaults, numbers and
                       step, which are switches over the kind (>>impl-optim); vec_x and its place in
                       neo__vec_kernels (>>kernel-types, >>kernels-vec); neo__cuda_optim_step
                       for tables: neo_bag_optim_kind (>>bags); its row in neo__bag_optims, and
                       neo__bag_step_make (>>bag-optim); bag_step_row (>>kernels-bags), which GPUs
                       run too; row_sums at >>impl-plan-model of neo_plan.h
                       tests: core/optim.c, bags/optim.c, cuda/dense.cpp; dlrm: model.h
     a row dtype       neo_dtype (>>tensor) and neo__dtypes; who asks for NEO_I8: the dtypes that
                       tables accept (>>impl-bags), row_load, row_store and their like
                       (>>kernels-bags), >>cuda-bags of neo_cuda.cuh; files: neo__st_dtypes
                       and neo__digest_part of neo_state.h; --rows-dtype: examples/train/dlrm
     a file format     for training data: neo_data.h; for tensors: >>safetensors, neo_state.h
     a collective      neo_comm.h; a way to shard tables: neo_plan.h; layers: neo_fsdp.h

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo.h is the map)
     calls     >>config >>status >>ctx >>leaves >>tensor >>random >>exact >>gemm >>params >>layers
               >>losses >>optim >>finite >>jagged >>bags >>wire
     types     >>shared >>lines >>device >>deferred-answers
     system    >>platform >>impl-status >>impl-fp >>impl-ctx >>impl-leaves >>isa >>impl-math
     dense     >>impl-tensor >>impl-random >>impl-exact >>impl-gemm >>impl-bf16 >>impl-linear
               >>impl-mlp >>impl-interact >>impl-activation >>impl-cross >>impl-norm
               >>impl-wukong >>impl-embedding >>impl-attention >>impl-losses >>impl-params
               >>impl-optim
     bags      >>impl-jagged >>bag-optim >>impl-bags >>impl-bags-forward >>impl-bags-backward
               >>impl-bags-keys >>impl-bags-calls
     device    >>impl-finite >>impl-exchange >>impl-cpu >>impl-spans
     neo_kernels.h  the loops over elements, rows and tiles, for each instruction set and GPUs
*/
#ifndef NEO_H
#define NEO_H

/* ---------------------------------------------------------------------------
   >>config

   Macros a user may define. "everywhere": in every file that includes neo.h; "implementation": only
   in the one file that defines NEO_IMPLEMENTATION.

     NEO_IMPLEMENTATION   implementation  emits the function bodies (exactly one file of a program)
     NEO_STATIC           everywhere      functions are static: a private copy in each file
     NEO_SHARED           everywhere      functions are exported from a shared object, or imported:
                                          in its neo.c, and in all files of the programs that call
                                          it (ld: "hidden symbol `neo_...' isn't defined": one of
                                          them is without it; "undefined reference": its neo.c is)
     NEO_ASSERT(x)        implementation  checks neo's own invariants; default: nothing
     NEO_SGEMM(...)       implementation  your BLAS for large f32 products; see >>gemm. Gives up the
                                          same-bits promise unless that BLAS keeps it.
     NEO_NO_SIMD          implementation  compile the scalar kernels only
     NEO_NO_COLD          implementation  optimize all code alike: compiles for twice as long
     NEO_INFERENCE        everywhere      only what predicting needs (neo_serve.h): no backward, no
                                          optimizer, loss, metric, reader, report, learning table;
                                          attention by softmax alone, without offsets and bias;
                                          parameters begin at 0; no check_finite. 150 KB by gcc -O2
   ------------------------------------------------------------------------ */
#if defined(NEO_INFERENCE) && (defined(__OPTIMIZE_SIZE__) || defined(__clang__)) &&                \
    !defined(NEO_NO_COLD)
#define NEO_NO_COLD /* code that runs once is smaller as what runs often is compiled */
#endif
/* Strict modes hide POSIX; in GNU modes nothing is defined, which would hide other names from your
   file. */
#if defined(__STRICT_ANSI__) && !defined(_WIN32) && !defined(_POSIX_C_SOURCE) &&                   \
    !defined(_GNU_SOURCE) && !defined(__cplusplus)
#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && defined(_FEATURES_H)
#error "under -std=c11 include neo.h before any system header, or define _POSIX_C_SOURCE=200809L"
#endif
#define _POSIX_C_SOURCE 200809L
#endif
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* what is not POSIX stays: flock, sysconf's number of cores */
#endif

#include <float.h>
#include <stddef.h>
#include <stdint.h>

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

/* Shared by the implementations of neo's headers. */
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
/* A zeroed variable, in C and in C++. gcc clears more than a line by an instruction that takes
   longer than a call; so it does not see the size. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
static inline size_t neo__size_unseen(size_t bytes) {
    if (bytes > 64) __asm__("" : "+r"(bytes));
    return bytes;
}
#else
#define neo__size_unseen(bytes) (bytes)
#endif
#define NEO__ZERO(type, name)                                                                      \
    type name;                                                                                     \
    memset(&name, 0, neo__size_unseen(sizeof name))
#ifdef __cplusplus
#define NEO__STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define NEO__STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/* NEO_EXACT_BEGIN .. NEO_EXACT_END, around functions: every + - * / in them is rounded as it is
   written. Else a compiler may make one fma of a * b + c where the machine has it (-march=native;
   AArch64), and a layer of your own has other bits there. At file scope, below all #include; they
   do not nest. -ffast-math, and clang's -ffp-contract=fast, override them. */
#if defined(__clang__)
#define NEO_EXACT_BEGIN _Pragma("STDC FP_CONTRACT OFF")
#define NEO_EXACT_END _Pragma("STDC FP_CONTRACT DEFAULT")
#elif defined(__CUDACC__) /* nvcc hands GCC's pragmas on to the host's compiler, and warns */
#define NEO_EXACT_BEGIN                                                                            \
    _Pragma("nv_diag_suppress 1675") _Pragma("GCC push_options")                                   \
    _Pragma("GCC optimize(\"fp-contract=off\")")
#define NEO_EXACT_END _Pragma("GCC pop_options") _Pragma("nv_diag_default 1675")
#elif defined(__GNUC__)
#define NEO_EXACT_BEGIN                                                                            \
    _Pragma("GCC push_options") _Pragma("GCC optimize(\"fp-contract=off\")")
#define NEO_EXACT_END _Pragma("GCC pop_options")
#else
#define NEO_EXACT_BEGIN
#define NEO_EXACT_END
#endif

#define NEO_VERSION_MAJOR 0
#define NEO_VERSION_MINOR 1

/* Two files of one program compiled against different versions do not link: the constructor's
   symbol carries the version. */
#define NEO__VERSIONED_(name, major, minor) name##_v##major##_##minor
#define NEO__VERSIONED(name, major, minor) NEO__VERSIONED_(name, major, minor)
#define neo_ctx_create NEO__VERSIONED(neo_ctx_create, NEO_VERSION_MAJOR, NEO_VERSION_MINOR)

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>status

   Every call that can fail returns a neo_status. On failure outputs are NULL or untouched, state is
   as it was before the call, and neo_last_error() says in one line what was wrong and where.
   ------------------------------------------------------------------------ */
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
    X(NEO_ERR_NUMERIC, "a number is not finite, or compiler flags have changed arithmetic")        \
    X(NEO_ERR_STATE, "call out of order")                                                          \
    X(NEO_ERR_SYSTEM, "operating system error")                                                    \
    X(NEO_ERR_TIMEOUT, "another rank did not come in time")                                        \
    X(NEO_ERR_PEER, "another rank is lost or has given up")                                        \
    X(NEO_ERR_DIVERGED, "ranks make different calls")                                              \
    X(NEO_ERR_DEVICE, "the device failed, or there is none")

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

/* ---------------------------------------------------------------------------
   >>ctx

   A context holds what all objects of one trainer share: the allocator, the logger, the threads,
   the instruction set, the seed and the number of virtual shards. Every object is made from one and
   is destroyed before it.
   ------------------------------------------------------------------------ */
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

/* An executor runs task(arg, i, worker) once for every i in [0, count) and returns when all are
   done. worker is in [0, neo_ctx_desc.threads) and no two tasks run at the same time with the same
   worker. Give one to run neo's work on your own thread pool; by default neo has its own.
   time_ns: a clock by which these threads take their time (neo_ctx_time_ns), as of an executor that
   plays threads which the machine lacks; NULL: neo_time_ns. */
typedef void (*neo_task_fn)(void *arg, int64_t task, int worker);
typedef struct neo_executor {
    void (*run)(int64_t count, neo_task_fn task, void *arg, void *user);
    void *user;
    int64_t (*time_ns)(void *user);
} neo_executor;

typedef enum neo_isa {
    NEO_ISA_BEST, /* the widest this machine has */
    NEO_ISA_SCALAR,
    NEO_ISA_AVX2, /* with FMA and F16C */
    NEO_ISA_AVX512, /* F, BW, DQ, VL */
    NEO_ISA_NEON,
    NEO_ISA_AVX512BF16, /* AVX512, and bf16 products by vdpbf16ps */
    NEO_ISA_AMX         /* AVX512, and bf16 products by AMX tiles; Linux */
} neo_isa;

/* A device computes instead of the CPU: see neo_cuda.cuh, which makes them. Objects and tensors
   that a context with a device makes are in its memory, and calls take tensors that are
   (neo_tensor.place); neo_tensor_copy takes them there and back. */
typedef struct neo_device neo_device;
enum { /* neo_ctx_desc.repro_shards */
    NEO_DEVICE_SHARDS = 16, /* leaves are summed side by side: one chain leaves a device idle */
    NEO_SHARD_A_RANK = -1   /* one leaf for each rank: for models that compute leaf by leaf */
};

/* All zeros is a good default. */
typedef struct neo_ctx_desc {
    neo_allocator allocator; /* default: the C library, aligned */
    neo_logger logger;       /* default: silent */
    neo_executor executor;   /* default: a pool of the context's own */
    int threads;             /* workers, the caller included; 0: all cores the process may use */
    neo_isa isa;             /* a path this machine lacks: NEO_ERR_UNSUPPORTED */
    int repro_shards;        /* V, the virtual shards of a batch (see >>leaves); -N: N, or, of more
                                ranks, one for each; 0: -1, with a device -NEO_DEVICE_SHARDS */
    uint64_t seed;           /* of every random number; 0 is a seed like any other */
    neo_device *device;      /* stays until the context is gone; NULL: the CPU */
    int check_finite;        /* 1: look for NaN and infinities, see neo_check_finite */
} neo_ctx_desc;

/* neo_ctx_create: make a context. desc may be NULL (all defaults). A context that computes in plain
   C on a machine with vector instructions tells its logger, with the reason.
   Errors   NEO_ERR_ARG: threads or shards out of their range, half an allocator or executor.
            NEO_ERR_MISMATCH: a device of another version of neo. NEO_ERR_UNSUPPORTED: no such
            instruction set here, or a device that lacks an operation. NEO_ERR_NUMERIC: the compiler
            flags change floating-point arithmetic (the message names the check). NEO_ERR_SYSTEM: a
            thread does not start. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_ctx_create(const neo_ctx_desc *desc, neo_ctx **ctx);

/* neo_ctx_destroy: NULL is allowed. Objects and tensors made from ctx go before it. Where some are
   left the logger is told which (neo_ctx_live), calls on them and new ones are refused with
   NEO_ERR_STATE, and the context stays until the last of them is destroyed, as its device does. */
NEO_API void neo_ctx_destroy(neo_ctx *ctx);
/* neo_ctx_live: how many objects and tensors made from ctx are not destroyed yet. text (NULL: not
   wanted), of `bytes` bytes, gets them by kind, with the names of those that have one, cut where it
   is full: "2 mlp ('bottom', 'top'), 1 bags ('tables'), 3 tensors". Objects that another one made
   for itself are not among them. */
NEO_API int64_t neo_ctx_live(neo_ctx *ctx, char *text, size_t bytes);
/* Threads that compute, leaves of a batch (repro_shards), the seed ... of the context. */
NEO_API int neo_ctx_threads(const neo_ctx *ctx);
NEO_API int64_t neo_ctx_time_ns(const neo_ctx *ctx); /* neo_time_ns, or its executor's clock */
NEO_API neo_isa neo_ctx_isa(const neo_ctx *ctx);
NEO_API int neo_ctx_repro_shards(const neo_ctx *ctx);
NEO_API uint64_t neo_ctx_seed(const neo_ctx *ctx);
NEO_API neo_device *neo_ctx_device(const neo_ctx *ctx); /* or NULL */
/* neo_ctx_synchronize: wait until the context's device has done all calls made so far. Nothing
   without a device.
   Errors   NEO_ERR_DEVICE: a call of before failed on the device. */
NEO_API neo_status neo_ctx_synchronize(neo_ctx *ctx);

/* neo_isa_name, neo_isa_parse: "best", "scalar", "avx2", "avx512", "neon", "avx512bf16", "amx".
   parse gives NEO_ERR_ARG for another word. neo_isa_available: 1 if this machine can run it; asked
   for AMX, it asks the kernel to let this process use the tile registers, once and for all its
   threads. */
NEO_API const char *neo_isa_name(neo_isa isa);
NEO_API neo_status neo_isa_parse(const char *name, neo_isa *isa);
NEO_API int neo_isa_available(neo_isa isa);

/* Memory that the context's allocator has handed out. */
typedef struct neo_memory {
    size_t bytes;        /* now, in the device's memory too */
    size_t device_bytes; /* of bytes: in the device's memory */
    size_t peak_bytes;   /* of bytes, highest so far */
    int64_t alloc_count; /* calls of alloc so far: a training step adds none */
} neo_memory;
NEO_API neo_memory neo_ctx_memory(const neo_ctx *ctx);
/* neo_alloc: 64-byte aligned memory of the context's allocator, counted, not cleared; NULL when
   there is none (record it with neo_fail). Zero bytes give a pointer too. neo_free takes the same
   size; NULL is allowed. neo_log: to the context's logger, if it has one. Threads: any. */
NEO_API void *neo_alloc(neo_ctx *ctx, size_t bytes);
NEO_API void neo_free(neo_ctx *ctx, void *ptr, size_t bytes);
NEO_API void neo_log(neo_ctx *ctx, neo_log_level level, const char *format, ...) NEO__PRINTF(3, 4);

/* neo_parallel_for: run task(arg, i, worker) for every i in [0, count) on the context's threads;
   the caller takes part. Tasks may not call neo_parallel_for on the same context.
   Threads: one caller per context at a time, as for everything made from it. */
NEO_API void neo_parallel_for(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg);

/* neo_time_ns: a monotonic clock, for measuring intervals. */
NEO_API int64_t neo_time_ns(void);

/* neo_input: a source of bytes in place of this process's standard input, for neo_reader_desc of
   neo_data.h; neo_comm_input of neo_comm.h gives every rank the bytes of rank 0. read: the next
   bytes, 1 to `bytes` of them, to buffer. *got 0 and NEO_OK: nothing has come for a while (it
   returns within 0.1 s, so that closing the reader need not wait for it). NEO_END: the end. Other
   statuses, with neo_fail, end the stream.
   Threads: called from the reader's threads, one at a time, in the order of the bytes. */
typedef struct neo_input {
    neo_status (*read)(void *user, void *buffer, size_t bytes, size_t *got);
    void *user;
} neo_input;

/* The ranks that do something together: save, load, digest, take one norm. neo_comm.h makes one of
   a communicator. Both calls are collective: every rank makes them, in the same order. NULL where a
   group is asked for, or size 1: this rank alone. */
typedef struct neo_group {
    int rank, size;
    /* NEO_OK if all ranks gave NEO_OK; else, on every rank, the status of the lowest rank that did
       not, and its neo_last_error as this rank's. */
    neo_status (*agree)(void *user, neo_status mine);
    /* words[i] = the sum over all ranks, modulo 2^64. */
    neo_status (*sum)(void *user, uint64_t *words, int count);
    void *user;
    /* NULL, or called before (on = 1) and after (on = 0) ranks meet between work on files: a disk
       may make one late that is well. Not collective. */
    void (*patient)(void *user, int on);
    /* NULL, or bytes of data of rank `from` to data of rank `to`: only these two call it. */
    neo_status (*pass)(void *user, int from, int to, void *data, size_t bytes);
    /* NULL, or sum, of words in memory of the device of the ranks' contexts, among its calls: where
       these are recorded, on all ranks, no host waits for it. */
    neo_status (*sum_there)(void *user, int64_t *words, int count);
} neo_group;

/* ---------------------------------------------------------------------------
   >>leaves

   Sums over a batch have one shape, whatever computes them: sample i of B belongs to leaf v where v
   B / V <= i < (v + 1) B / V (integer division); inside a leaf samples add in order; over leaves
   the sums add by a binary tree that splits n leaves at the largest power of two below n. V is
   neo_ctx_desc.repro_shards. A caller that holds only some leaves of a batch (a rank, or a step
   computed in pieces) says so with a neo_leaves; NULL means all of them, with one row each (an
   error where the context is of a neo_fsdp over several ranks).
   A sample may be several rows, the positions of a sequence for one: rows_per_sample. Tensors have
   then that many times the samples of the leaves, and rows of a leaf add in order. Sequences of
   different lengths: leaf by leaf, one of n rows as {V n, v, 1}; neo_tree_sum adds the gradients.
   ------------------------------------------------------------------------ */
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

/* ---------------------------------------------------------------------------
   >>tensor

   A tensor is a view: it owns nothing and is passed by value. Strides count elements. A tensor
   whose data is NULL stands for "none" where a function allows that; one that also says why, in
   `absent`, is not none but away: it has its shape, and calls that need its data, an optional one
   too, fail with NEO_ERR_STATE and that text.
   ------------------------------------------------------------------------ */
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
    NEO_DTYPE_COUNT, /* of those above */
    NEO_F64 = 64     /* kept in a neo_state and in files, and copied; nothing else takes it */
} neo_dtype;

enum { NEO_MAX_DIMS = 4 };

/* The place of memory: the host, or the context's device. A context without a device has host
   memory only. NEO_FILE: rows of a table below memory (neo_store.h): no address can be read; a
   neo_state takes such tensors. */
typedef enum neo_place { NEO_HOST, NEO_DEVICE, NEO_FILE } neo_place;

typedef struct neo_tensor {
    void *data;
    int64_t shape[NEO_MAX_DIMS];
    int64_t stride[NEO_MAX_DIMS];
    int32_t ndim;
    neo_dtype dtype;
    neo_place place;    /* of data */
    const char *absent; /* data NULL: why there is none just now, for messages; not owned */
} neo_tensor;
/* neo_dtype_size: bytes of an element. */
NEO_API size_t neo_dtype_size(neo_dtype dtype);
NEO_API const char *neo_dtype_name(neo_dtype dtype); /* "f32", "bf16", ... */

/* neo_tensor_1d, _2d, _nd: contiguous (row-major) views of data; absent is NULL. */
NEO_API neo_tensor neo_tensor_1d(void *data, neo_dtype dtype, int64_t count);
NEO_API neo_tensor neo_tensor_2d(void *data, neo_dtype dtype, int64_t rows, int64_t cols);
NEO_API neo_tensor neo_tensor_nd(void *data, neo_dtype dtype, int ndim, const int64_t *shape);
NEO_API neo_tensor neo_tensor_none(void);

/* neo_tensor_slice: [first, first + count) of dimension dim. neo_tensor_rows: of dimension 0.
   Out of range gives none with a reason in `absent`, so that calls refuse it. Views of an
   absent tensor are absent as it is. */
NEO_API neo_tensor neo_tensor_slice(neo_tensor t, int dim, int64_t first, int64_t count);
NEO_API neo_tensor neo_tensor_rows(neo_tensor t, int64_t first, int64_t count);
NEO_API neo_tensor neo_tensor_transpose(neo_tensor t, int dim_a, int dim_b);
/* neo_tensor_reshape: a contiguous tensor under another shape of as many elements; else none. */
NEO_API neo_tensor neo_tensor_reshape(neo_tensor t, int ndim, const int64_t *shape);
NEO_API int64_t neo_tensor_count(neo_tensor t); /* elements; of none: 0 */
NEO_API size_t neo_tensor_bytes(neo_tensor t);
NEO_API int neo_tensor_is_contiguous(neo_tensor t);

/* neo_tensor_alloc: a contiguous tensor in memory of the context or its device (64-byte aligned,
   not cleared).
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
   Errors    NEO_ERR_SHAPE: the shapes differ. NEO_ERR_ARG: a tensor is none or malformed, or they
             overlap. NEO_ERR_UNSUPPORTED: from or to f64. */
NEO_API neo_status neo_tensor_convert(neo_ctx *ctx, neo_tensor src, neo_tensor dst,
                                      const neo_convert_desc *desc);
/* neo_tensor_copy: dst = src, of one shape and dtype, any strides. Between the host and the
   context's device both must be contiguous; the data has arrived, and src may change, on return.
   neo_tensor_zero: contiguous. On a context with a device these three, and neo_tensor_init, take
   tensors in host memory too, on which the CPU works. */
NEO_API neo_status neo_tensor_copy(neo_ctx *ctx, neo_tensor src, neo_tensor dst);
NEO_API neo_status neo_tensor_zero(neo_ctx *ctx, neo_tensor t);

/* neo_tree_sum: out = the sum of parts[0..count) in the order of the leaf tree (see >>leaves):
   what a reduction over ranks that each hold an equal power-of-two share of the leaves computes.
   Shapes   all alike, contiguous f32. Aliasing: out may be parts[0]; parts are overwritten. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_tree_sum(neo_ctx *ctx, const neo_tensor *parts, int count, neo_tensor out);
#endif

/* neo_floats_decode, _encode: `count` numbers of dtype f32, f16, bf16 or f8 to and from f32, to
   nearest, as neo_tensor_convert. On the calling thread alone, so any number of threads may call
   them beside everything else that a context does. */
NEO_API void neo_floats_decode(const neo_ctx *ctx, neo_dtype dtype, const void *src, float *dst,
                               int64_t count);
NEO_API void neo_floats_encode(const neo_ctx *ctx, neo_dtype dtype, const float *src, void *dst,
                               int64_t count);

/* ---------------------------------------------------------------------------
   >>random

   Counter-based: Philox4x32-10 with key = seed and a counter made of a 64-bit hash of (name, step,
   stream) and the element's index. A number depends on nothing else: not on threads, order or
   layout.
   ------------------------------------------------------------------------ */
typedef enum neo_stream { /* what the numbers are for, so that uses never share numbers */
    NEO_STREAM_INIT,
    NEO_STREAM_ROUNDING,
    NEO_STREAM_SHUFFLE,
    NEO_STREAM_DATA,
    NEO_STREAM_DROPOUT,
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
#if !defined(NEO_INFERENCE)
NEO_API float neo_random_normal(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                uint64_t index);
#endif

/* neo_sample: a token, of `count`, drawn from the softmax of logits / temperature: the first at
   which the shares, added in order, pass neo_random_uniform(seed, neo_hash("sample"), 0,
   NEO_STREAM_USER, place) of their sum; in f64, the same bits everywhere. place: of the token among
   those that are drawn. A logit that is NaN has no share.
   temperature, 0 and below: the largest logit, of equal ones the first; top_k, 1 and above: only
   the k largest logits have a share, of equal ones the first.
   Errors   none: count below 1 is 0. Threads any. Allocates nothing. */
typedef struct neo_sampling {
    double temperature;
    int64_t top_k;
    uint64_t seed;
} neo_sampling;
NEO_API int64_t neo_sample(const neo_sampling *sampling, const float *logits, int64_t count,
                           int64_t place);

/* neo_zipf: id of a Zipf law with exponent s > 0 over [0, rows), from a uniform u in [0, 1); 0 is
   the most frequent (the inverse of the continuous law x^-s over [1, rows + 1), cut to
   integers). */
#if !defined(NEO_INFERENCE)
NEO_API int64_t neo_zipf(float u, int64_t rows, float s);
#endif

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
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_tensor_init(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                   int64_t first);
#endif

/* ---------------------------------------------------------------------------
   >>exact

   A sum of floats that does not depend on order: a fixed-point integer as wide as f32's whole
   range (to 2^-149 .. 2^128, and room for 2^31 terms between two normalisations, which add does by
   itself). Losses, norms and metrics use it, so ranks can add in any order (element by element, as
   integers).
   ------------------------------------------------------------------------ */
enum { NEO_EXACT_WORDS = 12 };
typedef struct neo_exact {
    int64_t word[NEO_EXACT_WORDS]; /* sum of word[i] * 2^(32 i - 160) */
    int64_t terms;                 /* added since the words were last normalised */
    int64_t nan, pos_inf, neg_inf; /* how many of each were added: they are not in the words */
} neo_exact;
#if !defined(NEO_INFERENCE)
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
#endif

/* ---------------------------------------------------------------------------
   >>gemm
   ------------------------------------------------------------------------ */
typedef enum neo_activation {
    NEO_ACT_NONE,
    NEO_ACT_RELU,
    NEO_ACT_SIGMOID,
    NEO_ACT_TANH,
    NEO_ACT_GELU,      /* x/2 (1 + erf(x/sqrt 2)) */
    NEO_ACT_HARDSWISH, /* x relu6(x + 3)/6 */
    NEO_ACT_SILU,      /* x sigmoid(x) */
    NEO_ACT_LEAKY_RELU, /* x, below 0 x/100 */
    NEO_ACT_GELU_TANH  /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as GPT-2 has it */
} neo_activation;

typedef struct neo_gemm_desc {
    int trans_a;        /* 1: a is stored [K][M] */
    int trans_b;        /* 1: b is stored [N][K] */
    float beta;         /* 0: c is not read */
    neo_activation act; /* applied last */
    const float *bias;  /* [N], where the context computes; or NULL */
} neo_gemm_desc;

/* neo_gemm: c = act(beta c + op(a) op(b) + bias).
   Shapes    op(a) [M][K], op(b) [K][N], c [M][N]; f32, or a and b bf16 and c bf16 or f32; the last
             stride of each is 1, row strides free. M, N, K may be 0 (K = 0: c = act(beta c +
             bias)).
   Numerics  every element starts at beta c (0 if beta is 0), adds a_k b_k by fused multiply-add in
             order of k, then the bias: the same bits on every path and for every shape around it.
             bf16: the sum is f32; each 32 k add by themselves, even k in order and odd k in order,
             from 0, and even + odd is added to it; denormals are zeros until the bias. c of bf16 is
             rounded once, at the end.
   Aliasing  c may not overlap a, b or bias.
   Devices   with neo_cuda_desc.exact the same bits; without, large products are cuBLASLt's (of
             bf16: its operands, sums in f32), whose order of terms is its own.
   Errors    NEO_ERR_SHAPE: also of a dtype. NEO_ERR_ARG: c overlaps an operand.
   Hook      with NEO_SGEMM defined (in the implementation file, as a function or macro
             NEO_SGEMM(trans_a, trans_b, M, N, K, a, lda, b, ldb, beta, c, ldc), row-major), it
             computes beta c + op(a) op(b) of f32 products of at least 2^15 multiply-adds, here and
             in the layers; not weight gradients over several leaves, whose order a BLAS does not
             know. */
NEO_API neo_status neo_gemm(neo_ctx *ctx, const neo_gemm_desc *desc, neo_tensor a, neo_tensor b,
                            neo_tensor c);

/* ---------------------------------------------------------------------------
   >>params

   Named dense parameters, each with its gradient. Layers add theirs; an optimizer takes the whole
   set. Values start at multiples of 256 elements (padding is zero and stays zero).
   ------------------------------------------------------------------------ */
typedef struct neo_params neo_params;
typedef struct neo_param {
    const char *name; /* owned by the set */
    neo_tensor value; /* f32 */
    neo_tensor grad;  /* f32, same shape; backward functions overwrite it */
    int frozen;       /* 1: it has none (of a neo_fsdp_unit with freeze); layers compute none */
} neo_param;
/* neo_params_create: an empty set. neo_params_destroy: NULL is allowed. */
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
   there. Layers are created on it as on any set. neo_optim_create wants all parameters bound.
   Errors   NEO_ERR_ARG: params or ctx is NULL. NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_params_create_deferred(neo_ctx *ctx, neo_params **params);
NEO_API int neo_params_is_deferred(const neo_params *params);
/* neo_params_initializer: with what parameter `index` begins: neo_tensor_init under its name
   (first: the place of a shard in it) gives the values it has in a set that is not deferred. Never
   NEO_INIT_DEFAULT. An index outside gives NEO_INIT_NONE.
   neo_params_bind: for the owner of a deferred set: value and grad of parameter `index` are now at
   these addresses (of the context's device, if it has one), contiguous f32 (backward overwrites the
   gradient). NULL: not in memory, for the reason `absent` (kept, not copied; NULL: "its set is not
   in memory").
   Errors   NEO_ERR_ARG: no such index, or the set is not deferred; nothing changes.
   Threads  none may use the set meanwhile. */
NEO_API neo_init neo_params_initializer(const neo_params *params, int index);
NEO_API neo_status neo_params_bind(neo_params *params, int index, void *value, void *grad,
                                   const char *absent);

/* ---------------------------------------------------------------------------
   >>layers

   Pairs: neo_x_forward computes outputs, neo_x_backward the gradients of its inputs and parameters.
   A gradient tensor that is none is not computed. Gradients are overwritten, not added to. An
   output that overlaps an input or another output in memory is refused (NEO_ERR_ARG), unless it may
   be that input.
   ------------------------------------------------------------------------ */

/* neo_activation_forward: y = act(z), elementwise; y may be z. _backward: dz = dy act'(z). For
   NONE, RELU, SIGMOID, TANH and LEAKY_RELU only y is read (z may be none); for GELU, GELU_TANH,
   HARDSWISH and SILU only z. dz may be dy.
   Shapes   contiguous f32, all alike; dy and what is written may be bf16, rounded as
            neo_tensor_convert.
   Numerics SILU and GELU_TANH of -inf are NaN, where their slopes are 0; the slope of LEAKY_RELU at
            a NaN is 1. */
NEO_API neo_status neo_activation_forward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                          neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_activation_backward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                           neo_tensor y, neo_tensor dy, neo_tensor dz);
#endif

/* neo_linear_forward: y = act(x w^T + bias), as torch.nn.Linear.
   Shapes   x [B][in], w [out][in], bias [out] or none, y [B][out]; f32, last stride 1; or x and w
            bf16, y bf16 or f32, as of neo_gemm, and bias, too.
   neo_linear_act_forward: z = x w^T + bias and y = act(z), where the backward needs z.
   neo_linear_act_backward: dz = (dy w) act'(z): dy goes back through a layer w, and through the
   activation before it, one whose derivative is of z (GELU, GELU_TANH, HARDSWISH, SILU).
   Shapes   as of the forward, y and z alike; dy [B][out], w [out][in], z and dz [B][in], of bf16
            where operands are, or f32.
   Devices  without `exact`, GELU_TANH of bf16 throughout is cuBLASLt's: one launch, with its tanh.
   neo_linear_backward: dx = dz w, dw = dz^T x, dbias = sum of dz over the batch (dz: the gradient
   before the activation). dw and dbias add in the order of the leaf tree.
   Shapes   x [B][in], w [out][in], dz [B][out]; dx [B][in], dw [out][in], dbias [out], each or
            none. x, w and dz may be bf16, all three; dx then is bf16 or f32; dw and dbias always
            are f32.
   leaves   NULL: the rows are the whole batch. Errors: NEO_ERR_SHAPE; NEO_ERR_ARG: bad leaves.
   Memory   uses the context's scratch; allocates nothing. */
NEO_API neo_status neo_linear_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                      neo_activation act, neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_linear_act_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                          neo_activation act, neo_tensor z, neo_tensor y);
NEO_API neo_status neo_linear_act_backward(neo_ctx *ctx, neo_tensor dy, neo_tensor w,
                                           neo_activation act, neo_tensor z, neo_tensor dz);
NEO_API neo_status neo_linear_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                       neo_tensor w, neo_tensor dz, neo_tensor dx, neo_tensor dw,
                                       neo_tensor dbias);
#endif

/* A stack of linear layers. widths = {in, hidden..., out}. */
typedef struct neo_mlp neo_mlp;
enum { NEO_MAX_LAYERS = 32 };
typedef enum neo_mlp_init {
    NEO_MLP_INIT_DLRM,  /* W ~ N(0, sqrt(2/(in + out))), b ~ N(0, sqrt(1/out)) */
    NEO_MLP_INIT_TORCH, /* both ~ U(+-1/sqrt(in)), as torch.nn.Linear */
    NEO_MLP_INIT_ZERO   /* zeros: of a single layer, a logistic regression */
} neo_mlp_init;
typedef struct neo_mlp_desc {
    const char *name;          /* parameters are <name>.<2i>.weight and .bias, as
                                  torch.nn.Sequential of Linear and activation modules numbers them;
                                  required */
    int width_count;           /* 2 .. NEO_MAX_LAYERS + 1; required */
    int64_t widths[NEO_MAX_LAYERS + 1];
    int64_t max_batch;         /* largest batch of forward; required */
    neo_activation act;        /* after every layer but the last */
    neo_activation last_act;   /* after the last */
    neo_mlp_init init;
    neo_dtype dtype;           /* of the products' operands: NEO_F32, or NEO_BF16: x, the gradients
                                  of layers' outputs and a copy of the weights are rounded to bf16,
                                  and activations kept so; x, y, dy, dx and the parameters stay f32.
                                  Part of the numeric definition: neo_state_define it */
    float dropout;             /* of the outputs of all layers but the last, once neo_mlp_drop says
                                  which: the share p of neo_dropout, in [0, 1); definition, too */
} neo_mlp_desc;

/* neo_mlp_create: add the layers' parameters to params and reserve activations for max_batch rows.
   Errors   NEO_ERR_ARG; NEO_ERR_MEMORY.
   neo_mlp_workspace_bytes: exactly what create takes from the allocator besides the parameters.
   The parameters belong to params and outlive the mlp. */
NEO_API NEO__CHECK_UNUSED neo_status neo_mlp_create(neo_ctx *ctx, neo_params *params,
                                                    const neo_mlp_desc *desc, neo_mlp **mlp);
NEO_API void neo_mlp_destroy(neo_mlp *mlp);
NEO_API size_t neo_mlp_workspace_bytes(const neo_mlp_desc *desc);
/* neo_mlp_forward: y = mlp(x). x and y must stay as they are until the backward of the same batch.
   neo_mlp_backward: the gradients of all parameters that are not frozen, and dx unless it is none.
   dy is not changed.
   Shapes   x [B][in], y [B][out], dy [B][out], dx [B][in]; B <= max_batch; f32, last stride 1.
   Errors   NEO_ERR_CAPACITY: B > max_batch. NEO_ERR_STATE: backward without its forward.
   neo_mlp_drop: what forwards from now on drop, where desc.dropout is not 0: behind layer i as
   neo_dropout(ctx, "<name>.<2i>", step, first_row, ...), y rounded to dtype. step below 0, as at
   first: nothing is dropped (evaluation). A backward drops as its forward did. */
NEO_API neo_status neo_mlp_forward(neo_mlp *mlp, neo_tensor x, neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API void neo_mlp_drop(neo_mlp *mlp, int64_t step, int64_t first_row);
NEO_API neo_status neo_mlp_backward(neo_mlp *mlp, const neo_leaves *leaves, neo_tensor dy,
                                    neo_tensor dx);
#endif

/* A cross network, DCN-v2 (arXiv 2008.13535): x_(l+1) = x_0 * (W_l x_l + bias_l) + x_l, where * is
   elementwise and W_l square, or of low rank: W_l V_l. */
typedef struct neo_cross neo_cross;
typedef struct neo_cross_desc {
    const char *name;  /* parameters are named as torchrec.modules.crossnet does: of layer i
                          <name>.kernels.<i> [width][width], or of low rank
                          <name>.V_kernels.<i> [rank][width] and <name>.W_kernels.<i> [width][rank];
                          <name>.bias.<i> [width]; required */
    int64_t width;     /* columns of x; required */
    int64_t rank;      /* 0: W_l is square */
    int layers;        /* 1 .. NEO_MAX_LAYERS; required */
    int64_t max_batch; /* largest batch of forward; required */
    neo_dtype dtype;   /* of the products' operands: NEO_F32, or NEO_BF16, as of neo_mlp_desc; the
                          rest is f32. Part of the numeric definition: neo_state_define it */
} neo_cross_desc;

/* neo_cross_create: add the layers' parameters to params, W and V ~ N(0, sqrt(2/(in + out))) and
   biases of 0, and reserve what layers keep of max_batch rows.
   Errors   NEO_ERR_ARG; NEO_ERR_MEMORY.
   neo_cross_workspace_bytes: exactly what create takes from the allocator besides the parameters.
   neo_cross_forward: x is x_0, y the output of the last layer. x must stay as it is until the
   backward of the same batch; y need not. neo_cross_backward: the gradients of all parameters that
   are not frozen, and dx unless it is none. dy is not changed.
   Shapes   x, y, dy, dx [B][width], B <= max_batch; f32, last stride 1.
   Errors   NEO_ERR_CAPACITY: B > max_batch. NEO_ERR_STATE: backward without its forward. */
NEO_API NEO__CHECK_UNUSED neo_status neo_cross_create(neo_ctx *ctx, neo_params *params,
                                                      const neo_cross_desc *desc,
                                                      neo_cross **cross);
NEO_API void neo_cross_destroy(neo_cross *cross);
NEO_API size_t neo_cross_workspace_bytes(const neo_cross_desc *desc);
NEO_API neo_status neo_cross_forward(neo_cross *cross, neo_tensor x, neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_cross_backward(neo_cross *cross, const neo_leaves *leaves, neo_tensor dy,
                                      neo_tensor dx);
#endif

/* neo_add: x += y, elementwise: a residual, or the gradients of the two ways into it. neo_mul: x *=
   y: a gate; its gradients are dz y and dz x. Each result is made in f32 and rounded to x's dtype,
   to nearest. neo_addcmul: torch.addcmul by fused multiply-add, x = base + y z; base none: the
   product. All are f32 of one shape; x may be any of the others.
   neo_scale: x *= factor. *finite (may be NULL): 1 if all numbers of x were finite before, else 0.
   neo_round: y = x rounded to `dtype`, to nearest, as f32 again.
   Shapes   both alike: contiguous, or [rows][n] with rows apart (columns of a wider matrix, by
            neo_tensor_slice); f32, of neo_add and neo_mul also f16, bf16 or f8; y may be x.
   To concatenate, neo_tensor_copy each part into its columns of the wider matrix. */
NEO_API neo_status neo_add(neo_ctx *ctx, neo_tensor x, neo_tensor y);
NEO_API neo_status neo_mul(neo_ctx *ctx, neo_tensor x, neo_tensor y);
NEO_API neo_status neo_addcmul(neo_ctx *ctx, neo_tensor base, neo_tensor y, neo_tensor z,
                               neo_tensor x);
NEO_API neo_status neo_scale(neo_ctx *ctx, neo_tensor x, float factor, int *finite);
NEO_API neo_status neo_round(neo_ctx *ctx, neo_dtype dtype, neo_tensor x, neo_tensor y);
/* neo_dropout: y = x / (1 - p), but 0 where an element is dropped; of gradients alike, with the
   same arguments, as no mask is kept. Element (i, j) of [rows][n] is dropped where
     neo_random_uniform(neo_ctx_seed(ctx), neo_hash(name), step, NEO_STREAM_DROPOUT,
                        (first_row + i) n + j) < p.
   name: of the layer. first_row: the number of x's first row in the batch over all ranks, so that
   what is dropped depends neither on ranks nor on leaves. After training leave the call out.
   Shapes   as of neo_round, x and y of any floats; of another shape than a matrix, x is one row.
   Numerics the product of x and 1/(1 - p), in f32, rounded to y's dtype; a dropped NaN is 0.
   Errors   NEO_ERR_ARG: p is not in [0, 1), step or first_row is negative. NEO_ERR_SHAPE.
   Source   Srivastava et al., Dropout, JMLR 2014; scaled as torch.nn.Dropout. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_dropout(neo_ctx *ctx, const char *name, int64_t step, int64_t first_row,
                               float p, neo_tensor x, neo_tensor y);
#endif
/* neo_dot_forward: out_i = x_i . y_i, row by row: the head of a two-tower model. neo_dot_backward:
   dx_i = dout_i y_i and dy_i = dout_i x_i, each or none.
   Shapes   x, y, dx, dy [B][n], f32, last stride 1; out, dout [B] or [B][1], contiguous f32.
   Numerics sums along a row: as of the norms below. Aliasing outputs overlap no input. */
NEO_API neo_status neo_dot_forward(neo_ctx *ctx, neo_tensor x, neo_tensor y, neo_tensor out);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_dot_backward(neo_ctx *ctx, neo_tensor x, neo_tensor y, neo_tensor dout,
                                    neo_tensor dx, neo_tensor dy);
#endif

/* neo_layer_norm_forward: y = (x - mean) scale weight + bias along each row, scale =
   1/sqrt(variance + eps), as torch.nn.LayerNorm over the last dimension. stats takes mean and scale
   of each row, for the backward.
   neo_rms_norm_forward: y = x scale weight, scale = 1/sqrt(mean of x^2 + eps), as torch.nn.RMSNorm.
   _backward: dx, dweight = sum of dy (x - mean) scale over the batch, dbias = sum of dy. dweight
   and dbias add in the order of the leaf tree.
   Shapes   x, y, dy, dx [rows][n], n > 0, f32, last stride 1; y may be bf16, rounded as
            neo_tensor_convert; stats contiguous f32, [rows][2] of a layer norm, [rows] of an RMS
            norm; weight, bias, dweight, dbias [n] or none. dx none: not computed. Where
            neo_attention_dtype of heads of 8 is NEO_BF16, x, y, dy and dx may be, too: all or none.
   Numerics sums along a row: blocks of 256 columns, each over 16 lanes and their tree. All is
            computed in f32; of bf16 y and dx are rounded once. A sum of the residual by neo_add,
            just before a forward or after a backward, has the same bits as an operation of its own
            and as a part of the norm, which a recorded step makes of it.
   leaves   NULL: the rows are the whole batch.
   Aliasing y may be x for a forward without backward; dx may be dy.
   Errors   NEO_ERR_SHAPE; NEO_ERR_ARG: bad leaves, an eps below 0 or not finite.
   Memory   uses the context's scratch; allocates nothing. */
NEO_API neo_status neo_layer_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight,
                                          neo_tensor bias, float eps, neo_tensor y,
                                          neo_tensor stats);
NEO_API neo_status neo_rms_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight, float eps,
                                        neo_tensor y, neo_tensor stats);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_layer_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                           neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                           neo_tensor dx, neo_tensor dweight, neo_tensor dbias);
NEO_API neo_status neo_rms_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                         neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                         neo_tensor dx, neo_tensor dweight);
#endif

/* neo_embedding_forward: out[i] = table[ids[i]], as torch.nn.Embedding: tokens, or the positions of
   a sequence. neo_embedding_backward: the dense gradient: dtable[r] = the sum of dout[i] where
   ids[i] is r, in order of i inside a leaf, over leaves by the tree; add != 0: this is added to
   what dtable holds (a table that is also the output layer's weight. For the same bits on several
   ranks call both with one leaf at a time, and add the results by neo_tree_sum.)
   Shapes   ids [N] contiguous i32 or i64; table, dtable [R][D], out, dout [N][D] f32, last stride
            1.
   leaves   NULL: the ids are the whole batch.
   Errors   NEO_ERR_RANGE: an id is outside the table (the message names position and id); nothing
            is written. NEO_ERR_SHAPE. NEO_ERR_ARG: bad leaves.
   Memory   uses the context's scratch; allocates nothing. Each task walks all ids; there is one at
            least for every 2 MB of table, times the levels of the leaf tree. */
NEO_API neo_status neo_embedding_forward(neo_ctx *ctx, neo_tensor ids, neo_tensor table,
                                         neo_tensor out);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_embedding_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor ids,
                                          neo_tensor dout, neo_tensor dtable, int add);
#endif

/* Attention of several heads inside each sequence of a batch. */
enum { NEO_MAX_HEAD_DIM = 512, NEO_MAX_TIME_BUCKETS = 4096 };
/* A bias of attention's scores, learned or not: score_ij = scale q_i k_j + table[head][bucket],
   where the bucket is that of the difference of row numbers i - j or, with times, of asked[i] -
   times[j]. A difference x is in bucket n if bounds[n - 1] <= x < bounds[n]; the first and the last
   go on without end. So integers say what a bucket is, and no logarithm's rounding.
     clipped positions   bounds -C + 1 .. C: one bucket for each difference from -C to C
     ALiBi               bounds 1 .. T - 1, table[h][n] = -slope_h n, no dtable
     T5                  bounds one apart up to 16, then growing by a factor
     HSTU                two: positions; times, bounds[n] = ceil(e^(0.301 (n + 1))), where asked is
                         the time of the next row, so that a query knows when it is asked */
typedef struct neo_attention_bias {
    neo_tensor table;  /* [heads][buckets] f32, or [1][buckets], of all heads; last stride 1 */
    neo_tensor bounds; /* [buckets - 1] i64, contiguous, rising or equal; of one bucket: none */
    neo_tensor times;  /* [N] i64, contiguous, of each row of k, in any order; none: row numbers */
    neo_tensor asked;  /* like times, of row i as a query; none: times */
    neo_tensor dtable; /* of a backward: the table's gradient, contiguous; none: not wanted */
    neo_tensor each;   /* with dtable: [B heads][buckets], contiguous, memory that the backward
                          fills with what each head of a sequence adds to dtable */
} neo_attention_bias;
typedef enum neo_attention_kind {
    NEO_ATTENTION_SOFTMAX,
    NEO_ATTENTION_SILU /* pointwise, as in HSTU (Zhai et al., arXiv 2402.17152) */
} neo_attention_kind;
typedef struct neo_attention_desc {
    int64_t length; /* T, rows of a sequence, with offsets the most of one; required */
    int64_t heads;  /* required */
    int causal;     /* 1: row i sees rows 0 .. i of its sequence; 0: all of them */
    float scale;    /* of the products q k; 0: 1/sqrt(dim) */
    int64_t queries; /* of a forward: the last rows of a sequence, which q, y and lse have alone,
                        as where keys and values of those before are kept; 0: all */
    neo_dtype dtype; /* of the products: NEO_F32; NEO_BF16: on tensor cores, see Numerics */
    neo_attention_kind kind;
    float divisor; /* n of NEO_ATTENTION_SILU, above 0; 0: length */
    neo_tensor offsets; /* of a jagged batch: [B + 1] i64, contiguous, where the context computes;
                           sequence b has the rows offsets[b] .. offsets[b + 1]. None: every
                           sequence has `length` rows */
    const neo_attention_bias *bias; /* [bias_count], added in order, each sum rounded */
    int bias_count;                 /* 1 or 2; without bias 0 */
    const neo_leaves *leaves;       /* of the sequences, for dtable; a sample is a sequence, and
                                       rows_per_sample is not read; NULL: all */
} neo_attention_desc;
/* neo_attention_forward: y_i = sum_j p_ij v_j, for each head and sequence. NEO_ATTENTION_SOFTMAX:
   p_i = softmax over j of scale q_i k_j: torch.nn.functional.scaled_dot_product_attention.
   NEO_ATTENTION_SILU: p_ij = silu(scale q_i k_j) / n. lse takes the logarithm of each softmax's
   denominator, for the backward; none: not kept. _backward: dq, dk, dv, each or none. Of SiLU it
   reads neither y nor lse, which may be none.
   Jagged   sequences of different lengths, packed without padding, may be empty. N rows may be
            more than offsets say: outputs of rows of no sequence become 0, inputs there are not
            read. On a device offsets are read when the call runs, so a recorded step
            (neo_cuda_graph_begin) takes other lengths each time. A sequence has the bits that it
            has in a batch of its own length (of SiLU: with the same n).
   Shapes   q, k, v, y, dy, dq, dk, dv [B T][heads dim], lse [B T][heads] (with queries Q: q, y
            [B Q], lse [B Q]; jagged: N rows each); f32, but see Numerics, last stride 1; rows may
            lie apart, so slices of one [B T][3 heads dim] matrix serve.
   Numerics a sequence's result depends on itself alone. Products add by fma in order of dim, of
            keys (y, dq) and of queries (dk, dv); keys are taken in tiles of 64: the maximum so far,
            and the sum of a tile over 16 lanes and their tree. SiLU is that of NEO_ACT_SILU, times
            1/n (rounded); backward dS = (dP slope)(scale/n, rounded once). No matrix [T][T] is
            kept. Values must be finite, those that a causal row does not see too. A causal sum
            over keys (y before its division, dq) ends with + 0.0f.
            NEO_BF16 is for a GPU that is not exact, with tensor cores (sm_80 or later), dim up to
            128 (with a bias 64) and rows at multiples of 16 bytes: q, k, v, dy, p and ds are
            rounded to bf16 there, sums are f32, in an order of their own that depends on the
            sequence alone; biases are added in f32, and their gradients are sums of ds in f32.
            Elsewhere products stay f32.
            neo_attention_dtype: what q, k, v, y, dy, dq, dk and dv may all be with it, without a
            bias, for heads of dim: NEO_BF16 there, if dim is a multiple of 8, else NEO_F32. They
            are read as they are then: products of q and k take the scale in f32, where q of f32
            has it before it is rounded.
   Bias     a score is rounded before and after each bias is added; dS of a bias is that of the
            score, and dq and dk take it times scale, rounded. each: by tiles of keys, in them by
            tiles of queries. By rows: the sum of a tile's dS of one difference in order of queries,
            these in falling order of differences. By times: 16 sums of the keys j % 16, in order of
            queries, then keys, at the end their tree. dtable: each by leaves, as any gradient of a
            dense parameter; of a table of all heads the heads add in order inside a sequence.
   Aliasing outputs overlap no input and no other output.
   Errors   NEO_ERR_ARG: length or heads below 1, a scale that is not finite, queries not in [0,
            length], another dtype or kind, a divisor below 0, denormal, not finite or without SiLU,
            lse of a forward with it. NEO_ERR_SHAPE: also rows that are not whole sequences, columns
            that are not whole heads. NEO_ERR_FORMAT: offsets decrease. NEO_ERR_RANGE: they begin
            below 0, go beyond N rows, or a sequence is longer than length. The message names the
            sequence; nothing is written. NEO_ERR_UNSUPPORTED: dim above NEO_MAX_HEAD_DIM; queries
            in a backward, with offsets, or, as 2^31 tiles, on a GPU; y of bf16 where it may not be.
            Of a bias (the message says which): NEO_ERR_ARG: more than 2 of them, asked without
            times, dtable without each, leaves that are bad. NEO_ERR_SHAPE. NEO_ERR_FORMAT: bounds
            decrease (on a device nobody looks: they are some buckets then).
            NEO_ERR_UNSUPPORTED: buckets by times above NEO_MAX_TIME_BUCKETS, in both together; y of
            bf16.
   Memory   uses the context's scratch; allocates nothing. Threads take (sequence, head), in the
            forward also tiles of 64 queries, in the backward parts of heads of sequences that are
            more than a thread's share of the batch. */
NEO_API neo_dtype neo_attention_dtype(const neo_ctx *ctx, int64_t dim);
NEO_API neo_status neo_attention_forward(neo_ctx *ctx, const neo_attention_desc *desc, neo_tensor q,
                                         neo_tensor k, neo_tensor v, neo_tensor y, neo_tensor lse);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_attention_backward(neo_ctx *ctx, const neo_attention_desc *desc,
                                          neo_tensor q, neo_tensor k, neo_tensor v, neo_tensor y,
                                          neo_tensor lse, neo_tensor dy, neo_tensor dq,
                                          neo_tensor dk, neo_tensor dv);
#endif

/* neo_interact_forward: pairwise dot products of T = [x; e_1 .. e_F], as DLRM's interact_features:
   z = [x, (T_i . T_j for i = 0 .. F, j < i)], row-major in (i, j).
   With diagonal != 0 also j = i. neo_interact_width: columns of z: D + F(F+1)/2 [+ F+1]; -1: D or
   F is negative or too large.
   Shapes    x [B][D], e [B][F D], z [B][width]; dz, dx, de alike; f32, last stride 1.
   Numerics  dots add by fma in order of D. dT_i starts at dz's copy part (row 0) or 0 and adds the
             partners j = 0 .. F in order (j = i enters once: with twice its dz, without diagonal
             with 0).
   Errors    NEO_ERR_SHAPE. NEO_ERR_UNSUPPORTED: more than 4095 features.
   Source    github.com/facebookresearch/dlrm. */
NEO_API int64_t neo_interact_width(int64_t dim, int64_t features, int diagonal);
NEO_API neo_status neo_interact_forward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                        neo_tensor z);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_interact_backward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                         neo_tensor dz, neo_tensor dx, neo_tensor de);
#endif

/* neo_fm_forward: a factorization machine over the rows of F features, each of dim factors and,
   with weighted != 0, a weight of first order behind them:
     y = sum_f weight_f + sum_(f < g) factors_f . factors_g
   v takes the factors side by side, for the layers of a DeepFM; none: not asked for.
   _backward: de; dv: the gradient of v, or none. dim 0 leaves the sum of weights.
   Shapes    e, de [B][F (dim + 1)], or [B][F dim] without weights; y, dy [B] or [B][1]; v, dv
             [B][F dim]; f32, last stride 1.
   Numerics  a factor's pairs add over f in order: pairs = fma(factor_f, before, pairs), before the
             sum of the factors ahead of f. That costs what the square of the sum less the sum of
             squares does, and cancels nothing. y adds the pairs of the dim factors in blocks of 256
             over 16 lanes and their tree, then the sum of the weights in order of f.
             dfactor_f = fma(dy, sum_g factor_g - factor_f, dv_f); without dv a product alone.
   Aliasing  outputs overlap no input and no other output.
   Errors    NEO_ERR_SHAPE: also columns of e that are not whole features.
   Memory    allocates nothing. Threads take samples.
   Source    Rendle, Factorization Machines, 2010; Guo et al., DeepFM, arXiv 1703.04247. */
NEO_API neo_status neo_fm_forward(neo_ctx *ctx, int64_t dim, int weighted, neo_tensor e,
                                  neo_tensor y, neo_tensor v);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_fm_backward(neo_ctx *ctx, int64_t dim, int weighted, neo_tensor e,
                                   neo_tensor dy, neo_tensor dv, neo_tensor de);
#endif
/* neo_ffm_forward: a field-aware factorization machine: a row has dim factors for each of the F
   features, v_f,g, and with weighted != 0 a weight of first order behind them:
     y = sum_f weight_f + sum_(g < f) v_f,g . v_g,f
   v_f,f meets nothing: its gradient is 0. neo_ffm_backward: de.
   Shapes    e, de [B][F (F dim + 1)], or [B][F F dim] without weights; y, dy [B] or [B][1]; f32,
             last stride 1.
   Numerics  of each of the dim numbers of a pair, fma over f in order, then over g; they and the
             weights add as in neo_fm_forward. Aliasing, memory, threads: likewise.
   Errors    NEO_ERR_SHAPE.
   Source    Juan et al., Field-aware Factorization Machines for CTR Prediction, 2016. */
NEO_API neo_status neo_ffm_forward(neo_ctx *ctx, int64_t features, int64_t dim, int weighted,
                                   neo_tensor e, neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_ffm_backward(neo_ctx *ctx, int64_t features, int64_t dim, int weighted,
                                    neo_tensor e, neo_tensor dy, neo_tensor de);
#endif

/* A stack of Wukong layers (arXiv 2403.02545). The rows X of a sample, `features` of `dim`, become
   as many: LN(concat(machine, linear) + X), row by row, where linear = W X are the last `linear`
   rows, and machine = reshape(MLP(LN(products of all pairs of rows))) are the others. Of the
   products X X^T each is taken once, the diagonal too: in the order of neo_interact_forward. */
typedef struct neo_wukong neo_wukong;
typedef struct neo_wukong_desc {
    const char *name;  /* parameters of layer i are <name>.<i>.pairs.weight and .bias of the norm of
                          the products, .machine.0. and .machine.2. of the MLP, .linear.weight
                          [linear][features], .norm.weight and .bias [dim]; required */
    int64_t features;  /* rows of a sample, at least 2; required */
    int64_t dim;       /* columns of a row; required */
    int64_t linear;    /* 1 .. features - 1; required */
    int64_t hidden;    /* width of the MLP's one hidden layer, a ReLU behind it; required */
    int layers;        /* 1 .. NEO_MAX_LAYERS; required */
    int64_t max_batch; /* largest batch of forward; required */
    neo_dtype dtype;   /* of the MLP's products, as of neo_mlp_desc; the rest is f32 */
} neo_wukong_desc;

/* neo_wukong_create: add the layers' parameters to params: of the MLP as NEO_MLP_INIT_DLRM, W ~
   N(0, sqrt(2/(linear + features))), the norms' weights 1 and biases 0, their eps 1e-5.
   neo_wukong_workspace_bytes: what create takes from the allocator besides the parameters.
   neo_wukong_forward, _backward: as of neo_mlp; dx may be none.
   Shapes   x, y, dy, dx [B][features dim], B <= max_batch; f32, contiguous.
   Errors   NEO_ERR_ARG; NEO_ERR_MEMORY; NEO_ERR_SHAPE; NEO_ERR_CAPACITY: B > max_batch.
            NEO_ERR_STATE: backward without its forward. */
NEO_API NEO__CHECK_UNUSED neo_status neo_wukong_create(neo_ctx *ctx, neo_params *params,
                                                       const neo_wukong_desc *desc,
                                                       neo_wukong **wukong);
NEO_API void neo_wukong_destroy(neo_wukong *wukong);
NEO_API size_t neo_wukong_workspace_bytes(const neo_wukong_desc *desc);
NEO_API neo_status neo_wukong_forward(neo_wukong *wukong, neo_tensor x, neo_tensor y);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_wukong_backward(neo_wukong *wukong, const neo_leaves *leaves, neo_tensor dy,
                                       neo_tensor dx);

/* ---------------------------------------------------------------------------
   >>losses

   Mean losses and their gradients in one call. Gradients are divided by the number of samples of
   the whole batch, so that partial results only add. A sample weight multiplies its loss and
   gradient (the divisor stays the sample count, as torch's functional losses with `weight` and
   reduction="mean").
   ------------------------------------------------------------------------ */
typedef struct neo_loss_desc {
    int64_t batch;     /* samples of the whole batch, of all ranks and micro-batches; 0: the rows
                          given (wrong where they are a part of it; an error, if a gradient is
                          wanted, where the context is of a neo_fsdp over several ranks) */
    neo_tensor weight; /* [B] f32, of several labels [B][L], or none */
    neo_exact *sum;    /* the weighted sample losses are also added here; or NULL */
    float scale;       /* gradients, not losses, are multiplied by this (loss scaling); 0: 1 */
} neo_loss_desc;

/* neo_bce_with_logits: binary cross entropy of sigmoid(logit). neo_bce: of probabilities, their
   logarithms clamped at -100, as torch; the losses of several labels of a sample add. neo_mse:
   mean of squared differences over all elements. neo_cross_entropy: softmax cross entropy; label
   [B] i64 class numbers; as torch's default (mean over samples). For sequences a sample is a
   position: logit [B T][C], and desc->batch counts positions. desc may be NULL.
   Shapes   bce: logit, label, dlogit [B] or [B][L]; mse: pred, target, dpred alike, [B] or [B][n];
            cross entropy: logit, dlogit [B][C]. f32, contiguous; the gradient may be none, or the
            input itself; of cross entropy also bf16 with rows apart, as operand of a product,
            rounded as neo_tensor_convert; and so logit, whose gradient then is bf16 or none.
   loss     the sum over these rows divided by the batch; may be NULL. An empty batch gives 0.
   Numerics a sample's loss is one f32 (mse of n columns: the mean of its n squares); they add in a
            neo_exact, so no order shows. Sums along a row: blocks of 256 columns, each over 16
            lanes and their tree.
   Memory   uses the context's scratch; allocates nothing.
   Errors   NEO_ERR_SHAPE. NEO_ERR_RANGE: a class outside [0, C); a bce label or a probability
            outside [0, 1]; the message names the sample. NEO_ERR_ARG: batch below the rows given.
            NEO_ERR_UNSUPPORTED: over 2^18 bf16 logits a row on an exact GPU. All write nothing. */
NEO_API neo_status neo_bce_with_logits(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                       neo_tensor label, neo_tensor dlogit, double *loss);
NEO_API neo_status neo_bce(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor prob,
                           neo_tensor label, neo_tensor dprob, double *loss);
NEO_API neo_status neo_mse(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor pred,
                           neo_tensor target, neo_tensor dpred, double *loss);
NEO_API neo_status neo_cross_entropy(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                     neo_tensor label, neo_tensor dlogit, double *loss);

#endif
/* ---------------------------------------------------------------------------
   >>optim

   Dense optimizers over a neo_params, with the semantics of torch.optim (LAMB: arXiv 1904.00962 as
   FBGEMM and apex apply it: Adam direction with bias correction plus weight_decay w, scaled per
   parameter tensor by |w|/|update| where both are positive, else by 1).

   FTRL-proximal: McMahan et al., "Ad click prediction: a view from the trenches" (2013), algorithm
   1, with alpha = lr, beta = eps, lambda1 = l1 and lambda2 = weight_decay, for dense layers and
   tables. Of each weight two numbers are kept: n, the sum of squares, and, in place of z,
   v = z + w (beta + sqrt(n))/alpha, which is what l1 and l2 hold the weight back by: |v| <= l1 +
   l2 |w|, and 0 at first, whatever w is. A step (each line from the new values above it):
       n += g^2;  p = beta + sqrt(n);  z = g + v - w p/alpha;  c = z cut to [-l1, l1]
       w = 0 if c is z, else w + alpha (c - l2 w - g - v)/(p + alpha l2);  v = c - l2 w
   With w = 0 at first these are the paper's weights at a constant rate, and those of
   keras.optimizers.Ftrl(alpha, initial_accumulator_value, l1, l2 = lambda2/2, beta). Other initial
   weights are where the proximal terms begin: the first step moves on from them (Keras begins at
   z = 0, so that a first step forgets most of w), and a weight that was set from outside (rows that
   are written, cut by max_norm or narrow) is where the next one does. Without l1 and l2 it is
   Adagrad with eps = beta; lr may follow any schedule. Exact zeros come from l1.
   ------------------------------------------------------------------------ */
typedef struct neo_optim neo_optim;
typedef enum neo_optim_kind {
    NEO_OPTIM_SGD,
    NEO_OPTIM_ADAGRAD,
    NEO_OPTIM_ADAM,  /* weight_decay is L2: added to the gradient */
    NEO_OPTIM_ADAMW, /* weight_decay is decoupled */
    NEO_OPTIM_LAMB,
    NEO_OPTIM_RMSPROP, /* not centered; its alpha is beta2 */
    NEO_OPTIM_FTRL,    /* weight_decay is lambda2 */
    NEO_OPTIM_COUNT
} neo_optim_kind;
#if !defined(NEO_INFERENCE)
typedef struct neo_optim_desc {
    neo_optim_kind kind;
    float weight_decay;
    float momentum, dampening;  /* SGD; momentum: RMSprop too */
    int nesterov;               /* SGD; needs momentum > 0 and dampening 0 */
    float lr_decay;             /* Adagrad */
    float initial_accumulator;  /* Adagrad, FTRL */
    float l1;                   /* FTRL */
    double beta1, beta2;        /* Adam family; 0: 0.9, 0.999 (RMSprop: 0.99); below 0: none (0) */
    float eps;                  /* outside the root; 0: 1e-10 (Adagrad), 1e-8 (Adam, RMSprop), 1e-6
                                   (LAMB), 1 (FTRL: beta) */
    float clip_norm;            /* 0: off; else the norm of the gradients of all parameters of this
                                   optimizer is limited to this (of embedding bags too: see
                                   neo_optim_add_squares) */
    float clip_norm_type;       /* 1, 2 (0 means 2) or INFINITY; as
                                   torch.nn.utils.clip_grad_norm_ */
    const char *name;           /* prefix of the state's names; NULL: "optim" */
    const neo_group *group;     /* the parameters are parts that the ranks of this group hold (see
                                   neo_part): norms are over all parts; every rank has the same
                                   parameters in the same order, some perhaps without elements,
                                   and steps are collective. NULL: they are whole. Copied */
} neo_optim_desc;

/* neo_optim_create: state for every parameter now in params (add parameters first).
   neo_optim_state_bytes: exactly what create asks of the allocator (state, its names, the record).
   Errors   NEO_ERR_ARG: a number out of its range (the message names it). NEO_ERR_STATE: a deferred
            set with a parameter that is not bound. */
NEO_API NEO__CHECK_UNUSED neo_status neo_optim_create(neo_ctx *ctx, neo_params *params,
                                                      const neo_optim_desc *desc,
                                                      neo_optim **optim);
NEO_API void neo_optim_destroy(neo_optim *optim);
NEO_API size_t neo_optim_state_bytes(const neo_params *params, const neo_optim_desc *desc);
/* neo_optim_step: one step from the gradients in params. Clipping leaves them as they are: its
   factor, min(1, clip_norm/(norm + 1e-6)), enters the step. Allocates nothing.
   Errors   NEO_ERR_NUMERIC: lr, or with clipping the gradient norm, is not finite. NEO_ERR_STATE:
            parameters were added after create. Nothing has changed then. With a group also what its
            calls return: then LAMB's moments have moved. */
NEO_API neo_status neo_optim_step(neo_optim *optim, float lr);
/* neo_optim_begin: opens the step that neo_optim_step with the same lr ends, so that weights may
   step before it: steps of 128 samples through layers of megabytes cost some 4 % less, with the
   same bits. Call it after the forward; the backward of a layer moves a weight when nothing of it
   reads the weight any more, from the gradient while that is in the cache: on the CPU, where it
   also makes dx (neo_linear_backward, layers of an MLP and of a cross network, in f32), over up to
   512 rows. The rest steps in neo_optim_step, as all does with clip_norm, LAMB, a group, a deferred
   set, check_finite or NEO_SGEMM.
   A gradient that a weight moved by is written nowhere. So between the two calls nobody reads grad
   (to add it over ranks, to accumulate it), nor value after its backward, and no two layers share a
   weight. neo_params_norms, neo_optim_norms and neo_optim_histograms refuse (NEO_ERR_STATE). Called
   again it opens the step anew; what has moved stays moved.
   Several optimizers of a context may be open, each of a set of its own. Allocates nothing.
   Errors   NEO_ERR_NUMERIC: lr is not finite. NEO_ERR_STATE: as of neo_optim_step; of a backward:
            a second gradient of a weight that has moved. NEO_ERR_ARG (of neo_optim_step): another
            lr. Nothing has changed then. */
NEO_API neo_status neo_optim_begin(neo_optim *optim, float lr);
/* neo_optim_count_elsewhere: parameter `index` is here whole, as on other ranks of the group, one
   of which counts it in norms. */
NEO_API void neo_optim_count_elsewhere(neo_optim *optim, int index);
/* neo_optim_add_squares: gradients that others hold count in the norm of the next step (a 2-norm),
   by the sum of their squares; with a group each rank adds those that no other does.
   neo_optim_clip_factor: what the last step multiplied gradients by, 1 without clipping (while a
   device records: what is recorded runs first): those of the others are to be, too. So one norm is
   of all (bags made with max_kept_rows, and neo_bags_accumulate instead of neo_bags_backward):
       neo_exact_zero(&squares);
       neo_bags_grad_squares(bags, &squares);
       neo_optim_add_squares(optim, &squares);
       neo_optim_step(optim, lr);                                if it fails: neo_bags_clear
       neo_bags_scale_grads(bags, neo_optim_clip_factor(optim));
       neo_bags_step(bags, lr);
   Errors   (of the step) NEO_ERR_ARG: squares were added, clip_norm_type is not 2. Nothing has
            changed then. */
NEO_API void neo_optim_add_squares(neo_optim *optim, const neo_exact *squares);
NEO_API float neo_optim_clip_factor(const neo_optim *optim);
NEO_API int64_t neo_optim_step_count(const neo_optim *optim);
/* neo_optim_grad_norm: the norm before clipping of the last step (while a device records: as the
   factor); 0 without clipping. */
NEO_API double neo_optim_grad_norm(const neo_optim *optim);

/* neo_params_norms: norms[i] = the norms (2) of the gradient and of the values of parameter i, of
   neo_params_count; 0 of one that is not in memory. neo_optim_norms: of the optimizer's parameters,
   over the ranks of its group, where every rank calls it. Of a set that a neo_fsdp has
   neo_fsdp_norms: in its windows there are gradients of parts of a batch, or not yet any. Of
   tables neo_state_look, in neo_state.h, for their weights, and for gradients that are kept
   neo_bags_table_squares and neo_shard_table_squares.
   neo_norms_largest: which has the largest gradient norm, a NaN above all; -1 of no norms. When a
   loss is not finite:

       "step %d: loss %g; largest gradient norm %g of %s"

   Numerics squares as of the clip norm: sums of blocks in f32, which add exactly, so that neither
            threads nor ranks show. Where a sum of a block is beyond f32 (numbers above some 1e18),
            the squares are made in double and scaled, and their norm is finite too. A NaN or an
            infinity among the numbers gives itself.
   Errors   NEO_ERR_ARG: an argument is NULL. NEO_ERR_STATE (neo_optim_norms): parameters were added
            after neo_optim_create. Those of the group. Allocates nothing. */
typedef struct neo_param_norm {
    const char *name; /* the parameter's; lives as long as its set */
    double grad, weight;
} neo_param_norm;
NEO_API neo_status neo_params_norms(const neo_params *params, neo_param_norm *norms);
NEO_API neo_status neo_optim_norms(neo_optim *optim, neo_param_norm *norms);
NEO_API int neo_norms_largest(const neo_param_norm *norms, int count);

/* neo_optim_state_count, _at: the tensors that a resumed run needs, in the order of the parameters:
   <name>.<parameter>.momentum_buffer (SGD with momentum), .sum (Adagrad), .exp_avg and .exp_avg_sq
   (Adam family), .square_avg and with momentum .momentum_buffer (RMSprop), .sum and .penalty (FTRL:
   n and v), f32 of the parameter's shape; last <name>.step, i64 [1]. Loading writes into their
   data. param: the parameter's index, -1 of the step; may be NULL. Names live as long as the
   optimizer. */
NEO_API int neo_optim_state_count(const neo_optim *optim);
NEO_API neo_tensor neo_optim_state_at(neo_optim *optim, int index, const char **name, int *param);

typedef enum neo_schedule_kind {
    NEO_SCHEDULE_CONSTANT,
    NEO_SCHEDULE_LINEAR, /* to end_lr at total_steps */
    NEO_SCHEDULE_COSINE,
    NEO_SCHEDULE_POLY    /* (1 - t)^power, as torch's PolynomialLR. (DLRM's LRPolicyScheduler
                            decays one step earlier, and holds its last warm-up rate before.) */
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

/* ---------------------------------------------------------------------------
   >>finite
   ------------------------------------------------------------------------ */
/* neo_check_finite: with neo_ctx_desc.check_finite the numbers that operations read and write are
   looked at, and the first call that writes a NaN or an infinity fails:

       neo_mlp_forward: y[3][5] is inf at step 12, with top.2.weight, from finite numbers
       neo_attention_forward: y[0][0] is nan at step 12, after h.0.qkv.weight, from q[0][3], which
       is inf
       neo_optim_step: the gradient of top.2.weight[0][7] is nan at step 12

   Steps count from 1, as the optimizer made last counts them (without one: the bags). "with" names
   a parameter that the call reads, "after" the last one that was read; parameters, their gradients
   and tables have their names. Looked at: layers, losses, products, neo_add and its like,
   conversions, and in steps gradients, weights and states, of tables the rows of the batch; over
   ranks the units that are gathered, the sums of gradients and the pooled rows. A gradient that is
   not finite fails a step before it begins; after other failures the state is not as before. The
   bits stay the same. It costs a pass over all these numbers; with a device the host waits for
   each call, and steps of neo_cuda_graph_begin run call by call. A loss scale makes infinities by
   intent, which fail too. The function does the same for a layer of your own: t is a float of any
   width, contiguous or a matrix with rows apart. Without check_finite, and of other tensors, it
   does nothing.
   Errors   NEO_ERR_NUMERIC: a number of t is not finite; the message is "function: name[i][j] is
            nan at step n". */
NEO_API neo_status neo_check_finite(neo_ctx *ctx, const char *function, const char *name,
                                    neo_tensor t);

#endif
/* ---------------------------------------------------------------------------
   >>jagged

   A jagged batch: for each of T features and B samples a bag of ids, of any length. Feature-major:
   bag (t, b) is ids[offsets[t B + b] .. offsets[t B + b + 1]). The struct is a view; a
   neo_jagged_buffer owns memory for one.

   Where bags repeat (the samples of one session; RecD, arXiv 2211.05239) a batch may have each
   distinct bag of a feature once: feature_bags says how many, and inverse which of them each sample
   reads. It stands for the batch written out in full, with the same bits of pooled rows, weights
   and state; what is saved is ids (in memory, and between the ranks of a neo_shard) and lookups.
   (In backward every sample still adds its own gradient: sums of one bag's samples, made first,
   would add in another order.) neo_jagged_dedup makes one, and so does a reader
   (neo_reader_desc.dedup); neo_jagged_expand writes it out.
   ------------------------------------------------------------------------ */
typedef struct neo_jagged {
    int64_t batch;          /* B; not read when feature_bags is given without inverse */
    int32_t feature_count;  /* T */
    neo_dtype id_dtype;     /* NEO_I64 or NEO_I32; required: 0 is NEO_F32 */
    const int64_t *offsets; /* [bag count + 1]; offsets[0] may be above 0: views may start later */
    const void *ids;        /* indexed by offsets */
    const float *weights;   /* per id, indexed by offsets; or NULL */
    const int64_t *feature_bags; /* [T + 1]: feature t has bags feature_bags[t] ..
                                    feature_bags[t+1]; NULL: every feature has B bags */
    neo_place place; /* of all arrays but feature_bags, which are on the host always. A batch on a
                        device is for neo_bags_... and neo_shard_... of its contexts, and for the
                        writers of buffers that are there */
    const int32_t *inverse; /* [T][B], with feature_bags: sample b of feature t reads its bag
                               inverse[t B + b]. Bags are numbered in order of the samples that
                               first read them, so none is left over. NULL: bag b */
} neo_jagged;

NEO_API int64_t neo_jagged_bag_count(const neo_jagged *j); /* T B, or feature_bags[T] */
NEO_API int64_t neo_jagged_id_count(const neo_jagged *j);  /* of a batch on the host */
NEO_API int64_t neo_jagged_full_id_count(const neo_jagged *j); /* the same, written out in full */

/* neo_jagged_validate: offsets never decrease, counts fit, ids are inside [0, rows[t]) for the T
   numbers in rows (NULL: not checked). Reads every offset and id. It cannot know how long your
   arrays are: ids must reach to the last offset.
   Errors   NEO_ERR_ARG: a NULL pointer, a negative count, an id dtype that is not i32 or i64.
            NEO_ERR_FORMAT: offsets that decrease, bags that inverse does not number as it
            should; the message names feature and sample.
            NEO_ERR_RANGE: an id outside its table; it names feature, sample, position and id. */
NEO_API neo_status neo_jagged_validate(const neo_jagged *j, const int64_t *rows);

typedef struct neo_jagged_desc {
    int32_t feature_count; /* required */
    int64_t max_bags, max_ids; /* capacities; required */
    neo_dtype id_dtype;    /* NEO_I64 (given as 0 too) or NEO_I32 */
    int weighted;          /* 1: with weights */
    int dedup;             /* 1: with room for neo_jagged_dedup, of at most max_bags over
                              feature_count samples */
    neo_place place;       /* NEO_DEVICE: where the context has a device, in its memory */
} neo_jagged_desc;
/* A buffer with capacity, and a view of what is in it. */
typedef struct neo_jagged_buffer neo_jagged_buffer;
#if !defined(NEO_INFERENCE)
NEO_API NEO__CHECK_UNUSED neo_status neo_jagged_create(neo_ctx *ctx, const neo_jagged_desc *desc,
                                                       neo_jagged_buffer **buffer);
NEO_API void neo_jagged_destroy(neo_jagged_buffer *buffer);
NEO_API const neo_jagged *neo_jagged_view(const neo_jagged_buffer *buffer);
/* neo_jagged_reserve: grow to at least these capacities, keeping the content; counted. */
NEO_API NEO__CHECK_UNUSED neo_status neo_jagged_reserve(neo_jagged_buffer *buffer, int64_t max_bags,
                                                        int64_t max_ids);
NEO_API int64_t neo_jagged_grow_count(const neo_jagged_buffer *buffer);
#endif

/* Writers: each replaces the buffer's content. On any error the buffer keeps its old content;
   NEO_ERR_CAPACITY names the capacity needed. Sources may not be views of the same buffer. Ids
   convert between i32 and i64 (NEO_ERR_RANGE if they do not fit); a weighted buffer fed from an
   unweighted source gets ones; weights never get lost silently (NEO_ERR_ARG). The result must have
   the buffer's feature_count (NEO_ERR_SHAPE). Sources with feature_bags: concat and select take
   them (the result then has feature_bags too), slice, stack and transpose do not (NEO_ERR_ARG);
   with an inverse expand alone does.
     set          from lengths [T B] (i32 or i64 as length_dtype) and ids: "combined format": all
                  lengths, then all ids
     from_lists   from lists[t B + b], an array of counts[t B + b] ids (not read where the count is
                  0)
     concat       the features of several batches of the same B, one after another
     select       the features in the order given (repeats allowed): permute, split, select in one
     slice        samples [first, first + count) of every feature
     stack        several batches of the same T, one after another in the sample direction
     transpose    from sample-major (bag b T + t) to feature-major
     expand       a batch with inverse, written out in full
     split_hot    the features of a batch, without the ids that are among rows[t], counts[t] of
                  them, rising; then for each feature t with counts[t] above 0 one more, of those
                  ids, as places in rows[t]: ids of a table of their own ("hot rows", neo_fsdp.h)
   ON A DEVICE (neo_jagged_desc.place) the buffer's offsets, ids, weights and inverse are in its
   memory, as must be what it is made of: sources, and the arrays of set (features, counts and
   feature_bags are on the host). Contents are the same, from_lists and split_hot are not there
   (NEO_ERR_UNSUPPORTED), and of a source only what is read is looked at: its offsets, and whether
   ids fit. For that a call waits for the device. In a recorded step (neo_cuda_graph_begin) it does
   not: an error is then the step's, and leaves the buffer empty. dedup waits in any case.
   neo_jagged_dedup: in place: of bags of a feature that are equal (ids and weights, bit for bit, in
   order) the first stays, and inverse says who reads it. Errors   NEO_ERR_STATE: the buffer was
   made without desc.dedup. NEO_ERR_CAPACITY: more samples than it has room for. NEO_ERR_ARG: it
   has feature_bags. */
#if !defined(NEO_INFERENCE)
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
NEO_API neo_status neo_jagged_expand(neo_jagged_buffer *out, const neo_jagged *in);
NEO_API neo_status neo_jagged_split_hot(neo_jagged_buffer *out, const neo_jagged *in,
                                        const int64_t *const *rows, const int64_t *counts);
NEO_API neo_status neo_jagged_dedup(neo_jagged_buffer *buffer);
#endif

/* neo_jagged_normalize: each weight divided by the sum of its bag's weights. A table that pools by
   NEO_POOL_SUM then gives the weighted mean of the rows, sum(w x) / sum(w), under any plan, as a
   bag is whole here. (NEO_POOL_MEAN divides by the number of ids, with weights too.)
   neo_jagged_normalize_backward: dout, as neo_bags_weight_grad gave it for the normalized weights,
   becomes the gradient of the weights of j: (dout_k - sum_i n_i dout_i) / sum(w).
   Arrays    out and the arrays of gradients are indexed as j->weights is, by the offsets; out may
             be j->weights, dweights may be dout.
   Numerics  sums in double in order of position; each result is rounded to f32 once. A bag of zeros
             stays so, and pools to zeros as an empty one does; its gradients are 0. An id that the
             bounds policy drops counts, as for MEAN.
   Errors    NEO_ERR_NUMERIC: weights that are not finite, or whose sum is 0 (or nearly) while they
             are not: the message has feature and sample. NEO_ERR_ARG: there are no weights. Those
             of neo_jagged_validate. NEO_ERR_UNSUPPORTED: a batch on a device. Nothing is written
             then. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_jagged_normalize(const neo_jagged *j, float *out);
NEO_API neo_status neo_jagged_normalize_backward(const neo_jagged *j, const float *dout,
                                                 float *dweights);
#endif

/* neo_ids_unique: the distinct ids of a list, rising, and where each id is among them: as
   torch.unique with return_inverse. count: how many there are, on the host.
   Shapes   ids [N] i64 or i32; unique [N] of the same dtype, behind the first `count` of which
            anything is; inverse [N] i32: ids[i] is unique[inverse[i]]. Contiguous, where ctx
            computes.
   Aliasing none may overlap.
   Errors   NEO_ERR_SHAPE, NEO_ERR_ARG: of these. NEO_ERR_CAPACITY: 2^31 ids or more.
   Memory   on a device its work memory, which may grow in the first call; allocates nothing. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_ids_unique(neo_ctx *ctx, neo_tensor ids, neo_tensor unique,
                                  neo_tensor inverse, int64_t *count);
#endif

/* ---------------------------------------------------------------------------
   >>bags

   Many embedding tables as one object: one call looks up and pools every bag of every table; one
   call merges the gradients per row and takes one exact optimizer step per touched row. Untouched
   rows keep their bits. No dense gradient is ever built.

   ON A DEVICE (neo_ctx_desc.device) rows, optimizer state and workspace are in its memory, and the
   bits are those of the CPU.
     - there too: out, dout, dweights, the gradients of neo_bags_add_grad, a table's own `weight`,
       and what neo_bags_weight, _scale and _state show
     - on the host: the rows of get_rows, set_rows and kept_row (its pointer is valid until the next
       kept_row), the row numbers of add_grad
     - a batch is on either side (neo_jagged.place). A host batch is copied. The first backward or
       accumulate (and each weight_grad) after forward takes forward's copy if it gets the same
       arrays: between the two, leave them as they are. A batch that forward has not seen is in
       other arrays, or comes after a backward or accumulate of the one before
     - a batch that NEO_BOUNDS_ERROR refuses, or whose offsets decrease, is refused by the call that
       gets it, with the same message; for that the call waits for the device
     - of a batch with an inverse bags are pooled once, and their rows go to the samples there;
       backward writes it out there, above a tier as lines, and waits once more for a batch that is
       there
     - if the device fails in the middle of an update (NEO_ERR_DEVICE), some rows have been stepped
       and some not: go on from a checkpoint
     - of tables cut by columns whose optimizer needs sums over whole rows (neo_cut_sums) the block
       sums come to the host and the totals go back, but in a neo_shard whose rows stay there
     - with a tier (neo_store.h) lines of rows are in its memory, the others in a file or the host's
     - not yet: more than 2^31 - 1 ids in a batch (NEO_ERR_UNSUPPORTED)
   ------------------------------------------------------------------------ */
typedef struct neo_bags neo_bags;
typedef struct neo_tier neo_tier; /* see neo_store.h */
typedef enum neo_pooling {
    NEO_POOL_SUM,  /* with weights of neo_jagged_normalize: the weighted mean */
    NEO_POOL_MEAN, /* the sum over the number of ids, with weights too */
    NEO_POOL_NONE
} neo_pooling;
typedef enum neo_bounds { /* what to do with an id outside its table */
    NEO_BOUNDS_ERROR,     /* refuse the batch: nothing is written */
    NEO_BOUNDS_DROP,      /* leave the id out, and count it */
    NEO_BOUNDS_CLAMP      /* use the nearest row, and count it */
} neo_bounds;

typedef enum neo_evict { /* the key that leaves a full set: see >>lines */
    NEO_EVICT_LRU, /* the one used longest ago */
    NEO_EVICT_LFU, /* the one used least; of these the one used longest ago */
    NEO_EVICT_AGE, /* one that was not used for longer than a number of steps; none else */
    NEO_EVICT_SCORE /* the one of least score (neo_bags_score_keys), 0 of a new one; of these the
                       one used longest ago */
} neo_evict;

/* Ids of a table are keys: see "keyed tables". */
typedef struct neo_keys {
    int on; /* 1: they are; else all that follows is 0 */
    neo_evict evict;
    int64_t period; /* LFU: counts halve every so many steps, 0: never. AGE: a key unused for more
                       steps than this leaves; required */
    int64_t admit;  /* a key gets a row at its admit-th occurrence; 0: 1 */
    int shared;     /* 1: keys without a row all read the initial row of key 0, not each its own */
    int bloom;      /* 1: those that wait are counted in a counting Bloom filter; admit up to 15 */
    int sums;       /* of SCORE: 1: neo_bags_score_keys adds to the score that a key has */
} neo_keys;

typedef enum neo_bag_optim_kind { /* g: merged gradient of a row; t from 1 */
    NEO_BAG_SGD,             /* w -= lr g */
    NEO_BAG_ADAGRAD,         /* m += g^2; w -= lr g/(sqrt(m) + eps) */
    NEO_BAG_ROWWISE_ADAGRAD, /* s += mean(g^2), one float per row; w -= lr g/(sqrt(s) + eps) */
    NEO_BAG_ADAM,            /* bias corrected; eps is added to the corrected root, as in
                                torch.optim.Adam (SparseAdam: to the root before); t counts the
                                steps of the whole object */
    NEO_BAG_PARTIAL_ADAM,    /* v one float per row: v = b2 v + (1-b2) mean(g^2) */
    NEO_BAG_LAMB,            /* r = u + wd w, u as Adam's; w -= lr |w|/|r| r per row (1 if a norm is
                                0) */
    NEO_BAG_PARTIAL_LAMB,    /* LAMB on partial Adam */
    NEO_BAG_LARS_SGD,        /* a = lr eta |w|/(|g| + wd |w|) (0 if that is 0/0);
                                m = mu m + a (g + wd w); w -= m */
    NEO_BAG_FTRL,            /* see >>optim */
    NEO_BAG_OPTIM_COUNT
} neo_bag_optim_kind;
typedef enum neo_decay {
    NEO_DECAY_NONE,     /* weight_decay must be 0. LARS, LAMB and FTRL allow only this mode and use
                           weight_decay as stated above */
    NEO_DECAY_L2,       /* g += weight_decay w, after the clip */
    NEO_DECAY_DECOUPLED /* w -= lr weight_decay w, before the step (Adam with it is AdamW) */
} neo_decay;
typedef struct neo_bag_optim {
    neo_bag_optim_kind kind;
    neo_decay decay;
    float weight_decay;
    float eps;                 /* outside the root; 0: 1e-8, of FTRL 1 (beta) */
    float initial_accumulator; /* Adagrad, row-wise Adagrad, FTRL */
    float l1;                  /* FTRL */
    double beta1, beta2;       /* 0: 0.9 and 0.999; below 0: none (0). 1 - beta is taken in
                                  double */
    float momentum;            /* LARS: mu */
    float eta;                 /* LARS; 0: 0.001 */
    float lr_scale;            /* times the lr of backward; 0: 1 */
    float clip_gradient;       /* 0: off; else merged gradients are clamped to +-this */
    float max_norm;            /* 0: off; else a touched row's 2-norm is cut to this after its
                                  step */
} neo_bag_optim;

/* The position of a table in a larger one: it holds the larger table's columns from first_col and
   its rows from first_row on. Initial values, row buckets, norms and means are then those of the
   larger table. Zeros: a table by itself. */
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
    int32_t row_buckets; /* R: pooled sums add bucket by bucket (bucket r has the rows from r rows/R
                            up to (r + 1) rows/R), then over buckets by the leaves' tree, + 0.0f,
                            whatever the plan; 0: 1. The lookup of bags of three ids and more,
                            with weights of any, takes longer: of five, whose rows a cache has, up
                            to 3 times as long with 8, 11 with 64; above 64 a pass for each 64 */
    void *weight;        /* [rows][dim] of dtype in memory of yours (init still applies); NULL:
                            neo's */
    neo_table_part part; /* parts of one table have one name. first_col is a multiple of 16, and so
                            is dim unless the part has the last column; a part of the rows is whole
                            buckets */
    neo_dtype dtype;     /* of the rows: NEO_F32, NEO_F16, NEO_BF16 or NEO_I8; see "narrow rows" */
    int round_nearest;   /* narrow rows are rounded to nearest after a step, not stochastically */
    neo_keys keys;
    int track_rows;      /* 1: a bit of each row says whether it has changed since a checkpoint, for
                            differential ones (neo_save_desc.full_every). Not on a device yet */
    double tier_share;   /* of a tier's memory, in proportion to that of other tables; 0: 1. A
                            neo_plan says it of tables that leave it 0 */
} neo_table_desc;

/* ---- keyed tables ----
   Of a table with neo_table_desc.keys ids are keys: any 64 bits (i32 ids: with their sign), known
   in advance or not; no id is out of range. The table has `rows` rows, which come and go by key: a
   multiple of 32 row_buckets. A key has a set of 32 rows, by a hash; no two keys share a row.

   Reading changes nothing. neo_bags_forward reads the row of a key, or, where it has none, its
   initial row (see neo_keys.shared). The initial row of a key is what row number `key` of a table
   without keys begins with: it depends on the seed, the table's name and the key.

   neo_bags_backward and _accumulate give rows, before they step: a key that has now occurred
   `admit` times gets a row of its set, with its initial values and optimizer state. While it waits
   its occurrences are counted exactly, of the `rows` keys that wait (32 for each set; one unused
   for longest makes room), in 17 bytes a row; or, with bloom, of up to 2.7 times as many in 8
   bytes a row, and then of some too high (where admit is 2, of 1 in 16 at most): a key has 4 of the
   128 counters of a block, of which the least counts; a block whose counters are half in use has
   them halved. If the set is full a key leaves, by neo_keys.evict; its row and state
   are lost. One that has occurred since the last step stays; if all 32 have, the new key gets no
   row this time. Gradients of keys without a row are dropped.

   Who comes and goes depends on nothing but the keys of each step: not on threads, ranks, plans.
   Tensors of the state, beside the table's others: ".keys" [rows] I64; ".used" [rows] I64, the last
   step 2^32 + the count (or the score's bits, in rising order), 0 where a row has no key; with
   admit also ".waiting", ".waiting_used", or ".filter" [rows] I64, 16 counters each; and of all
   tables "<bags>.key_step", from which ages count, also where weights alone are loaded.
   Steps count up to 2^32. Narrow rows are rounded by the number of their row, not of the key.
   On a device rows and states are in its memory; who has one is the host's to say, as ever: ids of
   a batch come to it, and their rows go back. A recorded step (neo_cuda_graph_begin) finds rows,
   and gives them to keys, when its calls are made: keys stay as they are then behind an error that
   leaves calls out, with their first rows. Not there (NEO_ERR_UNSUPPORTED): an inverse of a batch
   in the device's memory; in a recorded step, rows below it.
   ---- */

/* ---- narrow rows ----
   Rows of f16, bf16 or i8 take half or a quarter of the memory, and of the bytes that a lookup
   reads. All arithmetic and the optimizer's state are f32: a lookup decodes; a step decodes the
   row, steps it as a row of f32 is stepped, and rounds the new row. To nearest, a row would stand
   still once steps are below half its last place. So a step rounds up or down at random, with the
   probability of the remainder, and the mean of what is stored is the row that was computed (but
   for f32's own rounding). Initial values, and rows written by neo_bags_set_rows, are rounded to
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

/* Sums along rows of which this object has some columns: a row-wise optimizer, LAMB, LARS and
   max_norm need them over whole rows. For each part that is cut by columns: blocks
   [sums][rows][blocks], the sums of this part's blocks of 16 columns (see >>bag-optim); total
   [sums][rows], to be filled with the sums of all blocks of the row, added from 0 in order of
   column. Parts of the same rows of one table that saw the same batches have the same rows in the
   same order. */
typedef struct neo_cut_sums {
    int32_t table; /* of this object */
    int32_t sums;  /* per row: 1 or 2 */
    int64_t rows, blocks_per_row;
    const float *blocks;
    float *total;
} neo_cut_sums;
/* Called on the thread that called backward or step, before anything has changed; an error ends
   that call, and nothing has changed. */
typedef neo_status (*neo_cut_sums_fn)(void *user, const neo_cut_sums *cuts, int32_t count);

typedef struct neo_bags_desc {
    const char *name;             /* NULL: "bags" */
    const neo_table_desc *tables; /* required; copied */
    int32_t table_count;          /* required */
    const int32_t *feature_table; /* [feature_count] table of each feature; NULL: feature t, table
                                     t */
    int32_t feature_count;        /* with feature_table */
    int64_t max_batch;            /* samples (of any one feature); required */
    int64_t max_ids;              /* ids of a batch over all features; required. With lists a guess:
                                     before forward neo_bags_reserve(bags, max_batch,
                                     neo_jagged_id_count(&batch)) grows it where it is too small */
    neo_bounds bounds;
    int64_t max_kept_rows; /* rows that neo_bags_accumulate may keep between two steps, over all
                              tables; 0: not used */
    neo_cut_sums_fn cut_sums; /* with a part whose optimizer needs sums over whole rows: required */
    void *cut_sums_user;
    int inverse; /* 1: backward takes batches with an inverse, and has room (8 max_batch features +
                    12 max_ids bytes) to write them out: max_ids counts them so. On a device forward
                    needs it, too, and 4 max_batch (features + sum of dims) bytes more */
    neo_tier *tier; /* lines of rows are in memory, the others below (neo_store.h); NULL: all are */
    int64_t tier_taken; /* bytes of the tier's memory that others take: copies of a neo_shard */
    int lazy_init; /* 1: see neo_bags_create. Tables with keys or a `weight` of yours, those of a
                      tier and of a device are made by create all the same */
} neo_bags_desc;

#if !defined(NEO_INFERENCE)
/* neo_bag_cut_rounds: how many times a step of a table that is cut by columns asks for sums: 0 to
   3. */
NEO_API int neo_bag_cut_rounds(const neo_bag_optim *optim);

/* neo_bags_create: allocate and initialise the tables, their optimizer state, and the workspace of
   forward and backward for batches up to max_batch and max_ids. Initial values do not depend on
   anything but the seed and the tensor's name, "<bags>.<table>.weight". With lazy_init create
   writes none: a row gets its values, the same ones, and memory from the system, when a call first
   needs it, and each forward makes some others, about 2 MB a thread, until all are there. So large
   tables start at once. neo_bags_weight, _scale and _state make the rest, and so do digests, saves
   and loads of a state.
   Errors   NEO_ERR_ARG: a field of desc, the table named. NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: rows
            of a table times max_ids (or max_kept_rows) beyond 2^64; i8 rows cut by columns; what a
            device cannot do, track_rows among it.
   neo_bags_bytes: exactly what create asks of the allocator: weights (those not in memory of yours,
   and the scales of i8 rows), optimizer state, and workspace (descriptions included); on a device
   the sum of host and device memory. */
typedef struct neo_bags_memory {
    size_t weight_bytes, state_bytes, workspace_bytes;
    size_t file_bytes; /* of a tier's file, once all its rows were in it; not memory */
} neo_bags_memory;
NEO_API NEO__CHECK_UNUSED neo_status neo_bags_create(neo_ctx *ctx, const neo_bags_desc *desc,
                                                     neo_bags **bags);
NEO_API void neo_bags_destroy(neo_bags *bags);
NEO_API neo_status neo_bags_bytes(neo_ctx *ctx, const neo_bags_desc *desc,
                                  neo_bags_memory *memory);
/* neo_bags_reserve: grow the workspace to these capacities; call it between batches, when a batch
   may be larger than declared. neo_bags_reserve_kept: grow what may be kept to max_kept_rows rows
   (or all that there are). Gradients that are kept stay. A no-op when it fits; counted otherwise.
   On failure nothing changes.
   Errors   NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: as create. (kept) NEO_ERR_STATE: created without
            max_kept_rows. NEO_ERR_ARG: as create. */
NEO_API NEO__CHECK_UNUSED neo_status neo_bags_reserve(neo_bags *bags, int64_t max_batch,
                                                      int64_t max_ids);
NEO_API NEO__CHECK_UNUSED neo_status neo_bags_reserve_kept(neo_bags *bags, int64_t max_kept_rows);

/* neo_bags_forward: pool the rows of every bag of every feature.
   Shapes    batch: T features x B samples; out [B][sum of the features' dims] f32, last stride 1.
             With feature_bags (a batch size per feature): out is 1-d, feature after feature, each
             [B_t][D_t]; with an inverse too it is [B][sum], and a bag is pooled once.
             NEO_POOL_NONE: all tables have one dim D; out [ids][D], one row per id in order.
   Numerics  elements of narrow rows become f32 (see "narrow rows"). A bag adds w_k * row_k by fma
             (weights) or row_k by addition in order of position, from 0;
             MEAN then divides by the bag's length (before any id was dropped). NONE copies the row,
             times its weight where there are weights; a dropped id gives zeros.
   Aliasing  out may not overlap an input. Threads: safe on distinct bags objects of distinct
             contexts.
   Errors    NEO_ERR_RANGE: an id outside its table under NEO_BOUNDS_ERROR: table, feature, sample,
             position and id are named. NEO_ERR_CAPACITY: more samples or ids than reserved.
             NEO_ERR_FORMAT: offsets that decrease, or a bad inverse. NEO_ERR_SHAPE. Nothing is
             written then. NEO_ERR_UNSUPPORTED: an inverse with NEO_POOL_NONE.
   Source    torch.nn.EmbeddingBag; an empty bag gives zeros. */
NEO_API neo_status neo_bags_forward(neo_bags *bags, const neo_jagged *batch, neo_tensor out);

/* neo_bags_prefetch: of bags with a tier (neo_store.h) that has room for it: start to read the rows
   of a batch to come that are not in memory. Returns at once; changes no bit; does nothing without.
   Up to neo_tier_desc.prefetch batches ahead, in order; one more drops what was read for the first
   of them (BATCHES AHEAD there). In host memory: a batch on a device, or with more ids than are
   reserved, is passed over. The arrays are read before it returns; if they are written later,
   forward looks up what is there then.
   Errors    NEO_ERR_SHAPE, NEO_ERR_FORMAT: of the batch, as forward; ids outside their tables are
             passed over. A row that cannot be read is read again when it is needed. */
NEO_API neo_status neo_bags_prefetch(neo_bags *bags, const neo_jagged *batch);

/* neo_bags_backward: merge the gradients per row, then one optimizer step per touched row, fused.
   Shapes    dout as out of forward, for the same batch.
   Numerics  d is dout of a bag, divided by its length for MEAN. An occurrence of a row adds d, or
             w_k * d by fma, in order of (feature, sample, position) inside a leaf; leaves (of the
             feature's samples, see >>leaves) add by tree, then + 0.0f. What follows is in
             >>bag-optim: clip_gradient, decay, the optimizer, max_norm.
   Errors    as forward. NEO_ERR_NUMERIC: lr is not finite. NEO_ERR_STATE: gradients are kept; an
             inverse without neo_bags_desc.inverse. Those of cut_sums. Nothing has changed then. */
NEO_API neo_status neo_bags_backward(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                     float lr);

/* ---- unfused: gradients that are kept ----
   Over several micro-batches or losses, and where all gradients must be known before any weight
   moves (clipping by a global norm, loss scaling): accumulate any number of times, then one step.
   Needs max_kept_rows.

   neo_bags_accumulate: merge the gradients of a batch per row, as backward does, and add them to
   those kept. leaves: the batch is these leaves of a larger one (then without feature_bags); NULL:
   it is all of it. With one call per step, accumulate and step are backward, bit for bit. Of
   several calls the merged gradients add in order of call.
   Errors   as backward. NEO_ERR_CAPACITY: more rows than max_kept_rows; nothing has been added
            then.
   neo_bags_add_grad: add gradients of your own, in order: rows [count] of one table, grad
   [count][dim] f32.
   Errors   NEO_ERR_RANGE: a row outside the table. NEO_ERR_SHAPE. NEO_ERR_CAPACITY, as above.
   neo_bags_kept_count, neo_bags_kept_row: what is kept: row i, in the order they came: its table,
   its number, and its gradient, as many floats as the table has columns. Valid until the next call
   that keeps, steps or clears. NULL: there is no row i, or the device failed (neo_last_error says
   how). neo_bags_grad_squares: add the squares of all kept gradients to sum, exactly but for one
   rounding in each product and in the tree of 16 columns: no order matters. neo_bags_table_squares:
   those of one table, each rounded to f32, as neo_state_look has its weights: the norm of its
   gradient is the root of neo_exact_value. It walks all that is kept: for reports.
   neo_bags_scale_grads: multiply them. neo_bags_step: one optimizer step for each row that is kept;
   then none is. neo_bags_clear: forget them.
   Errors   NEO_ERR_ARG: an argument is NULL; no such table. NEO_ERR_DEVICE, on a device alone: a
            call of it failed; sum, and what is kept, are as before. */
NEO_API neo_status neo_bags_accumulate(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves);
NEO_API neo_status neo_bags_add_grad(neo_bags *bags, int32_t table, const int64_t *rows,
                                     int64_t count, neo_tensor grad);
NEO_API int64_t neo_bags_kept_count(const neo_bags *bags);
NEO_API const float *neo_bags_kept_row(const neo_bags *bags, int64_t i, int32_t *table,
                                       int64_t *row);
NEO_API neo_status neo_bags_grad_squares(const neo_bags *bags, neo_exact *sum);
NEO_API neo_status neo_bags_table_squares(const neo_bags *bags, int32_t table, neo_exact *sum);
NEO_API neo_status neo_bags_scale_grads(neo_bags *bags, float scale);
NEO_API neo_status neo_bags_step(neo_bags *bags, float lr);
NEO_API neo_status neo_bags_clear(neo_bags *bags);

/* neo_bags_weight_grad: dweights[k] = the gradient of the per-id weight k of the batch (counted
   from its first id; a batch without weights stands for ones): dout of its bag . row. The sum has
   the fixed shape of rows (see >>bag-optim); MEAN then divides it by the bag's length; 0 for a
   dropped id. Call it before backward changes the rows. dweights: as many floats as the batch has
   ids.
   Errors: as forward. NEO_ERR_UNSUPPORTED: a batch with an inverse. */
NEO_API neo_status neo_bags_weight_grad(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                        float *dweights);
/* Tables and features as the description had them; the name of no table is NULL. */
NEO_API int32_t neo_bags_table_count(const neo_bags *bags);
NEO_API int64_t neo_bags_out_width(const neo_bags *bags); /* sum of the features' dims */
NEO_API const char *neo_bags_table_name(const neo_bags *bags, int32_t table);
/* neo_bags_weight: a view of a table's rows, [rows][dim] of the table's dtype. neo_bags_scale: of
   scale and bias of each row of i8, [rows][2] f32; none for other dtypes. neo_bags_state: of its
   optimizer state k (0: "momentum1", 1: "momentum2"; [rows] or [rows][dim]), or of its keys (2:
   "keys", 3: "used", 4: "waiting", 5: "waiting_used", 6: "filter"; [rows]); none when it has no
   such state. Keys' tensors are in host memory, with a device too. */
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
/* neo_bags_find_keys: rows[i] = the row of keys[i], -1: it has none.
   neo_bags_key_of: 1: the row has a key, *key; 0: it has none, or there is no such row.
   neo_bags_put_keys: give rows to keys, as if each had occurred often enough, in this order;
   rows[i] -1: the rows of its set are all in use. neo_bags_set_rows then writes them.
   neo_bags_drop_keys: take rows away, which are 0 then; keys that have none are passed.
   neo_bags_score_keys: of a table with NEO_EVICT_SCORE, the scores [count] of the rows of keys, or
   (neo_keys.sums) what they grow by, in f32, in this order: a key may be there several times. A sum
   that is no number (inf - inf) is 0. Keys that have no row are passed.
   neo_bags_prune_keys: drop keys whose rows are small: those of a 2-norm below least, and then, of
   each set of 32 rows, all but the `most` of largest norm (most 0: all stay; of equals the lowest
   row; a row with a NaN is as large as one can be). *pruned (or NULL): how many.
   neo_bags_key_stats: of one table; zeros for one without keys, or no bags. Keys that are dropped
   or pruned are evictions.
   Threads  as neo_bags_get_rows.
   Errors   NEO_ERR_ARG: no such table, it has no keys, an argument is NULL, its keys have no
            scores, most is not in 0 .. 32. NEO_ERR_NUMERIC: a score, or least, is NaN.
            NEO_ERR_STATE (put, drop, prune): gradients are kept. Nothing has changed. Of prune,
            where rows lie in a tier, also errors of its file. */
typedef struct neo_key_stats {
    int64_t used;                  /* rows that have a key */
    int64_t lookups, hits;         /* ids in backward and accumulate; those that had a row */
    int64_t admissions, evictions; /* keys */
    int64_t waited, refused;       /* ids that got no row: too few so far; their set was in use */
} neo_key_stats;
NEO_API neo_status neo_bags_find_keys(const neo_bags *bags, int32_t table, const uint64_t *keys,
                                      int64_t count, int64_t *rows);
NEO_API int neo_bags_key_of(const neo_bags *bags, int32_t table, int64_t row, uint64_t *key);
NEO_API neo_status neo_bags_put_keys(neo_bags *bags, int32_t table, const uint64_t *keys,
                                     int64_t count, int64_t *rows);
NEO_API neo_status neo_bags_drop_keys(neo_bags *bags, int32_t table, const uint64_t *keys,
                                      int64_t count);
NEO_API neo_status neo_bags_score_keys(neo_bags *bags, int32_t table, const uint64_t *keys,
                                       const float *scores, int64_t count);
NEO_API neo_status neo_bags_prune_keys(neo_bags *bags, int32_t table, float least, int most,
                                       int64_t *pruned);
NEO_API neo_key_stats neo_bags_key_stats(const neo_bags *bags, int32_t table);
/* neo_bags_note_rows: rows [first, first + count) were changed in the memory that neo_bags_weight
   or neo_bags_state shows; if they are tracked (neo_table_desc.track_rows) the next checkpoint has
   them. While a save is under way (neo_save_begin), call it before they change. Steps,
   neo_bags_set_rows and neo_bags_put_keys say so themselves. Errors: those of neo_bags_set_rows. */
NEO_API neo_status neo_bags_note_rows(neo_bags *bags, int32_t table, int64_t first, int64_t count);
typedef struct neo_bags_stats {
    int64_t steps;        /* backward calls: the t of Adam */
    int64_t out_of_range; /* ids dropped or clamped by forward so far; of repeated bags once */
    int64_t grow_count;   /* times reserve grew the workspace */
} neo_bags_stats;
NEO_API neo_bags_stats neo_bags_get_stats(const neo_bags *bags);
/* neo_bags_set_steps: steps taken (below 0: 0), for optimizer state that comes from elsewhere. */
NEO_API void neo_bags_set_steps(neo_bags *bags, int64_t steps);
#endif

/* ---------------------------------------------------------------------------
   >>wire

   Rows of f32 in fewer bits. A row of `cols` numbers is coded by itself, in blocks of
   NEO_WIRE_BLOCK columns (the last may be shorter); f8, i8 and i4 carry one f32 scale per block. So
   a row does not depend on those that travel with it, and a rank's own part is rounded, too.
       f16, bf16   to nearest even. Finite numbers beyond f16's largest saturate, and are counted.
       f8e4m3      x/scale with scale = the power of two that brings the block's largest magnitude
                   into (224, 448]
       f8e5m2      the same into (28672, 57344]
       i8          x/scale with scale = largest magnitude/127 (to 17 bits), to nearest even, in
                   -127 .. 127
       i4          largest/7, in -7 .. 7, two numbers in a byte
   Scales are at least 2^-126, or 0 where the whole block rounds to zeros. |decoded - x| is at most
   the larger of what is given: f16 2^-11 |x|, 2^-25; bf16 2^-8 |x|, 2^-134; f8e4m3 2^-4 |x|, 2^-10
   scale, 2^-136; f8e5m2 2^-3 |x|, 2^-17 scale, 2^-143; i8 and i4 scale/2 (1 + 2^-15), 2^-127. That
   is without an exponent, and but for numbers that saturate or round up to infinity (bf16 and f8:
   only within 2^-4 of the largest float). i8 and i4 decode -0 as +0. Infinities and NaNs: f32, f16
   and bf16 carry them. In the others a block that holds one decodes as NaN throughout. Sums over
   ranks are of the decoded numbers, in f32.
   ------------------------------------------------------------------------ */
typedef enum neo_wire {
    NEO_WIRE_F32,
    NEO_WIRE_F16,
    NEO_WIRE_BF16,
    NEO_WIRE_F8E4M3,
    NEO_WIRE_F8E5M2,
    NEO_WIRE_I8,
    NEO_WIRE_I4,
    NEO_WIRE_COUNT
} neo_wire;
enum { NEO_WIRE_BLOCK = 64 };

#if !defined(NEO_INFERENCE)
/* Effect of coding on the numbers; each call adds. saturated: f16 only. non_finite: decoded as Inf
   or NaN: carried, spoilt by another in the block, or overflowed (an exponent's product too). */
typedef struct neo_wire_stats {
    int64_t numbers, saturated, non_finite;
    double error_squares, squares; /* of those finite then: sum (decoded - x)^2, sum x^2 */
    double max_error;              /* largest |decoded - x| */
} neo_wire_stats;

NEO_API const char *neo_wire_name(neo_wire wire); /* "f32", "bf16", "i8" ... */
/* neo_wire_parse: NEO_ERR_ARG for another word. */
NEO_API neo_status neo_wire_parse(const char *name, neo_wire *wire);
/* neo_wire_row_bytes: of one coded row of cols numbers; a multiple of 4. */
NEO_API size_t neo_wire_row_bytes(neo_wire wire, int64_t cols);
/* neo_wire_encode: src [rows][cols] f32, rows `stride` floats apart, to dst [rows][row_bytes],
   aligned to 4; padding bytes are 0. exponent: numbers are multiplied by 2^exponent first (loss
   scaling; the decoder divides); outside -126 .. 126 it acts as the nearest; a product beyond f32
   is an Inf (f16: saturates). stats may be NULL: then errors are not measured, which is faster.
   neo_wire_decode: back. Aliasing src and dst may not overlap.
   Threads  any; they use only the context's instruction set. */
NEO_API void neo_wire_encode(const neo_ctx *ctx, neo_wire wire, int exponent, const float *src,
                             int64_t rows, int64_t cols, int64_t stride, void *dst,
                             neo_wire_stats *stats);
NEO_API void neo_wire_decode(const neo_ctx *ctx, neo_wire wire, int exponent, const void *src,
                             int64_t rows, int64_t cols, int64_t stride, float *dst);
#endif
#ifdef __cplusplus
}
#endif
#endif /* NEO_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

/* ---------------------------------------------------------------------------
   >>shared

   The common part of the implementations of neo's headers, which may be files of their own.
   ------------------------------------------------------------------------ */
#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_COMM_IMPLEMENTATION) ||     \
     defined(NEO_FSDP_IMPLEMENTATION) || defined(NEO_CUDA_IMPLEMENTATION)) &&                      \
    !defined(NEO__SHARED)
#define NEO__SHARED
#if defined(NEO_INFERENCE)
/* Nobody calls the helpers of what is left out, and the compiler drops them. */
#if defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define NEO__TRAIN(kernel) NULL
#define NEO__TRAINS 0
#else
#define NEO__TRAIN(kernel) kernel
#define NEO__TRAINS 1
#endif
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "neo: -ffast-math (-fassociative-math) breaks the same-bits contract: not for this file"
#endif
/* 16: only _Float16 is special (gcc with AVX512-FP16). */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "neo: FLT_EVAL_METHOD must be 0 (on 32-bit x86 compile with -msse2 -mfpmath=sse)"
#endif

#include <errno.h>
#include <inttypes.h>
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
#else
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <emmintrin.h>
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
#if defined(__CUDACC__)
#define NEO__EVERYWHERE __host__ __device__ /* on the GPU too */
#else
#define NEO__EVERYWHERE
#endif

/* Implementations are cold by default: code that runs once per file, model or call is compiled
   without optimization, since optimizing it takes half of the compile time and gains nothing.
   NEO__HOT_BEGIN .. NEO__HOT_END hold the loops over samples, ids and elements, and calls of open,
   read and poll, whose checks in glibc (_FORTIFY_SOURCE) need the optimizer. NEO_NO_COLD compiles
   everything at the level of the command line. */
#if defined(__OPTIMIZE__) && !defined(NEO_NO_COLD) && !defined(__CUDACC__) &&                      \
    (defined(__GNUC__) || defined(__clang__))
#define NEO__COLD 1
#endif
#if defined(NEO__COLD) && defined(__clang__)
#define NEO__COLD_BEGIN _Pragma("clang optimize off")
#define NEO__COLD_END _Pragma("clang optimize on")
#elif defined(NEO__COLD)
#if defined(NEO_INFERENCE) /* for size, which is compiled sooner than for speed, too */
#define NEO__COLD_BEGIN /* in one pragma: gcc ignores flags of another one behind a level */       \
    NEO__OFF(GCC push_options)                                                                     \
    NEO__OFF(GCC optimize("Os,no-tree-vrp,no-tree-pre,no-tree-pta,no-tree-bit-ccp,no-gcse,no-dse," \
                          "no-ivopts,no-ipa-cp,no-ipa-sra,no-ipa-icf,no-schedule-insns2,"          \
                          "no-thread-jumps,no-tree-dominator-opts,no-guess-branch-probability,"    \
                          "no-expensive-optimizations,no-code-hoisting,no-rerun-cse-after-loop,"   \
                          "no-tree-sink,no-tree-reassoc,no-tree-slsr,no-tree-scev-cprop,"          \
                          "no-tree-phiprop,no-tree-builtin-call-dce,no-tree-loop-optimize,"        \
                          "no-tree-loop-im,no-ssa-backprop,no-store-merging,no-optimize-strlen,"   \
                          "no-if-conversion,no-if-conversion2,no-cprop-registers,"                 \
                          "no-split-wide-types,no-ipa-modref,no-ipa-pure-const,no-ipa-vrp,"        \
                          "no-ipa-bit-cp,no-ipa-profile,no-ipa-reference,no-compare-elim,"         \
                          "no-forward-propagate,no-move-loop-invariants,no-shrink-wrap,no-ree,"    \
                          "no-tree-loop-distribute-patterns,no-tree-ch,no-tree-dse"))
#else
#define NEO__COLD_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"O0\")")
#endif
#define NEO__COLD_END _Pragma("GCC pop_options")
#else
#define NEO__COLD_BEGIN
#define NEO__COLD_END
#endif
#define NEO__HOT_BEGIN NEO__COLD_END
#define NEO__HOT_END NEO__COLD_BEGIN
/* gcc leaves out passes that take a third of the compile time: FEW_PASSES those that make nothing
   here faster, LEAN_BEGIN those that speed up only kernels and parsers that branch and copy, too,
   HOST_BEGIN, for code that hands work to kernels, most. */
#if defined(NEO__COLD) && !defined(__clang__)
#define NEO__OFF(...) _Pragma(#__VA_ARGS__)
#define NEO__FEW_PASSES                                                                            \
    NEO__OFF(GCC optimize("no-tree-vrp,no-tree-pre,no-code-hoisting,no-gcse,no-dse,"               \
                          "no-schedule-insns2,no-rerun-cse-after-loop,no-tree-bit-ccp,no-ipa-cp,"  \
                          "no-ipa-sra,no-ipa-icf,no-tree-pta,no-reorder-blocks-and-partition"))
#else
#define NEO__FEW_PASSES
#endif
#if defined(NEO__COLD) && !defined(__clang__) && !defined(__OPTIMIZE_SIZE__)
#define NEO__LEAN_BEGIN                                                                            \
    NEO__OFF(GCC push_options)                                                                     \
    NEO__OFF(GCC optimize("ira-region=one,no-thread-jumps,no-tree-dominator-opts,"                 \
                          "no-tree-vectorize,no-tree-slp-vectorize"))
#define NEO__LEAN_END NEO__OFF(GCC pop_options)
#define NEO__HOST_BEGIN                                                                            \
    NEO__LEAN_BEGIN NEO__FEW_PASSES                                                                \
    NEO__OFF(GCC optimize("O1,no-ipa-pure-const,no-ipa-modref,no-tree-reassoc,no-tree-sink,"       \
                          "no-cprop-registers"))
#define NEO__HOST_END NEO__LEAN_END
#else
#define NEO__LEAN_BEGIN
#define NEO__LEAN_END
#define NEO__HOST_BEGIN
#define NEO__HOST_END
#endif
/* Kernels of a program that only predicts. */
#if defined(NEO__COLD) && !defined(__clang__) && defined(NEO_INFERENCE)
#define NEO__SMALL_BEGIN                                                                           \
    NEO__OFF(GCC push_options)                                                                     \
    NEO__OFF(GCC optimize("O1,align-functions=1,no-tree-ch,no-guess-branch-probability,no-dse,"    \
                          "no-tree-bit-ccp,no-tree-pta,no-code-hoisting,no-rerun-cse-after-loop"))
#define NEO__SMALL_END NEO__OFF(GCC pop_options)
#else
#define NEO__SMALL_BEGIN
#define NEO__SMALL_END
#endif
/* The host's code of this file; of a program that only predicts it is for size, as kernels take
   the time. */
#if defined(NEO_INFERENCE)
#define NEO__CALLS_BEGIN NEO__COLD_BEGIN
#define NEO__CALLS_END NEO__COLD_END
#else
#define NEO__CALLS_BEGIN NEO__HOST_BEGIN
#define NEO__CALLS_END NEO__HOST_END
#endif

/* ---- memory: sizes, one block cut into arrays, an arena ---- */

/* Sizes saturate at SIZE_MAX, which no allocator grants. */
NEO__INLINE size_t neo__size_mul(size_t a, size_t b) {
    return a != 0 && b > SIZE_MAX / a ? SIZE_MAX : a * b;
}
NEO__INLINE size_t neo__size_add(size_t a, size_t b) { return b > SIZE_MAX - a ? SIZE_MAX : a + b; }

/* Memory for `function`, not cleared; NULL with "<function>: no memory for N bytes" in
   neo_last_error. */
NEO__UNUSED static void *neo__alloc_for(neo_ctx *ctx, size_t bytes, const char *function) {
    void *p = neo_alloc(ctx, bytes);
    if (!p) neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes", function, bytes);
    return p;
}

/* One block cut into arrays, each 64-byte aligned. A layout function runs twice: with block NULL it
   leaves every pointer NULL and counts bytes in `at`; with a block of that size it sets them. */
typedef struct neo__carve {
    char *block;
    size_t at;
} neo__carve;
NEO__UNUSED static void neo__carve_next(neo__carve *c, void *pointer, size_t size, size_t count) {
    const size_t bytes = neo__size_mul(size, count);
    void *here = c->block ? c->block + c->at : NULL;
    memcpy(pointer, &here, sizeof here); /* the pointer's type is the caller's */
    c->at = neo__size_add(c->at, neo__size_add(bytes, 63) & ~(size_t)63);
}
/* NEO__CARVE(&carve, to->ids, n): to->ids = the next n of its elements. */
#define NEO__CARVE(carve, pointer, count)                                                          \
    neo__carve_next(carve, &(pointer), sizeof *(pointer), (size_t)(count))

/* Cleared memory in chunks, freed at once: for what an object names and lists while it is made. */
typedef struct neo__arena_chunk {
    struct neo__arena_chunk *next;
    size_t bytes;
} neo__arena_chunk;
typedef struct neo__arena {
    neo_ctx *ctx;
    neo__arena_chunk *chunks;
    char *at;
    size_t left;
    const char *function; /* for the message of neo__arena_take; or NULL */
} neo__arena;
/* NULL when there is no memory. */
NEO__UNUSED static void *neo__arena_alloc(neo__arena *arena, size_t bytes) {
    enum { HEADER = 64, CHUNK = 8192 };
    bytes = neo__size_add(bytes, 15) & ~(size_t)15;
    if (bytes > arena->left) {
        size_t size = neo__size_add(NEO__MAX(bytes, (size_t)CHUNK), HEADER);
        neo__arena_chunk *chunk = (neo__arena_chunk *)neo_alloc(arena->ctx, size);
        if (!chunk) return NULL;
        memset(chunk, 0, size);
        chunk->next = arena->chunks;
        chunk->bytes = size;
        arena->chunks = chunk;
        arena->at = (char *)chunk + HEADER;
        arena->left = size - HEADER;
    }
    char *p = arena->at;
    arena->at += bytes;
    arena->left -= bytes;
    return p;
}
NEO__UNUSED static char *neo__arena_text(neo__arena *a, const char *text, size_t bytes) {
    char *p = (char *)neo__arena_alloc(a, neo__size_add(bytes, 1));
    if (p) memcpy(p, text, bytes);
    return p;
}
NEO__UNUSED static void neo__arena_free(neo__arena *a) {
    while (a->chunks) {
        neo__arena_chunk *next = a->chunks->next;
        neo_free(a->ctx, a->chunks, a->chunks->bytes);
        a->chunks = next;
    }
    a->at = NULL;
    a->left = 0;
}
NEO__UNUSED static neo_status neo__arena_take(neo__arena *a, void *pointer, size_t bytes) {
    void *here = neo__arena_alloc(a, NEO__MAX(bytes, (size_t)1));
    memcpy(pointer, &here, sizeof here); /* the pointer's type is the caller's */
    NEO__CHECK(here, NEO_ERR_MEMORY, "%s%sno memory for %zu bytes", a->function ? a->function : "",
               a->function ? ": " : "", bytes);
    return NEO_OK;
}
/* NEO__ARENA(&arena, list, n): list = n cleared elements. NEO_ERR_MEMORY: NULL. */
#define NEO__ARENA(arena, list, count)                                                             \
    neo__arena_take(arena, &(list), neo__size_mul((size_t)(count), sizeof *(list)))

/* Make room for `need` elements; what the list holds is kept. NEO_ERR_MEMORY: the list is as
   before. */
NEO__UNUSED static neo_status neo__grow(neo_ctx *ctx, void *pointer, int64_t *capacity,
                                        int64_t need, size_t size) {
    int64_t twice = *capacity > INT64_MAX / 2 ? INT64_MAX : 2 * *capacity;
    int64_t larger = NEO__MAX(NEO__MAX(twice, 16), need);
    void *old, *list = neo_alloc(ctx, neo__size_mul((size_t)larger, size));
    memcpy(&old, pointer, sizeof old); /* the pointer's type is the caller's */
    NEO__CHECK(list, NEO_ERR_MEMORY, "no memory for a list of %zu items of %zu bytes",
               (size_t)larger, size);
    if (*capacity > 0) memcpy(list, old, (size_t)*capacity * size);
    neo_free(ctx, old, (size_t)*capacity * size);
    memcpy(pointer, &list, sizeof list);
    *capacity = larger;
    return NEO_OK;
}
/* NEO__GROW(ctx, list, capacity, need): an int64_t capacity; 0 with list NULL for an empty list. */
#define NEO__GROW(ctx, list, capacity, need)                                                       \
    ((need) <= (capacity) ? NEO_OK                                                                 \
                          : neo__grow(ctx, &(list), &(capacity), need, sizeof *(list)))
#define NEO__LIST_FREE(ctx, list, capacity)                                                        \
    neo_free(ctx, (void *)(list), (size_t)(capacity) * sizeof *(list))

/* ---- an error over a clean-up: keep the message, clean up with calls that may fail, restore ----
   */
enum { NEO__ERROR_BYTES = 512 };
typedef struct neo__kept_error {
    neo_status status;
    char text[NEO__ERROR_BYTES];
} neo__kept_error;
NEO__UNUSED static neo__kept_error neo__error_keep(neo_status status) {
    neo__kept_error e;
    e.status = status;
    snprintf(e.text, sizeof e.text, "%s", neo_last_error());
    return e;
}
/* Returns the kept status; NEO_OK leaves neo_last_error alone. */
NEO__UNUSED static neo_status neo__error_restore(const neo__kept_error *e) {
    return e->status == NEO_OK ? NEO_OK : neo_fail(e->status, "%s", e->text);
}

/* More text behind that of a buffer of so many bytes; what has no room is cut off. */
NEO__PRINTF(3, 4)
NEO__UNUSED static void neo__append(char *text, size_t bytes, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* ---- threads, mutexes, conditions: POSIX or Windows ---- */
enum { NEO__MAX_THREADS = 256, NEO__MASK_BYTES = 2048 };
#if defined(_WIN32)
typedef SRWLOCK neo__mutex;
typedef CONDITION_VARIABLE neo__cond;
typedef HANDLE neo__thread_id;
NEO__UNUSED static void neo__mutex_init(neo__mutex *m) { InitializeSRWLock(m); }
NEO__UNUSED static void neo__mutex_destroy(neo__mutex *m) { (void)m; }
NEO__UNUSED static void neo__mutex_lock(neo__mutex *m) { AcquireSRWLockExclusive(m); }
NEO__UNUSED static void neo__mutex_unlock(neo__mutex *m) { ReleaseSRWLockExclusive(m); }
NEO__UNUSED static void neo__cond_init(neo__cond *c) { InitializeConditionVariable(c); }
NEO__UNUSED static void neo__cond_destroy(neo__cond *c) { (void)c; }
NEO__UNUSED static void neo__cond_signal(neo__cond *c) { WakeConditionVariable(c); }
NEO__UNUSED static void neo__cond_broadcast(neo__cond *c) { WakeAllConditionVariable(c); }
NEO__UNUSED static void neo__cond_wait(neo__cond *c, neo__mutex *m) {
    SleepConditionVariableSRW(c, m, INFINITE, 0);
}
/* Until neo_time_ns() is until_ns at most. 0: the time has come. */
NEO__UNUSED static int neo__cond_wait_until(neo__cond *c, neo__mutex *m, int64_t until_ns) {
    int64_t left = (until_ns - neo_time_ns() + 999999) / 1000000;
    if (left <= 0) return 0;
    return SleepConditionVariableSRW(c, m, (DWORD)NEO__MIN(left, 1000000000), 0) != 0;
}
NEO__UNUSED static void neo__thread_yield(void) { SwitchToThread(); }
NEO__UNUSED static void neo__thread_sleep(int64_t ns) { Sleep((DWORD)((ns + 999999) / 1000000)); }
NEO__UNUSED static int neo__cores_online(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}
NEO__UNUSED static int neo__core_now(void) { return -1; }
NEO__UNUSED static void neo__core_mask(unsigned char *mask) { memset(mask, 0, NEO__MASK_BYTES); }
#else
typedef pthread_mutex_t neo__mutex;
typedef pthread_cond_t neo__cond;
typedef pthread_t neo__thread_id;
/* Conditions count time as neo_time_ns does, where the system can. */
#if defined(__APPLE__)
#define NEO__COND_CLOCK CLOCK_REALTIME
#else
#define NEO__COND_CLOCK CLOCK_MONOTONIC
#endif
NEO__UNUSED static void neo__mutex_init(neo__mutex *m) { pthread_mutex_init(m, NULL); }
NEO__UNUSED static void neo__mutex_destroy(neo__mutex *m) { pthread_mutex_destroy(m); }
NEO__UNUSED static void neo__mutex_lock(neo__mutex *m) { pthread_mutex_lock(m); }
NEO__UNUSED static void neo__mutex_unlock(neo__mutex *m) { pthread_mutex_unlock(m); }
NEO__UNUSED static void neo__cond_init(neo__cond *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
#if !defined(__APPLE__)
    pthread_condattr_setclock(&attr, NEO__COND_CLOCK);
#endif
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}
NEO__UNUSED static void neo__cond_destroy(neo__cond *c) { pthread_cond_destroy(c); }
NEO__UNUSED static void neo__cond_signal(neo__cond *c) { pthread_cond_signal(c); }
NEO__UNUSED static void neo__cond_broadcast(neo__cond *c) { pthread_cond_broadcast(c); }
NEO__UNUSED static void neo__cond_wait(neo__cond *c, neo__mutex *m) { pthread_cond_wait(c, m); }
/* Until neo_time_ns() is until_ns at most. 0: the time has come. */
NEO__UNUSED static int neo__cond_wait_until(neo__cond *c, neo__mutex *m, int64_t until_ns) {
    struct timespec t;
    int64_t left = until_ns - neo_time_ns();
    if (left <= 0) return 0;
    clock_gettime(NEO__COND_CLOCK, &t);
    int64_t ns = (int64_t)t.tv_nsec + left % 1000000000;
    t.tv_sec += (time_t)(left / 1000000000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return pthread_cond_timedwait(c, m, &t) == 0;
}
NEO__UNUSED static void neo__thread_yield(void) { sched_yield(); }
NEO__UNUSED static void neo__thread_sleep(int64_t ns) {
    struct timespec t;
    t.tv_sec = (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    while (nanosleep(&t, &t) != 0 && errno == EINTR) continue;
}
/* The core that runs this thread, as of now; -1: the system does not tell. */
#if defined(__linux__)
#if !defined(__cplusplus) && !defined(CPU_SET)
extern int sched_getcpu(void); /* hidden under _POSIX_C_SOURCE */
#endif
NEO__UNUSED static int neo__core_now(void) { return sched_getcpu(); }
#else
NEO__UNUSED static int neo__core_now(void) { return -1; }
#endif
NEO__UNUSED static int neo__cores_online(void) {
    return (int)NEO__MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}
/* The cores that this process may run on, four in a byte, where the system tells (Linux); zeros
   where it does not. mask: [NEO__MASK_BYTES]. */
NEO__UNUSED static void neo__core_mask(unsigned char *mask) {
    char line[NEO__MASK_BYTES];
    FILE *f = fopen("/proc/self/status", "r");
    memset(mask, 0, NEO__MASK_BYTES);
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "Cpus_allowed:", 13) != 0) continue;
        for (int i = 13; line[i]; i++)
            mask[i] = (unsigned char)(line[i] >= '0' && line[i] <= '9'   ? line[i] - '0'
                                      : line[i] >= 'a' && line[i] <= 'f' ? line[i] - 'a' + 10
                                                                         : 0);
        break;
    }
    if (f) fclose(f);
}
#endif
#if !defined(NEO_INFERENCE)
/* ---- the time of a job of threads ----
   NULL is the real clock, a neo__clock a virtual one. Each thread of the job either runs or waits
   in neo__clock_wait; when none runs, time jumps to the earliest moment that a thread waits for,
   and that thread wakes alone. A thread counts as running from neo__clock_enter, which its starter
   calls, to neo__clock_leave. Locks are taken in the order: the caller's, the clock's. */
enum { NEO__WAITS, NEO__WOKEN, NEO__IN_TIME };
typedef struct neo__waiter {
    struct neo__waiter *next;
    const neo__cond *cond; /* NULL: nobody wakes it but time */
    int64_t until_ns;      /* 0: for ever */
    int order;             /* at the same moment the lowest wakes first */
    int state;
    neo__cond wake;
} neo__waiter;
typedef struct neo__clock {
    neo__mutex lock;
    int64_t now_ns; /* atomic; written under the lock */
    int running;
    neo__waiter *waiters;
} neo__clock;
NEO__INLINE int64_t neo__clock_now(const neo__clock *k) {
    return k ? __atomic_load_n(&k->now_ns, __ATOMIC_RELAXED) : neo_time_ns();
}
/* Under the clock's lock. */
NEO__UNUSED static void neo__clock_resume(neo__clock *k, neo__waiter **at, int state) {
    neo__waiter *w = *at;
    *at = w->next;
    w->state = state;
    k->running++;
    neo__cond_signal(&w->wake);
}
/* One thread less runs. Under the clock's lock. */
NEO__UNUSED static void neo__clock_pause(neo__clock *clock) {
    neo__waiter **first = NULL;
    if (--clock->running > 0) return;
    for (neo__waiter **at = &clock->waiters; *at; at = &(*at)->next) {
        const neo__waiter *w = *at;
        if (!w->until_ns) continue;
        if (!first || w->until_ns < (*first)->until_ns ||
            (w->until_ns == (*first)->until_ns && w->order < (*first)->order))
            first = at;
    }
    if (!first) return;
    __atomic_store_n(&clock->now_ns, NEO__MAX(clock->now_ns, (*first)->until_ns), __ATOMIC_RELAXED);
    neo__clock_resume(clock, first, NEO__IN_TIME);
}
NEO__UNUSED static void neo__clock_enter(neo__clock *k) {
    if (!k) return;
    neo__mutex_lock(&k->lock);
    k->running++;
    neo__mutex_unlock(&k->lock);
}
NEO__UNUSED static void neo__clock_leave(neo__clock *k) {
    if (!k) return;
    neo__mutex_lock(&k->lock);
    neo__clock_pause(k);
    neo__mutex_unlock(&k->lock);
}
/* Wait on cond, under lock, until neo__clock_wake (1) or until_ns (0; if that is 0: for ever). */
NEO__UNUSED static int neo__clock_wait(neo__clock *clock, neo__cond *cond, neo__mutex *lock,
                                       int64_t until_ns, int order) {
    if (!clock) {
        if (until_ns) return neo__cond_wait_until(cond, lock, until_ns);
        neo__cond_wait(cond, lock);
        return 1;
    }
    neo__waiter waiter;
    waiter.cond = cond;
    waiter.until_ns = until_ns;
    waiter.order = order;
    waiter.state = NEO__WAITS;
    neo__cond_init(&waiter.wake);
    neo__mutex_lock(&clock->lock);
    waiter.next = clock->waiters;
    clock->waiters = &waiter;
    neo__clock_pause(clock);
    if (lock) neo__mutex_unlock(lock);
    while (waiter.state == NEO__WAITS) neo__cond_wait(&waiter.wake, &clock->lock);
    neo__mutex_unlock(&clock->lock);
    neo__cond_destroy(&waiter.wake);
    if (lock) neo__mutex_lock(lock);
    return waiter.state == NEO__WOKEN;
}
/* All that wait on cond. The caller holds the lock under which they wait. */
NEO__UNUSED static void neo__clock_wake(neo__clock *clock, neo__cond *cond) {
    if (!clock) {
        neo__cond_broadcast(cond);
        return;
    }
    neo__mutex_lock(&clock->lock);
    for (neo__waiter **at = &clock->waiters; *at;) {
        if ((*at)->cond == cond) neo__clock_resume(clock, at, NEO__WOKEN);
        else at = &(*at)->next;
    }
    neo__mutex_unlock(&clock->lock);
}
NEO__UNUSED static void neo__clock_sleep(neo__clock *k, int64_t ns, int order) {
    if (ns <= 0) return;
    if (k) (void)neo__clock_wait(k, NULL, NULL, neo__clock_now(k) + ns, order);
    else neo__thread_sleep(ns);
}
#endif
/* Between two looks at what another core writes. */
NEO__INLINE void neo__cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}
/* Cores of a mask; all of the machine, if it has none. */
NEO__UNUSED static int neo__mask_cores(const unsigned char *mask) {
    int cores = neo__cores_online(), allowed = 0;
    for (int i = 0; i < NEO__MASK_BYTES; i++)
        for (int four = mask[i]; four; four &= four - 1) allowed++;
    return allowed > 0 && allowed < cores ? allowed : cores;
}
/* Threads of each of some ranks that share cores. */
NEO__UNUSED static int neo__core_share(int cores, int ranks) {
    return NEO__MIN(NEO__MAX(cores / ranks, 1), NEO__MAX_THREADS);
}
NEO__UNUSED static int neo__core_count(void) {
    unsigned char mask[NEO__MASK_BYTES];
    neo__core_mask(mask);
    return neo__mask_cores(mask);
}

typedef struct neo__thread { /* kept by its starter until it is joined */
    neo__thread_id id;
    void (*fn)(void *arg);
    void *arg;
} neo__thread;
/* neo__thread_run: 1, or 0 and errno. neo__thread_create: the same for threads of neo's own, which
   block all signals: signals are for the program's threads. */
#if defined(_WIN32)
NEO__UNUSED static DWORD WINAPI neo__thread_main(LPVOID p) {
    neo__thread *t = (neo__thread *)p;
    t->fn(t->arg);
    return 0;
}
NEO__UNUSED static int neo__thread_run(neo__thread *t, void (*fn)(void *arg), void *arg) {
    t->fn = fn, t->arg = arg;
    t->id = CreateThread(NULL, 0, neo__thread_main, t, 0, NULL);
    errno = EAGAIN;
    return t->id != NULL;
}
#define neo__thread_create neo__thread_run /* there are no signals */
NEO__UNUSED static void neo__thread_join(const neo__thread *t) {
    WaitForSingleObject(t->id, INFINITE);
    CloseHandle(t->id);
}
#else
NEO__UNUSED static void *neo__thread_main(void *p) {
    neo__thread *t = (neo__thread *)p;
    t->fn(t->arg);
    return NULL;
}
NEO__UNUSED static int neo__thread_run(neo__thread *t, void (*fn)(void *arg), void *arg) {
    t->fn = fn, t->arg = arg;
    errno = pthread_create(&t->id, NULL, neo__thread_main, t);
    return errno == 0;
}
NEO__UNUSED static int neo__thread_create(neo__thread *t, void (*fn)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int done = neo__thread_run(t, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return done;
}
NEO__UNUSED static void neo__thread_join(const neo__thread *t) { pthread_join(t->id, NULL); }
#endif

/* One rounding mode for all of neo: to nearest even, denormals kept. Entry points and workers set
   it and put the caller's back. */
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
NEO__INLINE void neo__fp_leave(neo__fp_state old) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(old));
}
#else
typedef int neo__fp_state;
NEO__INLINE neo__fp_state neo__fp_enter(void) { return 0; }
NEO__INLINE void neo__fp_leave(neo__fp_state old) { (void)old; }
#endif

NEO__EVERYWHERE NEO__INLINE uint32_t neo__bits_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
NEO__EVERYWHERE NEO__INLINE float neo__f32_bits(uint32_t u) {
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
    if (!t.absent)
        return neo_fail(status, "%s: %s %s", function, name, t.ndim ? "has no data" : "is none");
    return neo_fail(NEO_ERR_STATE, "%s: %s has no data, %s", function, name, t.absent);
}

/* ---- what ranks need of their devices ---- */
enum {
    NEO__COMBINE_PIECES = 256, /* at most */
    NEO__COMBINE_STACK = 16    /* subtrees that wait; 13 for 4096 leaves */
};
/* out [n] = the tree over `count` pieces of n elements; piece i is a subtree of leaves[i] leaves.
   Pieces are pushed on a stack, where two of equal size merge, below op above, rounded to dtype;
   the rest folds from the top. Pieces and leaves are host arrays; out may be a piece. */
typedef struct neo__combine_call {
    neo_dtype dtype;
    int reduce; /* 0: sum, 1: max, 2: min; a NaN wins */
    int count;
    const void *const *piece;
    const int *leaves;
    void *out;
    int64_t n;
    void *stream; /* of a device: the sum is put on it; NULL: it is there on return */
} neo__combine_call;
enum { /* as bits */
    NEO__F32_INFINITY = 0x7F800000,
    NEO__F32_NAN = 0x7FC00000,
    NEO__F16_LARGEST = 0x477FE000 /* 65504 */
};
/* Rows [rows][cols] of f32, `stride` floats apart, to or from coded rows [rows][row_bytes] (see
   >>kernels-wire). Coded: numbers times `factor`; decoded: times `back`, 2^exponent and its
   inverse. Decoding, in: pieces of so many bytes each; out is the tree over them, of one leaf
   each. */
typedef struct neo__wire_call {
    int wire; /* of enum neo_wire */
    float factor, back;
    int64_t rows, cols, stride;
    size_t row_bytes;
    const void *in;
    void *out;
    int pieces;
    size_t piece_bytes;
    void *stream; /* as of neo__combine_call */
} neo__wire_call;
/* Bytes of the first `cols` numbers of a coded row, or of a row of so many. */
NEO__EVERYWHERE NEO__INLINE size_t neo__code_bytes(int wire, int64_t cols) {
    const size_t n = (size_t)cols, blocks = (n + NEO_WIRE_BLOCK - 1) / NEO_WIRE_BLOCK;
    if (wire == NEO_WIRE_F32) return n * 4;
    if (wire <= NEO_WIRE_BF16) return (n + 1) / 2 * 4;
    return 4 * (blocks + (wire == NEO_WIRE_I4 ? (n + 7) / 8 : (n + 3) / 4));
}
/* Rows of f32 of a matrix, to or from their places in coded memory, block by block of at most
   NEO_WIRE_BLOCK columns:
       to (encode)    a block is divided by the length of its bag, rounded, and coded to each of its
                      parts
       from           its parts are decoded and added (in the order of the list, see merges), the
                      sum is rounded, and divided
   A bag of one id or none divides nothing. A sum of several ends with + 0.0f. */
typedef struct neo__rows_part {
    int64_t before, stride, at; /* bytes: row i of so many rows is at rows before + i stride + at */
    int32_t rank;               /* whose rows these are */
    int16_t wire, merges; /* NEO_WIRE_F32 ..; parts are pushed on a stack, then so often the two on
                             top become one, below plus above */
} neo__rows_part;
typedef struct neo__rows_block {
    int64_t col;  /* of the matrix */
    int32_t cols; /* 1 .. NEO_WIRE_BLOCK */
    int32_t round; /* a wire; NEO_WIRE_F32: not */
    int32_t lengths; /* whose lengths; -1: is not divided */
    int32_t first, parts;
} neo__rows_block;
enum { NEO__ROWS_STACK = 64 };
typedef struct neo__rows_call {
    int encode;
    int64_t rows, stride; /* floats */
    float *matrix;
    char *coded, *const *lent; /* lent: where each rank's rows begin in its memory, on the CPU */
    const neo__rows_block *block; /* [blocks], in memory of the device, as all below */
    int64_t blocks;
    const neo__rows_part *part;
    const int32_t *lengths; /* [][rows] */
    const int32_t *at; /* [rows], not on the CPU: which coded row each is; below 0: none, decoded as
                          zeros. NULL: its own */
    struct neo_wire_stats *stats; /* of what encoding did, on the CPU; or NULL */
} neo__rows_call;
/* Ids of a batch by the parts of the rows that they are in ("bucketize"), in each part in the order
   of the batch. Feature f has the parts [first_part[f], first_part[f + 1]), each from a row on, up
   to the next; ids of a feature that has none are only looked at. What is bad is found; then
   no id is written, nor where the batch has more than max_ids. */
typedef struct neo__split_found {
    int64_t first, ids, outside; /* the first offset; ids in the batch; outside their tables */
    int64_t bag, id; /* the first bag with decreasing offsets; the first id outside, where bounds
                        are NEO_BOUNDS_ERROR, counted from the batch's first; -1: none */
    int64_t at, begin, what; /* of either: its bag, where that begins; its end, or the id */
    int64_t feature, sample;
} neo__split_found;
typedef struct neo__split_call {
    const neo_jagged *batch; /* T x B, in memory of the device; an inverse: see >>cuda-ids */
    const int64_t *rows, *first_part, *part_row; /* host: [T], [T + 1], [parts] */
    neo_bounds bounds;
    int64_t max_ids; /* that ids and weights have room for */
    neo_dtype id_dtype;
    void *ids;        /* less the first row of their part */
    float *weights;   /* NULL: not wanted; ones where the batch has none */
    int32_t *places;  /* [max_ids], of each id of the batch its place in ids, -1: it is in no part;
                         NULL: not wanted */
    int32_t *lengths; /* [parts][B] */
    int64_t *counts;  /* host, [parts + T]: ids of each part; of each feature */
    neo__split_found *found; /* host */
} neo__split_call;
/* Bags in another order, with their ids ("permute"): run after run of bags of a source, `step` from
   each to the next, or those that a list has for the bags of the new order. Where they begin is
   said by offsets, or by lengths and the place of each run's first id. */
typedef struct neo__ids_source {
    const int64_t *offsets; /* or NULL: lengths */
    const void *lengths;
    const void *ids;
    const float *weights; /* NULL: ones, where they are wanted */
    neo_dtype length_dtype, id_dtype;
    int64_t batch; /* bags of each of its features; 0: those of a run are of one */
} neo__ids_source;
typedef struct neo__ids_run {
    int64_t bags, from, from_id; /* so many bags, from bag `from` on; from_id: with lengths; or
                                    where in a list they are */
    int64_t to;                  /* bags before it */
    int64_t step;                /* with lengths 1 */
    int64_t listed;              /* a list has numbers below it, which count from `from` on */
    int32_t source, feature;     /* feature: of its bags in the source, whose batch is 0 */
} neo__ids_run;
/* A look at the bags, before any is written. bag: ~ the first bad one of the new order; id: ~ the
   first id that does not fit, in that order; 0: none. */
typedef struct neo__join_found {
    unsigned long long bag, id;
    int64_t ids;             /* of all bags; -1: 2^32 or more */
    int64_t is;              /* of a bad bag: enum neo__join_bad */
    int64_t feature, sample; /* of either in its source; with a list, of the new order */
    int64_t at, here, next;  /* there the bag's number and its offsets, or its length, or what the
                                list has and how many it may; or the id's place, and the id */
} neo__join_found;
enum neo__join_bad { NEO__JOIN_OFFSETS, NEO__JOIN_LENGTH, NEO__JOIN_LIST };
struct neo__later;
typedef struct neo__join_call {
    const neo__ids_run *run; /* host, [runs] */
    const neo__ids_source *source; /* host, [sources] */
    const int32_t *list;     /* or NULL */
    int64_t runs, sources, bags; /* bags of all runs */
    int64_t samples;     /* with a list: of each feature of the new order */
    neo_dtype id_dtype;
    int64_t max_ids;     /* where there are more, none is written */
    int64_t *to_offsets; /* NULL: not wanted */
    int32_t *to_lengths;
    int32_t *to_inverse; /* of lengths with ~: see >>cuda-ids; or NULL */
    void *to_ids;
    float *to_weights;
    const struct neo__later *later; /* NULL: bags are sound, and ids fit. Else they are looked at,
                                       and nothing is written where they do not; its answer:
                                       neo__join_found */
} neo__join_call;
/* Places of what travels for each id: the runs' numbers `to` .. to + bags are from, from + step,
   ...; those of the batch's ids behind them (neo__split_call.places) are counted from the first one
   of their part. */
typedef struct neo__places_call {
    const neo__ids_run *run; /* host, [runs] */
    int64_t runs, count;     /* numbers of all runs */
    const int32_t *place;    /* [ids] */
    int64_t ids, parts;
    const int64_t *first, *base; /* host, [parts]: the part's first place; its number */
    int32_t *to;                 /* [count + ids] */
} neo__places_call;
/* The distinct bags of T x B bags of a device, feature by feature: see neo_jagged_dedup. */
typedef struct neo__fold_call {
    const int64_t *offsets;
    const void *ids;
    const float *weights; /* or NULL */
    neo_dtype id_dtype;
    int64_t features, batch;
    int32_t *inverse;      /* [T][B] */
    int32_t *list;         /* [T B]: in front the distinct bags, as they lie */
    int64_t *feature_bags; /* host, [T + 1] */
} neo__fold_call;
/* Gradients of others in a recorded norm of a device: squares adds theirs to a neo_exact there,
   scale multiplies them by a factor that lies there. meets: squares adds up those of all ranks,
   which count in the norm of another rank alone (away). */
typedef struct neo__optim_others {
    neo_status (*squares)(void *user, uint64_t *sum);
    neo_status (*scale)(void *user, const float *factor);
    void *user;
    int meets, away;
} neo__optim_others;
#ifdef __cplusplus
extern "C" {
#endif
/* Host memory that the context's device copies fast; as neo_alloc without a device. */
NEO_API void *neo__pinned_alloc(neo_ctx *ctx, size_t bytes);
NEO_API void neo__pinned_free(neo_ctx *ctx, void *p, size_t bytes);
/* By the processor or by the device, from any thread; what they read must be there
   (neo__event_wait), and what they write is there on return; with a stream they are only put on it.
   move: the device also between memory of the host and of any device of the process. */
NEO_API neo_status neo__device_move(const neo_ctx *ctx, neo_place place, void *to,
                                    const void *from, size_t bytes, void *stream);
NEO_API neo_status neo__device_combine(const neo_ctx *ctx, neo_place place,
                                       const neo__combine_call *call);
NEO_API neo_status neo__device_encode(const neo_ctx *ctx, neo_place place,
                                      const neo__wire_call *call);
NEO_API neo_status neo__device_decode(const neo_ctx *ctx, neo_place place,
                                      const neo__wire_call *call);
#if !defined(NEO_INFERENCE)
/* Rows to code or to decode; and what coding them did is added to stats. */
NEO_API neo__wire_call neo__wire_call_of(neo_wire wire, int exponent, int64_t rows, int64_t cols,
                                         const void *in, void *out);
NEO_API void neo__wire_add_stats(const neo_ctx *ctx, const neo__wire_call *call,
                                 neo_wire_stats *stats);
#endif
/* In the order of the calls on the device, as its operations; the caller goes on. */
NEO_API neo_status neo__device_rows(neo_ctx *ctx, const neo__rows_call *call);
#if !defined(NEO_INFERENCE)
/* In that order, too; what it finds is there on return. Errors   NEO_ERR_ARG, NEO_ERR_FORMAT: of
   the batch, but for an id that is outside. */
NEO_API neo_status neo__device_split(neo_ctx *ctx, const neo__split_call *call, const char *fn);
NEO_API neo_status neo__device_join(neo_ctx *ctx, const neo__join_call *call);
NEO_API neo_status neo__device_places(neo_ctx *ctx, const neo__places_call *call);
NEO_API neo__ids_source neo__ids_source_of(const neo_jagged *jagged);
/* From here on batches of a device are sound and have up to so many ids: the host waits for no look
   at them. */
NEO_API void neo__bags_vouch(neo_bags *bags, int64_t ids);
/* neo_bags_weight_grad on a device: number k of the batch to to[at[k]]; of a part of a table's
   later columns a number for each of its blocks, from there on. at: in memory of the device. */
NEO_API neo_status neo__bags_weight_grad_at(neo_bags *bags, const neo_jagged *batch,
                                            neo_tensor dout, float *to, const int32_t *at);
/* neo_cut_sums have their numbers in the device's memory, in its order of calls; each of `count`
   totals becomes (first), or gets, the sum of `each` blocks, in order. */
NEO_API void neo__bags_cut_there(neo_bags *bags);
/* Rows of kept gradients, at most: while steps are recorded the device alone knows how many. Their
   squares, and a factor of them, in its memory: see neo__optim_others. */
NEO_API int64_t neo__bags_kept_most(neo_bags *bags);
NEO_API neo_status neo__bags_squares_there(neo_bags *bags, uint64_t *sum);
NEO_API neo_status neo__bags_scale_there(neo_bags *bags, const float *factor);
/* 1: the next step's norm is one of the device's, and has those of others in it, which stay until
   that step returns, or until NULL. */
NEO_API int neo__optim_join(neo_optim *optim, const neo__optim_others *others);
NEO_API neo_status neo__device_cut_add(neo_ctx *ctx, float *total, const float *blocks,
                                       int64_t count, int64_t each, int first);
/* Gradients of all rows of whole tables, in memory of the device: the tables one after another,
   each [rows][dim], and a mark for each row that has one. The host waits for nothing but in a
   _keep that is not recorded. _sum: those of a batch instead of what is in `dense`; marks are
   added, fresh: to none. _step: neo_bags_step by these alone. _keep: neo_bags_add_grad of the
   marked rows. */
NEO_API neo_status neo__bags_dense_sum(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves, float *dense,
                                       unsigned char *marks, int fresh);
NEO_API neo_status neo__bags_dense_step(neo_bags *bags, const float *dense,
                                        const unsigned char *marks, float lr);
NEO_API neo_status neo__bags_dense_keep(neo_bags *bags, const float *dense,
                                        const unsigned char *marks);
NEO_API void neo__small_pages(void *p, size_t size); /* of a block that was not touched yet */
#endif
/* neo_parallel_for of tasks that take one thread about `ns` in all. Here it is decided whether they
   are worth another: with little to do the caller is alone, and for somewhat more it wakes nobody,
   but who still looks for work joins. */
NEO_API void neo__run_tasks(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg, int64_t ns);
/* V of a context of one of `ranks` ranks; given: neo_ctx_desc.repro_shards. */
NEO_API int neo__default_shards(int given, int has_device, int ranks);
/* A point in the work of the context's device. make: NULL, with a reason, where it has none.
   mark, by the caller's thread: all that was called so far; the device goes on (a step that is
   being recorded runs first, to its end). wait, from any thread, before the next mark is made. */
NEO_API void *neo__event_make(neo_ctx *ctx);
NEO_API void neo__event_free(neo_ctx *ctx, void *event);
NEO_API neo_status neo__event_mark(neo_ctx *ctx, void *event);
NEO_API neo_status neo__event_wait(neo_ctx *ctx, void *event);
#if !defined(NEO_INFERENCE)
/* The same where the host waits for nothing: points in the work of the device and of its stream of
   exchanges (neo_device.passes), on which neo__device_move and its like put theirs.
   CALLS, by the caller's thread: mark as neo__event_mark, but what is recorded is only launched;
   WAIT: calls from here on come behind the event (outside of a recorded step the host waits, too),
   and where a rank's word says stop they have no effect. MOVES, from any thread: mark and wait of
   the stream of exchanges, also for an event of another device. PASS_ON: there, event is this
   rank's word; the one behind it becomes 1 where this or one that was heard says stop. OVER: an
   exchange that passed never comes, event is a text that says why, of the error `code`: behind it
   calls have no effect. */
enum {
    NEO__ORDER_CALLS, NEO__ORDER_WAIT, NEO__ORDER_MOVES, NEO__ORDER_MOVES_WAIT, NEO__ORDER_PASS_ON,
    NEO__ORDER_OVER
};
NEO_API neo_status neo__device_order(const neo_ctx *ctx, int what, void *event, int code);
/* The stream of exchanges while calls go into a recorded step, else NULL; stop may be NULL.
   neo__device_heard: where the word comes (a byte) of the rank of that number in the job; NULL:
   there is no room for it. */
NEO_API void *neo__device_passes(const neo_ctx *ctx, void **stop);
NEO_API void *neo__device_heard(const neo_ctx *ctx, int rank);
/* Looked at again and again while the host waits for the device, from the `on` to the off, by one
   thread at a time: it ends what would not end. 1: the device cannot be waited for. turn: from 0 on
   in each wait. neo__device_look: all of a device look, if no other thread does that; a nap. */
typedef struct neo__lookout {
    int (*look)(struct neo__lookout *watch, int turn);
    void *user;
    struct neo__lookout *next;
} neo__lookout;
NEO_API void neo__device_watch(const neo_ctx *ctx, neo__lookout *watch, int on);
NEO_API int neo__device_look(neo_device *device, int turn);
#endif
/* Calls of the device from here on run beside those before, behind the mark of an event alone; and,
   NULL, in their order again. Such calls may leave something to the others where the host has
   waited for it; nothing that they write is recorded. */
NEO_API neo_status neo__device_aside(neo_ctx *ctx, void *event);
/* One user less, of a device's maker and of its contexts: the last one destroys it. NULL is
   allowed. */
NEO_API void neo__device_release(neo_device *device);
/* A counter is about to change: while a step is recorded, it goes back if the calls from here on
   have no effect. */
NEO_API void neo__device_counts(neo_ctx *ctx, int64_t *counter);
/* For the owner of a deferred set: its parameters have no gradients, or have them again. */
NEO_API void neo__params_freeze(neo_params *params, int frozen);
/* One group of ranks more (+1), or less (-1), shares the batches of this context: here are parts of
   them. Leaves NULL, and gradients of a loss without the size of the batch, are refused. */
NEO_API void neo__ctx_take_parts(neo_ctx *ctx, int groups);
/* A tier, as plans see it. */
typedef struct neo__tier_budget {
    int64_t given_bytes, memory_bytes; /* as neo_tier_desc; the same, or what a plan tries */
    int64_t needs_bytes; /* what a batch needs that memory_bytes did not hold; 0: it did */
    int in_file;         /* it has a path */
    neo_evict evict;
} neo__tier_budget;
NEO_API neo__tier_budget *neo__tier_budget_of(neo_tier *tier);
/* Rows of a table of desc, which has a tier, that its cache has room for, after neo_bags_bytes of
   the same desc, and bytes below the cache, in the file or the host's memory; 0: memory has the
   table as a whole. */
NEO_API int64_t neo__tier_cached(const neo_bags_desc *desc, int32_t table, int64_t *below_bytes);
/* The rows of a table that have changed since a checkpoint, and which one. */
typedef struct neo__row_marks {
    uint64_t *bits; /* [(rows + 63) / 64]; set atomically */
    int64_t rows;
    uint64_t base; /* neo_state.h knows that checkpoint by it; 0: none, so all rows have changed */
    int64_t base_step;
    /* Or NULL. While a save is under way: sets the bits of rows, from any thread, before they
       change: records[i] >> low_bits, or, with line_row, those in the lines of these numbers. */
    void (*before)(void *user, const uint64_t *records, int64_t count, int low_bits,
                   const uint64_t *line_row);
    void *user;
} neo__row_marks;
/* An object of a context in its list of those that live, from the end of its create to the begin of
   its destroy; neo__live_end may be called again. The name is copied; NULL: none. */
typedef struct neo__live {
    struct neo__live *next, **link;
    const char *kind;
    char name[40];
} neo__live;
NEO_API void neo__live_begin(neo_ctx *ctx, neo__live *live, const char *kind, const char *name);
NEO_API void neo__live_end(neo_ctx *ctx, neo__live *live);
/* Turns of the calls of a context's groups over NCCL (>>impl-nccl of neo_nccl.h), atomic; an event
   behind the last launch; the groups that there are. */
typedef struct neo__launches {
    int64_t taken, done;
    void *last;
    int groups;
} neo__launches;
#if !defined(NEO_INFERENCE)
/* A span as a trace of neo_run.h keeps it. name: as of neo_trace_begin. */
typedef enum neo__span_kind {
    NEO__SPAN_CALL,
    NEO__SPAN_COMPUTE,
    NEO__SPAN_WAIT,
    NEO__SPAN_SENDS
} neo__span_kind;
typedef struct neo__span {
    const char *name;
    int64_t begin_ns, end_ns; /* the second is written last; 0: not yet */
    int64_t issued_ns;        /* SENDS: when it was called */
    int64_t number;           /* of neo_trace_begin; SENDS: of the call; -1: none */
    int64_t ticket;           /* SENDS, WAIT: of the group; -1: of a call that blocks */
    int64_t sent[3];          /* bytes inside the node, between nodes, of headers */
    int64_t buffer_bytes;     /* of the larger of a collective's buffers */
    int16_t kind, op;         /* op: neo_comm_op */
    int16_t group;            /* SENDS, WAIT: of neo__trace_group */
    int16_t thread;           /* 0: the rank's; else its group's */
    int16_t depth, leaf;      /* on the rank's thread: spans around it; none is inside it */
    int32_t peer;             /* of send and recv; else -1 */
    char label[40];
} neo__span;
enum { NEO__TRACE_DEPTH = 64, NEO__TRACE_GROUPS = 64 /* the last one: those beyond */ };
typedef struct neo__open_span {
    const char *name;
    int64_t begin_ns, number;
    neo__span_kind kind;
} neo__open_span;
/* The place where a context puts spans; a trace of neo_run.h has it. */
typedef struct neo__recorder {
    const void *thread; /* the rank's own: see neo__span_thread */
    int over;           /* nothing is recorded any more */
    int64_t room, next; /* next: atomic; may pass room */
    int64_t dropped;    /* atomic: too deep */
    int groups;         /* atomic; may pass their most */
    int depth, last_depth;
    neo__open_span open[NEO__TRACE_DEPTH];
    char group_ranks[NEO__TRACE_GROUPS][40];
    neo__span *span; /* [room] */
} neo__recorder;
/* neo__span_thread: a pointer that tells threads apart.
   neo__ctx_traced: 0, or the number of the trace that records, of those of the context.
   neo__trace_group: a group of ranks, and its thread; ranks: world ranks, as "0-3,8".
   neo__trace_add: a span that is over; from any thread, that of span->group if not the rank's own.
   neo__span_begin: as neo_trace_begin; neo__span_end gives status back. */
NEO_API const void *neo__span_thread(void);
NEO_API int neo__ctx_traced(const neo_ctx *ctx);
NEO_API neo__launches *neo__ctx_launches(neo_ctx *ctx);
NEO_API int neo__trace_group(neo_ctx *ctx, const char *ranks);
NEO_API void neo__trace_add(neo_ctx *ctx, const neo__span *span);
NEO_API void neo__span_begin(neo_ctx *ctx, const char *name, int64_t number, neo__span_kind kind);
NEO_API neo_status neo__span_end(neo_ctx *ctx, neo_status status);
#endif
/* NEO__SPAN(ctx, name): the rest of this block is a span. */
#if defined(NEO_INFERENCE) || !(defined(__GNUC__) || defined(__clang__))
#define NEO__SPAN(ctx, name) ((void)(ctx))
#else
NEO__UNUSED static void neo__span_leave(neo_ctx **ctx) { (void)neo__span_end(*ctx, NEO_OK); }
NEO__UNUSED static neo_ctx *neo__span_enter(neo_ctx *ctx, const char *name) {
    if (ctx) neo__span_begin(ctx, name, -1, NEO__SPAN_CALL);
    return ctx;
}
#define NEO__SPAN(ctx, name)                                                                       \
    neo_ctx *neo__span_ctx __attribute__((cleanup(neo__span_leave), unused)) =                     \
        neo__span_enter(ctx, name)
#endif
/* From here on (+1), or no longer (-1), objects that are made are parts of another, and not listed
   beside it. */
NEO_API void neo__live_inside(neo_ctx *ctx, int change);
/* A rank has failed: what its function left is no news. */
NEO_API void neo__ctx_hush(neo_ctx *ctx);
struct neo__bag_sizes; /* see >>impl-bags */
#if !defined(NEO_INFERENCE)
/* The k-th tensor of a table: weights, scales (of i8 rows), then those of neo_bags_state; none if
   it has no such. Rows may lack their first values until neo__bags_make_all. */
NEO_API neo_tensor neo__bags_tensor(const neo_bags *bags, int32_t table, int k);
NEO_API void neo__bags_make_all(const neo_bags *bags);
NEO_API neo__row_marks *neo__bags_marks(const neo_bags *bags, int32_t table); /* NULL: none */
/* Keyed tables, for a neo_shard: see >>impl-bags-keys. */
NEO_API const float *neo__bags_read_key(const neo_bags *bags, int32_t table, uint64_t key,
                                        int worker);
NEO_API neo_status neo__bags_keys_read(void *bags);
NEO_API double neo__row_squares(const float *row, int64_t dim);
NEO_API neo_status neo__check_scores(const char *fn, const char *table, int evict,
                                     const float *scores, int64_t count);
NEO_API neo_status neo__bags_prune_set(neo_bags *bags, int32_t table, int64_t first,
                                       const double *of, float least, int most, int64_t *gone);
NEO_API void neo__bags_set_clocks(neo_bags *bags, int64_t steps, int64_t key_steps);
#endif
/* ctx is that of an object, NULL where the object is: refused if it is NULL or destroyed. */
NEO_API neo_status neo__check_live(const neo_ctx *ctx, const char *function, const char *name);
#define NEO__CHECK_LIVE(object, function, name)                                                    \
    NEO__TRY(neo__check_live((object) ? (object)->ctx : NULL, function, name))
/* The same of a call that traces show, until it returns. */
#define NEO__ENTER(object, function, name)                                                         \
    NEO__SPAN((object) ? (object)->ctx : NULL, function);                                          \
    NEO__CHECK_LIVE(object, function, name)
/* ---- bags of a batch ---- */
NEO__INLINE int64_t neo__jagged_first_bag(const neo_jagged *j, int64_t feature) {
    return j->feature_bags ? j->feature_bags[feature] : feature * j->batch;
}
/* The bag that sample i of feature t reads. */
NEO__INLINE int64_t neo__jagged_bag(const neo_jagged *j, int64_t t, int64_t i) {
    return neo__jagged_first_bag(j, t) + (j->inverse ? j->inverse[t * j->batch + i] : i);
}
#ifdef __cplusplus
}
#endif

/* The highest bit in which the numbers of two leaves differ: the level of the tree at which they
   join. */
NEO__EVERYWHERE NEO__INLINE int neo__tree_level(int64_t a, int64_t b) {
    return 63 - __builtin_clzll((uint64_t)(a ^ b));
}
/* First row of bucket b when rows are cut in R: b rows / R, without overflow. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bucket_begin(int64_t rows, int64_t buckets, int64_t b) {
    return b * (rows / buckets) + b * (rows % buckets) / buckets;
}
/* The bucket of a row. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bucket_of(int64_t rows, int64_t buckets, int64_t row) {
    return ((row + 1) * buckets - 1) / rows;
}
/* ---- >>lines ----
   A set-associative map from 64-bit keys to lines: sets of 32 lines, of which a key has one. The
   set is the high half of the key's hash times the number of sets: ranges of sets are ranges of
   hashes, and a part of a map has the sets [first_set, first_set + sets) of all_sets.

   A line knows its key, the last step that used it, and how often it was used, or in place of that
   its score: the bits of a float, turned so that they rise with it. Steps count from 1;
   a line that `now` has used does not leave. What a set does depends on the order of its keys
   alone: who touches hits first, then puts new keys in the order of their hashes, has the same
   lines on any threads and ranks, whichever sets are where. Of equals the lowest line leaves.

   A lookup compares bytes of the hash, then keys. */
enum { NEO__LINE_WAYS = 32 };
typedef struct neo__lines {
    int64_t sets, first_set, all_sets; /* all_sets: below 2^32 */
    neo_evict evict;
    int64_t period; /* LFU: steps after which counts halve, 0: never. AGE: the oldest that stays */
    uint64_t *key;  /* [lines] */
    uint64_t *use;  /* [lines] its last step << 32 | its count; 0: an empty line */
    uint8_t *tag;   /* [lines] a byte of the hash; 0: an empty line */
} neo__lines;

NEO__UNUSED static void neo__lines_layout(neo__carve *carve, neo__lines *lines) {
    const size_t count = neo__size_mul((size_t)lines->sets, NEO__LINE_WAYS);
    NEO__CARVE(carve, lines->key, count);
    NEO__CARVE(carve, lines->use, count);
    NEO__CARVE(carve, lines->tag, count);
}
NEO__EVERYWHERE NEO__INLINE uint64_t neo__mix64(uint64_t h) { /* MurmurHash3's finalizer */
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDu;
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 33;
}
NEO__UNUSED static uint64_t neo__unmix64(uint64_t h) { /* neo__mix64 back */
    h = (h ^ h >> 33) * 0x9CB4B2F8129337DBu;
    h = (h ^ h >> 33) * 0x4F74430C22A54005u;
    return h ^ h >> 33;
}
NEO__INLINE int64_t neo__lines_set(uint64_t hash, int64_t all_sets) {
    return (int64_t)((hash >> 32) * (uint64_t)all_sets >> 32);
}
/* The first line of a key's set in a map of so many lines. */
NEO__INLINE int64_t neo__lines_first(uint64_t key, int64_t lines) {
    return neo__lines_set(neo__mix64(key), lines / NEO__LINE_WAYS) * NEO__LINE_WAYS;
}
NEO__INLINE uint8_t neo__lines_tag(uint64_t hash) {
    const uint8_t tag = (uint8_t)hash;
    return tag ? tag : 1;
}
NEO__INLINE int64_t neo__lines_last(uint64_t use) { return (int64_t)(use >> 32); }
NEO__INLINE uint64_t neo__lines_count(const neo__lines *lines, uint64_t use, int64_t now) {
    if (lines->evict != NEO_EVICT_LFU || lines->period == 0) return use & 0xFFFFFFFFu;
    int64_t halves = now / lines->period - neo__lines_last(use) / lines->period;
    return halves > 31 ? 0 : (use & 0xFFFFFFFFu) >> NEO__MAX(halves, (int64_t)0);
}
/* Too old: the line counts as empty. */
NEO__INLINE int neo__lines_expired(const neo__lines *lines, uint64_t use, int64_t now) {
    return lines->evict == NEO_EVICT_AGE && now - neo__lines_last(use) > lines->period;
}
/* A bit for each line of a set that may have a hash, or a tag: those with its tag, and some after
   one. */
NEO__INLINE uint32_t neo__lines_match(const neo__lines *lines, int64_t set, uint64_t hash) {
#if defined(__SSE2__)
    const __m128i *tags = (const __m128i *)(const void *)(lines->tag + set * NEO__LINE_WAYS);
    const __m128i tag = _mm_set1_epi8((char)neo__lines_tag(hash));
    const int low = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(tags), tag));
    const int high = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(tags + 1), tag));
    return (uint32_t)high << 16 | (uint32_t)low;
#else
    const uint64_t ones = 0x0101010101010101u, tag = neo__lines_tag(hash) * ones;
    uint64_t tags[NEO__LINE_WAYS / 8];
    uint32_t bits = 0;
    memcpy(tags, lines->tag + set * NEO__LINE_WAYS, sizeof tags);
    for (int i = 0; i < NEO__LINE_WAYS / 8; i++) {
        tags[i] ^= tag;
        tags[i] = (tags[i] - ones) & ~tags[i] & 128 * ones; /* of bytes that are 0 */
        bits |= (uint32_t)((tags[i] >> 7) * 0x0102040810204080u >> 56) << 8 * i;
    }
    return bits;
#endif
}
/* The line of a key by its hash; -1: it has none, or its set is in another part. */
NEO__INLINE int64_t neo__lines_find(const neo__lines *lines, uint64_t key, uint64_t hash,
                                    int64_t now) {
    const int64_t set = neo__lines_set(hash, lines->all_sets) - lines->first_set;
    if ((uint64_t)set >= (uint64_t)lines->sets) return -1;
    for (uint32_t bits = neo__lines_match(lines, set, hash); bits; bits &= bits - 1) {
        const int64_t at = set * NEO__LINE_WAYS + __builtin_ctz(bits);
        if (lines->key[at] != key || (key == 0 && !lines->use[at])) continue;
        const int ages = lines->evict == NEO_EVICT_AGE;
        return ages && neo__lines_expired(lines, lines->use[at], now) ? -1 : at;
    }
    return -1;
}
/* A hash's set will be asked for a line. */
NEO__INLINE void neo__lines_fetch(const neo__lines *lines, uint64_t hash) {
    const int64_t set = neo__lines_set(hash, lines->all_sets) - lines->first_set;
    if ((uint64_t)set >= (uint64_t)lines->sets) return;
    for (int i = 0; i < NEO__LINE_WAYS; i += 8)
        __builtin_prefetch(lines->use + set * NEO__LINE_WAYS + i, 0, 2);
}
/* The line that has this use was used `count` times by step now. A save in the background may look
   whether the line has a key. */
NEO__INLINE void neo__lines_touch(const neo__lines *lines, uint64_t *use, int64_t now,
                                  uint64_t count) {
    if (lines->evict == NEO_EVICT_SCORE) count = *use & 0xFFFFFFFFu;
    else count += neo__lines_count(lines, *use, now);
    __atomic_store_n(use, (uint64_t)now << 32 | NEO__MIN(count, 0xFFFFFFFFu), __ATOMIC_RELAXED);
}
/* The line of a hash's set that a new key gets: an empty one, or the one to evict (its use is not
   0, and its key is there to be read); -1: all are used by step now, or young. */
NEO__UNUSED static int64_t neo__lines_victim(const neo__lines *lines, uint64_t hash, int64_t now) {
    const int64_t set = neo__lines_set(hash, lines->all_sets) - lines->first_set;
    int64_t best = -1;
    uint64_t least = 0;
    if ((uint64_t)set >= (uint64_t)lines->sets) return -1;
    for (int64_t line = set * NEO__LINE_WAYS, end = line + NEO__LINE_WAYS; line < end; line++) {
        const uint64_t use = lines->use[line];
        if (use == 0 || neo__lines_expired(lines, use, now)) return line;
        if (lines->evict == NEO_EVICT_AGE || neo__lines_last(use) == now) continue;
        uint64_t score = use >> 32;
        if (lines->evict == NEO_EVICT_LFU) score |= neo__lines_count(lines, use, now) << 32;
        if (lines->evict == NEO_EVICT_SCORE) score |= use << 32;
        if (best < 0 || score < least) best = line, least = score;
    }
    return best;
}
NEO__INLINE void neo__lines_put(const neo__lines *lines, int64_t line, uint64_t key, int64_t now,
                                uint64_t count) {
    if (lines->evict == NEO_EVICT_SCORE) count = 0x80000000u; /* of 0 */
    lines->key[line] = key;
    lines->use[line] = (uint64_t)now << 32 | NEO__MIN(count, 0xFFFFFFFFu);
    lines->tag[line] = neo__lines_tag(neo__mix64(key));
}
NEO__INLINE void neo__lines_drop(const neo__lines *lines, int64_t line) {
    lines->key[line] = lines->use[line] = lines->tag[line] = 0;
}
/* Tags for keys and uses that were read or cleared. */
NEO__UNUSED static void neo__lines_fresh(const neo__lines *lines) {
    for (int64_t i = 0; i < lines->sets * NEO__LINE_WAYS; i++)
        lines->tag[i] = lines->use[i] ? neo__lines_tag(neo__mix64(lines->key[i])) : 0;
}
#endif /* NEO__SHARED */

/* ---------------------------------------------------------------------------
   >>device

   What an implementation and a device share: the arguments of calls whose shapes have been checked
   and functions of single numbers (>>kernel-types of neo_kernels.h), and the device itself.
   ------------------------------------------------------------------------ */
#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_CUDA_IMPLEMENTATION)) &&    \
    !defined(NEO__KERNEL_TYPES)
#define NEO__KERNEL_TYPES
#include "neo_kernels.h"

/* ---- a device: memory and operations of a processor ----

   The host's processor is one (see >>impl-cpu), a GPU another. Calls arrive with shapes checked and
   tensors resolved to addresses in the device's memory (unless "host" is said) and distances
   between rows, in elements. All devices add in the same order. Work of a GPU runs in the order of
   the calls, behind the caller; results that a call returns in host memory are there when it
   returns. A failure behind the caller's back is returned by a later call. One thread at a time. */
enum { NEO__DEVICE_VERSION = 17 };

/* ---- >>deferred-answers ----
   A device checks ids and labels, and sums losses and norms, behind the caller. It hands what it
   found to a neo__later before the call returns; but while it records a step (neo_device.recording)
   it copies the job, and calls fn with that copy and the answer when the step is over, whose status
   is then fn's. The next step may have been launched by then, so fn reads nothing on the device:
   all that a message names is in the answer. */
typedef struct neo__later {
    neo_status (*fn)(void *job, const void *answer); /* NULL: nobody asks */
    void *job;
    size_t job_bytes;
} neo__later;
static NEO__UNUSED neo_status neo__later_now(const neo__later *later, const void *answer) {
    return later->fn ? later->fn(later->job, answer) : NEO_OK;
}
/* The leaves of a batch that a call has, see >>impl-leaves. */
typedef struct neo__leaf_cut {
    int64_t batch, rows_per_sample;
    int shards, first, count;
} neo__leaf_cut;
NEO__EVERYWHERE NEO__INLINE int64_t neo__leaf_begin(int64_t batch, int shards, int leaf) {
    return (int64_t)((leaf * (batch / shards)) + leaf * (batch % shards) / shards);
}
/* First row of leaf i (0 .. count) among the caller's rows. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__leaf_row(const neo__leaf_cut *c, int i) {
    return (neo__leaf_begin(c->batch, c->shards, c->first + i) -
            neo__leaf_begin(c->batch, c->shards, c->first)) *
           c->rows_per_sample;
}
/* Buffers the walk over n leaves needs at most (the pushed leaf included). */
NEO__INLINE int neo__tree_depth(int64_t n) {
    int depth = 1;
    for (; n > 1; n = (n + 1) / 2) depth++;
    return depth;
}
/* The walk over the leaf tree, see >>impl-leaves: leaf 0, 1 .. count - 1 is pushed on a stack of
   *height subtree sums. Returns how often the two on top then become one, the lower plus the
   upper: once for every trailing one bit of the leaf's number, and after the last leaf until one
   is left. */
NEO__EVERYWHERE NEO__INLINE int neo__tree_push(int *height, int leaf, int count) {
    int merges = 0;
    for (int rest = leaf; rest & 1; rest >>= 1) merges++;
    if (leaf == count - 1) merges = *height;
    *height += 1 - merges;
    return merges;
}

/* The last step of a matrix C. */
typedef struct neo__gemm_finish {
    neo_activation act;
    int backward;   /* 0: y = act(c). 1: c = c act'(z, y) */
    float *y;       /* NULL: c itself (forward) */
    const float *z; /* backward */
    int64_t y_row, z_row;
} neo__gemm_finish;
/* A step of the optimizer, of a whole parameter. */
typedef struct neo__update {
    neo__step step;
    neo_optim_kind kind;
    struct neo__optim_span *span;
} neo__update;
/* c = beta c + a b + bias; then finish. Element (i, k) of a is a[i a_row + k a_k]. */
typedef struct neo__gemm_call {
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_row, a_k, b_k, b_col; /* of each operand one is 1 */
    float *c;
    int64_t c_row;
    float beta;
    const float *bias; /* [n] or NULL */
    neo__gemm_finish finish;
    int tree; /* k is the row of a batch: each leaf is a chain from 0, leaves add by the tree */
    neo__leaf_cut leaves;
    const neo__update *update; /* NULL, or a step from c that may be made in place of c: see
                                  neo__gemm_updates */
    const float *panels; /* NULL, or b once more, finite, and the bias, nowhere -0, as panels of
                            [k + 1][2 lanes], an even number, zeros behind n, which is lanes and
                            NEO__GEMM_SWAP_COLS + 1 at least; k is less than NEO__LISTED_PLACES.
                            See neo__gemm_listed */
    int narrow;                       /* a and b are addresses of bf16: see >>impl-bf16 */
    int narrow_c, narrow_y, narrow_z; /* then: so is c; so are those of finish */
    int narrow_bias;                  /* and the bias */
} neo__gemm_call;
/* to[j] = the sum of column j by leaves; zeros of no leaves. */
typedef struct neo__column_sums_call {
    const float *from;
    int narrow; /* it is the address of bf16 */
    int64_t from_row, cols;
    float *to;
    neo__leaf_cut leaves;
} neo__column_sums_call;
/* dw, a product by leaves; dbias, column sums; dx, a product that writes nothing that they read. c
   or to NULL: not wanted. */
typedef struct neo__linear_grads_call {
    neo__gemm_call dw;
    neo__column_sums_call dbias;
    neo__gemm_call dx;
} neo__linear_grads_call;
/* The derivative of an activation is a function of z or of y; the other may have no memory. */
NEO__EVERYWHERE NEO__INLINE int neo__act_needs_z(neo_activation act) {
    return (act >= NEO_ACT_GELU && act <= NEO_ACT_SILU) || act == NEO_ACT_GELU_TANH;
}
NEO__EVERYWHERE NEO__INLINE int neo__act_needs_y(neo_activation act) {
    return act != NEO_ACT_NONE && !neo__act_needs_z(act);
}
/* out = act(z), or dy act'(z, y), row by row. */
typedef struct neo__activation_call {
    neo_activation act;
    int backward;
    int64_t rows, cols;
    const float *z, *y, *dy; /* forward: only z */
    float *out;
    int64_t z_row, y_row, dy_row, out_row;
    int narrow_z, narrow_dy, narrow_out; /* they are addresses of bf16 */
} neo__activation_call;
typedef struct neo__norm_call {
    int centered, backward;
    int64_t rows, cols;
    float eps;
    const float *x, *weight, *bias, *dy;        /* NULL where there is none */
    float *stats, *y, *dx, *dweight, *dbias;    /* stats [rows][2], or [rows] of an RMS norm */
    int64_t x_row, y_row, dy_row, dx_row;
    int narrow_y; /* it is the address of bf16 */
    int narrow_x; /* so are x, y, dy and dx */
    neo__leaf_cut leaves;
} neo__norm_call;
/* Forward: to[i] = from[ids[i]]. Backward: to[r] = the sum of from[i] with ids[i] = r by leaves,
   each leaf from zeros, added to what is there if `add`. With an id outside [0, rows) nothing is
   written. */
typedef struct neo__embedding_call {
    int backward, is_i32, add;
    const void *ids;
    int64_t count, rows, dim;
    const float *from; /* table or dout */
    float *to;         /* out or dtable */
    int64_t from_row, to_row;
    neo__leaf_cut leaves;
    neo__later later; /* answer: neo__embedding_found */
} neo__embedding_call;
typedef struct neo__embedding_found {
    uint64_t bad; /* the first position whose id is outside, or ~0 */
    int64_t id;   /* then: that id */
} neo__embedding_found;
typedef struct neo__attention_bias { /* see neo_attention_bias */
    const float *table;
    int64_t table_row; /* from head to head: 0 of a table of all heads */
    int64_t buckets;
    const int64_t *bounds, *times, *asked; /* times and asked: NULL by rows */
    float *each;                           /* or NULL */
} neo__attention_bias;
/* The bucket of a difference. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bias_bucket(const neo__attention_bias *bias,
                                                     int64_t difference) {
    int64_t low = 0, high = bias->buckets - 1;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (bias->bounds[mid] <= difference) low = mid + 1;
        else high = mid;
    }
    return low;
}
typedef struct neo__attention_call {
    int backward, causal;
    int narrow; /* operands may be rounded to bf16 */
    int narrow_y; /* q, k, v, y, dy, dq, dk and dv are addresses of bf16 */
    int silu;     /* p is silu(scale s) share, else a softmax */
    int64_t length, heads, dim, sequences, queries; /* queries: of a sequence */
    int64_t rows; /* of k and v; jagged: of all */
    float scale, share, slope; /* share: 1/n; slope: scale/n */
    const float *q, *k, *v, *dy;
    float *y, *lse; /* lse [rows][heads] or NULL; in the backward both are inputs, NULL if silu */
    float *dq, *dk, *dv; /* or NULL */
    int64_t q_row, k_row, v_row, dy_row, y_row, lse_row, dq_row, dk_row, dv_row;
    const int64_t *offsets; /* [sequences + 1], or NULL: see neo_attention_desc. With bad ones
                               nothing is written; else outputs of rows of no sequence become 0 */
    int biases;
    neo__attention_bias bias[2];
    neo__later later;       /* with offsets; answer: neo__attention_found */
} neo__attention_call;
typedef struct neo__attention_found {
    uint64_t bad;       /* the first sequence whose offsets are bad, or ~0 */
    int64_t begin, end; /* then: its offsets */
} neo__attention_found;
/* Whether a sequence [begin, end) cannot be. A batch of none has an empty one at offsets[0]. */
NEO__EVERYWHERE NEO__INLINE int neo__attention_bad(const neo__attention_call *call, int64_t begin,
                                                   int64_t end) {
    return begin < 0 || end < begin || end > call->rows || end - begin > call->length;
}
/* Tiles of `each` rows in all sequences are numbered, with gaps in a jagged batch, so that how many
   numbers there are depends on its shapes alone: a sequence has those from neo__attention_number
   on, which are enough. */
typedef struct neo__attention_tile {
    int64_t sequence, first, length; /* the sequence, its first row, its rows */
    int64_t row;                     /* the tile's first, of the sequence; >= length: there is no
                                        such tile */
} neo__attention_tile;
NEO__EVERYWHERE NEO__INLINE int64_t neo__attention_number(const neo__attention_call *call,
                                                          int64_t each, int64_t sequence) {
    return (call->offsets[sequence] - call->offsets[0]) / each + sequence;
}
NEO__EVERYWHERE NEO__INLINE int64_t neo__attention_tiles(const neo__attention_call *call,
                                                         int64_t each) {
    if (!call->offsets) return call->sequences * ((call->length + each - 1) / each);
    return call->sequences > 0 ? call->rows / each + call->sequences : 0;
}
NEO__EVERYWHERE NEO__INLINE neo__attention_tile
neo__attention_tile_at(const neo__attention_call *call, int64_t each, int64_t number) {
    neo__attention_tile tile;
    if (!call->offsets) {
        const int64_t tiles = (call->length + each - 1) / each;
        tile.sequence = number / tiles, tile.row = number % tiles * each;
        tile.first = tile.sequence * call->length, tile.length = call->length;
        return tile;
    }
    int64_t low = 0, high = call->sequences; /* the last sequence whose numbers begin by then */
    while (high - low > 1) {
        const int64_t mid = low + (high - low) / 2;
        if (neo__attention_number(call, each, mid) <= number) low = mid;
        else high = mid;
    }
    tile.sequence = low, tile.first = call->offsets[low];
    tile.length = call->offsets[low + 1] - tile.first;
    tile.row = (number - neo__attention_number(call, each, low)) * each;
    return tile;
}
/* Losses of `rows` samples of `width` elements and, unless dx is NULL, gradients times g. With a
   label or probability outside its range nothing is written. */
typedef enum neo__loss_kind {
    NEO__LOSS_BCE_LOGITS,
    NEO__LOSS_BCE,
    NEO__LOSS_MSE,
    NEO__LOSS_CROSS_ENTROPY
} neo__loss_kind;
typedef struct neo__loss_call {
    neo__loss_kind kind;
    const float *x, *y, *weight; /* y: labels or targets; weight may be NULL */
    const int64_t *label;        /* of cross entropy */
    float *dx;
    int narrow_x, narrow_dx; /* it is the address of bf16, of rows x_row, dx_row apart */
    int64_t rows, width, x_row, dx_row;
    float g;
    neo__later later; /* answer: neo__loss_found */
} neo__loss_call;
typedef struct neo__loss_found {
    uint64_t bad[2]; /* the first sample whose label, whose probability is outside, or ~0 */
    double value;    /* of the first of these that is not ~0 */
    int64_t label;   /* of cross entropy, instead */
    neo_exact sum;
} neo__loss_found;
static NEO__UNUSED neo__loss_found neo__loss_found_none(void) {
    NEO__ZERO(neo__loss_found, found);
    found.bad[0] = found.bad[1] = UINT64_MAX;
    return found;
}
/* Values of a parameter's elements first, first + 1, ...; row i of `out`, `cols` long, begins
   i stride further on. */
typedef struct neo__init_call {
    float *out;
    int64_t count, cols, stride;
    uint64_t first;
    neo_init init;
    float scale, top;
    neo__random_key key;
} neo__init_call;
/* dst = src in dst's dtype, any strides, src.shape is the shape of both; the same dtype: a copy. */
typedef struct neo__convert_call {
    neo_tensor src, dst;
    int64_t count;
    int stochastic;
    int64_t first;
    neo__random_key key;
} neo__convert_call;
/* out = the sum by the leaf tree of `count` parts of n numbers each, which may be overwritten. */
typedef struct neo__tree_sum_call {
    const neo_tensor *parts; /* host */
    int count;
    float *out;
    int64_t n;
} neo__tree_sum_call;
/* See neo_ids_unique. */
typedef struct neo__unique_call {
    const void *ids;
    neo_dtype dtype;
    int64_t count;
    void *unique;
    int32_t *inverse;
    int64_t *found; /* host: how many are distinct */
} neo__unique_call;
/* Elementwise on matrices, of f32 but for the first two and the last. */
typedef enum neo__blend_kind {
    NEO__BLEND_ADD,   /* x += y, rounded to x's dtype */
    NEO__BLEND_MUL,   /* x *= y, likewise */
    NEO__BLEND_FMA,   /* x = base + y z, without base y z */
    NEO__BLEND_SCALE, /* x *= factor */
    NEO__BLEND_ROUND, /* y = x rounded to dtype */
    NEO__BLEND_DOT,   /* out[row] = x_row . y_row */
    NEO__BLEND_ROWS,  /* x_row = out[row] y_row */
    NEO__BLEND_LOOK,  /* x is only read, for `infinite` */
    NEO__BLEND_DROP   /* y = x factor where the random number is at least `least`, else 0 */
} neo__blend_kind;
typedef struct neo__blend_call {
    neo__blend_kind kind;
    void *x, *y;
    float *out;
    neo_dtype x_dtype, y_dtype, dtype;
    int64_t rows, cols;
    int64_t x_row, y_row; /* elements from row to row */
    const float *z, *base;
    int64_t z_row, base_row;
    const char *const *names; /* of x, y, z, base in messages; NULL: these */
    float factor;
    const float *factor_there; /* on the device, instead; or NULL */
    int *infinite; /* host; of a scale, a look: set to 1 where a number is not finite. NULL: nobody
                      asks */
    neo__random_key key;
    uint64_t first; /* random number of element (0, 0); those of rows follow each other */
    float least;
} neo__blend_call;
/* A run of elements of one parameter, from a multiple of NEO__BLOCK on; grads and states alike. */
typedef struct neo__optim_span {
    float *w, *state[2];
    const float *grad;
    int64_t count;
    uint8_t elsewhere; /* another rank counts it in norms */
    uint8_t moved;     /* the open step is made: see neo_optim_begin */
    float lr;          /* LAMB: lr times trust ratio */
} neo__optim_span;
typedef enum neo__optim_pass {
    NEO__OPTIM_STEP,         /* of desc.kind; LAMB: the move */
    NEO__OPTIM_LAMB_MOMENTS, /* and sums[2 i], sums[2 i + 1]: squares of weights, of direction */
    NEO__OPTIM_NORM_1,       /* sums[0] */
    NEO__OPTIM_NORM_2,
    NEO__OPTIM_NORM_INF      /* *most */
} neo__optim_pass;
typedef struct neo__optim_call {
    neo__optim_pass pass;
    neo_optim_kind kind;
    neo__step step;
    const neo__optim_span *spans; /* host */
    int64_t span_count;
    neo_exact *sums; /* host; added to */
    float *most;     /* host; a NaN above all */
    /* While the device records: a norm with `later` leaves sums and most alone; the factor that
       limits it to clip_norm stays there, and a step with clip_there takes it for step.clip. A norm
       that is not finite stops the recorded step. group: whose sums count, or NULL. rates_there:
       LAMB's moments leave the rates there, its step takes them. */
    float clip_norm;
    int clip_there, rates_there;
    const neo_group *group;
    const neo__optim_others *others; /* of both; or NULL */
    neo__later later; /* answer: neo__optim_found */
} neo__optim_call;
typedef struct neo__optim_found {
    double norm;
    float clip;
} neo__optim_found;
/* min(1, clip_norm/(norm + 1e-6)) */
NEO__EVERYWHERE NEO__INLINE double neo__optim_factor(float clip_norm, double norm) {
    const double factor = (double)clip_norm / (norm + 1e-6);
    return factor > 1.0 ? 1.0 : factor;
}

/* ---- embedding bags of a device: see >>impl-bags-calls ---- */

/* A table; written when the object is made. Rows are numbered through all tables: this one's from
   first_key on. */
typedef struct neo__job_table {
    neo__bag_rows store;
    float *state[2];
    int64_t state_dim[2]; /* floats per row: 0, 1 or dim */
    int64_t rows, first_key;
    int64_t first_float; /* of a device: numbers of the tables before it */
    int64_t bucket_rows, first_row; /* see neo__bag_lookup */
    int32_t buckets, mean;
    int32_t cut; /* see neo__job_cut */
} neo__job_table;
/* A feature in the batch of a call. The last one has the ends. */
typedef struct neo__job_feature {
    int64_t table; /* of the job's */
    int64_t first_bag, bags;
    int64_t out_at, out_stride; /* of its first bag, in floats; NEO_POOL_NONE: 0, of an id */
    int64_t pack_stride;        /* of its gradients in `packed`, from out_at on */
    int64_t col;                /* in the row of a sample */
} neo__job_feature;
/* A table with keys: first values of a row, but for its place and number, from column first_col of
   the key's row on, and of both states. */
typedef struct neo__job_keys {
    neo__init_call init;
    int64_t first_col;
    float state[2];
    int on, shared; /* shared: what is read of a key without a row is that of key 0 */
} neo__job_keys;
/* A table cut by columns whose step needs sums over whole rows: what the running round has and asks
   for. Its rows are those of its slots, in their order: slot i is row cut_row[i]. */
typedef struct neo__job_cut {
    neo__bag_cut cut; /* total, blocks: on the device */
    int is_cut;       /* 0: all of its columns are here */
} neo__job_cut;
/* A line of a tier that a slot is for, and the row that comes to it. */
typedef struct neo__job_line {
    int64_t table, line, row; /* line below 0: none */
} neo__job_line;
/* Bytes of a row in a block of its table's: weights, scales of i8 rows, two states. */
enum { NEO__BAG_WEIGHTS, NEO__BAG_SCALES, NEO__BAG_STATE, NEO__BAG_BLOCKS = NEO__BAG_STATE + 2 };
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_part(const neo__job_table *t, int block) {
    if (block == NEO__BAG_WEIGHTS) return t->store.row_bytes;
    return (int64_t)sizeof(float) * (block == NEO__BAG_SCALES ? 2 * (t->store.dtype == NEO_I8)
                                                           : t->state_dim[block - NEO__BAG_STATE]);
}
NEO__EVERYWHERE NEO__INLINE char *neo__bag_memory(const neo__job_table *t, int block) {
    return block == NEO__BAG_WEIGHTS  ? t->store.data
           : block == NEO__BAG_SCALES ? (char *)t->store.scale
                                      : (char *)t->state[block - NEO__BAG_STATE];
}
/* In a slot the parts of a row lie one after another, each at a multiple of 16 bytes. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__bag_part_room(int64_t bytes) {
    return (bytes + 15) / 16 * 16;
}
/* The step of a table in a call. */
typedef struct neo__job_rule {
    neo__bag_step step;
    neo__random_key round;
    int nearest;
} neo__job_rule;
/* The findings of a look at every offset and id; zeros before. bag: ~ the first bag with decreasing
   offsets, behind all bags the first place of an inverse that has no bag; id: ~ the first id
   outside its table, counted from the batch's first; 0: none. */
typedef struct neo__bags_found {
    unsigned long long bag, id, count; /* count: ids outside */
    int64_t first, last;               /* the offsets' ends */
    int64_t at, begin, what; /* of either: its bag, where that begins; its end, or the id */
    int64_t feature, sample; /* of samples that share the bag the first, where an id is bad */
} neo__bags_found;
#ifndef NEO__JOB_PARTS
#define NEO__JOB_PARTS 16384 /* leaves of long runs, of a call at most; others are not ahead */
#endif
enum {
    NEO__JOB_LONG = 256,   /* records; leaves of a longer run of a row are summed side by side, */
    NEO__JOB_PART = 32,    /* if they have so many */
    NEO__JOB_VECTORS = 64, /* scratches of rows too long for shared memory */
    NEO__JOB_SHARED_FLOATS = 5376 /* of a row's scratch: two fit into shared memory, beside lists */
};
/* Floats in which a row is stepped: its gradient, a direction, and of a narrow row the row and its
   random words, of which the last may be a vector of blocks. */
NEO__EVERYWHERE NEO__INLINE int64_t neo__job_scratch(neo_dtype dtype, int64_t dim) {
    return 2 * neo__bag_room(dim) + (dtype == NEO_F32 ? 0 : 2 * neo__bag_room(dim) + 96);
}
enum { NEO__BAG_COUNTED = 3 }; /* words of kept.counted */
/* The record of a call, for every operation on bags. Pointers are the device's but for "host". */
typedef struct neo__bags_job {
    neo_bags *object; /* host: for the CPU */
    int32_t table;    /* for the CPU: of sort_rows */
    int only_cut;     /* for the CPU: tables cut by columns (1), the others (0), all (-1) */
    const int *stop;  /* not 0: the step being recorded has an error, no row changes. NULL: 0 */
    struct {          /* since the object was made, or its workspace grew */
        int32_t table_count, feature_count;
        int none, wide; /* none: NEO_POOL_NONE. wide: keys are 64 bits, else 32 */
        neo_bounds bounds;
        int64_t key_count; /* rows of all tables; also the key of a dropped id */
        int64_t max_ids, max_records, max_dim;
        const neo__job_table *tables, *host_tables;
        const neo__job_keys *keys; /* of tables; NULL: none has any */
    } fixed;
    struct { /* sent when they have changed */
        neo__job_feature *features, *host_features; /* [feature_count + 1] */
        neo__job_rule *rules, *host_rules;
    } told;
    struct { /* ids and weights are indexed by an offset - id_base */
        const int64_t *offsets;
        const void *ids;
        const float *weights;
        int is_i32;
        int lines; /* ids are lines of a tier, or rows of keys, or below 0: dropped */
        const uint64_t *keys; /* NULL: all have rows. Else what ids were; one without a row is ~ the
                                 first row of its set */
        int64_t id_base, bags;
        int64_t most_ids; /* not more than this: launches are sized by it */
        neo__bags_found *found;
        const int32_t *inverse; /* [features][samples]: see bags_spread; NULL: bags are samples' */
        int64_t samples;
    } batch;
    struct {
        float *out;
        int64_t out_rows; /* NEO_POOL_NONE */
        const float *dout;
        float *dweights;
        const int32_t *dweight_at; /* see neo__bags_weight_grad_at; NULL: id k is number k */
        int aligned; /* all rows of out, dout and packed lie at multiples of 16 bytes */
        float *samples; /* of a batch with an inverse: out has its bags, this the samples */
        int64_t samples_stride;
    } tensor;
    struct { /* records: key << leaf_bits | leaf, and what to add; unsorted, sorted */
        void *keys[2];
        uint32_t *values[2];
        int64_t records;  /* not more than this */
        int64_t *grad_at; /* per id */
        int indirect; /* the gradient of a value is at grad_at[value], else at value grad_unit */
        int64_t grad_unit;
        float *packed; /* gradients of MEAN tables, divided by the bags' lengths */
        int packs;     /* gradients of MEAN tables are in `packed`, else all are in dout */
        neo__leaf_cut leaves; /* count 0: every feature's samples are a batch of `shards` leaves */
        int leaf_bits;
        int leaf_sort; /* records do not come leaf by leaf: the sort must see to it */
        uint32_t *parts; /* leaves of long runs, or their pieces: how many of both (see
                            neo__bags_most_pieces); then the first record of each */
        float *part_sums; /* [max_parts][neo__bag_room(max_dim)] */
        int64_t max_parts;
        uint32_t piece; /* records, into which leaves of long runs are cut; see >>cuda-bags */
        uint64_t seed;  /* of all rules */
        void *temp;                /* of sort and scan */
        size_t temp_bytes;
    } sorted;
    int keep, add; /* keep: sums are kept. add: they go on from what is kept, record by record */
    struct {       /* keys by slot, a hash table from key + 1 to slot, and [max_dim] floats each */
        int64_t max, count; /* of a device: as far as the host knows, at most */
        uint64_t *slot_key, *hash_key, hash_mask;
        uint64_t *counted; /* of a device: slots now, before the last call that kept; 1: there was
                              no room for that call's */
        uint32_t *hash_slot;
        const uint64_t *line_key; /* of each slot, that of its line: see neo__tier_ops; or NULL */
        uint32_t *fresh, *place; /* [max_records + 1]: 1 for a new row; their sums before */
        uint32_t *keep_at;                   /* per record: slot << 1 | new */
        float *sums;
        int64_t unit; /* of a device: floats from slot to slot; of dense gradients fewer */
    } kept;
    struct { /* tables cut by columns; NULL: none */
        neo__job_cut *tables; /* [table_count] */
        uint32_t *row;        /* [kept.max] */
        float *scratch;       /* [NEO__JOB_VECTORS][5 neo__bag_room(max_dim)] */
        float *blocks, *totals;
    } cut;
    struct {
        float *scratch; /* [NEO__JOB_VECTORS][scratch_floats], or NULL: shared memory is enough */
        int64_t scratch_floats;
        float *stage; /* [stage_floats] */
        int64_t stage_floats;
    } room;
} neo__bags_job;

/* Looks up what a message about a finding names. Offsets are sound where an id was found. */
NEO__EVERYWHERE NEO__INLINE void neo__bags_point(const neo__bags_job *j, neo__bags_found *found) {
    const int64_t *offsets = j->batch.offsets, k = found->first + (int64_t)~found->id;
    const int64_t samples = j->batch.samples;
    const neo__job_feature *feature = j->told.features;
    int64_t bag = 0, end = j->batch.bags, f = 0;
    if (found->bag) bag = (int64_t)~found->bag;
    if (found->bag && bag >= end) {
        found->at = bag, found->what = j->batch.inverse[bag - end];
        found->feature = (bag - end) / samples, found->sample = (bag - end) % samples;
        return;
    }
    if (!found->bag && (!found->id || j->fixed.bounds != NEO_BOUNDS_ERROR)) return;
    while (!found->bag && bag + 1 < end) { /* the last bag that begins at or before k */
        const int64_t mid = bag + (end - bag) / 2;
        if (offsets[mid] <= k) bag = mid;
        else end = mid;
    }
    found->at = bag, found->begin = offsets[bag];
    found->what = found->bag ? offsets[bag + 1]
                             : neo__jagged_id(j->batch.ids, j->batch.is_i32, k - j->batch.id_base);
    while (f + 1 < j->fixed.feature_count && feature[f + 1].first_bag <= bag) f++;
    found->feature = f, found->sample = bag -= feature[f].first_bag;
    if (found->bag || !j->batch.inverse) return;
    const int32_t *inverse = j->batch.inverse + f * samples; /* sample i reads at most bag i */
    while (found->sample + 1 < samples && inverse[found->sample] < bag) found->sample++;
}

struct neo_device {
    uint32_t bytes, version; /* of this table: sizeof, NEO__DEVICE_VERSION */
    char name[128];          /* "cuda:0 (NVIDIA H200)" */
    const char *numerics;    /* words for checkpoints: "deterministic 3"; NULL: the CPU's bits */
    /* Calls are kept, to run later as one: what does not depend on a batch's numbers stays the same
       from step to step (numbers of ids are eighths of what is reserved, descriptions are always
       sent), and errors of data come at the end. */
    int32_t recording;
    uint32_t forgotten; /* how often recorded calls were left out, so that the device never heard */
    uint32_t launched;  /* how often recorded calls were launched */
    int32_t users;      /* atomic: its maker, who begins with 1, and its contexts */
    int32_t checked; /* its context looks at all numbers (check_finite): no step is recorded */
    int32_t narrow_tensors; /* of attention and norms may be bf16: see neo_attention_dtype */
    const char *advice; /* a warning for its contexts, which each give it once; NULL: none */
    /* While calls go into a recorded step: the stream of exchanges that it passes without the host,
       and the word there that says stop, for other ranks, and one behind it (neo__device_order).
       Else NULL. heard: [hears] of other ranks. watch: see neo__device_watch; watched: atomic,
       a thread has its list. */
    void *passes, *stop;
    char *heard;
    int32_t hears, watched;
    struct neo__lookout *watch;
    /* A span begins in the device's profiler, NULL: the last one ends. NULL: no profiler looks. */
    void (*range)(const char *name);
    void (*destroy)(neo_device *d);
    /* Memory, 256-byte aligned; NULL: none. host_: memory that the device reads fast. */
    void *(*alloc)(neo_device *d, size_t bytes);
    void (*free)(neo_device *d, void *p, size_t bytes);
    void *(*host_alloc)(neo_device *d, size_t bytes);
    void (*host_free)(neo_device *d, void *p, size_t bytes);
    /* Host memory that is read may be used again on return; what is written is there. */
    neo_status (*copy)(neo_device *d, void *to, neo_place to_place, const void *from,
                       neo_place from_place, size_t bytes);
    neo_status (*fill)(neo_device *d, void *to, int byte, size_t bytes);
    neo_status (*synchronize)(neo_device *d);
    /* While it records: a counter that a call is going to advance; it goes back if the call has no
       effect. settle: what is recorded runs and is over, with its answers; a failure is returned by
       the next call. */
    void (*counts)(neo_device *d, int64_t *counter);
    void (*settle)(neo_device *d);
    /* From any thread, beside all other calls: see neo__device_move. */
    neo_status (*move)(neo_device *d, void *to, const void *from, size_t bytes, void *stream);
    neo_status (*combine)(neo_device *d, const neo__combine_call *call);
    neo_status (*encode)(neo_device *d, const neo__wire_call *call);
    neo_status (*decode)(neo_device *d, const neo__wire_call *call);
    neo_status (*rows)(neo_device *d, const neo__rows_call *call);
    neo_status (*ids_unique)(neo_device *d, const neo__unique_call *call);
    /* Not of the processor: */
    neo_status (*ids_split)(neo_device *d, const neo__split_call *call);
    neo_status (*ids_join)(neo_device *d, const neo__join_call *call);
    neo_status (*ids_fold)(neo_device *d, const neo__fold_call *call);
    neo_status (*ids_places)(neo_device *d, const neo__places_call *call);
    /* See neo__event_make; event_wait: from any thread. */
    void *(*event_make)(neo_device *d);
    void (*event_free)(neo_device *d, void *event);
    neo_status (*event_mark)(neo_device *d, void *event);
    neo_status (*event_wait)(neo_device *d, void *event);
    neo_status (*order)(neo_device *d, int what, void *event, int code); /* not of the CPU */
    neo_status (*aside)(neo_device *d, void *event); /* see neo__device_aside; not of the CPU */
    /* Dense operations. */
    neo_status (*gemm)(neo_device *d, const neo__gemm_call *call);
    neo_status (*linear_grads)(neo_device *d, const neo__linear_grads_call *call);
    neo_status (*activation)(neo_device *d, const neo__activation_call *call);
    neo_status (*blend)(neo_device *d, const neo__blend_call *call);
    neo_status (*norm)(neo_device *d, const neo__norm_call *call);
    neo_status (*embedding)(neo_device *d, const neo__embedding_call *call);
    neo_status (*attention)(neo_device *d, const neo__attention_call *call);
    neo_status (*interact)(neo_device *d, const neo__interact_call *call);
    neo_status (*fm)(neo_device *d, const neo__fm_call *call);
    neo_status (*loss)(neo_device *d, const neo__loss_call *call);
    neo_status (*init)(neo_device *d, const neo__init_call *call);
    neo_status (*convert)(neo_device *d, const neo__convert_call *call);
    neo_status (*tree_sum)(neo_device *d, const neo__tree_sum_call *call);
    neo_status (*optim)(neo_device *d, const neo__optim_call *call);
    /* Embedding bags: see >>impl-bags-calls. */
    size_t (*bags_temp_bytes)(neo_device *d, int64_t max_records, int wide);
    /* later's answer is neo__bags_found; NULL: it is waited for, in `found` (host); or nobody asks,
       if that is NULL, too. With found NULL and later, outside a recorded step, bags_told waits for
       it, when what comes behind the look has been launched; NULL: the device has no such calls. */
    neo_status (*bags_check)(neo_device *d, const neo__bags_job *j, neo__bags_found *found,
                             const neo__later *later);
    neo_status (*bags_told)(neo_device *d, neo__bags_found *found);
    neo_status (*bags_forward)(neo_device *d, const neo__bags_job *j);
    neo_status (*bags_spread)(neo_device *d, const neo__bags_job *j); /* pooled bags to the samples
                                                                         that read them */
    neo_status (*bags_weight_grad)(neo_device *d, const neo__bags_job *j);
    neo_status (*bags_records)(neo_device *d, const neo__bags_job *j); /* pack, write records; NULL:
                                                                          bags_sort does */
    neo_status (*bags_sort)(neo_device *d, const neo__bags_job *j);
    neo_status (*bags_sort_rows)(neo_device *d, const neo__bags_job *j, const int64_t *rows,
                                 int64_t first_key); /* records of rows [j->records], sort */
    neo_status (*bags_update)(neo_device *d, const neo__bags_job *j); /* step or keep */
    neo_status (*bags_step_kept)(neo_device *d, const neo__bags_job *j);
    /* Not of the processor: rows that are kept, of each table, and their numbers among its own; see
       neo__device_cut_add. Then block sums for cuts. */
    neo_status (*bags_cut_rows)(neo_device *d, const neo__bags_job *j);
    neo_status (*cut_add)(neo_device *d, float *total, const float *blocks, int64_t count,
                          int64_t each, int first);
    neo_status (*bags_cut)(neo_device *d, const neo__bags_job *j);
    /* fresh: rows without a slot (host); then, give them slots from slot_count on. by_value: a row
       comes where its first record's value says, else in the order of the sort. later: of a
       recorded step, whose host is not told: its answer is kept.counted. */
    neo_status (*bags_find_slots)(neo_device *d, const neo__bags_job *j, int by_value,
                                  int64_t *fresh, const neo__later *later);
    neo_status (*bags_give_slots)(neo_device *d, const neo__bags_job *j, int by_value);
    neo_status (*bags_drop_slots)(neo_device *d, const neo__bags_job *j); /* from slot_count on;
                                                                             -1: from counted[0] */
    /* See neo__bags_dense_sum; not of the processor. Rows of sorted records are marked, and their
       slots are their places in `sums`; and records of all marked rows, as if they were sorted. */
    neo_status (*bags_dense_slots)(neo_device *d, const neo__bags_job *j, unsigned char *marks);
    neo_status (*bags_dense_records)(neo_device *d, const neo__bags_job *j,
                                     const unsigned char *marks);
    /* out[i] = sum of squares of block i of 16 columns of kept rows [first, first + count); or,
       with sum, they are added to that neo_exact of a device, of rows that there are. */
    neo_status (*bags_squares)(neo_device *d, const neo__bags_job *j, int64_t first, int64_t count,
                               float *out, uint64_t *sum);
    /* Rows [first, first + count) of a table to f32, or from it (to nearest). */
    neo_status (*bags_rows)(neo_device *d, const neo__bags_job *j, int table, int64_t first,
                            int64_t count, float *rows, int write);
    /* Rows (or lines), numbered through all tables, begin with the first values of these keys, or,
       where they are ~ that, with zeros. And rows between lines and slots of `room` bytes, which
       become theirs if `write`. Not of the processor, whose rows are in reach. */
    neo_status (*bags_first)(neo_device *d, const neo__bags_job *j, const int64_t *rows,
                             const uint64_t *keys, int64_t count);
    neo_status (*bags_lines)(neo_device *d, const neo__bags_job *j, const neo__job_line *lines,
                             int64_t count, char *slots, int64_t room, int write);
};
#endif /* NEO__KERNEL_TYPES */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__IMPLEMENTED)
#define NEO__IMPLEMENTED

#include <math.h>
#include <time.h>
#if defined(_WIN32)
#include <direct.h>
#include <io.h>
#include <malloc.h>
#else
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <sys/stat.h>
#include <sys/types.h>
#endif

#if !defined(NEO_NO_SIMD) && (defined(__x86_64__) || defined(_M_X64)) && !defined(__CUDACC__)
#define NEO__X86 1
#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define NEO__X86_BF16 1 /* the assembler knows AVX512-BF16 and AMX */
#include <cpuid.h>
#endif
/* clang-cl would leave out what its command line did not ask for. (Programs link its library
   clang_rt.builtins, which knows the processor: __cpu_model.) */
#if defined(__clang__) && defined(_MSC_VER)
#pragma push_macro("_MSC_VER")
#undef _MSC_VER
#include <immintrin.h>
#pragma pop_macro("_MSC_VER")
#elif __GNUC__ >= 11 && __GNUC__ <= 12 && !defined(__clang__) && !defined(_IMMINTRIN_H_INCLUDED)
/* Parts of <immintrin.h>: all of it is a tenth of the compile time. It may be included later: each
   part has its own guard. */
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#if defined(NEO_INFERENCE)
#define NEO__FEW_512 1 /* see >>kernels */
#else
#include <avx512fintrin.h>
#include <avx512dqintrin.h>
#endif
#undef _IMMINTRIN_H_INCLUDED
#if !defined(_X86GPRINTRIN_H_INCLUDED)
#define _X86GPRINTRIN_H_INCLUDED
#include <bmiintrin.h>
#undef _X86GPRINTRIN_H_INCLUDED
#endif
#else
#include <immintrin.h>
#endif
#elif !defined(NEO_NO_SIMD) && defined(__aarch64__)
#define NEO__ARM 1
#include <arm_neon.h>
#endif

NEO_EXACT_BEGIN
#if !defined(NEO_INFERENCE) /* whose pragmas name them, too: each flag costs at every function */
NEO__FEW_PASSES
#endif
NEO__CALLS_BEGIN
NEO__COLD_BEGIN
NEO__HOT_BEGIN

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
#define NEO__THREAD_LOCAL thread_local
#else
#define NEO__THREAD_LOCAL _Thread_local
#endif

/* ---------------------------------------------------------------------------
   >>platform

   What differs between POSIX and Windows: clock, aligned memory (files: neo_run.h).
   ------------------------------------------------------------------------ */
#if defined(__linux__)
#if !defined(__cplusplus) && !defined(MADV_HUGEPAGE)
extern int madvise(void *begin, size_t size, int advice); /* hidden under _POSIX_C_SOURCE */
#endif
static void neo__advise(void *p, size_t size, int advice) { /* of the huge pages inside */
    const uintptr_t huge = (uintptr_t)2 << 20, begin = ((uintptr_t)p + huge - 1) & ~(huge - 1);
    const uintptr_t end = ((uintptr_t)p + size) & ~(huge - 1);
    const int error = errno; /* advice that is refused is not an error */
    if (begin < end) (void)madvise((void *)begin, end - begin, advice);
    errno = error;
}
#else
static void neo__advise(void *p, size_t size, int advice) { (void)p, (void)size, (void)advice; }
#endif
/* Linux's numbers; COLLAPSE puts small pages that are there together (since 6.1). */
enum { NEO__ADVISE_HUGE = 14, NEO__ADVISE_SMALL = 15, NEO__ADVISE_COLLAPSE = 25 };
#if !defined(NEO_INFERENCE)
NEO_API void neo__small_pages(void *p, size_t size) { neo__advise(p, size, NEO__ADVISE_SMALL); }
#endif
#if defined(_WIN32)
static void *neo__aligned_alloc(size_t size, size_t align) { return _aligned_malloc(size, align); }
static void neo__aligned_free(void *p) { _aligned_free(p); }
NEO_API int64_t neo_time_ns(void) {
    LARGE_INTEGER t, f;
    QueryPerformanceCounter(&t);
    QueryPerformanceFrequency(&f);
    return (int64_t)(t.QuadPart / f.QuadPart * 1000000000 +
                     t.QuadPart % f.QuadPart * 1000000000 / f.QuadPart);
}
#else
/* Large blocks are aligned to huge pages and ask for them where the system gives them on request:
   random rows of a large table then cost fewer page walks (lookups of uniform ids run about 1.3
   times as fast), and so do columns of a weight, whose elements are rows apart. */
static void *neo__aligned_alloc(size_t size, size_t align) {
    void *p = NULL;
    const size_t huge = (size_t)2 << 20;
    const int large = size >= huge; /* begins where a huge page does: else a few megabytes have none
                                       inside */
    if (posix_memalign(&p, large && align < huge ? huge : align, size) != 0) return NULL;
    if (large) neo__advise(p, size, NEO__ADVISE_HUGE);
    return p;
}
static void neo__aligned_free(void *p) { free(p); }
NEO_API int64_t neo_time_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#endif

/* ---------------------------------------------------------------------------
   >>impl-status
   ------------------------------------------------------------------------ */
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

/* ---------------------------------------------------------------------------
   >>impl-fp
   ------------------------------------------------------------------------ */
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

/* a b + c in double, rounded to odd, which makes a rounding to float that follows correct: the
   product of two floats is exact there. */
NEO__INLINE double neo__fma_odd(float a, float b, float c) {
    double product = (double)a * (double)b, addend = (double)c;
    double sum = product + addend;
    double back = sum - product;
    double error = (product - (sum - back)) + (addend - back);
    uint64_t bits = neo__bits_f64(sum);
    int finite = (bits >> 52 & 0x7FF) != 0x7FF;
    if (finite && error != 0.0 && !(bits & 1))
        bits += (error > 0.0) == (sum > 0.0) ? 1u : (uint64_t)-1;
    return neo__f64_bits(bits);
}
/* neo__fma: a b + c rounded once, without trusting libm (some round twice). */
#if defined(__FMA__) || defined(__aarch64__)
NEO__INLINE float neo__fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
/* Not inline: it is used everywhere in the scalar kernels. The sum in double rounds to the float
   that the exact sum does, unless it is half way between two floats or below the normal ones. */
static NEO__UNUSED NEO__NOINLINE float neo__fma(float a, float b, float c) {
    double sum = (double)a * (double)b + (double)c;
    if ((neo__bits_f64(sum) & 0x1FFFFFFF) != 0x10000000 && (sum >= 0x1p-126 || sum <= -0x1p-126))
        return (float)sum;
    return sum == 0.0 ? (float)sum : (float)neo__fma_odd(a, b, c);
}
#endif

/* Compiler flags that change arithmetic without defining a macro show in these results. */
static const char *neo__fp_self_check(void) {
    volatile float va = 1.0f + 0x1p-12f, vc = -1.0f - 0x1p-11f, tiny = 0x1p-140f, one = 1.0f;
    volatile float small = 0x1p-30f, zero = 0.0f;
    float a = va, c = vc, x = one, y = small, z = zero;
    volatile double tenth = 0.1;
    if (tenth == (double)0.1f)
        return "double constants are cut to float (-fsingle-precision-constant)";
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

/* ---------------------------------------------------------------------------
   >>impl-ctx

   A context: its memory, its threads, and the devices that compute. Each public operation checks
   its arguments, fills one record (neo__x_call) and calls NEO__RUN(ctx, fn, x, &record). ctx->on is
   the accelerator's table or the CPU's; only code for which the place of memory matters asks
   ctx->device.
   ------------------------------------------------------------------------ */
enum {
    NEO__ALIGN = 64,
    NEO__WORKER_SCRATCH_BYTES = 3 << 20, /* per worker: packed tiles, leaf partial sums */
    NEO__SHARED_SCRATCH_BYTES = 16 << 20 /* of the caller: packed operands shared by all workers */
};

/* Threads that park while idle. A job is open from the moment it is published until its tasks are
   handed out; workers join while it is open, so one that wakes late is not waited for. The gate
   says who is inside: one number, so a worker that enters knows whether the job is open, and who
   leaves last whether the caller sleeps. Nobody takes the lock but to sleep and to wake others. */
typedef struct neo__pool {
    neo__mutex lock;
    neo__cond wake, done;
    neo_task_fn task;
    void *arg;
    int64_t count;
    int64_t next;       /* atomic */
    int64_t generation; /* atomic: of the last published job */
    int gate;           /* atomic: NEO__GATE_... */
    int core;           /* atomic: the caller's, see neo__core_now; NEO__CORE_SHARED */
    int sleepers;       /* atomic: workers that sleep; changed under lock */
    int quit;           /* under lock */
    int worker_count;   /* threads besides the caller */
    int64_t owed;       /* ns of lists that came while workers slept, since one was woken */
    struct neo__worker *workers;
} neo__pool;
typedef struct neo__worker {
    neo__pool *pool;
    neo__thread thread;
    int index; /* 1 ..: the caller is worker 0 */
} neo__worker;

typedef struct neo__gemm_kernels neo__gemm_kernels;
typedef struct neo__vec_kernels neo__vec_kernels;
typedef struct neo__bag_kernels neo__bag_kernels;
typedef struct neo__tensor_kernels neo__tensor_kernels;
typedef struct neo__wire_kernels neo__wire_kernels;

struct neo_ctx {
    neo_allocator allocator;
    neo_logger logger;
    neo_executor executor;
    int threads;
    neo_isa isa;
    int repro_shards;
    uint64_t seed;
    neo_device *device; /* the accelerator, or NULL */
    neo_device *on;     /* the device that computes: the accelerator, or &cpu; never NULL */
    neo_device cpu;     /* this machine's processor as a device, see >>impl-cpu */
    const neo__gemm_kernels *gemm; /* of the instruction set */
    const neo__bf16_kernels *bf16; /* NULL: by the f32 ones */
    const neo__vec_kernels *vec;
    const neo__bag_kernels *bag;
    const neo__tensor_kernels *tensor;
    const neo__wire_kernels *wire;
    neo__pool pool;
    char *scratch; /* threads x NEO__WORKER_SCRATCH_BYTES, then NEO__SHARED_SCRATCH_BYTES */
    size_t scratch_bytes;
    size_t bytes, peak_bytes, device_bytes; /* atomic */
    int64_t alloc_count;                    /* atomic */
    int destroyed;                          /* by its user; atomic. bytes are then the objects' */
    neo__live *live, **live_end; /* objects, the oldest first; under the pool's lock */
    int inside;      /* of objects that make others for themselves */
    int64_t tensors; /* of neo_tensor_alloc; atomic */
    int sharing; /* groups of ranks that share batches: see neo__ctx_take_parts */
    int check_finite;
    int advised; /* the device's advice was given */
    struct neo__recorder *recorder; /* of spans; or NULL. Atomic */
    int traces;              /* made so far */
    neo_params *params;       /* the last set made; each has the one before */
    struct neo_optim *opened; /* the last whose weights may move: see neo_optim_begin */
    const int64_t *clocks[2]; /* steps of bags, of a dense optimizer: the last made, or NULL */
    const char *last_read;    /* with check_finite: the parameter; or NULL */
    struct neo_tier *tiers;   /* those that hold rows; see neo__tier_ops */
    neo__launches launches;
};

/* An operation of the device that computes, for the public function fn. With check_finite its
   numbers are looked at: see >>impl-finite. With a trace or a profiler it is a span. */
#if !defined(NEO_INFERENCE)
#define NEO__RUN(ctx, fn, op, call)                                                                \
    ((ctx)->check_finite || (ctx)->recorder || (ctx)->on->range                                    \
         ? neo__checked_##op(ctx, fn, call)                                                        \
         : (ctx)->on->op((ctx)->on, call))
#define NEO__CHECKED_LIST(X)                                                                       \
    X(gemm, neo__gemm_call)                                                                        \
    X(linear_grads, neo__linear_grads_call)                                                        \
    X(activation, neo__activation_call)                                                            \
    X(blend, neo__blend_call)                                                                      \
    X(norm, neo__norm_call)                                                                        \
    X(embedding, neo__embedding_call)                                                              \
    X(attention, neo__attention_call)                                                              \
    X(interact, neo__interact_call)                                                                \
    X(fm, neo__fm_call)                                                                            \
    X(loss, neo__loss_call)                                                                        \
    X(convert, neo__convert_call)                                                                  \
    X(tree_sum, neo__tree_sum_call)                                                                \
    X(optim, neo__optim_call)                                                                      \
    X(bags_forward, neo__bags_job)                                                                 \
    X(bags_weight_grad, neo__bags_job)                                                             \
    X(bags_update, neo__bags_job)                                                                  \
    X(bags_step_kept, neo__bags_job)
#define NEO__CHECKED(op, record)                                                                   \
    static neo_status neo__checked_##op(neo_ctx *ctx, const char *fn, const record *call);
NEO__CHECKED_LIST(NEO__CHECKED)
#undef NEO__CHECKED
#endif
#if defined(NEO_INFERENCE)
#define NEO__RUN(ctx, fn, op, call) ((void)(fn), (ctx)->on->op((ctx)->on, call))
#endif

/* The context of a CPU's table. */
NEO__INLINE neo_ctx *neo__cpu_ctx(neo_device *d) {
    return (neo_ctx *)(void *)((char *)d - offsetof(neo_ctx, cpu));
}
NEO__INLINE char *neo__worker_scratch(neo_ctx *ctx, int worker) {
    return ctx->scratch + (size_t)worker * NEO__WORKER_SCRATCH_BYTES;
}
NEO__INLINE char *neo__shared_scratch(neo_ctx *ctx) {
    return ctx->scratch + (size_t)ctx->threads * NEO__WORKER_SCRATCH_BYTES;
}

NEO__HOT_END
static void *neo__default_alloc(size_t size, size_t align, void *user) {
    (void)user;
    return neo__aligned_alloc(size, align);
}
static void neo__default_free(void *ptr, size_t size, void *user) {
    (void)size;
    (void)user;
    neo__aligned_free(ptr);
}

static void neo__count_alloc(neo_ctx *ctx, size_t bytes) {
    __atomic_fetch_add(&ctx->alloc_count, 1, __ATOMIC_RELAXED);
    size_t now = __atomic_add_fetch(&ctx->bytes, bytes, __ATOMIC_RELAXED);
    size_t peak = __atomic_load_n(&ctx->peak_bytes, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&ctx->peak_bytes, &peak, now, 1,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
static int neo__ctx_destroyed(const neo_ctx *ctx) {
    return __atomic_load_n(&ctx->destroyed, __ATOMIC_RELAXED);
}
NEO_API neo_status neo__check_live(const neo_ctx *ctx, const char *function, const char *name) {
    NEO__CHECK(ctx, NEO_ERR_ARG, "%s: %s is NULL", function, name);
    NEO__CHECK(!neo__ctx_destroyed(ctx), NEO_ERR_STATE, "%s: the context is destroyed", function);
    return NEO_OK;
}
static neo_status neo__check_ctx(const char *function, const neo_ctx *ctx) {
    return neo__check_live(ctx, function, "ctx");
}
static void neo__ctx_free(neo_ctx *ctx);
/* Memory of a device, or memory of the host that it reads fast (pinned); counted. */
static void *neo__alloc_on(neo_ctx *ctx, neo_device *d, int pinned, size_t bytes) {
    if (bytes > SIZE_MAX / 2 || neo__ctx_destroyed(ctx)) return NULL;
    if (bytes == 0) bytes = 1;
    void *p = pinned ? d->host_alloc(d, bytes) : d->alloc(d, bytes);
    if (!p) return NULL;
    neo__count_alloc(ctx, bytes);
    if (d == ctx->device && !pinned)
        __atomic_fetch_add(&ctx->device_bytes, bytes, __ATOMIC_RELAXED);
    return p;
}
static void neo__free_on(neo_ctx *ctx, neo_device *d, int pinned, void *p, size_t bytes) {
    if (!p) return;
    if (bytes == 0) bytes = 1;
    if (d == ctx->device && !pinned)
        __atomic_fetch_sub(&ctx->device_bytes, bytes, __ATOMIC_RELAXED);
    if (pinned) d->host_free(d, p, bytes);
    else d->free(d, p, bytes);
    /* Last, and nothing after it: another thread may free the context at 0. */
    if (__atomic_sub_fetch(&ctx->bytes, bytes, __ATOMIC_ACQ_REL) == 0) neo__ctx_free(ctx);
}
NEO_API void *neo_alloc(neo_ctx *ctx, size_t bytes) {
    return neo__alloc_on(ctx, &ctx->cpu, 0, bytes);
}
NEO_API void neo_free(neo_ctx *ctx, void *ptr, size_t bytes) {
    neo__free_on(ctx, &ctx->cpu, 0, ptr, bytes);
}
static void *neo__alloc_zero(neo_ctx *ctx, size_t bytes) {
    void *p = neo_alloc(ctx, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}
/* Memory of the device that computes; for what kernels work on. */
static void *neo__data_alloc(neo_ctx *ctx, size_t bytes) {
    return neo__alloc_on(ctx, ctx->on, 0, bytes);
}
static void neo__data_free(neo_ctx *ctx, void *p, size_t bytes) {
    neo__free_on(ctx, ctx->on, 0, p, bytes);
}
NEO_API void *neo__pinned_alloc(neo_ctx *ctx, size_t bytes) {
    return neo__alloc_on(ctx, ctx->on, 1, bytes);
}
NEO_API void neo__pinned_free(neo_ctx *ctx, void *p, size_t bytes) {
    neo__free_on(ctx, ctx->on, 1, p, bytes);
}
/* The device in whose memory `place` is. */
NEO__INLINE neo_device *neo__device_at(const neo_ctx *ctx, neo_place place) {
    return place == NEO_DEVICE ? ctx->on : (neo_device *)(uintptr_t)&ctx->cpu;
}
NEO_API neo_status neo__device_move(const neo_ctx *ctx, neo_place place, void *to,
                                    const void *from, size_t bytes, void *stream) {
    neo_device *d = neo__device_at(ctx, place);
    return d->move(d, to, from, bytes, stream);
}
NEO_API neo_status neo__device_combine(const neo_ctx *ctx, neo_place place,
                                       const neo__combine_call *call) {
    neo_device *d = neo__device_at(ctx, place);
    NEO__CHECK(
        call->count <= NEO__COMBINE_PIECES || d == &ctx->cpu, NEO_ERR_UNSUPPORTED,
        "a sum of %d subtrees of leaves on devices, which add up to %d (give fewer repro_shards)",
        call->count, (int)NEO__COMBINE_PIECES);
    return d->combine(d, call);
}
NEO_API neo_status neo__device_encode(const neo_ctx *ctx, neo_place place,
                                      const neo__wire_call *call) {
    neo_device *d = neo__device_at(ctx, place);
    return d->encode(d, call);
}
NEO_API neo_status neo__device_decode(const neo_ctx *ctx, neo_place place,
                                      const neo__wire_call *call) {
    neo_device *d = neo__device_at(ctx, place);
    return d->decode(d, call);
}
NEO_API neo_status neo__device_rows(neo_ctx *ctx, const neo__rows_call *call) {
    return ctx->on->rows(ctx->on, call);
}
NEO_API void *neo__event_make(neo_ctx *ctx) { return ctx->on->event_make(ctx->on); }
NEO_API void neo__event_free(neo_ctx *ctx, void *event) {
    if (event) ctx->on->event_free(ctx->on, event);
}
NEO_API neo_status neo__event_mark(neo_ctx *ctx, void *event) {
    return ctx->on->event_mark(ctx->on, event);
}
NEO_API neo_status neo__event_wait(neo_ctx *ctx, void *event) {
    return ctx->on->event_wait(ctx->on, event);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo__device_aside(neo_ctx *ctx, void *event) {
    return ctx->on->aside(ctx->on, event);
}
NEO_API neo_status neo__device_order(const neo_ctx *ctx, int what, void *event, int code) {
    return ctx->on->order(ctx->on, what, event, code);
}
NEO_API void *neo__device_passes(const neo_ctx *ctx, void **stop) {
    if (stop) *stop = ctx->on->stop;
    return ctx->on->passes;
}
NEO_API void *neo__device_heard(const neo_ctx *ctx, int rank) {
    return rank < ctx->on->hears ? ctx->on->heard + rank : NULL;
}
NEO_API void neo__device_watch(const neo_ctx *ctx, neo__lookout *watch, int on) {
    neo__lookout **at = &ctx->on->watch;
    while (__atomic_exchange_n(&ctx->on->watched, 1, __ATOMIC_ACQUIRE)) neo__thread_yield();
    while (!on && *at && *at != watch) at = &(*at)->next;
    if (on) watch->next = *at;
    if (on || *at) __atomic_store_n(at, on ? watch : watch->next, __ATOMIC_RELEASE);
    __atomic_store_n(&ctx->on->watched, 0, __ATOMIC_RELEASE);
}
NEO_API int neo__device_look(neo_device *device, int turn) {
    int gone = 0;
    if (!__atomic_exchange_n(&device->watched, 1, __ATOMIC_ACQUIRE)) {
        for (neo__lookout *watch = device->watch; watch; watch = watch->next)
            gone |= watch->look(watch, turn);
        __atomic_store_n(&device->watched, 0, __ATOMIC_RELEASE);
    }
    if (turn < 1000) neo__thread_yield();
    else neo__thread_sleep(20000);
    return gone;
}
#endif
NEO_API void neo__device_release(neo_device *device) {
    if (device && __atomic_sub_fetch(&device->users, 1, __ATOMIC_ACQ_REL) == 0)
        device->destroy(device);
}
NEO__INLINE neo_place neo__ctx_place(const neo_ctx *ctx) {
    return ctx && ctx->device ? NEO_DEVICE : NEO_HOST;
}
static neo_status neo__data_zero(neo_ctx *ctx, void *p, size_t bytes) {
    return bytes ? ctx->on->fill(ctx->on, p, 0, bytes) : NEO_OK;
}
/* A tier (neo_store.h), as the bags that lie in it see it. Tables of which it keeps lines have
   job.rows lines; the others are in memory as a whole.
   lines: of a table of desc; 0: all of it is in memory. bytes: what attach allocates.
   attach: before the first value; init: a table's. stage: bring the rows of the record's batch, or
   of all that is kept, whose ids are lines then. to_step: they will be changed. Rows stay until the
   next stage. rows: as f32, one of to and from is not NULL. block: the address that stands for
   weights, scales, states (NEO_FILE); move: bytes there. at: bytes of one row. cached: see
   neo__tier_cached. renew: another key has the row, or none; its line, or -1: it will come with its
   first values. From any thread, of one table from one. On a device lines lie in its memory, and
   job.kept.line_key has first_key + line of each kept slot, when these are staged. */
typedef struct neo__tier_ops {
    int64_t (*lines)(struct neo_tier *tier, const neo_ctx *ctx, const neo_bags_desc *desc,
                     int32_t table);
    neo_status (*bytes)(struct neo_tier *tier, const neo_ctx *ctx, const neo_bags_desc *desc,
                        const char *fn, size_t *bytes);
    neo_status (*attach)(struct neo_tier *tier, neo_bags *bags, const neo_bags_desc *desc,
                         const char *fn);
    void (*detach)(struct neo_tier *tier);
    void (*init)(struct neo_tier *tier, int32_t table, const neo_init *init);
    neo_status (*reserve)(struct neo_tier *tier, const struct neo__bag_sizes *sizes);
    neo_status (*stage)(struct neo_tier *tier, const char *fn, int of_kept, int to_step);
    neo_status (*rows)(struct neo_tier *tier, int32_t table, int64_t first, int64_t count,
                       float *to, const float *from);
    void *(*block)(struct neo_tier *tier, int32_t table, int block);
    neo_status (*move)(struct neo_tier *tier, uintptr_t at, char *to, const char *from,
                       size_t bytes);
    neo_status (*prefetch)(struct neo_tier *tier, const neo_jagged *batch, const char *fn);
    int64_t (*cached)(struct neo_tier *tier, const neo_bags_desc *desc, int32_t table,
                      int64_t *below_bytes);
    int64_t (*renew)(struct neo_tier *tier, int32_t table, int64_t row);
} neo__tier_ops;
struct neo_tier {
    const neo__tier_ops *ops;
    struct neo_tier *next;       /* of the context's */
    uintptr_t begin, end;        /* addresses that stand for its rows */
    neo_bags *bags;              /* or NULL */
    int64_t *line;               /* of each kept slot, when these are staged */
    neo__tier_budget budget;
};
static neo_status neo__tier_move(const neo_ctx *ctx, const void *at, void *to, const void *from,
                                 size_t bytes) {
    struct neo_tier *tier = ctx ? ctx->tiers : NULL;
    while (tier && ((uintptr_t)at < tier->begin || (uintptr_t)at >= tier->end)) tier = tier->next;
    NEO__CHECK(tier, NEO_ERR_STATE, "rows below memory whose neo_bags is gone");
    return tier->ops->move(tier, (uintptr_t)at, (char *)to, (const char *)from, bytes);
}
/* Between memory of a tensor and host memory; ctx may be NULL if both are the host's. */
static neo_status neo__data_read(neo_ctx *ctx, void *to, const void *from, neo_place place,
                                 size_t bytes) {
    if (place == NEO_DEVICE) return ctx->on->copy(ctx->on, to, NEO_HOST, from, place, bytes);
    if (place == NEO_FILE) return neo__tier_move(ctx, from, to, NULL, bytes);
    memcpy(to, from, bytes);
    return NEO_OK;
}
static NEO__UNUSED neo_status neo__data_write(neo_ctx *ctx, void *to, neo_place place,
                                              const void *from, size_t bytes) {
    if (place == NEO_DEVICE) return ctx->on->copy(ctx->on, to, place, from, NEO_HOST, bytes);
    if (place == NEO_FILE) return neo__tier_move(ctx, to, NULL, from, bytes);
    memcpy(to, from, bytes);
    return NEO_OK;
}
NEO_API neo__tier_budget *neo__tier_budget_of(neo_tier *tier) { return &tier->budget; }
NEO_API int64_t neo__tier_cached(const neo_bags_desc *desc, int32_t table, int64_t *below_bytes) {
    return desc->tier->ops->cached(desc->tier, desc, table, below_bytes);
}
NEO_API void neo__ctx_take_parts(neo_ctx *ctx, int groups) { ctx->sharing += groups; }
NEO_API void neo__device_counts(neo_ctx *ctx, int64_t *counter) {
    if (ctx->on->recording) ctx->on->counts(ctx->on, counter);
}
/* One step more, of an object whose step the device has been told to make. */
static void neo__count_step(neo_ctx *ctx, int64_t *steps) {
    neo__device_counts(ctx, steps);
    if (*steps < INT64_MAX) ++*steps;
}
/* Parameters and states of one context work on another only if both compute in the same place. */
static neo_status neo__check_device(const neo_ctx *ctx, const neo_ctx *other, const char *function,
                                    const char *name) {
    NEO__CHECK(ctx->device == other->device, NEO_ERR_ARG,
               "%s: %s of a context that computes elsewhere (%s, here %s)", function, name,
               other->on->name, ctx->on->name);
    return NEO_OK;
}
/* A tensor with data is where the context computes. */
static neo_status neo__check_place(const neo_ctx *ctx, neo_tensor t, const char *function,
                                   const char *name) {
    if (!t.data || t.place == neo__ctx_place(ctx)) return NEO_OK;
    if (ctx && ctx->device)
        return neo_fail(
            NEO_ERR_ARG,
            "%s: %s is in host memory, but the context computes on %s: neo_tensor_alloc "
            "makes tensors there, neo_tensor_copy takes data there",
            function, name, ctx->on->name);
    return neo_fail(NEO_ERR_ARG, "%s: %s is in a device's memory, but the context has no device",
                    function, name);
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
/* Before a copy to the device: what the calls so far have shown it. */
static void neo__device_advises(neo_ctx *ctx) {
    if (!ctx->on->advice || ctx->advised) return;
    ctx->advised = 1;
    neo_log(ctx, NEO_LOG_WARNING, "%s: %s", ctx->on->name, ctx->on->advice);
}
NEO__HOT_BEGIN

/* ---- the pool ---- */
/* ns of the shortest list of tasks that others join: to meet them takes up to 0.5 us. */
#ifndef NEO__WORK_SHARED
#define NEO__WORK_SHARED 4000
#endif
enum {
    NEO__GATE_OPEN = 1,      /* workers may join the job */
    NEO__GATE_SLEEPS = 2,    /* the caller does, until all have left */
    NEO__GATE_WORKER = 4,    /* for each worker inside */
    NEO__CORE_SHARED = -2,   /* a worker inside has joined on the caller's core */
    NEO__SPINS = 4000,       /* looks before parking: 100 us, more than the gap of two kernels */
    NEO__SPINS_YIELD = 20,   /* looks that take as long as giving up the core */
    NEO__WORK_GRAIN = 4000,  /* ns of a task, about, of work that is cut by a grain */
    NEO__WORK_WAKES = 25000, /* ns for each thread, if one is woken, which takes 40 us to come */
    NEO__WORK_OWED = 200000  /* ns of shorter lists, for which one is: it then stays awake */
};

/* Between two looks at what another thread does: the next one's number. Who is waited for may wait
   for this core. */
static int neo__pool_look(int looks, int crowded) {
    if (crowded) neo__thread_yield();
    else neo__cpu_pause();
    return looks + (crowded ? NEO__SPINS_YIELD : 1);
}
/* Whether this worker is on the caller's core, or another that has told so. */
static int neo__pool_is_crowded(const neo__pool *pool) {
    const int core = __atomic_load_n(&pool->core, __ATOMIC_RELAXED);
    return core == NEO__CORE_SHARED || (core >= 0 && core == neo__core_now());
}
static void neo__pool_take(neo__pool *pool, int worker) {
    neo__fp_state fp = neo__fp_enter();
    for (;;) {
        int64_t i = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (i >= pool->count) break;
        pool->task(pool->arg, i, worker);
    }
    neo__fp_leave(fp);
}

/* The job after number `seen`; -1: there will be none. A worker that parks counts itself, then
   looks once more; a caller publishes, then looks for such: one of them sees the other. */
static int64_t neo__pool_wait(neo__pool *pool, int64_t seen) {
    int64_t now = seen;
    for (int i = 0; i < NEO__SPINS; i = neo__pool_look(i, neo__pool_is_crowded(pool))) {
        now = __atomic_load_n(&pool->generation, __ATOMIC_ACQUIRE);
        if (now != seen) return now;
    }
    neo__mutex_lock(&pool->lock);
    __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    while ((now = __atomic_load_n(&pool->generation, __ATOMIC_SEQ_CST)) == seen && !pool->quit)
        neo__cond_wait(&pool->wake, &pool->lock);
    __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    if (pool->quit) now = -1;
    neo__mutex_unlock(&pool->lock);
    return now;
}
static void neo__worker_main(void *arg) {
    neo__worker *self = (neo__worker *)arg;
    neo__pool *pool = self->pool;
    int64_t seen = 0;
    while ((seen = neo__pool_wait(pool, seen)) >= 0) {
        int gate = __atomic_fetch_add(&pool->gate, NEO__GATE_WORKER, __ATOMIC_ACQ_REL);
        if (gate & NEO__GATE_OPEN) {
            if (neo__pool_is_crowded(pool))
                __atomic_store_n(&pool->core, (int)NEO__CORE_SHARED, __ATOMIC_RELAXED);
            neo__pool_take(pool, self->index);
        }
        gate = __atomic_fetch_sub(&pool->gate, NEO__GATE_WORKER, __ATOMIC_ACQ_REL);
        if (gate != (NEO__GATE_WORKER | NEO__GATE_SLEEPS)) continue;
        neo__mutex_lock(&pool->lock);
        neo__cond_signal(&pool->done);
        neo__mutex_unlock(&pool->lock);
    }
}

/* The job is closed: wait until all workers have left it. */
static void neo__pool_meet(neo__pool *pool) {
    for (int i = 0; i < NEO__SPINS;) {
        if (__atomic_load_n(&pool->gate, __ATOMIC_ACQUIRE) == 0) return;
        i = neo__pool_look(i, __atomic_load_n(&pool->core, __ATOMIC_RELAXED) == NEO__CORE_SHARED);
    }
    neo__mutex_lock(&pool->lock);
    __atomic_fetch_or(&pool->gate, NEO__GATE_SLEEPS, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&pool->gate, __ATOMIC_ACQUIRE) != NEO__GATE_SLEEPS)
        neo__cond_wait(&pool->done, &pool->lock);
    __atomic_fetch_and(&pool->gate, ~NEO__GATE_SLEEPS, __ATOMIC_ACQ_REL);
    neo__mutex_unlock(&pool->lock);
}
/* Workers that wait awake join; others are woken, where there are `ns` of work for them. */
static void neo__pool_run(neo__pool *pool, int64_t count, neo_task_fn task, void *arg,
                          int64_t ns) {
    pool->task = task;
    pool->arg = arg;
    pool->count = count;
    __atomic_store_n(&pool->core, neo__core_now(), __ATOMIC_RELAXED);
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    __atomic_fetch_or(&pool->gate, NEO__GATE_OPEN, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&pool->generation, 1, __ATOMIC_SEQ_CST);
    const int sleepers = __atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST);
    int64_t wakes = NEO__MIN(count, ns / NEO__WORK_WAKES) - 1 - (pool->worker_count - sleepers);
    pool->owed = sleepers ? pool->owed + NEO__MIN(ns, (int64_t)NEO__WORK_OWED) : 0;
    if (pool->owed >= NEO__WORK_OWED) wakes = NEO__MAX(wakes, (int64_t)1);
    wakes = NEO__MIN(wakes, (int64_t)sleepers);
    if (wakes > 0) { /* one that has counted itself, under the lock, waits by now */
        pool->owed = 0;
        neo__mutex_lock(&pool->lock);
        neo__mutex_unlock(&pool->lock);
        for (; wakes > 0; wakes--) neo__cond_signal(&pool->wake);
    }
    neo__pool_take(pool, 0);
    if (__atomic_and_fetch(&pool->gate, ~NEO__GATE_OPEN, __ATOMIC_ACQ_REL) != 0)
        neo__pool_meet(pool);
}

NEO__HOT_END
static void neo__pool_stop(neo__pool *pool, int started) {
    neo__mutex_lock(&pool->lock);
    pool->quit = 1;
    neo__cond_broadcast(&pool->wake);
    neo__mutex_unlock(&pool->lock);
    for (int i = 0; i < started; i++) neo__thread_join(&pool->workers[i].thread);
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
        if (!neo__thread_create(&workers[i].thread, neo__worker_main, &workers[i])) {
            neo__pool_stop(pool, i);
            return neo_fail(NEO_ERR_SYSTEM, "neo_ctx_create: cannot start thread %d of %d", i + 2,
                             worker_count + 1);
        }
    }
    return NEO_OK;
}
NEO__HOT_BEGIN

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

/* Whether a list of tasks that take one thread about `ns` goes to the others too. */
NEO__INLINE int neo__work_is_shared(const neo_ctx *ctx, int64_t ns) {
    return ctx->threads > 1 && ns >= NEO__WORK_SHARED;
}
NEO_API void neo__run_tasks(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg, int64_t ns) {
    if (count <= 0) return;
    if (count == 1 || !neo__work_is_shared(ctx, ns)) {
        neo__fp_state fp = neo__fp_enter();
        for (int64_t i = 0; i < count; i++) task(arg, i, 0);
        neo__fp_leave(fp);
    } else if (ctx->executor.run) {
        neo__guarded_task g = {task, arg};
        ctx->executor.run(count, neo__run_guarded, &g, ctx->executor.user);
    } else {
        neo__pool_run(&ctx->pool, count, task, arg, ns);
    }
}
NEO_API void neo_parallel_for(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg) {
    neo__run_tasks(ctx, count, task, arg, INT64_MAX);
}

/* Tasks of equal pieces of [0, count): about four per worker, each at least `grain` long; as many
   for each worker, where there are more than workers. */
NEO__INLINE int64_t neo__task_count(const neo_ctx *ctx, int64_t count, int64_t grain) {
    const int64_t threads = ctx->threads, tasks = grain > 0 ? count / grain : count;
    const int64_t each = threads == 1 ? 1 : NEO__MIN(tasks / threads, (int64_t)4);
    return each > 0 ? each * threads : NEO__MAX(tasks, (int64_t)1);
}
/* The piece [begin, end) of task i, cut at multiples of `unit`. */
NEO__INLINE void neo__task_range(int64_t count, int64_t tasks, int64_t i, int64_t unit,
                                 int64_t *begin, int64_t *end) {
    int64_t units = (count + unit - 1) / unit;
    *begin = NEO__MIN(units * i / tasks * unit, count);
    *end = NEO__MIN(units * (i + 1) / tasks * unit, count);
}

/* An operation of the CPU over `count` pieces (rows, elements): a record, cut into tasks. */
typedef struct neo__cpu_part { /* a task: pieces [begin, end) */
    neo_ctx *ctx;
    const void *call; /* the operation's record, neo__x_call */
    int64_t begin, end;
    int worker;
} neo__cpu_part;
typedef struct neo__cpu_job {
    neo_ctx *ctx;
    const void *call;
    int64_t count, tasks, unit;
    void (*work)(const neo__cpu_part *part);
} neo__cpu_job;
static void neo__cpu_task(void *arg, int64_t index, int worker) {
    const neo__cpu_job *job = (const neo__cpu_job *)arg;
    neo__cpu_part part = {job->ctx, job->call, 0, 0, worker};
    neo__task_range(job->count, job->tasks, index, job->unit, &part.begin, &part.end);
    job->work(&part);
}
/* work(part) over all pieces; a task has at least `grain` of them, which take NEO__WORK_GRAIN ns or
   so, cut at multiples of `unit`. Returns NEO_OK, for operations that end with it. */
static neo_status neo__cpu_run(neo_device *d, const void *call, int64_t count, int64_t grain,
                               int64_t unit, void (*work)(const neo__cpu_part *part)) {
    neo_ctx *ctx = neo__cpu_ctx(d);
    neo__cpu_job job = {ctx, call, count, neo__task_count(ctx, count, grain), unit, work};
    const int64_t ns = NEO__WORK_GRAIN * (grain > 0 ? count / grain : count);
    if (count > 0) neo__run_tasks(ctx, job.tasks, neo__cpu_task, &job, ns);
    return NEO_OK;
}

/* ---- instruction sets ---- */
NEO__HOT_END
NEO_API const char *neo_isa_name(neo_isa isa) {
    switch (isa) {
    case NEO_ISA_BEST: return "best";
    case NEO_ISA_SCALAR: return "scalar";
    case NEO_ISA_AVX2: return "avx2";
    case NEO_ISA_AVX512: return "avx512";
    case NEO_ISA_NEON: return "neon";
    case NEO_ISA_AVX512BF16: return "avx512bf16";
    case NEO_ISA_AMX: return "amx";
    }
    return "unknown";
}
NEO_API neo_status neo_isa_parse(const char *name, neo_isa *isa) {
    NEO__CHECK(isa, NEO_ERR_ARG, "neo_isa_parse: isa is NULL");
    for (int i = NEO_ISA_BEST; i <= NEO_ISA_AMX; i++) {
        if (name && strcmp(name, neo_isa_name((neo_isa)i)) == 0) {
            *isa = (neo_isa)i;
            return NEO_OK;
        }
    }
    return neo_fail(
        NEO_ERR_ARG,
        "neo_isa_parse: '%s' is none of best, scalar, avx2, avx512, neon, avx512bf16, amx",
        name ? name : "(null)");
}
#if defined(NEO__X86_BF16)
/* The processor has AMX's tiles and their bf16 products (CPUID 7), the system keeps their state
   (XCR0), and Linux, which grants that state of 8 KiB a thread only to processes that ask for it,
   grants it. A system call of its own: libc's header is hidden under -std=c11. */
static int neo__amx_available(void) {
#if defined(__linux__) && !defined(__ILP32__)
    unsigned a, b, c, d, xcr0, high;
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* OSXSAVE */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return 0;
    __asm__ __volatile__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    if ((xcr0 >> 17 & 3) != 3) return 0;
    int64_t result = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
    __asm__ __volatile__("syscall"
                         : "+a"(result)
                         : "D"((int64_t)0x1023), "S"((int64_t)18)
                         : "rcx", "r11", "memory");
    return result == 0;
#else
    return 0;
#endif
}
#endif
NEO_API int neo_isa_available(neo_isa isa) {
    switch (isa) {
    case NEO_ISA_BEST:
    case NEO_ISA_SCALAR: return 1;
#if defined(NEO__X86)
    case NEO_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* and F16C, BMI */
    case NEO_ISA_AVX512:
        return neo_isa_available(NEO_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#if defined(NEO__X86_BF16)
    case NEO_ISA_AVX512BF16:
        return neo_isa_available(NEO_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
    case NEO_ISA_AMX: return neo_isa_available(NEO_ISA_AVX512) && neo__amx_available();
#else
    case NEO_ISA_AVX512BF16:
    case NEO_ISA_AMX:
#endif
    case NEO_ISA_NEON: return 0;
#elif defined(NEO__ARM)
    case NEO_ISA_NEON: return 1;
    case NEO_ISA_AVX2:
    case NEO_ISA_AVX512:
    case NEO_ISA_AVX512BF16:
    case NEO_ISA_AMX: return 0;
#else
    case NEO_ISA_AVX2:
    case NEO_ISA_AVX512:
    case NEO_ISA_NEON:
    case NEO_ISA_AVX512BF16:
    case NEO_ISA_AMX: return 0;
#endif
    }
    return 0;
}
static neo_isa neo__isa_best(void) {
    for (int i = NEO_ISA_AMX; i > NEO_ISA_SCALAR; i--)
        if (neo_isa_available((neo_isa)i)) return (neo_isa)i;
    return NEO_ISA_SCALAR;
}
static void neo__isa_bind(neo_ctx *ctx);        /* sets the kernel tables; see >>isa */
static void neo__cpu_device_init(neo_ctx *ctx); /* fills ctx->cpu; see >>impl-cpu */

/* ---- create, destroy ---- */
/* Plain C on a machine that has vectors is many times slower, and easily a variable or a flag that
   was left. */
static void neo__isa_warn(neo_ctx *ctx, int asked) {
    const char *better = NULL;
#if defined(__x86_64__) || defined(__i386__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) better = "AVX2";
#elif defined(__aarch64__)
    better = "NEON";
#endif
    if (ctx->isa != NEO_ISA_SCALAR || !better) return;
    neo_log(ctx, NEO_LOG_WARNING,
            "neo_ctx_create: computes without vector instructions, which this machine has (%s): %s",
            better,
            asked ? "neo_ctx_desc.isa says so"
                  : "neo was compiled without them (NEO_NO_SIMD, or for another target)");
}
/* A table of another version may lack what calls will need. */
static neo_status neo__device_check(const neo_device *device) {
    if (!device) return NEO_OK;
    NEO__CHECK(device->bytes == sizeof *device && device->version == NEO__DEVICE_VERSION,
               NEO_ERR_MISMATCH,
               "neo_ctx_create: the device is of version %u, this neo.h of version %d: they must "
               "come from "
               "one copy of neo",
               (unsigned)device->version, NEO__DEVICE_VERSION);
    const char *const first = (const char *)device + offsetof(neo_device, alloc);
    for (const char *at = first; at < (const char *)(device + 1); at += sizeof(void (*)(void))) {
        void (*operation)(void);
        memcpy(&operation, at, sizeof operation);
        NEO__CHECK(operation, NEO_ERR_UNSUPPORTED, "neo_ctx_create: device %s lacks operation %d",
                   device->name, (int)((at - first) / (ptrdiff_t)sizeof operation));
    }
    return NEO_OK;
}
NEO_API int neo__default_shards(int given, int has_device, int ranks) {
    if (given > 0) return given;
    const int least = given < 0 ? -given : has_device ? NEO_DEVICE_SHARDS : 1;
    return NEO__MAX(least, ranks);
}
static neo_status neo__ctx_check(const neo_ctx_desc *desc) {
    NEO__CHECK(desc->threads >= 0 && desc->threads <= NEO__MAX_THREADS, NEO_ERR_ARG,
               "neo_ctx_create: threads is %d, not in 0 (all cores) .. %d", desc->threads,
               NEO__MAX_THREADS);
    NEO__CHECK(desc->repro_shards >= -4096 && desc->repro_shards <= 4096, NEO_ERR_ARG,
               "neo_ctx_create: repro_shards is %d, not in -4096 .. 4096", desc->repro_shards);
    NEO__CHECK(!desc->allocator.alloc == !desc->allocator.free, NEO_ERR_ARG,
               "neo_ctx_create: allocator needs both alloc and free");
    NEO__CHECK(!desc->executor.run || desc->threads > 0, NEO_ERR_ARG,
               "neo_ctx_create: an executor needs threads, the number of its workers");
    NEO__CHECK(neo_isa_available(desc->isa), NEO_ERR_UNSUPPORTED,
               "neo_ctx_create: this machine cannot run the %s path", neo_isa_name(desc->isa));
    NEO__TRY(neo__device_check(desc->device));
    neo__fp_state fp = neo__fp_enter();
    const char *broken = neo__fp_self_check();
    neo__fp_leave(fp);
    NEO__CHECK(!broken, NEO_ERR_NUMERIC, "neo_ctx_create: the compiler changed arithmetic: %s",
               broken);
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
    ctx->threads = d.threads ? d.threads : neo__core_share(neo__core_count(), 1);
    ctx->isa = d.isa == NEO_ISA_BEST ? neo__isa_best() : d.isa;
    ctx->repro_shards = neo__default_shards(d.repro_shards, d.device != NULL, 1);
    ctx->seed = d.seed;
    neo__cpu_device_init(ctx);
    ctx->device = d.device;
    ctx->check_finite = d.check_finite != 0;
    if (d.device) d.device->checked = ctx->check_finite;
    ctx->on = d.device ? d.device : &ctx->cpu;
    ctx->live_end = &ctx->live;
    ctx->bytes = ctx->peak_bytes = sizeof *ctx;
    ctx->alloc_count = 1;
    neo__isa_bind(ctx);

    ctx->scratch_bytes =
        (size_t)ctx->threads * NEO__WORKER_SCRATCH_BYTES + NEO__SHARED_SCRATCH_BYTES;
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
    if (ctx->device) __atomic_fetch_add(&ctx->device->users, 1, __ATOMIC_RELAXED);
    neo__isa_warn(ctx, d.isa == NEO_ISA_SCALAR);
    *out = ctx;
    return NEO_OK;
}

static size_t neo__workers_bytes(const neo_ctx *ctx) {
    return (size_t)(ctx->threads - 1) * sizeof(neo__worker);
}
static void neo__ctx_free(neo_ctx *ctx) {
    neo_allocator allocator = ctx->allocator;
    neo_device *device = ctx->device;
    ctx->bytes = SIZE_MAX / 2; /* so that the next lines do not come to 0 */
    neo__pool_stop(&ctx->pool, ctx->pool.worker_count);
    neo_free(ctx, ctx->pool.workers, neo__workers_bytes(ctx));
    neo_free(ctx, ctx->scratch, ctx->scratch_bytes);
    allocator.free(ctx, sizeof *ctx, allocator.user);
    neo__device_release(device);
}

/* ---- objects that live ---- */
NEO_API void neo__live_begin(neo_ctx *ctx, neo__live *live, const char *kind, const char *name) {
    memset(live, 0, sizeof *live);
    if (ctx->inside) return;
    live->kind = kind;
    snprintf(live->name, sizeof live->name, "%s", name ? name : "");
    neo__mutex_lock(&ctx->pool.lock);
    live->link = ctx->live_end;
    *ctx->live_end = live;
    ctx->live_end = &live->next;
    neo__mutex_unlock(&ctx->pool.lock);
}
NEO_API void neo__live_end(neo_ctx *ctx, neo__live *live) {
    if (!live->link) return;
    neo__mutex_lock(&ctx->pool.lock);
    *live->link = live->next;
    *(live->next ? &live->next->link : &ctx->live_end) = live->link;
    live->link = NULL;
    neo__mutex_unlock(&ctx->pool.lock);
}
NEO_API void neo__live_inside(neo_ctx *ctx, int change) { ctx->inside += change; }
NEO_API void neo__ctx_hush(neo_ctx *ctx) { ctx->logger.log = NULL; }
/* More words behind `used` bytes of text; the length that all of them would have. */
static size_t neo__live_add(char *text, size_t bytes, size_t used, const char *format, ...)
    NEO__PRINTF(4, 5);
static size_t neo__live_add(char *text, size_t bytes, size_t used, const char *format, ...) {
    const size_t at = NEO__MIN(used, bytes);
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text ? text + at : NULL, bytes - at, format, args);
    va_end(args);
    return used + (size_t)NEO__MAX(n, 0);
}
/* All objects of the kind of `first`: the number of them, and their names. */
static size_t neo__live_kind(const neo__live *first, char *text, size_t bytes, size_t used) {
    int count = 0, names = 0;
    for (const neo__live *at = first; at; at = at->next)
        count += strcmp(at->kind, first->kind) == 0;
    used = neo__live_add(text, bytes, used, "%s%d %s", used ? ", " : "", count, first->kind);
    for (const neo__live *at = first; at; at = at->next)
        if (at->name[0] && strcmp(at->kind, first->kind) == 0)
            used = neo__live_add(text, bytes, used, "%s'%s'", names++ ? ", " : " (", at->name);
    return names ? neo__live_add(text, bytes, used, ")") : used;
}
NEO_API int64_t neo_ctx_live(neo_ctx *ctx, char *text, size_t bytes) {
    const int64_t tensors = __atomic_load_n(&ctx->tensors, __ATOMIC_RELAXED);
    int64_t count = tensors;
    size_t used = 0;
    if (!text) bytes = 0;
    if (bytes) text[0] = 0;
    neo__mutex_lock(&ctx->pool.lock);
    for (const neo__live *at = ctx->live; at; at = at->next) {
        const neo__live *same = ctx->live; /* the first of its kind */
        while (strcmp(same->kind, at->kind) != 0) same = same->next;
        if (same == at) used = neo__live_kind(at, text, bytes, used);
        count++;
    }
    neo__mutex_unlock(&ctx->pool.lock);
    if (tensors)
        (void)neo__live_add(text, bytes, used, "%s%" PRId64 " tensor%s", used ? ", " : "", tensors,
                            tensors == 1 ? "" : "s");
    return count;
}
NEO_API void neo_ctx_destroy(neo_ctx *ctx) {
    if (!ctx || neo__ctx_destroyed(ctx)) return;
    char text[NEO__ERROR_BYTES / 2];
    size_t own = sizeof *ctx;
    if (ctx->pool.workers) own += NEO__MAX(neo__workers_bytes(ctx), (size_t)1);
    if (ctx->scratch) own += ctx->scratch_bytes;
    size_t left = __atomic_load_n(&ctx->bytes, __ATOMIC_RELAXED) - own;
    if (left > 0) {
        const int64_t count = neo_ctx_live(ctx, text, sizeof text);
        neo_log(ctx, NEO_LOG_WARNING,
                "neo_ctx_destroy: not destroyed yet: %s (%zu bytes): the context stays until they "
                "are", count ? text : "memory of neo_alloc", left);
    }
    __atomic_store_n(&ctx->destroyed, 1, __ATOMIC_RELAXED);
    if (__atomic_sub_fetch(&ctx->bytes, own, __ATOMIC_ACQ_REL) == 0) neo__ctx_free(ctx);
}

NEO_API int neo_ctx_threads(const neo_ctx *ctx) { return ctx->threads; }
NEO_API int64_t neo_ctx_time_ns(const neo_ctx *ctx) {
    return ctx->executor.time_ns ? ctx->executor.time_ns(ctx->executor.user) : neo_time_ns();
}
NEO_API neo_isa neo_ctx_isa(const neo_ctx *ctx) { return ctx->isa; }
NEO_API int neo_ctx_repro_shards(const neo_ctx *ctx) { return ctx->repro_shards; }
NEO_API uint64_t neo_ctx_seed(const neo_ctx *ctx) { return ctx->seed; }
NEO_API neo_device *neo_ctx_device(const neo_ctx *ctx) { return ctx->device; }
NEO_API neo_status neo_ctx_synchronize(neo_ctx *ctx) {
    return ctx->on->synchronize(ctx->on);
}
NEO_API neo_memory neo_ctx_memory(const neo_ctx *ctx) {
    neo_memory m;
    m.bytes = __atomic_load_n(&ctx->bytes, __ATOMIC_RELAXED);
    m.device_bytes = __atomic_load_n(&ctx->device_bytes, __ATOMIC_RELAXED);
    m.peak_bytes = __atomic_load_n(&ctx->peak_bytes, __ATOMIC_RELAXED);
    m.alloc_count = __atomic_load_n(&ctx->alloc_count, __ATOMIC_RELAXED);
    return m;
}
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-leaves

   The tree over n leaves, n > 1, has the first p leaves on the left and the rest on the right, p
   the largest power of two below n. Walking the leaves in order, that tree is a binary counter: a
   stack of subtree sums of falling sizes; pushing a leaf merges equal sizes, and at the end the
   stack merges from the top down. So log2(V) + 1 buffers are enough.
   ------------------------------------------------------------------------ */
NEO_API int64_t neo_leaf_begin(int64_t batch, int shards, int leaf) {
    return shards < 1 ? 0 : neo__leaf_begin(batch, shards, leaf);
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
/* The leaves of a call: those of `leaves`, or all of a batch of `rows`. Checks that they hold
   `rows` samples and are a whole subtree. */
static neo_status neo__leaves_resolve(const neo_ctx *ctx, const neo_leaves *leaves, int64_t rows,
                                      neo__leaf_cut *out, const char *function) {
    const int shards = out->shards = ctx->repro_shards;
    if (!leaves) {
        NEO__CHECK(
            ctx->sharing == 0, NEO_ERR_ARG,
            "%s: leaves is NULL, which means that the %" PRId64
            " rows are the whole batch, but ranks share it: give the leaves of neo_fsdp_piece",
            function, rows);
        out->batch = rows;
        out->first = 0;
        out->count = shards;
        out->rows_per_sample = 1;
        return NEO_OK;
    }
    out->batch = leaves->batch;
    out->first = leaves->first;
    out->count = leaves->count;
    out->rows_per_sample = leaves->rows_per_sample ? leaves->rows_per_sample : 1;
    NEO__CHECK(out->rows_per_sample > 0, NEO_ERR_ARG,
               "%s: rows_per_sample of the leaves is %" PRId64, function, out->rows_per_sample);
    NEO__CHECK(out->batch >= 0 && out->first >= 0 && out->count >= 0 &&
                   out->first <= shards - out->count,
               NEO_ERR_ARG, "%s: %d leaves from %d are not within the %d of the context", function,
               out->count, out->first, shards);
    NEO__TRY(neo__leaves_check_tree(leaves, shards, function));
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
/* Rows [begin, end) of leaf i (0 .. count - 1), among the caller's rows. */
NEO__INLINE void neo__leaf_rows(const neo__leaf_cut *leaves, int i, int64_t *begin, int64_t *end) {
    *begin = neo__leaf_row(leaves, i);
    *end = neo__leaf_row(leaves, i + 1);
}

/* ---------------------------------------------------------------------------
   >>isa

   neo_kernels.h is read once per instruction set, with NEO__PASS set to it.
   ------------------------------------------------------------------------ */
/* Where there are vectors the scalar kernels are the reference, and all but never run: they are
   compiled with little optimization, but not without any, because tests run them. */
#if defined(NEO__COLD) && (defined(NEO__X86) || defined(NEO__ARM)) && defined(__clang__)
#define NEO__SPARE_BEGIN                                                                           \
    _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#define NEO__SPARE_END _Pragma("clang attribute pop")
#elif defined(NEO__COLD) && defined(NEO_INFERENCE) && (defined(NEO__X86) || defined(NEO__ARM))
#define NEO__SPARE_BEGIN NEO__COLD_BEGIN
#define NEO__SPARE_END NEO__COLD_END
#elif defined(NEO__COLD) && (defined(NEO__X86) || defined(NEO__ARM))
#define NEO__SPARE_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Og\")")
#define NEO__SPARE_END _Pragma("GCC pop_options")
#else
#define NEO__SPARE_BEGIN
#define NEO__SPARE_END
#endif

NEO__HOT_END
NEO__COLD_END
NEO__CALLS_END
#define NEO__PASS NEO__PASS_SCALAR
NEO__SPARE_BEGIN
#include "neo_kernels.h"
NEO__SPARE_END
#undef NEO__PASS
#if defined(NEO__X86)
#define NEO__PASS NEO__PASS_AVX2
NEO__SMALL_BEGIN
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
#include "neo_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef NEO__PASS
#define NEO__PASS NEO__PASS_AVX512
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))),                   \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#pragma GCC diagnostic push /* gcc 12's avx512 headers warn of themselves as C++, and at -O0 */
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "neo_kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
NEO__SMALL_END
#undef NEO__PASS
#elif defined(NEO__ARM)
#define NEO__PASS NEO__PASS_NEON
NEO__SMALL_BEGIN
#include "neo_kernels.h"
NEO__SMALL_END
#undef NEO__PASS
#endif
NEO__CALLS_BEGIN
NEO__COLD_BEGIN
NEO__HOT_BEGIN

#define NEO__BIND(isa)                                                                             \
    do {                                                                                           \
        ctx->gemm = &neo__gemm_kernels_##isa;                                                      \
        ctx->vec = &neo__vec_kernels_##isa;                                                        \
        ctx->bag = &neo__bag_kernels_##isa;                                                        \
        ctx->tensor = &neo__tensor_kernels_##isa;                                                  \
        ctx->wire = &neo__wire_kernels_##isa;                                                      \
    } while (0)
static void neo__isa_bind(neo_ctx *ctx) {
    switch (ctx->isa) {
#if defined(NEO__X86)
    case NEO_ISA_AVX2: NEO__BIND(avx2); break;
    case NEO_ISA_AVX512:
    case NEO_ISA_AVX512BF16:
    case NEO_ISA_AMX:
#if defined(NEO_INFERENCE) /* only products gain enough to have them twice */
        NEO__BIND(avx2);
        ctx->gemm = &neo__gemm_kernels_avx512;
#else
        NEO__BIND(avx512);
#endif
#if defined(NEO__X86_BF16)
        if (ctx->isa == NEO_ISA_AVX512BF16) ctx->bf16 = &neo__bf16_kernels_avx512;
        if (ctx->isa == NEO_ISA_AMX) ctx->bf16 = &neo__bf16_kernels_amx;
#endif
        break;
#elif defined(NEO__ARM)
    case NEO_ISA_NEON: NEO__BIND(neon); break;
#endif
    default: NEO__BIND(scalar); break;
    }
}

/* ---------------------------------------------------------------------------
   >>impl-math

   Double-precision functions with the same bits everywhere, for schedules, bias corrections and
   metrics: plain sums and products, no libm. (The f32 functions of kernels are at >>kernels-math;
   here the scalar pass's can be called, as neo__vexp_scalar.) Largest relative errors measured, in
   units of 2^-53: log 1.4, exp 1.3, pow 2.5 (1 + |y log x|); cos 1.5, absolute.
   ------------------------------------------------------------------------ */
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

/* e^x for |x| < 700, within 2e-15: 2^n by its bits, e^r by its series for |r| <= ln(2)/2. */
static double neo__exp_near(double x) {
    double scaled = x * 0x1.71547652b82fep+0;
    int64_t count = (int64_t)(scaled + (scaled < 0.0 ? -0.5 : 0.5));
    double r = (x - (double)count * NEO__LN2_HIGH) - (double)count * NEO__LN2_LOW,
           p = 1.0 / 6227020800.0;
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
    return (p * r + 1.0) * neo__f64_bits((uint64_t)(count + 1023) << 52);
}
enum { NEO__LOG_TABLE = 4097 };
/* Logarithms by a table of log n, n < NEO__LOG_TABLE: x = m 2^k (1 + r) with m in [2048, 4096) and
   0 <= r < 2^-11. Within 1e-15 (relative to 1 + |log x|), and several times faster than
   neo__log_f64. */
NEO__UNUSED static double neo__log_near(const double *table, double m, int whole, int k) {
    double base = (double)whole, r = (m - base) / base;
    double tail = r * (1.0 - r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * 0.2))));
    return (table[whole] + (double)k * NEO__LN2_HIGH) + (tail + (double)k * NEO__LN2_LOW);
}
/* log x for a normal x > 0. */
NEO__UNUSED static double neo__log_positive(const double *table, double x) {
    uint64_t bits = neo__bits_f64(x);
    int k = (int)(bits >> 52) - 1023 - 11;
    double m = neo__f64_bits((bits & 0x000FFFFFFFFFFFFFu) | (uint64_t)(1023 + 11) << 52);
    return neo__log_near(table, m, (int)m, k);
}
/* ---------------------------------------------------------------------------
   >>impl-tensor

   Elementwise work walks a tensor in row-major order as runs: stretches along the last dimension
   of at most NEO__RUN elements. Two contiguous tensors are walked as one dimension. Every run is
   packed into a small buffer where its stride is not 1, so that the inner loops see contiguous
   data only.
   ------------------------------------------------------------------------ */
enum {
    NEO__RUN = 256,
    NEO__ELEMENT_GRAIN = 1 << 15
};

static const struct neo__dtype {
    const char *name;
    size_t size;
} neo__dtypes[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f8e4m3", 1}, {"f8e5m2", 1},
                   {"i8", 1},  {"i32", 4}, {"i64", 8},  {"u8", 1}};
NEO__STATIC_ASSERT(sizeof neo__dtypes / sizeof *neo__dtypes == NEO_DTYPE_COUNT, "every dtype");
NEO_API size_t neo_dtype_size(neo_dtype dtype) {
    if (dtype == NEO_F64) return sizeof(double);
    return (unsigned)dtype < (unsigned)NEO_DTYPE_COUNT ? neo__dtypes[dtype].size : 0;
}
NEO_API const char *neo_dtype_name(neo_dtype dtype) {
    if (dtype == NEO_F64) return "f64";
    return (unsigned)dtype < (unsigned)NEO_DTYPE_COUNT ? neo__dtypes[dtype].name : "unknown";
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
        first > t.shape[dim] || count > t.shape[dim] - first) {
        neo_tensor none = neo_tensor_none();
        if (neo__given(t)) none.absent = "for neo_tensor_slice was asked for more than there is";
        return none;
    }
    if (t.data) t.data = (char *)t.data + first * t.stride[dim] * (int64_t)neo_dtype_size(t.dtype);
    t.shape[dim] = count;
    return t;
}
NEO_API neo_tensor neo_tensor_rows(neo_tensor t, int64_t first, int64_t count) {
    neo_tensor rows = neo_tensor_slice(t, 0, first, count);
    if (neo__given(t) && rows.ndim == 0)
        rows.absent = "for neo_tensor_rows was asked for rows outside of a tensor";
    return rows;
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
    r.place = t.place;
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
        stride = (int64_t)((uint64_t)stride * (uint64_t)t.shape[d]);
    }
    return 1;
}

NEO_API neo_status neo_tensor_alloc(neo_ctx *ctx, neo_dtype dtype, int ndim, const int64_t *shape,
                                    neo_tensor *tensor) {
    NEO__CHECK(tensor, NEO_ERR_ARG, "neo_tensor_alloc: t is NULL");
    *tensor = neo_tensor_none();
    NEO__TRY(neo__check_ctx("neo_tensor_alloc", ctx));
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
    void *data = neo__data_alloc(ctx, bytes);
    NEO__CHECK(data, NEO_ERR_MEMORY, "neo_tensor_alloc: no memory for %zu bytes", bytes);
    *tensor = neo_tensor_nd(data, dtype, ndim, shape);
    tensor->place = neo__ctx_place(ctx);
    if (!ctx->inside) __atomic_fetch_add(&ctx->tensors, 1, __ATOMIC_RELAXED);
    return NEO_OK;
}
NEO_API void neo_tensor_free(neo_ctx *ctx, neo_tensor *t) {
    if (!t) return;
    neo_device *d = neo__device_at(ctx, t->place);
    /* a device's tensor of another context is not this one's to free */
    if (t->data && (t->place == NEO_HOST || ctx->device)) {
        if (!ctx->inside) __atomic_fetch_sub(&ctx->tensors, 1, __ATOMIC_RELAXED);
        neo__free_on(ctx, d, 0, t->data, neo_tensor_bytes(*t));
    }
    *t = neo_tensor_none();
}

/* A cleared record, and *data: so many bytes of the device's memory; NULL if none are wanted. */
static void *neo__alloc_with_data(neo_ctx *ctx, const char *function, const char *of, size_t bytes,
                                  size_t data_bytes, char **data) {
    void *record = neo__alloc_zero(ctx, bytes);
    *data = record && data_bytes ? (char *)neo__data_alloc(ctx, data_bytes) : NULL;
    if (record && (*data || !data_bytes)) return record;
    neo_free(ctx, record, bytes);
    neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes of '%s'", function,
             neo__size_add(bytes, data_bytes), of);
    return NULL;
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

/* ---- tensors that share memory ---- */
/* The bytes of a tensor: its dimensions of more than one element, in bytes, and the bytes from the
   first element to the end of the last, of dimensions k and on. Steps are positive. */
typedef struct neo__box {
    intptr_t begin;
    int count;
    int64_t n[NEO_MAX_DIMS], step[NEO_MAX_DIMS], extent[NEO_MAX_DIMS + 1];
} neo__box;
/* The box without the order that neo__boxes_meet wants; 0: no bytes. */
static int neo__box_begin(neo__box *box, const neo_tensor *tensor) {
    const int64_t size = (int64_t)neo_dtype_size(tensor->dtype);
    box->begin = (intptr_t)tensor->data;
    box->count = 0;
    box->extent[0] = size;
    for (int d = 0; tensor->data && d < tensor->ndim; d++) {
        const int64_t n = tensor->shape[d];
        int64_t step, length; /* no memory is as large as 2^60 */
        if (n == 0 || __builtin_mul_overflow(tensor->stride[d], size, &step) ||
            __builtin_mul_overflow(n - 1, step, &length) || length >> 60 != length >> 63)
            return 0;
        if (length == 0) continue;
        if (step < 0) box->begin += (intptr_t)length;
        box->extent[0] += length < 0 ? -length : length;
        box->n[box->count] = n;
        box->step[box->count++] = step < 0 ? -step : step;
    }
    return tensor->data != NULL;
}
/* Sort the dimensions, the largest step first. */
static void neo__box_sort(neo__box *box, int64_t size) {
    for (int i = 1; i < box->count; i++)
        for (int k = i; k > 0 && box->step[k] > box->step[k - 1]; k--) {
            const int64_t n = box->n[k], step = box->step[k];
            box->n[k] = box->n[k - 1], box->step[k] = box->step[k - 1];
            box->n[k - 1] = n, box->step[k - 1] = step;
        }
    box->extent[box->count] = size;
    for (int k = box->count - 1; k >= 0; k--)
        box->extent[k] = box->extent[k + 1] + (box->n[k] - 1) * box->step[k];
}
/* 1: an element of a, of dimensions i and on, shares bytes with one of b, of j and on, which begins
   `apart` bytes behind. Indices of the largest step that differ by q bring them closer by q steps;
   only few q do so enough. After so many tries as are left they count as sharing. */
static int neo__boxes_meet(const neo__box *a, int i, const neo__box *b, int j, int64_t apart,
                           int *tries) {
    if (--*tries < 0) return 1;
    if (apart >= a->extent[i] || -apart >= b->extent[j]) return 0;
    if (i == a->count && j == b->count) return 1;
    const int64_t a_step = i < a->count ? a->step[i] : 0, b_step = j < b->count ? b->step[j] : 0;
    const int64_t step = NEO__MAX(a_step, b_step);
    const int64_t a_n = a_step == step ? a->n[i++] : 1, b_n = b_step == step ? b->n[j++] : 1;
    const int64_t first = NEO__MAX((apart - a->extent[i]) / step - 1, 1 - b_n);
    const int64_t last = NEO__MIN((apart + b->extent[j]) / step + 1, a_n - 1);
    for (int64_t q = first; q <= last; q++)
        if (neo__boxes_meet(a, i, b, j, apart - q * step, tries)) return 1;
    return 0;
}
/* The greatest common divisor of `unit` and all steps; 0: there are none. */
static int64_t neo__boxes_unit(const neo__box *box, int64_t unit) {
    for (int k = 0; k < box->count; k++)
        for (int64_t step = box->step[k]; step;) {
            const int64_t rest = unit % step;
            unit = step, step = rest;
        }
    return unit;
}
/* box: of s, not sorted. */
static int neo__tensors_meet(const neo_tensor *s, const neo__box *box, const neo_tensor *tensor) {
    neo__box a, b;
    int tries = 20000;
    if (s->place != tensor->place || !neo__box_begin(&b, tensor)) return 0;
    const int64_t apart = (int64_t)(b.begin - box->begin);
    if (apart >= box->extent[0] || -apart >= b.extent[0]) return 0;
    a = *box;
    neo__box_sort(&a, (int64_t)neo_dtype_size(s->dtype));
    neo__box_sort(&b, (int64_t)neo_dtype_size(tensor->dtype));
    int64_t unit = neo__boxes_unit(&a, neo__boxes_unit(&b, 0)), bytes = b.extent[b.count];
    int64_t between = unit ? (apart % unit + unit) % unit : 0; /* bytes, in each unit of both */
    if (between >= a.extent[a.count] && between + bytes <= unit) return 0;
    return neo__boxes_meet(&a, 0, &b, 0, apart, &tries);
}
static int neo__tensors_overlap(const neo_tensor *a, const neo_tensor *b) {
    neo__box box;
    return neo__box_begin(&box, a) && neo__tensors_meet(a, &box, b);
}
/* One tensor, given twice. */
static int neo__tensors_same(const neo_tensor *a, const neo_tensor *b) {
    int same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++)
        same = a->shape[d] == b->shape[d] && (a->shape[d] <= 1 || a->stride[d] == b->stride[d]);
    return same;
}
/* Check that none of the first `outputs` tensors shares memory with one behind it in the list; with
   `same`, an output may be an input itself. A tensor that is none shares nothing. */
typedef struct neo__named {
    const neo_tensor *t;
    const char *name;
} neo__named;
static neo_status neo__check_apart(const char *function, const neo__named *list, int outputs,
                                   int count, int same) {
    for (int i = 0; i < outputs; i++) {
        neo__box box;
        const int some = neo__box_begin(&box, list[i].t);
        for (int k = i + 1; k < count && some; k++) {
            if (!neo__tensors_meet(list[i].t, &box, list[k].t)) continue;
            if (same && k >= outputs && neo__tensors_same(list[i].t, list[k].t)) continue;
            return neo_fail(NEO_ERR_ARG, "%s: %s overlaps %s in memory", function, list[i].name,
                            list[k].name);
        }
    }
    return NEO_OK;
}
/* NEO__APART(fn, outputs, same, {&y, "y"}, {&x, "x"} ...): neo__check_apart of that list. */
#define NEO__APART(function, outputs, same, ...)                                                   \
    do {                                                                                           \
        const neo__named neo__list[] = {__VA_ARGS__};                                              \
        NEO__TRY(neo__check_apart(function, neo__list, outputs,                                    \
                                  (int)(sizeof neo__list / sizeof *neo__list), same));             \
    } while (0)

NEO__HOT_END
/* ---- public calls: the CPU converts and copies what is in host memory, in any context ---- */
/* Two contiguous tensors are walked as one dimension. */
static neo__convert_call neo__convert_call_make(neo_tensor src, neo_tensor dst) {
    NEO__ZERO(neo__convert_call, call);
    const int64_t count = neo_tensor_count(src);
    call.src = src;
    call.dst = dst;
    call.count = count;
    if (src.ndim == 0 || (neo_tensor_is_contiguous(src) && neo_tensor_is_contiguous(dst))) {
        call.src = neo_tensor_1d(src.data, src.dtype, count);
        call.dst = neo_tensor_1d(dst.data, dst.dtype, count);
        call.src.place = src.place;
        call.dst.place = dst.place;
    }
    return call;
}
static neo_status neo__convert(neo_ctx *ctx, const char *fn, const neo__convert_call *call) {
    neo_device *d = neo__device_at(ctx, call->src.place);
    if (call->count == 0) return NEO_OK;
    return d == ctx->on ? NEO__RUN(ctx, fn, convert, call) : d->convert(d, call);
}
/* Convert for a layer, whose name `fn` is. */
static neo_status neo__convert_for(neo_ctx *ctx, const char *fn, neo_tensor src, neo_tensor dst) {
    neo__convert_call call = neo__convert_call_make(src, dst);
    return neo__convert(ctx, fn, &call);
}
NEO_API neo_status neo_tensor_convert(neo_ctx *ctx, neo_tensor src, neo_tensor dst,
                                      const neo_convert_desc *desc) {
    static const char *const fn = "neo_tensor_convert";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__same_shape(src, dst, fn));
    if (src.dtype == dst.dtype) return neo_tensor_copy(ctx, src, dst);
    NEO__CHECK(src.dtype != NEO_F64 && dst.dtype != NEO_F64, NEO_ERR_UNSUPPORTED,
               "%s: from %s to %s: f64 is not converted", fn, neo_dtype_name(src.dtype),
               neo_dtype_name(dst.dtype));
    NEO__CHECK(src.place == dst.place, NEO_ERR_ARG,
               "%s: src and dst are not both in host memory or in the device's", fn);
    if (src.place == NEO_DEVICE) NEO__TRY(neo__check_place(ctx, src, fn, "src"));
    NEO__APART(fn, 1, 0, {&dst, "dst"}, {&src, "src"});
    neo__convert_call call = neo__convert_call_make(src, dst);
    if (desc && desc->rounding == NEO_ROUND_STOCHASTIC) {
        NEO__CHECK(desc->name, NEO_ERR_ARG, "%s: stochastic rounding needs a name", fn);
        NEO__CHECK(desc->first >= 0, NEO_ERR_ARG, "%s: first is %" PRId64, fn, desc->first);
        call.stochastic = 1;
        call.first = desc->first;
        call.key =
            neo__random_key_make(ctx->seed, neo_hash(desc->name), desc->step, NEO_STREAM_ROUNDING);
    }
    return neo__convert(ctx, fn, &call);
}
NEO_API neo_status neo_tensor_copy(neo_ctx *ctx, neo_tensor src, neo_tensor dst) {
    static const char *const fn = "neo_tensor_copy";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__same_shape(src, dst, fn));
    NEO__CHECK(src.dtype == dst.dtype, NEO_ERR_SHAPE, "%s: src is %s, dst %s", fn,
               neo_dtype_name(src.dtype), neo_dtype_name(dst.dtype));
    /* either may be in host memory, so neo__check_place is too strict */
    NEO__CHECK(ctx->device || (src.place == NEO_HOST && dst.place == NEO_HOST), NEO_ERR_ARG,
               "%s: %s is in a device's memory, but the context has no device", fn,
               src.place == NEO_HOST ? "dst" : "src");
    if (src.place != dst.place) {
        NEO__CHECK(neo_tensor_is_contiguous(src) && neo_tensor_is_contiguous(dst), NEO_ERR_SHAPE,
                   "%s: between host and device src and dst must be contiguous", fn);
        neo__device_advises(ctx);
        return ctx->on->copy(ctx->on, dst.data, dst.place, src.data, src.place,
                             neo_tensor_bytes(src));
    }
    NEO__APART(fn, 1, 1, {&dst, "dst"}, {&src, "src"});
    neo__convert_call call = neo__convert_call_make(src, dst);
    return neo__convert(ctx, fn, &call);
}
NEO_API neo_status neo_tensor_zero(neo_ctx *ctx, neo_tensor t) {
    static const char *const fn = "neo_tensor_zero";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__tensor_check(t, fn, "t"));
    NEO__CHECK(neo_tensor_is_contiguous(t), NEO_ERR_SHAPE, "%s: t is not contiguous", fn);
    if (t.place == NEO_DEVICE) NEO__TRY(neo__check_place(ctx, t, fn, "t"));
    neo_device *d = neo__device_at(ctx, t.place);
    const size_t bytes = neo_tensor_bytes(t);
    return bytes ? d->fill(d, t.data, 0, bytes) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_tree_sum(neo_ctx *ctx, const neo_tensor *parts, int count, neo_tensor out) {
    NEO__TRY(neo__check_ctx("neo_tree_sum", ctx));
    NEO__CHECK(parts && count > 0, NEO_ERR_ARG, "neo_tree_sum: parts is NULL, or count < 1");
    NEO__TRY(neo__tensor_check(out, "neo_tree_sum", "out"));
    for (int i = 0; i <= count; i++) {
        neo_tensor t = i < count ? parts[i] : out;
        NEO__TRY(neo__same_shape(t, out, "neo_tree_sum"));
        NEO__CHECK(t.dtype == NEO_F32 && neo_tensor_is_contiguous(t), NEO_ERR_SHAPE,
                   "neo_tree_sum: tensor %d is not contiguous f32", i);
        NEO__TRY(neo__check_place(ctx, t, "neo_tree_sum", i < count ? "a part" : "out"));
    }
    NEO__ZERO(neo__tree_sum_call, call);
    call.parts = parts;
    call.count = count;
    call.out = (float *)out.data;
    call.n = neo_tensor_count(out);
    return NEO__RUN(ctx, "neo_tree_sum", tree_sum, &call);
}
#endif
NEO__HOT_BEGIN

/* ---- the CPU: a walk over runs ---- */
/* A run of both tensors: pointers, strides in elements, index of its first element. */
typedef struct neo__run {
    const char *src;
    char *dst;
    int64_t src_stride, dst_stride, count, index;
} neo__run;

static void neo__run_find(const neo__convert_call *call, int64_t index, int64_t end,
                          neo__run *run) {
    int64_t rest = index, src = 0, dst = 0, column = 0;
    int last = call->src.ndim - 1;
    for (int d = last; d >= 0; d--) {
        int64_t i = rest % call->src.shape[d];
        rest /= call->src.shape[d];
        src += i * call->src.stride[d];
        dst += i * call->dst.stride[d];
        if (d == last) column = i;
    }
    run->src = (const char *)call->src.data + src * (int64_t)neo_dtype_size(call->src.dtype);
    run->dst = (char *)call->dst.data + dst * (int64_t)neo_dtype_size(call->dst.dtype);
    run->src_stride = call->src.stride[last];
    run->dst_stride = call->dst.stride[last];
    run->index = index;
    run->count = NEO__MIN(NEO__MIN(end - index, call->src.shape[last] - column), (int64_t)NEO__RUN);
}

/* Elements of 1, 2, 4 or 8 bytes between strided places. */
NEO__INLINE void neo__move_each(char *dst, int64_t dst_step, const char *src, int64_t src_step,
                                const size_t size, int64_t count) {
    for (; count > 0; count--, dst += dst_step, src += src_step) memcpy(dst, src, size);
}
static void neo__move(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                      size_t size, int64_t count) {
    const int64_t dst_step = dst_stride * (int64_t)size, src_step = src_stride * (int64_t)size;
    if (dst_stride == 1 && src_stride == 1) memmove(dst, src, (size_t)count * size);
    else if (size == 1) neo__move_each(dst, dst_step, src, src_step, 1, count);
    else if (size == 2) neo__move_each(dst, dst_step, src, src_step, 2, count);
    else if (size == 4) neo__move_each(dst, dst_step, src, src_step, 4, count);
    else neo__move_each(dst, dst_step, src, src_step, 8, count);
}

/* ---- conversions of a contiguous run ---- */
static void neo__decode_float(const neo_ctx *ctx, neo_dtype dtype, const void *x, float *y,
                              int64_t n) {
    if (dtype == NEO_F32) memcpy(y, x, (size_t)n * sizeof *y);
    else if (dtype == NEO_F16) ctx->tensor->f32_from_f16(y, (const uint16_t *)x, n);
    else if (dtype == NEO_BF16) ctx->tensor->f32_from_bf16(y, (const uint16_t *)x, n);
    else
        for (int64_t i = 0; i < n; i++) y[i] = neo__float_decode(dtype, (const uint8_t *)x + i);
}
/* r: random words; NULL rounds to nearest. */
static void neo__encode_float(const neo_ctx *ctx, neo_dtype dtype, const float *x, void *y,
                              const uint32_t *r, int64_t n) {
    char *to = (char *)y;
    const size_t size = neo_dtype_size(dtype);
    if (dtype == NEO_F32) memcpy(y, x, (size_t)n * sizeof *x);
    else if (dtype == NEO_F16 && !r) ctx->tensor->f16_from_f32((uint16_t *)y, x, n);
    else if (dtype == NEO_BF16 && !r) ctx->tensor->bf16_from_f32((uint16_t *)y, x, n);
    else
        for (int64_t i = 0; i < n; i++, to += size)
            neo__float_encode(dtype, x[i], to, r ? &r[i] : NULL);
}
/* Random words of elements [index, index + n), or NULL when rounding to nearest. */
static const uint32_t *neo__run_random(const neo__convert_call *c, int64_t index, uint32_t *out,
                                       int64_t n) {
    if (!c->stochastic) return NULL;
    uint32_t block[4];
    uint64_t at = (uint64_t)c->first + (uint64_t)index;
    for (int64_t i = 0; i < n; i++, at++) {
        if (i == 0 || at % 4 == 0) neo__random_block(&c->key, at / 4, block);
        out[i] = block[at % 4];
    }
    return out;
}
static void neo__convert_run(neo_ctx *ctx, const neo__convert_call *call, const neo__run *run) {
    int64_t packed_src[NEO__RUN], packed_dst[NEO__RUN];
    float wide[NEO__RUN];
    uint32_t random[NEO__RUN];
    const neo_dtype from = call->src.dtype, to = call->dst.dtype;
    const size_t from_size = neo_dtype_size(from), to_size = neo_dtype_size(to);
    const int64_t count = run->count;
    const char *src = run->src_stride == 1 ? run->src : (const char *)packed_src;
    char *dst = run->dst_stride == 1 ? run->dst : (char *)packed_dst, *at = dst;
    if (run->src_stride != 1)
        neo__move((char *)packed_src, 1, run->src, run->src_stride, from_size, count);
    const uint32_t *r = neo__run_random(call, run->index, random, count);
    const float *x = from == NEO_F32 ? (const float *)(const void *)src : wide;
    if (!neo__is_float(from)) {
        for (int64_t i = 0; i < count; i++, src += from_size, at += to_size) {
            const int64_t v = neo__int_decode(from, src);
            if (!neo__is_float(to)) neo__int_encode(to, v, at);
            else wide[i] = to == NEO_F32 ? (float)v : neo__f32_from_int_odd(v);
        }
    } else {
        if (x == wide) neo__decode_float(ctx, from, src, wide, count);
        for (int64_t i = 0; i < count && !neo__is_float(to); i++, at += to_size)
            neo__int_encode(to, neo__int_from_f32(x[i], r != NULL, r ? r[i] : 0), at);
    }
    if (neo__is_float(to)) neo__encode_float(ctx, to, x, dst, r, count);
    if (run->dst_stride != 1)
        neo__move(run->dst, run->dst_stride, (const char *)packed_dst, 1, to_size, count);
}
static void neo__convert_part(const neo__cpu_part *part) {
    const neo__convert_call *c = (const neo__convert_call *)part->call;
    neo__run run;
    for (int64_t at = part->begin; at < part->end; at += run.count) {
        neo__run_find(c, at, part->end, &run);
        neo__convert_run(part->ctx, c, &run);
    }
}
static void neo__tensor_copy_part(const neo__cpu_part *part) {
    const neo__convert_call *c = (const neo__convert_call *)part->call;
    const size_t size = neo_dtype_size(c->src.dtype);
    neo__run run;
    for (int64_t at = part->begin; at < part->end; at += run.count) {
        neo__run_find(c, at, part->end, &run);
        if (c->src.ndim == 1 && run.src_stride == 1 && run.dst_stride == 1)
            run.count = part->end - at;
        neo__move(run.dst, run.dst_stride, run.src, run.src_stride, size, run.count);
    }
}
static neo_status neo__cpu_convert(neo_device *d, const neo__convert_call *call) {
    const int copies = call->src.dtype == call->dst.dtype;
    return neo__cpu_run(d, call, call->count, NEO__ELEMENT_GRAIN, NEO__RUN,
                        copies ? neo__tensor_copy_part : neo__convert_part);
}
typedef struct neo__fill {
    char *to;
    int byte;
} neo__fill;
static void neo__fill_part(const neo__cpu_part *part) {
    const neo__fill *fill = (const neo__fill *)part->call;
    memset(fill->to + part->begin, fill->byte, (size_t)(part->end - part->begin));
}
static neo_status neo__cpu_fill(neo_device *d, void *to, int byte, size_t bytes) {
    const neo__fill fill = {(char *)to, byte};
    return neo__cpu_run(d, &fill, (int64_t)bytes, 4 * NEO__ELEMENT_GRAIN, 4096, neo__fill_part);
}

/* Adding part i + s to part i for s = 1, 2, 4 ... is the tree that splits at the largest power of
   two. */
static void neo__tree_sum_part(const neo__cpu_part *part) {
    enum { PIECE = 1024 }; /* elements of a part that stay in the cache */
    const neo__tree_sum_call *c = (const neo__tree_sum_call *)part->call;
    float *first = (float *)c->parts[0].data;
    for (int64_t at = part->begin; at < part->end; at += PIECE) {
        const int64_t n = NEO__MIN(part->end - at, (int64_t)PIECE);
        for (int s = 1; s < c->count; s *= 2)
            for (int i = 0; i + s < c->count; i += 2 * s)
                part->ctx->vec->add((float *)c->parts[i].data + at,
                                    (const float *)c->parts[i + s].data + at, n);
        if (c->out != first) memcpy(c->out + at, first + at, (size_t)n * sizeof(float));
    }
}
static neo_status neo__cpu_tree_sum(neo_device *d, const neo__tree_sum_call *call) {
    return neo__cpu_run(d, call, call->n, 1 << 14, 1024, neo__tree_sum_part);
}

NEO_API void neo_floats_decode(const neo_ctx *ctx, neo_dtype dtype, const void *src, float *dst,
                               int64_t count) {
    neo__fp_state fp = neo__fp_enter();
    neo__decode_float(ctx, dtype, src, dst, count);
    neo__fp_leave(fp);
}
NEO_API void neo_floats_encode(const neo_ctx *ctx, neo_dtype dtype, const float *src, void *dst,
                               int64_t count) {
    neo__fp_state fp = neo__fp_enter();
    neo__encode_float(ctx, dtype, src, dst, NULL, count);
    neo__fp_leave(fp);
}
/* ---------------------------------------------------------------------------
   >>impl-random
   ------------------------------------------------------------------------ */
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
    uint32_t block[4];
    neo_random_u32x4(seed, name_hash, step, stream, index / 4, block);
    return (float)(block[index % 4] >> 8) * 0x1p-24f;
}
#if !defined(NEO_INFERENCE)
NEO_API float neo_random_normal(uint64_t seed, uint64_t name_hash, int64_t step, int stream,
                                uint64_t index) {
    neo__random_key key = neo__random_key_make(seed, name_hash, step, stream);
    float z[4];
    neo__fp_state fp = neo__fp_enter();
    neo__random_normal_scalar(z, 1, &key, index / 4, NULL, 0.0f, 1.0f);
    neo__fp_leave(fp);
    return z[index % 4];
}
#endif

/* ---- initial values ---- */
static void neo__init_blocks(neo_ctx *ctx, const neo__init_call *c, float *y, int64_t blocks,
                             uint64_t block, const uint64_t *number) {
    if (c->init.kind == NEO_INIT_UNIFORM)
        ctx->tensor->uniform(y, blocks, &c->key, block, number, c->init.a, c->scale, c->top);
    else ctx->tensor->normal(y, blocks, &c->key, block, number, c->init.a, c->init.b);
}
/* Whole blocks go straight to memory; the ragged ends through a block of their own. */
static void neo__init_part(const neo__cpu_part *part) {
    const neo__init_call *call = (const neo__init_call *)part->call;
    int64_t i = part->begin, end = part->end;
    if (call->init.kind == NEO_INIT_CONSTANT) {
        for (; i < end; i++) call->out[i] = call->init.a;
        return;
    }
    while (i < end) {
        int64_t row = i / call->cols, left = NEO__MIN(end, (row + 1) * call->cols) - i;
        uint64_t at = call->first + (uint64_t)(i + row * (call->stride - call->cols));
        int64_t blocks = left / 4;
        if (at % 4 == 0 && blocks > 0) {
            neo__init_blocks(part->ctx, call, call->out + i, blocks, at / 4, NULL);
            i += 4 * blocks;
        } else {
            float y[4];
            neo__init_blocks(part->ctx, call, y, 1, at / 4, NULL);
            for (uint64_t w = at % 4; w < 4 && left > 0; w++, left--) call->out[i++] = y[w];
        }
    }
}
static neo_status neo__cpu_init(neo_device *d, const neo__init_call *call) {
    return neo__cpu_run(d, call, call->count, 1 << 14, 256, neo__init_part);
}
NEO__HOT_END
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
static neo__init_call neo__init_call_make(const neo_ctx *ctx, neo_tensor t, const char *name,
                                          neo_init init, int64_t first, int64_t stride) {
    NEO__ZERO(neo__init_call, call);
    call.out = (float *)t.data;
    call.count = neo_tensor_count(t);
    /* rows that follow one another are one run: short ones would not fill a vector */
    int apart = stride && stride != t.shape[1];
    call.cols = apart ? t.shape[1] : NEO__MAX(call.count, (int64_t)1);
    call.stride = apart ? stride : call.cols;
    call.first = (uint64_t)first;
    call.init = init;
    call.scale = init.b - init.a;
    call.top = neo__float_below(init.b);
    call.key = neo__random_key_make(ctx->seed, neo_hash(name), 0, NEO_STREAM_INIT);
    if (init.kind == NEO_INIT_UNIFORM && init.a == init.b) call.init.kind = NEO_INIT_CONSTANT;
    return call;
}
#if !defined(NEO_INFERENCE)
/* stride: elements of the whole parameter from a row of the matrix to the next; 0: one run of
   them. */
static neo_status neo__tensor_init(neo_ctx *ctx, neo_tensor tensor, const char *name, neo_init init,
                                   int64_t first, int64_t stride) {
    NEO__TRY(neo__check_ctx("neo_tensor_init", ctx));
    NEO__CHECK(name, NEO_ERR_ARG, "neo_tensor_init: name is NULL");
    NEO__TRY(neo__tensor_check(tensor, "neo_tensor_init", name));
    NEO__CHECK(tensor.dtype == NEO_F32 && neo_tensor_is_contiguous(tensor), NEO_ERR_SHAPE,
               "neo_tensor_init: %s is not contiguous f32", name);
    NEO__CHECK(first >= 0, NEO_ERR_ARG, "neo_tensor_init: %s: first is %" PRId64, name, first);
    NEO__TRY(neo__init_check(&init, name));
    if (tensor.place == NEO_DEVICE)
        NEO__TRY(neo__check_place(ctx, tensor, "neo_tensor_init", name));
    if (init.kind == NEO_INIT_NONE || neo_tensor_count(tensor) == 0) return NEO_OK;
    neo_device *d = neo__device_at(ctx, tensor.place);
    neo__init_call call = neo__init_call_make(ctx, tensor, name, init, first, stride);
    return d->init(d, &call);
}
NEO_API neo_status neo_tensor_init(neo_ctx *ctx, neo_tensor t, const char *name, neo_init init,
                                   int64_t first) {
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__tensor_init(ctx, t, name, init, first, 0);
    neo__fp_leave(fp);
    return status;
}
#endif
/* Orders floats as their numbers: NaN is 0, the least. */
static uint32_t neo__sample_key(float x) {
    const uint32_t u = neo__bits_f32(x);
    return x != x ? 0 : u >> 31 ? ~u : u | 0x80000000u;
}
/* The least key that has a share, and how many of this very key do. */
static uint32_t neo__sample_least(const float *logits, int64_t count, int64_t k, int64_t *ties) {
    uint32_t least = 0;
    *ties = count;
    if (k < 1 || k >= count) return 1;
    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        int64_t above = 0;
        for (int64_t i = 0; i < count; i++) above += neo__sample_key(logits[i]) >= (least | bit);
        if (above >= k) least |= bit;
    }
    *ties = k;
    for (int64_t i = 0; i < count; i++) *ties -= neo__sample_key(logits[i]) > least;
    return least ? least : 1;
}
NEO_API int64_t neo_sample(const neo_sampling *sampling, const float *logits, int64_t count,
                           int64_t place) {
    int64_t best = 0, ties, left;
    for (int64_t i = 1; i < count; i++)
        if (neo__sample_key(logits[i]) > neo__sample_key(logits[best])) best = i;
    const double most = count > 0 ? (double)logits[best] : 0.0;
    if (!(sampling->temperature > 0.0) || !(most - most == 0.0)) return best;
    const uint32_t least = neo__sample_least(logits, count, sampling->top_k, &ties);
    neo__fp_state fp = neo__fp_enter();
    double sum = 0.0, share;
    for (int draws = 0; draws < 2; draws++) {
        left = ties;
        for (int64_t i = 0; i < count; i++) {
            const uint32_t key = neo__sample_key(logits[i]);
            if (key < least || (key == least && left-- <= 0)) continue;
            share = neo__exp_f64(((double)logits[i] - most) / sampling->temperature);
            if (!draws) sum += share;
            else if (best = i, sum < share) break;
            else sum -= share;
        }
        if (!draws)
            sum *= (double)neo_random_uniform(sampling->seed, neo_hash("sample"), 0,
                                              NEO_STREAM_USER, (uint64_t)place);
    }
    neo__fp_leave(fp);
    return best;
}
NEO__HOT_BEGIN
static int neo__zipf_is_log(double s) { return s > 1.0 - 1e-6 && s < 1.0 + 1e-6; }
/* (R + 1)^(1 - s) - 1, or log(R + 1) for s = 1. */
static double neo__zipf_constant(int64_t rows, double s) {
    double n = neo__log_f64((double)rows + 1.0);
    return neo__zipf_is_log(s) ? n : neo__exp_f64((1.0 - s) * n) - 1.0;
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
#if !defined(NEO_INFERENCE)
NEO_API int64_t neo_zipf(float u, int64_t rows, float s) {
    if (rows <= 1 || !(s > 0.0f)) return 0;
    neo__fp_state fp = neo__fp_enter();
    int64_t id = neo__zipf_id(NULL, u > 0.0f ? (double)u : 0.0, rows, (double)s,
                              neo__zipf_constant(rows, (double)s));
    neo__fp_leave(fp);
    return id;
}

/* ---------------------------------------------------------------------------
   >>impl-exact

   A float is m 2^(p - 160) with a 24-bit integer m and p in [11, 264], so it falls on at most two
   of the 32-bit digits. A digit is kept in 64 bits and takes 2^31 terms before it could overflow;
   normalising carries, and leaves digits in [0, 2^32) under a top word that holds the sign. Sums
   equal in value then have equal words, whatever the order was.
   ------------------------------------------------------------------------ */
#define NEO__EXACT_TERMS ((int64_t)1 << 30)

NEO_API void neo_exact_zero(neo_exact *sum) { memset(sum, 0, sizeof *sum); }

NEO_API void neo_exact_normalize(neo_exact *sum) { neo__exact_carry(sum); }

NEO_API void neo_exact_add(neo_exact *sum, float x) {
    const neo__exact_term t = neo__exact_place(x);
    if (t.special) {
        if (t.special == 1) sum->nan++;
        else if (t.special == 2) sum->pos_inf++;
        else sum->neg_inf++;
        return;
    }
    if (sum->terms >= NEO__EXACT_TERMS) neo_exact_normalize(sum);
    sum->terms++;
    sum->word[t.at] += t.low;
    sum->word[t.at + 1] += t.high;
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
    return neo__f64_bits(neo__exact_round(*sum));
}
#endif
/* ---------------------------------------------------------------------------
   >>impl-gemm

   C = beta C + A B for f32. Every element is one chain of fused multiply-adds over k, so lanes go
   over columns (over rows for products with very few columns: then A and B change roles and C is
   written transposed), and blocks of k store their partial sums and go on from there. A tile (see
   >>kernels-gemm) holds about 14 x 32 sums in registers. C is cut into rectangles of tiles, the
   tasks; each goes over k in segments, packs the segment's panels of B into its worker's scratch,
   packs A by blocks of tile rows where that pays (a row's part stays in the first-level cache), and
   runs along the panels row by row: a group of them (which stays in the second-level cache) over
   the block, then the next. Where C has few rows, B is read once and its reading counts: then
   panels are packed in small groups, and the tiles of a group fetch what the next group is packed
   of; or, of up to 128 rows and B transposed, A is packed and B is read in place (see
   neo__gemm_plan_turned). Panels that lie k-major are packed by the tiles that read them first. A
   row of tiles fetches C of the next one, too, if C is large; all of that line by line, as slowly
   as it can.

   Gradients of weights may be steps of the weights instead: see neo__gemm_updates.

   With leaves (see >>impl-leaves), k is the sample: each leaf's sum starts at zero and merges into
   the tree while it is in registers. Subtree sums that wait stand in the worker's scratch: those
   that wait between segments each in its tile's place, the others of all tiles in the same one,
   which stays in the first-level cache.
   ------------------------------------------------------------------------ */
enum {
    NEO__GEMM_SEGMENT = 512,           /* of k */
    NEO__GEMM_A_FLOATS = 1 << 16,      /* packed rows of a block: 256 KiB */
    NEO__GEMM_B_FLOATS = 1 << 19,      /* packed panels of a task: 2 MiB, by groups */
    NEO__GEMM_GROUP_FLOATS = 1 << 17,  /* of 512 KiB, which stay near beside a block */
    NEO__GEMM_LEAF_B_FLOATS = 1 << 18, /* with leaves, whose sums take the rest: 1 MiB */
    NEO__GEMM_FEW_ROWS = 256,          /* of A up to so many: they are one block of */
    NEO__GEMM_FEW_A_FLOATS = 1 << 18,  /* 1 MiB, and the next group of */
    NEO__GEMM_FEW_B_FLOATS = 1 << 16,  /* 256 KiB is fetched while one is multiplied */
    NEO__GEMM_FETCH_FLOATS = 1 << 16,  /* C of so many is fetched ahead: 256 KiB */
    NEO__GEMM_FETCH_DEPTH = 32,        /* where sums have so many k */
    NEO__GEMM_FAR_FLOATS = 1 << 17,    /* an operand of so many is not near: 512 KiB; */
    NEO__GEMM_VAST_FLOATS = 1 << 21,   /* of so many, it comes from memory: 8 MiB */
    NEO__GEMM_SUM_FLOATS = 408 << 10,  /* subtree sums: 1632 KiB */
    NEO__GEMM_ROW_FLOATS = 3 << 16,    /* a row of tiles from which weights step: 768 KiB */
    NEO__GEMM_MAX_PIECES = 4096 + 1,   /* of a segment: as many as there are leaves, and one cut */
    NEO__GEMM_MAX_DEPTH = 13,          /* of their tree */
    NEO__GEMM_GRAIN = 1 << 16,         /* multiply-adds that are worth a task, to which */
    NEO__GEMM_ENDS = 6,                /* every element of C adds so many */
    NEO__GEMM_SHALLOW = 16,            /* up to so many k, and B of so many floats (32 KiB), */
    NEO__GEMM_SHALLOW_FLOATS = 1 << 13, /* C is written row by row */
    NEO__GEMM_SHALLOW_ROWS = 64,       /* so many at a time, where panels are whole */
    NEO__GEMM_STREAM_FLOATS = 1 << 23, /* C of so many leaves no cache anything: 32 MiB */
    NEO__GEMM_BRIEF = 64,              /* fewer k: a call costs as much as it computes */
    NEO__GEMM_THIN_FLOATS = 1 << 13,   /* C of so few, and of so few rows and columns */
    NEO__GEMM_THIN_EDGES = 512,        /* (twice as many of samples and 16 lanes), */
    NEO__GEMM_THIN_SEGMENT = 66 << 10, /* takes operands in parts of so many, which stay near */
    NEO__GEMM_SWAP_COLS = 4,           /* up to so many columns, lanes go over rows */
    NEO__GEMM_GROUPS = 4,              /* of a task, where reading B counts */
    NEO__GEMM_DOT_TILES = 4,           /* of one, so many times a kernel's rows are a tile, */
    NEO__GEMM_DOT_MOST = 16,           /* or, of many, so many */
    NEO__GEMM_KEEPERS = 32             /* workers that remember what they have packed */
};

enum { NEO__WORKER_FLOATS = NEO__WORKER_SCRATCH_BYTES / (int)sizeof(float) };
NEO__STATIC_ASSERT(NEO__GEMM_FEW_A_FLOATS + NEO__GEMM_FEW_B_FLOATS <=
                           NEO__GEMM_B_FLOATS + NEO__GEMM_A_FLOATS &&
                       NEO__GEMM_B_FLOATS + NEO__GEMM_A_FLOATS + NEO__GEMM_ROW_FLOATS <=
                           NEO__WORKER_FLOATS &&
                       NEO__GEMM_ROW_FLOATS + NEO__GEMM_MAX_DEPTH * (int)NEO__TILE_MAX_FLOATS <=
                           NEO__GEMM_SUM_FLOATS &&
                       NEO__TURNED_FLOATS + NEO__TURNED_SUMS + (1 << 12) <= NEO__WORKER_FLOATS &&
                       NEO__GEMM_FEW_A_FLOATS >= (NEO__GEMM_FEW_ROWS + 16) * NEO__GEMM_SEGMENT &&
                       NEO__GEMM_LEAF_B_FLOATS + NEO__GEMM_A_FLOATS + NEO__GEMM_SUM_FLOATS +
                               NEO__GEMM_MAX_PIECES * (int)sizeof(neo__gemm_piece) / 4 + 1 <=
                           NEO__WORKER_FLOATS,
                   "a worker's scratch holds a task of >>impl-gemm");
NEO__INLINE float *neo__worker_floats(neo_ctx *ctx, int worker) {
    return (float *)(void *)neo__worker_scratch(ctx, worker);
}

/* C in rows of tiles and panels of columns, and how many tasks they are cut into. */
typedef struct neo__gemm_grid {
    int64_t tiles, panels, row_tasks, col_tasks;
} neo__gemm_grid;
/* Rows of tiles [t0, t1), panels [p0, p1), k in [k0, k1): of a task, or what is packed together. */
typedef struct neo__gemm_box {
    int64_t t0, t1, p0, p1, k0, k1;
} neo__gemm_box;
/* Time of a product for neo__run_tasks: AVX2 does some 32 multiply-adds in a ns, AMX more. Of bf16
   whole tiles are computed, of 8 x 16 or more. */
static int64_t neo__gemm_ns(const neo_ctx *ctx, const neo__gemm_call *call) {
    const int64_t m = call->narrow ? NEO__MAX(call->m, 8) : call->m;
    const int64_t n = call->narrow ? NEO__MAX(call->n, 16) : call->n;
    const double fmas = (double)m * (double)n * (double)(call->k + NEO__GEMM_ENDS);
    return (int64_t)NEO__MIN(fmas / (call->narrow && ctx->bf16 ? 256.0 : 32.0), 1e15);
}
/* Cut into tasks of at most `most` tiles: *rows x *cols of them, then halves of the longer side
   until there are enough tasks: two a thread, for each packs its operands by itself. A tile is
   tile_rows x tile_cols; columns count `dear` times. */
static void neo__gemm_cut(neo__gemm_grid *grid, const neo__gemm_call *call, const neo_ctx *ctx,
                          int64_t tile_rows, int64_t tile_cols, int64_t most, int64_t dear,
                          int64_t *rows, int64_t *cols) {
    const int shared = neo__work_is_shared(ctx, neo__gemm_ns(ctx, call));
    const int64_t enough = shared ? 2 * (int64_t)ctx->threads : 1;
    *rows = NEO__MIN(*rows, NEO__MAX(1, most / *cols));
    for (;;) {
        grid->row_tasks = (grid->tiles + *rows - 1) / *rows;
        grid->col_tasks = (grid->panels + *cols - 1) / *cols;
        const int64_t tasks = grid->row_tasks * grid->col_tasks, floats = tile_rows * tile_cols;
        const double work = (double)(*rows * *cols * floats) * (double)(call->k + NEO__GEMM_ENDS);
        if (*rows * *cols <= most && (tasks >= enough || work < 2.0 * (double)NEO__GEMM_GRAIN))
            return;
        if (*rows == 1 && *cols == 1) return;
        if (*cols == 1 || (*rows > 1 && *rows * tile_rows >= dear * *cols * tile_cols))
            *rows = (*rows + 1) / 2;
        else *cols = (*cols + 1) / 2;
    }
}
/* Diagonal by diagonal: of two by two tasks whoever takes the third has one of its operands. The
   last columns, which may be fewer, come first: who took them takes more behind. */
static neo__gemm_box neo__gemm_task_box(const neo__gemm_grid *grid, int64_t task) {
    const int64_t row = task % grid->row_tasks;
    const int64_t col = (task / grid->row_tasks + row + grid->col_tasks - 1) % grid->col_tasks;
    NEO__ZERO(neo__gemm_box, box);
    box.t0 = grid->tiles * row / grid->row_tasks;
    box.t1 = grid->tiles * (row + 1) / grid->row_tasks;
    box.p0 = grid->panels * col / grid->col_tasks;
    box.p1 = grid->panels * (col + 1) / grid->col_tasks;
    return box;
}

/* Rows of tiles [t0, t1) and panels [p0, p1) that a worker has packed. A line of the cache each. */
typedef struct neo__gemm_packed {
    int64_t t0, t1, p0, p1, pad[4];
} neo__gemm_packed;
/* A product and its plan. */
typedef struct neo__gemm {
    neo_ctx *ctx;
    neo__gemm_call call; /* swapped: m, n, a, b are those of C transposed */
    int tree;            /* of several leaves */
    int listed; /* see neo__gemm_listed: rows and panels are the grid's, nothing else is planned */
    int turned; /* tasks are rows of b, in twos: neo__gemm_plan_turned */
    int swapped;
    int dots;    /* one column: the wide operand is transposed on the way, not packed */
    int by_rows; /* few k: the rows of a tile are written one after another, over all panels */
    int pack_a, pack_b;
    int updates; /* call.update is made, C not written */
    int64_t tile_rows, width, last_width, segments; /* tile_rows: of the largest tile */
    neo__gemm_grid grid;
    int64_t even_tiles;                /* rows of tiles with an even number of rows come first */
    int64_t block_tiles, group_panels; /* of a task, packed together */
    int one_place;                     /* of one block: its groups are packed one over another */
    int64_t a_floats;                  /* of the scratch: for a block; then for a group */
    int depth, kept;                   /* waiting subtree sums of a tile, and between segments */
    int keeps, keeps_b; /* a task's rows of A, all of k, stay packed for the worker's next task; its
                           panels of B, too */
    neo__gemm_packed packed[NEO__GEMM_KEEPERS]; /* where `keeps`; else without a value */
} neo__gemm;

/* Only gradients of weights are sums over leaves. */
#define NEO__TREE(gemm) (NEO__TRAINS && (gemm)->tree)

static void neo__gemm_swap(neo__gemm_call *c) {
    const neo__gemm_call old = *c;
    c->m = old.n, c->n = old.m;
    c->a = old.b, c->a_row = old.b_col, c->a_k = old.b_k;
    c->b = old.a, c->b_col = old.a_row, c->b_k = old.a_k;
}

/* Whether C is written row by row: where there is next to no k, or C stays in no cache, its writing
   counts. Every row reads all of B, which must stay in the first-level cache; and of the last panel
   little may be missing, for all of it is multiplied, nor may much of C be in it, for it passes a
   buffer. */
static int neo__gemm_is_shallow(const neo__gemm *g) {
    const neo__gemm_call *c = &g->call;
    const int64_t width = 8 * g->ctx->gemm->lanes, rest = c->n % width;
    if (!NEO__TRAINS || NEO__TREE(g) || c->k > NEO__GEMM_SHALLOW || c->n < width || c->panels ||
        c->k * c->n > NEO__GEMM_SHALLOW_FLOATS)
        return 0;
    if (rest > 0 && NEO__MAX(rest, width - rest) > c->n / 8) return 0;
    if (c->k > NEO__GEMM_SHALLOW / 4 && c->m * c->n < NEO__GEMM_VAST_FLOATS) return 0;
    return c->beta == 0.0f || c->beta == 1.0f;
}
/* Whether a kernel takes all whole panels of a row of tiles at once: with few k, calls count. */
static int neo__gemm_is_brief(const neo__gemm *g) {
    return !NEO__TREE(g) && !g->swapped && g->call.k < NEO__GEMM_BRIEF &&
           (g->call.beta == 0.0f || g->call.beta == 1.0f);
}
/* Whether C goes past the caches, which hold little of it: that saves reading it first. */
static int neo__gemm_streams(const neo__gemm *g) {
    const neo__gemm_call *c = &g->call;
    return NEO__TRAINS && g->by_rows && c->beta == 0.0f && !c->finish.y &&
           (c->finish.act == NEO_ACT_NONE || c->finish.act == NEO_ACT_RELU) &&
           c->m * c->n >= NEO__GEMM_STREAM_FLOATS && (uintptr_t)c->c % 64 == 0 &&
           c->c_row % 16 == 0;
}
/* Whether C is so small that packing k-major operands takes about as long as the product. */
static int neo__gemm_is_thin(const neo__gemm *g) {
    const neo__gemm_call *c = &g->call;
    return NEO__TRAINS && c->a_row == 1 && c->b_col == 1 && c->m * c->n <= NEO__GEMM_THIN_FLOATS &&
           c->m + c->n <= NEO__GEMM_THIN_EDGES << (c->tree && g->ctx->gemm->lanes == 16);
}
/* The most subtree sums that wait between two segments; a leaf that has begun is one. */
static int neo__gemm_kept(const neo__gemm *g) {
    int height = 0, leaf = 0, kept = 0;
    for (int64_t i = 1; i < g->segments; i++) {
        const int64_t k = g->call.k * i / g->segments;
        while (neo__leaf_row(&g->call.leaves, leaf + 1) <= k && leaf + 1 < g->call.leaves.count)
            (void)neo__tree_push(&height, leaf++, g->call.leaves.count);
        kept = NEO__MAX(kept, height + (neo__leaf_row(&g->call.leaves, leaf) < k));
    }
    return kept;
}
/* First row of a row of tiles. All have about as many rows, in twos; an odd last row has a tile of
   its own, or joins one of 12. */
NEO__INLINE int64_t neo__gemm_tile_begin(const neo__gemm *g, int64_t tile) {
    if (tile >= g->grid.tiles) return g->call.m;
    return g->even_tiles ? g->call.m / 2 * tile / g->even_tiles * 2 : 0;
}
/* The sizes of tiles and panels. */
static void neo__gemm_plan_tiles(neo__gemm *gemm) {
    const neo__gemm_call *call = &gemm->call;
    const int64_t lanes = gemm->ctx->gemm->lanes, dot_rows = gemm->ctx->gemm->dot_rows;
    const int64_t threads = gemm->ctx->threads;
    int64_t dots = NEO__GEMM_DOT_MOST;
    if (threads > 1) dots = NEO__MIN(dots, call->n / (4 * threads * dot_rows));
    gemm->width = gemm->dots         ? NEO__MAX(dots, (int64_t)NEO__GEMM_DOT_TILES) * dot_rows
                  : call->n <= lanes ? lanes
                                     : 2 * lanes;
    gemm->tile_rows = gemm->ctx->gemm->rows;
    if (gemm->ctx->gemm->rows8 && !gemm->dots && (call->m == 1 || gemm->by_rows) &&
        call->n >= 8 * lanes) {
        gemm->width = 8 * lanes;
        gemm->tile_rows = gemm->by_rows && call->n % gemm->width == 0
                              ? (int64_t)NEO__GEMM_SHALLOW_ROWS /* no buffer is needed */
                              : NEO__TILE_MAX_FLOATS / gemm->width;
    } else if (gemm->width == lanes && call->a_k == 1 && call->a_row % 1024 == 0)
        gemm->tile_rows = NEO__MIN(gemm->tile_rows, 8); /* which share places in a cache */
    gemm->grid.panels = (call->n + gemm->width - 1) / gemm->width;
    const int narrow = !gemm->dots && gemm->width == 2 * lanes &&
                       call->n - (gemm->grid.panels - 1) * gemm->width <= lanes;
    gemm->last_width = narrow ? lanes : gemm->width;
    gemm->even_tiles = (call->m / 2 + gemm->tile_rows / 2 - 1) / (gemm->tile_rows / 2);
    gemm->grid.tiles = gemm->even_tiles + call->m % 2;
    if (gemm->tile_rows == 14 && call->m % 2 && gemm->even_tiles > 0 &&
        neo__gemm_tile_begin(gemm, gemm->even_tiles - 1) + 13 == call->m)
        gemm->grid.tiles--;
}
enum {
    NEO__LISTED_BLOCK = 6 << 10,  /* floats of a panel: 24 KiB */
    NEO__LISTED_ROWS = 128,       /* of a task, which lists up to so many */
    NEO__LISTED_PLACES = 1 << 16, /* places */
    NEO__LISTED_PAST = 16,        /* that are written behind a list */
    NEO__LISTED_SAMPLES = 4       /* rows that tell whether so few are 0 that tiles are faster */
};
/* Whether rows list their places; of many rows some tell. */
static int neo__gemm_is_listed(neo_ctx *ctx, const neo__gemm_call *call) {
    int64_t count = 0;
    if (!call->panels || call->m < NEO__LISTED_ROWS / 2) return call->panels != NULL;
    if (call->n <= ctx->gemm->lanes) return 0;
    uint16_t *at = (uint16_t *)(void *)neo__worker_floats(ctx, 0);
    uint16_t *end = at + call->k + NEO__LISTED_PAST;
    for (int64_t i = 0; i < NEO__LISTED_SAMPLES; i++) {
        const float *row = call->a + call->m * i / NEO__LISTED_SAMPLES * call->a_row;
        ctx->gemm->list(at, row, call->k, call->k, end);
        count += *end;
    }
    return count < NEO__LISTED_SAMPLES * call->k / 8 * 7;
}
/* Whether weights step from the rows of tiles of a gradient, of a task's `cols` panels, while these
   are near: the gradient is not written and read again, and what the step reads is fetched while
   the next row is multiplied. With more k it would wait in C between segments; the step's share of
   the time is small then. */
static int neo__gemm_updates(const neo__gemm *g, int64_t cols) {
    return NEO__TRAINS && g->call.update && g->segments == 1 && !g->swapped && !g->by_rows &&
           g->call.k > 0 && g->tile_rows * cols * g->width <= NEO__GEMM_ROW_FLOATS;
}
/* Tiles apply a relu themselves. */
NEO__INLINE int neo__gemm_finishes_relu(const neo__gemm_call *c) {
    return c->finish.act == NEO_ACT_RELU && !c->finish.backward && !c->finish.y;
}
/* Whether few samples are multiplied by weights in place, whose rows share no places in a cache;
   and the tasks, each of which packs the samples. */
static int neo__gemm_plan_turned(neo__gemm *gemm) {
    const neo__gemm_call *call = &gemm->call;
    neo_ctx *ctx = gemm->ctx;
    const int64_t m = call->m, n = call->n, width = 2 * ctx->gemm->lanes, rows = ctx->gemm->rows,
                  samples = (m + width - 1) / width * width, threads = ctx->threads,
                  tasks = neo__work_is_shared(ctx, neo__gemm_ns(ctx, call)) ? threads : 1;
    const int finishes = call->finish.act == NEO_ACT_NONE || neo__gemm_finishes_relu(call);
    if (!NEO__TRAINS || gemm->tree || call->panels || m > NEO__GEMM_FEW_ROWS / 2 ||
        2 * m * tasks > n || samples - m > m / 16 || n % 2 != 0 || call->a_k != 1 ||
        call->b_k != 1 || call->b_col % 8192 == 0 || call->k < 2 * NEO__GEMM_BRIEF ||
        call->beta != 0.0f || call->finish.y || !finishes)
        return 0;
    gemm->grid.tiles = (n + rows - 1) / rows;
    gemm->grid.panels = gemm->grid.col_tasks = 1;
    gemm->grid.row_tasks = NEO__MAX(tasks, samples * n / NEO__TURNED_SUMS + 1);
    return 1;
}
/* Panels that have to be transposed are dear: every task of a column packs them again, so columns
   are cut more readily. */
static void neo__gemm_plan(neo__gemm *gemm) {
    neo__gemm_call *call = &gemm->call;
    gemm->listed = neo__gemm_is_listed(gemm->ctx, call);
    if (gemm->listed) {
        const int64_t most = NEO__MAX(1, NEO__LISTED_PLACES / call->k);
        const int64_t rows = NEO__MIN((int64_t)NEO__LISTED_ROWS, most);
        gemm->grid.tiles = call->m;
        gemm->grid.panels = (call->n - 1) / (8 * gemm->ctx->gemm->lanes) + 1;
        gemm->grid.row_tasks = (call->m + rows - 1) / rows;
        gemm->grid.col_tasks = gemm->ctx->threads > 1 ? gemm->grid.panels : 1;
        return;
    }
    gemm->turned = neo__gemm_plan_turned(gemm);
    if (gemm->turned) return;
    const int thin = neo__gemm_is_thin(gemm);
    gemm->by_rows = neo__gemm_is_shallow(gemm);
    if (call->k == 0) { /* operands may have no memory */
        call->a = call->b = call->c;
        call->a_row = call->a_k = call->b_k = call->b_col = 0;
    }
    const int64_t dear = call->b_col != 1 && !call->panels ? 4 : 1;
    gemm->swapped = !NEO__TREE(gemm) && call->n <= NEO__GEMM_SWAP_COLS &&
                    call->m >= 2 * gemm->ctx->gemm->lanes && call->m > call->n;
    /* If both are k-major the wider is read by lines then, and lanes are full. One leaf is a tree:
       its sums then wait between segments as they are, not in C. */
    if (call->a_row == 1 && call->b_col == 1 && call->k >= NEO__GEMM_BRIEF &&
        call->n > NEO__GEMM_SWAP_COLS && call->n < gemm->ctx->gemm->lanes &&
        call->m >= 8 * gemm->ctx->gemm->lanes &&
        (thin || call->m * call->k < NEO__GEMM_VAST_FLOATS)) {
        gemm->swapped = 1;
        gemm->tree |= thin && call->tree && call->leaves.count == 1;
    }
    if (gemm->swapped) neo__gemm_swap(call);
    gemm->dots = gemm->swapped && call->m == 1 && call->a_k == 1 && call->b_k == 1 &&
                 call->n >= gemm->ctx->gemm->dot_rows;
    neo__gemm_plan_tiles(gemm);
    int64_t longest = NEO__GEMM_SEGMENT;
    if (thin) longest = NEO__MIN(longest, NEO__GEMM_THIN_SEGMENT / (call->m + call->n));
    gemm->segments = gemm->dots ? 1 : NEO__MAX(1, (call->k + longest - 1) / longest);
    gemm->depth = NEO__TREE(gemm) ? neo__tree_depth(call->leaves.count) : 0;
    gemm->kept = NEO__TREE(gemm) ? neo__gemm_kept(gemm) : 0;

    const int64_t segment = NEO__MAX(1, (call->k + gemm->segments - 1) / gemm->segments);
    const int few = !NEO__TREE(gemm) && call->m <= NEO__GEMM_FEW_ROWS;
    int64_t group_floats = NEO__GEMM_GROUP_FLOATS, b_floats = NEO__GEMM_B_FLOATS;
    if (NEO__TREE(gemm)) group_floats = b_floats = NEO__GEMM_LEAF_B_FLOATS; /* one group */
    else if (few) group_floats = NEO__GEMM_FEW_B_FLOATS;
    gemm->a_floats = few ? NEO__GEMM_FEW_A_FLOATS : NEO__GEMM_A_FLOATS;
    gemm->one_place = few;
    gemm->group_panels = NEO__MAX(1, group_floats / (segment * gemm->width));
    gemm->block_tiles =
        few ? gemm->grid.tiles : NEO__MAX(1, gemm->a_floats / (segment * gemm->tile_rows));
    int64_t rows = gemm->grid.tiles;
    int64_t cols = gemm->grid.panels;
    if (!few) cols = NEO__MIN(cols, NEO__MAX(1, b_floats / (segment * gemm->width)));
    const int64_t places = NEO__GEMM_SUM_FLOATS / (gemm->tile_rows * gemm->width) - gemm->depth;
    const int64_t sums = gemm->kept > 0 ? places / gemm->kept : INT64_MAX;
    neo__gemm_cut(&gemm->grid, call, gemm->ctx, gemm->tile_rows, gemm->width, sums, dear, &rows,
                  &cols);
    if (gemm->ctx->threads > 1 && call->m % 2 == 0 && !gemm->by_rows) { /* tasks alike */
        const int64_t tasks = gemm->grid.row_tasks;
        const int64_t tiles = (gemm->grid.tiles + tasks - 1) / tasks * tasks;
        if (tiles <= call->m / 2) gemm->even_tiles = gemm->grid.tiles = tiles;
    }
    gemm->pack_b = !gemm->dots && !call->panels &&
                   (call->b_col != 1 || (rows >= 3 && !gemm->by_rows));
    if (few) /* nobody fetches a task's first group */
        gemm->group_panels =
            NEO__MIN(gemm->group_panels, (cols + NEO__GEMM_GROUPS - 1) / NEO__GEMM_GROUPS);
    if (NEO__TRAINS) { /* alike: the last of them fetch what comes next, too */
        const int64_t groups = (cols + gemm->group_panels - 1) / gemm->group_panels;
        const int64_t blocks = (rows + gemm->block_tiles - 1) / gemm->block_tiles;
        gemm->group_panels = (cols + groups - 1) / groups;
        gemm->block_tiles = (rows + blocks - 1) / blocks;
    }
    const int no_room = gemm->dots && call->k > gemm->a_floats; /* all of k is one segment */
    if (thin) gemm->pack_a = gemm->pack_b = 0;
    else if (gemm->by_rows || no_room) gemm->pack_a = 0;
    else if (call->a_row == 1)
        gemm->pack_a =
            cols >= 4 || (call->a_k >= 512 && call->m * call->k >= NEO__GEMM_VAST_FLOATS);
    else { /* rows that share places in a cache, or are read again and again: if 14 do, whose lines
              end at the same k, sooner */
        const int tall = NEO__TRAINS && gemm->tile_rows == 14 && call->m >= 2 * gemm->tile_rows;
        const int64_t again = !tall ? 64 : few ? 8 : 24;
        gemm->pack_a = (call->a_row % 1024 == 0 && cols >= 2) || cols >= again;
    }
    gemm->updates = neo__gemm_updates(gemm, cols);
    gemm->keeps = gemm->ctx->threads > 1 && gemm->grid.row_tasks * gemm->grid.col_tasks > 1 &&
                  rows <= gemm->block_tiles && rows * gemm->tile_rows * call->k <= gemm->a_floats;
    gemm->keeps_b = gemm->keeps && gemm->segments == 1 && (!few || cols <= gemm->group_panels);
    if (gemm->keeps) memset(gemm->packed, 0, sizeof gemm->packed);
}

/* ---- leaves ---- */
typedef struct neo__gemm_walk {
    int leaf, height, open; /* open: the leaf has begun in an earlier segment */
    int64_t k;
} neo__gemm_walk;

/* The pieces of the segment [walk->k, end), and the walk moved behind it. */
static int neo__gemm_pieces(const neo__gemm *gemm, neo__gemm_walk *walk, int64_t end,
                            neo__gemm_piece *piece) {
    const neo__leaf_cut *leaves = &gemm->call.leaves;
    int count = 0;
    while (walk->leaf < leaves->count) {
        const int64_t leaf_end = neo__leaf_row(leaves, walk->leaf + 1);
        const int64_t stop = NEO__MIN(leaf_end, end);
        if (leaf_end > end && stop == walk->k) break;
        neo__gemm_piece *p = &piece[count++];
        p->count = (int32_t)(stop - walk->k);
        p->resume = walk->open;
        p->slot = walk->height;
        p->last = p->merges = 0;
        walk->k = stop;
        walk->open = leaf_end > end;
        if (walk->open) break;
        p->last = walk->leaf == leaves->count - 1;
        p->merges = neo__tree_push(&walk->height, walk->leaf++, leaves->count);
    }
    return count;
}

/* ---- a tile ---- */
typedef struct neo__gemm_place {
    int64_t m0, rows, n0, cols, width; /* rows x cols of C, in a panel of `width` */
    float *c;                          /* there */
    int64_t c_row;
    int first, final;                  /* segment */
} neo__gemm_place;

NEO__INLINE int64_t neo__tile_at(int64_t rows) { return rows == 13 ? 8 : rows / 2; }
NEO__INLINE void neo__gemm_kernel(const neo__gemm *g, const neo__tile *t, int64_t rows,
                                  int64_t width) {
    const neo__gemm_kernels *kern = g->ctx->gemm;
    if (g->dots) kern->dots(t);
    else if (g->width == 8 * kern->lanes) kern->rows8(t);
    else if (width == kern->lanes) kern->tile1[neo__tile_at(rows)](t);
    else kern->tile2[neo__tile_at(rows)](t);
}

/* The sums of a tile pass through a buffer where it is narrower than its panel, or C is scaled or
   transposed. */
NEO__INLINE float *neo__gemm_at(const neo__gemm *g, int64_t m, int64_t n) {
    return g->call.c + (g->swapped ? n * g->call.c_row + m : m * g->call.c_row + n);
}
static void neo__gemm_gather(const neo__gemm *g, const neo__gemm_place *p, float scale,
                             float *buffer) {
    const int64_t step = g->swapped ? p->c_row : 1;
    for (int64_t i = 0; i < p->rows; i++, buffer += p->width) {
        const float *from = p->c + (g->swapped ? i : i * p->c_row);
        for (int64_t j = 0; j < p->width; j++)
            buffer[j] = j < p->cols ? scale * from[j * step] : 0.0f;
    }
}
static void neo__gemm_scatter(const neo__gemm *gemm, const neo__gemm_place *place,
                              const float *buffer) {
    const float *bias = gemm->swapped && place->final ? gemm->call.bias : NULL;
    const int64_t step = place->c_row;
    for (int64_t i = 0; i < place->rows; i++, buffer += place->width) {
        float *to = place->c + (gemm->swapped ? i : i * step);
        if (!gemm->swapped) memcpy(to, buffer, (size_t)place->cols * sizeof *to);
        else if (!bias)
            for (int64_t j = 0; j < place->cols; j++) to[j * step] = buffer[j];
        else
            for (int64_t j = 0; j < place->cols; j++)
                to[j * step] = buffer[j] + bias[place->m0 + i];
    }
}

/* The tile holds the operands of the segment; its k and everything about C is set here. */
static void neo__gemm_tile(const neo__gemm *gemm, neo__tile *tile, const neo__gemm_place *place) {
    float buffer[NEO__TILE_MAX_FLOATS], bias[NEO__TILE_MAX_FLOATS];
    const neo__gemm_call *c = &gemm->call;
    const float scale = place->first ? c->beta : 1.0f;
    const int direct =
        place->cols == place->width && !gemm->swapped && (scale == 0.0f || scale == 1.0f);
    const int finish = place->final && !gemm->swapped;
    tile->c = direct ? place->c : buffer;
    tile->c_row = direct ? place->c_row : place->width;
    tile->init = scale != 0.0f ? tile->c : NULL;
    tile->init_row = tile->c_row;
    if (!direct && tile->init) neo__gemm_gather(gemm, place, scale, buffer);
    tile->bias = finish && c->bias ? c->bias + place->n0 : NULL;
    tile->relu = finish && neo__gemm_finishes_relu(c);
    tile->streams = direct && neo__gemm_streams(gemm);
    if (tile->bias && !direct) {
        for (int64_t j = 0; j < place->width; j++) bias[j] = j < place->cols ? tile->bias[j] : 0.0f;
        tile->bias = bias;
    }
    neo__gemm_kernel(gemm, tile, place->rows, place->width);
    if (!direct) neo__gemm_scatter(gemm, place, buffer);
}

/* The same over leaves; kept: what waits of this tile between segments, sums: of every tile inside
   of one. Only the whole goes to C. */
static void neo__gemm_tree_tile(const neo__gemm *gemm, neo__tile *tile,
                                const neo__gemm_place *place, const neo__gemm_piece *piece,
                                int pieces, float *kept, float *sums) {
    float buffer[NEO__TILE_MAX_FLOATS], *slot[NEO__GEMM_MAX_DEPTH];
    const int64_t step = gemm->tile_rows * gemm->width;
    const int direct = place->cols == place->width && !gemm->swapped;
    for (int i = 0; i < gemm->depth; i++) slot[i] = (i < gemm->kept ? kept : sums) + i * step;
    tile->piece = piece, tile->pieces = pieces;
    tile->slot = slot, tile->init_row = place->width;
    tile->c = direct ? place->c : buffer;
    tile->c_row = direct ? place->c_row : place->width;
    neo__gemm_kernel(gemm, tile, place->rows, place->width);
    if (!direct && piece[pieces - 1].last) neo__gemm_scatter(gemm, place, buffer);
}

/* ---- a task ---- */
/* Rows [m0, m1), columns [n0, n1) of C as the caller knows it are done. */
static void neo__gemm_finish_rows(const neo__gemm *gemm, int64_t m0, int64_t m1, int64_t n0,
                                  int64_t n1) {
    const neo__gemm_call *c = &gemm->call;
    const neo__gemm_finish *f = &c->finish;
    const neo__vec_kernels *vec = gemm->ctx->vec;
    if (f->act == NEO_ACT_NONE && !f->y) return;
    const int whole = c->c_row == n1 - n0 && (!f->y || f->y_row == c->c_row) &&
                      (!f->z || f->z_row == c->c_row); /* contiguous: one call */
    const int64_t calls = whole ? 1 : m1 - m0, count = whole ? (m1 - m0) * (n1 - n0) : n1 - n0;
    for (int64_t i = m0; i < m0 + calls; i++) {
        float *x = c->c + i * c->c_row + n0, *y = f->y ? f->y + i * f->y_row + n0 : NULL;
        const float *z = f->z ? f->z + i * f->z_row + n0 : NULL;
        if (NEO__TRAINS && f->backward) vec->act_backward(f->act, z, y, x, x, count);
        else vec->act_forward(f->act, x, y ? y : x, count);
    }
}

/* The weights of rows [m0, m1), columns [n0, n1) step from this part of their gradient. */
static void neo__gemm_update_rows(const neo__gemm *gemm, const float *grad, int64_t m0, int64_t m1,
                                  int64_t n0, int64_t n1) {
    const neo__update *update = gemm->call.update;
    const int64_t cols = n1 - n0, whole = cols == gemm->call.n, calls = whole ? 1 : m1 - m0;
    for (int64_t i = 0; i < calls; i++) {
        const int64_t at = (m0 + i) * gemm->call.n + n0;
        float *const *s = update->span->state, *state[2];
        for (int k = 0; k < 2; k++) state[k] = s[k] ? s[k] + at : NULL;
        gemm->ctx->vec->step[update->kind](&update->step, update->span->w + at, grad + i * cols,
                                           state[0], state[1], whole ? (m1 - m0) * cols : cols);
    }
}

/* Column n of B from k on. */
NEO__INLINE const float *neo__gemm_b_at(const neo__gemm_call *c, int64_t k, int64_t n) {
    return c->b + k * c->b_k + n * c->b_col;
}
/* Whether whole panels of B are packed by the tiles that read them first, which takes them no
   longer: of as many rows as a kernel needs for it. Of B that is far they wait for each k. */
static int neo__gemm_keeps_b(const neo__gemm *g, const neo__gemm_box *box) {
    const int64_t rows = neo__gemm_tile_begin(g, box->t0 + 1) - neo__gemm_tile_begin(g, box->t0);
    return NEO__TRAINS && g->pack_b && g->call.b_col == 1 && !g->swapped && rows % 2 == 0 &&
           rows >= g->ctx->gemm->rows - 2 && g->width == 2 * g->ctx->gemm->lanes &&
           box->k1 - box->k0 >= NEO__GEMM_BRIEF && g->call.n * g->call.k <= NEO__GEMM_FAR_FLOATS;
}
/* The panels of B; whole: those, too, of which nothing is missing. */
static void neo__gemm_pack_b(const neo__gemm *gemm, float *to, const neo__gemm_box *box,
                             int whole) {
    const neo__gemm_call *c = &gemm->call;
    const neo__gemm_kernels *kern = gemm->ctx->gemm;
    const int64_t count = box->k1 - box->k0;
    for (int64_t p = box->p0; p < box->p1 && !gemm->dots; p++, to += gemm->width * count) {
        const int64_t n0 = p * gemm->width, cols = NEO__MIN(gemm->width, c->n - n0);
        const int64_t width = p == gemm->grid.panels - 1 ? gemm->last_width : gemm->width;
        const float *from = neo__gemm_b_at(c, box->k0, n0);
        if (c->panels || (!gemm->pack_b && cols == width)) continue;
        if (!whole && cols == gemm->width) continue;
        if (c->b_col == 1) kern->pack(to, width, from, c->b_k, count, cols);
        else kern->pack_transposed(to, width, from, c->b_col, count, cols);
    }
}
/* A's rows of tiles, each to its own panel. Where A lies k-major, a few k at a time for all of
   them: its lines are longer than a tile, and far apart. */
static void neo__gemm_pack_a(const neo__gemm *gemm, float *to, const neo__gemm_box *box) {
    const neo__gemm_call *call = &gemm->call;
    const neo__gemm_kernels *kern = gemm->ctx->gemm;
    const int64_t base = neo__gemm_tile_begin(gemm, box->t0), depth = box->k1 - box->k0;
    const int64_t step = call->a_row == 1 ? 16 : depth;
    for (int64_t k = box->k0; k < box->k1; k += step) {
        const int64_t count = NEO__MIN(step, box->k1 - k);
        for (int64_t t = box->t0; t < box->t1; t++) {
            const int64_t m0 = neo__gemm_tile_begin(gemm, t);
            const int64_t rows = neo__gemm_tile_begin(gemm, t + 1) - m0;
            const float *from = call->a + m0 * call->a_row + k * call->a_k;
            float *panel = to + (m0 - base) * depth + (k - box->k0) * rows;
            if (call->a_row == 1) kern->pack(panel, rows, from, call->a_k, count, rows);
            else kern->pack_transposed(panel, rows, from, call->a_row, count, rows);
        }
    }
}

/* Rows of memory, `row` floats apart, of `lines` lines each, which tiles fetch ahead. */
typedef struct neo__gemm_fetch {
    const float *at;
    int64_t row, lines, rows;
} neo__gemm_fetch;
typedef struct neo__gemm_scratch {
    float *b, *a, *sums;
    float *group; /* of panels that are multiplied, in b */
    float *row; /* of tiles of the gradient */
    int64_t first_tile; /* of the task, whose sums come first */
    neo__gemm_piece *piece;
    int pieces, fetches_b;
    int keeps_b; /* the first row of tiles packs whole panels of B */
    const neo__gemm_box *task; /* of the segment */
    neo__gemm_fetch y, next_c, next_b, next_a; /* one after the other */
    int has_a, has_b; /* they are packed, by a task before */
} neo__gemm_scratch;

/* [rows][floats] from `at` on; rows that follow one another are cut anew. */
static neo__gemm_fetch neo__gemm_fetch_part(const float *at, int64_t row, int64_t rows,
                                            int64_t floats) {
    NEO__ZERO(neo__gemm_fetch, fetch);
    const int apart = row % 16 != 0 || (uintptr_t)at % 64 != 0; /* rows begin inside of lines */
    fetch.at = at, fetch.row = row, fetch.rows = rows;
    fetch.lines = (floats + 15) / 16 + apart;
    if (row != floats) return fetch;
    fetch.row = 16 * 32, fetch.lines = 32;
    fetch.rows = (rows * floats + 16 * 32 - 1) / (16 * 32);
    return fetch;
}
/* The group of B's panels [p0, end) from k0 on, which is packed next. */
static neo__gemm_fetch neo__gemm_fetch_b(const neo__gemm *gemm, int64_t p0, int64_t end,
                                         int64_t k0, int64_t depth) {
    const neo__gemm_call *c = &gemm->call;
    const int64_t p1 = NEO__MIN(p0 + gemm->group_panels, end), n0 = p0 * gemm->width;
    const int64_t cols = NEO__MIN(p1 * gemm->width, c->n) - n0;
    const float *at = neo__gemm_b_at(c, k0, n0);
    return c->b_col == 1 ? neo__gemm_fetch_part(at, c->b_k, depth, cols)
                         : neo__gemm_fetch_part(at, c->b_col, cols, depth);
}
/* The rows of A in the rows of tiles [t0, t1), from k0 on, which are packed, or read, next. */
static neo__gemm_fetch neo__gemm_fetch_a(const neo__gemm *gemm, int64_t t0, int64_t t1, int64_t k0,
                                         int64_t depth) {
    const neo__gemm_call *c = &gemm->call;
    const int64_t m0 = neo__gemm_tile_begin(gemm, t0), rows = neo__gemm_tile_begin(gemm, t1) - m0;
    const float *at = c->a + m0 * c->a_row + k0 * c->a_k;
    return c->a_row == 1 ? neo__gemm_fetch_part(at, c->a_k, depth, rows)
                         : neo__gemm_fetch_part(at, c->a_row, rows, depth);
}
/* y, whose activation's derivative a row of tiles is multiplied with in the end. */
static neo__gemm_fetch neo__gemm_fetch_y(const neo__gemm *gemm, int64_t tile,
                                         const neo__gemm_box *box) {
    const neo__gemm_finish *y = &gemm->call.finish;
    const int64_t m0 = neo__gemm_tile_begin(gemm, tile), n0 = box->p0 * gemm->width;
    return neo__gemm_fetch_part(y->y + m0 * y->y_row + n0, y->y_row,
                                neo__gemm_tile_begin(gemm, tile + 1) - m0,
                                NEO__MIN(box->p1 * gemm->width, gemm->call.n) - n0);
}
/* c, or what lies like it, of the row of tiles that comes after `tile`: in the part, in the next
   group of panels, or in the next block or segment of the task. */
static neo__gemm_fetch neo__gemm_fetch_c(const neo__gemm *gemm, const neo__gemm_box *task,
                                         const neo__gemm_box *part, int64_t tile, const float *c) {
    int64_t t = tile + 1, p0 = part->p0, p1 = part->p1;
    if (t == part->t1) {
        if (p1 < task->p1) t = part->t0, p0 = p1;
        else p0 = task->p0, t = t < task->t1 ? t : task->t0;
        p1 = NEO__MIN(p0 + gemm->group_panels, task->p1);
    }
    const int64_t m0 = neo__gemm_tile_begin(gemm, t), n0 = p0 * gemm->width;
    return neo__gemm_fetch_part(c + m0 * gemm->call.c_row + n0, gemm->call.c_row,
                                neo__gemm_tile_begin(gemm, t + 1) - m0,
                                NEO__MIN(p1 * gemm->width, gemm->call.n) - n0);
}

/* Lines that a row of tiles fetches besides those of the next group of B. */
static void neo__gemm_fetch_more(const neo__gemm *gemm, neo__gemm_scratch *scratch,
                                 const neo__gemm_box *box, int64_t tile,
                                 const neo__gemm_place *place) {
    const neo__gemm_call *call = &gemm->call;
    const neo__optim_span *step = gemm->updates ? call->update->span : NULL;
    const int64_t depth = box->k1 - box->k0;
    const int fetch_c = depth >= NEO__GEMM_FETCH_DEPTH && (place->final || !NEO__TREE(gemm)) &&
                        (!place->first || call->m * call->n >= NEO__GEMM_FETCH_FLOATS);
    if (place->final && !scratch->fetches_b && call->finish.backward && call->finish.y)
        scratch->y = neo__gemm_fetch_y(gemm, tile, box);
    if (fetch_c)
        scratch->next_c =
            neo__gemm_fetch_c(gemm, scratch->task, box, tile, step ? step->w : call->c);
    if (fetch_c && step && step->state[0])
        scratch->y = neo__gemm_fetch_c(gemm, scratch->task, box, tile, step->state[0]);
    if (!gemm->pack_a && tile + 1 < box->t1 && call->m * call->k >= NEO__GEMM_FAR_FLOATS)
        scratch->next_a = neo__gemm_fetch_a(gemm, tile + 1, tile + 2, box->k0, depth);
}
/* In how many k a row of tiles of so many fetches a line: more lines than need be at a time wait
   for one another, and what is multiplied for them. */
static int64_t neo__gemm_fetch_pace(const neo__gemm *gemm, const neo__gemm_scratch *scratch,
                                    const neo__gemm_box *part, int64_t tile, int64_t steps) {
    const neo__gemm_fetch *y = &scratch->y, *c = &scratch->next_c;
    const neo__gemm_fetch *b = &scratch->next_b, *a = &scratch->next_a;
    const int64_t later = part->t1 - tile; /* those, too, fetch of what is packed next */
    const int64_t lines = y->rows * y->lines + c->rows * c->lines + b->rows * b->lines / later +
                          a->rows * a->lines / (gemm->pack_a ? later : 1);
    return 4 * lines <= steps ? 4 : 2 * lines <= steps || gemm->pack_a ? 2 : 1;
}

/* The part of B at place: as it is, or packed. */
static void neo__gemm_tile_b(const neo__gemm *gemm, const neo__gemm_scratch *scratch,
                             const neo__gemm_place *place, const neo__gemm_box *box,
                             neo__tile *tile) {
    const neo__gemm_call *call = &gemm->call;
    if (gemm->dots) {
        tile->b = call->b + place->n0 * call->b_col;
        tile->b_col = call->b_col, tile->b_cols = place->cols;
        const int64_t ahead = NEO__GEMM_DOT_TILES * gemm->ctx->gemm->dot_rows;
        if (call->n * call->k >= NEO__GEMM_FAR_FLOATS &&
            place->n0 + gemm->width + ahead <= call->n)
            tile->fetch = tile->b + ahead * tile->b_col;
    } else if (call->panels) {
        tile->b_k = 2 * gemm->ctx->gemm->lanes;
        tile->b = call->panels + place->n0 * (call->k + 1) + box->k0 * tile->b_k;
        tile->b_panel = tile->b_k * (call->k + 1);
    } else if (gemm->pack_b || place->cols < place->width) {
        float *packed = scratch->group + (place->n0 - box->p0 * gemm->width) * tile->k;
        tile->b = packed;
        tile->b_k = tile->panels > 1 ? gemm->width : place->width;
        tile->b_panel = gemm->width * tile->k;
        tile->keep = NULL;
        if (!NEO__TRAINS || !scratch->keeps_b || place->cols < gemm->width) return;
        tile->keep = packed;
        tile->b = neo__gemm_b_at(call, box->k0, place->n0), tile->b_k = call->b_k;
        if (box->k0 > 0 || box->p0 > scratch->task->p0) return;
        tile->fetch = tile->b + 24 * tile->b_k; /* nobody has */
        tile->fetch_step = tile->b_k, tile->fetch_row = 32 * tile->b_k;
        tile->fetch_count = 32;
    } else {
        tile->b = call->b + box->k0 * call->b_k + place->n0;
        tile->b_k = call->b_k, tile->b_panel = gemm->width;
        const int eights = call->m == 1 && gemm->width == 8 * gemm->ctx->gemm->lanes;
        if (eights && call->n * call->k >= NEO__GEMM_VAST_FLOATS) tile->fetch = tile->b;
        if (!gemm->swapped) return;
        /* its lines lie far apart: those that the next segment reads (of whole rows a panel's
           share, in the order of memory), or others further on */
        const int next = NEO__TREE(gemm) && box->k1 < call->k;
        tile->fetch = tile->b + (next ? tile->k : 24) * tile->b_k;
        tile->fetch_step = tile->b_k, tile->fetch_row = 32 * tile->b_k;
        tile->fetch_count = 32;
        const int64_t panels = gemm->grid.panels, share = (tile->k + panels - 1) / panels;
        if (!next || box->p1 - box->p0 < panels) return;
        tile->fetch = neo__gemm_b_at(call, box->k1 + share * (place->n0 / gemm->width), 0);
        tile->fetch_step = gemm->width, tile->fetch_row = tile->b_k, tile->fetch_count = panels;
    }
}
/* A row of tiles along the panels of a segment. */
static void neo__gemm_tile_row(const neo__gemm *gemm, neo__gemm_scratch *scratch,
                               const neo__gemm_box *box, int64_t tile) {
    const neo__gemm_call *call = &gemm->call;
    const int64_t depth = box->k1 - box->k0, panels = box->p1 - box->p0;
    NEO__ZERO(neo__tile, t);
    neo__gemm_place place;
    place.m0 = neo__gemm_tile_begin(gemm, tile);
    place.rows = t.rows = neo__gemm_tile_begin(gemm, tile + 1) - place.m0;
    place.first = box->k0 == 0;
    place.final = box->k1 == call->k;
    const int64_t n0 = box->p0 * gemm->width, n1 = NEO__MIN(box->p1 * gemm->width, call->n);
    place.c_row = NEO__TRAINS && gemm->updates ? n1 - n0 : call->c_row;
    t.a_row = gemm->pack_a ? 1 : call->a_row;
    t.a_k = gemm->pack_a ? place.rows : call->a_k;
    const float *a = gemm->pack_a
                         ? scratch->a + (place.m0 - neo__gemm_tile_begin(gemm, box->t0)) * depth
                         : call->a + place.m0 * call->a_row + box->k0 * call->a_k;
    const int together = gemm->by_rows || neo__gemm_is_brief(gemm);
    const int64_t sum_floats = gemm->tile_rows * gemm->width;
    float *kept = scratch->sums + gemm->depth * sum_floats +
                  (tile - scratch->first_tile) * panels * gemm->kept * sum_floats;
    scratch->next_c.rows = 0;
    if (NEO__TRAINS && !gemm->swapped) neo__gemm_fetch_more(gemm, scratch, box, tile, &place);
    const int64_t pace =
        NEO__TRAINS ? neo__gemm_fetch_pace(gemm, scratch, box, tile, panels * depth) : 1;
    for (int64_t panel = box->p0; panel < box->p1; panel += t.panels) {
        t.panels =
            together ? NEO__MAX(1, NEO__MIN(box->p1, call->n / gemm->width) - panel) : 1;
        place.n0 = panel * gemm->width;
        place.cols = NEO__MIN(t.panels * gemm->width, call->n - place.n0);
        place.width = panel == gemm->grid.panels - 1 ? gemm->last_width : t.panels * gemm->width;
        place.c = NEO__TRAINS && gemm->updates ? scratch->row + place.n0 - n0
                                               : neo__gemm_at(gemm, place.m0, place.n0);
        t.a = a, t.k = depth, t.fetch = NULL;
        neo__gemm_fetch *fetch = !NEO__TRAINS               ? &scratch->next_b
                                 : scratch->y.rows > 0      ? &scratch->y
                                 : scratch->next_c.rows > 0 ? &scratch->next_c
                                 : scratch->next_b.rows > 0 ? &scratch->next_b
                                                            : &scratch->next_a;
        if (gemm->width < 8 * gemm->ctx->gemm->lanes && fetch->rows > 0) {
            const int64_t rows = NEO__MAX(1, depth / (pace * fetch->lines));
            t.fetch = fetch->at, t.fetch_row = fetch->row, t.fetch_count = pace * fetch->lines;
            t.fetch_step = 16 / pace;
            fetch->at += rows * fetch->row, fetch->rows -= rows;
        }
        neo__gemm_tile_b(gemm, scratch, &place, box, &t);
        if (NEO__TREE(gemm))
            neo__gemm_tree_tile(gemm, &t, &place, scratch->piece, scratch->pieces, kept,
                                scratch->sums);
        else neo__gemm_tile(gemm, &t, &place);
        kept += gemm->kept * sum_floats;
    }
    if (NEO__TRAINS && gemm->updates)
        neo__gemm_update_rows(gemm, scratch->row, place.m0, place.m0 + place.rows, n0, n1);
    else if (place.final && gemm->swapped)
        neo__gemm_finish_rows(gemm, n0, n1, place.m0, place.m0 + place.rows);
    else if (place.final && !neo__gemm_finishes_relu(call))
        neo__gemm_finish_rows(gemm, place.m0, place.m0 + place.rows, n0, n1);
}

/* A segment of a task. While a group of panels is multiplied, what is packed next is fetched: the
   group behind it and the next block of A, or the first ones of the next segment. */
static void neo__gemm_segment(const neo__gemm *gemm, neo__gemm_scratch *scratch,
                              const neo__gemm_box *box) {
    const int64_t depth = box->k1 - box->k0;
    neo__gemm_box part = *box; /* a block and a group */
    scratch->task = box;
    for (; part.t0 < box->t1; part.t0 = part.t1) {
        part.t1 = NEO__MIN(part.t0 + gemm->block_tiles, box->t1);
        if (gemm->pack_a && !scratch->has_a) neo__gemm_pack_a(gemm, scratch->a, &part);
        for (part.p0 = box->p0; part.p0 < box->p1; part.p0 = part.p1) {
            part.p1 = NEO__MIN(part.p0 + gemm->group_panels, box->p1);
            scratch->group = scratch->b;
            if (!gemm->one_place) scratch->group += (part.p0 - box->p0) * gemm->width * depth;
            const int packs = part.t0 == box->t0, behind = part.p1 < box->p1;
            const int keeps = packs && !scratch->has_b && neo__gemm_keeps_b(gemm, &part);
            if (packs && !scratch->has_b) neo__gemm_pack_b(gemm, scratch->group, &part, !keeps);
            const int next = part.t1 == box->t1 && box->k1 < gemm->call.k;
            scratch->fetches_b = gemm->pack_b && (behind ? packs : next);
            scratch->y.rows = scratch->next_b.rows = scratch->next_a.rows = 0;
            if (scratch->fetches_b)
                scratch->next_b =
                    neo__gemm_fetch_b(gemm, behind ? part.p1 : box->p0, box->p1,
                                      behind ? box->k0 : box->k1, depth);
            const int last = packs ? !behind : part.p0 == box->p0; /* or nothing else to fetch */
            if (NEO__TRAINS && gemm->pack_a && !scratch->has_a && last &&
                (part.t1 < box->t1 || next)) {
                const int64_t t0 = next ? box->t0 : part.t1;
                scratch->next_a =
                    neo__gemm_fetch_a(gemm, t0, NEO__MIN(t0 + gemm->block_tiles, box->t1),
                                      next ? box->k1 : box->k0, depth);
            }
            for (int64_t t = part.t0; t < part.t1; t++) {
                scratch->keeps_b = keeps && t == part.t0;
                neo__gemm_tile_row(gemm, scratch, &part, t);
            }
        }
    }
}

/* ---- rows of many zeros, as behind a relu, by weights that do not change ----
   0 b changes no sum of finite b but the sign of one that is 0, which the bias hides, as it is
   nowhere -0. So a row lists its places of k that are not 0; the others are skipped. The part of a
   panel for a block of k stays in the first-level cache from row to row. */
static void neo__gemm_listed(const neo__gemm *gemm, const neo__gemm_box *box, float *sums) {
    const neo__gemm_call *c = &gemm->call;
    const int64_t width = 8 * gemm->ctx->gemm->lanes, rows = box->t1 - box->t0;
    const int64_t depth = rows > 1 ? NEO__LISTED_BLOCK / width : c->k;
    const int64_t blocks = (c->k + depth - 1) / depth;
    uint16_t *at = (uint16_t *)(void *)(sums + rows * width);
    uint16_t *ends = at + rows * c->k + NEO__LISTED_PAST;
    NEO__ZERO(neo__tile, t);
    for (int64_t i = 0; i < rows; i++)
        gemm->ctx->gemm->list(at + i * c->k, c->a + (box->t0 + i) * c->a_row, c->k, depth,
                              ends + i * blocks);
    t.rows = rows, t.a = c->a + box->t0 * c->a_row, t.a_row = c->a_row;
    t.b_panel = width / 4 * (c->k + 1);
    t.at = at, t.at_row = c->k;
    t.ends_row = blocks, t.init_row = width;
    for (int64_t p = box->p0; p < box->p1; p++) {
        const int64_t cols = NEO__MIN(width, c->n - p * width);
        const int half = 2 * cols <= width, whole = cols == (half ? width / 2 : width);
        t.b = c->panels + p * width * (c->k + 1);
        t.panels = half ? 2 : 4;
        for (int64_t q = 0; q < blocks; q++) {
            const int last = q == blocks - 1;
            t.ends = ends + q;
            t.init = q > 0 ? sums : NULL;
            t.bias = last ? t.b + c->k * (width / 4) : NULL;
            t.relu = last && neo__gemm_finishes_relu(c);
            t.c = last && whole ? c->c + box->t0 * c->c_row + p * width : sums;
            t.c_row = last && whole ? c->c_row : width;
            gemm->ctx->gemm->listed(&t);
        }
        for (int64_t i = 0; !whole && i < rows; i++)
            memcpy(c->c + (box->t0 + i) * c->c_row + p * width, sums + i * width,
                   (size_t)cols * sizeof *sums);
    }
    if (!neo__gemm_finishes_relu(c))
        neo__gemm_finish_rows(gemm, box->t0, box->t1, box->p0 * width,
                              NEO__MIN(box->p1 * width, c->n));
}

static void neo__gemm_task(void *arg, int64_t index, int worker) {
    neo__gemm *gemm = (neo__gemm *)arg;
    neo__gemm_box box = neo__gemm_task_box(&gemm->grid, index);
    NEO__ZERO(neo__gemm_scratch, s);
    s.a = neo__worker_floats(gemm->ctx, worker);
    if (gemm->listed) {
        neo__gemm_listed(gemm, &box, s.a);
        return;
    }
    if (NEO__TRAINS && gemm->turned) {
        const int64_t twos = gemm->call.n / 2, tiles = gemm->grid.tiles;
        gemm->ctx->gemm->turned(&gemm->call, 2 * (twos * box.t0 / tiles),
                                2 * (twos * box.t1 / tiles), box.t1 - box.t0, s.a);
        return;
    }
    s.b = s.a + gemm->a_floats;
    s.sums = s.b + NEO__GEMM_LEAF_B_FLOATS;
    s.piece = (neo__gemm_piece *)(void *)(s.sums + NEO__GEMM_SUM_FLOATS);
    if (NEO__TRAINS)
        s.row = NEO__TREE(gemm) ? s.sums + gemm->depth * gemm->tile_rows * gemm->width
                                : s.a + NEO__GEMM_A_FLOATS + NEO__GEMM_B_FLOATS;
    s.first_tile = box.t0;
    if (gemm->keeps && worker < NEO__GEMM_KEEPERS) {
        neo__gemm_packed *packed = &gemm->packed[worker];
        s.has_a = packed->t0 == box.t0 && packed->t1 == box.t1;
        s.has_b = gemm->keeps_b && packed->p0 == box.p0 && packed->p1 == box.p1;
        packed->t0 = box.t0, packed->t1 = box.t1, packed->p0 = box.p0, packed->p1 = box.p1;
    }
    const int64_t rows = neo__gemm_tile_begin(gemm, box.t1) - neo__gemm_tile_begin(gemm, box.t0);
    float *const a = s.a;
    NEO__ZERO(neo__gemm_walk, walk);
    for (int64_t i = 0; i < gemm->segments; i++) {
        box.k0 = gemm->call.k * i / gemm->segments,
        box.k1 = gemm->call.k * (i + 1) / gemm->segments;
        if (gemm->keeps) s.a = a + box.k0 * rows; /* each segment has a place */
        if (NEO__TREE(gemm)) s.pieces = neo__gemm_pieces(gemm, &walk, box.k1, s.piece);
        neo__gemm_segment(gemm, &s, &box);
    }
}

/* ---- the user's BLAS ---- */
#ifdef NEO_SGEMM
static void neo__gemm_finish_task(void *arg, int64_t row, int worker) {
    const neo__gemm *g = (const neo__gemm *)arg;
    const neo__gemm_call *c = &g->call;
    (void)worker;
    if (c->bias) g->ctx->vec->add(c->c + row * c->c_row, c->bias, c->n);
    neo__gemm_finish_rows(g, row, row + 1, 0, c->n);
}
static int neo__gemm_by_hook(neo__gemm *g) {
    const neo__gemm_call *c = &g->call;
    if (NEO__TREE(g) || (double)c->m * (double)c->n * (double)c->k < 32768.0) return 0;
    const int trans_a = c->a_k != 1, trans_b = c->b_col != 1;
    const int64_t a_rows = trans_a ? c->k : c->m, a_cols = trans_a ? c->m : c->k;
    const int64_t b_rows = trans_b ? c->n : c->k, b_cols = trans_b ? c->k : c->n;
    /* a BLAS checks the distance even of one row */
    const int64_t lda = a_rows == 1 ? a_cols : trans_a ? c->a_k : c->a_row;
    const int64_t ldb = b_rows == 1 ? b_cols : trans_b ? c->b_col : c->b_k;
    const int64_t ldc = c->m == 1 ? c->n : c->c_row;
    if (lda < a_cols || ldb < b_cols || ldc < c->n) return 0; /* rows overlap or run backwards */
    NEO_SGEMM(trans_a, trans_b, c->m, c->n, c->k, c->a, lda, c->b, ldb, c->beta, c->c, ldc);
    neo__run_tasks(g->ctx, c->m, neo__gemm_finish_task, g, c->m * c->n / 4);
    return 1;
}
#endif

/* ---- checks ---- */
/* A matrix [rows][cols] with last stride 1. An output's rows may not overlap. */
static neo_status neo__check_matrix_of(const neo_ctx *ctx, neo_dtype dtype, neo_tensor tensor,
                                       int64_t rows, int64_t cols, int output, const char *function,
                                       const char *name) {
    if (tensor.ndim == 0 && !tensor.data)
        return neo__no_data(function, name, tensor, NEO_ERR_SHAPE);
    NEO__CHECK(tensor.ndim == 2 && tensor.dtype == dtype, NEO_ERR_SHAPE,
               "%s: %s is not %s [%" PRId64 "][%" PRId64 "], but of %d dimensions and %s", function,
               name, neo_dtype_name(dtype), rows, cols, (int)tensor.ndim,
               neo_dtype_name(tensor.dtype));
    NEO__CHECK(rows >= 0 && cols >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function,
               name);
    NEO__CHECK(tensor.shape[0] == rows && tensor.shape[1] == cols, NEO_ERR_SHAPE,
               "%s: %s is [%" PRId64 "][%" PRId64 "], expected [%" PRId64 "][%" PRId64 "]",
               function, name, tensor.shape[0], tensor.shape[1], rows, cols);
    if (rows == 0 || cols == 0) return NEO_OK;
    if (!tensor.data) return neo__no_data(function, name, tensor, NEO_ERR_SHAPE);
    NEO__CHECK(cols == 1 || tensor.stride[1] == 1, NEO_ERR_SHAPE,
               "%s: the last stride of %s is %" PRId64 ", not 1", function, name, tensor.stride[1]);
    NEO__CHECK(!output || rows == 1 || tensor.stride[0] >= cols || tensor.stride[0] <= -cols,
               NEO_ERR_SHAPE, "%s: the rows of %s overlap (stride %" PRId64 ")", function, name,
               tensor.stride[0]);
    return neo__check_place(ctx, tensor, function, name);
}
static neo_status neo__check_matrix(const neo_ctx *ctx, neo_tensor t, int64_t rows, int64_t cols,
                                    int output, const char *function, const char *name) {
    return neo__check_matrix_of(ctx, NEO_F32, t, rows, cols, output, function, name);
}
/* The matrix that a product of operands of `dtype` writes. */
static neo_status neo__check_product(const neo_ctx *ctx, neo_dtype dtype, neo_tensor t,
                                     int64_t rows, int64_t cols, const char *function,
                                     const char *name) {
    const neo_dtype own = dtype == NEO_BF16 && t.dtype == NEO_BF16 ? NEO_BF16 : NEO_F32;
    return neo__check_matrix_of(ctx, own, t, rows, cols, 1, function, name);
}
/* The dtype of a product's operands, by one of them. */
NEO__INLINE neo_dtype neo__operand_dtype(neo_tensor t) {
    return t.dtype == NEO_BF16 ? NEO_BF16 : NEO_F32;
}
static neo_status neo__check_vector(const neo_ctx *ctx, neo_tensor t, int64_t count,
                                    const char *fn, const char *name) {
    if (t.ndim == 0 && !t.data) return neo__no_data(fn, name, t, NEO_ERR_SHAPE);
    NEO__CHECK(t.ndim == 1 && t.dtype == NEO_F32 && t.shape[0] == count, NEO_ERR_SHAPE,
               "%s: %s is not an f32 tensor [%" PRId64 "], but %s [%" PRId64 "] of %d dimensions",
               fn, name, count, neo_dtype_name(t.dtype), t.shape[0], (int)t.ndim);
    if (count > 0 && !t.data) return neo__no_data(fn, name, t, NEO_ERR_SHAPE);
    NEO__CHECK(count <= 1 || t.stride[0] == 1, NEO_ERR_SHAPE, "%s: %s is not contiguous", fn, name);
    return neo__check_place(ctx, t, fn, name);
}
/* The bias of a layer whose operands are of `dtype`; or none. */
static neo_status neo__check_bias(const neo_ctx *ctx, neo_dtype dtype, neo_tensor t, int64_t count,
                                  const char *function) {
    if (!neo__given(t)) return NEO_OK;
    if (dtype == NEO_BF16 && t.dtype == NEO_BF16) t.dtype = NEO_F32;
    return neo__check_vector(ctx, t, count, function, "bias");
}
static neo_status neo__check_activation(const char *function, neo_activation act) {
    NEO__CHECK((unsigned)act <= (unsigned)NEO_ACT_GELU_TANH, NEO_ERR_ARG,
               "%s: no activation %d", function, (int)act);
    return NEO_OK;
}
NEO__INLINE float *neo__f32(neo_tensor t) { return (float *)t.data; }

/* c = a b; trans_a, trans_b: of that operand transposed. The shapes have been checked. */
static neo__gemm_call neo__gemm_call_make(neo_tensor a, int trans_a, neo_tensor b, int trans_b,
                                          neo_tensor c) {
    NEO__ZERO(neo__gemm_call, call);
    call.m = a.shape[trans_a ? 1 : 0];
    call.n = b.shape[trans_b ? 0 : 1];
    call.k = a.shape[trans_a ? 0 : 1];
    call.a = neo__f32(a);
    call.a_row = trans_a ? 1 : a.stride[0];
    call.a_k = trans_a ? a.stride[0] : 1;
    call.b = neo__f32(b);
    call.b_k = trans_b ? 1 : b.stride[0];
    call.b_col = trans_b ? b.stride[0] : 1;
    call.c = neo__f32(c);
    call.c_row = c.stride[0];
    call.narrow = a.dtype == NEO_BF16;
    call.narrow_c = c.dtype == NEO_BF16;
    return call;
}
static void neo__gemm_call_finish(neo__gemm_call *call, neo_activation act, int backward,
                                  neo_tensor y, neo_tensor z) {
    call->finish.act = act;
    call->finish.backward = backward;
    call->finish.y = neo__f32(y), call->finish.y_row = y.stride[0];
    call->finish.z = neo__f32(z), call->finish.z_row = z.stride[0];
    call->narrow_y = y.dtype == NEO_BF16;
    call->narrow_z = z.dtype == NEO_BF16;
}
NEO_API neo_status neo_gemm(neo_ctx *ctx, const neo_gemm_desc *desc, neo_tensor a, neo_tensor b,
                            neo_tensor c) {
    static const char *const fn = "neo_gemm";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__ZERO(neo_gemm_desc, d);
    if (desc) d = *desc;
    NEO__CHECK(a.ndim == 2 && b.ndim == 2 && c.ndim == 2, NEO_ERR_SHAPE,
               "%s: a, b and c must have two dimensions", fn);
    NEO__TRY(neo__check_activation(fn, d.act));
    const int64_t m = c.shape[0], n = c.shape[1], k = a.shape[d.trans_a ? 0 : 1];
    const neo_dtype dtype = neo__operand_dtype(a);
    NEO__TRY(neo__check_matrix_of(ctx, dtype, a, d.trans_a ? k : m, d.trans_a ? m : k, 0, fn, "a"));
    NEO__TRY(neo__check_matrix_of(ctx, dtype, b, d.trans_b ? n : k, d.trans_b ? k : n, 0, fn, "b"));
    NEO__TRY(neo__check_product(ctx, dtype, c, m, n, fn, "c"));
    neo_tensor bias = neo_tensor_1d((void *)(uintptr_t)d.bias, NEO_F32, n);
    bias.place = c.place;
    NEO__APART(fn, 1, 0, {&c, "c"}, {&a, "a"}, {&b, "b"}, {&bias, "bias"});
    neo__gemm_call call = neo__gemm_call_make(a, d.trans_a, b, d.trans_b, c);
    call.beta = d.beta;
    call.bias = d.bias;
    call.finish.act = d.act;
    return NEO__RUN(ctx, "neo_gemm", gemm, &call);
}
/* ---------------------------------------------------------------------------
   >>impl-bf16

   C = beta C + A B for bf16 operands, with sums in f32. In every block of 32 k, counted from the
   first k of the product (of the leaf), two chains of fused multiply-adds start at zero, one over
   even k and one over odd k, in order; their sum is added to C. The last block is filled up with
   zeros. Denormals of operands, of C and of every result on the way are zeros of their sign, where
   a result counts as denormal if it is after rounding. That is what AMX does (TDPBF16PS: two chains
   a tile row, then a sum), so the other paths follow:
     vdpbf16ps adds the two products of a pair to one sum, the high one first, each rounded: so
       pairs are made of two even or of two odd k, and no multiply-add is wasted;
     the f32 kernels, with MXCSR or FPCR set to flush, make each chain a product of 16 k. AArch64
       decides before rounding what is denormal: where a flag says that something was flushed, the
       block is done again
     in plain C, for the scalar path, which is the reference.

   C is cut into rectangles, the tasks, which keep sums as f32 in their worker's scratch, tile after
   tile. Where all k of enough columns of B fit there packed, and near, a task packs them once, has
   any number of rows, and keeps sums of a group of rows only; else it goes over slabs of k, and
   keeps all. For every group, segment by segment of k, it packs A and runs the tiles, by AMX along
   the panels: then a row of tiles of A stays in the first-level cache, past which B goes. Then rows
   are finished: bias, activation, rounding to C's dtype. With leaves the scratch holds the subtree
   sums that wait, each a whole rectangle.
   ------------------------------------------------------------------------ */
enum {
    NEO__BF16_WORDS = 256,             /* of a packed row: 256 or 512 k */
    NEO__BF16_LINE = 256 + 16,         /* their distance, not a power of two */
    NEO__BF16_SIDE = 512,              /* rows and columns of a task, at most */
    NEO__BF16_GROUP = 128,             /* rows of A packed together, at most */
    NEO__BF16_C_FLOATS = 1 << 18,      /* 1 MiB */
    NEO__BF16_B_FLOATS = 3 << 17,      /* 1536 KiB, of all k, */
    NEO__BF16_B_COLS = 256,            /* of so many columns at least, */
    NEO__BF16_SLAB_FLOATS = 1 << 18,   /* or 1 MiB, of a slab: beside it C is near, too */
    NEO__BF16_A_FLOATS = 128 * (256 + 16),
    NEO__BF16_SPARE_FLOATS = 128 * 256 /* what is to be transposed */
};
NEO__STATIC_ASSERT(NEO__BF16_C_FLOATS + NEO__BF16_B_FLOATS + NEO__BF16_A_FLOATS +
                           NEO__BF16_SPARE_FLOATS <= NEO__WORKER_FLOATS,
                   "a worker's scratch holds a task of >>impl-bf16");

/* A product of bf16 and its plan. */
typedef struct neo__bf16 {
    neo_ctx *ctx;
    const neo__gemm_call *call;
    int leaves;     /* 1 without a tree */
    int alone;      /* a task's B is packed once, for all k */
    int rows, cols; /* of a tile */
    neo__gemm_grid grid;
} neo__bf16;
NEO__INLINE const uint16_t *neo__halves(const float *address) {
    return (const uint16_t *)(const void *)address;
}

/* ---- kernels ---- */
NEO__INLINE float neo__bf16_flush(float x) {
    return neo__bits_f32(x) & 0x7F800000u ? x : neo__f32_bits(neo__bits_f32(x) & 0x80000000u);
}
/* A chain of 16 k; works in every mode of flushing. */
static float neo__bf16_chain(const float *a, int64_t a_step, const float *b, int64_t b_step) {
    float sum = 0.0f;
    for (int i = 0; i < 16; i++, a += a_step, b += b_step) {
        double exact = neo__fma_odd(neo__bf16_flush(*a), neo__bf16_flush(*b), sum);
        double size = fabs(exact);
        uint32_t small =
            size >= 0x1.ffffffp-127 ? 0x00800000u : 0; /* half a unit below rounds up */
        sum = size < 0x1p-126
                  ? neo__f32_bits(small | (uint32_t)(neo__bits_f64(exact) >> 32 & 0x80000000u))
                  : (float)exact;
    }
    return sum;
}
/* sums = those of one block. */
static void neo__bf16_block_plain(const neo__bf16_tile *t, const float *a, const float *b,
                                  float *sums) {
    for (int r = 0; r < t->rows; r++)
        for (int j = 0; j < t->cols; j++) {
            const float *ar = a + r * t->a_row, *bj = b + j;
            float even = neo__bf16_chain(ar, 2 * t->a_word, bj, 2 * (int64_t)t->cols);
            float odd =
                neo__bf16_chain(ar + t->a_word, 2 * t->a_word, bj + t->cols, 2 * (int64_t)t->cols);
            sums[r * t->cols + j] = neo__bf16_flush(even + odd);
        }
}
static void neo__bf16_tile_plain(const neo__bf16_tile *t) {
    float sums[NEO__TILE_MAX_FLOATS];
    for (int64_t i = 0; i < t->blocks; i++) {
        neo__bf16_block_plain(t, t->a + 32 * i * t->a_word, t->b + 32 * i * t->cols, sums);
        for (int j = 0; j < t->rows * t->cols; j++)
            t->c[j] = neo__bf16_flush(neo__bf16_flush(t->c[j]) + sums[j]);
    }
}
/* Denormals flushed until neo__fp_leave. Kernels are called through pointers, so nothing that they
   compute moves out of it. */
static neo__fp_state neo__fp_enter_flushing(void) {
    neo__fp_state old = neo__fp_enter();
#if defined(__x86_64__) || defined(_M_X64)
    _mm_setcsr(0x1F80u | 0x8000u | 0x40u); /* FTZ, DAZ */
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"((uint64_t)1 << 24)); /* FZ */
#endif
    return old;
}
#if defined(__aarch64__)
NEO__INLINE int neo__bf16_flushed(void) { /* since the last call */
    uint64_t flags, none = 0;
    __asm__ __volatile__("mrs %0, fpsr\n\tmsr fpsr, %1" : "=&r"(flags) : "r"(none) : "memory");
    return (int)(flags >> 3 & 1);
}
#else
NEO__INLINE int neo__bf16_flushed(void) { return 0; }
#endif
static void neo__bf16_tile_by_f32(const neo__bf16_tile *t) {
    float sums[2][NEO__TILE_MAX_FLOATS]; /* tiles of what only predicts merge nothing */
    static const neo__gemm_piece right = {16, 0, 1, 1, 1};
    float *const left = sums[0];
    const neo__tile_fn tile = t->f32->tile2[t->rows / 2];
    NEO__ZERO(neo__tile, half);
    half.k = 16;
    half.a_row = t->a_row, half.a_k = 2 * t->a_word;
    half.b_k = 2 * (int64_t)t->cols;
    half.c_row = half.init_row = t->cols;
    half.pieces = 1, half.slot = &left;
    (void)neo__bf16_flushed();
    for (int64_t i = 0; i < t->blocks; i++) {
        const float *a = t->a + 32 * i * t->a_word, *b = t->b + 32 * i * t->cols;
        half.a = a, half.b = b, half.c = sums[0], half.piece = NULL;
        tile(&half);
        half.a = a + t->a_word, half.b = b + t->cols, half.c = sums[!NEO__TRAINS];
        half.piece = &right;
        tile(&half);
        if (!NEO__TRAINS) t->add(sums[0], sums[1], (int64_t)t->rows * t->cols);
        if (neo__bf16_flushed()) neo__bf16_block_plain(t, a, b, sums[0]);
        t->add(t->c, sums[0], (int64_t)t->rows * t->cols);
    }
}

/* ---- a task ---- */
/* `count` numbers and zeros to the end of the block. */
static void neo__bf16_pack_row(const neo__bf16 *g, float *to, const uint16_t *from, int64_t count) {
    const neo__bf16_kernels *kern = g->ctx->bf16;
    if (kern) {
        kern->pack_row(to, from, count, kern->chains);
        return;
    }
    g->ctx->tensor->f32_from_bf16(to, from, count);
    for (; count % 32; count++) to[count] = 0.0f;
}
/* The same of `cols` rows of k side by side, zeros up to `width`. */
static void neo__bf16_pack_cols(const neo__bf16 *product, float *to, int64_t width,
                                const uint16_t *from, int64_t ld, int64_t count, int64_t cols) {
    const neo__bf16_kernels *kern = product->ctx->bf16;
    if (kern) {
        kern->pack(to, width, from, ld, count, cols, kern->chains);
        return;
    }
    for (int64_t k = 0; k < (count + 31) / 32 * 32; k++, to += width) {
        const int64_t n = k < count ? cols : 0;
        product->ctx->tensor->f32_from_bf16(to, from + k * (n ? ld : 0), n);
        for (int64_t j = n; j < width; j++) to[j] = 0.0f;
    }
}
/* Words of a row of `count` k. */
NEO__INLINE int64_t neo__bf16_words(const neo__bf16 *g, int64_t count) {
    return (count + 31) / 32 * (g->ctx->bf16 ? 16 : 32);
}
/* Numbers of k. */
NEO__INLINE int64_t neo__bf16_segment(const neo__bf16 *g) {
    return (int64_t)NEO__BF16_WORDS * (g->ctx->bf16 ? 2 : 1);
}
static void neo__bf16_pack_b(const neo__bf16 *product, float *to, float *spare,
                             const neo__gemm_box *box) {
    const neo__gemm_call *c = product->call;
    const int64_t most = c->b_col == 1 ? INT64_MAX / 2 : neo__bf16_segment(product);
    for (int64_t p = box->p0; p < box->p1; p++)
        for (int64_t k0 = box->k0; k0 < box->k1; k0 += most) {
            const int64_t count = NEO__MIN(most, box->k1 - k0), n0 = p * product->cols;
            const int64_t words = neo__bf16_words(product, count);
            const int64_t cols = NEO__MIN((int64_t)product->cols, c->n - n0);
            const uint16_t *from = neo__halves(c->b) + k0 * c->b_k + n0 * c->b_col;
            float *panel = to;
            to += words * product->cols;
            if (c->b_col == 1) {
                neo__bf16_pack_cols(product, panel, product->cols, from, c->b_k, count, cols);
                continue;
            }
            for (int64_t j = 0; j < cols; j++)
                neo__bf16_pack_row(product, spare + j * NEO__BF16_LINE, from + j * c->b_col, count);
            product->ctx->gemm->pack_transposed(panel, product->cols, spare, NEO__BF16_LINE, words,
                                                cols);
        }
}
/* The rows of tiles of A; a_row and a_word of the tile say how they lie. */
static void neo__bf16_pack_a(const neo__bf16 *product, neo__bf16_tile *tile, float *to,
                             float *spare, const neo__gemm_box *box) {
    const neo__gemm_call *call = product->call;
    const int64_t count = box->k1 - box->k0, words = neo__bf16_words(product, count);
    const int64_t m0 = box->t0 * product->rows, rows = (box->t1 - box->t0) * product->rows;
    const int64_t there = NEO__MIN(rows, call->m - m0), width = (rows + 15) / 16 * 16;
    const int by_cols = call->a_row == 1 && call->a_k != 1;
    const int turn = by_cols && product->ctx->bf16 && !product->ctx->bf16->chains;
    const uint16_t *from = neo__halves(call->a) + m0 * call->a_row + box->k0 * call->a_k;
    tile->a_row = by_cols && !turn ? 1 : NEO__BF16_LINE;
    tile->a_word = by_cols && !turn ? width : 1;
    if (by_cols)
        neo__bf16_pack_cols(product, turn ? spare : to, width, from, call->a_k, count, there);
    if (turn) product->ctx->gemm->pack_transposed(to, NEO__BF16_LINE, spare, width, rows, words);
    for (int64_t i = 0; i < rows && !by_cols; i++, to += NEO__BF16_LINE)
        if (i < there) neo__bf16_pack_row(product, to, from + i * call->a_row, count);
        else memset(to, 0, (size_t)words * sizeof *to);
}

/* Columns [j, j + n) of row i of a matrix of f32 or bf16, as f32. */
static const float *neo__bf16_row_of(const neo__bf16 *g, const float *matrix, int64_t row_step,
                                     int narrow, int64_t i, int64_t j, int64_t n, float *room) {
    const int64_t at = i * row_step + j;
    if (!matrix) return NULL;
    if (!narrow) return matrix + at;
    g->ctx->tensor->f32_from_bf16(room, neo__halves(matrix) + at, n);
    return room;
}
static void neo__bf16_row_to(const neo__bf16 *g, float *matrix, int64_t row_step, int narrow,
                             int64_t i, int64_t j, int64_t n, const float *x) {
    const int64_t at = i * row_step + j;
    if (!narrow) memcpy(matrix + at, x, (size_t)n * sizeof *x);
    else g->ctx->tensor->bf16_from_f32((uint16_t *)(void *)matrix + at, x, n);
}
/* x: the sums of columns [j, j + n) of row i. */
static void neo__bf16_finish_row(const neo__bf16 *product, int64_t i, int64_t j, int64_t count,
                                 float *x) {
    float y[NEO__BF16_SIDE], z[NEO__BF16_SIDE];
    const neo__gemm_call *call = product->call;
    const neo__gemm_finish *finish = &call->finish;
    const neo__vec_kernels *vec = product->ctx->vec;
    if (call->bias)
        vec->add(x, neo__bf16_row_of(product, call->bias, 0, call->narrow_bias, 0, j, count, y),
                 count);
    if (finish->backward) {
        const float *y_row =
            neo__bf16_row_of(product, finish->y, finish->y_row, call->narrow_y, i, j, count, y);
        const float *z_row =
            neo__bf16_row_of(product, finish->z, finish->z_row, call->narrow_z, i, j, count, z);
        vec->act_backward(finish->act, z_row, y_row, x, x, count);
    } else if (finish->y) {
        vec->act_forward(finish->act, x, y, count);
        neo__bf16_row_to(product, finish->y, finish->y_row, call->narrow_y, i, j, count, y);
    } else if (finish->act != NEO_ACT_NONE) {
        vec->act_forward(finish->act, x, x, count);
    }
    neo__bf16_row_to(product, call->c, call->c_row, call->narrow_c, i, j, count, x);
}
/* Between C and the tiles of a task: to them, times beta, or from them and finished. */
static void neo__bf16_move(const neo__bf16 *product, float *tiles, const neo__gemm_box *box,
                           int out) {
    float row[NEO__BF16_SIDE], room[NEO__BF16_SIDE];
    const neo__gemm_call *c = product->call;
    const int64_t n0 = box->p0 * product->cols,
                  count = NEO__MIN(box->p1 * product->cols, c->n) - n0;
    const int64_t tile_floats = (int64_t)product->rows * product->cols, panels = box->p1 - box->p0;
    for (int64_t i = box->t0 * product->rows; i < NEO__MIN(box->t1 * product->rows, c->m); i++) {
        float *at = tiles + (i / product->rows - box->t0) * panels * tile_floats +
                    i % product->rows * product->cols;
        const float *old =
            out ? NULL : neo__bf16_row_of(product, c->c, c->c_row, c->narrow_c, i, n0, count, room);
        for (int64_t j = 0; old && j < count; j++) row[j] = c->beta * old[j];
        for (int64_t j = 0; j < count; j += product->cols, at += tile_floats) {
            const size_t bytes = (size_t)NEO__MIN((int64_t)product->cols, count - j) * sizeof *row;
            if (out) memcpy(row + j, at, bytes);
            else memcpy(at, row + j, bytes);
        }
        if (out) neo__bf16_finish_row(product, i, n0, count, row);
    }
}

/* Adds the products of a segment to a group's tiles in c; to zeros if it is the first. */
static void neo__bf16_group(const neo__bf16 *product, neo__bf16_tile *t, float *c, const float *a,
                            const float *b, int64_t panel, const neo__gemm_box *part) {
    const neo__bf16_kernels *kern = product->ctx->bf16;
    const int plain = product->ctx->isa == NEO_ISA_SCALAR, by_rows = kern && !kern->chains;
    void (*const tile)(const neo__bf16_tile *) =
        kern ? kern->tile : plain ? neo__bf16_tile_plain : neo__bf16_tile_by_f32;
    const int64_t floats = (int64_t)product->rows * product->cols;
    const int64_t tiles = part->t1 - part->t0, panels = part->p1 - part->p0;
    neo__fp_state fp = neo__fp_enter_flushing();
    if (kern && kern->begin) kern->begin();
    for (int64_t at = 0; at < tiles * panels; at++) {
        const int64_t i = by_rows ? at / panels : at % tiles;
        const int64_t p = by_rows ? at % panels : at / tiles;
        t->a = a + i * product->rows * t->a_row;
        t->b = b + p * panel;
        t->c = c + (i * panels + p) * floats;
        if (t->first && !by_rows) memset(t->c, 0, (size_t)floats * sizeof *c);
        tile(t);
    }
    if (kern && kern->end) kern->end();
    neo__fp_leave(fp);
}
/* The sums of a box in c, which without leaves become rows of C. */
static void neo__bf16_multiply(const neo__bf16 *product, float *c, float *scratch,
                               const neo__gemm_box *box) {
    const neo__gemm_call *call = product->call;
    const int64_t segment = neo__bf16_segment(product);
    const int64_t panels = box->p1 - box->p0, cols = panels * product->cols;
    const int64_t most = NEO__BF16_SLAB_FLOATS / (NEO__BF16_WORDS * cols) * segment;
    float *b = scratch, *a = b + NEO__BF16_B_FLOATS, *spare = a + NEO__BF16_A_FLOATS;
    neo__gemm_box slab = *box;
    NEO__ZERO(neo__bf16_tile, t);
    t.f32 = product->ctx->gemm, t.add = product->ctx->vec->add;
    t.rows = product->rows, t.cols = product->cols;
    do {
        if (!product->alone) slab.k1 = NEO__MIN(slab.k0 + most, box->k1);
        const int64_t panel = neo__bf16_words(product, slab.k1 - slab.k0) * product->cols;
        neo__bf16_pack_b(product, b, spare, &slab);
        neo__gemm_box part = slab; /* a segment of k, a group of rows */
        float *sums = c;
        for (; part.t0 < box->t1; part.t0 = part.t1) {
            part.t1 = NEO__MIN(part.t0 + NEO__BF16_GROUP / product->rows, box->t1);
            const int64_t floats = (part.t1 - part.t0) * product->rows * cols;
            t.first = slab.k0 == box->k0 && call->beta == 0.0f;
            if (slab.k0 == box->k0 && !t.first) neo__bf16_move(product, sums, &part, 0);
            else if (box->k0 == box->k1) memset(sums, 0, (size_t)floats * sizeof *sums);
            for (part.k0 = slab.k0; part.k0 < slab.k1; part.k0 = part.k1, t.first = 0) {
                part.k1 = NEO__MIN(part.k0 + segment, slab.k1);
                t.blocks = (part.k1 - part.k0 + 31) / 32;
                neo__bf16_pack_a(product, &t, a, spare, &part);
                neo__bf16_group(product, &t, sums, a,
                                b + neo__bf16_words(product, part.k0 - slab.k0) * product->cols,
                                panel, &part);
            }
            if (product->leaves == 1 && slab.k1 == box->k1) neo__bf16_move(product, sums, &part, 1);
            if (!product->alone) sums += floats;
        }
        slab.k0 = slab.k1;
    } while (slab.k0 < box->k1);
}

static void neo__bf16_task(void *arg, int64_t index, int worker) {
    const neo__bf16 *product = (const neo__bf16 *)arg;
    neo__gemm_box box = neo__gemm_task_box(&product->grid, index);
    const int64_t step = (box.t1 - box.t0) * product->rows * (box.p1 - box.p0) * product->cols;
    float *tiles = neo__worker_floats(product->ctx, worker), *scratch = tiles + NEO__BF16_C_FLOATS;
    int height = 0;
    box.k1 = product->call->k;
    const int leaves = NEO__TRAINS ? product->leaves : 1;
    for (int leaf = 0; leaf < leaves; leaf++) {
        float *slot = tiles + height * step;
        if (leaves > 1) neo__leaf_rows(&product->call->leaves, leaf, &box.k0, &box.k1);
        neo__bf16_multiply(product, slot, scratch, &box);
        int merges = leaves > 1 ? neo__tree_push(&height, leaf, leaves) : 0;
        for (; merges > 0; merges--, slot -= step) product->ctx->vec->add(slot - step, slot, step);
    }
    if (leaves > 1) neo__bf16_move(product, tiles, &box, 1);
}

/* A product and its plan: tasks as large as the scratch allows. */
static void neo__bf16_begin(neo__bf16 *product, neo_ctx *ctx, const neo__gemm_call *call) {
    const neo__bf16_kernels *kern = ctx->bf16;
    product->ctx = ctx;
    product->call = call;
    product->leaves = NEO__TREE(call) ? NEO__MAX(call->leaves.count, 1) : 1;
    product->rows = kern ? kern->rows : ctx->gemm->rows;
    product->cols = kern ? kern->cols : 2 * ctx->gemm->lanes;
    product->grid.tiles = (call->m + product->rows - 1) / product->rows;
    product->grid.panels = (call->n + product->cols - 1) / product->cols;
    const int64_t words = NEO__MAX(neo__bf16_words(product, call->k), 1);
    int64_t rows = product->grid.tiles, side = NEO__BF16_SIDE;
    int64_t most =
        NEO__BF16_C_FLOATS / (neo__tree_depth(product->leaves) * product->rows * product->cols);
    product->alone = product->leaves == 1 && words * NEO__BF16_B_COLS <= NEO__BF16_B_FLOATS;
    if (product->alone) side = NEO__MIN(side, NEO__BF16_B_FLOATS / words), most = INT64_MAX / side;
    else rows = NEO__MIN(rows, side / product->rows);
    int64_t cols = NEO__MIN(product->grid.panels, side / product->cols);
    neo__gemm_cut(&product->grid, call, ctx, product->rows, product->cols, most, 1, &rows, &cols);
}

/* ---- the CPU: a product of either dtype ---- */
typedef struct neo__product {
    neo__gemm f32;
    neo__bf16 bf16;
    int narrow;        /* it is bf16 */
    int64_t tasks, ns; /* to be done, see neo__run_tasks */
} neo__product;
static void neo__product_begin(neo__product *product, neo_ctx *ctx, const neo__gemm_call *call) {
    const neo__gemm_grid *grid = &product->f32.grid;
    product->tasks = product->ns = 0;
    product->narrow = call->narrow;
    if (call->m == 0 || call->n == 0) return;
    if (call->narrow) {
        memset(&product->bf16, 0, neo__size_unseen(sizeof product->bf16));
        neo__bf16_begin(&product->bf16, ctx, call);
        grid = &product->bf16.grid;
    } else {
        memset(&product->f32, 0, neo__size_unseen(offsetof(neo__gemm, packed)));
        product->f32.ctx = ctx;
        product->f32.call = *call;
        product->f32.tree = call->tree && call->leaves.count > 1;
#ifdef NEO_SGEMM
        if (neo__gemm_by_hook(&product->f32)) return;
#endif
        neo__gemm_plan(&product->f32);
    }
    product->tasks = grid->row_tasks * grid->col_tasks;
    product->ns = neo__gemm_ns(ctx, call);
}
static void neo__product_task(void *arg, int64_t index, int worker) {
    neo__product *p = (neo__product *)arg;
    if (p->narrow) neo__bf16_task(&p->bf16, index, worker);
    else neo__gemm_task(&p->f32, index, worker);
}
/* Others write to the worker's scratch. */
static NEO__UNUSED void neo__product_forget(neo__product *p, int worker) {
    if (p->tasks > 0 && !p->narrow && p->f32.keeps && worker < NEO__GEMM_KEEPERS)
        memset(&p->f32.packed[worker], 0, sizeof *p->f32.packed);
}
static neo_status neo__cpu_gemm(neo_device *d, const neo__gemm_call *call) {
    neo__product p;
    neo__product_begin(&p, neo__cpu_ctx(d), call);
    neo__run_tasks(neo__cpu_ctx(d), p.tasks, neo__product_task, &p, p.ns);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-linear

   dW = dZ^T X is a product whose k is the sample: >>impl-gemm sums it by leaves. db adds the
   columns of dZ leaf by leaf. dX = dZ W can be multiplied by the derivative of the activation
   before it while its rows are in the cache. All three are one list of tasks.
   ------------------------------------------------------------------------ */
enum {
    NEO__BIAS_COLS = 256, /* columns of db that a task adds */
    NEO__BIAS_DEPTH = 16  /* subtree sums waiting: more than any tree of 4096 leaves has */
};

#if !defined(NEO_INFERENCE)
static neo_status neo__optim_early(const neo_ctx *ctx, const char *fn, neo__gemm_call *dw,
                                   neo__update *update); /* see >>impl-optim */
#endif
/* dw and dbias of checked tensors, and dx, or NULL. Also of one leaf the record says `tree`: a
   device's product then has the same shape on any number of ranks. */
static neo_status neo__linear_grads(neo_ctx *ctx, const char *fn, const neo__leaf_cut *leaves,
                                    neo_tensor x, neo_tensor dz, neo_tensor dw, neo_tensor dbias,
                                    const neo__gemm_call *dx) {
    NEO__ZERO(neo__linear_grads_call, call);
    call.dw = neo__gemm_call_make(dz, 1, x, 0, dw);
    call.dw.tree = 1;
    call.dw.leaves = *leaves;
    call.dbias.from = neo__f32(dz);
    call.dbias.from_row = dz.stride[0];
    call.dbias.narrow = dz.dtype == NEO_BF16;
    call.dbias.cols = dz.shape[1];
    call.dbias.to = neo__f32(dbias);
    call.dbias.leaves = *leaves;
    if (dx) call.dx = *dx;
#if !defined(NEO_INFERENCE)
    neo__update update;
    if (ctx->opened && dx) NEO__TRY(neo__optim_early(ctx, fn, &call.dw, &update));
#endif
    return NEO__RUN(ctx, fn, linear_grads, &call);
}

/* Both forwards; before: what act is of, z, or NULL. */
NEO__INLINE neo_status neo__linear_forward(neo_ctx *ctx, const char *fn, const neo_tensor *input,
                                           const neo_tensor *weight, const neo_tensor *bias,
                                           neo_activation act, const neo_tensor *before,
                                           const neo_tensor *output) {
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_activation(fn, act));
    const int64_t batch = input->shape[0], in = weight->shape[1], out = weight->shape[0];
    const neo_dtype dtype = neo__operand_dtype(*weight);
    NEO__TRY(neo__check_matrix_of(ctx, dtype, *weight, out, in, 0, fn, "w"));
    NEO__TRY(neo__check_matrix_of(ctx, dtype, *input, batch, in, 0, fn, "x"));
    if (before) NEO__TRY(neo__check_product(ctx, dtype, *before, batch, out, fn, "z"));
    NEO__TRY(neo__check_product(ctx, dtype, *output, batch, out, fn, "y"));
    NEO__TRY(neo__check_bias(ctx, dtype, *bias, out, fn));
    const neo__named named[] = {
        {before, "z"}, {output, "y"}, {input, "x"}, {weight, "w"}, {bias, "bias"}};
    NEO__TRY(neo__check_apart(fn, before ? named : named + 1, before ? 2 : 1, before ? 5 : 4, 0));
    neo__gemm_call call = neo__gemm_call_make(*input, 0, *weight, 1, before ? *before : *output);
    call.bias = neo__f32(*bias), call.narrow_bias = bias->dtype == NEO_BF16;
    if (before) neo__gemm_call_finish(&call, act, 0, *output, neo_tensor_none());
    else call.finish.act = act;
    return NEO__RUN(ctx, fn, gemm, &call);
}
NEO_API neo_status neo_linear_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                      neo_activation act, neo_tensor y) {
    return neo__linear_forward(ctx, "neo_linear_forward", &x, &w, &bias, act, NULL, &y);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_linear_act_forward(neo_ctx *ctx, neo_tensor x, neo_tensor w, neo_tensor bias,
                                          neo_activation act, neo_tensor z, neo_tensor y) {
    return neo__linear_forward(ctx, "neo_linear_act_forward", &x, &w, &bias, act, &z, &y);
}
NEO_API neo_status neo_linear_act_backward(neo_ctx *ctx, neo_tensor dy, neo_tensor w,
                                           neo_activation act, neo_tensor z, neo_tensor dz) {
    static const char *const fn = "neo_linear_act_backward";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_activation(fn, act));
    const int64_t batch = dy.shape[0], in = w.shape[1], out = w.shape[0];
    const neo_dtype dtype = neo__operand_dtype(w);
    NEO__CHECK(neo__act_needs_z(act), NEO_ERR_ARG,
               "%s: the derivative of activation %d is not of z, but of y", fn, (int)act);
    NEO__TRY(neo__check_matrix_of(ctx, dtype, w, out, in, 0, fn, "w"));
    NEO__TRY(neo__check_matrix_of(ctx, dtype, dy, batch, out, 0, fn, "dy"));
    NEO__TRY(neo__check_product(ctx, dtype, z, batch, in, fn, "z"));
    NEO__TRY(neo__check_product(ctx, dtype, dz, batch, in, fn, "dz"));
    NEO__APART(fn, 1, 0, {&dz, "dz"}, {&dy, "dy"}, {&w, "w"}, {&z, "z"});
    neo__gemm_call call = neo__gemm_call_make(dy, 0, w, 0, dz);
    neo__gemm_call_finish(&call, act, 1, neo_tensor_none(), z);
    return NEO__RUN(ctx, fn, gemm, &call);
}
#endif

#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_linear_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                       neo_tensor w, neo_tensor dz, neo_tensor dx, neo_tensor dw,
                                       neo_tensor dbias) {
    static const char *const fn = "neo_linear_backward";
    const int64_t batch = dz.shape[0], in = w.shape[1], out = w.shape[0];
    neo__leaf_cut held;
    NEO__TRY(neo__check_ctx(fn, ctx));
    const neo_dtype dtype = neo__operand_dtype(w);
    NEO__TRY(neo__check_matrix_of(ctx, dtype, w, out, in, 0, fn, "w"));
    NEO__TRY(neo__check_matrix_of(ctx, dtype, x, batch, in, 0, fn, "x"));
    NEO__TRY(neo__check_matrix_of(ctx, dtype, dz, batch, out, 0, fn, "dz"));
    if (neo__given(dx)) NEO__TRY(neo__check_product(ctx, dtype, dx, batch, in, fn, "dx"));
    if (neo__given(dw)) NEO__TRY(neo__check_matrix(ctx, dw, out, in, 1, fn, "dw"));
    if (neo__given(dbias)) NEO__TRY(neo__check_vector(ctx, dbias, out, fn, "dbias"));
    NEO__APART(fn, 3, 0, {&dx, "dx"}, {&dw, "dw"}, {&dbias, "dbias"}, {&x, "x"}, {&w, "w"},
               {&dz, "dz"});
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    const neo__gemm_call call = neo__gemm_call_make(dz, 0, w, 0, dx);
    if (!dw.data && !dbias.data) return dx.data ? NEO__RUN(ctx, fn, gemm, &call) : NEO_OK;
    return neo__linear_grads(ctx, fn, &held, x, dz, dw, dbias, dx.data ? &call : NULL);
}
#endif

/* ---- the CPU ---- */
typedef struct neo__linear_job {
    neo_ctx *ctx;
    neo__product dw, dx; /* their tasks come first, in this order */
    const neo__column_sums_call *dbias;
} neo__linear_job;

/* sums[j] = the sum of the rows [begin, end) of columns [j0, j0 + cols) of dz, in order from 0. */
static void neo__linear_bias_leaf(const neo_ctx *ctx, const neo__column_sums_call *call,
                                  float *sums, int64_t begin, int64_t end, int64_t j0,
                                  int64_t cols) {
    float row[NEO__BIAS_COLS];
    if (!call->narrow && begin < end) {
        const float *from = call->from + begin * call->from_row + j0;
        ctx->gemm->column_sums(sums, from, call->from_row, end - begin, cols);
        return;
    }
    for (int64_t j = 0; j < cols; j++) sums[j] = 0.0f;
    for (; begin < end; begin++) {
        ctx->tensor->f32_from_bf16(row, neo__halves(call->from) + begin * call->from_row + j0,
                                   cols);
        ctx->vec->add(sums, row, cols);
    }
}
static void neo__linear_bias_task(neo_ctx *ctx, const neo__column_sums_call *call, int64_t j0,
                                  int worker) {
    const int64_t cols = NEO__MIN((int64_t)NEO__BIAS_COLS, call->cols - j0);
    const int count = call->leaves.count;
    float *sums = neo__worker_floats(ctx, worker);
    int height = 0;
    for (int leaf = 0; leaf < count; leaf++) {
        int64_t begin, end;
        float *slot = sums + height * NEO__BIAS_COLS;
        neo__leaf_rows(&call->leaves, leaf, &begin, &end);
        neo__linear_bias_leaf(ctx, call, slot, begin, end, j0, cols);
        int merges = neo__tree_push(&height, leaf, count);
        for (; merges > 0; merges--, slot -= NEO__BIAS_COLS)
            ctx->vec->add(slot - NEO__BIAS_COLS, slot, cols);
        NEO_ASSERT(height < NEO__BIAS_DEPTH);
    }
    if (count > 0) memcpy(call->to + j0, sums, (size_t)cols * sizeof *sums);
    else memset(call->to + j0, 0, (size_t)cols * sizeof *sums);
}
static void neo__linear_grads_task(void *arg, int64_t index, int worker) {
    neo__linear_job *job = (neo__linear_job *)arg;
    const int64_t of_dx = index - job->dw.tasks, of_bias = of_dx - job->dx.tasks;
    if (of_dx >= 0) neo__product_forget(&job->dw, worker);
    if (of_dx < 0 || of_bias >= 0) neo__product_forget(&job->dx, worker);
    if (of_dx < 0) neo__product_task(&job->dw, index, worker);
    else if (of_bias < 0) neo__product_task(&job->dx, of_dx, worker);
    else neo__linear_bias_task(job->ctx, job->dbias, of_bias * NEO__BIAS_COLS, worker);
}
static neo_status neo__cpu_linear_grads(neo_device *device, const neo__linear_grads_call *call) {
    if (call->dw.update && (call->dx.c || call->dbias.to)) { /* dx is of weights before they step */
        neo__linear_grads_call part = *call;
        part.dw.c = NULL, part.dw.update = NULL;
        NEO__TRY(neo__cpu_linear_grads(device, &part));
        part.dw = call->dw, part.dx.c = part.dbias.to = NULL;
        return neo__cpu_linear_grads(device, &part);
    }
    neo__linear_job job;
    job.ctx = neo__cpu_ctx(device);
    job.dw.tasks = job.dw.ns = job.dx.tasks = job.dx.ns = 0;
    job.dbias = &call->dbias;
    if (call->dw.c) neo__product_begin(&job.dw, job.ctx, &call->dw);
    if (call->dx.c) neo__product_begin(&job.dx, job.ctx, &call->dx);
    const int64_t bias_cols = call->dbias.to ? call->dbias.cols : 0;
    const int64_t bias_tasks = (bias_cols + NEO__BIAS_COLS - 1) / NEO__BIAS_COLS;
    neo__run_tasks(job.ctx, job.dw.tasks + job.dx.tasks + bias_tasks, neo__linear_grads_task, &job,
                   job.dw.ns + job.dx.ns + call->dw.k * bias_cols / 8);
    if (call->dw.update) call->dw.update->span->moved = job.dw.tasks > 0 && job.dw.f32.updates;
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-mlp

   Besides the record, one block of the device's memory: the hidden layers' outputs y (and z, where
   the activation's derivative is a function of z; with dropout also what is left of y), then two
   buffers that the gradients of layers take in turn. In bf16 all of them are, and copies of the
   weights and of x, made in each forward, follow.
   ------------------------------------------------------------------------ */
struct neo_mlp {
    neo_ctx *ctx;
    neo__live live;
    char *data;
    size_t data_bytes;
    neo_mlp_desc desc; /* name: NULL */
    int layers;
    const neo_param *weight[NEO_MAX_LAYERS], *bias[NEO_MAX_LAYERS];
    const float *panels[NEO_MAX_LAYERS]; /* of neo_serve.h, for neo__gemm_listed; or NULL */
    void *y[NEO_MAX_LAYERS]; /* of hidden layers */
    void *z[NEO_MAX_LAYERS]; /* before the activation; NULL: not kept */
    void *left[NEO_MAX_LAYERS];         /* y after dropout; NULL: there is none */
    uint64_t drop_name[NEO_MAX_LAYERS]; /* hashed */
    int64_t drop_step, drop_row;        /* of forwards to come */
    int64_t done_step, done_row;        /* of the last forward */
    void *dz[2];
    void *narrow[NEO_MAX_LAYERS + 1]; /* of bf16: the weights, then x */
    neo_tensor in, out; /* of the last forward */
    int forward_done;
};

NEO__HOT_END
static neo_status neo__mlp_check(const neo_mlp_desc *desc, const char *fn) {
    NEO__CHECK(desc && desc->name && desc->name[0], NEO_ERR_ARG, "%s: a name is required", fn);
    NEO__CHECK(desc->width_count >= 2 && desc->width_count <= NEO_MAX_LAYERS + 1, NEO_ERR_ARG,
               "%s: %s: width_count is %d, not in 2 .. %d", fn, desc->name, desc->width_count,
               NEO_MAX_LAYERS + 1);
    NEO__CHECK(desc->max_batch > 0, NEO_ERR_ARG, "%s: %s: max_batch is %" PRId64, fn, desc->name,
               desc->max_batch);
    NEO__CHECK((unsigned)desc->act <= (unsigned)NEO_ACT_GELU_TANH &&
                   (unsigned)desc->last_act <= (unsigned)NEO_ACT_GELU_TANH,
               NEO_ERR_ARG, "%s: %s: unknown activation", fn, desc->name);
    NEO__CHECK(desc->dtype == NEO_F32 || desc->dtype == NEO_BF16, NEO_ERR_ARG,
               "%s: %s: dtype %s is neither f32 nor bf16", fn, desc->name,
               neo_dtype_name(desc->dtype));
    NEO__CHECK((int)desc->init >= 0 && desc->init <= NEO_MLP_INIT_ZERO, NEO_ERR_ARG,
               "%s: %s: unknown initialiser %d", fn, desc->name, (int)desc->init);
    NEO__CHECK(desc->dropout >= 0.0f && desc->dropout < 1.0f, NEO_ERR_ARG,
               "%s: %s: dropout is %g, not in [0, 1)", fn, desc->name, (double)desc->dropout);
    for (int i = 0; i < desc->width_count; i++)
        NEO__CHECK(desc->widths[i] > 0, NEO_ERR_ARG, "%s: %s: widths[%d] is %" PRId64, fn,
                   desc->name, i, desc->widths[i]);
    return NEO_OK;
}

/* ---- of any layer that keeps what its backward reads ---- */
/* A buffer [rows][cols] of its block; NULL if it has no elements. */
static void neo__layer_carve(neo__carve *carve, void **to, neo_dtype dtype, int64_t rows,
                             int64_t cols) {
    const size_t count = neo__size_mul((size_t)rows, (size_t)cols);
    if (count) neo__carve_next(carve, to, neo_dtype_size(dtype), count);
}
/* Rows of such a buffer as a tensor; of NULL: none. */
static neo_tensor neo__layer_rows(const neo_ctx *ctx, void *data, neo_dtype dtype, int64_t rows,
                                  int64_t cols) {
    neo_tensor t = data ? neo_tensor_2d(data, dtype, rows, cols) : neo_tensor_none();
    t.place = neo__ctx_place(ctx);
    return t;
}
/* x [B][in] and y [B][out] of a forward. */
static neo_status neo__layer_check_forward(neo_ctx *ctx, const char *fn, int64_t max_batch,
                                           neo_tensor x, int64_t in, neo_tensor y, int64_t out) {
    const int64_t batch = x.shape[0];
    if (x.ndim == 0 && !x.data) return neo__no_data(fn, "x", x, NEO_ERR_SHAPE);
    NEO__CHECK(x.ndim == 2, NEO_ERR_SHAPE,
               "%s: x is of %d dimensions, expected f32 [B][%" PRId64 "]", fn, (int)x.ndim, in);
    NEO__CHECK(batch <= max_batch, NEO_ERR_CAPACITY,
               "%s: a batch of %" PRId64 ", but max_batch is %" PRId64, fn, batch, max_batch);
    NEO__TRY(neo__check_matrix(ctx, x, batch, in, 0, fn, "x"));
    NEO__TRY(neo__check_matrix(ctx, y, batch, out, 1, fn, "y"));
    NEO__APART(fn, 1, 0, {&y, "y"}, {&x, "x"});
    return NEO_OK;
}
/* dy [B][out] and dx [B][in], or none, of a backward; forward: the call of these B rows. */
static neo_status neo__layer_check_backward(neo_ctx *ctx, const char *fn, const char *forward,
                                            int64_t batch, neo_tensor dy, int64_t out,
                                            neo_tensor dx, int64_t in) {
    NEO__CHECK(dy.ndim != 2 || dy.shape[0] == batch, NEO_ERR_SHAPE,
               "%s: dy has %" PRId64 " rows, the last %s had %" PRId64, fn, dy.shape[0], forward,
               batch);
    NEO__TRY(neo__check_matrix(ctx, dy, batch, out, 0, fn, "dy"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(ctx, dx, batch, in, 1, fn, "dx"));
    NEO__APART(fn, 1, 0, {&dx, "dx"}, {&dy, "dy"});
    return NEO_OK;
}
/* Cut the block into buffers; NULL: count its bytes alone. */
static size_t neo__mlp_layout(neo_mlp *mlp, const neo_mlp_desc *desc, char *block) {
    neo__carve carve = {block, 0};
    const int layers = desc->width_count - 1, narrow = desc->dtype == NEO_BF16;
    const int last_dz = desc->last_act != NEO_ACT_NONE || narrow; /* dy is not taken as it is */
    int64_t widest = last_dz ? desc->widths[layers] : 0;
    for (int i = 0; i < layers - 1; i++) widest = NEO__MAX(widest, desc->widths[i + 1]);
    for (int i = 0; i < layers; i++) {
        const int last = i == layers - 1,
                  keeps_z = neo__act_needs_z(last ? desc->last_act : desc->act);
        neo__layer_carve(&carve, &mlp->y[i], desc->dtype, desc->max_batch,
                         last ? 0 : desc->widths[i + 1]);
        neo__layer_carve(&carve, &mlp->z[i], desc->dtype, desc->max_batch,
                         keeps_z ? desc->widths[i + 1] : 0);
        neo__layer_carve(&carve, &mlp->left[i], desc->dtype, desc->max_batch,
                         last || desc->dropout == 0.0f ? 0 : desc->widths[i + 1]);
    }
    neo__layer_carve(&carve, &mlp->dz[0], desc->dtype, desc->max_batch, widest);
    neo__layer_carve(&carve, &mlp->dz[1], desc->dtype, desc->max_batch,
                     last_dz + layers > 2 ? widest : 0);
    for (int i = 0; i <= layers && narrow; i++)
        neo__layer_carve(&carve, &mlp->narrow[i], desc->dtype,
                         i < layers ? desc->widths[i + 1] : desc->max_batch,
                         desc->widths[i < layers ? i : 0]);
    return carve.at;
}
static size_t neo__mlp_data_bytes(const neo_mlp_desc *d) {
    NEO__ZERO(neo_mlp, mlp);
    return neo__mlp_layout(&mlp, d, NULL);
}

NEO_API size_t neo_mlp_workspace_bytes(const neo_mlp_desc *desc) {
    return neo__mlp_check(desc, "neo_mlp_workspace_bytes") == NEO_OK
               ? neo__size_add(sizeof(neo_mlp), neo__mlp_data_bytes(desc))
               : 0;
}

static neo_status neo__mlp_add_params(neo_mlp *mlp, neo_params *params, const neo_mlp_desc *desc,
                                      char *name, size_t name_bytes) {
    for (int i = 0; i < mlp->layers; i++) {
        const int64_t in = desc->widths[i], out = desc->widths[i + 1], shape[2] = {out, in};
        neo_init weight = {NEO_INIT_CONSTANT, 0.0f, 0.0f}, bias = weight;
        if (desc->init == NEO_MLP_INIT_DLRM) {
            weight.kind = bias.kind = NEO_INIT_NORMAL;
            weight.a = bias.a = 0.0f;
            weight.b = (float)sqrt(2.0 / ((double)in + (double)out));
            bias.b = (float)sqrt(1.0 / (double)out);
        } else if (desc->init == NEO_MLP_INIT_TORCH) {
            weight.kind = NEO_INIT_UNIFORM;
            weight.b = (float)sqrt(1.0 / (double)in);
            weight.a = -weight.b;
            bias = weight;
        }
        snprintf(name, name_bytes, "%s.%d", desc->name, 2 * i);
        mlp->drop_name[i] = neo_hash(name);
        snprintf(name, name_bytes, "%s.%d.weight", desc->name, 2 * i);
        NEO__TRY(neo_params_add(params, name, 2, shape, weight, &mlp->weight[i]));
        snprintf(name, name_bytes, "%s.%d.bias", desc->name, 2 * i);
        NEO__TRY(neo_params_add(params, name, 1, shape, bias, &mlp->bias[i]));
    }
    return NEO_OK;
}

static void neo__params_truncate(neo_params *params, int count); /* see >>impl-params */
static const neo_ctx *neo__params_ctx(const neo_params *params);
static neo_status neo__check_params(const neo_ctx *ctx, const neo_params *params, const char *fn) {
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(params, NEO_ERR_ARG, "%s: params is NULL", fn);
    return neo__check_device(ctx, neo__params_ctx(params), fn, "params are");
}

NEO_API neo_status neo_mlp_create(neo_ctx *ctx, neo_params *params, const neo_mlp_desc *desc,
                                  neo_mlp **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_mlp_create: mlp is NULL");
    *out = NULL;
    NEO__TRY(neo__check_params(ctx, params, "neo_mlp_create"));
    NEO__TRY(neo__mlp_check(desc, "neo_mlp_create"));
    char name[256];
    NEO__CHECK(strlen(desc->name) + 24 <= sizeof name, NEO_ERR_ARG,
               "neo_mlp_create: the name is too long");
    const size_t bytes = neo__mlp_data_bytes(desc);
    char *data;
    neo_mlp *mlp = (neo_mlp *)neo__alloc_with_data(ctx, "neo_mlp_create", desc->name, sizeof *mlp,
                                                   bytes, &data);
    if (!mlp) return NEO_ERR_MEMORY;
    (void)neo__mlp_layout(mlp, desc, data);
    mlp->ctx = ctx;
    mlp->data = data;
    mlp->data_bytes = bytes;
    mlp->desc = *desc;
    mlp->desc.name = NULL;
    mlp->layers = desc->width_count - 1;
    mlp->drop_step = mlp->done_step = -1;
    const int before = neo_params_count(params);
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__mlp_add_params(mlp, params, desc, name, sizeof name);
    neo__fp_leave(fp);
    if (status != NEO_OK) {
        neo__params_truncate(params, before);
        neo_mlp_destroy(mlp);
        return status;
    }
    neo__live_begin(ctx, &mlp->live, "mlp", desc->name);
    *out = mlp;
    return NEO_OK;
}
NEO_API void neo_mlp_destroy(neo_mlp *mlp) {
    if (!mlp) return;
    neo__live_end(mlp->ctx, &mlp->live);
    if (mlp->data) neo__data_free(mlp->ctx, mlp->data, mlp->data_bytes);
    neo_free(mlp->ctx, mlp, sizeof *mlp);
}

/* The parameters' values, or gradients, are in memory. */
static neo_status neo__params_present(const neo_param *const *params, int count, int grads,
                                      const char *fn) {
    for (int i = 0; i < count; i++) {
        neo_tensor t = grads ? params[i]->grad : params[i]->value;
        if (t.absent && !t.data && !(grads && params[i]->frozen))
            return neo__no_data(fn, params[i]->name, t, NEO_ERR_STATE);
    }
    return NEO_OK;
}
static neo_status neo__mlp_present(const neo_mlp *mlp, int grads, const char *fn) {
    NEO__TRY(neo__params_present(mlp->weight, mlp->layers, grads, fn));
    return neo__params_present(mlp->bias, mlp->layers, grads, fn);
}
/* The error of a call's tensors, with the name of the mlp. */
static neo_status neo__mlp_told(const neo_mlp *mlp, neo_status status) {
    const char *name = mlp->weight[0]->name; /* "<name>.0.weight" */
    if (status == NEO_OK) return NEO_OK;
    return neo_fail(status, "%s (mlp '%.*s')", neo_last_error(), (int)strlen(name) - 9, name);
}

/* Rows of a buffer of the mlp as a tensor. */
static neo_tensor neo__mlp_rows(const neo_mlp *mlp, void *data, int64_t rows, int64_t width) {
    return neo__layer_rows(mlp->ctx, data, mlp->desc.dtype, rows, width);
}
/* The operand of products for weight `layer`, or for x after the last. */
static neo_tensor neo__mlp_operand(const neo_mlp *mlp, int layer, neo_tensor t) {
    if (mlp->desc.dtype == NEO_F32) return t;
    return neo__mlp_rows(mlp, mlp->narrow[layer], t.shape[0], t.shape[1]);
}

#if !defined(NEO_INFERENCE)
NEO_API void neo_mlp_drop(neo_mlp *mlp, int64_t step, int64_t first_row) {
    mlp->drop_step = mlp->desc.dropout > 0.0f && first_row >= 0 ? step : -1;
    mlp->drop_row = first_row;
}
static neo_status neo__dropout(neo_ctx *ctx, const char *fn, uint64_t name, int64_t step,
                               int64_t first_row, float p, neo_tensor x, neo_tensor y);
/* Dropout behind layer i, as of the last forward, from x into y. */
static neo_status neo__mlp_dropout(const neo_mlp *mlp, const char *fn, int i, neo_tensor x,
                                   neo_tensor y) {
    return neo__dropout(mlp->ctx, fn, mlp->drop_name[i], mlp->done_step, mlp->done_row,
                        mlp->desc.dropout, x, y);
}
#endif
NEO_API neo_status neo_mlp_forward(neo_mlp *mlp, neo_tensor x, neo_tensor y) {
    static const char *const fn = "neo_mlp_forward";
    const int64_t batch = x.shape[0];
    NEO__CHECK_LIVE(mlp, fn, "mlp");
    neo_ctx *ctx = mlp->ctx;
    const int64_t *widths = mlp->desc.widths;
    const int narrow = mlp->desc.dtype != NEO_F32;
    NEO__TRY(neo__mlp_told(mlp, neo__layer_check_forward(ctx, fn, mlp->desc.max_batch, x, widths[0],
                                                         y, widths[mlp->layers])));
    NEO__TRY(neo__mlp_present(mlp, 0, fn));
    const neo_tensor first = neo__mlp_operand(mlp, mlp->layers, x), none = neo_tensor_none();
    neo_tensor in = first;
    mlp->done_step = mlp->drop_step, mlp->done_row = mlp->drop_row;
    if (narrow) NEO__TRY(neo__convert_for(ctx, fn, x, first));
    for (int i = 0; i < mlp->layers; i++) {
        const int last = i == mlp->layers - 1;
        const neo_tensor value = mlp->weight[i]->value, weight = neo__mlp_operand(mlp, i, value);
        const neo_tensor z = neo__mlp_rows(mlp, mlp->z[i], batch, widths[i + 1]); /* or none */
        neo_tensor out = last ? y : neo__mlp_rows(mlp, mlp->y[i], batch, widths[i + 1]);
        if (narrow) NEO__TRY(neo__convert_for(ctx, fn, value, weight));
        neo__gemm_call call = neo__gemm_call_make(in, 0, weight, 1, z.data ? z : out);
        call.bias = neo__f32(mlp->bias[i]->value);
        call.panels = mlp->panels[i];
        neo__gemm_call_finish(&call, last ? mlp->desc.last_act : mlp->desc.act, 0,
                              z.data ? out : none, none);
        NEO__TRY(NEO__RUN(ctx, fn, gemm, &call));
        in = out;
#if !defined(NEO_INFERENCE)
        if (last || mlp->done_step < 0) continue;
        in = neo__mlp_rows(mlp, mlp->left[i], batch, widths[i + 1]);
        NEO__TRY(neo__mlp_dropout(mlp, fn, i, out, in));
#endif
    }
    mlp->in = first;
    mlp->out = y;
    mlp->forward_done = 1;
    return NEO_OK;
}

#if !defined(NEO_INFERENCE)
/* dz of the last layer from dy, whose rows may be apart. */
static neo_status neo__mlp_last_dz(const neo_mlp *mlp, neo_tensor dy, neo_tensor dz) {
    neo_ctx *ctx = mlp->ctx;
    NEO__ZERO(neo__activation_call, call);
    call.act = mlp->desc.last_act;
    call.backward = 1;
    call.rows = dz.shape[0];
    call.cols = dz.shape[1];
    call.z = (const float *)mlp->z[mlp->layers - 1], call.z_row = call.cols;
    call.y = neo__f32(mlp->out), call.y_row = mlp->out.stride[0];
    call.dy = neo__f32(dy), call.dy_row = dy.stride[0];
    call.out = neo__f32(dz), call.out_row = call.cols;
    call.narrow_z = call.narrow_out = dz.dtype == NEO_BF16;
    return call.rows > 0 ? NEO__RUN(ctx, "neo_mlp_backward", activation, &call) : NEO_OK;
}
NEO_API neo_status neo_mlp_backward(neo_mlp *mlp, const neo_leaves *leaves, neo_tensor dy,
                                    neo_tensor dx) {
    static const char *const fn = "neo_mlp_backward";
    NEO__CHECK_LIVE(mlp, fn, "mlp");
    neo_ctx *ctx = mlp->ctx;
    const int64_t *widths = mlp->desc.widths;
    const int layers = mlp->layers;
    NEO__CHECK(mlp->forward_done, NEO_ERR_STATE, "neo_mlp_backward: there was no forward");
    const int64_t batch = mlp->in.shape[0];
    neo__leaf_cut held;
    NEO__TRY(neo__mlp_told(mlp, neo__layer_check_backward(ctx, fn, "neo_mlp_forward", batch, dy,
                                                          widths[layers], dx, widths[0])));
    NEO__TRY(neo__mlp_present(mlp, 0, fn));
    NEO__TRY(neo__mlp_present(mlp, 1, fn));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    int turn = 0;
    neo_tensor dz = dy;
    if (mlp->desc.last_act != NEO_ACT_NONE || mlp->desc.dtype != NEO_F32) {
        dz = neo__mlp_rows(mlp, mlp->dz[turn++ & 1], batch, widths[layers]);
        NEO__TRY(neo__mlp_last_dz(mlp, dy, dz));
    }
    for (int i = layers - 1; i >= 0; i--) {
        const int drops = i > 0 && mlp->done_step >= 0;
        neo_tensor y = i == 0 ? mlp->in : neo__mlp_rows(mlp, mlp->y[i - 1], batch, widths[i]);
        neo_tensor in = drops ? neo__mlp_rows(mlp, mlp->left[i - 1], batch, widths[i]) : y;
        neo_tensor weight = neo__mlp_operand(mlp, i, mlp->weight[i]->value), below = dx;
        if (i > 0) below = neo__mlp_rows(mlp, mlp->dz[turn++ & 1], batch, widths[i]);
        const int goes_on = below.data != NULL, learns = !mlp->weight[i]->frozen;
        const int joins = goes_on && learns && (i > 0 || !neo__tensors_overlap(&dx, &in));
        neo__gemm_call call = neo__gemm_call_make(dz, 0, weight, 0, below);
        if (i > 0)
            neo__gemm_call_finish(&call, mlp->desc.act, 1, y,
                                  neo__mlp_rows(mlp, mlp->z[i - 1], batch, widths[i]));
        if (learns)
            NEO__TRY(neo__linear_grads(ctx, fn, &held, in, dz, mlp->weight[i]->grad,
                                       mlp->bias[i]->grad, joins ? &call : NULL));
        if (goes_on && !joins) NEO__TRY(NEO__RUN(ctx, fn, gemm, &call));
        if (drops) NEO__TRY(neo__mlp_dropout(mlp, fn, i - 1, below, below));
        dz = below;
    }
    return NEO_OK;
}
#endif
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-interact

   The dot interaction of DLRM (github.com/facebookresearch/dlrm, interact_features), a sample at a
   time; see the kernels under >>kernels-gemm. The factorization machine's are at >>kernels-vec.
   ------------------------------------------------------------------------ */
NEO__STATIC_ASSERT((size_t)NEO__INTERACT_FLOATS / 4 * 5 * sizeof(float) <=
                       NEO__WORKER_SCRATCH_BYTES,
                   "a worker's scratch holds a sample of >>impl-interact");

NEO__HOT_END
NEO_API int64_t neo_interact_width(int64_t dim, int64_t features, int diagonal) {
    if (dim < 0 || dim > INT64_MAX / 2 || features < 0 || features > INT32_MAX) return -1;
    return dim + features * (features + 1) / 2 + (diagonal ? features + 1 : 0);
}

/* The sizes that x, e and z must agree on. */
static neo_status neo__interact_begin(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                      neo__interact_call *call, const char *fn) {
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(x.ndim == 2 && e.ndim == 2, NEO_ERR_SHAPE, "%s: x and e must have two dimensions",
               fn);
    const int64_t batch = x.shape[0], dim = x.shape[1], features = dim > 0 ? e.shape[1] / dim : 0;
    NEO__CHECK(dim > 0, NEO_ERR_SHAPE, "%s: x has no columns", fn);
    NEO__TRY(neo__check_matrix(ctx, x, batch, dim, 0, fn, "x"));
    NEO__TRY(neo__check_matrix(ctx, e, batch, features * dim, 0, fn, "e"));
    NEO__CHECK(features <= NEO__INTERACT_MAX_FEATURES, NEO_ERR_UNSUPPORTED,
               "%s: %" PRId64 " features, more than %d", fn, features,
               (int)NEO__INTERACT_MAX_FEATURES);
    call->batch = batch;
    call->dim = dim;
    call->features = features;
    call->diagonal = diagonal != 0;
    call->x = neo__f32(x), call->x_row = x.stride[0];
    call->e = neo__f32(e), call->e_row = e.stride[0];
    return NEO_OK;
}
NEO_API neo_status neo_interact_forward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                        neo_tensor z) {
    static const char *const fn = "neo_interact_forward";
    neo__interact_call call;
    NEO__TRY(neo__interact_begin(ctx, diagonal, x, e, &call, fn));
    const int64_t width = neo_interact_width(call.dim, call.features, diagonal);
    NEO__TRY(neo__check_matrix(ctx, z, call.batch, width, 1, fn, "z"));
    NEO__APART(fn, 1, 0, {&z, "z"}, {&x, "x"}, {&e, "e"});
    call.z = neo__f32(z), call.z_row = z.stride[0];
    return call.batch > 0 ? NEO__RUN(ctx, fn, interact, &call) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_interact_backward(neo_ctx *ctx, int diagonal, neo_tensor x, neo_tensor e,
                                         neo_tensor dz, neo_tensor dx, neo_tensor de) {
    static const char *const fn = "neo_interact_backward";
    neo__interact_call call;
    NEO__TRY(neo__interact_begin(ctx, diagonal, x, e, &call, fn));
    const int64_t width = neo_interact_width(call.dim, call.features, diagonal);
    NEO__TRY(neo__check_matrix(ctx, dz, call.batch, width, 0, fn, "dz"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix(ctx, dx, call.batch, call.dim, 1, fn, "dx"));
    if (neo__given(de))
        NEO__TRY(neo__check_matrix(ctx, de, call.batch, call.features * call.dim, 1, fn, "de"));
    NEO__APART(fn, 2, 0, {&dx, "dx"}, {&de, "de"}, {&x, "x"}, {&e, "e"}, {&dz, "dz"});
    call.backward = 1;
    call.dz = neo__f32(dz), call.dz_row = dz.stride[0];
    call.dx = neo__f32(dx), call.dx_row = dx.stride[0];
    call.de = neo__f32(de), call.de_row = de.stride[0];
    const int wanted = call.batch > 0 && (call.dx || call.de);
    return wanted ? NEO__RUN(ctx, fn, interact, &call) : NEO_OK;
}
#endif
NEO__HOT_BEGIN

static void neo__interact_part(const neo__cpu_part *part) {
    const neo__interact_call *c = (const neo__interact_call *)part->call;
    const neo__gemm_kernels *kern = part->ctx->gemm;
    float *scratch = neo__worker_floats(part->ctx, part->worker);
    for (int64_t i = part->begin; i < part->end; i++) {
        if (c->backward) kern->interact_backward(c, i, scratch);
        else kern->interact_forward(c, i, scratch);
    }
}
static neo_status neo__cpu_interact(neo_device *d, const neo__interact_call *c) {
    const int64_t vectors = c->features + 1;
    const int64_t grain = 1 + (1 << 16) / (vectors * vectors * c->dim);
    return neo__cpu_run(d, c, c->batch, grain, 1, neo__interact_part);
}

NEO__HOT_END
/* ---- neo_fm ---- */
/* y and v, or their gradients. groups: the features for each of which a row has dim factors; 1 of a
   machine that is not field-aware. */
static neo_status neo__fm_begin(neo_ctx *ctx, const char *fn, int back, int64_t groups, int64_t dim,
                                int weighted, neo_tensor e, neo_tensor y, neo_tensor v,
                                neo__fm_call *call) {
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(groups > 0, NEO_ERR_SHAPE, "%s: %" PRId64 " features", fn, groups);
    const int64_t cols = dim < INT64_MAX / groups ? groups * dim + (weighted != 0) : 0;
    NEO__CHECK(dim >= 0 && cols > 0, NEO_ERR_SHAPE, "%s: dim is %" PRId64 "%s", fn, dim,
               dim == 0 ? ", and there are no weights" : "");
    NEO__CHECK(e.ndim == 2, NEO_ERR_SHAPE, "%s: e must have two dimensions", fn);
    NEO__TRY(neo__check_matrix(ctx, e, e.shape[0], e.shape[1], 0, fn, "e"));
    NEO__CHECK(e.shape[1] % cols == 0, NEO_ERR_SHAPE,
               "%s: e has %" PRId64 " columns, not whole features of %" PRId64, fn, e.shape[1],
               cols);
    call->backward = back;
    call->batch = e.shape[0], call->features = e.shape[1] / cols;
    call->dim = dim, call->cols = cols, call->weighted = weighted != 0;
    call->e = neo__f32(e), call->e_row = e.stride[0];
    if (y.ndim == 2 && y.shape[1] == 1 && neo_tensor_is_contiguous(y)) y.ndim = 1;
    NEO__TRY(neo__check_vector(ctx, y, call->batch, fn, back ? "dy" : "y"));
    if (neo__given(v))
        NEO__TRY(neo__check_matrix(ctx, v, call->batch, call->features * dim, !back, fn,
                                   back ? "dv" : "v"));
    return NEO_OK;
}
NEO_API neo_status neo_fm_forward(neo_ctx *ctx, int64_t dim, int weighted, neo_tensor e,
                                  neo_tensor y, neo_tensor v) {
    static const char *const fn = "neo_fm_forward";
    neo__fm_call call;
    NEO__TRY(neo__fm_begin(ctx, fn, 0, 1, dim, weighted, e, y, v, &call));
    NEO__APART(fn, 2, 0, {&y, "y"}, {&v, "v"}, {&e, "e"});
    call.y = neo__f32(y);
    call.v = neo__f32(v), call.v_row = v.stride[0];
    return call.batch > 0 ? NEO__RUN(ctx, fn, fm, &call) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_fm_backward(neo_ctx *ctx, int64_t dim, int weighted, neo_tensor e,
                                   neo_tensor dy, neo_tensor dv, neo_tensor de) {
    static const char *const fn = "neo_fm_backward";
    neo__fm_call call;
    NEO__TRY(neo__fm_begin(ctx, fn, 1, 1, dim, weighted, e, dy, dv, &call));
    NEO__TRY(neo__check_matrix(ctx, de, e.shape[0], e.shape[1], 1, fn, "de"));
    NEO__APART(fn, 1, 0, {&de, "de"}, {&e, "e"}, {&dy, "dy"}, {&dv, "dv"});
    call.dy = neo__f32(dy);
    call.dv = neo__f32(dv), call.dv_row = dv.stride[0];
    call.de = neo__f32(de), call.de_row = de.stride[0];
    return call.batch > 0 ? NEO__RUN(ctx, fn, fm, &call) : NEO_OK;
}
#endif
/* Rows of that many features. */
static neo_status neo__ffm_begin(neo_ctx *ctx, const char *fn, int back, int64_t features,
                                 int64_t dim, int weighted, neo_tensor e, neo_tensor y,
                                 neo__fm_call *call) {
    NEO__TRY(neo__fm_begin(ctx, fn, back, features, dim, weighted, e, y, neo_tensor_none(), call));
    NEO__CHECK(call->features == features, NEO_ERR_SHAPE,
               "%s: e has %" PRId64 " columns, not %" PRId64 " features of %" PRId64, fn,
               e.shape[1], features, call->cols);
    call->aware = 1;
    return NEO_OK;
}
NEO_API neo_status neo_ffm_forward(neo_ctx *ctx, int64_t features, int64_t dim, int weighted,
                                   neo_tensor e, neo_tensor y) {
    static const char *const fn = "neo_ffm_forward";
    neo__fm_call call;
    NEO__TRY(neo__ffm_begin(ctx, fn, 0, features, dim, weighted, e, y, &call));
    NEO__APART(fn, 1, 0, {&y, "y"}, {&e, "e"});
    call.y = neo__f32(y);
    return call.batch > 0 ? NEO__RUN(ctx, fn, fm, &call) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_ffm_backward(neo_ctx *ctx, int64_t features, int64_t dim, int weighted,
                                    neo_tensor e, neo_tensor dy, neo_tensor de) {
    static const char *const fn = "neo_ffm_backward";
    neo__fm_call call;
    NEO__TRY(neo__ffm_begin(ctx, fn, 1, features, dim, weighted, e, dy, &call));
    NEO__TRY(neo__check_matrix(ctx, de, e.shape[0], e.shape[1], 1, fn, "de"));
    NEO__APART(fn, 1, 0, {&de, "de"}, {&e, "e"}, {&dy, "dy"});
    call.dy = neo__f32(dy);
    call.de = neo__f32(de), call.de_row = de.stride[0];
    return call.batch > 0 ? NEO__RUN(ctx, fn, fm, &call) : NEO_OK;
}
#endif
NEO__HOT_BEGIN

static void neo__fm_part(const neo__cpu_part *part) {
    const neo__fm_call *call = (const neo__fm_call *)part->call;
    const neo__vec_kernels *vec = part->ctx->vec;
    for (int64_t i = part->begin; i < part->end; i++) {
        if (call->backward) vec->fm_back(call, i);
        else call->y[i] = vec->fm(call, i);
    }
}
static neo_status neo__cpu_fm(neo_device *d, const neo__fm_call *call) {
    const int64_t grain = 1 + (1 << 15) / (1 + call->features * call->cols);
    return neo__cpu_run(d, call, call->batch, grain, 1, neo__fm_part);
}

/* ---------------------------------------------------------------------------
   >>impl-activation
   ------------------------------------------------------------------------ */
enum {
    NEO__VEC_GRAIN = 16384
}; /* elements of elementwise work worth a task */

NEO__HOT_END
/* The tensor is contiguous f32 of `like`'s shape. */
static neo_status neo__check_like(const neo_ctx *ctx, const char *function, const char *name,
                                  neo_tensor tensor, neo_tensor like) {
    if (tensor.ndim == 0 && !tensor.data)
        return neo__no_data(function, name, tensor, NEO_ERR_SHAPE);
    NEO__CHECK(tensor.dtype == NEO_F32 && tensor.ndim >= 1 && tensor.ndim <= NEO_MAX_DIMS &&
                   neo_tensor_is_contiguous(tensor),
               NEO_ERR_SHAPE, "%s: %s is not a contiguous f32 tensor", function, name);
    int64_t count = neo__shape_count(tensor.ndim, tensor.shape);
    NEO__CHECK(count >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function, name);
    if (!tensor.data && count > 0) return neo__no_data(function, name, tensor, NEO_ERR_SHAPE);
    NEO__CHECK(tensor.ndim == like.ndim, NEO_ERR_SHAPE, "%s: %s has ndim %d, the first tensor %d",
               function, name, (int)tensor.ndim, (int)like.ndim);
    for (int d = 0; d < tensor.ndim; d++)
        NEO__CHECK(tensor.shape[d] == like.shape[d], NEO_ERR_SHAPE,
                   "%s: %s has shape[%d] %" PRId64 ", the first tensor %" PRId64, function, name, d,
                   tensor.shape[d], like.shape[d]);
    return neo__check_place(ctx, tensor, function, name);
}
/* The same, or of bf16. */
static neo_status neo__check_written(const neo_ctx *ctx, const char *function, const char *name,
                                     neo_tensor tensor, neo_tensor like) {
    if (tensor.dtype == NEO_BF16) tensor.dtype = NEO_F32;
    return neo__check_like(ctx, function, name, tensor, like);
}
NEO_API neo_status neo_activation_forward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                          neo_tensor y) {
    static const char *const fn = "neo_activation_forward";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_activation(fn, act));
    NEO__TRY(neo__check_like(ctx, fn, "z", z, z));
    NEO__TRY(neo__check_written(ctx, fn, "y", y, z));
    NEO__APART(fn, 1, 1, {&y, "y"}, {&z, "z"});
    NEO__ZERO(neo__activation_call, call);
    call.act = act;
    call.rows = 1;
    call.cols = neo_tensor_count(z);
    call.z = neo__f32(z);
    call.out = neo__f32(y);
    call.narrow_out = y.dtype == NEO_BF16;
    return call.cols > 0 ? NEO__RUN(ctx, fn, activation, &call) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_activation_backward(neo_ctx *ctx, neo_activation act, neo_tensor z,
                                           neo_tensor y, neo_tensor dy, neo_tensor dz) {
    static const char *const fn = "neo_activation_backward";
    const int needs_z = neo__act_needs_z(act), needs_y = neo__act_needs_y(act);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_activation(fn, act));
    NEO__TRY(neo__check_written(ctx, fn, "dy", dy, dy));
    NEO__TRY(neo__check_written(ctx, fn, "dz", dz, dy));
    if (needs_z) NEO__TRY(neo__check_like(ctx, fn, "z", z, dy));
    if (needs_y) NEO__TRY(neo__check_like(ctx, fn, "y", y, dy));
    NEO__APART(fn, 1, dy.dtype == dz.dtype || dy.dtype == NEO_F32, {&dz, "dz"}, {&dy, "dy"});
    if (needs_z || needs_y)
        NEO__APART(fn, 1, 1, {&dz, "dz"}, {needs_z ? &z : &y, needs_z ? "z" : "y"});
    NEO__ZERO(neo__activation_call, call);
    call.act = act;
    call.backward = 1;
    call.rows = 1;
    call.cols = neo_tensor_count(dy);
    if (needs_z) call.z = neo__f32(z);
    if (needs_y) call.y = neo__f32(y);
    call.dy = neo__f32(dy);
    call.out = neo__f32(dz);
    call.narrow_dy = dy.dtype == NEO_BF16, call.narrow_out = dz.dtype == NEO_BF16;
    return call.cols > 0 ? NEO__RUN(ctx, fn, activation, &call) : NEO_OK;
}
#endif

/* ---- neo_add, neo_mul, neo_addcmul, neo_scale, neo_round, neo_dropout, neo_dot ---- */
/* t has like's shape, in f32: contiguous, or a matrix with rows apart. */
static neo_status neo__check_rows(const neo_ctx *ctx, const char *fn, const char *name,
                                  neo_tensor t, neo_tensor like) {
    const int apart = t.ndim == 2 && t.dtype == NEO_F32 && !neo_tensor_is_contiguous(t);
    if (!apart || like.ndim != 2) return neo__check_like(ctx, fn, name, t, like);
    return neo__check_matrix(ctx, t, like.shape[0], like.shape[1], 1, fn, name);
}
/* Elements from row to row of what neo__check_rows took. */
static int64_t neo__row_step(neo_tensor t) {
    if (neo_tensor_is_contiguous(t)) return t.ndim == 2 ? t.shape[1] : neo_tensor_count(t);
    return t.stride[0];
}
static int neo__blend_makes_y(neo__blend_kind kind) {
    return kind == NEO__BLEND_ROUND || kind == NEO__BLEND_DROP;
}
static neo_status neo__blend_begin(neo__blend_call *call, neo_ctx *ctx, const char *fn,
                                   neo__blend_kind kind, neo_tensor x, neo_tensor y) {
    const int any_float =
        kind == NEO__BLEND_ADD || kind == NEO__BLEND_MUL || kind == NEO__BLEND_DROP;
    neo_tensor like_x = x, like_y = y;
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(!any_float || (neo__is_float(x.dtype) && neo__is_float(y.dtype)), NEO_ERR_SHAPE,
               "%s: x is %s, y %s, both must be floats", fn, neo_dtype_name(x.dtype),
               neo_dtype_name(y.dtype));
    if (any_float) like_x.dtype = like_y.dtype = NEO_F32; /* for the next checks */
    NEO__TRY(neo__check_rows(ctx, fn, "x", like_x, like_x));
    NEO__TRY(neo__check_rows(ctx, fn, "y", like_y, like_x));
    if (any_float || neo__blend_makes_y(kind)) NEO__APART(fn, 1, 1, {&x, "x"}, {&y, "y"});
    const int matrix = x.ndim == 2;
    call->kind = kind;
    call->x = x.data, call->x_dtype = x.dtype;
    call->y = y.data, call->y_dtype = y.dtype;
    call->rows = matrix ? x.shape[0] : 1;
    call->cols = matrix ? x.shape[1] : neo_tensor_count(x);
    call->x_row = neo__row_step(x);
    call->y_row = neo__row_step(y);
    return NEO_OK;
}
static neo_status neo__blend(neo_ctx *ctx, const char *fn, const neo__blend_call *call) {
    return call->rows > 0 && call->cols > 0 ? NEO__RUN(ctx, fn, blend, call) : NEO_OK;
}
NEO_API neo_status neo_add(neo_ctx *ctx, neo_tensor x, neo_tensor y) {
    neo__blend_call call;
    NEO__TRY(neo__blend_begin(&call, ctx, "neo_add", NEO__BLEND_ADD, x, y));
    return neo__blend(ctx, "neo_add", &call);
}
NEO_API neo_status neo_mul(neo_ctx *ctx, neo_tensor x, neo_tensor y) {
    neo__blend_call call;
    NEO__TRY(neo__blend_begin(&call, ctx, "neo_mul", NEO__BLEND_MUL, x, y));
    return neo__blend(ctx, "neo_mul", &call);
}
/* neo_addcmul of tensors that are checked; names: of x, y, z, base. */
static neo_status neo__addcmul(neo_ctx *ctx, const char *fn, const char *const *names,
                               neo_tensor base, neo_tensor y, neo_tensor z, neo_tensor x) {
    neo__blend_call call;
    NEO__TRY(neo__blend_begin(&call, ctx, fn, NEO__BLEND_FMA, x, y));
    call.names = names;
    call.z = neo__f32(z), call.z_row = neo__row_step(z);
    call.base = neo__f32(base);
    if (call.base) call.base_row = neo__row_step(base);
    return neo__blend(ctx, fn, &call);
}
NEO_API neo_status neo_addcmul(neo_ctx *ctx, neo_tensor base, neo_tensor y, neo_tensor z,
                               neo_tensor x) {
    static const char *const fn = "neo_addcmul";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_rows(ctx, fn, "x", x, x));
    NEO__TRY(neo__check_rows(ctx, fn, "y", y, x));
    NEO__TRY(neo__check_rows(ctx, fn, "z", z, x));
    if (neo__given(base)) NEO__TRY(neo__check_rows(ctx, fn, "base", base, x));
    NEO__APART(fn, 1, 1, {&x, "x"}, {&y, "y"}, {&z, "z"}, {&base, "base"});
    return neo__addcmul(ctx, fn, NULL, base, y, z, x);
}
/* The record of a dot or its gradients: x and y are matrices, out has a number for each row. */
static neo_status neo__dot_begin(neo__blend_call *call, neo_ctx *ctx, const char *fn,
                                 const char *name, neo_tensor x, neo_tensor y, neo_tensor out) {
    NEO__CHECK(x.ndim == 2 && y.ndim == 2, NEO_ERR_SHAPE, "%s: x and y are not matrices [B][n]",
               fn);
    NEO__TRY(neo__blend_begin(call, ctx, fn, NEO__BLEND_DOT, x, y));
    if (out.ndim == 2 && out.shape[1] == 1 && neo_tensor_is_contiguous(out)) out.ndim = 1;
    NEO__TRY(neo__check_vector(ctx, out, x.shape[0], fn, name));
    call->out = neo__f32(out);
    return NEO_OK;
}
NEO_API neo_status neo_dot_forward(neo_ctx *ctx, neo_tensor x, neo_tensor y, neo_tensor out) {
    neo__blend_call call;
    NEO__TRY(neo__dot_begin(&call, ctx, "neo_dot_forward", "out", x, y, out));
    NEO__APART("neo_dot_forward", 1, 0, {&out, "out"}, {&x, "x"}, {&y, "y"});
    if (call.cols == 0) return neo_tensor_zero(ctx, out);
    return neo__blend(ctx, "neo_dot_forward", &call);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_dot_backward(neo_ctx *ctx, neo_tensor x, neo_tensor y, neo_tensor dout,
                                    neo_tensor dx, neo_tensor dy) {
    static const char *const fn = "neo_dot_backward";
    const neo_tensor grad[2] = {dx, dy}, from[2] = {y, x};
    neo__blend_call call, to[2];
    NEO__TRY(neo__dot_begin(&call, ctx, fn, "dout", x, y, dout));
    NEO__APART(fn, 2, 0, {&dx, "dx"}, {&dy, "dy"}, {&x, "x"}, {&y, "y"}, {&dout, "dout"});
    memset(to, 0, sizeof to); /* of no rows: nothing to do */
    for (int k = 0; k < 2; k++) {
        if (!neo__given(grad[k])) continue;
        NEO__TRY(neo__check_rows(ctx, fn, k ? "dy" : "dx", grad[k], x));
        NEO__TRY(neo__blend_begin(&to[k], ctx, fn, NEO__BLEND_ROWS, grad[k], from[k]));
        to[k].out = call.out;
    }
    NEO__TRY(neo__blend(ctx, fn, &to[0]));
    return neo__blend(ctx, fn, &to[1]);
}
#endif
NEO_API neo_status neo_scale(neo_ctx *ctx, neo_tensor x, float factor, int *finite) {
    neo__blend_call call;
    int infinite = 0;
    NEO__TRY(neo__blend_begin(&call, ctx, "neo_scale", NEO__BLEND_SCALE, x, x));
    call.factor = factor;
    call.infinite = finite ? &infinite : NULL;
    NEO__TRY(neo__blend(ctx, "neo_scale", &call));
    if (finite) *finite = !infinite;
    return NEO_OK;
}
NEO_API neo_status neo_round(neo_ctx *ctx, neo_dtype dtype, neo_tensor x, neo_tensor y) {
    neo__blend_call call;
    NEO__CHECK(neo__is_float(dtype) && dtype != NEO_F32, NEO_ERR_ARG,
               "neo_round: dtype is %s, not a float narrower than f32", neo_dtype_name(dtype));
    NEO__TRY(neo__blend_begin(&call, ctx, "neo_round", NEO__BLEND_ROUND, x, y));
    call.dtype = dtype;
    return neo__blend(ctx, "neo_round", &call);
}
#if !defined(NEO_INFERENCE)
/* name: hashed. */
static neo_status neo__dropout(neo_ctx *ctx, const char *fn, uint64_t name, int64_t step,
                               int64_t first_row, float p, neo_tensor x, neo_tensor y) {
    neo__blend_call call;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(p >= 0.0f && p < 1.0f, NEO_ERR_ARG, "%s: p is %g, not in [0, 1)", fn, (double)p);
    NEO__CHECK(step >= 0 && first_row >= 0, NEO_ERR_ARG,
               "%s: step %" PRId64 " or first_row %" PRId64 " is negative", fn, step, first_row);
    NEO__TRY(neo__blend_begin(&call, ctx, fn, NEO__BLEND_DROP, x, y));
    call.key = neo__random_key_make(ctx->seed, name, step, NEO_STREAM_DROPOUT);
    call.first = (uint64_t)first_row * (uint64_t)call.cols;
    call.least = p;
    call.factor = 1.0f / (1.0f - p);
    return neo__blend(ctx, fn, &call);
}
NEO_API neo_status neo_dropout(neo_ctx *ctx, const char *name, int64_t step, int64_t first_row,
                               float p, neo_tensor x, neo_tensor y) {
    return neo__dropout(ctx, "neo_dropout", neo_hash(name), step, first_row, p, x, y);
}
#endif
NEO__HOT_BEGIN

/* ---- the CPU ---- */
/* Columns [begin, end) of row i; of bf16, some at a time. */
static void neo__activation_row(const neo_ctx *ctx, const neo__activation_call *call, int64_t i,
                                int64_t begin, int64_t end) {
    enum { WIDE = 256 };
    float wide_z[WIDE], wide_dy[WIDE], wide_out[WIDE];
    for (int64_t j = begin, count; j < end; j += count) {
        const float *z = call->z ? call->z + i * call->z_row + j : NULL;
        const float *y = call->y ? call->y + i * call->y_row + j : NULL;
        const float *dy = call->backward ? call->dy + i * call->dy_row + j : NULL;
        float *out = call->out + i * call->out_row + j;
        count = end - j;
        if (call->narrow_out || call->narrow_dy) count = NEO__MIN(count, (int64_t)WIDE);
        if (call->narrow_out) out = wide_out;
        if (call->narrow_dy) {
            const uint16_t *halves = (const uint16_t *)(const void *)call->dy;
            ctx->tensor->f32_from_bf16(wide_dy, halves + i * call->dy_row + j, count);
            dy = wide_dy;
        }
        if (call->narrow_z && z) { /* then out is bf16, too */
            const uint16_t *halves = (const uint16_t *)(const void *)call->z;
            ctx->tensor->f32_from_bf16(wide_z, halves + i * call->z_row + j, count);
            z = wide_z;
        }
        if (call->backward) ctx->vec->act_backward(call->act, z, y, dy, out, count);
        else ctx->vec->act_forward(call->act, z, out, count);
        if (call->narrow_out)
            ctx->tensor->bf16_from_f32((uint16_t *)(void *)call->out + i * call->out_row + j, out,
                                       count);
    }
}
/* Pieces are rows, or the elements of one row. */
static void neo__activation_part(const neo__cpu_part *part) {
    const neo__activation_call *c = (const neo__activation_call *)part->call;
    if (c->rows == 1) neo__activation_row(part->ctx, c, 0, part->begin, part->end);
    for (int64_t i = part->begin; c->rows > 1 && i < part->end; i++)
        neo__activation_row(part->ctx, c, i, 0, c->cols);
}
static neo_status neo__cpu_activation(neo_device *d, const neo__activation_call *call) {
    neo__activation_call c = *call;
    const int one_run = (!c.z || c.z_row == c.cols) && (!c.y || c.y_row == c.cols) &&
                        (!c.dy || c.dy_row == c.cols) && c.out_row == c.cols;
    if (one_run) c.cols *= c.rows, c.rows = 1;
    if (c.rows == 1) return neo__cpu_run(d, &c, c.cols, NEO__VEC_GRAIN, 16, neo__activation_part);
    return neo__cpu_run(d, &c, c.rows, 1 + NEO__VEC_GRAIN / 2 / c.cols, 1, neo__activation_part);
}

NEO__INLINE void *neo__element(const void *base, int64_t at, neo_dtype dtype) {
    return (char *)(uintptr_t)base + (size_t)at * neo_dtype_size(dtype);
}
#if !defined(NEO_INFERENCE)
/* y of NEO__BLEND_DROP, of whose elements the first has the random number `first`. */
static void neo__blend_drop(const neo_ctx *ctx, const neo__blend_call *call, uint64_t first,
                            const float *x, float *y, int64_t count) {
    float uniform[NEO__BLOCK + 8]; /* of whole blocks of 4 */
    const int64_t skip = (int64_t)(first % 4);
    ctx->tensor->uniform(uniform, (skip + count + 3) / 4, &call->key, first / 4, NULL, 0.0f, 1.0f,
                         1.0f);
    for (int64_t i = 0; i < count; i++)
        y[i] = uniform[skip + i] >= call->least ? x[i] * call->factor : 0.0f;
}
#endif
/* At most NEO__BLOCK elements of a row from column `at` on. */
static void neo__blend_block(const neo_ctx *ctx, const neo__blend_call *call, int64_t row,
                             int64_t at, int64_t count) {
    float wide_x[NEO__BLOCK], wide_y[NEO__BLOCK];
    uint16_t narrow[NEO__BLOCK];
    void *x = neo__element(call->x, row * call->x_row + at, call->x_dtype);
    void *y = neo__element(call->y, row * call->y_row + at, call->y_dtype);
    float *to = call->x_dtype == NEO_F32 ? (float *)x : wide_x, *from = (float *)y;
    int infinite = 0;
    switch (call->kind) {
    case NEO__BLEND_ADD:
    case NEO__BLEND_MUL:
        if (call->y_dtype != NEO_F32)
            neo__decode_float(ctx, call->y_dtype, y, from = wide_y, count);
        if (to == wide_x) neo__decode_float(ctx, call->x_dtype, x, to, count);
        if (call->kind == NEO__BLEND_ADD) ctx->vec->add(to, from, count);
        else ctx->vec->mul(to, from, count);
        if (to == wide_x) neo__encode_float(ctx, call->x_dtype, to, x, NULL, count);
        break;
    case NEO__BLEND_FMA:
        ctx->vec->addcmul(call->base ? call->base + row * call->base_row + at : NULL, from,
                          call->z + row * call->z_row + at, to, count);
        break;
    case NEO__BLEND_DOT: call->out[row] = ctx->vec->dot(to, from, count); break; /* the whole row */
    case NEO__BLEND_ROWS:
        for (int64_t i = 0; i < count; i++) to[i] = call->out[row] * from[i];
        break;
    case NEO__BLEND_LOOK:
    case NEO__BLEND_SCALE:
        if (to == wide_x) neo__decode_float(ctx, call->x_dtype, x, to, count);
        for (int64_t i = 0; i < count; i++)
            infinite |= (neo__bits_f32(to[i]) & 0x7F800000u) == 0x7F800000u;
        for (int64_t i = 0; call->kind == NEO__BLEND_SCALE && i < count; i++) to[i] *= call->factor;
        if (infinite && call->infinite) __atomic_store_n(call->infinite, 1, __ATOMIC_RELAXED);
        break;
    case NEO__BLEND_ROUND:
        neo__encode_float(ctx, call->dtype, to, narrow, NULL, count);
        neo__decode_float(ctx, call->dtype, narrow, from, count);
        break;
    case NEO__BLEND_DROP:
#if !defined(NEO_INFERENCE)
        if (to == wide_x) neo__decode_float(ctx, call->x_dtype, x, to, count);
        if (call->y_dtype != NEO_F32) from = wide_y;
        neo__blend_drop(ctx, call, call->first + (uint64_t)(row * call->cols + at), to, from,
                        count);
        if (from == wide_y) neo__encode_float(ctx, call->y_dtype, from, y, NULL, count);
#endif
        break;
    }
}
/* Columns [begin, end) of a row: f32 sums, products and dots in one piece, else by blocks. */
static void neo__blend_row(const neo_ctx *ctx, const neo__blend_call *c, int64_t row, int64_t begin,
                           int64_t end) {
    const int wide = c->x_dtype == NEO_F32 && c->y_dtype == NEO_F32;
    const int whole = wide && c->kind != NEO__BLEND_SCALE && c->kind != NEO__BLEND_LOOK &&
                      !neo__blend_makes_y(c->kind);
    const int64_t piece = whole ? end - begin : (int64_t)NEO__BLOCK;
    for (int64_t at = begin; at < end; at += piece)
        neo__blend_block(ctx, c, row, at, NEO__MIN(end - at, piece));
}
/* Pieces are rows, or the elements of one row. */
static void neo__blend_part(const neo__cpu_part *part) {
    const neo__blend_call *c = (const neo__blend_call *)part->call;
    const int elements = c->rows == 1 && c->kind != NEO__BLEND_DOT; /* a dot is one piece */
    if (elements) neo__blend_row(part->ctx, c, 0, part->begin, part->end);
    for (int64_t i = part->begin; !elements && i < part->end; i++)
        neo__blend_row(part->ctx, c, i, 0, c->cols);
}
static neo_status neo__cpu_blend(neo_device *d, const neo__blend_call *call) {
    neo__blend_call c = *call;
    const int by_row = c.kind == NEO__BLEND_DOT || c.kind == NEO__BLEND_ROWS;
    const int one_run = c.x_row == c.cols && c.y_row == c.cols && (!c.z || c.z_row == c.cols) &&
                        (!c.base || c.base_row == c.cols);
    if (one_run && !by_row) c.cols *= c.rows, c.rows = 1;
    if (c.rows == 1 && c.kind != NEO__BLEND_DOT)
        return neo__cpu_run(d, &c, c.cols, NEO__VEC_GRAIN, NEO__BLOCK, neo__blend_part);
    return neo__cpu_run(d, &c, c.rows, 1 + NEO__VEC_GRAIN / 2 / c.cols, 1, neo__blend_part);
}

/* ---------------------------------------------------------------------------
   >>impl-cross

   A layer is one or two products and a pass over the elements: x_(l+1) = x_l + x_0 * u_l, where
   u_l = W_l x_l + bias_l. The block of memory holds what the backward reads, x_l, u_l and, of low
   rank, v_l = V_l x_l, then buffers of the gradients. In bf16 the products read copies of x_l, of
   the gradients and of the weights; v_l is bf16 itself.
   ------------------------------------------------------------------------ */
struct neo_cross {
    neo_ctx *ctx;
    neo__live live;
    char *data;
    size_t data_bytes;
    neo_cross_desc desc; /* name: NULL */
    const neo_param *weight[2 * NEO_MAX_LAYERS]; /* of low rank V_l, W_l; else W_l, NULL */
    const neo_param *bias[NEO_MAX_LAYERS];
    void *x[NEO_MAX_LAYERS]; /* x_l of l > 0 */
    void *u[NEO_MAX_LAYERS], *v[NEO_MAX_LAYERS];
    void *grad, *du, *dv;    /* of x_l, u_l, v_l */
    void *narrow_x[NEO_MAX_LAYERS], *narrow_du, *narrow_weight[2 * NEO_MAX_LAYERS]; /* of bf16 */
    neo_tensor in; /* x_0 of the last forward */
    int forward_done;
};

NEO__HOT_END
static neo_status neo__cross_check(const neo_cross_desc *desc, const char *fn) {
    NEO__CHECK(desc && desc->name && desc->name[0], NEO_ERR_ARG, "%s: a name is required", fn);
    NEO__CHECK(desc->layers >= 1 && desc->layers <= NEO_MAX_LAYERS, NEO_ERR_ARG,
               "%s: %s: layers is %d, not in 1 .. %d", fn, desc->name, desc->layers,
               NEO_MAX_LAYERS);
    NEO__CHECK(desc->width > 0, NEO_ERR_ARG, "%s: %s: width is %" PRId64, fn, desc->name,
               desc->width);
    NEO__CHECK(desc->rank >= 0, NEO_ERR_ARG, "%s: %s: rank is %" PRId64, fn, desc->name,
               desc->rank);
    NEO__CHECK(desc->max_batch > 0, NEO_ERR_ARG, "%s: %s: max_batch is %" PRId64, fn, desc->name,
               desc->max_batch);
    NEO__CHECK(desc->dtype == NEO_F32 || desc->dtype == NEO_BF16, NEO_ERR_ARG,
               "%s: %s: dtype %s is neither f32 nor bf16", fn, desc->name,
               neo_dtype_name(desc->dtype));
    return NEO_OK;
}

/* Cut the block into buffers; NULL: count its bytes alone. */
static size_t neo__cross_layout(neo_cross *cross, const neo_cross_desc *desc, char *block) {
    neo__carve carve = {block, 0};
    const int64_t batch = desc->max_batch, width = desc->width, rank = desc->rank;
    const int narrow = desc->dtype == NEO_BF16;
    for (int i = 0; i < desc->layers; i++) {
        if (i > 0) neo__layer_carve(&carve, &cross->x[i], NEO_F32, batch, width);
        neo__layer_carve(&carve, &cross->u[i], NEO_F32, batch, width);
        if (rank) neo__layer_carve(&carve, &cross->v[i], desc->dtype, batch, rank);
        if (!narrow) continue;
        neo__layer_carve(&carve, &cross->narrow_x[i], NEO_BF16, batch, width);
        for (int k = 0; k < (rank ? 2 : 1); k++)
            neo__layer_carve(&carve, &cross->narrow_weight[2 * i + k], NEO_BF16, width,
                             rank ? rank : width);
    }
    if (desc->layers > 1) neo__layer_carve(&carve, &cross->grad, NEO_F32, batch, width);
    neo__layer_carve(&carve, &cross->du, NEO_F32, batch, width);
    if (rank) neo__layer_carve(&carve, &cross->dv, desc->dtype, batch, rank);
    if (narrow) neo__layer_carve(&carve, &cross->narrow_du, NEO_BF16, batch, width);
    return carve.at;
}
static size_t neo__cross_data_bytes(const neo_cross_desc *d) {
    NEO__ZERO(neo_cross, cross);
    return neo__cross_layout(&cross, d, NULL);
}
NEO_API size_t neo_cross_workspace_bytes(const neo_cross_desc *desc) {
    return neo__cross_check(desc, "neo_cross_workspace_bytes") == NEO_OK
               ? neo__size_add(sizeof(neo_cross), neo__cross_data_bytes(desc))
               : 0;
}

static neo_status neo__cross_add_params(neo_cross *cross, neo_params *params,
                                        const neo_cross_desc *desc) {
    const int64_t width = desc->width, rank = desc->rank;
    const int64_t shapes[2][2] = {{rank ? rank : width, width}, {width, rank}};
    const char *const kinds[2] = {rank ? "V_kernels" : "kernels", "W_kernels"};
    const neo_init zeros = {NEO_INIT_DEFAULT, 0.0f, 0.0f};
    const neo_init weight = {
        NEO_INIT_NORMAL, 0.0f,
        (float)sqrt(2.0 / ((double)shapes[0][0] + (double)shapes[0][1]))};
    char name[256];
    NEO__CHECK(strlen(desc->name) + 24 <= sizeof name, NEO_ERR_ARG,
               "neo_cross_create: the name is too long");
    for (int i = 0; i < desc->layers; i++) {
        for (int k = 0; k < (rank ? 2 : 1); k++) {
            snprintf(name, sizeof name, "%s.%s.%d", desc->name, kinds[k], i);
            NEO__TRY(neo_params_add(params, name, 2, shapes[k], weight, &cross->weight[2 * i + k]));
        }
        snprintf(name, sizeof name, "%s.bias.%d", desc->name, i);
        NEO__TRY(neo_params_add(params, name, 1, &width, zeros, &cross->bias[i]));
    }
    return NEO_OK;
}
NEO_API neo_status neo_cross_create(neo_ctx *ctx, neo_params *params, const neo_cross_desc *desc,
                                    neo_cross **out) {
    static const char *const fn = "neo_cross_create";
    NEO__CHECK(out, NEO_ERR_ARG, "%s: cross is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_params(ctx, params, fn));
    NEO__TRY(neo__cross_check(desc, fn));
    const size_t bytes = neo__cross_data_bytes(desc);
    char *data;
    neo_cross *cross =
        (neo_cross *)neo__alloc_with_data(ctx, fn, desc->name, sizeof *cross, bytes, &data);
    if (!cross) return NEO_ERR_MEMORY;
    (void)neo__cross_layout(cross, desc, data);
    cross->ctx = ctx;
    cross->data = data;
    cross->data_bytes = bytes;
    cross->desc = *desc;
    cross->desc.name = NULL;
    const int before = neo_params_count(params);
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__cross_add_params(cross, params, desc);
    neo__fp_leave(fp);
    if (status != NEO_OK) {
        neo__params_truncate(params, before);
        neo_cross_destroy(cross);
        return status;
    }
    neo__live_begin(ctx, &cross->live, "cross network", desc->name);
    *out = cross;
    return NEO_OK;
}
NEO_API void neo_cross_destroy(neo_cross *cross) {
    if (!cross) return;
    neo__live_end(cross->ctx, &cross->live);
    neo__data_free(cross->ctx, cross->data, cross->data_bytes);
    neo_free(cross->ctx, cross, sizeof *cross);
}

static neo_status neo__cross_present(const neo_cross *cross, int grads, const char *fn) {
    const int layers = cross->desc.layers, each = cross->desc.rank ? 2 : 1;
    for (int i = 0; i < layers; i++)
        NEO__TRY(neo__params_present(cross->weight + 2 * i, each, grads, fn));
    return neo__params_present(cross->bias, layers, grads, fn);
}
/* x_layer in f32, and as the products read it. */
static neo_tensor neo__cross_x(const neo_cross *cross, int layer) {
    const neo_tensor first = cross->in;
    if (layer == 0) return first;
    return neo__layer_rows(cross->ctx, cross->x[layer], NEO_F32, first.shape[0], first.shape[1]);
}
static neo_tensor neo__cross_operand(const neo_cross *cross, int layer) {
    const neo_tensor first = cross->in;
    if (cross->desc.dtype == NEO_F32) return neo__cross_x(cross, layer);
    return neo__layer_rows(cross->ctx, cross->narrow_x[layer], NEO_BF16, first.shape[0],
                           first.shape[1]);
}
/* The weight as the products read it. */
static neo_tensor neo__cross_weight(const neo_cross *cross, int index) {
    const neo_tensor value = cross->weight[index]->value;
    if (cross->desc.dtype == NEO_F32) return value;
    return neo__layer_rows(cross->ctx, cross->narrow_weight[index], NEO_BF16, value.shape[0],
                           value.shape[1]);
}

/* u_layer, and v_layer before it. */
static neo_status neo__cross_products(neo_cross *cross, int layer, neo_tensor u, const char *fn) {
    neo_ctx *ctx = cross->ctx;
    const int low = cross->desc.rank > 0;
    neo_tensor in = neo__cross_operand(cross, layer);
    if (cross->desc.dtype != NEO_F32) {
        NEO__TRY(neo__convert_for(ctx, fn, neo__cross_x(cross, layer), in));
        for (int k = 2 * layer; k <= 2 * layer + low; k++)
            NEO__TRY(neo__convert_for(ctx, fn, cross->weight[k]->value,
                                      neo__cross_weight(cross, k)));
    }
    if (low) {
        const neo_tensor v = neo__layer_rows(cross->ctx, cross->v[layer], cross->desc.dtype,
                                             in.shape[0], cross->desc.rank);
        const neo__gemm_call call =
            neo__gemm_call_make(in, 0, neo__cross_weight(cross, 2 * layer), 1, v);
        NEO__TRY(NEO__RUN(ctx, fn, gemm, &call));
        in = v;
    }
    neo__gemm_call call =
        neo__gemm_call_make(in, 0, neo__cross_weight(cross, 2 * layer + low), 1, u);
    call.bias = neo__f32(cross->bias[layer]->value);
    return NEO__RUN(ctx, fn, gemm, &call);
}
NEO_API neo_status neo_cross_forward(neo_cross *cross, neo_tensor x, neo_tensor y) {
    static const char *const fn = "neo_cross_forward";
    static const char *const names[] = {"x_(l+1)", "x_0", "u_l", "x_l"};
    NEO__CHECK_LIVE(cross, fn, "cross");
    neo_ctx *ctx = cross->ctx;
    const int layers = cross->desc.layers;
    const int64_t width = cross->desc.width, batch = x.shape[0];
    NEO__TRY(neo__layer_check_forward(ctx, fn, cross->desc.max_batch, x, width, y, width));
    NEO__TRY(neo__cross_present(cross, 0, fn));
    cross->in = x;
    cross->forward_done = 0;
    for (int i = 0; i < layers; i++) {
        const neo_tensor u = neo__layer_rows(cross->ctx, cross->u[i], NEO_F32, batch, width);
        const neo_tensor next = i + 1 < layers ? neo__cross_x(cross, i + 1) : y;
        NEO__TRY(neo__cross_products(cross, i, u, fn));
        NEO__TRY(neo__addcmul(ctx, fn, names, neo__cross_x(cross, i), x, u, next));
    }
    cross->forward_done = 1;
    return NEO_OK;
}

#if !defined(NEO_INFERENCE)
/* Gradients of a layer's parameters from du, and of x_layer: added to dx, if it is not none. */
static neo_status neo__cross_grads(neo_cross *cross, const neo__leaf_cut *leaves, int layer,
                                   neo_tensor du, neo_tensor dx, const char *fn) {
    neo_ctx *ctx = cross->ctx;
    const neo_tensor x = neo__cross_operand(cross, layer), none = neo_tensor_none();
    const neo_param *const *weight = cross->weight + 2 * layer;
    neo_tensor bias = cross->bias[layer]->grad;
    const int trains = !weight[0]->frozen, low = cross->desc.rank > 0;
    if (low) {
        const neo_dtype dtype = cross->desc.dtype;
        const int64_t batch = x.shape[0], rank = cross->desc.rank;
        const neo_tensor v = neo__layer_rows(cross->ctx, cross->v[layer], dtype, batch, rank);
        const neo_tensor dv = neo__layer_rows(cross->ctx, cross->dv, dtype, batch, rank);
        const neo__gemm_call call =
            neo__gemm_call_make(du, 0, neo__cross_weight(cross, 2 * layer + 1), 0, dv);
        if (!trains) NEO__TRY(NEO__RUN(ctx, fn, gemm, &call));
        else NEO__TRY(neo__linear_grads(ctx, fn, leaves, v, du, weight[1]->grad, bias, &call));
        du = dv, bias = none;
    }
    neo__gemm_call call = neo__gemm_call_make(du, 0, neo__cross_weight(cross, 2 * layer), 0, dx);
    call.beta = 1.0f;
    if (!trains) return dx.data ? NEO__RUN(ctx, fn, gemm, &call) : NEO_OK;
    return neo__linear_grads(ctx, fn, leaves, x, du, weight[0]->grad, bias,
                             dx.data ? &call : NULL);
}
NEO_API neo_status neo_cross_backward(neo_cross *cross, const neo_leaves *leaves, neo_tensor dy,
                                      neo_tensor dx) {
    static const char *const fn = "neo_cross_backward";
    static const char *const of_u[] = {"du_l", "dy", "x_0", ""};
    static const char *const of_x[] = {"dx", "dy", "u_l", "dx"};
    NEO__CHECK_LIVE(cross, fn, "cross");
    neo_ctx *ctx = cross->ctx;
    const int layers = cross->desc.layers;
    const int64_t width = cross->desc.width, batch = cross->in.shape[0];
    NEO__CHECK(cross->forward_done, NEO_ERR_STATE, "%s: there was no forward", fn);
    neo__leaf_cut held;
    NEO__TRY(
        neo__layer_check_backward(ctx, fn, "neo_cross_forward", batch, dy, width, dx, width));
    NEO__APART(fn, 1, 0, {&dx, "dx"}, {&cross->in, "x"});
    NEO__TRY(neo__cross_present(cross, 0, fn));
    NEO__TRY(neo__cross_present(cross, 1, fn));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    const neo_tensor none = neo_tensor_none();
    const neo_tensor du = neo__layer_rows(cross->ctx, cross->du, NEO_F32, batch, width);
    const neo_tensor narrow_du =
        neo__layer_rows(cross->ctx, cross->narrow_du, NEO_BF16, batch, width);
    const neo_tensor grad = neo__layer_rows(ctx, cross->grad, NEO_F32, batch, width);
    neo_tensor above = dy; /* the gradient of x_(i + 1) */
    for (int i = layers - 1; i >= 0; i--) {
        const neo_tensor u = neo__layer_rows(cross->ctx, cross->u[i], NEO_F32, batch, width);
        neo_tensor below = i > 0 ? grad : dx;
        NEO__TRY(neo__addcmul(ctx, fn, of_u, none, above, cross->in, du));
        if (dx.data) /* the ways into x_0 as a factor add up there */
            NEO__TRY(neo__addcmul(ctx, fn, of_x, i < layers - 1 ? dx : none, above, u, dx));
        if (i > 0 && above.data != grad.data) NEO__TRY(neo__convert_for(ctx, fn, dy, grad));
        if (i == 0 && dx.data) { /* and the way as the first addend */
            neo__blend_call sum;
            NEO__TRY(neo__blend_begin(&sum, ctx, fn, NEO__BLEND_ADD, dx, above));
            sum.names = of_x;
            NEO__TRY(neo__blend(ctx, fn, &sum));
        }
        if (cross->desc.dtype != NEO_F32) NEO__TRY(neo__convert_for(ctx, fn, du, narrow_du));
        NEO__TRY(neo__cross_grads(cross, &held, i, narrow_du.data ? narrow_du : du, below, fn));
        above = below;
    }
    return NEO_OK;
}
#endif
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-norm

   Layer norm and RMS norm: rows are independent but for dweight and dbias, which add row by row
   inside a leaf, over leaves by the tree, for a few columns at a time (so dx, which may be dy,
   comes after).
   ------------------------------------------------------------------------ */
enum {
    NEO__NORM_COLS = 64, /* columns of dweight and dbias that a task adds */
    NEO__NORM_DEPTH = 16 /* subtree sums waiting: more than any tree of 4096 leaves has */
};

NEO__HOT_END
/* The dtype of x and of all that is like it: bf16 where the device takes that. */
static neo_dtype neo__norm_dtype(const neo_ctx *ctx, neo_tensor x) {
    const neo_device *d = NEO__TRAINS ? neo_ctx_device(ctx) : NULL;
    return d && d->narrow_tensors ? neo__operand_dtype(x) : NEO_F32;
}
/* x, stats and the weights of the columns. */
static neo_status neo__norm_begin(neo__norm_call *call, neo_ctx *ctx, const char *fn, int centered,
                                  neo_tensor x, neo_tensor weight, neo_tensor stats) {
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    const int64_t rows = x.shape[0], cols = x.shape[1];
    NEO__TRY(neo__check_matrix_of(ctx, neo__norm_dtype(ctx, x), x, rows, cols, 0, fn, "x"));
    NEO__CHECK(cols > 0, NEO_ERR_SHAPE, "%s: x has no columns", fn);
    if (neo__given(weight)) NEO__TRY(neo__check_vector(ctx, weight, cols, fn, "weight"));
    if (centered) {
        NEO__TRY(neo__check_matrix(ctx, stats, rows, 2, 1, fn, "stats"));
        NEO__CHECK(neo_tensor_is_contiguous(stats), NEO_ERR_SHAPE, "%s: stats is not contiguous",
                   fn);
    } else {
        NEO__TRY(neo__check_vector(ctx, stats, rows, fn, "stats"));
    }
    call->centered = centered;
    call->rows = rows, call->cols = cols;
    call->x = neo__f32(x), call->x_row = x.stride[0];
    call->narrow_x = NEO__TRAINS && x.dtype == NEO_BF16;
    call->weight = neo__f32(weight);
    call->stats = neo__f32(stats);
    return NEO_OK;
}
static neo_status neo__norm_forward(neo_ctx *ctx, const char *fn, int centered, neo_tensor x,
                                    neo_tensor weight, neo_tensor bias, float eps, neo_tensor y,
                                    neo_tensor stats) {
    neo__norm_call call;
    NEO__TRY(neo__norm_begin(&call, ctx, fn, centered, x, weight, stats));
    if (call.narrow_x)
        NEO__TRY(neo__check_matrix_of(ctx, NEO_BF16, y, call.rows, call.cols, 1, fn, "y"));
    NEO__TRY(neo__check_product(ctx, NEO_BF16, y, call.rows, call.cols, fn, "y"));
    if (neo__given(bias)) NEO__TRY(neo__check_vector(ctx, bias, call.cols, fn, "bias"));
    NEO__CHECK(eps >= 0.0f && eps <= FLT_MAX, NEO_ERR_ARG, "%s: eps is %g", fn, (double)eps);
    NEO__APART(fn, 2, 1, {&y, "y"}, {&stats, "stats"}, {&x, "x"}, {&weight, "weight"},
               {&bias, "bias"});
    call.bias = neo__f32(bias);
    call.eps = eps;
    call.y = neo__f32(y), call.y_row = y.stride[0];
    call.narrow_y = y.dtype == NEO_BF16;
    return call.rows > 0 ? NEO__RUN(ctx, fn, norm, &call) : NEO_OK;
}
static neo_status neo__norm_backward(neo_ctx *ctx, const char *fn, int centered,
                                     const neo_leaves *leaves, neo_tensor x, neo_tensor weight,
                                     neo_tensor stats, neo_tensor dy, neo_tensor dx,
                                     neo_tensor dweight, neo_tensor dbias) {
    neo__norm_call call;
    NEO__TRY(neo__norm_begin(&call, ctx, fn, centered, x, weight, stats));
    const int64_t rows = call.rows, cols = call.cols;
    NEO__TRY(neo__check_matrix_of(ctx, x.dtype, dy, rows, cols, 0, fn, "dy"));
    if (neo__given(dx)) NEO__TRY(neo__check_matrix_of(ctx, x.dtype, dx, rows, cols, 1, fn, "dx"));
    if (neo__given(dweight)) NEO__TRY(neo__check_vector(ctx, dweight, cols, fn, "dweight"));
    if (neo__given(dbias)) NEO__TRY(neo__check_vector(ctx, dbias, cols, fn, "dbias"));
    NEO__APART(fn, 3, 0, {&dx, "dx"}, {&dweight, "dweight"}, {&dbias, "dbias"}, {&x, "x"},
               {&weight, "weight"}, {&stats, "stats"});
    NEO__APART(fn, 1, 1, {&dx, "dx"}, {&dy, "dy"});
    NEO__TRY(neo__leaves_resolve(ctx, leaves, rows, &call.leaves, fn));
    call.backward = 1;
    call.dy = neo__f32(dy), call.dy_row = dy.stride[0];
    call.dx = neo__f32(dx), call.dx_row = dx.stride[0];
    call.dweight = neo__f32(dweight);
    call.dbias = neo__f32(dbias);
    return NEO__RUN(ctx, fn, norm, &call);
}

NEO_API neo_status neo_layer_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight,
                                          neo_tensor bias, float eps, neo_tensor y,
                                          neo_tensor stats) {
    return neo__norm_forward(ctx, "neo_layer_norm_forward", 1, x, weight, bias, eps, y, stats);
}
NEO_API neo_status neo_rms_norm_forward(neo_ctx *ctx, neo_tensor x, neo_tensor weight, float eps,
                                        neo_tensor y, neo_tensor stats) {
    return neo__norm_forward(ctx, "neo_rms_norm_forward", 0, x, weight, neo_tensor_none(), eps, y,
                             stats);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_layer_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                           neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                           neo_tensor dx, neo_tensor dweight, neo_tensor dbias) {
    return neo__norm_backward(ctx, "neo_layer_norm_backward", 1, leaves, x, weight, stats, dy, dx,
                              dweight, dbias);
}
NEO_API neo_status neo_rms_norm_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor x,
                                         neo_tensor weight, neo_tensor stats, neo_tensor dy,
                                         neo_tensor dx, neo_tensor dweight) {
    return neo__norm_backward(ctx, "neo_rms_norm_backward", 0, leaves, x, weight, stats, dy, dx,
                              dweight, neo_tensor_none());
}
#endif
NEO__HOT_BEGIN

/* ---- the CPU ---- */
NEO__INLINE float *neo__norm_stats(const neo__norm_call *c, int64_t row) {
    return c->stats + row * (c->centered ? 2 : 1);
}
/* y of row i; of bf16, some columns at a time. */
static void neo__norm_row(const neo_ctx *ctx, const neo__norm_call *call, int64_t i) {
    enum { WIDE = 256 };
    const float *x = call->x + i * call->x_row;
    float wide[WIDE], mean = 0.0f, *stats = neo__norm_stats(call, i);
    const float scale = ctx->vec->norm_stats(x, call->eps, call->centered, &mean, call->cols);
    if (call->centered) *stats++ = mean;
    *stats = scale;
    for (int64_t j = 0, count = call->cols; j < call->cols; j += count) {
        const float *weight = call->weight ? call->weight + j : NULL,
                    *bias = call->bias ? call->bias + j : NULL;
        float *y = call->narrow_y ? wide : call->y + i * call->y_row;
        if (call->narrow_y) count = NEO__MIN(call->cols - j, (int64_t)WIDE);
        ctx->vec->norm_apply(x + j, weight, bias, mean, scale, y, count);
        if (call->narrow_y)
            ctx->tensor->bf16_from_f32((uint16_t *)(void *)call->y + i * call->y_row + j, y, count);
    }
}
/* y, or dx. */
static void neo__norm_rows_part(const neo__cpu_part *part) {
    const neo__norm_call *c = (const neo__norm_call *)part->call;
    for (int64_t i = part->begin; i < part->end; i++) {
        if (c->backward)
            part->ctx->vec->norm_backward(c->x + i * c->x_row, c->weight, c->dy + i * c->dy_row,
                                          neo__norm_stats(c, i), c->centered,
                                          c->dx + i * c->dx_row, c->cols);
        else neo__norm_row(part->ctx, c, i);
    }
}
/* dweight and dbias of columns [j0, j0 + cols). A slot of the tree: NEO__NORM_COLS of dweight, then
   as many of dbias. */
static void neo__norm_grads(neo_ctx *ctx, const neo__norm_call *call, int64_t j0, int64_t cols,
                            float *sums) {
    const int64_t step = 2 * (int64_t)NEO__NORM_COLS;
    const int count = call->leaves.count;
    int height = 0;
    memset(sums, 0, (size_t)step * sizeof *sums);
    for (int leaf = 0; leaf < count; leaf++) {
        int64_t i, end;
        neo__leaf_rows(&call->leaves, leaf, &i, &end);
        float *slot = sums + height * step;
        memset(slot, 0, (size_t)step * sizeof *slot);
        for (; i < end; i++)
            ctx->vec->norm_add(call->x + i * call->x_row + j0, call->dy + i * call->dy_row + j0,
                               neo__norm_stats(call, i), call->centered,
                               call->dweight ? slot : NULL,
                               call->dbias ? slot + NEO__NORM_COLS : NULL, cols);
        int merges = neo__tree_push(&height, leaf, count);
        for (; merges > 0; merges--, slot -= step) ctx->vec->add(slot - step, slot, step);
        NEO_ASSERT(height < NEO__NORM_DEPTH);
    }
    if (call->dweight) memcpy(call->dweight + j0, sums, (size_t)cols * sizeof *sums);
    if (call->dbias) memcpy(call->dbias + j0, sums + NEO__NORM_COLS, (size_t)cols * sizeof *sums);
}
static void neo__norm_grads_part(const neo__cpu_part *part) {
    float *sums = neo__worker_floats(part->ctx, part->worker);
    for (int64_t j = part->begin; j < part->end; j += NEO__NORM_COLS)
        neo__norm_grads(part->ctx, (const neo__norm_call *)part->call, j,
                        NEO__MIN(part->end - j, (int64_t)NEO__NORM_COLS), sums);
}
static neo_status neo__cpu_norm(neo_device *d, const neo__norm_call *c) {
    if (c->dweight || c->dbias)
        neo__cpu_run(d, c, c->cols, NEO__NORM_COLS, NEO__NORM_COLS,
                     NEO__TRAIN(neo__norm_grads_part));
    if (!c->backward || c->dx)
        neo__cpu_run(d, c, c->rows, 1 + NEO__VEC_GRAIN / 4 / c->cols, 1, neo__norm_rows_part);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-wukong

   A layer of public calls alone. W X multiplies rows of one sample, so rows become columns and
   back: [B][features][dim] as [B dim][features] is one product by W^T, whose sample is `dim` rows
   of a leaf; the norm behind has `features` rows of one.
   ------------------------------------------------------------------------ */
NEO__HOT_END
enum { NEO__WUKONG_PARAMS = 5 }; /* of a layer but its MLP: in the order of neo__wukong_params */
struct neo_wukong {
    neo_ctx *ctx;
    neo__live live;
    char *data;
    size_t data_bytes;
    neo_wukong_desc desc; /* name: NULL */
    const neo_param *param[(int)NEO_MAX_LAYERS * (int)NEO__WUKONG_PARAMS];
    neo_mlp *mlp[NEO_MAX_LAYERS];
    /* Buffers of a layer, for the backward: its input after the first's, [B dim][features] of it,
       products behind a copy of the first row, their norm, concat + X; each norm's stats. */
    void *x[NEO_MAX_LAYERS], *turned[NEO_MAX_LAYERS], *z[NEO_MAX_LAYERS], *pairs[NEO_MAX_LAYERS],
        *u[NEO_MAX_LAYERS], *pairs_stats[NEO_MAX_LAYERS], *stats[NEO_MAX_LAYERS];
    void *grad, *du, *dz, *dpairs; /* of x and the others */
    void *line, *dturned;          /* the linear part [B dim][linear], and the gradient of turned */
    neo_tensor in;                 /* x of the last forward */
    int forward_done;
};

static neo_status neo__wukong_check(const neo_wukong_desc *desc, const char *fn) {
    NEO__CHECK(desc && desc->name && desc->name[0], NEO_ERR_ARG, "%s: a name is required", fn);
    NEO__CHECK(desc->layers >= 1 && desc->layers <= NEO_MAX_LAYERS, NEO_ERR_ARG,
               "%s: %s: layers is %d, not in 1 .. %d", fn, desc->name, desc->layers,
               NEO_MAX_LAYERS);
    NEO__CHECK(desc->features >= 2 && desc->features <= NEO__INTERACT_MAX_FEATURES + 1, NEO_ERR_ARG,
               "%s: %s: features is %" PRId64 ", not in 2 .. %d", fn, desc->name, desc->features,
               (int)NEO__INTERACT_MAX_FEATURES + 1);
    NEO__CHECK(desc->linear >= 1 && desc->linear < desc->features, NEO_ERR_ARG,
               "%s: %s: linear is %" PRId64 ", not in 1 .. features - 1", fn, desc->name,
               desc->linear);
    NEO__CHECK(desc->dim > 0 && desc->hidden > 0 && desc->max_batch > 0, NEO_ERR_ARG,
               "%s: %s: dim is %" PRId64 ", hidden %" PRId64 ", max_batch %" PRId64, fn, desc->name,
               desc->dim, desc->hidden, desc->max_batch);
    NEO__CHECK(desc->dtype == NEO_F32 || desc->dtype == NEO_BF16, NEO_ERR_ARG,
               "%s: %s: dtype %s is neither f32 nor bf16", fn, desc->name,
               neo_dtype_name(desc->dtype));
    return NEO_OK;
}
static int64_t neo__wukong_pairs(const neo_wukong_desc *d) {
    return d->features * (d->features + 1) / 2;
}
static neo_mlp_desc neo__wukong_mlp(const neo_wukong_desc *desc, const char *name) {
    NEO__ZERO(neo_mlp_desc, d);
    d.name = name;
    d.width_count = 3;
    d.widths[0] = neo__wukong_pairs(desc);
    d.widths[1] = desc->hidden;
    d.widths[2] = (desc->features - desc->linear) * desc->dim;
    d.max_batch = desc->max_batch;
    d.act = NEO_ACT_RELU;
    d.dtype = desc->dtype;
    return d;
}
/* Cut the block into buffers; NULL: count its bytes alone. */
static size_t neo__wukong_layout(neo_wukong *wukong, const neo_wukong_desc *desc, char *block) {
    neo__carve carve = {block, 0};
    const int64_t batch = desc->max_batch, pairs = neo__wukong_pairs(desc);
    const int64_t features = desc->features, dim = desc->dim;
    const int64_t width = features < INT64_MAX / dim ? features * dim : INT64_MAX;
    for (int i = 0; i < desc->layers; i++) {
        if (i > 0) neo__layer_carve(&carve, &wukong->x[i], NEO_F32, batch, width);
        neo__layer_carve(&carve, &wukong->turned[i], NEO_F32, batch, width);
        neo__layer_carve(&carve, &wukong->z[i], NEO_F32, batch, dim + pairs);
        neo__layer_carve(&carve, &wukong->pairs[i], NEO_F32, batch, pairs);
        neo__layer_carve(&carve, &wukong->u[i], NEO_F32, batch, width);
        neo__layer_carve(&carve, &wukong->pairs_stats[i], NEO_F32, batch, 2);
        neo__layer_carve(&carve, &wukong->stats[i], NEO_F32, batch, 2 * features);
    }
    if (desc->layers > 1) neo__layer_carve(&carve, &wukong->grad, NEO_F32, batch, width);
    neo__layer_carve(&carve, &wukong->du, NEO_F32, batch, width);
    neo__layer_carve(&carve, &wukong->dz, NEO_F32, batch, dim + pairs);
    neo__layer_carve(&carve, &wukong->dpairs, NEO_F32, batch, pairs);
    neo__layer_carve(&carve, &wukong->line, NEO_F32, batch, width);
    neo__layer_carve(&carve, &wukong->dturned, NEO_F32, batch, width);
    return carve.at;
}
static size_t neo__wukong_data_bytes(const neo_wukong_desc *desc) {
    NEO__ZERO(neo_wukong, wukong);
    return neo__wukong_layout(&wukong, desc, NULL);
}
NEO_API size_t neo_wukong_workspace_bytes(const neo_wukong_desc *desc) {
    if (neo__wukong_check(desc, "neo_wukong_workspace_bytes") != NEO_OK) return 0;
    const neo_mlp_desc mlp = neo__wukong_mlp(desc, desc->name);
    const size_t mlps = neo__size_mul((size_t)desc->layers, neo_mlp_workspace_bytes(&mlp));
    return neo__size_add(neo__size_add(sizeof(neo_wukong), mlps), neo__wukong_data_bytes(desc));
}

static neo_status neo__wukong_params(neo_wukong *wukong, neo_params *params,
                                     const neo_wukong_desc *desc) {
    static const char *const kinds[NEO__WUKONG_PARAMS] = {"pairs.weight", "pairs.bias",
                                                          "linear.weight", "norm.weight",
                                                          "norm.bias"};
    const int64_t pairs = neo__wukong_pairs(desc);
    const int64_t shapes[NEO__WUKONG_PARAMS][2] = {
        {pairs, 0}, {pairs, 0}, {desc->linear, desc->features}, {desc->dim, 0}, {desc->dim, 0}};
    const neo_init zeros = {NEO_INIT_DEFAULT, 0.0f, 0.0f}, ones = {NEO_INIT_CONSTANT, 1.0f, 0.0f};
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f,
                             (float)sqrt(2.0 / (double)(desc->linear + desc->features))};
    const neo_init inits[NEO__WUKONG_PARAMS] = {ones, zeros, normal, ones, zeros};
    char name[256];
    NEO__CHECK(strlen(desc->name) + 40 <= sizeof name, NEO_ERR_ARG,
               "neo_wukong_create: the name is too long");
    for (int i = 0; i < desc->layers; i++) {
        for (int k = 0; k < NEO__WUKONG_PARAMS; k++) {
            snprintf(name, sizeof name, "%s.%d.%s", desc->name, i, kinds[k]);
            NEO__TRY(neo_params_add(params, name, k == 2 ? 2 : 1, shapes[k], inits[k],
                                    &wukong->param[NEO__WUKONG_PARAMS * i + k]));
        }
        snprintf(name, sizeof name, "%s.%d.machine", desc->name, i);
        const neo_mlp_desc mlp = neo__wukong_mlp(desc, name);
        NEO__TRY(neo_mlp_create(wukong->ctx, params, &mlp, &wukong->mlp[i]));
    }
    return NEO_OK;
}
NEO_API neo_status neo_wukong_create(neo_ctx *ctx, neo_params *params, const neo_wukong_desc *desc,
                                     neo_wukong **out) {
    static const char *const fn = "neo_wukong_create";
    NEO__CHECK(out, NEO_ERR_ARG, "%s: wukong is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_params(ctx, params, fn));
    NEO__TRY(neo__wukong_check(desc, fn));
    const size_t bytes = neo__wukong_data_bytes(desc);
    char *data;
    neo_wukong *wukong =
        (neo_wukong *)neo__alloc_with_data(ctx, fn, desc->name, sizeof *wukong, bytes, &data);
    if (!wukong) return NEO_ERR_MEMORY;
    (void)neo__wukong_layout(wukong, desc, data);
    wukong->ctx = ctx;
    wukong->data = data;
    wukong->data_bytes = bytes;
    wukong->desc = *desc;
    wukong->desc.name = NULL;
    const int before = neo_params_count(params);
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__wukong_params(wukong, params, desc);
    neo__fp_leave(fp);
    if (status != NEO_OK) {
        neo__params_truncate(params, before);
        neo_wukong_destroy(wukong);
        return status;
    }
    neo__live_begin(ctx, &wukong->live, "Wukong layers", desc->name);
    *out = wukong;
    return NEO_OK;
}
NEO_API void neo_wukong_destroy(neo_wukong *wukong) {
    if (!wukong) return;
    neo__live_end(wukong->ctx, &wukong->live);
    for (int i = 0; i < NEO_MAX_LAYERS; i++) neo_mlp_destroy(wukong->mlp[i]);
    neo__data_free(wukong->ctx, wukong->data, wukong->data_bytes);
    neo_free(wukong->ctx, wukong, sizeof *wukong);
}

/* A buffer of this batch's samples times `rows` as a matrix. */
static neo_tensor neo__wukong_rows(const neo_wukong *wukong, void *data, int64_t rows,
                                   int64_t cols) {
    return neo__layer_rows(wukong->ctx, data, NEO_F32, wukong->in.shape[0] * rows, cols);
}
static neo_tensor neo__wukong_x(const neo_wukong *wukong, int layer) {
    const neo_tensor in = wukong->in;
    return layer == 0 ? in : neo__wukong_rows(wukong, wukong->x[layer], 1, in.shape[1]);
}
/* Rows of `dim` columns, one of a matrix being several, as rows of their own. */
static neo_tensor neo__wukong_apart(const neo_wukong *wukong, neo_tensor t) {
    const int64_t shape[2] = {t.shape[0] * wukong->desc.features, wukong->desc.dim};
    return neo_tensor_reshape(t, 2, shape);
}
/* Columns [first, end) of t, of each sample `rows` of dim, from or to (back) [B dim][rows]. */
static neo_status neo__wukong_turn(const neo_wukong *wukong, neo_tensor t, int64_t first,
                                   neo_tensor turned, int back) {
    const int64_t dim = wukong->desc.dim, rows = turned.shape[1];
    const int64_t shape[3] = {t.shape[0], dim, rows};
    const int64_t row = t.stride[0];
    t = neo_tensor_slice(t, 1, first * dim, rows * dim);
    t.ndim = 3;
    t.shape[1] = dim, t.shape[2] = rows;
    t.stride[0] = row, t.stride[1] = 1, t.stride[2] = dim;
    turned = neo_tensor_reshape(turned, 3, shape);
    return back ? neo_tensor_copy(wukong->ctx, turned, t) : neo_tensor_copy(wukong->ctx, t, turned);
}
/* Columns of a sample's first row, of the others, and of the machine's result. */
static neo_tensor neo__wukong_first(const neo_wukong *wukong, neo_tensor t) {
    return neo_tensor_slice(t, 1, 0, wukong->desc.dim);
}
static neo_tensor neo__wukong_rest(const neo_wukong *wukong, neo_tensor t) {
    return neo_tensor_slice(t, 1, wukong->desc.dim, t.shape[1] - wukong->desc.dim);
}
static neo_tensor neo__wukong_machine(const neo_wukong *wukong, neo_tensor t) {
    const neo_wukong_desc *d = &wukong->desc;
    return neo_tensor_slice(t, 1, 0, (d->features - d->linear) * d->dim);
}

static neo_status neo__wukong_layer(neo_wukong *wukong, int i, neo_tensor x, neo_tensor y) {
    neo_ctx *ctx = wukong->ctx;
    const neo_wukong_desc *d = &wukong->desc;
    const neo_param *const *param = wukong->param + NEO__WUKONG_PARAMS * i;
    const int64_t width = d->features * d->dim, pair_count = neo__wukong_pairs(d);
    const neo_tensor u = neo__wukong_rows(wukong, wukong->u[i], 1, width);
    const neo_tensor z = neo__wukong_rows(wukong, wukong->z[i], 1, d->dim + pair_count);
    const neo_tensor pairs = neo__wukong_rows(wukong, wukong->pairs[i], 1, pair_count);
    const neo_tensor turned = neo__wukong_rows(wukong, wukong->turned[i], d->dim, d->features);
    const neo_tensor line = neo__wukong_rows(wukong, wukong->line, d->dim, d->linear);
    NEO__TRY(neo_interact_forward(ctx, 1, neo__wukong_first(wukong, x),
                                  neo__wukong_rest(wukong, x), z));
    NEO__TRY(neo_layer_norm_forward(ctx, neo__wukong_rest(wukong, z), param[0]->value,
                                    param[1]->value, 1e-5f, pairs,
                                    neo__wukong_rows(wukong, wukong->pairs_stats[i], 1, 2)));
    NEO__TRY(neo_mlp_forward(wukong->mlp[i], pairs, neo__wukong_machine(wukong, u)));
    NEO__TRY(neo__wukong_turn(wukong, x, 0, turned, 0));
    NEO__TRY(neo_linear_forward(ctx, turned, param[2]->value, neo_tensor_none(), NEO_ACT_NONE,
                                line));
    NEO__TRY(neo__wukong_turn(wukong, u, d->features - d->linear, line, 1));
    NEO__TRY(neo_add(ctx, u, x));
    return neo_layer_norm_forward(ctx, neo__wukong_apart(wukong, u), param[3]->value,
                                  param[4]->value, 1e-5f, neo__wukong_apart(wukong, y),
                                  neo__wukong_rows(wukong, wukong->stats[i], d->features, 2));
}
NEO_API neo_status neo_wukong_forward(neo_wukong *wukong, neo_tensor x, neo_tensor y) {
    static const char *const fn = "neo_wukong_forward";
    NEO__CHECK_LIVE(wukong, fn, "wukong");
    const neo_wukong_desc *d = &wukong->desc;
    const int64_t width = d->features * d->dim;
    NEO__TRY(neo__layer_check_forward(wukong->ctx, fn, d->max_batch, x, width, y, width));
    NEO__CHECK(neo_tensor_is_contiguous(x) && neo_tensor_is_contiguous(y), NEO_ERR_SHAPE,
               "%s: x or y is not contiguous", fn);
    NEO__TRY(neo__params_present(wukong->param, NEO__WUKONG_PARAMS * d->layers, 0, fn));
    wukong->in = x;
    wukong->forward_done = 0;
    for (int i = 0; i < d->layers; i++)
        NEO__TRY(neo__wukong_layer(wukong, i, neo__wukong_x(wukong, i),
                                   i + 1 < d->layers ? neo__wukong_x(wukong, i + 1) : y));
    wukong->forward_done = 1;
    return NEO_OK;
}

#if !defined(NEO_INFERENCE)
/* The gradient of a parameter; none, if it has none. */
static neo_tensor neo__wukong_grad(const neo_param *param) {
    return param->frozen ? neo_tensor_none() : param->grad;
}
/* above: the gradient of the layer's output; below: of its input, or none. */
static neo_status neo__wukong_layer_back(neo_wukong *wukong, const neo_leaves *leaves, int i,
                                         neo_tensor above, neo_tensor below) {
    neo_ctx *ctx = wukong->ctx;
    const neo_wukong_desc *d = &wukong->desc;
    const neo_param *const *param = wukong->param + NEO__WUKONG_PARAMS * i;
    const int64_t width = d->features * d->dim, pair_count = neo__wukong_pairs(d);
    const neo_tensor x = neo__wukong_x(wukong, i), none = neo_tensor_none();
    const neo_tensor u = neo__wukong_rows(wukong, wukong->u[i], 1, width);
    const neo_tensor z = neo__wukong_rows(wukong, wukong->z[i], 1, d->dim + pair_count);
    const neo_tensor turned = neo__wukong_rows(wukong, wukong->turned[i], d->dim, d->features);
    const neo_tensor du = neo__wukong_rows(wukong, wukong->du, 1, width);
    const neo_tensor dz = neo__wukong_rows(wukong, wukong->dz, 1, d->dim + pair_count);
    const neo_tensor dpairs = neo__wukong_rows(wukong, wukong->dpairs, 1, pair_count);
    const neo_tensor dline = neo__wukong_rows(wukong, wukong->line, d->dim, d->linear);
    const neo_tensor dturned = neo__wukong_rows(wukong, wukong->dturned, d->dim, d->features);
    const neo_tensor rest = neo__wukong_rest(wukong, below.data ? below : du);
    neo_leaves of_rows = *leaves, of_columns = *leaves;
    of_rows.rows_per_sample *= d->features, of_columns.rows_per_sample *= d->dim;
    NEO__TRY(neo_layer_norm_backward(
        ctx, &of_rows, neo__wukong_apart(wukong, u), param[3]->value,
        neo__wukong_rows(wukong, wukong->stats[i], d->features, 2),
        neo__wukong_apart(wukong, above), neo__wukong_apart(wukong, du),
        neo__wukong_grad(param[3]), neo__wukong_grad(param[4])));
    NEO__TRY(neo__wukong_turn(wukong, du, d->features - d->linear, dline, 0));
    NEO__TRY(neo_linear_backward(ctx, &of_columns, turned, param[2]->value, dline,
                                 below.data ? dturned : none, neo__wukong_grad(param[2]), none));
    NEO__TRY(neo_mlp_backward(wukong->mlp[i], leaves, neo__wukong_machine(wukong, du), dpairs));
    NEO__TRY(neo_layer_norm_backward(ctx, leaves, neo__wukong_rest(wukong, z), param[0]->value,
                                     neo__wukong_rows(wukong, wukong->pairs_stats[i], 1, 2),
                                     dpairs, neo__wukong_rest(wukong, dz),
                                     neo__wukong_grad(param[0]), neo__wukong_grad(param[1])));
    if (!below.data) return NEO_OK;
    /* The first row's gradient as an addend goes by the interaction's copy of that row. */
    NEO__TRY(neo_tensor_copy(ctx, neo__wukong_first(wukong, du), neo__wukong_first(wukong, dz)));
    NEO__TRY(neo_interact_backward(ctx, 1, neo__wukong_first(wukong, x),
                                   neo__wukong_rest(wukong, x), dz,
                                   neo__wukong_first(wukong, below), rest));
    NEO__TRY(neo_add(ctx, rest, neo__wukong_rest(wukong, du)));
    NEO__TRY(neo__wukong_turn(wukong, du, 0, dturned, 1));
    return neo_add(ctx, below, du);
}
NEO_API neo_status neo_wukong_backward(neo_wukong *wukong, const neo_leaves *leaves, neo_tensor dy,
                                       neo_tensor dx) {
    static const char *const fn = "neo_wukong_backward";
    NEO__CHECK_LIVE(wukong, fn, "wukong");
    neo_ctx *ctx = wukong->ctx;
    const int layers = wukong->desc.layers, count = NEO__WUKONG_PARAMS * layers;
    const int64_t width = wukong->desc.features * wukong->desc.dim, batch = wukong->in.shape[0];
    NEO__CHECK(wukong->forward_done, NEO_ERR_STATE, "%s: there was no forward", fn);
    neo__leaf_cut held;
    NEO__TRY(neo__layer_check_backward(ctx, fn, "neo_wukong_forward", batch, dy, width, dx, width));
    NEO__CHECK(neo_tensor_is_contiguous(dy) && (!dx.data || neo_tensor_is_contiguous(dx)),
               NEO_ERR_SHAPE, "%s: dy or dx is not contiguous", fn);
    NEO__APART(fn, 1, 0, {&dx, "dx"}, {&wukong->in, "x"});
    NEO__TRY(neo__params_present(wukong->param, count, 0, fn));
    NEO__TRY(neo__params_present(wukong->param, count, 1, fn));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, batch, &held, fn));
    const neo_leaves part = {held.batch, held.first, held.count, held.rows_per_sample};
    const neo_tensor grad = neo__wukong_rows(wukong, wukong->grad, 1, width);
    for (int i = layers - 1; i >= 0; i--) {
        NEO__TRY(neo__wukong_layer_back(wukong, &part, i, dy, i > 0 ? grad : dx));
        dy = grad;
    }
    return NEO_OK;
}
#endif
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-embedding

   The gradient is dense, so the tree over leaves is that of any other parameter: each leaf's sums
   start at zero everywhere. A task has a range of rows and of columns of the table whose subtree
   sums fit its worker's scratch; it walks all ids and adds those in its range. One leaf that is not
   added to anything is summed in place.
   ------------------------------------------------------------------------ */
enum { NEO__EMBEDDING_COLS = 256 }; /* columns of a task */

NEO__HOT_END
/* ids, a table of `rows` rows, the matrix of their rows. */
static neo_status neo__embedding_begin(neo__embedding_call *call, neo_ctx *ctx, const char *fn,
                                       neo_tensor ids, neo_tensor table, neo_tensor each,
                                       int backward) {
    const int64_t count = ids.shape[0], rows = table.shape[0], dim = table.shape[1];
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(ids.ndim == 1 && (ids.dtype == NEO_I32 || ids.dtype == NEO_I64) && count >= 0 &&
                   neo_tensor_is_contiguous(ids),
               NEO_ERR_SHAPE, "%s: ids is not a contiguous i32 or i64 tensor [N]", fn);
    if (!ids.data && count > 0) return neo__no_data(fn, "ids", ids, NEO_ERR_SHAPE);
    NEO__TRY(neo__check_matrix(ctx, table, rows, dim, backward, fn, backward ? "dtable" : "table"));
    NEO__TRY(neo__check_matrix(ctx, each, count, dim, !backward, fn, backward ? "dout" : "out"));
    NEO__TRY(neo__check_place(ctx, ids, fn, "ids"));
    const neo_tensor from = backward ? each : table, to = backward ? table : each;
    NEO__APART(fn, 1, 0, {&to, backward ? "dtable" : "out"}, {&from, backward ? "dout" : "table"},
               {&ids, "ids"});
    call->backward = backward;
    call->ids = ids.data;
    call->is_i32 = ids.dtype == NEO_I32;
    call->count = count, call->rows = rows, call->dim = dim;
    call->from = neo__f32(from), call->from_row = from.stride[0];
    call->to = neo__f32(to), call->to_row = to.stride[0];
    return NEO_OK;
}
/* Words of a message about ids, kept until the device has looked at them: >>deferred-answers. */
typedef struct neo__embedding_ids {
    const char *fn;
    int64_t rows;
} neo__embedding_ids;
static neo_status neo__embedding_answer(void *job, const void *answer) {
    const neo__embedding_ids *ids = (const neo__embedding_ids *)job;
    neo__embedding_found found;
    memcpy(&found, answer, sizeof found);
    if (found.bad == UINT64_MAX) return NEO_OK;
    return neo_fail(NEO_ERR_RANGE,
                    "%s: the id at position %" PRIu64 " is %" PRId64 ", not in [0, %" PRId64 ")",
                    ids->fn, found.bad, found.id, ids->rows);
}
static neo_status neo__embedding(neo_ctx *ctx, const char *fn, neo__embedding_call *call) {
    neo__embedding_ids ids = {fn, call->rows};
    const neo__later later = {neo__embedding_answer, &ids, sizeof ids};
    call->later = later;
    return NEO__RUN(ctx, fn, embedding, call);
}
NEO_API neo_status neo_embedding_forward(neo_ctx *ctx, neo_tensor ids, neo_tensor table,
                                         neo_tensor out) {
    static const char *const fn = "neo_embedding_forward";
    neo__embedding_call call;
    NEO__TRY(neo__embedding_begin(&call, ctx, fn, ids, table, out, 0));
    return call.count > 0 ? neo__embedding(ctx, fn, &call) : NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_embedding_backward(neo_ctx *ctx, const neo_leaves *leaves, neo_tensor ids,
                                          neo_tensor dout, neo_tensor dtable, int add) {
    static const char *const fn = "neo_embedding_backward";
    neo__embedding_call call;
    NEO__TRY(neo__embedding_begin(&call, ctx, fn, ids, dtable, dout, 1));
    NEO__TRY(neo__leaves_resolve(ctx, leaves, call.count, &call.leaves, fn));
    call.add = add != 0;
    return neo__embedding(ctx, fn, &call);
}
#endif
NEO__HOT_BEGIN

/* ---- the CPU ---- */
static void neo__embedding_part(const neo__cpu_part *part) {
    const neo__embedding_call *c = (const neo__embedding_call *)part->call;
    for (int64_t i = part->begin; i < part->end; i++)
        memcpy(c->to + i * c->to_row, c->from + neo__jagged_id(c->ids, c->is_i32, i) * c->from_row,
               (size_t)c->dim * sizeof *c->to);
}
/* The gradient of the table, cut into ranges of rows and columns. */
typedef struct neo__embedding_cut {
    neo_ctx *ctx;
    const neo__embedding_call *call;
    int in_place;
    int64_t task_rows, col_tasks, area; /* area: floats of a subtree's sums */
} neo__embedding_cut;
/* Adds rows [begin, end) of dout to sums of rows [r0, r1) of the table, columns [c0, c0 + cols). */
static void neo__embedding_add(const neo__embedding_cut *j, int64_t begin, int64_t end, int64_t r0,
                               int64_t r1, int64_t c0, int64_t cols, float *sums, int64_t step) {
    const neo__embedding_call *c = j->call;
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = neo__jagged_id(c->ids, c->is_i32, i);
        if (id < r0 || id >= r1) continue;
        j->ctx->vec->add(sums + (id - r0) * step, c->from + i * c->from_row + c0, cols);
    }
}
static void neo__embedding_grad_task(void *arg, int64_t index, int worker) {
    const neo__embedding_cut *cut = (const neo__embedding_cut *)arg;
    const neo__embedding_call *call = cut->call;
    const neo__vec_kernels *vec = cut->ctx->vec;
    const int64_t r0 = index / cut->col_tasks * cut->task_rows;
    const int64_t r1 = NEO__MIN(r0 + cut->task_rows, call->rows);
    const int64_t c0 = index % cut->col_tasks * NEO__EMBEDDING_COLS;
    const int64_t cols = NEO__MIN(call->dim - c0, (int64_t)NEO__EMBEDDING_COLS);
    const int64_t area = (r1 - r0) * cols;
    float *to = call->to + r0 * call->to_row + c0;
    float *sums = neo__worker_floats(cut->ctx, worker);
    if (cut->in_place) {
        for (int64_t r = 0; r < r1 - r0; r++)
            memset(to + r * call->to_row, 0, (size_t)cols * sizeof *to);
        neo__embedding_add(cut, 0, call->count, r0, r1, c0, cols, to, call->to_row);
        return;
    }
    int height = 0;
    for (int leaf = 0; leaf < call->leaves.count; leaf++) {
        int64_t begin, end;
        float *slot = sums + height * cut->area;
        neo__leaf_rows(&call->leaves, leaf, &begin, &end);
        memset(slot, 0, (size_t)area * sizeof *slot);
        neo__embedding_add(cut, begin, end, r0, r1, c0, cols, slot, cols);
        int merges = neo__tree_push(&height, leaf, call->leaves.count);
        for (; merges > 0; merges--, slot -= cut->area) vec->add(slot - cut->area, slot, area);
    }
    for (int64_t r = 0; r < r1 - r0; r++, to += call->to_row, sums += cols) {
        if (call->add) vec->add(to, sums, cols);
        else memcpy(to, sums, (size_t)cols * sizeof *to);
    }
}
/* Every task's sums fit its scratch, and there are enough tasks. */
static void neo__embedding_grad(neo_ctx *ctx, const neo__embedding_call *call) {
    neo__embedding_cut cut;
    cut.ctx = ctx;
    cut.call = call;
    cut.in_place = !call->add && call->leaves.count <= 1; /* of no leaves: zeros */
    const int64_t depth = neo__tree_depth(call->leaves.count);
    const int64_t cols = NEO__MIN(call->dim, (int64_t)NEO__EMBEDDING_COLS);
    const int64_t room = NEO__WORKER_SCRATCH_BYTES / (int64_t)sizeof(float) / depth / cols;
    const int64_t wanted = ctx->threads == 1 ? 1 : 4 * (int64_t)ctx->threads;
    cut.col_tasks = (call->dim + NEO__EMBEDDING_COLS - 1) / NEO__EMBEDDING_COLS;
    const int64_t row_tasks = NEO__MAX((wanted + cut.col_tasks - 1) / cut.col_tasks, 1);
    cut.task_rows = NEO__MAX((call->rows + row_tasks - 1) / row_tasks, 1);
    if (!cut.in_place) cut.task_rows = NEO__MIN(cut.task_rows, room);
    cut.area = cut.task_rows * cols;
    neo__run_tasks(ctx, (call->rows + cut.task_rows - 1) / cut.task_rows * cut.col_tasks,
                   NEO__TRAIN(neo__embedding_grad_task), &cut,
                   (call->rows + call->count) * call->dim / 8);
}
static neo_status neo__cpu_embedding(neo_device *device, const neo__embedding_call *call) {
    neo__embedding_found found = {UINT64_MAX, 0};
    for (int64_t i = 0; i < call->count && found.bad == UINT64_MAX; i++) {
        const int64_t id = neo__jagged_id(call->ids, call->is_i32, i);
        if (id < 0 || id >= call->rows) found.bad = (uint64_t)i, found.id = id;
    }
    const int empty = found.bad != UINT64_MAX || call->rows == 0 || call->dim == 0;
    if (!empty && !call->backward)
        neo__cpu_run(device, call, call->count, 1 + NEO__VEC_GRAIN / call->dim, 1,
                     neo__embedding_part);
    else if (!empty && (!call->add || call->leaves.count > 0))
        neo__embedding_grad(neo__cpu_ctx(device), call);
    return neo__later_now(&call->later, &found);
}

/* ---------------------------------------------------------------------------
   >>impl-attention

   Softmax of tiles of keys in turn, with the maximum so far (Milakov and Gimelshein, arXiv
   1805.02867); backward from the logarithm of the denominators, which recomputes the tiles (Dao et
   al., arXiv 2205.14135). Tiles are NEO__KEYS by NEO__KEYS, cut at fixed places of the sequence,
   and every sum over keys or queries is one chain over tiles in order: so neither the batch, nor
   the threads, nor the instruction set shows.

   Forward, per tile of queries: S = Q K^T, P from S row by row, O = fade O + P V. Backward, per
   tile of keys, over tiles of queries: S and dP = dY V^T, then P and dS = scale P (dP - delta) with
   delta = dY Y row by row, dV += P^T dY, dK += dS^T Q, dQ += dS K. Products are tiles of
   >>kernels-gemm over operands packed in panels; P and dS are read transposed in place. Causal
   tiles on the diagonal leave out terms that are zero, or whose sum nobody reads. By SiLU P and dS
   are functions of S and dP alone: no maximum, sum or delta. In a jagged batch tiles begin with
   their sequence.

   A bias is added to S times scale, and the rest then computes with a scale of 1: so the dS that it
   makes is the bias's own, and is multiplied by the scale before the products. By rows a pair of
   tiles has 127 differences, the same in all its diagonals: a row of S takes, or adds to, numbers
   that follow each other.
   ------------------------------------------------------------------------ */
enum {
    NEO__ATTENTION_SIDE = (int)NEO__KEYS * NEO_MAX_HEAD_DIM, /* floats of a packed operand */
    NEO__ATTENTION_TERMS =
        16 /* in a causal tile the terms of a sum begin and end at multiples of so many */
};

/* Neither is there with NEO_INFERENCE. */
NEO__INLINE int neo__attention_silu(const neo__attention_call *call) {
    return NEO__TRAINS && call->silu;
}
NEO__INLINE int neo__attention_jagged(const neo__attention_call *call) {
    return NEO__TRAINS && call->offsets;
}
NEO__INLINE int neo__attention_biased(const neo__attention_call *call) {
    return NEO__TRAINS && call->biases > 0;
}

NEO__HOT_END
NEO_API neo_dtype neo_attention_dtype(const neo_ctx *ctx, int64_t dim) {
    const neo_device *d = ctx ? neo_ctx_device(ctx) : NULL;
    return d && d->narrow_tensors && dim % 8 == 0 && dim <= 128 ? NEO_BF16 : NEO_F32;
}
#if !defined(NEO_INFERENCE)
/* Words of a message about offsets, kept until a device has looked at them: >>deferred-answers. */
typedef struct neo__attention_offsets {
    const char *fn;
    int64_t rows, length;
} neo__attention_offsets;
static neo_status neo__attention_answer(void *job, const void *answer) {
    const neo__attention_offsets *offsets = (const neo__attention_offsets *)job;
    neo__attention_found found;
    memcpy(&found, answer, sizeof found);
    if (found.bad == UINT64_MAX) return NEO_OK;
    NEO__CHECK(found.begin <= found.end, NEO_ERR_FORMAT,
               "%s: offsets decrease at sequence %" PRIu64 ", from %" PRId64 " to %" PRId64,
               offsets->fn, found.bad, found.begin, found.end);
    const int outside = found.begin < 0 || found.end > offsets->rows;
    return neo_fail(NEO_ERR_RANGE,
                    "%s: sequence %" PRIu64 " has rows %" PRId64 " .. %" PRId64 "%s%" PRId64,
                    offsets->fn, found.bad, found.begin, found.end,
                    outside ? " of " : ", more than a length of ",
                    outside ? offsets->rows : offsets->length);
}
enum { NEO__BIAS_TENSORS = 6 };
/* Tensors of a bias: [0] and [1] are what a backward writes. */
static void neo__bias_tensors(const neo_attention_bias *bias, int index, neo__named *to) {
    static const char *const names[2][NEO__BIAS_TENSORS] = {
        {"bias[0].dtable", "bias[0].each", "bias[0].table", "bias[0].bounds", "bias[0].times",
         "bias[0].asked"},
        {"bias[1].dtable", "bias[1].each", "bias[1].table", "bias[1].bounds", "bias[1].times",
         "bias[1].asked"}};
    const neo_tensor *const tensors[NEO__BIAS_TENSORS] = {&bias->dtable, &bias->each,
                                                          &bias->table,  &bias->bounds,
                                                          &bias->times,  &bias->asked};
    for (int i = 0; i < NEO__BIAS_TENSORS; i++)
        to[i].t = tensors[i], to[i].name = names[index][i];
}
/* A contiguous vector of integers, or, unless it is required, none. */
static neo_status neo__bias_integers(neo_ctx *ctx, const char *fn, const neo__named *named,
                                     int64_t count, int required, const int64_t **to) {
    const neo_tensor t = *named->t;
    *to = NULL;
    if (!required && !neo__given(t)) return NEO_OK;
    NEO__CHECK(t.ndim == 1 && t.dtype == NEO_I64 && t.shape[0] == count &&
                   neo_tensor_is_contiguous(t),
               NEO_ERR_SHAPE, "%s: %s is not a contiguous i64 tensor [%" PRId64 "]", fn,
               named->name, count);
    if (!t.data && count > 0) return neo__no_data(fn, named->name, t, NEO_ERR_SHAPE);
    *to = (const int64_t *)t.data;
    return neo__check_place(ctx, t, fn, named->name);
}
/* Bias number `index`; backward: with its gradient. */
static neo_status neo__attention_bias_of(neo__attention_call *call, neo_ctx *ctx, const char *fn,
                                         const neo_attention_desc *desc, int index) {
    const neo_attention_bias *from = &desc->bias[index];
    neo__attention_bias *to = &call->bias[index];
    neo__named t[NEO__BIAS_TENSORS];
    neo__bias_tensors(from, index, t);
    const int64_t rows = from->table.shape[0] == 1 ? 1 : call->heads;
    const int64_t buckets = from->table.shape[1], sequences = call->sequences * call->heads;
    NEO__TRY(neo__check_matrix(ctx, from->table, rows, buckets, 0, fn, t[2].name));
    NEO__CHECK(buckets >= 1, NEO_ERR_SHAPE, "%s: %s has no buckets", fn, t[2].name);
    to->table = neo__f32(from->table), to->buckets = buckets;
    to->table_row = rows == 1 ? 0 : from->table.stride[0];
    NEO__TRY(neo__bias_integers(ctx, fn, &t[3], buckets - 1, buckets > 1, &to->bounds));
    for (int64_t i = 1; i < buckets - 1 && !neo_ctx_device(ctx); i++)
        NEO__CHECK(to->bounds[i - 1] <= to->bounds[i], NEO_ERR_FORMAT,
                   "%s: %s decrease at %" PRId64 ", from %" PRId64 " to %" PRId64, fn, t[3].name, i,
                   to->bounds[i - 1], to->bounds[i]);
    NEO__TRY(neo__bias_integers(ctx, fn, &t[4], call->rows, 0, &to->times));
    NEO__TRY(neo__bias_integers(ctx, fn, &t[5], call->rows, 0, &to->asked));
    NEO__CHECK(neo__given(from->times) || !neo__given(from->asked), NEO_ERR_ARG,
               "%s: %s without times", fn, t[5].name);
    if (!to->asked) to->asked = to->times;
    if (!call->backward || !neo__given(from->dtable)) return NEO_OK;
    NEO__CHECK(neo__given(from->each), NEO_ERR_ARG, "%s: %s without each", fn, t[0].name);
    NEO__TRY(neo__check_matrix(ctx, from->dtable, rows, buckets, 1, fn, t[0].name));
    NEO__TRY(neo__check_matrix(ctx, from->each, sequences, buckets, 1, fn, t[1].name));
    for (int i = 0; i < 2; i++)
        NEO__CHECK(neo_tensor_is_contiguous(*t[i].t), NEO_ERR_SHAPE, "%s: %s is not contiguous", fn,
                   t[i].name);
    to->each = neo__f32(from->each);
    return NEO_OK;
}
static neo_status neo__attention_biases(neo__attention_call *call, neo_ctx *ctx, const char *fn,
                                        const neo_attention_desc *desc) {
    int64_t by_times = 0, least = desc->bias != NULL;
    NEO__CHECK(desc->bias_count >= least && desc->bias_count <= 2, NEO_ERR_ARG,
               "%s: bias_count is %d, not in [%" PRId64 ", 2]", fn, desc->bias_count, least);
    NEO__CHECK(desc->bias || desc->bias_count == 0, NEO_ERR_ARG, "%s: bias is NULL", fn);
    NEO__CHECK(!call->narrow_y || desc->bias_count == 0, NEO_ERR_UNSUPPORTED,
               "%s: y of bf16 with a bias", fn);
    for (int i = 0; i < desc->bias_count; i++) {
        NEO__TRY(neo__attention_bias_of(call, ctx, fn, desc, i));
        if (call->bias[i].times) by_times += call->bias[i].buckets;
    }
    NEO__CHECK(by_times <= NEO_MAX_TIME_BUCKETS, NEO_ERR_UNSUPPORTED,
               "%s: %" PRId64 " buckets by times, more than %d", fn, by_times,
               (int)NEO_MAX_TIME_BUCKETS);
    call->biases = desc->bias_count;
    return NEO_OK;
}
/* The tensors of a call, outputs first, and those of its biases share no memory as they may not. */
static neo_status neo__attention_apart(const neo__attention_call *call, const char *fn,
                                       const neo_attention_desc *desc, const neo__named *named,
                                       int outputs, int count) {
    neo__named all[10 + 2 * NEO__BIAS_TENSORS], bias[NEO__BIAS_TENSORS];
    int n = 0, written = 0;
    for (int inputs = 0; inputs < 2; inputs++) {
        for (int i = inputs ? outputs : 0; i < (inputs ? count : outputs); i++) all[n++] = named[i];
        for (int b = 0; b < call->biases; b++) {
            neo__bias_tensors(&desc->bias[b], b, bias);
            const int some = call->bias[b].each != NULL; /* else nothing reads or writes them */
            for (int i = inputs ? 2 : 0; i < (inputs ? (int)NEO__BIAS_TENSORS : 2 * some); i++)
                all[n++] = bias[i];
        }
        if (!inputs) written = n;
    }
    return neo__check_apart(fn, all, written, n, 0);
}
/* The gradients of the tables, of what each head of a sequence adds. */
static neo_status neo__attention_tables(const neo__attention_call *call, neo_ctx *ctx,
                                        const char *fn, const neo_attention_desc *desc,
                                        const neo__leaf_cut *leaves) {
    for (int i = 0; i < call->biases; i++) {
        const neo__attention_bias *bias = &call->bias[i];
        neo__leaf_cut cut = *leaves;
        if (!bias->each) continue;
        const int64_t rows = bias->table_row == 0 ? call->heads : 1; /* of a sequence that add up */
        const int64_t cols = bias->buckets * (call->heads / rows);
        neo_tensor each = neo_tensor_2d(bias->each, NEO_F32, call->sequences * rows, cols);
        neo_tensor to = neo_tensor_1d(desc->bias[i].dtable.data, NEO_F32, cols);
        cut.rows_per_sample = rows;
        each.place = to.place = neo__ctx_place(ctx);
        NEO__TRY(neo__linear_grads(ctx, fn, &cut, neo_tensor_none(), each, neo_tensor_none(), to,
                                   NULL));
    }
    return NEO_OK;
}
/* The kind of attention, and the offsets of a jagged batch. */
static neo_status neo__attention_kind(neo__attention_call *call, neo_ctx *ctx, const char *fn,
                                      const neo_attention_desc *desc) {
    const neo_tensor offsets = desc->offsets;
    const float by = desc->divisor;
    NEO__CHECK(desc->kind == NEO_ATTENTION_SOFTMAX || desc->kind == NEO_ATTENTION_SILU, NEO_ERR_ARG,
               "%s: no kind has number %d", fn, (int)desc->kind);
    call->silu = desc->kind == NEO_ATTENTION_SILU;
    NEO__CHECK(by == 0.0f || (call->silu && by >= FLT_MIN && by <= FLT_MAX), NEO_ERR_ARG,
               "%s: a divisor of %g%s", fn, (double)by,
               call->silu ? ", not a normal number above 0" : ", without SiLU");
    const double n = by == 0.0f ? (double)desc->length : (double)by;
    call->share = (float)(1.0 / n), call->slope = (float)((double)call->scale / n);
    if (!neo__given(offsets) && offsets.ndim == 0) return NEO_OK;
    NEO__CHECK(offsets.ndim == 1 && offsets.dtype == NEO_I64 && offsets.shape[0] >= 1 &&
                   neo_tensor_is_contiguous(offsets),
               NEO_ERR_SHAPE, "%s: offsets is not a contiguous i64 tensor [B + 1]", fn);
    if (!offsets.data) return neo__no_data(fn, "offsets", offsets, NEO_ERR_SHAPE);
    NEO__TRY(neo__check_place(ctx, offsets, fn, "offsets"));
    call->offsets = (const int64_t *)offsets.data, call->sequences = offsets.shape[0] - 1;
    return NEO_OK;
}
#else
static neo_status neo__attention_kind(neo__attention_call *call, neo_ctx *ctx, const char *fn,
                                      const neo_attention_desc *desc) {
    (void)call, (void)ctx;
    NEO__CHECK(!(desc->kind || desc->offsets.ndim || desc->bias || desc->bias_count),
               NEO_ERR_UNSUPPORTED, "%s: NEO_INFERENCE leaves out SiLU, offsets and biases", fn);
    return NEO_OK;
}
#endif
static neo_status neo__attention_run(neo_ctx *ctx, const char *fn, neo__attention_call *call) {
#if !defined(NEO_INFERENCE)
    neo__attention_offsets offsets = {fn, call->rows, call->length};
    const neo__later later = {neo__attention_answer, &offsets, sizeof offsets};
    call->later = later;
#endif
    return call->rows > 0 || call->offsets ? NEO__RUN(ctx, fn, attention, call) : NEO_OK;
}
/* The sizes, and the tensors that both directions read. */
static neo_status neo__attention_begin(neo__attention_call *call, neo_ctx *ctx, const char *fn,
                                       const neo_attention_desc *desc, neo_tensor q, neo_tensor k,
                                       neo_tensor v, neo_tensor y, const char *name) {
    memset(call, 0, sizeof *call);
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "%s: desc is NULL", fn);
    NEO__CHECK(desc->length >= 1 && desc->heads >= 1, NEO_ERR_ARG,
               "%s: a length of %" PRId64 " and %" PRId64 " heads, both must be 1 or more", fn,
               desc->length, desc->heads);
    NEO__CHECK(desc->scale - desc->scale == 0.0f, NEO_ERR_ARG, "%s: scale is %g", fn,
               (double)desc->scale);
    NEO__CHECK(desc->dtype == NEO_F32 || desc->dtype == NEO_BF16, NEO_ERR_ARG,
               "%s: dtype %s is neither f32 nor bf16", fn, neo_dtype_name(desc->dtype));
    NEO__CHECK(desc->queries >= 0 && desc->queries <= desc->length, NEO_ERR_ARG,
               "%s: queries are %" PRId64 ", of a length of %" PRId64, fn, desc->queries,
               desc->length);
    NEO__CHECK(!desc->queries || !neo__given(desc->offsets), NEO_ERR_UNSUPPORTED,
               "%s: queries with offsets", fn);
    const int64_t rows = (desc->queries ? k : q).shape[0], cols = q.shape[1];
    const int64_t queries = desc->queries ? desc->queries : desc->length, dim = cols / desc->heads;
    const int64_t q_rows = desc->queries ? rows / desc->length * queries : rows;
    const neo_dtype own = NEO__TRAINS ? neo__operand_dtype(y) : NEO_F32;
    call->narrow = desc->dtype == NEO_BF16, call->narrow_y = own == NEO_BF16;
    NEO__CHECK(!call->narrow_y || (call->narrow && neo_attention_dtype(ctx, dim) == NEO_BF16),
               NEO_ERR_UNSUPPORTED, "%s: %s is bf16, which it may not be for heads of %" PRId64
               " with %s here (neo_attention_dtype)", fn, name, dim, neo_dtype_name(desc->dtype));
    NEO__TRY(neo__check_matrix_of(ctx, own, q, q_rows, cols, 0, fn, "q"));
    NEO__TRY(neo__check_matrix_of(ctx, own, k, rows, cols, 0, fn, "k"));
    NEO__TRY(neo__check_matrix_of(ctx, own, v, rows, cols, 0, fn, "v"));
    NEO__CHECK(rows % desc->length == 0 || neo__given(desc->offsets), NEO_ERR_SHAPE,
               "%s: %s has %" PRId64 " rows, not whole sequences of %" PRId64, fn,
               desc->queries ? "k" : "q", rows, desc->length);
    NEO__CHECK(cols > 0 && cols % desc->heads == 0, NEO_ERR_SHAPE,
               "%s: q has %" PRId64 " columns, not whole ones of %" PRId64 " heads", fn, cols,
               desc->heads);
    NEO__CHECK(dim <= NEO_MAX_HEAD_DIM, NEO_ERR_UNSUPPORTED,
               "%s: heads of %" PRId64 " columns, more than %d", fn, dim, (int)NEO_MAX_HEAD_DIM);
    call->causal = desc->causal != 0;
    call->length = desc->length, call->heads = desc->heads, call->dim = dim;
    call->rows = rows, call->sequences = rows / desc->length;
    call->queries = queries;
    call->scale = desc->scale == 0.0f ? (float)(1.0 / sqrt((double)dim)) : desc->scale;
    NEO__TRY(neo__attention_kind(call, ctx, fn, desc));
    call->q = neo__f32(q), call->q_row = q.stride[0];
    call->k = neo__f32(k), call->k_row = k.stride[0];
    call->v = neo__f32(v), call->v_row = v.stride[0];
    call->y = neo__f32(y), call->y_row = y.stride[0];
    return NEO_OK;
}
NEO_API neo_status neo_attention_forward(neo_ctx *ctx, const neo_attention_desc *desc, neo_tensor q,
                                         neo_tensor k, neo_tensor v, neo_tensor y, neo_tensor lse) {
    static const char *const fn = "neo_attention_forward";
    neo__attention_call call;
    NEO__TRY(neo__attention_begin(&call, ctx, fn, desc, q, k, v, y, "y"));
    const int64_t rows = q.shape[0], cols = q.shape[1];
    NEO__CHECK(call.queries == call.length || !neo_ctx_device(ctx), NEO_ERR_UNSUPPORTED,
               "%s: queries are for the CPU", fn);
    const neo_dtype own = NEO__TRAINS && call.narrow_y ? NEO_BF16 : NEO_F32;
    NEO__TRY(neo__check_matrix_of(ctx, own, y, rows, cols, 1, fn, "y"));
    if (neo__given(lse)) NEO__TRY(neo__check_matrix(ctx, lse, rows, call.heads, 1, fn, "lse"));
    NEO__CHECK(!neo__attention_silu(&call) || !neo__given(lse), NEO_ERR_ARG, "%s: SiLU has no lse",
               fn);
    NEO__APART(fn, 2, 0, {&y, "y"}, {&lse, "lse"}, {&q, "q"}, {&k, "k"}, {&v, "v"},
               {&desc->offsets, "offsets"});
#if !defined(NEO_INFERENCE)
    const neo__named outputs[] = {{&y, "y"}, {&lse, "lse"}};
    NEO__TRY(neo__attention_biases(&call, ctx, fn, desc));
    NEO__TRY(neo__attention_apart(&call, fn, desc, outputs, 2, 2));
#endif
    call.lse = neo__f32(lse), call.lse_row = lse.stride[0];
    return neo__attention_run(ctx, fn, &call);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_attention_backward(neo_ctx *ctx, const neo_attention_desc *desc,
                                          neo_tensor q, neo_tensor k, neo_tensor v, neo_tensor y,
                                          neo_tensor lse, neo_tensor dy, neo_tensor dq,
                                          neo_tensor dk, neo_tensor dv) {
    static const char *const fn = "neo_attention_backward";
    neo__attention_call call;
    NEO__CHECK(!desc || desc->queries == 0 || desc->queries == desc->length, NEO_ERR_UNSUPPORTED,
               "%s: queries are of a forward alone", fn);
    neo__leaf_cut leaves;
    const int silu = desc && desc->kind == NEO_ATTENTION_SILU; /* which reads neither */
    if (silu) y = dy, lse = neo_tensor_none();
    NEO__TRY(neo__attention_begin(&call, ctx, fn, desc, q, k, v, y, silu ? "dy" : "y"));
    const int64_t rows = q.shape[0], cols = q.shape[1];
    const neo_dtype own = neo__operand_dtype(y);
    if (!call.silu) {
        NEO__TRY(neo__check_matrix_of(ctx, own, y, rows, cols, 0, fn, "y"));
        NEO__TRY(neo__check_matrix(ctx, lse, rows, call.heads, 0, fn, "lse"));
    }
    NEO__TRY(neo__check_matrix_of(ctx, own, dy, rows, cols, 0, fn, "dy"));
    if (neo__given(dq)) NEO__TRY(neo__check_matrix_of(ctx, own, dq, rows, cols, 1, fn, "dq"));
    if (neo__given(dk)) NEO__TRY(neo__check_matrix_of(ctx, own, dk, rows, cols, 1, fn, "dk"));
    if (neo__given(dv)) NEO__TRY(neo__check_matrix_of(ctx, own, dv, rows, cols, 1, fn, "dv"));
    const neo__named named[] = {{&dq, "dq"}, {&dk, "dk"},   {&dv, "dv"},
                                {&q, "q"},   {&k, "k"},     {&v, "v"},
                                {&dy, "dy"}, {&y, "y"},     {&lse, "lse"},
                                {&desc->offsets, "offsets"}};
    call.backward = 1;
    NEO__TRY(neo__attention_biases(&call, ctx, fn, desc));
    NEO__TRY(neo__attention_apart(&call, fn, desc, named, 3, 10));
    if (call.bias[0].each || call.bias[1].each) {
        neo_leaves samples = {0, 0, 0, 0};
        if (desc->leaves) samples = *desc->leaves, samples.rows_per_sample = 1;
        NEO__TRY(neo__leaves_resolve(ctx, desc->leaves ? &samples : NULL, call.sequences, &leaves,
                                     fn));
    }
    if (call.silu) call.y = NULL;
    call.lse = neo__f32(lse), call.lse_row = lse.stride[0];
    call.dy = neo__f32(dy), call.dy_row = dy.stride[0];
    call.dq = neo__f32(dq), call.dq_row = dq.stride[0];
    call.dk = neo__f32(dk), call.dk_row = dk.stride[0];
    call.dv = neo__f32(dv), call.dv_row = dv.stride[0];
    NEO__TRY(neo__attention_run(ctx, fn, &call));
    return neo__attention_tables(&call, ctx, fn, desc, &leaves);
}
#endif
NEO__HOT_BEGIN

/* ---- the CPU ---- */
/* Parts of the backward of a head of a sequence: dq; dk and dv; what it adds to dtable. */
enum { NEO__BACK_QUERIES = 1, NEO__BACK_KEYS = 2, NEO__BACK_BIAS = 4, NEO__BACK_ALL = 7 };
/* A head of a sequence. */
typedef struct neo__attention {
    neo_ctx *ctx;
    const neo__attention_call *call;
    int64_t wide;       /* dim, filled up to whole panels */
    int64_t length;     /* rows of the sequence */
    int64_t first, col; /* the head's part of a tensor: rows from `first`, columns from `col` */
    int64_t first_q;    /* of q, y and lse: where row 0 would be, if they had it */
    int64_t ahead;      /* rows of the tile of queries before its first one */
    int does;           /* of a backward: NEO__BACK_... */
} neo__attention;
static neo__attention neo__attention_head(const neo__cpu_part *part, int64_t head) {
    const neo__attention_call *c = (const neo__attention_call *)part->call;
    const int64_t width = 2 * (int64_t)part->ctx->gemm->lanes, sequence = head / c->heads;
    neo__attention a = {part->ctx, c, (c->dim + width - 1) / width * width, c->length, 0,
                        head % c->heads * c->dim, 0, 0, NEO__BACK_ALL};
    if (neo__attention_jagged(c)) {
        a.first = a.first_q = c->offsets[sequence];
        a.length = c->offsets[sequence + 1] - a.first;
    } else { /* where length is that of each, and no mere bound */
        a.first = sequence * c->length;
        a.first_q = (sequence + 1) * c->queries - c->length;
    }
    return a;
}
/* Row i of the head, in a tensor whose rows are row_step apart. */
NEO__INLINE int64_t neo__attention_at(const neo__attention *a, int64_t row_step, int64_t i) {
    return (a->first + i) * row_step + a->col;
}
NEO__INLINE int64_t neo__attention_at_query(const neo__attention *a, int64_t row_step, int64_t i) {
    return (a->first_q + i) * row_step + a->col;
}
NEO__INLINE float *neo__attention_lse(const neo__attention *a, int64_t i) {
    return a->call->lse + (a->first_q + i) * a->call->lse_row + a->col / a->call->dim;
}
/* Panels of rows [count][dim], one behind the other. */
static void neo__attention_pack(const neo__attention *a, float *to, const float *from, int64_t ld,
                                int64_t count) {
    const int64_t width = 2 * a->ctx->gemm->lanes, dim = a->call->dim;
    for (int64_t j = 0; j < dim; j += width)
        a->ctx->gemm->pack(to + j * count, width, from + j, ld, count, NEO__MIN(width, dim - j));
}
/* The same transposed: panels [dim][width] of `count` columns. */
static void neo__attention_flip(const neo__attention *a, float *to, const float *from, int64_t ld,
                                int64_t count) {
    const int64_t width = 2 * a->ctx->gemm->lanes, dim = a->call->dim;
    for (int64_t j = 0; j < count; j += width)
        a->ctx->gemm->pack_transposed(to + j * dim, width, from + j * ld, ld, dim,
                                      NEO__MIN(width, count - j));
}

/* The terms a product leaves out where query i sees the keys 0 .. i alone. */
typedef enum neo__attention_part {
    NEO__ATTENTION_WHOLE,
    NEO__ATTENTION_SCORES,     /* rows: queries, columns: keys; panels that no query sees */
    NEO__ATTENTION_OF_QUERIES, /* rows: queries, terms: keys; those far behind the last one seen */
    NEO__ATTENTION_OF_KEYS     /* rows: keys, terms: queries; those far before the first */
} neo__attention_part;
/* c [m][cols] = x y, or c + x y: k terms each, y packed in panels, cols rounded up to half ones.
   Terms that are left out are zeros, the same ones on all instruction sets, should one meet
   infinity. Those in front add nothing to a sum that starts at +0. Those behind can turn -0 to +0:
   +0 is added to such sums at their end, so that devices may take all terms. */
static void neo__attention_product(const neo__attention *attention, neo__attention_part part,
                                   int64_t m, int64_t cols, int64_t k, const float *x,
                                   int64_t x_row, int64_t x_k, const float *y, float *c,
                                   int64_t c_row, int add) {
    static const float zeros[32] = {0.0f}; /* the columns of a tile, of any path */
    const neo__gemm_kernels *kern = attention->ctx->gemm;
    const int64_t width = 2 * kern->lanes;
    NEO__ZERO(neo__tile, tile);
    tile.a_row = x_row, tile.a_k = x_k;
    tile.b_k = width;
    tile.c_row = tile.init_row = c_row;
    tile.bias = part == NEO__ATTENTION_OF_QUERIES ? zeros : NULL;
    for (int64_t i = 0, rows; i < m; i += rows) {
        int64_t begin = 0, end = k, last = cols;
        rows = NEO__MIN((int64_t)kern->rows, m - i);
        if (part == NEO__ATTENTION_OF_QUERIES || part == NEO__ATTENTION_OF_KEYS) {
            const int64_t at = i + attention->ahead;
            const int64_t block = at / NEO__ATTENTION_TERMS * NEO__ATTENTION_TERMS;
            const int64_t next = block + NEO__ATTENTION_TERMS;
            rows = NEO__MIN(rows, next - at);
            if (part == NEO__ATTENTION_OF_KEYS) begin = block;
            else end = NEO__MIN(next, k);
        }
        if (rows > 1) rows -= rows & 1;
        if (part == NEO__ATTENTION_SCORES) last = NEO__MIN(last, i + rows + attention->ahead);
        tile.k = end - begin;
        tile.a = x + i * x_row + begin * x_k;
        for (int64_t j = 0; j < last; j += width) {
            tile.b = y + j * k + begin * width;
            tile.c = c + i * c_row + j;
            tile.init = add ? tile.c : NULL;
            if (last - j > kern->lanes) kern->tile2[rows / 2](&tile);
            else kern->tile1[rows / 2](&tile);
        }
    }
}
/* Keys of the tile from k0 that query i sees; n: keys of the tile. */
NEO__INLINE int64_t neo__attention_seen(const neo__attention *a, int64_t i, int64_t k0, int64_t n) {
    return a->call->causal ? NEO__MIN(i - k0 + 1, n) : n;
}

/* The operands, packed, and the sums of a worker. The forward has its scores in p. */
typedef struct neo__attention_scratch {
    float keys_flipped[NEO__ATTENTION_SIDE], values_flipped[NEO__ATTENTION_SIDE];
    float keys[NEO__ATTENTION_SIDE], values[NEO__ATTENTION_SIDE], queries[NEO__ATTENTION_SIDE];
    float dy[NEO__ATTENTION_SIDE], y[NEO__ATTENTION_SIDE];
    float dk[NEO__ATTENTION_SIDE], dv[NEO__ATTENTION_SIDE], dq[NEO__ATTENTION_SIDE];
    float p[NEO__KEYS * NEO__KEYS], ds[NEO__KEYS * NEO__KEYS];
    uint16_t bucket[2][NEO__KEYS * NEO__KEYS]; /* of biases by times: of each score */
    float lanes[NEO_MAX_TIME_BUCKETS * 16];    /* and the sums of each bucket, bias by bias */
} neo__attention_scratch;
NEO__STATIC_ASSERT(sizeof(neo__attention_scratch) <= NEO__WORKER_SCRATCH_BYTES,
                   "a worker's scratch holds the tiles of >>impl-attention");
static neo__attention_scratch *neo__attention_scratch_of(const neo__cpu_part *part) {
    return (neo__attention_scratch *)(void *)neo__worker_scratch(part->ctx, part->worker);
}

/* ---- biases ---- */
NEO__INLINE const float *neo__bias_table(const neo__attention *of,
                                         const neo__attention_bias *bias) {
    return bias->table + of->col / of->call->dim * bias->table_row;
}
NEO__INLINE float *neo__bias_lanes(const neo__attention *of, neo__attention_scratch *scratch,
                                   int index) {
    const neo__attention_bias *first = &of->call->bias[0];
    return scratch->lanes + (index > 0 && first->times ? first->buckets * 16 : 0);
}
/* The bucket of a difference that lies near one whose bucket is `from`. */
NEO__INLINE int64_t neo__bias_near(const neo__attention_bias *bias, int64_t difference,
                                   int64_t from) {
    while (from > 0 && bias->bounds[from - 1] > difference) from--;
    while (from < bias->buckets - 1 && bias->bounds[from] <= difference) from++;
    return from;
}
/* The buckets of the differences of a pair of tiles, m queries from q0 and `count` keys from k0,
   from the largest down: query i and key j have number m - 1 - i + j. Returns how many. */
static int64_t neo__bias_rows(const neo__attention_bias *bias, int64_t q0, int64_t m, int64_t k0,
                              int64_t count, int64_t *bucket) {
    const int64_t most = q0 + m - 1 - k0, differences = m + count - 1;
    int64_t at = neo__bias_bucket(bias, most);
    for (int64_t t = 0; t < differences; t++)
        bucket[t] = at = neo__bias_near(bias, most - t, at);
    return differences;
}
static void neo__bias_add_rows(const neo__attention *of, const neo__attention_bias *bias,
                               int64_t q0, int64_t m, int64_t k0, int64_t count, float *s) {
    const float *table = neo__bias_table(of, bias);
    int64_t bucket[2 * NEO__KEYS];
    float value[2 * NEO__KEYS];
    const int64_t differences = neo__bias_rows(bias, q0, m, k0, count, bucket);
    for (int64_t t = 0; t < differences; t++) value[t] = table[bucket[t]];
    for (int64_t i = 0; i < m; i++)
        of->ctx->vec->add(s + i * NEO__KEYS, value + m - 1 - i,
                         neo__attention_seen(of, q0 + i, k0, count));
}
static void neo__bias_add_times(const neo__attention *of, const neo__attention_bias *bias,
                                int64_t q0, int64_t m, int64_t k0, int64_t count, float *s,
                                uint16_t *bucket) {
    const float *table = neo__bias_table(of, bias);
    const int64_t *times = bias->times + of->first + k0;
    int64_t at = 0, low = 1, high = 0; /* bucket `at`: from low on, below high; none yet */
    for (int64_t i = 0; i < m; i++, s += NEO__KEYS, bucket += NEO__KEYS) {
        const int64_t seen = neo__attention_seen(of, q0 + i, k0, count);
        const uint64_t asked = (uint64_t)bias->asked[of->first + q0 + i];
        for (int64_t j = 0; j < seen; j++) {
            const int64_t difference = (int64_t)(asked - (uint64_t)times[j]);
            if (difference < low || difference >= high) { /* seldom: rows come as time goes */
                at = neo__bias_near(bias, difference, at);
                low = at > 0 ? bias->bounds[at - 1] : INT64_MIN;
                high = at < bias->buckets - 1 ? bias->bounds[at] : INT64_MAX;
            }
            bucket[j] = (uint16_t)at;
            s[j] += table[at];
        }
    }
}
/* Rows of s of a pair of tiles times the scale; those of keys that are not there or not seen, too,
   which are not read or zeros. */
static void neo__attention_scale(const neo__attention *of, int64_t m, float *s) {
    float scale[NEO__KEYS];
    for (int64_t j = 0; j < NEO__KEYS; j++) scale[j] = of->call->scale;
    for (int64_t i = 0; i < m; i++) of->ctx->vec->mul(s + i * NEO__KEYS, scale, NEO__KEYS);
}
/* The products s of a pair of tiles become scores. */
static void neo__attention_bias_scores(const neo__attention *of, neo__attention_scratch *scratch,
                                       int64_t q0, int64_t m, int64_t k0, int64_t count) {
    float *s = scratch->p;
    neo__attention_scale(of, m, s);
    for (int b = 0; b < of->call->biases; b++) {
        const neo__attention_bias *bias = &of->call->bias[b];
        if (bias->times)
            neo__bias_add_times(of, bias, q0, m, k0, count, s, scratch->bucket[b]);
        else
            neo__bias_add_rows(of, bias, q0, m, k0, count, s);
    }
}
/* Sums of a head of a sequence: zeros first; at the end those of the lanes. */
static void neo__attention_bias_begin(const neo__attention *of, neo__attention_scratch *scratch,
                                      int64_t head) {
    for (int b = 0; b < of->call->biases; b++) {
        const neo__attention_bias *bias = &of->call->bias[b];
        if (!bias->each) continue;
        memset(bias->each + head * bias->buckets, 0, (size_t)bias->buckets * sizeof(float));
        if (bias->times)
            memset(neo__bias_lanes(of, scratch, b), 0, (size_t)bias->buckets * 16 * sizeof(float));
    }
}
static void neo__attention_bias_end(const neo__attention *of, neo__attention_scratch *scratch,
                                    int64_t head) {
    for (int b = 0; b < of->call->biases; b++) {
        const neo__attention_bias *bias = &of->call->bias[b];
        const float *lane = neo__bias_lanes(of, scratch, b);
        if (!bias->each || !bias->times) continue;
        float *each = bias->each + head * bias->buckets;
        for (int64_t n = 0; n < bias->buckets; n++, lane += 16) each[n] = neo__tree16_scalar(lane);
    }
}
/* The dS of a pair of tiles is added to the sums. */
static void neo__attention_bias_grad(const neo__attention *of, neo__attention_scratch *scratch,
                                     int64_t head, int64_t q0, int64_t m, int64_t k0,
                                     int64_t count) {
    for (int b = 0; b < of->call->biases; b++) {
        const neo__attention_bias *bias = &of->call->bias[b];
        float sum[2 * NEO__KEYS], *each = bias->each, *lanes = neo__bias_lanes(of, scratch, b);
        int64_t bucket[2 * NEO__KEYS];
        if (!each) continue;
        if (!bias->times) {
            const int64_t differences = neo__bias_rows(bias, q0, m, k0, count, bucket);
            memset(sum, 0, sizeof sum);
            for (int64_t i = 0; i < m; i++)
                of->ctx->vec->add(sum + m - 1 - i, scratch->ds + i * NEO__KEYS, count);
            each += head * bias->buckets;
            for (int64_t t = 0; t < differences; t++) each[bucket[t]] += sum[t];
            continue;
        }
        for (int64_t i = 0; i < m; i++) {
            const int64_t seen = neo__attention_seen(of, q0 + i, k0, count);
            const uint16_t *bucket_of = scratch->bucket[b] + i * NEO__KEYS;
            for (int64_t j = 0; j < seen; j++)
                lanes[bucket_of[j] * 16 + j % 16] += scratch->ds[i * NEO__KEYS + j];
        }
    }
}

/* The tile that has query q0, from it on, over all tiles of keys. */
static void neo__attention_forward_tile(const neo__attention *attention, int64_t q0,
                                        neo__attention_scratch *scratch) {
    const neo__attention_call *call = attention->call;
    const neo__vec_kernels *vec = attention->ctx->vec;
    const int64_t ahead = attention->ahead;
    const float scale = neo__attention_biased(call) ? 1.0f : call->scale;
    const int64_t m = NEO__MIN((int64_t)NEO__KEYS - ahead, attention->length - q0);
    float *out = scratch->y, *s = scratch->p, max[NEO__KEYS], sum[NEO__KEYS];
    const float *q = call->q + neo__attention_at_query(attention, call->q_row, q0);
    for (int64_t i = 0; i < m; i++) {
        max[i] = neo__f32_bits(0xFF800000u);
        sum[i] = 0.0f;
    }
    memset(out, 0, (size_t)(m * attention->wide) * sizeof *out);
    const int64_t end = call->causal ? q0 + m : attention->length;
    for (int64_t k0 = 0; k0 < end; k0 += NEO__KEYS) {
        const int64_t count = NEO__MIN((int64_t)NEO__KEYS, attention->length - k0);
        const int diagonal = call->causal && k0 == q0 - ahead;
        const float *k = call->k + neo__attention_at(attention, call->k_row, k0);
        const float *v = call->v + neo__attention_at(attention, call->v_row, k0);
        neo__attention_flip(attention, scratch->keys_flipped, k, call->k_row, count);
        neo__attention_pack(attention, scratch->values, v, call->v_row, count);
        neo__attention_product(attention, diagonal ? NEO__ATTENTION_SCORES : NEO__ATTENTION_WHOLE,
                               m, count, call->dim, q, call->q_row, 1, scratch->keys_flipped, s,
                               NEO__KEYS, 0);
        if (neo__attention_biased(call))
            neo__attention_bias_scores(attention, scratch, q0, m, k0, count);
        for (int64_t i = 0; i < m; i++) {
            const int64_t seen = neo__attention_seen(attention, q0 + i, k0, count);
            if (neo__attention_silu(call))
                vec->silu_tile(s + i * NEO__KEYS, NULL, seen, scale, call->share, 0.0f);
            else
                vec->softmax_tile(s + i * NEO__KEYS, seen, scale, &max[i], &sum[i],
                                  out + i * attention->wide, call->dim);
        }
        neo__attention_product(
            attention, diagonal ? NEO__ATTENTION_OF_QUERIES : NEO__ATTENTION_WHOLE, m, call->dim,
            count, s, NEO__KEYS, 1, scratch->values, out, attention->wide, 1);
    }
    for (int64_t i = 0; i < m; i++) {
        float lse = 0.0f;
        if (!neo__attention_silu(call))
            lse = vec->softmax_end(out + i * attention->wide, max[i], sum[i], call->dim);
        memcpy(call->y + neo__attention_at_query(attention, call->y_row, q0 + i),
               out + i * attention->wide, (size_t)call->dim * sizeof *out);
        if (call->lse) *neo__attention_lse(attention, q0 + i) = lse;
    }
}
static void neo__attention_forward_part(const neo__cpu_part *part) {
    const neo__attention_call *c = (const neo__attention_call *)part->call;
    if (neo__attention_jagged(c)) {
        const neo__attention_tile tile =
            neo__attention_tile_at(c, NEO__KEYS, part->begin / c->heads);
        if (tile.row >= tile.length) return;
        const neo__attention one =
            neo__attention_head(part, tile.sequence * c->heads + part->begin % c->heads);
        neo__attention_forward_tile(&one, tile.row, neo__attention_scratch_of(part));
        return;
    }
    const int64_t start = c->length - c->queries, first = start / NEO__KEYS;
    const int64_t tiles = (c->length + NEO__KEYS - 1) / NEO__KEYS - first;
    neo__attention a = neo__attention_head(part, part->begin / tiles);
    const int64_t q0 = NEO__MAX((first + part->begin % tiles) * NEO__KEYS, start);
    a.ahead = q0 % NEO__KEYS;
    neo__attention_forward_tile(&a, q0, neo__attention_scratch_of(part));
}

/* dY Y of row i: blocks of 16 columns by their tree, in order. */
static float neo__attention_delta(const neo__attention *a, int64_t i) {
    const neo__attention_call *c = a->call;
    float part[NEO_MAX_HEAD_DIM / 16], sum = 0.0f;
    a->ctx->bag->blocks(c->dy + neo__attention_at(a, c->dy_row, i),
                        c->y + neo__attention_at(a, c->y_row, i), c->dim, part);
    for (int64_t b = 0; b < (c->dim + 15) / 16; b++) sum += part[b];
    return sum;
}
/* Between arrays [rows][dim] of which the rows lie apart. */
static void neo__attention_copy(const neo__attention *a, float *to, int64_t to_row,
                                const float *from, int64_t from_row, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_row, from + i * from_row, (size_t)a->call->dim * sizeof *to);
}
/* The part of a tile of m queries in the sum of n keys: terms [query][key] times rows of x. */
static void neo__attention_to_keys(const neo__attention *a, neo__attention_part part, int64_t n,
                                   int64_t m, const float *terms, const float *x, int64_t x_row,
                                   float *packed, float *sum, int first) {
    neo__attention_pack(a, packed, x, x_row, m);
    neo__attention_product(a, part, n, a->call->dim, m, terms, 1, NEO__KEYS, packed, sum, a->wide,
                           !first);
}
/* The tile of `count` keys from k0, in scratch, with the tile of queries from q0; first: of those
   it meets. */
static void neo__attention_pair(const neo__attention *attention, neo__attention_scratch *scratch,
                                int64_t head, int64_t k0, int64_t count, int64_t q0, int first) {
    const neo__attention_call *call = attention->call;
    const neo__vec_kernels *vec = attention->ctx->vec;
    const int64_t m = NEO__MIN((int64_t)NEO__KEYS, attention->length - q0), dim = call->dim,
                  wide = attention->wide;
    const int diagonal = call->causal && q0 == k0, biased = neo__attention_biased(call);
    const int of_keys_too = attention->does & NEO__BACK_KEYS;
    const float scale = biased ? 1.0f : call->scale;
    const neo__attention_part whole = NEO__ATTENTION_WHOLE;
    const neo__attention_part scores = diagonal ? NEO__ATTENTION_SCORES : whole;
    const neo__attention_part of_queries = diagonal ? NEO__ATTENTION_OF_QUERIES : whole;
    const neo__attention_part of_keys = diagonal ? NEO__ATTENTION_OF_KEYS : whole;
    const float *q = call->q + neo__attention_at(attention, call->q_row, q0);
    const float *dy = call->dy + neo__attention_at(attention, call->dy_row, q0);
    neo__attention_product(attention, scores, m, count, dim, q, call->q_row, 1,
                           scratch->keys_flipped, scratch->p, NEO__KEYS, 0);
    neo__attention_product(attention, scores, m, count, dim, dy, call->dy_row, 1,
                           scratch->values_flipped, scratch->ds, NEO__KEYS, 0);
    if (biased) neo__attention_bias_scores(attention, scratch, q0, m, k0, count);
    for (int64_t i = 0; i < m; i++) {
        const int64_t seen = neo__attention_seen(attention, q0 + i, k0, count);
        float *p = scratch->p + i * NEO__KEYS, *ds = scratch->ds + i * NEO__KEYS;
        if (call->silu)
            vec->silu_tile(p, ds, seen, scale, call->share, biased ? call->share : call->slope);
        else
            vec->softmax_tile_grad(p, ds, seen, scale, *neo__attention_lse(attention, q0 + i),
                                   neo__attention_delta(attention, q0 + i));
    }
    if (biased) {
        if (attention->does & NEO__BACK_BIAS)
            neo__attention_bias_grad(attention, scratch, head, q0, m, k0, count);
        neo__attention_scale(attention, m, scratch->ds);
    }
    if (call->dv && of_keys_too)
        neo__attention_to_keys(attention, of_keys, count, m, scratch->p, dy, call->dy_row,
                               scratch->dy, scratch->dv, first);
    if (call->dk && of_keys_too)
        neo__attention_to_keys(attention, of_keys, count, m, scratch->ds, q, call->q_row,
                               scratch->queries, scratch->dk, first);
    if (call->dq && (attention->does & NEO__BACK_QUERIES)) {
        float *dq = call->dq + neo__attention_at(attention, call->dq_row, q0);
        if (k0 > 0) neo__attention_copy(attention, scratch->dq, wide, dq, call->dq_row, m);
        neo__attention_product(attention, of_queries, m, dim, count, scratch->ds, NEO__KEYS, 1,
                               scratch->keys, scratch->dq, wide, k0 > 0);
        neo__attention_copy(attention, dq, call->dq_row, scratch->dq, wide, m);
    }
}
/* The tile of keys from k0 with the tiles of queries from q0 on, below `end`. */
static void neo__attention_keys(const neo__attention *attention, neo__attention_scratch *scratch,
                                int64_t head, int64_t k0, int64_t q0, int64_t end) {
    const neo__attention_call *call = attention->call;
    const int64_t count = NEO__MIN((int64_t)NEO__KEYS, attention->length - k0), start = q0;
    const float *k = call->k + neo__attention_at(attention, call->k_row, k0);
    const float *v = call->v + neo__attention_at(attention, call->v_row, k0);
    neo__attention_flip(attention, scratch->keys_flipped, k, call->k_row, count);
    neo__attention_flip(attention, scratch->values_flipped, v, call->v_row, count);
    if (call->dq) neo__attention_pack(attention, scratch->keys, k, call->k_row, count);
    for (; q0 < end; q0 += NEO__KEYS)
        neo__attention_pair(attention, scratch, head, k0, count, q0, q0 == start);
    if (!(attention->does & NEO__BACK_KEYS)) return;
    const int64_t dk = neo__attention_at(attention, call->dk_row, k0);
    const int64_t dv = neo__attention_at(attention, call->dv_row, k0);
    if (call->dk)
        neo__attention_copy(attention, call->dk + dk, call->dk_row, scratch->dk, attention->wide,
                            count);
    if (call->dv)
        neo__attention_copy(attention, call->dv + dv, call->dv_row, scratch->dv, attention->wide,
                            count);
}
/* All tiles of keys, with the queries [begin, end). */
static void neo__attention_back_head(const neo__attention *attention,
                                     neo__attention_scratch *scratch, int64_t head, int64_t begin,
                                     int64_t end) {
    const int causal = attention->call->causal;
    const int bias = (attention->does & NEO__BACK_BIAS) && neo__attention_biased(attention->call);
    if (bias) neo__attention_bias_begin(attention, scratch, head);
    for (int64_t k0 = 0; k0 < (causal ? end : attention->length); k0 += NEO__KEYS)
        neo__attention_keys(attention, scratch, head, k0, causal ? NEO__MAX(k0, begin) : begin,
                            end);
    if (bias) neo__attention_bias_end(attention, scratch, head);
}
/* A backward's record, and the sequences so long that a head of one would be more than a thread's
   share: cut into tasks for the bias, for each tile of keys, and for NEO__BACK_GROUP tiles of
   queries. They compute S and dP once each, 7 products for 5, and each sum is the chain that it is
   in a whole head. */
enum { NEO__BACK_SPLITS = 16, NEO__BACK_GROUP = 4 };
typedef struct neo__attention_back {
    neo__attention_call call; /* the first: so it is what a task gets */
    int splits;
    struct {
        int64_t sequence, tasks; /* of a head */
    } split[NEO__BACK_SPLITS];
} neo__attention_back;
/* Choose them, or none where the longest head takes no longer than all threads do with what is
   computed twice, which takes half as long as the heads that are cut; pairs: of rows, in all
   sequences. Returns their tasks. */
static int64_t neo__attention_split(neo__attention_back *back, const neo__attention_call *call,
                                    int threads, int64_t pairs) {
    int64_t all = 0, work = pairs * call->heads, longest = 0;
    back->call = *call, back->splits = 0;
    for (int64_t b = 0; b < call->sequences && back->splits < NEO__BACK_SPLITS; b++) {
        const int64_t length =
            call->offsets ? call->offsets[b + 1] - call->offsets[b] : call->length;
        const int64_t tiles = (length + NEO__KEYS - 1) / NEO__KEYS;
        if (tiles < NEO__BACK_GROUP || length * length <= pairs * call->heads / threads) continue;
        longest = NEO__MAX(longest, length * length);
        work += length * length * call->heads / 2;
        back->split[back->splits].sequence = b;
        back->split[back->splits].tasks =
            1 + tiles + (tiles + NEO__BACK_GROUP - 1) / NEO__BACK_GROUP;
        all += back->split[back->splits++].tasks * call->heads;
    }
    if (longest <= work / threads) all = back->splits = 0;
    return all;
}
/* Task number `turn` of a head that is cut. Of a causal one the first tiles of keys meet the most
   queries, and the last queries the most keys. */
static void neo__attention_split_task(neo__attention *attention, neo__attention_scratch *scratch,
                                      int64_t head, int64_t turn) {
    const neo__attention_call *call = attention->call;
    const int64_t length = attention->length, tiles = (length + NEO__KEYS - 1) / NEO__KEYS;
    const int64_t k0 = (turn - 1) * NEO__KEYS, each = (int64_t)NEO__BACK_GROUP * NEO__KEYS;
    const int64_t begin = (length - 1) / each * each - (turn - 1 - tiles) * each;
    if (turn == 0) {
        attention->does = NEO__BACK_BIAS;
        if (neo__attention_biased(call) && (call->bias[0].each || call->bias[1].each))
            neo__attention_back_head(attention, scratch, head, 0, length);
    } else if (turn <= tiles) {
        attention->does = NEO__BACK_KEYS;
        if (call->dk || call->dv)
            neo__attention_keys(attention, scratch, head, k0, call->causal ? k0 : 0, length);
    } else if (call->dq) {
        attention->does = NEO__BACK_QUERIES;
        neo__attention_back_head(attention, scratch, head, begin, NEO__MIN(begin + each, length));
    }
}
static void neo__attention_backward_part(const neo__cpu_part *part) {
    const neo__attention_back *back = (const neo__attention_back *)part->call;
    neo__attention_scratch *scratch = neo__attention_scratch_of(part);
    const int64_t heads = back->call.heads;
    int64_t index = part->begin;
    for (int i = 0; i < back->splits; i++) {
        const int64_t tasks = back->split[i].tasks;
        const int64_t head = back->split[i].sequence * heads + index / tasks;
        if (index < tasks * heads) {
            neo__attention a = neo__attention_head(part, head);
            neo__attention_split_task(&a, scratch, head, index % tasks);
            return;
        }
        index -= tasks * heads;
    }
    for (int i = 0; i < back->splits; i++)
        if (index / heads == back->split[i].sequence) return;
    const neo__attention a = neo__attention_head(part, index);
    neo__attention_back_head(&a, scratch, index, 0, a.length);
}
/* Outputs of rows of no sequence. */
static void neo__attention_clear_part(const neo__cpu_part *part) {
    const neo__attention_call *c = (const neo__attention_call *)part->call;
    const int64_t cols = c->heads * c->dim, begin = c->offsets[0], end = c->offsets[c->sequences];
    const struct {
        float *to;
        int64_t row, cols;
    } outputs[] = {{c->backward ? NULL : c->y, c->y_row, cols},
                   {c->backward ? NULL : c->lse, c->lse_row, c->heads},
                   {c->dq, c->dq_row, cols},
                   {c->dk, c->dk_row, cols},
                   {c->dv, c->dv_row, cols}};
    for (int64_t i = part->begin; i < part->end; i++) {
        const int64_t row = i < begin ? i : i - begin + end;
        for (size_t j = 0; j < sizeof outputs / sizeof *outputs; j++)
            if (outputs[j].to)
                memset(outputs[j].to + row * outputs[j].row, 0,
                       (size_t)outputs[j].cols * sizeof(float));
    }
}
/* Offsets are sound: the work of sequences of different lengths, and the other rows. */
static int64_t neo__attention_begin_jagged(neo_device *device, const neo__attention_call *call,
                                           neo__attention_found *found) {
    const int64_t *offsets = call->offsets;
    int64_t pairs = 0; /* of rows */
    for (int64_t i = 0; i < NEO__MAX(call->sequences, 1); i++) {
        const int64_t begin = offsets[i], end = offsets[NEO__MIN(i + 1, call->sequences)];
        if (neo__attention_bad(call, begin, end)) {
            found->bad = (uint64_t)i, found->begin = begin, found->end = end;
            return 0;
        }
        pairs += (end - begin) * (end - begin);
    }
    const int64_t cols = call->heads * call->dim;
    neo__cpu_run(device, call, call->rows - offsets[call->sequences] + offsets[0],
                 1 + NEO__VEC_GRAIN / cols, 1, neo__attention_clear_part);
    return pairs;
}
/* Forward, a task is a tile of queries of a head; backward, a head or a part of one. */
static neo_status neo__cpu_attention(neo_device *device, const neo__attention_call *call) {
    neo__attention_found found = {UINT64_MAX, 0, 0};
    const int64_t heads = call->sequences * call->heads;
    int64_t pairs, tasks = heads;
    if (neo__attention_jagged(call)) {
        pairs = neo__attention_begin_jagged(device, call, &found);
        if (!call->backward) tasks = neo__attention_tiles(call, NEO__KEYS) * call->heads;
        if (found.bad != UINT64_MAX || (pairs == 0 && !neo__attention_biased(call))) tasks = 0;
    } else {
        pairs = call->sequences * call->queries * call->length;
        if (!call->backward)
            tasks *= (call->length + NEO__KEYS - 1) / NEO__KEYS -
                     (call->length - call->queries) / NEO__KEYS;
    }
    neo__attention_back back;
    if (NEO__TRAINS && call->backward && tasks > 0)
        tasks += neo__attention_split(&back, call, neo__cpu_ctx(device)->threads, pairs);
    neo__cpu_job job = {
        neo__cpu_ctx(device), call->backward ? &back.call : call, tasks, tasks, 1,
        call->backward ? NEO__TRAIN(neo__attention_backward_part) : neo__attention_forward_part};
    neo__run_tasks(job.ctx, tasks, neo__cpu_task, &job,
                   pairs * call->heads * call->dim / (call->backward ? 5 : 16));
    return neo__attention_jagged(call) ? neo__later_now(&call->later, &found) : NEO_OK;
}

#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
   >>impl-losses

   A sample's loss is one f32, rounded as its formula says; the losses of the batch add in a
   neo_exact, so no order of tasks, leaves or ranks shows. Every worker adds to a sum of its own
   (in its scratch); they are merged at the end. Labels are checked before anything is written.
   ------------------------------------------------------------------------ */
NEO__INLINE neo_exact *neo__worker_exact(neo_ctx *ctx, int worker) {
    return (neo_exact *)(void *)neo__worker_scratch(ctx, worker);
}
static void neo__exact_start(neo_ctx *ctx, int sums) {
    for (int w = 0; w < ctx->threads; w++)
        for (int i = 0; i < sums; i++) neo_exact_zero(neo__worker_exact(ctx, w) + i);
}
static void neo__exact_finish(neo_ctx *ctx, int index, neo_exact *sum) {
    for (int w = 0; w < ctx->threads; w++) neo_exact_merge(sum, neo__worker_exact(ctx, w) + index);
}

NEO__HOT_END
/* A tensor of `rows` times `columns` f32, of one column [B] or [B][1]. */
static neo_status neo__check_columns(const neo_ctx *ctx, const char *function, const char *name,
                                     neo_tensor t, int64_t rows, int64_t columns) {
    if (!t.data && t.absent && rows > 0) return neo__no_data(function, name, t, NEO_ERR_SHAPE);
    NEO__CHECK((t.data || rows == 0) && t.dtype == NEO_F32 &&
                   ((t.ndim == 1 && columns == 1) || (t.ndim == 2 && t.shape[1] == columns)) &&
                   neo_tensor_is_contiguous(t),
               NEO_ERR_SHAPE,
               "%s: %s is not a contiguous f32 tensor %s[B][%" PRId64
               "], it is %s with %d dimensions [%" PRId64 "][%" PRId64 "]",
               function, name, columns == 1 ? "[B] or " : "", columns, neo_dtype_name(t.dtype),
               (int)t.ndim, t.shape[0], t.shape[1]);
    NEO__CHECK(rows >= 0, NEO_ERR_SHAPE, "%s: %s has a negative extent", function, name);
    NEO__CHECK(t.shape[0] == rows, NEO_ERR_SHAPE,
               "%s: %s has %" PRId64 " samples, the first tensor %" PRId64, function, name,
               t.shape[0], rows);
    return neo__check_place(ctx, t, function, name);
}
/* A loss and the places its caller wants it in, kept for the device's answer: see
   >>deferred-answers. */
typedef struct neo__loss {
    neo_ctx *ctx;
    const char *fn, *names[2]; /* of x and its labels */
    neo__loss_call call;
    int64_t batch, labels; /* labels: of a sample; each is a row of the call */
    double scale;
    neo_exact *sum; /* or NULL */
    double *loss;   /* or NULL */
} neo__loss;
static neo_status neo__loss_answer(void *job, const void *answer) {
    const neo__loss *loss = (const neo__loss *)job;
    neo__loss_found found;
    memcpy(&found, answer, sizeof found);
    const int is_x = found.bad[0] == UINT64_MAX;
    if (found.bad[is_x] == UINT64_MAX) {
        if (loss->loss)
            *loss->loss = loss->batch > 0 ? neo_exact_value(&found.sum) / (double)loss->batch : 0.0;
        if (loss->sum) neo_exact_merge(loss->sum, &found.sum);
        return NEO_OK;
    }
    if (loss->call.kind != NEO__LOSS_CROSS_ENTROPY)
        return neo_fail(NEO_ERR_RANGE, "%s: %s of sample %" PRIu64 " is %.9g, not in [0, 1]",
                        loss->fn, loss->names[is_x ? 0 : 1],
                        found.bad[is_x] / (uint64_t)loss->labels, found.value);
    return neo_fail(NEO_ERR_RANGE,
                    "%s: label of sample %" PRIu64 " is %" PRId64 ", not in [0, %" PRId64 ")",
                    loss->fn, found.bad[0], found.label, loss->call.width);
}
static neo_status neo__loss_begin(neo__loss *l, neo_ctx *ctx, const char *fn, neo__loss_kind kind,
                                  const neo_loss_desc *desc, neo_tensor x, neo_tensor dx,
                                  double *loss) {
    neo__loss_call *call = &l->call;
    memset(l, 0, sizeof *l);
    call->kind = kind;
    call->rows = l->batch = x.shape[0];
    call->width = x.ndim == 2 ? x.shape[1] : 1;
    call->x = neo__f32(x);
    call->dx = neo__f32(dx);
    l->ctx = ctx;
    l->fn = fn;
    l->labels = kind == NEO__LOSS_BCE || kind == NEO__LOSS_BCE_LOGITS ? call->width : 1;
    l->scale = 1.0;
    l->loss = loss;
    NEO__CHECK(ctx->sharing == 0 || !neo__given(dx) || (desc && desc->batch != 0), NEO_ERR_ARG,
               "%s: desc is NULL or its batch 0, which means that the %" PRId64
               " rows are the whole batch, but ranks share it: give the samples of all ranks",
               fn, call->rows);
    if (!desc) return NEO_OK;
    l->sum = desc->sum;
    if (desc->batch != 0) l->batch = desc->batch;
    if (desc->scale != 0.0f) l->scale = (double)desc->scale;
    NEO__CHECK(l->scale > 0.0 && l->scale < (double)FLT_MAX, NEO_ERR_ARG, "%s: scale is %g", fn,
               l->scale);
    NEO__CHECK(l->batch >= call->rows, NEO_ERR_ARG,
               "%s: batch is %" PRId64 ", less than the %" PRId64 " rows given", fn, l->batch,
               call->rows);
    if (neo__given(desc->weight))
        NEO__TRY(neo__check_columns(ctx, fn, "weight", desc->weight, call->rows, l->labels));
    call->weight = neo__f32(desc->weight);
    return NEO_OK;
}
/* The gradient's factor: 1/batch, of mean squares 2/(batch outputs of a sample). */
static float neo__loss_factor(const neo__loss *l) {
    const int squares = l->call.kind == NEO__LOSS_MSE;
    const int64_t divisor = squares ? l->call.width : 1;
    if (l->batch == 0 || divisor == 0) return 0.0f;
    return (float)(l->scale * (squares ? 2.0 : 1.0) / ((double)l->batch * (double)divisor));
}
static neo_status neo__loss_run(neo__loss *l) {
    const neo__later later = {neo__loss_answer, l, sizeof *l};
    neo__fp_state fp = neo__fp_enter();
    l->call.g = neo__loss_factor(l);
    l->call.later = later;
    neo_status status = NEO__RUN(l->ctx, l->fn, loss, &l->call);
    neo__fp_leave(fp);
    return status;
}

static neo_status neo__bce(neo_ctx *ctx, const char *fn, neo__loss_kind kind,
                           const neo_loss_desc *desc, const char *const names[3], neo_tensor x,
                           neo_tensor label, neo_tensor dx, double *loss) {
    neo__loss l;
    NEO__TRY(neo__check_ctx(fn, ctx));
    const int64_t samples = x.shape[0];
    const int64_t labels = x.ndim == 2 && label.ndim == 2 ? NEO__MAX(label.shape[1], 1) : 1;
    NEO__TRY(neo__check_columns(ctx, fn, names[0], x, samples, labels));
    NEO__TRY(neo__check_columns(ctx, fn, names[1], label, samples, labels));
    if (neo__given(dx)) NEO__TRY(neo__check_columns(ctx, fn, names[2], dx, samples, labels));
    NEO__TRY(neo__loss_begin(&l, ctx, fn, kind, desc, x, dx, loss));
    l.call.rows *= labels;
    l.call.width = 1;
    l.names[0] = names[0], l.names[1] = names[1];
    l.call.y = neo__f32(label);
    return neo__loss_run(&l);
}
NEO_API neo_status neo_bce_with_logits(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                       neo_tensor label, neo_tensor dlogit, double *loss) {
    static const char *const names[3] = {"logit", "label", "dlogit"};
    return neo__bce(ctx, "neo_bce_with_logits", NEO__LOSS_BCE_LOGITS, desc, names, logit, label,
                    dlogit, loss);
}
NEO_API neo_status neo_bce(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor prob,
                           neo_tensor label, neo_tensor dprob, double *loss) {
    static const char *const names[3] = {"prob", "label", "dprob"};
    return neo__bce(ctx, "neo_bce", NEO__LOSS_BCE, desc, names, prob, label, dprob, loss);
}

NEO_API neo_status neo_mse(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor pred,
                           neo_tensor target, neo_tensor dpred, double *loss) {
    static const char *const fn = "neo_mse";
    neo__loss l;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__TRY(neo__check_like(ctx, fn, "pred", pred, pred));
    NEO__TRY(neo__check_like(ctx, fn, "target", target, pred));
    if (neo__given(dpred)) NEO__TRY(neo__check_like(ctx, fn, "dpred", dpred, pred));
    NEO__CHECK(pred.ndim == 1 || pred.ndim == 2, NEO_ERR_SHAPE,
               "%s: pred has %d dimensions, not 1 or 2", fn, (int)pred.ndim);
    NEO__TRY(neo__loss_begin(&l, ctx, fn, NEO__LOSS_MSE, desc, pred, dpred, loss));
    l.call.y = neo__f32(target);
    return neo__loss_run(&l);
}
NEO_API neo_status neo_cross_entropy(neo_ctx *ctx, const neo_loss_desc *desc, neo_tensor logit,
                                     neo_tensor label, neo_tensor dlogit, double *loss) {
    static const char *const fn = "neo_cross_entropy";
    const neo_tensor floats[] = {logit, dlogit};
    neo__loss l;
    NEO__TRY(neo__check_ctx(fn, ctx));
    for (int i = 0; i < 2; i++)
        NEO__CHECK(floats[i].dtype == NEO_F32 || floats[i].dtype == NEO_BF16, NEO_ERR_SHAPE,
                   "%s: %slogit is %s: f32 or bf16 is possible", fn, i ? "d" : "",
                   neo_dtype_name(floats[i].dtype));
    const int narrow_x = logit.dtype == NEO_BF16 && logit.ndim == 2;
    if (narrow_x)
        NEO__TRY(neo__check_matrix_of(ctx, NEO_BF16, logit, logit.shape[0], logit.shape[1], 0, fn,
                                      "logit"));
    else NEO__TRY(neo__check_like(ctx, fn, "logit", logit, logit));
    NEO__CHECK(logit.ndim == 2 && logit.shape[1] > 0, NEO_ERR_SHAPE,
               "%s: logit is not [B][C] with C > 0", fn);
    const int narrow = neo__given(dlogit) && dlogit.dtype == NEO_BF16;
    NEO__CHECK(narrow || !narrow_x || !neo__given(dlogit), NEO_ERR_SHAPE,
               "%s: dlogit is %s, but logit bf16: give bf16, too, or none", fn,
               neo_dtype_name(dlogit.dtype));
    if (narrow) {
        NEO__TRY(neo__check_matrix_of(ctx, NEO_BF16, dlogit, logit.shape[0], logit.shape[1], 1, fn,
                                      "dlogit"));
        NEO__APART(fn, 1, narrow_x, {&dlogit, "dlogit"}, {&logit, "logit"});
    } else if (neo__given(dlogit)) {
        NEO__TRY(neo__check_like(ctx, fn, "dlogit", dlogit, logit));
    }
    if (!label.data && (label.absent || label.ndim == 0))
        return neo__no_data(fn, "label", label, NEO_ERR_SHAPE);
    NEO__CHECK((label.data || logit.shape[0] == 0) && label.dtype == NEO_I64 && label.ndim == 1 &&
                   neo_tensor_is_contiguous(label) && label.shape[0] == logit.shape[0],
               NEO_ERR_SHAPE, "%s: label is not a contiguous i64 tensor of %" PRId64 " samples", fn,
               logit.shape[0]);
    NEO__TRY(neo__loss_begin(&l, ctx, fn, NEO__LOSS_CROSS_ENTROPY, desc, logit, dlogit, loss));
    NEO__TRY(neo__check_place(ctx, label, fn, "label"));
    l.call.label = (const int64_t *)label.data;
    l.call.narrow_x = narrow_x, l.call.narrow_dx = narrow;
    l.call.x_row = logit.stride[0];
    if (narrow) l.call.dx_row = dlogit.stride[0];
    return neo__loss_run(&l);
}
NEO__HOT_BEGIN

/* ---- the CPU ---- */
/* The kernel for samples of one element; NULL: row by row. */
typedef void (*neo__loss_kernel)(const float *x, const float *y, const float *weight, float g,
                                 float *loss, float *dx, int64_t n);
static neo__loss_kernel neo__loss_kernel_of(const neo_ctx *ctx, const neo__loss_call *c) {
    switch (c->kind) {
    case NEO__LOSS_BCE_LOGITS: return ctx->vec->bce_logits;
    case NEO__LOSS_BCE: return ctx->vec->bce;
    case NEO__LOSS_MSE: return c->width == 1 ? ctx->vec->mse : NULL;
    case NEO__LOSS_CROSS_ENTROPY: break;
    }
    return NULL;
}
static void neo__loss_elements(neo__loss_kernel kernel, const neo__loss_call *c, int64_t begin,
                               int64_t end, neo_exact *sum) {
    float loss[NEO__BLOCK];
    for (int64_t at = begin; at < end; at += NEO__BLOCK) {
        int64_t n = NEO__MIN(end - at, (int64_t)NEO__BLOCK);
        kernel(c->x + at, c->y + at, c->weight ? c->weight + at : NULL, c->g, loss,
               c->dx ? c->dx + at : NULL, n);
        for (int64_t i = 0; i < n; i++) neo_exact_add(sum, loss[i]);
    }
}
static float neo__mse_row(const neo_ctx *ctx, const neo__loss_call *c, int64_t row) {
    float weight = c->weight ? c->weight[row] : 1.0f;
    int64_t at = row * c->width;
    float squares = ctx->vec->mse_row(c->x + at, c->y + at, weight * c->g,
                                      c->dx ? c->dx + at : NULL, c->width);
    return weight * (squares / (float)c->width);
}
/* n logits of a row from column j on; those of bf16 are widened into `room`. */
static const float *neo__logits_at(const neo_ctx *ctx, const neo__loss_call *call, int64_t row,
                                   int64_t j, int64_t n, float *room) {
    if (!call->narrow_x) return call->x + row * call->width + j;
    ctx->tensor->f32_from_bf16(room, neo__halves(call->x) + row * call->x_row + j, n);
    return room;
}
/* As softmax_row of the widened row, a block at a time. */
static float neo__softmax_row_narrow(const neo_ctx *ctx, const neo__loss_call *call, int64_t row,
                                     float *max) {
    float e[NEO__BLOCK], sum = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < call->width; j += NEO__BLOCK) {
            const int64_t n = NEO__MIN(call->width - j, (int64_t)NEO__BLOCK);
            float lane[16] = {0};
            (void)neo__logits_at(ctx, call, row, j, n, e);
            if (pass == 0) {
                if (j == 0) *max = e[0];
                for (int64_t i = 0; i < n; i++) *max = e[i] > *max ? e[i] : *max;
                continue;
            }
            ctx->vec->softmax_slope(e, *max, 1.0f, 1.0f, e, n); /* the powers alone */
            for (int64_t i = 0; i < n; i++) lane[i % 16] += e[i];
            sum += neo__tree16_scalar(lane);
        }
    return sum;
}
/* The slopes of a row as bf16, some columns at a time; p: the label's share. */
static void neo__cross_entropy_narrow(const neo_ctx *ctx, const neo__loss_call *call, int64_t row,
                                      float max, float sum, float p, float g) {
    float wide[NEO__BLOCK];
    uint16_t *to = (uint16_t *)(void *)call->dx + row * call->dx_row;
    for (int64_t j = 0; j < call->width; j += NEO__BLOCK) {
        const int64_t n = NEO__MIN(call->width - j, (int64_t)NEO__BLOCK);
        const int64_t at = call->label[row] - j;
        ctx->vec->softmax_slope(neo__logits_at(ctx, call, row, j, n, wide), max, sum, g, wide, n);
        if (at >= 0 && at < n) wide[at] = (p - 1.0f) * g;
        ctx->tensor->bf16_from_f32(to + j, wide, n);
    }
}
/* With m the largest logit and s = sum e^(x - m): loss log s - (x_label - m), slope e^(x - m)/s -
   (1 at label). */
static float neo__cross_entropy_row(const neo_ctx *ctx, const neo__loss_call *call, int64_t row) {
    float weight = call->weight ? call->weight[row] : 1.0f, max = 0.0f, g = weight * call->g, one;
    int64_t label = call->label[row];
    float *dx = call->dx && !call->narrow_dx ? call->dx + row * call->width : NULL;
    float x_label = *neo__logits_at(ctx, call, row, label, 1, &one); /* dx may be x */
    float sum = call->narrow_x ? neo__softmax_row_narrow(ctx, call, row, &max)
                               : ctx->vec->softmax_row(call->x + row * call->width, &max, dx,
                                                       call->width);
    if (call->dx && call->narrow_dx) {
        const float p = neo__vexp_scalar(x_label - max) / sum;
        neo__cross_entropy_narrow(ctx, call, row, max, sum, p, g);
    } else if (dx) {
        float p = dx[label] / sum;
        ctx->vec->softmax_grad(dx, sum, g, call->width);
        dx[label] = (p - 1.0f) * g;
    }
    if (sum != sum && call->dx) /* one NaN on all instruction sets, which choose one each */
        for (int64_t j = 0; j < call->width; j++) {
            if (dx) dx[j] = neo__f32_bits(0x7FC00000u);
            else ((uint16_t *)(void *)call->dx)[row * call->dx_row + j] = 0x7FC0;
        }
    return weight * (neo__vlog_scalar(sum) - (x_label - max));
}
static void neo__loss_part(const neo__cpu_part *part) {
    const neo__loss_call *c = (const neo__loss_call *)part->call;
    const neo__loss_kernel kernel = neo__loss_kernel_of(part->ctx, c);
    neo_exact *sum = neo__worker_exact(part->ctx, part->worker);
    if (kernel) {
        neo__loss_elements(kernel, c, part->begin, part->end, sum);
        return;
    }
    for (int64_t row = part->begin; row < part->end; row++)
        neo_exact_add(sum, c->kind == NEO__LOSS_MSE ? neo__mse_row(part->ctx, c, row)
                                                    : neo__cross_entropy_row(part->ctx, c, row));
}
/* Finds the first label, then the first probability, that is outside. */
static int neo__loss_find_bad(const neo_ctx *ctx, const neo__loss_call *call,
                              neo__loss_found *found) {
    const float *checked[2] = {NULL, NULL};
    if (call->kind == NEO__LOSS_BCE_LOGITS || call->kind == NEO__LOSS_BCE) checked[0] = call->y;
    if (call->kind == NEO__LOSS_BCE) checked[1] = call->x;
    for (int k = 0; k < 2 && checked[k]; k++) {
        const int64_t at = ctx->vec->find_outside(checked[k], 0.0f, 1.0f, call->rows);
        if (at == call->rows) continue;
        found->bad[k] = (uint64_t)at, found->value = (double)checked[k][at];
        return 1;
    }
    for (int64_t i = 0; call->kind == NEO__LOSS_CROSS_ENTROPY && i < call->rows; i++) {
        if (call->label[i] >= 0 && call->label[i] < call->width) continue;
        found->bad[0] = (uint64_t)i, found->label = call->label[i];
        return 1;
    }
    return 0;
}
static neo_status neo__cpu_loss(neo_device *device, const neo__loss_call *call) {
    enum { GRAIN = 8192 };
    neo_ctx *ctx = neo__cpu_ctx(device);
    neo__loss_found found = neo__loss_found_none();
    const int empty = call->rows == 0 || call->width == 0;
    if (!empty && !neo__loss_find_bad(ctx, call, &found)) {
        neo__exact_start(ctx, 1);
        neo__cpu_run(device, call, call->rows, 1 + GRAIN / call->width, 1, neo__loss_part);
        neo__exact_finish(ctx, 0, &found.sum);
    }
    return neo__later_now(&call->later, &found);
}

#endif
/* ---------------------------------------------------------------------------
   >>impl-params

   A parameter is its record with its name, and a block of the device's memory: its value and its
   gradient, both filled up with zeros to a multiple of NEO__BLOCK elements. In a deferred set it
   has no such block.
   ------------------------------------------------------------------------ */
typedef struct neo__param_slot {
    neo_param param; /* first: a neo_param handed out is a slot */
    neo_init init;   /* not DEFAULT */
    size_t bytes;    /* of this record and the name */
    char *data;
    size_t data_bytes;
} neo__param_slot;
struct neo_params {
    neo_ctx *ctx;
    neo__live live;
    neo__param_slot **slot;
    int count, deferred;
    int64_t capacity; /* of slot */
    neo_params *before; /* see neo_ctx */
};
static const char *const neo__params_absent = "its set is not in memory";

/* Elements with the padding. */
NEO__INLINE int64_t neo__block_pad(int64_t count) {
    return (count + NEO__BLOCK - 1) / NEO__BLOCK * NEO__BLOCK;
}

NEO__HOT_END
static neo_status neo__params_make(neo_ctx *ctx, neo_params **out, int deferred, const char *fn) {
    NEO__CHECK(out, NEO_ERR_ARG, "%s: params is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_ctx(fn, ctx));
    neo_params *p = (neo_params *)neo__alloc_for(ctx, sizeof *p, fn);
    if (!p) return NEO_ERR_MEMORY;
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    p->deferred = deferred;
    neo__live_begin(ctx, &p->live, "params", NULL);
    p->before = ctx->params;
    ctx->params = p;
    *out = p;
    return NEO_OK;
}
NEO_API neo_status neo_params_create(neo_ctx *ctx, neo_params **out) {
    return neo__params_make(ctx, out, 0, "neo_params_create");
}
NEO_API neo_status neo_params_create_deferred(neo_ctx *ctx, neo_params **out) {
    return neo__params_make(ctx, out, 1, "neo_params_create_deferred");
}

static void neo__param_free(neo_ctx *ctx, neo__param_slot *slot) {
    if (ctx->last_read == slot->param.name) ctx->last_read = NULL;
    if (slot->data) neo__data_free(ctx, slot->data, slot->data_bytes);
    neo_free(ctx, slot, slot->bytes);
}
static const neo_ctx *neo__params_ctx(const neo_params *p) { return p->ctx; }
/* Takes back the parameters added after the first `count`. */
static void neo__params_truncate(neo_params *p, int count) {
    while (p->count > count) neo__param_free(p->ctx, p->slot[--p->count]);
}

NEO_API void neo_params_destroy(neo_params *p) {
    if (!p) return;
    neo__live_end(p->ctx, &p->live);
    neo_params **at = &p->ctx->params;
    while (*at != p) at = &(*at)->before;
    *at = p->before;
    neo__params_truncate(p, 0);
    NEO__LIST_FREE(p->ctx, p->slot, p->capacity);
    neo_free(p->ctx, p, sizeof *p);
}

static neo_status neo__params_check(const neo_params *params, const char *name, int ndim,
                                    const int64_t *shape, int64_t *count) {
    NEO__CHECK_LIVE(params, "neo_params_add", "params");
    NEO__CHECK(name && name[0], NEO_ERR_ARG, "neo_params_add: a parameter needs a name");
    NEO__CHECK(!neo_params_find(params, name), NEO_ERR_ARG,
               "neo_params_add: there is a parameter '%s' already", name);
    NEO__CHECK(ndim >= 0 && ndim <= NEO_MAX_DIMS && (ndim == 0 || shape), NEO_ERR_ARG,
               "neo_params_add: '%s' has %d dimensions, not 0 .. %d", name, ndim, NEO_MAX_DIMS);
    for (int d = 0; d < ndim; d++)
        NEO__CHECK(shape[d] >= 0, NEO_ERR_ARG, "neo_params_add: dimension %d of '%s' is %" PRId64,
                   d, name, shape[d]);
    *count = neo__shape_count(ndim, shape);
    NEO__CHECK(*count >= 0 && *count <= INT64_MAX / 64, NEO_ERR_ARG,
               "neo_params_add: '%s' has too many elements", name);
    return NEO_OK;
}

/* A parameter whose memory is not set; NULL: there is none. */
static neo__param_slot *neo__param_alloc(neo_params *params, const char *name, int ndim,
                                         const int64_t *shape, int64_t count) {
    size_t name_bytes = strlen(name) + 1;
    size_t bytes = neo__size_add(sizeof(neo__param_slot), name_bytes);
    size_t padded = params->deferred ? 0 : (size_t)neo__block_pad(count) * sizeof(float);
    char *data;
    neo__param_slot *slot = (neo__param_slot *)neo__alloc_with_data(params->ctx, "neo_params_add",
                                                                    name, bytes, 2 * padded, &data);
    if (!slot) return NULL;
    memcpy(slot + 1, name, name_bytes);
    slot->bytes = bytes;
    slot->data = data;
    slot->data_bytes = 2 * padded;
    slot->param.name = (char *)(slot + 1);
    /* a parameter without elements has an address too */
    char *value = params->deferred ? NULL : data ? data : (char *)slot;
    slot->param.value = neo_tensor_nd(value, NEO_F32, ndim, shape);
    slot->param.grad = neo_tensor_nd(data ? data + padded : value, NEO_F32, ndim, shape);
    slot->param.value.place = slot->param.grad.place = neo__ctx_place(params->ctx);
    if (params->deferred) slot->param.value.absent = slot->param.grad.absent = neo__params_absent;
    return slot;
}

NEO_API neo_status neo_params_add(neo_params *params, const char *name, int ndim,
                                  const int64_t *shape, neo_init init, const neo_param **param) {
    int64_t count = 0;
    if (param) *param = NULL;
    NEO__TRY(neo__params_check(params, name, ndim, shape, &count));
    NEO__TRY(NEO__GROW(params->ctx, params->slot, params->capacity, params->count + 1));
    if (init.kind == NEO_INIT_DEFAULT) init.kind = NEO_INIT_CONSTANT, init.a = 0.0f, init.b = 0.0f;
    if (params->deferred) NEO__TRY(neo__init_check(&init, name));
    neo__param_slot *slot = neo__param_alloc(params, name, ndim, shape, count);
    if (!slot) return NEO_ERR_MEMORY;
    slot->init = init;
    /* gradient and padding are zero */
    neo_status status = neo__data_zero(params->ctx, slot->data, slot->data_bytes);
#if !defined(NEO_INFERENCE)
    if (status == NEO_OK && !params->deferred && init.kind != NEO_INIT_NONE)
        status = neo_tensor_init(params->ctx, slot->param.value, slot->param.name, init, 0);
#endif
    if (status != NEO_OK) {
        neo__param_free(params->ctx, slot);
        return status;
    }
    params->slot[params->count++] = slot;
    if (param) *param = &slot->param;
    return NEO_OK;
}

NEO_API int neo_params_is_deferred(const neo_params *p) { return p->deferred; }
NEO_API neo_init neo_params_initializer(const neo_params *p, int index) {
    NEO__ZERO(neo_init, none);
    none.kind = NEO_INIT_NONE;
    return index >= 0 && index < p->count ? p->slot[index]->init : none;
}
NEO_API neo_status neo_params_bind(neo_params *params, int index, void *value, void *grad,
                                   const char *absent) {
    NEO__CHECK(params && index >= 0 && index < params->count, NEO_ERR_ARG,
               "neo_params_bind: params is NULL or there is no parameter %d", index);
    neo_param *param = &params->slot[index]->param;
    NEO__CHECK(params->deferred, NEO_ERR_ARG,
               "neo_params_bind: '%s': the set is not deferred, it has memory of its own",
               param->name);
    const char *why = absent ? absent : neo__params_absent;
    param->value.data = value;
    param->value.absent = value ? NULL : why;
    param->grad.data = grad;
    param->grad.absent = grad ? NULL : why;
    return NEO_OK;
}
NEO_API void neo__params_freeze(neo_params *p, int frozen) {
    for (int i = 0; i < p->count; i++) p->slot[i]->param.frozen = frozen;
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

#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
   >>impl-optim

   torch.optim's rules, one f32 kernel per optimizer. What depends only on the step (bias
   corrections, decayed rates) is computed once in double with neo's own pow and rounded to f32.
   One allocation has the record, slots, list of state tensors and their names; one of the device's
   memory the state itself, each tensor at a multiple of NEO__BLOCK elements.

   Work is cut at blocks of NEO__BLOCK elements of a parameter. Norms are f32 sums inside a block,
   by its fixed shape, then a neo_exact over blocks: no cut of the work shows. Clipping reads all
   gradients before any weight moves; the gradients themselves stay as they are, the factor enters
   the step.

   Over a group the sums of all ranks are added, in one exchange for the clip norm and one for the
   norms of all parameters that LAMB wants. A largest element travels as this rank's word among
   zeros.
   ------------------------------------------------------------------------ */
typedef struct neo__optim_entry {
    const char *name;
    neo_tensor tensor;
} neo__optim_entry;
struct neo_optim {
    neo_ctx *ctx;
    neo__live live;
    neo_params *params;
    neo_optim_desc desc; /* defaults filled in; name: owned */
    size_t bytes, data_bytes;
    float *data;
    int param_count, state_count; /* state_count: per element */
    neo__optim_span *spans; /* [param_count]: whole parameters, addresses as of the last step */
    neo__optim_entry *entry;
    char *names;
    neo_group group;   /* size 1 without one */
    neo_exact *norm;   /* LAMB: of each parameter the squares of its weights and of its direction */
    uint64_t *largest; /* of each rank, with a group */
    int64_t step;
    double grad_norm;
    float clip_factor;   /* of the last step */
    int later;           /* that is being recorded: norm and factor come when it is over */
    const neo__optim_others *others; /* in the next one's norm, on the device; or NULL */
    int has_squares;     /* of others, for the next one */
    neo_exact squares;
    int open;            /* a step is, of rate open_lr, and may be made early, by numbers `early` */
    float open_lr;
    struct neo_optim *before; /* of those of the context whose weights may move; or NULL */
    neo__step early;
};

/* Names of the state an optimizer keeps per element; the count is returned. The last of SGD and of
   RMSprop is there with momentum. */
static int neo__optim_states(const neo_optim_desc *desc, const char *names[2]) {
    static const char *const of_kind[NEO_OPTIM_COUNT][2] = {
        {"momentum_buffer", NULL},   {"sum", NULL},
        {"exp_avg", "exp_avg_sq"},   {"exp_avg", "exp_avg_sq"},
        {"exp_avg", "exp_avg_sq"},   {"square_avg", "momentum_buffer"},
        {"sum", "penalty"}};
    const int kind = (unsigned)desc->kind < NEO_OPTIM_COUNT ? (int)desc->kind : NEO_OPTIM_ADAM;
    for (int i = 0; i < 2; i++) names[i] = of_kind[kind][i];
    return 1 + (names[1] != NULL) -
           ((kind == NEO_OPTIM_SGD || kind == NEO_OPTIM_RMSPROP) && desc->momentum == 0.0f);
}

/* The record and its arrays in one block. Counts without a block. */
static neo_optim neo__optim_layout(const neo_params *params, const neo_optim_desc *desc,
                                   neo__carve *carve) {
    NEO__ZERO(neo_optim, optim);
    const char *kinds[2];
    const size_t prefix = strlen(desc->name ? desc->name : "optim") + 1;
    size_t names = prefix + prefix + strlen("step") + 1;
    neo_optim *self;
    optim.param_count = neo_params_count(params);
    optim.state_count = neo__optim_states(desc, kinds);
    for (int i = 0; i < optim.param_count; i++) {
        const neo_param *p = neo_params_at(params, i);
        const size_t bytes = (size_t)neo__block_pad(neo_tensor_count(p->value)) * sizeof(float);
        for (int s = 0; s < optim.state_count; s++) {
            names += prefix + strlen(p->name) + 1 + strlen(kinds[s]) + 1;
            optim.data_bytes += bytes;
        }
    }
    NEO__CARVE(carve, self, 1);
    NEO__CARVE(carve, optim.spans, optim.param_count);
    NEO__CARVE(carve, optim.entry, optim.param_count * optim.state_count + 1);
    NEO__CARVE(carve, optim.names, names);
    NEO__CARVE(carve, optim.norm, desc->kind == NEO_OPTIM_LAMB ? 2 * optim.param_count : 0);
    NEO__CARVE(carve, optim.largest, desc->group ? desc->group->size : 0);
    optim.bytes = carve->at;
    return optim;
}
NEO_API size_t neo_optim_state_bytes(const neo_params *params, const neo_optim_desc *desc) {
    NEO__ZERO(neo__carve, carve);
    const neo_optim o = neo__optim_layout(params, desc, &carve);
    return neo__size_add(o.bytes, o.data_bytes);
}

static neo_status neo__optim_check(const neo_optim_desc *desc) {
    const double most = (double)FLT_MAX, below_one = 1.0 - 0x1p-53;
    NEO__CHECK((unsigned)desc->kind < NEO_OPTIM_COUNT, NEO_ERR_ARG,
               "neo_optim_create: no optimizer kind %d", (int)desc->kind);
    const struct {
        const char *name;
        double value, low, high;
    } field[] = {{"weight_decay", (double)desc->weight_decay, 0, most},
                 {"momentum", (double)desc->momentum, 0, most},
                 {"dampening", (double)desc->dampening, -most, most},
                 {"lr_decay", (double)desc->lr_decay, 0, most},
                 {"initial_accumulator", (double)desc->initial_accumulator, 0, most},
                 {"l1", (double)desc->l1, 0, most},
                 {"beta1", desc->beta1, -most, below_one},
                 {"beta2", desc->beta2, -most, below_one},
                 {"eps", (double)desc->eps, 0, most},
                 {"clip_norm", (double)desc->clip_norm, 0, most}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        NEO__CHECK(field[i].value >= field[i].low && field[i].value <= field[i].high, NEO_ERR_ARG,
                   "neo_optim_create: %s is %g, not in [%g, %g]", field[i].name, field[i].value,
                   field[i].low, field[i].high);
    float type = desc->clip_norm_type;
    NEO__CHECK(type == 0.0f || type == 1.0f || type == 2.0f || type > FLT_MAX, NEO_ERR_ARG,
               "neo_optim_create: clip_norm_type is %g, not 1, 2 or infinity", (double)type);
    NEO__CHECK(!desc->nesterov || (desc->momentum > 0.0f && desc->dampening == 0.0f), NEO_ERR_ARG,
               "neo_optim_create: nesterov needs momentum > 0 and dampening 0, not %g and %g",
               (double)desc->momentum, (double)desc->dampening);
    return NEO_OK;
}
static void neo__optim_defaults(neo_optim_desc *desc) {
    if (desc->beta1 == 0.0) desc->beta1 = 0.9;
    if (desc->beta2 == 0.0) desc->beta2 = desc->kind == NEO_OPTIM_RMSPROP ? 0.99 : 0.999;
    if (desc->beta1 < 0.0) desc->beta1 = 0.0;
    if (desc->beta2 < 0.0) desc->beta2 = 0.0;
    if (desc->eps == 0.0f)
        desc->eps = desc->kind == NEO_OPTIM_ADAGRAD ? 1e-10f
                 : desc->kind == NEO_OPTIM_LAMB  ? 1e-6f
                 : desc->kind == NEO_OPTIM_FTRL  ? 1.0f
                                              : 1e-8f;
    if (desc->clip_norm_type == 0.0f) desc->clip_norm_type = 2.0f;
}

/* Appends "a.b" or "a.b.c" to the names and returns it. */
static const char *neo__optim_name(char **at, const char *a, const char *b, const char *c) {
    char *name = *at;
    size_t room = strlen(a) + strlen(b) + (c ? strlen(c) + 1 : 0) + 2;
    snprintf(name, room, c ? "%s.%s.%s" : "%s.%s", a, b, c);
    *at = name + room;
    return name;
}
static neo_status neo__optim_fill(neo_optim *optim) {
    char *names = optim->names;
    float *state = optim->data;
    const char *kinds[2], *prefix = optim->desc.name ? optim->desc.name : "optim";
    const neo_init start = {NEO_INIT_CONSTANT, optim->desc.initial_accumulator, 0.0f};
    neo__optim_entry *entry = optim->entry;
    neo__optim_states(&optim->desc, kinds);
    memcpy(names, prefix, strlen(prefix) + 1);
    optim->desc.name = names;
    names += strlen(prefix) + 1;
    if (optim->data_bytes) NEO__TRY(neo__data_zero(optim->ctx, optim->data, optim->data_bytes));
    optim->group.size = 1;
    if (optim->desc.group) optim->group = *optim->desc.group;
    optim->desc.group = NULL;
    for (int i = 0; i < optim->param_count; i++) {
        const neo_param *p = neo_params_at(optim->params, i);
        const int64_t count = optim->spans[i].count = neo_tensor_count(p->value);
        for (int s = 0; s < optim->state_count; s++, entry++, state += neo__block_pad(count)) {
            optim->spans[i].state[s] = state;
            entry->name = neo__optim_name(&names, optim->desc.name, p->name, kinds[s]);
            entry->tensor = p->value;
            entry->tensor.data = state;
            entry->tensor.absent = NULL;
            if (strcmp(kinds[s], "sum") == 0 && count > 0)
                NEO__TRY(neo_tensor_init(optim->ctx, entry->tensor, entry->name, start, 0));
        }
    }
    entry->name = neo__optim_name(&names, optim->desc.name, "step", NULL);
    entry->tensor = neo_tensor_1d(&optim->step, NEO_I64, 1);
    return NEO_OK;
}

static neo_status neo__optim_present(const neo_params *params) {
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_param *p = neo_params_at(params, i);
        if (neo_tensor_count(p->value) == 0 || (p->value.data && p->grad.data)) continue;
        return neo__no_data("neo_optim_create", p->name, p->value, NEO_ERR_STATE);
    }
    return NEO_OK;
}
NEO_API neo_status neo_optim_create(neo_ctx *ctx, neo_params *params, const neo_optim_desc *desc,
                                    neo_optim **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_optim_create: optim is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_optim_create", ctx));
    NEO__CHECK(params && desc, NEO_ERR_ARG, "neo_optim_create: params or desc is NULL");
    NEO__TRY(neo__check_device(ctx, params->ctx, "neo_optim_create", "params are"));
    NEO__TRY(neo__optim_present(params));
    NEO__TRY(neo__optim_check(desc));
    NEO__ZERO(neo__carve, carve);
    const neo_optim sizes = neo__optim_layout(params, desc, &carve);
    char *data;
    neo_optim *optim = (neo_optim *)neo__alloc_with_data(ctx, "neo_optim_create", "state",
                                                         sizes.bytes, sizes.data_bytes, &data);
    if (!optim) return NEO_ERR_MEMORY;
    carve.block = (char *)optim;
    carve.at = 0;
    *optim = neo__optim_layout(params, desc, &carve);
    optim->ctx = ctx;
    optim->params = params;
    optim->desc = *desc;
    /* states without elements have an address too */
    optim->data = (float *)(void *)(data ? data : (char *)optim);
    optim->clip_factor = 1.0f;
    neo__optim_defaults(&optim->desc);
    neo_status status = neo__optim_fill(optim);
    neo__live_begin(ctx, &optim->live, "optim", desc->name);
    if (status != NEO_OK) neo_optim_destroy(optim);
    else *out = optim, ctx->clocks[1] = &optim->step;
    return status;
}
/* Forgets which parameters have moved. */
static void neo__optim_close(neo_optim *optim) {
    neo_optim **at = &optim->ctx->opened;
    while (*at && *at != optim) at = &(*at)->before;
    if (*at) *at = optim->before;
    optim->open = 0;
    for (int i = 0; i < optim->param_count; i++) optim->spans[i].moved = 0;
}
NEO_API void neo_optim_destroy(neo_optim *o) {
    if (!o) return;
    neo__optim_close(o);
    neo__live_end(o->ctx, &o->live);
    if (o->ctx->clocks[1] == &o->step) o->ctx->clocks[1] = NULL;
    if (o->data_bytes) neo__data_free(o->ctx, o->data, o->data_bytes);
    neo_free(o->ctx, o, o->bytes);
}
NEO_API int64_t neo_optim_step_count(const neo_optim *o) { return o->step; }
/* While a step is recorded the norm need not come to the host, unless others must be added to it
   here (neo_optim_add_squares; ranks that add no sums there). Norm and factor come later: see
   >>deferred-answers. */
static int neo__optim_norm_stays_on_device(const neo_optim *o) {
    const int adds = o->group.sum_there && o->desc.clip_norm_type <= FLT_MAX;
    return o->ctx->on->recording && (o->group.size == 1 || adds) && !o->has_squares &&
           o->param_count > 0;
}
/* Norm and factor of the last step come now, if it is still being recorded. */
static void neo__optim_settle(const neo_optim *o) {
    if (o->later && o->ctx->on->recording) o->ctx->on->settle(o->ctx->on);
}
NEO_API double neo_optim_grad_norm(const neo_optim *o) {
    neo__optim_settle(o);
    return o->grad_norm;
}
NEO_API float neo_optim_clip_factor(const neo_optim *o) {
    neo__optim_settle(o);
    return o->clip_factor;
}
NEO_API void neo_optim_add_squares(neo_optim *o, const neo_exact *squares) {
    neo_exact_merge(&o->squares, squares);
    o->has_squares = 1;
}
NEO_API int neo__optim_join(neo_optim *o, const neo__optim_others *others) {
    const int joins = others && o->desc.clip_norm > 0.0f && neo__optim_norm_stays_on_device(o);
    o->others = joins ? others : NULL;
    return joins;
}
NEO_API void neo_optim_count_elsewhere(neo_optim *o, int index) {
    if (index >= 0 && index < o->param_count) o->spans[index].elsewhere = 1;
}
NEO_API int neo_optim_state_count(const neo_optim *o) {
    return o->param_count * o->state_count + 1;
}
NEO_API neo_tensor neo_optim_state_at(neo_optim *o, int i, const char **name, int *param) {
    int known = i >= 0 && i < neo_optim_state_count(o), last = o->param_count * o->state_count;
    if (name) *name = known ? o->entry[i].name : NULL;
    if (param) *param = known && i < last ? i / o->state_count : -1;
    return known ? o->entry[i].tensor : neo_tensor_none();
}

/* ---- one pass over all parameters ---- */
static neo_status neo__optim_run(neo_optim *o, neo__optim_call *call) {
    call->kind = o->desc.kind;
    call->spans = o->spans;
    call->span_count = o->param_count;
    return NEO__RUN(o->ctx, "neo_optim_step", optim, call);
}
/* Addresses may change between steps: those of a sharded set do. */
static neo_status neo__optim_bind(neo_optim *optim, const char *fn) {
    NEO__CHECK(neo_params_count(optim->params) == optim->param_count, NEO_ERR_STATE,
               "%s: the set has %d parameters, had %d at neo_optim_create", fn,
               neo_params_count(optim->params), optim->param_count);
    for (int i = 0; i < optim->param_count; i++) {
        const neo_param *p = neo_params_at(optim->params, i);
        const neo_tensor t = p->value.data ? p->grad : p->value;
        if (t.absent && !t.data && neo_tensor_count(t) > 0)
            return neo__no_data(fn, p->name, t, NEO_ERR_STATE);
        optim->spans[i].w = neo__f32(p->value);
        optim->spans[i].grad = neo__f32(p->grad);
    }
    return NEO_OK;
}
/* Adds `count` sums over the ranks of the group; then they are normalised. */
static neo_status neo__optim_share(neo_optim *o, neo_exact *sums, int count) {
    if (o->group.size == 1) return NEO_OK;
    for (int i = 0; i < count; i++) neo_exact_normalize(&sums[i]);
    int words = (int)(sizeof *sums / sizeof(uint64_t));
    NEO__TRY(o->group.sum(o->group.user, (uint64_t *)(void *)sums, count * words));
    for (int i = 0; i < count; i++) neo_exact_normalize(&sums[i]);
    return NEO_OK;
}

/* ---- the gradient's norm ---- */
static neo_status neo__optim_share_largest(neo_optim *o, float largest, double *norm) {
    uint32_t most = neo__bits_f32(largest);
    if (o->group.size > 1) {
        memset(o->largest, 0, (size_t)o->group.size * sizeof *o->largest);
        o->largest[o->group.rank] = most;
        NEO__TRY(o->group.sum(o->group.user, o->largest, o->group.size));
        for (int r = 0; r < o->group.size; r++) most = NEO__MAX(most, (uint32_t)o->largest[r]);
    }
    *norm = (double)neo__f32_bits(most);
    return NEO_OK;
}
static neo__optim_pass neo__optim_norm_pass(const neo_optim *o) {
    if (o->desc.clip_norm_type > FLT_MAX) return NEO__OPTIM_NORM_INF;
    return o->desc.clip_norm_type == 1.0f ? NEO__OPTIM_NORM_1 : NEO__OPTIM_NORM_2;
}
static neo_status neo__optim_check_norm(double norm, int64_t step) {
    NEO__CHECK(norm - norm == 0.0, NEO_ERR_NUMERIC,
               "neo_optim_step: the gradient's norm is %g at step %" PRId64, norm, step);
    return NEO_OK;
}
typedef struct neo__optim_clip {
    neo_optim *o;
    int64_t step;
} neo__optim_clip;
static neo_status neo__optim_clip_answer(void *job, const void *answer) {
    const neo__optim_clip *clip = (const neo__optim_clip *)job;
    neo__optim_found found;
    memcpy(&found, answer, sizeof found);
    clip->o->later = 0;
    NEO__TRY(neo__optim_check_norm(found.norm, clip->step));
    clip->o->grad_norm = found.norm;
    clip->o->clip_factor = found.clip;
    return NEO_OK;
}
/* later: the norm comes by neo__optim_clip_answer, *norm stays as it is. */
static neo_status neo__optim_norm(neo_optim *optim, int later, double *norm) {
    float most = 0.0f;
    neo_exact sum;
    neo_exact_zero(&sum);
    neo__optim_clip clip = {optim, optim->step + 1};
    const neo__later answer = {neo__optim_clip_answer, &clip, sizeof clip};
    NEO__ZERO(neo__optim_call, call);
    call.pass = neo__optim_norm_pass(optim);
    call.sums = &sum;
    call.most = &most;
    call.clip_norm = optim->desc.clip_norm;
    if (later) call.later = answer;
    if (later && optim->group.size > 1) call.group = &optim->group;
    if (later) call.others = optim->others;
    NEO__TRY(neo__optim_run(optim, &call));
    if (later) return NEO_OK;
    if (call.pass == NEO__OPTIM_NORM_INF) return neo__optim_share_largest(optim, most, norm);
    neo_exact_merge(&sum, &optim->squares);
    NEO__TRY(neo__optim_share(optim, &sum, 1));
    *norm = neo_exact_value(&sum);
    if (call.pass == NEO__OPTIM_NORM_2) *norm = sqrt(*norm);
    return NEO_OK;
}

/* ---- norms of parameters ---- */
/* sums[0] += the squares of `count` numbers, or, in blocks where these are too large, sums[1] +=
   2^-140 times. */
static neo_status neo__norm_squares(neo_ctx *ctx, const float *data, int64_t count,
                                    neo_exact *sums) {
    NEO__ZERO(neo__optim_span, span);
    NEO__ZERO(neo__optim_call, call);
    NEO__ZERO(neo_exact, sum);
    float x[NEO__BLOCK];
    span.grad = data, span.count = count;
    call.pass = NEO__OPTIM_NORM_2;
    call.spans = &span, call.span_count = 1;
    call.sums = &sum;
    NEO__TRY(ctx->on->optim(ctx->on, &call));
    if (sum.nan + sum.pos_inf == 0) {
        neo_exact_merge(&sums[0], &sum);
        return NEO_OK;
    }
    for (int64_t at = 0; count > NEO__BLOCK && at < count;
         at += NEO__BLOCK) /* a rank has whole blocks */
        NEO__TRY(
            neo__norm_squares(ctx, data + at, NEO__MIN(count - at, (int64_t)NEO__BLOCK), sums));
    if (count > NEO__BLOCK) return NEO_OK;
    NEO__TRY(neo__data_read(ctx, x, data, neo__ctx_place(ctx), (size_t)count * sizeof *x));
    for (int64_t i = 0; i < count; i++)
        neo_exact_add(&sums[1], (float)((double)x[i] * (double)x[i] * 0x1p-140));
    return NEO_OK;
}
/* A parameter: its gradient, then its values. optim: NULL, or whose group shares it. */
static neo_status neo__param_norms(neo_ctx *ctx, const neo_param *param, neo_optim *optim,
                                   int elsewhere, neo_param_norm *norm) {
    const int64_t n = neo_tensor_count(param->value);
    double value[2];
    neo_exact sums[4];
    for (int i = 0; i < 4; i++) neo_exact_zero(&sums[i]);
    for (int k = 0; k < 2 && n > 0 && !elsewhere; k++) {
        const float *data = neo__f32(k ? param->value : param->grad);
        if (data) NEO__TRY(neo__norm_squares(ctx, data, n, sums + 2 * k));
    }
    if (optim) NEO__TRY(neo__optim_share(optim, sums, 4));
    for (int k = 0; k < 2; k++)
        value[k] = sqrt(neo_exact_value(&sums[2 * k]) +
                        neo_exact_value(&sums[2 * k + 1]) * 0x1p140);
    norm->name = param->name;
    norm->grad = value[0], norm->weight = value[1];
    return NEO_OK;
}
/* Gradients that weights have moved by are written nowhere: see neo_optim_begin. */
static neo_status neo__optim_unmoved(const neo_params *params, const char *fn) {
    const neo_optim *optim = params->ctx->opened;
    while (optim && optim->params != params) optim = optim->before;
    for (int i = 0; optim && i < optim->param_count; i++)
        NEO__CHECK(!optim->spans[i].moved, NEO_ERR_STATE,
                   "%s: %s has moved since neo_optim_begin, and its gradient is not there", fn,
                   neo_params_at(params, i)->name);
    return NEO_OK;
}
static neo_status neo__norms(const neo_params *params, neo_optim *optim, neo_param_norm *norms) {
    neo_status status = neo__optim_unmoved(params, optim ? "neo_optim_norms" : "neo_params_norms");
    const neo__fp_state fp = neo__fp_enter();
    for (int i = 0; i < params->count && status == NEO_OK; i++)
        status = neo__param_norms(params->ctx, &params->slot[i]->param, optim,
                                  optim && optim->spans[i].elsewhere, &norms[i]);
    neo__fp_leave(fp);
    return status;
}
NEO_API neo_status neo_params_norms(const neo_params *params, neo_param_norm *norms) {
    NEO__CHECK_LIVE(params, "neo_params_norms", "params");
    NEO__CHECK(norms, NEO_ERR_ARG, "neo_params_norms: norms is NULL");
    return neo__norms(params, NULL, norms);
}
NEO_API neo_status neo_optim_norms(neo_optim *o, neo_param_norm *norms) {
    NEO__CHECK_LIVE(o, "neo_optim_norms", "optim");
    NEO__CHECK(norms, NEO_ERR_ARG, "neo_optim_norms: norms is NULL");
    NEO__CHECK(neo_params_count(o->params) == o->param_count, NEO_ERR_STATE,
               "neo_optim_norms: the set has %d parameters, had %d at neo_optim_create",
               neo_params_count(o->params), o->param_count);
    return neo__norms(o->params, o, norms);
}
NEO_API int neo_norms_largest(const neo_param_norm *norms, int count) {
    int best = count > 0 ? 0 : -1;
    for (int i = 1; i < count && norms[best].grad == norms[best].grad; i++)
        if (!(norms[i].grad <= norms[best].grad)) best = i;
    return best;
}

/* ---- the step ---- */
/* The trust ratio of each parameter enters its span's lr. A device keeps it, where none but ranks
   of a recorded step add to the norms. */
static neo_status neo__optim_lamb_rates(neo_optim *optim, neo__optim_call *step, float lr) {
    const neo_group *group = optim->group.size > 1 ? &optim->group : NULL;
    for (int i = 0; i < 2 * optim->param_count; i++) neo_exact_zero(&optim->norm[i]);
    step->rates_there =
        optim->ctx->device && (!group || (optim->ctx->on->recording && group->sum_there));
    neo__optim_call call = *step;
    call.pass = NEO__OPTIM_LAMB_MOMENTS;
    call.sums = optim->norm;
    call.group = group;
    NEO__TRY(neo__optim_run(optim, &call));
    if (call.rates_there) return NEO_OK;
    NEO__TRY(neo__optim_share(optim, optim->norm, 2 * optim->param_count));
    for (int i = 0; i < optim->param_count; i++) {
        const double w = sqrt(neo_exact_value(&optim->norm[2 * i]));
        const double u = sqrt(neo_exact_value(&optim->norm[2 * i + 1]));
        optim->spans[i].lr = (float)(w > 0.0 && u > 0.0 ? (double)lr * (w / u) : (double)lr);
    }
    return NEO_OK;
}

/* The numbers of step t = 1, 2, ... */
static neo__step neo__optim_numbers(const neo_optim_desc *desc, int64_t t, double lr, double clip) {
    NEO__ZERO(neo__step, step);
    double steps = (double)t, decay = (double)desc->weight_decay;
    int decoupled = desc->kind == NEO_OPTIM_ADAMW;
    step.clip = (float)clip;
    step.lr = (float)(desc->kind == NEO_OPTIM_ADAGRAD
                          ? lr / (1.0 + (steps - 1.0) * (double)desc->lr_decay)
                          : lr);
    step.weight_decay = decoupled ? 0.0f : desc->weight_decay;
    step.keep = decoupled ? (float)(1.0 - lr * decay) : 1.0f;
    step.momentum = desc->momentum;
    step.undamped = (float)(1.0 - (double)desc->dampening);
    step.first = t == 1;
    step.nesterov = desc->nesterov;
    step.rest1 = (float)(1.0 - desc->beta1);
    step.beta2 = (float)desc->beta2;
    step.rest2 = (float)(1.0 - desc->beta2);
    double unbias1 = 1.0 / (1.0 - neo__pow_f64(desc->beta1, steps));
    step.unbias1 = (float)(desc->kind == NEO_OPTIM_LAMB ? unbias1 : lr * unbias1);
    step.root_unbias2 = (float)sqrt(1.0 - neo__pow_f64(desc->beta2, steps));
    step.eps = desc->eps;
    step.ftrl = neo__ftrl_make((float)lr, desc->eps, desc->l1, desc->weight_decay);
    return step;
}

/* With check_finite: the gradients, before any rank of the group steps. */
static neo_status neo__optim_look(const neo_optim *o) {
    neo_status status = NEO_OK;
    for (int i = 0; i < o->param_count && status == NEO_OK; i++)
        status = neo_check_finite(o->ctx, "neo_optim_step", "grad",
                                  neo_params_at(o->params, i)->grad);
    return o->group.size > 1 ? o->group.agree(o->group.user, status) : status;
}
static neo_status neo__optim_step_inside(neo_optim *optim, float lr) {
    const neo_optim_desc *desc = &optim->desc;
    double clip = 1.0, norm = 0.0;
    int later = 0;
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "neo_optim_step: lr is %g", (double)lr);
    NEO__CHECK(!optim->open || lr == optim->open_lr, NEO_ERR_ARG,
               "neo_optim_step: lr is %g, but neo_optim_begin had %g", (double)lr,
               (double)optim->open_lr);
    NEO__TRY(neo__optim_bind(optim, "neo_optim_step"));
    if (optim->ctx->check_finite) NEO__TRY(neo__optim_look(optim));
    if (desc->clip_norm > 0.0f) {
        NEO__CHECK(!optim->has_squares || desc->clip_norm_type == 2.0f, NEO_ERR_ARG,
                   "neo_optim_step: squares were added to a norm of clip_norm_type %g, not 2",
                   (double)desc->clip_norm_type);
        optim->later = later = neo__optim_norm_stays_on_device(optim);
        NEO__TRY(neo__optim_norm(optim, later, &norm));
        NEO__TRY(neo__optim_check_norm(norm, optim->step + 1));
        clip = neo__optim_factor(desc->clip_norm, norm);
    }
    NEO__ZERO(neo__optim_call, call);
    call.pass = NEO__OPTIM_STEP;
    call.step = neo__optim_numbers(desc, optim->step + 1, (double)lr, clip);
    call.clip_there = later;
    if (later) call.others = optim->others;
    if (desc->kind == NEO_OPTIM_LAMB) NEO__TRY(neo__optim_lamb_rates(optim, &call, lr));
    for (int i = 0; optim->open && i < optim->param_count; i++)
        if (optim->spans[i].moved) optim->spans[i].count = 0;
    const neo_status status = neo__optim_run(optim, &call);
    for (int i = 0; optim->open && i < optim->param_count; i++)
        optim->spans[i].count = neo_tensor_count(neo_params_at(optim->params, i)->value);
    NEO__TRY(status);
    if (optim->open) neo__optim_close(optim);
    neo__count_step(optim->ctx, &optim->step);
    if (later) return NEO_OK;
    optim->grad_norm = norm;
    optim->clip_factor = call.step.clip;
    return NEO_OK;
}
/* ---- steps that layers make ---- */
static int neo__optim_may_move(const neo_optim *o) {
#ifdef NEO_SGEMM
    return 0;
#endif
    return o->ctx->on == &o->ctx->cpu && !o->ctx->check_finite && o->desc.clip_norm == 0.0f &&
           o->desc.kind != NEO_OPTIM_LAMB && o->group.size == 1 && !o->params->deferred;
}
NEO_API neo_status neo_optim_begin(neo_optim *optim, float lr) {
    static const char *const fn = "neo_optim_begin";
    NEO__CHECK_LIVE(optim, fn, "optim");
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    NEO__TRY(neo__optim_bind(optim, fn));
    neo__optim_close(optim);
    optim->open = 1;
    optim->open_lr = lr;
    const neo__fp_state fp = neo__fp_enter();
    optim->early = neo__optim_numbers(&optim->desc, optim->step + 1, (double)lr, 1.0);
    neo__fp_leave(fp);
    if (neo__optim_may_move(optim)) optim->before = optim->ctx->opened, optim->ctx->opened = optim;
    return NEO_OK;
}
/* dw: a gradient that is about to be computed, of weights that the same call reads last. */
static neo_status neo__optim_early(const neo_ctx *ctx, const char *fn, neo__gemm_call *dw,
                                   neo__update *update) {
    const neo_optim *optim = dw->c ? ctx->opened : NULL;
    int i = 0;
    for (; optim; optim = optim->before) {
        for (i = 0; i < optim->param_count && optim->spans[i].grad != dw->c;) i++;
        if (i < optim->param_count) break;
    }
    if (!optim || optim->spans[i].count != dw->m * dw->n) return NEO_OK;
    NEO__CHECK(!optim->spans[i].moved, NEO_ERR_STATE,
               "%s: a second gradient of %s, which has moved since neo_optim_begin: neo_optim_step "
               "comes first", fn, neo_params_at(optim->params, i)->name);
    if (dw->narrow || dw->k > NEO__GEMM_SEGMENT) return NEO_OK;
    update->step = optim->early, update->kind = optim->desc.kind, update->span = &optim->spans[i];
    dw->update = update;
    return NEO_OK;
}

NEO_API neo_status neo_optim_step(neo_optim *o, float lr) {
    NEO__CHECK_LIVE(o, "neo_optim_step", "optim");
    NEO__SPAN(o->ctx, "neo_optim_step");
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__optim_step_inside(o, lr);
    neo__fp_leave(fp);
    neo_exact_zero(&o->squares);
    o->has_squares = 0;
    o->others = NULL;
    return status;
}

NEO__HOT_BEGIN

/* ---- the CPU: tasks are blocks of NEO__BLOCK elements, counted through all spans ---- */
static void neo__optim_step_span(const neo_ctx *ctx, const neo__optim_call *call,
                                 const neo__optim_span *span) {
    neo__step step = call->step;
    if (call->kind == NEO_OPTIM_LAMB) step.lr = span->lr;
    ctx->vec->step[call->kind](&step, span->w, span->grad, span->state[0], span->state[1],
                               span->count);
}
/* LAMB's moments, and the square sums of weights and direction. */
static void neo__optim_lamb_span(const neo_ctx *ctx, const neo__optim_call *call,
                                 const neo__optim_span *span, neo_exact *sums) {
    const neo__vec_kernels *vec = ctx->vec;
    float *m = span->state[0], *v = span->state[1];
    vec->lamb_moments(&call->step, span->grad, m, v, span->count);
    for (int64_t at = 0; at < span->count && !span->elsewhere; at += NEO__BLOCK) {
        const int64_t n = NEO__MIN(span->count - at, (int64_t)NEO__BLOCK);
        const float *w = span->w + at;
        neo_exact_add(sums, vec->block_square(w, n));
        neo_exact_add(sums + 1, vec->lamb_square(&call->step, w, m + at, v + at, n));
    }
}
/* The larger of two numbers that are not negative; a NaN is above all. */
NEO__INLINE float neo__larger_bits(float a, float b) {
    return neo__bits_f32(b) > neo__bits_f32(a) ? b : a;
}
static void neo__optim_norm_span(const neo_ctx *ctx, neo__optim_pass pass,
                                 const neo__optim_span *span, neo_exact *sum, float *most) {
    const neo__vec_kernels *vec = ctx->vec;
    for (int64_t at = 0; at < span->count; at += NEO__BLOCK) {
        const int64_t n = NEO__MIN(span->count - at, (int64_t)NEO__BLOCK);
        const float *g = span->grad + at;
        if (pass == NEO__OPTIM_NORM_1) neo_exact_add(sum, vec->block_abs(g, n));
        else if (pass == NEO__OPTIM_NORM_2) neo_exact_add(sum, vec->block_square(g, n));
        else *most = neo__larger_bits(*most, vec->block_max(g, n));
    }
}
/* Sums of a worker: two, or one with the largest element behind it. */
NEO__INLINE float *neo__optim_most(neo_ctx *ctx, int worker) {
    return (float *)(void *)(neo__worker_exact(ctx, worker) + 1);
}
static void neo__optim_part(const neo__cpu_part *part) {
    const neo__optim_call *call = (const neo__optim_call *)part->call;
    neo_ctx *ctx = part->ctx;
    neo_exact *sums = neo__worker_exact(ctx, part->worker);
    int64_t first = 0, blocks = 0; /* of the span */
    for (int64_t i = 0; i < call->span_count && first < part->end; i++, first += blocks) {
        neo__optim_span span = call->spans[i];
        blocks = (span.count + NEO__BLOCK - 1) / NEO__BLOCK;
        const int64_t at = NEO__MAX(part->begin - first, (int64_t)0) * NEO__BLOCK;
        const int64_t last = NEO__MIN((part->end - first) * NEO__BLOCK, span.count);
        if (at >= last) continue;
        span.w += at;
        span.grad += at;
        for (int s = 0; s < 2; s++) span.state[s] = span.state[s] ? span.state[s] + at : NULL;
        span.count = last - at;
        if (call->pass == NEO__OPTIM_STEP) neo__optim_step_span(ctx, call, &span);
        else if (call->pass == NEO__OPTIM_LAMB_MOMENTS)
            neo__optim_lamb_span(ctx, call, &span, sums);
        else if (!span.elsewhere)
            neo__optim_norm_span(ctx, call->pass, &span, sums, neo__optim_most(ctx, part->worker));
    }
}
/* All spans at once, or, with LAMB's moments, one by one: their sums are wanted apart. */
static neo_status neo__cpu_optim(neo_device *device, const neo__optim_call *call) {
    neo_ctx *ctx = neo__cpu_ctx(device);
    const int apart = call->pass == NEO__OPTIM_LAMB_MOMENTS;
    neo__optim_call part = *call;
    if (apart) part.span_count = 1;
    for (int64_t i = 0; i < call->span_count; i += part.span_count) {
        int64_t blocks = 0;
        part.spans = call->spans + i;
        for (int64_t s = 0; s < part.span_count; s++)
            blocks += (part.spans[s].count + NEO__BLOCK - 1) / NEO__BLOCK;
        if (call->pass != NEO__OPTIM_STEP) neo__exact_start(ctx, 2);
        neo__cpu_run(device, &part, blocks, NEO__VEC_GRAIN / (int)NEO__BLOCK, 1, neo__optim_part);
        for (int k = 0; call->sums && k <= apart; k++)
            neo__exact_finish(ctx, k, &call->sums[2 * i + k]);
        for (int w = 0; call->pass == NEO__OPTIM_NORM_INF && w < ctx->threads; w++)
            *call->most = neo__larger_bits(*call->most, *neo__optim_most(ctx, w));
    }
    return NEO_OK;
}
NEO__HOT_END

/* ---- schedules ---- */
static double neo__schedule_lr_f64(const neo_schedule *schedule, int64_t step) {
    double lr = (double)schedule->lr, end = (double)schedule->end_lr;
    int64_t start = schedule->warmup_steps + schedule->hold_steps;
    if (step < schedule->warmup_steps)
        return lr * (double)(step + 1) / (double)schedule->warmup_steps;
    if (schedule->kind == NEO_SCHEDULE_CONSTANT || step < start) return lr;
    if (step >= schedule->total_steps) return end;
    double t = (double)(step - start) / (double)(schedule->total_steps - start), left = 0.0;
    switch (schedule->kind) {
    case NEO_SCHEDULE_CONSTANT: break;
    case NEO_SCHEDULE_LINEAR: left = 1.0 - t; break;
    case NEO_SCHEDULE_COSINE: left = 0.5 * (1.0 + neo__cos_f64(t * 3.14159265358979323846)); break;
    case NEO_SCHEDULE_POLY:
        left = neo__pow_f64(1.0 - t, schedule->power == 0.0f ? 2.0 : (double)schedule->power);
        break;
    }
    return end + (lr - end) * left;
}
NEO_API float neo_schedule_lr(const neo_schedule *schedule, int64_t step) {
    neo__fp_state fp = neo__fp_enter();
    volatile float lr =
        (float)neo__schedule_lr_f64(schedule, step); /* rounded before leave, not after */
    neo__fp_leave(fp);
    return lr;
}

NEO__HOT_BEGIN
#endif
/* ---------------------------------------------------------------------------
   >>impl-jagged

   Views are checked before they are followed: neo__jagged_check looks at the struct and the two
   ends of the offsets, neo__jagged_check_offsets at every offset. Writers make one pass that
   checks (counts, capacity, ids that fit) and one that writes, so that a failed call leaves the
   buffer as it was.

   Of a batch with an inverse the bags are numbered as they first occur: bag u of a feature is first
   read by a sample of number u or higher. So what is made of bags in the first places of an array
   goes to the places of the samples from the last to the first, in place, and neo__jagged_fold
   moves bags down in theirs.
   ------------------------------------------------------------------------ */
struct neo_jagged_buffer {
    neo_ctx *ctx;
    neo__live live;
    neo_jagged view;
    int64_t max_bags, max_ids;
    char *block, *there; /* of the arrays; of those on a device */
    size_t block_bytes, there_bytes;
    int64_t *offsets;      /* [max_bags + 1] */
    int64_t *feature_bags; /* [feature_count + 1] */
    void *ids;             /* [max_ids] */
    float *weights;        /* [max_ids], or NULL */
    int dedup;
    int32_t *inverse; /* [max_bags], or NULL */
    int32_t *place;   /* [places]: hash table of the samples of a feature, of their bags */
    int64_t grow_count;
    /* Notes of a writer on a device; and, for dedup, where distinct bags go: list [max_bags], and
       other arrays, which then change places with those above. */
    int64_t *noted_bags;     /* [feature_count + 1] */
    neo__ids_run *run;       /* [max_runs] */
    neo__ids_source *source; /* [max_runs] */
    int64_t max_runs;
    int32_t *list;
    int64_t *spare_offsets;
    void *spare_ids;
    float *spare_weights;
};

NEO_API int64_t neo_jagged_bag_count(const neo_jagged *j) {
    return neo__jagged_first_bag(j, j->feature_count);
}
NEO_API int64_t neo_jagged_id_count(const neo_jagged *j) {
    int64_t bags = neo_jagged_bag_count(j);
    return bags > 0 ? j->offsets[bags] - j->offsets[0] : 0;
}

NEO_API int64_t neo_jagged_full_id_count(const neo_jagged *j) {
    int64_t ids = 0;
    if (!j->inverse) return neo_jagged_id_count(j);
    for (int32_t t = 0; t < j->feature_count; t++)
        for (int64_t i = 0; i < j->batch; i++) {
            const int64_t *offset = j->offsets + neo__jagged_bag(j, t, i);
            ids += offset[1] - offset[0];
        }
    return ids;
}
/* Bags are numbered as samples first read them. After it, every number may be followed. */
static neo_status neo__jagged_check_inverse(const neo_jagged *jagged, const char *fn) {
    if (jagged->place == NEO_DEVICE) return NEO_OK; /* the device looks */
    for (int32_t t = 0; jagged->inverse && t < jagged->feature_count; t++) {
        const int32_t *inverse = jagged->inverse + t * jagged->batch;
        const int64_t bags = jagged->feature_bags[t + 1] - jagged->feature_bags[t];
        int64_t next = 0;
        for (int64_t i = 0; i < jagged->batch; i++) {
            NEO__CHECK(inverse[i] >= 0 && inverse[i] <= next && inverse[i] < bags, NEO_ERR_FORMAT,
                       "%s: inverse of feature %d, sample %" PRId64 " is %d: of %" PRId64
                       " bags the samples before it read %" PRId64 ", in order",
                       fn, t, i, inverse[i], bags, next);
            next += inverse[i] == next;
        }
        NEO__CHECK(next == bags, NEO_ERR_FORMAT,
                   "%s: feature %d has %" PRId64 " bags, of which samples read %" PRId64, fn, t,
                   bags, next);
    }
    return NEO_OK;
}
/* ---- bags that repeat ---- */
NEO__INLINE uint64_t neo__jagged_hash_bag(const void *ids, size_t id_bytes, const float *weights,
                                          int64_t begin, int64_t end) {
    uint64_t h = (uint64_t)(end - begin);
    for (int64_t k = begin; k < end; k++) {
        h = neo__mix64(h + (uint64_t)neo__jagged_id(ids, id_bytes == sizeof(int32_t), k));
        if (weights) h = h * 0x9E3779B97F4A7C15u + neo__bits_f32(weights[k]);
    }
    return neo__mix64(h);
}
/* Places of a hash table that finds `samples` bags. */
static int64_t neo__jagged_places(int64_t samples) {
    int64_t n = 4;
    while (n < 2 * samples) n *= 2;
    return n;
}
/* Distinct bags of T features x B samples, in place: offsets, ids and weights close up. place:
   [neo__jagged_places(B)]. */
static NEO__UNUSED void neo__jagged_fold(int32_t features, int64_t batch, int64_t *offsets,
                                         void *ids, size_t id_bytes, float *weights,
                                         int64_t *feature_bags, int32_t *inverse, int32_t *place) {
    const int64_t places = neo__jagged_places(batch);
    int64_t bags = 0, begin = offsets[0];
    feature_bags[0] = 0;
    for (int64_t t = 0; t < features; t++, inverse += batch) {
        memset(place, 0, (size_t)places * sizeof *place);
        for (int64_t i = 0; i < batch; i++) { /* offsets of samples from i on are as they were */
            const int64_t end = offsets[t * batch + i + 1], n = end - begin, to = offsets[bags];
            const int64_t first = feature_bags[t];
            const char *from = (const char *)ids + (size_t)begin * id_bytes;
            uint64_t at = neo__jagged_hash_bag(ids, id_bytes, weights, begin, end);
            for (;; at++) {
                const int32_t u = place[at & (uint64_t)(places - 1)] - 1;
                if (u < 0) break;
                const int64_t k = offsets[first + u];
                if (offsets[first + u + 1] - k == n &&
                    memcmp((char *)ids + (size_t)k * id_bytes, from, (size_t)n * id_bytes) == 0 &&
                    (!weights || memcmp(weights + k, weights + begin, (size_t)n * 4) == 0))
                    break;
            }
            int32_t *found = &place[at & (uint64_t)(places - 1)];
            if (*found == 0) {
                *found = (int32_t)(++bags - first);
                memmove((char *)ids + (size_t)to * id_bytes, from, (size_t)n * id_bytes);
                if (weights) memmove(weights + to, weights + begin, (size_t)n * sizeof *weights);
                offsets[bags] = to + n;
            }
            inverse[i] = *found - 1;
            begin = end;
        }
        feature_bags[t + 1] = bags;
    }
}
/* Offsets decrease behind bag i, which is of feature t. */
static neo_status neo__jagged_bad_offset(int64_t t, int64_t sample, int64_t i, int64_t here,
                                         int64_t next, const char *fn) {
    return neo_fail(NEO_ERR_FORMAT,
                    "%s: offsets decrease at feature %d, sample %" PRId64 ": offsets[%" PRId64
                    "] is %" PRId64 ", the next is %" PRId64,
                    fn, (int)t, sample, i, here, next);
}
/* Two at a time: whether one of n numbers is outside [0, count); and whether one of n + 1 offsets
   may be less than the one before, or below 0. Signs tell it. */
typedef uint64_t neo__pair __attribute__((vector_size(16), aligned(8), may_alias));
NEO__INLINE int neo__any_outside(const int64_t *number, int64_t n, int64_t count) {
    const uint64_t most = (uint64_t)count - 1;
    neo__pair two = {0, 0}, last = {most, most};
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
        const neo__pair x = *(const neo__pair *)(const void *)(number + i);
        two |= x | (last - x);
    }
    uint64_t bad = two[0] | two[1];
    if (i < n) bad |= (uint64_t)number[i] | (most - (uint64_t)number[i]);
    return (int)(bad >> 63);
}
NEO__INLINE int neo__may_decrease(const int64_t *offset, int64_t n) {
    neo__pair two = {0, 0};
    int64_t i = 0;
    if (n == 0) return 0; /* there may be no array */
    for (; i + 2 <= n; i += 2) {
        const neo__pair x = *(const neo__pair *)(const void *)(offset + i);
        const neo__pair next = *(const neo__pair *)(const void *)(offset + i + 1);
        two |= x | next | (next - x);
    }
    uint64_t bad = two[0] | two[1] | (uint64_t)offset[i];
    if (i < n) bad |= (uint64_t)offset[i + 1] | ((uint64_t)offset[i + 1] - (uint64_t)offset[i]);
    return (int)(bad >> 63);
}
/* Every offset. After it, [offsets[bag], offsets[bag + 1]) may be followed for every bag. */
static neo_status neo__jagged_check_offsets(const neo_jagged *j, const char *fn) {
    if (!neo__may_decrease(j->offsets, neo__jagged_first_bag(j, j->feature_count))) return NEO_OK;
    for (int32_t t = 0; t < j->feature_count; t++) {
        int64_t end = neo__jagged_first_bag(j, t + 1);
        for (int64_t i = neo__jagged_first_bag(j, t); i < end; i++)
            if (j->offsets[i] > j->offsets[i + 1])
                return neo__jagged_bad_offset(t, i - neo__jagged_first_bag(j, t), i,
                                              j->offsets[i], j->offsets[i + 1], fn);
    }
    return NEO_OK;
}
/* Every id of feature t is in [0, rows). Offsets have been checked. */
static neo_status neo__jagged_check_ids(const neo_jagged *jagged, int32_t t, int64_t rows,
                                        const char *fn) {
    int64_t first = neo__jagged_first_bag(jagged, t), end = neo__jagged_first_bag(jagged, t + 1);
    int is_i32 = jagged->id_dtype == NEO_I32;
    for (int64_t i = first; i < end; i++)
        for (int64_t k = jagged->offsets[i]; k < jagged->offsets[i + 1]; k++) {
            int64_t id = neo__jagged_id(jagged->ids, is_i32, k);
            NEO__CHECK(id >= 0 && id < rows, NEO_ERR_RANGE,
                       "%s: feature %d, sample %" PRId64 ", position %" PRId64 ": id %" PRId64
                       " is not in [0, %" PRId64 ")",
                       fn, t, i - first, k - jagged->offsets[i], id, rows);
        }
    return NEO_OK;
}

#if !defined(NEO_INFERENCE)
/* ---- writers ----

   A writer adds runs of bags of its sources in the order of the result, in two passes: the first
   counts and checks, the second writes. */

typedef struct neo__jagged_writer {
    const char *fn;
    neo_jagged_buffer *to;
    neo_status status;
    const neo_jagged *const *parts; /* sources */
    int count;
    int pass;                    /* 1 counts, 2 writes; on a device 1 notes runs */
    int64_t features, bags, ids; /* added in this pass */
    int64_t runs;
    int32_t feature; /* of the source, whose bags are added */
} neo__jagged_writer;
static int neo__jagged_is_there(const neo_jagged_buffer *b) {
    return b->view.place == NEO_DEVICE;
}

/* Ids [k, k + count) of a source can be stored in b. */
static neo_status neo__jagged_check_fit(const neo_jagged_buffer *b, neo_dtype from,
                                        const void *ids, int64_t k, int64_t count,
                                        const char *fn) {
    if (b->view.id_dtype != NEO_I32 || from != NEO_I64 || count == 0) return NEO_OK;
    const int64_t *p = (const int64_t *)ids + k;
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(p[i] >= INT32_MIN && p[i] <= INT32_MAX, NEO_ERR_RANGE,
                   "%s: id %" PRId64 " (number %" PRId64 " of its source) does not fit i32", fn,
                   p[i], k + i);
    return NEO_OK;
}
static neo_status neo__jagged_check_room(const neo_jagged_buffer *b, int64_t bags, int64_t ids,
                                         const char *fn) {
    NEO__CHECK(bags <= b->max_bags && ids <= b->max_ids, NEO_ERR_CAPACITY,
               "%s: %" PRId64 " %s are needed, the buffer has room for %" PRId64
               " (neo_jagged_reserve grows it)",
               fn, bags > b->max_bags ? bags : ids, bags > b->max_bags ? "bags" : "ids",
               bags > b->max_bags ? b->max_bags : b->max_ids);
    return NEO_OK;
}
/* Store ids [k, k + count) of a source, and their weights (NULL: ones), at `at` of the buffer. */
static void neo__jagged_put(neo_jagged_buffer *buffer, int64_t at, neo_dtype from, const void *ids,
                            const float *weights, int64_t k, int64_t count) {
    if (count == 0) return;
    size_t size = neo_dtype_size(from);
    if (from == buffer->view.id_dtype) {
        memcpy((char *)buffer->ids + (size_t)at * size, (const char *)ids + (size_t)k * size,
               (size_t)count * size);
    } else if (from == NEO_I32) {
        int64_t *to = (int64_t *)buffer->ids + at;
        for (int64_t i = 0; i < count; i++) to[i] = ((const int32_t *)ids)[k + i];
    } else {
        int32_t *to = (int32_t *)buffer->ids + at;
        for (int64_t i = 0; i < count; i++) to[i] = (int32_t)((const int64_t *)ids)[k + i];
    }
    if (buffer->weights && weights)
        memcpy(buffer->weights + at, weights + k, (size_t)count * sizeof *weights);
    else if (buffer->weights)
        for (int64_t i = 0; i < count; i++) buffer->weights[at + i] = 1.0f;
}
static neo_status neo__jagged_more_runs(neo_jagged_buffer *buffer, const char *fn);
/* Note a run of bags for a join on a device, each `step` behind the one before; listed: see
   neo__ids_run. */
static void neo__jagged_note(neo__jagged_writer *writer, const neo_jagged *jagged, int64_t first,
                             int64_t bags, int64_t step, int64_t listed) {
    neo_jagged_buffer *to = writer->to;
    neo__ids_run *last = to->run + writer->runs - 1;
    int32_t s = 0;
    if (bags == 0 || writer->status != NEO_OK) return;
    while (writer->parts[s] != jagged) s++;
    if (writer->runs > 0 && last->source == s && !jagged->feature_bags && step == 1 &&
        last->step == 1 && last->from + last->bags == first) {
        last->bags += bags;
    } else {
        if (writer->runs == to->max_runs)
            writer->status = neo__jagged_more_runs(to, writer->fn);
        if (writer->status != NEO_OK) return;
        const int64_t at = writer->bags;
        const neo__ids_run run = {bags, first, at, at, step, listed, s, writer->feature};
        to->run[writer->runs++] = run;
    }
    writer->bags += bags;
}
/* Add `bags` bags of a source, from bag `first` on. */
static void neo__jagged_add(neo__jagged_writer *writer, const neo_jagged *jagged, int64_t first,
                            int64_t bags) {
    if (bags == 0 || writer->status != NEO_OK) return;
    if (neo__jagged_is_there(writer->to)) {
        neo__jagged_note(writer, jagged, first, bags, 1, 0);
        return;
    }
    const int64_t *from = jagged->offsets + first, count = from[bags] - from[0];
    if (writer->pass == 2) {
        int64_t *offset = writer->to->offsets + writer->bags, shift = *offset - from[0];
        neo__jagged_put(writer->to, writer->ids, jagged->id_dtype, jagged->ids, jagged->weights,
                        from[0], count);
        for (int64_t k = 1; k <= bags; k++) offset[k] = from[k] + shift;
    } else if (count > INT64_MAX / 16 - writer->ids) {
        writer->status = neo_fail(NEO_ERR_ARG, "%s: too many ids", writer->fn);
    } else {
        writer->status = neo__jagged_check_fit(writer->to, jagged->id_dtype, jagged->ids, from[0],
                                               count, writer->fn);
    }
    writer->bags += bags;
    writer->ids += count;
}
/* Add feature t of a source. */
static void neo__jagged_add_feature(neo__jagged_writer *w, const neo_jagged *s, int32_t t) {
    int64_t first = neo__jagged_first_bag(s, t);
    w->feature = t;
    neo__jagged_add(w, s, first, neo__jagged_first_bag(s, t + 1) - first);
    w->features++;
    if (neo__jagged_is_there(w->to)) w->to->noted_bags[w->features] = w->bags;
    else if (w->pass == 2) w->to->feature_bags[w->features] = w->bags;
}
#endif
NEO__HOT_END

/* ---- checks ---- */

/* The struct, its pointers and counts, and of a batch on the host the first and last offset. */
static neo_status neo__jagged_check(const neo_jagged *jagged, const char *fn) {
    NEO__CHECK(jagged, NEO_ERR_ARG, "%s: the batch is NULL", fn);
    NEO__CHECK(jagged->feature_count >= 0, NEO_ERR_ARG, "%s: feature_count is %d", fn,
               jagged->feature_count);
    NEO__CHECK(jagged->id_dtype == NEO_I64 || jagged->id_dtype == NEO_I32, NEO_ERR_ARG,
               "%s: ids are %s%s, not i64 or i32", fn, neo_dtype_name(jagged->id_dtype),
               jagged->id_dtype == NEO_F32 ? " (or id_dtype is not set)" : "");
    if (jagged->feature_bags) {
        NEO__CHECK(jagged->feature_bags[0] == 0, NEO_ERR_FORMAT,
                   "%s: feature_bags[0] is %" PRId64 ", not 0", fn, jagged->feature_bags[0]);
        for (int32_t t = 0; t < jagged->feature_count; t++)
            NEO__CHECK(jagged->feature_bags[t] <= jagged->feature_bags[t + 1], NEO_ERR_FORMAT,
                       "%s: feature_bags decrease at feature %d: %" PRId64 " then %" PRId64, fn, t,
                       jagged->feature_bags[t], jagged->feature_bags[t + 1]);
    } else {
        NEO__CHECK(jagged->batch >= 0, NEO_ERR_ARG, "%s: batch is %" PRId64, fn, jagged->batch);
        NEO__CHECK(jagged->feature_count == 0 ||
                       jagged->batch < INT64_MAX / 16 / jagged->feature_count,
                   NEO_ERR_ARG, "%s: %d features x %" PRId64 " samples do not fit 64 bits", fn,
                   jagged->feature_count, jagged->batch);
    }
    NEO__CHECK(!jagged->inverse || (jagged->feature_bags && jagged->batch >= 0 &&
                                    jagged->batch <= INT32_MAX),
               NEO_ERR_ARG,
               "%s: a batch with inverse needs feature_bags, and has at most 2^31 - 1 samples", fn);
    int64_t bags = neo_jagged_bag_count(jagged);
    if (bags == 0) return NEO_OK;
    NEO__CHECK(jagged->offsets, NEO_ERR_ARG, "%s: offsets is NULL", fn);
    if (jagged->place == NEO_DEVICE) {
        NEO__CHECK(jagged->ids, NEO_ERR_ARG, "%s: ids is NULL", fn);
        return NEO_OK;
    }
    NEO__CHECK(jagged->offsets[0] >= 0, NEO_ERR_FORMAT, "%s: offsets[0] is %" PRId64, fn,
               jagged->offsets[0]);
    NEO__CHECK(jagged->offsets[bags] >= jagged->offsets[0], NEO_ERR_FORMAT,
               "%s: offsets go from %" PRId64 " down to %" PRId64, fn, jagged->offsets[0],
               jagged->offsets[bags]);
    NEO__CHECK(jagged->ids || jagged->offsets[bags] == jagged->offsets[0], NEO_ERR_ARG,
               "%s: ids is NULL", fn);
    return NEO_OK;
}

NEO_API neo_status neo_jagged_validate(const neo_jagged *j, const int64_t *rows) {
    const char *fn = "neo_jagged_validate";
    NEO__TRY(neo__jagged_check(j, fn));
    NEO__TRY(neo__jagged_check_offsets(j, fn));
    NEO__TRY(neo__jagged_check_inverse(j, fn));
    for (int32_t t = 0; rows && t < j->feature_count; t++) {
        NEO__CHECK(rows[t] >= 0, NEO_ERR_ARG, "%s: rows[%d] is %" PRId64, fn, t, rows[t]);
        NEO__TRY(neo__jagged_check_ids(j, t, rows[t], fn));
    }
    return NEO_OK;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo__device_split(neo_ctx *ctx, const neo__split_call *call, const char *fn) {
    const neo_jagged *j = call->batch;
    const neo__split_found *found = call->found;
    NEO__TRY(neo__jagged_check(j, fn));
    NEO__TRY(ctx->on->ids_split(ctx->on, call));
    if (found->bag >= 0)
        return neo__jagged_bad_offset(found->feature, found->sample, found->at, found->begin,
                                      found->what, fn);
    NEO__CHECK(found->first >= 0, NEO_ERR_FORMAT, "%s: offsets[0] is %" PRId64, fn, found->first);
    return NEO_OK;
}
NEO_API neo_status neo__device_join(neo_ctx *ctx, const neo__join_call *call) {
    return ctx->on->ids_join(ctx->on, call);
}
NEO_API neo_status neo__device_places(neo_ctx *ctx, const neo__places_call *call) {
    return ctx->on->ids_places(ctx->on, call);
}
NEO_API neo__ids_source neo__ids_source_of(const neo_jagged *jagged) {
    NEO__ZERO(neo__ids_source, source);
    source.offsets = jagged->offsets;
    source.ids = jagged->ids;
    source.weights = jagged->weights;
    source.id_dtype = jagged->id_dtype;
    source.batch = jagged->feature_bags ? 0 : jagged->batch;
    return source;
}
NEO_API neo_status neo__device_cut_add(neo_ctx *ctx, float *total, const float *blocks,
                                       int64_t count, int64_t each, int first) {
    return ctx->on->cut_add(ctx->on, total, blocks, count, each, first);
}

/* ---- distinct ids: a heap sort in place, of ids that are not distinct yet ---- */
static void neo__unique_sift(const neo__unique_call *call, int64_t at, int64_t n) {
    const int is_i32 = call->dtype == NEO_I32;
    const int64_t id = neo__jagged_id(call->unique, is_i32, at);
    char *ids = (char *)call->unique;
    const int64_t size = is_i32 ? 4 : 8;
    for (int64_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        int64_t larger = neo__jagged_id(ids, is_i32, child);
        const int64_t right = child + 1 < n ? neo__jagged_id(ids, is_i32, child + 1) : INT64_MIN;
        if (right > larger) larger = right, child++;
        if (larger <= id) break;
        neo__int_encode(call->dtype, larger, ids + at * size);
    }
    neo__int_encode(call->dtype, id, ids + at * size);
}
static neo_status neo__cpu_ids_unique(neo_device *device, const neo__unique_call *call) {
    const int is_i32 = call->dtype == NEO_I32;
    const int64_t n = call->count, size = is_i32 ? 4 : 8;
    char *ids = (char *)call->unique;
    int64_t found = 0;
    (void)device;
    memcpy(ids, call->ids, (size_t)(n * size));
    for (int64_t i = n / 2; i-- > 0;) neo__unique_sift(call, i, n);
    for (int64_t end = n - 1; end > 0; end--) { /* the largest goes behind the rest */
        const int64_t last = neo__jagged_id(ids, is_i32, end);
        neo__int_encode(call->dtype, neo__jagged_id(ids, is_i32, 0), ids + end * size);
        neo__int_encode(call->dtype, last, ids);
        neo__unique_sift(call, 0, end);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = neo__jagged_id(ids, is_i32, i);
        if (i > 0 && id == neo__jagged_id(ids, is_i32, found - 1)) continue;
        neo__int_encode(call->dtype, id, ids + found++ * size);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = neo__jagged_id(call->ids, is_i32, i);
        int64_t low = 0, high = found;
        while (high - low > 1) {
            const int64_t mid = low + (high - low) / 2;
            if (neo__jagged_id(ids, is_i32, mid) <= id) low = mid;
            else high = mid;
        }
        call->inverse[i] = (int32_t)low;
    }
    *call->found = found;
    return NEO_OK;
}
NEO_API neo_status neo_ids_unique(neo_ctx *ctx, neo_tensor ids, neo_tensor unique,
                                  neo_tensor inverse, int64_t *count) {
    static const char *const fn = "neo_ids_unique";
    static const char *const names[] = {"ids", "unique", "inverse"};
    const neo_tensor all[] = {ids, unique, inverse};
    NEO__TRY(neo__check_live(ctx, fn, "ctx"));
    NEO__CHECK(count, NEO_ERR_ARG, "%s: count is NULL", fn);
    const int64_t n = ids.shape[0];
    for (int i = 0; i < 3; i++) {
        const neo_dtype dtype = i == 2 ? NEO_I32 : ids.dtype;
        NEO__CHECK(all[i].ndim == 1 && all[i].shape[0] == n && (all[i].stride[0] == 1 || n <= 1),
                   NEO_ERR_SHAPE, "%s: %s must be contiguous, of one dimension, of the %" PRId64
                   " ids", fn, names[i], n);
        NEO__CHECK(all[i].dtype == dtype && (dtype == NEO_I64 || dtype == NEO_I32), NEO_ERR_ARG,
                   "%s: %s is %s: ids are i64 or i32, unique as they, inverse i32", fn, names[i],
                   neo_dtype_name(all[i].dtype));
        if (!all[i].data && n > 0) return neo__no_data(fn, names[i], all[i], NEO_ERR_ARG);
        NEO__TRY(neo__check_place(ctx, all[i], fn, names[i]));
    }
    NEO__CHECK(n <= INT32_MAX, NEO_ERR_CAPACITY, "%s: %" PRId64 " ids", fn, n);
    NEO__APART(fn, 2, 0, {&unique, "unique"}, {&inverse, "inverse"}, {&ids, "ids"});
    const neo__unique_call call = {ids.data,    ids.dtype,  n, unique.data, (int32_t *)inverse.data,
                                   count};
    *count = 0;
    return n > 0 ? ctx->on->ids_unique(ctx->on, &call) : NEO_OK;
}

/* ---- buffers ---- */
/* Arrays on the host; where the batch is: of a device there. */
static void neo__jagged_layout(neo_jagged_buffer *buffer, int weighted, neo__carve *host,
                               neo__carve *carve) {
    const int there = neo__jagged_is_there(buffer), sets = there && buffer->dedup ? 2 : 1;
    int64_t **const offsets[] = {&buffer->offsets, &buffer->spare_offsets};
    void **const ids[] = {&buffer->ids, &buffer->spare_ids};
    float **const weights[] = {&buffer->weights, &buffer->spare_weights};
    for (int i = 0; i < sets; i++) {
        NEO__CARVE(carve, *offsets[i], neo__size_add((size_t)buffer->max_bags, 1));
        neo__carve_next(carve, ids[i], neo_dtype_size(buffer->view.id_dtype),
                        (size_t)buffer->max_ids);
        if (weighted) NEO__CARVE(carve, *weights[i], buffer->max_ids);
    }
    NEO__CARVE(host, buffer->feature_bags, buffer->view.feature_count + 1);
    if (there) NEO__CARVE(host, buffer->noted_bags, buffer->view.feature_count + 1);
    if (there) NEO__CARVE(host, buffer->run, buffer->max_runs);
    if (there) NEO__CARVE(host, buffer->source, buffer->max_runs);
    if (!buffer->dedup) return;
    NEO__CARVE(carve, buffer->inverse, buffer->max_bags);
    const int64_t samples = buffer->max_bags / NEO__MAX(buffer->view.feature_count, 1);
    if (there) NEO__CARVE(carve, buffer->list, buffer->max_bags);
    else NEO__CARVE(carve, buffer->place, neo__jagged_places(samples));
}
/* The old content to new arrays: on a device all that there is room for, since it knows how much
   is in it. */
static neo_status neo__jagged_keep(const neo_jagged_buffer *from, const neo_jagged_buffer *to) {
    const neo_jagged *view = &from->view;
    const int there = neo__jagged_is_there(from);
    neo_device *on = neo__device_at(from->ctx, view->place);
    const size_t bags = (size_t)(there ? from->max_bags : neo_jagged_bag_count(view)),
                 ids = (size_t)(there ? from->max_ids : neo_jagged_id_count(view)),
                 samples = view->inverse ? (size_t)(view->feature_count * view->batch) : 0;
    if (view->feature_bags)
        memcpy(to->feature_bags, from->feature_bags,
               (size_t)(view->feature_count + 1) * sizeof *to->feature_bags);
    const struct {
        void *to;
        const void *from;
        size_t bytes;
    } all[] = {{to->offsets, from->offsets, (bags + 1) * sizeof *to->offsets},
               {to->ids, from->ids, ids * neo_dtype_size(view->id_dtype)},
               {to->weights, from->weights, to->weights ? ids * sizeof *to->weights : 0},
               {to->inverse, from->inverse, samples * sizeof *to->inverse}};
    for (int i = 0; i < 4; i++)
        NEO__TRY(on->copy(on, all[i].to, view->place, all[i].from, view->place, all[i].bytes));
    return NEO_OK;
}
static void neo__jagged_free_blocks(neo_jagged_buffer *b) {
    neo__data_free(b->ctx, b->there, b->there_bytes);
    neo_free(b->ctx, b->block, b->block_bytes);
    b->there = b->block = NULL;
}
/* New arrays of these capacities, with the old content; the old arrays are freed. */
static neo_status neo__jagged_resize(neo_jagged_buffer *buffer, int64_t max_bags, int64_t max_ids,
                                     int weighted, const char *fn) {
    neo_jagged_buffer to = *buffer;
    neo__carve count = {NULL, 0}, block = {NULL, 0}, counted = {NULL, 0}, there = {NULL, 0};
    const int is_there = neo__jagged_is_there(buffer);
    to.max_bags = max_bags;
    to.max_ids = max_ids;
    neo__jagged_layout(&to, weighted, &count, is_there ? &counted : &count);
    to.block = block.block = (char *)neo_alloc(buffer->ctx, count.at);
    to.there = there.block = is_there ? (char *)neo__data_alloc(buffer->ctx, counted.at) : NULL;
    to.block_bytes = count.at;
    to.there_bytes = counted.at;
    if (!to.block || (is_there && !to.there)) {
        neo__jagged_free_blocks(&to);
        return neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " bags and %" PRId64 " ids",
                        fn, max_bags, max_ids);
    }
    neo__jagged_layout(&to, weighted, &block, is_there ? &there : &block);
    neo_device *on = neo__device_at(buffer->ctx, buffer->view.place);
    neo_status status = buffer->block ? neo__jagged_keep(buffer, &to)
                                      : on->fill(on, to.offsets, 0, sizeof *to.offsets);
    if (status != NEO_OK) {
        neo__jagged_free_blocks(&to);
        return status;
    }
    neo__jagged_free_blocks(buffer);
    to.view.offsets = to.offsets;
    to.view.ids = to.ids;
    to.view.weights = to.weights;
    if (to.view.feature_bags) to.view.feature_bags = to.feature_bags;
    if (to.view.inverse) to.view.inverse = to.inverse;
    *buffer = to;
    return NEO_OK;
}
/* Room for twice as many runs, counted; those that are noted stay. */
static neo_status neo__jagged_more_runs(neo_jagged_buffer *buffer, const char *fn) {
    neo_jagged_buffer to = *buffer;
    neo__carve count = {NULL, 0}, block = {NULL, 0}, none = {NULL, 0};
    to.max_runs = 2 * buffer->max_runs;
    neo__jagged_layout(&to, 0, &count, &none);
    to.block = block.block = (char *)neo__alloc_for(buffer->ctx, count.at, fn);
    if (!to.block) return NEO_ERR_MEMORY;
    none.at = 0;
    neo__jagged_layout(&to, 0, &block, &none);
    const size_t features = (size_t)(buffer->view.feature_count + 1) * sizeof *to.feature_bags;
    memcpy(to.feature_bags, buffer->feature_bags, features);
    memcpy(to.noted_bags, buffer->noted_bags, features);
    memcpy(to.run, buffer->run, (size_t)buffer->max_runs * sizeof *to.run);
    neo_free(buffer->ctx, buffer->block, buffer->block_bytes);
    buffer->block = to.block, buffer->block_bytes = count.at, buffer->max_runs = to.max_runs;
    buffer->feature_bags = to.feature_bags, buffer->noted_bags = to.noted_bags;
    buffer->run = to.run, buffer->source = to.source;
    if (buffer->view.feature_bags) buffer->view.feature_bags = buffer->feature_bags;
    buffer->grow_count++;
    return NEO_OK;
}

NEO_API neo_status neo_jagged_create(neo_ctx *ctx, const neo_jagged_desc *desc,
                                     neo_jagged_buffer **out) {
    const char *fn = "neo_jagged_create";
    NEO__CHECK(desc && out, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_ctx(fn, ctx));
    neo_dtype dtype = (int)desc->id_dtype == 0 ? NEO_I64 : desc->id_dtype;
    NEO__CHECK(desc->feature_count >= 0 && desc->max_bags >= 0 && desc->max_ids >= 0, NEO_ERR_ARG,
               "%s: feature_count %d, max_bags %" PRId64 " or max_ids %" PRId64 " is below 0", fn,
               desc->feature_count, desc->max_bags, desc->max_ids);
    NEO__CHECK(dtype == NEO_I64 || dtype == NEO_I32, NEO_ERR_ARG,
               "%s: id_dtype is %s, not i64 or i32", fn, neo_dtype_name(dtype));
    const neo_place place = desc->place == NEO_DEVICE ? neo__ctx_place(ctx) : NEO_HOST;
    NEO__CHECK(place == NEO_HOST || (desc->max_bags < INT32_MAX && desc->max_ids < INT32_MAX),
               NEO_ERR_UNSUPPORTED, "%s: %" PRId64 " bags, %" PRId64
               " ids: on a device below 2^31 - 1", fn, desc->max_bags, desc->max_ids);
    neo_jagged_buffer *buffer = (neo_jagged_buffer *)neo__alloc_for(ctx, sizeof *buffer, fn);
    if (!buffer) return NEO_ERR_MEMORY;
    memset(buffer, 0, sizeof *buffer);
    buffer->ctx = ctx;
    buffer->view.feature_count = desc->feature_count;
    buffer->view.id_dtype = dtype;
    buffer->view.place = place;
    buffer->dedup = desc->dedup;
    buffer->max_runs = desc->feature_count + 16;
    neo_status status =
        neo__jagged_resize(buffer, desc->max_bags, desc->max_ids, desc->weighted, fn);
    if (status != NEO_OK) {
        neo_jagged_destroy(buffer);
        return status;
    }
    neo__live_begin(ctx, &buffer->live, "jagged", NULL);
    *out = buffer;
    return NEO_OK;
}
NEO_API void neo_jagged_destroy(neo_jagged_buffer *b) {
    if (!b) return;
    neo__live_end(b->ctx, &b->live);
    neo__jagged_free_blocks(b);
    neo_free(b->ctx, b, sizeof *b);
}

NEO_API const neo_jagged *neo_jagged_view(const neo_jagged_buffer *b) { return &b->view; }
NEO_API int64_t neo_jagged_grow_count(const neo_jagged_buffer *b) { return b->grow_count; }
NEO_API neo_status neo_jagged_reserve(neo_jagged_buffer *b, int64_t max_bags, int64_t max_ids) {
    NEO__CHECK_LIVE(b, "neo_jagged_reserve", "buffer");
    if (max_bags <= b->max_bags && max_ids <= b->max_ids) return NEO_OK;
    NEO__TRY(neo__jagged_resize(b, NEO__MAX(max_bags, b->max_bags), NEO__MAX(max_ids, b->max_ids),
                                b->weights != NULL, "neo_jagged_reserve"));
    b->grow_count++;
    return NEO_OK;
}

/* ---- writers: calls ---- */

static neo_status neo__jagged_check_weights(const neo_jagged_buffer *b, const float *weights,
                                            const char *fn) {
    NEO__CHECK(b->weights || !weights, NEO_ERR_ARG,
               "%s: the source has weights, the buffer was made without (neo_jagged_desc.weighted)",
               fn);
    return NEO_OK;
}
/* The sources of a writer can be followed, and are not the buffer itself. takes_feature_bags 2:
   and an inverse. */
static neo_status neo__jagged_check_sources(const neo_jagged_buffer *buffer,
                                            const neo_jagged *const *parts, int count,
                                            int takes_feature_bags, const char *fn) {
    NEO__CHECK_LIVE(buffer, fn, "the buffer");
    NEO__CHECK(parts && count > 0, NEO_ERR_ARG, "%s: no source is given", fn);
    for (int i = 0; i < count; i++) {
        NEO__TRY(neo__jagged_check(parts[i], fn));
        NEO__CHECK(parts[i]->place == buffer->view.place, NEO_ERR_ARG,
                   "%s: source %d is in %s memory, the buffer in %s", fn, i,
                   parts[i]->place == NEO_DEVICE ? "a device's" : "host",
                   neo__jagged_is_there(buffer) ? "its device's (neo_jagged_desc.place)" : "host");
        if (parts[i]->place == NEO_HOST) NEO__TRY(neo__jagged_check_offsets(parts[i], fn));
        NEO__TRY(neo__jagged_check_weights(buffer, parts[i]->weights, fn));
        NEO__CHECK(parts[i]->offsets != buffer->offsets, NEO_ERR_ARG,
                   "%s: source %d is a view of the buffer that is written", fn, i);
        NEO__CHECK(takes_feature_bags || !parts[i]->feature_bags, NEO_ERR_ARG,
                   "%s: source %d has feature_bags", fn, i);
        NEO__CHECK(takes_feature_bags == 2 || !parts[i]->inverse, NEO_ERR_ARG,
                   "%s: source %d has an inverse: write it out by neo_jagged_expand", fn, i);
        NEO__TRY(neo__jagged_check_inverse(parts[i], fn));
    }
    return NEO_OK;
}
static neo__jagged_writer neo__jagged_writer_make(neo_jagged_buffer *buffer, int64_t features,
                                                  const neo_jagged *const *parts, int count,
                                                  const char *fn) {
    NEO__ZERO(neo__jagged_writer, writer);
    writer.fn = fn;
    writer.to = buffer;
    writer.parts = parts;
    writer.count = count;
    while (writer.status == NEO_OK && neo__jagged_is_there(buffer) && count > buffer->max_runs)
        writer.status = neo__jagged_more_runs(buffer, fn); /* each may be a source of its own */
    if (features != buffer->view.feature_count)
        writer.status = neo_fail(NEO_ERR_SHAPE,
                                 "%s: the result has %" PRId64 " features, the buffer is for %d",
                                 fn, features, buffer->view.feature_count);
    return writer;
}
/* Begin the first pass, then the second if all fits. 0: there is no pass to make. */
static int neo__jagged_pass(neo__jagged_writer *w) {
    if (w->pass == 1 && w->status == NEO_OK)
        w->status = neo__jagged_check_room(w->to, w->bags, w->ids, w->fn);
    if (w->pass == 1 && neo__jagged_is_there(w->to)) return 0;
    w->features = w->bags = w->ids = 0;
    w->to->feature_bags[0] = 0;
    return w->status == NEO_OK && ++w->pass <= 2;
}
/* ---- writers of a device: what its look has found ---- */
typedef struct neo__jagged_look {
    neo_jagged_buffer *to;
    const char *fn;
    int recorded;
} neo__jagged_look;
static neo_status neo__jagged_found(const neo_jagged_buffer *to, const neo__join_found *is,
                                    const char *fn) {
    const int feature = (int)is->feature;
    if (is->bag && is->is == NEO__JOIN_LIST)
        return neo_fail(NEO_ERR_FORMAT,
                        "%s: inverse of feature %d, sample %" PRId64 " is %" PRId64 ": it has %"
                        PRId64 " bags", fn, feature, is->sample, is->here, is->next);
    if (is->bag && is->is == NEO__JOIN_LENGTH)
        return neo_fail(NEO_ERR_FORMAT,
                        "%s: the length of feature %d, sample %" PRId64 " is %" PRId64, fn, feature,
                        is->sample, is->here);
    NEO__CHECK(!is->bag || is->here >= 0, NEO_ERR_FORMAT, "%s: offsets[%" PRId64 "] is %" PRId64,
               fn, is->at, is->here);
    NEO__CHECK(!is->bag, NEO_ERR_FORMAT,
               "%s: offsets decrease at feature %d, sample %" PRId64 ": offsets[%" PRId64
               "] is %" PRId64 ", the next is %" PRId64,
               fn, feature, is->sample, is->at, is->here, is->next);
    NEO__CHECK(!is->id, NEO_ERR_RANGE,
               "%s: id %" PRId64 " (number %" PRId64 " of its source) does not fit i32", fn,
               is->next, is->at);
    NEO__CHECK(is->ids >= 0, NEO_ERR_CAPACITY,
               "%s: 2^32 ids or more are needed, the buffer has room for %" PRId64, fn,
               to->max_ids);
    return neo__jagged_check_room(to, 0, is->ids, fn);
}
static neo_status neo__jagged_looked(void *job, const void *answer) {
    const neo__jagged_look *look = (const neo__jagged_look *)job;
    neo__join_found found;
    memcpy(&found, answer, sizeof found);
    const neo_status status = neo__jagged_found(look->to, &found, look->fn);
    if (status == NEO_OK || !look->recorded) return status;
    look->to->view.batch = 0; /* calls behind it have seen what was to come */
    look->to->view.feature_bags = NULL;
    look->to->view.inverse = NULL;
    return status;
}
/* Bring the noted runs to the buffer. */
static neo_status neo__jagged_join(neo_jagged_buffer *to, int64_t runs, int64_t sources,
                                   const int32_t *list, int64_t samples, const char *fn) {
    neo__jagged_look look = {to, fn, to->ctx->on->recording};
    const neo__later later = {neo__jagged_looked, &look, sizeof look};
    const neo__ids_run *last = to->run + runs - 1;
    NEO__ZERO(neo__join_call, call);
    call.run = to->run;
    call.runs = runs;
    call.source = to->source;
    call.sources = sources;
    call.list = list;
    call.samples = samples;
    call.bags = runs > 0 ? last->to + last->bags : 0;
    call.id_dtype = to->view.id_dtype;
    call.max_ids = to->max_ids;
    call.to_offsets = to->offsets;
    call.to_ids = to->ids;
    call.to_weights = to->weights;
    call.later = &later;
    return neo__device_join(to->ctx, &call);
}
static neo_status neo__jagged_join_parts(const neo__jagged_writer *writer) {
    const int32_t *list = NULL;
    int64_t samples = 0;
    for (int i = 0; i < writer->count; i++) {
        const neo_jagged *part = writer->parts[i];
        writer->to->source[i] = neo__ids_source_of(part);
        if (part->inverse) list = part->inverse, samples = part->batch; /* the only one */
    }
    writer->to->noted_bags[0] = 0;
    NEO__TRY(neo__jagged_join(writer->to, writer->runs, writer->count, list, samples, writer->fn));
    memcpy(writer->to->feature_bags, writer->to->noted_bags,
           (size_t)(writer->to->view.feature_count + 1) * sizeof *writer->to->feature_bags);
    return NEO_OK;
}
/* View the result: `batch` samples of every feature, or as many as feature_bags says. */
static neo_status neo__jagged_done(const neo__jagged_writer *w, int64_t batch,
                                   int has_feature_bags) {
    if (w->status != NEO_OK) return w->status;
    if (neo__jagged_is_there(w->to)) NEO__TRY(neo__jagged_join_parts(w));
    w->to->view.batch = has_feature_bags ? 0 : batch;
    w->to->view.feature_bags = has_feature_bags ? w->to->feature_bags : NULL;
    w->to->view.inverse = NULL;
    return NEO_OK;
}

NEO__HOT_BEGIN
static neo_status neo__jagged_check_batch(const neo_jagged_buffer *b, int64_t batch,
                                          const char *fn) {
    NEO__CHECK_LIVE(b, fn, "the buffer");
    int64_t features = b->view.feature_count;
    NEO__CHECK(batch >= 0 && (features == 0 || batch < INT64_MAX / 16 / features), NEO_ERR_ARG,
               "%s: batch is %" PRId64, fn, batch);
    return NEO_OK;
}
static neo_status neo__jagged_set_there(neo_jagged_buffer *buffer, int64_t batch,
                                        const neo__ids_source *source, const char *fn) {
    const neo__ids_run all = {buffer->view.feature_count * batch, 0, 0, 0, 1, 0, 0, 0};
    NEO__CHECK(source->ids || all.bags == 0, NEO_ERR_ARG, "%s: ids is NULL", fn);
    NEO__CHECK(source->ids != buffer->ids, NEO_ERR_ARG,
               "%s: ids are those of the buffer that is written", fn);
    NEO__TRY(neo__jagged_check_weights(buffer, source->weights, fn));
    buffer->run[0] = all;
    buffer->source[0] = *source;
    NEO__TRY(neo__jagged_join(buffer, 1, 1, NULL, 0, fn));
    buffer->view.batch = batch;
    buffer->view.feature_bags = NULL;
    buffer->view.inverse = NULL;
    return NEO_OK;
}
NEO_API neo_status neo_jagged_set(neo_jagged_buffer *buffer, int64_t batch, const void *lengths,
                                  neo_dtype length_dtype, const void *ids, neo_dtype id_dtype,
                                  const float *weights) {
    const char *fn = "neo_jagged_set";
    NEO__TRY(neo__jagged_check_batch(buffer, batch, fn));
    NEO__CHECK(length_dtype == NEO_I32 || length_dtype == NEO_I64, NEO_ERR_ARG,
               "%s: lengths are %s, not i32 or i64", fn, neo_dtype_name(length_dtype));
    NEO__CHECK(id_dtype == NEO_I32 || id_dtype == NEO_I64, NEO_ERR_ARG,
               "%s: ids are %s, not i32 or i64", fn, neo_dtype_name(id_dtype));
    int64_t bags = buffer->view.feature_count * batch, count = 0;
    int is_i32 = length_dtype == NEO_I32;
    NEO__CHECK(lengths || bags == 0, NEO_ERR_ARG, "%s: lengths is NULL", fn);
    NEO__TRY(neo__jagged_check_room(buffer, bags, 0, fn));
    if (neo__jagged_is_there(buffer)) {
        const neo__ids_source source = {NULL, lengths, ids, weights, length_dtype, id_dtype, batch};
        return neo__jagged_set_there(buffer, batch, &source, fn);
    }
    for (int64_t i = 0; i < bags; i++) {
        int64_t n = neo__jagged_id(lengths, is_i32, i);
        NEO__CHECK(n >= 0 && n <= INT64_MAX / 16 - count, NEO_ERR_FORMAT,
                   "%s: the length of feature %" PRId64 ", sample %" PRId64 " is %" PRId64, fn,
                   i / batch, i % batch, n);
        count += n;
    }
    NEO__TRY(neo__jagged_check_room(buffer, bags, count, fn));
    NEO__CHECK(ids || count == 0, NEO_ERR_ARG, "%s: ids is NULL", fn);
    NEO__CHECK(ids != buffer->ids, NEO_ERR_ARG, "%s: ids are those of the buffer that is written",
               fn);
    NEO__TRY(neo__jagged_check_weights(buffer, weights, fn));
    NEO__TRY(neo__jagged_check_fit(buffer, id_dtype, ids, 0, count, fn));
    for (int64_t i = 0; i < bags; i++)
        buffer->offsets[i + 1] = buffer->offsets[i] + neo__jagged_id(lengths, is_i32, i);
    neo__jagged_put(buffer, 0, id_dtype, ids, weights, 0, count);
    buffer->view.batch = batch;
    buffer->view.feature_bags = NULL;
    buffer->view.inverse = NULL;
    return NEO_OK;
}
NEO_API neo_status neo_jagged_from_lists(neo_jagged_buffer *buffer, int64_t batch,
                                         const int64_t *const *lists, const int64_t *counts) {
    const char *fn = "neo_jagged_from_lists";
    NEO__TRY(neo__jagged_check_batch(buffer, batch, fn));
    int64_t bags = buffer->view.feature_count * batch, offsets[2] = {0, 0};
    NEO__CHECK((lists && counts) || bags == 0, NEO_ERR_ARG, "%s: lists or counts is NULL", fn);
    NEO__TRY(neo__jagged_check_room(buffer, bags, 0, fn));
    NEO__ZERO(neo_jagged, list); /* as a source of one bag */
    list.id_dtype = NEO_I64;
    list.offsets = offsets;
    NEO__CHECK(!neo__jagged_is_there(buffer), NEO_ERR_UNSUPPORTED, "%s: the buffer is on a device",
               fn);
    neo__jagged_writer writer =
        neo__jagged_writer_make(buffer, buffer->view.feature_count, NULL, 0, fn);
    while (neo__jagged_pass(&writer)) {
        for (int64_t i = 0; i < bags; i++) {
            NEO__CHECK(counts[i] >= 0 && counts[i] <= INT64_MAX / 16 - writer.ids, NEO_ERR_FORMAT,
                       "%s: the count of feature %" PRId64 ", sample %" PRId64 " is %" PRId64, fn,
                       i / batch, i % batch, counts[i]);
            NEO__CHECK(lists[i] || counts[i] == 0, NEO_ERR_ARG,
                       "%s: the list of feature %" PRId64 ", sample %" PRId64 " is NULL", fn,
                       i / batch, i % batch);
            list.ids = lists[i];
            offsets[1] = counts[i];
            neo__jagged_add(&writer, &list, 0, 1);
            NEO__TRY(writer.status);
        }
    }
    return neo__jagged_done(&writer, batch, 0);
}
NEO_API neo_status neo_jagged_concat(neo_jagged_buffer *buffer, const neo_jagged *const *parts,
                                     int count) {
    const char *fn = "neo_jagged_concat";
    NEO__TRY(neo__jagged_check_sources(buffer, parts, count, 1, fn));
    int64_t features = 0;
    int has_feature_bags = 0;
    for (int i = 0; i < count; i++) {
        features += parts[i]->feature_count;
        if (parts[i]->feature_bags) has_feature_bags = 1;
    }
    for (int i = 0; i < count; i++)
        NEO__CHECK(has_feature_bags || parts[i]->batch == parts[0]->batch, NEO_ERR_SHAPE,
                   "%s: source %d has %" PRId64 " samples, source 0 has %" PRId64, fn, i,
                   parts[i]->batch, parts[0]->batch);
    neo__jagged_writer w = neo__jagged_writer_make(buffer, features, parts, count, fn);
    while (neo__jagged_pass(&w))
        for (int i = 0; i < count; i++)
            for (int32_t t = 0; t < parts[i]->feature_count; t++)
                neo__jagged_add_feature(&w, parts[i], t);
    return neo__jagged_done(&w, parts[0]->batch, has_feature_bags);
}
NEO_API neo_status neo_jagged_select(neo_jagged_buffer *buffer, const neo_jagged *in,
                                     const int32_t *features, int count) {
    const char *fn = "neo_jagged_select";
    NEO__TRY(neo__jagged_check_sources(buffer, &in, 1, 1, fn));
    NEO__CHECK(count >= 0 && (features || count == 0), NEO_ERR_ARG, "%s: no features are given",
               fn);
    for (int i = 0; i < count; i++)
        NEO__CHECK(features[i] >= 0 && features[i] < in->feature_count, NEO_ERR_RANGE,
                   "%s: features[%d] is %d, the batch has %d", fn, i, features[i],
                   in->feature_count);
    neo__jagged_writer w = neo__jagged_writer_make(buffer, count, &in, 1, fn);
    while (neo__jagged_pass(&w))
        for (int i = 0; i < count; i++) neo__jagged_add_feature(&w, in, features[i]);
    return neo__jagged_done(&w, in->batch, in->feature_bags != NULL);
}
NEO_API neo_status neo_jagged_slice(neo_jagged_buffer *buffer, const neo_jagged *in, int64_t first,
                                    int64_t count) {
    const char *fn = "neo_jagged_slice";
    NEO__TRY(neo__jagged_check_sources(buffer, &in, 1, 0, fn));
    NEO__CHECK(first >= 0 && count >= 0 && first <= in->batch && count <= in->batch - first,
               NEO_ERR_RANGE,
               "%s: %" PRId64 " samples from %" PRId64 " on are not within %" PRId64, fn, count,
               first, in->batch);
    neo__jagged_writer w = neo__jagged_writer_make(buffer, in->feature_count, &in, 1, fn);
    while (neo__jagged_pass(&w))
        for (int64_t t = 0; t < in->feature_count; t++)
            neo__jagged_add(&w, in, t * in->batch + first, count);
    return neo__jagged_done(&w, count, 0);
}
NEO_API neo_status neo_jagged_stack(neo_jagged_buffer *buffer, const neo_jagged *const *parts,
                                    int count) {
    const char *fn = "neo_jagged_stack";
    NEO__TRY(neo__jagged_check_sources(buffer, parts, count, 0, fn));
    const int32_t features = parts[0]->feature_count;
    int64_t batch = 0;
    for (int i = 0; i < count; i++) {
        NEO__CHECK(parts[i]->feature_count == features, NEO_ERR_SHAPE,
                   "%s: source %d has %d features, source 0 has %d", fn, i,
                   parts[i]->feature_count, features);
        batch += parts[i]->batch;
    }
    neo__jagged_writer w = neo__jagged_writer_make(buffer, features, parts, count, fn);
    while (neo__jagged_pass(&w))
        for (int32_t t = 0; t < features; t++)
            for (int i = 0; i < count; i++)
                neo__jagged_add(&w, parts[i], t * parts[i]->batch, parts[i]->batch);
    return neo__jagged_done(&w, batch, 0);
}
NEO_API neo_status neo_jagged_transpose(neo_jagged_buffer *buffer, const neo_jagged *in) {
    const char *fn = "neo_jagged_transpose";
    NEO__TRY(neo__jagged_check_sources(buffer, &in, 1, 0, fn));
    neo__jagged_writer w = neo__jagged_writer_make(buffer, in->feature_count, &in, 1, fn);
    const int there = neo__jagged_is_there(buffer);
    while (neo__jagged_pass(&w))
        for (int64_t t = 0; t < in->feature_count; t++)
            if (there) neo__jagged_note(&w, in, t, in->batch, in->feature_count, 0);
            else
                for (int64_t i = 0; i < in->batch; i++)
                    neo__jagged_add(&w, in, i * in->feature_count + t, 1);
    return neo__jagged_done(&w, in->batch, 0);
}
NEO_API neo_status neo_jagged_expand(neo_jagged_buffer *buffer, const neo_jagged *in) {
    const char *fn = "neo_jagged_expand";
    NEO__TRY(neo__jagged_check_sources(buffer, &in, 1, 2, fn));
    NEO__CHECK(in->inverse || !in->feature_bags, NEO_ERR_ARG,
               "%s: the batch has feature_bags, and no inverse", fn);
    neo__jagged_writer w = neo__jagged_writer_make(buffer, in->feature_count, &in, 1, fn);
    const int there = neo__jagged_is_there(buffer);
    while (neo__jagged_pass(&w))
        for (int32_t t = 0; t < in->feature_count; t++) {
            const int64_t first = neo__jagged_first_bag(in, t);
            const int64_t bags = neo__jagged_first_bag(in, t + 1) - first;
            w.feature = t;
            if (there) neo__jagged_note(&w, in, first, in->batch, 1, bags);
            else
                for (int64_t i = 0; i < in->batch; i++)
                    neo__jagged_add(&w, in, neo__jagged_bag(in, t, i), 1);
        }
    return neo__jagged_done(&w, in->batch, 0);
}
/* The place of an id among rows that rise, or -1. */
NEO__INLINE int64_t neo__jagged_find(const int64_t *rows, int64_t count, int64_t id) {
    int64_t first = 0;
    for (int64_t end = count; first < end;) {
        const int64_t mid = (first + end) / 2;
        if (rows[mid] < id) first = mid + 1;
        else end = mid;
    }
    return first < count && rows[first] == id ? first : -1;
}
/* Add feature t without its hot ids, or those alone. The first pass counts all with the former. */
static void neo__jagged_add_sifted(neo__jagged_writer *writer, const neo_jagged *in, int32_t t,
                                   const int64_t *rows, int64_t count, int hot) {
    if (writer->pass == 1 && !hot) neo__jagged_add(writer, in, t * in->batch, in->batch);
    else if (writer->pass == 1) writer->bags += in->batch;
    for (int64_t i = 0; i < in->batch && writer->pass == 2; i++) {
        const int64_t *offset = in->offsets + t * in->batch + i;
        for (int64_t k = offset[0]; k < offset[1]; k++) {
            const int64_t id = neo__jagged_id(in->ids, in->id_dtype == NEO_I32, k);
            const int64_t place = neo__jagged_find(rows, count, id);
            if ((place >= 0) == hot)
                neo__jagged_put(writer->to, writer->ids++, NEO_I64, hot ? &place : &id,
                                in->weights ? in->weights + k : NULL, 0, 1);
        }
        writer->to->offsets[++writer->bags] = writer->ids;
    }
}
NEO_API neo_status neo_jagged_split_hot(neo_jagged_buffer *buffer, const neo_jagged *in,
                                        const int64_t *const *rows, const int64_t *counts) {
    const char *fn = "neo_jagged_split_hot";
    NEO__CHECK(!buffer || !neo__jagged_is_there(buffer), NEO_ERR_UNSUPPORTED,
               "%s: the buffer is on a device", fn);
    NEO__TRY(neo__jagged_check_sources(buffer, &in, 1, 0, fn));
    int32_t features = in->feature_count;
    NEO__CHECK((rows && counts) || features == 0, NEO_ERR_ARG, "%s: rows or counts is NULL", fn);
    for (int32_t t = 0; t < in->feature_count; t++) features += counts[t] > 0;
    neo__jagged_writer w = neo__jagged_writer_make(buffer, features, &in, 1, fn);
    while (neo__jagged_pass(&w))
        for (int hot = 0; hot < 2; hot++)
            for (int32_t t = 0; t < in->feature_count; t++)
                if (!hot || counts[t] > 0)
                    neo__jagged_add_sifted(&w, in, t, rows[t], counts[t], hot);
    return neo__jagged_done(&w, in->batch, 0);
}
/* Distinct bags, whose numbers the list then has, go to the other arrays. */
static neo_status neo__jagged_fold_there(neo_jagged_buffer *buffer) {
    const neo_jagged *view = &buffer->view;
    neo_device *on = buffer->ctx->on;
    const neo__fold_call fold = {buffer->offsets,     buffer->ids,     buffer->weights,
                                 view->id_dtype,      view->feature_count, view->batch,
                                 buffer->inverse,     buffer->list,    buffer->noted_bags};
    if (on->recording) on->settle(on); /* what it folds is there, and sound */
    NEO__TRY(on->ids_fold(on, &fold));
    const int64_t bags = buffer->noted_bags[view->feature_count];
    const neo__ids_run all = {bags, 0, 0, 0, 1, view->feature_count * view->batch, 0, 0};
    NEO__ZERO(neo__join_call, call);
    const neo__ids_source source = neo__ids_source_of(view);
    call.run = &all, call.runs = 1, call.source = &source, call.sources = 1;
    call.list = buffer->list, call.bags = bags;
    call.id_dtype = view->id_dtype, call.max_ids = buffer->max_ids;
    call.to_offsets = buffer->spare_offsets, call.to_ids = buffer->spare_ids;
    call.to_weights = buffer->spare_weights;
    NEO__TRY(neo__device_join(buffer->ctx, &call));
    memcpy(buffer->feature_bags, buffer->noted_bags,
           (size_t)(view->feature_count + 1) * sizeof *buffer->feature_bags);
    int64_t *const offsets = buffer->offsets;
    void *const ids = buffer->ids;
    float *const weights = buffer->weights;
    buffer->view.offsets = buffer->offsets = buffer->spare_offsets;
    buffer->view.ids = buffer->ids = buffer->spare_ids;
    buffer->view.weights = buffer->weights = buffer->spare_weights;
    buffer->spare_offsets = offsets, buffer->spare_ids = ids, buffer->spare_weights = weights;
    return NEO_OK;
}
NEO_API neo_status neo_jagged_dedup(neo_jagged_buffer *buffer) {
    const char *fn = "neo_jagged_dedup";
    NEO__CHECK_LIVE(buffer, fn, "the buffer");
    neo_jagged *view = &buffer->view;
    NEO__CHECK(buffer->dedup, NEO_ERR_STATE, "%s: the buffer has no room (neo_jagged_desc.dedup)",
               fn);
    if (view->inverse || view->feature_count == 0) return NEO_OK;
    NEO__CHECK(!view->feature_bags, NEO_ERR_ARG, "%s: the batch has feature_bags", fn);
    NEO__CHECK(view->batch <= buffer->max_bags / view->feature_count && view->batch <= INT32_MAX,
               NEO_ERR_CAPACITY, "%s: %" PRId64 " samples of %d features, %" PRId64 " bags fit", fn,
               view->batch, view->feature_count, buffer->max_bags);
    if (neo__jagged_is_there(buffer)) NEO__TRY(neo__jagged_fold_there(buffer));
    else
        neo__jagged_fold(view->feature_count, view->batch, buffer->offsets, buffer->ids,
                         neo_dtype_size(view->id_dtype), buffer->weights, buffer->feature_bags,
                         buffer->inverse, buffer->place);
    view->feature_bags = buffer->feature_bags;
    view->inverse = buffer->inverse;
    return NEO_OK;
}
#endif

/* ---- weighted means ---- */
/* The sum of the n weights of a bag; 0: all of them are 0. Returns 0 if they cannot be divided by
   it. */
static int neo__weights_sum(const float *weights, int64_t n, double *sum) {
    double most = 0.0;
    *sum = 0.0;
    for (int64_t k = 0; k < n; k++) {
        *sum += (double)weights[k];
        most = NEO__MAX(most, fabs((double)weights[k]));
    }
    return most == 0.0 ? *sum == 0.0 : most / fabs(*sum) <= (double)FLT_MAX;
}
static void neo__weights_normalize(const float *weights, int64_t n, double sum, float *out) {
    for (int64_t k = 0; k < n; k++) out[k] = sum != 0.0 ? (float)((double)weights[k] / sum) : 0.0f;
}
static void neo__weights_normalize_backward(const float *weights, int64_t n, double sum,
                                            const float *dout, float *dweights) {
    double mean = 0.0;
    for (int64_t k = 0; k < n && sum != 0.0; k++)
        mean += (double)weights[k] / sum * (double)dout[k];
    for (int64_t k = 0; k < n; k++)
        dweights[k] = sum != 0.0 ? (float)(((double)dout[k] - mean) / sum) : 0.0f;
}
#if !defined(NEO_INFERENCE)
/* Check all bags, then write. dout NULL: forward. */
static neo_status neo__jagged_normalize(const neo_jagged *jagged, const float *dout, float *out,
                                        const char *fn) {
    NEO__TRY(neo__jagged_check(jagged, fn));
    NEO__CHECK(jagged->place == NEO_HOST, NEO_ERR_UNSUPPORTED, "%s: the batch is on a device", fn);
    NEO__TRY(neo__jagged_check_offsets(jagged, fn));
    if (neo_jagged_id_count(jagged) == 0) return NEO_OK;
    NEO__CHECK(jagged->weights && out, NEO_ERR_ARG, "%s: the batch has no weights, or out is NULL",
               fn);
    for (int pass = 1; pass <= 2; pass++)
        for (int32_t t = 0; t < jagged->feature_count; t++) {
            int64_t first = neo__jagged_first_bag(jagged, t),
                    end = neo__jagged_first_bag(jagged, t + 1);
            for (int64_t i = first; i < end; i++) {
                const int64_t k = jagged->offsets[i], n = jagged->offsets[i + 1] - k;
                double sum;
                NEO__CHECK(neo__weights_sum(jagged->weights + k, n, &sum), NEO_ERR_NUMERIC,
                           "%s: the weights of feature %d, sample %" PRId64 " sum to %.9g", fn, t,
                           i - first, sum);
                if (pass == 1) continue;
                if (dout)
                    neo__weights_normalize_backward(jagged->weights + k, n, sum, dout + k, out + k);
                else neo__weights_normalize(jagged->weights + k, n, sum, out + k);
            }
        }
    return NEO_OK;
}
NEO_API neo_status neo_jagged_normalize(const neo_jagged *j, float *out) {
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__jagged_normalize(j, NULL, out, "neo_jagged_normalize");
    neo__fp_leave(fp);
    return status;
}
NEO_API neo_status neo_jagged_normalize_backward(const neo_jagged *j, const float *dout,
                                                 float *dweights) {
    const char *fn = "neo_jagged_normalize_backward";
    NEO__CHECK(dout, NEO_ERR_ARG, "%s: dout is NULL", fn);
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__jagged_normalize(j, dout, dweights, fn);
    neo__fp_leave(fp);
    return status;
}
#endif
NEO__HOT_END
#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
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
                       b, 1 - b, k = 1 / (1 - b^t) are rounded from double to f32; b^t by squaring
     partial Adam      the same with one v per row: v = b2 v + ((1 - b2) mean(g^2))
     LAMB              u as Adam's;  u' = wd w + u;  r = |w| / |u'|, 1 if one of them is 0
                       w = -(lr r) u' + w
     partial LAMB      the same on partial Adam's u
     LARS-SGD          a = ((lr eta) |w|) / (wd |w| + |g|), 0 if that sum is 0
                       m = mu m + (a (wd w + g));  w = w - m
     FTRL              m = g g + m;  p = sqrt(m) + eps;  d = g + v
                       z = -(p w) (1 / lr) + d, or d if w = 0
                       c = -l1 > z ? -l1 : z, then l1 < c ? l1 : c;  w' = 0 if c = z, else
                       w' = (lr (c - (wd w + d))) / (lr wd + p) + w;  v = -wd w' + c
     max_norm n        if |w| > n: w = (n / |w|) w
   ------------------------------------------------------------------------ */

/* The needs of an optimizer, by its kind. */
enum { NEO__BAG_PER_ROW = 1, NEO__BAG_PER_ELEMENT = 2 };
typedef struct neo__bag_optim_traits {
    int8_t state[2];     /* 0: none, else one float per row or per element */
    int8_t accumulates;  /* state 0 begins at initial_accumulator */
    int8_t counts_steps; /* bias corrections depend on t */
    int8_t own_decay;    /* weight_decay is a part of its rule */
    int8_t cut_sums;     /* sums over a whole row; see neo__bag_cut_next */
} neo__bag_optim_traits;
static const neo__bag_optim_traits neo__bag_optims[NEO_BAG_OPTIM_COUNT] = {
    {{0, 0}, 0, 0, 0, 0},                                       /* SGD */
    {{NEO__BAG_PER_ELEMENT, 0}, 1, 0, 0, 0},                    /* Adagrad */
    {{NEO__BAG_PER_ROW, 0}, 1, 0, 0, 1},                        /* row-wise Adagrad */
    {{NEO__BAG_PER_ELEMENT, NEO__BAG_PER_ELEMENT}, 0, 1, 0, 0}, /* Adam */
    {{NEO__BAG_PER_ELEMENT, NEO__BAG_PER_ROW}, 0, 1, 0, 1},     /* partial Adam */
    {{NEO__BAG_PER_ELEMENT, NEO__BAG_PER_ELEMENT}, 0, 1, 1, 2}, /* LAMB */
    {{NEO__BAG_PER_ELEMENT, NEO__BAG_PER_ROW}, 0, 1, 1, 3},     /* partial LAMB */
    {{NEO__BAG_PER_ELEMENT, 0}, 0, 0, 1, 2},                    /* LARS-SGD */
    {{NEO__BAG_PER_ELEMENT, NEO__BAG_PER_ELEMENT}, 1, 0, 1, 0}, /* FTRL */
};
NEO__STATIC_ASSERT(NEO_BAG_FTRL == 8 && NEO_BAG_OPTIM_COUNT == 9, "a row for each kind");

/* Fill in the defaults. */
static neo_bag_optim neo__bag_optim_resolve(const neo_bag_optim *from) {
    neo_bag_optim o = *from;
    if (o.eps == 0.0f) o.eps = o.kind == NEO_BAG_FTRL ? 1.0f : 1e-8f;
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

static neo__bag_step neo__bag_step_make(const neo_bag_optim *optim, float lr, int64_t t) {
    NEO__ZERO(neo__bag_step, step);
    step.kind = optim->kind;
    step.lr = lr * optim->lr_scale;
    step.clip = optim->clip_gradient;
    step.l2 = optim->decay == NEO_DECAY_L2 ? optim->weight_decay : 0.0f;
    step.keep = 1.0f;
    if (optim->decay == NEO_DECAY_DECOUPLED) {
        float decay = step.lr * optim->weight_decay;
        step.keep = 1.0f - decay;
    }
    step.adjusts = step.clip > 0.0f || step.l2 != 0.0f || step.keep != 1.0f;
    step.decay = optim->weight_decay;
    step.eps = optim->eps;
    step.beta1 = (float)optim->beta1;
    step.beta2 = (float)optim->beta2;
    step.rest1 = (float)(1.0 - optim->beta1);
    step.rest2 = (float)(1.0 - optim->beta2);
    const int counts = neo__bag_optims[optim->kind].counts_steps;
    step.fix1 = counts ? neo__bag_bias_fix(optim->beta1, t) : 1.0f;
    step.fix2 = counts ? neo__bag_bias_fix(optim->beta2, t) : 1.0f;
    step.momentum = optim->momentum;
    step.eta = optim->eta;
    step.max_norm = optim->max_norm;
    step.ftrl = neo__ftrl_make(step.lr, optim->eps, optim->l1, optim->weight_decay);
    return step;
}
/* ---------------------------------------------------------------------------
   >>impl-bags

   The object: descriptions, memory, initial values, rows. Memory is one block of descriptions
   (tables, features, names), each table's weights and optimizer state, and a workspace sized by
   max_batch and max_ids, on the host and on a device. neo_bags_bytes and neo_bags_create run the
   same layout functions, once to count and once to cut.
   ------------------------------------------------------------------------ */
/* The keys of a table: see >>impl-bags-keys. */
typedef struct neo__bag_keys {
    neo_keys desc;
    neo__lines lines;     /* line i has row i */
    neo__lines waiting;   /* keys that wait for a row; no sets: none does */
    uint64_t *filter;     /* or these, [rows], a set's one after another: 4 blocks of 8 words */
    neo__job_keys job;
    neo_key_stats stats;
    void *memory;
    size_t bytes;
} neo__bag_keys;
typedef struct neo__bag_table {
    neo__job_table job;       /* what kernels read; copied to the record */
    char *name, *weight_name; /* weight_name: of the tensor, "<bags>.<table>.weight" */
    int64_t rows, dim;
    neo_bag_optim optim; /* defaults resolved */
    uint64_t name_hash;  /* of weight_name: rounding is keyed by it */
    int round_nearest, owns_weight;
    const uint64_t *line_row; /* of a tier below a device: the store's, in its memory */
    neo_bounds bounds; /* keyed: what stands for a key without a row is dropped */
    neo__bag_keys keys;
    int32_t *features, feature_count;
    int row_bits, low_bits; /* of a record: see >>impl-bags-backward */
    neo__row_marks marks;   /* bits NULL: not tracked */
    neo__init_call init;    /* on the CPU: of a block but for its place and number */
    int64_t first_block, blocks; /* of 2^block_bits rows; see neo__bags_made */
    int block_bits;
} neo__bag_table;

/* A row whose gradient is kept, at job.kept.sums + at. */
typedef struct neo__bag_slot {
    int64_t row, at;
    int32_t table;
} neo__bag_slot;

/* A feature in the batch of the running call. */
typedef struct neo__bag_feature {
    neo__job_feature job; /* what kernels read; copied to the record */
    int64_t col;          /* of out */
    int64_t first_id, ids;
    int64_t cost_begin; /* the cost of all features before */
    int64_t pack_task;  /* backward: tasks of all packed features before */
    int64_t bad;        /* atomic: ids out of range */
} neo__bag_feature;

/* A table in the backward of the running call: see >>impl-bags-backward. */
typedef struct neo__bag_merge {
    int whole, pack;
    int indirect; /* records have occurrence numbers, for grad_row and grad_weight */
    int64_t bags, count, kept; /* count: occurrences; kept: those not dropped */
    int64_t first;             /* where its occurrences begin in the buffers */
    uint64_t *from, *to;       /* its records, and room for as many */
    const float *grad;
    int64_t grad_stride;
    float *pack_to;
    int64_t first_chunk, chunks; /* of a sort that is shared */
    int64_t cost_begin;          /* of all shared tables before */
} neo__bag_merge;

/* NEO__BAG_COUNTS: digits of all passes of a sort on one thread, at most. NEO__BAG_CUT_SUMS: sums
   over a row that a step may need at most. */
enum {
    NEO__BAG_DIGIT_BITS = 9,
    NEO__BAG_DIGITS = 1 << NEO__BAG_DIGIT_BITS,
    NEO__BAG_COUNTS = 4096,
    NEO__BAG_CUT_SUMS = 4
};
NEO__STATIC_ASSERT((63 / NEO__BAG_DIGIT_BITS + 1) * NEO__BAG_DIGITS <= NEO__BAG_COUNTS,
                   "digits of a whole record");
/* A piece of a table whose sort is shared by all threads. */
typedef struct neo__bag_chunk {
    int64_t table, begin, end;
    int64_t count[NEO__BAG_DIGITS];
} neo__bag_chunk;

/* The lengths that memory depends on. */
typedef struct neo__bag_sizes {
    int64_t tables, features, shards, threads;
    int64_t max_batch, max_ids, max_kept_rows; /* as declared or reserved */
    int64_t rows, floats;                      /* of all tables */
    int64_t keys;                              /* of a device's records: see neo__bag_record_keys */
    int64_t mark_words;                        /* of all tracked tables */
    int64_t lazy_blocks;                       /* see neo__bags_made */
    int64_t width, max_dim;                    /* of out; of the widest table */
    int64_t cut_tables;                        /* tables cut by columns */
    int64_t cut_rows, cut_floats, cut_dim;     /* of all of these; of the widest */
    int64_t scratch, job_scratch;              /* floats to step a row: of the CPU, of a device */
    int64_t key_scratch;                       /* floats for sums of rows by keys; 0: no keys */
    int none, mean;   /* NEO_POOL_NONE; a table has NEO_POOL_MEAN */
    int inverse;      /* of the desc */
    int device, wide; /* wide: a device's keys have 64 bits */
    size_t name_bytes, temp_bytes; /* temp: of a device's sort */
} neo__bag_sizes;

/* Backward's walk over the tables of the running call; see >>impl-bags-backward. */
typedef struct neo__bags_walk {
    int of_kept; /* over the slots of what is kept, not over a batch */
    int64_t chunk_count, pack_tasks;
    int pass, passes;              /* of the shared sorts */
    int reuse;                     /* whole tables: buffers per worker, else per table */
    int64_t reuse_ids, reuse_pack; /* size of a worker's buffers */
    int64_t whole_ids, whole_pack; /* where the buffers of whole tables begin */
    const int64_t *rows;           /* of add_grad */
} neo__bags_walk;

/* Workspace of the CPU. Packed gradients are in job.room.stage. */
typedef struct neo__bags_work {
    uint64_t *records[2];
    int64_t *grad_row; /* see neo__bag_update */
    float *grad_weight;
    int64_t *leaf;         /* [tables][shards + 1] */
    int64_t *feature_leaf; /* [features][shards] */
    neo__bag_merge *merge; /* [tables + 1] */
    neo__bag_chunk *chunks;
    float *scratch; /* per worker sizes.scratch */
    /* With keys: of the batch's ids, their keys and rows (-1: none), of which the first `resolved`
       are still what the maps say. */
    uint64_t *keys;
    int64_t *rows, resolved;
    float *key_scratch; /* per worker sizes.key_scratch */
    /* On a device: a batch's offsets; rows whose first values are to come there, keys and numbers
       among those of all tables (~: zeros). */
    int64_t *offsets, *given[2];
    struct neo__bags_given *give; /* NULL: no such tables */
} neo__bags_work;
/* Rows that keys were ever given: so many were noted (atomic), and begun, which goes back where the
   calls are left out; the list has those from `base` on. A row leaves it when what begins it has
   been launched. */
typedef struct neo__bags_given {
    int64_t noted, begun, base, told; /* told: the most that were begun, which stays */
    uint32_t launched; /* neo_device.launched when the last was begun */
} neo__bags_given;

/* Gradients that are kept between calls. */
typedef struct neo__bags_kept {
    int64_t count, capacity; /* slots */
    /* On the CPU. */
    neo__bag_slot *slots;
    uint32_t *slot_of; /* hash table of (table, row): slot + 1, 0 is empty; mask + 1 of them */
    uint64_t mask;
    int64_t floats;   /* of all slots, in job.kept.sums */
    int64_t *keep_at; /* per record: see neo__bag_update */
    /* On a device: copies for the host of the rows [stage_first, stage_end) and their keys. */
    float *stage; /* [NEO__BAG_HOST_STAGE] or a row; on the CPU the job's */
    uint64_t *stage_keys;
    int64_t stage_first, stage_end;
    int stale; /* the hash table has keys of slots that are gone */
    int unknown; /* 1: a device has counted slots, count is a bound; 2: not even that */
} neo__bags_kept;

/* Tables cut by columns, whose steps need sums over whole rows. */
typedef struct neo__bags_cut_tables {
    neo_cut_sums_fn fn;
    void *user;
    neo_cut_sums *sums; /* of the running round */
    float *blocks, *totals;
    neo__job_cut *cuts; /* [tables], as the device has them */
    int there;          /* see neo__bags_cut_there */
} neo__bags_cut_tables;

/* The batch of the running call, which has been looked at: every offset and id. Forward's is taken
   again by the first backward that gets the same arrays if it is a copy on a device. The CPU looks
   again: ids in the caller's memory may have changed, and a bad id must not be trained. */
typedef struct neo__bags_view {
    neo_jagged batch; /* the caller's arrays */
    int64_t bags, ids;
    neo__bag_feature *features; /* [features + 1]: the last has the ends */
    int64_t cost;               /* of all bags, on the CPU */
    int fresh; /* a copy that has been looked at, and that no backward has taken */
    int64_t *copy_offsets; /* room on a device for a batch of the host; on the CPU, with
                              neo_bags_desc.inverse, for one written out */
    void *copy_ids;
    float *copy_weights;
    uint64_t *copy_keys; /* on a device, of tables with keys */
    /* Room on a device, with neo_bags_desc.inverse: for its copy, a batch written out, and pooled
       bags. */
    int32_t *copy_inverse;
    int64_t *full_offsets;
    void *full_ids;
    float *full_weights, *pooled;
    neo__ids_run *run; /* host, [features] */
} neo__bags_view;

/* First values on the CPU, by blocks of rows of 4 KB or less, counted through all tables. With
   lazy_init a block waits until its bit is set; else bits is NULL. A page of the system is touched
   as a whole in any case, and the bits of 10 GB stay in the cache. */
typedef struct neo__bags_made {
    uint64_t *bits;       /* set atomically by who makes the block */
    int64_t blocks, left; /* left: atomic; not made */
    int64_t ahead, first; /* all blocks before ahead have been made; first: see make_part */
} neo__bags_made;

/* A look at a batch, kept until its answer comes: by then the object may hold the next call. */
typedef struct neo__bags_look {
    neo_bags *b;
    const char *fn;
    int64_t bags, out_rows;
    int forward;
} neo__bags_look;

struct neo_bags {
    neo_ctx *ctx;
    neo__live live;
    char *name;
    neo__bag_sizes sizes;
    neo_bounds bounds;
    neo__bag_table *tables;
    int32_t *table_features; /* of all tables, table by table */
    uint64_t *mark_words;    /* likewise, of those that track rows */
    int64_t steps, out_of_range, grow_count;
    int64_t key_steps; /* by which keys age: steps, which weights loaded alone bring along */
    int64_t vouched;   /* 1 + the most ids of a batch that needs no look: see neo__bags_vouch */
    neo__bags_job job;   /* the record of the running call */
    neo__bags_view view; /* its batch, */
    neo__bags_look look; /* and the look at it, */
    int asked;           /* of which the answer is to be heard: see neo__bags_hear */
    neo__bags_walk walk; /* on the CPU: its backward */
    uint32_t forgotten;  /* neo_device.forgotten when the device was last sent something */
    neo__bags_given given;
    neo__bags_work work;
    neo__bags_kept kept;
    neo__bags_cut_tables cut;
    neo__bags_made made;
    struct neo_tier *tier; /* or NULL */
    struct {
        char *work, *device, *tables; /* tables: NULL if each block is by itself */
        size_t meta_bytes, work_bytes, device_bytes, table_bytes;
    } memory;
};

/* ---- layout: each function is a list of arrays, see neo__carve ---- */

/* Returns where the bits of rows begin, at the end: they may be gigabytes. */
static size_t neo__bags_meta_layout(const neo__bag_sizes *sizes, neo__carve *carve, neo_bags **bags,
                                    char **names) {
    NEO__ZERO(neo_bags, none);
    NEO__CARVE(carve, *bags, 1);
    neo_bags *to = *bags ? *bags : &none;
    NEO__CARVE(carve, to->tables, sizes->tables);
    NEO__CARVE(carve, to->view.features, sizes->features + 1);
    NEO__CARVE(carve, to->table_features, sizes->features);
    NEO__CARVE(carve, *names, sizes->name_bytes);
    const size_t bits = carve->at;
    NEO__CARVE(carve, to->mark_words, sizes->mark_words);
    NEO__CARVE(carve, to->made.bits, (sizes->lazy_blocks + 63) / 64);
    return bits;
}

/* The most pieces of a call, and of shared sorts. */
NEO__INLINE int64_t neo__bags_most_tasks(int64_t threads) {
    return threads == 1 ? 1 : 8 * threads;
}
/* Capacity for kept gradients, in rows and in floats. Backward itself keeps gradients for a moment:
   those of cut tables on the CPU, on a device all if a table is cut. */
static int64_t neo__bags_kept_rows(const neo__bag_sizes *s) {
    int64_t cut = s->device && s->cut_tables ? s->rows : s->cut_rows;
    return NEO__MIN(NEO__MAX(s->max_kept_rows, NEO__MIN(s->max_ids, cut)), s->rows);
}
static size_t neo__bags_kept_floats(const neo__bag_sizes *s) {
    size_t most = s->max_kept_rows ? (size_t)s->floats : (size_t)s->cut_floats;
    int64_t dim = s->max_kept_rows ? s->max_dim : s->cut_dim;
    return NEO__MIN(neo__size_mul((size_t)neo__bags_kept_rows(s), (size_t)dim), most);
}
/* Places of the hash table: at most half are used. */
static int64_t neo__bags_slot_places(int64_t rows) {
    int64_t n = rows ? 16 : 0;
    while (n < 2 * rows) n *= 2;
    return n;
}
/* Gradients of MEAN tables on a device, of all on the CPU. */
static size_t neo__bags_pack_floats(const neo__bag_sizes *s) {
    return neo__size_mul((size_t)s->max_batch, (size_t)s->width);
}
static void neo__bags_cut_layout(const neo__bag_sizes *s, neo__carve *c, neo__bags_cut_tables *to) {
    size_t rows = s->cut_tables ? (size_t)neo__bags_kept_rows(s) : 0;
    NEO__CARVE(c, to->blocks, neo__size_mul(rows, 2 * (size_t)neo__bag_blocks(s->cut_dim)));
    NEO__CARVE(c, to->totals, neo__size_mul(rows, NEO__BAG_CUT_SUMS));
    NEO__CARVE(c, to->sums, s->cut_tables ? s->tables : 0);
    NEO__CARVE(c, to->cuts, s->cut_tables ? s->tables : 0);
}
/* Floats of rows on their way between host and device: in the device's memory, in the host's. */
#ifndef NEO__BAG_STAGE
#define NEO__BAG_STAGE (1 << 20)
#endif
enum { NEO__BAG_HOST_STAGE = 1 << 14, NEO__BAG_CPU_STAGE = 1 << 10 };
/* The CPU's workspace. Rows on their way use the room for packed gradients. */
static void neo__bags_cpu_layout(const neo__bag_sizes *sizes, neo__carve *carve, neo_bags *to) {
    int64_t kept = neo__bags_kept_rows(sizes), ids = NEO__MAX(sizes->max_ids, kept);
    int64_t chunks = sizes->threads == 1 ? 0 : neo__bags_most_tasks(sizes->threads);
    if (kept) chunks = neo__bags_most_tasks(sizes->threads) + sizes->tables + 4;
    NEO__CARVE(carve, to->work.records[0], ids);
    NEO__CARVE(carve, to->work.records[1], ids);
    NEO__CARVE(carve, to->work.grad_row, ids);
    NEO__CARVE(carve, to->work.grad_weight, ids);
    neo__bags_job *job = &to->job;
    job->room.stage_floats = NEO__MAX(neo__bag_room(sizes->max_dim), (int64_t)NEO__BAG_CPU_STAGE);
    if (!sizes->none)
        job->room.stage_floats =
            (int64_t)NEO__MAX((size_t)job->room.stage_floats, neo__bags_pack_floats(sizes));
    NEO__CARVE(carve, job->room.stage, job->room.stage_floats);
    to->kept.stage = job->room.stage;
    job->fixed.max_ids = sizes->max_ids;
    job->kept.max = kept;
    NEO__CARVE(carve, to->work.leaf, sizes->tables * (sizes->shards + 1));
    NEO__CARVE(carve, to->work.feature_leaf, sizes->features * sizes->shards);
    NEO__CARVE(carve, to->work.merge, sizes->tables + 1);
    NEO__CARVE(carve, to->work.chunks, chunks);
    NEO__CARVE(carve, to->work.scratch, sizes->threads * sizes->scratch);
    NEO__CARVE(carve, to->kept.slots, kept);
    NEO__CARVE(carve, to->kept.slot_of, neo__bags_slot_places(kept));
    NEO__CARVE(carve, job->kept.sums, neo__bags_kept_floats(sizes));
    NEO__CARVE(carve, to->kept.keep_at, kept ? sizes->max_ids : 0);
    if (sizes->inverse) {
        size_t bags = neo__size_mul((size_t)sizes->max_batch, (size_t)sizes->features);
        NEO__CARVE(carve, to->view.copy_offsets, neo__size_add(bags, 1));
        neo__carve_next(carve, &to->view.copy_ids, sizeof(int64_t), (size_t)sizes->max_ids);
        NEO__CARVE(carve, to->view.copy_weights, sizes->max_ids);
    }
    job->fixed.tables = job->fixed.host_tables;
    job->told.features = job->told.host_features;
    job->told.rules = job->told.host_rules;
    job->cut.tables = to->cut.cuts;
    job->cut.blocks = to->cut.blocks;
    job->cut.totals = to->cut.totals;
}
/* Room for a batch with an inverse, written out. */
static void neo__bags_full_layout(const neo__bag_sizes *sizes, neo__carve *carve, neo_bags *to) {
    const size_t bags = neo__size_mul((size_t)sizes->max_batch, (size_t)sizes->features);
    NEO__CARVE(carve, to->view.full_offsets, neo__size_add(bags, 1));
    neo__carve_next(carve, &to->view.full_ids, sizeof(int64_t), (size_t)sizes->max_ids);
    NEO__CARVE(carve, to->view.full_weights, sizes->max_ids);
}
/* The host's part of the workspace. */
static void neo__bags_host_layout(const neo__bag_sizes *sizes, neo__carve *carve, neo_bags *to) {
    neo__bags_job *j = &to->job;
    NEO__CARVE(carve, j->fixed.host_tables, sizes->tables);
    NEO__CARVE(carve, j->told.host_features, sizes->features + 1);
    NEO__CARVE(carve, j->told.host_rules, sizes->tables);
    neo__bags_cut_layout(sizes, carve, &to->cut);
    const int64_t key_ids = sizes->key_scratch ? sizes->max_ids : 0;
    NEO__CARVE(carve, to->work.keys, key_ids);
    NEO__CARVE(carve, to->work.rows, key_ids);
    NEO__CARVE(carve, to->work.key_scratch, sizes->threads * sizes->key_scratch);
    if (!sizes->device) {
        neo__bags_cpu_layout(sizes, carve, to);
        return;
    }
    int64_t stage =
        sizes->max_kept_rows ? NEO__MAX(sizes->max_dim, (int64_t)NEO__BAG_HOST_STAGE) : 0;
    NEO__CARVE(carve, to->kept.stage, stage);
    NEO__CARVE(carve, to->kept.stage_keys, stage / sizes->max_dim);
    NEO__CARVE(carve, to->view.run, sizes->inverse ? sizes->features : 0);
    if (!sizes->key_scratch) return;
    if (sizes->inverse) neo__bags_full_layout(sizes, carve, to);
    const size_t bags = neo__size_mul((size_t)sizes->max_batch, (size_t)sizes->features);
    for (int i = 0; i < 2; i++) NEO__CARVE(carve, to->work.records[i], key_ids);
    for (int i = 0; i < 2; i++) NEO__CARVE(carve, to->work.given[i], key_ids);
    NEO__CARVE(carve, to->work.offsets, neo__size_add(bags, 1));
}
/* The device's part, beside rows and state. */
static void neo__bags_device_layout(const neo__bag_sizes *sizes, neo__carve *carve, neo_bags *to) {
    neo__bags_job *job = &to->job;
    size_t kept = (size_t)neo__bags_kept_rows(sizes), ids = (size_t)sizes->max_ids,
           records = NEO__MAX(ids, kept),
           key_bytes = sizes->wide ? sizeof(uint64_t) : sizeof(uint32_t),
           kept_records = kept ? records : 0, places = (size_t)neo__bags_slot_places((int64_t)kept);
    job->fixed.max_ids = sizes->max_ids;
    job->fixed.max_records = (int64_t)records;
    job->kept.max = (int64_t)kept;
    job->kept.hash_mask = (uint64_t)places - 1;
    job->room.scratch_floats = sizes->job_scratch;
    job->room.stage_floats = NEO__MAX(neo__bag_room(sizes->max_dim), (int64_t)NEO__BAG_STAGE);
    job->sorted.temp_bytes = sizes->temp_bytes;
    NEO__CARVE(carve, job->fixed.tables, sizes->tables);
    NEO__CARVE(carve, job->told.features, sizes->features + 1);
    NEO__CARVE(carve, job->told.rules, sizes->tables);
    NEO__CARVE(carve, job->batch.found, 1);
    size_t bags = neo__size_mul((size_t)sizes->max_batch, (size_t)sizes->features);
    NEO__CARVE(carve, to->view.copy_offsets, neo__size_add(bags, 1));
    neo__carve_next(carve, &to->view.copy_ids, sizeof(int64_t), ids);
    NEO__CARVE(carve, to->view.copy_weights, ids);
    NEO__CARVE(carve, job->fixed.keys, sizes->key_scratch ? sizes->tables : 0);
    NEO__CARVE(carve, to->view.copy_keys, sizes->key_scratch ? ids : 0);
    if (sizes->inverse) {
        NEO__CARVE(carve, to->view.copy_inverse, bags);
        if (!sizes->key_scratch) neo__bags_full_layout(sizes, carve, to);
        NEO__CARVE(carve, to->view.pooled, neo__bags_pack_floats(sizes));
    }
    for (int i = 0; i < 2; i++) {
        neo__carve_next(carve, &job->sorted.keys[i], key_bytes, records);
        NEO__CARVE(carve, job->sorted.values[i], records);
    }
    NEO__CARVE(carve, job->sorted.grad_at, ids);
    NEO__CARVE(carve, job->sorted.packed, sizes->mean ? neo__bags_pack_floats(sizes) : 0);
    const size_t parts =
        NEO__MIN(records / NEO__JOB_PART, NEO__JOB_PARTS + 2 * records / NEO__JOB_LONG);
    job->sorted.max_parts = records > NEO__JOB_LONG ? (int64_t)parts : 0;
    NEO__CARVE(carve, job->sorted.parts, 2 + parts);
    NEO__CARVE(carve, job->sorted.part_sums,
               neo__size_mul((size_t)job->sorted.max_parts, (size_t)neo__bag_room(sizes->max_dim)));
    neo__carve_next(carve, &job->sorted.temp, 1, job->sorted.temp_bytes);
    job->room.scratch = NULL;
    if (sizes->job_scratch > NEO__JOB_SHARED_FLOATS)
        NEO__CARVE(carve, job->room.scratch,
                   neo__size_mul(NEO__JOB_VECTORS, (size_t)sizes->job_scratch));
    NEO__CARVE(carve, job->room.stage, job->room.stage_floats);
    NEO__CARVE(carve, job->kept.slot_key, kept);
    NEO__CARVE(carve, job->kept.counted, kept ? NEO__BAG_COUNTED : 0);
    NEO__CARVE(carve, job->kept.hash_key, places);
    NEO__CARVE(carve, job->kept.hash_slot, places);
    NEO__CARVE(carve, job->kept.fresh, kept ? records + 1 : 0);
    NEO__CARVE(carve, job->kept.place, kept ? records + 1 : 0);
    NEO__CARVE(carve, job->kept.keep_at, kept_records);
    NEO__CARVE(carve, job->kept.sums, neo__size_mul(kept, (size_t)sizes->max_dim));
    job->kept.unit = sizes->max_dim;
    if (!sizes->cut_tables) return;
    NEO__CARVE(carve, job->cut.tables, sizes->tables);
    NEO__CARVE(carve, job->cut.row, kept);
    NEO__CARVE(carve, job->cut.blocks,
               neo__size_mul(kept, 2 * (size_t)neo__bag_blocks(sizes->cut_dim)));
    NEO__CARVE(carve, job->cut.totals, neo__size_mul(kept, NEO__BAG_CUT_SUMS));
    NEO__CARVE(carve, job->cut.scratch, NEO__JOB_VECTORS * 5 * neo__bag_room(sizes->max_dim));
}
/* The bytes of a workspace: on the host, on the device. */
static void neo__bags_work_bytes(const neo__bag_sizes *s, size_t *host, size_t *device) {
    neo__carve count = {NULL, 0}, device_count = {NULL, 0};
    NEO__ZERO(neo_bags, none);
    neo__bags_host_layout(s, &count, &none);
    if (s->device) neo__bags_device_layout(s, &device_count, &none);
    *host = count.at;
    *device = device_count.at;
}

/* ---- descriptions: checks ---- */
static int neo__bags_finite(float x) { return x - x == 0.0f; }
static neo_status neo__bag_optim_check(const neo_bag_optim *optim, const char *fn,
                                       const char *table) {
    NEO__CHECK((unsigned)optim->kind < NEO_BAG_OPTIM_COUNT, NEO_ERR_ARG,
               "%s: table '%s': optimizer %d does not exist", fn, table, (int)optim->kind);
    NEO__CHECK((unsigned)optim->decay <= NEO_DECAY_DECOUPLED, NEO_ERR_ARG,
               "%s: table '%s': decay mode %d does not exist", fn, table, (int)optim->decay);
    const int own_decay = neo__bag_optims[optim->kind].own_decay;
    NEO__CHECK(!own_decay || optim->decay == NEO_DECAY_NONE, NEO_ERR_ARG,
               "%s: table '%s': LAMB, LARS and FTRL apply weight_decay by themselves: leave decay "
               "at NEO_DECAY_NONE",
               fn, table);
    NEO__CHECK(own_decay || optim->decay != NEO_DECAY_NONE || optim->weight_decay == 0.0f,
               NEO_ERR_ARG, "%s: table '%s': weight_decay is %g and decay is NEO_DECAY_NONE", fn,
               table, (double)optim->weight_decay);
    const struct {
        const char *name;
        float value;
    } field[] = {{"weight_decay", optim->weight_decay},
                 {"eps", optim->eps},
                 {"initial_accumulator", optim->initial_accumulator},
                 {"l1", optim->l1},
                 {"momentum", optim->momentum},
                 {"eta", optim->eta},
                 {"lr_scale", optim->lr_scale},
                 {"clip_gradient", optim->clip_gradient},
                 {"max_norm", optim->max_norm}};
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        NEO__CHECK(neo__bags_finite(field[i].value) && field[i].value >= 0.0f, NEO_ERR_ARG,
                   "%s: table '%s': %s is %g, not a finite number from 0 up", fn, table,
                   field[i].name, (double)field[i].value);
    NEO__CHECK(optim->beta1 < 1.0 && optim->beta2 < 1.0, NEO_ERR_ARG,
               "%s: table '%s': betas %g, %g are not below 1", fn, table, optim->beta1,
               optim->beta2);
    return NEO_OK;
}

/* Sums over whole rows that a step needs: how many can be had next when `have` are there. Partial
   LAMB's direction needs the mean of the squares, and the norms the direction. */
static int neo__bag_cut_next(const neo_bag_optim *o, int have) {
    const int sums = neo__bag_optims[o->kind].cut_sums;
    if (o->kind == NEO_BAG_PARTIAL_LAMB && have == 0) return 1;
    if (have < sums) return sums - have;
    return have == sums && o->max_norm > 0.0f;
}
NEO_API int neo_bag_cut_rounds(const neo_bag_optim *optim) {
    int rounds = 0;
    for (int have = 0, next; (next = neo__bag_cut_next(optim, have)) > 0; have += next) rounds++;
    return rounds;
}
/* A step of this table needs sums over columns that another object has. */
static int neo__bag_is_cut(const neo_table_desc *t) {
    return t->part.rows && t->dim < t->part.dim && neo__bag_cut_next(&t->optim, 0) > 0;
}
static neo_status neo__bag_part_check(const neo_bags_desc *desc, const neo_table_desc *t,
                                      const char *fn) {
    neo_table_part part = t->part;
    if (part.rows == 0 && part.dim == 0 && part.first_row == 0 && part.first_col == 0)
        return NEO_OK;
    NEO__CHECK(part.first_row >= 0 && part.first_col >= 0 &&
                   part.first_row <= part.rows - t->rows && part.first_col <= part.dim - t->dim,
               NEO_ERR_ARG,
               "%s: table '%s': rows from %" PRId64 " and columns from %" PRId64 " of %" PRId64
               " x %" PRId64 " do not hold a part of %" PRId64 " x %" PRId64,
               fn, t->name, part.first_row, part.first_col, part.rows, part.dim, t->rows, t->dim);
    NEO__CHECK(part.first_col % 16 == 0 &&
                   (t->dim % 16 == 0 || part.first_col + t->dim == part.dim),
               NEO_ERR_ARG,
               "%s: table '%s': columns [%" PRId64 ", %" PRId64 ") of %" PRId64
               " are not cut at multiples of 16",
               fn, t->name, part.first_col, part.first_col + t->dim, part.dim);
    NEO__CHECK(t->dtype != NEO_I8 || t->dim == part.dim, NEO_ERR_UNSUPPORTED,
               "%s: table '%s': i8 rows have one scale each: cut the table by rows, not by columns",
               fn, t->name);
    NEO__CHECK(!neo__bag_is_cut(t) || desc->cut_sums, NEO_ERR_ARG,
               "%s: table '%s': its optimizer needs sums over whole rows: give cut_sums", fn,
               t->name);
    int32_t buckets = t->row_buckets > 1 && t->rows < part.rows ? t->row_buckets : 0;
    for (int side = 0; side < 2 && buckets; side++) {
        int64_t row = part.first_row + side * t->rows;
        int64_t begin =
            neo__bucket_begin(part.rows, buckets, neo__bucket_of(part.rows, buckets, row));
        NEO__CHECK(row == part.rows || row == begin, NEO_ERR_ARG,
                   "%s: table '%s': row %" PRId64 " is not where one of %d buckets begins", fn,
                   t->name, row, buckets);
    }
    return NEO_OK;
}
static neo_status neo__bag_keys_check(const neo_table_desc *table, const char *fn) {
    const neo_keys *keys = &table->keys;
    const int64_t all = table->part.rows ? table->part.rows : table->rows;
    const int64_t unit = (int64_t)NEO__LINE_WAYS * NEO__MAX(table->row_buckets, 1);
    const char *given = keys->evict    ? "evict"
                        : keys->period ? "period"
                        : keys->admit  ? "admit"
                        : keys->shared ? "shared"
                        : keys->bloom  ? "bloom"
                        : keys->sums   ? "sums"
                                       : NULL;
    NEO__CHECK(keys->on || !given || !NEO__TRAINS, NEO_ERR_ARG,
               "%s: table '%s': keys.%s is given, and keys.on is 0", fn, table->name, given);
    if (!keys->on) return NEO_OK;
    NEO__CHECK(all % unit == 0 && (table->rows | table->part.first_row) % NEO__LINE_WAYS == 0 &&
                   all / NEO__LINE_WAYS < UINT32_MAX,
               NEO_ERR_ARG,
               "%s: table '%s': %" PRId64 " rows for keys are no multiple of %" PRId64
               " (32 times row_buckets); the next is %" PRId64,
               fn, table->name, all, unit, all / unit * unit + unit);
    NEO__CHECK((unsigned)keys->evict <= NEO_EVICT_SCORE, NEO_ERR_ARG,
               "%s: table '%s': keys: evict %d does not exist", fn, table->name, (int)keys->evict);
    NEO__CHECK(!NEO__TRAINS || keys->on == 1, NEO_ERR_ARG,
               "%s: table '%s': keys.on is %d, not 0 or 1", fn, table->name, keys->on);
    NEO__CHECK(!NEO__TRAINS || keys->period <= 0 || keys->evict == NEO_EVICT_LFU ||
                   keys->evict == NEO_EVICT_AGE,
               NEO_ERR_ARG,
               "%s: table '%s': keys: period %" PRId64 " is of LFU and AGE, and evict is %s", fn,
               table->name, keys->period, keys->evict == NEO_EVICT_LRU ? "LRU" : "SCORE");
    NEO__CHECK(!NEO__TRAINS || !keys->bloom || keys->admit > 1, NEO_ERR_ARG,
               "%s: table '%s': keys: bloom, but with admit %" PRId64 " no key waits", fn,
               table->name, keys->admit);
    NEO__CHECK(keys->period >= (keys->evict == NEO_EVICT_AGE), NEO_ERR_ARG,
               "%s: table '%s': keys: period %" PRId64 " is below %s", fn, table->name,
               keys->period, keys->evict == NEO_EVICT_AGE ? "1, which NEO_EVICT_AGE needs" : "0");
    NEO__CHECK(keys->admit >= 0 && (!keys->bloom || keys->admit <= 15), NEO_ERR_ARG,
               "%s: table '%s': keys: admit %" PRId64 " is not from 0 %s", fn, table->name,
               keys->admit, keys->bloom ? "to 15, with bloom" : "up");
    NEO__CHECK(!keys->sums || keys->evict == NEO_EVICT_SCORE, NEO_ERR_ARG,
               "%s: table '%s': keys: sums of scores, but evict is %d, not NEO_EVICT_SCORE", fn,
               table->name, (int)keys->evict);
    NEO__CHECK(table->init.kind != NEO_INIT_NONE, NEO_ERR_ARG,
               "%s: table '%s': rows of keys come and go: they need initial values", fn,
               table->name);
    return NEO_OK;
}
static neo_status neo__bag_table_check(const neo_ctx *ctx, const neo_bags_desc *desc, int32_t t,
                                       const char *fn) {
    const neo_table_desc *table = &desc->tables[t];
    NEO__CHECK(table->name && table->name[0], NEO_ERR_ARG, "%s: table %d has no name", fn, t);
    for (int32_t i = 0; i < t; i++)
        NEO__CHECK(strcmp(desc->tables[i].name, table->name) != 0 ||
                       (table->part.rows && desc->tables[i].part.rows == table->part.rows),
                   NEO_ERR_ARG, "%s: tables %d and %d are both named '%s'", fn, i, t, table->name);
    const char *name = table->name;
    NEO__CHECK(table->rows > 0 && table->dim > 0, NEO_ERR_ARG,
               "%s: table '%s': rows %" PRId64 " and dim %" PRId64 " must be above 0%s", fn, name,
               table->rows, table->dim,
               table->rows ? "" : " (a feature has no rows while its schema is not fitted)");
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
    NEO__CHECK((table->pooling == NEO_POOL_NONE) == (desc->tables[0].pooling == NEO_POOL_NONE),
               NEO_ERR_ARG, "%s: table '%s': NEO_POOL_NONE is for all tables or for none", fn,
               name);
    NEO__CHECK(table->pooling != NEO_POOL_NONE || table->dim == desc->tables[0].dim, NEO_ERR_ARG,
               "%s: table '%s': dim is %" PRId64 ", not %" PRId64
               ": under NEO_POOL_NONE all are alike",
               fn, name, table->dim, desc->tables[0].dim);
    NEO__CHECK(table->row_buckets >= 0 && table->row_buckets <= 4096 &&
                   (table->row_buckets <= 1 || table->rows < INT64_MAX / 8192),
               NEO_ERR_ARG, "%s: table '%s': row_buckets is %d, not in 0 .. 4096", fn, name,
               table->row_buckets);
    NEO__CHECK((unsigned)table->init.kind <= NEO_INIT_NORMAL, NEO_ERR_ARG,
               "%s: table '%s': init kind %d does not exist", fn, name, (int)table->init.kind);
    NEO__CHECK(!table->track_rows || !ctx->device, NEO_ERR_UNSUPPORTED,
               "%s: table '%s': track_rows is not on a device yet", fn, name);
    NEO__CHECK(table->tier_share >= 0.0 && table->tier_share - table->tier_share == 0.0,
               NEO_ERR_ARG, "%s: table '%s': tier_share is %g, not a finite number from 0 up", fn,
               name, table->tier_share);
    NEO__TRY(neo__bag_part_check(desc, table, fn));
    return neo__bag_optim_check(&table->optim, fn, name);
}

static neo_status neo__bags_check_kept_rows(int64_t rows, const char *fn) {
    NEO__CHECK(rows >= 0 && rows < INT32_MAX, NEO_ERR_ARG,
               "%s: max_kept_rows is %" PRId64 ", not in 0 .. 2^31", fn, rows);
    return NEO_OK;
}

static neo_status neo__bags_desc_check(const neo_ctx *ctx, const neo_bags_desc *desc,
                                       const char *fn) {
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "%s: desc is NULL", fn);
    NEO__CHECK(desc->tables && desc->table_count > 0, NEO_ERR_ARG, "%s: no tables are given", fn);
    for (int32_t t = 0; t < desc->table_count; t++) {
        NEO__TRY(neo__bag_table_check(ctx, desc, t, fn));
        NEO__TRY(neo__bag_keys_check(&desc->tables[t], fn));
    }
    NEO__CHECK(desc->feature_table
                   ? desc->feature_count > 0
                   : desc->feature_count == 0 || desc->feature_count == desc->table_count,
               NEO_ERR_ARG, "%s: feature_count is %d %s feature_table", fn, desc->feature_count,
               desc->feature_table ? "with a" : "without a");
    for (int32_t f = 0; desc->feature_table && f < desc->feature_count; f++)
        NEO__CHECK(desc->feature_table[f] >= 0 && desc->feature_table[f] < desc->table_count,
                   NEO_ERR_ARG, "%s: feature_table[%d] is %d, there are %d tables", fn, f,
                   desc->feature_table[f], desc->table_count);
    NEO__CHECK(desc->max_batch > 0 && desc->max_ids > 0, NEO_ERR_ARG,
               "%s: max_batch %" PRId64 " and max_ids %" PRId64 " must be above 0", fn,
               desc->max_batch, desc->max_ids);
    NEO__CHECK((unsigned)desc->bounds <= NEO_BOUNDS_CLAMP, NEO_ERR_ARG,
               "%s: bounds policy %d does not exist", fn, (int)desc->bounds);
    NEO__CHECK(desc->tier_taken >= 0 && desc->tier_taken < INT64_MAX / 2, NEO_ERR_ARG,
               "%s: tier_taken is %" PRId64 ", not in 0 .. 2^62", fn, desc->tier_taken);
    return neo__bags_check_kept_rows(desc->max_kept_rows, fn);
}

static int32_t neo__bags_feature_table(const neo_bags_desc *d, int64_t f) {
    return d->feature_table ? d->feature_table[f] : (int32_t)f;
}
static const char *neo__bags_desc_name(const neo_bags_desc *d) {
    return d->name ? d->name : "bags";
}

/* Floats of a worker: a row, two for its rounding, its scale, initial rows, sums of buckets. */
static int64_t neo__bag_keys_scratch(int64_t dim) {
    return (3 + NEO__PART_DEPTH) * neo__bag_room(dim) + 16 +
           neo__bag_room(neo__bag_group(dim) * (dim + 6));
}
static void neo__bag_keys_describe(neo__bag_keys *keys, const neo_table_desc *from) {
    neo__lines *lines = &keys->lines;
    memset(keys, 0, sizeof *keys);
    keys->desc = from->keys;
    if (!from->keys.on) return;
    lines->sets = from->rows / NEO__LINE_WAYS;
    lines->first_set = from->part.first_row / NEO__LINE_WAYS;
    lines->all_sets = (from->part.rows ? from->part.rows : from->rows) / NEO__LINE_WAYS;
    keys->waiting = *lines;
    lines->evict = from->keys.evict;
    lines->period = from->keys.period;
    if (from->keys.admit <= 1 || from->keys.bloom) keys->waiting.sets = 0;
    keys->job.first_col = from->part.first_col;
    keys->job.on = 1;
    keys->job.shared = from->keys.shared;
}
static void neo__bag_keys_layout(neo__bag_keys *keys, neo__carve *carve) {
    const int filters = keys->desc.on && keys->desc.bloom && keys->desc.admit > 1;
    neo__lines_layout(carve, &keys->lines);
    neo__lines_layout(carve, &keys->waiting);
    NEO__CARVE(carve, keys->filter, filters ? keys->lines.sets * NEO__LINE_WAYS : 0);
    if (!filters) keys->filter = NULL;
}
static size_t neo__bag_keys_bytes(const neo_table_desc *table) {
    neo__bag_keys keys;
    neo__carve count = {NULL, 0};
    neo__bag_keys_describe(&keys, table);
    neo__bag_keys_layout(&keys, &count);
    return count.at;
}
static int neo__bits_for(uint64_t largest) { return largest ? 64 - __builtin_clzll(largest) : 0; }
/* log2 of the rows in a block of first values. */
static int neo__bag_block_bits(const neo_table_desc *table) {
    const int64_t row_bytes = table->dim * (int64_t)neo_dtype_size(table->dtype);
    return neo__bits_for((uint64_t)NEO__MAX(4096 / row_bytes, INT64_C(1))) - 1;
}
/* Keys of a table's records: rows, or lines, which are less than twice as many and 33. */
static int64_t neo__bag_record_keys(const neo_ctx *ctx, const neo_bags_desc *desc, int64_t table) {
    const int64_t rows = desc->tables[table].rows;
    return ctx->device && desc->tier ? 2 * rows + 33 : rows;
}
static neo__bag_sizes neo__bags_sizes_of(const neo_ctx *ctx, const neo_bags_desc *desc) {
    NEO__ZERO(neo__bag_sizes, sizes);
    sizes.tables = desc->table_count;
    sizes.features = desc->feature_table ? desc->feature_count : desc->table_count;
    sizes.shards = ctx->repro_shards;
    sizes.threads = ctx->threads;
    sizes.max_batch = desc->max_batch;
    sizes.max_ids = desc->max_ids;
    sizes.none = desc->tables[0].pooling == NEO_POOL_NONE;
    sizes.max_kept_rows = desc->max_kept_rows;
    sizes.inverse = desc->inverse;
    sizes.name_bytes = strlen(neo__bags_desc_name(desc)) + 1;
    for (int32_t t = 0; t < desc->table_count; t++) {
        const neo_table_desc *table = &desc->tables[t];
        int64_t floats = table->rows * table->dim;
        sizes.rows += table->rows;
        sizes.keys += neo__bag_record_keys(ctx, desc, t);
        sizes.floats += floats;
        if (table->track_rows) sizes.mark_words += (table->rows + 63) / 64;
        if (desc->lazy_init && !desc->tier && !ctx->device && !table->keys.on)
            sizes.lazy_blocks += ((table->rows - 1) >> neo__bag_block_bits(table)) + 1;
        if (neo__bag_is_cut(table)) {
            sizes.cut_tables++;
            sizes.cut_rows += table->rows;
            sizes.cut_floats += floats;
            sizes.cut_dim = NEO__MAX(sizes.cut_dim, table->dim);
        }
        sizes.max_dim = NEO__MAX(sizes.max_dim, table->dim);
        int64_t narrow = neo__bag_narrow_scratch(table->dtype, table->dim);
        sizes.scratch =
            NEO__MAX(sizes.scratch, neo__bag_room(neo__bag_scratch(table->dim) + narrow));
        sizes.name_bytes +=
            2 * strlen(desc->tables[t].name) + strlen(neo__bags_desc_name(desc)) + 10;
        sizes.mean |= table->pooling == NEO_POOL_MEAN;
        if (table->keys.on)
            sizes.key_scratch = NEO__MAX(sizes.key_scratch, neo__bag_keys_scratch(table->dim));
        sizes.job_scratch = NEO__MAX(sizes.job_scratch, neo__job_scratch(table->dtype, table->dim));
    }
    for (int64_t f = 0; f < sizes.features; f++)
        sizes.width += desc->tables[neo__bags_feature_table(desc, f)].dim;
    sizes.device = ctx->device != NULL;
    sizes.wide =
        neo__bits_for((uint64_t)sizes.keys) + neo__bits_for((uint64_t)sizes.shards - 1) > 32;
    return sizes;
}
/* The room that the device needs to sort, when the capacities are known or have changed. */
static void neo__bags_ask_device(const neo_ctx *ctx, neo__bag_sizes *s) {
    int64_t records = NEO__MAX(s->max_ids, neo__bags_kept_rows(s));
    if (s->device) s->temp_bytes = ctx->device->bags_temp_bytes(ctx->device, records, s->wide);
}

/* A table for kernels. Addresses come with its memory. */
static void neo__bag_describe_job(neo__job_table *table, const neo_ctx *ctx,
                                  const neo_bags_desc *desc, int32_t t, int64_t first_key) {
    const neo_table_desc *from = &desc->tables[t];
    const int is_part = from->part.rows != 0;
    const int64_t part_dim = is_part ? from->part.dim : from->dim;
    memset(table, 0, sizeof *table);
    table->store.dtype = from->dtype;
    table->store.data = (char *)from->weight;
    table->store.dim = from->dim;
    table->store.row_bytes = from->dim * (int64_t)neo_dtype_size(from->dtype);
    table->store.first = (uint64_t)(from->part.first_row * part_dim + from->part.first_col);
    table->store.stride = (uint64_t)part_dim;
    for (int k = 0; k < 2; k++) {
        int per = neo__bag_optims[from->optim.kind].state[k];
        table->state_dim[k] = per == NEO__BAG_PER_ELEMENT ? from->dim : per;
    }
    const int64_t lines = desc->tier ? desc->tier->ops->lines(desc->tier, ctx, desc, t) : 0;
    table->rows = lines ? lines : from->rows;
    table->first_key = first_key;
    table->bucket_rows = is_part ? from->part.rows : from->rows;
    table->first_row = from->part.first_row;
    table->buckets = from->row_buckets ? from->row_buckets : 1;
    table->mean = from->pooling == NEO_POOL_MEAN;
    table->cut = neo__bag_is_cut(from);
}
static size_t neo__bag_block_bytes(const neo__job_table *t, int block) {
    return neo__size_mul((size_t)t->rows, (size_t)neo__bag_part(t, block));
}
/* block[]: those of a table that are not the caller's. All tables lie in one block of memory: huge
   pages then serve many small ones. Those of a tier come and go, each by itself. */
static void neo__bag_carve_blocks(neo__carve *carve, const neo__job_table *t, void **block) {
    for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
        const int given = k == NEO__BAG_WEIGHTS && t->store.data;
        neo__carve_next(carve, &block[k], 1, given ? 0 : neo__bag_block_bytes(t, k));
    }
}

/* Bits of backward's records: the row above, a bag or an occurrence below. */
static void neo__bag_record_bits(neo__bag_table *t, int64_t max_batch,
                                 int64_t max_ids) { /* max_ids: or rows kept */
    int64_t bags = (int64_t)neo__size_mul((size_t)max_batch, (size_t)t->feature_count);
    int64_t rows = NEO__MAX(t->rows, t->job.rows); /* or lines */
    t->row_bits = neo__bits_for((uint64_t)(t->bounds == NEO_BOUNDS_DROP ? rows : rows - 1));
    t->low_bits = neo__bits_for((uint64_t)NEO__MAX(bags, max_ids));
}
static neo_status neo__bags_record_check(const neo_bags *bags, const neo__bag_sizes *sizes,
                                         const char *fn) {
    int64_t max_batch = sizes->max_batch,
            max_ids = NEO__MAX(sizes->max_ids, neo__bags_kept_rows(sizes));
    NEO__CHECK(!sizes->device || max_ids < INT32_MAX, NEO_ERR_UNSUPPORTED,
               "%s: bags '%s': %" PRId64 " ids or kept rows; on a device below 2^31 - 1", fn,
               bags->name, max_ids);
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        neo__bag_table t = bags->tables[i];
        neo__bag_record_bits(&t, max_batch, max_ids);
        NEO__CHECK(t.row_bits + t.low_bits <= 64, NEO_ERR_UNSUPPORTED,
                   "%s: table '%s': %" PRId64 " rows times %" PRId64 " ids or %" PRId64
                   " samples go beyond 2^64",
                   fn, t.name, t.rows, max_ids, max_batch);
    }
    return NEO_OK;
}

/* ---- create, destroy ---- */
NEO_API void neo_bags_destroy(neo_bags *bags) {
    if (!bags) return;
    if (bags->tier) bags->tier->ops->detach(bags->tier);
    neo__live_end(bags->ctx, &bags->live);
    if (bags->ctx->clocks[0] == &bags->steps) bags->ctx->clocks[0] = NULL;
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        neo__bag_table *t = &bags->tables[i];
        void *blocks[] = {t->owns_weight ? t->job.store.data : NULL, t->job.store.scale,
                          t->job.state[0], t->job.state[1]};
        for (int k = 0; k < NEO__BAG_BLOCKS && !bags->memory.tables; k++)
            neo__data_free(bags->ctx, blocks[k], neo__bag_block_bytes(&t->job, k));
        neo_free(bags->ctx, t->keys.memory, t->keys.bytes);
    }
    neo__data_free(bags->ctx, bags->memory.tables, bags->memory.table_bytes);
    neo__data_free(bags->ctx, bags->memory.device, bags->memory.device_bytes);
    neo_free(bags->ctx, bags->memory.work, bags->memory.work_bytes);
    neo_free(bags->ctx, bags, bags->memory.meta_bytes);
}

/* Copy the description. Names go to `text`. */
static void neo__bags_describe(neo_bags *bags, const neo_bags_desc *desc, char *text) {
    int64_t col = 0, key = 0;
    uint64_t *marks = bags->mark_words;
    const char *name = neo__bags_desc_name(desc);
    bags->name = text;
    text += snprintf(text, strlen(name) + 1, "%s", name) + 1;
    bags->bounds = desc->bounds;
    for (int32_t i = 0; i < desc->table_count; i++) {
        const neo_table_desc *from = &desc->tables[i];
        neo__bag_table *t = &bags->tables[i];
        size_t room = strlen(name) + strlen(from->name) + 9;
        t->name = text;
        text += snprintf(text, room, "%s", from->name) + 1;
        t->weight_name = text;
        text += snprintf(text, room, "%s.%s.weight", name, from->name) + 1;
        t->rows = from->rows;
        t->dim = from->dim;
        t->optim = neo__bag_optim_resolve(&from->optim);
        t->owns_weight = !from->weight;
        t->round_nearest = from->round_nearest;
        t->bounds = from->keys.on ? NEO_BOUNDS_DROP : desc->bounds;
        neo__bag_keys_describe(&t->keys, from);
        t->name_hash = neo_hash(t->weight_name);
        neo__bag_describe_job(&t->job, bags->ctx, desc, i, key);
        t->marks.rows = t->rows;
        t->block_bits = neo__bag_block_bits(from);
        if (from->track_rows) t->marks.bits = marks, marks += (t->rows + 63) / 64;
        key += neo__bag_record_keys(bags->ctx, desc, i);
    }
    for (int32_t f = 0; f < bags->sizes.features; f++) {
        int32_t table = neo__bags_feature_table(desc, f);
        bags->view.features[f].job.table = table;
        bags->view.features[f].col = col;
        col += bags->tables[table].dim;
        bags->tables[table].feature_count++;
    }
    int32_t at = 0;
    for (int32_t i = 0; i < desc->table_count; i++) {
        bags->tables[i].features = bags->table_features + at;
        for (int32_t f = 0; f < bags->sizes.features; f++)
            if (bags->view.features[f].job.table == i) bags->table_features[at++] = f;
    }
    bags->cut.fn = desc->cut_sums;
    bags->cut.user = desc->cut_sums_user;
}

/* Allocate all before the first value is written: on failure the caller's weights are unchanged. */
static neo_status neo__bags_alloc_tables(neo_bags *bags, int apart, const char *fn) {
    void *block[NEO__BAG_BLOCKS];
    neo__carve all = {NULL, 0}, tables = {NULL, 0};
    const neo__bag_table *largest = bags->tables;
    for (int64_t i = 0; i < bags->sizes.tables && !apart; i++) {
        const neo__bag_table *t = &bags->tables[i];
        neo__bag_carve_blocks(&all, &t->job, block);
        if (neo__bag_block_bytes(&t->job, 0) > neo__bag_block_bytes(&largest->job, 0)) largest = t;
    }
    if (all.at) {
        bags->memory.tables = tables.block = (char *)neo__data_alloc(bags->ctx, all.at);
        bags->memory.table_bytes = all.at;
        NEO__CHECK(tables.block, NEO_ERR_MEMORY,
                   "%s: no memory for %zu bytes of tables; the largest, '%s', has %" PRId64 " rows",
                   fn, all.at, largest->name, largest->rows);
        if (bags->sizes.lazy_blocks) neo__advise(tables.block, all.at, NEO__ADVISE_SMALL);
    }
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        neo__bag_table *t = &bags->tables[i];
        neo__bag_carve_blocks(&tables, &t->job, block);
        for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
            const size_t bytes = neo__bag_block_bytes(&t->job, k);
            if (bytes == 0 || (k == NEO__BAG_WEIGHTS && !t->owns_weight)) continue;
            if (apart) block[k] = neo__data_alloc(bags->ctx, bytes);
            NEO__CHECK(block[k], NEO_ERR_MEMORY, "%s: table '%s': no memory for %zu bytes", fn,
                       t->name, bytes);
            if (k == NEO__BAG_WEIGHTS) t->job.store.data = (char *)block[k];
            else if (k == NEO__BAG_SCALES) t->job.store.scale = (float *)block[k];
            else t->job.state[k - NEO__BAG_STATE] = (float *)block[k];
            if (k == NEO__BAG_SCALES && !bags->sizes.lazy_blocks)
                NEO__TRY(neo__data_zero(bags->ctx, block[k], bytes));
        }
        neo__carve count = {NULL, 0}, carve = {NULL, 0};
        if (!t->keys.desc.on) continue;
        neo__bag_keys_layout(&t->keys, &count);
        t->keys.memory = carve.block = (char *)neo_alloc(bags->ctx, count.at);
        NEO__CHECK(carve.block, NEO_ERR_MEMORY, "%s: table '%s': no memory for %zu bytes of keys",
                   fn, t->name, count.at);
        t->keys.bytes = count.at;
        memset(carve.block, 0, count.at);
        neo__bag_keys_layout(&t->keys, &carve);
    }
    return NEO_OK;
}
/* On a device narrow rows are made as f32 in the stage, some at a time, then rounded. */
static neo_status neo__bags_init_weight(neo_bags *bags, int64_t table, neo_init init) {
    const neo__bag_table *t = &bags->tables[table];
    neo_device *on = bags->ctx->on;
    const int whole = t->job.store.dtype == NEO_F32;
    int64_t most = whole ? t->rows : bags->job.room.stage_floats / t->dim;
    if (init.kind == NEO_INIT_NONE) return NEO_OK;
    for (int64_t row = 0, count; row < t->rows; row += count) {
        count = NEO__MIN(most, t->rows - row);
        float *to = whole ? (float *)(void *)t->job.store.data : bags->job.room.stage;
        neo_tensor rows = neo_tensor_2d(to, NEO_F32, count, t->dim);
        neo__init_call call = neo__init_call_make(bags->ctx, rows, t->weight_name, init, 0,
                                                  (int64_t)t->job.store.stride);
        call.first = neo__bag_number(&t->job.store, row);
        NEO__TRY(on->init(on, &call));
        if (!whole) NEO__TRY(on->bags_rows(on, &bags->job, (int)table, row, count, to, 1));
    }
    return NEO_OK;
}
static neo_status neo__bags_fill(neo_bags *b, float *to, int64_t count, float value) {
    NEO__ZERO(neo__init_call, call);
    if (value == 0.0f) return neo__data_zero(b->ctx, to, (size_t)count * sizeof *to);
    call.out = to;
    call.count = call.cols = call.stride = count;
    call.init.kind = NEO_INIT_CONSTANT;
    call.init.a = value;
    return b->ctx->on->init(b->ctx->on, &call);
}
/* The numbers of state k, 0 or 1, before the first step; and both states of rows. */
static float neo__bag_first_state(const neo__bag_table *table, int k) {
    const int accumulates = k == 0 && neo__bag_optims[table->optim.kind].accumulates;
    return accumulates ? table->optim.initial_accumulator : 0.0f;
}
static void neo__bag_first_states(const neo__bag_table *table, float *const state[2], int64_t row,
                                  int64_t rows) {
    for (int k = 0; k < 2; k++) {
        const int64_t dim = table->job.state_dim[k];
        const float value = neo__bag_first_state(table, k);
        float *to = dim ? state[k] + row * dim : NULL;
        if (value == 0.0f && dim) memset(to, 0, (size_t)(rows * dim) * sizeof *to);
        else for (int64_t i = 0; i < rows * dim; i++) to[i] = value;
    }
}

/* The last of `count` places whose first number is at most `target`; the first if none is. The
   numbers rise and lie `stride` bytes apart. */
NEO__INLINE int64_t neo__bags_find(const int64_t *first, size_t stride, int64_t count,
                                   int64_t target) {
    int64_t at = 0;
    while (count > 1) {
        int64_t half = count / 2, mid;
        memcpy(&mid, (const char *)first + (size_t)(at + half) * stride, sizeof mid);
        if (mid <= target) at += half, count -= half;
        else count = half;
    }
    return at;
}
/* ---- first values on the CPU: see neo__bags_made ---- */
static void neo__bag_make_block(const neo_bags *bags, const neo__bag_table *table, int64_t block,
                                int worker) {
    const neo__bag_rows *store = &table->job.store;
    const int64_t first = block << table->block_bits;
    const int64_t end = NEO__MIN(table->rows, first + (INT64_C(1) << table->block_bits));
    const int whole = store->dtype == NEO_F32;
    const int64_t step = whole ? end - first : 1;
    neo__init_call call = table->init;
    call.out = bags->work.scratch + worker * bags->sizes.scratch;
    for (int64_t row = first; row < end && call.init.kind != NEO_INIT_NONE; row += step) {
        const neo__cpu_part part = {bags->ctx, &call, 0, step * table->dim, worker};
        if (whole) call.out = (float *)(void *)(store->data + row * store->row_bytes);
        call.first = neo__bag_number(store, row);
        neo__init_part(&part);
        if (!whole) bags->ctx->bag->encode(store, row, call.out, NULL);
    }
    if (call.init.kind == NEO_INIT_NONE && store->scale)
        memset(store->scale + 2 * first, 0, 2 * (size_t)(end - first) * sizeof(float));
    neo__bag_first_states(table, table->job.state, first, end - first);
}
NEO__INLINE void neo__bag_make(neo_bags *b, const neo__bag_table *t, int64_t block, int worker) {
    uint64_t *word = &b->made.bits[(t->first_block + block) / 64];
    const uint64_t bit = UINT64_C(1) << (t->first_block + block) % 64;
    if (__atomic_load_n(word, __ATOMIC_RELAXED) & bit ||
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit) /* another thread makes it */
        return;
    neo__bag_make_block(b, t, block, worker);
    __atomic_fetch_sub(&b->made.left, 1, __ATOMIC_RELAXED);
}
/* Advice on the memory of rows [first, end), from the huge page on in which they begin. */
static void neo__bag_advise(const neo_bags *bags, const neo__bag_table *table, int64_t first,
                            int64_t end, int advice) {
    const neo__job_table *job = &table->job;
    char *const block[] = {table->owns_weight ? job->store.data : NULL, (char *)job->store.scale,
                           (char *)job->state[0], (char *)job->state[1]};
    for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
        const size_t row = neo__bag_block_bytes(job, k) / (size_t)table->rows;
        if (!block[k]) continue;
        char *from = block[k] + (size_t)first * row;
        const size_t before =
            NEO__MIN((size_t)((uintptr_t)from % (2u << 20)), (size_t)(from - bags->memory.tables));
        neo__advise(from - before, (size_t)(end - first) * row + before, advice);
    }
}
/* A part: blocks, counted from made.first on. */
static void neo__bags_make_part(const neo__cpu_part *part) {
    neo_bags *b = (neo_bags *)(uintptr_t)part->call;
    for (int64_t at = b->made.first + part->begin, to = b->made.first + part->end; at < to;) {
        const neo__bag_table *t =
            &b->tables[neo__bags_find(&b->tables->first_block, sizeof *b->tables, b->sizes.tables,
                                      at)];
        const int64_t first = at - t->first_block, end = NEO__MIN(to - t->first_block, t->blocks);
        const int64_t row = first << t->block_bits, rows = NEO__MIN(end << t->block_bits, t->rows);
        if (b->made.bits) neo__bag_advise(b, t, row, rows, NEO__ADVISE_HUGE);
        for (int64_t i = first; i < end; i++)
            if (b->made.bits) neo__bag_make(b, t, i, part->worker);
            else neo__bag_make_block(b, t, i, part->worker);
        if (b->made.bits) neo__bag_advise(b, t, row, rows, NEO__ADVISE_COLLAPSE);
        at = t->first_block + end;
    }
}
static void neo__bags_make_blocks(neo_bags *bags, int64_t first, int64_t end) {
    bags->made.first = first;
    neo__cpu_run(bags->ctx->on, bags, end - first, 64, 1, neo__bags_make_part);
}
static int neo__bags_wait(const neo_bags *b) {
    return __atomic_load_n(&b->made.left, __ATOMIC_RELAXED) != 0;
}
static neo_status neo__bags_begin_rows(const neo_bags *b);
static neo_status neo__bags_note_none(const neo_bags *b);
NEO_API void neo__bags_make_all(const neo_bags *b) {
    (void)neo__bags_begin_rows(b); /* of a failure the next call tells: they stay noted */
    if (neo__bags_wait(b)) neo__bags_make_blocks((neo_bags *)(uintptr_t)b, 0, b->made.blocks);
}
/* Rows that a call shows or writes; by the caller's thread. */
static void neo__bags_make_rows(const neo_bags *b, int32_t table, int64_t first, int64_t count) {
    const neo__bag_table *t = &b->tables[table];
    if (!neo__bags_wait(b) || t->blocks == 0 || count == 0) return;
    const neo__fp_state fp = neo__fp_enter();
    for (int64_t i = first >> t->block_bits; i <= (first + count - 1) >> t->block_bits; i++)
        neo__bag_make((neo_bags *)(uintptr_t)b, t, i, 0);
    neo__fp_leave(fp);
}
/* Rows of the record's ids. Those out of range, which have been refused or will be dropped, stand
   for a row that may be read in their place. */
static void neo__bags_make_ids(const neo__cpu_part *part) {
    neo_bags *b = (neo_bags *)(uintptr_t)part->call;
    const neo__bag_feature *features = b->view.features;
    const int64_t base = features[0].first_id, end = base + part->end;
    const void *ids = b->job.batch.ids;
    for (int64_t k = base + part->begin, stop; k < end; k = stop) {
        const neo__bag_feature *f = &features[neo__bags_find(&features->first_id, sizeof *features,
                                                             b->sizes.features, k)];
        const neo__bag_table *t = &b->tables[f->job.table];
        stop = NEO__MIN(end, f->first_id + f->ids);
        for (; k < stop && t->blocks; k++) {
            int64_t id = neo__jagged_id(ids, b->job.batch.is_i32, k);
            id = NEO__MIN(NEO__MAX(id, INT64_C(0)), t->rows - 1);
            neo__bag_make(b, t, id >> t->block_bits, part->worker);
        }
    }
}
/* Rows of the record's batch, or of what is kept; forward goes on to 512 blocks a thread. */
static void neo__bags_make_needed(neo_bags *bags, int of_kept, int forward) {
    enum { AHEAD = 512, GRAIN = 256 };
    if (!of_kept)
        neo__cpu_run(bags->ctx->on, bags, bags->job.batch.most_ids, GRAIN, 1, neo__bags_make_ids);
    for (int64_t i = 0; of_kept && i < bags->kept.count; i++)
        neo__bags_make_rows(bags, bags->kept.slots[i].table, bags->kept.slots[i].row, 1);
    if (!forward) return;
    const int64_t end = NEO__MIN(bags->made.blocks, bags->made.ahead + AHEAD * bags->sizes.threads);
    neo__bags_make_blocks(bags, bags->made.ahead, end);
    bags->made.ahead = end;
}
static neo_status neo__bags_send_keys(neo_bags *bags);
static neo_status neo__bags_init_tables(neo_bags *bags, const neo_bags_desc *desc) {
    neo__bags_made *made = &bags->made;
    if (bags->sizes.lazy_blocks == 0) made->bits = NULL;
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        neo__bag_table *table = &bags->tables[i];
        neo_init init = desc->tables[i].init;
        if (init.kind == NEO_INIT_DEFAULT) {
            init.kind = NEO_INIT_UNIFORM;
            init.b = (float)(1.0 / sqrt((double)table->job.bucket_rows));
            init.a = -init.b;
        }
        NEO__TRY(neo__init_check(&init, table->weight_name));
        if (table->keys.desc.on)
            table->keys.job.init = neo__init_call_make(
                bags->ctx, neo_tensor_1d(NULL, NEO_F32, table->dim), table->weight_name, init, 0,
                0);
        for (int k = 0; k < 2; k++) table->keys.job.state[k] = neo__bag_first_state(table, k);
        table->first_block = made->blocks;
        if (table->job.store.line_row) {
            bags->tier->ops->init(bags->tier, (int32_t)i, &init);
            continue;
        }
        if (table->keys.desc.on) /* rows are 0 until a key has them */
            NEO__TRY(neo__data_zero(bags->ctx, table->job.store.data,
                                    neo__bag_block_bytes(&table->job, NEO__BAG_WEIGHTS)));
        else if (bags->ctx->device) NEO__TRY(neo__bags_init_weight(bags, i, init));
        else {
            const neo_tensor rows =
                neo_tensor_2d(table->job.store.data, NEO_F32,
                              table->job.store.dtype == NEO_F32 ? table->rows : 1, table->dim);
            table->init = neo__init_call_make(bags->ctx, rows, table->weight_name, init, 0,
                                              (int64_t)table->job.store.stride);
            table->blocks = ((table->rows - 1) >> table->block_bits) + 1;
            made->blocks += table->blocks;
            continue;
        }
        for (int k = 0; k < 2 && table->job.state_dim[k]; k++)
            NEO__TRY(neo__bags_fill(bags, table->job.state[k],
                                    table->rows * table->job.state_dim[k],
                                    neo__bag_first_state(table, k)));
    }
    if (made->bits) made->left = made->blocks;
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        const neo__bag_table *t = &bags->tables[i];
        if (t->blocks && !(made->bits && t->owns_weight))
            neo__bags_make_blocks(bags, t->first_block, t->first_block + t->blocks);
    }
    return neo__bags_send_keys(bags);
}

/* Kept gradients go to a new workspace: slots in their order, a hash table of its new size. */
static uint64_t neo__bag_slot_place(const neo_bags *b, int32_t table, int64_t row);
static neo_status neo__bags_carry(neo_bags *bags, const neo_bags *old) {
    bags->kept.mask = (uint64_t)neo__bags_slot_places(bags->kept.capacity) - 1;
    if (bags->kept.capacity)
        memset(bags->kept.slot_of, 0, (size_t)(bags->kept.mask + 1) * sizeof *bags->kept.slot_of);
    for (int64_t i = 0; i < bags->kept.count; i++) {
        const neo__bag_slot *slot = &old->kept.slots[i];
        bags->kept.slots[i] = *slot;
        bags->kept.slot_of[neo__bag_slot_place(bags, slot->table, slot->row)] = (uint32_t)(i + 1);
    }
    if (bags->kept.count)
        memcpy(bags->job.kept.sums, old->job.kept.sums, (size_t)bags->kept.floats * sizeof(float));
    return NEO_OK;
}
/* A copy between the object's arrays and the device's. On the CPU many are one array. */
static neo_status neo__bags_send(const neo_bags *b, void *to, const void *from, size_t bytes) {
    neo_device *on = b->ctx->on;
    if (to == from || bytes == 0) return NEO_OK;
    neo__device_advises(b->ctx);
    return on->copy(on, to, NEO_DEVICE, from, NEO_HOST, bytes);
}
static neo_status neo__bags_fetch(const neo_bags *b, void *to, const void *from, size_t bytes) {
    neo_device *on = b->ctx->on;
    if (to == from || bytes == 0) return NEO_OK;
    return on->copy(on, to, NEO_HOST, from, NEO_DEVICE, bytes);
}
/* The device has no features and rules, or other ones: the next calls send them. */
static void neo__bags_untold(neo_bags *b) {
    neo__job_feature *features = b->job.told.host_features;
    neo__job_rule *rules = b->job.told.host_rules;
    memset(features, 0xFF, (size_t)(b->sizes.features + 1) * sizeof *features);
    memset(rules, 0xFF, (size_t)b->sizes.tables * sizeof *rules);
}
/* Tables with keys on a device: the host has their maps. */
static int neo__bags_maps_here(const neo_bags *b) { return b->ctx->device && b->sizes.key_scratch; }
/* First values of keys' rows, of all tables. */
static neo_status neo__bags_send_keys(neo_bags *bags) {
    for (int64_t i = 0; i < bags->sizes.tables && neo__bags_maps_here(bags); i++)
        NEO__TRY(neo__bags_send(bags, (void *)(uintptr_t)&bags->job.fixed.keys[i],
                                &bags->tables[i].keys.job, sizeof bags->tables[i].keys.job));
    return NEO_OK;
}
/* The tables as kernels see them. A device's ids are looked at before they become lines: it has the
   number of rows, and what rows lines have in its own memory. */
static neo_status neo__bags_send_tables(neo_bags *bags) {
    neo__job_table *tables = (neo__job_table *)(uintptr_t)bags->job.fixed.host_tables;
    int64_t floats = 0;
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        const neo__bag_table *from = &bags->tables[i]; /* with the padding, which is sent too */
        memcpy(&tables[i], &from->job, sizeof *tables);
        if (!bags->sizes.device) continue;
        tables[i].rows = from->rows;
        tables[i].store.line_row = from->line_row;
        tables[i].first_float = floats;
        floats += from->rows * from->dim;
    }
    NEO__TRY(neo__bags_send_keys(bags));
    return neo__bags_send(bags, (void *)(uintptr_t)bags->job.fixed.tables, tables,
                          (size_t)bags->sizes.tables * sizeof *tables);
}
/* The parts of the record that no call changes. */
static neo_status neo__bags_describe_job(neo_bags *bags) {
    neo__bags_job *job = &bags->job;
    neo__bags_untold(bags);
    job->fixed.table_count = (int32_t)bags->sizes.tables;
    job->fixed.feature_count = (int32_t)bags->sizes.features;
    job->fixed.none = bags->sizes.none;
    job->fixed.wide = bags->sizes.wide;
    job->fixed.bounds = bags->bounds;
    job->fixed.key_count = bags->sizes.keys;
    job->fixed.max_dim = bags->sizes.max_dim;
    job->object = bags;
    if (bags->sizes.device && job->kept.max) {
        size_t floats = (size_t)job->kept.max * (size_t)job->fixed.max_dim;
        NEO__TRY(neo__data_zero(bags->ctx, job->kept.hash_key,
                                (size_t)(job->kept.hash_mask + 1) * sizeof *job->kept.hash_key));
        NEO__TRY(neo__data_zero(bags->ctx, job->kept.sums, floats * sizeof *job->kept.sums));
        NEO__TRY(neo__data_zero(bags->ctx, job->kept.counted,
                                NEO__BAG_COUNTED * sizeof *job->kept.counted));
    }
    bags->work.resolved = 0;
    bags->work.give = neo__bags_maps_here(bags) ? &bags->given : NULL;
    return neo__bags_send_tables(bags);
}
static neo_status neo__bags_device_carry(neo_bags *bags, const neo_bags *old) {
    neo_device *d = bags->ctx->device;
    neo__bags_job *job = &bags->job;
    size_t count = (size_t)bags->kept.count, floats = count * (size_t)job->fixed.max_dim;
    job->kept.count = bags->kept.unknown ? -1 : bags->kept.count;
    if (count == 0) return NEO_OK;
    if (bags->kept.unknown)
        NEO__TRY(d->copy(d, job->kept.counted, NEO_DEVICE, old->job.kept.counted, NEO_DEVICE,
                         NEO__BAG_COUNTED * sizeof *job->kept.counted));
    NEO__TRY(d->copy(d, job->kept.slot_key, NEO_DEVICE, old->job.kept.slot_key, NEO_DEVICE,
                     count * sizeof *job->kept.slot_key));
    NEO__TRY(d->copy(d, job->kept.sums, NEO_DEVICE, old->job.kept.sums, NEO_DEVICE,
                     floats * sizeof *job->kept.sums));
    return d->bags_drop_slots(d, job);
}
/* Send again what was part of a discarded recording. */
static void neo__bags_remind(neo_bags *b) {
    if (b->forgotten == b->ctx->on->forgotten) return;
    b->forgotten = b->ctx->on->forgotten;
    b->view.fresh = 0;
    b->kept.unknown = b->kept.capacity ? 2 : 0;
    neo__bags_untold(b);
}
/* Recorded calls that keep gradients leave it to the device how many rows these have: the host asks
   when it needs the number. */
static neo_status neo__bags_count_kept(neo_bags *b) {
    uint64_t count = 0;
    if (NEO__TRAINS) neo__bags_remind(b);
    if (!NEO__TRAINS || !b->kept.unknown) return NEO_OK;
    NEO__TRY(neo__bags_fetch(b, &count, b->job.kept.counted, sizeof count));
    b->kept.count = (int64_t)count, b->kept.stage_end = 0;
    b->kept.unknown = 0;
    return NEO_OK;
}
/* The number of slots stays on the device: nobody but its kernels wants it. */
static int neo__bags_counts_there(const neo_bags *b) {
    return NEO__TRAINS && b->ctx->on->recording && !b->sizes.cut_tables && !b->tier &&
           b->kept.unknown < 2 && b->forgotten == b->ctx->on->forgotten;
}
/* kept.count is the number of rows, or a bound where that may stay there. */
static neo_status neo__bags_bound_kept(neo_bags *b) {
    return neo__bags_counts_there(b) ? NEO_OK : neo__bags_count_kept(b);
}
/* A workspace of these sizes instead of what was there. Kept gradients go with it. */
static neo_status neo__bags_work_alloc(neo_bags *bags, neo__bag_sizes sizes, const char *fn) {
    if (bags->kept.capacity) NEO__TRY(neo__bags_bound_kept(bags));
    NEO__TRY(neo__bags_note_none(bags));
    const neo_bags old = *bags;
    NEO__TRY(neo__bags_record_check(bags, &sizes, fn));
    if (bags->tier) NEO__TRY(bags->tier->ops->reserve(bags->tier, &sizes));
    neo__bags_ask_device(bags->ctx, &sizes);
    size_t bytes, device_bytes;
    neo__bags_work_bytes(&sizes, &bytes, &device_bytes);
    neo__carve work = {NULL, 0}, device = {NULL, 0};
    work.block = (char *)neo_alloc(bags->ctx, bytes);
    NEO__CHECK(work.block, NEO_ERR_MEMORY, "%s: no memory for %zu bytes of workspace", fn, bytes);
    if (sizes.device) device.block = (char *)neo__data_alloc(bags->ctx, device_bytes);
    if (sizes.device && !device.block) {
        neo_free(bags->ctx, work.block, bytes);
        return neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes of workspace on the device",
                        fn, device_bytes);
    }
    bags->sizes = sizes;
    bags->memory.work = work.block;
    bags->memory.work_bytes = bytes;
    bags->memory.device = device.block;
    bags->memory.device_bytes = device_bytes;
    neo__bags_host_layout(&sizes, &work, bags);
    if (sizes.device) neo__bags_device_layout(&sizes, &device, bags);
    bags->kept.capacity = neo__bags_kept_rows(&sizes);
    bags->kept.stage_end = 0;
    bags->view.fresh = 0;
    bags->grow_count += old.memory.work != NULL;
    for (int64_t t = 0; t < sizes.tables; t++)
        neo__bag_record_bits(&bags->tables[t], sizes.max_batch,
                             NEO__MAX(sizes.max_ids, bags->kept.capacity));
    neo_status status = neo__bags_describe_job(bags);
    if (status == NEO_OK)
        status = sizes.device ? neo__bags_device_carry(bags, &old) : neo__bags_carry(bags, &old);
    neo__data_free(bags->ctx, old.memory.device, old.memory.device_bytes);
    neo_free(bags->ctx, old.memory.work, old.memory.work_bytes);
    return status;
}

NEO_API neo_status neo_bags_create(neo_ctx *ctx, const neo_bags_desc *desc, neo_bags **out) {
    const char *fn = "neo_bags_create";
    NEO__CHECK(out, NEO_ERR_ARG, "%s: bags is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__bags_desc_check(ctx, desc, fn));
    neo__bag_sizes sizes = neo__bags_sizes_of(ctx, desc);
    neo__carve count = {NULL, 0}, meta = {NULL, 0};
    neo_bags *bags;
    char *names;
    const size_t bits = neo__bags_meta_layout(&sizes, &count, &bags, &names);
    meta.block = (char *)neo__alloc_for(ctx, count.at, fn);
    if (!meta.block) return NEO_ERR_MEMORY;
    memset(meta.block, 0, bits); /* the rest not before tables fit */
    neo__bags_meta_layout(&sizes, &meta, &bags, &names);
    bags->ctx = ctx;
    bags->forgotten = ctx->on->forgotten;
    bags->memory.meta_bytes = count.at;
    bags->sizes = sizes;
    neo__bags_describe(bags, desc, names);
    neo_status status = neo__bags_alloc_tables(bags, desc->tier != NULL, fn);
    if (status == NEO_OK) memset(meta.block + bits, 0, count.at - bits);
    if (status == NEO_OK) status = neo__bags_work_alloc(bags, sizes, fn);
    if (status == NEO_OK && desc->tier)
        status = desc->tier->ops->attach(desc->tier, bags, desc, fn);
    if (status == NEO_OK) {
        neo__fp_state fp = neo__fp_enter();
        status = neo__bags_init_tables(bags, desc);
        neo__fp_leave(fp);
    }
    if (status != NEO_OK) {
        neo_bags_destroy(bags);
        return status;
    }
    neo__live_begin(ctx, &bags->live, "bags", bags->name);
    *out = bags;
    ctx->clocks[0] = &bags->steps;
    return NEO_OK;
}

/* All but rows, states, keys and what a tier takes. */
static size_t neo__bags_fixed_bytes(const neo__bag_sizes *sizes) {
    neo__carve meta = {NULL, 0};
    neo_bags *none;
    char *names;
    size_t work, device;
    neo__bags_meta_layout(sizes, &meta, &none, &names);
    neo__bags_work_bytes(sizes, &work, &device);
    return neo__size_add(meta.at, neo__size_add(work, device));
}
NEO_API neo_status neo_bags_bytes(neo_ctx *ctx, const neo_bags_desc *desc,
                                  neo_bags_memory *memory) {
    NEO__CHECK(memory, NEO_ERR_ARG, "neo_bags_bytes: memory is NULL");
    NEO__TRY(neo__bags_desc_check(ctx, desc, "neo_bags_bytes"));
    memset(memory, 0, sizeof *memory);
    neo__bag_sizes sizes = neo__bags_sizes_of(ctx, desc);
    neo__bags_ask_device(ctx, &sizes);
    memory->workspace_bytes = neo__bags_fixed_bytes(&sizes);
    if (desc->tier)
        NEO__TRY(desc->tier->ops->bytes(desc->tier, ctx, desc, "neo_bags_bytes",
                                        &memory->workspace_bytes));
    neo__carve all = {NULL, 0};
    size_t own = 0;
    for (int32_t t = 0; t < desc->table_count; t++) {
        neo__job_table table;
        void *block[NEO__BAG_BLOCKS];
        int64_t below = 0;
        if (desc->tier) (void)neo__tier_cached(desc, t, &below);
        if (desc->tier && desc->tier->budget.in_file) memory->file_bytes += (size_t)below;
        neo__bag_describe_job(&table, ctx, desc, t, 0);
        neo__bag_carve_blocks(&all, &table, block);
        for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
            size_t *sum = k < NEO__BAG_STATE ? &memory->weight_bytes : &memory->state_bytes;
            if (k == NEO__BAG_WEIGHTS && table.store.data) continue; /* the caller's */
            *sum = neo__size_add(*sum, neo__bag_block_bytes(&table, k));
            own = neo__size_add(own, neo__bag_block_bytes(&table, k));
        }
        memory->state_bytes =
            neo__size_add(memory->state_bytes, neo__bag_keys_bytes(&desc->tables[t]));
    }
    if (!desc->tier) /* what lies between the blocks */
        memory->workspace_bytes = neo__size_add(memory->workspace_bytes, all.at - own);
    return NEO_OK;
}

NEO_API neo_status neo_bags_reserve(neo_bags *b, int64_t max_batch, int64_t max_ids) {
    NEO__CHECK_LIVE(b, "neo_bags_reserve", "bags");
    neo__bag_sizes sizes = b->sizes;
    if (max_batch <= sizes.max_batch && max_ids <= sizes.max_ids) return NEO_OK;
    sizes.max_batch = NEO__MAX(max_batch, sizes.max_batch);
    sizes.max_ids = NEO__MAX(max_ids, sizes.max_ids);
    return neo__bags_work_alloc(b, sizes, "neo_bags_reserve");
}
static neo_status neo__bags_check_keeps(const neo_bags *b, const char *fn) {
    NEO__CHECK_LIVE(b, fn, "bags");
    NEO__CHECK(b->sizes.max_kept_rows, NEO_ERR_STATE,
               "%s: bags '%s' keeps no gradients: set neo_bags_desc.max_kept_rows", fn, b->name);
    return NEO_OK;
}
NEO_API neo_status neo_bags_reserve_kept(neo_bags *b, int64_t max_kept_rows) {
    const char *fn = "neo_bags_reserve_kept";
    NEO__TRY(neo__bags_check_keeps(b, fn));
    NEO__TRY(neo__bags_check_kept_rows(max_kept_rows, fn));
    if (NEO__MIN(max_kept_rows, b->sizes.rows) <= b->kept.capacity) return NEO_OK;
    neo__bag_sizes sizes = b->sizes;
    sizes.max_kept_rows = max_kept_rows;
    return neo__bags_work_alloc(b, sizes, fn);
}

/* ---- queries, rows ---- */
NEO_API int32_t neo_bags_table_count(const neo_bags *b) { return (int32_t)b->sizes.tables; }
NEO_API int64_t neo_bags_out_width(const neo_bags *b) { return b->sizes.width; }
NEO_API const char *neo_bags_table_name(const neo_bags *b, int32_t table) {
    return table >= 0 && table < b->sizes.tables ? b->tables[table].name : NULL;
}
/* A block of a table's memory as a tensor [rows][cols], cols 0: [rows]. */
static neo_tensor neo__bags_block(const neo_bags *b, int32_t table, void *data, neo_dtype dtype,
                                  int64_t cols) {
    if (!data) return neo_tensor_none();
    int64_t rows = b->tables[table].rows;
    neo_tensor t = cols ? neo_tensor_2d(data, dtype, rows, cols) : neo_tensor_1d(data, dtype, rows);
    t.place = neo__ctx_place(b->ctx);
    return t;
}
/* The same, of the table's block k; where its rows lie below memory, an address that stands for
   them. */
static neo_tensor neo__bags_table_block(const neo_bags *b, int32_t table, int k, void *data,
                                        neo_dtype dtype, int64_t cols) {
    const int below = b->tables[table].job.store.line_row != NULL;
    neo_tensor t;
    if (below && data) data = b->tier->ops->block(b->tier, table, k);
    t = neo__bags_block(b, table, data, dtype, cols);
    if (below && data) t.place = NEO_FILE;
    return t;
}
NEO_API neo_tensor neo__bags_tensor(const neo_bags *bags, int32_t table, int k) {
    if (table < 0 || table >= bags->sizes.tables || k < 0 || k > 8) return neo_tensor_none();
    const neo__bag_table *t = &bags->tables[table];
    const neo__bag_rows *rows = &t->job.store;
    if (k == 0)
        return neo__bags_table_block(bags, table, NEO__BAG_WEIGHTS, rows->data, rows->dtype,
                                     rows->dim);
    if (k == 1)
        return neo__bags_table_block(bags, table, NEO__BAG_SCALES, rows->scale, NEO_F32, 2);
    k -= 2;
    const neo__lines *lines = k < 4 ? &t->keys.lines : &t->keys.waiting;
    if (k == 6 ? !t->keys.filter : k > 1 && lines->sets == 0) return neo_tensor_none();
    if (k == 6) return neo_tensor_1d(t->keys.filter, NEO_I64, t->rows);
    if (k > 1) return neo_tensor_1d(k % 2 ? lines->use : lines->key, NEO_I64, t->rows);
    const int per_row = neo__bag_optims[t->optim.kind].state[k] == NEO__BAG_PER_ROW;
    return neo__bags_table_block(bags, table, NEO__BAG_STATE + k, t->job.state[k], NEO_F32,
                                 per_row ? 0 : t->dim);
}
NEO_API neo_tensor neo_bags_weight(const neo_bags *b, int32_t table) {
    return neo__bags_make_all(b), neo__bags_tensor(b, table, 0);
}
NEO_API neo_tensor neo_bags_scale(const neo_bags *b, int32_t table) {
    return neo__bags_make_all(b), neo__bags_tensor(b, table, 1);
}
NEO_API neo_tensor neo_bags_state(const neo_bags *b, int32_t table, int k) {
    neo__bags_make_all(b);
    return k < 0 || k > 6 ? neo_tensor_none() : neo__bags_tensor(b, table, k + 2);
}
static neo_status neo__bags_check_rows(const neo_bags *b, int32_t table, int64_t first,
                                       int64_t count, const float *rows, const char *fn) {
    NEO__CHECK_LIVE(b, fn, "bags");
    NEO__CHECK(table >= 0 && table < b->sizes.tables && (rows || count == 0), NEO_ERR_ARG,
               "%s: an argument is NULL, or there is no table %d", fn, table);
    const neo__bag_table *t = &b->tables[table];
    NEO__CHECK(first >= 0 && count >= 0 && first <= t->rows - count, NEO_ERR_RANGE,
               "%s: table '%s': %" PRId64 " rows from %" PRId64 " on, it has %" PRId64, fn, t->name,
               count, first, t->rows);
    return NEO_OK;
}
/* Rows of f32 are copied. Narrow ones are decoded and encoded in the caller's memory on the CPU, so
   that threads may read them at the same time; a device passes them through its stage. */
static neo_status neo__bags_move_rows(const neo_bags *bags, int32_t table, int64_t first,
                                      int64_t count, float *to, const float *from) {
    neo_device *on = bags->ctx->on;
    const neo__bag_rows *t = &bags->tables[table].job.store;
    int64_t dim = t->dim, most = bags->job.room.stage_floats / dim;
    neo__bags_make_rows(bags, table, first, count);
    NEO__TRY(neo__bags_begin_rows(bags));
    if (t->line_row) return bags->tier->ops->rows(bags->tier, table, first, count, to, from);
    if (t->dtype == NEO_F32) {
        char *rows = t->data + first * t->row_bytes;
        size_t bytes = (size_t)(count * t->row_bytes);
        return to ? neo__bags_fetch(bags, to, rows, bytes)
                  : neo__bags_send(bags, rows, from, bytes);
    }
    if (!bags->ctx->device) {
        float *rows = to ? to : (float *)(uintptr_t)from; /* only read when rows are set */
        return on->bags_rows(on, &bags->job, (int)table, first, count, rows, !to);
    }
    for (int64_t i = 0, n; i < count; i += n) {
        n = NEO__MIN(most, count - i);
        size_t bytes = (size_t)(n * dim) * sizeof(float);
        if (!to) NEO__TRY(neo__bags_send(bags, bags->job.room.stage, from + i * dim, bytes));
        NEO__TRY(
            on->bags_rows(on, &bags->job, (int)table, first + i, n, bags->job.room.stage, !to));
        if (to) NEO__TRY(neo__bags_fetch(bags, to + i * dim, bags->job.room.stage, bytes));
    }
    return NEO_OK;
}
NEO_API neo_status neo_bags_get_rows(const neo_bags *b, int32_t table, int64_t first,
                                     int64_t count, float *rows) {
    NEO__TRY(neo__bags_check_rows(b, table, first, count, rows, "neo_bags_get_rows"));
    return neo__bags_move_rows(b, table, first, count, rows, NULL);
}
NEO_API neo_status neo_bags_set_rows(neo_bags *b, int32_t table, int64_t first, int64_t count,
                                     const float *rows) {
    NEO__TRY(neo__bags_check_rows(b, table, first, count, rows, "neo_bags_set_rows"));
    NEO__TRY(neo_bags_note_rows(b, table, first, count));
    return neo__bags_move_rows(b, table, first, count, NULL, rows);
}
/* Note a row, if rows are tracked; before it changes. */
NEO__INLINE void neo__row_changes(const neo__row_marks *marks, int64_t row) {
    const uint64_t record = (uint64_t)row;
    if (marks->before) marks->before(marks->user, &record, 1, 0, NULL);
    else if (marks->bits) marks->bits[row / 64] |= UINT64_C(1) << row % 64;
}
NEO_API neo_status neo_bags_note_rows(neo_bags *b, int32_t table, int64_t first, int64_t count) {
    static const float none = 0.0f; /* no row is read or written */
    NEO__TRY(neo__bags_check_rows(b, table, first, count, &none, "neo_bags_note_rows"));
    const neo__row_marks *marks = &b->tables[table].marks;
    for (int64_t row = first; row < first + count; row++) neo__row_changes(marks, row);
    return NEO_OK;
}
NEO_API neo__row_marks *neo__bags_marks(const neo_bags *b, int32_t table) {
    return b->tables[table].marks.bits ? &b->tables[table].marks : NULL;
}
NEO_API neo_bags_stats neo_bags_get_stats(const neo_bags *b) {
    neo_bags_stats s;
    s.steps = b->steps;
    s.out_of_range = b->out_of_range;
    s.grow_count = b->grow_count;
    return s;
}
NEO_API void neo__bags_vouch(neo_bags *b, int64_t ids) { b->vouched = ids + 1; }
NEO_API void neo__bags_set_clocks(neo_bags *b, int64_t steps, int64_t key_steps) {
    b->steps = NEO__MAX(steps, 0);
    b->key_steps = b->sizes.key_scratch ? NEO__MAX(key_steps, 0) : 0;
    b->work.resolved = 0;
}
NEO_API void neo_bags_set_steps(neo_bags *b, int64_t steps) {
    neo__bags_set_clocks(b, steps, steps);
}
/* The name of the object, and the t of Adam: what a checkpoint needs beside weights and state. The
   tensors are "<bags>.<table>.weight", ".scale", ".momentum1", ".momentum2", and "<bags>.step"; of
   keyed tables those that neo.h says, and "<bags>.key_step" (NULL: no table has keys). */
static NEO__UNUSED const char *neo__bags_name(const neo_bags *b) { return b->name; }
static NEO__UNUSED int64_t *neo__bags_steps(neo_bags *b) { return &b->steps; }
static NEO__UNUSED int64_t *neo__bags_key_steps(neo_bags *b) {
    return b->sizes.key_scratch ? &b->key_steps : NULL;
}
/* ---------------------------------------------------------------------------
   >>impl-bags-forward

   The CPU's look at a batch and its lookups, for the record that >>impl-bags-calls fills. Work is
   cut by cost (floats moved), not by table: a task finds the bag where its share of the whole
   begins and ends. Nothing here changes a table.
   ------------------------------------------------------------------------ */
/* Floats a bag and an id stand for, what each costs on top in instructions included. */
NEO__INLINE int64_t neo__bag_cost(int64_t dim) { return dim + 16; }

/* Run work(part) over shares of a cost; part->call is the object. */
static void neo__bags_share(const neo_bags *b, int64_t cost,
                            void (*work)(const neo__cpu_part *part)) {
    const int64_t threads = b->sizes.threads, some = 1 + cost / 32768;
    const int64_t alike = some > threads ? (some + threads - 1) / threads * threads : some;
    const int64_t tasks = NEO__MIN(neo__bags_most_tasks(threads), alike);
    neo__cpu_job job = {b->ctx, b, cost, tasks, 1, work};
    if (cost > 0) neo__run_tasks(b->ctx, tasks, neo__cpu_task, &job, cost / 4);
}
/* Places of the features' ids, and their cost. Offsets have been checked. */
static void neo__bags_place_ids(neo_bags *bags) {
    const int64_t *offsets = bags->job.batch.offsets;
    const int any = bags->job.batch.bags > 0;
    bags->view.cost = 0;
    for (int64_t f = 0; f <= bags->sizes.features; f++) {
        neo__bag_feature *p = &bags->view.features[f];
        p->cost_begin = bags->view.cost;
        p->first_id = any ? offsets[p->job.first_bag] : 0;
        p->ids = any ? offsets[p->job.first_bag + p->job.bags] - p->first_id : 0;
        if (f < bags->sizes.features)
            bags->view.cost +=
                (p->ids + p->job.bags) * neo__bag_cost(bags->tables[p->job.table].dim);
    }
}

NEO__HOT_BEGIN

/* The first bag before which at least `target` of the cost lies. */
static void neo__bags_seek(const neo_bags *bags, int64_t target, int64_t *feature, int64_t *bag) {
    const neo__bag_feature *p = bags->view.features;
    *feature = neo__bags_find(&p->cost_begin, sizeof *p, bags->sizes.features + 1, target);
    *bag = 0;
    if (*feature == bags->sizes.features) return;
    p += *feature;
    const int64_t *offsets = bags->job.batch.offsets + p->job.first_bag;
    int64_t unit = neo__bag_cost(bags->tables[p->job.table].dim);
    for (int64_t end = p->job.bags; *bag < end;) {
        int64_t mid = (*bag + end) / 2;
        if ((offsets[mid] - p->first_id + mid) * unit >= target - p->cost_begin) end = mid;
        else *bag = mid + 1;
    }
}
/* Bags [bag, end) of feature f as a lookup. */
static neo__bag_lookup neo__bags_lookup(const neo_bags *bags, int64_t f, int64_t bag, int64_t end) {
    const neo__bag_feature *feature = &bags->view.features[f];
    const neo__job_table *table = &bags->tables[feature->job.table].job;
    NEO__ZERO(neo__bag_lookup, lookup);
    lookup.store = &table->store;
    lookup.table =
        table->store.dtype == NEO_F32 ? (const float *)(const void *)table->store.data : NULL;
    lookup.rows = table->rows;
    lookup.dim = table->store.dim;
    lookup.ids = bags->job.batch.ids;
    lookup.is_i32 = bags->job.batch.is_i32;
    lookup.weights = bags->job.batch.weights;
    lookup.offsets = bags->job.batch.offsets + feature->job.first_bag + bag;
    lookup.bags = end - bag;
    lookup.pooled = !bags->sizes.none;
    int64_t row = lookup.pooled ? bag : lookup.offsets[0] - bags->job.batch.offsets[0];
    int64_t at = feature->job.out_at + row * feature->job.out_stride;
    lookup.out = bags->job.tensor.out ? bags->job.tensor.out + at : NULL;
    lookup.dout = bags->job.tensor.dout ? bags->job.tensor.dout + at : NULL;
    lookup.out_stride = feature->job.out_stride;
    lookup.mean = table->mean;
    lookup.bounds = bags->tables[feature->job.table].bounds;
    lookup.inside = feature->bad == 0;
    lookup.buckets = table->buckets;
    lookup.bucket_rows = table->bucket_rows;
    lookup.first_row = table->first_row;
    lookup.bucket_shift =
        (double)table->first_row + ((double)table->buckets - 0.5) / (double)table->buckets;
    lookup.bucket_scale = (double)table->buckets / (double)table->bucket_rows;
    lookup.ahead = neo__bags_fetch_ahead(&lookup);
    if (end == feature->job.bags && f + 1 < bags->sizes.features && feature[1].bad == 0) {
        lookup.next_store = &bags->tables[feature[1].job.table].job.store;
        lookup.next_id = feature[1].first_id;
        lookup.next_count = feature[1].ids;
    }
    return lookup;
}

/* ---- every offset and id ---- */

NEO__INLINE int64_t neo__bags_count_bad(const void *ids, int is_i32, int64_t k, int64_t end,
                                        int64_t rows) {
    int64_t bad = 0;
    if (!is_i32 && !neo__any_outside((const int64_t *)ids + k, end - k, rows)) return 0;
    for (; k < end; k++) bad += (uint64_t)neo__jagged_id(ids, is_i32, k) >= (uint64_t)rows;
    return bad;
}
/* Keep the first of several positions: as ~position, of which the largest stays. */
static void neo__bags_note(unsigned long long *to, int64_t position) {
    unsigned long long note = ~(unsigned long long)position,
                       old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (old < note && !__atomic_compare_exchange_n(to, &old, note, 0, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED))
        continue;
}
/* The rows that ids [k, end) of a feature stand for, and what pools keys without one:
   >>impl-bags-keys. */
static void neo__bags_rows_of(const neo_bags *bags, neo__bag_feature *feature, int64_t k,
                              int64_t end);
static void neo__bags_pool_initial(const neo_bags *bags, const neo__bag_table *table,
                                   const neo__bag_lookup *lookup, int worker);
static void neo__bags_pool_runs(const neo_bags *bags, int64_t f, int64_t bag, int64_t end,
                                int worker);
/* Offsets that never decrease and stay inside, then ids. */
static void neo__bags_check_part(const neo__cpu_part *part) {
    const neo_bags *bags = (const neo_bags *)part->call;
    const int64_t *offsets = bags->job.batch.offsets;
    const void *ids = bags->job.batch.ids;
    const int is_i32 = bags->job.batch.is_i32;
    const int64_t begin = part->begin, end = part->end;
    const int may = neo__may_decrease(offsets + begin, end - begin);
    int bad = 0;
    for (int64_t k = begin; may && k < end; k++) {
        if (offsets[k + 1] >= offsets[k]) continue;
        neo__bags_note(&bags->job.batch.found->bag, k);
        bad = 1;
    }
    if (bad || offsets[begin] < offsets[0] || offsets[end] > offsets[bags->job.batch.bags]) return;
    for (int64_t f = 0; f < bags->sizes.features; f++) {
        neo__bag_feature *p = &bags->view.features[f];
        int64_t lo = NEO__MAX(begin, p->job.first_bag);
        int64_t hi = NEO__MIN(end, p->job.first_bag + p->job.bags);
        if (lo >= hi) continue;
        int64_t rows = bags->tables[p->job.table].rows, k = offsets[lo];
        if (bags->sizes.key_scratch) neo__bags_rows_of(bags, p, k, offsets[hi]);
        if (bags->tables[p->job.table].keys.desc.on) continue;
        int64_t count = is_i32 ? neo__bags_count_bad(ids, 1, k, offsets[hi], rows)
                               : neo__bags_count_bad(ids, 0, k, offsets[hi], rows);
        if (count == 0) continue;
        __atomic_fetch_add(&p->bad, count, __ATOMIC_RELAXED);
        while ((uint64_t)neo__jagged_id(ids, is_i32, k) < (uint64_t)rows) k++;
        neo__bags_note(&bags->job.batch.found->id, k - offsets[0]);
    }
}

/* ---- lookups ---- */

/* A share of the bags, feature by feature: their rows to out, or with dout the gradients of their
   weights. */
static void neo__bags_lookup_part(const neo__cpu_part *part) {
    const neo_bags *bags = (const neo_bags *)part->call;
    const neo__bag_kernels *kernels = bags->ctx->bag;
    int64_t f, bag, last_f, last_bag;
    neo__bags_seek(bags, part->begin, &f, &bag);
    neo__bags_seek(bags, part->end, &last_f, &last_bag);
    for (; f <= last_f && f < bags->sizes.features; f++, bag = 0) {
        const neo__bag_feature *p = &bags->view.features[f];
        int64_t bag_end = f == last_f ? last_bag : p->job.bags;
        if (bag >= bag_end) continue;
        neo__bag_lookup a = neo__bags_lookup(bags, f, bag, bag_end);
        const neo__bag_table *table = &bags->tables[p->job.table];
        const int short_of = table->keys.desc.on && p->bad;
        if (short_of && a.pooled && !a.dout) {
            neo__bags_pool_runs(bags, f, bag, bag_end, part->worker);
            continue;
        }
        if (a.dout)
            kernels->weight_grad(&a, bags->job.tensor.dweights +
                                         (a.offsets[0] - bags->job.batch.offsets[0]));
        else if (!a.pooled) kernels->copy(&a);
        else if (p->bad == 0 && neo__bags_are_plain(&a)) kernels->pool(&a);
        else kernels->pool_any(&a);
        if (short_of) neo__bags_pool_initial(bags, table, &a, part->worker);
    }
}
NEO__HOT_END

/* ---- the rows of the CPU's table ---- */
/* Whether an id may be of another feature than at its place of the last batch. Offsets are not
   checked yet: unsigned numbers do not overflow. */
static int neo__bags_moved(const neo_bags *bags, const int64_t *offsets) {
    const neo__bag_feature *features = bags->view.features;
    for (int64_t f = 0; f < bags->sizes.features; f++)
        if ((uint64_t)offsets[features[f].job.first_bag] - (uint64_t)offsets[0] !=
            (uint64_t)(features[f].first_id - features[0].first_id))
            return 1;
    return 0;
}
static neo_status neo__cpu_bags_check(neo_device *device, const neo__bags_job *job,
                                      neo__bags_found *found, const neo__later *later) {
    neo_bags *b = job->object;
    const int64_t bags = job->batch.bags, *offsets = job->batch.offsets;
    const int64_t ids_and_bags = bags + job->batch.most_ids;
    (void)later;
    b->job.batch.found = found;
    if (bags) found->first = offsets[0], found->last = offsets[bags];
    if (job->tensor.out || (bags && neo__bags_moved(b, offsets))) b->work.resolved = 0;
    neo__cpu_run(device, b, bags, 1 + 4096 * bags / (1 + ids_and_bags), 1, neo__bags_check_part);
    b->job.batch.found = NULL;
    neo__bags_point(&b->job, found);
    b->work.resolved = found->bag ? 0 : found->last - found->first;
    if (!found->bag) neo__bags_place_ids(b);
    for (int64_t f = 0; f < b->sizes.features; f++)
        if (!b->tables[b->view.features[f].job.table].keys.desc.on)
            found->count += (unsigned long long)b->view.features[f].bad;
    if (b->sizes.key_scratch && bags) { /* offsets count from the first */
        b->job.batch.ids = (const void *)((uintptr_t)b->work.rows -
                                          (uintptr_t)offsets[0] * sizeof *b->work.rows);
        b->job.batch.is_i32 = 0;
    }
    return NEO_OK;
}
static neo_status neo__cpu_bags_lookup(neo_device *d, const neo__bags_job *job) {
    (void)d;
    neo__bags_share(job->object, job->object->view.cost, neo__bags_lookup_part);
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
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
   ------------------------------------------------------------------------ */
enum { NEO__BAG_PACK_BAGS = 128, NEO__BAG_CHUNK = 2048, NEO__BAG_NEAR_FLOATS = 1 << 17 };

NEO__HOT_BEGIN
/* ---- leaves ---- */

/* Leaves of the batch. */
NEO__INLINE int64_t neo__bags_leaf_count(const neo_bags *b) {
    return b->job.sorted.leaves.count ? b->job.sorted.leaves.count : b->sizes.shards;
}
/* Bags of feature p in leaf v: [*begin, *end). */
NEO__INLINE void neo__bags_leaf_bags(const neo_bags *b, const neo__bag_feature *p, int64_t v,
                                     int64_t *begin, int64_t *end) {
    neo__leaf_cut cut = b->job.sorted.leaves;
    if (cut.count == 0) cut.batch = p->job.bags, cut.rows_per_sample = 1;
    neo__leaf_rows(&cut, (int)v, begin, end);
}
/* Rounds of the walk over a table's features: the leaves if it has several features, else one. */
NEO__INLINE int64_t neo__bags_rounds(const neo_bags *b, const neo__bag_table *t) {
    return t->feature_count > 1 ? neo__bags_leaf_count(b) : 1;
}
/* Bags of feature p in round v: [*begin, *end). */
NEO__INLINE void neo__bags_round(const neo_bags *b, const neo__bag_feature *p, int64_t rounds,
                                 int64_t v, int64_t *begin, int64_t *end) {
    *begin = 0;
    *end = p->job.bags;
    if (rounds > 1) neo__bags_leaf_bags(b, p, v, begin, end);
}
/* The round in which bag `bag` of p is. */
static int64_t neo__bags_round_of(const neo_bags *b, const neo__bag_feature *p, int64_t rounds,
                                  int64_t bag) {
    int64_t v = 0, begin, end;
    for (int64_t n = rounds; n > 1;) { /* the last round that begins at or before it */
        int64_t half = n / 2;
        neo__bags_round(b, p, rounds, v + half, &begin, &end);
        if (begin <= bag) v += half, n -= half;
        else n = half;
    }
    return v;
}

/* Give a table its buffers: `first` counts occurrences, `pack` floats. */
static void neo__bags_give_buffers(const neo_bags *b, int64_t ti, int64_t first, int64_t pack) {
    neo__bag_merge *m = &b->work.merge[ti];
    m->first = first;
    m->from = b->work.records[0] + first;
    m->to = b->work.records[1] + first;
    if (m->pack) {
        m->grad = m->pack_to = b->job.room.stage + pack;
        m->grad_stride = b->tables[ti].dim;
    }
}
/* ---- gather ---- */

/* Records of ids [k, end) of the feature, which begin in bag `bag`; to[0] is occurrence `number` of
   the table; low_of_bag: added to a bag's number. */
NEO__INLINE void neo__bags_record_run(const neo_bags *bags, const neo__bag_feature *feature,
                                      int64_t bag, int64_t k, int64_t end, int64_t low_of_bag,
                                      int64_t number, int is_i32, int plain) {
    const neo__bag_table *table = &bags->tables[feature->job.table];
    const neo__bag_merge *merge = &bags->work.merge[feature->job.table];
    const int64_t *offsets = bags->job.batch.offsets + feature->job.first_bag;
    const void *ids = bags->job.batch.ids;
    const float *weights = bags->job.batch.weights;
    uint64_t *to = merge->from + number;
    const int64_t rows = bags->job.batch.lines ? table->job.rows : table->rows;
    int low_bits = table->low_bits;
    for (; k < end; bag++) {
        int64_t stop = NEO__MIN(offsets[bag + 1], end), low = low_of_bag + bag;
        for (; k < stop; k++, number++) {
            int64_t row = neo__jagged_id(ids, is_i32, k);
            if (!plain) {
                if (row < 0 || row >= rows)
                    row = table->bounds == NEO_BOUNDS_DROP ? rows : row < 0 ? 0 : rows - 1;
                low = bags->sizes.none ? k - bags->job.batch.offsets[0] : low_of_bag + bag;
                if (merge->indirect) {
                    bags->work.grad_row[merge->first + number] = low;
                    if (weights) bags->work.grad_weight[merge->first + number] = weights[k];
                    low = number;
                }
            }
            *to++ = (uint64_t)row << low_bits | (uint64_t)low;
        }
    }
}
/* Occurrences [begin, end) of table ti, in canonical order. */
static void neo__bags_gather(const neo_bags *bags, int64_t ti, int64_t begin, int64_t end) {
    const neo__bag_table *table = &bags->tables[ti];
    const int is_i32 = bags->job.batch.is_i32;
    int64_t rounds = neo__bags_rounds(bags, table), number = 0, bag, bag_end;
    for (int64_t v = 0; v < rounds; v++) {
        for (int32_t q = 0; q < table->feature_count && number < end; q++) {
            const neo__bag_feature *feature = &bags->view.features[table->features[q]];
            const int64_t *offsets = bags->job.batch.offsets + feature->job.first_bag;
            if (feature->job.bags == 0) continue;
            neo__bags_round(bags, feature, rounds, v, &bag, &bag_end);
            int64_t base = offsets[bag], count = offsets[bag_end] - base;
            int64_t lo = NEO__MAX(begin - number, (int64_t)0), hi = NEO__MIN(end - number, count);
            int64_t low = bags->work.feature_leaf[table->features[q] * bags->sizes.shards + v];
            int64_t from = base + lo, to = base + hi, at = number + lo;
            int plain = feature->bad == 0 && !bags->sizes.none && !bags->work.merge[ti].indirect;
            number += count;
            if (lo >= hi) continue;
            bag += neo__bags_find(offsets + bag, sizeof *offsets, bag_end - bag, from);
            if (plain && is_i32) neo__bags_record_run(bags, feature, bag, from, to, low, at, 1, 1);
            else if (plain) neo__bags_record_run(bags, feature, bag, from, to, low, at, 0, 1);
            else neo__bags_record_run(bags, feature, bag, from, to, low, at, is_i32, 0);
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
/* Digits of n records that one thread sorts: wider if that saves a pass, but not so many of them
   that adding up their counts costs as much; narrower in more passes where few records have many
   counts. */
static int neo__bag_whole_digit_bits(int row_bits, int64_t n) {
    int bits = neo__bag_digit_bits(row_bits);
    const int more = neo__bag_passes(row_bits) + 1, narrow = (row_bits + more - 1) / more;
    if (more * (2 * n + ((int64_t)1 << narrow)) < (more - 1) * (2 * n + ((int64_t)1 << bits)))
        return narrow;
    for (int passes = neo__bag_passes(row_bits) - 1; passes > 0; passes--) {
        int wide = (row_bits + passes - 1) / passes;
        if (wide > NEO__BAG_DIGIT_BITS + 2 || passes << wide > NEO__BAG_COUNTS ||
            (int64_t)4 << wide > n)
            break;
        bits = wide;
    }
    return bits;
}
static void neo__bag_sort_few(uint64_t *r, int64_t n, int shift) {
    for (int64_t i = 1; i < n; i++) {
        uint64_t x = r[i];
        int64_t at = i;
        for (; at > 0 && r[at - 1] >> shift > x >> shift; at--) r[at] = r[at - 1];
        r[at] = x;
    }
}
/* count[pass][1 << bits] of n records, or ids, for `passes` digits from bit `shift` on. */
NEO__INLINE void neo__bag_count_digits_of(const void *from, int is_i32, int64_t n, int shift,
                                          int bits, int passes, int64_t *NEO__RESTRICT count) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    const int64_t digits = (int64_t)1 << bits;
    int pass = 0;
    for (; pass + 2 <= passes; pass += 2, count += 2 * digits, shift += 2 * bits) {
        int64_t *NEO__RESTRICT next = count + digits;
        for (int64_t i = 0; i < n; i++) {
            uint64_t x = (uint64_t)neo__jagged_id(from, is_i32, i) >> shift;
            count[x & mask]++;
            next[x >> bits & mask]++;
        }
    }
    for (int64_t i = 0; pass < passes && i < n; i++)
        count[(uint64_t)neo__jagged_id(from, is_i32, i) >> shift & mask]++;
}
static NEO__NOINLINE void neo__bag_count_digits(const void *from, int is_i32, int64_t n, int shift,
                                                int bits, int passes, int64_t *count) {
    if (is_i32) neo__bag_count_digits_of(from, 1, n, shift, bits, passes, count);
    else neo__bag_count_digits_of(from, 0, n, shift, bits, passes, count);
}
/* Turn counts of digits into places: digit by digit, part by part. */
NEO__INLINE void neo__bag_count_to_place(int64_t *count, int64_t digits, int64_t parts,
                                         int64_t stride) {
    int64_t sum = 0;
    for (int64_t d = 0; d < digits; d++) {
        for (int64_t i = 0; i < parts; i++) {
            int64_t n = count[i * stride + d];
            count[i * stride + d] = sum;
            sum += n;
        }
    }
}
static void neo__bag_scatter(uint64_t *NEO__RESTRICT to, const uint64_t *NEO__RESTRICT from,
                             int64_t n, int shift, int bits, int64_t *NEO__RESTRICT at) {
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < n; i++) to[at[from[i] >> shift & mask]++] = from[i];
}
static void neo__bag_swap(neo__bag_merge *m) {
    uint64_t *other = m->from;
    m->from = m->to;
    m->to = other;
}
/* The records of a feature which has its table for itself and only good ids, by their lowest
   digit: straight from the ids, without writing them down in order first. (Apart from counting:
   together they are short of registers.) */
NEO__INLINE void neo__bags_scatter_ids_of(const neo_bags *bags, const neo__bag_feature *feature,
                                          int64_t low, int is_i32, int bits,
                                          int64_t *NEO__RESTRICT at) {
    const void *ids = bags->job.batch.ids;
    const int64_t *offsets = bags->job.batch.offsets + feature->job.first_bag,
                  *last = offsets + feature->job.bags;
    const int low_bits = bags->tables[feature->job.table].low_bits;
    const int64_t mask = ((int64_t)1 << bits) - 1;
    uint64_t *NEO__RESTRICT to = bags->work.merge[feature->job.table].from;
    for (int64_t k = offsets[0]; offsets < last; offsets++, low++) {
        for (int64_t stop = offsets[1]; k < stop; k++) {
            int64_t row = neo__jagged_id(ids, is_i32, k);
            to[at[row & mask]++] = (uint64_t)row << low_bits | (uint64_t)low;
        }
    }
}
static NEO__NOINLINE void neo__bags_scatter_ids(const neo_bags *b, const neo__bag_feature *p,
                                                int64_t low, int bits, int64_t *at) {
    if (b->job.batch.is_i32) neo__bags_scatter_ids_of(b, p, low, 1, bits, at);
    else neo__bags_scatter_ids_of(b, p, low, 0, bits, at);
}
/* Gather the records of table ti, sorted by row, on one thread. Digits are counted in one go. */
static void neo__bags_gather_sorted(const neo_bags *bags, int64_t ti) {
    const neo__bag_table *table = &bags->tables[ti];
    neo__bag_merge *merge = &bags->work.merge[ti];
    int64_t count[NEO__BAG_COUNTS];
    const int bits = neo__bag_whole_digit_bits(table->row_bits, merge->count);
    const int passes = bits ? (table->row_bits + bits - 1) / bits : 0;
    const int64_t digits = (int64_t)1 << bits;
    const int64_t f = table->feature_count ? table->features[0] : 0;
    const neo__bag_feature *feature = &bags->view.features[f];
    const int few = merge->count <= 32;
    const int straight = !few && passes > 0 && table->feature_count == 1 && feature->bad == 0 &&
                         !bags->sizes.none && !merge->indirect;
    if (!straight) neo__bags_gather(bags, ti, 0, merge->count);
    if (few) {
        neo__bag_sort_few(merge->from, merge->count, table->low_bits);
        return;
    }
    memset(count, 0, (size_t)(passes * digits) * sizeof *count);
    if (straight) {
        const int is_i32 = bags->job.batch.is_i32;
        const char *ids = (const char *)bags->job.batch.ids;
        ids += (size_t)feature->first_id * (is_i32 ? sizeof(int32_t) : sizeof(int64_t));
        neo__bag_count_digits(ids, is_i32, feature->ids, 0, bits, passes, count);
    } else {
        neo__bag_count_digits(merge->from, 0, merge->count, table->low_bits, bits, passes, count);
    }
    for (int pass = 0; pass < passes; pass++)
        neo__bag_count_to_place(count + pass * digits, digits, 1, 0);
    if (straight)
        neo__bags_scatter_ids(bags, feature, bags->work.feature_leaf[f * bags->sizes.shards], bits,
                              count);
    for (int pass = straight; pass < passes; pass++) {
        neo__bag_scatter(merge->to, merge->from, merge->count, table->low_bits + pass * bits, bits,
                         count + pass * digits);
        neo__bag_swap(merge);
    }
}

/* Bits of the digit by which the running pass of the shared sorts sorts table ti, from *shift on;
   0: the table has fewer passes. */
static int neo__bags_digit(const neo_bags *b, int64_t ti, int *shift) {
    const neo__bag_table *t = &b->tables[ti];
    int bits = neo__bag_digit_bits(t->row_bits), pass = b->walk.pass;
    *shift = t->low_bits + pass * bits;
    return pass < neo__bag_passes(t->row_bits) ? bits : 0;
}
static void neo__bags_scatter_task(void *arg, int64_t i, int worker) {
    const neo_bags *b = (const neo_bags *)arg;
    neo__bag_chunk *chunk = &b->work.chunks[i];
    const neo__bag_merge *m = &b->work.merge[chunk->table];
    int shift, bits = neo__bags_digit(b, chunk->table, &shift);
    (void)worker;
    if (bits)
        neo__bag_scatter(m->to, m->from + chunk->begin, chunk->end - chunk->begin, shift, bits,
                         chunk->count);
}
/* ---- pack ---- */

/* Gradients of bags [bag, end) of feature f, to their places in canonical order. */
static void neo__bags_pack(const neo_bags *bags, int64_t f, int64_t bag, int64_t end) {
    const neo__bag_feature *feature = &bags->view.features[f];
    const neo__bag_table *table = &bags->tables[feature->job.table];
    const int64_t *offsets = bags->job.batch.offsets + feature->job.first_bag, dim = table->dim;
    const float *dout = bags->job.tensor.dout + feature->job.out_at;
    float *to = bags->work.merge[feature->job.table].pack_to;
    int64_t rounds = neo__bags_rounds(bags, table);
    for (int64_t v = neo__bags_round_of(bags, feature, rounds, bag); bag < end; v++) {
        int64_t begin, stop;
        neo__bags_round(bags, feature, rounds, v, &begin, &stop);
        stop = NEO__MIN(stop, end);
        if (stop <= bag) continue;
        int64_t low = bag + bags->work.feature_leaf[f * bags->sizes.shards + v];
        bags->ctx->bag->pack(to + low * dim, dim, dout + bag * feature->job.out_stride,
                             feature->job.out_stride, stop - bag, dim,
                             table->job.mean ? offsets + bag : NULL);
        bag = stop;
    }
}
/* Count the digits of a chunk of a shared sort, before the first pass gather it. The tasks behind
   those of all chunks pack bags for shared tables. */
static void neo__bags_shared_task(void *arg, int64_t i, int worker) {
    const neo_bags *bags = (const neo_bags *)arg;
    (void)worker;
    if (i >= bags->walk.chunk_count) {
        const neo__bag_feature *features = bags->view.features;
        int64_t task = i - bags->walk.chunk_count;
        int64_t f =
            neo__bags_find(&features->pack_task, sizeof *features, bags->sizes.features, task);
        int64_t bag = (task - features[f].pack_task) * NEO__BAG_PACK_BAGS;
        neo__bags_pack(bags, f, bag, NEO__MIN(bag + NEO__BAG_PACK_BAGS, features[f].job.bags));
        return;
    }
    neo__bag_chunk *chunk = &bags->work.chunks[i];
    const uint64_t *records = bags->work.merge[chunk->table].from + chunk->begin;
    int shift, bits = neo__bags_digit(bags, chunk->table, &shift);
    if (bags->walk.pass == 0) neo__bags_gather(bags, chunk->table, chunk->begin, chunk->end);
    if (bits == 0) return;
    memset(chunk->count, 0, sizeof chunk->count);
    neo__bag_count_digits(records, 0, chunk->end - chunk->begin, shift, bits, 1, chunk->count);
}

/* ---- merge and step ---- */

/* The record of which table is `target` of the cost; at the begin of a row. */
static void neo__bags_seek_record(const neo_bags *bags, int64_t target, int64_t *table,
                                  int64_t *record) {
    const neo__bag_merge *merge = bags->work.merge;
    *table = neo__bags_find(&merge->cost_begin, sizeof *merge, bags->sizes.tables + 1, target);
    *record = 0;
    if (*table == bags->sizes.tables) return;
    merge += *table;
    int shift = bags->tables[*table].low_bits;
    int64_t at = (target - merge->cost_begin) / neo__bag_cost(bags->tables[*table].dim);
    if (at > 0 && at < merge->kept && merge->from[at] >> shift == merge->from[at - 1] >> shift) {
        uint64_t row = merge->from[at] >> shift;
        for (int64_t end = merge->kept; at < end;) { /* the first record of a later row */
            int64_t mid = (at + end) / 2;
            if (merge->from[mid] >> shift > row) end = mid;
            else at = mid + 1;
        }
    }
    *record = NEO__MIN(at, merge->kept);
}

/* Note the rows of sorted records as changed: a word of bits at a time. A tier's records have
   lines. */
static void neo__bags_mark_records(const neo__bag_table *table, const uint64_t *records,
                                   int64_t count) {
    const uint64_t *line_row = table->job.store.line_row;
    if (table->marks.before) {
        table->marks.before(table->marks.user, records, count, table->low_bits, line_row);
        return;
    }
    for (int64_t i = 0; line_row && i < count; i++) {
        const uint64_t row = line_row[records[i] >> table->low_bits], bit = UINT64_C(1) << row % 64;
        if (bit & ~__atomic_load_n(&table->marks.bits[row / 64], __ATOMIC_RELAXED))
            __atomic_fetch_or(&table->marks.bits[row / 64], bit, __ATOMIC_RELAXED);
    }
    if (line_row) return;
    for (int64_t i = 0; i < count;) {
        const uint64_t word = records[i] >> table->low_bits >> 6;
        uint64_t *bits = table->marks.bits + word, mask = 0;
        for (; i < count && records[i] >> table->low_bits >> 6 == word; i++)
            mask |= UINT64_C(1) << (records[i] >> table->low_bits & 63);
        if (mask & ~__atomic_load_n(bits, __ATOMIC_RELAXED))
            __atomic_fetch_or(bits, mask, __ATOMIC_RELAXED);
    }
}
static void neo__bags_step_records(const neo_bags *bags, int64_t ti, int64_t begin, int64_t end,
                                   int worker) {
    const neo__bag_table *table = &bags->tables[ti];
    const neo__bag_merge *merge = &bags->work.merge[ti];
    const int of_kept = bags->walk.of_kept;
    NEO__ZERO(neo__bag_update, update);
    update.records = merge->from + begin;
    update.count = end - begin;
    update.low_bits = table->low_bits;
    update.grad = merge->grad;
    update.grad_stride = merge->grad_stride;
    update.grad_row = merge->indirect ? bags->work.grad_row + merge->first : NULL;
    update.grad_weight =
        !of_kept && bags->job.batch.weights ? bags->work.grad_weight + merge->first : NULL;
    update.leaf = bags->work.leaf + ti * (bags->sizes.shards + 1);
    update.leaf_count = of_kept ? 1 : (int)neo__bags_leaf_count(bags);
    update.store = &table->job.store;
    update.weight =
        table->job.store.dtype == NEO_F32 ? (float *)(void *)table->job.store.data : NULL;
    update.dim = table->dim;
    for (int i = 0; i < 2; i++) {
        update.state[i] = table->job.state[i];
        update.state_dim[i] = table->job.state_dim[i];
    }
    update.step = bags->job.told.host_rules[ti].step;
    update.round = table->round_nearest ? NULL : &bags->job.told.host_rules[ti].round;
    update.fetch_grads = of_kept || bags->sizes.none ||
                         merge->bags * merge->grad_stride > NEO__BAG_NEAR_FLOATS;
    update.scratch = bags->work.scratch + worker * bags->sizes.scratch;
    update.keep_at = bags->job.keep ? bags->kept.keep_at + merge->first + begin : NULL;
    update.keep_to = bags->job.kept.sums;
    if (table->marks.bits && !update.keep_at)
        neo__bags_mark_records(table, update.records, update.count);
    if (!of_kept || !table->job.cut) {
        bags->ctx->bag->update(&update);
        return;
    }
    neo__bag_cut cut = bags->cut.cuts[ti].cut;
    cut.total += begin;
    if (cut.want) cut.blocks += begin * cut.blocks_per_row;
    bags->ctx->bag->update_cut(&update, &cut);
}
static void neo__bags_step_part(const neo__cpu_part *part) {
    const neo_bags *b = (const neo_bags *)part->call;
    int64_t table, record, last_table, last_record;
    neo__bags_seek_record(b, part->begin, &table, &record);
    neo__bags_seek_record(b, part->end, &last_table, &last_record);
    for (; table <= last_table && table < b->sizes.tables; table++, record = 0) {
        const neo__bag_merge *m = &b->work.merge[table];
        int64_t stop = table == last_table ? last_record : m->kept;
        if (!m->whole && record < stop)
            neo__bags_step_records(b, table, record, stop, part->worker);
    }
}

static void neo__bags_whole_task(void *arg, int64_t ti, int worker) {
    const neo_bags *bags = (const neo_bags *)arg;
    const neo__bags_walk *k = &bags->walk;
    const neo__bag_table *t = &bags->tables[ti];
    const neo__bag_merge *m = &bags->work.merge[ti];
    if (!m->whole || m->count == 0) return;
    if (k->reuse)
        neo__bags_give_buffers(bags, ti, k->whole_ids + worker * k->reuse_ids,
                               k->whole_pack + worker * k->reuse_pack);
    for (int32_t q = 0; m->pack && q < t->feature_count; q++)
        neo__bags_pack(bags, t->features[q], 0, bags->view.features[t->features[q]].job.bags);
    neo__bags_gather_sorted(bags, ti);
    neo__bags_step_records(bags, ti, 0, m->kept, worker);
}
/* ---- kept gradients ----

   A hash table finds the slot of a (table, row). Rows get their slots one by one, so that their
   order depends on no thread; then the sums are made and added by all threads. */

static uint64_t neo__bag_slot_place(const neo_bags *b, int32_t table, int64_t row) {
    uint64_t i = neo__mix64((uint64_t)row * 0x9E3779B97F4A7C15u + (uint64_t)table) & b->kept.mask;
    for (; b->kept.slot_of[i]; i = (i + 1) & b->kept.mask) {
        const neo__bag_slot *slot = &b->kept.slots[b->kept.slot_of[i] - 1];
        if (slot->row == row && slot->table == table) break;
    }
    return i;
}
/* Forget the last slots: in reverse order, so that no chain of the hash table breaks. */
static neo_status neo__cpu_bags_drop_slots(neo_device *d, const neo__bags_job *job) {
    neo_bags *b = job->object;
    (void)d;
    while (b->kept.count > job->kept.count) {
        const neo__bag_slot *slot = &b->kept.slots[--b->kept.count];
        b->kept.slot_of[neo__bag_slot_place(b, slot->table, slot->row)] = 0;
        b->kept.floats = slot->at;
    }
    return NEO_OK;
}
/* Find or make the slot of a row: where its gradient is, << 1, | 1 if it is new. -1: no room. */
static int64_t neo__bags_find_slot(neo_bags *bags, int64_t table, int64_t row) {
    uint32_t *slot_of = &bags->kept.slot_of[neo__bag_slot_place(bags, (int32_t)table, row)];
    if (*slot_of) return bags->kept.slots[*slot_of - 1].at << 1;
    if (bags->kept.count == bags->kept.capacity) return -1;
    neo__bag_slot *slot = &bags->kept.slots[bags->kept.count++];
    slot->table = (int32_t)table;
    slot->row = row;
    slot->at = bags->kept.floats;
    bags->kept.floats += bags->tables[table].dim;
    *slot_of = (uint32_t)bags->kept.count;
    return slot->at << 1 | 1;
}
/* Slots for the rows of all sorted records. 0: no room. */
static int neo__bags_keep_records(neo_bags *bags) {
    for (int64_t ti = 0; ti < bags->sizes.tables; ti++) {
        const neo__bag_merge *m = &bags->work.merge[ti];
        int shift = bags->tables[ti].low_bits;
        for (int64_t i = 0; i < m->kept; i++) {
            uint64_t row = m->from[i] >> shift;
            if (i > 0 && row == m->from[i - 1] >> shift) continue;
            int64_t at = bags->kept.keep_at[m->first + i] =
                neo__bags_find_slot(bags, ti, (int64_t)row);
            if (at < 0) return 0;
        }
    }
    return 1;
}
/* Slots for the rows of add_grad. 0: no room. */
static int neo__bags_keep_rows(neo_bags *b) {
    for (int64_t i = 0; i < b->job.sorted.records; i++) {
        int64_t at = neo__bags_find_slot(b, b->job.table, b->walk.rows[i]);
        if (at < 0) return 0;
        b->kept.keep_at[i] = at >> 1;
    }
    return 1;
}
/* Kept rows as records, table by table, in the order of the slots. */
static void neo__bags_kept_records(neo_bags *bags) {
    int64_t first = 0;
    memset(bags->work.merge, 0, (size_t)(bags->sizes.tables + 1) * sizeof *bags->work.merge);
    for (int64_t i = 0; i < bags->kept.count; i++)
        bags->work.merge[bags->kept.slots[i].table].kept++;
    for (int64_t t = 0; t < bags->sizes.tables; t++) {
        neo__bag_merge *m = &bags->work.merge[t];
        m->first = first;
        m->from = bags->work.records[0] + first;
        m->grad = bags->job.kept.sums;
        m->grad_stride = 1;
        m->indirect = 1;
        first += m->kept;
    }
    for (int64_t i = 0; i < bags->kept.count; i++) {
        const neo__bag_slot *slot = &bags->kept.slots[i];
        neo__bag_merge *m = &bags->work.merge[slot->table];
        bags->work.grad_row[m->first + m->count] = slot->at;
        const int64_t row = bags->tier ? bags->tier->line[i] : slot->row;
        m->from[m->count] =
            (uint64_t)row << bags->tables[slot->table].low_bits | (uint64_t)m->count;
        m->count++;
    }
}
/* Add the gradients of add_grad's rows to those kept. */
static void neo__bags_add_rows(const neo_bags *b) {
    const int64_t dim = b->tables[b->job.table].dim;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < b->job.sorted.records; i++) {
        const float *from = b->job.tensor.dout + i * b->job.sorted.grad_unit;
        float *to = b->job.kept.sums + b->kept.keep_at[i];
        for (int64_t c = 0; c < dim; c++) to[c] += from[c];
    }
    neo__fp_leave(fp);
}

/* ---- rows to f32 and back ---- */
typedef struct neo__bag_rows_job {
    const neo_bags *b;
    const neo__bag_rows *table;
    int64_t first;
    float *rows;
    int write;
} neo__bag_rows_job;
static void neo__bag_rows_part(const neo__cpu_part *part) {
    const neo__bag_rows_job *job = (const neo__bag_rows_job *)part->call;
    const int64_t dim = job->table->dim;
    /* encoding fills a row up */
    float *w = job->b->work.scratch + part->worker * job->b->sizes.scratch;
    for (int64_t i = part->begin; i < part->end; i++) {
        float *row = job->rows + i * dim;
        if (!job->write) {
            part->ctx->bag->decode(job->table, job->first + i, 0, dim, row);
            continue;
        }
        memcpy(w, row, (size_t)dim * sizeof *w);
        part->ctx->bag->encode(job->table, job->first + i, w, NULL);
    }
}
NEO__HOT_END

/* ---- plan ---- */

/* The first low of every leaf of table ti, and of every (feature, leaf): minus its first bag. */
static void neo__bags_plan_leaves(const neo_bags *bags, int64_t ti) {
    const neo__bag_table *table = &bags->tables[ti];
    const neo__bag_merge *merge = &bags->work.merge[ti];
    const int64_t *all = bags->job.batch.offsets, first_id = bags->job.batch.bags ? all[0] : 0;
    int64_t shards = bags->sizes.shards, leaves = neo__bags_leaf_count(bags), low = 0,
            occurrence = 0;
    int64_t *leaf = bags->work.leaf + ti * (shards + 1);
    for (int64_t v = 0; v < leaves; v++) {
        leaf[v] = merge->indirect ? occurrence : low;
        for (int32_t q = 0; q < table->feature_count; q++) {
            const neo__bag_feature *p = &bags->view.features[table->features[q]];
            const int64_t *offsets = all + p->job.first_bag;
            int64_t begin, end;
            neo__bags_leaf_bags(bags, p, v, &begin, &end);
            bags->work.feature_leaf[table->features[q] * shards + v] = low - begin;
            if (p->job.bags == 0) continue;
            occurrence += offsets[end] - offsets[begin];
            low = bags->sizes.none ? offsets[end] - first_id : low + (end - begin);
        }
        if (bags->sizes.none && v == 0 && table->feature_count && !merge->indirect)
            leaf[0] = bags->view.features[table->features[0]].first_id - first_id;
    }
    leaf[leaves] = INT64_MAX;
}

/* Plan table ti, but for its buffers: whole or shared, packed or not. */
static void neo__bags_plan_table(neo_bags *bags, int64_t ti) {
    const neo__bag_table *table = &bags->tables[ti];
    neo__bag_merge *merge = &bags->work.merge[ti];
    const int threads = (int)bags->sizes.threads, several = table->feature_count > 1;
    int64_t dropped = 0;
    memset(merge, 0, sizeof *merge);
    merge->whole = 1;
    if (bags->job.only_cut >= 0 && bags->job.only_cut != table->job.cut)
        return; /* not in this walk */
    for (int32_t q = 0; q < table->feature_count; q++) {
        const neo__bag_feature *p = &bags->view.features[table->features[q]];
        merge->count += p->ids;
        merge->bags += p->job.bags;
        dropped += p->bad;
    }
    merge->kept = merge->count - (table->bounds == NEO_BOUNDS_DROP ? dropped : 0);
    int64_t cost = (merge->count + merge->bags) * neo__bag_cost(table->dim);
    merge->whole = !bags->job.keep && (threads == 1 || cost <= bags->view.cost / (4 * threads));
    merge->indirect =
        bags->job.batch.weights || (bags->sizes.none && several && bags->sizes.shards > 1);
    merge->pack =
        !bags->sizes.none && (table->job.mean || several || merge->count >= 4 * merge->bags);
    if (!merge->pack && table->feature_count) {
        const neo__bag_feature *p = &bags->view.features[table->features[0]];
        merge->grad = bags->job.tensor.dout + p->job.out_at;
        merge->grad_stride = p->job.out_stride;
    }
    neo__bags_plan_leaves(bags, ti);
}

/* Shared tables first; whole tables after them, each in its place, or all in one place per worker
   when these places fit into the same room. */
static void neo__bags_plan_buffers(neo_bags *bags) {
    neo__bags_walk *walk = &bags->walk;
    int64_t first = 0, pack = 0, threads = bags->sizes.threads, ids = 0, floats = 0;
    for (int whole = 0; whole < 2; whole++) {
        if (whole) walk->whole_ids = first, walk->whole_pack = pack;
        for (int64_t ti = 0; ti < bags->sizes.tables; ti++) {
            const neo__bag_merge *m = &bags->work.merge[ti];
            int64_t packed = m->pack ? m->bags * bags->tables[ti].dim : 0;
            if (m->whole != whole) continue;
            neo__bags_give_buffers(bags, ti, first, pack);
            first += m->count;
            pack += packed;
            if (whole) ids = NEO__MAX(ids, m->count), floats = NEO__MAX(floats, packed);
        }
    }
    walk->reuse_ids = (ids + 7) / 8 * 8;
    walk->reuse_pack = (floats + 15) / 16 * 16;
    walk->reuse =
        walk->whole_ids + walk->reuse_ids * threads <= bags->sizes.max_ids &&
        walk->whole_pack + walk->reuse_pack * threads <= bags->sizes.max_batch * bags->sizes.width;
}

/* Pieces of the sort and of the packing of shared tables. Fewer than 4 threads of these tables. */
static void neo__bags_plan_shared(neo_bags *bags) {
    neo__bags_walk *walk = &bags->walk;
    const int64_t threads = bags->sizes.threads;
    const int64_t most = NEO__MAX((int64_t)NEO__BAG_CHUNK, walk->whole_ids / (4 * threads) + 1);
    for (int64_t ti = 0; ti < bags->sizes.tables; ti++) {
        neo__bag_merge *m = &bags->work.merge[ti];
        m->first_chunk = walk->chunk_count;
        m->chunks = m->whole ? 0 : (m->count + most - 1) / most;
        if (m->chunks)
            walk->passes = NEO__MAX(walk->passes, neo__bag_passes(bags->tables[ti].row_bits));
        for (int64_t i = 0; i < m->chunks; i++) {
            neo__bag_chunk *chunk = &bags->work.chunks[walk->chunk_count++];
            chunk->table = ti;
            neo__task_range(m->count, m->chunks, i, 1, &chunk->begin, &chunk->end);
        }
    }
    NEO_ASSERT(walk->chunk_count <=
               neo__bags_most_tasks(threads) + (bags->kept.capacity ? bags->sizes.tables + 4 : 0));
    for (int64_t f = 0; f < bags->sizes.features; f++) {
        neo__bag_feature *p = &bags->view.features[f];
        const neo__bag_merge *m = &bags->work.merge[p->job.table];
        p->pack_task = walk->pack_tasks;
        if (m->pack && !m->whole)
            walk->pack_tasks += (p->job.bags + NEO__BAG_PACK_BAGS - 1) / NEO__BAG_PACK_BAGS;
    }
}

/* The passes of all shared sorts; the first count is done. */
static void neo__bags_sort_shared(neo_bags *bags) {
    neo__bags_walk *walk = &bags->walk;
    int shift;
    for (walk->pass = 0; walk->pass < walk->passes; walk->pass++) {
        if (walk->pass > 0)
            neo__run_tasks(bags->ctx, walk->chunk_count, neo__bags_shared_task, bags,
                           walk->whole_ids);
        for (int64_t ti = 0; ti < bags->sizes.tables; ti++) {
            const neo__bag_merge *m = &bags->work.merge[ti];
            neo__bag_chunk *chunk = bags->work.chunks + m->first_chunk;
            if (m->chunks && neo__bags_digit(bags, ti, &shift))
                neo__bag_count_to_place((int64_t *)(void *)((char *)chunk +
                                                            offsetof(neo__bag_chunk, count)),
                                        NEO__BAG_DIGITS, m->chunks,
                                        (int64_t)(sizeof *chunk / sizeof *chunk->count));
        }
        neo__run_tasks(bags->ctx, walk->chunk_count, neo__bags_scatter_task, bags,
                       2 * walk->whole_ids);
        for (int64_t ti = 0; ti < bags->sizes.tables; ti++)
            if (bags->work.merge[ti].chunks && neo__bags_digit(bags, ti, &shift))
                neo__bag_swap(&bags->work.merge[ti]);
    }
}

/* Shared tables, cut in pieces of equal cost. */
static void neo__bags_step_shared(neo_bags *b) {
    int64_t cost = 0;
    for (int64_t t = 0; t <= b->sizes.tables; t++) {
        neo__bag_merge *m = &b->work.merge[t];
        m->cost_begin = cost;
        if (t < b->sizes.tables && !m->whole) cost += m->kept * neo__bag_cost(b->tables[t].dim);
    }
    neo__bags_share(b, cost, neo__bags_step_part);
}

/* ---- the rows of the CPU's table ----

   Sort plans all tables, and gathers, packs and sorts the shared ones; update does whole tables,
   and steps or keeps the shared ones. Between them the plan is in the object. */
static neo_status neo__cpu_bags_sort(neo_device *device, const neo__bags_job *job) {
    neo_bags *b = job->object;
    neo__bags_walk *k = &b->walk;
    memset(k, 0, sizeof *k);
    for (int64_t ti = 0; ti < b->sizes.tables; ti++) neo__bags_plan_table(b, ti);
    neo__bags_plan_buffers(b);
    neo__bags_plan_shared(b);
    neo__run_tasks(neo__cpu_ctx(device), k->chunk_count + k->pack_tasks, neo__bags_shared_task, b,
                   4 * k->whole_ids + k->whole_pack / 4);
    neo__bags_sort_shared(b);
    return NEO_OK;
}
/* The rows of add_grad are their own records. */
static neo_status neo__cpu_bags_sort_rows(neo_device *d, const neo__bags_job *job,
                                          const int64_t *rows, int64_t first_key) {
    (void)d;
    (void)first_key;
    job->object->walk.rows = rows;
    return NEO_OK;
}
static neo_status neo__cpu_bags_find_slots(neo_device *d, const neo__bags_job *job, int by_value,
                                           int64_t *fresh, const neo__later *later) {
    neo_bags *b = job->object;
    const int64_t before = b->kept.count;
    const int fits = by_value ? neo__bags_keep_rows(b) : neo__bags_keep_records(b);
    (void)d, (void)later;
    *fresh = (fits ? b->kept.count : b->kept.capacity + 1) - before;
    return NEO_OK;
}
static neo_status neo__cpu_bags_give_slots(neo_device *d, const neo__bags_job *job, int by_value) {
    (void)d, (void)job, (void)by_value; /* finding has given them */
    return NEO_OK;
}
static neo_status neo__cpu_bags_update(neo_device *d, const neo__bags_job *job) {
    neo_bags *b = job->object;
    if (job->add) {
        neo__bags_add_rows(b);
        return NEO_OK;
    }
    neo__run_tasks(neo__cpu_ctx(d), b->sizes.tables, neo__bags_whole_task, b, b->view.cost / 2);
    neo__bags_step_shared(b);
    return NEO_OK;
}
/* Step all that is kept; or, while cut tables ask for sums, compute these. */
static neo_status neo__cpu_bags_step_kept(neo_device *device, const neo__bags_job *job) {
    neo_bags *b = job->object;
    int asked = 0;
    (void)device;
    memset(&b->walk, 0, sizeof b->walk);
    b->walk.of_kept = 1;
    neo__bags_kept_records(b);
    for (int64_t t = 0; b->sizes.cut_tables && t < b->sizes.tables; t++)
        if (b->cut.cuts[t].cut.want) asked = 1;
    for (int64_t t = 0; asked && t < b->sizes.tables; t++)
        b->work.merge[t].whole = !b->cut.cuts[t].cut.want; /* not in this walk */
    neo__bags_step_shared(b);
    return NEO_OK;
}
static neo_status neo__cpu_bags_squares(neo_device *device, const neo__bags_job *job, int64_t first,
                                        int64_t count, float *out, uint64_t *sum) {
    const neo_bags *b = job->object;
    const int64_t blocks = neo__bag_blocks(job->fixed.max_dim);
    (void)device, (void)sum;
    for (int64_t i = first; i < first + count; i++, out += blocks) {
        const float *g = job->kept.sums + b->kept.slots[i].at;
        int64_t dim = b->tables[b->kept.slots[i].table].dim, own = neo__bag_blocks(dim);
        b->ctx->bag->blocks(g, g, dim, out);
        memset(out + own, 0, (size_t)(blocks - own) * sizeof *out);
    }
    return NEO_OK;
}
static neo_status neo__cpu_bags_rows(neo_device *d, const neo__bags_job *job, int table,
                                     int64_t first, int64_t count, float *rows, int write) {
    neo__bag_rows_job to;
    to.b = job->object;
    to.table = &job->object->tables[table].job.store;
    to.first = first;
    to.rows = rows;
    to.write = write;
    neo__cpu_run(d, &to, count, 1 + (1 << 14) / to.table->dim, 1, neo__bag_rows_part);
    return NEO_OK;
}
static neo_status neo__cpu_bags_spread(neo_device *device, const neo__bags_job *job);
static void neo__cpu_bags_init(neo_device *device) {
    device->bags_check = neo__cpu_bags_check;
    device->bags_forward = device->bags_weight_grad = neo__cpu_bags_lookup;
    device->bags_spread = neo__cpu_bags_spread;
    device->bags_sort = neo__cpu_bags_sort;
    device->bags_sort_rows = neo__cpu_bags_sort_rows;
    device->bags_update = neo__cpu_bags_update;
    device->bags_step_kept = device->bags_cut = neo__cpu_bags_step_kept;
    device->bags_find_slots = neo__cpu_bags_find_slots;
    device->bags_give_slots = neo__cpu_bags_give_slots;
    device->bags_drop_slots = neo__cpu_bags_drop_slots;
    device->bags_squares = neo__cpu_bags_squares;
    device->bags_rows = neo__cpu_bags_rows;
}
/* ---------------------------------------------------------------------------
   >>impl-bags-keys

   Tables whose ids are keys. The map (>>lines) has a line for each row. The look at a batch finds
   the row of every id; from then on the call works on rows, and -1 is an id that is dropped.

   Forward then pools once more, number by number, the bags that have a key without a row: with its
   initial row, in its set's bucket. backward and accumulate give rows first: table by table they
   touch what is there, sort the hashes of the rest, and go through them in order. Hashes and keys
   are one to one, so that equal keys stand together. A device gets rows in place of ids, and makes
   initial rows itself.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
static int64_t neo__bags_now(const neo_bags *b) {
    return b->key_steps < (int64_t)UINT32_MAX ? b->key_steps + 1 : (int64_t)UINT32_MAX;
}
static void neo__bags_rows_of(const neo_bags *bags, neo__bag_feature *feature, int64_t k,
                              int64_t end) {
    enum { MOST = 8192 };
    const neo__bag_table *table = &bags->tables[feature->job.table];
    const neo__bags_job *from = &bags->job;
    int64_t at = k - from->batch.offsets[0], missing = 0;
    for (int64_t n; k < end; k += n, at += n) {
        uint64_t *key = bags->work.keys + at, differs;
        int64_t *to = bags->work.rows + at;
        n = NEO__MIN(end - k, (int64_t)MOST);
        differs = at + n > bags->work.resolved;
        if (from->batch.is_i32)
            for (int64_t i = 0; i < n; i++) {
                const uint64_t id = (uint64_t)neo__jagged_id(from->batch.ids, 1, k + i);
                differs |= id ^ key[i];
                key[i] = id;
            }
        else {
            const int64_t *ids = (const int64_t *)from->batch.ids + k;
            differs = differs || memcmp(key, ids, (size_t)n * sizeof *key) != 0;
            memcpy(key, ids, (size_t)n * sizeof *key);
        }
        if (!table->keys.desc.on) memcpy(to, key, (size_t)n * sizeof *to);
        else if (differs)
            missing += bags->ctx->bag->find(&table->keys.lines, key, n, neo__bags_now(bags), 0, to);
        else
            for (int64_t i = 0; i < n; i++) missing += to[i] < 0;
    }
    if (table->keys.desc.on) __atomic_fetch_add(&feature->bad, missing, __ATOMIC_RELAXED);
}
static uint64_t neo__bags_key_at(const neo_bags *bags, int64_t k) {
    return bags->work.keys[k - bags->view.features[0].first_id];
}

/* ---- initial rows ----

   Made some at a time, of blocks of random numbers that fill vectors: those of the next ids that
   have no row, when one of them is read, or of keys that get a row, when some have. */
typedef struct neo__key_rows {
    const neo_bags *bags;
    const neo__bag_table *table;
    int worker, whole; /* whole: f32 in any table; else as its dtype holds them */
    int64_t count, at; /* rows; the one to be read next */
    int64_t place[NEO__BAG_GROUP]; /* of each its id, or the row it becomes */
    uint64_t key[NEO__BAG_GROUP];
    float *row[NEO__BAG_GROUP]; /* in the worker's scratch */
} neo__key_rows;

static neo__key_rows neo__key_rows_of(const neo_bags *bags, const neo__bag_table *table, int worker,
                                      int whole) {
    NEO__ZERO(neo__key_rows, rows);
    rows.bags = bags;
    rows.table = table;
    rows.worker = worker;
    rows.whole = whole;
    return rows;
}
static float *neo__key_scratch(const neo__key_rows *rows) {
    return rows->bags->work.key_scratch + rows->worker * rows->bags->sizes.key_scratch;
}
static void neo__key_rows_blocks(const neo__key_rows *rows, float *to, int64_t floats,
                                 const uint64_t *number) {
    const neo__init_call *call = &rows->table->keys.job.init;
    for (int64_t i = 0; i < floats && call->init.kind == NEO_INIT_CONSTANT; i++)
        to[i] = call->init.a;
    if (call->init.kind != NEO_INIT_CONSTANT)
        neo__init_blocks(rows->bags->ctx, call, to, floats / 4, 0, number);
}
/* The rows of the keys. */
static void neo__key_rows_make(neo__key_rows *rows) {
    enum { MOST = 64 };
    const neo__bag_table *table = rows->table;
    const neo_bags *bags = rows->bags;
    const int64_t dim = table->dim, room = neo__bag_room(dim);
    float *w = neo__key_scratch(rows) + room, *to = w + 2 * room + 16;
    uint64_t number[MOST] = {0};
    int n = 0;
    for (int64_t r = 0; r < rows->count; r++) {
        const uint64_t first =
            rows->key[r] * table->job.store.stride + (uint64_t)table->keys.job.first_col;
        const int64_t blocks = ((int64_t)(first % 4) + dim + 3) / 4;
        rows->row[r] = to + 4 * n + first % 4;
        for (int64_t i = 0; i < blocks; i++) {
            number[n++] = (first / 4 + (uint64_t)i) & UINT64_MAX / 4;
            if (n < MOST) continue;
            neo__key_rows_blocks(rows, to, 4 * n, number);
            to += 4 * n;
            n = 0;
        }
    }
    if (n) neo__key_rows_blocks(rows, to, 4 * n, number);
    neo__bag_rows one = table->job.store;
    one.data = (char *)(w + room);
    one.scale = w + 2 * room;
    for (int64_t r = 0; r < rows->count && !rows->whole && one.dtype != NEO_F32; r++) {
        memcpy(w, rows->row[r], (size_t)dim * sizeof *w);
        bags->ctx->bag->encode(&one, 0, w, NULL);
        bags->ctx->bag->decode(&one, 0, 0, dim, rows->row[r]);
    }
    rows->at = 0;
}
/* The initial rows of id k and of those after it that have no row. */
static void neo__key_rows_from(neo__key_rows *rows, int64_t k, int64_t end, const int64_t *at) {
    const int64_t most = rows->table->keys.desc.shared ? 1 : neo__bag_group(rows->table->dim);
    rows->count = 0;
    for (; k < end && rows->count < most; k++) {
        if (at[k] >= 0) continue;
        rows->place[rows->count] = k;
        rows->key[rows->count++] =
            rows->table->keys.desc.shared ? 0 : neo__bags_key_at(rows->bags, k);
    }
    neo__key_rows_make(rows);
}
/* The numbers read for the key of a row: in memory, or in the scratch. */
static const float *neo__bags_row_of_key(const neo__key_rows *rows, int64_t at) {
    const neo__bag_rows *store = &rows->table->job.store;
    if (store->dtype == NEO_F32)
        return (const float *)(const void *)(store->data + at * store->row_bytes);
    float *row = neo__key_scratch(rows);
    rows->bags->ctx->bag->decode(store, at, 0, rows->table->dim, row);
    return row;
}
/* The same of id k of a lookup, of a key with a row or without. */
static const float *neo__bags_row_of_id(neo__key_rows *rows, const neo__bag_lookup *lookup,
                                        int64_t k) {
    const int64_t *at = (const int64_t *)lookup->ids;
    if (at[k] >= 0) return neo__bags_row_of_key(rows, at[k]);
    if (rows->count && rows->table->keys.desc.shared) return rows->row[0];
    if (rows->at >= rows->count || rows->place[rows->at] > k) rows->at = 0;
    while (rows->at < rows->count && rows->place[rows->at] < k) rows->at++;
    if (rows->at >= rows->count || rows->place[rows->at] > k)
        neo__key_rows_from(rows, k, lookup->offsets[lookup->bags], at);
    return rows->row[rows->at++];
}
/* The first row of a key's set, or one that is here. */
static int64_t neo__bags_set_of(const neo__bag_table *table, uint64_t key) {
    const neo__lines *lines = &table->keys.lines;
    const int64_t set = neo__lines_set(neo__mix64(key), lines->all_sets) - lines->first_set;
    return NEO__MIN(NEO__MAX(set, (int64_t)0), lines->sets - 1) * NEO__LINE_WAYS;
}
/* The bucket of id k: that of its key's set. */
static int64_t neo__bags_bucket_of_id(const neo_bags *bags, const neo__bag_table *table,
                                      const neo__bag_lookup *lookup, int64_t k) {
    return neo__bag_bucket_of_row(lookup, neo__bags_set_of(table, neo__bags_key_at(bags, k)));
}
/* Bag b once more: the sum of each bucket, then of the buckets by the tree. */
static void neo__bags_pool_bag(neo__key_rows *rows, const neo__bag_lookup *lookup, int64_t b) {
    const neo_bags *bags = rows->bags;
    const neo__bag_table *table = rows->table;
    const int64_t dim = table->dim, room = neo__bag_room(dim);
    const int64_t begin = lookup->offsets[b], end = lookup->offsets[b + 1];
    const int one = lookup->buckets == 1 || end - begin == 1;
    float *out = lookup->out + b * lookup->out_stride;
    if (end - begin == 1 && !lookup->weights) {
        const float *row = neo__bags_row_of_id(rows, lookup, begin);
        float sum[16] = {0}; /* of one; a vector at a time */
        for (int64_t c = 0, n; c < dim; c += n) {
            n = NEO__MIN(dim - c, (int64_t)16);
            memcpy(sum, row + c, (size_t)n * sizeof *sum);
            for (int i = 0; i < 16; i++) sum[i] += 0.0f;
            memcpy(out + c, sum, (size_t)n * sizeof *sum);
        }
        return;
    }
    float *sums = neo__key_scratch(rows) + neo__bag_keys_scratch(dim) - NEO__PART_DEPTH * room;
    int64_t number[NEO__PART_DEPTH], bucket = -1;
    int depth = 0;
    for (;;) {
        int64_t next = one && bucket < 0 ? 0 : INT64_MAX;
        for (int64_t k = begin; k < end && !one; k++) {
            const int64_t its = neo__bags_bucket_of_id(bags, table, lookup, k);
            if (its > bucket && its < next) next = its;
        }
        depth = neo__parts_join(number, depth, next, sums, room, dim);
        if (next == INT64_MAX) break;
        float *sum = sums + depth * room;
        number[depth++] = bucket = next;
        memset(sum, 0, (size_t)dim * sizeof *sum);
        for (int64_t k = begin; k < end; k++) {
            if (!one && neo__bags_bucket_of_id(bags, table, lookup, k) != bucket) continue;
            const float *row = neo__bags_row_of_id(rows, lookup, k);
            for (int64_t c = 0; c < dim; c++)
                sum[c] = lookup->weights ? neo__fma(lookup->weights[k], row[c], sum[c])
                                         : row[c] + sum[c];
        }
    }
    for (int64_t c = 0; c < dim; c++) {
        const float sum = lookup->buckets > 1 ? sums[c] + 0.0f : sums[c];
        out[c] = lookup->mean && end - begin > 1 ? sum / (float)(end - begin) : sum;
    }
}
/* Id k, of which forward has one row, weight_grad one number. */
static void neo__bags_one_initial(neo__key_rows *rows, const neo__bag_lookup *lookup, int64_t b,
                                  int64_t k) {
    const neo_bags *bags = rows->bags;
    const neo__bag_table *table = rows->table;
    const int64_t zero = 0, ends[2] = {0, 1};
    const float *row = neo__bags_row_of_id(rows, lookup, k);
    const int64_t at = lookup->pooled ? b : k - lookup->offsets[0];
    if (!lookup->dout) {
        float *out = lookup->out + at * lookup->out_stride;
        for (int64_t c = 0; c < table->dim; c++)
            out[c] = lookup->weights ? lookup->weights[k] * row[c] : row[c];
        return;
    }
    neo__bag_rows store = table->job.store;
    neo__bag_lookup one = *lookup;
    const int64_t length = lookup->offsets[b + 1] - lookup->offsets[b];
    store.dtype = NEO_F32;
    store.data = (char *)(uintptr_t)row;
    store.row_bytes = table->dim * (int64_t)sizeof *row;
    one.store = &store;
    one.table = row;
    one.rows = one.bags = one.buckets = 1;
    one.ids = &zero;
    one.offsets = ends;
    one.dout = lookup->dout + at * lookup->out_stride;
    one.mean = 0;
    float sum;
    bags->ctx->bag->weight_grad(&one, &sum);
    bags->job.tensor.dweights[k - bags->job.batch.offsets[0]] =
        lookup->mean && length > 1 ? sum / (float)length : sum;
}
static void neo__bags_pool_initial(const neo_bags *bags, const neo__bag_table *table,
                                   const neo__bag_lookup *lookup, int worker) {
    const int64_t *at = (const int64_t *)lookup->ids;
    neo__key_rows rows = neo__key_rows_of(bags, table, worker, 0);
    for (int64_t b = 0; b < lookup->bags; b++)
        for (int64_t k = lookup->offsets[b]; k < lookup->offsets[b + 1]; k++)
            if (at[k] < 0) neo__bags_one_initial(&rows, lookup, b, k);
}
/* Bags [bag, end) of feature f: those between two that have a key without a row as any others. */
static void neo__bags_pool_runs(const neo_bags *bags, int64_t f, int64_t bag, int64_t end,
                                int worker) {
    const neo__bag_kernels *kernels = bags->ctx->bag;
    const neo__bag_lookup all = neo__bags_lookup(bags, f, bag, end);
    const int64_t *at = (const int64_t *)all.ids, last = all.offsets[all.bags];
    const int plain = neo__bags_are_plain(&all);
    neo__key_rows rows = neo__key_rows_of(bags, &bags->tables[bags->view.features[f].job.table],
                                          worker, 0);
    for (int64_t b = 0, next; b < all.bags; b = next + 1) {
        int64_t k = all.offsets[b];
        while (k < last && at[k] >= 0) k++;
        for (next = b; next < all.bags && all.offsets[next + 1] <= k;) next++;
        neo__bag_lookup a = all;
        a.offsets += b;
        a.out += b * a.out_stride;
        a.bags = next - b;
        if (next < all.bags) a.next_count = 0;
        if (next > b) (plain ? kernels->pool : kernels->pool_any)(&a);
        if (next < all.bags) neo__bags_pool_bag(&rows, &all, next);
    }
}

/* ---- who gets a row ---- */

/* The keys that were given rows have their initial ones. */
static void neo__bags_write_rows(neo__key_rows *rows) {
    const neo__bag_rows *store = &rows->table->job.store;
    float *w = neo__key_scratch(rows);
    neo__key_rows_make(rows);
    for (int64_t r = 0; r < rows->count; r++) {
        char *to = store->data + rows->place[r] * store->row_bytes;
        float *into = store->dtype == NEO_F32 ? (float *)(void *)to : w;
        memcpy(into, rows->row[r], (size_t)rows->table->dim * sizeof *into);
        if (into == w) rows->bags->ctx->bag->encode(store, rows->place[r], w, NULL);
    }
    rows->count = 0;
}
/* On a device: the table of a row among those of all tables. */
static int32_t neo__bags_table_of(const neo_bags *b, int64_t key) {
    const neo__job_table *tables = b->job.fixed.host_tables;
    return (int32_t)neo__bags_find(&tables->first_key, sizeof *tables, b->sizes.tables, key);
}
/* Rows are begun again, all at once: of `count` that were noted, from `at` on, those that a key, or
   none, still has as it was noted. */
static int64_t neo__bags_still_given(const neo_bags *bags, int64_t at, int64_t count) {
    int64_t *const *given = bags->work.given, to = at;
    for (int64_t i = at; i < at + count; i++) {
        const int zeros = given[1][i] < 0;
        const int64_t row = zeros ? ~given[1][i] : given[1][i];
        const neo__bag_table *t = &bags->tables[neo__bags_table_of(bags, row)];
        const neo__lines *lines = &t->keys.lines;
        const int64_t line = row - t->job.first_key;
        const int used = lines->use[line] != 0;
        if (zeros ? used : !used || lines->key[line] != (uint64_t)given[0][i]) continue;
        given[0][to] = given[0][i], given[1][to++] = given[1][i];
    }
    return to - at;
}
/* On a device: first values of the rows that are noted, by the room that ids of a batch have there.
   Rows of which it failed stay noted: every call begins with them. A recorded step's errors do not
   keep them from beginning, as their keys have come. */
static neo_status neo__bags_begin_rows(const neo_bags *bags) {
    neo_device *on = bags->ctx->on;
    neo__bags_given *give = bags->work.give;
    if (!give) return NEO_OK;
    const int64_t first = NEO__MAX(give->begun, give->base);
    int64_t *const *given = bags->work.given, at = first - give->base;
    if (first < give->told)
        give->noted = first + neo__bags_still_given(bags, at, give->noted - first);
    const int64_t count = give->noted - first;
    const size_t bytes = (size_t)count * sizeof(int64_t);
    if (count) {
        NEO__TRY(neo__bags_send(bags, bags->view.copy_keys, given[0] + at, bytes));
        NEO__TRY(neo__bags_send(bags, bags->view.copy_ids, given[1] + at, bytes));
        NEO__TRY(on->bags_first(on, &bags->job, (const int64_t *)bags->view.copy_ids,
                                bags->view.copy_keys, count));
        give->begun = first;
        give->launched = on->launched; /* counting may launch them */
        neo__device_counts(bags->ctx, &give->begun);
        give->begun = give->told = give->noted;
    }
    if (!on->recording || give->launched != on->launched) give->base = give->noted;
    return NEO_OK;
}
/* Room for so many more, before their keys come or go. */
static neo_status neo__bags_note_room(const neo_bags *bags, int64_t count) {
    neo_device *on = bags->ctx->on;
    const neo__bags_given *give = bags->work.give;
    if (!give || give->noted - give->base + count <= bags->sizes.max_ids) return NEO_OK;
    NEO__TRY(neo__bags_begin_rows(bags));
    if (!on->recording || give->noted - give->base + count <= bags->sizes.max_ids) return NEO_OK;
    on->settle(on);
    NEO__TRY(neo__bags_begin_rows(bags));
    NEO__CHECK(give->noted - give->base + count <= bags->sizes.max_ids, NEO_ERR_STATE,
               "bags '%s': first rows of keys wait for a step that was not launched", bags->name);
    return NEO_OK;
}
/* The list is empty: rows of it may be noted again. */
static neo_status neo__bags_note_none(const neo_bags *b) {
    return neo__bags_note_room(b, b->sizes.max_ids);
}
static void neo__bags_note_row(const neo_bags *b, const neo__bag_table *t, uint64_t key,
                               int64_t row, int zeros) {
    neo__bags_given *give = b->work.give;
    const int64_t to = __atomic_fetch_add(&give->noted, 1, __ATOMIC_RELAXED) - give->base;
    b->work.given[0][to] = (int64_t)key;
    row += t->job.first_key;
    b->work.given[1][to] = zeros ? ~row : row;
}
/* A row begins anew: where it lies, with its first states; -1: below memory. That it changes was
   noted before its key did, by which a save copies rows of a tier that were never written. */
static int64_t neo__bags_renew(const neo_bags *bags, neo__bag_table *table, int64_t row) {
    if (table->job.store.line_row)
        row = bags->tier->ops->renew(bags->tier, (int32_t)(table - bags->tables), row);
    if (row >= 0 && !bags->ctx->device)
        neo__bag_first_states(table, table->job.state, row, 1);
    return row;
}
/* Give a line to a key, which was used `count` times; -1: its set is in use. Its row is written
   later, by neo__bags_write_rows, or neo__bags_begin_rows: no other key gets the line in this
   step. */
static int64_t neo__bags_give_row(neo__key_rows *rows, neo__bag_table *table, uint64_t key,
                                  uint64_t count) {
    neo__bag_keys *keys = &table->keys;
    const int64_t now = neo__bags_now(rows->bags);
    const int64_t line = neo__lines_victim(&keys->lines, neo__mix64(key), now);
    if (line < 0) return -1;
    keys->stats.evictions += keys->lines.use[line] != 0;
    keys->stats.admissions++;
    neo__row_changes(&table->marks, line);
    neo__lines_put(&keys->lines, line, key, now, count);
    const int64_t place = neo__bags_renew(rows->bags, table, line);
    if (place < 0) return line;
    if (rows->bags->ctx->device) {
        neo__bags_note_row(rows->bags, table, key, place, 0);
        return line;
    }
    rows->place[rows->count] = place;
    rows->key[rows->count++] = key;
    if (rows->count == neo__bag_group(table->dim)) neo__bags_write_rows(rows);
    return line;
}
/* A key of a Bloom filter has occurred `count` more times: how often now, as far as is known. Its 4
   counters, in one block (Putze, Sanders and Singler, WEA 2007), rise no higher than that (Estan
   and Varghese, SIGCOMM 2002). */
static uint64_t neo__bags_filter_count(const neo__bag_keys *keys, uint64_t hash, uint64_t count) {
    enum { WORDS = 8, HALF = 64, MOST = 15 };
    const int64_t set = neo__lines_set(hash, keys->lines.all_sets) - keys->lines.first_set;
    uint64_t *block = keys->filter + set * NEO__LINE_WAYS + WORDS * (hash >> 28 & 3), seen = MOST;
    int used = 0;
    for (int i = 0; i < 4; i++)
        seen = NEO__MIN(seen, block[hash >> (7 * i + 4) & 7] >> 4 * (hash >> 7 * i & 15) & 15);
    seen += count;
    for (int i = 0; i < 4; i++) {
        uint64_t *word = &block[hash >> (7 * i + 4) & 7];
        const int shift = 4 * (int)(hash >> 7 * i & 15);
        const uint64_t now = NEO__MAX(*word >> shift & 15, NEO__MIN(seen, (uint64_t)MOST));
        *word = (*word & ~(UINT64_C(15) << shift)) | now << shift;
    }
    for (int i = 0; i < WORDS; i++) {
        uint64_t some = block[i] | block[i] >> 2;
        some |= some >> 1;
        used += __builtin_popcountll(some & 0x1111111111111111u);
    }
    for (int i = 0; i < WORDS && used > HALF; i++) block[i] = block[i] >> 1 & 0x7777777777777777u;
    return seen;
}
/* A key without a row has occurred `count` times. */
static void neo__bags_ask_row(neo__key_rows *rows, neo__bag_table *table, uint64_t hash,
                              int64_t count) {
    const neo__lines *waiting = &table->keys.waiting;
    const uint64_t key = neo__unmix64(hash);
    const int64_t now = neo__bags_now(rows->bags);
    int64_t line = -1;
    uint64_t seen = (uint64_t)count;
    if (waiting->sets) {
        line = neo__lines_find(waiting, key, hash, now);
        if (line >= 0) seen += neo__lines_count(waiting, waiting->use[line], now);
    }
    if (table->keys.filter) seen = neo__bags_filter_count(&table->keys, hash, seen);
    const int waits = seen < (uint64_t)table->keys.desc.admit;
    if (!waits && neo__bags_give_row(rows, table, key, seen) >= 0) {
        if (line >= 0) neo__lines_drop(waiting, line);
        return;
    }
    *(waits ? &table->keys.stats.waited : &table->keys.stats.refused) += count;
    if (waiting->sets == 0) return;
    if (line < 0) line = neo__lines_victim(waiting, hash, now);
    if (line >= 0) neo__lines_put(waiting, line, key, now, seen);
}
/* Sort hashes, by way of room for as many. */
static void neo__bags_sort_hashes(uint64_t *from, uint64_t *to, int64_t n) {
    enum { BITS = 8, PASSES = 8, DIGITS = 1 << BITS }; /* an even number of passes */
    int64_t count[PASSES * DIGITS] = {0};
    if (n < 64) {
        neo__bag_sort_few(from, n, 0);
        return;
    }
    neo__bag_count_digits(from, 0, n, 0, BITS, PASSES, count);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t *room = to;
        neo__bag_count_to_place(count + pass * DIGITS, DIGITS, 1, 0);
        neo__bag_scatter(to, from, n, pass * BITS, BITS, count + pass * DIGITS);
        to = from;
        from = room;
    }
}
/* Rows for the keys of a table. first: where its ids are in the room for records. */
static void neo__bags_admit_table(const neo_bags *bags, neo__bag_table *table, int64_t first,
                                  int worker) {
    enum { AHEAD = 64 }; /* lines on their way */
    const neo__lines *lines = &table->keys.lines;
    const int64_t before = bags->view.features[0].first_id, now = neo__bags_now(bags);
    int64_t *rows = bags->work.rows;
    uint64_t *hash = bags->work.records[0] + first, none = 0;
    int64_t n = 0;
    for (int32_t q = 0; q < table->feature_count; q++) {
        const neo__bag_feature *f = &bags->view.features[table->features[q]];
        for (int64_t k = f->first_id - AHEAD, end = f->first_id + f->ids; k < end; k++) {
            const int64_t next = k + AHEAD < end ? rows[k + AHEAD - before] : 0;
            __builtin_prefetch(lines->use + NEO__MAX(next, (int64_t)0), 1, 2);
            if (k < f->first_id) continue;
            const int64_t row = rows[k - before];
            neo__lines_touch(lines, row >= 0 ? lines->use + row : &none, now, 1);
            hash[n] = neo__bags_key_at(bags, k); /* no branch: hard to predict */
            n += row < 0;
        }
        table->keys.stats.lookups += f->ids;
        table->keys.stats.hits += f->ids;
    }
    table->keys.stats.hits -= n;
    for (int64_t i = 0; i < n; i++) hash[i] = neo__mix64(hash[i]);
    neo__bags_sort_hashes(hash, bags->work.records[1] + first, n);
    neo__key_rows given = neo__key_rows_of(bags, table, worker, 1);
    for (int64_t i = 0, end; i < n; i = end) {
        neo__lines_fetch(lines, hash[NEO__MIN(i + 8, n - 1)]);
        for (end = i + 1; end < n && hash[end] == hash[i];) end++;
        neo__bags_ask_row(&given, table, hash[i], end - i);
    }
    neo__bags_write_rows(&given);
    for (int32_t q = 0; q < table->feature_count && n; q++) {
        neo__bag_feature *f = &bags->view.features[table->features[q]];
        f->bad = 0;
        for (int64_t k = f->first_id; k < f->first_id + f->ids; k++) {
            if (rows[k - before] >= 0) continue;
            const uint64_t key = neo__bags_key_at(bags, k);
            rows[k - before] = neo__lines_find(lines, key, neo__mix64(key), now);
            f->bad += rows[k - before] < 0;
        }
    }
}
static void neo__bags_admit_part(const neo__cpu_part *part) {
    const neo_bags *bags = (const neo_bags *)part->call;
    int64_t first = 0;
    for (int64_t t = 0; t < part->end; t++) {
        neo__bag_table *table = &bags->tables[t];
        if (t >= part->begin && table->keys.desc.on)
            neo__bags_admit_table(bags, table, first, part->worker);
        for (int32_t q = 0; q < table->feature_count; q++)
            first += bags->view.features[table->features[q]].ids;
    }
}
NEO__HOT_END
/* Rows for the keys of the batch that the record has. */
static neo_status neo__bags_admit(neo_bags *bags) {
    const int64_t tables = bags->sizes.tables;
    const int64_t tasks = NEO__MIN(neo__bags_most_tasks(bags->sizes.threads), tables);
    neo__cpu_job job = {bags->ctx, bags, tables, tasks, 1, neo__bags_admit_part};
    int64_t missing = 0;
    for (int64_t f = 0; f < bags->sizes.features && bags->work.give; f++)
        if (bags->tables[bags->view.features[f].job.table].keys.desc.on)
            missing += bags->view.features[f].bad;
    NEO__TRY(neo__bags_note_room(bags, missing));
    if (bags->sizes.key_scratch && bags->job.batch.bags)
        neo__run_tasks(bags->ctx, tasks, neo__cpu_task, &job, 32 * bags->job.batch.most_ids);
    return neo__bags_begin_rows(bags);
}

/* ---- calls ---- */
static neo_status neo__bags_check_keys(const neo_bags *b, int32_t table, const void *keys,
                                       const void *rows, int64_t count, int changes,
                                       const char *fn) {
    NEO__CHECK_LIVE(b, fn, "bags");
    NEO__CHECK(table >= 0 && table < b->sizes.tables && b->tables[table].keys.desc.on, NEO_ERR_ARG,
               "%s: bags '%s' have no table %d with keys", fn, b->name, table);
    NEO__CHECK(count == 0 || (count > 0 && keys && rows), NEO_ERR_ARG,
               "%s: table '%s': an argument is NULL, or %" PRId64 " keys", fn,
               b->tables[table].name, count);
    NEO__CHECK(!changes || neo_bags_kept_count(b) == 0, NEO_ERR_STATE,
               "%s: bags '%s': %" PRId64 " rows of gradients are kept: step or clear first", fn,
               b->name, b->kept.count);
    return changes ? neo__bags_note_none(b) : NEO_OK;
}
NEO_API neo_status neo_bags_find_keys(const neo_bags *b, int32_t table, const uint64_t *keys,
                                      int64_t count, int64_t *rows) {
    NEO__TRY(neo__bags_check_keys(b, table, keys, rows, count, 0, "neo_bags_find_keys"));
    b->ctx->bag->find(&b->tables[table].keys.lines, keys, count, neo__bags_now(b), 0, rows);
    return NEO_OK;
}
NEO_API int neo_bags_key_of(const neo_bags *b, int32_t table, int64_t row, uint64_t *key) {
    if (table < 0 || table >= b->sizes.tables || row < 0 || row >= b->tables[table].rows) return 0;
    const neo__lines *lines = &b->tables[table].keys.lines;
    if (lines->sets == 0 || lines->use[row] == 0 ||
        neo__lines_expired(lines, lines->use[row], neo__bags_now(b)))
        return 0;
    *key = lines->key[row];
    return 1;
}
NEO_API neo_status neo_bags_put_keys(neo_bags *b, int32_t table, const uint64_t *keys,
                                     int64_t count, int64_t *rows) {
    NEO__TRY(neo__bags_check_keys(b, table, keys, rows, count, 1, "neo_bags_put_keys"));
    neo__fp_state fp = neo__fp_enter();
    neo__key_rows given = neo__key_rows_of(b, &b->tables[table], 0, 1);
    neo_status status = NEO_OK;
    for (int64_t i = 0; i < count && status == NEO_OK; i++) {
        const neo__lines *lines = &b->tables[table].keys.lines;
        rows[i] = neo__lines_find(lines, keys[i], neo__mix64(keys[i]), neo__bags_now(b));
        if (rows[i] < 0) rows[i] = neo__bags_give_row(&given, &b->tables[table], keys[i], 1);
        status = neo__bags_note_room(b, 1);
    }
    neo__bags_write_rows(&given);
    b->work.resolved = 0;
    neo__fp_leave(fp);
    return status == NEO_OK ? neo__bags_note_none(b) : status;
}
static neo_status neo__bags_drop_row(neo_bags *bags, neo__bag_table *table, int64_t row) {
    const neo__bag_rows *store = &table->job.store;
    NEO__TRY(neo__bags_note_room(bags, 1));
    neo__row_changes(&table->marks, row);
    neo__lines_drop(&table->keys.lines, row);
    table->keys.stats.evictions++;
    row = neo__bags_renew(bags, table, row);
    if (row < 0) return NEO_OK;
    if (bags->ctx->device) {
        neo__bags_note_row(bags, table, 0, row, 1);
        return NEO_OK;
    }
    memset(store->data + row * store->row_bytes, 0, (size_t)store->row_bytes);
    if (store->scale) memset(store->scale + 2 * row, 0, 2 * sizeof *store->scale);
    return NEO_OK;
}
NEO_API neo_status neo_bags_drop_keys(neo_bags *bags, int32_t table, const uint64_t *keys,
                                      int64_t count) {
    NEO__TRY(neo__bags_check_keys(bags, table, keys, keys, count, 1, "neo_bags_drop_keys"));
    bags->work.resolved = 0;
    for (int64_t i = 0; i < count; i++) {
        neo__bag_table *t = &bags->tables[table];
        const int64_t row =
            neo__lines_find(&t->keys.lines, keys[i], neo__mix64(keys[i]), neo__bags_now(bags));
        if (row >= 0) NEO__TRY(neo__bags_drop_row(bags, t, row));
    }
    return neo__bags_note_none(bags);
}
NEO_API neo_status neo__check_scores(const char *fn, const char *table, int evict,
                                     const float *scores, int64_t count) {
    NEO__CHECK(evict == NEO_EVICT_SCORE, NEO_ERR_ARG,
               "%s: table '%s': its keys have no scores, without NEO_EVICT_SCORE", fn, table);
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(scores[i] == scores[i], NEO_ERR_NUMERIC, "%s: scores[%" PRId64 "] is nan", fn,
                   i);
    return NEO_OK;
}
/* A score as a line has it, in bits that rise with it, and back. A zero, or no number: 0. */
static uint32_t neo__score_bits(float score) {
    const uint32_t bits = neo__bits_f32(score < 0.0f || score > 0.0f ? score : 0.0f);
    return bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
}
static float neo__score_of(uint32_t bits) {
    return neo__f32_bits(bits ^ (bits >> 31 ? 0x80000000u : UINT32_MAX));
}
NEO_API neo_status neo_bags_score_keys(neo_bags *bags, int32_t table, const uint64_t *keys,
                                       const float *scores, int64_t count) {
    static const char *const fn = "neo_bags_score_keys";
    NEO__TRY(neo__bags_check_keys(bags, table, keys, scores, count, 0, fn));
    const neo__lines *lines = &bags->tables[table].keys.lines;
    NEO__TRY(neo__check_scores(fn, bags->tables[table].name, (int)lines->evict, scores, count));
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = neo__lines_find(lines, keys[i], neo__mix64(keys[i]), 0);
        if (row < 0) continue;
        const uint64_t use = lines->use[row];
        float score = scores[i];
        if (bags->tables[table].keys.desc.sums) score += neo__score_of((uint32_t)use);
        __atomic_store_n(&lines->use[row], (use & ~(uint64_t)UINT32_MAX) | neo__score_bits(score),
                         __ATOMIC_RELAXED);
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
/* The square of a row's norm: squares of floats are exact, and add in order. */
NEO_API double neo__row_squares(const float *row, int64_t dim) {
    double sum = 0.0;
    for (int64_t c = 0; c < dim; c++) sum += (double)row[c] * (double)row[c];
    return sum;
}
/* Prune the set that begins at row `first`, by the squares of norms; gone: as many more. */
NEO_API neo_status neo__bags_prune_set(neo_bags *bags, int32_t table, int64_t first,
                                       const double *of, float least, int most, int64_t *gone) {
    const double limit = least > 0.0f ? (double)least * (double)least : 0.0;
    const double most_of_all = (double)neo__f32_bits(NEO__F32_INFINITY);
    double norm[NEO__LINE_WAYS];
    int at[NEO__LINE_WAYS], stay = 0; /* those that stay, the largest first */
    neo__bag_table *t = &bags->tables[table];
    uint64_t key;
    NEO__TRY(neo__bags_note_none(bags));
    bags->work.resolved = 0;
    for (int i = 0; i < NEO__LINE_WAYS; i++) {
        if (!neo_bags_key_of(bags, table, first + i, &key)) continue;
        norm[i] = of[i] >= 0.0 ? of[i] : most_of_all; /* or it is no number */
        int to = norm[i] < limit ? -1 : stay++;
        if (to < 0) NEO__TRY(neo__bags_drop_row(bags, t, first + i));
        *gone += to < 0;
        for (; to > 0 && norm[at[to - 1]] < norm[i]; to--) at[to] = at[to - 1];
        if (to >= 0) at[to] = i;
    }
    for (; most && stay > most; ++*gone)
        NEO__TRY(neo__bags_drop_row(bags, t, first + at[--stay]));
    return neo__bags_note_none(bags);
}
NEO_API neo_status neo_bags_prune_keys(neo_bags *bags, int32_t table, float least, int most,
                                       int64_t *pruned) {
    static const char *const fn = "neo_bags_prune_keys";
    double squares[NEO__LINE_WAYS] = {0};
    int64_t gone = 0;
    uint64_t key;
    if (pruned) *pruned = 0;
    NEO__TRY(neo__bags_check_keys(bags, table, NULL, NULL, 0, 1, fn));
    NEO__CHECK(most >= 0 && most <= NEO__LINE_WAYS, NEO_ERR_ARG, "%s: most is %d, not in 0 .. 32",
               fn, most);
    NEO__CHECK(least == least, NEO_ERR_NUMERIC, "%s: least is nan", fn);
    const int64_t dim = bags->tables[table].dim;
    float *rows = bags->work.key_scratch;
    for (int64_t first = 0; first < bags->tables[table].rows; first += NEO__LINE_WAYS) {
        for (int64_t i = 0, n; i < NEO__LINE_WAYS; i += n) {
            n = NEO__MIN(NEO__LINE_WAYS - i, bags->sizes.key_scratch / dim);
            if (!neo_bags_key_of(bags, table, first + i, &key)) n = 1;
            else NEO__TRY(neo_bags_get_rows(bags, table, first + i, n, rows));
            for (int64_t k = 0; k < n; k++) squares[i + k] = neo__row_squares(rows + k * dim, dim);
        }
        NEO__TRY(neo__bags_prune_set(bags, table, first, squares, least, most, &gone));
    }
    if (pruned) *pruned = gone;
    return NEO_OK;
}
NEO_API neo_key_stats neo_bags_key_stats(const neo_bags *b, int32_t table) {
    NEO__ZERO(neo_key_stats, stats);
    uint64_t key;
    if (!b || table < 0 || table >= b->sizes.tables || !b->tables[table].keys.desc.on) return stats;
    stats = b->tables[table].keys.stats;
    for (int64_t i = 0; i < b->tables[table].rows; i++)
        stats.used += neo_bags_key_of(b, table, i, &key);
    return stats;
}
/* The row that forward reads for a key, for other headers: the table's, or in the scratch. */
NEO_API const float *neo__bags_read_key(const neo_bags *bags, int32_t table, uint64_t key,
                                        int worker) {
    const neo__bag_table *t = &bags->tables[table];
    const int64_t at = neo__lines_find(&t->keys.lines, key, neo__mix64(key), neo__bags_now(bags));
    neo__key_rows rows = neo__key_rows_of(bags, t, worker, 0);
    if (at >= 0 && t->job.store.line_row) {
        /* of a failure the tier's next call tells */
        (void)neo_bags_get_rows(bags, table, at, 1, neo__key_scratch(&rows));
        return neo__key_scratch(&rows);
    }
    if (at >= 0) return neo__bags_row_of_key(&rows, at);
    rows.key[rows.count++] = t->keys.desc.shared ? 0 : key;
    neo__key_rows_make(&rows);
    return rows.row[0];
}
/* Keys were read, from a checkpoint: a state calls it. */
NEO_API neo_status neo__bags_keys_read(void *bags) {
    neo_bags *b = (neo_bags *)bags;
    b->work.resolved = 0;
    for (int64_t t = 0; t < b->sizes.tables; t++) {
        neo__lines_fresh(&b->tables[t].keys.lines);
        neo__lines_fresh(&b->tables[t].keys.waiting);
    }
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-bags-calls

   The public calls. Each checks its arguments, fills the object's record (neo__bags_job), and hands
   it to the device that computes. The CPU's rows of the table are at >>impl-bags-forward and
   >>impl-bags-backward, an accelerator's in its own header.

       neo_bags_forward     begin (check, place, look)  ->  bags_forward
       neo_bags_backward    begin  ->  rules  ->  sort  ->  update
       neo_bags_accumulate  begin  ->  sort  ->  slots  ->  update (keeps)
       neo_bags_step        rules  ->  sums of cut tables  ->  step_kept  ->  drop slots

   A look reads every offset and id, so that a bad batch changes nothing and kernels need no checks.
   On the CPU each call looks, and so it does at a batch in the device's memory, which the caller
   may have changed, and where a device's ids are keys. Else its copy of a host batch is looked at
   once: the first backward after forward takes it. The host waits for the answer, but not in a step
   that is being recorded (neo_device.recording): there it comes at the end, and kernels after a bad
   look do nothing. Launches are sized by the number of ids where the host knows it, else by what is
   reserved.

   The features' places and the steps' numbers (some 100 bytes a table) are sent when they have
   changed. User memory of a table (neo_table_desc.weight) is memory of the device that computes.

   Records on a device: for every id a key and a value. The key is the row, counted through all
   tables, over the number of the leaf; the value says where the gradient row to add is. A stable
   radix sort by the key leaves the records of a row in the canonical order (leaf, feature, sample,
   position); dropped ids come behind all rows. A record's gradient is at value x unit in dout
   (MEAN: in a copy divided by the bags' lengths). With weights the value is the id's number, and
   the gradient's place is in grad_at. New rows are marked in the sorted records, and a prefix sum
   gives them slots, in the order of the CPU's.
   ------------------------------------------------------------------------ */

/* ---- a batch: checks ---- */

static neo_status neo__bags_check_tensor(const neo_bags *bags, const neo_jagged *jagged,
                                         neo_tensor tensor, const char *what, const char *fn) {
    const neo__bag_sizes *s = &bags->sizes;
    int64_t rows = !s->none                 ? jagged->batch
                   : jagged->place == NEO_DEVICE ? tensor.shape[0]
                                            : neo_jagged_id_count(jagged),
            cols = s->none ? s->max_dim : s->width;
    if (jagged->feature_bags && !jagged->inverse && !s->none) {
        int64_t count = 0;
        for (int64_t f = 0; f < s->features; f++)
            count += (jagged->feature_bags[f + 1] - jagged->feature_bags[f]) *
                     bags->tables[bags->view.features[f].job.table].dim;
        NEO__CHECK(
            tensor.ndim == 1 && tensor.dtype == NEO_F32 && tensor.shape[0] == count, NEO_ERR_SHAPE,
            "%s: bags '%s': with feature_bags %s must be a 1-d f32 tensor of %" PRId64 " elements",
            fn, bags->name, what, count);
        NEO__CHECK(tensor.stride[0] == 1 || count <= 1, NEO_ERR_SHAPE,
                   "%s: bags '%s': %s is not contiguous", fn, bags->name, what);
        if (!tensor.data && count > 0) return neo__no_data(fn, what, tensor, NEO_ERR_ARG);
        return NEO_OK;
    }
    if (tensor.ndim == 0 && !tensor.data) return neo__no_data(fn, what, tensor, NEO_ERR_SHAPE);
    NEO__CHECK(tensor.ndim == 2 && tensor.dtype == NEO_F32 && tensor.shape[0] == rows &&
                   tensor.shape[1] == cols,
               NEO_ERR_SHAPE,
               "%s: bags '%s': %s must be f32 [%" PRId64 "][%" PRId64
               "], it is %s with %d dimensions [%" PRId64 "][%" PRId64 "]",
               fn, bags->name, what, rows, cols, neo_dtype_name(tensor.dtype), tensor.ndim,
               tensor.shape[0], tensor.shape[1]);
    NEO__CHECK((tensor.stride[1] == 1 || cols == 1) && (tensor.stride[0] >= cols || rows <= 1),
               NEO_ERR_SHAPE,
               "%s: bags '%s': the strides of %s are %" PRId64 ", %" PRId64
               ", not at least %" PRId64 ", 1",
               fn, bags->name, what, tensor.stride[0], tensor.stride[1], cols);
    if (!tensor.data && rows > 0) return neo__no_data(fn, what, tensor, NEO_ERR_ARG);
    return NEO_OK;
}

static neo_status neo__bags_tell(neo_bags *b, void *to, const void *from, size_t bytes) {
    neo_status status = neo__bags_send(b, to, from, bytes);
    if (status != NEO_OK) neo__bags_untold(b);
    return status;
}
/* Positions of the features' bags in the batch, in the tensor that goes with it, and in gradients
   that are packed; sent to the device when they have changed. Reads no offsets. */
static neo_status neo__bags_place(neo_bags *bags, const neo_jagged *jagged, neo_tensor tensor,
                                  const char *fn) {
    int64_t features = bags->sizes.features, at = 0;
    int changed = bags->ctx->on->recording != 0, whole = ((uintptr_t)tensor.data & 15) == 0;
    const int packed = jagged->feature_bags && !jagged->inverse; /* feature after feature */
    neo__job_feature *told = bags->job.told.host_features;
    for (int64_t f = 0; f <= features; f++) {
        neo__bag_feature *feature = &bags->view.features[f];
        const int last = f == features;
        int64_t dim = last ? 0 : bags->tables[feature->job.table].dim;
        feature->job.first_bag = neo__jagged_first_bag(jagged, f);
        feature->job.bags =
            last ? 0 : neo__jagged_first_bag(jagged, f + 1) - feature->job.first_bag;
        if (feature->job.bags > bags->sizes.max_batch) {
            neo__bags_untold(bags); /* features before it are changed, and not sent */
            return neo_fail(NEO_ERR_CAPACITY,
                            "%s: bags '%s': feature %" PRId64 " has %" PRId64
                            " samples, reserved are %" PRId64 " (neo_bags_reserve grows it)",
                            fn, bags->name, f, feature->job.bags, bags->sizes.max_batch);
        }
        feature->bad = 0;
        feature->job.out_stride = packed && !bags->sizes.none ? dim : tensor.stride[0];
        feature->job.out_at = bags->sizes.none ? 0 : packed ? at : feature->col;
        feature->job.pack_stride = packed ? dim : bags->sizes.width;
        feature->job.col = feature->col;
        at += feature->job.bags * dim;
        if (!last &&
            ((feature->job.out_at | feature->job.out_stride | feature->job.pack_stride) & 3))
            whole = 0;
        if (memcmp(&feature->job, &told[f], sizeof *told) == 0) continue;
        told[f] = feature->job;
        changed = 1;
    }
    bags->job.tensor.aligned = whole;
    bags->job.tensor.out_rows = bags->sizes.none ? tensor.shape[0] : 0;
    if (!changed) return NEO_OK;
    return neo__bags_tell(bags, bags->job.told.features, told,
                          (size_t)(features + 1) * sizeof *told);
}
static neo_status neo__bags_bad_offset(const neo__bags_look *l, const neo__bags_found *found) {
#if !defined(NEO_INFERENCE)
    NEO__CHECK(found->at < l->bags, NEO_ERR_FORMAT,
               "%s: inverse of feature %" PRId64 ", sample %" PRId64 " is %" PRId64
               ", which is none of its bags",
               l->fn, found->feature, found->sample, found->what);
#endif
    return neo__jagged_bad_offset(found->feature, found->sample, found->at, found->begin,
                                  found->what, l->fn);
}
static neo_status neo__bags_bad_id(const neo__bags_look *look, const neo__bags_found *found) {
    const neo_bags *bags = look->b;
    const neo__bag_table *table =
        &bags->tables[bags->view.features[found->feature].job.table];
    return neo_fail(NEO_ERR_RANGE,
                    "%s: bags '%s': table '%s' (feature %" PRId64 "), sample %" PRId64
                    ", position %" PRId64 ": id %" PRId64 " is not in [0, %" PRId64 ")",
                    look->fn, bags->name, table->name, found->feature, found->sample,
                    found->first + (int64_t)~found->id - found->begin, found->what, table->rows);
}
static neo_status neo__bags_check_ids(const neo_bags *b, int64_t ids, const char *fn) {
    NEO__CHECK(ids <= b->sizes.max_ids, NEO_ERR_CAPACITY,
               "%s: bags '%s': the batch has %" PRId64 " ids, reserved are %" PRId64
               " (neo_bags_reserve grows it)",
               fn, b->name, ids, b->sizes.max_ids);
    return NEO_OK;
}
static neo_status neo__bags_looked(void *job, const void *answer) {
    const neo__bags_look *look = (const neo__bags_look *)job;
    neo_bags *bags = look->b;
    const int was_fresh = bags->view.fresh;
    neo__bags_found found;
    memcpy(&found, answer, sizeof found);
    bags->view.fresh = 0; /* a bad batch is to be looked at again */
    NEO__CHECK(found.first >= 0, NEO_ERR_FORMAT, "%s: offsets[0] is %" PRId64, look->fn,
               found.first);
    NEO__CHECK(found.last >= found.first, NEO_ERR_FORMAT,
               "%s: offsets go from %" PRId64 " down to %" PRId64, look->fn, found.first,
               found.last);
    const int64_t ids = found.last - found.first;
    NEO__TRY(neo__bags_check_ids(bags, ids, look->fn));
    NEO__CHECK(!bags->sizes.none || ids == look->out_rows, NEO_ERR_SHAPE,
               "%s: bags '%s': the batch has %" PRId64 " ids, the tensor %" PRId64 " rows",
               look->fn, bags->name, ids, look->out_rows);
    if (found.bag) return neo__bags_bad_offset(look, &found);
    if (found.id && bags->bounds == NEO_BOUNDS_ERROR) return neo__bags_bad_id(look, &found);
    bags->view.fresh = was_fresh;
    if (look->forward) bags->out_of_range += (int64_t)found.count;
    return NEO_OK;
}
/* Whether kernels behind a look are launched before the host hears of it: they do nothing after a
   bad one, and the device does not stand still meanwhile. Not where the host itself goes on by what
   it hears (tiers, first values, bags that are written out), where it reads what kernels wrote
   (check_finite), nor where it alone compares the ids with a tensor's rows (NEO_POOL_NONE). */
static int neo__bags_asks(const neo_bags *b) {
    const neo_device *on = b->ctx->on;
    return NEO__TRAINS && on->bags_told && !on->recording && !b->tier && !neo__bags_wait(b) &&
           !b->ctx->check_finite && !b->sizes.none && !b->job.batch.inverse;
}
/* The answer to what was asked, if anything was. */
static neo_status neo__bags_hear(neo_bags *b) {
    NEO__ZERO(neo__bags_found, found);
    if (!NEO__TRAINS || !b->asked) return NEO_OK;
    b->asked = 0;
    NEO__TRY(b->ctx->on->bags_told(b->ctx->on, &found));
    NEO__TRY(neo__bags_looked(&b->look, &found));
    b->job.batch.most_ids = found.last - found.first;
    return NEO_OK;
}
/* A device's ids are keys: the host looks, as on the CPU, and finds their rows. */
static neo_status neo__bags_look_here(neo_bags *bags, neo__bags_found *found) {
    neo__bags_job *job = &bags->job;
    const neo__bags_job there = *job;
    const neo_jagged *j = &bags->view.batch;
    const size_t size = neo_dtype_size(j->id_dtype);
    int64_t *offsets = bags->work.offsets, count = job->batch.bags;
    NEO__CHECK(!bags->ctx->on->recording || !bags->tier, NEO_ERR_UNSUPPORTED,
               "%s: bags '%s': a step that is recorded has no keys below memory", bags->look.fn,
               bags->name);
    if (count) {
        NEO__TRY(neo__data_read(bags->ctx, offsets, j->offsets, j->place,
                                (size_t)(count + 1) * sizeof *offsets));
        found->first = offsets[0], found->last = offsets[count];
        if (found->first < 0 || found->last < found->first ||
            found->last - found->first > bags->sizes.max_ids)
            return NEO_OK; /* it will be refused */
        count = found->last - found->first;
        const size_t before = (size_t)found->first * size;
        if (count)
            NEO__TRY(neo__data_read(bags->ctx, bags->work.records[0],
                                    (const char *)j->ids + before, j->place, (size_t)count * size));
        job->batch.offsets = offsets;
        job->batch.ids = (const void *)((uintptr_t)bags->work.records[0] - before);
    }
    job->batch.inverse = j->inverse;
    job->told.features = job->told.host_features;
    const neo_status status = neo__cpu_bags_check(&bags->ctx->cpu, job, found, NULL);
    *job = there;
    return status == NEO_OK ? neo__bags_send(bags, job->batch.found, found, sizeof *found) : status;
}
/* A device gets rows instead of ids, or a tier's lines of these, `there`; of a key without one it
   gets ~ the first of its set. reads: those are read. */
static neo_status neo__bags_send_rows(neo_bags *bags, const int64_t *lines, int64_t *there,
                                      int reads) {
    neo__bags_job *job = &bags->job;
    const neo__bag_feature *f = bags->view.features, *end = f + bags->sizes.features;
    const int64_t first = f->first_id, *from = lines ? lines : bags->work.rows;
    const size_t bytes = (size_t)(end->first_id - first) * sizeof *from;
    const uintptr_t before = (uintptr_t)(first - job->batch.id_base) * sizeof *from;
    int64_t *to = (int64_t *)(void *)bags->work.records[0], missing = 0;
    if (!neo__bags_maps_here(bags)) return NEO_OK;
    if (!lines) there = (int64_t *)bags->view.copy_ids;
    for (; f < end; f++) {
        const neo__bag_table *t = &bags->tables[f->job.table];
        const int64_t at = f->first_id - first, rows = t->rows;
        missing += t->keys.desc.on ? f->bad : 0;
        for (int64_t k = at; k < at + f->ids; k++) {
            to[k] = from[k];
            if (t->keys.desc.on && to[k] < 0) to[k] = ~neo__bags_set_of(t, bags->work.keys[k]);
            else if (!lines && (uint64_t)to[k] >= (uint64_t)rows)
                to[k] = t->bounds != NEO_BOUNDS_CLAMP ? -1 : to[k] < 0 ? 0 : rows - 1;
        }
    }
    job->batch.ids = (const void *)((uintptr_t)there - before);
    job->batch.keys = NULL;
    job->batch.is_i32 = 0;
    job->batch.lines = 1;
    NEO__TRY(neo__bags_send(bags, there, to, bytes));
    if (!missing || !reads) return NEO_OK;
    job->batch.keys = (const uint64_t *)((uintptr_t)bags->view.copy_keys - before);
    return neo__bags_send(bags, bags->view.copy_keys, bags->work.keys, bytes);
}
/* The record's batch while a step is recorded: of few sizes, since each is another graph, for its
   sort's sake. */
static void neo__bags_round_ids(neo_bags *bags) {
    const int64_t most = bags->sizes.max_ids, part = (most + 7) / 8;
    if (!bags->ctx->on->recording) return;
    const int64_t parts = part ? (bags->job.batch.most_ids + part - 1) / part : 0;
    bags->job.batch.most_ids = NEO__MIN(parts * part, most);
}
/* Look at every offset and id. */
static neo_status neo__bags_look_at(neo_bags *bags, const char *fn, int forward) {
    neo_device *on = bags->ctx->on;
    NEO__ZERO(neo__bags_found, found);
    neo__bags_look *look = &bags->look;
    const neo__later later = {neo__bags_looked, look, sizeof *look};
    const int waits = !on->recording, here = neo__bags_maps_here(bags);
    if (bags->vouched && !here) return on->bags_check(on, &bags->job, NULL, NULL);
    look->b = bags;
    look->fn = fn;
    look->bags = bags->job.batch.bags;
    look->out_rows = bags->job.tensor.out_rows;
    look->forward = forward;
    const int asks = !here && neo__bags_asks(bags);
    NEO__TRY(here ? neo__bags_look_here(bags, &found)
                  : on->bags_check(on, &bags->job, asks ? NULL : &found,
                                   waits && !asks ? NULL : &later));
    if (bags->job.batch.bags == 0 || (!waits && !here)) return NEO_OK;
    bags->asked = asks;
    if (asks) return NEO_OK;
    NEO__TRY(neo__bags_looked(look, &found));
    bags->job.batch.most_ids = found.last - found.first;
    neo__bags_round_ids(bags);
    return NEO_OK;
}

/* ---- a batch: its view ---- */

/* The view is a copy of this host batch, by its arrays and their lengths. */
static int neo__bags_is_viewed(const neo_bags *b, const neo_jagged *j) {
    const neo_jagged *s = &b->view.batch;
    return b->view.fresh && j->place == NEO_HOST && s->offsets == j->offsets && s->ids == j->ids &&
           s->weights == j->weights && s->feature_bags == j->feature_bags &&
           s->inverse == j->inverse && s->id_dtype == j->id_dtype && s->batch == j->batch &&
           b->view.bags == neo_jagged_bag_count(j) && b->view.ids == neo_jagged_id_count(j);
}
/* Put the batch into the record: where it is, or a copy on the device, made unless `have`. */
static neo_status neo__bags_stage(neo_bags *bags, const neo_jagged *jagged, int have) {
    neo__bags_job *job = &bags->job;
    job->batch.is_i32 = jagged->id_dtype == NEO_I32;
    job->batch.lines = 0;
    job->batch.keys = NULL;
    job->batch.inverse = jagged->inverse;
    job->batch.samples = jagged->batch;
    job->batch.bags = neo_jagged_bag_count(jagged);
    job->batch.most_ids = job->batch.bags ? job->fixed.max_ids : 0;
    if (bags->vouched) job->batch.most_ids = NEO__MIN(job->batch.most_ids, bags->vouched - 1);
    if (jagged->place == NEO_HOST) job->batch.most_ids = neo_jagged_id_count(jagged);
    if (jagged->place == neo__ctx_place(bags->ctx)) {
        job->batch.offsets = jagged->offsets;
        job->batch.ids = jagged->ids;
        job->batch.weights = jagged->weights;
        job->batch.id_base = 0;
        return NEO_OK;
    }
    job->batch.id_base = job->batch.bags ? jagged->offsets[0] : 0;
    job->batch.offsets = bags->view.copy_offsets;
    job->batch.ids = bags->view.copy_ids;
    job->batch.weights = jagged->weights ? bags->view.copy_weights : NULL;
    if (jagged->inverse) job->batch.inverse = bags->view.copy_inverse;
    if (have || job->batch.bags == 0) return NEO_OK;
    if (jagged->inverse)
        NEO__TRY(neo__bags_send(bags, bags->view.copy_inverse, jagged->inverse,
                                (size_t)(jagged->feature_count * jagged->batch) *
                                    sizeof *jagged->inverse));
    size_t ids = (size_t)job->batch.most_ids, id_bytes = neo_dtype_size(jagged->id_dtype);
    NEO__TRY(neo__bags_send(bags, bags->view.copy_offsets, jagged->offsets,
                            (size_t)(job->batch.bags + 1) * sizeof *jagged->offsets));
    if (ids == 0) return NEO_OK;
    if (!neo__bags_maps_here(bags)) /* else their rows will be */
        NEO__TRY(neo__bags_send(bags, bags->view.copy_ids,
                            (const char *)jagged->ids + (size_t)job->batch.id_base * id_bytes,
                            ids * id_bytes));
    if (!jagged->weights) return NEO_OK;
    return neo__bags_send(bags, bags->view.copy_weights, jagged->weights + job->batch.id_base,
                          ids * sizeof *jagged->weights);
}
/* Check that out leaves a host batch of so many ids alone. */
static neo_status neo__bags_check_apart(const neo_jagged *jagged, int64_t ids, neo_tensor out,
                                        const char *fn) {
    const int64_t bags = neo_jagged_bag_count(jagged), first = bags ? jagged->offsets[0] : 0;
    const float *weights = jagged->weights ? jagged->weights + first : NULL;
    char *begin = jagged->ids ? (char *)(uintptr_t)jagged->ids +
                                    (size_t)first * neo_dtype_size(jagged->id_dtype)
                              : NULL;
    neo_tensor offset = neo_tensor_1d((void *)(uintptr_t)jagged->offsets, NEO_I64, bags + 1);
    neo_tensor id = neo_tensor_1d(begin, jagged->id_dtype, ids);
    neo_tensor weight = neo_tensor_1d((void *)(uintptr_t)weights, NEO_F32, ids);
    NEO__APART(fn, 1, 0, {&out, "out"}, {&offset, "the batch's offsets"}, {&id, "the batch's ids"},
               {&weight, "the batch's weights"});
    return NEO_OK;
}
/* A batch with an inverse that backward gets, written out. */
static neo_status neo__bags_write_out(neo_bags *bags, const neo_jagged *jagged, neo_jagged *to,
                                      const char *fn) {
    NEO__CHECK(bags->sizes.inverse, NEO_ERR_STATE,
               "%s: bags '%s' has no room to write out a batch with an inverse: set "
               "neo_bags_desc.inverse",
               fn, bags->name);
    NEO__TRY(neo__jagged_check_offsets(jagged, fn));
    NEO__TRY(neo__bags_check_ids(bags, neo_jagged_full_id_count(jagged), fn));
    const size_t size = neo_dtype_size(jagged->id_dtype);
    const neo__bags_view *view = &bags->view;
    const int there = bags->ctx->device != NULL; /* its copies are */
    int64_t *offsets = there ? view->full_offsets : view->copy_offsets, bag = 0, at = 0;
    char *ids = (char *)(there ? view->full_ids : view->copy_ids);
    float *weights = there ? view->full_weights : view->copy_weights;
    for (int64_t t = 0; t < jagged->feature_count; t++)
        for (int64_t i = 0; i < jagged->batch; i++) {
            const int64_t *from = jagged->offsets + neo__jagged_bag(jagged, t, i);
            const size_t n = (size_t)(from[1] - from[0]);
            offsets[bag++] = at;
            memcpy(ids + (size_t)at * size, (const char *)jagged->ids + (size_t)from[0] * size,
                   n * size);
            if (jagged->weights)
                memcpy(weights + at, jagged->weights + from[0], n * sizeof *weights);
            at += from[1] - from[0];
        }
    offsets[bag] = at;
    *to = *jagged;
    to->offsets = offsets;
    to->ids = ids;
    to->weights = jagged->weights ? weights : NULL;
    to->feature_bags = NULL;
    to->inverse = NULL;
    return NEO_OK;
}
/* Pooled bags of feature f, which are in the first rows, to the rows of the samples. */
static void neo__bags_spread(void *arg, int64_t f, int worker) {
    const neo_bags *bags = (const neo_bags *)arg;
    const neo_jagged *j = &bags->view.batch;
    const neo__job_feature *p = &bags->view.features[f].job;
    const int32_t *inverse = j->inverse + f * j->batch;
    const size_t bytes = (size_t)bags->tables[p->table].dim * sizeof(float);
    float *out = bags->job.tensor.out + p->out_at;
    (void)worker;
    for (int64_t i = j->batch; i-- > 0 && inverse[i] < i;)
        memcpy(out + i * p->out_stride, out + inverse[i] * p->out_stride, bytes);
}
static neo_status neo__cpu_bags_spread(neo_device *device, const neo__bags_job *job) {
    neo_bags *bags = job->object;
    (void)device;
    neo__run_tasks(bags->ctx, bags->sizes.features, neo__bags_spread, bags, bags->view.cost / 4);
    return NEO_OK;
}
#if !defined(NEO_INFERENCE)
/* A batch with an inverse on a device: forward pools its bags where there is room, backward gets it
   written out. */
static neo_status neo__bags_check_repeats(const neo_bags *bags, const neo_jagged *jagged,
                                          const char *fn) {
    NEO__CHECK(bags->sizes.inverse, NEO_ERR_STATE,
               "%s: bags '%s' has no room for a batch with an inverse: set neo_bags_desc.inverse",
               fn, bags->name);
    for (int32_t t = 0; t < jagged->feature_count && jagged->batch > 0; t++)
        NEO__CHECK(jagged->feature_bags[t] < jagged->feature_bags[t + 1], NEO_ERR_FORMAT,
                   "%s: feature %d has no bags for its %" PRId64 " samples", fn, t, jagged->batch);
    if (jagged->place == NEO_DEVICE) return NEO_OK;
    NEO__TRY(neo__jagged_check_offsets(jagged, fn));
    return neo__bags_check_ids(bags, neo_jagged_full_id_count(jagged), fn);
}
/* Its bags, one after another, and where they are pooled. */
static neo_tensor neo__bags_pooled(const neo_bags *bags, const neo_jagged *jagged,
                                   neo_jagged *folded) {
    int64_t count = 0;
    *folded = *jagged;
    folded->inverse = NULL;
    for (int64_t f = 0; f < bags->sizes.features; f++)
        count += (jagged->feature_bags[f + 1] - jagged->feature_bags[f]) *
                 bags->tables[bags->view.features[f].job.table].dim;
    neo_tensor pooled = neo_tensor_1d(bags->view.pooled, NEO_F32, count);
    pooled.place = NEO_DEVICE;
    return pooled;
}
/* The record's batch, whose bags have been looked at, written out: it becomes the record's. Of a
   tier its ids may be lines by now. */
static neo_status neo__bags_write_out_there(neo_bags *bags, const neo_jagged *jagged,
                                            neo_tensor tensor, const char *fn) {
    neo__bags_job *job = &bags->job;
    neo_jagged full = *jagged;
    const int lines = job->batch.lines;
    const size_t base = (size_t)job->batch.id_base;
    full.id_dtype = job->batch.is_i32 ? NEO_I32 : NEO_I64;
    const size_t size = neo_dtype_size(full.id_dtype);
    NEO__ZERO(neo__join_call, call);
    neo__ids_source source = neo__ids_source_of(&full);
    source.offsets = job->batch.offsets; /* the copy's ids begin at id_base */
    source.ids = (const void *)((uintptr_t)job->batch.ids - base * size);
    if (source.weights)
        source.weights = (const float *)((uintptr_t)job->batch.weights - base * sizeof(float));
    for (int32_t t = 0; t < jagged->feature_count; t++) {
        const int64_t first = jagged->feature_bags[t], count = jagged->feature_bags[t + 1] - first;
        const int64_t to = t * jagged->batch;
        const neo__ids_run run = {jagged->batch, first, to, to, 1, count, 0, t};
        bags->view.run[t] = run;
    }
    call.run = bags->view.run, call.runs = jagged->feature_count;
    call.source = &source, call.sources = 1;
    call.list = job->batch.inverse, call.bags = jagged->feature_count * jagged->batch;
    call.id_dtype = full.id_dtype, call.max_ids = job->fixed.max_ids;
    call.to_offsets = bags->view.full_offsets, call.to_ids = bags->view.full_ids;
    call.to_weights = jagged->weights ? bags->view.full_weights : NULL;
    NEO__TRY(neo__device_join(bags->ctx, &call));
    full.place = NEO_DEVICE;
    full.offsets = call.to_offsets, full.ids = call.to_ids, full.weights = call.to_weights;
    full.feature_bags = NULL, full.inverse = NULL;
    NEO__TRY(neo__bags_place(bags, &full, tensor, fn));
    NEO__TRY(neo__bags_stage(bags, &full, 0));
    job->batch.lines = lines;
    if (jagged->place == NEO_HOST) {
        job->batch.most_ids = neo_jagged_full_id_count(jagged);
        return NEO_OK; /* the host has counted its ids */
    }
    if (lines) { /* no look knows them */
        NEO__TRY(neo__bags_fetch(bags, &job->batch.most_ids, call.to_offsets + call.bags,
                                 sizeof job->batch.most_ids));
        return neo__bags_check_ids(bags, job->batch.most_ids, fn);
    }
    bags->view.batch = full;
    return neo__bags_look_at(bags, fn, 0);
}
#endif
/* Checks of a batch before its tensor's. */
static neo_status neo__bags_check_batch(const neo_bags *bags, const neo_jagged *jagged,
                                        const char *fn) {
    NEO__CHECK(!jagged || jagged->place == NEO_HOST || bags->ctx->device, NEO_ERR_ARG,
               "%s: bags '%s': the batch is on a device, the context has none", fn, bags->name);
    NEO__CHECK(!jagged || jagged->feature_count == bags->sizes.features, NEO_ERR_SHAPE,
               "%s: the batch has %d features, bags '%s' has %" PRId64, fn, jagged->feature_count,
               bags->name, bags->sizes.features);
    NEO__CHECK(!jagged || (jagged->feature_bags && !jagged->inverse) ||
                   jagged->batch <= bags->sizes.max_batch,
               NEO_ERR_CAPACITY,
               "%s: bags '%s': the batch has %" PRId64 " samples, reserved are %" PRId64
               " (neo_bags_reserve grows it)",
               fn, bags->name, jagged->batch, bags->sizes.max_batch);
    NEO__TRY(neo__jagged_check(jagged, fn));
    const int host = !neo__bags_maps_here(bags) || jagged->place == NEO_HOST;
    const int none = bags->sizes.none;
    NEO__CHECK(!jagged->inverse || (!none && ((NEO__TRAINS && host) || !bags->ctx->device)),
               NEO_ERR_UNSUPPORTED,
               "%s: bags '%s': a batch with an inverse, %s: write it out by neo_jagged_expand", fn,
               bags->name, none ? "and no pooling" : "and keys, or no training, on a device");
    return neo__jagged_check_inverse(jagged, fn);
}
/* Check a batch and the tensor that goes with it, and put both into the record. */
static neo_status neo__bags_begin(neo_bags *bags, const neo_jagged *jagged, neo_tensor tensor,
                                  int forward, const char *fn) {
    const char *what = forward ? "out" : "dout";
    neo_jagged full;
    NEO__CHECK_LIVE(bags, fn, "bags");
    NEO__TRY(neo__bags_check_batch(bags, jagged, fn));
    NEO__TRY(neo__bags_begin_rows(bags));
    const int there = NEO__TRAINS && bags->ctx->device; /* but keys occur once a sample */
    if (jagged->inverse && !forward && (!there || neo__bags_maps_here(bags))) {
        NEO__TRY(neo__bags_write_out(bags, jagged, &full, fn));
        jagged = &full;
    }
    const int repeats = there && jagged->inverse;
    int64_t ids = jagged->place == NEO_HOST ? neo_jagged_id_count(jagged) : 0;
    NEO__TRY(neo__bags_check_ids(bags, ids, fn));
    NEO__TRY(neo__bags_check_tensor(bags, jagged, tensor, what, fn));
    NEO__TRY(neo__check_place(bags->ctx, tensor, fn, what));
    if (forward && jagged->place == NEO_HOST)
        NEO__TRY(neo__bags_check_apart(jagged, ids, tensor, fn));
    const neo_jagged *placed = jagged;
    neo_tensor pooled = tensor;
#if !defined(NEO_INFERENCE)
    if (repeats) {
        NEO__TRY(neo__bags_check_repeats(bags, jagged, fn));
        pooled = neo__bags_pooled(bags, jagged, &full);
        placed = &full;
    }
#endif
    neo__bags_remind(bags);
    NEO__TRY(neo__bags_place(bags, placed, pooled, fn));
    bags->job.tensor.samples = (float *)tensor.data;
    bags->job.tensor.samples_stride = tensor.stride[0];
    bags->job.tensor.out = forward ? (float *)pooled.data : NULL;
    bags->job.tensor.dout = forward ? NULL : (const float *)tensor.data;
    const int have = !forward && neo__bags_is_viewed(bags, jagged);
    bags->asked = 0;
    if (!have) bags->view.fresh = 0;
    NEO__TRY(neo__bags_stage(bags, jagged, have));
    neo__bags_round_ids(bags);
    if (!have) {
        bags->view.batch = *jagged;
        bags->view.bags = bags->job.batch.bags;
        bags->view.ids = ids;
        NEO__TRY(neo__bags_look_at(bags, fn, forward));
        bags->view.fresh = forward && bags->ctx->device && jagged->place == NEO_HOST &&
                           !neo__bags_maps_here(bags);
    }
    return NEO_OK;
}
/* A batch with an inverse of which a device needs all bags: of a tier that is to step them, behind
   neo__bags_bring. */
static neo_status neo__bags_unfold(neo_bags *bags, const neo_jagged *jagged, neo_tensor tensor,
                                   const char *fn) {
#if !defined(NEO_INFERENCE)
    if (bags->job.batch.inverse && bags->ctx->device) {
        NEO__TRY(neo__bags_write_out_there(bags, jagged, tensor, fn));
        neo__bags_round_ids(bags);
    }
#endif
    (void)bags, (void)jagged, (void)tensor, (void)fn;
    return NEO_OK;
}

/* Bring the rows of the record's batch, or of what is kept, to memory if they are below it or have
   not been made. */
static neo_status neo__bags_bring(neo_bags *b, const char *fn, int of_kept, int to_step) {
    if (neo__bags_wait(b)) neo__bags_make_needed(b, of_kept, !to_step);
    if (b->tier) return b->tier->ops->stage(b->tier, fn, of_kept, to_step);
    return of_kept ? NEO_OK : neo__bags_send_rows(b, NULL, NULL, !to_step);
}

/* ---- forward, weight_grad ---- */
NEO_API neo_status neo_bags_forward(neo_bags *b, const neo_jagged *batch, neo_tensor out) {
    NEO__SPAN(b ? b->ctx : NULL, "neo_bags_forward");
    NEO__TRY(neo__bags_begin(b, batch, out, 1, "neo_bags_forward"));
    NEO__TRY(neo__bags_bring(b, "neo_bags_forward", 0, 0));
    NEO__TRY(NEO__RUN(b->ctx, "neo_bags_forward", bags_forward, &b->job));
    if (batch->inverse) NEO__TRY(b->ctx->on->bags_spread(b->ctx->on, &b->job));
    return neo__bags_hear(b);
}
NEO_API neo_status neo_bags_prefetch(neo_bags *bags, const neo_jagged *batch) {
    static const char *const fn = "neo_bags_prefetch";
    NEO__CHECK_LIVE(bags, fn, "bags");
    if (!bags->tier) return NEO_OK;
    NEO__CHECK(batch && batch->feature_count == bags->sizes.features, NEO_ERR_SHAPE,
               "%s: the batch is NULL, or has not %" PRId64 " features", fn, bags->sizes.features);
    NEO__TRY(neo__jagged_check(batch, fn));
    if (batch->place == NEO_DEVICE) return NEO_OK; /* its ids come to the host when they must */
    NEO__TRY(neo__jagged_check_offsets(batch, fn));
    NEO__TRY(neo__jagged_check_inverse(batch, fn));
    return bags->tier->ops->prefetch(bags->tier, batch, fn);
}
NEO_API neo_status neo_bags_weight_grad(neo_bags *b, const neo_jagged *batch, neo_tensor dout,
                                        float *dweights) {
    static const char *const fn = "neo_bags_weight_grad";
    NEO__CHECK(!batch || !batch->inverse, NEO_ERR_UNSUPPORTED,
               "%s: a batch with an inverse: write it out by neo_jagged_expand", fn);
    NEO__TRY(neo__bags_begin(b, batch, dout, 0, fn));
    NEO__TRY(neo__bags_hear(b));
    NEO__CHECK(dweights || b->job.batch.most_ids == 0, NEO_ERR_ARG, "%s: dweights is NULL", fn);
    b->job.tensor.dweights = dweights;
    NEO__TRY(neo__bags_bring(b, fn, 0, 0));
    return NEO__RUN(b->ctx, fn, bags_weight_grad, &b->job);
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo__bags_weight_grad_at(neo_bags *bags, const neo_jagged *batch,
                                            neo_tensor dout, float *to, const int32_t *at) {
    bags->job.tensor.dweight_at = at;
    neo_status status = neo_bags_weight_grad(bags, batch, dout, to);
    bags->job.tensor.dweight_at = NULL;
    return status;
}
#endif

/* ---- the numbers of a step, and sorted records ---- */

/* The numbers of this step, sent to the device if they are not those of the last. */
static neo_status neo__bags_rules(neo_bags *bags, float lr) {
    int changed = bags->ctx->on->recording != 0;
    const int64_t step =
        bags->steps < INT64_MAX ? bags->steps + 1 : bags->steps; /* may come from a file */
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < bags->sizes.tables; i++) {
        const neo__bag_table *t = &bags->tables[i];
        const int draws = t->job.store.dtype != NEO_F32 && !t->round_nearest;
        NEO__ZERO(neo__job_rule, now);
        now.step = neo__bag_step_make(&t->optim, lr, step);
        if (draws)
            now.round =
                neo__random_key_make(bags->ctx->seed, t->name_hash, step, NEO_STREAM_ROUNDING);
        now.nearest = t->round_nearest;
        if (memcmp(&now, &bags->job.told.host_rules[i], sizeof now) == 0) continue;
        bags->job.told.host_rules[i] = now;
        changed = 1;
    }
    neo__fp_leave(fp);
    if (!changed) return NEO_OK;
    return neo__bags_tell(bags, bags->job.told.rules, bags->job.told.host_rules,
                          (size_t)bags->sizes.tables * sizeof *bags->job.told.host_rules);
}
/* Number the call's gradients; then records, sorted. leaves.count 0: the batch is whole. */
static neo_status neo__bags_sort(neo_bags *bags, neo__leaf_cut leaves, int keep) {
    neo__bags_job *job = &bags->job;
    int64_t count = leaves.count ? leaves.count : bags->sizes.shards, floats = 0;
    leaves.shards = (int)bags->sizes.shards;
    job->sorted.leaves = leaves;
    job->sorted.leaf_bits = neo__bits_for((uint64_t)count - 1);
    job->sorted.leaf_sort = 0;
    for (int64_t i = 0; i < bags->sizes.tables; i++)
        if (bags->tables[i].feature_count > 1 && count > 1) job->sorted.leaf_sort = 1;
    for (int64_t f = 0; f < bags->sizes.features; f++) {
        const neo__job_feature *p = &bags->job.told.host_features[f];
        int64_t stride = NEO__MAX(p->out_stride, p->pack_stride);
        floats = NEO__MAX(floats, p->out_at + NEO__MAX(p->bags, job->tensor.out_rows) * stride);
    }
    job->sorted.grad_unit = job->tensor.aligned ? 4 : 1;
    job->sorted.indirect = job->batch.weights || floats / job->sorted.grad_unit > UINT32_MAX;
    job->sorted.records = job->batch.most_ids;
    job->keep = keep;
    job->add = 0;
    job->sorted.packs = bags->sizes.mean;
    neo_device *on = bags->ctx->on;
    if (on->bags_records) NEO__TRY(on->bags_records(on, job));
    if (bags->asked) {
        NEO__TRY(neo__bags_hear(bags));
        job->sorted.records = job->batch.most_ids;
    }
    return on->bags_sort(on, job);
}

/* ---- kept gradients ---- */

/* Forget the slots from `count` on. The hash table must lose them before the next key is looked up:
   if the device fails to do that now, the next call that keeps does it, or fails. */
static neo_status neo__bags_drop_slots(neo_bags *b, int64_t count) {
    neo_device *on = b->ctx->on;
    b->kept.stale = 1;
    b->kept.stage_end = b->kept.unknown = 0;
    b->job.kept.count = count;
    neo_status status = on->bags_drop_slots(on, &b->job);
    b->kept.count = count;
    if (status == NEO_OK) b->kept.stale = 0;
    return status;
}
typedef struct neo__bags_keeper { /* a recorded call that keeps */
    const neo_bags *b;
    const char *fn;
} neo__bags_keeper;
static neo_status neo__bags_no_slots(const neo_bags *b, const char *fn) {
    return neo_fail(NEO_ERR_CAPACITY,
                    "%s: bags '%s': gradients of more than %" PRId64 " rows (max_kept_rows)", fn,
                    b->name, b->kept.capacity);
}
static neo_status neo__bags_slots_answer(void *job, const void *answer) {
    const neo__bags_keeper *of = (const neo__bags_keeper *)job;
    return ((const uint64_t *)answer)[2] ? neo__bags_no_slots(of->b, of->fn) : NEO_OK;
}
/* Slots for the rows of the sorted records, `most` rows at most; when new ones do not fit, back to
   `before` slots. Of add_grad by value. */
static neo_status neo__bags_slots(neo_bags *bags, const char *fn, int64_t before, int by_value,
                                  int64_t most) {
    neo_device *on = bags->ctx->on;
    const int later = !by_value && !bags->kept.stale && neo__bags_counts_there(bags);
    neo__bags_keeper keeper = {bags, fn};
    const neo__later answer = {neo__bags_slots_answer, &keeper, sizeof keeper};
    int64_t fresh = 0;
    if (!later) NEO__TRY(neo__bags_count_kept(bags));
    if (bags->kept.stale) NEO__TRY(neo__bags_drop_slots(bags, bags->kept.count));
    bags->kept.stage_end = 0;
    const int64_t count = bags->job.kept.count = bags->kept.count;
    neo_status status =
        on->bags_find_slots(on, &bags->job, by_value, &fresh, later ? &answer : NULL);
    if (status == NEO_OK && fresh > bags->kept.capacity - count) {
        NEO__TRY(neo__bags_drop_slots(bags, before));
        return neo__bags_no_slots(bags, fn);
    }
    if (status == NEO_OK) status = on->bags_give_slots(on, &bags->job, by_value);
    if (status != NEO_OK) return bags->kept.stale = 1, status; /* a device may have counted them */
    bags->kept.count = later ? NEO__MIN(count + most, bags->kept.capacity) : count + fresh;
    if (later) bags->kept.unknown = 1;
    return NEO_OK;
}
/* The first float of slot i, or behind the last slot. */
static int64_t neo__bags_slot_at(const neo_bags *b, int64_t i) {
    if (b->ctx->device) return i * b->job.fixed.max_dim;
    return i < b->kept.count ? b->kept.slots[i].at : b->kept.floats;
}
/* Add the gradients of the record's batch to those kept. */
static neo_status neo__bags_keep(neo_bags *bags, neo__leaf_cut leaves, const char *fn) {
    const neo_jagged *j = &bags->view.batch;
    NEO__TRY(neo__bags_bound_kept(bags));
    const int64_t before = bags->kept.count;
    NEO__TRY(neo__bags_send_rows(bags, NULL, NULL, 0));
    NEO__TRY(neo__bags_sort(bags, leaves, 1));
    const int64_t most = NEO__MIN(j->place == NEO_HOST ? neo_jagged_full_id_count(j) : INT64_MAX,
                                  bags->job.sorted.records);
    NEO__TRY(neo__bags_slots(bags, fn, before, 0, most));
    bags->view.fresh = 0;
    neo_status status = NEO__RUN(bags->ctx, fn, bags_update, &bags->job);
    if (status != NEO_OK && !bags->kept.unknown && bags->kept.count > before &&
        neo__bags_drop_slots(bags, before) != NEO_OK)
        return NEO_ERR_DEVICE; /* the next call that keeps drops them */
    return status;
}
NEO_API neo_status neo_bags_accumulate(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves) {
    static const char *const fn = "neo_bags_accumulate";
    NEO__ZERO(neo__leaf_cut, held);
    NEO__TRY(neo__bags_check_keeps(bags, fn));
    NEO__TRY(neo__bags_begin(bags, batch, dout, 0, fn));
    NEO__CHECK(!leaves || !batch->feature_bags || batch->inverse, NEO_ERR_ARG,
               "%s: a batch with feature_bags has no leaves", fn);
    NEO__TRY(neo__bags_unfold(bags, batch, dout, fn));
    if (leaves) NEO__TRY(neo__leaves_resolve(bags->ctx, leaves, batch->batch, &held, fn));
    bags->job.only_cut = -1;
    NEO__TRY(neo__bags_admit(bags));
    return neo__bags_keep(bags, held, fn);
}
static neo_status neo__bags_check_grad(const neo_bags *bags, int32_t table, const int64_t *rows,
                                       int64_t count, neo_tensor grad, const char *fn) {
    NEO__TRY(neo__bags_check_keeps(bags, fn));
    NEO__CHECK(table >= 0 && table < bags->sizes.tables && count >= 0 && (rows || count == 0),
               NEO_ERR_ARG, "%s: bags '%s': table %d, %" PRId64 " rows", fn, bags->name, table,
               count);
    const neo__bag_table *t = &bags->tables[table];
    NEO__CHECK(grad.ndim == 2 && grad.dtype == NEO_F32 && grad.shape[0] == count &&
                   grad.shape[1] == t->dim && (grad.stride[1] == 1 || t->dim == 1),
               NEO_ERR_SHAPE, "%s: table '%s': grad must be f32 [%" PRId64 "][%" PRId64 "]", fn,
               t->name, count, t->dim);
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(rows[i] >= 0 && rows[i] < t->rows, NEO_ERR_RANGE,
                   "%s: table '%s': rows[%" PRId64 "] is %" PRId64 ", not in [0, %" PRId64 ")", fn,
                   t->name, i, rows[i], t->rows);
    return neo__check_place(bags->ctx, grad, fn, "grad");
}
/* A record of rows of gradients, `unit` floats apart, which are no batch's. */
static void neo__bags_set_rows_job(neo__bags_job *job, const float *grad, int64_t unit, int keep) {
    job->batch.weights = NULL;
    job->tensor.dout = grad;
    job->sorted.leaf_bits = job->sorted.leaf_sort = job->sorted.indirect = job->sorted.packs = 0;
    job->sorted.grad_unit = unit;
    job->tensor.aligned = (((uintptr_t)grad | ((uintptr_t)unit * sizeof *grad)) & 15) == 0;
    job->keep = job->add = keep;
}
/* Slots for the rows of add_grad, as many as the record says. */
static neo_status neo__bags_slots_of(neo_bags *b, const int64_t *rows, int64_t before,
                                     const char *fn) {
    neo_device *on = b->ctx->on;
    if (b->ctx->device) {
        size_t bytes = (size_t)b->job.sorted.records * sizeof *rows;
        NEO__TRY(neo__bags_send(b, b->view.copy_ids, rows, bytes));
        rows = (const int64_t *)b->view.copy_ids;
    }
    NEO__TRY(on->bags_sort_rows(on, &b->job, rows, b->tables[b->job.table].job.first_key));
    return neo__bags_slots(b, fn, before, 1, b->job.sorted.records);
}
/* Find slots for all rows before a kept number changes. */
NEO_API neo_status neo_bags_add_grad(neo_bags *bags, int32_t table, const int64_t *rows,
                                     int64_t count, neo_tensor grad) {
    const char *fn = "neo_bags_add_grad";
    NEO__TRY(neo__bags_check_grad(bags, table, rows, count, grad, fn));
    NEO__TRY(neo__bags_count_kept(bags));
    neo__bags_job *job = &bags->job;
    const int64_t before = bags->kept.count, most = job->fixed.max_ids;
    bags->view.fresh = 0;
    job->table = table;
    neo__bags_set_rows_job(job, (const float *)grad.data, grad.stride[0], 1);
    for (int64_t i = 0; i < count; i += most) {
        job->sorted.records = NEO__MIN(count - i, most);
        NEO__TRY(neo__bags_slots_of(bags, rows + i, before, fn));
    }
    int64_t at = neo__bags_slot_at(bags, before), end = neo__bags_slot_at(bags, bags->kept.count);
    if (end > at)
        NEO__TRY(
            neo__data_zero(bags->ctx, job->kept.sums + at, (size_t)(end - at) * sizeof(float)));
    for (int64_t i = 0; i < count; i += most) {
        job->sorted.records = NEO__MIN(count - i, most);
        if (count > most) NEO__TRY(neo__bags_slots_of(bags, rows + i, before, fn));
        job->tensor.dout = (const float *)grad.data + i * grad.stride[0];
        NEO__TRY(NEO__RUN(bags->ctx, fn, bags_update, job));
    }
    return NEO_OK;
}
NEO_API int64_t neo_bags_kept_count(const neo_bags *b) {
    (void)neo__bags_count_kept((neo_bags *)(uintptr_t)b); /* a failure shows at the next call */
    return b->kept.count;
}
static const float *neo__bags_fetch_kept_row(neo_bags *bags, int64_t i, int32_t *table,
                                              int64_t *row) {
    int64_t dim = bags->job.fixed.max_dim, most = NEO__MAX((int64_t)NEO__BAG_HOST_STAGE, dim) / dim;
    if (i < bags->kept.stage_first ||
        i >= bags->kept.stage_end) { /* fetch it with those behind it */
        int64_t n = NEO__MIN(most, bags->kept.count - i);
        bags->kept.stage_end = 0;
        if (neo__bags_fetch(bags, bags->kept.stage_keys, bags->job.kept.slot_key + i,
                            (size_t)n * sizeof *bags->kept.stage_keys) != NEO_OK ||
            neo__bags_fetch(bags, bags->kept.stage, bags->job.kept.sums + i * dim,
                            (size_t)(n * dim) * sizeof *bags->kept.stage) != NEO_OK)
            return NULL;
        bags->kept.stage_first = i;
        bags->kept.stage_end = i + n;
    }
    int64_t key = (int64_t)bags->kept.stage_keys[i - bags->kept.stage_first];
    int32_t t = neo__bags_table_of(bags, key);
    if (table) *table = t;
    if (row) *row = key - bags->job.fixed.host_tables[t].first_key;
    return bags->kept.stage + (i - bags->kept.stage_first) * dim;
}
NEO_API const float *neo_bags_kept_row(const neo_bags *b, int64_t i, int32_t *table, int64_t *row) {
    if (i < 0 || i >= neo_bags_kept_count(b)) return NULL;
    if (b->ctx->device) return neo__bags_fetch_kept_row((neo_bags *)(uintptr_t)b, i, table, row);
    if (table) *table = b->kept.slots[i].table;
    if (row) *row = b->kept.slots[i].row;
    return b->job.kept.sums + b->kept.slots[i].at;
}
NEO_API neo_status neo_bags_grad_squares(const neo_bags *bags, neo_exact *sum) {
    NEO__CHECK_LIVE(bags, "neo_bags_grad_squares", "bags");
    NEO__CHECK(sum, NEO_ERR_ARG, "neo_bags_grad_squares: sum is NULL");
    neo_bags *b = (neo_bags *)(uintptr_t)bags;
    neo_device *on = b->ctx->on;
    NEO__ZERO(neo_exact, squares);
    const int64_t blocks = neo__bag_blocks(b->job.fixed.max_dim);
    const int64_t most = NEO__MAX(NEO__BAG_CPU_STAGE / blocks, (int64_t)1); /* rows at a time */
    NEO__TRY(neo__bags_count_kept(b));
    b->kept.stage_end = 0;
    for (int64_t i = 0, count; i < b->kept.count; i += count) {
        count = NEO__MIN(most, b->kept.count - i);
        NEO__TRY(on->bags_squares(on, &b->job, i, count, b->job.room.stage, NULL));
        NEO__TRY(neo__bags_fetch(b, b->kept.stage, b->job.room.stage,
                                 (size_t)(count * blocks) * sizeof(float)));
        for (int64_t k = 0; k < count * blocks; k++) neo_exact_add(&squares, b->kept.stage[k]);
    }
    neo_exact_merge(sum, &squares);
    return NEO_OK;
}
NEO_API neo_status neo_bags_table_squares(const neo_bags *bags, int32_t table, neo_exact *sum) {
    NEO__CHECK_LIVE(bags, "neo_bags_table_squares", "bags");
    NEO__CHECK(sum && table >= 0 && table < bags->sizes.tables, NEO_ERR_ARG,
               "neo_bags_table_squares: %s", sum ? "no such table" : "sum is NULL");
    NEO__ZERO(neo_exact, squares);
    for (int64_t i = 0, kept = neo_bags_kept_count(bags); i < kept; i++) {
        int32_t of = table;
        const float *g = neo_bags_kept_row(bags, i, &of, NULL);
        if (!g) return NEO_ERR_DEVICE;
        for (int64_t c = 0; c < bags->tables[table].dim && of == table; c++)
            neo_exact_add(&squares, g[c] * g[c]);
    }
    neo_exact_merge(sum, &squares);
    return NEO_OK;
}
/* there: the factor on the device; or NULL. Slots that hold nothing may be scaled too. */
static neo_status neo__bags_scale(neo_bags *b, float scale, const float *there) {
    NEO__ZERO(neo__blend_call, call);
    call.kind = NEO__BLEND_SCALE;
    call.x = call.y = b->job.kept.sums;
    call.factor = scale;
    call.factor_there = there;
    call.rows = 1;
    call.cols = call.x_row = call.y_row = neo__bags_slot_at(b, b->kept.count);
    b->kept.stage_end = 0;
    return call.cols > 0 ? b->ctx->on->blend(b->ctx->on, &call) : NEO_OK;
}
NEO_API neo_status neo_bags_scale_grads(neo_bags *b, float scale) {
    NEO__CHECK_LIVE(b, "neo_bags_scale_grads", "bags");
    NEO__TRY(neo__bags_bound_kept(b));
    return neo__bags_scale(b, scale, NULL);
}
#if !defined(NEO_INFERENCE)
NEO_API int64_t neo__bags_kept_most(neo_bags *b) {
    neo__bags_remind(b);
    return b->kept.unknown == 2 ? neo_bags_kept_count(b) : b->kept.count;
}
NEO_API neo_status neo__bags_squares_there(neo_bags *b, uint64_t *sum) {
    neo_device *on = b->ctx->on;
    NEO__TRY(neo__bags_bound_kept(b));
    return on->bags_squares(on, &b->job, 0, b->kept.count, NULL, sum);
}
NEO_API neo_status neo__bags_scale_there(neo_bags *b, const float *factor) {
    return neo__bags_scale(b, 1.0f, factor);
}
#endif
NEO_API neo_status neo_bags_clear(neo_bags *b) {
    NEO__CHECK_LIVE(b, "neo_bags_clear", "bags");
    neo__bags_remind(b);
    const neo__bags_kept before = b->kept;
    neo_status status = neo__bags_drop_slots(b, 0);
    if (status != NEO_OK) /* they stay kept; the hash table is made again */
        b->kept.count = before.count, b->kept.unknown = before.unknown;
    return status;
}

/* ---- tables cut by columns ----

   They step by gradients that are kept, in backward too. In each round the device takes the step on
   copies of the rows, which yields the block sums that can be had next. A function gives totals:
   both go by the host, but after neo__bags_cut_there. At last the step finds all of them. */

/* Slots of each table, and where its sums are. A device numbers them by their rows, the processor
   as they came: slices of the same rows alike. */
static neo_status neo__bags_cut_begin(neo_bags *bags) {
    neo_device *on = bags->ctx->on;
    float *total = bags->job.cut.totals;
    const size_t bytes = (size_t)bags->sizes.tables * sizeof *bags->cut.cuts;
    memset(bags->cut.cuts, 0, bytes);
    for (int64_t i = 0; i < bags->kept.count && !bags->ctx->device; i++)
        bags->cut.cuts[bags->kept.slots[i].table].cut.rows++;
    if (bags->ctx->device) {
        const int64_t *keys = (const int64_t *)(const void *)bags->job.kept.slot_key;
        NEO__TRY(on->bags_sort_rows(on, &bags->job, keys, 0));
        NEO__TRY(on->bags_cut_rows(on, &bags->job));
        NEO__TRY(neo__bags_fetch(bags, bags->cut.cuts, bags->job.cut.tables, bytes));
    }
    for (int64_t t = 0; t < bags->sizes.tables; t++) {
        neo__job_cut *c = &bags->cut.cuts[t];
        const int64_t rows = c->cut.rows;
        memset(c, 0, sizeof *c);
        c->cut.rows = rows;
        c->is_cut = bags->tables[t].job.cut;
        c->cut.dim = (float)bags->tables[t].job.store.stride;
        c->cut.total = total;
        c->cut.blocks_per_row = neo__bag_blocks(bags->tables[t].dim);
        if (c->is_cut) total += NEO__BAG_CUT_SUMS * c->cut.rows;
    }
    return NEO_OK;
}
NEO_API void neo__bags_cut_there(neo_bags *bags) { bags->cut.there = 1; }
/* Compute the block sums that each cut table can have next; *count: how many tables have some. */
static neo_status neo__bags_cut_blocks(neo_bags *bags, int32_t *count) {
    neo_device *on = bags->ctx->on;
    float *blocks = bags->job.cut.blocks;
    *count = 0;
    for (int64_t t = 0; t < bags->sizes.tables; t++) {
        neo__bag_cut *c = &bags->cut.cuts[t].cut;
        c->want = bags->cut.cuts[t].is_cut ? neo__bag_cut_next(&bags->tables[t].optim, c->have) : 0;
        c->blocks = blocks;
        if (c->want == 0) continue;
        neo_cut_sums *cut = &bags->cut.sums[(*count)++];
        cut->table = (int32_t)t;
        cut->sums = c->want;
        cut->rows = c->rows;
        cut->blocks_per_row = c->blocks_per_row;
        float *made = bags->cut.there ? bags->job.cut.blocks : bags->cut.blocks;
        float *totals = bags->cut.there ? bags->job.cut.totals : bags->cut.totals;
        cut->blocks = made + (blocks - bags->job.cut.blocks);
        cut->total = totals + (c->total - bags->job.cut.totals) + c->have * c->rows;
        blocks += c->want * c->rows * c->blocks_per_row;
    }
    size_t bytes = (size_t)(blocks - bags->job.cut.blocks) * sizeof *blocks;
    NEO__TRY(neo__bags_send(bags, bags->job.cut.tables, bags->cut.cuts,
                            (size_t)bags->sizes.tables * sizeof *bags->cut.cuts));
    if (bytes == 0) return NEO_OK;
    NEO__TRY(on->bags_cut(on, &bags->job));
    if (bags->cut.there) return NEO_OK;
    return neo__bags_fetch(bags, bags->cut.blocks, bags->job.cut.blocks, bytes);
}
/* Get the sums over whole rows that a step of what is kept needs. */
static neo_status neo__bags_cut_rounds(neo_bags *bags) {
    int32_t count;
    NEO__TRY(neo__bags_cut_begin(bags));
    for (;;) {
        NEO__TRY(neo__bags_cut_blocks(bags, &count));
        if (count == 0) return NEO_OK;
        NEO__TRY(bags->cut.fn(bags->cut.user, bags->cut.sums, count));
        for (int32_t i = 0; i < count; i++) {
            const neo_cut_sums *cut = &bags->cut.sums[i];
            size_t floats = (size_t)(cut->sums * cut->rows);
            bags->cut.cuts[cut->table].cut.have += cut->sums;
            if (bags->cut.there) continue;
            NEO__TRY(neo__bags_send(bags, bags->job.cut.totals + (cut->total - bags->cut.totals),
                                    cut->total, floats * sizeof(float)));
        }
    }
}

/* ---- steps ---- */

static void neo__bags_count_step(neo_bags *bags) {
    neo__count_step(bags->ctx, &bags->steps);
    if (bags->sizes.key_scratch) neo__count_step(bags->ctx, &bags->key_steps);
    bags->work.resolved = 0;
}
/* One step of each row that is kept; then none is. The sums of cut tables are asked for before
   anything changes. others: tables that are not cut then step by the record's batch. */
static neo_status neo__bags_step_kept(neo_bags *bags, const char *fn, float lr, int others) {
    neo__bags_job *job = &bags->job;
    const neo__bags_job batch = *job;
    NEO__ZERO(neo__leaf_cut, whole);
    NEO__TRY(neo__bags_bound_kept(bags));
    neo__bags_set_rows_job(job, job->kept.sums, job->fixed.max_dim, 0);
    job->sorted.records = job->kept.count = bags->kept.count;
    NEO__TRY(neo__bags_rules(bags, lr));
    NEO__TRY(neo__bags_bring(bags, fn, 1, 1));
    if (bags->sizes.cut_tables) NEO__TRY(neo__bags_cut_rounds(bags));
    if (bags->kept.count) NEO__TRY(NEO__RUN(bags->ctx, fn, bags_step_kept, job));
    (void)neo__bags_drop_slots(bags, 0); /* the step has been taken, also if this fails */
    bags->view.fresh = 0;
    if (others) {
        *job = batch;
        job->only_cut = 0;
        NEO__TRY(neo__bags_bring(bags, fn, 0, 1));
        NEO__TRY(neo__bags_sort(bags, whole, 0));
        NEO__TRY(NEO__RUN(bags->ctx, fn, bags_update, job));
    }
    neo__bags_count_step(bags);
    return NEO_OK;
}
NEO_API neo_status neo_bags_backward(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                     float lr) {
    static const char *const fn = "neo_bags_backward";
    NEO__SPAN(bags ? bags->ctx : NULL, "neo_bags_backward");
    NEO__ZERO(neo__leaf_cut, whole);
    NEO__TRY(neo__bags_begin(bags, batch, dout, 0, fn));
    NEO__CHECK(neo__bags_finite(lr), NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    NEO__TRY(neo__bags_count_kept(bags));
    NEO__CHECK(bags->kept.count == 0, NEO_ERR_STATE,
               "%s: bags '%s': %" PRId64 " rows of gradients are kept: step or clear first", fn,
               bags->name, bags->kept.count);
    bags->job.only_cut = -1;
    if (bags->sizes
            .cut_tables) { /* gradients are kept meanwhile; on a device those of all tables */
        const int others = !bags->ctx->device;
        if (others) bags->job.only_cut = 1;
        NEO__TRY(neo__bags_unfold(bags, batch, dout, fn));
        NEO__TRY(neo__bags_admit(bags));
        NEO__TRY(neo__bags_keep(bags, whole, fn));
        neo_status status = neo__bags_step_kept(bags, fn, lr, others);
        if (status != NEO_OK && bags->kept.count) (void)neo__bags_drop_slots(bags, 0);
        return status;
    }
    NEO__TRY(neo__bags_rules(bags, lr));
    NEO__TRY(neo__bags_admit(bags));
    NEO__TRY(neo__bags_bring(bags, fn, 0, 1));
    NEO__TRY(neo__bags_unfold(bags, batch, dout, fn));
    NEO__TRY(neo__bags_sort(bags, whole, 0));
    NEO__TRY(NEO__RUN(bags->ctx, fn, bags_update, &bags->job));
    bags->view.fresh = 0;
    neo__bags_count_step(bags);
    return NEO_OK;
}
NEO_API neo_status neo_bags_step(neo_bags *b, float lr) {
    NEO__SPAN(b ? b->ctx : NULL, "neo_bags_step");
    static const char *const fn = "neo_bags_step";
    NEO__TRY(neo__bags_check_keeps(b, fn));
    NEO__CHECK(neo__bags_finite(lr), NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    return neo__bags_step_kept(b, fn, lr, 0);
}

#if !defined(NEO_INFERENCE)
/* ---- dense gradients of a device ----

   A slot is a place in `dense`, counted in fours of floats where no row cuts one, so that a call
   that keeps writes there and nobody counts new slots. Back from there each row has a record, which
   a row without a mark drops: as they come they are sorted, and how many are marked is for the
   device to know. */

/* Floats from one place to the next. */
static int64_t neo__bags_dense_unit(const neo_bags *bags) {
    int64_t unit = 4;
    for (int64_t i = 0; i < bags->sizes.tables; i++)
        if (bags->tables[i].dim % 4) unit = 1;
    return unit;
}
NEO_API neo_status neo__bags_dense_sum(neo_bags *bags, const neo_jagged *batch, neo_tensor dout,
                                       const neo_leaves *leaves, float *dense,
                                       unsigned char *marks, int fresh) {
    static const char *const fn = "neo_bags_accumulate";
    neo_device *on = bags->ctx->on;
    NEO__ZERO(neo__leaf_cut, held);
    NEO__TRY(neo__bags_begin(bags, batch, dout, 0, fn));
    NEO__TRY(neo__bags_hear(bags));
    NEO__TRY(neo__bags_unfold(bags, batch, dout, fn));
    NEO__TRY(neo__leaves_resolve(bags->ctx, leaves, batch->batch, &held, fn));
    const int64_t floats = bags->sizes.floats, unit = neo__bags_dense_unit(bags);
    NEO__CHECK(floats / unit <= INT32_MAX, NEO_ERR_CAPACITY,
               "%s: bags '%s': dense gradients of %" PRId64 " numbers, a device takes %" PRId64, fn,
               bags->name, floats, unit * INT32_MAX);
    NEO__TRY(neo__data_zero(bags->ctx, dense, (size_t)floats * sizeof *dense));
    if (fresh) NEO__TRY(neo__data_zero(bags->ctx, marks, (size_t)bags->sizes.keys));
    NEO__TRY(neo__bags_sort(bags, held, 1));
    neo__bags_job job = bags->job;
    job.kept.sums = dense;
    job.kept.unit = unit;
    bags->view.fresh = 0;
    NEO__TRY(on->bags_dense_slots(on, &job, marks));
    return NEO__RUN(bags->ctx, fn, bags_update, &job);
}
/* The record's rows: those that are marked. keep: to be added to what is kept. */
static neo_status neo__bags_dense_rows(neo_bags *bags, const float *dense,
                                       const unsigned char *marks, int keep, const char *fn) {
    neo__bags_job *job = &bags->job;
    const neo_tensor all = neo_tensor_1d((void *)(uintptr_t)dense, NEO_F32, bags->sizes.floats);
    neo_tensor grad = all;
    grad.place = NEO_DEVICE;
    NEO__TRY(neo_check_finite(bags->ctx, fn, "grad", grad));
    bags->view.fresh = 0;
    neo__bags_set_rows_job(job, dense, neo__bags_dense_unit(bags), keep);
    job->sorted.records = job->fixed.key_count;
    return bags->ctx->on->bags_dense_records(bags->ctx->on, job, marks);
}
NEO_API neo_status neo__bags_dense_step(neo_bags *bags, const float *dense,
                                        const unsigned char *marks, float lr) {
    static const char *const fn = "neo_bags_step";
    NEO__CHECK(neo__bags_finite(lr), NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    neo__bags_remind(bags);
    NEO__TRY(neo__bags_rules(bags, lr));
    NEO__TRY(neo__bags_dense_rows(bags, dense, marks, 0, fn));
    neo__bags_job job = bags->job;
    job.sorted.max_parts = 0; /* a row has one record */
    NEO__TRY(bags->ctx->on->bags_update(bags->ctx->on, &job));
    neo__bags_count_step(bags);
    return NEO_OK;
}
NEO_API neo_status neo__bags_dense_keep(neo_bags *bags, const float *dense,
                                        const unsigned char *marks) {
    static const char *const fn = "neo_bags_add_grad";
    NEO__TRY(neo__bags_bound_kept(bags));
    const int64_t before = bags->kept.count;
    NEO__TRY(neo__bags_dense_rows(bags, dense, marks, 1, fn));
    NEO__TRY(neo__bags_slots(bags, fn, before, 0, bags->job.sorted.records));
    return bags->ctx->on->bags_update(bags->ctx->on, &bags->job);
}
#endif
/* ---------------------------------------------------------------------------
   >>impl-finite

   check_finite: NEO__RUN then calls neo__checked_x. It shows the operation's record to neo__see_x,
   which tells what the operation reads and writes, before the operation and after it: the first
   time what is read is looked at (an output may take its place), the second time what is written.
   A look is an operation too (NEO__BLEND_LOOK); where it finds something the numbers come to the
   host until the first is found. Parameters and gradients are known by their addresses.
   ------------------------------------------------------------------------ */
typedef struct neo__seen {
    char text[160]; /* "x[3][0]"; "": all is finite so far */
    int named; /* a parameter or a table */
    float value;
} neo__seen;
typedef struct neo__finite {
    neo_ctx *ctx;
    const char *fn;
    int after;
    neo__seen read, written;
    const char *with; /* a parameter that is read, or NULL */
    int64_t first;    /* row that looks at matrices begin with */
    neo_status status;
} neo__finite;

/* The parameter in which an address lies; *grad: in its gradient. NULL: none. */
static const neo_param *neo__param_at(const neo_ctx *ctx, const void *data, int *grad) {
    for (const neo_params *p = ctx->params; p; p = p->before)
        for (int i = 0; i < 2 * p->count; i++) {
            const neo_param *param = &p->slot[i / 2]->param;
            const neo_tensor t = i & 1 ? param->grad : param->value;
            const uintptr_t at = (uintptr_t)t.data, bytes = (uintptr_t)neo_tensor_bytes(t);
            *grad = i & 1;
            if (t.data && (uintptr_t)data >= at && (uintptr_t)data - at < bytes) return param;
        }
    return NULL;
}
static const char *neo__not_finite_text(float x) {
    return x != x ? "nan" : x > 0.0f ? "inf" : "-inf";
}
/* A number at element (row, col) of the matrix at `data`; row -1: of a vector. */
static void neo__seen_note(neo__finite *f, neo__seen *seen, const char *name, const void *data,
                           int64_t offset, int64_t row, int64_t col, float value) {
    int grad = 0;
    const neo_param *param = data ? neo__param_at(f->ctx, data, &grad) : NULL;
    char *to = seen->text;
    const size_t room = sizeof seen->text;
    seen->value = value;
    seen->named = param || !data;
    if (!param && row < 0) snprintf(to, room, "%s[%" PRId64 "]", name, col);
    else if (!param) snprintf(to, room, "%s[%" PRId64 "][%" PRId64 "]", name, row, col);
    if (!param) return;
    const char *base = (const char *)(grad ? param->grad.data : param->value.data);
    int64_t left = (int64_t)((const char *)data - base) / (int64_t)sizeof(float) + offset;
    int64_t size = neo_tensor_count(param->value);
    snprintf(to, room, "%s%.100s", grad ? "the gradient of " : "", param->name);
    for (int d = 0; d < param->value.ndim; d++) {
        size /= param->value.shape[d];
        const size_t at = strlen(to);
        snprintf(to + at, room - at, "[%" PRId64 "]", left / size);
        left %= size;
    }
}
/* The first number of a matrix that is not finite; rows are `apart` elements from each other. */
static neo_status neo__finite_find(neo__finite *f, neo__seen *seen, const char *name,
                                   neo_tensor tensor) {
    const int matrix = tensor.ndim == 2;
    const int64_t cols = tensor.shape[tensor.ndim - 1], rows = matrix ? tensor.shape[0] : 1;
    const int64_t apart = matrix ? tensor.stride[0] : cols;
    neo_device *d = neo__device_at(f->ctx, tensor.place);
    char part[NEO__BLOCK * sizeof(float)];
    float x[NEO__BLOCK];
    int infinite = 0;
    NEO__ZERO(neo__blend_call, look);
    look.kind = NEO__BLEND_LOOK;
    look.x = look.y = tensor.data;
    look.x_dtype = look.y_dtype = tensor.dtype;
    look.rows = rows, look.cols = cols, look.x_row = look.y_row = apart;
    look.infinite = &infinite;
    NEO__TRY(d->blend(d, &look));
    for (int64_t i = 0; infinite && i < rows; i++)
        for (int64_t j = 0; j < cols; j += NEO__BLOCK) {
            const int64_t n = NEO__MIN(cols - j, (int64_t)NEO__BLOCK), at = i * apart + j;
            NEO__TRY(neo__data_read(f->ctx, part, neo__element(tensor.data, at, tensor.dtype),
                                    tensor.place, (size_t)n * neo_dtype_size(tensor.dtype)));
            neo__decode_float(f->ctx, tensor.dtype, part, x, n);
            for (int64_t k = 0; k < n; k++) {
                if (x[k] - x[k] == 0.0f) continue;
                neo__seen_note(f, seen, name, tensor.data, at + k, matrix ? f->first + i : -1,
                               j + k, x[k]);
                return NEO_OK;
            }
        }
    return NEO_OK;
}
/* A tensor that the operation reads (written 0) or writes. */
static void neo__see_tensor(neo__finite *f, int written, const char *name, neo_tensor t) {
    neo__seen *seen = written ? &f->written : &f->read;
    int grad = 0;
    if (f->status != NEO_OK || !t.data || neo_tensor_count(t) == 0) return;
    if (!written && !f->after && !f->with) {
        const neo_param *p = neo__param_at(f->ctx, t.data, &grad);
        if (p && !grad) f->with = p->name;
    }
    if (written == f->after && !seen->text[0]) f->status = neo__finite_find(f, seen, name, t);
}
static void neo__see_dtype(neo__finite *f, int written, const char *name, const void *data,
                           neo_dtype dtype, int64_t rows, int64_t cols, int64_t apart) {
    neo_tensor t = neo_tensor_2d((void *)(uintptr_t)data, dtype, rows, cols);
    if (data) t.data = neo__element(t.data, f->first * apart, dtype);
    t.stride[0] = apart;
    t.place = neo__ctx_place(f->ctx);
    neo__see_tensor(f, written, name, t);
}
static void neo__see(neo__finite *f, int written, const char *name, const float *data, int64_t rows,
                     int64_t cols, int64_t apart) {
    neo__see_dtype(f, written, name, data, NEO_F32, rows, cols, apart);
}
static void neo__see_vector(neo__finite *f, int written, const char *name, const float *data,
                            int64_t n) {
    neo_tensor t = neo_tensor_1d((void *)(uintptr_t)data, NEO_F32, n);
    t.place = neo__ctx_place(f->ctx);
    neo__see_tensor(f, written, name, t);
}

static neo__finite neo__finite_begin(neo_ctx *ctx, const char *fn) {
    NEO__ZERO(neo__finite, f);
    f.ctx = ctx;
    f.fn = fn;
    return f;
}
/* The status of the call, and its message. */
static neo_status neo__finite_end(neo__finite *seen) {
    const int64_t *clock = seen->ctx->clocks[1] ? seen->ctx->clocks[1] : seen->ctx->clocks[0];
    char step[40] = "", with[120] = "", from[220] = "";
    const char *name = seen->with ? seen->with : seen->ctx->last_read;
    seen->ctx->last_read = name;
    if (seen->status != NEO_OK || !seen->written.text[0]) return seen->status;
    if (clock) snprintf(step, sizeof step, " at step %" PRId64, *clock + 1);
    if (name && !strstr(seen->written.text, name) && !strstr(seen->read.text, name) &&
        (seen->with || !(seen->written.named | seen->read.named)))
        snprintf(with, sizeof with, ", %s %.100s", seen->with ? "with" : "after", name);
    if (seen->after && seen->read.text[0])
        snprintf(from, sizeof from, ", from %s, which is %s", seen->read.text,
                 neo__not_finite_text(seen->read.value));
    else if (seen->after)
        snprintf(from, sizeof from, ", from finite numbers");
    return neo_fail(NEO_ERR_NUMERIC, "%s: %s is %s%s%s%s", seen->fn, seen->written.text,
                    neo__not_finite_text(seen->written.value), step, with, from);
}
NEO_API neo_status neo_check_finite(neo_ctx *ctx, const char *function, const char *name,
                                    neo_tensor tensor) {
    NEO__TRY(neo__check_ctx(function, ctx));
    const int matrix = tensor.ndim == 2 && (tensor.stride[1] == 1 || tensor.shape[1] == 1);
    if (!ctx->check_finite || !tensor.data || !neo__is_float(tensor.dtype) || tensor.ndim < 1)
        return NEO_OK;
    if (!matrix && !neo_tensor_is_contiguous(tensor)) return NEO_OK;
    if (tensor.place == NEO_DEVICE) NEO__TRY(neo__check_place(ctx, tensor, function, name));
    neo__finite f = neo__finite_begin(ctx, function);
    if (!matrix) {
        neo_tensor flat = neo_tensor_1d(tensor.data, tensor.dtype, neo_tensor_count(tensor));
        flat.place = tensor.place;
        tensor = flat;
    }
    if (neo_tensor_count(tensor) > 0) f.status = neo__finite_find(&f, &f.written, name, tensor);
    return neo__finite_end(&f);
}

/* ---- dense operations ---- */
static void neo__see_operands(neo__finite *f, const neo__gemm_call *c, const char *const names[3]) {
    const neo_dtype dtype = c->narrow ? NEO_BF16 : NEO_F32;
    if (c->a_k == 1) neo__see_dtype(f, 0, names[0], c->a, dtype, c->m, c->k, c->a_row);
    else neo__see_dtype(f, 0, names[0], c->a, dtype, c->k, c->m, c->a_k);
    if (c->b_col == 1) neo__see_dtype(f, 0, names[1], c->b, dtype, c->k, c->n, c->b_k);
    else neo__see_dtype(f, 0, names[1], c->b, dtype, c->n, c->k, c->b_col);
}
static void neo__see_gemm(neo__finite *seen, const neo__gemm_call *call) {
    static const char *const names[3][3] = {{"a", "b", "c"}, {"x", "w", "y"}, {"dz", "w", "dx"}};
    const int product = strcmp(seen->fn, "neo_gemm") == 0;
    const char *const *name = names[product ? 0 : strstr(seen->fn, "_forward") ? 1 : 2];
    const neo__gemm_finish *to = &call->finish;
    const neo_dtype c_dtype = call->narrow_c ? NEO_BF16 : NEO_F32;
    neo__see_operands(seen, call, name);
    if (call->bias)
        neo__see_dtype(seen, 0, "bias", call->bias, call->narrow_bias ? NEO_BF16 : NEO_F32, 1,
                       call->n, call->n);
    if (call->beta != 0.0f)
        neo__see_dtype(seen, 0, name[2], call->c, c_dtype, call->m, call->n, call->c_row);
    if (to->backward)
        neo__see_dtype(seen, 0, "z", to->z, call->narrow_z ? NEO_BF16 : NEO_F32, call->m, call->n,
                       to->z_row);
    neo__see_dtype(seen, 1, to->y && !to->backward ? "z" : name[2], call->c, c_dtype, call->m,
                   call->n, call->c_row);
    if (!to->backward)
        neo__see_dtype(seen, 1, name[2], to->y, call->narrow_y ? NEO_BF16 : NEO_F32, call->m,
                       call->n, to->y_row);
}
static void neo__see_linear_grads(neo__finite *f, const neo__linear_grads_call *c) {
    static const char *const names[3] = {"dz", "x", "dw"};
    neo__see_operands(f, &c->dw, names);
    neo__see(f, 1, names[2], c->dw.c, c->dw.m, c->dw.n, c->dw.c_row);
    neo__see_vector(f, 1, "dbias", c->dbias.to, c->dbias.cols);
    if (c->dx.c) neo__see_gemm(f, &c->dx);
}
/* One row is a tensor of any shape. */
static void neo__see_elements(neo__finite *f, int written, const char *name, const void *data,
                              neo_dtype dtype, int64_t rows, int64_t cols, int64_t apart) {
    neo_tensor t = neo_tensor_1d((void *)(uintptr_t)data, dtype, cols);
    t.place = neo__ctx_place(f->ctx);
    if (rows == 1) neo__see_tensor(f, written, name, t);
    else neo__see_dtype(f, written, name, data, dtype, rows, cols, apart);
}
static void neo__see_activation(neo__finite *seen, const neo__activation_call *call) {
    const neo_dtype of_z = call->narrow_z ? NEO_BF16 : NEO_F32;
    const neo_dtype of_out = call->narrow_out ? NEO_BF16 : NEO_F32;
    const int64_t rows = call->rows, cols = call->cols;
    neo__see_elements(seen, 0, "dy", call->dy, call->narrow_dy ? NEO_BF16 : NEO_F32, rows, cols,
                      call->dy_row);
    neo__see_elements(seen, 0, "z", call->z, of_z, rows, cols, call->z_row);
    neo__see_elements(seen, 0, "y", call->y, NEO_F32, rows, cols, call->y_row);
    neo__see_elements(seen, 1, call->backward ? "dz" : "y", call->out, of_out, rows, cols,
                      call->out_row);
}
static void neo__see_blended(neo__finite *f, int written, const char *name, const void *data,
                             neo_dtype dtype, const neo__blend_call *c, int64_t apart) {
    neo__see_elements(f, written, name, data, dtype, c->rows, c->cols, apart);
}
static void neo__see_blend(neo__finite *seen, const neo__blend_call *call) {
    static const char *const plain[] = {"x", "y", "z", "base"};
    static const char *const of_dot[] = {"dx or dy", "x or y"};
    const int rows = call->kind == NEO__BLEND_ROWS, fma = call->kind == NEO__BLEND_FMA;
    const char *const *name = rows ? of_dot : call->names ? call->names : plain;
    if (!rows && !fma)
        neo__see_blended(seen, 0, name[0], call->x, call->x_dtype, call, call->x_row);
    if (rows) neo__see_vector(seen, 0, "dout", call->out, call->rows);
    if (call->kind != NEO__BLEND_SCALE && !neo__blend_makes_y(call->kind))
        neo__see_blended(seen, 0, name[1], call->y, call->y_dtype, call, call->y_row);
    if (fma) neo__see_blended(seen, 0, name[2], call->z, NEO_F32, call, call->z_row);
    if (call->base)
        neo__see_blended(seen, 0, name[3], call->base, NEO_F32, call, call->base_row);
    if (call->kind == NEO__BLEND_DOT) neo__see_vector(seen, 1, "out", call->out, call->rows);
    else if (neo__blend_makes_y(call->kind))
        neo__see_blended(seen, 1, "y", call->y, call->y_dtype, call, call->y_row);
    else if (!call->infinite) /* else the caller asks */
        neo__see_blended(seen, 1, name[0], call->x, call->x_dtype, call, call->x_row);
}
static void neo__see_norm(neo__finite *f, const neo__norm_call *c) {
    neo__see(f, 0, "x", c->x, c->rows, c->cols, c->x_row);
    neo__see_vector(f, 0, "weight", c->weight, c->cols);
    neo__see_vector(f, 0, "bias", c->bias, c->cols);
    neo__see(f, 0, "dy", c->dy, c->rows, c->cols, c->dy_row);
    neo__see_dtype(f, 1, "y", c->y, c->narrow_y ? NEO_BF16 : NEO_F32, c->rows, c->cols, c->y_row);
    neo__see(f, 1, "dx", c->dx, c->rows, c->cols, c->dx_row);
    neo__see_vector(f, 1, "dweight", c->dweight, c->cols);
    neo__see_vector(f, 1, "dbias", c->dbias, c->cols);
}
static void neo__see_embedding(neo__finite *f, const neo__embedding_call *c) {
    const int64_t from = c->backward ? c->count : c->rows, to = c->backward ? c->rows : c->count;
    neo__see(f, 0, c->backward ? "dout" : "table", c->from, from, c->dim, c->from_row);
    if (c->add) neo__see(f, 0, "dtable", c->to, to, c->dim, c->to_row);
    neo__see(f, 1, c->backward ? "dtable" : "out", c->to, to, c->dim, c->to_row);
}
/* Rows of sequences, from seen->first on, until that is 0 again: those around them are not read. */
static int64_t neo__see_sequences(neo__finite *seen, const neo__attention_call *call) {
    int64_t bound[2] = {0, call->rows};
    for (int i = 0; i < 2 && call->offsets && seen->status == NEO_OK; i++) {
        seen->status = neo__data_read(seen->ctx, &bound[i], call->offsets + i * call->sequences,
                                      neo__ctx_place(seen->ctx), sizeof *bound);
        bound[i] = NEO__MIN(NEO__MAX(bound[i], (int64_t)0), call->rows); /* the call tells of bad */
    }
    seen->first = bound[0];
    return NEO__MAX(bound[1] - bound[0], (int64_t)0);
}
static void neo__see_attention(neo__finite *seen, const neo__attention_call *call) {
    for (int i = 0; i < call->biases; i++) {
        const neo__attention_bias *bias = &call->bias[i];
        neo__see(seen, 0, i ? "bias[1].table" : "bias[0].table", bias->table,
                 bias->table_row ? call->heads : 1, bias->buckets, bias->table_row);
        neo__see(seen, 1, i ? "bias[1].each" : "bias[0].each", bias->each,
                 call->sequences * call->heads, bias->buckets, bias->buckets);
    }
    const int64_t cols = call->heads * call->dim, rows = neo__see_sequences(seen, call);
    const int64_t queries =
        call->offsets ? rows : call->sequences * call->queries; /* all, in a backward */
    const int back = call->backward;
    const neo_dtype own = call->narrow_y ? NEO_BF16 : NEO_F32;
    neo__see(seen, 0, "q", call->q, queries, cols, call->q_row);
    neo__see(seen, 0, "k", call->k, rows, cols, call->k_row);
    neo__see(seen, 0, "v", call->v, rows, cols, call->v_row);
    if (back) neo__see_dtype(seen, 0, "dy", call->dy, own, rows, cols, call->dy_row);
    neo__see_dtype(seen, !back, "y", call->y, own, queries, cols, call->y_row);
    neo__see(seen, !back, "lse", call->lse, queries, call->heads, call->lse_row);
    neo__see_dtype(seen, 1, "dq", call->dq, own, rows, cols, call->dq_row);
    neo__see_dtype(seen, 1, "dk", call->dk, own, rows, cols, call->dk_row);
    neo__see_dtype(seen, 1, "dv", call->dv, own, rows, cols, call->dv_row);
    seen->first = 0;
}
static void neo__see_interact(neo__finite *f, const neo__interact_call *c) {
    const int64_t dim = c->dim, wide = c->features * dim;
    const int64_t width = neo_interact_width(dim, c->features, (int)c->diagonal);
    neo__see(f, 0, "x", c->x, c->batch, dim, c->x_row);
    neo__see(f, 0, "e", c->e, c->batch, wide, c->e_row);
    neo__see(f, 0, "dz", c->dz, c->batch, width, c->dz_row);
    neo__see(f, 1, "z", c->z, c->batch, width, c->z_row);
    neo__see(f, 1, "dx", c->dx, c->batch, dim, c->dx_row);
    neo__see(f, 1, "de", c->de, c->batch, wide, c->de_row);
}
static void neo__see_fm(neo__finite *seen, const neo__fm_call *call) {
    const int64_t rows = call->batch, wide = call->features * call->cols;
    const int64_t factors = call->features * call->dim;
    neo__see(seen, 0, "e", call->e, rows, wide, call->e_row);
    neo__see_vector(seen, 0, "dy", call->dy, rows);
    neo__see(seen, 0, "dv", call->dv, rows, factors, call->dv_row);
    neo__see_vector(seen, 1, "y", call->y, rows);
    neo__see(seen, 1, "v", call->v, rows, factors, call->v_row);
    neo__see(seen, 1, "de", call->de, rows, wide, call->de_row);
}
static void neo__see_loss(neo__finite *seen, const neo__loss_call *call) {
    static const char *const names[][3] = {{"logit", "label", "dlogit"},
                                           {"prob", "label", "dprob"},
                                           {"pred", "target", "dpred"},
                                           {"logit", "label", "dlogit"}};
    const char *const *name = names[call->kind];
    const neo__loss *l = (const neo__loss *)call->later.job;
    const float *const data[3] = {call->x, call->y, call->dx};
    for (int i = 0; i < 3; i++) {
        if (i == 2 ? call->narrow_dx : i == 0 && call->narrow_x)
            neo__see_dtype(seen, i == 2, name[i], data[i], NEO_BF16, call->rows, call->width,
                           i ? call->dx_row : call->x_row);
        else if (call->width == 1) neo__see_vector(seen, i == 2, name[i], data[i], call->rows);
        else neo__see(seen, i == 2, name[i], data[i], call->rows, call->width, call->width);
        if (i == 1) neo__see_vector(seen, 0, "weight", call->weight, call->rows);
    }
    if (!seen->after || seen->status != NEO_OK || !l->loss || seen->written.text[0]) return;
    if (*l->loss - *l->loss == 0.0) return;
    seen->written.value = (float)*l->loss;
    snprintf(seen->written.text, sizeof seen->written.text, "the loss");
}
static void neo__see_convert(neo__finite *f, const neo__convert_call *c) {
    const neo_tensor t[2] = {c->src, c->dst};
    for (int i = 0; i < 2 && c->src.dtype != c->dst.dtype; i++) {
        const int rows = t[i].ndim == 2 && t[i].stride[1] == 1;
        if (neo__is_float(t[i].dtype) && (rows || (t[i].ndim == 1 && t[i].stride[0] == 1)))
            neo__see_tensor(f, i, i ? "dst" : "src", t[i]);
    }
}
static void neo__see_tree_sum(neo__finite *f, const neo__tree_sum_call *c) {
    char name[40];
    for (int i = 0; i < c->count; i++) {
        snprintf(name, sizeof name, "parts[%d]", i);
        neo__see_vector(f, 0, name, (const float *)c->parts[i].data, c->n);
    }
    neo__see_vector(f, 1, "out", c->out, c->n);
}
static void neo__see_optim(neo__finite *seen, const neo__optim_call *call) {
    const int step = call->pass == NEO__OPTIM_STEP;
    const char *kinds[2];
    char name[180];
    int grad;
    NEO__ZERO(neo_optim_desc, d);
    d.kind = call->kind;
    d.momentum = 1.0f;
    (void)neo__optim_states(&d, kinds);
    for (int64_t i = 0; i < call->span_count; i++) {
        const neo__optim_span *s = &call->spans[i];
        const neo_param *p = seen->after ? neo__param_at(seen->ctx, s->w, &grad) : NULL;
        neo__see_vector(seen, 0, "grad", s->grad, s->count);
        neo__see_vector(seen, 0, "w", s->w, s->count);
        if (step) neo__see_vector(seen, 1, "w", s->w, s->count);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s of %.100s", kinds[k] ? kinds[k] : "",
                     p ? p->name : "w");
            neo__see_vector(seen, 0, name, s->state[k], s->count);
            if (call->pass <= NEO__OPTIM_LAMB_MOMENTS)
                neo__see_vector(seen, 1, name, s->state[k], s->count);
        }
        if (!seen->after) seen->with = NULL; /* all parameters are read */
    }
    seen->ctx->last_read = NULL;
}

/* ---- embedding bags ---- */
/* Features of `out` or `dout`. */
static void neo__see_bags_tensor(neo__finite *seen, int written, const neo__bags_job *job,
                                 const char *what, const float *data) {
    const neo_bags *b = job->object;
    char name[120];
    if (b->sizes.none) {
        neo__see(seen, written, what, data, job->tensor.out_rows, job->fixed.max_dim,
                 job->told.host_features[0].out_stride);
        return;
    }
    for (int64_t i = 0; i < b->sizes.features; i++) {
        const neo__job_feature *p = &job->told.host_features[i];
        const neo__bag_table *t = &b->tables[p->table];
        snprintf(name, sizeof name, "%s of feature %" PRId64 " (table '%.60s') ", what, i, t->name);
        neo__see(seen, written, name, data + p->out_at, p->bags, t->dim, p->out_stride);
    }
}
/* Numbers of a row of a table, in host memory; of a part of a table by their places in the whole.
   Returns whether one is not finite. */
static int neo__see_floats(neo__finite *f, neo__seen *seen, const neo__bag_table *table,
                           const char *what, int64_t row, const float *x, int64_t n) {
    const int64_t first = (int64_t)(table->job.store.first % table->job.store.stride);
    char name[120];
    for (int64_t i = 0; i < n; i++) {
        if (x[i] - x[i] == 0.0f) continue;
        snprintf(name, sizeof name, "table '%.80s': %s", table->name, what);
        neo__seen_note(f, seen, name, NULL, 0, row + table->job.first_row, n > 1 ? first + i : i,
                       x[i]);
        return 1;
    }
    return 0;
}
/* Rows come to the host by way of the context's scratch; wider ones are not looked at. */
static int neo__row_fits(const neo__bag_table *t) {
    return (size_t)t->dim <= NEO__SHARED_SCRATCH_BYTES / sizeof(float);
}
/* A row of a table, and its states. Returns whether a number is not finite. */
static int neo__see_row(neo__finite *f, neo__seen *seen, const neo_bags *bags, int32_t table,
                        int64_t row) {
    const neo__bag_table *t = &bags->tables[table];
    float *x = (float *)(void *)neo__shared_scratch(f->ctx);
    if (f->status != NEO_OK || seen->text[0]) return 1;
    if (!neo__row_fits(t)) return 0;
    f->status = neo__bags_move_rows(bags, table, row, 1, x, NULL);
    if (f->status != NEO_OK || neo__see_floats(f, seen, t, "weight", row, x, t->dim)) return 1;
    for (int k = 0; k < 2; k++) {
        const int64_t n = t->job.state_dim[k];
        const neo_tensor s = neo__bags_tensor(bags, table, k + 2);
        if (!s.data) continue;
        f->status = neo__data_read(f->ctx, x, (char *)s.data + (size_t)(row * n) * sizeof *x,
                                   s.place, (size_t)n * sizeof *x);
        if (f->status != NEO_OK ||
            neo__see_floats(f, seen, t, k ? "momentum2" : "momentum1", row, x, n))
            return 1;
    }
    return 0;
}
/* Rows that the batch of the record reads or steps. */
static void neo__see_batch_rows(neo__finite *f, neo__seen *seen, const neo__bags_job *job) {
    enum { IDS = 64 };
    const neo_bags *bags = job->object;
    const size_t size = job->batch.is_i32 ? sizeof(int32_t) : sizeof(int64_t);
    int64_t ids[IDS], ends[2];
    for (int64_t i = 0; i < bags->sizes.features && job->batch.bags > 0; i++) {
        const neo__job_feature *feature = &job->told.host_features[i];
        for (int k = 0; k < 2 && f->status == NEO_OK; k++)
            f->status = neo__bags_fetch(
                bags, &ends[k], job->batch.offsets + feature->first_bag + (k ? feature->bags : 0),
                sizeof *ends);
        for (int64_t at = ends[0], n; f->status == NEO_OK && at < ends[1]; at += n) {
            const char *from =
                (const char *)job->batch.ids + (size_t)(at - job->batch.id_base) * size;
            n = NEO__MIN(ends[1] - at, (int64_t)IDS);
            f->status = neo__bags_fetch(bags, ids, from, (size_t)n * size);
            for (int64_t k = 0; f->status == NEO_OK && k < n; k++) {
                int64_t row = neo__jagged_id(ids, job->batch.is_i32, k);
                const neo__bag_table *t = &bags->tables[feature->table];
                const int64_t last = (job->batch.lines ? t->job.rows : t->rows) - 1;
                if (t->bounds == NEO_BOUNDS_CLAMP) row = row < 0 ? 0 : NEO__MIN(row, last);
                if (row < 0 || row > last) continue; /* dropped */
                if (job->batch.lines) row = neo__bag_row_of(&t->job.store, row);
                if (neo__see_row(f, seen, bags, (int32_t)feature->table, row)) return;
            }
        }
    }
}
/* Sums that are kept, or, stepped, the rows that they have stepped. */
static void neo__see_kept(neo__finite *seen, const neo_bags *bags, int stepped) {
    float *x = (float *)(void *)neo__shared_scratch(seen->ctx);
    for (int64_t i = 0; i < bags->kept.count; i++) {
        uint64_t key = 0;
        if (seen->ctx->device)
            seen->status = neo__bags_fetch(bags, &key, bags->job.kept.slot_key + i, 8);
        if (seen->status != NEO_OK) return;
        const int32_t table = seen->ctx->device ? neo__bags_table_of(bags, (int64_t)key)
                                             : bags->kept.slots[i].table;
        const neo__bag_table *t = &bags->tables[table];
        const int64_t row =
            seen->ctx->device ? (int64_t)key - t->job.first_key : bags->kept.slots[i].row;
        if (stepped && neo__see_row(seen, &seen->written, bags, table, row)) return;
        if (stepped || !neo__row_fits(t)) continue;
        seen->status = neo__bags_fetch(bags, x, bags->job.kept.sums + neo__bags_slot_at(bags, i),
                                    (size_t)t->dim * sizeof *x);
        if (seen->status != NEO_OK ||
            neo__see_floats(seen, &seen->written, t, "the gradient of weight", row, x, t->dim))
            return;
    }
}
static void neo__see_bags_forward(neo__finite *f, const neo__bags_job *j) {
    if (f->after) neo__see_bags_tensor(f, 1, j, "out", j->tensor.out);
    if (f->after && f->written.text[0]) neo__see_batch_rows(f, &f->read, j);
}
static void neo__see_bags_weight_grad(neo__finite *f, const neo__bags_job *j) {
    neo__see_bags_tensor(f, 0, j, "dout", j->tensor.dout);
    neo__see_vector(f, 1, "dweights", j->tensor.dweights, j->batch.most_ids);
    if (f->after && f->written.text[0] && !f->read.text[0]) neo__see_batch_rows(f, &f->read, j);
}
/* Gradients that are not finite are not added, and step no row. */
static void neo__see_bags_update(neo__finite *seen, const neo__bags_job *job) {
    const neo_bags *b = job->object;
    if (seen->after && job->keep) neo__see_kept(seen, b, 0);
    else if (seen->after) neo__see_batch_rows(seen, &seen->written, job);
    if (seen->after) return;
    seen->after = 1;
    if (job->add)
        neo__see(seen, 1, "grad", job->tensor.dout, job->sorted.records, b->tables[job->table].dim,
                 job->sorted.grad_unit);
    else neo__see_bags_tensor(seen, 1, job, "dout", job->tensor.dout);
    seen->after = 0;
}
static void neo__see_bags_step_kept(neo__finite *f, const neo__bags_job *j) {
    if (f->after) neo__see_kept(f, j->object, 1);
}

#define NEO__CHECKED(op, record)                                                                   \
    static neo_status neo__checked_##op(neo_ctx *ctx, const char *fn, const record *call) {        \
        neo__span_begin(ctx, fn, -1, NEO__SPAN_COMPUTE);                                           \
        if (!ctx->check_finite) return neo__span_end(ctx, ctx->on->op(ctx->on, call));             \
        neo__finite f = neo__finite_begin(ctx, fn);                                                \
        neo__see_##op(&f, call);                                                                   \
        if (f.status == NEO_OK && !f.written.text[0]) {                                            \
            f.status = ctx->on->op(ctx->on, call);                                                 \
            f.after = 1;                                                                           \
            if (f.status == NEO_OK) neo__see_##op(&f, call);                                       \
        }                                                                                          \
        return neo__span_end(ctx, neo__finite_end(&f));                                            \
    }
NEO__CHECKED_LIST(NEO__CHECKED)
#undef NEO__CHECKED
#endif

NEO__COLD_END
NEO__CALLS_END
NEO__COLD_BEGIN
NEO__HOT_BEGIN
#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
   >>impl-exchange

   Sums of pieces and coded rows, for exchanges between ranks: the rows of the CPU's table that run
   on the thread of an exchange, beside the context's own.
   ------------------------------------------------------------------------ */
enum { NEO__EXCHANGE_BYTES = 4096 }; /* handled at a time, in the first-level cache */
enum { NEO__EXCHANGE_FLOATS = NEO__EXCHANGE_BYTES / 4 };

/* x = x op y */
#define NEO__INTEGERS(type, wide)                                                                  \
    do {                                                                                           \
        type *p = (type *)x;                                                                       \
        const type *q = (const type *)y;                                                           \
        if (reduce == 0)                                                                           \
            for (int64_t i = 0; i < n; i++) p[i] = (type)((wide)p[i] + (wide)q[i]);                \
        else if (reduce == 1)                                                                      \
            for (int64_t i = 0; i < n; i++) p[i] = p[i] > q[i] ? p[i] : q[i];                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) p[i] = p[i] < q[i] ? p[i] : q[i];                      \
    } while (0)
static void neo__merge_f32(const neo_ctx *ctx, int reduce, float *x, const float *y, int64_t n) {
    if (reduce == 0)
        ctx->vec->add(x, y, n);
    else if (reduce == 1)
        for (int64_t i = 0; i < n; i++) x[i] = y[i] > x[i] || y[i] != y[i] ? y[i] : x[i];
    else
        for (int64_t i = 0; i < n; i++) x[i] = y[i] < x[i] || y[i] != y[i] ? y[i] : x[i];
}
static void neo__merge(const neo_ctx *ctx, neo_dtype dtype, int reduce, void *x, const void *y,
                       int64_t n) {
    float a[NEO__EXCHANGE_FLOATS], b[NEO__EXCHANGE_FLOATS];
    switch (dtype) {
    case NEO_F32: neo__merge_f32(ctx, reduce, (float *)x, (const float *)y, n); break;
    case NEO_I8: NEO__INTEGERS(int8_t, int); break;
    case NEO_U8: NEO__INTEGERS(uint8_t, unsigned); break;
    case NEO_I32: NEO__INTEGERS(int32_t, uint32_t); break;
    case NEO_I64: NEO__INTEGERS(int64_t, uint64_t); break;
    default:
        neo__decode_float(ctx, dtype, x, a, n);
        neo__decode_float(ctx, dtype, y, b, n);
        neo__merge_f32(ctx, reduce, a, b, n);
        neo__encode_float(ctx, dtype, a, x, NULL, n);
    }
}
#undef NEO__INTEGERS
/* Sums of a tree over pieces, of falling sizes; the last one is to come. */
typedef struct neo__sums {
    const neo_ctx *ctx;
    neo_dtype dtype;
    int reduce, height;
    int leaves[NEO__COMBINE_STACK];
    int64_t sum[NEO__COMBINE_STACK][NEO__EXCHANGE_BYTES / sizeof(int64_t)];
} neo__sums;
static void neo__sums_merge(neo__sums *s, int lower, int64_t n) {
    neo__merge(s->ctx, s->dtype, s->reduce, s->sum[lower], s->sum[lower + 1], n);
}
/* The piece at sum[height] joins the tree. */
static void neo__sums_push(neo__sums *s, int leaves, int64_t n) {
    for (; s->height > 0 && s->leaves[s->height - 1] == leaves; leaves *= 2)
        neo__sums_merge(s, --s->height, n);
    s->leaves[s->height++] = leaves;
}
/* All that waits becomes one; the stack is empty again. */
static const void *neo__sums_fold(neo__sums *s, int64_t n) {
    for (int lower = s->height - 2; lower >= 0; lower--) neo__sums_merge(s, lower, n);
    s->height = 0;
    return s->sum[0];
}
static neo_status neo__cpu_combine(neo_device *device, const neo__combine_call *call) {
    const int64_t size = (int64_t)neo_dtype_size(call->dtype);
    const int64_t block = NEO__MIN(NEO__EXCHANGE_BYTES / size, (int64_t)NEO__EXCHANGE_FLOATS);
    const neo__fp_state fp = neo__fp_enter();
    neo__sums sums;
    sums.ctx = neo__cpu_ctx(device);
    sums.dtype = call->dtype;
    sums.reduce = call->reduce;
    sums.height = 0;
    for (int64_t at = 0; at < call->n; at += block) {
        const int64_t n = NEO__MIN(call->n - at, block);
        for (int i = 0; i < call->count; i++) {
            const char *piece = (const char *)call->piece[i] + at * size;
            const int joins = sums.height > 0 && sums.leaves[sums.height - 1] == call->leaves[i];
            if (joins)
                neo__merge(sums.ctx, sums.dtype, sums.reduce, sums.sum[--sums.height], piece, n);
            else memcpy(sums.sum[sums.height], piece, (size_t)(n * size));
            neo__sums_push(&sums, call->leaves[i] << joins, n);
        }
        memcpy((char *)call->out + at * size, neo__sums_fold(&sums, n), (size_t)(n * size));
    }
    neo__fp_leave(fp);
    return NEO_OK;
}

/* Coded rows without gaps, of whole blocks or words each, are one long row. */
static neo__wire_call neo__code_join(const neo__wire_call *call) {
    neo__wire_call c = *call;
    const int whole = c.wire > NEO_WIRE_BF16 ? NEO_WIRE_BLOCK : 2;
    if (c.stride != c.cols || (c.wire != NEO_WIRE_F32 && c.cols % whole)) return c;
    c.cols *= c.rows;
    c.rows = NEO__MIN(c.rows, (int64_t)1);
    return c;
}
NEO__INLINE neo_dtype neo__code_dtype(int wire) {
    return wire == NEO_WIRE_F32 ? NEO_F32 : wire == NEO_WIRE_F16 ? NEO_F16 : NEO_BF16;
}
static void neo__encode_row(const neo_ctx *ctx, const neo__wire_call *call, const float *x,
                            char *out) {
    const int32_t most = call->wire == NEO_WIRE_F16 ? NEO__F16_LARGEST : NEO__F32_INFINITY;
    float scaled[NEO__EXCHANGE_FLOATS];
    for (int64_t at = 0; at < call->cols; at += NEO__EXCHANGE_FLOATS) {
        const int64_t n = NEO__MIN(call->cols - at, (int64_t)NEO__EXCHANGE_FLOATS);
        const float *from = x + at;
        char *to = out + neo__code_bytes(call->wire, at);
        if (call->wire == NEO_WIRE_F16 || call->factor != 1.0f) {
            ctx->wire->times(scaled, from, n, call->factor, most);
            from = scaled;
        }
        neo__encode_float(ctx, neo__code_dtype(call->wire), from, to, NULL, n);
    }
    if (call->wire != NEO_WIRE_F32 && call->cols % 2) memset(out + 2 * call->cols, 0, 2);
}
static neo_status neo__cpu_encode(neo_device *device, const neo__wire_call *call) {
    const neo_ctx *ctx = neo__cpu_ctx(device);
    const neo__fp_state fp = neo__fp_enter();
    const neo__wire_call c = neo__code_join(call);
    if (c.wire > NEO_WIRE_BF16)
        ctx->wire->encode(&c);
    else
        for (int64_t r = 0; r < c.rows; r++)
            neo__encode_row(ctx, &c, (const float *)c.in + r * c.stride,
                            (char *)c.out + (size_t)r * c.row_bytes);
    neo__fp_leave(fp);
    return NEO_OK;
}
/* n numbers of a coded row from number `at` on, which begins a block. */
static void neo__decode_part(const neo_ctx *ctx, const neo__wire_call *c, const char *row,
                             int64_t at, int64_t n, float *x) {
    const char *in = row + neo__code_bytes(c->wire, at);
    if (c->wire > NEO_WIRE_BF16) {
        ctx->wire->decode(c->wire, in, n, c->back, x);
        return;
    }
    neo__decode_float(ctx, neo__code_dtype(c->wire), in, x, n);
    if (c->back != 1.0f) ctx->wire->times(x, x, n, c->back, NEO__F32_INFINITY);
}
/* NOINLINE: its tree of sums is large, and rows of one piece do without. */
static NEO__NOINLINE void neo__decode_sum(const neo_ctx *ctx, const neo__wire_call *call,
                                          const char *row, float *out) {
    neo__sums sums;
    sums.ctx = ctx;
    sums.dtype = NEO_F32;
    sums.reduce = sums.height = 0;
    for (int64_t at = 0; at < call->cols; at += NEO__EXCHANGE_FLOATS) {
        const int64_t n = NEO__MIN(call->cols - at, (int64_t)NEO__EXCHANGE_FLOATS);
        for (int p = 0; p < call->pieces; p++) {
            float *sum = (float *)(void *)sums.sum[sums.height];
            neo__decode_part(ctx, call, row + (size_t)p * call->piece_bytes, at, n, sum);
            neo__sums_push(&sums, 1, n);
        }
        memcpy(out + at, neo__sums_fold(&sums, n), (size_t)n * sizeof *out);
    }
}
static neo_status neo__cpu_decode(neo_device *device, const neo__wire_call *call) {
    const neo__fp_state fp = neo__fp_enter();
    const neo_ctx *ctx = neo__cpu_ctx(device);
    const neo__wire_call c = neo__code_join(call);
    for (int64_t r = 0; r < c.rows; r++) {
        const char *row = (const char *)c.in + (size_t)r * c.row_bytes;
        float *out = (float *)c.out + r * c.stride;
        if (c.pieces > 1) neo__decode_sum(ctx, &c, row, out);
        else neo__decode_part(ctx, &c, row, 0, c.cols, out);
    }
    neo__fp_leave(fp);
    return NEO_OK;
}

/* ---- the calls of >>wire; the layout and the arithmetic are at >>kernels-wire ---- */
static const char *const neo__wire_names[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i4"};
NEO_API const char *neo_wire_name(neo_wire wire) {
    return (unsigned)wire < (unsigned)NEO_WIRE_COUNT ? neo__wire_names[wire] : "unknown";
}
NEO_API neo_status neo_wire_parse(const char *name, neo_wire *wire) {
    if (!name || !wire) return neo_fail(NEO_ERR_ARG, "neo_wire_parse: name or wire is NULL");
    for (int w = 0; w < NEO_WIRE_COUNT; w++) {
        if (strcmp(name, neo__wire_names[w]) != 0) continue;
        *wire = (neo_wire)w;
        return NEO_OK;
    }
    return neo_fail(NEO_ERR_ARG,
                    "neo_wire_parse: '%s' is not one of f32, f16, bf16, f8e4m3, f8e5m2, i8, i4",
                    name);
}
NEO_API size_t neo_wire_row_bytes(neo_wire wire, int64_t cols) {
    if (cols <= 0 || (unsigned)wire >= (unsigned)NEO_WIRE_COUNT) return 0;
    return neo__code_bytes((int)wire, cols);
}
NEO_API neo__wire_call neo__wire_call_of(neo_wire wire, int exponent, int64_t rows, int64_t cols,
                                        const void *in, void *out) {
    /* Exponents -126 .. 126: the inverse of 2^exponent is normal too. */
    const int e = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
    NEO__ZERO(neo__wire_call, call);
    call.wire = (int)wire;
    call.factor = neo__f32_bits((uint32_t)(e + 127) << 23);
    call.back = 1.0f / call.factor;
    call.row_bytes = neo_wire_row_bytes(wire, cols);
    call.rows = call.row_bytes == 0 || rows < 0 ? 0 : rows;
    call.cols = call.stride = cols;
    call.in = in;
    call.out = out;
    return call;
}
/* Add what coding did to n numbers. A decoded number is finite only if x was. */
static void neo__wire_measure(const neo__wire_call *call, const float *x, const float *decoded,
                              int64_t n, neo_wire_stats *stats) {
    neo_wire_stats s = *stats;
    s.numbers += n;
    for (int64_t i = 0; i < n; i++) {
        if ((neo__bits_f32(decoded[i]) & 0x7FFFFFFFu) >= (uint32_t)NEO__F32_INFINITY) {
            s.non_finite++;
            continue;
        }
        double value = (double)x[i], error = (double)decoded[i] - value;
        s.error_squares += error * error;
        s.squares += value * value;
        error = __builtin_fabs(error); /* no branch: signs are random */
        if (error > s.max_error) s.max_error = error;
        if (call->wire == NEO_WIRE_F16)
            s.saturated +=
                (neo__bits_f32(x[i] * call->factor) & 0x7FFFFFFFu) > (uint32_t)NEO__F16_LARGEST;
    }
    *stats = s;
}
NEO_API void neo__wire_add_stats(const neo_ctx *ctx, const neo__wire_call *call,
                                neo_wire_stats *stats) {
    float decoded[1024]; /* whole blocks */
    neo__wire_call part = *call;
    part.rows = part.pieces = 1;
    part.out = decoded;
    for (int64_t r = 0; r < call->rows; r++)
        for (int64_t c = 0; c < call->cols; c += part.cols) {
            part.cols = NEO__MIN(call->cols - c, (int64_t)(sizeof decoded / sizeof *decoded));
            part.in = (const char *)call->out + (size_t)r * call->row_bytes +
                      neo__code_bytes(call->wire, c);
            (void)neo__device_decode(ctx, NEO_HOST, &part);
            neo__wire_measure(call, (const float *)call->in + r * call->stride + c, decoded,
                              part.cols, stats);
        }
}
NEO_API void neo_wire_encode(const neo_ctx *ctx, neo_wire wire, int exponent, const float *src,
                             int64_t rows, int64_t cols, int64_t stride, void *dst,
                             neo_wire_stats *stats) {
    neo__wire_call call = neo__wire_call_of(wire, exponent, rows, cols, src, dst);
    call.stride = stride;
    (void)neo__device_encode(ctx, NEO_HOST, &call);
    if (stats) neo__wire_add_stats(ctx, &call, stats);
}
NEO_API void neo_wire_decode(const neo_ctx *ctx, neo_wire wire, int exponent, const void *src,
                             int64_t rows, int64_t cols, int64_t stride, float *dst) {
    neo__wire_call call = neo__wire_call_of(wire, exponent, rows, cols, src, dst);
    call.stride = stride;
    call.pieces = 1;
    (void)neo__device_decode(ctx, NEO_HOST, &call);
}
#endif
/* ---------------------------------------------------------------------------
   >>impl-cpu

   This machine's processor as a device: its table has one row per operation. Memory is the
   context's allocator's; operations are the neo__cpu_x functions of the sections above, which cut a
   record into tasks for the context's threads. Work is done when a call returns, so there is
   nothing to wait for, and nothing is ever recorded.
   ------------------------------------------------------------------------ */
static void *neo__cpu_alloc(neo_device *d, size_t bytes) {
    const neo_allocator *allocator = &neo__cpu_ctx(d)->allocator;
    return allocator->alloc(bytes, NEO__ALIGN, allocator->user);
}
static void neo__cpu_free(neo_device *d, void *p, size_t bytes) {
    const neo_allocator *allocator = &neo__cpu_ctx(d)->allocator;
    allocator->free(p, bytes, allocator->user);
}
static neo_status neo__cpu_copy(neo_device *d, void *to, neo_place to_place, const void *from,
                                neo_place from_place, size_t bytes) {
    (void)d, (void)to_place, (void)from_place;
    if (bytes) memcpy(to, from, bytes);
    return NEO_OK;
}
static neo_status neo__cpu_move(neo_device *d, void *to, const void *from, size_t bytes,
                                void *stream) {
    (void)stream;
    return neo__cpu_copy(d, to, NEO_HOST, from, NEO_HOST, bytes);
}
static neo_status neo__cpu_synchronize(neo_device *d) {
    (void)d;
    return NEO_OK;
}

static void *neo__cpu_event_make(neo_device *d) { return d; } /* of all events */
static void neo__cpu_event_free(neo_device *d, void *event) { (void)d, (void)event; }
static neo_status neo__cpu_event(neo_device *d, void *event) {
    (void)d, (void)event;
    return NEO_OK;
}

static void neo__cpu_device_init(neo_ctx *ctx) {
    neo_device *device = &ctx->cpu;
    device->bytes = (uint32_t)sizeof *device;
    device->version = NEO__DEVICE_VERSION;
    snprintf(device->name, sizeof device->name, "cpu");
    device->alloc = device->host_alloc = neo__cpu_alloc;
    device->free = device->host_free = neo__cpu_free;
    device->copy = neo__cpu_copy;
    device->move = neo__cpu_move;
    device->fill = neo__cpu_fill;
    device->synchronize = neo__cpu_synchronize;
    device->event_make = neo__cpu_event_make;
    device->event_free = neo__cpu_event_free;
    device->event_mark = device->event_wait = neo__cpu_event;
    device->gemm = neo__cpu_gemm;
    device->activation = neo__cpu_activation;
    device->blend = neo__cpu_blend;
    device->norm = neo__cpu_norm;
    device->embedding = neo__cpu_embedding;
    device->attention = neo__cpu_attention;
    device->interact = neo__cpu_interact;
    device->fm = neo__cpu_fm;
    device->convert = neo__cpu_convert;
#if !defined(NEO_INFERENCE)
    device->combine = neo__cpu_combine;
    device->encode = neo__cpu_encode;
    device->decode = neo__cpu_decode;
    device->linear_grads = neo__cpu_linear_grads;
    device->loss = neo__cpu_loss;
    device->optim = neo__cpu_optim;
    device->init = neo__cpu_init;
    device->tree_sum = neo__cpu_tree_sum;
    device->ids_unique = neo__cpu_ids_unique;
    neo__cpu_bags_init(device);
#endif
}

NEO__HOT_END
NEO__COLD_END
NEO__CALLS_BEGIN
NEO__COLD_BEGIN
/* ---------------------------------------------------------------------------
   >>impl-spans

   Spans of a trace lie in one array, each at the next place when it ends, whatever its thread; a
   place that some thread still writes has no end yet. The rank's own thread has a stack of those
   that are open.
   ------------------------------------------------------------------------ */
#if !defined(NEO_INFERENCE)
NEO_API const void *neo__span_thread(void) { return neo__error_text; }
NEO__HOT_BEGIN
NEO_API neo__launches *neo__ctx_launches(neo_ctx *ctx) { return &ctx->launches; }
NEO_API int neo__ctx_traced(const neo_ctx *ctx) {
    return __atomic_load_n(&ctx->recorder, __ATOMIC_ACQUIRE) ? ctx->traces : 0;
}
NEO_API void neo__trace_add(neo_ctx *ctx, const neo__span *span) {
    neo__recorder *recorder = __atomic_load_n(&ctx->recorder, __ATOMIC_ACQUIRE);
    if (!recorder) return;
    const int own = recorder->thread == neo__span_thread();
    const int leaf = !own || recorder->last_depth <= recorder->depth;
    if (own) recorder->last_depth = recorder->depth;
    const int64_t at = __atomic_fetch_add(&recorder->next, 1, __ATOMIC_RELAXED);
    if (at >= recorder->room) return;
    neo__span *to = &recorder->span[at];
    *to = *span;
    to->end_ns = 0;
    to->thread = own ? 0 : (int16_t)(span->group + 1);
    to->depth = own ? (int16_t)recorder->depth : 0;
    to->leaf = (int16_t)leaf;
    __atomic_store_n(&to->end_ns, span->end_ns, __ATOMIC_RELEASE);
}
NEO_API void neo__span_begin(neo_ctx *ctx, const char *name, int64_t number, neo__span_kind kind) {
    neo__recorder *recorder = ctx->recorder;
    if (ctx->on->range) ctx->on->range(name);
    if (!recorder || recorder->thread != neo__span_thread()) return;
    if (recorder->depth++ >= NEO__TRACE_DEPTH) return;
    neo__open_span *open = &recorder->open[recorder->depth - 1];
    open->name = name;
    open->number = number;
    open->kind = kind;
    open->begin_ns = neo_time_ns();
}
NEO_API neo_status neo__span_end(neo_ctx *ctx, neo_status status) {
    neo__recorder *recorder = ctx ? ctx->recorder : NULL;
    if (ctx && ctx->on->range) ctx->on->range(NULL);
    if (!recorder || recorder->depth == 0 || recorder->thread != neo__span_thread()) return status;
    if (--recorder->depth >= NEO__TRACE_DEPTH) {
        __atomic_fetch_add(&recorder->dropped, 1, __ATOMIC_RELAXED);
        return status;
    }
    const neo__open_span *open = &recorder->open[recorder->depth];
    NEO__ZERO(neo__span, span);
    span.name = open->name;
    span.begin_ns = open->begin_ns;
    span.end_ns = neo_time_ns();
    span.number = open->number;
    span.kind = (int16_t)open->kind;
    neo__trace_add(ctx, &span);
    return status;
}
NEO__HOT_END
NEO_API int neo__trace_group(neo_ctx *ctx, const char *ranks) {
    neo__recorder *recorder = __atomic_load_n(&ctx->recorder, __ATOMIC_ACQUIRE);
    if (!recorder) return 0;
    const int at = __atomic_fetch_add(&recorder->groups, 1, __ATOMIC_RELAXED);
    if (at >= NEO__TRACE_GROUPS) return NEO__TRACE_GROUPS - 1;
    snprintf(recorder->group_ranks[at], sizeof recorder->group_ranks[at], "%s",
             at == NEO__TRACE_GROUPS - 1 ? ".." : ranks);
    return at;
}
#endif
NEO__COLD_END
NEO__CALLS_END
#ifdef __cplusplus
}
#endif

NEO_EXACT_END
#endif /* NEO_IMPLEMENTATION */


/* ---------------------------------------------------------------------------
   MIT License, Copyright (c) 2026 the neo contributors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions: the above copyright notice and this
   permission notice shall be included in all copies or substantial portions of the Software. THE
   SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
   LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
   ------------------------------------------------------------------------ */
