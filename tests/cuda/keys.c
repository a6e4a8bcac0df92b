/* keys.c: tables with keys on a device against the same on the CPU, step by step: pooled rows,
   gradients of weights, the digest of all state (keys, counts, filters among it) and what the keys
   did, bit for bit; under all poolings, row dtypes, initial values, rules of who comes and goes,
   row buckets, parts of tables, kept gradients, batches on either side or with each distinct bag
   once, in steps that are recorded, and with most rows in host memory below the device. The tables
   are small, so that keys come and go. */
#include "test.h"

#include "neo_cuda.cuh"
#include "neo_state.h"
#include "neo_store.h"

enum { BATCH = 9, FEATURES = 4, TABLES = 3, MOST = 400, KEYS = 260, STEPS = 7, MORE = 4000 };
typedef struct Case {
    const char *name;
    neo_pooling pooling;
    neo_dtype dtype;
    neo_init_kind init;
    neo_bag_optim_kind optim;
    neo_keys keys;
    neo_bounds bounds;
    int buckets, weighted, i32, keeps, there, tier, part, dim, folds;
} Case;
static const Case cases[] = {
    {"sum", NEO_POOL_SUM, NEO_F32, NEO_INIT_DEFAULT, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 0, 0, 0, 0}, NEO_BOUNDS_ERROR, 0, 0, 0, 0, 0, 0, 0, 16, 0},
    {"mean f16, LFU", NEO_POOL_MEAN, NEO_F16, NEO_INIT_NORMAL, NEO_BAG_ADAGRAD,
     {1, NEO_EVICT_LFU, 3, 2, 0, 0, 0}, NEO_BOUNDS_DROP, 2, 1, 1, 0, 1, 0, 0, 7, 0},
    {"i8, buckets", NEO_POOL_SUM, NEO_I8, NEO_INIT_NORMAL, NEO_BAG_ROWWISE_ADAGRAD,
     {1, NEO_EVICT_AGE, 2, 2, 0, 1, 0}, NEO_BOUNDS_CLAMP, 2, 0, 0, 0, 0, 0, 0, 20, 0},
    {"i8, mean, shared", NEO_POOL_MEAN, NEO_I8, NEO_INIT_UNIFORM, NEO_BAG_SGD,
     {1, NEO_EVICT_SCORE, 0, 3, 1, 0, 1}, NEO_BOUNDS_DROP, 0, 1, 0, 1, 1, 0, 0, 33, 0},
    {"none, bf16", NEO_POOL_NONE, NEO_BF16, NEO_INIT_UNIFORM, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, NEO_BOUNDS_CLAMP, 0, 1, 0, 0, 0, 0, 0, 12, 0},
    {"none, i8", NEO_POOL_NONE, NEO_I8, NEO_INIT_NORMAL, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 1, 0, 0}, NEO_BOUNDS_DROP, 0, 0, 1, 0, 1, 0, 0, 9, 0},
    {"a constant, kept", NEO_POOL_SUM, NEO_F32, NEO_INIT_CONSTANT, NEO_BAG_FTRL,
     {1, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, NEO_BOUNDS_CLAMP, 0, 0, 0, 1, 1, 0, 0, 64, 0},
    {"part of rows and columns", NEO_POOL_SUM, NEO_BF16, NEO_INIT_UNIFORM, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, NEO_BOUNDS_DROP, 2, 1, 0, 0, 0, 0, 1, 13, 0},
    {"below", NEO_POOL_SUM, NEO_F32, NEO_INIT_NORMAL, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, NEO_BOUNDS_CLAMP, 2, 0, 0, 0, 0, 1, 0, 16, 0},
    {"below, i8, kept", NEO_POOL_MEAN, NEO_I8, NEO_INIT_UNIFORM, NEO_BAG_ADAGRAD,
     {1, NEO_EVICT_LFU, 2, 2, 1, 0, 0}, NEO_BOUNDS_DROP, 0, 1, 1, 1, 1, 1, 0, 20, 0},
    {"below, none", NEO_POOL_NONE, NEO_F16, NEO_INIT_UNIFORM, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 0, 1, 0}, NEO_BOUNDS_ERROR, 0, 1, 0, 0, 1, 1, 0, 8, 0},
    {"repeats", NEO_POOL_SUM, NEO_F32, NEO_INIT_NORMAL, NEO_BAG_ADAM,
     {1, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, NEO_BOUNDS_ERROR, 2, 1, 0, 0, 0, 0, 0, 16, 1},
    {"repeats, kept", NEO_POOL_MEAN, NEO_I8, NEO_INIT_UNIFORM, NEO_BAG_ADAGRAD,
     {1, NEO_EVICT_LFU, 2, 3, 1, 0, 0}, NEO_BOUNDS_CLAMP, 0, 0, 1, 1, 0, 0, 0, 20, 1}};

