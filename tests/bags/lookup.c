/* lookup.c: embedding bags: lookup, merged gradients, bounds policies, memory, the same bits.

   Values against naive double loops; the order of every sum against naive f32 loops that follow the
   numeric contract literally (bits equal); instruction sets, thread counts and table orders against
   each other (bits equal). The optimizers have optim.c. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* mmap flags */
#endif
#include "common.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

static const neo_isa all_isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};

/* The tree of the contract over parts [lo, lo + n) of which some are absent (NULL). 1: something is
   in out. */
static int tree_sum(float **part, int64_t n, float *out) {
    if (n == 1) {
        if (*part) *out = **part;
        return *part != NULL;
    }
    int64_t p = 1;
    while (p * 2 < n) p *= 2;
    float left = 0, right = 0;
    int has_left = tree_sum(part, p, &left), has_right = tree_sum(part + p, n - p, &right);
    *out = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

/* One column of one pooled bag, as documented. */
static float pooled(const Model *m, const Batch *b, int f, int64_t bag, const float *w, int64_t d) {
    const neo_table_desc *t = &m->table[m->feature_table[f]];
    const neo_jagged *j = &b->j;
    int64_t buckets = t->row_buckets ? t->row_buckets : 1,
            length = j->offsets[bag + 1] - j->offsets[bag];
    float sum[128] = {0}, *part[128] = {0}, out = 0;
    for (int64_t k = j->offsets[bag]; k < j->offsets[bag + 1]; k++) {
        int64_t row = row_of(m, f, batch_id(b, k)), r = 0;
        if (row < 0) continue;
        while (row >= (r + 1) * t->rows / buckets) r++;
        float x = w[row * t->dim + d];
        sum[r] = j->weights ? fmaf(j->weights[k], x, sum[r]) : sum[r] + x;
        part[r] = &sum[r];
    }
    tree_sum(part, buckets, &out);
    if (buckets > 1) out = out + 0.0f;
    return t->pooling == NEO_POOL_MEAN && length > 0 ? out / (float)length : out;
}

static void check_forward(const Model *m, const neo_bags *bags, const Batch *b, const Out *out) {
    const neo_jagged *j = &b->j;
    for (int f = 0; f < m->desc.feature_count; f++) {
        const neo_table_desc *t = &m->table[m->feature_table[f]];
        const float *w = (const float *)neo_bags_weight(bags, m->feature_table[f]).data;
        for (int64_t s = 0; s < first_bag(j, f + 1) - first_bag(j, f); s++) {
            int64_t bag = first_bag(j, f) + s, k_end = j->offsets[bag + 1];
            if (t->pooling != NEO_POOL_NONE) {
                for (int64_t d = 0; d < t->dim; d++) {
                    float want = pooled(m, b, f, bag, w, d), got = *out_at(out, m, j, f, s, 0, d);
                    if (memcmp(&want, &got, 4) != 0)
                        FAIL("feature %d sample %d column %d: %.9g, expected %.9g", f, (int)s,
                             (int)d, (double)got, (double)want);
                }
                continue;
            }
            for (int64_t k = j->offsets[bag]; k < k_end; k++) {
                int64_t row = row_of(m, f, batch_id(b, k));
                for (int64_t d = 0; d < t->dim; d++) {
                    float want = row < 0 ? 0.0f : w[row * t->dim + d];
                    if (j->weights && row >= 0) want *= j->weights[k];
                    float got = *out_at(out, m, j, f, s, k, d);
                    if (memcmp(&want, &got, 4) != 0)
                        FAIL("id %d column %d: %.9g, expected %.9g", (int)k, (int)d, (double)got,
                             (double)want);
                }
            }
        }
    }
}

/* The merged gradient of one row and column in f32, as documented. */
static float merged(const Model *m, const Batch *b, const Out *dout, int t, int64_t row, int64_t d,
                    int shards) {
    float sum[16] = {0}, *part[16] = {0}, out = 0;
    const neo_jagged *j = &b->j;
    for (int v = 0; v < shards; v++) {
        for (int f = 0; f < m->desc.feature_count; f++) {
            if (m->feature_table[f] != t) continue;
            int64_t samples = first_bag(j, f + 1) - first_bag(j, f);
            for (int64_t s = neo_leaf_begin(samples, shards, v);
                 s < neo_leaf_begin(samples, shards, v + 1); s++) {
                int64_t bag = first_bag(j, f) + s, length = j->offsets[bag + 1] - j->offsets[bag];
                for (int64_t k = j->offsets[bag]; k < j->offsets[bag + 1]; k++) {
                    if (row_of(m, f, batch_id(b, k)) != row) continue;
                    float x = *out_at(dout, m, j, f, s, k, d);
                    if (m->table[t].pooling == NEO_POOL_MEAN) x = x / (float)length;
                    sum[v] = j->weights ? fmaf(j->weights[k], x, sum[v]) : sum[v] + x;
                    part[v] = &sum[v];
                }
            }
        }
    }
    tree_sum(part, shards, &out);
    return out + 0.0f;
}

/* From weights of zero, SGD at rate 1 leaves minus the merged gradient. */
static void check_backward(const Model *m, neo_bags *bags, const Batch *b, const Out *dout,
                           int shards) {
    for (int t = 0; t < m->desc.table_count; t++) {
        float *w = (float *)neo_bags_weight(bags, t).data;
        memset(w, 0, sizeof *w * (size_t)(m->table[t].rows * m->table[t].dim));
    }
    CHECK_OK(neo_bags_backward(bags, &b->j, dout->t, 1.0f));
    for (int t = 0; t < m->desc.table_count; t++) {
        const float *w = (const float *)neo_bags_weight(bags, t).data;
        int64_t rows = m->table[t].rows, dim = m->table[t].dim;
        char *touched = malloc((size_t)rows);
        double *dense = dense_grad(m, t, b, dout, touched);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t d = 0; d < dim; d++) {
                float got = -w[r * dim + d];
                if (!(fabs((double)got - dense[r * dim + d]) <=
                      1e-5 * (1 + fabs(dense[r * dim + d]))))
                    FAIL("table %d row %d column %d: %.9g, expected %.9g", t, (int)r, (int)d,
                         (double)got, dense[r * dim + d]);
                if (d > 2 && d < dim - 2) continue; /* the literal sum is slow: a few columns */
                float want = touched[r] ? merged(m, b, dout, t, r, d, shards) : -0.0f;
                if (want == 0.0f) want = 0.0f, got = got + 0.0f;
                if (memcmp(&want, &got, 4) != 0)
                    FAIL("table %d row %d column %d: bits of %.9g, expected %.9g", t, (int)r,
                         (int)d, (double)got, (double)want);
            }
        }
        free(dense);
        free(touched);
    }
}

