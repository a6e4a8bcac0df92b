/* ranks.c: the trainer of the README on many ranks: embedding tables lie where a plan puts them,
   the MLPs and their optimizer are cut over all ranks, every rank reads its own part of each batch.

     cc -O2 -I. examples/ranks.c examples/neo.c -o ranks -lm -lpthread && ./ranks --ranks 4
     mpicc -DNEO_COMM_MPI -O2 -I. examples/ranks.c examples/neo.c -o ranks_mpi -lm -lpthread &&
   mpirun -n 4 ./ranks_mpi

   Samples are made up. Expect the loss to fall from 0.58 to 0.53 and, as last line, the same digest
   for 1 to 8 ranks. */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, STEPS = 200, LEAVES = 8 };
enum { DENSE = 13, TABLES = 26, DIM = 16, CROSSED = DIM + TABLES * (TABLES + 1) / 2 };
enum { BOTTOM, TOP, UNITS };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)

typedef struct model {
    neo_comm *comm;
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader; /* of this rank's samples */
    neo_params *params[UNITS];
    neo_mlp *mlp[UNITS];
    neo_fsdp *dense;                     /* both MLPs */
    neo_shard *tables;
    neo_tensor x, e, z, logit; /* out of the bottom MLP, the tables, the interaction, the top MLP */
    neo_tensor dx, de, dz, dlogit;
} model;

static neo_status create_reader(model *m) {
    TRY(neo_schema_synthetic(m->ctx, &(neo_synthetic_desc){.samples = STEPS * BATCH}, &m->schema));
    return neo_reader_open(m->ctx,
                           &(neo_reader_desc){.schema = m->schema,
                                              .batch = BATCH,
                                              .rank = neo_comm_rank(m->comm),
                                              .world_size = neo_comm_size(m->comm)},
                           &m->reader);
}

static neo_status create_mlps(model *m) {
    neo_mlp_desc desc[UNITS] = {
        {.name = "bottom",
         .width_count = 3,
         .widths = {DENSE, 64, DIM},
         .act = NEO_ACT_RELU,
         .last_act = NEO_ACT_RELU},
        {.name = "top", .width_count = 3, .widths = {CROSSED, 64, 1}, .act = NEO_ACT_RELU}};
    neo_fsdp_unit units[UNITS] = {{0}};
    for (int i = 0; i < UNITS; i++) {
        desc[i].max_batch = BATCH;
        TRY(neo_params_create_deferred(
            m->ctx, &m->params[i])); /* only described: neo_fsdp has the memory */
        TRY(neo_mlp_create(m->ctx, m->params[i], &desc[i], &m->mlp[i]));
        units[i].name = desc[i].name;
        units[i].params = m->params[i];
    }
    return neo_fsdp_create(m->comm,
                           &(neo_fsdp_desc){.units = units,
                                            .unit_count = UNITS,
                                            .mode = NEO_FSDP_FULL,
                                            .optim = {.kind = NEO_OPTIM_ADAGRAD}},
                           &m->dense);
}

static neo_status create_tables(model *m) {
    neo_table_desc table[TABLES] = {{0}};
    neo_plan *plan;
    for (int t = 0; t < TABLES; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        table[t] = (neo_table_desc){.name = f.name,
                                    .rows = f.rows,
                                    .dim = DIM,
                                    .row_buckets = LEAVES,
                                    .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
    }
    neo_bags_desc bags = {.tables = table,
                          .table_count = TABLES,
                          .max_batch = BATCH,
                          .max_ids = BATCH * TABLES};
    TRY(neo_plan_create(m->ctx,
                        &(neo_plan_desc){.bags = &bags,
                                         .pipeline = 1,
                                         .cluster = {.ranks = neo_comm_size(m->comm)}},
                        &plan));
    neo_status status = neo_shard_create(m->comm, plan, &m->tables);
    neo_plan_destroy(plan);
    return status;
}

static neo_status create_activations(model *m) {
    struct {
        neo_tensor *value, *grad;
        int64_t columns;
    } all[] = {{&m->x, &m->dx, DIM},
               {&m->e, &m->de, TABLES * DIM},
               {&m->z, &m->dz, CROSSED},
               {&m->logit, &m->dlogit, 1}};
    for (int i = 0; i < 4; i++) {
        int64_t shape[] = {BATCH, all[i].columns};
        TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, all[i].value));
        TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, shape, all[i].grad));
    }
    return NEO_OK;
}

/* Samples of one piece of a batch, counted from this rank's first. There is one piece, all of the
   rank's samples, if the number of ranks is a power of two. */
static int64_t piece_samples(const model *m, int piece, int64_t batch, int64_t *first) {
    int64_t start, n = neo_fsdp_samples(m->dense, piece, batch, first);
    neo_fsdp_samples(m->dense, 0, batch, &start);
    *first -= start;
    return n;
}

/* Forward and backward of the top MLP; the ranks' sums of its gradients are under way when it
 * returns. */
static neo_status train_top(model *m, const neo_batch *batch, neo_exact *loss) {
    for (int k = 0; k < neo_fsdp_pieces(m->dense); k++) {
        neo_leaves leaves = neo_fsdp_piece(m->dense, k, batch->global_size);
        int64_t first, n = piece_samples(m, k, batch->global_size, &first);
        neo_tensor z = neo_tensor_rows(m->z, first, n), dz = neo_tensor_rows(m->dz, first, n);
        neo_tensor logit = neo_tensor_rows(m->logit, first, n),
                   dlogit = neo_tensor_rows(m->dlogit, first, n);
        TRY(neo_fsdp_backward_begin(m->dense, TOP, k));
        TRY(neo_mlp_forward(m->mlp[TOP], z, logit));
        TRY(neo_bce_with_logits(m->ctx, &(neo_loss_desc){.batch = batch->global_size, .sum = loss},
                                logit, neo_tensor_rows(batch->label, first, n), dlogit, NULL));
        TRY(neo_mlp_backward(m->mlp[TOP], &leaves, dlogit, dz));
        TRY(neo_fsdp_backward_end(m->dense, TOP));
    }
    return NEO_OK;
}

