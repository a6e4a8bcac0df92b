/* warm_rows.c: rows with a copy on each node, cut over the ranks of the node, and how many rows are
   worth that.

   A table of warm rows in a neo_shard whose replicas are nodes (NEO_SYNC_MERGED), beside the same
   table cut over all ranks: the same pooled rows, weights and state, bit for bit, on 2 to 4 nodes,
   by every optimizer; and the bytes that all ranks send inside nodes and across, to the byte, by
   the formula of neo_fsdp.h, counted from the data. neo_plan_levels against the formula of
   neo_plan.h, row by row; and what it predicts of ids that are spread evenly against the bytes that
   are counted. */
#include "common.h"

enum { FEATURES = 2, STEPS = 3, MOST = 3, ROWS = 90, DIM = 24, SAMPLES = 64 };

typedef struct Warm {
    int nodes, local, leaves, skip, kind, warm; /* local: ranks of a node; warm: or cut over all */
    int rows, samples;
    neo_dtype dtype;
    neo_wire wire;
    int64_t offsets[STEPS][FEATURES * SAMPLES + 1], ids[STEPS][FEATURES * SAMPLES * MOST];
    float dout[SAMPLES * FEATURES * DIM], out[STEPS][SAMPLES * FEATURES * DIM];
    uint64_t digest; /* of the first run */
    int first;
    int64_t sent[NEO_LEVEL_COUNT];
} Warm;

static void warm_data(Warm *w) {
    for (int s = 0; s < STEPS; s++) {
        w->offsets[s][0] = 0;
        for (int i = 0; i < FEATURES * w->samples; i++) {
            const int64_t n = (int64_t)(test_random() % (MOST + 1)), at = w->offsets[s][i];
            w->offsets[s][i + 1] = at + n;
            for (int64_t k = at; k < at + n; k++)
                w->ids[s][k] = neo_zipf((float)(test_random() >> 8) * 0x1p-23f, w->rows, 1.1f);
        }
    }
    test_fill(w->dout, SAMPLES * FEATURES * DIM);
}
static neo_status warm_make(const Warm *w, neo_comm *comm, neo_shard **shard) {
    static const int32_t features[] = {0, 0};
    const int rank = neo_comm_rank(comm), ranks = w->nodes * w->local;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_table_desc table = {.name = "x.warm", .rows = w->rows, .dim = DIM, .row_buckets = LEAVES,
                            .dtype = w->dtype, .optim = optim_of(w->kind, w->kind % 4)};
    neo_bags_desc bags = {.tables = &table, .table_count = 1, .feature_table = features,
                          .feature_count = FEATURES, .max_batch = w->samples,
                          .max_ids = w->samples * FEATURES * MOST};
    neo_plan_desc d = {.bags = &bags, .wire_forward = w->wire, .wire_backward = w->wire,
                       .skip_empty = w->skip, .replicas = w->warm ? w->nodes : 1,
                       .sync_every = w->warm ? NEO_SYNC_MERGED : 0,
                       .cluster = {.ranks = w->warm ? w->local : ranks,
                                   .ranks_per_node = w->local}};
    neo_plan *plan;
    neo_shard_memory m;
    TRY(neo_plan_create_uniform(ctx, &d, NEO_ROW_WISE, &plan));
    TRY(neo_shard_bytes(ctx, plan, rank, &m));
    const size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(comm, plan, shard));
    EXPECT(neo_ctx_memory(ctx).bytes - before - inside_group_bytes(*shard, comm, w->leaves) ==
           m.weight_bytes + m.state_bytes + m.exchange_bytes + m.workspace_bytes);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static int64_t first_sample(const Warm *w, int rank) {
    return neo_leaf_begin(w->samples, w->leaves,
                          (int)neo_leaf_begin(w->leaves, w->nodes * w->local, rank));
}
/* One step; rows are those of the first run. */
static neo_status warm_step(Warm *w, neo_shard *shard, int rank, int s) {
    const int64_t begin = first_sample(w, rank), n = first_sample(w, rank + 1) - begin,
                  width = FEATURES * DIM;
    int64_t offsets[FEATURES * SAMPLES + 1] = {0}, ids[FEATURES * SAMPLES * MOST], total = 0;
    float *known = w->out[s] + begin * width, out[SAMPLES * FEATURES * DIM];
    for (int64_t i = 0; i < FEATURES * n; i++) {
        const int64_t *at = w->offsets[s] + i / n * w->samples + begin + i % n;
        for (int64_t k = at[0]; k < at[1]; k++) ids[total++] = w->ids[s][k];
        offsets[i + 1] = total;
    }
    const neo_jagged j = {.batch = n, .feature_count = FEATURES, .id_dtype = NEO_I64,
                          .offsets = offsets, .ids = ids};
    const neo_tensor t = neo_tensor_2d(out, NEO_F32, n, width);
    TRY(neo_shard_forward(shard, &j, w->samples, t));
    if (w->first) memcpy(known, out, 4 * (size_t)(n * width));
    EXPECT(memcmp(known, out, 4 * (size_t)(n * width)) == 0);
    memcpy(out, w->dout + begin * width, 4 * (size_t)(n * width));
    return neo_shard_backward(shard, t, 0.05f);
}
static void add_sent(const neo_comm_stats *st, int64_t *sent) {
    for (int op = 0; op < (int)NEO_COMM_OP_COUNT; op++)
        for (int level = 0; level < NEO_LEVEL_COUNT; level++)
            sent[level] += st->op[op].bytes[level];
}
static neo_status warm_rank(neo_comm *comm, void *user) {
    Warm *w = user;
    const int rank = neo_comm_rank(comm);
    int64_t sent[NEO_LEVEL_COUNT] = {0};
    neo_shard *shard;
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    uint64_t digest = 0;
    TRY(warm_make(w, comm, &shard));
    neo_shard_reset_stats(shard);
    for (int s = 0; s < STEPS; s++) TRY(warm_step(w, shard, rank, s));
    const neo_shard_stats st = neo_shard_get_stats(shard);
    add_sent(&st.ids, sent), add_sent(&st.rows, sent), add_sent(&st.peers, sent);
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, sent, sent, NEO_LEVEL_COUNT, NEO_I64, NULL));
    TRY(neo_state_create(neo_comm_ctx(comm), &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &all, &digest));
    neo_state_destroy(state);
    EXPECT(w->first || digest == w->digest);
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) memcpy(w->sent, sent, sizeof sent), w->digest = digest;
    neo_shard_destroy(shard);
    return NEO_OK;
}

