/* shard_common.h: tables, batches, plans and the one-rank oracle, for the tests of sharded tables. */
#ifndef NEO_TEST_SHARD_COMMON_H
#define NEO_TEST_SHARD_COMMON_H

#include "../neo_fsdp.h"
#include "test.h"

enum { TABLES = 7, FEATURES = 9, BATCH = 48, MOST = 4, LEAVES = 8, NODES = 2 };
static const int64_t ROWS[TABLES] = {64, 200, 5, 1000, 1, 33, 400}, DIMS[TABLES] = {32, 64, 16, 48, 7, 1, 80};
static const int32_t FEATURE_TABLE[FEATURES] = {0, 1, 2, 3, 4, 5, 6, 1, 3};

typedef struct Case {
    neo_table_desc tables[TABLES];
    neo_bags_desc bags;
    neo_plan_desc plan;
    char names[TABLES][16];
    neo_piece pieces[TABLES * 64];
    int64_t piece_count;
    int steps, weighted;
    int prefetch;
    /* the data: of all steps */
    int64_t *offsets[8], *ids[8];
    int64_t size[8];
    float *weights[8], *dout[8];
    /* of the oracle */
    float *out[8];
    neo_bags *oracle;
    uint64_t digest;
    int64_t width;
} Case;

static inline neo_bag_optim optim_of(int kind, int options) {
    neo_bag_optim o = {.kind = (neo_bag_optim_kind)kind, .initial_accumulator = 0.1f, .momentum = 0.9f};
    int own = o.kind == NEO_BAG_LAMB || o.kind == NEO_BAG_PARTIAL_LAMB || o.kind == NEO_BAG_LARS_SGD;
    if (options & 1) {
        o.weight_decay = 0.01f;
        o.decay = own ? NEO_DECAY_NONE : kind % 2 ? NEO_DECAY_L2 : NEO_DECAY_DECOUPLED;
    }
    if (options & 2) o.max_norm = 0.7f;
    return o;
}
static inline void add_piece(Case *c, int table, int rank, int64_t first_row, int64_t rows, int64_t first_col, int64_t cols) {
    c->pieces[c->piece_count++] = (neo_piece){table, rank, first_row, rows, first_col, cols};
}
/* Cut points of a table: columns at multiples of 16 (64: the wire's blocks), rows at buckets. */
static int64_t cut_block;
static inline int cut_cols(int64_t dim, int most, int64_t *cut) {
    int n = 0;
    int64_t blocks = (dim + cut_block - 1) / cut_block, parts = blocks < most ? blocks : most;
    for (int64_t i = 0; i <= parts; i++) cut[n++] = i == parts ? dim : blocks * i / parts * cut_block;
    return n - 1;
}
static inline int cut_rows(int64_t rows, int most, int64_t *cut) {
    int n = 0, parts = most < LEAVES ? most : LEAVES;
    for (int i = 0; i <= parts; i++) {
        int64_t b = (int64_t)LEAVES * i / parts, row = b * (rows / LEAVES) + b * (rows % LEAVES) / LEAVES;
        if (n == 0 || row > cut[n - 1]) cut[n++] = row;
    }
    return n - 1;
}
/* The pieces of a table under a placement. */
static inline void place(Case *c, int t, neo_placement p, int ranks) {
    int64_t col[17], row[17];
    int per_node = ranks % NODES == 0 ? ranks / NODES : ranks, nodes = ranks / per_node, node = (int)test_random() % nodes;
    int any = (int)test_random();
    int cols = 1, rows = 1;
    col[0] = row[0] = 0;
    col[1] = DIMS[t];
    row[1] = ROWS[t];
    if (p == NEO_COLUMN_WISE) cols = cut_cols(DIMS[t], ranks, col);
    if (p == NEO_TABLE_COLUMN_WISE) cols = cut_cols(DIMS[t], per_node, col);
    if (p == NEO_GRID) cols = cut_cols(DIMS[t], nodes, col);
    if (p == NEO_ROW_WISE) rows = cut_rows(ROWS[t], ranks, row);
    if (p == NEO_TABLE_ROW_WISE || p == NEO_GRID) rows = cut_rows(ROWS[t], per_node, row);
    if (p == NEO_DATA_PARALLEL) {
        add_piece(c, t, NEO_EVERY_RANK, 0, ROWS[t], 0, DIMS[t]);
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
    int cols = cut_cols(DIMS[t], 1 + (int)test_random() % 5, col), rows = cut_rows(ROWS[t], 1 + (int)test_random() % 8, row);
    for (int i = 0; i < cols; i++)
        for (int k = 0; k < rows; k++)
            add_piece(c, t, (int)test_random() % ranks, row[k], row[k + 1] - row[k], col[i], col[i + 1] - col[i]);
}

static inline void case_tables(Case *c, int kind, neo_pooling pooling) {
    for (int t = 0; t < TABLES; t++) {
        snprintf(c->names[t], sizeof c->names[t], "t%d", t);
        c->tables[t] = (neo_table_desc){.name = c->names[t], .rows = ROWS[t], .dim = DIMS[t], .pooling = pooling,
                                        .row_buckets = LEAVES,
                                        .optim = optim_of((kind + (kind >= 8 ? t : 0)) % 8, (int)test_random() % 4)};
        c->width = 0;
    }
    c->bags = (neo_bags_desc){.tables = c->tables, .table_count = TABLES, .feature_table = FEATURE_TABLE,
                              .feature_count = FEATURES, .max_batch = BATCH, .max_ids = BATCH * MOST * FEATURES};
    for (int f = 0; f < FEATURES; f++) c->width += DIMS[FEATURE_TABLE[f]];
}
static inline void case_data(Case *c) {
    for (int s = 0; s < c->steps; s++) {
        c->size[s] = s == 1 ? 3 : s == 2 ? 13 : BATCH;
        int64_t bags = FEATURES * c->size[s];
        c->offsets[s] = malloc(8 * (size_t)(bags + 1));
        c->ids[s] = malloc(8 * (size_t)(bags * MOST + 1));
        c->weights[s] = malloc(4 * (size_t)(bags * MOST + 1));
        c->dout[s] = malloc(4 * (size_t)(c->size[s] * c->width + 1));
        c->out[s] = malloc(4 * (size_t)(c->size[s] * c->width + 1));
        c->offsets[s][0] = 0;
        for (int64_t i = 0; i < bags; i++) {
            int64_t rows = ROWS[FEATURE_TABLE[i / c->size[s]]];
            c->offsets[s][i + 1] = c->offsets[s][i] + (i / c->size[s] == 5 && s == 0 ? 0 : (int64_t)test_random() % (MOST + 1));
            for (int64_t k = c->offsets[s][i]; k < c->offsets[s][i + 1]; k++) {
                int64_t range = test_random() % 2 && rows > 5 ? 5 : rows;
                c->ids[s][k] = (int64_t)test_random() % range;
            }
        }
        test_fill(c->weights[s], c->offsets[s][bags]);
        test_fill(c->dout[s], c->size[s] * c->width);
    }
}
/* What a wire makes of the rows of every feature. */
static inline void through_wire(const Case *c, neo_ctx *ctx, neo_wire wire, float *rows, int64_t n) {
    char code[1024];
    int64_t col = 0;
    for (int f = 0; f < FEATURES; col += DIMS[FEATURE_TABLE[f++]])
        for (int64_t i = 0; i < n; i++) {
            float *row = rows + i * c->width + col;
            neo_wire_encode(ctx, wire, 0, row, 1, DIMS[FEATURE_TABLE[f]], DIMS[FEATURE_TABLE[f]], code, NULL);
            neo_wire_decode(ctx, wire, 0, code, 1, DIMS[FEATURE_TABLE[f]], DIMS[FEATURE_TABLE[f]], row);
        }
}
/* to = from, divided by the lengths of the bags. */
static inline void divide(const Case *c, int s, const float *from, float *to) {
    int64_t n = c->size[s], col = 0;
    for (int f = 0; f < FEATURES; col += DIMS[FEATURE_TABLE[f++]])
        for (int64_t i = 0; i < n; i++) {
            int64_t length = c->offsets[s][f * n + i + 1] - c->offsets[s][f * n + i];
            for (int64_t d = col; d < col + DIMS[FEATURE_TABLE[f]]; d++)
                to[i * c->width + d] = length > 1 ? from[i * c->width + d] / (float)length : from[i * c->width + d];
        }
}
/* With wires: sums are rounded, then divided; gradients divided, then rounded. */
static inline void case_oracle(Case *c, neo_ctx *ctx) {
    neo_pooling pooling = c->tables[0].pooling;
    neo_wire forward = c->plan.wire_forward, backward = c->plan.wire_backward;
    int narrow = forward != NEO_WIRE_F32 || backward != NEO_WIRE_F32;
    for (int t = 0; t < TABLES; t++) c->tables[t].pooling = narrow ? NEO_POOL_SUM : pooling;
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int t = 0; t < TABLES; t++) c->tables[t].pooling = pooling;
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s];
        float *dout = malloc(4 * (size_t)(n * c->width + 1));
        neo_jagged j = {.batch = n, .feature_count = FEATURES, .id_dtype = NEO_I64, .offsets = c->offsets[s],
                        .ids = c->ids[s], .weights = c->weighted ? c->weights[s] : NULL};
        CHECK_OK(neo_bags_forward(c->oracle, &j, neo_tensor_2d(c->out[s], NEO_F32, n, c->width)));
        memcpy(dout, c->dout[s], 4 * (size_t)(n * c->width));
        if (narrow) {
            through_wire(c, ctx, forward, c->out[s], n);
            if (pooling == NEO_POOL_MEAN) divide(c, s, c->out[s], c->out[s]);
            if (pooling == NEO_POOL_MEAN) divide(c, s, dout, dout);
            through_wire(c, ctx, backward, dout, n);
        }
        CHECK_OK(neo_bags_backward(c->oracle, &j, neo_tensor_2d(dout, NEO_F32, n, c->width), 0.05f));
        free(dout);
    }
    neo_state *state;
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_bags(state, c->oracle));
    c->digest = neo_state_digest(state);
    neo_state_destroy(state);
}
static inline void case_free(Case *c) {
    for (int s = 0; s < c->steps; s++) {
        free(c->offsets[s]), free(c->ids[s]), free(c->weights[s]), free(c->dout[s]), free(c->out[s]);
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
    m->offsets = malloc(8 * (size_t)(m->n * FEATURES + 1));
    m->ids = malloc(8 * (size_t)(m->n * FEATURES * MOST + 1));
    m->weights = malloc(4 * (size_t)(m->n * FEATURES * MOST + 1));
    m->offsets[0] = 0;
    for (int f = 0; f < FEATURES; f++)
        for (int64_t i = 0; i < m->n; i++) {
            const int64_t *at = c->offsets[s] + f * size + m->begin + i;
            for (int64_t k = at[0]; k < at[1]; k++) {
                m->weights[total] = c->weights[s][k];
                m->ids[total++] = c->ids[s][k];
            }
            m->offsets[++bag] = total;
        }
    m->j = (neo_jagged){.batch = m->n, .feature_count = FEATURES, .id_dtype = NEO_I64, .offsets = m->offsets,
                        .ids = m->ids, .weights = c->weighted ? m->weights : NULL};
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


#endif