static void run_case(const Model *m, BatchKind kind, int shards, int threads, neo_isa isa,
                     int bad_ids) {
    neo_ctx *ctx = test_ctx(threads, isa, shards);
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m->desc, &bags));
    Batch b;
    batch_make(&b, m, kind);
    for (int64_t k = b.offsets[0]; bad_ids && k < neo_jagged_id_count(&b.j); k += 3)
        batch_set_id(&b, k, k % 2 ? -1 - k : 1000000 + k);
    Out out, dout;
    out_make(&out, m, &b.j, 3);
    out_make(&dout, m, &b.j, 0);
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(neo_bags_forward(bags, &b.j, out.t));
    check_forward(m, bags, &b, &out);
    check_backward(m, bags, &b, &dout, shards);
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    free(out.data);
    free(dout.data);
    batch_free(&b);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* Every pooling, weights, leaves, id types, starts, variable batches, against the references. */
static void test_values(void) {
    static const int64_t rows[] = {11, 40, 7}, dims[] = {16, 17, 3};
    static const int64_t none_dims[] = {19, 19, 19};
    int n = 0;
    for (int pooling = NEO_POOL_SUM; pooling <= NEO_POOL_NONE; pooling++) {
        for (int weighted = 0; weighted < 2; weighted++) {
            for (int shards = 1; shards <= 8; shards = shards < 3 ? shards + 1 : shards + 5) {
                for (int variable = 0; variable < 2; variable++, n++) {
                    Model m;
                    int none = pooling == NEO_POOL_NONE;
                    model_init(&m, 3, rows, none ? none_dims : dims, n % 2 ? 5 : 3,
                               (neo_pooling)pooling);
                    BatchKind kind = {13, 7, n % 3 == 1, weighted, n % 2, variable};
                    run_case(&m, kind, shards, 1 + n % 3, NEO_ISA_BEST, 0);
                }
            }
        }
    }
}

/* Dimensions around vector and block widths; batches of 0 and 1; long bags. */
static void test_edges(void) {
    static const int64_t dims[] = {1, 2, 3, 15, 16, 17, 31, 32, 48, 64, 100, 128, 129, 256, 300};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int64_t rows = 9;
        Model m;
        for (int batch = 0; batch <= 2; batch++) {
            for (int isa = 0; isa < 4; isa++) {
                if (!neo_isa_available(all_isas[isa])) continue;
                model_init(&m, 1, &rows, &dims[i], 1, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
                BatchKind kind = {batch, 40, 0, i % 3 == 0, 0, 0};
                run_case(&m, kind, 1 + 2 * (int)(i % 3), 1, all_isas[isa], 0);
            }
        }
        BatchKind empty = {4, 0, 0, 0, 0, 0}; /* all bags empty */
        run_case(&m, empty, 2, 2, NEO_ISA_BEST, 0);
    }
    int64_t one_row = 1, dim = 8; /* a table of one row; more leaves than samples */
    Model m;
    model_init(&m, 1, &one_row, &dim, 2, NEO_POOL_SUM);
    BatchKind kind = {5, 9, 1, 1, 1, 0};
    run_case(&m, kind, 8, 2, NEO_ISA_BEST, 0);
    m.desc.bounds = NEO_BOUNDS_DROP;
    run_case(&m, kind, 8, 2, NEO_ISA_BEST, 1);
}

