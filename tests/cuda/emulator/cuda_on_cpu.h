/* cuda_on_cpu.h: enough of CUDA, cub and cuBLASLt in plain C++17 that a .cuh file of kernels and of
   calls of the runtime compiles with g++ or clang++ and runs on the processor. For tests only:
   correct and suspicious, not fast.

   WHAT IT EMULATES
   Kernels    a thread of a block runs on a fiber, one block after another on the OS thread that
              waits for the work. A thread that never waits costs a call; one that waits, two
              switches. Barriers and warp primitives synchronize exactly whom they name. Who never
              arrives is an error that names kernel, block, thread.
   Memory     device memory is one range of addresses that the host cannot touch: its pages have no
              access rights but while queued work runs (a touch is SIGSEGV). It is filled with junk
              (NaN in every float format) when allocated, and has red zones: of AddressSanitizer
              where that is on, else of bytes that are checked when work ends. Shared memory is junk
              when a block begins.
   Streams    lazy queues: nothing runs until something waits for it. What events do not order runs
              in an order that the seed picks. Copies of pageable memory read it at once or late, as
              CUDA allows.
   Graphs     capture (also of streams that join through events) makes a graph, and so do nodes that
              are added (kernels, child graphs), which keep the bytes of their arguments until
              others are set; a launch runs its nodes in an order that its edges allow.
   Libraries  the functions of cub and cuBLASLt below, computed plainly; arguments are checked more
              strictly.
   Faults     errors of a kernel are sticky as in CUDA: until neo_emu_reset().

   WHAT IT DOES NOT
   No concurrency of threads: a thread runs until it waits, so spinning on another thread's or
   block's store hangs. No race detection: run several seeds. No cooperative groups, textures,
   managed memory, clusters, peer copies; of tensor cores the two functions at >>tensor-cores.
   Warp primitives order memory more than on a device. A NaN may have other bits. Static shared
   arrays have red zones only with g++ -fsanitize=address -fsanitize-sections='neo_shared*';
   -fsanitize=bounds sees plain indices. Their bytes do not count towards the 48 KiB.
   __restrict__ means what the compiler makes of it.
   Stricter than CUDA: a mask may not name exited or missing lanes; __syncthreads wants every thread
   of the block at the same line; a pointer argument of a kernel must be device memory, pinned
   memory or NULL; a float sum by atomicAdd, cub's Sum or scan does not compile; cudaMallocAsync
   cannot be captured; a row-major cublasLtMatmul has no bias epilogues. All CUDA calls take one
   lock.

   CONTROLS (host, any time)
     neo_emu_set_order(seed)     0: natural order; else shuffles blocks, warps, lanes, streams,
                                 graph nodes. Until it is called: NEO_EMU_SEED of the environment,
                                 or 0; programs that call it add what neo_emu_seed() says, to try
                                 others.
     neo_emu_set_lazy(on)        on: a wait runs the stream that it is for, and others only as
                                 events ask (an event's: the stream that it was recorded in); so
                                 work that nothing orders before what is waited for is not done
     neo_emu_queued()            tasks that wait in streams
     neo_emu_waits()             waits for streams, events or the device, of this thread so far
     neo_emu_set_memory(bytes)   device memory there is (2 GiB)
     neo_emu_set_device_count(n) 0: "no device"; until it is called NEO_EMU_GPUS of the environment,
                                 or 1
     neo_emu_reached(a, b)       was GPU a given access to the memory of GPU b?
     neo_emu_fail_after(n)       the n-th call from now (1 is the next) fails once; 0: never.
                                 Releases, device queries by value and cudaGetLastError do not
                                 count.
     neo_emu_failed()            did it?
     neo_emu_live_bytes(), neo_emu_live_allocations() of the device; neo_emu_live_pinned();
                                 neo_emu_live_objects(): streams, events, graphs, cuBLASLt objects
     neo_emu_last_report()       text of the last error of a kernel or of queued work; "" if none
     neo_emu_seed()              that number, 0 if it is not set
     neo_emu_reset()             drop queued work, sticky error, report and injected faults; objects
                                 and memory stay

   TWO MACROS that a file for both worlds uses; for nvcc it defines them itself:
     #define NEO__DYNAMIC_SHARED(type, name)
         extern __shared__ __align__(16) unsigned char neo__dynamic[];
         type *name = reinterpret_cast<type *>(neo__dynamic)
     #define NEO__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)
         kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
   A kernel with template arguments stands in parentheses: NEO__LAUNCH((sum<float, 4>), ...).
   Compile with -ffp-contract=off, -pthread; ELF on x86-64 and AArch64 switches by a few
   instructions, others by ucontext.

   CONTENTS
     >>language  >>types  >>errors  >>state  >>order  >>memory  >>switch  >>block
     >>threads-of-a-block  >>warp  >>atomics  >>bits  >>arithmetic  >>half  >>tensor-cores  >>queue
     >>launch  >>allocation  >>copies  >>streams  >>events  >>graphs  >>device  >>cub  >>cublaslt
     >>controls */
#ifndef NEO_CUDA_ON_CPU_H
#define NEO_CUDA_ON_CPU_H

#if defined(__CUDACC__)
#error "cuda_on_cpu.h stands in for CUDA; nvcc has the real one"
#endif

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define NEO_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NEO_EMU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define NEO_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NEO_EMU_TSAN 1
#endif
#endif
#ifdef NEO_EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef NEO_EMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__ELF__) || !(defined(__x86_64__) || defined(__aarch64__)) || defined(NEO_EMU_TSAN)
#undef NEO_EMU_UCONTEXT
#define NEO_EMU_UCONTEXT 1
#endif
#ifdef NEO_EMU_UCONTEXT
#include <ucontext.h>
#endif
#if defined(PKEY_DISABLE_ACCESS) && defined(__GLIBC__)
#define NEO_EMU_KEYS 1
#endif

/* For what every barrier of every thread runs through: quick where the rest is compiled for a
   debugger, and unwatched, since it touches the emulator's own memory alone. */
#if defined(__clang__)
#define NEO_EMU_QUICK __attribute__((no_sanitize("address")))
#else
#define NEO_EMU_QUICK __attribute__((optimize("O2"), no_sanitize("address")))
#endif

/* ---- >>language ---- */

#define __host__
#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* Static shared variables lie in one section of the program, which is filled with junk before each
   block. g++ would refuse one section for variables of templates and of plain functions, so it gets
   names that differ, of which the assembler sees a comment. `used`: the compiler may not conclude
   who changes them. */
#define NEO_EMU_STRING2(x) #x
#define NEO_EMU_STRING(x) NEO_EMU_STRING2(x)
#if defined(__clang__)
#define __shared__ static __attribute__((used, section("neo_shared")))
#else
#define __shared__                                                                                 \
    static __attribute__((used,                                                                    \
                          section("neo_shared,\"aw\",%progbits\n//" NEO_EMU_STRING(__COUNTER__))))
#endif
extern "C" {
extern unsigned char __start_neo_shared[] __attribute__((weak, visibility("hidden")));
extern unsigned char __stop_neo_shared[] __attribute__((weak, visibility("hidden")));
}
#define NEO__DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(neo_emu::dynamic_shared)

/* ---- >>types ---- */

#define NEO_EMU_VECTOR(type, base, align2, align4)                                                 \
    struct type##1 { base x; };                                                                    \
    struct alignas(align2) type##2 { base x, y; };                                                 \
    struct type##3 { base x, y, z; };                                                              \
    struct alignas(align4) type##4 { base x, y, z, w; };                                           \
    inline type##2 make_##type##2(base x, base y) { return type##2{x, y}; }                        \
    inline type##3 make_##type##3(base x, base y, base z) { return type##3{x, y, z}; }             \
    inline type##4 make_##type##4(base x, base y, base z, base w) { return type##4{x, y, z, w}; }
NEO_EMU_VECTOR(char, signed char, 2, 4)
NEO_EMU_VECTOR(uchar, unsigned char, 2, 4)
NEO_EMU_VECTOR(short, short, 4, 8)
NEO_EMU_VECTOR(ushort, unsigned short, 4, 8)
NEO_EMU_VECTOR(int, int, 8, 16)
NEO_EMU_VECTOR(uint, unsigned int, 8, 16)
NEO_EMU_VECTOR(float, float, 8, 16)
NEO_EMU_VECTOR(longlong, long long, 16, 16)
NEO_EMU_VECTOR(ulonglong, unsigned long long, 16, 16)
NEO_EMU_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
        : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    operator uint3() const { return uint3{x, y, z}; }
};

/* ---- >>errors ---- */

#define NEO_EMU_ERRORS(X)                                                                          \
    X(cudaSuccess, 0, "no error")                                                                  \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                               \
    X(cudaErrorInitializationError, 3, "initialization error")                                     \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                          \
    X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                    \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                 \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                    \
    X(cudaErrorInsufficientDriver, 35,                                                             \
      "CUDA driver version is insufficient for CUDA runtime version")                              \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                               \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                       \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                              \
    X(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state")        \
    X(cudaErrorNotReady, 600, "device not ready")                                                  \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                    \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")               \
    X(cudaErrorHostMemoryAlreadyRegistered, 712,                                                   \
      "part or all of the requested memory range is already mapped")                               \
    X(cudaErrorHostMemoryNotRegistered, 713,                                                       \
      "pointer does not correspond to a registered memory region")                                 \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                   \
    X(cudaErrorNotPermitted, 800, "operation not permitted")                                       \
    X(cudaErrorNotSupported, 801, "operation not supported")                                       \
    X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")  \
    X(cudaErrorStreamCaptureInvalidated, 901,                                                      \
      "operation failed due to a previous error during capture")                                   \
    X(cudaErrorStreamCaptureMerge, 902,                                                            \
      "operation would result in a merge of separate capture sequences")                           \
    X(cudaErrorStreamCaptureUnmatched, 903,                                                        \
      "capture was not ended in the same stream as it began")                                      \
    X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                   \
    X(cudaErrorStreamCaptureIsolation, 905,                                                        \
      "dependency created on uncaptured work in another stream")                                   \
    X(cudaErrorStreamCaptureImplicit, 906,                                                         \
      "operation would make the legacy stream depend on a capturing stream")                       \
    X(cudaErrorCapturedEvent, 907,                                                                 \
      "operation not permitted on an event last recorded in a capturing stream")                   \
    X(cudaErrorStreamCaptureWrongThread, 908,                                                      \
      "attempt to terminate a thread-local capture sequence from another thread")                  \
    X(cudaErrorGraphExecUpdateFailure, 910,                                                        \
      "the graph update was not performed: it violated constraints")                               \
    X(cudaErrorUnknown, 999, "unknown error")
#define NEO_EMU_ENUM(name, value, text) name = value,
enum cudaError { NEO_EMU_ERRORS(NEO_EMU_ENUM) };
#undef NEO_EMU_ENUM
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4
};
enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum {
    cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2,
    cudaHostAllocWriteCombined = 4
};
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef void (*cudaHostFn_t)(void *userData);
#define cudaStreamLegacy ((cudaStream_t)0x1)

inline const char *cudaGetErrorName(cudaError_t error) {
#define NEO_EMU_NAME(name, value, text) if (error == name) return #name;
    NEO_EMU_ERRORS(NEO_EMU_NAME)
#undef NEO_EMU_NAME
    return "unrecognized error code";
}
inline const char *cudaGetErrorString(cudaError_t error) {
#define NEO_EMU_TEXT(name, value, text) if (error == name) return text;
    NEO_EMU_ERRORS(NEO_EMU_TEXT)
#undef NEO_EMU_TEXT
    return "unrecognized error code";
}

/* ---- >>state ---- */

namespace neo_emu {

typedef std::function<cudaError_t()> task;

struct node {
    task run;
    std::vector<size_t> after;
    const void *kernel = nullptr;         /* of one that was added as a kernel node */
};
struct capture {
    cudaStreamCaptureMode mode;
    CUstream_st *origin;
    std::thread::id thread;
    std::vector<node> nodes;
    bool invalid = false;
};
/* A recording in a stream: `asked` recordings are queued, `done` have run. */
struct event_data {
    uint64_t asked = 0, done = 0;
    std::chrono::steady_clock::time_point time;
    std::shared_ptr<capture> in;          /* last recorded in this capture, after these nodes */
    std::vector<size_t> after;
    struct ::CUstream_st *on = nullptr;   /* where it was last recorded */
};
struct queued {
    uint64_t number;                      /* in order of the calls, over all streams */
    task run;
    std::shared_ptr<event_data> wait;     /* runs once `wait` has been recorded `version` times */
    uint64_t version;
    std::function<bool()> may;            /* and once this holds, if it is there */
};
/* What one allocation of the device is; the map's key is its address. */
struct block_of_memory { size_t bytes, span; int device; };

} // namespace neo_emu

struct CUstream_st {
    unsigned flags = 0;
    int priority = 0;
    bool destroyed = false;
    std::deque<neo_emu::queued> queue;
    std::shared_ptr<neo_emu::capture> in;
    std::vector<size_t> after;            /* nodes of the capture that come before the next */
};
struct CUevent_st { unsigned flags; std::shared_ptr<neo_emu::event_data> data; };
struct CUgraphNode_st { size_t number; };
struct CUgraph_st {
    std::shared_ptr<std::vector<neo_emu::node>> nodes;
    std::vector<std::unique_ptr<CUgraphNode_st>> handles; /* of nodes that were added one by one */
};
struct CUgraphExec_st { std::shared_ptr<std::vector<neo_emu::node>> nodes; };

namespace neo_emu {

struct state {
    std::recursive_mutex lock;
    std::string report;
    cudaError_t sticky = cudaSuccess;
    bool in_host_function = false, running = false;
    long fail_in = 0;
    bool failed = false, lazy = false;
    int device_count = 1;
    std::set<std::pair<int, int>> reached; /* whose copies go directly, from and to whom */
    uint64_t seed = 0, random = 0;

    uintptr_t base = 0, end = 0, top = 0, cursor = 0;
    int opened = 0;
    int key = 0;                          /* a protection key of the processor, 0 if it has none */
    size_t budget = (size_t)2 << 30, used = 0;
    std::map<uintptr_t, block_of_memory> live;
    std::map<uintptr_t, size_t> pinned;

