/* test_device_comm: groups whose buffers are in device memory, each rank with a device of its own on one GPU (emulated
   on the CPU, or in `make test-cuda` a real one): every call against the same call on host memory, bit for bit, over
   threads or, compiled with NEO_COMM_MPI and started by mpirun, over MPI; its bytes, and what groups take. */
#define NEO_COMM_IMPLEMENTATION
#include "comm_ranks.h"

#include "../neo_cuda.cuh"

enum { MOST = 6000 };

static neo_status open_device(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {0, 1};
    (void)rank, (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}

/* Memory of a rank in both places. Device memory holds the inputs; `back` is what has come of it. */
typedef struct pair {
    neo_comm *host, *there;
    char *in, *out, *back;
    neo_tensor dev_in, dev_out;
} pair;
static neo_tensor bytes_of(void *data, size_t bytes, neo_place place) {
    neo_tensor t = neo_tensor_1d(data, NEO_U8, (int64_t)bytes);
    t.place = place;
    return t;
}
static neo_status send_in(const pair *p, size_t bytes) {
    neo_ctx *ctx = neo_comm_ctx(p->host);
    if (bytes) NEO__TRY(neo_tensor_copy(ctx, bytes_of(p->in, bytes, NEO_HOST), bytes_of(p->dev_in.data, bytes, NEO_DEVICE)));
    memset(p->out, 0xAB, (size_t)MOST * 8);
    return neo_tensor_copy(ctx, bytes_of(p->out, (size_t)MOST * 8, NEO_HOST), p->dev_out);
}
static neo_status compare(const pair *p, const char *what, int64_t count, neo_dtype dtype) {
    neo_ctx *ctx = neo_comm_ctx(p->host);
    EXPECT_OK(p->host, neo_tensor_copy(ctx, p->dev_out, bytes_of(p->back, (size_t)MOST * 8, NEO_HOST)));
    EXPECT(p->host, memcmp(p->back, p->out, (size_t)MOST * 8) == 0, "%s of %d %s differs on a device", what, (int)count,
           neo_dtype_name(dtype));
    return NEO_OK;
}

typedef struct shape {
    int64_t count, counts[16], total;
    neo_dtype dtype;
    neo_reduce reduce;
} shape;
/* All calls with one shape. counts: uneven parts, which may be empty. */
static neo_status calls(const pair *p, const shape *s) {
    neo_comm *h = p->host, *d = p->there;
    int W = neo_comm_size(h), r = neo_comm_rank(h), narrow = s->dtype == NEO_F8E4M3 || s->dtype == NEO_F8E5M2;
    size_t size = neo_dtype_size(s->dtype);
    void *in = p->in, *out = p->out, *din = p->dev_in.data, *dout = p->dev_out.data;
    int64_t out_counts[16];
    neo_ticket a, b;
    for (int q = 0; q < W; q++) out_counts[q] = s->counts[r];
#define BOTH(name, on_host, on_device)                                                                                 \
    do {                                                                                                               \
        EXPECT_OK(h, send_in(p, (size_t)s->total * size));                                                             \
        EXPECT_OK(h, on_host);                                                                                         \
        EXPECT_OK(h, on_device);                                                                                       \
        EXPECT_OK(h, compare(p, name, s->count, s->dtype));                                                            \
    } while (0)
    if (!narrow) {
        BOTH("all_reduce", neo_comm_all_reduce(h, s->reduce, in, out, s->count, s->dtype, NULL),
             neo_comm_all_reduce(d, s->reduce, din, dout, s->count, s->dtype, NULL));
        BOTH("reduce_scatter", neo_comm_reduce_scatter(h, s->reduce, in, out, 0, s->counts, s->dtype, NULL),
             neo_comm_reduce_scatter(d, s->reduce, din, dout, 0, s->counts, s->dtype, NULL));
    }
    BOTH("all_gather", neo_comm_all_gather(h, in, out, 0, s->counts, s->dtype, NULL),
         neo_comm_all_gather(d, din, dout, 0, s->counts, s->dtype, NULL));
    BOTH("all_to_allv", neo_comm_all_to_allv(h, in, s->counts, out, out_counts, s->dtype, NULL),
         neo_comm_all_to_allv(d, din, s->counts, dout, out_counts, s->dtype, NULL));
    BOTH("broadcast", (memcpy(out, in, (size_t)s->count * size), neo_comm_broadcast(h, out, s->count, s->dtype, W - 1, NULL)),
         (s->count ? neo__device_move(neo_comm_ctx(h), dout, din, (size_t)s->count * size) : NEO_OK,
          neo_comm_broadcast(d, dout, s->count, s->dtype, W - 1, NULL)));
    BOTH("gather", neo_comm_gather(h, in, out, 0, s->counts, s->dtype, 0, NULL),
         neo_comm_gather(d, din, dout, 0, s->counts, s->dtype, 0, NULL));
    BOTH("scatter", neo_comm_scatter(h, in, out, 0, s->counts, s->dtype, 0, NULL),
         neo_comm_scatter(d, din, dout, 0, s->counts, s->dtype, 0, NULL));
    /* With tickets, two at a time: the second reads what the first writes. */
    BOTH("tickets",
         (neo_comm_all_to_allv(h, in, s->counts, out, out_counts, s->dtype, NULL),
          neo_comm_broadcast(h, out, s->counts[0], s->dtype, 0, NULL)),
         (neo_comm_all_to_allv(d, din, s->counts, dout, out_counts, s->dtype, &a),
          neo_comm_broadcast(d, dout, s->counts[0], s->dtype, 0, &b), neo_comm_wait(d, b)));
    if (W > 1) {
        neo_comm *on[2] = {h, d};
        EXPECT_OK(h, send_in(p, (size_t)s->total * size));
        for (int k = 0; k < 2 && r < 2; k++)
            EXPECT_OK(h, r ? neo_comm_recv(on[k], k ? dout : out, s->count, s->dtype, 0, NULL)
                           : neo_comm_send(on[k], k ? din : in, s->count, s->dtype, 1, NULL));
        EXPECT_OK(h, compare(p, "send", s->count, s->dtype));
    }
    return NEO_OK;
}
/* Sums over 8 leaves: one subtree or several of each rank; in place, too. */
static neo_status leaves(const pair *p, int64_t count) {
    neo_leaves tree[NEO_MAX_SUBTREES];
    const void *pieces[NEO_MAX_SUBTREES], *there[NEO_MAX_SUBTREES];
    int n = neo_comm_subtrees(p->host, neo_comm_rank(p->host), 64, tree);
    for (int k = 0; k < n; k++) {
        pieces[k] = p->in + (size_t)k * (size_t)count * 4;
        there[k] = (const char *)p->dev_in.data + (size_t)k * (size_t)count * 4;
    }
    EXPECT_OK(p->host, send_in(p, (size_t)n * (size_t)count * 4));
    EXPECT_OK(p->host, neo_comm_all_reduce_leaves(p->host, pieces, p->out, count, NEO_F32, NULL));
    EXPECT_OK(p->host, neo_comm_all_reduce_leaves(p->there, there, p->dev_out.data, count, NEO_F32, NULL));
    return compare(p, "all_reduce_leaves", count, NEO_F32);
}
static neo_status sweep(const pair *p) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_BF16, NEO_F16, NEO_I64, NEO_I32, NEO_I8, NEO_U8, NEO_F8E4M3};
    static const int64_t sizes[] = {0, 1, 17, 1000, MOST};
    int W = neo_comm_size(p->host);
    for (int i = 0; i < 5 * 8; i++) {
        shape s = {.count = sizes[i % 5] / W, .dtype = dtypes[i / 5], .reduce = (neo_reduce)(i % 3)};
        if (i / 5 > 1 && i % 5 != 3) continue; /* all sizes with f32 and bf16 */
        for (int q = 0; q < W; q++) s.counts[q] = q == 1 ? 0 : q == 2 ? s.count / 2 : s.count, s.total += s.counts[q];
        if (s.total < s.count) s.total = s.count;
        fill(p->host, p->in, s.dtype, s.total, neo_comm_rank(p->host), i);
        EXPECT_OK(p->host, calls(p, &s));
    }
    fill(p->host, p->in, NEO_F32, MOST, neo_comm_rank(p->host), 99);
    EXPECT_OK(p->host, leaves(p, MOST / 8));
    EXPECT_OK(p->host, leaves(p, 3));
    return NEO_OK;
}
static neo_status rank_main(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_comm_desc *d = (const neo_comm_desc *)user;
    int64_t most = (int64_t)MOST * 8;
    pair p = {.host = comm};
    EXPECT(comm, neo_ctx_device(ctx) != NULL, "a rank has no device");
    size_t before = neo_ctx_memory(ctx).bytes;
    EXPECT_OK(comm, neo_comm_split_device(comm, 0, neo_comm_rank(comm), &p.there));
    size_t took = neo_ctx_memory(ctx).bytes - before;
    size_t says = neo_comm_workspace_bytes(d, neo_comm_size(comm), neo_comm_get_backend(comm)) +
                  neo_comm_device_bytes(d, neo_comm_size(comm), neo_comm_get_backend(comm));
    EXPECT(comm, took == says, "a group takes %zu bytes, predicted are %zu", took, says);
    EXPECT(comm, neo_comm_place(p.there) == NEO_DEVICE && neo_comm_place(comm) == NEO_HOST, "places");
    p.in = (char *)calloc((size_t)most, 1), p.out = (char *)calloc((size_t)most, 1), p.back = (char *)calloc((size_t)most, 1);
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_in));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_out));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    neo_comm_reset_stats(comm);
    EXPECT_OK(comm, sweep(&p));
    EXPECT(comm, neo_ctx_memory(ctx).alloc_count == allocs, "a call allocates");
    for (int op = 0; op < (int)NEO_COMM_OP_COUNT; op++) /* as many bytes as on the host, but for small all-reduces */
        EXPECT(comm, op == NEO_COMM_ALL_REDUCE || neo_comm_get_stats(comm).op[op].bytes[0] ==
                                                      neo_comm_get_stats(p.there).op[op].bytes[0],
               "bytes of %s", neo_comm_op_name((neo_comm_op)op));
    neo_comm *again = NULL; /* what is split from it is of its kind; numbers of agreement stay on the host */
    EXPECT_OK(comm, neo_comm_split(p.there, 0, -neo_comm_rank(comm), &again));
    EXPECT(comm, neo_comm_place(again) == NEO_DEVICE, "its place");
    EXPECT_OK(comm, neo_comm_agree(again, NEO_OK));
    if (neo_comm_size(comm) > 1) {
        neo_status mine = neo_comm_rank(comm) ? NEO_OK : neo_fail(NEO_ERR_IO, "no");
        EXPECT_ERR(comm, neo_comm_agree(p.there, mine), NEO_ERR_IO, "rank 0: no");
    }
    neo_rows rows = {.wire = NEO_WIRE_F16, .cols = 4};
    EXPECT_ERR(comm, neo_comm_all_gather_rows(p.there, &rows, NULL, NULL, 0, NULL, NULL), NEO_ERR_UNSUPPORTED, "device");
    neo_comm_destroy(again);
    neo_comm_destroy(p.there);
    neo_tensor_free(ctx, &p.dev_in);
    neo_tensor_free(ctx, &p.dev_out);
    free(p.in), free(p.out), free(p.back);
    return NEO_OK;
}

