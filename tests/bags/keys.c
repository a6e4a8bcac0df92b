/* keys.c: tables whose ids are keys.

   A table that has room for every key trains to the rows, states and outputs of a table without
   keys, bit for bit: every pooling, optimizer, dtype, with weights, several features, i32 ids.
   Tables so small that keys come and go in every step are compared with a map of double rows that
   decides for itself, under every policy, with admission by exact counts and by a Bloom filter, a
   shared row, buckets; they have the same bits on threads and instruction sets. */
#include "common.h"
#include "meter.h"

enum { DIM = 21, BATCH = 24 }; /* rows do not begin with whole blocks of random numbers */
static const neo_init spread = {NEO_INIT_UNIFORM, -0.5f, 0.5f};

/* ---- a table with room for all ---- */
static void same_rows(const neo_bags *keyed, const neo_bags *plain, int64_t rows,
                      const char *what) {
    float a[64], b[64];
    for (uint64_t key = 0; key < (uint64_t)rows; key++) {
        int64_t row;
        REQUIRE_OK(neo_bags_find_keys(keyed, 0, &key, 1, &row));
        if (row < 0) continue;
        REQUIRE_OK(neo_bags_get_rows(keyed, 0, row, 1, a));
        REQUIRE_OK(neo_bags_get_rows(plain, 0, (int64_t)key, 1, b));
        if (memcmp(a, b, DIM * sizeof *a)) FAIL("%s: the row of key %d differs", what, (int)key);
        for (int k = 0; k < 2; k++) {
            const neo_tensor s = neo_bags_state(keyed, 0, k), t = neo_bags_state(plain, 0, k);
            const int64_t n = s.ndim == 2 ? DIM : 1;
            if (s.data && memcmp((float *)s.data + row * n, (float *)t.data + (int64_t)key * n,
                                 (size_t)n * sizeof(float)))
                FAIL("%s: state %d of key %d differs", what, k, (int)key);
        }
    }
}
static void run_roomy(neo_pooling pooling, neo_bag_optim_kind kind, neo_dtype dtype, int weighted,
                      int i32) {
    const int64_t rows = 300, dim = DIM;
    char what[96];
    Model m, k;
    snprintf(what, sizeof what, "pooling %d, optimizer %d, dtype %d, weighted %d", (int)pooling,
             (int)kind, (int)dtype, weighted);
    model_init(&m, 1, &rows, &dim, 2, pooling);
    m.table[0].optim.kind = kind;
    m.table[0].optim.initial_accumulator = kind == NEO_BAG_ADAGRAD ? 0.25f : 0.0f;
    m.table[0].dtype = dtype;
    m.table[0].round_nearest = 1;
    m.table[0].init = spread;
    if (weighted) m.table[0].init.kind = NEO_INIT_NORMAL;
    m.desc.max_ids = 4096;
    k = m;
    k.desc.tables = k.table;
    k.table[0].name = k.name[0];
    k.desc.feature_table = k.feature_table;
    k.table[0].rows = 4096;
    k.table[0].keys.on = 1;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    neo_bags *plain, *keyed;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &plain));
    REQUIRE_OK(neo_bags_create(ctx, &k.desc, &keyed));
    for (int step = 0; step < 6 && !test_errors; step++) {
        Batch b;
        BatchKind batch = {BATCH, 6, i32, weighted, 1, 0};
        batch_make(&b, &m, batch);
        const int64_t ids = neo_jagged_id_count(&b.j);
        const int64_t out_rows = pooling == NEO_POOL_NONE ? ids : BATCH;
        const int64_t cols = pooling == NEO_POOL_NONE ? DIM : 2 * DIM;
        float *x = calloc((size_t)(out_rows * cols + 1), 4);
        float *y = calloc((size_t)(out_rows * cols + 1), 4);
        float *dx = calloc((size_t)ids + 1, 4), *dy = calloc((size_t)ids + 1, 4);
        REQUIRE_OK(neo_bags_forward(plain, &b.j, neo_tensor_2d(x, NEO_F32, out_rows, cols)));
        REQUIRE_OK(neo_bags_forward(keyed, &b.j, neo_tensor_2d(y, NEO_F32, out_rows, cols)));
        if (memcmp(x, y, (size_t)(out_rows * cols) * 4)) FAIL("%s: outputs differ", what);
        test_fill(x, out_rows * cols);
        neo_tensor dout = neo_tensor_2d(x, NEO_F32, out_rows, cols);
        REQUIRE_OK(neo_bags_weight_grad(plain, &b.j, dout, dx));
        REQUIRE_OK(neo_bags_weight_grad(keyed, &b.j, dout, dy));
        if (memcmp(dx, dy, (size_t)ids * 4)) FAIL("%s: gradients of weights differ", what);
        REQUIRE_OK(neo_bags_backward(plain, &b.j, dout, 0.1f));
        REQUIRE_OK(neo_bags_backward(keyed, &b.j, dout, 0.1f));
        same_rows(keyed, plain, rows, what);
        batch_free(&b);
        free(x), free(y), free(dx), free(dy);
    }
    const neo_key_stats s = neo_bags_key_stats(keyed, 0);
    CHECK(s.used > 150);
    CHECK_INT(s.used, s.admissions);
    CHECK_INT(s.evictions + s.refused + s.waited, 0);
    neo_bags_destroy(plain);
    neo_bags_destroy(keyed);
    neo_ctx_destroy(ctx);
}
static void room_for_all(void) {
    const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    for (int pooling = 0; pooling < 3; pooling++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (int d = 0; d < 4; d++)
                run_roomy((neo_pooling)pooling, NEO_BAG_ADAGRAD, dtypes[d], weighted, d == 1);
    for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++)
        run_roomy(NEO_POOL_SUM, (neo_bag_optim_kind)kind, NEO_F32, 0, 0);
}

