/* ranks.c: the trainer of the README on many ranks. A plan places the embedding tables, the MLPs
   and their optimizer are cut over all ranks, every rank reads its own part of each batch.

     cc -O2 -I. examples/ranks.c examples/neo.c -o ranks -lm -lpthread && ./ranks --ranks 4
     mpicc -DNEO_COMM_MPI -O2 -I. examples/ranks.c examples/neo.c -o ranks_mpi -lm -lpthread
     mpirun --oversubscribe -n 4 ./ranks_mpi     (MPICH: mpirun -n 4)

   Expect a loss that falls from 0.58 to 0.53 and `state 3f6dfb5c68f24d45` on 1 to 8 ranks. */
#include "neo_data.h"
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, STEPS = 200, LEAVES = 8, DENSE = 13, TABLES = 26, DIM = 16 };
enum { CROSSED = DIM + TABLES * (TABLES + 1) / 2, BOTTOM = 0, TOP = 1, UNITS = 2 };

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

typedef struct model {
    neo_comm *comm;
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader; /* of this rank's samples */
    neo_params *params[UNITS];
    neo_mlp *mlp[UNITS];
    neo_fsdp *dense; /* both MLPs */
    neo_shard *tables;
    neo_tensor x, e, z, logit;     /* out of the bottom MLP, the tables, the interaction, the top */
    neo_tensor dx, de, dz, dlogit; /* their gradients */
} model;

static neo_status create_reader(model *m) {
    int rank = neo_comm_rank(m->comm), ranks = neo_comm_size(m->comm);
    neo_reader_desc desc = {.batch = BATCH, .rank = rank, .world_size = ranks};
    TRY(neo_schema_synthetic(m->ctx, &(neo_synthetic_desc){.samples = STEPS * BATCH}, &m->schema));
    desc.schema = m->schema;
    return neo_reader_open(m->ctx, &desc, &m->reader);
}

static neo_status create_mlps(model *m) {
    neo_mlp_desc desc[UNITS] = {{.name = "bottom", .width_count = 3, .widths = {DENSE, 64, DIM}},
                                {.name = "top", .width_count = 3, .widths = {CROSSED, 64, 1}}};
    neo_fsdp_unit units[UNITS] = {{0}};
    neo_fsdp_desc dense = {.units = units, .unit_count = UNITS, .mode = NEO_FSDP_FULL,
                           .optim = {.kind = NEO_OPTIM_ADAGRAD}};
    desc[BOTTOM].last_act = NEO_ACT_RELU;
    for (int i = 0; i < UNITS; i++) {
        desc[i].max_batch = BATCH;
        desc[i].act = NEO_ACT_RELU;
        TRY(neo_params_create_deferred(m->ctx, &m->params[i])); /* neo_fsdp has the memory */
        TRY(neo_mlp_create(m->ctx, m->params[i], &desc[i], &m->mlp[i]));
        units[i].name = desc[i].name;
        units[i].params = m->params[i];
    }
    return neo_fsdp_create(m->comm, &dense, &m->dense);
}

static neo_status create_tables(model *m) {
    neo_table_desc table[TABLES] = {{0}};
    neo_bags_desc bags = {.tables = table, .table_count = TABLES, .max_batch = BATCH,
                          .max_ids = BATCH * TABLES};
    neo_plan_desc desc = {.bags = &bags, .cluster.ranks = neo_comm_size(m->comm), .pipeline = 1};
    neo_plan *plan;
    for (int t = 0; t < TABLES; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        table[t] = (neo_table_desc){.name = f.name, .rows = f.rows, .dim = DIM,
                                    .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}};
        table[t].row_buckets = LEAVES;
    }
    TRY(neo_plan_create(m->ctx, &desc, &plan));
    neo_status status = neo_shard_create(m->comm, plan, &m->tables);
    neo_plan_destroy(plan);
    return status;
}

static neo_status create_activations(model *m) {
    neo_tensor *tensors[] = {&m->x, &m->e, &m->z, &m->logit, &m->dx, &m->de, &m->dz, &m->dlogit};
    const int64_t columns[] = {DIM, TABLES * DIM, CROSSED, 1};
    for (int i = 0; i < 8; i++)
        TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, (int64_t[]){BATCH, columns[i % 4]}, tensors[i]));
    return NEO_OK;
}

#define CUT(t) neo_tensor_rows(t, first, n)

/* Forward and backward of the top MLP; its gradients begin to add up over the ranks. There is one
   piece, all of the rank's samples, if LEAVES/ranks is a power of two. */