/* ---- errors ---- */
static neo_status no_device(neo_comm *comm, void *user) {
    neo_comm *sub;
    (void)user;
    EXPECT_ERR(comm, neo_comm_split_device(comm, 0, 0, &sub), NEO_ERR_ARG, "no device");
    return NEO_OK;
}
static neo_status never(neo_comm *comm, void *user) {
    (void)user;
    EXPECT(comm, 0, "ranks that share a device run");
    return NEO_OK;
}
static neo_status same_device(int rank, int local, void *user, neo_device **device) {
    (void)local;
    if (rank == 0) {
        NEO__TRY(open_device(0, 0, NULL, device));
        *(neo_device **)user = *device;
    }
    *device = *(neo_device **)user;
    return NEO_OK;
}
static neo_status late_device(int rank, int local, void *user, neo_device **device) {
    if (rank == 1) return neo_fail(NEO_ERR_DEVICE, "GPU %d is gone", local);
    return open_device(rank, local, user, device);
}
static neo_status diverges(neo_comm *comm, void *user) {
    neo_comm *sub;
    float *data = NULL;
    neo_tensor t;
    (void)user;
    EXPECT_OK(comm, neo_comm_split_device(comm, 0, 0, &sub));
    EXPECT_OK(comm, neo_tensor_alloc(neo_comm_ctx(comm), NEO_F32, 1, (int64_t[]){64}, &t));
    data = (float *)t.data;
    EXPECT_ERR(comm, neo_comm_broadcast(sub, data, neo_comm_rank(comm) ? 64 : 32, NEO_F32, 0, NULL), NEO_ERR_DIVERGED, "rank 1");
    neo_comm_destroy(sub);
    neo_tensor_free(neo_comm_ctx(comm), &t);
    return NEO_OK;
}
/* Steps as graphs on every rank, with a sum over the ranks in the middle. The labels of one are wrong in the third: all
   get that error, as they do without graphs, and none waits. */
