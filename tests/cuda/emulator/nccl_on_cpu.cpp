/* nccl_on_cpu.cpp: the calls of NCCL that neo_comm.h makes, on the emulated CUDA of cuda_on_cpu.h,
   with the threads of one process as ranks, which may share a GPU; and the calls of the CUDA
   runtime that neo_comm.h makes from C, by their names. For tests only: so the examples run over
   the NCCL backend with several ranks, on the kernels of neo_cuda.cuh. (fake_nccl.c is the stand-in
   that tests faults and waiting; it has no kernels.)

   A group of transfers is called by all ranks that take part at about the same time, as neo_comm.h
   does. Each posts its sends, with an event of its stream; its receives wait for the posts of their
   peers, and copy on its own stream after the peer's event; the sender's stream goes on after the
   copy. Nothing is in progress when ncclGroupEnd returns. Ranks that share a GPU look as if each
   had one, but where NEO_EMU_ONE_GPU is set. Sums of NCCL's own add from the rank behind this one
   on, as around a ring: other bits than the tree's, the same in each run. */
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
struct transfer {
    const void *from;
    size_t bytes;
    cudaEvent_t ready, done; /* of the sender's stream; of the receiver's */
    bool copied;
};
/* A clique of ranks: the transfers posted from each to each, in order. */
struct clique {
    int size = 0, joined = 0, left = 0;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<transfer>>> posted;
    std::map<int, std::vector<std::vector<float>>> sums; /* by number: what each rank brings */
};
struct member {
    std::shared_ptr<clique> of;
    int rank, size;
    int sums = 0; /* it has taken part in so many */
};
struct call {
    member *m;
    bool send;
    void *data;
    size_t bytes;
    int peer;
    cudaStream_t stream;
};
std::mutex lock;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<clique>> cliques;
long next_id;
thread_local std::vector<call> group;

/* Until the condition holds; a peer that does not come is an error of the test. */
template <class F> bool wait_for(std::unique_lock<std::mutex> &held, F condition) {
    return changed.wait_for(held, std::chrono::seconds(30), condition);
}
bool event(cudaEvent_t *e, cudaStream_t stream) {
    return cudaEventCreateWithFlags(e, cudaEventDisableTiming) == cudaSuccess &&
           cudaEventRecord(*e, stream) == cudaSuccess;
}
/* The first transfer to a receive, copied on its stream. */
int receive(const call &c) {
    std::shared_ptr<transfer> t;
    {
        std::unique_lock<std::mutex> held(lock);
        std::deque<std::shared_ptr<transfer>> &from = c.m->of->posted[{c.peer, c.m->rank}];
        if (!wait_for(held, [&] { return !from.empty(); })) return INTERNAL;
        t = from.front();
        from.pop_front();
    }
    if (t->bytes != c.bytes) return INTERNAL;
    if (cudaStreamWaitEvent(c.stream, t->ready, 0) != cudaSuccess ||
        cudaMemcpyAsync(c.data, t->from, c.bytes, cudaMemcpyDeviceToDevice, c.stream) !=
            cudaSuccess ||
        !event(&t->done, c.stream))
        return UNHANDLED;
    std::unique_lock<std::mutex> held(lock);
    t->copied = true;
    changed.notify_all();
    return OK;
}
/* The memory of a send may be used again by what comes after on its stream. */
int settle(const call &c, const std::shared_ptr<transfer> &t) {
    {
        std::unique_lock<std::mutex> held(lock);
        if (!wait_for(held, [&] { return t->copied; })) return INTERNAL;
    }
    int bad = cudaStreamWaitEvent(c.stream, t->done, 0) != cudaSuccess;
    bad |= cudaEventDestroy(t->ready) != cudaSuccess || cudaEventDestroy(t->done) != cudaSuccess;
    return bad ? UNHANDLED : OK;
}
/* The sum of all ranks' [all] f32, or this rank's part of it. */
int sum(const void *in, void *out, size_t all, bool scatters, int type, member *m, cudaStream_t s) {
    const size_t part = all / (size_t)m->size;
    std::vector<float> mine(all), added(scatters ? part : all);
    if (type != 7) return INVALID;
    if (cudaMemcpyAsync(mine.data(), in, all * 4, cudaMemcpyDeviceToHost, s) != cudaSuccess ||
        cudaStreamSynchronize(s) != cudaSuccess)
        return UNHANDLED;
    const int number = m->sums++;
    {
        std::unique_lock<std::mutex> held(lock);
        std::vector<std::vector<float>> &ranks = m->of->sums[number];
        ranks.resize((size_t)m->size);
        ranks[(size_t)m->rank] = mine;
        changed.notify_all();
        const auto here = [&] {
            for (const std::vector<float> &r : ranks)
                if (r.size() != all) return false;
            return true;
        };
        if (!wait_for(held, here)) return INTERNAL;
        for (size_t i = 0; i < added.size(); i++) {
            const size_t at = scatters ? (size_t)m->rank * part + i : i;
            const int behind = scatters ? m->rank : 0;
            for (int r = 1; r <= m->size; r++)
                added[i] += ranks[(size_t)((behind + r) % m->size)][at];
        }
    }
    if (cudaMemcpyAsync(out, added.data(), added.size() * 4, cudaMemcpyHostToDevice, s) !=
            cudaSuccess ||
        cudaStreamSynchronize(s) != cudaSuccess)
        return UNHANDLED;
    return OK;
}
} // namespace

