/* groups.c: what stands round the collectives: groups, sums over leaves, two levels, rows on narrow
   wires, overlap under the link model, counters against the formulas, memory, messages above 2^31
   bytes. As threads; and, compiled with NEO_COMM_MPI, the same under mpirun. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* anonymous mappings */
#endif
#if defined(NEO_COMM_MPI)
#include <mpi.h>
#endif
#include "ranks.h"

/* Bytes that leave through MPI, counted by MPI's own profiling interface: they must be those that
   neo counts. */
static int64_t profiled; /* atomic */
#if defined(NEO_COMM_MPI)
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    int size = 0;
    MPI_Type_size(type, &size);
    __atomic_fetch_add(&profiled, (int64_t)count * size, __ATOMIC_RELAXED);
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
#endif
static int64_t all_bytes(neo_comm_stats s, neo_comm_op op, neo_level level) {
    return s.op[op].bytes[level];
}
/* The sum over all ranks of a number. */
static int64_t over_ranks(neo_comm *comm, int64_t mine) {
    int64_t sum = 0;
    if (neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &mine, &sum, 1, NEO_I64, NULL) != NEO_OK)
        return -1;
    return sum;
}
static void forget(neo_comm *comm) {
    neo_comm_reset_stats(comm);
    __atomic_store_n(&profiled, 0, __ATOMIC_RELAXED);
}
/* Bytes of what ran since the last reset, over all ranks; and resets. */
static int64_t sent(neo_comm *comm, neo_comm_op op) {
    neo_comm_stats s = neo_comm_get_stats(comm);
    int64_t mine = all_bytes(s, op, NEO_LEVEL_LOCAL) + all_bytes(s, op, NEO_LEVEL_CROSS);
    int64_t left = __atomic_load_n(&profiled, __ATOMIC_RELAXED),
            all = mine + s.op[op].control_bytes;
    EXPECT(comm, neo_comm_get_backend(comm) != NEO_BACKEND_MPI || left == all,
           "%s: neo counts %" PRId64 " bytes, MPI %" PRId64, neo_comm_op_name(op), all, left);
    int64_t sum = over_ranks(comm, mine);
    forget(comm);
    return sum;
}

/* ---- bytes: the formulas at the top of neo_comm.h ---- */
static neo_status bytes(neo_comm *comm, void *user) {
    static const int64_t counts[] = {0, 1, 5, 100, 1023, 1024, 1025, 5000, 100003};
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    (void)user;
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        int64_t n = counts[k], part[16], total = 0;
        for (int p = 0; p < w; p++) total += part[p] = p == 1 ? 0 : n + p % 3;
        size_t room = (size_t)(n + 3) * (size_t)w * sizeof(float);
        float *a = (float *)neo_alloc(ctx, room), *b = (float *)neo_alloc(ctx, room);
        EXPECT(comm, a && b, "memory");
        memset(a, 0, room);
        forget(comm);
        EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, a, b, n, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_ALL_REDUCE) == 2 * (w - 1) * n * 4,
               "all_reduce of %" PRId64, n);
        EXPECT_OK(comm,
                  neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, a, b, n, NULL, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_REDUCE_SCATTER) == (w - 1) * n * w * 4,
               "reduce_scatter of %" PRId64, n);
        EXPECT_OK(comm,
                  neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, a, b, 0, part, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_REDUCE_SCATTER) == (w - 1) * total * 4,
               "uneven reduce_scatter of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_all_gather(comm, a, b, n, NULL, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_ALL_GATHER) == (w - 1) * n * w * 4,
               "all_gather of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_all_gather(comm, a, b, 0, part, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_ALL_GATHER) == (w - 1) * total * 4,
               "uneven all_gather of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_all_to_all(comm, a, b, n, NEO_F32, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_ALL_TO_ALL) == (w - 1) * n * w * 4,
               "all_to_all of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_broadcast(comm, a, n, NEO_F32, w - 1, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_BROADCAST) == (w - 1) * n * 4, "broadcast of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_gather(comm, a, b, n, NULL, NEO_F32, 0, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_GATHER) == (w - 1) * n * 4, "gather of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_scatter(comm, a, b, n, NULL, NEO_F32, 0, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_SCATTER) == (w - 1) * n * 4, "scatter of %" PRId64, n);
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_BARRIER) == 0, "a barrier sends no data");
        if (w > 1 && rank == 0) EXPECT_OK(comm, neo_comm_send(comm, a, n, NEO_F32, w - 1, NULL));
        if (w > 1 && rank == w - 1) EXPECT_OK(comm, neo_comm_recv(comm, a, n, NEO_F32, 0, NULL));
        EXPECT(comm, sent(comm, NEO_COMM_SEND) == (w > 1) * n * 4, "send of %" PRId64, n);
        neo_free(ctx, a, room);
        neo_free(ctx, b, room);
    }
    return NEO_OK;
}