/* Bags short, long, and longer than what is looked at in one go; columns in parts of a vector. */
static void test_row_buckets(void) {
    static const int64_t rows[] = {50, 13, 200}, dims[] = {24, 100, 3};
    static const int buckets[] = {2, 3, 5, 7, 8, 9, 13, 64, 65, 100, 190};
    static const int longest[] = {5, 25, 200};
    static const neo_bounds bounds[] = {NEO_BOUNDS_ERROR, NEO_BOUNDS_CLAMP, NEO_BOUNDS_DROP};
    for (int n = 0; n < 10 * 3 * 4; n++) {
        Model m;
        const int kind = n % 4, policy = n / 4 % 3;
        model_init(&m, 3, rows, dims, 3, kind % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        for (int t = 0; t < 3; t++) m.table[t].row_buckets = buckets[n / 12];
        m.desc.bounds = bounds[policy];
        BatchKind k = {n % 3 < 2 ? 9 : 3, longest[n % 3], n % 5 == 0, kind / 2, 0, 0};
        neo_isa isa = all_isas[n % 7 % 4];
        run_case(&m, k, 1, 2, neo_isa_available(isa) ? isa : NEO_ISA_BEST, policy > 0);
    }
}

/* Infinite rows, and sums that overflow, in some buckets: every other sum, and what they are
   themselves, is that of the naive loop, whatever a loop multiplies by zero. */
static void test_infinite_rows(void) {
    enum { ROWS = 64, DIM = 48, BAGS = 3, IDS = 12 };
    static const int64_t offsets[] = {0, 5, 8, IDS}, rows = ROWS, dim = DIM;
    static const int64_t ids[] = {3, 62, 17, 4, 40, 9, 30, 60, 33, 34, 50, 1};
    for (int i = 0; i < (int)(sizeof all_isas / sizeof *all_isas); i++) {
        if (!neo_isa_available(all_isas[i])) continue;
        neo_ctx *ctx = test_ctx(1, all_isas[i], 1);
        Model m;
        model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
        m.table[0].row_buckets = 8;
        neo_bags *bags = NULL;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        float *w = (float *)neo_bags_weight(bags, 0).data;
        for (int64_t r = 0; r < ROWS; r++)
            for (int c = 0; c < DIM; c++) w[r * DIM + c] = (float)(r + c);
        w[17 * DIM + 1] = INFINITY, w[40 * DIM + DIM - 1] = -INFINITY;
        w[33 * DIM + 20] = w[34 * DIM + 20] = 3e38f;
        float out[BAGS * DIM];
        const neo_jagged j = {.batch = BAGS, .feature_count = 1, .id_dtype = NEO_I64,
                              .offsets = offsets, .ids = ids};
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, BAGS, DIM)));
        for (int b = 0; b < BAGS; b++)
            for (int c = 0; c < DIM; c++) {
                float want = 0;
                for (int64_t k = offsets[b]; k < offsets[b + 1]; k++) want += w[ids[k] * DIM + c];
                if (out[b * DIM + c] != want)
                    FAIL("bag %d column %d: %g, expected %g", b, c, (double)out[b * DIM + c],
                         (double)want);
            }
        CHECK(isinf(out[1]) && isinf(out[DIM - 1]) && isinf(out[2 * DIM + 20]));
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* Weights, state and output after three steps, as one digest: the same for every path. */
static uint64_t digest(uint64_t h, const void *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
    return h;
}
static uint64_t train_digest(const Model *m, int threads, neo_isa isa, int shards, BatchKind kind,
                             int bad_ids) {
    neo_ctx *ctx = test_ctx(threads, isa, shards);
    neo_bags *bags = NULL;
    uint64_t h = 14695981039346656037u;
    CHECK_OK(neo_bags_create(ctx, &m->desc, &bags));
    if (!bags) return 0;
    test_seed = 7;
    for (int step = 0; step < 3; step++) {
        Batch b;
        batch_make(&b, m, kind);
        for (int64_t k = b.offsets[0]; bad_ids && k < neo_jagged_id_count(&b.j); k += 5)
            batch_set_id(&b, k, k % 2 ? -1 - k : 1000000 + k);
        Out out;
        out_make(&out, m, &b.j, 0);
        CHECK_OK(neo_bags_forward(bags, &b.j, out.t));
        h = digest(h, out.data, sizeof(float) * (size_t)out.count);
        CHECK_OK(neo_bags_backward(bags, &b.j, out.t, 0.125f));
        float *dweights = calloc((size_t)neo_jagged_id_count(&b.j) + 1, sizeof(float));
        CHECK_OK(neo_bags_weight_grad(bags, &b.j, out.t, dweights));
        h = digest(h, dweights, sizeof(float) * (size_t)neo_jagged_id_count(&b.j));
        free(dweights);
        free(out.data);
        batch_free(&b);
    }
    for (int t = 0; t < m->desc.table_count; t++) {
        for (int k = -1; k < 2; k++) {
            neo_tensor x = k < 0 ? neo_bags_weight(bags, t) : neo_bags_state(bags, t, k);
            if (x.data) h = digest(h, x.data, neo_tensor_bytes(x));
        }
    }
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    return h;
}
static void test_same_bits(void) {
    static const int64_t rows[] = {700, 90, 3000, 5}, dims[] = {16, 64, 33, 100};
    static const int64_t none_dims[] = {20, 20, 20, 20};
    static const int shard_counts[] = {1, 2, 3, 8}, thread_counts[] = {1, 2, 3, 8};
    for (int kind = 0; kind < 6; kind++) {
        Model m;
        int none = kind == 5;
        model_init(&m, 4, rows, none ? none_dims : dims, kind % 2 ? 6 : 4,
                   none ? NEO_POOL_NONE : kind == 3 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        for (int t = 0; t < 4; t++)
            m.table[t].optim.kind = (neo_bag_optim_kind)((t + kind * 4) % NEO_BAG_OPTIM_COUNT);
        m.desc.bounds = kind == 4   ? NEO_BOUNDS_DROP
                        : kind == 2 ? NEO_BOUNDS_CLAMP
                                    : NEO_BOUNDS_ERROR;
        BatchKind k = {200, 40, kind % 2, kind % 3 == 1, 0, kind == 2};
        for (int s = 0; s < 4; s++) {
            uint64_t want =
                train_digest(&m, 1, TEST_WATCHED == 2 ? NEO_ISA_BEST : NEO_ISA_SCALAR,
                             shard_counts[s], k, kind == 4 || kind == 2);
            for (int isa = 0; isa < 4; isa++) {
                if (!neo_isa_available(all_isas[isa])) continue;
                for (int t = TEST_WATCHED == 2; t < 4; t++) { /* races need threads */
                    if (all_isas[isa] == NEO_ISA_SCALAR && t > 3 - TEST_WATCHED)
                        continue; /* slow, and covered */
                    if ((kind + s + isa + t) % (1 << TEST_WATCHED)) continue;
                    uint64_t got = train_digest(&m, thread_counts[t], all_isas[isa],
                                                shard_counts[s], k, kind == 4 || kind == 2);
                    if (got != want)
                        FAIL("kind %d: %s on %d threads differs with %d leaves", kind,
                             neo_isa_name(all_isas[isa]), thread_counts[t], shard_counts[s]);
                }
            }
        }
    }
}

/* One table that holds most of the batch, with a hot row: the shared sort, 1 to 3 digits, against
   the sort on one thread, whose digits may be wider (from 2000 rows on one instead of two, from
   700000 two instead of three). */
static void test_shared_sort(void) {
    static const int64_t row_counts[] = {2, 500, 100000, 3000000, 2000, 1000, 700000};
    for (int i = 0; i < 7; i++) {
        int64_t rows[] = {row_counts[i], 10}, dims[] = {1, 2};
        Model m;
        model_init(&m, 2, rows, dims, 2 + i % 2, NEO_POOL_SUM);
        m.desc.max_ids = 1 << 20;
        m.desc.bounds = NEO_BOUNDS_DROP;
        BatchKind k = {200, 1000, 0, i == 2, 0, 0};
        uint64_t want = train_digest(&m, 1, NEO_ISA_BEST, 3, k, i == 1);
        CHECK(train_digest(&m, 2, NEO_ISA_BEST, 3, k, i == 1) == want);
        CHECK(train_digest(&m, 7, NEO_ISA_BEST, 3, k, i == 1) == want);
    }
}

/* The order of the tables does not show in any of them. */
static void test_table_order(void) {
    static const int64_t rows[] = {30, 200, 50}, dims[] = {8, 20, 64};
    static const int order[] = {2, 0, 1};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model a, b;
    model_init(&a, 3, rows, dims, 3, NEO_POOL_SUM);
    for (int t = 0; t < 3; t++) a.table[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    b = a;
    b.desc.tables = b.table;
    b.desc.feature_table = b.feature_table;
    for (int t = 0; t < 3; t++) b.table[t] = a.table[order[t]];
    neo_bags *x = NULL, *y = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &a.desc, &x));
    REQUIRE_OK(neo_bags_create(ctx, &b.desc, &y));
    Batch batch;
    BatchKind kind = {50, 9, 0, 1, 0, 0};
    batch_make(&batch, &a, kind);
    neo_jagged_desc jd = {.feature_count = 3,
                          .max_bags = 150,
                          .max_ids = neo_jagged_id_count(&batch.j),
                          .id_dtype = NEO_I64,
                          .weighted = 1};
    neo_jagged_buffer *turned = NULL;
    REQUIRE_OK(neo_jagged_create(ctx, &jd, &turned));
    static const int32_t features[] = {2, 0, 1};
    REQUIRE_OK(neo_jagged_select(turned, &batch.j, features, 3));
    Out da, db;
    out_make(&da, &a, &batch.j, 0);
    out_make(&db, &b, neo_jagged_view(turned), 0);
    for (int t = 0; t < 3; t++)
        for (int64_t s = 0; s < 50; s++)
            memcpy(out_at(&db, &b, neo_jagged_view(turned), t, s, 0, 0),
                   out_at(&da, &a, &batch.j, order[t], s, 0, 0),
                   sizeof(float) * (size_t)dims[order[t]]);
    CHECK_OK(neo_bags_backward(x, &batch.j, da.t, 0.1f));
    CHECK_OK(neo_bags_backward(y, neo_jagged_view(turned), db.t, 0.1f));
    for (int t = 0; t < 3; t++)
        CHECK_BITS(neo_bags_weight(y, t).data, neo_bags_weight(x, order[t]).data,
                   neo_tensor_bytes(neo_bags_weight(y, t)));
    free(da.data);
    free(db.data);
    batch_free(&batch);
    neo_jagged_destroy(turned);
    neo_bags_destroy(x);
    neo_bags_destroy(y);
    neo_ctx_destroy(ctx);
}

