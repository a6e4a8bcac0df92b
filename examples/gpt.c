/* gpt.c: train a small GPT on a text, character by character, its parameters sharded over one rank or many.

     cc -O2 -I. examples/gpt.c -o gpt -lm -lpthread && ./gpt --help                         ranks are threads
     mpicc -DNEO_COMM_MPI -O2 -I. examples/gpt.c -o gpt_mpi -lm -lpthread && mpirun -n 4 ./gpt_mpi ...

   characters -> token + position embedding -> blocks -> layer norm -> token embedding transposed -> next character
   block: x += project(attention(norm(x))), x += contract(gelu(expand(norm(x))))

   Without arguments it trains 4 blocks of width 128 on examples/data/shakespeare for 2,000 steps, as nanoGPT's
   recipe for a CPU does; expect a validation loss of about 1.80. The differences: biases; AdamW's decay takes all
   parameters (neo_optim has one for all), not matrices alone; a learning rate of 0.002, not 0.001 (with
   --lr 0.001: 1.90, and 1.88 with --weight-decay 0 besides).

   neo_fsdp holds the parameters (--shard): a block's are whole in memory only while it computes, its gradients
   until they are summed over the ranks. The model and the trainer are the two sections that come first; the rest is
   text, options, checkpoints and printing.

   With the same options and text the last line, `state <digest of all weights and optimizer state>`, is the
   same on any number of threads, any instruction set, for a run that was killed and resumed, and, with
   --repro-shards given, on any number of ranks, however they shard. */
#define NEO_IMPLEMENTATION
#include "neo_fsdp.h"
#include "device.h"
#include <math.h>
#include <pthread.h>
#include <stdarg.h>

#if defined(_WIN32)
#include <direct.h>
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#define make_directory(path) (void)_mkdir(path)
#else
#include <sys/stat.h>
#include <unistd.h>
#define make_directory(path) (void)mkdir(path, 0777)
#endif

#define TRY(call)                                                                                  \
    do {                                                                                           \
        neo_status try_status = (call);                                                            \
        if (try_status != NEO_OK) return try_status;                                               \
    } while (0)
/* What the user can put right. */
#define REFUSE(...) return neo_fail(NEO_ERR_ARG, __VA_ARGS__)

/* ---- model ------------------------------------------------------------------------------------ */

enum { MAX_LAYERS = 64, MAX_BUFFERS = 11 * MAX_LAYERS + 32 };
static const float EPS = 1e-5f;

/* Parameters, under the names of GPT-2 in PyTorch; weights are [out][in], as of torch.nn.Linear. */
typedef struct linear { const neo_param *w, *b; } linear; /* y = x w^T + b */
typedef struct norm { const neo_param *w, *b; } norm;
typedef struct block {
    neo_params *params;
    norm norm_1, norm_2;
    linear qkv, project, expand, contract;
} block;

/* What the backward of a block needs of its forward, besides its input. */
typedef struct inside {
    neo_tensor stats_1, n1;      /* [rows][2], [rows][width]      norm_1(x) */
    neo_tensor qkv;              /* [rows][3 width]               qkv(n1) */
    neo_tensor y, lse;           /* [rows][width], [rows][heads]  attention */
    neo_tensor middle;           /* [rows][width]                 x + project(y) */
    neo_tensor stats_2, n2;      /* [rows][2], [rows][width]      norm_2(middle) */
    neo_tensor z, gelu;          /* [rows][4 width]               expand(n2), and GELU of it */
} inside;

typedef struct model {
    neo_ctx *ctx;
    int64_t layers, heads, width, context, vocabulary;
    int products_bf16;                   /* linear layers multiply bf16, */
    neo_tensor narrow[3];                /* which x, weight and gradient are rounded to */
    int recompute;                       /* blocks share one `inside`, made again in the backward */
    neo_params *root;                    /* what is outside of blocks */
    const neo_param *tokens, *positions; /* [vocabulary][width], [context][width] */
    norm last;
    block block[MAX_LAYERS];
    inside inside[MAX_LAYERS];
    neo_tensor x[MAX_LAYERS + 1];        /* [rows][width]: what goes into each block; what comes out of the last */
    neo_tensor stats, n, logits;         /* [rows][2], [rows][width], [rows][vocabulary]; the logits become their gradient */
    neo_tensor dx, dn, dqkv, dgelu;      /* gradients on their way back */
    neo_tensor ids, targets, places;     /* [rows] */
    int64_t *next_ids, *next_targets;    /* [rows] in host memory: what goes there, by send() */
    float *next_logits;                  /* [vocabulary] */
    int64_t rows, length;                /* of the sequences in it now: rows together, of length each */
    neo_tensor *owned[MAX_BUFFERS];
    int owned_count;
} model;

static neo_status add_param(neo_params *params, const char *prefix, const char *name, int64_t rows, int64_t cols,
                            neo_init init, const neo_param **param) {
    char full[64];
    int64_t shape[2] = {rows, cols};
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return neo_params_add(params, full, cols ? 2 : 1, shape, init, param);
}
static neo_status add_norm(neo_params *params, const char *prefix, int64_t width, norm *to) {
    TRY(add_param(params, prefix, ".weight", width, 0, (neo_init){NEO_INIT_CONSTANT, 1, 0}, &to->w));
    return add_param(params, prefix, ".bias", width, 0, (neo_init){NEO_INIT_CONSTANT, 0, 0}, &to->b);
}
static neo_status add_linear(neo_params *params, const char *prefix, int64_t in, int64_t out, float deviation,
                             linear *to) {
    TRY(add_param(params, prefix, ".weight", out, in, (neo_init){NEO_INIT_NORMAL, 0, deviation}, &to->w));
    return add_param(params, prefix, ".bias", out, 0, (neo_init){NEO_INIT_CONSTANT, 0, 0}, &to->b);
}
static neo_status add_block(model *m, int i) {
    block *b = &m->block[i];
    const int64_t w = m->width;
    const float last = 0.02f / sqrtf(2.0f * (float)m->layers); /* of what adds to the residual stream */
    char prefix[32];
    TRY(neo_params_create_deferred(m->ctx, &b->params));
#define PREFIX(name) (snprintf(prefix, sizeof prefix, "h.%d." name, i), prefix)
    TRY(add_norm(b->params, PREFIX("ln_1"), w, &b->norm_1));
    TRY(add_linear(b->params, PREFIX("attn.c_attn"), w, 3 * w, 0.02f, &b->qkv));
    TRY(add_linear(b->params, PREFIX("attn.c_proj"), w, w, last, &b->project));
    TRY(add_norm(b->params, PREFIX("ln_2"), w, &b->norm_2));
    TRY(add_linear(b->params, PREFIX("mlp.c_fc"), w, 4 * w, 0.02f, &b->expand));
    return add_linear(b->params, PREFIX("mlp.c_proj"), 4 * w, w, last, &b->contract);
#undef PREFIX
}

