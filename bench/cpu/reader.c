/* reader.c: how fast readers turn text into batches.

   Ceiling: reading the same file from the page cache into a buffer with one
   thread and doing nothing with it, measured alternately with the reader, in
   the same run. First the batches are compared with a plain parser of the same
   file (an order-free checksum of all labels, numbers and ids). Reader threads
   are 1 unless the name says otherwise; the caller only takes the batches. The
   clock is CPU time, of all threads together.

   Records become batches of 1.6 times their bytes. Peer of binary formats: a
   loop on one thread that reads the same bytes and writes the same batches, of
   ids and logarithms that it does not check. */
#if !defined(_WIN32)
#define _FILE_OFFSET_BITS 64
#endif
#include "neo_data.h"
#include "bench/bench.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 100000, BATCH = 2048, REPEATS = 7, AHEAD = 8 };

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
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double read_raw(const char *path) { /* GB/s */
    static char buffer[131072];
    double start = cpu_seconds();
    int64_t bytes = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t n; fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0;) bytes += n;
    if (fd >= 0) close(fd);
    return 1e-9 * (double)bytes / (cpu_seconds() - start);
}
static int64_t file_bytes(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : 0;
}
/* The records of a file as labels, dense numbers and ids of a batch, feature by feature; integers
   through a table of logarithms. There are as many batches as the reader has. GB/s of the file. */
static double read_bare(const char *path, int is_float) {
    static struct {
        int64_t ids[26][BATCH];
        float label[BATCH], dense[BATCH][13];
    } batches[AHEAD + 1], *b = batches;
    static int32_t rows[BATCH][40];
    static float logs[4096];
    double start = 0;
    int64_t bytes = 0;
    for (int i = 0; i < 4096; i++) logs[i] = (float)log(i + 1.0);
    int fd = open(path, O_RDONLY);
    start = cpu_seconds();
    for (ssize_t n; fd >= 0 && (n = read(fd, rows, sizeof rows)) > 0; bytes += n) {
        const int count = (int)(n / (ssize_t)sizeof *rows);
        for (int i = 0; i < count; i++) {
            b->label[i] = (float)rows[i][0];
            if (is_float) memcpy(b->dense[i], &rows[i][1], sizeof b->dense[i]);
            else
                for (int k = 0; k < 13; k++) b->dense[i][k] = logs[rows[i][1 + k] & 4095];
        }
        for (int i = 0; i < count; i += 16)
            for (int t = 0; t < 26; t++)
                for (int k = i; k < i + 16 && k < count; k++) b->ids[t][k] = rows[k][14 + t];
        if (b->label[0] + b->dense[count - 1][12] + (float)b->ids[25][count - 1] < 0)
            bench_fail("a record holds a number below 0"); /* the batch is looked at */
        b = b < batches + AHEAD ? b + 1 : batches;
    }
    if (fd >= 0) close(fd);
    return 1e-9 * (double)bytes / (cpu_seconds() - start);
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
    double start = cpu_seconds();
    while ((st = neo_reader_next(r, &b)) == NEO_OK)
        if (check) e.sum += sum_batch(&b);
    e.seconds = cpu_seconds() - start;
    if (st != NEO_END) bench_fail(neo_last_error());
    e.samples = neo_reader_get_stats(r).samples;
    e.bytes = neo_reader_get_stats(r).total_bytes; /* 0: arrays, records; see measure */
    return e;
}
/* path NULL: no file, no ceiling. bare: of records of one id the loop of read_bare. */
enum { NO_LOOP = -1, OF_INTEGERS, OF_FLOATS };
static void measure(const char *name, neo_ctx *ctx, neo_reader_desc d, const char *path,
                    uint64_t want, int bare) {
    double rate[REPEATS], raw[REPEATS], samples[REPEATS], ratio[REPEATS];
    char text[64];
    neo_reader *r = NULL;
    d.batch = BATCH;
    d.prefetch = AHEAD;
    BENCH_OK(neo_reader_open(ctx, &d, &r));
    epoch_time e = run_epoch(r, 0, 1);
    if (want && e.sum != want) bench_fail("the batches differ from the plain parser's");
    int repeats = bench.quick ? 3 : REPEATS;
    for (int i = 0; i < repeats; i++) {
        raw[i] = path ? read_raw(path) * 1e3 : 0;
        e = run_epoch(r, i + 1, 0);
        if (path && e.bytes == 0) e.bytes = file_bytes(path);
        rate[i] = (double)e.bytes / e.seconds * 1e-6;
        samples[i] = (double)e.samples / e.seconds;
        if (bare >= 0) ratio[i] = rate[i] / (1e3 * read_bare(path, bare));
    }
    neo_reader_close(r);
    double value = bench_median(rate, repeats), ceiling = bench_median(raw, repeats);
    if (path) {
        bench_spread(rate, repeats);
        snprintf(text, sizeof text, "reader.%s", name);
        bench_report(text, value, "MB/s", 100 * value / ceiling, bare < 0 ? NULL : "bare_loop",
                     bare < 0 ? 0 : bench_median(ratio, repeats));
    }
    snprintf(text, sizeof text, "reader.%s.samples", name);
    bench_report(text, bench_median(samples, repeats), "samples/s", -1, NULL, 0);
}

