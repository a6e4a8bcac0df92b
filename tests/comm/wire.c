/* wire.c: rows in fewer bits: every wire against a naive coder in double, and the promises of
   >>wire.

   Oracle: the layout, the scales and the roundings as documented, written again with frexp, ldexp
   and searches in lists of codes. Data are blocks of one kind each: uniform numbers, all exponents,
   denormals, the largest floats, zeros of both signs, one huge outlier, tiny numbers, exact ties.
   Every coded byte and every decoded number is compared, and every error is held against its stated
   bound. */
#include "test.h"
#include "neo_comm.h"

#include <fenv.h>

static neo_ctx *ctx;
static const int grid_cols[] = {1,  2,  63, 64, 65, 128, 200, 3,    4,    7,    8,   12,
                                15, 16, 17, 31, 32, 33,  100, 1023, 1024, 1025, 1100};
static const int grid_rows[] = {0, 1, 3, 64};
enum { GRID_COLS = 23, GRID_ROWS = 4, KINDS = 11 };

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static float number(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static int finite_float(float x) { return (bits(x) & 0x7FFFFFFFu) < 0x7F800000u; }
static int is_integer(neo_wire w) { return w == NEO_WIRE_I8 || w == NEO_WIRE_I4; }
static int is_f8(neo_wire w) { return w == NEO_WIRE_F8E4M3 || w == NEO_WIRE_F8E5M2; }
static int is_block(neo_wire w) { return is_integer(w) || is_f8(w); }
static void *take(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        printf("no memory\n");
        exit(1);
    }
    return p;
}
static float *take_floats(int64_t count) { return (float *)take((size_t)count * sizeof(float)); }

/* ---- data ---- */
static float any_float(void) {
    float x = number(test_random() << 1 ^ test_random());
    return finite_float(x) ? x : 0.0f;
}
static float one_of_kind(int kind, int i) {
    float sign = test_random() % 2 ? 1.0f : -1.0f;
    switch (kind) {
    case 0: return test_uniform();
    case 1: return any_float();
    case 2: return number(test_random() % 0x00800000u) * sign; /* denormals */
    case 3: return number(0x7F7FFFFFu - test_random() % 3u * 0x7FFFu) * sign;
    case 4: return 0.0f * sign;
    case 5: return i == 5 ? 1e30f : test_uniform();
    case 6: return ldexpf(test_uniform(), -120 - (int)(test_random() % 26));
    case 7:
        return i % 64 == 0 ? 127.0f
                           : (float)((int)(test_random() % 509) - 254) * 0.5f; /* ties in i8 */
    case 8:
        return i % 64 == 0 ? 448.0f
                           : (float)((int)(test_random() % 897) - 448) * 0.5f; /* ties in e4m3 */
    case 9:
        return i % 64 == 0 ? 7.0f : (float)((int)(test_random() % 29) - 14) * 0.5f; /* ties in i4 */
    default: return ldexpf(test_uniform(), (int)(test_random() % 60) - 30);
    }
}
static void fill_kind(float *x, int64_t n, int kind) {
    float magnitude = kind == 0 ? ldexpf(1.0f, (int)(test_random() % 200) - 100) : 1.0f;
    for (int64_t i = 0; i < n; i++) x[i] = one_of_kind(kind, (int)i) * magnitude;
}
/* Each block of 64 columns of a kind of its own. */
static void fill_rows(float *x, int64_t rows, int64_t cols, int64_t stride) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += 64)
            fill_kind(x + r * stride + c, cols - c < 64 ? cols - c : 64,
                      (int)(test_random() % KINDS));
}

/* ---- the oracle ---- */

/* A float format by its positive finite codes. */
typedef struct format {
    int man, bias, codes;
} format;
static format format_of(neo_wire w) {
    static const format f16 = {10, 15, 0x7C00}, bf16 = {7, 127, 0x7F80}, e4m3 = {3, 7, 0x7F},
                        e5m2 = {2, 15, 0x7C};
    return w == NEO_WIRE_F16 ? f16 : w == NEO_WIRE_BF16 ? bf16 : w == NEO_WIRE_F8E4M3 ? e4m3 : e5m2;
}
static double format_value(format f, int code) {
    int e = code >> f.man, m = code & ((1 << f.man) - 1);
    return e ? ldexp(m + (1 << f.man), e - f.bias - f.man) : ldexp(m, 1 - f.bias - f.man);
}
/* The code nearest to x >= 0, ties to even; f.codes: beyond the largest by half a place or more. */
static int format_code(format f, double x) {
    int low = 0, high = f.codes;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (format_value(f, mid) <= x)
            low = mid;
        else
            high = mid;
    }
    double middle = (format_value(f, low) + format_value(f, high)) / 2;
    return x > middle || (x == middle && low % 2) ? high : low;
}

