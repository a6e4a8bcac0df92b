/* gpt_model.h: a GPT-2 of neo's layers: norms before, learned positions, GELU by erf, and an output
   layer whose weight is the token embedding's. Written to be read.

   In the shapes below rows = samples x LENGTH: the positions of all sequences of a batch, or of a
   part of one, in order. What backward needs of forward stays in the model's buffers. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "neo_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct gpt_desc {
    int64_t vocabulary, width, heads, length, layers;
    int64_t max_samples; /* of a batch, or of a part of one */
} gpt_desc;
enum { GPT_MAX_LAYERS = 8 };

/* y = x w^T + b */
typedef struct gpt_linear {
    const neo_param *w, *b;
} gpt_linear;
typedef struct gpt_norm {
    const neo_param *w, *b;
    neo_tensor stats; /* [rows][2] */
} gpt_norm;
typedef struct gpt_block {
    gpt_norm norm_1, norm_2;
    gpt_linear qkv, project, expand, contract;
    neo_tensor in;       /* [rows][width]; of the first block: the embeddings */
    neo_tensor n1;       /* [rows][width]    norm_1(in) */
    neo_tensor qkvs;     /* [rows][3 width]  qkv(n1) */
    neo_tensor y, lse;   /* [rows][width], [rows][heads]  attention */
    neo_tensor middle;   /* [rows][width]    in + project(y) */
    neo_tensor n2;       /* [rows][width]    norm_2(middle) */
    neo_tensor z, gelu;  /* [rows][4 width]  expand(n2), and GELU of it */
} gpt_block;
typedef struct gpt {
    neo_ctx *ctx;
    gpt_desc desc;
    const neo_param *tokens, *positions; /* [vocabulary][width], [length][width] */
    gpt_block block[GPT_MAX_LAYERS];
    gpt_norm norm;
    neo_tensor out, n;    /* [rows][width]       the last block's, norm(out) */
    neo_tensor logits;    /* [rows][vocabulary]; then their gradient */
    neo_tensor dx, dn;    /* [rows][width]       gradients on the way back */
    neo_tensor dqkvs;     /* [rows][3 width] */
    neo_tensor dgelu;     /* [rows][4 width] */
    neo_tensor place;     /* i32 [rows]: 0 .. length - 1 for each sequence */
    int64_t rows;         /* of the last forward */
    int by_tanh; /* GELU is, set after gpt_create */
} gpt;
static inline neo_activation gpt_gelu(const gpt *m) {
    return m->by_tanh ? NEO_ACT_GELU_TANH : NEO_ACT_GELU;
}

#define GPT_TRY(call)                                                                              \
    do {                                                                                           \
        neo_status gpt_status = (call);                                                            \
        if (gpt_status != NEO_OK) return gpt_status;                                               \
    } while (0)
#define GPT_EPS 1e-5f

