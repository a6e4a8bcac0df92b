/* common.h: tables, batches, plans and the one-rank oracle, for the tests of sharded tables. */
#ifndef NEO_TEST_SHARD_COMMON_H
#define NEO_TEST_SHARD_COMMON_H

#include "neo_data.h"
#include "neo_fsdp.h"
#include "digest.h"
#include "inside.h"
#include "test.h"
#include <time.h>

enum {
    MAX_TABLES = 26,
    MAX_STEPS = 20,
    MAX_DIM = 80,
    BATCH = 48,
    LEAVES = 8,
    NODES = 2,
    KINDS = NEO_BAG_OPTIM_COUNT
};

/* Tables and the shape of their batches. */
typedef struct Set {
    const char *name;
    int tables, features, most; /* most ids of a bag */
    int64_t rows[MAX_TABLES], dims[MAX_TABLES];
    int32_t feature_table[MAX_TABLES];
    int one_id; /* each bag has just one */
} Set;
/* Bags of 0 to 4 ids that follow a Zipf law; dims that leave vectors ragged; tables that two
   features share; tables with fewer rows than ranks; a feature that is absent from a batch. */
static const Set ZIPF = {"zipf",
                         7,
                         9,
                         4,
                         {64, 200, 5, 1000, 1, 33, 400},
                         {32, 64, 16, 48, 7, 1, 80},
                         {0, 1, 2, 3, 4, 5, 6, 1, 3},
                         0};
/* The 26 tables of Criteo Kaggle, large ones cut down. */
static const Set CRITEO = {
    "criteo",
    26,
    26,
    1,
    {1460, 583,  2000, 2000, 305, 24,  1251, 633,  3,  931, 568, 1900, 319,
     27,   1499, 1800, 10,   565, 217, 4,    1700, 18, 15,  286, 105,  142},
    {32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32,
     32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25},
    1};

typedef struct Case {
    const Set *set;
    neo_table_desc tables[MAX_TABLES];
    neo_bags_desc bags;
    neo_plan_desc plan;
    char names[MAX_TABLES][16];
    neo_piece pieces[MAX_TABLES * 64];
    int64_t piece_count;
    int steps, weighted, prefetch;
    /* the data: of all steps */
    int64_t *offsets[MAX_STEPS], *ids[MAX_STEPS];
    int64_t size[MAX_STEPS];
    float *weights[MAX_STEPS], *dout[MAX_STEPS];
    /* of the oracle */
    float *out[MAX_STEPS];
    neo_bags *oracle;
    uint64_t digest;
    int64_t width;
} Case;

