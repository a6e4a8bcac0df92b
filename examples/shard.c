/* shard.c: embedding tables on many ranks, where a plan puts them. neo_shard has the verbs of
   neo_bags: ids travel to the rows, pooled rows to the samples, gradients back.

     cc -O2 -I. examples/shard.c examples/neo.c -o shard -lm -lpthread && ./shard [RANKS]

   Expect `state 88bb163c86792fd8` on 1 to 8 ranks. */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, DIM = 32, TABLES = 2, STEPS = 10, LEAVES = 8 };
static const int64_t ROWS[TABLES] = {100000, 5000}, IDS[TABLES] = {100000, 20};

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

static neo_status create_tables(neo_comm *comm, neo_shard **shard) {
    neo_table_desc tables[TABLES] = {{.name = "user"}, {.name = "item"}};
    neo_bags_desc bags = {.tables = tables, .table_count = TABLES, .max_batch = BATCH,
                          .max_ids = BATCH * TABLES}; /* of all ranks */
    neo_plan_desc desc = {.bags = &bags, .cluster = {.ranks = neo_comm_size(comm)}};
    neo_plan *plan = NULL;
    neo_status status = NEO_OK;
    for (int t = 0; t < TABLES; t++) {
        tables[t].rows = ROWS[t];
        tables[t].dim = DIM;
        tables[t].row_buckets = LEAVES; /* up to as many ranks may share the rows of a table */
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    if (neo_comm_rank(comm) == 0) /* it searches for all */
        status = neo_plan_create(neo_comm_ctx(comm), &desc, &plan);
    TRY(neo_plan_broadcast(comm, &desc, status, &plan));
    status = neo_shard_create(comm, plan, shard);
    neo_plan_destroy(plan);
    return status;
}

/* Steps on this rank's samples [first, first + n) of each batch, one id in each table. */
static neo_status train(neo_comm *comm, neo_shard *shard, int64_t first, int64_t n) {
    const int64_t shape[2] = {n, TABLES * DIM};
    int64_t offsets[TABLES * BATCH + 1], ids[TABLES * BATCH];
    neo_jagged batch = {.batch = n, .feature_count = TABLES, .id_dtype = NEO_I64,
                        .offsets = offsets, .ids = ids};
    neo_tensor rows; /* ranks that are threads share static arrays: each allocates its own */
    TRY(neo_tensor_alloc(neo_comm_ctx(comm), NEO_F32, 2, shape, &rows));
    for (int64_t i = 0; i <= TABLES * n; i++) offsets[i] = i;
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t i = 0; i < TABLES * n; i++)
            ids[i] = (first + i % n) * (step + 7919) % IDS[i / n];
        TRY(neo_shard_forward(shard, &batch, BATCH, rows)); /* pooled rows */
        TRY(neo_shard_backward(shard, rows, 0.01f)); /* the gradient of |rows|^2 / 2 is rows */
    }
    neo_tensor_free(neo_comm_ctx(comm), &rows);
    return NEO_OK;
}

static neo_status print_digest(neo_comm *comm, neo_shard *shard) {
    neo_group all = neo_comm_group(comm);
    neo_state *state;
    uint64_t digest;
    TRY(neo_state_create(neo_comm_ctx(comm), &state));
    TRY(neo_state_add_shard(state, shard)); /* for neo_save and neo_load, too */
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(comm) == 0) printf("state %016llx\n", (unsigned long long)digest);
    neo_state_destroy(state);
    return NEO_OK;
}

static neo_status run(neo_comm *comm, void *user) {
    neo_shard *shard;
    int64_t first, n;
    (void)user;
    TRY(create_tables(comm, &shard));
    TRY(neo_comm_samples(comm, BATCH, &first, &n));
    TRY(train(comm, shard, first, n));
    TRY(print_digest(comm, shard));
    neo_shard_destroy(shard);
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_comm_desc desc = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .ctx = {.repro_shards = LEAVES}};
    if (argc > 2 || desc.ranks < 1) return fprintf(stderr, "usage: shard [RANKS]\n"), 2;
    if (neo_comm_init_env(&desc, run, NULL) == NEO_OK) return 0;
    fprintf(stderr, "shard: %s\n", neo_last_error());
    return 1;
}
