/* one_file_gpt.c: a GPT that learns Shakespeare character by character, in one file: attention,
   layer norm, a head tied to the token table, AdamW.

     cc -O2 -I. examples/one_file_gpt.c examples/neo.c -o one_file_gpt -lm -lpthread
     ./one_file_gpt [STEPS]

   characters -> token + position embedding -> blocks -> norm -> token embedding transposed
   block: x += project(attention(norm(x))), x += contract(gelu(expand(norm(x))))

   Expect a loss of about 1.6 after 2,000 steps (some minutes), and the digest of all
   weights and optimizer state, `state 70472440124ee1c3`. build/gpt trains the same model in shards
   over many ranks. */
#include "neo_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, HEADS = 4, WIDTH = 128, CONTEXT = 64, BATCH = 12, ROWS = BATCH * CONTEXT };
static const char *const TEXT = "examples/data/shakespeare/input.txt";

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

typedef struct layer { const neo_param *w, *b; } layer; /* a norm, or y = x w^T + b, w [out][in] */

/* Parameters of a block, and the activations that its backward needs: [ROWS] rows each. */
typedef struct block {
    layer norm_1, qkv, project, norm_2, expand, contract;
    neo_tensor x, stats_1, n1, qkv_out, y, lse, middle, stats_2, n2, z, gelu;
} block;

typedef struct gpt {
    neo_ctx *ctx;
    neo_params *params;
    neo_optim *optim;
    const neo_param *tokens, *positions; /* [vocabulary][WIDTH], [CONTEXT][WIDTH] */
    layer last;
    block block[LAYERS];
    neo_tensor out, stats, n, logits;    /* of the last block, the last norm, the head */
    neo_tensor dx, dn, dqkv, dgelu;      /* gradients on their way back */
    neo_tensor ids, targets, places;     /* [ROWS] */
    neo_tensor *owned[11 * LAYERS + 11];
    int owned_count;
} gpt;

/* The text; its characters are numbered in their order. The last tenth is kept for validation. */
static struct {
    unsigned char data[1 << 22];
    int64_t length, train;
    int number[256], letters;
} text;

static neo_status read_text(void) {
    FILE *f = fopen(TEXT, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "%s: cannot open", TEXT);
    text.length = (int64_t)fread(text.data, 1, sizeof text.data, f);
    text.train = text.length / 10 * 9 + text.length % 10 * 9 / 10;
    fclose(f);
    for (int64_t i = 0; i < text.length; i++) text.number[text.data[i]] = 1;
    for (int c = 0; c < 256; c++)
        if (text.number[c]) text.number[c] = text.letters++;
    return text.train > CONTEXT ? NEO_OK : neo_fail(NEO_ERR_FORMAT, "%s: is too short", TEXT);
}

/* ---- parameters and buffers ---- */

