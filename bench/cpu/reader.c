/* reader.c: how fast readers turn text into batches.

   Ceiling: reading the same file from the page cache into a buffer with one
   thread and doing nothing with it, measured alternately with the reader, in
   the same run. First the batches are compared with a plain parser of the same
   file (an order-free checksum of all labels, numbers and ids). Reader threads
   are 1 unless the name says otherwise; the caller only takes the batches. */
#if !defined(_WIN32)
#define _FILE_OFFSET_BITS 64
#endif
#include "neo_data.h"
#include "bench/bench.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 100000, BATCH = 2048, REPEATS = 7 };

/* ---- checksums ---- */
static uint64_t mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xFF51AFD7ED558CCDu;
    h ^= h >> 33;
    return h;
}
static uint64_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static uint64_t sum_batch(const neo_batch *b) {
    uint64_t sum = 0;
    int64_t dense = b->dense.shape[1];
    const int64_t *ids = (const int64_t *)b->sparse.ids, *o = b->sparse.offsets;
    for (int64_t i = 0; i < b->size; i++)
        sum += mix(float_bits(((const float *)b->label.data)[i]) + 1);
    for (int64_t i = 0; i < b->size * dense; i++)
        sum += mix(float_bits(((const float *)b->dense.data)[i]) * 64 + (uint64_t)(i % dense));
    for (int64_t t = 0; t < b->sparse.feature_count; t++)
        for (int64_t k = o[t * b->size]; k < o[(t + 1) * b->size]; k++)
            sum += mix((uint64_t)ids[k] * 64 + 32 + (uint64_t)t);
    return sum;
}
/* The file in the plainest way: strtol, strtoul, log. */
static uint64_t sum_plain(const char *path) {
    uint64_t sum = 0;
    char line[4096];
    FILE *f = fopen(path, "rb");
    if (!f) exit(1);
    while (fgets(line, sizeof line, f)) {
        char *p = line;
        sum += mix(float_bits(line[0] == '1' ? 1.0f : 0.0f) + 1);
        for (int d = 0; d < 13; d++) {
            p = strchr(p, '\t') + 1;
            long v = *p == '\t' ? 0 : strtol(p, NULL, 10);
            sum += mix(float_bits(v > 0 ? (float)log((double)v + 1) : 0.0f) * 64 + (uint64_t)d);
        }
        for (int t = 0; t < 26; t++) {
            p = strchr(p, '\t') + 1;
            int missing = *p == '\t' || *p == '\n';
            uint64_t id = missing ? 0 : 1 + strtoul(p, NULL, 16) % (ROWS - 1);
            sum += mix(id * 64 + 32 + (uint64_t)t);
        }
    }
    fclose(f);
    return sum;
}