/* ---- groups ---- */
static neo_status groups(neo_comm *comm, void *user) {
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_comm_desc *desc = (const neo_comm_desc *)user;
    neo_comm *odd = NULL, *none = NULL, *again = NULL;
    size_t before = neo_ctx_memory(ctx).bytes;
    EXPECT(comm, neo_comm_host(comm) == comm, "its group on the host is another");
    EXPECT_OK(comm, neo_comm_split(comm, rank % 2, -rank, &odd)); /* backwards */
    int size = rank % 2 ? w / 2 : (w + 1) / 2;
    EXPECT(comm, neo_comm_size(odd) == size, "%d ranks", neo_comm_size(odd));
    EXPECT(comm, neo_comm_rank(odd) == size - 1 - rank / 2, "rank %d", neo_comm_rank(odd));
    EXPECT(comm, neo_comm_world_rank(odd, neo_comm_rank(odd)) == rank, "world rank");
    neo_comm_desc d = *desc;
    d.ctx.repro_shards = neo_ctx_repro_shards(ctx);
    size_t predicted = neo_comm_workspace_bytes(&d, size, neo_comm_get_backend(comm));
    EXPECT(comm, neo_ctx_memory(ctx).bytes - before == predicted, "%zu bytes, predicted %zu",
           neo_ctx_memory(ctx).bytes - before, predicted);
    EXPECT_OK(comm, neo_comm_split(comm, rank == 0 ? -1 : 7, 0, &none));
    EXPECT(comm, (none == NULL) == (rank == 0), "a negative color gives no group");
    if (none) EXPECT(comm, neo_comm_size(none) == w - 1, "%d ranks", neo_comm_size(none));
    EXPECT_OK(comm, neo_comm_split(odd, 0, 0, &again)); /* a group of a group */
    int64_t sum = 0, mine = rank, want = 0;
    for (int p = rank % 2; p < w; p += 2) want += p;
    neo_ticket t[2];
    EXPECT_OK(comm, neo_comm_all_reduce(again, NEO_REDUCE_SUM, &mine, &sum, 1, NEO_I64, &t[0]));
    EXPECT_OK(comm, neo_comm_barrier(comm, &t[1])); /* two groups at the same time */
    EXPECT_OK(comm, neo_comm_wait(again, t[0]));
    EXPECT_OK(comm, neo_comm_wait(comm, t[1]));
    EXPECT(comm, sum == want, "%" PRId64, sum);
    neo_comm_destroy(again);
    neo_comm_destroy(none);
    neo_comm_destroy(odd);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    return NEO_OK;
}

/* ---- two levels ---- */
enum { LEVEL_COUNT = 3001 };
static neo_status levels(neo_comm *comm, void *user) {
    int per_node = *(const int *)user, w = neo_comm_size(comm), rank = neo_comm_rank(comm),
        nodes = w / per_node;
    neo_comm *local = NULL, *cross = NULL;
    neo_ctx *ctx = neo_comm_ctx(comm);
    EXPECT(comm, neo_comm_node(comm, rank) == rank / per_node, "node %d",
           neo_comm_node(comm, rank));
    if (w % per_node) {
        EXPECT_ERR(comm, neo_comm_split_nodes(comm, &local, &cross), NEO_ERR_UNSUPPORTED,
                   "unequal");
        return NEO_OK;
    }
    if (per_node == 2 && nodes == 2) { /* nodes 0 1 0 1 */
        neo_comm *mixed = NULL;
        EXPECT_OK(comm, neo_comm_split(comm, 0, rank % 2, &mixed));
        EXPECT_ERR(comm, neo_comm_split_nodes(mixed, &local, &cross), NEO_ERR_UNSUPPORTED,
                   "not consecutive");
        neo_comm_destroy(mixed);
    }
    EXPECT_OK(comm, neo_comm_split_nodes(comm, &local, &cross));
    EXPECT(comm, neo_comm_size(local) == per_node && neo_comm_size(cross) == nodes, "sizes");
    size_t room = (size_t)w * LEVEL_COUNT * sizeof(float);
    float *in = (float *)neo_alloc(ctx, room), *flat = (float *)neo_alloc(ctx, room),
          *two = (float *)neo_alloc(ctx, room);
    float *space = (float *)neo_alloc(ctx, room);
    fill(comm, in, NEO_F32, (int64_t)w * LEVEL_COUNT, rank, 1);
    if (per_node & (per_node - 1)) {
        EXPECT_ERR(
            comm,
            neo_comm_all_reduce_2level(local, cross, NEO_REDUCE_SUM, in, two, LEVEL_COUNT, NEO_F32),
            NEO_ERR_UNSUPPORTED, "power of two");
    } else {
        EXPECT_OK(comm,
                  neo_comm_all_reduce(comm, NEO_REDUCE_SUM, in, flat, LEVEL_COUNT, NEO_F32, NULL));
        neo_comm_reset_stats(local);
        neo_comm_reset_stats(cross);
        EXPECT_OK(comm, neo_comm_all_reduce_2level(local, cross, NEO_REDUCE_SUM, in, two,
                                                   LEVEL_COUNT, NEO_F32));
        EXPECT(comm, memcmp(flat, two, LEVEL_COUNT * sizeof(float)) == 0,
               "all_reduce over two levels");
        neo_comm_stats l = neo_comm_get_stats(local), c = neo_comm_get_stats(cross);
        int64_t inside = over_ranks(comm, all_bytes(l, NEO_COMM_REDUCE_SCATTER, NEO_LEVEL_LOCAL) +
                                              all_bytes(l, NEO_COMM_ALL_GATHER, NEO_LEVEL_LOCAL));
        int64_t across = over_ranks(comm, all_bytes(c, NEO_COMM_ALL_REDUCE, NEO_LEVEL_CROSS));
        EXPECT(comm, inside == 2LL * LEVEL_COUNT * 4 * (per_node - 1) * nodes,
               "%" PRId64 " bytes inside", inside);
        EXPECT(comm, across == 2LL * LEVEL_COUNT * 4 * (nodes - 1), "%" PRId64 " bytes across",
               across);
        EXPECT_OK(comm, neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, in, flat, LEVEL_COUNT, NULL,
                                                NEO_F32, NULL));
        EXPECT_OK(comm, neo_comm_reduce_scatter_2level(local, cross, NEO_REDUCE_SUM, in, two,
                                                       LEVEL_COUNT, NEO_F32, space));
        EXPECT(comm, memcmp(flat, two, LEVEL_COUNT * sizeof(float)) == 0,
               "reduce_scatter over two levels");
    }
    EXPECT_OK(comm, neo_comm_all_to_all(comm, in, flat, LEVEL_COUNT, NEO_F32, NULL));
    neo_comm_reset_stats(local);
    neo_comm_reset_stats(cross);
    EXPECT_OK(comm, neo_comm_all_to_all_2level(local, cross, in, two, LEVEL_COUNT, NEO_F32, space));
    EXPECT(comm, memcmp(flat, two, room) == 0, "all_to_all over two levels");
    neo_comm_stats l = neo_comm_get_stats(local), c = neo_comm_get_stats(cross);
    EXPECT(comm,
           all_bytes(l, NEO_COMM_ALL_TO_ALL, NEO_LEVEL_LOCAL) ==
               4LL * LEVEL_COUNT * nodes * (per_node - 1),
           "inside");
    EXPECT(comm,
           all_bytes(c, NEO_COMM_ALL_TO_ALL, NEO_LEVEL_CROSS) ==
               4LL * LEVEL_COUNT * per_node * (nodes - 1),
           "across");
    EXPECT(comm, c.op[NEO_COMM_ALL_TO_ALL].messages[NEO_LEVEL_CROSS] == nodes - 1, "messages");
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    neo_free(ctx, in, room);
    neo_free(ctx, flat, room);
    neo_free(ctx, two, room);
    neo_free(ctx, space, room);
    neo_comm_destroy(local);
    neo_comm_destroy(cross);
    return NEO_OK;
}

