/* kernels.cpp: bags.cpp, dense.cpp and attention.cpp on the emulated device, so that neo_cuda.cuh
   is compiled once for all of them. Each is a file with a main of its own; links to the program
   have their names, which says what runs, with the work memory that it has by nvcc, too. */
#include <sys/mman.h>
/* Device memory is shut to the host between calls, at every time in guard_each: to do that takes
   most of a test's time where calls are many and small. */
static int guard_each = 1;
static int guard_now_and_then(void *p, size_t bytes, int rights) {
    static int count;
    return rights == PROT_NONE && ++count % guard_each ? 0 : mprotect(p, bytes, rights);
}
#define mprotect guard_now_and_then

#include <stdlib.h>
static size_t work_bytes;
#define NEO_EMU_KERNELS
#define NEO_STATIC
#define NEO_ASSERT(x) ((x) ? (void)0 : abort()) /* of addresses, too: a GPU stops there */
#define NEO__CUDA_WORK_BYTES work_bytes
#define NEO__CUDA_BLAS_BYTES ((size_t)1 << 20)
#define NEO__BAG_STAGE (1 << 13)
#define NEO__BAGS_THREADS 64 /* little work, so that a lane takes several bags */
#define NEO__JOB_PARTS 30    /* fewer than hot_row has */
#include "neo_cuda.cuh"
#include "neo_state.h"
#include "neo_store.h"
#include "test.h"

#include <string>
#include <vector>

namespace bags {
#include "cuda/bags.cpp"
}
namespace dense {
#include "cuda/dense.cpp"
}
namespace attention {
#include "cuda/attention.cpp"
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
        size_t work;
        int guard;
    } tests[] = {{"bags", bags::main, (size_t)1 << 16, 32},
                 {"dense", dense::main, (size_t)96 << 10, 1},
                 {"attention", attention::main, (size_t)1 << 16, 1}};
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    (void)argc;
    for (const auto &test : tests) {
        if (strcmp(test.name, name) != 0) continue;
        work_bytes = test.work, guard_each = test.guard;
        return test.run();
    }
    printf("%s: a link to it says what runs: bags, dense or attention\n", name);
    return 1;
}
