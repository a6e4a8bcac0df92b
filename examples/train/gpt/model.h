/* model.h: a GPT: its parameters, its activations, forward and backward of each part.

   tokens -> token + position embedding -> blocks -> layer norm -> token embedding transposed
   -> next token
   block: x += project(attention(norm(x))), x += contract(gelu(expand(norm(x))))               */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H
#include "../board.h"
#include <math.h>

enum { MAX_LAYERS = 64, MAX_BUFFERS = MAX_LAYERS + 48 };
static const float EPS = 1e-5f;

/* Parameters, under the names of GPT-2 in PyTorch; weights are [out][in], as of torch.nn.Linear. */
typedef struct linear { /* y = x w^T + b */
    const neo_param *w, *b;
    int64_t at;     /* where the bf16 copy of w begins in narrow[1], */
    int narrow_bias; /* and behind it that of b, if products write bf16 with it */
} linear;
typedef struct norm { const neo_param *w, *b; } norm;
typedef struct block {
    neo_params *params;
    norm norm_1, norm_2;
    linear qkv, project, expand, contract;
} block;

/* Activations of a block: what its backward needs of its forward, besides its input. Of --products
   bf16, n1, n2 and gelu are bf16, as products alone read them; on a GPU without --exact, qkv and y
   too, the gradients dgelu, dqkv and of y, logits, and z where products compute GELU and its slope.
   Of --residual bf16 middle is, the model's x, and their gradients. */
typedef struct inside {
    neo_tensor stats_1, n1; /* [rows][2], [rows][width]      norm_1(x) */
    neo_tensor qkv;         /* [rows][3 width]               qkv(n1) */
    neo_tensor y, lse;      /* [rows][width], [rows][heads]  attention */
    neo_tensor middle;      /* [rows][width]                 x + project(y) */
    neo_tensor stats_2, n2; /* [rows][2], [rows][width]      norm_2(middle) */
    neo_tensor z, gelu;     /* [rows][4 width]               expand(n2), and GELU of it */
} inside;

typedef struct model {
    neo_ctx *ctx;
    int64_t layers, heads, width, context, vocabulary;
    int products_bf16;                   /* linear layers multiply bf16 */
    neo_activation gelu;                 /* or GELU_TANH */
    int residual_bf16;                   /* x, middle and their gradients are bf16 */
    int recompute;                       /* blocks share one `inside`, and compute it twice */
    int weights_kept;                    /* bf16 copies of all weights, from forward to backward */
    int weights_first;                   /* these are made before the first block */
    int pairs;                           /* a GPU multiplies for two blocks' weights at a time */
    neo_params *root;                    /* parameters outside of blocks */
    const neo_param *tokens, *positions; /* [vocabulary][width], [context][width] */
    norm last;
    block block[MAX_LAYERS];
    inside all, inside[MAX_LAYERS];      /* all: theirs, the last block's first, as neo_fsdp has
                                            gradients: steps between blocks have one sign */
    neo_tensor x[MAX_LAYERS + 1];        /* [rows][width]: inputs of blocks, the last output */
    neo_tensor stats, n;                 /* [rows][2], [rows][width]: the last norm */
    neo_tensor logits;                   /* [rows][vocabulary] or its pitch_of, then their gradient:
                                            see logits_of, slopes */
    neo_tensor wide;                     /* [1][vocabulary]: a row of logits of bf16, for a draw */
    neo_tensor dx, dn, dqkv, dgelu;      /* gradients on their way back; the last two, and of
                                            --residual bf16 dx, of a pair of blocks: see of_pair */
    neo_tensor dmiddle;                  /* of --residual bf16: that of `middle`, where dx has room
                                            for it in place else */
    neo_tensor narrow[3];                /* bf16 copies of x, of a block's weights or the head's,
                                            or of all, the head's first; and of a gradient */
    neo_tensor ids, targets, places;     /* [rows] */
    int64_t *next_ids, *next_targets;    /* [rows] in host memory, for send() */
    float *next_logits;                  /* [vocabulary] in host memory */
    int64_t rows, length;                /* in use now: rows, and rows of each sequence */
    neo_tensor *owned[MAX_BUFFERS];
    int owned_count;
} model;

