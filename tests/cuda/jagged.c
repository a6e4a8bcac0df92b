/* jagged.c: jagged batches in a device's memory: every writer, and embedding bags of batches with
   an inverse, against the same calls in host memory.

   Contents and bits are the CPU's; what is wrong is named as there, and leaves a buffer as it was,
   or, in a recorded step, empty. The device is that of neo_cuda.cuh, emulated on the CPU or, in
   `make test-cuda`, a GPU. */
#include "neo_state.h"
#include "neo_store.h"
#include "test.h"

#include "digest.h"

#include "neo_cuda.cuh"

static neo_device *gpu;
static neo_ctx *ctxs[2]; /* the CPU's, the device's */
static neo_cuda_graph *graph;
#if defined(EMULATED)
void emu_set_order(uint64_t seed);
#else
static void emu_set_order(uint64_t seed) { (void)seed; }
#endif
enum { FEATURES = 3, MOST = 40, ROOM = 4096 };

/* ---- memory ---- */
static void *to_device(const void *from, neo_dtype dtype, int64_t n) {
    neo_tensor host = neo_tensor_1d((void *)(uintptr_t)from, dtype, n), there;
    const int64_t room = n + 1; /* never none */
    CHECK_OK(neo_tensor_alloc(ctxs[1], dtype, 1, &room, &there));
    CHECK_OK(neo_tensor_copy(ctxs[1], host, neo_tensor_slice(there, 0, 0, n)));
    return there.data;
}
static void *to_host(const void *from, neo_dtype dtype, int64_t n) {
    neo_tensor there = neo_tensor_1d((void *)(uintptr_t)from, dtype, n), host = there;
    there.place = NEO_DEVICE;
    host.data = calloc((size_t)n + 1, neo_dtype_size(dtype));
    CHECK_OK(neo_tensor_copy(ctxs[1], there, host));
    return host.data;
}
static void free_there(const void *p, neo_dtype dtype, int64_t n) {
    neo_tensor t = neo_tensor_1d((void *)(uintptr_t)p, dtype, n + 1);
    t.place = NEO_DEVICE;
    neo_tensor_free(ctxs[1], &t);
}
/* A batch of a device has what one in host memory has. */
static void check_same(const neo_jagged *host, const neo_jagged *there) {
    const int64_t bags = neo_jagged_bag_count(host);
    REQUIRE(there->place == NEO_DEVICE && neo_jagged_bag_count(there) == bags);
    CHECK(there->batch == host->batch && there->id_dtype == host->id_dtype);
    CHECK(!there->inverse == !host->inverse && !there->weights == !host->weights);
    CHECK(!there->feature_bags == !host->feature_bags);
    for (int t = 0; t <= host->feature_count && host->feature_bags; t++)
        CHECK_INT(there->feature_bags[t], host->feature_bags[t]);
    int64_t *offsets = to_host(there->offsets, NEO_I64, bags + 1);
    const int64_t ids = host->offsets[bags];
    if (memcmp(offsets, host->offsets, 8 * (size_t)(bags + 1)) != 0) FAIL("offsets differ");
    else {
        const size_t size = neo_dtype_size(host->id_dtype);
        void *id = to_host(there->ids, host->id_dtype, ids);
        CHECK(memcmp(id, host->ids, size * (size_t)ids) == 0);
        free(id);
        void *weights = host->weights ? to_host(there->weights, NEO_F32, ids) : NULL;
        CHECK(!weights || memcmp(weights, host->weights, 4 * (size_t)ids) == 0);
        free(weights);
    }
    const int64_t places = host->feature_count * host->batch;
    int32_t *inverse = host->inverse ? to_host(there->inverse, NEO_I32, places) : NULL;
    CHECK(!inverse || memcmp(inverse, host->inverse, 4 * (size_t)places) == 0);
    free(inverse), free(offsets);
}