typedef struct Side {
    neo_ctx *ctx;
    neo_bags *bags;
    neo_tier *tier;
    neo_state *state;
    neo_tensor out, dout, dweights, offsets, ids, weights;
    size_t before; /* bytes without the bags */
} Side;
static neo_device *gpu;
static neo_ctx *make_ctx(neo_device *device) {
    neo_ctx *ctx = NULL;
    const neo_ctx_desc d = {.threads = 2, .repro_shards = 3, .seed = 7, .device = device};
    CHECK_OK(neo_ctx_create(&d, &ctx));
    return ctx;
}
static void describe(const Case *c, neo_table_desc table[TABLES], neo_bags_desc *d) {
    static const int32_t feature_table[FEATURES] = {0, 1, 2, 0};
    static const char *const names[TABLES] = {"a", "b", "plain"};
    memset(table, 0, TABLES * sizeof *table), memset(d, 0, sizeof *d);
    for (int t = 0; t < TABLES; t++) {
        table[t].name = names[t];
        table[t].rows = t == 2 ? 50 : c->tier ? 1024 : 64;
        table[t].dim = c->dim + (t == 1 && c->pooling != NEO_POOL_NONE && !c->part);
        table[t].pooling = c->pooling;
        table[t].optim.kind = c->optim;
        table[t].optim.initial_accumulator = c->optim == NEO_BAG_ADAGRAD ? 0.25f : 0.0f;
        table[t].init.kind = c->init;
        table[t].init.a = c->init == NEO_INIT_UNIFORM ? -0.3f : 0.1f, table[t].init.b = 0.7f;
        if (c->init == NEO_INIT_DEFAULT) memset(&table[t].init, 0, sizeof table[t].init);
        table[t].dtype = c->dtype;
        table[t].row_buckets = t == 2 ? 0 : c->buckets;
        if (t < 2) table[t].keys = c->keys;
        if (t < 2 && c->part) table[t].part = (neo_table_part){128, 16 + c->dim, 64, 16};
    }
    table[1].keys.admit = table[1].keys.bloom = 0;
    d->tables = table, d->table_count = TABLES;
    d->feature_table = feature_table, d->feature_count = FEATURES;
    d->max_batch = BATCH, d->max_ids = MOST, d->bounds = c->bounds;
    d->max_kept_rows = c->keeps ? 200 : 0;
    d->inverse = c->folds;
}
/* The tier's messages say the least budget, of which nearly nothing stays in the cache. */
static void add_tier(Side *s, neo_bags_desc *d) {
    neo_tier_desc least = {.memory_bytes = 1};
    neo_bags_memory memory;
    for (int tries = 0; tries < 9; tries++) {
        REQUIRE_OK(neo_tier_create(s->ctx, &least, &s->tier));
        d->tier = s->tier;
        if (neo_bags_bytes(s->ctx, d, &memory) == NEO_OK) return;
        const char *needs = strstr(neo_last_error(), "needs ");
        REQUIRE(needs != NULL);
        least.memory_bytes = strtoll(needs + 6, NULL, 10);
        neo_tier_destroy(s->tier);
    }
    REQUIRE(!"no budget is enough");
}
static void side_make(Side *s, neo_device *device, const Case *c) {
    neo_table_desc table[TABLES];
    neo_bags_desc d;
    neo_bags_memory bytes;
    memset(s, 0, sizeof *s);
    s->ctx = make_ctx(device);
    describe(c, table, &d);
    if (device && c->tier) add_tier(s, &d);
    s->before = neo_ctx_memory(s->ctx).bytes;
    REQUIRE_OK(neo_bags_bytes(s->ctx, &d, &bytes));
    REQUIRE_OK(neo_bags_create(s->ctx, &d, &s->bags));
    CHECK_INT(neo_ctx_memory(s->ctx).bytes - s->before,
              bytes.weight_bytes + bytes.state_bytes + bytes.workspace_bytes);
    REQUIRE_OK(neo_state_create(s->ctx, &s->state));
    REQUIRE_OK(neo_state_add_bags(s->state, s->bags));
    const int64_t cols = neo_bags_out_width(s->bags); /* without pooling: more than a row's */
    REQUIRE_OK(neo_tensor_alloc(s->ctx, NEO_F32, 1, (int64_t[]){MOST * cols}, &s->out));
    REQUIRE_OK(neo_tensor_alloc(s->ctx, NEO_F32, 1, (int64_t[]){MOST * cols}, &s->dout));
    REQUIRE_OK(neo_tensor_alloc(s->ctx, NEO_F32, 1, (int64_t[]){MOST}, &s->dweights));
    REQUIRE_OK(neo_tensor_alloc(s->ctx, NEO_I64, 1, (int64_t[]){FEATURES * BATCH + 1},
                                &s->offsets));
    REQUIRE_OK(neo_tensor_alloc(s->ctx, c->i32 ? NEO_I32 : NEO_I64, 1, (int64_t[]){MOST}, &s->ids));
    REQUIRE_OK(neo_tensor_alloc(s->ctx, NEO_F32, 1, (int64_t[]){MOST}, &s->weights));
}
static void side_free(Side *s) {
    neo_tensor *all[] = {&s->out, &s->dout, &s->dweights, &s->offsets, &s->ids, &s->weights};
    for (int i = 0; i < 6; i++) neo_tensor_free(s->ctx, all[i]);
    neo_state_destroy(s->state);
    neo_bags_destroy(s->bags);
    neo_tier_destroy(s->tier);
    CHECK_INT(neo_ctx_memory(s->ctx).device_bytes, 0);
    neo_ctx_destroy(s->ctx);
}