static double naive_largest(const double *y, int n) {
    double m = 0;
    for (int i = 0; i < n; i++) {
        if (!(fabs(y[i]) <= (double)FLT_MAX)) return INFINITY;
        if (fabs(y[i]) > m) m = fabs(y[i]);
    }
    return m;
}
static double naive_scale(neo_wire w, double m) {
    if (is_integer(w)) {
        int e;
        double fraction = frexp((double)(float)(m / (w == NEO_WIRE_I8 ? 127 : 7)), &e);
        double s = ldexp(floor(ldexp(fraction, 17) + 0.5), e - 17);
        return s < (double)FLT_MIN ? (double)FLT_MIN : s;
    }
    double s = (double)FLT_MIN, top = format_value(format_of(w), format_of(w).codes - 1);
    while (m / s > top) s *= 2;
    return s;
}
/* The code of y in `bits` bits. */
static unsigned naive_code(neo_wire w, double y, double scale) {
    if (is_integer(w)) {
        double v = (double)(float)(y * (double)(float)(1 / scale)), q = floor(v);
        if (v - q > 0.5 || (v - q == 0.5 && fmod(q, 2) != 0)) q += 1;
        return (unsigned)(int)q & (w == NEO_WIRE_I8 ? 0xFFu : 0xFu);
    }
    return (unsigned)format_code(format_of(w), fabs(y) / scale) | (signbit(y) ? 0x80u : 0u);
}
static unsigned char *naive_block(neo_wire w, const double *y, int n, unsigned char *out) {
    int size = w == NEO_WIRE_I4 ? 4 : 8, planes = 32 / size, words = (n + planes - 1) / planes,
        zeros = 1;
    double m = naive_largest(y, n), scale = naive_scale(w, m);
    uint32_t word[16] = {0};
    for (int i = 0; i < n && m < INFINITY; i++) {
        unsigned code = naive_code(w, y[i], scale);
        if (is_integer(w) ? code != 0 : (code & 0x7Fu) != 0) zeros = 0;
        word[i % words] |= code << (i / words * size);
    }
    float s = !(m < INFINITY) ? number(0x7FC00000u) : zeros ? 0.0f : (float)scale;
    memcpy(out, &s, 4);
    memcpy(out + 4, word, (size_t)words * 4);
    return out + 4 + words * 4;
}
static void naive_encode(neo_wire w, int exponent, const float *x, int64_t cols,
                         unsigned char *out) {
    for (int64_t c = 0; c < cols && is_block(w); c += 64) {
        double y[64];
        int n = cols - c < 64 ? (int)(cols - c) : 64;
        for (int i = 0; i < n; i++) y[i] = (double)(float)ldexp((double)x[c + i], exponent);
        out = naive_block(w, y, n, out);
    }
    for (int64_t c = 0; c < cols && !is_block(w); c++) {
        float y = (float)ldexp((double)x[c], exponent);
        if (w == NEO_WIRE_F16 && finite_float(x[c]) && fabsf(y) > 65504.0f)
            y = copysignf(65504.0f, y);
        uint16_t code =
            (uint16_t)(format_code(format_of(w), fabs((double)y)) | (signbit(y) ? 0x8000 : 0));
        if (!(fabsf(y) <= FLT_MAX))
            code = (uint16_t)((signbit(y) ? 0x8000 : 0) | format_of(w).codes);
        if (w == NEO_WIRE_F32)
            memcpy(out + 4 * c, &y, 4);
        else
            memcpy(out + 2 * c, &code, 2);
    }
    if (!is_block(w) && w != NEO_WIRE_F32 && cols % 2) memset(out + 2 * cols, 0, 2);
}
static double naive_decode_number(neo_wire w, const unsigned char *row, int64_t cols, int64_t c,
                                  double *scale) {
    uint16_t half;
    float s;
    uint32_t word;
    *scale = 0;
    if (w == NEO_WIRE_F32) {
        memcpy(&s, row + 4 * c, 4);
        return (double)s;
    }
    if (!is_block(w)) {
        memcpy(&half, row + 2 * c, 2);
        int code = half & 0x7FFF, infinity = format_of(w).codes;
        double v = code > infinity    ? (double)NAN
                   : code == infinity ? (double)INFINITY
                                      : format_value(format_of(w), code);
        return half & 0x8000 ? -v : v;
    }
    int64_t block = c / 64, n = cols - block * 64 < 64 ? cols - block * 64 : 64;
    int size = w == NEO_WIRE_I4 ? 4 : 8, words = ((int)n * size + 31) / 32, i = (int)(c % 64);
    const unsigned char *at = row + block * (4 + 8 * size);
    memcpy(&s, at, 4);
    memcpy(&word, at + 4 + 4 * (i % words), 4);
    int code = (int)(word >> (i / words * size) & ((1u << size) - 1u));
    *scale = (double)s;
    if (is_integer(w))
        return (double)(code >= 1 << (size - 1) ? code - (1 << size) : code) * (double)s;
    return (code & 0x80 ? -1.0 : 1.0) * format_value(format_of(w), code & 0x7F) * (double)s;
}