static neo_status add_param(neo_params *params, const char *prefix, const char *name, int64_t rows,
                            int64_t cols, neo_init init, const neo_param **param) {
    char full[64];
    int64_t shape[2] = {rows, cols};
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return neo_params_add(params, full, cols ? 2 : 1, shape, init, param);
}
static neo_status add_norm(neo_params *params, const char *prefix, int64_t width, norm *to) {
    const neo_init one = {NEO_INIT_CONSTANT, 1, 0}, zero = {NEO_INIT_CONSTANT, 0, 0};
    TRY(add_param(params, prefix, ".weight", width, 0, one, &to->w));
    return add_param(params, prefix, ".bias", width, 0, zero, &to->b);
}
static neo_status add_linear(neo_params *params, const char *prefix, int64_t in, int64_t out,
                             float deviation, linear *to) {
    const neo_init normal = {NEO_INIT_NORMAL, 0, deviation}, zero = {NEO_INIT_CONSTANT, 0, 0};
    TRY(add_param(params, prefix, ".weight", out, in, normal, &to->w));
    return add_param(params, prefix, ".bias", out, 0, zero, &to->b);
}
/* Copies of weights begin at multiples of 16 bytes. */
static int64_t copy_room(const neo_param *w) { return (neo_tensor_count(w->value) + 7) / 8 * 8; }
static int64_t bias_at(const linear *l) { return l->at + copy_room(l->w); }
static int64_t behind(const linear *l) {
    return bias_at(l) + (l->narrow_bias ? copy_room(l->b) : 0);
}
static neo_dtype operand_dtype(const model *m) { return m->products_bf16 ? NEO_BF16 : NEO_F32; }
/* Of what a product and another operation share. */
static neo_dtype shared_dtype(const model *m) {
    return m->products_bf16 ? neo_attention_dtype(m->ctx, m->width / m->heads) : NEO_F32;
}
static neo_dtype residual_dtype(const model *m) { return m->residual_bf16 ? NEO_BF16 : NEO_F32; }
/* Products compute GELU: by tanh, as cuBLASLt has it. */
static int gelu_fused(const model *m) {
    return m->gelu == NEO_ACT_GELU_TANH && shared_dtype(m) == NEO_BF16 && m->width % 8 == 0;
}
static neo_status add_block(model *m, int i) {
    block *b = &m->block[i];
    const int64_t w = m->width;
    const float last = 0.02f / sqrtf(2.0f * (float)m->layers); /* adds to the residual stream */
    char prefix[32];
    TRY(neo_params_create_deferred(m->ctx, &b->params));
#define PREFIX(name) (snprintf(prefix, sizeof prefix, "h.%d." name, i), prefix)
    TRY(add_norm(b->params, PREFIX("ln_1"), w, &b->norm_1));
    TRY(add_linear(b->params, PREFIX("attn.c_attn"), w, 3 * w, 0.02f, &b->qkv));
    TRY(add_linear(b->params, PREFIX("attn.c_proj"), w, w, last, &b->project));
    TRY(add_norm(b->params, PREFIX("ln_2"), w, &b->norm_2));
    TRY(add_linear(b->params, PREFIX("mlp.c_fc"), w, 4 * w, 0.02f, &b->expand));
    TRY(add_linear(b->params, PREFIX("mlp.c_proj"), 4 * w, w, last, &b->contract));
#undef PREFIX
    b->qkv.narrow_bias = shared_dtype(m) == NEO_BF16;
    b->expand.narrow_bias = gelu_fused(m);
    b->project.narrow_bias = b->contract.narrow_bias = m->residual_bf16;
    if (m->weights_kept)
        b->qkv.at = i ? behind(&m->block[i - 1].contract) : copy_room(m->tokens);
    b->project.at = behind(&b->qkv), b->expand.at = behind(&b->project);
    b->contract.at = behind(&b->expand);
    return NEO_OK;
}