static neo_status add_buffer(model *m, neo_dtype dtype, int64_t rows, int64_t cols, neo_tensor *t) {
    int64_t shape[2] = {rows, cols};
    m->owned[m->owned_count++] = t;
    return neo_tensor_alloc(m->ctx, dtype, cols ? 2 : 1, shape, t);
}
static neo_status add_buffers(model *m, int64_t rows) {
    const int64_t w = m->width;
    for (int i = 0; i < (m->recompute ? 1 : m->layers); i++) {
        inside *a = &m->inside[i];
        const struct { neo_tensor *t; int64_t cols; } list[] = {
            {&a->stats_1, 2}, {&a->n1, w}, {&a->qkv, 3 * w}, {&a->y, w}, {&a->lse, m->heads}, {&a->middle, w},
            {&a->stats_2, 2}, {&a->n2, w}, {&a->z, 4 * w}, {&a->gelu, 4 * w}};
        for (size_t k = 0; k < sizeof list / sizeof *list; k++)
            TRY(add_buffer(m, NEO_F32, rows, list[k].cols, list[k].t));
    }
    for (int i = 0; i <= m->layers; i++) TRY(add_buffer(m, NEO_F32, rows, w, &m->x[i]));
    const struct { neo_tensor *t; int64_t cols; } list[] = {
        {&m->stats, 2}, {&m->n, w}, {&m->logits, m->vocabulary}, {&m->dx, w}, {&m->dn, w}, {&m->dqkv, 3 * w},
        {&m->dgelu, 4 * w}};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) TRY(add_buffer(m, NEO_F32, rows, list[k].cols, list[k].t));
    const int64_t widest = m->vocabulary > 4 * w ? m->vocabulary : 4 * w;
    for (int k = 0; k < (m->products_bf16 ? 3 : 0); k++)
        TRY(add_buffer(m, NEO_BF16, k == 1 ? w : rows, widest, &m->narrow[k]));
    TRY(add_buffer(m, NEO_I64, rows, 0, &m->ids));
    TRY(add_buffer(m, NEO_I64, rows, 0, &m->targets));
    TRY(add_buffer(m, NEO_I64, rows, 0, &m->places));
    m->next_ids = malloc((size_t)rows * sizeof *m->next_ids);
    m->next_targets = calloc((size_t)rows, sizeof *m->next_targets);
    m->next_logits = malloc((size_t)m->vocabulary * sizeof *m->next_logits);
    if (!m->next_ids || !m->next_targets || !m->next_logits) return neo_fail(NEO_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < rows; i++) m->next_ids[i] = i % m->context;
    return neo_tensor_copy(m->ctx, neo_tensor_1d(m->next_ids, NEO_I64, rows), m->places);
}
/* rows: the most that a piece of a batch has. The sizes are in *m, all else is zero; destroy it also on an error. */
static neo_status create_model(model *m, int64_t rows) {
    TRY(neo_params_create_deferred(m->ctx, &m->root));
    TRY(add_param(m->root, "wte", ".weight", m->vocabulary, m->width, (neo_init){NEO_INIT_NORMAL, 0, 0.02f}, &m->tokens));
    TRY(add_param(m->root, "wpe", ".weight", m->context, m->width, (neo_init){NEO_INIT_NORMAL, 0, 0.02f}, &m->positions));
    TRY(add_norm(m->root, "ln_f", m->width, &m->last));
    for (int i = 0; i < m->layers; i++) TRY(add_block(m, i));
    return add_buffers(m, rows);
}
static void destroy_model(model *m) {
    for (int i = 0; i < m->owned_count; i++) neo_tensor_free(m->ctx, m->owned[i]);
    free(m->next_ids);
    free(m->next_targets);
    free(m->next_logits);
    for (int i = 0; i < m->layers; i++) neo_params_destroy(m->block[i].params);
    neo_params_destroy(m->root);
}

/* The rows of a buffer that are in use; of them the part of q, k or v, and what a block keeps. */
static neo_tensor used(const model *m, neo_tensor t) { return neo_tensor_rows(t, 0, m->rows); }
/* Takes the next `rows` ids and targets to where the model is: the next input. */
static neo_status send(model *m, int64_t rows) {
    m->rows = rows;
    TRY(neo_tensor_copy(m->ctx, neo_tensor_1d(m->next_ids, NEO_I64, rows), used(m, m->ids)));
    return neo_tensor_copy(m->ctx, neo_tensor_1d(m->next_targets, NEO_I64, rows), used(m, m->targets));
}
static neo_tensor third(const model *m, neo_tensor t, int k) { return neo_tensor_slice(used(m, t), 1, k * m->width, m->width); }
static const inside *inside_of(const model *m, int i) { return &m->inside[m->recompute ? 0 : i]; }
static neo_attention_desc attention_of(const model *m) {
    return (neo_attention_desc){.length = m->length, .heads = m->heads, .causal = 1};
}

static neo_status norm_forward(const model *m, const norm *l, neo_tensor x, neo_tensor y, neo_tensor stats) {
    return neo_layer_norm_forward(m->ctx, used(m, x), l->w->value, l->b->value, EPS, used(m, y), used(m, stats));
}
static neo_status norm_backward(const model *m, const neo_leaves *part, const norm *l, neo_tensor x, neo_tensor stats,
                                neo_tensor dx) { /* in place */
    return neo_layer_norm_backward(m->ctx, part, used(m, x), l->w->value, used(m, stats), used(m, dx), used(m, dx),
                                   l->w->grad, l->b->grad);
}
/* *t: what a product takes for it; k: which of the three. */
static neo_status operand(const model *m, int k, neo_tensor *t) {
    neo_tensor narrow = m->narrow[k];
    if (!m->products_bf16) return NEO_OK;
    memcpy(narrow.shape, t->shape, sizeof narrow.shape);
    narrow.stride[0] = t->shape[1];
    TRY(neo_tensor_convert(m->ctx, *t, narrow, NULL));
    *t = narrow;
    return NEO_OK;
}
static neo_status product_forward(const model *m, neo_tensor x, neo_tensor w, neo_tensor bias, neo_tensor y) {
    TRY(operand(m, 0, &x));
    TRY(operand(m, 1, &w));
    return neo_linear_forward(m->ctx, x, w, bias, NEO_ACT_NONE, y);
}
static neo_status product_backward(const model *m, const neo_leaves *part, neo_tensor x, neo_tensor w, neo_tensor dy,
                                   neo_tensor dx, neo_tensor dw, neo_tensor dbias) {
    TRY(operand(m, 0, &x));
    TRY(operand(m, 1, &w));
    TRY(operand(m, 2, &dy));
    return neo_linear_backward(m->ctx, part, x, w, dy, dx, dw, dbias);
}
static neo_status linear_forward(const model *m, const linear *l, neo_tensor x, neo_tensor y) {
    return product_forward(m, used(m, x), l->w->value, l->b->value, used(m, y));
}
static neo_status linear_backward(const model *m, const neo_leaves *part, const linear *l, neo_tensor x, neo_tensor dy,
                                  neo_tensor dx) {
    return product_backward(m, part, used(m, x), l->w->value, used(m, dy), used(m, dx), l->w->grad, l->b->grad);
}

