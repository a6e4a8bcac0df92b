/* fake_nccl.c: the calls of the CUDA runtime and of NCCL that neo_nccl.h makes, on host memory,
   with the threads of one process as ranks. For tests only: linked (or included) in place of the
   real libraries.

   Strict where the real ones are forgiving or undefined, by abort() with a message: device memory
   may be touched by tasks of streams alone (its pages are PROT_NONE where the program sees them;
   the tasks use a second mapping), at most as far as it was allocated, on its own device, with that
   device current; asynchronous copies need pinned memory; the two ends of a transfer must be of one
   size. As asynchronous as the real ones: a stream is a thread with a queue; a group of NCCL is in
   progress until all of its pairs have met once, and only then on its stream; its transfers happen
   when both ends run; finalising waits for all ranks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fake_nccl.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER; /* of everything */
/* An event is complete, a stream is empty or gone; a transfer of a group is done, or will not be. A
   stream without work waits for its own condition: one for all would wake every thread each time.
   */
static pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t fake_moved = PTHREAD_COND_INITIALIZER;

static void fake_die(const char *what) {
    fprintf(stderr, "fake_nccl: %s\n", what);
    fflush(stderr);
    abort();
}
static void *fake_new(size_t bytes) {
    void *p = calloc(1, bytes);
    if (!p) fake_die("no memory");
    return p;
}
static int64_t fake_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- faults and counts, under the lock ---- */
typedef struct fake_op fake_op;
enum { FAKE_FAULTS = 16, FAKE_NAMES = 64 };
typedef struct fake_fault {
    const char *function;
    int device, nth, error, used;
} fake_fault;
typedef struct fake_count {
    const char *function;
    int calls[FAKE_DEVICES];
} fake_count;
typedef struct fake_group_fault {
    int set, nth, result, lost, hangs;
} fake_group_fault;
static struct {
    fake_fault fault[FAKE_FAULTS];
    fake_count count[FAKE_NAMES];
    fake_group_fault group[FAKE_DEVICES];
    int never_joins[FAKE_DEVICES];
    int delay_us, released, workers, orphans; /* orphans: streams of before a reset */
    int same_gpu, sizes_differ, one_kernel, deadlocks;
    int tasks[FAKE_DEVICES], hung[FAKE_DEVICES]; /* tasks: on its streams */
    ncclComm_t runs[FAKE_DEVICES]; /* the communicator whose kernel occupies the device */
    fake_op *awaits[FAKE_DEVICES]; /* the transfers of that kernel */
    int live[5];
    uint64_t random;
} fake;
enum { FAKE_MEMORY, FAKE_PINNED, FAKE_STREAM, FAKE_EVENT, FAKE_COMM };

static __thread int fake_device;
static __thread cudaError_t fake_last;

static int fake_delay(void) {
    if (fake.delay_us <= 0) return 0;
    fake.random = fake.random * 6364136223846793005u + 1442695040888963407u;
    return (int)((fake.random >> 33) % (uint64_t)(fake.delay_us + 1));
}
/* Every call begins here; takes the lock and keeps it. Returns the injected error. */
static int fake_enter(const char *function, int device) {
    int error = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FAKE_NAMES; i++) {
        if (fake.count[i].function && strcmp(fake.count[i].function, function) != 0) continue;
        fake.count[i].function = function;
        fake.count[i].calls[device]++;
        break;
    }
    for (int i = 0; i < FAKE_FAULTS; i++) {
        fake_fault *f = &fake.fault[i];
        if (!f->function || f->used || strcmp(f->function, function) != 0) continue;
        if (f->device >= 0 && f->device != device) continue;
        if (f->nth-- > 0) continue;
        f->used = 1;
        error = f->error;
        break;
    }
    if (error && strncmp(function, "cuda", 4) == 0) fake_last = (cudaError_t)error;
    if (error) pthread_mutex_unlock(&fake_lock);
    return error;
}
static void fake_leave(void) { pthread_mutex_unlock(&fake_lock); }
#define ENTER(type, device)                                                                        \
    do {                                                                                           \
        int injected = fake_enter(__func__, device);                                               \
        if (injected) return (type)injected;                                                       \
    } while (0)

