/* nccl.c: groups of GPUs (neo_comm_create_nccl) without a GPU: over fake_nccl.c, whose device
   memory the processor cannot touch. Every collective against the group of threads that it was made
   over, bit for bit; bytes against the formulas; groups out of groups, asynchronous calls, the
   user's stream; many groups on devices that run one kernel of NCCL at a time, in turns and not;
   then faults: every call of CUDA and NCCL fails once, ranks diverge, leave, are late or hang,
   transfers never end. Everything must come back in time, with a reason that names rank and call,
   and leave nothing behind.

   Up to 4 ranks, with NEO_FULL 8. With NEO_REAL_NCCL the first part runs on the machine's GPUs, up
   to as many ranks as there are:
     cc -DNEO_REAL_NCCL tests/comm/nccl.c -lnccl -lcudart -lm -lpthread */
#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#define HAVE_NCCL
#endif
#endif
#ifndef HAVE_NCCL
#include <stdio.h>
int main(void) {
    printf("skipped test_comm_nccl: the headers of CUDA and NCCL are not here\n");
    printf("test_comm_nccl: 0 passed, 0 failed, 1 skipped\n");
    return 0;
}
#else
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define NEO_COMM_NCCL
#define NEO_COMM_IMPLEMENTATION
#ifndef NEO_REAL_NCCL
static int launch_order = 1; /* 0: to show what the order of launches is for */
#define NEO__LAUNCH_ORDER launch_order
/* A thread of a stream may be stopped for as long as any. */
#define NEO__NCCL_DRAIN_MS (fake_hangs() ? (int)NEO__NCCL_REST_MS : (int)TEST_PATIENCE_MS)
int fake_hangs(void);
#endif
#include "grid.h"
#include "ranks.h"
#ifndef NEO_REAL_NCCL
#include "fake_nccl.h"
#if !defined(NEO_FAKE_LINKED)
#include "fake_nccl.c"
#endif
#include <sys/wait.h>
#else
#include <cuda_runtime_api.h>
#endif

static int device_of(const neo_comm *comm) { return neo_comm_rank(comm); }

