/* random.c: the random streams and initial values.

   The oracle is a plain Philox4x32-10 written here, held against the known-answer vectors that its
   authors publish with Random123 (kat_vectors), and the key schedule as the header documents it.
 */
#include "test.h"

static void reference_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t x[4], k[2] = {key[0], key[1]};
    memcpy(x, ctr, sizeof x);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = 0xD2511F53ull * x[0], p1 = 0xCD9E8D57ull * x[2];
        uint32_t y[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ k[0], (uint32_t)p1,
                         (uint32_t)(p0 >> 32) ^ x[3] ^ k[1], (uint32_t)p0};
        memcpy(x, y, sizeof x);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, x, sizeof x);
}
static uint64_t reference_mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xFF51AFD7ED558CCDull;
    h ^= h >> 33;
    h *= 0xC4CEB9FE1A85EC53ull;
    return h ^ (h >> 33);
}
static void reference_block(uint64_t seed, uint64_t name, int64_t step, int stream, uint64_t i,
                            uint32_t out[4]) {
    uint64_t h =
        reference_mix(reference_mix(name + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)stream + 1)) +
                      (uint64_t)step);
    uint32_t ctr[4] = {(uint32_t)i, (uint32_t)(i >> 32), (uint32_t)h, (uint32_t)(h >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    reference_philox(ctr, key, out);
}

static void known_answers(void) {
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof kat[0]; i++) {
        uint32_t out[4];
        reference_philox(kat[i].ctr, kat[i].key, out);
        CHECK_BITS(out, kat[i].out, sizeof out);
    }
}

static void streams_follow_the_documented_counter(void) {
    static const uint64_t seeds[] = {0, 1, 0xffffffffffffffffull, 0x0123456789abcdefull};
    static const uint64_t index[] = {0, 1, 3, 0xffffffffull, 0x100000000ull, 0xfffffffffffffffull};
    static const int64_t steps[] = {0, 1, -1, INT64_C(1) << 40};
    static const int streams[] = {NEO_STREAM_INIT, NEO_STREAM_ROUNDING, NEO_STREAM_USER + 5};
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < 6; i++)
            for (int t = 0; t < 4; t++)
                for (int k = 0; k < 3; k++) {
                    uint64_t name = neo_hash("bags.table.weight");
                    uint32_t want[4], got[4];
                    reference_block(seeds[s], name, steps[t], streams[k], index[i], want);
                    neo_random_u32x4(seeds[s], name, steps[t], streams[k], index[i], got);
                    CHECK_BITS(got, want, sizeof want);
                    for (uint64_t w = 0; w < 4; w++) {
                        float u = neo_random_uniform(seeds[s], name, steps[t], streams[k],
                                                     4 * index[i] + w);
                        CHECK(u == (float)(want[w] >> 8) / 16777216.0f);
                    }
                }
}

static void hash_is_as_documented(void) {
    uint64_t h = 0xCBF29CE484222325ull;
    for (const char *p = "top.0.weight"; *p; p++) h = (h ^ (uint8_t)*p) * 0x100000001B3ull;
    CHECK(neo_hash("top.0.weight") == reference_mix(h));
    CHECK(neo_hash(NULL) == neo_hash(""));
    CHECK(neo_hash("\xff") != neo_hash("\x7f"));
    enum { N = 20000 }; /* like names: no collision, and half of the bits differ */
    uint64_t *seen = malloc(N * sizeof *seen);
    REQUIRE(seen);
    double bits = 0;
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof name, "table_%d.weight", i);
        seen[i] = neo_hash(name);
        uint64_t d = i ? seen[i] ^ seen[i - 1] : 0;
        for (; d; d &= d - 1) bits++;
    }
    CHECK_NEAR(bits / (N - 1), 32.0, 0.2);
    uint64_t equal = 0;
    for (int i = 0; i < N; i += 7)
        for (int j = i + 1; j < N; j++) equal += seen[i] == seen[j];
    CHECK_INT(equal, 0);
    free(seen);
}

/* What element i of the stream is, in double: the oracle of both kinds of initial values. */
static double reference_normal(uint64_t seed, uint64_t name, uint64_t i) {
    uint32_t w[4];
    reference_block(seed, name, 0, NEO_STREAM_INIT, i / 4, w);
    const uint32_t *pair = w + (i % 4 / 2) * 2;
    double r = sqrt(-2.0 * log(((double)pair[0] + 1.0) / 4294967296.0));
    double angle = 6.283185307179586 * (double)(pair[1] >> 8) / 16777216.0;
    return i % 2 ? r * sin(angle) : r * cos(angle);
}

