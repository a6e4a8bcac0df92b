/* serve.c: frozen tables against a naive decoder and neo_bags, their search of ranges, retrieval
   against a sort of all products, samples of JSON against lines, threads that share a model, and
   that a prediction allocates nothing. Models from checkpoints of every kind: predict.sh. */
#include "neo_serve.h"
#include "test.h"
#include <pthread.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)

static neo_ctx *ctx;
/* A number in [-1, 1) by its index. */
static float number(uint64_t i) {
    uint64_t h = i * 0x9E3779B97F4A7C15u + 0x1234567u;
    h ^= h >> 33, h *= 0xFF51AFD7ED558CCDu, h ^= h >> 29;
    return (float)((double)(h >> 11) * 0x1p-52 - 1.0);
}
static int64_t whole(uint64_t i, int64_t below) {
    return (int64_t)((double)(number(i) + 1.0f) * 0.4999999 * (double)below);
}

/* ---- frozen tables ---- */

enum { ROWS = 61, MOST_DIM = 150 };
typedef struct frozen {
    neo_frozen table;
    float from[ROWS * MOST_DIM], scale[ROWS * 2], decoded[ROWS * MOST_DIM];
    _Alignas(8) unsigned char codes[ROWS * MOST_DIM * 4];
} frozen;
static frozen f;

/* Element c of row r, by the words of neo_serve.h. */
static float decode(const frozen *t, int64_t r, int64_t c) {
    const unsigned char *row =
        t->codes + (size_t)r * neo_frozen_row_bytes(t->table.bits, t->table.dim);
    float x = 0, scale = t->scale[2 * r], bias = t->scale[2 * r + 1];
    uint16_t half;
    uint32_t bits;
    switch (t->table.bits) {
    case NEO_ROWS_F32: memcpy(&x, row + 4 * c, 4); return x;
    case NEO_ROWS_BF16:
        memcpy(&half, row + 2 * c, 2);
        bits = (uint32_t)half << 16;
        memcpy(&x, &bits, 4);
        return x;
    case NEO_ROWS_F16:
        memcpy(&half, row + 2 * c, 2); /* no denormals here: numbers are above 2^-14 or 0 */
        return (half & 0x8000 ? -1.0f : 1.0f) *
               ldexpf((float)(half & 1023) + (half & 0x7C00 ? 1024.0f : 0.0f),
                      (half & 0x7C00 ? half >> 10 & 31 : 1) - 25);
    case NEO_ROWS_I8: return fmaf((float)(signed char)row[c], scale, bias);
    case NEO_ROWS_I4: bits = row[c / 2] >> 4 * (c % 2) & 15; break;
    default: bits = row[c / 4] >> 2 * (c % 4) & 3; break;
    }
    volatile float product = scale * (float)bits;
    return product + bias;
}
static void make(neo_row_bits bits, int64_t dim) {
    memset(&f, 0, sizeof f);
    f.table = (neo_frozen){.bits = bits, .rows = ROWS, .dim = dim, .codes = f.codes,
                           .scale = f.scale};
    for (int64_t i = 0; i < ROWS * dim; i++) f.from[i] = 0.3f * number((uint64_t)i);
    for (int64_t c = 0; c < dim; c++) f.from[2 * dim + c] = 0.125f; /* a constant row */
    REQUIRE_OK(neo_frozen_encode(bits, ROWS, dim, f.from, f.codes, f.scale));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < dim; c++) f.decoded[r * dim + c] = decode(&f, r, c);
}

