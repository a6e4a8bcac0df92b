/* predict.c: a training step as it is predicted from a calibration of this machine, against the
   step: for each operation. neo_calibrate and the step take turns, round by round; a figure is the
   median over rounds of medians over steps, and so is the ratio, predicted over measured: the mean
   of what follows from the calibrations before and behind the steps, as memory gets faster and
   slower while others on the machine use it.

   With one thread all times are CPU time, which others on the machine hardly disturb; with two (or
   as many as --threads says; neither: one and two) those of a clock of lists of tasks (bench.h),
   which needs one core. Figures named wall are the wall clock's, of the step and of neo_calibrate:
   they want a machine of their own.

     kaggle, mlperf   the DLRM of bench/cpu/step.c: 26 tables, row-wise Adagrad, by a timeline
     dcnv2            that of MLPerf with a cross network of rank 512 instead of products of rows
     gpt              examples/one_file_gpt.c: 4 blocks of 128 columns, 4 heads, 12 sequences of 64

     predict.<model>.b<B>.t<threads>          ms of a step; the goal is a ratio of 0.9 to 1.1
     predict.<model>.b<B>.t<threads>.<part>   of a part: 0.8 to 1.25. The loss, and of the GPT the
                                              embedding, are in the whole alone
     predict.<model>.b<B>.t<threads>.wall     and .wall.<part>: a step by the wall clock
     predict.<model>.b<B>.t<threads>.wall.by_tasks   a step by the wall clock, as predicted from a
                                              neo_calibrate by the clock of tasks, which has no
                                              starts of threads
     predict.ranks.w<W>.<links> the Kaggle DLRM at 2,048 samples over 2 to 8 ranks that are threads,
                                under the link model and the virtual clock, on which what a rank
                                computes takes the CPU time that its thread took: so others on the
                                machine hardly disturb these figures, either. The links: fast ones,
                                such that they take about as long as layers do, and slow ones.
                                Calibrated as ranks compute: all at the same time, layers by a
                                rank's leaves of the batch, rows by all. What a message takes a
                                thread is not counted beside what it takes its link.
                                Ranks wait for each other: the prediction is the median of
                                neo_timeline_sample, by a jitter that is measured beside it, of
                                the same call on all ranks.
                                .piped: with a pipeline, without the sums of dense gradients and
                                their optimizer, as groups of the simulation do not share the
                                links of a rank. The goal is a ratio of 0.9 to 1.1
     trace.<model>.b<B>         CPU time that recording every call (neo_trace) costs a step, in
                                percent: pairs of steps with and without, in both orders; the
                                median, and where that of all such pairs is. At most 1 %
     trace.<model>.b<B>.spans   the same by the number of spans and what one takes */
#include "bench/model.h"

#include "neo_fsdp.h"
#include "neo_run.h"

#include "examples/train/gpt/seconds.h"

enum { PARTS = 10, ROUNDS = 5, STEPS = 200, PAIRS = 2000 };

/* A model: its parts' names, and a step of batch i that tells when a part is over. */
typedef struct work {
    const char *name, *part[PARTS];
    int parts;
    int64_t batch;
    void (*create)(struct work *);
    void (*step)(struct work *, int i);
    void (*destroy)(struct work *);
    void (*predict)(struct work *, const neo_cluster *, double *part); /* and of the whole */
    neo_ctx *ctx;
    double last, took[PARTS + 1]; /* of the step under way; the last: of no part */
    int turns;                    /* batches that steps take in turns */
} work;
static void over(work *w, int part) {
    const double now = bench_seconds(w->ctx);
    w->took[part] += now - w->last;
    w->last = now;
}
#define OVER(part, call)                                                                           \
    do {                                                                                           \
        BENCH_OK(call);                                                                            \
        over(w, part);                                                                             \
    } while (0)
/* Seconds of the step. */
static double take(work *w, int i) {
    double all = 0;
    memset(w->took, 0, sizeof w->took);
    w->last = bench_seconds(w->ctx);
    w->step(w, i % w->turns);
    over(w, PARTS);
    for (int k = 0; k <= PARTS; k++) all += w->took[k];
    return all;
}

/* As many batches as take a second: one that waits for longer may find its pages resting, in which
   the host of a virtual machine takes them away: each costs 10 to 20 us at its next touch. */
static void take_turns(work *w, double seconds_of_step) {
    const double turns = 1 / seconds_of_step;
    w->turns = turns < 2 ? 2 : turns < MOST_BATCHES ? (int)turns : MOST_BATCHES;
}

/* ---- DLRM and DCNv2 ---- */
enum { RANK = 512, CROSSES = 3 };
typedef struct layers {
    int64_t bottom[5], top[7];
    int bottom_count, top_count; /* with their input; of dcnv2 that is what crosses */
} layers;
static const layers KAGGLE = {{DENSE, 512, 256, 64, 16}, {16 + 351, 512, 256, 1}, 5, 4},
                    MLPERF = {{DENSE, 512, 256, 128}, {128 + 351, 1024, 1024, 512, 256, 1}, 4, 6},
                    DCNV2 = {{DENSE, 512, 256, 128}, {27 * 128, 1024, 1024, 512, 256, 1}, 4, 6};
static model dlrm;
static data batches;
static struct {
    neo_params *params;
    neo_cross *net;
    neo_optim *optim;
    neo_mlp *top;
    neo_tensor t[4];
} dcn;

