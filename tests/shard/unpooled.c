/* unpooled.c: rows that are not pooled (NEO_POOL_NONE), of tables on many ranks.

   The oracle is one neo_bags with all samples: under every plan that cuts no columns each id's row,
   the gradients of per-id weights, and weights and state after every step have its bits. Bytes are
   counted anew from plan and data. */
#include "common.h"
#include "meter.h"

enum { DIM = 20, WIDE = 70 };
static const Set NARROW_ROWS = {"narrow",
                                6,
                                8,
                                4,
                                {64, 200, 5, 1000, 1, 33},
                                {DIM, DIM, DIM, DIM, DIM, DIM},
                                {0, 1, 2, 3, 4, 5, 1, 3},
                                0};
static const Set WIDE_ROWS = {"wide",
                              6,
                              8,
                              4,
                              {64, 200, 5, 1000, 1, 33},
                              {WIDE, WIDE, WIDE, WIDE, WIDE, WIDE},
                              {0, 1, 2, 3, 4, 5, 1, 3},
                              0};

typedef struct None {
    Case c; /* c.width: floats of a sample, at most */
    int64_t dim;
    float *dw[MAX_STEPS];
    int kept, weight_grad;
    int64_t grown;
    meter meter;
    int64_t at; /* the request, or the operation, that fails */
    int rank, ended;
} None;

static void round_rows(neo_ctx *ctx, neo_wire wire, float *rows, int64_t n, int64_t dim) {
    char code[1024];
    for (int64_t i = 0; i < n; i++) {
        neo_wire_encode(ctx, wire, 0, rows + i * dim, 1, dim, dim, code, NULL);
        neo_wire_decode(ctx, wire, 0, code, 1, dim, dim, rows + i * dim);
    }
}
static void none_oracle(None *g, neo_ctx *ctx) {
    Case *c = &g->c;
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s], ids = c->offsets[s][c->set->features * n];
        neo_tensor out = neo_tensor_2d(c->out[s], NEO_F32, ids, g->dim),
                   dout = neo_tensor_2d(c->dout[s], NEO_F32, ids, g->dim);
        neo_jagged j = whole_batch(c, s);
        float *had = malloc(4 * (size_t)(ids * g->dim + 1));
        memcpy(had, c->dout[s], 4 * (size_t)(ids * g->dim));
        g->dw[s] = malloc(4 * (size_t)(ids + 1));
        CHECK_OK(neo_bags_forward(c->oracle, &j, out));
        round_rows(ctx, c->plan.wire_forward, c->out[s], ids, g->dim);
        round_rows(ctx, c->plan.wire_backward, c->dout[s], ids, g->dim);
        CHECK_OK(neo_bags_weight_grad(c->oracle, &j, dout, g->dw[s]));
        CHECK_OK(neo_bags_backward(c->oracle, &j, dout, 0.05f));
        memcpy(c->dout[s], had, 4 * (size_t)(ids * g->dim)); /* ranks have it as it was */
        free(had);
    }
    c->digest = bags_digest(ctx, c->oracle);
}
static void none_free(None *g) {
    for (int s = 0; s < g->c.steps; s++) free(g->dw[s]);
    case_free(&g->c);
}