/* Small integers: any order of sums gives the same, so leaves, threads and buckets must agree
   exactly. */
static void test_exact_integers(void) {
    int64_t rows = 20, dim = 32;
    float *want = NULL;
    for (int shards = 1; shards <= 8; shards++) {
        neo_ctx *ctx = test_ctx(1 + shards % 3, NEO_ISA_BEST, shards);
        Model m;
        model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
        neo_init zero = {NEO_INIT_CONSTANT, 0, 0};
        m.table[0].init = zero;
        neo_bags *bags = NULL;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        test_seed = 99;
        Batch b;
        BatchKind kind = {100, 10, 0, 0, 0, 0};
        batch_make(&b, &m, kind);
        Out d;
        out_make(&d, &m, &b.j, 0);
        for (int64_t i = 0; i < d.count; i++) d.data[i] = floorf(d.data[i] * 100);
        CHECK_OK(neo_bags_backward(bags, &b.j, d.t, 1.0f));
        float *w = (float *)neo_bags_weight(bags, 0).data;
        size_t bytes = sizeof *w * (size_t)(rows * dim);
        if (!want) want = memcpy(malloc(bytes), w, bytes);
        CHECK_BITS(w, want, bytes);
        free(d.data);
        batch_free(&b);
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
    free(want);
}

/* dweights against a double sum, and by differences of a linear function of the weights. */
static void test_weight_grad(void) {
    static const int64_t rows[] = {11, 40}, dims[] = {16, 53};
    for (int pooling = NEO_POOL_SUM; pooling <= NEO_POOL_NONE; pooling++) {
        int64_t same[] = {21, 21};
        neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
        Model m;
        model_init(&m, 2, rows, pooling == NEO_POOL_NONE ? same : dims, 3, (neo_pooling)pooling);
        m.desc.bounds = NEO_BOUNDS_DROP;
        neo_bags *bags = NULL;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        Batch b;
        BatchKind kind = {13, 7, 0, 1, 1, 0};
        batch_make(&b, &m, kind);
        batch_set_id(&b, b.offsets[0] + 3, -9);
        Out dout;
        out_make(&dout, &m, &b.j, 0);
        int64_t n = neo_jagged_id_count(&b.j);
        float *dw = malloc(sizeof(float) * (size_t)n);
        CHECK_OK(neo_bags_weight_grad(bags, &b.j, dout.t, dw));
        for (int f = 0; f < 3; f++) {
            int t = m.feature_table[f];
            const float *w = (const float *)neo_bags_weight(bags, t).data;
            for (int64_t s = 0; s < 13; s++) {
                int64_t bag = f * 13 + s, length = b.offsets[bag + 1] - b.offsets[bag];
                for (int64_t k = b.offsets[bag]; k < b.offsets[bag + 1]; k++) {
                    double want = 0;
                    int64_t row = row_of(&m, f, batch_id(&b, k));
                    for (int64_t d = 0; row >= 0 && d < m.table[t].dim; d++)
                        want += (double)w[row * m.table[t].dim + d] *
                                (double)*out_at(&dout, &m, &b.j, f, s, k, d);
                    if (pooling == NEO_POOL_MEAN) want /= (double)length;
                    CHECK_NEAR(dw[k - b.offsets[0]], want, 1e-5);
                }
            }
        }
        free(dw);
        free(dout.data);
        batch_free(&b);
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* ---- bounds ---- */
static void test_bounds_error(void) {
    static const int64_t rows[] = {10, 20}, dims[] = {4, 4};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    Model m;
    model_init(&m, 2, rows, dims, 3, NEO_POOL_SUM); /* feature 2 looks up t0 */
    m.desc.name = "emb";
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 2, 3, 4, 6, 7, 9};
    int64_t ids[] = {1, 2, 3, 19, 4, 5, 6, 7, 9};
    neo_jagged j = {
        .batch = 2, .feature_count = 3, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float out[24], before[24], w[40];
    for (int i = 0; i < 24; i++) before[i] = out[i] = 3.5f;
    neo_tensor t = neo_tensor_2d(out, NEO_F32, 2, 12);
    memcpy(w, neo_bags_weight(bags, 0).data, sizeof w);
    CHECK_OK(neo_bags_forward(bags, &j, t));
    memcpy(out, before, sizeof out);
    ids[8] = 10;
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_RANGE,
              "neo_bags_forward: bags 'emb': table 't0' (feature 2), sample 1, position 1: id 10 "
              "is not in [0, 10)");
    CHECK_ERR(neo_bags_backward(bags, &j, t, 1.0f), NEO_ERR_RANGE,
              "table 't0' (feature 2), sample 1, position 1");
    CHECK_ERR(neo_bags_weight_grad(bags, &j, t, w), NEO_ERR_RANGE, "id 10");
    ids[3] = -1; /* the first one is named */
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_RANGE,
              "table 't1' (feature 1), sample 0, position 0: id -1 is not in [0, 20)");
    CHECK_BITS(out, before, sizeof out);
    memcpy(w, neo_bags_weight(bags, 0).data, sizeof w);
    CHECK_BITS(w, neo_bags_weight(bags, 0).data, sizeof w);
    CHECK_INT(neo_bags_get_stats(bags).steps, 0);
    CHECK_INT(neo_bags_get_stats(bags).out_of_range, 0);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

static void test_bounds_policies(void) {
    static const int64_t rows[] = {11, 40, 7}, dims[] = {16, 17, 130};
    static const int64_t same[] = {19, 19, 19};
    for (int bounds = NEO_BOUNDS_DROP; bounds <= NEO_BOUNDS_CLAMP; bounds++) {
        for (int i = 0; i < 18; i++) {
            Model m;
            model_init(&m, 3, rows, i % 3 == 2 ? same : dims, 3 + i % 2, (neo_pooling)(i % 3));
            m.desc.bounds = (neo_bounds)bounds;
            BatchKind kind = {9, 8, i % 2, i / 2 % 2, 0, 0};
            run_case(&m, kind, 1 + i % 4, 2, NEO_ISA_BEST, 1);
        }
    }
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1); /* counted */
    Model m;
    model_init(&m, 1, rows, dims, 1, NEO_POOL_SUM);
    m.desc.bounds = NEO_BOUNDS_DROP;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 3};
    static const int64_t ids[] = {-1, 2, 11};
    neo_jagged j = {
        .batch = 1, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float out[16];
    for (int i = 0; i < 3; i++)
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 1, 16)));
    CHECK_INT(neo_bags_get_stats(bags).out_of_range, 6);
    CHECK_BITS(out, (float *)neo_bags_weight(bags, 0).data + 32, sizeof out);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* ---- errors ---- */