/* ---- sums over leaves: V leaves on W ranks, against the recursion over all V ---- */
enum { LEAF_COUNT = 2500, MOST_LEAVES = 24 };
static neo_status leaves(neo_comm *comm, void *user) {
    int shards = neo_ctx_repro_shards(neo_comm_ctx(comm)), w = neo_comm_size(comm),
        rank = neo_comm_rank(comm), total = 0;
    neo_leaves sub[NEO_MAX_SUBTREES];
    static const int64_t counts[] = {LEAF_COUNT,
                                     300}; /* by parts; small ones by the tree where they can */
    neo_ctx *ctx = neo_comm_ctx(comm);
    (void)user;
    for (int p = 0; p < w; p++) total += neo_comm_subtrees(comm, p, 1000, sub);
    int mine = neo_comm_subtrees(comm, rank, 1000, sub);
    size_t room = LEAF_COUNT * sizeof(float);
    float *piece[NEO_MAX_SUBTREES], *out = (float *)neo_alloc(ctx, 2 * room),
                                    *part = out + LEAF_COUNT;
    for (int k = 0; k < mine; k++) {
        piece[k] = (float *)neo_alloc(ctx, room);
        for (int64_t i = 0; i < LEAF_COUNT; i++) {
            element leaf[MOST_LEAVES];
            for (int v = 0; v < sub[k].count; v++) leaf[v].f = float_of(sub[k].first + v, i, 2);
            piece[k][i] = reduce_tree(ctx, NEO_F32, NEO_REDUCE_SUM, leaf, sub[k].count).f;
        }
    }
    for (size_t c = 0; c < 2; c++) {
        int64_t n = counts[c], split[16];
        forget(comm);
        EXPECT_OK(comm, neo_comm_all_reduce_leaves(comm, (const void *const *)(void *)piece, out, n,
                                                   NEO_F32, NULL));
        /* Every rank but the part's own sends each of its subtrees of every part; then the parts go
           round. */
        int64_t bytes = sent(comm, NEO_COMM_ALL_REDUCE), whole = 4 * n;
        EXPECT(comm, total != w || bytes == 2 * (w - 1) * whole, "%" PRId64 " bytes", bytes);
        EXPECT(comm,
               total == w || (bytes > 2 * (w - 1) * whole && bytes <= (total + w - 2) * whole),
               "%" PRId64, bytes);
        int same = 1;
        for (int64_t i = 0; i < n && same; i++) {
            element leaf[MOST_LEAVES];
            for (int v = 0; v < shards; v++) leaf[v].f = float_of(v, i, 2);
            float want = reduce_tree(ctx, NEO_F32, NEO_REDUCE_SUM, leaf, shards).f;
            same = memcmp(&want, &out[i], 4) == 0;
        }
        EXPECT(comm, same, "%d leaves on %d ranks, %d subtrees in all", shards, w, total);
        for (int p = 0; p < w; p++) split[p] = n * (p + 1) / w - n * p / w;
        EXPECT_OK(comm, neo_comm_reduce_scatter_leaves(comm, (const void *const *)(void *)piece,
                                                       part, 0, split, NEO_F32, NULL));
        EXPECT(comm, memcmp(part, out + n * rank / w, (size_t)split[rank] * 4) == 0,
               "reduce_scatter_leaves");
    }
    for (int k = 0; k < mine; k++) neo_free(ctx, piece[k], room);
    neo_free(ctx, out, 2 * room);
    return NEO_OK;
}

