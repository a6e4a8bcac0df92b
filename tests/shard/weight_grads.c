/* weight_grads.c: gradients of per-id weights, of tables on many ranks.

   The oracle is one neo_bags with all samples: under every plan the gradients of its weights must
   come to the ranks of the ids with its bits, whatever the pooling, the rows' type, the policy for
   ids out of range, and what lies between the calls; and weights and state after the step must be
   those of a plan that does not ask for them. Bytes are counted anew from the plan and the data. */
#include "neo_data.h"
#include "common.h"
#include "meter.h"

typedef struct Grads {
    Case c;
    float *dw[MAX_STEPS]; /* of the oracle */
    int kept;             /* 1: accumulate and step */
    int twice;            /* 1: asked for twice in a step, and prefetch between */
    int64_t grown;        /* rank 0's */
    meter meter;
    int64_t at; /* the request, or the operation, that fails */
    int rank, ended;
} Grads;

static void grads_oracle(Grads *g, neo_ctx *ctx) {
    Case *c = &g->c;
    neo_pooling pooling[MAX_TABLES]; /* wires: of all tables the same, and divided here */
    neo_wire backward = c->plan.wire_backward;
    for (int t = 0; t < c->set->tables; t++) {
        pooling[t] = c->tables[t].pooling;
        if (backward != NEO_WIRE_F32) c->tables[t].pooling = NEO_POOL_SUM;
    }
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int t = 0; t < c->set->tables; t++) c->tables[t].pooling = pooling[t];
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s], ids = c->offsets[s][c->set->features * n];
        float *dout = malloc(4 * (size_t)(n * c->width + 1));
        neo_jagged j = whole_batch(c, s);
        g->dw[s] = malloc(4 * (size_t)(ids + 1));
        memcpy(dout, c->dout[s], 4 * (size_t)(n * c->width));
        CHECK_OK(neo_bags_forward(c->oracle, &j, neo_tensor_2d(c->out[s], NEO_F32, n, c->width)));
        if (backward != NEO_WIRE_F32 && pooling[0] == NEO_POOL_MEAN) divide(c, s, dout, dout);
        if (backward != NEO_WIRE_F32) through_wire(c, ctx, backward, dout, n);
        CHECK_OK(neo_bags_weight_grad(c->oracle, &j, neo_tensor_2d(dout, NEO_F32, n, c->width),
                                      g->dw[s]));
        CHECK_OK(
            neo_bags_backward(c->oracle, &j, neo_tensor_2d(dout, NEO_F32, n, c->width), 0.05f));
        free(dout);
    }
    c->digest = bags_digest(ctx, c->oracle);
}
static void grads_free(Grads *g) {
    for (int s = 0; s < g->c.steps; s++) free(g->dw[s]);
    case_free(&g->c);
}

static int64_t weight_bytes(const Case *c, int s) {
    int64_t bytes = 0;
    for (int64_t p = 0; p < c->piece_count; p++) {
        const neo_piece *piece = &c->pieces[p];
        bytes +=
            4 * (piece->first_col ? (piece->cols + 15) / 16 : 1) * ids_that_travel(c, s, piece);
    }
    return bytes;
}
/* Bytes of one kind that all ranks have sent. */
static neo_status all_bytes(neo_comm *comm, int64_t *bytes) {
    return neo_comm_all_reduce(comm, NEO_REDUCE_SUM, bytes, bytes, 1, NEO_I64, NULL);
}

