/* jagged.c: jagged batches: the validator's messages, every writer against a list model,
   capacities, and random damage: an invalid view is refused, never followed. */
#include "test.h"

static neo_jagged_buffer *buffer_make(neo_ctx *ctx, int features, int64_t bags, int64_t ids,
                                      neo_dtype dtype, int weighted) {
    neo_jagged_desc d = {features, bags, ids, dtype, weighted, 0, NEO_HOST};
    neo_jagged_buffer *b = NULL;
    CHECK_OK(neo_jagged_create(ctx, &d, &b));
    return b;
}
static int64_t id_at(const neo_jagged *j, int64_t k) {
    return j->id_dtype == NEO_I32 ? ((const int32_t *)j->ids)[k] : ((const int64_t *)j->ids)[k];
}
static int64_t first_bag(const neo_jagged *j, int64_t f) {
    return j->feature_bags ? j->feature_bags[f] : f * j->batch;
}
/* Bag `x` of a is bag `y` of b: ids and (where b has them) weights. */
static void check_bag(const neo_jagged *a, int64_t x, const neo_jagged *b, int64_t y) {
    int64_t n = b->offsets[y + 1] - b->offsets[y];
    CHECK_INT(a->offsets[x + 1] - a->offsets[x], n);
    for (int64_t i = 0; i < n && a->offsets[x + 1] - a->offsets[x] == n; i++) {
        CHECK_INT(id_at(a, a->offsets[x] + i), id_at(b, b->offsets[y] + i));
        if (a->weights)
            CHECK(a->weights[a->offsets[x] + i] ==
                  (b->weights ? b->weights[b->offsets[y] + i] : 1.0f));
    }
}

/* A random source in memory of its own; starts at offset 3. */
typedef struct Source {
    neo_jagged j;
    int64_t offsets[128], ids[1024], feature_bags[16];
    int32_t ids32[1024];
    float weights[1024];
} Source;
static void source_make(Source *s, int features, int64_t batch, int i32, int weighted,
                        int variable) {
    memset(s, 0, sizeof *s);
    for (int f = 0; f < features; f++)
        s->feature_bags[f + 1] =
            s->feature_bags[f] + (variable ? (int64_t)test_random() % (batch + 1) : batch);
    int64_t bags = s->feature_bags[features];
    s->offsets[0] = 3;
    for (int64_t i = 0; i < bags; i++)
        s->offsets[i + 1] = s->offsets[i] + (int64_t)test_random() % 5;
    for (int k = 0; k < 1024; k++) {
        s->ids32[k] = (int32_t)test_random();
        s->ids[k] = s->ids32[k];
        s->weights[k] = test_uniform();
    }
    s->j.batch = batch;
    s->j.feature_count = features;
    s->j.id_dtype = i32 ? NEO_I32 : NEO_I64;
    s->j.offsets = s->offsets;
    s->j.ids = i32 ? (void *)s->ids32 : (void *)s->ids;
    s->j.weights = weighted ? s->weights : NULL;
    s->j.feature_bags = variable ? s->feature_bags : NULL;
}

static void test_counts(void) {
    Source s;
    source_make(&s, 3, 4, 0, 0, 0);
    CHECK_INT(neo_jagged_bag_count(&s.j), 12);
    CHECK_INT(neo_jagged_id_count(&s.j), s.offsets[12] - 3);
    source_make(&s, 3, 4, 0, 0, 1);
    CHECK_INT(neo_jagged_bag_count(&s.j), s.feature_bags[3]);
    neo_jagged none;
    memset(&none, 0, sizeof none);
    none.id_dtype = NEO_I64;
    CHECK_INT(neo_jagged_id_count(&none), 0);
    CHECK_OK(neo_jagged_validate(&none, NULL));
}