/* ---- rows on narrow wires ---- */
enum { ROW_COLS = 100, ROWS = 37 };
static neo_status rows_of(neo_comm *comm, neo_wire wire) {
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    size_t row = neo_wire_row_bytes(wire, ROW_COLS),
           room = (size_t)w * (ROWS + 4) * ROW_COLS * sizeof(float);
    float *in = (float *)neo_alloc(ctx, room), *out = (float *)neo_alloc(ctx, room),
          *want = (float *)neo_alloc(ctx, room);
    float *other = (float *)neo_alloc(ctx, room);
    char *coded = (char *)neo_alloc(ctx, room);
    int64_t in_rows[16], out_rows[16], in_total = 0, out_total = 0;
    for (int p = 0; p < w; p++) {
        in_total += in_rows[p] = ROWS + (rank + 2 * p) % 3;
        out_total += out_rows[p] = ROWS + (p + 2 * rank) % 3;
    }
    neo_wire_stats stats;
    memset(&stats, 0, sizeof stats);
    neo_rows rows;
    memset(&rows, 0, sizeof rows);
    rows.wire = wire;
    rows.exponent = 3;
    rows.cols = ROW_COLS;
    rows.stats = &stats;
    size_t most =
        neo_comm_rows_bytes(comm, wire, ROW_COLS, NEO_COMM_REDUCE_SCATTER, w * ROWS, ROWS);
    size_t needs =
        neo_comm_rows_bytes(comm, wire, ROW_COLS, NEO_COMM_ALL_TO_ALL, in_total, out_total);
    most = needs > most ? needs : most;
    rows.workspace = neo_alloc(ctx, most);
    rows.workspace_bytes = needs;
    for (int64_t p = 0, at = 0; p < w; at += in_rows[p++])
        fill(comm, in + at * ROW_COLS, NEO_F32, in_rows[p] * ROW_COLS, rank, 40 + (int)p);
    for (int64_t p = 0, at = 0; p < w;
         at += out_rows[p++]) { /* what a rank sends, coded by itself */
        fill(comm, other, NEO_F32, out_rows[p] * ROW_COLS, (int)p, 40 + rank);
        neo_wire_encode(ctx, wire, 3, other, out_rows[p], ROW_COLS, ROW_COLS, coded, NULL);
        neo_wire_decode(ctx, wire, 3, coded, out_rows[p], ROW_COLS, ROW_COLS, want + at * ROW_COLS);
    }
    neo_ticket ticket;
    forget(comm);
    EXPECT_OK(comm, neo_comm_all_to_allv_rows(comm, &rows, in, in_rows, out, out_rows, &ticket));
    EXPECT_OK(comm, neo_comm_wait(comm, ticket));
    EXPECT(comm, memcmp(out, want, (size_t)out_total * ROW_COLS * 4) == 0, "all_to_allv_rows as %s",
           neo_wire_name(wire));
    EXPECT(comm, stats.numbers == in_total * ROW_COLS, "%" PRId64 " numbers", stats.numbers);
    int64_t bytes = sent(comm, NEO_COMM_ALL_TO_ALL),
            moved = over_ranks(comm, in_total - in_rows[rank]);
    EXPECT(comm, bytes == moved * (int64_t)row, "%" PRId64 " bytes for %" PRId64 " rows of %zu",
           bytes, moved, row);
    rows.workspace_bytes = needs - 1;
    EXPECT_ERR(comm, neo_comm_all_to_allv_rows(comm, &rows, in, in_rows, out, out_rows, NULL),
               NEO_ERR_ARG, "workspace");
    rows.workspace_bytes = most;

    EXPECT_OK(comm, neo_comm_all_gather_rows(comm, &rows, in, out, ROWS, NULL, NULL));
    for (int p = 0; p < w; p++) {
        fill(comm, other, NEO_F32, ROWS * ROW_COLS, p, 40);
        neo_wire_encode(ctx, wire, 3, other, ROWS, ROW_COLS, ROW_COLS, coded, NULL);
        neo_wire_decode(ctx, wire, 3, coded, ROWS, ROW_COLS, ROW_COLS, want + p * ROWS * ROW_COLS);
    }
    if (in_rows[0] >= ROWS)
        EXPECT(comm, memcmp(out, want, (size_t)w * ROWS * ROW_COLS * 4) == 0, "all_gather_rows");

    fill(comm, in, NEO_F32, w * ROWS * ROW_COLS, rank, 50);
    EXPECT_OK(comm, neo_comm_reduce_scatter_rows(comm, &rows, in, out, ROWS, NULL, NULL));
    for (int i = 0; i < ROWS * ROW_COLS; i += ROW_COLS) {
        element piece[16][ROW_COLS];
        for (int p = 0; p < w; p++) {
            float decoded[ROW_COLS];
            for (int k = 0; k < ROW_COLS; k++)
                other[k] = float_of(p, rank * ROWS * ROW_COLS + i + k, 50);
            neo_wire_encode(ctx, wire, 3, other, 1, ROW_COLS, ROW_COLS, coded, NULL);
            neo_wire_decode(ctx, wire, 3, coded, 1, ROW_COLS, ROW_COLS, decoded);
            for (int k = 0; k < ROW_COLS; k++) piece[p][k].f = decoded[k];
        }
        for (int k = 0; k < ROW_COLS; k++) {
            element one[16];
            for (int p = 0; p < w; p++) one[p] = piece[p][k];
            float sum = reduce_tree(ctx, NEO_F32, NEO_REDUCE_SUM, one, w).f;
            EXPECT(comm, memcmp(&sum, &out[i + k], 4) == 0, "reduce_scatter_rows as %s",
                   neo_wire_name(wire));
        }
    }
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    neo_free(ctx, rows.workspace, most);
    neo_free(ctx, in, room);
    neo_free(ctx, out, room);
    neo_free(ctx, want, room);
    neo_free(ctx, other, room);
    neo_free(ctx, coded, room);
    return NEO_OK;
}
static neo_status rows(neo_comm *comm, void *user) {
    (void)user;
    for (int wire = NEO_WIRE_F32; wire < NEO_WIRE_COUNT; wire++)
        EXPECT_OK(comm, rows_of(comm, (neo_wire)wire));
    return NEO_OK;
}

