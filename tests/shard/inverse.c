/* inverse.c: batches that have each distinct bag of a feature once, of tables on many ranks.

   The oracle is a neo_bags that sees the whole batch written out: pooled rows, weights and
   optimizer state of every plan must have its bits. Bytes: of ids, those of the distinct bags. */
#include "common.h"

/* Many bags of a feature are those of one of five samples. */
static void repeat_bags(Case *c) {
    for (int s = 0; s < c->steps; s++) {
        const int64_t n = c->size[s], bags = n * c->set->features;
        int64_t *offsets = malloc(8 * (size_t)(bags + 1));
        int64_t *ids = malloc(8 * (size_t)(bags * c->set->most + 1));
        float *weights = malloc(4 * (size_t)(bags * c->set->most + 1));
        offsets[0] = 0;
        for (int64_t i = 0; i < bags; i++) {
            int64_t from = i - i % n + (int64_t)test_random() % 5;
            if (from - i + i % n >= n || test_random() % 4 == 0) from = i;
            const int64_t at = c->offsets[s][from], count = c->offsets[s][from + 1] - at;
            memcpy(ids + offsets[i], c->ids[s] + at, 8 * (size_t)count);
            memcpy(weights + offsets[i], c->weights[s] + at, 4 * (size_t)count);
            offsets[i + 1] = offsets[i] + count;
        }
        free(c->offsets[s]), free(c->ids[s]), free(c->weights[s]);
        c->offsets[s] = offsets, c->ids[s] = ids, c->weights[s] = weights;
    }
}

/* Ranks that fold their batches: all, every second, none. */
enum { FOLD_ALL, FOLD_SOME, FOLD_NONE };
typedef struct Run {
    Case c;
    int fold, keep;
    int64_t bytes; /* of lengths and ids, all ranks */
} Run;

static neo_status fold_batch(neo_ctx *ctx, const Case *c, Mine *m, neo_jagged_buffer **buffer) {
    const neo_jagged_desc d = {.feature_count = c->set->features,
                               .max_bags = m->n * c->set->features,
                               .max_ids = m->offsets[m->n * c->set->features],
                               .weighted = c->weighted,
                               .dedup = 1};
    const neo_jagged *part = &m->j;
    TRY(neo_jagged_create(ctx, &d, buffer));
    TRY(neo_jagged_stack(*buffer, &part, 1));
    TRY(neo_jagged_dedup(*buffer));
    m->j = *neo_jagged_view(*buffer);
    return NEO_OK;
}
static neo_status step(const Run *run, neo_shard *shard, Mine *mine, int s, int rank) {
    const Case *c = &run->c;
    Mine *m = &mine[s];
    const int64_t stride = c->width + s;
    float *out = malloc(4 * (size_t)(m->n * stride + 1)), *dout = out;
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m->n, c->width);
    t.stride[0] = stride;
    TRY(neo_shard_forward_begin(shard, &m->j, c->size[s]));
    if (c->prefetch && s + 1 < c->steps)
        TRY(neo_shard_prefetch(shard, &mine[s + 1].j, c->size[s + 1]));
    TRY(neo_shard_forward_end(shard, t));
    for (int64_t i = 0; i < m->n; i++)
        EXPECT(memcmp(out + i * stride, c->out[s] + (m->begin + i) * c->width,
                      4 * (size_t)c->width) == 0);
    for (int64_t i = 0; i < m->n; i++)
        memcpy(dout + i * stride, c->dout[s] + (m->begin + i) * c->width, 4 * (size_t)c->width);
    if (run->keep) {
        TRY(neo_shard_accumulate(shard, t));
        TRY(neo_shard_step(shard, 0.05f));
    } else {
        TRY(neo_shard_backward(shard, t, 0.05f));
    }
    free(out);
    return NEO_OK;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Run *run = user;
    const Case *c = &run->c;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    const int folds = run->fold == FOLD_ALL || (run->fold == FOLD_SOME && rank % 2 == 0);
    neo_jagged_buffer *buffer[MAX_STEPS] = {NULL};
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    int64_t given = 0, full = 0;
    TRY(make_planned(c, comm, &shard));
    for (int s = 0; s < c->steps; s++) {
        mine_make(&mine[s], c, s, rank, ranks);
        if (!folds) continue;
        full += neo_jagged_id_count(&mine[s].j);
        TRY(fold_batch(neo_comm_ctx(comm), c, &mine[s], &buffer[s]));
        given += neo_jagged_id_count(&mine[s].j);
    }
    const int64_t allocs = neo_ctx_memory(neo_comm_ctx(comm)).alloc_count;
    for (int s = 0; s < c->steps; s++) TRY(step(run, shard, mine, s, rank));
    neo_shard_stats stats = neo_shard_get_stats(shard);
    EXPECT(neo_ctx_memory(neo_comm_ctx(comm)).alloc_count == allocs + stats.grow_count);
    EXPECT(stats.ids_given == given && stats.ids_full == full);
    EXPECT(!folds || given < full || mine[0].n < 4);
    int64_t bytes = stats.ids.op[NEO_COMM_ALL_TO_ALL].bytes[NEO_LEVEL_LOCAL] +
                    stats.ids.op[NEO_COMM_ALL_TO_ALL].bytes[NEO_LEVEL_CROSS];
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &bytes, &bytes, 1, NEO_I64, NULL));
    if (rank == 0) run->bytes = bytes;
    TRY(check_digest(comm, shard, c->digest));
    neo_shard_destroy(shard);
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]), neo_jagged_destroy(buffer[s]);
    return NEO_OK;
}

