/* towers.c: tables in towers train as on one rank, on any number of nodes; what crosses nodes, and
   the memory, are as stated.

   The oracle is a neo_bags that sees the whole batch, with the same modules: a fixed product. */
#include "neo_data.h"
#include "common.h"

enum { TOWERS = 4, OUT = 5 };

typedef struct Towered {
    Case c;
    int32_t table_tower[MAX_TABLES];
    neo_towers_desc desc;
    int i32;                             /* ids of 32 bits */
    float *z[MAX_STEPS], *dz[MAX_STEPS]; /* [size][TOWERS][OUT] */
    int nodes;
    const char *folder; /* save after half of the steps, or (resume) load that */
    int resume;
} Towered;

/* The module of every tower, a product with fixed numbers, and its gradient. */
static float number(int64_t i, int64_t o) { return (float)((i * 7 + o * 3) % 5 - 2) / 4; }
static void module_forward(const float *in, int64_t width, float *out) {
    for (int64_t o = 0; o < OUT; o++) {
        out[o] = 0;
        for (int64_t i = 0; i < width; i++) out[o] += in[i] * number(i, o);
    }
}
static void module_backward(const float *dout, int64_t width, float *din) {
    for (int64_t i = 0; i < width; i++) {
        din[i] = 0;
        for (int64_t o = 0; o < OUT; o++) din[i] += dout[o] * number(i, o);
    }
}
static void code(neo_ctx *ctx, neo_wire wire, float *row) {
    char coded[256];
    neo_wire_encode(ctx, wire, 0, row, 1, OUT, OUT, coded, NULL);
    neo_wire_decode(ctx, wire, 0, coded, 1, OUT, OUT, row);
}
/* Between a row of all features and that of a tower; the width. */
static int64_t tower_columns(const Towered *t, int tower, float *all, float *row, int back) {
    int64_t width = 0, col = 0;
    for (int f = 0; f < t->c.set->features; f++) {
        const int table = t->c.set->feature_table[f];
        const int64_t dim = t->c.set->dims[table];
        if (t->table_tower[table] == tower) {
            if (back)
                memcpy(all + col, row + width, 4 * (size_t)dim);
            else
                memcpy(row + width, all + col, 4 * (size_t)dim);
            width += dim;
        }
        col += dim;
    }
    return width;
}

static void oracle(Towered *t, neo_ctx *ctx) {
    Case *c = &t->c;
    float row[MAX_TABLES * MAX_DIM], dout[OUT];
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int s = 0; s < c->steps; s++) {
        neo_jagged j = whole_batch(c, s);
        t->z[s] = malloc(4 * (size_t)(c->size[s] * TOWERS * OUT));
        t->dz[s] = malloc(4 * (size_t)(c->size[s] * TOWERS * OUT));
        test_fill(t->dz[s], c->size[s] * TOWERS * OUT);
        neo_tensor rows = neo_tensor_2d(c->out[s], NEO_F32, c->size[s], c->width);
        CHECK_OK(neo_bags_forward(c->oracle, &j, rows));
        for (int64_t i = 0; i < c->size[s] * TOWERS; i++) {
            float *all = c->out[s] + i / TOWERS * c->width;
            int64_t width = tower_columns(t, (int)(i % TOWERS), all, row, 0);
            module_forward(row, width, t->z[s] + i * OUT);
            code(ctx, t->desc.wire_forward, t->z[s] + i * OUT);
            memcpy(dout, t->dz[s] + i * OUT, sizeof dout);
            code(ctx, t->desc.wire_backward, dout);
            module_backward(dout, width, row);
            tower_columns(t, (int)(i % TOWERS), c->dout[s] + i / TOWERS * c->width, row, 1);
        }
        rows.data = c->dout[s];
        CHECK_OK(neo_bags_backward(c->oracle, &j, rows, 0.05f));
    }
    c->digest = bags_digest(ctx, c->oracle);
}

