/* Rows by key, and rows below memory (neo_store.h): what a map and a cache cost where all rows are
   there, and what misses cost against the same reads by a bare loop.

   Build:  cc -O2 bench/cpu/tiers.c neo.o -o tiers -lm -lpthread
   Run:    tiers [--threads N] [--quick]       tiers.scratch and tiers.bare are written here

   A table of 1e6 rows (--quick: 1e5) of 64 f32, batches of 16384 ids in 512 bags. Everything is
   verified first: pooled rows have the bits of a table in memory. The two sides take turns, and
   ratios are the medians of the rounds'.

     tiers.keys       GB/s of forward of a table by key, 3/8 full, no key without a row, against the
                      same rows by their numbers
     tiers.keys_step  batches/s of its forward and backward, row-wise Adagrad, likewise
     tiers.hits       GB/s of forward, all rows in lines, against the same table in memory
     tiers.misses     rows/s of forward, no row in lines, against as many threads that read as many
                      records of as many bytes at random places of a file; both files are in the
                      system's cache
     tiers.step       batches/s of forward and backward, SGD, lines for 1 % of the rows, Zipf 1.05,
                      against the table in memory; late: rows that neo_bags_prefetch asked for too
                      late, of those that were read. Between prefetch and the rest a loop computes
                      for as long as the table in memory takes */
#include "bench/bench.h"
#include "neo_store.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { IDS = 16384, BAGS = 512, DIM = 64, BATCHES = 8, ROUNDS = 9, DEPTH = 4 };
enum { RECORD = DIM * 4 + 4 };

typedef struct subject {
    neo_ctx *ctx;
    neo_bags *plain, *tiered;
    neo_tier *tier;
    int64_t rows, *ids[BATCHES], *plain_ids[BATCHES], *offsets; /* of plain; NULL: the same */
    float *out[2];
} subject;

static neo_jagged batch_of(const subject *s, int n, int tiered) {
    neo_jagged j;
    memset(&j, 0, sizeof j);
    j.batch = BAGS;
    j.feature_count = 1;
    j.offsets = s->offsets;
    j.ids = tiered || !s->plain_ids[n] ? s->ids[n] : s->plain_ids[n];
    j.id_dtype = NEO_I64;
    return j;
}
/* Ranks with P(r) ~ r^-1.05, spread over the table. */
static int64_t zipf(int64_t rows) {
    const double u = (double)bench_random() / 2147483648.0, e = -0.05;
    const double top = pow((double)rows, e);
    return (int64_t)pow(1.0 - u * (1.0 - top), 1.0 / e) * 7919 % rows;
}
/* A context, and batches of ids. range 0: Zipf. */
static void subject_ids(subject *s, int64_t rows, int64_t range) {
    s->ctx = bench_ctx(0, 1);
    s->rows = rows;
    s->offsets = (int64_t *)bench_alloc(sizeof(int64_t) * (BAGS + 1));
    for (int64_t i = 0; i <= BAGS; i++) s->offsets[i] = i * (IDS / BAGS);
    for (int n = 0; n < BATCHES; n++) {
        s->ids[n] = (int64_t *)bench_alloc(sizeof(int64_t) * IDS);
        for (int64_t k = 0; k < IDS; k++)
            s->ids[n][k] = range ? (int64_t)(bench_random() % (uint64_t)range) : zipf(rows);
    }
    for (int i = 0; i < 2; i++) s->out[i] = (float *)bench_alloc(sizeof(float) * BAGS * DIM);
}
static neo_table_desc table_of(int64_t rows, neo_bag_optim_kind kind) {
    neo_table_desc table;
    memset(&table, 0, sizeof table);
    table.name = "t";
    table.rows = rows;
    table.dim = DIM;
    table.optim.kind = kind;
    return table;
}
static const neo_bags_desc *desc_of(const neo_table_desc *table, neo_tier *tier) {
    static neo_bags_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.tables = table;
    desc.table_count = 1;
    desc.max_batch = BAGS;
    desc.max_ids = IDS;
    desc.tier = tier;
    return &desc;
}
/* bytes: of the cache. */
static subject subject_make(int64_t rows, int64_t range, int64_t bytes, int prefetch) {
    subject s;
    memset(&s, 0, sizeof s);
    subject_ids(&s, rows, range);
    const neo_table_desc table = table_of(rows, NEO_BAG_SGD);
    neo_tier_desc tier;
    memset(&tier, 0, sizeof tier);
    tier.path = "tiers.scratch";
    tier.memory_bytes = bytes;
    tier.queue_depth = DEPTH;
    tier.prefetch = prefetch;
    BENCH_OK(neo_bags_create(s.ctx, desc_of(&table, NULL), &s.plain));
    BENCH_OK(neo_tier_create(s.ctx, &tier, &s.tier));
    BENCH_OK(neo_bags_create(s.ctx, desc_of(&table, s.tier), &s.tiered));
    return s;
}
static void subject_free(subject *s) {
    neo_bags_destroy(s->tiered);
    neo_tier_destroy(s->tier);
    neo_bags_destroy(s->plain);
    neo_ctx_destroy(s->ctx);
    for (int n = 0; n < BATCHES; n++) free(s->ids[n]), free(s->plain_ids[n]);
    free(s->offsets);
    free(s->out[0]);
    free(s->out[1]);
}
static void forward(const subject *s, int n, int tiered) {
    neo_jagged j = batch_of(s, n, tiered);
    BENCH_OK(neo_bags_forward(tiered ? s->tiered : s->plain, &j,
                              neo_tensor_2d(s->out[tiered], NEO_F32, BAGS, DIM)));
}
static void verify(const subject *s) {
    for (int n = 0; n < BATCHES; n++) {
        for (int i = 0; i < 2; i++) forward(s, n, i);
        if (memcmp(s->out[0], s->out[1], sizeof(float) * BAGS * DIM)) bench_fail("pooled rows");
    }
}