/* Slices of columns on one rank share the ids of their rows. */
static int has_flow(const Case *c, int64_t at) {
    const neo_piece *p = &c->pieces[at];
    int first = p->rank != NEO_EVERY_RANK;
    for (int64_t q = 0; q < at && first; q++)
        first = c->pieces[q].table != p->table || c->pieces[q].rank != p->rank ||
                c->pieces[q].first_row != p->first_row || c->pieces[q].rows != p->rows;
    return first;
}
/* Ids of bags that repeat on the rank of their sample, and whose row is in the piece on another. */
static int64_t ids_saved(const Case *c, const neo_piece *piece) {
    const int ranks = c->plan.cluster.ranks;
    int64_t count = 0;
    for (int s = 0; s < c->steps; s++)
        for (int64_t bag = 0; bag < c->size[s] * c->set->features; bag++) {
            const int64_t n = c->size[s], *o = c->offsets[s];
            const int owner = rank_of(c, s, bag % n, ranks);
            int again = 0;
            if (c->set->feature_table[bag / n] != piece->table || owner == piece->rank) continue;
            for (int64_t q = bag - bag % n; q < bag && !again; q++)
                again = rank_of(c, s, q % n, ranks) == owner &&
                        o[q + 1] - o[q] == o[bag + 1] - o[bag] &&
                        memcmp(c->ids[s] + o[q], c->ids[s] + o[bag],
                               8 * (size_t)(o[q + 1] - o[q])) == 0 &&
                        (!c->weighted || memcmp(c->weights[s] + o[q], c->weights[s] + o[bag],
                                                4 * (size_t)(o[q + 1] - o[q])) == 0);
            for (int64_t k = o[bag]; again && k < o[bag + 1]; k++)
                count += c->ids[s][k] >= piece->first_row &&
                         c->ids[s][k] < piece->first_row + piece->rows;
        }
    return count;
}
static void test_plans(void) {
    static Run run;
    int cells = 0;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int plan = 0; plan <= RANDOM + 1; plan++, cells++) {
            Case *c = &run.c;
            const neo_pooling pooling = cells % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM;
            neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
            char what[80];
            int64_t bytes[3] = {0, 0, 0};
            memset(&run, 0, sizeof run);
            cut_block = 16;
            case_tables(c, &ZIPF, cells % 5 == 0 ? NEO_BAG_ADAGRAD : KINDS, -1, pooling);
            c->steps = 5;
            c->weighted = cells % 3 == 0;
            c->prefetch = cells % 2;
            c->plan.skip_empty = cells / 2 % 2;
            c->bags.inverse = 1;
            case_data(c);
            repeat_bags(c);
            run.keep = cells % 4 == 1;
            c->plan.kept_batches = run.keep;
            if (cells % 4 == 2)
                c->plan.wire_forward = NEO_WIRE_BF16, c->plan.wire_backward = NEO_WIRE_F16;
            place_case(c, plan, ranks);
            if (c->plan.wire_forward) cut_block = 64;
            if (c->plan.wire_forward) place_case(c, plan, ranks);
            case_oracle(c, ctx);
            for (run.fold = FOLD_ALL; run.fold <= FOLD_NONE; run.fold++) {
                snprintf(what, sizeof what, "%d ranks, plan %d, fold %d", ranks, plan, run.fold);
                spawn_case(c, what, ranks, run_rank, &run);
                bytes[run.fold] = run.bytes;
            }
            CHECK(bytes[FOLD_ALL] <= bytes[FOLD_SOME] && bytes[FOLD_SOME] <= bytes[FOLD_NONE]);
            int64_t saved = 0; /* as >>shard says */
            for (int64_t p = 0; p < c->piece_count; p++)
                if (has_flow(c, p)) saved += ids_saved(c, &c->pieces[p]) * (c->weighted ? 8 : 4);
            CHECK(ranks == 1 || saved > 0 || plan == NEO_DATA_PARALLEL);
            CHECK_INT(bytes[FOLD_NONE] - bytes[FOLD_ALL], saved);
            case_free(c);
            neo_ctx_destroy(ctx);
        }
}

