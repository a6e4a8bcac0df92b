/* fpmode.c: the caller's rounding mode and flush-to-zero never reach neo's results, and are as they
   were after every call. The same small training is run under each mode; the digests must be equal.
   */
#include "test.h"
#include "trainer.h"

#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static uint64_t train(int threads) {
    static trainer t;
    memset(&t, 0, sizeof t);
    neo_ctx_desc ctx = {.threads = threads, .repro_shards = 4, .seed = 3};
    trainer_desc desc = {
        .optim = NEO_OPTIM_ADAMW, .bag_optim = NEO_BAG_PARTIAL_ADAM, .clip_norm = 0.5f};
    uint64_t digest = 0;
    if (trainer_create(&t, &ctx, &desc) == NEO_OK && trainer_steps(&t, 12) == NEO_OK)
        digest = neo_state_digest(t.dlrm.state);
    else
        FAIL("%s", neo_last_error());
    trainer_destroy(&t);
    return digest;
}

static void rounding_modes(void) {
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    uint64_t expected = train(1);
    const neo_schedule cosine = {.kind = NEO_SCHEDULE_COSINE, .lr = 0.1f, .total_steps = 7};
    float lr = neo_schedule_lr(&cosine, 3);
    for (int i = 0; i < 4; i++) {
        REQUIRE(fesetround(modes[i]) == 0);
        uint64_t one = train(1), two = train(2);
        float same = neo_schedule_lr(&cosine, 3);
        int left = fegetround();
        fesetround(FE_TONEAREST);
        CHECK(one == expected && two == expected);
        CHECK_BITS(&same, &lr, sizeof lr);
        CHECK_INT(left, modes[i]);
    }
}

static void flush_to_zero(void) {
#if defined(__x86_64__)
    uint64_t expected = train(1);
    unsigned normal = _mm_getcsr(), flushing = normal | 0x8040u; /* FTZ, DAZ */
    _mm_setcsr(flushing);
    uint64_t one = train(1), two = train(2);
    unsigned left = _mm_getcsr();
    _mm_setcsr(normal);
    CHECK(one == expected && two == expected);
    CHECK_INT(left & 0xFFC0u, flushing & 0xFFC0u);
#else
    SKIP("no MXCSR here");
#endif
}

int main(void) {
    RUN(rounding_modes);
    RUN(flush_to_zero);
    return test_end("core/fpmode");
}
