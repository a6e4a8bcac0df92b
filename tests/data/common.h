/* common.h: files in a temporary folder, and whole epochs as a hash, for
 * the tests of schemas and readers. */
#ifndef NEO_DATA_COMMON_H
#define NEO_DATA_COMMON_H

#include "neo_data.h"
#include "test.h"

static inline void write_bytes(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) {
        printf("cannot write %s\n", path);
        exit(1);
    }
}
static inline void write_text(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

static inline uint64_t hash_more(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
    return h;
}
/* Everything a batch holds; ids bag by bag. */
static inline uint64_t hash_batch(uint64_t h, const neo_batch *b) {
    int64_t bags = b->sparse.batch * b->sparse.feature_count;
    const int64_t *o = b->sparse.offsets, *ids = (const int64_t *)b->sparse.ids;
    h = hash_more(h, &b->first, sizeof b->first);
    h = hash_more(h, &b->size, sizeof b->size);
    h = hash_more(h, b->dense.data,
                  (size_t)(b->dense.shape[0] * b->dense.shape[1]) * sizeof(float));
    h = hash_more(h, b->label.data, (size_t)b->label.shape[0] * sizeof(float));
    h = hash_more(h, o, (size_t)(bags + 1) * sizeof *o);
    if (b->sparse.weights)
        h = hash_more(h, b->sparse.weights + o[0],
                      (size_t)(o[bags] - o[0]) * sizeof *b->sparse.weights);
    if (o[bags] == o[0]) return h; /* ids may be NULL */
    return hash_more(h, ids + o[0], (size_t)(o[bags] - o[0]) * sizeof *ids);
}

/* A synthetic stand-in for Criteo data: `count` samples from `first` on. */
static inline void write_criteo(neo_ctx *ctx, const char *path, int64_t first, int64_t count) {
    neo_synthetic_desc d;
    neo_schema *s = NULL;
    memset(&d, 0, sizeof d);
    d.samples = first + count;
    d.rows = 1000;
    if (neo_schema_synthetic(ctx, &d, &s) != NEO_OK ||
        neo_synthetic_write_tsv(ctx, s, path, first, count) != NEO_OK) {
        printf("cannot write %s: %s\n", path, neo_last_error());
        exit(1);
    }
    neo_schema_destroy(s);
}
static inline neo_reader_desc reader_desc(const neo_schema *schema, const char *const *paths,
                                          int count, int64_t batch) {
    neo_reader_desc d;
    memset(&d, 0, sizeof d);
    d.schema = schema;
    d.paths = paths;
    d.path_count = count;
    d.batch = batch;
    return d;
}
/* The rest of the epoch: hashes of its batches into out (at most `most`);
 * returns their number, or -1. */
static inline int64_t read_hashes(neo_reader *r, uint64_t *out, int64_t most) {
    neo_batch b;
    neo_status st;
    int64_t n = 0;
    while ((st = neo_reader_next(r, &b)) == NEO_OK) {
        if (n < most) out[n] = hash_batch(1, &b);
        n++;
    }
    if (st != NEO_END) {
        printf("reading: %s\n", neo_last_error());
        return -1;
    }
    return n;
}
#endif