static void test_validate(void) {
    int64_t offsets[] = {2, 4, 4, 5, 8};
    int64_t ids[] = {-7, -7, 0, 4, 1, 8, 9, 3};
    static const int64_t rows[] = {5, 10};
    neo_jagged j = {
        .batch = 2, .feature_count = 2, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    CHECK_OK(neo_jagged_validate(&j, rows));
    ids[6] = 10;
    CHECK_ERR(neo_jagged_validate(&j, rows), NEO_ERR_RANGE,
              "neo_jagged_validate: feature 1, sample 1, position 1: id 10 is not in [0, 10)");
    CHECK_OK(neo_jagged_validate(&j, NULL));
    ids[2] = -1;
    CHECK_ERR(neo_jagged_validate(&j, rows), NEO_ERR_RANGE,
              "feature 0, sample 0, position 0: id -1");
    offsets[3] = 3;
    CHECK_ERR(neo_jagged_validate(&j, rows), NEO_ERR_FORMAT,
              "offsets decrease at feature 1, sample 0: offsets[2] is 4, the next is 3");
    offsets[0] = -1;
    CHECK_ERR(neo_jagged_validate(&j, rows), NEO_ERR_FORMAT, "offsets[0] is -1");
    offsets[0] = 9;
    CHECK_ERR(neo_jagged_validate(&j, rows), NEO_ERR_FORMAT, "from 9 down to 8");
    neo_jagged bad = j;
    CHECK_ERR(neo_jagged_validate(NULL, rows), NEO_ERR_ARG, "NULL");
    bad.offsets = NULL;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "offsets is NULL");
    bad = j;
    offsets[0] = 2;
    bad.ids = NULL;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "ids is NULL");
    bad = j;
    bad.batch = -1;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "batch is -1");
    bad.batch = INT64_MAX / 2;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "64 bits");
    bad = j;
    bad.feature_count = -3;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "feature_count is -3");
    bad = j;
    bad.id_dtype = NEO_F32;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG,
              "ids are f32 (or id_dtype is not set), not");
    bad.id_dtype = NEO_U8;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_ARG, "ids are u8, not i64 or i32");
    int64_t feature_bags[] = {0, 3, 2};
    bad = j;
    bad.feature_bags = feature_bags;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_FORMAT,
              "feature_bags decrease at feature 1");
    feature_bags[0] = 1;
    CHECK_ERR(neo_jagged_validate(&bad, rows), NEO_ERR_FORMAT, "feature_bags[0] is 1");
}

static void test_set(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    static const int32_t lengths[] = {2, 0, 1, 3};
    static const int64_t lengths64[] = {2, 0, 1, 3};
    static const int64_t ids[] = {10, 11, 12, 13, 14, 15};
    static const int32_t ids32[] = {10, 11, 12, 13, 14, 15};
    static const float weights[] = {1, 2, 3, 4, 5, 6};
    for (int kind = 0; kind < 8; kind++) {
        neo_jagged_buffer *b = buffer_make(ctx, 2, 4, 6, kind & 1 ? NEO_I32 : NEO_I64, kind & 2);
        int wide = kind & 4;
        CHECK_OK(neo_jagged_set(b, 2, wide ? (const void *)lengths64 : lengths,
                                wide ? NEO_I64 : NEO_I32, wide ? (const void *)ids : ids32,
                                wide ? NEO_I64 : NEO_I32, kind & 2 ? weights : NULL));
        const neo_jagged *v = neo_jagged_view(b);
        static const int64_t want[] = {0, 2, 2, 3, 6};
        CHECK_BITS(v->offsets, want, sizeof want);
        CHECK_INT(v->batch, 2);
        for (int k = 0; k < 6; k++) CHECK_INT(id_at(v, k), 10 + k);
        if (kind & 2) CHECK_BITS(v->weights, weights, sizeof weights);
        else CHECK(v->weights == NULL);
        CHECK_OK(neo_jagged_validate(v, NULL));
        neo_jagged_destroy(b);
    }
    neo_ctx_destroy(ctx);
}

