/* allreduce.c: data-parallel training. Every rank computes the gradient of its part of each batch,
   an all-reduce adds the parts in the order of the leaf tree, and all ranks make the same step. The
   ranks are threads, or the processes of mpirun.

     cc -O2 -I. examples/allreduce.c examples/neo.c -o allreduce -lm -lpthread
     ./allreduce --ranks 4
     mpicc -DNEO_COMM_MPI -O2 -I. examples/allreduce.c examples/neo.c -o allreduce_mpi -lm -lpthread
     mpirun --oversubscribe -n 4 ./allreduce_mpi     (MPICH: mpirun -n 4)

   A linear regression finds 16 hidden weights, 0 .. 15 quarters, from noisy samples. Expect the
   loss to fall from 5.7 to about 0.01, the noise, and, as last line, `state dd058cd224f5718a` for 1
   to 8 ranks, as threads or under any MPI, on any machine. */
#include "neo_comm.h"
#include "neo_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 256, WIDTH = 16, LEAVES = 8, STEPS = 100 };

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

/* Samples [first, first + rows) of the batch of a step: the same numbers on any rank. */
static void make_samples(int64_t step, int64_t first, int64_t rows, float *x, float *target) {
    for (int64_t i = 0; i < rows; i++) {
        uint64_t sample = (uint64_t)(first + i);
        target[i] = 0.1f * neo_random_normal(1, neo_hash("noise"), step, NEO_STREAM_USER, sample);
        for (int c = 0; c < WIDTH; c++, x++) {
            uint64_t at = sample * WIDTH + (uint64_t)c;
            *x = neo_random_uniform(1, neo_hash("x"), step, NEO_STREAM_USER, at) - 0.5f;
            target[i] += 0.25f * (float)c * *x;
        }
    }
}

static neo_status train(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_params *params;
    neo_optim *optim;
    neo_state *state;
    const neo_param *w;
    const int64_t shape[2] = {1, WIDTH};
    const neo_init zero = {NEO_INIT_CONSTANT, 0, 0};
    const neo_tensor none = neo_tensor_none();
    float x[BATCH * WIDTH], y[BATCH], target[BATCH], sum[NEO_MAX_SUBTREES][WIDTH];
    const void *sums[NEO_MAX_SUBTREES];
    neo_leaves part[NEO_MAX_SUBTREES]; /* one, if leaves/ranks is a power of two */
    int parts = neo_comm_subtrees(comm, neo_comm_rank(comm), BATCH, part);
    (void)user;

    TRY(neo_params_create(ctx, &params));
    TRY(neo_params_add(params, "weight", 2, shape, zero, &w));
    TRY(neo_optim_create(ctx, params, &(neo_optim_desc){.kind = NEO_OPTIM_SGD}, &optim));
    for (int64_t step = 0; step < STEPS; step++) {
        neo_exact loss; /* exact sums are integers: they add in any order */
        neo_loss_desc desc = {.batch = BATCH, .sum = &loss};
        neo_exact_zero(&loss);
        for (int k = 0; k < parts; k++) {
            int64_t first = neo_leaf_begin(BATCH, LEAVES, part[k].first);
            int64_t rows = neo_leaf_begin(BATCH, LEAVES, part[k].first + part[k].count) - first;
            neo_tensor xs = neo_tensor_2d(x, NEO_F32, rows, WIDTH);
            neo_tensor ys = neo_tensor_2d(y, NEO_F32, rows, 1);
            neo_tensor targets = neo_tensor_2d(target, NEO_F32, rows, 1);
            neo_tensor grad = neo_tensor_2d(sum[k], NEO_F32, 1, WIDTH);
            make_samples(step, first, rows, x, target);
            TRY(neo_linear_forward(ctx, xs, w->value, none, NEO_ACT_NONE, ys));
            TRY(neo_mse(ctx, &desc, ys, targets, ys, NULL)); /* the gradient replaces y */
            TRY(neo_linear_backward(ctx, &part[k], xs, w->value, ys, none, grad, none));
            sums[k] = sum[k];
        }
        TRY(neo_comm_all_reduce_leaves(comm, sums, w->grad.data, WIDTH, NEO_F32, NULL));
        TRY(neo_optim_step(optim, 2.0f));
        if (step % 25 && step != STEPS - 1) continue;
        TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &loss, &loss, sizeof loss / sizeof(int64_t),
                                NEO_I64, NULL));
        if (neo_comm_rank(comm) == 0)
            printf("step %3d  loss %.5f\n", (int)step, neo_exact_value(&loss) / BATCH);
    }
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_params(state, params));
    if (neo_comm_rank(comm) == 0)
        printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    neo_state_destroy(state);
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    return NEO_OK;
}

int main(int argc, char **argv) { /* --ranks: threads; mpirun knows itself how many it starts */
    neo_comm_desc desc = {.ctx = {.repro_shards = LEAVES}};
    if (argc == 3 && strcmp(argv[1], "--ranks") == 0) desc.ranks = atoi(argv[2]);
    if (argc > 1 && desc.ranks < 1) return fprintf(stderr, "usage: allreduce [--ranks N]\n"), 2;
    if (neo_comm_init_env(&desc, train, NULL) == NEO_OK) return 0;
    fprintf(stderr, "allreduce: %s\n", neo_last_error());
    return 1;
}
