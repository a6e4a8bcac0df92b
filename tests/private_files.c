/* private_files.c: as private.c, of tests that need no vectors: readers and checkpoints, which give
   neo small blocks and a disk that fails, and products by a BLAS of the user. */
#include <stdint.h>
#define NEO__CHUNK_BYTES 4096
#define NEO__LINE_BYTES 1024
#define NEO_SGEMM hook
static void hook(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
#define main ranks_main
#include "files/checkpoint_ranks.c"
#undef main
#define main numbers_main
#include "data/numbers.c"
#undef main
#define main sgemm_hook_main
#include "core/sgemm_hook.c"
#undef main

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } tests[] = {{"checkpoint_ranks", ranks_main},
                 {"numbers", numbers_main},
                 {"sgemm_hook", sgemm_hook_main}};
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    (void)argc;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0) return tests[i].run();
    printf("%s: a link to it says what runs: checkpoint_ranks, numbers or sgemm_hook\n", name);
    return 1;
}
