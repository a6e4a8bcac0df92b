/* llmc_side.c: llm.c's training of GPT-2 on a CPU, built as its Makefile does, whose steps
   llmc.py calls by ctypes. Its source is fetched by bench/peers/Makefile; it ends the process
   after an error.

   cc -Ofast -march=native -fopenmp -DOMP -fPIC -shared -I build/peers/llmc \
     bench/peers/llmc_side.c -o libllmc.so -lm */
#define TESTING /* without main */
#include "train_gpt2.c"

#define SIDE __attribute__((visibility("default")))

static GPT2 model;
static int steps;

SIDE void llmc_start(const char *checkpoint) { gpt2_build_from_checkpoint(&model, checkpoint); }
/* A step on ids and targets [batch][length]; the loss before it. */
SIDE float llmc_step(int *ids, int *targets, int batch, int length) {
    gpt2_forward(&model, ids, targets, (size_t)batch, (size_t)length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 0.002f, 0.9f, 0.99f, 1e-8f, 0.1f, ++steps);
    return model.mean_loss;
}
