/* reader.c: how fast readers turn text into batches.

   Ceiling: reading the same file from the page cache into a buffer with one
   thread and doing nothing with it, measured alternately with the reader, in
   the same run. First the batches are compared with a plain parser of the same
   file (an order-free checksum of all labels, numbers and ids). Reader threads
   are 1 unless the name says otherwise; the caller only takes the batches. The
   clock is CPU time, of all threads together.

   Chosen columns of Criteo lines, 2 and 6 of 40, also stand beside a bare loop
   that reads the file and counts its tabs and line ends.

   Records become batches of 1.6 times their bytes. Peer of binary formats (of
   arrays, too): a loop on one thread that reads the same bytes and writes the
   same batches, of ids and logarithms that it does not check (of modulo, ids
   by a constant). */
#if !defined(_WIN32)
#define _FILE_OFFSET_BITS 64
#endif
#include "neo_data.h"
#include "bench/bench.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 100000, FEW_ROWS = 1000, BATCH = 2048, REPEATS = 7, AHEAD = 8 };

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
    double start = bench_process_seconds();
    int64_t bytes = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t n; fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0;) bytes += n;
    if (fd >= 0) close(fd);
    return 1e-9 * (double)bytes / (bench_process_seconds() - start);
}
/* The same, and its tabs and line ends are counted. GB/s */
static double read_stops(const char *path) {
    typedef signed char lanes __attribute__((vector_size(16)));
    static lanes buffer[131072 / sizeof(lanes)];
    enum { MOST = 64 }; /* a lane holds so many */
    double start = bench_process_seconds();
    int64_t bytes = 0, stops = 0;
    int fd = open(path, O_RDONLY);
    for (ssize_t n; fd >= 0 && (n = read(fd, buffer, sizeof buffer)) > 0; bytes += n) {
        const lanes *x = buffer, *end = buffer + (n + 15) / 16;
        memset((char *)buffer + n, 0, (size_t)(-n & 15));
        while (x < end) {
            lanes sum = {0};
            for (const lanes *stop = x + MOST < end ? x + MOST : end; x < stop; x++)
                sum += (*x == '\t') + (*x == '\n');
            for (int i = 0; i < 16; i++) stops -= sum[i];
        }
    }
    if (fd >= 0) close(fd);
    if (stops % 40) bench_fail("a line has other than 40 fields");
    return 1e-9 * (double)bytes / (bench_process_seconds() - start);
}
static int64_t file_bytes(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : 0;
}
/* Batches of the bare loops, as many as the reader has. */
static struct bare_batch {
    int64_t ids[214 * BATCH];
    float label[BATCH], dense[BATCH * 13];
} bare_batches[AHEAD + 1];
/* Ids [0, count) of each of 26 features of rows so many numbers apart, to [26][count]; modulo: by a
   division that the compiler knows. */
static inline __attribute__((always_inline)) void bare_words(const int32_t *rows, int stride,
                                                             int count, int modulo, int64_t *ids) {
    for (int i = 0; i < count; i += 16)
        for (int t = 0; t < 26; t++) {
            int64_t *to = ids + t * (int64_t)count;
            for (int k = i; k < i + 16 && k < count; k++) {
                const int32_t id = rows[k * stride + t];
                to[k] = modulo ? (int64_t)((uint32_t)id % FEW_ROWS) : id;
            }
        }
}
/* The batch is looked at. */
static struct bare_batch *bare_next(struct bare_batch *b, int count) {
    if (b->label[0] + b->dense[count * 13 - 1] + (float)b->ids[count - 1] < 0)
        bench_fail("a record holds a number below 0");
    return b < bare_batches + AHEAD ? b + 1 : bare_batches;
}
/* The records of a file as labels, dense numbers and ids of a batch, feature by feature; integers
   through a table of logarithms. GB/s of the file. */