void fake_fail(const char *function, int device, int nth, int error) {
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FAKE_FAULTS; i++) {
        fake_fault *f = &fake.fault[i];
        if (f->function) continue;
        f->function = function;
        f->device = device;
        f->nth = nth;
        f->error = error;
        f->used = 0;
        fake_leave();
        return;
    }
    fake_die("too many faults");
}
int fake_calls(const char *function, int device) {
    int calls = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < FAKE_NAMES; i++)
        if (fake.count[i].function && strcmp(fake.count[i].function, function) == 0)
            calls = fake.count[i].calls[device];
    fake_leave();
    return calls;
}
static void fake_group_set(int device, int nth, int result, int lost, int hangs) {
    pthread_mutex_lock(&fake_lock);
    fake_group_fault f = {1, nth, result, lost, hangs};
    fake.group[device] = f;
    fake_leave();
}
void fake_async_error(int device, int nth, int result) {
    fake_group_set(device, nth, result, 1, 0);
}
void fake_lose_group(int device, int nth) { fake_group_set(device, nth, 0, 1, 0); }
void fake_hang_group(int device, int nth) { fake_group_set(device, nth, 0, 1, 1); }
int fake_hangs(void) {
    pthread_mutex_lock(&fake_lock);
    const int hangs = fake.hung[fake_device];
    fake_leave();
    return hangs;
}
void fake_never_join(int device) {
    pthread_mutex_lock(&fake_lock);
    fake.never_joins[device] = 1;
    fake_leave();
}
void fake_share_gpu(void) {
    pthread_mutex_lock(&fake_lock);
    fake.same_gpu = 1;
    fake_leave();
}
void fake_let_sizes_differ(void) {
    pthread_mutex_lock(&fake_lock);
    fake.sizes_differ = 1;
    fake_leave();
}
void fake_one_kernel(uint64_t seed) {
    pthread_mutex_lock(&fake_lock);
    fake.one_kernel = 1;
    fake.random = seed;
    fake_leave();
}
int fake_deadlocks(void) {
    pthread_mutex_lock(&fake_lock);
    int n = fake.deadlocks;
    fake_leave();
    return n;
}
void fake_delay_us(int us) {
    pthread_mutex_lock(&fake_lock);
    fake.delay_us = us;
    fake_leave();
}
int fake_live(const char **text) {
    static char buffer[160];
    int n = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < 5; i++) n += fake.live[i];
    snprintf(buffer, sizeof buffer, "%d memory, %d pinned, %d streams, %d events, %d communicators",
             fake.live[0], fake.live[1], fake.live[2], fake.live[3], fake.live[4]);
    fake_leave();
    if (text) *text = buffer;
    return n;
}

/* ---- memory ---- */
typedef struct fake_block {
    char *shown, *real; /* pinned: the same */
    size_t bytes, mapped;
    int device; /* -1: pinned */
    struct fake_block *next;
} fake_block;
static fake_block *fake_blocks;