static void init_matches_reference(void) {
    enum { N = 40000 };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float *x = malloc(N * sizeof *x);
    REQUIRE(x);
    neo_tensor t = neo_tensor_1d(x, NEO_F32, N);
    neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f}, uniform = {NEO_INIT_UNIFORM, -0.25f, 0.5f};
    uint64_t name = neo_hash("w");
    CHECK_OK(neo_tensor_init(ctx, t, "w", normal, 0));
    double worst = 0;
    for (int i = 0; i < N; i++) {
        worst = fmax(worst, fabs((double)x[i] - reference_normal(1, name, (uint64_t)i)));
        CHECK(x[i] == neo_random_normal(1, name, 0, NEO_STREAM_INIT, (uint64_t)i));
    }
    CHECK_NEAR(worst, 0, 4e-6);
    normal.a = 3.0f;
    normal.b = 0.125f;
    CHECK_OK(neo_tensor_init(ctx, t, "w", normal, 0));
    for (int i = 0; i < N; i++)
        CHECK_NEAR(x[i], 3.0 + 0.125 * reference_normal(1, name, (uint64_t)i), 2e-6);
    CHECK_OK(neo_tensor_init(ctx, t, "w", uniform, 0));
    for (int i = 0; i < N; i++) {
        float u = neo_random_uniform(1, name, 0, NEO_STREAM_INIT, (uint64_t)i);
        CHECK(x[i] ==
              (float)((double)u * 0.75 - 0.25)); /* exact in double: one rounding, as fma */
    }
    free(x);
    neo_ctx_destroy(ctx);
}

static void init_moments(void) {
    enum { N = 1 << 20 };
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    float *x = malloc(N * sizeof *x);
    REQUIRE(x);
    neo_tensor t = neo_tensor_1d(x, NEO_F32, N);
    neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f}, uniform = {NEO_INIT_UNIFORM, 0.0f, 1.0f};
    CHECK_OK(neo_tensor_init(ctx, t, "moments", normal, 0));
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, lag = 0;
    for (int i = 0; i < N; i++) {
        double v = (double)x[i];
        m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
        lag += v * (double)x[(i + 1) % N];
    }
    CHECK_NEAR(m1 / N, 0, 5e-3); /* five standard errors: 5/sqrt(N) sqrt(moment) */
    CHECK_NEAR(m2 / N, 1, 7e-3);
    CHECK_NEAR(m3 / N, 0, 2e-2);
    CHECK_NEAR(m4 / N, 3, 5e-2);
    CHECK_NEAR(lag / N, 0, 5e-3);
    CHECK_OK(neo_tensor_init(ctx, t, "moments", uniform, 0));
    int64_t bin[64] = {0};
    for (int i = 0; i < N; i++) {
        CHECK(x[i] >= 0.0f && x[i] < 1.0f);
        bin[(int)(x[i] * 64.0f) & 63]++;
    }
    double chi = 0;
    for (int b = 0; b < 64; b++) chi += pow((double)bin[b] - N / 64.0, 2) / (N / 64.0);
    CHECK(chi > 25 && chi < 120); /* 63 degrees of freedom */
    free(x);
    neo_ctx_destroy(ctx);
}

/* Any piece, on any path and number of threads, gets the values of its place. Indexes cross 2^34,
   where the low word of the block counter wraps. */
static void init_does_not_depend_on_layout(void) {
    enum { N = 20011 };
    static const int64_t first[] = {0, 1, 2, 3, (INT64_C(1) << 34) - 7000, INT64_C(1) << 40};
    static const neo_isa isa[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    static const int threads[] = {1, 2, 3, 8};
    float *want = malloc(N * sizeof *want), *got = malloc((N + 2) * sizeof *got);
    REQUIRE(want && got);
    for (int kind = NEO_INIT_UNIFORM; kind <= NEO_INIT_NORMAL; kind++)
        for (int f = 0; f < 6; f++) {
            neo_init init = {(neo_init_kind)kind, 0.1f, 0.7f};
            neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
            CHECK_OK(
                neo_tensor_init(ctx, neo_tensor_1d(want, NEO_F32, N), "piece", init, first[f]));
            neo_ctx_destroy(ctx);
            for (int i = 0; i < 16; i++) {
                if (!neo_isa_available(isa[i % 4])) continue;
                ctx = test_ctx(threads[i / 4], isa[i % 4], 1);
                int64_t cut = 1 + test_random() % (N - 2);
                got[0] = got[N + 1] = -77.0f; /* sentinels */
                CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(got + 1, NEO_F32, cut), "piece", init,
                                         first[f]));
                CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(got + 1 + cut, NEO_F32, N - cut),
                                         "piece", init, first[f] + cut));
                CHECK_BITS(got + 1, want, N * sizeof *want);
                CHECK(got[0] == -77.0f && got[N + 1] == -77.0f);
                neo_ctx_destroy(ctx);
            }
        }
    free(want);
    free(got);
}

static void uniform_stays_below_its_end(void) {
    enum { N = 1 << 18 };
    static const float range[][2] = {{1.0f, 1.00000012f}, {-1.0f, -0.99999994f}, {1e30f, 2e30f},
                                     {-1e-40f, 1e-40f},   {-3.0f, 0.0f},         {5.0f, 5.0f}};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    float *x = malloc(N * sizeof *x);
    REQUIRE(x);
    for (int r = 0; r < 6; r++) {
        neo_init init = {NEO_INIT_UNIFORM, range[r][0], range[r][1]};
        CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(x, NEO_F32, N), "edge", init, 0));
        int bad = 0;
        for (int i = 0; i < N; i++)
            bad += !(x[i] >= range[r][0] && (x[i] < range[r][1] || range[r][0] == range[r][1]));
        CHECK_INT(bad, 0);
    }
    free(x);
    neo_ctx_destroy(ctx);
}