static void test_errors_create(void) {
    static const int64_t rows[] = {10, 20}, dims[] = {4, 8};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_bags *bags = NULL;
    Model good, m;
    model_init(&good, 2, rows, dims, 2, NEO_POOL_SUM);
#define TRY_BAD(change, part)                                                                      \
    do {                                                                                           \
        m = good;                                                                                  \
        m.desc.tables = m.table;                                                                   \
        m.desc.feature_table = m.feature_table;                                                    \
        change;                                                                                    \
        bags = (neo_bags *)&m;                                                                     \
        CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, part);                        \
        CHECK(bags == NULL);                                                                       \
    } while (0)
    TRY_BAD(m.desc.table_count = 0, "no tables");
    TRY_BAD(m.table[1].name = NULL, "table 1 has no name");
    TRY_BAD(m.table[1].name = "t0", "both named 't0'");
    TRY_BAD(m.table[1].rows = 0, "table 't1': rows 0");
    TRY_BAD(m.table[0].dim = -1, "dim -1");
    TRY_BAD(m.table[0].rows = INT64_MAX, "do not fit");
    TRY_BAD(m.table[1].pooling = NEO_POOL_NONE, "NEO_POOL_NONE");
    TRY_BAD(m.table[1].row_buckets = -2, "row_buckets");
    TRY_BAD(m.table[1].optim.weight_decay = 0.1f, "weight_decay is 0.1");
    TRY_BAD(m.table[1].optim.eps = -1.0f, "table 't1': eps is -1");
    TRY_BAD(m.table[1].optim.l1 = -0.5f, "table 't1': l1 is -0.5");
    TRY_BAD(m.table[1].optim.beta2 = 1.0f, "betas");
    TRY_BAD(m.table[1].optim.lr_scale = NAN, "lr_scale");
    TRY_BAD(m.table[1].optim.kind = NEO_BAG_OPTIM_COUNT, "optimizer 9");
    TRY_BAD((m.table[1].optim.kind = NEO_BAG_LAMB, m.table[1].optim.decay = NEO_DECAY_L2), "LAMB");
    TRY_BAD((m.table[1].optim.kind = NEO_BAG_FTRL, m.table[1].optim.decay = NEO_DECAY_L2), "FTRL");
    TRY_BAD(m.feature_table[1] = 2, "feature_table[1] is 2");
    TRY_BAD((m.desc.feature_table = NULL, m.desc.feature_count = 3), "feature_count is 3");
    TRY_BAD(m.desc.max_batch = 0, "max_batch 0");
    TRY_BAD(m.desc.bounds = (neo_bounds)9, "bounds policy 9");
    m = good;
    m.desc.max_ids = (int64_t)1 << 62;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_UNSUPPORTED, "table 't0'");
    CHECK_ERR(neo_bags_create(ctx, NULL, &bags), NEO_ERR_ARG, "NULL");
    size_t bytes = neo_ctx_memory(ctx).bytes;
    neo_ctx_destroy(ctx);
    ctx = test_ctx(1, NEO_ISA_BEST, 1);
    CHECK_INT(neo_ctx_memory(ctx).bytes, bytes); /* nothing leaked */
    neo_ctx_destroy(ctx);
}