/* A failed writer leaves the content; the message says what is needed. */
static void test_set_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_jagged_buffer *b = buffer_make(ctx, 1, 2, 3, NEO_I32, 0);
    int64_t lengths[] = {1, 2, 1}, ids[] = {1, 2, 3, 4};
    float weights[] = {1, 2, 3, 4};
    CHECK_OK(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL));
    neo_jagged before = *neo_jagged_view(b);
    CHECK_ERR(neo_jagged_set(b, 3, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_CAPACITY,
              "3 bags are needed, the buffer has room for 2");
    lengths[1] = 3;
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_CAPACITY,
              "4 ids");
    lengths[1] = -2;
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_FORMAT,
              "length of feature 0, sample 1 is -2");
    lengths[1] = INT64_MAX;
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_FORMAT,
              "sample 1");
    lengths[1] = 2;
    ids[2] = (int64_t)1 << 31;
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_RANGE,
              "id 2147483648 (number 2 of its source) does not fit i32");
    ids[2] = -((int64_t)1 << 31);
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, weights), NEO_ERR_ARG,
              "weights");
    CHECK_ERR(neo_jagged_set(b, 2, NULL, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_ARG,
              "lengths is NULL");
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_F32, ids, NEO_I64, NULL), NEO_ERR_ARG,
              "lengths are f32");
    CHECK_ERR(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_U8, NULL), NEO_ERR_ARG, "ids are u8");
    CHECK_ERR(neo_jagged_set(b, -1, lengths, NEO_I64, ids, NEO_I64, NULL), NEO_ERR_ARG,
              "batch is -1");
    const neo_jagged *v = neo_jagged_view(b);
    CHECK_BITS(v, &before, sizeof before);
    CHECK(id_at(v, 0) == 1 && id_at(v, 2) == 3 && v->offsets[2] == 3);
    CHECK_OK(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, NULL));
    CHECK_INT(id_at(v, 2), INT32_MIN);
    CHECK_OK(neo_jagged_set(b, 0, NULL, NEO_I64, NULL, NEO_I64, NULL));
    CHECK_INT(neo_jagged_id_count(v), 0);
    neo_jagged_destroy(b);
    neo_ctx_destroy(ctx);
}

static void test_from_lists(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_jagged_buffer *b = buffer_make(ctx, 2, 4, 8, NEO_I64, 1);
    static const int64_t x[] = {5, 6, 7}, y[] = {8};
    const int64_t *lists[] = {x, NULL, y, x};
    int64_t counts[] = {3, 0, 1, 2};
    CHECK_OK(neo_jagged_from_lists(b, 2, lists, counts));
    const neo_jagged *v = neo_jagged_view(b);
    static const int64_t offsets[] = {0, 3, 3, 4, 6}, ids[] = {5, 6, 7, 8, 5, 6};
    CHECK_BITS(v->offsets, offsets, sizeof offsets);
    CHECK_BITS(v->ids, ids, sizeof ids);
    for (int k = 0; k < 6; k++) CHECK(v->weights[k] == 1.0f);
    counts[1] = 1;
    CHECK_ERR(neo_jagged_from_lists(b, 2, lists, counts), NEO_ERR_ARG,
              "list of feature 0, sample 1 is NULL");
    counts[1] = -1;
    CHECK_ERR(neo_jagged_from_lists(b, 2, lists, counts), NEO_ERR_FORMAT, "sample 1 is -1");
    counts[1] = 0;
    CHECK_ERR(neo_jagged_from_lists(b, 3, lists, counts), NEO_ERR_CAPACITY, "6 bags");
    CHECK_BITS(v->ids, ids, sizeof ids);
    neo_jagged_destroy(b);
    neo_ctx_destroy(ctx);
}

static void test_concat_select(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int kind = 0; kind < 16; kind++) {
        static Source a, c, d;
        int variable = kind & 4, weighted = kind & 2;
        source_make(&a, 3, 5, kind & 1, weighted, variable);
        source_make(&c, 0, 5, 0, 0, 0);
        source_make(&d, 2, 5, !(kind & 1), 0, 0);
        const neo_jagged *parts[] = {&a.j, &c.j, &d.j};
        neo_jagged_buffer *b = buffer_make(ctx, 5, 64, 512, kind & 8 ? NEO_I32 : NEO_I64, weighted);
        CHECK_OK(neo_jagged_concat(b, parts, 3));
        const neo_jagged *v = neo_jagged_view(b);
        CHECK_OK(neo_jagged_validate(v, NULL));
        CHECK(!v->feature_bags == !variable);
        for (int f = 0; f < 5; f++) {
            const neo_jagged *s = f < 3 ? &a.j : &d.j;
            int64_t from = first_bag(s, f < 3 ? f : f - 3),
                    n = first_bag(s, f < 3 ? f + 1 : f - 2) - from;
            CHECK_INT(first_bag(v, f + 1) - first_bag(v, f), n);
            for (int64_t i = 0; i < n; i++) check_bag(v, first_bag(v, f) + i, s, from + i);
        }
        static const int32_t features[] = {4, 0, 2, 0};
        neo_jagged_buffer *p = buffer_make(ctx, 4, 64, 512, NEO_I64, weighted);
        CHECK_OK(neo_jagged_select(p, v, features, 4));
        const neo_jagged *q = neo_jagged_view(p);
        for (int f = 0; f < 4; f++)
            for (int64_t i = 0; i < first_bag(q, f + 1) - first_bag(q, f); i++)
                check_bag(q, first_bag(q, f) + i, v, first_bag(v, features[f]) + i);
        static const int32_t wrong[] = {0, 1, 5, 2};
        CHECK_ERR(neo_jagged_select(p, v, wrong, 4), NEO_ERR_RANGE,
                  "features[2] is 5, the batch has 5");
        CHECK_ERR(neo_jagged_select(p, v, features, 3), NEO_ERR_SHAPE, "the result has 3 features");
        CHECK_ERR(neo_jagged_select(p, q, features, 4), NEO_ERR_ARG, "view of the buffer");
        CHECK_ERR(neo_jagged_concat(b, parts, 2), NEO_ERR_SHAPE, "3 features");
        if (!variable) {
            d.j.batch = 4;
            CHECK_ERR(neo_jagged_concat(b, parts, 3), NEO_ERR_SHAPE, "source 2 has 4 samples");
        }
        CHECK_OK(neo_jagged_validate(v, NULL));
        neo_jagged_destroy(p);
        neo_jagged_destroy(b);
    }
    neo_ctx_destroy(ctx);
}

