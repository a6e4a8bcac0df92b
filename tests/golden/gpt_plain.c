/* gpt_plain.c: what examples/train/gpt computes, by the plain GPT of gpt_model.h (which
   tests/golden/gpt.c holds against PyTorch) and one neo_optim: leaf by leaf on whole parameters,
   without neo_fsdp.

   The model of tests/programs/gpt.sh, on the first characters of the example's text, trains in
   every numeric definition that the script asks of the example; the digests are printed for it, and
   here must differ from one another. */
#include "neo_state.h"

#include "test.h"

#include "gpt_model.h"

enum { LENGTH = 16, BATCH = 6, STEPS = 6, PARAMS = 64, LEAVES_MAX = 8, TEXT = 60000 };
static unsigned char letters[TEXT];
static int number[256], vocabulary;
static int64_t train_length;

static void read_text(void) {
    FILE *f = fopen("examples/data/shakespeare/input.txt", "rb");
    REQUIRE(f);
    CHECK_INT(fread(letters, 1, TEXT, f), TEXT);
    fclose(f);
    train_length = TEXT / 10 * 9;
    for (int64_t i = 0; i < TEXT; i++) number[letters[i]] = 1;
    for (int c = 0; c < 256; c++) number[c] = number[c] ? vocabulary++ : -1;
    CHECK(vocabulary > 50 && vocabulary <= 65);
}

typedef struct trainer {
    neo_ctx *ctx;
    neo_params *params;
    neo_optim *optim;
    gpt model;
    neo_tensor leaf[PARAMS][LEAVES_MAX]; /* gradients of each leaf */
    neo_tensor sum[PARAMS];              /* of micro-batches */
    double first_loss, last_loss;
} trainer;

static neo_status trainer_create(trainer *t) {
    const gpt_desc desc = {vocabulary, 32, 2, LENGTH, 2, BATCH};
    neo_optim_desc adamw;
    memset(&adamw, 0, sizeof adamw);
    adamw.kind = NEO_OPTIM_ADAMW;
    adamw.beta2 = 0.99;
    adamw.weight_decay = 0.1f;
    adamw.clip_norm = 1.0f;
    GPT_TRY(neo_params_create(t->ctx, &t->params));
    GPT_TRY(gpt_create(t->ctx, t->params, &desc, &t->model));
    GPT_TRY(neo_optim_create(t->ctx, t->params, &adamw, &t->optim));
    for (int i = 0; i < neo_params_count(t->params); i++) {
        neo_tensor g = neo_params_at(t->params, i)->grad;
        GPT_TRY(neo_tensor_alloc(t->ctx, NEO_F32, g.ndim, g.shape, &t->sum[i]));
        for (int v = 0; v < LEAVES_MAX; v++)
            GPT_TRY(neo_tensor_alloc(t->ctx, NEO_F32, g.ndim, g.shape, &t->leaf[i][v]));
    }
    return NEO_OK;
}
static void trainer_destroy(trainer *t) {
    for (int i = 0; i < neo_params_count(t->params); i++) {
        neo_tensor_free(t->ctx, &t->sum[i]);
        for (int v = 0; v < LEAVES_MAX; v++) neo_tensor_free(t->ctx, &t->leaf[i][v]);
    }
    neo_optim_destroy(t->optim);
    gpt_destroy(&t->model);
    neo_params_destroy(t->params);
}
/* to = from, or to += from. */
static neo_status keep(neo_ctx *ctx, neo_tensor from, neo_tensor to, int add) {
    return add ? neo_add(ctx, to, from) : neo_tensor_copy(ctx, from, to);
}
/* Forward and backward of a leaf of micro-batch `micro`; its gradients go to t->leaf, or add to
   what is there. */
