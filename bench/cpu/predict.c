/* predict.c: a training step as the planner predicts it against the step: neo_calibrate measures
   this machine, a plan of one rank predicts, and the same step runs. The DLRM of bench/cpu/step.c:
   layers of Criteo Kaggle and of MLPerf, 26 tables, batches of 128 and 2048.

   With one thread the clock of the step is CPU time; calibration takes the best of several runs on
   the wall clock. Each figure is the best over rounds, each round's the mean over batches.

     predict.<layers>.b<B>          ms of a step; the peer is the prediction, the ratio predicted
                                    over measured: the goal is 0.9 to 1.1
     predict.<layers>.b<B>.<part>   of a part: 0.8 to 1.25. The loss is in the whole alone
     trace.<layers>.b<B>            what recording every call (neo_trace) costs a step, in percent
                                    of it, both in turns; the goal is at most 1 % */
#include "bench/model.h"

#include "neo_plan.h"
#include "neo_run.h"

enum { PARTS = 9, ROUNDS = 40 };
static const char *const PART[PARTS] = {
    "bottom_forward", "bags_forward",      "interact_forward", "top_forward", "top_backward",
    "interact_backward", "bags_backward", "bottom_backward",  "optimizer"};
/* The calls of model_call that are a part: all but the loss. */
static const int CALL[PARTS] = {0, 1, 2, 3, 5, 6, 7, 8, 9};
typedef struct layers {
    const char *name;
    int64_t bottom[6], top[7];
    int bottom_count, top_count; /* with their input */
} layers;
static const layers MODELS[] = {
    {"kaggle", {DENSE, 512, 256, 64, 16}, {16 + 351, 512, 256, 1}, 5, 4},
    {"mlperf", {DENSE, 512, 256, 128}, {128 + 351, 1024, 1024, 512, 256, 1}, 4, 6}};

static model make(neo_ctx *ctx, const layers *l, int64_t batch, int64_t rows) {
    const model_desc d = {.batch = batch, .bottom = l->bottom, .bottom_count = l->bottom_count,
                          .top = l->top + 1, .top_count = l->top_count - 1};
    int64_t of_tables[TABLES];
    model m;
    BENCH_OK(kaggle_create(&m, ctx, d, same_rows(of_tables, rows), 0));
    return m;
}
static int64_t params_of(const int64_t *widths, int count) {
    int64_t n = 0;
    for (int i = 0; i + 1 < count; i++) n += (widths[i] + 1) * widths[i + 1];
    return n;
}

/* ---- the prediction: seconds of each part ---- */
static void predict(neo_ctx *ctx, const neo_cluster *cluster, const layers *l, int64_t batch,
                    int64_t rows, double skew, double *part) {
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    double ids[TABLES];
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = (neo_table_desc){.name = names[t], .rows = rows,
                                     .dim = l->bottom[l->bottom_count - 1],
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
        ids[t] = 1;
    }
    const neo_bags_desc bags = {.tables = tables, .table_count = TABLES, .max_batch = batch,
                                .max_ids = batch * TABLES};
    const neo_plan_desc desc = {.bags = &bags, .ids_per_sample = ids, .cluster = *cluster,
                                .skew = skew};
    const double dots = TABLES * (TABLES + 1) * (double)l->bottom[l->bottom_count - 1];
    const neo_dense_unit units[3] = {
        {"bottom", 0, params_of(l->bottom, l->bottom_count), 0, l->bottom, l->bottom_count,
         {0, 0}},
        {"dots", dots, 0, 1, NULL, 0, {TABLES + 1, l->bottom[l->bottom_count - 1]}},
        {"top", 0, params_of(l->top, l->top_count), 1, l->top, l->top_count, {0, 0}}};
    static const char *const task[PARTS][2] = {
        {"forward", "bottom"}, {"lookup", ""},     {"forward", "dots"},
        {"forward", "top"},    {"backward", "top"}, {"backward", "dots"},
        {"update", ""},        {"backward", "bottom"}, {"step", ""}};
    neo_plan *plan;
    neo_timeline *timeline;
    int32_t count;
    BENCH_OK(neo_plan_create(ctx, &desc, &plan));
    BENCH_OK(neo_timeline_create(plan, units, 3, 0, &timeline));
    const neo_task *at = neo_timeline_tasks(timeline, &count);
    for (int k = 0; k < PARTS; k++) {
        part[k] = 0;
        for (int32_t i = 0; i < count; i++)
            if (!strcmp(at[i].name, task[k][0]) && !strcmp(at[i].unit, task[k][1]))
                part[k] += at[i].seconds;
    }
    part[PARTS] = neo_timeline_sum_of(timeline).seconds;
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
}