static neo_status make_none(const None *g, neo_comm *comm, neo_shard **shard) {
    int rank = neo_comm_rank(comm);
    TRY(make_planned(&g->c, comm, shard));
    EXPECT(inside_of_shard(*shard).node == NULL);
    EXPECT(neo_shard_out_width(*shard) == g->dim);
    return NEO_OK;
}
/* One batch; rows are `gap` floats further apart than they are long. */
static neo_status one_batch(None *g, neo_shard *shard, int rank, int s, const Mine *m,
                            const Mine *next, int64_t gap) {
    Case *c = &g->c;
    int64_t zero = m->offsets[0], ids = m->offsets[m->n * c->set->features] - zero, dim = g->dim,
            stride = dim + gap;
    float *out = malloc(4 * (size_t)(ids * stride + 1)), *dw = malloc(4 * (size_t)(ids + 1));
    neo_tensor o = neo_tensor_2d(out, NEO_F32, ids, dim);
    o.stride[0] = stride;
    for (int64_t i = 0; i <= ids * stride; i++) out[i] = 77.0f;
    neo_status status = neo_shard_forward_begin(shard, &m->j, c->size[s]);
    if (status == NEO_OK && c->prefetch == 1 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK) status = neo_shard_forward_end(shard, o);
    if (status == NEO_OK && c->prefetch == 2 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    for (int f = 0; f < c->set->features; f++) {
        int64_t at = m->offsets[f * m->n] - zero, n = m->offsets[(f + 1) * m->n] - zero - at,
                from = c->offsets[s][f * c->size[s] + m->begin];
        for (int64_t i = 0; i < n; i++) {
            if (status == NEO_OK)
                EXPECT(memcmp(out + (at + i) * stride, c->out[s] + (from + i) * dim,
                              4 * (size_t)dim) == 0);
            memcpy(out + (at + i) * stride, c->dout[s] + (from + i) * dim, 4 * (size_t)dim);
        }
    }
    EXPECT(out[ids * stride] == 77.0f && (gap == 0 || ids == 0 || out[dim] == 77.0f));
    if (status == NEO_OK) status = neo_shard_backward_begin(shard, o);
    if (status == NEO_OK && c->prefetch == 3 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK && g->weight_grad) {
        status = neo_shard_weight_grad(shard, dw);
        for (int f = 0; f < c->set->features && status == NEO_OK; f++) {
            int64_t at = m->offsets[f * m->n] - zero, n = m->offsets[(f + 1) * m->n] - zero - at;
            EXPECT(memcmp(dw + at, g->dw[s] + c->offsets[s][f * c->size[s] + m->begin],
                          4 * (size_t)n) == 0);
        }
    }
    if (status == NEO_OK)
        status = g->kept ? neo_shard_accumulate_end(shard) : neo_shard_backward_end(shard, 0.05f);
    if (status == NEO_OK && g->kept) status = neo_shard_step(shard, 0.05f);
    free(out), free(dw);
    return status;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    None *g = user;
    Case *c = &g->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    int64_t sent, want = 0,
                  row = (int64_t)(neo_wire_row_bytes(c->plan.wire_forward, g->dim) +
                                  neo_wire_row_bytes(c->plan.wire_backward, g->dim));
    for (int s = 0; s < c->steps; s++) {
        mine_make(&mine[s], c, s, rank, ranks);
        if (s % 2) shift(&mine[s], c->set->features);
    }
    TRY(make_none(g, comm, &shard));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    for (int s = 0; s < c->steps; s++) {
        TRY(one_batch(g, shard, rank, s, &mine[s], s + 1 < c->steps ? &mine[s + 1] : NULL, s));
        for (int64_t p = 0; p < c->piece_count; p++)
            want += ids_that_travel(c, s, &c->pieces[p]) * (row + (g->weight_grad ? 4 : 0));
    }
    neo_shard_stats stats = neo_shard_get_stats(shard);
    EXPECT(neo_ctx_memory(ctx).alloc_count == allocs + stats.grow_count);
    if (rank == 0) g->grown = stats.grow_count;
    inside_shard inside = inside_of_shard(shard);
    sent = inside.whole ? 0 : all_to_all_bytes(inside.rows);
    if (g->kept && !inside.whole) want = -1; /* a status besides: counted in accumulate.c */
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &sent, &sent, 1, NEO_I64, NULL));
    EXPECT(want < 0 || sent == want);
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}