/* ---- parameters, under the names of GPT-2 in PyTorch ---- */
static neo_status gpt_add(neo_params *params, const char *prefix, const char *name, int64_t rows,
                          int64_t cols, neo_init init, const neo_param **param) {
    char full[64];
    int64_t shape[2] = {rows, cols};
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return neo_params_add(params, full, cols ? 2 : 1, shape, init, param);
}
static neo_status gpt_add_norm(neo_params *params, const char *prefix, const char *name,
                               int64_t width, gpt_norm *norm) {
    char full[48];
    neo_init zero = {NEO_INIT_CONSTANT, 0, 0}, one = {NEO_INIT_CONSTANT, 1, 0};
    snprintf(full, sizeof full, "%s%s", prefix, name);
    GPT_TRY(gpt_add(params, full, ".weight", width, 0, one, &norm->w));
    return gpt_add(params, full, ".bias", width, 0, zero, &norm->b);
}
static neo_status gpt_add_linear(neo_params *params, const char *prefix, const char *name,
                                 int64_t in, int64_t out, float deviation, gpt_linear *linear) {
    char full[48];
    neo_init zero = {NEO_INIT_CONSTANT, 0, 0}, normal = {NEO_INIT_NORMAL, 0, deviation};
    snprintf(full, sizeof full, "%s%s", prefix, name);
    GPT_TRY(gpt_add(params, full, ".weight", out, in, normal, &linear->w));
    return gpt_add(params, full, ".bias", out, 0, zero, &linear->b);
}
static neo_status gpt_add_params(gpt *m, neo_params *params) {
    const gpt_desc *d = &m->desc;
    const int64_t width = d->width;
    const float last =
        0.02f / sqrtf(2.0f * (float)d->layers); /* of what adds to the residual stream */
    neo_init normal = {NEO_INIT_NORMAL, 0, 0.02f};
    GPT_TRY(gpt_add(params, "wte", ".weight", d->vocabulary, width, normal, &m->tokens));
    GPT_TRY(gpt_add(params, "wpe", ".weight", d->length, width, normal, &m->positions));
    for (int i = 0; i < d->layers; i++) {
        gpt_block *b = &m->block[i];
        char p[32];
        snprintf(p, sizeof p, "h.%d.", i);
        GPT_TRY(gpt_add_norm(params, p, "ln_1", width, &b->norm_1));
        GPT_TRY(gpt_add_linear(params, p, "attn.c_attn", width, 3 * width, 0.02f, &b->qkv));
        GPT_TRY(gpt_add_linear(params, p, "attn.c_proj", width, width, last, &b->project));
        GPT_TRY(gpt_add_norm(params, p, "ln_2", width, &b->norm_2));
        GPT_TRY(gpt_add_linear(params, p, "mlp.c_fc", width, 4 * width, 0.02f, &b->expand));
        GPT_TRY(gpt_add_linear(params, p, "mlp.c_proj", 4 * width, width, last, &b->contract));
    }
    return gpt_add_norm(params, "", "ln_f", width, &m->norm);
}

/* ---- buffers ---- */
typedef struct gpt_buffer {
    neo_tensor *t;
    int64_t cols;
} gpt_buffer;
enum { GPT_BUFFERS = 11 * GPT_MAX_LAYERS + 8 };
/* All of them, with their columns. */
static int gpt_buffers(gpt *m, gpt_buffer list[GPT_BUFFERS]) {
    const int64_t width = m->desc.width;
    int n = 0;
#define GPT_BUFFER(tensor, columns) list[n].t = &(tensor), list[n++].cols = (columns)
    for (int i = 0; i < m->desc.layers; i++) {
        gpt_block *b = &m->block[i];
        GPT_BUFFER(b->norm_1.stats, 2), GPT_BUFFER(b->norm_2.stats, 2);
        GPT_BUFFER(b->in, width), GPT_BUFFER(b->n1, width), GPT_BUFFER(b->qkvs, 3 * width);
        GPT_BUFFER(b->y, width), GPT_BUFFER(b->lse, m->desc.heads), GPT_BUFFER(b->middle, width);
        GPT_BUFFER(b->n2, width), GPT_BUFFER(b->z, 4 * width), GPT_BUFFER(b->gelu, 4 * width);
    }
    GPT_BUFFER(m->norm.stats, 2), GPT_BUFFER(m->out, width), GPT_BUFFER(m->n, width);
    GPT_BUFFER(m->logits, m->desc.vocabulary), GPT_BUFFER(m->dx, width), GPT_BUFFER(m->dn, width);
    GPT_BUFFER(m->dqkvs, 3 * width), GPT_BUFFER(m->dgelu, 4 * width);
#undef GPT_BUFFER
    return n;
}
static void gpt_destroy(gpt *m) {
    gpt_buffer list[GPT_BUFFERS];
    const int count = gpt_buffers(m, list);
    for (int i = 0; i < count; i++) neo_tensor_free(m->ctx, list[i].t);
    neo_tensor_free(m->ctx, &m->place);
}
/* gpt_create: parameters go to params. Zero m before; destroy it also when this fails. */
static neo_status gpt_create(neo_ctx *ctx, neo_params *params, const gpt_desc *desc, gpt *m) {
    gpt_buffer list[GPT_BUFFERS];
    m->ctx = ctx;
    m->desc = *desc;
    GPT_TRY(gpt_add_params(m, params));
    const int count = gpt_buffers(m, list);
    const int64_t rows = desc->max_samples * desc->length;
    for (int i = 0; i < count; i++) {
        const int64_t shape[2] = {rows, list[i].cols};
        GPT_TRY(neo_tensor_alloc(ctx, NEO_F32, 2, shape, list[i].t));
    }
    GPT_TRY(neo_tensor_alloc(ctx, NEO_I32, 1, &rows, &m->place));
    for (int64_t i = 0; i < rows; i++) ((int32_t *)m->place.data)[i] = (int32_t)(i % desc->length);
    return NEO_OK;
}