static void hits(int64_t rows) {
    subject s = subject_make(rows, rows / 8, rows * DIM * 2, 0); /* half */
    double ratio[ROUNDS], rate[ROUNDS], took[2];
    verify(&s);
    neo_tier_reset_stats(s.tier);
    for (int r = 0; r < ROUNDS; r++) {
        for (int k = 0; k < 2; k++) {
            const int i = (r + k) & 1;
            const double start = bench_seconds(s.ctx);
            for (int n = 0; n < BATCHES; n++) forward(&s, n, i);
            took[i] = bench_seconds(s.ctx) - start;
        }
        ratio[r] = took[0] / took[1];
        rate[r] = 1e-9 * BATCHES * IDS * (DIM * 4 + 8) / took[1];
    }
    const neo_tier_stats stats = neo_tier_get_stats(s.tier);
    if (stats.hits != stats.lookups) bench_fail("not all hits");
    bench_report("tiers.hits", bench_median(rate, ROUNDS), "GB/s", -1, "memory",
                 bench_median(ratio, ROUNDS));
    subject_free(&s);
}

/* ---- keys ---- */
static double keys_round(subject *s, int keyed, int backward, double took[2]) {
    const double start = bench_seconds(s->ctx);
    for (int n = 0; n < BATCHES; n++) {
        neo_jagged j = batch_of(s, n, keyed);
        forward(s, n, keyed);
        if (backward)
            BENCH_OK(neo_bags_backward(keyed ? s->tiered : s->plain, &j,
                                       neo_tensor_2d(s->out[keyed], NEO_F32, BAGS, DIM), 1e-6f));
    }
    return took[keyed] = bench_seconds(s->ctx) - start;
}
static void keys(int64_t rows) {
    subject s;
    memset(&s, 0, sizeof s);
    rows = rows / 32 * 32;
    const int64_t count = rows * 3 / 8;
    uint64_t *key = (uint64_t *)bench_alloc(sizeof *key * (size_t)count);
    int64_t *at = (int64_t *)bench_alloc(sizeof *at * (size_t)count);
    subject_ids(&s, rows, count);
    neo_table_desc table = table_of(rows, NEO_BAG_ROWWISE_ADAGRAD);
    BENCH_OK(neo_bags_create(s.ctx, desc_of(&table, NULL), &s.plain));
    table.keys.on = 1;
    BENCH_OK(neo_bags_create(s.ctx, desc_of(&table, NULL), &s.tiered));
    for (int64_t i = 0; i < count; i++) key[i] = (uint64_t)i;
    BENCH_OK(neo_bags_put_keys(s.tiered, 0, key, count, at));
    for (int64_t i = 0; i < count; i++) {
        float row[DIM];
        if (at[i] < 0) bench_fail("a set is full");
        BENCH_OK(neo_bags_get_rows(s.tiered, 0, at[i], 1, row));
        BENCH_OK(neo_bags_set_rows(s.plain, 0, at[i], 1, row));
    }
    for (int n = 0; n < BATCHES; n++) {
        s.plain_ids[n] = (int64_t *)bench_alloc(sizeof(int64_t) * IDS);
        for (int64_t k = 0; k < IDS; k++) s.plain_ids[n][k] = at[s.ids[n][k]];
    }
    free(key);
    free(at);
    verify(&s);
    for (int backward = 0; backward < 2; backward++) {
        double ratio[ROUNDS], rate[ROUNDS], took[2];
        for (int r = 0; r < ROUNDS; r++) {
            for (int k = 0; k < 2; k++) keys_round(&s, (r + k) & 1, backward, took);
            ratio[r] = took[0] / took[1];
            rate[r] = (backward ? BATCHES : 1e-9 * BATCHES * IDS * (DIM * 4 + 8)) / took[1];
        }
        bench_report(backward ? "tiers.keys_step" : "tiers.keys", bench_median(rate, ROUNDS),
                     backward ? "batches/s" : "GB/s", -1, "rows", bench_median(ratio, ROUNDS));
    }
    verify(&s); /* trained to the same bits, too */
    subject_free(&s);
}