/* Adds <name>.weight and <name>.bias. in: 0 for a norm. */
static neo_status add_layer(gpt *g, const char *name, int64_t out, int64_t in, float deviation,
                            layer *l) {
    char full[64];
    neo_init normal = {NEO_INIT_NORMAL, 0, deviation}, zero = {NEO_INIT_CONSTANT, 0, 0};
    neo_init one = {NEO_INIT_CONSTANT, 1, 0};
    int64_t shape[2] = {out, in};
    snprintf(full, sizeof full, "%s.weight", name);
    TRY(neo_params_add(g->params, full, in ? 2 : 1, shape, in ? normal : one, &l->w));
    snprintf(full, sizeof full, "%s.bias", name);
    return neo_params_add(g->params, full, 1, shape, zero, &l->b);
}
static neo_status add_buffer(gpt *g, neo_tensor *t, neo_dtype dtype, int64_t columns) {
    g->owned[g->owned_count++] = t;
    return neo_tensor_alloc(g->ctx, dtype, columns ? 2 : 1, (int64_t[]){ROWS, columns}, t);
}
static neo_status create_block(gpt *g, int i) {
    block *b = &g->block[i];
    const float last = 0.02f / sqrtf(2.0f * LAYERS); /* adds to the residual stream */
    const struct { const char *name; int out, in; float deviation; layer *l; } layers[] = {
        {"ln_1", WIDTH, 0, 0, &b->norm_1},
        {"attn.c_attn", 3 * WIDTH, WIDTH, 0.02f, &b->qkv},
        {"attn.c_proj", WIDTH, WIDTH, last, &b->project},
        {"ln_2", WIDTH, 0, 0, &b->norm_2},
        {"mlp.c_fc", 4 * WIDTH, WIDTH, 0.02f, &b->expand},
        {"mlp.c_proj", WIDTH, 4 * WIDTH, last, &b->contract}};
    const struct { neo_tensor *t; int columns; } buffers[] = {
        {&b->x, WIDTH}, {&b->stats_1, 2}, {&b->n1, WIDTH}, {&b->qkv_out, 3 * WIDTH},
        {&b->y, WIDTH}, {&b->lse, HEADS}, {&b->middle, WIDTH}, {&b->stats_2, 2},
        {&b->n2, WIDTH}, {&b->z, 4 * WIDTH}, {&b->gelu, 4 * WIDTH}};
    char name[64];
    for (int k = 0; k < 6; k++) {
        snprintf(name, sizeof name, "h.%d.%s", i, layers[k].name);
        TRY(add_layer(g, name, layers[k].out, layers[k].in, layers[k].deviation, layers[k].l));
    }
    for (int k = 0; k < 11; k++) TRY(add_buffer(g, buffers[k].t, NEO_F32, buffers[k].columns));
    return NEO_OK;
}
static neo_status create(gpt *g) {
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.02f};
    const int64_t tokens[2] = {text.letters, WIDTH}, positions[2] = {CONTEXT, WIDTH};
    const struct { neo_tensor *t; int columns; } buffers[] = {
        {&g->out, WIDTH}, {&g->stats, 2}, {&g->n, WIDTH}, {&g->logits, text.letters},
        {&g->dx, WIDTH}, {&g->dn, WIDTH}, {&g->dqkv, 3 * WIDTH}, {&g->dgelu, 4 * WIDTH}};
    neo_tensor *const integers[] = {&g->ids, &g->targets, &g->places};
    const neo_optim_desc adamw = {.kind = NEO_OPTIM_ADAMW, .weight_decay = 0.1f, .clip_norm = 1,
                                  .beta2 = 0.99};
    TRY(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &g->ctx));
    TRY(neo_params_create(g->ctx, &g->params));
    TRY(neo_params_add(g->params, "wte.weight", 2, tokens, normal, &g->tokens));
    TRY(neo_params_add(g->params, "wpe.weight", 2, positions, normal, &g->positions));
    TRY(add_layer(g, "ln_f", WIDTH, 0, 0, &g->last));
    for (int i = 0; i < LAYERS; i++) TRY(create_block(g, i));
    for (int k = 0; k < 8; k++) TRY(add_buffer(g, buffers[k].t, NEO_F32, buffers[k].columns));
    for (int k = 0; k < 3; k++) TRY(add_buffer(g, integers[k], NEO_I64, 0));
    for (int64_t i = 0; i < ROWS; i++) ((int64_t *)g->places.data)[i] = i % CONTEXT;
    return neo_optim_create(g->ctx, g->params, &adamw, &g->optim);
}
static void destroy(gpt *g) {
    for (int i = 0; i < g->owned_count; i++) neo_tensor_free(g->ctx, g->owned[i]);
    neo_optim_destroy(g->optim);
    neo_params_destroy(g->params);
    neo_ctx_destroy(g->ctx);
}

/* ---- forward and backward ---- */

static const neo_attention_desc ATTENTION = {.length = CONTEXT, .heads = HEADS, .causal = 1};

static neo_tensor third(neo_tensor qkv, int k) { /* q, k or v */
    return neo_tensor_slice(qkv, 1, k * WIDTH, WIDTH);
}
static neo_status norm(gpt *g, const layer *l, neo_tensor x, neo_tensor y, neo_tensor stats) {
    return neo_layer_norm_forward(g->ctx, x, l->w->value, l->b->value, 1e-5f, y, stats);
}
static neo_status norm_back(gpt *g, const layer *l, neo_tensor x, neo_tensor stats, neo_tensor dx) {
    return neo_layer_norm_backward(g->ctx, NULL, x, l->w->value, stats, dx, dx, l->w->grad,
                                   l->b->grad); /* dx: in place */
}
static neo_status linear(gpt *g, const layer *l, neo_tensor x, neo_tensor y) {
    return neo_linear_forward(g->ctx, x, l->w->value, l->b->value, NEO_ACT_NONE, y);
}
static neo_status linear_back(gpt *g, const layer *l, neo_tensor x, neo_tensor dy, neo_tensor dx) {
    return neo_linear_backward(g->ctx, NULL, x, l->w->value, dy, dx, l->w->grad, l->b->grad);
}

