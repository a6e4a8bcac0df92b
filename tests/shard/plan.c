/* plan.c: neo_plan.h: what it accepts and refuses, its predictions against sums
   written out here, its search against brute force, its balance on the table sets of examples/plan,
   and its files. The implementation is in this file, so that brute force goes over the very options
   that the search has. */
#define NEO_FSDP_IMPLEMENTATION /* its private names, too */
#define NEO__CALIBRATE_RUNS 3
#define NEO__CALIBRATE_TIMES 2
#include "test.h"
#include "neo_plan.h"
#include "examples/plan/sets.h"
#include "meter.h"
#include <unistd.h>

/* Places and moves that the search of the largest model may try: a third more than it does. */
enum { LARGE_TRIED = 52000000 };
/* Random models of a test, and the ranks that the table sets lie on: fewer where each takes ten
   times as long. */
enum { SEARCHED = TEST_WATCHED ? 4 : 8, FORCED = TEST_WATCHED ? 40 : 80 };
enum { SET_RANKS = TEST_WATCHED ? 32 : 128 };

enum { MOST = PLAN_SET_MOST };
/* A model in memory of its own; d is what plans are made from. */
typedef struct model {
    neo_table_desc table[MOST];
    char name[MOST][24];
    double ids[MOST];
    unsigned allowed[MOST];
    neo_bags_desc bags;
    neo_plan_desc d;
} model;
static model m;
static neo_ctx *ctx;

static void model_begin(int ranks, int per_node) {
    memset(&m, 0, sizeof m);
    m.bags.tables = m.table;
    m.bags.max_batch = 1000;
    m.d.bags = &m.bags;
    m.d.ids_per_sample = m.ids;
    m.d.table_placements = m.allowed;
    m.d.cluster.ranks = ranks;
    m.d.cluster.ranks_per_node = per_node;
}
static void model_add(int64_t rows, int64_t dim, double ids, int buckets, neo_bag_optim_kind kind) {
    int t = m.bags.table_count++;
    snprintf(m.name[t], sizeof m.name[t], "t%d", t);
    m.table[t].name = m.name[t];
    m.table[t].rows = rows;
    m.table[t].dim = dim;
    m.table[t].row_buckets = buckets;
    m.table[t].optim.kind = kind;
    m.ids[t] = ids;
    m.bags.max_ids += (int64_t)(ids * (double)m.bags.max_batch) + 1;
}
static void model_set(int which, int ranks) {
    static plan_set_table tables[PLAN_SET_MOST];
    const plan_set *set = &PLAN_SETS[which];
    plan_set_make(set, tables);
    model_begin(ranks, 8);
    m.bags.max_batch = 65536;
    for (int t = 0; t < set->tables; t++)
        model_add(tables[t].rows, tables[t].dim, (double)tables[t].pooling, tables[t].row_buckets,
                  NEO_BAG_ROWWISE_ADAGRAD);
    neo_cluster *c = &m.d.cluster;
    c->memory_bytes = (int64_t)36 << 30;
    c->memory_bandwidth = 1300e9;
    c->flops = 10e12;
    c->link[NEO_LEVEL_LOCAL].bandwidth = 200e9;
    c->link[NEO_LEVEL_CROSS].bandwidth = 7e9;
    m.d.dense_flops_bottom = 0.2e6 * set->mflops;
    m.d.dense_flops_top = 0.8e6 * set->mflops;
}
static int64_t below(int64_t n) { return (int64_t)(test_random() % (uint32_t)n); }
static void model_random(int tables, int ranks, int per_node) {
    static const int64_t dims[] = {1, 4, 16, 20, 32, 48, 64, 100};
    static const int64_t rows[] = {1, 3, 10, 100, 3000, 50000};
    static const double ids[] = {0.5, 1, 1, 3, 10, 40};
    model_begin(ranks, per_node);
    for (int t = 0; t < tables; t++) { /* one after another: arguments have no order */
        neo_bag_optim_kind kind = (neo_bag_optim_kind)below(NEO_BAG_OPTIM_COUNT);
        int buckets = (int)below(3) * 4;
        double each = ids[below(6)];
        int64_t dim = dims[below(8)], more = below(3);
        model_add(rows[below(6)] + more, dim, each, buckets, kind);
    }
    m.d.cluster.link[NEO_LEVEL_LOCAL].latency_us = 3;
    m.d.cluster.link[NEO_LEVEL_CROSS].latency_us = 7;
    m.d.pipeline = (int)below(2);
    if (below(4) == 0) m.d.wire_forward = NEO_WIRE_I8;
    if (below(4) == 0) m.d.wire_backward = NEO_WIRE_BF16;
    m.d.dense_flops_bottom = below(2) ? 1e5 : 0;
    m.d.dense_flops_top = below(2) ? 1e5 : 0;
    m.d.dense_params = below(2) ? 10000 : 0;
}
/* The seconds by which a search compares plans. */
static double step_of(const neo_plan *plan) {
    double most[NEO__PLAN_LOADS];
    neo__plan_slowest(plan, plan->load, plan->part[NEO__PLAN_BACKWARD][NEO__PLAN_SUMS] > 0, most);
    neo_plan_step s = neo__plan_step_make(plan, most, plan->copy_bytes, NEO__PLAN_WAYS->spans);
    return m.d.pipeline ? s.pipelined : s.plain;
}
static int64_t rank_bytes(const neo_plan *plan, int rank) {
    neo_plan_rank r = neo_plan_rank_of(plan, rank);
    return r.weight_bytes + r.state_bytes + r.buffer_bytes;
}

/* ---- names ---- */
static void names(void) {
    neo_placement p = NEO_GRID;
    for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) {
        CHECK_OK(neo_placement_parse(neo_placement_name((neo_placement)i), &p));
        CHECK_INT(p, i);
    }
    CHECK_ERR(neo_placement_parse("row", &p), NEO_ERR_ARG, "'row' is none of tw, cw");
    CHECK(strcmp(neo_placement_name(NEO_PLACEMENT_COUNT), "unknown") == 0);
}

/* ---- what descriptions are refused ---- */
static void refused(void) {
    neo_plan *plan = (neo_plan *)&m;
#define REFUSED(change, part)                                                                      \
    do {                                                                                           \
        model_begin(4, 0);                                                                         \
        model_add(100, 32, 2, 4, NEO_BAG_SGD);                                                     \
        change;                                                                                    \
        CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_ARG, part);                           \
        CHECK(!plan);                                                                              \
    } while (0)
    REFUSED(m.d.cluster.ranks = 0, "cluster.ranks is 0, not in 1 .. 4096");
    REFUSED(m.d.cluster.ranks = 5000, "cluster.ranks is 5000");
    REFUSED(m.d.cluster.ranks_per_node = -1, "ranks_per_node is -1");
    REFUSED(m.d.cluster.memory_bytes = -5, "memory_bytes is -5");
    REFUSED(m.d.cluster.link[1].bandwidth = NAN, "link[NEO_LEVEL_CROSS].bandwidth is");
    REFUSED(m.d.cluster.calibration.update = -1, "calibration.update is -1");
    REFUSED(m.d.cluster.flops = INFINITY, "flops is inf");
    REFUSED(m.ids[0] = -3, "ids_per_sample[0] is -3");
    REFUSED(m.d.wire_forward = NEO_WIRE_COUNT, "wire_forward 7");
    REFUSED(m.d.placements = 1u << NEO_PLACEMENT_COUNT, "placements 0x80 has unknown bits");
    REFUSED(m.allowed[0] = 256, "table 't0': table_placements 0x100");
    REFUSED(m.d.dense_params = -1, "dense_params -1");
    REFUSED(m.d.dense_values = -1, "dense_values -1");
    REFUSED(m.table[0].rows = 0, "table 't0': rows 0");
    REFUSED(m.table[0].weight = (float *)&m,
            "table 't0': a table in pieces cannot lie in memory of yours");
    REFUSED(m.d.bags = NULL, "desc->bags is NULL");
    CHECK_ERR(neo_plan_create(ctx, &m.d, NULL), NEO_ERR_ARG, "plan is NULL");
    model_begin(4, 2);
    model_add(1, 16, 2, 1, NEO_BAG_SGD);
    m.allowed[0] = 1u << NEO_COLUMN_WISE | 1u << NEO_GRID;
    CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_UNSUPPORTED,
              "table 't0': none of the placements allowed is possible; cw: its columns are one "
              "block of 16; grid:");
    CHECK_ERR(neo_plan_create_uniform(ctx, &m.d, NEO_PLACEMENT_COUNT, &plan), NEO_ERR_ARG,
              "placement 7");
}

/* ---- pieces of the caller ---- */
static neo_status from(const neo_piece *pieces, int64_t count, neo_plan **plan) {
    return neo_plan_create_from(ctx, &m.d, pieces, count, plan);
}
static neo_piece piece(int table, int rank, int64_t row, int64_t rows, int64_t col, int64_t cols) {
    neo_piece p = {table, rank, row, rows, col, cols};
    return p;
}
static void given(void) {
    neo_plan *plan;
    neo_piece p[8], *q = p;
    model_begin(4, 2);
    model_add(100, 64, 2, 4, NEO_BAG_SGD); /* buckets of 25 rows */
    model_add(10, 20, 2, 1, NEO_BAG_SGD);
    /* all four corners of a grid, in a mixed order, and a copy */
    *q++ = piece(1, NEO_EVERY_RANK, 0, 10, 0, 20);
    *q++ = piece(0, 3, 25, 75, 16, 48);
    *q++ = piece(0, 0, 0, 50, 0, 16);
    *q++ = piece(0, 2, 0, 25, 16, 48);
    *q++ = piece(0, 1, 50, 50, 0, 16);
    REQUIRE_OK(from(p, q - p, &plan));
    int64_t count;
    const neo_piece *sorted = neo_plan_pieces(plan, &count);
    CHECK_INT(count, 5);
    CHECK_INT(sorted[0].rank, 0);
    CHECK_INT(sorted[1].rank, 1);
    CHECK_INT(sorted[3].first_row, 25);
    CHECK_INT(sorted[4].rank, NEO_EVERY_RANK);
    CHECK_INT(neo_plan_placement(plan, 0), NEO_GRID);
    CHECK_INT(neo_plan_placement(plan, 1), NEO_DATA_PARALLEL);
    CHECK(neo_plan_table_pieces(plan, 1, &count) == sorted + 4);
    CHECK_INT(count, 1);
    const int64_t *at = neo_plan_rank_pieces(plan, 2, &count);
    CHECK_INT(count, 2);
    CHECK_INT(at[0], 2);
    CHECK_INT(at[1], 4);
    neo_plan_destroy(plan);
    neo_plan_destroy(NULL);
}
static void given_wrong(void) {
    neo_plan *plan;
    model_begin(4, 2);
    model_add(100, 64, 2, 4, NEO_BAG_SGD);
    model_add(10, 20, 2, 1, NEO_BAG_SGD);
#define GIVEN(part, ...)                                                                           \
    do {                                                                                           \
        neo_piece list[] = {__VA_ARGS__};                                                          \
        CHECK_ERR(from(list, sizeof list / sizeof *list, &plan), NEO_ERR_ARG, part);               \
        CHECK(!plan);                                                                              \
    } while (0)
    neo_piece one = piece(1, 0, 0, 10, 0, 20);
    GIVEN("table 't0' has no pieces", one);
    GIVEN("table 't1' has no pieces", piece(0, 0, 0, 100, 0, 64));
    GIVEN("piece 1: table is 2, there are 2", one, piece(2, 0, 0, 1, 0, 1));
    GIVEN("table 't0': piece 1: rank is 4, there are 4", one, piece(0, 4, 0, 100, 0, 64));
    GIVEN("table 't0': piece 0: rank is -2", piece(0, -2, 0, 100, 0, 64), one);
    GIVEN("rows 0+101, columns 0+64 is empty or outside of 100 x 64", one,
          piece(0, 0, 0, 101, 0, 64));
    GIVEN("rows 0+0, columns 0+64 is empty", one, piece(0, 0, 0, 0, 0, 64));
    GIVEN("rows 0+100, columns 48+17 is empty or outside", one, piece(0, 0, 0, 100, 48, 17));
    GIVEN("is empty or outside", one, piece(0, 0, INT64_MAX, 100, 0, 64));
    GIVEN("what is on every rank is the whole table", one, piece(0, -1, 0, 50, 0, 64));
    GIVEN("table 't0' is on every rank, and in other pieces too", one, piece(0, -1, 0, 100, 0, 64),
          piece(0, 1, 0, 100, 0, 64));
    GIVEN("table 't0': row 50, column 0 is in no piece", one, piece(0, 0, 0, 50, 0, 64));
    GIVEN("table 't0': row 0, column 0 is in no piece", one, piece(0, 0, 50, 50, 0, 64));
    GIVEN("table 't0': row 0, column 32 is in no piece", one, piece(0, 0, 0, 100, 0, 32));
    GIVEN("table 't0': row 0, column 16 is in no piece", one, piece(0, 0, 0, 100, 0, 16),
          piece(0, 1, 0, 100, 32, 32));
    GIVEN("table 't0': row 0, column 0 is in no piece", one, piece(0, 1, 0, 100, 32, 32));
    GIVEN("table 't0': row 75, column 0 is in no piece", one, piece(0, 0, 0, 75, 0, 16),
          piece(0, 1, 0, 100, 16, 48));
    GIVEN("table 't0': row 50, column 0 is in no piece", one, piece(0, 0, 0, 50, 0, 64),
          piece(0, 1, 75, 25, 0, 64));
    GIVEN("table 't0': row 25, column 0 is in two pieces, on ranks 0 and 1", one,
          piece(0, 0, 0, 50, 0, 64), piece(0, 1, 25, 75, 0, 64));
    GIVEN("table 't0': row 0, column 0 is in two pieces, on ranks 0 and 1", one,
          piece(0, 0, 0, 100, 0, 64), piece(0, 1, 0, 100, 0, 64));
    GIVEN("column 16 (of a piece on rank 1) is inside another slice, which ends at column 32", one,
          piece(0, 0, 0, 100, 0, 32), piece(0, 1, 0, 100, 16, 48));
    GIVEN("the pieces at column 0 (on ranks 0 and 1) differ in their columns", one,
          piece(0, 0, 0, 50, 0, 32), piece(0, 1, 50, 50, 0, 64), piece(0, 1, 0, 50, 32, 32));
    GIVEN("column 8 is no place to cut: not a multiple of 16", one, piece(0, 0, 0, 100, 0, 8),
          piece(0, 1, 0, 100, 8, 56));
    GIVEN("row 30 is no place to cut: none of the 4 buckets begins there", one,
          piece(0, 0, 0, 30, 0, 64), piece(0, 1, 30, 70, 0, 64));
    GIVEN("table 't1': piece 1 has 5 of 10 rows, so sums would depend on the plan: give it "
          "row_buckets",
          piece(0, 0, 0, 100, 0, 64), piece(1, 0, 0, 5, 0, 20), piece(1, 1, 5, 5, 0, 20));
    CHECK_ERR(from(NULL, 3, &plan), NEO_ERR_ARG, "no pieces are given");

    /* with a wire that has scales columns are cut at its blocks */
    m.table[0].dim = 128;
    m.d.wire_backward = NEO_WIRE_I4;
    GIVEN("column 32 is no place to cut: not a multiple of 64, the block of the wire's scales", one,
          piece(0, 0, 0, 100, 0, 32), piece(0, 1, 0, 100, 32, 96));
    neo_piece fine[] = {one, piece(0, 0, 0, 100, 0, 64), piece(0, 1, 0, 100, 64, 64)};
    REQUIRE_OK(from(fine, 3, &plan));
    neo_plan_destroy(plan);
    m.d.cluster.memory_bytes = 1000;
    CHECK_ERR(from(fine, 3, &plan), NEO_ERR_CAPACITY, "rank 0 would need");
}
/* A bucket begins at b rows/R rounded down: every such row may begin a piece and no other; rows
   below R: all. */