/* ---- other formats of the same samples ---- */
/* Batches of a reader as records of int32[40] (dense numbers and ids by their order), of the same
   with three ids of each feature, of the same with dense numbers of f32 (HugeCTR's Raw), and as
   lines of libsvm and libffm with values of some digits. */
typedef struct other_files {
    char binary[1024], multi[1024], svm[1024], ffm[1024], raw[1024];
} other_files;
static void write_others(neo_ctx *ctx, const neo_schema *schema, other_files *paths) {
    neo_reader_desc d;
    neo_reader *r = NULL;
    neo_batch b;
    char *name[5] = {paths->binary, paths->multi, paths->svm, paths->ffm, paths->raw};
    FILE *f[5];
    for (int i = 0; i < 5; i++)
        if (!(f[i] = fopen(name[i], "wb"))) bench_fail("cannot write a file");
    memset(&d, 0, sizeof d);
    d.schema = schema;
    d.batch = BATCH;
    BENCH_OK(neo_reader_open(ctx, &d, &r));
    while (neo_reader_next(r, &b) == NEO_OK)
        for (int64_t i = 0; i < b.size; i++) {
            int32_t row[40] = {((const float *)b.label.data)[i] > 0};
            const float *x = (const float *)b.dense.data + i * 13;
            for (int k = 0; k < 13; k++) row[1 + k] = (int32_t)(exp((double)x[k]) - 0.5);
            for (int k = 0; k < 26; k++)
                row[14 + k] = (int32_t)((const int64_t *)b.sparse.ids)[k * b.size + i];
            fwrite(row, 4, 40, f[0]);
            fwrite(row, 4, 1, f[4]);
            fwrite(x, 4, 13, f[4]);
            fwrite(&row[14], 4, 26, f[4]);
            fwrite(row, 4, 14, f[1]);
            for (int k = 0; k < 26; k++)
                for (int j = 0; j < 3; j++) fwrite(&row[14 + k], 4, 1, f[1]);
            fprintf(f[2], "%d", row[0]);
            fprintf(f[3], "%d", row[0]);
            for (int k = 0; k < 26; k++) {
                fprintf(f[2], k % 2 ? " %d:1" : " %d:0.%04u", row[14 + k], bench_random() % 10000);
                fprintf(f[3], k % 2 ? " %d:%d:1" : " %d:%d:0.%04u", k, row[14 + k],
                        bench_random() % 10000);
            }
            fputs("\n", f[2]);
            fputs("\n", f[3]);
        }
    neo_reader_close(r);
    for (int i = 0; i < 5; i++) fclose(f[i]);
}
static void measure_others(neo_ctx *ctx, const neo_schema *made, const char *dir) {
    static const int32_t three[26] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
                                      3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    static other_files paths;
    const char *name[6] = {paths.binary, paths.multi, paths.svm, paths.ffm, paths.raw,
                           paths.binary};
    static const char *const label[6] = {"binary", "binary.ids3", "libsvm", "libffm", "raw",
                                         "binary.modulo"};
    snprintf(paths.binary, sizeof paths.binary, "%s/neo-bench.bin", dir);
    snprintf(paths.multi, sizeof paths.multi, "%s/neo-bench3.bin", dir);
    snprintf(paths.svm, sizeof paths.svm, "%s/neo-bench.svm", dir);
    snprintf(paths.ffm, sizeof paths.ffm, "%s/neo-bench.ffm", dir);
    snprintf(paths.raw, sizeof paths.raw, "%s/neo-bench.raw", dir);
    write_others(ctx, made, &paths);
    for (int i = 0; i < 6; i++) {
        const char *const *path = &name[i];
        neo_schema *schema = NULL;
        neo_reader_desc d;
        neo_binary_desc records;
        neo_libsvm_desc lines;
        memset(&d, 0, sizeof d);
        memset(&records, 0, sizeof records);
        memset(&lines, 0, sizeof lines);
        records.rows = lines.rows = i == 5 ? 1000 : ROWS;
        records.modulo = i == 5;
        records.float_dense = i == 4;
        if (i == 1) records.ids_per_feature = three;
        lines.with_fields = i == 3;
        lines.fields = i == 3 ? 26 : 0;
        if (i == 2 || i == 3) BENCH_OK(neo_schema_libsvm(ctx, &lines, &schema));
        else BENCH_OK(neo_schema_binary(ctx, &records, &schema));
        d.schema = schema;
        d.paths = path;
        d.path_count = 1;
        d.threads = 1;
        measure(label[i], ctx, d, *path, 0,
                i == 0 || i == 5 ? OF_INTEGERS : i == 4 ? OF_FLOATS : NO_LOOP);
        neo_schema_destroy(schema);
    }
    for (int i = 0; i < 5; i++) remove(name[i]);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    neo_ctx *ctx = bench_ctx(1, 1);
    const char *dir = getenv("TMPDIR");
    char path[1024], csv[1024];
    const char *paths[1] = {path}, *tables[1] = {csv};
    int64_t count = bench.quick ? 50000 : 300000;
    neo_schema *made = NULL, *hash = NULL, *dict = NULL, *columns = NULL, *some = NULL;
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
    measure("criteo", ctx, d, path, want, NO_LOOP);
    d.shuffle_window = 65536;
    measure("criteo.shuffle", ctx, d, path, want, NO_LOOP);
    d.shuffle_window = 0;
    BENCH_OK(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, ROWS, NULL, "I1,C26", &some));
    d.schema = some;
    measure("criteo.columns2", ctx, d, path, 0, NO_LOOP);
    d.schema = hash;
    d.threads = 2;
    measure("criteo.threads2", ctx, d, path, want, NO_LOOP);
    d.threads = 1;
    BENCH_OK(neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, ROWS, NULL, &dict));
    BENCH_OK(neo_schema_fit(dict, paths, 1, 0));
    d.schema = dict;
    measure("criteo.dictionary", ctx, d, path, 0, NO_LOOP);

    /* Adult's shape of line, from a generator of its own */
    FILE *f = fopen(csv, "wb");
    if (!f) bench_fail("cannot write the csv file");
    for (int64_t i = 0; f && i < count; i++)
        fprintf(f, "%u, work-%u, %u.%02u, %s, job-%u, %u, %s50K\n", 17 + bench_random() % 70,
                bench_random() % 9, bench_random() % 100000, bench_random() % 100,
                bench_random() % 2 ? "Male" : "Female", bench_random() % 15,
                bench_random() % 99999, bench_random() % 4 ? "<=" : ">");
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
    measure("delimited", ctx, d, csv, 0, NO_LOOP);
    d.schema = made;
    d.paths = NULL;
    d.path_count = 0;
    measure("synthetic", ctx, d, NULL, want, NO_LOOP);
    measure_others(ctx, made, dir ? dir : "/tmp");

    remove(path);
    remove(csv);
    neo_schema_destroy(made);
    neo_schema_destroy(hash);
    neo_schema_destroy(some);
    neo_schema_destroy(dict);
    neo_schema_destroy(columns);
    neo_ctx_destroy(ctx);
    return bench_end();
}
