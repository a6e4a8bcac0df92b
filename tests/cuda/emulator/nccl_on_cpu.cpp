/* nccl_on_cpu.cpp: the calls of NCCL that neo_nccl.h makes, on the emulated CUDA of cuda_on_cpu.h,
   with the threads of one process as ranks, which may share a GPU; and the calls of the CUDA
   runtime that neo_nccl.h makes from C, by their names. For tests only: so the examples run over
   the NCCL backend with several ranks, on the kernels of neo_cuda.cuh. (fake_nccl.c is the stand-in
   that tests faults and waiting; it has no kernels.)

   A group of transfers is a kernel of the rank's GPU, which runs one of them at a time. It begins
   when its stream comes to it and no other one of the rank runs, copies what a peer sends once the
   peer's kernel has begun, and ends when all that it sends has been copied: so kernels of several
   cliques that come in other orders on other ranks wait for ever, as NCCL's may. No host waits, but
   to make a clique. After an abort the kernels of that rank end, whatever they were to do; those of
   the others go on waiting.

   Ranks that share a GPU look as if each had one, but where NEO_EMU_ONE_GPU is set. Sums of NCCL's
   own add from the rank behind this one on, as around a ring: other bits than the tree's, the same
   in each run. */
#include "cuda_on_cpu.h"

#include <atomic>
#include <condition_variable>

/* ---- CUDA, from C ---- */
#define FROM_C(type, name, parameters, arguments)                                                  \
    extern "C" type c_##name parameters __asm__(#name);                                            \
    extern "C" type c_##name parameters { return name arguments; }
FROM_C(cudaError_t, cudaGetLastError, (), ())
FROM_C(const char *, cudaGetErrorString, (cudaError_t e), (e))
FROM_C(cudaError_t, cudaSetDevice, (int d), (d))
FROM_C(cudaError_t, cudaMalloc, (void **p, size_t n), (p, n))
FROM_C(cudaError_t, cudaFree, (void *p), (p))
FROM_C(cudaError_t, cudaMallocHost, (void **p, size_t n), (p, n))
FROM_C(cudaError_t, cudaFreeHost, (void *p), (p))
FROM_C(cudaError_t, cudaMemcpyAsync,
       (void *to, const void *from, size_t n, cudaMemcpyKind k, cudaStream_t s),
       (to, from, n, k, s))
FROM_C(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t *s, unsigned f), (s, f))
FROM_C(cudaError_t, cudaStreamDestroy, (cudaStream_t s), (s))
FROM_C(cudaError_t, cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned f), (s, e, f))
FROM_C(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t *e, unsigned f), (e, f))
FROM_C(cudaError_t, cudaEventDestroy, (cudaEvent_t e), (e))
FROM_C(cudaError_t, cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (e, s))
FROM_C(cudaError_t, cudaEventQuery, (cudaEvent_t e), (e))

extern "C" cudaError_t c_cudaDeviceGetPCIBusId(char *, int, int) __asm__("cudaDeviceGetPCIBusId");
extern "C" cudaError_t c_cudaDeviceGetPCIBusId(char *name, int bytes, int) {
    static std::atomic<int> ranks;
    thread_local const int mine = ranks++;
    snprintf(name, (size_t)bytes, "0000:%02X:00.0", getenv("NEO_EMU_ONE_GPU") ? 0 : mine);
    return cudaSuccess;
}