/* A batch, and a copy on the device. Of few keys, so that they come back; some of all bits. */
typedef struct Ids {
    int64_t offsets[FEATURES * BATCH + 1], ids[MOST];
    int32_t small[MOST];
    float weights[MOST];
    neo_jagged j;
    neo_jagged_buffer *folded; /* with each distinct bag once, or NULL */
} Ids;
static uint64_t key_of(int i) {
    if (i == 0) return 0;
    return i == 1 ? UINT64_MAX : (uint64_t)i * 0x9E3779B97F4A7C15u >> (i % 7 * 9);
}
static void ids_make(Ids *b, const Case *c) {
    int64_t n = 0;
    memset(b, 0, sizeof *b);
    for (int f = 0, k = 0; f < FEATURES; f++)
        for (int i = 0; i < BATCH; i++, k++) {
            const int count = (int)(test_random() % (i == 4 ? 24 : 9));
            b->offsets[k] = n;
            for (int q = 0; q < count; q++, n++) {
                const int far = c->bounds != NEO_BOUNDS_ERROR && test_random() % 20 == 0;
                uint64_t id = key_of((int)(test_random() % (c->tier ? MORE : KEYS)));
                if (test_random() % 2) id = key_of((int)(test_random() % 12));
                if (f == 2) id = far ? (uint64_t)(q % 2 ? -5 : 5000) : test_random() % 50;
                b->ids[n] = (int64_t)id;
                if (c->i32) b->small[n] = (int32_t)id;
                b->weights[n] = test_uniform();
            }
        }
    b->offsets[FEATURES * BATCH] = n;
    b->j.batch = BATCH, b->j.feature_count = FEATURES;
    b->j.offsets = b->offsets, b->j.id_dtype = c->i32 ? NEO_I32 : NEO_I64;
    b->j.ids = c->i32 ? (const void *)b->small : b->ids;
    b->j.weights = c->weighted ? b->weights : NULL;
}
/* Samples 6 and 7 read what 2 does; then each distinct bag once. */
static void ids_fold(neo_ctx *ctx, const Case *c, Ids *b) {
    static const int order[BATCH] = {0, 1, 2, 3, 2, 5, 2, 2, 8};
    neo_jagged_buffer *part[BATCH];
    const neo_jagged *parts[BATCH];
    const neo_jagged_desc d = {FEATURES, FEATURES * BATCH, 4 * MOST, c->i32 ? NEO_I32 : NEO_I64,
                               c->weighted, 1, NEO_HOST};
    for (int i = 0; i < BATCH; i++) {
        REQUIRE_OK(neo_jagged_create(ctx, &d, &part[i]));
        REQUIRE_OK(neo_jagged_slice(part[i], &b->j, order[i], 1));
        parts[i] = neo_jagged_view(part[i]);
    }
    REQUIRE_OK(neo_jagged_create(ctx, &d, &b->folded));
    REQUIRE_OK(neo_jagged_stack(b->folded, parts, BATCH));
    REQUIRE_OK(neo_jagged_dedup(b->folded));
    b->j = *neo_jagged_view(b->folded);
    CHECK(neo_jagged_id_count(&b->j) < neo_jagged_full_id_count(&b->j));
    for (int i = 0; i < BATCH; i++) neo_jagged_destroy(part[i]);
}
static neo_jagged ids_there(const Side *s, Ids *b) {
    neo_jagged j = b->j;
    const neo_tensor offsets = neo_tensor_1d(b->offsets, NEO_I64, FEATURES * BATCH + 1);
    const neo_tensor ids = neo_tensor_1d((void *)(uintptr_t)b->j.ids, b->j.id_dtype, MOST);
    CHECK_OK(neo_tensor_copy(s->ctx, offsets, s->offsets));
    CHECK_OK(neo_tensor_copy(s->ctx, ids, s->ids));
    CHECK_OK(neo_tensor_copy(s->ctx, neo_tensor_1d(b->weights, NEO_F32, MOST), s->weights));
    j.place = NEO_DEVICE;
    j.offsets = (const int64_t *)s->offsets.data;
    j.ids = s->ids.data;
    if (j.weights) j.weights = (const float *)s->weights.data;
    return j;
}
/* Numbers of a call on a side, to the host. */
static neo_tensor shaped(const Side *s, neo_tensor t, const Case *c, int64_t ids) {
    neo_tensor as = neo_tensor_2d(t.data, NEO_F32, c->pooling == NEO_POOL_NONE ? ids : BATCH,
                                  c->pooling == NEO_POOL_NONE ? c->dim
                                                              : neo_bags_out_width(s->bags));
    as.place = t.place;
    return as;
}
static void fetch(const Side *s, neo_tensor t, float *to) {
    REQUIRE_OK(neo_tensor_copy(s->ctx, t, neo_tensor_1d(to, NEO_F32, neo_tensor_count(t))));
}
static void keys_change(Side *s, const Case *c, int step) {
    uint64_t keys[40];
    int64_t rows[40];
    float scores[40];
    for (int i = 0; i < 40; i++) keys[i] = key_of((step * 31 + i * 5) % KEYS), scores[i] = (float)i;
    CHECK_OK(neo_bags_put_keys(s->bags, 0, keys, 40, rows));
    CHECK_OK(neo_bags_drop_keys(s->bags, 0, keys + 30, 5));
    if (c->keys.evict == NEO_EVICT_SCORE)
        CHECK_OK(neo_bags_score_keys(s->bags, 0, keys, scores, 30));
    if (step == 4) CHECK_OK(neo_bags_prune_keys(s->bags, 1, 0.1f, 20, NULL));
}
static void same_stats(const Side side[2], const char *what) {
    for (int t = 0; t < TABLES; t++) {
        const neo_key_stats a = neo_bags_key_stats(side[0].bags, t);
        const neo_key_stats b = neo_bags_key_stats(side[1].bags, t);
        if (memcmp(&a, &b, sizeof a)) FAIL("%s: what keys of table %d did differs", what, t);
    }
    CHECK_INT(neo_bags_get_stats(side[0].bags).out_of_range,
              neo_bags_get_stats(side[1].bags).out_of_range);
}
static void same_state(const Side side[2], const char *what) {
    if (neo_state_digest(side[0].state) == neo_state_digest(side[1].state)) return;
    uint64_t a, b;
    for (int i = 0; neo_state_digest_entry(side[0].state, i, &a) &&
                    neo_state_digest_entry(side[1].state, i, &b); i++)
        if (a != b) FAIL("%s: entry %d of the state differs", what, i);
    FAIL("%s: states differ", what);
}
static void run_case(const Case *c, int records) {
    static float numbers[2][MOST * 200], dout[MOST * 200];
    static Ids batch;
    Side side[2];
    char what[80];
    int64_t missing = 0, admitted = 0, evicted = 0;
    neo_cuda_graph *graph = NULL;
    side_make(&side[0], NULL, c);
    side_make(&side[1], gpu, c);
    if (records) REQUIRE_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    for (int step = 0; step < (c->tier ? 2 : 1) * STEPS && !test_errors; step++) {
        ids_make(&batch, c);
        if (c->folds) ids_fold(side[0].ctx, c, &batch);
        snprintf(what, sizeof what, "%s%s, step %d", c->name, records ? ", recorded" : "", step);
        test_fill(dout, MOST * 200);
        const int64_t ids = neo_jagged_full_id_count(&batch.j);
        const uint64_t splits = graph ? neo_cuda_graph_get_stats(graph).split : 0;
        size_t bytes = 0;
        for (int i = 0; i < 2; i++) {
            Side *s = &side[i];
            const neo_tensor out = shaped(s, s->out, c, ids), d = shaped(s, s->dout, c, ids);
            const int64_t count = neo_tensor_count(d);
            const neo_jagged j = i && c->there ? ids_there(s, &batch) : batch.j;
            const size_t taken = neo_ctx_memory(s->ctx).bytes;
            neo_tensor flat = d;
            bytes = (size_t)count * sizeof(float);
            flat.ndim = 1, flat.shape[0] = count, flat.stride[0] = 1;
            REQUIRE_OK(neo_tensor_copy(s->ctx, neo_tensor_1d(dout, NEO_F32, count), flat));
            if (i && graph) REQUIRE_OK(neo_cuda_graph_begin(graph));
            if (step == 3) keys_change(s, c, step);
            REQUIRE_OK(neo_bags_forward(s->bags, &j, out));
            if (step == 2) CHECK_OK(neo_bags_reserve(s->bags, BATCH, 3 * MOST));
            if (!c->folds)
                REQUIRE_OK(neo_bags_weight_grad(s->bags, &j, d, (float *)s->dweights.data));
            if (step == 4) keys_change(s, c, step);
            if (!c->keeps) REQUIRE_OK(neo_bags_backward(s->bags, &j, d, 0.1f));
            for (int twice = 0; c->keeps && twice < 2; twice++)
                REQUIRE_OK(neo_bags_accumulate(s->bags, &j, d, NULL));
            if (c->keeps) REQUIRE_OK(neo_bags_step(s->bags, 0.1f));
            if (i && graph) REQUIRE_OK(neo_cuda_graph_end(graph));
            if (i && graph) REQUIRE_OK(neo_cuda_graph_wait(graph));
            flat.data = out.data;
            fetch(s, flat, numbers[i]);
            if (step && step != 2 && !s->tier) CHECK_INT(neo_ctx_memory(s->ctx).bytes, taken);
        }
        if (graph && !c->there && step != 3 && step != 4) /* keys that the caller gives rows wait */
            CHECK_INT(neo_cuda_graph_get_stats(graph).split, splits);
        if (memcmp(numbers[0], numbers[1], bytes)) FAIL("%s: outputs differ", what);
        for (int i = 0; i < 2 && !c->folds; i++) fetch(&side[i], side[i].dweights, numbers[i]);
        if (!c->folds && memcmp(numbers[0], numbers[1], (size_t)ids * sizeof(float)))
            FAIL("%s: gradients of weights differ", what);
        same_stats(side, what);
        same_state(side, what);
        neo_jagged_destroy(batch.folded);
    }
    neo_cuda_graph_destroy(graph);
    for (int t = 0; t < 2; t++) {
        const neo_key_stats s = neo_bags_key_stats(side[1].bags, t);
        missing += s.waited + s.refused, admitted += s.admissions, evicted += s.evictions;
    }
    if (missing < 10 || admitted < 80 || evicted < 5)
        FAIL("%s: keys: %d admitted, %d evicted, %d missing", c->name, (int)admitted, (int)evicted,
             (int)missing);
    if (side[1].tier) CHECK(neo_tier_get_stats(side[1].tier).evictions > 10);
    for (int i = 0; i < 2; i++) side_free(&side[i]);
}
static void all_cases(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int records = 0; records < (cases[i].tier ? 1 : 2); records++)
            run_case(&cases[i], records);
}

