/* one_file_gpt.c: a GPT in one file, which learns Shakespeare character by character.

     cc -O2 -I. examples/one_file_gpt.c examples/neo.c -o one_file_gpt -lm -lpthread
     ./one_file_gpt [STEPS]

   characters -> token + position embedding -> blocks -> norm -> token embedding transposed
   block: x += project(attention(norm(x))), x += contract(gelu(expand(norm(x))))

   Expect a loss of about 1.6 after 2,000 steps (some minutes), and `state 70472440124ee1c3`, the
   digest of weights and optimizer state. It saves nothing: build/gpt trains the same, and saves. */
#include "neo_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, HEADS = 4, WIDTH = 128, CONTEXT = 64, BATCH = 12, ROWS = BATCH * CONTEXT };
static const char *const TEXT = "examples/data/shakespeare/input.txt";

/* Ends the program where a call fails: it has nothing to lose. */
static void check(neo_status status) {
    if (status != NEO_OK) fprintf(stderr, "one_file_gpt: %s\n", neo_last_error()), exit(1);
}

/* ---- the text: its characters are numbered in their order; the last tenth is not used ---- */
static unsigned char text[1 << 22];
static int64_t used;
static int number[256], letters;

static void read_text(void) {
    FILE *f = fopen(TEXT, "rb");
    int64_t length = f ? (int64_t)fread(text, 1, sizeof text, f) : 0;
    used = length / 10 * 9 + length % 10 * 9 / 10;
    if (used <= CONTEXT)
        check(neo_fail(NEO_ERR_NOT_FOUND, "no text in %s: start it beside examples/", TEXT));
    fclose(f);
    for (int64_t i = 0; i < length; i++) number[text[i]] = 1;
    for (int c = 0; c < 256; c++)
        if (number[c]) number[c] = letters++;
}

/* ---- the model ---- */
typedef struct layer { const neo_param *w, *b; } layer; /* a norm, or y = x w^T + b, w [out][in] */
/* Parameters of a block, and the activations that its backward needs. */
typedef struct block {
    layer norm_1, qkv, project, norm_2, expand, contract;
    float x[ROWS * WIDTH], stats_1[ROWS * 2], n1[ROWS * WIDTH], q_k_v[ROWS * 3 * WIDTH];
    float y[ROWS * WIDTH], lse[ROWS * HEADS], middle[ROWS * WIDTH];
    float stats_2[ROWS * 2], n2[ROWS * WIDTH], z[ROWS * 4 * WIDTH], gelu[ROWS * 4 * WIDTH];
} block;

static neo_ctx *ctx;
static neo_params *params;
static const neo_param *tokens, *positions; /* [letters][WIDTH], [CONTEXT][WIDTH] */
static block blocks[LAYERS];
static layer last;
static float out[ROWS * WIDTH], stats[ROWS * 2], n[ROWS * WIDTH]; /* of all blocks, the last norm */
static float logits[ROWS * 256]; /* [ROWS][letters] of it, and then their gradient */
static float dx[ROWS * WIDTH], dn[ROWS * WIDTH], dqkv[ROWS * 3 * WIDTH], dz[ROWS * 4 * WIDTH];
static int64_t ids[ROWS], targets[ROWS], places[ROWS];

/* Arrays as tensors: [ROWS][columns], and [ROWS] of integers. */
#define T(array) neo_tensor_2d(array, NEO_F32, ROWS, sizeof(array) / sizeof(float) / ROWS)
#define I(array) neo_tensor_1d(array, NEO_I64, ROWS)
#define LOGITS neo_tensor_2d(logits, NEO_F32, ROWS, letters)

