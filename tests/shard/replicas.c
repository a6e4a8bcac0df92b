/* replicas.c: tables sharded inside groups of ranks, with all of them in every group (2D parallel).

   Where all gradients reach all groups, sample by sample or merged row by row, the oracle is one
   neo_bags with all samples: rows, weights and state have its bits, whatever the groups and the
   placements in them. Where groups step alone
   and average, it is one neo_bags for each group, averaged by hand. Bytes between replicas and
   memory are those that are predicted. */
#include "common.h"

enum { EVERY = 3, MOST_GROUPS = 4 };

typedef struct Replicas {
    Case c;
    int groups, averages;
    int whole_rows; /* no table is cut by rows: each piece is one part */
    neo_bags *of_group[MOST_GROUPS];
    char dir[256];
} Replicas;

/* Bytes between replicas: of gradients of rows, for each sample, feature and piece, to the other
   groups; merged, of each row with a mark, all-reduced; or of each group's weights and state,
   all-reduced. floats: of these, of all ranks. */
static int64_t peers_bytes(const Replicas *r, int64_t floats) {
    const Case *c = &r->c;
    int64_t samples = 0, cols = 0, row_bytes = 0;
    for (int64_t i = 0; i < c->piece_count; i++)
        if (c->pieces[i].rank != NEO_EVERY_RANK)
            row_bytes += c->pieces[i].rows * (4 * c->pieces[i].cols + 1);
    if (c->plan.sync_every < 0) return 2 * (r->groups - 1) * row_bytes * c->steps;
    if (c->plan.sync_every > 1) return 2 * (r->groups - 1) * (floats / r->groups) * 4 * r->averages;
    for (int s = 0; s < c->steps; s++) samples += c->size[s];
    for (int64_t i = 0; i < c->piece_count; i++)
        for (int f = 0; f < c->set->features && c->pieces[i].rank != NEO_EVERY_RANK; f++)
            if (c->pieces[i].table == c->set->feature_table[f]) cols += c->pieces[i].cols;
    return (r->groups - 1) * samples * cols * 4;
}
/* Ids do not go to other groups. */
static int ids_stay(const Replicas *r) {
    return r->c.plan.sync_every > 1 || r->c.plan.sync_every == NEO_SYNC_MERGED;
}
/* Lengths and ids to rank `to` of all from the others, where tables are not cut by rows: a feature
   whose table is there goes there once. */
static int64_t ids_bytes(const Replicas *r, int s, int to) {
    const Case *c = &r->c;
    const int each = c->plan.cluster.ranks, all = each * r->groups;
    const int64_t size = c->size[s];
    int64_t bytes = 4 * (all - 1);
    for (int f = 0; f < c->set->features; f++) {
        int there = 0;
        for (int64_t i = 0; i < c->piece_count; i++)
            there |= c->pieces[i].rank == to % each &&
                     c->pieces[i].table == c->set->feature_table[f];
        for (int64_t i = 0; i < size && there; i++) {
            const int from = rank_of(c, s, i, all);
            const int64_t *bag = c->offsets[s] + f * size + i;
            if (from == to || (ids_stay(r) && from / each != to / each)) continue;
            bytes += 4 + (bag[1] - bag[0]) * (c->weighted ? 8 : 4);
        }
    }
    return bytes;
}
static int64_t sent(const neo_comm_stats *st, neo_comm_op op) {
    return st->op[op].bytes[NEO_LEVEL_LOCAL] + st->op[op].bytes[NEO_LEVEL_CROSS];
}
static neo_status check_bytes(const Replicas *r, neo_comm *comm, const neo_state *state,
                              const neo_shard_stats *st) {
    const int rank = neo_comm_rank(comm), apart = ids_stay(r);
    int64_t sum[3] = {sent(&st->peers, apart ? NEO_COMM_ALL_REDUCE : NEO_COMM_ALL_GATHER), 0,
                      sent(&st->ids, NEO_COMM_ALL_TO_ALL)};
    for (int s = 0; s < r->c.steps; s++) sum[2] -= ids_bytes(r, s, rank);
    for (int i = 0; i < neo_state_count(state); i++) {
        const neo_tensor t = neo_state_tensor(state, i);
        if (t.dtype == NEO_F32) sum[1] += neo_tensor_count(t);
    }
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, sum, sum, 3, NEO_I64, NULL));
    if (r->whole_rows || apart) EXPECT(sum[0] == peers_bytes(r, sum[1]));
    if (r->whole_rows) EXPECT(sum[2] == 0);
    return NEO_OK;
}