    uint64_t number = 0;
    CUstream_st legacy;                   /* the NULL stream */
    std::vector<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::set<void *> others;              /* graphs, cuBLASLt objects */
    std::vector<std::shared_ptr<capture>> captures;
    std::map<const void *, int> max_dynamic;
    std::map<const void *, struct known_kernel *> known;
};
/* Never destroyed: exit handlers of others may still call. */
NEO_EMU_QUICK inline state &g() {
    static state *s = [] {
        const char *text = getenv("NEO_EMU_SEED"), *count = getenv("NEO_EMU_GPUS");
        state *made = new state;
        if (count) made->device_count = atoi(count);
        made->seed = made->random = text ? strtoull(text, nullptr, 10) : 0;
        return made;
    }();
    return *s;
}
inline thread_local cudaError_t last_error = cudaSuccess;
inline thread_local int current_device = 0;
inline thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
inline thread_local size_t thread_waits = 0;

inline cudaError_t give(cudaError_t e) {
    if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
    return e;
}
__attribute__((format(printf, 2, 3)))
inline cudaError_t report(cudaError_t e, const char *format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (g().sticky == cudaSuccess) {
        g().sticky = e;
        g().report = text;
    }
    return e;
}
/* At the start of every call that may fail. */
inline cudaError_t enter(cudaError_t injected = cudaErrorUnknown) {
    state &s = g();
    if (s.device_count == 0) return cudaErrorNoDevice;
    if (s.in_host_function) return cudaErrorNotPermitted;
    if (s.sticky != cudaSuccess) return s.sticky;
    if (s.fail_in > 0 && --s.fail_in == 0) {
        s.failed = true;
        return injected;
    }
    return cudaSuccess;
}
#define NEO_EMU_LOCK std::lock_guard<std::recursive_mutex> neo_emu_guard(neo_emu::g().lock)
#define NEO_EMU_TRY(call)                                                                          \
    do {                                                                                           \
        cudaError_t neo_emu_e = (call);                                                            \
        if (neo_emu_e != cudaSuccess) return neo_emu::give(neo_emu_e);                             \
    } while (0)
#define NEO_EMU_ENTER(...)                                                                         \
    NEO_EMU_LOCK;                                                                                  \
    NEO_EMU_TRY(neo_emu::enter(__VA_ARGS__))

/* ---- >>order: splitmix64; with seed 0 every choice is the first ---- */

NEO_EMU_QUICK inline uint64_t random_of(uint64_t *at) {
    uint64_t z = *at += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
NEO_EMU_QUICK inline uint64_t random64() { return random_of(&g().random); }
NEO_EMU_QUICK inline bool shuffled() { return g().seed != 0; }
NEO_EMU_QUICK inline size_t pick(size_t count) {
    return shuffled() ? (size_t)(random64() % count) : 0;
}
NEO_EMU_QUICK inline bool coin() { return pick(2) == 1; }
NEO_EMU_QUICK inline void shuffle(uint32_t *list, size_t count) {
    if (!shuffled()) return;
    uint64_t random = g().random;
    for (size_t i = count; i > 1; i--) {
        const size_t with = (size_t)(random_of(&random) % i);
        const uint32_t last = list[i - 1];
        list[i - 1] = list[with];
        list[with] = last;
    }
    g().random = random;
}

/* ---- >>memory ---- */

constexpr size_t RED = 256;               /* red zone on either side; also the alignment */
constexpr size_t PAGE = 65536;            /* a multiple of every page size */
constexpr size_t HUGE_PAGE = (size_t)2 << 20;      /* what device memory grows by */
constexpr size_t REUSE_AFTER = (size_t)64 << 20;   /* addresses come back after so many others */
constexpr unsigned char CANARY = 0xc5;
/* Each 16 bits: a NaN as f16, bf16, f32 and f64, and a negative integer. */
constexpr uint16_t JUNK = 0xfffd;

#if defined(__GNUC__)
__attribute__((no_sanitize("address")))
#endif
inline void fill_junk(void *to, size_t bytes) {
    unsigned char *p = static_cast<unsigned char *>(to);
    const unsigned char junk[2] = {JUNK & 255, JUNK >> 8};
    uint64_t word = 0;
    size_t i = 0;
    for (; i < bytes && ((uintptr_t)(p + i) & 7); i++) p[i] = junk[(uintptr_t)(p + i) & 1];
    for (int k = 0; k < 4; k++) word = word << 16 | JUNK;
#if defined(__x86_64__)
    size_t words = (bytes - i) / 8;
    void *at = p + i;
    i += 8 * words;
    asm volatile("rep stosq" : "+D"(at), "+c"(words) : "a"(word) : "memory");
#endif
    for (; i + 8 <= bytes; i += 8) *(volatile uint64_t *)(p + i) = word;
    for (; i < bytes; i++) p[i] = junk[(uintptr_t)(p + i) & 1];
}
inline void poison(uintptr_t p, size_t bytes) {
#ifdef NEO_EMU_ASAN
    __asan_poison_memory_region((const void *)p, bytes);
#else
    (void)p, (void)bytes;
#endif
}
inline void unpoison(uintptr_t p, size_t bytes) {
#ifdef NEO_EMU_ASAN
    __asan_unpoison_memory_region((const void *)p, bytes);
#else
    (void)p, (void)bytes;
#endif
}

inline bool reserve_arena() {
    state &s = g();
    for (size_t bytes = (size_t)64 << 30; !s.base && bytes >= (size_t)64 << 20; bytes /= 2) {
        void *p = mmap(nullptr, bytes + HUGE_PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        s.base = ((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
#ifdef MADV_HUGEPAGE
        madvise((void *)s.base, bytes, MADV_HUGEPAGE);
#endif
        s.end = s.base + bytes;
        s.top = s.cursor = s.base;
#ifdef NEO_EMU_KEYS
        s.key = std::max(0, pkey_alloc(0, PKEY_DISABLE_ACCESS));
#endif
    }
    return s.base != 0;
}
/* Between open and shut the processor may touch device memory. They nest. With a protection key
   the rights are a register of this thread; without, each page changes, so that they are huge:
   else this takes half of a test's time. */
inline void protect(int rights) {
    state &s = g();
#ifdef NEO_EMU_KEYS
    if (s.key) {
        pkey_set(s.key, rights == PROT_NONE ? PKEY_DISABLE_ACCESS : 0);
        return;
    }
#endif
    if (s.top > s.base) mprotect((void *)s.base, s.top - s.base, rights);
}
/* Adds the pages below top to the device's. The memory may be open. */
inline void grow(uintptr_t top) {
    state &s = g();
    if (top <= s.top) return;
    const int rights = s.key || s.opened ? PROT_READ | PROT_WRITE : PROT_NONE;
#ifdef NEO_EMU_KEYS
    if (s.key) pkey_mprotect((void *)s.top, top - s.top, rights, s.key);
    else
#endif
        mprotect((void *)s.top, top - s.top, rights);
    s.top = top;
}
inline void open_memory() { if (g().opened++ == 0) protect(PROT_READ | PROT_WRITE); }
inline void shut_memory() { if (--g().opened == 0) protect(PROT_NONE); }

inline bool is_device(const void *p) { return (uintptr_t)p >= g().base && (uintptr_t)p < g().end; }
/* The live allocation that holds [p, p + bytes), or NULL. */
inline const block_of_memory *find_block(const void *p, size_t bytes) {
    state &s = g();
    auto it = s.live.upper_bound((uintptr_t)p);
    if (it == s.live.begin()) return nullptr;
    --it;
    size_t at = (uintptr_t)p - it->first;
    return at <= it->second.bytes && bytes <= it->second.bytes - at ? &it->second : nullptr;
}
inline bool is_pinned(const void *p) {
    auto it = g().pinned.upper_bound((uintptr_t)p);
    if (it == g().pinned.begin()) return false;
    --it;
    return (uintptr_t)p - it->first < std::max<size_t>(it->second, 1);
}
/* Next fit: an address comes back as late as possible. 0 if there is no gap. */
inline uintptr_t find_gap(size_t span) {
    state &s = g();
    for (int round = 0; round < 2; round++) {
        uintptr_t at = round ? s.base : s.cursor;
        for (auto it = s.live.lower_bound(at); ; ++it) {
            uintptr_t to = it == s.live.end() ? s.end : it->first - RED;
            if (to >= at && to - at >= span) return at;
            if (it == s.live.end()) break;
            at = to + it->second.span;
        }
    }
    return 0;
}
inline void *device_allocate(size_t bytes) {
    state &s = g();
    if (bytes > s.budget || s.used > s.budget - bytes || !reserve_arena()) return nullptr;
    size_t span = (RED + bytes + RED + RED - 1) / RED * RED;
    uintptr_t start = find_gap(span);
    if (!start) return nullptr;
    s.cursor = start + span;
    if (s.cursor - s.base > REUSE_AFTER + 2 * s.used) s.cursor = s.base;
    grow((start + span + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    open_memory();
    unpoison(start, span);
    memset((void *)start, CANARY, RED);
    fill_junk((void *)(start + RED), bytes);
    memset((void *)(start + RED + bytes), CANARY, span - RED - bytes);
    poison(start, span);
    unpoison(start + RED, bytes);
    shut_memory();
    s.live[start + RED] = block_of_memory{bytes, span, current_device};
    s.used += bytes;
    return (void *)(start + RED);
}
/* The red zones, where AddressSanitizer does not watch them. The memory is open. */
inline bool check_red_zones(uintptr_t p, const block_of_memory &b, const char *when) {
#ifndef NEO_EMU_ASAN
    const unsigned char *start = (const unsigned char *)p - RED;
    for (size_t i = 0; i < b.span; i++) {
        if (i == RED) i += b.bytes;
        if (i < b.span && start[i] != CANARY) {
            report(cudaErrorIllegalAddress,
                   "%s: byte %td of an allocation of %zu bytes was overwritten", when,
                   start + i - (const unsigned char *)p, b.bytes);
            return false;
        }
    }
#else
    (void)p, (void)b, (void)when;
#endif
    return true;
}
inline void check_all_red_zones(const char *when) {
#ifndef NEO_EMU_ASAN
    for (auto &it : g().live)
        if (!check_red_zones(it.first, it.second, when)) return;
#else
    (void)when;
#endif
}
inline void device_release(uintptr_t p) {
    state &s = g();
    auto it = s.live.find(p);
    open_memory();
    check_red_zones(p, it->second, "free");
    /* Junk again; whole huge pages are given back. */
    const uintptr_t end = p + it->second.bytes, to = end & ~(uintptr_t)(HUGE_PAGE - 1);
    const uintptr_t from = std::min((p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1), end);
    fill_junk((void *)p, from - p);
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
    fill_junk((void *)std::max(from, to), end - std::max(from, to));
    poison(p, it->second.bytes);
    shut_memory();
    s.used -= it->second.bytes;
    s.live.erase(it);
}

/* ---- >>switch: from one stack to another ---- */

struct fiber;
[[noreturn]] void fiber_main();

struct fiber {
    void *sp = nullptr;                   /* where it stopped */
    char *stack = nullptr;                /* above a page without access rights */
    const void *bottom = nullptr;         /* for AddressSanitizer */
    size_t stack_bytes = 0;
    void *fake_stack = nullptr;
    fiber *next_idle = nullptr;
#ifdef NEO_EMU_UCONTEXT
    ucontext_t context;
#endif
#ifdef NEO_EMU_TSAN
    void *tsan = nullptr;
#endif
};

#ifndef NEO_EMU_UCONTEXT
/* neo_emu_switch(save, to): push what the callee keeps, store sp in *save, take sp = to, pop,
   return there. */
extern "C" void neo_emu_switch(void **save, void *to);
#if defined(__x86_64__)
asm(R"(
    .pushsection .text.neo_emu_switch,"axG",@progbits,neo_emu_switch,comdat
    .weak neo_emu_switch
    .type neo_emu_switch,@function
neo_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmpq *%rcx
    .size neo_emu_switch,.-neo_emu_switch
    .popsection
)");
enum { SAVED_WORDS = 8, ENTRY_WORD = 6 };
#else
asm(R"(
    .pushsection .text.neo_emu_switch,"axG",%progbits,neo_emu_switch,comdat
    .weak neo_emu_switch
    .type neo_emu_switch,%function
neo_emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size neo_emu_switch,.-neo_emu_switch
    .popsection
)");
enum { SAVED_WORDS = 20, ENTRY_WORD = 11 };
#endif
#endif

constexpr size_t STACK_BYTES = 4 * PAGE;

/* Makes the fiber start anew in fiber_main. What was on its stack is forgotten. */
inline void fiber_reset(fiber *f, size_t index) {
    unpoison((uintptr_t)f->stack, STACK_BYTES);
    f->fake_stack = nullptr;
#ifdef NEO_EMU_UCONTEXT
    (void)index;
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#ifdef NEO_EMU_TSAN
    if (f->tsan) __tsan_destroy_fiber(f->tsan);
    f->tsan = __tsan_create_fiber(0);
#endif
#else
    /* Tops differ, or the stacks of a block would fight for the same cache sets. */
    void **sp = (void **)(f->stack + STACK_BYTES - index % 64 * 64) - SAVED_WORDS;
    memset(sp, 0, SAVED_WORDS * sizeof *sp);
    sp[ENTRY_WORD] = (void *)fiber_main;
    f->sp = sp;
#endif
}
inline fiber *fiber_create(size_t index) {
    fiber *f = new fiber;
    char *p = (char *)mmap(nullptr, STACK_BYTES + PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)p == MAP_FAILED) {
        fputs("cuda_on_cpu.h: no memory for the stacks of a block\n", stderr);
        exit(1);
    }
    mprotect(p, PAGE, PROT_NONE);
    f->stack = p + PAGE;
    f->bottom = f->stack;
    f->stack_bytes = STACK_BYTES;
    fiber_reset(f, index);
    return f;
}
/* The stack of the OS thread, whose place AddressSanitizer tells the first fiber that runs after
   it. */
inline fiber *stack_to_learn;
NEO_EMU_QUICK inline void fiber_arrived(void *fake_stack) {
#ifdef NEO_EMU_ASAN
    const void *bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (stack_to_learn) {
        stack_to_learn->bottom = bottom;
        stack_to_learn->stack_bytes = bytes;
        stack_to_learn = nullptr;
    }
#else
    (void)fake_stack;
#endif
}
NEO_EMU_QUICK inline void fiber_switch(fiber *from, fiber *to) {
#ifdef NEO_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->stack_bytes);
#endif
#ifdef NEO_EMU_TSAN
    if (!from->tsan) from->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef NEO_EMU_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    neo_emu_switch(&from->sp, to->sp);
#endif
    fiber_arrived(from->fake_stack);
}

/* ---- >>block: runs the threads of a block, each on a fiber from when it first waits ---- */

enum { MOST_THREADS = 1024 };
enum lane_state : unsigned char { NOT_STARTED, RUNNING, AT_BLOCK, AT_WARP, EXITED };

enum operation : unsigned char {
    SYNCTHREADS, SYNCTHREADS_COUNT, SYNCTHREADS_AND, SYNCTHREADS_OR, SYNCWARP, SHFL, SHFL_UP,
    SHFL_DOWN, SHFL_XOR, BALLOT, ANY, ALL, MATCH_ANY, REDUCE_ADD, REDUCE_MIN_U, REDUCE_MAX_U,
    REDUCE_MIN_S, REDUCE_MAX_S, REDUCE_AND, REDUCE_OR, REDUCE_XOR
};
inline const char *operation_name(operation op) {
    static const char *const names[] = {
        "__syncthreads",     "__syncthreads_count", "__syncthreads_and", "__syncthreads_or",
        "__syncwarp",        "__shfl_sync",         "__shfl_up_sync",    "__shfl_down_sync",
        "__shfl_xor_sync",   "__ballot_sync",       "__any_sync",        "__all_sync",
        "__match_any_sync",  "__reduce_add_sync",   "__reduce_min_sync", "__reduce_max_sync",
        "__reduce_min_sync", "__reduce_max_sync",   "__reduce_and_sync", "__reduce_or_sync",
        "__reduce_xor_sync"};
    return names[op];
}
struct site { const char *file; int line; };

struct lane {
    uint3 tid;
    lane_state state;
    operation op;
    site at;
    unsigned mask;
    int width;
    uint64_t value, result;
    uint32_t argument;
    fiber *on;
};
struct launch {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    void (*invoke)(void *arguments);
    std::shared_ptr<void> arguments;
};
struct executor {
    const launch *work = nullptr;
    void *arguments = nullptr;            /* of the work */
    unsigned count = 0, next = 0, exited = 0;   /* threads of the block; started; done */
    lane *self = nullptr;
    fiber *now = nullptr;
    fiber main;
    bool failed = false;
    unsigned at_block = 0, predicates = 0, block_result = 0;
    operation block_op = SYNCTHREADS;
    site block_site = {nullptr, 0};
    lane *block_first = nullptr;
    lane lanes[MOST_THREADS];             /* whole warps; what no thread has keeps NOT_STARTED */
    uint32_t order[MOST_THREADS];
    uint32_t ready[MOST_THREADS];         /* a ring: each thread is in it once at most */
    unsigned ready_head = 0, ready_count = 0;
    std::vector<fiber *> fibers;
    fiber *idle = nullptr;                /* a list */
};
inline executor &ex = *new executor;  /* never destroyed */
inline uint3 thread_index, block_index;
inline dim3 block_size, grid_size;
inline void *dynamic_shared;

NEO_EMU_QUICK inline void switch_to(fiber *to) {
    fiber *from = ex.now;
    ex.now = to;
    fiber_switch(from, to);
}
NEO_EMU_QUICK inline void push_idle(fiber *f) {
    f->next_idle = ex.idle;
    ex.idle = f;
}
NEO_EMU_QUICK inline fiber *pop_idle() {
    fiber *f = ex.idle;
    if (f) {
        ex.idle = f->next_idle;
    } else {
        f = fiber_create(ex.fibers.size());
        ex.fibers.push_back(f);
    }
    return f;
}
NEO_EMU_QUICK inline bool any_ready() { return ex.ready_count != 0; }
NEO_EMU_QUICK inline void push_ready(const uint32_t *list, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        ex.ready[(ex.ready_head + ex.ready_count++) % MOST_THREADS] = list[i];
}
NEO_EMU_QUICK inline void run_lane(lane *l) {
    l->state = RUNNING;
    ex.self = l;
    thread_index = l->tid;
}

/* Leaves the running fiber for whoever may go on; the main one when nobody may. */
NEO_EMU_QUICK inline void schedule() {
    fiber *to = &ex.main;
    if (!ex.failed && any_ready() && (ex.next >= ex.count || !coin())) {
        lane *l = &ex.lanes[ex.ready[ex.ready_head]];
        ex.ready_head = (ex.ready_head + 1) % MOST_THREADS;
        ex.ready_count--;
        run_lane(l);
        to = l->on;
    } else if (!ex.failed && ex.next < ex.count) {
        to = pop_idle();
    }
    if (to != ex.now) switch_to(to);
}
/* A fiber runs thread after thread; one that waits keeps it, and others go on on another. */
[[noreturn]] inline void fiber_main() {
    fiber_arrived(nullptr);
    for (;;) {
        if (!ex.failed && ex.next < ex.count && (!any_ready() || coin())) {
            lane *l = &ex.lanes[ex.order[ex.next++]];
            l->on = ex.now;
            run_lane(l);
            ex.work->invoke(ex.arguments);
            ex.self->state = EXITED;
            ex.exited++;
        } else {
            push_idle(ex.now);
            schedule();
        }
    }
}

inline std::string place(const lane *l) {
    char text[320];
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", ex.work->name,
             block_index.x, block_index.y, block_index.z, l->tid.x, l->tid.y, l->tid.z);
    return text;
}
inline std::string doing(const lane *l) {
    char text[320];
    if (l->state == EXITED) return "has exited";
    if (l->state == AT_BLOCK || l->state == AT_WARP) {
        snprintf(text, sizeof text, "waits at %s (%s:%d)", operation_name(l->op), l->at.file,
                 l->at.line);
        if (l->state == AT_WARP) snprintf(text + strlen(text), 32, ", mask 0x%x", l->mask);
        return text;
    }
    return "does not wait";
}
/* Ends the launch with an error of the running thread. Does not return there. */
[[noreturn]] inline void fail_launch(const char *what) {
    report(cudaErrorLaunchFailure, "%s: %s", place(ex.self).c_str(), what);
    ex.failed = true;
    for (;;) switch_to(&ex.main);         /* its stack is forgotten: nothing on it may own memory */
}
NEO_EMU_QUICK inline bool same_site(site a, site b) {
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

NEO_EMU_QUICK inline bool arrived(const lane &l, const lane &other) {
    return other.state == AT_WARP && other.mask == l.mask && other.op == l.op &&
           same_site(other.at, l.at);
}
/* Nobody may go on, and not all have exited: say who waits for whom. */
inline void report_stuck() {
    for (unsigned i = 0; i < ex.count; i++) {
        const lane &l = ex.lanes[i];
        if (l.state != AT_WARP) continue;
        for (unsigned b = 0; b < 32; b++) {
            const lane &other = ex.lanes[(i & ~31u) + b];
            if (!(l.mask >> b & 1) || arrived(l, other)) continue;
            report(cudaErrorLaunchFailure, "%s: %s, for thread (%u,%u,%u), which %s",
                   place(&l).c_str(), doing(&l).c_str(), other.tid.x, other.tid.y, other.tid.z,
                   doing(&other).c_str());
            return;
        }
    }
    for (unsigned i = 0; i < ex.count; i++) {
        const lane &other = ex.lanes[i];
        if (other.state == AT_BLOCK) continue;
        report(cudaErrorLaunchFailure, "%s: %s, for thread (%u,%u,%u), which %s",
               place(ex.block_first).c_str(), doing(ex.block_first).c_str(), other.tid.x,
               other.tid.y, other.tid.z, doing(&other).c_str());
        return;
    }
}

/* Lanes in any order. Their warps come one after another, in any order, half of the time; else they
   interleave. */
NEO_EMU_QUICK inline void order_lanes() {
    if (!shuffled()) return;
    uint32_t *order = ex.order, warps[32], begin[32], next[MOST_THREADS];
    const unsigned count = ex.count, warp_count = (count + 31) / 32;
    shuffle(order, count);
    for (unsigned i = 0; i < warp_count; i++) warps[i] = i;
    shuffle(warps, warp_count);
    if (!coin()) return;
    for (unsigned i = 0, at = 0; i < warp_count; i++) {
        begin[warps[i]] = at;
        at += warps[i] + 1 < warp_count ? 32 : count - 32 * warps[i];
    }
    for (unsigned i = 0; i < count; i++) next[begin[order[i] / 32]++] = order[i];
    for (unsigned i = 0; i < count; i++) order[i] = next[i];
}
NEO_EMU_QUICK inline void prepare_lanes(const launch &work) {
    ex.work = &work;
    ex.count = work.block.x * work.block.y * work.block.z;
    ex.arguments = work.arguments.get();
    for (unsigned i = 0; i < (ex.count + 31) / 32 * 32; i++) {
        ex.order[i] = i;
        ex.lanes[i].state = NOT_STARTED;
        ex.lanes[i].tid = uint3{i % work.block.x, i / work.block.x % work.block.y,
                                i / work.block.x / work.block.y};
    }
}
inline void run_block(size_t shared_bytes) {
    unsigned char *from = __start_neo_shared, *to = __stop_neo_shared;
    if (from < to) fill_junk(from, (size_t)(to - from));
    fill_junk(dynamic_shared, shared_bytes);
    for (unsigned i = 0; i < ex.count; i++) ex.lanes[i].state = NOT_STARTED;
    order_lanes();
    ex.next = ex.exited = ex.at_block = ex.predicates = 0;
    ex.ready_count = 0;
    ex.failed = false;
    ex.now = &ex.main;
    switch_to(pop_idle());
    if (!ex.failed && ex.exited == ex.count) return;
    if (!ex.failed) report_stuck();
    ex.failed = true;
    ex.idle = nullptr;
    for (size_t i = 0; i < ex.fibers.size(); i++) {
        fiber_reset(ex.fibers[i], i);
        push_idle(ex.fibers[i]);
    }
}
inline cudaError_t run_launch(const launch &work) {
    enum { SHARED_RED = 64 };
    size_t red = 0;
#ifndef NEO_EMU_ASAN
    red = SHARED_RED;
#endif
    unsigned char *shared = (unsigned char *)malloc(work.shared_bytes + red);
    dynamic_shared = shared;
    memset(shared + work.shared_bytes, CANARY, red);
    prepare_lanes(work);
    block_size = work.block;
    grid_size = work.grid;
    uint64_t blocks = (uint64_t)work.grid.x * work.grid.y * work.grid.z;
    std::vector<uint32_t> order;
    if (shuffled() && blocks <= (uint64_t)1 << 22) {
        order.resize((size_t)blocks);
        for (size_t i = 0; i < order.size(); i++) order[i] = (uint32_t)i;
        shuffle(order.data(), order.size());
    }
    stack_to_learn = &ex.main;
#ifdef NEO_EMU_TSAN
    ex.main.tsan = __tsan_get_current_fiber();
#endif
    for (uint64_t i = 0; i < blocks && g().sticky == cudaSuccess; i++) {
        uint64_t b = order.empty() ? i : order[(size_t)i];
        block_index = uint3{(unsigned)(b % work.grid.x), (unsigned)(b / work.grid.x % work.grid.y),
                            (unsigned)(b / work.grid.x / work.grid.y)};
        run_block(work.shared_bytes);
        for (size_t k = 0; k < red; k++)
            if (shared[work.shared_bytes + k] != CANARY) {
                report(cudaErrorIllegalAddress,
                       "kernel %s, block (%u,%u,%u): wrote beyond its %zu bytes of dynamic "
                       "shared memory",
                       work.name, block_index.x, block_index.y, block_index.z, work.shared_bytes);
                break;
            }
    }
    free(shared);
    ex.work = nullptr;
    return g().sticky;
}

NEO_EMU_QUICK inline unsigned block_barrier(operation op, int predicate, site at) {
    lane *l = ex.self;
    l->state = AT_BLOCK;
    l->op = op;
    l->at = at;
    if (ex.at_block == 0) {
        ex.block_first = l;
        ex.block_op = op;
        ex.block_site = at;
        ex.predicates = 0;
    } else if (op != ex.block_op || !same_site(at, ex.block_site)) {
        const lane *o = ex.block_first;
        char text[400];
        snprintf(text, sizeof text, "is at %s (%s:%d), but thread (%u,%u,%u) %s",
                 operation_name(op), at.file, at.line, o->tid.x, o->tid.y, o->tid.z,
                 doing(o).c_str());
        fail_launch(text);
    }
    ex.predicates += predicate != 0;
    if (++ex.at_block == ex.count) {
        ex.at_block = 0;
        ex.block_result = ex.predicates;
        order_lanes();
        push_ready(ex.order, ex.count);
    }
    schedule();
    return ex.block_result;
}

} // namespace neo_emu

/* ---- >>threads-of-a-block ---- */

static const uint3 &threadIdx = neo_emu::thread_index;
static const uint3 &blockIdx = neo_emu::block_index;
static const dim3 &blockDim = neo_emu::block_size;
static const dim3 &gridDim = neo_emu::grid_size;
static const int warpSize = 32;

/* Where the call stands, for reports and to tell one barrier from another. */
#define NEO_EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define NEO_EMU_HERE neo_emu::site{file, line}

inline void __syncthreads(NEO_EMU_SITE) {
    neo_emu::block_barrier(neo_emu::SYNCTHREADS, 0, NEO_EMU_HERE);
}
inline int __syncthreads_count(int predicate, NEO_EMU_SITE) {
    return (int)neo_emu::block_barrier(neo_emu::SYNCTHREADS_COUNT, predicate, NEO_EMU_HERE);
}
inline int __syncthreads_and(int predicate, NEO_EMU_SITE) {
    return neo_emu::block_barrier(neo_emu::SYNCTHREADS_AND, predicate, NEO_EMU_HERE) ==
           neo_emu::ex.count;
}
inline int __syncthreads_or(int predicate, NEO_EMU_SITE) {
    return neo_emu::block_barrier(neo_emu::SYNCTHREADS_OR, predicate, NEO_EMU_HERE) != 0;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
[[noreturn]] inline void __trap() { neo_emu::fail_launch("__trap"); }

/* ---- >>warp ---- */

namespace neo_emu {

/* What lane `id` of the warp gets; all lanes of the mask have arrived. */
NEO_EMU_QUICK inline uint64_t shuffle_result(const lane *warp, unsigned id) {
    const lane &l = warp[id];
    unsigned width = (unsigned)l.width, first = id & ~(width - 1), from = id;
    if (l.op == SHFL) from = first | (l.argument & (width - 1));
    if (l.op == SHFL_UP && id >= first + l.argument) from = id - l.argument;
    if (l.op == SHFL_DOWN && (id - first) + (uint64_t)l.argument < width) from = id + l.argument;
    if (l.op == SHFL_XOR && (id ^ l.argument) < first + width) from = id ^ l.argument;
    if (from < 32 && (l.mask >> from & 1)) return warp[from].value;
    return 0xfffdfffdfffdfffdu;           /* undefined in CUDA */
}
NEO_EMU_QUICK inline uint64_t reduce(const lane *warp, unsigned mask, operation op) {
    bool first = true;
    uint32_t r = 0;
    for (unsigned b = 0; b < 32; b++) {
        if (!(mask >> b & 1)) continue;
        uint32_t v = (uint32_t)warp[b].value;
        bool less_u = v < r, less_s = (int32_t)v < (int32_t)r;
        if (first) r = v;
        else if (op == REDUCE_ADD) r += v;
        else if (op == REDUCE_AND) r &= v;
        else if (op == REDUCE_OR) r |= v;
        else if (op == REDUCE_XOR) r ^= v;
        else if (op == REDUCE_MIN_U) r = less_u ? v : r;
        else if (op == REDUCE_MAX_U) r = less_u ? r : v;
        else if (op == REDUCE_MIN_S) r = less_s ? v : r;
        else r = less_s ? r : v;
        first = false;
    }
    return r;
}
NEO_EMU_QUICK inline void complete_warp(lane *warp, unsigned mask, operation op) {
    uint64_t common = 0;
    unsigned set = 0;
    for (unsigned b = 0; b < 32; b++)
        if ((mask >> b & 1) && warp[b].value) set |= 1u << b;
    if (op == BALLOT) common = set;
    else if (op == ANY) common = set != 0;
    else if (op == ALL) common = set == mask;
    else if (op >= REDUCE_ADD) common = reduce(warp, mask, op);
    uint32_t list[32];
    unsigned count = 0;
    for (unsigned b = 0; b < 32; b++) {
        if (!(mask >> b & 1)) continue;
        list[count++] = (uint32_t)(warp + b - ex.lanes);
        lane &l = warp[b];
        l.result = common;
        if (op >= SHFL && op <= SHFL_XOR) l.result = shuffle_result(warp, b);
        if (op == MATCH_ANY) {
            for (unsigned c = 0; c < 32; c++)
                if ((mask >> c & 1) && warp[c].value == l.value) l.result |= 1u << c;
        }
    }
    shuffle(list, count);
    push_ready(list, count);
    for (unsigned i = 0; i < count; i++) ex.lanes[list[i]].state = RUNNING;
}
/* Waits for all lanes of the mask at the same line; those that are there already stay asleep until
   then. */
NEO_EMU_QUICK inline uint64_t warp_barrier(operation op, unsigned mask, uint64_t value,
                                           uint32_t argument, int width, site at) {
    lane *l = ex.self;
    unsigned index = (unsigned)(l - ex.lanes), id = index & 31;
    l->op = op;
    l->at = at;
    l->mask = mask;
    l->value = value;
    l->argument = argument;
    l->width = width;
    char text[200];
    if (!(mask >> id & 1) || width < 1 || width > 32 || (width & (width - 1))) {
        snprintf(text, sizeof text,
                 "%s (%s:%d), mask 0x%x, width %d: the mask lacks the thread's own lane, or the "
                 "width is no power of two up to 32",
                 operation_name(op), at.file, at.line, mask, width);
        fail_launch(text);
    }
    l->state = AT_WARP;
    lane *warp = l - id;
    for (unsigned b = 32; b-- > 0;) {
        if (!(mask >> b & 1) || arrived(*l, warp[b])) continue;
        if ((index & ~31u) + b >= ex.count) {
            snprintf(text, sizeof text,
                     "%s (%s:%d): lane %u of mask 0x%x does not exist in a block of %u threads",
                     operation_name(op), at.file, at.line, b, mask, ex.count);
            fail_launch(text);
        }
        schedule();
        return l->result;
    }
    complete_warp(warp, mask, op);
    schedule();
    return l->result;
}
template <class T> uint64_t to_bits(T v) {
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "a 32- or 64-bit number");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    return bits;
}
template <class T> T from_bits(uint64_t bits) {
    T v;
    memcpy(&v, &bits, sizeof v);          /* the low bytes: the machines are little-endian */
    return v;
}
constexpr unsigned low_lanes(unsigned count) { return count >= 32 ? ~0u : (1u << count) - 1; }

} // namespace neo_emu

inline void __syncwarp(unsigned mask = 0xffffffffu, NEO_EMU_SITE) {
    neo_emu::warp_barrier(neo_emu::SYNCWARP, mask, 0, 0, 32, NEO_EMU_HERE);
}
template <class T> T __shfl_sync(unsigned mask, T var, int srcLane, int width = 32, NEO_EMU_SITE) {
    return neo_emu::from_bits<T>(neo_emu::warp_barrier(neo_emu::SHFL, mask, neo_emu::to_bits(var),
                                                       (uint32_t)srcLane, width, NEO_EMU_HERE));
}
template <class T>
T __shfl_up_sync(unsigned mask, T var, unsigned delta, int width = 32, NEO_EMU_SITE) {
    return neo_emu::from_bits<T>(neo_emu::warp_barrier(
        neo_emu::SHFL_UP, mask, neo_emu::to_bits(var), delta, width, NEO_EMU_HERE));
}
template <class T>
T __shfl_down_sync(unsigned mask, T var, unsigned delta, int width = 32, NEO_EMU_SITE) {
    return neo_emu::from_bits<T>(neo_emu::warp_barrier(
        neo_emu::SHFL_DOWN, mask, neo_emu::to_bits(var), delta, width, NEO_EMU_HERE));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T var, int laneMask, int width = 32, NEO_EMU_SITE) {
    return neo_emu::from_bits<T>(neo_emu::warp_barrier(
        neo_emu::SHFL_XOR, mask, neo_emu::to_bits(var), (uint32_t)laneMask, width, NEO_EMU_HERE));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, NEO_EMU_SITE) {
    return (unsigned)neo_emu::warp_barrier(neo_emu::BALLOT, mask, predicate != 0, 0, 32,
                                           NEO_EMU_HERE);
}
inline int __any_sync(unsigned mask, int predicate, NEO_EMU_SITE) {
    return (int)neo_emu::warp_barrier(neo_emu::ANY, mask, predicate != 0, 0, 32, NEO_EMU_HERE);
}
inline int __all_sync(unsigned mask, int predicate, NEO_EMU_SITE) {
    return (int)neo_emu::warp_barrier(neo_emu::ALL, mask, predicate != 0, 0, 32, NEO_EMU_HERE);
}
template <class T> unsigned __match_any_sync(unsigned mask, T value, NEO_EMU_SITE) {
    return (unsigned)neo_emu::warp_barrier(neo_emu::MATCH_ANY, mask, neo_emu::to_bits(value), 0, 32,
                                           NEO_EMU_HERE);
}
/* Threads of a warp need not run together, so that a thread may find itself alone. */
inline unsigned __activemask() {
    return 1u << ((neo_emu::ex.self - neo_emu::ex.lanes) & 31);
}

#define NEO_EMU_REDUCE(name, type, op)                                                             \
    inline type name(unsigned mask, type value, NEO_EMU_SITE) {                                    \
        return (type)(uint32_t)neo_emu::warp_barrier(neo_emu::op, mask, (uint32_t)value, 0, 32,    \
                                                     NEO_EMU_HERE);                                \
    }
NEO_EMU_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
NEO_EMU_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
NEO_EMU_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN_U)
NEO_EMU_REDUCE(__reduce_min_sync, int, REDUCE_MIN_S)
NEO_EMU_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX_U)
NEO_EMU_REDUCE(__reduce_max_sync, int, REDUCE_MAX_S)
NEO_EMU_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
NEO_EMU_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
NEO_EMU_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)

/* ---- >>atomics: threads run one at a time, so that a plain update is one ---- */

#define NEO_EMU_ATOMIC(name, type, update)                                                         \
    inline type name(type *address, type val) {                                                    \
        type old = *address;                                                                       \
        *address = (type)(update);                                                                 \
        return old;                                                                                \
    }
#define NEO_EMU_ATOMICS(name, update)                                                              \
    NEO_EMU_ATOMIC(name, unsigned int, update)                                                     \
    NEO_EMU_ATOMIC(name, unsigned long long, update)
inline int atomicAdd(int *address, int val) {
    int old = *address;
    *address = (int)((unsigned)old + (unsigned)val);
    return old;
}
NEO_EMU_ATOMICS(atomicAdd, old + val)
/* Their order would show in the bits of the sum. */
float atomicAdd(float *address, float val) = delete;
double atomicAdd(double *address, double val) = delete;
inline int atomicSub(int *address, int val) {
    int old = *address;
    *address = (int)((unsigned)old - (unsigned)val);
    return old;
}
NEO_EMU_ATOMIC(atomicSub, unsigned int, old - val)
NEO_EMU_ATOMIC(atomicMax, int, old > val ? old : val)
NEO_EMU_ATOMIC(atomicMax, long long, old > val ? old : val)
NEO_EMU_ATOMICS(atomicMax, old > val ? old : val)
NEO_EMU_ATOMIC(atomicMin, int, old < val ? old : val)
NEO_EMU_ATOMIC(atomicMin, long long, old < val ? old : val)
NEO_EMU_ATOMICS(atomicMin, old < val ? old : val)
NEO_EMU_ATOMIC(atomicAnd, int, old & val)
NEO_EMU_ATOMICS(atomicAnd, old & val)
NEO_EMU_ATOMIC(atomicOr, int, old | val)
NEO_EMU_ATOMICS(atomicOr, old | val)
NEO_EMU_ATOMIC(atomicXor, int, old ^ val)
NEO_EMU_ATOMICS(atomicXor, old ^ val)
NEO_EMU_ATOMIC(atomicExch, int, val)
NEO_EMU_ATOMIC(atomicExch, float, val)
NEO_EMU_ATOMICS(atomicExch, val)
NEO_EMU_ATOMIC(atomicInc, unsigned int, old >= val ? 0 : old + 1)
#define NEO_EMU_CAS(type)                                                                          \
    inline type atomicCAS(type *address, type compare, type val) {                                 \
        type old = *address;                                                                       \
        if (old == compare) *address = val;                                                        \
        return old;                                                                                \
    }
NEO_EMU_CAS(int)
NEO_EMU_CAS(unsigned int)
NEO_EMU_CAS(unsigned long long)

template <class T> T __ldg(const T *ptr) { return *ptr; }
template <class T> T __ldcs(const T *ptr) { return *ptr; }
template <class T> T __ldcg(const T *ptr) { return *ptr; }
template <class T> T __ldca(const T *ptr) { return *ptr; }
template <class T> void __stcs(T *ptr, T value) { *ptr = value; }
template <class T> void __stcg(T *ptr, T value) { *ptr = value; }
template <class T> void __stwt(T *ptr, T value) { *ptr = value; }

/* ---- >>bits ---- */

inline int __popc(unsigned int v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned int __brev(unsigned int v) {
    unsigned int r = 0;
    for (int i = 0; i < 32; i++) r |= (v >> i & 1u) << (31 - i);
    return r;
}
inline unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    const uint64_t low = 0xffffffffu;
    uint64_t mid = (a & low) * (b >> 32) + ((a & low) * (b & low) >> 32);
    uint64_t mid2 = (a >> 32) * (b & low) + (mid & low);
    return (a >> 32) * (b >> 32) + (mid >> 32) + (mid2 >> 32);
}
inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) << (shift & 31) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}

