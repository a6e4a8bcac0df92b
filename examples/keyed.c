/* keyed.c: an embedding table whose ids are keys: 64-bit hashes of what a shop sells, of which new
   ones come every day and old ones are never asked for again.

     cc -O2 -I. examples/keyed.c examples/neo.c -o keyed -lm -lpthread && ./keyed

   A table without keys needs a row for each id that there may ever be, numbered from 0. With
   neo_table_desc.keys it has as many rows as you give it:

     - a key that is looked up and has no row reads its initial row, which depends on the seed, the
       table's name and the key: looking up changes nothing, so that evaluation does not
     - a key that is trained on gets a row, here at its second occurrence (.admit): what is seen
       once costs nothing
     - when no row is free, a key leaves (.evict), here the one unused for longest. Its weights and
       optimizer state go with it, and it may come back as a new one. NEO_EVICT_SCORE lets the one
       of least score leave: neo_bags_score_keys sets scores, or adds to them, of what was sold say
     - nothing of this depends on threads, ranks or plans: neo_shard takes such tables too

   Every day has 200 goods of its own besides 100 that are always there. Whether one is liked is the
   lowest bit of its key; the table, one column, learns it. Expect

     day 1: 92.3 % right, 300 goods have rows, 0 left
     day 4: 94.3 % right, 883 goods have rows, 17 left
     day 8: 94.9 % right, 1024 goods have rows, 676 left
     the first good of day 8 has row 451 and weight -1.15; that of day 1 has no row */
#include "neo.h"

#include <stdio.h>

enum { ROWS = 1024, BATCH = 64, STEPS = 60, DAYS = 8 };
#define DO(call)                                                                                   \
    do {                                                                                           \
        if (call) return fprintf(stderr, "%s\n", neo_last_error()), 1;                             \
    } while (0)

/* Good number n of a day; those from 200 on are the same every day. */
static uint64_t good(int day, uint32_t n) {
    char name[32];
    (void)snprintf(name, sizeof name, "good %d/%u", n < 200 ? day : 0, n);
    return neo_hash(name);
}

int main(void) {
    neo_ctx *ctx;
    neo_bags *bags;
    uint64_t key[BATCH];
    int64_t offsets[BATCH + 1], row[2];
    float out[BATCH], dout[BATCH], weight, lr = 0.5f;
    const neo_ctx_desc ctx_desc = {.seed = 1};
    const neo_table_desc table = {
        .name = "goods", .rows = ROWS, .dim = 1, .optim = {.kind = NEO_BAG_ADAGRAD},
        .keys = {.on = 1, .evict = NEO_EVICT_LRU, .admit = 2}};
    const neo_bags_desc desc = {.tables = &table, .table_count = 1, .max_batch = BATCH,
                                .max_ids = BATCH};

    DO(neo_ctx_create(&ctx_desc, &ctx));
    DO(neo_bags_create(ctx, &desc, &bags));
    for (int i = 0; i <= BATCH; i++) offsets[i] = i; /* a bag for each sample, of one key */
    /* Keys are 64 bits; a batch has them as NEO_I64. */
    const neo_jagged batch = {.batch = BATCH, .feature_count = 1, .id_dtype = NEO_I64,
                              .offsets = offsets, .ids = key};
    for (int day = 1; day <= DAYS; day++) {
        int right = 0;
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < BATCH; i++) {
                uint32_t random[4];
                neo_random_u32x4(1, neo_hash("sale"), day * STEPS + step, NEO_STREAM_USER,
                                 (uint64_t)i, random);
                key[i] = good(day, random[0] % 300);
            }
            DO(neo_bags_forward(bags, &batch, neo_tensor_2d(out, NEO_F32, BATCH, 1)));
            for (int i = 0; i < BATCH; i++) { /* the gradient of a hinge loss */
                const float y = key[i] & 1 ? 1.0f : -1.0f;
                right += out[i] * y > 0;
                dout[i] = out[i] * y < 1 ? -y : 0;
            }
            DO(neo_bags_backward(bags, &batch, neo_tensor_2d(dout, NEO_F32, BATCH, 1), lr));
        }
        const neo_key_stats stats = neo_bags_key_stats(bags, 0);
        if (day == 1 || day % 4 == 0)
            printf("day %d: %.1f %% right, %d goods have rows, %d left\n", day,
                   100.0 * right / (STEPS * BATCH), (int)stats.used, (int)stats.evictions);
    }
    /* Keys and rows, one way and the other: see also neo_bags_key_of, _put_keys, _drop_keys. */
    key[0] = good(DAYS, 0);
    key[1] = good(1, 0);
    DO(neo_bags_find_keys(bags, 0, key, 2, row));
    DO(neo_bags_get_rows(bags, 0, row[0], 1, &weight));
    printf("the first good of day %d has row %d and weight %.2f; that of day 1 has %s row\n", DAYS,
           (int)row[0], (double)weight, row[1] < 0 ? "no" : "a");
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
    return 0;
}