static void row_cuts(void) {
    static const int64_t rows[] = {1, 2, 3, 7, 10, 64, 100, 1001};
    for (int i = 0; i < 8; i++) {
        for (int buckets = 2; buckets <= 12; buckets++) {
            neo_plan *plan;
            model_begin(3, 0);
            model_add(rows[i], 8, 1, buckets, NEO_BAG_SGD);
            for (int64_t row = 1; row < rows[i]; row++) {
                int begins = 0;
                for (int b = 0; b < buckets; b++) begins |= b * rows[i] / buckets == row;
                neo_piece p[2] = {piece(0, 1, 0, row, 0, 8), piece(0, 0, row, rows[i] - row, 0, 8)};
                neo_status status = from(p, 2, &plan);
                if ((status == NEO_OK) != begins)
                    FAIL("%d rows, %d buckets, row %d: %s", (int)rows[i], buckets, (int)row,
                         neo_last_error());
                neo_plan_destroy(plan);
            }
        }
    }
}
/* Tables without buckets: cut by rows only where that is asked for; then it is said. */
static char logged[400];
static void keep_log(neo_log_level level, const char *message, void *user) {
    (void)user;
    if (level == NEO_LOG_WARNING) snprintf(logged, sizeof logged, "%s", message);
}
static void loose(void) {
    neo_plan *plan;
    char text[200];
    NEO__ZERO(neo_ctx_desc, cd);
    neo_ctx *loud;
    cd.logger.log = keep_log;
    REQUIRE_OK(neo_ctx_create(&cd, &loud));
    model_begin(4, 0);
    model_add(1000, 16, 20, 1, NEO_BAG_SGD);
    model_add(1000, 16, 20, 4, NEO_BAG_SGD);
    neo_piece p[] = {piece(0, 1, 0, 333, 0, 16), piece(0, 0, 333, 667, 0, 16),
                     piece(1, 0, 0, 1000, 0, 16)};
    CHECK_ERR(from(p, 3, &plan), NEO_ERR_ARG, "table 't0'");
    m.allowed[0] = 1u << NEO_ROW_WISE;
    REQUIRE_OK(neo_plan_create_from(loud, &m.d, p, 3, &plan));
    CHECK_INT(neo_plan_warning(plan, 0, text, sizeof text), strlen(text));
    CHECK(strcmp(text, "sums of table 't0' depend on the plan: give it row_buckets") == 0);
    CHECK(strcmp(text, logged) == 0);
    CHECK_INT(neo_plan_warning(plan, 1, text, sizeof text), 0);
    CHECK(!text[0]);
    neo_plan_destroy(plan);
    logged[0] = 0;
    REQUIRE_OK(neo_plan_create(loud, &m.d, &plan)); /* nothing else is allowed for t0 */
    CHECK_INT(neo_plan_placement(plan, 0), NEO_ROW_WISE);
    CHECK(strstr(logged, "'t0'"));
    neo_plan_destroy(plan);
    m.allowed[0] = 0;
    logged[0] = 0;
    REQUIRE_OK(neo_plan_create(loud, &m.d, &plan));
    CHECK(neo_plan_placement(plan, 0) != NEO_ROW_WISE);
    CHECK(!logged[0]);
    neo_plan_destroy(plan);
    REQUIRE_OK(neo_plan_create_uniform(loud, &m.d, NEO_ROW_WISE, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_TABLE_WISE);
    CHECK_INT(neo_plan_placement(plan, 1), NEO_ROW_WISE);
    CHECK(neo_plan_why(plan, 0, text, sizeof text) > 0);
    CHECK(strstr(text, "rw was asked for: its sums would depend on the plan"));
    neo_plan_destroy(plan);
    m.d.placements = 1u << NEO_ROW_WISE;
    REQUIRE_OK(neo_plan_create_uniform(loud, &m.d, NEO_ROW_WISE, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_ROW_WISE);
    neo_plan_destroy(plan);
    neo_ctx_destroy(loud);
}

/* ---- predictions against sums written out: one table at a time, two nodes of two ranks ---- */
enum { IDS, LOOKUP, FORWARD, BACKWARD, UPDATE };
static void phases(const neo_plan *plan, int rank, double *x) {
    neo_plan_rank r = neo_plan_rank_of(plan, rank);
    x[IDS] = r.ids;
    x[LOOKUP] = r.lookup;
    x[FORWARD] = r.forward;
    x[BACKWARD] = r.backward;
    x[UPDATE] = r.update;
}
static void expect_phases(const neo_plan *plan, int rank, const double *want, const char *what) {
    double got[5];
    phases(plan, rank, got);
    for (int i = 0; i < 5; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (1e-3 + want[i])))
            FAIL("%s, rank %d, phase %d: %.12g, expected %.12g", what, rank, i, got[i], want[i]);
}
/* B samples, W = 4, L = 2, H = 2; 800 rows x 32, 3 ids per sample; seconds of a byte over links of
   5e9 inside a node and 1e9 between nodes, and of memory of 10e9. */
static const double B = 1000, ids = 3000, local = 1 / 5e9, cross = 1 / 1e9, mem = 1 / 10e9;
static const double way = 0.5 / 1e9, across = 0.5 / 1e9; /* beside them 0.25 local */
static const double look = 1.5 / 10e9, sort = 64 / 10e9, row = 64 / 10e9, kept = 256 / 10e9;
/* Of what a rank packs or unpacks: its samples of each whole row, and its ids. */
static const double copy = 1000 / 4 * (2 * 128 / 10e9 + 64 / 10e9), pack = 3000 / 4 * (64 / 10e9);
static void one_table(void) {
    model_begin(4, 2);
    model_add(800, 32, 3, 4, NEO_BAG_ROWWISE_ADAGRAD);
    m.d.wire_forward = NEO_WIRE_BF16;
}
/* Table-wise on rank 2. */
static void predicts_table_wise(void) {
    neo_plan *plan;
    one_table();
    neo_piece p = piece(0, 2, 0, 800, 0, 32);
    double index = 4 * ids + 4 * B, moved = 8 * ids + 4 * B + 128 * (ids + B);
    double at[5] = {index * (way + 2 * mem) + pack, moved * look, B * 64 * way + copy,
                    B * 128 * way + copy, 2 * moved * mem + ids * sort};
    double no[5] = {pack, 0, copy, copy, 0};
    REQUIRE_OK(from(&p, 1, &plan));
    expect_phases(plan, 2, at, "tw");
    expect_phases(plan, 0, no, "tw");
    neo_plan_step s = neo_plan_step_of(plan);
    const double all = at[0] + at[1] + at[2] + at[3] + at[4];
    CHECK_NEAR(s.plain, all - B * 64 * way / 2, 1e-12); /* of the other node's ranks, that whose
                                                           rows come first sends back while the
                                                           other's still come */
    CHECK_INT(s.busiest_rank, 2);
    CHECK_NEAR(s.balance, all * 4 / (all + 3 * (pack + 2 * copy)), 1e-9);
    neo_plan_destroy(plan);
}
/* Columns: rank 0 and 3 hold 16 each: ids and row sums go twice, and gradients wait for them. */
static void predicts_columns(void) {
    neo_plan *plan;
    one_table();
    neo_piece p[2] = {piece(0, 0, 0, 800, 0, 16), piece(0, 3, 0, 800, 16, 16)};
    double index = 4 * ids + 4 * B, moved = 8 * ids + 4 * B + 64 * (ids + B);
    double halves = 2 * B / 4 * (2 * 64 * mem + row),
           rows = ids * neo__plan_fresh(ids, 800, 0), wait = rows * (kept + 2 * 64 * mem);
    double at[5] = {index * (way + 2 * mem) + pack, moved * look, B * 32 * way + halves,
                    B * 64 * way + halves, 2 * moved * mem + ids * sort + wait + 4 * rows * cross};
    REQUIRE_OK(from(p, 2, &plan));
    expect_phases(plan, 0, at, "cw");
    expect_phases(plan, 3, at, "cw");
    neo_plan_destroy(plan);
    p[1].rank = 1;
    at[UPDATE] += 4 * rows * (local - cross);
    REQUIRE_OK(from(p, 2, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_TABLE_COLUMN_WISE);
    expect_phases(plan, 1, at, "twcw");
    neo_plan_destroy(plan);
}
/* Rows on ranks 1 (a bucket) and 2 (three: two parts), in different nodes: partial sums in f32 from
   each part. */
static void predicts_rows(void) {
    neo_plan *plan;
    one_table();
    neo_piece p[2] = {piece(0, 1, 0, 200, 0, 32), piece(0, 2, 200, 600, 0, 32)};
    double index = 4 * ids / 4 + 4 * B, moved = 8 * ids / 4 + 4 * B + 128 * (ids / 4 + B);
    double at[5] = {index * (way + 2 * mem) + pack, moved * look, B * 128 * way + 3 * copy,
                    B * 128 * way + 3 * copy, 2 * moved * mem + ids / 4 * sort};
    double index2 = 3 * 4 * ids / 4 + 2 * 4 * B,
           moved2 = 3 * 8 * ids / 4 + 2 * 4 * B + 128 * (3 * ids / 4 + 2 * B);
    double two[5] = {index2 * (way + 2 * mem) + pack, moved2 * look,
                     2 * B * 128 * way + 3 * copy, 2 * B * 128 * way + 3 * copy,
                     2 * moved2 * mem + 3 * ids / 4 * sort};
    REQUIRE_OK(from(p, 2, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_ROW_WISE);
    expect_phases(plan, 1, at, "rw");
    expect_phases(plan, 2, two, "rw of two parts");
    neo_plan_destroy(plan);
    p[0].rank = 3; /* now in one node: they add inside, and whole sums go across */
    at[FORWARD] = B * 128 / 2 * local + B * (2 * 128 * mem + row) + B / 2 * 64 * across + copy;
    at[BACKWARD] = B * 128 / 2 * local + B * (2 * 128 * mem + row) + B / 2 * 128 * across + copy;
    REQUIRE_OK(from(p, 2, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_TABLE_ROW_WISE);
    expect_phases(plan, 3, at, "twrw");
    neo_plan_destroy(plan);
}
/* On every rank: all-reduced flat, with a mark of each row. */
static void predicts_replicas(void) {
    neo_plan *plan;
    one_table();
    neo_piece p = piece(0, NEO_EVERY_RANK, 0, 800, 0, 32);
    double moved = (8 * ids + 4 * B + 128 * (ids + B)) / 4, size = 800 * 128;
    double at[5] = {0, moved * look, copy, copy,
                    2 * moved * mem + ids / 4 * sort + 3 * size * mem +
                        800 * (1 - 0.25 * 800 / ids) * (16 * kept + 2 * 128 * mem)};
    m.d.dense_params = 1000;
    REQUIRE_OK(from(&p, 1, &plan));
    for (int r = 0; r < 4; r++) expect_phases(plan, r, at, "dp");
    neo_plan_step s = neo_plan_step_of(plan);
    CHECK_NEAR(s.reduce, size * 2 * way + (800 + 4000) * 2 * (local + cross), 1e-15);
    neo_plan_destroy(plan);
}
/* One rank: nothing is moved; ids of 8 bytes, where one table is so long. */
static void predicts_one_rank(void) {
    neo_plan *plan;
    neo_piece p[2] = {piece(0, 0, 0, 800, 0, 32), piece(1, 0, 0, (1ll << 31) + 1, 0, 1)};
    double moved = 8 * ids + 4 * B + 128 * (ids + B);
    double at[5] = {0, moved * look, 0, 0, 2 * moved * mem + ids * sort};
    model_begin(1, 0);
    model_add(800, 32, 3, 4, NEO_BAG_ROWWISE_ADAGRAD);
    REQUIRE_OK(from(p, 1, &plan));
    expect_phases(plan, 0, at, "one rank");
    neo_plan_destroy(plan);
    model_begin(4, 2);
    model_add(800, 32, 3, 0, NEO_BAG_SGD);
    model_add((1ll << 31) + 1, 1, 0, 0, NEO_BAG_SGD);
    p[0].rank = 1;
    REQUIRE_OK(from(p, 2, &plan));
    CHECK_NEAR(neo_plan_rank_of(plan, 1).ids, (8 * ids + 4 * B) * (way + 2 * mem) + pack, 1e-12);
    neo_plan_destroy(plan);
}
static void predictions(void) {
    predicts_table_wise();
    predicts_columns();
    predicts_rows();
    predicts_replicas();
    predicts_one_rank();
}
/* The formula of a plain step, and latencies. */
static void steps(void) {
    neo_plan *plan;
    model_begin(4, 2);
    model_add(800, 32, 3, 4, NEO_BAG_SGD);
    m.d.dense_flops_bottom = 3e6;
    m.d.dense_flops_top = 1e6;
    m.d.dense_params = 100;
    m.d.cluster.flops = 1e12;
    m.d.cluster.link[0].latency_us = 10;
    m.d.cluster.link[1].latency_us = 100;
    neo_piece p = piece(0, 2, 0, 800, 0, 32);
    REQUIRE_OK(from(&p, 1, &plan));
    neo_plan_step s = neo_plan_step_of(plan);
    neo_plan_rank r = neo_plan_rank_of(plan, 2);
    CHECK_NEAR(s.ids, r.ids + 2 * 100e-6, 1e-12);
    CHECK_NEAR(s.forward, r.forward + 100e-6, 1e-12);
    CHECK_NEAR(s.backward, r.backward + 100e-6, 1e-12);
    CHECK_NEAR(s.bottom, 250 * 3e6 / 1e12, 1e-12);
    CHECK_NEAR(s.top, 250 * 1e6 / 1e12, 1e-12);
    CHECK_NEAR(s.reduce, 2 * 2 * 110e-6 + 400 * 2 * (1 / 5e9 + 1 / 1e9),
               1e-12); /* of two units, each up a tree and down */
    CHECK_NEAR(s.plain,
               s.ids + s.lookup + s.forward + 3 * (s.bottom + s.top) + s.backward + s.update +
                   s.reduce,
               1e-12);
    CHECK(s.pipelined < s.plain);
    neo_plan_destroy(plan);
}

/* ---- timelines ---- */
static double ended(const neo_task *task) { return task->begin + task->seconds; }
/* Every task begins when those it waits for and the last of its lane have ended, and not later; the
   critical tasks follow each other without a gap; sums are those of the tasks. */
static void check_timeline(const neo_timeline *timeline, int pipelined) {
    neo_timeline_sum sum = neo_timeline_sum_of(timeline);
    int32_t count;
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    double busy[NEO_LANE_COUNT] = {0}, bytes[NEO_LANE_COUNT] = {0}, last = 0, critical = 0;
    for (int32_t i = 0; i < count; i++) {
        double begin = 0;
        for (int k = 0; k < NEO_TASK_WAITS; k++) {
            CHECK(task[i].after[k] < i);
            if (task[i].after[k] >= 0) begin = fmax(begin, ended(&task[task[i].after[k]]));
        }
        for (int32_t j = 0; j < i; j++) { /* both levels of an exchange go at the same time */
            const int beside = j == i - 1 && task[i].lane == NEO_LANE_CROSS &&
                               task[j].lane == NEO_LANE_LOCAL && task[i].name == task[j].name;
            if (pipelined ? task[j].lane == task[i].lane : !beside)
                begin = fmax(begin, ended(&task[j]));
        }
        CHECK(task[i].begin == begin);
        CHECK(task[i].seconds > 0);
        CHECK(task[i].lane == NEO_LANE_COMPUTE ? task[i].bytes == 0 : task[i].bytes >= 0);
        busy[task[i].lane] += task[i].seconds;
        bytes[task[i].lane] += task[i].bytes;
        last = fmax(last, ended(&task[i]));
        if (task[i].critical) {
            CHECK(fabs(task[i].begin - critical) <= 1e-12 * last);
            critical = ended(&task[i]);
        }
    }
    CHECK(critical == last);
    CHECK(sum.seconds == last);
    CHECK(sum.exposed == last - busy[NEO_LANE_COMPUTE]);
    for (int k = 0; k < NEO_LANE_COUNT; k++) {
        CHECK(sum.busy[k] == busy[k]);
        CHECK(sum.bytes[k] == bytes[k]);
    }
}
/* When the last task ends if each takes as long as on its slowest rank. */
static double slowest_of(const neo_timeline *timeline) {
    double last = 0;
    for (int32_t i = 0; i < timeline->eaches; i++) last = fmax(last, ended(&timeline->each[i]));
    return last;
}
/* The timelines of a plan agree with its step. */
static void check_timelines(const neo_plan *plan) {
    neo_plan_step s = neo_plan_step_of(plan);
    double slowest = 0;
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        neo_timeline *timeline;
        REQUIRE_OK(neo_timeline_create(plan, NULL, 0, pipelined, &timeline));
        double seconds = neo_timeline_sum_of(timeline).seconds;
        CHECK_NEAR(seconds / (pipelined ? s.pipelined : s.plain), 1, 1e-13);
        check_timeline(timeline, pipelined);
        slowest = fmax(slowest, slowest_of(timeline) * !pipelined);
        neo_timeline_destroy(timeline);
    }
    /* Without a pipeline ranks that have their rows early send gradients back early, while others
       still wait: with one, and no layers to hide them, the next ids, for which all ranks meet, are
       on the links before gradients. Then it is longer, but no longer than if all ranks waited. */
    const double most = m.d.dense_flops_top > 0 ? s.plain : fmax(s.plain, slowest);
    CHECK(s.pipelined <= most * (1 + 1e-13));
}
/* As predicts_table_wise(): what a rank computes and sends is known; when, is worked out by
   hand from the order of the calls. */
static void timeline_by_hand(double flops, double local_speed, double cross_speed) {
    const double B = 1000, ids = 3000, mem = 1 / 10e9, look = 1.5 * mem, lat[2] = {10e-6, 100e-6};
    const double way[2] = {0.25 / local_speed, 0.5 / cross_speed};
    neo_plan *plan;
    neo_timeline *timeline;
    model_begin(4, 2);
    model_add(800, 32, 3, 4, NEO_BAG_ROWWISE_ADAGRAD);
    m.d.cluster.link[0].bandwidth = local_speed, m.d.cluster.link[0].latency_us = 10;
    m.d.cluster.link[1].bandwidth = cross_speed, m.d.cluster.link[1].latency_us = 100;
    m.d.cluster.flops = flops;
    neo_piece p = piece(0, 2, 0, 800, 0, 32);
    REQUIRE_OK(from(&p, 1, &plan));
    const neo_dense_unit units[3] = {
        {"bottom", 3e5, 1000, 0, NULL, 0, {0, 0}}, {"interaction", 1e5, 0, 1, NULL, 0, {0, 0}},
        {"top", 6e5, 5000, 1, NULL, 0, {0, 0}}};
    const double sample = B / 4 / flops, index = 4 * ids + 4 * B,
                 moved = 8 * ids + 4 * B + 128 * (ids + B), rows = B * 128;
    const double pack_ids = (2 * index * mem + ids / 4 * 64 * mem) / 2,
                 pack_rows = B / 4 * (2 * 128 * mem + 64 * mem) / 2,
                 update = 2 * moved * mem + ids * 64 * mem;
    double c = pack_ids + moved * look + pack_rows, link[2], at; /* lanes are free */
    for (int k = 0; k < 2; k++) link[k] = c + rows * way[k] + lat[k];
    c += pack_ids;
    double arrived = fmax(link[0], link[1]);
    for (int k = 0; k < 2; k++) link[k] = fmax(c, link[k]) + index * way[k] + 2 * lat[k];
    c = fmax(c + 3e5 * sample, arrived) + pack_rows + 3 * 7e5 * sample - 2 * 1e5 * sample;
    for (int k = 0; k < 2; k++) /* the top is back: its gradients go, then the interaction */
        link[k] = fmax(c, link[k]) + 2 * 20000 * way[k] + 2 * lat[k];
    c += 2 * 1e5 * sample + pack_rows;
    for (int k = 0; k < 2; k++) link[k] = fmax(c, link[k]) + rows * way[k] + lat[k];
    arrived = fmax(link[0], link[1]);
    c += 2 * 3e5 * sample;
    at = c; /* 4,000 bytes go up a tree and down: one hop in the node, then one to the other */
    for (int k = 0; k < 2; k++)
        at = link[k] = fmax(at, link[k]) + 2 * (4000 * 4 * way[k] / (k + 1) + lat[k]);
    c = fmax(c, arrived) + pack_rows + update;
    REQUIRE_OK(neo_timeline_create(plan, units, 3, 1, &timeline));
    check_timeline(timeline, 1);
    neo_timeline_sum sum = neo_timeline_sum_of(timeline);
    CHECK_NEAR(sum.seconds / fmax(c, fmax(link[0], link[1])), 1, 1e-12);
    CHECK_NEAR(sum.bytes[NEO_LANE_LOCAL], 0.25 * (index + 2 * rows + 2 * 24000), 1e-6);
    CHECK_NEAR(sum.bytes[NEO_LANE_CROSS], 0.5 * (index + 2 * rows + 2 * 24000), 1e-6);
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
}
/* What links take of several sizes: as a line through them it is a bandwidth, whatever the cluster
   says of one; a curve is followed along lines, beyond its last size by the bandwidth. */
static void timeline_by_sizes(void) {
    static const neo_placement ways[] = {NEO_TABLE_WISE, NEO_COLUMN_WISE, NEO_TABLE_ROW_WISE,
                                         NEO_ROW_WISE};
    neo_cluster *c = &m.d.cluster;
    neo_plan *plan[2];
    for (int turn = 0; turn < 40; turn++) {
        double took[2][2];
        int64_t count;
        model_random(1 + (int)below(5), 2 + (int)below(7), (int)below(4));
        m.d.dense_params = 10000;
        for (int i = 0; i < 2; i++) {
            if (i) {
                const neo_piece *p = neo_plan_pieces(plan[0], &count);
                for (int k = 0; k < NEO_LEVEL_COUNT * NEO_LINK_KINDS * NEO_LINK_SIZES; k++) {
                    const int level = k / 8, kind = k / 4 % 2, size = k % 4;
                    c->link_us[level][kind][size] = (1 + kind) * c->link[level].latency_us +
                                                    1e6 * (4096 << 4 * size) / (level ? 1e9 : 5e9);
                }
                c->link[0].bandwidth = 1e8, c->link[1].bandwidth = 1e7;
                REQUIRE_OK(from(p, count, &plan[1]));
            } else REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, ways[turn % 4], &plan[0]));
            for (int pipelined = 0; pipelined < 2; pipelined++) {
                neo_timeline *timeline;
                REQUIRE_OK(neo_timeline_create(plan[i], NULL, 0, pipelined, &timeline));
                took[i][pipelined] = neo_timeline_sum_of(timeline).seconds;
                neo_timeline_destroy(timeline);
            }
        }
        for (int k = 0; k < 2; k++) {
            CHECK_NEAR(took[1][k] / took[0][k], 1, 1e-9);
            neo_plan_destroy(plan[k]);
        }
    }
    memcpy(c->link_us[1][1], (double[]){14, 34, 34, 0}, sizeof c->link_us[1][1]);
    c->link[1] = (neo_link){5, 1e9}; /* two latencies of a reduction are in what was measured */
    static const double at[][2] = {{0, 0}, {2048, 2}, {4096, 4}, {34816, 14}, {65536, 24},
                                   {524288, 24}, {1048576, 24}, {2048576, 1024}};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        CHECK_NEAR(1e6 * neo__timeline_bytes(c, 1, NEO_LINK_REDUCE, at[i][0]), at[i][1], 1e-6);
    c->link_us[0][1][2] = -1;
    CHECK_ERR(neo_plan_create(ctx, &m.d, &plan[0]), NEO_ERR_ARG, "cluster.link_us");
}
static void timelines(void) {
    const neo_dense_unit wrong[] = {
        {NULL, 1, 1, 0, NULL, 0, {0, 0}}, {"u", -1, 1, 0, NULL, 0, {0, 0}},
        {"u", NAN, 1, 0, NULL, 0, {0, 0}}, {"u", 1, -1, 0, NULL, 0, {0, 0}}};
    const char *const say[] = {"units[0].name is NULL", "unit 'u': flops -1", "unit 'u': flops",
                               "params -1 is negative"};
    neo_plan *plan;
    neo_timeline *timeline;
    timeline_by_hand(1e12, 5e9, 1e9);
    timeline_by_hand(1e9, 5e9, 1e9);   /* computation hides the links */
    timeline_by_hand(1e13, 1e8, 1e9);  /* links inside the node are the slow ones */
    timeline_by_hand(1e13, 1e11, 1e7); /* the next ids are last */
    timeline_by_sizes();
    for (int turn = 0; turn < 60; turn++) {
        model_random(1 + (int)below(5), 1 + (int)below(9), (int)below(4));
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, (neo_placement)(turn % NEO_PLACEMENT_COUNT),
                                           &plan));
        check_timelines(plan);
        neo_plan_destroy(plan);
    }
    model_begin(4, 2);
    model_add(800, 32, 3, 4, NEO_BAG_SGD);
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    for (int i = 0; i < 4; i++) {
        timeline = (neo_timeline *)&m;
        CHECK_ERR(neo_timeline_create(plan, &wrong[i], 1, 0, &timeline), NEO_ERR_ARG, say[i]);
        CHECK(!timeline);
    }
    CHECK_ERR(neo_timeline_create(NULL, NULL, 0, 0, &timeline), NEO_ERR_ARG, "plan is NULL");
    CHECK_ERR(neo_timeline_create(plan, wrong, -1, 0, &timeline), NEO_ERR_ARG, "-1 units");
    REQUIRE_OK(neo_timeline_create(plan, wrong, 0, 0, &timeline)); /* no dense layers */
    check_timeline(timeline, 0);
    neo_timeline_destroy(timeline);
    neo_timeline_destroy(NULL);
    CHECK(strcmp(neo_lane_name(NEO_LANE_CROSS), "cross") == 0);
    CHECK(strcmp(neo_lane_name(NEO_LANE_COUNT), "unknown") == 0);
    neo_plan_destroy(plan);
}
/* The optimizer of a step that touches as many bytes as there are of a cache takes as long as half
   near and half far; what a step touches counts. */
