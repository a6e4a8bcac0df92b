/* shard.c: cc -O2 shard.c -o shard -lm -lpthread && ./shard 4 */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, DIM = 32, TABLES = 2, STEPS = 10 };

static neo_status train(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_table_desc tables[TABLES] = {{.name = "user",
                                      .rows = 100000,
                                      .dim = DIM,
                                      .row_buckets = 8,
                                      .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}},
                                     {.name = "item",
                                      .rows = 5000,
                                      .dim = DIM,
                                      .row_buckets = 8,
                                      .optim = {.kind = NEO_BAG_ROWWISE_ADAGRAD}}};
    neo_bags_desc bags = {.tables = tables,
                          .table_count = TABLES,
                          .max_batch = BATCH, /* of all ranks */
                          .max_ids = BATCH * TABLES};
    neo_plan_desc desc = {.bags = &bags, .cluster = {.ranks = neo_comm_size(comm)}};
    int64_t first, n; /* this rank's samples of a batch */
    neo_status status = neo_comm_samples(comm, BATCH, &first, &n);
    if (status != NEO_OK) return status;
    int64_t offsets[TABLES * BATCH + 1], ids[TABLES * BATCH];
    static _Thread_local float
        rows[BATCH * TABLES * DIM]; /* ranks that are threads share what is only static */
    neo_tensor e = neo_tensor_2d(rows, NEO_F32, n, TABLES * DIM);
    neo_jagged batch = {
        .batch = n, .feature_count = TABLES, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    neo_plan *plan = NULL;
    neo_shard *shard = NULL;
    neo_state *state = NULL;
    uint64_t digest = 0;
    (void)user;
    status = neo_plan_create(ctx, &desc, &plan);
    if (status == NEO_OK) status = neo_shard_create(comm, plan, &shard);
    for (int step = 0; step < STEPS && status == NEO_OK; step++) {
        for (int64_t t = 0, k = 0; t < TABLES; t++) /* one id per sample and table, of your data */
            for (int64_t i = 0; i < n; i++, k++) {
                offsets[k] = k;
                ids[k] = (first + i) * (step + 7919) % (t == 0 ? 100000 : 20);
            }
        offsets[TABLES * n] = TABLES * n;
        status = neo_shard_forward(shard, &batch, BATCH,
                                   e); /* e: pooled rows; here the loss is |e|^2/2: its gradient */
        if (status == NEO_OK) status = neo_shard_backward(shard, e, 0.01f);
    }
    neo_group all = neo_comm_group(comm);
    if (status == NEO_OK) status = neo_state_create(ctx, &state);
    if (status == NEO_OK)
        status = neo_state_add_shard(state, shard); /* for neo_save and neo_load, too */
    if (status == NEO_OK) status = neo_state_digest_group(state, &all, &digest);
    if (status == NEO_OK && neo_comm_rank(comm) == 0)
        printf("state %016llx\n", (unsigned long long)digest);
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    return status;
}

int main(int argc, char **argv) {
    neo_comm_desc desc = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .ctx = {.repro_shards = 8}};
    if (neo_comm_init_env(&desc, train, NULL) == NEO_OK) return 0;
    fprintf(stderr, "%s\n", neo_last_error());
    return 1;
}
