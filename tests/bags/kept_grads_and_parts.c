/* kept_grads_and_parts.c: gradients that are kept, and tables of which an object holds parts.

   Kept: accumulate and step are backward, bit for bit, for every optimizer; several calls add in
   order; the leaves of a batch merged one subtree at a time and added by the tree are the whole
   batch. Parts: one object with a whole table and one with its parts (columns, rows, or both) train
   alike, bit for bit; f32 and narrow rows. */
#include "common.h"

static const neo_bag_optim_kind KINDS[] = {
    NEO_BAG_SGD,          NEO_BAG_ADAGRAD, NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_ADAM,
    NEO_BAG_PARTIAL_ADAM, NEO_BAG_LAMB,    NEO_BAG_PARTIAL_LAMB,    NEO_BAG_LARS_SGD,
    NEO_BAG_FTRL};
static const neo_dtype TYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0], STEPS = 3 };

/* Every option that a step can have. */
static neo_bag_optim optim_of(int kind, int options) {
    neo_bag_optim o = {
        .kind = KINDS[kind], .initial_accumulator = 0.1f, .l1 = 0.01f, .momentum = 0.9f};
    int own = o.kind >= NEO_BAG_LAMB;
    if (options & 1) {
        o.weight_decay = 0.01f;
        o.decay = own ? NEO_DECAY_NONE : kind % 2 ? NEO_DECAY_L2 : NEO_DECAY_DECOUPLED;
    }
    if (options & 2) o.clip_gradient = 0.5f;
    if (options & 4) o.max_norm = 0.7f;
    return o;
}
static void check_equal(const neo_bags *a, const neo_bags *b) {
    for (int32_t t = 0; t < neo_bags_table_count(a); t++)
        for (int k = -1; k < 2; k++) {
            neo_tensor x = k < 0 ? neo_bags_weight(a, t) : neo_bags_state(a, t, k);
            neo_tensor y = k < 0 ? neo_bags_weight(b, t) : neo_bags_state(b, t, k);
            if (x.data) CHECK_BITS(x.data, y.data, neo_tensor_bytes(x));
            x = neo_bags_scale(a, t);
            if (x.data) CHECK_BITS(x.data, neo_bags_scale(b, t).data, neo_tensor_bytes(x));
        }
}

/* ---- kept gradients ---- */
static const int64_t ROWS[] = {50, 7, 1000, 1}, DIMS[] = {16, 5, 40, 1};

static void accumulate_and_step_are_backward(void) {
    neo_pooling poolings[] = {NEO_POOL_SUM, NEO_POOL_MEAN};
    for (int i = 0; i < KIND_COUNT * 2 * 3; i++) {
        Model m;
        neo_ctx *ctx = test_ctx(1 + i % 3, NEO_ISA_BEST, i % 2 ? 8 : 1);
        model_init(&m, 4, ROWS, DIMS, 6, poolings[i / KIND_COUNT % 2]);
        for (int t = 0; t < 4; t++)
            m.table[t].optim = optim_of(i % KIND_COUNT, i % 8),
            m.table[t].dtype = TYPES[(i + t) % 4];
        neo_bags *fused, *kept;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &fused));
        m.desc.max_kept_rows = 1058;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &kept));
        for (int step = 0; step < STEPS; step++) {
            Batch b;
            Out d;
            batch_make(
                &b, &m,
                (BatchKind){
                    .batch = 37, .max_length = 9, .weighted = i % 3 == 1, .variable = i % 5 == 1});
            out_make(&d, &m, &b.j, step);
            CHECK_OK(neo_bags_backward(fused, &b.j, d.t, 0.1f));
            CHECK_OK(neo_bags_accumulate(kept, &b.j, d.t, NULL));
            CHECK(neo_bags_kept_count(kept) > 10);
            CHECK_OK(neo_bags_step(kept, 0.1f));
            CHECK_INT(neo_bags_kept_count(kept), 0);
            check_equal(fused, kept);
            batch_free(&b);
            free(d.data);
        }
        neo_bags_destroy(fused);
        neo_bags_destroy(kept);
        neo_ctx_destroy(ctx);
    }
}

