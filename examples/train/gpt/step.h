/* step.h: the trainer of one rank: the FSDP units of the model, a training step, evaluation, and
   drawing a sample. */
#ifndef GPT_STEP_H
#define GPT_STEP_H
#include "model.h"

/* Characters are bytes, and those that occur are numbered in their order; or tokens, two bytes of a
   number each, the lower first. */
typedef struct text {
    unsigned char *data;
    int64_t length, train; /* characters [0, train) train, the rest validate */
    unsigned char letter[256];
    int number[256];       /* -1: does not occur */
    int is_tokens, vocabulary;
    unsigned char *pieces; /* --tokenizer: of each token its bytes, behind their number; or NULL */
    uint32_t *piece;       /* [piece_count]: their places */
    int piece_count;       /* less than the vocabulary where that is rounded up */
    uint32_t checksum;
} text;

static int64_t token_at(const text *t, int64_t i) {
    const unsigned char *p = t->data + (t->is_tokens ? 2 * i : i);
    return t->is_tokens ? p[0] | p[1] << 8 : t->number[*p];
}

typedef struct trainer {
    neo_comm *comm, *data; /* data: a group for tensors, where the ranks compute */
    neo_fsdp *fsdp;
    model m;
    const text *text;
    int64_t batch, micro_batches; /* sequences of a micro-batch, on all ranks */
    neo_schedule schedule;
    device_graph *graph; /* or NULL */
    neo_exact loss[2]; /* this rank's sums of a step, and of the one before, still on a GPU maybe */
    int turn;          /* the index of this step's sum */
    int stops;         /* a signal has asked a rank to stop; on all ranks */
} trainer;

/* Units of the FSDP: the root, open around the blocks, and the blocks. */
enum { ROOT, BLOCKS };

/* predicted: the memory and traffic of the FSDP on this rank. */
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
    int ranks = neo_comm_size(t->comm), rank = neo_comm_rank(t->comm);
    neo_status status = neo_fsdp_predict(t->m.ctx, &d, ranks, rank, predicted);
    TRY(neo_comm_agree(t->comm, status));
    return neo_fsdp_create(t->data, &d, &t->fsdp);
}

/* The beginning of the text of sequence `index` of a step: the same on any number of ranks. */
static int64_t window_of(const trainer *t, int64_t step, int64_t index) {
    uint32_t word[4];
    neo_random_u32x4(neo_ctx_seed(t->m.ctx), neo_hash("window"), step, NEO_STREAM_DATA,
                     (uint64_t)index, word);
    uint64_t number = (uint64_t)word[0] << 32 | word[1];
    return (int64_t)(number % (uint64_t)(t->text->train - t->m.context));
}
/* Row i of the model's input: the sequence that begins at `at`. */
static void put_sequence(model *m, const text *from, int64_t at, int64_t row) {
    int64_t *ids = m->next_ids + row * m->context, *targets = m->next_targets + row * m->context;
    for (int64_t k = 0; k < m->context; k++) {
        ids[k] = token_at(from, at + k);
        targets[k] = token_at(from, at + k + 1);
    }
}
/* This rank's sequences [*first, *first + count) of a piece of a batch. */
static int64_t sequences_of(const trainer *t, neo_leaves *part, int64_t *first) {
    int shards = neo_ctx_repro_shards(t->m.ctx);
    *first = neo_leaf_begin(part->batch, shards, part->first);
    part->rows_per_sample = t->m.context;
    return neo_leaf_begin(part->batch, shards, part->first + part->count) - *first;
}

/* Logits of the sequences in the model; collective, so also on ranks without sequences. */
static neo_status forward(trainer *t) {
    TRY(neo_fsdp_forward_begin(t->fsdp, ROOT));
    neo_tensor head;
    if (t->m.weights_first) TRY(take_head(&t->m, &head));
    for (int i = 0; i < t->m.layers && t->m.weights_first; i++) {
        TRY(neo_fsdp_forward_begin(t->fsdp, BLOCKS + i));
        TRY(take_weights(&t->m, &t->m.block[i]));
        TRY(neo_fsdp_forward_end(t->fsdp, BLOCKS + i));
    }
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
        if (t->m.pairs && i % 2) continue; /* its weights' gradients come with the next block's */
        if (t->m.pairs && i + 1 < t->m.layers) TRY(neo_fsdp_backward_end(t->fsdp, BLOCKS + i + 1));
        TRY(neo_fsdp_backward_end(t->fsdp, BLOCKS + i));
    }
    TRY(embed_backward(&t->m, part));
    return neo_fsdp_backward_end(t->fsdp, ROOT);
}
/* dlogits: slopes(), or none. positions: of all ranks and micro-batches. */
static neo_status loss(trainer *t, int64_t positions, neo_tensor dlogits) {
    neo_tensor logits = logits_of(&t->m), targets = used(&t->m, t->m.targets);
    neo_loss_desc d = {.batch = positions, .sum = &t->loss[t->turn]};
    d.scale = neo_fsdp_loss_scale(t->fsdp);
    return neo_cross_entropy(t->m.ctx, &d, logits, targets, dlogits, NULL);
}