/* What a device does not do with keys, and what it refuses as the CPU does. */
static void refusals(void) {
    static Ids batch;
    static int32_t inverse[FEATURES * BATCH];
    static int64_t feature_bags[FEATURES + 1];
    Side s;
    side_make(&s, gpu, &cases[11]);
    ids_make(&batch, &cases[0]);
    neo_tensor out = shaped(&s, s.out, &cases[0], 0);
    batch.ids[batch.offsets[2 * BATCH + 4]] = 50;
    batch.offsets[2 * BATCH + 5] += batch.offsets[2 * BATCH + 5] == batch.offsets[2 * BATCH + 4];
    for (int k = 2 * BATCH + 6; k <= FEATURES * BATCH; k++)
        if (batch.offsets[k] < batch.offsets[k - 1]) batch.offsets[k] = batch.offsets[k - 1];
    CHECK_ERR(neo_bags_forward(s.bags, &batch.j, out), NEO_ERR_RANGE,
              "table 'plain' (feature 2), sample 4, position 0: id 50 is not in [0, 50)");
    neo_jagged there = ids_there(&s, &batch);
    CHECK_ERR(neo_bags_backward(s.bags, &there, out, 0.1f), NEO_ERR_RANGE, "id 50 is not in");
    batch.offsets[3] = 4000;
    there = ids_there(&s, &batch);
    CHECK_ERR(neo_bags_forward(s.bags, &there, out), NEO_ERR_FORMAT, "");
    batch.offsets[FEATURES * BATCH] = 4000;
    there = ids_there(&s, &batch);
    CHECK_ERR(neo_bags_forward(s.bags, &there, out), NEO_ERR_CAPACITY, "4000 ids");
    ids_make(&batch, &cases[0]);
    for (int f = 0; f <= FEATURES; f++) feature_bags[f] = f * BATCH;
    for (int i = 0; i < FEATURES * BATCH; i++) inverse[i] = i % BATCH;
    batch.j.feature_bags = feature_bags, batch.j.inverse = inverse;
    CHECK_OK(neo_bags_forward(s.bags, &batch.j, out));
    there = ids_there(&s, &batch);
    there.feature_bags = feature_bags, there.inverse = inverse;
    CHECK_ERR(neo_bags_forward(s.bags, &there, out), NEO_ERR_UNSUPPORTED,
              "and keys, or no training, on a device: write it out");
    side_free(&s);
}
/* Keys below the device's memory are in no recorded step. */
static void below_recorded(void) {
    static Ids batch;
    Side s;
    neo_cuda_graph *graph;
    side_make(&s, gpu, &cases[8]);
    ids_make(&batch, &cases[8]);
    const neo_tensor out = shaped(&s, s.out, &cases[8], 0);
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    CHECK_OK(neo_cuda_graph_begin(graph));
    CHECK_ERR(neo_bags_forward(s.bags, &batch.j, out), NEO_ERR_UNSUPPORTED,
              "a step that is recorded has no keys below memory");
    if (neo_cuda_graph_end(graph) == NEO_OK) (void)!neo_cuda_graph_wait(graph);
    neo_cuda_graph_destroy(graph);
    CHECK_OK(neo_bags_forward(s.bags, &batch.j, out));
    side_free(&s);
}
/* Pruning waits for the device once for each set of 32 rows, not for each row. */
static void prune_waits(void) {
    static Ids batch;
    Side s;
    side_make(&s, gpu, &cases[0]);
    const neo_tensor dout = shaped(&s, s.dout, &cases[0], 0);
    for (int step = 0; step < 4; step++) {
        ids_make(&batch, &cases[0]);
        CHECK_OK(neo_bags_backward(s.bags, &batch.j, dout, 0.1f));
    }
    const int64_t used = neo_bags_key_stats(s.bags, 0).used;
    const uint64_t waits = neo_cuda_get_stats(gpu).waits;
    int64_t pruned;
    CHECK_OK(neo_bags_prune_keys(s.bags, 0, 0.0f, 10, &pruned));
    CHECK_INT(neo_cuda_get_stats(gpu).waits - waits, 2);
    CHECK(used > 40 && pruned == used - 20);
    side_free(&s);
}
/* Keys that came in a recorded step have their first rows, whatever becomes of it: an error of
   another table leaves out its calls (0), or it is dropped before it is launched (1). */
