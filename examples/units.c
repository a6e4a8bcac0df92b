/* units.c: cc -O2 units.c -o units -lm -lpthread && ./units 4 */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, WIDTH = 96, BLOCKS = 4, STEPS = 50, LEAVES = 8 };
#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

static neo_status train(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_mlp *mlp[BLOCKS]; /* any layers: here a block is an MLP of two */
    neo_fsdp_unit units[BLOCKS] = {{0}};
    const char *names[BLOCKS] = {"block.0", "block.1", "block.2", "block.3"};
    neo_tensor x[BLOCKS + 1], dx[2]; /* activations between the blocks, gradients */
    neo_fsdp *fsdp;
    neo_exact loss; /* an exact sum: ranks add it in any order */
    (void)user;
    for (int i = 0; i < BLOCKS; i++) {
        units[i].name =
            names[i]; /* its parameters are only described: no rank has memory for all of them */
        TRY(neo_params_create_deferred(ctx, &units[i].params));
        TRY(neo_mlp_create(ctx, units[i].params,
                           &(neo_mlp_desc){.name = names[i],
                                           .width_count = 3,
                                           .widths = {WIDTH, 2 * WIDTH, WIDTH},
                                           .max_batch = BATCH,
                                           .act = NEO_ACT_GELU},
                           &mlp[i]));
    }
    neo_fsdp_desc desc = {.units = units, .unit_count = BLOCKS, .mode = NEO_FSDP_FULL,
                          .optim = {.kind = NEO_OPTIM_ADAMW, .clip_norm = 1}};
    neo_fsdp_prediction predicted;
    TRY(neo_fsdp_predict(ctx, &desc, neo_comm_size(comm), neo_comm_rank(comm), &predicted));
    TRY(neo_fsdp_create(comm, &desc, &fsdp)); /* takes exactly predicted.bytes */
    int64_t shape[] = {BATCH, WIDTH};
    for (int i = 0; i <= BLOCKS; i++) TRY(neo_tensor_alloc(ctx, NEO_F32, 2, shape, &x[i]));
    for (int i = 0; i < 2; i++) TRY(neo_tensor_alloc(ctx, NEO_F32, 2, shape, &dx[i]));

    for (int step = 0; step < STEPS; step++) {
        neo_exact_zero(&loss);
        for (int piece = 0; piece < neo_fsdp_pieces(fsdp);
             piece++) { /* one, if V/W is a power of two */
            neo_leaves leaves = neo_fsdp_piece(fsdp, piece, BATCH);
            int64_t first, n = neo_fsdp_samples(fsdp, piece, BATCH, &first);
            for (int64_t i = 0; i < n * WIDTH; i++) /* these samples, of your data */
                ((float *)x[0].data)[i] = (float)((first * WIDTH + i) * 7919 % 101) / 101;
#define ROWS(t) neo_tensor_rows(t, 0, n)
            for (int i = 0; i < BLOCKS; i++) {
                TRY(neo_fsdp_forward_begin(
                    fsdp, i)); /* the block's parameters are here, the next one's on the way */
                TRY(neo_mlp_forward(mlp[i], ROWS(x[i]), ROWS(x[i + 1])));
                TRY(neo_fsdp_forward_end(fsdp, i));
            }
            TRY(neo_mse(ctx,
                        &(neo_loss_desc){.batch = BATCH /* of all ranks and micro-batches */,
                                         .sum = &loss},
                        ROWS(x[BLOCKS]), ROWS(x[0]), ROWS(dx[BLOCKS % 2]), NULL));
            for (int i = BLOCKS - 1; i >= 0; i--) {
                TRY(neo_fsdp_backward_begin(fsdp, i, piece));
                TRY(neo_mlp_backward(mlp[i], &leaves, ROWS(dx[(i + 1) % 2]), ROWS(dx[i % 2])));
                TRY(neo_fsdp_backward_end(fsdp,
                                          i)); /* its gradients add up over the ranks meanwhile */
            }
        }
        TRY(neo_fsdp_step(fsdp, 0.001f));
    }
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &loss, &loss, sizeof loss / sizeof(int64_t),
                            NEO_I64, NULL));
    neo_state *state;
    uint64_t digest;
    neo_group all = neo_comm_group(comm);
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_fsdp(
        state, fsdp)); /* for neo_save and neo_load, too: any number of ranks, any mode */
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(comm) == 0)
        printf("loss %.5f, gradient norm %.4f, %zu bytes on a rank\nstate %016llx\n",
               neo_exact_value(&loss) / BATCH, neo_fsdp_get_stats(fsdp).grad_norm, predicted.bytes,
               (unsigned long long)digest);
    neo_state_destroy(state);
    neo_fsdp_destroy(fsdp);
    for (int i = 0; i <= BLOCKS; i++) neo_tensor_free(ctx, &x[i]);
    for (int i = 0; i < 2; i++) neo_tensor_free(ctx, &dx[i]);
    for (int i = 0; i < BLOCKS; i++) neo_mlp_destroy(mlp[i]), neo_params_destroy(units[i].params);
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_comm_desc desc = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .ctx = {.repro_shards = LEAVES}};
    if (neo_comm_init_env(&desc, train, NULL) == NEO_OK) return 0;
    fprintf(stderr, "%s\n", neo_last_error());
    return 1;
}