static double read_bare(const char *path, int is_float, int modulo) {
    static int32_t rows[BATCH][40];
    static float logs[4096];
    struct bare_batch *b = bare_batches;
    int64_t bytes = 0;
    for (int i = 0; i < 4096; i++) logs[i] = (float)log(i + 1.0);
    int fd = open(path, O_RDONLY);
    double start = bench_process_seconds();
    for (ssize_t n; fd >= 0 && (n = read(fd, rows, sizeof rows)) > 0; bytes += n) {
        const int count = (int)(n / (ssize_t)sizeof *rows);
        for (int i = 0; i < count; i++) {
            float *dense = b->dense + 13 * i;
            b->label[i] = (float)rows[i][0];
            if (is_float) memcpy(dense, &rows[i][1], 13 * sizeof *dense);
            else
                for (int k = 0; k < 13; k++) dense[k] = logs[rows[i][1 + k] & 4095];
        }
        if (modulo) bare_words(&rows[0][14], 40, count, 1, b->ids);
        else bare_words(&rows[0][14], 40, count, 0, b->ids);
        b = bare_next(b, count);
    }
    if (fd >= 0) close(fd);
    return 1e-9 * (double)bytes / (bench_process_seconds() - start);
}
/* Arrays of numbers of 32 bits with a row for each sample, in whole batches: labels, 13 dense
   numbers, and ids, some of each feature or one of all. */
enum { LABEL = -2, DENSE = -1, WORDS = 26 }; /* else a feature */
typedef struct plane {
    int fd, width, what;
    int64_t at; /* byte of the file */
} plane;
typedef struct plane_set {
    plane plane[28];
    int count;
    int64_t samples, bytes;
} plane_set;
static plane_set arrays;
static void plane_add(const char *path, int what, int width, int64_t at) {
    plane p = {open(path, O_RDONLY), width, what, at};
    if (p.fd < 0) bench_fail("cannot read an array");
    arrays.plane[arrays.count++] = p;
    arrays.bytes += 4 * arrays.samples * width;
}
static void planes_close(void) {
    for (int i = 0; i < arrays.count; i++) close(arrays.plane[i].fd);
    arrays.count = 0;
    arrays.bytes = 0;
}
static int32_t *plane_read(const plane *p, int64_t first, int count, void *to) {
    size_t bytes = 4 * (size_t)count * (size_t)p->width;
    if (pread(p->fd, to, bytes, p->at + first * p->width * 4) != (ssize_t)bytes)
        bench_fail("an array is cut off");
    return (int32_t *)to;
}
static uint64_t sum_planes(void) {
    static int32_t rows[BATCH * 100];
    uint64_t sum = 0;
    for (const plane *p = arrays.plane; p < arrays.plane + arrays.count; p++)
        for (int64_t first = 0; first < arrays.samples; first += BATCH) {
            plane_read(p, first, BATCH, rows);
            for (int i = 0; i < BATCH * p->width; i++) {
                uint64_t x = (uint32_t)rows[i], k = (uint64_t)(i % p->width);
                sum += mix(p->what == LABEL   ? float_bits((float)rows[i]) + 1
                           : p->what == DENSE ? x * 64 + k
                                              : x * 64 + 32 + (p->what == WORDS ? k
                                                               : (uint64_t)p->what));
            }
        }
    return sum;
}
/* The same for arrays. GB/s of them. */
static double read_planes(void) {
    static int32_t rows[BATCH * 100];
    struct bare_batch *b = bare_batches;
    double start = bench_process_seconds();
    for (int64_t first = 0; first < arrays.samples; first += BATCH) {
        int64_t *ids = b->ids;
        for (const plane *p = arrays.plane; p < arrays.plane + arrays.count; p++) {
            const int32_t *x = plane_read(p, first, BATCH, p->what == DENSE ? (void *)b->dense
                                                                            : (void *)rows);
            if (p->what == WORDS) bare_words(x, 26, BATCH, 0, ids);
            if (p->what == LABEL)
                for (int i = 0; i < BATCH; i++) b->label[i] = (float)x[i];
            for (int i = 0; p->what >= 0 && p->what < WORDS && i < BATCH * p->width; i++)
                *ids++ = x[i];
        }
        b = bare_next(b, BATCH);
    }
    return 1e-9 * (double)arrays.bytes / (bench_process_seconds() - start);
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
    double start = bench_process_seconds();
    while ((st = neo_reader_next(r, &b)) == NEO_OK)
        if (check) e.sum += sum_batch(&b);
    e.seconds = bench_process_seconds() - start;
    if (st != NEO_END) bench_fail(neo_last_error());
    e.samples = neo_reader_get_stats(r).samples;
    e.bytes = neo_reader_get_stats(r).total_bytes; /* 0: arrays, records; see measure */
    return e;
}
/* path NULL: no file, no ceiling. bare: of records of one id the loop of read_bare, of the arrays
   that of read_planes, and path is then the ids'; of lines that of read_stops. */