static inline neo_bag_optim optim_of(int kind, int options) {
    neo_bag_optim o = {
        .kind = (neo_bag_optim_kind)kind, .initial_accumulator = 0.1f, .l1 = 1e-3f,
        .momentum = 0.9f};
    int own = o.kind >= NEO_BAG_LAMB;
    if (options & 1) {
        o.weight_decay = 0.01f;
        o.decay = own ? NEO_DECAY_NONE : kind % 2 ? NEO_DECAY_L2 : NEO_DECAY_DECOUPLED;
    }
    if (options & 2) o.max_norm = 0.7f;
    return o;
}
static inline void add_piece(Case *c, int table, int rank, int64_t first_row, int64_t rows,
                             int64_t first_col, int64_t cols) {
    c->pieces[c->piece_count++] = (neo_piece){table, rank, first_row, rows, first_col, cols};
}
/* Cut points of a table: columns at multiples of 16 (64: the wire's blocks), rows at buckets. */
/* A folder of its own; returns whether there is one. And no more of it. */
static inline int dir_make(char dir[256]) {
    snprintf(dir, 256, "%s/shard-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(dir) != NULL;
}
static inline int dir_remove(const char *dir) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0;
}
static int64_t cut_block;
static inline int cut_cols(int64_t dim, int most, int64_t *cut) {
    int n = 0;
    int64_t blocks = (dim + cut_block - 1) / cut_block, parts = blocks < most ? blocks : most;
    for (int64_t i = 0; i <= parts; i++)
        cut[n++] = i == parts ? dim : blocks * i / parts * cut_block;
    return n - 1;
}
static inline int cut_rows(int64_t rows, int most, int64_t *cut) {
    int n = 0, parts = most < LEAVES ? most : LEAVES;
    for (int i = 0; i <= parts; i++) {
        int64_t b = (int64_t)LEAVES * i / parts,
                row = b * (rows / LEAVES) + b * (rows % LEAVES) / LEAVES;
        if (n == 0 || row > cut[n - 1]) cut[n++] = row;
    }
    return n - 1;
}
/* The pieces of a table under a placement. */
static inline void place(Case *c, int t, neo_placement p, int ranks) {
    int64_t col[17], row[17];
    int per_node = ranks % NODES == 0 ? ranks / NODES : ranks, nodes = ranks / per_node,
        node = (int)test_random() % nodes;
    int any = (int)test_random();
    int cols = 1, rows = 1;
    col[0] = row[0] = 0;
    col[1] = c->set->dims[t];
    row[1] = c->set->rows[t];
    if (p == NEO_COLUMN_WISE) cols = cut_cols(c->set->dims[t], ranks, col);
    if (p == NEO_TABLE_COLUMN_WISE) cols = cut_cols(c->set->dims[t], per_node, col);
    if (p == NEO_GRID) cols = cut_cols(c->set->dims[t], nodes, col);
    if (p == NEO_ROW_WISE) rows = cut_rows(c->set->rows[t], ranks, row);
    if (p == NEO_TABLE_ROW_WISE || p == NEO_GRID) rows = cut_rows(c->set->rows[t], per_node, row);
    if (c->tables[t].dtype == NEO_I8) { /* its scales are those of whole rows */
        cols = 1;
        col[1] = c->set->dims[t];
    }
    if (p == NEO_DATA_PARALLEL) {
        add_piece(c, t, NEO_EVERY_RANK, 0, c->set->rows[t], 0, c->set->dims[t]);
        return;
    }
    for (int i = 0; i < cols; i++)
        for (int k = 0; k < rows; k++) {
            int rank = 0;
            if (p == NEO_TABLE_WISE) rank = (any >> 3) % ranks;
            if (p == NEO_COLUMN_WISE) rank = (i + (any >> 3)) % ranks;
            if (p == NEO_ROW_WISE) rank = k;
            if (p == NEO_TABLE_ROW_WISE) rank = node * per_node + k;
            if (p == NEO_TABLE_COLUMN_WISE) rank = node * per_node + i;
            if (p == NEO_GRID) rank = i * per_node + k;
            add_piece(c, t, rank, row[k], row[k + 1] - row[k], col[i], col[i + 1] - col[i]);
        }
}
/* Any grid on any ranks. */
static inline void place_anyhow(Case *c, int t, int ranks) {
    int64_t col[17], row[17];
    if (test_random() % 6 == 0) {
        place(c, t, NEO_DATA_PARALLEL, ranks);
        return;
    }
    int most = c->tables[t].dtype == NEO_I8 ? 1 : 1 + (int)test_random() % 5;
    int cols = cut_cols(c->set->dims[t], most, col),
        rows = cut_rows(c->set->rows[t], 1 + (int)test_random() % 8, row);
    for (int i = 0; i < cols; i++)
        for (int k = 0; k < rows; k++)
            add_piece(c, t, (int)test_random() % ranks, row[k], row[k + 1] - row[k], col[i],
                      col[i + 1] - col[i]);
}

/* A plan of all tables: of one placement, of each in turn, or anyhow. */
enum { MIXED = NEO_PLACEMENT_COUNT, RANDOM };
static inline void place_tables(Case *c, int plan, int ranks) {
    for (int t = 0; t < c->set->tables; t++) {
        if (plan >= RANDOM) place_anyhow(c, t, ranks);
        else
            place(c, t,
                  plan == MIXED ? (neo_placement)(t % NEO_PLACEMENT_COUNT) : (neo_placement)plan,
                  ranks);
    }
}
static inline void plan_of(Case *c, int ranks) {
    c->plan.bags = &c->bags;
    c->plan.cluster.ranks = ranks;
    c->plan.cluster.ranks_per_node = ranks % NODES ? ranks : ranks / NODES;
    c->plan.pipeline = c->prefetch ? 1 + c->prefetch / 4 : 0;
    c->plan.weighted = c->weighted;
}

