/* placements.c: tables on many ranks train as on one.

   The oracle is a neo_bags that sees the whole batch: pooled rows, weights and optimizer state of
   every plan must have its bits. */
#include "neo_data.h"
#include "common.h"

/* A part of this rank against the oracle's table, every tensor of it. */
static void check_part(const Case *c, int rank, const neo_bags *bags, int32_t i,
                       const inside_part *part) {
    neo_tensor x, y;
    for (int k = 0; inside_tensor(c->oracle, part->table, k, &x) && inside_tensor(bags, i, k, &y);
         k++) {
        int64_t dim = x.ndim == 2 ? x.shape[1] : 1, cols = y.ndim == 2 ? y.shape[1] : 1,
                size = (int64_t)neo_dtype_size(x.dtype);
        int64_t first = cols < dim ? part->first_col : 0;
        for (int64_t row = 0; x.data && row < part->rows; row++)
            EXPECT(memcmp((char *)x.data + ((part->first_row + row) * dim + first) * size,
                          (char *)y.data + row * cols * size, (size_t)(cols * size)) == 0);
    }
}

/* ---- bytes, counted anew from the plan and the data ---- */

/* Samples of a rank in step s. */
static int64_t samples_of(const Case *c, int s, int rank, int ranks) {
    return neo_leaf_begin(c->size[s], LEAVES, LEAVES * (rank + 1) / ranks) -
           neo_leaf_begin(c->size[s], LEAVES, LEAVES * rank / ranks);
}
static int rank_of_sample(const Case *c, int s, int64_t sample, int ranks) {
    int r = 0;
    for (int64_t end = samples_of(c, s, 0, ranks); sample >= end; end += samples_of(c, s, r, ranks))
        r++;
    return r;
}
/* Pieces in parts: a piece of several buckets of a table that is cut by rows sends one row for each
   subtree. ends: rows at which parts end; or NULL. */
static int parts_of(const Case *c, const neo_piece *p, int64_t *ends) {
    int parts = 0;
    if (ends) ends[0] = p->first_row + p->rows;
    if (p->rows == c->set->rows[p->table]) return 1;
    for (int64_t b = 0; b < LEAVES;) { /* the tree of 8 buckets */
        int64_t n = 1;
        while (b % (2 * n) == 0 && 2 * n <= LEAVES) n *= 2;
        for (;; n /= 2) {
            int64_t first = b * (c->set->rows[p->table] / LEAVES) +
                            b * (c->set->rows[p->table] % LEAVES) / LEAVES,
                    e = b + n;
            int64_t end = e * (c->set->rows[p->table] / LEAVES) +
                          e * (c->set->rows[p->table] % LEAVES) / LEAVES;
            if (n == 1 || (first >= p->first_row && end <= p->first_row + p->rows)) {
                if (ends) ends[parts] = end;
                parts += end > first && first >= p->first_row && end <= p->first_row + p->rows;
                break;
            }
        }
        b += n;
    }
    return parts;
}
/* Bags of other ranks' samples that have an id in a part of the piece, of each part. */
static int64_t bags_that_travel(const Case *c, int s, const neo_piece *p) {
    int64_t ends[LEAVES], count = 0, n = c->size[s];
    const int parts = parts_of(c, p, ends);
    for (int64_t bag = 0; bag < n * c->set->features; bag++)
        for (int i = 0; i < parts && c->set->feature_table[bag / n] == p->table; i++) {
            int has = 0;
            for (int64_t k = c->offsets[s][bag]; k < c->offsets[s][bag + 1]; k++)
                has |= c->ids[s][k] >= (i ? ends[i - 1] : p->first_row) && c->ids[s][k] < ends[i];
            count += has && rank_of_sample(c, s, bag % n, c->plan.cluster.ranks) != p->rank;
        }
    return count;
}
/* The other pieces of the same columns are all in its node, and there are nodes: 1; then sums
   cross. */