static neo_status step(const Towered *t, neo_comm *comm, neo_towers *towers, int s) {
    const Case *c = &t->c;
    const int rank = neo_comm_rank(comm);
    float *z = malloc(4 * BATCH * TOWERS * OUT);
    int32_t *narrow = NULL;
    Mine m;
    mine_make(&m, c, s, rank, neo_comm_size(comm));
    if (s % 2) shift(&m, c->set->features);
    if (t->i32) {
        const int64_t end = m.offsets[m.n * c->set->features];
        narrow = malloc(4 * (size_t)end + 1);
        for (int64_t i = m.offsets[0]; i < end; i++) narrow[i] = (int32_t)m.ids[i];
        m.j.ids = narrow;
        m.j.id_dtype = NEO_I32;
    }
    const int split = s % 3 != 1; /* each call, or its begin and end */
    if (split) {
        TRY(neo_towers_forward_begin(towers, &m.j, c->size[s]));
        if (s == 0) { /* calls out of order change nothing */
            EXPECT_ERR(neo_towers_forward_begin(towers, &m.j, c->size[s]), NEO_ERR_STATE,
                       "the end of what has begun comes first");
            EXPECT_ERR(neo_towers_exchange_begin(towers), NEO_ERR_STATE, "forward comes first");
        }
        TRY(neo_towers_forward_end(towers));
    } else {
        TRY(neo_towers_forward(towers, &m.j, c->size[s]));
    }
    for (int k = 0; k < neo_towers_held(towers); k++) {
        const neo_tower tower = neo_towers_at(towers, k);
        for (int64_t i = 0; i < tower.in.shape[0]; i++)
            module_forward((float *)tower.in.data + i * tower.in.stride[0], tower.in.shape[1],
                           (float *)tower.out.data + i * tower.out.stride[0]);
    }
    const int64_t first = m.begin * TOWERS * OUT, count = m.n * TOWERS * OUT;
    const neo_tensor all = neo_tensor_2d(z, NEO_F32, m.n, TOWERS * OUT);
    if (split) {
        TRY(neo_towers_exchange_begin(towers));
        if (s == 0)
            EXPECT_ERR(neo_towers_exchange_back_begin(towers, all), NEO_ERR_STATE,
                       "exchange comes first");
        TRY(neo_towers_exchange_end(towers, all));
    } else {
        TRY(neo_towers_exchange(towers, all));
    }
    EXPECT(memcmp(z, t->z[s] + first, 4 * (size_t)count) == 0);
    memcpy(z, t->dz[s] + first, 4 * (size_t)count);
    if (split) {
        TRY(neo_towers_exchange_back_begin(towers, all));
        TRY(neo_towers_exchange_back_end(towers));
    } else {
        TRY(neo_towers_exchange_back(towers, all));
    }
    for (int k = 0; k < neo_towers_held(towers); k++) {
        const neo_tower tower = neo_towers_at(towers, k);
        for (int64_t i = 0; i < tower.in.shape[0]; i++)
            module_backward((float *)tower.dout.data + i * tower.dout.stride[0], tower.in.shape[1],
                            (float *)tower.din.data + i * tower.din.stride[0]);
    }
    if (split) {
        TRY(neo_towers_backward_begin(towers));
        if (s == 0)
            EXPECT_ERR(neo_towers_backward_begin(towers), NEO_ERR_STATE, "exchange_back comes");
        TRY(neo_towers_backward_end(towers, 0.05f));
    } else {
        TRY(neo_towers_backward(towers, 0.05f));
    }
    mine_free(&m), free(z), free(narrow);
    return NEO_OK;
}

/* Bytes that step s moves from and to this rank's samples and towers, counted sample by sample:
   those that it sends, to its node and to others. */
