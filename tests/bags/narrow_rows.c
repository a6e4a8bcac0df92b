/* narrow_rows.c: tables whose rows are f16, bf16 or i8.

   The reference of a step is an object with f32 rows: given the decoded rows and the same state it
   takes the same step; its new rows, rounded by the documented formula on the documented random
   words, must be the narrow object's, bit for bit. Lookups must be those of the decoded rows, bit
   for bit. Further: rounding is unbiased, and trains where rounding to nearest stands still;
   memory, initial values, files, errors. */
#include "neo_state.h"

#include "common.h"

static const neo_dtype TYPES[] = {NEO_F16, NEO_BF16, NEO_I8};
static const neo_isa ISAS[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
static neo_isa isa_of(int i) { return neo_isa_available(ISAS[i % 4]) ? ISAS[i % 4] : NEO_ISA_BEST; }
enum { MOST_DIM = 300, SEED = 1 };

/* ---- the formulas ---- */
static double pow2(int e) { return ldexp(1.0, e); }
static int man_of(neo_dtype t) { return t == NEO_F16 ? 10 : 7; }
static int least_of(neo_dtype t) { return t == NEO_F16 ? -14 : -126; }
static double decode16(neo_dtype t, uint16_t h) {
    int man = man_of(t), e = (h & 0x7FFF) >> man;
    double m = (double)(h & ((1 << man) - 1));
    double x =
        e == 0 ? m * pow2(least_of(t) - man) : (m + pow2(man)) * pow2(e - 1 + least_of(t) - man);
    if (e == (t == NEO_F16 ? 31 : 255)) x = m == 0 ? INFINITY : NAN;
    return h >> 15 ? -x : x;
}
/* word: the random word, or -1: to nearest even. */
static uint16_t encode16(neo_dtype t, float x, int64_t word) {
    double a = fabs((double)x), top = t == NEO_F16 ? 65536.0 : pow2(128);
    int e = a > 0 ? ilogb(a) : least_of(t), man = man_of(t);
    if (e < least_of(t)) e = least_of(t);
    double q = a / pow2(e - man), n = floor(q), rest = q - n;
    if (word >= 0 ? floor(rest * pow2(32)) + (double)word >= pow2(32)
                  : rest > 0.5 || (rest == 0.5 && fmod(n, 2) == 1))
        n++;
    double y = n * pow2(e - man);
    int code =
        y >= top ? (t == NEO_F16 ? 0x7C00 : 0x7F80) : (int)(n + (e - least_of(t)) * pow2(man));
    return (uint16_t)(code | (signbit(x) ? 0x8000 : 0));
}
static uint32_t word_of(const char *name, int64_t step, int64_t element) {
    uint32_t block[4];
    neo_random_u32x4(SEED, neo_hash(name), step, NEO_STREAM_ROUNDING, (uint64_t)element / 4, block);
    return block[element % 4];
}
typedef struct Codes {
    uint16_t half[MOST_DIM];
    int8_t byte[MOST_DIM];
    float scale[2];
} Codes;
/* A row of f32 whose first element is number `first`. step 0: to nearest. */
static void encode_row(Codes *to, neo_dtype t, const float *w, int64_t n, const char *name,
                       int64_t step, int64_t first) {
    float low = w[0], high = w[0];
    memset(to, 0, sizeof *to);
    for (int64_t c = 0; c < n; c++) {
        if (t != NEO_I8)
            to->half[c] = encode16(t, w[c], step ? (int64_t)word_of(name, step, first + c) : -1);
        low = w[c] < low ? w[c] : low;
        high = w[c] > high ? w[c] : high;
    }
    if (t != NEO_I8) return;
    float most = 0.5f * high, least = 0.5f * low, h = most - least, sum = low + h;
    to->scale[0] = h / 127.0f < 0x1p-126f ? 0.0f : h / 127.0f;
    to->scale[1] = sum;
    for (int64_t c = 0; c < n && to->scale[0] != 0; c++) {
        float x = w[c] - to->scale[1];
        x = x * (1.0f / to->scale[0]);
        x = x > 127 ? 127 : x < -127 ? -127 : x;
        float down = floorf(x), rest = x - down;
        float u = (float)(word_of(name, step, first + c) >> 8) * 0x1p-24f;
        to->byte[c] = (int8_t)(step ? down + (rest > u) : rintf(x));
    }
}
static size_t size_of(neo_dtype t) { return t == NEO_I8 ? 1 : 2; }
static const void *codes_of(const Codes *c, neo_dtype t) {
    return t == NEO_I8 ? (const void *)c->byte : (const void *)c->half;
}
/* All rows of a table, decoded here. */
static float *decoded(const neo_bags *bags, int32_t t) {
    neo_tensor w = neo_bags_weight(bags, t);
    const float *scale = (const float *)neo_bags_scale(bags, t).data;
    int64_t n = neo_tensor_count(w), dim = w.shape[1];
    float *x = malloc(sizeof *x * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (w.dtype == NEO_I8)
            x[i] = fmaf((float)((const int8_t *)w.data)[i], scale[i / dim * 2],
                        scale[i / dim * 2 + 1]);
        else x[i] = (float)decode16(w.dtype, ((const uint16_t *)w.data)[i]);
    }
    return x;
}
static void *copy_of(neo_tensor t) {
    size_t bytes = t.data ? neo_tensor_bytes(t) : 0;
    void *p = malloc(bytes + 1);
    if (bytes) memcpy(p, t.data, bytes);
    return p;
}

/* ---- steps and lookups against f32 rows ---- */
static void copy_state(const neo_bags *from, neo_bags *to) {
    for (int32_t t = 0; t < neo_bags_table_count(from); t++)
        for (int k = 0; k < 2; k++) {
            neo_tensor x = neo_bags_state(from, t, k);
            if (x.data) memcpy(neo_bags_state(to, t, k).data, x.data, neo_tensor_bytes(x));
        }
}
/* Rows of `got` after step number `step` of the object, where `want` (f32) is the same before
   rounding; `before` are the rows before. */
static void check_rows(const Model *m, int t, const neo_bags *got, const neo_bags *want,
                       const char *touched, const void *before, const void *before_scale,
                       int64_t step) {
    neo_tensor w = neo_bags_weight(got, t), f = neo_bags_weight(want, t);
    const float *scale = (const float *)neo_bags_scale(got, t).data;
    int64_t dim = w.shape[1];
    size_t bytes = (size_t)dim * size_of(w.dtype);
    char name[64];
    snprintf(name, sizeof name, "bags.%s.weight", m->table[t].name);
    CHECK(w.dtype == m->table[t].dtype && f.dtype == NEO_F32);
    CHECK((scale != NULL) == (w.dtype == NEO_I8));
    for (int64_t row = 0; row < w.shape[0]; row++) {
        const char *codes = (const char *)w.data + (size_t)row * bytes;
        Codes c;
        if (!touched[row]) {
            CHECK_BITS(codes, (const char *)before + (size_t)row * bytes, bytes);
            if (scale) CHECK_BITS(scale + 2 * row, (const float *)before_scale + 2 * row, 8);
            continue;
        }
        encode_row(&c, w.dtype, (const float *)f.data + row * dim, dim, name,
                   m->table[t].round_nearest ? 0 : step, row * dim);
        CHECK_BITS(codes, codes_of(&c, w.dtype), bytes);
        if (scale) CHECK_BITS(scale + 2 * row, c.scale, 8);
    }
    for (int k = 0; k < 2; k++) {
        neo_tensor x = neo_bags_state(got, t, k), y = neo_bags_state(want, t, k);
        if (x.data) CHECK_BITS(x.data, y.data, neo_tensor_bytes(x));
    }
}
typedef struct Case {
    BatchKind kind;
    int threads, shards, kept;
    neo_isa isa;
} Case;
static void steps_as_f32(const Model *narrow, Case o) {
    Model wide = *narrow;
    neo_ctx *ctx = test_ctx(o.threads, o.isa, o.shards);
    neo_bags *a, *b;
    wide.desc.tables = wide.table;
    for (int t = 0; t < wide.desc.table_count; t++) wide.table[t].dtype = NEO_F32;
    REQUIRE_OK(neo_bags_create(ctx, &narrow->desc, &a));
    REQUIRE_OK(neo_bags_create(ctx, &wide.desc, &b));
    for (int step = 1; step <= 3; step++) {
        Batch j;
        Out out, want, dout;
        void *before[MAX_TABLES], *before_scale[MAX_TABLES];
        batch_make(&j, narrow, o.kind);
        if (narrow->desc.bounds != NEO_BOUNDS_ERROR)
            for (int64_t k = j.offsets[0]; k < j.offsets[0] + neo_jagged_id_count(&j.j); k += 7)
                batch_set_id(&j, k, k % 2 ? -3 : 100000);
        out_make(&out, narrow, &j.j, 0);
        out_make(&want, narrow, &j.j, 0);
        out_make(&dout, narrow, &j.j, step);
        for (int t = 0; t < wide.desc.table_count; t++) {
            float *x = decoded(a, t),
                  *own = malloc(sizeof *own * (size_t)neo_tensor_count(neo_bags_weight(a, t)));
            CHECK_OK(neo_bags_get_rows(a, t, 0, narrow->table[t].rows, own));
            CHECK_BITS(x, own, neo_tensor_bytes(neo_bags_weight(b, t)));
            memcpy(neo_bags_weight(b, t).data, x, neo_tensor_bytes(neo_bags_weight(b, t)));
            before[t] = copy_of(neo_bags_weight(a, t));
            before_scale[t] = copy_of(neo_bags_scale(a, t));
            free(x), free(own);
        }
        copy_state(a, b);
        CHECK_OK(neo_bags_forward(a, &j.j, out.t));
        CHECK_OK(neo_bags_forward(b, &j.j, want.t));
        CHECK_BITS(out.data, want.data, sizeof(float) * (size_t)out.count);
        float *da = calloc((size_t)neo_jagged_id_count(&j.j) + 1, 4),
              *db = calloc((size_t)neo_jagged_id_count(&j.j) + 1, 4);
        CHECK_OK(neo_bags_weight_grad(a, &j.j, dout.t, da));
        CHECK_OK(neo_bags_weight_grad(b, &j.j, dout.t, db));
        CHECK_BITS(da, db, 4 * (size_t)neo_jagged_id_count(&j.j));
        if (o.kept) {
            CHECK_OK(neo_bags_accumulate(a, &j.j, dout.t, NULL));
            CHECK_OK(neo_bags_step(a, 0.05f));
        } else {
            CHECK_OK(neo_bags_backward(a, &j.j, dout.t, 0.05f));
        }
        CHECK_OK(neo_bags_backward(b, &j.j, dout.t, 0.05f));
        for (int t = 0; t < wide.desc.table_count; t++) {
            char *touched = malloc((size_t)narrow->table[t].rows);
            free(dense_grad(narrow, t, &j, &dout, touched));
            check_rows(narrow, t, a, b, touched, before[t], before_scale[t], step);
            free(touched), free(before[t]), free(before_scale[t]);
        }
        batch_free(&j);
        free(da), free(db), free(out.data), free(want.data), free(dout.data);
    }
    neo_bags_destroy(a);
    neo_bags_destroy(b);
    neo_ctx_destroy(ctx);
}
/* Every dtype x optimizer x pooling; threads, instruction sets, options of the step and the lookup
   in turn. */
static void every_step_is_f32_rounded(void) {
    static const int64_t rows[] = {40, 12, 90, 1}, dims[] = {16, 5, 130, 64};
    int n = 0;
    for (int type = 0; type < 3; type++)
        for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++)
            for (int pooling = 0; pooling < 3; pooling++)
                for (int round = 0; round < 2; round++, n++) {
                    Model m;
                    int64_t dim = dims[n % 4], equal[] = {dim, dim, dim, dim};
                    int own = kind >= NEO_BAG_LAMB;
                    model_init(&m, 4, rows, pooling == NEO_POOL_NONE ? equal : dims, 4 + n % 3,
                               (neo_pooling)pooling);
                    for (int t = 0; t < 4; t++) {
                        neo_bag_optim o = {
                            .kind = (neo_bag_optim_kind)kind, .l1 = 0.1f, .momentum = 0.9f,
                            .eta = 0.5f};
                        if (n % 3 == 0) o.max_norm = 0.5f;
                        if (n % 4 == 1) o.clip_gradient = 0.7f;
                        if (n % 5 < 2) o.weight_decay = 0.1f;
                        if (n % 5 < 2 && !own) o.decay = n % 5 ? NEO_DECAY_L2 : NEO_DECAY_DECOUPLED;
                        m.table[t].optim = o;
                        m.table[t].dtype = TYPES[(type + (t == 3)) % 3];
                        m.table[t].round_nearest = t == 1 && n % 2;
                        m.table[t].row_buckets = pooling == NEO_POOL_SUM && n % 7 == 3 ? 1 + t : 0;
                    }
                    m.desc.bounds = (neo_bounds)(n % 3);
                    m.desc.max_kept_rows = n % 2 ? 200 : 0;
                    Case o = {{.batch = 31,
                               .max_length = 6,
                               .i32 = n % 2,
                               .weighted = (n + kind) % 3 == 1,
                               .variable = n % 9 == 8},
                              1 + n % 3,
                              n % 2 ? 4 : 1,
                              n % 2,
                              isa_of(n / 3)};
                    steps_as_f32(&m, o);
                }
}
/* Rows that are whole vectors, whole groups of them, and in between, in one bucket or several; each
   instruction set. */
