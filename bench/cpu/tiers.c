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
     tiers.hits       GB/s of forward, all rows in lines, against the same table in memory. The
                      ceiling: that table, and a bare read of an index. Memory is taken anew
                      several times, as where the system puts it changes both by a tenth
     tiers.hits_ahead GB/s of forward of the same batches, announced before, against the table in
                      memory; what they need is found meanwhile, by a thread of the tier
     tiers.misses     rows/s that forward reads, few of its rows in lines, against as many threads
                      that read records of as many bytes at random places of a file, one by one;
                      both files are in the system's cache. Above 1 where rows that lie close are
                      one read
     tiers.step       steps/s of a DLRM (Criteo Kaggle's layers, 26 tables of 1e6 rows, --quick:
                      1e5, batches of 2048, Zipf 1.05) with lines for 1 % of the rows beside those
                      that a batch needs, against tables in memory, by the CPU time of the thread
                      that steps: the step's time where the tier's threads have another core.
                      Then how much longer a step takes by the CPU time of all threads, and of its
                      own, and by the clock: with prefetch, without (when it waits for them), and
                      where all are hits; and by what one thread needs for as many bare reads and
                      writes
     tiers.hidden     where each read of the file takes 20 us longer and 16 are under way (a thread
                      sleeps for 16 of its reads at once, as a sleep takes the CPU time of many
                      reads), of the time of a step of that model that lookahead can hide, the
                      share it hides, by the clock. Without it a step takes what it computes (the
                      CPU time of its thread, by as much longer as the same model in memory takes
                      than its own, on a machine with others) and what it waits; of these the lesser
                      can go beside the other: waits longer than all that is computed are not held
                      against lookahead. The ceiling: what the machine's cores leave, as a step
                      takes at least the CPU time of its thread, and of all threads over the cores:
                      where reads take that of a core, they cannot go beside a step.
                      tiers.hidden_rows: of the rows that a step without it waits for, counted as
                      those that a call reads itself, the share that none waits for with it: late
                      ones count as a whole, and rows that are read as lookahead's own room leaves
                      fewer lines. Beside them, with 0, 1, 2 and 4 batches announced, and 1 with
                      room for the rows that it reads alone: ids that find their rows in lines, rows
                      read and waited for, and the time of a step by the clock (Linux)
     tiers.keys_dlrm  the same model with ids that are keys, all with rows, against those rows by
                      their numbers, as tiers.keys. Beside it how much longer its step takes, and of
                      the same ids as rows: Zipf's law numbers rows by their use, so that those used
                      most lie side by side, as those of hashed ids do not
     tiers.save       of the time of a save that blocks, to disk, the share for which training (the
                      same model in memory) stops while one is written behind it: beginning, polls,
                      and how much longer its steps take, as they copy rows that are not yet
                      written, than beside a save of another model, which takes the same cores and
                      memory. By the CPU time of its thread; beside it by the clock, where other
                      programs show */
#include "bench/model.h"
#include "neo_state.h"
#include "neo_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

enum { IDS = 16384, BAGS = 512, COLUMNS = 64, ROUNDS = 9, DEPTH = 4, RECORD = COLUMNS * 4 + 4 };

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
/* A context, and batches of ids. */
static void subject_ids(subject *s, int64_t rows, int64_t range) {
    s->ctx = bench_ctx(0, 1);
    s->rows = rows;
    s->offsets = (int64_t *)bench_alloc(sizeof(int64_t) * (BAGS + 1));
    for (int64_t i = 0; i <= BAGS; i++) s->offsets[i] = i * (IDS / BAGS);
    for (int n = 0; n < BATCHES; n++) {
        s->ids[n] = (int64_t *)bench_alloc(sizeof(int64_t) * IDS);
        for (int64_t k = 0; k < IDS; k++)
            s->ids[n][k] = (int64_t)(bench_random() % (uint64_t)range);
    }
    for (int i = 0; i < 2; i++) s->out[i] = (float *)bench_alloc(sizeof(float) * BAGS * COLUMNS);
}
static neo_table_desc table_of(int64_t rows, neo_bag_optim_kind kind) {
    neo_table_desc table;
    memset(&table, 0, sizeof table);
    table.name = "t";
    table.rows = rows;
    table.dim = COLUMNS;
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
                              neo_tensor_2d(s->out[tiered], NEO_F32, BAGS, COLUMNS)));
}
static void verify(const subject *s) {
    for (int n = 0; n < BATCHES; n++) {
        for (int i = 0; i < 2; i++) forward(s, n, i);
        if (memcmp(s->out[0], s->out[1], sizeof(float) * BAGS * COLUMNS)) bench_fail("pooled rows");
    }
}