static int adds_inside(const Case *c, int64_t i) {
    int per_node = c->plan.cluster.ranks_per_node, pieces = 0;
    if (c->plan.cluster.ranks == per_node) return 0;
    for (int64_t k = 0; k < c->piece_count; k++) {
        if (c->pieces[k].table != c->pieces[i].table ||
            c->pieces[k].first_col != c->pieces[i].first_col)
            continue;
        pieces++;
        if (c->pieces[k].rank / per_node != c->pieces[i].rank / per_node) return 0;
    }
    return pieces > 1;
}
typedef struct Bytes {
    int64_t lengths_and_ids, rows, node, cross, dense, touched, cut;
} Bytes;
static int wants_flow(const Case *c, int rank, int f, int64_t row) {
    for (int64_t i = 0; i < c->piece_count; i++)
        if (c->pieces[i].rank == rank && c->pieces[i].table == c->set->feature_table[f] &&
            row >= c->pieces[i].first_row && row < c->pieces[i].first_row + c->pieces[i].rows)
            return 1;
    return 0;
}
static void count_ids(const Case *c, int s, Bytes *b) {
    int ranks = c->plan.cluster.ranks;
    for (int to = 0; to < ranks; to++) {
        int64_t flows = 0, others = c->size[s] - samples_of(c, s, to, ranks);
        for (int f = 0; f < c->set->features; f++) {
            for (int64_t i = 0; i < c->piece_count;
                 i++) { /* the first slice that has these rows here */
                const neo_piece *p = &c->pieces[i];
                int again = 0;
                for (int64_t k = 0; k < i; k++)
                    again |= c->pieces[k].rank == to && c->pieces[k].table == p->table &&
                             c->pieces[k].first_row == p->first_row;
                if (p->table == c->set->feature_table[f] && p->rank == to && !again)
                    flows += parts_of(c, p, NULL);
            }
            for (int64_t i = 0; i < c->size[s]; i++)
                for (int64_t k = c->offsets[s][f * c->size[s] + i];
                     k < c->offsets[s][f * c->size[s] + i + 1]; k++)
                    if (rank_of_sample(c, s, i, ranks) != to && wants_flow(c, to, f, c->ids[s][k]))
                        b->lengths_and_ids += 4 + (c->weighted ? 4 : 0);
        }
        b->lengths_and_ids += 4 * (ranks - 1) + 4 * flows * others;
    }
}
static void count_rows(const Case *c, int s, Bytes *b) {
    int ranks = c->plan.cluster.ranks, per_node = c->plan.cluster.ranks_per_node,
        nodes = ranks / per_node;
    for (int64_t i = 0; i < c->piece_count; i++) {
        const neo_piece *p = &c->pieces[i];
        int64_t features = 0, all = c->size[s], cut = p->rows < c->set->rows[p->table];
        for (int f = 0; f < c->set->features; f++) features += c->set->feature_table[f] == p->table;
        if (p->rank == NEO_EVERY_RANK) continue;
        int64_t forward =
            (int64_t)neo_wire_row_bytes(cut ? NEO_WIRE_F32 : c->plan.wire_forward, p->cols);
        int64_t back = (int64_t)neo_wire_row_bytes(c->plan.wire_backward, p->cols);
        if (!adds_inside(c, i)) {
            const int64_t others = all - samples_of(c, s, p->rank, ranks);
            b->rows += (c->plan.skip_empty ? bags_that_travel(c, s, p)
                                           : features * parts_of(c, p, NULL) * others) *
                       (forward + back);
            continue;
        }
        int64_t own_place = 0,
                own_node = 0; /* samples of ranks at its place; what stays here when sums cross */
        for (int h = 0; h < nodes; h++)
            own_place += samples_of(c, s, h * per_node + p->rank % per_node, ranks);
        b->node += features * parts_of(c, p, NULL) * (all - own_place) * 8 * p->cols;
        if (p->first_row > 0) continue; /* once for each slice */
        for (int l = 0; l < per_node; l++)
            own_node += samples_of(c, s, p->rank / per_node * per_node + l, ranks);
        forward = (int64_t)neo_wire_row_bytes(c->plan.wire_forward, p->cols);
        b->cross += features * (all - own_node) * (forward + back);
    }
}
static void count_cuts(const Case *c, int s, Bytes *b) {
    for (int64_t i = 0; i < c->piece_count; i++) {
        const neo_piece *p = &c->pieces[i];
        char touched[2000] = {0};
        int64_t rows = 0;
        for (int f = 0; f < c->set->features; f++)
            for (int64_t k = c->offsets[s][f * c->size[s]];
                 c->set->feature_table[f] == p->table && k < c->offsets[s][(f + 1) * c->size[s]];
                 k++)
                touched[c->ids[s][k]] = 1;
        for (int64_t row = p->first_row; row < p->first_row + p->rows; row++) rows += touched[row];
        for (int r = 0; r < c->plan.cluster.ranks && p->cols < c->set->dims[p->table]; r++) {
            int there = 0;
            for (int64_t k = 0; k < c->piece_count; k++)
                there |= c->pieces[k].table == p->table && c->pieces[k].first_row == p->first_row &&
                         c->pieces[k].rank == r;
            if (r != p->rank && there)
                b->cut += 4 * rows * ((p->cols + 15) / 16) * sums_of(&c->tables[p->table].optim);
        }
    }
}
static Bytes expected_bytes(const Case *c) {
    Bytes b = {0, 0, 0, 0, 0, 0, 0};
    int ranks = c->plan.cluster.ranks,
        whole = ranks == 1 && !c->plan.wire_forward && !c->plan.wire_backward;
    for (int s = 0; s < c->steps && !whole; s++) {
        count_ids(c, s, &b);
        count_rows(c, s, &b);
        count_cuts(c, s, &b);
        for (int64_t i = 0; i < c->piece_count; i++) {
            if (c->pieces[i].rank != NEO_EVERY_RANK) continue;
            b.dense += 4 * c->pieces[i].rows * c->pieces[i].cols;
            b.touched += 2 * (ranks - 1) * c->pieces[i].rows;
        }
    }
    /* A sum over leaves: each rank's subtrees go once to the rank that adds a part of them; then
       all-gather. */
    int64_t subtrees = 0;
    for (int r = 0; r < ranks; r++)
        for (int v = LEAVES * r / ranks, end = LEAVES * (r + 1) / ranks, n; v < end;
             v += n, subtrees++)
            for (n = 1; v % (2 * n) == 0 && v + 2 * n <= end;) n *= 2;
    if (LEAVES % ranks == 0) b.dense *= 2 * (ranks - 1);
    else b.dense = -b.dense; /* parts of unequal size: checked as a range */
    return b;
}
static int64_t counted(const neo_comm_stats *st, neo_comm_op op) {
    return st->op[op].bytes[NEO_LEVEL_LOCAL] + st->op[op].bytes[NEO_LEVEL_CROSS];
}
/* All ranks together against the plan, by the first: it counts for a while. */
static neo_status check_bytes(const Case *c, neo_comm *comm, const neo_shard_stats *st) {
    int rank = neo_comm_rank(comm);
    int64_t sum[6] = {
        counted(&st->ids, NEO_COMM_ALL_TO_ALL),  counted(&st->rows, NEO_COMM_ALL_TO_ALL),
        counted(&st->node, NEO_COMM_ALL_TO_ALL), counted(&st->cross, NEO_COMM_ALL_TO_ALL),
        counted(&st->rows, NEO_COMM_ALL_REDUCE), 0};
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, sum, sum, 6, NEO_I64, NULL));
    if (rank) return NEO_OK;
    const Bytes want = expected_bytes(c);
    EXPECT(sum[0] == want.lengths_and_ids);
    EXPECT(sum[1] == want.rows + want.cut);
    EXPECT(sum[2] == want.node);
    EXPECT(sum[3] == want.cross);
    if (want.dense >= 0) EXPECT(sum[4] == want.dense + want.touched);
    else EXPECT(sum[4] > want.touched);
    return NEO_OK;
}