static void every_width(void) {
    static const int64_t rows[] = {30, 30, 30},
                         dims[] = {1,  2,  3,  4,  7,  8,  15,  16,  17,  31,  32,
                                   33, 48, 63, 64, 65, 96, 100, 127, 128, 129, 300};
    for (int i = 0; i < (int)(sizeof dims / sizeof *dims) * 4; i++) {
        Model m;
        int64_t d[] = {dims[i / 4], dims[i / 4], dims[i / 4]};
        if (!neo_isa_available(ISAS[i % 4])) continue;
        model_init(&m, 3, rows, d, 3, i % 3 ? NEO_POOL_SUM : NEO_POOL_MEAN);
        for (int t = 0; t < 3; t++)
            m.table[t].dtype = TYPES[t], m.table[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD,
            m.table[t].row_buckets = i / 4 % 3 ? 4 + 4 * (i / 4 % 3) : 1;
        steps_as_f32(&m, (Case){{.batch = 20, .max_length = i % 3 ? 5 : 30, .weighted = i % 2},
                                1, 1, 0, ISAS[i % 4]});
    }
}

/* ---- one step that puts given values into rows: from zeros, SGD of their negatives ---- */
static neo_bags *zeros(neo_ctx *ctx, neo_table_desc *t, neo_dtype dtype, int64_t rows,
                       int64_t dim) {
    neo_bags *bags = NULL;
    memset(t, 0, sizeof *t);
    t->name = "t";
    t->rows = rows;
    t->dim = dim;
    t->dtype = dtype;
    t->init.kind = NEO_INIT_CONSTANT;
    neo_bags_desc d = {.tables = t, .table_count = 1, .max_batch = rows, .max_ids = rows};
    CHECK_OK(neo_bags_create(ctx, &d, &bags));
    return bags;
}
static void put_rows(neo_bags *bags, const neo_table_desc *t, float *x, float lr) {
    int64_t *offsets = malloc(sizeof *offsets * (size_t)(t->rows + 1));
    for (int64_t i = 0; i <= t->rows; i++) offsets[i] = i;
    neo_jagged j = {.batch = t->rows,
                    .feature_count = 1,
                    .id_dtype = NEO_I64,
                    .offsets = offsets,
                    .ids = offsets};
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(x, NEO_F32, t->rows, t->dim), lr));
    free(offsets);
}

