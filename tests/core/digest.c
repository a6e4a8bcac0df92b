/* digest.c: the state's digest is the documented formula, and sees what it should and nothing
   else. Method: the formula written again here, element by element; every kind of change to a
   state; threads and orders that must not show. */
#include "neo_state.h"

#include "test.h"

static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= UINT64_C(0xFF51AFD7ED558CCD);
    x ^= x >> 33;
    x *= UINT64_C(0xC4CEB9FE1A85EC53);
    x ^= x >> 33;
    return x;
}
static uint64_t key_of(const char *name, neo_tensor t) {
    uint64_t k = mix(neo_hash(name));
    k = mix(k + (uint64_t)t.dtype + 1);
    k = mix(k + (uint64_t)t.ndim);
    for (int d = 0; d < t.ndim; d++) k = mix(k + (uint64_t)t.shape[d]);
    return k;
}
/* f32 and i64 only. */
static uint64_t part_of(const char *name, neo_tensor t) {
    uint64_t key = key_of(name, t), sum = 0;
    for (int64_t i = 0; i < neo_tensor_count(t); i++) {
        uint64_t bits = 0;
        if (t.dtype == NEO_I64) bits = (uint64_t)((const int64_t *)t.data)[i];
        else memcpy(&bits, (const float *)t.data + i, 4);
        if (t.dtype == NEO_F32 && ((const float *)t.data)[i] != ((const float *)t.data)[i])
            bits = 0x7FC00000;
        sum += mix((key ^ bits * UINT64_C(0xC2B2AE3D27D4EB4F)) +
                   ((uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15));
    }
    return sum;
}

enum { N = 200003 };
static float *w;
static float b[6] = {1, 2, 3, 4, 5, 6};
static int64_t step = 3, position[2] = {1, 2};

static uint64_t digest(int threads, int reversed, const char *name, neo_tensor bias,
                       neo_state_kind kind) {
    neo_ctx *ctx = test_ctx(threads, NEO_ISA_BEST, 1);
    neo_state *state = NULL;
    uint64_t result = 0;
    if (neo_state_create(ctx, &state) != NEO_OK) FAIL("%s", neo_last_error());
    for (int i = 0; i < 4; i++) {
        switch (reversed ? 3 - i : i) {
        case 0:
            CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, N)));
            break;
        case 1: CHECK_OK(neo_state_add(state, kind, name, bias)); break;
        case 2:
            CHECK_OK(neo_state_add(state, NEO_STATE_OPTIMIZER, "step",
                                   neo_tensor_1d(&step, NEO_I64, 1)));
            break;
        case 3:
            CHECK_OK(neo_state_add(state, NEO_STATE_PROGRESS, "reader",
                                   neo_tensor_1d(position, NEO_I64, 2)));
            break;
        }
    }
    result = neo_state_digest(state);
    neo_state_destroy(state);
    neo_ctx_destroy(ctx);
    return result;
}
static neo_tensor bias(void) { return neo_tensor_2d(b, NEO_F32, 2, 3); }
static uint64_t plain(void) { return digest(1, 0, "b", bias(), NEO_STATE_WEIGHT); }

static void formula(void) {
    neo_tensor t[3] = {neo_tensor_1d(w, NEO_F32, N), bias(), neo_tensor_1d(&step, NEO_I64, 1)};
    const char *names[3] = {"w", "b", "step"};
    uint64_t parts = 0, keys = 0;
    w[17] = NAN;
    for (int i = 0; i < 3; i++) {
        parts += part_of(names[i], t[i]);
        keys += mix(key_of(names[i], t[i]));
    }
    CHECK(plain() == mix(parts + mix(keys)));
    w[17] = 0.5f;
}
/* The formula may never change: digests are compared over years and machines. */
static void pinned(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_state *state = NULL;
    REQUIRE_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "b", bias()));
    CHECK_OK(neo_state_add(state, NEO_STATE_OPTIMIZER, "step", neo_tensor_1d(&step, NEO_I64, 1)));
    if (neo_state_digest(state) != UINT64_C(0xD482AEC2142CF405))
        FAIL("the digest is %016" PRIx64, neo_state_digest(state));
    neo_state_destroy(state);
    neo_ctx_destroy(ctx);
}
static void same(void) {
    uint64_t want = plain();
    for (int threads = 1; threads <= 8; threads++)
        CHECK(digest(threads, threads & 1, "b", bias(), NEO_STATE_WEIGHT) == want);
    CHECK(digest(1, 0, "b", bias(), NEO_STATE_OPTIMIZER) == want);
    position[0] = 99; /* progress is not in it */
    CHECK(plain() == want);
    uint32_t nans[3] = {0x7FC00000u, 0xFFC00001u, 0x7F800001u};
    uint64_t first = 0;
    for (int i = 0; i < 3; i++) {
        float old = b[4];
        memcpy(&b[4], &nans[i], 4);
        if (i == 0) first = plain();
        CHECK(plain() == first && first != want);
        b[4] = old;
    }
    CHECK(plain() == want);
}
static void different(void) {
    uint64_t want = plain();
    CHECK(digest(1, 0, "c", bias(), NEO_STATE_WEIGHT) != want);
    CHECK(digest(1, 0, "b", bias(), NEO_STATE_PROGRESS) != want);
    CHECK(digest(1, 0, "b", neo_tensor_2d(b, NEO_F32, 3, 2), NEO_STATE_WEIGHT) != want);
    CHECK(digest(1, 0, "b", neo_tensor_1d(b, NEO_F32, 6), NEO_STATE_WEIGHT) != want);
    CHECK(digest(1, 0, "b", neo_tensor_2d(b, NEO_I32, 2, 3), NEO_STATE_WEIGHT) != want);
    CHECK(digest(1, 0, "b", neo_tensor_2d(b, NEO_F32, 0, 3), NEO_STATE_WEIGHT) !=
          digest(1, 0, "b", neo_tensor_2d(b, NEO_F32, 0, 2), NEO_STATE_WEIGHT));
    step++;
    CHECK(plain() != want);
    step--;
    for (int bit = 0; bit < 32;
         bit++) { /* every bit counts (no NaN arises: 1.0 and its neighbours) */
        uint32_t bits;
        memcpy(&bits, &w[12345], 4);
        uint32_t flipped = bits ^ 1u << bit;
        memcpy(&w[12345], &flipped, 4);
        CHECK(plain() != want);
        memcpy(&w[12345], &bits, 4);
    }
    float t = w[0]; /* two elements swapped; a sign of zero */
    w[0] = w[N - 1];
    w[N - 1] = t;
    CHECK(plain() != want);
    w[N - 1] = w[0];
    w[0] = t;
    CHECK(plain() == want);
    w[5] = 0.0f;
    want = plain();
    w[5] = -0.0f;
    CHECK(plain() != want);
}

int main(void) {
    w = malloc(N * sizeof *w);
    test_fill(w, N);
    RUN(formula);
    RUN(pinned);
    RUN(same);
    RUN(different);
    free(w);
    return test_end("core/digest");
}