static void count_bytes(const Towered *t, int s, int rank, int ranks,
                        int64_t bytes[NEO_LEVEL_COUNT]) {
    const Case *c = &t->c;
    const int per_node = ranks / t->nodes;
    for (int64_t i = 0; i < c->size[s]; i++) {
        const int mine = rank_of(c, s, i, ranks), place = rank_of(c, s, i, per_node);
        for (int node = 0; node < t->nodes; node++) {
            const int there = node * per_node + place;
            const int level = mine / per_node == node ? NEO_LEVEL_LOCAL : NEO_LEVEL_CROSS;
            if (there == mine) continue;
            for (int f = 0; f < c->set->features && mine == rank; f++) {
                const int tower = t->table_tower[c->set->feature_table[f]];
                if (tower < TOWERS * node / t->nodes || tower >= TOWERS * (node + 1) / t->nodes)
                    continue;
                const int64_t *at = c->offsets[s] + f * c->size[s] + i;
                bytes[level] += 4 + (at[1] - at[0]) * ((t->i32 ? 4 : 8) + 4 * c->weighted);
            }
            const int held = TOWERS * (node + 1) / t->nodes - TOWERS * node / t->nodes;
            const size_t forward = neo_wire_row_bytes(t->desc.wire_forward, OUT),
                         backward = neo_wire_row_bytes(t->desc.wire_backward, OUT);
            if (there == rank) bytes[level] += held * (int64_t)forward;
            if (mine == rank) bytes[level] += held * (int64_t)backward;
        }
    }
}

static neo_status check_state(neo_comm *comm, neo_towers *towers, uint64_t want, int half,
                              const char *folder, int resume) {
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    uint64_t digest = 0;
    const int rank = neo_comm_rank(comm);
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_towers(state, towers, NULL));
    if (half && resume)
        TRY(neo_load(ctx, &(neo_load_desc){.dir = folder, .group = &all}, state, NULL));
    if (half && !resume) TRY(neo_save(ctx, &(neo_save_desc){.dir = folder, .group = &all}, state));
    TRY(neo_state_digest_group(state, &all, &digest));
    if (!half) EXPECT(digest == want);
    neo_state_destroy(state);
    return NEO_OK;
}

static neo_status run_rank(neo_comm *comm, void *user) {
    const Towered *t = user;
    const Case *c = &t->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), per_node = ranks / t->nodes;
    const neo_comm_desc group = {.ctx = {.repro_shards = LEAVES}};
    neo_towers *towers;
    size_t planned;
    int64_t bytes[NEO_LEVEL_COUNT] = {0};
    TRY(neo_towers_bytes(ctx, &t->desc, ranks, per_node, rank, &planned));
    const size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_towers_create(comm, &t->desc, &towers));
    size_t groups = 0;
    const int sizes[2] = {ranks, per_node};
    for (int i = 0; i < 2; i++)
        groups += neo_comm_workspace_bytes(&group, sizes[i], NEO_BACKEND_THREADS);
    groups += inside_group_bytes(neo_towers_shard(towers), neo_towers_comm(towers), LEAVES);
    EXPECT(neo_ctx_memory(ctx).bytes - before - groups == planned);
    for (int s = 0; s < c->steps; s++) {
        if (t->folder && s == c->steps / 2)
            TRY(check_state(comm, towers, 0, 1, t->folder, t->resume));
        if (t->resume && s < c->steps / 2) continue;
        const int64_t allocs = neo_ctx_memory(ctx).alloc_count,
                      grown = neo_towers_grow_count(towers);
        TRY(step(t, comm, towers, s));
        count_bytes(t, s, rank, ranks, bytes);
        if (neo_towers_grow_count(towers) == grown)
            EXPECT(neo_ctx_memory(ctx).alloc_count == allocs);
    }
    const neo_comm_stats stats = neo_towers_stats(towers);
    for (int level = 0; level < NEO_LEVEL_COUNT; level++)
        EXPECT(stats.op[NEO_COMM_ALL_TO_ALL].bytes[level] == bytes[level]);
    TRY(check_state(comm, towers, c->digest, 0, NULL, 0));
    neo_towers_destroy(towers);
    return NEO_OK;
}