static void encode_errs_little(void) {
    /* of a range of 0.6: half a step, and twice that where the ends were cut */
    static const double most[] = {0, 0, 2e-4, 2e-3, 0.6 / 254 * 1.01, 0.6 / 15, 0.6 / 3};
    for (int bits = NEO_ROWS_F32; bits <= NEO_ROWS_I2; bits++) {
        make((neo_row_bits)bits, 33);
        for (int i = 0; i < ROWS * 33; i++)
            CHECK(fabs((double)f.decoded[i] - (double)f.from[i]) <= most[bits]);
        for (int c = 0; c < 33; c++) CHECK(f.decoded[2 * 33 + c] == 0.125f);
    }
}
/* The sum of squares is at most that of the whole range, and far less with an outlier. */
static void search_of_ranges(void) {
    float row[64], scale[2], whole_scale[2];
    unsigned char codes[64];
    double errors[2] = {0, 0};
    for (int i = 0; i < 64; i++) row[i] = 0.1f * number((uint64_t)i);
    row[17] = 0.35f;
    REQUIRE_OK(neo_frozen_encode(NEO_ROWS_I4, 1, 64, row, codes, scale));
    float low = row[0], high = 0.35f;
    for (int i = 0; i < 64; i++) low = row[i] < low ? row[i] : low;
    whole_scale[0] = (high - low) / 15, whole_scale[1] = low;
    for (int i = 0; i < 64; i++) {
        double got = (double)(codes[i / 2] >> 4 * (i % 2) & 15) * (double)scale[0] +
                     (double)scale[1] - (double)row[i];
        double n = nearbyint(((double)row[i] - (double)low) / (double)whole_scale[0]);
        double naive = n * (double)whole_scale[0] + (double)low - (double)row[i];
        errors[0] += got * got, errors[1] += naive * naive;
    }
    CHECK(errors[0] <= errors[1] && errors[0] > 0);
    row[3] = INFINITY;
    for (int bits = NEO_ROWS_I8; bits <= NEO_ROWS_I2; bits++) {
        REQUIRE_OK(neo_frozen_encode((neo_row_bits)bits, 1, 64, row, codes, scale));
        CHECK(scale[0] == 0.0f && isnan(scale[1]) && codes[0] == 0);
    }
}
/* Bags of 0 to 4 ids, weighted or not, sums and means, at any width and distance. */
static void lookups(void) {
    static const int64_t dims[] = {1, 3, 7, 8, 15, 16, 17, 32, 64, 65, 130, MOST_DIM};
    enum { BAGS = 40, MOST_IDS = 4 * BAGS };
    static float out[BAGS * (MOST_DIM + 3)], weights[MOST_IDS];
    int64_t offsets[BAGS + 1] = {5}, ids[MOST_IDS + 5];
    for (int b = 0; b < BAGS; b++) offsets[b + 1] = offsets[b] + whole((uint64_t)b, 5);
    for (int k = 0; k < MOST_IDS + 5; k++) ids[k] = whole((uint64_t)k + 900, ROWS);
    for (int k = 0; k < MOST_IDS; k++) weights[k] = number((uint64_t)k + 40);
    const int64_t count = offsets[BAGS] - 5;
    for (int d = 0; d < (int)(sizeof dims / sizeof dims[0]); d++)
        for (int bits = NEO_ROWS_F32; bits <= NEO_ROWS_I2; bits++)
            for (int mode = 0; mode < 4; mode++) {
                const int64_t dim = dims[d], stride = dim + 3;
                const float *w = mode & 1 ? weights - 5 : NULL;
                make((neo_row_bits)bits, dim);
                f.table.mean = mode >> 1;
                for (int i = 0; i < BAGS * (MOST_DIM + 3); i++) out[i] = 77.0f;
                REQUIRE_OK(neo_frozen_lookup(ctx, &f.table, offsets, BAGS, ids, w, out, stride));
                for (int64_t b = 0; b < BAGS; b++) {
                    for (int64_t c = 0; c < dim; c++) {
                        volatile float sum = 0;
                        for (int64_t k = offsets[b]; k < offsets[b + 1]; k++) {
                            volatile float x = f.decoded[ids[k] * dim + c];
                            volatile float product = w ? w[k] * x : x;
                            sum = w && bits < NEO_ROWS_I4 ? fmaf(w[k], x, sum) : product + sum;
                        }
                        const int64_t n = offsets[b + 1] - offsets[b];
                        if (f.table.mean && n > 0) sum = sum / (float)n;
                        CHECK(memcmp(&out[b * stride + c], (const float *)&sum, 4) == 0);
                    }
                    CHECK(out[b * stride + dim] == 77.0f);
                }
            }
    (void)count;
    ids[7] = ROWS;
    CHECK_ERR(neo_frozen_lookup(ctx, &f.table, offsets, BAGS, ids, NULL, out, MOST_DIM),
              NEO_ERR_RANGE, "id 61 is not in [0, 61)");
    CHECK_ERR(neo_frozen_lookup(ctx, NULL, offsets, 1, ids, NULL, out, 1), NEO_ERR_ARG, "NULL");
}

/* ---- items ---- */

enum { ITEMS = 3000, DIM = 21, K = 37 };
static float item_rows[ITEMS * DIM], query[DIM];
static uint64_t attributes[ITEMS * 3];
static int64_t attribute_offsets[ITEMS + 1];
static int compare_hits(const void *a, const void *b) {
    const neo_hit *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}
