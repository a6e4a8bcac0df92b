/* sets.h: four sets of embedding tables with the totals of published models, made by a seeded
   generator: as many tables, parameters, columns and ids per bag in the mean as stated there,
   spread as such models are (a few tables are much larger, a few are looked up much more). They are
   shapes to plan for, not those models.

   Rows and poolings are powers of two with binomially distributed exponents, times a number in [1,
   2), scaled to the totals. row_buckets: 8 (the ranks of a node) for tables above 4 GiB, and for
   those with more than 1.5 times the mean of ids; F1, whose tables are larger than a rank: 128. */
#ifndef NEO_PLAN_SETS_H
#define NEO_PLAN_SETS_H

#include <stdint.h>

typedef struct plan_set {
    const char *name;
    int tables, row_buckets;    /* row_buckets: of every table; 0: as above */
    double parameters, dim, pooling;
    double mflops;              /* per sample, forward, in dense layers */
    double stated;              /* samples/s of 128 GPUs, as published: recalled, not looked up */
    uint64_t seed;
} plan_set;
typedef struct plan_set_table {
    int64_t rows, dim, pooling;
    int row_buckets;
} plan_set_table;

static const plan_set PLAN_SETS[] = {
    {"a1", 300, 0, 95e9, 68, 27, 89, 1047e3, 1},
    {"a2", 1000, 0, 793e9, 93, 15, 638, 622e3, 2},
    {"f1", 30, 128, 12e12, 256, 20, 5, 970e3, 3},
    {"i1", 300, 0, 332e9, 92, 70, 60, 679e3, 4},
};
enum { PLAN_SET_COUNT = sizeof PLAN_SETS / sizeof PLAN_SETS[0], PLAN_SET_MOST = 1000 };

static inline uint64_t plan_set_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
/* 2^(heads of `flips` coins) x a number in [1, 2). */
static inline double plan_set_heavy(uint64_t *state, int flips) {
    uint64_t coins = plan_set_random(state);
    double x = 1.0 + (double)(plan_set_random(state) >> 11) * 0x1p-53;
    for (int i = 0; i < flips; i++)
        if (coins >> i & 1) x *= 2.0;
    return x;
}
/* tables: [set->tables]. */
static inline void plan_set_make(const plan_set *set, plan_set_table *tables) {
    static const int64_t dims[] = {16, 32, 48, 64, 80, 96, 128, 160, 192, 256};
    static double rows[PLAN_SET_MOST], pooling[PLAN_SET_MOST];
    uint64_t state = set->seed;
    double dim_sum = 0, elements = 0, pooling_sum = 0, left = set->pooling * set->tables;
    for (int t = 0; t < set->tables; t++) {
        do tables[t].dim = dims[plan_set_random(&state) % 10];
        while (dim_sum < set->dim * t ? tables[t].dim < set->dim : tables[t].dim > set->dim);
        if (set->dim == 256) tables[t].dim = 256;
        dim_sum += (double)tables[t].dim;
        rows[t] = plan_set_heavy(&state, set->row_buckets ? 4 : 12);
        pooling[t] = plan_set_heavy(&state, 6);
        elements += rows[t] * (double)tables[t].dim;
        pooling_sum += pooling[t];
    }
    for (int t = 0; t < set->tables; t++) { /* what rounding leaves over goes to the next table */
        double share = left * pooling[t] / pooling_sum;
        tables[t].rows = (int64_t)(rows[t] * set->parameters / elements + 0.5);
        tables[t].pooling = (int64_t)(share + 0.5) > 1 ? (int64_t)(share + 0.5) : 1;
        left -= (double)tables[t].pooling;
        pooling_sum -= pooling[t];
    }
    for (int t = 0; t < set->tables; t++) {
        int large = 4 * tables[t].rows * tables[t].dim > (int64_t)4 << 30;
        int busy = (double)tables[t].pooling > 1.5 * set->pooling;
        tables[t].row_buckets = set->row_buckets ? set->row_buckets : large || busy ? 8 : 1;
    }
}
#endif