/* The largest error that >>wire states; scale as it travels. */
static double stated_bound(neo_wire w, double x, double scale) {
    double a = fabs(x);
    switch (w) {
    case NEO_WIRE_F16:
        return a > 65504 ? a - 65504 : a < ldexp(1, -14) ? ldexp(1, -25) : ldexp(a, -11);
    case NEO_WIRE_BF16: return a < (double)FLT_MIN ? ldexp(1, -134) : ldexp(a, -8);
    case NEO_WIRE_F8E4M3:
        return scale == 0 ? ldexp(1, -136) : fmax(ldexp(a, -4), ldexp(scale, -10));
    case NEO_WIRE_F8E5M2:
        return scale == 0 ? ldexp(1, -143) : fmax(ldexp(a, -3), ldexp(scale, -17));
    case NEO_WIRE_I8:
    case NEO_WIRE_I4: return scale == 0 ? ldexp(1, -127) : scale / 2 * (1 + ldexp(1, -15));
    default: return 0;
    }
}

/* ---- a case: coded, decoded, with guards around ---- */
enum { GUARD = 64 };
typedef struct coded {
    neo_wire wire;
    int64_t rows, cols, stride;
    size_t row_bytes;
    float *x, *y;                  /* [rows][stride]: input, decoded */
    unsigned char *memory, *bytes; /* [rows][row_bytes] between guards */
    neo_wire_stats stats;
} coded;

static coded coded_make(neo_wire w, int64_t rows, int64_t cols, int64_t stride) {
    coded k;
    memset(&k, 0, sizeof k);
    k.wire = w;
    k.rows = rows;
    k.cols = cols;
    k.stride = stride;
    k.row_bytes = neo_wire_row_bytes(w, cols);
    /* one float more in front, so that rows are not aligned to vectors, and none behind the last
       row's end */
    k.x = take_floats(1 + rows * stride) + 1;
    k.y = take_floats(1 + rows * stride + GUARD) + 1;
    k.memory = (unsigned char *)take((size_t)rows * k.row_bytes + 2 * GUARD + 4);
    k.bytes = k.memory + GUARD + 4;
    memset(k.x, 0, (size_t)(rows * stride) * sizeof(float));
    fill_rows(k.x, rows, cols, stride);
    return k;
}
static void coded_free(coded *k) {
    free(k->x - 1);
    free(k->y - 1);
    free(k->memory);
}
static void coded_run(coded *k, int exponent) {
    memset(k->memory, 0xA5, (size_t)k->rows * k->row_bytes + 2 * GUARD + 4);
    for (int64_t i = 0; i < k->rows * k->stride + GUARD; i++) k->y[i] = 12345.0f;
    memset(&k->stats, 0, sizeof k->stats);
    neo_wire_encode(ctx, k->wire, exponent, k->x, k->rows, k->cols, k->stride, k->bytes, &k->stats);
    neo_wire_decode(ctx, k->wire, exponent, k->bytes, k->rows, k->cols, k->stride, k->y);
}
static void check_guards(const coded *k) {
    const unsigned char *end = k->bytes + (size_t)k->rows * k->row_bytes;
    int touched = 0;
    for (int i = 0; i < GUARD; i++) touched += (k->bytes - GUARD)[i] != 0xA5 || end[i] != 0xA5;
    for (int64_t i = 0; i < k->rows * k->stride + GUARD; i++)
        if (i >= k->rows * k->stride || i % k->stride >= k->cols) touched += k->y[i] != 12345.0f;
    if (touched)
        FAIL("%s %d x %d: %d guards overwritten", neo_wire_name(k->wire), (int)k->rows,
             (int)k->cols, touched);
}
static void check_bytes(const coded *k, int exponent) {
    unsigned char *want = (unsigned char *)take(k->row_bytes);
    for (int64_t r = 0; r < k->rows; r++) {
        const unsigned char *got = k->bytes + (size_t)r * k->row_bytes;
        naive_encode(k->wire, exponent, k->x + r * k->stride, k->cols, want);
        for (size_t i = 0; i < k->row_bytes; i++)
            if (got[i] != want[i]) {
                FAIL("%s %d x %d: byte %d of row %d is %02x, expected %02x", neo_wire_name(k->wire),
                     (int)k->rows, (int)k->cols, (int)i, (int)r, got[i], want[i]);
                break;
            }
    }
    free(want);
}
static void check_numbers(const coded *k, int exponent) {
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t c = 0; c < k->cols; c++) {
            double scale, x = (double)k->x[r * k->stride + c];
            float y = k->y[r * k->stride + c];
            double plain = naive_decode_number(k->wire, k->bytes + (size_t)r * k->row_bytes,
                                               k->cols, c, &scale);
            float want = (float)ldexp((double)(float)plain, -exponent);
            if (want != want ? y == y : bits(y) != bits(want)) /* -0 is -0, a NaN any NaN */
                FAIL("%s column %d of %d: %a decodes as %a, expected %a", neo_wire_name(k->wire),
                     (int)c, (int)k->cols, x, (double)y, (double)want);
            if (exponent || !finite_float(y)) continue;
            if (!(fabs((double)y - x) <= stated_bound(k->wire, x, scale)))
                FAIL("%s column %d of %d: %a decodes as %a, scale %a: beyond the bound",
                     neo_wire_name(k->wire), (int)c, (int)k->cols, x, (double)y, scale);
        }
}
static void check_stats(const coded *k, int exponent) {
    neo_wire_stats s;
    memset(&s, 0, sizeof s);
    for (int64_t i = 0; i < k->rows * k->stride; i++) {
        double x = (double)k->x[i], error = fabs((double)k->y[i] - x);
        if (i % k->stride >= k->cols) continue;
        s.numbers++;
        if (!finite_float(k->y[i])) {
            s.non_finite++;
            continue;
        }
        s.error_squares += error * error;
        s.squares += x * x;
        s.max_error = fmax(s.max_error, error);
        if (k->wire == NEO_WIRE_F16) s.saturated += ldexp(fabs(x), exponent) > 65504;
    }
    CHECK_INT(k->stats.numbers, s.numbers);
    CHECK_INT(k->stats.saturated, s.saturated);
    CHECK_INT(k->stats.non_finite, s.non_finite);
    CHECK_NEAR(k->stats.error_squares, s.error_squares, s.error_squares * 1e-12);
    CHECK_NEAR(k->stats.squares, s.squares, s.squares * 1e-12);
    CHECK(k->stats.max_error == s.max_error);
}