/* Sums over a whole row that an optimizer needs. */
static inline int sums_of(const neo_bag_optim *optim) {
    static const int sums[KINDS] = {0, 0, 1, 0, 1, 2, 3, 2, 0};
    return sums[optim->kind] + (optim->max_norm > 0);
}
/* kind: of the optimizer of all tables; KINDS: each has another. options: of all; below 0: any. */
static inline void case_tables(Case *c, const Set *set, int kind, int options,
                               neo_pooling pooling) {
    c->set = set;
    c->width = 0;
    for (int t = 0; t < set->tables; t++) {
        snprintf(c->names[t], sizeof c->names[t], "t%d", t);
        c->tables[t] =
            (neo_table_desc){.name = c->names[t],
                             .rows = set->rows[t],
                             .dim = set->dims[t],
                             .pooling = pooling,
                             .row_buckets = LEAVES,
                             .optim = optim_of(kind < KINDS ? kind : t % KINDS,
                                               options < 0 ? (int)test_random() % 4 : options)};
    }
    c->bags = (neo_bags_desc){.tables = c->tables,
                              .table_count = set->tables,
                              .feature_table = set->feature_table,
                              .feature_count = set->features,
                              .max_batch = BATCH,
                              .max_ids = BATCH * set->most * set->features};
    for (int f = 0; f < set->features; f++) c->width += set->dims[set->feature_table[f]];
}
/* Batches of several sizes: full, below the number of ranks, not a multiple of it. */
static inline void case_data(Case *c) {
    const Set *set = c->set;
    for (int s = 0; s < c->steps; s++) {
        c->size[s] = s % 4 == 1 ? 3 : s % 4 == 2 ? 13 : BATCH;
        int64_t bags = set->features * c->size[s];
        c->offsets[s] = malloc(8 * (size_t)(bags + 1));
        c->ids[s] = malloc(8 * (size_t)(bags * set->most + 1));
        c->weights[s] = malloc(4 * (size_t)(bags * set->most + 1));
        c->dout[s] = malloc(4 * (size_t)(c->size[s] * c->width + 1));
        c->out[s] = malloc(4 * (size_t)(c->size[s] * c->width + 1));
        c->offsets[s][0] = 0;
        for (int64_t i = 0; i < bags; i++) {
            int f = (int)(i / c->size[s]);
            int64_t length = set->one_id        ? 1
                             : f == 5 && s == 0 ? 0
                                                : (int64_t)test_random() % (set->most + 1);
            c->offsets[s][i + 1] = c->offsets[s][i] + length;
            for (int64_t k = c->offsets[s][i]; k < c->offsets[s][i + 1]; k++)
                c->ids[s][k] = neo_zipf((float)(test_random() >> 8) * 0x1p-23f,
                                        set->rows[set->feature_table[f]], 1.15f);
        }
        test_fill(c->weights[s], c->offsets[s][bags]);
        test_fill(c->dout[s], c->size[s] * c->width);
    }
}
/* Ids out of range, some of every feature: below 0, just above, far above. */
static inline void spoil(Case *c) {
    for (int s = 0; s < c->steps; s++)
        for (int f = 0; f < c->set->features; f++)
            for (int64_t k = c->offsets[s][f * c->size[s]]; k < c->offsets[s][(f + 1) * c->size[s]];
                 k++) {
                int64_t rows = c->set->rows[c->set->feature_table[f]];
                if (test_random() % 5 == 0)
                    c->ids[s][k] = k % 3 == 0 ? -1 - k : k % 3 == 1 ? rows : rows + 1000000;
            }
}
/* So few ids per sample that buffers have to grow. */
static const double FEW_IDS[] = {0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01};
/* What a wire makes of the rows of every feature. */
static inline void through_wire(const Case *c, neo_ctx *ctx, neo_wire wire, float *rows,
                                int64_t n) {
    char code[1024];
    int64_t col = 0;
    for (int f = 0; f < c->set->features; col += c->set->dims[c->set->feature_table[f++]])
        for (int64_t i = 0; i < n; i++) {
            float *row = rows + i * c->width + col;
            neo_wire_encode(ctx, wire, 0, row, 1, c->set->dims[c->set->feature_table[f]],
                            c->set->dims[c->set->feature_table[f]], code, NULL);
            neo_wire_decode(ctx, wire, 0, code, 1, c->set->dims[c->set->feature_table[f]],
                            c->set->dims[c->set->feature_table[f]], row);
        }
}
/* to = from, divided by the lengths of the bags. */
static inline void divide(const Case *c, int s, const float *from, float *to) {
    int64_t n = c->size[s], col = 0;
    for (int f = 0; f < c->set->features; col += c->set->dims[c->set->feature_table[f++]])
        for (int64_t i = 0; i < n; i++) {
            int64_t length = c->offsets[s][f * n + i + 1] - c->offsets[s][f * n + i];
            for (int64_t d = col; d < col + c->set->dims[c->set->feature_table[f]]; d++)
                to[i * c->width + d] =
                    length > 1 ? from[i * c->width + d] / (float)length : from[i * c->width + d];
        }
}
/* The samples of all ranks. */
static inline neo_jagged whole_batch(const Case *c, int s) {
    return (neo_jagged){.batch = c->size[s],
                        .feature_count = c->set->features,
                        .id_dtype = NEO_I64,
                        .offsets = c->offsets[s],
                        .ids = c->ids[s],
                        .weights = c->weighted ? c->weights[s] : NULL};
}
/* With wires: sums are rounded, then divided; gradients divided, then rounded. */
static inline void case_oracle(Case *c, neo_ctx *ctx) {
    neo_pooling pooling = c->tables[0].pooling;
    neo_wire forward = c->plan.wire_forward, backward = c->plan.wire_backward;
    int narrow = forward != NEO_WIRE_F32 || backward != NEO_WIRE_F32;
    for (int t = 0; t < c->set->tables; t++) c->tables[t].pooling = narrow ? NEO_POOL_SUM : pooling;
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int t = 0; t < c->set->tables; t++) c->tables[t].pooling = pooling;
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s];
        float *dout = malloc(4 * (size_t)(n * c->width + 1));
        neo_jagged j = whole_batch(c, s);
        CHECK_OK(neo_bags_forward(c->oracle, &j, neo_tensor_2d(c->out[s], NEO_F32, n, c->width)));
        memcpy(dout, c->dout[s], 4 * (size_t)(n * c->width));
        if (narrow) {
            through_wire(c, ctx, forward, c->out[s], n);
            if (pooling == NEO_POOL_MEAN) divide(c, s, c->out[s], c->out[s]);
            if (pooling == NEO_POOL_MEAN) divide(c, s, dout, dout);
            through_wire(c, ctx, backward, dout, n);
        }
        CHECK_OK(
            neo_bags_backward(c->oracle, &j, neo_tensor_2d(dout, NEO_F32, n, c->width), 0.05f));
        free(dout);
    }
    c->digest = bags_digest(ctx, c->oracle);
}
static inline void case_free(Case *c) {
    for (int s = 0; s < c->steps; s++) {
        free(c->offsets[s]), free(c->ids[s]), free(c->weights[s]), free(c->dout[s]),
            free(c->out[s]);
    }
    neo_bags_destroy(c->oracle);
}

