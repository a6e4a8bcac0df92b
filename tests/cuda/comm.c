/* comm.c: groups whose buffers are in device memory, each rank with a device of its own on one GPU
   (emulated on the CPU, or in `make test-cuda` a real one): every call against the same call on
   host memory, bit for bit, over threads or, compiled with NEO_COMM_MPI and started by mpirun, over
   MPI, rows on narrow wires with their coded bytes; its bytes, what groups take, and that a call
   with a ticket waits for its inputs and its caller for nothing; steps that are recorded: their
   errors, calls of several groups in any order. With NEO_COMM_NCCL the calls are over NCCL
   (emulated: over nccl_on_cpu.cpp, whose kernels wait for each other), where a recorded step is
   ahead of the other ranks, and one whose others do not come has no effect. */
#define NEO_COMM_IMPLEMENTATION
#include "comm/ranks.h"

#include "neo_cuda.cuh"

#include <pthread.h>

enum { MOST = 6000 };

static neo_status open_device(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {0, 1, 0};
    (void)rank, (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}

/* The same ranks, with buffers in device memory. */
static neo_status open_there(neo_comm *comm, neo_comm **there) {
#if defined(NEO_COMM_NCCL)
    return neo_comm_create_nccl(comm, 0, NULL, there);
#else
    return neo_comm_split_device(comm, 0, neo_comm_rank(comm), there);
#endif
}

/* Memory of a rank in both places. Device memory holds the inputs; `back` is what has come of it.
   */
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
    if (bytes)
        NEO__TRY(neo_tensor_copy(ctx, bytes_of(p->in, bytes, NEO_HOST),
                                 bytes_of(p->dev_in.data, bytes, NEO_DEVICE)));
    memset(p->out, 0xAB, (size_t)MOST * 8);
    return neo_tensor_copy(ctx, bytes_of(p->out, (size_t)MOST * 8, NEO_HOST), p->dev_out);
}
static neo_status compare(const pair *p, const char *what, int64_t count, neo_dtype dtype) {
    neo_ctx *ctx = neo_comm_ctx(p->host);
    EXPECT_OK(p->host,
              neo_tensor_copy(ctx, p->dev_out, bytes_of(p->back, (size_t)MOST * 8, NEO_HOST)));
    EXPECT(p->host, memcmp(p->back, p->out, (size_t)MOST * 8) == 0,
           "%s of %d %s differs on a device", what, (int)count, neo_dtype_name(dtype));
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
    int W = neo_comm_size(h), r = neo_comm_rank(h),
        narrow = s->dtype == NEO_F8E4M3 || s->dtype == NEO_F8E5M2;
    size_t size = neo_dtype_size(s->dtype);
    void *in = p->in, *out = p->out, *din = p->dev_in.data, *dout = p->dev_out.data;
    int64_t out_counts[16];
    neo_ticket a, b;
    for (int q = 0; q < W; q++) out_counts[q] = s->counts[r];
#define BOTH(name, on_host, on_device)                                                             \
    do {                                                                                           \
        EXPECT_OK(h, send_in(p, (size_t)s->total *size));                                          \
        EXPECT_OK(h, on_host);                                                                     \
        EXPECT_OK(h, on_device);                                                                   \
        EXPECT_OK(h, compare(p, name, s->count, s->dtype));                                        \
    } while (0)
    if (!narrow) {
        BOTH("all_reduce", neo_comm_all_reduce(h, s->reduce, in, out, s->count, s->dtype, NULL),
             neo_comm_all_reduce(d, s->reduce, din, dout, s->count, s->dtype, NULL));
        BOTH("reduce_scatter",
             neo_comm_reduce_scatter(h, s->reduce, in, out, 0, s->counts, s->dtype, NULL),
             neo_comm_reduce_scatter(d, s->reduce, din, dout, 0, s->counts, s->dtype, NULL));
    }
    BOTH("all_gather", neo_comm_all_gather(h, in, out, 0, s->counts, s->dtype, NULL),
         neo_comm_all_gather(d, din, dout, 0, s->counts, s->dtype, NULL));
    BOTH("all_to_allv", neo_comm_all_to_allv(h, in, s->counts, out, out_counts, s->dtype, NULL),
         neo_comm_all_to_allv(d, din, s->counts, dout, out_counts, s->dtype, NULL));
    BOTH("broadcast",
         (memcpy(out, in, (size_t)s->count * size),
          neo_comm_broadcast(h, out, s->count, s->dtype, W - 1, NULL)),
         (s->count
              ? neo_tensor_copy(neo_comm_ctx(h), bytes_of(din, (size_t)s->count * size, NEO_DEVICE),
                                bytes_of(dout, (size_t)s->count * size, NEO_DEVICE))
              : NEO_OK,
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
    EXPECT_OK(p->host,
              neo_comm_all_reduce_leaves(p->there, there, p->dev_out.data, count, NEO_F32, NULL));
    return compare(p, "all_reduce_leaves", count, NEO_F32);
}
static neo_status sweep(const pair *p) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_BF16, NEO_F16, NEO_I64,
                                       NEO_I32, NEO_I8,   NEO_U8,  NEO_F8E4M3};
    static const int64_t sizes[] = {0, 1, 17, 1000, MOST};
    int W = neo_comm_size(p->host);
    for (int i = 0; i < 5 * 8; i++) {
        shape s = {
            .count = sizes[i % 5] / W, .dtype = dtypes[i / 5], .reduce = (neo_reduce)(i % 3)};
        if (i / 5 > 1 && i % 5 != 3) continue; /* all sizes with f32 and bf16 */
        for (int q = 0; q < W; q++)
            s.counts[q] = q == 1 ? 0 : q == 2 ? s.count / 2 : s.count, s.total += s.counts[q];
        if (s.total < s.count) s.total = s.count;
        fill(p->host, p->in, s.dtype, s.total, neo_comm_rank(p->host), i);
        EXPECT_OK(p->host, calls(p, &s));
    }
    fill(p->host, p->in, NEO_F32, MOST, neo_comm_rank(p->host), 99);
    EXPECT_OK(p->host, leaves(p, MOST / 8));
    EXPECT_OK(p->host, leaves(p, 3));
    return NEO_OK;
}
/* ---- rows on narrow wires ---- */
static int is_nan(uint32_t u) { return (u & 0x7FFFFFFFu) > 0x7F800000u; }
/* Numbers of every kind, block by block: of any bits at all, with Inf or NaN, denormals, ties of
   each wire, alike. */