static neo_status train_bottom(model *m, const neo_batch *batch) {
    int pieces = neo_fsdp_pieces(m->dense);
    for (int k = 0; k < pieces; k++) {
        neo_leaves leaves = neo_fsdp_piece(m->dense, k, batch->global_size);
        int64_t first, n = piece_samples(m, k, batch->global_size, &first);
        TRY(neo_fsdp_backward_begin(m->dense, BOTTOM, k));
        if (pieces > 1) /* an MLP remembers one forward pass */
            TRY(neo_mlp_forward(m->mlp[BOTTOM], neo_tensor_rows(batch->dense, first, n),
                                neo_tensor_rows(m->x, first, n)));
        TRY(neo_mlp_backward(m->mlp[BOTTOM], &leaves, neo_tensor_rows(m->dx, first, n),
                             neo_tensor_none()));
        TRY(neo_fsdp_backward_end(m->dense, BOTTOM));
    }
    return NEO_OK;
}

/* One step. Between begin and end of the tables' calls their rows travel while the MLPs compute. */
static neo_status train_batch(model *m, const neo_batch *batch, neo_exact *loss) {
    int64_t n = batch->size;
    neo_tensor x = neo_tensor_rows(m->x, 0, n), e = neo_tensor_rows(m->e, 0, n),
               z = neo_tensor_rows(m->z, 0, n);
    neo_tensor dx = neo_tensor_rows(m->dx, 0, n), de = neo_tensor_rows(m->de, 0, n),
               dz = neo_tensor_rows(m->dz, 0, n);

    TRY(neo_shard_forward_begin(m->tables, &batch->sparse, batch->global_size));
    TRY(neo_fsdp_forward_begin(m->dense, BOTTOM));
    TRY(neo_mlp_forward(m->mlp[BOTTOM], batch->dense, x));
    TRY(neo_fsdp_forward_end(m->dense, BOTTOM));
    TRY(neo_shard_forward_end(m->tables, e));
    TRY(neo_interact_forward(m->ctx, 0, x, e, z));
    TRY(train_top(m, batch, loss));
    TRY(neo_interact_backward(m->ctx, 0, x, e, dz, dx, de));
    TRY(neo_shard_backward_begin(m->tables, de));
    TRY(train_bottom(m, batch));
    TRY(neo_shard_backward_end(m->tables, 0.05f));
    return neo_fsdp_step(m->dense, 0.02f);
}

static neo_status train_all(model *m) {
    neo_exact loss; /* of this rank's samples since the last report */
    neo_batch batch;
    neo_status status;
    neo_exact_zero(&loss);
    for (int step = 1; (status = neo_reader_next(m->reader, &batch)) == NEO_OK; step++) {
        TRY(train_batch(m, &batch, &loss));
        if (step % 50) continue; /* exact sums are integers: they add in any order */
        TRY(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, &loss, &loss,
                                sizeof loss / sizeof(int64_t), NEO_I64, NULL));
        if (neo_comm_rank(m->comm) == 0)
            printf("step %d  loss %.4f\n", step, neo_exact_value(&loss) / (50 * BATCH));
        neo_exact_zero(&loss);
    }
    return status == NEO_END ? NEO_OK : status;
}

static neo_status print_digest(model *m) {
    neo_group all = neo_comm_group(m->comm);
    neo_state *state;
    uint64_t digest;
    TRY(neo_state_create(m->ctx, &state));
    TRY(neo_state_add_fsdp(state, m->dense)); /* neo_save and neo_load take it, too */
    TRY(neo_state_add_shard(state, m->tables));
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(m->comm) == 0) printf("state %016llx\n", (unsigned long long)digest);
    neo_state_destroy(state);
    return NEO_OK;
}

/* What every rank runs. */
static neo_status run(neo_comm *comm, void *user) {
    model m = {.comm = comm, .ctx = neo_comm_ctx(comm)};
    (void)user;
    TRY(create_reader(&m));
    TRY(create_mlps(&m));
    TRY(create_tables(&m));
    TRY(create_activations(&m));
    TRY(train_all(&m));
    TRY(print_digest(&m));
    neo_tensor *tensors[] = {&m.x, &m.e, &m.z, &m.logit, &m.dx, &m.de, &m.dz, &m.dlogit};
    for (int i = 0; i < 8; i++) neo_tensor_free(m.ctx, tensors[i]);
    neo_shard_destroy(m.tables);
    neo_fsdp_destroy(m.dense);
    for (int i = 0; i < UNITS; i++) neo_mlp_destroy(m.mlp[i]), neo_params_destroy(m.params[i]);
    neo_reader_close(m.reader);
    neo_schema_destroy(m.schema);
    return NEO_OK;
}

int main(int argc, char **argv) { /* --ranks: threads; mpirun knows itself how many it starts */
    neo_comm_desc desc = {.ctx = {.seed = 1, .repro_shards = LEAVES}};
    if (argc == 3 && strcmp(argv[1], "--ranks") == 0) desc.ranks = atoi(argv[2]);
    if (argc != 1 && desc.ranks < 1) return fprintf(stderr, "usage: ranks [--ranks N]\n"), 1;
    if (neo_comm_init_env(&desc, run, NULL) == NEO_OK) return 0;
    fprintf(stderr, "ranks: %s\n", neo_last_error());
    return 1;
}