/* One rank's samples of a step. */
typedef struct Mine {
    neo_jagged j;
    int64_t *offsets, *ids, begin, n;
    float *weights;
} Mine;
static inline void mine_make(Mine *m, const Case *c, int s, int rank, int ranks) {
    int64_t size = c->size[s], bag = 0, total = 0;
    m->begin = neo_leaf_begin(size, LEAVES, LEAVES * rank / ranks);
    m->n = neo_leaf_begin(size, LEAVES, LEAVES * (rank + 1) / ranks) - m->begin;
    m->offsets = malloc(8 * (size_t)(m->n * c->set->features + 1));
    m->ids = malloc(8 * (size_t)(m->n * c->set->features * c->set->most + 1));
    m->weights = malloc(4 * (size_t)(m->n * c->set->features * c->set->most + 1));
    m->offsets[0] = 0;
    for (int f = 0; f < c->set->features; f++)
        for (int64_t i = 0; i < m->n; i++) {
            const int64_t *at = c->offsets[s] + f * size + m->begin + i;
            for (int64_t k = at[0]; k < at[1]; k++) {
                m->weights[total] = c->weights[s][k];
                m->ids[total++] = c->ids[s][k];
            }
            m->offsets[++bag] = total;
        }
    m->j = (neo_jagged){.batch = m->n,
                        .feature_count = c->set->features,
                        .id_dtype = NEO_I64,
                        .offsets = m->offsets,
                        .ids = m->ids,
                        .weights = c->weighted ? m->weights : NULL};
}
/* The same batch as a view into longer arrays: its first id is not number 0. */
static inline void shift(Mine *m, int features) {
    enum { BEFORE = 3 };
    int64_t bags = m->n * features, ids = m->offsets[bags];
    int64_t *moved = malloc(8 * (size_t)(ids + BEFORE));
    float *weights = malloc(4 * (size_t)(ids + BEFORE));
    for (int64_t k = 0; k < ids + BEFORE; k++) {
        moved[k] = k < BEFORE ? INT64_MAX : m->ids[k - BEFORE];
        weights[k] = k < BEFORE ? NAN : m->weights[k - BEFORE];
    }
    for (int64_t i = 0; i <= bags; i++) m->offsets[i] += BEFORE;
    free(m->ids), free(m->weights);
    m->ids = moved;
    m->weights = weights;
    m->j.ids = moved;
    if (m->j.weights) m->j.weights = weights;
}
static inline void mine_free(Mine *m) { free(m->offsets), free(m->ids), free(m->weights); }