/* Gradients of two batches and of one's own, against double sums; squares and scale. */
static void several_batches_add_up(void) {
    Model m;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 8);
    model_init(&m, 4, ROWS, DIMS, 5, NEO_POOL_SUM);
    m.desc.max_kept_rows = 2000;
    neo_bags *bags;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    double *want[4];
    char touched[1000];
    for (int t = 0; t < 4; t++) want[t] = calloc((size_t)(ROWS[t] * DIMS[t]), sizeof *want[t]);
    for (int i = 0; i < 3; i++) {
        Batch b;
        Out d;
        batch_make(&b, &m, (BatchKind){.batch = 21, .max_length = 6});
        out_make(&d, &m, &b.j, 0);
        REQUIRE_OK(neo_bags_accumulate(bags, &b.j, d.t, NULL));
        for (int t = 0; t < 4; t++) {
            double *g = dense_grad(&m, t, &b, &d, touched);
            for (int64_t k = 0; k < ROWS[t] * DIMS[t]; k++) want[t][k] += g[k];
            free(g);
        }
        batch_free(&b);
        free(d.data);
    }
    int64_t rows[] = {3, 999, 3};
    float mine[3 * 40];
    test_fill(mine, 3 * 40);
    CHECK_OK(neo_bags_add_grad(bags, 2, rows, 3, neo_tensor_2d(mine, NEO_F32, 3, 40)));
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < 40; c++) want[2][rows[i] * 40 + c] += (double)mine[i * 40 + c];
    double squares = 0, of_table[4] = {0, 0, 0, 0};
    int64_t seen = 0;
    for (int64_t i = 0; i < neo_bags_kept_count(bags); i++) {
        int32_t t;
        int64_t row;
        const float *g = neo_bags_kept_row(bags, i, &t, &row);
        for (int64_t c = 0; c < DIMS[t]; c++) {
            CHECK_NEAR(g[c], want[t][row * DIMS[t] + c], 1e-4);
            squares += (double)g[c] * (double)g[c];
            of_table[t] += (double)g[c] * (double)g[c];
            want[t][row * DIMS[t] + c] = 0;
        }
        seen++;
    }
    CHECK(seen > 50);
    for (int t = 0; t < 4; t++) {
        for (int64_t k = 0; k < ROWS[t] * DIMS[t]; k++) CHECK(want[t][k] == 0);
        free(want[t]);
    }
    neo_exact sum;
    neo_exact_zero(&sum);
    CHECK_OK(neo_bags_grad_squares(bags, &sum));
    CHECK_NEAR(neo_exact_value(&sum), squares, squares * 1e-6);
    for (int t = 0; t < 4; t++) {
        neo_exact_zero(&sum);
        CHECK_OK(neo_bags_table_squares(bags, t, &sum));
        CHECK_NEAR(neo_exact_value(&sum), of_table[t], of_table[t] * 1e-6);
    }
    CHECK_ERR(neo_bags_table_squares(bags, 4, &sum), NEO_ERR_ARG, "no such table");
    CHECK_ERR(neo_bags_table_squares(bags, 0, NULL), NEO_ERR_ARG, "sum is NULL");
    CHECK_OK(neo_bags_scale_grads(bags, 0.5f));
    neo_exact_zero(&sum);
    CHECK_OK(neo_bags_grad_squares(bags, &sum));
    CHECK_NEAR(neo_exact_value(&sum), squares / 4, squares * 1e-6);
    CHECK(neo_bags_kept_row(bags, seen, NULL, NULL) == NULL);
    CHECK_OK(neo_bags_clear(bags));
    CHECK_INT(neo_bags_kept_count(bags), 0);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* Room for one row at first; then it grows before each batch, for the rows kept and for the batch.
   */