/* ---- device memory ---- */
static void *on_device(neo_comm *comm, const void *data, size_t bytes) {
    void *p = NULL;
    EXPECT(comm, cudaMalloc(&p, bytes) == cudaSuccess, "no device memory");
    if (data && bytes)
        EXPECT(comm, cudaMemcpy(p, data, bytes, cudaMemcpyHostToDevice) == cudaSuccess,
               "copy to the device");
    return p;
}
static void from_device(neo_comm *comm, void *to, const void *p, size_t bytes) {
    if (bytes)
        EXPECT(comm, cudaMemcpy(to, p, bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy back");
}
/* Is p [bytes] on the device what `want` is? Frees p. */
static void expect_device(neo_comm *comm, void *p, const void *want, size_t bytes,
                          const char *what) {
    char *got = (char *)malloc(bytes + 1);
    from_device(comm, got, p, bytes);
    EXPECT(comm, memcmp(got, want, bytes) == 0, "%s: other bits than threads", what);
    free(got);
    cudaFree(p);
}
static char *on_host(size_t bytes) {
    char *p = (char *)malloc(bytes + 1);
    if (!p) abort();
    memset(p, 0x5A, bytes);
    return p;
}
static int64_t sent(const neo_comm *comm, neo_comm_op op) {
    neo_comm_stats s = neo_comm_get_stats(comm);
    return s.op[op].bytes[0] + s.op[op].bytes[1];
}

/* ---- every collective ---- */
typedef struct plan {
    neo_dtype dtype;
    int64_t count;
    int in_place, async, uneven;
} plan;
static neo_status settled(neo_comm *gpu, const plan *p, neo_status status,
                          const neo_ticket *ticket) {
    return status == NEO_OK && p->async ? neo_comm_wait(gpu, *ticket) : status;
}
static void counts_of(const neo_comm *comm, const plan *p, int64_t *counts, int64_t *at) {
    at[0] = 0;
    for (int r = 0; r < neo_comm_size(comm); r++) {
        counts[r] = p->uneven ? (r == 1 ? 0 : p->count + r % 3) : p->count;
        at[r + 1] = at[r] + counts[r];
    }
}
static neo_status sums(neo_comm *host, neo_comm *gpu, const plan *p) {
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    size_t each = neo_dtype_size(p->dtype), bytes = (size_t)p->count * each;
    int64_t counts[64], at[65];
    neo_ticket ticket = 0, *t = p->async ? &ticket : NULL;
    counts_of(host, p, counts, at);
    for (int reduce = NEO_REDUCE_SUM; reduce <= NEO_REDUCE_MIN; reduce++) {
        if (reduce == NEO_REDUCE_SUM && (p->dtype == NEO_F8E4M3 || p->dtype == NEO_F8E5M2))
            continue;
        char *in = on_host(bytes), *want = on_host(bytes);
        fill(host, in, p->dtype, p->count, rank, reduce);
        EXPECT_OK(host, neo_comm_all_reduce(host, (neo_reduce)reduce, in, want, p->count, p->dtype,
                                            NULL));
        void *dev = on_device(host, in, bytes),
             *out = p->in_place ? dev : on_device(host, NULL, bytes);
        neo_comm_reset_stats(gpu);
        neo_status status =
            neo_comm_all_reduce(gpu, (neo_reduce)reduce, dev, out, p->count, p->dtype, t);
        EXPECT_OK(host, settled(gpu, p, status, &ticket));
        int64_t part = (rank == size - 1 ? p->count : p->count / 16 * (rank + 1) / size * 16) -
                       p->count / 16 * rank / size * 16;
        int64_t formula = (p->count - part + (size - 1) * part) * (int64_t)each;
        EXPECT(host, sent(gpu, NEO_COMM_ALL_REDUCE) == formula,
               "all_reduce of %" PRId64 " sent %" PRId64 ", not %" PRId64, p->count,
               sent(gpu, NEO_COMM_ALL_REDUCE), formula);
        expect_device(host, out, want, bytes, "all_reduce");
        if (!p->in_place) expect_device(host, dev, in, bytes, "all_reduce's input");
        free(in), free(want);

        size_t total = (size_t)at[size] * each, mine = (size_t)counts[rank] * each;
        const int64_t *c = p->uneven ? counts : NULL;
        in = on_host(total), want = on_host(mine);
        fill(host, in, p->dtype, at[size], rank, 20 + reduce);
        EXPECT_OK(host, neo_comm_reduce_scatter(host, (neo_reduce)reduce, in, want, p->count, c,
                                                p->dtype, NULL));
        dev = on_device(host, in, total);
        out = p->in_place ? (char *)dev + (size_t)at[rank] * each : on_device(host, NULL, mine);
        neo_comm_reset_stats(gpu);
        status =
            neo_comm_reduce_scatter(gpu, (neo_reduce)reduce, dev, out, p->count, c, p->dtype, t);
        EXPECT_OK(host, settled(gpu, p, status, &ticket));
        EXPECT(host, sent(gpu, NEO_COMM_REDUCE_SCATTER) == (int64_t)(total - mine),
               "reduce_scatter's bytes");
        char *got = on_host(mine);
        from_device(host, got, out, mine);
        EXPECT(host, memcmp(got, want, mine) == 0, "reduce_scatter of %" PRId64 " %s", p->count,
               neo_dtype_name(p->dtype));
        if (!p->in_place) cudaFree(out);
        cudaFree(dev);
        free(in), free(want), free(got);
    }
    return NEO_OK;
}
static neo_status movers(neo_comm *host, neo_comm *gpu, const plan *p) {
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    size_t each = neo_dtype_size(p->dtype);
    int64_t counts[64], at[65];
    neo_ticket ticket = 0, *t = p->async ? &ticket : NULL;
    counts_of(host, p, counts, at);
    const int64_t *c = p->uneven ? counts : NULL;
    size_t total = (size_t)at[size] * each, mine = (size_t)counts[rank] * each;
    char *all = on_host(total), *part = on_host(mine);
    for (int r = 0; r < size; r++)
        fill(host, all + (size_t)at[r] * each, p->dtype, counts[r], r, 9);
    fill(host, part, p->dtype, counts[rank], rank, 9);

    void *out = on_device(host, NULL, total);
    void *in = p->in_place ? (char *)out + (size_t)at[rank] * each : on_device(host, part, mine);
    if (p->in_place && mine) cudaMemcpy(in, part, mine, cudaMemcpyHostToDevice);
    neo_comm_reset_stats(gpu);
    EXPECT_OK(host, settled(gpu, p, neo_comm_all_gather(gpu, in, out, p->count, c, p->dtype, t),
                            &ticket));
    EXPECT(host, sent(gpu, NEO_COMM_ALL_GATHER) == (int64_t)mine * (size - 1),
           "all_gather's bytes");
    expect_device(host, out, all, total, "all_gather");
    if (!p->in_place) cudaFree(in);

    for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
        int is_root = rank == root;
        out = is_root ? on_device(host, NULL, total) : NULL;
        in = on_device(host, part, mine);
        neo_comm_reset_stats(gpu);
        EXPECT_OK(host,
                  settled(gpu, p, neo_comm_gather(gpu, in, out, p->count, c, p->dtype, root, t),
                          &ticket));
        EXPECT(host, sent(gpu, NEO_COMM_GATHER) == (is_root ? 0 : (int64_t)mine), "gather's bytes");
        if (is_root) expect_device(host, out, all, total, "gather");
        cudaFree(in);
        in = is_root ? on_device(host, all, total) : NULL;
        out = on_device(host, NULL, mine);
        EXPECT_OK(host,
                  settled(gpu, p, neo_comm_scatter(gpu, in, out, p->count, c, p->dtype, root, t),
                          &ticket));
        EXPECT(host, sent(gpu, NEO_COMM_SCATTER) == (is_root ? (int64_t)(total - mine) : 0),
               "scatter's bytes");
        expect_device(host, out, part, mine, "scatter");
        cudaFree(in);
        size_t bytes = (size_t)p->count * each;
        char *data = on_host(bytes);
        fill(host, data, p->dtype, p->count, root, 11);
        out = on_device(host, is_root ? data : NULL, bytes);
        EXPECT_OK(host, settled(gpu, p, neo_comm_broadcast(gpu, out, p->count, p->dtype, root, t),
                                &ticket));
        int64_t sums_of[2] = {sent(gpu, NEO_COMM_BROADCAST), 0};
        EXPECT_OK(host, neo_comm_all_reduce(host, NEO_REDUCE_SUM, sums_of, sums_of + 1, 1, NEO_I64,
                                            NULL));
        EXPECT(host, sums_of[1] == (int64_t)bytes * (size - 1), "broadcast's bytes");
        expect_device(host, out, data, bytes, "broadcast");
        free(data);
    }
    free(all), free(part);
    return NEO_OK;
}
static neo_status exchanges(neo_comm *host, neo_comm *gpu, const plan *p) {
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    size_t each = neo_dtype_size(p->dtype), total = (size_t)(p->count * size) * each;
    neo_ticket ticket = 0, *t = p->async ? &ticket : NULL;
    char *from = on_host(total), *want = on_host(total);
    fill(host, from, p->dtype, p->count * size, rank, 13);
    EXPECT_OK(host, neo_comm_all_to_all(host, from, want, p->count, p->dtype, NULL));
    void *in = on_device(host, from, total), *out = on_device(host, NULL, total);
    neo_comm_reset_stats(gpu);
    EXPECT_OK(host,
              settled(gpu, p, neo_comm_all_to_all(gpu, in, out, p->count, p->dtype, t), &ticket));
    EXPECT(host, sent(gpu, NEO_COMM_ALL_TO_ALL) == (int64_t)(total - total / (size_t)size),
           "all_to_all's bytes");
    expect_device(host, out, want, total, "all_to_all");
    cudaFree(in);
    free(from), free(want);

    int64_t ins[64], outs[64], in_total = 0,
                               out_total = 0; /* rank a sends rank b (a + 2 b) mod 4 parts */
    for (int q = 0; q < size; q++) {
        ins[q] = (rank + 2 * q) % 4 * p->count;
        outs[q] = (q + 2 * rank) % 4 * p->count;
        in_total += ins[q];
        out_total += outs[q];
    }
    from = on_host((size_t)in_total * each), want = on_host((size_t)out_total * each);
    fill(host, from, p->dtype, in_total, rank, 14);
    EXPECT_OK(host, neo_comm_all_to_allv(host, from, ins, want, outs, p->dtype, NULL));
    in = on_device(host, from, (size_t)in_total * each),
    out = on_device(host, NULL, (size_t)out_total * each);
    EXPECT_OK(host,
              settled(gpu, p, neo_comm_all_to_allv(gpu, in, ins, out, outs, p->dtype, t), &ticket));
    expect_device(host, out, want, (size_t)out_total * each, "all_to_allv");
    cudaFree(in);
    free(from), free(want);

    if (size > 1) { /* a chain of messages: each rank gets one, then sends one */
        size_t bytes = (size_t)p->count * each;
        char *data = on_host(bytes);
        out = on_device(host, NULL, bytes);
        neo_comm_reset_stats(gpu);
        if (rank > 0)
            EXPECT_OK(
                host,
                settled(gpu, p, neo_comm_recv(gpu, out, p->count, p->dtype, rank - 1, t), &ticket));
        fill(host, data, p->dtype, p->count, rank ? rank - 1 : 0, 15);
        if (rank > 0) expect_device(host, out, data, bytes, "recv");
        else cudaFree(out);
        fill(host, data, p->dtype, p->count, rank, 15);
        in = on_device(host, data, bytes);
        if (rank < size - 1)
            EXPECT_OK(host, settled(gpu, p, neo_comm_send(gpu, in, p->count, p->dtype, rank + 1, t),
                                    &ticket));
        EXPECT(host, sent(gpu, NEO_COMM_SEND) == (rank < size - 1 ? (int64_t)bytes : 0),
               "send's bytes");
        cudaFree(in);
        free(data);
    }
    EXPECT_OK(host, settled(gpu, p, neo_comm_barrier(gpu, t), &ticket));
    return NEO_OK;
}
/* Sums over leaves: V of them on W ranks. */
static neo_status leaves(neo_comm *host, neo_comm *gpu, const plan *p) {
    int rank = neo_comm_rank(host), size = neo_comm_size(host);
    size_t each = neo_dtype_size(p->dtype), bytes = (size_t)p->count * each;
    neo_leaves subtree[NEO_MAX_SUBTREES];
    const void *pieces[NEO_MAX_SUBTREES], *dev[NEO_MAX_SUBTREES];
    int n = neo_comm_subtrees(gpu, rank, 1, subtree);
    int64_t counts[64], at[65];
    for (int k = 0; k < n; k++) {
        char *data = on_host(bytes);
        fill(host, data, p->dtype, p->count, subtree[k].first, 31);
        pieces[k] = data;
        dev[k] = on_device(host, data, bytes);
    }
    char *want = on_host(bytes);
    EXPECT_OK(host, neo_comm_all_reduce_leaves(host, pieces, want, p->count, p->dtype, NULL));
    void *out = on_device(host, NULL, bytes);
    EXPECT_OK(host, neo_comm_all_reduce_leaves(gpu, dev, out, p->count, p->dtype, NULL));
    expect_device(host, out, want, bytes, "all_reduce_leaves");
    for (int r = 0; r < size; r++) counts[r] = p->count * (r + 1) / size - p->count * r / size;
    at[0] = 0;
    for (int r = 0; r < size; r++) at[r + 1] = at[r] + counts[r];
    out = on_device(host, NULL, (size_t)counts[rank] * each);
    EXPECT_OK(host, neo_comm_reduce_scatter_leaves(gpu, dev, out, 0, counts, p->dtype, NULL));
    expect_device(host, out, want + (size_t)at[rank] * each, (size_t)counts[rank] * each,
                  "reduce_scatter_leaves");
    for (int k = 0; k < n; k++)
        free((void *)(uintptr_t)pieces[k]), cudaFree((void *)(uintptr_t)dev[k]);
    free(want);
    return NEO_OK;
}
static neo_status every(neo_comm *host, void *user) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I32,
                                       NEO_I64, NEO_I8,  NEO_U8,   NEO_F8E4M3};
    static const int64_t counts[] = {0, 1, 5, 100, 1000, 20000};
    neo_comm *gpu = NULL;
    int few = user != NULL;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    EXPECT(host, neo_comm_get_backend(gpu) == NEO_BACKEND_NCCL, "backend");
    EXPECT(host,
           neo_comm_rank(gpu) == neo_comm_rank(host) && neo_comm_size(gpu) == neo_comm_size(host),
           "rank, size");
    for (int d = 0; d < (int)(sizeof dtypes / sizeof dtypes[0]); d++)
        for (int i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++) {
            if (counts[i] > 1000 && (dtypes[d] != NEO_F32 || few)) continue;
            for (int mode = 0; mode < (d < 5 && !few ? 4 : 1); mode++) {
                plan p = {dtypes[d], counts[i], mode & 1, mode >> 1, (mode + i) & 1};
                if (sums(host, gpu, &p) != NEO_OK || movers(host, gpu, &p) != NEO_OK ||
                    exchanges(host, gpu, &p) != NEO_OK)
                    return NEO_ERR_MISMATCH;
                if (mode == 0 && d < 5 && leaves(host, gpu, &p) != NEO_OK) return NEO_ERR_MISMATCH;
            }
        }
    EXPECT(host, cudaGetLastError() == cudaSuccess, "an error is left behind");
    EXPECT_OK(host, neo_comm_status(gpu));
    neo_comm_barrier(host, NULL);
    neo_comm_destroy(gpu);
    return NEO_OK;
}