static void optimizer(const neo_dense_unit *units) {
    neo_calibration *by = &m.d.cluster.calibration;
    neo_plan *plan;
    neo_timeline *timeline;
    double took = 0, touched = 12 * 400 + 8 * 500 * (3 + 7 + 2 + 3 + 7); /* 500: of a rank */
    const double ids = 3 * 500, share = 2 * ids / 800;
    int32_t count;
    by->step_near = 4, by->cache = 1e6;
    CHECK_NEAR(neo_step_seconds(&m.d.cluster, 1e6, 1e6) / (1e6 * 12 / 10e9), 1, 1e-4);
    CHECK_NEAR(neo_step_seconds(&m.d.cluster, 1e6, 2e6) / (1e6 * 16 / 10e9), 1, 1e-4);
    CHECK_NEAR(neo_step_seconds(&m.d.cluster, 1e6, 0), 1e6 * 4 / 10e9, 1e-12);
    touched += (1 - exp(-share)) / share * ids * 128 + 8 * 500 * 32; /* rows without a state */
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    REQUIRE_OK(neo_timeline_create(plan, units, 2, 0, &timeline));
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    for (int32_t i = 0; i < count; i++)
        if (!strcmp(task[i].name, "step")) took += task[i].seconds;
    const double want = neo_step_seconds(&m.d.cluster, 400, touched);
    CHECK_NEAR(took, want, 1e-2 * want);
    CHECK(took > 1.02 * neo_step_seconds(&m.d.cluster, 400, 12 * 400));
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
    by->others = 1e9; /* what others touch in the seconds before it counts */
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    REQUIRE_OK(neo_timeline_create(plan, units, 2, 0, &timeline));
    task = neo_timeline_tasks(timeline, &count);
    CHECK(!strcmp(task[count - 1].name, "step"));
    const double before = task[count - 1].begin,
                 later = neo_step_seconds(&m.d.cluster, 400, touched + 1e9 * before);
    CHECK(later > 1.02 * want);
    CHECK_NEAR(task[count - 1].seconds, later, 1e-2 * later);
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
    by->others = 0;
    by->step_near = -1;
    CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_ARG, "calibration.step_near is -1");
    by->step_near = by->cache = 0;
}
/* Seconds of units u and v forward, backward and in the optimizer, which is last. */
static void layers_took(const neo_dense_unit *units, double took[3][2]) {
    int32_t count;
    neo_plan *plan;
    neo_timeline *timeline;
    memset(took, 0, 6 * sizeof **took);
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    REQUIRE_OK(neo_timeline_create(plan, units, 2, 0, &timeline));
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    for (int32_t i = 0; i < count; i++) {
        const int k = !strcmp(task[i].name, "forward") ? 0 : !strcmp(task[i].name, "backward") ? 1
                      : !strcmp(task[i].name, "step")  ? 2 : -1;
        if (k >= 0) took[k][task[i].unit[0] == 'v'] += task[i].seconds;
        if (k == 2) CHECK(i == count - 1);
    }
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
}
/* Units with widths take the seconds of their layers, the first without a gradient of its input;
   the optimizer comes last. Weights that no cache keeps come from memory, once forward, and
   backward with their gradients; so does what a layer writes, 500 samples of its output, or of its
   input's gradient, which the first has not. */