/* f16 and bf16 over their whole range, also beyond it. */
static void rounding_is_that_of_tensors(void) {
    enum { ROWS = 500, DIM = 37, N = ROWS * DIM };
    float *x = malloc(sizeof *x * N);
    uint16_t *want = malloc(2 * N);
    for (int i = 0; i < N; i++) {
        uint32_t u = (uint32_t)test_random() << 1 ^ (uint32_t)test_random() >> 7;
        x[i] = ldexpf(1.0f + (float)(u & 0x7FFFFF) * 0x1p-23f, (int)(u >> 23 & 0xFF) % 60 - 40);
        if (i % 3 == 0) x[i] = ldexpf((float)(u & 0xFFFFFF), (int)(u >> 24) % 250 - 149);
        if (u >> 31) x[i] = -x[i];
    }
    static const float SPECIAL[] = {
        65504,         65505,    65519.996f, 65520,     65535.996f,   65536,
        3.4028235e38f, INFINITY, -INFINITY,  0x1p-14f,  0x1.ffcp-15f, 0x1.fffffep-15f,
        0x1p-24f,      0x1p-25f, 0x1p-149f,  0x1p-126f, 3.39e38f};
    memcpy(x, SPECIAL, sizeof SPECIAL);
    for (int i = 0; i < 8; i++) {
        neo_dtype type = TYPES[i % 2];
        if (!neo_isa_available(ISAS[i / 2])) continue;
        neo_ctx *ctx = test_ctx(2, ISAS[i / 2], 1);
        neo_table_desc t;
        neo_bags *bags = zeros(ctx, &t, type, ROWS, DIM);
        neo_convert_desc how = {NEO_ROUND_STOCHASTIC, "bags.t.weight", 1, 0};
        for (int k = N / 2; k < N; k++) { /* fractions that just go up, or just do not */
            uint32_t word = word_of(how.name, 1, k), less = k % 2,
                     bits = (uint32_t)(100 + k % 30) << 23;
            int drop = type == NEO_F16 ? 13 : 16;
            bits |= ((1u << drop) - (word >> (32 - drop)) - less) & 0x7FFFFFu;
            memcpy(&x[k], &bits, 4);
            if (k % 4 < 2)
                x[k] = ldexpf((float)(4294967296.0 - word - less), -56); /* a fraction of 2^-24 */
        }
        put_rows(bags, &t, x, -1.0f);
        CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(x, NEO_F32, N), neo_tensor_1d(want, type, N),
                                    &how));
        CHECK_BITS(neo_bags_weight(bags, 0).data, want, 2 * N);
        CHECK_OK(neo_bags_set_rows(bags, 0, 0, ROWS, x));
        CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(x, NEO_F32, N), neo_tensor_1d(want, type, N),
                                    NULL));
        CHECK_BITS(neo_bags_weight(bags, 0).data, want, 2 * N);
        float nan = NAN, back;
        CHECK_OK(neo_bags_set_rows(bags, 0, 0, ROWS, x));
        x[0] = nan;
        put_rows(bags, &t, x, -1.0f);
        CHECK_OK(neo_bags_get_rows(bags, 0, 0, 1, (float[DIM]){0}));
        back = (float)decode16(type, *(const uint16_t *)neo_bags_weight(bags, 0).data);
        CHECK(back != back);
        x[0] = SPECIAL[0];
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
    free(x), free(want);
}