/* ---- the grid ---- */
enum { ROWS_MIXED = 4, ROWS_RANDOM, PLANS };
/* Cut anywhere: nothing is summed, so buckets do not matter. */
static void place_rows(Case *c, int t, int ranks) {
    for (int64_t row = 0, rows = c->set->rows[t], n; row < rows; row += n) {
        n = 1 + (int64_t)(test_random() % 100);
        if (n > rows - row) n = rows - row;
        add_piece(c, t, (int)test_random() % ranks, row, n, 0, c->set->dims[t]);
    }
}
static void place_all(None *g, int plan, int ranks) {
    static const neo_placement WAYS[] = {NEO_TABLE_WISE, NEO_ROW_WISE, NEO_TABLE_ROW_WISE,
                                         NEO_DATA_PARALLEL};
    Case *c = &g->c;
    c->piece_count = 0;
    for (int t = 0; t < c->set->tables; t++) {
        if (plan == ROWS_RANDOM && test_random() % 6) place_rows(c, t, ranks);
        else
            place(c, t, plan < ROWS_MIXED ? WAYS[plan] : WAYS[plan == ROWS_RANDOM ? 3 : t % 4],
                  ranks);
    }
    plan_of(c, ranks);
    c->plan.kept_batches = g->kept;
    c->plan.weight_grad = g->weight_grad;
}
static void spawn(None *g, const char *what, int ranks) {
    spawn_case(&g->c, what, ranks, run_rank, g);
}
static void begin(None *g, neo_ctx **ctx, const Set *set, int kind, int buckets) {
    Case *c = &g->c;
    memset(g, 0, sizeof *g);
    cut_block = 16;
    c->steps = 4;
    case_tables(c, set, kind, -1, NEO_POOL_NONE);
    for (int t = 0; t < set->tables; t++) c->tables[t].row_buckets = buckets;
    g->dim = set->dims[0];
    c->width = g->dim * set->most * set->features;
    *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    memset(wrong, 0, sizeof wrong);
}
static void each_id_has_the_row_of_one_rank(void) {
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const neo_bounds BOUNDS[] = {NEO_BOUNDS_ERROR, NEO_BOUNDS_DROP, NEO_BOUNDS_CLAMP};
    for (int kind = 0; kind <= KINDS; kind++)
        for (int way = 0; way < 6; way++) {
            if ((kind + way) % (1 << TEST_WATCHED)) continue;
            static None g;
            Case *c = &g.c;
            neo_ctx *ctx;
            begin(&g, &ctx, way % 2 ? &WIDE_ROWS : &NARROW_ROWS, kind, way % 3 ? LEAVES : 0);
            c->weighted = (kind + way) % 2;
            for (int t = 0; t < c->set->tables; t++)
                c->tables[t].dtype = DTYPES[(kind + way + (way == 5 ? t : 0)) % 4];
            c->bags.bounds = BOUNDS[(kind + way) % 3];
            case_data(c);
            if (c->bags.bounds != NEO_BOUNDS_ERROR) spoil(c);
            g.kept = way % 3 == 1;
            g.weight_grad = way % 4 == 2;
            none_oracle(&g, ctx);
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int plan = 0; plan < PLANS; plan++) {
                    char what[100];
                    const int every = TEST_WATCHED ? 7 : 6; /* odd, as ways are halved */
                    if (!test_grid() && (plan + kind + 3 * way + ranks) % every) continue;
                    c->prefetch = (plan + ranks + way) % 4;
                    place_all(&g, plan, ranks);
                    snprintf(what, sizeof what, "optimizer %d, way %d, plan %d on %d ranks", kind,
                             way, plan, ranks);
                    spawn(&g, what, ranks);
                    if (plan == 0) CHECK_INT(g.grown, 0);
                }
            none_free(&g);
            neo_ctx_destroy(ctx);
        }
}
static void wires_round_each_row(void) {
    for (int i = 0; i < NEO_WIRE_COUNT * (2 << test_grid()); i++) {
        static None g;
        Case *c = &g.c;
        neo_ctx *ctx;
        char what[100];
        int ranks = 1 + (i + i / NEO_WIRE_COUNT) % 4;
        begin(&g, &ctx, &WIDE_ROWS, KINDS, 0);
        c->plan.wire_forward = (neo_wire)(i % NEO_WIRE_COUNT);
        c->plan.wire_backward = (neo_wire)((i + i / NEO_WIRE_COUNT) % NEO_WIRE_COUNT);
        c->bags.bounds = i % 2 ? NEO_BOUNDS_DROP : NEO_BOUNDS_ERROR;
        g.weight_grad = i % 3 == 0;
        case_data(c);
        if (i % 2) spoil(c);
        none_oracle(&g, ctx);
        place_all(&g, i % 2 ? ROWS_RANDOM : ROWS_MIXED, ranks);
        snprintf(what, sizeof what, "wires %s and %s on %d ranks",
                 neo_wire_name(c->plan.wire_forward), neo_wire_name(c->plan.wire_backward), ranks);
        spawn(&g, what, ranks);
        none_free(&g);
        neo_ctx_destroy(ctx);
    }
}
static void more_ids_than_planned(void) {
    static None g;
    neo_ctx *ctx;
    for (int plan = 0; plan < PLANS; plan++) {
        int ranks = 1 + plan % 4;
        begin(&g, &ctx, &NARROW_ROWS, KINDS, 0);
        case_data(&g.c);
        none_oracle(&g, ctx);
        place_all(&g, plan, ranks);
        g.c.plan.ids_per_sample = FEW_IDS;
        if (ranks == 1) g.c.bags.max_ids = 4;
        spawn(&g, "few ids planned", ranks);
        CHECK(g.grown > 0);
        none_free(&g);
        neo_ctx_destroy(ctx);
    }
}