namespace neo_emu {
template <class To, class From> To as(From v) {
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To r;
    memcpy(&r, &v, sizeof r);
    return r;
}
} // namespace neo_emu
inline unsigned int __float_as_uint(float v) { return neo_emu::as<unsigned int>(v); }
inline int __float_as_int(float v) { return neo_emu::as<int>(v); }
inline float __uint_as_float(unsigned int v) { return neo_emu::as<float>(v); }
inline float __int_as_float(int v) { return neo_emu::as<float>(v); }
inline long long __double_as_longlong(double v) { return neo_emu::as<long long>(v); }
inline double __longlong_as_double(long long v) { return neo_emu::as<double>(v); }

/* ---- >>arithmetic: rounded once each ---- */

namespace neo_emu {
/* The compiler does not see through it, and so cannot contract what is on both sides. */
template <class T> T exact(T v) {
#if defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#else
    volatile T kept = v;
    v = kept;
#endif
    return v;
}
/* As a device converts: out of range gives the nearest; NaN gives 0 as 32 bits, the top bit alone
   as 64. */
template <class To, class From> To to_integer(From v) {
    typedef std::numeric_limits<To> limits;
    if (v != v) return sizeof(To) == 4 ? To(0) : (To)((uint64_t)1 << 63);
    From above = ldexp(From(1), limits::digits);
    if (v >= above) return limits::max();
    if (limits::is_signed ? v < -above : v < From(0)) return limits::min();
    return (To)v;
}
} // namespace neo_emu