static neo_status leaf_step(trainer *t, int64_t step, int leaf, int micro, int micros, int add,
                            neo_exact *loss) {
    static int64_t ids[BATCH * LENGTH], targets[BATCH * LENGTH];
    const int shards = neo_ctx_repro_shards(t->ctx);
    const int64_t begin = neo_leaf_begin(BATCH, shards, leaf),
                  end = neo_leaf_begin(BATCH, shards, leaf + 1);
    const neo_leaves leaves = {BATCH, leaf, 1, LENGTH};
    for (int64_t i = begin; i < end; i++) {
        uint32_t word[4];
        neo_random_u32x4(1, neo_hash("window"), step, NEO_STREAM_DATA,
                         (uint64_t)(micro * BATCH + i), word);
        const uint64_t at = ((uint64_t)word[0] << 32 | word[1]) % (uint64_t)(train_length - LENGTH);
        for (int64_t k = 0; k < LENGTH; k++) {
            ids[(i - begin) * LENGTH + k] = number[letters[at + (uint64_t)k]];
            targets[(i - begin) * LENGTH + k] = number[letters[at + (uint64_t)k + 1]];
        }
    }
    const neo_tensor mine = neo_tensor_1d(ids, NEO_I64, (end - begin) * LENGTH);
    GPT_TRY(gpt_forward(&t->model, mine));
    GPT_TRY(gpt_loss(&t->model, neo_tensor_1d(targets, NEO_I64, mine.shape[0]),
                     BATCH * LENGTH * micros, loss));
    GPT_TRY(gpt_backward(&t->model, &leaves, mine));
    for (int i = 0; i < neo_params_count(t->params); i++)
        GPT_TRY(keep(t->ctx, neo_params_at(t->params, i)->grad, t->leaf[i][leaf], add));
    return NEO_OK;
}
/* The gradients of a step go to params: each micro-batch by a tree of its own, or all by one at the
   end. */
static neo_status train_step(trainer *t, int64_t step, int micros, int at_end) {
    const int shards = neo_ctx_repro_shards(t->ctx), count = neo_params_count(t->params);
    neo_exact loss;
    neo_exact_zero(&loss);
    for (int micro = 0; micro < micros; micro++) {
        for (int v = 0; v < shards; v++)
            GPT_TRY(leaf_step(t, step, v, micro, micros, at_end && micro > 0, &loss));
        for (int i = 0; i < count && (!at_end || micro == micros - 1); i++) {
            neo_tensor grad = neo_params_at(t->params, i)->grad;
            GPT_TRY(neo_tree_sum(t->ctx, t->leaf[i], shards, grad));
            GPT_TRY(keep(t->ctx, grad, t->sum[i], !at_end && micro > 0));
        }
    }
    for (int i = 0; i < count; i++)
        GPT_TRY(neo_tensor_copy(t->ctx, t->sum[i], neo_params_at(t->params, i)->grad));
    t->last_loss = neo_exact_value(&loss) / (BATCH * LENGTH * micros);
    if (step == 0) t->first_loss = t->last_loss;
    return NEO_OK;
}
static neo_status train(trainer *t, int micros, int at_end, uint64_t *digest) {
    neo_schedule schedule;
    neo_state *state;
    memset(&schedule, 0, sizeof schedule);
    schedule.kind = NEO_SCHEDULE_COSINE;
    schedule.lr = 1e-3f;
    schedule.end_lr = 1e-4f;
    schedule.warmup_steps = 2;
    schedule.total_steps = STEPS;
    GPT_TRY(trainer_create(t));
    for (int64_t step = 0; step < STEPS; step++) {
        GPT_TRY(train_step(t, step, micros, at_end));
        GPT_TRY(neo_optim_step(t->optim, neo_schedule_lr(&schedule, step)));
    }
    GPT_TRY(neo_state_create(t->ctx, &state));
    neo_status status = neo_state_add_params(state, t->params);
    if (status == NEO_OK) status = neo_state_add_optim(state, t->optim);
    *digest = neo_state_digest(state);
    neo_state_destroy(state);
    return status;
}

static void definitions(void) {
    static const struct { int shards, micros, at_end; } cases[] = {
        {8, 1, 0}, {8, 2, 0}, {8, 4, 0}, {8, 2, 1}, {8, 4, 1}, {1, 1, 0}, {5, 1, 0}};
    enum { CASES = sizeof cases / sizeof *cases };
    uint64_t digest[CASES];
    for (int i = 0; i < CASES; i++) {
        static trainer t;
        memset(&t, 0, sizeof t);
        t.ctx = test_ctx(1, NEO_ISA_BEST, cases[i].shards);
        digest[i] = 0;
        CHECK_OK(train(&t, cases[i].micros, cases[i].at_end, &digest[i]));
        CHECK(t.last_loss < t.first_loss - 0.05);
        for (int k = 0; k < i; k++) CHECK(digest[k] != digest[i]);
        printf("shards %d accumulate %d %s: state %016" PRIx64 "\n", cases[i].shards,
               cases[i].micros, cases[i].at_end ? "end" : "each", digest[i]);
        trainer_destroy(&t);
        neo_ctx_destroy(t.ctx);
    }
}

int main(void) {
    RUN(read_text);
    RUN(definitions);
    return test_end("golden/gpt_plain");
}