enum { STEP_ROWS = 40, BAD_RANK = 1 };
static neo_status step_of_rank(neo_comm *comm, neo_comm *there, neo_tensor *t, float *label, double *loss) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_ticket ticket;
    NEO__TRY(neo_tensor_copy(ctx, neo_tensor_1d(label, NEO_F32, STEP_ROWS), t[1]));
    NEO__TRY(neo_bce_with_logits(ctx, NULL, t[0], t[1], t[2], loss));
    NEO__TRY(neo_comm_all_reduce(there, NEO_REDUCE_SUM, t[2].data, t[3].data, STEP_ROWS, NEO_F32, &ticket));
    NEO__TRY(neo_scale(ctx, t[0], 0.5f, NULL));
    NEO__TRY(neo_comm_wait(there, ticket));
    return neo_add(ctx, t[3], t[0]);
}
static neo_status graphs(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    int64_t n = STEP_ROWS, bad = *(int *)user;
    int W = neo_comm_size(comm), rank = neo_comm_rank(comm);
    float label[STEP_ROWS], x[STEP_ROWS], want[STEP_ROWS] = {0};
    neo_comm *there;
    neo_tensor t[4];
    neo_cuda_graph *graph;
    double loss = 0.0;
    EXPECT_OK(comm, neo_comm_split_device(comm, 0, rank, &there));
    for (int i = 0; i < 4; i++) EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_F32, 1, &n, &t[i]));
    EXPECT_OK(comm, neo_tensor_zero(ctx, t[0]));
    EXPECT_OK(comm, neo_cuda_graph_create((neo_device *)(uintptr_t)neo_ctx_device(ctx), NULL, &graph));
    neo_status status = NEO_OK;
    for (int step = 0; step < 4 && status == NEO_OK; step++) {
        for (int i = 0; i < n; i++) label[i] = (float)((i + rank + step) % 2);
        if (bad && step == 2 && rank == BAD_RANK) label[7] = 3.0f;
        if (step == 0) EXPECT_OK(comm, neo_tensor_zero(ctx, t[0]));
        status = neo_cuda_graph_begin(graph);
        if (status == NEO_OK) status = step_of_rank(comm, there, t, label, &loss);
        if (status == NEO_OK) status = neo_cuda_graph_end(graph);
        if (status == NEO_OK && step % 2) status = neo_cuda_graph_wait(graph);
    }
    if (bad) {
        EXPECT(comm, status == NEO_ERR_RANGE, "%s: %s", neo_status_string(status), neo_last_error());
        EXPECT(comm, strstr(neo_last_error(), "rank 1: ") && strstr(neo_last_error(), "label of sample 7 is 3"), "%s",
               neo_last_error());
    } else {
        EXPECT(comm, status == NEO_OK, "%s", neo_last_error());
        for (int i = 0; i < n; i++) /* of logits that stay zero */
            for (int r = 0; r < W; r++) want[i] += (0.5f - (float)((i + r + 3) % 2)) / (float)n;
        EXPECT_OK(comm, neo_tensor_copy(ctx, t[3], neo_tensor_1d(x, NEO_F32, n)));
        for (int i = 0; i < n; i++)
            EXPECT(comm, want[i] - x[i] < 1e-6f && x[i] - want[i] < 1e-6f, "%g, not %g", (double)x[i], (double)want[i]);
        EXPECT(comm, loss > 0.69 && loss < 0.7, "loss %g", loss);
    }
    neo_cuda_graph_destroy(graph);
    neo_comm_destroy(there);
    for (int i = 0; i < 4; i++) neo_tensor_free(ctx, &t[i]);
    return NEO_OK;
}
static void expect_refused(const neo_comm_desc *d, neo_comm_fn fn, neo_status expected, const char *part) {
    neo_status status = neo_comm_spawn(2, d, fn, NULL, NULL);
    checks++;
    if (status == expected && strstr(neo_last_error(), part)) return;
    failures++;
    fprintf(stderr, "%s, not %s with '%s': %s\n", neo_status_string(status), neo_status_string(expected), part, neo_last_error());
}

