/* hot_rows.c: rows that most ids name, as a table of their own on every rank.

   neo_jagged_split_hot against a naive split. Then a table cut by rows whose hot rows are split
   off: pooled rows against a naive sum, the same bits on 1, 2, 4 and 8 ranks under two plans, and
   the bytes that all ranks send less than without hot rows: by the formula of neo_fsdp.h, to the
   byte, with n, bags and rows counted from the data. A profile names the rows, and in a file. Where
   no bag has an id, lengths alone travel. */
#include "common.h"

enum { FEATURES = 2, STEPS = 3, MOST = 3 };

/* ---- the split of a batch ---- */
static int64_t place_of(const int64_t *rows, int64_t count, int64_t id) {
    for (int64_t i = 0; i < count; i++)
        if (rows[i] == id) return i;
    return -1;
}
static void a_batch_is_split_as_by_hand(void) {
    enum { B = 7, T = 3, ROOM = B * T * 5 };
    static const int64_t of0[] = {0, 3, 9}, of2[] = {-4, 1, 2, 5, 8, 11};
    const int64_t *rows[] = {of0, NULL, of2}, counts[] = {3, 0, 6};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int way = 0; way < 8; way++) {
        neo_jagged_buffer *out;
        int64_t offsets[B * T + 1] = {0}, ids[ROOM], at = 0;
        int32_t narrow[ROOM];
        float weights[ROOM];
        test_fill(weights, ROOM);
        for (int i = 0; i < B * T; i++) {
            offsets[i + 1] = offsets[i] + (int64_t)(test_random() % 5);
            for (int64_t k = offsets[i]; k < offsets[i + 1]; k++)
                ids[k] = (int64_t)(test_random() % 14) - 4, narrow[k] = (int32_t)ids[k];
        }
        neo_jagged in = {.batch = B, .feature_count = T, .offsets = offsets,
                         .id_dtype = way & 1 ? NEO_I32 : NEO_I64,
                         .ids = way & 1 ? (const void *)narrow : ids,
                         .weights = way & 2 ? weights : NULL};
        neo_jagged_desc d = {.feature_count = T + 2, .max_bags = B * (T + 2), .max_ids = ROOM,
                             .id_dtype = way & 4 ? NEO_I32 : NEO_I64, .weighted = 1};
        CHECK_OK(neo_jagged_create(ctx, &d, &out));
        CHECK_OK(neo_jagged_split_hot(out, &in, rows, counts));
        const neo_jagged *v = neo_jagged_view(out);
        CHECK_INT(v->batch, B);
        CHECK_INT(neo_jagged_id_count(v), offsets[B * T]);
        for (int f = 0; f < T + 2; f++) {
            const int t = f < T ? f : f == T ? 0 : 2;
            for (int i = 0; i < B; i++) {
                CHECK_INT(v->offsets[f * B + i], at);
                for (int64_t k = offsets[t * B + i]; k < offsets[t * B + i + 1]; k++) {
                    const int64_t place = place_of(rows[t], counts[t], ids[k]);
                    const int64_t want = f < T ? ids[k] : place;
                    if ((place >= 0) != (f >= T)) continue;
                    CHECK_INT(way & 4 ? ((const int32_t *)v->ids)[at]
                                      : ((const int64_t *)v->ids)[at], want);
                    CHECK(v->weights[at] == (way & 2 ? weights[k] : 1.0f));
                    at++;
                }
            }
        }
        CHECK_ERR(neo_jagged_split_hot(out, &in, NULL, counts), NEO_ERR_ARG, "rows or counts");
        const int64_t fewer[] = {3, 0, 0};
        CHECK_ERR(neo_jagged_split_hot(out, &in, rows, fewer), NEO_ERR_SHAPE, "has 4 features");
        neo_jagged_destroy(out);
    }
    neo_ctx_destroy(ctx);
}

/* ---- on ranks ---- */
typedef struct Hot {
    int64_t rows, dim, batch, count; /* count: of hot rows */
    int most, steps, skip, by_rank;  /* most: ids of a bag; by_rank: another plan */
    neo_wire wire;
    int64_t hot[512], *offsets[STEPS], *ids[STEPS];
    float *dout, *out[STEPS]; /* out: of the first run */
    int first;
    uint64_t digest;
    int64_t bytes; /* that all ranks sent */
} Hot;

