/* collectives.c: every collective against its naive result, bit for bit: ranks 1 .. 8, sizes 0 ..
   10^6, every dtype, in place and not, blocking and asynchronous; bytes against the formulas;
   groups, two levels, sums over leaves. As threads; and, compiled with NEO_COMM_MPI, the same under
   mpirun. */
#include "ranks.h"

static const int64_t sizes[] = {0, 1, 4, 100, 1000, 10000, 1000000};
enum { SIZES = sizeof sizes / sizeof sizes[0], GUARD = 64 };

/* Memory with guard bytes behind it. */
static char *guarded(neo_comm *comm, size_t bytes) {
    char *p = (char *)neo_alloc(neo_comm_ctx(comm), bytes + GUARD);
    if (!p) abort();
    memset(p, 0x5A, bytes + GUARD);
    return p;
}
static void unguard(neo_comm *comm, char *p, size_t bytes, const char *what) {
    int whole = 1;
    for (int i = 0; i < GUARD; i++) whole &= p[bytes + (size_t)i] == 0x5A;
    EXPECT(comm, whole, "%s: written past the end of %zu bytes", what, bytes);
    neo_free(neo_comm_ctx(comm), p, bytes + GUARD);
}
static neo_status settle(neo_comm *comm, int async, neo_status status, const neo_ticket *ticket) {
    if (status != NEO_OK || !async) return status;
    return neo_comm_wait(comm, *ticket);
}

