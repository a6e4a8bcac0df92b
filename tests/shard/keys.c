/* keys.c: keyed tables on many ranks.

   The oracle is one neo_bags with all samples. Under every plan, on 1 to 8 ranks, the outputs, the
   gradients of per-id weights, and after many steps in which keys come and go, and between steps
   are given, taken, scored and pruned, the digest, keys and their counts among it, have its bits. A
   run saved under one plan goes on under any other. */
#define _GNU_SOURCE
#include "common.h"
#include <unistd.h>

enum { KEYED_STEPS = 16, CALLED = 300 }; /* keys of a call: more than are moved at a time */
static const Set KEYED = {"keyed", 3, 4, 4, {256, 256, 256}, {48, 32, 7}, {0, 1, 2, 1}, 0};
static const Set ALIKE = {"alike", 3, 4, 4, {256, 256, 256}, {32, 32, 32}, {0, 1, 2, 1}, 0};

typedef struct Keyed {
    Case c;
    float *dw[KEYED_STEPS]; /* of the oracle, by its ids */
    int none, kept;
    neo_key_stats stats[3];
    int64_t found[KEYED_STEPS][3][2][CALLED], pruned[KEYED_STEPS][3]; /* what the oracle answers */
    int first, end; /* steps of this run */
    const char *dir;
} Keyed;

static void keyed_make(Keyed *k, const Set *set, neo_pooling pooling, neo_bag_optim_kind optim,
                       neo_dtype dtype) {
    Case *c = &k->c;
    memset(k, 0, sizeof *k);
    cut_block = 16;
    c->steps = k->end = KEYED_STEPS;
    c->weighted = 1;
    k->none = pooling == NEO_POOL_NONE;
    case_tables(c, set, optim, 0, pooling);
    case_data(c);
    const int other = dtype != NEO_F32 || optim == NEO_BAG_ROWWISE_ADAGRAD;
    const neo_keys keys[] = {{1, other ? NEO_EVICT_SCORE : NEO_EVICT_LRU, 0, 0, 0, 0, other},
                             {1, NEO_EVICT_LFU, 3, 2, 0, other, 0},
                             {1, NEO_EVICT_AGE, 2, 0, 1, 0, 0}};
    for (int t = 0; t < set->tables; t++) c->tables[t].keys = keys[t], c->tables[t].dtype = dtype;
    for (int s = 0; s < c->steps; s++)
        for (int64_t i = 0; i < c->offsets[s][set->features * c->size[s]]; i++)
            c->ids[s][i] = (int64_t)((test_random() % (test_random() % 4 ? 600 : 64)) *
                                     0x9E3779B97F4A7C15u);
    c->plan.weight_grad = 1;
    c->plan.kept_batches = 1;
}
/* Rows and columns of out. */
static neo_tensor rows_of(const Keyed *k, float *data, int64_t samples, int64_t ids) {
    return k->none ? neo_tensor_2d(data, NEO_F32, ids, 32)
                   : neo_tensor_2d(data, NEO_F32, samples, k->c.width);
}
/* Calls between steps, of every third: of the oracle (shard NULL), whose answers are kept, or of a
   rank, which must be given them. */
