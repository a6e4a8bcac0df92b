/* common.h: random models and batches, and naive references, for the tests of embedding bags. */
#ifndef NEO_TEST_BAGS_COMMON_H
#define NEO_TEST_BAGS_COMMON_H

#include "test.h"

enum { MAX_TABLES = 8, MAX_FEATURES = 10 };

typedef struct Model {
    neo_bags_desc desc;
    neo_table_desc table[MAX_TABLES];
    int32_t feature_table[MAX_FEATURES];
    char name[MAX_TABLES][16];
} Model;

/* Tables t0, t1, ... of these rows and dims; feature f looks up table f % tables. */
static inline void model_init(Model *m, int tables, const int64_t *rows, const int64_t *dims,
                              int features, neo_pooling pooling) {
    memset(m, 0, sizeof *m);
    for (int t = 0; t < tables; t++) {
        snprintf(m->name[t], sizeof m->name[t], "t%d", t);
        m->table[t].name = m->name[t];
        m->table[t].rows = rows[t];
        m->table[t].dim = dims[t];
        m->table[t].pooling = pooling;
    }
    for (int f = 0; f < features; f++) m->feature_table[f] = f % tables;
    m->desc.tables = m->table;
    m->desc.table_count = tables;
    m->desc.feature_table = m->feature_table;
    m->desc.feature_count = features;
    m->desc.max_batch = 256;
    m->desc.max_ids = 1 << 16;
}

typedef struct Batch {
    neo_jagged j;
    int64_t *offsets, *feature_bags;
    void *ids;
    float *weights;
} Batch;
typedef struct BatchKind {
    int64_t batch, max_length;
    int i32, weighted, late_start, variable; /* variable: feature_bags */
} BatchKind;

static inline int64_t batch_id(const Batch *b, int64_t k) {
    return b->j.id_dtype == NEO_I32 ? ((const int32_t *)b->ids)[k] : ((const int64_t *)b->ids)[k];
}
static inline void batch_set_id(Batch *b, int64_t k, int64_t id) {
    if (b->j.id_dtype == NEO_I32) ((int32_t *)b->ids)[k] = (int32_t)id;
    else ((int64_t *)b->ids)[k] = id;
}
static inline int64_t first_bag(const neo_jagged *j, int f) {
    return j->feature_bags ? j->feature_bags[f] : f * j->batch;
}
/* Half of the ids come from the first few rows, so that rows repeat. */
static inline void batch_make(Batch *b, const Model *m, BatchKind kind) {
    int features = m->desc.feature_count;
    memset(b, 0, sizeof *b);
    b->feature_bags = malloc(sizeof(int64_t) * (size_t)(features + 1));
    b->feature_bags[0] = 0;
    for (int f = 0; f < features; f++)
        b->feature_bags[f + 1] =
            b->feature_bags[f] +
            (kind.variable ? (int64_t)test_random() % (kind.batch + 1) : kind.batch);
    int64_t bags = b->feature_bags[features], start = kind.late_start ? 5 : 0;
    b->offsets = malloc(sizeof(int64_t) * (size_t)(bags + 1));
    b->offsets[0] = start;
    for (int64_t i = 0; i < bags; i++)
        b->offsets[i + 1] = b->offsets[i] + (int64_t)test_random() % (kind.max_length + 1);
    int64_t n = b->offsets[bags];
    b->ids = calloc((size_t)n + 1, kind.i32 ? 4 : 8);
    b->weights = malloc(sizeof(float) * ((size_t)n + 1));
    b->j.batch = kind.batch;
    b->j.feature_count = features;
    b->j.id_dtype = kind.i32 ? NEO_I32 : NEO_I64;
    b->j.offsets = b->offsets;
    b->j.ids = b->ids;
    b->j.weights = kind.weighted ? b->weights : NULL;
    b->j.feature_bags = kind.variable ? b->feature_bags : NULL;
    test_fill(b->weights, n + 1);
    for (int f = 0; f < features; f++) {
        int64_t rows = m->table[m->feature_table[f]].rows;
        for (int64_t k = b->offsets[b->feature_bags[f]]; k < b->offsets[b->feature_bags[f + 1]];
             k++) {
            int64_t range = test_random() % 2 && rows > 5 ? 5 : rows;
            batch_set_id(b, k, (int64_t)test_random() % range);
        }
    }
}
static inline void batch_free(Batch *b) {
    free(b->offsets);
    free(b->feature_bags);
    free(b->ids);
    free(b->weights);
}

