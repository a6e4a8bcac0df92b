/* step.c: one training step of the DLRM with the layers used for Criteo Kaggle (bottom 13-512-256-64-16, 26 tables of
   16 columns, top 367-512-256-1; row-wise Adagrad on tables, Adagrad on layers), at batches of 128 and 2048.

   Verified first: a few steps on one thread with the scalar kernels, and on all threads with the best ones, must
   end in the same digest. The ceiling is a roofline of the step measured in the same run: multiply-adds at the
   FMA peak of the threads plus the tables' bytes at the copy bandwidth. The last figures are the cost of the leaf
   tree: the time of a step with 8 leaves over one with 1, alternating. */
#include "bench.h"

enum { MAX_ROUNDS = 1000, DENSE = 13, TABLES = 26, DIM = 16, ROWS = 100000, BATCHES = 8, WIDTH = DIM + TABLES * (TABLES + 1) / 2 };
static const int64_t BOTTOM[] = {DENSE, 512, 256, 64, DIM}, TOP[] = {WIDTH, 512, 256, 1};

typedef struct model {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_bags *bags;
    neo_optim *optim;
    int64_t batch;
    neo_tensor x, e, z, y, dx, de, dz, dy;
} model;

/* BATCHES batches, made once: [batch][..] dense, label, and jagged views. */
typedef struct data {
    neo_tensor dense[BATCHES], label[BATCHES];
    neo_jagged_buffer *ids[BATCHES];
} data;

static neo_mlp *make_mlp(model *m, const char *name, const int64_t *widths, int count, neo_activation last) {
    neo_mlp_desc d = {.name = name, .width_count = count, .max_batch = m->batch, .act = NEO_ACT_RELU, .last_act = last};
    memcpy(d.widths, widths, (size_t)count * sizeof *widths);
    neo_mlp *mlp;
    BENCH_OK(neo_mlp_create(m->ctx, m->params, &d, &mlp));
    return mlp;
}
static neo_tensor make_tensor(model *m, int64_t columns) {
    neo_tensor t;
    BENCH_OK(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){m->batch, columns}, &t));
    return t;
}

static model make_model(neo_ctx *ctx, int64_t batch) {
    model m = {.ctx = ctx, .batch = batch};
    neo_table_desc tables[TABLES];
    char names[TABLES][8];
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "C%d", t + 1);
        tables[t] = (neo_table_desc){.name = names[t], .rows = ROWS, .dim = DIM, .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    BENCH_OK(neo_params_create(ctx, &m.params));
    m.bottom = make_mlp(&m, "bottom", BOTTOM, 5, NEO_ACT_RELU);
    m.top = make_mlp(&m, "top", TOP, 4, NEO_ACT_NONE);
    BENCH_OK(neo_bags_create(ctx, &(neo_bags_desc){.tables = tables, .table_count = TABLES, .max_batch = batch,
                                                   .max_ids = batch * TABLES}, &m.bags));
    BENCH_OK(neo_optim_create(ctx, m.params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAGRAD}, &m.optim));
    m.x = make_tensor(&m, DIM), m.dx = make_tensor(&m, DIM);
    m.e = make_tensor(&m, TABLES * DIM), m.de = make_tensor(&m, TABLES * DIM);
    m.z = make_tensor(&m, WIDTH), m.dz = make_tensor(&m, WIDTH);
    m.y = make_tensor(&m, 1), m.dy = make_tensor(&m, 1);
    return m;
}
static void free_model(model *m) {
    neo_tensor *all[] = {&m->x, &m->e, &m->z, &m->y, &m->dx, &m->de, &m->dz, &m->dy};
    for (int i = 0; i < 8; i++) neo_tensor_free(m->ctx, all[i]);
    neo_optim_destroy(m->optim);
    neo_bags_destroy(m->bags);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    neo_ctx_destroy(m->ctx);
}

static data make_data(neo_ctx *ctx, int64_t batch) {
    data d;
    neo_schema *schema;
    neo_reader *reader;
    neo_batch b;
    BENCH_OK(neo_schema_synthetic(ctx, &(neo_synthetic_desc){.samples = batch * BATCHES, .rows = ROWS}, &schema));
    BENCH_OK(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = batch}, &reader));
    for (int i = 0; i < BATCHES; i++) {
        const neo_jagged *part = &b.sparse;
        BENCH_OK(neo_reader_next(reader, &b));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 2, b.dense.shape, &d.dense[i]));
        BENCH_OK(neo_tensor_alloc(ctx, NEO_F32, 1, b.label.shape, &d.label[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.dense, d.dense[i]));
        BENCH_OK(neo_tensor_copy(ctx, b.label, d.label[i]));
        BENCH_OK(neo_jagged_create(ctx, &(neo_jagged_desc){.feature_count = TABLES, .max_bags = batch * TABLES,
                                                           .max_ids = neo_jagged_id_count(part)}, &d.ids[i]));
        BENCH_OK(neo_jagged_stack(d.ids[i], &part, 1));
    }
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    return d;
}
static void free_data(neo_ctx *ctx, data *d) {
    for (int i = 0; i < BATCHES; i++) {
        neo_tensor_free(ctx, &d->dense[i]);
        neo_tensor_free(ctx, &d->label[i]);
        neo_jagged_destroy(d->ids[i]);
    }
}