/* One step; its rows are the oracle's, where all gradients reach all. */
static neo_status step(const Replicas *r, neo_comm *comm, neo_shard *shard, const Mine *m,
                       const Mine *next, int s) {
    const Case *c = &r->c;
    const int rank = neo_comm_rank(comm);
    float *out = malloc(4 * (size_t)(m->n * c->width + 1));
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m->n, c->width);
    neo_status status = neo_shard_forward_begin(shard, &m->j, c->size[s]);
    if (status == NEO_OK && next && c->prefetch)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK) status = neo_shard_forward_end(shard, t);
    if (status == NEO_OK && c->plan.sync_every <= 1)
        EXPECT(memcmp(out, c->out[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width)) == 0);
    memcpy(out, c->dout[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width));
    if (status == NEO_OK) status = neo_shard_backward(shard, t, 0.05f);
    free(out);
    return status;
}
/* A table read by one rank, written by another to all: nothing has changed. */
static neo_status move_rows(const Replicas *r, neo_comm *comm, neo_shard *shard) {
    const Set *set = r->c.set;
    const int rank = neo_comm_rank(comm), from = neo_comm_size(comm) - 1;
    for (int32_t t = 0; t < set->tables; t++) {
        const int64_t floats = set->rows[t] * set->dims[t];
        if (r->c.tables[t].dtype == NEO_I8) continue; /* rows as they are read have other scales */
        float *rows = calloc((size_t)floats, 4), *all = calloc((size_t)floats, 4);
        neo_status status = neo_shard_get_rows(shard, t, 0, set->rows[t], from, rows);
        if (status == NEO_OK)
            status = neo_shard_get_rows(shard, t, 0, set->rows[t], NEO_EVERY_RANK, all);
        if (rank == from) EXPECT(memcmp(rows, all, 4 * (size_t)floats) == 0);
        if (status == NEO_OK)
            status = neo_shard_set_rows(shard, t, 0, set->rows[t], from, rows);
        free(rows), free(all);
        TRY(status);
    }
    return NEO_OK;
}
/* A bad batch of the last rank: the others of all groups say so, and all go on. */
static void refuse_batch(const Replicas *r, neo_comm *comm, neo_shard *shard, const Mine *m) {
    char text[80];
    const int rank = neo_comm_rank(comm), last = neo_comm_size(comm) - 1;
    neo_jagged bad = m->j;
    bad.feature_count -= rank == last;
    snprintf(text, sizeof text, "rank %d: neo_shard: the batch has %d features", last,
             r->c.set->features - 1);
    EXPECT_ERR(neo_shard_forward_begin(shard, &bad, r->c.size[0]), NEO_ERR_SHAPE, text);
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Replicas *r = user;
    const Case *c = &r->c;
    const int rank = neo_comm_rank(comm), apart = c->plan.sync_every > 1;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_group all = neo_comm_group(comm);
    const neo_save_desc save = {.dir = r->dir, .step = c->steps, .group = &all};
    neo_shard *shard;
    neo_state *state;
    Mine mine[MAX_STEPS];
    TRY(make_planned(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) mine_make(&mine[s], c, s, rank, neo_comm_size(comm));
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    refuse_batch(r, comm, shard, &mine[0]);
    neo_shard_reset_stats(shard);
    for (int s = 0; s < c->steps; s++)
        TRY(step(r, comm, shard, &mine[s], s + 1 < c->steps ? &mine[s + 1] : NULL, s));
    const neo_shard_stats st = neo_shard_get_stats(shard);
    EXPECT(neo_ctx_memory(ctx).alloc_count == allocs + st.grow_count && st.steps == c->steps);
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(check_bytes(r, comm, state, &st));
    if (apart) EXPECT_ERR(neo_save(ctx, &save, state), NEO_ERR_STATE, "replicas differ since step");
    for (int again = 0; again < 2; again++) TRY(neo_shard_sync(shard));
    TRY(check_digest(comm, shard, c->digest));
    TRY(move_rows(r, comm, shard));
    TRY(check_digest(comm, shard, c->digest));
    if (apart) TRY(neo_save(ctx, &save, state));
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void begin(Replicas *r, neo_ctx **ctx, int kind, int groups) {
    memset(r, 0, sizeof *r);
    *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    cut_block = 16;
    r->groups = groups;
    r->c.plan.replicas = groups;
    r->c.weighted = kind % 3 == 0;
    case_tables(&r->c, &ZIPF, kind, kind % 4, kind % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
}
static void end(Replicas *r, neo_ctx *ctx) {
    for (int g = 0; g < MOST_GROUPS; g++) neo_bags_destroy(r->of_group[g]);
    case_free(&r->c);
    neo_ctx_destroy(ctx);
}
static void spawn(Replicas *r, int plan, int each, const char *what) {
    char text[100];
    r->whole_rows = plan == NEO_TABLE_WISE || plan == NEO_COLUMN_WISE || plan == NEO_DATA_PARALLEL;
    place_case(&r->c, plan, each);
    snprintf(text, sizeof text, "%s, plan %d, %d groups of %d ranks", what, plan, r->groups, each);
    spawn_case(&r->c, text, r->groups * each, run_rank, r);
}
/* Groups of so many ranks each, up to one of none, all placements; of each kind other cells, one of
   `part` of them. */
static void run_groups(Replicas *r, neo_ctx *ctx, int kind, const int (*groups)[2], int part,
                       const char *what) {
    const int merged = r->c.plan.sync_every == NEO_SYNC_MERGED;
    r->c.steps = 4;
    r->c.plan.wire_forward = kind % 4 == 1 ? NEO_WIRE_BF16 : NEO_WIRE_F32;
    r->c.plan.wire_backward = kind % 4 == 2 ? NEO_WIRE_BF16 : NEO_WIRE_F32;
    case_data(&r->c);
    case_oracle(&r->c, ctx);
    for (int i = 0; groups[i][0]; i++)
        for (int plan = 0; plan <= RANDOM; plan++) {
            const int cell = plan + 3 * kind + 11 * i;
            if (cell % (test_grid() ? 1 : part << TEST_WATCHED)) continue;
            r->c.plan.replicas = r->groups = groups[i][0];
            r->c.prefetch = (plan + i) % 2;
            r->c.plan.skip_empty = merged && (plan + i) % 3 == 0;
            spawn(r, plan, groups[i][1], what);
        }
}
static void groups_have_the_bits_of_one_rank(void) {
    static const int GROUPS[][2] = {{2, 1}, {4, 1}, {2, 2}, {3, 2}, {2, 4}, {4, 2}, {8, 1}, {0, 0}};
    for (int kind = 0; kind <= KINDS; kind++) {
        Replicas r;
        neo_ctx *ctx;
        begin(&r, &ctx, kind, 2);
        run_groups(&r, ctx, kind, GROUPS, 7, "one");
        end(&r, ctx);
    }
}

/* Bits of one rank, and bytes, of merged gradients: of rows of all dtypes, empty bags skipped. */
static void merged_groups_have_the_bits_of_one_rank(void) {
    static const int GROUPS[][2] = {{2, 1}, {4, 1}, {2, 2}, {2, 4}, {4, 2}, {8, 1}, {0, 0}};
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    for (int kind = 0; kind <= KINDS; kind++) {
        Replicas r;
        neo_ctx *ctx;
        begin(&r, &ctx, kind, 2);
        for (int t = 0; t < ZIPF.tables; t++)
            r.c.tables[t].dtype = DTYPES[kind == KINDS ? t % 4 : kind % 4];
        r.c.plan.sync_every = NEO_SYNC_MERGED;
        run_groups(&r, ctx, kind, GROUPS, 5, "merged");
        end(&r, ctx);
    }
}

/* ---- groups apart ---- */
/* x of all groups = their sum in the order of the tree, times 1 / groups. */
static void average(float *const *x, int groups, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float sum = x[0][i] + x[1][i];
        if (groups == 3) sum += x[2][i];
        if (groups == 4) sum += x[2][i] + x[3][i];
        sum *= 1.0f / (float)groups;
        for (int g = 0; g < groups; g++) x[g][i] = sum;
    }
}
static void average_bags(Replicas *r) {
    for (int32_t t = 0; t < r->c.set->tables; t++)
        for (int k = 0; k < 3; k++) {
            float *x[MOST_GROUPS];
            int64_t count = 0;
            for (int g = 0; g < r->groups; g++) {
                neo_tensor w = k ? neo_bags_state(r->of_group[g], t, k - 1)
                                 : neo_bags_weight(r->of_group[g], t);
                x[g] = w.data;
                count = w.data ? neo_tensor_count(w) : 0;
            }
            average(x, r->groups, count);
        }
}
static void apart_oracle(Replicas *r, neo_ctx *ctx) {
    Case *c = &r->c;
    for (int g = 0; g < r->groups; g++) CHECK_OK(neo_bags_create(ctx, &c->bags, &r->of_group[g]));
    for (int s = 0; s < c->steps; s++) {
        for (int g = 0; g < r->groups; g++) {
            Mine m;
            mine_make(&m, c, s, g, r->groups);
            float *x = malloc(4 * (size_t)(m.n * c->width + 1));
            const neo_tensor rows = neo_tensor_2d(x, NEO_F32, m.n, c->width);
            CHECK_OK(neo_bags_forward(r->of_group[g], &m.j, rows));
            for (int64_t i = 0; i < m.n * c->width; i++)
                x[i] = c->dout[s][m.begin * c->width + i] * (float)r->groups;
            CHECK_OK(neo_bags_backward(r->of_group[g], &m.j, rows, 0.05f));
            free(x);
            mine_free(&m);
        }
        if ((s + 1) % EVERY == 0) average_bags(r), r->averages++;
    }
    average_bags(r); /* neo_shard_sync, after the last step */
    c->digest = bags_digest(ctx, r->of_group[0]);
}
/* What was saved, in one neo_bags. */
static void check_saved(const Replicas *r, neo_ctx *ctx) {
    neo_bags *bags;
    neo_state *state;
    REQUIRE_OK(neo_bags_create(ctx, &r->c.bags, &bags));
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_bags(state, bags));
    CHECK_ERR(neo_load(ctx, &(neo_load_desc){.dir = r->dir}, state, NULL), NEO_ERR_MISMATCH,
              "bags.sync is '");
    const neo_load_desc any = {.dir = r->dir, .any_definition = 1};
    CHECK_OK(neo_load(ctx, &any, state, NULL));
    CHECK(neo_state_digest(state) == r->c.digest);
    neo_state_destroy(state);
    neo_bags_destroy(bags);
}
static void groups_step_alone_and_average(void) {
    static const int GROUPS[] = {2, 3, 2, 4}, EACH[] = {1, 2, 4, 2};
    static const neo_placement PLANS[] = {NEO_TABLE_WISE, NEO_COLUMN_WISE, NEO_ROW_WISE,
                                          NEO_TABLE_ROW_WISE, NEO_GRID};
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            Replicas r;
            neo_ctx *ctx;
            if ((kind + i) % (test_grid() ? 1 : 4 << (TEST_WATCHED == 2))) continue;
            begin(&r, &ctx, kind, GROUPS[i]);
            CHECK(dir_make(r.dir));
            /* A division by three and one by a bag's length round in another order. */
            for (int t = 0; t < ZIPF.tables && r.groups == 3; t++)
                r.c.tables[t].pooling = NEO_POOL_SUM;
            r.c.steps = 8;
            r.c.plan.sync_every = EVERY;
            r.c.prefetch = kind % 2;
            case_data(&r.c);
            apart_oracle(&r, ctx);
            spawn(&r, (int)PLANS[(kind + i) % 5], EACH[i], "apart");
            check_saved(&r, ctx);
            CHECK(dir_remove(r.dir));
            end(&r, ctx);
        }
}