static const layers *layers_of(const work *w) {
    return w->name[0] == 'k' ? &KAGGLE : w->name[0] == 'm' ? &MLPERF : &DCNV2;
}
static int64_t rows_of_table(void) { return bench.quick ? 20000 : 100000; }
static int64_t params_of(const int64_t *widths, int count) {
    int64_t n = 0;
    for (int i = 0; i + 1 < count; i++) n += (widths[i] + 1) * widths[i + 1];
    return n;
}
static void dlrm_create(work *w) {
    const layers *l = layers_of(w);
    const model_desc d = {.batch = w->batch, .bottom = l->bottom, .bottom_count = l->bottom_count,
                          .top = l->top + 1, .top_count = l->top_count - 1};
    int64_t of_tables[TABLES];
    BENCH_OK(kaggle_create(&dlrm, w->ctx, d, same_rows(of_tables, rows_of_table()), 0));
    batches = make_data_of(w->ctx, MOST_BATCHES, w->batch, rows_of_table(), 0);
}
static void dlrm_destroy(work *w) {
    free_data(w->ctx, &batches);
    model_destroy(&dlrm);
}
static model_batch batch_of(int i) {
    return (model_batch){batches.dense[i], batches.label[i], neo_jagged_view(batches.ids[i])};
}
static void dlrm_step(work *w, int i) {
    static const int part[MODEL_CALLS] = {0, 1, 2, 3, PARTS, 4, 5, 6, 7, 8}; /* not of the loss */
    const model_batch b = batch_of(i);
    for (int call = 0; call < MODEL_CALLS; call++) {
        BENCH_OK(model_call(&dlrm, &b, call, 0.01f, NULL));
        over(w, part[call]);
    }
}
/* Tables and bottom are those of the DLRM; x and e are columns of what crosses. */
static void dcn_create(work *w) {
    const int64_t width = DCNV2.top[0], shape[2] = {w->batch, width};
    neo_mlp_desc top = {.name = "top", .max_batch = w->batch, .act = NEO_ACT_RELU,
                        .width_count = DCNV2.top_count};
    memcpy(top.widths, DCNV2.top, sizeof DCNV2.top);
    dlrm_create(w);
    BENCH_OK(neo_params_create(w->ctx, &dcn.params));
    BENCH_OK(neo_cross_create(w->ctx, dcn.params,
                              &(neo_cross_desc){.name = "cross", .width = width, .rank = RANK,
                                                .layers = CROSSES, .max_batch = w->batch},
                              &dcn.net));
    BENCH_OK(neo_mlp_create(w->ctx, dcn.params, &top, &dcn.top));
    BENCH_OK(neo_optim_create(w->ctx, dcn.params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD},
                              &dcn.optim));
    for (int k = 0; k < 4; k++) {
        BENCH_OK(neo_tensor_alloc(w->ctx, NEO_F32, 2, shape, &dcn.t[k]));
        BENCH_OK(neo_tensor_zero(w->ctx, dcn.t[k]));
    }
}
static void dcn_destroy(work *w) {
    for (int k = 0; k < 4; k++) neo_tensor_free(w->ctx, &dcn.t[k]);
    neo_optim_destroy(dcn.optim);
    neo_mlp_destroy(dcn.top);
    neo_cross_destroy(dcn.net);
    neo_params_destroy(dcn.params);
    dlrm_destroy(w);
}
static void dcn_step(work *w, int i) {
    enum { Z, DZ, CROSSED, DCROSSED };
    const model_batch b = batch_of(i);
    const int64_t dim = 128, rest = DCNV2.top[0] - dim;
    const neo_tensor x = neo_tensor_slice(dcn.t[Z], 1, 0, dim), *t = dcn.t,
                     e = neo_tensor_slice(t[Z], 1, dim, rest),
                     dx = neo_tensor_slice(t[DZ], 1, 0, dim),
                     de = neo_tensor_slice(t[DZ], 1, dim, rest);
    OVER(0, neo_mlp_forward(dlrm.bottom, b.dense, x));
    OVER(1, neo_bags_forward(dlrm.bags, b.ids, e));
    OVER(2, neo_cross_forward(dcn.net, t[Z], t[CROSSED]));
    OVER(3, neo_mlp_forward(dcn.top, t[CROSSED], dlrm.y));
    OVER(PARTS, neo_bce_with_logits(w->ctx, NULL, dlrm.y, b.label, dlrm.dy, NULL));
    OVER(4, neo_mlp_backward(dcn.top, NULL, dlrm.dy, t[DCROSSED]));
    OVER(5, neo_cross_backward(dcn.net, NULL, t[DCROSSED], t[DZ]));
    OVER(6, neo_bags_backward(dlrm.bags, b.ids, de, 0.01f));
    OVER(7, neo_mlp_backward(dlrm.bottom, NULL, dx, neo_tensor_none()));
    OVER(8, neo_optim_step(dcn.optim, 0.01f));
}
typedef struct tables {
    neo_table_desc table[TABLES];
    char names[TABLES][8];
    double ids[TABLES];
} tables;
static void tables_make(tables *to, int64_t dim, int32_t buckets) {
    for (int t = 0; t < TABLES; t++) {
        snprintf(to->names[t], sizeof to->names[t], "C%d", t + 1);
        to->table[t] = (neo_table_desc){.name = to->names[t], .rows = rows_of_table(), .dim = dim,
                                        .row_buckets = buckets,
                                        .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
        to->ids[t] = 1;
    }
}
/* Numbers of a sample that a plan's layers make. */
static double values_of(const layers *l) {
    double n = 0;
    for (int i = 0; i < l->bottom_count; i++) n += (double)l->bottom[i];
    for (int i = 0; i < l->top_count; i++) n += (double)l->top[i];
    return n;
}
static void dlrm_predict(work *w, const neo_cluster *cluster, double *part) {
    const layers *l = layers_of(w);
    const int64_t dim = l->bottom[l->bottom_count - 1], width = (TABLES + 1) * dim;
    const int64_t crosses[2 * CROSSES + 1] = {width, RANK, width, RANK, width, RANK, width};
    const int crossed = l == &DCNV2;
    const double crossing = crossed ? CROSSES * (double)(width + RANK) : 0;
    const int64_t crossed_params = crossed ? params_of(crosses, 2 * CROSSES + 1) : 0;
    tables all;
    tables_make(&all, dim, 0);
    const neo_bags_desc bags = {.tables = all.table, .table_count = TABLES, .max_batch = w->batch,
                                .max_ids = w->batch * TABLES};
    const neo_plan_desc desc = {.bags = &bags, .ids_per_sample = all.ids, .cluster = *cluster,
                                .skew = 1.1, .dense_values = values_of(l) + crossing,
                                .dense_params = params_of(l->bottom, l->bottom_count) +
                                                params_of(l->top, l->top_count) + crossed_params};
    neo_dense_unit units[3] = {
        {"bottom", 0, crossed ? 0 : params_of(l->bottom, l->bottom_count), 0, l->bottom,
         l->bottom_count, {0, 0}},
        {"meet", 0, 0, 1, NULL, 0, {TABLES + 1, dim}},
        {"top", 0, params_of(l->top, l->top_count), 1, l->top, l->top_count, {0, 0}}};
    if (crossed)
        units[1] = (neo_dense_unit){"meet", 0, crossed_params, 1, crosses, 2 * CROSSES + 1, {0, 0}};
    static const char *const task[9][2] = {
        {"forward", "bottom"}, {"lookup", ""},         {"forward", "meet"},
        {"forward", "top"},    {"backward", "top"},    {"backward", "meet"},
        {"update", ""},        {"backward", "bottom"}, {"step", ""}};
    neo_plan *plan;
    neo_timeline *timeline;
    int32_t count;
    BENCH_OK(neo_plan_create(w->ctx, &desc, &plan));
    BENCH_OK(neo_timeline_create(plan, units, 3, 0, &timeline));
    const neo_task *at = neo_timeline_tasks(timeline, &count);
    for (int32_t i = 0; i < count; i++)
        for (int k = 0; k < 9; k++)
            if (!strcmp(at[i].name, task[k][0]) && !strcmp(at[i].unit, task[k][1]))
                part[k] += at[i].seconds;
    part[PARTS] = neo_timeline_sum_of(timeline).seconds;
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
}

/* ---- GPT ---- */
enum { BLOCKS = 4, HEADS = 4, COLS = 128, LENGTH = 64, LETTERS = 65, LINEARS = 4 };
enum { LAYER = GPT_LAYERS, ATTEND = GPT_ATTENTION, REST = GPT_REST, HEAD = GPT_HEAD,
       BACK = GPT_BACK }; /* parts; then the same backward, and the optimizer */
/* Linear layers of a block: from input to output, both tensors of it. */
enum { N1, QKV, Y, MIDDLE, N2, WIDE, GELU, OUT, DN, DQKV, DWIDE, STATS_1, STATS_2, LSE, TENSORS };
static const int64_t OF_TENSOR[TENSORS] = {COLS, 3 * COLS, COLS, COLS, COLS, 4 * COLS, 4 * COLS,
                                           COLS, COLS, 3 * COLS, 4 * COLS, 2, 2, HEADS};
static const int LINEAR[LINEARS][4] = {/* from, to, and their gradients; OUT: dx */
    {N1, QKV, DN, DQKV}, {Y, MIDDLE, DN, OUT}, {N2, WIDE, DN, DWIDE}, {GELU, OUT, DWIDE, OUT}};
static struct {
    neo_params *params;
    neo_optim *optim;
    const neo_param *w[BLOCKS][LINEARS], *b[BLOCKS][LINEARS], *gain[BLOCKS + 1][2],
        *bias[BLOCKS + 1][2], *letters, *places;
    neo_tensor t[BLOCKS][TENSORS], x, logits, dx, stats, ids, at;
} gpt;

static void gpt_add(const char *name, int i, int k, int64_t rows, int64_t cols, float sd,
                    const neo_param **to) {
    const neo_init init = sd > 0 ? (neo_init){NEO_INIT_NORMAL, 0, sd}
                                 : (neo_init){NEO_INIT_CONSTANT, sd < 0 ? 1 : 0, 0};
    char full[32];
    snprintf(full, sizeof full, "%s.%d.%d", name, i, k);
    BENCH_OK(neo_params_add(gpt.params, full, cols ? 2 : 1, (int64_t[]){rows, cols}, init, to));
}
static neo_tensor gpt_tensor(neo_ctx *ctx, neo_dtype dtype, int64_t rows, int64_t cols) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(ctx, dtype, cols ? 2 : 1, (int64_t[]){rows, cols}, &t));
    BENCH_OK(neo_tensor_zero(ctx, t));
    return t;
}
static void gpt_create(work *w) {
    const int64_t rows = w->batch * LENGTH;
    memset(&gpt, 0, sizeof gpt);
    BENCH_OK(neo_params_create(w->ctx, &gpt.params));
    gpt_add("letters", 0, 0, LETTERS, COLS, 0.02f, &gpt.letters);
    gpt_add("places", 0, 0, LENGTH, COLS, 0.02f, &gpt.places);
    for (int i = 0; i <= BLOCKS; i++) {
        for (int k = 0; k < 2; k++) {
            gpt_add("gain", i, k, COLS, 0, -1, &gpt.gain[i][k]);
            gpt_add("bias", i, k, COLS, 0, 0, &gpt.bias[i][k]);
        }
        for (int k = 0; i < BLOCKS && k < LINEARS; k++) {
            gpt_add("w", i, k, OF_TENSOR[LINEAR[k][1]], OF_TENSOR[LINEAR[k][0]], 0.02f,
                    &gpt.w[i][k]);
            gpt_add("b", i, k, OF_TENSOR[LINEAR[k][1]], 0, 0, &gpt.b[i][k]);
        }
        for (int k = 0; i < BLOCKS && k < TENSORS; k++)
            gpt.t[i][k] = gpt_tensor(w->ctx, NEO_F32, rows, OF_TENSOR[k]);
    }
    gpt.x = gpt_tensor(w->ctx, NEO_F32, rows, COLS);
    gpt.dx = gpt_tensor(w->ctx, NEO_F32, rows, COLS);
    gpt.stats = gpt_tensor(w->ctx, NEO_F32, rows, 2);
    gpt.logits = gpt_tensor(w->ctx, NEO_F32, rows, LETTERS);
    gpt.ids = gpt_tensor(w->ctx, NEO_I64, rows, 0), gpt.at = gpt_tensor(w->ctx, NEO_I64, rows, 0);
    for (int64_t i = 0; i < rows; i++) {
        ((int64_t *)gpt.ids.data)[i] = bench_random() % LETTERS;
        ((int64_t *)gpt.at.data)[i] = i % LENGTH;
    }
    BENCH_OK(neo_optim_create(w->ctx, gpt.params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD},
                              &gpt.optim));
}
static void gpt_destroy(work *w) {
    neo_tensor *one[] = {&gpt.x, &gpt.logits, &gpt.dx, &gpt.stats, &gpt.ids, &gpt.at};
    for (int i = 0; i < BLOCKS * TENSORS; i++)
        neo_tensor_free(w->ctx, &gpt.t[i / TENSORS][i % TENSORS]);
    for (int i = 0; i < 6; i++) neo_tensor_free(w->ctx, one[i]);
    neo_optim_destroy(gpt.optim);
    neo_params_destroy(gpt.params);
}
static void gpt_linear(work *w, int i, int k) {
    neo_tensor *t = gpt.t[i];
    BENCH_OK(neo_linear_forward(w->ctx, t[LINEAR[k][0]], gpt.w[i][k]->value, gpt.b[i][k]->value,
                                NEO_ACT_NONE, t[LINEAR[k][1]]));
    over(w, LAYER);
}
static void gpt_linear_back(work *w, int i, int k) {
    neo_tensor *t = gpt.t[i], dy = LINEAR[k][3] == OUT ? gpt.dx : t[LINEAR[k][3]];
    BENCH_OK(neo_linear_backward(w->ctx, NULL, t[LINEAR[k][0]], gpt.w[i][k]->value, dy,
                                 t[LINEAR[k][2]], gpt.w[i][k]->grad, gpt.b[i][k]->grad));
    over(w, BACK + LAYER);
}
static void gpt_norm(work *w, int i, int k, neo_tensor x, neo_tensor y, neo_tensor stats) {
    BENCH_OK(neo_layer_norm_forward(w->ctx, x, gpt.gain[i][k]->value, gpt.bias[i][k]->value, 1e-5f,
                                    y, stats));
}
static void gpt_norm_back(work *w, int i, int k, neo_tensor x, neo_tensor stats, neo_tensor d) {
    BENCH_OK(neo_layer_norm_backward(w->ctx, NULL, x, gpt.gain[i][k]->value, stats, d, d,
                                     gpt.gain[i][k]->grad, gpt.bias[i][k]->grad));
}
#define THIRDS(t) THIRD(t, 0), THIRD(t, 1), THIRD(t, 2)
#define THIRD(t, k) neo_tensor_slice(t, 1, k * COLS, COLS)
static const neo_attention_desc ATTENTION = {.length = LENGTH, .heads = HEADS, .causal = 1};
static void gpt_block(work *w, int i, neo_tensor x) {
    neo_tensor *t = gpt.t[i];
    gpt_norm(w, i, 0, x, t[N1], t[STATS_1]), over(w, REST);
    gpt_linear(w, i, 0);
    BENCH_OK(neo_attention_forward(w->ctx, &ATTENTION, THIRDS(t[QKV]), t[Y], t[LSE]));
    over(w, ATTEND);
    gpt_linear(w, i, 1);
    BENCH_OK(neo_add(w->ctx, t[MIDDLE], x));
    gpt_norm(w, i, 1, t[MIDDLE], t[N2], t[STATS_2]), over(w, REST);
    gpt_linear(w, i, 2);
    OVER(REST, neo_activation_forward(w->ctx, NEO_ACT_GELU, t[WIDE], t[GELU]));
    gpt_linear(w, i, 3);
    OVER(REST, neo_add(w->ctx, t[OUT], t[MIDDLE]));
}
static void gpt_block_back(work *w, int i, neo_tensor x) {
    neo_tensor *t = gpt.t[i];
    gpt_linear_back(w, i, 3);
    OVER(BACK + REST, neo_activation_backward(w->ctx, NEO_ACT_GELU, t[WIDE], neo_tensor_none(),
         t[DWIDE], t[DWIDE]));
    gpt_linear_back(w, i, 2);
    gpt_norm_back(w, i, 1, t[MIDDLE], t[STATS_2], t[DN]);
    OVER(BACK + REST, neo_add(w->ctx, gpt.dx, t[DN]));
    gpt_linear_back(w, i, 1);
    OVER(BACK + ATTEND, neo_attention_backward(w->ctx, &ATTENTION, THIRDS(t[QKV]), t[Y], t[LSE],
         t[DN], THIRDS(t[DQKV])));
    gpt_linear_back(w, i, 0);
    gpt_norm_back(w, i, 0, x, t[STATS_1], t[DN]);
    OVER(BACK + REST, neo_add(w->ctx, gpt.dx, t[DN]));
}
static void gpt_step(work *w, int step) {
    neo_tensor out = gpt.t[BLOCKS - 1][OUT], n = gpt.t[0][DN];
    (void)step;
    BENCH_OK(neo_embedding_forward(w->ctx, gpt.ids, gpt.letters->value, gpt.x));
    BENCH_OK(neo_embedding_forward(w->ctx, gpt.at, gpt.places->value, n));
    OVER(PARTS, neo_add(w->ctx, gpt.x, n));
    for (int i = 0; i < BLOCKS; i++) gpt_block(w, i, i ? gpt.t[i - 1][OUT] : gpt.x);
    gpt_norm(w, BLOCKS, 0, out, n, gpt.stats), over(w, PARTS);
    OVER(HEAD, neo_linear_forward(w->ctx, n, gpt.letters->value, neo_tensor_none(), NEO_ACT_NONE,
         gpt.logits));
    BENCH_OK(neo_cross_entropy(w->ctx, NULL, gpt.logits, gpt.ids, gpt.logits, NULL));
    over(w, PARTS);
    OVER(BACK + HEAD, neo_linear_backward(w->ctx, NULL, n, gpt.letters->value, gpt.logits, gpt.dx,
         gpt.letters->grad, neo_tensor_none()));
    gpt_norm_back(w, BLOCKS, 0, out, gpt.stats, gpt.dx), over(w, PARTS);
    for (int i = BLOCKS - 1; i >= 0; i--) gpt_block_back(w, i, i ? gpt.t[i - 1][OUT] : gpt.x);
    BENCH_OK(neo_embedding_backward(w->ctx, NULL, gpt.at, gpt.dx, gpt.places->grad, 0));
    BENCH_OK(neo_embedding_backward(w->ctx, NULL, gpt.ids, gpt.dx, gpt.letters->grad, 1));
    over(w, PARTS);
    OVER(2 * BACK, neo_optim_step(gpt.optim, 0.001f));
}
static void gpt_predict(work *w, const neo_cluster *c, double *part) {
    gpt_sizes sizes = {(double)(w->batch * LENGTH), 1, 1, BLOCKS, COLS, HEADS, LENGTH, LETTERS, 0};
    for (int i = 0; i < neo_params_count(gpt.params); i++)
        sizes.params += (double)neo_tensor_count(neo_params_at(gpt.params, i)->value);
    gpt_seconds(c, &sizes, part);
    for (int k = 0; k < PARTS; k++) part[PARTS] += part[k];
}