static void what_is_kept_stays_where_memory_grows(void) {
    for (int i = 0; i < KIND_COUNT; i++) {
        Model m;
        neo_ctx *ctx = test_ctx(1 + i % 3, NEO_ISA_BEST, 8);
        model_init(&m, 4, ROWS, DIMS, 5, NEO_POOL_SUM);
        for (int t = 0; t < 4; t++) m.table[t].optim = optim_of(i, 0);
        neo_bags *large, *small;
        m.desc.max_kept_rows = 2000;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &large));
        m.desc.max_kept_rows = m.desc.max_batch = m.desc.max_ids = 1;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &small));
        for (int k = 0; k < 9; k++) {
            Batch b;
            Out d;
            batch_make(&b, &m, (BatchKind){.batch = 5 + k, .max_length = 6});
            out_make(&d, &m, &b.j, 0);
            CHECK_OK(neo_bags_accumulate(large, &b.j, d.t, NULL));
            CHECK_OK(neo_bags_reserve(small, b.j.batch, neo_jagged_id_count(&b.j)));
            int64_t room = neo_bags_kept_count(small) + neo_jagged_id_count(&b.j);
            CHECK_OK(neo_bags_reserve_kept(small, room));
            neo_bags_stats before = neo_bags_get_stats(small);
            CHECK_OK(neo_bags_reserve_kept(small, room));
            CHECK_OK(neo_bags_reserve_kept(small, 0));
            CHECK_INT(neo_bags_get_stats(small).grow_count, before.grow_count);
            CHECK_OK(neo_bags_accumulate(small, &b.j, d.t, NULL));
            CHECK_INT(neo_bags_kept_count(small), neo_bags_kept_count(large));
            for (int64_t r = 0; r < neo_bags_kept_count(large); r++) {
                int32_t t, u;
                int64_t row, like;
                const float *x = neo_bags_kept_row(large, r, &t, &row),
                            *y = neo_bags_kept_row(small, r, &u, &like);
                CHECK(t == u && row == like);
                CHECK_BITS(x, y, (size_t)DIMS[t] * sizeof *x);
            }
            if (k % 3 == 2) {
                CHECK_OK(neo_bags_step(large, 0.1f));
                CHECK_OK(neo_bags_step(small, 0.1f));
                check_equal(large, small);
            }
            batch_free(&b);
            free(d.data);
        }
        CHECK(neo_bags_get_stats(small).grow_count > 3);
        neo_bags_destroy(large);
        neo_bags_destroy(small);
        neo_ctx_destroy(ctx);
    }
}

/* Samples [begin, end) of a batch. */
static void slice(neo_jagged_buffer *to, const Batch *b, int64_t begin, int64_t end) {
    CHECK_OK(neo_jagged_slice(to, &b->j, begin, end - begin));
}
/* Leaves of a batch one subtree at a time: merged, made dense, added by the tree, stepped. */
static void subtrees_of_leaves_make_the_batch(void) {
    static const struct { int shards, pieces; } CASES[] = {{8, 1}, {8, 2}, {8, 4}, {8, 8}, {4, 2}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int shards = CASES[i].shards, pieces = CASES[i].pieces;
        Model m;
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, shards);
        int64_t rows[] = {9, 30}, dims[] = {16, 7};
        model_init(&m, 2, rows, dims, 3, NEO_POOL_MEAN);
        neo_bags *fused, *kept;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &fused));
        m.desc.max_kept_rows = 100;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &kept));
        neo_jagged_buffer *part;
        REQUIRE_OK(neo_jagged_create(
            ctx, &(neo_jagged_desc){.feature_count = 3, .max_bags = 600, .max_ids = 6000}, &part));
        Batch b;
        Out d;
        batch_make(&b, &m, (BatchKind){.batch = 45, .max_length = 8});
        out_make(&d, &m, &b.j, 0);
        CHECK_OK(neo_bags_backward(fused, &b.j, d.t, 0.1f));
        int64_t floats[] = {9 * 16, 30 * 7};
        float *dense[2][8];
        char touched[2][30] = {{0}};
        for (int p = 0; p < pieces; p++) {
            neo_leaves leaves = {45, p * shards / pieces, shards / pieces, 0};
            int64_t begin = neo_leaf_begin(45, shards, leaves.first),
                    end = neo_leaf_begin(45, shards, leaves.first + leaves.count);
            slice(part, &b, begin, end);
            neo_tensor dout = neo_tensor_2d((float *)d.t.data + begin * d.t.stride[0], NEO_F32,
                                            end - begin, d.t.shape[1]);
            CHECK_OK(neo_bags_accumulate(kept, neo_jagged_view(part), dout, &leaves));
            for (int t = 0; t < 2; t++) dense[t][p] = calloc((size_t)floats[t], 4);
            for (int64_t k = 0; k < neo_bags_kept_count(kept); k++) {
                int32_t t;
                int64_t row;
                const float *g = neo_bags_kept_row(kept, k, &t, &row);
                touched[t][row] = 1;
                memcpy(dense[t][p] + row * dims[t], g, (size_t)dims[t] * 4);
            }
            CHECK_OK(neo_bags_clear(kept));
        }
        for (int t = 0; t < 2; t++) {
            neo_tensor parts[8];
            float *sum = calloc((size_t)floats[t], 4);
            for (int p = 0; p < pieces; p++)
                parts[p] = neo_tensor_1d(dense[t][p], NEO_F32, floats[t]);
            CHECK_OK(neo_tree_sum(ctx, parts, pieces, neo_tensor_1d(sum, NEO_F32, floats[t])));
            for (int64_t row = 0; row < rows[t]; row++)
                if (touched[t][row])
                    CHECK_OK(neo_bags_add_grad(
                        kept, t, &row, 1, neo_tensor_2d(sum + row * dims[t], NEO_F32, 1, dims[t])));
            free(sum);
            for (int p = 0; p < pieces; p++) free(dense[t][p]);
        }
        CHECK_OK(neo_bags_step(kept, 0.1f));
        check_equal(fused, kept);
        neo_leaves nothing = {45, 0, 0, 0}, wrong = {45, 1, 2, 0};
        slice(part, &b, 0, 0);
        CHECK_OK(
            neo_bags_accumulate(kept, neo_jagged_view(part), neo_tensor_rows(d.t, 0, 0), &nothing));
        CHECK_INT(neo_bags_kept_count(kept), 0);
        if (shards == 8)
            CHECK_ERR(neo_bags_accumulate(kept, &b.j, d.t, &wrong), NEO_ERR_ARG, "subtree");
        wrong = (neo_leaves){45, 0, 2, 0};
        CHECK_ERR(neo_bags_accumulate(kept, &b.j, d.t, &wrong), NEO_ERR_SHAPE, "samples");
        batch_free(&b);
        free(d.data);
        neo_jagged_destroy(part);
        neo_bags_destroy(fused);
        neo_bags_destroy(kept);
        neo_ctx_destroy(ctx);
    }
}