/* What came against the oracle: the ids of this rank's samples. */
static void check_grads(const Grads *g, int s, const Mine *m, int rank, const float *dw) {
    const Case *c = &g->c;
    for (int f = 0; f < c->set->features; f++) {
        int64_t at = m->offsets[f * m->n], n = m->offsets[(f + 1) * m->n] - at;
        EXPECT(memcmp(dw + at - m->offsets[0], g->dw[s] + c->offsets[s][f * c->size[s] + m->begin],
                      4 * (size_t)n) == 0);
    }
}
/* One batch, with gradients of its weights. count: also the bytes that they take. */
static neo_status one_batch(Grads *g, neo_comm *comm, neo_shard *shard, int s, const Mine *m,
                            const Mine *next, int count) {
    Case *c = &g->c;
    int rank = neo_comm_rank(comm);
    const inside_shard inside = inside_of_shard(shard);
    int64_t ids = m->offsets[m->n * c->set->features] - m->offsets[0];
    float *out = malloc(4 * (size_t)(m->n * c->width + 1)), *dw = malloc(4 * (size_t)(ids + 2));
    neo_tensor o = neo_tensor_2d(out, NEO_F32, m->n, c->width);
    neo_status status = neo_shard_forward_begin(shard, &m->j, c->size[s]);
    if (status == NEO_OK && c->prefetch == 1 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK) status = neo_shard_forward_end(shard, o);
    if (status == NEO_OK && c->plan.wire_backward == NEO_WIRE_F32)
        EXPECT(memcmp(out, c->out[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width)) == 0);
    memcpy(out, c->dout[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width));
    if (status == NEO_OK) status = neo_shard_backward_begin(shard, o);
    if (status == NEO_OK && c->prefetch == 2 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    for (int i = 0; i < 1 + g->twice && status == NEO_OK; i++) {
        int64_t before = 0;
        if (count && !inside.whole) { /* pooled rows may still be leaving */
            status = neo_comm_barrier(inside.rows, NULL);
            before = all_to_all_bytes(inside.rows);
        }
        for (int64_t k = 0; k < ids + 2; k++) dw[k] = 12345.0f;
        if (status == NEO_OK) status = neo_shard_weight_grad(shard, dw);
        if (status != NEO_OK) break;
        check_grads(g, s, m, rank, dw);
        EXPECT(dw[ids] == 12345.0f && dw[ids + 1] == 12345.0f);
        int64_t sent = count && !inside.whole ? all_to_all_bytes(inside.rows) - before : 0;
        if (count) status = all_bytes(comm, &sent);
        if (count) EXPECT(status != NEO_OK || sent == (inside.whole ? 0 : weight_bytes(c, s)));
        if (status == NEO_OK && i == 0 && c->prefetch == 3 && next)
            status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    }
    if (status == NEO_OK)
        status = g->kept ? neo_shard_accumulate_end(shard) : neo_shard_backward_end(shard, 0.05f);
    if (status == NEO_OK && g->kept) status = neo_shard_step(shard, 0.05f);
    free(out), free(dw);
    return status;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    for (int s = 0; s < c->steps; s++) {
        mine_make(&mine[s], c, s, rank, ranks);
        if (s % 2) shift(&mine[s], c->set->features);
    }
    TRY(make_planned(c, comm, &shard));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    for (int s = 0; s < c->steps; s++)
        TRY(one_batch(g, comm, shard, s, &mine[s], s + 1 < c->steps ? &mine[s + 1] : NULL,
                      c->plan.replicas <= 1));
    neo_shard_stats stats = neo_shard_get_stats(shard);
    EXPECT(neo_ctx_memory(ctx).alloc_count == allocs + stats.grow_count);
    if (rank == 0) g->grown = stats.grow_count;
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}

/* ---- the grid ---- */
enum { PLANS = RANDOM + 1 };
static void place_asking(Case *c, int plan, int ranks) {
    place_case(c, plan, ranks);
    c->plan.weight_grad = 1;
}
static void spawn(Grads *g, const char *what, int ranks) {
    g->c.plan.kept_batches = g->kept;
    spawn_case(&g->c, what, ranks, run_rank, g);
}
/* A cell of the grid: all, or as many that each two of its coordinates meet. */
static int selected(int pooling, int way, int ranks, int plan) {
    const int every[] = {TEST_WATCHED ? 5 : 6, 3, 1}; /* odd, as ways are halved */
    return (plan + 5 * pooling + way + 3 * ranks) % every[test_grid()] == 0;
}
static void weights_have_the_gradients_of_one_rank(void) {
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const neo_bounds BOUNDS[] = {NEO_BOUNDS_ERROR, NEO_BOUNDS_DROP, NEO_BOUNDS_CLAMP};
    cut_block = 16;
    for (int pooling = 0; pooling < 3; pooling++) /* sums, means, and some of each */
        for (int way = 0; way < 8; way++) {
            if ((pooling + way) % (1 << TEST_WATCHED)) continue;
            static Grads g;
            Case *c = &g.c;
            memset(&g, 0, sizeof g);
            neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
            c->steps = 4;
            c->weighted = way % 2;
            case_tables(c, &ZIPF, KINDS, -1, pooling ? NEO_POOL_MEAN : NEO_POOL_SUM);
            for (int t = 0; t < c->set->tables; t++) {
                c->tables[t].dtype = DTYPES[way == 7 ? t % 4 : way / 2];
                if (pooling == 2) c->tables[t].pooling = t % 3 ? NEO_POOL_MEAN : NEO_POOL_SUM;
            }
            c->bags.bounds = BOUNDS[(way + pooling) % 3];
            case_data(c);
            if (c->bags.bounds != NEO_BOUNDS_ERROR) spoil(c);
            g.kept = way % 3 == 1;
            g.twice = way % 4 == 2;
            grads_oracle(&g, ctx);
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int plan = 0; plan < PLANS; plan++) {
                    char what[100];
                    if (!selected(pooling, way, ranks, plan)) continue;
                    c->prefetch = (plan + ranks + way) % 4;
                    c->plan.replicas = ranks % 2 == 0 && (plan + way + ranks / 2) % 2 ? 2 : 1;
                    c->plan.sync_every = way % 4 > 1 ? NEO_SYNC_MERGED : 0;
                    c->plan.skip_empty = c->plan.replicas == 1 && (plan + ranks) / 2 % 2;
                    place_asking(c, plan, ranks / c->plan.replicas);
                    snprintf(what, sizeof what, "pooling %d, way %d, plan %d on %d ranks, %d "
                             "groups", pooling, way, plan, ranks, c->plan.replicas);
                    spawn(&g, what, ranks);
                    if (plan == NEO_TABLE_WISE || plan == NEO_COLUMN_WISE ||
                        plan == NEO_DATA_PARALLEL)
                        CHECK_INT(g.grown, 0);
                }
            grads_free(&g);
            neo_ctx_destroy(ctx);
        }
}
/* With wires: products of gradients as they arrive. Rows of the forward pass travel as f32. */
static void gradients_that_wires_round(void) {
    for (int i = 0; i < NEO_WIRE_COUNT * (2 << test_grid()); i++) {
        static Grads g;
        Case *c = &g.c;
        char what[100];
        int ranks = 1 + (i + i / NEO_WIRE_COUNT) % 4;
        memset(&g, 0, sizeof g);
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        c->steps = 3;
        c->weighted = i % 3 == 0;
        c->plan.wire_backward = (neo_wire)(i % NEO_WIRE_COUNT);
        cut_block = c->plan.wire_backward > NEO_WIRE_BF16 ? NEO_WIRE_BLOCK : 16;
        case_tables(c, &ZIPF, KINDS, -1,
                    (i + i / NEO_WIRE_COUNT) % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        case_data(c);
        grads_oracle(&g, ctx);
        place_asking(c, i % 2 ? RANDOM : MIXED, ranks);
        snprintf(what, sizeof what, "wire %s on %d ranks", neo_wire_name(c->plan.wire_backward),
                 ranks);
        spawn(&g, what, ranks);
        grads_free(&g);
        neo_ctx_destroy(ctx);
    }
}
static void begin(Grads *g, neo_ctx **ctx, int ranks, int plan, neo_pooling pooling) {
    Case *c = &g->c;
    memset(g, 0, sizeof *g);
    cut_block = 16;
    c->steps = 4;
    case_tables(c, &ZIPF, KINDS, -1, pooling);
    case_data(c);
    *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    grads_oracle(g, *ctx);
    place_asking(c, plan, ranks);
    memset(wrong, 0, sizeof wrong);
}
static void more_ids_than_planned(void) {
    static Grads g;
    neo_ctx *ctx;
    for (int plan = 0; plan < PLANS; plan++) {
        begin(&g, &ctx, 1 + plan % 4, plan, NEO_POOL_MEAN);
        g.c.plan.ids_per_sample = FEW_IDS;
        if (g.c.plan.cluster.ranks == 1) g.c.bags.max_ids = 4; /* one rank goes by that */
        spawn(&g, "few ids planned", g.c.plan.cluster.ranks);
        CHECK(g.grown > 0);
        grads_free(&g);
        neo_ctx_destroy(ctx);
    }
}

/* ---- beside a plan without ---- */
/* What the flag costs a step that does not ask: lengths of whole bags of means, and nothing else;
   and one that asks: the sums that go back, in odd steps. */
static neo_status beside(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c, without = g->c;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm),
        mean = c->tables[0].pooling == NEO_POOL_MEAN;
    neo_shard *shard[2];
    int64_t ids[2], rows[2], nodes[2], more = 0, asked = 0;
    float *dw = malloc(40000);
    without.plan.weight_grad = 0;
    TRY(make_planned(&without, comm, &shard[0]));
    TRY(make_planned(c, comm, &shard[1]));
    for (int i = 0; i < 2; i++) {
        for (int s = 0; s < c->steps; s++) {
            Mine m;
            mine_make(&m, c, s, rank, ranks);
            float *out = malloc(4 * (size_t)(m.n * c->width + 1));
            neo_tensor o = neo_tensor_2d(out, NEO_F32, m.n, c->width);
            TRY(neo_shard_forward(shard[i], &m.j, c->size[s], o));
            memcpy(out, c->dout[s] + m.begin * c->width, 4 * (size_t)(m.n * c->width));
            TRY(neo_shard_backward_begin(shard[i], o));
            if (i && s % 2) {
                TRY(neo_shard_weight_grad(shard[i], dw));
                asked += weight_bytes(c, s);
            }
            TRY(neo_shard_backward_end(shard[i], 0.05f));
            free(out);
            for (int r = 0; i && r < ranks; r++) {
                if (mean && r != rank) more += 4 * m.n * inside_flows(shard[i], r);
            }
            mine_free(&m);
        }
        const inside_shard inside = inside_of_shard(shard[i]);
        ids[i] = all_to_all_bytes(inside.ids), rows[i] = all_to_all_bytes(inside.rows);
        nodes[i] = inside.node ? all_to_all_bytes(inside.node) + all_to_all_bytes(inside.cross) : 0;
        TRY(check_digest(comm, shard[i], c->digest));
    }
    rows[1] -= rows[0];
    TRY(all_bytes(comm, &rows[1]));
    EXPECT(ids[1] == ids[0] + more && rows[1] == asked && nodes[1] == nodes[0]);
    free(dw);
    neo_shard_destroy(shard[0]);
    neo_shard_destroy(shard[1]);
    return NEO_OK;
}
static void run(Grads *g, neo_ctx *ctx, int ranks, neo_comm_fn fn) {
    spawn_refused(&g->c, ranks, fn, g);
    grads_free(g);
    neo_ctx_destroy(ctx);
}
static void a_plan_that_may_costs_lengths(void) {
    static Grads g;
    neo_ctx *ctx;
    for (int i = 0; i < 2 * PLANS; i++) {
        int ranks = 2 + i % 3;
        begin(&g, &ctx, ranks, i % PLANS, i < PLANS ? NEO_POOL_SUM : NEO_POOL_MEAN);
        run(&g, ctx, ranks, beside);
    }
}
static void plans_count_gradients_of_weights(void) {
    static Grads g;
    neo_ctx *ctx;
    neo_plan *plan = NULL;
    int64_t most[2];
    begin(&g, &ctx, 4, 0, NEO_POOL_MEAN);
    neo_plan_desc d = {.bags = &g.c.bags, .cluster = {.ranks = 4}};
    for (d.weight_grad = 0; d.weight_grad < 2; d.weight_grad++) {
        CHECK_OK(neo_plan_create_from(ctx, &d, g.c.pieces, g.c.piece_count, &plan));
        most[d.weight_grad] = neo_plan_step_of(plan).most_bytes;
        CHECK_INT(neo_plan_desc_of(plan)->weight_grad, d.weight_grad);
        neo_plan_destroy(plan);
    }
    CHECK(most[0] < most[1]); /* of the same pieces: a search may choose others */
    /* A budget that is too small says which would do; that one does. */
    d.weight_grad = 1;
    d.cluster.memory_bytes = 1000;
    CHECK_ERR(neo_plan_create(ctx, &d, &plan), NEO_ERR_CAPACITY, "bytes each would do");
    char *at = strstr(neo_last_error(), "; ");
    d.cluster.memory_bytes = at ? strtoll(at + 2, NULL, 10) : 0;
    CHECK_OK(neo_plan_create(ctx, &d, &plan));
    CHECK(neo_plan_step_of(plan).most_bytes <= d.cluster.memory_bytes);
    neo_plan_destroy(plan);
    grads_free(&g);
    neo_ctx_destroy(ctx);
}