/* ---- sources ---- */
/* Lengths, ids and weights on both sides; many bags are those of an earlier sample. */
typedef struct Source {
    int64_t batch, bags, count;
    neo_dtype length_dtype, id_dtype;
    int64_t lengths[FEATURES * MOST], ids[ROOM];
    int32_t lengths32[FEATURES * MOST], ids32[ROOM];
    float weights[ROOM];
    const void *length[2], *id[2];
    const float *weight[2];
} Source;
static void source_make(Source *s, int64_t batch, int kind) {
    int64_t at[FEATURES * MOST], k = 0;
    s->batch = batch, s->bags = FEATURES * batch;
    s->length_dtype = kind & 1 ? NEO_I32 : NEO_I64;
    s->id_dtype = kind & 2 ? NEO_I32 : NEO_I64;
    for (int64_t i = 0; i < s->bags; i++) {
        const int64_t first = i - i % batch, like = first + (int64_t)test_random() % 6;
        const int empty = i / batch == kind % 5; /* a feature that none has */
        s->lengths[i] = empty || test_random() % 4 == 0 ? 0 : (int64_t)test_random() % 9;
        if (like < i) s->lengths[i] = s->lengths[like];
        at[i] = k;
        for (int64_t n = 0; n < s->lengths[i]; n++, k++) {
            s->ids[k] = like < i ? s->ids[at[like] + n] : (int64_t)test_random() % 30;
            s->weights[k] = like < i && n ? s->weights[at[like] + n] : (float)(test_random() % 3);
        }
        s->lengths32[i] = (int32_t)s->lengths[i];
    }
    s->count = k;
    for (int64_t i = 0; i < k; i++) s->ids32[i] = (int32_t)s->ids[i];
    s->length[0] = kind & 1 ? (void *)s->lengths32 : s->lengths;
    s->id[0] = kind & 2 ? (void *)s->ids32 : s->ids;
    s->weight[0] = kind & 4 ? s->weights : NULL;
    s->length[1] = to_device(s->length[0], s->length_dtype, s->bags);
    s->id[1] = to_device(s->id[0], s->id_dtype, k);
    s->weight[1] = kind & 4 ? to_device(s->weights, NEO_F32, k) : NULL;
}
static void source_free(Source *s) {
    free_there(s->length[1], s->length_dtype, s->bags);
    free_there(s->id[1], s->id_dtype, s->count);
    if (s->weight[1]) free_there(s->weight[1], NEO_F32, s->count);
}

/* ---- every writer ---- */
static neo_jagged_buffer *buffer(int side, int features, neo_dtype dtype, int weighted) {
    const neo_jagged_desc d = {features, 24 * FEATURES * MOST, 4 * ROOM, dtype, weighted, 1,
                               NEO_DEVICE}; /* of the CPU's context it is in host memory */
    neo_jagged_buffer *b = NULL;
    CHECK_OK(neo_jagged_create(ctxs[side], &d, &b));
    return b;
}
enum { SET, OTHER, STACK, SLICE, TRANSPOSE, SELECT, CONCAT, FOLD, EXPAND, PARTS, COUNT };
static const char *const STEPS[COUNT] = {"set",    "other", "stack",  "slice",  "transpose",
                                         "select", "concat", "fold", "expand", "parts"};