/* The tensor of a batch: out or dout. extra: floats between rows. */
typedef struct Out {
    float *data;
    int64_t count;
    neo_tensor t;
} Out;
static inline void out_make(Out *o, const Model *m, const neo_jagged *j, int64_t extra) {
    int64_t width = 0, flat = 0;
    for (int f = 0; f < m->desc.feature_count; f++) {
        int64_t dim = m->table[m->feature_table[f]].dim;
        width += dim;
        flat += (first_bag(j, f + 1) - first_bag(j, f)) * dim;
    }
    int none = m->table[0].pooling == NEO_POOL_NONE;
    if (none) width = m->table[0].dim;
    int64_t rows = none ? neo_jagged_id_count(j) : j->batch;
    o->count = j->feature_bags && !none ? flat : rows * (width + extra);
    o->data = malloc(sizeof(float) * (size_t)(o->count + 1));
    test_fill(o->data, o->count + 1);
    if (j->feature_bags && !none) {
        o->t = neo_tensor_1d(o->data, NEO_F32, flat);
    } else {
        o->t = neo_tensor_2d(o->data, NEO_F32, rows, width);
        o->t.stride[0] = width + extra;
    }
}
/* Element (feature f, sample b, column d) of it, or for NEO_POOL_NONE (id k, column d). */
static inline float *out_at(const Out *o, const Model *m, const neo_jagged *j, int f, int64_t b,
                            int64_t k, int64_t d) {
    if (m->table[0].pooling == NEO_POOL_NONE)
        return o->data + (k - j->offsets[0]) * o->t.stride[0] + d;
    int64_t col = 0, flat = 0;
    for (int g = 0; g < f; g++) {
        int64_t dim = m->table[m->feature_table[g]].dim;
        col += dim;
        flat += (first_bag(j, g + 1) - first_bag(j, g)) * dim;
    }
    if (j->feature_bags) return o->data + flat + b * m->table[m->feature_table[f]].dim + d;
    return o->data + b * o->t.stride[0] + col + d;
}

/* The row an id stands for under the bounds policy; -1: dropped. */
static inline int64_t row_of(const Model *m, int f, int64_t id) {
    int64_t rows = m->table[m->feature_table[f]].rows;
    if (id >= 0 && id < rows) return id;
    if (m->desc.bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : rows - 1;
}

/* The dense gradient of table t in double, [rows][dim], and which rows were touched. */
static inline double *dense_grad(const Model *m, int t, const Batch *b, const Out *dout,
                                 char *touched) {
    int64_t rows = m->table[t].rows, dim = m->table[t].dim;
    double *g = calloc((size_t)(rows * dim), sizeof *g);
    memset(touched, 0, (size_t)rows);
    const neo_jagged *j = &b->j;
    for (int f = 0; f < m->desc.feature_count; f++) {
        if (m->feature_table[f] != t) continue;
        for (int64_t s = 0; s < first_bag(j, f + 1) - first_bag(j, f); s++) {
            int64_t bag = first_bag(j, f) + s, length = j->offsets[bag + 1] - j->offsets[bag];
            for (int64_t k = j->offsets[bag]; k < j->offsets[bag + 1]; k++) {
                int64_t row = row_of(m, f, batch_id(b, k));
                if (row < 0) continue;
                touched[row] = 1;
                double c = j->weights ? (double)j->weights[k] : 1.0;
                if (m->table[t].pooling == NEO_POOL_MEAN) c /= (double)length;
                for (int64_t d = 0; d < dim; d++)
                    g[row * dim + d] += c * (double)*out_at(dout, m, j, f, s, k, d);
            }
        }
    }
    return g;
}

#endif