static fake_block *fake_find(const void *p) {
    for (fake_block *b = fake_blocks; b; b = b->next)
        if ((const char *)p >= b->shown && (const char *)p < b->shown + (b->bytes ? b->bytes : 1))
            return b;
    return NULL;
}
/* Where [p, p + bytes) of this device (-1: pinned memory) really is. Under the lock. */
static char *fake_place(const void *p, size_t bytes, int device) {
    const fake_block *b = fake_find(p);
    if (!b) fake_die(device < 0 ? "not pinned memory" : "not device memory");
    if (b->device != device) fake_die("memory of another device");
    size_t at = (size_t)((const char *)p - b->shown);
    if (bytes > b->bytes - at) fake_die("past the end of the memory");
    return b->real + at;
}
static fake_block *fake_map(size_t bytes, int device) {
    fake_block *b = (fake_block *)fake_new(sizeof *b);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    b->bytes = bytes;
    b->mapped = (bytes + page) / page * page;
    b->device = device;
    if (device < 0) {
        b->shown = b->real = (char *)aligned_alloc(64, (b->mapped + 63) / 64 * 64);
    } else {
        int fd = memfd_create("fake_nccl", 0);
        if (fd < 0 || ftruncate(fd, (off_t)b->mapped) != 0) fake_die("no shared memory");
        b->real = (char *)mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        b->shown = (char *)mmap(NULL, b->mapped, PROT_NONE, MAP_SHARED, fd, 0);
        close(fd);
        if (b->real == MAP_FAILED || b->shown == MAP_FAILED) fake_die("cannot map memory");
    }
    memset(b->real, 0xCD, b->mapped);
    b->next = fake_blocks;
    fake_blocks = b;
    return b;
}
static void fake_unmap(fake_block *b) {
    fake_block **at = &fake_blocks;
    while (*at != b) at = &(*at)->next;
    *at = b->next;
    if (b->device < 0) {
        free(b->real);
    } else {
        munmap(b->real, b->mapped);
        munmap(b->shown, b->mapped);
    }
    free(b);
}
cudaError_t cudaMalloc(void **p, size_t bytes) {
    ENTER(cudaError_t, fake_device);
    *p = fake_map(bytes, fake_device)->shown;
    fake.live[FAKE_MEMORY]++;
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
    ENTER(cudaError_t, fake_device);
    *p = fake_map(bytes, -1)->shown;
    fake.live[FAKE_PINNED]++;
    fake_leave();
    return cudaSuccess;
}
static void fake_free(void *p, int pinned) {
    fake_block *b = p ? fake_find(p) : NULL;
    if (p && (!b || b->shown != (char *)p || (b->device < 0) != pinned))
        fake_die("freed what was not allocated");
    if (b) fake.live[pinned ? FAKE_PINNED : FAKE_MEMORY]--;
    if (b) fake_unmap(b);
}
/* Waits for the device, as the real one does. */
cudaError_t cudaFree(void *p) {
    ENTER(cudaError_t, fake_device);
    while (p && fake.tasks[fake_device] > 0 && !fake.hung[fake_device])
        pthread_cond_wait(&fake_changed, &fake_lock);
    fake_free(p, 0);
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    ENTER(cudaError_t, fake_device);
    fake_free(p, 1);
    fake_leave();
    return cudaSuccess;
}
/* For the tests, with any host memory: at once, as a program that has waited for its streams sees
   it. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    ENTER(cudaError_t, fake_device);
    void *t = kind == cudaMemcpyHostToDevice ? fake_place(to, bytes, fake_device) : to;
    const void *f = kind == cudaMemcpyDeviceToHost ? fake_place(from, bytes, fake_device) : from;
    memcpy(t, f, bytes);
    fake_leave();
    return cudaSuccess;
}
void *fake_memory(const void *p, size_t bytes) {
    pthread_mutex_lock(&fake_lock);
    const fake_block *b = fake_find(p);
    if (!b) fake_die("not device memory");
    void *real = fake_place(p, bytes, b->device);
    fake_leave();
    return real;
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= FAKE_DEVICES) return fake_last = cudaErrorInvalidDevice;
    ENTER(cudaError_t, device);
    fake_device = device;
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *name, int bytes, int device) {
    ENTER(cudaError_t, device);
    snprintf(name, (size_t)bytes, "0000:%02X:00.0", fake.same_gpu ? 0 : device);
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *count) {
    *count = FAKE_DEVICES;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
    cudaError_t error = fake_last;
    fake_last = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error) {
    if (error == cudaErrorMemoryAllocation) return "out of memory";
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                            : "some CUDA error";
}

/* ---- streams and events ---- */
struct fake_op {
    int send, peer, done;
    char *data;
    size_t bytes;
    struct fake_op *next, *next_in_group;
};
typedef struct fake_task {
    enum { FAKE_COPY, FAKE_RECORD, FAKE_WAIT, FAKE_GROUP, FAKE_CALL } kind;
    void *to;
    const void *from;
    size_t bytes;
    cudaEvent_t event;
    uint64_t value;
    ncclComm_t comm;
    fake_op *ops;
    int lost, hangs, result;
    void (*fn)(void *arg);
    void *arg;
    struct fake_task *next;
} fake_task;
struct CUstream_st {
    int device, quit, busy;
    fake_task *first, *last;
    pthread_cond_t put;
};
struct CUevent_st {
    int device, references;
    uint64_t recorded, completed;
};
static void fake_group_run(fake_task *t);