static neo_status write_one(neo_jagged_buffer **b, int step, int side, const Source *s, int kind) {
    static const int32_t order[] = {2, 0, 1, 1, 2};
    const neo_jagged *view[COUNT], *many[20];
    neo_jagged bags;
    for (int i = 0; i < COUNT; i++) view[i] = neo_jagged_view(b[i]);
    for (int i = 0; i < 20; i++) many[i] = view[i % 3 == 2 ? SLICE : i % 3 ? OTHER : SET];
    bags = *view[FOLD];
    bags.inverse = NULL; /* features of bags of their own number */
    const neo_jagged *parts[] = {&bags, view[SET], &bags};
    const int64_t third = view[SET]->batch / 3;
    switch (step) {
    case SET:
    case OTHER:
        s += step == OTHER;
        return neo_jagged_set(b[step], s->batch, s->length[side], s->length_dtype, s->id[side],
                              s->id_dtype, s->weight[side]);
    case SLICE: return neo_jagged_slice(b[step], view[SET], third, view[SET]->batch - 2 * third);
    case STACK: return neo_jagged_stack(b[step], many, kind % 3 == 2 ? 20 : 2 + kind % 3);
    case TRANSPOSE: return neo_jagged_transpose(b[step], view[SET]);
    case SELECT: return neo_jagged_select(b[step], kind % 2 ? view[SET] : &bags, order, 5);
    case CONCAT:
        parts[0] = view[SET], parts[1] = view[TRANSPOSE];
        return neo_jagged_concat(b[step], parts, 2);
    case FOLD:
        NEO__TRY(neo_jagged_stack(b[step], &view[SET], 1));
        return neo_jagged_dedup(b[step]);
    case EXPAND: return neo_jagged_expand(b[step], view[FOLD]);
    default: return neo_jagged_concat(b[step], parts, 3);
    }
}
static void test_writers(void) {
    static const int64_t sizes[] = {MOST, 1, 7, 0, 23};
    static const int order[COUNT] = {SET,    OTHER,  SLICE, STACK,  TRANSPOSE,
                                     CONCAT, FOLD, EXPAND, SELECT, PARTS};
    static const int features[COUNT] = {FEATURES, FEATURES, FEATURES, FEATURES, FEATURES,
                                        5,        2 * FEATURES, FEATURES, FEATURES, 3 * FEATURES};
    for (int kind = 0; kind < 20; kind++) {
        static Source s[2];
        neo_jagged_buffer *b[2][COUNT];
        emu_set_order((uint64_t)kind);
        source_make(&s[0], sizes[kind % 5], kind);
        source_make(&s[1], sizes[(kind + 2) % 5], (kind / 2) ^ (kind & 4));
        for (int i = 0; i < 2 * COUNT; i++) /* weights from ones, ids of another dtype */
            b[i / COUNT][i % COUNT] =
                buffer(i / COUNT, features[i % COUNT], (kind + i % COUNT) % 3 ? NEO_I64 : NEO_I32,
                       (kind & 4) || (kind & 8));
        for (int round = 0; round < 2; round++) {
            const int64_t allocs = neo_ctx_memory(ctxs[1]).alloc_count;
            for (int i = 0; i < COUNT; i++) {
                const neo_cuda_stats before = neo_cuda_get_stats(gpu);
                for (int side = 0; side < 2; side++)
                    CHECK_OK(write_one(b[side], order[i], side, s, kind));
                const neo_cuda_stats now = neo_cuda_get_stats(gpu);
                if (round) CHECK(now.waits - before.waits <= (order[i] == FOLD ? 2 : 1));
                const int was = test_errors;
                check_same(neo_jagged_view(b[0][order[i]]), neo_jagged_view(b[1][order[i]]));
                if (test_errors > was) printf("of %s, kind %d\n", STEPS[order[i]], kind);
            }
            if (round) CHECK_INT(neo_ctx_memory(ctxs[1]).alloc_count, allocs);
            CHECK_OK(neo_jagged_reserve(b[1][FOLD], 25 * FEATURES * MOST, 5 * ROOM));
            check_same(neo_jagged_view(b[0][FOLD]), neo_jagged_view(b[1][FOLD]));
        }
        for (int i = 0; i < 2 * COUNT; i++) neo_jagged_destroy(b[i / COUNT][i % COUNT]);
        source_free(&s[0]), source_free(&s[1]);
    }
}