/* ---- what is refused ---- */
/* Between the good calls of a run wrong ones: the digest is that of the good ones. */
static neo_status wrong_calls(neo_comm *comm, void *user) {
    None *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    float none[1];
    char text[200];
    TRY(make_none(g, comm, &shard));
    for (int s = 0; s < c->steps; s++) {
        Mine m;
        mine_make(&m, c, s, rank, ranks);
        int64_t ids = m.offsets[m.n * c->set->features];
        /* features of different sizes, on the last rank: all say so */
        neo_jagged j = m.j;
        j.feature_bags = m.offsets;
        EXPECT_ERR(neo_shard_forward(shard, rank == ranks - 1 ? &j : &m.j, c->size[s],
                                     neo_tensor_2d(none, NEO_F32, 0, 1)),
                   NEO_ERR_UNSUPPORTED,
                   "neo_shard: a batch with feature_bags: rows travel sample by sample, of all "
                   "features alike");
        if (ranks > 1) {
            snprintf(text, sizeof text, "rank %d: neo_shard: a batch with feature_bags", ranks - 1);
            EXPECT(strstr(neo_last_error(), text));
        }
        /* rows that are not as many as ids, or not as long: here alone, and again */
        TRY(neo_shard_forward_begin(shard, &m.j, c->size[s]));
        float *out = malloc(4 * (size_t)((ids + 1) * (g->dim + 1)));
        snprintf(text, sizeof text, "neo_shard_forward_end: out must be f32 [%lld][%lld]",
                 (long long)ids, (long long)g->dim);
        EXPECT_ERR(neo_shard_forward_end(shard, neo_tensor_2d(out, NEO_F32, ids + 1, g->dim)),
                   NEO_ERR_SHAPE, text);
        EXPECT_ERR(neo_shard_forward_end(shard, neo_tensor_2d(out, NEO_F32, ids, g->dim + 1)),
                   NEO_ERR_SHAPE, text);
        EXPECT_ERR(neo_shard_forward_end(shard, neo_tensor_none()), NEO_ERR_SHAPE,
                   "neo_shard_forward_end: out is none");
        TRY(neo_shard_forward_end(shard, neo_tensor_2d(out, NEO_F32, ids, g->dim)));
        EXPECT_ERR(neo_shard_backward_begin(shard, neo_tensor_2d(out, NEO_F32, ids + 1, g->dim)),
                   NEO_ERR_SHAPE, "neo_shard_backward_begin: dout must be f32");
        free(out);
        TRY(one_batch(g, shard, rank, s, &m, NULL, 0));
        mine_free(&m);
    }
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static neo_status cut_by_columns(neo_comm *comm, void *user) {
    None *g = user;
    int rank = neo_comm_rank(comm);
    neo_plan *plan;
    neo_shard *shard;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &g->c.plan, g->c.pieces, g->c.piece_count, &plan));
    EXPECT_ERR(neo_shard_create(comm, plan, &shard), NEO_ERR_UNSUPPORTED,
               "neo_shard: table 't1' of NEO_POOL_NONE is cut by columns: rows travel whole");
    EXPECT(shard == NULL);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void run(None *g, neo_ctx *ctx, int ranks, neo_comm_fn fn) {
    spawn_refused(&g->c, ranks, fn, g);
    none_free(g);
    neo_ctx_destroy(ctx);
}
static void wrong_calls_change_nothing(void) {
    static None g;
    neo_ctx *ctx;
    for (int ranks = 1; ranks <= 4; ranks++) {
        begin(&g, &ctx, &NARROW_ROWS, KINDS, 0);
        case_data(&g.c);
        none_oracle(&g, ctx);
        place_all(&g, ranks % 2 ? ROWS_MIXED : ROWS_RANDOM, ranks);
        run(&g, ctx, ranks, wrong_calls);
    }
    begin(&g, &ctx, &WIDE_ROWS, KINDS, 0);
    case_data(&g.c);
    none_oracle(&g, ctx);
    place_all(&g, 0, 2);
    g.c.piece_count = 0;
    for (int t = 0; t < WIDE_ROWS.tables; t++)
        place(&g.c, t, t == 1 ? NEO_COLUMN_WISE : NEO_TABLE_WISE, 2);
    run(&g, ctx, 2, cut_by_columns);
}
/* A planner that is free cuts no columns, and says why; its plans train. */
static void plans_of_rows_that_are_not_pooled(void) {
    static None g;
    neo_ctx *ctx;
    neo_plan *plan = NULL;
    char text[2000];
    begin(&g, &ctx, &WIDE_ROWS, KINDS, 0);
    case_data(&g.c);
    none_oracle(&g, ctx);
    place_all(&g, 0, 4);
    CHECK_OK(neo_plan_create(ctx, &g.c.plan, &plan));
    const neo_piece *pieces = neo_plan_pieces(plan, &g.c.piece_count);
    for (int64_t i = 0; i < g.c.piece_count; i++) CHECK_INT(pieces[i].cols, WIDE);
    memcpy(g.c.pieces, pieces, (size_t)g.c.piece_count * sizeof *pieces);
    (void)neo_plan_why(plan, 0, text, sizeof text);
    CHECK(strstr(text, "its rows are not pooled: they travel whole"));
    neo_plan_destroy(plan);
    spawn(&g, "the planner's", 4);
    none_free(&g);
    neo_ctx_destroy(ctx);
}