static void test_slice_stack_transpose(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int kind = 0; kind < 4; kind++) {
        static Source a, c;
        source_make(&a, 4, 6, kind & 1, kind & 2, 0);
        source_make(&c, 4, 3, kind & 1, kind & 2, 0);
        neo_jagged_buffer *x = buffer_make(ctx, 4, 40, 512, NEO_I64, kind & 2);
        neo_jagged_buffer *y = buffer_make(ctx, 4, 40, 512, NEO_I64, kind & 2);
        neo_jagged_buffer *z = buffer_make(ctx, 4, 40, 512, NEO_I64, kind & 2);
        const neo_jagged *p = neo_jagged_view(x), *q = neo_jagged_view(y), *r = neo_jagged_view(z);
        CHECK_OK(neo_jagged_slice(x, &a.j, 2, 3));
        for (int f = 0; f < 4; f++)
            for (int i = 0; i < 3; i++) check_bag(p, f * 3 + i, &a.j, f * 6 + 2 + i);
        CHECK_ERR(neo_jagged_slice(x, &a.j, 4, 3), NEO_ERR_RANGE,
                  "3 samples from 4 on are not within 6");
        CHECK_ERR(neo_jagged_slice(x, &a.j, -1, 3), NEO_ERR_RANGE, "from -1");
        const neo_jagged *parts[] = {&c.j, &a.j};
        CHECK_OK(neo_jagged_stack(y, parts, 2));
        CHECK_INT(q->batch, 9);
        for (int f = 0; f < 4; f++)
            for (int i = 0; i < 9; i++)
                check_bag(q, f * 9 + i, i < 3 ? &c.j : &a.j, i < 3 ? f * 3 + i : f * 6 + i - 3);
        CHECK_OK(neo_jagged_slice(x, q, 3, 6)); /* back to a */
        CHECK_INT(p->batch, 6);
        for (int i = 0; i < 24; i++) check_bag(p, i, &a.j, i);
        CHECK_OK(neo_jagged_transpose(z, &a.j)); /* a read as 6 samples of 4 features */
        for (int f = 0; f < 4; f++)
            for (int i = 0; i < 6; i++) check_bag(r, f * 6 + i, &a.j, i * 4 + f);
        CHECK_OK(neo_jagged_slice(x, &a.j, 6, 0));
        CHECK_INT(neo_jagged_bag_count(p), 0);
        neo_jagged_destroy(x);
        neo_jagged_destroy(y);
        neo_jagged_destroy(z);
    }
    neo_ctx_destroy(ctx);
}