/* ---- arguments that are refused before anything is sent ---- */
static neo_status refusals(neo_comm *comm, void *user) {
    float a[64] = {0}, b[64] = {0};
    int64_t negative[16] = {-1};
    int w = neo_comm_size(comm);
    (void)user;
    EXPECT_ERR(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, NULL, b, 4, NEO_F32, NULL),
               NEO_ERR_ARG, "in is NULL");
    EXPECT_ERR(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, a, a + 1, 4, NEO_F32, NULL),
               NEO_ERR_ARG, "overlap");
    EXPECT_ERR(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, a, b, -1, NEO_F32, NULL),
               NEO_ERR_ARG, "-1 elements");
    EXPECT_ERR(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, a, b, 4, NEO_F8E4M3, NULL),
               NEO_ERR_UNSUPPORTED, "f8");
    EXPECT_ERR(comm, neo_comm_all_reduce(comm, (neo_reduce)9, a, b, 4, NEO_F32, NULL), NEO_ERR_ARG,
               "no reduction");
    EXPECT_ERR(comm, neo_comm_all_reduce(NULL, NEO_REDUCE_SUM, a, b, 4, NEO_F32, NULL), NEO_ERR_ARG,
               "comm is NULL");
    EXPECT_ERR(comm, neo_comm_all_gather(comm, a, b, 0, negative, NEO_F32, NULL), NEO_ERR_ARG,
               "negative");
    EXPECT_ERR(comm, neo_comm_all_to_all(comm, a, a, 1, NEO_F32, NULL), NEO_ERR_ARG, "overlap");
    EXPECT_ERR(comm, neo_comm_broadcast(comm, a, 1, NEO_F32, w, NULL), NEO_ERR_ARG, "root");
    EXPECT_ERR(comm, neo_comm_broadcast(comm, a, 1, (neo_dtype)77, 0, NULL), NEO_ERR_ARG,
               "no dtype");
    EXPECT_ERR(comm, neo_comm_send(comm, a, 1, NEO_F32, neo_comm_rank(comm), NULL), NEO_ERR_ARG,
               "not another rank");
    EXPECT_ERR(comm, neo_comm_wait(comm, 5), NEO_ERR_ARG, "ticket 5");
    const void *pieces[NEO_MAX_SUBTREES];
    for (int k = 0; k < NEO_MAX_SUBTREES; k++) pieces[k] = a;
    EXPECT_ERR(comm, neo_comm_all_reduce_leaves(comm, pieces, a + 1, 4, NEO_F32, NULL), NEO_ERR_ARG,
               "piece 0 and out overlap");
    neo_comm_destroy(comm); /* not its user's to destroy */
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL)); /* and the group still works */
    return NEO_OK;
}

