/* flags.c: compiled by headers.sh under many compiler flags; trains a small model and prints its
   digest, or "refused: <why>" when neo_ctx_create finds that the flags change arithmetic. With
   CONTEXT_ALONE it makes a context and nothing else: what is refused is so in half the time. */
#define NEO_IMPLEMENTATION
#ifdef CONTEXT_ALONE
#define NEO_NO_SIMD
#include "neo.h"
#include <stdio.h>

int main(void) {
    neo_ctx_desc desc = {0};
    neo_ctx *ctx = NULL;
    const neo_status status = neo_ctx_create(&desc, &ctx);
    if (status == NEO_ERR_NUMERIC) printf("refused: %s\n", neo_last_error());
    else printf("%s\n", neo_status_string(status));
    neo_ctx_destroy(ctx);
    return 0;
}
#else
#include "neo_state.h"

#include "core/trainer.h"
#include <stdio.h>

int main(void) {
    static const trainer_desc kinds[] = {
        {NEO_OPTIM_ADAM, NEO_BAG_ADAM, 0, 1},
        {NEO_OPTIM_LAMB, NEO_BAG_LAMB, 1.0f, 1},
        {NEO_OPTIM_ADAGRAD, NEO_BAG_ROWWISE_ADAGRAD, 0, 1},
        {NEO_OPTIM_SGD, NEO_BAG_LARS_SGD, 0, 1},
    };
    int first = 1;
    for (int scalar = 0; scalar < 2; scalar++) {
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            static trainer t;
            neo_ctx_desc d;
            memset(&d, 0, sizeof d);
            d.threads = 2;
            d.repro_shards = 4;
            d.seed = 7;
            d.isa = scalar ? NEO_ISA_SCALAR : NEO_ISA_BEST;
            neo_status status = trainer_create(&t, &d, &kinds[i]);
            if (status == NEO_ERR_NUMERIC && !t.ctx) {
                printf("refused: %s\n", neo_last_error());
                return 0;
            }
            if (status == NEO_OK) status = trainer_steps(&t, 12);
            if (status != NEO_OK) {
                printf(" failed: %s\n", neo_last_error());
                return 1;
            }
            const uint64_t digest = neo_state_digest(t.dlrm.state);
            printf("%s %016llx", first ? "digest" : "", (unsigned long long)digest);
            first = 0;
            trainer_destroy(&t);
        }
    }
    printf("\n");
    return 0;
}
#endif