inline float __fadd_rn(float a, float b) { return neo_emu::exact(a + b); }
inline float __fsub_rn(float a, float b) { return neo_emu::exact(a - b); }
inline float __fmul_rn(float a, float b) { return neo_emu::exact(a * b); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return neo_emu::exact(a / b); }
inline float __fsqrt_rn(float a) { return neo_emu::exact(sqrtf(a)); }
inline float __frcp_rn(float a) { return neo_emu::exact(1.0f / a); }
inline double __dadd_rn(double a, double b) { return neo_emu::exact(a + b); }
inline double __dsub_rn(double a, double b) { return neo_emu::exact(a - b); }
inline double __dmul_rn(double a, double b) { return neo_emu::exact(a * b); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __ddiv_rn(double a, double b) { return neo_emu::exact(a / b); }
inline double __dsqrt_rn(double a) { return neo_emu::exact(sqrt(a)); }
inline double __drcp_rn(double a) { return neo_emu::exact(1.0 / a); }

#define NEO_EMU_TO_INT(from, short_name, name, type)                                               \
    inline type __##from##2##short_name##_rn(from v) {                                             \
        return neo_emu::to_integer<type>(rint(v));                                                 \
    }                                                                                              \
    inline type __##from##2##short_name##_rz(from v) {                                             \
        return neo_emu::to_integer<type>(trunc(v));                                                \
    }                                                                                              \
    inline type __##from##2##short_name##_rd(from v) {                                             \
        return neo_emu::to_integer<type>(floor(v));                                                \
    }                                                                                              \
    inline type __##from##2##short_name##_ru(from v) { return neo_emu::to_integer<type>(ceil(v)); }
NEO_EMU_TO_INT(float, int, int, int)
NEO_EMU_TO_INT(float, uint, uint, unsigned int)
NEO_EMU_TO_INT(float, ll, ll, long long)
NEO_EMU_TO_INT(float, ull, ull, unsigned long long)
NEO_EMU_TO_INT(double, int, int, int)
NEO_EMU_TO_INT(double, uint, uint, unsigned int)
NEO_EMU_TO_INT(double, ll, ll, long long)
NEO_EMU_TO_INT(double, ull, ull, unsigned long long)
inline float __int2float_rn(int v) { return (float)v; }
inline float __uint2float_rn(unsigned int v) { return (float)v; }
inline float __ll2float_rn(long long v) { return (float)v; }
inline float __ull2float_rn(unsigned long long v) { return (float)v; }
inline float __double2float_rn(double v) { return (float)v; }
inline double __int2double_rn(int v) { return v; }
inline double __uint2double_rn(unsigned int v) { return v; }
inline double __ll2double_rn(long long v) { return (double)v; }
inline double __ull2double_rn(unsigned long long v) { return (double)v; }

#define NEO_EMU_MINMAX(type)                                                                       \
    inline type min(type a, type b) { return b < a ? b : a; }                                      \
    inline type max(type a, type b) { return a < b ? b : a; }
NEO_EMU_MINMAX(int)
NEO_EMU_MINMAX(unsigned int)
NEO_EMU_MINMAX(long)
NEO_EMU_MINMAX(unsigned long)
NEO_EMU_MINMAX(long long)
NEO_EMU_MINMAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline float rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }

/* ---- >>half ---- */

struct __half { unsigned short neo_emu_bits; };
struct __nv_bfloat16 { unsigned short neo_emu_bits; };
struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

namespace neo_emu {
/* To nearest even; NaN becomes the device's 0x7fff. */
inline uint16_t half_of(float v) {
    uint32_t b = as<uint32_t>(v), sign = b >> 16 & 0x8000u;
    b &= 0x7fffffffu;
    if (b > 0x7f800000u) return 0x7fff;
    if (b >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);   /* 65520 and more */
    if (b < 0x38800000u) {                                      /* subnormal: in units of 2^-24 */
        uint32_t shift = 126 - (b >> 23), m = (b & 0x7fffffu) | 0x800000u;
        if (b < 0x33000000u) return (uint16_t)sign;
        uint32_t r = m >> shift, rest = m & ((1u << shift) - 1), tie = 1u << (shift - 1);
        r += rest > tie || (rest == tie && (r & 1));
        return (uint16_t)(sign | r);
    }
    b += 0xfffu + (b >> 13 & 1);
    return (uint16_t)(sign | ((b >> 13) - (112u << 10)));
}
inline float float_of_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 0) {
        float tiny = (float)m * 0x1p-24f;
        return sign ? -tiny : tiny;
    }
    if (e == 31) return as<float>(sign | 0x7f800000u | m << 13);
    return as<float>(sign | (e + 112) << 23 | m << 13);
}
inline uint16_t bfloat_of(float v) {
    uint32_t b = as<uint32_t>(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
inline float float_of_bfloat(uint16_t h) { return as<float>((uint32_t)h << 16); }
} // namespace neo_emu

inline __half __float2half_rn(float a) { return __half{neo_emu::half_of(a)}; }
inline __half __float2half(float a) { return __float2half_rn(a); }
inline float __half2float(__half a) { return neo_emu::float_of_half(a.neo_emu_bits); }
inline unsigned short __half_as_ushort(__half a) { return a.neo_emu_bits; }
inline __half __ushort_as_half(unsigned short a) { return __half{a}; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16{neo_emu::bfloat_of(a)}; }
inline __nv_bfloat16 __float2bfloat16(float a) { return __float2bfloat16_rn(a); }
inline float __bfloat162float(__nv_bfloat16 a) { return neo_emu::float_of_bfloat(a.neo_emu_bits); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.neo_emu_bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16{a}; }

/* ---- >>tensor-cores: what PTX has no C function for. All lanes of a warp come ---- */

namespace neo_emu {
/* What the lanes of each warp show each other between two barriers. */
inline const void *shown[32][32];
inline const void *const *show(const void *mine, unsigned *id, site at) {
    const unsigned index = (unsigned)(ex.self - ex.lanes);
    *id = index & 31;
    shown[index / 32][*id] = mine;
    warp_barrier(SYNCWARP, ~0u, 0, 0, 32, at);
    return shown[index / 32];
}
} // namespace neo_emu

/* mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: c += a b. Sums add in order of k; a device
   adds in an order of its own, with a little less than f32. */
inline void neo_emu_mma_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned *b,
                             NEO_EMU_SITE) {
    struct fragments { const unsigned *a, *b; } mine = {a, b};
    unsigned id;
    const void *const *warp = neo_emu::show(&mine, &id, NEO_EMU_HERE);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = id / 4 + i / 2 * 8, col = id % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k += 2) {
            const unsigned of = k % 8 / 2;
            const unsigned x = ((const fragments *)warp[row % 8 * 4 + of])->a[row / 8 + k / 8 * 2];
            const unsigned y = ((const fragments *)warp[col * 4 + of])->b[k / 8];
            c[i] += neo_emu::as<float>(x << 16) * neo_emu::as<float>(y << 16); /* exact products */
            c[i] += neo_emu::as<float>(x & ~0xffffu) * neo_emu::as<float>(y & ~0xffffu);
        }
    }
    neo_emu::warp_barrier(neo_emu::SYNCWARP, ~0u, 0, 0, 32, NEO_EMU_HERE);
}
/* ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: lane l gives the address of row l % 8 of matrix
   l / 8, a multiple of 16. */
inline void neo_emu_ldmatrix(unsigned (&to)[4], const void *row, bool trans, NEO_EMU_SITE) {
    unsigned id;
    if ((uintptr_t)row % 16) neo_emu::fail_launch("ldmatrix: a row at no multiple of 16 bytes");
    const void *const *warp = neo_emu::show(row, &id, NEO_EMU_HERE);
    for (unsigned m = 0; m < 4; m++) {
        const unsigned at = id / 4, pair = id % 4 * 2;
        unsigned half[2];
        for (unsigned i = 0; i < 2; i++)
            half[i] = trans ? ((const uint16_t *)warp[8 * m + pair + i])[at]
                            : ((const uint16_t *)warp[8 * m + at])[pair + i];
        to[m] = half[0] | half[1] << 16;
    }
    neo_emu::warp_barrier(neo_emu::SYNCWARP, ~0u, 0, 0, 32, NEO_EMU_HERE);
}

/* ---- >>queue: what streams hold, and the engine that runs it ---- */

namespace neo_emu {

inline CUstream_st *find_stream(cudaStream_t stream) {
    if (stream == nullptr || stream == cudaStreamLegacy) return &g().legacy;
    for (CUstream_st *s : g().streams)
        if (s == stream && !s->destroyed) return s;
    return nullptr;
}
/* The head of the queue may run: its event has happened, and the NULL stream and the blocking
   streams take turns in the order of the calls. */
inline bool may_run(CUstream_st *s) {
    if (s->queue.empty()) return false;
    const queued &q = s->queue.front();
    if ((q.wait && q.wait->done < q.version) || (q.may && !q.may())) return false;
    if (s != &g().legacy)
        return (s->flags & cudaStreamNonBlocking) || g().legacy.queue.empty() ||
               g().legacy.queue.front().number > q.number;
    for (CUstream_st *o : g().streams)
        if (!(o->flags & cudaStreamNonBlocking) && !o->queue.empty() &&
            o->queue.front().number < q.number)
            return false;
    return true;
}
inline void drop_queues() {
    for (size_t i = 0; i <= g().streams.size(); i++)
        (i ? g().streams[i - 1] : &g().legacy)->queue.clear();
    for (CUevent_st *e : g().events) e->data->done = e->data->asked;
}
/* Runs one task of whichever stream may; false if none may. `first`: with a seed, prefer this
   stream (or NULL). */
inline bool run_one(CUstream_st *first) {
    state &s = g();
    std::vector<CUstream_st *> able;
    if (may_run(&s.legacy)) able.push_back(&s.legacy);
    for (CUstream_st *o : s.streams)
        if (may_run(o)) able.push_back(o);
    if (able.empty()) return false;
    CUstream_st *chosen = able[pick(able.size())];
    const bool its = first && std::find(able.begin(), able.end(), first) != able.end();
    if (its) chosen = first;
    if (!shuffled() && !(its && s.lazy))
        for (CUstream_st *o : able)
            if (o->queue.front().number < chosen->queue.front().number) chosen = o;
    queued q = std::move(chosen->queue.front());
    chosen->queue.pop_front();
    if (s.sticky == cudaSuccess && q.run) {
        cudaError_t e = q.run();
        if (e != cudaSuccess && s.sticky == cudaSuccess) s.sticky = e;
    }
    if (s.sticky != cudaSuccess) drop_queues();
    return true;
}
/* Work that another thread has not queued yet, as kernels of NCCL wait for those of other ranks:
   how often a wait of the host sleeps for it, 50 us each; then it comes no more. */
enum { NAPS = 400000 };
template <class Done> cudaError_t run_until(CUstream_st *stream, Done done);
/* The same, until it is so. The lock is held once. */
template <class Done> cudaError_t wait_until(CUstream_st *stream, Done done) {
    for (int nap = 0; nap < NAPS; nap++) {
        const cudaError_t e = run_until(stream, done);
        if (e != cudaSuccess || done()) return e;
        g().lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        g().lock.lock();
        if (g().sticky != cudaSuccess) return g().sticky;
    }
    return report(cudaErrorLaunchFailure, "a wait without an end: what a stream waits for does "
                                          "not come");
}
/* Runs queued work until done() holds, or none may run. With a seed either lazily, preferring one
   stream, or any mixture, and then now and then all the rest. */
template <class Done> cudaError_t run_until(CUstream_st *stream, Done done) {
    state &s = g();
    if (s.running) return cudaErrorNotPermitted;
    if (done()) return s.sticky;
    s.running = true;
    open_memory();
    CUstream_st *prefer = s.lazy ? stream : nullptr;
    if (!s.lazy && shuffled() && coin()) {
        prefer = stream;
        if (coin() && !s.streams.empty()) prefer = s.streams[pick(s.streams.size())];
    }
    while (!done())
        if (!run_one(prefer)) break;
    if (!s.lazy && shuffled() && coin())   /* the device has gone on before the host looks */
        while (run_one(nullptr)) {}
    if (s.sticky == cudaSuccess) check_all_red_zones("after queued work");
    shut_memory();
    s.running = false;
    for (size_t i = s.streams.size(); i-- > 0;)
        if (s.streams[i]->destroyed && s.streams[i]->queue.empty()) {
            delete s.streams[i];
            s.streams.erase(s.streams.begin() + (ptrdiff_t)i);
        }
    return s.sticky;
}
inline cudaError_t run_stream(CUstream_st *stream) {
    return wait_until(stream, [stream] { return stream->queue.empty(); });
}
inline cudaError_t run_everything() {
    return run_until(nullptr, [] {
        for (CUstream_st *o : g().streams)
            if (!o->queue.empty()) return false;
        return g().legacy.queue.empty();
    });
}

inline cudaError_t invalidate(capture &c, cudaError_t e) {
    c.invalid = true;
    return e;
}
/* A call that could wait for work, or allocate, while a capture forbids it. */
inline cudaError_t check_unsafe() {
    for (auto &c : g().captures) {
        bool mine = c->thread == std::this_thread::get_id();
        if (c->mode == cudaStreamCaptureModeRelaxed || thread_mode == cudaStreamCaptureModeRelaxed)
            continue;
        if (!mine && (c->mode == cudaStreamCaptureModeThreadLocal ||
                      thread_mode != cudaStreamCaptureModeGlobal))
            continue;
        return invalidate(*c, cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}
/* Puts work on a stream, or into the capture that it is in. */
inline cudaError_t put(CUstream_st *s, task run, std::shared_ptr<event_data> wait = nullptr,
                       uint64_t version = 0, std::function<bool()> may = nullptr) {
    if (s->in) {
        if (s->in->invalid) return cudaErrorStreamCaptureInvalidated;
        s->in->nodes.push_back(node{std::move(run), s->after});
        s->after.assign(1, s->in->nodes.size() - 1);
        return cudaSuccess;
    }
    if (s == &g().legacy)
        for (CUstream_st *o : g().streams)
            if (o->in && !(o->flags & cudaStreamNonBlocking))
                return invalidate(*o->in, cudaErrorStreamCaptureImplicit);
    s->queue.push_back(
        queued{g().number++, std::move(run), std::move(wait), version, std::move(may)});
    return cudaSuccess;
}
inline cudaError_t submit(cudaStream_t stream, task run, std::function<bool()> may = nullptr) {
    CUstream_st *s = find_stream(stream);
    return s ? put(s, std::move(run), nullptr, 0, std::move(may))
             : cudaErrorInvalidResourceHandle;
}

/* ---- >>launch ---- */

enum { SHARED_DEFAULT = 48 * 1024, SHARED_MOST = 227 * 1024, PARAMETER_BYTES = 32764 };

inline cudaError_t check_launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes) {
    auto it = g().max_dynamic.find(kernel);
    size_t most = it == g().max_dynamic.end()
                      ? (size_t)SHARED_DEFAULT
                      : std::max((size_t)it->second, (size_t)SHARED_DEFAULT);
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return cudaErrorInvalidConfiguration;
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (block.x > 1024 || block.y > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
    if ((uint64_t)block.x * block.y * block.z > MOST_THREADS) return cudaErrorInvalidConfiguration;
    return shared_bytes > most ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t check_pointer(const char *kernel, size_t index, const void *p) {
    if (!p || is_pinned(p) || find_block(p, 0)) return cudaSuccess;
    return report(cudaErrorIllegalAddress, "kernel %s: argument %zu points to %s", kernel, index,
                  is_device(p) ? "device memory that is not allocated"
                               : "memory of the host that is not pinned");
}
template <class T> cudaError_t check_argument(const char *kernel, size_t index, const T &value) {
    if constexpr (std::is_pointer<T>::value &&
                  !std::is_function<typename std::remove_pointer<T>::type>::value)
        return check_pointer(kernel, index, (const void *)value);
    else
        return (void)kernel, (void)index, (void)value, cudaSuccess;
}
template <class Tuple, size_t... I>
cudaError_t check_arguments(const char *kernel, const Tuple &t, std::index_sequence<I...>) {
    (void)t;
    (void)kernel;
    cudaError_t e = cudaSuccess;
    (void)(((e = check_argument(kernel, I, std::get<I>(t))) == cudaSuccess) && ...);
    return e;
}

template <class... P> struct launcher {
    const char *name;
    void (*kernel)(P...);
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;

    struct arguments {
        void (*kernel)(P...);
        std::tuple<typename std::decay<P>::type...> values;
    };
    static void invoke(void *p) {
        arguments *a = static_cast<arguments *>(p);
        std::apply(a->kernel, a->values);
    }
    template <class... A> cudaError_t queue(A &&...values) {
        static_assert((std::is_trivially_copyable<typename std::decay<P>::type>::value && ...),
                      "arguments of kernels are copied as bytes");
        static_assert((sizeof(typename std::decay<P>::type) + ... + 0) <= PARAMETER_BYTES,
                      "arguments too big");
        static_assert(!(std::is_reference<P>::value || ...), "a kernel takes no references");
        NEO_EMU_ENTER(cudaErrorLaunchOutOfResources);
        NEO_EMU_TRY(check_launch((const void *)kernel, grid, block, shared_bytes));
        std::shared_ptr<arguments> a(
            new arguments{kernel, {static_cast<P>(std::forward<A>(values))...}});
        launch work{name, grid, block, shared_bytes, &launcher::invoke, a};
        return give(submit(stream, [work, a]() -> cudaError_t {
            cudaError_t e = check_arguments(work.name, a->values, std::index_sequence_for<P...>());
            return e != cudaSuccess ? e : run_launch(work);
        }));
    }
    template <class... A> void operator()(A &&...values) {
        (void)queue(std::forward<A>(values)...);
    }
};
/* CUDA finds the types of a kernel's parameters by the kernel; here it is made known before it is a
   node of a graph. make: a launch with copies of what the parameters point to now. */
struct known_kernel {
    virtual ~known_kernel() {}
    virtual task make(dim3 grid, dim3 block, size_t shared_bytes, void **values) = 0;
};
template <class... P> struct known_kernel_of : known_kernel {
    const char *name;
    void (*kernel)(P...);
    template <size_t... I>
    task copied(dim3 grid, dim3 block, size_t shared_bytes, void **values,
                std::index_sequence<I...>) {
        typedef typename launcher<P...>::arguments arguments;
        (void)values;
        std::shared_ptr<arguments> a(
            new arguments{kernel, {*static_cast<typename std::decay<P>::type *>(values[I])...}});
        launch work{name, grid, block, shared_bytes, &launcher<P...>::invoke, a};
        return [work, a]() -> cudaError_t {
            cudaError_t e = check_arguments(work.name, a->values, std::index_sequence_for<P...>());
            return e != cudaSuccess ? e : run_launch(work);
        };
    }
    task make(dim3 grid, dim3 block, size_t shared_bytes, void **values) override {
        return copied(grid, block, shared_bytes, values, std::index_sequence_for<P...>());
    }
};
template <class... P> void know_kernel(const char *name, void (*kernel)(P...)) {
    NEO_EMU_LOCK;
    known_kernel *&k = g().known[(const void *)kernel];
    if (k) return;
    known_kernel_of<P...> *made = new known_kernel_of<P...>;
    made->name = name;
    made->kernel = kernel;
    k = made;
}
template <class... P>
launcher<P...> make_launcher(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                             size_t shared_bytes, cudaStream_t stream) {
    return launcher<P...>{name, kernel, grid, block, shared_bytes, stream};
}

} // namespace neo_emu

/* NEO__LAUNCH, and the same of a kernel that messages call `name`. */
#define NEO__LAUNCH_AS(name, kernel, grid, block, shared_bytes, stream, ...)                       \
    neo_emu::make_launcher(name, kernel, grid, block, shared_bytes, stream)(__VA_ARGS__)
#define NEO__KNOW_KERNEL_AS(name, kernel) neo_emu::know_kernel(name, kernel)
#define NEO__LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    NEO__LAUNCH_AS(#kernel, kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
#define NEO__KNOW_KERNEL(kernel) NEO__KNOW_KERNEL_AS(#kernel, kernel)

inline cudaError_t cudaGetLastError() {
    NEO_EMU_LOCK;
    if (neo_emu::g().device_count == 0) return cudaErrorNoDevice;
    cudaError_t e = neo_emu::last_error != cudaSuccess ? neo_emu::last_error : neo_emu::g().sticky;
    neo_emu::last_error = cudaSuccess;
    return e;
}
inline cudaError_t cudaPeekAtLastError() {
    NEO_EMU_LOCK;
    if (neo_emu::g().device_count == 0) return cudaErrorNoDevice;
    return neo_emu::last_error != cudaSuccess ? neo_emu::last_error : neo_emu::g().sticky;
}

template <class T> cudaError_t cudaFuncSetAttribute(T *func, cudaFuncAttribute attr, int value) {
    NEO_EMU_ENTER();
    if (!func || value < (attr == cudaFuncAttributePreferredSharedMemoryCarveout ? -1 : 0))
        return neo_emu::give(cudaErrorInvalidValue);
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value > neo_emu::SHARED_MOST) return neo_emu::give(cudaErrorInvalidValue);
        neo_emu::g().max_dynamic[(const void *)func] = value;
    }
    return cudaSuccess;
}
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA,
        maxDynamicSharedSizeBytes;
};
template <class T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, T *func) {
    NEO_EMU_ENTER();
    if (!attr || !func) return neo_emu::give(cudaErrorInvalidValue);
    auto it = neo_emu::g().max_dynamic.find((const void *)func);
    *attr = cudaFuncAttributes();
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->ptxVersion = attr->binaryVersion = 90;
    attr->maxDynamicSharedSizeBytes =
        it == neo_emu::g().max_dynamic.end() ? neo_emu::SHARED_DEFAULT : it->second;
    return cudaSuccess;
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, T func, int blockSize,
                                                          size_t dynamicSMemSize) {
    NEO_EMU_ENTER();
    if (!numBlocks || blockSize < 1) return neo_emu::give(cudaErrorInvalidValue);
    bool fits = neo_emu::check_launch((const void *)func, 1, (unsigned)blockSize,
                                      dynamicSMemSize) == cudaSuccess;
    int by_shared = (int)((size_t)(228 * 1024) / (dynamicSMemSize + 1024));
    *numBlocks = fits ? std::min(std::min(32, 2048 / ((blockSize + 31) / 32 * 32)), by_shared) : 0;
    return cudaSuccess;
}
/* NVTX: ranges of one thread are counted. */
#define NVTX_VERSION 3
namespace neo_emu {
struct range_counts { int64_t open = 0; std::map<std::string, int64_t> begun; };
inline range_counts &ranges() { static range_counts counts; return counts; }
} // namespace neo_emu
inline int nvtxRangePushA(const char *message) {
    neo_emu::ranges().begun[message]++;
    return (int)neo_emu::ranges().open++;
}
inline int nvtxRangePop() { return (int)--neo_emu::ranges().open; }