static int has(int64_t item, uint64_t attribute) {
    for (int64_t k = attribute_offsets[item]; k < attribute_offsets[item + 1]; k++)
        if (attributes[k] == attribute) return 1;
    return 0;
}
/* The products in the order that neo_serve.h states. */
static float product(const float *q, const float *x) {
    volatile float sum[16] = {0};
    for (int c = 0; c < DIM; c++) {
        volatile float p = q[c] * x[c];
        sum[c % 16] = sum[c % 16] + p;
    }
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) sum[i] = sum[i] + sum[i + half];
    return sum[0];
}
/* Scores among the least numbers, and codes whose products overflow: still the hits of a loop. */
static void retrieval_of_extremes(void) {
    static const float sizes[][2] = {{1e-24f, 1e-21f}, {1e-20f, 1e-20f}, {1e-38f, 1.0f},
                                     {1e37f, 1e-37f},  {3e38f, 1e-38f},  {1e30f, 1e7f},
                                     {3e38f, 3e38f}}; /* infinities of both signs */
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int turn = 0; turn < (test_grid() ? 8 : 3); turn++) {
            neo_hit hits[2][K];
            for (int i = 0; i < ITEMS * DIM; i++)
                item_rows[i] = sizes[s][1] * number((uint64_t)(turn * ITEMS * DIM + i));
            for (int c = 0; c < DIM; c++)
                query[c] = sizes[s][0] * number((uint64_t)(turn * DIM + c) + 77777);
            for (int i8 = 0; i8 < 2; i8++) {
                neo_items_desc d = {.rows = item_rows, .count = ITEMS, .dim = DIM, .i8 = i8};
                neo_items *items;
                int64_t found = 0;
                REQUIRE_OK(neo_items_create(ctx, &d, &items));
                CHECK_OK(neo_items_search(items, query, NULL, 0, K, hits[i8], &found));
                CHECK(found == K);
                neo_items_destroy(items);
            }
            for (int k = 0; k < K; k++)
                CHECK(hits[0][k].item == hits[1][k].item && hits[0][k].score == hits[1][k].score);
        }
}
static void retrieval(void) {
    static neo_hit all[ITEMS], hits[ITEMS + 5];
    for (int i = 0; i < ITEMS; i++) {
        attribute_offsets[i + 1] = attribute_offsets[i] + i % 4;
        for (int64_t k = attribute_offsets[i]; k < attribute_offsets[i + 1]; k++)
            attributes[k] = (uint64_t)whole((uint64_t)k, 6) * 1000003u;
        for (int c = 0; c < DIM; c++) /* some are equal, so that scores tie */
            item_rows[i * DIM + c] = number((uint64_t)((i % 500 == 7 ? 7 : i) * DIM + c));
    }
    for (int i8 = 0; i8 < 2; i8++) {
        neo_items_desc d = {.rows = item_rows, .count = ITEMS, .dim = DIM, .i8 = i8,
                            .attribute_offsets = attribute_offsets, .attributes = attributes};
        neo_items *items;
        REQUIRE_OK(neo_items_create(ctx, &d, &items));
        for (int turn = 0; turn < 12; turn++) {
            uint64_t want[2] = {(uint64_t)(turn % 7) * 1000003u, (uint64_t)(turn % 3) * 1000003u};
            const int count = turn % 3;
            const int64_t k = turn == 11 ? ITEMS + 5 : turn ? K : 1;
            int64_t n = 0, found = -1;
            for (int c = 0; c < DIM; c++) query[c] = number((uint64_t)(turn * DIM + c) + 77777);
            for (int64_t i = 0; i < ITEMS; i++) {
                if ((count > 0 && !has(i, want[0])) || (count > 1 && !has(i, want[1]))) continue;
                all[n++] = (neo_hit){i, product(query, item_rows + i * DIM)};
            }
            qsort(all, (size_t)n, sizeof *all, compare_hits);
            CHECK_OK(neo_items_search(items, query, want, count, k, hits, &found));
            CHECK(found == (n < k ? n : k));
            for (int64_t i = 0; i < found; i++)
                CHECK(hits[i].item == all[i].item && hits[i].score == all[i].score);
        }
        query[3] = NAN;
        int64_t found;
        CHECK_ERR(neo_items_search(items, query, NULL, 0, 1, hits, &found), NEO_ERR_NUMERIC,
                  "not finite");
        neo_items_destroy(items);
    }
}

/* ---- a model of words, lists and numbers, saved by neo_save ---- */

/* Under $TMPDIR (build/tmp under make), made by main. */
static char checkpoints[1000], csv_path[1000];
static const char *const COLUMNS = "age dense log bucket 20,40,60\n"
                                   "job category\n"
                                   "tags list sep=| hash rows=50\n"
                                   "y label\n";