static void test_reserve(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_jagged_buffer *b = buffer_make(ctx, 1, 2, 3, NEO_I64, 1);
    static const int64_t lengths[] = {1, 2}, more[] = {2, 2, 1}, ids[] = {7, 8, 9, 4, 5};
    static const float weights[] = {1, 2, 3, 4, 5};
    CHECK_OK(neo_jagged_set(b, 2, lengths, NEO_I64, ids, NEO_I64, weights));
    CHECK_OK(neo_jagged_reserve(b, 1, 3));
    CHECK_INT(neo_jagged_grow_count(b), 0);
    CHECK_OK(neo_jagged_reserve(b, 3, 5));
    CHECK_INT(neo_jagged_grow_count(b), 1);
    const neo_jagged *v = neo_jagged_view(b);
    CHECK(v->offsets[2] == 3 && id_at(v, 2) == 9 && v->weights[2] == 3.0f);
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(neo_jagged_set(b, 3, more, NEO_I64, ids, NEO_I64, weights));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    CHECK_ERR(neo_jagged_reserve(b, 3, INT64_MAX), NEO_ERR_MEMORY, "no memory");
    CHECK(v->offsets[3] == 5 && id_at(v, 4) == 5);
    neo_jagged_destroy(b);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_jagged_desc d = {1, -1, 3, NEO_I64, 0, 0, NEO_HOST};
    CHECK_ERR(neo_jagged_create(ctx, &d, &b), NEO_ERR_ARG, "max_bags -1");
    neo_jagged_desc e = {1, 1, 3, NEO_BF16, 0, 0, NEO_HOST};
    CHECK_ERR(neo_jagged_create(ctx, &e, &b), NEO_ERR_ARG, "bf16");
    neo_ctx_destroy(ctx);
}

/* Normalized weights against sum(w x) / sum(w) in double, their gradient against finite
   differences; in place, and what is refused. */
static double weighted_mean(const neo_jagged *j, const float *w, int64_t bag, const double *x) {
    double top = 0, bottom = 0;
    for (int64_t k = j->offsets[bag]; k < j->offsets[bag + 1]; k++) {
        top += (double)w[k] * x[k];
        bottom += (double)w[k];
    }
    return bottom != 0 ? top / bottom : 0;
}
static void test_normalize(void) {
    static Source a;
    static float out[1024], dw[1024], g[1024], before[1024], w[1024];
    static double x[1024];
    for (int variable = 0; variable < 2; variable++) {
        source_make(&a, 3, 12, 0, 1, variable);
        const int64_t bags = neo_jagged_bag_count(&a.j), first = a.offsets[0],
                      end = a.offsets[bags];
        for (int64_t k = 0; k < 1024; k++) {
            x[k] = (double)test_uniform();
            a.weights[k] += k % 3 ? 2.0f : -0.25f; /* some below 0, no sum near it */
            g[k] = out[k] = dw[k] = 77.0f;
        }
        int64_t zeros = 0; /* the first bag of two or more ids */
        while (a.offsets[zeros + 1] - a.offsets[zeros] < 2) zeros++;
        for (int64_t k = a.offsets[zeros]; k < a.offsets[zeros + 1]; k++) a.weights[k] = 0.0f;
        for (int64_t i = 0; i < bags; i++) /* dout of the loss sum_i (i + 1) mean_i */
            for (int64_t k = a.offsets[i]; k < a.offsets[i + 1]; k++)
                g[k] = (float)((double)(i + 1) * x[k]);
        CHECK_OK(neo_jagged_normalize(&a.j, out));
        CHECK_OK(neo_jagged_normalize_backward(&a.j, g, dw));
        for (int64_t i = 0; i < bags; i++) {
            double sum = 0, step = 1e-4, got = 0;
            for (int64_t k = a.offsets[i]; k < a.offsets[i + 1]; k++) {
                got += (double)out[k] * x[k];
                sum += (double)out[k];
            }
            CHECK_NEAR(got, weighted_mean(&a.j, a.weights, i, x), 1e-5);
            if (a.offsets[i] < a.offsets[i + 1]) CHECK_NEAR(sum, i == zeros ? 0.0 : 1.0, 1e-5);
            for (int64_t k = a.offsets[i]; k < a.offsets[i + 1]; k++) {
                memcpy(w, a.weights, sizeof w);
                w[k] = a.weights[k] + (float)step;
                double up = weighted_mean(&a.j, w, i, x), width = (double)w[k];
                w[k] = a.weights[k] - (float)step;
                width -= (double)w[k];
                double slope = (double)(i + 1) * (up - weighted_mean(&a.j, w, i, x)) / width;
                if (i == zeros) CHECK(dw[k] == 0.0f && out[k] == 0.0f);
                else CHECK_NEAR((double)dw[k], slope, 1e-2 * (1 + fabs(slope)));
            }
        }
        for (int64_t k = 0; k < 1024; k++) /* nothing else is written */
            CHECK((k >= first && k < end) || (out[k] == 77.0f && dw[k] == 77.0f));
        memcpy(before, a.weights, sizeof before);
        CHECK_OK(neo_jagged_normalize_backward(&a.j, g, g));
        CHECK_BITS(g + first, dw + first, (size_t)(end - first) * sizeof *g);
        CHECK_OK(neo_jagged_normalize(&a.j, a.weights));
        CHECK_BITS(a.weights + first, out + first, (size_t)(end - first) * sizeof *out);
        memcpy(a.weights, before, sizeof before);
        const float wrong[5][2] = {{1, -1}, {NAN, 1}, {INFINITY, 1}, {0, NAN}, {1e38f, -1e38f}};
        for (int i = 0; i < 5; i++) { /* refused before anything is written */
            a.weights[a.offsets[zeros]] = wrong[i][0];
            a.weights[a.offsets[zeros] + 1] = wrong[i][1];
            memset(out, 0, sizeof out);
            CHECK_ERR(neo_jagged_normalize(&a.j, out), NEO_ERR_NUMERIC,
                      "neo_jagged_normalize: the weights of feature");
            for (int64_t k = 0; k < 1024; k++) CHECK(out[k] == 0.0f);
            CHECK_ERR(neo_jagged_normalize_backward(&a.j, g, dw), NEO_ERR_NUMERIC, " sum to ");
        }
    }
    neo_jagged bad = a.j;
    bad.weights = NULL;
    CHECK_ERR(neo_jagged_normalize(&bad, out), NEO_ERR_ARG, "no weights");
    bad = a.j;
    bad.place = NEO_DEVICE;
    CHECK_ERR(neo_jagged_normalize(&bad, out), NEO_ERR_UNSUPPORTED, "on a device");
    CHECK_ERR(neo_jagged_normalize(NULL, out), NEO_ERR_ARG, "NULL");
    CHECK_ERR(neo_jagged_normalize_backward(&a.j, NULL, out), NEO_ERR_ARG, "dout is NULL");
    a.offsets[1] = a.offsets[2] + 1;
    CHECK_ERR(neo_jagged_normalize(&a.j, out), NEO_ERR_FORMAT, "offsets decrease");
}