/* ---- what is refused ---- */

static const char *const NOT_BEGUN = "neo_shard_weight_grad: no backward has begun";
/* Between the good calls of a run every wrong one, some on one rank alone: the digest is that of
   the good ones. */
static neo_status wrong_calls(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    float *dw = calloc(10000, 4);
    TRY(make_planned(c, comm, &shard));
    EXPECT_ERR(neo_shard_weight_grad(NULL, dw), NEO_ERR_ARG,
               "neo_shard_weight_grad: shard is NULL");
    for (int s = 0; s < c->steps; s++) {
        Mine m;
        mine_make(&m, c, s, rank, ranks);
        float *out = malloc(4 * (size_t)(m.n * c->width + 1));
        neo_tensor o = neo_tensor_2d(out, NEO_F32, m.n, c->width);
        EXPECT_ERR(neo_shard_weight_grad(shard, dw), NEO_ERR_STATE, NOT_BEGUN);
        TRY(neo_shard_forward_begin(shard, &m.j, c->size[s]));
        if (rank == 0) EXPECT_ERR(neo_shard_weight_grad(shard, dw), NEO_ERR_STATE, NOT_BEGUN);
        TRY(neo_shard_forward_end(shard, o));
        if (rank == ranks - 1)
            EXPECT_ERR(neo_shard_weight_grad(shard, dw), NEO_ERR_STATE, NOT_BEGUN);
        memcpy(out, c->dout[s] + m.begin * c->width, 4 * (size_t)(m.n * c->width));
        TRY(neo_shard_backward_begin(shard, o));
        if (m.offsets[m.n * c->set->features] > 0 && s % 2 == rank % 2)
            EXPECT_ERR(neo_shard_weight_grad(shard, NULL), NEO_ERR_ARG,
                       "neo_shard_weight_grad: dweights is NULL");
        TRY(neo_shard_weight_grad(shard, dw));
        check_grads(g, s, &m, rank, dw);
        TRY(neo_shard_backward_end(shard, 0.05f));
        EXPECT_ERR(neo_shard_weight_grad(shard, dw), NEO_ERR_STATE, NOT_BEGUN);
        free(out);
        mine_free(&m);
    }
    free(dw);
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static neo_status not_planned(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    float dw[1];
    TRY(make_planned(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) {
        Mine m;
        mine_make(&m, c, s, rank, neo_comm_size(comm));
        float *out = malloc(4 * (size_t)(m.n * c->width + 1));
        neo_tensor o = neo_tensor_2d(out, NEO_F32, m.n, c->width);
        TRY(neo_shard_forward(shard, &m.j, c->size[s], o));
        memcpy(out, c->dout[s] + m.begin * c->width, 4 * (size_t)(m.n * c->width));
        TRY(neo_shard_backward_begin(shard, o));
        EXPECT_ERR(neo_shard_weight_grad(shard, dw), NEO_ERR_STATE,
                   "neo_shard_weight_grad: the plan has no gradients of weights: give "
                   "neo_plan_desc.weight_grad");
        TRY(neo_shard_backward_end(shard, 0.05f));
        free(out);
        mine_free(&m);
    }
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static neo_status unlike_plans(neo_comm *comm, void *user) {
    Grads *g = user;
    int rank = neo_comm_rank(comm);
    neo_plan_desc d = g->c.plan;
    neo_plan *plan;
    neo_shard *shard;
    d.weight_grad = rank;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &d, g->c.pieces, g->c.piece_count, &plan));
    EXPECT_ERR(neo_shard_create(comm, plan, &shard), NEO_ERR_MISMATCH,
               "another pipeline, weighted, weight_grad, kept_batches");
    EXPECT(shard == NULL);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void wrong_calls_change_nothing(void) {
    static Grads g;
    neo_ctx *ctx;
    for (int ranks = 1; ranks <= 4; ranks++) {
        begin(&g, &ctx, ranks, ranks % 2 ? MIXED : RANDOM,
              ranks % 2 ? NEO_POOL_SUM : NEO_POOL_MEAN);
        run(&g, ctx, ranks, wrong_calls);
        begin(&g, &ctx, ranks, RANDOM, NEO_POOL_MEAN);
        g.c.plan.weight_grad = 0;
        run(&g, ctx, ranks, not_planned);
    }
    begin(&g, &ctx, 2, MIXED, NEO_POOL_SUM);
    run(&g, ctx, 2, unlike_plans);
}

/* ---- what cannot go on ends all ranks ---- */
static neo_status losing(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_status status = make_planned(c, comm, &shard);
    if (status != NEO_OK) return status;
    if (rank == g->rank) {
        neo_fault kill = {NEO_FAULT_KILL, g->at, 0};
        TRY(neo_comm_inject(inside_of_shard(shard).rows, kill));
    }
    for (int s = 0; s < 2 && status == NEO_OK; s++) {
        Mine m;
        mine_make(&m, c, s, rank, neo_comm_size(comm));
        status = one_batch(g, comm, shard, s, &m, NULL, 0);
        mine_free(&m);
    }
    if (status == NEO_OK) __atomic_store_n(&g->ended, 1, __ATOMIC_RELAXED);
    else EXPECT(status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT);
    neo_shard_destroy(shard);
    return status;
}
static void a_lost_rank_ends_all(void) {
    static Grads g;
    int killed = 0;
    for (int at = 0;; at++) {
        neo_ctx *ctx;
        begin(&g, &ctx, 3, MIXED, NEO_POOL_MEAN);
        g.at = at;
        g.rank = at % 3;
        CHECK_INT(spawn_ending(NULL, 0, losing, &g), g.ended);
        grads_free(&g);
        neo_ctx_destroy(ctx);
        if (g.ended) break;
        killed++;
    }
    CHECK(killed >= 2 * 3); /* rows there and back, and gradients of weights */
}
static neo_status starving(neo_comm *comm, void *user) {
    Grads *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_status status = make_planned(c, comm, &shard);
    if (status != NEO_OK) return status;
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) g->meter.refuse_at = g->meter.calls + g->at;
    TRY(neo_comm_barrier(comm, NULL));
    Mine m;
    mine_make(&m, c, 0, rank, neo_comm_size(comm));
    status = one_batch(g, comm, shard, 0, &m, NULL, 0);
    mine_free(&m);
    if (status != NEO_OK) EXPECT(strstr(neo_last_error(), "memory"));
    neo_shard_destroy(shard);
    return status;
}
static void without_memory_to_grow_all_ranks_end(void) {
    static Grads g;
    int failures = 0;
    for (int at = 0;; at++) {
        neo_ctx *ctx;
        begin(&g, &ctx, 3, MIXED, NEO_POOL_MEAN);
        g.c.plan.ids_per_sample = FEW_IDS;
        g.at = at;
        g.meter.refuse_at = -1;
        const neo_allocator counted = {meter_alloc, meter_free, &g.meter};
        CHECK_INT(spawn_ending(&counted, 0, starving, &g), g.meter.refused == 0);
        CHECK(g.meter.wrong == 0 && g.meter.live == 0);
        grads_free(&g);
        neo_ctx_destroy(ctx);
        if (g.meter.refused == 0) break;
        failures++;
    }
    CHECK(failures > 10);
}

int main(void) {
    RUN(weights_have_the_gradients_of_one_rank);
    RUN(gradients_that_wires_round);
    RUN(more_ids_than_planned);
    RUN(a_plan_that_may_costs_lengths);
    RUN(plans_count_gradients_of_weights);
    RUN(wrong_calls_change_nothing);
    RUN(a_lost_rank_ends_all);
    RUN(without_memory_to_grow_all_ranks_end);
    printf("test_shard_weights: %lld runs\n", (long long)runs);
    return test_end("shard/weight_grads");
}