/* What each rank finds is added up by rank 0: checks that fail. */
static int wrong[64];
#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            wrong[rank]++;                                                                         \
            if (wrong[rank] < 3) printf("  rank %d, line %d: %s\n", rank, __LINE__, #cond);        \
        }                                                                                          \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)
#define EXPECT_ERR(call, code, text)                                                               \
    do {                                                                                           \
        neo_status got = (call);                                                                   \
        EXPECT(got == (code) && strstr(neo_last_error(), text));                                   \
        if (got != (code) || !strstr(neo_last_error(), text))                                      \
            printf("  rank %d, line %d: %d '%s'\n", rank, __LINE__, (int)got, neo_last_error());   \
    } while (0)

static inline neo_status make(const Case *c, neo_comm *comm, neo_shard **shard) {
    neo_plan *plan;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &c->plan, c->pieces, c->piece_count, &plan));
    neo_status status = neo_shard_create(comm, plan, shard);
    neo_plan_destroy(plan);
    return status;
}
/* And it takes what the plan says, to the byte. */
static inline neo_status make_planned(const Case *c, neo_comm *comm, neo_shard **shard) {
    neo_plan *plan;
    neo_shard_memory m;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm);
    TRY(neo_plan_create_from(ctx, &c->plan, c->pieces, c->piece_count, &plan));
    TRY(neo_shard_bytes(ctx, plan, rank, &m));
    size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(comm, plan, shard));
    size_t groups = inside_group_bytes(*shard, comm, LEAVES);
    EXPECT(neo_ctx_memory(ctx).bytes - before - groups ==
           m.weight_bytes + m.state_bytes + m.exchange_bytes + m.workspace_bytes);
    const int64_t buffers = (int64_t)(m.exchange_bytes + m.workspace_bytes);
    const int64_t of_plan = neo_plan_rank_of(plan, rank % c->plan.cluster.ranks).buffer_bytes;
    const int uneven = c->plan.replicas > 1 && LEAVES % neo_comm_size(comm); /* the most of them */
    EXPECT(uneven ? of_plan >= buffers : of_plan == buffers);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static inline neo_status check_digest(neo_comm *comm, neo_shard *shard, uint64_t want) {
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    uint64_t digest = 0;
    int rank = neo_comm_rank(comm);
    TRY(neo_state_create(neo_comm_ctx(comm), &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &all, &digest));
    EXPECT(digest == want);
    neo_state_destroy(state);
    return NEO_OK;
}

/* ---- ranks that run a case ---- */
static int64_t runs; /* of spawn_case */