/* The weighted mean of rows as PyTorch would write it, (w[:, None] * x).sum(0) / w.sum(), through a
   table of buckets: pooled rows, one SGD step, and the gradient of the weights. */
static void test_weighted_mean_of_rows(void) {
    enum { ROWS = 40, DIM = 6, BATCH = 9, IDS = 4 };
    static float w[BATCH * IDS], n[BATCH * IDS], dn[BATCH * IDS], y[BATCH * DIM], dy[BATCH * DIM],
        row[ROWS * DIM], after[ROWS * DIM];
    static double step[ROWS][DIM];
    int64_t offsets[BATCH + 1], id[BATCH * IDS], count = 0;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    neo_table_desc table = {0};
    neo_bags_desc d = {0};
    neo_bags *bags = NULL;
    neo_jagged j = {0};
    table.name = "t";
    table.rows = ROWS;
    table.dim = DIM;
    table.row_buckets = 4;
    d.tables = &table;
    d.table_count = 1;
    d.max_batch = BATCH;
    d.max_ids = BATCH * IDS;
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
    CHECK_OK(neo_bags_get_rows(bags, 0, 0, ROWS, row));
    for (int i = 0; i < BATCH; i++) {
        offsets[i] = count;
        for (int k = 0; k < i % (IDS + 1); k++, count++) {
            id[count] = (int64_t)(test_random() % ROWS);
            w[count] = test_uniform() + 1.5f;
        }
    }
    offsets[BATCH] = count;
    for (int i = 0; i < BATCH * DIM; i++) dy[i] = test_uniform();
    j.batch = BATCH;
    j.feature_count = 1;
    j.offsets = offsets;
    j.id_dtype = NEO_I64;
    j.ids = id;
    j.weights = w;
    CHECK_OK(neo_jagged_normalize(&j, n));
    j.weights = n;
    CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(y, NEO_F32, BATCH, DIM)));
    neo_tensor dout = neo_tensor_2d(dy, NEO_F32, BATCH, DIM);
    CHECK_OK(neo_bags_weight_grad(bags, &j, dout, dn));
    CHECK_OK(neo_bags_backward(bags, &j, dout, 0.5f));
    j.weights = w;
    CHECK_OK(neo_jagged_normalize_backward(&j, dn, dn));
    CHECK_OK(neo_bags_get_rows(bags, 0, 0, ROWS, after));
    for (int i = 0; i < BATCH; i++) {
        double sum = 0, mean[DIM] = {0};
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) sum += (double)w[k];
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++)
            for (int c = 0; c < DIM; c++) {
                mean[c] += (double)w[k] / sum * (double)row[id[k] * DIM + c];
                step[id[k]][c] += 0.5 * (double)w[k] / sum * (double)dy[i * DIM + c];
            }
        for (int c = 0; c < DIM; c++) CHECK_NEAR(y[i * DIM + c], mean[c], 1e-6);
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) {
            double want = 0;
            for (int c = 0; c < DIM; c++)
                want += (double)dy[i * DIM + c] * ((double)row[id[k] * DIM + c] - mean[c]) / sum;
            CHECK_NEAR(dn[k], want, 1e-6);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < DIM; c++)
            CHECK_NEAR(after[i * DIM + c], (double)row[i * DIM + c] - step[i][c], 1e-6);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* Random damage to offsets and ids: whatever the validator accepts can be followed, whatever the
   bags accept too, and what is refused changes nothing. Run under AddressSanitizer to see the
   reads. */