/* Rows of i8 that are constant, tiny, huge, or not finite. */
static void odd_rows_of_i8(void) {
    enum { DIM = 19, ROWS = 10 };
    for (int i = 0; i < 8; i++) {
        if (!neo_isa_available(ISAS[i % 4])) continue;
        neo_ctx *ctx = test_ctx(1, ISAS[i % 4], 1);
        neo_table_desc t;
        neo_bags *bags = zeros(ctx, &t, NEO_I8, ROWS, DIM);
        float x[ROWS][DIM], got[ROWS][DIM];
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < DIM; c++) {
                float u = (float)c / (DIM - 1);
                x[r][c] = r == 0   ? 0.3f
                          : r == 1 ? -0.0f
                          : r == 2 ? u * 0x1p-149f * 40
                          : r == 3 ? (2 * u - 1) * 3.4e38f
                                   : u;
                if (r == 4 && c == 18) x[r][c] = INFINITY;
                if (r == 5 && c == 3) x[r][c] = NAN;
                if (r == 6) x[r][c] = c % 2 ? 0.0f : -0.0f;
                if (r == 7) x[r][c] = c == 5 ? 1.0f : -0.0f;
            }
        if (i < 4) CHECK_OK(neo_bags_set_rows(bags, 0, 0, ROWS, x[0]));
        else put_rows(bags, &t, x[0], -1.0f);
        CHECK_OK(neo_bags_get_rows(bags, 0, 0, ROWS, got[0]));
        const float *scale = (const float *)neo_bags_scale(bags, 0).data;
        const int8_t *code = (const int8_t *)neo_bags_weight(bags, 0).data;
        for (int c = 0; c < DIM; c++) {
            CHECK(got[0][c] == 0.3f && got[1][c] == 0.0f && got[6][c] == 0.0f);
            CHECK(got[4][c] != got[4][c] && got[5][c] != got[5][c] && code[4 * DIM + c] == 0 &&
                  code[5 * DIM + c] == 0);
            CHECK(fabsf(got[3][c] / 3.4e38f - x[3][c] / 3.4e38f) < 1.0f / 127);
            CHECK(fabsf(got[2][c] - x[2][c]) <= 0x1p-149f * 20);
            for (int r = 7; r < ROWS; r++)
                CHECK(fabsf(got[r][c] - x[r][c]) <= 1.0f / 254 * (i < 4 ? 1 : 2) + 1e-6f);
            CHECK(code[8 * DIM + c] >= -127);
        }
        uint32_t bits;
        memcpy(&bits, scale + 2 * 5 + 1, 4);
        CHECK(scale[0] == 0 && scale[1] == 0.3f && scale[2 * 4] == 0 && bits == 0x7FC00000u);
        for (int r = 0; r < ROWS; r++)
            CHECK(!signbit(scale[2 * r]) && (x[r][0] != 0 || r == 3 || !signbit(scale[2 * r + 1])));
        CHECK(code[8 * DIM] == -127 && code[8 * DIM + 18] == 127);
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* The mean of many rounded values is the value; 4.5 deviations of sums of independent roundings. */
static void rounding_is_unbiased(void) {
    enum { ROWS = 400, DIM = 50, N = ROWS * DIM, STEPS = 8 };
    float *x = malloc(sizeof *x * N), *y = malloc(sizeof *y * N), *none = calloc(N, sizeof *none);
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    for (int i = 0; i < 6; i++) {
        neo_dtype type = TYPES[i / 2];
        neo_table_desc t;
        neo_bags *bags = zeros(ctx, &t, type, ROWS, DIM);
        double sum = 0, variance = 0, per_step[STEPS], ups[4] = {0};
        for (int step = 0; step < STEPS; step++) {
            per_step[step] = 0;
            for (int k = 0; k < N; k++)
                x[k] = i % 2 ? 0.01f * test_uniform()
                             : 1.0f + 0.003f * (float)(k % DIM == 7) + 0.0011f;
            for (int k = 0; k < ROWS; k++)
                x[k * DIM] = i % 2 ? -0.01f : 0.0f; /* fixes the scale of i8 */
            CHECK_OK(neo_bags_set_rows(bags, 0, 0, ROWS, none));
            put_rows(bags, &t, x, -1.0f);
            CHECK_OK(neo_bags_get_rows(bags, 0, 0, ROWS, y));
            const float *scale = (const float *)neo_bags_scale(bags, 0).data;
            for (int k = 0; k < N; k++) {
                int e = x[k] != 0 ? ilogbf(x[k]) : 0, least = type == NEO_I8 ? 0 : least_of(type);
                double unit = type == NEO_I8 ? (double)scale[k / DIM * 2]
                                             : pow2((e < least ? least : e) - man_of(type));
                double zero = type == NEO_I8 ? (double)scale[k / DIM * 2 + 1] : 0,
                       q = ((double)x[k] - zero) / unit;
                double f = q - floor(q), error = ((double)y[k] - (double)x[k]) / unit;
                CHECK(fabs(error) < 1.001);
                sum += error;
                variance += f * (1 - f);
                per_step[step] += error;
                ups[k % 4] += error;
            }
        }
        CHECK(fabs(sum) < 4.5 * sqrt(variance) && variance > N / 10);
        for (int step = 0; step < STEPS; step++)
            CHECK(fabs(per_step[step]) < 4.5 * sqrt(variance / STEPS));
        for (int k = 0; k < 4; k++) CHECK(fabs(ups[k]) < 4.5 * sqrt(variance / 4));
        neo_bags_destroy(bags);
    }
    neo_ctx_destroy(ctx);
    free(x), free(y), free(none);
}

/* Steps below half of the last place: nearest stands still, stochastic rounding arrives. */
static void small_steps_arrive(void) {
    enum { DIM = 64 };
    for (int i = 0; i < 6; i++) {
        neo_dtype type = TYPES[i / 2];
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
        neo_table_desc t = {
            .name = "t", .rows = 1, .dim = DIM, .dtype = type, .round_nearest = i % 2};
        neo_bags_desc d = {.tables = &t, .table_count = 1, .max_batch = 1, .max_ids = 1};
        neo_bags *bags;
        REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
        float x[DIM], g[DIM], size = type == NEO_F16 ? 1e-4f : 1e-3f, mean = 0;
        int steps = type == NEO_F16 ? 5000 : 500;
        for (int c = 0; c < DIM; c++)
            x[c] = c == 0 ? 1.0f : c == 1 ? -1.0f : 127.0f / 128, g[c] = c < 2 ? 0.0f : 1.0f;
        CHECK_OK(neo_bags_set_rows(bags, 0, 0, 1, x));
        CHECK_OK(neo_bags_get_rows(bags, 0, 0, 1, x));
        for (int step = 0; step < steps; step++) put_rows(bags, &t, g, size);
        float y[DIM];
        CHECK_OK(neo_bags_get_rows(bags, 0, 0, 1, y));
        for (int c = 2; c < DIM; c++) mean += (x[c] - y[c]) / (DIM - 2);
        if (i % 2) CHECK(mean == 0);
        else CHECK_NEAR(mean, 0.5, 0.04);
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* ---- same bits ---- */
/* A part far inside a table, where numbers of random blocks pass 2^32. */
static void far_rows_have_their_numbers(void) {
    enum { DIM = 20, ROWS = 9 };
    int64_t first = (((int64_t)1 << 34) / DIM) - 4;
    for (int i = 0; i < 12; i++) {
        neo_dtype type = TYPES[i / 4];
        if (!neo_isa_available(ISAS[i % 4])) continue;
        neo_ctx *ctx = test_ctx(1, ISAS[i % 4], 1);
        neo_table_desc t;
        neo_bags *bags = zeros(ctx, &t, type, ROWS, DIM);
        neo_bags_destroy(bags);
        t.part = (neo_table_part){(int64_t)1 << 31, DIM, first, 0};
        neo_bags_desc d = {.tables = &t, .table_count = 1, .max_batch = ROWS, .max_ids = ROWS};
        REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
        float x[ROWS * DIM];
        test_fill(x, ROWS * DIM);
        put_rows(bags, &t, x, -1.0f);
        for (int r = 0; r < ROWS; r++) {
            Codes c;
            encode_row(&c, type, x + r * DIM, DIM, "bags.t.weight", 1, (first + r) * DIM);
            CHECK_BITS((char *)neo_bags_weight(bags, 0).data + (size_t)r * DIM * size_of(type),
                       codes_of(&c, type), DIM * size_of(type));
        }
        neo_bags_destroy(bags);
        neo_ctx_destroy(ctx);
    }
}

/* Train a few steps on a context; the digest of everything. */
static uint64_t train(int threads, neo_isa isa, int from, const char *dir) {
    static const int64_t rows[] = {200, 3000, 33}, dims[] = {16, 64, 70};
    neo_ctx *ctx = test_ctx(threads, isa, 4);
    Model m;
    neo_bags *bags = NULL;
    neo_state *state = NULL;
    uint64_t digest = 0;
    test_seed = 5;
    model_init(&m, 3, rows, dims, 5, NEO_POOL_SUM);
    for (int t = 0; t < 3; t++)
        m.table[t].dtype = TYPES[t],
        m.table[t].optim.kind = t == 1 ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD;
    CHECK_OK(neo_bags_create(ctx, &m.desc, &bags));
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_bags(state, bags));
    for (int step = 0; step < 6; step++) {
        Batch b;
        Out d;
        batch_make(&b, &m, (BatchKind){.batch = 200, .max_length = 8});
        out_make(&d, &m, &b.j, 0);
        if (step == 3 && dir && from == 0)
            CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 3}, state));
        if (step == 3 && from == 3)
            CHECK_OK(neo_load(ctx, &(neo_load_desc){.dir = dir}, state, NULL));
        if (step >= from) CHECK_OK(neo_bags_backward(bags, &b.j, d.t, 0.01f));
        batch_free(&b);
        free(d.data);
    }
    digest = neo_state_digest(state);
    neo_state_destroy(state);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    return digest;
}
static void threads_and_instructions_do_not_show(void) {
    uint64_t want = train(1, TEST_WATCHED == 2 ? NEO_ISA_BEST : NEO_ISA_SCALAR, 0, NULL);
    for (int i = TEST_WATCHED == 2 ? 5 : 0; i < 12; i++)
        if (neo_isa_available(ISAS[i % 4])) CHECK(train(1 + i / 4, ISAS[i % 4], 0, NULL) == want);
}