/* ---- forward ---- */
/* The rows of a buffer that the running batch uses. */
static neo_tensor gpt_rows(const gpt *m, neo_tensor t) { return neo_tensor_rows(t, 0, m->rows); }
/* Part 0, 1, 2 of q, k, v side by side, or of their gradients. */
static neo_tensor gpt_third(const gpt *m, neo_tensor t, int part) {
    return neo_tensor_slice(gpt_rows(m, t), 1, part * m->desc.width, m->desc.width);
}
static neo_attention_desc gpt_attention(const gpt *m) {
    neo_attention_desc d;
    memset(&d, 0, sizeof d);
    d.length = m->desc.length;
    d.heads = m->desc.heads;
    d.causal = 1;
    return d;
}
static neo_status gpt_norm_forward(gpt *m, gpt_norm *norm, neo_tensor x, neo_tensor y) {
    return neo_layer_norm_forward(m->ctx, gpt_rows(m, x), norm->w->value, norm->b->value, GPT_EPS,
                                  gpt_rows(m, y), gpt_rows(m, norm->stats));
}
static neo_status gpt_linear_forward(gpt *m, const gpt_linear *l, neo_tensor x, neo_tensor y) {
    return neo_linear_forward(m->ctx, gpt_rows(m, x), l->w->value, l->b->value, NEO_ACT_NONE,
                              gpt_rows(m, y));
}
/* out = middle + mlp(norm_2(middle)), middle = in + attention(norm_1(in)) */
static neo_status gpt_block_forward(gpt *m, gpt_block *b, neo_tensor out) {
    const neo_attention_desc attention = gpt_attention(m);
    GPT_TRY(gpt_norm_forward(m, &b->norm_1, b->in, b->n1));
    GPT_TRY(gpt_linear_forward(m, &b->qkv, b->n1, b->qkvs));
    GPT_TRY(neo_attention_forward(m->ctx, &attention, gpt_third(m, b->qkvs, 0),
                                  gpt_third(m, b->qkvs, 1), gpt_third(m, b->qkvs, 2),
                                  gpt_rows(m, b->y), gpt_rows(m, b->lse)));
    GPT_TRY(gpt_linear_forward(m, &b->project, b->y, b->middle));
    GPT_TRY(neo_add(m->ctx, gpt_rows(m, b->middle), gpt_rows(m, b->in)));

    GPT_TRY(gpt_norm_forward(m, &b->norm_2, b->middle, b->n2));
    GPT_TRY(gpt_linear_forward(m, &b->expand, b->n2, b->z));
    GPT_TRY(neo_activation_forward(m->ctx, gpt_gelu(m), gpt_rows(m, b->z), gpt_rows(m, b->gelu)));
    GPT_TRY(gpt_linear_forward(m, &b->contract, b->gelu, out));
    return neo_add(m->ctx, gpt_rows(m, out), gpt_rows(m, b->middle));
}
/* gpt_forward: m->logits of the sequences in ids, i64 [samples length]. */
static neo_status gpt_forward(gpt *m, neo_tensor ids) {
    m->rows = ids.shape[0];
    neo_tensor x = gpt_rows(m, m->block[0].in), p = gpt_rows(m, m->n); /* n is not in use yet */
    GPT_TRY(neo_embedding_forward(m->ctx, ids, m->tokens->value, x));
    GPT_TRY(neo_embedding_forward(m->ctx, gpt_rows(m, m->place), m->positions->value, p));
    GPT_TRY(neo_add(m->ctx, x, p));
    for (int i = 0; i < m->desc.layers; i++)
        GPT_TRY(gpt_block_forward(m, &m->block[i],
                                  i + 1 < m->desc.layers ? m->block[i + 1].in : m->out));
    GPT_TRY(gpt_norm_forward(m, &m->norm, m->out, m->n));
    return neo_linear_forward(m->ctx, gpt_rows(m, m->n), m->tokens->value, neo_tensor_none(),
                              NEO_ACT_NONE, gpt_rows(m, m->logits));
}
/* gpt_loss: the mean cross entropy over all `positions` of the whole batch, of which these rows may
   be a part; targets i64 [rows]. *sum gets the losses added. Puts the gradient in place of the
   logits. */