/* ---- what is wrong ---- */
static neo_jagged damaged(const neo_jagged *from, int64_t at, int64_t offset) {
    neo_jagged j = *from;
    int64_t *offsets = to_host(from->offsets, NEO_I64, neo_jagged_bag_count(from) + 1);
    offsets[at] = offset;
    j.offsets = to_device(offsets, NEO_I64, neo_jagged_bag_count(from) + 1);
    free(offsets);
    return j;
}
static neo_status in_step(neo_status status, int records) {
    if (!records) return status;
    CHECK_OK(status);
    status = neo_cuda_graph_end(graph);
    return status == NEO_OK ? neo_cuda_graph_wait(graph) : status;
}
static void test_wrong(void) {
    static Source s;
    source_make(&s, 5, 4);
    s.lengths[1] = 3;
    for (int records = 0; records < 2; records++) {
        neo_jagged_buffer *a = buffer(1, FEATURES, NEO_I64, 1),
                          *b = buffer(1, FEATURES, NEO_I32, 1), *small;
        const neo_jagged_desc little = {FEATURES, FEATURES * 5, 3, NEO_I64, 1, 0, NEO_DEVICE};
        CHECK_OK(neo_jagged_create(ctxs[1], &little, &small));
        CHECK_OK(neo_jagged_set(a, 5, s.length[1], s.length_dtype, s.id[1], s.id_dtype,
                                s.weight[1]));
        const neo_jagged *good = neo_jagged_view(a);
#define WRONG(call, status, text)                                                                  \
    do {                                                                                           \
        if (records) CHECK_OK(neo_cuda_graph_begin(graph));                                        \
        CHECK_ERR(in_step(call, records), status, text);                                           \
    } while (0)
        neo_jagged j = damaged(good, 7, -4), k = damaged(good, 0, -1), big = *good;
        const int64_t end = s.count, most = (int64_t)INT32_MAX + 9;
        int64_t many[FEATURES * 5] = {0}, *wide = calloc((size_t)end + 1, 8);
        char text[120];
        WRONG(neo_jagged_slice(b, &j, 0, 5), NEO_ERR_FORMAT,
              "neo_jagged_slice: offsets decrease at feature 1, sample 1");
        WRONG(neo_jagged_slice(b, &k, 0, 5), NEO_ERR_FORMAT,
              "neo_jagged_slice: offsets[0] is -1");
        CHECK_INT(neo_jagged_view(b)->batch, 0);
        const neo_jagged *part = good;
        snprintf(text, sizeof text, "neo_jagged_stack: %" PRId64 " ids are needed, the buffer has "
                 "room for 3 (neo_jagged_reserve grows it)", end);
        WRONG(neo_jagged_stack(small, &part, 1), NEO_ERR_CAPACITY, text);
        for (int64_t i = 0; i < end; i++) wide[i] = i;
        wide[end - 2] = most;
        big.ids = to_device(wide, NEO_I64, end);
        snprintf(text, sizeof text, "id %" PRId64 " (number %" PRId64 " of its source) does not "
                 "fit i32", most, end - 2);
        part = &big;
        WRONG(neo_jagged_stack(b, &part, 1), NEO_ERR_RANGE, text);
        many[8] = -2;
        void *negative = to_device(many, NEO_I64, FEATURES * 5);
        WRONG(neo_jagged_set(b, 5, negative, NEO_I64, s.id[1], s.id_dtype, NULL), NEO_ERR_FORMAT,
              "neo_jagged_set: the length of feature 1, sample 3 is -2");
        many[8] = 0, many[1] = many[2] = many[11] = INT32_MAX;
        void *endless = to_device(many, NEO_I64, FEATURES * 5);
        snprintf(text, sizeof text, "neo_jagged_set: 2^32 ids or more are needed, the buffer has "
                 "room for %d", 4 * ROOM);
        WRONG(neo_jagged_set(b, 5, endless, NEO_I64, s.id[1], s.id_dtype, NULL), NEO_ERR_CAPACITY,
              text);
        CHECK_OK(neo_jagged_dedup(a));
        neo_jagged listed = *good;
        int32_t *inverse = to_host(good->inverse, NEO_I32, FEATURES * 5);
        inverse[11] = 77;
        listed.inverse = to_device(inverse, NEO_I32, FEATURES * 5);
        WRONG(neo_jagged_expand(b, &listed), NEO_ERR_FORMAT,
              "neo_jagged_expand: inverse of feature 2, sample 1 is 77: it has ");
        if (records) CHECK_OK(neo_cuda_graph_begin(graph));
        CHECK_OK(in_step(neo_jagged_expand(b, good), records));
        CHECK_INT(neo_jagged_view(b)->batch, 5);
        WRONG(neo_jagged_expand(b, &listed), NEO_ERR_FORMAT, "sample 1 is 77");
        CHECK_INT(neo_jagged_view(b)->batch, records ? 0 : 5); /* as it was; or empty */
        free_there(j.offsets, NEO_I64, FEATURES * 5 + 1);
        free_there(k.offsets, NEO_I64, FEATURES * 5 + 1);
        free_there(big.ids, NEO_I64, end);
        free_there(negative, NEO_I64, FEATURES * 5), free_there(endless, NEO_I64, FEATURES * 5);
        free_there(listed.inverse, NEO_I32, FEATURES * 5);
        free(inverse), free(wide);
        neo_jagged_destroy(a), neo_jagged_destroy(b), neo_jagged_destroy(small);
    }
    source_free(&s);
}
static void test_refused(void) {
    static Source s;
    source_make(&s, 5, 0);
    const neo_jagged_desc d = {FEATURES, 64, ROOM, NEO_I64, 0, 0, NEO_HOST};
    neo_jagged_buffer *host, *there = buffer(1, FEATURES, NEO_I64, 0);
    const int64_t *none[FEATURES * 5] = {0}, zero[FEATURES * 5] = {0};
    CHECK_OK(neo_jagged_create(ctxs[1], &d, &host));
    const neo_jagged *h = neo_jagged_view(host), *t = neo_jagged_view(there);
    CHECK(h->place == NEO_HOST && t->place == NEO_DEVICE);
    CHECK_ERR(neo_jagged_concat(host, &t, 1), NEO_ERR_ARG,
              "source 0 is in a device's memory, the buffer in host");
    CHECK_ERR(neo_jagged_concat(there, &h, 1), NEO_ERR_ARG,
              "source 0 is in host memory, the buffer in its device's (neo_jagged_desc.place)");
    CHECK_ERR(neo_jagged_concat(there, &t, 1), NEO_ERR_ARG, "is a view of the buffer");
    CHECK_ERR(neo_jagged_from_lists(there, 5, none, zero), NEO_ERR_UNSUPPORTED, "on a device");
    CHECK_ERR(neo_jagged_split_hot(there, t, none, zero), NEO_ERR_UNSUPPORTED, "on a device");
    CHECK_ERR(neo_jagged_set(there, 5, s.length[1], s.length_dtype, t->ids, NEO_I64, NULL),
              NEO_ERR_ARG, "ids are those of the buffer");
    neo_jagged_destroy(host), neo_jagged_destroy(there);
    neo_jagged_desc large = d;
    large.place = NEO_DEVICE, large.max_ids = INT32_MAX;
    CHECK_ERR(neo_jagged_create(ctxs[1], &large, &host), NEO_ERR_UNSUPPORTED, "below 2^31 - 1");
    source_free(&s);
}

