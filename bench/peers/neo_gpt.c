/* neo_gpt.c: the trainer of examples/train/gpt, one rank, whose steps are called from elsewhere by
   ctypes.

   cc -O2 -fPIC -shared -I. bench/peers/neo_gpt.c examples/neo.c -o libneo_gpt.so \
     -lm -lpthread */
#include "../../examples/train/gpt/run.h"
#include "ranks.h"

enum { STEPS = 1, WRITE = 2 };
static struct {
    ranks ranks;
    job job;
    run *run;
    double loss; /* mean of the last step */
    const char *path;
} gpt;

static neo_status set_up_gpt(neo_comm *comm, void **rank) {
    run *r = calloc(1, sizeof *r);
    if (!r) return neo_fail(NEO_ERR_MEMORY, "out of memory");
    *rank = gpt.run = r;
    r->me = cli_rank_of(&gpt.job.cli, comm);
    r->o = &gpt.job.o, r->text = &gpt.job.text;
    r->t.data = comm, r->t.m.ctx = r->me.ctx;
    return set_up(r);
}
static neo_status work_gpt(void *rank, int command, int64_t count) {
    run *r = rank;
    if (command == WRITE) return neo_fsdp_write_safetensors(r->t.fsdp, gpt.path, 0);
    for (; count > 0; count--) {
        TRY(train_step(&r->t, r->step++));
        TRY(sum_loss(&r->t, &r->t.loss[r->t.turn], &gpt.loss));
        gpt.loss /= (double)(r->o->batch * r->o->context);
    }
    return NEO_OK;
}
static void tear_down_gpt(void *rank) {
    run *r = rank;
    if (!r) return;
    tear_down(r);
    free(r);
    gpt.run = NULL;
}

SIDE const char *neo_gpt_error(void) {
    return gpt.ranks.error[0] ? gpt.ranks.error : neo_last_error();
}
/* AdamW as the example's: beta2 0.99, decay 0.1, gradients clipped at norm 1, a learning rate of
   0.002. */
SIDE int neo_gpt_start(int threads, int layers, int heads, int width, int context, int batch,
                       const char *text) {
    options *o = &gpt.job.o;
    static char none[] = "none", off[] = "off";
    memset(&gpt, 0, sizeof gpt);
    neo_status status = cli_defaults(&GPT, o);
    if (status != NEO_OK) return (int)status;
    o->data = (char *)(uintptr_t)text, o->shard = none, o->machine.graph = off;
    o->layers = layers, o->heads = heads, o->width = width, o->context = context, o->batch = batch;
    o->steps = 1000000000, o->min_lr = o->lr, o->warmup = 0;
    status = read_text(o, &gpt.job.text);
    if (status != NEO_OK) return (int)status;
    gpt.ranks.desc = (neo_comm_desc){.ranks = 1, .ctx = {.threads = threads, .seed = 1}};
    gpt.ranks.set_up = set_up_gpt, gpt.ranks.work = work_gpt, gpt.ranks.tear_down = tear_down_gpt;
    return ranks_start(&gpt.ranks);
}
/* `steps` training steps; loss: the mean of the last. */
SIDE int neo_gpt_run(int steps, double *loss) {
    int status = ranks_do(&gpt.ranks, STEPS, steps);
    if (loss) *loss = gpt.loss;
    return status;
}
/* The weights as they are now, as safetensors. */
SIDE int neo_gpt_write(const char *path) {
    gpt.path = path;
    return ranks_do(&gpt.ranks, WRITE, 0);
}
SIDE int neo_gpt_stop(void) {
    int status = ranks_stop(&gpt.ranks);
    free(gpt.job.text.data);
    gpt.job.text.data = NULL;
    return status;
}
SIDE int neo_gpt_vocabulary(void) { return gpt.job.text.vocabulary; }
/* What step `step` trains on: ids and targets [batch][context]. */
SIDE int neo_gpt_batch(int64_t step, int64_t *ids, int64_t *targets) {
    run *r = gpt.run;
    if (!r) return 1;
    model as = r->t.m; /* with other arrays to write to */
    as.next_ids = ids, as.next_targets = targets;
    for (int64_t i = 0; i < r->o->batch; i++)
        put_sequence(&as, r->t.text, window_of(&r->t, step, i), i);
    return 0;
}