static void left_out(void) {
    static Ids batch;
    static float first[64 * 16], row[2][16];
    for (int dropped = 0; dropped < 2; dropped++) {
        Side side[2], bad;
        neo_cuda_graph *graph;
        neo_status status;
        for (int i = 0; i < 2; i++) side_make(&side[i], i ? gpu : NULL, &cases[0]);
        neo_table_desc plain = {.name = "plain", .rows = 9, .dim = 16};
        const neo_bags_desc d = {.tables = &plain, .table_count = 1, .feature_count = 1,
                                 .max_batch = 1, .max_ids = 1};
        const int64_t far = 9, offsets[2] = {0, 1};
        const neo_jagged wrong = {.batch = 1, .feature_count = 1, .id_dtype = NEO_I64,
                                  .offsets = offsets, .ids = &far};
        memset(&bad, 0, sizeof bad);
        CHECK_OK(neo_bags_create(side[1].ctx, &d, &bad.bags));
        CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
        CHECK_OK(neo_cuda_graph_begin(graph));
        ids_make(&batch, &cases[0]);
        const neo_tensor dout = shaped(&side[1], side[1].dout, &cases[0], 0);
        neo_tensor out = neo_tensor_2d(side[1].out.data, NEO_F32, 1, 16);
        out.place = side[1].out.place;
        if (!dropped) CHECK_OK(neo_bags_forward(bad.bags, &wrong, out));
        for (int k = 0; k < 3; k++) { /* a row may go from key to key */
            CHECK_OK(neo_bags_backward(side[1].bags, &batch.j, dout, 0.1f));
            ids_make(&batch, &cases[0]);
        }
        if (!dropped) {
            status = neo_cuda_graph_end(graph);
            if (status == NEO_OK) status = neo_cuda_graph_wait(graph);
            CHECK(status == NEO_ERR_RANGE);
        }
        neo_cuda_graph_destroy(graph);
        CHECK_INT(neo_bags_get_stats(side[1].bags).steps, 0);
        for (int i = 0; i < neo_state_count(side[1].state); i++)
            if (strstr(neo_state_name(side[1].state, i), "key_step"))
                CHECK_INT(*(int64_t *)neo_state_tensor(side[1].state, i).data, 0);
        int64_t there = 0;
        CHECK_OK(neo_bags_get_rows(side[1].bags, 0, 0, 64, first));
        for (int64_t r = 0; r < 64; r++) { /* the CPU reads a key without a row */
            uint64_t key;
            if (!neo_bags_key_of(side[1].bags, 0, r, &key)) continue;
            int64_t ends[FEATURES + 1] = {0, 1, 1, 1, 1}, id = (int64_t)key;
            const neo_jagged one = {.batch = 1, .feature_count = FEATURES, .id_dtype = NEO_I64,
                                    .offsets = ends, .ids = &id};
            neo_tensor to = shaped(&side[0], side[0].out, &cases[0], 0);
            to.shape[0] = 1;
            CHECK_OK(neo_bags_forward(side[0].bags, &one, to));
            memcpy(row[0], to.data, sizeof row[0]);
            CHECK(memcmp(row[0], first + r * 16, sizeof row[0]) == 0);
            there++;
        }
        CHECK(there > 5);
        neo_bags_destroy(bad.bags);
        for (int i = 0; i < 2; i++) side_free(&side[i]);
    }
}