static float any_number(uint64_t seed, int64_t i) {
    const uint64_t u = mixed(seed * 100003u + (uint64_t)i),
                   kind = mixed(seed ^ (uint64_t)(i / 21)) % 10;
    const float sign = u >> 40 & 1 ? 1.0f : -1.0f;
    const int ties = (int)(u % 897) - 448;
    float x = (float)((int)(u % 2001) - 1000) * 0x1p-10f;
    switch (kind) {
    case 0: return neo__f32_bits((uint32_t)(u >> 7));
    case 1:
        return i % 3 ? x
                     : neo__f32_bits((u & 1 ? 0x7F800001u : 0x7F800000u) +
                                     ((uint32_t)(u >> 20) & 0x803FFFFFu));
    case 2: return neo__f32_bits((uint32_t)u % 0x00800000u) * sign;
    case 3: return neo__f32_bits((uint32_t)u % 0x01800000u) * sign;
    case 4: return neo__f32_bits(0x7F7FFFFFu - (uint32_t)u % 0x00800000u) * sign;
    case 5: return 0.0f * sign;
    case 6: return i % 21 ? (float)ties * 0.5f : 448.0f;
    case 7: return i % 21 ? (float)(ties % 29) * 0.5f : 7.0f;
    case 8:
        return neo__f32_bits(0x47700000u + (uint32_t)u % 0x00200000u) *
               sign; /* about f16's largest */
    default: return x;
    }
}
/* The rows' calls, the coded bytes too, which stand in the workspace. */
typedef struct rows_shape {
    neo_rows rows;
    int64_t count, counts[16], total;
    int salt;
} rows_shape;
static neo_status rows_calls(const pair *p, rows_shape *s, neo_tensor work) {
    neo_comm *h = p->host, *d = p->there;
    int W = neo_comm_size(h), r = neo_comm_rank(h);
    int64_t cols = s->rows.cols, theirs[16], mine = s->counts[r];
    float *in = (float *)(void *)p->in, *out = (float *)(void *)p->out;
    float *din = (float *)p->dev_in.data, *dout = (float *)p->dev_out.data;
    neo_rows on_host = s->rows, there = s->rows;
    neo_ticket ticket;
    for (int64_t i = 0; i < s->total * cols; i++)
        in[i] = any_number((uint64_t)(s->salt * 16 + r), i);
    for (int q = 0; q < W; q++) theirs[q] = mine;
    there.workspace = work.data, there.workspace_bytes = (size_t)neo_tensor_count(work);
    for (int op = 0; op < 3; op++) {
        size_t bytes = 0;
        EXPECT_OK(h, send_in(p, (size_t)(s->total * cols) * 4));
        if (op == 0) {
            bytes = neo_comm_rows_bytes(h, s->rows.wire, cols, NEO_COMM_ALL_GATHER, mine, s->total);
            EXPECT_OK(h, neo_comm_all_gather_rows(h, &on_host, in, out, 0, s->counts, NULL));
            EXPECT_OK(h, neo_comm_all_gather_rows(d, &there, din, dout, 0, s->counts, NULL));
        } else if (op == 1) {
            bytes =
                neo_comm_rows_bytes(h, s->rows.wire, cols, NEO_COMM_ALL_TO_ALL, s->total, mine * W);
            EXPECT_OK(h, neo_comm_all_to_allv_rows(h, &on_host, in, s->counts, out, theirs, NULL));
            EXPECT_OK(h,
                      neo_comm_all_to_allv_rows(d, &there, din, s->counts, dout, theirs, &ticket));
            EXPECT_OK(h, neo_comm_wait(d, ticket));
        } else {
            bytes = (size_t)(s->total + mine * W) * neo_wire_row_bytes(s->rows.wire, cols);
            EXPECT_OK(h, neo_comm_reduce_scatter_rows(h, &on_host, in, out, 0, s->counts, NULL));
            EXPECT_OK(h, neo_comm_reduce_scatter_rows(d, &there, din, dout, 0, s->counts, NULL));
        }
        const char *wire = neo_wire_name(s->rows.wire);
        EXPECT_OK(h, neo_tensor_copy(neo_comm_ctx(h), p->dev_out,
                                     bytes_of(p->back, (size_t)MOST * 8, NEO_HOST)));
        int64_t wrong = 0;
        for (int64_t i = 0; i < MOST * 2; i++) {
            uint32_t a, b;
            memcpy(&a, p->out + 4 * i, 4), memcpy(&b, p->back + 4 * i, 4);
            wrong += a != b && !(op == 2 && is_nan(a) &&
                                 is_nan(b)); /* of two NaNs a sum may have either's payload */
        }
        EXPECT(h, wrong == 0, "call %d: %d numbers of rows of %d as %s 2^%d differ", op, (int)wrong,
               (int)cols, wire, s->rows.exponent);
        if (bytes)
            EXPECT_OK(h, neo_tensor_copy(neo_comm_ctx(h), bytes_of(work.data, bytes, NEO_DEVICE),
                                         bytes_of(p->back, bytes, NEO_HOST)));
        EXPECT(h, memcmp(p->back, on_host.workspace, bytes) == 0,
               "call %d: coded bytes of rows of %d as %s 2^%d differ", op, (int)cols, wire,
               s->rows.exponent);
    }
    return NEO_OK;
}
static neo_status rows_sweep(const pair *p) {
    static const int64_t widths[] = {1, 2, 3, 7, 8, 9, 15, 17, 33, 63, 64, 65, 127, 130, 200};
    static const int exponents[] = {0, 0, 3, -9, 120, -126};
    neo_comm *h = p->host;
    int W = neo_comm_size(h), salt = 0;
    int64_t most = (int64_t)MOST * 8;
    neo_tensor work;
    char *room = (char *)malloc((size_t)most);
    EXPECT_OK(h, neo_tensor_alloc(neo_comm_ctx(h), NEO_U8, 1, &most, &work));
    for (int wire = 0; wire < (int)NEO_WIRE_COUNT; wire++)
        for (int i = 0; i < 15; i++) {
            rows_shape s = {.rows = {.wire = (neo_wire)wire,
                                     .exponent = exponents[(i + wire) % 6],
                                     .cols = widths[i]},
                            .salt = ++salt};
            s.rows.workspace = room, s.rows.workspace_bytes = (size_t)most;
            for (int q = 0; q < W; q++)
                s.counts[q] = q == 1 ? i % 2 : 1 + (i + q) % 3, s.total += s.counts[q];
            EXPECT_OK(h, rows_calls(p, &s, work));
        }
    neo_wire_stats stats = {0};
    neo_rows measured = {.wire = NEO_WIRE_F16, .cols = 4, .stats = &stats};
    EXPECT_ERR(h, neo_comm_all_gather_rows(p->there, &measured, NULL, NULL, 0, NULL, NULL),
               NEO_ERR_UNSUPPORTED, "statistics");
    neo_tensor_free(neo_comm_ctx(h), &work);
    free(room);
    return NEO_OK;
}
/* Two levels, on four ranks that are two nodes. */
static neo_status two_levels(const pair *p) {
    neo_comm *h = p->host, *local, *cross, *on_local, *on_cross;
    neo_ctx *ctx = neo_comm_ctx(h);
    int64_t most = (int64_t)MOST * 8;
    neo_tensor work;
    char *room = (char *)malloc((size_t)most);
    EXPECT_OK(h, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &work));
    EXPECT_OK(h, neo_comm_split_nodes(h, &local, &cross));
#if defined(NEO_COMM_NCCL)
    EXPECT_OK(h, neo_comm_split_nodes(p->there, &on_local, &on_cross));
#else
    EXPECT_OK(h, neo_comm_split_device(local, 0, neo_comm_rank(local), &on_local));
    EXPECT_OK(h, neo_comm_split_device(cross, 0, neo_comm_rank(cross), &on_cross));