typedef struct buffer {
    neo_tensor *t;
    neo_dtype dtype;
    int64_t rows, cols; /* cols: 0 for a vector */
} buffer;
static neo_status add_buffers(model *m, const buffer *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        m->owned[m->owned_count++] = list[i].t;
        TRY(neo_tensor_alloc(m->ctx, list[i].dtype, list[i].cols ? 2 : 1,
                             (int64_t[]){list[i].rows, list[i].cols}, list[i].t));
    }
    return NEO_OK;
}
static neo_status add_insides(model *m, int64_t rows, int count) {
    const int64_t w = m->width, most = rows * count;
    inside *const a = &m->all;
    const neo_dtype x = operand_dtype(m), shared = shared_dtype(m);
    const buffer list[] = {
        {&a->stats_1, NEO_F32, most, 2},      {&a->n1, x, most, w},
        {&a->qkv, shared, most, 3 * w},       {&a->y, shared, most, w},
        {&a->lse, NEO_F32, most, m->heads},   {&a->middle, residual_dtype(m), most, w},
        {&a->stats_2, NEO_F32, most, 2},      {&a->n2, x, most, w},
        {&a->z, gelu_fused(m) ? NEO_BF16 : NEO_F32, most, 4 * w}, {&a->gelu, x, most, 4 * w}};
    TRY(add_buffers(m, list, sizeof list / sizeof *list));
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        for (int i = 0; i < count; i++) {
            char *const to = (char *)&m->inside[i] + ((char *)list[k].t - (char *)a);
            *(neo_tensor *)(void *)to = neo_tensor_rows(*list[k].t, (count - 1 - i) * rows, rows);
        }
    return NEO_OK;
}
/* The rows of a gradient in bf16 begin at multiples of 16 bytes, which a GPU's products want: a
   vocabulary may be odd. */
static int64_t pitch_of(int64_t cols) { return (cols + 7) / 8 * 8; }
static neo_status create_buffers(model *m, int64_t rows) {
    const int64_t w = m->width, widest = m->vocabulary > 4 * w ? m->vocabulary : 4 * w;
    const int64_t pair = m->pairs ? 2 * rows : rows;
    const neo_dtype shared = shared_dtype(m), residual = residual_dtype(m);
    const int64_t gradients = shared == NEO_BF16 ? 4 * w : widest; /* of logits: in their place */
    int64_t weights = widest > 12 * w + 32 ? widest : 12 * w + 32; /* of a block, or head */
    if (m->weights_kept) weights = behind(&m->block[m->layers - 1].contract) / w + 1;
    const buffer list[] = {
        {&m->stats, NEO_F32, rows, 2},       {&m->n, operand_dtype(m), rows, w},
        {&m->dx, residual, m->residual_bf16 ? pair : rows, w}, {&m->dn, residual, rows, w},
        {&m->dqkv, shared, pair, 3 * w},     {&m->dgelu, shared, pair, 4 * w},
        {&m->logits, shared, rows, shared == NEO_BF16 ? pitch_of(m->vocabulary) : m->vocabulary},
        {&m->ids, NEO_I64, rows, 0},         {&m->targets, NEO_I64, rows, 0},
        {&m->places, NEO_I64, rows, 0}};
    const buffer narrow[] = {{&m->narrow[0], NEO_BF16, rows, w},
                             {&m->narrow[1], NEO_BF16, w, weights},
                             {&m->narrow[2], NEO_BF16, rows, pitch_of(gradients)}};
    const buffer wide = {&m->wide, NEO_F32, 1, m->vocabulary};
    TRY(add_insides(m, rows, m->recompute ? 1 : (int)m->layers));
    for (int i = 0; i <= m->layers; i++)
        TRY(add_buffers(m, &(buffer){&m->x[i], residual, rows, w}, 1));
    if (m->residual_bf16) TRY(add_buffers(m, &(buffer){&m->dmiddle, NEO_BF16, pair, w}, 1));
    TRY(add_buffers(m, list, sizeof list / sizeof *list));
    if (m->products_bf16) TRY(add_buffers(m, narrow, 3));
    if (shared == NEO_BF16) TRY(add_buffers(m, &wide, 1));
    m->next_ids = malloc((size_t)rows * sizeof *m->next_ids);
    m->next_targets = calloc((size_t)rows, sizeof *m->next_targets);
    m->next_logits = malloc((size_t)m->vocabulary * sizeof *m->next_logits);
    if (!m->next_ids || !m->next_targets || !m->next_logits) return out_of_memory();
    for (int64_t i = 0; i < rows; i++) m->next_ids[i] = i % m->context;
    return neo_tensor_copy(m->ctx, neo_tensor_1d(m->next_ids, NEO_I64, rows), m->places);
}