/* ---- tests ---- */
static void names(void) {
    static const char *const name[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i4"};
    neo_wire w = NEO_WIRE_I8;
    for (int i = 0; i < NEO_WIRE_COUNT; i++) {
        CHECK(strcmp(neo_wire_name((neo_wire)i), name[i]) == 0);
        CHECK_OK(neo_wire_parse(name[i], &w));
        CHECK_INT(w, i);
    }
    CHECK(strcmp(neo_wire_name(NEO_WIRE_COUNT), "unknown") == 0);
    w = NEO_WIRE_I8;
    CHECK_ERR(neo_wire_parse("int8", &w), NEO_ERR_ARG, "'int8' is not one of f32, f16");
    CHECK_ERR(neo_wire_parse("", &w), NEO_ERR_ARG, "''");
    CHECK_ERR(neo_wire_parse(NULL, &w), NEO_ERR_ARG, "name or wire is NULL");
    CHECK_ERR(neo_wire_parse("i8", NULL), NEO_ERR_ARG, "name or wire is NULL");
    CHECK_INT(w, NEO_WIRE_I8);
}

static void sizes(void) {
    static const int cols[] = {0, 1, 2, 3, 63, 64, 65, 128, 200};
    static const int bytes[NEO_WIRE_COUNT][9] = {
        {0, 4, 8, 12, 252, 256, 260, 512, 800}, {0, 4, 4, 8, 128, 128, 132, 256, 400},
        {0, 4, 4, 8, 128, 128, 132, 256, 400},  {0, 8, 8, 8, 68, 68, 76, 136, 216},
        {0, 8, 8, 8, 68, 68, 76, 136, 216},     {0, 8, 8, 8, 68, 68, 76, 136, 216},
        {0, 8, 8, 8, 36, 36, 44, 72, 116},
    };
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int i = 0; i < 9; i++)
            CHECK_INT(neo_wire_row_bytes((neo_wire)w, cols[i]), bytes[w][i]);
    for (int c = 0; c < 300; c++)
        for (int w = 0; w < NEO_WIRE_COUNT; w++) CHECK(neo_wire_row_bytes((neo_wire)w, c) % 4 == 0);
    CHECK_INT(neo_wire_row_bytes(NEO_WIRE_COUNT, 64), 0);
    CHECK_INT(neo_wire_row_bytes(NEO_WIRE_I8, -1), 0);
    const double f32 = (double)neo_wire_row_bytes(NEO_WIRE_F32, 128);
    CHECK_NEAR(f32 / (double)neo_wire_row_bytes(NEO_WIRE_F16, 128), 2, 0);
    CHECK_NEAR(f32 / (double)neo_wire_row_bytes(NEO_WIRE_F8E4M3, 128), 3.76, 0.01);
    CHECK_NEAR(f32 / (double)neo_wire_row_bytes(NEO_WIRE_I8, 128), 3.76, 0.01);
    CHECK_NEAR(f32 / (double)neo_wire_row_bytes(NEO_WIRE_I4, 128), 7.11, 0.01);
}