#if defined(EMULATED)
/* Each call of CUDA fails once that keys need which come, go or are pruned: done again, they are
   there or gone as on the CPU, with the rows that they begin with. */
void emu_fail_after(int64_t n);
int emu_failed(void);
static neo_status change(Side *s, int what) {
    uint64_t keys[40];
    int64_t rows[40];
    for (int i = 0; i < 40; i++) keys[i] = key_of(i + 1);
    if (what == 0) return neo_bags_put_keys(s->bags, 1, keys, 40, rows);
    if (what == 1) return neo_bags_drop_keys(s->bags, 1, keys + 10, 9);
    return neo_bags_prune_keys(s->bags, 1, 0.0f, 6, NULL);
}
static void failures(void) {
    int failed = 0;
    for (int n = 1; n <= 16; n++) {
        Side side[2];
        for (int i = 0; i < 2; i++) side_make(&side[i], i ? gpu : NULL, &cases[6]);
        for (int what = 0; what < 3; what++) {
            emu_fail_after(n);
            const neo_status status = change(&side[1], what);
            failed += emu_failed();
            if (emu_failed() && status == NEO_OK) FAIL("change %d: call %d fails unheard", what, n);
            emu_fail_after(0);
            for (int i = 0; i < 2; i++) CHECK_OK(change(&side[i], what));
            same_state(side, "after a failure");
        }
        for (int i = 0; i < 2; i++) side_free(&side[i]);
    }
    CHECK(failed >= 15);
}
#endif

int main(void) {
    static const neo_cuda_desc exact = {0, 1, 0};
    if (neo_cuda_device_create(&exact, &gpu) != NEO_OK) {
        printf("test_keys: cannot create a device: %s\n", neo_last_error());
        return 1;
    }
    RUN(all_cases);
    RUN(refusals);
    RUN(below_recorded);
    RUN(prune_waits);
    RUN(left_out);
#if defined(EMULATED)
    RUN(failures);
#endif
    neo_cuda_device_destroy(gpu);
    return test_end("cuda/keys");
}