static void fake_event_drop(cudaEvent_t e) {
    if (--e->references == 0) free(e);
}
static void fake_task_run(fake_task *t) {
    switch (t->kind) {
    case FAKE_COPY:
        if (fake.released) break; /* behind what hung: its memory may be gone */
        fake_leave();
        memcpy(t->to, t->from, t->bytes);
        pthread_mutex_lock(&fake_lock);
        break;
    case FAKE_RECORD:
        if (t->value > t->event->completed) t->event->completed = t->value;
        fake_event_drop(t->event);
        break;
    case FAKE_WAIT:
        while (t->event->completed < t->value) pthread_cond_wait(&fake_changed, &fake_lock);
        fake_event_drop(t->event);
        break;
    case FAKE_GROUP: fake_group_run(t); break;
    case FAKE_CALL:
        fake_leave();
        t->fn(t->arg);
        pthread_mutex_lock(&fake_lock);
        break;
    }
}
static void *fake_stream_main(void *arg) {
    cudaStream_t s = (cudaStream_t)arg;
    pthread_mutex_lock(&fake_lock);
    for (;;) {
        while (!s->first && !s->quit) pthread_cond_wait(&s->put, &fake_lock);
        fake_task *t = s->first;
        if (!t) break;
        int us = fake_delay();
        if (us) {
            fake_leave();
            usleep((useconds_t)us);
            pthread_mutex_lock(&fake_lock);
        }
        fake_task_run(t);
        s->first = t->next;
        fake.tasks[s->device]--;
        if (!s->first) s->last = NULL;
        if (!s->first || t->kind == FAKE_RECORD) pthread_cond_broadcast(&fake_changed);
        free(t);
    }
    pthread_cond_destroy(&s->put);
    free(s);
    fake.workers--;
    pthread_cond_broadcast(&fake_changed);
    fake_leave();
    return NULL;
}
static void fake_put(cudaStream_t s, fake_task *t) {
    if (s->last) s->last->next = t;
    else s->first = t;
    s->last = t;
    fake.tasks[s->device]++;
    pthread_cond_signal(&s->put);
}
static fake_task *fake_task_new(int kind) {
    fake_task *t = (fake_task *)fake_new(sizeof *t);
    t->kind = kind;
    return t;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    pthread_t thread;
    (void)flags;
    ENTER(cudaError_t, fake_device);
    cudaStream_t s = (cudaStream_t)fake_new(sizeof *s);
    s->device = fake_device;
    pthread_cond_init(&s->put, NULL);
    if (pthread_create(&thread, NULL, fake_stream_main, s) != 0) fake_die("no thread");
    pthread_detach(thread);
    fake.workers++;
    fake.live[FAKE_STREAM]++;
    *stream = s;
    fake_leave();
    return cudaSuccess;
}
/* What is on it still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    ENTER(cudaError_t, s->device);
    s->quit = 1;
    fake.live[FAKE_STREAM]--;
    pthread_cond_signal(&s->put);
    fake_leave();
    return cudaSuccess;
}
/* For the tests. */
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    ENTER(cudaError_t, s->device);
    while (s->first) pthread_cond_wait(&fake_changed, &fake_lock);
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    (void)flags;
    ENTER(cudaError_t, fake_device);
    cudaEvent_t e = (cudaEvent_t)fake_new(sizeof *e);
    e->device = fake_device;
    e->references = 1;
    fake.live[FAKE_EVENT]++;
    *event = e;
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    ENTER(cudaError_t, e->device);
    fake.live[FAKE_EVENT]--;
    fake_event_drop(e);
    fake_leave();
    return cudaSuccess;
}
static void fake_current(cudaStream_t s) {
    if (!s) fake_die("the default stream");
    if (s->device != fake_device) fake_die("the current device is not the stream's");
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ENTER(cudaError_t, s->device);
    fake_current(s);
    if (e->device != s->device) fake_die("event and stream are of two devices");
    fake_task *t = fake_task_new(FAKE_RECORD);
    t->event = e;
    t->value = ++e->recorded;
    e->references++;
    fake_put(s, t);
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned int flags) {
    (void)flags;
    ENTER(cudaError_t, s->device);
    fake_current(s);
    fake_task *t = fake_task_new(FAKE_WAIT);
    t->event = e;
    t->value = e->recorded;
    e->references++;
    fake_put(s, t);
    fake_leave();
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    ENTER(cudaError_t, e->device);
    int done = e->completed >= e->recorded;
    fake_leave();
    if (!done) fake_last = cudaErrorNotReady; /* as older versions do */
    return done ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    ENTER(cudaError_t, s->device);
    fake_current(s);
    fake_task *t = fake_task_new(FAKE_COPY);
    t->to = fake_place(to, bytes, kind == cudaMemcpyDeviceToHost ? -1 : s->device);
    t->from = fake_place(from, bytes, kind == cudaMemcpyHostToDevice ? -1 : s->device);
    t->bytes = bytes;
    fake_put(s, t);
    fake_leave();
    return cudaSuccess;
}
void fake_launch(void *stream, void (*fn)(void *arg), void *arg) {
    cudaStream_t s = (cudaStream_t)stream;
    pthread_mutex_lock(&fake_lock);
    fake_current(s);
    fake_task *t = fake_task_new(FAKE_CALL);
    t->fn = fn;
    t->arg = arg;
    fake_put(s, t);
    fake_leave();
}