/* Adds <prefix><name>.weight and .bias; in: 0 for a norm. */
static void add(const char *prefix, const char *name, int64_t to, int64_t in, float sd, layer *l) {
    neo_init zero = {NEO_INIT_CONSTANT, 0, 0}, one = {NEO_INIT_CONSTANT, 1, 0};
    neo_init weight = in ? (neo_init){NEO_INIT_NORMAL, 0, sd} : one;
    char full[64];
    snprintf(full, sizeof full, "%s%s.weight", prefix, name);
    check(neo_params_add(params, full, in ? 2 : 1, (int64_t[]){to, in}, weight, &l->w));
    snprintf(full, sizeof full, "%s%s.bias", prefix, name);
    check(neo_params_add(params, full, 1, &to, zero, &l->b));
}
static void create(void) {
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.02f};
    const float residual = 0.02f / sqrtf(2.0f * LAYERS); /* of what adds to the residual stream */
    char h[16];
    check(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &ctx));
    check(neo_params_create(ctx, &params));
    check(neo_params_add(params, "wte.weight", 2, (int64_t[]){letters, WIDTH}, normal, &tokens));
    check(neo_params_add(params, "wpe.weight", 2, (int64_t[]){CONTEXT, WIDTH}, normal, &positions));
    add("", "ln_f", WIDTH, 0, 0, &last);
    for (int i = 0; i < LAYERS; i++) {
        block *b = &blocks[i];
        snprintf(h, sizeof h, "h.%d.", i);
        add(h, "ln_1", WIDTH, 0, 0, &b->norm_1);
        add(h, "attn.c_attn", 3 * WIDTH, WIDTH, 0.02f, &b->qkv);
        add(h, "attn.c_proj", WIDTH, WIDTH, residual, &b->project);
        add(h, "ln_2", WIDTH, 0, 0, &b->norm_2);
        add(h, "mlp.c_fc", 4 * WIDTH, WIDTH, 0.02f, &b->expand);
        add(h, "mlp.c_proj", WIDTH, 4 * WIDTH, residual, &b->contract);
    }
}

/* ---- forward and backward ---- */
static void norm(const layer *l, neo_tensor x, neo_tensor y, neo_tensor to) {
    check(neo_layer_norm_forward(ctx, x, l->w->value, l->b->value, 1e-5f, y, to));
}
static void norm_back(const layer *l, neo_tensor x, neo_tensor from, neo_tensor d) { /* in place */
    check(neo_layer_norm_backward(ctx, NULL, x, l->w->value, from, d, d, l->w->grad, l->b->grad));
}
static void linear(const layer *l, neo_tensor x, neo_tensor y) {
    check(neo_linear_forward(ctx, x, l->w->value, l->b->value, NEO_ACT_NONE, y));
}
static void linear_back(const layer *l, neo_tensor x, neo_tensor dy, neo_tensor to) {
    check(neo_linear_backward(ctx, NULL, x, l->w->value, dy, to, l->w->grad, l->b->grad));
}
static const neo_attention_desc ATTENTION = {.length = CONTEXT, .heads = HEADS, .causal = 1};
/* q, k and v: thirds of an array. */
#define QKV(array) THIRD(array, 0), THIRD(array, 1), THIRD(array, 2)
#define THIRD(array, k) neo_tensor_slice(T(array), 1, k * WIDTH, WIDTH)