static void grid(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int i = 0; i < GRID_COLS; i++)
            for (int j = 0; j < GRID_ROWS; j++)
                for (int gap = 0; gap < 3; gap++) {
                    if (grid_rows[j] == 64 && grid_cols[i] > 200) continue;
                    static const int gaps[] = {0, 1, 6};
                    coded k = coded_make((neo_wire)w, grid_rows[j], grid_cols[i],
                                         grid_cols[i] + gaps[gap]);
                    coded_run(&k, 0);
                    check_guards(&k);
                    check_bytes(&k, 0);
                    check_numbers(&k, 0);
                    check_stats(&k, 0);
                    coded_free(&k);
                }
}

/* Many blocks of each kind. */
static void bounds(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int cols = 64; cols >= 37; cols -= 27) {
                coded k = coded_make((neo_wire)w, 300, cols, cols);
                for (int64_t r = 0; r < 300; r++) fill_kind(k.x + r * cols, cols, kind);
                coded_run(&k, 0);
                check_bytes(&k, 0);
                check_numbers(&k, 0);
                check_stats(&k, 0);
                for (int64_t i = 0; i < 300 * cols;
                     i++) /* bf16 and f8 may round up to infinity there */
                    CHECK(finite_float(k.y[i]) || fabsf(k.x[i]) >= FLT_MAX * (1 - 0x1p-4f));
                CHECK(k.stats.non_finite == 0 || w == NEO_WIRE_BF16 || is_f8(k.wire));
                coded_free(&k);
            }
}

/* Whatever the significand of the largest magnitude is, it has the largest code. */
static void every_scale(void) {
    for (int i = 0; i < 2; i++)
        for (uint32_t step = 0; step < 1u << 23; step += 61) {
            float x[4] = {number(0x3F800000u + step), 0.0f, 0.0f, 0.0f}, y[4];
            unsigned char row[8];
            neo_wire_encode(ctx, i ? NEO_WIRE_I4 : NEO_WIRE_I8, 0, x, 1, 4, 4, row, NULL);
            neo_wire_decode(ctx, i ? NEO_WIRE_I4 : NEO_WIRE_I8, 0, row, 1, 4, 4, y);
            CHECK_INT(row[4], i ? 7 : 127);
            CHECK_NEAR(y[0], x[0], (double)x[0] * 0x1.01p-17);
        }
}

/* Largest magnitudes where the scale changes or the block becomes zeros, and their neighbours. */
static void edges(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int e = -149; e < 128; e++) {
            coded k = coded_make((neo_wire)w, 12, 5, 5);
            for (int i = 0; i < 12; i++) {
                static const float factor[] = {1.0f, 1.75f, 1.984375f, 1.9375f};
                uint32_t u = bits(ldexpf(factor[i / 3], e)) + (uint32_t)(i % 3);
                float x = number(u ? u - 1 : 0);
                for (int c = 0; c < 5; c++) k.x[5 * i + c] = c % 2 ? -x : x * 0.25f * (float)c;
            }
            coded_run(&k, 0);
            check_bytes(&k, 0);
            check_numbers(&k, 0);
            check_stats(&k, 0);
            coded_free(&k);
        }
}