/* ---- files ---- */
static char root[1000];
static void remove_root(void) {
    char command[1100];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0) FAIL("cannot remove %s", root);
}
static void resumed_runs_round_alike(void) {
    remove_root();
    uint64_t whole = train(2, NEO_ISA_BEST, 0, root);
    CHECK(train(1, NEO_ISA_SCALAR, 3, root) == whole);
    char path[1100];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 4);
    static const int64_t rows[] = {200, 3000, 33}, dims[] = {16, 64, 70};
    Model m;
    neo_bags *bags;
    neo_state *state;
    model_init(&m, 3, rows, dims, 5, NEO_POOL_SUM);
    for (int t = 0; t < 3; t++)
        m.table[t].dtype = TYPES[t],
        m.table[t].optim.kind = t == 1 ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD;
    m.table[0].dtype = NEO_BF16;
    REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
    REQUIRE_OK(neo_state_create(ctx, &state));
    REQUIRE_OK(neo_state_add_bags(state, bags));
    CHECK_ERR(neo_load(ctx, &(neo_load_desc){.dir = root}, state, NULL), NEO_ERR_MISMATCH,
              "bags.t0.weight");
    int scales = 0;
    for (int i = 0; i < neo_state_count(state); i++)
        scales += strcmp(neo_state_name(state, i), "bags.t2.scale") == 0;
    CHECK_INT(scales, 1);
    neo_state_destroy(state);
    /* from a file of f32: f16 and bf16 are rounded to nearest; i8 says what it needs */
    float *x = malloc(sizeof *x * 3000 * 64);
    uint16_t *want = malloc(2 * 3000 * 64);
    test_fill(x, 3000 * 64);
    const char *names[] = {"bags.t0.weight", "bags.t1.weight", "bags.t2.weight"};
    neo_tensor file[3];
    for (int t = 0; t < 3; t++) file[t] = neo_tensor_2d(x, NEO_F32, rows[t], dims[t]);
    snprintf(path, sizeof path, "%s/f32.safetensors", root);
    REQUIRE_OK(neo_safetensors_write(ctx, path, names, file, 3, NULL, 0));
    int loaded = 0;
    REQUIRE_OK(neo_state_create(ctx, &state));
    for (int t = 0; t < 2; t++)
        CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, names[t], neo_bags_weight(bags, t)));
    CHECK_OK(neo_load_safetensors(ctx, path, NULL, 0, 0, state, &loaded));
    CHECK_INT(loaded, 2);
    for (int t = 0; t < 2; t++) {
        neo_tensor to = neo_tensor_2d(want, NEO_BF16, rows[t], dims[t]);
        CHECK_OK(neo_tensor_convert(ctx, file[t], to, NULL));
        CHECK_BITS(want, neo_bags_weight(bags, t).data, neo_tensor_bytes(to));
    }
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, names[2], neo_bags_weight(bags, 2)));
    CHECK_ERR(neo_load_safetensors(ctx, path, NULL, 0, 0, state, &loaded), NEO_ERR_MISMATCH,
              "bags.t2.weight is f32, expected i8");
    neo_state_destroy(state);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    free(x), free(want);
}