static void spawn(Towered *t, int ranks, int nodes, const char *what) {
    t->nodes = nodes;
    t->c.plan.cluster.ranks_per_node = ranks / nodes;
    spawn_case(&t->c, what, ranks, run_rank, t);
}

static void towered(Towered *t, int kind, int weighted, int steps) {
    memset(t, 0, sizeof *t);
    case_tables(&t->c, &ZIPF, kind, kind == KINDS ? 0 : -1,
                weighted ? NEO_POOL_MEAN : NEO_POOL_SUM);
    t->c.weighted = weighted;
    t->c.steps = steps;
    case_data(&t->c);
    t->c.plan.bags = &t->c.bags;
    t->c.plan.weighted = weighted;
    for (int i = 0; i < ZIPF.tables; i++) t->table_tower[i] = (i * 3 + 1) % TOWERS;
    t->desc = (neo_towers_desc){
        .plan = &t->c.plan, .table_tower = t->table_tower, .tower_count = TOWERS, .out_width = OUT};
}
static void towered_free(Towered *t) {
    for (int s = 0; s < t->c.steps; s++) free(t->z[s]), free(t->dz[s]);
    case_free(&t->c);
}

/* Optimizers, weights, widths of ids, wires; ranks and nodes. */
static void grid(neo_ctx *ctx) {
    static const int ranks[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 4}, {6, 3}, {8, 4}};
    static const neo_wire wires[][2] = {
        {NEO_WIRE_F32, NEO_WIRE_F32}, {NEO_WIRE_BF16, NEO_WIRE_F32}, {NEO_WIRE_I8, NEO_WIRE_BF16}};
    for (int cell = 0; cell < 4; cell++) {
        Towered *t = malloc(sizeof *t);
        towered(t,
                cell == 0   ? KINDS
                : cell == 1 ? NEO_BAG_ADAM
                            : NEO_BAG_ROWWISE_ADAGRAD,
                cell % 2, 4);
        t->i32 = cell == 2;
        t->desc.wire_forward = wires[cell % 3][0];
        t->desc.wire_backward = wires[cell % 3][1];
        if (cell == 3) t->c.plan.ids_per_sample = FEW_IDS; /* buffers grow */
        oracle(t, ctx);
        for (int i = 0; i < (int)(sizeof ranks / sizeof *ranks); i++)
            spawn(t, ranks[i][0], ranks[i][1], "grid");
        towered_free(t), free(t);
    }
}