/* The rank, of `of`, of a row; of a sample. */
static int row_rank(const Warm *w, int64_t row, int of) {
    int r = 0;
    for (; r + 1 < of; r++) {
        const int64_t b = (int64_t)LEAVES * (r + 1) / of;
        if (row < b * (w->rows / LEAVES) + b * (w->rows % LEAVES) / LEAVES) break;
    }
    return r;
}
/* Bytes of all ranks: each has one part of the rows, its leaves being a power of two, of either all
   ranks or of those of its node. */
static void count_sent(const Warm *w, int64_t sent[NEO_LEVEL_COUNT]) {
    const int ranks = w->nodes * w->local, of = w->warm ? w->local : ranks;
    const int64_t row = (int64_t)neo_wire_row_bytes(w->wire, DIM);
    sent[NEO_LEVEL_LOCAL] = sent[NEO_LEVEL_CROSS] = 0;
    for (int s = 0; s < STEPS; s++)
        for (int from = 0; from < ranks; from++)
            for (int to = 0; to < ranks; to++) {
                const int cross = from / w->local != to / w->local;
                const neo_level level = cross ? NEO_LEVEL_CROSS : NEO_LEVEL_LOCAL;
                const int64_t begin = first_sample(w, from), end = first_sample(w, from + 1);
                if (from == to) continue;
                sent[level] += 4; /* a status, with lengths */
                if (w->warm && cross) continue;
                sent[level] += 4 * FEATURES * (end - begin);
                for (int64_t i = 0; i < FEATURES * (end - begin); i++) {
                    const int64_t *bag =
                        w->offsets[s] + i / (end - begin) * w->samples + begin + i % (end - begin);
                    int64_t there = 0;
                    for (int64_t k = bag[0]; k < bag[1]; k++)
                        there += row_rank(w, w->ids[s][k], of) == to % of;
                    sent[level] += 4 * there; /* partial sums come back as f32 */
                    sent[level] += there || !w->skip ? 4 * DIM + row : 0;
                }
            }
    if (w->warm)
        sent[NEO_LEVEL_CROSS] += STEPS * 2 * (int64_t)(w->nodes - 1) * w->rows * (4 * DIM + 1);
}
static void run(Warm *w, const char *what) {
    neo_comm_desc d = {.ctx = {.repro_shards = w->leaves, .seed = 1, .threads = 1},
                       .ranks_per_node = w->local, .timeout_ms = TEST_PATIENCE_MS};
    int64_t sent[NEO_LEVEL_COUNT];
    memset(wrong, 0, sizeof wrong);
    if (neo_comm_spawn(w->nodes * w->local, &d, warm_rank, w, NULL) != NEO_OK)
        FAIL("%s: %s", what, neo_last_error());
    check_wrong(what, w->nodes * w->local);
    count_sent(w, sent);
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) CHECK_INT(w->sent[level], sent[level]);
    w->first = 0;
}
static void nodes_have_copies_of_the_same_bits(void) {
    static const int NODES_[] = {2, 2, 4, 3}, LOCAL[] = {2, 4, 2, 2}, V[] = {8, 8, 8, 12};
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const neo_wire WIRES[] = {NEO_WIRE_F32, NEO_WIRE_BF16, NEO_WIRE_I8};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 4; i++) {
            static Warm w;
            char what[100];
            if ((kind + i) % (1 << TEST_WATCHED)) continue;
            memset(&w, 0, sizeof w);
            w.rows = ROWS, w.samples = 53;
            w.nodes = NODES_[i], w.local = LOCAL[i], w.leaves = V[i];
            w.kind = kind, w.skip = (kind + i) % 3 > 0;
            w.dtype = DTYPES[(kind + i) % 4], w.wire = WIRES[(kind + i / 2) % 3];
            warm_data(&w);
            w.first = 1;
            for (w.warm = 0; w.warm < 2; w.warm++) {
                snprintf(what, sizeof what, "%d nodes of %d ranks, optimizer %d, warm %d", w.nodes,
                         w.local, kind, w.warm);
                run(&w, what);
            }
        }
}