/* rows: the most that a piece of a batch has; 0: nothing will be computed. *m has the sizes, and
   zeros. Destroy it also after an error. */
static neo_status create_model(model *m, int64_t rows) {
    const neo_init normal = {NEO_INIT_NORMAL, 0, 0.02f};
    const int64_t w = m->width;
    TRY(neo_params_create_deferred(m->ctx, &m->root));
    TRY(add_param(m->root, "wte", ".weight", m->vocabulary, w, normal, &m->tokens));
    TRY(add_param(m->root, "wpe", ".weight", m->context, w, normal, &m->positions));
    TRY(add_norm(m->root, "ln_f", w, &m->last));
    for (int i = 0; i < m->layers; i++) TRY(add_block(m, i));
    return rows ? create_buffers(m, rows) : NEO_OK;
}
static void destroy_model(model *m) {
    for (int i = 0; i < m->owned_count; i++) neo_tensor_free(m->ctx, m->owned[i]);
    free(m->next_ids);
    free(m->next_targets);
    free(m->next_logits);
    for (int i = 0; i < m->layers; i++) neo_params_destroy(m->block[i].params);
    neo_params_destroy(m->root);
}

/* The rows of a buffer that are in use. */
static neo_tensor used(const model *m, neo_tensor t) { return neo_tensor_rows(t, 0, m->rows); }
/* Makes the first `rows` ids and targets in host memory the input of the model. */
static neo_status send(model *m, int64_t rows) {
    m->rows = rows;
    neo_tensor ids = neo_tensor_1d(m->next_ids, NEO_I64, rows);
    neo_tensor targets = neo_tensor_1d(m->next_targets, NEO_I64, rows);
    TRY(neo_tensor_copy(m->ctx, ids, used(m, m->ids)));
    return neo_tensor_copy(m->ctx, targets, used(m, m->targets));
}
/* q, k or v: column block 0, 1 or 2 of a buffer. */
static neo_tensor third(const model *m, neo_tensor t, int k) {
    return neo_tensor_slice(used(m, t), 1, k * m->width, m->width);
}
static const inside *inside_of(const model *m, int i) { return &m->inside[m->recompute ? 0 : i]; }
static neo_attention_desc attention_of(const model *m) {
    return (neo_attention_desc){.length = m->length, .heads = m->heads, .causal = 1,
                                .dtype = operand_dtype(m)};
}

