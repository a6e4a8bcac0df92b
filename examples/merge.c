/* merge.c: a checkpoint of any number of ranks as one safetensors file of whole tensors.

     cc -O2 -I. examples/merge.c examples/neo.c -o build/merge -lm -lpthread
     build/merge ckpt model.safetensors            the weights of the newest checkpoint in ckpt
     build/merge ckpt all.safetensors --state      with optimizer state and counters
     build/merge ckpt model.safetensors --step 20  of that step

   Python opens the file by safetensors.torch.load_file; build/serve takes the checkpoint itself. */
#include "neo_state.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    neo_export_desc desc = {.dir = argc > 1 ? argv[1] : NULL, .path = argc > 2 ? argv[2] : NULL};
    const char *step = NULL; /* of no number above 0 */
    int bad = argc < 3;
    for (int i = 3; i < argc && !bad; i++) {
        char *end = "";
        if (strcmp(argv[i], "--state") == 0) desc.with_state = 1;
        else if (strcmp(argv[i], "--step") == 0 && i + 1 < argc)
            desc.step = strtoll(argv[++i], &end, 10), step = *end || desc.step < 1 ? argv[i] : step;
        else bad = 1;
    }
#if defined(SIGXFSZ)
    signal(SIGXFSZ, SIG_IGN); /* a file over ulimit -f: an error of its write, that names it */
#endif
    if (step && !bad) return fprintf(stderr, "merge: --step %s: no step above 0\n", step), 2;
    if (bad) {
        fprintf(stderr, "usage: %s DIRECTORY FILE.safetensors [--state] [--step N]\n", argv[0]);
        return 2;
    }
    neo_ctx *ctx = NULL;
    neo_status status = neo_ctx_create(&(neo_ctx_desc){0}, &ctx);
    if (status == NEO_OK) status = neo_export(ctx, &desc);
    if (status != NEO_OK) fprintf(stderr, "merge: %s\n", neo_last_error());
    neo_ctx_destroy(ctx);
    return status == NEO_OK ? 0 : 1;
}
