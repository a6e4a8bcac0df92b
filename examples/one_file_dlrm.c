/* one_file_dlrm.c: a complete trainer of a recommendation model (DLRM, arXiv 1906.00091) in one
   file: real data, training, AUC on test data, checkpoints, going on after a kill.

     cc -O2 -I. examples/one_file_dlrm.c examples/neo.c -o one_file_dlrm -lm -lpthread
     ./one_file_dlrm [CHECKPOINTS [EPOCHS]]

   It reads UCI's census data in examples/data/adult: will a person earn more than 50,000 dollars?
   Numbers enter the bottom MLP; words, ranges of numbers have tables. Expect a test AUC of 0.930.

   A checkpoint is saved in CHECKPOINTS after every epoch, and a run goes on from the newest one.
   With the argument DIR 4, and then with DIR, the last line is that of a run in one piece:
   `state cfa2ec8e1d2baa65`, the digest of all weights and optimizer state. */
#include "neo_data.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 256, EPOCHS = 10, DIM = 8, MAX_TABLES = 32 };
static const float LR = 0.02f;
static const char *const COLUMNS = "examples/data/adult/adult.columns";
static const char *const TRAIN = "examples/data/adult/adult.data";
static const char *const TEST = "examples/data/adult/adult.test";

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)
typedef struct model {
    neo_ctx *ctx;
    neo_schema *schema;            /* columns of the data, and the dictionaries of words */
    neo_reader *train, *test;
    neo_params *params;            /* of both MLPs */
    neo_mlp *bottom, *top;
    neo_optim *optim;
    neo_bags *tables;
    neo_metrics *metrics;
    neo_state *state;
    int64_t epoch;                 /* epochs trained; saved with the state */
    neo_tensor x, e, z, logit;     /* out of the bottom MLP, the tables, the interaction, the top */
    neo_tensor dx, de, dz, dlogit; /* their gradients */
} model;

static neo_status open_data(model *m) {
    neo_reader_desc train = {.paths = &TRAIN, .path_count = 1, .batch = BATCH,
                             .shuffle_window = 32768};
    neo_reader_desc test = {.paths = &TEST, .path_count = 1, .batch = BATCH};
    TRY(neo_schema_parse(m->ctx, COLUMNS, &m->schema));
    TRY(neo_schema_fit(m->schema, &TRAIN, 1, 0)); /* words become ids */
    train.schema = test.schema = m->schema;
    TRY(neo_reader_open(m->ctx, &train, &m->train));
    return neo_reader_open(m->ctx, &test, &m->test);
}

static neo_status create_layers(model *m, int64_t features, int64_t crossed) {
    int64_t dense = neo_schema_dense_count(m->schema);
    neo_table_desc tables[MAX_TABLES] = {{0}};
    neo_mlp_desc bottom = {.name = "bottom", .width_count = 3, .widths = {dense, 32, DIM},
                           .max_batch = BATCH, .act = NEO_ACT_RELU, .last_act = NEO_ACT_RELU};
    neo_mlp_desc top = {.name = "top", .width_count = 3, .widths = {crossed, 32, 1},
                        .max_batch = BATCH, .act = NEO_ACT_RELU};
    neo_optim_desc adagrad = {.kind = NEO_OPTIM_ADAGRAD};
    neo_bags_desc bags = {.tables = tables, .table_count = (int32_t)features, .max_batch = BATCH,
                          .max_ids = BATCH * features};
    for (int32_t t = 0; t < features; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        tables[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = DIM,
                                     .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    TRY(neo_params_create(m->ctx, &m->params));
    TRY(neo_mlp_create(m->ctx, m->params, &bottom, &m->bottom));
    TRY(neo_mlp_create(m->ctx, m->params, &top, &m->top));
    TRY(neo_bags_create(m->ctx, &bags, &m->tables));
    return neo_optim_create(m->ctx, m->params, &adagrad, &m->optim);
}

static neo_status create_buffers(model *m, int64_t features, int64_t crossed) {
    neo_tensor *tensors[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit};
    const int64_t columns[] = {DIM, features * DIM, crossed, 1};
    for (int i = 0; i < 8; i++)
        TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){BATCH, columns[i % 4]}, tensors[i]));
    return NEO_OK;
}

/* All that a run needs to go on: weights, optimizers, dictionaries, the number of epochs. */
static neo_status create_state(model *m) {
    neo_tensor epoch = neo_tensor_1d(&m->epoch, NEO_I64, 1);
    TRY(neo_state_create(m->ctx, &m->state));
    TRY(neo_state_add_params(m->state, m->params));
    TRY(neo_state_add_optim(m->state, m->optim));
    TRY(neo_state_add_bags(m->state, m->tables));
    TRY(neo_state_add_schema(m->state, m->schema));
    return neo_state_add(m->state, NEO_STATE_PROGRESS, "epoch", epoch);
}

static neo_status create(model *m) {
    TRY(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &m->ctx));
    TRY(open_data(m));
    int64_t features = neo_schema_feature_count(m->schema);
    int64_t crossed = neo_interact_width(DIM, features, 0);
    if (features > MAX_TABLES) return neo_fail(NEO_ERR_RANGE, "%s: too many features", COLUMNS);
    TRY(create_layers(m, features, crossed));
    TRY(create_buffers(m, features, crossed));
    TRY(neo_metrics_create(m->ctx, &(neo_metrics_desc){.capacity = 1 << 20}, &m->metrics));
    return create_state(m);
}