/* again: for the backward, which does not need what comes out. */
static neo_status block_forward(const model *m, int i, int again) {
    const block *b = &m->block[i];
    const inside *a = inside_of(m, i);
    const neo_attention_desc attention = attention_of(m);
    neo_tensor x = m->x[i], out = m->x[i + 1];
    TRY(norm_forward(m, &b->norm_1, x, a->n1, a->stats_1));
    TRY(linear_forward(m, &b->qkv, a->n1, a->qkv));
    TRY(neo_attention_forward(m->ctx, &attention, third(m, a->qkv, 0), third(m, a->qkv, 1), third(m, a->qkv, 2),
                              used(m, a->y), used(m, a->lse)));
    TRY(linear_forward(m, &b->project, a->y, a->middle));
    TRY(neo_add(m->ctx, used(m, a->middle), used(m, x)));

    TRY(norm_forward(m, &b->norm_2, a->middle, a->n2, a->stats_2));
    TRY(linear_forward(m, &b->expand, a->n2, a->z));
    TRY(neo_activation_forward(m->ctx, NEO_ACT_GELU, used(m, a->z), used(m, a->gelu)));
    if (again) return NEO_OK;
    TRY(linear_forward(m, &b->contract, a->gelu, out));
    return neo_add(m->ctx, used(m, out), used(m, a->middle));
}
/* m->dx: the gradient of what comes out of the block; then of what goes in. */
static neo_status block_backward(const model *m, const neo_leaves *part, int i) {
    const block *b = &m->block[i];
    const inside *a = inside_of(m, i);
    const neo_attention_desc attention = attention_of(m);
    neo_tensor dz = used(m, m->dgelu);
    if (m->recompute) TRY(block_forward(m, i, 1));
    TRY(linear_backward(m, part, &b->contract, a->gelu, m->dx, m->dgelu));
    TRY(neo_activation_backward(m->ctx, NEO_ACT_GELU, used(m, a->z), neo_tensor_none(), dz, dz));
    TRY(linear_backward(m, part, &b->expand, a->n2, m->dgelu, m->dn));
    TRY(norm_backward(m, part, &b->norm_2, a->middle, a->stats_2, m->dn));
    TRY(neo_add(m->ctx, used(m, m->dx), used(m, m->dn)));

    TRY(linear_backward(m, part, &b->project, a->y, m->dx, m->dn));
    TRY(neo_attention_backward(m->ctx, &attention, third(m, a->qkv, 0), third(m, a->qkv, 1), third(m, a->qkv, 2),
                               used(m, a->y), used(m, a->lse), used(m, m->dn), third(m, m->dqkv, 0),
                               third(m, m->dqkv, 1), third(m, m->dqkv, 2)));
    TRY(linear_backward(m, part, &b->qkv, a->n1, m->dqkv, m->dn));
    TRY(norm_backward(m, part, &b->norm_1, m->x[i], a->stats_1, m->dn));
    return neo_add(m->ctx, used(m, m->dx), used(m, m->dn));
}

static neo_status embed_forward(const model *m) {
    neo_tensor x = used(m, m->x[0]), p = used(m, m->n); /* n is not in use yet */
    TRY(neo_embedding_forward(m->ctx, used(m, m->ids), m->tokens->value, x));
    TRY(neo_embedding_forward(m->ctx, used(m, m->places), m->positions->value, p));
    return neo_add(m->ctx, x, p);
}
static neo_status head_forward(const model *m) {
    TRY(norm_forward(m, &m->last, m->x[m->layers], m->n, m->stats));
    return product_forward(m, used(m, m->n), m->tokens->value, neo_tensor_none(), used(m, m->logits));
}
/* The token table is the head's weight too: its gradient is written here, and in embed_backward added to. */
static neo_status head_backward(const model *m, const neo_leaves *part) {
    TRY(product_backward(m, part, used(m, m->n), m->tokens->value, used(m, m->logits), used(m, m->dx),
                         m->tokens->grad, neo_tensor_none()));
    return norm_backward(m, part, &m->last, m->x[m->layers], m->stats, m->dx);
}
static neo_status embed_backward(const model *m, const neo_leaves *part) {
    TRY(neo_embedding_backward(m->ctx, part, used(m, m->places), used(m, m->dx), m->positions->grad, 0));
    return neo_embedding_backward(m->ctx, part, used(m, m->ids), used(m, m->dx), m->tokens->grad, 1);
}

/* ---- trainer ---------------------------------------------------------------------------------- */

/* Characters are bytes; those that occur are numbered in their order. */
typedef struct text {
    unsigned char *data;
    int64_t length, train; /* [0, train) is for training, the rest for validation */
    unsigned char letter[256];
    int number[256];       /* -1: does not occur */
    int vocabulary;
    uint32_t checksum;
} text;

typedef struct trainer {
    neo_comm *comm, *data; /* data: of tensors where the ranks compute */
    neo_fsdp *fsdp;
    model m;
    const text *text;
    int64_t batch, micro_batches; /* sequences of a micro-batch, on all ranks */
    neo_schedule schedule;
    device_graph *graph;          /* or NULL */
    neo_exact loss[2];            /* sums over this rank's positions: of a step, and of the one before, which a GPU may still run */
    int turn;                     /* which is this step's */
} trainer;

/* Units of the FSDP: the root, open around the blocks, and the blocks. */
enum { ROOT, BLOCKS };

/* predicted: what the FSDP takes on this rank, and sends. */
static neo_status create_fsdp(trainer *t, neo_fsdp_desc d, neo_fsdp_prediction *predicted) {
    static const neo_fsdp_unit none;
    neo_fsdp_unit unit[BLOCKS + MAX_LAYERS] = {{.name = "root", .params = t->m.root, .keep = 1}};
    char name[MAX_LAYERS][16];
    for (int i = 0; i < t->m.layers; i++) {
        snprintf(name[i], sizeof name[i], "h.%d", i);
        unit[BLOCKS + i] = none;
        unit[BLOCKS + i].name = name[i];
        unit[BLOCKS + i].params = t->m.block[i].params;
    }
    d.units = unit;
    d.unit_count = BLOCKS + (int)t->m.layers;
    d.leaf_pieces = 1; /* the two gradients of the token table meet in each leaf */
    neo_status status = neo_fsdp_predict(t->m.ctx, &d, neo_comm_size(t->comm), neo_comm_rank(t->comm), predicted);
    TRY(neo_comm_agree(t->comm, status));
    return neo_fsdp_create(t->data, &d, &t->fsdp);
}

/* Where the text of sequence `index` of a step begins: the same on any number of ranks. */
static int64_t window_of(const trainer *t, int64_t step, int64_t index) {
    uint32_t word[4];
    neo_random_u32x4(neo_ctx_seed(t->m.ctx), neo_hash("window"), step, NEO_STREAM_DATA, (uint64_t)index, word);
    return (int64_t)(((uint64_t)word[0] << 32 | word[1]) % (uint64_t)(t->text->train - t->m.context));
}
/* Row i of the model's input: the sequence that begins at `at`. */
static void put_sequence(model *m, const text *from, int64_t at, int64_t row) {
    int64_t *ids = m->next_ids + row * m->context, *targets = m->next_targets + row * m->context;
    for (int64_t k = 0; k < m->context; k++) {
        ids[k] = from->number[from->data[at + k]];
        targets[k] = from->number[from->data[at + k + 1]];
    }
}
/* This rank's sequences [*first, *first + count) of a piece of a batch. */
static int64_t sequences_of(const trainer *t, neo_leaves *part, int64_t *first) {
    int shards = neo_ctx_repro_shards(t->m.ctx);
    *first = neo_leaf_begin(part->batch, shards, part->first);
    part->rows_per_sample = t->m.context;
    return neo_leaf_begin(part->batch, shards, part->first + part->count) - *first;
}

/* Logits of the sequences in the model; also on ranks that have none, for windows are collective. */
static neo_status forward(trainer *t) {
    TRY(neo_fsdp_forward_begin(t->fsdp, ROOT));
    TRY(embed_forward(&t->m));
    for (int i = 0; i < t->m.layers; i++) {
        TRY(neo_fsdp_forward_begin(t->fsdp, BLOCKS + i));
        TRY(block_forward(&t->m, i, 0));
        TRY(neo_fsdp_forward_end(t->fsdp, BLOCKS + i));
    }
    TRY(head_forward(&t->m));
    return neo_fsdp_forward_end(t->fsdp, ROOT);
}
static neo_status backward(trainer *t, const neo_leaves *part, int piece) {
    TRY(neo_fsdp_backward_begin(t->fsdp, ROOT, piece));
    TRY(head_backward(&t->m, part));
    for (int i = (int)t->m.layers - 1; i >= 0; i--) {
        TRY(neo_fsdp_backward_begin(t->fsdp, BLOCKS + i, piece));
        TRY(block_backward(&t->m, part, i));
        TRY(neo_fsdp_backward_end(t->fsdp, BLOCKS + i));
    }
    TRY(embed_backward(&t->m, part));
    return neo_fsdp_backward_end(t->fsdp, ROOT);
}
/* dlogits: in place of the logits, or none. positions: of all ranks and micro-batches. */
static neo_status loss(trainer *t, int64_t positions, neo_tensor dlogits) {
    neo_loss_desc d = {.batch = positions, .sum = &t->loss[t->turn], .scale = neo_fsdp_loss_scale(t->fsdp)};
    return neo_cross_entropy(t->m.ctx, &d, used(&t->m, t->m.logits), used(&t->m, t->m.targets), dlogits, NULL);
}