/* As many batches as the plan has room for, behind that of step s. */
static neo_status prefetch(const Case *c, neo_shard *shard, const Mine *mine, int s, int *told) {
    for (; *told < c->steps && *told <= s + c->plan.pipeline; ++*told)
        TRY(neo_shard_prefetch(shard, &mine[*told].j, c->size[*told]));
    return NEO_OK;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Case *c = user;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_plan *plan;
    neo_shard *shard;
    neo_shard_memory memory;
    Mine mine[MAX_STEPS];
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &c->plan, c->pieces, c->piece_count, &plan));
    size_t before = neo_ctx_memory(neo_comm_ctx(comm)).bytes;
    TRY(neo_shard_create(comm, plan, &shard));
    TRY(neo_shard_bytes(neo_comm_ctx(comm), plan, rank, &memory));
    const inside_shard inside = inside_of_shard(shard);
    EXPECT(neo_ctx_memory(neo_comm_ctx(comm)).bytes - before -
               inside_group_bytes(shard, comm, LEAVES) ==
           memory.weight_bytes + memory.state_bytes + memory.exchange_bytes +
               memory.workspace_bytes);
    for (int s = 0; s < c->steps; s++) mine_make(&mine[s], c, s, rank, ranks);
    int64_t allocs = neo_ctx_memory(neo_comm_ctx(comm)).alloc_count;
    for (int s = 0, told = 1; s < c->steps; s++) {
        Mine *m = &mine[s];
        int64_t stride = c->width + s;
        float *out = malloc(4 * (size_t)(m->n * stride + 1)),
              *dout = malloc(4 * (size_t)(m->n * stride + 1));
        neo_tensor o = neo_tensor_2d(out, NEO_F32, m->n, c->width),
                   d = neo_tensor_2d(dout, NEO_F32, m->n, c->width);
        o.stride[0] = d.stride[0] = stride;
        for (int64_t i = 0; i < m->n; i++)
            memcpy(dout + i * stride, c->dout[s] + (m->begin + i) * c->width, 4 * (size_t)c->width);
        TRY(neo_shard_forward_begin(shard, &m->j, c->size[s]));
        if (c->prefetch % 4 == 1) TRY(prefetch(c, shard, mine, s, &told));
        TRY(neo_shard_forward_end(shard, o));
        if (c->prefetch % 4 == 2) TRY(prefetch(c, shard, mine, s, &told));
        for (int64_t i = 0; i < m->n; i++)
            EXPECT(memcmp(out + i * stride, c->out[s] + (m->begin + i) * c->width,
                          4 * (size_t)c->width) == 0);
        TRY(neo_shard_backward_begin(shard, d));
        if (c->prefetch % 4 == 3) TRY(prefetch(c, shard, mine, s, &told));
        TRY(neo_shard_backward_end(shard, 0.05f));
        free(out), free(dout);
    }
    neo_shard_stats stats = neo_shard_get_stats(shard);
    EXPECT(neo_ctx_memory(neo_comm_ctx(comm)).alloc_count == allocs + stats.grow_count);
    TRY(check_bytes(c, comm, &stats));
    inside_part part;
    for (int32_t i = 0; !inside.whole && inside_part_of(shard, i, &part); i++)
        check_part(c, rank, inside.bags, i, &part);
    int32_t replica = 0;
    for (int64_t i = 0; i < c->piece_count && !inside.whole; i++) {
        const neo_piece *p = &c->pieces[i];
        const inside_part all = {.table = p->table, .rows = p->rows, .cols = p->cols};
        if (p->rank == NEO_EVERY_RANK) check_part(c, rank, inside.replicas, replica++, &all);
    }
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    uint64_t digest = 0;
    TRY(neo_state_create(neo_comm_ctx(comm), &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &all, &digest));
    EXPECT(digest == c->digest);
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    return NEO_OK;
}