static neo_status save_model(void) {
    static float bottom[2 * 4] = {0.1f, -0.2f, 0.3f, 0.05f, -0.4f}, top[13], tables[3][50 * 4];
    static char json[4096], words[100];
    neo_schema *schema;
    neo_state *state;
    FILE *csv = fopen(csv_path, "w");
    const char *path = csv_path;
    if (!csv) return neo_fail(NEO_ERR_IO, "%s cannot be written", csv_path);
    for (int i = 0; i < 40; i++) fprintf(csv, "%d,job%d,t%d|t%d,%d\n", i, i % 5, i, i + 3, i % 2);
    (void)fclose(csv);
    TRY(neo_schema_parse(ctx, COLUMNS, &schema));
    TRY(neo_schema_fit(schema, &path, 1, 0));
    TRY(neo_state_create(ctx, &state));
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 200; i++) tables[t][i] = number((uint64_t)(t * 200 + i));
    for (int i = 0; i < 10; i++) top[i] = number((uint64_t)i + 5000);
    TRY(neo_state_add_schema(state, schema));
    TRY(neo_state_add(state, NEO_STATE_WEIGHT, "bottom.0.weight",
                                neo_tensor_2d(bottom, NEO_F32, 4, 1)));
    TRY(neo_state_add(state, NEO_STATE_WEIGHT, "bottom.0.bias",
                                neo_tensor_1d(bottom + 4, NEO_F32, 4)));
    TRY(neo_state_add(state, NEO_STATE_WEIGHT, "top.0.weight",
                                neo_tensor_2d(top, NEO_F32, 1, 10)));
    TRY(neo_state_add(state, NEO_STATE_WEIGHT, "top.0.bias",
                                neo_tensor_1d(top + 10, NEO_F32, 1)));
    for (int t = 0; t < 3; t++) {
        neo_feature feature = neo_schema_feature(schema, t);
        snprintf(words, sizeof words, "bags.%s.weight", feature.name);
        TRY(neo_state_add(state, NEO_STATE_WEIGHT, words,
                                    neo_tensor_2d(tables[t], NEO_F32, feature.rows, 4)));
    }
    int n = snprintf(json, sizeof json,
                     "{\"neo_model\": 1, \"model\": \"dlrm\", \"dim\": 4, \"dtype\": \"f32\", "
                     "\"rows_dtype\": \"f32\", \"row_buckets\": 1, \"bottom\": [1, 4], "
                     "\"top\": [10, 1], \"schema\": ");
    n += (int)neo_schema_describe(schema, json + n, sizeof json - (size_t)n);
    snprintf(json + n, sizeof json - (size_t)n, "}");
    neo_status status =
        neo_save(ctx, &(neo_save_desc){.dir = checkpoints, .step = 7, .model = json}, state);
    neo_state_destroy(state);
    neo_schema_destroy(schema);
    return status;
}
static float one(neo_scratch *s, const char *json, const char *line) {
    float out = -1;
    neo_scratch_clear(s);
    if (json) CHECK_OK(neo_scratch_add_json(s, json, strlen(json)));
    else CHECK_OK(neo_scratch_add_line(s, line, strlen(line)));
    CHECK_OK(neo_scratch_predict(s, &out));
    CHECK(out > 0 && out < 1);
    return out;
}
static void samples_of_json(void) {
#define TWO "\xC3\xA9\xC3\xA9" /* a name that is cut ends with a whole character */
#define TEN TWO TWO TWO TWO TWO
    static const struct { const char *json, *line; } same[] = {
        {"{\"age\": 39, \"job\": \"job3\", \"tags\": [\"t1\", \"t9\"]}", "39,job3,t1|t9"},
        {"{\"tags\": \"t1|t9\", \"job\": \"job3\", \"age\": \"39\"}", "39,job3,t1|t9,1\n"},
        {" { } ", ",,"}, {"{\"age\": null}", ",,"}, {"{\"job\": \"never seen\"}", ",nobody,"},
        {"{\"job\": \"job\\u0033\"}", ",job3,"}, {"{\"tags\": []}", ",,"},
        {"{\"age\": -2.5e1, \"tags\": [7]}", "-25,,7"}, {"{\"job\": \" job1 \"}", ",job1,"}};
    static const struct { const char *json; neo_status status; const char *message; } bad[] = {
        {"", NEO_ERR_FORMAT, "expected '{'"}, {"{\"age\": ", NEO_ERR_FORMAT, "byte 8"},
        {"{\"age\": 3", NEO_ERR_FORMAT, "expected"}, {"[1]", NEO_ERR_FORMAT, "expected '{'"},
        {"{\"age\": \"old\"}", NEO_ERR_FORMAT, "age: expected a number, found 'old'"},
        {"{\"age\": [3]}", NEO_ERR_FORMAT, "expected a number"},
        {"{\"age\": 3, \"age\": 4}", NEO_ERR_FORMAT, "\"age\" is there twice"},
        {"{\"Age\": 3}", NEO_ERR_NOT_FOUND,
         "\"Age\" is no column of this model, which has age, job, tags"},
        {"{\"y\": 1}", NEO_ERR_NOT_FOUND, "\"y\" is no column"},
        {"{\"x" TEN TEN TEN TEN TEN TEN "\": 1}", NEO_ERR_NOT_FOUND, "\xC3\xA9\" is no column"},
        {"{\"age\": 3} x", NEO_ERR_FORMAT, "something follows"},
        {"{\"age\": 1e99}", NEO_ERR_RANGE, "age: expected a number within the range"},
        {"{\"tags\": [\"a|b\"]}", NEO_ERR_FORMAT, "separator"},
        {"{\"tags\": [[1]]}", NEO_ERR_FORMAT, "expected a number"},
        {"{\"job\": \"\\q\"}", NEO_ERR_FORMAT, "bad escape"},
        {"{\"job\": true}", NEO_ERR_FORMAT, "expected a number"}};
    neo_model *model;
    neo_scratch *s;
    float out[2];
    REQUIRE_OK(save_model());
    REQUIRE_OK(neo_model_load(&(neo_model_desc){.dir = checkpoints}, &model));
    REQUIRE_OK(neo_scratch_create(model, &(neo_scratch_desc){.max_batch = 2}, &s));
    neo_model_info info = neo_model_get_info(model);
    CHECK(info.step == 7 && info.dense_count == 1 && info.feature_count == 3);
    CHECK(info.outputs == 1 && !strcmp(info.kind, "dlrm") && info.column_count == 4);
    CHECK(!strcmp(neo_model_column(model, 2), "tags") && !neo_model_column(model, 3));
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        CHECK(one(s, same[i].json, NULL) == one(s, NULL, same[i].line));
    CHECK(one(s, same[0].json, NULL) != one(s, same[2].json, NULL));
    neo_scratch_clear(s);
    CHECK_OK(neo_scratch_add_line(s, "39,job3,t1|t9", 13));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_ERR(neo_scratch_add_json(s, bad[i].json, strlen(bad[i].json)), bad[i].status,
                  bad[i].message);
        CHECK(neo_scratch_count(s) == 1);
    }
    CHECK_ERR(neo_scratch_add_line(s, "1,2", 3), NEO_ERR_FORMAT, "2 fields, expected 4");
    CHECK_ERR(neo_scratch_add_line(s, "1,a,b\n2,a,b", 11), NEO_ERR_FORMAT, "a second line");
    CHECK_ERR(neo_scratch_add_line(s, "\n", 1), NEO_ERR_FORMAT, "0 bytes");
    const int64_t ids[] = {1, 3, 50};
    CHECK_ERR(neo_scratch_add(s, NULL, ids, NULL, NULL), NEO_ERR_RANGE, "tags: id 50");
    CHECK_OK(neo_scratch_add_json(s, "{}", 2));
    CHECK_ERR(neo_scratch_add_json(s, "{}", 2), NEO_ERR_CAPACITY, "max_batch is 2");
    CHECK_OK(neo_scratch_predict(s, out)); /* what failed has left nothing */
    CHECK(out[0] == one(s, same[0].json, NULL) && out[1] == one(s, "{}", NULL));
    neo_scratch_destroy(s);
    neo_model_free(model);
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = csv_path}, &model),
              NEO_ERR_IO, csv_path);
    CHECK(model == NULL);
    CHECK_ERR(neo_model_load(&(neo_model_desc){.step = 1}, &model), NEO_ERR_ARG, "dir or path");
}