/* ---- how many rows ---- */
/* Seconds of a row by the formula: of links of a byte a second inside, `slower` seconds across. */
static int level_of(double n, double c, int W, int L, double slower) {
    const double R = W / L, bytes = n * (4 + 4 * c + 4 * c), sum = 2 * (4 * c + 1);
    const double cold = bytes * ((L - 1) + (W - L) * slower) / W,
                 warm = bytes * (L - 1) / L + sum * (R - 1) * slower,
                 hot = sum * ((L - 1) + (W - L) * slower);
    return hot < cold && hot < warm ? 2 : warm < cold ? 1 : 0;
}
/* What rows of each kind take: a batch's ids of all, memory of all copies, sums to the byte. */
static void check_level(const neo_row_level *l, int64_t rows, int64_t batch, int W, int L,
                        double slower) {
    const double row = 2 * (4 * 16 + 1), each = 4 + 2 * 4 * 16, nodes = W / L;
    const double here = l[NEO_COLD].ids * each * (L - 1) / W + l[NEO_WARM].ids * each * (L - 1) / L,
                 hot = (double)l[NEO_HOT].rows * row;
    double all = 0, ids = 0;
    for (int i = 0; i < NEO_HEAT_COUNT; i++) {
        const int64_t copies = i == NEO_COLD ? 1 : i == NEO_WARM ? W / L : W;
        CHECK_INT(l[i].bytes, copies * l[i].rows * (4 * 16));
        const double takes = 1e-9 * (l[i].sent[NEO_LEVEL_LOCAL] +
                                     slower * l[i].sent[NEO_LEVEL_CROSS]) / W;
        CHECK(fabs(l[i].seconds - takes) <= 1e-9 * takes);
        all += l[i].sent[NEO_LEVEL_LOCAL], ids += l[i].ids;
    }
    CHECK_INT(l[0].rows + l[1].rows + l[2].rows, rows);
    CHECK(fabs(ids - (double)batch) <= 1e-9 * (double)batch);
    CHECK(fabs(all - here - hot * (L - 1)) <= 1e-9 * all);
    CHECK(l[NEO_WARM].sent[NEO_LEVEL_CROSS] == (double)l[NEO_WARM].rows * row * (nodes - 1));
    CHECK(l[NEO_HOT].sent[NEO_LEVEL_CROSS] == hot * (W - L));
}
static void rows_are_worth_what_the_formula_says(void) {
    enum { N = 2000, IDS = 40000, BATCH_ = 8192 };
    static const int RANKS[] = {4, 8, 16, 8, 1}, EACH[] = {2, 4, 4, 8, 1};
    static int64_t ids[IDS], offsets[IDS + 1], counts[N];
    neo_table_desc table = {.name = "x", .rows = N, .dim = 16};
    neo_bags_desc bags = {.tables = &table, .table_count = 1, .max_batch = BATCH_,
                          .max_ids = BATCH_};
    neo_jagged j = {.batch = IDS, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets,
                    .ids = ids};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    neo_profile *profile;
    neo_plan *plan;
    neo_row_level level[NEO_HEAT_COUNT], few[NEO_HEAT_COUNT];
    for (int i = 0; i < IDS; i++) {
        ids[i] = neo_zipf((float)(test_random() >> 8) * 0x1p-23f, N, 1.05f);
        offsets[i + 1] = i + 1, counts[ids[i]]++;
    }
    CHECK_OK(neo_profile_create(ctx, &bags, &profile));
    CHECK_OK(neo_profile_add(profile, &j));
    for (int i = 0; i < 5; i++)
        for (double slower = 1; slower < 200; slower *= 10) {
            int64_t naive[3] = {0}, edge = 0;
            neo_plan_desc d = {.bags = &bags,
                               .cluster = {.ranks = RANKS[i], .ranks_per_node = EACH[i]}};
            d.cluster.link[NEO_LEVEL_LOCAL].bandwidth = 1e9;
            d.cluster.link[NEO_LEVEL_CROSS].bandwidth = 1e9 / slower;
            REQUIRE_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
            CHECK_OK(neo_plan_levels(plan, 0, profile, NULL, level));
            const int64_t hot = level[NEO_HOT].rows, warm = level[NEO_WARM].rows;
            for (int r = 0; r < N; r++) { /* groups have the mean of counts up to 1/8 apart */
                const double n = (double)counts[r] * BATCH_ / IDS;
                const int level = level_of(n, 16, RANKS[i], EACH[i], slower);
                naive[level]++;
                edge += level_of(n * 1.15, 16, RANKS[i], EACH[i], slower) != level ||
                        level_of(n / 1.15, 16, RANKS[i], EACH[i], slower) != level;
            }
            CHECK(llabs(hot - naive[2]) <= edge && llabs(warm - naive[1]) <= edge);
            if (EACH[i] == RANKS[i]) CHECK_INT(warm, 0); /* one node */
            if (slower > 50 && EACH[i] < RANKS[i]) CHECK(warm > 0 && warm > edge);
            check_level(level, N, BATCH_, RANKS[i], EACH[i], slower);
            const int64_t most[] = {0, warm / 3, hot / 2};
            CHECK_OK(neo_plan_levels(plan, 0, profile, most, few));
            CHECK_INT(few[NEO_HOT].rows, hot / 2);
            CHECK(few[NEO_WARM].rows <= warm / 3 && few[NEO_WARM].rows * 4 >= warm / 3);
            check_level(few, N, BATCH_, RANKS[i], EACH[i], slower);
            CHECK(!(few[0].seconds + few[1].seconds + few[2].seconds <
                    (level[0].seconds + level[1].seconds + level[2].seconds) * (1 - 1e-9)));
            neo_plan_destroy(plan);
        }
    neo_plan_desc d = {.bags = &bags, .cluster = {.ranks = 8, .ranks_per_node = 3}};
    REQUIRE_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
    CHECK_OK(neo_plan_levels(plan, 0, profile, NULL, level));
    CHECK(level[NEO_HOT].rows > 0);
    CHECK_INT(level[NEO_WARM].rows, 0); /* nodes of 3, 3 and 2 ranks */
    CHECK_ERR(neo_plan_levels(plan, 1, profile, NULL, level), NEO_ERR_ARG, "no table 1");
    CHECK_ERR(neo_plan_levels(plan, 0, NULL, NULL, level), NEO_ERR_ARG, "is NULL");
    neo_plan_destroy(plan);
    d.replicas = 2, d.sync_every = NEO_SYNC_MERGED;
    REQUIRE_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
    CHECK_ERR(neo_plan_levels(plan, 0, profile, NULL, level), NEO_ERR_UNSUPPORTED, "of 2 replicas");
    d.replicas = 0, d.sync_every = 0;
    neo_plan_destroy(plan);
    table.rows = N + 1;
    REQUIRE_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
    CHECK_ERR(neo_plan_levels(plan, 0, profile, NULL, level), NEO_ERR_MISMATCH,
              "no table 'x' of 2001 rows");
    neo_plan_destroy(plan);
    neo_profile_destroy(profile);
    neo_ctx_destroy(ctx);
}
/* 2 nodes of 2 ranks, 8 rows, of which each rank has two and names each of them as often in its own
   16 samples: what is predicted for rows in one copy, and in one of each node, is what is counted
   but for the lengths and a status between each two ranks. */