/* ---- what is predicted ----

   Four nodes of two ranks: as one group rows cross nodes; as four they do not, but then gradients
   do, or averages from time to time. */
static void seconds_are_those_of_groups(void) {
    Replicas r;
    neo_ctx *ctx;
    neo_plan *plan;
    neo_plan_step step[3];
    begin(&r, &ctx, NEO_BAG_ADAGRAD, 1);
    for (int i = 0; i < 3; i++) {
        r.c.plan.bags = &r.c.bags;
        r.c.plan.replicas = i ? 4 : 1;
        r.c.plan.sync_every = i < 2 ? 1 : 1000;
        r.c.plan.cluster = (neo_cluster){.ranks = i ? 2 : 8, .ranks_per_node = 2};
        REQUIRE_OK(neo_plan_create_uniform(ctx, &r.c.plan, NEO_COLUMN_WISE, &plan));
        step[i] = neo_plan_step_of(plan);
        neo_plan_destroy(plan);
    }
    CHECK(step[1].forward < 0.5 * step[0].forward && step[1].backward < 0.5 * step[0].backward);
    CHECK(step[1].backward + step[1].update > step[0].backward + step[0].update);
    CHECK_NEAR(step[2].forward, step[1].forward, 0.02 * step[1].forward); /* as ranks meet */
    CHECK_NEAR(step[2].backward, step[2].forward, 0.02 * step[2].forward);
    CHECK(step[1].update > 3 * step[2].update && step[2].ids < step[1].ids);
    CHECK(step[1].most_bytes > step[2].most_bytes); /* rows of all samples */
    end(&r, ctx);
}