static void every_half_decodes(void) {
    static uint16_t codes[65536];
    static float x[65536];
    for (int i = 0; i < 65536; i++) codes[i] = (uint16_t)i;
    for (int w = NEO_WIRE_F16; w <= NEO_WIRE_BF16; w++) {
        format f = format_of((neo_wire)w);
        neo_wire_decode(ctx, (neo_wire)w, 0, codes, 1, 65536, 65536, x);
        for (int i = 0; i < 65536; i++) {
            int code = i & 0x7FFF;
            double v = code < f.codes ? format_value(f, code) : (double)INFINITY;
            if (code > f.codes)
                CHECK(x[i] != x[i]);
            else
                CHECK((double)x[i] == (i & 0x8000 ? -v : v) &&
                      bits(x[i]) >> 31 == (uint32_t)i >> 15);
        }
    }
}
static void every_byte_decodes(void) {
    for (int w = NEO_WIRE_F8E4M3; w <= NEO_WIRE_I4; w++)
        for (int code = 0; code < 256; code++) {
            if (is_f8((neo_wire)w) && (code & 0x7F) >= format_of((neo_wire)w).codes)
                continue; /* never sent */
            unsigned char row[68];
            float scale = 0.375f, x[64];
            double unused;
            int cols = w == NEO_WIRE_I4 ? 128 / 4 : 64;
            memset(row, code, sizeof row);
            memcpy(row, &scale, 4);
            neo_wire_decode(ctx, (neo_wire)w, 0, row, 1, cols, cols, x);
            for (int c = 0; c < cols; c++)
                CHECK((double)x[c] == naive_decode_number((neo_wire)w, row, cols, c, &unused));
        }
}

/* An Inf or a NaN spoils its block and nothing else; f32, f16 and bf16 carry it. */
static void non_finite(void) {
    static const int places[] = {0, 1, 15, 16, 31, 47, 62, 63, 64, 100, 127, 128, 136, 199};
    const float values[] = {INFINITY, -INFINITY, NAN, number(0xFFC00001u), number(0x7FFFFFFFu)};
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int p = 0; p < 14; p++)
            for (int v = 0; v < 5; v++) {
                coded k = coded_make((neo_wire)w, 3, 200, 201);
                for (int64_t r = 0; r < 3; r++) fill_kind(k.x + r * 201, 200, 0);
                float *at = k.x + 201 + places[p];
                *at = values[v];
                coded_run(&k, 0);
                int first = is_block(k.wire) ? places[p] / 64 * 64 : places[p];
                int count = !is_block(k.wire) ? 1 : first + 64 <= 200 ? 64 : 200 - first;
                for (int c = 0; c < 600; c++) {
                    float y = k.y[c / 200 * 201 + c % 200];
                    int spoilt = c >= 200 + first && c < 200 + first + count;
                    if (!spoilt)
                        CHECK(finite_float(y));
                    else if (is_block(k.wire) || v >= 2)
                        CHECK(y != y);
                    else
                        CHECK(y == values[v]);
                }
                CHECK_INT(k.stats.non_finite, count);
                check_stats(&k, 0);
                if (is_block(k.wire)) check_bytes(&k, 0); /* whatever the NaN's payload */
                coded_free(&k);
            }
}

static void saturation(void) {
    float x[6] = {65504.0f, 65505.0f, 65520.0f, -1e30f, FLT_MAX, 1.0f}, y[6];
    uint16_t row[6];
    neo_wire_stats s;
    memset(&s, 0, sizeof s);
    neo_wire_encode(ctx, NEO_WIRE_F16, 0, x, 1, 6, 6, row, &s);
    neo_wire_decode(ctx, NEO_WIRE_F16, 0, row, 1, 6, 6, y);
    for (int i = 0; i < 5; i++) CHECK(y[i] == (i == 3 ? -65504.0f : 65504.0f));
    CHECK(y[5] == 1.0f);
    CHECK_INT(s.saturated, 4);
    CHECK_INT(s.non_finite, 0);
    CHECK(s.max_error == (double)FLT_MAX - 65504.0);
}