static void step(model *m, const data *d, int i) {
    const neo_jagged *ids = neo_jagged_view(d->ids[i]);
    BENCH_OK(neo_mlp_forward(m->bottom, d->dense[i], m->x));
    BENCH_OK(neo_bags_forward(m->bags, ids, m->e));
    BENCH_OK(neo_interact_forward(m->ctx, 0, m->x, m->e, m->z));
    BENCH_OK(neo_mlp_forward(m->top, m->z, m->y));
    BENCH_OK(neo_bce_with_logits(m->ctx, NULL, m->y, d->label[i], m->dy, NULL));
    BENCH_OK(neo_mlp_backward(m->top, NULL, m->dy, m->dz));
    BENCH_OK(neo_interact_backward(m->ctx, 0, m->x, m->e, m->dz, m->dx, m->de));
    BENCH_OK(neo_bags_backward(m->bags, ids, m->de, 0.01f));
    BENCH_OK(neo_mlp_backward(m->bottom, NULL, m->dx, neo_tensor_none()));
    BENCH_OK(neo_optim_step(m->optim, 0.01f));
}

static uint64_t digest_after(int threads, neo_isa isa, int shards, const data *d, int64_t batch, int steps) {
    neo_ctx *ctx;
    neo_state *state;
    BENCH_OK(neo_ctx_create(&(neo_ctx_desc){.threads = threads, .isa = isa, .repro_shards = shards, .seed = 1}, &ctx));
    model m = make_model(ctx, batch);
    for (int i = 0; i < steps; i++) step(&m, d, i % BATCHES);
    BENCH_OK(neo_state_create(ctx, &state));
    BENCH_OK(neo_state_add_params(state, m.params));
    BENCH_OK(neo_state_add_optim(state, m.optim));
    BENCH_OK(neo_state_add_bags(state, m.bags));
    uint64_t digest = neo_state_digest(state);
    neo_state_destroy(state);
    free_model(&m);
    return digest;
}

/* Seconds a step needs at the least: multiply-adds at `gflops`, table bytes at `gbs`. */
static double roofline(int64_t batch, double gflops, double gbs) {
    double fmas = 0, b = (double)batch;
    for (int l = 0; l < 4; l++) fmas += (double)(BOTTOM[l] * BOTTOM[l + 1]) * (l == 0 ? 2 : 3); /* no dx of the data */
    for (int l = 0; l < 3; l++) fmas += (double)(TOP[l] * TOP[l + 1]) * 3;
    fmas += TABLES * (TABLES + 1) / 2 * DIM * 3; /* dots, and each used by two rows in backward */
    double bytes = TABLES * (DIM * 4.0 * 5 + 8 + 8); /* row read, de read, row and state read and written, id */
    return 2 * fmas * b / (gflops * 1e9) + bytes * b / (gbs * 1e9);
}

static double seconds(model *m, const data *d, int i) {
    int64_t start = neo_time_ns();
    step(m, d, i % BATCHES);
    return (double)(neo_time_ns() - start) * 1e-9;
}

static void bench_batch(int64_t batch, double copy_gbs) {
    neo_ctx *ctx = bench_ctx(0, 1);
    int threads = neo_ctx_threads(ctx);
    data d = make_data(ctx, batch);
    int verify = batch > 1000 ? 1 : 3;
    if (digest_after(1, NEO_ISA_SCALAR, 8, &d, batch, verify) != digest_after(threads, NEO_ISA_BEST, 8, &d, batch, verify))
        bench_fail("step: the digest depends on threads or instruction set");

    model one = make_model(ctx, batch), eight = make_model(bench_ctx(0, 8), batch);
    int rounds = (int)((bench.quick ? 20000 : 200000) / batch);
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    static double t1[MAX_ROUNDS], t8[MAX_ROUNDS], ratio[MAX_ROUNDS], peak[MAX_ROUNDS];
    for (int i = 0; i < BATCHES; i++) seconds(&one, &d, i), seconds(&eight, &d, i);
    for (int i = 0; i < rounds; i++) {
        int swap = i & 1;
        if (swap) t8[i] = seconds(&eight, &d, i);
        t1[i] = seconds(&one, &d, i);
        if (!swap) t8[i] = seconds(&eight, &d, i);
        ratio[i] = t8[i] / t1[i];
        peak[i] = i % 16 ? peak[i - 1] : bench_fma_peak(); /* the clock of a shared machine moves */
    }
    double best = roofline(batch, bench_median(peak, rounds) * threads, copy_gbs), t = bench_median(t1, rounds);
    char name[64];
    snprintf(name, sizeof name, "step.b%lld", (long long)batch);
    bench_spread(t1, rounds);
    bench_report(name, (double)batch / t, "samples/s", 100 * best / t, NULL, 0);
    snprintf(name, sizeof name, "step.b%lld.leaves8_cost", (long long)batch);
    double cost = bench_median(ratio, rounds);
    bench_spread(ratio, rounds);
    bench_report(name, 100 * (cost - 1), "percent", -1, NULL, 0);

    free_model(&eight);
    free_data(ctx, &d);
    free_model(&one);
}

int main(int argc, char **argv) {
    bench_begin(argc, argv);
    double copy_gbs = bench_copy_bandwidth();
    bench_batch(128, copy_gbs);
    bench_batch(2048, copy_gbs);
    return bench_end();
}