/* ---- groups out of groups ---- */
static neo_status all_sum(neo_comm *host, neo_comm *gpu, int64_t *number) {
    void *p = on_device(host, number, sizeof *number);
    neo_status status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, p, p, 1, NEO_I64, NULL);
    if (status == NEO_OK) from_device(host, number, p, sizeof *number);
    cudaFree(p);
    return status;
}
static neo_status splits(neo_comm *host, void *user) {
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    neo_comm *gpu = NULL, *odd = NULL, *back = NULL, *local = NULL, *cross = NULL, *none = NULL;
    (void)user;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    /* The group lives without the one it was made over being used for it; both work side by side.
       */
    EXPECT_OK(host, neo_comm_split(gpu, rank % 2, -rank, &odd));
    int members = rank % 2 ? size / 2 : (size + 1) / 2;
    EXPECT(host, neo_comm_size(odd) == members, "%d members", neo_comm_size(odd));
    EXPECT(host, neo_comm_rank(odd) == members - 1 - rank / 2, "rank %d: the keys turn the order",
           neo_comm_rank(odd));
    EXPECT(host, neo_comm_world_rank(odd, neo_comm_rank(odd)) == rank, "world rank");
    int64_t number = rank + 1, want = 0;
    for (int r = rank % 2; r < size; r += 2) want += r + 1;
    EXPECT_OK(host, all_sum(host, odd, &number));
    EXPECT(host, number == want, "%" PRId64 ", not %" PRId64, number, want);
    neo_ticket ticket; /* in flight while the group is split */
    int64_t *dev = (int64_t *)on_device(host, &number, sizeof number);
    EXPECT_OK(host, neo_comm_all_reduce(gpu, NEO_REDUCE_MAX, dev, dev, 1, NEO_I64, &ticket));
    EXPECT_OK(host, neo_comm_split(gpu, rank == 0 ? -1 : 7, 0, &none));
    EXPECT(host, (none == NULL) == (rank == 0), "a negative color gives NULL");
    EXPECT_OK(host, neo_comm_wait(gpu, ticket));
    cudaFree(dev);
    EXPECT_OK(host, neo_comm_split(odd, 0, 0, &back)); /* of a group out of a group */
    number = 1;
    EXPECT_OK(host, all_sum(host, back, &number));
    EXPECT(host, number == members, "%" PRId64 " of %d", number, members);
    if (size % 2 == 0) {
        EXPECT_OK(host, neo_comm_split_nodes(gpu, &local, &cross));
        EXPECT(host, neo_comm_size(local) == 2 && neo_comm_size(cross) == size / 2, "nodes of two");
        number = rank;
        EXPECT_OK(host, all_sum(host, local, &number));
        EXPECT(host, number == rank / 2 * 4 + 1, "%" PRId64, number);
        neo_comm_destroy(local);
        neo_comm_destroy(cross);
    }
    number = 1;
    EXPECT_OK(host, all_sum(host, gpu, &number));
    EXPECT(host, number == size, "%" PRId64 " of %d", number, size);
    int64_t whole[2] = {1, 0};
    EXPECT_OK(host, neo_comm_all_reduce(host, NEO_REDUCE_SUM, whole, whole + 1, 1, NEO_I64, NULL));
    neo_comm_destroy(none);
    neo_comm_destroy(back);
    neo_comm_destroy(gpu); /* before those that came out of it */
    neo_comm_destroy(odd);
    return NEO_OK;
}

/* ---- two levels, of contexts without a device ---- */
static neo_status two_levels(neo_comm *host, void *user) {
    enum { COUNT = 37 };
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    neo_comm *gpu = NULL, *on[2][2] = {{NULL, NULL}, {NULL, NULL}};
    size_t bytes = (size_t)size * COUNT * sizeof(float);
    float *in = (float *)on_host(bytes), *out = (float *)on_host(bytes),
          *room = (float *)on_host(bytes);
    (void)user;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    EXPECT_OK(host, neo_comm_split_nodes(host, &on[0][0], &on[0][1]));
    EXPECT_OK(host, neo_comm_split_nodes(gpu, &on[1][0], &on[1][1]));
    for (int i = 0; i < size * COUNT; i++) in[i] = (float)((i * 37 + rank * 11) % 101) * 0.37f;
    for (int op = 0; op < 3; op++) {
        void *din = on_device(host, in, bytes), *dout = on_device(host, out, bytes),
             *work = on_device(host, NULL, bytes);
        for (int there = 0; there < 2; there++) {
            neo_comm *local = on[there][0], *cross = on[there][1];
            const void *x = there ? din : in;
            void *y = there ? dout : out, *w = there ? work : room;
            EXPECT_OK(host, op == 0 ? neo_comm_all_reduce_2level(local, cross, NEO_REDUCE_SUM, x, y,
                                                                 size * COUNT, NEO_F32)
                            : op == 1 ? neo_comm_reduce_scatter_2level(local, cross, NEO_REDUCE_SUM,
                                                                       x, y, COUNT, NEO_F32, w)
                                      : neo_comm_all_to_all_2level(local, cross, x, y, COUNT,
                                                                   NEO_F32, w));
        }
        expect_device(host, dout, out, bytes, "two levels");
        cudaFree(din), cudaFree(work);
    }
    for (int i = 0; i < 4; i++) neo_comm_destroy(on[i / 2][i % 2]);
    neo_comm_destroy(gpu);
    free(in), free(out), free(room);
    return NEO_OK;
}