static void layers(void) {
    static const int64_t widths[3] = {3, 7, 2};
    const neo_dense_unit units[2] = {{"u", 5, 100, 0, widths, 3, {0, 0}},
                                     {"v", 5, 300, 1, widths, 2, {0, 0}}};
    double took[3][2], far[3][2];
    int32_t count;
    neo_plan *plan;
    neo_timeline *timeline;
    model_begin(2, 0);
    model_add(800, 32, 3, 4, NEO_BAG_SGD);
    m.d.cluster.calibration.step = 20;
    for (int i = 0; i < 5 * NEO_LAYER_COUNT; i++)
        m.d.cluster.calibration.layer[i / 5][i % 5] = (i + 1) * 1e-9;
    m.d.cluster.calibration.cache = 1e-3;
    layers_took(units, far);
    m.d.cluster.calibration.cache = 1e30;
    layers_took(units, took);
    const double bytes[2][2] = {{4 * (21 + 14) + 4 * 500 * (7 + 2), 4 * 21 + 4 * 500 * 7},
                                {8 * 21 + 12 * 14 + 4 * 500 * 7, 12 * 21 + 4 * 500 * 3}};
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(far[i / 2][i % 2] - took[i / 2][i % 2], bytes[i / 2][i % 2] / 10e9, 1e-15);
    double want[3][2]; /* [way][layer] of 500 samples */
    for (int way = 0; way < 3; way++)
        for (int l = 0; l < 2; l++) {
            const double in = (double)widths[l], out = (double)widths[l + 1], a = 5 * way + 1;
            const double wide_in = way && l ? 16 : in, wide_out = !way && !l ? 16 : out; /* not 7 */
            want[way][l] = 1e-9 * (a * 500 * wide_in * wide_out + (a + 1) * 500 * in +
                                   (a + 2) * in * out + (a + 3) * 500 * out + a + 4);
        }
    CHECK_NEAR(took[0][0], want[0][0] + want[0][1], 1e-15);
    CHECK_NEAR(took[1][0], want[2][0] + want[1][1], 1e-15);
    CHECK_NEAR(took[0][1], want[0][0], 1e-15);
    CHECK_NEAR(took[1][1], want[1][0], 1e-15);
    CHECK_NEAR(took[2][0], 400 * 20 / 10e9, 1e-15);
    optimizer(units);
    m.d.cluster.calibration.cache = 1e6; /* after as many bytes it has lost half */
    m.d.cluster.memory_bandwidth = 20e9;
    for (int way = 0; way < NEO_LAYER_COUNT; way++) {
        const double moved[3] = {4 * 21 + 4 * 500 * 7, 12 * 21 + 4 * 500 * 3, 8 * 21};
        const double more =
            neo_layer_seconds(&m.d.cluster, 500, 3, 7, (neo_layer_way)way, 1e6) -
            neo_layer_seconds(&m.d.cluster, 500, 3, 7, (neo_layer_way)way, 0);
        CHECK_NEAR(more, way < 3 ? moved[way] / 2 / 20e9 : 0, 1e-13);
    }
    m.d.cluster.calibration.layer_far[NEO_LAYER_BACKWARD] = 30; /* as measured, not 12 */
    CHECK_NEAR(neo_layer_seconds(&m.d.cluster, 500, 3, 7, NEO_LAYER_BACKWARD, 1e6) -
                   neo_layer_seconds(&m.d.cluster, 500, 3, 7, NEO_LAYER_BACKWARD, 0),
               (30 * 21 + 4 * 500 * 3) / 2.0 / 20e9, 1e-13);
    m.d.cluster.calibration.layer_far[NEO_LAYER_BACKWARD] = 0;
    m.d.cluster.memory_bandwidth = 0;
    neo_dense_unit dots = {"d", 5, 0, 1, NULL, 0, {3, 7}}; /* products: 3 rows, 7 columns */
    for (int i = 0; i < 4; i++) /* bytes of a row with 16 columns, and with 128 */
        m.d.cluster.calibration.dots_far[i / 2][i % 2] = 100 + 50 * i + 100 * (i % 2);
    for (int i = 0; i < 4; i++) { /* what no cache keeps; of many columns, a part of it */
        const double cols = i < 2 ? 100000 : 7, numbers = 500 * 3 * (cols + 1.5),
                     beyond = i < 2 ? numbers - 524288 : 0;
        dots.dots[1] = (int64_t)cols;
        m.d.cluster.calibration.cache = i % 2 ? 1e-3 : 1e30;
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        REQUIRE_OK(neo_timeline_create(plan, &dots, 1, 0, &timeline));
        const neo_task *task = neo_timeline_tasks(timeline, &count);
        took[2][1] = 0;
        for (int32_t k = 0; k < count; k++)
            if (!strcmp(task[k].unit, "d")) {
                const int forward = !strcmp(task[k].name, "forward");
                const double a = forward ? 16 : 21, n = 500 * 3;
                const double part = i < 2 ? 2 * 524288 / numbers : 1;
                const double away = i % 2 * part * n *
                                    ((forward ? 100 : 200) + 150 * (cols - 16) / 112) / 10e9;
                const double all = 1e-9 * (a * n * 3 * cols + (a + 1) * n * cols +
                                           (a + 2) * beyond + (a + 3) * n * 3 + a + 4) + away;
                CHECK_NEAR(task[k].seconds / all, 1, 1e-9);
                took[2][1] += 1;
            }
        CHECK(took[2][1] == 2);
        neo_timeline_destroy(timeline);
        if (i < 3) neo_plan_destroy(plan);
    }
    m.d.cluster.calibration.cache = 0;
    CHECK_NEAR(neo_layer_seconds(&m.d.cluster, 90, 7, 9, NEO_LAYER_DOTS, 0), /* 16 lanes of 9 */
               1e-9 * (90 * (16 * 63 + 19 * 9) * 256 / 81.0 + 90 * 17 * 7 * 16 / 9.0 + 20), 1e-12);
    /* numbers beyond 2 MiB */
    for (int i = 1; i < 3; i++)
        CHECK_NEAR(neo_layer_seconds(&m.d.cluster, 3e6 * i, 7, 3, NEO_LAYER_DOTS, 0),
                   1e-9 * (i * 3e6 * (16 * 21 + 17 * 7 + 19 * 3 + 18 * 8.5) + 20 - 18 * 524288),
                   1e-12);
    neo_dense_unit wrong = dots;
    wrong.dots[1] = -1;
    CHECK_ERR(neo_timeline_create(plan, &wrong, 1, 0, &timeline), NEO_ERR_ARG, "'d': a number of");
    wrong = units[0];
    wrong.width_count = 1;
    CHECK_ERR(neo_timeline_create(plan, &wrong, 1, 0, &timeline), NEO_ERR_ARG, "'u': 1 widths");
    wrong.width_count = 2;
    wrong.widths = (const int64_t[2]){3, -7};
    CHECK_ERR(neo_timeline_create(plan, &wrong, 1, 0, &timeline), NEO_ERR_ARG, "'u': width -7");
    neo_plan_destroy(plan);
    m.d.cluster.calibration.layer[2][1] = -1;
    CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_ARG, "calibration.layer");
    CHECK_NEAR(neo_layer_seconds(&(neo_cluster){.flops = 1e9}, 10, 3, 7, NEO_LAYER_BACKWARD, 0),
               4 * 210 / 1e9, 1e-15);
}
/* Without chance sampled steps are the timeline's, those of ranks that share all evenly as long as
   its tasks; with it steps differ, the same again. */
static void sampled(void) {
    neo_jitter jitter = {0, 0, 0, 0};
    double a[200], b[200];
    neo_plan *plan;
    neo_timeline *timeline;
    for (int turn = 0; turn < 20; turn++) {
        model_random(1 + (int)below(5), 2 + (int)below(9), (int)below(4));
        const int even = turn % 4 < 2;
        if (even) REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, NEO_DATA_PARALLEL, &plan));
        else REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        for (int32_t t = 0; t < m.bags.table_count && even; t++)
            CHECK_INT(neo_plan_placement(plan, t), NEO_DATA_PARALLEL);
        REQUIRE_OK(neo_timeline_create(plan, NULL, 0, turn % 2, &timeline));
        const neo_timeline_sum sum = neo_timeline_sum_of(timeline);
        const double step = sum.steady;
        double mean = 0;
        memset(&jitter, 0, sizeof jitter);
        REQUIRE_OK(neo_timeline_sample(timeline, &jitter, 1, 8, a));
        for (int i = 0; i < 8; i++) mean += a[i] / 8;
        CHECK_NEAR(mean / step, 1, 1e-12);
        const neo_cluster *c = &neo_plan_desc_of(plan)->cluster;
        if (even && c->ranks % c->ranks_per_node == 0) CHECK_NEAR(step / sum.seconds, 1, 1e-9);
        CHECK_NEAR(step / sum.seconds, 1, 0.03);
        jitter.straggler = 1, jitter.slow = 3; /* all ranks compute three times as long */
        REQUIRE_OK(neo_timeline_sample(timeline, &jitter, 1, 1, a));
        if (turn % 4 == 0)
            CHECK_NEAR((a[0] - step) / (2 * sum.busy[NEO_LANE_COMPUTE]), 1, 1e-9);
        CHECK(a[0] <= 3 * step * (1 + 1e-9) && a[0] >= step * (1 - 1e-9));
        jitter.compute = jitter.link = 0.2, jitter.straggler = 0.1;
        REQUIRE_OK(neo_timeline_sample(timeline, &jitter, turn + 2, 200, a));
        REQUIRE_OK(neo_timeline_sample(timeline, &jitter, turn + 2, 200, b));
        CHECK_BITS(a, b, sizeof a);
        for (int i = 1; i < 200; i++) CHECK(a[i] >= a[i - 1]);
        CHECK(a[199] > a[0] && a[100] > 0.5 * step);
        if (turn < 19) neo_timeline_destroy(timeline);
        if (turn < 19) neo_plan_destroy(plan);
    }
    CHECK_ERR(neo_timeline_sample(timeline, &jitter, 1, 0, a), NEO_ERR_ARG, "no steps");
    CHECK_ERR(neo_timeline_sample(NULL, &jitter, 1, 1, a), NEO_ERR_ARG, "NULL");
    jitter.link = -1;
    CHECK_ERR(neo_timeline_sample(timeline, &jitter, 1, 1, a), NEO_ERR_ARG, "link -1");
    jitter.link = 0, jitter.straggler = 1.5;
    CHECK_ERR(neo_timeline_sample(timeline, &jitter, 1, 1, a), NEO_ERR_ARG, "straggler 1.5");
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
}
/* By curves of links: an all-reduce of few bytes takes what was measured, and averages of replicas
   are played as they are predicted, whatever exchanges take. */
static void sampled_by_sizes(void) {
    neo_cluster *c = &m.d.cluster;
    const neo_jitter none = {0, 0, 0, 0};
    double took[8], mean = 0, seconds[2] = {0, 0}, sent[2] = {0, 0};
    neo_plan *plan;
    neo_timeline *timeline;
    model_begin(2, 2);
    model_add(800, 32, 3, 4, NEO_BAG_SGD);
    m.bags.max_batch = 8, m.d.dense_params = 10000;
    m.d.replicas = 2, m.d.sync_every = 64;
    c->link[0] = c->link[1] = (neo_link){5, 1e9};
    for (int level = 0; level < 2; level++) {
        memcpy(c->link_us[level][1], (double[]){100, 140, 900, 15000}, sizeof c->link_us[0][1]);
        memcpy(c->link_us[level][0], (double[]){900, 1400, 9000, 150000}, sizeof c->link_us[0][0]);
    }
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    CHECK_INT(neo__timeline_all_reduce(plan, 2048, 2, 1, seconds, sent), 1);
    CHECK_NEAR(seconds[1], 55e-6, 1e-12);
    REQUIRE_OK(neo_timeline_create(plan, NULL, 0, 0, &timeline));
    REQUIRE_OK(neo_timeline_sample(timeline, &none, 1, 8, took));
    for (int i = 0; i < 8; i++) mean += took[i] / 8;
    CHECK_NEAR(mean / neo_timeline_sum_of(timeline).steady, 1, 0.03);
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
    c->link_us[0][0][0] = 0;
    CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_ARG, "behind one that is 0");
}
/* An id takes what is measured for its optimizer, its columns, and for a row that comes again (all
   of a bag's and of skewed ids), is new but cached, or new and not; and so does a table. */