enum { NO_LOOP = -1, OF_INTEGERS, OF_MODULO, OF_FLOATS, OF_PLANES, OF_STOPS };
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
        if (path && e.bytes == 0) e.bytes = bare == OF_PLANES ? arrays.bytes : file_bytes(path);
        rate[i] = (double)e.bytes / e.seconds * 1e-6;
        samples[i] = (double)e.samples / e.seconds;
        if (bare >= 0)
            ratio[i] =
                1e-3 * rate[i] /
                (bare == OF_PLANES  ? read_planes()
                 : bare == OF_STOPS ? read_stops(path)
                                    : read_bare(path, bare == OF_FLOATS, bare == OF_MODULO));
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
static void measure_others(neo_ctx *ctx, const neo_schema *made, const char *dir, uint64_t want) {
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
        records.rows = lines.rows = i == 5 ? FEW_ROWS : ROWS;
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
        measure(label[i], ctx, d, *path, i == 0 || i == 4 ? want : 0,
                i == 0   ? OF_INTEGERS
                : i == 4 ? OF_FLOATS
                : i == 5 ? OF_MODULO
                         : NO_LOOP);
        neo_schema_destroy(schema);
    }
    for (int i = 0; i < 5; i++) remove(name[i]);
}
/* An archive of an i32 array for each feature, of the ids that MLPerf's samples have: local headers
   and members, then the directory. There are no checksums, which no reader needs to find them. */
static const int mlperf_hot[26] = {3, 2, 1, 2, 6, 1,  1, 1, 1,  7, 3,   8,  1,
                                   6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1,  1};