/* ---- copies ----

   Of groups of one rank, too, there are copies; where groups step alone, by which copies would have
   other bits, only of tables that may have nothing else. */
static int copied(neo_ctx *ctx, const Replicas *r) {
    neo_plan *plan;
    int count = 0;
    CHECK_OK(neo_plan_create(ctx, &r->c.plan, &plan));
    for (int32_t t = 0; plan && t < r->c.set->tables; t++)
        count += neo_plan_placement(plan, t) == NEO_DATA_PARALLEL;
    neo_plan_destroy(plan);
    return count;
}
static void plans_copy_what_bits_allow(void) {
    Replicas r;
    neo_ctx *ctx;
    unsigned allowed[MAX_TABLES] = {0};
    begin(&r, &ctx, NEO_BAG_SGD, 2);
    r.c.plan.bags = &r.c.bags;
    r.c.plan.table_placements = allowed;
    for (int each = 1; each <= 4; each *= 2)
        for (int sync = 1; sync <= 2; sync++) {
            r.c.plan.sync_every = sync;
            r.c.plan.cluster = (neo_cluster){.ranks = each};
            r.c.plan.cluster.link[NEO_LEVEL_LOCAL].bandwidth = 1e7; /* copies send less */
            for (int32_t t = 0; t < r.c.set->tables; t++)
                allowed[t] = 1u << NEO_DATA_PARALLEL | 1u << NEO_TABLE_WISE;
            if (sync == 1 && each > 1) CHECK(copied(ctx, &r) > 0);
            if (sync == 2) CHECK(copied(ctx, &r) == 0);
            allowed[0] = 1u << NEO_DATA_PARALLEL;
            CHECK(copied(ctx, &r) >= 1);
            if (sync == 2) CHECK(copied(ctx, &r) == 1);
        }
    end(&r, ctx);
}