/* ---- what cannot go on ends all ranks ---- */
static neo_status ending(neo_comm *comm, void *user) {
    None *g = user;
    int rank = neo_comm_rank(comm), starves = g->meter.refuse_at != -2;
    neo_shard *shard;
    Mine m;
    TRY(make_none(g, comm, &shard));
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0 && starves) g->meter.refuse_at = g->meter.calls + g->at;
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == g->rank && !starves) {
        neo_fault kill = {NEO_FAULT_KILL, g->at, 0};
        TRY(neo_comm_inject(inside_of_shard(shard).rows, kill));
    }
    mine_make(&m, &g->c, 0, rank, neo_comm_size(comm));
    neo_status status = one_batch(g, shard, rank, 0, &m, NULL, 0);
    mine_free(&m);
    if (status == NEO_OK) __atomic_store_n(&g->ended, 1, __ATOMIC_RELAXED);
    else
        EXPECT(starves ? strstr(neo_last_error(), "memory") != NULL
                       : status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT);
    neo_shard_destroy(shard);
    return status;
}
static void what_cannot_go_on_ends_all(void) {
    static None g;
    int ends[2] = {0, 0};
    for (int starves = 0; starves < 2; starves++)
        for (int at = 0;; at++) {
            neo_ctx *ctx;
            begin(&g, &ctx, &NARROW_ROWS, KINDS, 0);
            case_data(&g.c);
            none_oracle(&g, ctx);
            place_all(&g, ROWS_MIXED, 3);
            if (starves) g.c.plan.ids_per_sample = FEW_IDS;
            g.at = at;
            g.rank = at % 3;
            g.meter.refuse_at = starves ? -1 : -2;
            const neo_allocator counted = {meter_alloc, meter_free, &g.meter};
            CHECK_INT(spawn_ending(&counted, 0, ending, &g), g.ended);
            CHECK(g.meter.wrong == 0 && g.meter.live == 0);
            none_free(&g);
            neo_ctx_destroy(ctx);
            if (g.ended) break;
            ends[starves]++;
        }
    CHECK(ends[0] >= 3 && ends[1] > 10); /* rows there and back; buffers */
}

int main(void) {
    RUN(each_id_has_the_row_of_one_rank);
    RUN(wires_round_each_row);
    RUN(more_ids_than_planned);
    RUN(wrong_calls_change_nothing);
    RUN(plans_of_rows_that_are_not_pooled);
    RUN(what_cannot_go_on_ends_all);
    printf("test_shard_none: %lld runs\n", (long long)runs);
    return test_end("shard/unpooled");
}