static void errors_of_kept_gradients(void) {
    Model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    model_init(&m, 4, ROWS, DIMS, 4, NEO_POOL_SUM);
    neo_bags *bags;
    Batch b;
    Out d;
    batch_make(&b, &m, (BatchKind){.batch = 30, .max_length = 9});
    out_make(&d, &m, &b.j, 0);
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_ERR(neo_bags_accumulate(bags, &b.j, d.t, NULL), NEO_ERR_STATE, "max_kept_rows");
    CHECK_ERR(neo_bags_step(bags, 1), NEO_ERR_STATE, "max_kept_rows");
    CHECK_ERR(neo_bags_reserve_kept(bags, 5), NEO_ERR_STATE, "max_kept_rows");
    neo_bags_destroy(bags);
    m.desc.max_kept_rows = 20;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    float one[16] = {1};
    int64_t row = 7;
    CHECK_OK(neo_bags_add_grad(bags, 0, &row, 1, neo_tensor_2d(one, NEO_F32, 1, 16)));
    CHECK_ERR(neo_bags_accumulate(bags, &b.j, d.t, NULL), NEO_ERR_CAPACITY, "20 rows");
    CHECK_INT(neo_bags_kept_count(bags), 1); /* what was there is there */
    CHECK(neo_bags_kept_row(bags, 0, NULL, &row)[0] == 1.0f && row == 7);
    CHECK_ERR(neo_bags_backward(bags, &b.j, d.t, 1), NEO_ERR_STATE, "kept");
    CHECK_ERR(neo_bags_reserve_kept(bags, -1), NEO_ERR_ARG, "max_kept_rows is -1");
    CHECK_OK(neo_bags_reserve(bags, 1000, 1 << 20)); /* and stays where memory grows */
    CHECK_INT(neo_bags_kept_count(bags), 1);
    CHECK(neo_bags_kept_row(bags, 0, NULL, &row)[0] == 1.0f && row == 7);
    CHECK_INT(neo_bags_get_stats(bags).grow_count, 1);
    row = 50;
    CHECK_ERR(neo_bags_add_grad(bags, 0, &row, 1, neo_tensor_2d(one, NEO_F32, 1, 16)),
              NEO_ERR_RANGE, "'t0': rows[0] is 50");
    CHECK_ERR(neo_bags_add_grad(bags, 0, &row, 1, neo_tensor_2d(one, NEO_F32, 1, 8)), NEO_ERR_SHAPE,
              "'t0'");
    CHECK_ERR(neo_bags_step(bags, NAN), NEO_ERR_NUMERIC, "lr");
    CHECK_OK(neo_bags_clear(bags));
    CHECK_OK(neo_bags_backward(bags, &b.j, d.t, 1));
    neo_bags_destroy(bags);
    batch_free(&b);
    free(d.data);
    neo_ctx_destroy(ctx);
}