static neo_status norm_forward(const model *m, const norm *l, neo_tensor x, neo_tensor y,
                               neo_tensor stats) {
    return neo_layer_norm_forward(m->ctx, used(m, x), l->w->value, l->b->value, EPS, used(m, y),
                                  used(m, stats));
}
static neo_status norm_backward(const model *m, const neo_leaves *part, const norm *l, neo_tensor x,
                                neo_tensor stats, neo_tensor dy, neo_tensor dx) {
    return neo_layer_norm_backward(m->ctx, part, used(m, x), l->w->value, used(m, stats),
                                   used(m, dy), used(m, dx), l->w->grad, l->b->grad);
}
/* A buffer that is free, as f32 [rows][width]: it has room for that. */
static neo_tensor as_wide(const model *m, neo_tensor t) {
    t.dtype = NEO_F32, t.shape[1] = t.stride[0] = m->width;
    return used(m, t);
}
/* The place of the bf16 copy of operand k of a product (0: x, 1: weight, 2: gradient). */
static neo_tensor narrow_place(const model *m, int k, const neo_tensor *t) {
    neo_tensor narrow = m->narrow[k];
    memcpy(narrow.shape, t->shape, sizeof narrow.shape);
    narrow.stride[0] = k == 2 ? pitch_of(t->shape[1]) : t->shape[1];
    return narrow;
}
/* Replaces a tensor by its bf16 copy, if products want that and it is not bf16 yet. */
static neo_status narrowed(const model *m, neo_tensor *t, neo_tensor narrow) {
    if (t->dtype == operand_dtype(m)) return NEO_OK;
    TRY(neo_tensor_convert(m->ctx, *t, narrow, NULL));
    *t = narrow;
    return NEO_OK;
}
static neo_status operand(const model *m, int k, neo_tensor *t) {
    return narrowed(m, t, narrow_place(m, k, t));
}
/* The rows of block i of a gradient that waits for that of the other block of its pair. */
static neo_tensor of_pair(const model *m, neo_tensor t, int i) {
    return neo_tensor_rows(t, m->pairs && i % 2 == 0 ? m->rows : 0, m->rows);
}
/* The residual's gradient, at the end of a block or in its middle, as products take it: copies of
   both, of a pair's blocks too, have room in one buffer, so that sums of another one may still be
   under way. */
static neo_tensor residual_at(const model *m, int i, int of_middle) {
    const neo_tensor dx = used(m, m->dx);
    neo_tensor narrow = narrow_place(m, 2, &dx);
    const int64_t before = of_middle + (m->pairs && i % 2 == 0 ? 2 : 0);
    if (m->residual_bf16) return of_pair(m, of_middle ? m->dmiddle : m->dx, i);
    if (m->products_bf16)
        narrow.data = (uint16_t *)narrow.data + before * m->rows * narrow.stride[0];
    return narrow;
}
static neo_status residual_gradient(const model *m, int i, int of_middle, neo_tensor *dx) {
    const neo_tensor at = residual_at(m, i, of_middle);
    *dx = m->residual_bf16 ? at : used(m, m->dx);
    return narrowed(m, dx, at);
}
/* Adds the gradient that m->dn has of a norm's output, once it has gone through the norm, to that
   of the residual stream: of dx by way of `through`, wider and free then; of bf16 from one tensor
   to another. Where it replaces nothing that sums for weights and biases read, a GPU has one launch
   for all of it. */
static neo_status norm_into_residual(const model *m, const neo_leaves *part, int i, const norm *l,
                                     neo_tensor x, neo_tensor stats, neo_tensor through,
                                     int of_middle) {
    const neo_tensor dx = used(m, m->dx), wide = as_wide(m, through);
    const neo_tensor to = of_middle ? residual_at(m, i, 1) : residual_at(m, i - 1, 0);
    TRY(norm_backward(m, part, l, x, stats, m->dn, m->residual_bf16 ? to : wide));
    if (!m->residual_bf16) return neo_add(m->ctx, dx, wide);
    return neo_add(m->ctx, to, residual_at(m, i, !of_middle));
}
static neo_tensor logits_of(const model *m) {
    return neo_tensor_slice(used(m, m->logits), 1, 0, m->vocabulary);
}
/* The gradient of logits, as products take it; in place where these are as products take them. */
static neo_tensor slopes(const model *m) {
    const neo_tensor logits = logits_of(m);
    return logits.dtype == operand_dtype(m) ? logits : narrow_place(m, 2, &logits);
}
static neo_status product_forward(const model *m, neo_tensor x, neo_tensor w, neo_tensor bias,
                                  neo_tensor y) {
    TRY(operand(m, 0, &x));
    TRY(operand(m, 1, &w));
    return neo_linear_forward(m->ctx, x, w, bias, NEO_ACT_NONE, y);
}
static neo_status product_backward(const model *m, const neo_leaves *part, neo_tensor x,
                                   neo_tensor w, neo_tensor dy, neo_tensor dx, neo_tensor dw,
                                   neo_tensor dbias) {
    TRY(operand(m, 0, &x));
    TRY(operand(m, 1, &w));
    TRY(operand(m, 2, &dy));
    return neo_linear_backward(m->ctx, part, x, w, dy, dx, dw, dbias);
}
/* A block's weight as products take it, and all of them: copies that follow each other are one
   launch. */
