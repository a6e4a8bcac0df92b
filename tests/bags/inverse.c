/* inverse.c: batches that have each distinct bag of a feature once.

   A naive search over pairs says what neo_jagged_dedup must find; neo_jagged_expand must give the
   batch back; pooled rows, weights and state must have the bits of the batch written out. */
#include "neo_state.h"
#include "common.h"
#include "digest.h"

static const neo_isa all_isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};

/* A batch of which many bags are those of an earlier sample; as they come, and folded. */
typedef struct Repeats {
    Batch plain;
    neo_jagged_buffer *buffer;
    const neo_jagged *folded;
} Repeats;
static void repeat_bags(Batch *b, const Model *m, BatchKind kind) {
    Batch drawn;
    batch_make(&drawn, m, kind);
    *b = drawn;
    b->offsets = calloc((size_t)(drawn.feature_bags[m->desc.feature_count] + 1), 8);
    b->ids = calloc((size_t)(drawn.feature_bags[m->desc.feature_count] * kind.max_length + 1), 8);
    b->weights =
        calloc((size_t)(drawn.feature_bags[m->desc.feature_count] * kind.max_length + 1), 4);
    b->j.offsets = b->offsets;
    b->j.ids = b->ids;
    b->j.weights = kind.weighted ? b->weights : NULL;
    for (int64_t i = 0; i < drawn.feature_bags[m->desc.feature_count]; i++) {
        const int64_t sample = i % kind.batch, from = i - sample + (int64_t)test_random() % 4;
        const int64_t bag = from < i ? from : i, k = drawn.offsets[bag];
        b->offsets[i + 1] = b->offsets[i] + drawn.offsets[bag + 1] - k;
        for (int64_t p = b->offsets[i]; p < b->offsets[i + 1]; p++) {
            batch_set_id(b, p, batch_id(&drawn, k + p - b->offsets[i]));
            b->weights[p] = drawn.weights[k + p - b->offsets[i]];
        }
    }
    free(drawn.offsets), free(drawn.ids), free(drawn.weights);
}
static void repeats_make(Repeats *r, neo_ctx *ctx, const Model *m, BatchKind kind) {
    const neo_jagged_desc d = {.feature_count = m->desc.feature_count,
                               .max_bags = m->desc.feature_count * kind.batch,
                               .max_ids = m->desc.max_ids,
                               .id_dtype = kind.i32 ? NEO_I32 : NEO_I64,
                               .weighted = kind.weighted,
                               .dedup = 1};
    const neo_jagged *part = &r->plain.j;
    repeat_bags(&r->plain, m, kind);
    REQUIRE_OK(neo_jagged_create(ctx, &d, &r->buffer));
    CHECK_OK(neo_jagged_stack(r->buffer, &part, 1));
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(neo_jagged_dedup(r->buffer));
    CHECK_OK(neo_jagged_dedup(r->buffer)); /* it is: nothing to do */
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    r->folded = neo_jagged_view(r->buffer);
    CHECK_OK(neo_jagged_validate(r->folded, NULL));
}
static void repeats_free(Repeats *r) {
    neo_jagged_destroy(r->buffer);
    batch_free(&r->plain);
}

/* ---- what is found ---- */
static int same_bag(const Batch *b, int64_t x, int64_t y) {
    const int64_t *o = b->offsets;
    if (o[x + 1] - o[x] != o[y + 1] - o[y]) return 0;
    for (int64_t k = 0; k < o[x + 1] - o[x]; k++)
        if (batch_id(b, o[x] + k) != batch_id(b, o[y] + k) ||
            (b->j.weights && b->weights[o[x] + k] != b->weights[o[y] + k]))
            return 0;
    return 1;
}
static void check_found(neo_ctx *ctx, const Repeats *r, const neo_jagged_desc *d) {
    const neo_jagged *j = r->folded;
    const int64_t n = j->batch;
    int64_t saved = 0;
    for (int64_t t = 0; t < j->feature_count; t++) {
        int32_t next = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t first = 0;
            while (!same_bag(&r->plain, t * n + first, t * n + i)) first++;
            CHECK_INT(j->inverse[t * n + i], first < i ? j->inverse[t * n + first] : next);
            next += first == i;
            saved += first < i;
        }
        CHECK_INT(j->feature_bags[t + 1] - j->feature_bags[t], next);
    }
    CHECK(n < 8 || saved > n);
    CHECK_INT(neo_jagged_full_id_count(j), neo_jagged_id_count(&r->plain.j));
    neo_jagged_buffer *full;
    CHECK_OK(neo_jagged_create(ctx, d, &full));
    CHECK_OK(neo_jagged_expand(full, j));
    const neo_jagged *f = neo_jagged_view(full);
    const int64_t ids = neo_jagged_id_count(f);
    CHECK(!f->inverse && !f->feature_bags && f->batch == n);
    CHECK(memcmp(f->offsets, r->plain.offsets, 8 * (size_t)(n * j->feature_count + 1)) == 0);
    CHECK(memcmp(f->ids, r->plain.ids, (size_t)ids * neo_dtype_size(f->id_dtype)) == 0);
    CHECK(!f->weights || memcmp(f->weights, r->plain.weights, 4 * (size_t)ids) == 0);
    neo_jagged_destroy(full);
}
static void test_found(void) {
    static const int64_t rows[] = {3, 40}, dims[] = {4, 4};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int n = 0; n < 24; n++) {
        Model m;
        Repeats r;
        model_init(&m, 2, rows, dims, 3, NEO_POOL_SUM);
        BatchKind kind = {n % 6 == 5 ? 0 : 1 + 9 * (n % 6), 1 + n % 4, n % 2, n / 2 % 2, 0, 0};
        if (kind.batch == 0) continue;
        const neo_jagged_desc d = {.feature_count = 3,
                                   .max_bags = 3 * kind.batch,
                                   .max_ids = m.desc.max_ids,
                                   .id_dtype = kind.i32 ? NEO_I32 : NEO_I64,
                                   .weighted = kind.weighted};
        repeats_make(&r, ctx, &m, kind);
        check_found(ctx, &r, &d);
        /* Growing keeps it. */
        CHECK_OK(neo_jagged_reserve(r.buffer, 4 * d.max_bags, 2 * d.max_ids));
        CHECK_OK(neo_jagged_validate(r.folded, NULL));
        check_found(ctx, &r, &d);
        repeats_free(&r);
    }
    neo_ctx_destroy(ctx);
}