/* ---- the grid ----

   Sets of tables x optimizers x ranks x plans: each placement alone, a mix of all, and any grids on
   any ranks. The oracle of a set and an optimizer serves all plans. make test runs a part. */
enum { RANDOM_PLANS = 50, PLANS = RANDOM + RANDOM_PLANS };

/* Under mpirun, its ranks; then only their number is run. */
static neo_comm *job;
static void run_case(Case *c, const char *what, int ranks) {
    neo_comm_desc desc = {
        .ctx = {.repro_shards = LEAVES, .seed = 1, .threads = 1 + (int)(runs % 3 == 0)},
        .ranks_per_node = c->plan.cluster.ranks_per_node,
        .timeout_ms = TEST_PATIENCE_MS};
    memset(wrong, 0, sizeof wrong);
    neo_status status = job ? run_rank(job, c) : neo_comm_spawn(ranks, &desc, run_rank, c, NULL);
    if (status != NEO_OK) FAIL("%s: %s", what, neo_last_error());
    check_wrong(what, ranks);
    runs++;
}
/* Whether a cell of the grid is run: one in eight, so that each plan meets each number of ranks, in
   16 or 19 under a sanitizer; in eleven, of random plans too; or all. */
static int selected(int set, int kind, int w, int plan) {
    if (test_grid()) return test_grid() == 2 || (plan + kind + w + 2 * set) % 11 == 0;
    if (plan >= RANDOM)
        return (kind + w) % (4 << TEST_WATCHED) == plan % 4 && plan < RANDOM + 2;
    if (TEST_WATCHED == 2) return (plan + 5 * kind + 3 * w + 7 * set) % 19 == 0;
    return (plan + kind + 2 * w + 4 * set) % (8 << TEST_WATCHED) == 0;
}
static void plans_have_the_bits_of_one_rank(void) {
    static const int RANKS[] = {1, 2, 4, 8};
    const Set *sets[] = {&ZIPF, &CRITEO};
    cut_block = 16;
    for (int set = 0; set < 2; set++)
        for (int kind = 0; kind < KINDS; kind++) {
            static Case c;
            memset(&c, 0, sizeof c);
            neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
            c.steps = MAX_STEPS;
            c.weighted = kind == 3;
            case_tables(&c, sets[set], kind, kind % 4, kind % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
            case_data(&c);
            case_oracle(&c, ctx);
            for (int w = 0; w < 4; w++)
                for (int plan = 0; plan < PLANS; plan++) {
                    char what[100];
                    int ranks = RANKS[w];
                    if (!selected(set, kind, w, plan) || (job && neo_comm_size(job) != ranks))
                        continue;
                    c.prefetch = (plan + w) % 4;
                    if (c.prefetch) c.prefetch += 4 * (plan % 4);
                    c.plan.skip_empty = (int)(runs % 2);
                    c.piece_count = 0;
                    place_tables(&c, plan, ranks);
                    plan_of(&c, ranks);
                    snprintf(what, sizeof what, "%s, optimizer %d, plan %d on %d ranks",
                             sets[set]->name, kind, plan, ranks);
                    run_case(&c, what, ranks);
                }
            case_free(&c);
            neo_ctx_destroy(ctx);
        }
}
/* Any number of ranks, another optimizer and another row dtype for each table, all wires. */
static void wires_round_alike_under_every_plan(void) {
    for (int i = 0; i < NEO_WIRE_COUNT * (2 << test_grid()); i++) {
        static Case c;
        char what[100];
        int wire = i / 8, other = i % NEO_WIRE_COUNT, ranks = 1 + i % 8;
        if (job && neo_comm_size(job) != ranks) continue;
        memset(&c, 0, sizeof c);
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        c.steps = 4;
        c.weighted = i % 3 == 0;
        c.prefetch = i % 4;
        if (c.prefetch) c.prefetch += 4 * (wire % 3);
        c.plan.skip_empty = (int)(runs % 2);
        c.plan.wire_forward = (neo_wire)(i % 2 ? wire : other);
        c.plan.wire_backward = (neo_wire)(i % 2 ? other : wire);
        cut_block = c.plan.wire_forward > NEO_WIRE_BF16 || c.plan.wire_backward > NEO_WIRE_BF16
                        ? NEO_WIRE_BLOCK
                        : 16;
        case_tables(&c, &ZIPF, KINDS, -1, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        for (int t = 0; t < ZIPF.tables; t++) {
            static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
            c.tables[t].dtype = DTYPES[(t + i) % 4];
            c.tables[t].round_nearest = (t + i) % 7 == 0;
        }
        case_data(&c);
        case_oracle(&c, ctx);
        c.piece_count = 0;
        place_tables(&c, i % 3 ? RANDOM : MIXED, ranks);
        plan_of(&c, ranks);
        snprintf(what, sizeof what, "wires %s and %s on %d ranks",
                 neo_wire_name(c.plan.wire_forward), neo_wire_name(c.plan.wire_backward), ranks);
        run_case(&c, what, ranks);
        case_free(&c);
        neo_ctx_destroy(ctx);
    }
}

static neo_status run_all(neo_comm *comm, void *user) {
    (void)user;
    job = comm;
    RUN(plans_have_the_bits_of_one_rank);
    RUN(wires_round_alike_under_every_plan);
    printf("test_shard: %lld runs\n", (long long)runs);
    return NEO_OK;
}
int main(void) {
#if defined(NEO_COMM_MPI)
    neo_comm_desc desc = {.ctx = {.repro_shards = LEAVES, .seed = 1, .threads = 1}};
    neo_status status = neo_comm_init_env(&desc, run_all, NULL);
    if (status != NEO_OK) printf("%s\n", neo_last_error());
    return test_end("shard/placements") || status != NEO_OK;
#else
    (void)run_all(NULL, NULL);
    return test_end("shard/placements");
#endif
}