/* ---- the reference of small tables ---- */
enum { ROWS = 64, KEYS = 400, MOST = BATCH * 8 };
typedef struct Places { /* which key has which of the lines */
    int used[ROWS];
    uint64_t key[ROWS];
    int64_t last[ROWS], count[ROWS];
    float score[ROWS];
} Places;
typedef struct Naive {
    neo_keys keys;
    int64_t step, evicted, refused, waited, admitted;
    Places rows, waiting;
    int bloom[2][4][128]; /* counters of the blocks of each set */
    double w[ROWS][DIM], m[ROWS][DIM];
} Naive;
static uint64_t mix(uint64_t h) {
    h ^= h >> 33, h *= 0xFF51AFD7ED558CCDu;
    h ^= h >> 33, h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 33;
}
static int by_hash(const void *a, const void *b) {
    const uint64_t x = mix(*(const uint64_t *)a), y = mix(*(const uint64_t *)b);
    return x < y ? -1 : x > y;
}
static int place_of(const Places *p, uint64_t key) {
    for (int i = 0; i < ROWS; i++)
        if (p->used[i] && p->key[i] == key) return i;
    return -1;
}
/* The place a new key takes: in the lower or upper half, by the highest bit of its hash. */
static int place_for(const Places *p, uint64_t key, neo_evict evict, int64_t now) {
    const int first = mix(key) >> 63 ? 32 : 0;
    int best = -1;
    for (int i = first; i < first + 32; i++)
        if (!p->used[i]) return i;
    for (int i = first; i < first + 32 && evict != NEO_EVICT_AGE; i++) {
        if (p->last[i] == now) continue;
        int fewer = best >= 0 && evict == NEO_EVICT_LFU ? p->count[i] < p->count[best] : 0;
        int equal = best >= 0 && evict == NEO_EVICT_LFU ? p->count[i] == p->count[best] : 1;
        if (best >= 0 && evict == NEO_EVICT_SCORE)
            fewer = p->score[i] < p->score[best], equal = p->score[i] == p->score[best];
        if (best < 0 || fewer || (equal && p->last[i] < p->last[best])) best = i;
    }
    return best;
}
static void take_place(Places *p, int at, uint64_t key, int64_t now, int64_t count) {
    p->used[at] = 1, p->key[at] = key, p->last[at] = now, p->count[at] = count, p->score[at] = 0;
}
/* How often a key was seen, as far as the filter knows. */
static int64_t naive_bloom(Naive *n, uint64_t key, int64_t count) {
    const uint64_t hash = mix(key);
    int *block = n->bloom[hash >> 63][hash >> 28 & 3], least = 15, used = 0;
    for (int i = 0; i < 28; i += 7)
        if (block[hash >> i & 127] < least) least = block[hash >> i & 127];
    count += least;
    for (int i = 0; i < 28; i += 7)
        if (block[hash >> i & 127] < count) block[hash >> i & 127] = count < 15 ? (int)count : 15;
    for (int i = 0; i < 128; i++) used += block[i] > 0;
    for (int i = 0; i < 128 && used > 64; i++) block[i] /= 2;
    return count;
}
static void initial(neo_ctx *ctx, uint64_t key, double *row) {
    float w[DIM];
    CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(w, NEO_F32, DIM), "bags.t0.weight", spread,
                             (int64_t)key * DIM));
    for (int d = 0; d < DIM; d++) row[d] = (double)w[d];
}
static void naive_row(const Naive *n, neo_ctx *ctx, uint64_t key, double *row) {
    const int at = place_of(&n->rows, key);
    if (at >= 0) memcpy(row, n->w[at], sizeof n->w[at]);
    else initial(ctx, n->keys.shared ? 0 : key, row);
}
/* One key that has no row occurred `count` times. */
static void naive_ask(Naive *n, neo_ctx *ctx, uint64_t key, int64_t count) {
    const int64_t now = n->step, more = count;
    int wait = place_of(&n->waiting, key), to = -1;
    if (wait >= 0) count += n->waiting.count[wait];
    if (n->keys.bloom) count = naive_bloom(n, key, count);
    if (count >= n->keys.admit) to = place_for(&n->rows, key, n->keys.evict, now);
    if (to >= 0) {
        n->evicted += n->rows.used[to], n->admitted++;
        take_place(&n->rows, to, key, now, count);
        initial(ctx, key, n->w[to]);
        memset(n->m[to], 0, sizeof n->m[to]);
        if (wait >= 0) n->waiting.used[wait] = 0;
        return;
    }
    *(count >= n->keys.admit ? &n->refused : &n->waited) += more;
    if (n->keys.admit <= 1 || n->keys.bloom) return;
    if (wait < 0) wait = place_for(&n->waiting, key, NEO_EVICT_LRU, now);
    if (wait >= 0) take_place(&n->waiting, wait, key, now, count);
}
static void naive_decide(Naive *n, neo_ctx *ctx, const uint64_t *ids, int64_t count) {
    uint64_t sorted[MOST];
    const int64_t now = ++n->step;
    for (int i = 0; i < ROWS; i++) {
        if (n->keys.evict == NEO_EVICT_LFU && n->keys.period && now % n->keys.period == 0)
            n->rows.count[i] /= 2;
        if (n->keys.evict == NEO_EVICT_AGE && n->rows.used[i] &&
            now - n->rows.last[i] > n->keys.period)
            n->rows.used[i] = 0, n->evicted++;
    }
    int64_t misses = 0;
    for (int64_t k = 0; k < count; k++) {
        const int at = place_of(&n->rows, ids[k]);
        if (at >= 0) n->rows.last[at] = now, n->rows.count[at]++;
        else sorted[misses++] = ids[k];
    }
    qsort(sorted, (size_t)misses, sizeof *sorted, by_hash);
    for (int64_t i = 0, end; i < misses; i = end) {
        for (end = i; end < misses && sorted[end] == sorted[i];) end++;
        naive_ask(n, ctx, sorted[i], end - i);
    }
}
/* Adagrad of the rows that have keys. */
static void naive_backward(Naive *n, neo_ctx *ctx, const neo_jagged *j, const float *dout,
                           int mean, double lr) {
    static double g[ROWS][DIM];
    const uint64_t *ids = j->ids;
    naive_decide(n, ctx, ids, j->offsets[j->batch]);
    memset(g, 0, sizeof g);
    for (int64_t b = 0; b < j->batch; b++)
        for (int64_t k = j->offsets[b]; k < j->offsets[b + 1]; k++) {
            const int at = place_of(&n->rows, ids[k]);
            const double w = mean ? 1.0 / (double)(j->offsets[b + 1] - j->offsets[b]) : 1.0;
            for (int d = 0; d < DIM && at >= 0; d++) g[at][d] += w * (double)dout[b * DIM + d];
        }
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < DIM && n->rows.used[i]; d++) {
            if (n->rows.last[i] != n->step) continue;
            n->m[i][d] += g[i][d] * g[i][d];
            n->w[i][d] -= lr * g[i][d] / (sqrt(n->m[i][d]) + 1e-8);
        }
}
static void compare(const Naive *n, const neo_bags *bags, const char *what) {
    float row[DIM];
    for (int i = 0; i < ROWS; i++) {
        uint64_t key = 0;
        /* Of age, keys are gone at the next step: the reference takes them away when it begins. */
        int has = neo_bags_key_of(bags, 0, i, &key), used = n->rows.used[i];
        if (n->keys.evict == NEO_EVICT_AGE && n->step + 1 - n->rows.last[i] > n->keys.period)
            used = 0;
        if (has != used || (has && key != n->rows.key[i])) {
            FAIL("%s: step %d, row %d: key %" PRIx64 ", naive %" PRIx64, what, (int)n->step, i, key,
                 n->rows.key[i]);
            return;
        }
        if (!has) continue;
        CHECK_OK(neo_bags_get_rows(bags, 0, i, 1, row));
        for (int d = 0; d < DIM; d++) CHECK_NEAR(row[d], n->w[i][d], 2e-5);
    }
}
typedef struct Run {
    const char *what;
    neo_keys keys;
    int mean, buckets, kept, threads; /* kept: by accumulate and step */
    neo_isa isa;
} Run;
static uint64_t run_small(const Run *r) {
    const neo_keys keys = r->keys;
    const char *what = r->what;
    const int mean = r->mean;
    static Naive naive;
    const int64_t rows = ROWS, dim = DIM;
    Model m;
    model_init(&m, 1, &rows, &dim, 1, mean ? NEO_POOL_MEAN : NEO_POOL_SUM);
    m.table[0].optim.kind = NEO_BAG_ADAGRAD;
    m.table[0].init = spread;
    m.table[0].row_buckets = r->buckets;
    m.desc.max_kept_rows = r->kept ? ROWS : 0;
    m.table[0].keys = keys;
    m.desc.max_ids = MOST;
    neo_ctx *ctx = test_ctx(r->threads, r->isa, 1);
    neo_bags *bags = NULL;
    CHECK_OK(neo_bags_create(ctx, &m.desc, &bags));
    if (!bags) return 0;
    memset(&naive, 0, sizeof naive);
    naive.keys = keys;
    test_seed = 7;
    uint64_t digest = 1;
    for (int step = 0; step < 60 && !test_errors; step++) {
        uint64_t ids[MOST];
        int64_t offsets[BATCH + 1] = {0};
        float out[BATCH * DIM], dout[BATCH * DIM];
        for (int b = 0; b < BATCH; b++) {
            offsets[b + 1] = offsets[b] + test_random() % 8;
            for (int64_t k = offsets[b]; k < offsets[b + 1]; k++)
                ids[k] = 1 + (uint64_t)(test_random() % (test_random() % 2 ? 20 : KEYS)) * 9876543u;
        }
        const neo_jagged j = {BATCH, 1, NEO_I64, offsets, ids, NULL, NULL, NEO_HOST, NULL};
        /* Twice: reading changes nothing. */
        for (int i = 0; i < 2; i++)
            CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, BATCH, DIM)));
        for (int b = 0; b < BATCH; b++) {
            double sum[DIM] = {0}, row[DIM], n = (double)(offsets[b + 1] - offsets[b]);
            for (int64_t k = offsets[b]; k < offsets[b + 1]; k++) {
                /* A key is as old in this step as when it begins. */
                const int at = place_of(&naive.rows, ids[k]);
                if (at >= 0 && keys.evict == NEO_EVICT_AGE &&
                    naive.step + 1 - naive.rows.last[at] > keys.period)
                    initial(ctx, keys.shared ? 0 : ids[k], row);
                else naive_row(&naive, ctx, ids[k], row);
                for (int d = 0; d < DIM; d++) sum[d] += row[d];
            }
            for (int d = 0; d < DIM; d++)
                CHECK_NEAR(out[b * DIM + d], mean && n > 0 ? sum[d] / n : sum[d], 1e-4);
        }
        for (int i = 0; i < BATCH * DIM; i++) {
            uint32_t bits;
            memcpy(&bits, out + i, 4);
            digest = mix(digest ^ bits) + 1;
        }
        test_fill(dout, BATCH * DIM);
        /* What forward found does not hold where the caller has changed ids since. */
        for (int64_t k = 1; k < offsets[BATCH] && step % 3 == 1; k += 20) ids[k] = ids[0];
        const neo_tensor d = neo_tensor_2d(dout, NEO_F32, BATCH, DIM);
        CHECK_OK(r->kept ? neo_bags_accumulate(bags, &j, d, NULL)
                         : neo_bags_backward(bags, &j, d, 0.1f));
        if (r->kept) CHECK_OK(neo_bags_step(bags, 0.1f));
        naive_backward(&naive, ctx, &j, dout, mean, (double)0.1f);
        compare(&naive, bags, what);
        for (int i = 0; i < 40 && keys.evict == NEO_EVICT_SCORE; i++) {
            const uint64_t key = 1 + (uint64_t)(test_random() % KEYS) * 9876543u;
            const float score = (float)(test_random() % 7) * 0.5f - 1.5f;
            const int at = place_of(&naive.rows, key);
            const uint64_t twice[] = {key, key};
            const float scores[] = {3, score};
            CHECK_OK(neo_bags_score_keys(bags, 0, twice, scores, 2));
            if (at >= 0 && keys.sums) naive.rows.score[at] += 3;
            if (at >= 0) naive.rows.score[at] = score + (keys.sums ? naive.rows.score[at] : 0);
        }
    }
    const uint64_t *filter = neo_bags_state(bags, 0, 6).data;
    CHECK((filter != NULL) == (keys.bloom != 0));
    for (int i = 0; i < 2 * 4 * 128 && filter; i++)
        CHECK_INT(filter[i / 16] >> i % 16 * 4 & 15, naive.bloom[i / 512][i / 128 % 4][i % 128]);
    const neo_key_stats s = neo_bags_key_stats(bags, 0);
    CHECK_INT(s.admissions, naive.admitted);
    CHECK_INT(s.waited, naive.waited);
    CHECK_INT(s.refused, naive.refused);
    /* A key that is too old leaves when another comes: a few have not left. */
    CHECK(s.evictions <= naive.evicted && s.evictions > naive.evicted - ROWS);
    if (s.evictions < 20) FAIL("%s: only %d evictions", what, (int)s.evictions);
    CHECK(s.hits + s.waited + s.refused < s.lookups && s.hits > 500);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    return digest;
}
static void keys_come_and_go(void) {
    const struct {
        const char *what;
        neo_keys keys;
    } kind[] = {{"lru", {1, NEO_EVICT_LRU, 0, 0, 0, 0, 0}},
                {"lfu", {1, NEO_EVICT_LFU, 0, 0, 0, 0, 0}},
                {"lfu that halves", {1, NEO_EVICT_LFU, 4, 0, 0, 0, 0}},
                {"age", {1, NEO_EVICT_AGE, 1, 0, 0, 0, 0}},
                {"lru, admit 3", {1, NEO_EVICT_LRU, 0, 3, 0, 0, 0}},
                {"lfu, admit 2, shared", {1, NEO_EVICT_LFU, 3, 2, 1, 0, 0}},
                {"age, shared", {1, NEO_EVICT_AGE, 2, 0, 1, 0, 0}},
                {"lru, admit 3, bloom", {1, NEO_EVICT_LRU, 0, 3, 0, 1, 0}},
                {"lfu, admit 2, bloom", {1, NEO_EVICT_LFU, 0, 2, 0, 1, 0}},
                {"score", {1, NEO_EVICT_SCORE, 0, 0, 0, 0, 0}},
                {"score, admit 2", {1, NEO_EVICT_SCORE, 0, 2, 1, 0, 0}},
                {"sums of scores", {1, NEO_EVICT_SCORE, 0, 0, 0, 0, 1}}};
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        for (int variant = 0; variant < 4; variant++) {
            const Run one = {kind[i].what, kind[i].keys, variant & 1, variant & 2, 0, 1,
                             NEO_ISA_SCALAR};
            Run other = one;
            other.threads = 3, other.isa = NEO_ISA_BEST, other.kept = 1;
            CHECK(run_small(&one) == run_small(&other));
        }
}