/* ---- over ranks ---- */
enum { OVER_BATCH = 2048, LEAVES = 8, OVER_RANKS = 8, OVER_STEPS = 12, CALLS = 6, SAMPLES = 400 };
typedef struct over_ranks {
    neo_plan_desc desc;
    neo_dense_unit units[3];
    double largest[OVER_RANKS][OVER_STEPS]; /* seconds of a rank's largest call */
    double predicted, measured;
} over_ranks;
/* A rank: what it computes in calls that send, last time; what it has computed since it slept. */
typedef struct one_rank {
    neo_comm *comm;
    int64_t took[CALLS], owes, hands; /* hands: of two exchanges of ids, see over_hands */
} one_rank;
static int64_t cpu_ns(void) { return (int64_t)(1e9 * bench_cpu_seconds()); }
/* On the virtual clock a call takes the time of its thread. A rank sleeps before it sends or takes,
   not after every call: others would have the caches in between, that of a machine of its own keeps
   what the call before has made. SENDS: it computes before it sends, as long as last time. */
enum { COMPUTES, SENDS, TAKES };
#define CALL(k, way, call)                                                                         \
    do {                                                                                           \
        if ((way) != COMPUTES) over_sleep(&r, (way) == SENDS ? r.took[k] : 0);                     \
        const int64_t cpu = cpu_ns();                                                              \
        NEO__TRY(call);                                                                            \
        r.took[k] = cpu_ns() - cpu;                                                                \
        if ((way) != SENDS) r.owes += r.took[k];                                                   \
    } while (0)