inline cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData) {
    NEO_EMU_ENTER();
    if (!fn) return neo_emu::give(cudaErrorInvalidValue);
    return neo_emu::give(neo_emu::submit(stream, [fn, userData] {
        neo_emu::state &s = neo_emu::g();
        s.in_host_function = true;        /* it may neither call CUDA nor touch device memory */
        neo_emu::protect(PROT_NONE);
        fn(userData);
        neo_emu::protect(PROT_READ | PROT_WRITE);
        s.in_host_function = false;
        return cudaSuccess;
    }));
}

/* ---- >>allocation ---- */

namespace neo_emu {
inline cudaError_t allocate(void **out, size_t bytes) {
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    *out = device_allocate(bytes);
    if (!*out && run_everything() == cudaSuccess) *out = device_allocate(bytes); /* queued frees */
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}
} // namespace neo_emu

inline cudaError_t cudaMalloc(void **devPtr, size_t size) {
    NEO_EMU_ENTER(cudaErrorMemoryAllocation);
    if (!devPtr) return neo_emu::give(cudaErrorInvalidValue);
    NEO_EMU_TRY(neo_emu::check_unsafe());
    return neo_emu::give(neo_emu::allocate(devPtr, size));
}
template <class T> cudaError_t cudaMalloc(T **devPtr, size_t size) {
    return cudaMalloc((void **)(void *)devPtr, size);
}
/* Waits for the device. After an error it still frees, and returns the error. */
inline cudaError_t cudaFree(void *devPtr) {
    NEO_EMU_LOCK;
    neo_emu::state &s = neo_emu::g();
    if (s.device_count == 0) return neo_emu::give(cudaErrorNoDevice);
    if (s.in_host_function) return neo_emu::give(cudaErrorNotPermitted);
    if (!devPtr) return cudaSuccess;
    NEO_EMU_TRY(neo_emu::check_unsafe());
    neo_emu::run_everything();
    if (!s.live.count((uintptr_t)devPtr)) return neo_emu::give(cudaErrorInvalidValue);
    neo_emu::device_release((uintptr_t)devPtr);
    return neo_emu::give(s.sticky);
}
inline cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream) {
    NEO_EMU_ENTER(cudaErrorMemoryAllocation);
    CUstream_st *s = neo_emu::find_stream(hStream);
    if (!s) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (!devPtr) return neo_emu::give(cudaErrorInvalidValue);
    if (s->in) return neo_emu::give(neo_emu::invalidate(*s->in, cudaErrorStreamCaptureUnsupported));
    return neo_emu::give(neo_emu::allocate(devPtr, size));
}
template <class T> cudaError_t cudaMallocAsync(T **devPtr, size_t size, cudaStream_t hStream) {
    return cudaMallocAsync((void **)(void *)devPtr, size, hStream);
}
inline cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream) {
    NEO_EMU_LOCK;
    neo_emu::state &s = neo_emu::g();
    if (s.device_count == 0) return neo_emu::give(cudaErrorNoDevice);
    if (!devPtr) return cudaSuccess;
    if (!s.live.count((uintptr_t)devPtr)) return neo_emu::give(cudaErrorInvalidValue);
    if (s.sticky != cudaSuccess) {
        neo_emu::device_release((uintptr_t)devPtr);
        return neo_emu::give(s.sticky);
    }
    CUstream_st *stream = neo_emu::find_stream(hStream);
    if (!stream) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (stream->in)
        return neo_emu::give(neo_emu::invalidate(*stream->in, cudaErrorStreamCaptureUnsupported));
    return neo_emu::give(neo_emu::put(stream, [devPtr] {
        if (!neo_emu::g().live.count((uintptr_t)devPtr))
            return neo_emu::report(cudaErrorIllegalAddress, "cudaFreeAsync: freed before");
        neo_emu::device_release((uintptr_t)devPtr);
        return cudaSuccess;
    }));
}
inline cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags) {
    NEO_EMU_ENTER(cudaErrorMemoryAllocation);
    if (!pHost || flags > 7) return neo_emu::give(cudaErrorInvalidValue);
    NEO_EMU_TRY(neo_emu::check_unsafe());
    *pHost = nullptr;
    if (size == 0) return cudaSuccess;
    void *p = nullptr;
    if (posix_memalign(&p, 256, size) != 0) return neo_emu::give(cudaErrorMemoryAllocation);
    neo_emu::fill_junk(p, size);
    neo_emu::g().pinned[(uintptr_t)p] = size;
    *pHost = p;
    return cudaSuccess;
}
template <class T> cudaError_t cudaHostAlloc(T **pHost, size_t size, unsigned int flags) {
    return cudaHostAlloc((void **)(void *)pHost, size, flags);
}
inline cudaError_t cudaMallocHost(void **ptr, size_t size) { return cudaHostAlloc(ptr, size, 0); }
template <class T> cudaError_t cudaMallocHost(T **ptr, size_t size, unsigned int flags = 0) {
    return cudaHostAlloc((void **)(void *)ptr, size, flags);
}
inline cudaError_t cudaFreeHost(void *ptr) {
    NEO_EMU_LOCK;
    neo_emu::state &s = neo_emu::g();
    if (s.device_count == 0) return neo_emu::give(cudaErrorNoDevice);
    if (s.in_host_function) return neo_emu::give(cudaErrorNotPermitted);
    if (!ptr) return cudaSuccess;
    if (!s.pinned.count((uintptr_t)ptr)) return neo_emu::give(cudaErrorInvalidValue);
    NEO_EMU_TRY(neo_emu::check_unsafe());
    neo_emu::run_everything();
    s.pinned.erase((uintptr_t)ptr);
    free(ptr);
    return neo_emu::give(s.sticky);
}
inline cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    NEO_EMU_ENTER();
    neo_emu::state &s = neo_emu::g();
    if (free_bytes) *free_bytes = s.budget > s.used ? s.budget - s.used : 0;
    if (total) *total = s.budget;
    return cudaSuccess;
}
struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *ptr) {
    NEO_EMU_ENTER();
    if (!attributes || !ptr) return neo_emu::give(cudaErrorInvalidValue);
    *attributes = cudaPointerAttributes();
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    const neo_emu::block_of_memory *b = neo_emu::find_block(ptr, 1);
    if (b) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = b->device;
        attributes->devicePointer = const_cast<void *>(ptr);
    } else if (neo_emu::is_pinned(ptr)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = 0;
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(ptr);
    }
    return cudaSuccess;
}

/* ---- >>copies ---- */

namespace neo_emu {

/* Rows of `width` bytes; what a copy or a memset moves. */
struct area { const void *p; size_t pitch, width, height; };
inline size_t extent(const area &a) {
    return a.height && a.width ? a.pitch * (a.height - 1) + a.width : 0;
}

/* A range of device memory must lie in one live allocation. */
inline bool valid(const area &a) { return !is_device(a.p) || find_block(a.p, extent(a)); }

inline cudaError_t check_copy(const area &to, const area &from, cudaMemcpyKind kind) {
    if (!to.p || !from.p || !valid(to) || !valid(from)) return cudaErrorInvalidValue;
    if (to.width > to.pitch || from.width > from.pitch) return cudaErrorInvalidPitchValue;
    if ((unsigned)kind > (unsigned)cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (kind == cudaMemcpyDefault) return cudaSuccess;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    /* Pinned memory is a device's too. */
    if (is_device(to.p) ? !to_device : to_device && !is_pinned(to.p)) return cudaErrorInvalidValue;
    if (is_device(from.p) ? !from_device : from_device && !is_pinned(from.p))
        return cudaErrorInvalidValue;
    return cudaSuccess;
}
inline cudaError_t run_copy(const area &to, const area &from) {
    if (!valid(to) || !valid(from))
        return report(cudaErrorIllegalAddress,
                      "a queued copy of %zu bytes: its device memory has been freed", extent(to));
    for (size_t r = 0; r < to.height; r++)
        memmove((char *)const_cast<void *>(to.p) + r * to.pitch,
                (const char *)from.p + r * from.pitch, to.width);
    return cudaSuccess;
}
inline bool is_pageable(const void *p) { return !is_device(p) && !is_pinned(p); }

inline cudaError_t queue_copy(const area &to, const area &from, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    CUstream_st *s = find_stream(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (extent(to) == 0) return cudaSuccess;
    cudaError_t e = check_copy(to, from, kind);
    if (e != cudaSuccess) return e;
    bool early = !s->in && coin();
    if (early && is_pageable(from.p)) {   /* as if staged */
        std::shared_ptr<std::vector<char>> staged(new std::vector<char>(extent(from)));
        memcpy(staged->data(), from.p, staged->size());
        area copy = {staged->data(), from.pitch, from.width, from.height};
        e = put(s, [to, copy, staged] { return run_copy(to, copy); });
    } else {
        e = put(s, [to, from] { return run_copy(to, from); });
    }
    if (e == cudaSuccess && early && is_pageable(to.p)) e = run_stream(s);
    return e;
}
inline cudaError_t queue_set(const area &to, int value, cudaStream_t stream) {
    if (extent(to) == 0) return find_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
    if (to.width > to.pitch) return cudaErrorInvalidPitchValue;
    if (!to.p || !valid(to) || is_pageable(to.p)) return cudaErrorInvalidValue;
    return submit(stream, [to, value] {
        if (!valid(to))
            return report(cudaErrorIllegalAddress,
                          "a queued memset: its device memory has been freed");
        for (size_t r = 0; r < to.height; r++)
            memset((char *)const_cast<void *>(to.p) + r * to.pitch, value, to.width);
        return cudaSuccess;
    });
}
} // namespace neo_emu

inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr) {
    NEO_EMU_ENTER();
    return neo_emu::give(
        neo_emu::queue_copy({dst, count, count, 1}, {src, count, count, 1}, kind, stream));
}
inline cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                     size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t stream = nullptr) {
    NEO_EMU_ENTER();
    return neo_emu::give(neo_emu::queue_copy({dst, dpitch, width, height},
                                             {src, spitch, width, height}, kind, stream));
}
inline cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
                                size_t width, size_t height, cudaMemcpyKind kind) {
    NEO_EMU_ENTER();
    NEO_EMU_TRY(neo_emu::check_unsafe());
    NEO_EMU_TRY(neo_emu::queue_copy({dst, dpitch, width, height}, {src, spitch, width, height},
                                    kind, nullptr));
    return neo_emu::give(neo_emu::run_stream(&neo_emu::g().legacy));
}
inline cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, cudaMemcpyKind kind) {
    return cudaMemcpy2D(dst, count, src, count, count, 1, kind);
}
inline cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count,
                                   cudaStream_t stream = nullptr) {
    NEO_EMU_ENTER();
    return neo_emu::give(neo_emu::queue_set({devPtr, count, count, 1}, value, stream));
}
inline cudaError_t cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width,
                                     size_t height, cudaStream_t stream = nullptr) {
    NEO_EMU_ENTER();
    return neo_emu::give(neo_emu::queue_set({devPtr, pitch, width, height}, value, stream));
}
/* On the NULL stream; like CUDA's it does not wait. */
inline cudaError_t cudaMemset(void *devPtr, int value, size_t count) {
    NEO_EMU_ENTER();
    NEO_EMU_TRY(neo_emu::check_unsafe());
    return neo_emu::give(neo_emu::queue_set({devPtr, count, count, 1}, value, nullptr));
}

/* ---- >>streams ---- */

inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags,
                                                int priority) {
    NEO_EMU_ENTER();
    if (!pStream || flags > cudaStreamNonBlocking) return neo_emu::give(cudaErrorInvalidValue);
    CUstream_st *s = new CUstream_st;
    s->flags = flags;
    s->priority = std::max(-5, std::min(0, priority));
    neo_emu::g().streams.push_back(s);
    *pStream = s;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags) {
    return cudaStreamCreateWithPriority(pStream, flags, 0);
}
inline cudaError_t cudaStreamCreate(cudaStream_t *pStream) {
    return cudaStreamCreateWithPriority(pStream, 0, 0);
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    NEO_EMU_ENTER();
    if (leastPriority) *leastPriority = 0;
    if (greatestPriority) *greatestPriority = -5;
    return cudaSuccess;
}
/* What is queued there still runs. */
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    NEO_EMU_LOCK;
    neo_emu::state &g = neo_emu::g();
    if (g.device_count == 0) return neo_emu::give(cudaErrorNoDevice);
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s || s == &g.legacy) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (s->in) {
        neo_emu::invalidate(*s->in, cudaErrorStreamCaptureInvalidated);
        if (s->in->origin == s)
            g.captures.erase(std::find(g.captures.begin(), g.captures.end(), s->in));
        s->in.reset();
    }
    s->destroyed = true;
    if (s->queue.empty()) {
        g.streams.erase(std::find(g.streams.begin(), g.streams.end(), s));
        delete s;
    }
    return neo_emu::give(g.sticky);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (s->in) return neo_emu::give(neo_emu::invalidate(*s->in, cudaErrorStreamCaptureUnsupported));
    NEO_EMU_TRY(neo_emu::check_unsafe());
    neo_emu::thread_waits++;
    return neo_emu::give(neo_emu::run_stream(s));
}
namespace neo_emu {
/* A query makes some progress, without a seed all that is wanted. */
template <class Done> cudaError_t query(CUstream_st *stream, Done done) {
    size_t tasks = shuffled() ? pick(3) + 1 : SIZE_MAX, ran = 0;
    cudaError_t e = run_until(stream, [&] { return ran++ >= tasks || done(); });
    return e != cudaSuccess || done() ? e : cudaErrorNotReady;
}
} // namespace neo_emu
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (s->in) return neo_emu::give(neo_emu::invalidate(*s->in, cudaErrorStreamCaptureUnsupported));
    NEO_EMU_TRY(neo_emu::check_unsafe());
    return neo_emu::give(neo_emu::query(s, [s] { return s->queue.empty(); }));
}
inline cudaError_t cudaDeviceSynchronize() {
    NEO_EMU_ENTER();
    for (auto &c : neo_emu::g().captures)
        return neo_emu::give(neo_emu::invalidate(*c, cudaErrorStreamCaptureUnsupported));
    neo_emu::thread_waits++;
    return neo_emu::give(neo_emu::run_everything());
}