typedef struct client {
    pthread_t thread;
    const neo_model *model;
    float first[50];
    int wrong;
} client;
static void *run_client(void *arg) {
    client *c = arg;
    neo_scratch *s;
    char text[100];
    float out[5];
    if (neo_scratch_create(c->model, &(neo_scratch_desc){.max_batch = 5}, &s)) return c;
    for (int turn = 0; turn < 20; turn++)
        for (int i = 0; i < 50; i += 5) {
            neo_scratch_clear(s);
            for (int k = i; k < i + 5; k++) {
                int n = snprintf(text, sizeof text, "{\"age\": %d, \"job\": \"job%d\"}", k, k % 7);
                c->wrong += neo_scratch_add_json(s, text, (size_t)n) != NEO_OK;
            }
            c->wrong += neo_scratch_predict(s, out) != NEO_OK;
            for (int k = 0; k < 5; k++) {
                if (turn == 0) c->first[i + k] = out[k];
                c->wrong += memcmp(&c->first[i + k], &out[k], sizeof out[k]) != 0;
            }
        }
    neo_scratch_destroy(s);
    return NULL;
}
static void threads_share_a_model(void) {
    enum { CLIENTS = 8 };
    static client clients[CLIENTS];
    neo_model *model;
    REQUIRE_OK(neo_model_load(&(neo_model_desc){.dir = checkpoints}, &model));
    for (int i = 0; i < CLIENTS; i++) {
        clients[i].model = model;
        REQUIRE(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]) == 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        void *failed;
        pthread_join(clients[i].thread, &failed);
        CHECK(!failed && clients[i].wrong == 0);
        CHECK(memcmp(clients[i].first, clients[0].first, sizeof clients[0].first) == 0);
    }
    neo_model_free(model);
}

/* An allocator that counts. */
static int64_t allocations;
static void *count_alloc(size_t size, size_t align, void *user) {
    (void)user;
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return aligned_alloc(align, (size + align - 1) / align * align);
}
static void count_free(void *p, size_t size, void *user) {
    (void)size, (void)user;
    free(p);
}
static void a_prediction_allocates_nothing(void) {
    static const char json[] = "{\"age\": 4, \"job\": \"job1\", \"tags\": [\"a\", \"b\", \"c\"]}";
    neo_model_desc d = {.dir = checkpoints, .ctx.allocator = {count_alloc, count_free, NULL}};
    neo_model *model;
    neo_scratch *s;
    float out[3], again[3];
    REQUIRE_OK(neo_model_load(&d, &model));
    REQUIRE_OK(neo_scratch_create(model, &(neo_scratch_desc){.max_batch = 3}, &s));
    const int64_t before = allocations;
    for (int turn = 0; turn < 3; turn++) {
        neo_scratch_clear(s);
        for (int i = 0; i < 3; i++) CHECK_OK(neo_scratch_add_json(s, json, sizeof json - 1));
        CHECK_OK(neo_scratch_predict(s, turn ? again : out));
    }
    CHECK(before > 0 && allocations == before);
    CHECK(memcmp(out, again, sizeof out) == 0 && out[0] == out[2]);
    neo_scratch_destroy(s);
    neo_model_free(model);
}

/* Layers so wide that weights of what is 0 are skipped: predicted as by the layers one by one,
   alone and in batches, also where a weight that only zeros meet is not finite, where next to
   nothing is 0, and where a bias is -0. */