/* ---- many in flight ---- */
static neo_status flights(neo_comm *host, void *user) {
    enum { N = 12, COUNT = 700 };
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    neo_comm *gpu = NULL;
    float *in[N], *out[N];
    neo_ticket ticket[N];
    float data[COUNT], want[COUNT], one = 1;
    (void)user;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    for (int i = 0; i < N; i++) {
        fill(host, data, NEO_F32, COUNT, rank, i);
        in[i] = (float *)on_device(host, data, sizeof data);
        out[i] = (float *)on_device(host, NULL, sizeof data);
        EXPECT_OK(host, neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, in[i], out[i], COUNT, NEO_F32,
                                            &ticket[i]));
        /* The host group is the caller's own meanwhile. */
        if (i % 4 == 0)
            EXPECT_OK(host,
                      neo_comm_all_reduce(host, NEO_REDUCE_SUM, &one, &one, 1, NEO_F32, NULL));
    }
    EXPECT_OK(host, neo_comm_wait(gpu, ticket[N / 2]));
    EXPECT_OK(host, neo_comm_wait_all(gpu));
    for (int i = 0; i < N; i++) {
        fill(host, data, NEO_F32, COUNT, rank, i);
        EXPECT_OK(host,
                  neo_comm_all_reduce(host, NEO_REDUCE_SUM, data, want, COUNT, NEO_F32, NULL));
        expect_device(host, out[i], want, sizeof want, "in flight");
        cudaFree(in[i]);
    }
    neo_comm_stats s = neo_comm_get_stats(gpu);
    EXPECT(host, s.op[NEO_COMM_ALL_REDUCE].calls == N, "calls");
    /* A header to each other rank, for the first of sixteen calls. */
    int64_t control = s.op[NEO_COMM_ALL_REDUCE].control_bytes;
    EXPECT(host, control == (int64_t)sizeof(neo__header) * (size - 1), "control %" PRId64, control);
    neo_comm_destroy(gpu);
    return NEO_OK;
}

/* ---- what is refused ---- */
static neo_status refusals(neo_comm *host, void *user) {
    neo_comm *gpu = NULL, *other = NULL;
    (void)user;
    EXPECT_ERR(host, neo_comm_create_nccl(NULL, 0, NULL, &gpu), NEO_ERR_ARG, "NULL");
    EXPECT_ERR(host, neo_comm_create_nccl(host, 0, NULL, NULL), NEO_ERR_ARG, "NULL");
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    EXPECT_ERR(host, neo_comm_create_nccl(gpu, 0, NULL, &other), NEO_ERR_ARG, "itself");
    neo_comm_input *input = NULL;
    EXPECT_ERR(host, neo_comm_input_open(gpu, NULL, &input), NEO_ERR_UNSUPPORTED,
               "not on a group of devices");
    /* one status, behind an operation in flight; the group works on */
    int last = neo_comm_size(host) - 1;
    char want[60];
    neo_ticket ticket;
    void *q = on_device(host, NULL, 64);
    EXPECT_OK(host, neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, q, q, 16, NEO_I32, &ticket));
    if (neo_comm_rank(host) == last) (void)neo_fail(NEO_ERR_NUMERIC, "a loss that is not a number");
    snprintf(want, sizeof want, "rank %d: a loss that is not a number", last);
    EXPECT_ERR(host, neo_comm_agree(gpu, neo_comm_rank(host) == last ? NEO_ERR_NUMERIC : NEO_OK),
               NEO_ERR_NUMERIC, want);
    EXPECT_OK(host, neo_comm_agree(gpu, NEO_OK));
    EXPECT_OK(host, neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, q, q, 16, NEO_I32, NULL));
    cudaFree(q);
    EXPECT_ERR(host, neo_comm_rebuild(gpu, &other), NEO_ERR_UNSUPPORTED, "threads");
    neo_fault kill = {NEO_FAULT_KILL, 0, 0};
    EXPECT_ERR(host, neo_comm_inject(gpu, kill), NEO_ERR_UNSUPPORTED, "delays");
    void *p = on_device(host, NULL, 64);
    neo_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.cols = 4;
    EXPECT_ERR(host,
               neo_comm_all_gather_rows(gpu, &rows, (const float *)p, (float *)p, 1, NULL, NULL),
               NEO_ERR_UNSUPPORTED, "the context's device codes the rows");
    EXPECT_ERR(host, neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, p, (char *)p + 4, 2, NEO_F32, NULL),
               NEO_ERR_ARG, "overlap");
    EXPECT_OK(host, neo_comm_barrier(gpu, NULL)); /* nothing was sent, and it works on */
    cudaFree(p);
    neo_comm_destroy(gpu);
    EXPECT_ERR(host, neo_comm_create_nccl(host, 1000 + neo_comm_rank(host), NULL, &gpu),
               NEO_ERR_ARG, "there is no CUDA device 100");
    EXPECT(host, gpu == NULL, "not NULL");
    return NEO_OK;
}

#ifndef NEO_REAL_NCCL
/* ---- the user's stream, and sums on the device ---- */
typedef struct filling {
    int64_t *data, value, count;
} filling;
static void late_fill(void *arg) {
    const filling *f = (const filling *)arg;
    usleep(20000);
    int64_t *data = (int64_t *)fake_memory(f->data, (size_t)f->count * sizeof *data);
    for (int64_t i = 0; i < f->count; i++) data[i] = f->value + i;
}
static neo_status streams(neo_comm *host, void *user) {
    enum { COUNT = 300 };
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    neo_comm *gpu = NULL, *sub = NULL;
    cudaStream_t stream;
    int64_t want[COUNT], sum = 0;
    (void)user;
    cudaSetDevice(device_of(host));
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), (void *)stream, &gpu));
    EXPECT_OK(host, neo_comm_split(gpu, 0, 0, &sub)); /* on the same stream */
    for (int r = 0; r < size; r++) sum += 100 * r;
    for (int round = 0; round < 4; round++) {
        int64_t *p = (int64_t *)on_device(host, NULL, sizeof want);
        filling f = {p, 100 * rank, COUNT};
        neo_ticket ticket;
        fake_launch((void *)stream, late_fill, &f);
        neo_comm *on = round & 1 ? sub : gpu;
        EXPECT_OK(host, neo_comm_all_reduce(on, NEO_REDUCE_SUM, p, p, COUNT, NEO_I64,
                                            round & 2 ? &ticket : NULL));
        if (round & 2) EXPECT_OK(host, neo_comm_wait(on, ticket));
        for (int64_t i = 0; i < COUNT; i++) want[i] = sum + size * i;
        expect_device(host, p, want, sizeof want, "after the user's kernel");
    }
    neo_comm_destroy(sub);
    neo_comm_destroy(gpu);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return NEO_OK;
}

/* ---- many groups, on devices that run one kernel of NCCL at a time ---- */
enum { GROUPS = 5, CALLS = 30, NUMBERS = 40 };
enum { LABEL_LATER, OP_LATER, LATER_WAYS };
typedef struct traffic {
    uint64_t seed;
    int failed, apart; /* apart: ranks call two groups in opposite orders */
} traffic;
static uint64_t drawn(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}
/* Cases that the clock decides: their timeout. Threads that a sanitizer slows down come in time. */
enum { LATE_MS = TEST_WATCHED ? 4000 : 1000 };
static int late_ms = LATE_MS;
static char not_within[40], not_come[60]; /* the words of it */
static int again(int *was) {
    const int more = made_again(LATE_MS, &late_ms, was);
    snprintf(not_within, sizeof not_within, "not done within %d ms", late_ms);
    snprintf(not_come, sizeof not_come, "rank 1 did not come within %d ms", late_ms);
    return more;
}
/* Once all ranks have the group. */
static void hurry(neo_comm *gpu) { gpu->desc.timeout_ms = gpu->host->desc.timeout_ms = late_ms; }
/* All ranks make the same calls, drawn by the seed, on all, halves, pairs across them, and all
   again; then wait. What the host group gives is right. */