/* Forward and backward of this rank's sequences in a piece of a micro-batch. */
static neo_status train_piece(trainer *t, int64_t step, int64_t micro, int piece) {
    model *m = &t->m;
    neo_leaves part = neo_fsdp_piece(t->fsdp, piece, t->batch);
    int64_t first, count = sequences_of(t, &part, &first);
    for (int64_t i = 0; i < count; i++) put_sequence(m, t->text, window_of(t, step, micro * t->batch + first + i), i);
    TRY(send(m, count * m->context));
    TRY(forward(t));
    TRY(loss(t, t->batch * t->micro_batches * m->context, used(m, m->logits)));
    return backward(t, &part, piece);
}
/* With a graph each piece is a launch, the last with the optimizer's step; its outcome comes with the next, so that one
   is prepared while a GPU computes the other. The loss is in loss[step % 2] when the step is over. */
static neo_status train_step(trainer *t, int64_t step) {
    int64_t pieces = neo_fsdp_pieces(t->fsdp), count = pieces * t->micro_batches;
    t->m.length = t->m.context;
    t->turn = (int)(step % 2);
    for (int64_t i = 0; i < count; i++) {
        TRY(graph_begin(t->graph));
        TRY(train_piece(t, step, i / pieces, (int)(i % pieces)));
        if (i == count - 1) TRY(neo_fsdp_step(t->fsdp, neo_schedule_lr(&t->schedule, step)));
        TRY(graph_end(t->graph));
    }
    return NEO_OK;
}

/* The sum of `mine` over all ranks: of integers, so in any order the same. */
static neo_status sum_loss(trainer *t, neo_exact *mine, double *sum) {
    TRY(neo_comm_all_reduce(t->comm, NEO_REDUCE_SUM, mine, mine, sizeof *mine / sizeof(int64_t), NEO_I64, NULL));
    *sum = neo_exact_value(mine);
    neo_exact_zero(mine);
    return NEO_OK;
}

/* The mean loss of the text [from, to), cut in sequences that follow one another. */
static neo_status evaluate(trainer *t, int64_t from, int64_t to, double *mean) {
    model *m = &t->m;
    int64_t total = (to - from - 1) / m->context, first;
    m->length = m->context;
    for (int64_t done = 0; done < total; done += t->batch)
        for (int piece = 0; piece < neo_fsdp_pieces(t->fsdp); piece++) {
            neo_leaves part = neo_fsdp_piece(t->fsdp, piece, total - done < t->batch ? total - done : t->batch);
            int64_t count = sequences_of(t, &part, &first);
            for (int64_t i = 0; i < count; i++) put_sequence(m, t->text, from + (done + first + i) * m->context, i);
            TRY(send(m, count * m->context));
            TRY(forward(t));
            TRY(loss(t, total * m->context, neo_tensor_none()));
        }
    TRY(neo_fsdp_cancel(t->fsdp)); /* what was gathered is forgotten: the next step does not differ from others */
    TRY(sum_loss(t, &t->loss[t->turn], mean));
    *mean /= (double)(total * m->context);
    return NEO_OK;
}

/* The next character after those in m->next_ids, drawn from the softmax of logits / temperature. Every rank draws the same. */
static neo_status draw_next(trainer *t, int64_t count, double temperature, int64_t place, int64_t *next) {
    model *m = &t->m;
    double most = -INFINITY, sum = 0, share[256];
    const float *logits = m->next_logits;
    m->length = count;
    TRY(send(m, count));
    TRY(forward(t));
    TRY(neo_tensor_copy(m->ctx, neo_tensor_rows(m->logits, count - 1, 1),
                        neo_tensor_2d(m->next_logits, NEO_F32, 1, m->vocabulary)));
    *next = 0;
    for (int64_t k = 0; k < m->vocabulary; k++)
        if ((double)logits[k] > most) most = (double)logits[*next = k];
    if (!(temperature > 0)) return NEO_OK;
    for (int64_t k = 0; k < m->vocabulary; k++) sum += share[k] = exp(((double)logits[k] - most) / temperature);
    sum *= (double)neo_random_uniform(neo_ctx_seed(m->ctx), neo_hash("sample"), 0, NEO_STREAM_USER, (uint64_t)place);
    for (*next = 0; *next < m->vocabulary - 1 && sum >= share[*next]; ++*next) sum -= share[*next];
    return NEO_OK;
}

/* ---- options ---------------------------------------------------------------------------------- */

typedef struct options {
    char *data, *shard, *accumulate_mode, *dtype, *products, *checkpoint, *load, *prefix, *prompt, *device, *graph;
    int64_t layers, heads, width, context, batch, steps, warmup, seed, threads, ranks, repro_shards, factor, slots,
        accumulate, every, eval_every, sample;
    double lr, min_lr, weight_decay, beta2, clip, temperature;
    int64_t recompute, resume, memory, exact, help;
} options;