#if defined(EMULATED)
/* Every call of CUDA that collectives make fails once, on one of two ranks: each comes back in time, with the device's
   words or of the rank that has them, and leaves nothing behind. */
void emu_fail_after(int64_t n);
int emu_failed(void);
int64_t emu_live(void);
static int has_failed;
static neo_status some_calls(neo_comm *comm, void *user) {
    int64_t n = 3000, half = n / 2, at = *(int64_t *)user, counts[2] = {1000, 500}, theirs[2];
    neo_comm *sub;
    neo_tensor a, b;
    neo_ticket ticket;
    NEO__TRY(neo_comm_split_device(comm, 0, 0, &sub));
    NEO__TRY(neo_tensor_alloc(neo_comm_ctx(comm), NEO_F32, 1, &n, &a));
    NEO__TRY(neo_tensor_alloc(neo_comm_ctx(comm), NEO_F32, 1, &n, &b));
    NEO__TRY(neo_tensor_zero(neo_comm_ctx(comm), a));
    NEO__TRY(neo_comm_barrier(comm, NULL));
    if (neo_comm_rank(comm) == 0) emu_fail_after(at);
    for (int p = 0; p < 2; p++) theirs[p] = counts[neo_comm_rank(comm)];
    neo_status status = neo_comm_all_reduce(sub, NEO_REDUCE_SUM, a.data, b.data, n, NEO_F32, NULL);
    if (status == NEO_OK) status = neo_comm_all_gather(sub, a.data, b.data, half, NULL, NEO_F32, &ticket);
    if (status == NEO_OK) status = neo_comm_all_to_allv(sub, a.data, counts, b.data, theirs, NEO_F32, NULL);
    if (status == NEO_OK) status = neo_comm_broadcast(sub, b.data, n, NEO_F32, 0, NULL);
    char why[400];
    snprintf(why, sizeof why, "%s", status == NEO_OK ? "" : neo_last_error());
    NEO__TRY(neo_comm_barrier(comm, NULL));
    if (neo_comm_rank(comm) == 0) has_failed = emu_failed(), emu_fail_after(0);
    NEO__TRY(neo_comm_barrier(comm, NULL));
    neo_comm_destroy(sub);
    neo_tensor_free(neo_comm_ctx(comm), &a);
    neo_tensor_free(neo_comm_ctx(comm), &b);
    return status == NEO_OK ? NEO_OK : neo_fail(status, "%s", why);
}
static void faults(neo_comm_desc d) {
    int64_t at = 1, before = emu_live(), began = neo_time_ns();
    int failed = 1;
    d.timeout_ms = 10000;
    for (; failed && at < 400; at++) {
        neo_status status = neo_comm_spawn(2, &d, some_calls, &at, NULL);
        failed = has_failed;
        checks++;
        if ((status == NEO_OK) == failed || emu_live() != before) {
            failures++;
            fprintf(stderr, "call %d of CUDA fails: %s: %s; %d objects are left\n", (int)at, neo_status_string(status),
                    neo_last_error(), (int)(emu_live() - before));
        }
    }
    checks++;
    if (at > 20 && at < 400 && neo_time_ns() - began < (int64_t)60 * 1000000000) return;
    failures++;
    fprintf(stderr, "%d calls of CUDA have failed, in %.1f s\n", (int)at, (double)(neo_time_ns() - began) * 1e-9);
}
#else
static void faults(neo_comm_desc d) { (void)d; }
#endif