/* ---- parts ---- */

/* The parts of table 0 that stand in for it: a grid of row and column cuts. */
typedef struct Grid {
    int64_t rows, dim, row_cut[6], col_cut[6];
    int row_parts, col_parts;
} Grid;
/* Totals of all column parts with the same rows, from their blocks in order of column. */
static neo_status add_blocks(void *user, const neo_cut_sums *cuts, int32_t count) {
    Grid *g = user;
    for (int r = 0; r < g->row_parts; r++) {
        const neo_cut_sums *col[6] = {NULL};
        for (int32_t i = 0; i < count; i++)
            if (cuts[i].table / g->col_parts == r) col[cuts[i].table % g->col_parts] = &cuts[i];
        for (int64_t k = 0; k < cuts[r * g->col_parts].rows * cuts[0].sums && col[0]; k++) {
            float sum = 0;
            for (int c = 0; c < g->col_parts; c++)
                for (int64_t i = 0; i < col[c]->blocks_per_row; i++)
                    sum += col[c]->blocks[k * col[c]->blocks_per_row + i];
            for (int c = 0; c < g->col_parts; c++) ((neo_cut_sums *)col[c])->total[k] = sum;
        }
    }
    return NEO_OK;
}
static neo_status refuse(void *user, const neo_cut_sums *cuts, int32_t count) {
    (void)user, (void)cuts, (void)count;
    return neo_fail(NEO_ERR_PEER, "lost");
}