static neo_tensor weight_of(const model *m, const linear *l) {
    neo_tensor w = l->w->value, narrow = narrow_place(m, 1, &w);
    if (w.dtype == operand_dtype(m)) return w;
    narrow.data = (uint16_t *)narrow.data + l->at;
    return narrow;
}
static neo_tensor bias_of(const model *m, const linear *l) {
    neo_tensor narrow = m->narrow[1];
    if (!l->narrow_bias) return l->b->value;
    narrow.data = (uint16_t *)narrow.data + bias_at(l);
    narrow.ndim = 1, narrow.shape[0] = neo_tensor_count(l->b->value), narrow.stride[0] = 1;
    return narrow;
}
static neo_status take_head(const model *m, neo_tensor *w) {
    *w = m->tokens->value;
    return operand(m, 1, w);
}
static neo_status take_weights(const model *m, const block *b) {
    const linear *const all[4] = {&b->qkv, &b->project, &b->expand, &b->contract};
    for (int i = 0; i < 4; i++) {
        const neo_tensor from = all[i]->w->value, to = weight_of(m, all[i]);
        if (to.data != from.data) TRY(neo_tensor_convert(m->ctx, from, to, NULL));
        if (all[i]->narrow_bias)
            TRY(neo_tensor_convert(m->ctx, all[i]->b->value, bias_of(m, all[i]), NULL));
    }
    return NEO_OK;
}
static neo_status linear_forward(const model *m, const linear *l, neo_tensor x, neo_tensor y) {
    return product_forward(m, used(m, x), weight_of(m, l), bias_of(m, l), used(m, y));
}
static neo_tensor weight_grad_now(const model *m, const linear *l) {
    return m->pairs ? neo_tensor_none() : l->w->grad;
}
static neo_status linear_backward(const model *m, const neo_leaves *part, const linear *l,
                                  neo_tensor x, neo_tensor dy, neo_tensor dx) {
    return product_backward(m, part, used(m, x), weight_of(m, l), used(m, dy), used(m, dx),
                            weight_grad_now(m, l), l->b->grad);
}
/* The same in two parts, where a gradient stays where it is until a norm's backward: a GPU then has
   one launch for that and the sums for the bias. */
static int bias_now(const model *m) { return shared_dtype(m) != NEO_BF16; }
static neo_status linear_backward_but_bias(const model *m, const neo_leaves *part, const linear *l,
                                           neo_tensor x, neo_tensor dy, neo_tensor dx) {
    return product_backward(m, part, used(m, x), weight_of(m, l), used(m, dy), used(m, dx),
                            weight_grad_now(m, l), bias_now(m) ? l->b->grad : neo_tensor_none());
}
static neo_status bias_backward(const model *m, const neo_leaves *part, const linear *l,
                                neo_tensor x, neo_tensor dy) {
    const neo_tensor none = neo_tensor_none();
    if (bias_now(m)) return NEO_OK;
    return product_backward(m, part, used(m, x), weight_of(m, l), used(m, dy), none, none,
                            l->b->grad);
}

/* gelu = GELU(expand(n2)), and back: *dz is the gradient of z, by that of contract's output. */
static neo_status gelu_forward(const model *m, const linear *expand, const inside *a) {
    const neo_tensor z = used(m, a->z), gelu = used(m, a->gelu);
    if (gelu_fused(m))
        return neo_linear_act_forward(m->ctx, used(m, a->n2), weight_of(m, expand),
                                      bias_of(m, expand), m->gelu, z, gelu);
    TRY(linear_forward(m, expand, a->n2, a->z));
    return neo_activation_forward(m->ctx, m->gelu, z, gelu);
}
static neo_status gelu_backward(const model *m, const neo_leaves *part, const linear *contract,
                                const inside *a, neo_tensor dgelu, neo_tensor dx, neo_tensor *dz) {
    const neo_tensor none = neo_tensor_none(), z = used(m, a->z);
    const neo_tensor narrow = narrow_place(m, 2, &dgelu);
    *dz = dgelu;
    if (gelu_fused(m)) {
        const neo_tensor w = weight_of(m, contract);
        TRY(neo_linear_act_backward(m->ctx, dx, w, m->gelu, z, dgelu));
        if (m->pairs) return NEO_OK;
        return product_backward(m, part, used(m, a->gelu), w, dx, none, contract->w->grad, none);
    }
    if (m->products_bf16 && dgelu.dtype == NEO_F32 && neo_tensor_is_contiguous(narrow))
        *dz = narrow; /* contiguous: not of an odd width */
    TRY(linear_backward_but_bias(m, part, contract, a->gelu, dx, dgelu));
    return neo_activation_backward(m->ctx, m->gelu, z, none, dgelu, *dz);
}