/* ---- a step that is recorded ---- */
static neo_status one_step(neo_jagged_buffer **b, int side, const Source *s) {
    static const int32_t order[] = {1, 2, 0};
    NEO__TRY(neo_jagged_set(b[0], s->batch, s->length[side], s->length_dtype, s->id[side],
                            s->id_dtype, s->weight[side]));
    NEO__TRY(neo_jagged_select(b[1], neo_jagged_view(b[0]), order, 3));
    return neo_jagged_slice(b[2], neo_jagged_view(b[1]), s->batch / 4, s->batch / 2);
}
static void test_recorded(void) {
    static Source s;
    neo_jagged_buffer *b[2][3];
    for (int i = 0; i < 6; i++) b[i / 3][i % 3] = buffer(i / 3, FEATURES, NEO_I64, 1);
    for (int step = 0; step < 6; step++) {
        source_make(&s, 8 + step % 3, 4 + step % 2);
        const neo_cuda_stats before = neo_cuda_get_stats(gpu);
        CHECK_OK(neo_cuda_graph_begin(graph));
        CHECK_OK(one_step(b[1], 1, &s));
        CHECK_INT(neo_cuda_get_stats(gpu).waits, before.waits); /* for nothing */
        CHECK_OK(neo_cuda_graph_end(graph));
        CHECK_OK(neo_cuda_graph_wait(graph));
        CHECK_OK(one_step(b[0], 0, &s));
        for (int i = 0; i < 3; i++) check_same(neo_jagged_view(b[0][i]), neo_jagged_view(b[1][i]));
        source_free(&s);
    }
    for (int i = 0; i < 6; i++) neo_jagged_destroy(b[i / 3][i % 3]);
}