/* The parts of a table, as tables of their own. */
static void cut_table(const Grid *g, const neo_table_desc *whole, neo_table_desc *part) {
    for (int p = 0; p < g->row_parts * g->col_parts; p++) {
        int r = p / g->col_parts, c = p % g->col_parts;
        part[p] = *whole;
        part[p].rows = g->row_cut[r + 1] - g->row_cut[r];
        part[p].dim = g->col_cut[c + 1] - g->col_cut[c];
        part[p].part = (neo_table_part){g->rows, g->dim, g->row_cut[r], g->col_cut[c]};
    }
}
enum { PARTS = 16, PART_BATCH = 29, PART_BAG = 5 }; /* most parts; samples; most ids of a bag */
/* Random bags of the table's first `rows` rows, and each part's share of them. */
static void draw_bags(const Grid *g, int64_t rows, int64_t *offsets, int64_t *ids,
                      int64_t *part_offsets, int64_t *part_ids) {
    enum { B = PART_BATCH };
    offsets[0] = part_offsets[0] = 0;
    for (int s = 0; s < B; s++) {
        offsets[s + 1] = offsets[s] + (int64_t)test_random() % (PART_BAG + 1);
        for (int64_t k = offsets[s]; k < offsets[s + 1]; k++)
            ids[k] = (int64_t)test_random() % rows;
    }
    int64_t n = 0;
    for (int p = 0; p < g->row_parts * g->col_parts; p++)
        for (int s = 0; s < B; s++) {
            int64_t low = g->row_cut[p / g->col_parts], high = g->row_cut[p / g->col_parts + 1];
            for (int64_t k = offsets[s]; k < offsets[s + 1]; k++)
                if (ids[k] >= low && ids[k] < high) part_ids[n++] = ids[k] - low;
            part_offsets[p * B + s + 1] = n;
        }
}
/* The row parts' sums of a bag add up to the table's, by the tree of its buckets. */
static void parts_add_up(const Grid *g, const float *part_out, const float *out) {
    for (int s = 0; s < PART_BATCH; s++)
        for (int64_t c = 0; c < g->dim; c++) {
            const float *x = part_out + s * g->dim * g->row_parts + c;
            float sum = x[0], late = g->row_parts == 4 ? x[2 * g->dim] + x[3 * g->dim] : 0.0f;
            if (g->row_parts == 4 && g->rows == 100) sum = (x[0] + x[g->dim]) + late;
            if (g->row_parts == 4 && g->rows == 8)
                sum = x[0] + (x[g->dim] + late); /* cut at buckets 4, 6, 7 */
            CHECK(sum + 0.0f == out[s * g->dim + c]);
        }
}
/* Scale, weight or state of a table: k is -2, -1, or the state's number. */
static neo_tensor tensor_of(neo_bags *bags, int table, int k) {
    return k == -2 ? neo_bags_scale(bags, table)
           : k < 0 ? neo_bags_weight(bags, table)
                   : neo_bags_state(bags, table, k);
}
/* All that the parts hold has the bits of the table's. */
static void parts_hold_the_table(neo_bags *table, neo_bags *cut, const neo_table_desc *part,
                                 int parts) {
    for (int p = 0; p < parts; p++)
        for (int k = -2; k < 2; k++) {
            neo_tensor x = tensor_of(table, 0, k), y = tensor_of(cut, p, k);
            neo_table_part at = part[p].part;
            if (!x.data) continue;
            x = neo_tensor_rows(x, at.first_row, part[p].rows);
            int64_t cols = x.ndim == 1 ? 1 : y.shape[1];
            size_t size = neo_dtype_size(x.dtype);
            const char *px =
                (const char *)x.data + (x.ndim == 1 ? 0 : (size_t)at.first_col * size);
            for (int64_t row = 0; row < part[p].rows; row++)
                CHECK_BITS(px + (size_t)(row * x.stride[0]) * size,
                           (const char *)y.data + (size_t)(row * cols) * size,
                           (size_t)cols * size);
        }
}
/* A step of the table and of its parts on the same random bags, of the first `rows` rows. */
static void step_both(const Grid *g, const neo_table_desc *whole, neo_bags *table, neo_bags *cut,
                      int64_t rows) {
    enum { B = PART_BATCH };
    int parts = g->row_parts * g->col_parts;
    int64_t offsets[B + 1], ids[B * PART_BAG], part_offsets[PARTS * B + 1],
        part_ids[PARTS * B * PART_BAG], dim = g->dim, width = dim * g->row_parts;
    draw_bags(g, rows, offsets, ids, part_offsets, part_ids);
    neo_jagged j = {.batch = B,
                    .feature_count = 1,
                    .id_dtype = NEO_I64,
                    .offsets = offsets,
                    .ids = ids};
    neo_jagged pj = {.batch = B,
                     .feature_count = parts,
                     .id_dtype = NEO_I64,
                     .offsets = part_offsets,
                     .ids = part_ids};
    float *out = malloc(4 * (size_t)(B * dim)), *part_out = malloc(4 * (size_t)(B * width));
    float *dout = malloc(4 * (size_t)(B * dim)), *part_dout = malloc(4 * (size_t)(B * width));
    test_fill(dout, B * dim);
    CHECK_OK(neo_bags_forward(table, &j, neo_tensor_2d(out, NEO_F32, B, dim)));
    CHECK_OK(neo_bags_forward(cut, &pj, neo_tensor_2d(part_out, NEO_F32, B, width)));
    if (whole->row_buckets >= g->row_parts) parts_add_up(g, part_out, out);
    for (int s = 0; s < B; s++)
        for (int64_t c = 0; c < width; c++) part_dout[s * width + c] = dout[s * dim + c % dim];
    CHECK_OK(neo_bags_backward(table, &j, neo_tensor_2d(dout, NEO_F32, B, dim), 0.05f));
    CHECK_OK(neo_bags_backward(cut, &pj, neo_tensor_2d(part_dout, NEO_F32, B, width), 0.05f));
    free(out), free(part_out), free(dout), free(part_dout);
}