/* again: for the backward, which does not need the output. */
static neo_status block_forward(const model *m, int i, int again) {
    const block *b = &m->block[i];
    const inside *a = inside_of(m, i);
    const neo_attention_desc attention = attention_of(m);
    neo_tensor x = m->x[i], out = m->x[i + 1];
    TRY(norm_forward(m, &b->norm_1, x, a->n1, a->stats_1));
    if (!m->weights_first) TRY(take_weights(m, b));
    TRY(linear_forward(m, &b->qkv, a->n1, a->qkv));
    TRY(neo_attention_forward(m->ctx, &attention, third(m, a->qkv, 0), third(m, a->qkv, 1),
                              third(m, a->qkv, 2), used(m, a->y), used(m, a->lse)));
    TRY(linear_forward(m, &b->project, a->y, a->middle));
    TRY(neo_add(m->ctx, used(m, a->middle), used(m, x)));

    TRY(norm_forward(m, &b->norm_2, a->middle, a->n2, a->stats_2));
    TRY(gelu_forward(m, &b->expand, a));
    if (again) return NEO_OK;
    TRY(linear_forward(m, &b->contract, a->gelu, out));
    return neo_add(m->ctx, used(m, out), used(m, a->middle));
}
/* Gradients of the weights of a pair of blocks, where both have those of their products' outputs:
   of two products that are alike and follow each other a GPU makes one. */
static neo_status weights_backward(const model *m, const neo_leaves *part, int i) {
    const neo_tensor none = neo_tensor_none();
    if (!m->pairs || i % 2) return NEO_OK;
    for (int k = 0; k < 4; k++)
        for (int j = i; j < i + 2 && j < m->layers; j++) {
            const block *b = &m->block[j];
            const inside *a = &m->inside[j];
            const linear *const of[4] = {&b->contract, &b->expand, &b->project, &b->qkv};
            const neo_tensor x[4] = {a->gelu, a->n2, a->y, a->n1};
            const neo_tensor dy[4] = {residual_at(m, j, 0), of_pair(m, m->dgelu, j),
                                      residual_at(m, j, 1), of_pair(m, m->dqkv, j)};
            TRY(product_backward(m, part, used(m, x[k]), weight_of(m, of[k]), dy[k], none,
                                 of[k]->w->grad, none));
        }
    return NEO_OK;
}
/* m->dx: the gradient of the block's output, then of its input. */
static neo_status block_backward(const model *m, const neo_leaves *part, int i) {
    const block *b = &m->block[i];
    const inside *a = inside_of(m, i);
    const neo_attention_desc attention = attention_of(m);
    const neo_tensor dn = used(m, m->dn), dqkv = of_pair(m, m->dqkv, i);
    const neo_tensor dy = shared_dtype(m) == NEO_BF16 ? narrow_place(m, 0, &dn) : dn;
    neo_tensor dz, dx;
    /* At once: a GPU's kernel that summed it writes that copy, too. */
    TRY(residual_gradient(m, i, 0, &dx));
    if (!m->weights_kept) TRY(m->recompute ? block_forward(m, i, 1) : take_weights(m, b));
    TRY(gelu_backward(m, part, &b->contract, a, of_pair(m, m->dgelu, i), dx, &dz));
    TRY(linear_backward(m, part, &b->expand, a->n2, dz, m->dn));
    TRY(bias_backward(m, part, &b->contract, a->gelu, dx));
    TRY(norm_into_residual(m, part, i, &b->norm_2, a->middle, a->stats_2, a->z, 1));

    TRY(residual_gradient(m, i, 1, &dx));
    TRY(linear_backward_but_bias(m, part, &b->project, a->y, dx, dy));
    TRY(neo_attention_backward(m->ctx, &attention, third(m, a->qkv, 0), third(m, a->qkv, 1),
                               third(m, a->qkv, 2), used(m, a->y), used(m, a->lse), dy,
                               third(m, dqkv, 0), third(m, dqkv, 1), third(m, dqkv, 2)));
    TRY(weights_backward(m, part, i));
    TRY(linear_backward(m, part, &b->qkv, a->n1, dqkv, m->dn));
    TRY(bias_backward(m, part, &b->project, a->y, dx));
    return norm_into_residual(m, part, i, &b->norm_1, m->x[i], a->stats_1, a->z, 0);
}