/* ---- memory, initial values, errors ---- */
static void memory_is_exact(void) {
    static const int64_t rows[] = {100, 2000, 31, 5}, dims[] = {16, 17, 130, 3};
    for (int i = 0; i < 8; i++) {
        neo_ctx *ctx = test_ctx(1 + i % 3, NEO_ISA_BEST, 1 + i % 4);
        Model m;
        int8_t *own = malloc((size_t)(rows[2] * dims[2]));
        model_init(&m, 4, rows, dims, 4, NEO_POOL_SUM);
        for (int t = 0; t < 3; t++) m.table[t].dtype = TYPES[t];
        if (i % 2) m.table[2].weight = own;
        m.desc.max_kept_rows = i / 4 * 50;
        neo_bags_memory want;
        neo_bags *bags;
        REQUIRE_OK(neo_bags_bytes(ctx, &m.desc, &want));
        size_t before = neo_ctx_memory(ctx).bytes;
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &bags));
        CHECK_INT(neo_ctx_memory(ctx).bytes - before,
                  want.weight_bytes + want.state_bytes + want.workspace_bytes);
        CHECK_INT(want.weight_bytes,
                  2 * (100 * 16 + 2000 * 17) + (i % 2 ? 0 : 31 * 130) + 8 * 31 + 4 * 5 * 3);
        if (i % 2) CHECK(neo_bags_weight(bags, 2).data == own);
        neo_tensor s = neo_bags_scale(bags, 2);
        CHECK(s.shape[0] == 31 && s.shape[1] == 2 && s.dtype == NEO_F32);
        CHECK(!neo_bags_scale(bags, 0).data && !neo_bags_scale(bags, 3).data &&
              !neo_bags_scale(bags, 4).data);
        CHECK(neo_bags_weight(bags, 2).dtype == NEO_I8 &&
              neo_bags_weight(bags, 3).dtype == NEO_F32);
        neo_bags_destroy(bags);
        CHECK_INT(neo_ctx_memory(ctx).bytes, before);
        free(own);
        neo_ctx_destroy(ctx);
    }
}
static void initial_values_are_those_of_f32(void) {
    static const int64_t rows[] = {30000, 1000, 1000}, dims[] = {37, 37, 37};
    static char memory[3][30000 * 37 * 2]; /* the first table is made in two pieces */
    for (int kind = NEO_INIT_DEFAULT; kind <= NEO_INIT_NORMAL; kind++) {
        neo_ctx *ctx = test_ctx(1 + kind % 3, isa_of(kind), 1);
        Model m;
        neo_bags *a, *b;
        memset(memory, 0x11, sizeof memory);
        model_init(&m, 3, rows, dims, 3, NEO_POOL_SUM);
        for (int t = 0; t < 3; t++) m.table[t].init = (neo_init){(neo_init_kind)kind, -0.5f, 0.3f};
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &b));
        for (int t = 0; t < 3; t++) m.table[t].dtype = TYPES[t], m.table[t].weight = memory[t];
        REQUIRE_OK(neo_bags_create(ctx, &m.desc, &a));
        for (int t = 0; t < 3; t++)
            for (int64_t r = 0; r < rows[t]; r += r == 999 ? 27000 : 1) {
                Codes c;
                const char *got =
                    (const char *)neo_bags_weight(a, t).data + (size_t)r * 37 * size_of(TYPES[t]);
                if (kind == NEO_INIT_NONE) {
                    CHECK(got[0] == 0x11 && got[36] == 0x11);
                    continue;
                }
                encode_row(&c, TYPES[t], (const float *)neo_bags_weight(b, t).data + r * 37, 37, "",
                           0, 0);
                CHECK_BITS(got, codes_of(&c, TYPES[t]), 37 * size_of(TYPES[t]));
                if (t == 2)
                    CHECK_BITS((const float *)neo_bags_scale(a, t).data + 2 * r, c.scale, 8);
            }
        neo_bags_destroy(a);
        neo_bags_destroy(b);
        neo_ctx_destroy(ctx);
    }
}
static void errors_name_the_table(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_table_desc t = {.name = "t", .rows = 10, .dim = 16, .dtype = NEO_F8E4M3};
    neo_bags_desc d = {.tables = &t, .table_count = 1, .max_batch = 4, .max_ids = 16};
    neo_bags *bags;
    float x[32] = {0};
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "table 't': rows of dtype 3 (f8e4m3)");
    t.dtype = (neo_dtype)77;
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "table 't': rows of dtype 77");
    t.dtype = NEO_I8;
    t.part = (neo_table_part){100, 48, 5, 16};
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_UNSUPPORTED,
              "table 't': i8 rows have one scale each: cut the table by rows");
    t.part = (neo_table_part){100, 16, 5, 0};
    t.init = (neo_init){NEO_INIT_UNIFORM, 1, -1};
    CHECK_ERR(neo_bags_create(ctx, &d, &bags), NEO_ERR_ARG, "bags.t.weight: uniform bounds");
    t.init = (neo_init){NEO_INIT_CONSTANT, 0.25f, 0};
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
    CHECK_ERR(neo_bags_get_rows(bags, 0, 9, 2, x), NEO_ERR_RANGE,
              "neo_bags_get_rows: table 't': 2 rows from 9 on, it has 10");
    CHECK_ERR(neo_bags_set_rows(bags, 0, -1, 1, x), NEO_ERR_RANGE,
              "neo_bags_set_rows: table 't': 1 rows from -1");
    CHECK_ERR(neo_bags_set_rows(bags, 0, 0, INT64_MAX, x), NEO_ERR_RANGE, "it has 10");
    CHECK_ERR(neo_bags_get_rows(bags, 1, 0, 1, x), NEO_ERR_ARG, "there is no table 1");
    CHECK_ERR(neo_bags_get_rows(bags, 0, 0, 1, NULL), NEO_ERR_ARG, "NULL");
    CHECK_OK(neo_bags_get_rows(bags, 0, 8, 2, x));
    CHECK(x[0] == 0.25f && x[31] == 0.25f);
    neo_bags_destroy(bags);
    t = (neo_table_desc){.name = "f", .rows = 3, .dim = 2};
    REQUIRE_OK(neo_bags_create(ctx, &d, &bags));
    CHECK_OK(neo_bags_set_rows(bags, 0, 1, 2, (float[]){1, 2, 3, 4}));
    CHECK_OK(neo_bags_get_rows(bags, 0, 2, 1, x));
    CHECK(x[0] == 3 && x[1] == 4 && ((float *)neo_bags_weight(bags, 0).data)[2] == 1);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