/* ---- NCCL ---- */
namespace {
enum result { OK = 0, UNHANDLED = 1, INTERNAL = 3, INVALID = 4 };
struct unique_id { char internal[128]; };
/* What one rank sends to another. All but making a clique is under the emulated device's lock. */
struct transfer {
    const void *from = nullptr;
    size_t bytes = 0;
    bool begun = false, copied = false; /* the sender's kernel; by the receiver's */
};
typedef std::shared_ptr<transfer> shared_transfer;
struct whole_sum { /* of NCCL's own */
    std::vector<std::vector<float>> ranks;
    int brought = 0;
};
struct clique {
    int size = 0, joined = 0;
    std::map<std::pair<int, int>, std::vector<shared_transfer>> pairs; /* from, to: in order */
    std::map<std::pair<int, int>, size_t> sent, received;              /* how many of them so far */
    std::vector<std::shared_ptr<whole_sum>> sums;
};
struct gpu { bool busy = false; }; /* a kernel runs */
struct member {
    std::shared_ptr<clique> of;
    std::shared_ptr<gpu> on;
    int rank, size;
    size_t sums = 0; /* it has called for so many */
    bool aborted = false;
};
struct call {
    std::shared_ptr<member> m;
    enum { SEND, RECEIVE, SUM } kind;
    const void *from;
    void *to;
    size_t bytes; /* of a sum: f32, of all ranks */
    int peer;     /* of a sum: does it scatter? */
    cudaStream_t stream;
};
typedef std::shared_ptr<member> *handle;
std::mutex lock;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<clique>> cliques;
long next_id;
thread_local std::vector<call> group;
thread_local int open_groups;
thread_local std::shared_ptr<gpu> own_gpu;

/* The transfer of a call: those between two ranks pair in the order of their calls. */
shared_transfer transfer_of(const call &c) {
    clique *of = c.m->of.get();
    const bool sends = c.kind == call::SEND;
    const std::pair<int, int> way(sends ? c.m->rank : c.peer, sends ? c.peer : c.m->rank);
    const size_t number = sends ? of->sent[way]++ : of->received[way]++;
    std::vector<shared_transfer> &all = of->pairs[way];
    while (all.size() <= number) all.push_back(std::make_shared<transfer>());
    shared_transfer t = all[number];
    if (sends) t->from = c.from, t->bytes = c.bytes;
    return t;
}
/* The sum of all ranks' f32 to a rank, or its part of it. */
void add(const whole_sum &sum, const member &m, bool scatters, float *out) {
    const size_t all = sum.ranks[0].size(), part = all / (size_t)m.size;
    for (size_t i = 0; i < (scatters ? part : all); i++) {
        const size_t at = scatters ? (size_t)m.rank * part + i : i;
        float s = 0.0f;
        for (int r = 1; r <= m.size; r++)
            s += sum.ranks[(size_t)(((scatters ? m.rank : 0) + r) % m.size)][at];
        out[i] = s;
    }
}
/* A group's kernel, as tasks of its stream. */
int launch(const std::vector<call> &calls) {
    if (calls.empty()) return OK;
    const cudaStream_t stream = calls[0].stream;
    const std::shared_ptr<member> m = calls[0].m;
    std::vector<shared_transfer> of;
    std::vector<std::shared_ptr<whole_sum>> sums;
    bool good = true;
    for (const call &c : calls) {
        if (c.m != m || c.stream != stream) return INVALID;
        of.push_back(c.kind == call::SUM ? nullptr : transfer_of(c));
        if (c.kind != call::SUM) continue;
        std::vector<std::shared_ptr<whole_sum>> &all = m->of->sums;
        while (all.size() <= m->sums) all.push_back(std::make_shared<whole_sum>());
        sums.push_back(all[m->sums++]);
        sums.back()->ranks.resize((size_t)m->size);
    }
    const auto task = [&](std::function<bool()> may, neo_emu::task run) {
        good = good && neo_emu::submit(stream, std::move(run), std::move(may)) == cudaSuccess;
    };
    const std::shared_ptr<bool> runs = std::make_shared<bool>(false);
    const auto begin = [m, calls, of, sums, runs] {
        size_t sum = 0;
        if (m->aborted) return cudaSuccess;
        *runs = m->on->busy = true;
        for (size_t i = 0; i < calls.size(); i++) {
            if (calls[i].kind == call::SEND) of[i]->begun = true;
            if (calls[i].kind != call::SUM) continue;
            const float *from = (const float *)calls[i].from;
            sums[sum]->ranks[(size_t)m->rank].assign(from, from + calls[i].bytes);
            sums[sum++]->brought++;
        }
        return cudaSuccess;
    };
    task([m] { return m->aborted || !m->on->busy; }, begin);
    size_t sum = 0;
    for (size_t i = 0; i < calls.size(); i++) {
        const call c = calls[i];
        const shared_transfer t = of[i];
        if (c.kind == call::RECEIVE)
            task([m, t] { return m->aborted || t->begun; }, [m, t, c]() -> cudaError_t {
                if (m->aborted) return cudaSuccess;
                if (t->bytes != c.bytes)
                    return neo_emu::report(cudaErrorLaunchFailure,
                                           "rank %d receives %zu bytes of %zu from rank %d",
                                           m->rank, c.bytes, t->bytes, c.peer);
                t->copied = true;
                return neo_emu::run_copy({c.to, c.bytes, c.bytes, 1},
                                         {t->from, c.bytes, c.bytes, 1});
            });
        if (c.kind != call::SUM) continue;
        const std::shared_ptr<whole_sum> s = sums[sum++];
        task([m, s] { return m->aborted || s->brought == m->size; }, [m, s, c] {
            if (!m->aborted) add(*s, *m, c.peer != 0, (float *)c.to);
            return cudaSuccess;
        });
    }
    const auto all_copied = [m, calls, of] {
        for (size_t i = 0; i < calls.size(); i++)
            if (calls[i].kind == call::SEND && !of[i]->copied && !m->aborted) return false;
        return true;
    };
    task(all_copied, [m, runs] {
        if (*runs) m->on->busy = false;
        return cudaSuccess;
    });
    return good ? OK : UNHANDLED;
}
int take(call c) {
    NEO_EMU_LOCK;
    if (open_groups == 0) return launch({c});
    group.push_back(c);
    return OK;
}
} // namespace