static neo_status embed_forward(const model *m) {
    const neo_tensor out = used(m, m->x[0]); /* gradients are free here */
    const neo_tensor x = m->residual_bf16 ? as_wide(m, m->dqkv) : out, p = as_wide(m, m->dgelu);
    TRY(neo_embedding_forward(m->ctx, used(m, m->ids), m->tokens->value, x));
    TRY(neo_embedding_forward(m->ctx, used(m, m->places), m->positions->value, p));
    TRY(neo_add(m->ctx, x, p));
    return m->residual_bf16 ? neo_tensor_convert(m->ctx, x, out, NULL) : NEO_OK;
}
static neo_status head_forward(const model *m) {
    neo_tensor w = narrow_place(m, 1, &m->tokens->value);
    TRY(norm_forward(m, &m->last, m->x[m->layers], m->n, m->stats));
    if (!m->weights_first) TRY(take_head(m, &w));
    return product_forward(m, used(m, m->n), w, neo_tensor_none(), logits_of(m));
}
/* The token table is the head's weight too: its gradient is written here, and embed_backward adds
   to it. */
static neo_status head_backward(const model *m, const neo_leaves *part) {
    neo_tensor w = m->tokens->value;
    if (m->weights_kept) w = narrow_place(m, 1, &w);
    TRY(product_backward(m, part, used(m, m->n), w, slopes(m), used(m, m->dn), m->tokens->grad,
                         neo_tensor_none()));
    return norm_backward(m, part, &m->last, m->x[m->layers], m->stats, m->dn,
                         m->residual_bf16 ? residual_at(m, (int)m->layers - 1, 0) : m->dx);
}
/* Row t of each sequence adds to that of position t: of sequences as rows, a bias's gradient. */
static neo_status positions_backward(const model *m, const neo_leaves *part, neo_tensor dx) {
    const neo_tensor none = neo_tensor_none();
    const int64_t cols = m->context * m->width, count = m->rows / m->context;
    neo_leaves sequences = *part;
    neo_tensor dz = dx, grad = m->positions->grad, table = m->positions->value, column;
    sequences.rows_per_sample = 1;
    dz.shape[0] = count, dz.shape[1] = dz.stride[0] = cols;
    grad.ndim = 1, grad.shape[0] = table.shape[0] = cols;
    grad.stride[0] = table.shape[1] = table.stride[0] = 1;
    column = neo_tensor_slice(dz, 1, 0, 1);
    return neo_linear_backward(m->ctx, &sequences, column, table, dz, none, none, grad);
}
static neo_status embed_backward(const model *m, const neo_leaves *part) {
    neo_tensor dx = used(m, m->dx), ids = used(m, m->ids);
    if (m->residual_bf16) {
        const neo_tensor wide = as_wide(m, m->dqkv);
        TRY(neo_tensor_convert(m->ctx, dx, wide, NULL));
        dx = wide;
    }
    TRY(positions_backward(m, part, dx));
    return neo_embedding_backward(m->ctx, part, ids, dx, m->tokens->grad, 1);
}

#endif