/* Reductions: a sample of elements against the recursion over all ranks' inputs. */
static neo_status reductions(neo_comm *comm, neo_dtype dtype, int64_t count, int in_place,
                             int async) {
    int size = neo_comm_size(comm), rank = neo_comm_rank(comm);
    size_t each = neo_dtype_size(dtype);
    neo_ctx *ctx = neo_comm_ctx(comm);
    int floats = dtype != NEO_I8 && dtype != NEO_U8 && dtype != NEO_I32 && dtype != NEO_I64;
    for (int reduce = NEO_REDUCE_SUM; reduce <= NEO_REDUCE_MIN; reduce++) {
        if (reduce == NEO_REDUCE_SUM && (dtype == NEO_F8E4M3 || dtype == NEO_F8E5M2)) continue;
        if (reduce != NEO_REDUCE_SUM && count > 1000) continue;
        char *in = guarded(comm, (size_t)count * each),
             *out = in_place ? in : guarded(comm, (size_t)count * each);
        neo_ticket ticket = -1, *t = async ? &ticket : NULL;
        element piece[64];
        char number[64][8];
        fill(comm, in, dtype, count, rank, reduce);
        neo_status status = neo_comm_all_reduce(comm, (neo_reduce)reduce, in, out, count, dtype, t);
        EXPECT_OK(comm, settle(comm, async, status, &ticket));
        int64_t step = count > 2000 ? count / 997 : 1;
        for (int64_t i = 0; i < count; i += step) {
            for (int p = 0; p < size; p++) {
                /* fill numbers element i of rank p */
                float x = float_of(p, i, reduce);
                uint64_t u = mixed((uint64_t)i * 64 + (uint64_t)p + 77u * (uint64_t)reduce);
                if (floats) neo_floats_encode(ctx, dtype, &x, number[p], 1);
                else memcpy(number[p], &u, 8);
                piece[p] = element_at(ctx, number[p], dtype, 0);
            }
            element want = reduce_tree(ctx, dtype, (neo_reduce)reduce, piece, size),
                    got = element_at(ctx, out, dtype, i);
            int same = floats ? memcmp(&want.f, &got.f, 4) == 0 : want.i == got.i;
            EXPECT(comm, same, "all_reduce of %" PRId64 " %s, element %" PRId64 ": %.9g, not %.9g",
                   count, neo_dtype_name(dtype), i, (double)got.f, (double)want.f);
            if (!same) break;
        }
        if (!in_place) unguard(comm, out, (size_t)count * each, "all_reduce");
        unguard(comm, in, (size_t)count * each, "all_reduce in");
    }
    return NEO_OK;
}
/* reduce_scatter, even and uneven, against all_reduce. */
static neo_status scattered(neo_comm *comm, neo_dtype dtype, int64_t count, int in_place,
                            int async) {
    int size = neo_comm_size(comm), rank = neo_comm_rank(comm);
    size_t each = neo_dtype_size(dtype);
    int64_t counts[64], total = 0, at = 0;
    for (int uneven = 0; uneven < 2; uneven++) {
        total = at = 0;
        for (int p = 0; p < size; p++) {
            counts[p] = uneven ? (p == 1 ? 0 : count + p % 3) : count;
            if (p < rank) at += counts[p];
            total += counts[p];
        }
        char *in = guarded(comm, (size_t)total * each), *all = guarded(comm, (size_t)total * each);
        char *out = in_place ? in + (size_t)at * each : guarded(comm, (size_t)counts[rank] * each);
        neo_ticket ticket = -1, *t = async ? &ticket : NULL;
        fill(comm, in, dtype, total, rank, 5);
        EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, in, all, total, dtype, NULL));
        neo_status status = neo_comm_reduce_scatter(comm, NEO_REDUCE_SUM, in, out, count,
                                                    uneven ? counts : NULL, dtype, t);
        counts[0] += 1000; /* copied */
        EXPECT_OK(comm, settle(comm, async, status, &ticket));
        counts[0] -= 1000;
        EXPECT(comm, memcmp(out, all + (size_t)at * each, (size_t)counts[rank] * each) == 0,
               "reduce_scatter of %" PRId64 " %s", count, neo_dtype_name(dtype));
        if (!in_place) unguard(comm, out, (size_t)counts[rank] * each, "reduce_scatter");
        unguard(comm, in, (size_t)total * each, "reduce_scatter in");
        unguard(comm, all, (size_t)total * each, "all_reduce");
    }
    return NEO_OK;
}
/* The movers: all_gather, all_to_all, all_to_allv, broadcast, gather, scatter, send and recv. */
static neo_status gathered(neo_comm *comm, neo_dtype dtype, int64_t count, int in_place,
                           int async) {
    int size = neo_comm_size(comm), rank = neo_comm_rank(comm);
    size_t each = neo_dtype_size(dtype);
    for (int uneven = 0; uneven < 2; uneven++) {
        int64_t counts[64], total = 0, at[65] = {0};
        for (int p = 0; p < size; p++) {
            counts[p] = uneven ? (p == 1 ? 0 : count + p % 3) : count;
            at[p + 1] = total += counts[p];
        }
        char *want = guarded(comm, (size_t)total * each),
             *out = guarded(comm, (size_t)total * each);
        for (int p = 0; p < size; p++)
            fill(comm, want + (size_t)at[p] * each, dtype, counts[p], p, 9);
        size_t mine = (size_t)counts[rank] * each;
        char *in = in_place ? out + (size_t)at[rank] * each : guarded(comm, mine);
        fill(comm, in, dtype, counts[rank], rank, 9);
        neo_ticket ticket = -1, *t = async ? &ticket : NULL;
        neo_status status =
            neo_comm_all_gather(comm, in, out, count, uneven ? counts : NULL, dtype, t);
        EXPECT_OK(comm, settle(comm, async, status, &ticket));
        EXPECT(comm, memcmp(out, want, (size_t)total * each) == 0, "all_gather of %" PRId64, count);
        for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
            memset(out, 0, (size_t)total * each);
            char *from = in_place && rank == root ? out + (size_t)at[rank] * each : in;
            fill(comm, from, dtype, counts[rank], rank, 9);
            status = neo_comm_gather(comm, from, rank == root ? out : NULL, count,
                                     uneven ? counts : NULL, dtype, root, t);
            EXPECT_OK(comm, settle(comm, async, status, &ticket));
            EXPECT(comm, rank != root || memcmp(out, want, (size_t)total * each) == 0,
                   "gather of %" PRId64, count);
            char *part = guarded(comm, mine);
            status = neo_comm_scatter(comm, rank == root ? want : NULL, part, count,
                                      uneven ? counts : NULL, dtype, root, t);
            EXPECT_OK(comm, settle(comm, async, status, &ticket));
            EXPECT(comm, memcmp(part, want + (size_t)at[rank] * each, mine) == 0,
                   "scatter of %" PRId64, count);
            unguard(comm, part, mine, "scatter");
            if (root == 0) fill(comm, in, dtype, counts[rank], rank, 9);
        }
        if (!in_place) unguard(comm, in, mine, "all_gather in");
        unguard(comm, out, (size_t)total * each, "all_gather");
        unguard(comm, want, (size_t)total * each, "want");
    }
    return NEO_OK;
}
static neo_status exchanged(neo_comm *comm, neo_dtype dtype, int64_t count, int async) {
    int size = neo_comm_size(comm), rank = neo_comm_rank(comm);
    size_t each = neo_dtype_size(dtype);
    for (int uneven = 0; uneven < 2; uneven++) {
        int64_t in_counts[64], out_counts[64], in_total = 0, out_total = 0;
        for (int p = 0; p < size;
             p++) { /* from a to b: count + (a + 2 b) % 3, but nothing from 0 to 1 */
            in_counts[p] = !uneven ? count : rank == 0 && p == 1 ? 0 : count + (rank + 2 * p) % 3;
            out_counts[p] = !uneven ? count : p == 0 && rank == 1 ? 0 : count + (p + 2 * rank) % 3;
            in_total += in_counts[p];
            out_total += out_counts[p];
        }
        char *in = guarded(comm, (size_t)in_total * each),
             *out = guarded(comm, (size_t)out_total * each);
        char *want = guarded(comm, (size_t)out_total * each);
        for (int64_t p = 0, at = 0; p < size; at += in_counts[p++])
            fill(comm, in + (size_t)at * each, dtype, in_counts[p], rank, 100 + (int)p);
        for (int64_t p = 0, at = 0; p < size; at += out_counts[p++])
            fill(comm, want + (size_t)at * each, dtype, out_counts[p], (int)p, 100 + rank);
        neo_ticket ticket = -1, *t = async ? &ticket : NULL;
        neo_status status =
            uneven ? neo_comm_all_to_allv(comm, in, in_counts, out, out_counts, dtype, t)
                   : neo_comm_all_to_all(comm, in, out, count, dtype, t);
        EXPECT_OK(comm, settle(comm, async, status, &ticket));
        EXPECT(comm, memcmp(out, want, (size_t)out_total * each) == 0, "all_to_all of %" PRId64,
               count);
        unguard(comm, in, (size_t)in_total * each, "all_to_all in");
        unguard(comm, out, (size_t)out_total * each, "all_to_all");
        unguard(comm, want, (size_t)out_total * each, "want");
    }
    char *data = guarded(comm, (size_t)count * each), *want = guarded(comm, (size_t)count * each);
    neo_ticket ticket = -1, *t = async ? &ticket : NULL;
    for (int root = 0; root < size; root++) {
        fill(comm, data, dtype, count, rank, 3);
        fill(comm, want, dtype, count, root, 3);
        EXPECT_OK(comm, settle(comm, async, neo_comm_broadcast(comm, data, count, dtype, root, t),
                               &ticket));
        EXPECT(comm, memcmp(data, want, (size_t)count * each) == 0,
               "broadcast of %" PRId64 " from %d", count, root);
    }
    if (size > 1) { /* round the ring; even ranks send first */
        int next = (rank + 1) % size, before = (rank + size - 1) % size;
        fill(comm, want, dtype, count, rank, 11);
        for (int turn = 0; turn < 2; turn++) {
            int sends = (turn == 0) == (rank % 2 == 0);
            neo_status status = sends ? neo_comm_send(comm, want, count, dtype, next, t)
                                      : neo_comm_recv(comm, data, count, dtype, before, t);
            EXPECT_OK(comm, settle(comm, async, status, &ticket));
        }
        fill(comm, want, dtype, count, before, 11);
        EXPECT(comm, memcmp(data, want, (size_t)count * each) == 0, "send and recv of %" PRId64,
               count);
    }
    EXPECT_OK(comm, settle(comm, async, neo_comm_barrier(comm, t), &ticket));
    unguard(comm, data, (size_t)count * each, "broadcast");
    unguard(comm, want, (size_t)count * each, "want");
    return NEO_OK;
}
static neo_status grid(neo_comm *comm, void *user) {
    int64_t most = *(const int64_t *)user;
    for (int dtype = NEO_F32; dtype < NEO_DTYPE_COUNT; dtype++)
        for (int s = 0; s < SIZES; s++) {
            if (sizes[s] > most && !(dtype == NEO_F32 && sizes[s] <= 10 * most)) continue;
            for (int way = 0; way < 4; way++) {
                if (TEST_WATCHED && (dtype + s + way) % 2) continue;
                /* of large sizes one way for each number of ranks, unless all is run */
                if (test_grid() < 2 && sizes[s] > 10000 && way != (neo_comm_size(comm) & 3))
                    continue;
                EXPECT_OK(comm, reductions(comm, (neo_dtype)dtype, sizes[s], way & 1, way >> 1));
                if (dtype != NEO_F8E4M3 && dtype != NEO_F8E5M2)
                    EXPECT_OK(comm,
                              scattered(comm, (neo_dtype)dtype, sizes[s] / 4, way & 1, way >> 1));
                EXPECT_OK(comm, gathered(comm, (neo_dtype)dtype, sizes[s] / 4, way & 1, way >> 1));
                if (!(way & 1))
                    EXPECT_OK(comm, exchanged(comm, (neo_dtype)dtype, sizes[s] / 4, way >> 1));
            }
        }
    return NEO_OK;
}

/* collectives [MOST]: sizes up to MOST, of f32 ten times that. */
int main(int argc, char **argv) {
    static const int64_t mosts[] = {10000, 100000, 1000000};
    int64_t most = argc > 1 ? atoll(argv[1]) : mosts[test_grid()];
    int bad = 0;
    if (launched()) bad = run_ranks(0, NULL, grid, &most);
    for (int ranks = 1; ranks <= 8 && !launched(); ranks++)
        bad += run_ranks(ranks, NULL, grid, &most);
    return ranks_end("comm/collectives", bad);
}