static const struct option {
    const char *name;
    char kind; /* s: text, i: integer in [0, most], f: number in [0, most], b: flag */
    size_t offset;
    const char *argument, *help;
    double most;
} OPTIONS[] = {
    {"data", 's', offsetof(options, data), "FILE", "a text; its last tenth is for validation (examples/data/shakespeare/input.txt)", 0},
    {"layers", 'i', offsetof(options, layers), "N", "blocks (4)", MAX_LAYERS},
    {"heads", 'i', offsetof(options, heads), "N", "of attention (4); divides the width", 1024},
    {"width", 'i', offsetof(options, width), "N", "of the embeddings (128)", 1e5},
    {"context", 'i', offsetof(options, context), "N", "characters of a sequence (64)", 1e6},
    {"batch", 'i', offsetof(options, batch), "B", "sequences of a micro-batch, on all ranks together (12)", 1e6},
    {"steps", 'i', offsetof(options, steps), "N", "of the optimizer, in all runs (2000)", 1e9},
    {"lr", 'f', offsetof(options, lr), "X", "highest learning rate (0.002)", 1e9},
    {"min-lr", 'f', offsetof(options, min_lr), "X", "at the last step, by a cosine (0.0001)", 1e9},
    {"warmup", 'i', offsetof(options, warmup), "N", "steps of linear warm-up (100)", 1e9},
    {"weight-decay", 'f', offsetof(options, weight_decay), "X", "of AdamW, of all parameters (0.1)", 1e9},
    {"beta2", 'f', offsetof(options, beta2), "X", "of AdamW (0.99)", 1},
    {"clip", 'f', offsetof(options, clip), "X", "the norm of the gradients is limited to this (1); 0: it is not", 1e9},
    {"seed", 'i', offsetof(options, seed), "N", "of initial weights, windows of the text, and the sample (1)", 1e15},
    {"threads", 'i', offsetof(options, threads), "N", "of each rank; 0: all cores, shared among the ranks", 256},
    {"device", 's', offsetof(options, device), "NAME", "cpu (default); cuda: the GPUs, one for each rank in turn; cuda:1 ...: that GPU", 0},
    {"exact", 'b', offsetof(options, exact), "", "on a GPU: matrix products with the bits of the CPU, slower", 0},
    {"graph", 's', offsetof(options, graph), "G", "on a GPU: on (forward, backward and step are one launch; the default) or off", 0},
    {"ranks", 'i', offsetof(options, ranks), "W", "as threads (1); mpirun knows itself how many it starts", 1024},
    {"repro-shards", 'i', offsetof(options, repro_shards), "V", "leaves of a batch, whose gradients add by a tree; at least the ranks (and 0: as many)", 4096},
    {"shard", 's', offsetof(options, shard), "S", "none, zero1, zero2, full (the default) or hybrid (full in groups of ranks)", 0},
    {"factor", 'i', offsetof(options, factor), "F", "ranks of a group of --shard hybrid; 0: half of all", 1024},
    {"slots", 'i', offsetof(options, slots), "N", "gathered blocks in memory; 0: 2", 1024},
    {"accumulate", 'i', offsetof(options, accumulate), "K", "micro-batches of a step (1)", 1e6},
    {"accumulate-mode", 's', offsetof(options, accumulate_mode), "M", "each (reduced after every micro-batch; the default) or end", 0},
    {"dtype", 's', offsetof(options, dtype), "T", "of weights and gradients on their way: f32 (the default) or bf16", 0},
    {"products", 's', offsetof(options, products), "T", "what linear layers multiply: f32 (the default) or bf16; their sums and weights stay f32", 0},
    {"recompute", 'b', offsetof(options, recompute), "", "keep only what goes into each block, and compute the rest again in the backward", 0},
    {"checkpoint", 's', offsetof(options, checkpoint), "DIR", "save here at the end (the newest two stay), and", 0},
    {"every", 'i', offsetof(options, every), "N", "every N steps", 1e12},
    {"resume", 'b', offsetof(options, resume), "", "go on from the newest checkpoint, if there is one", 0},
    {"load", 's', offsetof(options, load), "FILE", "start from weights of a safetensors file, by PyTorch's names for GPT-2, Linear's [out][in]", 0},
    {"prefix", 's', offsetof(options, prefix), "P", "of the names there, if wte.weight is not found (transformer.)", 0},
    {"eval-every", 'i', offsetof(options, eval_every), "N", "steps between validations; 0: at the end only", 1e12},
    {"sample", 'i', offsetof(options, sample), "N", "characters to write at the end (300)", 1e7},
    {"temperature", 'f', offsetof(options, temperature), "X", "of the sample (0.8); 0: always the likeliest character", 1e6},
    {"prompt", 's', offsetof(options, prompt), "TEXT", "that the sample continues (a new line)", 0},
    {"memory", 'b', offsetof(options, memory), "", "print what neo_fsdp_predict says of memory and traffic, and what was counted", 0},
    {"help", 'b', offsetof(options, help), "", "this text", 0},
};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof OPTIONS[0] };

static neo_status set_option(options *o, const struct option *opt, char *word) {
    char *end = word;
    void *field = (char *)o + opt->offset;
    if (opt->kind == 's') {
        *(char **)field = word;
        return NEO_OK;
    }
    errno = 0;
    if (opt->kind == 'i') *(int64_t *)field = strtoll(word, &end, 10);
    else *(double *)field = strtod(word, &end);
    double value = opt->kind == 'i' ? (double)*(int64_t *)field : *(double *)field;
    if (end == word || *end || errno || !(value >= 0 && value <= opt->most))
        REFUSE("--%s %s: not %s from 0 to %.0f", opt->name, word, opt->kind == 'i' ? "a whole number" : "a number",
               opt->most);
    return NEO_OK;
}
static neo_status check_options(const options *o) {
    const struct { const char *name; int64_t value; } least_1[] = {
        {"layers", o->layers}, {"heads", o->heads}, {"width", o->width}, {"context", o->context}, {"batch", o->batch},
        {"ranks", o->ranks}, {"accumulate", o->accumulate}};
    for (size_t i = 0; i < sizeof least_1 / sizeof *least_1; i++)
        if (least_1[i].value < 1) REFUSE("--%s must be at least 1", least_1[i].name);
    if (o->width % o->heads)
        REFUSE("--width %lld: must be a multiple of the %lld of --heads", (long long)o->width, (long long)o->heads);
    if (o->beta2 >= 1) REFUSE("--beta2 must be less than 1");
    if (strcmp(o->accumulate_mode, "each") && strcmp(o->accumulate_mode, "end"))
        REFUSE("--accumulate-mode %s: neither each nor end", o->accumulate_mode);
    if (strcmp(o->dtype, "f32") && strcmp(o->dtype, "bf16")) REFUSE("--dtype %s: neither f32 nor bf16", o->dtype);
    if (strcmp(o->products, "f32") && strcmp(o->products, "bf16"))
        REFUSE("--products %s: neither f32 nor bf16", o->products);
    if (strcmp(o->graph, "on") && strcmp(o->graph, "off")) REFUSE("--graph %s: neither on nor off", o->graph);
    if (o->factor && strcmp(o->shard, "hybrid")) REFUSE("--factor needs --shard hybrid");
    if ((o->resume || o->every) && !o->checkpoint) REFUSE("--resume and --every need --checkpoint");
    if (o->checkpoint && !o->checkpoint[0]) REFUSE("--checkpoint needs the name of a directory");
    if (o->load && o->resume) REFUSE("--load and --resume would both give the weights: leave one out");
    return NEO_OK;
}
static neo_status parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const struct option *opt = NULL;
        for (int k = 0; k < OPTION_COUNT; k++)
            if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, OPTIONS[k].name) == 0) opt = &OPTIONS[k];
        if (strcmp(argv[i], "-h") == 0) return o->help = 1, NEO_OK;
        if (!opt) REFUSE("%s: no such option (--help lists them)", argv[i]);
        if (opt->kind == 'b') *(int64_t *)((char *)o + opt->offset) = 1;
        else if (i + 1 == argc) REFUSE("--%s: needs a value", opt->name);
        else TRY(set_option(o, opt, argv[++i]));
    }
    return o->help ? NEO_OK : check_options(o);
}
static void print_help(void) {
    printf("gpt: train a small GPT on a text; see the comment at the top of examples/gpt.c\n\n");
    for (int k = 0; k < OPTION_COUNT; k++) {
        const struct option *opt = &OPTIONS[k];
        printf("  --%s %-*s %s\n", opt->name, 20 - (int)strlen(opt->name), opt->argument, opt->help);
    }
    printf("\nNEO_ISA=scalar|avx2|avx512|avx512bf16|amx|neon in the environment forces an instruction set.\n");
}

/* ---- text ------------------------------------------------------------------------------------- */

static neo_status read_file(const char *path, text *t) {
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--data %s: cannot open: %s", path, strerror(errno));
    size_t have = 0, room = 1 << 20, got = 1;
    while (got > 0) {
        unsigned char *more = realloc(t->data, room *= 2);
        if (!more) break;
        t->data = more;
        got = fread(t->data + have, 1, room - have, f);
        have += got;
        if (have < room) break;
    }
    int failed = ferror(f), whole = feof(f);
    fclose(f);
    t->length = (int64_t)have;
    if (failed) return neo_fail(NEO_ERR_IO, "--data %s: cannot be read: %s", path, strerror(errno));
    if (!whole) return neo_fail(NEO_ERR_MEMORY, "--data %s: no memory for more than %zu characters", path, have);
    return NEO_OK;
}
static neo_status read_text(const options *o, text *t) {
    TRY(read_file(o->data, t));
    t->train = t->length / 10 * 9 + t->length % 10 * 9 / 10;
    if (t->length - t->train <= o->context)
        REFUSE("--data %s: %lld characters, of which the last %lld are for validation: too few for a --context of %lld",
               o->data, (long long)t->length, (long long)(t->length - t->train), (long long)o->context);
    for (int c = 0; c < 256; c++) t->number[c] = -1;
    for (int64_t i = 0; i < t->length; i++) t->number[t->data[i]] = 0;
    for (int c = 0; c < 256; c++)
        if (t->number[c] == 0) t->letter[t->number[c] = t->vocabulary++] = (unsigned char)c;
    t->checksum = neo_crc32c(0, t->data, (size_t)t->length);
    for (const char *p = o->prompt; p && *p; p++)
        if (t->number[(unsigned char)*p] < 0)
            REFUSE("--prompt %s: the character %d, '%c', is not in the vocabulary: %s has none", o->prompt,
                   (int)(p - o->prompt) + 1, *p, o->data);
    return NEO_OK;
}