#endif
    EXPECT_ERR(h,
               neo_comm_all_reduce_2level(on_local, cross, NEO_REDUCE_SUM, NULL, NULL, 0, NEO_F32),
               NEO_ERR_ARG, "a group of devices");
    void *in = p->in, *out = p->out, *din = p->dev_in.data, *dout = p->dev_out.data;
    for (int64_t n = 0; n < 700; n = n * 6 + 1) {
        neo_dtype dtype = n == 7 ? NEO_BF16 : n == 43 ? NEO_I64 : NEO_F32;
        size_t bytes = (size_t)n * 4 * neo_dtype_size(dtype);
        fill(h, p->in, dtype, n * 4, neo_comm_rank(h), (int)n);
        EXPECT_OK(h, send_in(p, bytes));
        EXPECT_OK(h, neo_comm_all_reduce_2level(local, cross, NEO_REDUCE_SUM, in, out, n, dtype));
        EXPECT_OK(
            h, neo_comm_all_reduce_2level(on_local, on_cross, NEO_REDUCE_SUM, din, dout, n, dtype));
        EXPECT_OK(h, compare(p, "all_reduce_2level", n, dtype));
        EXPECT_OK(h, send_in(p, bytes));
        EXPECT_OK(h, neo_comm_reduce_scatter_2level(local, cross, NEO_REDUCE_SUM, in, out, n, dtype,
                                                    room));
        EXPECT_OK(h, neo_comm_reduce_scatter_2level(on_local, on_cross, NEO_REDUCE_SUM, din, dout,
                                                    n, dtype, work.data));
        EXPECT_OK(h, compare(p, "reduce_scatter_2level", n, dtype));
        EXPECT_OK(h, send_in(p, bytes));
        EXPECT_OK(h, neo_comm_all_to_all_2level(local, cross, in, out, n, dtype, room));
        EXPECT_OK(h,
                  neo_comm_all_to_all_2level(on_local, on_cross, din, dout, n, dtype, work.data));
        EXPECT_OK(h, compare(p, "all_to_all_2level", n, dtype));
    }
    neo_comm_destroy(on_local);
    neo_comm_destroy(on_cross);
    neo_comm_destroy(local);
    neo_comm_destroy(cross);
    neo_tensor_free(ctx, &work);
    free(room);
    return NEO_OK;
}

static neo_status rank_main(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_comm_desc *d = (const neo_comm_desc *)user;
    int64_t most = (int64_t)MOST * 8;
    pair p = {.host = comm};
    EXPECT(comm, neo_ctx_device(ctx) != NULL, "a rank has no device");
    size_t before = neo_ctx_memory(ctx).bytes;
    EXPECT_OK(comm, open_there(comm, &p.there));
    size_t took = neo_ctx_memory(ctx).bytes - before;
    const neo_comm_backend on = neo_comm_get_backend(p.there);
    size_t says = neo_comm_workspace_bytes(d, neo_comm_size(comm), neo_comm_get_backend(comm)) +
                  neo_comm_device_bytes(d, neo_comm_size(comm), on);
    if (on == NEO_BACKEND_NCCL) says += neo_comm_workspace_bytes(d, neo_comm_size(comm), on);
    EXPECT(comm, took == says, "a group takes %zu bytes, predicted are %zu", took, says);
    EXPECT(comm, neo_comm_place(p.there) == NEO_DEVICE && neo_comm_place(comm) == NEO_HOST,
           "places");
    p.in = (char *)calloc((size_t)most, 1), p.out = (char *)calloc((size_t)most, 1),
    p.back = (char *)calloc((size_t)most, 1);
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_in));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_out));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    neo_comm_reset_stats(comm);
    EXPECT_OK(comm, sweep(&p));
    EXPECT(comm, neo_ctx_memory(ctx).alloc_count == allocs, "a call allocates");
    for (int op = 0; op < (int)NEO_COMM_OP_COUNT;
         op++) /* as many bytes as on the host, but for small all-reduces */
        EXPECT(comm, op == NEO_COMM_ALL_REDUCE || neo_comm_get_stats(comm).op[op].bytes[0] ==
                                                      neo_comm_get_stats(p.there).op[op].bytes[0],
               "bytes of %s", neo_comm_op_name((neo_comm_op)op));
    neo_comm *again =
        NULL; /* what is split from it is of its kind; numbers of agreement stay on the host */
    EXPECT_OK(comm, neo_comm_split(p.there, 0, -neo_comm_rank(comm), &again));
    EXPECT(comm, neo_comm_place(again) == NEO_DEVICE, "its place");
    EXPECT_OK(comm, neo_comm_agree(again, NEO_OK));
    if (neo_comm_size(comm) > 1) {
        neo_status mine = neo_comm_rank(comm) ? NEO_OK : neo_fail(NEO_ERR_IO, "no");
        EXPECT_ERR(comm, neo_comm_agree(p.there, mine), NEO_ERR_IO, "rank 0: no");
    }
    allocs = neo_ctx_memory(ctx).alloc_count;
    if (neo_comm_size(comm) == 4) {
        EXPECT_OK(comm, two_levels(&p));
    } else if (neo_comm_size(comm) != 1) {
        EXPECT_OK(comm, rows_sweep(&p));
        EXPECT(comm, neo_ctx_memory(ctx).alloc_count == allocs + 1, "a call with rows allocates");
    }
    neo_comm_destroy(again);
    neo_comm_destroy(p.there);
    neo_tensor_free(ctx, &p.dev_in);
    neo_tensor_free(ctx, &p.dev_out);
    free(p.in), free(p.out), free(p.back);
    return NEO_OK;
}

#if defined(NEO_COMM_NCCL) && defined(EMULATED)
/* ---- NCCL's own sums: the emulated ones begin with the rank behind rank 0, or behind the owner of
   a part. Other calls are neo's, and all send the bytes of neo's ---- */