/* ---- ranks that give other counts for the same total ---- */
static neo_status disagreement(neo_comm *comm, void *user) {
    enum { N = 300000 };
    neo_comm *group = NULL;
    int rank = neo_comm_rank(comm);
    int64_t counts[2] = {N, 2 * N};
    neo_ctx *ctx = neo_comm_ctx(comm);
    size_t room = 3 * N * sizeof(float);
    float *in = (float *)neo_alloc(ctx, room), *out = (float *)neo_alloc(ctx, room);
    (void)user;
    if (rank == 1) counts[0] = 2 * N, counts[1] = N;
    memset(in, 0, room);
    EXPECT_OK(comm, neo_comm_split(comm, 0, 0, &group));
    EXPECT_ERR(group,
               neo_comm_reduce_scatter(group, NEO_REDUCE_SUM, in, out, 0, counts, NEO_F32, NULL),
               NEO_ERR_DIVERGED, "bytes from rank");
    neo_comm_destroy(group);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    neo_free(ctx, in, room);
    neo_free(ctx, out, room);
    return NEO_OK;
}
/* ---- the virtual clock: all times below are exact, on any machine ---- */
enum { LATENCY_NS = 20000 };
static neo_comm_desc virtual_links(int ranks_per_node, double bandwidth) {
    neo_comm_desc d = {.ranks_per_node = ranks_per_node, .virtual_clock = 1};
    for (int l = 0; l < NEO_LEVEL_COUNT; l++)
        d.link[l] = (neo_link){.latency_us = LATENCY_NS / 1000, .bandwidth = bandwidth};
    return d;
}
/* Time passes in neo_comm_sleep and on links, for all ranks alike, and nowhere else. */
static neo_status clock_stands(neo_comm *comm, void *user) {
    enum { MS = 1000000 };
    int rank = neo_comm_rank(comm);
    neo_ticket ticket;
    (void)user;
    EXPECT(comm, neo_comm_time_ns(comm) == 0, "time begins at %" PRId64, neo_comm_time_ns(comm));
    for (int i = 0; i < 5; i++) EXPECT_OK(comm, neo_comm_barrier(comm, i % 2 ? &ticket : NULL));
    EXPECT_OK(comm, neo_comm_wait_all(comm));
    EXPECT(comm, neo_comm_time_ns(comm) == 0, "barriers take %" PRId64, neo_comm_time_ns(comm));
    neo_comm_sleep(comm, (int64_t)3600000 * MS * (rank + 1)); /* hours */
    EXPECT(comm, neo_comm_time_ns(comm) == (int64_t)3600000 * MS * (rank + 1), "%" PRId64,
           neo_comm_time_ns(comm));
    neo_comm_sleep(comm, 0);
    neo_comm_reset_stats(comm);
    neo_comm_stats before = neo_comm_get_stats(comm);
    neo_comm *sub = NULL;
    EXPECT_OK(comm, neo_comm_split(comm, 0, -rank, &sub));
    int64_t last = (int64_t)3600000 * MS * neo_comm_size(comm);
    EXPECT(comm, neo_comm_time_ns(sub) == last && neo_comm_time_ns(comm) == last, "%" PRId64,
           neo_comm_time_ns(sub));
    int64_t waited = neo_comm_get_stats(comm).wait_ns - before.wait_ns;
    EXPECT(comm, waited == last - (int64_t)3600000 * MS * (rank + 1), "waited %" PRId64, waited);
    EXPECT_OK(sub, neo_comm_barrier(sub, &ticket)); /* beside a computation */
    neo_comm_sleep(sub, MS);
    EXPECT_OK(sub, neo_comm_wait(sub, ticket));
    EXPECT(comm, neo_comm_time_ns(comm) == last + MS, "%" PRId64, neo_comm_time_ns(comm));
    neo_comm_destroy(sub);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    neo_comm_input *input;
    EXPECT_ERR(comm, neo_comm_input_open(comm, NULL, &input), NEO_ERR_UNSUPPORTED, "virtual clock");
    return NEO_OK;
}
/* A rank that comes a moment after the timeout: all others give up at exactly that moment, with the
   same words. One that comes at the timeout comes in time. */
static neo_status on_the_stroke(neo_comm *comm, void *user) {
    int64_t late_ns = *(const int64_t *)user, began = neo_comm_time_ns(comm);
    int rank = neo_comm_rank(comm), late = rank == 1;
    if (late) neo_comm_sleep(comm, late_ns);
    neo_status status = neo_comm_barrier(comm, NULL);
    int64_t took = neo_comm_time_ns(comm) - began;
    if (late_ns > 600000000) {
        EXPECT(
            comm,
            status == NEO_ERR_TIMEOUT &&
                strstr(neo_last_error(), "rank 0: barrier #0: rank 1 did not come within 600 ms"),
            "%s", neo_last_error());
        EXPECT(comm, took == (late ? late_ns : 600000000), "took %" PRId64, took);
    } else {
        EXPECT(comm, status == NEO_OK, "%s", neo_last_error());
        EXPECT(comm, took == late_ns, "took %" PRId64, took);
    }
    return NEO_OK;
}
/* What the link model holds back is not late: a message of 1.2 s, where the timeout is 0.6 s. */
static neo_status held_back(neo_comm *comm, void *user) {
    static uint8_t data[2][300000];
    (void)user;
    EXPECT_OK(comm,
              neo_comm_broadcast(comm, data[neo_comm_rank(comm)], sizeof data[0], NEO_U8, 0, NULL));
    EXPECT(comm, neo_comm_time_ns(comm) == 1200000000, "the message took %" PRId64,
           neo_comm_time_ns(comm));
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    return NEO_OK;
}

/* Overlap: an all-to-all behind a computation of its length, or longer, costs nothing; behind a
   shorter one the rest. */