/* ---- the step ---- */
static double measured[PARTS + 1][ROUNDS], traced[ROUNDS]; /* parts, the whole */
static double take(model *m, const data *d, double *part) {
    double all = 0;
    for (int i = 0; i < BATCHES; i++) {
        const model_batch b = {d->dense[i], d->label[i], neo_jagged_view(d->ids[i])};
        double last = bench_seconds(m->ctx);
        for (int call = 0, k = 0; call < MODEL_CALLS; call++) {
            BENCH_OK(model_call(m, &b, call, 0.01f, NULL));
            const double now = bench_seconds(m->ctx);
            const int mine = k < PARTS && CALL[k] == call;
            if (part && mine) part[k] += (now - last) / BATCHES;
            k += mine;
            all += (now - last) / BATCHES;
            last = now;
        }
    }
    return all;
}
static void run(const neo_cluster *cluster, const layers *l, int64_t batch) {
    const int64_t rows = bench.quick ? 20000 : 100000;
    neo_ctx *ctx = bench_ctx(0, 1);
    model m = make(ctx, l, batch, rows);
    data d = make_data(ctx, batch, rows);
    double part[PARTS + 1];
    char name[96];
    predict(ctx, cluster, l, batch, rows, 1.05, part);
    const double once = take(&m, &d, NULL);
    int rounds = (int)((bench.quick ? 1 : 6) / (5 * BATCHES * once));
    rounds = rounds < 5 ? 5 : rounds > ROUNDS ? ROUNDS : rounds;
    for (int i = 0; i < rounds; i++) {
        double now[PARTS] = {0}, with[2], all = 0;
        for (int k = 0; k < 2; k++) { /* with a trace and without, in both orders; memory is warm */
            neo_trace *trace = NULL;
            if ((i + k) % 2)
                BENCH_OK(neo_trace_create(ctx, &(neo_trace_desc){.spans = 1 << 12}, &trace));
            (void)take(&m, &d, NULL);
            with[(i + k) % 2] = take(&m, &d, NULL);
            if (trace && neo_trace_get_stats(trace).dropped)
                bench_fail("predict: spans are dropped");
            neo_trace_destroy(trace);
        }
        all = take(&m, &d, now);
        for (int k = 0; k < PARTS; k++) measured[k][i] = now[k];
        measured[PARTS][i] = all;
        traced[i] = 100 * (with[1] / with[0] - 1);
    }
    for (int k = 0; k <= PARTS; k++) {
        (void)bench_median(measured[k], rounds); /* sorts */
        const double t = measured[k][0];
        bench_spread(measured[k], rounds);
        snprintf(name, sizeof name, "predict.%s.b%lld%s%s", l->name, (long long)batch,
                 k < PARTS ? "." : "", k < PARTS ? PART[k] : "");
        bench_report(name, 1e3 * t, "ms", -1, "predicted", part[k] / t);
    }
    snprintf(name, sizeof name, "trace.%s.b%lld", l->name, (long long)batch);
    bench_report(name, bench_median(traced, rounds), "percent", -1, NULL, 0);
    free_data(ctx, &d);
    model_destroy(&m);
    neo_ctx_destroy(ctx);
}

int main(int argc, char **argv) {
    neo_cluster cluster = {.ranks = 1};
    bench_begin(argc, argv);
    neo_ctx *ctx = bench_ctx(0, 1);
    BENCH_OK(neo_calibrate(ctx, &cluster));
    neo_ctx_destroy(ctx);
    for (int l = 0; l < 2; l++)
        for (int64_t batch = 128; batch <= 2048; batch *= 16) run(&cluster, &MODELS[l], batch);
    return bench_end();
}