/* ---- what is refused ---- */
static neo_status wrong_ranks(neo_comm *comm, void *user) {
    const Replicas *r = user;
    const int rank = neo_comm_rank(comm);
    neo_shard *shard;
    EXPECT_ERR(make(&r->c, comm, &shard), NEO_ERR_ARG,
               "the plan is for 4 ranks (replicas of cluster.ranks), the group has 3");
    return NEO_OK;
}
/* Three groups of eight leaves: some would hold no whole subtree. */
static neo_status wrong_leaves(neo_comm *comm, void *user) {
    const Replicas *r = user;
    const int rank = neo_comm_rank(comm);
    neo_shard *shard;
    EXPECT_ERR(make(&r->c, comm, &shard), NEO_ERR_UNSUPPORTED,
               "repro_shards is 8: for NEO_SYNC_MERGED of 3 replicas it must be 3 times a power");
    return NEO_OK;
}
static void what_does_not_fit_is_refused(void) {
    Replicas r;
    neo_ctx *ctx;
    neo_plan *plan;
    begin(&r, &ctx, 2, 2);
    place_case(&r.c, NEO_TABLE_WISE, 2);
#define REFUSED(status, text)                                                                      \
    CHECK_ERR(neo_plan_create_from(ctx, &r.c.plan, r.c.pieces, r.c.piece_count, &plan), status,    \
              text)
    r.c.plan.replicas = -1;
    REFUSED(NEO_ERR_ARG, "replicas is -1");
    r.c.plan.replicas = 4096;
    REFUSED(NEO_ERR_ARG, "replicas is 4096, of 2 ranks each");
    r.c.plan.replicas = 2, r.c.plan.sync_every = -2;
    REFUSED(NEO_ERR_ARG, "sync_every is -2");
    r.c.plan.sync_every = 0, r.c.plan.skip_empty = 1;
    REFUSED(NEO_ERR_UNSUPPORTED, "replicas of tables with skip_empty");
    r.c.plan.skip_empty = 0;
    r.c.plan.replicas = 2, r.c.plan.sync_every = 2, r.c.plan.kept_batches = 1;
    REFUSED(NEO_ERR_UNSUPPORTED, "kept_batches, and a sync_every of 2");
    r.c.plan.kept_batches = 0, r.c.tables[1].dtype = NEO_BF16;
    REFUSED(NEO_ERR_UNSUPPORTED, "table 't1': an average of bf16 rows");
    r.c.tables[1].dtype = NEO_F32, r.c.tables[2].keys.on = 1, r.c.tables[2].rows = 256;
    REFUSED(NEO_ERR_UNSUPPORTED, "table 't2': replicas of a table of keys");
    r.c.tables[2].keys.on = 0, r.c.tables[2].rows = ZIPF.rows[2];
    for (int t = 0; t < ZIPF.tables; t++)
        r.c.tables[t].pooling = NEO_POOL_NONE, r.c.tables[t].dim = 16;
    REFUSED(NEO_ERR_UNSUPPORTED, "table 't0': replicas of a table of NEO_POOL_NONE");
    for (int t = 0; t < ZIPF.tables; t++)
        r.c.tables[t].pooling = NEO_POOL_SUM, r.c.tables[t].dim = ZIPF.dims[t];
    r.c.plan.sync_every = 0;
    spawn_refused(&r.c, 3, wrong_ranks, &r);
    place_case(&r.c, NEO_TABLE_WISE, 1);
    r.c.plan.replicas = 3, r.c.plan.sync_every = NEO_SYNC_MERGED;
    spawn_refused(&r.c, 3, wrong_leaves, &r);
    end(&r, ctx);
}

int main(void) {
    RUN(groups_have_the_bits_of_one_rank);
    RUN(merged_groups_have_the_bits_of_one_rank);
    RUN(groups_step_alone_and_average);
    RUN(seconds_are_those_of_groups);
    RUN(plans_copy_what_bits_allow);
    RUN(what_does_not_fit_is_refused);
    return test_end("shard/replicas");
}