/* ---- NCCL ---- */
typedef struct fake_pair {
    fake_op *first[2], *last[2]; /* receives, sends that are posted and wait for the other */
    int offered[2];              /* the receiver, the sender has had a group with it */
} fake_pair;
typedef struct fake_clique {
    uint64_t id;
    int size, joined, finalized, gone, members;
    int *device; /* [size] of each rank */
    fake_pair *pair; /* [source * size + destination] */
    struct fake_clique *next;
} fake_clique;
static fake_clique *fake_cliques;
struct ncclComm {
    fake_clique *clique;
    int rank, device, references, initialized, finalizing, aborted, groups;
    ncclResult_t state;
    fake_task *pending; /* a group that is in progress */
    cudaStream_t stream;
    int64_t ready_ns;
};
static __thread struct {
    int depth;
    ncclResult_t error;
    ncclComm_t comm;
    cudaStream_t stream;
    fake_op *first, *last;
} fake_grouping;

static void fake_clique_drop(fake_clique *q) {
    if (--q->members > 0) return;
    fake_clique **at = &fake_cliques;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    free(q->pair);
    free(q->device);
    free(q);
}
static void fake_comm_drop(ncclComm_t c) {
    if (--c->references > 0) return;
    fake_clique_drop(c->clique);
    free(c);
}
static fake_pair *fake_pair_of(ncclComm_t c, const fake_op *op) {
    int from = op->send ? c->rank : op->peer, to = op->send ? op->peer : c->rank;
    return &c->clique->pair[from * c->clique->size + to];
}
static void fake_pair_match(fake_pair *p) {
    if (!p->first[0] || !p->first[1]) return;
    while (p->first[0] && p->first[1]) {
        fake_op *end[2] = {p->first[0], p->first[1]};
        if (end[0]->bytes != end[1]->bytes && fake.sizes_differ) return;
        if (end[0]->bytes != end[1]->bytes)
            fake_die("the two ends of a transfer are of different sizes");
        memcpy(end[0]->data, end[1]->data, end[0]->bytes);
        for (int i = 0; i < 2; i++) {
            p->first[i] = end[i]->next;
            if (!p->first[i]) p->last[i] = NULL;
            end[i]->done = 1;
        }
    }
    pthread_cond_broadcast(&fake_moved);
}
static void fake_pair_take_back(fake_pair *p, fake_op *op) {
    fake_op *last = NULL;
    for (fake_op **at = &p->first[op->send]; *at;) {
        if (*at == op) {
            *at = op->next;
        } else {
            last = *at;
            at = &(*at)->next;
        }
    }
    p->last[op->send] = last;
}
static void fake_ops_free(fake_op *op) {
    while (op) {
        fake_op *next = op->next_in_group;
        free(op);
        op = next;
    }
}
/* Does what runs on `device` wait, over any others, for a kernel that cannot run before it ends? An
   occupant waits for peers; a peer whose device another communicator's kernel occupies waits for
   the end of that. */