int main(void) {
    int bad = 0, started = launched();
    /* segments of 4 KiB: most sums are of several */
    neo_comm_desc d = {.ctx = {.threads = 1, .repro_shards = 8}, .open_device = open_device, .segment_bytes = 4096};
    for (int W = 1; W <= 5 && !started; W++)
        if (W != 4) bad += run_ranks(W, &d, rank_main, &d);
    if (started) {
        bad += run_ranks(started, &d, rank_main, &d);
        return ranks_end("test_device_comm", bad);
    }
    neo_comm_desc plain = {.ctx = {.threads = 1}}, shared = plain, same = plain, late = plain, own = plain;
    neo_device *first = NULL;
    bad += run_ranks(2, &plain, no_device, NULL);
    own.open_device = open_device;
    bad += run_ranks(2, &own, diverges, NULL);
    for (int spoilt = 0; spoilt < 2; spoilt++) bad += run_ranks(3, &own, graphs, &spoilt);
    same.open_device = same_device, same.open_user = &first;
    expect_refused(&same, never, NEO_ERR_ARG, "the same device");
    late.open_device = late_device;
    expect_refused(&late, never, NEO_ERR_DEVICE, "GPU 1 is gone");
    if (open_device(0, 0, NULL, &shared.ctx.device) == NEO_OK) {
        expect_refused(&shared, never, NEO_ERR_ARG, "2 ranks would share one device");
        neo_cuda_device_destroy(shared.ctx.device);
    }
    faults(own);
    return ranks_end("test_device_comm", bad);
}