static neo_status crowd(neo_comm *host, void *user) {
    traffic *t = (traffic *)user;
    const int rank = neo_comm_rank(host), size = neo_comm_size(host);
    const int color[GROUPS] = {0, rank * 2 / size, rank % 2, 0, rank / 2};
    uint64_t seed = t->seed + 1;
    neo_comm *gpu[GROUPS] = {NULL}, *on[GROUPS] = {NULL};
    int64_t *in[CALLS], *out[CALLS], data[NUMBERS], want[NUMBERS];
    int of[CALLS], count[CALLS], op[CALLS];
    neo_status status = NEO_OK, first = NEO_OK;
    neo_ticket ticket;
    for (int g = 0; g < GROUPS; g++) {
        EXPECT_OK(host, neo_comm_split(host, color[g], rank, &on[g]));
        EXPECT_OK(host, neo_comm_create_nccl(on[g], device_of(host), NULL, &gpu[g]));
    }
    EXPECT_OK(host, neo_comm_barrier(host, NULL));
    if (rank == 0 && !t->apart) fake_delay_us(300);
    for (int g = 0; g < GROUPS && t->apart; g++) hurry(gpu[g]);
    for (int i = 0; i < CALLS; i++) {
        of[i] = t->apart ? 3 * ((i + (i > 3 && rank == 0)) % 2) : (int)(drawn(&seed) % GROUPS);
        count[i] = t->apart ? NUMBERS : 1 + (int)(drawn(&seed) % NUMBERS);
        op[i] = t->apart ? 0 : (int)(drawn(&seed) % 3);
        for (int k = 0; k < NUMBERS; k++) data[k] = rank * 1000 + i * 100 + k;
        in[i] = (int64_t *)on_device(host, data, sizeof data);
        out[i] = (int64_t *)on_device(host, NULL, 4 * sizeof data);
    }
    for (int i = 0; i < CALLS && status == NEO_OK; i++) {
        const int n = count[i] / neo_comm_size(gpu[of[i]]);
        status = op[i] == 0   ? neo_comm_all_reduce(gpu[of[i]], NEO_REDUCE_SUM, in[i], out[i],
                                                    count[i], NEO_I64, &ticket)
                 : op[i] == 1 ? neo_comm_all_gather(gpu[of[i]], in[i], out[i], count[i], NULL,
                                                    NEO_I64, &ticket)
                              : neo_comm_all_to_all(gpu[of[i]], in[i], out[i], n, NEO_I64, &ticket);
    }
    for (int g = 0; g < GROUPS; g++) {
        neo_status waited = neo_comm_wait_all(gpu[g]);
        if (first == NEO_OK) first = status != NEO_OK ? status : waited;
    }
    if (first != NEO_OK) __atomic_fetch_add(&t->failed, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CALLS && first == NEO_OK; i++) {
        neo_comm *c = on[of[i]];
        const int w = neo_comm_size(c), n = op[i] == 1 ? count[i] * w : count[i] / w * w;
        int64_t got[4 * NUMBERS];
        from_device(host, got, out[i], sizeof got);
        for (int k = 0; op[i] == 0 && k < count[i]; k++) {
            want[k] = 0;
            for (int p = 0; p < w; p++)
                want[k] += neo_comm_world_rank(c, p) * 1000 + i * 100 + k;
            EXPECT(host, got[k] == want[k], "call %d of group %d", i, of[i]);
        }
        for (int k = 0; op[i] > 0 && k < n; k++) {
            const int part = op[i] == 1 ? count[i] : count[i] / w, from = k / part;
            const int at = k % part + (op[i] == 1 ? 0 : neo_comm_rank(c) * part);
            EXPECT(host, got[k] == neo_comm_world_rank(c, from) * 1000 + i * 100 + at,
                   "call %d of group %d: %d is %" PRId64, i, of[i], k, got[k]);
        }
    }
    for (int i = 0; i < CALLS; i++) cudaFree(in[i]), cudaFree(out[i]);
    for (int g = 0; g < GROUPS; g++) neo_comm_destroy(gpu[g]), neo_comm_destroy(on[g]);
    return NEO_OK;
}
static void expect_clean(const char *what);
/* Groups have threads of their own, so they come to their calls in any order. In turns, none waits
   for ever; without turns, the model of the devices finds those that do. */
static int crowds(int ranks) {
    int bad = 0, deadlocks = 0, failed = 0;
    for (int ordered = 1; ordered >= 0; ordered--)
        for (uint64_t seed = 0; seed < (TEST_WATCHED ? 4 : test_grid() ? 12 : 6); seed++) {
            neo_comm_desc d;
            traffic t = {seed, 0, 0};
            memset(&d, 0, sizeof d);
            d.segment_bytes = 4096;
            d.timeout_ms = TEST_PATIENCE_MS;
            d.agree_every = seed % 3 ? 0 : 1;
            launch_order = ordered;
            fake_one_kernel(seed);
            bad += run_ranks(ranks, &d, crowd, &t);
            checks++;
            if (ordered && (t.failed || fake_deadlocks())) {
                fprintf(stderr, "seed %d: %d ranks failed, %d deadlocks, though in order\n",
                        (int)seed, t.failed, fake_deadlocks());
                bad++;
            }
            if (!ordered) deadlocks += fake_deadlocks(), failed += t.failed > 0;
            launch_order = 1;
            expect_clean("many groups");
        }
    checks += 2;
    if (deadlocks == 0 || failed == 0) {
        fprintf(stderr, "without an order: %d deadlocks, %d runs failed: the model finds none\n",
                deadlocks, failed);
        bad++;
    }
    return bad;
}
/* Two groups called in opposite orders: an error on all ranks, and no deadlock where each call is
   agreed on before it is launched. */
static int opposite(int ranks) {
    int bad = 0;
    for (int every = 1; every < 32; every += 15) {
        neo_comm_desc d;
        traffic t = {0, 0, 1};
        memset(&d, 0, sizeof d);
        d.timeout_ms = TEST_PATIENCE_MS; /* until there are groups */
        d.agree_every = every;
        fake_one_kernel(1);
        bad += run_ranks(ranks, &d, crowd, &t);
        checks += 2;
        if (t.failed != ranks || (every == 1 && fake_deadlocks())) {
            fprintf(stderr, "opposite orders, agreed every %d: %d failed, %d deadlocks\n", every,
                    t.failed, fake_deadlocks());
            bad++;
        }
        expect_clean("opposite orders");
    }
    return bad;
}
/* Ranks on one GPU are refused, alike on all, before NCCL could wait for ever. */
static neo_status one_gpu(neo_comm *host, void *user) {
    neo_comm *gpu = NULL;
    (void)user;
    EXPECT_ERR(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu), NEO_ERR_UNSUPPORTED,
               "ranks 0 and 1 share a GPU, and NCCL wants one for each rank");
    EXPECT_OK(host, neo_comm_barrier(host, NULL));
    return NEO_OK;
}
/* A call that diverges after one that was agreed on: found at the next agreement. */
static neo_status later(neo_comm *host, void *user) {
    const int way = *(const int *)user, other = neo_comm_rank(host) == 1;
    neo_comm *gpu = NULL;
    neo_status status = NEO_OK;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    char *x = (char *)on_device(host, NULL, 8192), *y = (char *)on_device(host, NULL, 8192);
    EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* all have it */
    if (way == OP_LATER) hurry(gpu);
    for (int i = 0; i < 5 && status == NEO_OK; i++) {
        if (way == LABEL_LATER) neo_comm_label(gpu, i == 2 && other ? "h.3" : "h.2");
        if (way == OP_LATER && i == 2 && other)
            status = neo_comm_broadcast(gpu, x, 100, NEO_F32, 0, NULL);
        else
            status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
    }
    if (status == NEO_ERR_TIMEOUT) failed_with(status);
    EXPECT(host, status == NEO_ERR_DIVERGED, "way %d: %s", way, neo_last_error());
    EXPECT(host, strstr(neo_last_error(), "after calls ") || way == OP_LATER, "way %d: %s", way,
           neo_last_error());
    if (way == LABEL_LATER) EXPECT_OK(host, neo_comm_barrier(host, NULL));
    cudaFree(x), cudaFree(y);
    neo_comm_destroy(gpu);
    return NEO_OK;
}

