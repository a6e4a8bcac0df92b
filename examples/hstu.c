/* hstu.c: a generative recommender (HSTU, arXiv 2402.17152) in one file: it reads the items of a
   user, sequences of different lengths without padding, and predicts the next one.

     cc -O2 -I. examples/hstu.c examples/neo.c -o hstu -lm -lpthread && ./hstu [STEPS]

   items -> embedding -> blocks -> norm -> embedding transposed
   block: u, v, q, k = silu(norm(x) W), x += project(norm(attention(q, k, v)) * u), where attention
   is silu(q k + bias)/n, causal, inside each sequence. bias is learned: a number for each distance
   of two items, and one for the time from an item until that to be predicted, by powers of 2

   A user walks over the items in a stride of 1 to 4, which the items before can tell, and how long
   the next one lets wait for itself: expect a loss that falls below that of a guess, log 4 = 1.39,
   and `state a708828baa0ddb24`. */
#include "neo_state.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 2, HEADS = 2, WIDTH = 32, ITEMS = 64, USERS = 16, LONGEST = 40,
       ROWS = USERS * LONGEST, PERIODS = 16 };

/* Ends the program where a call fails: it has nothing to lose. */
static void check(neo_status status) {
    if (status != NEO_OK) fprintf(stderr, "hstu: %s\n", neo_last_error()), exit(1);
}

/* Parameters of a block, and the activations that its backward needs. */
typedef struct block {
    const neo_param *w, *project; /* [4 WIDTH][WIDTH], [WIDTH][WIDTH] */
    const neo_param *distance, *period; /* [1][LONGEST], [1][PERIODS], of all heads */
    neo_attention_bias bias[2];
    float x[ROWS * WIDTH], stats[ROWS * 2], n[ROWS * WIDTH];
    float z[ROWS * 4 * WIDTH], uvqk[ROWS * 4 * WIDTH]; /* before and after SiLU */
    float a[ROWS * WIDTH], a_stats[ROWS * 2], a_n[ROWS * WIDTH], gated[ROWS * WIDTH];
} block;

static neo_ctx *ctx;
static neo_params *params;
static const neo_param *items; /* [ITEMS][WIDTH] */
static block blocks[BLOCKS];
static float out[ROWS * WIDTH], stats[ROWS * 2], n[ROWS * WIDTH], logits[ROWS * ITEMS];
static float dx[ROWS * WIDTH], dn[ROWS * WIDTH], da[ROWS * WIDTH], duvqk[ROWS * 4 * WIDTH];
static int64_t ids[ROWS], targets[ROWS], offsets[USERS + 1], rows; /* of this batch */
static int64_t times[ROWS], next_times[ROWS];                    /* of ids, of targets; seconds */
static int64_t distances[LONGEST - 1], periods[PERIODS - 1];     /* where their buckets begin */
static float each[USERS * HEADS * LONGEST], each_period[USERS * HEADS * PERIODS];

/* Arrays as tensors: [rows][columns], and of those the columns of u, v, q or k. */
#define T(array) neo_tensor_2d(array, NEO_F32, rows, sizeof(array) / sizeof(float) / ROWS)
#define PART(array, i) neo_tensor_slice(T(array), 1, (i) * WIDTH, WIDTH)
#define I(array) neo_tensor_1d(array, NEO_I64, rows)
#define NONE neo_tensor_none()

static void create(void) {
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.1f};
    char name[32];
    for (int i = 0; i < LONGEST - 1; i++) distances[i] = i + 1;
    for (int i = 0; i < PERIODS - 1; i++) periods[i] = (int64_t)1 << i;
    check(neo_ctx_create(&(neo_ctx_desc){.seed = 1}, &ctx));
    check(neo_params_create(ctx, &params));
    check(neo_params_add(params, "items", 2, (int64_t[]){ITEMS, WIDTH}, normal, &items));
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "%d.uvqk", i);
        check(neo_params_add(params, name, 2, (int64_t[]){4 * WIDTH, WIDTH}, normal,
                             &blocks[i].w));
        snprintf(name, sizeof name, "%d.project", i);
        check(neo_params_add(params, name, 2, (int64_t[]){WIDTH, WIDTH}, normal,
                             &blocks[i].project));
        snprintf(name, sizeof name, "%d.distance", i);
        check(neo_params_add(params, name, 2, (int64_t[]){1, LONGEST}, normal,
                             &blocks[i].distance));
        snprintf(name, sizeof name, "%d.period", i);
        check(neo_params_add(params, name, 2, (int64_t[]){1, PERIODS}, normal, &blocks[i].period));
    }
}

