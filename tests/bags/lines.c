/* lines.c: the map from keys to lines against a naive one, a list of keys per set in which counts
   halve when a period ends and nothing is packed: the same lines after every step, under every
   policy, with sets so few that every key leaves many times; a map and its parts hold the same.
   Many keys are looked up at once by every instruction set, as they are one by one. */
#define NEO_STATIC /* as in private.c */
#include "test.h"

enum { SETS = 4, LINES = SETS * NEO__LINE_WAYS, KEYS = 40 * SETS, STEPS = 200, USES = 24 };
enum { MANY = 6 * LINES }; /* keys that are looked up at once, at most */

typedef struct Naive {
    int used[LINES];
    uint64_t key[LINES];
    int64_t last[LINES], count[LINES];
    int64_t evicted, refused, hits;
} Naive;

static uint64_t mix(uint64_t h) { /* the finalizer of MurmurHash3 */
    h ^= h >> 33, h *= 0xFF51AFD7ED558CCDu;
    h ^= h >> 33, h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 33;
}
static int set_of(uint64_t key) { return (int)((double)(mix(key) >> 32) / 4294967296.0 * SETS); }
static int by_hash(const void *a, const void *b) {
    const uint64_t x = mix(*(const uint64_t *)a), y = mix(*(const uint64_t *)b);
    return x < y ? -1 : x > y;
}
static int naive_find(const Naive *n, uint64_t key) {
    for (int i = 0; i < LINES; i++)
        if (n->used[i] && n->key[i] == key) return i;
    return -1;
}
/* Whether line a leaves before line b. */
static int leaves_first(const Naive *n, neo_evict evict, int a, int b) {
    if (evict == NEO_EVICT_LFU && n->count[a] != n->count[b]) return n->count[a] < n->count[b];
    return n->last[a] < n->last[b];
}
static void naive_add(Naive *n, neo_evict evict, uint64_t key, int64_t now) {
    int set = set_of(key), best = -1;
    for (int i = (set + 1) * NEO__LINE_WAYS - 1; i >= set * NEO__LINE_WAYS; i--) {
        if (!n->used[i]) best = i;
        else if (best >= 0 && !n->used[best]) continue;
        else if (evict == NEO_EVICT_AGE || n->last[i] == now) continue;
        else if (best < 0 || !leaves_first(n, evict, best, i)) best = i;
    }
    if (best < 0) {
        n->refused++;
        return;
    }
    n->evicted += n->used[best];
    n->used[best] = 1, n->key[best] = key, n->last[best] = now, n->count[best] = 1;
}
static void naive_step(Naive *n, neo_evict evict, int64_t period, uint64_t *keys, int64_t now) {
    for (int i = 0; i < LINES; i++) {
        if (evict == NEO_EVICT_LFU && period && now % period == 0) n->count[i] /= 2;
        if (evict == NEO_EVICT_AGE && n->last[i] + period < now) n->used[i] = 0;
    }
    for (int k = 0; k < USES; k++) {
        const int at = naive_find(n, keys[k]);
        if (at >= 0) n->hits++, n->last[at] = now, n->count[at]++;
    }
    qsort(keys, USES, sizeof *keys, by_hash);
    for (int k = 0; k < USES; k++) {
        const int at = naive_find(n, keys[k]);
        if (at < 0) naive_add(n, evict, keys[k], now);
        else if (k && keys[k] == keys[k - 1] && n->last[at] == now) continue;
    }
}

static void lines_make(neo__lines *l, neo_evict evict, int64_t period, int first, int sets) {
    memset(l, 0, sizeof *l);
    l->sets = sets, l->first_set = first, l->all_sets = SETS, l->evict = evict, l->period = period;
    neo__carve carve = {NULL, 0};
    neo__lines_layout(&carve, l);
    carve.block = (char *)aligned_alloc(64, carve.at);
    memset(carve.block, 0, carve.at);
    carve.at = 0;
    neo__lines_layout(&carve, l);
}
/* hits in any order; then the sorted keys that have no line. */
static void lines_step(const neo__lines *l, const uint64_t *keys, int64_t now) {
    for (int k = USES - 1; k >= 0; k--) {
        const int64_t at = neo__lines_find(l, keys[k], neo__mix64(keys[k]), now);
        if (at >= 0) neo__lines_touch(l, l->use + at, now, 1);
    }
    uint64_t sorted[USES];
    memcpy(sorted, keys, sizeof sorted);
    qsort(sorted, USES, sizeof *sorted, by_hash);
    for (int k = 0; k < USES; k++) {
        const uint64_t hash = neo__mix64(sorted[k]);
        if (neo__lines_find(l, sorted[k], hash, now) >= 0) continue;
        const int64_t to = neo__lines_victim(l, hash, now);
        if (to >= 0) neo__lines_put(l, to, sorted[k], now, 1);
    }
}
static void compare(const Naive *n, const neo__lines *l, int64_t now, const char *what) {
    for (int64_t i = 0; i < l->sets * NEO__LINE_WAYS; i++) {
        const int64_t at = i + l->first_set * NEO__LINE_WAYS;
        const int used = l->use[i] && !neo__lines_expired(l, l->use[i], now);
        if (used != n->used[at] ||
            (used && (l->key[i] != n->key[at] || neo__lines_last(l->use[i]) != n->last[at] ||
                      (int64_t)neo__lines_count(l, l->use[i], now) != n->count[at])))
            FAIL("%s: step %" PRId64 ", line %" PRId64 ": key %" PRIx64 ", naive %" PRIx64, what,
                 now, at, l->key[i], n->key[at]);
    }
}
/* Of keys that have lines and keys that have none: any count of them, at any place, and nothing
   behind the last. */