static double curve_at(const double (*x)[3], double cols, double fresh, double cold) {
    double at[2];
    for (int i = 0; i < 2; i++)
        at[i] = x[i][0] + fresh * (x[i][1] - x[i][0]) + cold * (x[i][2] - x[i][1]);
    return at[0] + (at[1] - at[0]) * (cols - 16) / 112;
}
/* Of 1e5 rows, those that so many even ids use. */
static double used(double ids) { return 1e5 * (1 - exp(-ids / 1e5)); }
/* Of rows of 4 lines and as many of each of two states, a step's touch of so many ids, and what is
   cold of them: of a lookup what the batches that 2 MiB keep had not; of an update their states
   likewise, and rows as far as a cache does not keep what a step touches. */
static void curves_cold(double ids, double fresh, double again, double batch, double *cold) {
    const double touched = fresh * ids * 768 + 8 * batch * 64, cache = 2 << 20,
                 kept = cache / touched, once = ids * again;
    cold[0] = (used((kept + 1) * once) - used(kept * once)) / once;
    if (fresh * ids < 1.5) cold[0] = 0; /* one row */
    cold[1] = (4 * fresh * touched / (touched + cache) + 8 * again * cold[0]) / 12;
}
static void curves(void) {
    static const double lookup[2][3] = {{8, 10, 40}, {40, 60, 160}},
                        adam[2][3] = {{16, 40, 90}, {100, 300, 900}},
                        tables[2][2][3] = {{{30000, 40000, 90000}, {50000, 50000, 100000}},
                                           {{60000, 80000, 90000}, {70000, 90000, 200000}}};
    neo_plan *plan;
    double seconds[3];
    model_begin(1, 1);
    model_add(100000, 64, 2, 1, NEO_BAG_ADAM);
    neo_piece p[1] = {piece(0, 0, 0, 100000, 0, 64)};
    m.d.cluster.memory_bandwidth = 20e9;
    memcpy(m.d.cluster.calibration.rows[NEO_ROWS_LOOKUP], lookup, sizeof lookup);
    memcpy(m.d.cluster.calibration.rows[NEO_ROWS_ADAM], adam, sizeof adam);
    memcpy(m.d.cluster.calibration.rows[NEO_ROWS_LOOKUP_TABLE], tables, sizeof tables);
    double batch = (double)m.d.bags->max_batch, ids = 2 * batch, cold[2], fresh = used(ids) / ids;
    for (int i = 0; i < 3; i++) {
        m.d.skew = i == 0 ? 0 : i == 1 ? 1.05 : 40;
        REQUIRE_OK(from(p, 1, &plan));
        neo_plan_step s = neo_plan_step_of(plan);
        seconds[i] = s.update;
        if (i == 2) fresh = 1 / ids;
        curves_cold(ids, fresh, 1, batch, cold);
        if (i != 1)
            CHECK_NEAR(s.update, (ids * curve_at(adam, 64, fresh, cold[1]) +
                                  batch * curve_at(adam, 64, 0, 0) +
                                  curve_at(tables[1], 64, fresh, cold[1])) / 20e9,
                       1e-2 * s.update);
        if (i != 1)
            CHECK_NEAR(s.lookup, (ids * curve_at(lookup, 64, fresh, cold[0]) +
                                  batch * curve_at(lookup, 64, 0, 0) +
                                  curve_at(tables[0], 64, fresh, cold[0])) / 20e9,
                       1e-2 * s.lookup);
        neo_plan_destroy(plan);
    }
    CHECK(seconds[0] > 1.2 * seconds[1] && seconds[1] > 1.2 * seconds[2]);
    m.d.skew = -1;
    CHECK_ERR(from(p, 1, &plan), NEO_ERR_ARG, "skew -1");
    m.d.skew = 0;
    m.d.dense_values = 1e6; /* no cache keeps a step, nor a row for the next */
    REQUIRE_OK(from(p, 1, &plan));
    fresh = used(ids) / ids;
    double took = neo_plan_step_of(plan).lookup;
    CHECK_NEAR(took, (ids * curve_at(lookup, 64, fresh, fresh) +
                      batch * curve_at(lookup, 64, 0, 0) +
                      curve_at(tables[0], 64, fresh, fresh)) / 20e9, 1e-2 * took);
    neo_plan_destroy(plan);
    m.d.dense_values = 0;
    static const double large[2][2] = {{300, 1400}, {700, 2100}}; /* tables of more than 64 MiB */
    double without[2];
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(from(p, 1, &plan));
        const neo_plan_step s = neo_plan_step_of(plan);
        curves_cold(ids, fresh, 1, batch, cold);
        for (int way = 0; way < 2; way++) {
            const double now = way ? s.update : s.lookup, *x = large[way];
            const double share = (100000.0 * 768 - (64 << 20)) / ((1 << 30) - (64 << 20));
            const double more = cold[way] * share * (x[0] + (x[1] - x[0]) * 48 / 112);
            if (i) CHECK_NEAR((now - without[way]) / (ids * more / 20e9), 1, 1e-2);
            without[way] = now;
        }
        neo_plan_destroy(plan);
        memcpy(m.d.cluster.calibration.rows_large, large, sizeof large);
    }
    memset(m.d.cluster.calibration.rows_large, 0, sizeof large);
    m.d.distinct = 0.25; /* bags that repeat are looked up once, and step as often as they are */
    m.bags.inverse = 1;
    REQUIRE_OK(from(p, 1, &plan));
    const double once = ids / 4, new_of_once = used(once) / once;
    const neo_plan_step step = neo_plan_step_of(plan);
    const double none = curve_at(lookup, 0, 0, 0), all = curve_at(lookup, 64, 0, 0),
                 bag = none / 4 + all - none;
    curves_cold(ids, new_of_once / 4, 0.25, batch, cold);
    CHECK_NEAR(step.lookup, (once * curve_at(lookup, 64, new_of_once, cold[0]) + batch * bag +
                             curve_at(tables[0], 64, new_of_once, cold[0])) / 20e9,
               1e-2 * step.lookup);
    CHECK_NEAR(step.update, (ids * curve_at(adam, 64, new_of_once / 4, cold[1]) +
                             batch * curve_at(adam, 64, 0, 0) +
                             curve_at(tables[1], 64, new_of_once / 4, cold[1])) / 20e9,
               1e-2 * step.update);
    neo_plan_destroy(plan);
    m.d.distinct = 1.5;
    CHECK_ERR(from(p, 1, &plan), NEO_ERR_ARG, "distinct is 1.5");
    m.d.distinct = 0, m.bags.inverse = 0;
    static const double bags[2][3] = {{12, 30, 90}, {60, 100, 500}};
    double taken[2][2]; /* of a lookup and an update, with bags of their own from a cache, or not */
    for (int i = 0; i < 4; i++) {
        m.d.cluster.calibration.cache = i % 2 ? 1e-3 : 1e30;
        memcpy(m.d.cluster.calibration.rows[NEO_ROWS_LOOKUP_BAG + i / 2], bags, sizeof bags);
        REQUIRE_OK(from(p, 1, &plan));
        neo_plan_step s = neo_plan_step_of(plan);
        taken[i / 2][i % 2] = i < 2 ? s.lookup : s.update;
        neo_plan_destroy(plan);
        memset(m.d.cluster.calibration.rows[NEO_ROWS_LOOKUP_BAG + i / 2], 0, sizeof bags);
        REQUIRE_OK(from(p, 1, &plan));
        s = neo_plan_step_of(plan);
        taken[i / 2][i % 2] -= i < 2 ? s.lookup : s.update;
        neo_plan_destroy(plan);
        const double(*near)[3] = i < 2 ? lookup : adam, cols = 48.0 / 112,
                    x = bags[0][1 + i % 2], y = bags[1][1 + i % 2];
        CHECK_NEAR(taken[i / 2][i % 2],
                   batch * (x + (y - x) * cols - near[0][0] - (near[1][0] - near[0][0]) * cols) /
                       20e9, 1e-12);
    }
    m.d.cluster.calibration.cache = 0;
    m.d.cluster.calibration.dots_far[1][0] = -1;
    CHECK_ERR(from(p, 1, &plan), NEO_ERR_ARG, "calibration.dots_far[1][0] is -1");
    m.d.cluster.calibration.dots_far[1][0] = 0;
    m.d.cluster.memory_bandwidth = 1e-290; /* seconds would be more than a double has */
    CHECK_ERR(from(p, 1, &plan), NEO_ERR_ARG, "memory_bandwidth is 1e-290 a second, not 0 or from");
    m.d.cluster.memory_bandwidth = 20e9;
    m.d.cluster.calibration.rows[NEO_ROWS_ADAM][1][2] = -1;
    CHECK_ERR(from(p, 1, &plan), NEO_ERR_ARG, "calibration.rows");
}
/* Two threads of an executor whose clock moves by a millisecond a look: all that is measured by it
   takes that long. */
static void in_turn(int64_t count, neo_task_fn task, void *arg, void *user) {
    (void)user;
    for (int64_t i = 0; i < count; i++) task(arg, i, (int)(i % 2));
}
static int64_t by_looks(void *user) { return ++*(int64_t *)user * 1000000; }
/* Room for all but the first of the large tables: 16 columns and a number, NEO__CALIBRATE_TIMES. */
static void *but_large(size_t size, size_t align, void *user) {
    const size_t floats = (size_t)NEO__CALIBRATE_TIMES * NEO__CALIBRATE_FLOATS / 16 * 17;
    const int large = size / 4096 == 4 * floats / 4096;
    *(int *)user += large;
    return large ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}
static void but_free(void *p, size_t size, void *user) { (void)size, (void)user, free(p); }
static void own_clock(void) {
    int64_t looks = 0;
    int refused = 0;
    NEO__ZERO(neo_ctx_desc, d);
    NEO__ZERO(neo_cluster, c);
    neo_ctx *two;
    d.threads = 2;
    d.executor.run = in_turn, d.executor.time_ns = by_looks, d.executor.user = &looks;
    d.allocator.alloc = but_large, d.allocator.free = but_free, d.allocator.user = &refused;
    REQUIRE_OK(neo_ctx_create(&d, &two));
    CHECK_INT(neo_ctx_time_ns(two), 1000000);
    REQUIRE_OK(neo_calibrate(two, &c));
    CHECK_INT(refused, 1);
    CHECK(c.calibration.rows_large[0][0] == 0 && c.calibration.rows_large[1][1] == 0);
    CHECK_NEAR(c.memory_bandwidth, 2.0 * 4.0 * (16 << 20) / 1e-3, 1e-3);
    CHECK_NEAR(c.flops, 2.0 * 512 * 512 * 512 / 1e-3, 1e-3);
    CHECK_NEAR(neo_layer_seconds(&c, 300, 40, 50, NEO_LAYER_FORWARD, 0), 1e-3, 1e-5);
    CHECK(neo_ctx_time_ns(two) > 1000 * 1000000);
    neo_ctx_destroy(two);
}
/* Rows that no cache can have: each table's, of all runs, differ; near ones are few, and a part of
   the ids has bags of its own. */
static void far_rows(void) {
    enum { IDS = NEO__CALIBRATE_IDS, COUNT = NEO__CALIBRATE_TABLES, RUNS = 4 };
    static int64_t id[2 * IDS + 1];
    static unsigned char seen[COUNT][NEO__CALIBRATE_FLOATS / 16 / COUNT];
    for (int64_t dim = 16; dim <= 128; dim += 112) {
        int64_t twice = 0, outside = 0;
        NEO__ZERO(neo__calibrate_table, t);
        NEO__ZERO(neo_jagged, batch);
        t.ids = IDS, t.count = COUNT, t.pooling = 1, t.dim = dim;
        t.rows = NEO__CALIBRATE_FLOATS / dim / COUNT;
        memset(seen, 0, sizeof seen);
        for (int run = 0; run < RUNS; run++) {
            neo__calibrate_ids(&t, NEO__SET_FAR, run, &batch, id);
            CHECK_INT(batch.batch * NEO__CALIBRATE_POOLING * COUNT, IDS);
            for (int64_t i = 0; i < IDS; i++) {
                outside += id[i] < 0 || id[i] >= t.rows;
                if (!outside) twice += seen[i / (IDS / COUNT)][id[i]]++ != 0;
            }
        }
        CHECK_INT(outside, 0);
        CHECK_INT(twice, 0);
        neo__calibrate_ids(&t, NEO__SET_LESS_BAG, 1, &batch, id);
        CHECK_INT(batch.batch * COUNT * NEO__SET_LESS, IDS);
        CHECK_INT(id[IDS + batch.batch * COUNT], IDS / NEO__SET_LESS);
        for (int64_t i = 0; i < IDS / NEO__SET_LESS; i++) CHECK(id[i] >= 0 && id[i] < 16);
    }
}
/* What is measured is in bounds. */
static void measured(void) {
    NEO__ZERO(neo_cluster, c);
    c.ranks = 3;
    REQUIRE_OK(neo_calibrate(ctx, &c));
    for (int i = 0; i < NEO_ROWS_COUNT * 6; i++)
        CHECK(c.calibration.rows[i / 6][i / 3 % 2][i % 3] >= 1 &&
              c.calibration.rows[i / 6][i / 3 % 2][i % 3] < 1e7);
    for (int way = 0; way < NEO_LAYER_COUNT; way++) { /* of a large layer about as by flops */
        const int64_t out = way < NEO_LAYER_REST ? 512 : 1;
        const double ratio = neo_layer_seconds(&c, 512, 512, out, (neo_layer_way)way, 0) * c.flops /
                             (2.0 * 512 * 512 * (double)out);
        CHECK(ratio > 0.01 && ratio < (out > 1 ? 100 : 1e5));
    }
    CHECK(c.calibration.step > 0 && c.calibration.step < 1e4);
    CHECK(c.calibration.step_near > 0 && c.calibration.step_near <= c.calibration.step);
    CHECK(c.calibration.cache >= 4 << 20 && c.calibration.cache <= 513 << 20);
    CHECK(c.calibration.others >= 0 && c.calibration.others <= 1e14);
    for (int i = 0; i < 4; i++)
        CHECK(c.calibration.dots_far[i / 2][i % 2] >= 0 &&
              c.calibration.dots_far[i / 2][i % 2] < 1e6 &&
              c.calibration.rows_large[i / 2][i % 2] >= 0 &&
              c.calibration.rows_large[i / 2][i % 2] < 1e6);
    CHECK_INT(c.ranks, 3);
    CHECK(c.memory_bandwidth > 1e8 && c.memory_bandwidth < 1e13 && c.flops > 1e6 && c.flops < 1e16);
    CHECK(c.calibration.lookup > 0.01 && c.calibration.lookup < 1e3);
    CHECK(c.calibration.update > 0.01 && c.calibration.update < 1e4);
    CHECK(c.calibration.bucketed >= 1 && c.calibration.bucketed < 1e3);
    const double each[] = {c.calibration.id, c.calibration.sort, c.calibration.row,
                           c.calibration.kept};
    for (int i = 0; i < 4; i++) CHECK(each[i] > 0 && each[i] < 1e6);
    printf("calibrate: copy %.1f GB/s, %.1f GFLOP/s, lookup x %.2f (buckets x %.1f), update x "
           "%.2f; id %.0f, sort %.0f, "
           "row %.0f, kept %.0f bytes\n",
           c.memory_bandwidth * 1e-9, c.flops * 1e-9, c.calibration.lookup, c.calibration.bucketed,
           c.calibration.update, each[0], each[1], each[2], each[3]);
}
/* Measured factors scale what they are of. */
static void calibration(void) {
    neo_plan *a, *b;
    model_begin(4, 2);
    model_add(800, 32, 3, 4, NEO_BAG_ROWWISE_ADAGRAD);
    neo_piece p[2] = {piece(0, 2, 0, 800, 0, 16), piece(0, 1, 0, 800, 16, 16)};
    m.d.cluster.memory_bandwidth = 20e9;
    REQUIRE_OK(from(p, 2, &a));
    neo_plan_step x = neo_plan_step_of(a), y;
    static double *const factor[] = {
        &m.d.cluster.calibration.lookup, &m.d.cluster.calibration.bucketed,
        &m.d.cluster.calibration.update, &m.d.cluster.calibration.sort,
        &m.d.cluster.calibration.kept,   &m.d.cluster.calibration.id,
        &m.d.cluster.calibration.row,    &m.d.cluster.calibration.copy};
    const double by_default[] = {1, 1.5, 2, 64, 256, 64, 64, 1},
                 moved = 8 * 3000 + 4 * 1000 + 64 * 4000,
                 touched = 3000 * neo__plan_fresh(3000, 800, 0);
    const double more[] = {0.5 * 1.5 * moved,
                           0.5 * 1.5 * moved,
                           moved,
                           32 * 3000,
                           128 * touched,
                           32 * 750,
                           2 * 2 * 32 * 250,
                           0.5 * (2 * 16000 + 2 * 2 * 2 * 64 * 250 + 2 * 64 * touched)};
    for (int i = 0; i < 8; i++) {
        *factor[i] = by_default[i] * 1.5;
        REQUIRE_OK(from(p, 2, &b));
        y = neo_plan_step_of(b);
        CHECK_NEAR(y.plain - x.plain, more[i] / 20e9, 1e-12);
        *factor[i] = 0;
        neo_plan_destroy(b);
    }
    neo_plan_destroy(a);
    for (int k = 0; k < 2; k++) { /* of 20 ids a bag, a fifth of what buckets add of up to 4 */
        double took[2];
        m.ids[0] = k ? 20 : 4;
        for (int i = 0; i < 2; i++) {
            m.d.cluster.calibration.bucketed = i ? 1.5 : 1;
            REQUIRE_OK(from(p, 2, &a));
            took[i] = neo_plan_step_of(a).lookup;
            neo_plan_destroy(a);
        }
        CHECK_NEAR(took[1] / took[0], k ? 1.1 : 1.5, 1e-12);
    }
    m.ids[0] = 3, m.d.cluster.calibration.bucketed = 0;
    curves();
    if (!TEST_WATCHED) measured(); /* own_clock runs the same code, without the loops of a clock */
    CHECK_ERR(neo_calibrate(ctx, NULL), NEO_ERR_ARG, "NULL");
    own_clock();
    far_rows();
}