static void predicted_bytes_are_counted(void) {
    static Warm w;
    w = (Warm){.nodes = 2, .local = 2, .leaves = 8, .skip = 1, .rows = 8, .samples = 64,
               .first = 1};
    const neo_link links[] = {{.bandwidth = 1e9}, {.bandwidth = 1e6}};
    neo_table_desc table = {.name = "x", .rows = 8, .dim = DIM, .optim = optim_of(0, 0)};
    static const int32_t features[] = {0, 0};
    neo_bags_desc bags = {.tables = &table, .table_count = 1, .feature_table = features,
                          .feature_count = FEATURES, .max_batch = 64, .max_ids = 128};
    neo_plan_desc d = {.bags = &bags, .cluster = {.ranks = 4, .ranks_per_node = 2}};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    neo_profile *profile;
    neo_plan *plan;
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i <= FEATURES * 64; i++) {
            w.offsets[s][i] = i;
            if (i < FEATURES * 64) w.ids[s][i] = (i + s) % 8;
        }
    test_fill(w.dout, SAMPLES * FEATURES * DIM);
    const neo_jagged j = {.batch = 64, .feature_count = FEATURES, .id_dtype = NEO_I64,
                          .offsets = w.offsets[0], .ids = w.ids[0]};
    memcpy(d.cluster.link, links, sizeof links);
    CHECK_OK(neo_profile_create(ctx, &bags, &profile));
    CHECK_OK(neo_profile_add(profile, &j));
    REQUIRE_OK(neo_plan_create_uniform(ctx, &d, NEO_TABLE_WISE, &plan));
    for (w.warm = 0; w.warm < 2; w.warm++) {
        const int64_t most[] = {0, w.warm ? 8 : 0, 0};
        neo_row_level level[NEO_HEAT_COUNT], *all = &level[w.warm ? NEO_WARM : NEO_COLD];
        CHECK_OK(neo_plan_levels(plan, 0, profile, most, level));
        CHECK_INT(all->rows, 8);
        run(&w, "ids spread evenly");
        const int64_t lengths = STEPS * 4 * FEATURES * 16, status = STEPS * 4;
        CHECK(STEPS * all->sent[NEO_LEVEL_LOCAL] ==
              (double)(w.sent[NEO_LEVEL_LOCAL] - 4 * (lengths + status)));
        CHECK(STEPS * all->sent[NEO_LEVEL_CROSS] ==
              (double)(w.sent[NEO_LEVEL_CROSS] - 8 * ((w.warm ? 0 : lengths) + status)));
    }
    neo_plan_destroy(plan);
    neo_profile_destroy(profile);
    neo_ctx_destroy(ctx);
}
int main(void) {
    RUN(nodes_have_copies_of_the_same_bits);
    RUN(rows_are_worth_what_the_formula_says);
    RUN(predicted_bytes_are_counted);
    return test_end("shard/warm_rows");
}