/* Seconds that one thread takes to read 4 bytes for each id of a batch. */
static double bare_halves(const subject *s, const uint32_t *words, int n) {
    const int64_t *ids = s->ids[n];
    const double start = bench_cpu_seconds();
    uint64_t sum = 0;
    for (int64_t k = 0; k < IDS; k++) {
        __builtin_prefetch(words + ids[k + 96 < IDS ? k + 96 : k], 0, 2);
        sum += words[ids[k]];
    }
    const double took = bench_cpu_seconds() - start;
    if (sum == 0) bench_fail("words of ones"); /* so that they are read */
    return took;
}
/* The same of a word: of its row, or its set. */
static double bare_words(const subject *s, const uint64_t *words, int n, int of_set) {
    const int64_t *ids = s->plain_ids[n] ? s->plain_ids[n] : s->ids[n];
    const double start = bench_cpu_seconds();
    uint64_t sum = 0;
    for (int64_t k = 0; k < IDS; k++) {
        const int64_t row = ids[k], next = ids[k + 96 < IDS ? k + 96 : k];
        __builtin_prefetch(words + (of_set ? next / 32 * 4 : next), 0, 2);
        sum += words[of_set ? row / 32 * 4 : row];
    }
    const double took = bench_cpu_seconds() - start;
    if (sum == 0) bench_fail("words of ones"); /* so that they are read */
    return took;
}
/* Seconds of forward of a batch: 0 plain, 1 of lines, 2 of lines of a batch that was announced and
   whose lines are found; and of announcing it. Turns have other batches: their rows are apart. */
static double hits_call(subject *s, int n, int kind, double *announced) {
    const neo_jagged j = batch_of(s, n, 1);
    const double begin = bench_seconds(s->ctx);
    if (kind == 2) BENCH_OK(neo_bags_prefetch(s->tiered, &j));
    const double start = bench_seconds(s->ctx);
    if (kind == 2) *announced += start - begin;
    if (kind == 2) (void)neo_tier_get_stats(s->tier);
    const double then = bench_seconds(s->ctx);
    forward(s, n, kind > 0);
    return bench_seconds(s->ctx) - then;
}
static subject hits_make(int64_t rows) {
    const int64_t room = 12 << 20; /* for what a batch needs */
    subject s = subject_make(rows, rows / 8, room + rows * COLUMNS * 2, 1); /* half */
    verify(&s);
    neo_tier_reset_stats(s.tier);
    return s;
}
static void hits(int64_t rows) {
    enum { ANEW = 3 }; /* rounds with the same memory */
    double ratio[ROUNDS], rate[ROUNDS], least[ROUNDS], known[ROUNDS], told[ROUNDS];
    uint32_t *words = (uint32_t *)bench_alloc(sizeof *words * (size_t)rows);
    memset(words, 1, sizeof *words * (size_t)rows);
    subject s = hits_make(rows);
    for (int r = 0; r < ROUNDS; r++) {
        double bare = 0, announced = 0, took[3] = {0};
        if (r && r % ANEW == 0) subject_free(&s), s = hits_make(rows);
        for (int n = 0; n < BATCHES; n++) {
            for (int k = 0; k < 3; k++) {
                const int kind = (r + n + k) % 3, batch = (n + kind * BATCHES / 3) % BATCHES;
                took[kind] += hits_call(&s, batch, kind, &announced);
            }
            bare += bare_halves(&s, words, n);
        }
        ratio[r] = took[0] / took[1];
        least[r] = took[0] / (took[0] + bare);
        rate[r] = 1e-9 * BATCHES * IDS * (COLUMNS * 4 + 8) / took[1];
        known[r] = took[0] / took[2];
        told[r] = announced / took[2];
        const neo_tier_stats stats = neo_tier_get_stats(s.tier);
        if (stats.hits != stats.lookups) bench_fail("not all hits");
    }
    free(words);
    const double most = bench_median(least, ROUNDS), reached = bench_median(ratio, ROUNDS);
    bench_report("tiers.hits", bench_median(rate, ROUNDS), "GB/s", 100 * reached / most, "memory",
                 reached);
    bench_report("tiers.hits_ahead", bench_median(rate, ROUNDS) / reached *
                 bench_median(known, ROUNDS), "GB/s", -1, "memory", bench_median(known, ROUNDS));
    printf("# tiers.hits: from %.2f to %.2f in those rounds; the ceiling, with a bare read of 4 "
           "bytes by each id, has a ratio of %.2f\n",
           ratio[0], ratio[ROUNDS - 1], most);
    printf("# tiers.hits_ahead: announcing a batch takes %.0f %% of that\n",
           100 * bench_median(told, ROUNDS));
    subject_free(&s);
}