static void test_errors_call(void) {
    static const int64_t rows[] = {10, 20}, dims[] = {4, 8};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    Model m;
    model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
    m.desc.max_batch = 3;
    m.desc.max_ids = 8;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    int64_t offsets[] = {0, 2, 3, 4, 6, 6, 6, 7, 8};
    int64_t ids[] = {1, 2, 3, 9, 4, 5, 6, 7, 9};
    neo_jagged j = {
        .batch = 2, .feature_count = 2, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float out[60] = {0};
    neo_tensor t = neo_tensor_2d(out, NEO_F32, 2, 12);
    CHECK_OK(neo_bags_forward(bags, &j, t));
    CHECK_OK(neo_bags_backward(bags, &j, t, 0.5f));
    CHECK_ERR(neo_bags_forward(NULL, &j, t), NEO_ERR_ARG, "bags is NULL");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_none()), NEO_ERR_SHAPE, "out is none");
    neo_jagged over = j;
    over.ids = out + 22;
    CHECK_ERR(neo_bags_forward(bags, &over, t), NEO_ERR_ARG, "out overlaps the batch's ids");
    over = j, over.weights = out + 23;
    CHECK_ERR(neo_bags_forward(bags, &over, t), NEO_ERR_ARG, "out overlaps the batch's weights");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_2d(offsets, NEO_F32, 2, 12)), NEO_ERR_ARG,
              "out overlaps the batch's offsets");
    CHECK_ERR(neo_bags_forward(bags, NULL, t), NEO_ERR_ARG, "NULL");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 2, 13)), NEO_ERR_SHAPE,
              "[2][12]");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F16, 2, 12)), NEO_ERR_SHAPE, "f16");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_1d(out, NEO_F32, 24)), NEO_ERR_SHAPE,
              "out must be");
    CHECK_ERR(
        neo_bags_forward(bags, &j, neo_tensor_transpose(neo_tensor_2d(out, NEO_F32, 12, 2), 0, 1)),
        NEO_ERR_SHAPE, "strides");
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_2d(NULL, NEO_F32, 2, 12)), NEO_ERR_ARG,
              "no data");
    CHECK_ERR(neo_bags_backward(bags, &j, t, NAN), NEO_ERR_NUMERIC, "lr is nan");
    CHECK_ERR(neo_bags_backward(bags, &j, t, INFINITY), NEO_ERR_NUMERIC, "lr is inf");
    CHECK_ERR(neo_bags_weight_grad(bags, &j, t, NULL), NEO_ERR_ARG, "dweights");
    neo_jagged bad = j;
    bad.feature_count = 3;
    CHECK_ERR(neo_bags_forward(bags, &bad, t), NEO_ERR_SHAPE, "3 features");
    bad = j;
    bad.batch = 4;
    CHECK_ERR(neo_bags_forward(bags, &bad, neo_tensor_2d(out, NEO_F32, 4, 12)), NEO_ERR_CAPACITY,
              "the batch has 4 samples, reserved are 3");
    int64_t many[] = {0, 3, 6, 9, 9};
    bad = j;
    bad.offsets = many;
    CHECK_ERR(neo_bags_forward(bags, &bad, t), NEO_ERR_CAPACITY, "9 ids, reserved are 8");
    offsets[1] = 5;
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_FORMAT,
              "offsets decrease at feature 0, sample 1");
    offsets[1] = INT64_MAX;
    CHECK_ERR(neo_bags_backward(bags, &j, t, 1.0f), NEO_ERR_FORMAT,
              "offsets decrease at feature 0, sample 1");
    offsets[1] = INT64_MIN;
    CHECK_ERR(neo_bags_backward(bags, &j, t, 1.0f), NEO_ERR_FORMAT,
              "offsets decrease at feature 0, sample 0");
    CHECK_INT(neo_bags_get_stats(bags).steps, 1);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* ---- memory ---- */
