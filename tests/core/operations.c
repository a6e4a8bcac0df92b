/* operations.c: every operation of struct neo_device on the CPU: the same bits by the scalar
   kernels, by the best ones, on several threads, and where numbers are looked at (check_finite).
   On a device: cuda/device. */
#include "../operations.h"

#include "../finite.h"

static neo_ctx *make_ctx(int threads, neo_isa isa, int check_finite) {
    const neo_ctx_desc d = {.threads = threads, .isa = isa, .repro_shards = 3, .seed = 7,
                            .check_finite = check_finite};
    neo_ctx *ctx = NULL;
    if (neo_ctx_create(&d, &ctx) == NEO_OK) return ctx;
    printf("cannot create a context: %s\n", neo_last_error());
    exit(1);
}

int main(void) {
    neo_ctx *contexts[] = {make_ctx(1, NEO_ISA_SCALAR, 0), make_ctx(1, NEO_ISA_BEST, 0),
                           make_ctx(3, NEO_ISA_BEST, 0), make_ctx(3, NEO_ISA_BEST, 1)};
    operations_run(contexts, 4, NULL, NULL);
    finite_run(contexts[3]);
    for (int i = 0; i < 4; i++) neo_ctx_destroy(contexts[i]);
    return test_end("core/operations");
}