/* Biases by how many items, and by how much time, a key is before what is asked for. */
static neo_attention_desc attention(block *b) {
    b->bias[0] = (neo_attention_bias){
        .table = b->distance->value, .dtable = b->distance->grad,
        .bounds = neo_tensor_1d(distances, NEO_I64, LONGEST - 1),
        .each = neo_tensor_2d(each, NEO_F32, USERS * HEADS, LONGEST)};
    b->bias[1] = (neo_attention_bias){
        .table = b->period->value, .dtable = b->period->grad,
        .bounds = neo_tensor_1d(periods, NEO_I64, PERIODS - 1), .times = I(times),
        .asked = I(next_times),
        .each = neo_tensor_2d(each_period, NEO_F32, USERS * HEADS, PERIODS)};
    return (neo_attention_desc){.length = LONGEST, .heads = HEADS, .causal = 1,
                                .kind = NEO_ATTENTION_SILU, .bias = b->bias, .bias_count = 2,
                                .offsets = neo_tensor_1d(offsets, NEO_I64, USERS + 1)};
}
static void norm(neo_tensor x, neo_tensor y, neo_tensor to) {
    check(neo_layer_norm_forward(ctx, x, NONE, NONE, 1e-6f, y, to));
}
static void norm_back(neo_tensor x, neo_tensor from, neo_tensor d) { /* in place */
    check(neo_layer_norm_backward(ctx, NULL, x, NONE, from, d, d, NONE, NONE));
}
static void block_forward(block *b, neo_tensor to) {
    const neo_attention_desc desc = attention(b);
    norm(T(b->x), T(b->n), T(b->stats));
    check(neo_linear_act_forward(ctx, T(b->n), b->w->value, NONE, NEO_ACT_SILU, T(b->z),
                                 T(b->uvqk)));
    check(neo_attention_forward(ctx, &desc, PART(b->uvqk, 2), PART(b->uvqk, 3), PART(b->uvqk, 1),
                                T(b->a), NONE));
    norm(T(b->a), T(b->a_n), T(b->a_stats));
    check(neo_addcmul(ctx, NONE, T(b->a_n), PART(b->uvqk, 0), T(b->gated)));
    check(neo_linear_forward(ctx, T(b->gated), b->project->value, NONE, NEO_ACT_NONE, to));
    check(neo_add(ctx, to, T(b->x)));
}
/* dx: the gradient of the block's output, then of its input. */
static void block_backward(block *b) {
    const neo_attention_desc desc = attention(b);
    check(neo_linear_backward(ctx, NULL, T(b->gated), b->project->value, T(dx), T(da),
                              b->project->grad, NONE));
    check(neo_addcmul(ctx, NONE, T(da), T(b->a_n), PART(duvqk, 0)));
    check(neo_mul(ctx, T(da), PART(b->uvqk, 0)));
    norm_back(T(b->a), T(b->a_stats), T(da));
    check(neo_attention_backward(ctx, &desc, PART(b->uvqk, 2), PART(b->uvqk, 3),
                                 PART(b->uvqk, 1), NONE, NONE, T(da), PART(duvqk, 2),
                                 PART(duvqk, 3), PART(duvqk, 1)));
    check(neo_activation_backward(ctx, NEO_ACT_SILU, T(b->z), NONE, T(duvqk), T(duvqk)));
    check(neo_linear_backward(ctx, NULL, T(b->n), b->w->value, T(duvqk), T(dn), b->w->grad, NONE));
    norm_back(T(b->x), T(b->stats), T(dn));
    check(neo_add(ctx, T(dx), T(dn)));
}
static double step(neo_optim *optim) {
    double loss;
    check(neo_embedding_forward(ctx, I(ids), items->value, T(blocks[0].x)));
    for (int i = 0; i < BLOCKS; i++)
        block_forward(&blocks[i], i + 1 < BLOCKS ? T(blocks[i + 1].x) : T(out));
    norm(T(out), T(n), T(stats));
    check(neo_linear_forward(ctx, T(n), items->value, NONE, NEO_ACT_NONE, T(logits)));
    check(neo_cross_entropy(ctx, NULL, T(logits), I(targets), T(logits), &loss));
    check(neo_linear_backward(ctx, NULL, T(n), items->value, T(logits), T(dx), items->grad, NONE));
    norm_back(T(out), T(stats), T(dx));
    for (int i = BLOCKS - 1; i >= 0; i--) block_backward(&blocks[i]);
    check(neo_embedding_backward(ctx, NULL, I(ids), T(dx), items->grad, 1)); /* added */
    check(neo_optim_step(optim, 0.005f));
    return loss;
}

/* Users whose histories are of 2 to LONGEST items. */
static void make_batch(int64_t at) {
    rows = 0;
    for (int i = 0; i < USERS; i++) {
        uint32_t word[4];
        neo_random_u32x4(1, neo_hash("user"), at, NEO_STREAM_DATA, (uint64_t)i, word);
        const int64_t length = 2 + word[0] % (LONGEST - 1), stride = 1 + word[1] % 4;
        for (int64_t k = 0; k < length; k++, rows++) {
            ids[rows] = (word[2] + k * stride) % ITEMS;
            targets[rows] = (ids[rows] + stride) % ITEMS;
            times[rows] = k << 2 * stride, next_times[rows] = (k + 1) << 2 * stride;
        }
        offsets[i + 1] = rows;
    }
}

int main(int argc, char **argv) {
    const int steps = argc > 1 ? atoi(argv[1]) : 200;
    if (argc > 2 || steps < 1) return fprintf(stderr, "usage: hstu [STEPS]\n"), 2;
    neo_optim *optim; neo_state *state; double loss;
    create();
    check(neo_optim_create(ctx, params, &(neo_optim_desc){.kind = NEO_OPTIM_ADAM}, &optim));
    for (int i = 1; i <= steps; i++) {
        make_batch(i);
        loss = step(optim);
        if (i % 50 == 0 || i == steps) printf("step %d  loss %.4f\n", i, loss);
    }
    check(neo_state_create(ctx, &state));
    check(neo_state_add_params(state, params));
    check(neo_state_add_optim(state, optim));
    printf("state %016llx\n", (unsigned long long)neo_state_digest(state));
    return 0; /* a longer program would destroy what it created */
}