static void test_memory(void) {
    static const int64_t rows[] = {100, 2000, 31}, dims[] = {16, 17, 130};
    for (int i = 0; i < 2 * NEO_BAG_OPTIM_COUNT; i++) {
        neo_ctx *ctx = test_ctx(1 + i % 3, NEO_ISA_BEST, 1 + i % 4);
        Model m;
        model_init(&m, 3, rows, dims, 3 + i % 3, NEO_POOL_SUM);
        float *own = calloc((size_t)(rows[1] * dims[1]), sizeof *own);
        if (i % 2) m.table[1].weight = own;
        for (int t = 0; t < 3; t++) m.table[t].optim.kind = (neo_bag_optim_kind)(i / 2);
        neo_bags_memory want;
        REQUIRE_OK(neo_bags_bytes(ctx, &m.desc, &want));
        size_t before = neo_ctx_memory(ctx).bytes;
        neo_bags *bags = NULL;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        CHECK_INT(neo_ctx_memory(ctx).bytes - before,
                  want.weight_bytes + want.state_bytes + want.workspace_bytes);
        CHECK_INT(want.weight_bytes, 4 * (100 * 16 + (i % 2 ? 0 : 2000 * 17) + 31 * 130));
        if (i / 2 == NEO_BAG_ROWWISE_ADAGRAD) CHECK_INT(want.state_bytes, 4 * (100 + 2000 + 31));
        if (i / 2 == NEO_BAG_SGD) CHECK_INT(want.state_bytes, 0);
        if (i % 2) CHECK(neo_bags_weight(bags, 1).data == own);
        neo_bags_destroy(bags);
        CHECK_INT(neo_ctx_memory(ctx).bytes, before);
        free(own);
        neo_ctx_destroy(ctx);
    }
}

static void test_reserve(void) {
    int64_t rows = 10, dim = 4;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.desc.max_batch = 2;
    m.desc.max_ids = 3;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 3, 4, 5}, ids[] = {1, 2, 3, 4, 5};
    neo_jagged j = {
        .batch = 3, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float out[12];
    neo_tensor t = neo_tensor_2d(out, NEO_F32, 3, 4);
    CHECK_ERR(neo_bags_forward(bags, &j, t), NEO_ERR_CAPACITY, "reserved");
    CHECK_OK(neo_bags_reserve(bags, 2, 3));
    CHECK_INT(neo_bags_get_stats(bags).grow_count, 0);
    CHECK_OK(neo_bags_reserve(bags, 3, 5));
    CHECK_INT(neo_bags_get_stats(bags).grow_count, 1);
    CHECK_OK(neo_bags_forward(bags, &j, t));
    CHECK_OK(neo_bags_backward(bags, &j, t, 1.0f));
    CHECK_ERR(neo_bags_reserve(bags, 3, (int64_t)1 << 59), NEO_ERR_MEMORY, "workspace");
    CHECK_OK(neo_bags_forward(bags, &j, t));
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* Initial values depend on the tensor's name and nothing else; the default range. */
static void test_init(void) {
    static const int64_t rows[] = {100, 300}, dims[] = {16, 7};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1), *other = test_ctx(3, NEO_ISA_BEST, 2);
    Model m;
    model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
    m.table[1].optim.kind = NEO_BAG_ADAGRAD;
    m.table[1].optim.initial_accumulator = 0.25f;
    neo_bags *a = NULL, *b = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &a));
    m.desc.tables = m.table + 1; /* alone */
    m.desc.table_count = 1;
    m.desc.feature_table = NULL;
    m.desc.feature_count = 0;
    REQUIRE_OK(neo_bags_create(other, &m.desc, &b));
    CHECK_BITS(neo_bags_weight(a, 1).data, neo_bags_weight(b, 0).data, sizeof(float) * 2100);
    const float *w = (const float *)neo_bags_weight(a, 1).data;
    const float *s = (const float *)neo_bags_state(a, 1, 0).data;
    float *direct = malloc(sizeof(float) * 2100), bound = (float)(1 / sqrt(300.0));
    neo_init init = {NEO_INIT_UNIFORM, -bound, bound};
    CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(direct, NEO_F32, 2100), "bags.t1.weight", init, 0));
    CHECK_BITS(w, direct, sizeof(float) * 2100);
    for (int i = 0; i < 2100; i++) CHECK(s[i] == 0.25f && w[i] >= -bound && w[i] < bound);
    CHECK(neo_bags_state(a, 0, 0).data == NULL && neo_bags_state(a, 1, 1).data == NULL);
    CHECK(neo_bags_weight(a, 2).data == NULL);
    CHECK(strcmp(neo_bags_table_name(a, 1), "t1") == 0);
    CHECK_INT(neo_bags_table_count(a), 2);
    CHECK_INT(neo_bags_out_width(a), 23);
    free(direct);
    neo_bags_destroy(a);
    neo_bags_destroy(b);
    neo_ctx_destroy(ctx);
    neo_ctx_destroy(other);
}

