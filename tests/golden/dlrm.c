/* dlrm.c: a whole small DLRM, trained 20 steps with each table optimizer, against
   PyTorch (tests/golden/make_dlrm.py).

   4 dense numbers, 5 tables of 7 to 50 rows (two of them mean-pooled), dim 8, bottom 4-16-8, top
   23-16-1, batches of 32 with empty bags, several ids per bag and ids repeated within a batch.
   The initial weights are read by name from a PyTorch state_dict, as `--load` does. Compared: the
   loss of each step to 1e-5 of itself, final weights and optimizer state to 1e-5 of each tensor's
   largest magnitude. PyTorch in float32 is itself up to 2e-6 from these float64 values; make.py
   prints how far. */
#include "common.h"

#include "../model.h"

enum { DENSE = 4, DIM = 8, TABLES = 5, BATCH = 32, MAX_IDS = BATCH * TABLES * 3 };

/* As RUNS in make_dlrm.py. */
static const struct run {
    const char *name;
    float lr;
    neo_bag_optim table;
    neo_optim_desc dense;
} runs[] = {
    {"sgd", 0.5f, {.kind = NEO_BAG_SGD}, {.kind = NEO_OPTIM_SGD}},
    {"adagrad", 0.05f, {.kind = NEO_BAG_ADAGRAD}, {.kind = NEO_OPTIM_ADAGRAD, .eps = 1e-8f}},
    {"rowwise_adagrad",
     0.05f,
     {.kind = NEO_BAG_ROWWISE_ADAGRAD},
     {.kind = NEO_OPTIM_ADAGRAD, .eps = 1e-8f}},
    {"adam", 0.01f, {.kind = NEO_BAG_ADAM}, {.kind = NEO_OPTIM_ADAM}},
    {"adamw",
     0.01f,
     {.kind = NEO_BAG_ADAM, .decay = NEO_DECAY_DECOUPLED, .weight_decay = 0.05f},
     {.kind = NEO_OPTIM_ADAMW, .weight_decay = 0.05f}},
    {"partial_adam", 0.01f, {.kind = NEO_BAG_PARTIAL_ADAM}, {.kind = NEO_OPTIM_ADAM}},
    {"lamb",
     0.02f,
     {.kind = NEO_BAG_LAMB, .weight_decay = 0.01f, .eps = 1e-6f},
     {.kind = NEO_OPTIM_LAMB, .weight_decay = 0.01f}},
    {"partial_lamb",
     0.02f,
     {.kind = NEO_BAG_PARTIAL_LAMB, .weight_decay = 0.01f, .eps = 1e-6f},
     {.kind = NEO_OPTIM_LAMB, .weight_decay = 0.01f}},
    {"lars_sgd",
     0.1f,
     {.kind = NEO_BAG_LARS_SGD, .momentum = 0.9f, .weight_decay = 0.01f, .eta = 0.1f},
     {.kind = NEO_OPTIM_SGD, .momentum = 0.9f}},
};
enum { RUNS = sizeof runs / sizeof *runs };

/* The weights come from a state_dict. */
static neo_status create(model *m, neo_ctx *ctx, const struct run *r) {
    static const char *const names[TABLES] = {"0", "1", "2", "3", "4"};
    static const int64_t rows[TABLES] = {7, 11, 19, 33, 50};
    static const int64_t bottom[] = {DENSE, 16, DIM}, top[] = {16, 1};
    neo_table_desc tables[TABLES];
    memset(tables, 0, sizeof tables);
    for (int i = 0; i < TABLES; i++) {
        tables[i].name = names[i];
        tables[i].rows = rows[i];
        tables[i].dim = DIM;
        tables[i].pooling = i == 2 || i == 4 ? NEO_POOL_MEAN : NEO_POOL_SUM;
        tables[i].optim = r->table;
    }
    const model_desc d = {.batch = BATCH,
                          .max_ids = MAX_IDS,
                          .tables = tables,
                          .table_count = TABLES,
                          .bottom = bottom,
                          .bottom_count = 3,
                          .top = top,
                          .top_count = 2,
                          .optim = r->dense};
    return model_create(m, ctx, &d);
}

