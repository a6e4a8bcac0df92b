/* exact.c: the order-free sum of floats.

   The oracle is a plain big integer: the sum in units of 2^-149, 768 bits in two's complement,
   rounded to double by adding its bits up from the top with the halfway case decided by hand. */
#include "test.h"

/* 24 words of 32 bits, unit 2^-149. */
enum { WORDS = 24 };
typedef struct big {
    uint32_t w[WORDS];
} big;

static void big_add_shifted(big *b, uint32_t m, int shift, int negative) {
    big t = {{0}};
    uint64_t wide = (uint64_t)m << (shift % 32);
    t.w[shift / 32] = (uint32_t)wide;
    t.w[shift / 32 + 1] = (uint32_t)(wide >> 32);
    uint64_t carry = negative ? 1 : 0;
    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)b->w[i] + (negative ? ~t.w[i] : t.w[i]);
        b->w[i] = (uint32_t)carry;
        carry >>= 32;
    }
}
static void big_add(big *b, float x) {
    int e;
    double m =
        frexp(fabs((double)x), &e); /* x = m 2^e; m 2^24 is an integer unless x is denormal */
    if (x == 0.0f) return;
    int unit = e - 24 < -149 ? -149 : e - 24;
    big_add_shifted(b, (uint32_t)ldexp(m, e - unit), unit + 149, x < 0);
}
static int big_bit(const big *b, int i) { return (int)(b->w[i / 32] >> (i % 32) & 1); }
static double big_value(big b) {
    int negative = (int)(b.w[WORDS - 1] >> 31);
    if (negative) { /* negate */
        uint64_t carry = 1;
        for (int i = 0; i < WORDS; i++) {
            carry += (uint32_t)~b.w[i];
            b.w[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    int top = WORDS * 32 - 1;
    while (top >= 0 && !big_bit(&b, top)) top--;
    if (top < 0) return 0.0;
    int low = top - 52;
    uint64_t m = 0;
    for (int i = top; i >= low; i--) m = m << 1 | (uint64_t)(i >= 0 ? big_bit(&b, i) : 0);
    if (low > 0 && big_bit(&b, low - 1)) {
        int more = 0;
        for (int i = 0; i < low - 1; i++) more |= big_bit(&b, i);
        if (more || (m & 1)) m++;
    }
    double v = ldexp((double)m, low - 149);
    return negative ? -v : v;
}

static float any_finite(void) { /* every exponent, denormals too */
    float x;
    uint32_t u = test_random() << 1 ^ test_random();
    if ((u >> 23 & 0xFF) == 0xFF) u ^= 1u << 24;
    memcpy(&x, &u, sizeof x);
    return x;
}
static void shuffle(float *x, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(test_random() % (uint32_t)(i + 1));
        float t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}
static double exact_sum(const float *x, int n) {
    neo_exact s;
    neo_exact_zero(&s);
    for (int i = 0; i < n; i++) neo_exact_add(&s, x[i]);
    return neo_exact_value(&s);
}
static int same_double(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void equals_big_integer(void) {
    float x[300];
    for (int round = 0; round < 3000; round++) {
        int n = (int)(test_random() % 300), kind = round % 4;
        big b = {{0}};
        for (int i = 0; i < n; i++) {
            x[i] = kind == 0 ? any_finite() : test_uniform();
            if (kind == 2) x[i] = ldexpf(x[i], (int)(test_random() % 60) - 30);
            if (kind == 3 && i % 2)
                x[i] = -x[i - 1] * (i % 5 ? 1.0f : 1.0000001f); /* cancellation */
            big_add(&b, x[i]);
        }
        double want = big_value(b), got = exact_sum(x, n);
        if (!same_double(want, got)) FAIL("round %d: %a, expected %a", round, got, want);
    }
}

static void order_does_not_matter(void) {
    enum { N = 5000 };
    static float x[N];
    for (int i = 0; i < N; i++) x[i] = any_finite();
    neo_exact first, s;
    neo_exact_zero(&first);
    for (int i = 0; i < N; i++) neo_exact_add(&first, x[i]);
    neo_exact_normalize(&first);
    for (int round = 0; round < 20; round++) {
        shuffle(x, N);
        neo_exact part[7]; /* dealt to seven, merged in another order */
        for (int p = 0; p < 7; p++) neo_exact_zero(&part[p]);
        for (int i = 0; i < N; i++) {
            neo_exact_add(&part[test_random() % 7], x[i]);
            if (i % 1000 == 0) neo_exact_normalize(&part[test_random() % 7]);
        }
        neo_exact_zero(&s);
        for (int p = 0; p < 7; p++) neo_exact_merge(&s, &part[(p + round) % 7]);
        neo_exact_normalize(&s);
        CHECK_BITS(s.word, first.word, sizeof s.word);
        CHECK(same_double(neo_exact_value(&s), neo_exact_value(&first)));
    }
}

static void halfway_cases(void) {
    float tie_even[] = {0x1p53f, 1.0f}, tie_odd[] = {0x1p53f, 2.0f, 1.0f};
    float above[] = {0x1p53f, 1.0f, 0x1p-149f}, below[] = {0x1p53f, 1.0f, -0x1p-149f};
    float carry[] = {0x1p54f, -1.0f}; /* 2^54 - 1 rounds up to 2^54 */
    CHECK(exact_sum(tie_even, 2) == 0x1p53);
    CHECK(exact_sum(tie_odd, 3) == 0x1p53 + 4);
    CHECK(exact_sum(above, 3) == 0x1p53 + 2);
    CHECK(exact_sum(below, 3) == 0x1p53);
    CHECK(exact_sum(carry, 2) == 0x1p54);
}

static void extremes(void) {
    neo_exact s;
    neo_exact_zero(&s);
    CHECK(same_double(neo_exact_value(&s), 0.0));
    neo_exact_add(&s, -0.0f);
    CHECK(same_double(neo_exact_value(&s), 0.0));
    neo_exact_add(&s, 0x1p-149f);
    CHECK(neo_exact_value(&s) == 0x1p-149);
    for (int i = 0; i < 1 << 20; i++) neo_exact_add(&s, FLT_MAX);
    CHECK(neo_exact_value(&s) == ldexp((double)FLT_MAX, 20));
    for (int i = 0; i < 1 << 20; i++) neo_exact_add(&s, -FLT_MAX);
    CHECK(neo_exact_value(&s) == 0x1p-149);
    neo_exact_add(&s, -0x1p-148f);
    CHECK(neo_exact_value(&s) == -0x1p-149);
    /* Doubling by merging: 2^70 copies, and the counter of terms stays in range. */
    neo_exact_zero(&s);
    neo_exact_add(&s, FLT_MAX);
    for (int i = 0; i < 70; i++) {
        neo_exact copy = s;
        neo_exact_merge(&s, &copy);
        CHECK(s.terms > 0 && s.terms <= INT64_C(1) << 31);
    }
    CHECK(neo_exact_value(&s) == ldexp((double)FLT_MAX, 70));
}

static void infinities_and_nans(void) {
    neo_exact s, t;
    neo_exact_zero(&s);
    neo_exact_add(&s, 1.0f);
    neo_exact_add(&s, INFINITY);
    CHECK(neo_exact_value(&s) == (double)INFINITY);
    neo_exact_zero(&t);
    neo_exact_add(&t, -INFINITY);
    CHECK(neo_exact_value(&t) == (double)-INFINITY);
    neo_exact_merge(&s, &t);
    CHECK(isnan(neo_exact_value(&s)));
    neo_exact_zero(&t);
    neo_exact_add(&t, NAN);
    neo_exact_add(&t, 2.0f);
    CHECK(isnan(neo_exact_value(&t)));
    CHECK_INT(t.nan, 1);
}

/* The words may be added as plain integers, as an all-reduce does. */
static void words_add_as_integers(void) {
    neo_exact a, b, sum;
    big want = {{0}};
    neo_exact_zero(&a);
    neo_exact_zero(&b);
    for (int i = 0; i < 1000; i++) {
        float x = any_finite();
        neo_exact_add(i % 3 ? &a : &b, x);
        big_add(&want, x);
    }
    neo_exact_normalize(&a);
    sum = a;
    for (int i = 0; i < NEO_EXACT_WORDS; i++) sum.word[i] += b.word[i];
    sum.terms += b.terms;
    CHECK(same_double(neo_exact_value(&sum), big_value(want)));
}

int main(void) {
    RUN(equals_big_integer);
    RUN(order_does_not_matter);
    RUN(halfway_cases);
    RUN(extremes);
    RUN(infinities_and_nans);
    RUN(words_add_as_integers);
    return test_end("core/exact");
}