static neo_status own_sums(neo_comm *comm, void *user) {
    enum { COUNT = 48 };
    neo_ctx *ctx = neo_comm_ctx(comm);
    int W = neo_comm_size(comm), r = neo_comm_rank(comm), other = 0;
    pair p = {.host = comm};
    int64_t most = (int64_t)MOST * 8, all = COUNT * W, uneven[16] = {1};
    float x[COUNT * 8], every[COUNT * 8 * 8], want[COUNT * 8];
    (void)user;
    EXPECT_OK(comm, neo_comm_create_nccl(comm, 0, NULL, &p.there));
    p.in = (char *)calloc((size_t)most, 1), p.out = (char *)calloc((size_t)most, 1),
    p.back = (char *)calloc((size_t)most, 1);
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_in));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_U8, 1, &most, &p.dev_out));
    void *din = p.dev_in.data, *dout = p.dev_out.data;
    fill(comm, x, NEO_F32, all, r, 5);
    memcpy(p.in, x, (size_t)all * 4);
    EXPECT_OK(comm, neo_comm_all_gather(comm, x, every, all, NULL, NEO_F32, NULL));
    for (int scatters = 0; scatters < 2; scatters++) {
        const int64_t n = scatters ? COUNT : all, first = scatters ? COUNT * r : 0;
        EXPECT_OK(comm, send_in(&p, (size_t)all * 4));
        EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, x, want, all, NEO_F32, NULL));
        for (int64_t i = 0; i < n; i++) {
            float sum = 0;
            for (int k = 1; k <= W; k++)
                sum += every[((scatters ? r : 0) + k) % W * all + first + i];
            other += memcmp(&sum, &want[first + i], 4) != 0;
            memcpy(p.out + 4 * i, &sum, 4);
        }
        neo_comm_reset_stats(p.there);
        EXPECT_OK(comm, scatters ? neo_comm_reduce_scatter(p.there, NEO_REDUCE_SUM, din, dout,
                                                           COUNT, NULL, NEO_F32, NULL)
                                 : neo_comm_all_reduce(p.there, NEO_REDUCE_SUM, din, dout, all,
                                                       NEO_F32, NULL));
        EXPECT_OK(comm, compare(&p, "a sum of NCCL's own", all, NEO_F32));
        const neo_comm_stats sent = neo_comm_get_stats(p.there);
        EXPECT(comm, sent.op[!scatters ? NEO_COMM_ALL_REDUCE : NEO_COMM_REDUCE_SCATTER].bytes[0] ==
                         (scatters ? 1 : 2) * 4 * COUNT * (W - 1), "its bytes");
    }
    EXPECT(comm, W < 4 || other > 0, "an order of its own has the tree's bits");
    EXPECT_OK(comm, send_in(&p, (size_t)all * 4));
    EXPECT_OK(comm, neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, p.in, p.out, 0, uneven, NEO_F32,
                                            NULL));
    EXPECT_OK(comm, neo_comm_reduce_scatter(p.there, NEO_REDUCE_SUM, din, dout, 0, uneven, NEO_F32,
                                            NULL));
    EXPECT_OK(comm, compare(&p, "a sum of uneven parts", 1, NEO_F32));
    EXPECT_OK(comm, send_in(&p, (size_t)all * 4));
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_MAX, p.in, p.out, all, NEO_F32, NULL));
    EXPECT_OK(comm, neo_comm_all_reduce(p.there, NEO_REDUCE_MAX, din, dout, all, NEO_F32, NULL));
    EXPECT_OK(comm, compare(&p, "a maximum", all, NEO_F32));
    neo_comm_destroy(p.there);
    neo_tensor_free(ctx, &p.dev_in);
    neo_tensor_free(ctx, &p.dev_out);
    free(p.in), free(p.out), free(p.back);
    return NEO_OK;
}
#elif defined(EMULATED)
/* ---- GPUs of one process, of which the emulated reach their neighbours' memory ---- */
void emu_set_devices(int count);
int emu_reached(int device, int peer);
static neo_status open_own(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {rank, 1, 0};
    (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}
static neo_status peers(neo_comm *comm, void *user) {
    int64_t n = 900;
    const int r = neo_comm_rank(comm);
    float x[900], y[900];
    neo_comm *sub;
    neo_tensor a;
    neo_ctx *ctx = neo_comm_ctx(comm);
    (void)user;
    EXPECT_OK(comm, neo_comm_split_device(comm, 0, r, &sub));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_F32, 1, &n, &a));
    for (int round = 0; round < 3; round++) { /* again: nothing is asked for twice */
        fill(comm, x, NEO_F32, n, r, round);
        EXPECT_OK(comm, neo_tensor_copy(ctx, neo_tensor_1d(x, NEO_F32, n), a));
        EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, x, x, n, NEO_F32, NULL));
        EXPECT_OK(comm,
                  neo_comm_all_reduce(sub, NEO_REDUCE_SUM, a.data, a.data, n, NEO_F32, NULL));
        EXPECT_OK(comm, neo_tensor_copy(ctx, a, neo_tensor_1d(y, NEO_F32, n)));
        EXPECT(comm, memcmp(x, y, sizeof x) == 0, "a sum over GPUs");
    }
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    for (int q = 0; q < 3; q++)
        EXPECT(comm, emu_reached(r, q) == (q - r == 1 || r - q == 1), "GPU %d reaches %d: %d", r, q,
               emu_reached(r, q));
    neo_tensor_free(ctx, &a);
    neo_comm_destroy(sub);
    return NEO_OK;
}
#endif
/* ---- beside the device's work ---- */
#if defined(EMULATED)
void emu_set_lazy(int on);
int64_t emu_queued(void);
int64_t emu_waits(void);
#else
static void emu_set_lazy(int on) { (void)on; }
static int64_t emu_waits(void) { return 0; }
#endif
/* A call with a ticket on what the device has been called to compute, but has not begun: the caller
   does not wait, the call does, and not for what comes after it. Emulated, the device does nothing
   that is not waited for; more rounds than the queue is long, so that slots and their events are
   used again. */
static neo_status beside(neo_comm *comm, void *user) {
    enum { N = 3000, ROUNDS = 9 };
    int64_t n = N;
    int W = neo_comm_size(comm), r = neo_comm_rank(comm);
    neo_comm *sub;
    neo_tensor a, b, later;
    neo_ctx *ctx = neo_comm_ctx(comm);
    float x[N], y[N];
    (void)user;
    EXPECT_OK(comm, neo_comm_split_device(comm, 0, r, &sub));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_F32, 1, &n, &a));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_F32, 1, &n, &b));
    EXPECT_OK(comm, neo_tensor_alloc(ctx, NEO_F32, 1, &n, &later));
    for (int round = 0; round < ROUNDS; round++) {
        const int whole = round % 3 == 0;
        neo_ticket ticket;
        for (int64_t i = 0; i < n; i++) x[i] = (float)(i * (r + 1) + round), y[i] = 1.0f;
        EXPECT_OK(comm, neo_tensor_copy(ctx, neo_tensor_1d(y, NEO_F32, n), later));
        EXPECT_OK(comm, neo_ctx_synchronize(ctx));
        EXPECT_OK(comm, neo_tensor_copy(ctx, neo_tensor_1d(x, NEO_F32, n), a));
        int64_t waits = emu_waits();
        EXPECT_OK(
            comm,
            whole ? neo_comm_all_reduce(sub, NEO_REDUCE_SUM, a.data, b.data, n, NEO_F32, &ticket)
                  : neo_comm_all_gather(sub, a.data, b.data, n / W, NULL, NEO_F32, &ticket));
        EXPECT(comm, emu_waits() == waits, "a call with a ticket waits for the device");
        EXPECT_OK(comm, neo_tensor_zero(ctx, later));
        EXPECT_OK(comm, neo_comm_wait(sub, ticket));
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
#if defined(EMULATED)
        EXPECT(comm, emu_queued() == W, "%d tasks wait, not one of each rank", (int)emu_queued());
#endif
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        EXPECT_OK(comm, neo_tensor_copy(ctx, b, neo_tensor_1d(y, NEO_F32, n)));
        int64_t part = n / W, wrong = 0;
        for (int64_t i = 0; i < (whole ? n : part * W); i++) {
            float is = whole ? (float)(i * W * (W + 1) / 2 + round * W)
                             : (float)(i % part * (i / part + 1) + round);
            wrong += !(y[i] == is);
        }
        EXPECT(comm, wrong == 0, "%d numbers differ in round %d", (int)wrong, round);
    }
    neo_comm_destroy(sub);
    neo_tensor_free(ctx, &a);
    neo_tensor_free(ctx, &b);
    neo_tensor_free(ctx, &later);
    return NEO_OK;
}