/* ---- >>events ---- */

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    NEO_EMU_ENTER();
    if (!event || flags > 7) return neo_emu::give(cudaErrorInvalidValue);
    *event = new CUevent_st{flags, std::make_shared<neo_emu::event_data>()};
    neo_emu::g().events.insert(*event);
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, 0);
}
inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned int flags) {
    return cudaEventCreateWithFlags(event, flags);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    NEO_EMU_LOCK;
    if (neo_emu::g().device_count == 0) return neo_emu::give(cudaErrorNoDevice);
    if (!neo_emu::g().events.erase(event)) return neo_emu::give(cudaErrorInvalidResourceHandle);
    delete event;
    return neo_emu::give(neo_emu::g().sticky);
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s || !neo_emu::g().events.count(event))
        return neo_emu::give(cudaErrorInvalidResourceHandle);
    std::shared_ptr<neo_emu::event_data> data = event->data;
    if (s->in) {
        if (s->in->invalid) return neo_emu::give(cudaErrorStreamCaptureInvalidated);
        data->in = s->in;
        data->after = s->after;
        return cudaSuccess;
    }
    NEO_EMU_TRY(neo_emu::put(s, [data] {
        data->done++;
        data->time = std::chrono::steady_clock::now();
        return cudaSuccess;
    }));
    data->in.reset();
    data->on = s;
    data->asked++;
    return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                       unsigned int flags = 0) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s || !neo_emu::g().events.count(event))
        return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (flags) return neo_emu::give(cudaErrorInvalidValue);
    const std::shared_ptr<neo_emu::event_data> &data = event->data;
    if (!data->in) {
        if (s->in && data->asked)
            return neo_emu::give(neo_emu::invalidate(*s->in, cudaErrorStreamCaptureIsolation));
        return data->asked && !s->in ? neo_emu::give(neo_emu::put(s, nullptr, data, data->asked))
                                     : cudaSuccess;
    }
    if (data->in->invalid) return neo_emu::give(cudaErrorStreamCaptureInvalidated);
    if (std::find(neo_emu::g().captures.begin(), neo_emu::g().captures.end(), data->in) ==
        neo_emu::g().captures.end())
        return neo_emu::give(cudaErrorCapturedEvent);   /* of a capture that has ended */
    if (s == &neo_emu::g().legacy)
        return neo_emu::give(neo_emu::invalidate(*data->in, cudaErrorStreamCaptureImplicit));
    if (s->in && s->in != data->in)
        return neo_emu::give(neo_emu::invalidate(*s->in, cudaErrorStreamCaptureMerge));
    if (!s->in) s->after.clear();
    s->in = data->in;                     /* the stream joins the capture */
    for (size_t n : data->after)
        if (std::find(s->after.begin(), s->after.end(), n) == s->after.end()) s->after.push_back(n);
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().events.count(event)) return neo_emu::give(cudaErrorInvalidResourceHandle);
    neo_emu::event_data *data = event->data.get();
    if (data->in) return neo_emu::give(cudaErrorCapturedEvent);
    NEO_EMU_TRY(neo_emu::check_unsafe());
    neo_emu::thread_waits++;
    return neo_emu::give(
        neo_emu::wait_until(data->on, [data] { return data->done >= data->asked; }));
}
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().events.count(event)) return neo_emu::give(cudaErrorInvalidResourceHandle);
    neo_emu::event_data *data = event->data.get();
    if (data->in) return neo_emu::give(cudaErrorCapturedEvent);
    NEO_EMU_TRY(neo_emu::check_unsafe());
    return neo_emu::give(neo_emu::query(nullptr, [data] { return data->done >= data->asked; }));
}
inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    NEO_EMU_ENTER();
    auto &events = neo_emu::g().events;
    if (!ms) return neo_emu::give(cudaErrorInvalidValue);
    if (!events.count(start) || !events.count(end) ||
        ((start->flags | end->flags) & cudaEventDisableTiming) || !start->data->asked ||
        !end->data->asked)
        return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (start->data->done < start->data->asked || end->data->done < end->data->asked)
        return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(end->data->time - start->data->time).count();
    return cudaSuccess;
}

/* ---- >>graphs ---- */

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s) return neo_emu::give(cudaErrorInvalidResourceHandle);
    if (s == &neo_emu::g().legacy) return neo_emu::give(cudaErrorStreamCaptureUnsupported);
    if (s->in) return neo_emu::give(cudaErrorIllegalState);
    s->in = std::make_shared<neo_emu::capture>();
    s->in->mode = mode;
    s->in->origin = s;
    s->in->thread = std::this_thread::get_id();
    s->after.clear();
    neo_emu::g().captures.push_back(s->in);
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *pGraph) {
    NEO_EMU_LOCK;
    neo_emu::state &g = neo_emu::g();
    cudaError_t entered = neo_emu::enter();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (pGraph) *pGraph = nullptr;
    if (!s || !pGraph) return neo_emu::give(cudaErrorInvalidValue);
    if (!s->in) return neo_emu::give(entered != cudaSuccess ? entered : cudaErrorIllegalState);
    std::shared_ptr<neo_emu::capture> c = s->in;
    if (c->origin != s)
        return neo_emu::give(neo_emu::invalidate(*c, cudaErrorStreamCaptureUnmatched));
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return neo_emu::give(cudaErrorStreamCaptureWrongThread);
    std::vector<bool> joined(c->nodes.size(), false);
    for (size_t n : s->after) joined[n] = true;
    bool all = true;
    for (size_t n = c->nodes.size(); n-- > 0;) {   /* edges lead backwards */
        if (joined[n])
            for (size_t m : c->nodes[n].after) joined[m] = true;
        else
            all = false;
    }
    for (CUstream_st *o : g.streams)
        if (o->in == c) o->in.reset();
    g.captures.erase(std::find(g.captures.begin(), g.captures.end(), c));
    NEO_EMU_TRY(entered);                 /* a failure, too, ends the capture */
    if (c->invalid) return neo_emu::give(cudaErrorStreamCaptureInvalidated);
    c->invalid = true;                    /* for events that remember it */
    if (!all) return neo_emu::give(cudaErrorStreamCaptureUnjoined);
    *pGraph = new CUgraph_st{std::make_shared<std::vector<neo_emu::node>>(std::move(c->nodes)), {}};
    g.others.insert(*pGraph);
    return cudaSuccess;
}
/* Graphs that are put together node by node. */
inline cudaError_t cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags) {
    NEO_EMU_ENTER(cudaErrorMemoryAllocation);
    if (!pGraph || flags) return neo_emu::give(cudaErrorInvalidValue);
    *pGraph = new CUgraph_st{std::make_shared<std::vector<neo_emu::node>>(), {}};
    neo_emu::g().others.insert(*pGraph);
    return cudaSuccess;
}
struct cudaKernelNodeParams {
    void *func;
    dim3 gridDim, blockDim;
    unsigned int sharedMemBytes;
    void **kernelParams, **extra;
};
namespace neo_emu {
inline cudaError_t add_node(cudaGraphNode_t *out, cudaGraph_t graph, const cudaGraphNode_t *after,
                            size_t count, node made) {
    if (!out || !g().others.count(graph) || (count && !after)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; i++) {
        bool mine = false;
        for (auto &h : graph->handles) mine = mine || h.get() == after[i];
        if (!mine) return cudaErrorInvalidValue;
        made.after.push_back(after[i]->number);
    }
    graph->handles.emplace_back(new CUgraphNode_st{graph->nodes->size()});
    graph->nodes->push_back(std::move(made));
    *out = graph->handles.back().get();
    return cudaSuccess;
}
/* The launch of a node, with copies of its arguments as they are now. */
inline cudaError_t make_node(const cudaKernelNodeParams *p, node *made) {
    if (!p || p->extra) return cudaErrorInvalidValue;
    auto it = g().known.find(p->func);
    if (it == g().known.end()) return cudaErrorInvalidDeviceFunction;
    NEO_EMU_TRY(check_launch(p->func, p->gridDim, p->blockDim, p->sharedMemBytes));
    made->run = it->second->make(p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams);
    made->kernel = p->func;
    return cudaSuccess;
}
} // namespace neo_emu
inline cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                                    size_t sharedMem, cudaStream_t stream) {
    NEO_EMU_ENTER(cudaErrorLaunchOutOfResources);
    const cudaKernelNodeParams p = {const_cast<void *>(func), gridDim, blockDim,
                                    (unsigned)sharedMem,      args,    nullptr};
    neo_emu::node made;
    NEO_EMU_TRY(neo_emu::make_node(&p, &made));
    return neo_emu::give(neo_emu::submit(stream, made.run));
}
inline cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                          const cudaGraphNode_t *pDependencies,
                                          size_t numDependencies,
                                          const cudaKernelNodeParams *pNodeParams) {
    NEO_EMU_ENTER();
    neo_emu::node made;
    NEO_EMU_TRY(neo_emu::make_node(pNodeParams, &made));
    return neo_emu::give(
        neo_emu::add_node(pGraphNode, graph, pDependencies, numDependencies, std::move(made)));
}
namespace neo_emu { inline cudaError_t run_graph(const std::vector<node> &nodes); }
/* The child is copied. */
inline cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                              const cudaGraphNode_t *pDependencies,
                                              size_t numDependencies, cudaGraph_t childGraph) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().others.count(childGraph)) return neo_emu::give(cudaErrorInvalidValue);
    std::shared_ptr<std::vector<neo_emu::node>> child =
        std::make_shared<std::vector<neo_emu::node>>(*childGraph->nodes);
    neo_emu::node made;
    made.run = [child] { return neo_emu::run_graph(*child); };
    return neo_emu::give(
        neo_emu::add_node(pGraphNode, graph, pDependencies, numDependencies, std::move(made)));
}
/* For later launches; those that are on their way keep what they have. */
inline cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec,
                                                    cudaGraphNode_t node,
                                                    const cudaKernelNodeParams *nodeParams) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().others.count(hGraphExec) || !node ||
        node->number >= hGraphExec->nodes->size())
        return neo_emu::give(cudaErrorInvalidValue);
    const neo_emu::node &old = (*hGraphExec->nodes)[node->number];
    if (!nodeParams || !old.kernel || old.kernel != nodeParams->func)
        return neo_emu::give(cudaErrorInvalidValue);
    neo_emu::node made;
    NEO_EMU_TRY(neo_emu::make_node(nodeParams, &made));
    made.after = old.after;
    std::shared_ptr<std::vector<neo_emu::node>> nodes =
        std::make_shared<std::vector<neo_emu::node>>(*hGraphExec->nodes);
    (*nodes)[node->number] = std::move(made);
    hGraphExec->nodes = nodes;
    return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                         cudaStreamCaptureStatus *pCaptureStatus) {
    NEO_EMU_ENTER();
    CUstream_st *s = neo_emu::find_stream(stream);
    if (!s || !pCaptureStatus) return neo_emu::give(cudaErrorInvalidValue);
    *pCaptureStatus = cudaStreamCaptureStatusNone;
    if (s->in)
        *pCaptureStatus =
            s->in->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    if (!mode) return neo_emu::give(cudaErrorInvalidValue);
    std::swap(*mode, neo_emu::thread_mode);
    return cudaSuccess;
}
/* With nodes NULL: how many there are. */
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().others.count(graph) || nodes || !numNodes)
        return neo_emu::give(cudaErrorInvalidValue);
    *numNodes = graph->nodes->size();
    return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                        unsigned long long flags = 0) {
    NEO_EMU_ENTER();
    if (!pGraphExec || !neo_emu::g().others.count(graph) || flags)
        return neo_emu::give(cudaErrorInvalidValue);
    *pGraphExec = new CUgraphExec_st{std::make_shared<std::vector<neo_emu::node>>(*graph->nodes)};
    neo_emu::g().others.insert(*pGraphExec);
    return cudaSuccess;
}
namespace neo_emu {
inline cudaError_t run_graph(const std::vector<node> &nodes) {
    std::vector<bool> done(nodes.size(), false);
    for (size_t ran = 0; ran < nodes.size(); ran++) {
        std::vector<size_t> able;
        for (size_t n = 0; n < nodes.size() && (shuffled() || able.empty()); n++) {
            bool ready = !done[n];
            for (size_t m : nodes[n].after) ready = ready && done[m];
            if (ready) able.push_back(n);
        }
        size_t n = able[pick(able.size())];
        done[n] = true;
        cudaError_t e = nodes[n].run ? nodes[n].run() : cudaSuccess;
        if (e != cudaSuccess) return e;
    }
    return cudaSuccess;
}
} // namespace neo_emu
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
    NEO_EMU_ENTER();
    if (!neo_emu::g().others.count(graphExec)) return neo_emu::give(cudaErrorInvalidValue);
    std::shared_ptr<std::vector<neo_emu::node>> nodes = graphExec->nodes;
    return neo_emu::give(neo_emu::submit(stream, [nodes] { return neo_emu::run_graph(*nodes); }));
}
enum cudaGraphExecUpdateResult {
    cudaGraphExecUpdateSuccess = 0, cudaGraphExecUpdateError = 1,
    cudaGraphExecUpdateErrorTopologyChanged = 2
};
typedef struct cudaGraphExecUpdateResultInfo_st {
    enum cudaGraphExecUpdateResult result;
    cudaGraphNode_t errorNode, errorFromNode;
} cudaGraphExecUpdateResultInfo;
/* Nodes of the same number and edges take the new arguments, for later launches. */
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                       cudaGraphExecUpdateResultInfo *resultInfo) {
    NEO_EMU_ENTER();
    if (!resultInfo || !neo_emu::g().others.count(hGraphExec) || !neo_emu::g().others.count(hGraph))
        return neo_emu::give(cudaErrorInvalidValue);
    *resultInfo = cudaGraphExecUpdateResultInfo();
    bool same = hGraphExec->nodes->size() == hGraph->nodes->size();
    for (size_t n = 0; same && n < hGraph->nodes->size(); n++)
        same = (*hGraphExec->nodes)[n].after == (*hGraph->nodes)[n].after;
    if (!same) {
        resultInfo->result = cudaGraphExecUpdateErrorTopologyChanged;
        return neo_emu::give(cudaErrorGraphExecUpdateFailure);
    }
    hGraphExec->nodes = hGraph->nodes;
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    NEO_EMU_LOCK;
    if (!neo_emu::g().others.erase(graph)) return neo_emu::give(cudaErrorInvalidValue);
    delete graph;
    return neo_emu::give(neo_emu::g().sticky);
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
    NEO_EMU_LOCK;
    if (!neo_emu::g().others.erase(graphExec)) return neo_emu::give(cudaErrorInvalidValue);
    delete graphExec;
    return neo_emu::give(neo_emu::g().sticky);
}