static neo_status overlap(neo_comm *comm, void *user) {
    enum { OVERLAP_COUNT = 1 << 20 }; /* 4 MiB to each rank */
    int w = neo_comm_size(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    size_t room = (size_t)w * OVERLAP_COUNT * sizeof(float);
    float *in = (float *)neo_alloc(ctx, room), *out = (float *)neo_alloc(ctx, room);
    (void)user;
    memset(in, 0, room);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    int64_t began = neo_comm_time_ns(comm);
    EXPECT_OK(comm, neo_comm_all_to_all(comm, in, out, OVERLAP_COUNT, NEO_F32, NULL));
    int64_t alone = neo_comm_time_ns(comm) - began;
    EXPECT(comm, alone == 41943040 + LATENCY_NS, "4 MiB at 100 MB/s took %" PRId64, alone);
    for (int k = 0; k < 5; k++) {
        int64_t compute = alone * k / 2;
        neo_ticket ticket;
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        neo_comm_reset_stats(comm);
        began = neo_comm_time_ns(comm);
        EXPECT_OK(comm, neo_comm_all_to_all(comm, in, out, OVERLAP_COUNT, NEO_F32, &ticket));
        neo_comm_sleep(comm, compute);
        EXPECT_OK(comm, neo_comm_wait(comm, ticket));
        int64_t both = neo_comm_time_ns(comm) - began,
                exposed = compute < alone ? alone - compute : 0;
        EXPECT(comm, both == compute + exposed, "behind %" PRId64 ": %" PRId64, compute, both);
        neo_comm_stats stats = neo_comm_get_stats(comm);
        EXPECT(comm, stats.wait_ns == exposed && stats.op[NEO_COMM_ALL_TO_ALL].time_ns == alone,
               "waited %" PRId64, stats.wait_ns);
    }
    neo_free(ctx, in, room);
    neo_free(ctx, out, room);
    return NEO_OK;
}
/* Calls in which all ranks send at once take what the bytes of the busiest level take: no link
   waits while another has two messages. */
static neo_status by_the_link(neo_comm *comm, void *user) {
    enum { LINK_PART = 20000 }; /* 80 KB to each other rank: 8 ms at 10 MB/s */
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm), mates = 0;
    neo_ctx *ctx = neo_comm_ctx(comm);
    (void)user;
    for (int p = 0; p < w; p++) mates += neo_comm_node(comm, p) == neo_comm_node(comm, rank);
    int most = mates - 1 > w - mates ? mates - 1 : w - mates; /* parts that go over one level */
    size_t room = (size_t)w * LINK_PART * sizeof(float);
    float *in = (float *)neo_alloc(ctx, room), *out = (float *)neo_alloc(ctx, room);
    memset(in, 0, room);
    for (int call = 0; call < 3; call++) {
        int64_t needs = (int64_t)most * LINK_PART * (int64_t)sizeof(float) * 100;
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        int64_t began = neo_comm_time_ns(comm);
        if (call == 0)
            EXPECT_OK(comm, neo_comm_all_to_all(comm, in, out, LINK_PART, NEO_F32, NULL));
        if (call == 1)
            EXPECT_OK(comm, neo_comm_all_gather(comm, in, out, LINK_PART, NULL, NEO_F32, NULL));
        if (call == 2)
            EXPECT_OK(comm, neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, in, out, LINK_PART, NULL,
                                                    NEO_F32, NULL));
        int64_t took = neo_comm_time_ns(comm) - began;
        EXPECT(comm, took == needs + LATENCY_NS, "call %d took %" PRId64 ", its bytes %" PRId64,
               call, took, needs);
    }
    neo_free(ctx, in, room);
    neo_free(ctx, out, room);
    return NEO_OK;
}

/* ---- many ranks on few cores: they get through ---- */
enum { CROWD = 64 };
static neo_status crowd(neo_comm *comm, void *user) {
    static float in[CROWD][CROWD * 10], out[CROWD][CROWD * 10];
    int rank = neo_comm_rank(comm), size = neo_comm_size(comm);
    float *mine = in[rank], *theirs = out[rank];
    neo_ticket ticket;
    (void)user;
    for (int i = 0; i < 10 * size; i++) mine[i] = (float)(1000 * rank + i);
    for (int turn = 0; turn < 10; turn++) {
        EXPECT_OK(comm, neo_comm_all_to_all(comm, mine, theirs, 10, NEO_F32, &ticket));
        EXPECT_OK(comm, neo_comm_wait(comm, ticket));
        for (int i = 0; i < 10 * size; i++)
            EXPECT(comm, theirs[i] == (float)(1000 * (i / 10) + 10 * rank + i % 10),
                   "all_to_all: element %d", i);
        EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, mine, theirs, 10 * size, NEO_F32,
                                            NULL));
        for (int i = 0; i < 10 * size; i++)
            EXPECT(comm, theirs[i] == (float)(1000 * (size * (size - 1) / 2) + i * size),
                   "all_reduce: element %d", i);
    }
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    return NEO_OK;
}

/* ---- a message above 2^31 bytes; its memory is only touched at the ends ---- */
#if defined(__linux__)
#include <sys/mman.h>
#if defined(__SANITIZE_THREAD__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif
#ifndef WATCHED
#define WATCHED 0
#endif
static neo_status large(neo_comm *comm, void *user) {
    int64_t n = ((int64_t)1 << 31) + 4097;
    (void)user;
    if (neo_comm_rank(comm) == 0) { /* pages that are never written share one page of zeros */
        uint8_t *p = (uint8_t *)mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT(comm, p != MAP_FAILED, "mmap");
        p[n - 1] = 77;
        EXPECT_OK(comm, neo_comm_send(comm, p, n, NEO_U8, 1, NULL));
        munmap(p, (size_t)n);
    } else {
        uint8_t *p = (uint8_t *)mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        EXPECT(comm, p != MAP_FAILED, "mmap");
        EXPECT_OK(comm, neo_comm_recv(comm, p, n, NEO_U8, 0, NULL));
        EXPECT(comm, p[n - 1] == 77 && p[0] == 0, "the ends");
        munmap(p, (size_t)n);
    }
    return NEO_OK;
}
#endif

/* Where the context gives no number of threads, ranks share the cores of a machine. Under mpirun
   each may have cores of its own, so a rank has no more threads than there are cores for it. */
static neo_status shared_cores(neo_comm *comm, void *user) {
    int cores = *(const int *)user, threads = neo_ctx_threads(neo_comm_ctx(comm));
    int share = cores / neo_comm_size(comm);
    if (neo_comm_get_backend(comm) == NEO_BACKEND_THREADS)
        EXPECT(comm, threads == (share ? share : 1), "%d threads, of %d cores", threads, cores);
    EXPECT(comm, threads <= cores, "%d threads, of %d cores", threads, cores);
    return NEO_OK;
}