static neo_status key_calls(Keyed *k, neo_shard *shard, int rank, int s) {
    static const float one = 1.0f;
    uint64_t keys[CALLED];
    float scores[CALLED];
    neo_bags *bags = k->c.oracle;
    for (int t = 0; t < k->c.set->tables && s % 3 == 2; t++) {
        int64_t(*found)[CALLED] = k->found[s][t], at[2][CALLED], gone;
        for (int i = 0; i < CALLED; i++) {
            keys[i] = (uint64_t)((s * 7919 + i * i * 31) % 600) * 0x9E3779B97F4A7C15u;
            scores[i] = (float)(i * 13 % 29) - 14.0f;
        }
        if (!shard) {
            TRY(neo_bags_put_keys(bags, t, keys, 30, found[0]));
            TRY(neo_bags_drop_keys(bags, t, keys + 20, 20));
            if (k->c.tables[t].keys.evict == NEO_EVICT_SCORE)
                TRY(neo_bags_score_keys(bags, t, keys, scores, CALLED));
            TRY(neo_bags_prune_keys(bags, t, 0.3f, 28 - s, &k->pruned[s][t]));
            TRY(neo_bags_find_keys(bags, t, keys, CALLED, found[1]));
            continue;
        }
        TRY(neo_shard_put_keys(shard, t, keys, 30, at[0]));
        EXPECT(memcmp(at[0], found[0], 30 * sizeof at[0][0]) == 0);
        TRY(neo_shard_drop_keys(shard, t, keys + 20, 20));
        if (k->c.tables[t].keys.evict == NEO_EVICT_SCORE)
            TRY(neo_shard_score_keys(shard, t, keys, scores, CALLED));
        else EXPECT(neo_shard_score_keys(shard, t, keys, &one, 1) == NEO_ERR_ARG);
        TRY(neo_shard_prune_keys(shard, t, 0.3f, 28 - s, &gone));
        EXPECT(gone == k->pruned[s][t]);
        TRY(neo_shard_find_keys(shard, t, keys, CALLED, at[1]));
        EXPECT(memcmp(at[1], found[1], sizeof at[1]) == 0);
    }
    return NEO_OK;
}
static void oracle(Keyed *k, neo_ctx *ctx) {
    Case *c = &k->c;
    CHECK_OK(neo_bags_create(ctx, &c->bags, &c->oracle));
    for (int s = 0; s < c->steps; s++) {
        const neo_jagged j = whole_batch(c, s);
        const int64_t ids = neo_jagged_id_count(&j), floats = ids * 32 + c->size[s] * c->width;
        k->dw[s] = malloc(4 * (size_t)(ids + 1));
        c->out[s] = realloc(c->out[s], 4 * (size_t)(floats + 1));
        c->dout[s] = realloc(c->dout[s], 4 * (size_t)(floats + 1));
        test_fill(c->dout[s], floats);
        float *rounded = malloc(4 * (size_t)(floats + 1));
        memcpy(rounded, c->dout[s], 4 * (size_t)floats);
        const neo_tensor dout = rows_of(k, rounded, c->size[s], ids);
        CHECK_OK(neo_bags_forward(c->oracle, &j, rows_of(k, c->out[s], c->size[s], ids)));
        if (c->plan.wire_forward) through_wire(c, ctx, c->plan.wire_forward, c->out[s], c->size[s]);
        if (c->plan.wire_backward) through_wire(c, ctx, c->plan.wire_backward, rounded, c->size[s]);
        CHECK_OK(neo_bags_weight_grad(c->oracle, &j, dout, k->dw[s]));
        CHECK_OK(neo_bags_backward(c->oracle, &j, dout, 0.05f));
        free(rounded);
        CHECK_OK(key_calls(k, NULL, 0, s));
    }
    c->digest = bags_digest(ctx, c->oracle);
    for (int t = 0; t < c->set->tables; t++) {
        const neo_key_stats *e = &k->stats[t];
        int64_t pruned = 0;
        for (int s = 0; s < c->steps; s++) pruned += k->pruned[s][t];
        if (pruned < 10) FAIL("table %d: %d rows are pruned", t, (int)pruned);
        k->stats[t] = neo_bags_key_stats(c->oracle, t);
        if (e->evictions < 20 || e->hits < 50 || (t == 1 && e->waited < 200))
            FAIL("table %d: %d evictions, %d hits, %d waited", t, (int)e->evictions, (int)e->hits,
                 (int)e->waited);
    }
}
/* Number of the whole batch's id that is the rank's id i. */
static int64_t whole_id(const Case *c, int s, const Mine *m, int64_t i) {
    int64_t bag = 0;
    while (m->offsets[bag + 1] <= i) bag++;
    const int64_t f = bag / m->n, sample = m->begin + bag % m->n;
    return c->offsets[s][f * c->size[s] + sample] + (i - m->offsets[bag]);
}
static neo_status keyed_step(Keyed *k, neo_comm *comm, neo_shard *shard, int s) {
    const Case *c = &k->c;
    const int rank = neo_comm_rank(comm);
    Mine m;
    mine_make(&m, c, s, rank, neo_comm_size(comm));
    const int64_t ids = neo_jagged_id_count(&m.j), row = k->none ? 32 : c->width;
    const int64_t rows = k->none ? ids : m.n;
    float *x = malloc(4 * (size_t)(rows * row + 1)), *dw = malloc(4 * (size_t)(ids + 1));
    const neo_tensor t = rows_of(k, x, m.n, ids);
    TRY(neo_shard_forward(shard, &m.j, c->size[s], t));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (k->none ? whole_id(c, s, &m, i) : m.begin + i) * row;
        EXPECT(memcmp(x + i * row, c->out[s] + at, 4 * (size_t)row) == 0);
        memcpy(x + i * row, c->dout[s] + at, 4 * (size_t)row);
    }
    TRY(neo_shard_backward_begin(shard, t));
    TRY(neo_shard_weight_grad(shard, dw));
    for (int64_t i = 0; i < ids; i++)
        EXPECT(memcmp(&dw[i], &k->dw[s][whole_id(c, s, &m, i)], 4) == 0);
    TRY(k->kept ? neo_shard_accumulate_end(shard) : neo_shard_backward_end(shard, 0.05f));
    if (k->kept) TRY(neo_shard_step(shard, 0.05f));
    free(x), free(dw);
    mine_free(&m);
    return NEO_OK;
}
static neo_status run(neo_comm *comm, void *user) {
    Keyed *k = user;
    const int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    TRY(make_planned(&k->c, comm, &shard));
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    if (k->first) TRY(neo_load(ctx, &(neo_load_desc){.dir = k->dir, .group = &all}, state, NULL));
    for (int s = k->first; s < k->end; s++) {
        TRY(keyed_step(k, comm, shard, s));
        TRY(key_calls(k, shard, rank, s));
    }
    if (neo_comm_size(comm) > 1 && k->first == 0) { /* other keys on one rank */
        const uint64_t keys[2] = {5, (uint64_t)rank};
        int64_t at[2];
        EXPECT(neo_shard_find_keys(shard, 0, keys, 2, at) == NEO_ERR_MISMATCH);
        EXPECT(neo_shard_drop_keys(shard, 9, keys, 2) == NEO_ERR_ARG);
        /* of no keys arguments may be NULL, on some ranks alone */
        TRY(neo_shard_put_keys(shard, 0, keys, 0, rank ? at : NULL));
        TRY(neo_shard_find_keys(shard, 0, rank ? keys : NULL, 0, rank ? NULL : at));
        EXPECT(neo_shard_prune_keys(shard, 0, 0.0f, 33, NULL) == NEO_ERR_ARG);
        EXPECT(strstr(neo_last_error(), "most is 33, not in 0 .. 32"));
    }
    if (k->end < k->c.steps)
        TRY(neo_save(ctx, &(neo_save_desc){.dir = k->dir, .step = 1, .group = &all}, state));
    else TRY(check_digest(comm, shard, k->c.digest));
    if (k->first == 0 && k->end == k->c.steps)
        for (int t = 0; t < k->c.set->tables; t++) {
            neo_key_stats mine = neo_shard_key_stats(shard, t);
            neo_key_stats all_of;
            TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &mine, &all_of, sizeof mine / 8,
                                    NEO_I64, NULL));
            EXPECT(memcmp(&all_of, &k->stats[t], sizeof mine) == 0);
        }
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    return NEO_OK;
}
/* As place_case, without copies on every rank. */
static void place_keyed(Keyed *k, int plan, int ranks) {
    Case *c = &k->c;
    c->piece_count = 0;
    for (int t = 0; t < c->set->tables; t++) {
        const int64_t before = c->piece_count;
        do {
            c->piece_count = before;
            if (plan == RANDOM) place_anyhow(c, t, ranks);
            else place(c, t, plan == NEO_DATA_PARALLEL ? 0 : (neo_placement)plan, ranks);
        } while (c->pieces[before].rank == NEO_EVERY_RANK);
    }
    plan_of(c, ranks);
}
static void keyed_free(Keyed *k) {
    for (int s = 0; s < KEYED_STEPS; s++) free(k->dw[s]);
    case_free(&k->c);
}
static Keyed keyed;
static void every_plan(void) {
    static const int RANKS[] = {1, 2, 3, 4, 8};
    static const neo_wire WIRES[][2] = {{NEO_WIRE_F16, NEO_WIRE_BF16},
                                        {NEO_WIRE_BF16, NEO_WIRE_I8},
                                        {NEO_WIRE_I8, NEO_WIRE_F16}};
    for (int i = 0; i < 7; i++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        keyed_make(&keyed, i == 3 ? &ALIKE : &KEYED,
                   i == 3   ? NEO_POOL_NONE
                   : i == 2 ? NEO_POOL_MEAN
                            : NEO_POOL_SUM,
                   i == 1 ? NEO_BAG_ROWWISE_ADAGRAD : i == 2 ? NEO_BAG_ADAM : NEO_BAG_ADAGRAD,
                   i == 2 ? NEO_BF16 : NEO_F32);
        if (i > 3) {
            keyed.c.plan.wire_forward = WIRES[i - 4][0];
            keyed.c.plan.wire_backward = WIRES[i - 4][1];
            cut_block = i > 4 ? NEO_WIRE_BLOCK : 16;
        }
        oracle(&keyed, ctx);
        for (int r = 0; r < 5; r++)
            for (int plan = 0; plan <= RANDOM && !test_errors; plan++) {
                char what[64];
                const int rows = plan == NEO_ROW_WISE || plan == NEO_TABLE_ROW_WISE;
                if (plan == MIXED || plan == NEO_DATA_PARALLEL) continue;
                if (keyed.none && plan != NEO_TABLE_WISE && !rows) continue; /* rows are whole */
                if ((plan + r + i) % (1 << TEST_WATCHED) || (i > 3 && (plan + r) % 2)) continue;
                snprintf(what, sizeof what, "case %d, plan %d, ranks %d", i, plan, RANKS[r]);
                keyed.kept = (i > 3 ? r : plan + r) % 2;
                place_keyed(&keyed, plan, RANKS[r]);
                spawn_case(&keyed.c, what, RANKS[r], run, &keyed);
            }
        keyed_free(&keyed);
        neo_ctx_destroy(ctx);
    }
}
static void resumed_under_another_plan(void) {
    char dir[256];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    keyed_make(&keyed, &KEYED, NEO_POOL_SUM, NEO_BAG_ROWWISE_ADAGRAD, NEO_F32);
    oracle(&keyed, ctx);
    keyed.dir = dir;
    for (int i = 0; i < 6 >> TEST_WATCHED && !test_errors; i++) {
        REQUIRE(dir_make(dir));
        for (int half = 0; half < 2; half++) {
            const int ranks = (half ? (i + 2) * 3 % 8 : i) + 1;
            keyed.first = half ? 7 : 0;
            keyed.end = half ? KEYED_STEPS : 7;
            place_keyed(&keyed, (i + half * 3) % NEO_PLACEMENT_COUNT, ranks);
            spawn_case(&keyed.c, half ? "going on" : "saving", ranks, run, &keyed);
        }
        CHECK(dir_remove(dir));
    }
    keyed_free(&keyed);
    neo_ctx_destroy(ctx);
}
/* Plans by the planner: it gives no table copies, and says why where it is told to. */
static void planned(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    neo_plan *plan, *other;
    keyed_make(&keyed, &KEYED, NEO_POOL_SUM, NEO_BAG_SGD, NEO_F32);
    plan_of(&keyed.c, 4);
    keyed.c.plan.placements = 1 << NEO_DATA_PARALLEL;
    CHECK_ERR(neo_plan_create(ctx, &keyed.c.plan, &plan), NEO_ERR_UNSUPPORTED, "come and go");
    place(&keyed.c, 0, NEO_DATA_PARALLEL, 4);
    CHECK_ERR(neo_plan_create_from(ctx, &keyed.c.plan, keyed.c.pieces, 1, &plan),
              NEO_ERR_UNSUPPORTED, "come and go");
    keyed.c.plan.placements = 0;
    keyed.c.pieces[0] = (neo_piece){0, 0, 0, 40, 0, 48};
    CHECK_ERR(neo_plan_create_from(ctx, &keyed.c.plan, keyed.c.pieces, 1, &plan), NEO_ERR_ARG,
              "is in no piece");
    for (int t = 0; t < 3; t++) keyed.c.tables[t].row_buckets = 0;
    keyed.c.plan.placements = 1 << NEO_ROW_WISE;
    REQUIRE_OK(neo_plan_create(ctx, &keyed.c.plan, &plan));
    int64_t count;
    CHECK_ERR(neo_plan_create_from(ctx, &keyed.c.plan,
                                   &(neo_piece){0, 0, 40, 216, 0, 48}, 1, &other),
              NEO_ERR_ARG, "a set of 32 rows for keys");
    const neo_piece *piece = neo_plan_pieces(plan, &count);
    CHECK(count > 3);
    for (int64_t i = 0; i < count; i++) CHECK_INT(piece[i].first_row % 32, 0);
    neo_plan_destroy(plan);
    keyed_free(&keyed);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(every_plan);
    RUN(resumed_under_another_plan);
    RUN(planned);
    return test_end("shard/keys");
}