/* ---- >>device ---- */

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, totalConstMem, sharedMemPerMultiprocessor,
        sharedMemPerBlockOptin, reservedSharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor,
        multiProcessorCount, integrated, canMapHostMemory, concurrentKernels, ECCEnabled, pciBusID,
        pciDeviceID, pciDomainID, asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize,
        maxThreadsPerMultiProcessor, regsPerMultiprocessor, managedMemory, pageableMemoryAccess,
        maxBlocksPerMultiProcessor, memoryPoolsSupported;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxBlockDimY = 3,
    cudaDevAttrMaxBlockDimZ = 4, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7, cudaDevAttrMaxSharedMemoryPerBlock = 8, cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12, cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16, cudaDevAttrIntegrated = 18,
    cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38, cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrAsyncEngineCount = 40, cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMaxBlocksPerMultiprocessor = 106, cudaDevAttrMemoryPoolsSupported = 115
};
inline cudaError_t cudaGetDeviceCount(int *count) {
    NEO_EMU_LOCK;
    if (!count) return neo_emu::give(cudaErrorInvalidValue);
    *count = neo_emu::g().device_count;
    NEO_EMU_TRY(neo_emu::enter());
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    NEO_EMU_ENTER();
    if (device < 0 || device >= neo_emu::g().device_count)
        return neo_emu::give(cudaErrorInvalidDevice);
    neo_emu::current_device = device;
    return cudaSuccess;
}
/* GPUs with numbers that differ by one reach each other's memory. */
inline cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    NEO_EMU_ENTER();
    const int count = neo_emu::g().device_count;
    if (!can) return neo_emu::give(cudaErrorInvalidValue);
    if (device < 0 || peer < 0 || device >= count || peer >= count)
        return neo_emu::give(cudaErrorInvalidDevice);
    *can = device - peer == 1 || peer - device == 1;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    int can = 0;
    NEO_EMU_LOCK;
    NEO_EMU_TRY(cudaDeviceCanAccessPeer(&can, neo_emu::current_device, peer));
    if (flags || !can) return neo_emu::give(cudaErrorInvalidValue);
    if (!neo_emu::g().reached.insert({neo_emu::current_device, peer}).second)
        return neo_emu::give(cudaErrorInvalidValue);
    return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int *device) {
    NEO_EMU_ENTER();
    if (!device) return neo_emu::give(cudaErrorInvalidValue);
    *device = neo_emu::current_device;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device) {
    NEO_EMU_ENTER();
    if (!prop) return neo_emu::give(cudaErrorInvalidValue);
    if (device < 0 || device >= neo_emu::g().device_count)
        return neo_emu::give(cudaErrorInvalidDevice);
    *prop = cudaDeviceProp();
    snprintf(prop->name, sizeof prop->name, "emulated on the CPU");
    prop->totalGlobalMem = neo_emu::g().budget;
    prop->sharedMemPerBlock = neo_emu::SHARED_DEFAULT;
    prop->sharedMemPerBlockOptin = neo_emu::SHARED_MOST;
    prop->sharedMemPerMultiprocessor = 228 * 1024;
    prop->reservedSharedMemPerBlock = 1024;
    prop->totalConstMem = 65536;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->multiProcessorCount = 4;
    prop->canMapHostMemory = prop->concurrentKernels = prop->unifiedAddressing =
        prop->memoryPoolsSupported = 1;
    prop->pciBusID = device;
    prop->asyncEngineCount = 3;
    prop->memoryBusWidth = 5120;
    prop->l2CacheSize = 50 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    return cudaSuccess;
}
namespace neo_emu {
inline bool attribute(cudaDeviceAttr attr, int *value) {
    static const struct { cudaDeviceAttr attr; int value;
    } list[] = {{cudaDevAttrMaxThreadsPerBlock, 1024},
                {cudaDevAttrMaxBlockDimX, 1024},
                {cudaDevAttrMaxBlockDimY, 1024},
                {cudaDevAttrMaxBlockDimZ, 64},
                {cudaDevAttrMaxGridDimX, 2147483647},
                {cudaDevAttrMaxGridDimY, 65535},
                {cudaDevAttrMaxGridDimZ, 65535},
                {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_DEFAULT},
                {cudaDevAttrWarpSize, 32},
                {cudaDevAttrMaxRegistersPerBlock, 65536},
                {cudaDevAttrClockRate, 1000000},
                {cudaDevAttrMultiProcessorCount, 4},
                {cudaDevAttrIntegrated, 0},
                {cudaDevAttrMemoryClockRate, 1000000},
                {cudaDevAttrGlobalMemoryBusWidth, 5120},
                {cudaDevAttrL2CacheSize, 50 << 20},
                {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
                {cudaDevAttrAsyncEngineCount, 3},
                {cudaDevAttrUnifiedAddressing, 1},
                {cudaDevAttrComputeCapabilityMajor, 9},
                {cudaDevAttrComputeCapabilityMinor, 0},
                {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 * 1024},
                {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_MOST},
                {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
                {cudaDevAttrMemoryPoolsSupported, 1}};
    for (const auto &a : list)
        if (a.attr == attr) return *value = a.value, true;
    return false;
}
} // namespace neo_emu
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device) {
    NEO_EMU_ENTER();
    if (device < 0 || device >= neo_emu::g().device_count)
        return neo_emu::give(cudaErrorInvalidDevice);
    return neo_emu::give(value && neo_emu::attribute(attr, value) ? cudaSuccess
                                                                  : cudaErrorInvalidValue);
}
inline cudaError_t cudaDriverGetVersion(int *driverVersion) {
    if (!driverVersion) return neo_emu::give(cudaErrorInvalidValue);
    *driverVersion = neo_emu::g().device_count ? 13000 : 0;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int *runtimeVersion) {
    if (!runtimeVersion) return neo_emu::give(cudaErrorInvalidValue);
    *runtimeVersion = 13000;
    return cudaSuccess;
}

/* ---- >>cub: two calls each; the first, without storage, says how much it wants ---- */

namespace neo_emu {

/* A raw pointer must reach `count` elements of device memory or be pinned; other iterators are
   trusted. */
template <class T> cudaError_t check_range(T *p, size_t count) {
    if (count == 0 || is_pinned((const void *)p) || find_block((const void *)p, count * sizeof(T)))
        return cudaSuccess;
    return report(cudaErrorIllegalAddress,
                  "cub: %zu elements of %zu bytes are not in one allocation of the device", count,
                  sizeof(T));
}
template <class T> cudaError_t check_range(const T &, size_t) { return cudaSuccess; }

/* The protocol of all: `work` runs on the stream when storage is given. Storage is filled with
   junk, as it is used. */
template <class Work>
cudaError_t cub_call(void *storage, size_t &bytes, size_t want, cudaStream_t stream, Work work) {
    NEO_EMU_ENTER();
    want = (want + 255) / 256 * 256;
    if (!storage) {
        bytes = want;
        return cudaSuccess;
    }
    if (bytes < want || !find_block(storage, want)) return give(cudaErrorInvalidValue);
    return give(submit(stream, [storage, want, work]() -> cudaError_t {
        cudaError_t e = check_range((char *)storage, want);
        if (e != cudaSuccess) return e;
        fill_junk(storage, want);
        e = work();
        fill_junk(storage, want);
        return e;
    }));
}
#define NEO_EMU_RANGE(p, count)                                                                    \
    do {                                                                                           \
        cudaError_t neo_emu_e = neo_emu::check_range(p, (size_t)(count));                          \
        if (neo_emu_e != cudaSuccess) return neo_emu_e;                                            \
    } while (0)

template <class Iterator>
using value_of = typename std::decay<decltype(*std::declval<Iterator>())>::type;

/* Bits whose unsigned order is the order of the keys; both zeros of a float are one key. */
template <class K> uint64_t key_bits(K key) {
    static_assert(std::is_arithmetic<K>::value && sizeof(K) <= 8, "a number");
    const uint64_t top = (uint64_t)1 << (sizeof(K) * 8 - 1), all = top | (top - 1);
    if (key == K(0)) key = K(0);
    uint64_t b = 0;
    memcpy(&b, &key, sizeof key);
    if (std::is_floating_point<K>::value) return (b & top) ? ~b & all : b | top;
    return std::is_signed<K>::value ? b ^ top : b;
}
template <class T> bool overlap(const T *a, const T *b, size_t count) {
    return a < b + count && b < a + count;
}

template <class K, class V>
cudaError_t sort(const K *keys_in, K *keys_out, const V *values_in, V *values_out, size_t count,
                 int begin, int end) {
    NEO_EMU_RANGE(keys_in, count);
    NEO_EMU_RANGE(keys_out, count);
    if (values_in) {
        NEO_EMU_RANGE(values_in, count);
        NEO_EMU_RANGE(values_out, count);
    }
    if (count && (overlap<K>(keys_in, keys_out, count) ||
                  (values_in && overlap<V>(values_in, values_out, count))))
        return report(cudaErrorIllegalAddress, "cub::DeviceRadixSort: output overlaps input");
    const uint64_t mask = end - begin >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << (end - begin)) - 1;
    std::vector<std::pair<uint64_t, size_t>> list(count);
    for (size_t i = 0; i < count; i++)
        list[i] = {begin >= 64 ? 0 : key_bits(keys_in[i]) >> begin & mask, i};
    std::stable_sort(list.begin(), list.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    for (size_t i = 0; i < count; i++) keys_out[i] = keys_in[list[i].second];
    for (size_t i = 0; values_in && i < count; i++) values_out[i] = values_in[list[i].second];
    return cudaSuccess;
}
template <class K, class V, class N>
cudaError_t sort_call(void *storage, size_t &bytes, const K *keys_in, K *keys_out,
                      const V *values_in, V *values_out, N count, int begin, int end,
                      cudaStream_t stream) {
    if (count < 0 || begin < 0 || end < begin || end > (int)sizeof(K) * 8)
        return give(cudaErrorInvalidValue);
    size_t n = (size_t)count;
    return cub_call(storage, bytes, 1024 + n / 8, stream, [=]() -> cudaError_t {
        return sort(keys_in, keys_out, values_in, values_out, n, begin, end);
    });
}
template <class In, class Out, class N>
cudaError_t scan_call(void *storage, size_t &bytes, In in, Out out, N count, bool inclusive,
                      cudaStream_t stream) {
    typedef value_of<In> T;
    static_assert(std::is_integral<T>::value, "the order of a float scan would show in its bits");
    size_t n = (size_t)count;
    return cub_call(storage, bytes, 768 + n / 32, stream, [=]() -> cudaError_t {
        NEO_EMU_RANGE(in, n);
        NEO_EMU_RANGE(out, n);
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t v = (uint64_t)in[(ptrdiff_t)i], before = sum;
            sum += v;
            out[(ptrdiff_t)i] = static_cast<value_of<Out>>((T)(inclusive ? sum : before));
        }
        return cudaSuccess;
    });
}
template <class In, class Out, class Count, class Keep>
cudaError_t select_call(void *storage, size_t &bytes, In in, Out out, Count selected, int64_t count,
                        cudaStream_t stream, Keep keep) {
    return cub_call(storage, bytes, 512 + (size_t)count / 32, stream, [=]() -> cudaError_t {
        NEO_EMU_RANGE(in, count);
        NEO_EMU_RANGE(selected, 1);
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++)
            if (keep(i)) {
                NEO_EMU_RANGE(out, kept + 1);
                out[(ptrdiff_t)kept++] = in[(ptrdiff_t)i];
            }
        *selected = static_cast<value_of<Count>>(kept);
        return cudaSuccess;
    });
}

} // namespace neo_emu

namespace cub {

template <class T> struct DoubleBuffer {
    T *d_buffers[2];
    int selector;
    DoubleBuffer() : d_buffers{nullptr, nullptr}, selector(0) {}
    DoubleBuffer(T *d_current, T *d_alternate) : d_buffers{d_current, d_alternate}, selector(0) {}
    T *Current() { return d_buffers[selector]; }
    T *Alternate() { return d_buffers[selector ^ 1]; }
};
struct NullType {};

struct DeviceRadixSort {
    template <class K, class V, class N>
    static cudaError_t SortPairs(void *d_temp_storage, size_t &temp_storage_bytes,
                                 const K *d_keys_in, K *d_keys_out, const V *d_values_in,
                                 V *d_values_out, N num_items, int begin_bit = 0,
                                 int end_bit = sizeof(K) * 8, cudaStream_t stream = nullptr) {
        return neo_emu::sort_call(d_temp_storage, temp_storage_bytes, d_keys_in, d_keys_out,
                                  d_values_in, d_values_out, num_items, begin_bit, end_bit, stream);
    }
    template <class K, class N>
    static cudaError_t SortKeys(void *d_temp_storage, size_t &temp_storage_bytes,
                                const K *d_keys_in, K *d_keys_out, N num_items, int begin_bit = 0,
                                int end_bit = sizeof(K) * 8, cudaStream_t stream = nullptr) {
        return neo_emu::sort_call(d_temp_storage, temp_storage_bytes, d_keys_in, d_keys_out,
                                  (const char *)nullptr, (char *)nullptr, num_items, begin_bit,
                                  end_bit, stream);
    }
    /* The result is where Current() points afterwards: the other buffer, or with a seed either; the
       rest is junk. */
    template <class K, class V, class N>
    static cudaError_t SortPairs(void *d_temp_storage, size_t &temp_storage_bytes,
                                 DoubleBuffer<K> &d_keys, DoubleBuffer<V> &d_values, N num_items,
                                 int begin_bit = 0, int end_bit = sizeof(K) * 8,
                                 cudaStream_t stream = nullptr) {
        bool stay = neo_emu::coin();
        size_t n = (size_t)num_items;
        if (num_items < 0 || begin_bit < 0 || end_bit < begin_bit || end_bit > (int)sizeof(K) * 8)
            return neo_emu::give(cudaErrorInvalidValue);
        K *keys = d_keys.Current(), *other_keys = d_keys.Alternate();
        V *values = d_values.Current(), *other_values = d_values.Alternate();
        cudaError_t e = neo_emu::cub_call(
            d_temp_storage, temp_storage_bytes, 1024 + n / 8, stream, [=]() -> cudaError_t {
                cudaError_t r =
                    neo_emu::sort(keys, other_keys, values, other_values, n, begin_bit, end_bit);
                if (r != cudaSuccess || n == 0) return r;
                if (stay) {
                    memcpy(keys, other_keys, n * sizeof(K));
                    if (values) memcpy(values, other_values, n * sizeof(V));
                }
                neo_emu::fill_junk(stay ? other_keys : keys, n * sizeof(K));
                if (values) neo_emu::fill_junk(stay ? other_values : values, n * sizeof(V));
                return r;
            });
        if (e == cudaSuccess && d_temp_storage && !stay) {
            d_keys.selector ^= 1;
            d_values.selector ^= 1;
        }
        return e;
    }
    template <class K, class N>
    static cudaError_t SortKeys(void *d_temp_storage, size_t &temp_storage_bytes,
                                DoubleBuffer<K> &d_keys, N num_items, int begin_bit = 0,
                                int end_bit = sizeof(K) * 8, cudaStream_t stream = nullptr) {
        DoubleBuffer<char> none;
        return SortPairs(d_temp_storage, temp_storage_bytes, d_keys, none, num_items, begin_bit,
                         end_bit, stream);
    }
};

struct DeviceScan {
    template <class In, class Out, class N>
    static cudaError_t ExclusiveSum(void *d_temp_storage, size_t &temp_storage_bytes, In d_in,
                                    Out d_out, N num_items, cudaStream_t stream = nullptr) {
        return neo_emu::scan_call(d_temp_storage, temp_storage_bytes, d_in, d_out, num_items, false,
                                  stream);
    }
    template <class In, class Out, class N>
    static cudaError_t InclusiveSum(void *d_temp_storage, size_t &temp_storage_bytes, In d_in,
                                    Out d_out, N num_items, cudaStream_t stream = nullptr) {
        return neo_emu::scan_call(d_temp_storage, temp_storage_bytes, d_in, d_out, num_items, true,
                                  stream);
    }
};

struct DeviceSelect {
    template <class In, class Flags, class Out, class Count>
    static cudaError_t Flagged(void *d_temp_storage, size_t &temp_storage_bytes, In d_in,
                               Flags d_flags, Out d_out, Count d_num_selected_out,
                               int64_t num_items, cudaStream_t stream = nullptr) {
        return neo_emu::select_call(d_temp_storage, temp_storage_bytes, d_in, d_out,
                                    d_num_selected_out, num_items, stream,
                                    [=](int64_t i) { return (bool)d_flags[(ptrdiff_t)i]; });
    }
    template <class In, class Out, class Count, class Op>
    static cudaError_t If(void *d_temp_storage, size_t &temp_storage_bytes, In d_in, Out d_out,
                          Count d_num_selected_out, int64_t num_items, Op select_op,
                          cudaStream_t stream = nullptr) {
        return neo_emu::select_call(d_temp_storage, temp_storage_bytes, d_in, d_out,
                                    d_num_selected_out, num_items, stream,
                                    [=](int64_t i) { return (bool)select_op(d_in[(ptrdiff_t)i]); });
    }
};

struct DeviceReduce {
    template <class In, class Out, class N>
    static cudaError_t Sum(void *d_temp_storage, size_t &temp_storage_bytes, In d_in, Out d_out,
                           N num_items, cudaStream_t stream = nullptr) {
        typedef neo_emu::value_of<In> T;
        static_assert(std::is_integral<T>::value,
                      "the order of a float sum would show in its bits");
        size_t n = (size_t)num_items;
        return neo_emu::cub_call(d_temp_storage, temp_storage_bytes, 512, stream,
                                 [=]() -> cudaError_t {
                                     NEO_EMU_RANGE(d_in, n);
                                     NEO_EMU_RANGE(d_out, 1);
                                     uint64_t sum = 0;
                                     for (size_t i = 0; i < n; i++)
                                         sum += (uint64_t)d_in[(ptrdiff_t)i];
                                     *d_out = static_cast<neo_emu::value_of<Out>>((T)sum);
                                     return cudaSuccess;
                                 });
    }
};

struct DeviceRunLengthEncode {
    template <class In, class Unique, class Lengths, class Runs>
    static cudaError_t Encode(void *d_temp_storage, size_t &temp_storage_bytes, In d_in,
                              Unique d_unique_out, Lengths d_counts_out, Runs d_num_runs_out,
                              int num_items, cudaStream_t stream = nullptr) {
        return neo_emu::cub_call(
            d_temp_storage, temp_storage_bytes, 512, stream, [=]() -> cudaError_t {
                NEO_EMU_RANGE(d_in, num_items);
                NEO_EMU_RANGE(d_num_runs_out, 1);
                ptrdiff_t runs = 0;
                for (ptrdiff_t i = 0, next; i < num_items; i = next) {
                    for (next = i + 1; next < num_items && d_in[next] == d_in[i];) next++;
                    NEO_EMU_RANGE(d_unique_out, runs + 1);
                    NEO_EMU_RANGE(d_counts_out, runs + 1);
                    d_unique_out[runs] = d_in[i];
                    d_counts_out[runs++] = static_cast<neo_emu::value_of<Lengths>>(next - i);
                }
                *d_num_runs_out = static_cast<neo_emu::value_of<Runs>>(runs);
                return cudaSuccess;
            });
    }
};

} // namespace cub

/* ---- >>cublaslt ---- */

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR =
    11, CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_32I = 72
} cublasComputeType_t;
typedef enum cudaDataType_t {
    CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_8I = 3, CUDA_R_32I = 10, CUDA_R_16BF = 14
} cudaDataType;
typedef enum {
    CUBLASLT_POINTER_MODE_HOST = 0, CUBLASLT_POINTER_MODE_DEVICE = 1
} cublasLtPointerMode_t;
typedef enum { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 } cublasLtOrder_t;
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0, CUBLASLT_MATRIX_LAYOUT_ORDER = 1, CUBLASLT_MATRIX_LAYOUT_ROWS =
    2, CUBLASLT_MATRIX_LAYOUT_COLS = 3, CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0, CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2, CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4, CUBLASLT_MATMUL_DESC_TRANSC = 5,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7, CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_RELU = 2, CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6, CUBLASLT_EPILOGUE_GELU = 32, CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_RELU_AUX = 130, CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134,
    CUBLASLT_EPILOGUE_GELU_AUX = 160, CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192, CUBLASLT_EPILOGUE_DRELU = 136,
    CUBLASLT_EPILOGUE_DRELU_BGRAD = 152,
    CUBLASLT_EPILOGUE_BGRADA = 256, CUBLASLT_EPILOGUE_BGRADB = 512
} cublasLtEpilogue_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
typedef enum {
    CUBLASLT_ALGO_CONFIG_ID = 0, CUBLASLT_ALGO_CONFIG_TILE_ID = 1, CUBLASLT_ALGO_CONFIG_SPLITK_NUM =
    2, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5, CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8
} cublasLtMatmulAlgoConfigAttributes_t;
typedef enum {
    CUBLASLT_REDUCTION_SCHEME_NONE = 0, CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
    CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    CUBLASLT_REDUCTION_SCHEME_MASK = 7
} cublasLtReductionScheme_t;