/* ---- timing ---- */
static double read_raw(const char *path) { /* GB/s */
    static char buffer[131072];
    int64_t start = neo_time_ns(), bytes = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t n; fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0;) bytes += n;
    if (fd >= 0) close(fd);
    return (double)bytes / (double)(neo_time_ns() - start);
}
typedef struct epoch_time {
    double seconds;
    int64_t samples, bytes;
    uint64_t sum;
} epoch_time;
static epoch_time run_epoch(neo_reader *r, int64_t number, int check) {
    epoch_time e = {0, 0, 0, 0};
    neo_batch b;
    neo_status st;
    BENCH_OK(neo_reader_epoch(r, number));
    int64_t start = neo_time_ns();
    while ((st = neo_reader_next(r, &b)) == NEO_OK)
        if (check) e.sum += sum_batch(&b);
    e.seconds = (double)(neo_time_ns() - start) * 1e-9;
    if (st != NEO_END) bench_fail(neo_last_error());
    e.samples = neo_reader_get_stats(r).samples;
    e.bytes = neo_reader_get_stats(r).total_bytes;
    return e;
}
/* path NULL: no file, no ceiling. */
static void measure(const char *name, neo_ctx *ctx, neo_reader_desc d, const char *path,
                    uint64_t want) {
    double rate[REPEATS], raw[REPEATS], samples[REPEATS];
    char text[64];
    neo_reader *r = NULL;
    d.batch = BATCH;
    d.prefetch = 8;
    BENCH_OK(neo_reader_open(ctx, &d, &r));
    epoch_time e = run_epoch(r, 0, 1);
    if (want && e.sum != want) bench_fail("the batches differ from the plain parser's");
    int repeats = bench.quick ? 3 : REPEATS;
    for (int i = 0; i < repeats; i++) {
        raw[i] = path ? read_raw(path) * 1e3 : 0;
        e = run_epoch(r, i + 1, 0);
        rate[i] = (double)e.bytes / e.seconds * 1e-6;
        samples[i] = (double)e.samples / e.seconds;
    }
    neo_reader_close(r);
    double value = bench_median(rate, repeats), ceiling = bench_median(raw, repeats);
    if (path) {
        bench_spread(rate, repeats);
        snprintf(text, sizeof text, "reader.%s", name);
        bench_report(text, value, "MB/s", 100 * value / ceiling, NULL, 0);
    }
    snprintf(text, sizeof text, "reader.%s.samples", name);
    bench_report(text, bench_median(samples, repeats), "samples/s", -1, NULL, 0);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    neo_ctx *ctx = bench_ctx(1, 1);
    const char *dir = getenv("TMPDIR");
    char path[1024], csv[1024];
    const char *paths[1] = {path}, *tables[1] = {csv};
    int64_t count = bench.quick ? 50000 : 300000;
    neo_schema *made = NULL, *hash = NULL, *dict = NULL, *columns = NULL;
    neo_synthetic_desc g;
    memset(&g, 0, sizeof g);
    g.samples = count;
    g.rows = ROWS;
    snprintf(path, sizeof path, "%s/neo-bench.tsv", dir ? dir : "/tmp");
    snprintf(csv, sizeof csv, "%s/neo-bench.csv", dir ? dir : "/tmp");
    BENCH_OK(neo_schema_synthetic(ctx, &g, &made));
    BENCH_OK(neo_synthetic_write_tsv(ctx, made, path, 0, count));
    uint64_t want = sum_plain(path);

    neo_reader_desc d;
    memset(&d, 0, sizeof d);
    d.schema = NULL;
    d.paths = paths;
    d.path_count = 1;
    BENCH_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, ROWS, NULL, &hash));
    d.schema = hash;
    measure("criteo", ctx, d, path, want);
    d.shuffle_window = 65536;
    measure("criteo.shuffle", ctx, d, path, want);
    d.shuffle_window = 0;
    d.threads = 2;
    measure("criteo.threads2", ctx, d, path, want);
    d.threads = 1;
    BENCH_OK(neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, ROWS, NULL, &dict));
    BENCH_OK(neo_schema_fit(dict, paths, 1, 0));
    d.schema = dict;
    measure("criteo.dictionary", ctx, d, path, 0);

    /* Adult's shape of line, from a generator of its own */
    FILE *f = fopen(csv, "wb");
    if (!f) bench_fail("cannot write the csv file");
    for (int64_t i = 0; f && i < count; i++)
        fprintf(f, "%u, work-%u, %u.%02u, %s, job-%u, %u, <=50K\n", 17 + bench_random() % 70,
                bench_random() % 9, bench_random() % 100000, bench_random() % 100,
                bench_random() % 2 ? "Male" : "Female", bench_random() % 15,
                bench_random() % 99999);
    if (f) fclose(f);
    BENCH_OK(
        neo_schema_parse(ctx,
                         "age dense bucket 20,30,40,50,60\nwork category\nweight dense log\nsex "
                         "category\n"
                         "job category\ngain dense log\nincome label positive=>50K\n",
                         &columns));
    BENCH_OK(neo_schema_fit(columns, tables, 1, 0));
    d.schema = columns;
    d.paths = tables;
    measure("delimited", ctx, d, csv, 0);
    d.schema = made;
    d.paths = NULL;
    d.path_count = 0;
    measure("synthetic", ctx, d, NULL, want);

    remove(path);
    remove(csv);
    neo_schema_destroy(made);
    neo_schema_destroy(hash);
    neo_schema_destroy(dict);
    neo_schema_destroy(columns);
    neo_ctx_destroy(ctx);
    return bench_end();
}