/* ---- weights and state to the byte, as neo_bags takes them for the pieces of a rank ---- */
static void check_bytes(const neo_plan *plan) {
    int64_t total_weights = 0;
    for (int r = 0; r < m.d.cluster.ranks; r++) {
        static neo_table_desc table[MOST];
        static char name[MOST][32];
        int64_t count, all;
        const int64_t *at = neo_plan_rank_pieces(plan, r, &count);
        const neo_piece *pieces = neo_plan_pieces(plan, &all);
        NEO__ZERO(neo_bags_desc, d);
        NEO__ZERO(neo_bags_memory, memory);
        for (int64_t i = 0; i < count && i < MOST; i++) {
            const neo_piece *p = &pieces[at[i]];
            snprintf(name[i], sizeof name[i], "p%d", (int)i);
            CHECK(p->rank == r || p->rank == NEO_EVERY_RANK);
            table[i] = m.table[p->table];
            table[i].name = name[i];
            table[i].rows = p->rows;
            table[i].dim = p->cols;
            table[i].row_buckets = 0;
        }
        d.tables = table;
        d.table_count = (int32_t)count;
        d.max_batch = d.max_ids = 1;
        if (count) CHECK_OK(neo_bags_bytes(ctx, &d, &memory));
        CHECK_INT(neo_plan_rank_of(plan, r).weight_bytes, memory.weight_bytes);
        CHECK_INT(neo_plan_rank_of(plan, r).state_bytes, memory.state_bytes);
        total_weights += (int64_t)memory.weight_bytes;
    }
    int64_t want = 0;
    for (int t = 0; t < m.bags.table_count; t++)
        want += m.table[t].rows * m.table[t].dim * 4 *
                (neo_plan_placement(plan, t) == NEO_DATA_PARALLEL ? m.d.cluster.ranks : 1);
    CHECK_INT(total_weights, want);
}

/* ---- files ---- */
static const char *file_path(void) {
    static char path[300];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/test_plan.%d.plan", dir ? dir : "/tmp", (int)getpid());
    return path;
}
static void check_file(const neo_plan *plan) {
    neo_plan *back;
    REQUIRE_OK(neo_plan_write(plan, file_path()));
    REQUIRE_OK(neo_plan_read(ctx, &m.d, file_path(), &back));
    int64_t a, b;
    const neo_piece *x = neo_plan_pieces(plan, &a), *y = neo_plan_pieces(back, &b);
    CHECK_INT(a, b);
    if (a == b) CHECK_BITS(x, y, (size_t)a * sizeof *x);
    CHECK(neo_plan_digest(plan) == neo_plan_digest(back));
    for (int t = 0; t < m.bags.table_count; t++)
        CHECK_INT(neo_plan_placement(plan, t), neo_plan_placement(back, t));
    neo_plan_step s = neo_plan_step_of(plan), u = neo_plan_step_of(back);
    CHECK_BITS(&s, &u, sizeof s);
    neo_plan_destroy(back);
    remove(file_path());
}
/* A random plan: any slices, any rows, any ranks. */
static int64_t random_pieces(neo_piece *p) {
    int64_t n = 0;
    for (int t = 0; t < m.bags.table_count; t++) {
        const neo_table_desc *d = &m.table[t];
        if (below(6) == 0) {
            p[n++] = piece(t, NEO_EVERY_RANK, 0, d->rows, 0, d->dim);
            continue;
        }
        int64_t block = m.d.wire_forward == NEO_WIRE_I8 ? 64 : 16;
        for (int64_t col = 0, end; col < d->dim; col = end) {
            for (end = col + block; end < d->dim && below(2);) end += block;
            if (end > d->dim) end = d->dim;
            int64_t row = 0;
            for (int64_t b = 1; b <= d->row_buckets; b++) {
                int64_t stop = b * d->rows / d->row_buckets;
                if (stop == row || (b < d->row_buckets && below(3))) continue;
                p[n++] = piece(t, (int)below(m.d.cluster.ranks), row, stop - row, col, end - col);
                row = stop;
            }
            if (row < d->rows)
                p[n++] =
                    piece(t, (int)below(m.d.cluster.ranks), row, d->rows - row, col, end - col);
        }
    }
    return n;
}
static void files(void) {
    static neo_piece p[4000];
    neo_plan *plan;
    test_seed = 7;
    for (int k = 0; k < 100; k++) {
        int per_node = (int)below(4), ranks = 1 + (int)below(9), tables = 1 + (int)below(8);
        model_random(tables, ranks, per_node);
        if (m.d.wire_forward == NEO_WIRE_I8) m.d.wire_forward = NEO_WIRE_F16;
        REQUIRE_OK(from(p, random_pieces(p), &plan));
        check_file(plan);
        check_bytes(plan);
        neo_plan_destroy(plan);
    }
    model_begin(12, 4);
    model_add(100, 96, 2, 8, NEO_BAG_SGD);
    model_add(100, 96, 2, 8, NEO_BAG_SGD);
    m.table[0].name = "a b\t%#\"\xc3\xa9";
    m.table[1].name = "plain";
    for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) {
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, (neo_placement)i, &plan));
        CHECK_INT(neo_plan_placement(plan, 1), i);
        check_file(plan);
        neo_plan_destroy(plan);
    }
    CHECK_ERR(neo_plan_read(ctx, &m.d, "/nowhere/x.plan", &plan), NEO_ERR_NOT_FOUND,
              "/nowhere/x.plan: cannot open");
    CHECK_ERR(neo_plan_read(ctx, &m.d, "/", &plan), NEO_ERR_IO, "/: cannot");
}
static void bad_files(void) {
    neo_plan *plan;
    model_begin(4, 2);
    model_add(100, 64, 2, 4, NEO_BAG_SGD);
    model_add(10, 20, 2, 1, NEO_BAG_SGD);
#define HEAD "neo-plan 1\nranks 4 2\n"
#define BAD(text, status, part)                                                                    \
    do {                                                                                           \
        FILE *f = fopen(file_path(), "wb");                                                        \
        REQUIRE(f);                                                                                \
        fwrite(text, 1, sizeof text - 1, f);                                                       \
        fclose(f);                                                                                 \
        plan = (neo_plan *)&m;                                                                     \
        CHECK_ERR(neo_plan_read(ctx, &m.d, file_path(), &plan), status, part);                     \
        CHECK(!plan && strstr(neo_last_error(), file_path()));                                     \
    } while (0)
    BAD("", NEO_ERR_FORMAT, "this file is empty");
    BAD("# x\n\nneo-flan 1\n", NEO_ERR_FORMAT,
        ":3: a plan begins with 'neo-plan 1', not with 'neo-flan'");
    BAD("neo-plan 2\n", NEO_ERR_FORMAT, ":1: this version reads format 1, not '2'");
    BAD("neo-plan 1\ntable", NEO_ERR_FORMAT, ":2: the second line is 'ranks', not 'table'");
    BAD("neo-plan 1\nranks x 2", NEO_ERR_FORMAT, ":2: not a number of ranks: 'x'");
    BAD("neo-plan 1\nranks 8 2", NEO_ERR_MISMATCH, ":2: a plan for 8 ranks, here are 4");
    BAD(HEAD "table t0 100x64 tw 0\n", NEO_ERR_MISMATCH, "has no line for table 't1'");
    BAD(HEAD "table t9 100x64 tw 0\n", NEO_ERR_MISMATCH, ":3: the model has no table 't9'");
    BAD(HEAD "table t%zz 100x64 tw 0\n", NEO_ERR_FORMAT,
        ":3: % begins no byte of two digits in 't%zz'");
    BAD(HEAD "table t0 100x32 tw 0\n", NEO_ERR_MISMATCH,
        ":3: table 't0' is 100 x 32 here, and 100 x 64 in the model");
    BAD(HEAD "table t0 100*64 tw 0\n", NEO_ERR_FORMAT, ":3: not rows x dim, as 100x16: '100*64'");
    BAD(HEAD "table t0 99999999999999999999x64 tw 0\n", NEO_ERR_FORMAT, "not rows x dim");
    BAD(HEAD "table t0 100x64 xx 0\n", NEO_ERR_FORMAT,
        ":3: neither tw, cw, rw, dp, twrw, twcw, grid nor pieces: 'xx'");
    BAD(HEAD "table t0 100x64 tw\n", NEO_ERR_FORMAT, ":3: ranks are wanted");
    BAD(HEAD "table t0 100x64 tw 4\n", NEO_ERR_FORMAT, ":3: there are not so many ranks");
    BAD(HEAD "table t0 100x64 tw 1,2\n", NEO_ERR_FORMAT, ":3: tw has one rank");
    BAD(HEAD "table t0 100x64 rw 3-1\n", NEO_ERR_FORMAT, ":3: a range of ranks is wrong");
    BAD(HEAD "table t0 100x64 cw 0-1/2\n", NEO_ERR_FORMAT,
        ":3: slices have different numbers of ranks");
    BAD(HEAD "table t0 100x64 cw 0/2\n", NEO_ERR_FORMAT, ":3: only a grid has slices divided by /");
    BAD(HEAD "table t0 100x64 cw 0,1,2,3,0\n", NEO_ERR_FORMAT,
        ":3: it has not so many blocks of columns");
    BAD(HEAD "table t0 100x64 rw 0,1,2,3,0\n", NEO_ERR_FORMAT,
        ":3: it has not so many rows or buckets");
    BAD(HEAD "table t0 100x64 tw 0x\n", NEO_ERR_FORMAT, ":3: ranks are wrong");
    BAD(HEAD "table t0 100x64 tw 0 1\n", NEO_ERR_FORMAT, ":3: more than belongs on the line: '1'");
    BAD(HEAD "table t0 100x64 tw 0\ntable t0 100x64 tw 0\n", NEO_ERR_FORMAT,
        ":4: a second line for table 't0'");
    BAD(HEAD "piece 0 0+1 0+1\n", NEO_ERR_FORMAT, ":3: a piece more than were announced");
    BAD(HEAD "table t0 100x64 pieces 0\n", NEO_ERR_FORMAT, ":3: not a number of pieces: '0'");
    BAD(HEAD "table t0 100x64 pieces 2\npiece 1 0+50 0+64\ntable t1 10x20 dp", NEO_ERR_FORMAT,
        ":5: pieces are missing before 'table'");
    BAD(HEAD "table t1 10x20 dp\ntable t0 100x64 pieces 2\npiece 1 0+50 0+64\n", NEO_ERR_FORMAT,
        ":5: pieces are missing at the end");
    BAD(HEAD "table t0 100x64 pieces 1\npiece 4 0+50 0+64\n", NEO_ERR_FORMAT,
        ":4: not a rank of this plan: '4'");
    BAD(HEAD "table t0 100x64 pieces 1\npiece 1 0-50 0+64\n", NEO_ERR_FORMAT,
        ":4: not first row + rows");
    BAD(HEAD "table t1 10x20 rw 0-3\ntable t0 100x64 dp\n", NEO_ERR_ARG, "table 't1'");
    BAD(HEAD "table t1 10x20 dp\ntable t0 100x64 pieces 1\npiece 1 0+50 0+64\n", NEO_ERR_ARG,
        "table 't0': row 50, column 0 is in no piece");
    BAD(HEAD "cable\n", NEO_ERR_FORMAT, ":3: neither table nor piece: 'cable'");
    BAD(HEAD "table t1 10x20 dp\0", NEO_ERR_FORMAT, "has a zero byte");
    BAD("neo-plan 1 # a comment\r\nranks 4 2\r\n  table t1  10x20 dp#x\r\ntable t0 100x64 rw 0-1 , "
        "2\r\n",
        NEO_ERR_FORMAT, ":4: more than belongs on the line: ','");
    remove(file_path());
}