/* ---- a run of one rank ------------------------------------------------------------------------ */

/* What all ranks of a process share; nobody writes it once they have started, but for log_stderr. */
typedef struct job {
    options o;
    text text;
    neo_comm_desc comm;
    device_choice device;
    char refused[1024]; /* why options or text are refused, or "" */
    pthread_mutex_t lock;
    uint64_t said;      /* hash of the last line of the log */
    int silent;         /* another process speaks for all */
    int told;           /* the error that all ranks have is printed */
} job;

typedef struct run {
    trainer t;
    neo_comm *comm;
    neo_ctx *ctx;
    job *job;
    const options *o;
    int rank, ranks;
    neo_state *state;
    int64_t step;           /* steps taken, in all runs */
    int64_t seen;           /* of them those whose loss was summed: with a graph one less */
    neo_fsdp_desc desc;     /* without units */
    neo_fsdp_prediction predicted;
    size_t counted;         /* bytes that neo_fsdp_create took */
    double sent[3][2];      /* of a step, in bytes: all-gather, reduce-scatter, all-reduce; predicted, counted */
} run;

/* What all ranks bring, as one status for all: none acts on an error alone. */
static neo_status agree(neo_comm *comm, neo_status mine) {
    return neo_comm_size(comm) == 1 ? mine : neo_comm_agree(comm, mine);
}
/* Rank 0 says it. */
static void say(const run *r, const char *format, ...) {
    va_list args;
    if (r->rank) return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}
static void write_stderr(const char *words, void *user) {
    (void)user;
    fputs(words, stderr);
    fflush(stderr);
}
static void write_nothing(const char *words, void *user) { (void)words, (void)user; }
/* neo's warnings; what several ranks say alike is said once. */
static void log_stderr(neo_log_level level, const char *message, void *user) {
    job *j = user;
    pthread_mutex_lock(&j->lock);
    if (j->said != neo_hash(message) && !j->silent)
        fprintf(stderr, "%s%s\n", level == NEO_LOG_WARNING ? "warning: " : "", message);
    j->said = neo_hash(message);
    pthread_mutex_unlock(&j->lock);
}

/* ---- checkpoints ------------------------------------------------------------------------------ */

/* Everything a resumed run must find again, and the words it must agree with. */
static neo_status create_state(run *r) {
    const options *o = r->o;
    char words[64];
    TRY(neo_state_create(r->ctx, &r->state));
    TRY(neo_state_add_fsdp(r->state, r->t.fsdp));
    const struct { const char *key; int64_t value; } numbers[] = {
        {"batch", o->batch}, {"heads", o->heads}, {"context", o->context}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(words, sizeof words, "%lld", (long long)numbers[i].value);
        TRY(neo_state_define(r->state, numbers[i].key, words));
    }
    TRY(neo_state_define(r->state, "products", o->products));
    snprintf(words, sizeof words, "%lld characters, CRC32C %08x", (long long)r->t.text->length,
             (unsigned)r->t.text->checksum);
    return neo_state_define(r->state, "text", words);
}
static neo_status save(run *r) {
    neo_group group = neo_comm_group(r->comm);
    return neo_save(r->ctx, &(neo_save_desc){.dir = r->o->checkpoint, .step = r->step, .group = &group}, r->state);
}
/* What cannot be written is better known before the training than after it; nor is another run overwritten. */
static neo_status check_checkpoint(const options *o) {
    char path[4096];
    int64_t there = -1;
    if (!o->resume && neo_find_checkpoint(o->checkpoint, &there) == NEO_OK)
        REFUSE("--checkpoint %s: holds step %lld of an earlier run: add --resume to go on with it, or name another "
               "directory", o->checkpoint, (long long)there);
    for (size_t i = 1; i <= strlen(o->checkpoint); i++) { /* make it, and what is above it */
        if (o->checkpoint[i] != 0 && o->checkpoint[i] != '/') continue;
        snprintf(path, sizeof path, "%.*s", (int)i, o->checkpoint);
        make_directory(path);
    }
    snprintf(path, sizeof path, "%s/.writable", o->checkpoint);
    FILE *f = fopen(path, "ab");
    if (!f) return neo_fail(NEO_ERR_IO, "--checkpoint %s: %s", path, strerror(errno));
    fclose(f);
    remove(path);
    return NEO_OK;
}
static neo_status load_weights(run *r) {
    char names[256];
    snprintf(names, sizeof names, "%.200s*", r->o->prefix);
    neo_name_map map = {.file_name = names, .state_name = "*"};
    TRY(neo_load_safetensors(r->ctx, r->o->load, &map, 1, 0, r->state, NULL));
    say(r, "loaded the weights of %s\n", r->o->load);
    return NEO_OK;
}
static neo_status restore(run *r) {
    const options *o = r->o;
    neo_group group = neo_comm_group(r->comm);
    if (o->load) TRY(agree(r->comm, load_weights(r)));
    if (o->checkpoint) TRY(agree(r->comm, r->rank ? NEO_OK : check_checkpoint(o)));
    if (!o->resume) return NEO_OK;
    neo_status status = neo_load(r->ctx, &(neo_load_desc){.dir = o->checkpoint, .group = &group}, r->state, &r->step);
    if (status == NEO_OK) say(r, "loaded step %lld from %s\n", (long long)r->step, o->checkpoint);
    if (status != NEO_ERR_NOT_FOUND) return status;
    say(r, "no checkpoint in %s yet: starting from the beginning\n", o->checkpoint);
    return NEO_OK;
}

/* ---- memory and traffic ----------------------------------------------------------------------- */

/* The groups of ranks that an FSDP makes for itself: its prediction leaves them out. */
static size_t group_bytes(const run *r) {
    int factor = r->desc.factor ? r->desc.factor : r->ranks;
    int sizes[2] = {factor > 1 ? factor : r->ranks, factor > 1 ? r->ranks / factor : 1};
    size_t bytes = 0;
    neo_comm_backend host = neo_comm_get_backend(r->comm);
    if (r->desc.mode == NEO_FSDP_DDP) sizes[0] = r->ranks, sizes[1] = 1;
    for (int i = 0; i < 2; i++)
        if (sizes[i] > 1)
            bytes += neo_comm_workspace_bytes(&r->job->comm, sizes[i], host) +
                     (r->t.data != r->comm ? neo_comm_workspace_bytes(&r->job->comm, sizes[i], NEO_BACKEND_NCCL)
                      : neo_ctx_device(r->ctx) ? neo_comm_device_bytes(&r->job->comm, sizes[i], host) : 0);
    return bytes;
}
static double sent_by(const neo_comm_stats *s, neo_comm_op op) {
    return (double)(s->op[op].bytes[NEO_LEVEL_LOCAL] + s->op[op].bytes[NEO_LEVEL_CROSS]);
}
/* After a step that began with neo_fsdp_reset_stats: sums over all ranks. What ranks of a sharding group all-reduce is
   not gradients, but sums for the clipping norm, which are not predicted. */