/* ---- misses ---- */
typedef struct reader {
    int file;
    const int64_t *ids;
    int64_t count;
    pthread_t thread;
} reader;
static void *read_records(void *arg) {
    const reader *r = (const reader *)arg;
    char record[RECORD];
    for (int64_t k = 0; k < r->count; k++)
        if (pread(r->file, record, RECORD, (off_t)(r->ids[k] * RECORD)) != RECORD)
            bench_fail("a bare read");
    return NULL;
}
static double bare(int file, const int64_t *ids) {
    reader r[DEPTH];
    const int64_t start = neo_time_ns();
    for (int i = 0; i < DEPTH; i++) {
        r[i].file = file;
        r[i].ids = ids + i * (IDS / DEPTH);
        r[i].count = IDS / DEPTH;
        if (pthread_create(&r[i].thread, NULL, read_records, &r[i])) bench_fail("a thread");
    }
    for (int i = 0; i < DEPTH; i++) pthread_join(r[i].thread, NULL);
    return 1e-9 * (double)(neo_time_ns() - start);
}
static void misses(int64_t rows) {
    subject s = subject_make(rows, rows, 14 << 20, 0);
    double ratio[ROUNDS], rate[ROUNDS];
    float row[DIM];
    char record[RECORD] = {1};
    const int file = open("tiers.bare", O_RDWR | O_CREAT | O_TRUNC, 0666);
    for (int64_t i = 0; i < rows; i++) {
        BENCH_OK(neo_bags_get_rows(s.plain, 0, i, 1, row));
        BENCH_OK(neo_bags_set_rows(s.tiered, 0, i, 1, row));
        if (pwrite(file, record, RECORD, (off_t)(i * RECORD)) != RECORD) bench_fail("a bare write");
    }
    verify(&s);
    for (int r = 0; r < ROUNDS; r++) {
        double neo = 0, loop = 0;
        const int64_t before = neo_tier_get_stats(s.tier).read;
        for (int n = 0; n < BATCHES; n++) {
            if (r & 1) loop += bare(file, s.ids[n]);
            const int64_t start = neo_time_ns();
            forward(&s, n, 1);
            neo += 1e-9 * (double)(neo_time_ns() - start);
            if (!(r & 1)) loop += bare(file, s.ids[n]);
        }
        const double read = (double)(neo_tier_get_stats(s.tier).read - before);
        rate[r] = read / neo;
        ratio[r] = rate[r] / (BATCHES * IDS / loop);
    }
    bench_report("tiers.misses", 1e-6 * bench_median(rate, ROUNDS), "Mrows/s", -1, "bare_loop",
                 bench_median(ratio, ROUNDS));
    subject_free(&s);
    close(file);
    unlink("tiers.bare");
}

/* ---- steps ---- */
static double step(const subject *s, int n, int tiered, double compute) {
    neo_bags *bags = tiered ? s->tiered : s->plain;
    neo_jagged j = batch_of(s, n, tiered), next = batch_of(s, (n + 1) % BATCHES, tiered);
    const int64_t start = neo_time_ns();
    forward(s, n, tiered);
    if (tiered) BENCH_OK(neo_bags_prefetch(bags, &next));
    while (1e-9 * (double)(neo_time_ns() - start) < compute) continue;
    BENCH_OK(neo_bags_backward(bags, &j, neo_tensor_2d(s->out[tiered], NEO_F32, BAGS, DIM), 1e-6f));
    return 1e-9 * (double)(neo_time_ns() - start);
}
static void steps(int64_t rows) {
    const int64_t room = 16 << 20; /* what a batch needs */
    subject s = subject_make(rows, 0, room + rows / 100 * (DIM * 4 + 18), 1);
    double ratio[ROUNDS], rate[ROUNDS];
    for (int n = 0; n < BATCHES; n++) step(&s, n, 0, 0), step(&s, n, 1, 0);
    neo_tier_reset_stats(s.tier);
    for (int r = 0; r < ROUNDS; r++) {
        double took[2] = {0, 0}, compute = 0;
        for (int n = 0; n < BATCHES; n++) compute += step(&s, n, 0, 0);
        for (int n = 0; n < BATCHES; n++)
            for (int k = 0; k < 2; k++)
                took[(n + k) & 1] += step(&s, n, (n + k) & 1, 2 * compute / BATCHES);
        for (int n = 0; n < BATCHES; n++) step(&s, n, 1, 0);
        ratio[r] = took[0] / took[1];
        rate[r] = BATCHES / took[1];
    }
    const neo_tier_stats t = neo_tier_get_stats(s.tier);
    bench_report("tiers.step", bench_median(rate, ROUNDS), "batches/s", -1, "memory",
                 bench_median(ratio, ROUNDS));
    printf("# tiers.step: %.1f %% hits, %.1f %% of the rows read were late\n",
           100.0 * (double)t.hits / (double)t.lookups,
           100.0 * (double)t.late / (double)(t.read ? t.read : 1));
    subject_free(&s);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    const int64_t rows = bench.quick ? 100000 : 1000000;
    keys(rows);
    hits(rows);
    misses(rows);
    steps(rows);
    return bench_end();
}