/* ---- training: a planted logistic model, one number per id, learned by a sum over dim columns
   ---- */
static double trained_auc(neo_dtype type, int nearest) {
    enum { FEATURES = 6, ROWS = 300, DIM = 8, BATCH = 250, STEPS = 400, TESTS = 100 };
    static float planted[FEATURES][ROWS], score[TESTS * BATCH], label[TESTS * BATCH];
    static const int64_t rows[] = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
                         dims[] = {DIM, DIM, DIM, DIM, DIM, DIM};
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    Model m;
    neo_bags *bags = NULL;
    float *out = malloc(sizeof *out * BATCH * FEATURES * DIM);
    int64_t offsets[FEATURES * BATCH + 1], ids[FEATURES * BATCH];
    neo_tensor t = neo_tensor_2d(out, NEO_F32, BATCH, FEATURES * DIM);
    neo_jagged j = {.batch = BATCH,
                    .feature_count = FEATURES,
                    .id_dtype = NEO_I64,
                    .offsets = offsets,
                    .ids = ids};
    model_init(&m, FEATURES, rows, dims, FEATURES, NEO_POOL_SUM);
    for (int f = 0; f < FEATURES; f++) {
        m.table[f].dtype = type;
        m.table[f].round_nearest = nearest;
        m.table[f].optim = (neo_bag_optim){.kind = NEO_BAG_ROWWISE_ADAGRAD, .eps = 1e-6f};
    }
    CHECK_OK(neo_bags_create(ctx, &m.desc, &bags));
    test_seed = 11;
    test_fill(planted[0], FEATURES * ROWS);
    for (int i = 0; i <= FEATURES * BATCH; i++) offsets[i] = i;
    for (int step = 0; step < STEPS + TESTS; step++) {
        float y[BATCH] = {0};
        for (int i = 0; i < FEATURES * BATCH; i++) {
            ids[i] = (int64_t)test_random() % ROWS;
            y[i % BATCH] += planted[i / BATCH][ids[i]];
        }
        CHECK_OK(neo_bags_forward(bags, &j, t));
        for (int s = 0; s < BATCH; s++) {
            float logit = 0, *row = out + s * FEATURES * DIM;
            for (int c = 0; c < FEATURES * DIM; c++) logit += row[c] * (c % 2 ? 1.0f : -1.0f);
            float truth = (test_uniform() + 1) / 2 < 1 / (1 + expf(-2 * y[s])) ? 1.0f : 0.0f;
            float g = (1 / (1 + expf(-logit)) - truth) / BATCH;
            for (int c = 0; c < FEATURES * DIM; c++) row[c] = g * (c % 2 ? 1.0f : -1.0f);
            if (step >= STEPS)
                score[(step - STEPS) * BATCH + s] = logit,
                                               label[(step - STEPS) * BATCH + s] = truth;
        }
        if (step < STEPS) CHECK_OK(neo_bags_backward(bags, &j, t, 0.03f));
    }
    void *scratch = malloc(neo_auc_scratch_bytes(TESTS * BATCH));
    double auc = neo_auc(score, label, TESTS * BATCH, scratch);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    free(scratch), free(out);
    return auc;
}
static void narrow_rows_learn_as_f32(void) {
    double f32 = trained_auc(NEO_F32, 0);
    CHECK(f32 > 0.75);
    for (int i = 0; i < 3; i++) {
        double auc = trained_auc(TYPES[i], 0);
        CHECK_NEAR(auc, f32, 0.0005);
    }
}

int main(void) {
    const char *dir = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/test_bags_rows.tmp", dir ? dir : ".");
    RUN(every_step_is_f32_rounded);
    RUN(every_width);
    RUN(rounding_is_that_of_tensors);
    RUN(odd_rows_of_i8);
    RUN(rounding_is_unbiased);
    RUN(small_steps_arrive);
    RUN(far_rows_have_their_numbers);
    RUN(threads_and_instructions_do_not_show);
    RUN(resumed_runs_round_alike);
    RUN(memory_is_exact);
    RUN(initial_values_are_those_of_f32);
    RUN(errors_name_the_table);
    RUN(narrow_rows_learn_as_f32);
    remove_root();
    return test_end("bags/narrow_rows");
}