/* ---- pruning ---- */
static void pruned(void) {
    const int64_t rows = ROWS, dim = DIM;
    uint64_t keys[ROWS], key;
    double norm[ROWS];
    int64_t at[ROWS], gone, evicted = 0;
    float row[DIM], zero[DIM] = {0};
    Model m;
    neo_bags *bags;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].init = spread;
    m.table[0].keys.on = 1;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    for (int round = 0; round < 20; round++) {
        const float least = round % 3 ? 0.02f * (float)round : 0;
        const int most = round % 2 ? 1 + round : 0;
        int stays[ROWS] = {0}, want = 0;
        for (int i = 0; i < ROWS; i++) keys[i] = ((uint64_t)test_random() << 32) + (uint64_t)i;
        CHECK_OK(neo_bags_put_keys(bags, 0, keys, ROWS, at));
        for (int i = 0; i < ROWS; i++) {
            test_fill(row, DIM);
            for (int d = 0; d < DIM; d++) row[d] *= 0.02f * (float)(test_random() % 8);
            if (round % 4 == 3 && i % 5 == 2) row[i % DIM] = (float)NAN;
            if (neo_bags_key_of(bags, 0, i, &key)) CHECK_OK(neo_bags_set_rows(bags, 0, i, 1, row));
            CHECK_OK(neo_bags_get_rows(bags, 0, i, 1, row));
            norm[i] = 0;
            for (int d = 0; d < DIM; d++) norm[i] += (double)row[d] * (double)row[d];
            norm[i] = norm[i] >= 0 ? sqrt(norm[i]) : INFINITY;
        }
        for (int i = 0; i < ROWS; i++) {
            int larger = 0;
            if (!neo_bags_key_of(bags, 0, i, &key)) continue;
            for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++)
                larger += neo_bags_key_of(bags, 0, k, &key) &&
                          (norm[k] > norm[i] || (norm[k] == norm[i] && k < i));
            stays[i] = norm[i] >= (double)least && (!most || larger < most);
            want += !stays[i];
        }
        CHECK_OK(neo_bags_prune_keys(bags, 0, least, most, &gone));
        CHECK_INT(gone, want);
        evicted += gone;
        for (int i = 0; i < ROWS; i++) {
            CHECK_INT(neo_bags_key_of(bags, 0, i, &key), stays[i]);
            CHECK_OK(neo_bags_get_rows(bags, 0, i, 1, row));
            if (!stays[i]) CHECK_BITS(row, zero, sizeof row);
        }
    }
    CHECK(evicted > 100);
    CHECK_INT(neo_bags_key_stats(bags, 0).evictions, evicted);
    const float nan = NAN;
    CHECK_ERR(neo_bags_prune_keys(bags, 0, nan, 0, NULL), NEO_ERR_NUMERIC, "nan");
    CHECK_ERR(neo_bags_prune_keys(bags, 0, 0, 33, NULL), NEO_ERR_ARG, "33");
    CHECK_ERR(neo_bags_score_keys(bags, 0, keys, row, 1), NEO_ERR_ARG, "have no scores");
    neo_bags_destroy(bags);
    m.table[0].keys.evict = NEO_EVICT_SCORE;
    m.desc.max_kept_rows = ROWS;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_ERR(neo_bags_score_keys(bags, 0, keys, &nan, 1), NEO_ERR_NUMERIC, "scores[0] is nan");
    test_fill(row, DIM);
    const int64_t offsets[] = {0, 1};
    const neo_jagged j = {1, 1, NEO_I64, offsets, keys, NULL, NULL, NEO_HOST, NULL};
    CHECK_OK(neo_bags_accumulate(bags, &j, neo_tensor_2d(row, NEO_F32, 1, DIM), NULL));
    CHECK_ERR(neo_bags_prune_keys(bags, 0, 1, 0, NULL), NEO_ERR_STATE, "are kept");
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* ---- calls ---- */
static void calls(void) {
    const int64_t rows = ROWS, dim = DIM;
    static meter counter;
    Model m;
    neo_bags *bags;
    neo_ctx *ctx;
    uint64_t keys[100], key;
    int64_t at[100], has = 0;
    float row[DIM], other[DIM];
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].init = spread;
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 0, 2, 0, 0, 0};
    counter.refuse_at = -1;
    const neo_ctx_desc desc = {.threads = 1, .seed = 1,
                               .allocator = {meter_alloc, meter_free, &counter}};
    REQUIRE_OK(neo_ctx_create(&desc, &ctx));
    m.table[0].rows = 65;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "the next is 96");
    m.table[0].rows = ROWS;
    m.table[0].row_buckets = 3;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "32 times row_buckets");
    m.table[0].row_buckets = 0;
    m.table[0].keys.evict = NEO_EVICT_AGE;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "period 0 is below 1");
    m.table[0].keys = (neo_keys){1, (neo_evict)4, 0, 2, 0, 0, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "evict 4 does not exist");
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LFU, -1, 2, 0, 0, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "period -1 is below 0");
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 0, 2, 0, 0, 1};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "evict is 0, not NEO_EVICT_SCORE");
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 0, 16, 0, 1, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "admit 16 is not from 0 to 15");
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 0, 1, 0, 1, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "with admit 1 no key waits");
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 9, 0, 0, 0, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG,
              "period 9 is of LFU and AGE, and evict is LRU");
    m.table[0].keys.evict = NEO_EVICT_SCORE;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "and evict is SCORE");
    m.table[0].keys = (neo_keys){2, NEO_EVICT_LRU, 0, 0, 0, 0, 0};
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "keys.on is 2, not 0 or 1");
    const struct {
        neo_keys keys;
        const char *message;
    } of_none[] = {{{0, NEO_EVICT_LFU, 0, 0, 0, 0, 0}, "keys.evict is given, and keys.on is 0"},
                   {{0, NEO_EVICT_LRU, 9, 0, 0, 0, 0}, "keys.period is given"},
                   {{0, NEO_EVICT_LRU, 0, 2, 0, 0, 0}, "table 't0': keys.admit is given"},
                   {{0, NEO_EVICT_LRU, 0, 0, 1, 0, 0}, "keys.shared is given"},
                   {{0, NEO_EVICT_LRU, 0, 0, 0, 1, 0}, "keys.bloom is given"},
                   {{0, NEO_EVICT_LRU, 0, 0, 0, 0, 1}, "keys.sums is given"}};
    for (size_t i = 0; i < sizeof of_none / sizeof *of_none; i++) {
        m.table[0].keys = of_none[i].keys;
        CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, of_none[i].message);
    }
    m.table[0].keys = (neo_keys){1, NEO_EVICT_LRU, 0, 2, 0, 0, 0};
    m.table[0].init.kind = NEO_INIT_NONE;
    CHECK_ERR(neo_bags_create(ctx, &m.desc, &bags), NEO_ERR_ARG, "initial values");
    m.table[0].init = spread;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    /* As many rows as the sets have room for; the next step has not begun, so that none leaves. */
    for (int i = 0; i < 100; i++) keys[i] = ~(uint64_t)(i * i);
    CHECK_OK(neo_bags_put_keys(bags, 0, keys, 100, at));
    for (int i = 0; i < 100; i++) {
        has += at[i] >= 0;
        if (at[i] >= 0) CHECK(neo_bags_key_of(bags, 0, at[i], &key) && key == keys[i]);
    }
    CHECK_INT(has, ROWS);
    CHECK_INT(neo_bags_key_stats(bags, 0).used, ROWS);
    CHECK_INT(neo_bags_key_stats(bags, 0).admissions, ROWS);
    /* Written by its row, read by its key; it comes back as it was. */
    for (int d = 0; d < DIM; d++) row[d] = (float)d;
    CHECK_OK(neo_bags_set_rows(bags, 0, at[3], 1, row));
    const int64_t offsets[] = {0, 1};
    const neo_jagged j = {1, 1, NEO_I64, offsets, &keys[3], NULL, NULL, NEO_HOST, NULL};
    CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(other, NEO_F32, 1, DIM)));
    CHECK_BITS(row, other, sizeof row);
    CHECK_OK(neo_bags_drop_keys(bags, 0, &keys[3], 1));
    CHECK_OK(neo_bags_find_keys(bags, 0, &keys[3], 1, &has));
    CHECK_INT(has, -1);
    CHECK_INT(neo_bags_key_of(bags, 0, at[3], &key), 0);
    CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(other, NEO_F32, 1, DIM)));
    CHECK(memcmp(row, other, sizeof row) != 0);
    CHECK_OK(neo_bags_put_keys(bags, 0, &keys[3], 1, &has));
    CHECK_INT(has, at[3]);
    CHECK_OK(neo_bags_get_rows(bags, 0, has, 1, row));
    CHECK_BITS(row, other, sizeof row);
    /* Nor where the key has lost its row since. */
    CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(other, NEO_F32, 1, DIM)));
    CHECK_OK(neo_bags_drop_keys(bags, 0, &keys[3], 1));
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(row, NEO_F32, 1, DIM), 0.1f));
    CHECK_INT(neo_bags_key_of(bags, 0, at[3], &key), 0);
    CHECK_ERR(neo_bags_find_keys(bags, 1, keys, 1, at), NEO_ERR_ARG, "no table 1 with keys");
    CHECK_ERR(neo_bags_put_keys(bags, 0, NULL, 1, at), NEO_ERR_ARG, "NULL");
    CHECK_INT(neo_bags_key_of(bags, 0, ROWS, &key), 0);
    neo_bags_destroy(bags);
    /* Without memory for keys nothing stays behind. */
    const int64_t before = counter.live;
    for (int n = 0; n < 20; n++) {
        counter.refuse_at = counter.calls + n;
        if (neo_bags_create(ctx, &m.desc, &bags) == NEO_OK) {
            neo_bags_destroy(bags);
            break;
        }
        CHECK(strstr(neo_last_error(), "no memory"));
        CHECK_INT(counter.live, before);
    }
    counter.refuse_at = -1;
    neo_ctx_destroy(ctx);
    CHECK_INT(counter.live + counter.wrong, 0);
}

