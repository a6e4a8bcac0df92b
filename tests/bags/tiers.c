/* tiers.c: rows in a file below lines in memory (neo_store.h).

   Two objects of one description, one of them with a tier so small that all rows leave many times,
   get the same calls: outputs, gradients, rows, digests and checkpoints must have the same bits,
   for every optimizer, dtype, pooling and policy. Hits, evictions and rows written must be those of
   a naive simulator. Memory must be what was predicted, and a step allocates nothing. Reads by
   io_uring have the bits of those one by one, where it is refused, fails or does less, too. A file
   that is cut, altered or too large for its limit, or whose device fails, is a status that names
   table, row, file and offset. */
#include "neo_state.h"
#include "neo_store.h"
#include "uses.h"

#include "common.h"

#include <errno.h>
#include <stdarg.h>
#if !defined(_WIN32)
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { PERIOD = 50 }; /* of LFU, in calls */
static int no_rings, readers = 2; /* of the next pair: no_io_uring, queue_depth */
static char folder[3000];
static const char *at(const char *name) {
    static char text[4][3100];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s%s", folder, name);
    return text[turn];
}

static int64_t stated; /* ahead_rows of the next tier */
/* Until none is pending: a minute at most. */
static void wait_for_reads(const neo_tier *tier) {
    const int64_t until = neo_time_ns() + INT64_C(60000000000);
    while (neo_tier_get_stats(tier).pending && neo_time_ns() < until) continue;
    CHECK_INT(neo_tier_get_stats(tier).pending, 0);
}
typedef struct Pair {
    neo_ctx *ctx;
    neo_bags *plain, *tiered;
    neo_tier *tier;
    neo_state *state[2];
} Pair;

/* The least that create accepts, from its messages: more memory holds more that is read ahead. */
static int64_t least_bytes(neo_ctx *ctx, neo_bags_desc desc, neo_tier_desc tier_desc) {
    tier_desc.memory_bytes = 1;
    for (;;) {
        neo_bags_memory memory;
        neo_tier *tier = NULL;
        if (neo_tier_create(ctx, &tier_desc, &tier) != NEO_OK) return 0;
        desc.tier = tier;
        const neo_status status = neo_bags_bytes(ctx, &desc, &memory);
        const char *needs = strstr(neo_last_error(), "needs ");
        neo_tier_destroy(tier);
        if (status == NEO_OK) return tier_desc.memory_bytes;
        if (status != NEO_ERR_ARG || !needs) return 0;
        tier_desc.memory_bytes = strtoll(needs + 6, NULL, 10);
    }
}
static neo_state *state_of(neo_ctx *ctx, neo_bags *bags) {
    neo_state *state = NULL;
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_bags(state, bags));
    return state;
}
/* extra: bytes above the least. */
static int pair_make(Pair *p, neo_ctx *ctx, const Model *m, neo_evict policy, int prefetch,
                     int64_t extra) {
    const int64_t period = policy == NEO_EVICT_LFU ? PERIOD : 0;
    neo_tier_desc tier = {at("rows.tier"), 1, policy, period, readers, prefetch, no_rings, stated};
    neo_bags_desc desc = m->desc;
    neo_bags_memory memory;
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    tier.memory_bytes = least_bytes(ctx, desc, tier) + extra;
    CHECK(tier.memory_bytes > 1);
    CHECK_OK(neo_bags_create(ctx, &desc, &p->plain));
    CHECK_OK(neo_tier_create(ctx, &tier, &p->tier));
    desc.tier = p->tier;
    CHECK_OK(neo_bags_bytes(ctx, &desc, &memory));
    const size_t before = neo_ctx_memory(ctx).bytes;
    CHECK_OK(neo_bags_create(ctx, &desc, &p->tiered));
    if (!p->plain || !p->tiered) return 0;
    CHECK_INT(neo_ctx_memory(ctx).bytes - before,
              memory.weight_bytes + memory.state_bytes + memory.workspace_bytes);
    CHECK((int64_t)(memory.weight_bytes + memory.state_bytes + memory.workspace_bytes) <=
          tier.memory_bytes);
    p->state[0] = state_of(ctx, p->plain);
    p->state[1] = state_of(ctx, p->tiered);
    return 1;
}
static void pair_free(Pair *p) {
    neo_state_destroy(p->state[0]);
    neo_state_destroy(p->state[1]);
    neo_bags_destroy(p->tiered);
    neo_tier_destroy(p->tier);
    neo_bags_destroy(p->plain);
    CHECK(fopen(at("rows.tier"), "rb") == NULL); /* it was removed */
}
static void pair_check(const Pair *p, const Model *m) {
    const uint64_t want = neo_state_digest(p->state[0]), got = neo_state_digest(p->state[1]);
    if (want != got) FAIL("digest %016" PRIx64 ", expected %016" PRIx64, got, want);
    for (int t = 0; t < m->desc.table_count; t++) {
        const int64_t rows = m->table[t].rows, dim = m->table[t].dim, first = rows / 3;
        const size_t bytes = sizeof(float) * (size_t)((rows - first) * dim);
        float *a = malloc(bytes), *b = malloc(bytes);
        CHECK_OK(neo_bags_get_rows(p->plain, t, first, rows - first, a));
        CHECK_OK(neo_bags_get_rows(p->tiered, t, first, rows - first, b));
        CHECK_BITS(a, b, bytes);
        free(a);
        free(b);
    }
}
static void pair_step(Pair *p, const Model *m, Batch *b, int kind, float lr) {
    Out out[2], dout;
    const int64_t ids = neo_jagged_id_count(&b->j);
    float *grad[2];
    out_make(&dout, m, &b->j, 0);
    for (int i = 0; i < 2; i++) {
        neo_bags *bags = i ? p->tiered : p->plain;
        out_make(&out[i], m, &b->j, 3 * !b->j.feature_bags);
        if (i) memcpy(out[1].data, out[0].data, sizeof(float) * (size_t)out[0].count);
        grad[i] = calloc((size_t)ids + 1, sizeof(float));
        CHECK_OK(neo_bags_forward(bags, &b->j, out[i].t));
        CHECK_OK(neo_bags_weight_grad(bags, &b->j, dout.t, grad[i]));
        if (kind == 0) CHECK_OK(neo_bags_backward(bags, &b->j, dout.t, lr));
        if (kind == 0) continue;
        CHECK_OK(neo_bags_accumulate(bags, &b->j, dout.t, NULL));
        if (kind == 2) CHECK_OK(neo_bags_step(bags, lr));
    }
    CHECK_BITS(out[0].data, out[1].data, sizeof(float) * (size_t)out[0].count);
    CHECK_BITS(grad[0], grad[1], sizeof(float) * (size_t)ids);
    for (int i = 0; i < 2; i++) free(out[i].data), free(grad[i]);
    free(dout.data);
}