static void init_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float x[4] = {1, 2, 3, 4};
    neo_tensor t = neo_tensor_1d(x, NEO_F32, 4);
    neo_init init = {NEO_INIT_DEFAULT, 0, 0};
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "w");
    init.kind = NEO_INIT_UNIFORM;
    init.a = 1;
    init.b = INFINITY;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "range");
    init.b = 0.5f;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "range");
    init.a = -3e38f;
    init.b = 3e38f;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "range");
    init.kind = NEO_INIT_NORMAL;
    init.b = -1;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "normal");
    init.b = NAN;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, 0), NEO_ERR_ARG, "normal");
    init.b = 1;
    CHECK_ERR(neo_tensor_init(ctx, t, "w", init, -1), NEO_ERR_ARG, "first");
    CHECK_ERR(neo_tensor_init(ctx, neo_tensor_none(), "w", init, 0), NEO_ERR_ARG, "none");
    CHECK_ERR(neo_tensor_init(ctx, neo_tensor_1d(x, NEO_I32, 4), "w", init, 0), NEO_ERR_SHAPE,
              "f32");
    CHECK(x[0] == 1 && x[3] == 4);
    init.kind = NEO_INIT_NONE;
    CHECK_OK(neo_tensor_init(ctx, t, "w", init, 0));
    CHECK(x[0] == 1 && x[3] == 4);
    init.kind = NEO_INIT_CONSTANT;
    init.a = 2.5f;
    CHECK_OK(neo_tensor_init(ctx, t, "w", init, 0));
    CHECK(x[0] == 2.5f && x[3] == 2.5f);
    CHECK_OK(neo_tensor_init(ctx, neo_tensor_1d(x, NEO_F32, 0), "w", init, 0));
    neo_ctx_destroy(ctx);
}

/* The token that a place draws, by the words of neo.h: shares of the k that a sort puts first. */
static int64_t sample_reference(const neo_sampling *s, const float *logits, int64_t count,
                                int64_t place) {
    int taken[64] = {0};
    int64_t last = 0, k = s->top_k < 1 || s->top_k > count ? count : s->top_k;
    double share[64], sum = 0;
    for (int64_t n = 0; n < k; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < count; i++)
            if (!taken[i] && logits[i] == logits[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        if (best >= 0) taken[best] = 1;
        if (n == 0) last = best;
    }
    if (!(s->temperature > 0)) return last;
    const double most = (double)logits[last];
    for (int64_t i = 0; i < count; i++) {
        share[i] = taken[i] ? exp(((double)logits[i] - most) / s->temperature) : 0;
        sum += share[i];
    }
    sum *= (double)neo_random_uniform(s->seed, neo_hash("sample"), 0, NEO_STREAM_USER,
                                      (uint64_t)place);
    for (int64_t i = 0; i < count; i++) {
        if (!taken[i]) continue;
        last = i;
        if (sum < share[i]) break;
        sum -= share[i];
    }
    return last;
}
static void samples(void) {
    static const double temperatures[] = {0, -1, 0.01, 0.8, 1, 30};
    static const int64_t tops[] = {0, 1, 2, 5, 37, 64};
    float logits[64];
    int seen[64] = {0}, kinds = 0;
    for (int i = 0; i < 64; i++) /* with ties */
        logits[i] = 6.0f * (float)((i * 29) % 17) / 17.0f - 3.0f;
    logits[3] = NAN, logits[9] = -INFINITY, logits[11] = -NAN, logits[12] = -0.0f, logits[13] = 0;
    for (int t = 0; t < 6; t++)
        for (int k = 0; k < 6; k++)
            for (int place = 0; place < 300; place++) {
                neo_sampling s = {temperatures[t], tops[k], 7};
                const int64_t got = neo_sample(&s, logits, 64, place);
                CHECK_INT(got, sample_reference(&s, logits, 64, place));
                if (t == 5 && k == 0) kinds += !seen[got]++;
            }
    CHECK(kinds > 50 && !seen[3] && !seen[9] && !seen[11]);
    const neo_sampling one = {1, 0, 1};
    CHECK_INT(neo_sample(&one, logits, 0, 0), 0);
    CHECK_INT(neo_sample(&one, logits + 3, 1, 0), 0);
    logits[5] = INFINITY;
    CHECK_INT(neo_sample(&one, logits, 64, 0), 5);
}

int main(void) {
    RUN(known_answers);
    RUN(streams_follow_the_documented_counter);
    RUN(hash_is_as_documented);
    RUN(init_matches_reference);
    RUN(init_moments);
    RUN(init_does_not_depend_on_layout);
    RUN(uniform_stays_below_its_end);
    RUN(init_errors);
    RUN(samples);
    return test_end("core/random");
}