/* What the function of a rank leaves is said, unless the rank failed: then its error is news. */
static void count_left(neo_log_level level, const char *message, void *user) {
    (void)level;
    __atomic_fetch_add((int *)user, strstr(message, "not destroyed yet: 1 tensor") != NULL,
                       __ATOMIC_RELAXED);
}
typedef struct leaver {
    neo_status status;
    neo_ctx *ctx[2];
    neo_tensor left[2];
} leaver;
static neo_status leave_tensors(neo_comm *comm, void *user) {
    leaver *l = user;
    const int rank = neo_comm_rank(comm);
    const int64_t shape[1] = {8};
    l->ctx[rank] = neo_comm_ctx(comm);
    EXPECT_OK(comm, neo_tensor_alloc(l->ctx[rank], NEO_F32, 1, shape, &l->left[rank]));
    return l->status == NEO_OK ? NEO_OK : neo_fail(l->status, "the disk is full");
}
static int what_is_left(void) {
    int bad = 0;
    for (int fails = 0; fails < 2; fails++) {
        int said = 0;
        leaver l = {fails ? NEO_ERR_IO : NEO_OK, {NULL}, {{0}}};
        neo_comm_desc d = {.ctx = {.logger = {count_left, &said}}};
        bad += neo_comm_spawn(2, &d, leave_tensors, &l, NULL) != l.status || said != 2 * !fails;
        for (int r = 0; r < 2; r++) neo_tensor_free(l.ctx[r], &l.left[r]);
    }
    return bad;
}

/* A group over the ranks of an MPI that this program has initialised; without one there is none. */
static int over_own_mpi(int ranks) {
    neo_ctx *ctx = NULL;
    neo_comm *comm = NULL;
    int bad = neo_ctx_create(NULL, &ctx) != NEO_OK;
#if defined(NEO_COMM_MPI)
    const MPI_Comm world = MPI_COMM_WORLD;
    const neo_comm_desc d = {.timeout_ms = TEST_PATIENCE_MS};
    bad += neo_comm_create_mpi(ctx, &d, NULL, &comm) != NEO_ERR_ARG;
    bad += neo_comm_create_mpi(ctx, &d, &world, &comm) != NEO_OK || neo_comm_size(comm) != ranks;
    bad += over_ranks(comm, neo_comm_rank(comm) + 1) != ranks * (ranks + 1) / 2;
    neo_comm_destroy(comm);
#else
    bad += neo_comm_create_mpi(ctx, NULL, &ranks, &comm) != NEO_ERR_UNSUPPORTED || comm != NULL;
#endif
    neo_ctx_destroy(ctx);
    return bad;
}

int main(void) {
    int bad = 0, mpi = launched(), cores = 0;
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(NULL, &ctx) == NEO_OK) cores = neo_ctx_threads(ctx);
    neo_ctx_destroy(ctx);
    for (int w = mpi ? mpi : 1; w <= (mpi ? mpi : 8); w++) {
        neo_comm_desc d = {0};
#if defined(NEO_COMM_MPI)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &(int){0});
#endif
        bad += over_own_mpi(w);
        bad += run_ranks(w, &d, shared_cores, &cores);
        bad += run_ranks(w, &d, bytes, NULL);
        bad += run_ranks(w, &d, groups, &d);
        bad += run_ranks(w, &d, rows, NULL);
        bad += run_ranks(w, &d, refusals, NULL);
        if (w == 2) bad += run_ranks(w, &d, disagreement, NULL);
        for (int per_node = 1; per_node <= w; per_node++) {
            d.ranks_per_node = per_node;
            bad += run_ranks(w, &d, levels, &per_node);
        }
        d.ranks_per_node = 0;
        for (int shards = w; shards <= MOST_LEAVES; shards++) {
            d.ctx.repro_shards = shards;
            bad += run_ranks(w, &d, leaves, NULL);
        }
#if defined(__linux__)
        /* Over MPI it takes its whole size of memory; ThreadSanitizer's shadow is 16 GB. */
        if (!WATCHED && sizeof(size_t) == 8 && w == 2 && (!mpi || test_grid()))
            bad += run_ranks(2, NULL, large, NULL);
#endif
#if defined(NEO_COMM_MPI)
        MPI_Finalize();
#endif
    }
    if (!mpi) {
        bad += run_ranks(CROWD, NULL, crowd, NULL);
        bad += what_is_left();
        neo_comm_desc d = {.timeout_ms = -1, .virtual_clock = 1};
        for (int w = 1; w <= 8; w++) bad += run_ranks(w, &d, clock_stands, NULL);
        d.timeout_ms = 600;
        for (int w = 2; w <= 8; w++)
            for (int64_t late = 599999999; late <= 600000001; late++)
                bad += run_ranks(w, &d, on_the_stroke, &late);
        d.link[NEO_LEVEL_LOCAL].bandwidth = 0.25e6;
        bad += run_ranks(2, &d, held_back, NULL);
        d = virtual_links(0, 100e6);
        bad += run_ranks(2, &d, overlap, NULL);
        static const int worlds[][2] = {{4, 4}, {4, 2}, {6, 3}, {8, 4}}; /* ranks, and of a node */
        for (int i = 0; i < 4; i++) {
            d = virtual_links(worlds[i][1], 10e6);
            bad += run_ranks(worlds[i][0], &d, by_the_link, NULL);
        }
    }
    return ranks_end("comm/groups", bad);
}