static void over_sleep(one_rank *r, int64_t more) {
    neo_comm_sleep(r->comm, r->owes + more);
    r->owes = 0;
}
/* CPU time of a thread that hands over the lengths and then the ids of a batch: messages take the
   time of their links, and no other. */
static neo_status over_hands(neo_comm *comm, int64_t ids, int64_t *took) {
    enum { RUNS = 9 };
    const int ranks = neo_comm_size(comm);
    int64_t counts[OVER_RANKS];
    double ns[RUNS];
    int32_t *buffer = bench_alloc(8 * (size_t)ids);
    for (int i = 0; i < ranks; i++) counts[i] = ids / ranks;
    for (int i = 0; i < RUNS; i++) {
        const int64_t cpu = cpu_ns();
        for (int k = 0; k < 2; k++)
            NEO__TRY(neo_comm_all_to_allv(comm, buffer, counts, buffer + ids, counts, NEO_I32,
                                          NULL));
        ns[i] = (double)(cpu_ns() - cpu);
    }
    *took = (int64_t)bench_median(ns, RUNS);
    free(buffer);
    return NEO_OK;
}
static neo_tensor over_tensor(neo_ctx *ctx, int64_t n, int64_t cols) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, (int64_t[]){n, cols}, &t));
    BENCH_OK(neo_tensor_zero(ctx, t));
    return t;
}
static neo_mlp_desc over_mlp(const char *name, const int64_t *widths, int count, int64_t n) {
    neo_mlp_desc d = {.name = name, .max_batch = n, .act = NEO_ACT_RELU, .width_count = count};
    for (int i = 0; i < count; i++) d.widths[i] = widths[i];
    if (widths[count - 1] > 1) d.last_act = NEO_ACT_RELU;
    return d;
}
/* Gradients of a unit: as many numbers, which take the time of the links alone. */
static neo_status over_sum(one_rank *r, neo_tensor sum, const neo_dense_unit *unit) {
    over_sleep(r, 0);
    return neo_comm_all_reduce(r->comm, NEO_REDUCE_SUM, sum.data, sum.data, unit->params, NEO_F32,
                               NULL);
}
/* Seconds of a step of ranks that wait for each other, each a little off as often as their largest
   call is: by how far its quartiles are apart. */