static neo_status gpt_loss(gpt *m, neo_tensor targets, int64_t positions, neo_exact *sum) {
    neo_loss_desc d;
    memset(&d, 0, sizeof d);
    d.batch = positions;
    d.sum = sum;
    return neo_cross_entropy(m->ctx, &d, gpt_rows(m, m->logits), targets, gpt_rows(m, m->logits),
                             NULL);
}

/* ---- backward: dx is the gradient of what a layer gives, then of what it took ---- */
static neo_status gpt_norm_backward(gpt *m, const neo_leaves *leaves, gpt_norm *norm, neo_tensor x,
                                    neo_tensor dx) {
    return neo_layer_norm_backward(m->ctx, leaves, gpt_rows(m, x), norm->w->value,
                                   gpt_rows(m, norm->stats), gpt_rows(m, dx), gpt_rows(m, dx),
                                   norm->w->grad, norm->b->grad);
}
static neo_status gpt_linear_backward(gpt *m, const neo_leaves *leaves, const gpt_linear *l,
                                      neo_tensor x, neo_tensor dy, neo_tensor dx) {
    return neo_linear_backward(m->ctx, leaves, gpt_rows(m, x), l->w->value, gpt_rows(m, dy),
                               gpt_rows(m, dx), l->w->grad, l->b->grad);
}
static neo_status gpt_block_backward(gpt *m, const neo_leaves *leaves, gpt_block *b) {
    const neo_attention_desc attention = gpt_attention(m);
    neo_tensor dz = gpt_rows(m, m->dgelu);
    GPT_TRY(gpt_linear_backward(m, leaves, &b->contract, b->gelu, m->dx, m->dgelu));
    GPT_TRY(neo_activation_backward(m->ctx, gpt_gelu(m), gpt_rows(m, b->z), neo_tensor_none(), dz,
                                    dz));
    GPT_TRY(gpt_linear_backward(m, leaves, &b->expand, b->n2, m->dgelu, m->dn));
    GPT_TRY(gpt_norm_backward(m, leaves, &b->norm_2, b->middle, m->dn));
    GPT_TRY(neo_add(m->ctx, gpt_rows(m, m->dx), gpt_rows(m, m->dn)));

    GPT_TRY(gpt_linear_backward(m, leaves, &b->project, b->y, m->dx, m->dn));
    GPT_TRY(neo_attention_backward(
        m->ctx, &attention, gpt_third(m, b->qkvs, 0), gpt_third(m, b->qkvs, 1),
        gpt_third(m, b->qkvs, 2), gpt_rows(m, b->y), gpt_rows(m, b->lse), gpt_rows(m, m->dn),
        gpt_third(m, m->dqkvs, 0), gpt_third(m, m->dqkvs, 1), gpt_third(m, m->dqkvs, 2)));
    GPT_TRY(gpt_linear_backward(m, leaves, &b->qkv, b->n1, m->dqkvs, m->dn));
    GPT_TRY(gpt_norm_backward(m, leaves, &b->norm_1, b->in, m->dn));
    return neo_add(m->ctx, gpt_rows(m, m->dx), gpt_rows(m, m->dn));
}
/* gpt_backward: the gradients of all parameters, after gpt_forward and gpt_loss of the same ids.
   leaves: one leaf, with rows_per_sample the length: the token embedding's gradient comes from two
   places, which add here, so that the sum over leaves has to come after. */
static neo_status gpt_backward(gpt *m, const neo_leaves *leaves, neo_tensor ids) {
    neo_tensor dlogits = gpt_rows(m, m->logits), dx = gpt_rows(m, m->dx);
    GPT_TRY(neo_linear_backward(m->ctx, leaves, gpt_rows(m, m->n), m->tokens->value, dlogits, dx,
                                m->tokens->grad, neo_tensor_none()));
    GPT_TRY(gpt_norm_backward(m, leaves, &m->norm, m->out, m->dx));
    for (int64_t i = m->desc.layers - 1; i >= 0; i--)
        GPT_TRY(gpt_block_backward(m, leaves, &m->block[i]));
    GPT_TRY(
        neo_embedding_backward(m->ctx, leaves, gpt_rows(m, m->place), dx, m->positions->grad, 0));
    return neo_embedding_backward(m->ctx, leaves, ids, dx, m->tokens->grad, 1);
}

#endif