#define CUT(t) neo_tensor_rows(t, 0, batch->size) /* the last batch of an epoch is smaller */

/* The logits of a batch are left in m->logit. */
static neo_status forward(model *m, const neo_batch *batch) {
    neo_tensor x = CUT(m->x), e = CUT(m->e), z = CUT(m->z);
    TRY(neo_mlp_forward(m->bottom, batch->dense, x));
    TRY(neo_bags_forward(m->tables, &batch->sparse, e));
    TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    return neo_mlp_forward(m->top, z, CUT(m->logit));
}

static neo_status train_batch(model *m, const neo_batch *batch, double *loss) {
    neo_tensor x = CUT(m->x), e = CUT(m->e), logit = CUT(m->logit);
    neo_tensor dx = CUT(m->dx), de = CUT(m->de), dz = CUT(m->dz), dlogit = CUT(m->dlogit);
    TRY(forward(m, batch));
    TRY(neo_bce_with_logits(m->ctx, NULL, logit, batch->label, dlogit, loss));
    TRY(neo_mlp_backward(m->top, NULL, dlogit, dz));
    TRY(neo_interact_backward(m->ctx, 0, x, e, dz, dx, de));
    TRY(neo_bags_backward(m->tables, &batch->sparse, de, LR)); /* steps the tables */
    TRY(neo_mlp_backward(m->bottom, NULL, dx, neo_tensor_none()));
    return neo_optim_step(m->optim, LR);
}

static neo_status train_epoch(model *m) {
    double loss, sum = 0, batches = 0;
    neo_batch batch;
    neo_status status;
    TRY(neo_reader_epoch(m->train, m->epoch));
    for (; (status = neo_reader_next(m->train, &batch)) == NEO_OK; batches++) {
        TRY(train_batch(m, &batch, &loss));
        sum += loss;
    }
    printf("epoch %d  loss %.4f", (int)m->epoch + 1, sum / batches);
    return status == NEO_END ? NEO_OK : status;
}

static neo_status evaluate(model *m) {
    neo_batch batch;
    neo_metric_values values;
    neo_status status;
    neo_metrics_reset(m->metrics);
    TRY(neo_reader_epoch(m->test, 0));
    while ((status = neo_reader_next(m->test, &batch)) == NEO_OK) {
        TRY(forward(m, &batch));
        TRY(neo_metrics_update(m->metrics, neo_tensor_rows(m->logit, 0, batch.size), batch.label));
    }
    if (status != NEO_END) return status;
    TRY(neo_metrics_lifetime(m->metrics, &values));
    printf("  test auc %.4f  log loss %.4f\n", values.auc, values.logloss);
    return NEO_OK;
}

/* dir: of checkpoints, or NULL. */
static neo_status run(model *m, const char *dir, int64_t epochs) {
    TRY(create(m));
    neo_status status = NEO_OK;
    if (dir) status = neo_load(m->ctx, &(neo_load_desc){.dir = dir}, m->state, NULL);
    if (status != NEO_OK && status != NEO_ERR_NOT_FOUND) return status; /* or there is none yet */
    while (m->epoch < epochs && !neo_stop_signal()) { /* Ctrl-C, SIGTERM: after an epoch */
        TRY(train_epoch(m));
        TRY(evaluate(m));
        m->epoch++;
        if (dir) TRY(neo_save(m->ctx, &(neo_save_desc){.dir = dir, .step = m->epoch}, m->state));
    }
    if (m->epoch >= epochs)
        printf("state %016llx\n", (unsigned long long)neo_state_digest(m->state));
    else fprintf(stderr, "one_file_dlrm: stopped after epoch %d; %s\n", (int)m->epoch,
                 dir ? "the same command goes on" : "nothing is saved without CHECKPOINTS");
    return NEO_OK;
}

static void destroy(model *m) {
    neo_tensor *tensors[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit};
    for (int i = 0; i < 8; i++) neo_tensor_free(m->ctx, tensors[i]);
    neo_state_destroy(m->state);
    neo_metrics_destroy(m->metrics);
    neo_optim_destroy(m->optim);
    neo_bags_destroy(m->tables);
    neo_mlp_destroy(m->top);
    neo_mlp_destroy(m->bottom);
    neo_params_destroy(m->params);
    neo_reader_close(m->test);
    neo_reader_close(m->train);
    neo_schema_destroy(m->schema);
    neo_ctx_destroy(m->ctx);
}

int main(int argc, char **argv) {
    static model m;
    int64_t epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;
    if (argc > 3 || epochs < 1) return fprintf(stderr, "one_file_dlrm [CHECKPOINTS [EPOCHS]]\n"), 2;
    neo_status status = neo_stop_on_signals();
    if (status == NEO_OK) status = run(&m, argc > 1 ? argv[1] : NULL, epochs);
    if (status != NEO_OK) fprintf(stderr, "one_file_dlrm: %s\n", neo_last_error());
    destroy(&m);
    return status != NEO_OK ? 1 : neo_stop_signal() ? 128 + neo_stop_signal() : 0;
}