static neo_status count_traffic(run *r) {
    static const neo_comm_op ops[3] = {NEO_COMM_ALL_GATHER, NEO_COMM_REDUCE_SCATTER, NEO_COMM_ALL_REDUCE};
    neo_fsdp_stats s = neo_fsdp_get_stats(r->t.fsdp);
    const neo_comm_stats *groups[3] = {&s.shard, &s.replica, &s.all};
    const double predicted[3] = {r->predicted.all_gather_bytes, r->predicted.reduce_scatter_bytes,
                                 r->predicted.all_reduce_bytes};
    int64_t bytes[6] = {0};
    for (int i = 0; i < 3; i++) {
        bytes[2 * i] = (int64_t)predicted[i];
        for (int k = ops[i] == NEO_COMM_ALL_REDUCE; k < 3; k++) bytes[2 * i + 1] += (int64_t)sent_by(groups[k], ops[i]);
    }
    TRY(neo_comm_all_reduce(r->comm, NEO_REDUCE_SUM, bytes, bytes, 6, NEO_I64, NULL));
    for (int i = 0; i < 6; i++) r->sent[i / 2][i % 2] = (double)bytes[i];
    return NEO_OK;
}
static void print_memory(const run *r, int trained) {
    static const char *const names[3] = {"all-gather", "reduce-scatter", "all-reduce"};
    const neo_fsdp_prediction *p = &r->predicted;
    size_t groups = group_bytes(r), activations = 0;
    for (int i = 0; i < r->t.m.owned_count; i++) activations += neo_tensor_bytes(*r->t.m.owned[i]);
    printf("memory of rank 0: predicted %zu bytes, counted %zu\n", p->bytes + groups, r->counted);
    printf("  masters %zu, gradients %zu, optimizer %zu; gathered %zu, gradients under way %zu; records %zu, "
           "groups of ranks %zu\n", p->master_bytes, p->grad_bytes, p->state_bytes, p->gathered_bytes,
           p->window_bytes, p->record_bytes, groups);
    printf("  besides: activations %zu\n", activations);
    for (int i = 0; i < 3 && trained; i++)
        printf("%s of a step, bytes of all ranks: predicted %.0f, counted %.0f\n", names[i], r->sent[i][0], r->sent[i][1]);
}

/* ---- set up, train, report -------------------------------------------------------------------- */

static neo_status describe_fsdp(run *r) {
    static const struct { const char *name; neo_fsdp_mode mode; } MODES[] = {
        {"none", NEO_FSDP_DDP}, {"zero1", NEO_FSDP_ZERO1}, {"zero2", NEO_FSDP_ZERO2}, {"full", NEO_FSDP_FULL},
        {"hybrid", NEO_FSDP_FULL}};
    const options *o = r->o;
    neo_dtype dtype = strcmp(o->dtype, "bf16") ? NEO_F32 : NEO_BF16;
    r->desc = (neo_fsdp_desc){
        .optim = {.kind = NEO_OPTIM_ADAMW, .weight_decay = (float)o->weight_decay, .clip_norm = (float)o->clip,
                  .beta2 = o->beta2 > 0 ? o->beta2 : -1},
        .slots = (int)o->slots, .micro_batches = (int)o->accumulate, .param_dtype = dtype, .reduce_dtype = dtype,
        .accumulate = strcmp(o->accumulate_mode, "end") ? NEO_ACCUMULATE_EACH : NEO_ACCUMULATE_AT_END};
    if (strcmp(o->shard, "hybrid") == 0) {
        if (!o->factor && r->ranks > 1 && r->ranks % 2)
            REFUSE("--shard hybrid: %d ranks have no half, give --factor", r->ranks);
        r->desc.factor = o->factor ? (int)o->factor : r->ranks > 1 ? r->ranks / 2 : 1;
    }
    for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++) {
        r->desc.mode = MODES[i].mode;
        if (strcmp(o->shard, MODES[i].name) == 0) return NEO_OK;
    }
    REFUSE("--shard %s: not none, zero1, zero2, full or hybrid", o->shard);
}

/* What a rank makes by itself. */
static neo_status prepare(run *r) {
    const options *o = r->o;
    trainer *t = &r->t;
    if (neo_comm_get_backend(r->comm) == NEO_BACKEND_MPI && o->ranks > 1 && o->ranks != r->ranks)
        REFUSE("--ranks %lld, but the launcher has started %d", (long long)o->ranks, r->ranks);
    if (neo_ctx_repro_shards(r->ctx) < r->ranks)
        REFUSE("--repro-shards %d: must be at least the %d ranks", neo_ctx_repro_shards(r->ctx), r->ranks);
    TRY(describe_fsdp(r));
    t->comm = r->comm;
    t->text = &r->job->text;
    t->batch = o->batch;
    t->micro_batches = o->accumulate;
    t->schedule = (neo_schedule){.kind = NEO_SCHEDULE_COSINE, .lr = (float)o->lr, .end_lr = (float)o->min_lr,
                                 .warmup_steps = o->warmup, .total_steps = o->steps};
    for (int i = 0; i < 2; i++) neo_exact_zero(&t->loss[i]);
    t->m.ctx = r->ctx;
    t->m.layers = o->layers, t->m.heads = o->heads, t->m.width = o->width, t->m.context = o->context;
    t->m.vocabulary = t->text->vocabulary;
    t->m.recompute = (int)o->recompute;
    t->m.products_bf16 = strcmp(o->products, "bf16") == 0;
    int64_t leaf = (o->batch + neo_ctx_repro_shards(r->ctx) - 1) / neo_ctx_repro_shards(r->ctx); /* a piece is one */
    return create_model(&t->m, leaf * o->context);
}
/* From the host come the ids and targets of a piece. */
static neo_status open_graph(run *r) {
    trainer *t = &r->t;
    if (strcmp(r->o->graph, "off") == 0) return NEO_OK;
    return graph_open(neo_ctx_device(r->ctx), 2 * (neo_tensor_bytes(t->m.ids) + 256), &t->graph);
}
static neo_status set_up(run *r) {
    TRY(agree(r->comm, prepare(r)));
    TRY(device_group(r->comm, &r->t.data));
    size_t before = neo_ctx_memory(r->ctx).bytes;
    TRY(create_fsdp(&r->t, r->desc, &r->predicted));
    r->counted = neo_ctx_memory(r->ctx).bytes - before;
    TRY(agree(r->comm, open_graph(r)));
    TRY(agree(r->comm, create_state(r)));
    return restore(r);
}

static neo_status validate(run *r, double *mean) {
    return evaluate(&r->t, r->t.text->train, r->t.text->length, mean);
}
/* The mean losses of the steps up to `until`, which are over, for the bar; *mean: the last one. */
static neo_status see_losses(run *r, int64_t until, neo_progress *bar, double *mean) {
    const int64_t sequences = r->o->batch * r->o->accumulate;
    for (; r->seen < until; r->seen++) {
        TRY(sum_loss(&r->t, &r->t.loss[r->seen % 2], mean));
        *mean /= (double)(sequences * r->o->context);
        neo_progress_update(bar, sequences * (r->seen + 1), *mean);
    }
    return NEO_OK;
}
static neo_status train(run *r) {
    const options *o = r->o;
    const int64_t sequences = o->batch * o->accumulate, first = r->step;
    double mean = 0;
    neo_progress bar = {.write = r->rank ? write_nothing : write_stderr, .terminal = isatty(fileno(stderr)),
                        .label = "train", .total = sequences * o->steps, .first = sequences * first};
    if (first && first >= o->steps) {
        say(r, "nothing left to train: the run has had its %lld steps\n", (long long)o->steps);
        return NEO_OK;
    }
    r->seen = first;
    if (o->steps) neo_progress_begin(&bar);
    while (r->step < o->steps) {
        if (o->memory) neo_fsdp_reset_stats(r->t.fsdp);
        TRY(train_step(&r->t, r->step++));
        int last = r->step == o->steps, saves = o->every && r->step % o->every == 0 && !last;
        int validates = o->eval_every && r->step % o->eval_every == 0 && !last;
        int over = !r->t.graph || last || saves || validates;
        if (over) TRY(graph_wait(r->t.graph));
        TRY(see_losses(r, over ? r->step : r->step - 1, &bar, &mean));
        if (o->memory && last) TRY(count_traffic(r));
        if (saves) TRY(save(r));
        if (validates) {
            double val;
            TRY(validate(r, &val));
            if (r->rank == 0) printf("step %lld  train loss %.4f  val loss %.4f\n", (long long)r->step, mean, val);
        }
    }
    if (o->steps) neo_progress_end(&bar, mean);
    return o->checkpoint ? save(r) : NEO_OK;
}

