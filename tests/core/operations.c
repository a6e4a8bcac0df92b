/* operations.c: every operation of struct neo_device on the CPU: the same bits by the scalar
   kernels, by the best ones, and on several threads. On a device: cuda/device. */
#include "../operations.h"

static neo_ctx *make_ctx(int threads, neo_isa isa) {
    const neo_ctx_desc d = {.threads = threads, .isa = isa, .repro_shards = 3, .seed = 7};
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(&d, &ctx) == NEO_OK) return ctx;
    printf("cannot create a context: %s\n", neo_last_error());
    exit(1);
}

int main(void) {
    neo_ctx *contexts[] = {make_ctx(1, NEO_ISA_SCALAR), make_ctx(1, NEO_ISA_BEST),
                           make_ctx(3, NEO_ISA_BEST)};
    operations_run(contexts, 3, NULL, NULL);
    for (int i = 0; i < 3; i++) neo_ctx_destroy(contexts[i]);
    return test_end("core/operations");
}