/* Forward and backward of this rank's sequences in a piece of a micro-batch. */
static neo_status train_piece(trainer *t, int64_t step, int64_t micro, int piece) {
    model *m = &t->m;
    neo_leaves part = neo_fsdp_piece(t->fsdp, piece, t->batch);
    int64_t first, count = sequences_of(t, &part, &first);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = window_of(t, step, micro * t->batch + first + i);
        put_sequence(m, t->text, at, i);
    }
    TRY(send(m, count * m->context));
    TRY_SPAN(m->ctx, "forward", forward(t));
    TRY(loss(t, t->batch * t->micro_batches * m->context, slopes(m)));
    TRY_SPAN(m->ctx, "backward", backward(t, &part, piece));
    return NEO_OK;
}
/* One step; its loss is in loss[step % 2] when it is over. With a graph each piece is a launch, the
   last one with the optimizer's step. The outcome of a launch comes with the next one, so that one
   piece is prepared while a GPU computes another. */
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

/* The sum of `mine` over all ranks, the same in any order: exact sums are integers. With it goes
   whether a signal asks to stop. */
static neo_status sum_loss(trainer *t, neo_exact *mine, double *sum) {
    struct { neo_exact loss; int64_t stops; } all = {*mine, neo_stop_signal() != 0};
    int64_t words = sizeof all / sizeof(int64_t);
    TRY(neo_comm_all_reduce(t->comm, NEO_REDUCE_SUM, &all, &all, words, NEO_I64, NULL));
    *sum = neo_exact_value(&all.loss);
    t->stops = all.stops > 0;
    neo_exact_zero(mine);
    return NEO_OK;
}

/* Whether a signal asks any rank to stop. Collective. */
static neo_status look_for_stop(trainer *t) {
    int64_t asked = neo_stop_signal() != 0;
    TRY(neo_comm_all_reduce(t->comm, NEO_REDUCE_MAX, &asked, &asked, 1, NEO_I64, NULL));
    t->stops = asked != 0;
    return NEO_OK;
}

/* The mean loss of the text [from, to), cut in sequences that follow one another. A signal ends it
   early (t->stops): every 16 batches the ranks ask each other. */
static neo_status evaluate(trainer *t, int64_t from, int64_t to, double *mean) {
    model *m = &t->m;
    int64_t total = (to - from - 1) / m->context, first;
    m->length = m->context;
    for (int64_t done = 0; done < total && !t->stops; done += t->batch) {
        if (done / t->batch % 16 == 15) TRY(look_for_stop(t));
        for (int piece = 0; piece < neo_fsdp_pieces(t->fsdp); piece++) {
            int64_t batch = total - done < t->batch ? total - done : t->batch;
            neo_leaves part = neo_fsdp_piece(t->fsdp, piece, batch);
            int64_t count = sequences_of(t, &part, &first);
            for (int64_t i = 0; i < count; i++)
                put_sequence(m, t->text, from + (done + first + i) * m->context, i);
            TRY(send(m, count * m->context));
            TRY(forward(t));
            TRY(loss(t, total * m->context, neo_tensor_none()));
        }
    }
    TRY(neo_fsdp_cancel(t->fsdp)); /* forgets gathered weights: the next step is like all others */
    TRY(sum_loss(t, &t->loss[t->turn], mean));
    *mean /= (double)(total * m->context);
    return NEO_OK;
}

/* The next character after those in m->next_ids, the one at `place` of the sample. Every rank draws
   the same one. */
static neo_status draw_next(trainer *t, int64_t count, const neo_sampling *sampling, int64_t place,
                            int64_t *next) {
    model *m = &t->m;
    m->length = count;
    TRY(send(m, count));
    TRY(forward(t));
    neo_tensor logits = neo_tensor_rows(logits_of(m), count - 1, 1);
    if (logits.dtype != NEO_F32) {
        TRY(neo_tensor_convert(m->ctx, logits, m->wide, NULL));
        logits = m->wide;
    }
    TRY(neo_tensor_copy(m->ctx, logits,
                        neo_tensor_2d(m->next_logits, NEO_F32, 1, m->vocabulary)));
    *next = neo_sample(sampling, m->next_logits, m->vocabulary, place);
    return NEO_OK;
}

#endif