/* A checkpoint knows no nodes: saved on two, loaded on one and on four. */
static void resume(neo_ctx *ctx) {
    char folder[512];
    Towered *t = malloc(sizeof *t);
    towered(t, NEO_BAG_ADAM, 0, 4);
    oracle(t, ctx);
    snprintf(folder, sizeof folder, "%s/towers", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    t->folder = folder;
    spawn(t, 4, 2, "save");
    t->resume = 1;
    spawn(t, 2, 1, "resume");
    spawn(t, 4, 4, "resume");
    towered_free(t), free(t);
}

/* A bad id of one rank, seen by another node: all ranks say so, and the next batch trains. */
static neo_status bad_batch(neo_comm *comm, void *user) {
    Towered *t = user;
    const int rank = neo_comm_rank(comm);
    neo_towers *towers;
    Mine m;
    TRY(neo_towers_create(comm, &t->desc, &towers));
    mine_make(&m, &t->c, 0, rank, neo_comm_size(comm));
    if (rank == 1) m.ids[0] = 64;
    EXPECT_ERR(neo_towers_forward(towers, &m.j, t->c.size[0]), NEO_ERR_RANGE, "table 't0'");
    EXPECT_ERR(neo_towers_exchange(towers, neo_tensor_none()), NEO_ERR_STATE, "forward comes");
    mine_free(&m);
    mine_make(&m, &t->c, 0, rank, neo_comm_size(comm));
    if (rank == 2) m.j.feature_count--;
    EXPECT_ERR(neo_towers_forward(towers, &m.j, t->c.size[0]), NEO_ERR_ARG,
               "rank 2: neo_towers_forward: a batch of 9 features");
    mine_free(&m);
    for (int s = 0; s < t->c.steps; s++) TRY(step(t, comm, towers, s));
    TRY(check_state(comm, towers, t->c.digest, 0, NULL, 0));
    neo_towers_destroy(towers);
    return NEO_OK;
}
/* Descriptions that are refused. */
static neo_status refused(neo_comm *comm, void *user) {
    Towered *t = user;
    Case *c = &t->c;
    const int rank = neo_comm_rank(comm);
    neo_towers *towers;
    neo_towers_desc d = t->desc;
    neo_table_desc tables[MAX_TABLES];
    neo_bags_desc bags = c->bags;
    neo_plan_desc plan = c->plan;
    d.tower_count = TOWERS + 1;
    EXPECT_ERR(neo_towers_create(comm, &d, &towers), NEO_ERR_ARG, "tower 4 has no tables");
    d.tower_count = 1;
    EXPECT_ERR(neo_towers_create(comm, &d, &towers), NEO_ERR_ARG, "1 towers on 2 nodes");
    d.tower_count = TOWERS;
    d.out_width = rank == 3 ? OUT : OUT + 1;
    EXPECT_ERR(neo_towers_create(comm, &d, &towers), NEO_ERR_MISMATCH, "other towers, out_width");
    d.out_width = OUT;
    memcpy(tables, c->tables, sizeof tables);
    tables[2].pooling = NEO_POOL_NONE;
    bags.tables = tables;
    plan.bags = &bags;
    d.plan = &plan;
    EXPECT_ERR(neo_towers_create(comm, &d, &towers), NEO_ERR_UNSUPPORTED, "'t2' is not pooled");
    d.plan = NULL;
    EXPECT_ERR(neo_towers_create(comm, &d, &towers), NEO_ERR_ARG, "desc lacks plan");
    EXPECT(towers == NULL);
    return NEO_OK;
}
/* The same on one rank alone: what would be read outside of arrays, or fits no number. */
static void refused_sizes(const Towered *t, neo_ctx *ctx) {
    const Case *c = &t->c;
    const int64_t huge = INT64_MAX / 4;
    neo_table_desc tables[MAX_TABLES];
    int32_t features[MAX_TABLES];
    double ids[MAX_TABLES];
    size_t bytes;
    for (int k = 0; k < 9; k++) {
        static const char *const say[] = {"no name", "both named", "feature_table[1] is 99",
                                          "feature_table[1] is -1", "feature_count is -4",
                                          "no tables that a feature reads", "do not fit in memory",
                                          "do not fit in memory", "ids_per_sample[1] is"};
        neo_bags_desc bags = c->bags;
        neo_plan_desc plan = c->plan;
        neo_towers_desc d = t->desc;
        memcpy(tables, c->tables, sizeof tables);
        for (int f = 0; f < c->set->features; f++)
            features[f] = c->set->feature_table[f], ids[f] = f == 1 ? NAN : 1;
        bags.tables = tables, bags.feature_table = features;
        plan.bags = &bags, d.plan = &plan;
        if (k == 0) tables[1].name = NULL;
        if (k == 1) tables[1].name = tables[0].name;
        if (k == 2) features[1] = 99;
        if (k == 3) features[1] = -1;
        if (k == 4) bags.feature_count = -4;
        if (k == 5) bags.feature_count = 1;
        if (k == 6) bags.max_batch = huge;
        if (k == 7) bags.max_ids = huge;
        if (k == 8) plan.ids_per_sample = ids;
        CHECK_ERR(neo_towers_bytes(ctx, &d, 4, 2, 0, &bytes), NEO_ERR_ARG, say[k]);
    }
}
static void errors(neo_ctx *ctx) {
    Towered *t = malloc(sizeof *t);
    towered(t, NEO_BAG_SGD, 0, 2);
    oracle(t, ctx);
    refused_sizes(t, ctx);
    t->nodes = 2;
    t->c.plan.cluster.ranks_per_node = 2;
    spawn_refused(&t->c, 4, bad_batch, t);
    spawn_refused(&t->c, 4, refused, t);
    towered_free(t), free(t);
}

/* The best of all ways to part six features in two towers of three, by trying them. */
static double best_of_all(const double *affinity) {
    double best = 0;
    for (int mask = 0; mask < 64; mask++) {
        double sum = 0;
        if (__builtin_popcount((unsigned)mask) != 3) continue;
        for (int i = 0; i < 6; i++)
            for (int k = 0; k < i; k++)
                if ((mask >> i & 1) == (mask >> k & 1)) sum += affinity[6 * i + k];
        if (sum > best) best = sum;
    }
    return best;
}
static void partition(neo_ctx *ctx) {
    int32_t tower[40];
    double affinity[1600], cost[40];
    for (int round = 0; round < 20; round++) {
        double sum = 0;
        for (int i = 0; i < 6; i++)
            for (int k = 0; k <= i; k++)
                affinity[6 * i + k] = affinity[6 * k + i] = (double)(test_random() % 100);
        CHECK_OK(neo_tower_partition(ctx, affinity, NULL, 6, 2, 0, tower));
        for (int i = 0; i < 6; i++)
            for (int k = 0; k < i; k++)
                if (tower[i] == tower[k]) sum += affinity[6 * i + k];
        CHECK(sum >= 0.9 * best_of_all(affinity)); /* no swap helps: near the best, if not it */
    }
    /* Blocks are found; costs keep within their share. */
    double load[4] = {0}, total = 0;
    for (int i = 0; i < 40; i++) {
        total += cost[i] = 1 + i / 4 % 3;
        for (int k = 0; k < 40; k++) affinity[40 * i + k] = i % 4 == k % 4 ? 1 : 0.1;
    }
    CHECK_OK(neo_tower_partition(ctx, affinity, cost, 40, 4, 0.05, tower));
    for (int i = 0; i < 40; i++) {
        CHECK(tower[i] == tower[i % 4]);
        load[tower[i]] += cost[i];
    }
    for (int i = 0; i < 4; i++) CHECK(load[i] <= 1.05 * total / 4);
    affinity[41] = NAN;
    CHECK_ERR(neo_tower_partition(ctx, affinity, cost, 40, 4, 0.05, tower), NEO_ERR_ARG,
              "affinity[1][1] is nan");
    CHECK_ERR(neo_tower_partition(ctx, affinity, cost, 3, 4, 0, tower), NEO_ERR_ARG,
              "4 towers of 3");
    /* Cosines: of equal rows 1, of rows at right angles 0, of a row of zeros 0. */
    float rows[2][8] = {{1, 2, -2, -4, 2, -1, 0, 0}, {3, 0, 1, 0, 0, 5, 0, 0}};
    CHECK_OK(neo_tower_affinity(ctx, neo_tensor_2d(rows, NEO_F32, 2, 8), 4, affinity));
    CHECK(fabs(affinity[1] - 1) < 1e-12 && fabs(affinity[4] - 1) < 1e-12);
    CHECK(affinity[2] == 0 && affinity[3] == 0 && affinity[15] == 0);
}

static void with_ctx(void (*test)(neo_ctx *)) {
    neo_ctx *ctx;
    CHECK_OK(neo_ctx_create(&(neo_ctx_desc){.repro_shards = LEAVES, .seed = 1}, &ctx));
    test(ctx);
    neo_ctx_destroy(ctx);
}
static void test_nodes(void) { with_ctx(grid); }
static void test_resume(void) { with_ctx(resume); }
static void test_refused(void) { with_ctx(errors); }
static void test_partition(void) { with_ctx(partition); }

int main(void) {
    RUN(test_nodes);
    RUN(test_resume);
    RUN(test_refused);
    RUN(test_partition);
    return test_end("shard/towers");
}