static void parts_train_as_the_table(void) {
    static const Grid GRIDS[] = {
        {100, 40, {0, 100}, {0, 16, 40}, 1, 2}, {100, 64, {0, 100}, {0, 16, 32, 48, 64}, 1, 4},
        {100, 20, {0, 37, 100}, {0, 20}, 2, 1}, {100, 50, {0, 25, 50, 75, 100}, {0, 32, 50}, 4, 2},
        {8, 17, {0, 4, 6, 7, 8}, {0, 16, 17}, 4, 2}};
    for (int i = 0; i < KIND_COUNT * 8 * 4; i++) {
        neo_dtype type = TYPES[i / (KIND_COUNT * 8)];
        Grid g = GRIDS[type == NEO_I8 ? 2 : (i + i / 8) % 5]; /* i8 rows are not cut by columns */
        neo_ctx *ctx = test_ctx(1 + i % 2, NEO_ISA_BEST, 8);
        neo_table_desc whole = {.name = "t",
                                .rows = g.rows,
                                .dim = g.dim,
                                .optim = optim_of(i % KIND_COUNT, i / KIND_COUNT % 8),
                                .dtype = type,
                                .row_buckets = g.row_parts > 1 && g.row_cut[1] != 37 ? 8 : 1};
        neo_table_desc part[PARTS];
        neo_bags_desc one = {.tables = &whole, .table_count = 1, .max_batch = 64, .max_ids = 4096};
        neo_bags_desc cut = one;
        cut.tables = part;
        cut.table_count = g.row_parts * g.col_parts;
        cut.cut_sums = add_blocks;
        cut.cut_sums_user = &g;
        cut_table(&g, &whole, part);
        neo_bags *a, *b;
        REQUIRE_OK(neo_bags_create(ctx, &one, &a));
        size_t before = neo_ctx_memory(ctx).bytes;
        REQUIRE_OK(neo_bags_create(ctx, &cut, &b));
        neo_bags_memory memory;
        REQUIRE_OK(neo_bags_bytes(ctx, &cut, &memory));
        CHECK_INT(neo_ctx_memory(ctx).bytes - before,
                  memory.weight_bytes + memory.state_bytes + memory.workspace_bytes);
        for (int step = 0; step < STEPS; step++) {
            step_both(&g, &whole, a, b, step == 1 ? 3 : g.rows);
            parts_hold_the_table(a, b, part, cut.table_count);
        }
        neo_bags_destroy(a);
        neo_bags_destroy(b);
        neo_ctx_destroy(ctx);
    }
}

/* A cut table beside a large one, on any number of threads: two walks over one batch. */
static void a_cut_table_beside_a_whole_one(void) {
    enum { B = 64, IDS = 40, ROWS_OF = 5000 };
    static float weights[2][ROWS_OF * 16];
    static int64_t offsets[3 * B + 1], ids[3 * B * IDS];
    static float dout[B * 48];
    test_fill(dout, B * 48);
    for (int64_t i = 0; i < 3 * B; i++) {
        offsets[i + 1] = offsets[i] + IDS;
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) /* both parts see the same ids */
            ids[k] = i < B       ? (int64_t)test_random() % 100
                     : i < 2 * B ? ids[k - B * IDS]
                                 : (int64_t)test_random() % ROWS_OF;
    }
    for (int threads = 1; threads <= 3; threads += 2) {
        neo_ctx *ctx = test_ctx(threads, NEO_ISA_BEST, 8);
        Grid g = {100, 32, {0, 100}, {0, 16, 32}, 1, 2};
        neo_bag_optim optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD};
        neo_table_desc tables[3] = {
            {.name = "t", .rows = 100, .dim = 16, .optim = optim, .part = {100, 32, 0, 0}},
            {.name = "t", .rows = 100, .dim = 16, .optim = optim, .part = {100, 32, 0, 16}},
            {.name = "u", .rows = ROWS_OF, .dim = 16, .optim = optim}};
        neo_bags_desc d = {.tables = tables,
                           .table_count = 3,
                           .max_batch = B,
                           .max_ids = 3 * B * IDS,
                           .cut_sums = add_blocks,
                           .cut_sums_user = &g};
        neo_bags *bags;
        REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
        neo_jagged j = {
            .batch = B, .feature_count = 3, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
        for (int step = 0; step < STEPS; step++)
            CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(dout, NEO_F32, B, 48), 0.1f));
        memcpy(weights[threads > 1], neo_bags_weight(bags, 2).data, sizeof weights[0]);
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
    CHECK_BITS(weights[0], weights[1], sizeof weights[0]);
}