/* ---- the search: every plan it makes is whole, within budget, the same again ---- */
static void check_plan(const neo_plan *plan) {
    int64_t count;
    neo_plan *again;
    const neo_piece *p = neo_plan_pieces(plan, &count);
    for (int r = 0; r < m.d.cluster.ranks && m.d.cluster.memory_bytes; r++)
        if (rank_bytes(plan, r) > m.d.cluster.memory_bytes) FAIL("rank %d is above its budget", r);
    REQUIRE_OK(from(p, count, &again)); /* as strict as for pieces of the caller */
    CHECK(neo_plan_digest(plan) == neo_plan_digest(again));
    neo_plan_step a = neo_plan_step_of(plan), b = neo_plan_step_of(again);
    CHECK_BITS(&a, &b, sizeof a);
    neo_plan_destroy(again);
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &again));
    CHECK(neo_plan_digest(plan) == neo_plan_digest(again));
    neo_plan_destroy(again);
}
static void searched(void) {
    neo_plan *plan;
    int refusals = 0, limited = 0;
    test_seed = 11;
    for (int k = 0; k < SEARCHED; k++) {
        int ranks = 1 + (int)below(12);
        int per_node = (int)below(5), tables = 1 + (int)below(20);
        model_random(tables, ranks, per_node);
        for (int t = 0; t < m.bags.table_count && below(3) == 0; t++)
            m.allowed[t] = 1u << below(7) | 1u << NEO_TABLE_WISE;
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        check_plan(plan);
        check_bytes(plan);
        check_file(plan);
        for (int t = 0; t < m.bags.table_count; t++) {
            char text[4000];
            size_t n = neo_plan_why(plan, t, text, sizeof text), lines = 0;
            CHECK_INT(n, strlen(text));
            for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
            CHECK_INT(lines,
                      NEO_PLACEMENT_COUNT); /* one for what was chosen, and for each that was not */
            CHECK(strstr(text, neo_placement_name(neo_plan_placement(plan, t))) == text);
            CHECK_INT(neo_plan_why(plan, t, NULL, 0), n);
            CHECK_INT(neo_plan_why(plan, t, text, 10), n);
            CHECK_INT(strlen(text), 9);
        }
        int64_t most = neo_plan_step_of(plan).most_bytes;
        neo_plan_destroy(plan);
        m.d.cluster.memory_bytes = (int64_t)((double)most * (0.3 + 0.01 * (double)below(70)));
        neo_status status = neo_plan_create(ctx, &m.d, &plan);
        if (status == NEO_ERR_CAPACITY) { /* the message has a budget that would do */
            const char *text = strstr(neo_last_error(), "; ");
            refusals++;
            REQUIRE(text && strstr(text, " bytes each would do"));
            int64_t budget = strtoll(text + 2, NULL, 10);
            CHECK(budget > m.d.cluster.memory_bytes);
            CHECK(budget <= most + most / 2 + 100000);
            m.d.cluster.memory_bytes = budget;
            status = neo_plan_create(ctx, &m.d, &plan);
        } else {
            limited++;
        }
        REQUIRE_OK(status);
        check_plan(plan);
        neo_plan_destroy(plan);
    }
    printf("search: %d models, %d of them planned with less memory, %d refused\n", SEARCHED,
           limited, refusals);
    CHECK(refusals > SEARCHED / 8 && limited > SEARCHED / 8);
}
static void uniform(void) {
    neo_plan *plan;
    test_seed = 13;
    for (int k = 0; k < 60; k++) {
        neo_placement want = (neo_placement)(k % NEO_PLACEMENT_COUNT);
        int ranks = 2 + (int)below(7);
        int per_node = (int)below(4), tables = 1 + (int)below(12);
        model_random(tables, ranks, per_node);
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, want, &plan));
        for (int t = 0; t < m.bags.table_count; t++) {
            char text[1000];
            neo_placement got = neo_plan_placement(plan, t);
            (void)neo_plan_why(plan, t, text, sizeof text);
            CHECK((got == want) == !strstr(text, "was asked for"));
            /* on one node, or in one part, placements amount to another */
            if (got != want && got != NEO_TABLE_WISE)
                CHECK(strstr(text, "so many parts amount to the same"));
        }
        check_file(plan);
        neo_plan_destroy(plan);
    }
    model_begin(8, 4); /* spread over all ranks alike */
    for (int t = 0; t < 16; t++) model_add(1000, 128, 5, 8, NEO_BAG_SGD);
    for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) {
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, (neo_placement)i, &plan));
        for (int t = 0; t < 16; t++) CHECK_INT(neo_plan_placement(plan, t), i);
        CHECK(neo_plan_step_of(plan).balance < 1.0001);
        neo_plan_destroy(plan);
    }
}
/* Rows that are moved, not summed, may be cut anywhere and by all ways. */
static void not_pooled(void) {
    neo_plan *plan;
    model_begin(4, 2);
    for (int t = 0; t < 3; t++) {
        model_add(50 + t, 64, 4, 0, NEO_BAG_ROWWISE_ADAGRAD);
        m.table[t].pooling = NEO_POOL_NONE;
    }
    for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) {
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, (neo_placement)i, &plan));
        for (int t = 0; t < 3; t++) {
            CHECK_INT(neo_plan_placement(plan, t), i);
            CHECK_INT(neo_plan_warning(plan, t, NULL, 0), 0);
        }
        check_bytes(plan);
        neo_plan_destroy(plan);
    }
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    check_plan(plan);
    neo_plan_destroy(plan);
}

/* ---- the budget that a refusal names: it does, and none below it ----

   By brute force, of few tables: every option of every table on every choice of ranks, its bytes as
   a shard takes them. */
enum { BRUTE_TABLES = 12, BRUTE_RANKS = 4, BRUTE_NODES = 20000000 };
enum { LEAST_MODELS = 24, LEAST_PLANS = 20000, LEAST_SEATS = 64 };
static struct {
    neo__plan_search s;
    int64_t best;
    int plans;
} least;
static void least_table(int t);
static void least_part(int t, int part) {
    neo__plan_search *s = &least.s;
    const neo__plan_option *o = &s->options[t].at[s->now.choice[t]];
    int32_t *seat = s->now.seat + s->seat_first[t];
    int parts = o->pieces, each = o->placement == NEO_GRID ? parts / o->col_parts : parts;
    if (part == parts) {
        least_table(t + 1);
        return;
    }
    for (int r = 0; r < s->ranks; r++) {
        int no = 0;
        for (int j = 0; j < part; j++) {
            int same_node = seat[j] / s->per_node == r / s->per_node,
                same_slice = j / each == part / each;
            no |= seat[j] == r || (o->unit == NEO__UNIT_NODE && same_node != same_slice);
        }
        if (no) continue;
        seat[part] = r;
        least_part(t, part + 1);
    }
}
static void least_table(int t) {
    neo__plan_search *s = &least.s;
    int32_t choice[BRUTE_TABLES], seat[LEAST_SEATS];
    if (least.plans > LEAST_PLANS) return;
    if (t < s->tables) {
        for (int k = 0; k < s->options[t].count; k++) {
            s->now.choice[t] = k;
            least_part(t, 0);
        }
        return;
    }
    least.plans++;
    memcpy(choice, s->now.choice,
           sizeof *choice * (size_t)s->tables); /* weighing places the best */
    memcpy(seat, s->now.seat, sizeof *seat * (size_t)s->seats);
    neo__plan_search_keep(s, 0);
    REQUIRE_OK(neo__plan_search_weigh(s));
    int64_t most = s->plan->step.most_bytes;
    if (least.best < 0 || most < least.best) least.best = most;
    memcpy(s->now.choice, choice, sizeof *choice * (size_t)s->tables);
    memcpy(s->now.seat, seat, sizeof *seat * (size_t)s->seats);
}
/* The least by brute force; 0: there are too many plans. */
static int64_t least_bytes(void) {
    neo_plan *plan;
    m.d.cluster.memory_bytes = 0;
    if (neo__plan_new(ctx, &m.d, "least", &plan) != NEO_OK) return 0;
    least.best = -1;
    least.plans = LEAST_PLANS + 1;
    if (neo__plan_search_alloc(&least.s, plan) == NEO_OK && least.s.seats <= LEAST_SEATS) {
        least.plans = 0;
        least_table(0);
    }
    neo_plan_destroy(plan);
    return least.plans > LEAST_PLANS ? 0 : least.best;
}
static void least_budgets(void) {
    int forced = 0, lower = 0;
    test_seed = 77;
    for (int k = 0; k < LEAST_MODELS; k++) {
        neo_plan *plan;
        int ranks = 1 + (int)below(4), few = k % 2; /* few: for brute force */
        int tables = 1 + (int)below(few ? 3 : 6), per_node = ranks == 4 && below(2) ? 2 : 0;
        model_random(tables, ranks, per_node);
        m.d.cluster.memory_bytes = 1;
        CHECK_ERR(neo_plan_create(ctx, &m.d, &plan), NEO_ERR_CAPACITY, "each would do");
        const char *says = strstr(neo_last_error(), "1 bytes each; ");
        long long named = says ? atoll(says + 14) : 0;
        for (int i = 0; i < 6; i++) { /* from it up any budget does, below it none */
            m.d.cluster.memory_bytes = i == 0   ? named
                                       : i == 1 ? named - 1
                                                : named * (93 + 2 * i) / 100;
            neo_status status = neo_plan_create(ctx, &m.d, &plan);
            CHECK_INT(status, m.d.cluster.memory_bytes >= named ? NEO_OK : NEO_ERR_CAPACITY);
            if (status != NEO_OK) continue;
            CHECK(neo_plan_step_of(plan).most_bytes <= m.d.cluster.memory_bytes);
            lower += neo_plan_step_of(plan).most_bytes < named;
            neo_plan_destroy(plan);
        }
        int64_t best = few ? least_bytes() : 0;
        forced += best > 0;
        if (best > 0 && best != named)
            FAIL("model %d, %d tables on %d ranks: %lld bytes are named, brute force finds %lld", k,
                 m.bags.table_count, ranks, named, (long long)best);
    }
    printf("least budgets: %d models, %d by brute force, %d plans below\n", LEAST_MODELS, forced,
           lower);
    CHECK(forced >= LEAST_MODELS / 4);
    CHECK_INT(lower, 0);
}

/* ---- against brute force: all options on all ranks, left off where even the means go beyond the
   limit ---- */
static struct {
    const neo_plan *plan; /* of the same model; not what is compared */
    neo__plan_options options[BRUTE_TABLES];
    neo__plan_load part[BRUTE_TABLES][NEO__PLAN_OPTIONS][BRUTE_RANKS];
    int alike[BRUTE_TABLES][NEO__PLAN_OPTIONS]; /* all parts the same */
    double rest[BRUTE_TABLES + 1]
               [NEO__PLAN_TIMES]; /* of a rank in the mean, at least, for the tables from here on */
    int tables, ranks;
    neo__plan_load load[BRUTE_RANKS];
    double reduce, limit, cap;
    int64_t nodes;
    int choice[BRUTE_TABLES], seat[BRUTE_TABLES][BRUTE_RANKS];
    int best_choice[BRUTE_TABLES], best_seat[BRUTE_TABLES][BRUTE_RANKS], found;
} brute;