static void find_many(const neo__lines *l, const uint64_t *keys) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    for (int i = 0; i < 4; i++) {
        if (!neo_isa_available(isas[i])) continue;
        neo_ctx *ctx = test_ctx(1, isas[i], 1);
        for (int64_t count = 0; count <= MANY; count += count < 20 ? 1 : 59) {
            for (int64_t first = 0; first + count <= MANY; first += 1 + MANY / 7) {
                int64_t at[MANY + 8], missing = 0;
                for (int64_t k = 0; k < MANY + 8; k++) at[k] = -77;
                const int64_t none =
                    ctx->bag->find(l, keys + first, count, STEPS, count % 2 != 0, at);
                for (int64_t k = 0; k < count; k++) {
                    const uint64_t key = keys[first + k];
                    CHECK_INT(neo__lines_find(l, key, mix(key), STEPS), at[k]);
                    missing += at[k] < 0;
                }
                CHECK_INT(none, missing);
                for (int64_t k = count; k < MANY + 8; k++) CHECK_INT(at[k], -77);
            }
        }
        neo_ctx_destroy(ctx);
    }
}
static void run_policy(neo_evict evict, int64_t period, const char *what) {
    static Naive naive;
    neo__lines whole, part[2];
    memset(&naive, 0, sizeof naive);
    lines_make(&whole, evict, period, 0, SETS);
    lines_make(&part[0], evict, period, 0, 1);
    lines_make(&part[1], evict, period, 1, SETS - 1);
    for (int64_t now = 1; now <= STEPS && !test_errors; now++) {
        uint64_t keys[USES];
        /* Some keys are used often; all bits of a key count; 0 and 2^64 - 1 are keys too. */
        for (int k = 0; k < USES; k++) {
            const uint64_t r = test_random() % (test_random() % 2 ? 8 : KEYS);
            keys[k] = r == 0 ? 0 : r == 1 ? UINT64_MAX : r << (r % 60) | r;
        }
        lines_step(&whole, keys, now);
        for (int p = 0; p < 2; p++) lines_step(&part[p], keys, now);
        naive_step(&naive, evict, period, keys, now);
        compare(&naive, &whole, now, what);
        for (int p = 0; p < 2; p++) compare(&naive, &part[p], now, what);
    }
    CHECK(naive.hits > 500);
    CHECK(evict == NEO_EVICT_AGE || naive.evicted > 100);
    memset(whole.tag, 0, LINES); /* tags come back from keys */
    neo__lines_fresh(&whole);
    compare(&naive, &whole, STEPS, what);
    uint64_t keys[MANY];
    for (int64_t i = 0; i < MANY; i++) { /* of each line its key, and another one */
        keys[i] = whole.key[i / 2 % LINES] ^ (i % 2 ? UINT64_MAX : 0);
        CHECK(neo__unmix64(neo__mix64(keys[i])) == keys[i]);
    }
    for (int64_t i = 0; i < LINES; i++) /* where the naive one has lines, they do */
        if (naive.used[i])
            CHECK_INT(neo__lines_find(&whole, whole.key[i], mix(whole.key[i]), STEPS), i);
    find_many(&whole, keys), find_many(&part[0], keys), find_many(&part[1], keys);
    free(whole.key), free(part[0].key), free(part[1].key);
}
static void policies(void) {
    run_policy(NEO_EVICT_LRU, 0, "lru");
    run_policy(NEO_EVICT_LFU, 0, "lfu");
    run_policy(NEO_EVICT_LFU, 5, "lfu that halves");
    run_policy(NEO_EVICT_AGE, 3, "age");
}
/* A set whose lines are all used by this step takes no other key. */
static void pinned(void) {
    neo__lines l;
    lines_make(&l, NEO_EVICT_LRU, 0, 0, SETS);
    int64_t taken = 0;
    for (uint64_t key = 0; key < 1000; key++) {
        const int64_t line = neo__lines_victim(&l, neo__mix64(key), 7);
        if (line >= 0) neo__lines_put(&l, line, key, 7, 1), taken++;
    }
    CHECK_INT(taken, LINES);
    CHECK(neo__lines_victim(&l, neo__mix64(5), 8) >= 0);
    neo__lines_drop(&l, 40);
    CHECK(l.use[40] == 0 && l.tag[40] == 0);
    free(l.key);
}

int main(void) {
    RUN(policies);
    RUN(pinned);
    return test_end("bags/lines");
}