extern "C" {
int ncclAllReduce(const void *in, void *out, size_t count, int type, int, void *comm,
                  cudaStream_t s) {
    if (type != 7) return INVALID;
    return take({*(handle)comm, call::SUM, in, out, count, 0, s});
}
int ncclReduceScatter(const void *in, void *out, size_t part, int type, int, void *comm,
                      cudaStream_t s) {
    const std::shared_ptr<member> m = *(handle)comm;
    if (type != 7) return INVALID;
    return take({m, call::SUM, in, out, part * (size_t)m->size, 1, s});
}
int ncclGetUniqueId(unique_id *id) {
    std::unique_lock<std::mutex> held(lock);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "clique %ld", next_id++);
    return OK;
}
int ncclCommInitRankConfig(void **comm, int size, unique_id id, int rank, void *) {
    std::unique_lock<std::mutex> held(lock);
    std::shared_ptr<clique> &c = cliques[id.internal];
    if (!c) c.reset(new clique);
    std::shared_ptr<clique> mine = c;
    mine->size = size;
    mine->joined++;
    changed.notify_all();
    const auto all = [&] { return mine->joined == size; };
    if (!changed.wait_for(held, std::chrono::seconds(30), all)) return INTERNAL;
    cliques.erase(id.internal);
    if (!own_gpu) own_gpu = std::make_shared<gpu>();
    *comm = new std::shared_ptr<member>(new member{mine, own_gpu, rank, size});
    return OK;
}
int ncclCommGetAsyncError(void *, int *state) { return *state = OK; }
int ncclCommAbort(void *comm) {
    NEO_EMU_LOCK;
    (*(handle)comm)->aborted = true;
    delete (handle)comm;
    return OK;
}
int ncclCommFinalize(void *) { return OK; }
int ncclCommDestroy(void *comm) {
    NEO_EMU_LOCK;
    delete (handle)comm; /* its kernels still run */
    return OK;
}
const char *ncclGetErrorString(int result) {
    return result == UNHANDLED ? "unhandled cuda error" : "internal error";
}
const char *ncclGetLastError(void *) { return ""; }
int ncclGroupStart() {
    if (open_groups++ == 0) group.clear();
    return OK;
}
int ncclSend(const void *data, size_t bytes, int, int peer, void *comm, cudaStream_t stream) {
    return take({*(handle)comm, call::SEND, data, nullptr, bytes, peer, stream});
}
int ncclRecv(void *data, size_t bytes, int, int peer, void *comm, cudaStream_t stream) {
    return take({*(handle)comm, call::RECEIVE, nullptr, data, bytes, peer, stream});
}
int ncclGroupEnd() {
    NEO_EMU_LOCK;
    std::vector<call> calls;
    if (--open_groups > 0) return OK;
    calls.swap(group);
    return launch(calls);
}
}