static neo_status block_forward(gpt *g, const block *b, neo_tensor out) {
    neo_tensor qkv = b->qkv_out;
    TRY(norm(g, &b->norm_1, b->x, b->n1, b->stats_1));
    TRY(linear(g, &b->qkv, b->n1, qkv));
    TRY(neo_attention_forward(g->ctx, &ATTENTION, third(qkv, 0), third(qkv, 1), third(qkv, 2),
                              b->y, b->lse));
    TRY(linear(g, &b->project, b->y, b->middle));
    TRY(neo_add(g->ctx, b->middle, b->x));
    TRY(norm(g, &b->norm_2, b->middle, b->n2, b->stats_2));
    TRY(linear(g, &b->expand, b->n2, b->z));
    TRY(neo_activation_forward(g->ctx, NEO_ACT_GELU, b->z, b->gelu));
    TRY(linear(g, &b->contract, b->gelu, out));
    return neo_add(g->ctx, out, b->middle);
}
/* g->dx: the gradient of the block's output, then of its input. */
static neo_status block_backward(gpt *g, const block *b) {
    neo_tensor qkv = b->qkv_out, dqkv = g->dqkv, dz = g->dgelu;
    TRY(linear_back(g, &b->contract, b->gelu, g->dx, g->dgelu));
    TRY(neo_activation_backward(g->ctx, NEO_ACT_GELU, b->z, neo_tensor_none(), dz, dz));
    TRY(linear_back(g, &b->expand, b->n2, dz, g->dn));
    TRY(norm_back(g, &b->norm_2, b->middle, b->stats_2, g->dn));
    TRY(neo_add(g->ctx, g->dx, g->dn));
    TRY(linear_back(g, &b->project, b->y, g->dx, g->dn));
    TRY(neo_attention_backward(g->ctx, &ATTENTION, third(qkv, 0), third(qkv, 1), third(qkv, 2),
                               b->y, b->lse, g->dn, third(dqkv, 0), third(dqkv, 1),
                               third(dqkv, 2)));
    TRY(linear_back(g, &b->qkv, b->n1, dqkv, g->dn));
    TRY(norm_back(g, &b->norm_1, b->x, b->stats_1, g->dn));
    return neo_add(g->ctx, g->dx, g->dn);
}
static neo_status forward(gpt *g) {
    neo_tensor x = g->block[0].x, place = g->n; /* n is free here */
    TRY(neo_embedding_forward(g->ctx, g->ids, g->tokens->value, x));
    TRY(neo_embedding_forward(g->ctx, g->places, g->positions->value, place));
    TRY(neo_add(g->ctx, x, place));
    for (int i = 0; i < LAYERS; i++)
        TRY(block_forward(g, &g->block[i], i + 1 < LAYERS ? g->block[i + 1].x : g->out));
    TRY(norm(g, &g->last, g->out, g->n, g->stats));
    return neo_linear_forward(g->ctx, g->n, g->tokens->value, neo_tensor_none(), NEO_ACT_NONE,
                              g->logits);
}
/* dlogits: in place of the logits. The token table is the head's weight too: its gradient is
   written first, and that of the embedding is added at the end. */
static neo_status backward(gpt *g, neo_tensor dlogits) {
    TRY(neo_linear_backward(g->ctx, NULL, g->n, g->tokens->value, dlogits, g->dx, g->tokens->grad,
                            neo_tensor_none()));
    TRY(norm_back(g, &g->last, g->out, g->stats, g->dx));
    for (int i = LAYERS - 1; i >= 0; i--) TRY(block_backward(g, &g->block[i]));
    TRY(neo_embedding_backward(g->ctx, NULL, g->places, g->dx, g->positions->grad, 0));
    return neo_embedding_backward(g->ctx, NULL, g->ids, g->dx, g->tokens->grad, 1);
}

/* ---- training ---- */

/* The sequences of a step begin anywhere in the text. */
static void make_batch(gpt *g, int64_t step) {
    int64_t *ids = g->ids.data, *targets = g->targets.data;
    uint32_t word[4];
    for (int64_t i = 0; i < ROWS; i++) {
        uint64_t sequence = (uint64_t)(i / CONTEXT);
        neo_random_u32x4(1, neo_hash("window"), step, NEO_STREAM_DATA, sequence, word);
        uint64_t number = (uint64_t)word[0] << 32 | word[1];
        uint64_t at = number % (uint64_t)(text.train - CONTEXT) + (uint64_t)(i % CONTEXT);
        ids[i] = text.number[text.data[at]];
        targets[i] = text.number[text.data[at + 1]];
    }
}
static neo_status train(gpt *g, int64_t steps) {
    const neo_schedule schedule = {.kind = NEO_SCHEDULE_COSINE, .lr = 2e-3f, .end_lr = 1e-4f,
                                   .warmup_steps = 100, .total_steps = steps};
    neo_state *state;
    double loss;
    TRY(read_text());
    TRY(create(g));
    for (int64_t step = 0; step < steps; step++) {
        make_batch(g, step);
        TRY(forward(g));
        TRY(neo_cross_entropy(g->ctx, NULL, g->logits, g->targets, g->logits, &loss));
        TRY(backward(g, g->logits));
        TRY(neo_optim_step(g->optim, neo_schedule_lr(&schedule, step)));
        if (step % 100 == 99 || step + 1 == steps)
            printf("step %d  loss %.4f\n", (int)step + 1, loss);
    }
    TRY(neo_state_create(g->ctx, &state));
    TRY(neo_state_add_params(state, g->params));
    TRY(neo_state_add_optim(state, g->optim));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    neo_state_destroy(state);
    return NEO_OK;
}

int main(int argc, char **argv) {
    static gpt g;
    neo_status status = train(&g, argc > 1 ? atoi(argv[1]) : 2000);
    if (status != NEO_OK) fprintf(stderr, "one_file_gpt: %s\n", neo_last_error());
    destroy(&g);
    return status == NEO_OK ? 0 : 1;
}