static neo_status train_top(model *m, const neo_batch *batch, neo_exact *loss) {
    neo_loss_desc desc = {.batch = batch->global_size, .sum = loss};
    int64_t first = 0, n, in_batch;
    for (int k = 0; k < neo_fsdp_pieces(m->dense); k++, first += n) {
        neo_leaves leaves = neo_fsdp_piece(m->dense, k, batch->global_size);
        n = neo_fsdp_samples(m->dense, k, batch->global_size, &in_batch);
        TRY(neo_fsdp_backward_begin(m->dense, TOP, k));
        TRY(neo_mlp_forward(m->mlp[TOP], CUT(m->z), CUT(m->logit)));
        TRY(neo_bce_with_logits(m->ctx, &desc, CUT(m->logit), CUT(batch->label), CUT(m->dlogit),
                                NULL));
        TRY(neo_mlp_backward(m->mlp[TOP], &leaves, CUT(m->dlogit), CUT(m->dz)));
        TRY(neo_fsdp_backward_end(m->dense, TOP));
    }
    return NEO_OK;
}

/* An MLP remembers one forward pass: each of several pieces needs its own. */
static neo_status train_bottom(model *m, const neo_batch *batch) {
    int64_t first = 0, n, in_batch;
    int pieces = neo_fsdp_pieces(m->dense);
    for (int k = 0; k < pieces; k++, first += n) {
        neo_leaves leaves = neo_fsdp_piece(m->dense, k, batch->global_size);
        n = neo_fsdp_samples(m->dense, k, batch->global_size, &in_batch);
        TRY(neo_fsdp_backward_begin(m->dense, BOTTOM, k));
        if (pieces > 1) TRY(neo_mlp_forward(m->mlp[BOTTOM], CUT(batch->dense), CUT(m->x)));
        TRY(neo_mlp_backward(m->mlp[BOTTOM], &leaves, CUT(m->dx), neo_tensor_none()));
        TRY(neo_fsdp_backward_end(m->dense, BOTTOM));
    }
    return NEO_OK;
}

/* One step. Between begin and end of the tables' calls their rows travel while the MLPs compute. */
static neo_status train_batch(model *m, const neo_batch *batch, neo_exact *loss) {
    int64_t first = 0, n = batch->size;
    neo_tensor x = CUT(m->x), e = CUT(m->e), z = CUT(m->z);
    neo_tensor dx = CUT(m->dx), de = CUT(m->de), dz = CUT(m->dz);
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
    const int64_t words = sizeof loss / sizeof(int64_t);
    neo_exact_zero(&loss);
    for (int step = 1; (status = neo_reader_next(m->reader, &batch)) == NEO_OK; step++) {
        TRY(train_batch(m, &batch, &loss));
        if (step % 50) continue; /* exact sums are integers: they add in any order */
        TRY(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, &loss, &loss, words, NEO_I64, NULL));
        double mean = neo_exact_value(&loss) / (50 * BATCH);
        if (neo_comm_rank(m->comm) == 0) printf("step %d  loss %.4f\n", step, mean);
        neo_exact_zero(&loss);
    }
    return status == NEO_END ? NEO_OK : status;
}

static neo_status print_digest(model *m) {
    neo_group all = neo_comm_group(m->comm);
    neo_state *state; /* for neo_save and neo_load, too */
    uint64_t digest;
    TRY(neo_state_create(m->ctx, &state));
    TRY(neo_state_add_fsdp(state, m->dense));
    TRY(neo_state_add_shard(state, m->tables));
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(m->comm) == 0) printf("state %016llx\n", (unsigned long long)digest);
    neo_state_destroy(state);
    return NEO_OK;
}

static neo_status run(neo_comm *comm, void *user) {
    model m = {.comm = comm, .ctx = neo_comm_ctx(comm)};
    (void)user;
    neo_tensor *tensors[] = {&m.x, &m.e, &m.z, &m.logit, &m.dx, &m.de, &m.dz, &m.dlogit};
    TRY(create_reader(&m));
    TRY(create_mlps(&m));
    TRY(create_tables(&m));
    TRY(create_activations(&m));
    TRY(train_all(&m));
    TRY(print_digest(&m));
    for (int i = 0; i < 8; i++) neo_tensor_free(m.ctx, tensors[i]);
    neo_shard_destroy(m.tables);
    neo_fsdp_destroy(m.dense);
    for (int i = 0; i < UNITS; i++) neo_mlp_destroy(m.mlp[i]);
    for (int i = 0; i < UNITS; i++) neo_params_destroy(m.params[i]);
    neo_reader_close(m.reader);
    neo_schema_destroy(m.schema);
    return NEO_OK;
}

int main(int argc, char **argv) { /* --ranks: threads; mpirun knows itself how many it starts */
    neo_comm_desc desc = {.ctx = {.seed = 1, .repro_shards = LEAVES}};
    if (argc == 3 && strcmp(argv[1], "--ranks") == 0) desc.ranks = atoi(argv[2]);
    if (argc > 1 && desc.ranks < 1) return fprintf(stderr, "usage: ranks [--ranks N]\n"), 2;
    if (neo_comm_init_env(&desc, run, NULL) == NEO_OK) return 0;
    fprintf(stderr, "ranks: %s\n", neo_last_error());
    return 1;
}