/* ---- faults ---- */
/* What all ranks do until something breaks: some of everything, with several segments. */
static neo_status job(neo_comm *host, neo_comm *gpu) {
    enum { COUNT = 6000 };
    int size = neo_comm_size(host), rank = neo_comm_rank(host);
    float *x = (float *)on_device(host, NULL, COUNT * sizeof(float));
    float *y = (float *)on_device(host, NULL, COUNT * sizeof(float));
    neo_status status = NEO_OK;
    neo_ticket ticket;
    for (int i = 0; i < 2 && status == NEO_OK; i++) {
        status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, COUNT, NEO_F32, NULL);
        if (status == NEO_OK)
            status = neo_comm_all_gather(gpu, x, y, COUNT / size, NULL, NEO_F32, NULL);
        if (status == NEO_OK)
            status = neo_comm_all_to_all(gpu, x, y, COUNT / size, NEO_F32, &ticket);
        if (status == NEO_OK && rank < 2)
            status = rank ? neo_comm_recv(gpu, y, 10, NEO_F32, 0, NULL)
                          : neo_comm_send(gpu, x, 10, NEO_F32, 1, NULL);
        if (status == NEO_OK) status = neo_comm_broadcast(gpu, x, COUNT, NEO_F32, 0, NULL);
        if (status == NEO_OK) status = neo_comm_barrier(gpu, NULL);
    }
    if (status != NEO_OK) { /* it stays so */
        EXPECT(host, neo_comm_status(gpu) == status, "status %s", neo_last_error());
        EXPECT(host, neo_comm_barrier(gpu, NULL) == status, "a later call");
        EXPECT(host, strstr(neo_last_error(), "rank ") != NULL, "names no rank: %s",
               neo_last_error());
    }
    char why[400];
    snprintf(why, sizeof why, "%.390s", neo_last_error());
    cudaFree(x);
    cudaFree(y);
    return status == NEO_OK ? NEO_OK : neo_fail(status, "%s", why);
}
typedef struct scene {
    neo_status expected;
    const char *part; /* of the message, on every rank */
    int create_fails;
    int apart; /* ranks come back at different times: the host group would not wait as long */
    int ok; /* atomic: ranks on which nothing failed */
} scene;
static neo_status play(neo_comm *host, void *user) {
    scene *s = (scene *)user;
    neo_comm *gpu = NULL;
    neo_status status = neo_comm_create_nccl(host, device_of(host), NULL, &gpu);
    if (s->create_fails || status != NEO_OK)
        EXPECT(host, status != NEO_OK && gpu == NULL, "created");
    if (status == NEO_OK && s->expected == NEO_ERR_TIMEOUT) {
        EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* all have it */
        hurry(gpu);
    }
    if (status == NEO_OK) status = job(host, gpu);
    if (status == NEO_OK) __atomic_fetch_add(&s->ok, 1, __ATOMIC_RELAXED);
    else if (s->part) {
        EXPECT_ERR(host, status, s->expected, s->part);
    }
    host->desc.timeout_ms = TEST_PATIENCE_MS;
    if (!s->apart)
        EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* the host group does not suffer */
    neo_comm_destroy(gpu);
    return NEO_OK;
}
static neo_comm_desc faulty_desc(void) {
    neo_comm_desc d;
    memset(&d, 0, sizeof d);
    d.segment_bytes = 4096;
    d.timeout_ms = TEST_PATIENCE_MS; /* what is found out without the clock is so on any machine */
    return d;
}
static void expect_clean(const char *what) {
    const char *text = "";
    __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
    if (fake_live(&text)) {
        fprintf(stderr, "%s: left behind: %s\n", what, text);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
    fake_reset();
}
static void act(int ranks, scene *s, const char *what) {
    neo_comm_desc d = faulty_desc();
    if (s->create_fails && s->expected == NEO_ERR_TIMEOUT) d.timeout_ms = late_ms;
    s->ok = 0;
    neo_status status = neo_comm_spawn(ranks, &d, play, s, NULL);
    if (status != NEO_OK) failed_with(status);
    __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
    if (status != NEO_OK) {
        fprintf(stderr, "%s: %s\n", what, neo_last_error());
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
}
/* Every call, each of its first few times and some later ones, fails on one rank. */
static void every_failure(int ranks) {
    static const struct {
        const char *function;
        int error;
        const char *part;
    } call[] = {
        {"cudaSetDevice", cudaErrorIllegalAddress, "illegal memory access"},
        {"cudaStreamCreateWithFlags", cudaErrorMemoryAllocation, "cudaStreamCreateWithFlags"},
        {"cudaEventCreateWithFlags", cudaErrorMemoryAllocation, "cudaEventCreateWithFlags"},
        {"cudaMallocHost", cudaErrorMemoryAllocation, "cudaMallocHost"},
        {"cudaMemcpyAsync", cudaErrorIllegalAddress, "cudaMemcpyAsync"},
        {"cudaEventRecord", cudaErrorIllegalAddress, "cudaEventRecord"},
        {"cudaEventQuery", cudaErrorIllegalAddress, "cudaEventQuery"},
        {"cudaStreamWaitEvent", cudaErrorIllegalAddress, "cudaStreamWaitEvent"},
        {"ncclCommInitRankConfig", ncclSystemError, "unhandled system error (fake: last error)"},
        {"ncclCommGetAsyncError", ncclInternalError, "internal error"},
        {"ncclGroupStart", ncclSystemError, "unhandled system error"},
        {"ncclSend", ncclUnhandledCudaError, "unhandled cuda error"},
        {"ncclRecv", ncclInvalidArgument, "invalid argument"},
        {"ncclGroupEnd", ncclSystemError, "unhandled system error"},
        {"ncclCommFinalize", ncclSystemError, NULL},
    };
    for (int i = 0; i < (int)(sizeof call / sizeof call[0]); i++)
        for (int nth = 0, reached = 1; reached && nth < 60; nth += nth < 4 ? 1 : 7) {
            scene s;
            memset(&s, 0, sizeof s);
            fake_delay_us(30);
            fake_fail(call[i].function, 1, nth, call[i].error);
            act(ranks, &s, call[i].function);
            reached = fake_calls(call[i].function, 1) > nth;
            int whole =
                s.ok == ranks || s.ok == 0; /* a fault breaks all, or was in the end (or never) */
            __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
            if (!whole) {
                fprintf(stderr, "%s, call %d: %d of %d ranks did not notice\n", call[i].function,
                        nth, s.ok, ranks);
                __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
            }
            expect_clean(call[i].function);
        }
}
static void named_failures(int ranks) {
    scene s;
    memset(&s, 0, sizeof s);
    s.create_fails = 1;
    s.expected = NEO_ERR_MEMORY;
    s.part = "rank 1: neo_comm_create_nccl: CUDA: cudaMalloc: out of memory";
    fake_fail("cudaMalloc", 1, 0, cudaErrorMemoryAllocation);
    act(ranks, &s, "cudaMalloc");
    expect_clean("cudaMalloc");
    s.expected = NEO_ERR_SYSTEM;
    s.part = "rank 0: neo_comm_create_nccl: NCCL: ncclGetUniqueId: unhandled system error";
    fake_fail("ncclGetUniqueId", 0, 0, ncclSystemError);
    act(ranks, &s, "ncclGetUniqueId");
    expect_clean("ncclGetUniqueId");
    s.expected = NEO_ERR_TIMEOUT;
    s.part = not_within;
    for (int was = -1; again(&was);) {
        fake_never_join(1);
        act(ranks, &s, "a rank that never joins");
        expect_clean("a rank that never joins");
    }

    s.create_fails = 0;
    s.expected = NEO_ERR_SYSTEM;
    s.part = "rank 1: all_reduce #0 (6000 f32, sum): NCCL: ncclSend and ncclRecv: unhandled cuda "
             "error (fake: last error)";
    fake_fail("ncclSend", 1, 0, ncclUnhandledCudaError);
    act(ranks, &s, "ncclSend");
    expect_clean("ncclSend");
    s.expected = NEO_ERR_PEER;
    s.part =
        "rank 1: all_reduce #0 (6000 f32, sum): NCCL: asynchronous error: remote process exited";
    fake_async_error(1, 0, ncclRemoteError);
    act(ranks, &s, "asynchronous error");
    expect_clean("asynchronous error");
    s.expected = NEO_ERR_TIMEOUT;
    s.part = not_within;
    for (int was = -1; again(&was);) {
        fake_lose_group(1, 2);
        act(ranks, &s, "transfers that never end");
        expect_clean("transfers that never end");
    }
}
/* A device that not even an abort can stop: the ranks come back, and say what is lost. */
static void hung_device(int ranks) {
    scene s;
    const char *text = "";
    memset(&s, 0, sizeof s);
    s.expected = NEO_ERR_TIMEOUT;
    s.part = not_within;
    s.apart = 1;
    for (int was = -1; again(&was);) {
        fake_hang_group(1, 1);
        act(ranks, &s, "a device that hangs");
        (void)fake_live(&text);
        __atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);
        if (strcmp(text, "1 memory, 1 pinned, 0 streams, 0 events, 0 communicators") != 0) {
            fprintf(stderr, "a device that hangs: left behind: %s\n", text);
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        }
        fake_reset();
    }
}

/* ---- ranks that go their own ways ---- */
enum {
    OP,
    COUNT,
    DTYPE,
    LABEL,
    COUNTS,
    PAIRS,
    PIECES,
    MESSAGE,
    LATE,
    LEFT,
    GIVEN_UP,
    LONELY,
    WAYS
};
/* A rank of a group that is about to break: what it expects to hear. */
typedef struct Walker {
    neo_comm *host, *gpu;
    char *x, *y; /* on the device */
    int other;   /* it is rank 1 */
    neo_status expected;
    const char *part;
} Walker;
/* Rank 1 calls something else: the status of each rank's call. */
static neo_status call_another(Walker *w, int kind) {
    neo_comm *host = w->host, *gpu = w->gpu;
    const int size = neo_comm_size(host), rank = neo_comm_rank(host), other = w->other;
    char *x = w->x, *y = w->y;
    int64_t counts[64] = {0}, outs[64];
    const void *pieces[NEO_MAX_SUBTREES];
    neo_status status = NEO_OK;
    for (int k = 0; k < NEO_MAX_SUBTREES; k++) pieces[k] = x;
    switch (kind) {
    case OP:
        w->part = "broadcast #0 (100 f32, root 0)";
        status = other ? neo_comm_broadcast(gpu, x, 100, NEO_F32, 0, NULL)
                       : neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
        break;
    case COUNT:
        w->part = "(101 f32, sum)";
        status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, other ? 101 : 100, NEO_F32, NULL);
        break;
    case DTYPE:
        status = neo_comm_all_gather(gpu, x, y, 4, NULL, other ? NEO_I32 : NEO_F32, NULL);
        break;
    case LABEL:
        w->part = other ? "of 'h.3'" : "of 'h.2'";
        neo_comm_label(gpu, other ? "of one rank" : NULL); /* agreement has none */
        EXPECT_OK(host, neo_comm_agree(gpu, NEO_OK));
        neo_comm_label(gpu, "h.1");
        EXPECT_OK(host, neo_comm_barrier(gpu, NULL));
        EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* all have left it */
        neo_comm_label(gpu, other ? "h.3" : "h.2");
        status = neo_comm_all_gather(gpu, x, y, 4, NULL, NEO_F32, NULL);
        break;
    case COUNTS: /* the same sum */
        counts[other ? 1 : 0] = 40;
        w->part = "expects 0 bytes from rank ";
        status = neo_comm_all_gather(gpu, x, y, 0, counts, NEO_F32, NULL);
        break;
    case PAIRS:
        for (int p = 0; p < size; p++) counts[p] = outs[p] = 4;
        if (other) counts[0] = 5; /* rank 0 expects 4 */
        w->part = "expects 16 bytes from rank 1, which sends 20";
        status = neo_comm_all_to_allv(gpu, x, counts, y, outs, NEO_F32, NULL);
        break;
    case PIECES: /* a rank has two of them */
        w->part = " leaves";
        status = other ? neo_comm_all_reduce_leaves(gpu, pieces, y, 100, NEO_F32, NULL)
                       : neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
        break;
    case MESSAGE:
        w->part = "send/recv #0 (10 f32), but rank 0: send/recv #0 (11 f32)";
        status = other          ? neo_comm_recv(gpu, x, 10, NEO_F32, 0, NULL)
                 : rank == 0    ? neo_comm_send(gpu, x, 11, NEO_F32, 1, NULL)
                                : neo_comm_barrier(gpu, NULL);
        break;
    default: break;
    }
    return status;
}
/* Rank 1 is late, or leaves: the status of each rank's call. */
static neo_status go_missing(Walker *w, int kind) {
    neo_comm *host = w->host, *gpu = w->gpu;
    const int other = w->other;
    char *x = w->x, *y = w->y;
    neo_status status = NEO_OK;
    w->expected = NEO_ERR_PEER;
    switch (kind) {
    case LATE: {
        hurry(gpu);
        w->expected = NEO_ERR_TIMEOUT;
        w->part = not_come;
        status = neo_comm_barrier(gpu, NULL);
        /* until the others have given up: a time would pass while the process is stopped */
        for (int i = 0; i < TEST_PATIENCE_MS / 5 && other && neo_comm_status(gpu) == NEO_OK; i++)
            usleep(5000);
        if (status == NEO_OK)
            status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
        break;
    }
    case LEFT:
        w->part = "rank 1 has left";
        if (other) {
            neo_comm_destroy(gpu);
            w->gpu = NULL;
        } else {
            status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
        }
        break;
    case GIVEN_UP:
        w->part = "rank 1 has given up: the disk is full";
        if (other) {
            neo_comm_abort(gpu, "the disk is full");
            status = neo_comm_status(gpu);
        } else {
            status = neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, NULL);
        }
        break;
    case LONELY: { /* a rank gives up while its own call is in flight, alone */
        neo_ticket ticket;
        w->part = "rank 1 has given up: enough";
        if (other) {
            EXPECT_OK(host, neo_comm_all_reduce(gpu, NEO_REDUCE_SUM, x, y, 100, NEO_F32, &ticket));
            usleep(20000);
            neo_comm_abort(gpu, "enough");
            EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* only then do the others call */
            status = neo_comm_wait(gpu, ticket);
        } else {
            EXPECT_OK(host, neo_comm_barrier(host, NULL));
            status = neo_comm_barrier(gpu, NULL);
        }
        break;
    }
    default: break;
    }
    return status;
}
static neo_status wander(neo_comm *host, void *user) {
    const int kind = *(const int *)user;
    Walker w = {host, NULL, NULL, NULL, neo_comm_rank(host) == 1, NEO_ERR_DIVERGED, "rank 1"};
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &w.gpu));
    EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* all have it */
    w.x = (char *)on_device(host, NULL, 8192), w.y = (char *)on_device(host, NULL, 8192);
    neo_status status = kind < LATE ? call_another(&w, kind) : go_missing(&w, kind);
    if (kind == LATE && w.other) w.part = "rank"; /* that rank hears it from the others */
    if (w.gpu) EXPECT_ERR(host, status, w.expected, w.part);
    if (kind != LATE)
        EXPECT_OK(host, neo_comm_barrier(host, NULL)); /* the host group does not suffer */
    cudaFree(w.x);
    cudaFree(w.y);
    neo_comm_destroy(w.gpu);
    return NEO_OK;
}
static void go(int ranks, int kind) {
    neo_comm_desc d = faulty_desc();
    d.agree_every = 1;
    if (kind == PIECES) d.ctx.repro_shards = 2 * ranks + 1;
    if (neo_comm_spawn(ranks, &d, wander, &kind, NULL) != NEO_OK) {
        fprintf(stderr, "way %d: %s\n", kind, neo_last_error());
        failures++;
    }
    expect_clean("ranks that go their own ways");
}
static void ways(int ranks) {
    for (int kind = 0; kind < WAYS; kind++)
        if (kind != LATE) go(ranks, kind);
    for (int was = -1; again(&was);) go(ranks, LATE);
}
/* Memory of the context runs out, on one rank, at every allocation in turn. */
typedef struct purse {
    int left;
} purse;
static void *purse_alloc(size_t bytes, size_t align, void *user) {
    purse *p = (purse *)user;
    (void)align;
    if (__atomic_fetch_sub(&p->left, 1, __ATOMIC_RELAXED) <= 0) return NULL;
    return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}
