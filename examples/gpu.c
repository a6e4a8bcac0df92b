/* gpu.c: training on an NVIDIA GPU, each step as one launch (a CUDA graph). A small MLP learns the
   sum of squares of 8 numbers. Where there is no GPU, and with the argument `cpu`, it says so and
   the CPU computes.

     nvcc -O2 -std=c++17 -arch=sm_90 -I. -c examples/neo_cuda.cu     sm_80: A100, sm_90: H100, H200
     cc -O2 -I. -c examples/gpu.c examples/neo.c
     nvcc -o gpu gpu.o neo.o neo_cuda.o -lcublasLt -lpthread && ./gpu
     cc -O2 -I. examples/gpu.c examples/neo.c examples/train/no_cuda.c -o gpu -lm -lpthread
                                                        without the CUDA toolkit: the CPU computes

   Expect `step 200  loss 0.0651` and, on either machine, `state 5f8b415eab42a06d`. */
#include "neo_state.h"
#include "neo_cuda.cuh"
#include <stdio.h>
#include <string.h>

#define TRY(call)                                                                              \
    do {                                                                                       \
        neo_status try_status = (call);                                                        \
        if (try_status != NEO_OK) return try_status;                                           \
    } while (0)

enum { BATCH = 64, IN = 8, STEPS = 200 };

typedef struct trainer {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *mlp;
    neo_optim *optim;
    neo_state *state;
    neo_cuda_graph *graph;      /* NULL on the CPU */
    neo_tensor x, target, y, dy; /* in memory of the device that computes */
} trainer;

static neo_status create(trainer *t, neo_device *gpu) {
    const int64_t in[2] = {BATCH, IN}, out[2] = {BATCH, 1};
    TRY(neo_ctx_create(&(neo_ctx_desc){.device = gpu, .repro_shards = NEO_DEVICE_SHARDS},
                       &t->ctx)); /* gpu NULL: the CPU, which else had one shard */
    TRY(neo_params_create(t->ctx, &t->params));
    TRY(neo_mlp_create(t->ctx, t->params,
                       &(neo_mlp_desc){.name = "mlp", .width_count = 3, .widths = {IN, 32, 1},
                                       .max_batch = BATCH, .act = NEO_ACT_RELU}, &t->mlp));
    TRY(neo_optim_create(t->ctx, t->params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAM}, &t->optim));
    TRY(neo_state_create(t->ctx, &t->state));
    TRY(neo_state_add_params(t->state, t->params));
    TRY(neo_tensor_alloc(t->ctx, NEO_F32, 2, in, &t->x));
    TRY(neo_tensor_alloc(t->ctx, NEO_F32, 2, out, &t->target));
    TRY(neo_tensor_alloc(t->ctx, NEO_F32, 2, out, &t->y));
    TRY(neo_tensor_alloc(t->ctx, NEO_F32, 2, out, &t->dy));
    return gpu ? neo_cuda_graph_create(gpu, NULL, &t->graph) : NEO_OK;
}

static void destroy(trainer *t) {
    neo_tensor *tensors[] = {&t->x, &t->target, &t->y, &t->dy};
    if (t->graph) neo_cuda_graph_destroy(t->graph);
    for (int i = 0; i < 4; i++) neo_tensor_free(t->ctx, tensors[i]);
    neo_state_destroy(t->state);
    neo_optim_destroy(t->optim);
    neo_mlp_destroy(t->mlp);
    neo_params_destroy(t->params);
    neo_ctx_destroy(t->ctx);
}

static void make_batch(int64_t step, float *x, float *target) {
    for (int i = 0; i < BATCH; i++) {
        target[i] = 0;
        for (int k = i * IN; k < (i + 1) * IN; k++) {
            x[k] = neo_random_uniform(1, neo_hash("x"), step, NEO_STREAM_DATA, (uint64_t)k);
            target[i] += x[k] * x[k];
        }
    }
}

/* The calls of one step. The host's arrays may be used again when it returns; *loss is written
   when the step is over. */
static neo_status step(trainer *t, float *x, float *target, double *loss) {
    TRY(neo_tensor_copy(t->ctx, neo_tensor_2d(x, NEO_F32, BATCH, IN), t->x));
    TRY(neo_tensor_copy(t->ctx, neo_tensor_2d(target, NEO_F32, BATCH, 1), t->target));
    TRY(neo_mlp_forward(t->mlp, t->x, t->y));
    TRY(neo_mse(t->ctx, NULL, t->y, t->target, t->dy, loss));
    TRY(neo_mlp_backward(t->mlp, NULL, t->dy, neo_tensor_none()));
    return neo_optim_step(t->optim, 0.01f);
}

static neo_status train(trainer *t) {
    static float x[BATCH * IN], target[BATCH];
    double loss;
    make_batch(0, x, target);
    for (int64_t i = 0; i < STEPS; i++) {
        if (t->graph) TRY(neo_cuda_graph_begin(t->graph)); /* calls are recorded ... */
        TRY(step(t, x, target, &loss));
        if (t->graph) TRY(neo_cuda_graph_end(t->graph));   /* ... and launched */
        make_batch(i + 1, x, target);                      /* while the GPU computes */
        if (t->graph) TRY(neo_cuda_graph_wait(t->graph));  /* the loss is there, or the error */
        if (i % 50 == 49) printf("step %d  loss %.4f\n", (int)i + 1, loss);
    }
    printf("state %016llx\n", (unsigned long long)neo_state_digest(t->state));
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_device *gpu = NULL;
    trainer t = {0};
    neo_cuda_desc desc = {.ordinal = 0, .exact = 1}; /* the first GPU, with the bits of the CPU */
    const int cpu = argc == 2 && strcmp(argv[1], "cpu") == 0;
    if (argc > 1 && !cpu) return fprintf(stderr, "usage: gpu [cpu]\n"), 2;
    if (cpu) fprintf(stderr, "the CPU computes\n");
    else if (neo_cuda_device_create(&desc, &gpu) != NEO_OK)
        fprintf(stderr, "%s: the CPU computes\n", neo_last_error());
    neo_status status = create(&t, gpu);
    if (status == NEO_OK) status = train(&t);
    if (status != NEO_OK) fprintf(stderr, "gpu: %s\n", neo_last_error());
    destroy(&t);
    neo_cuda_device_destroy(gpu);
    return status == NEO_OK ? 0 : 1;
}