/* ---- the same bits ---- */
static void same_bits(void) {
    static const int64_t dims[2][3] = {{16, 8, 19}, {16, 16, 16}};
    static const neo_dtype types[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    const int cases = TEST_WATCHED ? 9 : 27;
    int64_t read = 0;
    for (int n = 0; n < cases; n++) {
        const neo_pooling pooling = (neo_pooling)(n % 3);
        const int64_t rows[3] = {300 + n, 31, 700};
        neo_ctx *ctx = test_ctx(1 + n % 3, NEO_ISA_BEST, 1 + n % 4);
        Model m;
        Pair p;
        model_init(&m, 3, rows, dims[pooling == NEO_POOL_NONE], 4, pooling);
        m.desc.max_batch = 26;
        m.desc.max_ids = 240;
        m.desc.max_kept_rows = 800;
        m.desc.bounds = (neo_bounds)(n / 2 % 3);
        for (int t = 0; t < 3; t++) {
            m.table[t].dtype = types[(n + t) % 4];
            m.table[t].row_buckets = n % 5 == 2 ? 70 : n % 5 ? n % 5 : 0;
            m.table[t].optim.kind = (neo_bag_optim_kind)((n + 4 * t) % NEO_BAG_OPTIM_COUNT);
            m.table[t].optim.initial_accumulator = 0.125f * (float)(n % 2);
            m.table[t].optim.momentum = 0.5f;
            m.table[t].optim.max_norm = n % 7 == 3 ? 0.5f : 0.0f;
            if (n % 6 == 1) m.table[t].init.kind = NEO_INIT_NORMAL, m.table[t].init.b = 0.1f;
        }
        no_rings = n % 5 == 4;
        if (pair_make(&p, ctx, &m, (neo_evict)(n % 2), n % 4 == 1, 4096 * (n % 3))) {
            int64_t allocs = 0;
            for (int step = 0; step < 60; step++) {
                const BatchKind kind = {1 + (5 * step) % 26, step % 4, n % 2, step % 3 == 1,
                                        n % 4 == 3, n % 8 == 5};
                Batch b;
                batch_make(&b, &m, kind);
                if (m.desc.bounds != NEO_BOUNDS_ERROR && neo_jagged_id_count(&b.j) > 2) {
                    batch_set_id(&b, b.offsets[0], -7);
                    batch_set_id(&b, b.offsets[0] + 1, 1 << 20);
                }
                if (step % 3 != 2) CHECK_OK(neo_bags_prefetch(p.tiered, &b.j));
                if (step == 30) allocs = neo_ctx_memory(ctx).alloc_count;
                pair_step(&p, &m, &b, step < 30 ? 0 : 1 + (step & 1), 0.1f);
                batch_free(&b);
            }
            if (neo_tier_get_stats(p.tier).grow_count == 0)
                CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
            pair_check(&p, &m);
            const neo_tier_stats s = neo_tier_get_stats(p.tier);
            CHECK(s.evictions > 10 && s.written > 10 && s.first > 40);
            read += s.read;
            float row[19];
            test_fill(row, 19);
            CHECK_OK(neo_bags_set_rows(p.plain, 2, 5, 1, row));
            CHECK_OK(neo_bags_set_rows(p.tiered, 2, 5, 1, row));
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    no_rings = 0;
    CHECK(read > 50 * cases); /* rows left, and came again */
}

/* Rows that come and go by key, in places that come and go: keys and rows are those in memory,
   whoever is evicted, admitted, dropped or pruned, or given a row that is not trained. */
static int64_t key_of(int64_t id, int step) {
    return (int64_t)((uint64_t)(id * (step % 2 ? 7 : 1)) * 0x9E3779B97F4A7C15u);
}
static void pair_key_calls(const Pair *p, int step) {
    enum { COUNT = 24 };
    uint64_t keys[COUNT];
    float scores[COUNT], row[19];
    int64_t at[2][3][COUNT], pruned[2][3];
    for (int k = 0; k < COUNT; k++) keys[k] = (uint64_t)key_of(test_random() % 700, step);
    test_fill(scores, COUNT);
    test_fill(row, 19);
    for (int i = 0; i < 2; i++)
        for (int t = 0; t < 3; t++) {
            neo_bags *bags = i ? p->tiered : p->plain;
            if (!neo_bags_state(bags, t, 2).data) continue;
            CHECK_OK(neo_bags_put_keys(bags, t, keys, COUNT / 2, at[i][t]));
            if (i) CHECK_BITS(at[0][t], at[1][t], COUNT / 2 * sizeof ***at);
            if (at[i][t][0] >= 0) CHECK_OK(neo_bags_set_rows(bags, t, at[i][t][0], 1, row));
            CHECK_OK(neo_bags_drop_keys(bags, t, keys + COUNT / 4, COUNT / 2));
            if (neo_bags_score_keys(bags, t, keys, scores, COUNT) != NEO_OK)
                CHECK(strstr(neo_last_error(), "have no scores"));
            CHECK_OK(neo_bags_prune_keys(bags, t, 0.05f, step % 3 ? 30 : 0, &pruned[i][t]));
            if (i) CHECK_INT(pruned[0][t], pruned[1][t]);
        }
}
static void tables_of_keys(void) {
    static const neo_keys kinds[] = {
        {1, NEO_EVICT_LRU, 0, 0, 0, 0, 0}, {1, NEO_EVICT_LFU, 5, 2, 0, 0, 0},
        {1, NEO_EVICT_AGE, 3, 0, 1, 0, 0}, {1, NEO_EVICT_LRU, 0, 3, 0, 1, 0},
        {1, NEO_EVICT_SCORE, 0, 2, 1, 1, 0}, {0, NEO_EVICT_LRU, 0, 0, 0, 0, 0}};
    static const neo_dtype types[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const int64_t rows[3] = {512, 32, 960}, dims[2][3] = {{16, 8, 19}, {16, 16, 16}};
    int64_t evictions = 0, lines = 0, written = 0, read = 0, ahead = 0;
    const int cases = TEST_WATCHED ? 6 : 18;
    for (int n = 0; n < cases; n++) {
        const neo_pooling pooling = (neo_pooling)(n % 3);
        neo_ctx *ctx = test_ctx(1 + n % 3, NEO_ISA_BEST, 1 + n % 4);
        Model m;
        Pair p;
        model_init(&m, 3, rows, dims[pooling == NEO_POOL_NONE], 4, pooling);
        m.desc.max_batch = 26;
        m.desc.max_ids = 240;
        m.desc.max_kept_rows = 800;
        for (int t = 0; t < 3; t++) {
            m.table[t].keys = kinds[(n + t) % 6];
            m.table[t].dtype = types[(n / 2 + t) % 4];
            m.table[t].row_buckets = t == 0 && n % 2 ? 4 : 0;
            m.table[t].track_rows = n % 2;
            m.table[t].optim.kind = (neo_bag_optim_kind)((n + 4 * t) % NEO_BAG_OPTIM_COUNT);
            m.table[t].optim.initial_accumulator = 0.125f * (float)(n % 2);
            if (n % 6 == 1) m.table[t].init.kind = NEO_INIT_NORMAL, m.table[t].init.b = 0.1f;
        }
        if (pair_make(&p, ctx, &m, (neo_evict)(n / 3 % 2), n % 2, 1024 * (n % 3))) {
            for (int step = 0; step < 60; step++) {
                const BatchKind kind = {1 + (5 * step) % 26, step % 4, 0, step % 3 == 1,
                                        n % 4 == 3, n % 8 == 5};
                Batch b;
                batch_make(&b, &m, kind);
                for (int f = 0; f < m.desc.feature_count; f++) {
                    const int64_t end = b.offsets[first_bag(&b.j, f + 1)];
                    const int keyed = m.table[m.feature_table[f]].keys.on;
                    for (int64_t k = b.offsets[first_bag(&b.j, f)]; keyed && k < end; k++)
                        batch_set_id(&b, k, key_of(batch_id(&b, k), step));
                }
                if (step % 3 != 2) CHECK_OK(neo_bags_prefetch(p.tiered, &b.j));
                pair_step(&p, &m, &b, step < 30 ? 0 : 1 + (step & 1), 0.1f);
                batch_free(&b);
                if (step % 10 == 8) { /* rows that were given, and have not been trained */
                    CHECK_OK(step < 30 ? NEO_OK : neo_bags_clear(p.plain));
                    CHECK_OK(step < 30 ? NEO_OK : neo_bags_clear(p.tiered));
                    pair_key_calls(&p, step);
                    pair_check(&p, &m);
                }
            }
            CHECK_OK(neo_bags_step(p.plain, 0.1f));
            CHECK_OK(neo_bags_step(p.tiered, 0.1f));
            pair_check(&p, &m);
            for (int t = 0; t < 3; t++) {
                const neo_key_stats a = neo_bags_key_stats(p.plain, t),
                                    b = neo_bags_key_stats(p.tiered, t);
                CHECK(memcmp(&a, &b, sizeof a) == 0);
                evictions += a.evictions;
            }
            const neo_tier_stats s = neo_tier_get_stats(p.tier);
            lines += s.evictions, written += s.written, read += s.read;
            ahead += s.prefetched + s.late;
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    CHECK(evictions > 50 * cases && lines > 50 * cases && written > 50 * cases);
    CHECK(read > 20 * cases && ahead > 0);
}

/* All ids of a batch in few sets: the others of a set have lines of overflow. A batch with more ids
   than declared for a table grows them. */
static void overflow_and_growth(void) {
    const int64_t rows[1] = {4000}, dims[1] = {8};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    Pair p;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.max_batch = 60;
    m.desc.max_ids = 60;
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 0)) {
        for (int step = 0; step < 20; step++) {
            const BatchKind kind = {60, step < 10 ? 1 : 12, 0, 0, 0, 0};
            Batch b;
            batch_make(&b, &m, kind);
            const int64_t ids = neo_jagged_id_count(&b.j);
            for (int64_t k = 0; k < ids; k++) batch_set_id(&b, k, (int64_t)test_random() % 4000);
            CHECK_OK(neo_bags_reserve(p.plain, 60, ids));
            CHECK_OK(neo_bags_reserve(p.tiered, 60, ids));
            pair_step(&p, &m, &b, 0, 0.1f);
            batch_free(&b);
        }
        pair_check(&p, &m);
        CHECK(neo_tier_get_stats(p.tier).overflow > 100);
        CHECK(neo_tier_get_stats(p.tier).grow_count > 0);
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* Backward goes on with the lines of forward only where all ids have the rows that they had: not
   with another batch, or other ids in the same memory, though all are needed at once. */
static void batches_in_between(void) {
    const int64_t rows[2] = {4000, 900}, dims[2] = {8, 8};
    const int wide = 64 * 4; /* of few rows an index */
    for (int n = 0; n < 12; n++) {
        neo_ctx *ctx = test_ctx(1 + n % 2, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        const int64_t of_kind[2] = {n % 2 ? dims[0] : wide, n % 2 ? dims[1] : wide};
        model_init(&m, 2, rows, of_kind, 3, NEO_POOL_SUM);
        m.desc.max_batch = 40;
        m.desc.max_ids = 120;
        if (pair_make(&p, ctx, &m, (neo_evict)(n / 2 % 2), n % 3 == 0, n % 2 ? 0 : 60000)) {
            for (int step = 0; step < 40; step++) {
                const BatchKind kind = {40, 1, n % 3 == 1, 0, 0, 0};
                Batch a, b;
                Out out[2], dout;
                int64_t was[120], other[120];
                batch_make(&a, &m, kind);
                batch_make(&b, &m, kind);
                out_make(&dout, &m, &a.j, 0);
                const int64_t from = a.offsets[0], ids = neo_jagged_id_count(&a.j);
                for (int64_t k = 0; k < ids; k++) {
                    was[k] = batch_id(&a, from + k);
                    other[k] = k % (1 + step % 3) ? was[k] : (int64_t)test_random() % 900;
                }
                for (int i = 0; i < 2; i++) {
                    neo_bags *bags = i ? p.tiered : p.plain;
                    out_make(&out[i], &m, &a.j, 0);
                    CHECK_OK(neo_bags_forward(bags, &a.j, out[i].t));
                    if (step % 4 == 1) CHECK_OK(neo_bags_forward(bags, &b.j, out[i].t));
                    for (int64_t k = 0; k < ids && step % 4 == 2; k++)
                        batch_set_id(&a, from + k, other[k]);
                    CHECK_OK(neo_bags_backward(bags, step % 4 == 3 ? &b.j : &a.j, dout.t, 0.1f));
                    for (int64_t k = 0; k < ids; k++) batch_set_id(&a, from + k, was[k]);
                }
                CHECK_BITS(out[0].data, out[1].data, sizeof(float) * (size_t)out[0].count);
                for (int i = 0; i < 2; i++) free(out[i].data);
                free(dout.data);
                batch_free(&a);
                batch_free(&b);
            }
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
}

/* Nor where ids without a row were another table's: then a set would have to hold two batches. */
static void ids_of_another_table(void) {
    enum { B = 100 };
    const int64_t rows[2] = {5000, 5000}, dims[2] = {8, 8};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    Pair p;
    model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
    m.desc.max_batch = B, m.desc.max_ids = 2 * B, m.desc.bounds = NEO_BOUNDS_DROP;
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 0, 0)) {
        for (int step = 0; step < 10; step++) {
            const BatchKind kind = {B, 0, 0, 0, 0, 0};
            int64_t ids[2][2 * B];
            Batch b[2];
            Out out;
            for (int i = 0; i < 2; i++) {
                batch_make(&b[i], &m, kind);
                for (int64_t k = 0; k < 2 * B; k++) {
                    b[i].offsets[k + 1] = i == 0 ? k + 1 : k < B ? 0 : k + 1 - B;
                    ids[i][k] = i == 0 && k < B ? -1 : (int64_t)test_random() % rows[1];
                }
                b[i].j.ids = ids[i];
            }
            for (int64_t k = 0; k < B; k++) ids[0][B + k] = (B * step + k) % rows[1];
            out_make(&out, &m, &b[0].j, 0);
            for (int i = 0; i < 2; i++) {
                neo_bags *bags = i ? p.tiered : p.plain;
                CHECK_OK(neo_bags_forward(bags, &b[0].j, out.t));
                CHECK_OK(neo_bags_backward(bags, &b[1].j, out.t, 0.1f));
            }
            free(out.data);
            for (int i = 0; i < 2; i++) batch_free(&b[i]);
        }
        pair_check(&p, &m);
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* ---- checkpoints: from either into either ---- */
static void checkpoints(void) {
    const int64_t rows[2] = {1500, 700}, dims[2] = {12, 16};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    Pair p, q;
    Batch b;
    model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
    m.desc.max_batch = 64;
    m.desc.max_ids = 400;
    m.table[0].optim.kind = NEO_BAG_ADAM;
    m.table[1].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    m.table[1].dtype = NEO_I8;
    m.table[0].track_rows = m.table[1].track_rows = 1;
    if (pair_make(&p, ctx, &m, NEO_EVICT_LFU, 0, 1000)) {
        const BatchKind kind = {64, 3, 0, 0, 0, 0};
        for (int step = 0; step < 8; step++) {
            batch_make(&b, &m, kind);
            pair_step(&p, &m, &b, 0, 0.1f);
            batch_free(&b);
        }
        const uint64_t want = neo_state_digest(p.state[0]);
        neo_save_desc save;
        neo_load_desc load;
        memset(&save, 0, sizeof save);
        memset(&load, 0, sizeof load);
        save.dir = load.dir = at("checkpoint");
        for (int from = 0; from < 2; from++) {
            save.step = load.step = 1 + from;
            CHECK_OK(neo_save(ctx, &save, p.state[from]));
            float look[2] = {0, 0};
            CHECK_OK(neo_state_look(p.state[0], 0, &look[0], NULL));
            CHECK_OK(neo_state_look(p.state[1], 0, &look[1], NULL));
            CHECK_BITS(&look[0], &look[1], sizeof look[0]);
            const size_t length = strlen(folder);
            snprintf(folder + length, 8, "again.");
            if (pair_make(&q, ctx, &m, NEO_EVICT_LRU, 0, 20000 * from)) {
                batch_make(&b, &m, kind); /* lines that the load changes */
                pair_step(&q, &m, &b, 0, 0.1f);
                batch_free(&b);
                for (int to = 0; to < 2; to++) {
                    CHECK_OK(neo_load(ctx, &load, q.state[to], NULL));
                    CHECK(neo_state_digest(q.state[to]) == want);
                }
                pair_check(&q, &m);
            }
            pair_free(&q);
            folder[length] = 0;
        }
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* Saves, full and differential, that a thread writes while steps change rows and these come and go:
   each is that of the rows in memory alone, byte for byte, with any room for copies; memory is what
   was predicted. A file that is altered meanwhile is an error of wait, and no checkpoint. */
static int same_file(const char *x, const char *y) {
    FILE *f = fopen(x, "rb"), *g = fopen(y, "rb");
    int a = f ? 0 : EOF, b = g ? 0 : EOF, some = 0;
    for (; f && g && a == b && a != EOF; some = 1) a = fgetc(f), b = fgetc(g);
    if (f) fclose(f);
    if (g) fclose(g);
    return some && a == b;
}
/* Tables that are saved, and where: of rows in memory, and of those with a tier. */
static void saved_model(Model *m, int tables, const int64_t *rows, const int64_t *dims,
                        const char *name, char dir[2][3100]) {
    model_init(m, tables, rows, dims, tables, NEO_POOL_SUM);
    m->desc.max_batch = 64;
    m->desc.max_ids = 400;
    m->table[0].optim.kind = NEO_BAG_ADAM;
    m->table[1].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    m->table[1].dtype = NEO_I8;
    for (int t = 0; t < tables; t++) m->table[t].track_rows = 1;
    for (int i = 0; i < 2; i++) snprintf(dir[i], sizeof dir[i], "%s%d", at(name), i);
}
/* A pair of saves, where steps, and of keys other calls, go on beside that of the tier. */
static void save_pair(Pair *p, const Model *m, int keys, int step, char dir[2][3100]) {
    static const size_t rooms[] = {0, 1, 20000};
    static const char *const files[] = {"model", "state"};
    const BatchKind kind = {keys ? 20 : 64, 3, 0, 0, 0, 0};
    neo_ctx *ctx = p->ctx;
    neo_saving *saving = NULL;
    char path[2][6300];
    Batch b;
    if (keys) pair_key_calls(p, step); /* rows that are in no file yet */
    neo_save_desc save = {0};
    save.step = step;
    save.full_every = 3;
    save.keep = 1;
    save.dir = dir[0];
    CHECK_OK(neo_save(ctx, &save, p->state[0]));
    save.dir = dir[1];
    save.copy_bytes = rooms[step % 3];
    const size_t memory = neo_ctx_memory(ctx).bytes;
    CHECK_OK(neo_save_begin(ctx, &save, p->state[1], &saving));
    for (int i = 0; i < 8; i++) {
        if (keys) pair_key_calls(p, step + i);
        batch_make(&b, m, kind);
        const int64_t ids = keys ? neo_jagged_id_count(&b.j) : 0;
        for (int64_t k = 0; k < ids; k++) batch_set_id(&b, k, key_of(batch_id(&b, k), i));
        CHECK_OK(neo_bags_prefetch(p->tiered, &b.j));
        pair_step(p, m, &b, 0, 0.1f);
        batch_free(&b);
        CHECK_OK(neo_save_poll(&saving));
    }
    CHECK_OK(neo_save_wait(&saving));
    CHECK_INT(neo_ctx_memory(ctx).bytes, memory);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++)
            snprintf(path[i], sizeof path[i], "%s/step-%012d/%s-00001-of-00001.safetensors",
                     dir[i], step, files[k]);
        if (!same_file(path[0], path[1])) FAIL("%s differs", path[1]);
    }
    pair_check(p, m);
}
static void saved_meanwhile(void) {
    const int64_t rows[2] = {1500, 700}, dims[2] = {12, 16};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    Pair p;
    char dir[2][3100];
    saved_model(&m, 2, rows, dims, "saved", dir);
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 1000)) {
        neo_saving *saving = NULL;
        for (int step = 1; step <= 9; step++) save_pair(&p, &m, 0, step, dir);
        FILE *f = fopen(at("rows.tier"), "r+b");
        for (int64_t i = 4096; f && i < 1500 * 148; i++) {
            fseek(f, (long)i, SEEK_SET);
            fputc(9, f);
        }
        if (f) fclose(f);
        neo_save_desc save = {0};
        save.step = 10;
        save.dir = dir[1];
        CHECK_OK(neo_save_begin(ctx, &save, p.state[1], &saving));
        CHECK_ERR(neo_save_wait(&saving), NEO_ERR_CORRUPT, "has been altered (table 't0', row ");
        int64_t newest = 0;
        CHECK_OK(neo_find_checkpoint(dir[1], &newest));
        CHECK_INT(newest, 9);
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* The same of tables of keys: rows are given, taken away and pruned while a thread writes, most of
   them before they have been trained, so that they are in neither memory nor file. */
static void keys_saved_meanwhile(void) {
    const int64_t rows[3] = {1504, 704, 2048}, dims[3] = {12, 16, 8};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    Pair p;
    char dir[2][3100];
    saved_model(&m, 3, rows, dims, "keysaved", dir);
    m.desc.max_kept_rows = 100;
    m.table[2].dtype = NEO_BF16;
    for (int t = 0; t < 3; t++) {
        m.table[t].keys.on = 1;
        m.table[t].keys.evict = t == 1 ? NEO_EVICT_SCORE : NEO_EVICT_LRU;
    }
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 1000))
        for (int step = 1; step <= 9; step++) save_pair(&p, &m, 1, step, dir);
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* ---- a naive simulator ---- */
enum { SIM_SETS = 64 };
typedef struct Sim {
    int64_t row[SIM_SETS][32], used[SIM_SETS][32]; /* used: the last call; 0: an empty line */
    int64_t count[SIM_SETS][32];
    int dirty[SIM_SETS][32];
    int64_t sets, now, hits, lookups, evictions, written;
    neo_evict policy;
} Sim;
static int sim_set(const Sim *s, int64_t row) {
    uint64_t h = (uint64_t)row;
    h ^= h >> 33, h *= 0xFF51AFD7ED558CCDu, h ^= h >> 33, h *= 0xC4CEB9FE1A85EC53u, h ^= h >> 33;
    return (int)((h >> 32) * (uint64_t)s->sets >> 32);
}
static int sim_way(const Sim *s, int64_t row) {
    const int set = sim_set(s, row);
    for (int w = 0; w < 32; w++)
        if (s->used[set][w] && s->row[set][w] == row) return w;
    return -1;
}
static int sim_is_less(const Sim *s, int set, int a, int b) {
    if (!s->used[set][b] || !s->used[set][a]) return s->used[set][b] && !s->used[set][a];
    if (s->policy == NEO_EVICT_LFU && s->count[set][a] != s->count[set][b])
        return s->count[set][a] < s->count[set][b];
    return s->used[set][a] < s->used[set][b];
}
/* Forward, weight_grad and backward of a batch with these rows: one call, as it finds them once. */
static void sim_call(Sim *s, const int64_t *rows, int64_t n) {
    if (++s->now % PERIOD == 0)
        for (int i = 0; i < SIM_SETS * 32; i++) s->count[i / 32][i % 32] /= 2;
    for (int64_t i = 0; i < n; i++) {
        const int set = sim_set(s, rows[i]), w = sim_way(s, rows[i]);
        s->lookups++, s->hits += w >= 0;
        if (w < 0) continue;
        s->count[set][w] += s->used[set][w] != s->now;
        s->used[set][w] = s->now;
        s->dirty[set][w] = 1;
    }
    for (int64_t i = 0; i < n; i++) {
        if (sim_way(s, rows[i]) >= 0) continue;
        const int set = sim_set(s, rows[i]);
        int best = -1;
        for (int w = 0; w < 32; w++) {
            if (s->used[set][w] == s->now) continue;
            if (best < 0 || sim_is_less(s, set, w, best)) best = w;
        }
        if (best < 0) FAIL("the simulator has no overflow");
        if (best < 0) return;
        s->evictions += s->used[set][best] != 0;
        s->written += s->dirty[set][best];
        s->row[set][best] = rows[i];
        s->used[set][best] = s->now;
        s->count[set][best] = 1;
        s->dirty[set][best] = 1;
    }
}
/* The next row of a trace: uniform; by Zipf's law of exponent 1.05; or local: two of three were
   there lately, at distances of which the longer are the rarer. */
enum { TRACE_UNIFORM, TRACE_ZIPF, TRACE_LOCAL, TRACE_2021, TRACE_2022, TRACE_COUNT,
       TRACE_PAST = 4096 };
/* Rows that are used as often as production's. */
static int64_t trace_uses(int set, int64_t rows, double u) {
    double ids = USE_SETS[set].of_ids[0], before = 0;
    int bin = 0;
    while (bin < USE_BINS - 1 && u >= ids) {
        before += USE_SETS[set].of_rows[bin];
        ids += USE_SETS[set].of_ids[++bin];
    }
    const int64_t first = (int64_t)(before * (double)rows);
    const int64_t count = (int64_t)(USE_SETS[set].of_rows[bin] * (double)rows) + 1;
    return (first + bin + (int64_t)test_random() % count) * 7919 % rows;
}
static int64_t trace_next(int trace, int64_t rows, int64_t past[TRACE_PAST], int64_t n) {
    const double u = (test_uniform() + 1) / 2, e = -0.05, top = pow((double)rows, e);
    int64_t row = (int64_t)test_random() % rows;
    if (trace == TRACE_ZIPF) row = (int64_t)pow(1 - u * (1 - top), 1 / e) * 7919 % rows;
    if (trace >= TRACE_2021) row = trace_uses(trace - TRACE_2021, rows, u);
    const int64_t back = (int64_t)pow(TRACE_PAST, u);
    if (trace == TRACE_LOCAL && test_random() % 3 && back <= n) row = past[(n - back) % TRACE_PAST];
    return past[n % TRACE_PAST] = row;
}
void tier_counts_from(neo_tier *tier, int64_t calls, uint32_t batches); /* neo.c */
/* Every third case ends the numbers of calls, and of batches, that 32 bits have: nothing shows. Of
   some with an index more calls than it knows pass between two of most rows. */
static void hits_of_a_simulator(void) {
    enum { ROWS = 20000, B = 48, STEPS = 300, IDLE = 1300, NEAR = 2 * PERIOD };
    static int64_t past[TRACE_PAST];
    static Sim s;
    for (int n = 0; n < 12 * TRACE_COUNT; n++) { /* few wide rows: a tier has an index of them */
        const int wide = n / 2 / TRACE_COUNT % 2, trace = n / 2 % TRACE_COUNT;
        const int ahead = n / (4 * TRACE_COUNT) * 2 - (n >= 4 * TRACE_COUNT); /* 0, 1, 3 */
        const int64_t rows[1] = {wide ? ROWS / 8 : ROWS}, dims[1] = {wide ? 64 : 4};
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        memset(&s, 0, sizeof s);
        s.policy = (neo_evict)(n % 2);
        if (pair_make(&p, ctx, &m, s.policy, ahead, wide ? 300000 : 40000)) {
            s.sets = (neo_tier_get_stats(p.tier).line_count - B - 1) / 32;
            CHECK(s.sets > 16 && s.sets <= SIM_SETS);
            if (n / 2 % 3 == 0)
                tier_counts_from(p.tier, (int64_t)UINT32_MAX / PERIOD * PERIOD - NEAR,
                                 UINT32_MAX - NEAR);
            const int idle = wide && trace < TRACE_LOCAL && !s.policy ? IDLE : 0;
            const int steps = STEPS + idle;
            int64_t id[B];
            for (int step = 0; step < steps; step++) {
                Batch b;
                const BatchKind kind = {B, 0, 0, 0, 0, 0};
                batch_make(&b, &m, kind);
                for (int i = 0; i < B; i++) {
                    b.offsets[i + 1] = i + 1;
                    if (step <= STEPS / 2 || step > STEPS / 2 + idle)
                        id[i] = trace_next(trace, rows[0], past, step * B + i);
                }
                b.j.ids = id;
                if (ahead && step % 7) CHECK_OK(neo_bags_prefetch(p.tiered, &b.j));
                pair_step(&p, &m, &b, 0, 0.1f);
                sim_call(&s, id, B);
                b.j.ids = b.ids;
                batch_free(&b);
            }
            const neo_tier_stats got = neo_tier_get_stats(p.tier);
            CHECK_INT(got.overflow, 0);
            CHECK_INT(got.lookups, steps * B);
            CHECK_INT(got.lookups, s.lookups);
            CHECK_INT(got.hits, s.hits);
            CHECK_INT(got.evictions, s.evictions);
            CHECK_INT(got.written, s.written);
            CHECK(trace == TRACE_UNIFORM || got.hits > got.lookups / 4);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
}

/* ---- the next batch, read ahead ---- */
static void reads_ahead(void) {
    enum { ROWS = 3000, B = 64 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    Pair p;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.max_batch = m.desc.max_ids = B;
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 40000)) {
        for (int step = 0; step < 300; step++) {
            const BatchKind kind = {B, 1, 0, 0, 0, 0};
            Batch b;
            batch_make(&b, &m, kind);
            for (int64_t k = 0; k < neo_jagged_id_count(&b.j); k++)
                batch_set_id(&b, k, (int64_t)test_random() % ROWS);
            CHECK_OK(neo_bags_prefetch(p.tiered, &b.j));
            pair_step(&p, &m, &b, 0, 0.1f);
            batch_free(&b);
        }
        const neo_tier_stats s = neo_tier_get_stats(p.tier);
        CHECK(s.prefetched + s.late > 1000);
        CHECK(s.prefetched + s.late <= s.read);
        pair_check(&p, &m);
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
}

/* Several batches announced before their steps, one more than there is room for in some cases, some
   of them never looked up, others looked up that were not announced: at any depth, over caches of
   the least size, with an index and without, of rows and keys, the bits of rows in memory, and
   nothing allocated. */
static void batches_ahead(void) {
    enum { STEPS = 48, DEPTHS = 5 }; /* of a depth of 40 not all rows have room */
    static const int depths[DEPTHS] = {0, 1, 2, 3, 40};
    static const int64_t rows[3] = {900, 512, 1500}, narrow[3] = {8, 16, 19};
    static const int64_t wide[3] = {256, 16, 19};
    static const neo_keys by_key = {1, NEO_EVICT_LRU, 0, 0, 0, 0, 0};
    static Batch b[STEPS + 1];
    const int cases = TEST_WATCHED ? DEPTHS * 2 : DEPTHS * 8;
    int64_t deep_refused = 0, deep_ahead = 0;
    for (int n = 0; n < cases; n++) {
        const int depth = depths[n % DEPTHS], way = n / DEPTHS, keyed = way / 2 % 2;
        neo_ctx *ctx = test_ctx(1 + n % 3, NEO_ISA_BEST, 1 + n % 4);
        Model m;
        Pair p;
        model_init(&m, 3, rows, way % 4 == 3 ? wide : narrow, 4, NEO_POOL_SUM);
        m.desc.max_batch = 26;
        m.desc.max_ids = 240;
        m.desc.max_kept_rows = 800;
        for (int t = 0; t < 3; t++)
            m.table[t].optim.kind = (neo_bag_optim_kind)((n + t) % NEO_BAG_OPTIM_COUNT);
        if (keyed) m.table[1].keys = by_key;
        no_rings = n % 3 == 2;
        if (pair_make(&p, ctx, &m, (neo_evict)(way % 2), depth, way % 4 == 3 ? 60000 : 0)) {
            const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
            int told = 0;
            for (int step = 0; step <= STEPS; step++) {
                const BatchKind kind = {step == STEPS ? 26 : 1 + (5 * step) % 26, 1 + step % 2,
                                        n % 2, step % 3 == 1, n % 4 == 3, n % 8 == 5};
                batch_make(&b[step], &m, kind);
                for (int f = 0; f < m.desc.feature_count; f++)
                    for (int64_t k = b[step].offsets[first_bag(&b[step].j, f)];
                         keyed && m.feature_table[f] == 1 &&
                         k < b[step].offsets[first_bag(&b[step].j, f + 1)]; k++)
                        batch_set_id(&b[step], k, n % 2 ? batch_id(&b[step], k) * 3
                                                        : key_of(batch_id(&b[step], k), 1));
            }
            for (int step = 0; step < 2 * STEPS; step++) { /* all batches twice */
                const int until = step + (depth ? depth : 1) + (n % 7 == 2), kept = step > STEPS;
                for (; told < 2 * STEPS && told < until; told++)
                    CHECK_OK(neo_bags_prefetch(p.tiered, &b[told % STEPS].j));
                if (step % 5 == 3 && n % 3 == 1) continue;
                if (step % 4 == 2) pair_step(&p, &m, &b[STEPS], kept, 0.1f);
                pair_step(&p, &m, &b[step % STEPS], kept ? 1 + (step & 1) : 0, 0.1f);
            }
            const neo_tier_stats s = neo_tier_get_stats(p.tier);
            CHECK_INT(s.grow_count, 0);
            CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
            CHECK((depth > 0) == (s.prefetched + s.late > 0));
            if (depth > 1) deep_refused += s.refused, deep_ahead += s.prefetched + s.late;
            CHECK_OK(neo_bags_step(p.plain, 0.1f));
            CHECK_OK(neo_bags_step(p.tiered, 0.1f));
            pair_check(&p, &m);
            for (int step = 0; step <= STEPS; step++) batch_free(&b[step]);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    no_rings = 0;
    CHECK(deep_refused > 0 && deep_ahead > 1000);
}
/* A batch of one id in each bag: these. Its arrays are the caller's. */
static neo_jagged batch_of(const int64_t *offsets, const int64_t *ids, int64_t count) {
    neo_jagged j;
    memset(&j, 0, sizeof j);
    j.batch = count;
    j.feature_count = 1;
    j.id_dtype = NEO_I64;
    j.offsets = offsets;
    j.ids = ids;
    return j;
}
/* Forward and backward; ids that found their rows in memory. */
static int64_t stepped_hits(const Pair *p, const neo_jagged *j) {
    static float out[256 * 256];
    const int64_t dim = neo_bags_weight(p->plain, 0).shape[1];
    const neo_tensor t = neo_tensor_2d(out, NEO_F32, j->batch, dim);
    const int64_t before = neo_tier_get_stats(p->tier).hits;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(neo_bags_forward(i ? p->tiered : p->plain, j, t));
        CHECK_OK(neo_bags_backward(i ? p->tiered : p->plain, j, t, 0.01f));
    }
    return neo_tier_get_stats(p->tier).hits - before;
}
/* Lines that an announced batch needs stay, whatever comes before it, until it is looked up; not
   where one batch alone is announced. Rows of overflow are read again. */
static void announced_lines_stay(void) {
    enum { B = 16 };
    const int64_t rows[1] = {4000};
    int64_t offsets[B + 1], x[B], y[B];
    for (int i = 0; i <= B; i++) offsets[i] = i;
    for (int n = 0; n < 16; n++) {
        const int64_t dims[1] = {n / 4 % 2 ? 256 : 16};
        const int depth = n % 2 ? 3 : 1, no_room = n / 8;
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        const int64_t extra = no_room ? 0 : n / 4 % 2 ? 400000 : 30000;
        if (pair_make(&p, ctx, &m, (neo_evict)(n / 2 % 2), depth, extra)) {
            const int64_t lines = neo_tier_get_stats(p.tier).line_count;
            const neo_jagged of_x = batch_of(offsets, x, B), of_y = batch_of(offsets, y, B);
            for (int i = 0; i < B; i++) x[i] = 7 * i;
            (void)stepped_hits(&p, &of_x);
            for (int turn = 0; turn < 3; turn++) {
                int64_t next = 200 + 1000 * turn;
                if (turn < 2) CHECK_OK(neo_bags_prefetch(p.tiered, &of_x));
                const neo_tier_stats was = neo_tier_get_stats(p.tier);
                for (int64_t k = 0; k < 3 * lines && k + B < 900; k += B) {
                    for (int i = 0; i < B; i++) y[i] = next++;
                    (void)stepped_hits(&p, &of_y);
                }
                while (neo_tier_get_stats(p.tier).pending) continue;
                const int64_t hits = stepped_hits(&p, &of_x);
                const neo_tier_stats s = neo_tier_get_stats(p.tier);
                if (turn == 2) CHECK(hits < B || n / 2 % 2); /* LFU: it was used more than others */
                else if (depth == 1) CHECK(hits < B);
                else CHECK_INT(hits + s.prefetched - was.prefetched, B);
                if (depth > 1 && turn < 2 && !no_room) CHECK_INT(hits, B);
            }
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
}
/* Rows of batches announced first have room before others, and what finds none is counted. */
static void announced_in_order(void) {
    enum { B = 64, BATCHES = 24, ROWS = 6000 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    int64_t offsets[B + 1], ids[BATCHES][B];
    for (int i = 0; i <= B; i++) offsets[i] = i;
    for (int n = 0; n < 12; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        neo_jagged j[BATCHES];
        const int batches = n / 2 == 2 ? 3 : BATCHES; /* of 3 all rows have room */
        const int64_t extra = n / 2 == 5 ? 400000 : n / 2 * 20000; /* 5: the room is by depth */
        stated = n / 2 == 3 ? 201 : n / 2 == 4 ? BATCHES * B + 5 : 0;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        if (pair_make(&p, ctx, &m, (neo_evict)(n % 2), batches, extra)) {
            for (int64_t first = 0; first < ROWS; first += B) { /* all rows come to the file */
                for (int i = 0; i < B; i++) ids[0][i] = (first + i) % ROWS;
                j[0] = batch_of(offsets, ids[0], B);
                (void)stepped_hits(&p, &j[0]);
            }
            for (int k = 0; k < batches; k++) {
                for (int i = 0; i < B; i++) ids[k][i] = 100 + B * k + i;
                j[k] = batch_of(offsets, ids[k], B);
            }
            neo_tier_reset_stats(p.tier);
            for (int k = 0; k < batches; k++) CHECK_OK(neo_bags_prefetch(p.tiered, &j[k]));
            while (neo_tier_get_stats(p.tier).pending) continue;
            const int64_t room = batches * B - neo_tier_get_stats(p.tier).refused;
            for (int64_t k = 0, hits = 0; k < batches; k++) { /* few are in lines still */
                hits += stepped_hits(&p, &j[k]);
                const neo_tier_stats s = neo_tier_get_stats(p.tier);
                if (n / 2 < 5 || k == batches - 1) /* 5: some of the last batches are in lines */
                    CHECK_INT(s.prefetched + hits, room < B * (k + 1) ? room : B * (k + 1));
                CHECK_INT(s.late, 0);
            }
            const int all = n / 2 == 2 || n / 2 == 4;
            const int64_t by_depth = (BATCHES + 1) * B / 2;
            CHECK(all ? room == batches * B : room > 2 * B && room < batches * B);
            const neo_tier_stats s = neo_tier_get_stats(p.tier);
            if (all || stated) CHECK_INT(s.ahead_rows, all ? batches * B : stated);
            if (n / 2 == 5) CHECK_INT(s.ahead_rows, by_depth);
            if (n / 2 == 5) CHECK_INT(s.prefetched, by_depth);
            if (n / 2 == 3) CHECK_INT(s.prefetched, stated);
            CHECK_INT(s.dropped, 0);
            for (int k = 0; k <= batches; k++) /* the first is announced twice: one is dropped */
                CHECK_OK(neo_bags_prefetch(p.tiered, &j[k % batches]));
            CHECK_INT(neo_tier_get_stats(p.tier).dropped, 1);
            (void)stepped_hits(&p, &j[2]); /* of those left the second: the one before is passed */
            CHECK_INT(neo_tier_get_stats(p.tier).dropped, 2);
            float row[16] = {0};
            for (int i = 0; i < 2; i++)
                CHECK_OK(neo_bags_set_rows(i ? p.plain : p.tiered, 0, 5, 1, row));
            CHECK_INT(neo_tier_get_stats(p.tier).dropped, batches);
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    stated = 0;
}

/* Rows that found no room have it when the batch before them has been looked up, before those of a
   batch that is announced later. */
static void asked_again(void) {
    enum { B = 64, ROWS = 6000 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    int64_t offsets[B + 1], ids[3][B];
    for (int i = 0; i <= B; i++) offsets[i] = i;
    for (int n = 0; n < 4; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        neo_jagged j[3];
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        stated = B;
        if (pair_make(&p, ctx, &m, (neo_evict)(n % 2), 2 + n / 2, 0)) {
            for (int64_t first = 0; first < ROWS; first += B) { /* all rows come to the file */
                for (int i = 0; i < B; i++) ids[0][i] = (first + i) % ROWS;
                j[0] = batch_of(offsets, ids[0], B);
                (void)stepped_hits(&p, &j[0]);
            }
            for (int k = 0; k < 3; k++) {
                for (int i = 0; i < B; i++) ids[k][i] = 100 + B * k + i;
                j[k] = batch_of(offsets, ids[k], B);
            }
            for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_prefetch(p.tiered, &j[k]));
            wait_for_reads(p.tier);
            const int64_t refused = neo_tier_get_stats(p.tier).refused;
            CHECK(refused > B / 2);
            (void)stepped_hits(&p, &j[0]);
            CHECK_INT(neo_tier_get_stats(p.tier).refused, refused);
            CHECK_OK(neo_bags_prefetch(p.tiered, &j[2]));
            wait_for_reads(p.tier);
            CHECK(neo_tier_get_stats(p.tier).refused > B / 2); /* those of the last */
            neo_tier_reset_stats(p.tier);
            const int64_t hits = stepped_hits(&p, &j[1]);
            CHECK_INT(neo_tier_get_stats(p.tier).prefetched, B - hits);
            CHECK_INT(neo_tier_get_stats(p.tier).late, 0);
            offsets[3] = 9;
            CHECK_ERR(neo_bags_prefetch(p.tiered, &j[2]), NEO_ERR_FORMAT,
                      "neo_bags_prefetch: offsets decrease at feature 0, sample 3");
            offsets[3] = 3;
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    stated = 0;
}

/* A batch whose arrays are written between its announcement and its forward has the bits of what it
   has become: rows that were read for what it was are of no use, and the others are waited for. */
static void written_since(void) {
    enum { B = 64, ROWS = 6000 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    int64_t offsets[B + 1], ids[B];
    for (int i = 0; i <= B; i++) offsets[i] = i;
    for (int n = 0; n < 4; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        stated = 2 * B;
        if (pair_make(&p, ctx, &m, (neo_evict)(n % 2), 1 + n / 2, 0)) {
            const neo_jagged j = batch_of(offsets, ids, B);
            for (int64_t first = 0; first < ROWS; first += B) { /* all rows come to the file */
                for (int i = 0; i < B; i++) ids[i] = (first + i) % ROWS;
                (void)stepped_hits(&p, &j);
            }
            for (int turn = 0; turn < 2; turn++) {
                for (int i = 0; i < B; i++) ids[i] = 1000 * turn + i;
                CHECK_OK(neo_bags_prefetch(p.tiered, &j));
                wait_for_reads(p.tier);
                for (int i = 0; i < B && turn; i++) ids[i] = 3000 + i;
                neo_tier_reset_stats(p.tier);
                const int64_t hits = stepped_hits(&p, &j);
                const neo_tier_stats s = neo_tier_get_stats(p.tier);
                CHECK_INT(s.prefetched, turn ? 0 : B - hits);
                CHECK_INT(s.read, B - hits);
                CHECK_INT(s.late, 0);
            }
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    stated = 0;
}

/* Of budgets around the least each larger one does, each smaller one does not. */
static void budgets(void) {
    const int64_t rows[2] = {5000, 40000}, dims[2] = {8, 19};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int n = 0; n < 12; n++) {
        neo_tier_desc desc = {at("rows.tier"), 1, NEO_EVICT_LRU, 0, 1 + n % 3, 0, 0, 0};
        Model m;
        model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
        m.desc.max_batch = 16 + 5 * n;
        m.desc.max_ids = 40 + 77 * n * n;
        desc.prefetch = n % 4 == 3 ? 64 : n % 4;
        desc.ahead_rows = n > 6 && n % 4 ? 300 : 0;
        const int64_t least = least_bytes(ctx, m.desc, desc);
        CHECK(least > 1);
        const int64_t end = least + 40000;
        for (int64_t bytes = least - 600; bytes < end; bytes += bytes < least + 4000 ? 1 : 61) {
            neo_bags_memory memory;
            desc.memory_bytes = bytes;
            REQUIRE_OK(neo_tier_create(ctx, &desc, &m.desc.tier));
            const neo_status status = neo_bags_bytes(ctx, &m.desc, &memory);
            if ((status == NEO_OK) != (bytes >= least))
                FAIL("%" PRId64 " of %" PRId64, bytes, least);
            if (status == NEO_OK)
                CHECK((int64_t)(memory.weight_bytes + memory.state_bytes +
                                memory.workspace_bytes) <= bytes);
            neo_tier_destroy(m.desc.tier);
        }
    }
    neo_ctx_destroy(ctx);
}
/* Threads read on while keys lose their rows between an announcement and its batch. */
static void keys_dropped_meanwhile(void) {
    enum { B = 4000, ROWS = 12800 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    static int64_t offsets[B + 1], ids[2][B];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    Model m;
    Pair p;
    for (int i = 0; i <= B; i++) offsets[i] = i;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.max_batch = m.desc.max_ids = B;
    m.table[0].keys.on = 1;
    stated = B;
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 0)) {
        for (int turn = 0; turn < 3; turn++) {
            uint64_t gone[4];
            for (int i = 0; i < B; i++) ids[0][i] = turn % 2 * B + i;
            const neo_jagged j = batch_of(offsets, ids[0], B);
            if (turn == 2) {
                CHECK_OK(neo_bags_prefetch(p.tiered, &j));
                for (int i = 0; i < 4; i++) gone[i] = (uint64_t)(1 + 1000 * i);
                for (int i = 0; i < 2; i++)
                    CHECK_OK(neo_bags_drop_keys(i ? p.plain : p.tiered, 0, gone, 4));
                wait_for_reads(p.tier);
                neo_tier_reset_stats(p.tier);
            }
            (void)stepped_hits(&p, &j);
        }
        const neo_tier_stats s = neo_tier_get_stats(p.tier);
        CHECK(s.prefetched > B / 2);
        CHECK_INT(s.late, 0);
        pair_check(&p, &m);
    }
    pair_free(&p);
    neo_ctx_destroy(ctx);
    stated = 0;
}
/* Rows that two batches read at once lie close, but not in order: what a thread has read of them
   before is not taken for what they are now. */
static void batches_meet(void) {
    enum { FAR = 298, B = FAR + 2, ROWS = 400000, X = 50000 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    int64_t offsets[B + 1], ids[3][B];
    for (int i = 0; i <= B; i++) offsets[i] = i;
    for (int n = 0; n < 2; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        no_rings = n, readers = 1;
        if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 3, 600000)) {
            const int64_t lines = neo_tier_get_stats(p.tier).line_count;
            const neo_jagged three = batch_of(offsets, ids[0], 3);
            const neo_jagged one = batch_of(offsets, ids[0], 1);
            const neo_jagged a = batch_of(offsets, ids[1], B), b = batch_of(offsets, ids[2], B);
            for (int i = 0; i < B; i++) {
                ids[1][i] = i < FAR ? 3000 + 100 * i : X + 2 * (i - FAR);
                ids[2][i] = X + 1 + 900 * i;
            }
            const neo_jagged *const order[3] = {&a, &b, &three};
            for (int turn = 0; turn < 2; turn++) {
                for (int i = 0; i < 3; i++) ids[0][i] = X + i;
                if (turn) CHECK_OK(neo_bags_prefetch(p.tiered, &three));
                wait_for_reads(p.tier);
                for (int i = turn ? 2 : 0; i < 3; i++) (void)stepped_hits(&p, order[i]);
                for (int64_t k = 0; k < 2 * lines + B; k++) { /* those leave, one by one */
                    ids[0][0] = 3050 + k % 40000;
                    (void)stepped_hits(&p, &one);
                }
            }
            CHECK_OK(neo_bags_prefetch(p.tiered, &a));
            CHECK_OK(neo_bags_prefetch(p.tiered, &b));
            wait_for_reads(p.tier);
            for (int i = 0; i < 2; i++) (void)stepped_hits(&p, order[i]);
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    no_rings = 0, readers = 2;
}

/* Stalls, counted: a call waits for each row that it reads itself. Of those that it waits for
   without lookahead four of five are hidden where computing leaves reads the time they take, which
   is modelled by waiting until none is pending, and none is late. budget: above the least. */
static int64_t stalls(int prefetch, int64_t budget) {
    enum { ROWS = 6000, B = 64, STEPS = 200 };
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    uint64_t draw = 1;
    int64_t waited = 0;
    Model m;
    Pair p;
    Batch b[2];
    Out out;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.max_batch = m.desc.max_ids = B;
    for (int i = 0; i < 2; i++) {
        batch_make(&b[i], &m, (BatchKind){B, 0, 0, 0, 0, 0});
        b[i].j.ids = malloc(B * sizeof(int64_t));
        for (int64_t k = 0; k <= B; k++) b[i].offsets[k] = k;
    }
    out_make(&out, &m, &b[0].j, 0);
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, prefetch, budget)) {
        for (int step = 0; step < STEPS; step++) {
            const Batch *now = &b[step % 2], *next = &b[(step + 1) % 2];
            for (int64_t k = 0; k < B; k++) {
                draw = draw * 6364136223846793005u + 1442695040888963407u;
                ((int64_t *)(uintptr_t)next->j.ids)[k] =
                    (int64_t)((draw >> 33) % (k % 2 ? ROWS : 100));
            }
            if (step == 0) continue;
            if (step == STEPS / 2) neo_tier_reset_stats(p.tier);
            CHECK_OK(neo_bags_forward(p.tiered, &now->j, out.t));
            CHECK_OK(neo_bags_prefetch(p.tiered, &next->j));
            CHECK_OK(neo_bags_backward(p.tiered, &now->j, out.t, 0.01f));
            wait_for_reads(p.tier);
        }
        const neo_tier_stats s = neo_tier_get_stats(p.tier);
        CHECK_INT(s.late, 0);
        waited = s.read - s.prefetched;
    }
    pair_free(&p);
    for (int i = 0; i < 2; i++) free((void *)(uintptr_t)b[i].j.ids), batch_free(&b[i]);
    free(out.data);
    neo_ctx_destroy(ctx);
    return waited;
}
static void hidden_stalls(void) {
    for (int64_t budget = 0; budget <= 40000; budget += 20000) {
        const int64_t all = stalls(0, budget), left = stalls(1, budget);
        CHECK(all > 500);
        if (!(5 * left <= all)) FAIL("of %lld stalls %lld left", (long long)all, (long long)left);
    }
}

/* ---- reads by io_uring ---- */
#if defined(__linux__) && defined(__x86_64__)
enum { RING_WHOLE, RING_ZERO, RING_NONE, RING_PIECES, RING_FAILS, RING_WAYS };
static int ring_way, ring_zero; /* zero: standard input is closed, and a ring may have its number */
static int64_t ring_calls, ring_asked;
static long call_system(long number, const long *word) {
    register long r10 __asm__("r10") = word[3];
    register long r8 __asm__("r8") = word[4];
    register long r9 __asm__("r9") = word[5];
    long result;
    __asm__ __volatile__("syscall"
                         : "=a"(result)
                         : "a"(number), "D"(word[0]), "S"(word[1]), "d"(word[2]), "r"(r10),
                           "r"(r8), "r"(r9)
                         : "rcx", "r11", "memory");
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}
/* This program's syscall is the one that neo calls: it may fail, or take less than it is asked. */
long syscall(long number, ...);
long syscall(long number, ...) {
    long word[6] = {0};
    va_list args;
    va_start(args, number);
    for (int i = 0; i < (number == 425 ? 2 : 6); i++) word[i] = va_arg(args, long);
    va_end(args);
    if (number == 425 && ring_way == RING_ZERO && !__atomic_exchange_n(&ring_zero, 1, 5)) close(0);
    if (number == 425 && ring_way == RING_NONE) return errno = ENOSYS, -1;
    if (number == 426) {
        const int64_t call = __atomic_add_fetch(&ring_calls, 1, __ATOMIC_RELAXED);
        if (ring_way == RING_PIECES && call % 3 == 0) return errno = EINTR, -1;
        if (ring_way == RING_FAILS && call > 60 && call % 5 == 0) return errno = EIO, -1;
        if (ring_way >= RING_PIECES && word[1] > 3) word[1] = 3;
        if (ring_way >= RING_PIECES) word[2] = 1;
        __atomic_add_fetch(&ring_asked, word[1], __ATOMIC_RELAXED);
    }
    return call_system(number, word);
}
#endif
static void by_rings(void) {
#if defined(__linux__) && defined(__x86_64__)
    enum { USED = 2000, APART = 60, B = 64, STEPS = 120 }; /* no two rows lie close */
    const int64_t rows[1] = {USED * APART}, dims[1] = {16};
    long words[32] = {4, (long)(uintptr_t)calloc(1, 120), 0, 0, 0, 0};
    const long ring = call_system(425, words);
    free((void *)(uintptr_t)words[1]);
    if (ring < 0) SKIP("the system has no io_uring");
    close((int)ring);
    for (int n = 0; n < 2 * RING_WAYS; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        ring_way = n / 2;
        ring_calls = ring_asked = no_rings = ring_zero = 0;
        if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, n % 2, 0)) {
            for (int step = 0; step < STEPS; step++) {
                Batch b;
                batch_make(&b, &m, (BatchKind){B, 1, 0, 0, 0, 0});
                for (int64_t k = 0; k < neo_jagged_id_count(&b.j); k++)
                    batch_set_id(&b, k, (int64_t)test_random() % USED * APART);
                CHECK_OK(neo_bags_prefetch(p.tiered, &b.j));
                wait_for_reads(p.tier);
                pair_step(&p, &m, &b, 0, 0.1f);
                batch_free(&b);
            }
            const neo_tier_stats s = neo_tier_get_stats(p.tier);
            CHECK(s.read > 1000);
            if (n % 2) CHECK_INT(s.late, 0);
            if (ring_way == RING_NONE) CHECK_INT(ring_asked, 0);
            else if (ring_way == RING_FAILS) CHECK(ring_asked > 0 && ring_asked < s.read / 2);
            else CHECK(ring_asked > s.read / 2);
            pair_check(&p, &m);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
        if (ring_way == RING_ZERO) CHECK_INT(open("/dev/null", O_RDONLY), 0); /* it is free again */
    }
    ring_way = RING_WHOLE;
#else
    SKIP("system calls of Linux on x86-64");
#endif
}

/* ---- files that fail ---- */
enum { BAD_CUT, BAD_BYTE, BAD_FULL, BAD_LAST, BAD_COUNT }; /* LAST: full behind the last call */
static void bad_files(void) {
#if defined(_WIN32)
    SKIP("limits of POSIX");
#else
    enum { ROWS = 6000, B = 64 };
    static const char *const says[] = {"ends before byte", "has been altered", "cannot write",
                                       "cannot write"};
    const int64_t rows[1] = {ROWS}, dims[1] = {16};
    struct rlimit was;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    for (int n = 0; n < 4 * BAD_COUNT; n++) {
        const int bad = n / 4, behind = n % 2; /* rows that leave are written behind the call */
        no_rings = n / 2 % 2;
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        Model m;
        Pair p;
        neo_status status = NEO_OK;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = B;
        if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, behind, 0)) {
            for (int step = 0; step < 1000 && status == NEO_OK; step++) {
                if (bad == BAD_LAST && neo_tier_get_stats(p.tier).written) break;
                const BatchKind kind = {bad == BAD_LAST ? 8 : B, 1, 0, 0, 0, 0};
                Batch b;
                Out out;
                batch_make(&b, &m, kind);
                for (int64_t k = 0; k < neo_jagged_id_count(&b.j); k++)
                    batch_set_id(&b, k, (int64_t)test_random() % ROWS);
                out_make(&out, &m, &b.j, 0);
                if (step == 20 && bad == BAD_CUT) CHECK(truncate(at("rows.tier"), 1000) == 0);
                if (step == 20 && bad == BAD_BYTE) {
                    FILE *f = fopen(at("rows.tier"), "r+b");
                    for (int64_t i = 0; f && i < ROWS; i++) {
                        fseek(f, 4096 + i * 68 + 40, SEEK_SET);
                        fputc(9, f);
                    }
                    if (f) fclose(f);
                }
                if (bad == BAD_LAST || (step == 20 && bad == BAD_FULL)) {
                    const rlim_t most = bad == BAD_FULL ? 4096 + ROWS * 68 / 2 + 30 : 4096;
                    const struct rlimit now = {most, was.rlim_max};
                    setrlimit(RLIMIT_FSIZE, &now);
                }
                status = neo_bags_forward(p.tiered, &b.j, out.t);
                if (status == NEO_OK) status = neo_bags_backward(p.tiered, &b.j, out.t, 0.1f);
                free(out.data);
                batch_free(&b);
            }
            uint64_t digest = 7;
            if (bad == BAD_LAST && behind) {
                CHECK_OK(status); /* the digest is the first that tells */
                status = neo_state_digest_group(p.state[1], NULL, &digest);
            }
            setrlimit(RLIMIT_FSIZE, &was);
            /* what was cut off and written behind is a hole */
            const int says_hole = bad == BAD_CUT && strstr(neo_last_error(), says[BAD_BYTE]);
            const char *what = says[says_hole ? BAD_BYTE : bad];
            const char *parts[] = {what, bad == BAD_LAST ? "" : "neo_bags_", at("rows.tier"),
                                   "table 't0', row ", ", byte "};
            CHECK(status == (what == says[BAD_BYTE] ? NEO_ERR_CORRUPT : NEO_ERR_IO));
            for (int i = 0; i < 5; i++)
                if (!strstr(neo_last_error(), parts[i]))
                    FAIL("no %s: %s", parts[i], neo_last_error());
            float row[16];
            CHECK(neo_bags_get_rows(p.tiered, 0, 0, 1, row) != NEO_OK);
            CHECK(strstr(neo_last_error(), what) != NULL);
            CHECK(neo_state_digest_group(p.state[1], NULL, &digest) == status && digest == 7);
            CHECK(strstr(neo_last_error(), what) != NULL);
            CHECK_INT(neo_state_digest(p.state[1]), 0);
        }
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    no_rings = 0;
#endif
}
/* A device that fails (EIO), as memory does where there is none, which takes the file's place:
   reads by rings and one by one, of a call and ahead of it, and writes. Nothing is looked up or
   stepped any more; the checkpoint from before has all bits. */
#if defined(__linux__)
static int tier_file(void) {
    struct stat wanted, found;
    int fd = stat(at("rows.tier"), &wanted) ? 1024 : 0;
    while (fd < 1024 && (fstat(fd, &found) || found.st_ino != wanted.st_ino ||
                         found.st_dev != wanted.st_dev))
        fd++;
    CHECK(fd < 1024);
    return fd;
}
static void few_rows(Batch *b, const Model *m, int64_t bags) {
    batch_make(b, m, (BatchKind){bags, 0, 0, 0, 0, 0});
    b->ids = realloc(b->ids, sizeof(int64_t) * (size_t)bags);
    b->j.ids = b->ids;
    for (int64_t k = 0; k < bags; k++) {
        b->offsets[k + 1] = k + 1;
        batch_set_id(b, k, (int64_t)test_random() % m->table[0].rows);
    }
}
/* The message has this byte of the file for a row. */
static void check_place(const char *what, int64_t record) {
    const char *row = strstr(neo_last_error(), "(table 't0', row ");
    const char *byte = row ? strstr(row, ", byte ") : NULL;
    if (!row || !byte || !strstr(neo_last_error(), what) ||
        !strstr(neo_last_error(), strerror(EIO)) || !strstr(neo_last_error(), at("rows.tier")))
        FAIL("no %s, or no place: %s", what, neo_last_error());
    else CHECK_INT(strtoll(byte + 7, NULL, 10), 4096 + strtoll(row + 17, NULL, 10) * record);
}
enum { FAILS_READ, FAILS_AHEAD, FAILS_WRITE, FAILS_COUNT };
static void fail_device(Pair *p, const Model *m, int fails) {
    Batch b;
    Out out;
    const int fd = tier_file(), memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    few_rows(&b, m, 64);
    out_make(&out, m, &b.j, 0);
    for (int i = 0; i < 30; i++) { /* lines differ from the file no more */
        CHECK_OK(neo_bags_forward(p->tiered, &b.j, out.t));
        for (int64_t k = 0; k < 64 && i < 29; k++)
            batch_set_id(&b, k, (int64_t)test_random() % m->table[0].rows);
    }
    if (fails == FAILS_WRITE) CHECK_OK(neo_bags_backward(p->tiered, &b.j, out.t, 0.1f));
    CHECK(memory >= 0 && dup2(memory, fd) == fd);
    for (int64_t k = 0; k < 64; k++) batch_set_id(&b, k, m->table[0].rows / 2 + k);
    if (fails == FAILS_AHEAD) CHECK_OK(neo_bags_prefetch(p->tiered, &b.j));
    if (fails == FAILS_AHEAD) wait_for_reads(p->tier);
    CHECK(neo_bags_forward(p->tiered, &b.j, out.t) == NEO_ERR_IO);
    const char *what = fails == FAILS_WRITE ? "cannot write" : "cannot read";
    CHECK(strncmp(neo_last_error(), "neo_bags_forward: ", 18) == 0);
    check_place(what, 68);
    CHECK(neo_bags_backward(p->tiered, &b.j, out.t, 0.1f) == NEO_ERR_IO);
    check_place(what, 68);
    CHECK_INT(neo_state_digest(p->state[1]), 0);
    close(memory);
    free(out.data);
    batch_free(&b);
}
#endif
static void device_fails(void) {
#if defined(__linux__)
    const int64_t rows[1] = {6000}, dims[1] = {16};
    char dir[3100];
    snprintf(dir, sizeof dir, "%s", at("before"));
    for (int n = 0; n < 2 * FAILS_COUNT; n++) {
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        neo_save_desc save;
        neo_load_desc load;
        Model m;
        Pair p;
        Batch b;
        no_rings = n % 2;
        model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
        m.desc.max_batch = m.desc.max_ids = 64;
        memset(&save, 0, sizeof save);
        memset(&load, 0, sizeof load);
        save.dir = load.dir = dir;
        save.step = load.step = n + 1;
        if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, n / 2 == FAILS_AHEAD, 0)) {
            for (int step = 0; step < 200; step++) { /* most rows */
                few_rows(&b, &m, 64);
                pair_step(&p, &m, &b, 0, 0.1f);
                batch_free(&b);
            }
            for (int64_t k = 0; k < rows[0]; k++) { /* and all have a record */
                float row[16];
                CHECK_OK(neo_bags_get_rows(p.tiered, 0, k, 1, row));
                CHECK_OK(neo_bags_set_rows(p.tiered, 0, k, 1, row));
            }
            CHECK_OK(neo_save(ctx, &save, p.state[1]));
            fail_device(&p, &m, n / 2);
        }
        const uint64_t want = neo_state_digest(p.state[0]);
        neo_state_destroy(p.state[1]);
        neo_bags_destroy(p.tiered);
        neo_tier_destroy(p.tier);
        p.state[1] = NULL, p.tiered = NULL, p.tier = NULL;
        Pair q;
        if (pair_make(&q, ctx, &m, NEO_EVICT_LFU, 0, 20000)) {
            CHECK_OK(neo_load(ctx, &load, q.state[1], NULL));
            CHECK(neo_state_digest(q.state[1]) == want);
        }
        pair_free(&q);
        pair_free(&p);
        neo_ctx_destroy(ctx);
    }
    no_rings = 0;
#else
    SKIP("memory as a file of Linux");
#endif
}
/* A reserve that finds no memory, of its own or the tier's, leaves the capacity as it was. */
#if !defined(_WIN32)
static int allocs_left;
static void *few_alloc(size_t size, size_t align, void *user) {
    void *p = NULL;
    (void)user;
    if (allocs_left-- == 0 || posix_memalign(&p, align < sizeof p ? sizeof p : align, size) != 0)
        return NULL;
    return p;
}
static void few_free(void *p, size_t size, void *user) {
    (void)size, (void)user;
    free(p);
}
#endif
static void reserve_fails(void) {
#if defined(_WIN32)
    SKIP("aligned memory of POSIX");
#else
    enum { B = 16, MORE = 4096 };
    const int64_t rows[1] = {5000}, dims[1] = {8};
    const neo_ctx_desc ctx_desc = {.threads = 1, .allocator = {few_alloc, few_free, NULL}};
    neo_ctx *ctx = NULL;
    neo_status status = NEO_ERR_MEMORY;
    Model m;
    Pair p;
    Batch b;
    Out out;
    allocs_left = -1;
    CHECK_OK(neo_ctx_create(&ctx_desc, &ctx));
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.max_batch = m.desc.max_ids = B;
    batch_make(&b, &m, (BatchKind){MORE, 3, 0, 0, 0, 0});
    out_make(&out, &m, &b.j, 0);
    const int64_t ids = neo_jagged_id_count(&b.j);
    if (pair_make(&p, ctx, &m, NEO_EVICT_LRU, 1, 0)) {
        int fails = 0;
        for (; status == NEO_ERR_MEMORY; fails++) {
            allocs_left = fails;
            status = neo_bags_reserve(p.tiered, MORE, ids);
            allocs_left = -1;
            if (status != NEO_OK)
                CHECK(neo_bags_forward(p.tiered, &b.j, out.t) == NEO_ERR_CAPACITY);
        }
        CHECK_OK(status);
        CHECK(fails > 2);
        CHECK_OK(neo_bags_forward(p.tiered, &b.j, out.t));
    }
    pair_free(&p);
    free(out.data);
    batch_free(&b);
    neo_ctx_destroy(ctx);
#endif
}
static void refused(void) {
    const int64_t rows[1] = {5000}, dims[1] = {8};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tier_desc desc = {at("rows.tier"), 1000000, NEO_EVICT_LRU, 0, 0, 0, 0, 0}, bad = desc;
    neo_tier *tier = NULL, *other = NULL;
    neo_bags *bags = NULL, *more = NULL;
    Model m;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    bad.path = NULL;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG,
              "path is NULL, on a context without");
    bad = desc, bad.queue_depth = -1;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "queue_depth is -1, not from 0 to ");
    bad = desc, bad.memory_bytes = 0;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "memory_bytes is 0, below 1");
    bad = desc, bad.evict = NEO_EVICT_AGE;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "evict is 2, not from 0 to 1 (LRU");
    bad = desc, bad.period = 9;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "period is 9, not 0 with LRU");
    bad.evict = NEO_EVICT_LFU, bad.period = -7;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "period is -7, below 0");
    bad = desc, bad.prefetch = 65;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "prefetch is 65, not from 0 to 64");
    bad = desc, bad.ahead_rows = 9;
    CHECK_ERR(neo_tier_create(ctx, &bad, &tier), NEO_ERR_ARG, "ahead_rows is 9, not 0 without");
    m.desc.max_batch = m.desc.max_ids = 64;
    desc.memory_bytes = least_bytes(ctx, m.desc, desc);
    const int64_t taken[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 2 - 1, 1};
    for (int i = 0; i < 5; i++) { /* what others take of it */
        CHECK_OK(neo_tier_create(ctx, &desc, &tier));
        m.desc.tier = tier, m.desc.tier_taken = taken[i];
        CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG,
                  i < 3 ? "tier_taken is " : " of copies of tables");
        neo_tier_destroy(tier);
    }
    m.desc.tier_taken = 0;
    bad = desc, bad.memory_bytes = desc.memory_bytes - 1;
    CHECK_OK(neo_tier_create(ctx, &bad, &tier));
    m.desc.tier = tier;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "a batch of these tables needs");
    neo_tier_destroy(tier);
    REQUIRE_OK(neo_tier_create(ctx, &desc, &tier));
    m.desc.tier = tier;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_ARG, "another neo_bags has it");
    REQUIRE_OK(neo_tier_create(ctx, &desc, &other));
    m.desc.tier = other;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_IO, "another run, or rank, has");
    neo_tier_destroy(other);
    static float memory[5000 * 8];
    m.table[0].weight = memory;
    bad = desc, bad.path = at("other.tier");
    REQUIRE_OK(neo_tier_create(ctx, &bad, &other));
    m.desc.tier = other;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_ARG, "memory of yours");
    m.table[0].weight = NULL;
    neo_tier_destroy(other);
    bad.path = at("none/rows.tier");
    REQUIRE_OK(neo_tier_create(ctx, &bad, &other));
    m.desc.tier = other;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_NOT_FOUND, "none/rows.tier");
    neo_tier_destroy(other);
#if !defined(_WIN32)
    bad.path = at("link.tier");
    CHECK_INT(symlink("other.tier", bad.path), 0);
    REQUIRE_OK(neo_tier_create(ctx, &bad, &other));
    m.desc.tier = other;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_IO, "link.tier: a symbolic link");
    neo_tier_destroy(other);
    CHECK_INT(unlink(bad.path), 0); /* is still there */
#endif
    /* somebody's file stays as it is; one that a killed run left is taken */
    const char *const had[] = {"p", "precious, and longer than the mark", "neo tier"};
    for (int i = 0; i < 3; i++) {
        const size_t bytes = strlen(had[i]) + 1;
        char now[64] = "";
        bad.path = at("found.tier");
        FILE *f = fopen(bad.path, "wb");
        CHECK(f && fwrite(had[i], 1, bytes, f) == bytes && fclose(f) == 0);
        REQUIRE_OK(neo_tier_create(ctx, &bad, &other));
        m.desc.tier = other;
        if (i == 2) {
            CHECK_OK(neo_bags_create(ctx, &m.desc, &more));
            neo_bags_destroy(more);
            more = NULL;
            CHECK(fopen(bad.path, "rb") == NULL);
        } else {
            CHECK_ERR(neo_bags_create(ctx, &m.desc, &more), NEO_ERR_IO, "would be lost");
            f = fopen(bad.path, "rb");
            CHECK(f && fread(now, 1, sizeof now, f) == bytes && strcmp(now, had[i]) == 0);
            if (f) fclose(f);
            remove(bad.path);
        }
        neo_tier_destroy(other);
    }
    CHECK(neo_bags_weight(bags, 0).place == NEO_FILE);
    neo_tier_destroy(tier); /* its neo_bags is there: so it stays */
    float row[8];
    CHECK_OK(neo_bags_get_rows(bags, 0, 0, 1, row));
    neo_bags_destroy(bags);
    neo_tier_destroy(tier);
    neo_ctx_destroy(ctx);
}

int main(int argc, char **argv) {
    snprintf(folder, sizeof folder - 100, "%s.", argv[0]);
    (void)argc;
    RUN(same_bits);
    RUN(tables_of_keys);
    RUN(overflow_and_growth);
    RUN(batches_in_between);
    RUN(ids_of_another_table);
    RUN(checkpoints);
    RUN(saved_meanwhile);
    RUN(keys_saved_meanwhile);
    RUN(hits_of_a_simulator);
    RUN(reads_ahead);
    RUN(batches_ahead);
    RUN(announced_lines_stay);
    RUN(announced_in_order);
    RUN(asked_again);
    RUN(written_since);
    RUN(budgets);
    RUN(keys_dropped_meanwhile);
    RUN(batches_meet);
    RUN(hidden_stalls);
    RUN(by_rings);
    RUN(bad_files);
    RUN(device_fails);
    RUN(reserve_fails);
    RUN(refused);
    return test_end("tiers");
}