static void exponents(void) {
    static const int exponent[] = {-126, -40, -1, 1, 10, 60, 126};
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int e = 0; e < 7; e++)
            for (int cols = 1; cols < 300; cols += 37) {
                coded k = coded_make((neo_wire)w, 3, cols, cols + e % 2);
                coded_run(&k, exponent[e]);
                check_guards(&k);
                check_bytes(&k, exponent[e]);
                check_numbers(&k, exponent[e]);
                check_stats(&k, exponent[e]);
                /* where nothing over- or underflows, coding 2^e x says what coding x says */
                for (int64_t r = 0; r < 3; r++) fill_kind(k.x + r * k.stride, cols, 5);
                coded_run(&k, 0);
                coded plain = k;
                plain.y = take_floats(3 * k.stride + GUARD + 1) + 1;
                memcpy(plain.y, k.y, (size_t)(3 * k.stride + GUARD) * sizeof(float));
                coded_run(&k, exponent[e] % 20);
                if (is_block(k.wire) || w == NEO_WIRE_BF16)
                    CHECK_BITS(k.y, plain.y, (size_t)(3 * k.stride) * sizeof(float));
                free(plain.y - 1);
                coded_free(&k);
            }
}
static void exponent_overflow(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++) {
        coded k = coded_make((neo_wire)w, 1, 128, 128);
        for (int i = 0; i < 128; i++) k.x[i] = 1.0f;
        k.x[70] = 3e38f;
        coded_run(&k, 1);
        CHECK_INT(k.stats.non_finite, w == NEO_WIRE_F16 ? 0 : is_block((neo_wire)w) ? 64 : 1);
        CHECK_INT(k.stats.saturated, w == NEO_WIRE_F16);
        CHECK(w == NEO_WIRE_F16 ? k.y[70] == 32752.0f : !finite_float(k.y[70]));
        CHECK_NEAR(k.y[0], 1.0f, 0x1p-16);
        check_stats(&k, 1);
        /* exponents beyond the range act as the nearest inside it */
        unsigned char other[512];
        for (int i = 0; i < 128; i++) k.x[i] = test_uniform() * 0x1p-126f;
        coded_run(&k, 126);
        neo_wire_encode(ctx, (neo_wire)w, 4000, k.x, 1, 128, 128, other, NULL);
        CHECK_BITS(other, k.bytes, k.row_bytes);
        coded_free(&k);
    }
}

/* A row's bytes depend on the row alone: not on the others, its place, the gaps, or on measuring
   errors. */
static void rows_alone(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int i = 0; i < GRID_COLS; i++) {
            coded k = coded_make((neo_wire)w, 9, grid_cols[i], grid_cols[i]);
            coded_run(&k, 0);
            unsigned char *alone = (unsigned char *)take(9 * k.row_bytes);
            float *apart = take_floats(9 * (k.cols + 3)), *back = take_floats(9 * (k.cols + 3));
            for (int64_t r = 8; r >= 0; r--) {
                neo_wire_encode(ctx, k.wire, 0, k.x + r * k.stride, 1, k.cols, 7, alone, NULL);
                CHECK_BITS(alone, k.bytes + (size_t)r * k.row_bytes, k.row_bytes);
                memcpy(apart + r * (k.cols + 3), k.x + r * k.stride,
                       (size_t)k.cols * sizeof(float));
            }
            neo_wire_encode(ctx, k.wire, 0, apart, 9, k.cols, k.cols + 3, alone, NULL);
            CHECK_BITS(alone, k.bytes, 9 * k.row_bytes);
            neo_wire_decode(ctx, k.wire, 0, alone, 9, k.cols, k.cols + 3, back);
            for (int64_t r = 0; r < 9; r++)
                CHECK_BITS(back + r * (k.cols + 3), k.y + r * k.stride,
                           (size_t)k.cols * sizeof(float));
            free(alone);
            free(apart);
            free(back);
            coded_free(&k);
        }
}

/* What was decoded codes to the same numbers again; to the same bytes too, but for the scales of
   f8. */
static void idempotent(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int kind = 0; kind < KINDS; kind++) {
            coded k = coded_make((neo_wire)w, 500, 65, 65);
            for (int64_t r = 0; r < 500; r++) fill_kind(k.x + r * 65, 65, kind);
            for (int i = 0; i < 500 * 65; i++)
                k.x[i] *= kind == 1 || kind == 3 ? 0.5f : 1.0f; /* no infinity */
            coded_run(&k, 0);
            float *z = take_floats(500 * 65);
            unsigned char *again = (unsigned char *)take(500 * k.row_bytes);
            neo_wire_encode(ctx, k.wire, 0, k.y, 500, 65, 65, again, NULL);
            neo_wire_decode(ctx, k.wire, 0, again, 500, 65, 65, z);
            CHECK_BITS(z, k.y, 500 * 65 * sizeof(float));
            if (!is_f8(k.wire)) CHECK_BITS(again, k.bytes, 500 * k.row_bytes);
            free(z);
            free(again);
            coded_free(&k);
        }
}

static void stats_add(void) {
    coded k = coded_make(NEO_WIRE_I8, 3, 100, 100);
    for (int i = 0; i < 300; i++) k.x[i] = test_uniform();
    coded_run(&k, 0);
    neo_wire_stats once = k.stats;
    neo_wire_encode(ctx, k.wire, 0, k.x, 3, 100, 100, k.bytes, &k.stats);
    CHECK_INT(k.stats.numbers, 600);
    CHECK_NEAR(k.stats.error_squares, 2 * once.error_squares, 1e-12);
    CHECK_NEAR(k.stats.squares, 2 * once.squares, 1e-9);
    CHECK(k.stats.max_error == once.max_error);
    neo_wire_encode(ctx, k.wire, 0, NULL, 0, 100, 100, NULL, &k.stats);
    neo_wire_encode(ctx, k.wire, 0, NULL, 3, 0, 0, NULL, &k.stats);
    neo_wire_decode(ctx, k.wire, 0, NULL, 0, 64, 64, NULL);
    CHECK_INT(k.stats.numbers, 600);
    coded_free(&k);
}