static int fake_waits_for(int device, int for_device, int *seen) {
    const ncclComm_t c = fake.runs[device];
    if (!c || c->aborted || seen[device]++) return 0;
    for (const fake_op *op = fake.awaits[device]; op; op = op->next_in_group) {
        const int other = c->clique->device[op->peer];
        const ncclComm_t there = fake.runs[other];
        if (op->done || !there || there->clique == c->clique) continue;
        if (other == for_device || fake_waits_for(other, for_device, seen)) return 1;
    }
    return 0;
}
/* With fake_one_kernel: the device is this kernel's until all of its transfers are done. Where
   kernels of two devices wait for each other's end, that is found out and counted, and NCCL says
   so, as only an abort ends it. */
static void fake_occupy(ncclComm_t c, fake_op *ops) {
    if (!fake.one_kernel) return;
    while (fake.runs[c->device] && !c->aborted) pthread_cond_wait(&fake_moved, &fake_lock);
    if (c->aborted) return;
    fake.runs[c->device] = c;
    fake.awaits[c->device] = ops;
    for (int d = 0; d < FAKE_DEVICES; d++) {
        int seen[FAKE_DEVICES] = {0};
        if (!fake_waits_for(d, d, seen)) continue;
        if (fake.runs[d]->state != ncclInternalError) fake.deadlocks++;
        fake.runs[d]->state = ncclInternalError;
    }
}
static void fake_vacate(ncclComm_t c) {
    if (!fake.one_kernel || fake.runs[c->device] != c) return;
    fake.runs[c->device] = NULL;
    pthread_cond_broadcast(&fake_moved);
}
static void fake_group_run(fake_task *t) {
    ncclComm_t c = t->comm;
    if (t->result) c->state = (ncclResult_t)t->result;
    if (!t->lost) fake_occupy(c, t->ops);
    if (t->lost) {
        fake.hung[c->device] |= t->hangs;
        while (t->hangs ? !fake.released : !c->aborted)
            pthread_cond_wait(&fake_moved, &fake_lock);
    } else if (!c->aborted) {
        int left = 1;
        for (fake_op *op = t->ops; op; op = op->next_in_group) {
            fake_pair *p = fake_pair_of(c, op);
            if (p->last[op->send]) p->last[op->send]->next = op;
            else p->first[op->send] = op;
            p->last[op->send] = op;
            fake_pair_match(p);
        }
        while (!c->aborted) {
            left = 0;
            for (fake_op *op = t->ops; op; op = op->next_in_group) left += !op->done;
            if (!left) break;
            pthread_cond_wait(&fake_moved, &fake_lock);
        }
        for (fake_op *op = t->ops; op && left; op = op->next_in_group)
            if (!op->done) fake_pair_take_back(fake_pair_of(c, op), op);
    }
    fake_vacate(c);
    fake_ops_free(t->ops);
    fake_comm_drop(c);
}
const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "in progress"};
    return (int)result >= 0 && result < ncclNumResults ? text[result] : "unknown";
}
const char *ncclGetLastError(ncclComm_t c) {
    (void)c;
    return "fake:\nlast error";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static uint64_t next;
    ENTER(ncclResult_t, fake_device);
    memset(id, 0x77, sizeof *id);
    next++;
    memcpy(id->internal, &next, sizeof next);
    fake_leave();
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    uint64_t number;
    ENTER(ncclResult_t, fake_device);
    if (config->blocking != 0) fake_die("a communicator that blocks may hang");
    if (config->magic != 0xcafebeef) fake_die("a configuration that is not initialised");
    memcpy(&number, id.internal, sizeof number);
    if (id.internal[20] != 0x77) fake_die("no unique id");
    fake_clique *q = fake_cliques;
    while (q && q->id != number) q = q->next;
    if (!q) {
        q = (fake_clique *)fake_new(sizeof *q);
        q->id = number;
        q->size = size;
        q->pair = (fake_pair *)fake_new((size_t)(size * size) * sizeof *q->pair);
        q->device = (int *)fake_new((size_t)size * sizeof *q->device);
        q->next = fake_cliques;
        fake_cliques = q;
    }
    if (q->size != size || rank < 0 || rank >= size) fake_die("ranks disagree");
    ncclComm_t c = (ncclComm_t)fake_new(sizeof *c);
    c->clique = q;
    c->rank = rank;
    c->device = q->device[rank] = fake_device;
    c->references = 1;
    c->state = ncclInProgress;
    q->members++;
    q->joined += !fake.never_joins[fake_device];
    fake.live[FAKE_COMM]++;
    *comm = c;
    fake_leave();
    return ncclInProgress;
}
/* What has come about since the last look. */
static void fake_comm_look(ncclComm_t c) {
    if (c->state != ncclInProgress) return;
    if (!c->initialized) {
        if (c->clique->joined < c->clique->size) return;
        c->initialized = 1;
        c->state = ncclSuccess;
    }
    if (c->pending && fake_now() >= c->ready_ns) {
        for (const fake_op *op = c->pending->ops; op; op = op->next_in_group) {
            const fake_pair *p = fake_pair_of(c, op);
            if (!p->offered[0] || !p->offered[1]) return;
        }
        fake_put(c->stream, c->pending);
        c->pending = NULL;
        c->state = ncclSuccess;
    }
    if (c->finalizing && c->clique->finalized + c->clique->gone >= c->clique->size)
        c->state = ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
    ENTER(ncclResult_t, c->device);
    fake_comm_look(c);
    *state = c->state;
    fake_leave();
    return ncclSuccess;
}
ncclResult_t ncclGroupStart(void) {
    ENTER(ncclResult_t, fake_device);
    if (fake_grouping.depth++ == 0) fake_grouping.error = ncclSuccess;
    fake_leave();
    return ncclSuccess;
}
static ncclResult_t fake_p2p(int send, const void *data, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t c, cudaStream_t s) {
    if (!fake_grouping.depth) fake_die("a transfer outside of a group may block");
    if (c->state != ncclSuccess)
        return fake_grouping.error = ncclInvalidArgument; /* still in progress */
    if (type != ncclUint8 && type != ncclInt8) fake_die("not bytes");
    if (peer < 0 || peer >= c->clique->size || peer == c->rank || !count)
        fake_die("a transfer with nobody, or of nothing");
    if (s->device != c->device) fake_die("the stream of another device");
    if (fake_grouping.comm && (fake_grouping.comm != c || fake_grouping.stream != s))
        fake_die("two in one group");
    fake_op *op = (fake_op *)fake_new(sizeof *op);
    op->send = send;
    op->peer = peer;
    op->data = fake_place(data, count, c->device);
    op->bytes = count;
    if (fake_grouping.last) fake_grouping.last->next_in_group = op;
    else fake_grouping.first = op;
    fake_grouping.last = op;
    fake_grouping.comm = c;
    fake_grouping.stream = s;
    return ncclSuccess;
}
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
    int injected = fake_enter(__func__, c->device);
    if (injected) return fake_grouping.error = (ncclResult_t)injected;
    ncclResult_t result = fake_p2p(1, data, count, type, peer, c, s);
    fake_leave();
    return result;
}
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s) {
    int injected = fake_enter(__func__, c->device);
    if (injected) return fake_grouping.error = (ncclResult_t)injected;
    ncclResult_t result = fake_p2p(0, data, count, type, peer, c, s);
    fake_leave();
    return result;
}
static void fake_group_launch(void) {
    ncclComm_t c = fake_grouping.comm;
    fake_group_fault *f = &fake.group[c->device];
    fake_task *t = fake_task_new(FAKE_GROUP);
    t->comm = c;
    t->ops = fake_grouping.first;
    if (f->set && f->nth-- == 0) {
        t->lost = f->lost;
        t->hangs = f->hangs;
        t->result = f->result;
        f->set = 0;
    }
    for (const fake_op *op = t->ops; op; op = op->next_in_group)
        fake_pair_of(c, op)->offered[op->send] = 1;
    c->references++;
    c->pending = t;
    c->stream = fake_grouping.stream;
    c->ready_ns = fake_now() + (int64_t)fake_delay() * 1000;
    if (c->state == ncclSuccess) c->state = ncclInProgress; /* an error since its sends stays */
}
ncclResult_t ncclGroupEnd(void) {
    int injected = fake_enter(__func__, fake_device);
    if (injected) pthread_mutex_lock(&fake_lock);
    if (fake_grouping.depth < 1) fake_die("no group");
    fake_grouping.depth--;
    ncclResult_t result = injected ? (ncclResult_t)injected : fake_grouping.error;
    if (fake_grouping.depth == 0) {
        if (result != ncclSuccess) {
            fake_ops_free(fake_grouping.first);
        } else if (fake_grouping.first) {
            fake_group_launch();
            result = ncclInProgress;
        }
        fake_grouping.first = fake_grouping.last = NULL;
        fake_grouping.comm = NULL;
    }
    fake_leave();
    return result;
}
/* Sums of NCCL's own are tests/cuda/emulator/nccl_on_cpu.cpp's. */
ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
    (void)in, (void)out, (void)count, (void)type, (void)op, (void)c, (void)s;
    return ncclInvalidUsage;
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
    return ncclAllReduce(in, out, count, type, op, c, s);
}
ncclResult_t ncclCommFinalize(ncclComm_t c) {
    ENTER(ncclResult_t, c->device);
    if (c->state != ncclSuccess || c->finalizing) fake_die("finalised in the wrong state");
    c->finalizing = 1;
    c->clique->finalized++;
    c->state = ncclInProgress;
    fake_comm_look(c);
    fake_leave();
    return ncclInProgress;
}
static void fake_comm_end(ncclComm_t c) {
    if (c->finalizing) c->clique->finalized--;
    c->clique->gone++;
    c->aborted = 1;
    if (c->pending) {
        fake_ops_free(c->pending->ops);
        free(c->pending);
        c->pending = NULL;
        c->references--;
    }
    fake.live[FAKE_COMM]--;
    fake_comm_drop(c);
    pthread_cond_broadcast(&fake_moved);
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    ENTER(ncclResult_t, c->device);
    if (!c->finalizing || c->state != ncclSuccess)
        fake_die("destroyed before it was finalised: may hang");
    fake_comm_end(c);
    fake_leave();
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    ENTER(ncclResult_t, c->device);
    fake_comm_end(c);
    fake_leave();
    return ncclSuccess;
}

void fake_reset(void) {
    pthread_mutex_lock(&fake_lock);
    fake.released = 1; /* what hangs */
    pthread_cond_broadcast(&fake_moved);
    while (fake.workers > fake.live[FAKE_STREAM] + fake.orphans)
        pthread_cond_wait(&fake_changed, &fake_lock);
    while (fake_blocks) fake_unmap(fake_blocks);
    int workers = fake.workers;
    memset(&fake, 0, sizeof fake);
    fake.workers = fake.orphans = workers;
    fake_leave();
}
