/* neo_cuda.cuh: an NVIDIA GPU for neo. It makes a neo_device; objects of a context with that device
   live in the GPU's memory and compute there, by the same calls as on the CPU.

   WHAT IT DOES
     - every layer, loss, optimizer and embedding table of neo.h on a GPU, products of bf16 too
     - two classes of numbers. `exact` (neo_cuda_desc.exact): the CPU's bits, by own kernels in its
       order of sums. `deterministic` (without): large products are cuBLASLt's, attention of bf16 is
       on tensor cores, its tensors and those of norms may be bf16, sums over the batch, of rows
       with many records too, and of wide rows of logits are cut further; faster, within rounding of
       the CPU. A checkpoint holds the class, with a number that rises where its bits change
     - the same bits from run to run and, of the same leaves, on any number of ranks in both: no
       floating-point atomics, and algorithms that are chosen by nothing that ranks share
     - a training step as one launch, a CUDA graph, with batches of any sizes (neo_cuda_graph_begin)
     - in Nsight the calls as NVTX ranges, with the names of neo_trace (where CUDA brings nvtx3)

   WHAT IT DOES NOT DO
     - no managed memory: tensors are on the host or on the device, and neo_tensor.place says which
     - one device belongs to one thread at a time, as a context does

   QUICK START
     In one .cu file, compiled by nvcc of CUDA 12.4 or 13 (no MSVC), with -lcublasLt:
         #define NEO_CUDA_IMPLEMENTATION
         #include "neo_cuda.cuh"
     In C files, one of which has neo.h's implementation, and which need no CUDA header:
         #include "neo_cuda.cuh"
         neo_device *gpu;
         if (neo_cuda_device_create(NULL, &gpu) != NEO_OK) ... neo_last_error() says why
         neo_ctx_desc desc = {.device = gpu};
     A trainer in a .cu file defines NEO_IMPLEMENTATION instead, before the includes.
     examples/gpu.c is a program.

   WITHOUT A GPU
     tests/cuda/emulator/cuda_on_cpu.h stands in for CUDA: the same kernels on the CPU, slowly, with
     the same bits, for tests. A program is linked with the device made by a C++ compiler:
         g++ -O1 -std=c++17 -ffp-contract=off -DNEO_CUDA_ON_CPU -I. -Itests/cuda/emulator \
             -c -x c++ examples/neo_cuda.cu
         cc -O1 -I. -c examples/gpu.c examples/neo.c
         g++ -o gpu gpu.o neo.o neo_cuda.o -lm -pthread && ./gpu

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_cuda.cuh is the map)
     >>cuda-config >>cuda >>impl-cuda >>cuda-device >>cuda-memory >>cuda-elements >>cuda-graph
     >>cuda-activation >>cuda-tree >>cuda-exchange >>cuda-wire >>cuda-rows
     >>cuda-tile >>cuda-gemm >>cuda-blas >>cuda-columns >>cuda-norm >>cuda-embedding
     >>cuda-attention >>cuda-interact >>cuda-losses >>cuda-random >>cuda-convert >>cuda-blend
     >>cuda-optim >>cuda-bags >>cuda-ids >>cuda-create
*/
#ifndef NEO_CUDA_CUH
#define NEO_CUDA_CUH
#include "neo.h"

/* ---------------------------------------------------------------------------
   >>cuda-config

   Macros a user may define.

     NEO_CUDA_IMPLEMENTATION   in one .cu file: emits the function bodies of this header
     NEO_IMPLEMENTATION        the same, and those of neo.h
   ------------------------------------------------------------------------ */
#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>cuda
   ------------------------------------------------------------------------ */
typedef struct neo_cuda_desc {
    int ordinal; /* which GPU, as cudaSetDevice counts */
    int exact;   /* 1: the CPU's bits; 0: deterministic */
    int tf32;    /* 1: cuBLASLt rounds operands of f32 to TF32 (11 bits), which tensor cores
                    multiply several times as fast; not with exact */
} neo_cuda_desc;

/* neo_cuda_device_create: a GPU as a device for neo_ctx_desc.device; desc may be NULL (all zeros).
   It takes a stream, handles and a workspace (neo_cuda_workspace_bytes of device memory, which may
   grow in a first step); everything else is taken by the objects made on it.
   Errors   NEO_ERR_DEVICE: no driver, no such GPU, or this file was not compiled for it (the
            message says the flag). NEO_ERR_NUMERIC: it was compiled with flags that change
            arithmetic (--use_fast_math). NEO_ERR_ARG: tf32 and exact. NEO_ERR_MEMORY: of the
            device or the host.
   neo_cuda_device_destroy: NULL is allowed. The device stays until the last context that uses it
   is gone. */
NEO_API NEO__CHECK_UNUSED neo_status neo_cuda_device_create(const neo_cuda_desc *desc,
                                                            neo_device **device);
NEO_API void neo_cuda_device_destroy(neo_device *device);
NEO_API size_t neo_cuda_workspace_bytes(const neo_cuda_desc *desc);
/* neo_cuda_device_count: how many GPUs there are; 0 without a driver, too. neo_cuda_ordinal: which
   one a device is. */
NEO_API int neo_cuda_device_count(void);
NEO_API int neo_cuda_ordinal(const neo_device *device);

/* neo_cuda_get_stats: what a device has done since it was made. Threads: as the device. */
typedef struct neo_cuda_stats {
    uint64_t launches; /* of kernels and library calls, one by one: not in recorded steps */
    uint64_t waits;    /* of the host for the device, at the end of recorded steps too */
    /* Second choices, without `exact`: */
    uint64_t own_products;   /* for which cuBLASLt had no algorithm */
    uint64_t own_epilogues;  /* of its products: bias, activation or rounding by another kernel */
    uint64_t wide_attention; /* calls with products of bf16 that were of f32: see
                                neo_attention_desc.dtype */
    uint64_t sent, fetched; /* bytes of calls from host memory to the device's, and back, but what
                               ranks exchange, and answers of recorded steps that can wait */
} neo_cuda_stats;
NEO_API neo_cuda_stats neo_cuda_get_stats(const neo_device *device);

/* ---- a training step as one launch ----

       neo_cuda_graph_create(gpu, NULL, &graph);
       for each batch {
           neo_cuda_graph_begin(graph);     calls on the device are recorded from here on;
           ... forward, backward, step      they may differ from step to step in anything
           neo_cuda_graph_end(graph);       runs them as one CUDA graph, and goes on
           ... read the next batch          the GPU computes meanwhile
           neo_cuda_graph_wait(graph);      the step is over: its losses are there, or its error
       }

   Results, bits and messages are those of the same calls without a graph. A graph is made when a
   sequence of launches comes for the first time (the last, shorter batch of an epoch has one of its
   own where its kernels differ), and kept while there is room. Without neo_cuda_graph_wait a step's
   outcome comes with the next neo_cuda_graph_end: the host prepares a step while the GPU computes
   the one before. */
typedef struct neo_cuda_graph neo_cuda_graph;
typedef struct neo_cuda_graph_desc {
    size_t copy_bytes;  /* host memory that a step copies to the device (its batch), to begin with;
                           0: 4 MiB */
    size_t graph_bytes; /* host memory for what the kept graphs were made of: a launch takes 128
                           bytes and its arguments, which are some 100 to 4,000; 0: 16 MiB */
    int lanes; /* of neo_cuda_graph_lane, up to NEO_CUDA_LANES; 0: 1. Each beyond the first takes
                  neo_cuda_workspace_bytes of device memory more */
} neo_cuda_graph_desc;
enum { NEO_CUDA_LANES = 3 };
typedef struct neo_cuda_graph_stats {
    uint64_t steps, launches; /* launches of graphs: one a step, one more for each wait inside it */
    uint64_t passed;          /* and one at an exchange of ranks, for which no host waits */
    uint64_t split;           /* steps in which the host waits: of more launches than those */
    uint64_t nodes;           /* of all launches: kernels, and calls of libraries */
    uint64_t plain;           /* launches without room for a graph: kernel by kernel */
    uint64_t graphs;          /* graphs made */
    uint64_t updates;         /* launches of kernels in graphs that got other arguments */
    uint64_t copy_bytes;      /* as they are now */
} neo_cuda_graph_stats;

/* neo_cuda_graph_create: takes neo_cuda_graph_bytes of device memory and neo_cuda_graph_host_bytes
   of host memory, of which twice copy_bytes and 128 KiB are pinned. desc may be NULL. CUDA itself
   takes more of both, without saying how much, when a graph is made: in a first step, and in one
   with another sequence of launches. graph_bytes limits the graphs that are kept, and so that
   memory. A sequence for which there is no room, and no graph unused for 1,024 launches that can
   go, runs kernel by kernel with the same results.
   neo_cuda_graph_destroy: before the device. Launched work ends first; a step that is being
   recorded is dropped without effect. Then, and outside begin and end, the device works as without
   a graph.
   neo_cuda_graph_begin, neo_cuda_graph_end: one step. Memory that a call reads may be used again
   when the call returns. Results in host memory (a loss, neo_loss_desc.sum, the count of
   out-of-range ids, the norm of an optimizer that clips) are written when the step is over: keep
   that memory and the objects until then. A call that needs a number of the device at once waits,
   and its step is several graphs: a norm with squares that the host gives (neo_optim_add_squares),
   or over ranks of MPI, LAMB's too, or the largest gradient of ranks; a scale of losses; a copy to
   the host; rows given to keys, or taken, by the caller. Memory of the device that is freed
   meanwhile, which neo_ctx_memory no longer counts, goes when the step is over, or where an
   allocation lacks it. How many rows neo_bags_accumulate keeps stays on the device, until the host
   asks: where they are too many, that is an error of data. What is kept stays behind an error,
   until a neo_bags_step that is left out drops it. At an exchange of ranks that are threads or over
   NCCL its calls so far are launched, and at the wait for it those in between: the devices wait for
   each other, no host does. Where a rank finds an error, those that it exchanges rows or sums with
   from there on leave out what is behind that exchange, too: NEO_ERR_PEER. So an error behind a
   step's last one reaches them in the next step; neo's losses, lookups and norms find theirs
   before. Over MPI an exchange is a wait.
   A batch that does not fit into copy_bytes is right, but not overlapped; the next begin makes room
   for as much (neo_cuda_graph_stats.copy_bytes: give it, and no step is split or waits for that),
   and every context of the device warns of it once, by its logger.
   neo_cuda_graph_lane: calls from here on go into lane 0 (where begin begins) to lanes - 1; a graph
   of fewer takes lane 0. Calls of a lane run in their order, beside those of the other lanes: so
   what they write must be written or read in no other, down to the last join.
   neo_cuda_graph_join: calls from here on come after all calls before, and go into lane 0. So do
   the steps' ends.
   Bits and errors are those of one lane. Outside begin and end the two do nothing.
   neo_cuda_graph_wait: until the step that was last ended is over. Wait before a state is saved or
   its digest taken, and before neo_cuda_graph_destroy, which tells no error: until then counts of
   steps on the host are those of a step without one.
   Errors   a step's error comes where it is waited for: in wait, in the next end, or in a call that
            waits. Bad data are found on the device: weights, optimizer states and counts of steps
            are then as before the call that the message names; activations and gradients hold
            anything. Nothing is being recorded after such an error, and training may go on. A
            wrong argument is found by the call itself, which is then left out.
            NEO_ERR_STATE: begin in begin, or while a step of another graph of the device is not
            waited for; end without begin; wait before end.
   Threads  as the device. */
NEO_API NEO__CHECK_UNUSED neo_status neo_cuda_graph_create(
    neo_device *device, const neo_cuda_graph_desc *desc, neo_cuda_graph **graph);
NEO_API void neo_cuda_graph_destroy(neo_cuda_graph *graph);
NEO_API size_t neo_cuda_graph_bytes(const neo_cuda_graph_desc *desc);
NEO_API size_t neo_cuda_graph_host_bytes(const neo_cuda_graph_desc *desc);
NEO_API NEO__CHECK_UNUSED neo_status neo_cuda_graph_begin(neo_cuda_graph *graph);
NEO_API NEO__CHECK_UNUSED neo_status neo_cuda_graph_end(neo_cuda_graph *graph);
NEO_API NEO__CHECK_UNUSED neo_status neo_cuda_graph_wait(neo_cuda_graph *graph);
NEO_API void neo_cuda_graph_lane(neo_cuda_graph *graph, int lane);
NEO_API void neo_cuda_graph_join(neo_cuda_graph *graph);
NEO_API neo_cuda_graph_stats neo_cuda_graph_get_stats(const neo_cuda_graph *graph);

#ifdef __cplusplus
}
#endif
#endif /* NEO_CUDA_CUH */

/* Stop here if you only want the API. */

/* =============================================================================
   >>impl-cuda

   A neo_device (>>device of neo.h) is a table of functions, filled in by neo__cuda_table at
   >>cuda-create. What they are handed, the neo__x_call structs, is at >>kernel-types of
   neo_kernels.h. Many kernels here are calls of functions of that file that end in _warp: the text
   of the CPU's kernels, read once more for 16 lanes of a warp (see >>kernels there).
   ========================================================================== */
#if defined(NEO_CUDA_IMPLEMENTATION) && !defined(__CUDACC__) && !defined(NEO_CUDA_ON_CPU)
#error "neo_cuda.cuh: NEO_CUDA_IMPLEMENTATION is for a .cu file, which nvcc compiles"
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#error "neo_cuda.cuh: nvcc's host compiler must be gcc or clang, not MSVC (on Windows: WSL)"
#endif
#if (defined(NEO_CUDA_IMPLEMENTATION) || defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) &&    \
    !defined(NEO__CUDA_IMPLEMENTED) && (defined(__CUDACC__) || defined(NEO_CUDA_ON_CPU))
#define NEO__CUDA_IMPLEMENTED

#if defined(NEO_CUDA_ON_CPU)
#include "cuda_on_cpu.h" /* tests: the same kernels on the CPU */
#else
#include <stdio.h>
#include <stdlib.h>

#include <cublasLt.h>
#include <cub/cub.cuh>
#include <cuda_runtime.h>
#if CUDART_VERSION < 12000
#error "neo_cuda.cuh: it needs CUDA 12.0 or newer"
#endif
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif
#define NEO__LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
#define NEO__DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(16) unsigned char neo__dynamic[];                                  \
    type *name = reinterpret_cast<type *>(neo__dynamic)
#define NEO__LAUNCH_AS(name, kernel, grid, block, shared, stream, ...)                             \
    NEO__LAUNCH(kernel, grid, block, shared, stream, __VA_ARGS__)
#define NEO__KNOW_KERNEL_AS(name, kernel) ((void)0)
#endif
#if defined(__CUDACC__)
#define NEO__UNROLL _Pragma("unroll")
#define NEO__NO_UNROLL _Pragma("unroll 1")
#define NEO__NO_INLINE __noinline__
#else
#define NEO__UNROLL
#define NEO__NO_UNROLL
#define NEO__NO_INLINE
#endif

/* A function of the device, compiled into its caller; a kernel for blocks of NEO__CUDA_THREADS. */
#define NEO__GPU static __device__ __forceinline__
#define NEO__CUDA_KERNEL static __global__ void __launch_bounds__(NEO__CUDA_THREADS)
/* Blocks of a processor that a kernel's registers leave room for, where two would spill a few words
   before sm_80. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define NEO__CUDA_TWO 1
#else
#define NEO__CUDA_TWO 2
#endif
/* The kernels, for 16 lanes of a warp. */
#define NEO__PASS NEO__PASS_WARP
#include "neo_kernels.h"
#undef NEO__PASS

/* ---- >>cuda-device ----
   All work of a device goes into one stream, so operations run in the order of the calls and the
   caller goes on. Only a call that returns something in host memory waits for it, and one that
   reads more of it than the ring of pinned memory takes (see neo__cuda_send). A fault of a kernel
   shows at a later call; CUDA does nothing more for this process then, so the device keeps the
   text, and every call from there on returns it. */
#ifndef NEO__CUDA_WORK_BYTES
#define NEO__CUDA_WORK_BYTES ((size_t)64 << 20) /* partial sums of products; grows where it must */
#endif
#ifndef NEO__CUDA_BLAS_BYTES
#define NEO__CUDA_BLAS_BYTES ((size_t)32 << 20) /* what NVIDIA advises for cuBLASLt */
#endif
#define NEO__CUDA_LEAF_BYTES (4 * NEO__CUDA_WORK_BYTES) /* of leaves' sums, to which that grows */
enum {
    NEO__CUDA_RESULT_BYTES = 8192, /* counters and sums of one call, in device memory; and from */
    NEO__CUDA_ZEROS_AT = 2048,     /* here on zeros between calls: those of recorded ones, see */
    NEO__CUDA_ARRIVED_AT = 4096,   /* neo__graph_finish, and here of columns, >>cuda-columns */
    NEO__CUDA_HEARD_AT = 7936,     /* here what other ranks say, see neo__heard_stop */
    NEO__CUDA_ANSWER_BYTES = 65536,
    NEO__CUDA_THREADS = 256, /* of a block, where nothing asks for another number */
    NEO__CUDA_PRODUCTS = 512, /* shapes of products whose algorithm is remembered */
    NEO__CUDA_PIECES = 4096,  /* leaves and pieces of leaves, at most: what V may be */
    NEO__CUDA_LEAVES = 16,    /* that one call of cuBLASLt multiplies */
    NEO__CUDA_ROWS = 4096,    /* for which the algorithm of a product of any rows is chosen */
    NEO__CUDA_SENDS = 4,      /* parts of the ring of pinned memory, */
    NEO__CUDA_SEND_BYTES = 262144, /* and of each part */
    NEO__CUDA_LARGE = 8,      /* places to which larger copies went last */
    NEO__CUDA_HEARD = 232     /* ranks, each of whose words has a byte */
};
struct neo__cuda_product; /* see >>cuda-blas */
typedef struct neo__cuda {
    neo_device device; /* first: a neo_device is one */
    int ordinal, exact, tf32;
    int processors; /* streaming multiprocessors */
    int tensor_cores; /* that the code may use: it was compiled for sm_80 or later */
    int others; /* there are more GPUs */
    unsigned long long reached; /* atomic; a bit of each that was asked for: see neo__cuda_reach */
    cudaStream_t stream;
    cudaStream_t exchange; /* of what ranks exchange: see neo__cuda_move */
    struct {               /* an exchange that passed does not come, see neo__heard_stop: */
        int *word;         /* pinned */
        neo_status status;
        char why[400];
    } over;
    struct {               /* of calls beside the others, see neo__cuda_aside: then the others' */
        cudaStream_t stream;
        char *work;
        size_t work_bytes;
        neo_cuda_graph *recording;
        int on;
    } aside;
    cublasLtHandle_t blas;
    /* These four are the current lane's, see neo__graph_use_lane. */
    char *work;        /* device memory for a call, work_bytes of it: see neo__cuda_reserve */
    size_t work_bytes;
    char *blas_work;   /* cuBLASLt's */
    char *result;      /* device memory for what a call returns, NEO__CUDA_RESULT_BYTES */
    char *answer;      /* pinned host memory for the same, NEO__CUDA_ANSWER_BYTES */
    char *send;        /* pinned: what copies to the device leave behind, NEO__CUDA_SENDS parts */
    cudaEvent_t sent[NEO__CUDA_SENDS]; /* all copies of a part are done */
    cudaEvent_t told;                  /* the answer is there: see neo__cuda_bags_told */
    const void *large[NEO__CUDA_LARGE];
    unsigned large_next;
    char advice[256]; /* of the device */
    int send_part;
    size_t send_used;
    neo_cuda_graph *recording; /* see >>cuda-graph; NULL: calls run */
    neo_cuda_graph *launched;  /* the last that was; NULL: none that lives */
    struct neo__cuda_product *product; /* [NEO__CUDA_PRODUCTS] */
    neo_cuda_stats stats;
    int failed; /* 2: CUDA gives only errors from here on, see failure; 1: that is being written */
    char failure[320];
} neo__cuda;

/* Round bytes up to a multiple of `unit`. */
static constexpr size_t neo__cuda_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}
/* Turn the error of a CUDA call, named `what`, into a status. An error that persists ends the
   device; any other ends only the call. */
static neo_status neo__cuda_fail(neo__cuda *d, cudaError_t error, const char *what) {
    (void)cudaGetLastError(); /* it is reported here, not by the next call */
    if (error == cudaErrorMemoryAllocation)
        return neo_fail(NEO_ERR_MEMORY, "%s: %s: out of device memory", d->device.name, what);
    const cudaError_t now = d->stream ? cudaStreamQuery(d->stream) : cudaSuccess;
    (void)cudaGetLastError();
    /* A stream that is being captured may not be asked; that capture fails, no more. */
    const int lasts = now != cudaSuccess && now != cudaErrorNotReady &&
                      now != cudaErrorStreamCaptureUnsupported &&
                      now != cudaErrorStreamCaptureInvalidated;
    char why[sizeof d->failure];
    int sound = 0;
    snprintf(why, sizeof why, "%s: %s: %s (%s)", d->device.name, what, cudaGetErrorString(error),
             cudaGetErrorName(error));
    if (lasts &&
        __atomic_compare_exchange_n(&d->failed, &sound, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        memcpy(d->failure, why, sizeof why); /* of several threads the first */
        __atomic_store_n(&d->failed, 2, __ATOMIC_RELEASE);
    }
    return neo_fail(NEO_ERR_DEVICE, "%s", why);
}
static neo_status neo__cuda_result(neo__cuda *d, cudaError_t error, const char *what) {
    return error == cudaSuccess ? NEO_OK : neo__cuda_fail(d, error, what);
}
#define NEO__CUDA_DO(d, call) neo__cuda_result(d, (call), #call)
#define NEO__CUDA_TRY(d, call) NEO__TRY(NEO__CUDA_DO(d, call))
static int neo__cuda_failed(const neo__cuda *d) {
    return __atomic_load_n(&d->failed, __ATOMIC_ACQUIRE) == 2;
}
/* Every operation begins with this: the device is sound, and the thread's current one. */
static neo_status neo__cuda_enter(neo__cuda *d) {
    if (neo__cuda_failed(d)) return neo_fail(NEO_ERR_DEVICE, "%s", d->failure);
    return NEO__CUDA_DO(d, cudaSetDevice(d->ordinal));
}
/* A function of the device's table: `operation`, after the device is entered. */
template <auto operation, class... A> static neo_status neo__cuda_call(neo_device *device, A... a) {
    neo__cuda *d = (neo__cuda *)device;
    NEO__TRY(neo__cuda_enter(d));
    return operation(d, a...);
}
static neo_status neo__graph_status(neo__cuda *d);
/* ---- parts of a recorded step: see >>cuda-graph ---- */
enum { NEO__GRAPH_ARGUMENTS = 8 }; /* of a kernel, at most */
typedef struct neo__cuda_where {
    dim3 grid, block = NEO__CUDA_THREADS;
    size_t shared = 0; /* bytes for NEO__DYNAMIC_SHARED */
} neo__cuda_where;
typedef neo_status (*neo__cuda_issue)(neo__cuda *d, const void *call);
typedef struct neo__cuda_op {
    const void *kernel;
    neo__cuda_issue issue; /* of a library's call, which is captured; its arguments never change */
    neo__cuda_where where;
    size_t at, bytes; /* of its arguments, among those of the step */
    uint32_t argument[NEO__GRAPH_ARGUMENTS], argument_count; /* where each is, from `at` on */
    int32_t lane, after[NEO_CUDA_LANES]; /* runs after so many first operations, of a lane each */
} neo__cuda_op;

/* Room for an operation and so many bytes of arguments; NULL: a failure, see neo__graph_status. */
static neo__cuda_op *neo__graph_op(neo__cuda *d, size_t bytes);
static void neo__graph_put(neo__cuda *d, neo__cuda_op *op, const void *value, size_t bytes);
/* Run all that was recorded, and wait for it. neo__graph_run keeps a failure for the next call. */
static neo_status neo__graph_flush(neo__cuda *d);
static void neo__graph_run(neo__cuda *d);
/* Launch what was recorded so far, as a part of the step for which nobody waits. */
static neo_status neo__graph_pass(neo__cuda *d);
static void neo__graph_let_pass(neo__cuda *d);
/* Memory as the calls before have left it, while recording; to, from: on the device; from NULL: it
   is filled with the byte. */
static neo_status neo__graph_copy(neo__cuda *d, void *to, const void *from, int byte,
                                  size_t bytes);
static neo_status neo__graph_send(neo__cuda *d, void *to, const void *from, size_t bytes,
                                  int *sent);
static int neo__graph_holds(neo__cuda *d, void *p);
static int neo__graph_make_room(neo__cuda *d);

template <class P> struct neo__cuda_as { typedef P type; };
/* Launch a kernel, now or as a part of the step that is being recorded: then the arguments are kept
   as the kernel takes them, at an address that launches read. What changes from step to step is
   written there anew in every step, and so no launch keeps what a former step had. */
template <class... P>
static neo_status neo__cuda_launch(neo__cuda *gpu, const char *what, void (*kernel)(P...),
                                   neo__cuda_where where,
                                   const typename neo__cuda_as<P>::type &...value) {
    static_assert(sizeof...(P) <= NEO__GRAPH_ARGUMENTS, "see NEO__GRAPH_ARGUMENTS");
    if (!gpu->recording) {
        gpu->stats.launches++;
        NEO__LAUNCH_AS(what, kernel, where.grid, where.block, where.shared, gpu->stream, value...);
        return neo__cuda_result(gpu, cudaGetLastError(), what);
    }
    NEO__KNOW_KERNEL_AS(what, kernel);
    neo__cuda_op *op = neo__graph_op(gpu, (size_t(0) + ... + neo__cuda_up(sizeof(P), 16)));
    if (!op) return neo__graph_status(gpu);
    op->kernel = (const void *)kernel, op->where = where;
    (neo__graph_put(gpu, op, &value, sizeof value), ...);
    return NEO_OK;
}
/* A library's call: now, or as a part of the step. Its bytes are all that it depends on. */
static neo_status neo__cuda_do(neo__cuda *d, neo__cuda_issue issue, const void *call,
                               size_t bytes) {
    if (!d->recording) return d->stats.launches++, issue(d, call);
    neo__cuda_op *op = neo__graph_op(d, neo__cuda_up(bytes, 16));
    if (!op) return neo__graph_status(d);
    op->issue = issue;
    neo__graph_put(d, op, call, bytes);
    return NEO_OK;
}
/* The host waits for an event, or where that is NULL for a stream; see neo__device_watch. */
static cudaError_t neo__cuda_until(neo__cuda *d, cudaStream_t stream, cudaEvent_t event) {
    int gone = 0;
    for (int turn = 0; __atomic_load_n(&d->device.watch, __ATOMIC_ACQUIRE); turn++) {
        const cudaError_t error = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (error != cudaErrorNotReady || gone) return error;
        (void)cudaGetLastError(); /* older versions keep there that it is not ready */
        gone |= neo__device_look(&d->device, turn);
    }
    return event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream);
}
static neo_status neo__cuda_synchronize(neo__cuda *d) {
    if (d->recording) NEO__TRY(neo__graph_flush(d));
    d->stats.waits++;
    return neo__cuda_result(d, neo__cuda_until(d, d->stream, NULL), "work on the device");
}
/* Blocks for `work` units when a block takes `each`; kernels loop over what is beyond. */
static unsigned neo__cuda_blocks(const neo__cuda *d, int64_t work, int64_t each) {
    const int64_t wanted = (work + each - 1) / each, most = (int64_t)d->processors * 32;
    return (unsigned)NEO__MAX(NEO__MIN(wanted, most), (int64_t)1);
}
/* Launch a kernel for `count` units, `lanes` threads for each: see NEO__CUDA_EACH. Without units
   there is no launch. */
template <class... P>
static neo_status neo__cuda_run(neo__cuda *d, const char *what, void (*kernel)(P...), int64_t count,
                                int lanes, const typename neo__cuda_as<P>::type &...value) {
    if (count <= 0) return NEO_OK;
    const unsigned blocks = neo__cuda_blocks(d, count, NEO__CUDA_THREADS / lanes);
    return neo__cuda_launch(d, what, kernel, {blocks}, value...);
}
/* Device memory; what waits for a recorded step to be over makes room where it must. */
static cudaError_t neo__cuda_malloc(neo__cuda *d, void **p, size_t bytes) {
    const cudaError_t error = cudaMalloc(p, bytes);
    if (error != cudaErrorMemoryAllocation) return error;
    (void)cudaGetLastError();
    return neo__graph_make_room(d) ? cudaMalloc(p, bytes) : error;
}
/* At least `bytes` of work memory. It grows to what the largest call needs, and a training step's
   largest call comes in the first step. */
static neo_status neo__cuda_reserve(neo__cuda *d, size_t bytes) {
    if (bytes <= d->work_bytes) return NEO_OK;
    if (!d->recording) NEO__TRY(neo__cuda_synchronize(d));
    void *larger = NULL;
    NEO__CUDA_TRY(d, neo__cuda_malloc(d, &larger, bytes));
    const cudaError_t error = neo__graph_holds(d, d->work) ? cudaSuccess : cudaFree(d->work);
    d->work = (char *)larger, d->work_bytes = bytes;
    return neo__cuda_result(d, error, "cudaFree");
}
/* The first `bytes` of the call's result, in d->answer on return. */
static neo_status neo__cuda_answer(neo__cuda *d, const void *from, size_t bytes) {
    if (d->recording) NEO__TRY(neo__graph_flush(d));
    d->stats.fetched += bytes;
    NEO__CUDA_TRY(d, cudaMemcpyAsync(d->answer, from, bytes, cudaMemcpyDeviceToHost, d->stream));
    return neo__cuda_synchronize(d);
}
static neo_status neo__cuda_fill_now(neo__cuda *d, void *to, int byte, size_t bytes) {
    return NEO__CUDA_DO(d, cudaMemsetAsync(to, byte, bytes, d->stream));
}
static neo_status neo__cuda_fill(neo__cuda *d, void *to, int byte, size_t bytes) {
    if (bytes == 0) return NEO_OK;
    if (d->recording) return neo__graph_copy(d, to, NULL, byte, bytes);
    return neo__cuda_fill_now(d, to, byte, bytes);
}
/* A copy that is too large for the ring. One that comes to the same place for the third time is no
   weights, which may be loaded, but a batch: its contexts warn of it. */
static void neo__cuda_large(neo__cuda *gpu, const void *to, size_t bytes) {
    int again = 0;
    for (int i = 0; i < NEO__CUDA_LARGE; i++) again += gpu->large[i] == to;
    gpu->large[gpu->large_next++ % NEO__CUDA_LARGE] = to;
    if (again < 2 || gpu->device.advice) return;
    snprintf(gpu->advice, sizeof gpu->advice,
             "copies of %zu bytes to the device wait, as its pinned memory has %zu: a recorded "
             "step (neo_cuda_graph_begin) has as much as neo_cuda_graph_desc.copy_bytes says",
             bytes, (size_t)NEO__CUDA_SENDS * NEO__CUDA_SEND_BYTES);
    gpu->device.advice = gpu->advice;
}
/* Host memory to the device by way of the ring, so that the caller need not wait until it is there;
   *sent is 0 if it does not fit. A part of the ring is used again when all of it has arrived. */
static neo_status neo__cuda_send(neo__cuda *gpu, void *to, const void *from, size_t bytes,
                                 int *sent) {
    *sent = 0;
    if (gpu->aside.on) return NEO_OK; /* the ring's events are of the other stream */
    if (gpu->recording) return neo__graph_send(gpu, to, from, bytes, sent);
    if (bytes > (size_t)NEO__CUDA_SENDS * NEO__CUDA_SEND_BYTES)
        return neo__cuda_large(gpu, to, bytes), NEO_OK;
    for (size_t at = 0, size; at < bytes; at += size) {
        size = NEO__MIN(bytes - at, (size_t)NEO__CUDA_SEND_BYTES);
        const size_t room = neo__cuda_up(size, 256);
        if (room > NEO__CUDA_SEND_BYTES - gpu->send_used) {
            NEO__CUDA_TRY(gpu, cudaEventRecord(gpu->sent[gpu->send_part], gpu->stream));
            gpu->send_part = (gpu->send_part + 1) % NEO__CUDA_SENDS;
            NEO__CUDA_TRY(gpu, neo__cuda_until(gpu, NULL, gpu->sent[gpu->send_part]));
            gpu->send_used = 0;
        }
        char *pinned =
            gpu->send + (size_t)gpu->send_part * NEO__CUDA_SEND_BYTES + gpu->send_used;
        memcpy(pinned, (const char *)from + at, size);
        NEO__CUDA_TRY(gpu, cudaMemcpyAsync((char *)to + at, pinned, size, cudaMemcpyHostToDevice,
                                           gpu->stream));
        gpu->send_used += room;
    }
    *sent = 1;
    return NEO_OK;
}

/* ---- >>cuda-memory ---- */
/* Memory of the device, or pinned memory of the host. */
template <neo_place place> static void *neo__cuda_alloc(neo_device *device, size_t bytes) {
    const bool host = place == NEO_HOST;
    neo__cuda *d = (neo__cuda *)device;
    void *p = NULL;
    if (neo__cuda_enter(d) != NEO_OK) return NULL;
    const size_t some = bytes ? bytes : 1;
    const cudaError_t error = host ? cudaMallocHost(&p, some) : neo__cuda_malloc(d, &p, some);
    if (error == cudaSuccess) return p;
    (void)neo__cuda_fail(d, error, host ? "cudaMallocHost" : "cudaMalloc");
    if (error == cudaErrorMemoryAllocation)
        (void)neo_fail(NEO_ERR_MEMORY, "%s: out of %s memory for %zu bytes", d->device.name,
                       host ? "pinned host" : "device", bytes);
    return NULL;
}
template <neo_place place> static void neo__cuda_free(neo_device *device, void *p, size_t bytes) {
    const bool host = place == NEO_HOST;
    neo__cuda *d = (neo__cuda *)device;
    if (!p) return;
    (void)cudaSetDevice(d->ordinal);
    for (const void *&to : d->large) /* another tensor may have this place */
        if ((uintptr_t)to - (uintptr_t)p < bytes) to = NULL;
    if (!host && neo__graph_holds(d, p)) return;
    if (d->device.watch) (void)neo__cuda_until(d, d->stream, NULL); /* cudaFree waits blindly */
    const cudaError_t error = host ? cudaFreeHost(p) : cudaFree(p); /* after work that uses it */
    if (error != cudaSuccess && !neo__cuda_failed(d))
        (void)neo__cuda_fail(d, error, host ? "cudaFreeHost" : "cudaFree");
}
static neo_status neo__cuda_copy(neo__cuda *gpu, void *to, neo_place to_place, const void *from,
                                 neo_place from_place, size_t bytes) {
    if (bytes == 0) return NEO_OK;
    const int to_host = to_place == NEO_HOST, from_host = from_place == NEO_HOST;
    if (to_host != from_host) *(to_host ? &gpu->stats.fetched : &gpu->stats.sent) += bytes;
    if (from_host && !to_host) {
        int sent = 0;
        NEO__TRY(neo__cuda_send(gpu, to, from, bytes, &sent));
        if (sent) return NEO_OK;
    }
    if (gpu->recording && !to_host && !from_host) return neo__graph_copy(gpu, to, from, 0, bytes);
    if (gpu->recording) NEO__TRY(neo__graph_flush(gpu));
    NEO__CUDA_TRY(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, gpu->stream));
    return to_host || from_host ? neo__cuda_synchronize(gpu) : NEO_OK;
}

/* ---- >>cuda-elements ----
   Elementwise work is a struct F whose at<W>(i) computes elements [i, i + W): W is 4, in loads of
   16 bytes, where all arrays allow it, else 1. */
template <int W> struct __align__(4 * W) neo__floats { float v[W]; };
template <int W> NEO__GPU neo__floats<W> neo__cuda_load(const float *p) {
    return *(const neo__floats<W> *)(const void *)p;
}
/* The same of what the kernel does not write. */
template <int W> NEO__GPU neo__floats<W> neo__cuda_read(const float *p) {
    if constexpr (W == 4) {
        const float4 x = __ldg((const float4 *)(const void *)p);
        return {{x.x, x.y, x.z, x.w}};
    } else return {{__ldg(p)}};
}
/* x, of which nothing is computed before: in front of a loop it would take registers. */
NEO__GPU uint32_t neo__cuda_now(uint32_t x) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(x));
#endif
    return x;
}
/* (A struct of four would be stored as four words where they come one by one.) */
template <int W> NEO__GPU void neo__cuda_store(float *p, const neo__floats<W> &x) {
    if constexpr (W == 4) *(float4 *)(void *)p = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
    else *(neo__floats<W> *)(void *)p = x;
}

/* s += x, and s += w x by fused multiply-adds. */
template <int W> NEO__GPU void neo__cuda_plus(neo__floats<W> &s, const neo__floats<W> &x) {
    NEO__UNROLL for (int c = 0; c < W; c++) s.v[c] = __fadd_rn(s.v[c], x.v[c]);
}
template <int W> NEO__GPU void neo__cuda_plus(neo__floats<W> &s, float w, const neo__floats<W> &x) {
    NEO__UNROLL for (int c = 0; c < W; c++) s.v[c] = __fmaf_rn(w, x.v[c], s.v[c]);
}

/* Each i in [0, count), by all threads of a launch together, `lanes` of them for one i. */
#define NEO__CUDA_EACH(i, count, lanes)                                                            \
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / (lanes); i < (count);      \
         i += (int64_t)gridDim.x * blockDim.x / (lanes))

template <class F, int W> static __global__ void neo__cuda_each_kernel(const F f, int64_t n) {
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * W;
    for (int64_t i = thread * W; i + W <= n; i += step) f.template at<W>(i);
    if (W > 1 && thread < n % W) f.template at<1>(n - n % W + thread); /* the rest */
}
/* Compute n elements by f, W at a time; or by fours if `wide`. */
template <int W, class F>
static neo_status neo__cuda_each(neo__cuda *d, const F &f, int64_t n, const char *what) {
    return neo__cuda_run(d, what, neo__cuda_each_kernel<F, W>, (n + W - 1) / W, 1, f, n);
}
template <class F>
static neo_status neo__cuda_each(neo__cuda *d, const F &f, int64_t n, const char *what, bool wide) {
    return wide ? neo__cuda_each<4>(d, f, n, what) : neo__cuda_each<1>(d, f, n, what);
}
/* All addresses are multiples of 16; NULL is. */
template <class... P> static __host__ __device__ bool neo__cuda_aligned(P... p) {
    return (((uintptr_t)p | ...) & 15u) == 0;
}
template <int W> NEO__GPU neo__floats<W> neo__cuda_wide_load(const float *p, int64_t i, int narrow);
template <int W>
NEO__GPU void neo__cuda_wide_store(float *p, int64_t i, int narrow, const neo__floats<W> &x);
struct neo__cuda_add_job {
    float *x;
    const float *y;
    int narrow; /* both are addresses of bf16 */
    template <int W> __device__ void at(int64_t i) const {
        neo__floats<W> sum = neo__cuda_wide_load<W>(x, i, narrow);
        neo__cuda_plus<W>(sum, neo__cuda_wide_load<W>(y, i, narrow));
        neo__cuda_wide_store<W>(x, i, narrow, sum);
    }
};
static neo_status neo__cuda_add(neo__cuda *d, float *x, const float *y, int64_t count,
                                int narrow = 0) {
    const neo__cuda_add_job job = {x, y, narrow};
    return neo__cuda_each(d, job, count, "add", neo__cuda_aligned(x, y));
}

/* ---- >>cuda-graph ----
   A recorded step. Between neo_cuda_graph_begin and neo_cuda_graph_end operations do on the host
   what they always do, but a launch is only noted: its kernel, grid, block and a copy of its
   arguments. The end makes one CUDA graph of the notes: a chain of kernel nodes, and of child
   graphs captured from libraries. A graph is kept with its notes as a `tape`; a later step with the
   same kernels in the same order launches it again. Arguments of kernels that differ (sizes, the
   number of the step, a learning rate) are set in its nodes first. Those of libraries cannot be
   set: another shape of a product is another tape. Tapes lie in a pool. Where it has no room the
   notes are launched one by one (neo__graph_play): a cycle of too many graphs would make each of
   them anew every time.

   Lanes. A note has the last operation of each lane that it comes after: the one before it in its
   lane, and behind a join those that were the last then. Kernels that read the word that says stop
   (below) come after those that set it before them in the notes, and the other way round, so that
   what an error leaves out does not depend on lanes: every kernel that has the word's address among
   its arguments is taken for one. A lane has the scratch memory of a device for itself.

   To the device. Bytes that a step copies there are gathered in pinned memory when the call is
   made, travel in one copy on a stream of their own while the step before computes, and then lie at
   an address that no step changes (`block`), from which kernels bring them to their places. The
   pinned memory and the room that it is copied to are double.

   To the host. Answers that can wait (neo__later) are copied to `answers` by the kernels that look
   whether they are errors, come back in one copy behind the graph, and go to the calls' functions
   when the host waits: in the next neo_cuda_graph_end or in neo_cuda_graph_wait. An answer that is
   an error sets the first word of `answers`, and kernels that write weights or states do nothing
   from there on. So does a norm that clips and is not finite; the optimizer's kernels find its
   factor on the device. An answer that is needed at once ends the graph there: the notes are
   launched and waited for, and the rest of the step is one more graph. After an error counters on
   the host (steps of an optimizer) go back to their values before the calls that had no effect.

   Memory of the device that is freed meanwhile, as where a buffer grows, stays until the step is
   over, for notes may use it.

   Ranks. A step that exchanges something is launched in parts (neo__graph_pass), whose answers
   come back behind the last one, and whose copies lie one behind the other. After each exchange a
   kernel looks at the words of the other ranks, as they were when their data came, and stops this
   rank's step where one of them says so: as an answer of its own that is an error.

   A graph is launched behind the last one, and then the host waits for that last one's answers: the
   GPU has no pause between them. The word that says stop is cleared by the host alone, when it has
   read an error, so that a graph behind one with an error writes no weights either; it is left out
   as if it had not been launched. */
#ifndef NEO__GRAPH_OPS
#define NEO__GRAPH_OPS 4096 /* operations of a graph at most; a step of more is several */
#endif
#ifndef NEO__GRAPH_AGE
#define NEO__GRAPH_AGE 1024 /* launches, after which a graph goes if another needs the room */
#endif
enum {
    NEO__GRAPH_TAPES = 256,
    NEO__GRAPH_DUES = 256,          /* answers of a graph */
    NEO__GRAPH_COUNTS = 1024,       /* counters that it advances */
    NEO__GRAPH_FREED = 32,          /* pieces of memory that go when it is over */
    NEO__GRAPH_FIRST_ANSWER = 256,  /* bytes; before it: the word that says stop, one for what is
                                       passed on, and what was heard, see neo__heard_stop */
    NEO__GRAPH_COPY_ARGUMENTS = 512, /* bytes, at least what neo__graph_copy notes */
    NEO__GRAPH_STOP_ARGUMENTS = 4096, /* and a launch that says stop: as many as a kernel has */
    NEO__GRAPH_ANSWER_BYTES = NEO__CUDA_ANSWER_BYTES
};
#define NEO__GRAPH_ARGUMENT_BYTES ((size_t)2 << 20)
#define NEO__GRAPH_JOB_BYTES ((size_t)1 << 18)
#define NEO__GRAPH_COPY_BYTES ((size_t)4 << 20)
#define NEO__GRAPH_POOL_BYTES ((size_t)16 << 20)

typedef struct neo__graph_tape {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t at, bytes; /* its piece of the pool: */
    cudaGraphNode_t *node;
    neo__cuda_op *op;
    char *arguments;
    int op_count;
    size_t argument_bytes;
    uint64_t used; /* when, for the one that makes room */
} neo__graph_tape;
typedef struct neo__graph_due {
    neo_status (*fn)(void *job, const void *answer);
    size_t job, answer; /* where, in jobs and answers */
} neo__graph_due;
typedef struct neo__graph_count { /* what a counter was, after so many answers */
    int64_t *counter, before;
    int dues;
} neo__graph_count;
typedef struct neo__graph_side { /* one is written while the graph of the other runs */
    char *pinned, *room;         /* [copy_bytes] */
    char *answered;              /* pinned: `answers` as its graph left them */
    cudaEvent_t done;
    int flying; /* its graph was launched, and its answers have not been given to the calls */
    neo__graph_due *due;
    neo__graph_count *count;
    char *job;
    int due_count, count_count, freed_count;
    size_t job_bytes;
    void *freed[NEO__GRAPH_FREED];
} neo__graph_side;
typedef struct neo__graph_scratch { /* of a lane */
    char *work, *blas_work, *result;
    size_t work_bytes;
} neo__graph_scratch;
struct neo_cuda_graph {
    neo__cuda *d;
    size_t copy_bytes, wanted_bytes; /* wanted: most that a step has copied so far, */
    size_t earlier_bytes;            /* and what this one has in its earlier graphs */
    cudaStream_t copies;
    cudaEvent_t arrived;
    char *block;   /* device, [copy_bytes] */
    char *answers; /* device */
    /* The notes. */
    neo__cuda_op *op;
    char *arguments;
    int op_count;
    size_t argument_bytes, copied_bytes, answer_bytes;
    int passed;          /* parts of this step that were launched already; of its copies: */
    size_t passed_bytes;
    neo_status status;
    int lanes, lane; /* lane: the current one */
    neo__graph_scratch scratch[NEO_CUDA_LANES]; /* of the others */
    struct {                                    /* operations, counted from 1 */
        int32_t last[NEO_CUDA_LANES], joined[NEO_CUDA_LANES]; /* of a lane: now, at the last join */
        /* the last that looks at the word that says stop, that may set it */
        int32_t reads[NEO_CUDA_LANES], stops[NEO_CUDA_LANES];
        int32_t begins[NEO_CUDA_LANES]; /* the lane has nothing since that join */
    } order;
    uint64_t launches_before; /* but those passed, when the step began */
    neo__graph_side sides[2], *side, *other;
    neo__graph_tape tape[NEO__GRAPH_TAPES]; /* as their pieces lie in the pool */
    int tape_count;
    char *pool;
    size_t pool_bytes;
    neo_cuda_graph_stats stats;
};

/* ---- notes ---- */
static neo_status neo__graph_launch(neo_cuda_graph *g);
static void neo__graph_stop_recording(neo_cuda_graph *g);
/* A failure is returned once; from there on calls run. */
static neo_status neo__graph_status(neo__cuda *d) {
    const neo_status status = d->recording->status;
    if (status != NEO_OK) neo__graph_stop_recording(d->recording);
    return status;
}
/* Room for more operations, with their arguments: where there is none, what was noted runs. What
   goes into the notes beside an operation (bytes to copy, an answer that is due) comes after this,
   so that both are of one graph. */
static neo_status neo__graph_room(neo_cuda_graph *g, int ops, size_t argument_bytes) {
    if (ops > NEO__GRAPH_OPS - g->op_count ||
        argument_bytes > NEO__GRAPH_ARGUMENT_BYTES - g->argument_bytes)
        return neo__graph_launch(g);
    return g->status;
}
static neo__cuda_op *neo__graph_op(neo__cuda *d, size_t bytes) {
    neo_cuda_graph *g = d->recording;
    if (neo__graph_room(g, 1, bytes) != NEO_OK) return NULL;
    neo__cuda_op *op = &g->op[g->op_count++];
    *op = neo__cuda_op();
    op->at = g->argument_bytes;
    op->lane = g->lane;
    for (int l = 0; l < NEO_CUDA_LANES; l++)
        if (l == g->lane || g->order.begins[g->lane])
            op->after[l] = l == g->lane ? g->order.last[l] : g->order.joined[l];
    g->order.begins[g->lane] = 0, g->order.last[g->lane] = g->op_count;
    return op;
}
/* The last note comes after the last ones of `noted`, too. */
static void neo__graph_after(neo_cuda_graph *g, const int32_t *noted) {
    neo__cuda_op *op = &g->op[g->op_count - 1];
    for (int l = 0; l < NEO_CUDA_LANES; l++)
        if (l != op->lane) op->after[l] = NEO__MAX(op->after[l], noted[l]);
}
static void neo__graph_put(neo__cuda *d, neo__cuda_op *op, const void *value, size_t bytes) {
    neo_cuda_graph *g = d->recording;
    const size_t room = neo__cuda_up(bytes, 16);
    char *to = g->arguments + g->argument_bytes;
    memcpy(to, value, bytes);
    memset(to + bytes, 0, room - bytes);
    op->argument[op->argument_count++] = (uint32_t)(g->argument_bytes - op->at);
    g->argument_bytes += room;
    op->bytes += room;
    for (size_t at = 0; at + sizeof g->answers <= bytes; at += sizeof g->answers) {
        if (memcmp(to + at, &g->answers, sizeof g->answers) != 0) continue;
        neo__graph_after(g, g->order.stops);
        g->order.reads[g->lane] = g->op_count;
    }
}

/* The note that a call could go on with: the last, if it is of this lane; or NULL. */
static neo__cuda_op *neo__graph_last(neo__cuda *d) {
    neo_cuda_graph *g = d->recording;
    if (!g || g->op_count == 0 || g->order.begins[g->lane]) return NULL;
    neo__cuda_op *op = &g->op[g->op_count - 1];
    return op->lane == g->lane ? op : NULL;
}
static void neo__graph_argument(neo__cuda *d, const neo__cuda_op *op, int i, void *to,
                                size_t bytes) {
    memcpy(to, d->recording->arguments + op->at + op->argument[i], bytes);
}
/* The last note, which the next one replaces; it looks at no word that says stop. */
static void neo__graph_drop_last(neo__cuda *d) {
    neo_cuda_graph *g = d->recording;
    const neo__cuda_op *op = &g->op[--g->op_count];
    g->argument_bytes = op->at;
    g->order.last[op->lane] = op->after[op->lane];
    for (int l = 0; l < NEO_CUDA_LANES; l++)
        if (l != op->lane && op->after[l]) g->order.begins[op->lane] = 1; /* first of a join */
}

/* Memory that is read and written, in bytes: of two such, what one writes is not the other's. */
struct neo__graph_span {
    const char *from;
    char *to;
    int64_t reads, writes;
    bool apart(const neo__graph_span &b) const {
        const auto no_byte = [](const char *p, int64_t n, const char *q, int64_t m) {
            return n == 0 || m == 0 || p + n <= q || q + m <= p;
        };
        return no_byte(to, writes, b.to, b.writes) && no_byte(to, writes, b.from, b.reads) &&
               no_byte(from, reads, b.to, b.writes);
    }
};
/* Work of one kernel on up to MOST spans that are apart, 64 at most. Its arguments are all that
   depends on how many there are. */
template <class Part> struct neo__graph_parts {
    enum { MOST = Part::MOST };
    Part part[MOST];
    int64_t end[MOST]; /* units, with all before */
    int64_t count;
    template <int W> __device__ void at(int64_t i) const {
        int k = 0;
        for (int step = MOST > 32 ? 32 : MOST / 2; step > 0; step /= 2)
            if (k + step < count && i >= end[k + step - 1]) k += step;
        part[k].at(i - (k ? end[k - 1] : 0));
    }
};
/* Note `units` of a part; the last note takes it, where that is of such parts and has room. */
template <class Part>
static neo_status neo__graph_join(neo__cuda *d, const Part &one, int64_t units, const char *what) {
    NEO__ZERO(neo__graph_parts<Part>, job);
    const neo__cuda_op *op = neo__graph_last(d);
    if (op && op->kernel == (const void *)neo__cuda_each_kernel<neo__graph_parts<Part>, 1>) {
        neo__graph_argument(d, op, 0, &job, sizeof job);
        bool joins = job.count < job.MOST;
        for (int k = 0; k < job.count; k++) joins = joins && one.apart(job.part[k]);
        if (joins) neo__graph_drop_last(d);
        else memset((void *)&job, 0, sizeof job);
    }
    job.end[job.count] = units + (job.count ? job.end[job.count - 1] : 0);
    job.part[job.count++] = one;
    return neo__cuda_each<1>(d, job, job.end[job.count - 1], what);
}
/* A copy in units of T and the rest in bytes, or a fill with the bytes of `value`. */
template <class T> struct neo__graph_copy_part : neo__graph_span {
    enum { MOST = 8 };
    uint32_t value, unused;
    __device__ void at(int64_t i) const {
        const int64_t at = i * (int64_t)sizeof(T), left = writes - at;
        alignas(16) const uint32_t same[4] = {value, value, value, value};
        const char *source = from ? from + at : (const char *)same;
        if (left >= (int64_t)sizeof(T))
            *(T *)(void *)(to + at) = *(const T *)(const void *)source;
        for (int64_t b = 0; left < (int64_t)sizeof(T) && b < left; b++) to[at + b] = source[b];
    }
};
template <class T>
static neo_status neo__graph_copy_by(neo__cuda *d, void *to, const void *from, int byte,
                                     size_t bytes) {
    typedef neo__graph_copy_part<T> copy;
    static_assert(sizeof(neo__graph_parts<copy>) + 32 <= NEO__GRAPH_COPY_ARGUMENTS, "too small");
    NEO__ZERO(copy, one);
    one.from = (const char *)from, one.to = (char *)to;
    one.writes = (int64_t)bytes, one.reads = from ? one.writes : 0;
    one.value = 0x01010101u * (uint32_t)(byte & 255);
    return neo__graph_join(d, one, (int64_t)neo__cuda_up(bytes, sizeof(T)) / (int64_t)sizeof(T),
                           from ? "copy" : "fill");
}
static neo_status neo__graph_copy(neo__cuda *d, void *to, const void *from, int byte,
                                  size_t bytes) {
    const uintptr_t bits = (uintptr_t)to | (uintptr_t)from;
    return bits % 16 == 0  ? neo__graph_copy_by<float4>(d, to, from, byte, bytes)
           : bits % 4 == 0 ? neo__graph_copy_by<uint32_t>(d, to, from, byte, bytes)
                           : neo__graph_copy_by<uint8_t>(d, to, from, byte, bytes);
}
/* *sent is 0 for what no step could hold; the next one can, see neo__graph_grow. */
static neo_status neo__graph_send(neo__cuda *gpu, void *to, const void *from, size_t bytes,
                                  int *sent) {
    neo_cuda_graph *g = gpu->recording;
    const size_t room = neo__cuda_up(bytes, 256);
    *sent = 0;
    if (neo__graph_room(g, 1, NEO__GRAPH_COPY_ARGUMENTS) != NEO_OK) return neo__graph_status(gpu);
    g->wanted_bytes = NEO__MAX(g->wanted_bytes, g->earlier_bytes + g->copied_bytes + room);
    if (room > g->copy_bytes - g->copied_bytes)
        g->earlier_bytes += room > g->copy_bytes ? room : g->copied_bytes;
    if (room > g->copy_bytes) return NEO_OK;
    if (room > g->copy_bytes - g->copied_bytes && neo__graph_launch(g) != NEO_OK)
        return neo__graph_status(gpu);
    const size_t at = g->copied_bytes;
    memcpy(g->side->pinned + at, from, bytes);
    g->copied_bytes += room;
    *sent = 1;
    return neo__graph_copy(gpu, to, g->block + at, 0, bytes);
}
/* The word that says stop; NULL where calls run at once. */
static int *neo__graph_stop(const neo__cuda *d) {
    return d->recording ? (int *)(void *)d->recording->answers : NULL;
}
/* The end of a call: check(value..., the word that says stop), then its answer. */
struct neo__graph_answer {
    int *stop;         /* NULL where calls run at once */
    const void *from;  /* 8-byte words, */
    void *to;          /* which are copied there; NULL: none are */
    int64_t words;
    uint64_t *zeros;   /* words that become 0 then, for the next call */
    int64_t zero_words;
    uint32_t *arrived; /* a counter of a kernel's blocks; NULL: it is not the call's end */
};
template <auto check, class... P>
NEO__GPU void neo__graph_tell(const neo__graph_answer &answer, const P &...value) {
    if (threadIdx.x == 0) check(value..., answer.stop);
    __syncthreads();
    for (int64_t i = threadIdx.x; answer.to && i < answer.words; i += blockDim.x)
        ((uint64_t *)answer.to)[i] = ((const uint64_t *)answer.from)[i];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < answer.zero_words; i += blockDim.x) answer.zeros[i] = 0;
}
/* As a kernel of its own, one warp. */
template <auto check, class... P>
static __global__ void neo__graph_check_kernel(const neo__graph_answer answer, P... value) {
    neo__graph_tell<check>(answer, value...);
}
/* The block is the last of those that count with it. */
NEO__GPU bool neo__cuda_is_last(uint32_t *arrived, int blocks, int *last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *last = atomicInc(arrived, (uint32_t)blocks - 1) == (uint32_t)blocks - 1;
    __syncthreads();
    __threadfence();
    return *last;
}
/* By the last block of the call's last kernel, to which all blocks come; `last`: shared memory. */
template <auto check, class... P>
NEO__GPU void neo__graph_finish(const neo__graph_answer &answer, int *last, const P &...value) {
    if (answer.arrived && neo__cuda_is_last(answer.arrived, (int)gridDim.x, last))
        neo__graph_tell<check>(answer, value...);
}
template <auto check, class... P>
static neo_status neo__graph_check(neo__cuda *gpu, const neo__graph_answer &answer,
                                   const char *what, const P &...value) {
    return neo__cuda_launch(gpu, what, neo__graph_check_kernel<check, P...>, {1, 32}, answer,
                            value...);
}
/* The counter of blocks that neo__graph_finish has: the last of `result`. */
static uint32_t *neo__graph_arrived(const neo__cuda *gpu) {
    return (uint32_t *)(void *)(gpu->result + NEO__CUDA_RESULT_BYTES) - 1;
}
/* Room for an answer: the value that `bytes` at `from`, in device memory, have after a check is
   given to the call's function when the step is over. The kernel that ends the call is noted next,
   and then neo__graph_promise. The word that says stop is one graph's, and the next does not run
   only if the answer is of the first, too. */
static neo_status neo__graph_ask(neo__cuda *gpu, const void *from, size_t bytes,
                                 const neo__later *later, neo__graph_answer *answer) {
    neo_cuda_graph *g = gpu->recording;
    const size_t room = neo__cuda_up(bytes, 256), job_room = neo__cuda_up(later->job_bytes, 64);
    NEO_ASSERT(bytes % sizeof(uint64_t) == 0);
    if (neo__graph_room(g, 1, NEO__GRAPH_STOP_ARGUMENTS) == NEO_OK &&
        (g->side->due_count == NEO__GRAPH_DUES ||
         g->answer_bytes + room > NEO__GRAPH_ANSWER_BYTES ||
         g->side->job_bytes + job_room > NEO__GRAPH_JOB_BYTES))
        (void)neo__graph_launch(g);
    if (g->status != NEO_OK) return neo__graph_status(gpu);
    NEO__ZERO(neo__graph_answer, a);
    a.stop = neo__graph_stop(gpu), a.from = from, a.to = g->answers + g->answer_bytes;
    a.words = (int64_t)(bytes / sizeof(uint64_t));
    *answer = a;
    return NEO_OK;
}
/* The same of a call whose last kernel ends with neo__graph_finish. */
static neo_status neo__graph_ask_kernel(neo__cuda *gpu, const void *from, size_t bytes,
                                        void *zeros, size_t zero_bytes, const neo__later *later,
                                        neo__graph_answer *answer) {
    NEO__TRY(neo__graph_ask(gpu, from, bytes, later, answer));
    answer->zeros = (uint64_t *)zeros, answer->zero_words = (int64_t)(zero_bytes / 8);
    answer->arrived = neo__graph_arrived(gpu);
    return NEO_OK;
}
static void neo__graph_promise(neo__cuda *gpu, size_t bytes, const neo__later *later) {
    neo_cuda_graph *g = gpu->recording;
    neo__graph_side *side = g->side;
    neo__graph_after(g, g->order.reads);
    g->order.stops[g->lane] = g->op_count;
    side->due[side->due_count++] = {later->fn, side->job_bytes, g->answer_bytes};
    memcpy(side->job + side->job_bytes, later->job, later->job_bytes);
    side->job_bytes += neo__cuda_up(later->job_bytes, 64);
    g->answer_bytes += neo__cuda_up(bytes, 256);
}
/* An answer by a kernel of its own. */
template <auto check, class... P>
static neo_status neo__graph_later(neo__cuda *gpu, const void *from, size_t bytes,
                                   const neo__later *later, const char *what, const P &...value) {
    neo__graph_answer answer;
    NEO__TRY(neo__graph_ask(gpu, from, bytes, later, &answer));
    NEO__TRY(neo__graph_check<check>(gpu, answer, what, value...));
    neo__graph_promise(gpu, bytes, later);
    return NEO_OK;
}
/* The current lane's place in which recorded calls count. */
static char *neo__graph_zeros(const neo__cuda *gpu) { return gpu->result + NEO__CUDA_ZEROS_AT; }
/* Zeros there in all lanes, after notes that do not run. */
static void neo__graph_zero(neo_cuda_graph *g) {
    for (int l = 0; l < g->lanes; l++) {
        char *result = l == g->lane ? g->d->result : g->scratch[l].result;
        (void)neo__cuda_fill_now(g->d, result + NEO__CUDA_ZEROS_AT, 0,
                                 NEO__CUDA_ARRIVED_AT - NEO__CUDA_ZEROS_AT);
    }
}
/* Counters go back to what they were when `dues` answers of the side were due. */
static void neo__graph_uncount(neo__graph_side *side, int dues) {
    for (int i = side->count_count - 1; i >= 0 && side->count[i].dues >= dues; i--)
        *side->count[i].counter = side->count[i].before;
}
/* The side's graph is over: memory goes that was freed behind its notes. */
static void neo__graph_free(neo_cuda_graph *g, neo__graph_side *side) {
    if (side->freed_count && g->d->device.watch) /* cudaFree waits blindly */
        (void)neo__cuda_until(g->d, g->d->stream, NULL);
    while (side->freed_count) {
        const cudaError_t error = cudaFree(side->freed[--side->freed_count]);
        if (error != cudaSuccess && !neo__cuda_failed(g->d))
            (void)neo__cuda_fail(g->d, error, "cudaFree");
    }
}
/* No notes. Calls of which there are some have no effect. */
static void neo__graph_forget(neo_cuda_graph *g) {
    if (g->op_count || g->passed) g->d->device.forgotten++, neo__graph_zero(g);
    if (g->passed) (void)neo__cuda_until(g->d, g->d->stream, NULL); /* they read what is next */
    neo__graph_free(g, g->side);
    neo__graph_uncount(g->side, 0);
    g->op_count = g->passed = 0;
    g->argument_bytes = g->copied_bytes = g->passed_bytes = 0;
    g->answer_bytes = NEO__GRAPH_FIRST_ANSWER;
    memset(&g->order, 0, sizeof g->order);
    g->side->due_count = g->side->count_count = 0, g->side->job_bytes = 0;
}
static void neo__graph_counts(neo_device *device, int64_t *counter) {
    neo_cuda_graph *g = ((neo__cuda *)device)->recording;
    if (g->side->count_count == NEO__GRAPH_COUNTS)
        (void)neo__graph_launch(g); /* in any case there is room then */
    neo__graph_side *side = g->side;
    side->count[side->count_count++] = {counter, *counter, side->due_count};
}
/* The device's scratch memory is the lane's. */
static void neo__graph_use_lane(neo_cuda_graph *g, int lane) {
    neo__cuda *d = g->d;
    if (lane == g->lane) return;
    const neo__graph_scratch next = g->scratch[lane];
    g->scratch[g->lane] = {d->work, d->blas_work, d->result, d->work_bytes};
    d->work = next.work, d->blas_work = next.blas_work, d->result = next.result;
    d->work_bytes = next.work_bytes;
    g->lane = lane;
}
static void neo__graph_stop_recording(neo_cuda_graph *g) {
    neo__graph_use_lane(g, 0);
    neo__graph_forget(g);
    if (g->d->recording != g) return;
    g->d->recording = NULL, g->d->device.recording = 0;
    neo__graph_let_pass(g->d);
}
static void neo__graph_let_pass(neo__cuda *d) {
    d->device.passes = d->recording ? (void *)d->exchange : NULL;
    d->device.stop = d->recording ? (void *)d->recording->answers : NULL;
}

/* ---- tapes ---- */
/* Destroy a tape. If its graph still runs, CUDA waits for its end. */
static void neo__graph_drop(neo_cuda_graph *g, int i) {
    neo__graph_tape *t = &g->tape[i];
    if (t->exec) (void)cudaGraphExecDestroy(t->exec);
    if (t->graph) (void)cudaGraphDestroy(t->graph);
    g->tape_count--;
    memmove(t, t + 1, (size_t)(g->tape_count - i) * sizeof *t);
}
/* The number of a new tape, and where its piece begins. Tapes that were not used for long go if
   there is no other room; -1: there is none. */
static int neo__graph_make_room(neo_cuda_graph *g, size_t bytes, size_t *at) {
    for (;;) {
        int oldest = 0;
        *at = 0;
        for (int i = 0; i <= g->tape_count && g->tape_count < NEO__GRAPH_TAPES; i++) {
            const size_t end = i < g->tape_count ? g->tape[i].at : g->pool_bytes;
            if (end - *at >= bytes) return i;
            if (i < g->tape_count) *at = end + g->tape[i].bytes;
        }
        for (int i = 1; i < g->tape_count; i++)
            if (g->tape[i].used < g->tape[oldest].used) oldest = i;
        if (bytes > g->pool_bytes || g->stats.launches - g->tape[oldest].used < NEO__GRAPH_AGE)
            return -1;
        neo__graph_drop(g, oldest);
    }
}
/* The notes are the tape's but for arguments and grids of kernels. */
static int neo__graph_fits(const neo_cuda_graph *g, const neo__graph_tape *t) {
    if (t->op_count != g->op_count || t->argument_bytes != g->argument_bytes) return 0;
    for (int i = 0; i < g->op_count; i++) {
        const neo__cuda_op *a = &g->op[i], *b = &t->op[i];
        if (a->kernel != b->kernel || a->issue != b->issue || a->at != b->at ||
            a->bytes != b->bytes || a->lane != b->lane ||
            memcmp(a->after, b->after, sizeof a->after) != 0)
            return 0;
        if (a->issue && memcmp(g->arguments + a->at, t->arguments + b->at, a->bytes) != 0) return 0;
    }
    return 1;
}
/* A noted kernel, in the words of CUDA. */
struct neo__graph_node {
    cudaKernelNodeParams params;
    void *pointer[NEO__GRAPH_ARGUMENTS];
    neo__graph_node(const neo__cuda_op *op, char *arguments) : params() {
        for (uint32_t i = 0; i < op->argument_count; i++)
            pointer[i] = arguments + op->at + op->argument[i];
        params.func = const_cast<void *>(op->kernel);
        params.gridDim = op->where.grid, params.blockDim = op->where.block;
        params.sharedMemBytes = (unsigned)op->where.shared;
        params.kernelParams = pointer;
    }
};
/* A library's call, with the scratch memory of its lane. */
static neo_status neo__graph_issue(neo_cuda_graph *g, const neo__cuda_op *op) {
    neo__cuda *d = g->d;
    char *current = d->blas_work;
    if (op->lane != g->lane) d->blas_work = g->scratch[op->lane].blas_work;
    const neo_status status = op->issue(d, g->arguments + op->at);
    d->blas_work = current;
    return status;
}
/* A library's launches as a node behind others. */
static neo_status neo__graph_capture(neo_cuda_graph *g, neo__graph_tape *t, const neo__cuda_op *op,
                                     const cudaGraphNode_t *after, size_t count,
                                     cudaGraphNode_t *node) {
    neo__cuda *d = g->d;
    cudaGraph_t part = NULL;
    NEO__CUDA_TRY(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeRelaxed));
    const neo_status status = neo__graph_issue(g, op);
    cudaError_t error = cudaStreamEndCapture(d->stream, &part);
    if (status == NEO_OK && error == cudaSuccess)
        error = cudaGraphAddChildGraphNode(node, t->graph, after, count, part);
    if (part) (void)cudaGraphDestroy(part); /* the node has a copy */
    if (status != NEO_OK) return status;
    return error == cudaSuccess ? NEO_OK : neo__cuda_fail(d, error, "capture of a step");
}
static neo_status neo__graph_build(neo_cuda_graph *graph, neo__graph_tape *tape) {
    neo__cuda *gpu = graph->d;
    NEO__CUDA_TRY(gpu, cudaGraphCreate(&tape->graph, 0));
    for (int i = 0; i < tape->op_count; i++) {
        const neo__cuda_op *op = &tape->op[i];
        cudaGraphNode_t after[NEO_CUDA_LANES];
        size_t count = 0;
        for (const int32_t last : op->after)
            if (last) after[count++] = tape->node[last - 1];
        if (op->issue) {
            NEO__TRY(neo__graph_capture(graph, tape, op, after, count, &tape->node[i]));
            continue;
        }
        const neo__graph_node node(op, tape->arguments);
        NEO__CUDA_TRY(gpu, cudaGraphAddKernelNode(&tape->node[i], tape->graph, after, count,
                                                &node.params));
    }
    return NEO__CUDA_DO(gpu, cudaGraphInstantiate(&tape->exec, tape->graph, 0));
}
/* A tape of the notes; NULL: there is no room for one. */
static neo_status neo__graph_record(neo_cuda_graph *graph, neo__graph_tape **tape) {
    const size_t count = (size_t)graph->op_count, ops = neo__cuda_up(count * sizeof *graph->op, 16);
    const size_t nodes = neo__cuda_up(count * sizeof(cudaGraphNode_t), 16);
    size_t at;
    const int place = neo__graph_make_room(graph, graph->argument_bytes + ops + nodes, &at);
    *tape = NULL;
    if (place < 0) return NEO_OK;
    neo__graph_tape *t = &graph->tape[place];
    memmove(t + 1, t, (size_t)(graph->tape_count++ - place) * sizeof *t);
    *t = neo__graph_tape();
    t->at = at, t->bytes = graph->argument_bytes + ops + nodes;
    t->arguments = graph->pool + at;
    t->op = (neo__cuda_op *)(void *)(t->arguments + graph->argument_bytes);
    t->node = (cudaGraphNode_t *)(void *)(t->arguments + graph->argument_bytes + ops);
    t->op_count = graph->op_count, t->argument_bytes = graph->argument_bytes;
    memcpy(t->op, graph->op, count * sizeof *t->op);
    memcpy(t->arguments, graph->arguments, graph->argument_bytes);
    const neo_status status = neo__graph_build(graph, t);
    if (status != NEO_OK) {
        neo__graph_drop(graph, place);
        return status;
    }
    graph->stats.graphs++;
    *tape = t;
    return NEO_OK;
}
/* The notes without a graph. */
static neo_status neo__graph_play(neo_cuda_graph *graph) {
    neo__cuda *d = graph->d;
    for (int i = 0; i < graph->op_count; i++) {
        const neo__cuda_op *op = &graph->op[i];
        neo__graph_node node(op, graph->arguments);
        if (op->issue) NEO__TRY(neo__graph_issue(graph, op));
        else NEO__CUDA_TRY(d, cudaLaunchKernel(op->kernel, op->where.grid, op->where.block,
                                               node.pointer, op->where.shared, d->stream));
    }
    graph->stats.plain++;
    return NEO_OK;
}
/* The tape's kernels get the arguments of the notes. */
static neo_status neo__graph_update(neo_cuda_graph *g, neo__graph_tape *t) {
    for (int i = 0; i < g->op_count; i++) {
        const neo__cuda_op *op = &g->op[i];
        if (op->issue || (memcmp(&op->where, &t->op[i].where, sizeof op->where) == 0 &&
                          memcmp(g->arguments + op->at, t->arguments + op->at, op->bytes) == 0))
            continue;
        const neo__graph_node node(op, g->arguments);
        NEO__CUDA_TRY(g->d, cudaGraphExecKernelNodeSetParams(t->exec, t->node[i], &node.params));
        t->op[i] = *op;
        memcpy(t->arguments + op->at, g->arguments + op->at, op->bytes);
        g->stats.updates++;
    }
    return NEO_OK;
}

/* ---- launches, answers ---- */
/* The word that says stop is 0. */
static neo_status neo__graph_clear(neo_cuda_graph *g) {
    (void)neo__cuda_fill_now(g->d, g->d->device.heard, 0, NEO__CUDA_HEARD);
    __atomic_store_n(g->d->over.word, 0, __ATOMIC_RELEASE);
    return neo__cuda_fill_now(g->d, g->answers, 0, NEO__GRAPH_FIRST_ANSWER);
}
/* After an error in the graph of the other side. What was launched behind it had no effect, by the
   word that says stop; what was noted since will not run. */
static void neo__graph_leave_out(neo_cuda_graph *g) {
    if (g->side->flying) (void)neo__cuda_until(g->d, NULL, g->side->done);
    g->side->flying = 0;
    neo__graph_forget(g);
    (void)neo__graph_clear(g); /* a failure shows at the next call */
}
/* Waits for the graph of the other side; its answers go to where they are due. The first error is
   the step's. */
static neo_status neo__graph_collect(neo_cuda_graph *graph) {
    neo__cuda *gpu = graph->d;
    neo__graph_side *side = graph->other;
    if (!side->flying) return NEO_OK;
    side->flying = 0;
    gpu->stats.waits++;
    neo_status status = NEO_OK;
    const cudaError_t error = neo__cuda_until(gpu, NULL, side->done);
    if (error != cudaSuccess) status = neo__cuda_fail(gpu, error, "a recorded step");
    neo__graph_free(graph, side);
    for (int i = 0; i < side->due_count && status == NEO_OK; i++) {
        const neo__graph_due *due = &side->due[i];
        status = due->fn(side->job + due->job, side->answered + due->answer);
        if (status == NEO_OK) continue;
        neo__graph_leave_out(graph);
        neo__graph_uncount(side, i + 1);
    }
    NEO_ASSERT(status != NEO_OK || *(const int *)(const void *)side->answered == 0);
    side->due_count = side->count_count = 0, side->job_bytes = 0;
    return status;
}
static neo_status neo__graph_go(neo_cuda_graph *g) {
    neo__cuda *gpu = g->d;
    neo__graph_tape *tape = NULL;
    for (int i = 0; i < g->tape_count && !tape; i++)
        if (neo__graph_fits(g, &g->tape[i])) tape = &g->tape[i];
    if (tape) NEO__TRY(neo__graph_update(g, tape));
    else NEO__TRY(neo__graph_record(g, &tape));
    const size_t at = g->passed_bytes, bytes = g->copied_bytes - at;
    if (bytes) {
        NEO__CUDA_TRY(gpu, cudaMemcpyAsync(g->side->room + at, g->side->pinned + at, bytes,
                                         cudaMemcpyHostToDevice, g->copies));
        NEO__CUDA_TRY(gpu, cudaEventRecord(g->arrived, g->copies));
        NEO__CUDA_TRY(gpu, cudaStreamWaitEvent(gpu->stream, g->arrived, 0));
        NEO__CUDA_TRY(gpu, cudaMemcpyAsync(g->block + at, g->side->room + at, bytes,
                                         cudaMemcpyDeviceToDevice, gpu->stream));
    }
    g->passed_bytes = g->copied_bytes;
    if (tape) NEO__CUDA_TRY(gpu, cudaGraphLaunch(tape->exec, gpu->stream));
    else NEO__TRY(neo__graph_play(g));
    g->stats.launches++, gpu->device.launched++;
    g->stats.nodes += (uint64_t)g->op_count;
    if (tape) tape->used = g->stats.launches;
    g->d->launched = g;
    return NEO_OK;
}
/* Behind all parts of a step: its answers. */
static neo_status neo__graph_close(neo_cuda_graph *g) {
    neo__cuda *gpu = g->d;
    NEO__CUDA_TRY(gpu, cudaMemcpyAsync(g->side->answered, g->answers, g->answer_bytes,
                                     cudaMemcpyDeviceToHost, gpu->stream));
    NEO__CUDA_TRY(gpu, cudaEventRecord(g->side->done, gpu->stream));
    g->side->flying = 1;
    return NEO_OK;
}
/* Launch the notes, and wait for the graph before them. A failure is kept: neo__graph_status
   returns it. */
static neo_status neo__graph_launch(neo_cuda_graph *graph) {
    if (graph->status != NEO_OK) return graph->status;
    const int nothing = graph->op_count == 0 && !graph->passed;
    if (graph->op_count) graph->status = neo__graph_go(graph);
    if (graph->status == NEO_OK && !nothing) graph->status = neo__graph_close(graph);
    if (graph->status == NEO_OK) graph->status = neo__graph_collect(graph);
    if (graph->status != NEO_OK) neo__graph_forget(graph);
    if (graph->status != NEO_OK || nothing) return graph->status;
    neo__graph_side *now = graph->side;
    graph->side = graph->other, graph->other = now;
    graph->op_count = graph->passed = 0;
    neo__graph_forget(graph);
    return NEO_OK;
}
static neo_status neo__graph_pass(neo__cuda *d) {
    neo_cuda_graph *g = d->recording;
    if (g->status == NEO_OK && g->op_count) {
        g->status = neo__graph_go(g);
        g->passed++, g->stats.passed++;
        g->op_count = 0, g->argument_bytes = 0;
        memset(&g->order, 0, sizeof g->order);
    }
    return neo__graph_status(d);
}
/* As neo__graph_flush; a failure is kept for the next call. */
static void neo__graph_run(neo__cuda *d) {
    neo_cuda_graph *g = d->recording;
    if (neo__graph_launch(g) == NEO_OK) g->status = neo__graph_collect(g);
}
/* Memory that was freed in steps goes: the notes run, or the step that was launched last is over,
   whose answers are for who waits. 0: there was none. */
static int neo__graph_make_room(neo__cuda *d) {
    neo_cuda_graph *g = d->recording ? d->recording : d->launched;
    if (!g || g->side->freed_count + g->other->freed_count == 0) return 0;
    if (d->recording) {
        neo__graph_run(d);
        if (!g->passed) neo__graph_free(g, g->side);
    } else if (neo__cuda_until(d, NULL, g->other->done) == cudaSuccess) {
        neo__graph_free(g, g->other);
    }
    return 1;
}
/* Memory that notes may use goes when their step is over; 0: now, as there are none, since they
   have run where there is no room for more such memory. */
static int neo__graph_holds(neo__cuda *d, void *p) {
    if (!d->recording) return 0;
    neo__graph_side *side = d->recording->side;
    if (side->freed_count < NEO__GRAPH_FREED) return side->freed[side->freed_count++] = p, 1;
    neo__graph_make_room(d);
    return 0;
}
static neo_status neo__graph_flush(neo__cuda *d) {
    neo__graph_run(d);
    return neo__graph_status(d);
}
static void neo__graph_settle(neo_device *device) {
    neo__cuda *d = (neo__cuda *)device;
    if (d->recording) neo__graph_run(d);
}

/* ---- beside recorded steps, which another thread may be noting: what ranks exchange ---- */
/* Run a kernel for `count` units of `lanes` threads on a stream; NULL: on that of exchanges, and
   wait for it. */
template <class... P>
static neo_status neo__cuda_exchange(neo__cuda *d, void *stream, const char *what,
                                     void (*kernel)(P...), int64_t count, int lanes,
                                     const typename neo__cuda_as<P>::type &...value) {
    const cudaStream_t on = stream ? (cudaStream_t)stream : d->exchange;
    if (count == 0) return NEO_OK;
    NEO__LAUNCH_AS(what, kernel, neo__cuda_blocks(d, count, NEO__CUDA_THREADS / lanes),
                   NEO__CUDA_THREADS, 0, on, value...);
    NEO__TRY(neo__cuda_result(d, cudaGetLastError(), what));
    return stream ? NEO_OK : neo__cuda_result(d, neo__cuda_until(d, on, NULL), what);
}
template <class F>
static neo_status neo__cuda_exchange_each(neo__cuda *d, void *stream, const F &f, int64_t n,
                                          const char *what) {
    return neo__cuda_exchange(d, stream, what, neo__cuda_each_kernel<F, 1>, n, 1, f, n);
}

/* ---- >>cuda-activation ----
   Activations: functions of >>kernels-vec of neo_kernels.h, applied by each thread to single
   numbers. */
NEO__GPU float neo__cuda_act(neo_activation act, float z) {
    if (act == NEO_ACT_RELU) return neo__vrelu_warp(z);
    if (act == NEO_ACT_SIGMOID) return neo__vsigmoid_warp(z);
    if (act == NEO_ACT_TANH) return neo__vtanh_warp(z);
    if (act == NEO_ACT_GELU) return neo__vgelu_warp(z);
    if (act == NEO_ACT_HARDSWISH) return neo__vhardswish_warp(z);
    if (act == NEO_ACT_LEAKY_RELU) return neo__vleaky_relu_warp(z);
    if (act == NEO_ACT_SILU || act == NEO_ACT_GELU_TANH)
        return neo__vgated_warp(z, act == NEO_ACT_GELU_TANH);
    return z;
}
/* dy times the slope at z, where the function's value is y. */
NEO__GPU float neo__cuda_act_back(neo_activation act, float z, float y, float dy) {
    if (act == NEO_ACT_RELU) return neo__vrelu_back_warp(y, dy);
    if (act == NEO_ACT_SIGMOID) return neo__vsigmoid_back_warp(y, dy);
    if (act == NEO_ACT_TANH) return neo__vtanh_back_warp(y, dy);
    if (act == NEO_ACT_GELU) return neo__vgelu_back_warp(z, dy);
    if (act == NEO_ACT_HARDSWISH) return neo__vhardswish_back_warp(z, dy);
    if (act == NEO_ACT_SILU) return neo__vsilu_back_warp(z, dy);
    if (act == NEO_ACT_LEAKY_RELU) return neo__vleaky_relu_back_warp(y, dy);
    if (act == NEO_ACT_GELU_TANH) return neo__vgelu_tanh_back_warp(z, dy);
    return dy;
}
/* Number i at an address of f32 or, `narrow`, of bf16. */
NEO__GPU float neo__cuda_wide_get(const float *p, int64_t i, int narrow) {
    return narrow ? neo__f32_from_bf16(((const uint16_t *)(const void *)p)[i]) : p[i];
}
NEO__GPU void neo__cuda_wide_put(float *p, int64_t i, int narrow, float x) {
    if (narrow) ((uint16_t *)(void *)p)[i] = neo__bf16_from_f32(x);
    else p[i] = x;
}
static const float *neo__cuda_wide_at(const float *p, int64_t i, int narrow) {
    return narrow ? (const float *)(const void *)((const uint16_t *)(const void *)p + i) : p + i;
}
/* W numbers from i on. */
template <int W>
NEO__GPU neo__floats<W> neo__cuda_wide_load(const float *p, int64_t i, int narrow) {
    if constexpr (W == 1) return {{neo__cuda_wide_get(p, i, narrow)}};
    else if (!narrow) return neo__cuda_load<W>(p + i);
    else {
        const uint2 x = *(const uint2 *)(const void *)((const uint16_t *)(const void *)p + i);
        return {{neo__f32_from_bf16((uint16_t)x.x), neo__f32_from_bf16((uint16_t)(x.x >> 16)),
                 neo__f32_from_bf16((uint16_t)x.y), neo__f32_from_bf16((uint16_t)(x.y >> 16))}};
    }
}
template <int W>
NEO__GPU void neo__cuda_wide_store(float *p, int64_t i, int narrow, const neo__floats<W> &x) {
    if constexpr (W == 1) neo__cuda_wide_put(p, i, narrow, x.v[0]);
    else if (!narrow) neo__cuda_store<W>(p + i, x);
    else
        *(uint2 *)(void *)((uint16_t *)(void *)p + i) = make_uint2(
            neo__bf16_from_f32(x.v[0]) | (uint32_t)neo__bf16_from_f32(x.v[1]) << 16,
            neo__bf16_from_f32(x.v[2]) | (uint32_t)neo__bf16_from_f32(x.v[3]) << 16);
}
struct neo__cuda_act_job {
    neo__activation_call c;
    int whole; /* rows lie one behind the other */
    template <int W> __device__ void at(int64_t i) const {
        int64_t row = 0, col = i;
        if (!whole) row = i / c.cols, col = i % c.cols;
        neo__floats<W> z = {}, y = {}, out;
        const int needs_z = !c.backward || neo__act_needs_z(c.act);
        const int needs_y = c.backward && neo__act_needs_y(c.act);
        if (needs_z) z = neo__cuda_wide_load<W>(c.z, row * c.z_row + col, c.narrow_z);
        if (needs_y) y = neo__cuda_load<W>(c.y + row * c.y_row + col);
        if (c.backward) out = neo__cuda_wide_load<W>(c.dy, row * c.dy_row + col, c.narrow_dy);
        for (int w = 0; w < W; w++)
            out.v[w] = c.backward ? neo__cuda_act_back(c.act, z.v[w], y.v[w], out.v[w])
                                  : neo__cuda_act(c.act, z.v[w]);
        neo__cuda_wide_store<W>(c.out, row * c.out_row + col, c.narrow_out, out);
    }
};
static neo_status neo__cuda_activation(neo__cuda *d, const neo__activation_call *call) {
    const int64_t cols = call->cols, count = call->rows * cols;
    neo__cuda_act_job job = {*call, 0};
    job.whole = call->rows == 1 || ((!call->z || call->z_row == cols) &&
                                    (!call->y || call->y_row == cols) &&
                                    (!call->dy || call->dy_row == cols) && call->out_row == cols);
    return neo__cuda_each(d, job, count, "activation",
                          job.whole && neo__cuda_aligned(call->z, call->y, call->dy, call->out));
}

/* ---- >>cuda-tree ----
   Sums over parts by the leaf tree, a binary counter: see >>impl-leaves of neo.h. */
/* part(i) gives part i of `count`; a sum of none is 0. Eight parts from a multiple of eight on are
   a subtree, as are those at the end, so they are loaded together, and their sums are the parts of
   a tree of the same shape. */
template <int W, int DEPTH = NEO__PART_DEPTH, class Part>
NEO__GPU neo__floats<W> neo__cuda_tree(int count, Part part) {
    enum { NEO__TOGETHER = 8 };
    neo__floats<W> stack[DEPTH], top = {};
    const int groups = (count + NEO__TOGETHER - 1) / NEO__TOGETHER;
    int height = 0;
    for (int i = 0; i < groups; i++) {
        const int first = i * NEO__TOGETHER, here = NEO__MIN((int)NEO__TOGETHER, count - first);
        neo__floats<W> x[NEO__TOGETHER];
        NEO__UNROLL for (int u = 0; u < NEO__TOGETHER; u++)
            x[u] = part(first + NEO__MIN(u, here - 1));
        NEO__UNROLL for (int step = 1; step < NEO__TOGETHER; step *= 2)
            NEO__UNROLL for (int u = 0; u + step < NEO__TOGETHER; u += 2 * step)
                if (u + step < here) neo__cuda_plus<W>(x[u], x[u + step]);
        top = x[0];
        int below = height; /* subtrees under top */
        for (int merges = neo__tree_push(&height, i, groups); merges > 0; merges--) {
            below--;
            for (int w = 0; w < W; w++) top.v[w] = __fadd_rn(stack[below].v[w], top.v[w]);
        }
        if (i < groups - 1) stack[below] = top;
    }
    return top;
}
/* The leaves of a sum over the batch. Outside `exact` each is cut further, by halves, as far as its
   pieces have at least `rows` rows: a tree of the same shape, as if V were larger. A sample that is
   a leaf by itself is cut, too. Nothing of it depends on which leaves are here. */
static neo__leaf_cut neo__cuda_pieces(const neo__cuda *d, neo__leaf_cut cut, int64_t rows) {
    while (!d->exact && 2 * cut.shards <= NEO__CUDA_PIECES &&
           cut.batch * cut.rows_per_sample >= 2 * cut.shards * rows) {
        if (cut.batch < 2 * cut.shards) {
            if (cut.batch != cut.shards || cut.rows_per_sample % 2) break;
            cut.batch *= 2, cut.rows_per_sample /= 2;
        }
        cut.shards *= 2, cut.first *= 2, cut.count *= 2;
    }
    return cut;
}

/* The tree over parts (leaves, buckets) of which some may be absent, for W columns of a thread: see
   neo__part_tree. */
template <int W> struct neo__cuda_parts {
    neo__floats<W> sum[NEO__PART_DEPTH];
    int64_t number[NEO__PART_DEPTH];
    int depth = 0;
    __device__ void join() {
        depth--;
        neo__cuda_plus<W>(sum[depth - 1], sum[depth]);
        number[depth - 1] = number[depth];
    }
    __device__ void push(int64_t part, const neo__floats<W> &x) {
        while (neo__part_joins(number, depth, part)) join();
        number[depth] = part;
        sum[depth++] = x;
    }
    __device__ neo__floats<W> total() { /* of at least one part */
        while (depth > 1) join();
        return sum[0];
    }
};

enum { NEO__CUDA_PARTS = 128 }; /* of one launch: their addresses are arguments of the kernel */
struct neo__cuda_tree_job {
    const float *part[NEO__CUDA_PARTS];
    int count;
    float *out;
    template <int W> __device__ void at(int64_t i) const {
        const auto at_i = [=](int p) { return neo__cuda_load<W>(part[p] + i); };
        neo__cuda_store<W>(out + i, neo__cuda_tree<W>(count, at_i));
    }
};
/* As many parts as a launch takes are a subtree, so they add into the first of them, and these
   firsts are the parts of the tree above. */
static neo_status neo__cuda_tree_sum(neo__cuda *d, const neo__tree_sum_call *call) {
    const neo_tensor *parts = call->parts;
    const int64_t count = call->count;
    for (int64_t step = 1; count > 0; step *= NEO__CUDA_PARTS) {
        const int last = step * NEO__CUDA_PARTS >= count;
        for (int64_t first = 0; first < count; first += step * NEO__CUDA_PARTS) {
            neo__cuda_tree_job job;
            uintptr_t bits = 0;
            job.count = 0;
            for (int64_t i = first; i < count && job.count < NEO__CUDA_PARTS; i += step) {
                bits |= (uintptr_t)parts[i].data;
                job.part[job.count++] = (const float *)parts[i].data;
            }
            job.out = last ? call->out : (float *)parts[first].data;
            NEO__TRY(neo__cuda_each(d, job, call->n, "tree_sum", neo__cuda_aligned(bits, job.out)));
        }
        if (last) break;
    }
    return NEO_OK;
}

/* ---- >>cuda-exchange ----
   Copies and sums between ranks. They run on a stream of their own, beside the operations of the
   step, and are done when the call returns; or a recorded step passes them, see neo__cuda_order:
   events of both streams, and of other ranks' streams, are all that waits then. */
/* Memory of another GPU of the process is reached directly where the two can: each is asked once.
   Where they cannot, CUDA copies by way of the host. */
static void neo__cuda_reach(neo__cuda *d, const void *p) {
    cudaPointerAttributes at = {};
    int can = 0;
    if (cudaPointerGetAttributes(&at, p) == cudaSuccess && at.type == cudaMemoryTypeDevice &&
        at.device != d->ordinal && at.device < 64 &&
        !(__atomic_fetch_or(&d->reached, 1ull << at.device, __ATOMIC_RELAXED) >> at.device & 1) &&
        cudaDeviceCanAccessPeer(&can, d->ordinal, at.device) == cudaSuccess && can)
        (void)cudaDeviceEnablePeerAccess(at.device, 0);
    (void)cudaGetLastError(); /* it may be so already */
}
static neo_status neo__cuda_move(neo__cuda *d, void *to, const void *from, size_t bytes,
                                 void *stream) {
    if (bytes == 0) return NEO_OK;
    if (d->others) neo__cuda_reach(d, to), neo__cuda_reach(d, from);
    NEO__CUDA_TRY(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, d->exchange));
    if (stream) return NEO_OK; /* the same one */
    return neo__cuda_result(d, neo__cuda_until(d, d->exchange, NULL), "a copy between ranks");
}

/* Events: who waits for one sleeps. */
static void *neo__cuda_event_make(neo_device *device) {
    neo__cuda *d = (neo__cuda *)device;
    cudaEvent_t event = NULL;
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    if (neo__cuda_enter(d) != NEO_OK ||
        NEO__CUDA_DO(d, cudaEventCreateWithFlags(&event, flags)) != NEO_OK)
        return NULL;
    return (void *)event;
}
static void neo__cuda_event_free(neo_device *device, void *event) {
    (void)cudaSetDevice(((neo__cuda *)device)->ordinal);
    (void)cudaEventDestroy((cudaEvent_t)event);
}
static neo_status neo__cuda_event_mark(neo__cuda *d, void *event) {
    if (d->recording) NEO__TRY(neo__graph_flush(d));
    return NEO__CUDA_DO(d, cudaEventRecord((cudaEvent_t)event, d->stream));
}
static neo_status neo__cuda_event_wait(neo__cuda *d, void *event) {
    return neo__cuda_result(d, neo__cuda_until(d, NULL, (cudaEvent_t)event), "work on the device");
}
NEO__STATIC_ASSERT(24 + (int)NEO__CUDA_HEARD <= (int)NEO__GRAPH_FIRST_ANSWER, "what was heard");
NEO__STATIC_ASSERT(NEO__CUDA_HEARD_AT + NEO__CUDA_HEARD + 4 <= NEO__CUDA_RESULT_BYTES,
                   "the same, before a counter of blocks");
/* Words of other ranks, as they were when data of theirs came, or come now, and this host's that
   they do not come (over; or NULL): one that says stop does so here. seen: what was looked at. */
NEO__GPU void neo__heard_stop(const int64_t *heard, const volatile int *over, int64_t *seen,
                              int *stop) {
    for (int i = 0; i <= NEO__CUDA_HEARD / 8; i++) {
        seen[i] = i < NEO__CUDA_HEARD / 8 ? heard[i] : over ? *over : 0;
        if (seen[i] && stop) *stop = 1;
    }
}
static neo_status neo__heard_later(void *job, const void *answer) {
    const char *heard = (const char *)answer;
    const neo__cuda *d = *(neo__cuda *const *)job;
    if (heard[NEO__CUDA_HEARD]) return neo_fail(d->over.status, "%s", d->over.why);
    for (int i = 0; i < NEO__CUDA_HEARD; i++)
        NEO__CHECK(!heard[i], NEO_ERR_PEER,
                   "a recorded step: rank %d found an error in its own, and says which: here, too, "
                   "weights and states are as before",
                   i);
    return NEO_OK;
}
/* This rank's word, and the one behind it for what it passes on. */
struct neo__heard_told {
    const int64_t *heard;
    int64_t *word;
    template <int W> __device__ void at(int64_t) const {
        int64_t stop = word[0];
        for (int i = 0; i < NEO__CUDA_HEARD / 8; i++) stop |= heard[i];
        word[1] = stop != 0;
    }
};
/* See neo__device_order. The order of a rank's calls is that of its marks and waits on the host, so
   that nothing on a device waits for what has not been launched. */
static neo_status neo__cuda_order(neo__cuda *d, int what, void *event, int code) {
    const cudaEvent_t at = (cudaEvent_t)event;
    int64_t *heard = (int64_t *)(void *)d->device.heard;
    if (what == NEO__ORDER_MOVES) return NEO__CUDA_DO(d, cudaEventRecord(at, d->exchange));
    if (what == NEO__ORDER_MOVES_WAIT)
        return NEO__CUDA_DO(d, cudaStreamWaitEvent(d->exchange, at, 0));
    if (what == NEO__ORDER_OVER) {
        snprintf(d->over.why, sizeof d->over.why, "%s", (const char *)event);
        d->over.status = (neo_status)code;
        return __atomic_store_n(d->over.word, 1, __ATOMIC_RELEASE), NEO_OK;
    }
    if (what == NEO__ORDER_PASS_ON) {
        const neo__heard_told told = {heard, (int64_t *)event};
        return neo__cuda_exchange_each(d, d->exchange, told, 1, "exchange: pass on");
    }
    if (d->recording) NEO__TRY(neo__graph_pass(d));
    if (what == NEO__ORDER_CALLS) return NEO__CUDA_DO(d, cudaEventRecord(at, d->stream));
    NEO__CUDA_TRY(d, cudaStreamWaitEvent(d->stream, at, 0));
    if (!d->recording) return neo__cuda_event_wait(d, event);
    const neo__later later = {neo__heard_later, &d, sizeof d};
    int64_t *seen = (int64_t *)(void *)d->recording->answers + 2;
    const volatile int *over = d->device.watch ? d->over.word : NULL;
    return neo__graph_later<neo__heard_stop>(d, seen, NEO__CUDA_HEARD + 8, &later,
                                             "exchange: look", heard, over, seen);
}

template <class T> static void neo__cuda_swap(T &x, T &y) {
    const T was = x;
    x = y, y = was;
}
/* See neo__device_aside. A step that is being recorded knows nothing of it. */
static neo_status neo__cuda_aside(neo_device *device, void *event) {
    neo__cuda *d = (neo__cuda *)device;
    if (event) NEO__TRY(neo__cuda_enter(d));
    if (event) NEO__CUDA_TRY(d, cudaStreamWaitEvent(d->aside.stream, (cudaEvent_t)event, 0));
    neo__cuda_swap(d->stream, d->aside.stream);
    neo__cuda_swap(d->work, d->aside.work), neo__cuda_swap(d->work_bytes, d->aside.work_bytes);
    neo__cuda_swap(d->recording, d->aside.recording);
    neo__graph_let_pass(d);
    d->aside.on = event != NULL;
    return NEO_OK;
}

/* x op y of numbers of dtype D, as they lie in memory, in the arithmetic of neo__merge
   (neo_comm.h). */
template <neo_dtype D, class T> static __device__ T neo__cuda_merge(int reduce, T x, T y) {
    if constexpr (D == NEO_F32 || D == NEO_F16 || D == NEO_BF16) {
        const float a = neo__float_decode(D, &x), b = neo__float_decode(D, &y);
        const bool second = (reduce == 1 ? b > a : b < a) || b != b;
        T merged;
        neo__float_encode(D, reduce == 0 ? __fadd_rn(a, b) : second ? b : a, &merged, NULL);
        return merged;
    } else {
        if (reduce == 0) return (T)((unsigned long long)x + (unsigned long long)y);
        return reduce == 1 ? (x > y ? x : y) : (x < y ? x : y);
    }
}
/* The tree over pieces, of which neighbours of as many leaves merge. */
template <neo_dtype D, class number> struct neo__cuda_combine_job {
    const number *piece[NEO__COMBINE_PIECES];
    int16_t leaves[NEO__COMBINE_PIECES];
    int count, reduce;
    number *out;
    template <int W> __device__ void at(int64_t i) const {
        number sum[NEO__COMBINE_STACK];
        int held[NEO__COMBINE_STACK], depth = 0;
        for (int p = 0; p < count; p++) {
            number x = piece[p][i];
            int mine = leaves[p];
            for (; depth > 0 && held[depth - 1] == mine; mine *= 2)
                x = neo__cuda_merge<D>(reduce, sum[--depth], x);
            sum[depth] = x;
            held[depth++] = mine;
        }
        for (; depth > 1; depth--)
            sum[depth - 2] = neo__cuda_merge<D>(reduce, sum[depth - 2], sum[depth - 1]);
        out[i] = sum[0];
    }
};
template <neo_dtype D, class number>
static neo_status neo__cuda_combine_as(neo__cuda *d, const neo__combine_call *call) {
    neo__cuda_combine_job<D, number> job;
    job.count = call->count, job.reduce = call->reduce, job.out = (number *)call->out;
    for (int p = 0; p < call->count; p++) {
        job.piece[p] = (const number *)call->piece[p];
        job.leaves[p] = (int16_t)call->leaves[p];
    }
    return neo__cuda_exchange_each(d, call->stream, job, call->n, "a sum over ranks");
}
static neo_status neo__cuda_combine(neo__cuda *gpu, const neo__combine_call *call) {
    if (call->n == 0) return NEO_OK;
    switch (call->dtype) {
    case NEO_F32: return neo__cuda_combine_as<NEO_F32, float>(gpu, call);
    case NEO_F16: return neo__cuda_combine_as<NEO_F16, uint16_t>(gpu, call);
    case NEO_BF16: return neo__cuda_combine_as<NEO_BF16, uint16_t>(gpu, call);
    case NEO_I8: return neo__cuda_combine_as<NEO_I8, int8_t>(gpu, call);
    case NEO_U8: return neo__cuda_combine_as<NEO_U8, uint8_t>(gpu, call);
    case NEO_I32: return neo__cuda_combine_as<NEO_I32, int32_t>(gpu, call);
    case NEO_I64: return neo__cuda_combine_as<NEO_I64, int64_t>(gpu, call);
    default: break;
    }
    return neo_fail(NEO_ERR_UNSUPPORTED, "%s: no reduction of %s", gpu->device.name,
                    neo_dtype_name(call->dtype));
}

/* ---- >>cuda-wire ----
   Rows coded for a narrow wire: >>kernels-wire of neo_kernels.h has the layout, and the codes of
   numbers. */

/* x factor; a factor of 1 keeps a NaN as it is. */
static __device__ __forceinline__ float neo__cuda_times(float x, float factor) {
    return factor == 1.0f ? x : (float)neo__wire_times_warp(x, factor);
}
/* The f16 or bf16 of x factor, and back. */
static __device__ uint16_t neo__cuda_half(int wire, float x, float factor) {
    return wire == NEO_WIRE_F16
               ? neo__f16_from_f32(neo__wire_limit_warp(x, factor, NEO__F16_LARGEST))
               : neo__bf16_from_f32(neo__cuda_times(x, factor));
}
static __device__ float neo__cuda_half_at(int wire, uint16_t half) {
    return wire == NEO_WIRE_F16 ? neo__f32_from_f16(half) : neo__f32_from_bf16(half);
}
/* The scale of the numbers v of 16 threads. */
static __device__ float neo__cuda_block_scale(int wire, const float (&v)[8]) {
    int32_t largest = 0;
    NEO__UNROLL for (int k = 0; k < 8; k++) {
        const int32_t a = (int32_t)(__float_as_uint(v[k]) & 0x7FFFFFFFu);
        largest = NEO__MAX(largest, a);
    }
    return neo__wire_scale_warp(wire, neo__wire_top_warp(largest));
}
static __device__ uint32_t neo__cuda_code(int wire, float x, float scale) {
    if (!(scale == scale)) return 0;
    return (uint32_t)neo__wire_code_warp(wire, __fmul_rn(x, neo__wire_inverse_warp(scale)));
}
/* Sixteen threads code a block of a row, of up to 64 numbers: this one has v[k], number lane + k
   step. On wires with scales they are times the factor already, and a thread's numbers are those
   of a word. */
static __device__ void neo__cuda_put_block(int wire, float factor, char *to, const float (&v)[8],
                                           int cols, int step) {
    const int lane = threadIdx.x % 16;
    if (wire > NEO_WIRE_BF16) {
        const float scale = neo__cuda_block_scale(wire, v);
        const int bits = neo__wire_bits_warp(wire);
        uint32_t *out = (uint32_t *)(void *)to, word = 0;
        NEO__UNROLL for (int k = 0; k < 8; k++)
            if (k < 32 / bits) word |= neo__cuda_code(wire, v[k], scale) << k * bits;
        if (lane < step) out[1 + lane] = word;
        if (lane == 0) out[0] = __float_as_uint(scale);
        return;
    }
    NEO__UNROLL for (int k = 0; k < 4; k++) {
        const int i = lane + k * step;
        uint16_t *half = (uint16_t *)(void *)to + i;
        if (i < cols && wire == NEO_WIRE_F32)
            ((float *)(void *)to)[i] = neo__cuda_times(v[k], factor);
        else if (i < cols) *half = neo__cuda_half(wire, v[k], factor);
        else if (i == cols && i % 2 && wire != NEO_WIRE_F32) *half = 0; /* up to a whole word */
    }
}
NEO__GPU int neo__cuda_step(int wire, int cols) {
    const int codes = wire == NEO_WIRE_I4 ? 8 : 4;
    return wire > NEO_WIRE_BF16 ? (cols + codes - 1) / codes : 16;
}
static __global__ void neo__cuda_encode_blocks(const neo__wire_call call, int64_t blocks,
                                               int64_t each) {
    NEO__CUDA_EACH(b, blocks, 16) {
        const int64_t r = b / each, k = b - r * each, left = call.cols - k * NEO_WIRE_BLOCK;
        const int cols = (int)NEO__MIN(left, (int64_t)NEO_WIRE_BLOCK);
        const int lane = threadIdx.x % 16, step = neo__cuda_step(call.wire, cols);
        const float *x = (const float *)call.in + r * call.stride + k * NEO_WIRE_BLOCK;
        float v[8];
        NEO__UNROLL for (int p = 0; p < 8; p++) {
            const int i = lane + p * step;
            v[p] = lane < step && i < cols ? x[i] : 0.0f;
            if (call.wire > NEO_WIRE_BF16) v[p] = neo__cuda_times(v[p], call.factor);
        }
        char *to = (char *)call.out + (size_t)r * call.row_bytes;
        to += neo__code_bytes(call.wire, k * NEO_WIRE_BLOCK);
        neo__cuda_put_block(call.wire, call.factor, to, v, cols, step);
    }
}
/* Number i of a coded row of `cols`. */
static __device__ float neo__cuda_wire_at(int wire, const char *row, int64_t cols, int64_t i) {
    if (wire == NEO_WIRE_F32) return ((const float *)(const void *)row)[i];
    if (wire <= NEO_WIRE_BF16)
        return neo__cuda_half_at(wire, ((const uint16_t *)(const void *)row)[i]);
    const int bits = neo__wire_bits_warp(wire), at = (int)(i % NEO_WIRE_BLOCK);
    const int64_t first = i - at, left = NEO__MIN(cols - first, (int64_t)NEO_WIRE_BLOCK);
    const int words = neo__cuda_step(wire, (int)left);
    const uint32_t *in = (const uint32_t *)(const void *)(row + neo__code_bytes(wire, first));
    const uint32_t code = in[1 + at % words] >> at / words * bits & ((1u << bits) - 1u);
    return neo__wire_times_warp(neo__wire_value_warp(wire, code), __uint_as_float(in[0]));
}
struct neo__cuda_decode_job {
    neo__wire_call c;
    template <int W> __device__ void at(int64_t i) const {
        const int64_t r = i / c.cols, col = i - r * c.cols;
        const char *row = (const char *)c.in + (size_t)r * c.row_bytes;
        const neo__wire_call &call = c;
        const neo__floats<1> sum = neo__cuda_tree<1>(c.pieces, [&](int p) {
            const char *piece = row + (size_t)p * call.piece_bytes;
            const float x = neo__cuda_wire_at(call.wire, piece, call.cols, col);
            return neo__floats<1>{{neo__cuda_times(x, call.back)}};
        });
        ((float *)c.out)[r * c.stride + col] = sum.v[0];
    }
};
static neo_status neo__cuda_encode(neo__cuda *d, const neo__wire_call *call) {
    const int64_t each = (call->cols + NEO_WIRE_BLOCK - 1) / NEO_WIRE_BLOCK;
    const int64_t blocks = call->rows * each;
    return neo__cuda_exchange(d, call->stream, "coding of rows", neo__cuda_encode_blocks, blocks,
                              16, *call, blocks, each);
}
static neo_status neo__cuda_decode(neo__cuda *d, const neo__wire_call *call) {
    const neo__cuda_decode_job job = {*call};
    return neo__cuda_exchange_each(d, call->stream, job, call->rows * call->cols,
                                   "decoding of rows");
}

/* ---- >>cuda-rows ----
   Rows of a matrix to and from coded memory (neo__rows_call). Sixteen threads have a block of a
   row, each up to eight of its numbers. */
static __device__ float neo__cuda_rows_at(const neo__rows_call &c, const neo__rows_part &part,
                                          int64_t row, int cols, int i) {
    const char *from = c.coded + c.rows * part.before + row * part.stride + part.at;
    return neo__cuda_wire_at(part.wire, from, cols, i);
}
static __device__ float neo__cuda_rows_sum(const neo__rows_call &call, const neo__rows_block &block,
                                           int64_t row, int i) {
    const neo__rows_part *part = call.part + block.first;
    if (block.parts == 1) return neo__cuda_rows_at(call, *part, row, block.cols, i);
    float sum[NEO__ROWS_STACK];
    int depth = 0;
    for (int p = 0; p < block.parts; p++) {
        sum[depth++] = neo__cuda_rows_at(call, part[p], row, block.cols, i);
        for (int k = part[p].merges; k > 0; k--, depth--)
            sum[depth - 2] = __fadd_rn(sum[depth - 2], sum[depth - 1]);
    }
    return __fadd_rn(sum[0], 0.0f);
}
/* Round the numbers as a wire does: code and decode. */
static __device__ void neo__cuda_rows_round(int wire, float (&v)[8]) {
    const float scale = wire > NEO_WIRE_BF16 ? neo__cuda_block_scale(wire, v) : 0.0f;
    NEO__UNROLL for (int k = 0; k < 8; k++) {
        if (wire <= NEO_WIRE_BF16) {
            v[k] = neo__cuda_half_at(wire, neo__cuda_half(wire, v[k], 1.0f));
        } else {
            const int32_t code = (int32_t)neo__cuda_code(wire, v[k], scale);
            v[k] = neo__wire_times_warp(neo__wire_value_warp(wire, code), scale);
        }
    }
}
static __global__ void neo__cuda_rows_kernel(const neo__rows_call call) {
    const int lane = threadIdx.x % 16;
    NEO__CUDA_EACH(u, call.rows * call.blocks, 16) {
        const int64_t row = u / call.blocks, place = call.at ? call.at[row] : row;
        const neo__rows_block b = call.block[u - row * call.blocks];
        const int wire = call.encode ? call.part[b.first].wire : (int)NEO_WIRE_F32;
        const int step = neo__cuda_step(wire, b.cols);
        const int32_t length = b.lengths < 0 ? 1 : call.lengths[b.lengths * call.rows + row];
        float *x = call.matrix + row * call.stride + b.col, v[8];
        NEO__UNROLL for (int k = 0; k < 8; k++) {
            const int i = lane + k * step;
            v[k] = 0.0f;
            if (lane < step && i < b.cols)
                v[k] = call.encode  ? x[i]
                       : place >= 0 ? neo__cuda_rows_sum(call, b, place, i)
                                    : 0.0f;
            if (call.encode && length > 1) v[k] = __fdiv_rn(v[k], (float)length);
        }
        if (b.round != NEO_WIRE_F32) neo__cuda_rows_round(b.round, v);
        for (int p = 0; p < (call.encode && place >= 0 ? b.parts : 0); p++) {
            const neo__rows_part part = call.part[b.first + p];
            char *to = call.coded + call.rows * part.before + place * part.stride + part.at;
            neo__cuda_put_block(wire, 1.0f, to, v, b.cols, step);
        }
        NEO__UNROLL for (int k = 0; k < 4; k++)
            if (!call.encode && lane + k * step < b.cols)
                x[lane + k * step] = length > 1 ? __fdiv_rn(v[k], (float)length) : v[k];
    }
}
static neo_status neo__cuda_rows(neo__cuda *d, const neo__rows_call *call) {
    return neo__cuda_run(d, "rows", neo__cuda_rows_kernel, call->rows * call->blocks, 16, *call);
}

/* ---- >>cuda-tile ----
   Products of all kinds (matrices, attention, the interaction) are tiles of M x N sums, each one
   chain of fused multiply-adds over k in order, as on the CPU. A block of threads takes a tile:
   it brings K columns of the left operand and K rows of the right one into shared memory, both
   k-major, while it computes with those before; a thread adds to TM x TN sums in registers. Threads
   that add are rows of four, so that they read shared memory by 16 bytes. */
template <int M_, int N_, int K_, int TM_, int TN_> struct neo__cuda_tile {
    static constexpr int M = M_, N = N_, K = K_, TM = TM_, TN = TN_;
    static constexpr int BLOCKS = TM == 8 ? NEO__CUDA_TWO : 2; /* a bound for the registers */
    static constexpr int THREADS = M / TM * (N / TN);
    static constexpr int GM = TM < 4 ? TM : 4, GN = TN < 4 ? TN : 4; /* neighbours in registers */
    static constexpr int LOADS_A = M * K / THREADS, LOADS_B = N * K / THREADS;
    static_assert(M * K % THREADS == 0 && N * K % THREADS == 0 && TM % GM == 0 && TN % GN == 0,
                  "whole loads");
    struct __align__(16) shared {
        float a[K][M + 4], b[K][N + 4]; /* 4: columns of 8 rows fall in different banks */
    };
    /* Row and column in the tile of this thread's sums [i][.] and [.][j]. */
    NEO__GPU int row(int i) {
        return i / GM * (M * GM / TM) + (int)threadIdx.x / (N / TN) * GM + i % GM;
    }
    NEO__GPU int col(int j) {
        return j / GN * (N * GN / TN) + (int)threadIdx.x % (N / TN) * GN + j % GN;
    }
};
typedef neo__cuda_tile<128, 128, 8, 8, 8> neo__cuda_tile128;
typedef neo__cuda_tile<64, 64, 16, 4, 4> neo__cuda_tile64;
typedef neo__cuda_tile<32, 32, 16, 4, 4> neo__cuda_tile32;
typedef neo__cuda_tile<32, 4, 32, 1, 1> neo__cuda_tall; /* of few columns */
typedef neo__cuda_tile<4, 32, 32, 1, 1> neo__cuda_wide; /* of few rows */

/* COUNT elements of an operand per thread: f(i, k) for i < M, k from k0 on; K_FAST: neighbours in
   memory differ in k. Beyond `end` nothing is read. */
template <int M, int K, int COUNT, int THREADS, bool K_FAST, class F>
NEO__GPU void neo__cuda_fetch(float (&to)[COUNT], int64_t k0, int64_t end, const F &f) {
    NEO__UNROLL for (int e = 0; e < COUNT; e++) {
        const int x = (int)threadIdx.x + e * THREADS, i = K_FAST ? x / K : x % M;
        const int64_t k = k0 + (K_FAST ? x % K : x / M);
        to[e] = k < end ? f(i, k) : 0.0f;
    }
}
template <int M, int K, int COUNT, int THREADS, bool K_FAST>
NEO__GPU void neo__cuda_stage(float (*to)[M + 4], const float (&from)[COUNT]) {
    NEO__UNROLL for (int e = 0; e < COUNT; e++) {
        const int x = (int)threadIdx.x + e * THREADS;
        to[K_FAST ? x % K : x / M][K_FAST ? x / K : x % M] = from[e];
    }
}
/* sum[i][j] += a(row, k) b(col, k) for one k in shared memory. */
template <class T>
NEO__GPU void neo__cuda_chain(const typename T::shared &s, float (&sum)[T::TM][T::TN], int k) {
    float a[T::TM], b[T::TN];
    NEO__UNROLL for (int i = 0; i < T::TM; i += T::GM) {
        const neo__floats<T::GM> x = neo__cuda_load<T::GM>(&s.a[k][T::row(i)]);
        for (int w = 0; w < T::GM; w++) a[i + w] = x.v[w];
    }
    NEO__UNROLL for (int j = 0; j < T::TN; j += T::GN) {
        const neo__floats<T::GN> x = neo__cuda_load<T::GN>(&s.b[k][T::col(j)]);
        for (int w = 0; w < T::GN; w++) b[j + w] = x.v[w];
    }
    NEO__UNROLL for (int i = 0; i < T::TM; i++)
        NEO__UNROLL for (int j = 0; j < T::TN; j++) sum[i][j] = __fmaf_rn(a[i], b[j], sum[i][j]);
}
/* The sums of a tile go on over k in [begin, end): a(i, k) and b(j, k) are asked for i < M and
   j < N and give anything outside the matrix. All threads of the block call it. */
template <class T, bool A_K, bool B_K, class A, class B>
NEO__GPU void neo__cuda_chains(typename T::shared &s, float (&sum)[T::TM][T::TN], int64_t begin,
                               int64_t end, const A &a, const B &b) {
    float next_a[T::LOADS_A], next_b[T::LOADS_B];
    neo__cuda_fetch<T::M, T::K, T::LOADS_A, T::THREADS, A_K>(next_a, begin, end, a);
    neo__cuda_fetch<T::N, T::K, T::LOADS_B, T::THREADS, B_K>(next_b, begin, end, b);
    for (int64_t k = begin; k < end; k += T::K) {
        neo__cuda_stage<T::M, T::K, T::LOADS_A, T::THREADS, A_K>(s.a, next_a);
        neo__cuda_stage<T::N, T::K, T::LOADS_B, T::THREADS, B_K>(s.b, next_b);
        __syncthreads();
        neo__cuda_fetch<T::M, T::K, T::LOADS_A, T::THREADS, A_K>(next_a, k + T::K, end, a);
        neo__cuda_fetch<T::N, T::K, T::LOADS_B, T::THREADS, B_K>(next_b, k + T::K, end, b);
        if (end - k >= T::K) {
            NEO__UNROLL for (int i = 0; i < T::K; i++) neo__cuda_chain<T>(s, sum, i);
        } else { /* a term of zeros would turn a sum of -0 into +0 */
            for (int i = 0; i < (int)(end - k); i++) neo__cuda_chain<T>(s, sum, i);
        }
        __syncthreads();
    }
}

/* ---- >>cuda-gemm ----
   A block per tile of C. With leaves a block per tile and leaf: the leaves' sums go to the work
   memory, from which the tree is taken; C is cut so that they fit. What a product is cut into, and
   which tile computes it, changes no bit. */
struct neo__cuda_leaf_sums { /* of rows and columns of C: leaf[..] [row_count][cols] */
    float *sums;             /* NULL: there is one chain, and it goes to C */
    int64_t m0, m1, n0, n1;
};
template <int W>
NEO__GPU void neo__cuda_gemm_put(const neo__gemm_call &call, int64_t i, int64_t j,
                                 const neo__floats<W> &c) {
    const neo__gemm_finish &f = call.finish;
    neo__floats<W> z = {}, y = {}, out = c;
    if (f.backward) {
        if (neo__act_needs_z(f.act))
            z = neo__cuda_wide_load<W>(f.z, i * f.z_row + j, call.narrow_z);
        if (neo__act_needs_y(f.act))
            y = neo__cuda_wide_load<W>(f.y, i * f.y_row + j, call.narrow_y);
        for (int w = 0; w < W; w++)
            out.v[w] = neo__cuda_act_back(f.act, z.v[w], y.v[w], c.v[w]);
    } else if (f.y) {
        for (int w = 0; w < W; w++) y.v[w] = neo__cuda_act(f.act, c.v[w]);
        neo__cuda_wide_store<W>(f.y, i * f.y_row + j, call.narrow_y, y);
    } else {
        for (int w = 0; w < W; w++) out.v[w] = neo__cuda_act(f.act, c.v[w]);
    }
    neo__cuda_wide_store<W>(call.c, i * call.c_row + j, call.narrow_c, out);
}

/* A block's tile of C: its first row and column, its leaf and the k of its sums. */
template <class T> struct neo__cuda_gemm_tile {
    int64_t m0, n0, begin, end;
    int leaf;
    __device__ __forceinline__ neo__cuda_gemm_tile(const neo__gemm_call &g,
                                                   const neo__cuda_leaf_sums &part) {
        const int64_t cols = (part.n1 - part.n0 + T::N - 1) / T::N;
        m0 = part.m0 + blockIdx.x / cols * T::M;
        n0 = part.n0 + blockIdx.x % cols * T::N;
        leaf = (int)blockIdx.y;
        begin = part.sums ? neo__leaf_row(&g.leaves, leaf) : 0;
        end = part.sums ? neo__leaf_row(&g.leaves, leaf + 1) : g.k;
    }
    /* A chain begins with beta C, which may be bf16, a leaf's with 0. */
    __device__ __forceinline__ void load(const neo__gemm_call &g, const neo__cuda_leaf_sums &part,
                                         int narrow, float (&sum)[T::TM][T::TN]) const {
        if (part.sums || g.beta == 0.0f) return;
        for (int i = 0; i < T::TM; i++)
            for (int j = 0; j < T::TN; j++) {
                const int64_t m = m0 + T::row(i), n = n0 + T::col(j);
                if (m >= part.m1 || n >= part.n1) continue;
                sum[i][j] = __fmul_rn(g.beta, neo__cuda_wide_get(g.c, m * g.c_row + n, narrow));
            }
    }
    /* By way of shared memory: a loop that is not unrolled cannot find its sums in registers, and
       one that is would hold all activations for each of them. */
    __device__ __forceinline__ void store(const neo__gemm_call &g, const neo__cuda_leaf_sums &part,
                                          typename T::shared &s,
                                          const float (&sum)[T::TM][T::TN]) const {
        static_assert(T::THREADS * T::TN * sizeof(float) <= sizeof(typename T::shared), "a line");
        const int64_t rows = part.m1 - part.m0, width = part.n1 - part.n0;
        float *const line = &s.a[0][0] + threadIdx.x;
        __syncthreads();
        NEO__UNROLL for (int i = 0; i < T::TM; i++) {
            const int64_t m = m0 + T::row(i);
            NEO__UNROLL for (int j = 0; j < T::TN; j++) line[j * T::THREADS] = sum[i][j];
            NEO__NO_UNROLL for (int j = 0; j < T::TN; j++) {
                const int64_t n = n0 + T::col(j);
                const float c = line[j * T::THREADS];
                if (m >= part.m1 || n >= part.n1) continue;
                if (part.sums) part.sums[(leaf * rows + m - part.m0) * width + n - part.n0] = c;
                else if (!g.bias) neo__cuda_gemm_put<1>(g, m, n, {{c}});
                else {
                    const float bias = neo__cuda_wide_get(g.bias, n, g.narrow_bias);
                    neo__cuda_gemm_put<1>(g, m, n, {{__fadd_rn(c, bias)}});
                }
            }
        }
    }
};

/* A thread's elements of an operand for K columns k, as running addresses: COUNT of them, of which
   `here` has a bit for each that is inside the matrix. */
template <int M, int K, int COUNT, int THREADS, bool K_FAST> struct neo__cuda_operand {
    static_assert(THREADS % K == 0 && THREADS % M == 0, "a thread's elements are evenly apart");
    const float *at;
    int64_t apart, step;
    uint32_t here = 0;
    int k;
    __device__ __forceinline__ neo__cuda_operand(const float *from, int64_t row, int64_t col,
                                                 int64_t rows) {
        const int i = K_FAST ? (int)threadIdx.x / K : (int)threadIdx.x % M;
        k = K_FAST ? (int)threadIdx.x % K : (int)threadIdx.x / M;
        at = from + i * row + k * col;
        apart = K_FAST ? THREADS / K * row : THREADS / M * col, step = K * col;
        NEO__UNROLL for (int e = 0; e < COUNT; e++)
            if (i + (K_FAST ? e * (THREADS / K) : 0) < rows) here |= 1u << e;
    }
    /* The next ones; `left`: k from here on. */
    __device__ __forceinline__ void fetch(float (&to)[COUNT], int64_t left) {
        uint32_t in = here;
        if (left < K)
            NEO__UNROLL for (int e = 0; e < COUNT; e++)
                if (k + (K_FAST ? 0 : e * (THREADS / M)) >= left) in &= ~(1u << e);
        const float *from = at;
        NEO__UNROLL for (int e = 0; e < COUNT; e++, from += apart)
            to[e] = in >> e & 1u ? *from : 0.0f;
        at += step;
    }
};
/* One of two tiles in shared memory is filled while the other is read. */
template <class T, bool A_K, bool B_K>
static __global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    neo__cuda_gemm_kernel(const neo__gemm_call call, const neo__cuda_leaf_sums part) {
    __shared__ typename T::shared s[2];
    const neo__cuda_gemm_tile<T> tile(call, part);
    float sum[T::TM][T::TN] = {};
    tile.load(call, part, 0, sum);
    neo__cuda_operand<T::M, T::K, T::LOADS_A, T::THREADS, A_K> a(
        call.a + tile.m0 * call.a_row + tile.begin * call.a_k, call.a_row, A_K ? 1 : call.a_k,
        part.m1 - tile.m0);
    neo__cuda_operand<T::N, T::K, T::LOADS_B, T::THREADS, B_K> b(
        call.b + tile.n0 * call.b_col + tile.begin * call.b_k, call.b_col, B_K ? 1 : call.b_k,
        part.n1 - tile.n0);
    float next_a[T::LOADS_A], next_b[T::LOADS_B];
    int64_t left = tile.end - tile.begin;
    a.fetch(next_a, left), b.fetch(next_b, left);
    for (int turn = 0; left > 0; left -= T::K, turn ^= 1) {
        neo__cuda_stage<T::M, T::K, T::LOADS_A, T::THREADS, A_K>(s[turn].a, next_a);
        neo__cuda_stage<T::N, T::K, T::LOADS_B, T::THREADS, B_K>(s[turn].b, next_b);
        __syncthreads();
        a.fetch(next_a, left - T::K), b.fetch(next_b, left - T::K);
        if (left >= T::K) {
            NEO__UNROLL for (int i = 0; i < T::K; i++) neo__cuda_chain<T>(s[turn], sum, i);
        } else { /* a term of zeros would turn a sum of -0 into +0 */
            for (int i = 0; i < (int)left; i++) neo__cuda_chain<T>(s[turn], sum, i);
        }
    }
    tile.store(call, part, s[0], sum);
}
typedef void neo__cuda_gemm_kernel_type(const neo__gemm_call, const neo__cuda_leaf_sums);
/* Launch a kernel for tiles T: a block for each, and for each leaf. */
template <class T>
static neo_status neo__cuda_gemm_launch(neo__cuda *d, neo__cuda_gemm_kernel_type *kernel,
                                        const neo__gemm_call *g, const neo__cuda_leaf_sums *part) {
    const int64_t rows = (part->m1 - part->m0 + T::M - 1) / T::M;
    const int64_t cols = (part->n1 - part->n0 + T::N - 1) / T::N;
    const dim3 grid((unsigned)(rows * cols), part->sums ? (unsigned)g->leaves.count : 1u);
    return neo__cuda_launch(d, "gemm", kernel, {grid, T::THREADS}, *g, *part);
}
template <class T>
static neo_status neo__cuda_wide_launch(neo__cuda *d, const neo__gemm_call *g,
                                        const neo__cuda_leaf_sums *part) {
    neo__cuda_gemm_kernel_type *const kernel[2][2] = {
        {neo__cuda_gemm_kernel<T, false, false>, neo__cuda_gemm_kernel<T, false, true>},
        {neo__cuda_gemm_kernel<T, true, false>, neo__cuda_gemm_kernel<T, true, true>}};
    return neo__cuda_gemm_launch<T>(d, kernel[g->a_k == 1][g->b_k == 1], g, part);
}
/* ---- of bf16: see >>impl-bf16 ----
   A block of 32 k is in shared memory as f32; a thread has two chains for each of its sums, which
   add to it behind the block. Denormals are zeros; whether a result is one is decided after
   rounding. */
typedef neo__cuda_tile<64, 64, 32, 4, 4> neo__cuda_narrow64;
typedef neo__cuda_tile<16, 16, 32, 1, 1> neo__cuda_narrow16;
NEO__GPU float neo__cuda_flush(float x) {
    return neo__bits_f32(x) & 0x7F800000u ? x : neo__f32_bits(neo__bits_f32(x) & 0x80000000u);
}
/* Flush a result r of at most 2^-126. The exact sum may be smaller than its rounding: denormals
   have twice the last place of the numbers just below 2^-126. */
static __device__ float neo__cuda_flush_tiny(float a, float b, float sum, float r) {
    const double least = 0x1.ffffffp-127, sign = neo__bits_f32(r) >> 31 ? -1.0 : 1.0;
    if (fabsf(r) < 0x1p-126f) return neo__cuda_flush(r);
    const double x = sign * (double)a * (double)b, y = sign * (double)sum; /* exact */
    const double total = x + y, part = total - x;
    if (total < least || (total == least && (x - (total - part)) + (y - part) < 0.0))
        return neo__f32_bits(neo__bits_f32(r) & 0x80000000u);
    return r;
}
NEO__GPU float neo__cuda_narrow_fma(float a, float b, float sum) {
    const float r = __fmaf_rn(a, b, sum);
    return fabsf(r) > 0x1p-126f ? r : neo__cuda_flush_tiny(a, b, sum, r);
}
/* M rows of 32 k of an operand, those from `rows` and from `count` on zeros. */
template <int M, int THREADS>
NEO__GPU void neo__cuda_narrow_stage(float (*to)[M + 4], const uint16_t *from, int64_t row,
                                     int64_t k, int64_t rows, int64_t count) {
    for (int x = (int)threadIdx.x; x < 32 * M; x += THREADS) {
        const int i = k == 1 ? x / 32 : x % M,
                  at = k == 1 ? x % 32 : x / M; /* neighbours in memory */
        to[at][i] = i < rows && at < count
                        ? neo__cuda_flush(neo__f32_from_bf16(from[i * row + at * k]))
                        : 0.0f;
    }
}
template <class T>
NEO__GPU void neo__cuda_narrow_chain(const typename T::shared &s, float (&sum)[T::TM][T::TN],
                                     int k) {
    for (int i = 0; i < T::TM; i++)
        for (int j = 0; j < T::TN; j++)
            sum[i][j] = neo__cuda_narrow_fma(s.a[k][T::row(i)], s.b[k][T::col(j)], sum[i][j]);
}
template <class T>
static __global__ void __launch_bounds__(T::THREADS, T::TM == 1 ? 3 : 2)
    neo__cuda_narrow_kernel(const neo__gemm_call g, const neo__cuda_leaf_sums part) {
    __shared__ typename T::shared s;
    const neo__cuda_gemm_tile<T> tile(g, part);
    const int64_t m_left = part.m1 - tile.m0, n_left = part.n1 - tile.n0;
    const uint16_t *a = (const uint16_t *)(const void *)g.a + tile.m0 * g.a_row;
    const uint16_t *b = (const uint16_t *)(const void *)g.b + tile.n0 * g.b_col;
    float sum[T::TM][T::TN] = {};
    tile.load(g, part, g.narrow_c, sum);
    for (int64_t k = tile.begin; k < tile.end; k += 32) {
        const int64_t left = tile.end - k;
        float even[T::TM][T::TN] = {}, odd[T::TM][T::TN] = {};
        neo__cuda_narrow_stage<T::M, T::THREADS>(s.a, a + k * g.a_k, g.a_row, g.a_k, m_left, left);
        neo__cuda_narrow_stage<T::N, T::THREADS>(s.b, b + k * g.b_k, g.b_col, g.b_k, n_left, left);
        __syncthreads();
        for (int at = 0; at < 32; at += 2) {
            neo__cuda_narrow_chain<T>(s, even, at);
            neo__cuda_narrow_chain<T>(s, odd, at + 1);
        }
        __syncthreads();
        for (int i = 0; i < T::TM; i++)
            for (int j = 0; j < T::TN; j++) {
                const float both = neo__cuda_flush(__fadd_rn(even[i][j], odd[i][j]));
                sum[i][j] = neo__cuda_flush(__fadd_rn(neo__cuda_flush(sum[i][j]), both));
            }
    }
    tile.store(g, part, s, sum);
}

/* The largest tile of which there are enough for all processors. */
static neo_status neo__cuda_gemm_part(neo__cuda *gpu, const neo__gemm_call *g,
                                      const neo__cuda_leaf_sums *part) {
    const int64_t m = part->m1 - part->m0, n = part->n1 - part->n0;
    const int64_t leaves = part->sums ? g->leaves.count : 1;
    const int64_t large = ((m + 127) / 128) * ((n + 127) / 128) * leaves;
    if (g->narrow)
        return m > 32 && n > 32 ? neo__cuda_gemm_launch<neo__cuda_narrow64>(
                                      gpu, neo__cuda_narrow_kernel<neo__cuda_narrow64>, g, part)
                                : neo__cuda_gemm_launch<neo__cuda_narrow16>(
                                      gpu, neo__cuda_narrow_kernel<neo__cuda_narrow16>, g, part);
    if (n <= neo__cuda_tall::N && m > n) return neo__cuda_wide_launch<neo__cuda_tall>(gpu, g, part);
    if (m <= neo__cuda_wide::M) return neo__cuda_wide_launch<neo__cuda_wide>(gpu, g, part);
    return large >= gpu->processors ? neo__cuda_wide_launch<neo__cuda_tile128>(gpu, g, part)
                                  : neo__cuda_wide_launch<neo__cuda_tile64>(gpu, g, part);
}

/* C's part from the leaves' sums. */
struct neo__cuda_gemm_tree_job {
    neo__gemm_call g;
    neo__cuda_leaf_sums part;
    template <int W> __device__ void at(int64_t i) const {
        const int64_t width = part.n1 - part.n0, area = (part.m1 - part.m0) * width;
        const float *sums = part.sums + i;
        const neo__floats<1> c = neo__cuda_tree<1>(g.leaves.count, [sums, area](int leaf) {
            return neo__cuda_load<1>(sums + leaf * area);
        });
        neo__cuda_gemm_put<1>(g, part.m0 + i / width, part.n0 + i % width, c);
    }
};
/* The tree of a whole C, left to a launch that follows: then the work memory's last bytes are that
   launch's. */
struct neo__cuda_late_tree {
    neo__cuda_gemm_tree_job job;
    int64_t count; /* elements; 0: there is none */
    size_t bytes;
    template <class Shared> __device__ void run(Shared &, int block, int blocks) const {
        const int64_t first = (int64_t)block * NEO__CUDA_THREADS + threadIdx.x;
        for (int64_t i = first; i < count; i += (int64_t)blocks * NEO__CUDA_THREADS)
            job.at<1>(i);
    }
};
static neo_status neo__cuda_gemm_tree(neo__cuda *gpu, const neo__cuda_gemm_tree_job &job,
                                      int64_t area, neo__cuda_late_tree *late) {
    if (!late || area < job.g.m * job.g.n) return neo__cuda_each<1>(gpu, job, area, "gemm");
    late->job = job, late->count = area;
    return NEO_OK;
}
static neo_status neo__cuda_gemm_own(neo__cuda *gpu, const neo__gemm_call *call,
                                     neo__cuda_late_tree *late) {
    neo__cuda_leaf_sums part = {NULL, 0, call->m, 0, call->n};
    if (!call->tree || call->leaves.count <= 1) return neo__cuda_gemm_part(gpu, call, &part);
    const size_t bytes = gpu->work_bytes - (late ? late->bytes : 0);
    const int64_t room = (int64_t)(bytes / sizeof(float)) / call->leaves.count;
    const int64_t cols = NEO__MIN(call->n, room), rows = NEO__MIN(call->m, room / cols);
    part.sums = (float *)(void *)gpu->work;
    for (part.m0 = 0; part.m0 < call->m; part.m0 = part.m1)
        for (part.n0 = 0, part.m1 = NEO__MIN(part.m0 + rows, call->m); part.n0 < call->n;
             part.n0 = part.n1) {
            part.n1 = NEO__MIN(part.n0 + cols, call->n);
            NEO__TRY(neo__cuda_gemm_part(gpu, call, &part));
            const neo__cuda_gemm_tree_job job = {*call, part};
            const int64_t area = (part.m1 - part.m0) * (part.n1 - part.n0);
            NEO__TRY(neo__cuda_gemm_tree(gpu, job, area, late));
        }
    return NEO_OK;
}

/* ---- >>cuda-blas ----
   Large products by cuBLASLt, of f32 (as TF32, if neo_cuda_desc.tf32 is set) or of operands of
   bf16, with sums in f32. A row-major matrix is a column-major one transposed, so C^T = B^T A^T is
   asked for. The algorithm is the first that cuBLASLt advises and that does not split k, so that an
   element's sum over k has an order that depends on the algorithm alone. It is chosen by what does
   not depend on how the batch is dealt to ranks: where the rows of A may be the batch's, for
   NEO__CUDA_ROWS of them, whatever their number; of leaves, for NEO__CUDA_LEAVES of that size. So a
   row, or a leaf, has the same bits on any number of ranks, for as long as the device lives, and in
   every process with the same library and GPU. Of a transposed A, without leaves, k may be split
   where the parts add in f32 and in their order.

   With leaves every leaf is a product of its own; those of a size are one call. The sums stand in
   the work memory, NEO__CUDA_LEAVES of them, from which the tree is taken, and behind these the
   stack of a tree of more. C is cut in rows so that they fit, by V and not by the leaves here. */
typedef struct neo__cuda_shape { /* all that a call depends on but addresses */
    int64_t m, n, k, a_ld, b_ld, c_ld;
    int64_t aux_ld; /* of what the epilogue keeps or reads, bf16 as C; or 0 */
    int64_t count, a_step, b_step, c_step; /* products, one behind the other */
    int32_t a_turned, b_turned, beta, epilogue;
    uint32_t a_align, b_align, c_align;
    uint32_t used; /* 1 for operands of f32, 2 for those of bf16, 3 where C is bf16, too */
} neo__cuda_shape;
typedef struct neo__cuda_product {
    neo__cuda_shape shape;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    int found; /* 0: there is none that may be used */
} neo__cuda_product;
static neo_status neo__cuda_blas_result(neo__cuda *d, cublasStatus_t status, const char *what) {
    NEO__CHECK(status == CUBLAS_STATUS_SUCCESS, NEO_ERR_DEVICE, "%s: %s: %s", d->device.name, what,
               cublasLtGetStatusString(status));
    return NEO_OK;
}
#define NEO__CUDA_BLAS_DO(d, call) neo__cuda_blas_result(d, (call), #call)
#define NEO__CUDA_BLAS(d, call) NEO__TRY(NEO__CUDA_BLAS_DO(d, call))
static void neo__cuda_product_drop(neo__cuda_product *p) {
    if (p->matmul) (void)cublasLtMatmulDescDestroy(p->matmul);
    if (p->a) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)cublasLtMatrixLayoutDestroy(p->c);
    memset(p, 0, sizeof *p);
}

/* In cuBLASLt's words its A is our B, its rows are our columns. */
template <class V>
static neo_status neo__cuda_describe(neo__cuda *d, cublasLtMatmulDesc_t to,
                                     cublasLtMatmulDescAttributes_t which, V value) {
    return NEO__CUDA_BLAS_DO(d, cublasLtMatmulDescSetAttribute(to, which, &value, sizeof value));
}
template <class V>
static neo_status neo__cuda_prefer(neo__cuda *d, cublasLtMatmulPreference_t to,
                                   cublasLtMatmulPreferenceAttributes_t which, V value) {
    return NEO__CUDA_BLAS_DO(
        d, cublasLtMatmulPreferenceSetAttribute(to, which, &value, sizeof value));
}
static neo_status neo__cuda_lay(neo__cuda *d, cublasLtMatrixLayout_t *to, cudaDataType type,
                                int64_t rows, int64_t cols, int64_t ld, int64_t count,
                                int64_t step) {
    const int32_t batch = (int32_t)count;
    NEO__CUDA_BLAS(d, cublasLtMatrixLayoutCreate(to, type, (uint64_t)rows, (uint64_t)cols, ld));
    if (count == 1) return NEO_OK;
    NEO__CUDA_BLAS(d, cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                       &batch, sizeof batch));
    return NEO__CUDA_BLAS_DO(
        d, cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                            sizeof step));
}
static neo_status neo__cuda_product_describe(neo__cuda *gpu, neo__cuda_product *product) {
    const neo__cuda_shape *shape = &product->shape;
    const int64_t m = shape->m, n = shape->n, k = shape->k, count = shape->count;
    const cudaDataType type = shape->used == 1 ? CUDA_R_32F : CUDA_R_16BF;
    const cudaDataType c_type = shape->used == 3 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t compute =
        gpu->tf32 && shape->used == 1 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    NEO__CUDA_BLAS(gpu, cublasLtMatmulDescCreate(&product->matmul, compute, CUDA_R_32F));
    NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_TRANSA,
                                shape->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N));
    NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_TRANSB,
                                shape->a_turned ? CUBLAS_OP_N : CUBLAS_OP_T));
    NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                (cublasLtEpilogue_t)shape->epilogue));
    if (shape->epilogue & CUBLASLT_EPILOGUE_BIAS) /* advice may ask for one; calls set theirs */
        NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                    (const void *)gpu->blas_work));
    if (shape->aux_ld) {
        NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                    (const void *)gpu->blas_work));
        NEO__TRY(neo__cuda_describe(gpu, product->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                    shape->aux_ld));
    }
    NEO__TRY(neo__cuda_lay(gpu, &product->a, type, shape->b_turned ? k : n, shape->b_turned ? n : k,
                           shape->b_ld, count, shape->b_step));
    NEO__TRY(neo__cuda_lay(gpu, &product->b, type, shape->a_turned ? k : m, shape->a_turned ? m : k,
                           shape->a_ld, count, shape->a_step));
    return neo__cuda_lay(gpu, &product->c, c_type, n, m, shape->c_ld, count, shape->c_step);
}
static int neo__cuda_may_split(const neo__cuda_shape *s) { return !s->a_turned && !s->c_step; }
static neo_status neo__cuda_prefer_all(neo__cuda *d, cublasLtMatmulPreference_t to,
                                       const neo__cuda_shape *s) {
    NEO__TRY(neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                              (uint64_t)NEO__CUDA_BLAS_BYTES));
    NEO__TRY(neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                              (uint32_t)(neo__cuda_may_split(s)
                                             ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                             : CUBLASLT_REDUCTION_SCHEME_NONE)));
    NEO__TRY(neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->b_align));
    NEO__TRY(neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->a_align));
    NEO__TRY(neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->c_align));
    return neo__cuda_prefer(d, to, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->c_align);
}
/* It splits k otherwise than the preference allows. */
static int neo__cuda_splits(const cublasLtMatmulAlgo_t *algo, int may) {
    int32_t split = 1;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t bytes = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                             sizeof split, &bytes) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                             sizeof scheme, &bytes) != CUBLAS_STATUS_SUCCESS)
        return 1;
    if (may && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) return 0;
    return split > 1 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}
/* The algorithm that is advised for p's shape. */
static neo_status neo__cuda_advise(neo__cuda *gpu, neo__cuda_product *product) {
    enum { NEO__ADVICE = 16 };
    cublasLtMatmulHeuristicResult_t advice[NEO__ADVICE];
    cublasLtMatmulPreference_t prefer = NULL;
    int count = 0;
    NEO__CUDA_BLAS(gpu, cublasLtMatmulPreferenceCreate(&prefer));
    neo_status status = neo__cuda_prefer_all(gpu, prefer, &product->shape);
    if (status == NEO_OK &&
        cublasLtMatmulAlgoGetHeuristic(gpu->blas, product->matmul, product->a, product->b,
                                       product->c, product->c, prefer, NEO__ADVICE, advice,
                                       &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    (void)cublasLtMatmulPreferenceDestroy(prefer);
    for (int i = 0; i < count && !product->found; i++) {
        product->algo = advice[i].algo;
        product->found = advice[i].state == CUBLAS_STATUS_SUCCESS &&
                         !neo__cuda_splits(&product->algo, neo__cuda_may_split(&product->shape));
    }
    return status;
}
/* Describe p's shape, and give it the algorithm of its kind, if that can do it. */
static neo_status neo__cuda_choose(neo__cuda *gpu, neo__cuda_product *product) {
    cublasLtMatmulHeuristicResult_t can;
    neo__cuda_product any = *product;
    const neo__cuda_shape *s = &product->shape;
    if (s->c_step) { /* leaves one behind the other, wherever these are */
        any.shape.count = NEO__CUDA_LEAVES, any.shape.c_step = s->m * s->c_ld;
        any.shape.a_step = s->a_turned ? s->k : s->k * s->a_ld;
        any.shape.b_step = s->b_turned ? s->k : s->k * s->b_ld;
    } else if (s->a_turned) any.shape.m = NEO__CUDA_ROWS;
    neo_status status = neo__cuda_product_describe(gpu, &any);
    if (status == NEO_OK) status = neo__cuda_advise(gpu, &any);
    product->algo = any.algo, product->found = any.found;
    neo__cuda_product_drop(&any);
    if (status == NEO_OK) status = neo__cuda_product_describe(gpu, product);
    if (status == NEO_OK && product->found)
        product->found =
            cublasLtMatmulAlgoCheck(gpu->blas, product->matmul, product->a, product->b, product->c,
                                    product->c, &product->algo, &can) == CUBLAS_STATUS_SUCCESS &&
            can.workspaceSize <= NEO__CUDA_BLAS_BYTES;
    return status;
}
/* The remembered product of a shape, made where it is new; NULL: cuBLASLt has none. The table is
   searched from the shape's hash on; when it is full the product there makes room. */
static neo_status neo__cuda_product_of(neo__cuda *gpu, const neo__cuda_shape *shape,
                                       neo__cuda_product **product) {
    uint64_t h = 0;
    int64_t word[sizeof *shape / sizeof(int64_t)];
    memcpy(word, shape, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++) h = neo__mix64(h + (uint64_t)word[i]);
    neo__cuda_product *p = NULL;
    for (uint64_t i = 0; i < NEO__CUDA_PRODUCTS; i++) {
        p = &gpu->product[(h + i) % NEO__CUDA_PRODUCTS];
        if (!p->shape.used) break;
        if (memcmp(&p->shape, shape, sizeof *shape) != 0) continue;
        *product = p->found ? p : NULL;
        return NEO_OK;
    }
    if (p->shape.used && gpu->recording) NEO__TRY(neo__graph_flush(gpu)); /* not captured yet */
    neo__cuda_product_drop(p);
    p->shape = *shape;
    const neo_status status = neo__cuda_choose(gpu, p);
    if (status != NEO_OK) neo__cuda_product_drop(p);
    *product = p->found ? p : NULL; /* that there is none is remembered too */
    return status;
}

/* The largest alignment, up to 16 bytes, that all rows of a matrix have. */
static uint32_t neo__cuda_align(const float *p, int64_t ld, int narrow) {
    const int64_t bytes = ld * (narrow ? 2 : 4);
    uint32_t align = 16;
    while ((uintptr_t)p % align != 0 || bytes % align != 0) align /= 2;
    return align;
}
typedef struct neo__cuda_multiplication {
    neo__cuda_product *product;
    neo__cuda_shape shape; /* the product's */
    const float *a, *b, *bias, *aux;
    float *c;
    float beta;
    int32_t unused;
} neo__cuda_multiplication;
static neo_status neo__cuda_multiply_now(neo__cuda *gpu, const void *call) {
    const neo__cuda_multiplication *x = (const neo__cuda_multiplication *)call;
    const neo__cuda_product *p = x->product;
    const float one = 1.0f;
    if (x->bias)
        NEO__TRY(neo__cuda_describe(gpu, p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x->bias));
    if (x->aux)
        NEO__TRY(neo__cuda_describe(gpu, p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                    x->aux));
    return NEO__CUDA_BLAS_DO(
        gpu, cublasLtMatmul(gpu->blas, p->matmul, &one, x->b, p->a, x->a, p->b, &x->beta, x->c,
                            p->c, x->c, p->c, &p->algo, gpu->blas_work, NEO__CUDA_BLAS_BYTES,
                            gpu->stream));
}
/* The sum of a leaf goes with the one that was noted last, as two leaves of one call, where their
   shapes are alike, neither writes what the other reads or writes, and all steps from the one to
   the other go up: gradients of the weights of two layers. */
static neo_status neo__cuda_multiply_with_last(neo__cuda *gpu, neo__cuda_multiplication *call) {
    const neo__cuda_op *op = neo__graph_last(gpu);
    neo__cuda_multiplication both[2] = {*call, *call};
    neo__cuda_shape s = call->shape;
    if (!op || op->issue != neo__cuda_multiply_now || s.count != 1 || !s.c_step || s.a_turned ||
        s.b_turned)
        return NEO_OK;
    neo__graph_argument(gpu, op, 0, &both[0], sizeof both[0]);
    if (memcmp(&both[0].shape, &s, sizeof s) != 0) return NEO_OK;
    const int up = (uintptr_t)both[0].c < (uintptr_t)both[1].c;
    const neo__cuda_multiplication &low = both[!up], &high = both[up];
    const int64_t size = s.used == 1 ? 4 : 2;
    const auto apart = [&](const float *p, const float *q, int64_t ld, int64_t cols) {
        const int64_t reads = ((s.k - 1) * ld + cols) * size, writes = s.m * s.c_ld * 4;
        const neo__graph_span of_low = {(const char *)p, (char *)low.c, reads, writes};
        return of_low.apart({(const char *)q, (char *)high.c, reads, writes});
    };
    const auto step = [](const float *p, const float *q, int64_t each) {
        return (int64_t)((intptr_t)q - (intptr_t)p) / each;
    };
    s.count = 2, s.c_step = step(low.c, high.c, 4);
    s.a_step = step(low.a, high.a, size), s.b_step = step(low.b, high.b, size);
    if (s.a_step < 0 || s.b_step < 0 || !apart(low.a, high.a, s.a_ld, s.m) ||
        !apart(low.b, high.b, s.b_ld, s.n))
        return NEO_OK;
    neo__cuda_product *product = NULL;
    NEO__TRY(neo__cuda_product_of(gpu, &s, &product));
    if (!product || !neo__graph_last(gpu)) return NEO_OK; /* the notes may have run for its room */
    *call = low, call->product = product, call->shape = s;
    neo__graph_drop_last(gpu);
    return NEO_OK;
}
enum { NEO__CUDA_EPILOGUE_AUX = 128 }; /* the bit of epilogues that keep or read a matrix */
/* C = beta C + A B and the epilogue; *done is 0 if it is not for cuBLASLt. leaves: so many
   products, of k each, whose C are c_step apart; 0: one that is no leaf's. An epilogue that keeps
   or reads z has it in call->finish. */
static neo_status neo__cuda_multiply(neo__cuda *gpu, const neo__gemm_call *call, int epilogue,
                                     int leaves, int64_t c_step, int *done) {
    NEO__ZERO(neo__cuda_shape, s);
    s.m = call->m, s.n = call->n, s.k = call->k;
    s.a_turned = call->a_k == 1, s.b_turned = call->b_k == 1 && call->b_col != 1;
    s.a_ld = s.a_turned ? call->a_row : call->a_k, s.b_ld = s.b_turned ? call->b_col : call->b_k;
    s.c_ld = call->c_row;
    s.count = NEO__MAX(leaves, 1), s.c_step = c_step;
    if (leaves) s.a_step = s.k * call->a_k, s.b_step = s.k * call->b_k;
    s.beta = call->beta == 0.0f ? 0 : 1, s.epilogue = epilogue;
    s.a_align = neo__cuda_align(call->a, s.a_ld, call->narrow);
    s.b_align = neo__cuda_align(call->b, s.b_ld, call->narrow);
    s.c_align = neo__cuda_align(call->c, s.c_ld, call->narrow_c);
    if (epilogue & CUBLASLT_EPILOGUE_BIAS)
        s.c_align = NEO__MIN(s.c_align, neo__cuda_align(call->bias, 4, 0));
    const float *aux = epilogue & NEO__CUDA_EPILOGUE_AUX ? call->finish.z : NULL;
    if (aux) s.aux_ld = call->finish.z_row;
    s.used = call->narrow_c ? 3 : call->narrow ? 2 : 1;
    *done = 0;
    if (s.a_ld < (s.a_turned ? s.k : s.m) || s.b_ld < (s.b_turned ? s.k : s.n) || s.c_ld < s.n)
        return NEO_OK; /* one row, rows that overlap or run backwards */
    const float *bias = epilogue & CUBLASLT_EPILOGUE_BIAS ? call->bias : NULL;
    neo__cuda_multiplication x = {NULL, s, call->a, call->b, bias, aux, call->c, call->beta, 0};
    NEO__TRY(neo__cuda_multiply_with_last(gpu, &x));
    if (!x.product) NEO__TRY(neo__cuda_product_of(gpu, &s, &x.product));
    if (!x.product) return gpu->stats.own_products++, NEO_OK;
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_multiply_now, &x, sizeof x));
    *done = 1;
    return NEO_OK;
}

/* Bias and finish, element by element, where cuBLASLt did not apply them. */
struct neo__cuda_gemm_finish_job {
    neo__gemm_call g;
    const float *from; /* NULL: C itself */
    int64_t m0;        /* row of C of from's first */
    template <int W> __device__ void at(int64_t e) const {
        const int64_t i = m0 + e / g.n, j = e % g.n;
        neo__floats<W> c = neo__cuda_load<W>(from ? from + e : g.c + i * g.c_row + j);
        if (from && g.beta != 0.0f) {
            const neo__floats<W> old = neo__cuda_wide_load<W>(g.c, i * g.c_row + j, g.narrow_c);
            for (int w = 0; w < W; w++) c.v[w] = __fadd_rn(__fmul_rn(g.beta, old.v[w]), c.v[w]);
        }
        if (g.bias) neo__cuda_plus<W>(c, neo__cuda_wide_load<W>(g.bias, j, g.narrow_bias));
        neo__cuda_gemm_put<W>(g, i, j, c);
    }
    bool wide() const { /* four columns of a row lie together everywhere */
        const int64_t strides = g.n | g.c_row | (g.finish.y ? g.finish.y_row : 0) |
                                (g.finish.z ? g.finish.z_row : 0);
        return strides % 4 == 0 && neo__cuda_aligned(from, g.c, g.bias, g.finish.y, g.finish.z);
    }
};
/* Products that cuBLASLt rounds to bf16 itself: with a bias of bf16; with GELU_TANH, which is its
   GELU, beside z (C here, its `aux`) of bf16, or the gradient times its slope at such a z. Rows of
   z begin at multiples of 16 bytes. */
static neo_status neo__cuda_gemm_rounded(neo__cuda *gpu, const neo__gemm_call *from, int *done) {
    const neo__gemm_finish *f = &from->finish;
    const int gelu = f->act == NEO_ACT_GELU_TANH && from->beta == 0.0f;
    const int biased = from->bias ? (int)CUBLASLT_EPILOGUE_BIAS : 0;
    neo__gemm_call call = *from;
    int epilogue = 0;
    if (!from->narrow_c || (from->bias && !from->narrow_bias)) return NEO_OK;
    if (f->act == NEO_ACT_NONE && !f->y && !f->backward)
        epilogue = biased ? biased : (int)CUBLASLT_EPILOGUE_DEFAULT;
    else if (gelu && f->y && from->narrow_y && !f->backward) {
        epilogue = CUBLASLT_EPILOGUE_GELU_AUX | biased;
        call.c = f->y, call.c_row = f->y_row;
        call.finish.z = from->c, call.finish.z_row = from->c_row;
    } else if (gelu && f->backward && from->narrow_z && !from->bias)
        epilogue = CUBLASLT_EPILOGUE_DGELU;
    if (!epilogue || (epilogue & NEO__CUDA_EPILOGUE_AUX &&
                      (call.finish.z_row % 8 != 0 || !neo__cuda_aligned(call.finish.z))))
        return NEO_OK;
    return neo__cuda_multiply(gpu, &call, epilogue, 0, 0, done);
}
/* Without leaves. cuBLASLt adds a bias in f32. It rounds its sums to bf16 where C is, and nothing
   else is to be done; else these sums go to the work memory, as many rows at a time as that holds:
   it takes no bias of f32 then. */
static neo_status neo__cuda_gemm_blas(neo__cuda *gpu, const neo__gemm_call *g) {
    const neo__gemm_finish *f = &g->finish;
    int rounded = 0;
    NEO__TRY(neo__cuda_gemm_rounded(gpu, g, &rounded));
    if (rounded) return NEO_OK;
    const int relu = f->act == NEO_ACT_RELU && !f->backward && !f->y &&
                     (!g->bias || !g->narrow_bias);
    const int64_t room = (int64_t)(NEO__CUDA_WORK_BYTES / sizeof(float)) / g->n;
    const int64_t most = g->narrow_c ? NEO__MIN(room, g->m) : g->m;
    const int biased = g->bias && !g->narrow_c && !g->narrow_bias;
    const int epilogue = !g->narrow_c && relu ? biased ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                       : CUBLASLT_EPILOGUE_RELU
                         : biased             ? CUBLASLT_EPILOGUE_BIAS
                                              : CUBLASLT_EPILOGUE_DEFAULT;
    for (int64_t m0 = 0; m0 < g->m; m0 += most) {
        neo__gemm_call part = *g;
        int done = 0;
        part.m = NEO__MIN(most, g->m - m0), part.narrow_c = 0;
        part.a = neo__cuda_wide_at(g->a, m0 * g->a_row, g->narrow);
        memset(&part.finish, 0, sizeof part.finish);
        if (g->narrow_c) part.c = (float *)(void *)gpu->work, part.c_row = g->n, part.beta = 0.0f;
        NEO__TRY(neo__cuda_multiply(gpu, &part, epilogue, 0, 0, &done));
        if (!done && !g->narrow_c) return neo__cuda_gemm_own(gpu, g, NULL);
        part.bias = NULL;
        if (!done) NEO__TRY(neo__cuda_gemm_own(gpu, &part, NULL));
        neo__cuda_gemm_finish_job job = {*g, g->narrow_c ? part.c : NULL, m0};
        if (biased) job.g.bias = NULL;
        if (!g->narrow_c && !job.g.bias && !g->finish.y && (f->act == NEO_ACT_NONE || relu))
            continue;
        gpu->stats.own_epilogues += m0 == 0;
        NEO__TRY(neo__cuda_each(gpu, job, part.m * g->n, "gemm", job.wide()));
    }
    return NEO_OK;
}
/* Rows of C that are computed at a time by leaves; 0: not one. */
static int64_t neo__cuda_leaf_rows(const neo__gemm_call *g, int *depth) {
    const int groups = (g->leaves.shards + NEO__CUDA_LEAVES - 1) / NEO__CUDA_LEAVES;
    *depth = groups > 1 ? neo__tree_depth(groups) : 0;
    const int64_t slots = *depth + NEO__MIN(g->leaves.shards, (int)NEO__CUDA_LEAVES);
    const int64_t rows = (int64_t)(NEO__CUDA_LEAF_BYTES / sizeof(float)) / slots / g->n;
    return rows >= g->m ? g->m : rows >= 128 ? rows / 128 * 128 : rows / 4 * 4;
}
/* The products of leaves [first, first + count) of g into sums, rows of C by cuBLASLt where it can;
   leaves of as many rows as the one before are one call with it. */
static neo_status neo__cuda_leaf_products(neo__cuda *gpu, const neo__gemm_call *call, int first,
                                          int count, const neo__cuda_leaf_sums *sums) {
    const int64_t rows = sums->m1 - sums->m0;
    for (int i = 0, end; i < count; i = end) {
        const int64_t k0 = neo__leaf_row(&call->leaves, first + i);
        neo__cuda_leaf_sums to = *sums;
        neo__gemm_call part = *call;
        int done = 0;
        to.sums += i * rows * call->n;
        part.k = neo__leaf_row(&call->leaves, first + i + 1) - k0;
        for (end = i + 1; end < count; end++)
            if (neo__leaf_row(&call->leaves, first + end + 1) -
                    neo__leaf_row(&call->leaves, first + end) != part.k)
                break;
        part.a = neo__cuda_wide_at(call->a, sums->m0 * call->a_row + k0 * call->a_k, call->narrow);
        part.b = neo__cuda_wide_at(call->b, k0 * call->b_k, call->narrow);
        part.m = rows, part.c = to.sums, part.c_row = call->n;
        if (part.k > 0)
            NEO__TRY(neo__cuda_multiply(gpu, &part, CUBLASLT_EPILOGUE_DEFAULT, end - i,
                                        rows * call->n, &done));
        if (done) continue; /* else leaves are empty, or there is no algorithm */
        part.a = neo__cuda_wide_at(call->a, k0 * call->a_k, call->narrow);
        part.leaves.first += first + i, part.leaves.count = end - i;
        NEO__TRY(neo__cuda_gemm_part(gpu, &part, &to));
    }
    return NEO_OK;
}
/* A single leaf's sum is C. cuBLASLt is asked as for one of several: the bits are the same. */
static int neo__cuda_leaf_is_c(const neo__gemm_call *g) {
    const neo__gemm_finish *f = &g->finish;
    return g->leaves.count == 1 && g->c_row == g->n && !g->narrow_c && !f->y && !f->backward &&
           f->act == NEO_ACT_NONE && neo__cuda_aligned(g->c);
}
/* Groups of leaves are subtrees, which wait behind the leaves' sums unless there is one. */
static neo_status neo__cuda_gemm_blas_leaves(neo__cuda *gpu, const neo__gemm_call *call,
                                             neo__cuda_late_tree *late) {
    int depth;
    const int64_t most = neo__cuda_leaf_rows(call, &depth), room = most * call->n;
    const int all = NEO__MIN(call->leaves.shards, (int)NEO__CUDA_LEAVES);
    const int count = call->leaves.count;
    const int groups = (count + NEO__CUDA_LEAVES - 1) / NEO__CUDA_LEAVES;
    if (neo__cuda_leaf_is_c(call)) {
        const neo__cuda_leaf_sums c = {call->c, 0, call->m, 0, call->n};
        return neo__cuda_leaf_products(gpu, call, 0, 1, &c);
    }
    NEO__TRY(neo__cuda_reserve(gpu, (size_t)((all + depth) * room) * sizeof(float) +
                                        (late ? late->bytes : 0)));
    float *const sums = (float *)(void *)gpu->work, *const stack = sums + all * room;
    for (int64_t m0 = 0; m0 < call->m; m0 += most) {
        const neo__cuda_leaf_sums part = {sums, m0, NEO__MIN(m0 + most, call->m), 0, call->n};
        const int64_t area = (part.m1 - m0) * call->n;
        for (int i = 0, height = 0; i < groups; i++) {
            const int first = i * NEO__CUDA_LEAVES, top = height;
            neo__cuda_gemm_tree_job job = {*call, part};
            job.g.leaves.count = NEO__MIN(count - first, (int)NEO__CUDA_LEAVES);
            NEO__TRY(neo__cuda_leaf_products(gpu, call, first, job.g.leaves.count, &part));
            if (groups > 1) {
                memset(&job.g.finish, 0, sizeof job.g.finish);
                job.part.m0 = 0, job.part.m1 -= m0;
                job.g.c = stack + height * room, job.g.c_row = call->n;
            }
            NEO__TRY(neo__cuda_gemm_tree(gpu, job, area, groups > 1 ? NULL : late));
            const int merges = neo__tree_push(&height, i, groups);
            for (float *x = stack + top * room; x > stack + (top - merges) * room; x -= room)
                NEO__TRY(neo__cuda_add(gpu, x - room, x, area));
        }
        if (groups == 1) continue;
        const neo__cuda_gemm_finish_job job = {*call, stack, m0};
        NEO__TRY(neo__cuda_each(gpu, job, area, "gemm", job.wide()));
    }
    return NEO_OK;
}

/* A product that is worth a call of cuBLASLt: not by what depends on how many of the rows, or of
   the leaves, are here. The work memory holds rows of it. */
static int neo__cuda_is_large(const neo__gemm_call *g) {
    if (g->tree)
        return g->m >= 16 && g->n >= 16 && g->m * g->n >= 4096;
    if (g->narrow_c && g->n + 4 > (int64_t)(NEO__CUDA_WORK_BYTES / sizeof(float))) return 0;
    const double each = (double)g->n * (double)g->k;
    if (g->a_k == 1) return g->n >= 16 && each >= 1024.0;
    return g->m >= 16 && g->n >= 16 && (double)g->m * each >= 262144.0;
}
static neo_status neo__cuda_gemm_late(neo__cuda *d, const neo__gemm_call *call,
                                      neo__cuda_late_tree *late) {
    neo__gemm_call g = *call;
    if (g.m == 0 || g.n == 0) return NEO_OK;
    if (g.tree && g.leaves.count == 0) g.tree = 0, g.k = 0; /* zeros */
    if (g.tree) g.beta = 0.0f, g.bias = NULL;
    if (d->exact || g.k == 0) return neo__cuda_gemm_own(d, &g, late);
    const int large = neo__cuda_is_large(&g);
    int depth;
    if (!g.tree) return large ? neo__cuda_gemm_blas(d, &g) : neo__cuda_gemm_own(d, &g, NULL);
    /* A large C is work enough without many pieces. */
    g.leaves = neo__cuda_pieces(d, g.leaves, large ? NEO__MAX(1024, g.m * g.n / 256) : 256);
    return large && neo__cuda_leaf_rows(&g, &depth) ? neo__cuda_gemm_blas_leaves(d, &g, late)
                                                    : neo__cuda_gemm_own(d, &g, late);
}
static neo_status neo__cuda_gemm(neo__cuda *d, const neo__gemm_call *call) {
    return neo__cuda_gemm_late(d, call, NULL);
}

/* ---- >>cuda-columns ----
   Sums of columns: of a gradient's (a bias), of dy and dy z (a norm's). Rows of a leaf add in
   order, so a column of one is one chain: a warp takes 32 of them, with the next rows on their way
   in registers. A block has eight leaves of its columns, and adds them by the tree. Of more leaves
   these subtrees go to the work memory, [subtree][2][cols], and of a column's blocks the one that
   is the last to get there takes the tree of them: which one it is changes no sum. It is found by
   a counter, which that block leaves at 0 again.

   What else the gradients of a layer need, and what shares no memory with these sums, is computed
   by further blocks of the launch (`beside`): the tree of dW, the rows of dx. */
enum { NEO__COLUMN_LEAVES = NEO__CUDA_THREADS / 32 };
typedef struct neo__cuda_columns {
    const float *dy, *x, *stats; /* x: of the second sum */
    int64_t dy_row, x_row, cols;
    int centered;
    neo__leaf_cut leaves;
    int across, down;  /* blocks: for 32 columns each, and those behind; of subtrees */
    float *sums;       /* [subtree][2][cols] */
    uint32_t *arrived; /* [across] */
    float *sum, *dot; /* or NULL */
} neo__cuda_columns;
/* Kinds of dy, and of x with it. Of pairs a lane has two columns: a load of a warp is 128 bytes as
   of f32, and `dot` is the second column's sum. */
enum { NEO__COLUMNS_F32, NEO__COLUMNS_BF16, NEO__COLUMNS_PAIRS };
/* Rows [r, end) of a column, AHEAD at most: all loads before the first sum, and so no branches. All
   lanes of a warp are here: each loads the mean and the scale of one row, which fit no registers
   otherwise. */
template <int KIND, bool DOT, int AHEAD, bool ALL>
NEO__GPU void neo__cuda_columns_add(const neo__cuda_columns &job, int64_t column, int64_t r,
                                    int64_t end, float &sum, float &dot) {
    float dy[AHEAD], z[AHEAD], mean = 0.0f, scale = 0.0f;
    if (DOT) {
        const int64_t row = NEO__MIN(r + (int)threadIdx.x % AHEAD, end - 1);
        if (job.centered) mean = job.stats[2 * row];
        scale = job.stats[job.centered ? 2 * row + 1 : row];
    }
    NEO__UNROLL for (int u = 0; u < AHEAD; u++) {
        const int64_t row = ALL ? r + u : NEO__MIN(r + u, end - 1);
        const int64_t at = row * job.dy_row + column;
        dy[u] = KIND == NEO__COLUMNS_PAIRS ? job.dy[at / 2]
                                           : neo__cuda_wide_get(job.dy, at, KIND);
        if (DOT) z[u] = neo__cuda_wide_get(job.x, row * job.x_row + column, KIND);
    }
    NEO__UNROLL for (int u = 0; u < AHEAD; u++) {
        const bool in = ALL || r + u < end;
        const uint32_t pair = neo__bits_f32(dy[u]);
        if (KIND == NEO__COLUMNS_PAIRS) {
            sum = in ? __fadd_rn(sum, neo__f32_bits(pair << 16)) : sum;
            dot = in ? __fadd_rn(dot, neo__f32_bits(pair & 0xFFFF0000u)) : dot;
            continue;
        }
        sum = in ? __fadd_rn(sum, dy[u]) : sum;
        if (!DOT) continue;
        const float off = __fsub_rn(z[u], __shfl_sync(~0u, mean, u));
        const float more = __fmul_rn(off, __shfl_sync(~0u, scale, u));
        dot = in ? __fmaf_rn(dy[u], more, dot) : dot;
    }
}
struct neo__cuda_columns_shared {
    float sums[2][NEO__COLUMN_LEAVES][32];
    int last;
};
/* The columns from `at` on that are a block's, for its leaves; `down`: which they are. */
template <int KIND, bool DOT, int AHEAD>
NEO__GPU void neo__cuda_columns_leaves(const neo__cuda_columns &c, neo__cuda_columns_shared &s,
                                       int64_t at, int down) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    constexpr int SUMS = DOT || KIND == NEO__COLUMNS_PAIRS ? 2 : 1;
    const int64_t column = at + lane * (KIND == NEO__COLUMNS_PAIRS ? 2 : 1);
    const int64_t near = NEO__MIN(column, c.cols - (KIND == NEO__COLUMNS_PAIRS ? 2 : 1));
    const int first = down * NEO__COLUMN_LEAVES, leaf = first + warp;
    float sum = 0.0f, dot = 0.0f;
    if (leaf < c.leaves.count) {
        int64_t r = neo__leaf_row(&c.leaves, leaf);
        const int64_t end = neo__leaf_row(&c.leaves, leaf + 1);
        for (; end - r >= AHEAD; r += AHEAD)
            neo__cuda_columns_add<KIND, DOT, AHEAD, true>(c, near, r, end, sum, dot);
        if (r < end) neo__cuda_columns_add<KIND, DOT, AHEAD, false>(c, near, r, end, sum, dot);
    }
    s.sums[0][warp][lane] = sum, s.sums[1][warp][lane] = dot;
    __syncthreads();
    if (warp < SUMS && column < c.cols) {
        const int here = NEO__MIN((int)NEO__COLUMN_LEAVES, c.leaves.count - first);
        const auto part = [&](int i) { return neo__cuda_load<1>(&s.sums[warp][i][lane]); };
        float *const whole = DOT && warp ? c.dot : c.sum;
        const float all = neo__cuda_tree<1>(here, part).v[0];
        const int64_t to = DOT ? column : column + warp, row = 2 * (int64_t)down + DOT * warp;
        if (c.down > 1) c.sums[row * c.cols + to] = all;
        else if (whole) whole[to] = all;
    }
    __syncthreads();
}
/* One of the blocks of the sums. AHEAD: rows whose numbers registers have room for. */
template <int KIND, bool DOT, int AHEAD = DOT ? 16 : 32>
NEO__GPU void neo__cuda_columns_block(const neo__cuda_columns &c, neo__cuda_columns_shared &s,
                                      int block) {
    constexpr int WIDE = KIND == NEO__COLUMNS_PAIRS ? 64 : 32;
    const int across = block % c.across;
    const int64_t first = WIDE * (int64_t)across, step = WIDE * (int64_t)c.across;
    for (int64_t at = first; at < c.cols; at += step)
        neo__cuda_columns_leaves<KIND, DOT, AHEAD>(c, s, at, block / c.across);
    if (c.down == 1 || !neo__cuda_is_last(c.arrived + across, c.down, &s.last)) return;
    for (int64_t at = first; at < c.cols; at += step) {
        const int sum = (int)threadIdx.x / WIDE;
        const int64_t column = at + threadIdx.x % WIDE, apart = 2 * c.cols;
        float *const to = sum > DOT ? NULL : sum ? c.dot : c.sum;
        const float *from = c.sums + sum * c.cols + column;
        const auto part = [=](int p) { return neo__floats<1>{{__ldcg(from + p * apart)}}; };
        if (to && column < c.cols) to[column] = neo__cuda_tree<1>(c.down, part).v[0];
    }
}
template <int KIND, bool DOT, class Beside>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, /* registers for all loads */
                                         KIND || DOT ? 2 : NEO__CUDA_TWO)
    neo__cuda_columns_kernel(const neo__cuda_columns c, const Beside beside) {
    __shared__ neo__cuda_columns_shared s;
    const int blocks = c.across * c.down, block = (int)blockIdx.x;
    if (block < blocks) neo__cuda_columns_block<KIND, DOT>(c, s, block);
    else beside.run(s, block - blocks, (int)gridDim.x - blocks);
}
/* The bytes of work memory that the sums take. */
static size_t neo__cuda_columns_bytes(const neo__cuda_columns *c) {
    return c->down > 1 ? neo__cuda_up((size_t)c->down * 2 * (size_t)c->cols * sizeof(float), 16)
                       : 0;
}
enum { NEO__COLUMN_COUNTERS = (NEO__CUDA_HEARD_AT - NEO__CUDA_ARRIVED_AT) / 4 };
/* How the sums are cut, a block having so `wide` columns; and those bytes, 16 more at least. */
static size_t neo__cuda_columns_cut(neo__cuda *gpu, neo__cuda_columns *c, int wide) {
    const int64_t most = NEO__COLUMN_COUNTERS;
    c->leaves = neo__cuda_pieces(gpu, c->leaves, 128);
    c->across = (int)NEO__MIN((c->cols + wide - 1) / wide, most);
    c->down = NEO__MAX((c->leaves.count + NEO__COLUMN_LEAVES - 1) / NEO__COLUMN_LEAVES, 1);
    c->arrived = (uint32_t *)(void *)(gpu->result + NEO__CUDA_ARRIVED_AT);
    return neo__cuda_columns_bytes(c) + 16;
}
/* The sums, at the end of the work memory, and so many blocks beside them. */
template <int KIND, bool DOT, class Beside>
static neo_status neo__cuda_columns_run(neo__cuda *gpu, neo__cuda_columns c, size_t bytes,
                                        const Beside &beside, unsigned more) {
    c.sums = (float *)(void *)(gpu->work + neo__cuda_up(gpu->work_bytes - bytes, 16));
    return neo__cuda_launch(gpu, "column_sums", neo__cuda_columns_kernel<KIND, DOT, Beside>,
                            {(unsigned)(c.across * c.down) + more}, c, beside);
}
/* The sums for the bias come last: a norm's backward takes those that were just noted. */
static neo_status neo__cuda_linear_grads(neo__cuda *d, const neo__linear_grads_call *call) {
    const neo__column_sums_call *dbias = &call->dbias;
    const int biased = dbias->to && dbias->cols > 0;
    const bool pairs = dbias->narrow && dbias->cols % 2 == 0 && dbias->from_row % 2 == 0 &&
                       (uintptr_t)dbias->from % 4 == 0;
    NEO__ZERO(neo__cuda_columns, c);
    NEO__ZERO(neo__cuda_late_tree, late);
    if (biased) {
        c.dy = dbias->from, c.dy_row = dbias->from_row;
        c.cols = dbias->cols, c.leaves = dbias->leaves, c.sum = dbias->to;
        late.bytes = neo__cuda_columns_cut(d, &c, pairs ? 64 : 32);
        NEO__TRY(neo__cuda_reserve(d, 2 * late.bytes));
    }
    if (call->dx.c) NEO__TRY(neo__cuda_gemm(d, &call->dx));
    if (call->dw.c) NEO__TRY(neo__cuda_gemm_late(d, &call->dw, biased ? &late : NULL));
    if (!biased) return NEO_OK;
    const auto run =
        pairs            ? neo__cuda_columns_run<NEO__COLUMNS_PAIRS, false, neo__cuda_late_tree>
        : dbias->narrow  ? neo__cuda_columns_run<NEO__COLUMNS_BF16, false, neo__cuda_late_tree>
                         : neo__cuda_columns_run<NEO__COLUMNS_F32, false, neo__cuda_late_tree>;
    return run(d, c, late.bytes, late,
               late.count ? neo__cuda_blocks(d, late.count, NEO__CUDA_THREADS) : 0);
}

/* ---- >>cuda-norm ----
   A row is a half-warp's: 16 lanes are a vector, and run the CPU's kernel; or a warp's, in
   registers. */
enum { NEO__HALVES = NEO__CUDA_THREADS / 16 }; /* half-warps of a block */
NEO__GPU void neo__cuda_norm_row(const neo__norm_call &c, int64_t i, float *stats) {
    const float *x = c.x + i * c.x_row;
    float mean = 0.0f;
    const float scale = neo__vec_norm_stats_warp(x, c.eps, c.centered, &mean, c.cols);
    if (c.centered) *stats++ = mean;
    *stats = scale;
    if (!c.narrow_y)
        neo__vec_norm_apply_warp(x, c.weight, c.bias, mean, scale, c.y + i * c.y_row, c.cols);
    for (int64_t j = threadIdx.x % 16; c.narrow_y && j < c.cols; j += 16) {
        const float z = __fmul_rn(__fsub_rn(x[j], mean), scale), w = c.weight ? c.weight[j] : 1.0f;
        const float y = __fmaf_rn(z, w, c.bias ? c.bias[j] : 0.0f);
        neo__cuda_wide_put(c.y, i * c.y_row + j, 1, y);
    }
}
/* Threads for a row. One of 512, 768 or 1024 columns is a warp's: its half-warps take blocks of 256
   in turn, which add up as in neo__vec_norm_stats_warp. Number u of a lane lies `at` columns behind
   its first. Loads are on their way together, before sums and stores. */
enum { NEO__NORM_KEPT = 32 }; /* numbers of a lane */
static __host__ __device__ int neo__cuda_norm_lanes(const neo__norm_call &c) {
    return c.cols > 256 && c.cols <= 1024 && c.cols % 256 == 0 ? 32 : 16;
}
#define NEO__NORM_EACH(u, at)                                                                      \
    NEO__UNROLL for (int u = 0, at = 0; u < NEO__NORM_KEPT; u++, at = u / 16 * 512 + u % 16 * 16)
/* The sum of a row's terms, 0 where it has no column. */
template <class F> NEO__GPU float neo__cuda_norm_sum(const F &term) {
    const bool second = threadIdx.x & 16;
    float sum = 0.0f;
    NEO__UNROLL for (int b = 0; b < NEO__NORM_KEPT; b += 16) {
        float part = 0.0f;
        NEO__UNROLL for (int u = b; u < b + 16; u++) part = __fadd_rn(part, term(u));
        part = neo__tree16_warp(part);
        const float other = __shfl_xor_sync(~0u, part, 16);
        sum = __fadd_rn(__fadd_rn(sum, second ? other : part), second ? part : other);
    }
    return sum;
}
/* The sum of f(column) over a row, by a half-warp, in the order of the CPU's kernels. */
template <class F> NEO__GPU float neo__cuda_norm_blocks(int64_t cols, const F &f) {
    float sum = 0.0f;
    for (int64_t at = 0; at < cols; at += NEO__BLOCK) {
        const int64_t end = NEO__MIN(at + NEO__BLOCK, cols);
        float part = 0.0f;
        for (int64_t j = at + threadIdx.x % 16; j < end; j += 16) part = __fadd_rn(part, f(j));
        sum = __fadd_rn(sum, neo__tree16_warp(part));
    }
    return sum;
}
NEO__GPU float neo__cuda_bf16_round(float x) { return neo__f32_from_bf16(neo__bf16_from_f32(x)); }
/* Rows of x or, BACK, of dx. A sum of two tensors beside them is computed with them: see
   neo__cuda_norm_after, neo__cuda_norm_before, neo__cuda_norm_onto. With c.narrow_x all but
   weights and stats are addresses of bf16, and what is rounded on its way without these is rounded
   here. */
template <bool BACK> struct neo__cuda_norm_rows {
    neo__norm_call c;
    float *sum; /* NULL; or forward x, to which `more` is added first, backward dx is added to it */
    const float *more; /* NULL; or backward, of bf16, [rows][cols], added to dx */
    uint16_t *narrow; /* NULL; or backward [rows][cols], the sum or, without one, dx in bf16 */
    __device__ void run(int block, int blocks) const {
        const int64_t thread = (int64_t)block * NEO__CUDA_THREADS + threadIdx.x;
        const int64_t threads = (int64_t)blocks * NEO__CUDA_THREADS;
        const int first = (int)threadIdx.x % 16 + ((int)threadIdx.x & 16) * 16;
        const int lanes = neo__cuda_norm_lanes(c), each = c.centered ? 2 : 1;
        if (lanes == 16)
            for (int64_t i = thread / 16; i < c.rows; i += threads / 16) {
                if (!c.narrow_x) whole(i, c.stats + i * each);
                else if (BACK) half_back(i, c.stats + i * each);
                else half_forward(i, c.stats + i * each);
            }
        else
            NEO__NO_UNROLL for (int64_t i = thread / 32; i < c.rows; i += threads / 32) {
                if (BACK) back(i, first, (int)c.cols - first, c.stats + i * each);
                else forward(i, first, (int)c.cols - first, c.stats + i * each);
            }
    }
    /* Row i by the CPU's kernels. */
    __device__ __forceinline__ void whole(int64_t i, float *stats) const {
        float *const to = sum + i * c.cols;
        const float *add = BACK ? c.dx + i * c.dx_row : more + i * c.cols;
        if (BACK)
            neo__vec_norm_backward_warp(c.x + i * c.x_row, c.weight, c.dy + i * c.dy_row, stats,
                                        c.centered, c.dx + i * c.dx_row, c.cols);
        if (sum || narrow) {
            __syncwarp(neo__mask_warp());
            for (int64_t j = threadIdx.x % 16; j < c.cols; j += 16) {
                const float all = sum ? __fadd_rn(to[j], add[j]) : add[j];
                if (sum) to[j] = all;
                if (BACK && narrow) narrow[i * c.cols + j] = neo__bf16_from_f32(all);
            }
            __syncwarp(neo__mask_warp());
        }
        if (!BACK) neo__cuda_norm_row(c, i, stats);
    }
    /* Row i of bf16 by a half-warp. */
    __device__ __forceinline__ void half_forward(int64_t i, float *stats) const {
        const int64_t x0 = i * c.x_row, sum0 = i * c.cols, lane = threadIdx.x % 16;
        const auto x = [&](int64_t j) { return neo__cuda_wide_get(c.x, x0 + j, 1); };
        for (int64_t j = lane; sum && j < c.cols; j += 16)
            neo__cuda_wide_put(sum, sum0 + j, 1,
                               __fadd_rn(x(j), neo__cuda_wide_get(more, sum0 + j, 1)));
        const float all = c.centered ? neo__cuda_norm_blocks(c.cols, x) : 0.0f;
        const float mean = __fdiv_rn(all, (float)c.cols);
        const float squares = neo__cuda_norm_blocks(c.cols, [&](int64_t j) {
            const float d = __fsub_rn(x(j), mean);
            return __fmul_rn(d, d);
        });
        const float square = __fadd_rn(__fdiv_rn(squares, (float)c.cols), c.eps);
        const float scale = __fdiv_rn(1.0f, __fsqrt_rn(square));
        if (lane == 0 && c.centered) *stats++ = mean;
        if (lane == 0) *stats = scale;
        for (int64_t j = lane; j < c.cols; j += 16)
            neo__cuda_wide_put(c.y, i * c.y_row + j, 1,
                               __fmaf_rn(__fmul_rn(__fsub_rn(x(j), mean), scale),
                                         c.weight ? c.weight[j] : 1.0f,
                                         c.bias ? c.bias[j] : 0.0f));
    }
    __device__ __forceinline__ void half_back(int64_t i, const float *stats) const {
        const float at_mean = c.centered ? stats[0] : 0.0f, scale = stats[c.centered ? 1 : 0];
        const auto z = [&](int64_t j) {
            return __fmul_rn(__fsub_rn(neo__cuda_wide_get(c.x, i * c.x_row + j, 1), at_mean),
                             scale);
        };
        const auto g = [&](int64_t j) {
            return __fmul_rn(neo__cuda_wide_get(c.dy, i * c.dy_row + j, 1),
                             c.weight ? c.weight[j] : 1.0f);
        };
        const float all = neo__cuda_norm_blocks(c.cols, g);
        const float all_z =
            neo__cuda_norm_blocks(c.cols, [&](int64_t j) { return __fmul_rn(g(j), z(j)); });
        const float mean = c.centered ? __fdiv_rn(all, (float)c.cols) : 0.0f;
        const float mean_z = __fdiv_rn(all_z, (float)c.cols);
        for (int64_t j = threadIdx.x % 16; j < c.cols; j += 16) {
            float dx = __fmul_rn(scale, __fmaf_rn(-z(j), mean_z, __fsub_rn(g(j), mean)));
            if (more)
                dx = __fadd_rn(neo__cuda_bf16_round(dx),
                               neo__cuda_wide_get(more, i * c.cols + j, 1));
            neo__cuda_wide_put(c.dx, i * c.dx_row + j, 1, dx);
        }
    }
    /* A lane's numbers of a row from `from` on, of which `cols` are left, from memory and to it. A
       loop for each kind, so that no load waits for a look at it. */
    __device__ __forceinline__ void get(float (&v)[NEO__NORM_KEPT], const float *p, int64_t from,
                                        int cols) const {
        if (c.narrow_x)
            NEO__NORM_EACH(u, at)
                v[u] = u / 16 * 512 < cols ? neo__cuda_wide_get(p, from + at, 1) : 0.0f;
        else NEO__NORM_EACH(u, at) v[u] = u / 16 * 512 < cols ? p[from + at] : 0.0f;
    }
    __device__ __forceinline__ void put(const float (&v)[NEO__NORM_KEPT], float *p, int64_t from,
                                        int cols, int half) const {
        if (half)
            NEO__NORM_EACH(u, at) {
                if (u / 16 * 512 < cols) neo__cuda_wide_put(p, from + at, 1, v[u]);
            }
        else NEO__NORM_EACH(u, at) if (u / 16 * 512 < cols) p[from + at] = v[u];
    }
    /* Row i in registers; `cols` are left from this lane's first on. */
    __device__ __forceinline__ void forward(int64_t i, int first, int cols, float *stats) const {
        const int64_t own = i * c.cols + first;
        const float *w = c.weight + first, *b = c.bias + first;
        float v[NEO__NORM_KEPT], mean = 0.0f;
        const auto in = [cols](int u) { return u / 16 * 512 < cols; };
        get(v, c.x, i * c.x_row + first, cols);
        if (sum && c.narrow_x)
            NEO__NORM_EACH(u, at)
                v[u] = in(u) ? neo__cuda_bf16_round(__fadd_rn(
                                   v[u], neo__cuda_wide_get(more, own + at, 1))) : 0.0f;
        else if (sum)
            NEO__NORM_EACH(u, at) v[u] = in(u) ? __fadd_rn(v[u], more[own + at]) : 0.0f;
        if (c.centered)
            mean = __fdiv_rn(neo__cuda_norm_sum([&](int u) { return v[u]; }), (float)c.cols);
        const float squares = neo__cuda_norm_sum([&](int u) {
            const float d = __fsub_rn(v[u], mean);
            return in(u) ? __fmul_rn(d, d) : 0.0f;
        });
        const float square = __fadd_rn(__fdiv_rn(squares, (float)c.cols), c.eps);
        const float scale = __fdiv_rn(1.0f, __fsqrt_rn(square));
        if (first == 0 && c.centered) stats[0] = mean, stats[1] = scale;
        if (first == 0 && !c.centered) stats[0] = scale;
        if (sum) put(v, sum, own, cols, c.narrow_x);
        NEO__NORM_EACH(u, at) {
            const float z = __fmul_rn(__fsub_rn(v[u], mean), scale);
            const float weight = c.weight && in(u) ? w[at] : 1.0f;
            v[u] = __fmaf_rn(z, weight, c.bias && in(u) ? b[at] : 0.0f);
        }
        put(v, c.y, i * c.y_row + first, cols, c.narrow_y);
    }
    __device__ __forceinline__ void back(int64_t i, int first, int cols, const float *stats) const {
        const float *w = c.weight + first;
        const int64_t own = i * c.cols + first;
        const float at_mean = c.centered ? stats[0] : 0.0f, scale = stats[c.centered ? 1 : 0];
        const auto in = [cols](int u) { return u / 16 * 512 < cols; };
        float z[NEO__NORM_KEPT], g[NEO__NORM_KEPT];
        get(g, c.dy, i * c.dy_row + first, cols);
        get(z, c.x, i * c.x_row + first, cols);
        if (c.weight) NEO__NORM_EACH(u, at) g[u] = in(u) ? __fmul_rn(g[u], w[at]) : 0.0f;
        NEO__UNROLL for (int u = 0; u < NEO__NORM_KEPT; u++)
            z[u] = in(u) ? __fmul_rn(__fsub_rn(z[u], at_mean), scale) : 0.0f;
        const float all = neo__cuda_norm_sum([&](int u) { return g[u]; });
        const float all_z = neo__cuda_norm_sum([&](int u) { return __fmul_rn(g[u], z[u]); });
        const float mean = c.centered ? __fdiv_rn(all, (float)c.cols) : 0.0f;
        const float mean_z = __fdiv_rn(all_z, (float)c.cols);
        NEO__UNROLL for (int u = 0; u < NEO__NORM_KEPT; u++)
            g[u] = __fmul_rn(scale, __fmaf_rn(-z[u], mean_z, __fsub_rn(g[u], mean)));
        if (more) {
            get(z, more, own, cols);
            NEO__UNROLL for (int u = 0; u < NEO__NORM_KEPT; u++)
                g[u] = __fadd_rn(neo__cuda_bf16_round(g[u]), z[u]);
        }
        NEO__NORM_EACH(u, at) z[u] = sum && in(u) ? sum[own + at] : 0.0f;
        put(g, c.dx, i * c.dx_row + first, cols, c.narrow_x);
        if (sum) NEO__NORM_EACH(u, at) if (in(u)) sum[own + at] = __fadd_rn(z[u], g[u]);
        if (narrow)
            NEO__NORM_EACH(u, at) {
                if (in(u))
                    narrow[own + at] = neo__bf16_from_f32(sum ? __fadd_rn(z[u], g[u]) : g[u]);
            }
    }
};
template <bool BACK>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, 2)
    neo__cuda_norm_kernel(const neo__cuda_norm_rows<BACK> job) {
    job.run((int)blockIdx.x, (int)gridDim.x);
}
/* A norm's backward, and gradients of biases that go with it: sums that were noted before. */
enum { NEO__NORM_SUMS = 2 };
struct neo__cuda_norm_with {
    neo__cuda_norm_rows<true> rows;
    neo__cuda_columns sums[NEO__NORM_SUMS];
    int count;
};
template <int KIND> struct neo__cuda_norm_beside : neo__cuda_norm_with {
    __device__ void run(neo__cuda_columns_shared &s, int block, int blocks) const {
        NEO__NO_UNROLL for (int i = 0; i < count; i++) {
            const int of_sum = sums[i].across * sums[i].down;
            if (block < of_sum) {
                neo__cuda_columns_block<KIND, false, 16>(sums[i], s, block); /* 32 would spill */
                return;
            }
            block -= of_sum, blocks -= of_sum;
        }
        rows.run(block, blocks);
    }
};
/* Rows of numbers of `size` bytes, as memory that is written. */
static neo__graph_span neo__cuda_rows_span(const void *p, int64_t rows, int64_t row, int64_t cols,
                                           int64_t size = 4) {
    const int64_t bytes = p && rows > 0 ? ((rows - 1) * row + cols) * size : 0;
    return {NULL, (char *)(uintptr_t)p, 0, bytes};
}
/* The span shares no memory with what the call reads or writes, but for its x or dx at `but`. */
static bool neo__cuda_norm_apart(const neo__norm_call *c, const neo__graph_span &p,
                                 const float *but) {
    const auto span = neo__cuda_rows_span;
    const int64_t stats = c->centered ? 2 : 1, y_bytes = c->narrow_y ? 2 : 4;
    const int64_t bytes = c->narrow_x ? 2 : 4;
    const neo__graph_span with[] = {
        span(c->x == but ? NULL : c->x, c->rows, c->x_row, c->cols, bytes),
        span(c->y, c->rows, c->y_row, c->cols, y_bytes),
        span(c->dy, c->rows, c->dy_row, c->cols, bytes),
        span(c->dx == but ? NULL : c->dx, c->rows, c->dx_row, c->cols, bytes),
        span(c->stats, c->rows, stats, stats, 4),
        span(c->weight, 1, 0, c->cols, 4),
        span(c->dweight, 1, 0, c->cols, 4),
        span(c->bias, 1, 0, c->cols, 4),
        span(c->dbias, 1, 0, c->cols, 4)};
    for (const neo__graph_span &one : with)
        if (!p.apart(one)) return false;
    return true;
}
/* Memory that a sum of columns of numbers of `size` bytes reads. */
static neo__graph_span neo__cuda_columns_span(const neo__cuda_columns &c, int64_t size) {
    return neo__cuda_rows_span(c.dy, neo__leaf_row(&c.leaves, c.leaves.count), c.dy_row, c.cols,
                               size);
}
/* The sum x += y of `count` elements that was noted last goes with the norm of x. */
static void neo__cuda_norm_after(neo__cuda *d, neo__cuda_norm_rows<false> *job) {
    const neo__cuda_op *op = neo__graph_last(d);
    neo__cuda_add_job add;
    int64_t count;
    const int half = job->c.narrow_x;
    if (!op || (op->kernel != (const void *)neo__cuda_each_kernel<neo__cuda_add_job, 4> &&
                op->kernel != (const void *)neo__cuda_each_kernel<neo__cuda_add_job, 1>))
        return;
    neo__graph_argument(d, op, 0, &add, sizeof add);
    neo__graph_argument(d, op, 1, &count, sizeof count);
    const int64_t bytes = half ? 2 : 4;
    if (add.x != job->c.x || count != job->c.rows * job->c.cols || job->c.x_row != job->c.cols ||
        add.narrow != half ||
        !neo__cuda_norm_apart(&job->c, neo__cuda_rows_span(add.x, 1, 0, count, bytes), add.x) ||
        !neo__cuda_norm_apart(&job->c, neo__cuda_rows_span(add.y, 1, 0, count, bytes), add.x))
        return;
    job->sum = add.x, job->more = add.y;
    neo__graph_drop_last(d);
}
/* The last note, of a norm's backward, in *with; *size: bytes of a number that its sums add, or 0.
   Returns where the note has its rows, or NULL: it is another's. */
static void *neo__cuda_norm_noted(neo__cuda *gpu, neo__cuda_norm_with *with, int *size) {
    const neo__cuda_op *op = neo__graph_last(gpu);
    const auto is = [op](auto kernel) { return op && op->kernel == (const void *)kernel; };
    typedef neo__cuda_norm_beside<NEO__COLUMNS_F32> wide;
    typedef neo__cuda_norm_beside<NEO__COLUMNS_PAIRS> pairs;
    with->count = *size = 0;
    if (is(neo__cuda_columns_kernel<NEO__COLUMNS_F32, true, wide>) ||
        is(neo__cuda_columns_kernel<NEO__COLUMNS_BF16, true, wide>))
        *size = 4;
    if (is(neo__cuda_columns_kernel<NEO__COLUMNS_F32, true, pairs>) ||
        is(neo__cuda_columns_kernel<NEO__COLUMNS_BF16, true, pairs>))
        *size = 2;
    if (*size) neo__graph_argument(gpu, op, 1, with, sizeof *with);
    else if (!is(neo__cuda_norm_kernel<true>)) return NULL;
    else neo__graph_argument(gpu, op, 0, &with->rows, sizeof with->rows);
    return gpu->recording->arguments + op->at + op->argument[*size ? 1 : 0];
}
/* x += y, where y is the dx that was noted last; or, y NULL, `narrow` becomes the bf16 of x, such a
   sum or dx: 1 if that note does it. */
static int neo__cuda_norm_before(neo__cuda *gpu, float *x, const float *y, int64_t count,
                                 uint16_t *narrow) {
    neo__cuda_norm_with with;
    int size;
    void *const noted = neo__cuda_norm_noted(gpu, &with, &size);
    if (!noted) return 0;
    neo__cuda_norm_rows<true> *const job = &with.rows;
    const neo__norm_call *c = &job->c;
    const neo__graph_span from = neo__cuda_rows_span(x, 1, 0, count);
    const neo__graph_span to = narrow ? neo__cuda_rows_span(narrow, 1, 0, count, 2) : from;
    if (count != c->rows * c->cols || c->narrow_x || job->more ||
        !neo__cuda_norm_apart(c, to, narrow ? NULL : y))
        return 0;
    for (int i = 0; i < with.count; i++)
        if (!to.apart(neo__cuda_columns_span(with.sums[i], size)) ||
            !to.apart(neo__cuda_rows_span(with.sums[i].sum, 1, 0, with.sums[i].cols)))
            return 0;
    if (narrow) {
        const float *made = job->sum ? job->sum : c->dx_row == c->cols ? c->dx : NULL;
        if (made != x || job->narrow || !from.apart(to)) return 0;
        job->narrow = narrow;
    } else {
        if (job->sum || c->dx != y || c->dx_row != c->cols || x == y) return 0;
        job->sum = x;
    }
    memcpy(noted, job, sizeof *job);
    return 1;
}
/* dx += y, where dx of bf16 is what was noted last: 1 if that note does it. */
static int neo__cuda_norm_onto(neo__cuda *gpu, const float *dx, const float *y, int64_t count) {
    neo__cuda_norm_with with;
    int size;
    void *const noted = neo__cuda_norm_noted(gpu, &with, &size);
    if (!noted) return 0;
    neo__cuda_norm_rows<true> *const job = &with.rows;
    const neo__norm_call *c = &job->c;
    const neo__graph_span more = neo__cuda_rows_span(y, 1, 0, count, 2);
    if (!c->narrow_x || c->dx != dx || c->dx_row != c->cols || count != c->rows * c->cols ||
        job->more || !neo__cuda_norm_apart(c, more, NULL))
        return 0;
    for (int i = 0; i < with.count; i++)
        if (!more.apart(neo__cuda_rows_span(with.sums[i].sum, 1, 0, with.sums[i].cols))) return 0;
    job->more = y;
    memcpy(noted, job, sizeof *job);
    return 1;
}
/* The notes of `kernel` before a norm's backward go with it where they are sums of columns and
   nothing else, and where neither writes what the other reads or writes. */
static void neo__cuda_norm_take(neo__cuda *gpu, const neo__cuda_columns *own, const void *kernel,
                                int64_t size, neo__cuda_norm_with *with) {
    for (int counters = own->across; with->count < NEO__NORM_SUMS;) {
        const neo__cuda_op *op = neo__graph_last(gpu);
        neo__cuda_columns c;
        neo__cuda_late_tree late;
        if (!op || op->kernel != kernel) return;
        neo__graph_argument(gpu, op, 0, &c, sizeof c);
        neo__graph_argument(gpu, op, 1, &late, sizeof late);
        if (late.count || counters + c.across > NEO__COLUMN_COUNTERS ||
            !neo__cuda_norm_apart(&with->rows.c, neo__cuda_columns_span(c, size), NULL) ||
            !neo__cuda_norm_apart(&with->rows.c, neo__cuda_rows_span(c.sum, 1, 0, c.cols), NULL))
            return;
        for (int i = 0; i < with->count; i++) { /* nor may the order of two of them count */
            const neo__graph_span to = neo__cuda_rows_span(c.sum, 1, 0, c.cols),
                                  of = neo__cuda_rows_span(with->sums[i].sum, 1, 0,
                                                           with->sums[i].cols);
            if (!to.apart(of) || !to.apart(neo__cuda_columns_span(with->sums[i], size)) ||
                !of.apart(neo__cuda_columns_span(c, size)))
                return;
        }
        c.arrived = own->arrived + counters;
        counters += c.across;
        with->sums[with->count++] = c;
        neo__graph_drop_last(gpu);
    }
}
/* The sums for a norm's weights, its rows, and what goes with them. OWN: kind of these sums. */
template <int OWN, int KIND>
static neo_status neo__cuda_norm_back(neo__cuda *gpu, const neo__cuda_columns *own,
                                      const neo__cuda_norm_rows<true> &rows, unsigned blocks) {
    const auto alone = neo__cuda_columns_kernel<KIND, false, neo__cuda_late_tree>;
    NEO__ZERO(neo__cuda_norm_beside<KIND>, with);
    with.rows = rows;
    neo__cuda_norm_take(gpu, own, (const void *)alone, KIND == NEO__COLUMNS_F32 ? 4 : 2, &with);
    size_t bytes = neo__cuda_columns_bytes(own) + 16;
    for (int i = 0; i < with.count; i++) bytes += neo__cuda_columns_bytes(&with.sums[i]);
    NEO__TRY(neo__cuda_reserve(gpu, bytes));
    char *at = gpu->work + neo__cuda_up(gpu->work_bytes - bytes, 16) + neo__cuda_columns_bytes(own);
    for (int i = 0; i < with.count; i++) {
        with.sums[i].sums = (float *)(void *)at;
        at += neo__cuda_columns_bytes(&with.sums[i]);
        blocks += (unsigned)(with.sums[i].across * with.sums[i].down);
    }
    return neo__cuda_columns_run<OWN, true>(gpu, *own, bytes, with, blocks);
}
static neo_status neo__cuda_norm(neo__cuda *d, const neo__norm_call *call) {
    const int lanes = neo__cuda_norm_lanes(*call);
    if (!call->backward) {
        neo__cuda_norm_rows<false> job = {*call, NULL, NULL, NULL};
        neo__cuda_norm_after(d, &job);
        return neo__cuda_run(d, "norm", neo__cuda_norm_kernel<false>, call->rows, lanes, job);
    }
    const neo__cuda_norm_rows<true> job = {*call, NULL, NULL, NULL};
    const int64_t rows = call->dx ? call->rows : 0;
    if (call->dweight || call->dbias) {
        NEO__ZERO(neo__cuda_columns, c);
        float *const dx = call->dx;
        const bool beside =
            rows > 0 &&
            neo__cuda_norm_apart(call,
                                 neo__cuda_rows_span(dx, rows, call->dx_row, call->cols,
                                                     call->narrow_x ? 2 : 4), dx);
        const unsigned blocks =
            beside ? neo__cuda_blocks(d, rows, NEO__CUDA_THREADS / lanes) : 0;
        const neo__cuda_op *op = neo__graph_last(d);
        c.dy = call->dy, c.dy_row = call->dy_row, c.x = call->x, c.x_row = call->x_row;
        c.stats = call->stats, c.centered = call->centered;
        c.cols = call->cols, c.leaves = call->leaves, c.sum = call->dbias, c.dot = call->dweight;
        (void)neo__cuda_columns_cut(d, &c, 32);
        const auto pairs = neo__cuda_columns_kernel<NEO__COLUMNS_PAIRS, false, neo__cuda_late_tree>;
        const bool paired = op && op->kernel == (const void *)pairs;
        const auto run = call->narrow_x
                             ? paired ? neo__cuda_norm_back<NEO__COLUMNS_BF16, NEO__COLUMNS_PAIRS>
                                      : neo__cuda_norm_back<NEO__COLUMNS_BF16, NEO__COLUMNS_F32>
                         : paired ? neo__cuda_norm_back<NEO__COLUMNS_F32, NEO__COLUMNS_PAIRS>
                                  : neo__cuda_norm_back<NEO__COLUMNS_F32, NEO__COLUMNS_F32>;
        NEO__TRY(run(d, &c, job, blocks));
        if (beside) return NEO_OK; /* else dx comes after them: it may be dy */
    }
    return neo__cuda_run(d, "norm", neo__cuda_norm_kernel<true>, rows, lanes, job);
}

/* ---- >>cuda-embedding ----
   Ids are checked first; what writes looks whether one was bad, so the host need not wait in
   between. Backward: positions are sorted by id, stably, so that the occurrences of a row lie
   together in order. A warp takes 32 vectors of columns of one row of the table and walks them: a
   chain per leaf, and the tree over the leaves that have any. A leaf without adds +0 to every sum
   on the CPU; no sum that began at +0 is -0, so leaving it out changes no bit. */
typedef unsigned long long neo__cuda_word; /* what atomics of 64 bits take */
#define NEO__CUDA_NONE (~(neo__cuda_word)0)

/* The least i that is bad, kept as its complement: 0 where none is. */
NEO__GPU void neo__cuda_is_bad(neo__cuda_word *bad, int64_t i) {
    atomicMax(bad, ~(neo__cuda_word)i);
}
/* Checks ids; key: also writes what a sort takes, and no first position of any row. */
static __global__ void neo__cuda_ids_kernel(const neo__embedding_call c, uint32_t *key,
                                            uint32_t *position, int32_t *first,
                                            neo__cuda_word *bad) {
    NEO__CUDA_EACH(i, c.count, 1) {
        const int64_t id = neo__jagged_id(c.ids, c.is_i32, i);
        if (id < 0 || id >= c.rows) neo__cuda_is_bad(bad, i);
        if (!key) continue;
        key[i] = (uint32_t)id;
        position[i] = (uint32_t)i;
    }
    if (key) NEO__CUDA_EACH(row, c.rows, 1) first[row] = -1;
}

/* Keep the id that is outside, which may be written over before the host sees it, and stop the
   recorded step. */
NEO__GPU void neo__cuda_ids_stop(const neo__embedding_call &c, neo__embedding_found *found,
                                 int *stop) {
    found->bad = ~found->bad;
    if (found->bad == NEO__CUDA_NONE) return;
    found->id = neo__jagged_id(c.ids, c.is_i32, (int64_t)found->bad);
    if (stop) *stop = 1;
}
/* The rows; `checks`: ids are checked here, in a recorded step: its error leaves anything. */
template <int W>
static __global__ void neo__cuda_embedding_kernel(const neo__embedding_call c, int checks,
                                                  neo__cuda_word *bad,
                                                  const neo__graph_answer answer) {
    __shared__ int last;
    if (!checks && *bad) return;
    const int lane = (int)threadIdx.x % 32;
    NEO__CUDA_EACH(i, c.count, 32) {
        const int64_t id = neo__jagged_id(c.ids, c.is_i32, i);
        if (checks && (id < 0 || id >= c.rows)) {
            if (lane == 0) neo__cuda_is_bad(bad, i);
            continue;
        }
        const float *from = c.from + id * c.from_row;
        for (int64_t j = lane * W; j < c.dim; j += 32 * W)
            neo__cuda_store<W>(c.to + i * c.to_row + j, neo__cuda_load<W>(from + j));
    }
    neo__graph_finish<neo__cuda_ids_stop>(answer, &last, c, (neo__embedding_found *)(void *)bad);
}

/* first[row]: where in the sorted keys the row begins, or -1. */
static __global__ void neo__cuda_firsts_kernel(const uint32_t *key, int64_t count, int32_t *first,
                                               const neo__cuda_word *bad) {
    if (*bad) return;
    NEO__CUDA_EACH(i, count, 1)
        if (i == 0 || key[i] != key[i - 1]) first[key[i]] = (int32_t)i;
}
typedef struct neo__cuda_occurrences {
    const uint32_t *key, *position; /* sorted */
    const int32_t *first;
    neo__cuda_word *bad;
} neo__cuda_occurrences;

/* The last i in [low, high) with a(i) <= x, or low; a does not decrease. */
template <class I, class A> NEO__GPU I neo__cuda_last(I low, I high, int64_t x, A a) {
    while (low + 1 < high) {
        const I middle = low + (high - low) / 2;
        if (a(middle) <= x) low = middle;
        else high = middle;
    }
    return low;
}
/* The same from 0 on of COUNT numbers x(e), side by side: none waits for another's loads. */
template <int COUNT, class X, class A>
NEO__GPU void neo__cuda_last_each(int (&last)[COUNT], int high, X x, A a) {
    int half = 1;
    while (half < high) half *= 2;
    NEO__UNROLL for (int e = 0; e < COUNT; e++) last[e] = 0;
    while ((half /= 2) > 0)
        NEO__UNROLL for (int e = 0; e < COUNT; e++) {
            const int next = last[e] + half;
            if (next < high && a(next) <= x(e)) last[e] = next;
        }
}
/* The same by a whole warp, which looks at 32 places at a time. */
template <class A>
NEO__GPU int64_t neo__cuda_last_warp(int64_t low, int64_t high, int64_t x, A a) {
    const int lane = threadIdx.x % 32;
    while (low + 1 < high) {
        const int64_t step = (high - low + 31) / 32, place = low + lane * step;
        const bool up = lane == 0 || (place < high && a(place) <= x);
        low += (31 - __clz((int)__ballot_sync(0xFFFFFFFFu, up))) * step;
        high = NEO__MIN(low + step, high);
    }
    return low;
}

enum { NEO__TOKENS_AHEAD = 8 }; /* rows of a sum that are on their way */
/* The whole sum of columns [col, col + W) of a row. */
template <int W>
static __device__ neo__floats<W> neo__cuda_embedding_sum(
    const neo__embedding_call &call, const neo__cuda_occurrences &ids, uint32_t row, int64_t col) {
    neo__cuda_parts<W> parts;
    neo__floats<W> sum = {};
    int leaf = 0;
    uint32_t leaf_end = 0;
    const int count = (int)call.count; /* below 2^31, as rows are */
    int i = count ? ids.first[row] : -1;
    for (int here = NEO__TOKENS_AHEAD; i >= 0 && here == NEO__TOKENS_AHEAD; i += here) {
        neo__floats<W> x[NEO__TOKENS_AHEAD];
        uint32_t at[NEO__TOKENS_AHEAD];
        here = 0;
        NEO__UNROLL for (int u = 0; u < NEO__TOKENS_AHEAD; u++) {
            const int next = NEO__MIN(i, count - 1 - u) + u;
            here += i < count - u && ids.key[next] == row; /* keys are sorted */
            at[u] = ids.position[next];
        }
        NEO__UNROLL for (int u = 0; u < NEO__TOKENS_AHEAD; u++)
            x[u] = neo__cuda_read<W>(call.from + at[u] * call.from_row + col);
        NEO__UNROLL for (int u = 0; u < NEO__TOKENS_AHEAD; u++) {
            if (u >= here) break;
            if (at[u] >= leaf_end) {
                if (leaf_end) parts.push(leaf, sum);
                leaf = neo__cuda_last(leaf, (int)call.leaves.count, at[u],
                                      [&call](int k) { return neo__leaf_row(&call.leaves, k); });
                leaf_end = (uint32_t)neo__leaf_row(&call.leaves, leaf + 1);
                sum = {};
            }
            neo__cuda_plus<W>(sum, x[u]);
        }
    }
    if (!leaf_end) return sum;
    parts.push(leaf, sum);
    return parts.total();
}
template <int W>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, 3)
    neo__cuda_embedding_back_kernel(const neo__embedding_call c, const neo__cuda_occurrences o,
                                    const neo__graph_answer answer) {
    __shared__ int last;
    const int64_t parts = (c.dim + 32 * W - 1) / (32 * W);
    if (*o.bad == 0) NEO__CUDA_EACH(i, c.rows * parts, 32) {
        const int64_t row = i / parts, col = i % parts * (32 * W) + (int)threadIdx.x % 32 * W;
        if (col >= c.dim) continue;
        neo__floats<W> sum = neo__cuda_embedding_sum<W>(c, o, (uint32_t)row, col);
        float *to = c.to + row * c.to_row + col;
        if (c.add) {
            neo__floats<W> old = neo__cuda_load<W>(to);
            neo__cuda_plus<W>(old, sum);
            sum = old;
        }
        neo__cuda_store<W>(to, sum);
    }
    neo__graph_finish<neo__cuda_ids_stop>(answer, &last, c, (neo__embedding_found *)(void *)o.bad);
}

/* ---- CUB's sort and scan, for which temp has `bytes`; temp NULL: they are only counted ---- */
template <class K> struct neo__cuda_sorting {
    void *temp;
    size_t bytes;
    K *keys, *sorted_keys;
    uint32_t *values, *sorted_values;
    int64_t count; /* below 2^31: CUB's own offsets then have 32 bits */
    int32_t first, last; /* bits */
};
template <class K>
static cudaError_t neo__cuda_sort(const neo__cuda_sorting<K> &c, size_t *bytes, cudaStream_t s) {
    return cub::DeviceRadixSort::SortPairs(c.temp, *bytes, c.keys, c.sorted_keys, c.values,
                                           c.sorted_values, (uint32_t)c.count, c.first, c.last, s);
}
template <class K> static neo_status neo__cuda_sort_now(neo__cuda *d, const void *call) {
    neo__cuda_sorting<K> c = *(const neo__cuda_sorting<K> *)call;
    return neo__cuda_result(d, neo__cuda_sort(c, &c.bytes, d->stream), "cub::DeviceRadixSort");
}
/* A scan: sorted_keys[i] becomes the sum of the keys before i. */
typedef neo__cuda_sorting<uint32_t> neo__cuda_scanning;
static neo_status neo__cuda_scan_now(neo__cuda *d, const void *call) {
    neo__cuda_scanning c = *(const neo__cuda_scanning *)call;
    return NEO__CUDA_DO(d, cub::DeviceScan::ExclusiveSum(c.temp, c.bytes, c.keys, c.sorted_keys,
                                                         (uint32_t)c.count, d->stream));
}
static int neo__cuda_bits(int64_t largest) {
    int bits = 0;
    for (; largest > 0; largest >>= 1) bits++;
    return bits;
}
/* Plan the sort of a call's ids. The work memory has keys and positions twice, the first position
   of each row, and the sort's own room. */
static neo_status neo__cuda_sort_plan(neo__cuda *gpu, const neo__embedding_call *call,
                                      neo__cuda_sorting<uint32_t> *s, int32_t **first) {
    const size_t each = neo__cuda_up((size_t)call->count * sizeof(uint32_t), 256);
    const size_t firsts = neo__cuda_up((size_t)call->rows * sizeof(int32_t), 256);
    s->count = call->count;
    s->last = NEO__MAX(neo__cuda_bits(call->rows - 1), 1);
    NEO__CUDA_TRY(gpu, neo__cuda_sort(*s, &s->bytes, gpu->stream));
    NEO__TRY(neo__cuda_reserve(gpu, 4 * each + firsts + s->bytes));
    uint32_t **place[4] = {&s->keys, &s->sorted_keys, &s->values, &s->sorted_values};
    for (int i = 0; i < 4; i++) *place[i] = (uint32_t *)(void *)(gpu->work + i * each);
    *first = (int32_t *)(void *)(gpu->work + 4 * each);
    s->temp = gpu->work + 4 * each + firsts;
    return NEO_OK;
}
static int neo__cuda_embedding_aligned(const neo__embedding_call *c) {
    return c->dim % 4 == 0 && c->from_row % 4 == 0 && c->to_row % 4 == 0 &&
           neo__cuda_aligned(c->from, c->to);
}
/* The end of a call: by its last kernel or, *ended 0, by one more. */
static neo_status neo__cuda_embedding_ask(neo__cuda *gpu, const neo__later *later,
                                          neo__embedding_found *found, neo__graph_answer *answer,
                                          int *ended) {
    *ended = gpu->recording && later->fn;
    return *ended ? neo__graph_ask_kernel(gpu, found, sizeof *found, found, sizeof *found, later,
                                          answer)
                  : NEO_OK;
}
static neo_status neo__cuda_embedding_back(neo__cuda *gpu, const neo__embedding_call *c,
                                           const neo__later *later, neo__embedding_found *bad,
                                           int *ended) {
    NEO__ZERO(neo__cuda_sorting<uint32_t>, s);
    NEO__ZERO(neo__graph_answer, answer);
    neo__cuda_occurrences found = {NULL, NULL, NULL, (neo__cuda_word *)(void *)bad};
    NEO__CHECK(c->rows <= INT32_MAX && c->count <= INT32_MAX, NEO_ERR_UNSUPPORTED,
               "%s: embedding: %lld ids of %lld rows, more than 2^31 of either", gpu->device.name,
               (long long)c->count, (long long)c->rows);
    if (c->count > 0) {
        int32_t *first;
        NEO__TRY(neo__cuda_sort_plan(gpu, c, &s, &first));
        NEO__TRY(neo__cuda_run(gpu, "embedding", neo__cuda_ids_kernel, NEO__MAX(c->count, c->rows),
                               1, *c, s.keys, s.values, first, found.bad));
        NEO__TRY(neo__cuda_do(gpu, neo__cuda_sort_now<uint32_t>, &s, sizeof s));
        found.key = s.sorted_keys, found.position = s.sorted_values, found.first = first;
        NEO__TRY(neo__cuda_run(gpu, "embedding", neo__cuda_firsts_kernel, c->count, 1, found.key,
                               c->count, first, found.bad));
    }
    if (c->rows == 0 || c->dim == 0 || (c->add && c->leaves.count == 0)) return NEO_OK;
    const int wide = neo__cuda_embedding_aligned(c) ? 4 : 1;
    const int64_t warps = c->rows * ((c->dim + 32 * wide - 1) / (32 * wide));
    const auto kernel =
        wide == 4 ? neo__cuda_embedding_back_kernel<4> : neo__cuda_embedding_back_kernel<1>;
    NEO__TRY(neo__cuda_embedding_ask(gpu, later, bad, &answer, ended));
    return neo__cuda_run(gpu, "embedding", kernel, warps, 32, *c, found, answer);
}
static neo_status neo__cuda_embedding_rows(neo__cuda *gpu, const neo__embedding_call *call,
                                           const neo__later *later, neo__embedding_found *found,
                                           int *ended) {
    const auto kernel = neo__cuda_embedding_aligned(call) ? neo__cuda_embedding_kernel<4>
                                                          : neo__cuda_embedding_kernel<1>;
    neo__cuda_word *bad = (neo__cuda_word *)(void *)found;
    NEO__ZERO(neo__graph_answer, answer);
    if (call->count == 0) return NEO_OK;
    NEO__TRY(neo__cuda_embedding_ask(gpu, later, found, &answer, ended));
    if (!*ended)
        NEO__TRY(neo__cuda_run(gpu, "embedding", neo__cuda_ids_kernel, call->count, 1, *call,
                               nullptr, nullptr, nullptr, bad));
    return neo__cuda_run(gpu, "embedding", kernel, call->count, 32, *call, *ended, bad, answer);
}
static neo_status neo__cuda_embedding(neo__cuda *gpu, const neo__embedding_call *call) {
    const neo__later *later = &call->later;
    const int noted = gpu->recording && later->fn;
    neo__embedding_call c = *call; /* as kernels get it: without places on the host */
    memset(&c.later, 0, sizeof c.later);
    neo__embedding_found *found =
        (neo__embedding_found *)(void *)(noted ? neo__graph_zeros(gpu) : gpu->result);
    int ended = 0;
    if (!noted) NEO__TRY(neo__cuda_fill(gpu, found, 0, sizeof *found));
    NEO__TRY((call->backward ? neo__cuda_embedding_back
                             : neo__cuda_embedding_rows)(gpu, &c, later, found, &ended));
    if (ended) return neo__graph_promise(gpu, sizeof *found, later), NEO_OK;
    if (!later->fn) return NEO_OK;
    NEO__ZERO(neo__graph_answer, answer);
    if (noted)
        NEO__TRY(neo__graph_ask_kernel(gpu, found, sizeof *found, found, sizeof *found, later,
                                       &answer));
    NEO__TRY(neo__graph_check<neo__cuda_ids_stop>(gpu, answer, "embedding", c, found));
    if (noted) return neo__graph_promise(gpu, sizeof *found, later), NEO_OK;
    NEO__TRY(neo__cuda_answer(gpu, found, sizeof *found));
    return neo__later_now(later, gpu->answer);
}

/* ---- >>cuda-attention ----
   The CPU's tiles: NEO__KEYS queries by NEO__KEYS keys. Forward: a block takes the queries of a
   tile and up to 128 columns of y, whose sums stay in registers, and walks the tiles of keys: S by
   chains over dim; a half-warp per row of S makes it P, by the CPU's kernel, of which the output is
   one number here, 1, that becomes the factor by which the row of y fades; then y goes on by chains
   over keys. Wider heads are several blocks, each of which computes S and P.

   Backward: the same for dq. For dk and dv a block takes a tile of keys and walks the tiles of
   queries. Each computes the P and dS it needs again.

   SILU: P is a function of S alone, so no maximum, sum or factor goes from tile to tile, and the
   backward reads neither y nor lse.

   With biases a half-warp makes scores of its row's products before its kernel does, which then has
   a scale of 1. Their gradients are a kernel of their own, whose blocks take a head of a sequence:
   they walk the pairs of tiles as the CPU does, and a thread has a difference of rows, then a run
   of them that are of one bucket; or, by times, every 16th bucket of a lane.

   Of a jagged batch kernels read the offsets when they run. There are blocks for as many tiles as
   its rows can have, whatever the offsets; those without a tile leave at once. A kernel before
   looks at all offsets, but no other trusts it: a sequence of bad ones has no rows. */
typedef neo__cuda_tile64 neo__cuda_pair; /* of tiles */
enum { NEO__HEAD_COLS = 128 /* of a block */, NEO__KEYS_ROW = NEO__KEYS + 4 };

typedef struct neo__cuda_head { /* where a block is: in shared memory, as registers would spill */
    int64_t row0;               /* first row of the sequence, */
    int64_t head, column;       /* the head, its first column, */
    int64_t out;                /* and the first of the output, of which the block has `cols` */
    int length;                 /* rows of the sequence */
    int first, count, cols;     /* of the block's tile its first row there and its rows */
    uint32_t turn, tiles;       /* the tile, and how many the sequence has */
} neo__cuda_head;
/* Blocks that follow each other are tiles of EACH rows, `tiles` of them: of a head of a sequence
   or, jagged, of a head (neo__attention_tile). With turn >= tiles a block has none. */
template <int EACH>
NEO__GPU void neo__cuda_head_of(neo__cuda_head &head, const neo__attention_call &c,
                                uint32_t tiles) {
    if (threadIdx.x < 32) {
        neo__cuda_head h;
        const uint32_t index = blockIdx.x / tiles, heads = (uint32_t)c.heads;
        h.row0 = index / heads * c.length, h.head = index % heads, h.length = (int)c.length;
        h.column = h.head * c.dim, h.out = h.column + (int64_t)blockIdx.y * NEO__HEAD_COLS;
        h.cols = (int)NEO__MIN(h.column + c.dim - h.out, (int64_t)NEO__HEAD_COLS);
        h.turn = blockIdx.x % tiles, h.tiles = tiles;
        if (c.offsets) {
            const auto number = [&c](int64_t i) { return neo__attention_number(&c, EACH, i); };
            const int64_t sequence = neo__cuda_last_warp(0, c.sequences, h.turn, number);
            const int64_t end = c.offsets[sequence + 1];
            h.row0 = c.offsets[sequence], h.turn -= (uint32_t)number(sequence);
            h.length = neo__attention_bad(&c, h.row0, end) ? 0 : (int)(end - h.row0);
            h.tiles = (uint32_t)((h.length + EACH - 1) / EACH);
        }
        h.first = (int)h.turn * EACH, h.count = NEO__MIN(h.length - h.first, (int)EACH);
        if (threadIdx.x == 0) head = h;
    }
    __syncthreads();
}
/* Keep the offsets that are bad, which may be written over before the host sees them, and stop the
   recorded step. */
NEO__GPU void neo__cuda_offsets_stop(const neo__attention_call &c, neo__attention_found *found,
                                     int *stop) {
    found->bad = ~found->bad;
    if (found->bad == NEO__CUDA_NONE) return;
    const int64_t sequence = (int64_t)found->bad;
    found->begin = c.offsets[sequence], found->end = c.offsets[NEO__MIN(sequence + 1, c.sequences)];
    if (stop) *stop = 1;
}
/* Checks offsets; `clears`: outputs of rows of no sequence become 0, in a recorded step before all
   offsets are known to be good: its error leaves anything. */
static __global__ void neo__cuda_offsets_kernel(const neo__attention_call c, int clears,
                                                neo__cuda_word *bad,
                                                const neo__graph_answer answer) {
    __shared__ int last;
    const int64_t begin = c.offsets[0], end = c.offsets[c.sequences], cols = c.heads * c.dim;
    NEO__CUDA_EACH(i, NEO__MAX(c.sequences, (int64_t)1), 1) {
        const int64_t next = NEO__MIN(i + 1, c.sequences);
        if (neo__attention_bad(&c, c.offsets[i], c.offsets[next])) neo__cuda_is_bad(bad, i);
    }
    if (clears) NEO__CUDA_EACH(row, c.rows, 32) {
        if (row >= begin && row < end) continue;
        const auto clear = [row](float *to, int64_t step, int64_t n, int narrow) {
            for (int64_t j = threadIdx.x % 32; to && j < n; j += 32)
                neo__cuda_wide_put(to, row * step + j, narrow, 0.0f);
        };
        if (!c.backward) clear(c.y, c.y_row, cols, c.narrow_y), clear(c.lse, c.lse_row, c.heads, 0);
        clear(c.dq, c.dq_row, cols, c.narrow_y), clear(c.dk, c.dk_row, cols, c.narrow_y);
        clear(c.dv, c.dv_row, cols, c.narrow_y);
    }
    neo__graph_finish<neo__cuda_offsets_stop>(answer, &last, c,
                                              (neo__attention_found *)(void *)bad);
}
/* Look at the offsets of a call, as kernels get it, and clear rows of no sequence. */
static neo_status neo__cuda_offsets(neo__cuda *gpu, const neo__attention_call &call,
                                    const neo__later *later) {
    const int noted = gpu->recording && later->fn;
    neo__attention_found *found =
        (neo__attention_found *)(void *)(noted ? neo__graph_zeros(gpu) : gpu->result);
    neo__cuda_word *bad = (neo__cuda_word *)(void *)found;
    NEO__ZERO(neo__graph_answer, answer);
    if (noted) {
        NEO__TRY(neo__graph_ask_kernel(gpu, found, sizeof *found, found, sizeof *found, later,
                                       &answer));
    } else if (later->fn) {
        NEO__TRY(neo__cuda_fill(gpu, found, 0, sizeof *found));
        NEO__TRY(neo__cuda_run(gpu, "attention", neo__cuda_offsets_kernel,
                               NEO__MAX(call.sequences, (int64_t)1), 1, call, 0, bad, answer));
        NEO__TRY(neo__graph_check<neo__cuda_offsets_stop>(gpu, answer, "attention", call, found));
        NEO__TRY(neo__cuda_answer(gpu, found, sizeof *found));
        NEO__TRY(neo__later_now(later, gpu->answer));
    }
    NEO__TRY(neo__cuda_run(gpu, "attention", neo__cuda_offsets_kernel,
                           NEO__MAX(call.sequences, call.rows) + 1, 4, call, 1, bad, answer));
    if (noted) neo__graph_promise(gpu, sizeof *found, later);
    return NEO_OK;
}
/* to[i][j] = the chain over dim of x_i y_j, for 64 rows of which m and n are there. */
NEO__GPU void neo__cuda_dots(neo__cuda_pair::shared &s, int64_t dim, const float *x, int64_t x_row,
                             int m, const float *y, int64_t y_row, int n,
                             float (*to)[NEO__KEYS_ROW]) {
    float sum[4][4] = {};
    neo__cuda_chains<neo__cuda_pair, true, true>(
        s, sum, 0, dim, [=](int i, int64_t k) { return i < m ? x[i * x_row + k] : 0.0f; },
        [=](int j, int64_t k) { return j < n ? y[j * y_row + k] : 0.0f; });
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) to[neo__cuda_pair::row(i)][neo__cuda_pair::col(j)] = sum[i][j];
}
/* sum[c] [row][col] += the chain over k < count of x(row, k) y[k][64 c + col]; `cols` of y are
   there. */
template <int PARTS, bool X_K, class X>
NEO__GPU void neo__cuda_mix(neo__cuda_pair::shared &s, float (&sum)[PARTS][4][4], int count,
                            const X &x, const float *y, int64_t y_row, int cols) {
    NEO__UNROLL for (int c = 0; c < PARTS; c++) {
        const int left = cols - 64 * c;
        const float *from = y + 64 * c;
        if (left <= 0) break;
        neo__cuda_chains<neo__cuda_pair, X_K, false>(
            s, sum[c], 0, count, x,
            [=](int j, int64_t k) { return j < left ? from[k * y_row + j] : 0.0f; });
    }
}
/* Rows of a tile's output to memory: f(row of the tile, value). */
template <int PARTS, class F>
NEO__GPU void neo__cuda_put(const float (&sum)[PARTS][4][4], int rows, int cols, float *to,
                            int64_t to_row, const F &f) {
    NEO__UNROLL for (int c = 0; c < PARTS; c++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const int row = neo__cuda_pair::row(i), col = 64 * c + neo__cuda_pair::col(j);
                if (row < rows && col < cols) to[row * to_row + col] = f(row, sum[c][i][j]);
            }
}
/* Keys of the tile from k0 that query i sees, of n. */
NEO__GPU int neo__cuda_seen(const neo__attention_call &c, int i, int k0, int n) {
    return c.causal ? NEO__MIN(i - k0 + 1, n) : n;
}
/* Causal sums over keys end with + 0, which makes -0 +0, as on the CPU, where they have fewer
   terms. */
NEO__GPU float neo__cuda_no_minus(const neo__attention_call &c, float x) {
    return c.causal ? __fadd_rn(x, 0.0f) : x;
}

/* The bucket of query i and key j. */
NEO__GPU int64_t neo__cuda_bias_bucket(const neo__attention_bias &bias, int64_t row0, int64_t i,
                                       int64_t j) {
    if (!bias.times) return neo__bias_bucket(&bias, i - j);
    const uint64_t asked = (uint64_t)bias.asked[row0 + i], time = (uint64_t)bias.times[row0 + j];
    return neo__bias_bucket(&bias, (int64_t)(asked - time));
}
/* The products s of query i and the keys from k0 that it sees, times `scale`, become scores, by a
   half-warp. */
NEO__GPU void neo__cuda_bias_scores(const neo__attention_call &call, const neo__cuda_head &head,
                                    int i, int k0, int seen, float *s, float scale) {
    for (int j = (int)threadIdx.x % 16; j < seen; j += 16) {
        float x = __fmul_rn(s[j], scale);
        for (int b = 0; b < call.biases; b++) {
            const neo__attention_bias &bias = call.bias[b];
            x = __fadd_rn(x, bias.table[head.head * bias.table_row +
                                        neo__cuda_bias_bucket(bias, head.row0, i, k0 + j)]);
        }
        s[j] = x;
    }
    __syncwarp(neo__mask_warp());
}

template <int PARTS, bool SILU, bool BIASED>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, PARTS > 1 || SILU || BIASED ? 2 : 3)
    neo__cuda_attention_kernel(const neo__attention_call c, uint32_t tiles) {
    constexpr int ROWS = SILU ? 1 : (int)NEO__KEYS; /* of a softmax */
    __shared__ neo__cuda_pair::shared stage;
    __shared__ __align__(16) float s[NEO__KEYS][NEO__KEYS_ROW];
    __shared__ float max[ROWS], sum[ROWS], fade[ROWS];
    __shared__ neo__cuda_head h;
    neo__cuda_head_of<NEO__KEYS>(h, c, tiles);
    if (h.turn >= h.tiles) return;
    const int64_t column = h.out;
    const int m = h.count, cols = h.cols;
    const float scale = BIASED ? 1.0f : c.scale;
    float out[PARTS][4][4] = {};
    for (int i = (int)threadIdx.x; !SILU && i < ROWS; i += NEO__CUDA_THREADS) {
        max[i] = neo__f32_bits(0xFF800000u);
        sum[i] = 0.0f;
    }
    for (uint32_t tile = 0; tile < (c.causal ? h.turn + 1 : h.tiles); tile++) {
        const int k0 = (int)tile * NEO__KEYS, n = NEO__MIN((int)NEO__KEYS, h.length - k0);
        neo__cuda_dots(stage, c.dim, c.q + (h.row0 + h.first) * c.q_row + h.column, c.q_row,
                       m, c.k + (h.row0 + k0) * c.k_row + h.column, c.k_row, n, s);
        __syncthreads();
        for (int i = (int)threadIdx.x / 16; i < m; i += NEO__HALVES) {
            const int seen = neo__cuda_seen(c, h.first + i, k0, n);
            if constexpr (BIASED) neo__cuda_bias_scores(c, h, h.first + i, k0, seen, s[i], c.scale);
            if constexpr (SILU) neo__vec_silu_tile_warp(s[i], NULL, seen, scale, c.share, 0.0f);
            else {
                if (threadIdx.x % 16 == 0) fade[i] = 1.0f; /* the lane that will multiply it */
                neo__vec_softmax_tile_warp(s[i], seen, scale, &max[i], &sum[i], &fade[i], 1);
            }
        }
        __syncthreads();
        for (int p = 0; !SILU && p < PARTS; p++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    out[p][i][j] = __fmul_rn(out[p][i][j], fade[neo__cuda_pair::row(i)]);
        neo__cuda_mix<PARTS, true>(
            stage, out, n, [=](int i, int64_t k) { return s[i][k]; },
            c.v + (h.row0 + k0) * c.v_row + column, c.v_row, cols);
    }
    neo__cuda_put<PARTS>(
        out, m, cols, c.y + (h.row0 + h.first) * c.y_row + column, c.y_row,
        [=](int i, float x) {
            const float y = neo__cuda_no_minus(c, x);
            return SILU ? y : __fdiv_rn(y, sum[SILU ? 0 : i]);
        });
    if constexpr (!SILU)
        for (int i = (int)threadIdx.x; c.lse && blockIdx.y == 0 && i < m; i += NEO__CUDA_THREADS)
            c.lse[(h.row0 + h.first + i) * c.lse_row + h.head] =
                __fadd_rn(max[i], neo__vlog_warp(sum[i]));
}

/* Products of 64 rows, of up to 64 columns, by tensor cores: see neo__cuda_dots_bf16. */
struct neo__cuda_dots_stage {
    __align__(16) uint16_t tile[NEO__KEYS][NEO__KEYS + 8];
};
NEO__GPU void neo__cuda_dots_bf16(neo__cuda_dots_stage &stage, int64_t dim, const float *x,
                                  int64_t x_row, int m, const float *y, int64_t y_row, int n,
                                  float by, float (*to)[NEO__KEYS_ROW]);
#define NEO__LOG2_E 1.44269504f
/* P and dS of the queries from q0 and the keys from k0; with biases dS is theirs, times `by`. */
template <bool SILU, bool BIASED, class Stage>
NEO__GPU void
neo__cuda_attention_pair(const neo__attention_call &c, const neo__cuda_head &h, Stage &stage,
                         int q0, int m, int k0, int n, float (*p)[NEO__KEYS_ROW],
                         float (*ds)[NEO__KEYS_ROW], float by) {
    constexpr bool MMA = sizeof(Stage) == sizeof(neo__cuda_dots_stage);
    const float scale = BIASED ? 1.0f : c.scale, slope = BIASED ? c.share : c.slope;
    const auto of = [&](const float *x, int64_t row, int i) {
        return x + (h.row0 + i) * row + h.column;
    };
    if constexpr (MMA) {
        neo__cuda_dots_bf16(stage, c.dim, of(c.q, c.q_row, q0), c.q_row, m, of(c.k, c.k_row, k0),
                            c.k_row, n, c.scale * NEO__LOG2_E, p);
        neo__cuda_dots_bf16(stage, c.dim, of(c.dy, c.dy_row, q0), c.dy_row, m,
                            of(c.v, c.v_row, k0), c.v_row, n, 1.0f, ds);
    } else {
        neo__cuda_dots(stage, c.dim, of(c.q, c.q_row, q0), c.q_row, m, of(c.k, c.k_row, k0),
                       c.k_row, n, p);
        neo__cuda_dots(stage, c.dim, of(c.dy, c.dy_row, q0), c.dy_row, m, of(c.v, c.v_row, k0),
                       c.v_row, n, ds);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x / 16; i < m; i += NEO__HALVES) {
        const int64_t row = h.row0 + q0 + i;
        const int seen = neo__cuda_seen(c, q0 + i, k0, n);
        if constexpr (BIASED)
            neo__cuda_bias_scores(c, h, q0 + i, k0, seen, p[i], MMA ? 1.0f / NEO__LOG2_E : c.scale);
        if constexpr (SILU) neo__vec_silu_tile_warp(p[i], ds[i], seen, scale, c.share, slope);
        else {
            const float lse = c.lse[row * c.lse_row + h.head];
            const float delta = neo__row_dot_warp(0.0f, of(c.dy, c.dy_row, q0 + i),
                                                  c.y + row * c.y_row + h.column, c.dim);
            neo__vec_softmax_tile_grad_warp(p[i], ds[i], seen, scale, lse, delta);
        }
        for (int j = (int)threadIdx.x % 16; BIASED && j < seen; j += 16)
            ds[i][j] = __fmul_rn(ds[i][j], by);
    }
    __syncthreads();
}
/* The gradients of a tile of keys, dk and dv, or of queries, dq. */
template <int PARTS, bool OF_KEYS, bool SILU, bool BIASED>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, PARTS > 1 ? 1 : 2)
    neo__cuda_attention_back_kernel(const neo__attention_call c, uint32_t tiles) {
    __shared__ neo__cuda_pair::shared stage;
    __shared__ __align__(16) float p[NEO__KEYS][NEO__KEYS_ROW], ds[NEO__KEYS][NEO__KEYS_ROW];
    __shared__ neo__cuda_head h;
    neo__cuda_head_of<NEO__KEYS>(h, c, tiles);
    if (h.turn >= h.tiles) return;
    if constexpr (OF_KEYS) {
        float dk[PARTS][4][4] = {}, dv[PARTS][4][4] = {};
        for (int q0 = c.causal ? h.first : 0; q0 < h.length; q0 += NEO__KEYS) {
            const int m = NEO__MIN((int)NEO__KEYS, h.length - q0);
            neo__cuda_attention_pair<SILU, BIASED>(c, h, stage, q0, m, h.first, h.count, p, ds,
                                                   c.scale);
            if (c.dv)
                neo__cuda_mix<PARTS, false>(
                    stage, dv, m, [=](int j, int64_t i) { return p[i][j]; },
                    c.dy + (h.row0 + q0) * c.dy_row + h.out, c.dy_row, h.cols);
            if (c.dk)
                neo__cuda_mix<PARTS, false>(
                    stage, dk, m, [=](int j, int64_t i) { return ds[i][j]; },
                    c.q + (h.row0 + q0) * c.q_row + h.out, c.q_row, h.cols);
        }
        const auto same = [](int, float x) { return x; };
        float *dk_at = c.dk + (h.row0 + h.first) * c.dk_row + h.out;
        float *dv_at = c.dv + (h.row0 + h.first) * c.dv_row + h.out;
        if (c.dk) neo__cuda_put<PARTS>(dk, h.count, h.cols, dk_at, c.dk_row, same);
        if (c.dv) neo__cuda_put<PARTS>(dv, h.count, h.cols, dv_at, c.dv_row, same);
    } else {
        float dq[PARTS][4][4] = {};
        for (uint32_t tile = 0; tile < (c.causal ? h.turn + 1 : h.tiles); tile++) {
            const int k0 = (int)tile * NEO__KEYS, n = NEO__MIN((int)NEO__KEYS, h.length - k0);
            neo__cuda_attention_pair<SILU, BIASED>(c, h, stage, h.first, h.count, k0, n, p, ds,
                                                   c.scale);
            neo__cuda_mix<PARTS, true>(
                stage, dq, n, [=](int i, int64_t k) { return ds[i][k]; },
                c.k + (h.row0 + k0) * c.k_row + h.out, c.k_row, h.cols);
        }
        neo__cuda_put<PARTS>(dq, h.count, h.cols, c.dq + (h.row0 + h.first) * c.dq_row + h.out,
                             c.dq_row,
                             [=](int, float x) { return neo__cuda_no_minus(c, x); });
    }
}
/* A pair of tiles of dS: what it adds to the sums of a bias by rows. */
NEO__GPU void neo__cuda_bias_rows(const neo__attention_bias &bias, float *each, int q0, int m,
                                  int k0, int n, float (*ds)[NEO__KEYS_ROW], float *sum,
                                  int *bucket) {
    const int t = (int)threadIdx.x, differences = m + n - 1;
    if (t < differences) {
        float x = 0.0f;
        for (int i = NEO__MAX(m - 1 - t, 0); i < m && t - m + 1 + i < n; i++)
            x = __fadd_rn(x, ds[i][t - m + 1 + i]);
        sum[t] = x, bucket[t] = (int)neo__bias_bucket(&bias, q0 + m - 1 - k0 - t);
    }
    __syncthreads();
    if (t < differences && (t == 0 || bucket[t] != bucket[t - 1])) {
        float x = each[bucket[t]];
        for (int u = t; u < differences && bucket[u] == bucket[t]; u++) x = __fadd_rn(x, sum[u]);
        each[bucket[t]] = x;
    }
    __syncthreads();
}
/* The same by times: lanes are [bucket][16]. P, which nobody needs, makes room for buckets. */
NEO__GPU void neo__cuda_bias_times(const neo__attention_call &call, const neo__attention_bias &bias,
                                   const neo__cuda_head &head, float *lanes, int q0, int m, int k0,
                                   int n, float (*p)[NEO__KEYS_ROW], float (*ds)[NEO__KEYS_ROW]) {
    const int lane = (int)threadIdx.x % 16, half = (int)threadIdx.x / 16;
    for (int i = half; i < m; i += NEO__HALVES)
        for (int j = lane; j < neo__cuda_seen(call, q0 + i, k0, n); j += 16)
            p[i][j] = (float)neo__cuda_bias_bucket(bias, head.row0, q0 + i, k0 + j);
    __syncthreads();
    int now = -1;
    float sum = 0.0f;
    for (int i = 0; i < m; i++)
        for (int j = lane; j < neo__cuda_seen(call, q0 + i, k0, n); j += 16) {
            const int bucket = (int)p[i][j];
            if (bucket % NEO__HALVES != half) continue;
            if (bucket != now) {
                if (now >= 0) lanes[now * 16 + lane] = sum;
                now = bucket, sum = lanes[now * 16 + lane];
            }
            sum = __fadd_rn(sum, ds[i][j]);
        }
    if (now >= 0) lanes[now * 16 + lane] = sum;
    __syncthreads();
}
/* Sums of each head of a sequence for the tables. lanes: memory of the block, bias by bias. */
template <bool SILU, class Stage>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, 2)
    neo__cuda_bias_kernel(const neo__attention_call c, float *lanes, int64_t block_lanes) {
    __shared__ Stage stage;
    __shared__ __align__(16) float p[NEO__KEYS][NEO__KEYS_ROW], ds[NEO__KEYS][NEO__KEYS_ROW];
    __shared__ float sum[2 * NEO__KEYS];
    __shared__ int bucket[2 * NEO__KEYS];
    __shared__ neo__cuda_head h;
    lanes += blockIdx.x * block_lanes;
    const auto each_of = [&c](int b, int64_t head) {
        return c.bias[b].each + head * c.bias[b].buckets;
    };
    for (int64_t head = blockIdx.x; head < c.sequences * c.heads; head += gridDim.x) {
        if (threadIdx.x == 0) {
            const int64_t sequence = head / c.heads;
            h.row0 = c.offsets ? c.offsets[sequence] : sequence * c.length;
            const int64_t end = c.offsets ? c.offsets[sequence + 1] : h.row0 + c.length;
            h.length = c.offsets && neo__attention_bad(&c, h.row0, end) ? 0 : (int)(end - h.row0);
            h.head = head % c.heads, h.column = h.head * c.dim;
        }
        for (int64_t n = threadIdx.x; n < block_lanes; n += NEO__CUDA_THREADS) lanes[n] = 0.0f;
        for (int b = 0; b < c.biases; b++)
            for (int64_t n = threadIdx.x; c.bias[b].each && n < c.bias[b].buckets;
                 n += NEO__CUDA_THREADS)
                each_of(b, head)[n] = 0.0f;
        __syncthreads();
        for (int k0 = 0; k0 < h.length; k0 += NEO__KEYS)
            for (int q0 = c.causal ? k0 : 0; q0 < h.length; q0 += NEO__KEYS) {
                const int m = NEO__MIN((int)NEO__KEYS, h.length - q0);
                const int n = NEO__MIN((int)NEO__KEYS, h.length - k0);
                neo__cuda_attention_pair<SILU, true>(c, h, stage, q0, m, k0, n, p, ds, 1.0f);
                float *own = lanes;
                for (int b = 0; b < c.biases; b++) {
                    const neo__attention_bias &bias = c.bias[b];
                    if (!bias.each) continue;
                    if (bias.times) {
                        neo__cuda_bias_times(c, bias, h, own, q0, m, k0, n, p, ds);
                        own += bias.buckets * 16;
                    } else
                        neo__cuda_bias_rows(bias, each_of(b, head), q0, m, k0, n, ds, sum, bucket);
                }
            }
        const float *own = lanes;
        for (int b = 0; b < c.biases; b++) {
            if (!c.bias[b].each || !c.bias[b].times) continue;
            for (int64_t n = threadIdx.x / 16; n < c.bias[b].buckets; n += NEO__HALVES) {
                const float x = neo__tree16_warp(own[n * 16 + threadIdx.x % 16]);
                if (threadIdx.x % 16 == 0) each_of(b, head)[n] = x;
            }
            own += c.bias[b].buckets * 16;
        }
        __syncthreads();
    }
}
/* Blocks that take `each` rows of a head: all, and those that neo__cuda_head_of counts. */
struct neo__cuda_attention_blocks {
    uint32_t all, tiles;
    neo__cuda_attention_blocks(const neo__attention_call *call, int64_t each) {
        const int64_t numbers = neo__attention_tiles(call, each);
        all = (uint32_t)(numbers * call->heads);
        tiles = (uint32_t)(call->offsets ? numbers : numbers / call->sequences);
    }
};
template <bool SILU, class Stage>
static neo_status neo__cuda_bias_grads(neo__cuda *gpu, const neo__attention_call *call) {
    int64_t lanes = 0;
    int some = 0;
    for (int b = 0; b < call->biases; b++) {
        some |= call->bias[b].each != NULL;
        if (call->bias[b].each && call->bias[b].times) lanes += call->bias[b].buckets * 16;
    }
    if (!some) return NEO_OK;
    const unsigned blocks = (unsigned)NEO__MIN(call->sequences * call->heads,
                                               (int64_t)gpu->processors * 2);
    NEO__TRY(neo__cuda_reserve(gpu, (size_t)(blocks * lanes) * sizeof(float)));
    return neo__cuda_launch(gpu, "attention", neo__cuda_bias_kernel<SILU, Stage>, {blocks}, *call,
                            (float *)(void *)gpu->work, lanes);
}
template <int PARTS, bool SILU, bool BIASED>
static neo_status neo__cuda_attention_run(neo__cuda *gpu, const neo__attention_call *call) {
    const neo__cuda_attention_blocks blocks(call, NEO__KEYS);
    const int64_t groups = (call->dim + NEO__HEAD_COLS - 1) / NEO__HEAD_COLS;
    const neo__cuda_where where = {dim3(blocks.all, (unsigned)groups)};
    const auto launch = [&](void (*kernel)(const neo__attention_call, uint32_t)) {
        return neo__cuda_launch(gpu, "attention", kernel, where, *call, blocks.tiles);
    };
    if (!call->backward) return launch(neo__cuda_attention_kernel<PARTS, SILU, BIASED>);
    if constexpr (BIASED) NEO__TRY((neo__cuda_bias_grads<SILU, neo__cuda_pair::shared>(gpu, call)));
    if (call->dk || call->dv)
        NEO__TRY((launch(neo__cuda_attention_back_kernel<PARTS, true, SILU, BIASED>)));
    return call->dq ? launch(neo__cuda_attention_back_kernel<PARTS, false, SILU, BIASED>) : NEO_OK;
}

/* ---- attention of bf16 on tensor cores (mma.sync, from sm_80 on) ----
   Where neo_attention_desc.dtype is bf16 and the device is not exact. q, k, v, dy, P and dS are
   rounded to bf16 as they become operands; sums, maxima and exponentials are f32. q takes the
   scale and log2 e with it, so that scores are exponents of 2. Of SiLU P is log2 e times too large
   therefore, until its sums are scaled; by its 1/n they are, too. What is bf16 in memory (NARROW:
   q, k, v, y and all gradients, or none) stays as it is: scores take the scale and log2 e there, in
   the fma of the exponent that they become, and own rows the sign of a scale below 0.

   A warp owns 16 rows, of which it keeps all sums; the rows that these meet come through shared
   memory in tiles: they are loaded while the tile before is used, and rounded where they are
   stored. Forward and dq: queries own, keys come. dk and dv: keys own, queries come, and scores
   are transposed. So each sum has one warp and one order, and P leaves no registers: the sums of
   one product have the layout of the left operand of the next. Rows of a tile are 16 bytes longer
   than their numbers, so that eight of them, which ldmatrix reads at once, fill all banks.

   Biases are added to the scores in registers. The gradients of their tables are those of the f32
   kernel, of the same lse, but for its products, which are of the same operands as here. */
NEO__GPU uint32_t neo__cuda_bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return neo__bf16_from_f32(low) | (uint32_t)neo__bf16_from_f32(high) << 16;
#endif
}
NEO__GPU float neo__cuda_exp2(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
/* c += a b: 16 rows, 8 columns, 16 terms. Lane l has of c the rows l / 4 (c[0], c[1]) and
   l / 4 + 8, columns 2 (l % 4) and the next. */
NEO__GPU void neo__cuda_mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b) {
#if defined(NEO_CUDA_ON_CPU)
    neo_emu_mma_bf16(c, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
/* Four matrices of 8 x 8 from shared memory; lane l gives the address of row l % 8 of number
   l / 8. */
template <bool TURNED>
NEO__GPU void neo__cuda_ldmatrix(uint32_t (&to)[4], const uint16_t *row) {
#if defined(NEO_CUDA_ON_CPU)
    neo_emu_ldmatrix(to, row, TURNED);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
#endif
}
/* The sigmoid of x / log2 e. */
NEO__GPU float neo__cuda_gate_bf16(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + neo__cuda_exp2(-x)));
    return y;
#else
    return 1.0f / (1.0f + neo__cuda_exp2(-x));
#endif
}

/* Number i at an address of f32 or of bf16. */
template <bool NARROW> NEO__GPU const float *neo__cuda_number(const float *p, int64_t i) {
    const uint16_t *half = (const uint16_t *)(const void *)p + i;
    return NARROW ? (const float *)(const void *)half : p + i;
}
/* A tile of N rows of D numbers on its way from memory, where `rows` of `cols` are there, the rest
   zeros, to shared memory. */
template <int N, int D, int THREADS> struct neo__cuda_coming {
    static constexpr int COUNT = N * D / 4 / THREADS, STEP = THREADS / (D / 4); /* rows apart */
    neo__floats<4> x[COUNT];
    NEO__GPU int row() { return (int)threadIdx.x / (D / 4); }
    NEO__GPU int col() { return (int)threadIdx.x % (D / 4) * 4; }
    __device__ __forceinline__ void load(const float *from, int step, int rows, int cols) {
        NEO__UNROLL for (int e = 0; e < COUNT; e++) {
            const int at = row() + e * STEP;
            x[e] = neo__floats<4>();
            if (at < rows && col() < cols)
                x[e] = neo__cuda_load<4>(from + ((int64_t)at * step + col()));
        }
    }
    __device__ __forceinline__ void store(uint16_t (*to)[D + 8], float scale) const {
        NEO__UNROLL for (int e = 0; e < COUNT; e++) {
            const float *v = x[e].v;
            *(uint2 *)(void *)&to[row() + e * STEP][col()] =
                make_uint2(neo__cuda_bf16_pair(v[0] * scale, v[1] * scale),
                           neo__cuda_bf16_pair(v[2] * scale, v[3] * scale));
        }
    }
};
/* 0x80008000 where a scale is below 0: it turns the signs of two numbers of bf16. */
NEO__GPU uint32_t neo__cuda_bf16_signs(float scale) { return scale < 0.0f ? 0x80008000u : 0u; }
/* The same of bf16, of which a thread has 16 bytes at a time; of `scale` the sign alone counts. */
template <int N, int D, int THREADS> struct neo__cuda_coming_narrow {
    static constexpr int STEP = THREADS / (D / 8), COUNT = (N + STEP - 1) / STEP;
    uint4 x[COUNT];
    NEO__GPU int row() { return (int)threadIdx.x / (D / 8); }
    NEO__GPU int col() { return (int)threadIdx.x % (D / 8) * 8; }
    __device__ __forceinline__ void load(const float *from, int step, int rows, int cols) {
        NEO__UNROLL for (int e = 0; e < COUNT; e++) {
            const int at = row() + e * STEP;
            x[e] = make_uint4(0, 0, 0, 0);
            if (at < rows && (N % STEP == 0 || at < N) && col() < cols)
                x[e] = *(const uint4 *)(const void *)neo__cuda_number<true>(
                    from, (int64_t)at * step + col());
        }
    }
    __device__ __forceinline__ void store(uint16_t (*to)[D + 8], float scale) const {
        const uint32_t turn = neo__cuda_bf16_signs(scale);
        NEO__UNROLL for (int e = 0; e < COUNT; e++)
            if (N % STEP == 0 || row() + e * STEP < N)
                *(uint4 *)(void *)&to[row() + e * STEP][col()] = make_uint4(
                    x[e].x ^ turn, x[e].y ^ turn, x[e].z ^ turn, x[e].w ^ turn);
    }
};
template <bool NARROW, int N, int D, int THREADS> struct neo__cuda_coming_of {
    typedef neo__cuda_coming<N, D, THREADS> type;
};
template <int N, int D, int THREADS> struct neo__cuda_coming_of<true, N, D, THREADS> {
    typedef neo__cuda_coming_narrow<N, D, THREADS> type;
};
/* 16 rows as left operands, one for each 16 columns; of bf16 as they are, but for scale's sign. */
template <int D, bool NARROW = false>
NEO__GPU void neo__cuda_own_rows(uint32_t (*to)[4], const float *from, int64_t step, int rows,
                                 int cols, float scale) {
    const int lane = (int)threadIdx.x % 32;
    NEO__UNROLL for (int k = 0; k < D / 16; k++)
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + i % 2 * 8, col = 16 * k + lane % 4 * 2 + i / 2 * 8;
            neo__floats<2> x = {};
            uint32_t pair = 0;
            if (row < rows && col < cols) {
                if (NARROW) pair = ((const uint32_t *)(const void *)from)[(row * step + col) / 2];
                else x = neo__cuda_load<2>(from + row * step + col);
            }
            to[k][i] = NARROW ? pair ^ neo__cuda_bf16_signs(scale)
                              : neo__cuda_bf16_pair(x.v[0] * scale, x.v[1] * scale);
        }
}
/* s = the products of 16 rows, which are in registers or SHARED, from the lane's address on, with
   the N rows of a tile. */
template <int D, int N, bool SHARED>
NEO__GPU void neo__cuda_scores(float (&s)[N / 8][4], const uint32_t (*own)[4],
                               const uint16_t *own_row, const uint16_t (*tile)[D + 8]) {
    const int lane = (int)threadIdx.x % 32;
    NEO__UNROLL for (int n = 0; n < N / 8; n++)
        NEO__UNROLL for (int i = 0; i < 4; i++) s[n][i] = 0.0f;
    NEO__UNROLL for (int k = 0; k < D; k += 16) {
        uint32_t a[4], b[4];
        if constexpr (SHARED) neo__cuda_ldmatrix<false>(a, own_row + k);
        else
            NEO__UNROLL for (int i = 0; i < 4; i++) a[i] = own[k / 16][i];
        NEO__UNROLL for (int n = 0; n < N; n += 16) {
            neo__cuda_ldmatrix<false>(
                b, &tile[n + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
            neo__cuda_mma_bf16(s[n / 8], a, b);
            neo__cuda_mma_bf16(s[n / 8 + 1], a, b + 2);
        }
    }
}
/* neo__cuda_dots by tensor cores, of x times `by`: a warp has 16 rows and 32 columns. */
NEO__GPU void neo__cuda_dots_bf16(neo__cuda_dots_stage &stage, int64_t dim, const float *x,
                                  int64_t x_row, int m, const float *y, int64_t y_row, int n,
                                  float by, float (*to)[NEO__KEYS_ROW]) {
    enum { D = NEO__KEYS, N = 32 };
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int row0 = warp / 2 * 16, col0 = warp % 2 * N;
    uint32_t own[D / 16][4];
    float s[N / 8][4];
    neo__cuda_coming<NEO__KEYS, D, NEO__CUDA_THREADS> all;
    all.load(y, (int)y_row, n, (int)dim);
    __syncthreads(); /* the last product has read the tile */
    all.store(stage.tile, 1.0f);
    __syncthreads();
    neo__cuda_own_rows<D>(own, x + row0 * x_row, x_row, m - row0, (int)dim, by);
    neo__cuda_scores<D, N, false>(s, own, NULL, stage.tile + col0);
    NEO__UNROLL for (int j = 0; j < N / 8; j++)
        NEO__UNROLL for (int i = 0; i < 4; i++)
            to[row0 + lane / 4 + i / 2 * 8][col0 + 8 * j + lane % 4 * 2 + i % 2] = s[j][i];
}
/* sum += p x: 16 rows of N terms, the N rows of a tile. */
template <int D, int N>
NEO__GPU void neo__cuda_mix_bf16(float (&sum)[D / 8][4], const float (&p)[N / 8][4],
                                 const uint16_t (*tile)[D + 8]) {
    const int lane = (int)threadIdx.x % 32;
    NEO__UNROLL for (int k = 0; k < N; k += 16) {
        const float *x = p[k / 8], *y = p[k / 8 + 1];
        const uint32_t a[4] = {neo__cuda_bf16_pair(x[0], x[1]), neo__cuda_bf16_pair(x[2], x[3]),
                               neo__cuda_bf16_pair(y[0], y[1]), neo__cuda_bf16_pair(y[2], y[3])};
        NEO__UNROLL for (int d = 0; d < D; d += 16) {
            uint32_t b[4];
            neo__cuda_ldmatrix<true>(b, &tile[k + lane % 16][d + lane / 16 * 8]);
            neo__cuda_mma_bf16(sum[d / 8], a, b);
            neo__cuda_mma_bf16(sum[d / 8 + 1], a, b + 2);
        }
    }
}
/* The sums of 16 rows to memory, each times its row's scale (of a lane's two rows). */
template <int D, bool NARROW>
NEO__GPU void neo__cuda_put_rows(const float (&sum)[D / 8][4], float *to, int64_t step, int rows,
                                 int cols, float scale, float scale_8) {
    const int lane = (int)threadIdx.x % 32;
    NEO__UNROLL for (int n = 0; n < D / 8; n++)
        NEO__UNROLL for (int r = 0; r < 2; r++) {
            const int row = lane / 4 + 8 * r, col = 8 * n + lane % 4 * 2;
            const float by = r ? scale_8 : scale;
            const neo__floats<2> x = {{sum[n][2 * r] * by, sum[n][2 * r + 1] * by}};
            if (row < rows && col < cols) {
                if (NARROW)
                    ((uint32_t *)(void *)to)[(row * step + col) / 2] =
                        neo__cuda_bf16_pair(x.v[0], x.v[1]);
                else neo__cuda_store<2>(to + row * step + col, x);
            }
        }
}
/* Over the four lanes that share a row. */
NEO__GPU float neo__cuda_row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* ---- biases of these scores: f32, added in order, times log2 e ----
   By rows there are few differences of a block's rows and a tile's, so the block finds the numbers
   of all of them, a thread each, while the tile is on its way. By times a lane finds the buckets of
   its scores of a row side by side, so that no bisection waits for another's loads. */
/* The buckets of COUNT differences: neo__bias_bucket of each. */
template <int COUNT>
NEO__GPU void neo__cuda_bias_buckets(const neo__attention_bias &bias,
                                     const int64_t (&difference)[COUNT], int (&bucket)[COUNT]) {
    neo__cuda_last_each(
        bucket, (int)bias.buckets, [&](int e) { return difference[e]; },
        [&](int i) { return (int64_t)__ldg((const long long *)bias.bounds + i - 1); });
}
/* Sums of the biases by rows for `count` differences from `lowest` on, by the whole block. */
NEO__GPU void neo__cuda_bias_differences(const neo__attention_call &call, int64_t head, float *to,
                                         int count, int lowest) {
    for (int t = (int)threadIdx.x; t < count; t += (int)blockDim.x) {
        float sum = 0.0f;
        for (int b = 0; b < call.biases; b++) {
            const neo__attention_bias &bias = call.bias[b];
            const int64_t difference[1] = {(int64_t)lowest + t};
            int bucket[1];
            if (bias.times) continue;
            neo__cuda_bias_buckets<1>(bias, difference, bucket);
            sum += bias.table[head * bias.table_row + bucket[0]];
        }
        to[t] = sum * NEO__LOG2_E;
    }
}
/* Add them to the scores s of 16 rows, of which the lane has `row` and row + 8, and N columns from
   `from` on; rows and columns beyond the sequence get any. of_rows: the sums by rows, of which
   number 0 is of the difference `lowest`. */
template <int N, bool OF_KEYS>
NEO__GPU void neo__cuda_bias_bf16(const neo__attention_call &call, const neo__cuda_head &head,
                                  float (&s)[N / 8][4], const float *of_rows, int lowest, int row,
                                  int from) {
    enum { COLS = N / 4 }; /* of a lane */
    const int last = head.length - 1, col0 = from + (int)threadIdx.x % 4 * 2;
    NEO__UNROLL for (int n = 0; n < N / 8; n++)
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            const int ahead = row + i / 2 * 8 - (col0 + 8 * n + i % 2);
            s[n][i] += of_rows[(OF_KEYS ? -ahead : ahead) - lowest];
        }
    for (int b = 0; b < call.biases; b++) {
        const neo__attention_bias &bias = call.bias[b];
        if (!bias.times) continue;
        const int64_t *of_row = (OF_KEYS ? bias.times : bias.asked) + head.row0;
        const int64_t *of_col = (OF_KEYS ? bias.asked : bias.times) + head.row0;
        const float *table = bias.table + head.head * bias.table_row;
        NEO__UNROLL for (int r = 0; r < 2; r++) {
            const uint64_t mine = (uint64_t)of_row[NEO__MIN(row + 8 * r, last)];
            int64_t difference[COLS];
            int bucket[COLS];
            NEO__UNROLL for (int c = 0; c < COLS; c++) {
                const int col = col0 + c / 2 * 8 + c % 2;
                const uint64_t other = (uint64_t)of_col[NEO__MIN(col, last)];
                difference[c] = (int64_t)(OF_KEYS ? other - mine : mine - other);
            }
            neo__cuda_bias_buckets<COLS>(bias, difference, bucket);
            NEO__UNROLL for (int c = 0; c < COLS; c++)
                s[c / 2][2 * r + c % 2] += __ldg(table + bucket[c]) * NEO__LOG2_E;
        }
    }
}

enum { /* rows that a block owns: in the forward; in the backward, and its threads */
    NEO__MMA_QUERIES = NEO__CUDA_THREADS / 2,
    NEO__MMA_OWN = 64,
    NEO__MMA_THREADS = NEO__MMA_OWN * 2
};
/* Whether score s[n][i] is of a key that the lane's first query, which sees those before `seen`, or
   its other one, which sees 8 more, does not see, or that is not there (>= last). */
NEO__GPU bool neo__cuda_unseen(int n, int i, int seen, int last) {
    const int key = 8 * n + (int)threadIdx.x % 4 * 2 + i % 2;
    return key >= NEO__MIN(seen + i / 2 * 8, last);
}
/* A score as an exponent of 2, less x; of NARROW it has no scale yet. */
template <bool NARROW> NEO__GPU float neo__cuda_exponent(float score, float unit, float less) {
    return NARROW ? __fmaf_rn(score, unit, -less) : score - less;
}
/* One tile of N keys: s becomes P of SiLU; !edge: all are seen. */
template <int N, bool NARROW>
NEO__GPU void neo__cuda_silu_bf16(float (&s)[N / 8][4], float unit, int seen, int last, bool edge) {
    NEO__UNROLL for (int n = 0; n < N / 8; n++)
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            if (NARROW) s[n][i] *= unit;
            s[n][i] *= neo__cuda_gate_bf16(s[n][i]);
            if (edge && neo__cuda_unseen(n, i, seen, last)) s[n][i] = 0.0f;
        }
}
/* The same of a softmax: what was summed fades. max: of exponents. */
template <int D, int N, bool NARROW>
NEO__GPU void neo__cuda_softmax_bf16(float (&s)[N / 8][4], float unit, int seen, int last,
                                     bool edge, float (&max)[2], float (&sum)[2],
                                     float (&out)[D / 8][4]) {
    if (edge)
        NEO__UNROLL for (int n = 0; n < N / 8; n++)
            NEO__UNROLL for (int i = 0; i < 4; i++)
                if (neo__cuda_unseen(n, i, seen, last)) s[n][i] = neo__f32_bits(0xFF800000u);
    NEO__UNROLL for (int r = 0; r < 2; r++) {
        float most = NARROW ? s[0][2 * r] : max[r];
        NEO__UNROLL for (int n = 0; n < N / 8; n++)
            most = fmaxf(most, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        if (NARROW) most = fmaxf(max[r], most * unit);
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        const float fade = neo__cuda_exp2(max[r] - most);
        max[r] = most;
        sum[r] *= fade;
        NEO__UNROLL for (int n = 0; n < D / 8; n++)
            NEO__UNROLL for (int i = 2 * r; i < 2 * r + 2; i++) out[n][i] *= fade;
        NEO__UNROLL for (int n = 0; n < N / 8; n++)
            NEO__UNROLL for (int i = 2 * r; i < 2 * r + 2; i++) {
                s[n][i] = neo__cuda_exp2(neo__cuda_exponent<NARROW>(s[n][i], unit, most));
                sum[r] += s[n][i];
            }
    }
}
template <int D, bool NARROW, bool SILU, bool BIASED>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, D > 64 || BIASED ? 1 : 2)
    neo__cuda_attention_mma_kernel(const neo__attention_call c, uint32_t tiles) {
    constexpr int N = 32, DIFFERENCES = BIASED ? NEO__MMA_QUERIES + N - 1 : 1;
    __shared__ __align__(16) uint16_t tile[2][2][N][D + 8]; /* of keys, of values */
    __shared__ float of_rows[2][DIFFERENCES];
    __shared__ neo__cuda_head h;
    neo__cuda_head_of<NEO__MMA_QUERIES>(h, c, tiles);
    if (h.turn >= h.tiles) return;
    const int64_t column = h.head * c.dim;
    const int dim = (int)c.dim, k_row = (int)c.k_row, v_row = (int)c.v_row;
    const int q0 = (int)(h.tiles - 1 - h.turn) * NEO__MMA_QUERIES; /* long ones first */
    const int mine = q0 + (int)threadIdx.x / 32 * 16, row = mine + (int)threadIdx.x % 32 / 4;
    const int end = c.causal ? NEO__MIN(q0 + (int)NEO__MMA_QUERIES, h.length) : h.length;
    const float *k = neo__cuda_number<NARROW>(c.k, h.row0 * c.k_row + column);
    const float *v = neo__cuda_number<NARROW>(c.v, h.row0 * c.v_row + column);
    const float unit = c.scale * NEO__LOG2_E, size = fabsf(unit);
    uint32_t q[D / 16][4];
    float out[D / 8][4] = {}, max[2], sum[2] = {0.0f, 0.0f};
    max[0] = max[1] = neo__f32_bits(0xFF800000u);
    neo__cuda_own_rows<D, NARROW>(
        q, neo__cuda_number<NARROW>(c.q, (h.row0 + mine) * c.q_row + column), c.q_row,
        h.length - mine, dim, unit);
    typename neo__cuda_coming_of<NARROW, N, D, NEO__CUDA_THREADS>::type next;
    next.load(k, k_row, end, dim), next.store(tile[0][0], 1.0f);
    next.load(v, v_row, end, dim), next.store(tile[0][1], 1.0f);
    const auto differences = [&](int from, int side) { /* of the block's rows and the tile's */
        if constexpr (BIASED)
            neo__cuda_bias_differences(c, h.head, of_rows[side], DIFFERENCES, q0 - from - (N - 1));
    };
    differences(0, 0);
    __syncthreads();
    for (int k0 = 0, side = 0; k0 < end; k0 += N, side ^= 1) {
        const int k1 = k0 + N, last = h.length - k0;
        const bool more = k1 < end, sees = !c.causal || k0 < mine + 16;
        float s[N / 8][4];
        k = neo__cuda_number<NARROW>(k, (int64_t)N * k_row);
        v = neo__cuda_number<NARROW>(v, (int64_t)N * v_row);
        if (more) next.load(k, k_row, end - k1, dim);
        if (sees) neo__cuda_scores<D, N, false>(s, q, NULL, tile[side][0]);
        if (more) next.store(tile[side ^ 1][0], 1.0f), next.load(v, v_row, end - k1, dim);
        if (more) differences(k1, side ^ 1);
        if (sees) {
            if constexpr (BIASED)
                neo__cuda_bias_bf16<N, false>(c, h, s, of_rows[side], q0 - k0 - (N - 1), row, k0);
            const bool edge = last < N || (c.causal && k1 > mine + 1);
            const int seen = c.causal ? row + 1 - k0 : last;
            if constexpr (SILU) neo__cuda_silu_bf16<N, NARROW>(s, size, seen, last, edge);
            else neo__cuda_softmax_bf16<D, N, NARROW>(s, size, seen, last, edge, max, sum, out);
            neo__cuda_mix_bf16<D, N>(out, s, tile[side][1]);
        }
        if (more) next.store(tile[side ^ 1][1], 1.0f);
        __syncthreads();
    }
    NEO__UNROLL for (int r = 0; r < 2; r++) {
        const int i = row + 8 * r;
        if constexpr (SILU) sum[r] = NEO__LOG2_E / c.share;
        else sum[r] = neo__cuda_row_sum(sum[r]);
        if (!SILU && c.lse && threadIdx.x % 4 == 0 && i < h.length)
            c.lse[(h.row0 + i) * c.lse_row + h.head] = max[r] / NEO__LOG2_E + logf(sum[r]);
    }
    const int64_t y_at = (h.row0 + mine) * c.y_row + column;
    float *const y = (float *)(uintptr_t)neo__cuda_number<NARROW>(c.y, y_at);
    neo__cuda_put_rows<D, NARROW>(out, y, c.y_row, h.length - mine, dim, 1.0f / sum[0],
                                  1.0f / sum[1]);
}

/* The sum of a b over n columns, a multiple of 4, by the four lanes that share a row. */
template <bool NARROW> NEO__GPU float neo__cuda_quad_dot(const float *a, const float *b, int n) {
    float sum = 0.0f;
    NEO__NO_UNROLL for (int at = (int)threadIdx.x % 4 * 4; at < n; at += 16) {
        const neo__floats<4> u = neo__cuda_wide_load<4>(a, at, NARROW);
        const neo__floats<4> w = neo__cuda_wide_load<4>(b, at, NARROW);
        NEO__UNROLL for (int e = 0; e < 4; e++) sum += u.v[e] * w.v[e];
    }
    return neo__cuda_row_sum(sum);
}
/* Whether 16 rows from the lane's `row` on and columns from its `from` on do not see each other at
   [n][i], one of them a query, OF_KEYS: the columns; or the column is not there (>= length). */
template <bool OF_KEYS>
NEO__GPU bool neo__cuda_apart(int n, int i, int from, int row, int length, bool causal) {
    const int col = from + 8 * n + (int)threadIdx.x % 4 * 2 + i % 2, ahead = col - row - i / 2 * 8;
    return col >= length || (causal && (OF_KEYS ? ahead < 0 : ahead > 0));
}
/* 16 rows and N columns: scores p become P, products ds of dy and v become dS. `from` and `row`
   are the first column and the lane's first row; edge: not all of them see each other. What a query
   knows of itself, its lse and its delta, is of_query[column] if columns are queries, else the
   lane's. */
template <int N, bool OF_KEYS, bool NARROW>
NEO__GPU void neo__cuda_slopes_bf16(float (&p)[N / 8][4], float (&ds)[N / 8][4], float unit,
                                    const float2 *of_query, const float2 (&own)[2], int from,
                                    int row, int length, bool causal, bool edge) {
    NEO__UNROLL for (int n = 0; n < N / 8; n++)
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            const int col = 8 * n + (int)threadIdx.x % 4 * 2 + i % 2;
            const float2 query = OF_KEYS ? of_query[col] : own[i / 2];
            p[n][i] = neo__cuda_exp2(neo__cuda_exponent<NARROW>(p[n][i], unit, query.x));
            if (edge && neo__cuda_apart<OF_KEYS>(n, i, from, row, length, causal)) p[n][i] = 0.0f;
            ds[n][i] = p[n][i] * (ds[n][i] - query.y);
        }
}
/* The same of SiLU: scores p become P, and slope what dP is to be multiplied by. */
template <int N, bool OF_KEYS, bool NARROW>
NEO__GPU void neo__cuda_silu_slopes_bf16(float (&p)[N / 8][4], float (&slope)[N / 8][4], float unit,
                                         int from, int row, int length, bool causal, bool edge) {
    NEO__UNROLL for (int n = 0; n < N / 8; n++)
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            if (NARROW) p[n][i] *= unit;
            const float gate = neo__cuda_gate_bf16(p[n][i]);
            p[n][i] *= gate;
            slope[n][i] = gate + p[n][i] * (1.0f / NEO__LOG2_E) * (1.0f - gate);
            if (edge && neo__cuda_apart<OF_KEYS>(n, i, from, row, length, causal))
                p[n][i] = slope[n][i] = 0.0f;
        }
}
/* Lse of a lane's two queries, from `row` on, and delta, the sum of dy y, which goes to memory,
   too. */
template <bool NARROW>
NEO__GPU void neo__cuda_query_deltas(const neo__attention_call &call, const neo__cuda_head &head,
                                     int row, float *delta, float2 (&own)[2]) {
    const int64_t column = head.head * call.dim;
    const float *const y = neo__cuda_number<NARROW>(call.y, head.row0 * call.y_row + column);
    const float *const dy = neo__cuda_number<NARROW>(call.dy, head.row0 * call.dy_row + column);
    for (int r = 0; r < 2; r++) {
        const int i = row + 8 * r, in = i < head.length ? (int)call.dim : 0;
        const int64_t at = head.row0 + i;
        own[r].y = neo__cuda_quad_dot<NARROW>(neo__cuda_number<NARROW>(dy, i * call.dy_row),
                                              neo__cuda_number<NARROW>(y, i * call.y_row), in);
        own[r].x = in ? call.lse[at * call.lse_row + head.head] * NEO__LOG2_E : 0.0f;
        if (threadIdx.x % 4 == 0 && in) delta[at * call.heads + head.head] = own[r].y;
    }
}
/* Operands of a block of the backward: of its own 64 rows one of either product, and of the rows
   that it goes through the others, from `begin` on. OF_KEYS: its own are keys and values. */
template <bool OF_KEYS, bool NARROW> struct neo__cuda_back_rows {
    const float *own_x, *own_y, *x, *y;
    int64_t own_x_row, own_y_row;
    int x_row, y_row;
    __device__ __forceinline__ neo__cuda_back_rows(const neo__attention_call &c,
                                                   const neo__cuda_head &h, int begin) {
        const int64_t column = h.head * c.dim;
        const auto at = [&](const float *p, int64_t row) {
            return neo__cuda_number<NARROW>(p, h.row0 * row + column);
        };
        const float *const k = at(c.k, c.k_row), *const q = at(c.q, c.q_row);
        const float *const v = at(c.v, c.v_row), *const dy = at(c.dy, c.dy_row);
        own_x = OF_KEYS ? k : q, own_x_row = OF_KEYS ? c.k_row : c.q_row;
        own_y = OF_KEYS ? v : dy, own_y_row = OF_KEYS ? c.v_row : c.dy_row;
        x_row = (int)(OF_KEYS ? c.q_row : c.k_row);
        y_row = (int)(OF_KEYS ? c.dy_row : c.v_row);
        x = OF_KEYS ? q : k, y = OF_KEYS ? dy : v;
        pass(begin);
    }
    /* The next n rows of x and y come. */
    __device__ __forceinline__ void pass(int n) {
        x = neo__cuda_number<NARROW>(x, (int64_t)n * x_row);
        y = neo__cuda_number<NARROW>(y, (int64_t)n * y_row);
    }
};
/* Lse and delta of the thread's query, of those from `from` on. */
NEO__GPU float2 neo__cuda_back_query(const neo__attention_call &c, const neo__cuda_head &head,
                                     const float *delta, int from) {
    const int i = from + (int)threadIdx.x;
    const float *const lse_at = c.lse + head.row0 * c.lse_row + head.head;
    if (i >= head.length) return make_float2(0.0f, 0.0f);
    return make_float2(lse_at[i * c.lse_row] * NEO__LOG2_E,
                       (delta + head.row0 * c.heads + head.head)[i * c.heads]);
}
/* The lowest difference of the block's rows, from own0 on, and the tile's N. */
template <bool OF_KEYS, int N> NEO__GPU int neo__cuda_back_lowest(int own0, int from) {
    return OF_KEYS ? from - own0 - (NEO__MMA_OWN - 1) : own0 - from - (N - 1);
}
/* The places of a head's sums. */
template <bool OF_KEYS>
NEO__GPU void neo__cuda_back_begin(const neo__attention_call &c, const neo__cuda_head &head,
                                   int64_t *at) {
    if (threadIdx.x != 0) return;
    at[0] = head.row0 * (OF_KEYS ? c.dk_row : c.dq_row) + head.head * c.dim;
    at[1] = head.row0 * c.dv_row + head.head * c.dim;
}
/* A block's sums of 16 rows a warp, times `by`, to memory, unless there is none. */
template <int D, bool NARROW>
NEO__GPU void neo__cuda_back_put(const float (&sum)[D / 8][4], float *to, int64_t at, int64_t row,
                                 int rows, int dim, float by) {
    if (to)
        neo__cuda_put_rows<D, NARROW>(sum, (float *)(uintptr_t)neo__cuda_number<NARROW>(to, at),
                                      row, rows, dim, by, by);
}
/* A block's own rows of either product: those of x, SHARED by way of own_tile, times `by`. */
template <int D, bool NARROW, bool SHARED, class Rows>
NEO__GPU void neo__cuda_back_own(uint32_t (*own)[4], uint32_t (*own_2)[4],
                                 uint16_t (*own_tile)[D + 8], const Rows &of, int own0, int mine,
                                 int length, int dim, float by) {
    if constexpr (SHARED) {
        typename neo__cuda_coming_of<NARROW, NEO__MMA_OWN, D, NEO__MMA_THREADS>::type all;
        all.load(neo__cuda_number<NARROW>(of.own_x, own0 * of.own_x_row), (int)of.own_x_row,
                 length - own0, dim);
        all.store(own_tile, by);
    } else
        neo__cuda_own_rows<D, NARROW>(own, neo__cuda_number<NARROW>(of.own_x, mine * of.own_x_row),
                                      of.own_x_row, length - mine, dim, by);
    neo__cuda_own_rows<D, NARROW>(own_2, neo__cuda_number<NARROW>(of.own_y, mine * of.own_y_row),
                                  of.own_y_row, length - mine, dim, 1.0f);
}
/* Add to the sums what N rows of a tile give, of which the scores p with 16 own rows are there. */
template <int D, int N, bool OF_KEYS, bool NARROW, bool SILU>
NEO__GPU void neo__cuda_back_meet(float (&p)[N / 8][4], float (&dx)[D / 8][4],
                                  float (&dv)[OF_KEYS ? D / 8 : 1][4], const uint32_t (*own_2)[4],
                                  uint16_t (*tile)[N][D + 8], float unit,
                                  const float2 *of_query, const float2 (&of_own)[2], int from,
                                  int row, int length, bool causal, bool edge) {
    float ds[N / 8][4];
    if (SILU) { /* with P out of the way before dP comes */
        float slope[N / 8][4];
        neo__cuda_silu_slopes_bf16<N, OF_KEYS, NARROW>(p, slope, unit, from, row, length, causal,
                                                       edge);
        if constexpr (OF_KEYS) neo__cuda_mix_bf16<D, N>(dv, p, tile[1]);
        neo__cuda_scores<D, N, false>(ds, own_2, NULL, tile[1]);
        NEO__UNROLL for (int n = 0; n < N / 8; n++)
            NEO__UNROLL for (int i = 0; i < 4; i++) ds[n][i] *= slope[n][i];
        neo__cuda_mix_bf16<D, N>(dx, ds, tile[0]);
    } else {
        neo__cuda_scores<D, N, false>(ds, own_2, NULL, tile[1]);
        neo__cuda_slopes_bf16<N, OF_KEYS, NARROW>(p, ds, unit, of_query, of_own, from, row, length,
                                                  causal, edge);
        neo__cuda_mix_bf16<D, N>(dx, ds, tile[0]);
        if constexpr (OF_KEYS) neo__cuda_mix_bf16<D, N>(dv, p, tile[1]);
    }
}
/* The sums of a block to memory, of which a head's begin at `at`. */
template <int D, bool OF_KEYS, bool NARROW, bool SILU>
NEO__GPU void neo__cuda_back_puts(const neo__attention_call &c, const float (&dx)[D / 8][4],
                                  const float (&dv)[OF_KEYS ? D / 8 : 1][4], const int64_t *at,
                                  int mine, int length) {
    const int64_t dx_row = OF_KEYS ? c.dk_row : c.dq_row;
    const float less = (SILU ? c.share : 1.0f) / NEO__LOG2_E, scaled = SILU ? c.slope : c.scale;
    neo__cuda_back_put<D, NARROW>(dx, OF_KEYS ? c.dk : c.dq, at[0] + mine * dx_row, dx_row,
                                  length - mine, (int)c.dim, OF_KEYS && !NARROW ? less : scaled);
    if constexpr (OF_KEYS)
        neo__cuda_back_put<D, NARROW>(dv, c.dv, at[1] + mine * c.dv_row, c.dv_row, length - mine,
                                      (int)c.dim, SILU ? less : 1.0f);
}
/* OF_KEYS: dk and dv. Else dq, and delta, the sums of dy y of each row, which dk of a softmax
   needs. */
template <int D, bool OF_KEYS, bool NARROW, bool SILU, bool BIASED>
static __global__ void
    __launch_bounds__(NEO__MMA_THREADS, D > (OF_KEYS ? 32 : 64) || BIASED ? 2 : 3)
    neo__cuda_attention_mma_back_kernel(const neo__attention_call c, uint32_t tiles, float *delta) {
    constexpr bool SHARED = D > (OF_KEYS || SILU ? 32 : 64); /* own x: registers would spill */
    constexpr int N = D > 64 ? 16 : 32, DIFFERENCES = BIASED ? NEO__MMA_OWN + N - 1 : 1;
    __shared__ __align__(16) uint16_t tile[2][2][N][D + 8];
    __shared__ float of_rows[2][DIFFERENCES];
    __shared__ __align__(16) uint16_t own_tile[SHARED ? NEO__MMA_OWN : 1][D + 8];
    __shared__ float2 of_query[2][SILU ? 1 : N]; /* its lse, its delta */
    __shared__ int64_t out_at[2]; /* where the head's sums go; registers would spill */
    __shared__ neo__cuda_head h;
    neo__cuda_head_of<NEO__MMA_OWN>(h, c, tiles);
    if (h.turn >= h.tiles) return;
    const int dim = (int)c.dim, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int own0 = (int)(OF_KEYS ? h.turn : h.tiles - 1 - h.turn) * NEO__MMA_OWN;
    const int mine = own0 + 16 * warp, row = mine + lane / 4;
    const int begin = OF_KEYS && c.causal ? own0 : 0;
    const int end = !OF_KEYS && c.causal ? NEO__MIN(own0 + (int)NEO__MMA_OWN, h.length) : h.length;
    const float unit = c.scale * NEO__LOG2_E; /* of q */
    neo__cuda_back_rows<OF_KEYS, NARROW> of(c, h, begin);
    uint32_t own[SHARED ? 1 : D / 16][4], own_2[D / 16][4];
    float dx[D / 8][4] = {}, dv[OF_KEYS ? D / 8 : 1][4] = {};
    float2 of_own[2]; /* of_query of the lane's rows */
    if constexpr (!OF_KEYS && !SILU) neo__cuda_query_deltas<NARROW>(c, h, row, delta, of_own);
    if (!OF_KEYS && !c.dq) return;
    neo__cuda_back_own<D, NARROW, SHARED>(own, own_2, own_tile, of, own0, mine, h.length, dim,
                                          OF_KEYS && !NARROW ? 1.0f : unit);
    typename neo__cuda_coming_of<NARROW, N, D, NEO__MMA_THREADS>::type next, next_y;
    const auto bring_x = [&](int from, int side) { /* with what each query knows of itself */
        next.store(tile[side][0], OF_KEYS && !NARROW ? unit : 1.0f);
        if constexpr (BIASED)
            neo__cuda_bias_differences(c, h.head, of_rows[side], DIFFERENCES,
                                       neo__cuda_back_lowest<OF_KEYS, N>(own0, from));
        if (OF_KEYS && !SILU && threadIdx.x < N)
            of_query[side][threadIdx.x] = neo__cuda_back_query(c, h, delta, from);
    };
    neo__cuda_back_begin<OF_KEYS>(c, h, out_at);
    next.load(of.x, of.x_row, end - begin, dim), bring_x(begin, 0);
    next_y.load(of.y, of.y_row, end - begin, dim), next_y.store(tile[0][1], 1.0f);
    __syncthreads();
    const uint16_t *own_row = &own_tile[SHARED ? 16 * warp + lane % 16 : 0][lane / 16 * 8];
    for (int from = begin, side = 0; from < end; from += N, side ^= 1) {
        const int later = from + N, low = neo__cuda_back_lowest<OF_KEYS, N>(own0, from);
        const bool met = !c.causal || (OF_KEYS ? later > mine : from < mine + 16);
        const bool edge =
            later > h.length || (c.causal && (OF_KEYS ? from < mine + 15 : later > mine + 1));
        float p[N / 8][4];
        of.pass(N);
        if (later < end) next.load(of.x, of.x_row, end - later, dim);
        if (met) neo__cuda_scores<D, N, SHARED>(p, own, own_row, tile[side][0]);
        if (later < end) bring_x(later, side ^ 1), next_y.load(of.y, of.y_row, end - later, dim);
        if constexpr (BIASED)
            if (met)
                neo__cuda_bias_bf16<N, OF_KEYS>(c, h, p, of_rows[side], low, row, from);
        if (met)
            neo__cuda_back_meet<D, N, OF_KEYS, NARROW, SILU>(
                p, dx, dv, own_2, tile[side], fabsf(unit), of_query[side], of_own, from, row,
                h.length, c.causal, edge);
        if (later < end) next_y.store(tile[side ^ 1][1], 1.0f);
        __syncthreads();
    }
    neo__cuda_back_puts<D, OF_KEYS, NARROW, SILU>(c, dx, dv, out_at, mine, h.length);
}
/* Rows are read and written by 16 bytes, and counted in 32 bits. (With biases, dk and dv of wider
   heads would spill.) */
static int neo__cuda_attention_fits(const neo__cuda *d, const neo__attention_call *c) {
    const int64_t steps = c->dim | c->q_row | c->k_row | c->v_row | c->y_row | c->dy_row |
                          c->dq_row | c->dk_row | c->dv_row, each = c->narrow_y ? 8 : 4;
    return c->narrow && !(c->biases && c->narrow_y) && d->tensor_cores && !d->exact &&
           c->dim <= (c->biases ? 64 : 128) && steps % each == 0 &&
           (steps | c->length) < (int64_t)1 << 30 &&
           neo__cuda_aligned(c->q, c->k, c->v, c->dy, c->y, c->dq, c->dk, c->dv);
}
template <int D, bool NARROW, bool SILU, bool BIASED = false>
static neo_status neo__cuda_attention_mma(neo__cuda *gpu, const neo__attention_call *call) {
    const neo__cuda_attention_blocks blocks(call, call->backward ? (int)NEO__MMA_OWN
                                                                 : (int)NEO__MMA_QUERIES);
    if (!call->backward)
        return neo__cuda_launch(gpu, "attention",
                                neo__cuda_attention_mma_kernel<D, NARROW, SILU, BIASED>,
                                {blocks.all}, *call, blocks.tiles);
    const neo__cuda_where where = {blocks.all, (unsigned)NEO__MMA_THREADS};
    if constexpr (BIASED) NEO__TRY((neo__cuda_bias_grads<SILU, neo__cuda_dots_stage>(gpu, call)));
    if (!SILU) NEO__TRY(neo__cuda_reserve(gpu, (size_t)(call->heads * call->rows) * sizeof(float)));
    float *delta = SILU ? NULL : (float *)(void *)gpu->work;
    const auto back = [&](void (*kernel)(const neo__attention_call, uint32_t, float *)) {
        return neo__cuda_launch(gpu, "attention", kernel, where, *call, blocks.tiles, delta);
    };
    if (!SILU || call->dq)
        NEO__TRY((back(neo__cuda_attention_mma_back_kernel<D, false, NARROW, SILU, BIASED>)));
    if (!call->dk && !call->dv) return NEO_OK;
    return back(neo__cuda_attention_mma_back_kernel<D, true, NARROW, SILU, BIASED>);
}
template <int D, bool SILU>
static neo_status neo__cuda_attention_mma(neo__cuda *gpu, const neo__attention_call *call) {
    return call->narrow_y ? neo__cuda_attention_mma<D, true, SILU>(gpu, call)
                          : neo__cuda_attention_mma<D, false, SILU>(gpu, call);
}
template <bool SILU>
static neo_status neo__cuda_attention_of(neo__cuda *gpu, const neo__attention_call *call) {
    const int fits = neo__cuda_attention_fits(gpu, call);
    if (fits && call->biases) return neo__cuda_attention_mma<64, false, SILU, true>(gpu, call);
    if (fits)
        return call->dim <= 32   ? neo__cuda_attention_mma<32, SILU>(gpu, call)
               : call->dim <= 64 ? neo__cuda_attention_mma<64, SILU>(gpu, call)
                                 : neo__cuda_attention_mma<128, SILU>(gpu, call);
    NEO__CHECK(!call->narrow_y, NEO_ERR_UNSUPPORTED,
               "%s: attention of bf16 tensors wants rows at multiples of 16 bytes",
               gpu->device.name);
    gpu->stats.wide_attention += call->narrow && !gpu->exact;
    if (call->biases)
        return call->dim <= 64 ? neo__cuda_attention_run<1, SILU, true>(gpu, call)
                               : neo__cuda_attention_run<2, SILU, true>(gpu, call);
    return call->dim <= 64 ? neo__cuda_attention_run<1, SILU, false>(gpu, call)
                           : neo__cuda_attention_run<2, SILU, false>(gpu, call);
}
static neo_status neo__cuda_attention(neo__cuda *gpu, const neo__attention_call *call) {
    neo__attention_call c = *call; /* as kernels get it: without places on the host */
    memset(&c.later, 0, sizeof c.later);
    if (c.heads == 0 || c.length == 0) return NEO_OK;
    NEO__CHECK(neo__attention_tiles(&c, NEO__KEYS) <= INT32_MAX / c.heads, NEO_ERR_UNSUPPORTED,
               "%s: attention: %lld heads of %lld sequences are more than 2^31 tiles",
               gpu->device.name, (long long)c.heads, (long long)c.sequences);
    if (c.offsets) NEO__TRY(neo__cuda_offsets(gpu, c, &call->later));
    if (c.sequences == 0 || (c.rows == 0 && !c.biases)) return NEO_OK;
    return c.silu ? neo__cuda_attention_of<true>(gpu, &c) : neo__cuda_attention_of<false>(gpu, &c);
}

/* ---- >>cuda-interact ----
   Forward: a block takes a sample and a tile of 32 x 32 of T T^t, on or below the diagonal.
   Backward: dT = S T, S symmetric and made of dz where it is read; a block takes 32 rows and 32
   columns of dT. A sample of at most 32 rows of 16 or 32 columns is a warp's, which reads it
   once: a lane has a row's numbers or sums in registers, and shared memory those of all rows. A
   sample of a factorization machine is a half-warp, which runs the CPU kernels. */
NEO__GPU int64_t neo__cuda_triangle(const neo__interact_call &job, int64_t i) {
    return job.dim + (job.diagonal ? i * (i + 1) / 2 : i * (i - 1) / 2);
}
/* Row i of T of a sample, whose rows of x and e begin there. */
template <class P> NEO__GPU P *neo__cuda_interact_row(P *x, P *e, int64_t dim, int64_t i) {
    return i == 0 ? x : e + (i - 1) * dim;
}
template <bool BACK>
static __global__ void __launch_bounds__(neo__cuda_tile32::THREADS)
    neo__cuda_interact_kernel(const neo__interact_call job, int64_t col_tiles) {
    typedef neo__cuda_tile32 T;
    __shared__ T::shared s;
    const int64_t n = job.features + 1, dim = job.dim, sample = blockIdx.x;
    const float *x = job.x + sample * job.x_row, *e = job.e + sample * job.e_row;
    float sum[T::TM][T::TN] = {};
    if constexpr (BACK) {
        const float *dz = job.dz + sample * job.dz_row;
        const int64_t i0 = blockIdx.y / col_tiles * T::M, d0 = blockIdx.y % col_tiles * T::N;
        for (int a = 0; a < T::TM && i0 + T::row(a) == 0; a++)
            for (int b = 0; b < T::TN; b++)
                if (d0 + T::col(b) < dim) sum[a][b] = dz[d0 + T::col(b)]; /* the copy of x in z */
        neo__cuda_chains<T, true, false>(
            s, sum, 0, n,
            [=](int a, int64_t k) {
                const int64_t i = i0 + a, low = NEO__MIN(i, k), high = NEO__MAX(i, k);
                if (high >= n || (low == high && !job.diagonal)) return 0.0f;
                const float factor = dz[neo__cuda_triangle(job, high) + low];
                return low == high ? __fmul_rn(2.0f, factor) : factor;
            },
            [=](int b, int64_t k) {
                return d0 + b < dim ? neo__cuda_interact_row(x, e, dim, k)[d0 + b] : 0.0f;
            });
        for (int a = 0; a < T::TM; a++)
            for (int b = 0; b < T::TN; b++) {
                const int64_t i = i0 + T::row(a), d = d0 + T::col(b);
                if (i >= n || d >= dim) continue;
                if (i == 0 && job.dx) job.dx[sample * job.dx_row + d] = sum[a][b];
                if (i > 0 && job.de) job.de[sample * job.de_row + (i - 1) * dim + d] = sum[a][b];
            }
    } else {
        float *z = job.z + sample * job.z_row;
        int64_t ti = 0, tj = blockIdx.y; /* tiles count row by row below the diagonal */
        while (tj > ti) tj -= ++ti;
        const int64_t i0 = ti * T::M, j0 = tj * T::N;
        for (int64_t d = threadIdx.x; blockIdx.y == 0 && d < dim; d += T::THREADS) z[d] = x[d];
        const auto row = [=](int64_t i, int64_t k) {
            return i < n ? neo__cuda_interact_row(x, e, dim, i)[k] : 0.0f;
        };
        neo__cuda_chains<T, true, true>(
            s, sum, 0, dim, [=](int i, int64_t k) { return row(i0 + i, k); },
            [=](int j, int64_t k) { return row(j0 + j, k); });
        for (int a = 0; a < T::TM; a++)
            for (int b = 0; b < T::TN; b++) {
                const int64_t i = i0 + T::row(a), j = j0 + T::col(b);
                if (i < n && j < i + (job.diagonal ? 1 : 0))
                    z[neo__cuda_triangle(job, i) + j] = sum[a][b];
            }
    }
}
/* A sample of at most 32 rows of D columns. */
template <int D, bool BACK> struct __align__(16) neo__cuda_sample {
    float t[32][D + 4]; /* T, or dT; 4: columns of eight rows fall in different banks */
    float dz[BACK ? 18 * 32 : 1]; /* a row of it */
    /* f(p, i, k): number p of this lane, of those that e has, is that of row i and column k. */
    template <class F> NEO__GPU void each(const F &f) {
        const int lane = (int)threadIdx.x % 32;
        NEO__UNROLL for (int p = 0; p < D; p++) f(p, 1 + p * 32 / D + lane / D, lane % D);
    }
    __device__ __forceinline__ void load(const neo__interact_call &job, int64_t sample);
    __device__ __forceinline__ void forward(const neo__interact_call &job, float *z) const;
    __device__ __forceinline__ void backward(const neo__interact_call &job, int64_t sample);
};
template <int D, bool BACK>
__device__ void neo__cuda_sample<D, BACK>::load(const neo__interact_call &job, int64_t sample) {
    const int n = (int)job.features + 1, lane = (int)threadIdx.x % 32;
    const int width = BACK ? (int)neo__cuda_triangle(job, n) : 0;
    const float *e = job.e + sample * job.e_row + lane;
    const float *from = job.dz + sample * job.dz_row + lane;
    float of_e[D], of_dz[18];
    const float of_x = lane < D ? job.x[sample * job.x_row + lane] : 0.0f;
    each([&](int p, int i, int) { of_e[p] = i < n ? e[32 * p] : 0.0f; });
    NEO__UNROLL for (int p = 0; p < 18; p++)
        of_dz[p] = 32 * p + lane < width ? from[32 * p] : 0.0f;
    if (lane < D) t[0][lane] = of_x;
    each([&](int p, int i, int k) { if (i < 32) t[i][k] = of_e[p]; });
    if (BACK) NEO__UNROLL for (int p = 0; p < 18; p++) dz[32 * p + lane] = of_dz[p];
}
template <int D, bool BACK>
__device__ void neo__cuda_sample<D, BACK>::forward(const neo__interact_call &job, float *z) const {
    const int n = (int)job.features + 1, j = (int)threadIdx.x % 32;
    float own[D], *to = z + D + j;
    NEO__UNROLL for (int k = 0; k < D; k++) own[k] = t[j][k];
    if (j < D) z[j] = t[0][j];
    NEO__NO_UNROLL for (int i0 = 0; i0 < n; i0 += 4) {
        float sum[4] = {};
        NEO__UNROLL for (int k = 0; k < D; k += 4)
            NEO__UNROLL for (int i = 0; i < 4; i++) {
                const neo__floats<4> a = neo__cuda_load<4>(&t[i0 + i][k]);
                for (int w = 0; w < 4; w++) sum[i] = __fmaf_rn(a.v[w], own[k + w], sum[i]);
            }
        NEO__UNROLL for (int i = 0; i < 4; i++) {
            const int count = i0 + i + (int)job.diagonal; /* of row i0 + i */
            if (i0 + i < n && j < count) *to = sum[i];
            to += count;
        }
    }
}
template <int D, bool BACK>
__device__ void neo__cuda_sample<D, BACK>::backward(const neo__interact_call &job, int64_t sample) {
    const int n = (int)job.features + 1, lane = (int)threadIdx.x % 32;
    const int diagonal = (int)job.diagonal, row = NEO__MIN(lane, n - 1);
    const int own = (int)neo__cuda_triangle(job, row);
    const float twice = diagonal ? __fmul_rn(2.0f, dz[own + row]) : 0.0f;
    float sum[D];
    NEO__UNROLL for (int d = 0; d < D; d += 4) { /* z's copy of x */
        const neo__floats<4> x = neo__cuda_load<4>(&dz[d]);
        for (int w = 0; w < 4; w++) sum[d + w] = lane == 0 ? x.v[w] : 0.0f;
    }
    for (int k = 0, at = D; k < n; at += k + diagonal, k++) { /* at: row k of the triangle */
        const float below = dz[k < row ? own + k : at + row], factor = k == row ? twice : below;
        NEO__UNROLL for (int d = 0; d < D; d += 4) {
            const neo__floats<4> b = neo__cuda_load<4>(&t[k][d]);
            for (int w = 0; w < 4; w++) sum[d + w] = __fmaf_rn(factor, b.v[w], sum[d + w]);
        }
    }
    __syncwarp();
    NEO__UNROLL for (int d = 0; d < D; d++) t[lane][d] = sum[d];
    __syncwarp();
    if (job.dx && lane < D) job.dx[sample * job.dx_row + lane] = t[0][lane];
    if (!job.de) return;
    float *const de = job.de + sample * job.de_row + lane;
    each([&](int p, int i, int k) { if (i < n) de[32 * p] = t[i][k]; });
}
enum { NEO__SAMPLES = 4 }; /* warps of a block */
template <int D, bool BACK>
static __global__ void __launch_bounds__(32 * NEO__SAMPLES, D == 16 ? 6 : 4)
    neo__cuda_sample_kernel(const neo__interact_call job) {
    __shared__ neo__cuda_sample<D, BACK> all[NEO__SAMPLES];
    neo__cuda_sample<D, BACK> &s = all[threadIdx.x / 32];
    NEO__CUDA_EACH(sample, job.batch, 32) {
        s.load(job, sample);
        __syncwarp();
        if (BACK) s.backward(job, sample);
        else s.forward(job, job.z + sample * job.z_row);
        __syncwarp();
    }
}
static neo_status neo__cuda_interact(neo__cuda *d, const neo__interact_call *call) {
    if (call->batch == 0 || call->dim == 0) return NEO_OK;
    if (call->features < 32 && (call->dim == 16 || call->dim == 32)) {
        const auto back = call->dim == 16 ? neo__cuda_sample_kernel<16, true>
                                          : neo__cuda_sample_kernel<32, true>;
        const auto forward = call->dim == 16 ? neo__cuda_sample_kernel<16, false>
                                             : neo__cuda_sample_kernel<32, false>;
        const unsigned blocks = neo__cuda_blocks(d, call->batch, NEO__SAMPLES);
        return neo__cuda_launch(d, "interact", call->backward ? back : forward,
                                {blocks, 32 * NEO__SAMPLES}, *call);
    }
    const int64_t rows = (call->features + 1 + 31) / 32, cols = (call->dim + 31) / 32;
    const int64_t tiles = call->backward ? rows * cols : rows * (rows + 1) / 2;
    NEO__CHECK(tiles <= 65535, NEO_ERR_UNSUPPORTED,
               "%s: interact: %lld features of %lld columns are too many", d->device.name,
               (long long)call->features, (long long)call->dim);
    const auto kernel =
        call->backward ? neo__cuda_interact_kernel<true> : neo__cuda_interact_kernel<false>;
    const dim3 grid((unsigned)call->batch, (unsigned)tiles);
    return neo__cuda_launch(d, "interact", kernel, {grid, neo__cuda_tile32::THREADS}, *call, cols);
}
static __global__ void neo__cuda_fm_kernel(const neo__fm_call call) {
    NEO__CUDA_EACH(i, call.batch, 16) {
        if (call.backward) neo__vec_fm_back_warp(&call, i);
        else call.y[i] = neo__vec_fm_warp(&call, i);
    }
}
static neo_status neo__cuda_fm(neo__cuda *d, const neo__fm_call *call) {
    return neo__cuda_run(d, "fm", neo__cuda_fm_kernel, call->batch, 16, *call);
}

/* ---- >>cuda-losses ----
   Labels are checked by a kernel of its own, and what writes looks whether one was bad; in a
   recorded step, whose error leaves anything, by the kernel that writes. The losses' exact sum is
   one of integers, so blocks add in any order: first in shared memory, then to the call's sum. */

/* A neo_exact in words that atomics take: words, terms, NaNs, infinities, as in the struct. */
enum { NEO__CUDA_EXACT = NEO_EXACT_WORDS + 4 };
NEO__STATIC_ASSERT(sizeof(neo_exact) == NEO__CUDA_EXACT * sizeof(neo__cuda_word),
                   "a neo_exact is its words and four counters");
NEO__GPU void neo__cuda_exact_add(neo__cuda_word *sum, float x) {
    const neo__exact_term t = neo__exact_place(x);
    if (t.special) {
        atomicAdd(&sum[NEO_EXACT_WORDS + t.special], (neo__cuda_word)1);
        return;
    }
    atomicAdd(&sum[NEO_EXACT_WORDS], (neo__cuda_word)1);
    atomicAdd(&sum[t.at], (neo__cuda_word)t.low); /* negative numbers wrap as they should */
    atomicAdd(&sum[t.at + 1], (neo__cuda_word)t.high);
}
/* A block's sum in shared memory: cleared before, added to `sum` after. All threads come. */
NEO__GPU void neo__cuda_exact_begin(neo__cuda_word *block) {
    if (threadIdx.x < NEO__CUDA_EXACT) block[threadIdx.x] = 0;
    __syncthreads();
}
NEO__GPU void neo__cuda_exact_end(neo__cuda_word *sum, const neo__cuda_word *block) {
    __syncthreads();
    if (threadIdx.x < NEO__CUDA_EXACT && block[threadIdx.x] != 0)
        atomicAdd(&sum[threadIdx.x], block[threadIdx.x]);
}
typedef struct neo__cuda_loss_result { /* a neo__loss_found, in words */
    neo__cuda_word bad[2];
    double value;
    int64_t label;
    neo__cuda_word sum[NEO__CUDA_EXACT];
} neo__cuda_loss_result;
NEO__STATIC_ASSERT(sizeof(neo__cuda_loss_result) == sizeof(neo__loss_found), "the same layout");
NEO__GPU int neo__cuda_outside(float x) { return !(x >= 0.0f && x <= 1.0f); }
/* The label of sample i, and its probability, are good. */
NEO__GPU bool neo__cuda_label(const neo__loss_call &c, int64_t i, neo__cuda_loss_result *r) {
    const int label = c.kind == NEO__LOSS_MSE ? 0
                      : c.label               ? c.label[i] < 0 || c.label[i] >= c.width
                                              : neo__cuda_outside(c.y[i]);
    const int x = c.kind == NEO__LOSS_BCE && neo__cuda_outside(c.x[i]);
    if (label) neo__cuda_is_bad(&r->bad[0], i);
    if (x) neo__cuda_is_bad(&r->bad[1], i);
    return !label && !x;
}
static __global__ void neo__cuda_labels_kernel(const neo__loss_call c, neo__cuda_loss_result *r) {
    NEO__CUDA_EACH(i, c.rows, 1) (void)neo__cuda_label(c, i, r);
}
/* The kernel that writes has to: none was bad, or it checks itself. */
NEO__GPU bool neo__cuda_loss_goes(const neo__cuda_loss_result *r, int checks) {
    return checks || (r->bad[0] | r->bad[1]) == 0;
}
/* Keep the number that is outside, which may be written over before the host sees it, and stop the
   recorded step. */
NEO__GPU void neo__cuda_loss_stop(const neo__loss_call &c, neo__cuda_loss_result *r, int *stop) {
    for (int k = 0; k < 2; k++) r->bad[k] = ~r->bad[k];
    const int what = r->bad[0] == NEO__CUDA_NONE;
    if (r->bad[what] == NEO__CUDA_NONE) return;
    const int64_t at = (int64_t)r->bad[what];
    if (c.label) r->label = c.label[at];
    else r->value = (double)(what ? c.x : c.y)[at];
    if (stop) *stop = 1;
}
/* 16 samples of one element, to which `loss` is shared memory of the half-warp's. */
NEO__GPU void neo__cuda_loss_vector(const neo__loss_call &c, int64_t at, float *loss) {
    const int64_t n = NEO__MIN(c.rows - at, (int64_t)16);
    const float *x = c.x + at, *y = c.y + at, *weight = c.weight ? c.weight + at : NULL;
    float *dx = c.dx ? c.dx + at : NULL;
    if (c.kind == NEO__LOSS_BCE_LOGITS)
        neo__vec_bce_logits_warp(x, y, weight, c.g, loss, dx, n);
    else if (c.kind == NEO__LOSS_BCE) neo__vec_bce_warp(x, y, weight, c.g, loss, dx, n);
    else neo__vec_mse_warp(x, y, weight, c.g, loss, dx, n);
}
/* neo__mse_row and neo__cross_entropy_row of >>impl-losses. */
NEO__GPU float neo__cuda_mse_row(const neo__loss_call &c, int64_t row) {
    const float weight = c.weight ? c.weight[row] : 1.0f;
    const int64_t at = row * c.width;
    const float squares = neo__vec_mse_row_warp(c.x + at, c.y + at, __fmul_rn(weight, c.g),
                                                c.dx ? c.dx + at : NULL, c.width);
    return __fmul_rn(weight, __fdiv_rn(squares, (float)c.width));
}
NEO__GPU float neo__cuda_entropy_row(const neo__loss_call &call, int64_t row) {
    const unsigned mask = neo__mask_warp();
    const float weight = call.weight ? call.weight[row] : 1.0f, g = __fmul_rn(weight, call.g);
    const int64_t label = call.label[row];
    const float *x = call.x + row * call.width;
    float *dx = call.dx && !call.narrow_dx ? call.dx + row * call.width : NULL, max = 0.0f;
    const float x_label = x[label]; /* dx may be x: it is written after all lanes have met */
    const float sum = neo__vec_softmax_row_warp(x, &max, dx, call.width);
    for (int64_t j = threadIdx.x % 16; call.narrow_dx && j < call.width; j += 16) {
        const float p = __fdiv_rn(neo__vexp_warp(__fsub_rn(x[j], max)), sum);
        neo__cuda_wide_put(call.dx, row * call.dx_row + j, 1,
                           __fmul_rn(j == label ? __fsub_rn(p, 1.0f) : p, g));
    }
    if (dx) {
        __syncwarp(mask);
        const float p = __fdiv_rn(dx[label], sum);
        __syncwarp(mask);
        neo__vec_softmax_grad_warp(dx, sum, g, call.width);
        __syncwarp(mask);
        if (threadIdx.x % 16 == 0) dx[label] = __fmul_rn(__fsub_rn(p, 1.0f), g);
    }
    return __fmul_rn(weight, __fsub_rn(neo__vlog_warp(sum), __fsub_rn(x_label, max)));
}
/* Cross entropy of wide rows: a block for each. It reads a row once for its maximum and the sum
   below it, once more for the slopes, and writes these, in place where dx is x. */
enum {
    NEO__WIDE_ROW = 1024,
    NEO__ROW_AHEAD = 8, /* numbers that a thread loads at once */
    NEO__ROW_SUMS = 1024 /* blocks of NEO__BLOCK numbers of a row that is `exact` */
};
/* How dx is written, and x of bf16 read: of pairs a thread has two columns, and a load or store of
   a warp is 128 bytes. */
enum { NEO__SLOPES_F32, NEO__SLOPES_BF16, NEO__SLOPES_PAIRS };
/* The address of a row of logits, as of f32. */
template <bool NARROW>
NEO__GPU const float *neo__cuda_logits(const neo__loss_call &c, int64_t row) {
    if constexpr (NARROW)
        return (const float *)(const void *)((const uint16_t *)(const void *)c.x + row * c.x_row);
    else return c.x + row * c.width;
}
/* W of a row from column j on; what is behind the row is -inf. */
template <int W, bool NARROW>
NEO__GPU neo__floats<W> neo__cuda_logits_at(const float *x, int64_t j, int64_t width) {
    neo__floats<W> v;
    NEO__UNROLL for (int w = 0; w < W; w++) v.v[w] = neo__f32_bits(0xFF800000u);
    if (j >= width) return v;
    if constexpr (!NARROW) v = neo__cuda_load<W>(x + j);
    else if constexpr (W == 1) v.v[0] = neo__cuda_wide_get(x, j, 1);
    else {
        const uint16_t *from = (const uint16_t *)(const void *)x + j;
        const uint32_t pair = j + 1 < width ? *(const uint32_t *)(const void *)from
                                            : *from | 0xFF800000u;
        v.v[0] = neo__f32_bits(pair << 16), v.v[1] = neo__f32_bits(pair & 0xFFFF0000u);
    }
    return v;
}
/* total: of `exact` the row's sum, else its inverse. */
template <int KIND, bool EXACT, bool NARROW>
NEO__GPU void neo__cuda_entropy_slopes(const neo__loss_call &call, int64_t row, float max,
                                       float total, float g) {
    constexpr int WIDE = KIND == NEO__SLOPES_PAIRS ? 2 : 1;
    constexpr int AHEAD = NARROW ? (int)NEO__ROW_AHEAD : NEO__ROW_AHEAD / WIDE;
    const int64_t step = AHEAD * WIDE * NEO__CUDA_THREADS, label = call.label[row];
    const float *x = neo__cuda_logits<NARROW>(call, row);
    const int64_t to = row * (KIND == NEO__SLOPES_F32 ? call.width : call.dx_row);
    for (int64_t at = WIDE * (int64_t)threadIdx.x; at < call.width; at += step) {
        neo__floats<WIDE> v[AHEAD];
        const auto col = [at](int e) { return at + e * (WIDE * NEO__CUDA_THREADS); };
        NEO__UNROLL for (int e = 0; e < AHEAD; e++)
            v[e] = neo__cuda_logits_at<WIDE, NARROW>(x, col(e), call.width);
        NEO__UNROLL for (int e = 0; e < AHEAD; e++) {
            const int64_t j = col(e);
            NEO__UNROLL for (int w = 0; w < WIDE; w++) {
                if constexpr (EXACT) {
                    const float p =
                        __fdiv_rn(neo__vexp_warp(__fsub_rn(v[e].v[w], max)), total);
                    v[e].v[w] = __fmul_rn(j + w == label ? __fsub_rn(p, 1.0f) : p, g);
                } else {
                    const float p = neo__cuda_exp2((v[e].v[w] - max) * NEO__LOG2_E) * total;
                    v[e].v[w] = (j + w == label ? p - 1.0f : p) * g;
                }
            }
            if (j >= call.width) continue;
            if (WIDE == 2 && j + 1 < call.width)
                *(uint32_t *)(void *)((uint16_t *)(void *)call.dx + to + j) =
                    neo__bf16_from_f32(v[e].v[0]) |
                    (uint32_t)neo__bf16_from_f32(v[e].v[WIDE - 1]) << 16;
            else neo__cuda_wide_put(call.dx, to + j, KIND, v[e].v[0]);
        }
    }
}
NEO__GPU void neo__cuda_fold(float &max, float &sum, float other_max, float other_sum) {
    const float most = fmaxf(max, other_max);
    sum = sum * neo__cuda_exp2((max - most) * NEO__LOG2_E) +
          other_sum * neo__cuda_exp2((other_max - most) * NEO__LOG2_E);
    max = most;
}
/* Outside `exact` threads find a maximum and the sum below it together, which fade as the maximum
   grows, then meet in a fixed order. It begins with the least finite number: a thread's numbers may
   all be -inf. */
template <int WIDE, bool NARROW>
NEO__GPU float neo__cuda_row_sum(const float *x, int64_t width, float &max) {
    __shared__ float warp_max[NEO__CUDA_THREADS / 32], warp_sum[NEO__CUDA_THREADS / 32];
    const int64_t step = NEO__ROW_AHEAD * WIDE * NEO__CUDA_THREADS;
    neo__floats<WIDE> v[NEO__ROW_AHEAD];
    float sum = 0.0f;
    max = -FLT_MAX;
    for (int64_t at = WIDE * (int64_t)threadIdx.x; at < width; at += step) {
        float most = max;
        NEO__UNROLL for (int e = 0; e < NEO__ROW_AHEAD; e++)
            v[e] = neo__cuda_logits_at<WIDE, NARROW>(x, at + e * (WIDE * NEO__CUDA_THREADS), width);
        NEO__UNROLL for (int e = 0; e < NEO__ROW_AHEAD; e++)
            NEO__UNROLL for (int w = 0; w < WIDE; w++) most = fmaxf(most, v[e].v[w]);
        sum *= neo__cuda_exp2((max - most) * NEO__LOG2_E), max = most;
        NEO__UNROLL for (int e = 0; e < NEO__ROW_AHEAD; e++)
            NEO__UNROLL for (int w = 0; w < WIDE; w++)
                sum += neo__cuda_exp2((v[e].v[w] - most) * NEO__LOG2_E);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2)
        neo__cuda_fold(max, sum, __shfl_xor_sync(~0u, max, lanes),
                       __shfl_xor_sync(~0u, sum, lanes));
    const int warp = (int)threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) warp_max[warp] = max, warp_sum[warp] = sum;
    __syncthreads();
    max = warp_max[0], sum = warp_sum[0];
    for (int w = 1; w < NEO__CUDA_THREADS / 32; w++)
        neo__cuda_fold(max, sum, warp_max[w], warp_sum[w]);
    return sum;
}
/* The same by the CPU's order: a half-warp sums a block of NEO__BLOCK numbers, and their sums are
   added one after another. Sums that fade are others, so a round of blocks is summed below the
   largest number so far, and again where a later round has a larger one: a row whose first 4,096
   numbers have its maximum is read once. */
template <bool NARROW>
NEO__GPU float neo__cuda_row_sum_exact(const float *x, int64_t width, float &max) {
    enum { EACH = NEO__BLOCK / 16 };
    __shared__ float sums[NEO__ROW_SUMS], most[2][NEO__CUDA_THREADS / 32];
    const int half = (int)threadIdx.x / 16, lane = (int)threadIdx.x % 16;
    const int blocks = (int)((width + NEO__BLOCK - 1) / NEO__BLOCK);
    float v[EACH];
    max = neo__cuda_wide_get(x, 0, NARROW);
    for (int pass = 0, again = blocks; pass < 2; pass++) { /* blocks below `again` */
        const int end = again;
        for (int first = 0, round = 0; first < end; first += NEO__HALVES, round ^= 1) {
            const int64_t at = (int64_t)(first + half) * NEO__BLOCK + lane;
            NEO__UNROLL for (int e = 0; e < EACH; e++)
                v[e] = neo__cuda_logits_at<1, NARROW>(x, at + 16 * e, width).v[0];
            if (pass == 0) {
                float larger = max;
                NEO__UNROLL for (int e = 0; e < EACH; e++) larger = fmaxf(larger, v[e]);
                for (int lanes = 16; lanes > 0; lanes /= 2)
                    larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, lanes));
                if (threadIdx.x % 32 == 0) most[round][threadIdx.x / 32] = larger;
                __syncthreads();
                for (int w = 0; w < NEO__CUDA_THREADS / 32; w++)
                    larger = fmaxf(larger, most[round][w]);
                if (first == 0 || larger > max) again = first;
                max = larger;
            }
            float sum = 0.0f;
            NEO__UNROLL for (int e = 0; e < EACH; e++) {
                const float now = neo__vexp_warp(__fsub_rn(v[e], max));
                sum = __fadd_rn(sum, at + 16 * e < width ? now : 0.0f);
            }
            sum = neo__tree16_warp(sum);
            if (lane == 0 && first + half < blocks) sums[first + half] = sum;
        }
    }
    __syncthreads();
    float total = 0.0f;
    for (int b = 0; b < blocks; b++) total = __fadd_rn(total, sums[b]);
    return total;
}
template <int KIND, bool EXACT, bool NARROW>
NEO__CUDA_KERNEL neo__cuda_entropy_kernel(const neo__loss_call c, neo__cuda_loss_result *result,
                                          int checks, const neo__graph_answer answer) {
    __shared__ neo__cuda_word losses[NEO__CUDA_EXACT];
    __shared__ int last;
    if (!neo__cuda_loss_goes(result, checks)) return;
    neo__cuda_exact_begin(losses);
    for (int64_t row = blockIdx.x; row < c.rows; row += gridDim.x) {
        if (checks && !neo__cuda_label(c, row, result)) continue;
        const float weight = c.weight ? c.weight[row] : 1.0f, g = __fmul_rn(weight, c.g);
        const float *x = neo__cuda_logits<NARROW>(c, row);
        const float x_label = neo__cuda_wide_get(x, c.label[row], NARROW);
        float max, loss;
        if constexpr (EXACT) {
            const float sum = neo__cuda_row_sum_exact<NARROW>(x, c.width, max);
            if (c.dx) neo__cuda_entropy_slopes<KIND, EXACT, NARROW>(c, row, max, sum, g);
            loss = __fmul_rn(weight, __fsub_rn(neo__vlog_warp(sum), __fsub_rn(x_label, max)));
        } else {
            constexpr int WIDE = NARROW && KIND == NEO__SLOPES_PAIRS ? 2 : 1;
            const float sum = neo__cuda_row_sum<WIDE, NARROW>(x, c.width, max), share = 1.0f / sum;
            if (c.dx) neo__cuda_entropy_slopes<KIND, EXACT, NARROW>(c, row, max, share, g);
            loss = weight * (logf(sum) - (x_label - max));
        }
        if (threadIdx.x == 0) neo__cuda_exact_add(losses, loss);
        __syncthreads();
    }
    neo__cuda_exact_end(result->sum, losses);
    neo__graph_finish<neo__cuda_loss_stop>(answer, &last, c, result);
}
template <bool EXACT> static auto neo__cuda_entropy_of(int slopes, int narrow) {
    if (narrow)
        return slopes == NEO__SLOPES_PAIRS
                   ? neo__cuda_entropy_kernel<NEO__SLOPES_PAIRS, EXACT, true>
                   : neo__cuda_entropy_kernel<NEO__SLOPES_BF16, EXACT, true>;
    return slopes == NEO__SLOPES_PAIRS  ? neo__cuda_entropy_kernel<NEO__SLOPES_PAIRS, EXACT, false>
           : slopes == NEO__SLOPES_BF16 ? neo__cuda_entropy_kernel<NEO__SLOPES_BF16, EXACT, false>
                                        : neo__cuda_entropy_kernel<NEO__SLOPES_F32, EXACT, false>;
}
/* Columns may go by pairs. */
static bool neo__cuda_loss_pairs(const neo__loss_call *c) {
    if (c->narrow_x)
        return (c->x_row | (c->dx ? c->dx_row : 0)) % 2 == 0 &&
               ((uintptr_t)c->x | (uintptr_t)c->dx) % 4 == 0;
    return c->narrow_dx && (c->width | c->dx_row) % 2 == 0 && (uintptr_t)c->x % 8 == 0 &&
           (uintptr_t)c->dx % 4 == 0;
}
/* Samples of one element, or of rows. */
template <bool ROWS>
static __global__ void neo__cuda_loss_kernel(const neo__loss_call c, neo__cuda_loss_result *found,
                                             int checks, const neo__graph_answer answer) {
    __shared__ neo__cuda_word sum[NEO__CUDA_EXACT];
    __shared__ int last;
    const int lane = threadIdx.x % 16;
    if (!neo__cuda_loss_goes(found, checks)) return;
    neo__cuda_exact_begin(sum);
    if constexpr (ROWS) {
        NEO__CUDA_EACH(row, c.rows, 16) {
            if (checks && !neo__cuda_label(c, row, found)) continue;
            const float loss = c.kind == NEO__LOSS_CROSS_ENTROPY ? neo__cuda_entropy_row(c, row)
                                                                 : neo__cuda_mse_row(c, row);
            if (lane == 0) neo__cuda_exact_add(sum, loss);
        }
    } else {
        __shared__ float losses[NEO__HALVES][16];
        float *loss = losses[threadIdx.x / 16];
        NEO__CUDA_EACH(vector, (c.rows + 15) / 16, 16) {
            const int64_t mine = 16 * vector + lane;
            const bool bad = checks && mine < c.rows && !neo__cuda_label(c, mine, found);
            if (__any_sync(neo__mask_warp(), bad)) continue; /* the number stays, for the message */
            neo__cuda_loss_vector(c, 16 * vector, loss);
            if (mine < c.rows) neo__cuda_exact_add(sum, loss[lane]);
        }
    }
    neo__cuda_exact_end(found->sum, sum);
    neo__graph_finish<neo__cuda_loss_stop>(answer, &last, c, found);
}
static neo_status neo__cuda_loss(neo__cuda *gpu, const neo__loss_call *call) {
    const neo__loss_found none = neo__loss_found_none();
    if (call->rows == 0 || call->width == 0) return neo__later_now(&call->later, &none);
    NEO__CHECK(!gpu->exact || !call->narrow_x || call->width <= (int64_t)NEO__ROW_SUMS * NEO__BLOCK,
               NEO_ERR_UNSUPPORTED, "%s: loss: %lld logits of bf16 in a row, more than %d",
               gpu->device.name, (long long)call->width, (int)NEO__ROW_SUMS * NEO__BLOCK);
    neo__loss_call c = *call; /* as kernels get it: without places on the host */
    memset(&c.later, 0, sizeof c.later);
    const int noted = gpu->recording && call->later.fn;
    neo__cuda_loss_result *r =
        (neo__cuda_loss_result *)(void *)(noted ? neo__graph_zeros(gpu) : gpu->result);
    NEO__ZERO(neo__graph_answer, answer);
    if (!noted) {
        NEO__TRY(neo__cuda_fill(gpu, r, 0, sizeof *r));
        if (call->kind != NEO__LOSS_MSE)
            NEO__TRY(neo__cuda_run(gpu, "loss", neo__cuda_labels_kernel, call->rows, 1, c, r));
    } else {
        NEO__TRY(neo__graph_ask_kernel(gpu, r, sizeof *r, r, sizeof *r, &call->later, &answer));
    }
    const bool rows = call->kind == NEO__LOSS_CROSS_ENTROPY || call->width > 1;
    const auto kernel = rows ? neo__cuda_loss_kernel<true> : neo__cuda_loss_kernel<false>;
    const int slopes = neo__cuda_loss_pairs(call) ? NEO__SLOPES_PAIRS
                       : c.narrow_dx              ? NEO__SLOPES_BF16
                                                  : NEO__SLOPES_F32;
    const bool wide = call->kind == NEO__LOSS_CROSS_ENTROPY &&
                      (call->width >= NEO__WIDE_ROW || call->narrow_x) &&
                      (!gpu->exact || call->width <= (int64_t)NEO__ROW_SUMS * NEO__BLOCK);
    if (wide)
        NEO__TRY(neo__cuda_launch(gpu, "loss",
                                  gpu->exact
                                      ? neo__cuda_entropy_of<true>(slopes, call->narrow_x)
                                      : neo__cuda_entropy_of<false>(slopes, call->narrow_x),
                                  {neo__cuda_blocks(gpu, call->rows, 1)}, c, r, noted, answer));
    else
        NEO__TRY(neo__cuda_run(gpu, "loss", kernel, call->rows, rows ? 16 : 1, c, r, noted,
                               answer));
    if (noted) return neo__graph_promise(gpu, sizeof *r, &call->later), NEO_OK;
    NEO__TRY(neo__graph_check<neo__cuda_loss_stop>(gpu, {}, "loss", c, r));
    NEO__TRY(neo__cuda_answer(gpu, r, sizeof *r));
    return neo__later_now(&call->later, gpu->answer);
}

/* ---- >>cuda-random ----
   Initial values: an element is a function of its number. Each thread computes its element's block
   of four, which costs less than it seems: values are made once, and memory is the slower part. */
NEO__GPU float neo__cuda_first(const neo__init_call &call, uint64_t number) {
    uint32_t word[4];
    if (call.init.kind == NEO_INIT_CONSTANT) return call.init.a;
    neo__random_block(&call.key, number / 4, word);
    const int w = (int)(number % 4);
    if (call.init.kind == NEO_INIT_UNIFORM) {
        const float u = __fmul_rn((float)(int32_t)(word[w] >> 8), 0x1p-24f);
        return neo__min_warp(__fmaf_rn(u, call.scale, call.init.a), call.top);
    }
    neo__float_warp z0, z1;
    neo__box_muller_warp(word[w & 2], word[(w & 2) + 1], &z0, &z1);
    return __fmaf_rn(w & 1 ? z1 : z0, call.init.b, call.init.a);
}
struct neo__cuda_init_job {
    neo__init_call c;
    template <int W> __device__ void at(int64_t i) const {
        const int64_t row = i / c.cols;
        c.out[i] = neo__cuda_first(c, c.first + (uint64_t)(i + row * (c.stride - c.cols)));
    }
};
static neo_status neo__cuda_init(neo__cuda *d, const neo__init_call *call) {
    if (call->init.kind == NEO_INIT_NONE) return NEO_OK;
    const neo__cuda_init_job job = {*call};
    return neo__cuda_each<1>(d, job, call->count, "init");
}

/* ---- >>cuda-convert ----
   An element is a thread's, wherever the strides put it: decode, round, encode. */
NEO__GPU int64_t neo__cuda_dtype_size(neo_dtype t) {
    if (t == NEO_I64) return 8;
    return t == NEO_F32 || t == NEO_I32 ? 4 : t == NEO_F16 || t == NEO_BF16 ? 2 : 1;
}
static __device__ void neo__cuda_copy_number(void *to, const void *from, int64_t size) {
    if (size == 1) *(uint8_t *)to = *(const uint8_t *)from;
    else if (size == 2) *(uint16_t *)to = *(const uint16_t *)from;
    else if (size == 4) *(uint32_t *)to = *(const uint32_t *)from;
    else *(uint64_t *)to = *(const uint64_t *)from;
}
struct neo__cuda_convert_job {
    neo__convert_call c;
    template <int W> __device__ void at(int64_t i) const {
        const neo_dtype from = c.src.dtype, to = c.dst.dtype;
        int64_t rest = i, src_at = 0, dst_at = 0;
        for (int d = c.src.ndim - 1; d >= 0; d--) {
            const int64_t at = rest % c.src.shape[d];
            rest /= c.src.shape[d];
            src_at += at * c.src.stride[d];
            dst_at += at * c.dst.stride[d];
        }
        const void *src = (const char *)c.src.data + src_at * neo__cuda_dtype_size(from);
        void *dst = (char *)c.dst.data + dst_at * neo__cuda_dtype_size(to);
        if (from == to) {
            neo__cuda_copy_number(dst, src, neo__cuda_dtype_size(to));
            return;
        }
        uint32_t word[4], *random = NULL;
        if (c.stochastic) {
            const uint64_t number = (uint64_t)c.first + (uint64_t)i;
            neo__random_block(&c.key, number / 4, word);
            random = &word[number % 4];
        }
        float x = 0.0f;
        int64_t n = 0;
        if (neo__is_float(from)) {
            x = neo__float_decode(from, src);
            if (!neo__is_float(to)) n = neo__int_from_f32(x, random != NULL, random ? *random : 0);
        } else {
            n = neo__int_decode(from, src);
            x = to == NEO_F32 ? (float)n : neo__f32_from_int_odd(n);
        }
        if (neo__is_float(to)) neo__float_encode(to, x, dst, random);
        else neo__int_encode(to, n, dst);
    }
};
/* f32 to bf16 by rows, as operands of products are made: a thread stores 16 bytes at once. */
struct neo__cuda_narrow_part : neo__graph_span {
    enum { MOST = 56 }; /* of GPT-2's smallest model all weights */
    int64_t from_row, to_row, cols;
    uint32_t pieces; /* of a row, of 8 numbers; the last may be shorter */
    int wide;        /* rows of `from` are at multiples of 16 bytes */
    __device__ void at(int64_t i) const {
        const int64_t row = (uint32_t)i / pieces, col = (int64_t)((uint32_t)i % pieces) * 8;
        const float *x = (const float *)(const void *)from + row * from_row + col;
        uint16_t *y = (uint16_t *)(void *)to + row * to_row + col;
        neo__floats<4> v[2];
        if (cols - col < 8) {
            for (int w = 0; w < (int)(cols - col); w++) y[w] = neo__bf16_from_f32(x[w]);
            return;
        }
        NEO__UNROLL for (int w = 0; w < 2; w++) {
            if (wide) v[w] = neo__cuda_load<4>(x + 4 * w);
            else v[w] = {{x[4 * w], x[4 * w + 1], x[4 * w + 2], x[4 * w + 3]}};
        }
        uint32_t pair[4];
        NEO__UNROLL for (int w = 0; w < 4; w++)
            pair[w] = neo__bf16_from_f32(v[w / 2].v[w % 2 * 2]) |
                      (uint32_t)neo__bf16_from_f32(v[w / 2].v[w % 2 * 2 + 1]) << 16;
        *(uint4 *)(void *)y = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
};
NEO__STATIC_ASSERT(sizeof(neo__graph_parts<neo__cuda_narrow_part>) + sizeof(int64_t) <= 4096,
                   "the arguments of a kernel are 4 KiB");
/* *done is 0 where it is not for that job. */
static neo_status neo__cuda_narrow(neo__cuda *gpu, const neo__convert_call *call, int *done) {
    const neo_tensor *src = &call->src, *dst = &call->dst;
    const bool whole = neo_tensor_is_contiguous(*src) && neo_tensor_is_contiguous(*dst);
    const int64_t rows = whole ? 1 : src->shape[0];
    NEO__ZERO(neo__cuda_narrow_part, part);
    part.from = (const char *)src->data, part.to = (char *)dst->data;
    part.cols = whole ? call->count : src->shape[1];
    if (!whole) part.from_row = src->stride[0], part.to_row = dst->stride[0];
    part.reads = ((rows - 1) * part.from_row + part.cols) * (int64_t)sizeof(float);
    part.writes = ((rows - 1) * part.to_row + part.cols) * (int64_t)sizeof(uint16_t);
    const int64_t pieces = (part.cols + 7) / 8;
    *done = src->dtype == NEO_F32 && dst->dtype == NEO_BF16 && !call->stochastic &&
            (whole || (src->ndim == 2 && src->stride[1] == 1 && dst->stride[1] == 1)) &&
            neo__cuda_aligned(dst->data) && part.to_row % 8 == 0 &&
            rows * pieces < (int64_t)1 << 31;
    if (!*done) return NEO_OK;
    if (whole && neo__cuda_norm_before(gpu, (float *)src->data, NULL, call->count,
                                       (uint16_t *)dst->data))
        return NEO_OK;
    part.pieces = (uint32_t)pieces;
    part.wide = neo__cuda_aligned(src->data) && part.from_row % 4 == 0;
    return neo__graph_join(gpu, part, rows * pieces, "convert");
}
static neo_status neo__cuda_convert(neo__cuda *gpu, const neo__convert_call *call) {
    neo__cuda_convert_job job = {*call};
    int done = 0;
    NEO__TRY(neo__cuda_narrow(gpu, call, &done));
    if (done) return NEO_OK;
    if (neo_tensor_is_contiguous(call->src) && neo_tensor_is_contiguous(call->dst)) {
        const size_t bytes = (size_t)call->count * neo_dtype_size(call->src.dtype);
        if (call->src.data == call->dst.data && call->src.dtype == call->dst.dtype) return NEO_OK;
        if (call->src.dtype == call->dst.dtype)
            return neo__cuda_copy(gpu, call->dst.data, NEO_DEVICE, call->src.data, NEO_DEVICE,
                                  bytes);
        job.c.src.ndim = 1, job.c.src.shape[0] = call->count;
        job.c.src.stride[0] = job.c.dst.stride[0] = 1;
    }
    return neo__cuda_each<1>(gpu, job, call->count, "convert");
}

/* ---- >>cuda-blend ----
   neo_add, neo_mul, neo_addcmul, neo_scale, neo_round, neo_dot: an element is a thread's, a dot a
   half-warp's, which runs the CPU's kernel. */
struct neo__cuda_blend_job {
    neo__blend_call c;
    int *infinite; /* device */
    template <int W> __device__ void at(int64_t i) const {
        const int64_t row = i / c.cols, col = i % c.cols;
        void *x = (char *)(uintptr_t)c.x + (row * c.x_row + col) * neo__cuda_dtype_size(c.x_dtype);
        void *y = (char *)(uintptr_t)c.y + (row * c.y_row + col) * neo__cuda_dtype_size(c.y_dtype);
        const float v = neo__float_decode(c.x_dtype, x);
        if (c.kind == NEO__BLEND_ADD || c.kind == NEO__BLEND_MUL) {
            const float w = neo__float_decode(c.y_dtype, y);
            const float to = c.kind == NEO__BLEND_ADD ? __fadd_rn(v, w) : __fmul_rn(v, w);
            neo__float_encode(c.x_dtype, to, x, NULL);
        } else if (c.kind == NEO__BLEND_ROWS || c.kind == NEO__BLEND_FMA) {
            const float *base = c.base ? c.base + row * c.base_row + col : NULL;
            const float z = c.z ? c.z[row * c.z_row + col] : c.out[row], w = *(const float *)y;
            *(float *)x = base ? __fmaf_rn(w, z, *base) : __fmul_rn(z, w);
        } else if (c.kind == NEO__BLEND_SCALE || c.kind == NEO__BLEND_LOOK) {
            if ((neo__bits_f32(v) & 0x7F800000u) == 0x7F800000u && infinite) *infinite = 1;
            const float factor = c.factor_there ? *c.factor_there : c.factor;
            if (c.kind == NEO__BLEND_SCALE) *(float *)x = __fmul_rn(v, factor);
        } else if (c.kind == NEO__BLEND_DROP) {
            const uint64_t number = c.first + (uint64_t)i;
            uint32_t word[4];
            neo__random_block(&c.key, number / 4, word);
            const float uniform = (float)(word[number % 4] >> 8) * 0x1p-24f;
            const float left = uniform >= c.least ? __fmul_rn(v, c.factor) : 0.0f;
            neo__float_encode(c.y_dtype, left, y, NULL);
        } else {
            uint32_t narrow = 0;
            neo__float_encode(c.dtype, v, &narrow, NULL);
            *(float *)y = neo__float_decode(c.dtype, &narrow);
        }
    }
};
static __global__ void neo__cuda_dot_kernel(const neo__blend_call c) {
    NEO__CUDA_EACH(i, c.rows, 16) {
        const float sum = neo__vec_dot_warp((const float *)c.x + i * c.x_row,
                                            (const float *)c.y + i * c.y_row, c.cols);
        if (threadIdx.x % 16 == 0) c.out[i] = sum;
    }
}
static neo_status neo__cuda_blend(neo__cuda *gpu, const neo__blend_call *call) {
    neo__cuda_blend_job job = {*call, NULL};
    const int64_t count = call->rows * call->cols;
    if (call->kind == NEO__BLEND_DOT)
        return neo__cuda_run(gpu, "dot", neo__cuda_dot_kernel, call->rows, 16, *call);
    const int half = call->x_dtype == NEO_BF16;
    if (call->kind == NEO__BLEND_ADD && call->x_dtype == call->y_dtype &&
        (half || call->x_dtype == NEO_F32) &&
        (call->rows == 1 || (call->x_row == call->cols && call->y_row == call->cols))) {
        float *const x = (float *)call->x;
        const float *const y = (const float *)call->y;
        const int with_norm = half ? neo__cuda_norm_onto(gpu, x, y, count)
                                   : neo__cuda_norm_before(gpu, x, y, count, NULL);
        return with_norm ? NEO_OK : neo__cuda_add(gpu, x, y, count, half);
    }
    if (call->infinite) {
        job.infinite = (int *)(void *)gpu->result;
        NEO__TRY(neo__cuda_fill(gpu, job.infinite, 0, sizeof(int)));
    }
    NEO__TRY(neo__cuda_each<1>(gpu, job, count, "blend"));
    if (!call->infinite) return NEO_OK;
    NEO__TRY(neo__cuda_answer(gpu, job.infinite, sizeof(int)));
    if (*(const int *)(const void *)gpu->answer) *call->infinite = 1;
    return NEO_OK;
}

/* ---- >>cuda-optim ----
   A step takes the CPU's rules of elements, in registers. For norms a half-warp takes a block of
   NEO__BLOCK elements of a parameter and runs the CPU's kernel on it. The spans of a launch are
   arguments of the kernel. */
enum { NEO__CUDA_SPANS = 64 };
typedef struct neo__cuda_spans {
    neo__optim_span span[NEO__CUDA_SPANS];
    int32_t count, first;                  /* first: number of span[0] among the call's */
    int64_t begin[NEO__CUDA_SPANS + 1];    /* blocks before each span */
} neo__cuda_spans;
typedef struct neo__cuda_optim_job {
    neo__optim_pass pass;
    neo_optim_kind kind;
    neo__step step;
    neo__cuda_word *sums; /* [2 spans] or [1], NEO__CUDA_EXACT words each */
    unsigned *most;
    const int *stop; /* see >>cuda-graph */
    const float *clip; /* instead of the step's; or NULL */
    float *rates;      /* of spans, LAMB's: instead of theirs; or NULL */
} neo__cuda_optim_job;
typedef struct neo__cuda_norm_sums {
    uint64_t most; /* of its first word */
    neo__cuda_word sum[NEO__CUDA_EXACT];
} neo__cuda_norm_sums;
NEO__STATIC_ASSERT(sizeof(neo__cuda_norm_sums) <= NEO__CUDA_ZEROS_AT &&
                       sizeof(neo__cuda_loss_result) <= NEO__CUDA_ARRIVED_AT - NEO__CUDA_ZEROS_AT,
                   "they lie there");
/* How the launch that ends a recorded norm goes on. */
typedef struct neo__cuda_norm_end {
    neo__graph_answer answer;
    neo__optim_found *found; /* the answer; its factor stays on the device for the step */
    neo__cuda_norm_sums *sums;
    float clip_norm;
    int unused;
} neo__cuda_norm_end;
NEO__STATIC_ASSERT(sizeof(neo__cuda_spans) + sizeof(neo__cuda_optim_job) +
                           sizeof(neo__cuda_norm_end) + 48 <= 4096,
                   "the arguments of a kernel are 4 KiB");
/* W elements, by a rule of neo_kernels.h (see >>kernels). */
template <auto rule, int W>
NEO__GPU void neo__cuda_rule(const neo__step &step, const neo__optim_span &span, int64_t at) {
    neo__floats<W> w = neo__cuda_load<W>(span.w + at), a = {}, b = {};
    const neo__floats<W> g = neo__cuda_load<W>(span.grad + at);
    if (span.state[0]) a = neo__cuda_load<W>(span.state[0] + at);
    if (span.state[1]) b = neo__cuda_load<W>(span.state[1] + at);
    NEO__UNROLL for (int c = 0; c < W; c++) {
        neo__float_warp x = a.v[c], y = b.v[c];
        w.v[c] = rule(&step, w.v[c], g.v[c], &x, &y);
        a.v[c] = x, b.v[c] = y;
    }
    neo__cuda_store<W>(span.w + at, w);
    if (span.state[0]) neo__cuda_store<W>(span.state[0] + at, a);
    if (span.state[1]) neo__cuda_store<W>(span.state[1] + at, b);
}
template <int W>
NEO__GPU void neo__cuda_optim_step(const neo__cuda_optim_job &job, const neo__optim_span &span,
                                   float rate, int64_t at) {
    neo__step step = job.step;
    if (job.clip) step.clip = *job.clip;
    if (job.kind == NEO_OPTIM_LAMB) step.lr = rate;
    switch (job.kind) {
    case NEO_OPTIM_SGD: neo__cuda_rule<neo__rule_sgd_warp, W>(step, span, at); break;
    case NEO_OPTIM_ADAGRAD: neo__cuda_rule<neo__rule_adagrad_warp, W>(step, span, at); break;
    case NEO_OPTIM_ADAM:
    case NEO_OPTIM_ADAMW: neo__cuda_rule<neo__rule_adam_warp, W>(step, span, at); break;
    case NEO_OPTIM_LAMB: neo__cuda_rule<neo__rule_lamb_warp, W>(step, span, at); break;
    case NEO_OPTIM_RMSPROP: neo__cuda_rule<neo__rule_rmsprop_warp, W>(step, span, at); break;
    case NEO_OPTIM_FTRL: neo__cuda_rule<neo__rule_ftrl_warp, W>(step, span, at); break;
    case NEO_OPTIM_COUNT: break;
    }
}
/* One block; `block`: the shared sum of the thread block, for norms. */
NEO__GPU void neo__cuda_optim_block(const neo__cuda_optim_job &job, const neo__cuda_spans &spans,
                                    int i, int64_t at, neo__cuda_word *block) {
    const neo__optim_span &span = spans.span[i];
    const int64_t n = NEO__MIN(span.count - at, (int64_t)NEO__BLOCK);
    const int first = threadIdx.x % 16 == 0;
    if (job.pass == NEO__OPTIM_LAMB_MOMENTS) {
        float *m = span.state[0] + at, *v = span.state[1] + at;
        neo__step step = job.step;
        if (job.clip) step.clip = *job.clip;
        neo__vec_lamb_moments_warp(&step, span.grad + at, m, v, n);
        const float w2 = neo__vec_block_square_warp(span.w + at, n);
        const float u2 = neo__vec_lamb_square_warp(&step, span.w + at, m, v, n);
        neo__cuda_word *sums = job.sums + 2 * (spans.first + i) * NEO__CUDA_EXACT;
        if (first && !span.elsewhere) neo__cuda_exact_add(sums, w2);
        if (first && !span.elsewhere) neo__cuda_exact_add(sums + NEO__CUDA_EXACT, u2);
    } else if (!span.elsewhere) {
        const float *g = span.grad + at;
        const float x = job.pass == NEO__OPTIM_NORM_1   ? neo__vec_block_abs_warp(g, n)
                        : job.pass == NEO__OPTIM_NORM_2 ? neo__vec_block_square_warp(g, n)
                                                      : neo__vec_block_max_warp(g, n);
        if (first && job.pass == NEO__OPTIM_NORM_INF) atomicMax(job.most, neo__bits_f32(x));
        else if (first) neo__cuda_exact_add(block, x);
    }
}
NEO__GPU int neo__cuda_span_of(const neo__cuda_spans &s, int64_t b) {
    return neo__cuda_last(0, (int)s.count, b, [&s](int k) { return s.begin[k]; });
}
/* Four elements are a thread's; together, where the addresses allow it. */
static __global__ void neo__cuda_optim_step_kernel(const neo__cuda_optim_job o,
                                                   const neo__cuda_spans s) {
    if (o.stop && *o.stop) return;
    NEO__CUDA_EACH(b, s.begin[s.count], NEO__BLOCK / 4) {
        const int i = neo__cuda_span_of(s, b);
        const neo__optim_span &span = s.span[i];
        const float rate = o.rates ? o.rates[s.first + i] : span.lr;
        int64_t at = (b - s.begin[i]) * NEO__BLOCK + 4 * (threadIdx.x % (NEO__BLOCK / 4));
        if (at + 4 <= span.count &&
            neo__cuda_aligned(span.w, span.grad, span.state[0], span.state[1]))
            neo__cuda_optim_step<4>(o, span, rate, at);
        else
            for (int c = 0; c < 4 && at < span.count; c++, at++)
                neo__cuda_optim_step<1>(o, span, rate, at);
    }
}
/* neo__optim_lamb_rates, of sums that all ranks have. */
NEO__CUDA_KERNEL neo__cuda_optim_rates_kernel(const neo__cuda_word *sums, float *rates,
                                              int64_t count, float lr) {
    NEO__CUDA_EACH(i, count, 1) {
        double norm[2]; /* of weights, of their direction */
        for (int k = 0; k < 2; k++) {
            neo_exact sum;
            memcpy(&sum, sums + (2 * i + k) * NEO__CUDA_EXACT, sizeof sum);
            const uint64_t bits = neo__exact_round(sum);
            memcpy(&norm[k], &bits, sizeof bits);
            norm[k] = __dsqrt_rn(norm[k]);
        }
        rates[i] = norm[0] > 0.0 && norm[1] > 0.0
                       ? (float)__dmul_rn((double)lr, __ddiv_rn(norm[0], norm[1]))
                       : lr;
    }
}
/* The norm, and the factor that limits it. */
NEO__GPU void neo__cuda_clip_found(const neo__cuda_norm_end &end, neo__optim_pass pass, int *stop) {
    neo_exact sum;
    double norm;
    memcpy(&sum, end.sums->sum, sizeof sum);
    const uint64_t bits = neo__exact_round(sum);
    memcpy(&norm, &bits, sizeof norm);
    if (pass == NEO__OPTIM_NORM_INF) norm = (double)neo__f32_bits((uint32_t)end.sums->most);
    if (pass == NEO__OPTIM_NORM_2 && norm > 0.0) norm = __dsqrt_rn(norm); /* a NaN stays that NaN */
    if (!(norm - norm == 0.0)) *stop = 1;
    end.found->norm = norm, end.found->clip = (float)neo__optim_factor(end.clip_norm, norm);
}
/* LAMB's moments, and norms. */
static __global__ void neo__cuda_optim_kernel(const neo__cuda_optim_job o, const neo__cuda_spans s,
                                              const neo__cuda_norm_end end) {
    __shared__ neo__cuda_word block[NEO__CUDA_EXACT];
    __shared__ int last;
    const int sums = o.pass == NEO__OPTIM_NORM_1 || o.pass == NEO__OPTIM_NORM_2;
    if (o.stop && *o.stop) return;
    if (sums) neo__cuda_exact_begin(block);
    NEO__CUDA_EACH(b, s.begin[s.count], 16) {
        const int i = neo__cuda_span_of(s, b);
        neo__cuda_optim_block(o, s, i, (b - s.begin[i]) * NEO__BLOCK, block);
    }
    if (sums) neo__cuda_exact_end(o.sums, block);
    neo__graph_finish<neo__cuda_clip_found>(end.answer, &last, end, o.pass);
}
/* Adds what the device has summed to the caller's. */
static neo_status neo__cuda_optim_answer(neo__cuda *gpu, const neo__optim_call *call,
                                         const neo__cuda_word *sums, int64_t count) {
    const int64_t most = NEO__CUDA_ANSWER_BYTES / (int64_t)sizeof(neo_exact);
    const neo_exact *sum = (const neo_exact *)(void *)gpu->answer;
    for (int64_t first = 0; first < count; first += most) {
        const int64_t n = NEO__MIN(most, count - first);
        NEO__TRY(neo__cuda_answer(gpu, sums + first * NEO__CUDA_EXACT,
                                  (size_t)n * sizeof(neo_exact)));
        for (int64_t i = 0; i < n; i++) neo_exact_merge(&call->sums[first + i], &sum[i]);
    }
    return NEO_OK;
}
/* Others add theirs to a recorded norm, in front of its own sums. */
static neo_status neo__cuda_optim_others(neo__cuda *gpu, const neo__optim_others *others,
                                         neo__cuda_norm_end *end) {
    NEO__TRY(others->squares(others->user, (uint64_t *)end->sums->sum));
    return others->away ? neo__cuda_fill(gpu, end->sums, 0, sizeof *end->sums) : NEO_OK;
}
/* Ranks add up in it: what stops one of them may leave out its sums, but not its end. */
static int neo__cuda_optim_meets(const neo__optim_call *call) {
    return call->group || (call->others && call->others->meets);
}
/* A recorded norm over ranks: their words, integers, add up before it is taken. */
static neo_status neo__cuda_optim_group(neo__cuda *gpu, const neo__optim_call *call,
                                        neo__cuda_norm_end *end, const neo__later *later) {
    if (call->group)
        NEO__TRY(call->group->sum_there(call->group->user, (int64_t *)(void *)end->sums->sum,
                                        NEO__CUDA_EXACT));
    NEO__TRY(neo__graph_ask(gpu, end->found, sizeof *end->found, later, &end->answer));
    end->answer.zeros = (uint64_t *)(void *)end->sums;
    end->answer.zero_words = (int64_t)(sizeof *end->sums / sizeof(uint64_t));
    const neo__graph_answer answer = end->answer;
    NEO__TRY(neo__graph_check<neo__cuda_clip_found>(gpu, answer, "optim: norm", *end, call->pass));
    neo__graph_promise(gpu, sizeof *end->found, later);
    return NEO_OK;
}
/* later: of a recorded norm. */
static neo_status neo__cuda_optim_launch(neo__cuda *gpu, const neo__optim_call *call,
                                         const neo__cuda_optim_job *job, neo__cuda_norm_end *end,
                                         const neo__later *later) {
    for (int64_t i = 0; i < call->span_count;) {
        NEO__ZERO(neo__cuda_spans, s);
        s.first = (int32_t)i;
        for (; i < call->span_count && s.count < NEO__CUDA_SPANS; i++) {
            const neo__optim_span *span = &call->spans[i];
            s.span[s.count] = *span;
            s.begin[s.count + 1] = s.begin[s.count] + (span->count + NEO__BLOCK - 1) / NEO__BLOCK;
            s.count++;
        }
        const int64_t blocks = s.begin[s.count];
        if (job->pass == NEO__OPTIM_STEP) {
            NEO__TRY(neo__cuda_run(gpu, "optim", neo__cuda_optim_step_kernel, blocks,
                                   NEO__BLOCK / 4, *job, s));
            continue;
        }
        if (later && !neo__cuda_optim_meets(call) && i == call->span_count)
            NEO__TRY(neo__graph_ask_kernel(gpu, end->found, sizeof *end->found, end->sums,
                                           sizeof *end->sums, later, &end->answer));
        NEO__TRY(neo__cuda_launch(gpu, "optim", neo__cuda_optim_kernel,
                                  {neo__cuda_blocks(gpu, blocks, NEO__CUDA_THREADS / 16)}, *job, s,
                                  *end));
    }
    if (later && neo__cuda_optim_meets(call))
        return neo__cuda_optim_group(gpu, call, end, later);
    if (later) neo__graph_promise(gpu, sizeof *end->found, later);
    return NEO_OK;
}
/* The moments' end: rates for the step, which is the lane's next call. */
static neo_status neo__cuda_optim_rates(neo__cuda *gpu, const neo__optim_call *call,
                                        const neo__cuda_optim_job &job) {
    const int64_t count = call->span_count;
    if (call->group)
        NEO__TRY(call->group->sum_there(call->group->user, (int64_t *)(void *)job.sums,
                                        (int)(2 * count * NEO__CUDA_EXACT)));
    return neo__cuda_run(gpu, "optim: rates", neo__cuda_optim_rates_kernel, count, 1, job.sums,
                         job.rates, count, call->step.lr);
}
static neo_status neo__cuda_optim(neo__cuda *gpu, const neo__optim_call *call) {
    const int lamb = call->pass == NEO__OPTIM_LAMB_MOMENTS, step = call->pass == NEO__OPTIM_STEP;
    const int64_t sums = lamb ? 2 * call->span_count : 1;
    const int noted = !step && gpu->recording && call->later.fn;
    if (call->span_count == 0) return NEO_OK;
    NEO__ZERO(neo__cuda_optim_job, job);
    NEO__ZERO(neo__cuda_norm_end, end);
    end.sums = (neo__cuda_norm_sums *)(void *)(noted ? neo__graph_zeros(gpu) : gpu->result);
    end.found = (neo__optim_found *)(void *)gpu->result, end.clip_norm = call->clip_norm;
    job.pass = call->pass, job.kind = call->kind, job.step = call->step;
    job.sums = end.sums->sum, job.most = (unsigned *)(void *)&end.sums->most;
    job.stop = neo__graph_stop(gpu);
    if (call->clip_there) job.clip = &end.found->clip;
    const size_t norms = (size_t)(2 * call->span_count) * sizeof(neo_exact);
    if (lamb) {
        NEO__TRY(neo__cuda_reserve(gpu, norms + (size_t)call->span_count * sizeof(float)));
        job.sums = (neo__cuda_word *)(void *)gpu->work;
        NEO__TRY(neo__cuda_fill(gpu, job.sums, 0, norms));
    } else if (!step && !noted) {
        NEO__TRY(neo__cuda_fill(gpu, end.sums, 0, sizeof *end.sums));
    }
    if (call->rates_there) job.rates = (float *)(void *)(gpu->work + norms);
    const neo__optim_others *others = noted || step ? call->others : NULL;
    if (others && noted) NEO__TRY(neo__cuda_optim_others(gpu, others, &end));
    NEO__TRY(neo__cuda_optim_launch(gpu, call, &job, &end, noted ? &call->later : NULL));
    if (others && step) return others->scale(others->user, &end.found->clip);
    if (step || noted) return NEO_OK;
    if (call->rates_there) return neo__cuda_optim_rates(gpu, call, job);
    if (call->pass != NEO__OPTIM_NORM_INF) return neo__cuda_optim_answer(gpu, call, job.sums, sums);
    NEO__TRY(neo__cuda_answer(gpu, job.most, sizeof *job.most));
    const uint32_t most = *(const uint32_t *)(const void *)gpu->answer;
    if (most > neo__bits_f32(*call->most)) *call->most = neo__f32_bits(most);
    return NEO_OK;
}

/* ---- >>cuda-bags ----
   Embedding bags; >>impl-bags-calls says what the calls mean and what lies where.

   Lookup. The lanes that share a row hold 16 bytes of it each. They take a stretch of ids, of one
   bag or of several, have NEO__BAGS_AHEAD rows of it on their way before the first is converted and
   added, and store a sum where its bag ends. Of tables with row buckets, and of rows that cannot be
   read by fours, half-warps put ids in the order of their sums first: see neo__bags_line.
   Bags that have a key without a row are summed once more, with its initial row, which takes no
   memory: its numbers are made as they are added.

   Records. A block takes a tile of ids, brings the beginnings of its bags to shared memory, where
   each thread finds the bag of its id by bisection: long bags and short ones cost alike. One radix
   sort serves all tables.

   Update. A warp looks at 32 sorted records at a time; runs of equal rows that begin there are its
   own, however far they reach. So rows and tables are in parallel, and the sum down a run is a
   chain in canonical order, of which the loads are issued several records ahead of the additions.
   A row with records of several leaves has a chain for each, and the tree over them. The leaves of
   runs above NEO__JOB_LONG are summed before, a warp for each leaf of a row, and only their tree is
   left. Outside `exact` such a leaf is cut into pieces of NEO__JOB_LONG records, counted from its
   first, a warp for each, and its sum is the tree over their chains. A leaf's records are the same
   on any ranks, so its pieces are. (What add_grad adds to kept sums is a chain.) Rows that can be
   read by fours are stepped in registers, whatever their numbers and their rule, of one record
   several at a time: by a kernel of few registers where the rule is row-wise Adagrad or SGD alone,
   which loads NEO__BAGS_ROWS_AHEAD rows ahead, else NEO__BAGS_ANY_AHEAD with their states. The
   others go through neo__bag_step_row_warp with 16 lanes a row, the gradient in shared memory.

   No atomics touch a float, and what the integer ones leave to chance (which sum lies
   where, where a key lies in a hash table) shows in no result. */
enum {
    NEO__BAGS_WARPS = NEO__CUDA_THREADS / 32,
    NEO__BAGS_TILE = 1024, /* ids */
    NEO__BAGS_CHECKED = 4, /* ids of a lane that are looked at, on their way at once */
    NEO__BAGS_AHEAD = 8,   /* loads before the first of their additions, */
    NEO__BAGS_LONG_AHEAD = 32, /* of a long run; */
    NEO__BAGS_STRETCH = 96,    /* ids of several bags that lanes take at a time; */
    NEO__BAGS_ROWS_AHEAD = 4,  /* rows before the first of their steps, with their gradients, */
    NEO__BAGS_ANY_AHEAD = 2,   /* and of any rule with their states */
    NEO__BAGS_LONG_THREADS = 128,
    NEO__BAGS_MOST_DIM = 1024, /* of a row in registers, */
    NEO__BAGS_PLAIN_DIM = 256  /* where its step is plain */
};
/* Blocks of 256 threads with 128 registers each; ptxas would take fewer and load one by one. */
#define NEO__BAGS_KERNEL static __global__ void __launch_bounds__(NEO__CUDA_THREADS, 2)

/* The function for the size of the job's keys. */
#define NEO__BAGS_KEYED(job, function)                                                             \
    ((job)->fixed.wide ? function<uint64_t> : function<uint32_t>)

/* ---- single numbers ---- */
NEO__GPU int64_t neo__bags_bag_of(const neo__bags_job &job, int64_t lo, int64_t hi, int64_t k) {
    const int64_t *offsets = job.batch.offsets;
    return neo__cuda_last(lo, hi, k, [offsets](int64_t i) { return offsets[i]; });
}
NEO__GPU int neo__bags_feature_of(const neo__bags_job &job, int64_t bag) {
    const neo__job_feature *f = job.told.features;
    return (int)neo__cuda_last((int64_t)0, (int64_t)job.fixed.feature_count, bag,
                               [f](int64_t i) { return f[i].first_bag; });
}
NEO__GPU int neo__bags_table_of_key(const neo__bags_job &job, int64_t key) {
    const neo__job_table *t = job.fixed.tables;
    return (int)neo__cuda_last((int64_t)0, (int64_t)job.fixed.table_count, key,
                               [t](int64_t i) { return t[i].first_key; });
}
/* The look at the batch was bad: whatever works on it does nothing. */
NEO__GPU bool neo__bags_refused(const neo__bags_job &job) {
    const neo__bags_found *f = job.batch.found;
    return f->bag || (f->id && job.fixed.bounds == NEO_BOUNDS_ERROR) || f->first < 0 ||
           f->last < f->first || f->last - f->first > job.fixed.max_ids;
}
/* The id at offset k. */
NEO__GPU int64_t neo__bags_id(const neo__bags_job &job, int64_t k) {
    return neo__jagged_id(job.batch.ids, job.batch.is_i32, k - job.batch.id_base);
}
/* Its row, or its line in a tier; -1: it is dropped. */
NEO__GPU int64_t neo__bags_row_of(const neo__bags_job &job, int64_t rows, int64_t id) {
    if ((uint64_t)id < (uint64_t)rows || job.batch.lines) return id;
    if (job.fixed.bounds != NEO_BOUNDS_CLAMP) return -1;
    return id < 0 ? 0 : rows - 1;
}
NEO__GPU int64_t neo__bags_row(const neo__bags_job &job, int64_t rows, int64_t k) {
    return neo__bags_row_of(job, rows, neo__bags_id(job, k));
}
/* A bag's sum, or gradient, as its table divides it. */
NEO__GPU float neo__bags_mean(const neo__job_table &t, float x, int64_t length) {
    return t.mean && length > 1 ? __fdiv_rn(x, (float)length) : x;
}
NEO__GPU float neo__bags_weight_of(const neo__bags_job &job, int64_t k) {
    return job.batch.weights[k - job.batch.id_base];
}
NEO__GPU float neo__bags_weight_or_1(const neo__bags_job &job, int64_t k) {
    return job.batch.weights ? neo__bags_weight_of(job, k) : 1.0f;
}
/* A number of a row as it lies in memory, not written by the same kernel, and what it is: loads of
   several rows can be on their way before the first is converted. */
NEO__GPU uint32_t neo__bags_fetch_one(neo_dtype dtype, const char *row, int64_t col) {
    if (dtype == NEO_F32) return __ldg((const unsigned *)(const void *)row + col);
    if (dtype == NEO_I8) return __ldg((const unsigned char *)row + col);
    return __ldg((const unsigned short *)(const void *)row + col);
}
NEO__GPU float neo__bags_one(neo_dtype dtype, uint32_t raw, float scale, float bias) {
    if (dtype == NEO_F32) return neo__f32_bits(raw);
    if (dtype == NEO_F16) return neo__f32_from_f16((uint16_t)raw);
    if (dtype == NEO_BF16) return neo__f32_from_bf16((uint16_t)raw);
    return __fmaf_rn((float)(int8_t)raw, scale, bias);
}
/* A number of a row that the kernel does not write. */
NEO__GPU float neo__bags_element(const neo__bag_rows &s, int64_t row, int64_t col) {
    const bool scaled = s.dtype == NEO_I8;
    return neo__bags_one(s.dtype, neo__bags_fetch_one(s.dtype, s.data + row * s.row_bytes, col),
                         scaled ? s.scale[2 * row] : 0.0f, scaled ? s.scale[2 * row + 1] : 0.0f);
}
/* 16 bytes of a row as they lie in memory, and what four h of them is: loads of several rows can be
   on their way before the first is converted. Bytes read so have not been written by the same
   kernel. */
typedef struct neo__bags_raw {
    uint32_t word[4];
} neo__bags_raw;
NEO__EVERYWHERE static constexpr int neo__bags_bytes(neo_dtype t) {
    return t == NEO_F32 ? 4 : t == NEO_I8 ? 1 : 2;
}
template <neo_dtype T>
NEO__GPU void neo__bags_fetch(neo__bags_raw &raw, const char *at, int h = 0) {
#if defined(__CUDA_ARCH__)
    const size_t a = __cvta_generic_to_global(at);
    if (T == NEO_F32)
        asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(raw.word[0]), "=r"(raw.word[1]), "=r"(raw.word[2]), "=r"(raw.word[3])
            : "l"(a));
    else if (T == NEO_I8) asm("ld.global.nc.u32 %0, [%1];" : "=r"(raw.word[h]) : "l"(a));
    else
        asm("ld.global.nc.v2.u32 {%0, %1}, [%2];"
            : "=r"(raw.word[h * 2 % 4]), "=r"(raw.word[h * 2 % 4 + 1]) : "l"(a));
#else
    NEO_ASSERT((uintptr_t)at % (4 * (unsigned)neo__bags_bytes(T)) == 0);
    memcpy(raw.word + h * neo__bags_bytes(T), at, 4 * neo__bags_bytes(T));
#endif
}
template <neo_dtype T>
NEO__GPU neo__floats<4> neo__bags_four(const neo__bags_raw &raw, float scale, float bias,
                                       int h = 0) {
    neo__floats<4> f;
    NEO__UNROLL for (int c = 0; c < 4; c++) {
        const int at = T == NEO_F32 ? c : T == NEO_I8 ? h : 2 * h + c / 2;
        const uint32_t word = neo__cuda_now(raw.word[at % 4]);
        const uint16_t half = (uint16_t)(word >> (16 * (c % 2)));
        if (T == NEO_F32) f.v[c] = neo__f32_bits(word);
        else if (T == NEO_I8) f.v[c] = __fmaf_rn((float)(int8_t)(word >> (8 * c)), scale, bias);
#if defined(__CUDA_ARCH__) /* arithmetic will make a NaN quiet */
        else if (T == NEO_BF16) f.v[c] = neo__f32_bits(c % 2 ? word & 0xFFFF0000u : word << 16);
        else asm("cvt.f32.f16 %0, %1;" : "=f"(f.v[c]) : "h"(half));
#else
        else f.v[c] = T == NEO_BF16 ? neo__f32_from_bf16(half) : neo__f32_from_f16(half);
#endif
    }
    return f;
}
/* In one store; the compiler makes four of one between loops. Nothing here reads it. */
NEO__GPU void neo__bags_put(float *to, const neo__floats<4> &x) {
#if defined(__CUDA_ARCH__)
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(x.v[0]), "f"(x.v[1]), "f"(x.v[2]), "f"(x.v[3]));
#else
    neo__cuda_store<4>(to, x);
#endif
}
/* Fetch, and four, of a dtype that is no constant. */
NEO__GPU void neo__bags_fetch_as(neo_dtype dtype, neo__bags_raw &x, const char *at) {
    if (dtype == NEO_F32) neo__bags_fetch<NEO_F32>(x, at);
    else if (dtype == NEO_I8) neo__bags_fetch<NEO_I8>(x, at);
    else neo__bags_fetch<NEO_F16>(x, at);
}
NEO__GPU neo__floats<4> neo__bags_four_as(neo_dtype dtype, const neo__bags_raw &x, float scale,
                                          float bias) {
    return dtype == NEO_F32    ? neo__bags_four<NEO_F32>(x, scale, bias)
           : dtype == NEO_F16  ? neo__bags_four<NEO_F16>(x, scale, bias)
           : dtype == NEO_BF16 ? neo__bags_four<NEO_BF16>(x, scale, bias)
                               : neo__bags_four<NEO_I8>(x, scale, bias);
}
/* W columns of several rows, and what they are. The dtype is asked for once, so that no row waits
   for another. */
template <int W>
NEO__GPU void neo__bags_fetch_all(neo_dtype dtype, neo__bags_raw (&x)[NEO__BAGS_AHEAD],
                                  const char *const (&row)[NEO__BAGS_AHEAD], int64_t col) {
    const auto each = [&](auto fetch) {
        NEO__UNROLL for (int a = 0; a < NEO__BAGS_AHEAD; a++) fetch(x[a], row[a]);
    };
    if constexpr (W == 1)
        each([=](auto &to, auto at) { to.word[0] = neo__bags_fetch_one(dtype, at, col); });
    else if (dtype == NEO_F32)
        each([=](auto &to, auto at) { neo__bags_fetch<NEO_F32>(to, at + 4 * col); });
    else if (dtype == NEO_I8)
        each([=](auto &to, auto at) { neo__bags_fetch<NEO_I8>(to, at + col); });
    else each([=](auto &to, auto at) { neo__bags_fetch<NEO_F16>(to, at + 2 * col); });
}
template <int W>
NEO__GPU neo__floats<W> neo__bags_some(neo_dtype dtype, const neo__bags_raw &x, float scale,
                                       float bias) {
    if constexpr (W == 4) return neo__bags_four_as(dtype, x, scale, bias);
    else return {{neo__bags_one(dtype, x.word[0], scale, bias)}};
}
/* The threads that share a bag or row with this one. */
template <int LANES> NEO__GPU unsigned neo__bags_mask(int thread) {
    const unsigned all = LANES == 32 ? 0xFFFFFFFFu : (1u << (LANES & 31)) - 1u;
    return all << (thread % 32 / LANES * LANES);
}
/* Lanes that hold a row in fours, a power of two from 4 on; 0: it cannot be read so. */
NEO__EVERYWHERE NEO__INLINE int neo__bags_lanes(const neo__job_table &t, int aligned) {
    int lanes = 4;
    const uintptr_t all = (uintptr_t)t.store.data | (uintptr_t)t.state[0] | (uintptr_t)t.state[1];
    if (!aligned || t.store.dim % 4 != 0 || (all & 15)) return 0;
    while (lanes * 4 < t.store.dim && lanes < NEO__BAGS_MOST_DIM / 4) lanes *= 2;
    return lanes;
}

/* ---- every id of a batch ---- */
/* each(k, feature, bag, read(k)) for the offsets k that are this block's; bag is the one it lies
   in, if offsets do not decrease, and in [0, bags) in any case; feature: that of all bags of a
   tile, or -1 where they are of several. What is read of a thread's ids is on its way at once,
   while two warps look for the bags of the tile's ends. */
template <class Read, class Each>
static __device__ void neo__bags_each_id(const neo__bags_job &job, Read read, Each each) {
    enum { TILE = NEO__BAGS_TILE, EACH = TILE / NEO__CUDA_THREADS };
    __shared__ int64_t ends[2];
    __shared__ int features[2];      /* of these bags */
    __shared__ int32_t starts[TILE]; /* of bags, from the tile's first id on */
    const int64_t *offsets = job.batch.offsets, end = offsets[job.batch.bags];
    const int64_t step = (int64_t)gridDim.x * TILE;
    for (int64_t tile = offsets[0] + (int64_t)blockIdx.x * TILE; tile < end; tile += step) {
        const int mine = (int)threadIdx.x, last = (int)NEO__MIN(end - tile, (int64_t)TILE) - 1;
        decltype(read(tile)) x[EACH];
        NEO__UNROLL for (int e = 0; e < EACH; e++)
            x[e] = read(tile + NEO__MIN(mine + e * NEO__CUDA_THREADS, last));
        if (threadIdx.x < 64) { /* a warp for each end */
            const int at = threadIdx.x / 32;
            const int64_t bag = neo__cuda_last_warp(0, job.batch.bags, tile + (at ? last : 0),
                                                    [=](int64_t i) { return offsets[i]; });
            if (threadIdx.x % 32 == 0)
                ends[at] = bag, features[at] = neo__bags_feature_of(job, bag);
        }
        __syncthreads();
        const int64_t low = ends[0], bags = ends[1] + 1 - low;
        const int feature = features[0] == features[1] ? features[0] : -1;
        const int count = (int)NEO__MIN(bags, (int64_t)TILE);
        for (int b = mine; b < count; b += NEO__CUDA_THREADS)
            starts[b] = (int32_t)NEO__MAX(NEO__MIN(offsets[low + b] - tile, (int64_t)TILE),
                                          (int64_t)-1);
        __syncthreads();
        int in[EACH];
        neo__cuda_last_each(
            in, count, [=](int e) { return mine + e * NEO__CUDA_THREADS; },
            [&](int i) { return starts[i]; });
        NEO__UNROLL for (int e = 0; e < EACH; e++) {
            const int at = mine + e * NEO__CUDA_THREADS;
            if (at > last) continue;
            int64_t bag = low + in[e];
            if (bags > TILE) bag = neo__bags_bag_of(job, low, low + bags, tile + at); /* empty */
            each(tile + at, feature, bag, x[e]);
        }
        __syncthreads();
    }
}
/* The same where nothing is read. */
template <class Each>
static __device__ void neo__bags_each_id(const neo__bags_job &job, Each each) {
    neo__bags_each_id(
        job, [](int64_t) { return 0; },
        [&](int64_t k, int, int64_t bag, int) { each(k, bag); });
}
/* ---- a look at the batch ---- */
/* Name what was found, and stop a recorded step if it is an error to the kernels or the host. */
NEO__GPU void neo__bags_stop(const neo__bags_job &job, int *stop) {
    neo__bags_point(&job, job.batch.found);
    if (stop && (neo__bags_refused(job) || (job.fixed.none && job.batch.found->last -
                                                job.batch.found->first != job.tensor.out_rows)))
        *stop = 1;
}
/* The feature of the id at offset k. */
NEO__GPU int neo__bags_feature_at(const neo__bags_job &job, int64_t k) {
    const int64_t *offsets = job.batch.offsets;
    const neo__job_feature *f = job.told.features;
    return (int)neo__cuda_last((int64_t)0, (int64_t)job.fixed.feature_count, k,
                               [=](int64_t i) { return offsets[f[i].first_bag]; });
}
/* A warp takes 32 ids a lane's NEO__BAGS_CHECKED, which are on their way while it finds the
   feature of the first: mostly that of all. Bags are nobody's business here, as offsets are looked
   at one by one. */
NEO__GPU void neo__bags_check_ids(const neo__bags_job &job, int64_t begin, int64_t end) {
    enum { EACH = NEO__BAGS_CHECKED, WARP = 32 * EACH };
    const int64_t *offsets = job.batch.offsets;
    const neo__job_feature *f = job.told.features;
    neo__bags_found *found = job.batch.found;
    unsigned long long bad = 0;
    for (int64_t k = begin + ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32 * WARP; k < end;
         k += (int64_t)gridDim.x * blockDim.x * EACH) {
        const int64_t mine = k + threadIdx.x % 32;
        int64_t id[EACH];
        NEO__UNROLL for (int e = 0; e < EACH; e++)
            id[e] = neo__bags_id(job, NEO__MIN(mine + 32 * e, end - 1));
        const int64_t feature = neo__cuda_last_warp(
            0, job.fixed.feature_count, k, [=](int64_t i) { return offsets[f[i].first_bag]; });
        const int64_t rows = job.fixed.tables[f[feature].table].rows;
        const int64_t next = offsets[f[feature + 1].first_bag]; /* behind the last: all bags */
        NEO__UNROLL for (int e = 0; e < EACH; e++) {
            const int64_t at = mine + 32 * e;
            int64_t most = rows;
            if (at >= end) continue;
            if (at >= next) most = job.fixed.tables[f[neo__bags_feature_at(job, at)].table].rows;
            if ((uint64_t)id[e] < (uint64_t)most) continue;
            atomicMax(&found->id, ~(unsigned long long)(at - begin));
            bad++;
        }
    }
    if (bad) atomicAdd(&found->count, bad);
}
static __global__ void __launch_bounds__(NEO__CUDA_THREADS, 4) /* else ptxas spills a word */
    neo__bags_check_kernel(const neo__bags_job j, const neo__graph_answer answer) {
    __shared__ int is_last;
    const int64_t first = j.batch.offsets[0], last = j.batch.offsets[j.batch.bags];
    neo__bags_found *found = j.batch.found;
    NEO__CUDA_EACH(i, 1, 1) found->first = first, found->last = last;
    NEO__CUDA_EACH(i, j.batch.bags, 1)
    if (j.batch.offsets[i] > j.batch.offsets[i + 1]) atomicMax(&found->bag, ~(unsigned long long)i);
    const bool sound = first >= 0 && last >= first && last - first <= j.fixed.max_ids;
    if (sound) /* else ids end somewhere else */
        neo__bags_check_ids(j, first, last);
    neo__graph_finish<neo__bags_stop>(answer, &is_last, j);
}
NEO__CUDA_KERNEL neo__bags_inverse_kernel(const neo__bags_job job, const neo__graph_answer answer) {
    __shared__ int is_last;
    NEO__CUDA_EACH(i, job.fixed.feature_count * job.batch.samples, 1) {
        const int64_t bags = job.told.features[i / job.batch.samples].bags;
        if ((uint64_t)(int64_t)job.batch.inverse[i] >= (uint64_t)bags)
            atomicMax(&job.batch.found->bag, ~(unsigned long long)(job.batch.bags + i));
    }
    neo__graph_finish<neo__bags_stop>(answer, &is_last, job);
}
/* The findings of a look that was not recorded: kernels behind it run on. */
static neo_status neo__cuda_bags_told(neo__cuda *gpu, neo__bags_found *found) {
    gpu->stats.waits++;
    gpu->stats.fetched += sizeof *found;
    NEO__TRY(neo__cuda_event_wait(gpu, gpu->told));
    memcpy(found, gpu->answer, sizeof *found);
    return NEO_OK;
}
/* The last block of the call's last kernel answers. */
static neo_status neo__cuda_bags_check(neo__cuda *gpu, const neo__bags_job *job,
                                       neo__bags_found *found, const neo__later *later) {
    NEO__ZERO(neo__graph_answer, none);
    neo__graph_answer answer = none;
    const int asks = found || later, noted = gpu->recording && later;
    NEO__TRY(neo__cuda_fill(gpu, job->batch.found, 0, sizeof *job->batch.found));
    if (job->batch.bags == 0) return NEO_OK;
    if (noted)
        NEO__TRY(neo__graph_ask_kernel(gpu, job->batch.found, sizeof *found, NULL, 0, later,
                                       &answer));
    else if (asks) {
        answer.from = job->batch.found, answer.to = gpu->answer, answer.words = sizeof *found / 8;
        answer.arrived = neo__graph_arrived(gpu);
    }
    const int64_t work = NEO__MAX(job->batch.most_ids, job->batch.bags);
    NEO__TRY(neo__cuda_launch(gpu, "bags: check", neo__bags_check_kernel,
                              {neo__cuda_blocks(gpu, work, NEO__BAGS_TILE)}, *job,
                              job->batch.inverse ? none : answer));
    if (job->batch.inverse)
        NEO__TRY(neo__cuda_run(gpu, "bags: inverse", neo__bags_inverse_kernel,
                               job->fixed.feature_count * job->batch.samples, 1, *job, answer));
    if (noted) neo__graph_promise(gpu, sizeof *found, later);
    if (noted || !asks) return NEO_OK;
    if (gpu->recording) NEO__TRY(neo__graph_flush(gpu));
    NEO__CUDA_TRY(gpu, cudaEventRecord(gpu->told, gpu->stream));
    return found ? neo__cuda_bags_told(gpu, found) : NEO_OK;
}

/* ---- lookup ---- */
/* The row with which a key begins, of 16 lanes: as its table holds it, and the number that is. */
struct neo__bags_initial {
    const neo__job_keys &keys;
    const neo__bag_rows &store;
    uint64_t first;
    float inverse = 0.0f, scale[2] = {};
    __device__ neo__bags_initial(const neo__bag_rows &rows, const neo__job_keys &of, uint64_t key)
        : keys(of), store(rows), first(key * rows.stride + (uint64_t)of.first_col) {
        if (store.dtype != NEO_I8) return;
        float low = neo__cuda_first(keys.init, first), high = low;
        int odd = 0;
        for (int64_t col = threadIdx.x % 16; col < store.dim; col += 16) {
            const float x = neo__cuda_first(keys.init, first + (uint64_t)col);
            low = fminf(x, low), high = fmaxf(x, high), odd |= x - x != 0.0f;
        }
        odd = __any_sync(neo__mask_warp(), odd), low = neo__least_warp(low);
        neo__rows_scale_of_warp(odd, low, -neo__least_warp(__fsub_rn(0.0f, high)), scale);
        inverse = scale[0] != 0.0f ? __fdiv_rn(1.0f, scale[0]) : 0.0f;
    }
    __device__ uint32_t code(int64_t col) const {
        const float x = neo__cuda_first(keys.init, first + (uint64_t)col);
        if (store.dtype == NEO_F32) return neo__bits_f32(x);
        if (store.dtype == NEO_F16) return neo__f16_from_f32(x);
        if (store.dtype == NEO_BF16) return neo__bf16_from_f32(x);
        return inverse == 0.0f ? 0u : (uint32_t)neo__i8_round_warp(x, inverse, scale[1], 0, 0);
    }
    __device__ float at(int64_t col) const {
        return neo__bags_one(store.dtype, code(col), scale[0], scale[1]);
    }
};
/* A call, which leaves the registers of loops over rows to these. */
static __device__ NEO__NO_INLINE float neo__bags_first_number(const neo__bag_rows *rows,
                                                              const neo__job_keys *keys,
                                                              uint64_t key, int64_t col) {
    return neo__bags_initial(*rows, *keys, keys->shared ? 0 : key).at(col);
}
/* A number of the row of the id at offset k, or of that with which its key begins. */
NEO__GPU float neo__bags_number(const neo__bags_job &job, int64_t table, int64_t k, int64_t col) {
    const neo__bag_rows &store = job.fixed.tables[table].store;
    const int64_t id = neo__bags_id(job, k);
    if (id >= 0) return col < store.dim ? neo__bags_element(store, id, col) : 0.0f;
    return neo__bags_first_number(&store, &job.fixed.keys[table],
                                  job.batch.keys[k - job.batch.id_base], col);
}
/* Lanes that share a bag, 16 bytes of a row each, from 2 on; 0: a column per lane. */
NEO__EVERYWHERE NEO__INLINE int neo__bags_pool_lanes(const neo__job_table &t, int aligned) {
    const int lanes = neo__bags_lanes(t, aligned) * neo__bags_bytes(t.store.dtype) / 4;
    return lanes > 32 ? 32 : lanes == 1 ? 2 : lanes;
}
/* The columns from col on, 16 bytes a lane, of `bags` bags of a feature, from b on. A tile of ids
   is read at a time, each by a lane, and their rows NEO__BAGS_AHEAD at a time, in one load each
   where rows are multiples of 16 bytes; an id without a row reads that of another, and nothing is
   added for it. */
template <neo_dtype T, int LANES>
NEO__GPU void neo__bags_pool(const neo__bags_job &j, const neo__job_table &t,
                             const neo__job_feature &p, int64_t b, int bags, int64_t col,
                             unsigned mask) {
    enum {
        AHEAD = NEO__BAGS_AHEAD,
        EACH = LANES < AHEAD ? AHEAD / LANES : 1, /* ids of a lane */
        TILE = EACH * LANES,
        BYTES = 4 * neo__bags_bytes(T), /* of four columns, */
        FOURS = 16 / BYTES              /* of which a lane has so many */
    };
    const int lane = threadIdx.x % LANES, shift = threadIdx.x % 32 - lane;
    const int64_t *offsets = j.batch.offsets + p.first_bag + b, first = offsets[0];
    const int64_t mine = col + 4 * FOURS * lane, left = (t.store.dim - mine) / 4;
    const int fours = (int)NEO__MAX(NEO__MIN(left, (int64_t)FOURS), (int64_t)0);
    const char *data = t.store.data + (fours ? mine : 0) * neo__bags_bytes(T);
    float *to = j.tensor.out + p.out_at + b * p.out_stride + mine;
    const int count = (int)(offsets[bags] - first); /* ids; below, they are numbered from 0 */
    int begin = 0, end = (int)(offsets[1] - first), bag = 0;
    neo__floats<4> s[FOURS] = {};
    for (int tile = 0; bag < bags; tile += TILE) {
        float weight[EACH], scale[EACH] = {}, bias[EACH] = {};
        long long at[EACH];
        unsigned there = 0; /* ids with a row */
        NEO__UNROLL for (int e = 0; e < EACH; e++) {
            const int i = tile + e * LANES + lane;
            const int64_t row = i < count ? neo__bags_row(j, t.rows, first + i) : -1;
            weight[e] = row >= 0 && j.batch.weights ? neo__bags_weight_of(j, first + i) : 1.0f;
            if (T == NEO_I8 && row >= 0)
                scale[e] = t.store.scale[2 * row], bias[e] = t.store.scale[2 * row + 1];
            there |= __ballot_sync(mask, row >= 0) >> shift << (e * LANES % 32);
            at[e] = row * t.store.row_bytes;
        }
        const int other = NEO__MAX(__ffs((int)there) - 1, 0);
        long long some = at[0];
        NEO__UNROLL for (int e = 1; e < EACH; e++) if (other / LANES == e) some = at[e];
        some = __shfl_sync(mask, some, other % LANES, LANES);
        NEO__UNROLL for (int e = 0; e < EACH; e++) if (at[e] < 0) at[e] = some;
        for (int q = 0; q < TILE && bag < bags; q += AHEAD) {
            neo__bags_raw x[AHEAD];
            long long from[AHEAD];
            NEO__UNROLL for (int a = 0; a < AHEAD; a++)
                from[a] = __shfl_sync(mask, at[a / LANES], (q + a) % LANES, LANES);
            if (there >> q & ((1u << AHEAD) - 1u)) {
                const int last = NEO__MAX((int)neo__cuda_now((uint32_t)fours) - 1, 0);
                if (FOURS == 1 || t.store.row_bytes % 16 == 0)
                    NEO__UNROLL for (int a = 0; a < AHEAD; a++)
                        neo__bags_fetch<NEO_F32>(x[a], data + from[a]);
                else
                    NEO__UNROLL for (int a = 0; a < FOURS * AHEAD; a++)
                        neo__bags_fetch<T>(x[a / FOURS], data + from[a / FOURS] +
                                           BYTES * NEO__MIN(a % FOURS, last), a % FOURS);
            }
            for (int done = 0;;) { /* of the AHEAD; bag by bag */
                const int upto = NEO__MIN(end - tile - q, (int)AHEAD);
                const unsigned add = there >> q & ((1u << upto) - (1u << done));
                NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
                    float w = 1.0f, u = 0.0f, v = 0.0f;
                    if (!(add >> a & 1u)) continue;
                    if (j.batch.weights)
                        w = __shfl_sync(mask, weight[a / LANES], (q + a) % LANES, LANES);
                    if (T == NEO_I8)
                        u = __shfl_sync(mask, scale[a / LANES], (q + a) % LANES, LANES),
                        v = __shfl_sync(mask, bias[a / LANES], (q + a) % LANES, LANES);
                    NEO__UNROLL for (int h = 0; h < FOURS; h++)
                        neo__cuda_plus<4>(s[h], w, neo__bags_four<T>(x[a], u, v, h));
                }
                if (end > tile + q + upto) break;
                if (t.mean && end - begin > 1)
                    NEO__UNROLL for (int c = 0; c < 4 * FOURS; c++)
                        s[c / 4].v[c % 4] = __fdiv_rn(s[c / 4].v[c % 4], (float)(end - begin));
                NEO__UNROLL for (int h = 0; h < FOURS; h++) {
                    if (h < fours) neo__bags_put(to + 4 * h, s[h]);
                    s[h] = {};
                }
                if (++bag == bags) break;
                to += p.out_stride;
                done = upto, begin = end, end = (int)(offsets[bag + 1] - first);
            }
        }
    }
}
/* The grid's second dimension is the features; the lanes of a row take `run` bags at a time. */
template <neo_dtype T, int LANES> NEO__BAGS_KERNEL neo__bags_pool_kernel(const neo__bags_job j,
                                                                         int run) {
    const unsigned mask = neo__bags_mask<LANES>((int)threadIdx.x);
    if (neo__bags_refused(j)) return;
    for (int f = blockIdx.y; f < j.fixed.feature_count; f += gridDim.y) {
        const neo__job_feature p = j.told.features[f];
        const neo__job_table t = j.fixed.tables[p.table]; /* a copy: memory is read once */
        if (t.buckets > 1 || t.store.dtype != T ||
            neo__bags_pool_lanes(t, j.tensor.aligned) != LANES)
            continue;
        NEO__CUDA_EACH(i, (p.bags + run - 1) / run, LANES) {
            for (int64_t col = 0; col < (LANES < 32 ? 1 : t.store.dim);
                 col += 16 / neo__bags_bytes(T) * LANES)
                neo__bags_pool<T, LANES>(j, t, p, i * run,
                                         (int)NEO__MIN((int64_t)run, p.bags - i * run), col, mask);
        }
    }
}
/* Sums of `bags` bags of a feature, bucket by bucket, W columns from col on a lane of 16. Ids stand
   in line in the order in which they are added, a lane each, and NEO__BAGS_AHEAD of them, of
   whichever buckets and bags, have their rows on their way before the first is added. */
template <int W> struct neo__bags_line {
    enum { AHEAD = NEO__BAGS_AHEAD, BUCKET_BITS = 12 /* of up to 4,096 */ };
    const neo__bags_job &job;
    const neo__job_table &t;
    neo__cuda_parts<W> &tree; /* apart: it lies in memory, and the rest in registers */
    const neo__job_feature &p;
    int64_t begin;    /* the first of the bags */
    int col;          /* of the lane */
    neo__floats<W> s;
    int open; /* bag and bucket of s; -1: none */
    int line; /* ids in it, and those of the lane: their numbers from offsets[0] on, */
    int id, key; /* and their bags and buckets */
    __device__ const int64_t *offsets(void) const {
        return job.batch.offsets + p.first_bag + begin;
    }
    __device__ void put(int bag, neo__floats<W> x) {
        if (col >= t.store.dim) return;
        const int64_t length = offsets()[bag + 1] - offsets()[bag];
        NEO__UNROLL for (int c = 0; c < W; c++) x.v[c] = neo__bags_mean(t, x.v[c], length);
        float *to = job.tensor.out + p.out_at + (begin + bag) * p.out_stride + col;
        if constexpr (W == 4) neo__bags_put(to, x);
        else *to = x.v[0];
    }
    /* The open bucket is summed; its bag is, where the next id is another's. */
    __device__ void turn(int next) {
        if (open >= 0) tree.push(open & ((1 << BUCKET_BITS) - 1), s);
        if (open >= 0 && open >> BUCKET_BITS != next >> BUCKET_BITS) {
            neo__floats<W> sum = tree.total();
            if (t.buckets > 1) neo__cuda_plus<W>(sum, neo__floats<W>{}); /* no -0 */
            put(open >> BUCKET_BITS, sum);
            tree.depth = 0;
        }
        open = next, s = {};
    }
    /* Add those in line. */
    __device__ void add(void) {
        const unsigned mask = neo__mask_warp();
        const int lane = threadIdx.x % 16, shift = threadIdx.x % 32 - lane;
        const neo_dtype dtype = t.store.dtype;
        const int64_t k = offsets()[0] + __shfl_sync(mask, id, NEO__MIN(lane, line - 1), 16);
        const int64_t row = neo__bags_row(job, t.rows, k);
        const float weight = neo__bags_weight_or_1(job, k),
                    scale = dtype == NEO_I8 ? t.store.scale[2 * row] : 0.0f,
                    bias = dtype == NEO_I8 ? t.store.scale[2 * row + 1] : 0.0f;
        neo__bags_raw x[AHEAD];
        const char *from[AHEAD];
        const long long at = (long long)(uintptr_t)(t.store.data + row * t.store.row_bytes);
        NEO__UNROLL for (int a = 0; a < AHEAD; a++)
            from[a] = (const char *)(uintptr_t)__shfl_sync(mask, at, a, 16);
        neo__bags_fetch_all<W>(dtype, x, from, col < t.store.dim ? col : 0);
        for (int done = 0; done < line;) { /* bucket by bucket */
            const int now = __shfl_sync(mask, key, done, 16);
            const unsigned all = __ballot_sync(mask, lane < line && key == now) >> shift & 0xFFFFu;
            if (now != open) turn(now);
            NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
                if (!(all >> a & 1u)) continue;
                const float w = __shfl_sync(mask, weight, a, 16),
                            u = __shfl_sync(mask, scale, a, 16), v = __shfl_sync(mask, bias, a, 16);
                neo__cuda_plus<W>(s, w, neo__bags_some<W>(dtype, x[a], u, v));
            }
            done += __popc(all);
        }
        line = 0;
    }
    /* The ids of a bag: those of the lowest bucket, then those of the next that has any. */
    __device__ void take(int bag) {
        const unsigned mask = neo__mask_warp();
        const int lane = threadIdx.x % 16, shift = threadIdx.x % 32 - lane;
        const int64_t k = offsets()[bag], k_end = offsets()[bag + 1];
        bool none = true;
        for (int64_t row = 0, next; row >= 0; row = next) {
            int64_t bucket = 0, begin = 0, end = INT64_MAX;
            if (t.buckets > 1) {
                bucket = neo__bucket_of(t.bucket_rows, t.buckets, row + t.first_row);
                begin = neo__bucket_begin(t.bucket_rows, t.buckets, bucket) - t.first_row;
                end = neo__bucket_begin(t.bucket_rows, t.buckets, bucket + 1) - t.first_row;
            }
            next = -1;
            for (int64_t tile = k; tile < k_end; tile += 16) {
                const int64_t at = tile + lane < k_end ? neo__bags_row(job, t.rows, tile + lane)
                                                       : -1;
                const int64_t mine = at >= 0 && job.batch.lines && t.buckets > 1
                                         ? neo__bag_row_of(&t.store, at)
                                         : at;
                if (mine >= end && (next < 0 || mine < next)) next = mine;
                unsigned in = __ballot_sync(mask, mine >= 0 && mine >= begin && mine < end);
                for (in = in >> shift & 0xFFFFu; in; in &= in - 1) {
                    none = false;
                    if (lane == line)
                        id = (int)(tile - offsets()[0]) + __ffs((int)in) - 1,
                        key = bag << BUCKET_BITS | (int)bucket;
                    if (++line == AHEAD) add();
                }
            }
            for (int lanes = 8; lanes > 0 && t.buckets > 1; lanes /= 2) {
                const int64_t other = __shfl_xor_sync(mask, (long long)next, lanes, 16);
                if (other >= 0 && (next < 0 || other < next)) next = other;
            }
        }
        if (none) put(bag, {});
    }
};
/* Rows with row buckets, by fours where W is 4; and rows that cannot be read so, where it is 1. */
template <int W> NEO__BAGS_KERNEL neo__bags_pool_any_kernel(const neo__bags_job job, int run) {
    if (neo__bags_refused(job)) return;
    for (int f = blockIdx.y; f < job.fixed.feature_count; f += gridDim.y) {
        const neo__job_feature &p = job.told.features[f];
        const neo__job_table &t = job.fixed.tables[p.table]; /* a copy would take registers */
        const bool fours = neo__bags_lanes(t, job.tensor.aligned) != 0;
        if (fours != (W == 4) || (fours && t.buckets == 1)) continue;
        NEO__CUDA_EACH(i, (p.bags + run - 1) / run, 16) {
            const int bags = (int)NEO__MIN((int64_t)run, p.bags - i * run);
            for (int64_t first = 0; first < t.store.dim; first += 16 * W) {
                neo__cuda_parts<W> tree;
                neo__bags_line<W> line = {job, t, tree, p, i * run,
                                          (int)(first + threadIdx.x % 16 * W), {}, -1, 0, 0, 0};
                for (int bag = 0; bag < bags; bag++) line.take(bag);
                if (line.line > 0) line.add();
                line.turn(-1);
            }
        }
    }
}
/* NEO_POOL_NONE. The table of the id that is k-th of the batch. */
NEO__GPU int neo__bags_table_of_id(const neo__bags_job &job, int64_t k) {
    const int64_t *offsets = job.batch.offsets;
    const neo__job_feature *features = job.told.features;
    const int64_t f = neo__cuda_last((int64_t)0, (int64_t)job.fixed.feature_count, offsets[0] + k,
                                     [=](int64_t q) { return offsets[features[q].first_bag]; });
    return (int)features[f].table;
}
/* 16 lanes NEO__BAGS_AHEAD ids, a column each, whose rows are on their way before the first is
   stored; a lane finds the row of an id, for all. */
NEO__CUDA_KERNEL neo__bags_copy_kernel(const neo__bags_job job) {
    enum { AHEAD = NEO__BAGS_AHEAD };
    if (neo__bags_refused(job)) return;
    const unsigned mask = neo__mask_warp();
    const int lane = threadIdx.x % 16;
    const int64_t first = job.batch.offsets[0], ids = job.batch.offsets[job.batch.bags] - first,
                  count = NEO__MIN(ids, job.tensor.out_rows),
                  stride = job.told.features[0].out_stride;
    NEO__CUDA_EACH(tile, (count + AHEAD - 1) / AHEAD, 16) {
        const int64_t i = tile * AHEAD + lane;
        const bool mine = lane < AHEAD && i < count;
        const neo__job_table &t = job.fixed.tables[neo__bags_table_of_id(job, mine ? i : 0)];
        const int64_t row = mine ? neo__bags_row(job, t.rows, first + i) : -1;
        const char *own = row < 0 ? NULL : t.store.data + row * t.store.row_bytes;
        const bool scaled = row >= 0 && t.store.dtype == NEO_I8;
        const float weight = own && job.batch.weights ? neo__bags_weight_of(job, first + i) : 0.0f;
        const float scale = scaled ? t.store.scale[2 * row] : 0.0f;
        const float bias = scaled ? t.store.scale[2 * row + 1] : 0.0f;
        for (int64_t col = lane; col - lane < job.fixed.max_dim; col += 16) {
            uint32_t x[AHEAD] = {};
            unsigned there = 0;
            NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
                const char *from = (const char *)__shfl_sync(
                    mask, (unsigned long long)(uintptr_t)own, a, 16);
                const neo_dtype dtype = (neo_dtype)__shfl_sync(mask, (int)t.store.dtype, a, 16);
                there |= (unsigned)(from != NULL) << a;
                if (from && col < job.fixed.max_dim) x[a] = neo__bags_fetch_one(dtype, from, col);
            }
            NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
                const neo_dtype dtype = (neo_dtype)__shfl_sync(mask, (int)t.store.dtype, a, 16);
                const float w = __shfl_sync(mask, weight, a, 16),
                            u = __shfl_sync(mask, scale, a, 16), v = __shfl_sync(mask, bias, a, 16);
                float s = there >> a & 1u ? neo__bags_one(dtype, x[a], u, v) : 0.0f;
                if ((there >> a & 1u) && job.batch.weights) s = __fmul_rn(w, s);
                if (col < job.fixed.max_dim && tile * AHEAD + a < count)
                    job.tensor.out[(tile * AHEAD + a) * stride + col] = s;
            }
        }
    }
}
/* 16 lanes NEO__BAGS_AHEAD ids, whose rows of T are on their way before the first is stored; a lane
   finds the row of an id, for all. Tables of other dtypes are another launch's. */
template <neo_dtype T> NEO__BAGS_KERNEL neo__bags_copy_fours_kernel(const neo__bags_job job) {
    enum { AHEAD = NEO__BAGS_AHEAD };
    if (neo__bags_refused(job)) return;
    const unsigned mask = neo__mask_warp();
    const int lane = threadIdx.x % 16;
    const int64_t first = job.batch.offsets[0], ids = job.batch.offsets[job.batch.bags] - first,
                  count = NEO__MIN(ids, job.tensor.out_rows),
                  stride = job.told.features[0].out_stride, dim = job.fixed.max_dim;
    NEO__CUDA_EACH(tile, (count + AHEAD - 1) / AHEAD, 16) {
        const int64_t i = tile * AHEAD + lane;
        const char *own = NULL;
        float weight = 1.0f, scale = 0.0f, bias = 0.0f;
        bool mine = false;
        if (lane < AHEAD && i < count) {
            const neo__job_table &t = job.fixed.tables[neo__bags_table_of_id(job, i)];
            const int64_t row = neo__bags_row(job, t.rows, first + i);
            mine = t.store.dtype == T;
            if (row >= 0) own = t.store.data + row * t.store.row_bytes;
            if (row >= 0 && job.batch.weights) weight = neo__bags_weight_of(job, first + i);
            if (T == NEO_I8 && mine && row >= 0)
                scale = t.store.scale[2 * row], bias = t.store.scale[2 * row + 1];
        }
        const unsigned shift = threadIdx.x % 32 - lane, all = __ballot_sync(mask, mine) >> shift,
                       there = __ballot_sync(mask, mine && own) >> shift;
        const char *from[AHEAD];
        NEO__UNROLL for (int a = 0; a < AHEAD; a++)
            from[a] = (const char *)__shfl_sync(mask, (unsigned long long)(uintptr_t)own, a, 16);
        for (int64_t col = 4 * lane; col - 4 * lane < dim; col += 64) {
            neo__bags_raw x[AHEAD];
            NEO__UNROLL for (int a = 0; a < AHEAD; a++)
                if (col < dim && there >> a & 1u)
                    neo__bags_fetch<T>(x[a], from[a] + col * neo__bags_bytes(T));
            NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
                const float w = __shfl_sync(mask, weight, a, 16);
                float u = 0.0f, v = 0.0f;
                neo__floats<4> s = {};
                if (T == NEO_I8)
                    u = __shfl_sync(mask, scale, a, 16), v = __shfl_sync(mask, bias, a, 16);
                if (col >= dim || !(all >> a & 1u)) continue;
                if (there >> a & 1u) s = neo__bags_four<T>(x[a], u, v);
                if (job.batch.weights)
                    NEO__UNROLL for (int c = 0; c < 4; c++) s.v[c] = __fmul_rn(w, s.v[c]);
                neo__bags_put(job.tensor.out + (tile * AHEAD + a) * stride + col, s);
            }
        }
    }
}
/* By fours where all tables can be read so. */
static neo_status neo__bags_copy(neo__cuda *gpu, const neo__bags_job *job) {
    const int64_t tiles = (job->batch.most_ids + NEO__BAGS_AHEAD - 1) / NEO__BAGS_AHEAD;
    unsigned has = 0;
    int fours = 1;
    for (int t = 0; t < job->fixed.table_count; t++) {
        fours &= neo__bags_lanes(job->fixed.host_tables[t], job->tensor.aligned) != 0;
        has |= 1u << job->fixed.host_tables[t].store.dtype;
    }
    if (!fours) return neo__cuda_run(gpu, "bags: copy", neo__bags_copy_kernel, tiles, 16, *job);
    const auto one = [&](neo_dtype dtype, auto kernel) {
        return neo__cuda_run(gpu, "bags: copy", kernel, has >> dtype & 1u ? tiles : 0, 16, *job);
    };
    NEO__TRY(one(NEO_F32, neo__bags_copy_fours_kernel<NEO_F32>));
    NEO__TRY(one(NEO_F16, neo__bags_copy_fours_kernel<NEO_F16>));
    NEO__TRY(one(NEO_BF16, neo__bags_copy_fours_kernel<NEO_BF16>));
    return one(NEO_I8, neo__bags_copy_fours_kernel<NEO_I8>);
}
/* Blocks of a kernel in which `lanes` share `run` bags: the features are the grid's second
   dimension. */
static dim3 neo__bags_grid(const neo__cuda *d, const neo__bags_job *job, int lanes, int run) {
    int64_t bags = 0;
    for (int f = 0; f < job->fixed.feature_count; f++)
        bags = NEO__MAX(bags, job->told.host_features[f].bags);
    const unsigned x = neo__cuda_blocks(d, (bags + run - 1) / run * lanes, NEO__CUDA_THREADS);
    return dim3(x, (unsigned)NEO__MIN(job->fixed.feature_count, 65535));
}
/* Bags of a stretch: short ones have no rows to load ahead, so several are one, up to so many ids,
   while enough of them are left for four times the threads that fit. (Longer stretches would leave
   more of a processor's warps without work at the end.) */
#ifndef NEO__BAGS_THREADS
#define NEO__BAGS_THREADS (4 * 2 * NEO__CUDA_THREADS) /* of a processor */
#endif
static int neo__bags_stretch(const neo__cuda *d, const neo__bags_job *job, int lanes) {
    const int64_t runs = job->batch.bags * lanes / (d->processors * NEO__BAGS_THREADS);
    const int64_t most = NEO__BAGS_STRETCH * job->batch.bags / NEO__MAX(job->batch.most_ids, 1);
    return (int)NEO__MAX(NEO__MIN(NEO__MIN(runs, most), (int64_t)32), (int64_t)1);
}
/* lanes: those of the tables of T, as bits. */
template <neo_dtype T, int... LANES>
static neo_status neo__bags_run_pools(neo__cuda *d, const neo__bags_job *job, unsigned lanes) {
    neo_status status = NEO_OK;
    const auto one = [&](auto kernel, int wide) {
        const int run = neo__bags_stretch(d, job, wide);
        return neo__cuda_launch(d, "bags: lookup", kernel, {neo__bags_grid(d, job, wide, run)},
                                *job, run);
    };
    ((status = status != NEO_OK || !(lanes & LANES)
                   ? status
                   : one(neo__bags_pool_kernel<T, LANES>, LANES)),
     ...);
    return status;
}
/* Column col of a bag's sum, of any ids: for each bucket that one of them has, the lowest first. */
NEO__GPU float neo__bags_sum_any(const neo__bags_job &job, const neo__job_feature &feature,
                                 const int64_t *offsets, int64_t col) {
    const neo__job_table &t = job.fixed.tables[feature.table];
    const auto bucket_of = [&](int64_t k) {
        const int64_t id = neo__bags_id(job, k);
        if (t.buckets == 1) return (int64_t)0;
        return neo__bucket_of(t.bucket_rows, t.buckets,
                              t.first_row + (id < 0 ? ~id : neo__bag_row_of(&t.store, id)));
    };
    neo__cuda_parts<1> tree;
    for (int64_t bucket = -1, next;; bucket = next) {
        neo__floats<1> s = {};
        next = INT64_MAX;
        for (int64_t k = offsets[0]; k < offsets[1]; k++) {
            const int64_t its = bucket_of(k);
            if (its > bucket && its < next) next = its;
        }
        if (next == INT64_MAX) break;
        for (int64_t k = offsets[0]; k < offsets[1]; k++)
            if (bucket_of(k) == next)
                neo__cuda_plus<1>(s, neo__bags_weight_or_1(job, k),
                                  {{neo__bags_number(job, feature.table, k, col)}});
        tree.push(next, s);
    }
    return neo__bags_mean(t, __fadd_rn(tree.total().v[0], 0.0f), offsets[1] - offsets[0]);
}
/* Bags that have a key without a row once more, or, without pooling, such ids: 16 lanes a bag. */
NEO__CUDA_KERNEL neo__bags_initial_kernel(const neo__bags_job job) {
    const int lane = threadIdx.x % 16;
    if (neo__bags_refused(job)) return;
    for (int f = blockIdx.y; f < job.fixed.feature_count; f += gridDim.y) {
        const neo__job_feature &p = job.told.features[f];
        const int64_t dim = job.fixed.tables[p.table].store.dim;
        if (!job.fixed.keys[p.table].on) continue;
        NEO__CUDA_EACH(b, p.bags, 16) {
            const int64_t *offsets = job.batch.offsets + p.first_bag + b;
            int64_t k = offsets[0];
            while (k < offsets[1] && neo__bags_id(job, k) >= 0) k++;
            for (; k < offsets[1]; k = job.fixed.none ? k + 1 : offsets[1])
                for (int64_t col = lane; col - lane < dim && neo__bags_id(job, k) < 0; col += 16) {
                    const int64_t at = job.fixed.none ? k - job.batch.offsets[0] : b;
                    const float x = job.fixed.none
                                        ? __fmul_rn(neo__bags_weight_or_1(job, k),
                                                    neo__bags_number(job, p.table, k, col))
                                        : neo__bags_sum_any(job, p, offsets, col);
                    if (col < dim) job.tensor.out[p.out_at + at * p.out_stride + col] = x;
                }
        }
    }
}
static neo_status neo__bags_lookup_rows(neo__cuda *gpu, const neo__bags_job *j) {
    unsigned lanes[NEO_DTYPE_COUNT] = {0}, any = 0;
    if (j->fixed.none) return neo__bags_copy(gpu, j);
    for (int f = 0; f < j->fixed.feature_count; f++) {
        const neo__job_table &t = j->fixed.host_tables[j->told.host_features[f].table];
        const unsigned has = (unsigned)neo__bags_pool_lanes(t, j->tensor.aligned);
        if (t.buckets == 1) lanes[t.store.dtype] |= has;
        any |= !has ? 1u : t.buckets > 1 ? 4u : 0u;
    }
    const int run = neo__bags_stretch(gpu, j, 16);
    const dim3 grid = neo__bags_grid(gpu, j, 16, run);
    if (any & 1u)
        NEO__TRY(neo__cuda_launch(gpu, "bags: lookup", neo__bags_pool_any_kernel<1>, {grid}, *j,
                                  run));
    if (any & 4u)
        NEO__TRY(neo__cuda_launch(gpu, "bags: lookup", neo__bags_pool_any_kernel<4>, {grid}, *j,
                                  run));
    NEO__TRY((neo__bags_run_pools<NEO_F32, 4, 8, 16, 32>(gpu, j, lanes[NEO_F32])));
    NEO__TRY((neo__bags_run_pools<NEO_F16, 2, 4, 8, 16, 32>(gpu, j, lanes[NEO_F16])));
    NEO__TRY((neo__bags_run_pools<NEO_BF16, 2, 4, 8, 16, 32>(gpu, j, lanes[NEO_BF16])));
    return neo__bags_run_pools<NEO_I8, 2, 4, 8, 16, 32>(gpu, j, lanes[NEO_I8]);
}
static neo_status neo__cuda_bags_forward(neo__cuda *gpu, const neo__bags_job *job) {
    if (job->batch.bags == 0) return NEO_OK;
    NEO__TRY(neo__bags_lookup_rows(gpu, job));
    if (!job->batch.keys) return NEO_OK;
    return neo__cuda_launch(gpu, "bags: initial rows", neo__bags_initial_kernel,
                            {neo__bags_grid(gpu, job, 16, 1)}, *job);
}

/* ---- gradients of per-id weights: 16 lanes an id ---- */
NEO__CUDA_KERNEL neo__bags_weight_grad_kernel(const neo__bags_job job) {
    if (neo__bags_refused(job)) return;
    const int lane = threadIdx.x % 16;
    const int64_t first = job.batch.offsets[0], count = job.batch.offsets[job.batch.bags] - first;
    NEO__CUDA_EACH(i, count, 16) {
        const int64_t bag = neo__bags_bag_of(job, 0, job.batch.bags, first + i);
        const neo__job_feature p = job.told.features[neo__bags_feature_of(job, bag)];
        const neo__job_table &t = job.fixed.tables[p.table];
        const int64_t row = neo__bags_row(job, t.rows, first + i);
        const int64_t length = job.batch.offsets[bag + 1] - job.batch.offsets[bag];
        const float *from =
            job.tensor.dout + p.out_at + (job.fixed.none ? i : bag - p.first_bag) * p.out_stride;
        const bool initial = row < 0 && job.batch.keys && job.fixed.keys[p.table].on;
        float sum = 0.0f;
        float *to = job.tensor.dweights + (job.tensor.dweight_at ? job.tensor.dweight_at[i] : i);
        const bool each = job.tensor.dweight_at && t.store.first % t.store.stride != 0;
        for (int64_t col = lane; (row >= 0 || initial) && col - lane < t.store.dim; col += 16) {
            float x = initial ? neo__bags_number(job, p.table, first + i, col) : 0.0f;
            if (row >= 0 && col < t.store.dim) x = neo__bags_element(t.store, row, col);
            x = col < t.store.dim ? __fmul_rn(from[col], x) : 0.0f;
            x = neo__tree16_warp(x);
            if (each && lane == 0) to[col / 16] = x;
            sum = __fadd_rn(sum, x);
        }
        if (lane == 0 && !each) *to = neo__bags_mean(t, sum, length);
    }
}
static neo_status neo__cuda_bags_weight_grad(neo__cuda *d, const neo__bags_job *job) {
    if (job->batch.bags == 0) return NEO_OK;
    return neo__cuda_run(d, "bags: gradients of weights", neo__bags_weight_grad_kernel,
                         job->batch.most_ids, 16, *job);
}

/* ---- records ---- */
/* Gradients of MEAN tables, divided by the lengths of their bags. */
NEO__CUDA_KERNEL neo__bags_pack_kernel(const neo__bags_job job) {
    if (neo__bags_refused(job)) return;
    for (int f = blockIdx.y; f < job.fixed.feature_count; f += gridDim.y) {
        const neo__job_feature p = job.told.features[f];
        const neo__job_table &t = job.fixed.tables[p.table];
        if (!t.mean) continue;
        NEO__CUDA_EACH(b, p.bags, 32) {
            const int64_t *offsets = job.batch.offsets + p.first_bag + b,
                          length = offsets[1] - offsets[0];
            const float *from = job.tensor.dout + p.out_at + b * p.out_stride;
            float *to = job.sorted.packed + p.out_at + b * p.pack_stride;
            if (length == 0) continue;
            for (int64_t col = threadIdx.x % 32; col < t.store.dim; col += 32)
                to[col] = neo__bags_mean(t, from[col], length);
        }
    }
}
/* The leaf of sample s of a feature, counted from the call's first. */
NEO__GPU int64_t neo__bags_leaf(const neo__bags_job &job, int64_t bags, int64_t s) {
    const neo__leaf_cut &c = job.sorted.leaves;
    if (job.sorted.leaf_bits == 0) return 0;
    if (c.count == 0) return neo__bucket_of(bags, c.shards, s);
    s = s / c.rows_per_sample + neo__leaf_begin(c.batch, c.shards, c.first);
    return neo__bucket_of(c.batch, c.shards, s) - c.first;
}
template <class K> NEO__CUDA_KERNEL neo__bags_records_kernel(const neo__bags_job job) {
    K *keys = (K *)job.sorted.keys[0];
    uint32_t *values = job.sorted.values[0];
    const K none = (K)job.fixed.key_count << job.sorted.leaf_bits;
    int64_t first = 0, count = 0;
    if (!neo__bags_refused(job)) {
        int known = -1; /* the feature of p, rows, key and stride */
        neo__job_feature p = {};
        int64_t rows = 0, key = 0, stride = 0;
        first = job.batch.offsets[0], count = job.batch.offsets[job.batch.bags] - first;
        neo__bags_each_id(
            job, [&](int64_t k) { return neo__bags_id(job, k); },
            [&](int64_t k, int feature, int64_t bag, int64_t id) {
                if (feature < 0) feature = neo__bags_feature_of(job, bag);
                if (feature != known) {
                    known = feature, p = job.told.features[feature];
                    const neo__job_table &t = job.fixed.tables[p.table];
                    rows = t.rows, key = t.first_key;
                    stride = job.sorted.packs && t.mean ? p.pack_stride : p.out_stride;
                }
                const int64_t i = k - first, s = bag - p.first_bag;
                const int64_t row = neo__bags_row_of(job, rows, id);
                const int64_t at = p.out_at + (job.fixed.none ? i : s) * stride;
                if (job.sorted.indirect) job.sorted.grad_at[i] = at;
                values[i] = (uint32_t)(job.sorted.indirect         ? i
                                       : job.sorted.grad_unit == 4 ? at / 4 /* or 1 */
                                                                   : at);
                keys[i] = row < 0 ? none
                                  : (K)(key + row) << job.sorted.leaf_bits |
                                        (K)neo__bags_leaf(job, p.bags, s);
            });
    }
    NEO__CUDA_EACH(i, job.sorted.records - count, 1) /* launched for more than there are */
        keys[count + i] = none, values[count + i] = 0;
}
/* Records of given rows, each with its own number, to be sorted; or of those of `kept` slots, as if
   they were, where the rest are none. */
template <class K>
NEO__CUDA_KERNEL neo__bags_row_records_kernel(const neo__bags_job j, int kept, const int64_t *rows,
                                              int64_t first_key) {
    const int64_t count = kept ? (int64_t)j.kept.counted[0] : j.sorted.records;
    NEO__CUDA_EACH(i, j.sorted.records, 1) {
        ((K *)j.sorted.keys[kept])[i] = (K)(i < count ? first_key + rows[i] : j.fixed.key_count);
        j.sorted.values[kept][i] = (uint32_t)i;
    }
}
template <class K> static neo_status neo__bags_sort_records(neo__cuda *d, const neo__bags_job *j) {
    const int32_t first = j->sorted.leaf_sort ? 0 : j->sorted.leaf_bits;
    const int32_t last = j->sorted.leaf_bits + neo__cuda_bits(j->fixed.key_count);
    const neo__cuda_sorting<K> c = {j->sorted.temp, j->sorted.temp_bytes,
                                    (K *)j->sorted.keys[0], (K *)j->sorted.keys[1],
                                    j->sorted.values[0], j->sorted.values[1],
                                    j->sorted.records, first, last};
    return neo__cuda_do(d, neo__cuda_sort_now<K>, &c, sizeof c);
}
template <class K> static size_t neo__bags_temp(int64_t records) {
    size_t scan = 0;
    NEO__ZERO(neo__cuda_sorting<K>, s);
    s.count = records, s.last = (int)(8 * sizeof(K));
    cudaError_t error = neo__cuda_sort(s, &s.bytes, 0);
    if (error == cudaSuccess)
        error = cub::DeviceScan::ExclusiveSum(NULL, scan, (uint32_t *)NULL, (uint32_t *)NULL,
                                              (uint32_t)(records + 1), (cudaStream_t)0);
    return error == cudaSuccess ? NEO__MAX(s.bytes, scan) : SIZE_MAX / 4; /* no device has that */
}
static size_t neo__cuda_bags_temp_bytes(neo_device *device, int64_t records, int wide) {
    if (neo__cuda_enter((neo__cuda *)device) != NEO_OK) return SIZE_MAX / 4;
    return wide ? neo__bags_temp<uint64_t>(records) : neo__bags_temp<uint32_t>(records);
}
static neo_status neo__cuda_bags_records(neo__cuda *d, const neo__bags_job *job) {
    if (job->sorted.records == 0 || job->batch.bags == 0) return NEO_OK;
    if (job->sorted.packs)
        NEO__TRY(neo__cuda_launch(d, "bags: pack", neo__bags_pack_kernel,
                                  {neo__bags_grid(d, job, 32, 1)}, *job));
    return neo__cuda_launch(d, "bags: records", NEO__BAGS_KEYED(job, neo__bags_records_kernel),
                            {neo__cuda_blocks(d, job->sorted.records, NEO__BAGS_TILE)}, *job);
}
static neo_status neo__cuda_bags_sort(neo__cuda *d, const neo__bags_job *job) {
    if (job->sorted.records == 0 || job->batch.bags == 0) return NEO_OK;
    return NEO__BAGS_KEYED(job, neo__bags_sort_records)(d, job);
}
static neo_status neo__cuda_bags_sort_rows(neo__cuda *d, const neo__bags_job *job,
                                           const int64_t *rows, int64_t first_key) {
    if (job->sorted.records == 0) return NEO_OK;
    NEO__TRY(neo__cuda_run(d, "bags: records", NEO__BAGS_KEYED(job, neo__bags_row_records_kernel),
                           job->sorted.records, 1, *job, 0, rows, first_key));
    return NEO__BAGS_KEYED(job, neo__bags_sort_records)(d, job);
}

/* ---- sums down a run ---- */
/* The weights of records; NULL: there are none. */
NEO__GPU const float *neo__bags_weights(const neo__bags_job &j) {
    return j.batch.weights ? j.batch.weights + (j.batch.offsets[0] - j.batch.id_base) : NULL;
}
NEO__GPU const float *neo__bags_grads(const neo__bags_job &job, const neo__job_table &t) {
    return job.sorted.packs && t.mean ? job.sorted.packed : job.tensor.dout;
}
/* The place of the gradient of a record with this value. */
NEO__GPU int64_t neo__bags_grad_at(const neo__bags_job &job, uint32_t value) {
    return job.sorted.indirect ? job.sorted.grad_at[value] : (int64_t)value * job.sorted.grad_unit;
}
/* W columns of a row's sum, as its records come in order: a chain per leaf, + 0.0f, and the leaves'
   tree. */
template <class K, int W> struct neo__bags_sum {
    neo__cuda_parts<W> &tree; /* apart: it lies in memory, and the rest in registers */
    neo__floats<W> s; /* of the leaf */
    K leaf;           /* its key */
    bool several = false;
    __device__ __forceinline__ void end_leaf(const neo__bags_job &j) {
        neo__cuda_plus<W>(s, neo__floats<W>{});
        tree.push((int64_t)(leaf & (((K)1 << j.sorted.leaf_bits) - 1)), s);
    }
    __device__ __forceinline__ void begin_leaf(const neo__bags_job &j, K key) {
        if (key == leaf) return;
        end_leaf(j);
        leaf = key, s = {}, several = true;
    }
    __device__ __forceinline__ neo__floats<W> total(const neo__bags_job &j) {
        if (several) {
            end_leaf(j);
            return tree.total();
        }
        neo__cuda_plus<W>(s, neo__floats<W>{});
        return s;
    }
    /* n <= AHEAD records from i on; all are on their way before the first is added. Those that
       would come behind them are the last again. `from` is at the gradients' first column. */
    template <int AHEAD>
    __device__ __forceinline__ void add(const neo__bags_job &j, const float *from,
                                        const float *weights, uint32_t i, int n) {
        const K *keys = (const K *)j.sorted.keys[1] + i;
        const uint32_t *values = j.sorted.values[1] + i;
        neo__floats<W> x[AHEAD];
        float w[AHEAD];
        uint32_t value[AHEAD];
        NEO__UNROLL for (int a = 0; a < AHEAD; a++) value[a] = values[NEO__MIN(a, n - 1)];
        NEO__UNROLL for (int a = 0; a < AHEAD; a++)
            x[a] = neo__cuda_read<W>(from + neo__bags_grad_at(j, value[a]));
        NEO__UNROLL for (int a = 0; a < AHEAD; a++) w[a] = weights ? weights[value[a]] : 1.0f;
        for (unsigned left = 0xFFFFFFFFu >> (32 - n); left;) { /* leaf by leaf */
            unsigned now = left;
            if (j.sorted.leaf_bits) {
                const K key = keys[__ffs((int)left) - 1];
                begin_leaf(j, key);
                NEO__UNROLL for (int a = 1; a < AHEAD; a++)
                    if (keys[NEO__MIN(a, n - 1)] != key) now &= ~(1u << a);
                if (keys[0] != key) now &= ~1u;
            }
            NEO__UNROLL for (int a = 0; a < AHEAD; a++)
                if (now >> a & 1u) neo__cuda_plus<W>(s, w[a], x[a]);
            left &= ~now;
        }
    }
    template <int AHEAD>
    __device__ __forceinline__ void add_all(const neo__bags_job &j, const float *from, uint32_t i,
                                            uint32_t end) {
        const float *weights = neo__bags_weights(j);
        for (int n; i < end; i += (uint32_t)n) {
            n = (int)NEO__MIN(end - i, (uint32_t)AHEAD);
            if (n > 2) add<AHEAD>(j, from, weights, i, n);
            else add<2>(j, from, weights, i, n);
        }
    }
};
/* For a leaf of a long run, by its first record: where it ends, and the number of its sum, or of
   its first piece's, which has been computed, or NEO__BAGS_NO_PART. They lie in the room of
   unsorted records. */
#define NEO__BAGS_NO_PART 0xFFFFFFFFu
NEO__GPU uint32_t *neo__bags_leaf_end(const neo__bags_job &job) {
    return (uint32_t *)job.sorted.keys[0];
}
NEO__GPU uint32_t *neo__bags_leaf_part(const neo__bags_job &job) { return job.sorted.values[0]; }
NEO__GPU float *neo__bags_part_sum(const neo__bags_job &job, uint32_t part) {
    return job.sorted.part_sums + (int64_t)part * neo__bag_room(job.fixed.max_dim);
}
/* The gradients of one row, records [i, end), in W columns from col on; job.add: as they come,
   added to s. */
template <class K, int W>
NEO__GPU neo__floats<W> neo__bags_merge(const neo__bags_job &job, const float *from, uint32_t i,
                                        uint32_t end, int64_t col, neo__floats<W> s) {
    const K *keys = (const K *)job.sorted.keys[1];
    if (end - i == 1) { /* most rows of large tables */
        const uint32_t value = job.sorted.values[1][i];
        const float *weights = neo__bags_weights(job);
        neo__cuda_plus<W>(s, weights ? weights[value] : 1.0f,
                          neo__cuda_read<W>(from + col + neo__bags_grad_at(job, value)));
        if (!job.add) neo__cuda_plus<W>(s, neo__floats<W>{});
        return s;
    }
    const bool has_parts = end - i > NEO__JOB_LONG && !job.add; /* else no leaf is cut */
    neo__cuda_parts<W> tree;
    neo__bags_sum<K, W> sum = {tree, s, keys[i]};
    for (uint32_t stop; i < end; i = stop) {
        const uint32_t part = has_parts ? neo__bags_leaf_part(job)[i] : NEO__BAGS_NO_PART;
        stop = has_parts ? neo__bags_leaf_end(job)[i] : end;
        if (part == NEO__BAGS_NO_PART) {
            sum.template add_all<NEO__BAGS_AHEAD>(job, from + col, i, stop);
            continue;
        }
        sum.begin_leaf(job, keys[i]);
        sum.s = neo__cuda_load<W>(neo__bags_part_sum(job, part) + col);
    }
    return job.add ? sum.s : sum.total(job);
}

/* ---- runs ---- */
/* The key of the row of sorted record i. */
template <class K> NEO__GPU K neo__bags_key(const neo__bags_job &job, int64_t i) {
    return ((const K *)job.sorted.keys[1])[i] >> job.sorted.leaf_bits;
}
typedef struct neo__bags_run {
    uint32_t begin, end; /* its records; end 0: it goes on beyond the window */
    int64_t row;
    int table;
} neo__bags_run;
NEO__STATIC_ASSERT(2 * NEO__JOB_SHARED_FLOATS * sizeof(float) +
                           32 * NEO__BAGS_WARPS * sizeof(neo__bags_run) <= 48 * 1024,
                   "a block has 48 KiB of shared memory, lists of runs included");
template <class K> NEO__GPU neo__bags_run neo__bags_run_at(const neo__bags_job &job, int64_t i) {
    const int64_t key = (int64_t)neo__bags_key<K>(job, i);
    neo__bags_run run;
    run.begin = (uint32_t)i, run.end = 0;
    run.table = neo__bags_table_of_key(job, key);
    run.row = key - job.fixed.tables[run.table].first_key;
    return run;
}
/* Record i is the first of a row. */
template <class K> NEO__GPU bool neo__bags_starts(const neo__bags_job &j, int64_t i) {
    if (i >= j.sorted.records || (int64_t)neo__bags_key<K>(j, i) >= j.fixed.key_count) return false;
    return i == 0 || neo__bags_key<K>(j, i) != neo__bags_key<K>(j, i - 1);
}
/* The end of a run, if it is not known yet; for LANES threads of `mask` at once. */
template <class K, int LANES>
NEO__GPU uint32_t neo__bags_end(const neo__bags_job &job, uint32_t begin, uint32_t end,
                                unsigned mask) {
    if (end) return end;
    const K key = neo__bags_key<K>(job, begin);
    const int lane = threadIdx.x % LANES, shift = threadIdx.x % 32 - lane;
    const uint32_t records = (uint32_t)job.sorted.records;
    for (uint32_t i = begin + 1;; i += LANES) {
        if (i - begin > NEO__JOB_LONG)
            return 1 + neo__cuda_last(i - 1, records, (int64_t)key, [&job](uint32_t q) {
                       return (int64_t)neo__bags_key<K>(job, q);
                   });
        const bool same = i + lane < records && neo__bags_key<K>(job, i + lane) == key;
        const unsigned other = __ballot_sync(mask, !same) >> shift;
        if (other) return i + (uint32_t)__ffs((int)other) - 1;
    }
}
/* Windows of 32 records, a warp for each. Records are fewer than 2^31, so numbers of them have 32
   bits here: registers decide how many warps there are. */
#define NEO__BAGS_WINDOWS(window, job)                                                             \
    for (int window = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32);                         \
         window < (int)(((job).sorted.records + 31) / 32);                                         \
         window += (int)(gridDim.x * blockDim.x / 32))
/* Runs of one record, and of any number. */
struct neo__bags_count {
    int single, all;
};
/* The runs of the tables for which mine(table) that begin in a window of 32 records, to the warp's
   list, as make(run): first those of one record, then the others. Returns how many they are. */
template <class K, class T, class Mine, class Make>
NEO__GPU neo__bags_count neo__bags_window(const neo__bags_job &j, int window, T *list, Mine mine,
                                          Make make) {
    const int lane = threadIdx.x % 32;
    const int64_t i = (int64_t)window * 32 + lane, records = j.sorted.records;
    neo__bags_run run;
    const bool starts = neo__bags_starts<K>(j, i);
    const bool dropped = i < records && (int64_t)neo__bags_key<K>(j, i) >= j.fixed.key_count;
    bool take = starts;
    const unsigned changes = __ballot_sync(0xFFFFFFFFu, starts || dropped || i >= records);
    const unsigned others = changes & ~(0xFFFFFFFFu >> (31 - lane)); /* behind this record */
    if (take) {
        const int64_t next = (int64_t)window * 32 + 32;
        run = neo__bags_run_at<K>(j, i);
        if (others) run.end = (uint32_t)(window * 32 + __ffs((int)others) - 1);
        else if (next < records && neo__bags_key<K>(j, next) != neo__bags_key<K>(j, i))
            run.end = (uint32_t)next;
        take = mine(run.table);
    }
    const bool single = take && run.end == i + 1;
    const unsigned taken = __ballot_sync(0xFFFFFFFFu, take), before = (1u << lane) - 1u;
    const unsigned singles = __ballot_sync(0xFFFFFFFFu, single);
    const int behind = __popc(singles) + __popc(taken & ~singles & before);
    if (take) list[single ? __popc(singles & before) : behind] = make(run);
    __syncwarp();
    return {__popc(singles), __popc(taken)};
}
/* W columns from col on of a row's sum, which goes to where it is kept if it is. */
template <class K, int W>
NEO__GPU neo__floats<W> neo__bags_row_sum(const neo__bags_job &job, const neo__job_table &t,
                                          uint32_t begin, uint32_t end, int64_t col) {
    const uint32_t at = job.keep ? job.kept.keep_at[begin] : 1u;
    float *to = job.kept.sums + (int64_t)(at >> 1) * job.kept.unit + col;
    neo__floats<W> old = {}, s = {};
    if (!(at & 1)) old = neo__cuda_load<W>(to);
    if (job.add) s = old;
    s = neo__bags_merge<K, W>(job, neo__bags_grads(job, t), begin, end, col, s);
    if (!job.add && !(at & 1)) neo__cuda_plus<W>(s, old);
    if (job.keep) neo__cuda_store<W>(to, s);
    return s;
}

/* ---- leaves of long runs ---- */
/* The first record from i on whose key is not below this one. */
template <class K> NEO__GPU int64_t neo__bags_first(const neo__bags_job &job, int64_t i, K key) {
    const K *keys = (const K *)job.sorted.keys[1];
    i = neo__cuda_last(i, job.sorted.records, (int64_t)key - 1,
                       [keys](int64_t q) { return (int64_t)keys[q]; });
    return keys[i] < key ? i + 1 : i;
}
/* Find them; a lane takes a leaf. Those of few records have no part. Leaves that are cut into
   pieces all have room: the lowest parts are theirs, neo__bags_most_pieces of them at most; the
   others have the highest as far as these go, and go without, with the same bits, beyond that. */
NEO__GPU int64_t neo__bags_most_pieces(const neo__bags_job &job) {
    return 2 * job.sorted.records / job.sorted.piece;
}
template <class K> NEO__CUDA_KERNEL neo__bags_parts_kernel(const neo__bags_job job) {
    NEO__CUDA_EACH(i, (job.sorted.records + 31) / 32 * 32, 1) {
        const int64_t far = i + NEO__JOB_LONG;
        unsigned longs = __ballot_sync(
            0xFFFFFFFFu, neo__bags_starts<K>(job, i) && far < job.sorted.records &&
                             neo__bags_key<K>(job, far) == neo__bags_key<K>(job, i));
        for (; longs; longs &= longs - 1) {
            const int64_t begin = i / 32 * 32 + __ffs((int)longs) - 1;
            const K row = neo__bags_key<K>(job, begin) << job.sorted.leaf_bits;
            for (K leaf = threadIdx.x % 32; leaf >> job.sorted.leaf_bits == 0; leaf += 32) {
                const int64_t first = neo__bags_first<K>(job, begin, row + leaf);
                const int64_t end = neo__bags_first<K>(job, begin, row + leaf + 1);
                if (first == end) continue;
                const uint32_t piece = job.sorted.piece;
                const uint32_t pieces = ((uint32_t)(end - first) - 1) / piece + 1;
                int64_t part = -1;
                if (pieces > 1) part = atomicAdd(&job.sorted.parts[0], pieces);
                else if (end - first >= NEO__JOB_PART)
                    part = job.sorted.max_parts - 1 - atomicAdd(&job.sorted.parts[1], 1u);
                if (pieces == 1 && part < neo__bags_most_pieces(job)) part = -1;
                uint32_t i = (uint32_t)first, number = (uint32_t)part;
                for (uint32_t p = 0; p < pieces; p++, i += piece) {
                    neo__bags_leaf_end(job)[i] = (uint32_t)end;
                    neo__bags_leaf_part(job)[i] = p > 0 || part < 0 ? NEO__BAGS_NO_PART : number;
                    if (part >= 0) job.sorted.parts[2 + number + p] = i;
                }
            }
        }
    }
}
template <class K, int W, bool JOIN>
NEO__GPU void neo__bags_sum_part(const neo__bags_job &job, const neo__job_table &table,
                                 uint32_t part) {
    const uint32_t i = job.sorted.parts[2 + part], left = neo__bags_leaf_end(job)[i] - i;
    const uint32_t piece = job.sorted.piece;
    for (int64_t col = threadIdx.x % 32 * W; col < table.store.dim; col += 32 * W) {
        float *to = neo__bags_part_sum(job, part) + col;
        if constexpr (JOIN) {
            const auto sum = neo__cuda_tree<W, 24>((int)((left - 1) / piece + 1), [=](int p) {
                return neo__cuda_load<W>(to + p * neo__bag_room(job.fixed.max_dim));
            });
            neo__cuda_store<W>(to, sum);
        } else {
            neo__cuda_parts<W> tree;
            neo__bags_sum<K, W> sum = {tree, {}, ((const K *)job.sorted.keys[1])[i]};
            sum.template add_all<NEO__BAGS_LONG_AHEAD>(job, neo__bags_grads(job, table) + col, i,
                                                       i + NEO__MIN(left, piece));
            neo__cuda_store<W>(to, sum.s);
        }
    }
}
/* Sum them; JOIN: pieces have been summed, and the first of each leaf gets the tree over them. */
template <class K, bool JOIN> NEO__GPU void neo__bags_each_part(const neo__bags_job &job) {
    if (job.stop && *job.stop) return;
    const int64_t pieces = job.sorted.parts[0], most = job.sorted.max_parts;
    const int64_t others =
        NEO__MIN((int64_t)job.sorted.parts[1], most - neo__bags_most_pieces(job));
    NEO__CUDA_EACH(number, JOIN ? pieces : pieces + others, 32) {
        const int64_t part = number < pieces ? number : most - 1 - (number - pieces);
        const uint32_t first = job.sorted.parts[2 + part];
        if (JOIN && neo__bags_leaf_part(job)[first] != (uint32_t)part) continue;
        const int64_t key = (int64_t)neo__bags_key<K>(job, first);
        const neo__job_table &t = job.fixed.tables[neo__bags_table_of_key(job, key)];
        if (neo__bags_lanes(t, job.tensor.aligned))
            neo__bags_sum_part<K, 4, JOIN>(job, t, (uint32_t)part);
        else neo__bags_sum_part<K, 1, JOIN>(job, t, (uint32_t)part);
    }
}
template <class K>
static __global__ void __launch_bounds__(NEO__BAGS_LONG_THREADS)
    neo__bags_part_sums_kernel(const neo__bags_job j) {
    neo__bags_each_part<K, false>(j);
}
template <class K>
static __global__ void __launch_bounds__(NEO__BAGS_LONG_THREADS)
    neo__bags_part_trees_kernel(const neo__bags_job j) {
    neo__bags_each_part<K, true>(j);
}

/* ---- rows in registers ---- */
/* Lanes times fours of a row that is summed and stepped so; 0: it is not. Its random numbers are
   then whole blocks. */
NEO__EVERYWHERE NEO__INLINE int neo__bags_fours(const neo__bags_job &job, const neo__job_table &t,
                                                const neo__job_rule &o) {
    if (t.store.dim > NEO__BAGS_MOST_DIM) return 0;
    if (job.keep) return job.kept.unit % 4 ? 0 : neo__bags_lanes(t, job.tensor.aligned);
    if (t.cut || (t.store.dtype != NEO_F32 && !o.nearest && (t.store.first | t.store.stride) % 4))
        return 0;
    return neo__bags_lanes(t, job.tensor.aligned);
}
/* Most tables: the step is row-wise Adagrad or SGD and nothing else. Their rows take fewer
   registers than those of any rule, which leaves room for rows that are loaded ahead. */
NEO__EVERYWHERE NEO__INLINE int neo__bags_is_plain(const neo__bags_job &job,
                                                   const neo__job_table &t,
                                                   const neo__job_rule &rule) {
    return !job.keep && !job.add && t.store.dim <= NEO__BAGS_PLAIN_DIM && !rule.step.adjusts &&
           !(rule.step.max_norm > 0.0f) &&
           (rule.step.kind == NEO_BAG_ROWWISE_ADAGRAD || rule.step.kind == NEO_BAG_SGD);
}
/* Which kernel steps a table's rows: their lanes times fours, and if the step is plain the dtype as
   well, of which F16 stands for BF16, too; of any rule it is NEO__BAGS_ANY. 0:
   neo__bags_step_kernel. */
#define NEO__BAGS_ANY NEO_DTYPE_COUNT
#define NEO__BAGS_UPDATER(dtype) (4096 * (int)(dtype))
NEO__EVERYWHERE NEO__INLINE int neo__bags_updater(const neo__bags_job &job, const neo__job_table &t,
                                                  const neo__job_rule &rule) {
    const neo_dtype dtype = t.store.dtype == NEO_BF16 ? NEO_F16 : t.store.dtype;
    const int fours = neo__bags_fours(job, t, rule);
    if (!fours) return 0;
    return NEO__BAGS_UPDATER(neo__bags_is_plain(job, t, rule) ? dtype : NEO__BAGS_ANY) + fours;
}
/* In an instruction each: a and b as f16, |x| < 65536, rounded towards 0, b in the upper half; the
   24 bits of a number; a + b, rounded down; the upper word of x 2^n, of n below 0: 0. */
NEO__GPU uint32_t neo__bags_f16_cut(float a, float b) {
#if !defined(__CUDA_ARCH__)
    const auto cut = [](float x) {
        const uint16_t code = neo__f16_from_f32(x);
        return (uint32_t)code - (fabsf(neo__f32_from_f16(code)) > fabsf(x));
    };
    return cut(a) | cut(b) << 16;
#elif __CUDA_ARCH__ >= 800
    uint32_t code;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(code) : "f"(b), "f"(a));
    return code;
#else
    uint16_t low, high;
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(low) : "f"(a));
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(high) : "f"(b));
    return low | (uint32_t)high << 16;
#endif
}
NEO__GPU uint32_t neo__bags_mantissa(float x) {
    uint32_t bits = neo__bits_f32(x);
#if defined(__CUDA_ARCH__) /* else two, as an instruction has one constant */
    asm("lop3.b32 %0, %0, 0x7FFFFF, 0x800000, 0xEA;" : "+r"(bits));
    return bits;
#else
    return (bits & 0x007FFFFFu) | 0x00800000u;
#endif
}
NEO__GPU float neo__bags_add_down(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rd(a, b);
#else
    const float sum = __fadd_rn(a, b);
    return (double)sum > (double)a + (double)b ? nextafterf(sum, -INFINITY) : sum;
#endif
}
NEO__GPU uint32_t neo__bags_upper(uint32_t x, int n) {
#if defined(__CUDA_ARCH__)
    uint64_t product;
    asm("shl.b64 %0, %1, %2;" : "=l"(product) : "l"((uint64_t)x), "r"(n));
    return (uint32_t)(product >> 32);
#else
    return n < 0 ? 0u : (uint32_t)((uint64_t)x << n >> 32);
#endif
}
/* A fraction of 32 bits, which f16 cuts off of |x| < 65536: the upper word of its 24 bits moved up
   by 51 places, of a denormal result by fewer. */
NEO__GPU uint32_t neo__bags_f16_rest(float x) {
    const int power = (int)(neo__bits_f32(fminf(fabsf(x), 0x1p-14f)) >> 23);
    return neo__bags_upper(neo__bags_mantissa(x), power - 62);
}
/* Two numbers as codes of f16: the carry of what is cut off and a random word counts. */
NEO__GPU uint32_t neo__bags_f16_pair(float a, float b, uint32_t ra, uint32_t rb) {
    const uint32_t rest[2] = {neo__bags_f16_rest(a), neo__bags_f16_rest(b)};
    uint32_t code = neo__bags_f16_cut(a, b), upper;
#if defined(__CUDA_ARCH__)
    asm("{ .reg .u32 sum; add.cc.u32 sum, %2, %3; addc.u32 %0, %0, 0;\n\t"
        "add.cc.u32 sum, %4, %5; addc.u32 %1, 0, 0; }"
        : "+r"(code), "=r"(upper) : "r"(rest[0]), "r"(ra), "r"(rest[1]), "r"(rb));
#else
    code += rest[0] + ra < ra, upper = rest[1] + rb < rb;
#endif
    return code + (upper << 16);
}
/* Four numbers as codes of f16 or bf16, in the first two of the random words r: the bits of
   neo__f16_round_warp and neo__bf16_round_warp, by fewer instructions. Of f16 those from 65536 on,
   NaN, and what is rounded to nearest go by those functions, in a loop, as they are long. */
NEO__GPU void neo__bags_half_codes(neo_dtype dtype, const neo__floats<4> &x, uint32_t (&r)[4],
                                   bool random) {
    const float all = (fabsf(x.v[0]) + fabsf(x.v[1])) + (fabsf(x.v[2]) + fabsf(x.v[3]));
    const bool is_f16 = dtype == NEO_F16;
    if (!random || !(all < 65536.0f)) {
        NEO__NO_UNROLL for (int k = 0; k < 4; k++) {
            float one = x.v[0];
            uint32_t code = r[0];
            NEO__UNROLL for (int i = 1; i < 4; i++) if (i == k) one = x.v[i], code = r[i];
            if (random)
                code = is_f16 ? neo__f16_round_warp(one, code) : neo__bf16_round_warp(one, code);
            else code = is_f16 ? neo__f16_from_f32(one) : neo__bf16_from_f32(one);
            NEO__UNROLL for (int i = 0; i < 4; i++) if (i == k) r[i] = code;
        }
        r[0] |= r[1] << 16, r[1] = r[2] | r[3] << 16;
    } else if (is_f16) {
        NEO__UNROLL for (int k = 0; k < 4; k += 2)
            r[k / 2] = neo__bags_f16_pair(x.v[k], x.v[k + 1], r[k], r[k + 1]);
    } else {
        NEO__UNROLL for (int k = 0; k < 4; k++) r[k] = neo__bits_f32(x.v[k]) + (r[k] >> 16);
        r[0] = r[0] >> 16 | (r[1] & 0xFFFF0000u), r[1] = r[2] >> 16 | (r[3] & 0xFFFF0000u);
    }
}
/* The same for a row of i8: the bits of neo__i8_round_warp where inverse is not 0. Only the lowest
   8 bits of a code count. A sum with 1.5 2^23 has an integer as its lowest bits. */
NEO__GPU void neo__bags_i8_codes(const neo__floats<4> &w, float inverse, float bias,
                                 uint32_t (&r)[4], bool random) {
    const float large = 0x1.8p23f;
    NEO__UNROLL for (int k = 0; k < 4; k++) {
        const float x = fminf(fmaxf(__fmul_rn(__fsub_rn(w.v[k], bias), inverse), -127.0f), 127.0f);
        const float n = random ? neo__bags_add_down(x, large) : __fadd_rn(x, large);
        const float rest = __fsub_rn(x, __fsub_rn(n, large));
        r[k] = neo__bits_f32(n) +
               (random && rest > __fmul_rn((float)(r[k] >> 8), 0x1p-24f) ? 1u : 0u);
    }
}
/* A row in LANES lanes, with CHUNKS fours of it in each. What is beyond its end is 0. */
template <int LANES, int CHUNKS> struct neo__bags_lane {
    typedef neo__float_warp numbers[4 * CHUNKS];
    int dim, lane;
    unsigned mask;
    /* f(i, col): numbers i to i + 3 are those of columns from col on; and f(i) of each number. */
    template <class F> __device__ __forceinline__ void fours(F f) const {
        NEO__UNROLL for (int c = 0; c < CHUNKS; c++)
            if (4 * (c * LANES + lane) < dim) f(4 * c, (int64_t)4 * (c * LANES + lane));
    }
    template <class F> __device__ __forceinline__ void each(F f) const {
        fours([&](int i, int64_t) { NEO__UNROLL for (int k = i; k < i + 4; k++) f(k); });
    }
    /* f(i) of all fours, where zeros do no harm: that is fewer instructions. */
    template <class F> static __device__ __forceinline__ void whole(F f) {
        NEO__UNROLL for (int i = 0; i < 4 * CHUNKS; i += 4) f(i);
    }
    static __device__ __forceinline__ void put(neo__float_warp *x, const neo__floats<4> &four) {
        NEO__UNROLL for (int k = 0; k < 4; k++) x[k] = four.v[k];
    }
    static __device__ __forceinline__ neo__floats<4> get(const neo__float_warp *x) {
        return {{x[0], x[1], x[2], x[3]}};
    }
    /* The sum of squares: blocks of 16 columns by the fixed tree, in order. Four lanes share a
       block of each chunk; where chunks are enough, none of them adds what another does. */
    __device__ __forceinline__ float squares(const numbers &x) const {
        constexpr int HALF = CHUNKS > 1 ? CHUNKS / 2 : 1, LEFT = CHUNKS > 3 ? CHUNKS / 4 : 1;
        const bool upper = CHUNKS > 1 && (lane & 2), odd = CHUNKS > 3 && (lane & 1);
        const auto both = [this](neo__float_warp mine, neo__float_warp given, int step) {
            return mine + __shfl_xor_sync(mask, given.x, step, LANES);
        };
        neo__float_warp sum = 0.0f, q[HALF][4], block[LEFT];
        NEO__UNROLL for (int i = 0; i < 4 * HALF; i++) { /* columns 8 apart */
            const int j = i + 4 * (CHUNKS - HALF);
            const neo__float_warp a = x[i] * x[i], b = x[j] * x[j];
            q[i / 4][i % 4] = both(upper ? b : a, upper ? a : b, 2);
        }
        NEO__UNROLL for (int c = 0; c < LEFT; c++) { /* 4 apart */
            NEO__UNROLL for (int k = 0; k < 4; k++) {
                const neo__float_warp a = q[c][k], b = q[c + HALF - LEFT][k];
                q[c][k] = both(odd ? b : a, odd ? a : b, 1);
            }
            block[c] = (q[c][0] + q[c][2]) + (q[c][1] + q[c][3]);
        }
        NEO__UNROLL for (int c = 0; c < CHUNKS; c++) {
            const int in = (CHUNKS > 1 ? c / HALF * 2 : 0) + (CHUNKS > 3 ? c / LEFT % 2 : 0);
            NEO__UNROLL for (int from = 0; from < LANES; from += 4)
                sum = sum + __shfl_sync(mask, block[c % LEFT].x, from + in, LANES);
        }
        return sum;
    }
    __device__ __forceinline__ float norm(const numbers &x) const { return __fsqrt_rn(squares(x)); }
    /* neo__bag_step_row; one: the state of which a row has one. No rule has two such. */
    __device__ __forceinline__ void step(const neo__bag_step &o, numbers &w, numbers &g,
                                         numbers &m, numbers &v, float &one) const {
        const bool partial =
            o.kind == NEO_BAG_PARTIAL_ADAM || o.kind == NEO_BAG_PARTIAL_LAMB;
        const bool lamb = o.kind == NEO_BAG_LAMB || o.kind == NEO_BAG_PARTIAL_LAMB;
        float rate = o.lr, mean = 0.0f, below = 0.0f;
        if (o.adjusts) each([&](int i) { neo__bag_adjust_one_warp(&o, &w[i], &g[i]); });
        if (partial || o.kind == NEO_BAG_ROWWISE_ADAGRAD)
            mean = __fdiv_rn(squares(g), (float)dim);
        switch (o.kind) {
        case NEO_BAG_ROWWISE_ADAGRAD:
            one = __fadd_rn(one, mean);
            rate = __fdiv_rn(rate, __fadd_rn(__fsqrt_rn(one), o.eps));
            break;
        case NEO_BAG_ADAGRAD:
            each([&](int i) { w[i] = neo__bag_adagrad_one_warp(&o, w[i], g[i], &m[i]); });
            break;
        case NEO_BAG_LARS_SGD:
            rate = neo__bag_lars_rate_warp(&o, norm(w), norm(g));
            each([&](int i) { w[i] = neo__bag_lars_one_warp(&o, rate, w[i], g[i], &m[i]); });
            break;
        case NEO_BAG_FTRL:
            each([&](int i) { w[i] = neo__ftrl_warp(&o.ftrl, g[i], w[i], &m[i], &v[i]); });
            break;
        case NEO_BAG_SGD:
        case NEO_BAG_OPTIM_COUNT: break;
        default: /* of Adam, LAMB: from here on g is the direction */
            if (partial) {
                one = __fmaf_rn(o.beta2, one, __fmul_rn(o.rest2, mean));
                below = __fadd_rn(__fsqrt_rn(__fmul_rn(one, o.fix2)), o.eps);
            }
            each([&](int i) {
                g[i] = neo__bag_adam_one_warp(&o, g[i], &m[i], &v[i], below, partial);
                if (lamb) g[i] = __fmaf_rn(o.decay, w[i], g[i]);
            });
            const float a = lamb ? norm(w) : 0.0f, b = lamb ? norm(g) : 0.0f;
            if (lamb) rate = __fmul_rn(rate, a > 0.0f && b > 0.0f ? __fdiv_rn(a, b) : 1.0f);
        }
        if (o.kind != NEO_BAG_ADAGRAD && o.kind != NEO_BAG_LARS_SGD && o.kind != NEO_BAG_FTRL)
            each([&](int i) { w[i] = __fmaf_rn(-rate, g[i], w[i]); });
        const float length = o.max_norm > 0.0f ? norm(w) : 0.0f;
        if (length > o.max_norm)
            each([&](int i) { w[i] = __fdiv_rn(o.max_norm, length) * w[i]; });
    }
    /* Scale and bias of a row of i8. */
    __device__ __forceinline__ void scale_of(const numbers &w, float *scale) const {
        float least = FLT_MAX, most = -FLT_MAX;
        bool odd = false;
        each([&](int i) {
            const float x = w[i];
            odd |= !(__fmul_rn(x, 0.0f) == 0.0f);
            least = x < least ? x : least, most = x > most ? x : most;
        });
        for (int step = LANES / 2; step > 0; step /= 2) {
            const float low = __shfl_xor_sync(mask, least, step, LANES);
            const float high = __shfl_xor_sync(mask, most, step, LANES);
            least = low < least ? low : least, most = high > most ? high : most;
        }
        (void)neo__rows_scale_of_warp(__any_sync(mask, odd), least, most, scale);
    }
    /* To the row at `to`, of which the random words begin with block `block`, and its scale. */
    __device__ __forceinline__ void write(neo_dtype dtype, char *to, float *to_scale,
                                          uint64_t block, const neo__job_rule &rule,
                                          uint64_t seed, const numbers &w) const {
        const neo__random_key key = {seed, rule.round.h};
        float scale[2] = {};
        if (dtype == NEO_I8) scale_of(w, scale);
        if (dtype == NEO_I8 && lane == 0) to_scale[0] = scale[0], to_scale[1] = scale[1];
        const float inverse = scale[0] == 0.0f ? 0.0f : __fdiv_rn(1.0f, scale[0]);
        fours([&](int i, int64_t col) {
            char *at = to + col * neo__bags_bytes(dtype);
            uint32_t r[4] = {};
            if (dtype == NEO_F32) {
                neo__cuda_store<4>((float *)(void *)at, get(w + i));
                return;
            }
            if (!rule.nearest) neo__random_block(&key, block + (uint64_t)(col / 4), r);
            if (dtype == NEO_I8) {
                neo__bags_i8_codes(get(w + i), inverse, scale[1], r, !rule.nearest);
                *(uint32_t *)(void *)at = inverse == 0.0f ? 0u
                                          : (r[0] & 255u) | (r[1] & 255u) << 8 |
                                                (r[2] & 255u) << 16 | r[3] << 24;
            } else {
                neo__bags_half_codes(dtype, get(w + i), r, !rule.nearest);
                *(uint2 *)(void *)at = make_uint2(r[0], r[1]);
            }
        });
    }
};
/* All that a row's loads need, found by one lane beside those of the other rows of a window. */
typedef struct neo__bags_row_at {
    char *row;
    float *state[2], *one, *scale; /* states of a number a column, and of one; NULL: it has none */
    const float *grad;             /* of its first record */
    uint64_t block;                /* of the row's first random numbers */
    float weight;                  /* of its first record */
    uint32_t begin, end;
    int32_t table;
    int16_t dim, dtype;
} neo__bags_row_at;
NEO__GPU neo__bags_row_at neo__bags_find_row(const neo__bags_job &job, const neo__bags_run &run) {
    const neo__job_table &t = job.fixed.tables[run.table];
    const uint32_t value = job.sorted.values[1][run.begin];
    const float *weights = neo__bags_weights(job);
    const int one = t.state_dim[0] == 1 ? 0 : 1;
    const auto state = [&](int k, bool there) {
        return there ? t.state[k] + run.row * t.state_dim[k] : NULL;
    };
    return {t.store.data + run.row * t.store.row_bytes,
            {state(0, t.state_dim[0] > 1), state(1, t.state_dim[1] > 1)},
            state(one, t.state_dim[one] == 1),
            t.store.scale + 2 * run.row,
            neo__bags_grads(job, t) + neo__bags_grad_at(job, value),
            job.keep ? 0 : neo__bag_number(&t.store, run.row) / 4,
            weights ? weights[value] : 1.0f,
            run.begin,
            run.end,
            run.table,
            (int16_t)t.store.dim,
            (int16_t)t.store.dtype};
}
/* Its loads, on their way while the row before it is stepped; zeros beyond its end. T: the dtype of
   rows whose step is plain, or NEO__BAGS_ANY. */
template <neo_dtype T, int LANES, int CHUNKS> struct neo__bags_ahead {
    typedef neo__bags_lane<LANES, CHUNKS> lane;
    neo__bags_raw row[CHUNKS], grad[CHUNKS], state[2][CHUNKS];
    float one, scale[2];
    __device__ __forceinline__ void fetch(const lane &l, const neo__bags_row_at &p, bool states) {
        const neo_dtype dtype = T == NEO__BAGS_ANY ? (neo_dtype)p.dtype : T;
        if (l.dim != 4 * LANES * CHUNKS) /* by a branch: most rows end there */
            NEO__UNROLL for (int c = 0; c < CHUNKS; c++)
                NEO__UNROLL for (int k = 0; k < 4; k++)
                    row[c].word[k] = grad[c].word[k] = neo__cuda_now(0);
        l.fours([&](int i, int64_t col) {
            neo__bags_fetch_as(dtype, row[i / 4], p.row + col * neo__bags_bytes(dtype));
            neo__bags_fetch<NEO_F32>(grad[i / 4], (const char *)(p.grad + col));
            for (int k = 0; k < 2 && states; k++)
                if (p.state[k])
                    neo__bags_fetch<NEO_F32>(state[k][i / 4], (const char *)(p.state[k] + col));
        });
        one = p.one ? *p.one : 0.0f;
        if (dtype == NEO_I8) scale[0] = p.scale[0], scale[1] = p.scale[1];
    }
};
/* Its step by its gradient's sum; states: they were fetched ahead. then(): x is free for the next
   row's loads: of a plain rule before its step, which needs registers alone. */
template <neo_dtype T, int LANES, int CHUNKS, class Then>
NEO__GPU void neo__bags_step_at(const neo__bags_job &job, const neo__bags_row_at &p,
                                const neo__bags_lane<LANES, CHUNKS> &row,
                                neo__bags_ahead<T, LANES, CHUNKS> &x, bool states,
                                typename neo__bags_lane<LANES, CHUNKS>::numbers &g, Then then) {
    typedef neo__bags_lane<LANES, CHUNKS> lane;
    const neo__job_rule &rule = job.told.rules[p.table];
    const bool bf16 = T == NEO_F16 && p.dtype == NEO_BF16;
    const neo_dtype dtype = T == NEO__BAGS_ANY ? (neo_dtype)p.dtype : bf16 ? NEO_BF16 : T;
    typename lane::numbers w = {}, m = {}, v = {};
    __syncwarp(row.mask); /* all have read what one lane writes */
    const auto weights = [&](int i, int64_t) {
        lane::put(w + i, neo__bags_four_as(dtype, x.row[i / 4], x.scale[0], x.scale[1]));
    };
    if constexpr (T == NEO__BAGS_ANY) row.fours(weights);
    else row.whole([&](int i) { weights(i, 0); });
    if constexpr (T == NEO__BAGS_ANY) {
        const auto state = [&](int k, int i, int64_t col) {
            return states ? neo__bags_four<NEO_F32>(x.state[k][i / 4], 0.0f, 0.0f)
                          : neo__cuda_load<4>(p.state[k] + col);
        };
        row.fours([&](int i, int64_t col) {
            if (p.state[0]) lane::put(m + i, state(0, i, col));
            if (p.state[1]) lane::put(v + i, state(1, i, col));
        });
        row.step(rule.step, w, g, m, v, x.one);
        row.fours([&](int i, int64_t col) {
            if (p.state[0]) neo__cuda_store<4>(p.state[0] + col, lane::get(m + i));
            if (p.state[1]) neo__cuda_store<4>(p.state[1] + col, lane::get(v + i));
        });
        if (p.one && row.lane == 0) *p.one = x.one;
    } else {
        const float one = x.one;
        float rate = rule.step.lr;
        then();
        if (p.one) {
            const float sum = __fadd_rn(one, __fdiv_rn(row.squares(g), (float)row.dim));
            rate = __fdiv_rn(rate, __fadd_rn(__fsqrt_rn(sum), rule.step.eps));
            if (row.lane == 0) *p.one = sum;
        }
        row.whole([&](int i) {
            NEO__UNROLL for (int k = i; k < i + 4; k++) w[k] = __fmaf_rn(-rate, g[k], w[k]);
        });
    }
    /* An argument's round keys are made once; rows of any rule need the registers. */
    const uint64_t seed = T == NEO__BAGS_ANY ? rule.round.seed : job.sorted.seed;
    row.write(dtype, p.row, p.scale, p.block, rule, seed, w);
    if constexpr (T == NEO__BAGS_ANY) then();
}
/* Rows of one record, AHEAD of them at a time, then the others. */
template <class K, neo_dtype T, int LANES, int CHUNKS>
static __global__ void __launch_bounds__(NEO__CUDA_THREADS,
                                         T == NEO__BAGS_ANY && CHUNKS > 1 ? 1 : 2)
    neo__bags_update_kernel(const neo__bags_job job) {
    enum {
        AHEAD = (T == NEO__BAGS_ANY ? NEO__BAGS_ANY_AHEAD : NEO__BAGS_ROWS_AHEAD) / CHUNKS,
        ROOM = AHEAD ? AHEAD : 1
    };
    if (job.stop && *job.stop) return;
    __shared__ neo__bags_row_at lists[NEO__BAGS_WARPS][32];
    neo__bags_row_at *list = lists[threadIdx.x / 32];
    typedef neo__bags_lane<LANES, CHUNKS> lane;
    const int group = threadIdx.x % 32 / LANES, groups = 32 / LANES;
    const auto lanes_of = [&](int r) {
        const bool anew = T == NEO__BAGS_ANY || sizeof(K) > 4; /* registers are scarce */
        const int thread = (int)(anew ? neo__cuda_now(threadIdx.x) : threadIdx.x);
        return lane{list[r].dim, thread % LANES, neo__bags_mask<LANES>(thread)};
    };
    NEO__BAGS_WINDOWS(window, job) {
        const neo__bags_count count = neo__bags_window<K>(
            job, window, list,
            [&job](int table) {
                return neo__bags_updater(job, job.fixed.tables[table], job.told.rules[table]) ==
                       NEO__BAGS_UPDATER(T) + LANES * CHUNKS;
            },
            [&job](const neo__bags_run &run) { return neo__bags_find_row(job, run); });
        const bool steps = T != NEO__BAGS_ANY || !job.keep;
        const int single = AHEAD > 0 && steps ? count.single : 0;
        neo__bags_ahead<T, LANES, CHUNKS> next[ROOM] = {};
        const auto fetch = [&](int a, int r) {
            if (r >= single) return;
            next[a].fetch(lanes_of(r), list[r], T == NEO__BAGS_ANY);
        };
        NEO__UNROLL for (int a = 0; a < AHEAD; a++) fetch(a, group + a * groups);
        for (int first = group; first < single; first += ROOM * groups)
            NEO__UNROLL for (int a = 0; a < AHEAD; a++) {
            const int r = first + a * groups;
            if (r >= single) break;
            const lane row = lanes_of(r);
            typename lane::numbers g = {};
            row.whole([&](int i) {
                neo__floats<4> s = {};
                neo__cuda_plus<4>(s, list[r].weight,
                                  neo__bags_four<NEO_F32>(next[a].grad[i / 4], 0.0f, 0.0f));
                lane::put(g + i, s);
            });
            /* -0 is +0, as in a run's sum: a product may round to it, a number itself does not. */
            if (job.batch.weights) row.each([&](int i) { g[i] = g[i] + 0.0f; });
            neo__bags_step_at<T>(job, list[r], row, next[a], true, g,
                                 [&] { fetch(a, r + AHEAD * groups); });
        }
        for (int r = single + group; r < count.all; r += groups) {
            const neo__bags_row_at &p = list[r];
            const neo__job_table &t = job.fixed.tables[p.table];
            const lane row = lanes_of(r);
            typename lane::numbers g = {};
            if (steps) next[0].fetch(row, p, false); /* sums need the registers */
            const uint32_t end = neo__bags_end<K, LANES>(job, p.begin, p.end, row.mask);
            row.fours([&](int i, int64_t col) {
                lane::put(g + i, T == NEO__BAGS_ANY
                                     ? neo__bags_row_sum<K, 4>(job, t, p.begin, end, col)
                                     : neo__bags_merge<K, 4>(job, neo__bags_grads(job, t), p.begin,
                                                             end, col, {}));
            });
            if (steps) neo__bags_step_at<T>(job, p, row, next[0], false, g, [] {});
        }
        __syncwarp();
    }
}

/* ---- every other row: 16 lanes ---- */
/* The step of a row by its gradient g, which neo__job_scratch floats begin with. 16 lanes. */
static __device__ void neo__bags_step_row(const neo__bags_job &job, const neo__bags_run &run,
                                          float *g) {
    const neo__job_table &table = job.fixed.tables[run.table];
    const neo__job_rule &rule = job.told.rules[run.table];
    const unsigned mask = neo__mask_warp();
    const int64_t dim = table.store.dim, room = neo__bag_room(dim);
    const bool narrow = table.store.dtype != NEO_F32;
    float *spare = g + room, *word = NULL;
    float *w = narrow ? spare + room : (float *)(void *)table.store.data + run.row * dim;
    float *state[2];
    for (int k = 0; k < 2; k++)
        state[k] = table.state[k] ? table.state[k] + run.row * table.state_dim[k] : NULL;
    if (narrow) neo__rows_decode_warp(&table.store, run.row, 0, dim, w);
    if (narrow && !rule.nearest) {
        word = w + room;
        neo__rows_words_warp(&table.store, &run.row, 1, &rule.round, word);
    }
    __syncwarp(mask);
    neo__row_sums_warp sums = {NULL, 0, 0};
    if (table.cut) sums.cut = &job.cut.tables[run.table].cut, sums.row = job.cut.row[run.begin];
    neo__bag_step_row_warp(&rule.step, &sums, w, state[0], state[1], g, spare, dim);
    __syncwarp(mask);
    if (narrow) neo__rows_encode_warp(&table.store, run.row, w, word);
    __syncwarp(mask);
}
/* The scratch of vector `vector` of a block that has `vectors`. */
NEO__GPU float *neo__bags_step_room(const neo__bags_job &job, float *shared, int vectors,
                                    int vector) {
    if (!job.room.scratch) return shared + vector * job.room.scratch_floats;
    return job.room.scratch + (int64_t)(blockIdx.x * vectors + vector) * job.room.scratch_floats;
}
template <class K> NEO__BAGS_KERNEL neo__bags_step_kernel(const neo__bags_job j) {
    if (j.stop && *j.stop) return;
    NEO__DYNAMIC_SHARED(float, shared);
    __shared__ neo__bags_run lists[NEO__BAGS_WARPS][32];
    neo__bags_run *list = lists[threadIdx.x / 32];
    const int vectors = blockDim.x / 16, vector = threadIdx.x / 16;
    float *g = neo__bags_step_room(j, shared, vectors, vector);
    NEO__BAGS_WINDOWS(window, j) {
        const int count = neo__bags_window<K>(
            j, window, list,
            [&j](int table) {
                return neo__bags_fours(j, j.fixed.tables[table], j.told.rules[table]) == 0;
            },
            [](const neo__bags_run &run) { return run; }).all;
        for (int r = vector % 2; r < count; r += 2) {
            const neo__job_table &t = j.fixed.tables[list[r].table];
            const uint32_t end =
                neo__bags_end<K, 16>(j, list[r].begin, list[r].end, neo__mask_warp());
            for (int64_t col = threadIdx.x % 16; col < t.store.dim; col += 16) {
                const float sum = neo__bags_row_sum<K, 1>(j, t, list[r].begin, end, col).v[0];
                if (!j.keep) g[col] = sum;
            }
            __syncwarp(neo__mask_warp());
            if (!j.keep) neo__bags_step_row(j, list[r], g);
        }
        __syncwarp();
    }
}
/* ---- launches ---- */
/* Kernels of rows of 4, 8, ... lanes times fours; has: those of the tables, as bits. */
template <int N>
static neo_status neo__bags_run_fours(neo__cuda *d, const neo__bags_job *job, unsigned has,
                                      void (*const (&kernels)[N])(const neo__bags_job)) {
    for (int i = 0; i < N; i++)
        if (has & 4u << i)
            NEO__TRY(neo__cuda_run(d, "bags: update", kernels[i], (job->sorted.records + 31) / 32,
                                   32, *job));
    return NEO_OK;
}
/* (A lane with eight columns of a row halves what a row costs beside its columns; narrow ones, of
   which instructions are the bound, have sixteen.) */
template <class K, neo_dtype T>
static neo_status neo__bags_run_plain(neo__cuda *d, const neo__bags_job *job, unsigned has) {
    constexpr int CHUNKS = T == NEO_F32 ? 2 : 4;
    return neo__bags_run_fours(
        d, job, has,
        {neo__bags_update_kernel<K, T, 4, 1>, neo__bags_update_kernel<K, T, 4, 2>,
         neo__bags_update_kernel<K, T, 16 / CHUNKS, CHUNKS>,
         neo__bags_update_kernel<K, T, 32 / CHUNKS, CHUNKS>,
         neo__bags_update_kernel<K, T, 64 / CHUNKS, CHUNKS>});
}
/* A launch in which 16 threads step a row: of `rows` at a time in a block, or of as many as its
   shared memory has room for; `work` units in all, of which a block takes `each`. Where shared
   memory is too small there is scratch memory for NEO__JOB_VECTORS. */
static int64_t neo__bags_step_rows(const neo__bags_job *job) {
    const int64_t fit = 2 * NEO__JOB_SHARED_FLOATS / job->room.scratch_floats / 2 * 2;
    return job->room.scratch ? 2 : NEO__MIN(fit, (int64_t)NEO__HALVES);
}
static neo__cuda_where neo__bags_step_where(neo__cuda *d, const neo__bags_job *job, int64_t rows,
                                            unsigned threads, int64_t work, int64_t each) {
    const unsigned blocks = neo__cuda_blocks(d, work, each), most = NEO__JOB_VECTORS / 2;
    if (job->room.scratch) return {NEO__MIN(blocks, most), threads};
    return {blocks, threads, (size_t)(rows * job->room.scratch_floats) * sizeof(float)};
}
template <class K> static neo_status neo__bags_update_as(neo__cuda *gpu, const neo__bags_job *job) {
    neo__bags_job gated = *job;
    gated.stop = neo__graph_stop(gpu);
    gated.sorted.piece = gpu->exact ? UINT32_MAX : (uint32_t)NEO__JOB_LONG;
    const neo__bags_job *j = &gated;
    const int64_t records = j->sorted.records;
    const int64_t rows = neo__bags_step_rows(j);
    unsigned has[1 + NEO_DTYPE_COUNT] = {0}, others = 0; /* plain, of each dtype; by any rule */
    for (int i = 0; i < j->fixed.table_count; i++) {
        const neo__job_table &t = j->fixed.host_tables[i];
        const neo__job_rule &rule = j->told.host_rules[i];
        const int updater = neo__bags_updater(*j, t, rule);
        if (rule.round.seed) gated.sorted.seed = rule.round.seed; /* one for all that draw */
        has[updater / NEO__BAGS_UPDATER(1)] |= (unsigned)updater % NEO__BAGS_UPDATER(1);
        others |= updater == 0;
    }
    if (records > NEO__JOB_LONG && !j->add && j->sorted.max_parts) {
        NEO__TRY(neo__cuda_fill(gpu, j->sorted.parts, 0, 2 * sizeof *j->sorted.parts));
        NEO__TRY(neo__cuda_run(gpu, "bags: long runs", neo__bags_parts_kernel<K>, records, 1, *j));
        const int64_t parts = NEO__MIN(j->sorted.max_parts, records / NEO__JOB_PART);
        const int64_t most = 2 * gpu->processors; /* that fit: mostly there is nothing to do */
        const unsigned blocks = (unsigned)NEO__MIN(
            (int64_t)neo__cuda_blocks(gpu, parts, NEO__BAGS_LONG_THREADS / 32), most);
        NEO__TRY(neo__cuda_launch(gpu, "bags: sums of long runs", neo__bags_part_sums_kernel<K>,
                                  {blocks, NEO__BAGS_LONG_THREADS}, *j));
        if (!gpu->exact)
            NEO__TRY(neo__cuda_launch(gpu, "bags: trees of pieces", neo__bags_part_trees_kernel<K>,
                                      {blocks, NEO__BAGS_LONG_THREADS}, *j));
    }
    if (others)
        NEO__TRY(neo__cuda_launch(gpu, "bags: update", neo__bags_step_kernel<K>,
                                  neo__bags_step_where(gpu, j, rows, 16u * (unsigned)rows,
                                                       (records + 31) / 32, rows / 2), *j));
    NEO__TRY((neo__bags_run_plain<K, NEO_F32>(gpu, j, has[NEO_F32])));
    NEO__TRY((neo__bags_run_plain<K, NEO_F16>(gpu, j, has[NEO_F16])));
    NEO__TRY((neo__bags_run_plain<K, NEO_I8>(gpu, j, has[NEO_I8])));
    return neo__bags_run_fours(gpu, j, has[NEO__BAGS_ANY],
                               {neo__bags_update_kernel<K, NEO__BAGS_ANY, 4, 1>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 8, 1>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 16, 1>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 32, 1>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 32, 2>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 32, 4>,
                                neo__bags_update_kernel<K, NEO__BAGS_ANY, 32, 8>});
}
static neo_status neo__cuda_bags_update(neo__cuda *d, const neo__bags_job *job) {
    if (job->sorted.records == 0) return NEO_OK;
    return NEO__BAGS_KEYED(job, neo__bags_update_as)(d, job);
}
/* Keys of the rows that slots step: where these lie. */
NEO__EVERYWHERE NEO__INLINE const uint64_t *neo__bags_step_keys(const neo__bags_job *j) {
    return j->kept.line_key ? j->kept.line_key : j->kept.slot_key;
}
static neo_status neo__cuda_bags_step_kept(neo__cuda *d, const neo__bags_job *j) {
    NEO__TRY(neo__cuda_run(d, "bags: kept records",
                           NEO__BAGS_KEYED(j, neo__bags_row_records_kernel), j->sorted.records, 1,
                           *j, 1, (const int64_t *)neo__bags_step_keys(j), 0));
    return neo__cuda_bags_update(d, j);
}

/* The step of kept rows of tables that are cut, on copies of them: what it asks for is what counts.
   16 lanes a row. */
static __global__ void __launch_bounds__(32, 8) neo__bags_cut_kernel(const neo__bags_job job) {
    const int lane = threadIdx.x % 16, vector = (int)blockIdx.x * 2 + threadIdx.x / 16;
    const unsigned mask = neo__mask_warp();
    const int64_t room = neo__bag_room(job.fixed.max_dim);
    float *g = job.cut.scratch + 5 * room * vector, *spare = g + room;
    for (int64_t i = vector; i < job.kept.count; i += NEO__JOB_VECTORS) {
        const int64_t key = (int64_t)neo__bags_step_keys(&job)[i];
        const int table = neo__bags_table_of_key(job, key);
        const neo__job_table &t = job.fixed.tables[table];
        const int64_t row = key - t.first_key, dim = t.store.dim;
        float *copy[3] = {spare + room, NULL, NULL};
        if (job.cut.tables[table].cut.want == 0) continue;
        for (int64_t c = lane; c < dim; c += 16) {
            g[c] = job.kept.sums[i * job.fixed.max_dim + c];
            copy[0][c] = neo__bags_element(t.store, row, c);
        }
        for (int k = 0; k < 2; k++) {
            if (!t.state[k]) continue;
            copy[1 + k] = copy[k] ? copy[k] + room : spare + 2 * room;
            for (int64_t c = lane; c < t.state_dim[k]; c += 16)
                copy[1 + k][c] = t.state[k][row * t.state_dim[k] + c];
        }
        __syncwarp(mask);
        neo__row_sums_warp sums = {&job.cut.tables[table].cut, job.cut.row[i], 0};
        neo__bag_step_row_warp(&job.told.rules[table].step, &sums, copy[0], copy[1], copy[2], g,
                               spare, dim);
        __syncwarp(mask);
    }
}
/* How many kept rows each table has, and each row's number among them; the records are their keys,
   sorted. */
template <class K> NEO__CUDA_KERNEL neo__bags_cut_rows_kernel(const neo__bags_job job) {
    const K *keys = (const K *)job.sorted.keys[1];
    const neo__job_table *tables = job.fixed.tables;
    const int64_t records = job.sorted.records, count = job.fixed.table_count;
    const auto below = [keys, records](int64_t key) {
        return 1 + neo__cuda_last((int64_t)-1, records, key - 1,
                                  [keys](int64_t i) { return (int64_t)keys[i]; });
    };
    NEO__CUDA_EACH(t, count, 1)
        job.cut.tables[t].cut.rows =
            below(t + 1 < count ? tables[t + 1].first_key : job.fixed.key_count) -
            below(tables[t].first_key);
    NEO__CUDA_EACH(i, records, 1) {
        const neo__job_table &t = tables[neo__bags_table_of_key(job, (int64_t)keys[i])];
        job.cut.row[job.sorted.values[1][i]] = (uint32_t)(i - below(t.first_key));
    }
}
static neo_status neo__cuda_bags_cut_rows(neo__cuda *d, const neo__bags_job *job) {
    return neo__cuda_run(d, "bags: cut rows", NEO__BAGS_KEYED(job, neo__bags_cut_rows_kernel),
                         NEO__MAX(job->sorted.records, (int64_t)job->fixed.table_count), 1, *job);
}
NEO__CUDA_KERNEL neo__cut_add_kernel(float *total, const float *blocks, int64_t count,
                                     int64_t each, int first) {
    NEO__CUDA_EACH(i, count, 1) {
        float sum = first ? 0.0f : total[i];
        for (int64_t k = 0; k < each; k++) sum = __fadd_rn(sum, blocks[i * each + k]);
        total[i] = sum;
    }
}
static neo_status neo__cuda_cut_add(neo__cuda *d, float *total, const float *blocks, int64_t count,
                                    int64_t each, int first) {
    return neo__cuda_run(d, "bags: sums of cut rows", neo__cut_add_kernel, count, 1, total, blocks,
                         count, each, first);
}
static neo_status neo__cuda_bags_cut(neo__cuda *d, const neo__bags_job *job) {
    if (job->kept.count == 0) return NEO_OK;
    return neo__cuda_launch(d, "bags: sums of cut rows", neo__bags_cut_kernel,
                            {NEO__JOB_VECTORS / 2, 32}, *job);
}

/* ---- slots of kept rows ---- */
/* The record of kernels that do nothing behind an error. */
static neo__bags_job neo__bags_gated(const neo__cuda *d, const neo__bags_job *job) {
    neo__bags_job gated = *job;
    gated.stop = neo__graph_stop(d);
    return gated;
}
/* The place of a key in the hash table; if it is not there, the first free one of its chain. */
NEO__GPU uint64_t neo__bags_hash_find(const neo__bags_job &j, uint64_t key) {
    uint64_t i = neo__mix64(key * 0x9E3779B97F4A7C15u) & j.kept.hash_mask;
    while (j.kept.hash_key[i] && j.kept.hash_key[i] != key + 1) i = (i + 1) & j.kept.hash_mask;
    return i;
}
/* A key that is not there. Others may come in beside it. */
NEO__GPU void neo__bags_hash_add(const neo__bags_job &job, uint64_t key, uint32_t slot) {
    uint64_t i = neo__mix64(key * 0x9E3779B97F4A7C15u) & job.kept.hash_mask;
    unsigned long long *keys = (unsigned long long *)job.kept.hash_key;
    while (atomicCAS(&keys[i], 0ull, (unsigned long long)key + 1) != 0)
        i = (i + 1) & job.kept.hash_mask;
    job.kept.hash_slot[i] = slot;
}
template <class K>
NEO__CUDA_KERNEL neo__bags_find_slots_kernel(const neo__bags_job job, int by_value) {
    if (job.stop && *job.stop) return;
    NEO__CUDA_EACH(i, job.sorted.records, 1) {
        if (!neo__bags_starts<K>(job, i)) continue;
        const uint64_t at = neo__bags_hash_find(job, neo__bags_key<K>(job, i));
        const bool known = job.kept.hash_key[at] != 0;
        job.kept.keep_at[i] = known ? job.kept.hash_slot[at] << 1 : 1u;
        if (!known) job.kept.fresh[by_value ? job.sorted.values[1][i] : (uint32_t)i] = 1;
    }
}
template <class K>
NEO__CUDA_KERNEL neo__bags_give_slots_kernel(const neo__bags_job j, int by_value) {
    if (j.stop && *j.stop) return;
    NEO__CUDA_EACH(i, j.sorted.records, 1) {
        if (!neo__bags_starts<K>(j, i) || !(j.kept.keep_at[i] & 1u)) continue;
        const uint64_t key = neo__bags_key<K>(j, i);
        const uint32_t slot =
            (uint32_t)j.kept.counted[1] +
            j.kept.place[by_value ? j.sorted.values[1][i] : (uint32_t)i];
        j.kept.slot_key[slot] = key;
        j.kept.keep_at[i] = slot << 1 | 1u;
        neo__bags_hash_add(j, key, slot);
    }
}
NEO__CUDA_KERNEL neo__bags_hash_slots_kernel(const neo__bags_job job) {
    const int64_t counted = (int64_t)job.kept.counted[0];
    NEO__CUDA_EACH(i, job.kept.count < 0 ? counted : job.kept.count, 1) {
        if (i == 0 && job.kept.count >= 0) job.kept.counted[0] = (uint64_t)job.kept.count;
        neo__bags_hash_add(job, job.kept.slot_key[i], (uint32_t)i);
    }
}
/* The new slots count, if there is room for them. */
NEO__GPU void neo__bags_slots_stop(const neo__bags_job &job, int *stop) {
    uint64_t *counted = job.kept.counted;
    const bool stopped = stop && *stop;
    const uint64_t fresh = job.kept.place[job.sorted.records];
    counted[1] = counted[0];
    counted[2] = !stopped && counted[0] + fresh > (uint64_t)job.kept.max;
    if (counted[2] && stop) *stop = 1;
    if (!counted[2] && !stopped) counted[0] += fresh;
}
static neo_status neo__cuda_bags_find_slots(neo__cuda *gpu, const neo__bags_job *given,
                                            int by_value, int64_t *fresh,
                                            const neo__later *later) {
    const neo__bags_job gated = neo__bags_gated(gpu, given), *job = &gated;
    const size_t bytes = NEO__BAG_COUNTED * sizeof *job->kept.counted;
    uint64_t counted[NEO__BAG_COUNTED];
    *fresh = 0;
    if (job->sorted.records == 0) return NEO_OK;
    NEO__TRY(neo__cuda_fill(gpu, job->kept.fresh, 0,
                           (size_t)(job->sorted.records + 1) * sizeof *job->kept.fresh));
    NEO__TRY(neo__cuda_run(gpu, "bags: slots", NEO__BAGS_KEYED(job, neo__bags_find_slots_kernel),
                           job->sorted.records, 1, *job, by_value));
    const neo__cuda_scanning scan = {job->sorted.temp, job->sorted.temp_bytes, job->kept.fresh,
                                     job->kept.place, NULL, NULL, job->sorted.records + 1, 0, 0};
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_scan_now, &scan, sizeof scan));
    if (later)
        return neo__graph_later<neo__bags_slots_stop>(gpu, job->kept.counted, bytes, later,
                                                      "bags: count slots", gated);
    NEO__TRY(neo__graph_check<neo__bags_slots_stop>(gpu, {}, "bags: count slots", gated));
    NEO__TRY(neo__cuda_answer(gpu, job->kept.counted, bytes));
    memcpy(counted, gpu->answer, bytes);
    *fresh = counted[2] ? INT64_MAX : (int64_t)(counted[0] - counted[1]);
    return NEO_OK;
}
static neo_status neo__cuda_bags_give_slots(neo__cuda *d, const neo__bags_job *job, int by_value) {
    return neo__cuda_run(d, "bags: new slots", NEO__BAGS_KEYED(job, neo__bags_give_slots_kernel),
                         job->sorted.records, 1, neo__bags_gated(d, job), by_value);
}
/* The hash table with the keys of the first slot_count slots. */
static neo_status neo__cuda_bags_drop_slots(neo__cuda *d, const neo__bags_job *job) {
    if (job->kept.max == 0) return NEO_OK;
    NEO__TRY(neo__cuda_fill(d, job->kept.hash_key, 0,
                           (size_t)(job->kept.hash_mask + 1) * sizeof *job->kept.hash_key));
    if (job->kept.count == 0)
        return neo__cuda_fill(d, job->kept.counted, 0,
                              NEO__BAG_COUNTED * sizeof *job->kept.counted);
    const int64_t most = job->kept.count < 0 ? job->kept.max : job->kept.count;
    return neo__cuda_run(d, "bags: hash", neo__bags_hash_slots_kernel, most, 1, *job);
}

/* ---- dense gradients ---- */
/* The place of a row, in units of the floats between two. */
NEO__GPU uint32_t neo__bags_dense_at(const neo__bags_job &job, int64_t key, int64_t unit) {
    const neo__job_table &t = job.fixed.tables[neo__bags_table_of_key(job, key)];
    return (uint32_t)((t.first_float + (key - t.first_key) * t.store.dim) / unit);
}
template <class K>
NEO__CUDA_KERNEL neo__bags_dense_slots_kernel(const neo__bags_job job, unsigned char *marks) {
    NEO__CUDA_EACH(i, job.sorted.records, 1) {
        if (!neo__bags_starts<K>(job, i)) continue;
        const int64_t key = (int64_t)neo__bags_key<K>(job, i);
        job.kept.keep_at[i] = neo__bags_dense_at(job, key, job.kept.unit) << 1 | 1u;
        marks[key] = 1;
    }
}
template <class K>
NEO__CUDA_KERNEL neo__bags_dense_records_kernel(const neo__bags_job job,
                                                const unsigned char *marks) {
    NEO__CUDA_EACH(i, job.sorted.records, 1) {
        ((K *)job.sorted.keys[1])[i] = (K)(marks[i] ? i : job.fixed.key_count);
        job.sorted.values[1][i] = neo__bags_dense_at(job, i, job.sorted.grad_unit);
    }
}
static neo_status neo__cuda_bags_dense_slots(neo__cuda *d, const neo__bags_job *job,
                                             unsigned char *marks) {
    return neo__cuda_run(d, "bags: places", NEO__BAGS_KEYED(job, neo__bags_dense_slots_kernel),
                         job->sorted.records, 1, *job, marks);
}
static neo_status neo__cuda_bags_dense_records(neo__cuda *d, const neo__bags_job *job,
                                               const unsigned char *marks) {
    return neo__cuda_run(d, "bags: marked rows",
                         NEO__BAGS_KEYED(job, neo__bags_dense_records_kernel),
                         job->sorted.records, 1, *job, marks);
}

/* ---- squares of kept gradients; rows to and from f32: 16 lanes a row ---- */
NEO__BAGS_KERNEL neo__bags_squares_kernel(const neo__bags_job job, int64_t first, int64_t count,
                                          float *out, neo__cuda_word *all) {
    __shared__ neo__cuda_word block[NEO__CUDA_EXACT];
    if (job.stop && *job.stop) return;
    const int64_t blocks = neo__bag_blocks(job.fixed.max_dim);
    const int64_t there = all ? (int64_t)job.kept.counted[0] : count;
    const int lane = threadIdx.x % 16;
    if (all) neo__cuda_exact_begin(block);
    NEO__CUDA_EACH(i, NEO__MIN(count, there), 16) {
        const int table = neo__bags_table_of_key(job, (int64_t)job.kept.slot_key[first + i]);
        const int64_t dim = job.fixed.tables[table].store.dim;
        const float *g = job.kept.sums + (first + i) * job.fixed.max_dim;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t col = 16 * b + lane;
            const float sum = neo__tree16_warp(col < dim ? __fmul_rn(g[col], g[col]) : 0.0f);
            if (lane == 0 && all) neo__cuda_exact_add(block, sum);
            if (lane == 0 && !all) out[i * blocks + b] = sum;
        }
    }
    if (all) neo__cuda_exact_end(all, block);
}
static neo_status neo__cuda_bags_squares(neo__cuda *d, const neo__bags_job *j, int64_t first,
                                         int64_t count, float *out, uint64_t *sum) {
    const neo__bags_job job = sum ? neo__bags_gated(d, j) : *j;
    return neo__cuda_run(d, "bags: squares", neo__bags_squares_kernel, count, 16, job, first, count,
                         out, (neo__cuda_word *)sum);
}
/* Encoding fills a row up, so it works on a copy. */
NEO__CUDA_KERNEL neo__bags_rows_kernel(const neo__bags_job job, int table, int64_t first,
                                       int64_t count, float *rows, int write) {
    NEO__DYNAMIC_SHARED(float, shared);
    const neo__bag_rows &s = job.fixed.tables[table].store;
    const int vectors = blockDim.x / 16, vector = threadIdx.x / 16;
    float *w = neo__bags_step_room(job, shared, vectors, vector);
    const int64_t step = (int64_t)gridDim.x * vectors;
    for (int64_t i = (int64_t)blockIdx.x * vectors + vector; i < count; i += step) {
        float *row = rows + i * s.dim;
        if (!write) {
            neo__rows_decode_warp(&s, first + i, 0, s.dim, row);
            continue;
        }
        for (int64_t col = threadIdx.x % 16; col < s.dim; col += 16) w[col] = row[col];
        __syncwarp(neo__mask_warp());
        neo__rows_encode_warp(&s, first + i, w, NULL);
        __syncwarp(neo__mask_warp());
    }
}
static neo_status neo__cuda_bags_rows(neo__cuda *d, const neo__bags_job *job, int table,
                                      int64_t first, int64_t count, float *rows, int write) {
    if (count == 0) return NEO_OK;
    const int64_t vectors = neo__bags_step_rows(job);
    return neo__cuda_launch(d, "bags: rows", neo__bags_rows_kernel,
                            neo__bags_step_where(d, job, vectors, 16u * (unsigned)vectors, count,
                                                 vectors), *job, table, first, count, rows, write);
}
/* First values, or, of rows that are ~, zeros: 16 lanes a row. */
NEO__CUDA_KERNEL neo__bags_first_kernel(const neo__bags_job job, const int64_t *rows,
                                        const uint64_t *keys, int64_t count) {
    const int lane = threadIdx.x % 16;
    NEO__CUDA_EACH(i, count, 16) {
        const bool zeros = rows[i] < 0;
        const int64_t number = zeros ? ~rows[i] : rows[i];
        const int table = neo__bags_table_of_key(job, number);
        const neo__job_table &t = job.fixed.tables[table];
        const neo__bags_initial initial(t.store, job.fixed.keys[table], keys[i]);
        const int64_t row = number - t.first_key;
        char *to = t.store.data + row * t.store.row_bytes;
        for (int64_t col = lane; col < t.store.dim; col += 16) {
            const uint32_t code = zeros ? 0 : initial.code(col);
            if (t.store.dtype == NEO_F32) ((uint32_t *)(void *)to)[col] = code;
            else if (t.store.dtype == NEO_I8) ((uint8_t *)to)[col] = (uint8_t)code;
            else ((uint16_t *)(void *)to)[col] = (uint16_t)code;
        }
        if (t.store.scale && lane < 2)
            t.store.scale[2 * row + lane] = zeros ? 0.0f : initial.scale[lane];
        for (int k = 0; k < 2; k++)
            for (int64_t col = lane; col < t.state_dim[k]; col += 16)
                t.state[k][row * t.state_dim[k] + col] = initial.keys.state[k];
    }
}
static neo_status neo__cuda_bags_first(neo__cuda *d, const neo__bags_job *job, const int64_t *rows,
                                       const uint64_t *keys, int64_t count) {
    return neo__cuda_run(d, "bags: first rows", neo__bags_first_kernel, count, 16, *job, rows, keys,
                         count);
}
/* Rows between lines and slots: 16 lanes a row, by words of 16 bytes if a part has some, else of 4,
   else of 1. */
template <class T>
NEO__GPU void neo__bags_move_part(char *to, const char *from, int64_t bytes) {
    for (int64_t i = threadIdx.x % 16; i < bytes / (int64_t)sizeof(T); i += 16)
        ((T *)(void *)to)[i] = ((const T *)(const void *)from)[i];
}
NEO__CUDA_KERNEL neo__bags_lines_kernel(const neo__bags_job j, const neo__job_line *lines,
                                        int64_t count, char *slots, int64_t room, int write) {
    NEO__CUDA_EACH(i, count, 16) {
        const neo__job_line line = lines[i];
        char *at = slots + i * room;
        if (line.line < 0) continue;
        const neo__job_table &t = j.fixed.tables[line.table];
        for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
            const int64_t part = neo__bag_part(&t, k);
            char *there = neo__bag_memory(&t, k) + line.line * part;
            char *to = write ? there : at, *from = write ? at : there;
            if (part % 16 == 0) neo__bags_move_part<uint4>(to, from, part);
            else if (part % 4 == 0) neo__bags_move_part<uint32_t>(to, from, part);
            else neo__bags_move_part<char>(to, from, part);
            at += neo__bag_part_room(part);
        }
        if (write && threadIdx.x % 16 == 0)
            const_cast<uint64_t *>(t.store.line_row)[line.line] = (uint64_t)line.row;
    }
}
static neo_status neo__cuda_bags_lines(neo__cuda *d, const neo__bags_job *job,
                                       const neo__job_line *lines, int64_t count, char *slots,
                                       int64_t room, int write) {
    return neo__cuda_run(d, "bags: lines", neo__bags_lines_kernel, count, 16, *job, lines, count,
                         slots, room, write);
}

/* ---- >>cuda-ids ----
   Ids on their way between ranks (neo__split_call, neo__join_call of neo.h). Split: the look of
   >>cuda-bags finds what is bad with the batch; a stable sort by the part brings the ids of a part
   together, and integer atomics count lengths. Join: lengths in their new order, a scan of them,
   and each id finds its bag by bisection.

   Of a batch with an inverse the split has the ids of each bag once. A sample that is the first to
   read its bag gets the bag's length, any other ~ the bag's number among its feature's; samples
   must read bags in order. counts are then [2 parts + T]: ids of each part; of each feature, and of
   each part again, as if the batch were written out. The join takes such lengths apart where it is
   given to_inverse: a run has `bags` bags, which `listed` samples read; the numbers of theirs,
   counted from the first bag of the run's feature, go to to_inverse from `step` on. */
/* Memory of a split, on the device. */
typedef struct neo__ids_work {
    int64_t *rows, *first_part, *part_row, *counts;
    uint32_t *keys, *sorted_keys, *values, *sorted_values; /* the part; the place in the batch */
    int32_t *lengths; /* of bags */
    /* With an inverse (or NULL): feature_bags, and of each bag the first sample that reads it. */
    int64_t *bags;
    uint32_t *first;
    const int32_t *inverse;
    int64_t parts, batch;
    int features;
} neo__ids_work;
static int64_t neo__ids_counts(const neo__ids_work *work) {
    return (work->inverse ? 2 : 1) * work->parts + work->features;
}
static void neo__ids_layout(const neo__split_call *call, neo__carve *carve, neo__ids_work *work,
                            neo__bags_job *job) {
    const int features = work->features = call->batch->feature_count;
    neo__job_table *tables;
    const int64_t parts = work->parts = call->first_part[features];
    work->batch = call->batch->batch;
    work->lengths = call->lengths, work->inverse = call->batch->inverse;
    if (work->inverse) {
        NEO__CARVE(carve, work->lengths, parts * work->batch);
        NEO__CARVE(carve, work->bags, features + 1);
        NEO__CARVE(carve, work->first, features * work->batch); /* no more bags than samples */
    }
    NEO__CARVE(carve, work->rows, features);
    NEO__CARVE(carve, work->first_part, features + 1);
    NEO__CARVE(carve, work->part_row, parts);
    NEO__CARVE(carve, job->told.features, features + 1);
    NEO__CARVE(carve, tables, features);
    NEO__CARVE(carve, job->batch.found, 1);
    NEO__CARVE(carve, work->counts, neo__ids_counts(work));
    uint32_t **const records[] = {&work->keys, &work->sorted_keys, &work->values,
                                  &work->sorted_values};
    for (uint32_t **record : records) NEO__CARVE(carve, *record, call->max_ids);
    job->fixed.tables = tables, job->fixed.feature_count = features;
    job->fixed.bounds = call->bounds, job->fixed.max_ids = call->max_ids;
    job->batch.offsets = call->batch->offsets, job->batch.ids = call->batch->ids;
    job->batch.weights = call->batch->weights, job->batch.is_i32 = call->batch->id_dtype == NEO_I32;
    job->batch.inverse = work->inverse, job->batch.samples = work->batch;
    job->batch.bags = neo_jagged_bag_count(call->batch);
}
/* The feature of a bag, and its first one. */
NEO__GPU int neo__ids_feature(const neo__ids_work &w, int64_t bag, int64_t *first) {
    const int64_t *bags = w.bags;
    const int f = bags ? neo__cuda_last(0, w.features, bag, [bags](int i) { return bags[i]; })
                       : (int)(bag / w.batch);
    *first = bags ? bags[f] : f * w.batch;
    return f;
}
/* Features as the look wants them: a table for each. */
NEO__CUDA_KERNEL neo__ids_features_kernel(const neo__bags_job job, const neo__ids_work w) {
    NEO__CUDA_EACH(f, w.features + 1, 1) {
        neo__job_feature feature = {};
        feature.table = f, feature.first_bag = w.bags ? w.bags[f] : f * w.batch;
        feature.bags = f == w.features ? 0 : w.bags ? w.bags[f + 1] - w.bags[f] : w.batch;
        job.told.features[f] = feature;
        if (f < w.features) ((neo__job_table *)job.fixed.tables)[f].rows = w.rows[f];
    }
}
NEO__CUDA_KERNEL neo__ids_point_kernel(const neo__bags_job job) {
    NEO__CUDA_EACH(i, 1, 1) neo__bags_point(&job, job.batch.found);
}
/* Records of all max_ids; those of no id, and all of a bad batch, are of no part. */
NEO__CUDA_KERNEL neo__ids_parts_kernel(const neo__bags_job job, const neo__ids_work w) {
    const bool bad = neo__bags_refused(job);
    const int64_t first = job.batch.offsets[0];
    const int64_t n = bad ? 0 : job.batch.offsets[job.batch.bags] - first;
    NEO__CUDA_EACH(i, job.fixed.max_ids - n, 1)
        w.keys[n + i] = (uint32_t)w.parts, w.values[n + i] = UINT32_MAX;
    if (bad) return;
    neo__bags_each_id(job, [&](int64_t k, int64_t bag) {
        int64_t of;
        const int64_t f = neo__ids_feature(w, bag, &of);
        const int64_t row = neo__bags_row(job, w.rows[f], k), *at = w.part_row;
        const int64_t begin = w.first_part[f], end = w.first_part[f + 1];
        int64_t part = w.parts;
        if (row >= 0 && begin < end) {
            part = neo__cuda_last(begin, end, row, [at](int64_t i) { return at[i]; });
            atomicAdd(&w.lengths[part * w.batch + bag - of], 1);
        }
        w.keys[k - first] = (uint32_t)part, w.values[k - first] = (uint32_t)(k - first);
    });
}
/* How many of n sorted keys are below x. */
NEO__GPU int64_t neo__ids_below(const uint32_t *keys, int64_t n, int64_t x) {
    return 1 + neo__cuda_last((int64_t)-1, n, x - 1,
                              [keys](int64_t i) { return (int64_t)keys[i]; });
}
NEO__CUDA_KERNEL neo__ids_counts_kernel(const neo__bags_job job, const neo__ids_work w) {
    const int64_t n = job.fixed.max_ids;
    NEO__CUDA_EACH(i, w.parts, 1)
        w.counts[i] = neo__ids_below(w.sorted_keys, n, i + 1) - neo__ids_below(w.sorted_keys, n, i);
    NEO__CUDA_EACH(f, w.inverse ? 0 : w.features, 1) {
        const int64_t *offsets = job.batch.offsets + f * w.batch;
        w.counts[w.parts + f] = offsets[w.batch] - offsets[0];
    }
}
/* ---- of a batch with an inverse ---- */
NEO__CUDA_KERNEL neo__ids_first_kernel(const neo__bags_job job, const neo__ids_work w) {
    NEO__CUDA_EACH(i, w.features * w.batch, 1) {
        const int64_t f = i / w.batch, bag = w.inverse[i];
        if ((uint64_t)bag < (uint64_t)(w.bags[f + 1] - w.bags[f]))
            atomicMin(&w.first[w.bags[f] + bag], (uint32_t)(i % w.batch));
        else atomicMax(&job.batch.found->bag, ~(unsigned long long)(job.batch.bags + i));
    }
}
/* Bags are read, and in order. */
NEO__CUDA_KERNEL neo__ids_order_kernel(const neo__bags_job job, const neo__ids_work w) {
    NEO__CUDA_EACH(bag, job.batch.bags, 1) {
        int64_t first;
        const int f = neo__ids_feature(w, bag, &first);
        const int64_t at = w.first[bag], before = bag > first ? (int64_t)w.first[bag - 1] : -1;
        const int64_t sample = NEO__MIN(at, w.batch - 1);
        if (at == UINT32_MAX || at <= before || (bag == first && at != 0))
            atomicMax(&job.batch.found->bag,
                      ~(unsigned long long)(job.batch.bags + f * w.batch + sample));
    }
}
/* Lengths of samples. */
NEO__CUDA_KERNEL neo__ids_spread_kernel(const neo__bags_job job, const neo__ids_work w,
                                        int32_t *to) {
    const int64_t *first_part = w.first_part;
    if (neo__bags_refused(job)) return;
    NEO__CUDA_EACH(i, w.parts * w.batch, 1) {
        const int64_t part = i / w.batch, sample = i % w.batch;
        const int f = neo__cuda_last(0, w.features, part, [=](int k) { return first_part[k]; });
        const int32_t bag = w.inverse[f * w.batch + sample];
        to[i] = w.first[w.bags[f] + bag] == (uint32_t)sample ? w.lengths[part * w.batch + bag]
                                                             : ~bag;
    }
}
/* Counts of features, and of parts, of all samples' bags: a warp each. */
NEO__CUDA_KERNEL neo__ids_full_kernel(const neo__bags_job job, const neo__ids_work w) {
    const int64_t *first_part = w.first_part;
    if (neo__bags_refused(job)) return;
    NEO__CUDA_EACH(i, w.features + w.parts, 32) {
        const int64_t part = i - w.features;
        const int f = part < 0 ? (int)i
                               : neo__cuda_last(0, w.features, part,
                                                [=](int k) { return first_part[k]; });
        unsigned long long sum = 0;
        for (int64_t s = threadIdx.x % 32; s < w.batch; s += 32) {
            const int64_t bag = w.inverse[f * w.batch + s];
            const int64_t *offsets = job.batch.offsets + w.bags[f] + bag;
            sum += (unsigned long long)(part < 0 ? offsets[1] - offsets[0]
                                                 : w.lengths[part * w.batch + bag]);
        }
        if (sum) atomicAdd((unsigned long long *)&w.counts[w.parts + i], sum);
    }
}
static neo_status neo__ids_look_inverse(neo__cuda *gpu, const neo__bags_job &job,
                                        const neo__ids_work &work) {
    NEO__TRY(neo__cuda_fill(gpu, work.first, 0xFF, (size_t)job.batch.bags * sizeof *work.first));
    NEO__TRY(neo__cuda_run(gpu, "ids: first samples", neo__ids_first_kernel,
                           work.features * work.batch, 1, job, work));
    return neo__cuda_run(gpu, "ids: first samples", neo__ids_order_kernel, job.batch.bags, 1, job,
                         work);
}
/* Behind the counts of parts. */
static neo_status neo__ids_spread(neo__cuda *gpu, const neo__bags_job &job,
                                  const neo__ids_work &work, int32_t *lengths) {
    NEO__TRY(neo__cuda_fill(gpu, work.counts + work.parts, 0,
                            (size_t)(work.features + work.parts) * sizeof *work.counts));
    NEO__TRY(neo__cuda_run(gpu, "ids: lengths of samples", neo__ids_spread_kernel,
                           work.parts * work.batch, 1, job, work, lengths));
    return neo__cuda_run(gpu, "ids: counts", neo__ids_full_kernel, work.features + work.parts, 32,
                         job, work);
}
NEO__CUDA_KERNEL neo__ids_put_kernel(const neo__bags_job job, const neo__ids_work w, int to_i32,
                                     void *ids, float *weights, int32_t *places) {
    const int64_t *first = w.first_part, base = job.batch.offsets[0];
    NEO__CUDA_EACH(i, job.fixed.max_ids, 1) {
        const int64_t part = w.sorted_keys[i], k = base + w.sorted_values[i];
        if (places && w.sorted_values[i] != UINT32_MAX)
            places[w.sorted_values[i]] = part == w.parts ? -1 : (int32_t)i;
        if (part == w.parts) continue; /* so are all behind it */
        const int f = neo__cuda_last(0, w.features, part, [first](int at) { return first[at]; });
        const int64_t row = neo__bags_row(job, w.rows[f], k) - w.part_row[part];
        if (to_i32) ((int32_t *)ids)[i] = (int32_t)row;
        else ((int64_t *)ids)[i] = row;
        if (weights) weights[i] = job.batch.weights ? job.batch.weights[k] : 1.0f;
    }
}
/* The host's arrays to the device, and the look. */
static neo_status neo__ids_look(neo__cuda *gpu, const neo__split_call *call,
                                const neo__bags_job &job, const neo__ids_work &work) {
    const int64_t units = NEO__MAX(call->max_ids, job.batch.bags);
    const size_t each = sizeof(int64_t), features = (size_t)work.features;
    NEO__ZERO(neo__graph_answer, nobody);
    NEO__TRY(neo__cuda_copy(gpu, work.rows, NEO_DEVICE, call->rows, NEO_HOST, features * each));
    NEO__TRY(neo__cuda_copy(gpu, work.first_part, NEO_DEVICE, call->first_part, NEO_HOST,
                            (features + 1) * each));
    NEO__TRY(neo__cuda_copy(gpu, work.part_row, NEO_DEVICE, call->part_row, NEO_HOST,
                            (size_t)work.parts * each));
    if (work.bags)
        NEO__TRY(neo__cuda_copy(gpu, work.bags, NEO_DEVICE, call->batch->feature_bags, NEO_HOST,
                                (features + 1) * each));
    NEO__TRY(neo__cuda_run(gpu, "ids: features", neo__ids_features_kernel, work.features + 1, 1,
                           job, work));
    NEO__TRY(neo__cuda_fill(gpu, job.batch.found, 0, sizeof *job.batch.found));
    if (work.inverse) NEO__TRY(neo__ids_look_inverse(gpu, job, work));
    NEO__TRY(neo__cuda_launch(gpu, "ids: check", neo__bags_check_kernel,
                              {neo__cuda_blocks(gpu, units, NEO__BAGS_TILE)}, job, nobody));
    return neo__cuda_run(gpu, "ids: check", neo__ids_point_kernel, 1, 1, job);
}
/* Findings of the look, and the counts, which are 0 of a bad batch. */
static neo_status neo__ids_answer(neo__cuda *gpu, const neo__split_call *call,
                                  const neo__bags_job &job, const neo__ids_work &work) {
    neo__split_found *found = call->found;
    neo__bags_found is;
    const size_t bytes = (size_t)neo__ids_counts(&work) * sizeof *work.counts;
    const size_t at = (size_t)((char *)work.counts - (char *)job.batch.found); /* behind it */
    const size_t first = NEO__MIN(bytes, NEO__CUDA_ANSWER_BYTES - at);
    NEO__TRY(neo__cuda_answer(gpu, job.batch.found, at + first));
    memcpy(&is, gpu->answer, sizeof is);
    memcpy(call->counts, gpu->answer + at, first);
    if (bytes > first)
        NEO__TRY(neo__cuda_copy(gpu, (char *)call->counts + first, NEO_HOST,
                                (const char *)work.counts + first, NEO_DEVICE, bytes - first));
    found->first = is.first, found->ids = is.last - is.first, found->outside = (int64_t)is.count;
    found->at = is.at, found->begin = is.begin, found->what = is.what;
    found->feature = is.feature, found->sample = is.sample;
    if (is.bag && is.at >= job.batch.bags)
        return neo_fail(NEO_ERR_FORMAT,
                        "neo_shard: inverse of feature %d, sample %d is %d: samples must read all "
                        "bags, in order",
                        (int)is.feature, (int)is.sample, (int)is.what);
    if (is.bag) found->bag = (int64_t)~is.bag, found->outside = 0;
    else if (is.id && call->bounds == NEO_BOUNDS_ERROR) found->id = (int64_t)~is.id;
    if (found->bag >= 0 || found->id >= 0 || is.first < 0 || found->ids > call->max_ids)
        memset(call->counts, 0, bytes);
    return NEO_OK;
}
static neo_status neo__cuda_ids_split(neo__cuda *gpu, const neo__split_call *call) {
    NEO__ZERO(neo__ids_work, w);
    NEO__ZERO(neo__bags_job, job);
    NEO__ZERO(neo__cuda_sorting<uint32_t>, s);
    NEO__ZERO(neo__split_found, none);
    neo__carve carve = {NULL, 0};
    none.bag = none.id = -1;
    *call->found = none;
    neo__ids_layout(call, &carve, &w, &job);
    memset(call->counts, 0, (size_t)neo__ids_counts(&w) * sizeof *call->counts);
    for (int f = 0; f < w.features && w.inverse; f++) {
        const int64_t *at = call->batch->feature_bags + f, bags = at[1] - at[0];
        NEO__CHECK(bags <= w.batch && (bags > 0 || w.batch == 0), NEO_ERR_FORMAT,
                   "neo_shard: feature %d has %lld bags for %lld samples", f, (long long)bags,
                   (long long)w.batch);
    }
    if (job.batch.bags == 0) return NEO_OK;
    s.count = call->max_ids, s.last = NEO__MAX(neo__cuda_bits(w.parts), 1);
    NEO__CUDA_TRY(gpu, neo__cuda_sort(s, &s.bytes, gpu->stream));
    const size_t temp = neo__cuda_up(carve.at, 256);
    NEO__TRY(neo__cuda_reserve(gpu, temp + s.bytes));
    carve.block = gpu->work, carve.at = 0;
    neo__ids_layout(call, &carve, &w, &job);
    NEO__TRY(neo__ids_look(gpu, call, job, w));
    NEO__TRY(neo__cuda_fill(gpu, w.lengths, 0, (size_t)(w.parts * w.batch) * sizeof *w.lengths));
    if (call->max_ids > 0) {
        s.temp = gpu->work + temp;
        s.keys = w.keys, s.sorted_keys = w.sorted_keys;
        s.values = w.values, s.sorted_values = w.sorted_values;
        NEO__TRY(neo__cuda_launch(gpu, "ids: parts", neo__ids_parts_kernel,
                                  {neo__cuda_blocks(gpu, call->max_ids, NEO__BAGS_TILE)}, job, w));
        NEO__TRY(neo__cuda_do(gpu, neo__cuda_sort_now<uint32_t>, &s, sizeof s));
        NEO__TRY(neo__cuda_run(gpu, "ids: put", neo__ids_put_kernel, call->max_ids, 1, job, w,
                               (int)(call->id_dtype == NEO_I32), call->ids, call->weights,
                               call->places));
    }
    NEO__TRY(neo__cuda_run(gpu, "ids: counts", neo__ids_counts_kernel, w.parts + w.features, 1, job,
                           w));
    if (w.inverse) NEO__TRY(neo__ids_spread(gpu, job, w, call->lengths));
    return neo__ids_answer(gpu, call, job, w);
}

/* A bag of the new order: whose it is, and its number there. */
typedef struct neo__join_bag {
    const neo__ids_run *run;
    const neo__ids_source *source;
    int64_t listed, from;
} neo__join_bag;
NEO__GPU neo__join_bag neo__join_bag_of(const neo__join_call &call, int64_t bag) {
    const neo__ids_run *run = call.run;
    run += neo__cuda_last((int64_t)0, call.runs, bag, [run](int64_t i) { return run[i].to; });
    const int64_t listed = call.list ? call.list[run->from_id + bag - run->to] : 0;
    const int64_t at = call.list ? listed : (bag - run->to) * run->step;
    return {run, call.source + run->source, listed, run->from + at};
}
/* The beginning of a bag, 0 with lengths, and its length; of one that is bad what it is. */
NEO__GPU int neo__join_look(const neo__join_call &call, const neo__join_bag &bag, int64_t *begin,
                            int64_t *length) {
    const neo__ids_source *source = bag.source;
    *begin = *length = 0;
    if (call.list && (uint64_t)bag.listed >= (uint64_t)bag.run->listed) return NEO__JOIN_LIST;
    if (source->offsets) {
        *begin = source->offsets[bag.from];
        *length = source->offsets[bag.from + 1] - *begin;
        return *begin < 0 || *length < 0 ? (int)NEO__JOIN_OFFSETS : -1;
    }
    *length = neo__jagged_id(source->lengths, source->length_dtype == NEO_I32, bag.from);
    return *length < 0 ? (int)NEO__JOIN_LENGTH : -1;
}
/* Lengths for a scan: of a bad bag 0, and where there are too many ids at least one too many. */
NEO__CUDA_KERNEL neo__ids_lengths_kernel(const neo__join_call call, uint32_t *scanned,
                                         neo__join_found *found) {
    NEO__CUDA_EACH(i, call.bags + 1, 1) {
        int64_t begin, length = 0;
        if (i < call.bags) {
            const int bad = neo__join_look(call, neo__join_bag_of(call, i), &begin, &length);
            if (found && bad >= 0) atomicMax(&found->bag, ~(unsigned long long)i);
            if (found) length = bad >= 0 ? 0 : NEO__MIN(length, (int64_t)INT32_MAX);
            if (call.to_lengths) call.to_lengths[i] = (int32_t)length;
        }
        scanned[i] = (uint32_t)NEO__MAX(length, (int64_t)0); /* ~: of another sample's bag */
    }
}
/* Sums that decrease have gone over 2^32, since no length is above 2^31. */
NEO__CUDA_KERNEL neo__ids_offsets_kernel(const uint32_t *scanned, int64_t count, int64_t *to,
                                         neo__join_found *found, unsigned long long *over) {
    NEO__CUDA_EACH(i, count, 1) {
        to[i] = scanned[i];
        if (!found) continue;
        if (i == count - 1) found->ids = scanned[i];
        if (i > 0 && scanned[i] < scanned[i - 1]) atomicMax(over, 1ull);
    }
}
/* Nothing is to be written. */
NEO__GPU bool neo__join_refused(const neo__join_call &call, const neo__join_found *found,
                                const unsigned long long *over) {
    return found && (found->bag || found->id || *over || found->ids > call.max_ids);
}
/* each(k, bag, from) for every place k of the new order, of a bag there, from its source. */
template <class Each>
static __device__ void neo__join_each(const neo__join_call &call, const neo__bags_job &job,
                                      Each each) {
    const int64_t *offsets = job.batch.offsets;
    neo__bags_each_id(job, [&](int64_t k, int64_t at) {
        const int64_t inside = k - offsets[at];
        const neo__join_bag bag = neo__join_bag_of(call, at);
        each(k, bag, bag.source->offsets ? bag.source->offsets[bag.from] + inside
                                         : bag.run->from_id + k - offsets[bag.run->to]);
    });
}
NEO__GPU bool neo__join_fits(const neo__ids_source *source, int64_t from) {
    const int64_t id = neo__jagged_id(source->ids, source->id_dtype == NEO_I32, from);
    return id >= INT32_MIN && id <= INT32_MAX;
}
NEO__CUDA_KERNEL neo__ids_fit_kernel(const neo__join_call call, const neo__bags_job job,
                                     neo__join_found *found, const unsigned long long *over) {
    if (found->bag || *over) return; /* ids end somewhere else */
    neo__join_each(call, job, [&](int64_t k, const neo__join_bag &bag, int64_t from) {
        if (!neo__join_fits(bag.source, from)) atomicMax(&found->id, ~(unsigned long long)k);
    });
}
/* Name what was found. */
NEO__GPU void neo__join_stop(const neo__join_call &call, const neo__bags_job &job,
                             neo__join_found *found, const unsigned long long *over, int *stop) {
    const int64_t *offsets = job.batch.offsets, k = (int64_t)~found->id;
    if (stop && neo__join_refused(call, found, over)) *stop = 1;
    if (*over) found->ids = -1;
    if (!found->bag && (!found->id || *over)) return;
    const int64_t at = found->bag ? (int64_t)~found->bag
                                  : neo__cuda_last((int64_t)0, call.bags, k,
                                                   [=](int64_t i) { return offsets[i]; });
    const neo__join_bag bag = neo__join_bag_of(call, at);
    const int64_t batch = call.list ? call.samples : bag.source->batch;
    int64_t begin, length;
    found->is = neo__join_look(call, bag, &begin, &length);
    found->feature = bag.run->feature, found->sample = bag.from - bag.run->from;
    if (batch > 0) {
        const int64_t number = call.list ? at : bag.from;
        found->feature = number / batch, found->sample = number % batch;
    }
    found->at = bag.from, found->here = begin, found->next = begin + length;
    if (found->is == NEO__JOIN_LENGTH) found->here = length;
    if (found->is == NEO__JOIN_LIST) found->here = bag.listed, found->next = bag.run->listed;
    if (found->bag) return;
    const neo__ids_source *source = bag.source;
    found->at = source->offsets ? begin + k - offsets[at]
                                : bag.run->from_id + k - offsets[bag.run->to];
    found->next = neo__jagged_id(source->ids, source->id_dtype == NEO_I32, found->at);
}
NEO__CUDA_KERNEL neo__ids_join_kernel(const neo__join_call call, const neo__bags_job job,
                                      const neo__join_found *found,
                                      const unsigned long long *over) {
    const int64_t *offsets = job.batch.offsets;
    if (offsets[call.bags] > call.max_ids || neo__join_refused(call, found, over)) return;
    if (call.to_offsets != offsets && call.to_offsets)
        NEO__CUDA_EACH(i, call.bags + 1, 1) call.to_offsets[i] = offsets[i];
    neo__join_each(call, job, [&](int64_t k, const neo__join_bag &bag, int64_t from) {
        const neo__ids_source *source = bag.source;
        const int64_t id = neo__jagged_id(source->ids, source->id_dtype == NEO_I32, from);
        if (call.id_dtype == NEO_I32) ((int32_t *)call.to_ids)[k] = (int32_t)id;
        else ((int64_t *)call.to_ids)[k] = id;
        if (call.to_weights) call.to_weights[k] = source->weights ? source->weights[from] : 1.0f;
    });
}
/* Memory of a join, on the device. */
typedef struct neo__join_work {
    neo__ids_run *run;
    neo__ids_source *source;
    int64_t *offsets;
    neo__join_found *found;
    unsigned long long *over; /* behind it */
    int32_t *lengths; /* of bags, with to_inverse */
    int64_t room;     /* for so many bags: of all samples, with to_inverse */
    neo__cuda_scanning scan;
} neo__join_work;
static void neo__join_layout(const neo__join_call *call, neo__carve *carve, neo__join_work *work) {
    NEO__CARVE(carve, work->run, call->runs);
    NEO__CARVE(carve, work->source, call->sources);
    NEO__CARVE(carve, work->scan.keys, work->room + 1);
    NEO__CARVE(carve, work->scan.sorted_keys, work->room + 1);
    NEO__CARVE(carve, work->offsets, work->room + 1);
    NEO__CARVE(carve, work->found, 1);
    NEO__CARVE(carve, work->over, 1);
    NEO__CARVE(carve, work->lengths, call->to_inverse ? work->room : 0);
    neo__carve_next(carve, &work->scan.temp, 1, work->scan.bytes);
}
/* Look whether ids fit, and have the caller hear of it all. */
static neo_status neo__join_ask(neo__cuda *gpu, const neo__join_call &call,
                                const neo__join_call *given, const neo__bags_job &job,
                                const neo__join_work &work) {
    int narrows = 0;
    for (int64_t i = 0; i < given->sources && call.id_dtype == NEO_I32; i++)
        if (given->source[i].id_dtype == NEO_I64) narrows = 1;
    if (narrows && call.max_ids > 0)
        NEO__TRY(neo__cuda_launch(gpu, "ids: fit", neo__ids_fit_kernel,
                                  {neo__cuda_blocks(gpu, call.max_ids, NEO__BAGS_TILE)}, call, job,
                                  work.found, work.over));
    const unsigned long long *over = work.over;
    if (gpu->recording)
        return neo__graph_later<neo__join_stop>(gpu, work.found, sizeof *work.found, given->later,
                                                "ids: look", call, job, work.found, over);
    NEO__TRY(neo__graph_check<neo__join_stop>(gpu, {}, "ids: look", call, job, work.found, over));
    NEO__TRY(neo__cuda_answer(gpu, work.found, sizeof *work.found));
    return neo__later_now(given->later, gpu->answer);
}
/* Lengths of samples become those of bags, and a run one of these: a warp each. Of other runs it
   reads what no warp writes. */
NEO__CUDA_KERNEL neo__ids_unfold_kernel(neo__ids_run *run, int64_t runs, const int32_t *from,
                                        int32_t *lengths, int32_t *inverse) {
    const int lane = threadIdx.x % 32;
    const unsigned whole = 0xFFFFFFFFu;
    NEO__CUDA_EACH(i, runs, 32) {
        const int64_t first = run[i].to, samples = run[i].listed, begin = run[i].from;
        const int64_t place = run[i].step;
        int64_t of = i, next = first;
        while (of > 0 && run[of - 1].feature == run[i].feature) of--;
        const int64_t base = run[of].to;
        __syncwarp(whole);
        if (lane == 0) run[i].from = first, run[i].step = 1;
        for (int64_t s = lane; s - lane < samples; s += 32) {
            const int32_t length = s < samples ? from[begin + s] : -1;
            const unsigned all = __ballot_sync(whole, length >= 0);
            const int64_t bag = length >= 0 ? next + __popc(all & ((1u << lane) - 1u))
                                            : first + ~length;
            if (length >= 0) lengths[bag] = length;
            if (s < samples) inverse[place + s] = (int32_t)(bag - base);
            next += __popc(all);
        }
    }
}
static neo_status neo__cuda_ids_join(neo__cuda *gpu, const neo__join_call *given) {
    neo__join_call call = *given;
    neo__ids_source unfolded;
    NEO__ZERO(neo__bags_job, job);
    NEO__ZERO(neo__join_work, w);
    neo__carve carve = {NULL, 0};
    const int64_t count = call.bags + 1;
    const int looks = call.later != NULL;
    call.later = NULL; /* as kernels get it: without places on the host */
    if (call.bags == 0)
        return call.to_offsets ? neo__cuda_fill(gpu, call.to_offsets, 0, sizeof(int64_t)) : NEO_OK;
    const neo__ids_run *last = given->run + given->runs - 1;
    w.scan.count = count;
    w.room = call.to_inverse ? NEO__MAX(last->step + last->listed, call.bags) : call.bags;
    NEO__CUDA_TRY(gpu, cub::DeviceScan::ExclusiveSum(NULL, w.scan.bytes, (uint32_t *)NULL,
                                                     (uint32_t *)NULL, (uint32_t)(w.room + 1),
                                                     gpu->stream));
    neo__join_layout(&call, &carve, &w);
    NEO__TRY(neo__cuda_reserve(gpu, carve.at));
    carve.block = gpu->work, carve.at = 0;
    neo__join_layout(&call, &carve, &w);
    call.run = w.run, call.source = w.source;
    NEO__TRY(neo__cuda_copy(gpu, w.run, NEO_DEVICE, given->run, NEO_HOST,
                            (size_t)call.runs * sizeof *w.run));
    if (call.to_inverse) {
        unfolded = *given->source, unfolded.lengths = w.lengths;
        NEO__TRY(neo__cuda_run(gpu, "ids: bags", neo__ids_unfold_kernel, call.runs, 32, w.run,
                               call.runs, (const int32_t *)given->source->lengths, w.lengths,
                               call.to_inverse));
    }
    NEO__TRY(neo__cuda_copy(gpu, w.source, NEO_DEVICE, call.to_inverse ? &unfolded : given->source,
                            NEO_HOST, (size_t)call.sources * sizeof *w.source));
    if (looks) NEO__TRY(neo__cuda_fill(gpu, w.found, 0, sizeof *w.found));
    if (looks) NEO__TRY(neo__cuda_fill(gpu, w.over, 0, sizeof *w.over));
    else w.found = NULL;
    NEO__TRY(neo__cuda_run(gpu, "ids: lengths", neo__ids_lengths_kernel, count, 1, call,
                           w.scan.keys, w.found));
    if (!call.to_offsets && !call.to_ids) return NEO_OK;
    if (call.to_offsets && !looks) w.offsets = call.to_offsets;
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_scan_now, &w.scan, sizeof w.scan));
    NEO__TRY(neo__cuda_run(gpu, "ids: offsets", neo__ids_offsets_kernel, count, 1,
                           w.scan.sorted_keys, count, w.offsets, w.found, w.over));
    job.batch.offsets = w.offsets, job.batch.bags = call.bags;
    if (looks) NEO__TRY(neo__join_ask(gpu, call, given, job, w));
    if (!call.to_ids || (call.max_ids == 0 && !looks)) return NEO_OK;
    const int64_t units = NEO__MAX(call.max_ids, looks ? count : 0);
    return neo__cuda_launch(gpu, "ids: join", neo__ids_join_kernel,
                            {neo__cuda_blocks(gpu, units, NEO__BAGS_TILE)}, call, job, w.found,
                            w.over);
}

/* See neo__places_call. */
NEO__CUDA_KERNEL neo__ids_places_kernel(const neo__places_call call) {
    const neo__ids_run *run = call.run;
    const int64_t *first = call.first;
    NEO__CUDA_EACH(i, call.count + call.ids, 1) {
        int64_t number = i < call.count ? 0 : call.place[i - call.count];
        if (i < call.count) {
            const neo__ids_run &of =
                run[neo__cuda_last((int64_t)0, call.runs, i, [=](int64_t k) { return run[k].to; })];
            number = of.from + (i - of.to) * of.step;
        } else if (number >= 0) {
            const int64_t part = neo__cuda_last((int64_t)0, call.parts, number,
                                                [=](int64_t k) { return first[k]; });
            number += call.base[part] - first[part];
        }
        call.to[i] = (int32_t)number;
    }
}
static neo_status neo__cuda_ids_places(neo__cuda *gpu, const neo__places_call *given) {
    neo__places_call call = *given;
    neo__carve carve = {NULL, 0};
    neo__ids_run *run;
    int64_t *first, *base;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) NEO__TRY(neo__cuda_reserve(gpu, carve.at));
        if (pass) carve.block = gpu->work, carve.at = 0;
        NEO__CARVE(&carve, run, call.runs);
        NEO__CARVE(&carve, first, call.parts);
        NEO__CARVE(&carve, base, call.parts);
    }
    const size_t each = sizeof(int64_t), parts = (size_t)call.parts;
    NEO__TRY(neo__cuda_copy(gpu, run, NEO_DEVICE, call.run, NEO_HOST,
                            (size_t)call.runs * sizeof *run));
    NEO__TRY(neo__cuda_copy(gpu, first, NEO_DEVICE, call.first, NEO_HOST, parts * each));
    NEO__TRY(neo__cuda_copy(gpu, base, NEO_DEVICE, call.base, NEO_HOST, parts * each));
    call.run = run, call.first = first, call.base = base;
    return neo__cuda_run(gpu, "ids: places", neo__ids_places_kernel, call.count + call.ids, 1,
                         call);
}

/* Pooled bags to their samples, a row by 16 lanes. */
NEO__CUDA_KERNEL neo__bags_spread_kernel(const neo__bags_job job) {
    const int64_t samples = job.batch.samples, rows = job.fixed.feature_count * samples;
    if (neo__bags_refused(job)) return;
    NEO__CUDA_EACH(i, rows, 16) {
        const neo__job_feature feature = job.told.features[i / samples];
        const int64_t dim = job.fixed.tables[feature.table].store.dim;
        const float *from = job.tensor.out + feature.out_at + job.batch.inverse[i] * dim;
        float *to = job.tensor.samples + i % samples * job.tensor.samples_stride + feature.col;
        for (int64_t c = threadIdx.x % 16; c < dim; c += 16) to[c] = from[c];
    }
}
static neo_status neo__cuda_bags_spread(neo__cuda *gpu, const neo__bags_job *job) {
    return neo__cuda_run(gpu, "bags: spread", neo__bags_spread_kernel,
                         job->fixed.feature_count * job->batch.samples, 16, *job);
}

/* Distinct bags: a stable sort by hashes of feature and bag; each looks up the first equal one of
   those of its hash, and a scan of the first ones numbers them. */
NEO__GPU bool neo__fold_equal(const neo__fold_call &call, int64_t a, int64_t b) {
    const int64_t *at = call.offsets + a, *to = call.offsets + b, n = at[1] - at[0];
    if (a / call.batch != b / call.batch || to[1] - to[0] != n) return false;
    const int is_i32 = call.id_dtype == NEO_I32;
    for (int64_t k = 0; k < n; k++) {
        if (neo__jagged_id(call.ids, is_i32, at[0] + k) !=
            neo__jagged_id(call.ids, is_i32, to[0] + k))
            return false;
        if (call.weights && neo__bits_f32(call.weights[at[0] + k]) !=
                                neo__bits_f32(call.weights[to[0] + k]))
            return false;
    }
    return true;
}
NEO__CUDA_KERNEL neo__fold_hash_kernel(const neo__fold_call call, uint32_t *keys,
                                       uint32_t *values) {
    NEO__CUDA_EACH(i, call.features * call.batch, 1) {
        uint64_t hash = (uint64_t)(i / call.batch);
        for (int64_t k = call.offsets[i]; k < call.offsets[i + 1]; k++) {
            const uint64_t weight = call.weights ? neo__bits_f32(call.weights[k]) : 0u;
            hash = neo__mix64(hash + weight * 0x9E3779B97F4A7C15u) +
                   (uint64_t)neo__jagged_id(call.ids, call.id_dtype == NEO_I32, k);
        }
        keys[i] = (uint32_t)neo__mix64(hash), values[i] = (uint32_t)i;
    }
}
NEO__CUDA_KERNEL neo__fold_find_kernel(const neo__fold_call call, const uint32_t *keys,
                                       const uint32_t *values, uint32_t *is, uint32_t *first) {
    const int64_t bags = call.features * call.batch;
    NEO__CUDA_EACH(i, bags + 1, 1) {
        if (i == bags) first[i] = 0;
        if (i == bags) continue;
        const int64_t bag = values[i];
        int64_t at = neo__ids_below(keys, bags, keys[i]);
        while (at < i && !neo__fold_equal(call, values[at], bag)) at++;
        is[bag] = values[at], first[bag] = at == i;
    }
}
NEO__CUDA_KERNEL neo__fold_number_kernel(const neo__fold_call call, const uint32_t *is,
                                         const uint32_t *first, const uint32_t *before,
                                         int64_t *feature_bags) {
    const uint32_t bags = (uint32_t)(call.features * call.batch), batch = (uint32_t)call.batch;
    NEO__CUDA_EACH(k, (int64_t)bags + 1, 1) {
        const uint32_t i = (uint32_t)k, t = i / batch, number = before[i];
        if (i == t * batch) feature_bags[t] = number;
        if (i == bags) continue;
        call.inverse[i] = (int32_t)(before[is[i]] - before[t * batch]);
        if (first[i]) call.list[number] = (int32_t)i;
    }
}
static neo_status neo__cuda_ids_fold(neo__cuda *gpu, const neo__fold_call *given) {
    neo__fold_call call = *given;
    NEO__ZERO(neo__cuda_sorting<uint32_t>, sort);
    NEO__ZERO(neo__cuda_scanning, scan);
    const int64_t bags = call.features * call.batch;
    const size_t words = neo__cuda_up((size_t)(bags + 1) * sizeof(uint32_t), 256);
    const size_t ends = neo__cuda_up((size_t)(call.features + 1) * sizeof(int64_t), 256);
    memset(given->feature_bags, 0, (size_t)(call.features + 1) * sizeof(int64_t));
    if (bags == 0) return NEO_OK;
    sort.count = bags, sort.last = 32, scan.count = bags + 1;
    NEO__CUDA_TRY(gpu, neo__cuda_sort(sort, &sort.bytes, gpu->stream));
    NEO__CUDA_TRY(gpu, cub::DeviceScan::ExclusiveSum(NULL, scan.bytes, (uint32_t *)NULL,
                                                     (uint32_t *)NULL, (uint32_t)scan.count,
                                                     gpu->stream));
    NEO__TRY(neo__cuda_reserve(gpu, ends + 6 * words + NEO__MAX(sort.bytes, scan.bytes)));
    int64_t *feature_bags = (int64_t *)(void *)gpu->work;
    uint32_t *is, **const word[] = {&sort.keys,  &sort.sorted_keys, &sort.values,
                                    &sort.sorted_values, &is, &scan.sorted_keys};
    for (int i = 0; i < 6; i++) *word[i] = (uint32_t *)(void *)(gpu->work + ends + i * words);
    scan.keys = sort.keys; /* once they are sorted */
    sort.temp = scan.temp = gpu->work + ends + 6 * words;
    NEO__TRY(neo__cuda_run(gpu, "fold: hash", neo__fold_hash_kernel, bags, 1, call, sort.keys,
                           sort.values));
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_sort_now<uint32_t>, &sort, sizeof sort));
    NEO__TRY(neo__cuda_run(gpu, "fold: find", neo__fold_find_kernel, bags + 1, 1, call,
                           sort.sorted_keys, sort.sorted_values, is, scan.keys));
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_scan_now, &scan, sizeof scan));
    NEO__TRY(neo__cuda_run(gpu, "fold: number", neo__fold_number_kernel, bags + 1, 1, call, is,
                           scan.keys, scan.sorted_keys, feature_bags));
    return neo__cuda_copy(gpu, given->feature_bags, NEO_HOST, feature_bags, NEO_DEVICE,
                          (size_t)(call.features + 1) * sizeof(int64_t));
}

/* Distinct ids: sorted with their places; a scan of the first ones of each says which it is. K:
   their bits, as unsigned numbers of the same order. */
template <class K> NEO__GPU K neo__unique_key(K bits) { return bits ^ (K)1 << (8 * sizeof(K) - 1); }
template <class K>
NEO__CUDA_KERNEL neo__unique_keys_kernel(const neo__unique_call call, K *keys, uint32_t *values) {
    NEO__CUDA_EACH(i, call.count, 1) {
        keys[i] = neo__unique_key(((const K *)call.ids)[i]);
        values[i] = (uint32_t)i;
    }
}
template <class K>
NEO__CUDA_KERNEL neo__unique_firsts_kernel(const K *keys, int64_t n, uint32_t *first) {
    NEO__CUDA_EACH(i, n + 1, 1) first[i] = i < n && (i == 0 || keys[i] != keys[i - 1]);
}
template <class K>
NEO__CUDA_KERNEL neo__unique_put_kernel(const neo__unique_call call, const K *keys,
                                        const uint32_t *values, const uint32_t *first,
                                        const uint32_t *before) {
    NEO__CUDA_EACH(i, call.count, 1) {
        const uint32_t place = before[i] + first[i] - 1;
        if (first[i]) ((K *)call.unique)[place] = neo__unique_key(keys[i]);
        call.inverse[values[i]] = (int32_t)place;
    }
}
template <class K> static neo_status neo__ids_unique_as(neo__cuda *gpu, neo__unique_call call) {
    NEO__ZERO(neo__cuda_sorting<K>, sort);
    NEO__ZERO(neo__cuda_scanning, scan);
    const int64_t n = call.count;
    const size_t keys = neo__cuda_up((size_t)n * sizeof(K), 256);
    const size_t words = neo__cuda_up((size_t)(n + 1) * sizeof(uint32_t), 256);
    int64_t *found = call.found;
    call.found = NULL;
    sort.count = n, sort.last = (int)(8 * sizeof(K)), scan.count = n + 1;
    NEO__CUDA_TRY(gpu, neo__cuda_sort(sort, &sort.bytes, gpu->stream));
    NEO__CUDA_TRY(gpu, cub::DeviceScan::ExclusiveSum(NULL, scan.bytes, (uint32_t *)NULL,
                                                     (uint32_t *)NULL, (uint32_t)scan.count,
                                                     gpu->stream));
    const size_t temp = 2 * keys + 4 * words;
    NEO__TRY(neo__cuda_reserve(gpu, temp + NEO__MAX(sort.bytes, scan.bytes)));
    sort.keys = (K *)(void *)gpu->work, sort.sorted_keys = (K *)(void *)(gpu->work + keys);
    uint32_t **const word[] = {&sort.values, &sort.sorted_values, &scan.keys, &scan.sorted_keys};
    for (int i = 0; i < 4; i++) *word[i] = (uint32_t *)(void *)(gpu->work + 2 * keys + i * words);
    sort.temp = scan.temp = gpu->work + temp;
    NEO__TRY(neo__cuda_run(gpu, "unique: keys", neo__unique_keys_kernel<K>, n, 1, call, sort.keys,
                           sort.values));
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_sort_now<K>, &sort, sizeof sort));
    NEO__TRY(neo__cuda_run(gpu, "unique: firsts", neo__unique_firsts_kernel<K>, n + 1, 1,
                           sort.sorted_keys, n, scan.keys));
    NEO__TRY(neo__cuda_do(gpu, neo__cuda_scan_now, &scan, sizeof scan));
    NEO__TRY(neo__cuda_run(gpu, "unique: put", neo__unique_put_kernel<K>, n, 1, call,
                           sort.sorted_keys, sort.sorted_values, scan.keys, scan.sorted_keys));
    NEO__TRY(neo__cuda_answer(gpu, scan.sorted_keys + n, sizeof(uint32_t)));
    *found = *(const uint32_t *)(const void *)gpu->answer;
    return NEO_OK;
}
static neo_status neo__cuda_ids_unique(neo__cuda *gpu, const neo__unique_call *call) {
    return call->dtype == NEO_I32 ? neo__ids_unique_as<uint32_t>(gpu, *call)
                                  : neo__ids_unique_as<uint64_t>(gpu, *call);
}

/* ---- >>cuda-create ---- */
/* Compiler flags that change arithmetic on the device without defining a macro show in these
   results; x: 1 + 2^-12, -1 - 2^-11, 2^-140, 1, 3, 2. */
static __global__ void neo__cuda_check_kernel(const float *x, int *bad) {
    if (neo__bits_f32(__fmaf_rn(x[0], x[0], x[1])) != neo__bits_f32(0x1p-24f)) *bad = 1;
    if (__fadd_rn(__fmul_rn(x[0], x[0]), x[1]) != 0.0f) *bad = 2;
    if (neo__bits_f32(__fmul_rn(x[2], x[3])) != neo__bits_f32(0x1p-140f) ||
        neo__bits_f32(__fadd_rn(x[2], x[2])) != neo__bits_f32(0x1p-139f))
        *bad = 3;
    if (neo__bits_f32(__fdiv_rn(x[3], x[4])) != 0x3EAAAAABu) *bad = 4;
    if (neo__bits_f32(__fsqrt_rn(x[5])) != 0x3FB504F3u) *bad = 5;
#if defined(NEO_CUDA_ON_CPU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
    bad[1] = 1;
#else
    bad[1] = 0;
#endif
}
static const char *const neo__cuda_check_text[] = {
    "", "fma is rounded twice", "products and sums are contracted to fma",
    "denormals are flushed to zero (-ftz=true or --use_fast_math)",
    "division is not rounded correctly (-prec-div=false or --use_fast_math)",
    "square roots are not rounded correctly (-prec-sqrt=false, --use_fast_math)"};
static neo_status neo__cuda_self_check(neo__cuda *gpu, const cudaDeviceProp *prop) {
    const float x[6] = {1.0f + 0x1p-12f, -1.0f - 0x1p-11f, 0x1p-140f, 1.0f, 3.0f, 2.0f};
    int *bad = (int *)(void *)gpu->result, *answer = (int *)(void *)gpu->answer;
    float *from = (float *)(void *)(gpu->result + 256);
    NEO__TRY(neo__cuda_fill(gpu, bad, 0, sizeof *bad));
    NEO__TRY(neo__cuda_copy(gpu, from, NEO_DEVICE, x, NEO_HOST, sizeof x));
    NEO__LAUNCH(neo__cuda_check_kernel, 1, 1, 0, gpu->stream, from, bad);
    const cudaError_t error = cudaGetLastError();
    int has_code = error != cudaErrorInvalidDeviceFunction;
#if !defined(NEO_CUDA_ON_CPU)
    has_code = has_code && error != cudaErrorNoKernelImageForDevice &&
               error != cudaErrorUnsupportedPtxVersion;
#endif
    NEO__CHECK(has_code, NEO_ERR_DEVICE,
               "neo_cuda_device_create: the program holds no code for %s: compile it with "
               "nvcc -arch=sm_%d%d",
               gpu->device.name, prop->major, prop->minor);
    if (error != cudaSuccess) return neo__cuda_fail(gpu, error, "the self-check");
    NEO__TRY(neo__cuda_answer(gpu, bad, 2 * sizeof *bad));
    gpu->tensor_cores = answer[1];
    gpu->device.narrow_tensors = gpu->tensor_cores && !gpu->exact;
    NEO__CHECK(*answer == 0, NEO_ERR_NUMERIC,
               "neo_cuda_device_create: compiler flags change arithmetic on the device: %s",
               neo__cuda_check_text[*answer]);
    return NEO_OK;
}
static void neo__cuda_destroy(neo_device *device) {
    neo__cuda *gpu = (neo__cuda *)device;
    (void)cudaSetDevice(gpu->ordinal);
    if (gpu->stream) (void)cudaStreamSynchronize(gpu->stream);
    if (gpu->aside.stream) (void)cudaStreamDestroy(gpu->aside.stream);
    (void)cudaFree(gpu->aside.work);
    for (int i = 0; gpu->product && i < NEO__CUDA_PRODUCTS; i++)
        neo__cuda_product_drop(&gpu->product[i]);
    if (gpu->blas) (void)cublasLtDestroy(gpu->blas);
    (void)cudaFree(gpu->work), (void)cudaFree(gpu->blas_work), (void)cudaFree(gpu->result);
    (void)cudaFreeHost(gpu->answer), (void)cudaFreeHost(gpu->send);
    for (int i = 0; i < NEO__CUDA_SENDS; i++)
        if (gpu->sent[i]) (void)cudaEventDestroy(gpu->sent[i]);
    if (gpu->told) (void)cudaEventDestroy(gpu->told);
    if (gpu->stream) (void)cudaStreamDestroy(gpu->stream);
    if (gpu->exchange) (void)cudaStreamDestroy(gpu->exchange);
    (void)cudaGetLastError(); /* of a device that had failed */
    free(gpu->product);
    free(gpu);
}
static neo_status neo__cuda_take(neo__cuda *gpu) {
    NEO__CUDA_TRY(gpu, cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    NEO__CUDA_TRY(gpu, cudaStreamCreateWithFlags(&gpu->exchange, cudaStreamNonBlocking));
    NEO__CUDA_TRY(gpu, cudaStreamCreateWithFlags(&gpu->aside.stream, cudaStreamNonBlocking));
    NEO__CUDA_TRY(gpu, cudaMalloc(&gpu->result, NEO__CUDA_RESULT_BYTES));
    NEO__TRY(neo__cuda_fill_now(gpu, gpu->result, 0, NEO__CUDA_RESULT_BYTES));
    gpu->device.heard = gpu->result + NEO__CUDA_HEARD_AT, gpu->device.hears = NEO__CUDA_HEARD;
    NEO__CUDA_TRY(gpu, cudaMallocHost(&gpu->answer, NEO__CUDA_ANSWER_BYTES + sizeof(int64_t)));
    gpu->over.word = (int *)(void *)(gpu->answer + NEO__CUDA_ANSWER_BYTES);
    *gpu->over.word = 0;
    NEO__CUDA_TRY(gpu, cudaMallocHost(&gpu->send, (size_t)NEO__CUDA_SENDS * NEO__CUDA_SEND_BYTES));
    for (int i = 0; i < NEO__CUDA_SENDS; i++)
        NEO__CUDA_TRY(gpu, cudaEventCreateWithFlags(&gpu->sent[i], cudaEventDisableTiming));
    NEO__CUDA_TRY(gpu, cudaEventCreateWithFlags(&gpu->told, cudaEventDisableTiming));
    NEO__CUDA_TRY(gpu, cudaMalloc(&gpu->work, NEO__CUDA_WORK_BYTES));
    gpu->work_bytes = NEO__CUDA_WORK_BYTES;
    if (gpu->exact) return NEO_OK;
    NEO__CUDA_TRY(gpu, cudaMalloc(&gpu->blas_work, NEO__CUDA_BLAS_BYTES));
    gpu->product = (neo__cuda_product *)calloc(NEO__CUDA_PRODUCTS, sizeof *gpu->product);
    NEO__CHECK(gpu->product, NEO_ERR_MEMORY, "neo_cuda_device_create: no memory for a table");
    return NEO__CUDA_BLAS_DO(gpu, cublasLtCreate(&gpu->blas));
}
/* A profiler that looks at NVTX says so in the environment; without one there are no ranges. */
#if defined(NVTX_VERSION)
static void neo__cuda_range(const char *name) {
    if (name) (void)nvtxRangePushA(name);
    else (void)nvtxRangePop();
}
#endif
static void neo__cuda_table(neo_device *device) {
#define NEO__OWN(name) device->name = neo__cuda_call<neo__cuda_##name>
    NEO__OWN(copy), NEO__OWN(fill), NEO__OWN(synchronize), NEO__OWN(move), NEO__OWN(combine);
    NEO__OWN(encode), NEO__OWN(decode), NEO__OWN(rows), NEO__OWN(ids_split), NEO__OWN(ids_join);
    NEO__OWN(ids_unique), NEO__OWN(ids_fold), NEO__OWN(ids_places);
    NEO__OWN(event_mark), NEO__OWN(event_wait), NEO__OWN(order);
    NEO__OWN(gemm), NEO__OWN(linear_grads), NEO__OWN(activation), NEO__OWN(blend), NEO__OWN(norm);
    NEO__OWN(embedding), NEO__OWN(attention), NEO__OWN(interact), NEO__OWN(fm), NEO__OWN(loss);
    NEO__OWN(init), NEO__OWN(convert), NEO__OWN(tree_sum), NEO__OWN(optim), NEO__OWN(bags_check);
    NEO__OWN(bags_forward), NEO__OWN(bags_spread), NEO__OWN(bags_weight_grad), NEO__OWN(bags_sort);
    NEO__OWN(bags_sort_rows), NEO__OWN(bags_update), NEO__OWN(bags_step_kept), NEO__OWN(bags_cut);
    NEO__OWN(bags_find_slots), NEO__OWN(bags_give_slots), NEO__OWN(bags_drop_slots);
    NEO__OWN(bags_squares), NEO__OWN(bags_rows), NEO__OWN(bags_lines), NEO__OWN(bags_first);
    NEO__OWN(bags_dense_slots), NEO__OWN(bags_dense_records), NEO__OWN(bags_cut_rows);
    NEO__OWN(cut_add), NEO__OWN(bags_told), NEO__OWN(bags_records);
#undef NEO__OWN
    device->bytes = (uint32_t)sizeof *device, device->version = NEO__DEVICE_VERSION;
    device->users = 1, device->destroy = neo__cuda_destroy;
    device->alloc = neo__cuda_alloc<NEO_DEVICE>, device->free = neo__cuda_free<NEO_DEVICE>;
    device->host_alloc = neo__cuda_alloc<NEO_HOST>, device->host_free = neo__cuda_free<NEO_HOST>;
    device->counts = neo__graph_counts, device->settle = neo__graph_settle;
    device->aside = neo__cuda_aside;
    device->event_make = neo__cuda_event_make, device->event_free = neo__cuda_event_free;
    device->bags_temp_bytes = neo__cuda_bags_temp_bytes;
#if defined(NVTX_VERSION)
    if (getenv("NVTX_INJECTION64_PATH")) device->range = neo__cuda_range;
#endif
}
/* Choose the GPU, or say why there is none. */
static neo_status neo__cuda_find(int ordinal, cudaDeviceProp *prop, int *others) {
    int count = 0, version = 0;
    (void)cudaRuntimeGetVersion(&version);
    cudaError_t error = cudaGetDeviceCount(&count);
    NEO__CHECK(error != cudaErrorInsufficientDriver, NEO_ERR_DEVICE,
               "neo_cuda_device_create: there is no NVIDIA driver, or one too old for CUDA %d.%d",
               version / 1000, version % 1000 / 10);
    NEO__CHECK(error != cudaErrorNoDevice && (error != cudaSuccess || count > 0), NEO_ERR_DEVICE,
               "neo_cuda_device_create: there is no NVIDIA GPU here");
    NEO__CHECK(error == cudaSuccess, NEO_ERR_DEVICE,
               "neo_cuda_device_create: cudaGetDeviceCount: %s", cudaGetErrorString(error));
    NEO__CHECK(ordinal >= 0 && ordinal < count, NEO_ERR_DEVICE,
               "neo_cuda_device_create: ordinal is %d, but the number of GPUs is %d, and they "
               "count from 0",
               ordinal, count);
    error = cudaGetDeviceProperties(prop, ordinal);
    NEO__CHECK(error == cudaSuccess, NEO_ERR_DEVICE,
               "neo_cuda_device_create: cudaGetDeviceProperties of GPU %d: %s", ordinal,
               cudaGetErrorString(error));
    *others = count > 1;
    return NEO_OK;
}

NEO_API neo_status neo_cuda_device_create(const neo_cuda_desc *desc, neo_device **device) {
    NEO__ZERO(neo_cuda_desc, given);
    NEO__ZERO(cudaDeviceProp, prop);
    NEO__CHECK(device, NEO_ERR_ARG, "neo_cuda_device_create: device is NULL");
    *device = NULL;
    if (desc) given = *desc;
    NEO__CHECK(!given.exact || !given.tf32, NEO_ERR_ARG,
               "neo_cuda_device_create: exact and tf32 are both set: TF32 has not the CPU's bits");
    int others = 0;
    NEO__TRY(neo__cuda_find(given.ordinal, &prop, &others));
    neo__cuda *d = (neo__cuda *)calloc(1, sizeof *d);
    NEO__CHECK(d, NEO_ERR_MEMORY, "neo_cuda_device_create: no memory for the device's record");
    d->ordinal = given.ordinal, d->exact = given.exact != 0, d->tf32 = given.tf32 != 0;
    if (!d->exact) d->device.numerics = d->tf32 ? "deterministic 3, tf32" : "deterministic 3";
    d->processors = prop.multiProcessorCount, d->others = others;
    snprintf(d->device.name, sizeof d->device.name, "cuda:%d (%.100s)", given.ordinal, prop.name);
    neo__cuda_table(&d->device);
    neo_status status = neo__cuda_enter(d);
    if (status == NEO_OK) status = neo__cuda_take(d);
    if (status == NEO_OK) status = neo__cuda_self_check(d, &prop);
    if (status == NEO_OK) *device = &d->device;
    else neo__cuda_destroy(&d->device);
    return status;
}
NEO_API void neo_cuda_device_destroy(neo_device *device) {
    neo__device_release(device);
}
NEO_API int neo_cuda_device_count(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    (void)cudaGetLastError();
    return 0;
}
NEO_API int neo_cuda_ordinal(const neo_device *device) {
    return ((const neo__cuda *)device)->ordinal;
}
NEO_API neo_cuda_stats neo_cuda_get_stats(const neo_device *device) {
    return ((const neo__cuda *)device)->stats;
}
NEO_API size_t neo_cuda_workspace_bytes(const neo_cuda_desc *desc) {
    const size_t own = NEO__CUDA_WORK_BYTES + NEO__CUDA_RESULT_BYTES;
    return desc && desc->exact ? own : own + NEO__CUDA_BLAS_BYTES;
}

static size_t neo__graph_copy_room(const neo_cuda_graph_desc *desc) {
    return neo__cuda_up(desc && desc->copy_bytes ? desc->copy_bytes : NEO__GRAPH_COPY_BYTES, 256);
}
/* Lay the object and its arrays out in a block; NULL: count its bytes. */
static size_t neo__graph_layout(neo_cuda_graph *g, char *block, const neo_cuda_graph_desc *desc) {
    neo__carve carve = {block, 0};
    neo_cuda_graph *self;
    g->copy_bytes = neo__graph_copy_room(desc);
    g->pool_bytes = neo__cuda_up(
        desc && desc->graph_bytes ? desc->graph_bytes : NEO__GRAPH_POOL_BYTES, 16);
    NEO__CARVE(&carve, self, 1);
    for (neo__graph_side &side : g->sides) {
        NEO__CARVE(&carve, side.job, NEO__GRAPH_JOB_BYTES);
        NEO__CARVE(&carve, side.due, NEO__GRAPH_DUES);
        NEO__CARVE(&carve, side.count, NEO__GRAPH_COUNTS);
    }
    NEO__CARVE(&carve, g->op, NEO__GRAPH_OPS);
    NEO__CARVE(&carve, g->arguments, NEO__GRAPH_ARGUMENT_BYTES);
    NEO__CARVE(&carve, g->pool, g->pool_bytes);
    return carve.at;
}
/* More room for what a step copies, when all that may use the old one is over. */
static neo_status neo__graph_grow(neo_cuda_graph *graph, size_t bytes) {
    neo__cuda *gpu = graph->d;
    char *fresh[5] = {}, **old[5] = {&graph->block, &graph->sides[0].room, &graph->sides[1].room,
                                     &graph->sides[0].pinned, &graph->sides[1].pinned};
    neo_status status = NEO_OK;
    if (graph->block) status = neo__cuda_synchronize(gpu);
    for (int i = 0; i < 5 && status == NEO_OK; i++)
        status = i < 3 ? NEO__CUDA_DO(gpu, cudaMalloc(&fresh[i], bytes))
                       : NEO__CUDA_DO(gpu, cudaMallocHost(&fresh[i], bytes));
    if (status == NEO_OK) graph->copy_bytes = bytes;
    for (int i = 0; i < 5; i++) {
        char *gone = status == NEO_OK ? *old[i] : fresh[i];
        if (status == NEO_OK) *old[i] = fresh[i];
        (void)(i < 3 ? cudaFree(gone) : cudaFreeHost(gone));
    }
    return status;
}
static neo_status neo__graph_take(neo_cuda_graph *graph) {
    neo__cuda *d = graph->d;
    NEO__CUDA_TRY(d, cudaStreamCreateWithFlags(&graph->copies, cudaStreamNonBlocking));
    NEO__CUDA_TRY(d, cudaEventCreateWithFlags(&graph->arrived, cudaEventDisableTiming));
    for (neo__graph_side &side : graph->sides) {
        NEO__CUDA_TRY(d, cudaEventCreateWithFlags(&side.done, cudaEventDisableTiming));
        NEO__CUDA_TRY(d, cudaMallocHost(&side.answered, NEO__GRAPH_ANSWER_BYTES));
    }
    NEO__TRY(neo__graph_grow(graph, graph->copy_bytes));
    for (int l = 1; l < graph->lanes; l++) {
        neo__graph_scratch *scratch = &graph->scratch[l];
        NEO__CUDA_TRY(d, cudaMalloc(&scratch->work, NEO__CUDA_WORK_BYTES));
        scratch->work_bytes = NEO__CUDA_WORK_BYTES;
        NEO__CUDA_TRY(d, cudaMalloc(&scratch->result, NEO__CUDA_RESULT_BYTES));
        NEO__TRY(neo__cuda_fill_now(d, scratch->result, 0, NEO__CUDA_RESULT_BYTES));
        if (!d->exact) NEO__CUDA_TRY(d, cudaMalloc(&scratch->blas_work, NEO__CUDA_BLAS_BYTES));
    }
    NEO__CUDA_TRY(d, cudaMalloc(&graph->answers, NEO__GRAPH_ANSWER_BYTES));
    return neo__cuda_fill_now(d, graph->answers, 0, NEO__GRAPH_ANSWER_BYTES); /* gaps, too */
}
NEO_API size_t neo_cuda_graph_host_bytes(const neo_cuda_graph_desc *desc) {
    NEO__ZERO(neo_cuda_graph, g);
    return neo__graph_layout(&g, NULL, desc) + 2 * (g.copy_bytes + NEO__GRAPH_ANSWER_BYTES);
}
NEO_API size_t neo_cuda_graph_bytes(const neo_cuda_graph_desc *desc) {
    return 3 * neo__graph_copy_room(desc) + NEO__GRAPH_ANSWER_BYTES;
}
NEO_API neo_status neo_cuda_graph_create(neo_device *device, const neo_cuda_graph_desc *desc,
                                         neo_cuda_graph **graph) {
    NEO__CHECK(graph, NEO_ERR_ARG, "neo_cuda_graph_create: graph is NULL");
    *graph = NULL;
    NEO__CHECK(device, NEO_ERR_ARG, "neo_cuda_graph_create: device is NULL");
    NEO__CHECK(device->destroy == neo__cuda_destroy, NEO_ERR_ARG,
               "neo_cuda_graph_create: %s is no device of neo_cuda_device_create", device->name);
    NEO__CHECK(!desc || desc->copy_bytes <= SIZE_MAX / 16, NEO_ERR_ARG,
               "neo_cuda_graph_create: copy_bytes is %zu", desc ? desc->copy_bytes : 0);
    NEO__CHECK(!desc || desc->graph_bytes <= SIZE_MAX / 16, NEO_ERR_ARG,
               "neo_cuda_graph_create: graph_bytes is %zu", desc ? desc->graph_bytes : 0);
    NEO__CHECK(!desc || (desc->lanes >= 0 && desc->lanes <= NEO_CUDA_LANES), NEO_ERR_ARG,
               "neo_cuda_graph_create: lanes is %d, not 0 to %d", desc ? desc->lanes : 0,
               (int)NEO_CUDA_LANES);
    neo__cuda *d = (neo__cuda *)device;
    NEO__TRY(neo__cuda_enter(d));
    NEO__ZERO(neo_cuda_graph, sizes);
    const size_t bytes = neo__graph_layout(&sizes, NULL, desc);
    neo_cuda_graph *g = (neo_cuda_graph *)calloc(1, bytes); /* pages are there when they are used */
    NEO__CHECK(g, NEO_ERR_MEMORY,
               "neo_cuda_graph_create: no memory for the notes of steps: %zu bytes", bytes);
    (void)neo__graph_layout(g, (char *)g, desc);
    g->d = d, g->side = &g->sides[0], g->other = &g->sides[1];
    g->lanes = desc && desc->lanes ? desc->lanes : 1;
    neo_status status = neo__graph_take(g);
    if (status == NEO_OK) *graph = g;
    else neo_cuda_graph_destroy(g);
    return status;
}
NEO_API void neo_cuda_graph_destroy(neo_cuda_graph *graph) {
    if (!graph) return;
    (void)cudaSetDevice(graph->d->ordinal);
    neo__graph_stop_recording(graph);
    if (graph->d->launched == graph) graph->d->launched = NULL;
    if (graph->copies) (void)cudaStreamSynchronize(graph->copies);
    (void)neo__cuda_until(graph->d, graph->d->stream, NULL);
    while (graph->tape_count > 0) neo__graph_drop(graph, graph->tape_count - 1);
    for (neo__graph_side &side : graph->sides) {
        (void)cudaFreeHost(side.pinned), (void)cudaFreeHost(side.answered);
        (void)cudaFree(side.room);
        neo__graph_free(graph, &side);
        if (side.done) (void)cudaEventDestroy(side.done);
    }
    for (int l = 1; l < graph->lanes; l++) {
        const neo__graph_scratch *scratch = &graph->scratch[l];
        (void)cudaFree(scratch->work), (void)cudaFree(scratch->blas_work);
        (void)cudaFree(scratch->result);
    }
    (void)cudaFree(graph->block), (void)cudaFree(graph->answers);
    if (graph->arrived) (void)cudaEventDestroy(graph->arrived);
    if (graph->copies) (void)cudaStreamDestroy(graph->copies);
    (void)cudaGetLastError();
    free(graph);
}
NEO_API neo_status neo_cuda_graph_begin(neo_cuda_graph *graph) {
    NEO__CHECK(graph, NEO_ERR_ARG, "neo_cuda_graph_begin: graph is NULL");
    NEO__CHECK(!graph->d->recording, NEO_ERR_STATE,
               "neo_cuda_graph_begin: %s is recording a step already", graph->d->device.name);
    const neo_cuda_graph *other = graph->d->launched;
    NEO__CHECK(!other || other == graph || !other->other->flying, NEO_ERR_STATE,
               "neo_cuda_graph_begin: a step of another graph of %s has not been waited for",
               graph->d->device.name);
    NEO__TRY(neo__cuda_enter(graph->d));
    if (graph->d->device.checked) return NEO_OK; /* calls run one by one, and are looked at */
    if (graph->wanted_bytes > graph->copy_bytes) { /* half more at least, so that it is seldom */
        snprintf(graph->d->advice, sizeof graph->d->advice,
                 "a step copied %zu bytes to the device, but its pinned memory had %zu: it waited, "
                 "and was split; with neo_cuda_graph_desc.copy_bytes as large none is",
                 graph->wanted_bytes, graph->copy_bytes);
        graph->d->device.advice = graph->d->advice;
        const size_t half_more = graph->copy_bytes + graph->copy_bytes / 2;
        const size_t bytes = neo__cuda_up(NEO__MAX(graph->wanted_bytes, half_more), 256);
        if (neo__graph_grow(graph, bytes) != NEO_OK) graph->wanted_bytes = 0; /* as it is, then */
        NEO__TRY(neo__cuda_enter(graph->d));
    }
    neo__graph_forget(graph);
    graph->earlier_bytes = 0;
    graph->launches_before = graph->stats.launches - graph->stats.passed;
    graph->status = NEO_OK, graph->d->recording = graph;
    graph->d->device.recording = 1;
    neo__graph_let_pass(graph->d);
    return NEO_OK;
}
NEO_API neo_status neo_cuda_graph_end(neo_cuda_graph *graph) {
    NEO__CHECK(graph, NEO_ERR_ARG, "neo_cuda_graph_end: graph is NULL");
    if (graph->d->device.checked) return NEO_OK;
    NEO__CHECK(graph->d->recording == graph, NEO_ERR_STATE,
               "neo_cuda_graph_end: no step is being recorded: neo_cuda_graph_begin, or an error, "
               "has ended it");
    neo_status status = neo__cuda_enter(graph->d);
    if (status == NEO_OK) status = neo__graph_launch(graph);
    neo__graph_stop_recording(graph);
    if (status == NEO_OK) graph->stats.steps++;
    const uint64_t waited = graph->stats.launches - graph->stats.passed;
    graph->stats.split += waited > graph->launches_before + 1;
    return status;
}
NEO_API void neo_cuda_graph_lane(neo_cuda_graph *graph, int lane) {
    if (graph->d->recording != graph) return;
    neo__graph_use_lane(graph, lane > 0 && lane < graph->lanes ? lane : 0);
}
NEO_API void neo_cuda_graph_join(neo_cuda_graph *graph) {
    if (graph->d->recording != graph) return;
    for (int l = 0; l < graph->lanes; l++)
        graph->order.joined[l] = graph->order.last[l], graph->order.begins[l] = 1;
    neo__graph_use_lane(graph, 0);
}
NEO_API neo_status neo_cuda_graph_wait(neo_cuda_graph *g) {
    NEO__CHECK(g, NEO_ERR_ARG, "neo_cuda_graph_wait: graph is NULL");
    NEO__CHECK(g->d->recording != g, NEO_ERR_STATE,
               "neo_cuda_graph_wait: a step is being recorded");
    NEO__TRY(neo__cuda_enter(g->d));
    return neo__graph_collect(g);
}
NEO_API neo_cuda_graph_stats neo_cuda_graph_get_stats(const neo_cuda_graph *g) {
    neo_cuda_graph_stats stats = g->stats;
    stats.copy_bytes = g->copy_bytes;
    return stats;
}
#endif /* NEO__CUDA_IMPLEMENTED */