enum { WIDE = 300, NEXT = 250, MANY = 150 };
static void wide_layers(neo_tensor w[9], int64_t n, const float *x, const float *row, float *out) {
    static float first[MANY * WIDE], middle[MANY * NEXT], last[MANY * 4], e[MANY * 4], z[MANY * 5];
    const neo_tensor y1 = neo_tensor_2d(first, NEO_F32, n, WIDE);
    const neo_tensor y2 = neo_tensor_2d(middle, NEO_F32, n, NEXT);
    const neo_tensor y3 = neo_tensor_2d(last, NEO_F32, n, 4);
    const neo_tensor y4 = neo_tensor_2d(z, NEO_F32, n, 5);
    const neo_tensor in = neo_tensor_2d((void *)(uintptr_t)x, NEO_F32, n, 1);
    for (int64_t b = 0; b < n; b++) memcpy(e + 4 * b, row, 4 * sizeof *row);
    CHECK_OK(neo_linear_forward(ctx, in, w[0], w[1], NEO_ACT_RELU, y1));
    CHECK_OK(neo_linear_forward(ctx, y1, w[2], w[3], NEO_ACT_RELU, y2));
    CHECK_OK(neo_linear_forward(ctx, y2, w[4], w[5], NEO_ACT_RELU, y3));
    CHECK_OK(neo_interact_forward(ctx, 0, y3, neo_tensor_2d(e, NEO_F32, n, 4), y4));
    CHECK_OK(neo_linear_forward(ctx, y4, w[6], w[7], NEO_ACT_NONE,
                                neo_tensor_2d(out, NEO_F32, n, 1)));
}
static void zeros_are_skipped(void) {
    static float first[WIDE], middle[NEXT * WIDE], last[4 * NEXT], top[6], table[16], none[WIDE];
    static const struct { float weight, low, bias; } cases[] = {
        {1, -1, 0}, {INFINITY, -1, 0}, {NAN, -1, 0}, {1, 1, 0}, {1, -1, -0.0f}};
    static const int64_t batches[] = {1, 2, 70, MANY};
    static const neo_isa isas[] = {NEO_ISA_BEST, NEO_ISA_AVX2, NEO_ISA_SCALAR};
    const struct { const char *name; neo_tensor t; } weights[] = {
        {"bottom.0.weight", neo_tensor_2d(first, NEO_F32, WIDE, 1)},
        {"bottom.0.bias", neo_tensor_1d(none, NEO_F32, WIDE)},
        {"bottom.2.weight", neo_tensor_2d(middle, NEO_F32, NEXT, WIDE)},
        {"bottom.2.bias", neo_tensor_1d(none, NEO_F32, NEXT)},
        {"bottom.4.weight", neo_tensor_2d(last, NEO_F32, 4, NEXT)},
        {"bottom.4.bias", neo_tensor_1d(none, NEO_F32, 4)},
        {"top.0.weight", neo_tensor_2d(top, NEO_F32, 1, 5)},
        {"top.0.bias", neo_tensor_1d(none, NEO_F32, 1)},
        {"bags.f.weight", neo_tensor_2d(table, NEO_F32, 4, 4)}};
    char dir[1100], json[1024];
    for (int i = 0; i < NEXT * WIDE; i++) middle[i] = number((uint64_t)i + 1000);
    for (int i = 0; i < WIDE; i++) middle[7 * WIDE + i] = 0; /* a sum that is 0 */
    for (int i = 0; i < 4 * NEXT; i++) last[i] = number((uint64_t)i + 100000);
    for (int i = 0; i < 16; i++) table[i] = 0.25f, top[i % 5] = 0.01f;
    for (int e = 0; e < 5; e++) {
        neo_schema *schema;
        neo_state *state;
        neo_model *model;
        neo_tensor tensors[9];
        float x[MANY], out[MANY], expected[MANY];
        int64_t ids[MANY], offsets[MANY + 1];
        for (int i = 0; i < WIDE; i++)
            first[i] = i % 3 ? 1 + number((uint64_t)i) : cases[e].low, none[i] = cases[e].bias;
        for (int i = 0; i <= MANY; i++) offsets[i] = i;
        for (int i = 0; i < MANY; i++) ids[i] = 2, x[i] = 1 + number((uint64_t)i);
        for (int i = 0; i < 9; i++) tensors[i] = weights[i].t;
        snprintf(dir, sizeof dir, "%s-wide-%d", checkpoints, e);
        middle[200 * WIDE] = cases[e].weight;
        REQUIRE_OK(neo_schema_parse(ctx, "x dense\nf category hash rows=4\ny label\n", &schema));
        REQUIRE_OK(neo_state_create(ctx, &state));
        for (int i = 0; i < 9; i++)
            REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, weights[i].name, weights[i].t));
        int n = snprintf(json, sizeof json,
                         "{\"neo_model\": 1, \"model\": \"dlrm\", \"dim\": 4, \"dtype\": \"f32\", "
                         "\"rows_dtype\": \"f32\", \"row_buckets\": 1, \"bottom\": [1, %d, %d, 4], "
                         "\"top\": [5, 1], \"schema\": ", WIDE, NEXT);
        n += (int)neo_schema_describe(schema, json + n, sizeof json - (size_t)n);
        snprintf(json + n, sizeof json - (size_t)n, "}");
        REQUIRE_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 1, .model = json}, state));
        wide_layers(tensors, MANY, x, table, expected);
        CHECK(isnan(expected[0]) == (cases[e].weight != 1));
        for (int k = 0; k < 3; k++) {
            const neo_model_desc desc = {.dir = dir, .ctx = {.isa = isas[k]}};
            neo_scratch *s;
            if (!neo_isa_available(isas[k])) continue;
            REQUIRE_OK(neo_model_load(&desc, &model));
            for (int i = 0; i < 8; i++) {
                const int64_t n = batches[i / 2];
                const neo_jagged sparse = {.batch = n, .feature_count = 1, .id_dtype = NEO_I64,
                                           .offsets = offsets, .ids = ids};
                REQUIRE_OK(neo_scratch_create(
                    model, &(neo_scratch_desc){.max_batch = n, .threads = 1 + i % 2, .logits = 1},
                    &s));
                CHECK_OK(neo_model_predict(model, s, neo_tensor_2d(x, NEO_F32, n, 1), &sparse,
                                           out));
                for (int64_t b = 0; b < n; b++)
                    CHECK(memcmp(&out[b], &expected[b], 4) == 0 ||
                          (isnan(out[b]) && isnan(expected[b])));
                neo_scratch_destroy(s);
            }
            neo_model_free(model);
        }
        neo_state_destroy(state);
        neo_schema_destroy(schema);
    }
}