/* The pieces of all tables, and the plan of them. */
static inline void place_case(Case *c, int plan, int ranks) {
    c->piece_count = 0;
    place_tables(c, plan, ranks);
    plan_of(c, ranks);
}
static inline void check_wrong(const char *what, int ranks) {
    for (int r = 0; r < ranks; r++)
        if (wrong[r]) FAIL("%s: rank %d of %d has %d wrong", what, r, ranks, wrong[r]);
}
/* A cell of a grid; in every third, ranks have two threads each. */
static inline void spawn_case(const Case *c, const char *what, int ranks, neo_comm_fn fn,
                              void *user) {
    const int threads = 1 + (int)(runs++ % 3 == 0);
    neo_comm_desc d = {.ctx = {.repro_shards = LEAVES, .seed = 1, .threads = threads},
                       .ranks_per_node = c->plan.cluster.ranks_per_node,
                       .timeout_ms = test_patience_ms(0)};
    memset(wrong, 0, sizeof wrong);
    const neo_status status = neo_comm_spawn(ranks, &d, fn, user, NULL);
    if (status != NEO_OK) FAIL("%s: %s", what, neo_last_error());
    (void)test_patience_ms(status == NEO_ERR_TIMEOUT);
    check_wrong(what, ranks);
}
/* Calls that are refused, after which the ranks go on. */
static inline void spawn_refused(const Case *c, int ranks, neo_comm_fn fn, void *user) {
    neo_comm_desc d = {.ctx = {.repro_shards = LEAVES, .seed = 1},
                       .ranks_per_node = c->plan.cluster.ranks_per_node,
                       .timeout_ms = TEST_PATIENCE_MS};
    memset(wrong, 0, sizeof wrong);
    CHECK_OK(neo_comm_spawn(ranks, &d, fn, user, NULL));
    check_wrong("refused", ranks);
}
/* Three ranks, one of which may be lost or get no memory. 1: all work; 0: none does; -1: some
   do; -2: a rank has found something wrong. allocator: or NULL. */
static inline int spawn_ending(const neo_allocator *allocator, int virtual_clock, neo_comm_fn fn,
                               void *user) {
    neo_comm_desc d = {.ctx = {.repro_shards = LEAVES, .seed = 1},
                       .ranks_per_node = 3,
                       .timeout_ms = TEST_PATIENCE_MS,
                       .virtual_clock = virtual_clock};
    neo_status status[3];
    int working = 0;
    if (allocator) d.ctx.allocator = *allocator;
    memset(wrong, 0, sizeof wrong);
    (void)neo_comm_spawn(3, &d, fn, user, status);
    for (int r = 0; r < 3; r++) {
        working += status[r] == NEO_OK;
        if (wrong[r]) return -2;
    }
    return working == 3 ? 1 : working == 0 ? 0 : -1;
}

/* ---- bytes, counted anew ---- */
/* The rank of a sample of step s. */
static inline int rank_of(const Case *c, int s, int64_t sample, int ranks) {
    int r = 0;
    while (neo_leaf_begin(c->size[s], LEAVES, LEAVES * (r + 1) / ranks) <= sample) r++;
    return r;
}
/* Ids of step s whose row is in the piece and on another rank than their sample. */
static inline int64_t ids_that_travel(const Case *c, int s, const neo_piece *piece) {
    int64_t count = 0, n = c->size[s], rows = c->set->rows[piece->table];
    for (int64_t bag = 0; bag < n * c->set->features && piece->rank != NEO_EVERY_RANK; bag++) {
        if (c->set->feature_table[bag / n] != piece->table ||
            rank_of(c, s, bag % n, c->plan.cluster.ranks) == piece->rank)
            continue;
        for (int64_t k = c->offsets[s][bag]; k < c->offsets[s][bag + 1]; k++) {
            int64_t id = c->ids[s][k];
            if ((id < 0 || id >= rows) && c->bags.bounds == NEO_BOUNDS_DROP) continue;
            id = id < 0 ? 0 : id >= rows ? rows - 1 : id;
            count += id >= piece->first_row && id < piece->first_row + piece->rows;
        }
    }
    return count;
}
static inline int64_t all_to_all_bytes(neo_comm *group) {
    neo_comm_stats st = neo_comm_get_stats(group);
    return st.op[NEO_COMM_ALL_TO_ALL].bytes[NEO_LEVEL_LOCAL] +
           st.op[NEO_COMM_ALL_TO_ALL].bytes[NEO_LEVEL_CROSS];
}

#endif