static neo_status over_predict(over_ranks *o, const neo_plan *plan, int ranks) {
    double took[OVER_RANKS * OVER_STEPS], sample[SAMPLES];
    neo_jitter jitter = {0, 0, 0, 0};
    neo_timeline *timeline;
    int count = 0;
    for (int r = 0; r < ranks; r++)
        for (int s = 2; s < OVER_STEPS; s++) took[count++] = o->largest[r][s];
    jitter.compute = bench_median(took, count) > 0 ? bench_spread(took, count) / 134.9 : 0;
    bench.spread = -1; /* not a figure's */
    NEO__TRY(neo_timeline_create(plan, o->units, 3, o->desc.pipeline, &timeline));
    const neo_status status = neo_timeline_sample(timeline, &jitter, 1, SAMPLES, sample);
    o->predicted = 1e3 * bench_quantile(sample, SAMPLES, 0.5);
    neo_timeline_destroy(timeline);
    return status;
}
static neo_status over_rank(neo_comm *comm, void *user) {
    enum { X, DX, E, DE, Z, DZ, Y, DY, TENSORS_OVER };
    over_ranks *o = user;
    neo_ctx *ctx = neo_comm_ctx(comm);
    one_rank r = {.comm = comm};
    const int pipeline = o->desc.pipeline;
    const int64_t n = OVER_BATCH / neo_comm_size(comm), begin = n * neo_comm_rank(comm),
                  cols[TENSORS_OVER] = {DIM, DIM, TABLES * DIM, TABLES * DIM, WIDTH, WIDTH, 1, 1};
    neo_params *params[2];
    neo_mlp *mlp[2];
    neo_optim *optim[2];
    neo_tensor t[TENSORS_OVER], sum = over_tensor(ctx, 1, 1 << 19);
    neo_jagged part[OVER_STEPS + 1];
    neo_plan *plan;
    neo_shard *shard;
    int64_t began = 0, steps[OVER_STEPS];
    const data d = make_data_of(ctx, OVER_STEPS + 1, OVER_BATCH, rows_of_table(), 0);
    const neo_mlp_desc of[2] = {over_mlp("bottom", BOTTOM, 5, n), over_mlp("top", TOP, 4, n)};
    for (int k = 0; k < 2; k++) {
        NEO__TRY(neo_params_create(ctx, &params[k]));
        NEO__TRY(neo_mlp_create(ctx, params[k], &of[k], &mlp[k]));
        NEO__TRY(neo_optim_create(ctx, params[k],
                                  &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD}, &optim[k]));
    }
    for (int k = 0; k < TENSORS_OVER; k++) t[k] = over_tensor(ctx, n, cols[k]);
    for (int i = 0; i <= OVER_STEPS; i++) { /* one id a bag */
        const neo_jagged *all = neo_jagged_view(d.ids[i]);
        int64_t *ids = bench_alloc(8 * (size_t)(2 * n * TABLES + 1)), *offsets = ids + n * TABLES;
        for (int64_t k = 0; k < n * TABLES; k++) {
            ids[k] = ((const int64_t *)all->ids)[k / n * OVER_BATCH + begin + k % n];
            offsets[k + 1] = k + 1;
        }
        part[i] = (neo_jagged){.batch = n, .feature_count = TABLES, .id_dtype = NEO_I64,
                               .offsets = offsets, .ids = ids};
    }
    NEO__TRY(neo_plan_create(ctx, &o->desc, &plan));
    NEO__TRY(neo_shard_create(comm, plan, &shard));
    NEO__TRY(over_hands(comm, n * TABLES, &r.hands));
    for (int s = 0; s < OVER_STEPS; s++) {
        const neo_tensor x = neo_tensor_slice(d.dense[s], 0, begin, n),
                         label = neo_tensor_slice(d.label[s], 0, begin, n);
        NEO__TRY(neo_comm_barrier(comm, NULL));
        began = neo_comm_time_ns(comm);
        CALL(0, SENDS, neo_shard_forward_begin(shard, &part[s], OVER_BATCH));
        if (pipeline) CALL(1, SENDS, neo_shard_prefetch(shard, &part[s + 1], OVER_BATCH));
        else CALL(2, TAKES, neo_shard_forward_end(shard, t[E]));
        int64_t *sent_ids = &r.took[pipeline ? 1 : 0];
        *sent_ids = *sent_ids > r.hands ? *sent_ids - r.hands : 0;
        CALL(4, COMPUTES, neo_mlp_forward(mlp[0], x, t[X]));
        if (pipeline) CALL(2, TAKES, neo_shard_forward_end(shard, t[E]));
        CALL(4, COMPUTES, neo_interact_forward(ctx, 0, t[X], t[E], t[Z]));
        CALL(4, COMPUTES, neo_mlp_forward(mlp[1], t[Z], t[Y]));
        CALL(4, COMPUTES, neo_bce_with_logits(ctx, NULL, t[Y], label, t[DY], NULL));
        CALL(5, COMPUTES, neo_mlp_backward(mlp[1], NULL, t[DY], t[DZ]));
        o->largest[neo_comm_rank(comm)][s] = 1e-9 * (double)r.took[5];
        CALL(4, COMPUTES, neo_interact_backward(ctx, 0, t[X], t[E], t[DZ], t[DX], t[DE]));
        CALL(3, SENDS, neo_shard_backward_begin(shard, t[DE]));
        if (!pipeline) CALL(4, TAKES, neo_shard_backward_end(shard, 0.01f));
        if (!pipeline) NEO__TRY(over_sum(&r, sum, &o->units[2]));
        CALL(4, COMPUTES, neo_mlp_backward(mlp[0], NULL, t[DX], neo_tensor_none()));
        if (!pipeline) NEO__TRY(over_sum(&r, sum, &o->units[0]));
        if (pipeline) CALL(4, TAKES, neo_shard_backward_end(shard, 0.01f));
        for (int k = 0; k < 2 && !pipeline; k++) CALL(4, COMPUTES, neo_optim_step(optim[k], 0.01f));
        over_sleep(&r, 0);
        steps[s] = neo_comm_time_ns(comm) - began;
    }
    if (pipeline) { /* takes what was prefetched */
        NEO__TRY(neo_shard_forward_begin(shard, &part[OVER_STEPS], OVER_BATCH));
        NEO__TRY(neo_shard_forward_end(shard, t[E]));
    }
    NEO__TRY(neo_comm_all_reduce(comm, NEO_REDUCE_MAX, steps, steps, OVER_STEPS, NEO_I64, NULL));
    if (neo_comm_rank(comm) == 0) {
        double ms[OVER_STEPS];
        for (int s = 2; s < OVER_STEPS; s++) ms[s - 2] = 1e-6 * (double)steps[s];
        o->measured = bench_median(ms, OVER_STEPS - 2);
        NEO__TRY(over_predict(o, plan, neo_comm_size(comm)));
    }
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    for (int i = 0; i <= OVER_STEPS; i++) free((void *)(uintptr_t)part[i].ids);
    for (int k = 0; k < TENSORS_OVER; k++) neo_tensor_free(ctx, &t[k]);
    for (int k = 0; k < 2; k++) {
        neo_optim_destroy(optim[k]);
        neo_mlp_destroy(mlp[k]);
        neo_params_destroy(params[k]);
    }
    neo_tensor_free(ctx, &sum);
    data gone = d;
    free_data(ctx, &gone);
    return NEO_OK;
}
/* What a rank computes by, a calibration of so many leaves; the first rank's. All measure at the
   same time, as ranks of a machine compute: they share its cores, its caches and its memory. */