static void hot_data(Hot *g, double exponent) {
    const int64_t bags = FEATURES * g->batch;
    for (int s = 0; s < g->steps; s++) {
        g->offsets[s] = malloc(8 * (size_t)(bags + 1));
        g->ids[s] = malloc(8 * (size_t)(bags * g->most + 1));
        g->out[s] = malloc(4 * (size_t)(bags * g->dim));
        g->offsets[s][0] = 0;
        for (int64_t i = 0; i < bags; i++) {
            const int64_t n = g->most == 1 ? 1 : (int64_t)(test_random() % (unsigned)(g->most + 1));
            g->offsets[s][i + 1] = g->offsets[s][i] + n;
            for (int64_t k = g->offsets[s][i]; k < g->offsets[s][i + 1]; k++)
                g->ids[s][k] = neo_zipf((float)(test_random() >> 8) * 0x1p-23f, g->rows,
                                        (float)exponent) * 7919 % g->rows;
        }
    }
    g->dout = malloc(4 * (size_t)(bags * g->dim));
    test_fill(g->dout, bags * g->dim);
}
static void hot_free(Hot *g) {
    for (int s = 0; s < g->steps; s++) free(g->offsets[s]), free(g->ids[s]), free(g->out[s]);
    free(g->dout);
}
/* The tables, and the plan of them. */
static neo_status make_tables(const Hot *g, neo_comm *comm, neo_shard **shard) {
    static const int32_t features[] = {0, 0, 1, 1};
    const unsigned placements[] = {0, 1u << NEO_DATA_PARALLEL};
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_table_desc tables[2] = {{.name = "x", .rows = g->rows, .dim = g->dim, .row_buckets = LEAVES,
                                 .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}}};
    tables[1] = tables[0];
    tables[1].name = "x.hot", tables[1].rows = g->count, tables[1].row_buckets = 0;
    neo_bags_desc bags = {.tables = tables, .table_count = 1 + (g->count > 0),
                          .feature_table = features,
                          .feature_count = FEATURES * (1 + (g->count > 0)),
                          .max_batch = g->batch, .max_ids = g->batch * 4 * (g->most + 1)};
    neo_plan_desc d = {.bags = &bags, .cluster = {.ranks = ranks}, .skip_empty = g->skip,
                       .table_placements = placements, .wire_forward = g->wire,
                       .wire_backward = g->wire};
    neo_plan *plan;
    neo_shard_memory m;
    TRY(neo_plan_create_uniform(ctx, &d, g->by_rank ? NEO_TABLE_WISE : NEO_ROW_WISE, &plan));
    EXPECT(ranks == 1 || neo_plan_placement(plan, 0) ==
                             (g->by_rank ? NEO_TABLE_WISE : NEO_ROW_WISE));
    EXPECT(ranks == 1 || !g->count || neo_plan_placement(plan, 1) == NEO_DATA_PARALLEL);
    TRY(neo_shard_bytes(ctx, plan, rank, &m));
    const size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(comm, plan, shard));
    EXPECT(neo_ctx_memory(ctx).bytes - before - inside_group_bytes(*shard, comm, LEAVES) ==
           m.weight_bytes + m.state_bytes + m.exchange_bytes + m.workspace_bytes);
    neo_plan_destroy(plan);
    return NEO_OK;
}
/* The first step's pooled rows are sums of the rows that both tables begin with. */
static neo_status check_sums(const Hot *g, neo_shard *shard, int rank, const Mine *m,
                             const float *out) {
    float *x = malloc(4 * (size_t)(g->rows * g->dim)), *hot = malloc(4 * (size_t)(512 * g->dim));
    TRY(neo_shard_get_rows(shard, 0, 0, g->rows, NEO_EVERY_RANK, x));
    if (g->count) TRY(neo_shard_get_rows(shard, 1, 0, g->count, NEO_EVERY_RANK, hot));
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t col = 0; col < FEATURES * g->dim; col++) {
            const int64_t *at = m->offsets + col / g->dim * m->n + i, c = col % g->dim;
            double sum = 0;
            for (int64_t k = at[0]; k < at[1]; k++) {
                const int64_t place = place_of(g->hot, g->count, m->ids[k]);
                sum += place < 0 ? (double)x[m->ids[k] * g->dim + c]
                                 : (double)hot[place * g->dim + c];
            }
            EXPECT(fabs((double)out[i * FEATURES * g->dim + col] - sum) <= 1e-6);
        }
    free(x), free(hot);
    return NEO_OK;
}
static neo_status one_step(Hot *g, neo_shard *shard, neo_jagged_buffer *split, int rank, int s,
                           const Mine *m) {
    const int64_t *rows[FEATURES] = {g->hot, g->hot}, counts[FEATURES] = {g->count, g->count};
    const int64_t width = FEATURES * g->dim, wide = width * (1 + (g->count > 0));
    float *w = malloc(4 * (size_t)(m->n * wide + 1)), *out = malloc(4 * (size_t)(m->n * width + 1));
    const neo_jagged *j = &m->j;
    neo_tensor t = neo_tensor_2d(w, NEO_F32, m->n, wide);
    if (g->count) TRY(neo_jagged_split_hot(split, &m->j, rows, counts));
    if (g->count) j = neo_jagged_view(split);
    TRY(neo_shard_forward(shard, j, g->batch, t));
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t c = 0; c < width; c++)
            out[i * width + c] = w[i * wide + c] + (g->count ? w[i * wide + width + c] : 0.0f);
    if (s == 0 && g->wire == NEO_WIRE_F32 && g->rows < 10000)
        TRY(check_sums(g, shard, rank, m, out));
    float *known = g->out[s] + m->begin * width;
    if (g->first) memcpy(known, out, 4 * (size_t)(m->n * width));
    EXPECT(memcmp(known, out, 4 * (size_t)(m->n * width)) == 0);
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t c = 0; c < wide; c++)
            w[i * wide + c] = g->dout[(m->begin + i) * width + c % width];
    neo_status status = neo_shard_backward(shard, t, 0.05f);
    free(w), free(out);
    return status;
}
static int64_t sent_bytes(const neo_comm_stats *st) {
    int64_t bytes = 0;
    for (int op = 0; op < (int)NEO_COMM_OP_COUNT; op++)
        if (op == NEO_COMM_ALL_TO_ALL || op == NEO_COMM_ALL_REDUCE)
            bytes += st->op[op].bytes[NEO_LEVEL_LOCAL] + st->op[op].bytes[NEO_LEVEL_CROSS];
    return bytes;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    static const Set TWO = {.name = "hot", .features = FEATURES, .most = MOST};
    Hot *g = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    neo_state *state;
    neo_jagged_buffer *split;
    neo_jagged_desc d = {.feature_count = 2 * FEATURES, .max_bags = g->batch * 2 * FEATURES,
                         .max_ids = g->batch * FEATURES * g->most};
    neo_group all = neo_comm_group(comm);
    TRY(make_tables(g, comm, &shard));
    TRY(neo_jagged_create(neo_comm_ctx(comm), &d, &split));
    Case *c = calloc(1, sizeof *c);
    c->set = &TWO;
    for (int s = 0; s < g->steps; s++) {
        Mine m;
        c->offsets[s] = g->offsets[s], c->ids[s] = g->ids[s], c->size[s] = g->batch;
        c->weights[s] = calloc((size_t)(g->offsets[s][FEATURES * g->batch] + 1), 4);
        mine_make(&m, c, s, rank, ranks);
        TRY(one_step(g, shard, split, rank, s, &m));
        mine_free(&m);
        free(c->weights[s]);
    }
    free(c);
    neo_shard_stats st = neo_shard_get_stats(shard);
    int64_t bytes = sent_bytes(&st.ids) + sent_bytes(&st.rows);
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &bytes, &bytes, 1, NEO_I64, NULL));
    uint64_t digest = 0;
    TRY(neo_state_create(neo_comm_ctx(comm), &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &all, &digest));
    neo_state_destroy(state);
    EXPECT(g->first || digest == g->digest);
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) g->bytes = bytes, g->digest = digest;
    neo_jagged_destroy(split);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static int64_t spawn(Hot *g, const char *what, int ranks) {
    neo_comm_desc d = {.ctx = {.repro_shards = LEAVES, .seed = 1, .threads = 1},
                       .timeout_ms = TEST_PATIENCE_MS};
    memset(wrong, 0, sizeof wrong);
    if (neo_comm_spawn(ranks, &d, run_rank, g, NULL) != NEO_OK)
        FAIL("%s: %s", what, neo_last_error());
    check_wrong(what, ranks);
    g->first = 0;
    return g->bytes;
}

