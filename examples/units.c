/* units.c: dense layers in shards (PyTorch's FSDP with explicit windows). A unit is a set of
   parameters that are used together. Between begin and end they are whole in memory, the next
   unit's are on their way, and gradients add up behind the backward pass.

     cc -O2 -I. examples/units.c examples/neo.c -o units -lm -lpthread && ./units [RANKS]

   Expect a loss of 0.01999 and `state 39dd36d3eea04f38` on 1 to 8 ranks. */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, WIDTH = 96, BLOCKS = 4, STEPS = 50, LEAVES = 8 };

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

typedef struct net {
    neo_ctx *ctx;
    neo_comm *comm;
    neo_params *params[BLOCKS];
    neo_mlp *mlp[BLOCKS]; /* any layers: here a block is an MLP of two */
    neo_fsdp *fsdp;
    neo_fsdp_prediction predicted;
    neo_tensor x[BLOCKS + 1], dx[2]; /* activations between the blocks, and gradients */
    neo_exact loss;                  /* an exact sum: ranks add it in any order */
} net;

static neo_status create(net *n) {
    static const char *const names[BLOCKS] = {"block.0", "block.1", "block.2", "block.3"};
    const int64_t shape[] = {BATCH, WIDTH};
    neo_fsdp_unit units[BLOCKS] = {{0}};
    neo_mlp_desc mlp = {.width_count = 3, .widths = {WIDTH, 2 * WIDTH, WIDTH}, .max_batch = BATCH,
                        .act = NEO_ACT_GELU};
    neo_fsdp_desc desc = {.units = units, .unit_count = BLOCKS, .mode = NEO_FSDP_FULL,
                          .optim = {.kind = NEO_OPTIM_ADAMW, .clip_norm = 1}};
    for (int i = 0; i < BLOCKS; i++) {
        mlp.name = units[i].name = names[i];
        TRY(neo_params_create_deferred(n->ctx, &n->params[i])); /* only described: a rank need not
                                                                   have memory for all of them */
        TRY(neo_mlp_create(n->ctx, n->params[i], &mlp, &n->mlp[i]));
        units[i].params = n->params[i];
    }
    TRY(neo_fsdp_predict(n->ctx, &desc, neo_comm_size(n->comm), neo_comm_rank(n->comm),
                         &n->predicted));
    TRY(neo_fsdp_create(n->comm, &desc, &n->fsdp)); /* takes exactly predicted.bytes */
    for (int i = 0; i <= BLOCKS; i++) TRY(neo_tensor_alloc(n->ctx, NEO_F32, 2, shape, &n->x[i]));
    for (int i = 0; i < 2; i++) TRY(neo_tensor_alloc(n->ctx, NEO_F32, 2, shape, &n->dx[i]));
    return NEO_OK;
}

static void destroy(net *n) {
    neo_fsdp_destroy(n->fsdp);
    for (int i = 0; i <= BLOCKS; i++) neo_tensor_free(n->ctx, &n->x[i]);
    for (int i = 0; i < 2; i++) neo_tensor_free(n->ctx, &n->dx[i]);
    for (int i = 0; i < BLOCKS; i++) neo_mlp_destroy(n->mlp[i]);
    for (int i = 0; i < BLOCKS; i++) neo_params_destroy(n->params[i]);
}

/* One piece of this rank's samples. There is one piece if the number of leaves over that of ranks
   is a power of two. The net learns to give back its input. */
static neo_status train_piece(net *n, int piece) {
    neo_leaves leaves = neo_fsdp_piece(n->fsdp, piece, BATCH);
    int64_t first, rows = neo_fsdp_samples(n->fsdp, piece, BATCH, &first);
    neo_loss_desc loss = {.batch = BATCH /* of all ranks */, .sum = &n->loss};
    float *input = n->x[0].data;
    for (int64_t i = 0; i < rows * WIDTH; i++)
        input[i] = (float)((first * WIDTH + i) * 7919 % 101) / 101;
#define ROWS(t) neo_tensor_rows(t, 0, rows)
    for (int i = 0; i < BLOCKS; i++) {
        TRY(neo_fsdp_forward_begin(n->fsdp, i)); /* the block is here, the next one on its way */
        TRY(neo_mlp_forward(n->mlp[i], ROWS(n->x[i]), ROWS(n->x[i + 1])));
        TRY(neo_fsdp_forward_end(n->fsdp, i));
    }
    TRY(neo_mse(n->ctx, &loss, ROWS(n->x[BLOCKS]), ROWS(n->x[0]), ROWS(n->dx[BLOCKS % 2]), NULL));
    for (int i = BLOCKS - 1; i >= 0; i--) {
        TRY(neo_fsdp_backward_begin(n->fsdp, i, piece));
        TRY(neo_mlp_backward(n->mlp[i], &leaves, ROWS(n->dx[(i + 1) % 2]), ROWS(n->dx[i % 2])));
        TRY(neo_fsdp_backward_end(n->fsdp, i)); /* its gradients add up over the ranks meanwhile */
    }
    return NEO_OK;
}

static neo_status print_results(net *n) {
    neo_state *state;
    uint64_t digest;
    neo_group all = neo_comm_group(n->comm);
    TRY(neo_comm_all_reduce(n->comm, NEO_REDUCE_SUM, &n->loss, &n->loss,
                            sizeof n->loss / sizeof(int64_t), NEO_I64, NULL));
    TRY(neo_state_create(n->ctx, &state));
    TRY(neo_state_add_fsdp(state, n->fsdp)); /* for neo_save and neo_load: any ranks, any mode */
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(n->comm) == 0)
        printf("loss %.5f, gradient norm %.4f, %zu bytes on a rank\nstate %016llx\n",
               neo_exact_value(&n->loss) / BATCH, neo_fsdp_get_stats(n->fsdp).grad_norm,
               n->predicted.bytes, (unsigned long long)digest);
    neo_state_destroy(state);
    return NEO_OK;
}

static neo_status run(neo_comm *comm, void *user) {
    net n = {.ctx = neo_comm_ctx(comm), .comm = comm};
    (void)user;
    TRY(create(&n));
    for (int step = 0; step < STEPS; step++) {
        neo_exact_zero(&n.loss);
        for (int k = 0; k < neo_fsdp_pieces(n.fsdp); k++) TRY(train_piece(&n, k));
        TRY(neo_fsdp_step(n.fsdp, 0.001f));
    }
    TRY(print_results(&n));
    destroy(&n);
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_comm_desc desc = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .ctx = {.repro_shards = LEAVES}};
    if (argc > 2 || desc.ranks < 1) return fprintf(stderr, "usage: units [RANKS]\n"), 2;
    if (neo_comm_init_env(&desc, run, NULL) == NEO_OK) return 0;
    fprintf(stderr, "units: %s\n", neo_last_error());
    return 1;
}