struct cublasLtContext { int unused; };
typedef cublasLtContext *cublasLtHandle_t;
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType type;
    int32_t order, batch_count;
    uint64_t rows, cols;
    int64_t ld, batch_stride;
};
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
struct cublasLtMatmulDescOpaque_t {
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c;
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type;                    /* -1: as D */
    int64_t bias_stride;
    const void *aux;                      /* of D's type, by columns */
    int64_t aux_ld;
};
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
struct cublasLtMatmulPreferenceOpaque_t { uint64_t workspace; uint32_t others[9]; };
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef struct { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

namespace neo_emu {

inline cublasStatus_t lt_enter(cublasStatus_t injected = CUBLAS_STATUS_INTERNAL_ERROR) {
    cudaError_t e = enter();
    if (e == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
    if (e == cudaErrorNoDevice) return CUBLAS_STATUS_NOT_INITIALIZED;
    return g().sticky != cudaSuccess ? CUBLAS_STATUS_EXECUTION_FAILED : injected;
}
#define NEO_EMU_LT_ENTER(...)                                                                      \
    NEO_EMU_LOCK;                                                                                  \
    cublasStatus_t neo_emu_status = neo_emu::lt_enter(__VA_ARGS__);                                \
    if (neo_emu_status != CUBLAS_STATUS_SUCCESS) return neo_emu_status

template <class T> cublasStatus_t lt_create(T **out, const T &value) {
    NEO_EMU_LT_ENTER(CUBLAS_STATUS_ALLOC_FAILED);
    if (!out) return CUBLAS_STATUS_INVALID_VALUE;
    *out = new T(value);
    g().others.insert(*out);
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t lt_destroy(T *p) {
    NEO_EMU_LOCK;
    if (!g().others.erase(p)) return CUBLAS_STATUS_INVALID_VALUE;
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
/* An attribute is a field; sizes must agree. */
template <class T> cublasStatus_t lt_set(T &field, const void *buf, size_t bytes) {
    if (!buf || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&field, buf, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
inline size_t type_bytes(int type) {
    return type == CUDA_R_32F ? 4u : type == CUDA_R_16F || type == CUDA_R_16BF ? 2u : 0u;
}
inline float load(const void *p, int type, int64_t i) {
    if (type == CUDA_R_32F) return static_cast<const float *>(p)[i];
    uint16_t b = static_cast<const uint16_t *>(p)[i];
    return type == CUDA_R_16F ? float_of_half(b) : float_of_bfloat(b);
}
inline void store(void *p, int type, int64_t i, float v) {
    if (type == CUDA_R_32F) static_cast<float *>(p)[i] = v;
    else static_cast<uint16_t *>(p)[i] = type == CUDA_R_16F ? half_of(v) : bfloat_of(v);
}

struct matrix { cublasLtMatrixLayoutOpaque_t l; const void *p; };
inline int64_t element(const matrix &m, int64_t row, int64_t col, int64_t batch) {
    return batch * m.l.batch_stride +
           (m.l.order == CUBLASLT_ORDER_COL ? col * m.l.ld + row : row * m.l.ld + col);
}
/* In device memory, for as many bytes as each matrix of the layout spans? */
inline bool placed(const matrix &m) {
    bool by_col = m.l.order == CUBLASLT_ORDER_COL;
    size_t inner = by_col ? m.l.rows : m.l.cols, outer = by_col ? m.l.cols : m.l.rows;
    size_t each = type_bytes(m.l.type), count = (outer - 1) * (size_t)m.l.ld + inner;
    bool all = m.p && (uintptr_t)m.p % each == 0;
    for (int64_t i = 0; all && i < m.l.batch_count; i++)
        all = find_block((const char *)m.p + (size_t)(i * m.l.batch_stride) * each, count * each);
    return all;
}
inline bool well_formed(const cublasLtMatrixLayoutOpaque_t &l) {
    uint64_t inner = l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols;
    return l.rows && l.cols && l.ld >= 0 && (uint64_t)l.ld >= inner && l.batch_count >= 1 &&
           l.batch_stride >= 0;
}
inline bool has_bias(uint32_t epilogue) {
    return (epilogue & 4) || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
typedef cublasLtMatmulDescOpaque_t lt_desc;

inline cublasStatus_t lt_check(const lt_desc *d, const cublasLtMatrixLayoutOpaque_t *a,
                               const cublasLtMatrixLayoutOpaque_t *b,
                               const cublasLtMatrixLayoutOpaque_t *c,
                               const cublasLtMatrixLayoutOpaque_t *out) {
    if (!d || !a || !b || !c || !out) return CUBLAS_STATUS_INVALID_VALUE;
    for (const auto *l : {a, b, c, out}) {
        if (!well_formed(*l) || l->batch_count != a->batch_count)
            return CUBLAS_STATUS_INVALID_VALUE;
        if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!type_bytes(l->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    bool ta = d->trans_a != CUBLAS_OP_N, tb = d->trans_b != CUBLAS_OP_N;
    uint64_t m = ta ? a->cols : a->rows, k = ta ? a->rows : a->cols;
    uint64_t kb = tb ? b->cols : b->rows, n = tb ? b->rows : b->cols;
    if (k != kb || c->rows != m || c->cols != n || out->rows != m || out->cols != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool compute = d->compute == CUBLAS_COMPUTE_32F || d->compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                   d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (!compute || d->scale != CUDA_R_32F || d->trans_c != CUBLAS_OP_N)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
        d->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (a->type != b->type || c->type != out->type ||
        (out->type != CUDA_R_32F && out->type != a->type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_RELU: case CUBLASLT_EPILOGUE_GELU: break;
    case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_RELU_BIAS: case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA: case CUBLASLT_EPILOGUE_BGRADB:
        if (out->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (d->bias_type >= 0 && d->bias_type != CUDA_R_32F && d->bias_type != out->type)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        break;
    case CUBLASLT_EPILOGUE_GELU_AUX: case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU: /* one product, and the aux in steps of 16 bytes */
        if (out->order != CUBLASLT_ORDER_COL || out->batch_count != 1 || d->bias_type >= 0 ||
            !d->aux || (uintptr_t)d->aux % 16 || d->aux_ld % 8 || d->aux_ld < (int64_t)out->rows)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

struct matmul {
    lt_desc d;
    matrix a, b, c, out;
    float alpha, beta;
    const float *device_alpha, *device_beta;
    uint64_t algo, split;
    void *workspace;
    size_t workspace_bytes;
};
/* What the multiplier sees of a number. */
inline float operand(const matmul &w, const matrix &m, bool trans, int64_t row, int64_t col,
                     int64_t batch) {
    float v =
        load(m.p, m.l.type, trans ? element(m, col, row, batch) : element(m, row, col, batch));
    if (w.d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || m.l.type != CUDA_R_32F ||
        !(fabsf(v) <= 3.3e38f))
        return v;
    return as<float>((as<uint32_t>(v) + 0x1000u) & ~0x1fffu);
}
/* Algorithm 0 adds by rising k; 1 adds even and odd k apart. Splits of k are added last. */
inline float dot(const matmul &w, int64_t row, int64_t col, int64_t batch, int64_t k) {
    bool ta = w.d.trans_a != CUBLAS_OP_N, tb = w.d.trans_b != CUBLAS_OP_N;
    float total = 0;
    int64_t splits = std::max<int64_t>(1, (int64_t)w.split);
    for (int64_t s = 0; s < splits; s++) {
        float sum[2] = {0, 0};
        for (int64_t i = k * s / splits; i < k * (s + 1) / splits; i++) {
            float &t = sum[w.algo == 1 ? i & 1 : 0];
            t = fmaf(operand(w, w.a, ta, row, i, batch), operand(w, w.b, tb, i, col, batch), t);
        }
        total = exact(total + exact(sum[0] + sum[1]));
    }
    return total;
}
inline void bias_gradients(const matmul &w, int64_t m, int64_t n, int64_t k, int64_t batch,
                           int bias_type) {
    bool of_a = w.d.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    bool trans = (of_a ? w.d.trans_a : w.d.trans_b) != CUBLAS_OP_N;
    for (int64_t r = 0; r < (of_a ? m : n); r++) {
        float sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum =
                exact(sum + operand(w, of_a ? w.a : w.b, trans, of_a ? r : i, of_a ? i : r, batch));
        store(const_cast<void *>(w.d.bias), bias_type, batch * w.d.bias_stride + r, sum);
    }
}
inline cudaError_t run_matmul(const matmul &w) {
    int64_t m = (int64_t)w.out.l.rows, n = (int64_t)w.out.l.cols;
    int64_t k = (int64_t)(w.d.trans_a != CUBLAS_OP_N ? w.a.l.rows : w.a.l.cols);
    float alpha = w.device_alpha ? *w.device_alpha : w.alpha,
          beta = w.device_beta ? *w.device_beta : w.beta;
    int bias_type = w.d.bias_type < 0 ? (int)w.out.l.type : w.d.bias_type;
    if (!placed(w.a) || !placed(w.b) || !placed(w.c) || !placed(w.out))
        return report(cudaErrorIllegalAddress,
                      "cublasLtMatmul: a matrix is not in device memory any more");
    const bool has_aux = w.d.epilogue & 128;
    const matrix aux = {{w.out.l.type, CUBLASLT_ORDER_COL, 1, (uint64_t)m, (uint64_t)n, w.d.aux_ld,
                         0}, w.d.aux};
    if (has_aux && !placed(aux))
        return report(cudaErrorIllegalAddress, "cublasLtMatmul: aux is not in device memory");
    if (w.workspace) fill_junk(w.workspace, w.workspace_bytes);
    for (int64_t batch = 0; batch < w.out.l.batch_count; batch++) {
        if (w.d.epilogue >= CUBLASLT_EPILOGUE_BGRADA) bias_gradients(w, m, n, k, batch, bias_type);
        for (int64_t col = 0; col < n; col++)
            for (int64_t row = 0; row < m; row++) {
                float v = exact(alpha * dot(w, row, col, batch, k));
                if (beta != 0)
                    v = fmaf(beta, load(w.c.p, w.c.l.type, element(w.c, row, col, batch)), v);
                if (w.d.epilogue & 4)
                    v = exact(v + load(w.d.bias, bias_type, batch * w.d.bias_stride + row));
                if ((w.d.epilogue & 2) && v < 0) v = 0;
                if (has_aux && (w.d.epilogue & 32))
                    store(const_cast<void *>(aux.p), aux.l.type, element(aux, row, col, 0), v);
                if (w.d.epilogue & 32)
                    v = 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
                if (w.d.epilogue & 64) {
                    const float z = load(aux.p, aux.l.type, element(aux, row, col, 0));
                    const float t = tanhf(0.79788456f * (z + 0.044715f * z * z * z));
                    v *= 0.5f * (1 + t) +
                         0.5f * z * (1 - t * t) * 0.79788456f * (1 + 0.134145f * z * z);
                }
                store(const_cast<void *>(w.out.p), w.out.l.type, element(w.out, row, col, batch),
                      v);
            }
    }
    return cudaSuccess;
}
/* Algorithm 1 and splits need a workspace. */
inline size_t lt_workspace(uint64_t algo, uint64_t split, const cublasLtMatrixLayoutOpaque_t &out) {
    return (algo == 1 ? 256u : 0u) + (split > 1 ? (size_t)(split * out.rows * out.cols) * 4 : 0u);
}
} // namespace neo_emu

inline const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown status";
}
inline const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}
inline size_t cublasLtGetVersion() { return 130000; }

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *lightHandle) {
    return neo_emu::lt_create(lightHandle, cublasLtContext());
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
    return neo_emu::lt_destroy(lightHandle);
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *matLayout,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
    return neo_emu::lt_create(matLayout,
                              cublasLtMatrixLayoutOpaque_t{type, 0, 1, rows, cols, ld, 0});
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
    return neo_emu::lt_destroy(matLayout);
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                       cublasLtMatrixLayoutAttribute_t attr,
                                                       const void *buf, size_t sizeInBytes) {
    NEO_EMU_LT_ENTER();
    if (!matLayout) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return neo_emu::lt_set(matLayout->type, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return neo_emu::lt_set(matLayout->order, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return neo_emu::lt_set(matLayout->rows, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return neo_emu::lt_set(matLayout->cols, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return neo_emu::lt_set(matLayout->ld, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return neo_emu::lt_set(matLayout->batch_count, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return neo_emu::lt_set(matLayout->batch_stride, buf, sizeInBytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *matmulDesc,
                                               cublasComputeType_t computeType,
                                               cudaDataType scaleType) {
    return neo_emu::lt_create(
        matmulDesc, cublasLtMatmulDescOpaque_t{computeType, scaleType, 0, 0, 0, 0,
                                               CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1, 0, nullptr,
                                               0});
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
    return neo_emu::lt_destroy(matmulDesc);
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                                     cublasLtMatmulDescAttributes_t attr,
                                                     const void *buf, size_t sizeInBytes) {
    NEO_EMU_LT_ENTER();
    if (!matmulDesc) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return neo_emu::lt_set(matmulDesc->compute, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return neo_emu::lt_set(matmulDesc->scale, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return neo_emu::lt_set(matmulDesc->pointer_mode, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return neo_emu::lt_set(matmulDesc->trans_a, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return neo_emu::lt_set(matmulDesc->trans_b, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSC: return neo_emu::lt_set(matmulDesc->trans_c, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return neo_emu::lt_set(matmulDesc->epilogue, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return neo_emu::lt_set(matmulDesc->bias, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        return neo_emu::lt_set(matmulDesc->bias_stride, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return neo_emu::lt_set(matmulDesc->bias_type, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return neo_emu::lt_set(matmulDesc->aux, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return neo_emu::lt_set(matmulDesc->aux_ld, buf, sizeInBytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref) {
    return neo_emu::lt_create(pref, cublasLtMatmulPreferenceOpaque_t());
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
    return neo_emu::lt_destroy(pref);
}
inline cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                     cublasLtMatmulPreferenceAttributes_t attr, const void *buf,
                                     size_t sizeInBytes) {
    NEO_EMU_LT_ENTER();
    if (!pref) return CUBLAS_STATUS_INVALID_VALUE;
    if (attr == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return neo_emu::lt_set(pref->workspace, buf, sizeInBytes);
    return neo_emu::lt_set(pref->others[(unsigned)attr % 9], buf, sizeInBytes);
}
/* One algorithm: 1 if the preference leaves room for its workspace and the shape is one of those
   that it is best for, else 0. Their sums have other bits. None for 61 columns of a row-major D. */
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount) {
    NEO_EMU_LT_ENTER();
    if (!neo_emu::g().others.count(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!preference || requestedAlgoCount < 1 || !heuristicResultsArray || !returnAlgoCount)
        return CUBLAS_STATUS_INVALID_VALUE;
    *returnAlgoCount = 0;
    cublasStatus_t status = neo_emu::lt_check(operationDesc, Adesc, Bdesc, Cdesc, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    cublasLtMatmulHeuristicResult_t &r = heuristicResultsArray[0];
    memset(&r, 0, sizeof r);
    if (Ddesc->rows == 61) return CUBLAS_STATUS_NOT_SUPPORTED;
    r.algo.data[0] = preference->workspace >= 256 &&
                     __builtin_popcountll(Ddesc->rows ^ Ddesc->cols << 7 ^
                                          (uint64_t)Ddesc->batch_count << 3) % 4 != 0;
    r.algo.data[2] = 1;
    r.workspaceSize = neo_emu::lt_workspace(r.algo.data[0], 1, *Ddesc);
    r.state = CUBLAS_STATUS_SUCCESS;
    r.wavesCount = 1;
    *returnAlgoCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result) {
    NEO_EMU_LT_ENTER();
    if (!neo_emu::g().others.count(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t status = neo_emu::lt_check(operationDesc, Adesc, Bdesc, Cdesc, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!algo || !result || algo->data[0] > 1) return CUBLAS_STATUS_INVALID_VALUE;
    memset(result, 0, sizeof *result);
    result->algo = *algo;
    result->workspaceSize = neo_emu::lt_workspace(algo->data[0], algo->data[2], *Ddesc);
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t
cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t attr, const void *buf,
                                     size_t sizeInBytes) {
    NEO_EMU_LT_ENTER();
    uint32_t value = 0;
    if (!algo || (unsigned)attr > 7 ||
        neo_emu::lt_set(value, buf, sizeInBytes) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_INVALID_VALUE;
    algo->data[attr] = value;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t
cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t attr, void *buf,
                                     size_t sizeInBytes, size_t *sizeWritten) {
    NEO_EMU_LT_ENTER();
    if (sizeInBytes == 0 && sizeWritten) {
        *sizeWritten = 4;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (!algo || !buf || (unsigned)attr > 7 || sizeInBytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
    uint32_t value = (uint32_t)algo->data[attr];
    memcpy(buf, &value, 4);
    if (sizeWritten) *sizeWritten = 4;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                                     const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc,
                                     const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
                                     const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                                     cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo,
                                     void *workspace, size_t workspaceSizeInBytes,
                                     cudaStream_t stream) {
    NEO_EMU_LT_ENTER();
    if (!neo_emu::g().others.count(lightHandle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t status = neo_emu::lt_check(computeDesc, Adesc, Bdesc, Cdesc, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
    neo_emu::matmul w = {*computeDesc, {*Adesc, A}, {*Bdesc, B}, {*Cdesc, C}, {*Ddesc, D}, 0, 0,
                         nullptr,      nullptr,     0,           1,           nullptr,     0};
    if (algo) {
        w.algo = algo->data[0];
        w.split = algo->data[2];
    }
    if (w.algo > 1) return CUBLAS_STATUS_INVALID_VALUE;
    w.workspace_bytes = neo_emu::lt_workspace(w.algo, w.split, *Ddesc);
    if (w.workspace_bytes) w.workspace = workspace;
    if (w.workspace_bytes > workspaceSizeInBytes) return CUBLAS_STATUS_INVALID_VALUE;
    if (w.workspace_bytes && !neo_emu::find_block(workspace, workspaceSizeInBytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!neo_emu::placed(w.a) || !neo_emu::placed(w.b) || !neo_emu::placed(w.c) ||
        !neo_emu::placed(w.out))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (C == D && (Cdesc->order != Ddesc->order || Cdesc->ld != Ddesc->ld))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (neo_emu::has_bias(w.d.epilogue)) {
        size_t count = w.d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? Ddesc->cols : Ddesc->rows;
        size_t bytes = neo_emu::type_bytes(w.d.bias_type < 0 ? (int)Ddesc->type : w.d.bias_type);
        count += (size_t)((Ddesc->batch_count - 1) * w.d.bias_stride);
        if (!w.d.bias || !neo_emu::find_block(w.d.bias, count * bytes))
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (w.d.pointer_mode == CUBLASLT_POINTER_MODE_HOST) {
        if (neo_emu::is_device(alpha) || neo_emu::is_device(beta))
            return CUBLAS_STATUS_INVALID_VALUE;
        w.alpha = *static_cast<const float *>(alpha);
        w.beta = *static_cast<const float *>(beta);
    } else {
        if (!neo_emu::find_block(alpha, 4) || !neo_emu::find_block(beta, 4))
            return CUBLAS_STATUS_INVALID_VALUE;
        w.device_alpha = static_cast<const float *>(alpha);
        w.device_beta = static_cast<const float *>(beta);
    }
    cudaError_t e = neo_emu::submit(stream, [w] { return neo_emu::run_matmul(w); });
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- >>controls: see the top ---- */

inline void neo_emu_set_order(uint64_t seed) {
    NEO_EMU_LOCK;
    neo_emu::g().seed = neo_emu::g().random = seed;
}
inline uint64_t neo_emu_seed() {
    const char *text = getenv("NEO_EMU_SEED");
    return text ? strtoull(text, nullptr, 10) : 0;
}
inline void neo_emu_set_lazy(bool on) {
    NEO_EMU_LOCK;
    neo_emu::g().lazy = on;
}
inline size_t neo_emu_queued() {
    NEO_EMU_LOCK;
    size_t tasks = neo_emu::g().legacy.queue.size();
    for (CUstream_st *s : neo_emu::g().streams) tasks += s->queue.size();
    return tasks;
}
inline size_t neo_emu_waits() { return neo_emu::thread_waits; }
inline void neo_emu_set_memory(size_t bytes) {
    NEO_EMU_LOCK;
    neo_emu::g().budget = bytes;
}
inline void neo_emu_set_device_count(int count) {
    NEO_EMU_LOCK;
    neo_emu::g().device_count = count;
}
inline bool neo_emu_reached(int device, int peer) {
    NEO_EMU_LOCK;
    return neo_emu::g().reached.count({device, peer}) != 0;
}
inline void neo_emu_fail_after(long n) {
    NEO_EMU_LOCK;
    neo_emu::g().fail_in = n;
    neo_emu::g().failed = false;
}
inline bool neo_emu_failed() {
    NEO_EMU_LOCK;
    return neo_emu::g().failed;
}
inline size_t neo_emu_live_bytes() {
    NEO_EMU_LOCK;
    return neo_emu::g().used;
}
inline size_t neo_emu_live_allocations() {
    NEO_EMU_LOCK;
    return neo_emu::g().live.size();
}
inline size_t neo_emu_live_pinned() {
    NEO_EMU_LOCK;
    return neo_emu::g().pinned.size();
}
inline size_t neo_emu_live_objects() {
    NEO_EMU_LOCK;
    size_t streams = 0;
    for (CUstream_st *s : neo_emu::g().streams) streams += !s->destroyed;
    return streams + neo_emu::g().events.size() + neo_emu::g().others.size();
}
inline const char *neo_emu_last_report() {
    NEO_EMU_LOCK;
    return neo_emu::g().report.c_str();
}
inline void neo_emu_reset() {
    NEO_EMU_LOCK;
    neo_emu::state &s = neo_emu::g();
    neo_emu::drop_queues();
    s.sticky = cudaSuccess;
    s.report.clear();
    s.fail_in = 0;
    s.failed = false;
    neo_emu::last_error = cudaSuccess;
}

#endif