/* The rank that has a row of x, cut by rows, and that of a sample. */
static int rank_of_row(const Hot *g, int64_t row, int ranks) {
    int r = 0;
    for (; r + 1 < ranks; r++) {
        const int64_t b = (int64_t)LEAVES * (r + 1) / ranks;
        if (row < b * (g->rows / LEAVES) + b * (g->rows % LEAVES) / LEAVES) break;
    }
    return r;
}
/* Bytes that hot rows save on ranks that divide the leaves: a part is the rows of a rank. */
static int64_t saved_bytes(const Hot *g, int ranks) {
    int64_t saved = 0;
    const int64_t row = (int64_t)neo_wire_row_bytes(g->wire, g->dim);
    for (int s = 0; s < g->steps; s++) {
        for (int64_t bag = 0; bag < FEATURES * g->batch; bag++) {
            int hot[LEAVES] = {0}, cold[LEAVES] = {0};
            const int own = (int)(bag % g->batch * ranks / g->batch);
            for (int64_t k = g->offsets[s][bag]; k < g->offsets[s][bag + 1]; k++) {
                const int r = rank_of_row(g, g->ids[s][k], ranks);
                const int is_hot = place_of(g->hot, g->count, g->ids[s][k]) >= 0;
                if (r == own) continue;
                hot[r] |= is_hot, cold[r] |= !is_hot;
                saved += is_hot ? 4 : 0;
            }
            for (int r = 0; r < ranks; r++) /* forward parts of the rows travel as f32 */
                saved += hot[r] && !cold[r] ? 4 * g->dim + row : 0;
        }
        saved -= 2 * (ranks - 1) * g->count * (4 * g->dim + 1);
    }
    return saved;
}
/* The rows that a profile of the data names, rising. */
static void name_rows(Hot *g, int64_t count) {
    static const int32_t features[] = {0, 0};
    neo_table_desc table = {.name = "x", .rows = g->rows, .dim = g->dim};
    neo_bags_desc bags = {.tables = &table, .table_count = 1, .feature_table = features,
                          .feature_count = FEATURES, .max_batch = g->batch, .max_ids = 1};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    neo_profile *p, *read;
    int64_t n, uses = INT64_MAX, *counts = calloc((size_t)g->rows, 8), above = 0;
    CHECK_OK(neo_profile_create(ctx, &bags, &p));
    for (int s = 0; s < g->steps; s++) {
        neo_jagged j = {.batch = g->batch, .feature_count = FEATURES, .id_dtype = NEO_I64,
                        .offsets = g->offsets[s], .ids = g->ids[s]};
        CHECK_OK(neo_profile_add(p, &j));
        for (int64_t k = 0; k < g->offsets[s][FEATURES * g->batch]; k++) counts[g->ids[s][k]]++;
    }
    CHECK(neo_profile_rows(p, "x", &n) == NULL && n == 0);
    CHECK_OK(neo_profile_hot(p, count));
    const int64_t *rows = neo_profile_rows(p, "x", &g->count);
    CHECK(g->count > 0 && g->count <= count);
    for (int64_t i = 0; i < g->count; i++) { /* the most used first, of equals the first */
        CHECK(counts[rows[i]] < uses || (counts[rows[i]] == uses && rows[i] > rows[i - 1]));
        uses = counts[rows[i]];
        g->hot[i] = rows[i];
    }
    for (int64_t r = 0; r < g->rows; r++) above += counts[r] > uses;
    CHECK(above < g->count);
    CHECK_OK(neo_profile_write(p, "build/tmp_hot.profile"));
    CHECK_OK(neo_profile_read(ctx, "build/tmp_hot.profile", &read));
    rows = neo_profile_rows(read, "x", &n);
    CHECK(n == g->count && memcmp(rows, g->hot, 8 * (size_t)n) == 0);
    CHECK_ERR(neo_profile_hot(read, 5), NEO_ERR_STATE, "was read from a file");
    remove("build/tmp_hot.profile");
    for (int64_t i = 1; i < g->count; i++)
        for (int64_t k = i; k > 0 && g->hot[k - 1] > g->hot[k]; k--) {
            const int64_t row = g->hot[k];
            g->hot[k] = g->hot[k - 1], g->hot[k - 1] = row;
        }
    neo_profile_destroy(p), neo_profile_destroy(read);
    free(counts);
    neo_ctx_destroy(ctx);
}
/* Bytes without hot rows less those with them. */
static void bytes_fall_as_predicted(void) {
    static const neo_wire wires[] = {NEO_WIRE_F32, NEO_WIRE_BF16, NEO_WIRE_I8};
    for (int way = 0; way < 6; way++) {
        static Hot g, plain;
        char what[100];
        memset(&g, 0, sizeof g);
        g.rows = 1000, g.dim = 24, g.batch = 64, g.most = way % 2 ? 1 : MOST, g.steps = STEPS;
        g.skip = 1, g.wire = wires[way / 2];
        hot_data(&g, 1.2);
        plain = g;
        for (int s = 0; s < STEPS; s++)
            plain.out[s] = malloc(4 * (size_t)(FEATURES * g.batch * g.dim));
        name_rows(&g, 20);
        g.first = plain.first = 1;
        for (int ranks = 1; ranks <= 8; ranks *= 2) {
            snprintf(what, sizeof what, "way %d on %d ranks", way, ranks);
            g.by_rank = 0;
            const int64_t bytes = spawn(&g, what, ranks), all = spawn(&plain, what, ranks);
            if (ranks > 1) CHECK_INT(all - bytes, saved_bytes(&g, ranks));
            g.by_rank = 1; /* the same bits by another plan */
            g.skip = ranks % 4 == 0;
            spawn(&g, what, ranks);
            g.skip = 1;
        }
        for (int s = 0; s < STEPS; s++) free(plain.out[s]);
        hot_free(&g);
    }
}
/* No bag has an id: no row travels, and none changes. */
static void bags_are_all_empty(void) {
    static const neo_wire wires[] = {NEO_WIRE_F32, NEO_WIRE_F16, NEO_WIRE_I4};
    for (int way = 0; way < 3; way++) {
        static Hot g;
        memset(&g, 0, sizeof g);
        g.rows = 100, g.dim = 24, g.batch = 19, g.most = 0, g.steps = STEPS;
        g.first = g.skip = 1, g.wire = wires[way];
        hot_data(&g, 1.2);
        for (int ranks = 1; ranks <= 8; ranks += 1 + ranks / 6) {
            /* lengths to each other rank, which has one part, and a status between each two */
            const int64_t lengths = STEPS * (ranks - 1) * 4 * (FEATURES * g.batch + ranks);
            const int64_t bytes = spawn(&g, "empty", ranks);
            if (LEAVES % ranks == 0) CHECK_INT(bytes, lengths);
        }
        hot_free(&g);
    }
}
/* Ids of a Zipf law of exponent 1.05, one of each bag, on 8 ranks: what every rank would send. */
static void bytes_of_a_zipf_law(void) {
    static Hot g;
    int64_t bytes[3];
    memset(&g, 0, sizeof g);
    g.rows = 20000, g.dim = 16, g.batch = 8192, g.most = 1, g.steps = 1;
    hot_data(&g, 1.05);
    for (int i = 0; i < 3; i++) {
        g.first = 1, g.skip = i > 0;
        if (i == 2) name_rows(&g, 200);
        bytes[i] = spawn(&g, "zipf", 8);
    }
    CHECK_INT(bytes[1] - bytes[2], saved_bytes(&g, 8));
    CHECK(bytes[2] < bytes[1] * 7 / 10 && bytes[1] < bytes[0] / 4);
    printf("zipf 1.05, 8 ranks, rw: %lld bytes; empty bags skipped %lld; %lld hot rows %lld\n",
           (long long)bytes[0], (long long)bytes[1], (long long)g.count, (long long)bytes[2]);
    hot_free(&g);
}
int main(void) {
    RUN(a_batch_is_split_as_by_hand);
    RUN(bytes_fall_as_predicted);
    RUN(bytes_of_a_zipf_law);
    RUN(bags_are_all_empty);
    return test_end("shard/hot_rows");
}