typedef struct over_calibration {
    int leaves;
    neo_cluster cluster;
} over_calibration;
static neo_status over_measure(neo_comm *comm, void *user) {
    over_calibration *o = user;
    neo_cluster cluster = {.ranks = 1};
    neo_ctx *ctx = bench_ctx(1, o->leaves);
    NEO__TRY(neo_comm_barrier(comm, NULL));
    const neo_status status = neo_calibrate(ctx, &cluster);
    if (neo_comm_rank(comm) == 0) o->cluster = cluster;
    neo_ctx_destroy(ctx);
    return status;
}
/* A rank's layers go over the samples of so many leaves; rows are merged by those of all ranks. */
static neo_cluster over_calibrate(int ranks, int leaves) {
    over_calibration o = {.leaves = leaves};
    const neo_comm_desc desc = {.ctx = {.seed = 1, .threads = 1}};
    BENCH_OK(neo_comm_spawn(ranks, &desc, over_measure, &o, NULL));
    return o.cluster;
}
static void run_over_ranks(void) {
    static const struct { const char *name; double us, bandwidth; } LINKS[] = {
        {"fast", 2, 10e9}, {"mixed", 20, 300e6}, {"slow", 50, 60e6}};
    tables all;
    char name[96];
    tables_make(&all, DIM, LEAVES);
    const neo_bags_desc bags = {.tables = all.table, .table_count = TABLES,
                                .max_batch = OVER_BATCH, .max_ids = OVER_BATCH * TABLES};
    for (int ranks = 2; ranks <= OVER_RANKS; ranks *= 2) {
        const neo_cluster rows = over_calibrate(ranks, LEAVES);
        neo_cluster cluster = over_calibrate(ranks, LEAVES / ranks);
        const double scale = cluster.memory_bandwidth / rows.memory_bandwidth;
        for (int k = 0; k < NEO_ROWS_COUNT * 6; k++)
            cluster.calibration.rows[k / 6][k / 3 % 2][k % 3] =
                scale * rows.calibration.rows[k / 6][k / 3 % 2][k % 3];
        for (int k = 0; k < 4; k++)
            cluster.calibration.rows_large[k / 2][k % 2] =
                scale * rows.calibration.rows_large[k / 2][k % 2];
        for (int i = 0; i < 6; i++) {
            const neo_link link = {LINKS[i / 2].us, LINKS[i / 2].bandwidth};
            over_ranks o = {.desc = {.bags = &bags, .ids_per_sample = all.ids, .cluster = cluster,
                                     .pipeline = i % 2, .skew = 1.1,
                                     .dense_values = values_of(&KAGGLE),
                                     .dense_params = params_of(BOTTOM, 5) + params_of(TOP, 4)},
                            .units = {{"bottom", 0, params_of(BOTTOM, 5), 0, BOTTOM, 5, {0, 0}},
                                      {"meet", 0, 0, 1, NULL, 0, {TABLES + 1, DIM}},
                                      {"top", 0, params_of(TOP, 4), 1, TOP, 4, {0, 0}}}};
            neo_comm_desc desc = {.ctx = {.repro_shards = LEAVES, .seed = 1, .threads = 1},
                                  .virtual_clock = 1};
            desc.link[NEO_LEVEL_LOCAL] = o.desc.cluster.link[NEO_LEVEL_LOCAL] = link;
            o.desc.cluster.ranks = ranks;
            for (int k = 0; k < 3 && i % 2; k++) o.units[k].params = 0;
            BENCH_OK(neo_comm_spawn(ranks, &desc, over_rank, &o, NULL));
            snprintf(name, sizeof name, "predict.ranks.w%d.%s%s", ranks, LINKS[i / 2].name,
                     i % 2 ? ".piped" : "");
            bench_report(name, o.measured, "ms", -1, "predicted", o.predicted / o.measured);
        }
    }
}