static void purse_free(void *p, size_t bytes, void *user) {
    (void)bytes, (void)user;
    free(p);
}
static neo_status spend(neo_comm *host, void *user) {
    neo_comm *gpu = NULL, *sub = NULL;
    purse *p = (purse *)user;
    int64_t mine[2] = {0, 0};
    if (neo_comm_rank(host) == 1) __atomic_store_n(&p->left, p[1].left, __ATOMIC_RELAXED);
    (void)neo_comm_barrier(host,
                           NULL); /* rank 1 may be through, and give up, before the others are */
    neo_status status = neo_comm_create_nccl(host, device_of(host), NULL, &gpu);
    if (status == NEO_OK) status = neo_comm_split(gpu, neo_comm_rank(host) == 0, 0, &sub);
    EXPECT(host, status == NEO_OK || neo_comm_rank(host) == 0 || strstr(neo_last_error(), "memory"),
           "%s", neo_last_error());
    EXPECT(host, (status == NEO_OK) == (sub != NULL), "half a group");
    if (neo_comm_rank(host) == 1) __atomic_store_n(&p->left, 1 << 30, __ATOMIC_RELAXED);
    mine[0] = status != NEO_OK;
    if (neo_comm_status(host) == NEO_OK) { /* it may have failed when its own copy was made */
        neo_status met =
            neo_comm_all_reduce(host, NEO_REDUCE_SUM, mine, mine + 1, 1, NEO_I64, NULL);
        if (met == NEO_OK && neo_comm_rank(host) == 0) p[2].left = (int)mine[1];
    }
    neo_comm_destroy(sub);
    neo_comm_destroy(gpu);
    return NEO_OK;
}
static void purses(int ranks) {
    for (int n = 0; n < 40; n++) {
        purse p[3] = {{1 << 30}, {n}, {-1}};
        neo_comm_desc d = faulty_desc();
        d.ctx.allocator.alloc = purse_alloc;
        d.ctx.allocator.free = purse_free;
        d.ctx.allocator.user = p;
        if (neo_comm_spawn(ranks, &d, spend, p, NULL) != NEO_OK) {
            fprintf(stderr, "memory for %d allocations: %s\n", n, neo_last_error());
            failures++;
        }
        expect_clean("memory that runs out");
        if (p[2].left == 0) return; /* enough for all */
    }
    fprintf(stderr, "memory never sufficed\n");
    failures++;
}
/* A split that fails for one color leaves the others, and the group itself, as they were. */
static neo_status half_split(neo_comm *host, void *user) {
    neo_comm *gpu = NULL, *sub = NULL;
    int rank = neo_comm_rank(host);
    int64_t one = 1;
    (void)user;
    EXPECT_OK(host, neo_comm_create_nccl(host, device_of(host), NULL, &gpu));
    neo_comm_barrier(host, NULL);
    if (rank == 1) fake_fail("cudaMallocHost", 1, 0, cudaErrorMemoryAllocation);
    neo_status status = neo_comm_split(gpu, rank % 2, 0, &sub);
    if (rank % 2 == 0) EXPECT(host, status == NEO_OK && sub, "%s", neo_last_error());
    else
        EXPECT(host,
               status == NEO_ERR_MEMORY && !sub &&
                   strstr(neo_last_error(), "rank 1: neo_comm_split: CUDA"),
               "%s", neo_last_error());
    EXPECT_OK(host, all_sum(host, gpu, &one));
    EXPECT(host, one == neo_comm_size(host), "%" PRId64, one);
    neo_comm_destroy(sub);
    neo_comm_destroy(gpu);
    return NEO_OK;
}
/* Is the trap a trap? */
static void trap(void) {
    void *p = NULL;
    int how = 0;
    cudaSetDevice(0);
    cudaMalloc(&p, 100);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        _exit(*(volatile char *)p == 1 ? 0 : 0);
    }
    waitpid(child, &how, 0);
    checks++;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) {
        fprintf(stderr, "device memory can be touched\n");
        failures++;
    }
    cudaFree(p);
}
#endif