TEST_UNWATCHED static double brute_bound(int t) {
    double most[NEO__PLAN_TIMES];
    for (int p = 0; p < NEO__PLAN_TIMES; p++) {
        double sum = 0, top = 0;
        for (int r = 0; r < brute.ranks; r++) {
            sum += brute.load[r].at[p];
            if (brute.load[r].at[p] > top) top = brute.load[r].at[p];
        }
        sum = sum / brute.ranks + brute.rest[t][p];
        most[p] = sum > top ? sum : top;
    }
    neo_plan_step s = neo__plan_step_make(brute.plan, most, brute.reduce, NEO__PLAN_WAYS->spans);
    return m.d.pipeline ? s.pipelined : s.plain;
}
TEST_UNWATCHED static void brute_add(int r, const neo__plan_load *x, double sign) {
    for (int i = 0; i < NEO__PLAN_LOADS; i++) brute.load[r].at[i] += sign * x->at[i];
}
TEST_UNWATCHED static int brute_same(int a, int b) {
    return memcmp(&brute.load[a], &brute.load[b], sizeof brute.load[a]) == 0;
}
static void brute_table(int t);
TEST_UNWATCHED static void brute_part(int t, int k, int part) {
    const neo__plan_option *o = &brute.options[t].at[k];
    int per_node = brute.plan->per_node,
        parts = o->unit == NEO__UNIT_ALL ? 0 : o->col_parts * o->row_parts;
    int slices = o->placement == NEO_GRID ? o->col_parts : 1, each = parts ? parts / slices : 1;
    if (part == parts) {
        brute_table(t + 1);
        return;
    }
    for (int r = 0; r < brute.ranks; r++) {
        int no = 0, *seat = brute.seat[t];
        for (int j = 0; j < part; j++) {
            no |= seat[j] == r ||
                  (brute.alike[t][k] && j + 1 == part && each == parts && seat[j] > r);
            if (o->unit != NEO__UNIT_NODE) continue;
            int same_node = seat[j] / per_node == r / per_node,
                same_slice = j / each == part / each;
            no |= same_node != same_slice;
        }
        for (int q = 0; q < r && part == 0; q++) /* equal ranks of a node: the first will do */
            no |= parts == 1 && q / per_node == r / per_node && brute_same(q, r);
        if (no || brute.load[r].at[NEO__PLAN_BYTES] + brute.part[t][k][part].at[NEO__PLAN_BYTES] >
                      brute.cap)
            continue;
        neo__plan_load before = brute.load[r];
        brute_add(r, &brute.part[t][k][part], 1);
        seat[part] = r;
        brute_part(t, k, part + 1);
        brute.load[r] = before;
    }
}
TEST_UNWATCHED static void brute_table(int t) {
    if (++brute.nodes > BRUTE_NODES) return;
    double bound = brute_bound(t);
    if (bound >= brute.limit) return;
    if (t == brute.tables) {
        for (int r = 0; r < brute.ranks; r++)
            if (brute.load[r].at[NEO__PLAN_BYTES] > brute.cap) return;
        brute.limit = bound;
        brute.found = 1;
        memcpy(brute.best_choice, brute.choice, sizeof brute.choice);
        memcpy(brute.best_seat, brute.seat, sizeof brute.seat);
        return;
    }
    for (int k = 0; k < brute.options[t].count; k++) {
        const neo__plan_option *o = &brute.options[t].at[k];
        neo__plan_load before[BRUTE_RANKS];
        double reduce = brute.reduce;
        memcpy(before, brute.load, sizeof before);
        for (int r = 0; r < brute.ranks; r++) brute_add(r, &o->all, 1);
        brute.reduce += o->reduce_bytes;
        brute.choice[t] = k;
        brute_part(t, k, 0);
        brute.reduce = reduce;
        memcpy(brute.load, before, sizeof before);
    }
}
static void brute_begin(const neo_plan *plan, double limit, double cap) {
    memset(&brute, 0, sizeof brute);
    brute.plan = plan;
    brute.tables = m.bags.table_count;
    brute.ranks = m.d.cluster.ranks;
    brute.limit = limit;
    brute.cap = cap;
    for (int t = brute.tables - 1; t >= 0; t--) {
        neo__plan_options *o = &brute.options[t];
        neo__plan_options_make(&plan->table[t], o);
        for (int p = 0; p < NEO__PLAN_TIMES; p++) brute.rest[t][p] = 1e300;
        for (int k = 0; k < o->count; k++) {
            int parts =
                o->at[k].unit == NEO__UNIT_ALL ? 0 : o->at[k].col_parts * o->at[k].row_parts;
            brute.alike[t][k] = 1;
            for (int i = 0; i < parts; i++) {
                brute.part[t][k][i] = neo__plan_part_load(&plan->table[t], &o->at[k], i);
                brute.alike[t][k] &=
                    memcmp(&brute.part[t][k][i], &brute.part[t][k][0], sizeof(neo__plan_load)) == 0;
            }
            for (int p = 0; p < NEO__PLAN_TIMES; p++) {
                double mean = o->at[k].all.at[p] + o->at[k].sum.at[p] / brute.ranks;
                if (mean < brute.rest[t][p]) brute.rest[t][p] = mean;
            }
        }
        for (int p = 0; p < NEO__PLAN_TIMES; p++) brute.rest[t][p] += brute.rest[t + 1][p];
    }
    brute_table(0);
}
/* The plan that brute force found, by way of its pieces; its predicted step; 0: it is none. */
static double brute_step(void) {
    static neo_piece p[BRUTE_TABLES * BRUTE_RANKS];
    neo_plan *plan;
    int64_t n = 0;
    for (int t = 0; t < brute.tables; t++) {
        const neo__plan_option *o = &brute.options[t].at[brute.best_choice[t]];
        int32_t ranks[BRUTE_RANKS];
        neo__plan_shape shape;
        for (int r = 0; r < BRUTE_RANKS; r++)
            ranks[r] = o->unit == NEO__UNIT_ALL ? r : brute.best_seat[t][r];
        shape.col_parts = o->col_parts;
        shape.row_parts = o->row_parts;
        shape.ranks = ranks;
        neo__plan_shape_cut(&brute.plan->table[t], shape, p + n);
        n += neo__plan_shape_count(shape);
    }
    neo_status status = from(p, n, &plan);
    if (status == NEO_ERR_CAPACITY)
        return 0; /* the buffers' figure is above the sum of the pieces' */
    if (status != NEO_OK) {
        FAIL("brute force: %s", neo_last_error());
        return 0;
    }
    double step = step_of(plan);
    neo_plan_destroy(plan);
    return step;
}
static void brute_force(void) {
    int undecided = 0, better = 0, optimal = 0, limited = 0, done = 0;
    double worst = 1;
    test_seed = 17;
    for (int k = 0; done < FORCED; k++) {
        neo_plan *plan;
        int tables = 1 + k % BRUTE_TABLES, ranks = 2 + (int)below(3);
        if (tables > 5) ranks = 2 + (int)below(2);
        model_random(tables, ranks, ranks == 4 ? (int)below(2) * 2 : 0);
        if (tables > 4) m.d.placements = 1u << NEO_TABLE_WISE | 1u << NEO_COLUMN_WISE;
        if (tables > 8)
            m.d.placements =
                1u << NEO_TABLE_WISE | 1u << (below(2) ? NEO_DATA_PARALLEL : NEO_COLUMN_WISE);
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        if (below(3) == 0) {
            m.d.cluster.memory_bytes = neo_plan_step_of(plan).most_bytes * (80 + below(20)) / 100;
            neo_plan *tight;
            if (neo_plan_create(ctx, &m.d, &tight) == NEO_OK) {
                neo_plan_destroy(plan);
                plan = tight;
                limited++;
            } else {
                m.d.cluster.memory_bytes = 0;
            }
        }
        double step = step_of(plan);
        done++;
        brute_begin(plan, step * (1 - 1e-9),
                    m.d.cluster.memory_bytes ? (double)m.d.cluster.memory_bytes : DBL_MAX);
        undecided += brute.nodes > BRUTE_NODES;
        optimal += !brute.found;
        if (brute.found) {
            better++;
            double best = brute_step();
            if (best == 0) best = step;
            /* slices in one node may turn out cheaper than assumed */
            CHECK(best <= brute.limit * (1 + 1e-9) || best == step);
            if (step / best > worst) worst = step / best;
            if (step > best * 1.05)
                FAIL("model %d, %d tables on %d ranks: the plan takes %g, brute force finds %g", k,
                     tables, ranks, step, best);
        }
        neo_plan_destroy(plan);
    }
    printf("brute force: %d models (%d short of memory), %d optimal, worst %.3f, %d not searched "
           "to the end\n",
           FORCED, limited, optimal, worst, undecided);
    CHECK(undecided <= 4);
    CHECK(limited >= FORCED / 10);
    CHECK(better > 0 || optimal == FORCED);
}

/* ---- the table sets ---- */
static void sets(void) {
    for (int i = 0; i < PLAN_SET_COUNT; i++) {
        const plan_set *set = &PLAN_SETS[i];
        if (TEST_WATCHED && set->tables > 100) continue;
        double elements = 0, dims = 0, ids = 0;
        neo_plan *plan;
        model_set(i, SET_RANKS);
        for (int t = 0; t < set->tables; t++) {
            elements += (double)m.table[t].rows * (double)m.table[t].dim;
            dims += (double)m.table[t].dim / set->tables;
            ids += m.ids[t] / set->tables;
        }
        CHECK_NEAR(elements / set->parameters, 1, 1e-3);
        CHECK_NEAR(dims, set->dim, 0.5);
        CHECK_NEAR(ids, set->pooling, 0.01);
        int f1 = strcmp(set->name, "f1") == 0; /* larger than the memory of 128 GPUs */
        if (f1) m.d.cluster.memory_bytes = ((int64_t)512 << 30) * 128 / SET_RANKS;
        int64_t began = neo_time_ns();
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        double seconds = (double)(neo_time_ns() - began) * 1e-9;
        neo_plan_step s = neo_plan_step_of(plan);
        printf("%s: %d tables on %d ranks: balance %.4f, step %.2f ms, pipelined %.2f ms, %.1f "
               "GiB; in %.2f s\n",
               set->name, set->tables, SET_RANKS, s.balance, s.plain * 1e3, s.pipelined * 1e3,
               (double)s.most_bytes / 1073741824.0, seconds);
        CHECK(s.balance <= 1.05);
        CHECK_NEAR(step_of(plan) / s.plain, 1, 0.05); /* what the search held it to be */
        for (int pipelined = 0; pipelined < 2; pipelined++) { /* ranks that differ, as tables do */
            neo_timeline *timeline;
            REQUIRE_OK(neo_timeline_create(plan, NULL, 0, pipelined, &timeline));
            const neo_timeline_sum sum = neo_timeline_sum_of(timeline);
            check_timeline(timeline, pipelined);
            CHECK_NEAR(sum.seconds / sum.steady, 1, 0.03);
            CHECK_NEAR((pipelined ? s.pipelined : s.plain) / sum.seconds, 1, 1e-13);
            neo_timeline_destroy(timeline);
        }
        CHECK(s.most_bytes <= m.d.cluster.memory_bytes);
        neo_plan_destroy(plan);
        if (!f1) continue;
        for (int t = 0; t < set->tables; t++) CHECK(m.table[t].row_buckets == 128);
        m.d.pipeline = 1;
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        CHECK(neo_plan_step_of(plan).balance <= 1.05);
        neo_plan_destroy(plan);
        m.d.pipeline = 0;
        REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, NEO_ROW_WISE, &plan));
        CHECK(neo_plan_step_of(plan).balance <= 1.10);
        CHECK(neo_plan_step_of(plan).plain >
              s.plain); /* every rank would send partial sums of every table */
        neo_plan_destroy(plan);
    }
}
static void large(void) {
    neo_plan *plan;
    neo__plan_search s;
    model_set(1, 1024);
    m.d.cluster.memory_bytes = (int64_t)12 << 30;
    REQUIRE_OK(neo__plan_new(ctx, &m.d, "large", &plan));
    REQUIRE_OK(neo__plan_search_alloc(&s, plan));
    REQUIRE_OK(neo__plan_search_ways(&s, m.d.cluster.memory_bytes)); /* as neo_plan_create */
    neo_plan_step step = neo_plan_step_of(plan);
    printf("a2: 1000 tables on 1024 ranks: balance %.4f; %lld places and moves tried\n",
           step.balance, (long long)s.tried);
    CHECK(step.balance <= 1.05);
    CHECK(step.most_bytes <= m.d.cluster.memory_bytes);
    CHECK(s.tried < LARGE_TRIED);
    neo_plan_destroy(plan);
}
/* Planning finds what is clear: a table that no rank has memory for is cut, small ones are copied
   where links are slow, and a plan is never worse than any one placement for all. */
static void sensible(void) {
    neo_plan *plan, *one;
    model_begin(8, 0);
    model_add(100000, 128, 1, 1, NEO_BAG_SGD);
    m.d.cluster.memory_bytes = 100000 * 128 * 4 / 2;
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    CHECK_INT(neo_plan_placement(plan, 0), NEO_COLUMN_WISE);
    neo_plan_destroy(plan);
    model_begin(8, 0);
    for (int t = 0; t < 8; t++) model_add(10, 64, 1, 1, NEO_BAG_SGD);
    REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
    for (int t = 0; t < 8; t++) CHECK_INT(neo_plan_placement(plan, t), NEO_DATA_PARALLEL);
    neo_plan_destroy(plan);
    test_seed = 19;
    for (int k = 0; k < 10; k++) {
        int per_node = (int)below(2) * 4, tables = 1 + (int)below(30);
        model_random(tables, 8, per_node);
        REQUIRE_OK(neo_plan_create(ctx, &m.d, &plan));
        for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) {
            REQUIRE_OK(neo_plan_create_uniform(ctx, &m.d, (neo_placement)i, &one));
            if (step_of(plan) > step_of(one) * 1.01)
                FAIL("model %d: the plan takes %g, all by %s %g", k, step_of(plan),
                     neo_placement_name((neo_placement)i), step_of(one));
            neo_plan_destroy(one);
        }
        neo_plan_destroy(plan);
    }
}

/* ---- every request for memory may be refused: an error, nothing lost ---- */
static neo_status with_little_memory(neo_ctx *little, const neo_piece *p, int64_t n, int way) {
    neo_plan *plan = NULL;
    neo_status status = way == 0   ? neo_plan_create(little, &m.d, &plan)
                        : way == 1 ? neo_plan_create_from(little, &m.d, p, n, &plan)
                                   : neo_plan_read(little, &m.d, file_path(), &plan);
    if (status != NEO_OK && plan) FAIL("a plan beside an error");
    neo_plan_destroy(plan);
    return status;
}
static void memory(void) {
    static neo_piece p[1000];
    neo_plan *plan;
    test_seed = 23;
    model_random(6, 4, 2);
    m.d.wire_forward = NEO_WIRE_F32;
    int64_t n = random_pieces(p);
    REQUIRE_OK(from(p, n, &plan));
    REQUIRE_OK(neo_plan_write(plan, file_path()));
    neo_plan_destroy(plan);
    for (int way = 0; way < 3; way++) {
        int64_t refused_calls = 0;
        neo_status status = NEO_ERR_MEMORY;
        for (int64_t at = 0; status == NEO_ERR_MEMORY && at < 1000; at++) {
            NEO__ZERO(meter, counts);
            NEO__ZERO(neo_ctx_desc, cd);
            neo_ctx *little;
            counts.refuse_at = -1;
            cd.allocator.alloc = meter_alloc;
            cd.allocator.free = meter_free;
            cd.allocator.user = &counts;
            cd.threads = 1;
            REQUIRE_OK(neo_ctx_create(&cd, &little));
            int64_t live = counts.live;
            counts.refuse_at = counts.calls + at;
            status = with_little_memory(little, p, n, way);
            if (counts.refused) CHECK_INT(status, NEO_ERR_MEMORY); /* no number is a guess */
            else CHECK_INT(status, NEO_OK);
            refused_calls += counts.refused;
            CHECK_INT(counts.live, live);
            CHECK_INT(counts.wrong, 0);
            neo_ctx_destroy(little);
        }
        CHECK_INT(status, NEO_OK);
        CHECK(refused_calls > 3); /* the plan, its description, its tables, its pieces */
    }
    remove(file_path());
}

int main(void) {
    ctx = test_ctx(1, NEO_ISA_BEST, 1);
    if (test_grid()) RUN(large);
    if (test_grid() == 1) return test_end("shard/plan"); /* the rest is in make test */
    RUN(names);
    RUN(refused);
    RUN(given);
    RUN(given_wrong);
    RUN(row_cuts);
    RUN(loose);
    RUN(predictions);
    RUN(steps);
    RUN(timelines);
    RUN(layers);
    RUN(sampled);
    RUN(sampled_by_sizes);
    RUN(calibration);
    RUN(files);
    RUN(bad_files);
    if (TEST_WATCHED < 2) { /* one thread searches: it has no races */
        RUN(searched);
        RUN(uniform);
        RUN(not_pooled);
        RUN(least_budgets);
        RUN(brute_force);
        RUN(sets);
        RUN(sensible);
    }
    RUN(memory);
    neo_ctx_destroy(ctx);
    return test_end("shard/plan");
}