static void block_forward(block *b, neo_tensor to) {
    norm(&b->norm_1, T(b->x), T(b->n1), T(b->stats_1));
    linear(&b->qkv, T(b->n1), T(b->q_k_v));
    check(neo_attention_forward(ctx, &ATTENTION, QKV(b->q_k_v), T(b->y), T(b->lse)));
    linear(&b->project, T(b->y), T(b->middle));
    check(neo_add(ctx, T(b->middle), T(b->x)));
    norm(&b->norm_2, T(b->middle), T(b->n2), T(b->stats_2));
    linear(&b->expand, T(b->n2), T(b->z));
    check(neo_activation_forward(ctx, NEO_ACT_GELU, T(b->z), T(b->gelu)));
    linear(&b->contract, T(b->gelu), to);
    check(neo_add(ctx, to, T(b->middle)));
}
/* dx: the gradient of the block's output, then of its input. */
static void block_backward(block *b) {
    linear_back(&b->contract, T(b->gelu), T(dx), T(dz));
    check(neo_activation_backward(ctx, NEO_ACT_GELU, T(b->z), neo_tensor_none(), T(dz), T(dz)));
    linear_back(&b->expand, T(b->n2), T(dz), T(dn));
    norm_back(&b->norm_2, T(b->middle), T(b->stats_2), T(dn));
    check(neo_add(ctx, T(dx), T(dn)));
    linear_back(&b->project, T(b->y), T(dx), T(dn));
    check(neo_attention_backward(ctx, &ATTENTION, QKV(b->q_k_v), T(b->y), T(b->lse), T(dn),
                                 QKV(dqkv)));
    linear_back(&b->qkv, T(b->n1), T(dqkv), T(dn));
    norm_back(&b->norm_1, T(b->x), T(b->stats_1), T(dn));
    check(neo_add(ctx, T(dx), T(dn)));
}
static void forward(void) {
    check(neo_embedding_forward(ctx, I(ids), tokens->value, T(blocks[0].x)));
    check(neo_embedding_forward(ctx, I(places), positions->value, T(n))); /* n is free here */
    check(neo_add(ctx, T(blocks[0].x), T(n)));
    for (int i = 0; i < LAYERS; i++)
        block_forward(&blocks[i], i + 1 < LAYERS ? T(blocks[i + 1].x) : T(out));
    norm(&last, T(out), T(n), T(stats));
    check(neo_linear_forward(ctx, T(n), tokens->value, neo_tensor_none(), NEO_ACT_NONE, LOGITS));
}
/* logits: their gradient. The token table is the head's weight too: its gradient is written first,
   and that of the embedding is added at the end. */
static void backward(void) {
    check(neo_linear_backward(ctx, NULL, T(n), tokens->value, LOGITS, T(dx), tokens->grad,
                              neo_tensor_none()));
    norm_back(&last, T(out), T(stats), T(dx));
    for (int i = LAYERS - 1; i >= 0; i--) block_backward(&blocks[i]);
    check(neo_embedding_backward(ctx, NULL, I(places), T(dx), positions->grad, 0));
    check(neo_embedding_backward(ctx, NULL, I(ids), T(dx), tokens->grad, 1));
}

/* The sequences of a step begin anywhere in the text. */
static void make_batch(int64_t step) {
    uint32_t word[4];
    for (int64_t i = 0; i < ROWS; i++) {
        uint64_t sequence = (uint64_t)(i / CONTEXT);
        neo_random_u32x4(1, neo_hash("window"), step, NEO_STREAM_DATA, sequence, word);
        places[i] = i % CONTEXT;
        uint64_t any = (uint64_t)word[0] << 32 | word[1];
        int64_t at = (int64_t)(any % (uint64_t)(used - CONTEXT)) + places[i];
        ids[i] = number[text[at]];
        targets[i] = number[text[at + 1]];
    }
}

int main(int argc, char **argv) {
    int64_t steps = argc > 1 ? atoi(argv[1]) : 2000;
    if (argc > 2 || steps < 1) return fprintf(stderr, "usage: one_file_gpt [STEPS]\n"), 2;
    neo_schedule schedule = {.kind = NEO_SCHEDULE_COSINE, .lr = 2e-3f, .end_lr = 1e-4f,
                             .warmup_steps = 100, .total_steps = steps};
    neo_optim_desc adamw = {NEO_OPTIM_ADAMW, .weight_decay = 0.1f, .clip_norm = 1, .beta2 = 0.99};
    neo_optim *optim; neo_state *state; double loss;
    read_text();
    create();
    check(neo_optim_create(ctx, params, &adamw, &optim));
    for (int64_t step = 0; step < steps; step++) {
        make_batch(step);
        forward();
        check(neo_cross_entropy(ctx, NULL, LOGITS, I(targets), LOGITS, &loss));
        backward();
        check(neo_optim_step(optim, neo_schedule_lr(&schedule, step)));
        if (step % 100 == 99 || step + 1 == steps)
            printf("step %d  loss %.4f\n", (int)step + 1, loss);
    }
    check(neo_state_create(ctx, &state));
    check(neo_state_add_params(state, params));
    check(neo_state_add_optim(state, optim));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    return 0; /* a longer program would destroy what it created */
}