/* ---- who looks while a host waits ---- */
typedef struct looker {
    neo__lookout watch;
    const neo_ctx *ctx;
    int inside, leave, off; /* atomic */
} looker;
static int linger(neo__lookout *watch, int turn) {
    looker *own = (looker *)watch->user;
    (void)turn;
    __atomic_store_n(&own->inside, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&own->leave, __ATOMIC_SEQ_CST)) neo__thread_sleep(1000000);
    return 1;
}
static void *take_away(void *user) {
    looker *own = (looker *)user;
    neo__device_watch(own->ctx, &own->watch, 0);
    __atomic_store_n(&own->off, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void *look_on(void *user) {
    const neo_ctx *ctx = ((looker *)user)->ctx;
    return neo__device_look((neo_device *)(uintptr_t)neo_ctx_device(ctx), 0) ? user : NULL;
}
/* A lookout is not taken away while another thread looks at it, so that it may be freed then; a
   third thread does not wait for that one. */
static neo_status lookouts(neo_comm *comm, void *user) {
    pthread_t looks, takes;
    void *gone = NULL;
    looker own = {.ctx = neo_comm_ctx(comm)};
    (void)user;
    own.watch.look = linger;
    own.watch.user = &own;
    neo__device_watch(own.ctx, &own.watch, 1);
    EXPECT(comm, pthread_create(&looks, NULL, look_on, &own) == 0, "no thread");
    while (!__atomic_load_n(&own.inside, __ATOMIC_SEQ_CST)) neo__thread_sleep(1000000);
    EXPECT(comm, pthread_create(&takes, NULL, take_away, &own) == 0, "no thread");
    for (int i = 0; i < 20; i++) {
        EXPECT(comm, !look_on(&own), "two threads look");
        neo__thread_sleep(1000000);
        EXPECT(comm, !__atomic_load_n(&own.off, __ATOMIC_SEQ_CST), "it is taken from who looks");
    }
    __atomic_store_n(&own.leave, 1, __ATOMIC_SEQ_CST);
    pthread_join(looks, &gone);
    pthread_join(takes, NULL);
    EXPECT(comm, gone == &own, "what a lookout has said");
    __atomic_store_n(&own.inside, 0, __ATOMIC_SEQ_CST);
    EXPECT(comm, !look_on(&own) && !own.inside, "it is still looked at");
    neo__device_watch(own.ctx, &own.watch, 0); /* once more */
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
    EXPECT_ERR(comm, neo_comm_broadcast(sub, data, neo_comm_rank(comm) ? 64 : 32, NEO_F32, 0, NULL),
               NEO_ERR_DIVERGED, "rank 1");
    neo_comm_destroy(sub);
    neo_tensor_free(neo_comm_ctx(comm), &t);
    return NEO_OK;
}
/* ---- recorded steps ---- */
enum { STEP_ROWS = 40 };
/* t: logits, labels, slopes, their sum over the ranks; all 0 at first. A weight of as many numbers
   moves by the sum, whose norm is that of all ranks' copies. */
typedef struct recorded {
    neo_comm *comm, *there;
    neo_ctx *ctx;
    neo_cuda_graph *graph;
    neo_tensor t[4];
    neo_params *params;
    const neo_param *weight;
    neo_optim *optim;
    float label[STEP_ROWS];
    double loss;
} recorded;
static neo_status recorded_open(recorded *r, neo_comm *comm) {
    int64_t n = STEP_ROWS;
    *r = (recorded){.comm = comm, .ctx = neo_comm_ctx(comm)};
    EXPECT_OK(comm, open_there(comm, &r->there));
    for (int i = 0; i < 4; i++) {
        EXPECT_OK(comm, neo_tensor_alloc(r->ctx, NEO_F32, 1, &n, &r->t[i]));
        EXPECT_OK(comm, neo_tensor_zero(r->ctx, r->t[i]));
    }
    const neo_group group = neo_comm_group(r->there);
    const neo_optim_desc sgd = {.clip_norm = 1e6f, .group = &group};
    EXPECT_OK(comm, neo_params_create(r->ctx, &r->params));
    EXPECT_OK(comm, neo_params_add(r->params, "weight", 1, &n, (neo_init){0}, &r->weight));
    EXPECT_OK(comm, neo_optim_create(r->ctx, r->params, &sgd, &r->optim));
    return neo_cuda_graph_create((neo_device *)(uintptr_t)neo_ctx_device(r->ctx), NULL, &r->graph);
}
static neo_status recorded_close(recorded *r) {
    neo_cuda_graph_destroy(r->graph);
    neo_optim_destroy(r->optim);
    neo_params_destroy(r->params);
    neo_comm_destroy(r->there);
    for (int i = 0; i < 4; i++) neo_tensor_free(r->ctx, &r->t[i]);
    return NEO_OK;
}
/* Labels of a step; `bad`: one that is none. */
static void label_step(recorded *r, int step, int bad) {
    for (int i = 0; i < STEP_ROWS; i++)
        r->label[i] = (float)((i + neo_comm_rank(r->comm) + step) % 2);
    if (bad) r->label[7] = 3.0f;
}
/* A sum over the ranks is in the middle of a step, which is not waited for. */
static neo_status step_calls(recorded *r) {
    neo_ticket ticket;
    NEO__TRY(neo_tensor_copy(r->ctx, neo_tensor_1d(r->label, NEO_F32, STEP_ROWS), r->t[1]));
    NEO__TRY(neo_bce_with_logits(r->ctx, NULL, r->t[0], r->t[1], r->t[2], &r->loss));
    NEO__TRY(neo_comm_all_reduce(r->there, NEO_REDUCE_SUM, r->t[2].data, r->t[3].data, STEP_ROWS,
                                 NEO_F32, &ticket));
    NEO__TRY(neo_scale(r->ctx, r->t[0], 0.5f, NULL));
    NEO__TRY(neo_comm_wait(r->there, ticket));
    NEO__TRY(neo_tensor_copy(r->ctx, r->t[3], r->weight->grad));
    return neo_optim_step(r->optim, 1.0f);
}
static neo_status record_step(recorded *r) {
    NEO__TRY(neo_cuda_graph_begin(r->graph));
    NEO__TRY(step_calls(r));
    return neo_cuda_graph_end(r->graph);
}
/* What steps[0 .. count) have done: the sums, whose logits were 0. */
static neo_status expect_steps(recorded *r, const int *steps, int count) {
    const int W = neo_comm_size(r->comm);
    float x[STEP_ROWS], want[STEP_ROWS] = {0};
    double norm = 0.0;
    for (int s = 0; s < count; s++)
        for (int i = 0; i < STEP_ROWS; i++) {
            float sum = 0.0f;
            for (int q = 0; q < W; q++)
                sum += (0.5f - (float)((i + q + steps[s]) % 2)) / (float)STEP_ROWS;
            want[i] -= sum;
            if (s == count - 1) norm += (double)W * (double)sum * (double)sum;
        }
    EXPECT_OK(r->comm,
              neo_tensor_copy(r->ctx, r->weight->value, neo_tensor_1d(x, NEO_F32, STEP_ROWS)));
    for (int i = 0; i < STEP_ROWS; i++)
        EXPECT(r->comm, want[i] - x[i] < 1e-6f && x[i] - want[i] < 1e-6f, "%g, not %g",
               (double)x[i], (double)want[i]);
    EXPECT(r->comm, r->loss > 0.69 && r->loss < 0.7, "loss %g", r->loss);
    EXPECT(r->comm, fabs(neo_optim_grad_norm(r->optim) - sqrt(norm)) < 1e-6, "norm %g, not %g",
           neo_optim_grad_norm(r->optim), sqrt(norm));
    return NEO_OK;
}
/* Steps as graphs on every rank, with two sums over the ranks, for which no host waits. The labels
   of one, *user if that is not 0, are wrong in the third: that rank gets its error, the others hear
   of it, all where the fourth ends, weights move by neither; none waits, the group works, and the
   next step is right. */
static neo_status graphs(neo_comm *comm, void *user) {
    const int bad = *(int *)user, own = neo_comm_rank(comm) == bad;
    recorded r;
    EXPECT_OK(comm, recorded_open(&r, comm));
    neo_status status = NEO_OK;
    for (int step = 0; step < 4 && status == NEO_OK; step++) {
        label_step(&r, step, bad && step == 2 && own);
        if (step == 0) EXPECT_OK(comm, neo_tensor_zero(r.ctx, r.t[0]));
        status = record_step(&r);
        if (status == NEO_OK && step % 2) status = neo_cuda_graph_wait(r.graph);
    }
    if (bad) {
        const char *who = bad == 1 ? "rank 1 found an error" : "rank 17 found an error";
        EXPECT(comm, status == (own ? NEO_ERR_RANGE : NEO_ERR_PEER), "%s: %s",
               neo_status_string(status), neo_last_error());
        EXPECT(comm, strstr(neo_last_error(), own ? "label of sample 7 is 3" : who),
               "%s", neo_last_error());
        EXPECT_OK(comm, neo_comm_status(r.there));
        label_step(&r, 3, 0);
        EXPECT_OK(comm, neo_tensor_zero(r.ctx, r.t[0]));
        status = record_step(&r);
        if (status == NEO_OK) status = neo_cuda_graph_wait(r.graph);
    }
    EXPECT(comm, status == NEO_OK, "%s", neo_last_error());
    const neo_cuda_graph_stats s = neo_cuda_graph_get_stats(r.graph);
    EXPECT(comm, s.split == 0 && s.passed == 3 * (bad ? 5 : 4), "%d steps split, %d passed",
           (int)s.split, (int)s.passed);
    EXPECT_OK(comm, bad ? expect_steps(&r, (int[]){0, 1, 3}, 3)
                        : expect_steps(&r, (int[]){0, 1, 2, 3}, 4));
    return recorded_close(&r);
}
/* The first rank's step has an error, and what it sends comes to the last by way of another. Where
   *user is 0 the others have no graphs, and look at its word themselves. */
static neo_status passed_on(neo_comm *comm, void *user) {
    const int rank = neo_comm_rank(comm), records = *(int *)user || rank == 0;
    recorded r;
    EXPECT_OK(comm, recorded_open(&r, comm));
    label_step(&r, 0, rank == 0);
    if (records) EXPECT_OK(comm, neo_cuda_graph_begin(r.graph));
    EXPECT_OK(comm, neo_tensor_copy(r.ctx, neo_tensor_1d(r.label, NEO_F32, STEP_ROWS), r.t[1]));
    neo_status status = NEO_OK;
    if (rank == 0) status = neo_bce_with_logits(r.ctx, NULL, r.t[0], r.t[1], r.t[2], &r.loss);
    if (status == NEO_OK)
        status = neo_comm_broadcast(r.there, r.t[2].data, STEP_ROWS, NEO_F32, 0, NULL);
    if (status == NEO_OK) status = neo_scale(r.ctx, r.t[0], 0.5f, NULL);
    if (status == NEO_OK && records) status = neo_cuda_graph_end(r.graph);
    if (status == NEO_OK && records) status = neo_cuda_graph_wait(r.graph);
    if (rank) {
        EXPECT(comm, status == NEO_ERR_PEER && strstr(neo_last_error(), "found an error in its"),
               "%s: %s", neo_status_string(status), neo_last_error());
    } else {
        EXPECT(comm, status == NEO_ERR_RANGE || (status == NEO_ERR_PEER && !*(int *)user),
               "%s: %s", neo_status_string(status), neo_last_error());
    }
    return recorded_close(&r);
}
/* Sums and gathers of groups that overlap, all with tickets, in recorded steps: which group is
   next, and when one is waited for, is drawn, alike on all ranks. The device adds what has come. */
enum { GROUPS = 4, CALLS = 12, PART = 24 };
static neo_status in_any_order(neo_comm *comm, void *user) {
    const int W = neo_comm_size(comm), rank = neo_comm_rank(comm);
    const int color[GROUPS] = {0, rank / 2, rank % 2, 0};
    recorded r;
    neo_comm *group[GROUPS];
    neo_tensor in[CALLS], out[CALLS], total;
    float x[CALLS * PART], want[PART] = {0};
    int64_t n = PART, many = (int64_t)PART * W;
    uint64_t draw = *(uint64_t *)user;
    EXPECT_OK(comm, recorded_open(&r, comm));
    for (int g = 0; g < GROUPS; g++)
        EXPECT_OK(comm, neo_comm_split(r.there, color[g], g < 3 ? rank : -rank, &group[g]));
    for (int c = 0; c < CALLS; c++) {
        EXPECT_OK(comm, neo_tensor_alloc(r.ctx, NEO_F32, 1, &n, &in[c]));
        EXPECT_OK(comm, neo_tensor_alloc(r.ctx, NEO_F32, 1, &many, &out[c]));
    }
    EXPECT_OK(comm, neo_tensor_alloc(r.ctx, NEO_F32, 1, &n, &total));
    EXPECT_OK(comm, neo_tensor_zero(r.ctx, total));
    for (int step = 0; step < 4; step++) {
        neo_ticket ticket[CALLS];
        int of[CALLS], first = 0;
        EXPECT_OK(comm, neo_cuda_graph_begin(r.graph));
        for (int c = 0; c < CALLS; c++) {
            const int g = of[c] = (int)(mixed(++draw) % GROUPS), gathers = mixed(++draw) % 3 == 0;
            const int begin[GROUPS] = {0, rank / 2 * 2, rank % 2, W - 1};
            for (int i = 0; i < PART; i++) {
                x[c * PART + i] = (float)(i + rank * 3 + c + step);
                for (int q = 0; q < W; q++) {
                    const int with = g == 1 ? q / 2 == rank / 2 : g == 2 ? q % 2 == rank % 2 : 1;
                    if (gathers ? q == begin[g] : with) want[i] += (float)(i + q * 3 + c + step);
                }
            }
            EXPECT_OK(comm,
                      neo_tensor_copy(r.ctx, neo_tensor_1d(x + c * PART, NEO_F32, PART), in[c]));
            EXPECT_OK(comm, gathers ? neo_comm_all_gather(group[g], in[c].data, out[c].data, PART,
                                                          NULL, NEO_F32, &ticket[c])
                                    : neo_comm_all_reduce(group[g], NEO_REDUCE_SUM, in[c].data,
                                                          out[c].data, PART, NEO_F32, &ticket[c]));
            for (const int upto = c == CALLS - 1 ? CALLS : first + (int)(mixed(++draw) % 2);
                 first < upto; first++) {
                EXPECT_OK(comm, neo_comm_wait(group[of[first]], ticket[first]));
                EXPECT_OK(comm, neo_add(r.ctx, total, neo_tensor_rows(out[first], 0, PART)));
            }
        }
        EXPECT_OK(comm, neo_cuda_graph_end(r.graph));
    }
    EXPECT_OK(comm, neo_cuda_graph_wait(r.graph));
    EXPECT(comm, neo_cuda_graph_get_stats(r.graph).split == 0, "a step waits");
    EXPECT_OK(comm, neo_tensor_copy(r.ctx, total, neo_tensor_1d(x, NEO_F32, PART)));
    EXPECT(comm, memcmp(x, want, sizeof want) == 0, "%g, not %g", (double)x[1], (double)want[1]);
    for (int c = 0; c < CALLS; c++)
        neo_tensor_free(r.ctx, &in[c]), neo_tensor_free(r.ctx, &out[c]);
    neo_tensor_free(r.ctx, &total);
    for (int g = 0; g < GROUPS; g++) neo_comm_destroy(group[g]);
    return recorded_close(&r);
}
#if defined(NEO_COMM_NCCL) && defined(EMULATED)
/* The host of rank 0 launches a step, and ends it, before the others begin theirs. */
static neo_status ahead(neo_comm *comm, void *user) {
    recorded r;
    (void)user;
    EXPECT_OK(comm, recorded_open(&r, comm));
    for (int step = 0; step < 3; step++) { /* calls of the first are agreed on */
        label_step(&r, step, 0);
        if (step && neo_comm_rank(comm)) EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        EXPECT_OK(comm, record_step(&r));
        if (step && neo_comm_rank(comm) == 0) EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        EXPECT_OK(comm, neo_cuda_graph_wait(r.graph));
        EXPECT_OK(comm, expect_steps(&r, (int[]){0, 1, 2}, step + 1));
    }
    return recorded_close(&r);
}
static neo_status first_step(recorded *r, neo_comm *comm) {
    EXPECT_OK(comm, recorded_open(r, comm));
    label_step(r, 0, 0);
    EXPECT_OK(comm, record_step(r));
    EXPECT_OK(comm, neo_cuda_graph_wait(r->graph));
    return NEO_OK;
}
/* What a rank is told of another that does not come; part: of the words, or NULL. */
static neo_status expect_left(neo_comm *comm, neo_status status, const char *part) {
    EXPECT(comm, status == NEO_ERR_TIMEOUT || status == NEO_ERR_PEER, "%s: %s",
           neo_status_string(status), neo_last_error());
    if (part) EXPECT(comm, strstr(neo_last_error(), part), "%s", neo_last_error());
    return NEO_OK;
}
static void wait_for(const int *gone, int count) {
    while (__atomic_load_n(gone, __ATOMIC_SEQ_CST) < count) neo__thread_sleep(1000000);
}
/* The last rank does not make the second step's call: the others, *user in the end, give up where
   they wait for that step, whose sum is left out, and the device works. */
static neo_status stays_away(neo_comm *comm, void *user) {
    const int last = neo_comm_size(comm) - 1, rank = neo_comm_rank(comm);
    int *gone = (int *)user;
    recorded r;
    EXPECT_OK(comm, first_step(&r, comm));
    neo_status status = NEO_OK;
    if (rank < last) {
        status = record_step(&r);
        if (status == NEO_OK) status = neo_cuda_graph_wait(r.graph);
        EXPECT_OK(comm, expect_left(comm, status, ", recorded: "));
        EXPECT_OK(comm, expect_steps(&r, (int[]){0}, 1));
        EXPECT_ERR(comm, neo_comm_status(r.there), status, "recorded");
        EXPECT_OK(comm, neo_cuda_graph_begin(r.graph));
        EXPECT_OK(comm, neo_tensor_zero(r.ctx, r.weight->grad));
        EXPECT_OK(comm, neo_cuda_graph_end(r.graph));
        EXPECT_OK(comm, neo_cuda_graph_wait(r.graph));
        __atomic_fetch_add(gone, 1, __ATOMIC_SEQ_CST);
    }
    if (rank == last) wait_for(gone, last);
    return recorded_close(&r);
}
/* The same, where the group is destroyed while the step waits for that call. */
static neo_status destroyed_in_flight(neo_comm *comm, void *user) {
    const int last = neo_comm_size(comm) - 1, rank = neo_comm_rank(comm);
    int *gone = (int *)user;
    recorded r;
    EXPECT_OK(comm, first_step(&r, comm));
    if (rank < last) {
        EXPECT_OK(comm, record_step(&r));
        neo_comm_destroy(r.there);
        r.there = NULL;
        const neo_status status = neo_cuda_graph_wait(r.graph);
        EXPECT_OK(comm, expect_left(comm, status, ", recorded: "));
        EXPECT_OK(comm, expect_steps(&r, (int[]){0}, 1));
        __atomic_fetch_add(gone, 1, __ATOMIC_SEQ_CST);
    }
    if (rank == last) wait_for(gone, last);
    return recorded_close(&r);
}
/* The same, where the host waits in a lookup, for what the device says of its ids, and begins to
   while a later call has not been launched yet: when it is, patience begins. */
static neo_status stays_away_behind(neo_comm *comm, void *user) {
    const int last = neo_comm_size(comm) - 1, rank = neo_comm_rank(comm);
    const int64_t offsets[] = {0, 1}, ids[] = {1}, shape[] = {1, 4};
    const neo_table_desc table = {.name = "t", .rows = 2, .dim = 4};
    const neo_bags_desc of = {.tables = &table, .table_count = 1, .max_batch = 1, .max_ids = 1};
    const neo_jagged batch = {
        .batch = 1, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    int *gone = (int *)user;
    neo_ticket ticket[2];
    neo_bags *bags;
    neo_tensor out;
    recorded r;
    EXPECT_OK(comm, recorded_open(&r, comm));
    EXPECT_OK(comm, neo_bags_create(r.ctx, &of, &bags));
    EXPECT_OK(comm, neo_tensor_alloc(r.ctx, NEO_F32, 2, shape, &out));
    EXPECT_OK(comm, neo_comm_all_reduce(r.there, NEO_REDUCE_SUM, r.t[2].data, r.t[3].data,
                                        STEP_ROWS, NEO_F32, NULL));
    if (rank < last) {
        const int64_t second = r.there->next.sequence + 1;
        EXPECT_OK(comm, neo_comm_inject(r.there, (neo_fault){NEO_FAULT_DELAY, second, 300}));
        EXPECT_OK(comm, neo_cuda_graph_begin(r.graph));
        for (int i = 0; i < 2; i++) {
            EXPECT_OK(comm, neo_comm_all_reduce(r.there, NEO_REDUCE_SUM, r.t[2].data,
                                                r.t[i ? 1 : 3].data, STEP_ROWS, NEO_F32,
                                                &ticket[i]));
            if (i == 0) EXPECT_OK(comm, neo_comm_wait(r.there, ticket[0]));
        }
        EXPECT_OK(comm, neo_scale(r.ctx, r.t[3], 0.5f, NULL));
        EXPECT_OK(comm, neo_cuda_graph_end(r.graph));
        EXPECT_OK(comm, neo_bags_forward(bags, &batch, out));
        EXPECT_OK(comm, expect_left(comm, neo_cuda_graph_wait(r.graph), NULL));
        __atomic_fetch_add(gone, 1, __ATOMIC_SEQ_CST);
    }
    if (rank == last) wait_for(gone, last);
    neo_tensor_free(r.ctx, &out);
    neo_bags_destroy(bags);
    return recorded_close(&r);
}
/* A group that breaks behind its recorded steps stops none of the next group's. */
static neo_status breaks_between(neo_comm *comm, void *user) {
    (void)user;
    for (int i = 0; i < 2; i++) {
        recorded r;
        EXPECT_OK(comm, first_step(&r, comm));
        EXPECT_OK(comm, expect_steps(&r, (int[]){0}, 1));
        neo_comm_abort(r.there, "enough of it");
        EXPECT_OK(comm, recorded_close(&r));
    }
    return NEO_OK;
}
/* One rank records, the others do not. */
static neo_status mixes(neo_comm *comm, void *user) {
    const int records = neo_comm_rank(comm) == 0;
    recorded r;
    (void)user;
    EXPECT_OK(comm, recorded_open(&r, comm));
    label_step(&r, 0, 0);
    if (records) EXPECT_OK(comm, neo_cuda_graph_begin(r.graph));
    EXPECT_ERR(comm, step_calls(&r), NEO_ERR_DIVERGED, "recorded");
    return recorded_close(&r);
}
#endif
static void expect_refused(const neo_comm_desc *d, neo_comm_fn fn, neo_status expected,
                           const char *part) {
    neo_status status = neo_comm_spawn(2, d, fn, NULL, NULL);
    checks++;
    if (status == expected && strstr(neo_last_error(), part)) return;
    failures++;
    fprintf(stderr, "%s, not %s with '%s': %s\n", neo_status_string(status),
            neo_status_string(expected), part, neo_last_error());
}

#if defined(EMULATED)
/* Every call of CUDA that collectives make fails once, on one of two ranks: each comes back in
   time, with the device's words or of the rank that has them, and leaves nothing behind. */
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
    if (status == NEO_OK)
        status = neo_comm_all_gather(sub, a.data, b.data, half, NULL, NEO_F32, &ticket);
    if (status == NEO_OK)
        status = neo_comm_all_to_allv(sub, a.data, counts, b.data, theirs, NEO_F32, NULL);
    if (status == NEO_OK) status = neo_comm_broadcast(sub, b.data, n, NEO_F32, 0, NULL);
    neo_rows rows = {.wire = NEO_WIRE_I8,
                     .cols = 70,
                     .workspace = (float *)b.data + 2000,
                     .workspace_bytes = 4000};
    float *x = (float *)a.data, *y = (float *)b.data;
    if (status == NEO_OK) status = neo_comm_reduce_scatter_rows(sub, &rows, x, y, 4, NULL, NULL);
    char why[400];
    snprintf(why, sizeof why, "%s", status == NEO_OK ? "" : neo_last_error());
    NEO__TRY(neo_comm_barrier(comm, NULL));
    if (neo_comm_rank(comm) == 0) has_failed = emu_failed(), emu_fail_after(0);
    NEO__TRY(neo_comm_barrier(comm, NULL));
    EXPECT(comm, neo_comm_time_ns(comm) == 0, "a timeout struck: %.200s", why);
    neo_comm_destroy(sub);
    neo_tensor_free(neo_comm_ctx(comm), &a);
    neo_tensor_free(neo_comm_ctx(comm), &b);
    return status == NEO_OK ? NEO_OK : neo_fail(status, "%s", why);
}
static void faults(neo_comm_desc d) {
    int64_t at = 1, before = emu_live();
    int failed = 1;
    d.virtual_clock = 1; /* none waits for a timeout, which would move it */
    for (; failed && at < 400; at++) {
        neo_status status = neo_comm_spawn(2, &d, some_calls, &at, NULL);
        failed = has_failed;
        checks++;
        if ((status == NEO_OK) == failed || emu_live() != before) {
            failures++;
            fprintf(stderr, "call %d of CUDA fails: %s: %s; %d objects are left\n", (int)at,
                    neo_status_string(status), neo_last_error(), (int)(emu_live() - before));
        }
    }
    checks++;
    if (at > 20 && at < 400) return;
    failures++;
    fprintf(stderr, "%d calls of CUDA have failed\n", (int)at);
}
#else
static void faults(neo_comm_desc d) { (void)d; }
#endif

static int recorded_ranks(const neo_comm_desc *d) {
    int bad = 0, all = 1;
    for (int spoilt = 0; spoilt < 2; spoilt++) bad += run_ranks(3, d, graphs, &spoilt);
    bad += run_ranks(4, d, passed_on, &all);
    for (uint64_t draw = 0; draw < 4; draw++) bad += run_ranks(4, d, in_any_order, &draw);
    return bad;
}
int main(void) {
    int bad = 0, started = launched();
    /* segments of 4 KiB: most sums are of several */
    neo_comm_desc d = {.ctx = {.threads = 1, .repro_shards = 8},
                       .open_device = open_device,
                       .segment_bytes = 4096};
    for (int W = 1; W <= 5 && !started; W++) {
        d.ranks_per_node = W == 4 ? 2 : 0;
        bad += run_ranks(W, &d, rank_main, &d);
    }
#if defined(NEO_COMM_NCCL)
    d.sums = NEO_SUMS_NCCL, d.ctx.repro_shards = 0;
#if defined(EMULATED)
    for (int W = 2; W <= 5; W++) bad += run_ranks(W, &d, own_sums, NULL);
    for (int own = 0; own < 2; own++) { /* sums of the tree; of NCCL's own */
        d.sums = own ? NEO_SUMS_NCCL : NEO_SUMS_TREE;
        bad += recorded_ranks(&d);
        bad += run_ranks(3, &d, ahead, NULL);
        for (int was = -1, gone; made_again(400, &d.timeout_ms, &was);) {
            gone = 0;
            bad += run_ranks(3, &d, stays_away, &gone);
            gone = 0;
            bad += run_ranks(3, &d, stays_away_behind, &gone);
            gone = 0;
            bad += run_ranks(3, &d, destroyed_in_flight, &gone);
        }
        d.timeout_ms = 0;
        bad += run_ranks(2, &d, mixes, NULL);
        bad += run_ranks(2, &d, breaks_between, NULL);
    }
#endif
    return ranks_end("cuda/comm", bad);
#endif
    if (started) {
        bad += run_ranks(started, &d, rank_main, &d);
        return ranks_end("cuda/comm", bad);
    }
    neo_comm_desc plain = {.ctx = {.threads = 1}}, shared = plain, same = plain, late = plain,
                  own = plain;
    neo_device *first = NULL;
    bad += run_ranks(2, &plain, no_device, NULL);
    own.open_device = open_device;
    bad += run_ranks(2, &own, diverges, NULL);
    bad += run_ranks(1, &own, lookouts, NULL);
    own.queue_length = 2;
    emu_set_lazy(1);
    for (int W = 1; W <= 3; W++) bad += run_ranks(W, &own, beside, NULL);
    emu_set_lazy(0);
    bad += recorded_ranks(&own);
    int alone = 0;
    bad += run_ranks(4, &own, passed_on, &alone);
#if defined(EMULATED)
    int of_many = 17;
    bad += run_ranks(18, &own, graphs, &of_many);
#endif
    same.open_device = same_device, same.open_user = &first;
    expect_refused(&same, never, NEO_ERR_ARG, "the same device");
    late.open_device = late_device;
    expect_refused(&late, never, NEO_ERR_DEVICE, "GPU 1 is gone");
    if (open_device(0, 0, NULL, &shared.ctx.device) == NEO_OK) {
        expect_refused(&shared, never, NEO_ERR_ARG, "2 ranks would share one device");
        neo_cuda_device_destroy(shared.ctx.device);
    }
    faults(own);
#if defined(EMULATED) && !defined(NEO_COMM_NCCL)
    emu_set_devices(3);
    own.open_device = open_own;
    bad += run_ranks(3, &own, peers, NULL);
    emu_set_devices(1);
#endif
    return ranks_end("cuda/comm", bad);
}