/* ---- what a trace costs ---- */
/* Seconds of a span of a call that does nothing. */
static double span_seconds(neo_ctx *ctx) {
    enum { SPANS = 2000 };
    double t[25];
    neo_trace *trace;
    for (int i = 0; i < 25; i++) {
        BENCH_OK(neo_trace_create(ctx, &(neo_trace_desc){.spans = 2 * SPANS}, &trace));
        for (int k = 0; k < 2 * SPANS; k++) { /* memory is warm when the clock starts */
            if (k == SPANS) t[i] = bench_cpu_seconds();
            neo_trace_begin(ctx, "span", -1);
            neo_trace_end(ctx);
        }
        t[i] = (bench_cpu_seconds() - t[i]) / SPANS;
        neo_trace_destroy(trace);
    }
    return bench_median(t, 25);
}
/* Pairs until the median of all is known to 0.8 %, at most so many seconds. */
static void trace_cost(work *w) {
    enum { MORE = 30 };
    static double off[PAIRS];
    char name[96];
    const double once = take(w, 0), began = bench_cpu_seconds(), most = bench.quick ? 15 : 60;
    int pairs = 0, low, high;
    int64_t spans = 0;
    neo_trace *trace;
    double median;
    do {
        for (const int end = pairs + MORE; pairs < end; pairs++) {
            double with[2] = {0, 0};
            for (int k = 0; k < 2; k++) {
                const int on = (pairs + k) % 2;
                if (on)
                    BENCH_OK(neo_trace_create(w->ctx, &(neo_trace_desc){.spans = 1 << 9}, &trace));
                with[on] = take(w, pairs);
                if (!on) continue;
                if (neo_trace_get_stats(trace).dropped) bench_fail("predict: spans are dropped");
                spans = neo_trace_get_stats(trace).spans;
                neo_trace_destroy(trace);
            }
            off[pairs] = 100 * (with[1] / with[0] - 1);
        }
        const double by = 0.98 * sqrt(pairs);
        low = (int)(pairs / 2.0 - by), high = (int)(pairs / 2.0 + by);
        median = bench_median(off, pairs); /* sorts */
    } while (off[high] - off[low] > 0.8 && pairs + MORE <= PAIRS &&
             bench_cpu_seconds() - began < most);
    const double span = span_seconds(w->ctx);
    snprintf(name, sizeof name, "trace.%s.b%lld", w->name, (long long)w->batch);
    bench_report(name, median, "percent", -1, NULL, 0);
    printf("# %s: of %d pairs, the median of all is in %.2f .. %.2f (95 %%)\n", name, pairs,
           off[low], off[high]);
    snprintf(name, sizeof name, "trace.%s.b%lld.spans", w->name, (long long)w->batch);
    bench_report(name, 100 * (double)spans * span / once, "percent", -1, NULL, 0);
    printf("# %s: %lld spans a step, of %.0f ns each\n", name, (long long)spans, 1e9 * span);
}