/* Nor does what forward found hold where offsets have moved since: the same ids at the same places
   may be another table's. */
static void ids_change_tables(void) {
    enum { SAMPLES = 2, IDS = 32 };
    const int64_t rows[] = {4096, 64}, dims[] = {DIM, DIM};
    static float out[SAMPLES * 2 * DIM], dout[SAMPLES * 2 * DIM];
    Model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_bags *bags[2] = {NULL, NULL}; /* the second has seen no forward */
    model_init(&m, 2, rows, dims, 2, NEO_POOL_SUM);
    for (int t = 0; t < 2; t++) m.table[t].init = spread, m.table[t].keys.on = 1;
    for (int i = 0; i < 2; i++) REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags[i]));
    for (int step = 0; step < 12; step++) {
        int64_t ids[IDS], all_of_first[] = {0, 8, IDS, IDS, IDS}, moved[] = {0, 4, 8, 20, IDS};
        for (int k = 0; k < IDS; k++) ids[k] = (int64_t)(test_random() % 40);
        neo_jagged j = {SAMPLES, 2, NEO_I64, all_of_first, ids, NULL, NULL, NEO_HOST, NULL};
        CHECK_OK(neo_bags_forward(bags[0], &j, neo_tensor_2d(out, NEO_F32, SAMPLES, 2 * DIM)));
        if (step % 3) j.offsets = moved;
        test_fill(dout, SAMPLES * 2 * DIM);
        for (int i = 0; i < 2; i++)
            CHECK_OK(neo_bags_backward(bags[i], &j,
                                       neo_tensor_2d(dout, NEO_F32, SAMPLES, 2 * DIM), 0.1f));
    }
    for (int t = 0; t < 2; t++) {
        const neo_key_stats a = neo_bags_key_stats(bags[0], t), b = neo_bags_key_stats(bags[1], t);
        const neo_tensor x = neo_bags_weight(bags[0], t), y = neo_bags_weight(bags[1], t);
        CHECK(memcmp(&a, &b, sizeof a) == 0);
        CHECK_BITS(x.data, y.data, neo_tensor_bytes(x));
    }
    for (int i = 0; i < 2; i++) neo_bags_destroy(bags[i]);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(room_for_all);
    RUN(keys_come_and_go);
    RUN(ids_change_tables);
    RUN(pruned);
    RUN(calls);
    return test_end("bags/keys");
}