/* ---- what is refused, by all ranks alike ---- */
static neo_status refused_rank(neo_comm *comm, void *user) {
    const Case *c = user;
    const int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    neo_jagged_buffer *buffer;
    neo_shard *shard;
    Mine m;
    TRY(make(c, comm, &shard));
    mine_make(&m, c, 0, rank, ranks);
    TRY(fold_batch(neo_comm_ctx(comm), c, &m, &buffer));
    float *out = malloc(4 * (size_t)(m.n * c->width + 1));
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    if (!c->bags.inverse) {
        EXPECT_ERR(neo_shard_forward(shard, &m.j, c->size[0], t), NEO_ERR_STATE,
                   "set neo_bags_desc.inverse of the plan's bags");
    } else if (c->plan.weight_grad) {
        EXPECT_ERR(neo_shard_forward(shard, &m.j, c->size[0], t), NEO_ERR_UNSUPPORTED,
                   "and weight_grad: write it out by neo_jagged_expand");
    } else { /* the message names the first sample that reads the bag */
        int64_t *ids = (int64_t *)(uintptr_t)m.j.ids;
        const int64_t kept = ids[0];
        char text[80];
        int64_t first = 0, reader = 0;
        while (m.j.offsets[first + 1] == 0) first++;
        while (m.j.inverse[reader] != first) reader++;
        if (rank == 0) ids[0] = 1 << 20;
        snprintf(text, sizeof text, "feature 0), sample %d, position 0: id 1048576", (int)reader);
        EXPECT_ERR(neo_shard_forward(shard, &m.j, c->size[0], t), NEO_ERR_RANGE,
                   rank == 0 ? text : "id 1048576");
        ids[0] = kept;
        TRY(neo_shard_forward(shard, &m.j, c->size[0], t));
    }
    free(out);
    mine_free(&m);
    neo_jagged_destroy(buffer);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void test_refused(void) {
    static Case c;
    for (int way = 0; way < 3; way++) {
        memset(&c, 0, sizeof c);
        case_tables(&c, &ZIPF, NEO_BAG_SGD, 0, NEO_POOL_SUM);
        c.steps = 1;
        c.bags.inverse = way > 0;
        c.plan.weight_grad = way == 1;
        case_data(&c);
        repeat_bags(&c);
        place_case(&c, NEO_ROW_WISE, 2);
        spawn_refused(&c, 2, refused_rank, &c);
        case_free(&c);
    }
}

int main(void) {
    cut_block = 16;
    RUN(test_plans);
    RUN(test_refused);
    return test_end("shard/inverse");
}
