/* errors_and_resume.c: sharded tables when something is wrong, when batches are larger than
   planned, and across checkpoints.

   What one rank finds stops all ranks with one message, and the next batch trains on; a rank
   without memory, or one that is lost, ends all; a run saved under any plan goes on under any other
   with the bits of an uninterrupted one. */
#define _GNU_SOURCE
#include "common.h"
#include "meter.h"

/* With a batch that may have been prefetched. */
static neo_status step_with(const Case *c, int rank, neo_shard *shard, int s, const Mine *m) {
    float *out = malloc(4 * (size_t)(m->n * c->width + 1));
    neo_status status =
        neo_shard_forward(shard, &m->j, c->size[s], neo_tensor_2d(out, NEO_F32, m->n, c->width));
    if (status == NEO_OK) {
        EXPECT(memcmp(out, c->out[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width)) == 0);
        memcpy(out, c->dout[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width));
        status = neo_shard_backward(shard, neo_tensor_2d(out, NEO_F32, m->n, c->width), 0.05f);
    }
    free(out);
    return status;
}
static neo_status step(const Case *c, neo_comm *comm, neo_shard *shard, int s) {
    Mine m;
    int rank = neo_comm_rank(comm);
    mine_make(&m, c, s, rank, neo_comm_size(comm));
    const neo_status status = step_with(c, rank, shard, s, &m);
    mine_free(&m);
    return status;
}
/* A case with an oracle, tables placed anyhow. */
static void begin(Case *c, neo_ctx **ctx, int ranks, int kind, int pipeline) {
    memset(c, 0, sizeof *c);
    cut_block = 16;
    c->steps = 4;
    case_tables(c, &ZIPF, kind < KINDS ? kind : KINDS, -1, NEO_POOL_MEAN);
    case_data(c);
    for (int t = 0; t < c->set->tables; t++) place_anyhow(c, t, ranks);
    c->plan = (neo_plan_desc){.bags = &c->bags, .cluster = {.ranks = ranks}, .pipeline = pipeline};
    *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    case_oracle(c, *ctx);
    memset(wrong, 0, sizeof wrong);
}
static void end(Case *c, neo_ctx *ctx, int ranks) {
    check_wrong("end", ranks);
    case_free(c);
    neo_ctx_destroy(ctx);
}
static neo_comm_desc comm_desc(void) {
    return (neo_comm_desc){.ctx = {.repro_shards = LEAVES, .seed = 1},
                           .timeout_ms = TEST_PATIENCE_MS};
}
static void run_and_end(Case *c, neo_ctx *ctx, int ranks,
                        neo_status (*rank)(neo_comm *, void *)) {
    const neo_comm_desc d = comm_desc();
    CHECK_OK(neo_comm_spawn(ranks, &d, rank, c, NULL));
    end(c, ctx, ranks);
}

