/* serve.c: threads that predict by one model, each with a scratch of its own.

   The DLRM of Criteo Kaggle, 26 tables of 16 columns, 40,000 rows each, in memory; one sample at a
   time, of 64 in turn. First each thread's predictions are compared, to the bit, with those that
   one thread made.

     serve.one.t<T>    us of CPU time that a sample takes T threads at once, T of 1, 2 and 8; ratio:
                       how much of that one thread alone takes, in the same round. What threads
                       share makes it small: a lock that spins, a line of the cache that is written.
                       Goal: 0.9
     serve.waits.t<T>  times that a thread slept in 1,000 samples, as at a lock. Goal: 0
     serve.rate.t<T>   samples a second of the wall clock, of all threads; ratio: over one thread's.
                       It wants as many idle cores

   Threads of a round begin together; figures are medians over rounds, in which the Ts take
   turns. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RUSAGE_THREAD */
#endif
#define NEO_IMPLEMENTATION /* the archive has no predictions */
#include "neo_serve.h"

#include "bench/bench.h"

#include <pthread.h>
#include <sys/resource.h>

enum { TABLES = 26, DENSE = 13, D = 16, ROWS = 40000, SAMPLES = 64, MOST = 8, ROUNDS = 11 };
static const int64_t BOTTOM[] = {DENSE, 512, 256, 64, D}, TOP[] = {D + 351, 512, 256, 1};
static float dense[SAMPLES][DENSE], right[SAMPLES];
static int64_t ids[SAMPLES][TABLES];

/* ---- a model, all weights of which are the first of the same numbers ---- */
static float numbers[ROWS * D];
static void add(neo_state *state, const char *part, int i, const char *kind, int64_t rows,
                int64_t cols) {
    char name[64];
    snprintf(name, sizeof name, "%s%d.%s", part, i, kind);
    BENCH_OK(neo_state_add(state, NEO_STATE_WEIGHT, name,
                           cols ? neo_tensor_2d(numbers, NEO_F32, rows, cols)
                                : neo_tensor_1d(numbers, NEO_F32, rows)));
}
static void add_layers(neo_state *state, const char *mlp, const int64_t *widths, int layers) {
    for (int i = 0; i < layers; i++) {
        add(state, mlp, 2 * i, "weight", widths[i + 1], widths[i]);
        add(state, mlp, 2 * i, "bias", widths[i + 1], 0);
    }
}
static neo_model *make_model(const char *dir) {
    static char json[1 << 14];
    neo_ctx *ctx = bench_ctx(1, 0);
    neo_schema *schema;
    neo_state *state;
    neo_model *model;
    bench_fill(numbers, ROWS * D);
    for (int64_t i = 0; i < ROWS * D; i++) numbers[i] /= 16.0f;
    BENCH_OK(neo_schema_synthetic(ctx, &(neo_synthetic_desc){.samples = 1, .rows = ROWS}, &schema));
    BENCH_OK(neo_state_create(ctx, &state));
    add_layers(state, "bottom.", BOTTOM, 4);
    add_layers(state, "top.", TOP, 3);
    for (int t = 0; t < TABLES; t++) {
        char name[64];
        snprintf(name, sizeof name, "bags.%s.weight", neo_schema_feature(schema, t).name);
        BENCH_OK(neo_state_add(state, NEO_STATE_WEIGHT, name,
                               neo_tensor_2d(numbers, NEO_F32, ROWS, D)));
    }
    int n = snprintf(json, sizeof json,
                     "{\"neo_model\": 1, \"model\": \"dlrm\", \"dim\": 16, \"dtype\": \"f32\", "
                     "\"rows_dtype\": \"f32\", \"row_buckets\": 1, \"bottom\": [13, 512, 256, 64, "
                     "16], \"top\": [367, 512, 256, 1], \"schema\": ");
    n += (int)neo_schema_describe(schema, json + n, sizeof json - (size_t)n);
    snprintf(json + n, sizeof json - (size_t)n, "}");
    BENCH_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 1, .model = json}, state));
    BENCH_OK(neo_model_load(&(neo_model_desc){.dir = dir, .ctx.threads = 1}, &model));
    neo_state_destroy(state);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return model;
}