/* ---- embedding bags of a batch with an inverse ---- */
typedef struct Tables {
    neo_table_desc table[2];
    neo_bags_desc d;
    neo_bags *bags[2];
    neo_tier *tier; /* of the device's; or NULL */
} Tables;
static const int32_t FEATURE_TABLE[FEATURES] = {0, 1, 0};
enum { WIDTH = 16 + 5 + 16 };
/* As little memory for lines as will do, as the refusal of less says it. */
static void tier_make(Tables *m) {
    neo_tier_desc d = {NULL, 1, NEO_EVICT_LRU, 0, 2, 0, 0, 0};
    neo_bags_memory says;
    for (int tries = 0; tries < 20; tries++) {
        CHECK_OK(neo_tier_create(ctxs[1], &d, &m->tier));
        m->d.tier = m->tier;
        if (neo_bags_bytes(ctxs[1], &m->d, &says) == NEO_OK) return;
        const char *needs = strstr(neo_last_error(), "needs ");
        REQUIRE(needs);
        d.memory_bytes = strtoll(needs + 6, NULL, 10);
        neo_tier_destroy(m->tier);
    }
    FAIL("no tier is large enough");
}
static void tables_make(Tables *m, int kind, int tiered) {
    static const char *const names[] = {"a", "b"};
    memset(m, 0, sizeof *m);
    for (int t = 0; t < 2; t++) {
        neo_table_desc *table = &m->table[t];
        table->name = names[t];
        table->rows = 20 + 9 * t + 60000 * tiered; /* some ids are outside */
        table->dim = t ? 5 : 16;
        table->pooling = kind % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM;
        table->dtype = kind % 3 == 2 && t ? NEO_BF16 : NEO_F32;
        table->optim.kind = t ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD;
    }
    m->d.tables = m->table, m->d.table_count = 2;
    m->d.feature_table = FEATURE_TABLE, m->d.feature_count = FEATURES;
    m->d.max_batch = MOST, m->d.max_ids = ROOM;
    m->d.bounds = kind % 2 ? NEO_BOUNDS_CLAMP : NEO_BOUNDS_DROP;
    m->d.max_kept_rows = 64, m->d.inverse = 1;
    for (int side = 0; side < 2; side++) {
        neo_bags_memory says;
        if (side && tiered) tier_make(m);
        CHECK_OK(neo_bags_bytes(ctxs[side], &m->d, &says));
        const size_t before = neo_ctx_memory(ctxs[side]).bytes;
        REQUIRE_OK(neo_bags_create(ctxs[side], &m->d, &m->bags[side]));
        CHECK_INT(neo_ctx_memory(ctxs[side]).bytes - before,
                  says.weight_bytes + says.state_bytes + says.workspace_bytes);
    }
}
/* A step as a neo_bags takes it; recorded, kept and stepped in two calls. */
static neo_status bags_step(neo_bags *bags, const neo_jagged *j, neo_tensor rows, int kind) {
    NEO__TRY(neo_bags_forward(bags, j, rows));
    if (kind % 3 == 0) return neo_bags_backward(bags, j, rows, 0.1f);
    NEO__TRY(neo_bags_accumulate(bags, j, rows, NULL));
    return neo_bags_step(bags, 0.1f);
}
static void test_bags(void) {
    for (int kind = 0; kind < 18; kind++) {
        static Source s;
        Tables m;
        const int tiered = kind >= 12, records = kind % 4 == 3 && !tiered;
        const int from_host = kind % 2 && !records;
        neo_jagged_buffer *b[2];
        tables_make(&m, kind, tiered);
        for (int i = 0; i < 2; i++) b[i] = buffer(i, FEATURES, kind % 5 ? NEO_I64 : NEO_I32, 1);
        for (int step = 0; step < 3; step++) {
            const int64_t n = step == 1 ? 1 : MOST - kind;
            float *host = calloc((size_t)(n * WIDTH), 4), *back;
            source_make(&s, n, 4 | kind);
            for (int i = 0; i < 2; i++) {
                CHECK_OK(neo_jagged_set(b[i], n, s.length[i], s.length_dtype, s.id[i], s.id_dtype,
                                        s.weight[i]));
                CHECK_OK(neo_jagged_dedup(b[i]));
            }
            const neo_jagged *j[2] = {neo_jagged_view(b[0]), neo_jagged_view(b[from_host ? 0 : 1])};
            neo_tensor rows[2] = {neo_tensor_2d(host, NEO_F32, n, WIDTH),
                                  neo_tensor_2d(to_device(host, NEO_F32, n * WIDTH), NEO_F32, n,
                                                WIDTH)};
            rows[1].place = NEO_DEVICE;
            const int64_t allocs = neo_ctx_memory(ctxs[1]).alloc_count;
            CHECK_OK(bags_step(m.bags[0], j[0], rows[0], kind));
            if (records) CHECK_OK(neo_cuda_graph_begin(graph));
            CHECK_OK(bags_step(m.bags[1], j[1], rows[1], kind));
            if (records) CHECK_OK(in_step(NEO_OK, 1));
            CHECK_INT(neo_ctx_memory(ctxs[1]).alloc_count, allocs);
            back = to_host(rows[1].data, NEO_F32, n * WIDTH);
            CHECK(memcmp(back, host, 4 * (size_t)(n * WIDTH)) == 0);
            CHECK(bags_digest(ctxs[0], m.bags[0]) == bags_digest(ctxs[1], m.bags[1]));
            CHECK_INT(neo_bags_get_stats(m.bags[0]).out_of_range,
                      neo_bags_get_stats(m.bags[1]).out_of_range);
            free(back), free(host);
            free_there(rows[1].data, NEO_F32, n * WIDTH);
            source_free(&s);
        }
        if (tiered) CHECK(neo_tier_get_stats(m.tier).lookups > 0);
        for (int i = 0; i < 2; i++) neo_bags_destroy(m.bags[i]), neo_jagged_destroy(b[i]);
        neo_tier_destroy(m.tier);
    }
}
/* How often a step waits: for the look of forward, of backward, and at what is written out. */
static void test_bags_wait(void) {
    static Source s;
    Tables m;
    float *host = calloc(MOST * WIDTH, 4);
    neo_jagged_buffer *b[2];
    char reserved[40];
    tables_make(&m, 0, 0);
    source_make(&s, MOST, 4);
    neo_tensor rows = neo_tensor_2d(to_device(host, NEO_F32, MOST * WIDTH), NEO_F32, MOST, WIDTH);
    rows.place = NEO_DEVICE;
    for (int i = 0; i < 2; i++) {
        b[i] = buffer(i, FEATURES, NEO_I64, 1);
        CHECK_OK(neo_jagged_set(b[i], MOST, s.length[i], s.length_dtype, s.id[i], s.id_dtype,
                                s.weight[i]));
        CHECK_OK(neo_jagged_dedup(b[i]));
        const neo_jagged *j = neo_jagged_view(b[i]);
        for (int k = 0; k < 2; k++) { /* the first step may still make room */
            const neo_cuda_stats before = neo_cuda_get_stats(gpu);
            CHECK_OK(neo_bags_forward(m.bags[1], j, rows));
            const neo_cuda_stats now = neo_cuda_get_stats(gpu);
            CHECK_OK(neo_bags_backward(m.bags[1], j, rows, 0.1f));
            const neo_cuda_stats then = neo_cuda_get_stats(gpu);
            if (k) CHECK_INT(now.waits - before.waits, 1);
            if (k) CHECK_INT(then.waits - now.waits, i ? 2 : 0);
        }
    }
    /* What is wrong. */
    const neo_jagged *good = neo_jagged_view(b[1]);
    neo_jagged bad = *good, none = *good;
    int32_t *inverse = to_host(good->inverse, NEO_I32, FEATURES * MOST);
    inverse[MOST + 3] = -1;
    bad.inverse = to_device(inverse, NEO_I32, FEATURES * MOST);
    const uint64_t before = bags_digest(ctxs[1], m.bags[1]);
    CHECK_ERR(neo_bags_forward(m.bags[1], &bad, rows), NEO_ERR_FORMAT,
              "neo_bags_forward: inverse of feature 1, sample 3 is -1, which is none of its bags");
    CHECK_ERR(neo_bags_backward(m.bags[1], &bad, rows, 0.1f), NEO_ERR_FORMAT, "sample 3 is -1");
    const int64_t empty[FEATURES + 1] = {0, 0, 0, 0};
    none.feature_bags = empty;
    CHECK_ERR(neo_bags_forward(m.bags[1], &none, rows), NEO_ERR_FORMAT,
              "feature 0 has no bags for its 40 samples");
    CHECK(bags_digest(ctxs[1], m.bags[1]) == before);
    neo_bags_destroy(m.bags[1]);
    m.d.max_ids = neo_jagged_id_count(neo_jagged_view(b[0])); /* of the bags, not of the samples */
    CHECK(neo_jagged_full_id_count(neo_jagged_view(b[0])) > m.d.max_ids);
    snprintf(reserved, sizeof reserved, "reserved are %" PRId64, m.d.max_ids);
    CHECK_OK(neo_bags_create(ctxs[1], &m.d, &m.bags[1]));
    CHECK_OK(neo_bags_forward(m.bags[1], good, rows));
    CHECK_ERR(neo_bags_backward(m.bags[1], good, rows, 0.1f), NEO_ERR_CAPACITY, reserved);
    CHECK_ERR(neo_bags_forward(m.bags[1], neo_jagged_view(b[0]), rows), NEO_ERR_CAPACITY,
              reserved);
    neo_bags_destroy(m.bags[1]);
    m.d.inverse = 0, m.d.max_ids = ROOM;
    CHECK_OK(neo_bags_create(ctxs[1], &m.d, &m.bags[1]));
    CHECK_ERR(neo_bags_forward(m.bags[1], good, rows), NEO_ERR_STATE,
              "set neo_bags_desc.inverse");
    free_there(bad.inverse, NEO_I32, FEATURES * MOST);
    free_there(rows.data, NEO_F32, MOST * WIDTH);
    free(inverse), free(host);
    for (int i = 0; i < 2; i++) neo_bags_destroy(m.bags[i]), neo_jagged_destroy(b[i]);
    source_free(&s);
}

int main(void) {
    static const neo_cuda_desc exact = {0, 1, 0};
    if (neo_cuda_device_create(&exact, &gpu) != NEO_OK) {
        printf("test_jagged: cannot create a device: %s\n", neo_last_error());
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        neo_ctx_desc d;
        memset(&d, 0, sizeof d);
        d.threads = 1, d.seed = 3, d.repro_shards = 4, d.device = i ? gpu : NULL;
        CHECK_OK(neo_ctx_create(&d, &ctxs[i]));
    }
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    RUN(test_writers);
    RUN(test_wrong);
    RUN(test_refused);
    RUN(test_recorded);
    RUN(test_bags);
    RUN(test_bags_wait);
    neo_cuda_graph_destroy(graph);
    CHECK_INT(neo_ctx_memory(ctxs[1]).device_bytes, 0);
    for (int i = 0; i < 2; i++) neo_ctx_destroy(ctxs[i]);
    neo_cuda_device_destroy(gpu);
    return test_end("cuda/jagged");
}