/* Any 64 bits are a key: one that was trained has its row, others the initial one, as in
   neo_bags_forward. The logit is the sum of a row. */
static void any_id_is_a_key(void) {
    static float none[4], ones[4] = {1, 1, 1, 1}, top[5] = {0, 0, 0, 0, 1};
    enum { IDS = 6 };
    const int64_t ids[IDS] = {-5, INT64_MAX, INT64_MIN, 7, 0, 1}, offsets[] = {0, 1, 2, 3, 4, 5, 6};
    const neo_table_desc table = {.name = "f", .rows = 64, .dim = 4, .keys = {.on = 1}};
    const float x[IDS] = {0};
    float rows[IDS * 4], grad[2 * 4], out[IDS], alone;
    const char *columns = "x dense\nf category hash rows=4\ny label\n";
    char dir[1100], json[1024];
    neo_schema *schema;
    neo_state *state;
    neo_bags *bags;
    neo_model *model;
    neo_scratch *s;
    neo_jagged batch = {.batch = 2, .feature_count = 1, .id_dtype = NEO_I64, .offsets = offsets,
                        .ids = ids};
    for (int i = 0; i < 8; i++) grad[i] = number((uint64_t)i);
    REQUIRE_OK(neo_bags_create(ctx, &(neo_bags_desc){.tables = &table, .table_count = 1,
                                                     .max_batch = IDS, .max_ids = IDS}, &bags));
    REQUIRE_OK(neo_bags_backward(bags, &batch, neo_tensor_2d(grad, NEO_F32, 2, 4), 1.0f));
    batch.batch = IDS;
    REQUIRE_OK(neo_bags_forward(bags, &batch, neo_tensor_2d(rows, NEO_F32, IDS, 4)));
    REQUIRE_OK(neo_schema_parse(ctx, columns, &schema));
    REQUIRE_OK(neo_state_create(ctx, &state));
    const struct { const char *name; neo_tensor t; } weights[] = {
        {"bottom.0.weight", neo_tensor_2d(none, NEO_F32, 4, 1)},
        {"bottom.0.bias", neo_tensor_1d(ones, NEO_F32, 4)},
        {"top.0.weight", neo_tensor_2d(top, NEO_F32, 1, 5)},
        {"top.0.bias", neo_tensor_1d(none, NEO_F32, 1)}};
    for (int i = 0; i < 4; i++)
        REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, weights[i].name, weights[i].t));
    REQUIRE_OK(neo_state_add_bags(state, bags));
    snprintf(dir, sizeof dir, "%s-keys", checkpoints);
    int n = snprintf(json, sizeof json,
                     "{\"neo_model\": 1, \"model\": \"dlrm\", \"dim\": 4, \"dtype\": \"f32\", "
                     "\"rows_dtype\": \"f32\", \"row_buckets\": 1, \"keys\": {\"rows\": 64, "
                     "\"evict\": \"lru\", \"period\": 0, \"seed\": %d}, \"bottom\": [1, 4], "
                     "\"top\": [5, 1], \"schema\": ", (int)neo_ctx_seed(ctx));
    n += (int)neo_schema_describe(schema, json + n, sizeof json - (size_t)n);
    snprintf(json + n, sizeof json - (size_t)n, "}");
    REQUIRE_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 1, .model = json}, state));
    REQUIRE_OK(neo_model_load(&(neo_model_desc){.dir = dir}, &model));
    REQUIRE_OK(neo_scratch_create(model, &(neo_scratch_desc){.max_batch = IDS, .logits = 1}, &s));
    REQUIRE_OK(neo_model_predict(model, s, neo_tensor_2d((void *)(uintptr_t)x, NEO_F32, IDS, 1),
                                 &batch, out));
    for (int i = 0; i < IDS; i++) {
        const float *row = rows + 4 * i, sum = row[0] + row[1] + row[2] + row[3];
        CHECK(fabsf(out[i] - sum) < 1e-6f);
        REQUIRE_OK(neo_scratch_add(s, x, &ids[i], NULL, NULL));
        REQUIRE_OK(neo_scratch_predict(s, &alone));
        CHECK(memcmp(&alone, &out[i], 4) == 0);
        neo_scratch_clear(s);
    }
    CHECK(fabsf(rows[0]) > 0.126f || fabsf(rows[1]) > 0.126f); /* it was trained */
    neo_scratch_destroy(s);
    neo_model_free(model);
    neo_state_destroy(state);
    neo_bags_destroy(bags);
    neo_schema_destroy(schema);
}