int main(int argc, char **argv) {
    static const int sizes[] = {1, 2, 3, 4, 8};
    int bad = 0, devices = 0, only = argc > 1 ? atoi(argv[1]) : 0;
    if (launched() > 1) {
        printf("skipped test_comm_nccl: its ranks are the threads of one process\n");
        printf("test_comm_nccl: 0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    cudaGetDeviceCount(&devices);
#ifndef NEO_REAL_NCCL
    trap();
#endif
    for (int i = 0; i < 5; i++) {
        int w = sizes[i];
        neo_comm_desc d;
        if (w > devices || (only && w != only)) continue;
        if (w > (test_grid() ? 8 : 4) || (TEST_WATCHED && w == 1)) continue;
        memset(&d, 0, sizeof d);
        d.timeout_ms = TEST_PATIENCE_MS;
        d.ranks_per_node = 2;
        bad += run_ranks(w, &d, every, NULL);
        d.segment_bytes = 4096; /* many segments, of few elements */
        d.ctx.repro_shards = 3 * w + 2;
#ifndef NEO_REAL_NCCL
        fake_delay_us(40);
#endif
        bad += run_ranks(w, &d, every, &d);
        d.ctx.repro_shards = 0;
        bad += run_ranks(w, &d, splits, NULL);
        if (w % 2 == 0) bad += run_ranks(w, &d, two_levels, NULL);
        bad += run_ranks(w, &d, flights, NULL);
        bad += run_ranks(w, &d, refusals, NULL);
#ifndef NEO_REAL_NCCL
        bad += run_ranks(w, &d, streams, NULL);
        expect_clean("all that works");
#endif
    }
#ifndef NEO_REAL_NCCL
    if (!only || only == 9) {
        neo_comm_desc d = faulty_desc();
        bad += crowds(4) + opposite(2);
        fake_share_gpu();
        bad += run_ranks(2, &d, one_gpu, NULL);
        expect_clean("ranks that share a GPU");
        d.agree_every = 4;
        for (int way = 0; way < LATER_WAYS; way++)
            for (int was = -1; again(&was);) {
                fake_let_sizes_differ();
                bad += run_ranks(3, &d, later, &way);
                expect_clean("a call that diverges between agreements");
            }
        named_failures(2);
        named_failures(4);
        ways(2);
        ways(3);
        bad += run_ranks(4, &d, half_split, NULL);
        expect_clean("half a split");
        purses(3);
        hung_device(3);
    }
    if (!only || only == 10) every_failure(3);
#endif
    return ranks_end("comm/nccl", bad);
}
#endif