/* Buffers of exactly the size needed: a sanitizer sees any byte too many. */
static void exact_buffers(void) {
    for (int w = 0; w < NEO_WIRE_COUNT; w++)
        for (int64_t cols = 1; cols < 140; cols++) {
            float *x = take_floats(cols), *y = take_floats(cols);
            void *row = take(neo_wire_row_bytes((neo_wire)w, cols));
            fill_rows(x, 1, cols, cols);
            neo_wire_encode(ctx, (neo_wire)w, 0, x, 1, cols, cols, row, NULL);
            neo_wire_decode(ctx, (neo_wire)w, 0, row, 1, cols, cols, y);
            neo_wire_encode(ctx, (neo_wire)w, -3, x, 1, cols, cols, row, NULL);
            neo_wire_decode(ctx, (neo_wire)w, -3, row, 1, cols, cols, y);
            free(x);
            free(y);
            free(row);
        }
}

/* Neither the caller's rounding mode nor the context's instruction set shows; the mode is put back.
   */
static void modes(void) {
    static const int mode[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static const neo_isa isa[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    for (int w = 0; w < NEO_WIRE_COUNT; w++) {
        coded k = coded_make((neo_wire)w, 9, 201, 201);
        unsigned char *other = (unsigned char *)take(9 * k.row_bytes);
        float *y = take_floats(9 * 201);
        coded_run(&k, -2);
        for (int i = 0; i < 7; i++) {
            neo_ctx *of = ctx;
            if (i >= 3 && !neo_isa_available(isa[i - 3])) continue;
            if (i >= 3) of = test_ctx(1, isa[i - 3], 1);
            fesetround(i < 3 ? mode[i] : FE_TONEAREST);
            neo_wire_encode(of, k.wire, -2, k.x, 9, 201, 201, other, NULL);
            neo_wire_decode(of, k.wire, -2, other, 9, 201, 201, y);
            int after = fegetround();
            fesetround(FE_TONEAREST);
            CHECK_INT(after, i < 3 ? mode[i] : FE_TONEAREST);
            CHECK_BITS(other, k.bytes, 9 * k.row_bytes);
            CHECK_BITS(y, k.y, 9 * 201 * sizeof(float));
            if (i >= 3) neo_ctx_destroy(of);
        }
        free(other);
        free(y);
        coded_free(&k);
    }
}

/* The bytes of fixed data, the same on every machine, compiler and build (FNV-1a over them). */
static void golden(void) {
    static const uint64_t want[NEO_WIRE_COUNT] = {
        0xa6651565753b7d79, 0xbb1d8f68905640b0, 0xa06dcede208271f3, 0xdf4441714ba45387,
        0x969ecd464bb63f8d, 0x84f4f44a3e299a61, 0x1b936b8a83f12126};
    test_seed = 7;
    for (int w = 0; w < NEO_WIRE_COUNT; w++) {
        coded k = coded_make((neo_wire)w, 40, 200, 203);
        for (int64_t i = 0; i < 40 * 203; i++) {
            uint32_t u = test_random() << 1 ^ test_random();
            k.x[i] = number(i % 900 == 899 ? 0x7F800000u : (u & 0x87FFFFFFu) | 0x38000000u);
        }
        coded_run(&k, 0);
        check_bytes(&k, 0);
        uint64_t h = 14695981039346656037u;
        for (size_t i = 0; i < 40 * k.row_bytes; i++) h = (h ^ k.bytes[i]) * 1099511628211u;
        if (h != want[w]) FAIL("%s: %016" PRIx64, neo_wire_name((neo_wire)w), h);
        coded_free(&k);
    }
}

int main(void) {
    ctx = test_ctx(1, NEO_ISA_BEST, 1);
    RUN(names);
    RUN(sizes);
    RUN(grid);
    RUN(bounds);
    RUN(every_scale);
    RUN(edges);
    RUN(every_half_decodes);
    RUN(every_byte_decodes);
    RUN(non_finite);
    RUN(saturation);
    RUN(exponents);
    RUN(exponent_overflow);
    RUN(rows_alone);
    RUN(idempotent);
    RUN(stats_add);
    RUN(exact_buffers);
    RUN(modes);
    RUN(golden);
    neo_ctx_destroy(ctx);
    return test_end("comm/wire");
}