/* Rows 2 and 5 of 8 were in a table of their own: with sums in order of position the first bag were
   1, as 1e8 - 1e8 + 1; with the hot rows' sum apart it is (1e8 + 1) - 1e8, which is 0. */
static void hot_rows_are_summed_apart(void) {
    enum { BAGS = 4, IDS = 6 };
    static float cold[8] = {1e8f, 1, 77, 3, 4, 77, 6, 7}, hot[2] = {-1e8f, 0.5f}, none[1];
    static const int64_t ids[1 + IDS] = {99, 0, 2, 1, 5, 3, 5}, ends[] = {1, 4, 4, 5, 7};
    static const float weights[1 + IDS] = {9, 2, 2, 2, 2, 2, 2}, want[BAGS] = {0, 0, 0.5f, 3.5f};
    static float x[BAGS];
    const char *columns = "x dense\nf list sep=| hash rows=8\ny label\n";
    char dir[1100], json[1024];
    for (int bad = 0; bad < 2; bad++) {
        int64_t rows[2] = {bad ? 5 : 2, bad ? 2 : 5};
        neo_schema *schema;
        neo_state *state;
        neo_model *model;
        neo_scratch *s;
        float out[BAGS], alone;
        REQUIRE_OK(neo_schema_parse(ctx, columns, &schema));
        REQUIRE_OK(neo_state_create(ctx, &state));
        const struct { const char *name; neo_tensor t; } tensors[] = {
            {"linear.0.weight", neo_tensor_2d(none, NEO_F32, 1, 1)},
            {"linear.0.bias", neo_tensor_1d(none, NEO_F32, 1)},
            {"bags.f.cold.weight", neo_tensor_2d(cold, NEO_F32, 8, 1)},
            {"bags.f.hot.weight", neo_tensor_2d(hot, NEO_F32, 2, 1)},
            {"bags.f.hot.rows", neo_tensor_1d(rows, NEO_I64, 2)}};
        for (int i = 0; i < 5; i++)
            REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, tensors[i].name, tensors[i].t));
        snprintf(dir, sizeof dir, "%s-hot", checkpoints);
        int n = snprintf(json, sizeof json,
                         "{\"neo_model\": 1, \"model\": \"lr\", \"dim\": 1, \"dtype\": \"f32\", "
                         "\"rows_dtype\": \"f32\", \"row_buckets\": 1, \"hot_rows\": [2], "
                         "\"bottom\": [1, 1], \"schema\": ");
        n += (int)neo_schema_describe(schema, json + n, sizeof json - (size_t)n);
        snprintf(json + n, sizeof json - (size_t)n, "}");
        REQUIRE_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 1, .model = json}, state));
        neo_state_destroy(state);
        neo_schema_destroy(schema);
        if (bad) {
            CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_FORMAT,
                      "f.hot.rows: place 1: 2 is not in [0, 8), or they do not rise");
            return;
        }
        REQUIRE_OK(neo_model_load(&(neo_model_desc){.dir = dir}, &model));
        CHECK(((const float *)neo_model_table(model, 0)->codes)[5] == 0.5f);
        neo_scratch_desc d = {.max_batch = BAGS, .max_ids = IDS, .logits = 1};
        REQUIRE_OK(neo_scratch_create(model, &d, &s));
        for (int weighted = 0; weighted < 2; weighted++) {
            neo_jagged batch = {.batch = BAGS, .feature_count = 1, .id_dtype = NEO_I64,
                                .offsets = ends, .ids = ids,
                                .weights = weighted ? weights : NULL};
            CHECK_OK(neo_model_predict(model, s, neo_tensor_2d(x, NEO_F32, BAGS, 1), &batch, out));
            for (int i = 0; i < BAGS; i++) CHECK(out[i] == (weighted ? 2 : 1) * want[i]);
        }
        for (int i = 0; i < BAGS; i++) {
            const int32_t count = (int32_t)(ends[i + 1] - ends[i]);
            neo_scratch_clear(s);
            CHECK_OK(neo_scratch_add(s, x, ids + ends[i], &count, NULL));
            CHECK_OK(neo_scratch_predict(s, &alone));
            CHECK(alone == want[i]);
        }
        neo_scratch_destroy(s);
        neo_model_free(model);
    }
}

int main(void) {
    const char *dir = getenv("TMPDIR");
    snprintf(checkpoints, sizeof checkpoints, "%s/neo-serve-model", dir ? dir : "/tmp");
    snprintf(csv_path, sizeof csv_path, "%s/neo-serve.csv", dir ? dir : "/tmp");
    if (neo_ctx_create(&(neo_ctx_desc){.threads = 1}, &ctx) != NEO_OK) return 1;
    RUN(encode_errs_little);
    RUN(search_of_ranges);
    RUN(lookups);
    RUN(retrieval);
    RUN(retrieval_of_extremes);
    RUN(samples_of_json);
    RUN(zeros_are_skipped);
    RUN(any_id_is_a_key);
    RUN(hot_rows_are_summed_apart);
    RUN(threads_share_a_model);
    RUN(a_prediction_allocates_nothing);
    neo_ctx_destroy(ctx);
    return test_end("serve");
}