static void put(FILE *f, int bytes, int64_t value) {
    for (int i = 0; i < bytes; i++) fputc((int)(value >> 8 * i & 255), f);
}
static void put_member(FILE *f, const char *name, int64_t bytes, int64_t at) {
    put(f, 4, at < 0 ? 0x04034B50 : 0x02014B50);
    put(f, at < 0 ? 2 : 4, at < 0 ? 20 : 20 | 20 << 16);
    put(f, 12, 0); /* flags, stored, time, no checksum */
    put(f, 4, bytes);
    put(f, 4, bytes);
    put(f, 4, (int64_t)strlen(name));
    if (at >= 0) put(f, 10, 0), put(f, 4, at);
    fputs(name, f);
}
static void write_archive(const char *path) {
    FILE *f = fopen(path, "wb");
    int32_t ids[100];
    int64_t at[26], end;
    char name[16], header[119];
    if (!f) bench_fail("cannot write an archive");
    for (int t = 0; t < 26; t++) {
        at[t] = ftell(f);
        snprintf(name, sizeof name, "%d.npy", t);
        put_member(f, name, 128 + 4 * arrays.samples * mlperf_hot[t], -1);
        fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
        snprintf(header, sizeof header,
                 "{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }",
                 (int)arrays.samples, mlperf_hot[t]);
        fprintf(f, "%-117s\n", header);
        for (int64_t i = 0; i < arrays.samples; i++) {
            for (int k = 0; k < mlperf_hot[t]; k++) ids[k] = (int32_t)(bench_random() % ROWS);
            fwrite(ids, 4, (size_t)mlperf_hot[t], f);
        }
        plane_add(path, t, mlperf_hot[t], ftell(f) - 4 * arrays.samples * mlperf_hot[t]);
    }
    end = ftell(f);
    for (int t = 0; t < 26; t++) {
        snprintf(name, sizeof name, "%d.npy", t);
        put_member(f, name, 128 + 4 * arrays.samples * mlperf_hot[t], at[t]);
    }
    at[0] = ftell(f) - end;
    put(f, 4, 0x06054B50);
    put(f, 4, 0);
    put(f, 4, 26 | 26 << 16);
    put(f, 4, at[0]);
    put(f, 4, end);
    put(f, 2, 0);
    if (fclose(f)) bench_fail("cannot write an archive");
}
/* TorchRec's arrays of the same samples, and MLPerf's archive in place of their ids. */
static void measure_arrays(neo_ctx *ctx, const char *dir) {
    static const int width[3] = {1, 13, 26}, what[3] = {LABEL, DENSE, WORDS};
    static char part[4][1024];
    int64_t rows[26];
    char prefix[1000];
    const char *prefixes = prefix;
    neo_reader_desc d;
    neo_reader *r = NULL;
    neo_schema *schema;
    neo_synthetic_desc g;
    memset(&g, 0, sizeof g);
    g.samples = arrays.samples = (bench.quick ? 8 : 64) * BATCH;
    g.rows = ROWS;
    for (int t = 0; t < 26; t++) rows[t] = ROWS;
    snprintf(prefix, sizeof prefix, "%s/neo-bench_", dir);
    snprintf(part[0], sizeof part[0], "%slabels.npy", prefix);
    snprintf(part[1], sizeof part[1], "%sdense.npy", prefix);
    snprintf(part[2], sizeof part[2], "%ssparse.npy", prefix);
    snprintf(part[3], sizeof part[3], "%ssparse_multi_hot.npz", prefix);
    memset(&d, 0, sizeof d);
    BENCH_OK(neo_schema_synthetic(ctx, &g, &schema));
    d.schema = schema;
    d.batch = BATCH;
    BENCH_OK(neo_reader_open(ctx, &d, &r));
    BENCH_OK(neo_npy_export(ctx, r, prefix));
    neo_reader_close(r);
    neo_schema_destroy(schema);
    d.paths = &prefixes;
    d.path_count = d.threads = 1;
    for (int npz = 0; npz < 2; npz++) {
        for (int i = 0; i < 3 - npz; i++)
            plane_add(part[i], what[i], width[i],
                      file_bytes(part[i]) - 4 * arrays.samples * width[i]);
        if (npz) write_archive(part[3]);
        if (npz) BENCH_OK(neo_schema_npz(ctx, &prefixes, 1, rows, 0, &schema));
        else BENCH_OK(neo_schema_npy(ctx, &prefixes, 1, rows, 0, &schema));
        d.schema = schema;
        measure(npz ? "npz.ids214" : "npy", ctx, d, part[2 + npz], sum_planes(), OF_PLANES);
        neo_schema_destroy(schema);
        planes_close();
    }
    for (int i = 0; i < 4; i++) remove(part[i]);
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
    for (int i = 0; i < 2; i++) {
        const char *names = i ? "I1,I2,C1,C2,C14,C26" : "I1,C26";
        BENCH_OK(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, ROWS, NULL, names, &some));
        d.schema = some;
        measure(i ? "criteo.columns6" : "criteo.columns2", ctx, d, path, 0, OF_STOPS);
        neo_schema_destroy(some);
    }
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
    measure_others(ctx, made, dir ? dir : "/tmp", want);
    measure_arrays(ctx, dir ? dir : "/tmp");

    remove(path);
    remove(csv);
    neo_schema_destroy(made);
    neo_schema_destroy(hash);
    neo_schema_destroy(dict);
    neo_schema_destroy(columns);
    neo_ctx_destroy(ctx);
    return bench_end();
}