/* ---- rounds ---- */
static void run(work *w, int threads, int wall) {
    static double t[PARTS + 1][STEPS], measured[PARTS + 1][ROUNDS], ratio[PARTS + 2][ROUNDS],
        part[2][2][PARTS + 1];
    const int rounds = bench.quick ? 3 : ROUNDS;
    neo_ctx *lists = threads > 1 ? bench_lists_ctx(threads, 1) : NULL;
    char name[96];
    w->ctx = lists && !wall ? lists : bench_ctx(threads, 1);
    w->create(w);
    w->turns = MOST_BATCHES;
    const double once = (take(w, 0), take(w, 1));
    int steps = (int)((bench.quick ? 0.3 : 2) / once);
    steps = steps < 3 ? 3 : steps > STEPS ? STEPS : steps;
    take_turns(w, once);
    for (int r = 0; r <= rounds; r++) {
        for (int k = 0; k <= wall; k++) {
            neo_cluster cluster = {.ranks = 1};
            BENCH_OK(neo_calibrate(k ? lists : w->ctx, &cluster));
            memset(part[r % 2][k], 0, sizeof part[r % 2][k]);
            w->predict(w, &cluster, part[r % 2][k]);
        }
        for (int k = 0; k <= PARTS + wall && r > 0; k++) { /* of the round before */
            const int of = k > PARTS, at = of ? PARTS : k;
            ratio[k][r - 1] = (part[0][of][at] + part[1][of][at]) / 2 / measured[at][r - 1];
        }
        /* All have rested while neo_calibrate ran: as many steps bring them back. */
        for (int i = -w->turns; i < steps && r < rounds; i++) {
            const double all = take(w, i + w->turns);
            for (int k = 0; k <= PARTS && i >= 0; k++) t[k][i] = k < PARTS ? w->took[k] : all;
        }
        for (int k = 0; k <= PARTS && r < rounds; k++) measured[k][r] = bench_median(t[k], steps);
    }
    for (int k = 0; k <= PARTS + wall; k++) {
        if (k < PARTS && k >= w->parts) continue;
        const double by = bench_median(ratio[k], rounds);
        bench_spread(ratio[k], rounds);
        snprintf(name, sizeof name, "predict.%s.b%lld.t%d%s%s%s", w->name, (long long)w->batch,
                 threads, wall ? ".wall" : "", k == PARTS ? "" : ".",
                 k < PARTS ? w->part[k] : k > PARTS ? "by_tasks" : "");
        bench_report(name, 1e3 * bench_median(measured[k < PARTS ? k : PARTS], rounds), "ms", -1,
                     "predicted", by);
    }
    if (threads == 1) trace_cost(w);
    w->destroy(w);
    if (w->ctx != lists) neo_ctx_destroy(w->ctx);
    neo_ctx_destroy(lists);
}

int main(int argc, char **argv) {
#define DLRM(name, meet, batch, way)                                                               \
    {name, {"bottom_forward", "bags_forward", meet "_forward", "top_forward", "top_backward",      \
            meet "_backward", "bags_backward", "bottom_backward", "optimizer"}, 9, batch,          \
     way##_create, way##_step, way##_destroy, dlrm_predict, 0, 0, {0}, 0}
    static work all[] = {
        {"gpt", {"layers_forward", "attention_forward", "rest_forward", "head_forward",
                 "layers_backward", "attention_backward", "rest_backward", "head_backward",
                 "optimizer"}, 9, 12, gpt_create, gpt_step, gpt_destroy, gpt_predict, 0, 0, {0}, 0},
        DLRM("kaggle", "interact", 128, dlrm), DLRM("kaggle", "interact", 2048, dlrm),
        DLRM("mlperf", "interact", 128, dlrm), DLRM("dcnv2", "cross", 128, dcn),
        DLRM("mlperf", "interact", 2048, dlrm), DLRM("dcnv2", "cross", 2048, dcn)};
    bench_begin(argc, argv);
    const int last = (int)(sizeof all / sizeof *all) - (bench.quick ? 2 : 0);
    for (int i = 0; i < last; i++)
        for (int wall = -1; wall <= 1; wall++) {
            const int threads = bench.threads ? bench.threads : wall < 0 ? 1 : 2;
            if ((wall < 0) == (threads == 1)) run(&all[i], threads, wall > 0);
        }
    if (bench.threads <= 1) run_over_ranks();
    return bench_end();
}