extern "C" {
int ncclAllReduce(const void *in, void *out, size_t count, int type, int, void *comm,
                  cudaStream_t s) {
    return sum(in, out, count, false, type, (member *)comm, s);
}
int ncclReduceScatter(const void *in, void *out, size_t part, int type, int, void *comm,
                      cudaStream_t s) {
    member *m = (member *)comm;
    return sum(in, out, part * (size_t)m->size, true, type, m, s);
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
    if (!wait_for(held, [&] { return mine->joined == size; })) return INTERNAL;
    cliques.erase(id.internal);
    *comm = new member{mine, rank, size, 0};
    return OK;
}
int ncclCommGetAsyncError(void *, int *state) { return *state = OK; }
int ncclCommAbort(void *comm) {
    delete (member *)comm;
    return OK;
}
int ncclCommFinalize(void *) { return OK; }
int ncclCommDestroy(void *comm) { return ncclCommAbort(comm); }
const char *ncclGetErrorString(int result) {
    return result == UNHANDLED ? "unhandled cuda error" : "internal error";
}
const char *ncclGetLastError(void *) { return ""; }
int ncclGroupStart() {
    group.clear();
    return OK;
}
int ncclSend(const void *data, size_t bytes, int, int peer, void *comm, cudaStream_t stream) {
    group.push_back({(member *)comm, true, const_cast<void *>(data), bytes, peer, stream});
    return OK;
}
int ncclRecv(void *data, size_t bytes, int, int peer, void *comm, cudaStream_t stream) {
    group.push_back({(member *)comm, false, data, bytes, peer, stream});
    return OK;
}
int ncclGroupEnd() {
    std::vector<call> calls;
    std::vector<std::shared_ptr<transfer>> sent;
    calls.swap(group);
    for (const call &c : calls) {
        if (!c.send) continue;
        std::shared_ptr<transfer> t(new transfer{c.data, c.bytes, nullptr, nullptr, false});
        if (!event(&t->ready, c.stream)) return UNHANDLED;
        sent.push_back(t);
        std::unique_lock<std::mutex> held(lock);
        c.m->of->posted[{c.m->rank, c.peer}].push_back(t);
        changed.notify_all();
    }
    for (const call &c : calls) {
        int result = c.send ? OK : receive(c);
        if (result != OK) return result;
    }
    size_t i = 0;
    for (const call &c : calls) {
        int result = c.send ? settle(c, sent[i++]) : OK;
        if (result != OK) return result;
    }
    return OK;
}
}