/* ---- keys ---- */
static double keys_call(subject *s, int n, int keyed, int backward) {
    neo_jagged j = batch_of(s, n, keyed);
    const double start = bench_seconds(s->ctx);
    forward(s, n, keyed);
    if (backward)
        BENCH_OK(neo_bags_backward(keyed ? s->tiered : s->plain, &j,
                                   neo_tensor_2d(s->out[keyed], NEO_F32, BAGS, COLUMNS), 1e-6f));
    return bench_seconds(s->ctx) - start;
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
        float row[COLUMNS];
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
    uint64_t *words = (uint64_t *)neo_alloc(s.ctx, sizeof *words * (size_t)rows);
    memset(words, 1, sizeof *words * (size_t)rows);
    for (int backward = 0; backward < 2; backward++) {
        double ratio[ROUNDS], rate[ROUNDS], least[ROUNDS];
        for (int r = 0; r < ROUNDS; r++) {
            double took[2] = {0, 0}, bare = 0;
            for (int n = 0; n < BATCHES; n++) {
                for (int k = 0; k < 2; k++)
                    took[(r + n + k) & 1] += keys_call(&s, n, (r + n + k) & 1, backward);
                for (int k = 0; k < 2; k++) bare += bare_words(&s, words, n, k);
            }
            ratio[r] = took[0] / took[1];
            least[r] = took[0] / (took[0] + bare);
            rate[r] = (backward ? BATCHES : 1e-9 * BATCHES * IDS * (COLUMNS * 4 + 8)) / took[1];
        }
        const double most = bench_median(least, ROUNDS), reached = bench_median(ratio, ROUNDS);
        bench_report(backward ? "tiers.keys_step" : "tiers.keys", bench_median(rate, ROUNDS),
                     backward ? "batches/s" : "GB/s", 100 * reached / most, "rows", reached);
        printf("# tiers.keys%s: the ceiling, rows and bare reads of the tags and the key of each "
               "id, has a ratio of %.2f\n", backward ? "_step" : "", most);
    }
    neo_free(s.ctx, words, sizeof *words * (size_t)rows);
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
    float row[COLUMNS];
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

/* ---- steps of a DLRM ---- */
enum { SAMPLES = 2048, POOL = MOST_BATCHES, CLOCKS = 3, TURNS = 5 };
enum { MEMORY, AHEAD, ALONE, ALL_HITS, KINDS };
typedef struct trained {
    model m;
    neo_tier *tier;
    int ahead;       /* batches announced */
    const data *ids; /* NULL: those of all */
    double took[CLOCKS]; /* seconds of this round: of CPU, of all threads and of the one that
                            steps; by the clock */
} trained;
/* lines: of the tier, as a part of the rows; 0: no tier. */
static int tier_depth = DEPTH, slow_reads; /* of the next tier; its reads are calls of pread */
static int64_t tier_ahead_rows;            /* likewise */
static trained trained_make(neo_ctx *ctx, int64_t rows, int keys, double lines, int ahead) {
    static int made;
    int64_t of_tables[TABLES];
    char path[64];
    trained t;
    memset(&t, 0, sizeof t);
    t.ahead = ahead;
    if (lines > 0) {
        const double ids = SAMPLES * TABLES, each = 4 * (DIM + 1) + 18;
        neo_tier_desc tier = {.path = path, .queue_depth = tier_depth, .prefetch = ahead,
                              .no_io_uring = slow_reads, .ahead_rows = tier_ahead_rows};
        snprintf(path, sizeof path, "tiers.scratch%d", made++);
        tier.memory_bytes = (int64_t)(1.2 * ids * 300 + lines * each * (double)(rows * TABLES));
        BENCH_OK(neo_tier_create(ctx, &tier, &t.tier));
    }
    const model_desc d = {.batch = SAMPLES, .tier = t.tier};
    BENCH_OK(kaggle_create(&t.m, ctx, d, same_rows(of_tables, rows), keys));
    return t;
}
static void trained_free(trained *t) {
    model_destroy(&t->m);
    neo_tier_destroy(t->tier);
}
/* A step with batch i; bags_forward is call 1. */
static void trained_step(trained *t, const data *s, int i) {
    if (t->ids) s = t->ids;
    const model_batch b = {s->dense[i], s->label[i], neo_jagged_view(s->ids[i])};
    const double all = bench_process_seconds(), own = bench_cpu_seconds();
    const int64_t start = neo_time_ns();
    for (int call = 0; call < MODEL_CALLS; call++) {
        BENCH_OK(model_call(&t->m, &b, call, 0.01f, NULL));
        if (call == 1)
            BENCH_OK(neo_bags_prefetch(t->m.bags, neo_jagged_view(s->ids[(i + t->ahead) % POOL])));
    }
    t->took[0] += bench_process_seconds() - all;
    t->took[1] += bench_cpu_seconds() - own;
    t->took[2] += 1e-9 * (double)(neo_time_ns() - start);
}
/* Rounds over all batches, in turns. more: [kind][clock] a step's time over that of kind 0. */
static void trained_rounds(trained *t, int kinds, const data *s, double more[][CLOCKS],
                           double *seconds) {
    static double ratio[KINDS][CLOCKS][TURNS], first[TURNS];
    for (int k = 0; k < kinds; k++) {
        for (int i = 0; i < POOL; i++) trained_step(&t[k], s, i);
        if (t[k].tier) neo_tier_reset_stats(t[k].tier);
    }
    for (int r = 0; r < TURNS; r++) {
        for (int k = 0; k < kinds; k++) memset(t[k].took, 0, sizeof t[k].took);
        for (int i = 0; i < POOL; i++)
            for (int k = 0; k < kinds; k++) trained_step(&t[(r + i + k) % kinds], s, i);
        for (int k = 0; k < kinds; k++)
            for (int c = 0; c < CLOCKS; c++) ratio[k][c][r] = t[k].took[c] / t[0].took[c];
        first[r] = t[0].took[0] / POOL;
    }
    for (int k = 0; k < kinds; k++)
        for (int c = 0; c < CLOCKS; c++) more[k][c] = bench_median(ratio[k][c], TURNS);
    *seconds = bench_median(first, TURNS);
    for (int k = 1; k < kinds && bench.quick; k++) /* of many rows it takes long */
        if (neo_state_digest(t[k].m.state) != neo_state_digest(t[0].m.state) && t[k].tier)
            bench_fail("bits of a trained model");
}
/* Seconds of CPU that `reads` records and `writes` take, one by one, at random places. */
static double bare_seconds(int64_t records, double reads, double writes) {
    enum { BYTES = 4 * DIM + 8 };
    char record[BYTES] = {1};
    double best = 1e9;
    const int file = open("tiers.bare", O_RDWR | O_CREAT | O_TRUNC, 0666);
    for (int64_t i = 0; i < records; i++)
        if (pwrite(file, record, BYTES, (off_t)(i * BYTES)) != BYTES) bench_fail("a bare write");
    for (int r = 0; r < TURNS; r++) {
        const double start = bench_cpu_seconds();
        for (int64_t k = 0; k < (int64_t)(reads + writes); k++) {
            const off_t at = (off_t)(bench_random() % (uint64_t)records * BYTES);
            if ((k < (int64_t)reads ? pread(file, record, BYTES, at)
                                    : pwrite(file, record, BYTES, at)) != BYTES)
                bench_fail("a bare read or write");
        }
        best = fmin(best, bench_cpu_seconds() - start);
    }
    close(file);
    unlink("tiers.bare");
    return best;
}
static void steps(int64_t rows) {
    static const char *const name[KINDS] = {"", "prefetch", "no prefetch", "all hits"};
    neo_ctx *ctx = bench_ctx(0, 1);
    data s = make_data_of(ctx, POOL, SAMPLES, rows, 1.05f);
    trained t[KINDS];
    double more[KINDS][CLOCKS], seconds;
    for (int k = 0; k < KINDS; k++)
        t[k] = trained_make(ctx, rows, 0, k == MEMORY ? 0 : k == ALL_HITS ? 0.6 : 0.01, k == AHEAD);
    trained_rounds(t, KINDS, &s, more, &seconds);
    bench_report("tiers.step", 1 / (seconds * more[AHEAD][1]), "steps/s", -1, "memory",
                 1 / more[AHEAD][1]);
    for (int k = 1; k < KINDS; k++) {
        const neo_tier_stats st = neo_tier_get_stats(t[k].tier);
        const double n = TURNS * POOL;
        printf("# tiers.step, %s: all threads %+.1f %%, its own %+.1f %%, by the clock %+.1f %%; "
               "lines for %.2f %% of the rows, %.1f %% hits; rows of a step: %.0f read (%.0f "
               "ahead), %.0f written\n",
               name[k], 100 * (more[k][0] - 1), 100 * (more[k][1] - 1), 100 * (more[k][2] - 1),
               100 * ((double)st.line_count / TABLES - SAMPLES - 1) / (double)rows,
               100 * (double)st.hits / (double)st.lookups, (double)st.read / n,
               (double)st.prefetched / n, (double)st.written / n);
        if (k != ALONE) continue;
        const double bare = bare_seconds(rows * 4, (double)st.read / n, (double)st.written / n);
        printf("# tiers.step: as many bare reads and writes: %+.1f %%\n", 100 * bare / seconds);
    }
    for (int k = AHEAD; k <= ALONE; k++)
        printf("# tiers.step, %s: %.0f %% of the CPU time of misses is other threads'\n", name[k],
               100 * (more[k][0] - more[k][1]) / (more[k][0] - more[ALL_HITS][0]));
    for (int k = 0; k < KINDS; k++) trained_free(&t[k]);
    free_data(ctx, &s);
    neo_ctx_destroy(ctx);
}
#if defined(__linux__)
/* A slower file: this program's pread is the one that neo calls. A thread sleeps for SLEPT reads at
   once: a sleep takes CPU time, as no device does. */
enum { SLEPT = 16 };
static int64_t read_delay_ns;
static _Thread_local int64_t read_debt_ns;
long syscall(long number, ...);
ssize_t pread(int file, void *to, size_t bytes, off_t at) {
    const int64_t delay = __atomic_load_n(&read_delay_ns, __ATOMIC_RELAXED);
    read_debt_ns += delay;
    if (delay && read_debt_ns >= SLEPT * delay) {
        const struct timespec debt = {0, (long)read_debt_ns};
        nanosleep(&debt, NULL);
        read_debt_ns = 0;
    }
    return (ssize_t)syscall(SYS_pread64, file, to, bytes, at);
}
/* A pool of steps with slow reads, behind one without; says what they do. lines 0: in memory. */
typedef struct seen {
    double clock, own, all; /* ms of a step; of CPU: of its thread, and of all */
    double read, waited;
} seen;
static seen slow_steps(neo_ctx *ctx, const data *s, int64_t rows, double lines, int ahead) {
    enum { DELAY_NS = 20000 };
    trained t = trained_make(ctx, rows, 0, lines, ahead);
    for (int i = 0; i < POOL; i++) trained_step(&t, s, i);
    if (t.tier) neo_tier_reset_stats(t.tier);
    memset(t.took, 0, sizeof t.took);
    __atomic_store_n(&read_delay_ns, (int64_t)DELAY_NS, __ATOMIC_RELAXED);
    for (int i = 0; i < POOL; i++) trained_step(&t, s, i);
    __atomic_store_n(&read_delay_ns, (int64_t)0, __ATOMIC_RELAXED);
    seen did = {1e3 * t.took[2] / POOL, 1e3 * t.took[1] / POOL, 1e3 * t.took[0] / POOL, 0, 0};
    if (t.tier) {
        const neo_tier_stats st = neo_tier_get_stats(t.tier);
        did.read = (double)st.read / POOL;
        did.waited = (double)(st.read - st.prefetched) / POOL;
        printf("# tiers.hidden, %d ahead, room for %.0f rows: %.1f %% hits; rows of a step: %.0f "
               "read, %.0f waited for (%.0f late, %.0f refused); %.1f ms, CPU time of its own "
               "%.1f, of all threads %.1f\n",
               ahead, (double)st.ahead_rows, 100 * (double)st.hits / (double)st.lookups, did.read,
               did.waited, (double)st.late / POOL, (double)st.refused / POOL, did.clock, did.own,
               did.all);
    }
    trained_free(&t);
    return did;
}
static void hidden(int64_t rows) {
    enum { FILE_DEPTH = 16, DEPTHS = 3 };
    static const int depth[DEPTHS] = {1, 2, 4};
    neo_ctx *ctx = bench_ctx(0, 1);
    data s = make_data_of(ctx, POOL, SAMPLES, rows, 1.05f);
    seen ahead[DEPTHS];
    tier_depth = FILE_DEPTH;
    slow_reads = 1;
    (void)prctl(PR_SET_TIMERSLACK, 1UL); /* of the tier's threads too: else 50 us are added */
    const seen memory = slow_steps(ctx, &s, rows, 0, 0), none = slow_steps(ctx, &s, rows, 0.01, 0);
    for (int k = 0; k < DEPTHS; k++) ahead[k] = slow_steps(ctx, &s, rows, 0.01, depth[k]);
    tier_ahead_rows = (int64_t)(1.1 * none.read);
    const seen fitted = slow_steps(ctx, &s, rows, 0.01, 1);
    (void)prctl(PR_SET_TIMERSLACK, 0UL);
    tier_depth = DEPTH;
    slow_reads = 0;
    tier_ahead_rows = 0;
    const double computes = none.own * memory.clock / memory.own;
    const double most = fmin(computes, none.clock - computes);
    printf("# tiers.hidden: a step without lookahead computes for %.1f ms and waits for %.1f; in "
           "memory it takes %.1f; with room for the rows that it reads alone %.1f %% are hidden\n",
           computes, none.clock - computes, memory.clock, 100 * (none.clock - fitted.clock) / most);
    const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double least = fmax(ahead[0].own, ahead[0].all / cores);
    const double won = none.clock - ahead[0].clock;
    printf("# tiers.hidden: with 1 ahead %.0f cores need %.1f ms for a step, which takes %.1f\n",
           cores, least, ahead[0].clock);
    bench_report("tiers.hidden", 100 * won / most, "%",
                 none.clock > least ? 100 * won / (none.clock - least) : -1, NULL, 0);
    bench_report("tiers.hidden_rows", 100 * (1 - ahead[0].waited / none.waited), "%", -1, NULL, 0);
    free_data(ctx, &s);
    neo_ctx_destroy(ctx);
}
#else
static void hidden(int64_t rows) { (void)rows; }
#endif
/* The same batches by the rows that their keys have. */
static data rows_of_keys(neo_ctx *ctx, const neo_bags *bags, const data *s) {
    const neo_jagged_desc room = {.feature_count = TABLES, .max_bags = SAMPLES * TABLES,
                                  .max_ids = SAMPLES * TABLES};
    data d = *s;
    for (int i = 0; i < s->count; i++) {
        const neo_jagged *from = neo_jagged_view(s->ids[i]);
        neo_jagged by_row = *from;
        int64_t *ids = (int64_t *)bench_alloc(sizeof *ids * SAMPLES * TABLES);
        for (int64_t k = 0; k < SAMPLES * TABLES; k++)
            ids[k] = from->id_dtype == NEO_I32 ? ((const int32_t *)from->ids)[k]
                                               : ((const int64_t *)from->ids)[k];
        for (int t = 0; t < TABLES; t++) {
            static uint64_t key[SAMPLES];
            memcpy(key, ids + t * SAMPLES, sizeof key);
            BENCH_OK(neo_bags_find_keys(bags, t, key, SAMPLES, ids + t * SAMPLES));
        }
        for (int64_t k = 0; k < SAMPLES * TABLES; k++)
            if (ids[k] < 0) bench_fail("a key without a row");
        by_row.ids = ids;
        by_row.id_dtype = NEO_I64;
        const neo_jagged *part = &by_row;
        BENCH_OK(neo_jagged_create(ctx, &room, &d.ids[i]));
        BENCH_OK(neo_jagged_stack(d.ids[i], &part, 1));
        free(ids);
    }
    return d;
}
static void keys_dlrm(int64_t rows) {
    enum { ROWS, KEYS, RANKED, SIDES };
    neo_ctx *ctx = bench_ctx(0, 1);
    data s = make_data_of(ctx, POOL, SAMPLES, rows, 1.05f);
    double more[KINDS][CLOCKS], seconds;
    trained t[SIDES];
    for (int k = 0; k < SIDES; k++) t[k] = trained_make(ctx, rows / 32 * 32, k == KEYS, 0, 0);
    for (int i = 0; i < POOL; i++) trained_step(&t[KEYS], &s, i);
    data by_row = rows_of_keys(ctx, t[KEYS].m.bags, &s);
    t[ROWS].ids = &by_row;
    trained_rounds(t, SIDES, &s, more, &seconds);
    bench_report("tiers.keys_dlrm", 1 / (seconds * more[KEYS][0]), "steps/s", -1, "rows",
                 1 / more[KEYS][0]);
    printf("# tiers.keys_dlrm: a step takes %+.1f %%; than one of rows numbered by use %+.1f %%\n",
           100 * (more[KEYS][0] - 1), 100 * (more[KEYS][0] / more[RANKED][0] - 1));
    for (int k = 0; k < SIDES; k++) trained_free(&t[k]);
    for (int i = 0; i < POOL; i++) neo_jagged_destroy(by_row.ids[i]);
    free_data(ctx, &s);
    neo_ctx_destroy(ctx);
}

/* ---- checkpoints ---- */
static void remove_saved(const char *dir) {
    char path[600];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.')) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (unlink(path)) remove_saved(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}
static model tracked_model(neo_ctx *ctx, int64_t rows) {
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    model m;
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = table_of(rows, NEO_BAG_ROWWISE_ADAGRAD);
        tables[t].name = names[t];
        tables[t].dim = DIM;
        tables[t].track_rows = 1;
    }
    BENCH_OK(model_create(&m, ctx, &(model_desc){
        .batch = SAMPLES, .max_ids = SAMPLES * TABLES, .tables = tables, .table_count = TABLES,
        .bottom = BOTTOM, .bottom_count = 5, .top = TOP + 1, .top_count = 3,
        .optim = {.kind = NEO_OPTIM_ADAGRAD}}));
    return m;
}
/* Adds the seconds that a call takes: of this thread's CPU time, and by the clock. */
#define TIMED(took, call)                                                                          \
    do {                                                                                           \
        const double own = bench_cpu_seconds();                                                    \
        const int64_t start = neo_time_ns();                                                       \
        call;                                                                                      \
        (took)[0] += bench_cpu_seconds() - own;                                                    \
        (took)[1] += 1e-9 * (double)(neo_time_ns() - start);                                       \
    } while (0)
/* Saves of a model of its own, one after the other, until it is told to stop. */
typedef struct neighbour {
    int64_t rows;
    atomic_int begun, stop;
} neighbour;
static void *saves_of_a_neighbour(void *of) {
    neighbour *other = (neighbour *)of;
    neo_ctx *ctx = bench_ctx(0, 1);
    model m = tracked_model(ctx, other->rows);
    neo_save_desc save = {.dir = "tiers.neighbour", .keep = 1};
    for (; !atomic_load(&other->stop); atomic_store(&other->begun, 1)) {
        save.step++;
        BENCH_OK(neo_save(ctx, &save, m.state));
    }
    model_destroy(&m);
    neo_ctx_destroy(ctx);
    remove_saved(save.dir);
    return NULL;
}
/* What a pool of steps takes while another thread saves another model. */
static void steps_beside_a_neighbour(double took[2], model *m, data *s, int64_t rows) {
    neighbour other = {.rows = rows};
    pthread_t thread;
    if (pthread_create(&thread, NULL, saves_of_a_neighbour, &other)) exit(1);
    while (!atomic_load(&other.begun)) sched_yield();
    for (int i = 0; i < POOL; i++) TIMED(took, step(m, s, i));
    atomic_store(&other.stop, 1);
    pthread_join(thread, NULL);
}
static void saves(int64_t rows) {
    neo_ctx *ctx = bench_ctx(0, 1);
    data s = make_data_of(ctx, POOL, SAMPLES, rows, 1.05f);
    model m = tracked_model(ctx, rows);
    neo_saving *saving = NULL;
    double share[2][TURNS], whole[TURNS], stopped[2][TURNS], more[2][TURNS], count = 0;
    neo_save_desc save = {.dir = "tiers.saved", .keep = 1};
    for (int r = 0; r < TURNS; r++) {
        double other[2] = {0}, beside[2] = {0}, blocked[2] = {0}, stops[2] = {0};
        int64_t steps = 0;
        steps_beside_a_neighbour(other, &m, &s, rows);
        save.step++;
        TIMED(blocked, BENCH_OK(neo_save(ctx, &save, m.state)));
        save.step++;
        TIMED(stops, BENCH_OK(neo_save_begin(ctx, &save, m.state, &saving)));
        for (; saving; steps++) {
            TIMED(beside, step(&m, &s, (int)(steps % POOL)));
            TIMED(stops, BENCH_OK(neo_save_poll(&saving)));
        }
        whole[r] = blocked[1];
        for (int k = 0; k < 2; k++) {
            const double extra = beside[k] - (double)steps / POOL * other[k];
            stopped[k][r] = stops[k];
            more[k][r] = extra * POOL / other[k] / (double)steps;
            share[k][r] = (stops[k] + fmax(extra, 0)) / blocked[1];
        }
        count += (double)steps / TURNS;
    }
    bench_report("tiers.save", 100 * bench_median(share[0], TURNS), "%", -1, NULL, 0);
    printf("# tiers.save: %.0f MB in %.2f s; behind training it stops for %.4f s, and %.1f steps "
           "beside it take %+.1f %% of those beside a neighbour's; all by the clock: %.0f %%, "
           "%.4f s, %+.1f %%\n",
           1e-6 * (double)rows * TABLES * (DIM + 1) * sizeof(float), bench_median(whole, TURNS),
           bench_median(stopped[0], TURNS), count, 100 * bench_median(more[0], TURNS),
           100 * bench_median(share[1], TURNS), bench_median(stopped[1], TURNS),
           100 * bench_median(more[1], TURNS));
    model_destroy(&m);
    free_data(ctx, &s);
    neo_ctx_destroy(ctx);
    remove_saved(save.dir);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    const int64_t rows = bench.quick ? 100000 : 1000000;
    keys(rows);
    hits(rows);
    misses(rows);
    steps(rows);
    hidden(rows);
    keys_dlrm(rows);
    saves(rows);
    return bench_end();
}