static void test_damage(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    neo_table_desc tables[3];
    memset(tables, 0, sizeof tables);
    static const char *const names[] = {"a", "b", "c"};
    static const int64_t rows[] = {50, 9, 200};
    for (int t = 0; t < 3; t++) {
        tables[t].name = names[t];
        tables[t].rows = rows[t];
        tables[t].dim = 5 + t;
    }
    neo_bags_desc bd;
    memset(&bd, 0, sizeof bd);
    bd.tables = tables;
    bd.table_count = 3;
    bd.max_batch = 8;
    bd.max_ids = 200;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &bd, &bags));
    neo_jagged_buffer *b = buffer_make(ctx, 3, 24, 200, NEO_I64, 0);
    int accepted = 0;
    for (int round = 0; round < 3000; round++) {
        int64_t offsets[25], *ids;
        offsets[0] = (int64_t)test_random() % 4;
        for (int i = 0; i < 24; i++) offsets[i + 1] = offsets[i] + (int64_t)test_random() % 4;
        int64_t n = offsets[24];
        for (int hits = (int)test_random() % 3; hits > 0; hits--) {
            static const int64_t odd[] = {-1, INT64_MIN, INT64_MAX, 0, 1, 7};
            offsets[test_random() % 24] =
                test_random() % 2 ? odd[test_random() % 6] : (int64_t)test_random() % (n + 1);
        }
        ids = malloc(sizeof *ids * (size_t)(n + 1)); /* exactly as long as the last offset says */
        for (int64_t k = 0; k < n; k++)
            ids[k] = (int64_t)test_random() % (test_random() % 64 ? 9 : 12);
        neo_jagged j = {
            .batch = 8, .feature_count = 3, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
        float out[8 * 18], before[8 * 18];
        for (int i = 0; i < 8 * 18; i++) before[i] = out[i] = 9.0f;
        neo_tensor t = neo_tensor_2d(out, NEO_F32, 8, 18);
        int64_t steps = neo_bags_get_stats(bags).steps;
        neo_status valid = neo_jagged_validate(&j, rows);
        neo_status forward = neo_bags_forward(bags, &j, t);
        CHECK((valid == NEO_OK) == (forward == NEO_OK));
        if (forward != NEO_OK) CHECK_BITS(out, before, sizeof out);
        neo_status backward = neo_bags_backward(bags, &j, t, 0.01f);
        CHECK(backward == forward);
        CHECK_INT(neo_bags_get_stats(bags).steps, steps + (backward == NEO_OK));
        neo_status slice = neo_jagged_slice(b, &j, 1, 5);
        CHECK((slice == NEO_OK) == (valid == NEO_OK || valid == NEO_ERR_RANGE));
        accepted += valid == NEO_OK;
        free(ids);
    }
    CHECK(accepted > 300 && accepted < 2700);
    neo_jagged_destroy(b);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(test_counts);
    RUN(test_validate);
    RUN(test_set);
    RUN(test_set_errors);
    RUN(test_from_lists);
    RUN(test_concat_select);
    RUN(test_slice_stack_transpose);
    RUN(test_reserve);
    RUN(test_normalize);
    RUN(test_weighted_mean_of_rows);
    RUN(test_damage);
    return test_end("bags/jagged");
}