/* ---- threads ---- */
typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *begin;
    neo_scratch *scratch;
    int64_t count, waits;
    int wrong;
    double cpu;
} worker;
static float predict(neo_scratch *s, int64_t i) {
    float out;
    neo_scratch_clear(s);
    BENCH_OK(neo_scratch_add(s, dense[i % SAMPLES], ids[i % SAMPLES], NULL, NULL));
    BENCH_OK(neo_scratch_predict(s, &out));
    return out;
}
static void *work(void *arg) {
    worker *w = arg;
    struct rusage before, after;
    pthread_barrier_wait(w->begin);
    for (int64_t i = 0; i < SAMPLES; i++) { /* and the caches are warm */
        const float out = predict(w->scratch, i);
        w->wrong += memcmp(&out, &right[i], sizeof out) != 0;
    }
    getrusage(RUSAGE_THREAD, &before);
    w->cpu = -bench_cpu_seconds();
    for (int64_t i = 0; i < w->count; i++) predict(w->scratch, i);
    w->cpu += bench_cpu_seconds();
    getrusage(RUSAGE_THREAD, &after);
    w->waits = after.ru_nvcsw - before.ru_nvcsw;
    return NULL;
}

int main(int argc, char **argv) {
    static const int threads[] = {1, 2, MOST};
    static worker workers[MOST];
    static double cpu[3][ROUNDS], rate[3][ROUNDS], of_one[2][3][ROUNDS], waits[3];
    char dir[] = "/tmp/neo-bench-serve-XXXXXX", command[80], name[32];
    bench_begin(argc, argv);
    const int rounds = bench.quick ? 3 : ROUNDS;
    const int64_t count = bench.quick ? 500 : 4000;
    if (!mkdtemp(dir)) return bench_fail("mkdtemp"), 1;
    neo_model *model = make_model(dir);
    snprintf(command, sizeof command, "rm -r %s", dir);
    if (system(command)) bench_fail(command);
    for (int i = 0; i < SAMPLES; i++) {
        bench_fill(dense[i], DENSE);
        for (int t = 0; t < TABLES; t++) ids[i][t] = bench_random() % ROWS;
    }
    for (int i = 0; i < MOST; i++) BENCH_OK(neo_scratch_create(model, NULL, &workers[i].scratch));
    for (int i = 0; i < SAMPLES; i++) right[i] = predict(workers[0].scratch, i);
    for (int r = 0; r < rounds; r++)
        for (int k = 0; k < 3; k++) {
            pthread_barrier_t begin;
            pthread_barrier_init(&begin, NULL, (unsigned)threads[k]);
            const double start = (double)neo_time_ns();
            for (int i = 0; i < threads[k]; i++) {
                workers[i].begin = &begin, workers[i].count = count, workers[i].wrong = 0;
                if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) return 1;
            }
            for (int i = 0; i < threads[k]; i++) {
                pthread_join(workers[i].thread, NULL);
                cpu[k][r] += 1e6 * workers[i].cpu / (double)(count * threads[k]);
                waits[k] += 1e3 * (double)workers[i].waits / (double)(rounds * count * threads[k]);
                if (workers[i].wrong) bench_fail("threads predict otherwise than one alone");
            }
            rate[k][r] = (double)(threads[k] * (count + SAMPLES)) * 1e9 /
                         ((double)neo_time_ns() - start);
            pthread_barrier_destroy(&begin);
            of_one[0][k][r] = cpu[0][r] / cpu[k][r], of_one[1][k][r] = rate[k][r] / rate[0][r];
        }
    for (int k = 0; k < 3; k++) {
        const char *one = k ? "one_thread" : NULL;
        const double ratio = bench_median(of_one[0][k], rounds);
        snprintf(name, sizeof name, "serve.one.t%d", threads[k]);
        bench_report(name, bench_median(cpu[k], rounds), "us", -1, one, ratio);
        snprintf(name, sizeof name, "serve.waits.t%d", threads[k]);
        bench_report(name, waits[k], "sleeps", -1, NULL, 0);
        snprintf(name, sizeof name, "serve.rate.t%d", threads[k]);
        bench_report(name, bench_median(rate[k], rounds), "samples/s", -1, one,
                     bench_median(of_one[1][k], rounds));
    }
    for (int i = 0; i < MOST; i++) neo_scratch_destroy(workers[i].scratch);
    neo_model_free(model);
    return bench_end();
}