/* A table of more than 2^31 elements, in memory that is only mapped where it is touched. */
static void test_huge_table(void) {
#if defined(_WIN32) || !defined(MAP_NORESERVE) || !defined(MAP_ANONYMOUS)
    SKIP("no sparse mapping");
#else
    int64_t rows = (int64_t)3 << 28, dim = 8; /* 6.4e9 elements, 24 GiB */
    size_t bytes = sizeof(float) * (size_t)(rows * dim);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) SKIP("cannot map 24 GiB");
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    Model m;
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].weight = p;
    m.table[0].init.kind = NEO_INIT_NONE;
    neo_bags *bags = NULL;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    static const int64_t offsets[] = {0, 3, 5};
    int64_t ids[] = {rows - 1, 0, rows / 2, rows - 1, rows - 2};
    neo_jagged j = {
        .batch = 2, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    float d[16], out[16], *w = p;
    for (int i = 0; i < 16; i++) d[i] = i < 8 ? 1.0f : 10.0f;
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(d, NEO_F32, 2, 8), -1.0f));
    for (int i = 0; i < 8; i++) {
        CHECK(w[i] == 1.0f && w[rows / 2 * 8 + i] == 1.0f);
        CHECK(w[(rows - 1) * 8 + i] == 11.0f && w[(rows - 2) * 8 + i] == 10.0f &&
              w[(rows - 3) * 8 + i] == 0.0f);
    }
    CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 2, 8)));
    CHECK(out[0] == 13.0f && out[15] == 21.0f);
    ids[0] = rows;
    CHECK_ERR(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 2, 8)), NEO_ERR_RANGE,
              "id 805306368");
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    munmap(p, bytes);
#endif
}

/* A dropped id reads no row: not row 0 either, whose page cannot be read here. */
static void test_dropped_reads_nothing(void) {
#if defined(_WIN32) || !defined(MAP_ANONYMOUS)
    SKIP("no mapping");
#else
    enum { HALF = 1 << 16, DIM = 16, ROWS = 2 * HALF / (4 * DIM) };
    char *p = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED && mprotect(p, HALF, PROT_NONE) == 0);
    float *w = (float *)(void *)p;
    for (int64_t r = ROWS / 2; r < ROWS; r++)
        for (int c = 0; c < DIM; c++) w[r * DIM + c] = (float)(r % 100);
    static const int64_t offsets[] = {0, 5, 6, 10};
    static const int64_t ids[] = {ROWS, ROWS - 1, -1, ROWS / 2, INT64_MAX, INT64_MIN,
                                  ROWS - 1, ROWS - 2, ROWS - 3, INT64_C(1) << 40};
    const float want[] = {(ROWS - 1) % 100 + ROWS / 2 % 100, 0,
                          (ROWS - 1) % 100 + (ROWS - 2) % 100 + (ROWS - 3) % 100};
    for (int i = 0; i < (int)(sizeof all_isas / sizeof *all_isas); i++)
        for (int buckets = 1; buckets <= 100; buckets = buckets == 1 ? 8 : buckets + 92) {
            if (!neo_isa_available(all_isas[i])) continue;
            neo_ctx *ctx = test_ctx(1, all_isas[i], 1);
            const int64_t rows = ROWS, dim = DIM;
            Model m;
            model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
            m.table[0].weight = p;
            m.table[0].init.kind = NEO_INIT_NONE;
            m.table[0].row_buckets = buckets;
            m.desc.bounds = NEO_BOUNDS_DROP;
            neo_bags *bags = NULL;
            REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
            neo_jagged j = {.batch = 3, .feature_count = 1, .id_dtype = NEO_I64,
                            .offsets = offsets, .ids = ids};
            float out[3 * DIM];
            CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, 3, DIM)));
            for (int b = 0; b < 3; b++)
                CHECK(out[b * DIM] == want[b] && out[b * DIM + DIM - 1] == want[b]);
            neo_bags_destroy(bags);
            neo_ctx_destroy(ctx);
        }
    munmap(p, 2 * HALF);
#endif
}

int main(void) {
    RUN(test_values);
    RUN(test_edges);
    RUN(test_row_buckets);
    RUN(test_infinite_rows);
    RUN(test_same_bits);
    RUN(test_shared_sort);
    RUN(test_table_order);
    RUN(test_exact_integers);
    RUN(test_weight_grad);
    RUN(test_bounds_error);
    RUN(test_bounds_policies);
    RUN(test_errors_create);
    RUN(test_errors_call);
    RUN(test_memory);
    RUN(test_reserve);
    RUN(test_init);
    RUN(test_huge_table);
    RUN(test_dropped_reads_nothing);
    return test_end("bags/lookup");
}