/* ---- the same bits ---- */
/* Steps fused, unfused, and of two leaves after the other two. */
static void take_step(neo_bags *bags, const neo_jagged *j, neo_tensor dout, int how) {
    if (how == 0) {
        CHECK_OK(neo_bags_backward(bags, j, dout, 0.1f));
        return;
    }
    const neo_leaves held = {.batch = 2 * j->batch, .first = 2, .count = 2};
    CHECK_OK(neo_bags_accumulate(bags, j, dout, how == 2 ? &held : NULL));
    CHECK_OK(neo_bags_step(bags, 0.1f));
}
static void same_bits(const Model *m, BatchKind kind, int threads, neo_isa isa, int bad, int how) {
    neo_ctx *ctx = test_ctx(threads, isa, 4);
    neo_bags *bags[2];
    neo_bags_desc d = m->desc;
    neo_bags_memory memory;
    d.max_kept_rows = how ? 512 : 0;
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags[0]));
    d.inverse = 1;
    CHECK_OK(neo_bags_bytes(ctx, &d, &memory));
    const size_t before = neo_ctx_memory(ctx).bytes;
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags[1]));
    CHECK(neo_ctx_memory(ctx).bytes - before ==
          memory.weight_bytes + memory.state_bytes + memory.workspace_bytes);
    for (int step = 0; step < 3; step++) {
        Repeats r;
        Out out[2], dout;
        repeats_make(&r, ctx, m, kind);
        for (int64_t k = 0; bad && k < neo_jagged_id_count(r.folded); k += 5) {
            /* Spoilt where they lie: in the bag, and in all of its copies. */
            const int64_t id = k % 2 ? -1 - k : 1000000 + k;
            if (kind.i32) ((int32_t *)(uintptr_t)r.folded->ids)[k] = (int32_t)id;
            else ((int64_t *)(uintptr_t)r.folded->ids)[k] = id;
        }
        neo_jagged_buffer *full;
        const neo_jagged_desc fd = {.feature_count = d.feature_count,
                                    .max_bags = d.feature_count * kind.batch,
                                    .max_ids = d.max_ids,
                                    .id_dtype = r.folded->id_dtype,
                                    .weighted = kind.weighted};
        CHECK_OK(neo_jagged_create(ctx, &fd, &full));
        CHECK_OK(neo_jagged_expand(full, r.folded));
        const neo_jagged *as[2] = {neo_jagged_view(full), r.folded};
        out_make(&dout, m, as[0], step);
        const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
        for (int i = 0; i < 2; i++) {
            out_make(&out[i], m, as[0], 3 * step);
            memset(out[i].data, 0xEE, (size_t)out[i].count * sizeof(float));
            CHECK_OK(neo_bags_forward(bags[i], as[i], out[i].t));
        }
        CHECK(memcmp(out[0].data, out[1].data, (size_t)out[0].count * sizeof(float)) == 0);
        for (int i = 0; i < 2; i++) take_step(bags[i], as[i], dout.t, how);
        CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
        CHECK(bags_digest(ctx, bags[0]) == bags_digest(ctx, bags[1]));
        free(out[0].data), free(out[1].data), free(dout.data);
        neo_jagged_destroy(full);
        repeats_free(&r);
    }
    neo_bags_destroy(bags[0]), neo_bags_destroy(bags[1]);
    neo_ctx_destroy(ctx);
}
static void test_bits(void) {
    static const int64_t rows[] = {11, 40, 7}, dims[] = {16, 17, 3};
    static const neo_bounds bounds[] = {NEO_BOUNDS_ERROR, NEO_BOUNDS_CLAMP, NEO_BOUNDS_DROP};
    for (int n = 0; n < 48; n++) {
        Model m;
        model_init(&m, 3, rows, dims, n % 2 ? 5 : 3, n / 2 % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        for (int t = 0; t < 3; t++) {
            m.table[t].row_buckets = n % 5 ? 1 : 4;
            m.table[t].optim.kind = (neo_bag_optim_kind)((n + t) % NEO_BAG_OPTIM_COUNT);
        }
        m.desc.bounds = bounds[n % 3];
        neo_isa isa = all_isas[n / 3 % 4];
        if (!neo_isa_available(isa)) isa = NEO_ISA_BEST;
        BatchKind kind = {n % 7 ? 61 : 3, 6, n % 8 < 4, n / 4 % 2, 0, 0};
        same_bits(&m, kind, 1 + n % 3, isa, n % 3 != 0, n / 5 % 3);
    }
}

/* ---- what is refused ---- */
static void test_refused(void) {
    static const int64_t rows = 10, dim = 4;
    static const int64_t ids[] = {1, 2, 12}, offsets[] = {0, 1, 3};
    int64_t bags_of[] = {0, 2};
    int32_t inverse[] = {0, 0, 1, 0};
    float out[16], dweights[4];
    Model m;
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_bags *bags, *none;
    neo_tensor t = neo_tensor_2d(out, NEO_F32, 4, 4);
    neo_jagged j = {.batch = 4, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets,
                    .ids = ids, .feature_bags = bags_of, .inverse = inverse};
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_RANGE, "sample 2, position 1: id 12");
    m.desc.bounds = NEO_BOUNDS_DROP;
    neo_bags_destroy(bags);
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_OK(neo_bags_forward(bags, &j, t));
    CHECK_INT(neo_bags_get_stats(bags).out_of_range, 1);
    CHECK_ERR(neo_bags_backward(bags, &j, t, 0.1f), NEO_ERR_STATE, "set neo_bags_desc.inverse");
    CHECK_ERR(neo_bags_weight_grad(bags, &j, t, dweights), NEO_ERR_UNSUPPORTED,
              "neo_jagged_expand");
    inverse[1] = 2;
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_FORMAT, "inverse of feature 0, sample 1 is 2");
    inverse[1] = -1;
    CHECK_ERR(neo_jagged_validate(&j, NULL), NEO_ERR_FORMAT,
              "inverse of feature 0, sample 1 is -1");
    inverse[1] = 1, inverse[2] = 2;
    CHECK_ERR(neo_jagged_validate(&j, NULL), NEO_ERR_FORMAT, "sample 2 is 2: of 2 bags");
    inverse[1] = inverse[2] = 0;
    CHECK_ERR(neo_jagged_validate(&j, NULL), NEO_ERR_FORMAT,
              "feature 0 has 2 bags, of which samples read 1");
    inverse[2] = 1;
    j.feature_bags = NULL;
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_ARG, "with inverse needs feature_bags");
    j.feature_bags = bags_of;
    m.table[0].pooling = NEO_POOL_NONE;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &none));
    CHECK_ERR(neo_bags_forward(none, &j, t), NEO_ERR_UNSUPPORTED, "and no pooling");
    neo_bags_destroy(none), neo_bags_destroy(bags);
    m.table[0].pooling = NEO_POOL_SUM;
    m.desc.inverse = 1, m.desc.max_ids = 3; /* written out there are five */
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_OK(neo_bags_forward(bags, &j, t));
    CHECK_ERR(neo_bags_backward(bags, &j, t, 0.1f), NEO_ERR_CAPACITY, "has 5 ids, reserved are 3");
    CHECK_OK(neo_bags_reserve(bags, 4, neo_jagged_full_id_count(&j)));
    CHECK_OK(neo_bags_backward(bags, &j, t, 0.1f));
    neo_bags_destroy(bags);
    /* Writers. */
    const neo_jagged_desc d = {.feature_count = 1, .max_bags = 4, .max_ids = 8};
    const neo_jagged *part = &j;
    neo_jagged_buffer *b;
    CHECK_OK(neo_jagged_create(ctx, &d, &b));
    CHECK_ERR(neo_jagged_concat(b, &part, 1), NEO_ERR_ARG, "source 0 has an inverse");
    CHECK_ERR(neo_jagged_dedup(b), NEO_ERR_STATE, "neo_jagged_desc.dedup");
    CHECK_OK(neo_jagged_expand(b, &j));
    j.inverse = NULL;
    CHECK_ERR(neo_jagged_expand(b, &j), NEO_ERR_ARG, "feature_bags, and no inverse");
    neo_jagged_destroy(b);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(test_found);
    RUN(test_bits);
    RUN(test_refused);
    return test_end("bags/inverse");
}