static void bad_parts_are_named(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_table_desc t = {.name = "t", .rows = 10, .dim = 16, .part = {100, 48, 5, 16}};
    neo_bags_desc d = {.tables = &t, .table_count = 1, .max_batch = 4, .max_ids = 16};
    neo_bags *bags;
    CHECK_OK(neo_bags_create(ctx, &d, &bags));
    neo_bags_destroy(bags);
    t.part.first_row = 91;
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "rows from 91");
    t.part = (neo_table_part){100, 48, 5, 8};
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "multiples of 16");
    t.part = (neo_table_part){100, 48, 5, 16};
    t.row_buckets = 10;
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG,
              "row 5 is not where one of 10 buckets begins");
    t.part.first_row = 20;
    CHECK_OK(neo_bags_create(ctx, &d, &bags));
    neo_bags_destroy(bags);
    t.optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "cut_sums");
    d.cut_sums = refuse;
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
    int64_t offsets[] = {0, 1}, ids[] = {3};
    float dout[16] = {1}, before[160];
    neo_jagged j = {
        .batch = 1, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    memcpy(before, neo_bags_weight(bags, 0).data, sizeof before);
    CHECK_ERR(neo_bags_backward(bags, &j, neo_tensor_2d(dout, NEO_F32, 1, 16), 1), NEO_ERR_PEER,
              "lost");
    CHECK_BITS(before, neo_bags_weight(bags, 0).data, sizeof before);
    CHECK_INT(neo_bags_get_stats(bags).steps, 0);
    CHECK_INT(neo_bags_kept_count(bags), 0);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* What lies before the rows of a part is not read for an id that is dropped. */
static void dropped_ids_of_a_part_of_the_rows(void) {
    enum { ROWS_HERE = 5, DIM = 3, IDS = 6 };
    float memory[(ROWS_HERE + 1) * DIM], out[DIM], want[DIM] = {0};
    int64_t offsets[] = {0, IDS}, ids[IDS] = {4, -1, 0, 5, 4, -30};
    float weights[IDS] = {2, 3, 0.5f, 7, 1, 9};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    test_fill(memory, (ROWS_HERE + 1) * DIM);
    for (int c = 0; c < DIM; c++) memory[c] = NAN;
    neo_table_desc t = {.name = "t",
                        .rows = ROWS_HERE,
                        .dim = DIM,
                        .weight = memory + DIM,
                        .part = {40, DIM, 20, 0},
                        .init = {.kind = NEO_INIT_NONE}};
    neo_bags_desc d = {
        .tables = &t, .table_count = 1, .max_batch = 4, .max_ids = 16, .bounds = NEO_BOUNDS_DROP};
    neo_bags *bags;
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
    neo_jagged j = {
        .batch = 1, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    for (int weighted = 0; weighted < 2; weighted++) {
        if (weighted) j.weights = weights;
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 1, DIM)));
        for (int c = 0; c < DIM; c++) want[c] = 0;
        for (int k = 0; k < IDS; k++)
            for (int c = 0; c < DIM && ids[k] >= 0 && ids[k] < ROWS_HERE; c++)
                want[c] = fmaf(weighted ? weights[k] : 1, memory[(ids[k] + 1) * DIM + c], want[c]);
        CHECK_BITS(out, want, sizeof out);
    }
    CHECK_INT(neo_bags_get_stats(bags).out_of_range, 6);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(accumulate_and_step_are_backward);
    RUN(several_batches_add_up);
    RUN(what_is_kept_stays_where_memory_grows);
    RUN(subtrees_of_leaves_make_the_batch);
    RUN(errors_of_kept_gradients);
    RUN(parts_train_as_the_table);
    RUN(a_cut_table_beside_a_whole_one);
    RUN(bad_parts_are_named);
    RUN(dropped_ids_of_a_part_of_the_rows);
    return test_end("bags/kept_grads_and_parts");
}