static neo_status load(model *m) {
    static const neo_name_map map[] = {{"bot_l.*", "bottom.*", 0},
                                       {"top_l.*", "top.*", 0},
                                       {"emb_l.*.weight", "bags.*.weight", 0}};
    int loaded = 0;
    neo_status st = neo_load_safetensors(m->ctx, GOLDEN_DIR "dlrm_init.safetensors", map, 3, 0,
                                         m->state, &loaded);
    if (st == NEO_OK) CHECK_INT(loaded, 8 + TABLES);
    return st;
}

/* "bottom.0.weight" -> "bot_l.0.weight", as the golden file names it. */
static const char *torch_name(const char *name, char *out, size_t size) {
    if (strncmp(name, "bottom.", 7) == 0)
        snprintf(out, size, "bot_l.%s", name + 7);
    else
        snprintf(out, size, "top_l.%s", name + 4);
    return out;
}

/* Final weights and state. optim.<parameter>.exp_avg and the like are the dense optimizers'
 * state. */
static void check_final(model *m, const struct run *r) {
    char name[96], state[128], want[160];
    for (int i = 0; i < neo_params_count(m->params); i++) {
        const neo_param *p = neo_params_at(m->params, i);
        torch_name(p->name, name, sizeof name);
        golden_check(p->value, "%s.%s", r->name, name);
        snprintf(state, sizeof state, "optim.%s.", p->name);
        snprintf(want, sizeof want, "%s.%s.", r->name, name);
        golden_check_state(m->state, state, want, "");
    }
    for (int i = 0; i < TABLES; i++) {
        golden_check(neo_bags_weight(m->bags, i), "%s.emb_l.%d.weight", r->name, i);
        for (int k = 0; k < 2; k++) {
            neo_tensor s = neo_bags_state(m->bags, i, k);
            snprintf(want, sizeof want, "%s.emb_l.%d.momentum%d", r->name, i, k + 1);
            if (!s.data != !golden_has(want))
                FAIL("%s: state there: %d", want, s.data != NULL);
            else if (s.data)
                golden_check(s, "%s", want);
        }
    }
}

static void train(neo_ctx *ctx, const struct run *r) {
    int mark = golden_block_count;
    model m;
    neo_status st = create(&m, ctx, r);
    if (st == NEO_OK) st = load(&m);
    if (st != NEO_OK) FAIL("%s: %s: %s", r->name, neo_status_string(st), neo_last_error());
    neo_tensor dense = golden("dense"), offsets = golden("offsets"), ids = golden("ids");
    neo_tensor label = golden("label"), want = golden("%s.loss", r->name);
    for (int64_t i = 0; st == NEO_OK && i < dense.shape[0]; i++) {
        double loss = -1;
        double expected = (double)golden_f(want)[i];
        neo_jagged sparse = {.batch = BATCH,
                             .feature_count = TABLES,
                             .id_dtype = NEO_I64,
                             .offsets = golden_i(offsets) + i * offsets.shape[1],
                             .ids = ids.data};
        const model_batch batch = {
            .dense = neo_tensor_2d(golden_f(dense) + i * BATCH * DENSE, NEO_F32, BATCH, DENSE),
            .label = neo_tensor_1d(golden_f(label) + i * BATCH, NEO_F32, BATCH),
            .ids = &sparse};
        st = model_step(&m, &batch, r->lr, &loss);
        if (st != NEO_OK) FAIL("%s: step %d: %s", r->name, (int)i, neo_last_error());
        if (!(fabs(loss - expected) <= 1e-5 * expected))
            FAIL("%s: loss of step %d is %.9g, expected %.9g", r->name, (int)i, loss, expected);
    }
    if (st == NEO_OK) check_final(&m, r);
    model_destroy(&m);
    golden_release(mark);
}

static void dlrm_each_optimizer(void) {
    for (int c = 0; c < GOLDEN_CONTEXTS; c++) {
        neo_ctx *ctx = golden_context(c);
        for (int i = 0; i < RUNS; i++) train(ctx, &runs[i]);
        neo_ctx_destroy(ctx);
    }
}

int main(void) {
    golden_open("dlrm");
    RUN(dlrm_each_optimizer);
    golden_close();
    return test_end("golden/dlrm");
}