/* ---- what one rank finds ---- */
static neo_status bad_batches(neo_comm *comm, void *user) {
    Case *c = user;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    TRY(make(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) {
        Mine m, good;
        char expected[200] = "";
        mine_make(&m, c, s, rank, ranks);
        mine_make(&good, c, s, rank, ranks);
        int culprit = s % ranks;
        int64_t global = c->size[s],
                begin = neo_leaf_begin(global, LEAVES, LEAVES * culprit / ranks);
        if (s == 0) { /* an id outside its table: the culprit's first of feature 3 */
            const int64_t *bag = c->offsets[s] + 3 * c->size[s] + begin;
            int64_t sample = 0;
            while (bag[sample] == bag[sample + 1]) sample++;
            if (rank == culprit) m.ids[m.offsets[3 * m.n]] = 1000;
            snprintf(expected, sizeof expected,
                     "rank %d: neo_shard: bags 'bags': table 't3' (feature 3), sample %lld, "
                     "position 0: id 1000",
                     culprit, (long long)(begin + sample));
        } else if (s == 1) { /* a batch with too few samples */
            if (rank == culprit) m.j.batch--;
            snprintf(expected, sizeof expected, "rank %d: neo_shard: rank %d has", culprit,
                     culprit);
        } else if (s == 2) {
            if (rank == culprit) m.j.feature_count--;
            snprintf(expected, sizeof expected, "rank %d: neo_shard: the batch has 8 features",
                     culprit);
        } else { /* all ranks say so */
            global = BATCH + 1;
            snprintf(expected, sizeof expected,
                     "rank 0: neo_shard: bags 'bags': a batch of 49 samples, planned are 48");
        }
        float *out = malloc(4 * (size_t)(c->width * BATCH));
        neo_status status = c->prefetch ? neo_shard_prefetch(shard, &m.j, global) : NEO_OK;
        EXPECT(status == NEO_OK);
        if (c->plan.pipeline > 1) TRY(neo_shard_prefetch(shard, &good.j, c->size[s]));
        if (c->plan.pipeline == 2)
            EXPECT(neo_shard_prefetch(shard, &good.j, c->size[s]) == NEO_ERR_STATE);
        status = neo_shard_forward(shard, &m.j, global, neo_tensor_2d(out, NEO_F32, m.n, c->width));
        EXPECT(status != NEO_OK && strncmp(neo_last_error(), expected, strlen(expected)) == 0);
        if (status != NEO_OK && strncmp(neo_last_error(), expected, strlen(expected)))
            printf("  rank %d: '%s', expected '%s'\n", rank, neo_last_error(), expected);
        EXPECT(neo_shard_backward(shard, neo_tensor_2d(out, NEO_F32, m.n, c->width), 1) ==
               NEO_ERR_STATE);
        free(out);
        TRY(step_with(c, rank, shard, s, &good)); /* and the good one */
        mine_free(&m), mine_free(&good);
    }
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void a_bad_batch_of_one_rank_stops_all_and_breaks_nothing(void) {
    for (int i = 0; i < 8; i++) {
        Case c;
        neo_ctx *ctx;
        int ranks = 2 + i % 3;
        begin(&c, &ctx, ranks, i, i % 4);
        c.prefetch = i % 4 > 0;
        run_and_end(&c, ctx, ranks, bad_batches);
    }
}

/* ---- batches that wait while others go first, twice each: only the last is stepped ---- */
static neo_status others_first(neo_comm *comm, void *user) {
    const Case *c = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    TRY(make(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) mine_make(&mine[s], c, s, rank, ranks);
    for (int s = 0, told = 0; s < c->steps; s++) {
        for (; told < c->steps && told < s + c->plan.pipeline; told++)
            TRY(neo_shard_prefetch(shard, &mine[told].j, c->size[told]));
        for (int k = 0; k < 2; k++) {
            Mine other;
            mine_make(&other, c, s, rank, ranks);
            float *out = malloc(4 * (size_t)(other.n * c->width + 1));
            TRY(neo_shard_forward(shard, &other.j, c->size[s],
                                  neo_tensor_2d(out, NEO_F32, other.n, c->width)));
            EXPECT(memcmp(out, c->out[s] + other.begin * c->width,
                          4 * (size_t)(other.n * c->width)) == 0);
            free(out);
            mine_free(&other);
        }
        TRY(step_with(c, rank, shard, s, &mine[s]));
    }
    TRY(check_digest(comm, shard, c->digest));
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void batches_wait_for_others(void) {
    for (int i = 0; i < 6; i++) {
        Case c;
        neo_ctx *ctx;
        const int ranks = 1 + i % 4;
        begin(&c, &ctx, ranks, i, 1 + i % 3);
        run_and_end(&c, ctx, ranks, others_first);
    }
}

/* ---- arrays that are written between prefetch and forward: by the last rank ---- */
enum { SAME_IDS, OTHER_IDS, NO_OFFSETS, SIGNS, WRITES };
static neo_status written_since(neo_comm *comm, void *user) {
    Case *c = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), what = c->prefetch;
    neo_shard *shard;
    Mine m;
    TRY(make(c, comm, &shard));
    mine_make(&m, c, 0, rank, ranks);
    const int64_t bags = m.n * c->set->features, ids = m.offsets[bags];
    TRY(neo_shard_prefetch(shard, &m.j, c->size[0]));
    TRY(neo_comm_barrier(comm, NULL)); /* the last rank's error does not come to others' prefetch */
    EXPECT(ids > 9);
    const int64_t was = m.ids[ids - 1];
    if (rank == ranks - 1) m.ids[ids - 1] = what == OTHER_IDS ? 1 - was % 2 : was;
    if (rank == ranks - 1 && what == NO_OFFSETS) m.offsets[bags] = INT64_MAX / 2; /* not followed */
    for (int k = 0; k < 9; k += 8) /* of two words that a sum of products would not tell apart */
        if (rank == ranks - 1 && what == SIGNS) m.weights[k + 1] = -m.weights[k + 1];
    if (what == SAME_IDS) {
        TRY(step_with(c, rank, shard, 0, &m));
    } else {
        const neo_status status = neo_shard_forward_begin(shard, &m.j, c->size[0]);
        float *out = malloc(4 * (size_t)(m.n * c->width + 1));
        neo_tensor rows = neo_tensor_2d(out, NEO_F32, m.n, c->width);
        if (rank == ranks - 1) EXPECT(status == NEO_ERR_STATE);
        else EXPECT(status != NEO_OK || neo_shard_forward_end(shard, rows) != NEO_OK);
        char expected[80];
        snprintf(expected, sizeof expected, "rank %d: the batch's arrays have been written since",
                 ranks - 1);
        if (!strstr(neo_last_error(), expected))
            printf("  rank %d: '%s'\n", rank, neo_last_error()), wrong[rank]++;
        free(out);
    }
    mine_free(&m);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void a_batch_that_is_written_since_is_refused(void) {
    for (int i = 0; i < 3 * WRITES; i++) {
        Case c;
        neo_ctx *ctx;
        const int ranks = 2 + i % 3;
        begin(&c, &ctx, ranks, i, 1 + i % 2);
        c.prefetch = i % WRITES;
        if (c.prefetch == SIGNS) c.weighted = c.plan.weighted = 1;
        run_and_end(&c, ctx, ranks, written_since);
    }
}

/* ---- check_finite: the bits of a run without it; what one rank finds ends all ---- */
static neo_status looked_at(neo_comm *comm, void *user) {
    Case *c = user;
    const int rank = neo_comm_rank(comm);
    neo_shard *shard;
    Mine m;
    TRY(make(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) TRY(step(c, comm, shard, s));
    TRY(check_digest(comm, shard, c->digest));
    mine_make(&m, c, 0, rank, neo_comm_size(comm));
    float *out = malloc(4 * (size_t)(m.n * c->width + 1));
    neo_tensor rows = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    neo_status status = neo_shard_forward(shard, &m.j, c->size[0], rows);
    if (rank == 1) out[2] = NAN;
    if (status == NEO_OK) status = neo_shard_backward(shard, rows, 0.05f);
    EXPECT(status != NEO_OK);
    if (rank == 1) EXPECT(status == NEO_ERR_NUMERIC);
    if (!strstr(neo_last_error(), "neo_shard_backward_begin: dout[0][2] is nan at step 5"))
        printf("  rank %d: '%s'\n", rank, neo_last_error()), wrong[rank]++;
    free(out);
    mine_free(&m);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void a_number_that_is_not_finite_is_found(void) {
    for (int i = 0; i < 8; i++) {
        Case c;
        neo_ctx *ctx;
        const int ranks = 2 + i % 2;
        begin(&c, &ctx, ranks, i, 0);
        neo_comm_desc d = comm_desc();
        d.ctx.check_finite = 1;
        CHECK_OK(neo_comm_spawn(ranks, &d, looked_at, &c, NULL));
        end(&c, ctx, ranks);
    }
}

/* ---- ranks that do not mean the same batch ---- */
static neo_status other_global(neo_comm *comm, void *user) {
    Case *c = user;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    Mine m;
    mine_make(&m, c, 0, rank, neo_comm_size(comm));
    float *out = malloc(4 * (size_t)(m.n * c->width + 1));
    TRY(make(c, comm, &shard));
    neo_status status = neo_shard_forward(shard, &m.j, c->size[0] - (rank == 1),
                                          neo_tensor_2d(out, NEO_F32, m.n, c->width));
    free(out);
    mine_free(&m);
    neo_shard_destroy(shard);
    return status;
}
static void another_global_batch_is_named(void) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        Case c;
        neo_ctx *ctx;
        begin(&c, &ctx, ranks, 0, 0);
        neo_comm_desc d = comm_desc();
        CHECK_ERR(neo_comm_spawn(ranks, &d, other_global, &c, NULL), NEO_ERR_DIVERGED,
                  "do not give the same global_batch");
        end(&c, ctx, ranks);
    }
}

/* ---- calls out of order ---- */
static neo_status out_of_order(neo_comm *comm, void *user) {
    Case *c = user;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_tensor none = neo_tensor_none();
    Mine m;
    mine_make(&m, c, 0, rank, neo_comm_size(comm));
    float *out = malloc(4 * (size_t)(m.n * c->width + 1));
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    TRY(make(c, comm, &shard));
    EXPECT(neo_shard_forward_end(shard, none) == NEO_ERR_STATE);
    EXPECT(neo_shard_backward_begin(shard, none) == NEO_ERR_STATE);
    EXPECT(neo_shard_backward_end(shard, 1) == NEO_ERR_STATE);
    EXPECT(neo_shard_prefetch(shard, &m.j, c->size[0]) ==
           NEO_ERR_STATE); /* the plan has no pipeline */
    TRY(neo_shard_forward_begin(shard, &m.j, c->size[0]));
    EXPECT(neo_shard_forward_begin(shard, &m.j, c->size[0]) == NEO_ERR_STATE);
    EXPECT(neo_shard_forward_end(shard, none) == NEO_ERR_SHAPE);
    TRY(neo_shard_forward_end(shard, t));
    EXPECT(neo_shard_backward_begin(shard, neo_tensor_2d(out, NEO_F32, m.n, c->width - 1)) ==
           NEO_ERR_SHAPE);
    TRY(neo_shard_backward_begin(shard, t));
    EXPECT(neo_shard_backward_end(shard, NAN) == NEO_ERR_NUMERIC);
    TRY(neo_shard_backward_end(shard, 0.0f));
    EXPECT(neo_shard_get_stats(shard).steps == 1);
    EXPECT(neo_shard_out_width(shard) == c->width);
    free(out);
    mine_free(&m);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void calls_out_of_order_are_refused(void) {
    Case c;
    neo_ctx *ctx;
    begin(&c, &ctx, 2, 0, 0);
    neo_comm_desc d = comm_desc();
    CHECK_OK(neo_comm_spawn(2, &d, out_of_order, &c, NULL));
    end(&c, ctx, 2);
}

/* ---- bounds policies ---- */
static neo_status all_steps(neo_comm *comm, void *user) {
    Case *c = user;
    neo_shard *shard;
    TRY(make(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) TRY(step(c, comm, shard, s));
    TRY(check_digest(comm, shard, c->digest));
    int64_t bad = neo_shard_get_stats(shard).out_of_range;
    int rank = neo_comm_rank(comm);
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &bad, &bad, 1, NEO_I64, NULL));
    if (c->bags.bounds != NEO_BOUNDS_ERROR)
        EXPECT(bad == neo_bags_get_stats(c->oracle).out_of_range && bad > 50);
    if (c->plan.ids_per_sample)
        EXPECT(neo_comm_size(comm) == 1 || neo_shard_get_stats(shard).grow_count > 0);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void ids_outside_are_dropped_or_clamped_as_on_one_rank(void) {
    for (int i = 0; i < 12; i++) {
        Case c;
        neo_ctx *ctx;
        int ranks = 1 + i % 4;
        begin(&c, &ctx, ranks, i, 0);
        neo_bags_destroy(c.oracle);
        c.bags.bounds = i % 2 ? NEO_BOUNDS_DROP : NEO_BOUNDS_CLAMP;
        for (int s = 0; s < c.steps; s++)
            for (int64_t k = 0; k < c.offsets[s][c.set->features * c.size[s]]; k++)
                if (test_random() % 10 == 0)
                    c.ids[s][k] = test_random() % 2 ? -1 - (int64_t)test_random()
                                                    : 1000 + (int64_t)test_random();
        case_oracle(&c, ctx);
        run_and_end(&c, ctx, ranks, all_steps);
    }
}
/* ---- more ids than planned ---- */
static void buffers_grow_when_batches_are_larger_than_planned(void) {
    for (int i = 0; i < 8; i++) {
        Case c;
        neo_ctx *ctx;
        int ranks = 1 + i % 4;
        begin(&c, &ctx, ranks, i, 0);
        c.plan.ids_per_sample = FEW_IDS;
        run_and_end(&c, ctx, ranks, all_steps);
    }
}

/* ---- memory ---- */
typedef struct Starved {
    Case c;
    meter meter;
    int64_t at; /* the request of create, counted over all ranks, that is refused */
} Starved;
static neo_status starving(neo_comm *comm, void *user) {
    Starved *s = user;
    int rank = neo_comm_rank(comm);
    neo_plan *plan;
    neo_shard *shard = NULL;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &s->c.plan, s->c.pieces, s->c.piece_count, &plan));
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) s->meter.refuse_at = s->meter.calls + s->at;
    TRY(neo_comm_barrier(comm, NULL));
    neo_status status = neo_shard_create(comm, plan, &shard);
    if (status == NEO_OK) neo_shard_destroy(shard);
    else EXPECT(shard == NULL && strstr(neo_last_error(), "memory"));
    neo_plan_destroy(plan);
    return status;
}
static void without_memory_no_rank_gets_its_part(void) {
    static Starved s;
    neo_ctx *ctx;
    int failures = 0;
    begin(&s.c, &ctx, 3, 8, 1);
    s.c.plan.kept_batches = 2;
    for (s.at = 0;; s.at++) {
        neo_comm_desc d = comm_desc();
        neo_status status[3];
        memset(&s.meter, 0, sizeof s.meter);
        s.meter.refuse_at = -1;
        d.ctx.allocator = (neo_allocator){meter_alloc, meter_free, &s.meter};
        (void)neo_comm_spawn(3, &d, starving, &s, status);
        CHECK(s.meter.wrong == 0 && s.meter.live == 0);
        if (s.meter.refused == 0) break;
        failures++;
        for (int r = 0; r < 3; r++) CHECK(status[r] != NEO_OK);
    }
    CHECK(failures > 40);
    end(&s.c, ctx, 3);
}

/* ---- a lost rank ---- */
typedef struct Lost {
    Case c;
    int rank, group;
    int64_t at;
    int ended;
} Lost;
static neo_status losing(neo_comm *comm, void *user) {
    Lost *l = user;
    neo_shard *shard;
    int rank = neo_comm_rank(comm);
    neo_status status = make(&l->c, comm, &shard);
    if (status != NEO_OK) return status;
    if (rank == l->rank) {
        neo_fault kill = {NEO_FAULT_KILL, l->at, 0};
        inside_shard inside = inside_of_shard(shard);
        TRY(neo_comm_inject(l->group ? inside.rows : inside.ids, kill));
    }
    for (int s = 0; s < 2 && status == NEO_OK; s++) status = step(&l->c, comm, shard, s);
    if (status == NEO_OK) __atomic_store_n(&l->ended, 1, __ATOMIC_RELAXED);
    else EXPECT(status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT);
    neo_shard_destroy(shard);
    return status;
}
static void a_lost_rank_ends_all(void) {
    static Lost l;
    int killed = 0;
    for (l.group = 0; l.group < 2; l.group++)
        for (l.at = 0;; l.at++) {
            neo_ctx *ctx;
            neo_status status[3];
            begin(&l.c, &ctx, 3, 6, 0);
            l.rank = (int)l.at % 3;
            l.ended = 0;
            neo_comm_desc d = comm_desc();
            (void)neo_comm_spawn(3, &d, losing, &l.c, status);
            for (int r = 0; r < 3; r++) CHECK((status[r] == NEO_OK) == l.ended);
            end(&l.c, ctx, 3);
            if (l.ended) break;
            killed++;
        }
    CHECK(killed >= 2 * 2 + 2 * 2); /* lengths and ids; rows there and back */
}

/* ---- checkpoints ---- */
typedef struct Resumed {
    Case c;
    neo_piece pieces[2][MAX_TABLES * 64]; /* of the run that saves, and of the one that goes on */
    int64_t piece_count[2];
    int ranks[2], half; /* half: which of the two runs */
    char dir[256];
} Resumed;
static neo_status run_half(neo_comm *comm, void *user) {
    Resumed *q = user;
    Case *c = &q->c;
    neo_shard *shard;
    neo_state *state;
    neo_plan *plan;
    neo_group all = neo_comm_group(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_plan_desc desc = c->plan;
    desc.cluster.ranks = desc.cluster.ranks_per_node = q->ranks[q->half];
    TRY(neo_plan_create_from(ctx, &desc, q->pieces[q->half], q->piece_count[q->half], &plan));
    TRY(neo_shard_create(comm, plan, &shard));
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    if (q->half) TRY(neo_load(ctx, &(neo_load_desc){.dir = q->dir, .group = &all}, state, NULL));
    for (int s = 2 * q->half; s < 2 * q->half + 2; s++) TRY(step(c, comm, shard, s));
    if (q->half) TRY(check_digest(comm, shard, c->digest));
    else TRY(neo_save(ctx, &(neo_save_desc){.dir = q->dir, .step = 2, .group = &all}, state));
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void a_run_goes_on_under_any_other_plan(void) {
    static const int RANKS[] = {1, 2, 3, 8, 4};
    for (int i = 0; i < 20; i++) {
        static Resumed q;
        neo_ctx *ctx;
        begin(&q.c, &ctx, 4, i % 9, 0);
        q.ranks[0] = i % 5 == 4 ? 1 : 4;
        q.ranks[1] = RANKS[i % 5];
        for (q.half = 0; q.half < 2; q.half++) {
            q.c.piece_count = 0;
            for (int t = 0; t < q.c.set->tables; t++) {
                if (i < 7 && q.half == 0) place(&q.c, t, (neo_placement)i, q.ranks[0]);
                else place_anyhow(&q.c, t, q.ranks[q.half]);
            }
            memcpy(q.pieces[q.half], q.c.pieces, sizeof q.c.pieces);
            q.piece_count[q.half] = q.c.piece_count;
        }
        CHECK(dir_make(q.dir));
        neo_comm_desc d = comm_desc();
        for (q.half = 0; q.half < 2; q.half++)
            CHECK_OK(neo_comm_spawn(q.ranks[q.half], &d, run_half, &q, NULL));
        CHECK(dir_remove(q.dir));
        end(&q.c, ctx, 8);
    }
}

/* ---- memory as planned ---- */
static const Set LARGE = {"large", 3, 3, 4, {30000, 20000, 9000}, {64, 32, 48}, {0, 1, 2}, 0};
/* Every rank's peak stays within what was predicted, while it creates, trains, saves and loads. */
static neo_status within_plan(neo_comm *comm, void *user) {
    Resumed *q = user;
    Case *c = &q->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_group all = neo_comm_group(comm);
    neo_plan *plan;
    neo_shard *shard;
    neo_state *state;
    neo_shard_memory m;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_comm_desc group = {.ctx = {.repro_shards = LEAVES}};
    TRY(neo_plan_create_from(ctx, &c->plan, c->pieces, c->piece_count, &plan));
    TRY(neo_shard_bytes(ctx, plan, rank, &m));
    size_t before = neo_ctx_memory(ctx).bytes,
           groups = 4 * neo_comm_workspace_bytes(&group, ranks, NEO_BACKEND_THREADS);
    size_t planned = m.weight_bytes + m.state_bytes + m.exchange_bytes + m.workspace_bytes + groups,
           whole = 0;
    for (int t = 0; t < LARGE.tables; t++) whole += (size_t)(LARGE.rows[t] * LARGE.dims[t]) * 8;
    EXPECT(planned < whole); /* the model is larger than any rank may hold */
    TRY(neo_shard_create(comm, plan, &shard));
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    for (int s = 0; s < 2; s++) TRY(step(c, comm, shard, s));
    TRY(neo_save(ctx, &(neo_save_desc){.dir = q->dir, .step = 2, .group = &all}, state));
    TRY(neo_load(ctx, &(neo_load_desc){.dir = q->dir, .group = &all}, state, NULL));
    for (int s = 2; s < c->steps; s++) TRY(step(c, comm, shard, s));
    EXPECT(neo_ctx_memory(ctx).peak_bytes - before <= planned + planned / 100);
    neo_state_destroy(state);
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void no_rank_holds_more_than_planned(void) {
    static Resumed q;
    for (int placement = NEO_COLUMN_WISE; placement <= NEO_ROW_WISE; placement++) {
        memset(&q, 0, sizeof q);
        cut_block = 16;
        q.c.steps = 4;
        case_tables(&q.c, &LARGE, NEO_BAG_ADAGRAD, 0, NEO_POOL_SUM);
        case_data(&q.c);
        for (int t = 0; t < LARGE.tables; t++) place(&q.c, t, (neo_placement)placement, 4);
        q.c.plan = (neo_plan_desc){.bags = &q.c.bags, .cluster = {.ranks = 4}};
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        case_oracle(&q.c, ctx);
        memset(wrong, 0, sizeof wrong);
        CHECK(dir_make(q.dir));
        neo_comm_desc d = comm_desc();
        CHECK_OK(neo_comm_spawn(4, &d, within_plan, &q, NULL));
        CHECK(dir_remove(q.dir));
        end(&q.c, ctx, 4);
    }
}

/* ---- row-wise without buckets ---- */

/* Sums then add in another order: one forward within L 2^-23 sum |w x|, as L ids add; and training,
   here towards targets for the sum of each row of out, to nearly the same loss. */
static double loss_and_gradient(const Case *c, int s, const float *out, float *dout, int64_t begin,
                                int64_t n) {
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, error;
        for (int64_t d = 0; d < c->width; d++) sum += (double)out[i * c->width + d];
        error = sum - (double)c->dout[s][(begin + i) * c->width];
        loss += error * error / (double)c->size[s];
        for (int64_t d = 0; d < c->width; d++)
            dout[i * c->width + d] = (float)(2 * error / (double)c->size[s]);
    }
    return loss;
}
static double loose_loss[2][MAX_STEPS];
static neo_status loose(neo_comm *comm, void *user) {
    Case *c = user;
    neo_shard *shard;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    TRY(make(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) {
        Mine m;
        mine_make(&m, c, s, rank, ranks);
        float *out = malloc(4 * (size_t)(m.n * c->width + 1)),
              *dout = malloc(4 * (size_t)(m.n * c->width + 1));
        TRY(neo_shard_forward(shard, &m.j, c->size[s], neo_tensor_2d(out, NEO_F32, m.n, c->width)));
        int64_t col = 0;
        for (int f = 0; f < c->set->features && s == 0;
             col += c->set->dims[c->set->feature_table[f++]])
            for (int64_t i = 0; i < m.n; i++) {
                const int64_t *bag = c->offsets[s] + f * c->size[s] + m.begin + i;
                double most = (double)(bag[1] - bag[0]) /
                              sqrt((double)c->set->rows[c->set->feature_table[f]]); /* sum |w| */
                for (int64_t d = col; d < col + c->set->dims[c->set->feature_table[f]]; d++)
                    EXPECT(fabs((double)out[i * c->width + d] -
                                (double)c->out[s][(m.begin + i) * c->width + d]) <=
                           (double)(bag[1] - bag[0]) * 0x1p-23 * most);
            }
        double loss = loss_and_gradient(c, s, out, dout, m.begin, m.n);
        TRY(neo_shard_backward(shard, neo_tensor_2d(dout, NEO_F32, m.n, c->width), 0.02f));
        double *all = malloc(sizeof *all * (size_t)ranks);
        TRY(neo_comm_all_gather(comm, &loss, all, 1, NULL, NEO_I64, NULL));
        for (int r = 0; r < ranks && rank == 0; r++) loose_loss[ranks > 1][s] += all[r];
        free(all), free(out), free(dout);
        mine_free(&m);
    }
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void rows_cut_without_buckets_add_nearly_alike(void) {
    static Case c;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        memset(&c, 0, sizeof c);
        memset(loose_loss, 0, sizeof loose_loss);
        cut_block = 16;
        c.steps = MAX_STEPS;
        case_tables(&c, &ZIPF, NEO_BAG_ROWWISE_ADAGRAD, 0, NEO_POOL_SUM);
        for (int t = 0; t < ZIPF.tables; t++) c.tables[t].row_buckets = 1;
        case_data(&c);
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        case_oracle(&c, ctx);
        c.plan = (neo_plan_desc){.bags = &c.bags, .placements = 1u << NEO_ROW_WISE};
        memset(wrong, 0, sizeof wrong);
        for (int w = 0; w < 2; w++) {
            c.piece_count = 0;
            c.plan.cluster.ranks = w ? ranks : 1;
            for (int t = 0; t < ZIPF.tables; t++) place(&c, t, NEO_ROW_WISE, c.plan.cluster.ranks);
            neo_comm_desc d = comm_desc();
            CHECK_OK(neo_comm_spawn(c.plan.cluster.ranks, &d, loose, &c, NULL));
        }
        for (int s = 0; s < c.steps; s++)
            CHECK_NEAR(loose_loss[1][s], loose_loss[0][s], 1e-4 * (1 + loose_loss[0][s]));
        CHECK(loose_loss[0][c.steps - 1] != loose_loss[0][0]);
        end(&c, ctx, ranks);
    }
}

/* ---- ranks at their own pace ---- */
/* Batch s through a shard that has begun it: the oracle's rows. */
static neo_status ends(const Case *c, neo_comm *comm, neo_shard *shard, int s, const Mine *m) {
    const size_t bytes = 4 * (size_t)(m->n * c->width);
    const int rank = neo_comm_rank(comm);
    float *out = malloc(bytes + 4);
    neo_status status = neo_shard_forward_end(shard, neo_tensor_2d(out, NEO_F32, m->n, c->width));
    if (status == NEO_OK) EXPECT(memcmp(out, c->out[s] + m->begin * c->width, bytes) == 0);
    free(out);
    return status;
}
/* No rank's end waits for another's: two shards end in another order on every second rank; a rank
   ends after a word that another says when it has ended, and frees what it has lent. */
static neo_status at_own_pace(neo_comm *comm, void *user) {
    const Case *c = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), odd = rank % 2;
    neo_shard *shard[2];
    int32_t word = 1;
    Mine m;
    for (int i = 0; i < 2; i++) TRY(make(c, comm, &shard[i]));
    mine_make(&m, c, 0, rank, ranks);
    for (int look = 0; look < 3; look++) { /* no gradients return in between */
        for (int i = 0; i < 2; i++) TRY(neo_shard_forward_begin(shard[i], &m.j, c->size[0]));
        for (int i = 0; i < 2; i++) TRY(ends(c, comm, shard[i ^ odd], 0, &m));
    }
    TRY(neo_shard_forward_begin(shard[0], &m.j, c->size[0]));
    if (rank > 0) TRY(neo_comm_recv(comm, &word, 1, NEO_I32, rank - 1, NULL));
    TRY(ends(c, comm, shard[0], 0, &m));
    for (int i = 0; i < 2; i++) neo_shard_destroy(shard[i]);
    if (rank + 1 < ranks) TRY(neo_comm_send(comm, &word, 1, NEO_I32, rank + 1, NULL));
    mine_free(&m);
    return NEO_OK;
}
static void no_rank_waits_for_the_end_of_another(void) {
    static Case c;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        neo_ctx *ctx;
        begin(&c, &ctx, ranks, 0, 0);
        neo_comm_desc d = comm_desc();
        d.virtual_clock = 1;
        CHECK_OK(neo_comm_spawn(ranks, &d, at_own_pace, &c, NULL));
        end(&c, ctx, ranks);
    }
}

/* ---- one rank searches for all ---- */
typedef struct Shared {
    Case *c;
    char path[300];
    int way; /* 0: searched, 1: uniform, 2: read from path, which only rank 0 is told */
} Shared;
static neo_status plan_by(const Shared *s, neo_ctx *ctx, neo_plan **plan) {
    if (s->way == 0) return neo_plan_create(ctx, &s->c->plan, plan);
    if (s->way == 1) return neo_plan_create_uniform(ctx, &s->c->plan, NEO_COLUMN_WISE, plan);
    return neo_plan_read(ctx, &s->c->plan, s->path, plan);
}
/* Two plans say the same of all ranks, and of why. */
static int alike(const neo_plan *a, const neo_plan *b) {
    char why[2][4000];
    const neo_plan_step x = neo_plan_step_of(a), y = neo_plan_step_of(b);
    int same = neo_plan_digest(a) == neo_plan_digest(b) && x.most_bytes == y.most_bytes &&
               memcmp(&x.plain, &y.plain, sizeof x.plain) == 0 &&
               memcmp(&x.pipelined, &y.pipelined, sizeof x.pipelined) == 0;
    for (int32_t r = 0; r < neo_plan_desc_of(a)->cluster.ranks; r++) {
        const neo_plan_rank p = neo_plan_rank_of(a, r), q = neo_plan_rank_of(b, r);
        same &= memcmp(&p, &q, sizeof p) == 0;
    }
    for (int32_t t = 0; t < neo_plan_desc_of(a)->bags->table_count; t++) {
        (void)neo_plan_why(a, t, why[0], sizeof why[0]);
        (void)neo_plan_why(b, t, why[1], sizeof why[1]);
        same &= strcmp(why[0], why[1]) == 0;
    }
    return same;
}
static neo_status share_plan(neo_comm *comm, void *user) {
    const Shared *s = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_plan *plan = NULL, *own = NULL;
    neo_status status = NEO_OK;
    int64_t count, sent = 0;
    if (rank == 0) status = plan_by(s, neo_comm_ctx(comm), &plan);
    neo_comm_reset_stats(comm);
    TRY(neo_plan_broadcast(comm, &s->c->plan, status, &plan));
    const neo_comm_counter bytes = neo_comm_get_stats(comm).op[NEO_COMM_BROADCAST];
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) sent += bytes.bytes[level];
    (void)neo_plan_pieces(plan, &count);
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &sent, &sent, 1, NEO_I64, NULL));
    EXPECT(sent == (ranks - 1) * (24 + 40 * count));
    TRY(plan_by(s, neo_comm_ctx(comm), &own));
    EXPECT(alike(plan, own));
    neo_plan_destroy(own);
    neo_shard *shard;
    TRY(neo_shard_create(comm, plan, &shard));
    neo_plan_destroy(plan);
    for (int i = 0; i < s->c->steps; i++) TRY(step(s->c, comm, shard, i));
    TRY(check_digest(comm, shard, s->c->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void one_rank_searches_for_all(void) {
    static Case c;
    char dir[256];
    REQUIRE(dir_make(dir));
    for (int i = 0; i < 9; i++) {
        neo_ctx *ctx;
        const int ranks = 1 + i % 4;
        Shared s = {.c = &c, .way = i % 3};
        begin(&c, &ctx, ranks, i, i % 2);
        snprintf(s.path, sizeof s.path, "%s/plan", dir);
        neo_plan *plan = NULL;
        CHECK_OK(neo_plan_create_from(ctx, &c.plan, c.pieces, c.piece_count, &plan));
        if (plan) CHECK_OK(neo_plan_write(plan, s.path));
        neo_plan_destroy(plan);
        const neo_comm_desc d = comm_desc();
        CHECK_OK(neo_comm_spawn(ranks, &d, share_plan, &s, NULL));
        end(&c, ctx, ranks);
    }
    CHECK(dir_remove(dir));
}
/* Whatever a rank brings or finds, all have the same message, at once, no plan, and go on. */
static neo_status share_nothing(neo_comm *comm, void *user) {
    const Case *c = user;
    const int rank = neo_comm_rank(comm);
    enum { NO_MEMORY, NO_FILE, NO_PLAN, NO_RANKS, PLAN_AND_ERROR, NO_DESC, NO_PLACE, WAYS };
    for (int i = 0; i < WAYS; i++) {
        static const char *const says[WAYS] = {
            "rank 0: neo_plan_create: the tables do not fit: 3 ranks with 10 bytes each; ",
            "rank 1: no file", "rank 0: neo_plan_broadcast: rank 0 has no plan",
            "rank 2: neo_plan_broadcast: cluster.ranks is 0", "rank 0: later",
            "rank 0: neo_plan_broadcast: desc is NULL", "rank 2: neo_plan_broadcast: plan is NULL"};
        static const neo_status ends[WAYS] = {NEO_ERR_CAPACITY, NEO_ERR_IO,    NEO_ERR_ARG,
                                              NEO_ERR_ARG,      NEO_ERR_STATE, NEO_ERR_ARG,
                                              NEO_ERR_ARG};
        neo_plan_desc d = c->plan;
        neo_plan *plan = NULL;
        neo_status status = NEO_OK;
        if (i == NO_MEMORY) d.cluster.memory_bytes = 10;
        if (rank == 0 && i != NO_PLAN) status = neo_plan_create(neo_comm_ctx(comm), &d, &plan);
        if (rank == 1 && i == NO_FILE) status = neo_fail(NEO_ERR_IO, "no file");
        if (rank == 2 && i == NO_RANKS) d.cluster.ranks = 0;
        if (rank == 0 && i == PLAN_AND_ERROR) status = neo_fail(NEO_ERR_STATE, "later");
        status = neo_plan_broadcast(comm, rank == 0 && i == NO_DESC ? NULL : &d, status,
                                    rank == 2 && i == NO_PLACE ? NULL : &plan);
        EXPECT(status == ends[i] && !plan);
        EXPECT(strncmp(neo_last_error(), says[i], strlen(says[i])) == 0);
        if (strncmp(neo_last_error(), says[i], strlen(says[i])))
            printf("  rank %d: '%s', expected '%s'\n", rank, neo_last_error(), says[i]);
    }
    EXPECT(neo_plan_broadcast(NULL, NULL, NEO_OK, NULL) == NEO_ERR_ARG);
    return NEO_OK;
}
static void no_rank_has_a_plan_that_another_lacks(void) {
    static Case c;
    static meter memory = {.refuse_at = -1};
    neo_comm_desc d = comm_desc();
    neo_ctx *ctx;
    begin(&c, &ctx, 3, 0, 0);
    d.ctx.allocator = (neo_allocator){meter_alloc, meter_free, &memory};
    CHECK_OK(neo_comm_spawn(3, &d, share_nothing, &c, NULL));
    CHECK(memory.wrong == 0 && memory.live == 0);
    end(&c, ctx, 3);
}

int main(void) {
    RUN(a_bad_batch_of_one_rank_stops_all_and_breaks_nothing);
    RUN(batches_wait_for_others);
    RUN(a_batch_that_is_written_since_is_refused);
    RUN(a_number_that_is_not_finite_is_found);
    RUN(another_global_batch_is_named);
    RUN(calls_out_of_order_are_refused);
    RUN(ids_outside_are_dropped_or_clamped_as_on_one_rank);
    RUN(buffers_grow_when_batches_are_larger_than_planned);
    RUN(without_memory_no_rank_gets_its_part);
    RUN(a_lost_rank_ends_all);
    RUN(a_run_goes_on_under_any_other_plan);
    RUN(no_rank_holds_more_than_planned);
    RUN(rows_cut_without_buckets_add_nearly_alike);
    RUN(no_rank_waits_for_the_end_of_another);
    RUN(one_rank_searches_for_all);
    RUN(no_rank_has_a_plan_that_another_lacks);
    return test_end("shard/errors_and_resume");
}