/* Every rank computes the sample, for weights lie on all; rank 0 prints it. */
static neo_status write_sample(run *r) {
    const text *t = r->t.text;
    const char *prompt = r->o->prompt;
    int64_t *ids = r->t.m.next_ids, count = 0, context = r->o->context;
    int start = t->number['\n'] >= 0 ? t->number['\n'] : 0;
    for (size_t i = 0; prompt && i < strlen(prompt); i++) {
        if (count == context) memmove(ids, ids + 1, (size_t)--count * sizeof *ids);
        ids[count++] = t->number[(unsigned char)prompt[i]];
    }
    if (!count) ids[count++] = start;
    if (r->rank == 0) printf("---- sample ----\n%s", prompt ? prompt : "");
    for (int64_t i = 0; i < r->o->sample; i++) {
        int64_t next;
        TRY(draw_next(&r->t, count, r->o->temperature, i, &next));
        if (r->rank == 0) putchar(t->letter[next]);
        if (count == context) memmove(ids, ids + 1, (size_t)--count * sizeof *ids);
        ids[count++] = next;
    }
    if (r->rank == 0) printf("\n----------------\n");
    return NEO_OK;
}

static neo_status print_state(uint64_t digest) {
    printf("state %016llx\n", (unsigned long long)digest);
    if (fflush(stdout) != 0 || ferror(stdout))
        return neo_fail(NEO_ERR_IO, "standard output: could not be written whole");
    return NEO_OK;
}
static neo_status run_all(run *r) {
    neo_group group = neo_comm_group(r->comm);
    uint64_t digest;
    double val;
    TRY(set_up(r));
    int64_t before = r->step;
    TRY(train(r));
    TRY(validate(r, &val));
    if (r->rank == 0 && r->o->memory) print_memory(r, r->step > before);
    if (r->rank == 0) printf("val loss %.4f\n", val);
    if (r->o->sample) TRY(write_sample(r));
    TRY(neo_state_digest_group(r->state, &group, &digest));
    return agree(r->comm, r->rank ? NEO_OK : print_state(digest));
}

/* An error that all ranks have (agreement puts "rank 2: " before it) is printed by rank 0, and none leaves before: a
   launcher ends the job when one does. After one that a rank has alone the others would wait for it: it breaks the
   group. When a rank is lost every process says what it has seen. */
static void stop(const run *r, job *j, neo_status status) {
    int lost = status == NEO_ERR_TIMEOUT || status == NEO_ERR_PEER || status == NEO_ERR_DIVERGED;
    if (r->ranks > 1 && (lost || strncmp(neo_last_error(), "rank ", 5))) {
        neo_comm_abort(r->comm, neo_last_error());
        return;
    }
    if (r->rank == 0) fprintf(stderr, "%sgpt: %s\n", isatty(fileno(stderr)) ? "\n" : "", neo_last_error());
    if (r->rank == 0 || j->silent) j->told = 1;
    (void)agree(r->comm, NEO_OK);
}

/* What every rank runs. */
static neo_status run_rank(neo_comm *comm, void *user) {
    job *j = user;
    run *r = calloc(1, sizeof *r);
    if (!r) return neo_fail(NEO_ERR_MEMORY, "out of memory");
    r->comm = r->t.data = comm, r->ctx = r->t.m.ctx = neo_comm_ctx(comm);
    r->job = j, r->o = &j->o;
    r->rank = neo_comm_rank(comm), r->ranks = neo_comm_size(comm);
    if (neo_comm_get_backend(comm) == NEO_BACKEND_MPI) j->silent = r->rank > 0;
    neo_status status = agree(comm, j->refused[0] ? neo_fail(NEO_ERR_ARG, "%s", j->refused) : NEO_OK);
    if (status == NEO_OK && j->o.help && r->rank == 0) print_help();
    if (status == NEO_OK && !j->o.help) status = run_all(r);
    if (status != NEO_OK) stop(r, j, status);
    neo_comm_wait_all(comm); /* after an error: nothing uses the buffers any more */
    graph_close(r->t.graph);
    neo_state_destroy(r->state);
    neo_fsdp_destroy(r->t.fsdp);
    device_group_end(r->comm, r->t.data);
    destroy_model(&r->t.m);
    free(r);
    return status;
}

/* ---- the job ---------------------------------------------------------------------------------- */

#if defined(NEO_COMM_MPI)
static int threads_of_a_rank(int64_t ranks) { (void)ranks; return 0; } /* it knows how many ranks a host has */
#else
static int threads_of_a_rank(int64_t ranks) {
    neo_ctx *ctx;
    if (neo_ctx_create(NULL, &ctx) != NEO_OK) return 1;
    int cores = neo_ctx_threads(ctx);
    neo_ctx_destroy(ctx);
    return cores > ranks ? cores / (int)ranks : 1;
}
#endif

static neo_status parse_job(int argc, char **argv, job *j) {
    options *o = &j->o;
    const char *isa = getenv("NEO_ISA");
    neo_comm_desc d = {.ctx = {.seed = 0, .logger = {log_stderr, j}}};
    TRY(parse_options(argc, argv, o));
    if (isa) TRY(neo_isa_parse(isa, &d.ctx.isa));
    TRY(device_check(o->device));
    j->device = (device_choice){o->device, o->exact != 0};
    d.open_device = o->help ? NULL : device_open, d.open_user = &j->device;
    if (!o->help) TRY(read_text(o, &j->text));
    d.ctx.seed = (uint64_t)o->seed;
    d.ctx.repro_shards = (int)o->repro_shards;
    d.ctx.threads = o->threads ? (int)o->threads : threads_of_a_rank(o->ranks);
    d.ranks = (int)o->ranks;
    j->comm = d;
    return NEO_OK;
}

int main(int argc, char **argv) {
    static job j = {.o = {.data = "examples/data/shakespeare/input.txt", .shard = "full", .accumulate_mode = "each",
                          .dtype = "f32", .products = "f32", .device = "cpu", .graph = "on", .prefix = "transformer.", .layers = 4, .heads = 4, .width = 128,
                          .context = 64, .batch = 12, .steps = 2000, .warmup = 100, .seed = 1, .ranks = 1,
                          .accumulate = 1, .sample = 300, .lr = 2e-3, .min_lr = 1e-4, .weight_decay = 0.1,
                          .beta2 = 0.99, .clip = 1, .temperature = 0.8},
                    .comm = {.ranks = 1}, /* enough to say what is wrong with the options */
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    if (parse_job(argc, argv, &j) != NEO_OK) snprintf(j.refused, sizeof j.refused, "%s", neo_last_error());
    neo_status status = neo_comm_init_env(&j.comm, run_rank, &j);
    free(j.text.data);
    if (status == NEO_OK) return 0;
    if (!j.told) fprintf(stderr, "gpt: %s\n", neo_last_error());
    return 1;
}
