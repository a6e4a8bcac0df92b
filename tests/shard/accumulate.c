/* accumulate.c: sharded tables whose gradients are kept over several batches, clipped by one norm,
   and scaled.

   The oracle is one neo_bags with all samples that accumulates, scales and steps alike: under every
   plan the pooled rows, the squares of what is kept, the weights and the optimizer's state must
   have its bits; and with one batch per step those of the fused backward. What is kept has the
   memory that was planned. */
#include "common.h"
#include "meter.h"

/* How a case trains: groups of `micros` batches, each group a step. */
typedef struct Keep {
    Case c;
    int micros, kept_batches;
    float scale, clip; /* of the loss; of the norm, 0: none */
    float lr;
    int clears;      /* 1: a batch that is forgotten comes before each step */
    int evaluates;   /* 1: forward alone, between a batch and the step */
    int empty;       /* 1: a step of nothing ends the run */
    neo_exact squares[MAX_STEPS]; /* of the oracle, of each step, after the division by scale */
    neo_exact of_table[MAX_STEPS]; /* of the table that is step's in turn */
    uint64_t digest;
    int64_t grown;   /* rank 0's */
} Keep;

static float clip_factor(const Keep *k, const neo_exact *squares) {
    double factor = (double)k->clip / (sqrt(neo_exact_value(squares)) + 1e-6);
    return k->clip > 0 && factor < 1 ? (float)factor : 1.0f;
}
static int same_sum(const neo_exact *a, const neo_exact *b) {
    neo_exact x = *a, y = *b;
    neo_exact_normalize(&x), neo_exact_normalize(&y);
    return memcmp(x.word, y.word, sizeof x.word) == 0 && x.nan == y.nan && x.pos_inf == y.pos_inf;
}
/* dout of step s as it leaves the loss: scaled. */
static void scaled_dout(const Keep *k, int s, int64_t begin, int64_t n, float *to) {
    for (int64_t i = 0; i < n * k->c.width; i++)
        to[i] = k->c.dout[s][begin * k->c.width + i] * k->scale;
}
static void keep_oracle(Keep *k, neo_ctx *ctx) {
    Case *c = &k->c;
    neo_pooling pooling = c->tables[0].pooling;
    int narrow = c->plan.wire_forward != NEO_WIRE_F32 || c->plan.wire_backward != NEO_WIRE_F32,
        step = 0;
    neo_bags *bags;
    for (int t = 0; t < c->set->tables; t++) c->tables[t].pooling = narrow ? NEO_POOL_SUM : pooling;
    neo_bags_desc d = c->bags;
    d.max_kept_rows = 10000;
    CHECK_OK(neo_bags_create(ctx, &d, &bags));
    for (int t = 0; t < c->set->tables; t++) c->tables[t].pooling = pooling;
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s];
        neo_jagged j = whole_batch(c, s);
        float *dout = malloc(4 * (size_t)(n * c->width + 1));
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(c->out[s], NEO_F32, n, c->width)));
        scaled_dout(k, s, 0, n, dout);
        if (narrow) {
            through_wire(c, ctx, c->plan.wire_forward, c->out[s], n);
            if (pooling == NEO_POOL_MEAN) divide(c, s, c->out[s], c->out[s]);
            if (pooling == NEO_POOL_MEAN) divide(c, s, dout, dout);
            through_wire(c, ctx, c->plan.wire_backward, dout, n);
        }
        CHECK_OK(neo_bags_accumulate(bags, &j, neo_tensor_2d(dout, NEO_F32, n, c->width), NULL));
        free(dout);
        if (s % k->micros != k->micros - 1 && s + 1 < c->steps) continue;
        CHECK_OK(neo_bags_scale_grads(bags, 1.0f / k->scale));
        neo_exact_zero(&k->squares[step]);
        CHECK_OK(neo_bags_grad_squares(bags, &k->squares[step]));
        neo_exact_zero(&k->of_table[step]);
        CHECK_OK(neo_bags_table_squares(bags, step % c->set->tables, &k->of_table[step]));
        if (k->clip > 0) CHECK_OK(neo_bags_scale_grads(bags, clip_factor(k, &k->squares[step])));
        CHECK_OK(neo_bags_step(bags, k->lr));
        step++;
    }
    if (k->empty) CHECK_OK(neo_bags_step(bags, k->lr));
    k->digest = bags_digest(ctx, bags);
    neo_bags_destroy(bags);
}

/* Row sums of one step over batches [first, end): of the rows that any of them touched. */
static int64_t cut_bytes(const Case *c, int first, int end) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < c->piece_count; i++) {
        const neo_piece *p = &c->pieces[i];
        char touched[2000] = {0};
        int64_t rows = 0;
        if (p->rank == NEO_EVERY_RANK || p->cols == c->set->dims[p->table]) continue;
        for (int s = first; s < end; s++)
            for (int f = 0; f < c->set->features; f++)
                for (int64_t k = c->offsets[s][f * c->size[s]];
                     c->set->feature_table[f] == p->table &&
                     k < c->offsets[s][(f + 1) * c->size[s]];
                     k++)
                    touched[c->ids[s][k]] = 1;
        for (int64_t row = p->first_row; row < p->first_row + p->rows; row++) rows += touched[row];
        for (int r = 0; r < c->plan.cluster.ranks; r++) {
            int there = 0;
            for (int64_t k = 0; k < c->piece_count; k++)
                there |= c->pieces[k].table == p->table && c->pieces[k].first_row == p->first_row &&
                         c->pieces[k].rank == r;
            if (r != p->rank && there) /* in each group of replicas */
                bytes += (c->plan.replicas > 1 ? c->plan.replicas : 1) * 4 * rows *
                         ((p->cols + 15) / 16) * sums_of(&c->tables[p->table].optim);
        }
    }
    return bytes;
}
static neo_status sum_squares(neo_comm *comm, neo_exact *sum) {
    neo_exact_normalize(sum);
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, sum, sum, (int64_t)(sizeof *sum / 8), NEO_I64,
                            NULL));
    neo_exact_normalize(sum);
    return NEO_OK;
}
/* Batch s: forward, compared if it is in its place, and its gradients are kept. */
static neo_status keep_batch(Keep *k, neo_shard *shard, int rank, const Mine *m, const Mine *next,
                             int s, int in_place) {
    const Case *c = &k->c;
    float *out = malloc(4 * (size_t)(m->n * c->width + 1));
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m->n, c->width);
    neo_status status = neo_shard_forward_begin(shard, &m->j, c->size[s]);
    if (status == NEO_OK && c->prefetch == 1 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK) status = neo_shard_forward_end(shard, t);
    if (status == NEO_OK && c->prefetch == 2 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK && in_place)
        EXPECT(memcmp(out, c->out[s] + m->begin * c->width, 4 * (size_t)(m->n * c->width)) == 0);
    scaled_dout(k, s, m->begin, m->n, out);
    if (status == NEO_OK) status = neo_shard_backward_begin(shard, t);
    if (status == NEO_OK && c->prefetch == 3 && next)
        status = neo_shard_prefetch(shard, &next->j, c->size[s + 1]);
    if (status == NEO_OK) status = neo_shard_accumulate_end(shard);
    free(out);
    return status;
}
/* The step of batches [first, end). */
static neo_status take_step(Keep *k, neo_comm *comm, neo_shard *shard, int step, int first,
                            int end) {
    int rank = neo_comm_rank(comm);
    neo_exact squares, of_table;
    TRY(neo_shard_scale_grads(shard, 1.0f / k->scale));
    neo_exact_zero(&squares);
    TRY(neo_shard_grad_squares(shard, &squares));
    TRY(sum_squares(comm, &squares));
    EXPECT(same_sum(&squares, &k->squares[step]));
    neo_exact_zero(&of_table);
    TRY(neo_shard_table_squares(shard, step % k->c.set->tables, &of_table));
    TRY(sum_squares(comm, &of_table));
    EXPECT(same_sum(&of_table, &k->of_table[step]));
    if (k->clip > 0) TRY(neo_shard_scale_grads(shard, clip_factor(k, &squares)));
    inside_shard inside = inside_of_shard(shard);
    int64_t before = inside.whole ? 0 : all_to_all_bytes(inside.rows);
    TRY(neo_shard_step(shard, k->lr));
    int64_t sent = inside.whole ? 0 : all_to_all_bytes(inside.rows) - before;
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &sent, &sent, 1, NEO_I64, NULL));
    EXPECT(sent == cut_bytes(&k->c, first, end));
    EXPECT(neo_shard_kept_count(shard) == 0);
    return NEO_OK;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Keep *k = user;
    Case *c = &k->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), step = 0, first = 0;
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    float *spare = malloc(4 * (size_t)(BATCH * c->width));
    for (int s = 0; s < c->steps; s++) mine_make(&mine[s], c, s, rank, ranks);
    TRY(make_planned(c, comm, &shard));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    for (int s = 0; s < c->steps; s++) {
        int last = s % k->micros == k->micros - 1 || s + 1 == c->steps;
        if (k->clears && last) { /* in place of those before, which come again */
            int again = first;
            TRY(keep_batch(k, shard, rank, &mine[0], NULL, 0, s == 0));
            TRY(neo_shard_clear(shard));
            EXPECT(neo_shard_kept_count(shard) == 0);
            for (; again < s; again++)
                TRY(keep_batch(k, shard, rank, &mine[again], NULL, again, 1));
        }
        TRY(keep_batch(k, shard, rank, &mine[s], s + 1 < c->steps ? &mine[s + 1] : NULL, s, 1));
        int64_t kept = neo_shard_kept_count(shard);
        TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &kept, &kept, 1, NEO_I64, NULL));
        EXPECT(kept > 0);
        if (k->evaluates)
            TRY(neo_shard_forward(shard, &mine[s].j, c->size[s],
                                  neo_tensor_2d(spare, NEO_F32, mine[s].n, c->width)));
        if (!last) continue;
        TRY(take_step(k, comm, shard, step++, first, s + 1));
        first = s + 1;
    }
    if (k->empty) TRY(neo_shard_step(shard, k->lr));
    neo_shard_stats stats = neo_shard_get_stats(shard);
    EXPECT(stats.steps == step + k->empty);
    EXPECT(neo_ctx_memory(ctx).alloc_count == allocs + stats.grow_count);
    if (rank == 0) k->grown = stats.grow_count;
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    free(spare);
    TRY(check_digest(comm, shard, k->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}

/* ---- the grid ---- */
enum { PLANS = RANDOM + 1 };
static void spawn(Keep *k, const char *what, int ranks) {
    k->c.plan.kept_batches = k->kept_batches;
    spawn_case(&k->c, what, ranks, run_rank, k);
}
/* A cell of the grid: all, or as many that each two of its coordinates meet. Under a sanitizer as
   many of a half or a quarter of the ways, each of which has a run on one rank first; odd steps, so
   that these still meet every plan. */
static int selected(int kind, int how, int ranks, int plan) {
    static const int EVERY[] = {8, 9, 13};
    return test_grid() || (plan + kind + 3 * how + 2 * ranks) % EVERY[TEST_WATCHED] == 0;
}
/* groups: of replicas whose gradients meet merged. */
static void one_cell(Keep *k, int kind, int how, int plan, int ranks, int groups) {
    Case *c = &k->c;
    char what[100];
    c->prefetch = k->clears || k->evaluates ? 0 : (plan + ranks) % 4;
    c->plan.replicas = groups;
    c->plan.sync_every = groups > 1 ? NEO_SYNC_MERGED : 0;
    place_case(c, plan, ranks / groups);
    snprintf(what, sizeof what, "optimizer %d, way %d, plan %d on %d ranks, %d groups", kind, how,
             plan, ranks, groups);
    spawn(k, what, ranks);
    if (plan == NEO_TABLE_WISE || plan == NEO_COLUMN_WISE || plan == NEO_DATA_PARALLEL)
        CHECK_INT(k->grown, 0);
}
static void what_is_kept_has_the_bits_of_one_rank(void) {
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    cut_block = 16;
    for (int kind = 0; kind <= KINDS; kind++)
        for (int how = 0; how < 6;
             how++) { /* micro-batches 1, 2, 3; a norm; a scale; what comes between */
            if ((kind + how) % (1 << TEST_WATCHED)) continue;
            static Keep k;
            Case *c = &k.c;
            memset(&k, 0, sizeof k);
            neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
            c->steps = 6;
            c->weighted = kind % 4 == 3;
            case_tables(c, &ZIPF, kind, how % 4, (kind + how) % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
            for (int t = 0; t < c->set->tables; t++)
                c->tables[t].dtype = DTYPES[how == 5 ? t % 4 : (kind + how) % 4];
            case_data(c);
            k.micros = 1 + how % 3;
            k.kept_batches = how == 4 ? 5 : k.micros;
            k.lr = 0.05f;
            k.clip = how >= 2 ? 1.5f : 0.0f;
            k.scale = how >= 3 ? 0x1p16f : 1.0f;
            k.clears = how == 4;
            k.evaluates = how == 5;
            k.empty = how == 2;
            keep_oracle(&k, ctx);
            if (k.micros == 1 && k.clip == 0) { /* accumulate and step are the fused backward */
                case_oracle(c, ctx);
                CHECK(c->digest == k.digest);
            }
            for (int ranks = 1; ranks <= 4; ranks++)
                for (int plan = 0; plan < PLANS; plan++)
                    for (int groups = 1; groups <= 1 + (ranks % 2 == 0); groups++)
                        if (selected(kind, how, ranks, plan + 4 * groups))
                            one_cell(&k, kind, how, plan, ranks, groups);
            case_free(c);
            neo_ctx_destroy(ctx);
        }
}
/* All wires: rows are rounded alike under every plan. */
static void wires_round_what_is_kept(void) {
    for (int i = 0; i < NEO_WIRE_COUNT * (1 << test_grid()); i++) {
        static Keep k;
        Case *c = &k.c;
        char what[100];
        int ranks = 1 + (i + i / NEO_WIRE_COUNT) % 4;
        memset(&k, 0, sizeof k);
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        c->steps = 4;
        c->plan.wire_forward = (neo_wire)(i % NEO_WIRE_COUNT);
        c->plan.wire_backward = (neo_wire)((i + i / NEO_WIRE_COUNT) % NEO_WIRE_COUNT);
        cut_block = c->plan.wire_forward > NEO_WIRE_BF16 || c->plan.wire_backward > NEO_WIRE_BF16
                        ? NEO_WIRE_BLOCK
                        : 16;
        case_tables(c, &ZIPF, KINDS, -1, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        case_data(c);
        k.micros = k.kept_batches = 2;
        k.lr = 0.05f;
        k.clip = 1.5f;
        k.scale = 1.0f;
        keep_oracle(&k, ctx);
        place_case(c, i % 2 ? RANDOM : MIXED, ranks);
        snprintf(what, sizeof what, "wires %s and %s on %d ranks",
                 neo_wire_name(c->plan.wire_forward), neo_wire_name(c->plan.wire_backward), ranks);
        spawn(&k, what, ranks);
        case_free(c);
        neo_ctx_destroy(ctx);
    }
}
/* Far more ids than planned: buffers grow, with what is kept in them. */
static void what_is_kept_stays_where_buffers_grow(void) {
    cut_block = 16;
    for (int i = 0; i < 8; i++) {
        static Keep k;
        Case *c = &k.c;
        int ranks = 1 + i % 4;
        memset(&k, 0, sizeof k);
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        c->steps = 6;
        case_tables(c, &ZIPF, KINDS, -1, NEO_POOL_MEAN);
        case_data(c);
        k.micros = k.kept_batches = 3;
        k.lr = 0.05f;
        k.clip = 1.5f;
        k.scale = 1.0f;
        keep_oracle(&k, ctx);
        place_case(c, i < 4 ? RANDOM : i, ranks);
        c->plan.ids_per_sample = FEW_IDS;
        if (ranks == 1) c->bags.max_ids = 4; /* one rank goes by that */
        spawn(&k, "few ids planned", ranks);
        CHECK(k.grown > 0);
        case_free(c);
        neo_ctx_destroy(ctx);
    }
}

/* ---- what is refused ---- */
static void begin(Keep *k, neo_ctx **ctx, int ranks, int kind) {
    Case *c = &k->c;
    memset(k, 0, sizeof *k);
    cut_block = 16;
    c->steps = 6;
    case_tables(c, &ZIPF, kind < KINDS ? kind : KINDS, -1, NEO_POOL_MEAN);
    case_data(c);
    k->micros = k->kept_batches = 2;
    k->lr = 0.05f;
    k->clip = 1.5f;
    k->scale = 1.0f;
    place_case(c, RANDOM, ranks);
    *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    keep_oracle(k, *ctx);
    memset(wrong, 0, sizeof wrong);
}
static void run(Keep *k, neo_ctx *ctx, int ranks, neo_comm_fn fn) {
    spawn_refused(&k->c, ranks, fn, k);
    case_free(&k->c);
    neo_ctx_destroy(ctx);
}

static neo_status not_planned(neo_comm *comm, void *user) {
    Keep *k = user;
    Case *c = &k->c;
    neo_shard *shard;
    Mine m;
    int rank = neo_comm_rank(comm), one = neo_comm_size(comm) == 1;
    TRY(make_planned(c, comm, &shard));
    mine_make(&m, c, 0, rank, neo_comm_size(comm));
    char live[80]; /* without the tables, groups and buffers that it made for itself */
    EXPECT(neo_ctx_live(neo_comm_ctx(comm), live, sizeof live) == 1);
    EXPECT(strncmp(live, "1 shard", 7) == 0 && !strstr(live, ", "));
    float *out = calloc((size_t)(m.n * c->width + 1), 4);
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    EXPECT_ERR(neo_shard_accumulate_end(shard), NEO_ERR_STATE,
               "neo_shard_accumulate_end: no backward has begun");
    EXPECT_ERR(neo_shard_step(shard, 1), NEO_ERR_STATE,
               one ? "neo_shard_step: the plan keeps no gradients"
                   : "rank 0: neo_shard_step: the plan keeps no gradients: give "
                     "neo_plan_desc.kept_batches");
    TRY(neo_shard_forward(shard, &m.j, c->size[0], t));
    EXPECT_ERR(
        neo_shard_accumulate(shard, t), NEO_ERR_STATE,
        "neo_shard_accumulate_end: the plan keeps no gradients: give neo_plan_desc.kept_batches");
    TRY(neo_shard_backward_end(shard, 0.05f)); /* goes on all the same */
    EXPECT(neo_shard_get_stats(shard).steps == 1 && neo_shard_kept_count(shard) == 0);
    EXPECT_ERR(neo_shard_step(NULL, 1), NEO_ERR_ARG, "neo_shard_step: shard is NULL");
    free(out);
    mine_free(&m);
    neo_shard_destroy(shard);
    EXPECT(neo_ctx_live(neo_comm_ctx(comm), live, sizeof live) == 0 && live[0] == 0);
    return NEO_OK;
}
/* Between the good calls of a run every wrong one: the digest is that of the good ones. */
static neo_status wrong_calls(neo_comm *comm, void *user) {
    Keep *k = user;
    Case *c = &k->c;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), one = ranks == 1;
    neo_shard *shard;
    Mine mine[MAX_STEPS];
    char text[100];
    float *spare = calloc((size_t)(BATCH * c->width), 4);
    for (int s = 0; s < c->steps; s++) mine_make(&mine[s], c, s, rank, ranks);
    TRY(make_planned(c, comm, &shard));
    for (int s = 0; s < c->steps; s += 2) {
        TRY(keep_batch(k, shard, rank, &mine[s], NULL, s, 1));
        int64_t kept = neo_shard_kept_count(shard);
        /* an id outside its table, of the last rank: all ranks say so, and what is kept stays */
        Mine *m = &mine[s + 1];
        neo_tensor t = neo_tensor_2d(spare, NEO_F32, m->n, c->width);
        int64_t had = m->ids[0];
        if (rank == ranks - 1 && m->offsets[m->n * c->set->features] > 0) m->ids[0] = 1 << 20;
        int64_t bad = m->ids[0] == 1 << 20;
        TRY(neo_comm_all_reduce(comm, NEO_REDUCE_MAX, &bad, &bad, 1, NEO_I64, NULL));
        snprintf(text, sizeof text, "id %d is not in", 1 << 20);
        if (bad)
            EXPECT_ERR(neo_shard_forward(shard, &m->j, c->size[s + 1], t), NEO_ERR_RANGE, text);
        m->ids[0] = had;
        EXPECT(neo_shard_kept_count(shard) == kept);
        /* fused, while gradients are kept; a step while a call is open */
        TRY(neo_shard_forward(shard, &m->j, c->size[s + 1], t));
        scaled_dout(k, s + 1, m->begin, m->n, spare);
        TRY(neo_shard_backward_begin(shard, t));
        EXPECT_ERR(neo_shard_backward_end(shard, 1), NEO_ERR_STATE,
                   "bags 'bags': gradients of 1 batches are kept");
        EXPECT_ERR(neo_shard_step(shard, 1), NEO_ERR_STATE,
                   one ? "neo_shard_step: call neo_shard_accumulate_end first"
                       : "rank 0: neo_shard_step: call neo_shard_accumulate_end first");
        TRY(neo_shard_accumulate_end(shard));
        /* one batch too many */
        TRY(neo_shard_forward(shard, &m->j, c->size[s + 1], t));
        kept = neo_shard_kept_count(shard);
        EXPECT_ERR(neo_shard_accumulate(shard, t), NEO_ERR_CAPACITY,
                   "gradients of 2 batches are kept, as many as planned "
                   "(neo_plan_desc.kept_batches): this batch is left out");
        EXPECT(neo_shard_kept_count(shard) == kept);
        /* lr of one rank */
        snprintf(text, sizeof text,
                 one ? "neo_shard_step: lr is nan" : "rank %d: neo_shard_step: lr is nan",
                 ranks - 1);
        EXPECT_ERR(neo_shard_step(shard, rank == ranks - 1 ? NAN : k->lr), NEO_ERR_NUMERIC, text);
        EXPECT(neo_shard_kept_count(shard) == kept && neo_shard_get_stats(shard).steps == s / 2);
        TRY(take_step(k, comm, shard, s / 2, s, s + 2));
    }
    for (int s = 0; s < c->steps; s++) mine_free(&mine[s]);
    free(spare);
    TRY(check_digest(comm, shard, k->digest));
    neo_shard_destroy(shard);
    return NEO_OK;
}
static neo_status unlike_plans(neo_comm *comm, void *user) {
    Keep *k = user;
    Case *c = &k->c;
    int rank = neo_comm_rank(comm);
    neo_plan_desc d = c->plan;
    neo_plan *plan;
    neo_shard *shard;
    d.kept_batches = 1 + rank;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &d, c->pieces, c->piece_count, &plan));
    EXPECT_ERR(neo_shard_create(comm, plan, &shard), NEO_ERR_MISMATCH,
               "skip_empty or ranks_per_node than rank 0");
    EXPECT(shard == NULL);
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void wrong_calls_change_nothing(void) {
    static Keep k;
    neo_ctx *ctx;
    for (int ranks = 1; ranks <= 4; ranks++) {
        begin(&k, &ctx, ranks, ranks);
        k.c.plan.kept_batches = 0;
        run(&k, ctx, ranks, not_planned);
        begin(&k, &ctx, ranks, 4 + ranks);
        k.c.plan.kept_batches = 2;
        run(&k, ctx, ranks, wrong_calls);
    }
    begin(&k, &ctx, 2, 0);
    run(&k, ctx, 2, unlike_plans);
}

/* ---- what cannot go on ends all ranks ---- */
typedef struct Ended {
    Keep k;
    meter meter;
    int64_t at; /* the request, or the operation, that fails */
    int rank, ended;
} Ended;
/* Each rank takes two steps; one of them is lost at some operation of its group for rows. */
static neo_status losing(neo_comm *comm, void *user) {
    Ended *e = user;
    Case *c = &e->k.c;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_status status = make_planned(c, comm, &shard);
    if (status != NEO_OK) return status;
    if (rank == e->rank) {
        neo_fault kill = {NEO_FAULT_KILL, e->at, 0};
        TRY(neo_comm_inject(inside_of_shard(shard).rows, kill));
    }
    for (int s = 0; s < 4 && status == NEO_OK; s++) {
        Mine m;
        mine_make(&m, c, s, rank, neo_comm_size(comm));
        status = keep_batch(&e->k, shard, rank, &m, NULL, s, 0);
        if (status == NEO_OK && s % 2) status = neo_shard_step(shard, 0.1f);
        mine_free(&m);
    }
    if (status == NEO_OK) __atomic_store_n(&e->ended, 1, __ATOMIC_RELAXED);
    else EXPECT(status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT);
    neo_shard_destroy(shard);
    return status;
}
static void a_lost_rank_ends_all(void) {
    static Ended e;
    int killed = 0;
    for (e.at = 0;; e.at++) {
        neo_ctx *ctx;
        begin(&e.k, &ctx, 3, 6);
        e.k.c.plan.kept_batches = 2;
        e.rank = (int)e.at % 3;
        e.ended = 0;
        CHECK_INT(spawn_ending(NULL, 0, losing, &e), e.ended);
        case_free(&e.k.c);
        neo_ctx_destroy(ctx);
        if (e.ended) break;
        killed++;
    }
    CHECK(killed >= 4 * 2 + 2 * 2); /* rows there and back; statuses and row sums */
}
/* Batches with more ids than planned, where a request for memory is refused. */
static neo_status starving(neo_comm *comm, void *user) {
    Ended *e = user;
    Case *c = &e->k.c;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    neo_status status = make_planned(c, comm, &shard);
    if (status != NEO_OK) return status;
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) e->meter.refuse_at = e->meter.calls + e->at;
    TRY(neo_comm_barrier(comm, NULL));
    for (int s = 0; s < 2 && status == NEO_OK; s++) {
        Mine m;
        mine_make(&m, c, s + 2, rank, neo_comm_size(comm));
        status = keep_batch(&e->k, shard, rank, &m, NULL, s + 2, 0);
        mine_free(&m);
    }
    if (status == NEO_OK) status = neo_shard_step(shard, 0.1f);
    if (status != NEO_OK) EXPECT(strstr(neo_last_error(), "memory"));
    neo_shard_destroy(shard);
    return status;
}
static void without_memory_to_grow_all_ranks_end(void) {
    static Ended e;
    int failures = 0;
    for (e.at = 0;; e.at++) {
        neo_ctx *ctx;
        begin(&e.k, &ctx, 3, KINDS);
        e.k.c.plan.kept_batches = 2;
        e.k.c.plan.ids_per_sample = FEW_IDS;
        memset(&e.meter, 0, sizeof e.meter);
        e.meter.refuse_at = -1;
        const neo_allocator counted = {meter_alloc, meter_free, &e.meter};
        CHECK_INT(spawn_ending(&counted, 0, starving, &e), e.meter.refused == 0);
        CHECK(e.meter.wrong == 0 && e.meter.live == 0);
        case_free(&e.k.c);
        neo_ctx_destroy(ctx);
        if (e.meter.refused == 0) break;
        failures++;
    }
    CHECK(failures > 10);
}

/* ---- the plan knows ---- */
static void plans_count_what_is_kept(void) {
    Keep k;
    neo_ctx *ctx;
    neo_plan *plan = NULL;
    begin(&k, &ctx, 4, 0);
    neo_plan_desc d = {.bags = &k.c.bags, .cluster = {.ranks = 4}, .kept_batches = -1};
    CHECK_ERR(neo_plan_create(ctx, &d, &plan), NEO_ERR_ARG, "kept_batches is -1");
    int64_t most[3];
    for (int i = 0; i < 3; i++) {
        d.kept_batches = 4 * i;
        CHECK_OK(neo_plan_create(ctx, &d, &plan));
        most[i] = neo_plan_step_of(plan).most_bytes;
        CHECK_INT(neo_plan_desc_of(plan)->kept_batches, 4 * i);
        neo_plan_destroy(plan);
    }
    CHECK(most[0] < most[1] && most[1] <= most[2]);
    /* A budget that is too small says which would do; that one does. */
    char *at;
    d.cluster.memory_bytes = 1000;
    CHECK_ERR(neo_plan_create(ctx, &d, &plan), NEO_ERR_CAPACITY, "bytes each would do");
    at = strstr(neo_last_error(), "; ");
    d.cluster.memory_bytes = at ? strtoll(at + 2, NULL, 10) : 0;
    CHECK(d.cluster.memory_bytes > 1000);
    CHECK_OK(neo_plan_create(ctx, &d, &plan));
    CHECK(neo_plan_step_of(plan).most_bytes <= d.cluster.memory_bytes);
    neo_plan_destroy(plan);
    case_free(&k.c);
    neo_ctx_destroy(ctx);
}

/* ---- with dense layers: one norm, one scale ----

   A linear layer beside the tables, in a neo_fsdp; the oracle is a neo_optim and a neo_bags on one
   rank. */
enum { IN = 5, OUT = 70 };
typedef struct Both {
    Keep k;
    neo_fsdp_desc desc;
    int bare;        /* without windows, in DDP */
    int overflow;    /* the step in which a gradient is infinite; -1: none */
    int in_tables;   /* that gradient is of a table, else of the layer */
    uint64_t dense_digest;
    float weight[OUT * IN], bias[OUT]; /* of the oracle at the end */
    double norm;     /* of the oracle's last step */
    int64_t skipped;
    float *x[MAX_STEPS], *dz[MAX_STEPS]; /* [size][IN], [size][OUT] */
} Both;
static neo_status add_layer(neo_params *set) {
    int64_t shape[2] = {OUT, IN};
    neo_init init = {NEO_INIT_UNIFORM, -0.5f, 0.5f};
    TRY(neo_params_add(set, "weight", 2, shape, init, NULL));
    return neo_params_add(set, "bias", 1, shape, init, NULL);
}
static neo_status layer_gradient(neo_ctx *ctx, const Both *b, neo_params *set,
                                 const neo_leaves *leaves, int s, int64_t first, int64_t rows,
                                 float scale) {
    float *dz = malloc(4 * (size_t)(rows * OUT + 1));
    for (int64_t i = 0; i < rows * OUT; i++) dz[i] = b->dz[s][first * OUT + i] * scale;
    if (s == b->overflow && !b->in_tables && first == 0 && rows) dz[3] = INFINITY;
    const neo_param *w = neo_params_at(set, 0), *bias = neo_params_at(set, 1);
    neo_status status = neo_linear_backward(
        ctx, leaves, neo_tensor_2d(b->x[s] + first * IN, NEO_F32, rows, IN), w->value,
        neo_tensor_2d(dz, NEO_F32, rows, OUT), neo_tensor_none(), w->grad, bias->grad);
    free(dz);
    return status;
}
/* dout of the tables in step s, scaled. */
static void table_gradient(const Both *b, int s, int64_t begin, int64_t n, float scale, float *to) {
    for (int64_t i = 0; i < n * b->k.c.width; i++)
        to[i] = b->k.c.dout[s][begin * b->k.c.width + i] * scale;
    if (s == b->overflow && b->in_tables && begin == 0)
        for (int64_t i = 0; i < n * b->k.c.width; i++) to[i] = INFINITY;
}
static void both_oracle(Both *b, neo_ctx *ctx) {
    Case *c = &b->k.c;
    neo_bags_desc d = c->bags;
    neo_params *set;
    neo_optim *optim;
    neo_bags *bags;
    neo_state *state;
    float sums[OUT * IN + OUT];
    d.max_kept_rows = 10000;
    CHECK_OK(neo_bags_create(ctx, &d, &bags));
    CHECK_OK(neo_params_create(ctx, &set));
    CHECK_OK(add_layer(set));
    CHECK_OK(neo_optim_create(ctx, set, &b->desc.optim, &optim));
    for (int s = 0; s < c->steps; s++) {
        int64_t n = c->size[s];
        neo_jagged j = whole_batch(c, s);
        float *dout = malloc(4 * (size_t)(n * c->width + 1));
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(c->out[s], NEO_F32, n, c->width)));
        table_gradient(b, s, 0, n, 1.0f, dout);
        if (s != b->overflow || !b->in_tables)
            CHECK_OK(
                neo_bags_accumulate(bags, &j, neo_tensor_2d(dout, NEO_F32, n, c->width), NULL));
        free(dout);
        if (s != b->overflow || b->in_tables)
            CHECK_OK(layer_gradient(ctx, b, set, NULL, s, 0, n, 1.0f));
        for (int p = 0, at = 0; p < 2;
             at += p ? OUT : OUT * IN, p++) { /* each micro-batch by its tree, then in order */
            float *grad = neo_params_at(set, p)->grad.data;
            int64_t count = p ? OUT : OUT * IN;
            for (int64_t i = 0; s % b->k.micros && i < count; i++) sums[at + i] += grad[i];
            if (s % b->k.micros == 0) memcpy(sums + at, grad, 4 * (size_t)count);
            memcpy(grad, sums + at, 4 * (size_t)count);
        }
        if (s % b->k.micros != b->k.micros - 1) continue;
        if (b->overflow / b->k.micros == s / b->k.micros && b->overflow >= 0) {
            CHECK_OK(neo_bags_clear(bags));
            b->skipped++;
            continue;
        }
        neo_exact squares;
        neo_exact_zero(&squares);
        CHECK_OK(neo_bags_grad_squares(bags, &squares));
        neo_optim_add_squares(optim, &squares);
        CHECK_OK(neo_optim_step(optim, b->k.lr));
        CHECK_OK(neo_bags_scale_grads(bags, neo_optim_clip_factor(optim)));
        CHECK_OK(neo_bags_step(bags, b->k.lr));
        b->norm = neo_optim_grad_norm(optim);
    }
    b->k.digest = bags_digest(ctx, bags);
    CHECK_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add_params(state, set));
    CHECK_OK(neo_state_add_optim(state, optim));
    b->dense_digest = neo_state_digest(state);
    memcpy(b->weight, neo_params_at(set, 0)->value.data, sizeof b->weight);
    memcpy(b->bias, neo_params_at(set, 1)->value.data, sizeof b->bias);
    neo_state_destroy(state);
    neo_optim_destroy(optim);
    neo_params_destroy(set);
    neo_bags_destroy(bags);
}
static neo_status one_micro_batch(Both *b, neo_comm *comm, neo_shard *shard, neo_fsdp *fsdp,
                                  neo_params *set, int s) {
    Case *c = &b->k.c;
    Mine m;
    int rank = neo_comm_rank(comm);
    float scale = neo_fsdp_loss_scale(fsdp);
    mine_make(&m, c, s, rank, neo_comm_size(comm));
    float *out = malloc(4 * (size_t)(m.n * c->width + 1));
    neo_tensor t = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    TRY(neo_shard_forward(shard, &m.j, c->size[s], t));
    EXPECT(memcmp(out, c->out[s] + m.begin * c->width, 4 * (size_t)(m.n * c->width)) == 0);
    if (s == 0)
        EXPECT_ERR(neo_fsdp_step_tables(fsdp, shard, 1), NEO_ERR_STATE,
                   "had a forward and no gradients since the last step");
    table_gradient(b, s, m.begin, m.n, scale, out);
    TRY(neo_shard_backward_begin(shard, t));
    for (int piece = 0; piece < neo_fsdp_pieces(fsdp); piece++) {
        neo_leaves leaves = neo_fsdp_piece(fsdp, piece, c->size[s]);
        int64_t first, rows = neo_fsdp_samples(fsdp, piece, c->size[s], &first);
        int last = piece == neo_fsdp_pieces(fsdp) - 1 && s % b->k.micros == b->k.micros - 1;
        if (!b->bare) TRY(neo_fsdp_backward_begin(fsdp, 0, piece));
        TRY(layer_gradient(neo_comm_ctx(comm), b, set, &leaves, s, first, rows, scale));
        if (!b->bare) TRY(neo_fsdp_backward_end(fsdp, 0));
        else if (!last) TRY(neo_fsdp_piece_end(fsdp)); /* the step ends the last one */
    }
    TRY(neo_shard_accumulate_end(shard));
    free(out);
    mine_free(&m);
    return NEO_OK;
}
static neo_status train_both(neo_comm *comm, void *user) {
    Both *b = user;
    Case *c = &b->k.c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm);
    neo_params *set;
    neo_fsdp *fsdp;
    neo_shard *shard;
    TRY(neo_params_create_deferred(ctx, &set));
    TRY(add_layer(set));
    neo_fsdp_unit unit = {.name = "layer", .params = set};
    neo_fsdp_desc d = b->desc;
    d.units = &unit;
    d.unit_count = 1;
    d.micro_batches = b->k.micros;
    if (neo_comm_size(comm) % (d.factor ? d.factor : 1)) d.factor = 0;
    TRY(neo_fsdp_create(comm, &d, &fsdp));
    TRY(make_planned(c, comm, &shard));
    neo_exact infinite;
    neo_exact_zero(&infinite);
    for (int s = 0; s < c->steps; s++) {
        TRY(one_micro_batch(b, comm, shard, fsdp, set, s));
        if (s == 0 &&
            b->k.micros >
                1) { /* a unit lacks a backward: nothing is stepped, and what lacks may come */
            const char *lacks =
                b->bare ? "unit 'layer'" : "unit 'layer' had the backward of 1 of";
            int64_t kept = neo_shard_kept_count(shard);
            neo_exact_add(&infinite, INFINITY);
            neo_fsdp_add_squares(fsdp, &infinite); /* of a step that failed: they are gone */
            EXPECT_ERR(neo_fsdp_step(fsdp, 1), NEO_ERR_STATE, lacks);
            EXPECT(neo_fsdp_clip_factor(fsdp) == 0.0f);
            EXPECT_ERR(neo_fsdp_step_tables(fsdp, shard, 1), NEO_ERR_STATE, lacks);
            EXPECT(neo_shard_kept_count(shard) == kept);
        }
        if (s % b->k.micros != b->k.micros - 1) continue;
        float scale = neo_fsdp_loss_scale(fsdp);
        EXPECT_ERR(neo_fsdp_step_tables(fsdp, NULL, 1), NEO_ERR_ARG, "neo_fsdp_step_tables");
        EXPECT_ERR(neo_fsdp_step_tables(fsdp, shard, rank ? 1.0f : INFINITY), NEO_ERR_NUMERIC,
                   "neo_fsdp_step_tables: lr is inf");
        TRY(neo_fsdp_step_tables(fsdp, shard, b->k.lr));
        EXPECT(neo_shard_kept_count(shard) == 0);
        int skipped = b->overflow >= 0 && b->overflow / b->k.micros == s / b->k.micros;
        EXPECT((neo_fsdp_clip_factor(fsdp) == 0.0f) == skipped);
        EXPECT(neo_fsdp_loss_scale(fsdp) == (skipped ? 0.5f * scale : scale));
    }
    neo_fsdp_stats stats = neo_fsdp_get_stats(fsdp);
    EXPECT(stats.skipped == b->skipped);
    EXPECT(stats.grad_norm == b->norm && b->norm > (double)b->desc.optim.clip_norm);
    TRY(check_digest(comm, shard, b->k.digest));
    TRY(neo_fsdp_forward_begin(fsdp, 0));
    EXPECT(memcmp(neo_params_at(set, 0)->value.data, b->weight, sizeof b->weight) == 0);
    EXPECT(memcmp(neo_params_at(set, 1)->value.data, b->bias, sizeof b->bias) == 0);
    TRY(neo_fsdp_forward_end(fsdp, 0));
    TRY(neo_fsdp_cancel(fsdp));
    neo_state *state;
    neo_group all = neo_comm_group(comm);
    uint64_t digest;
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_fsdp(state, fsdp));
    TRY(neo_state_digest_group(state, &all, &digest));
    if (!b->desc.loss_scale)
        EXPECT(digest == b->dense_digest); /* else the scaler's state is in it */
    neo_state_destroy(state);
    neo_shard_destroy(shard);
    neo_fsdp_destroy(fsdp);
    neo_params_destroy(set);
    return NEO_OK;
}
static void dense_layers_and_tables_share_a_norm_and_a_scale(void) {
    int full = test_grid() != 0;
    for (int i = 0; i < 24; i++) {
        static Both b;
        Case *c = &b.k.c;
        neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
        memset(&b, 0, sizeof b);
        cut_block = 16;
        c->steps = 6;
        case_tables(c, &ZIPF, KINDS, -1, NEO_POOL_SUM);
        case_data(c);
        for (int s = 0; s < c->steps; s++) {
            b.x[s] = malloc(4 * IN * (size_t)c->size[s]);
            b.dz[s] = malloc(4 * OUT * (size_t)c->size[s]);
            test_fill(b.x[s], IN * c->size[s]);
            test_fill(b.dz[s], OUT * c->size[s]);
        }
        b.desc =
            (neo_fsdp_desc){.mode = (neo_fsdp_mode)(i % NEO_FSDP_MODE_COUNT),
                            .factor = i % 8 == 4 ? 2 : 0,
                            .optim = {.kind = (neo_optim_kind)(i % NEO_OPTIM_COUNT),
                                      .clip_norm = 0.5f}};
        b.k.micros = b.k.kept_batches = 1 + i % 3;
        b.k.lr = 0.02f;
        b.k.scale = 1.0f;
        b.bare = b.desc.mode == NEO_FSDP_DDP && i % 8 == 7;
        b.overflow = -1;
        if (i >= 12) {
            b.desc.loss_scale = 0x1p12f;
            b.overflow = i % 2 ? 3 : -1;
            b.in_tables = i % 4 == 1;
        }
        both_oracle(&b, ctx);
        c->plan.kept_batches = b.k.kept_batches;
        for (int ranks = 1; ranks <= 4; ranks++) {
            if (!full && ranks != 1 + (i + i / 4) % 4) continue;
            place_case(c, i % 2 ? RANDOM : MIXED, ranks);
            memset(wrong, 0, sizeof wrong);
            neo_comm_desc desc = {.ctx = {.repro_shards = LEAVES, .seed = 1},
                                  .ranks_per_node = c->plan.cluster.ranks_per_node,
                                  .timeout_ms = TEST_PATIENCE_MS};
            if (neo_comm_spawn(ranks, &desc, train_both, &b, NULL) != NEO_OK)
                FAIL("case %d, %d ranks: %s", i, ranks, neo_last_error());
            for (int r = 0; r < ranks; r++)
                if (wrong[r])
                    FAIL("case %d, %d ranks: rank %d has %d wrong", i, ranks, r, wrong[r]);
        }
        for (int s = 0; s < c->steps; s++) free(b.x[s]), free(b.dz[s]);
        neo_bags_destroy(c->oracle);
        c->oracle = NULL;
        case_free(c);
        neo_ctx_destroy(ctx);
    }
}

int main(void) {
    RUN(what_is_kept_has_the_bits_of_one_rank);
    RUN(wires_round_what_is_kept);
    RUN(what_is_kept_stays_where_buffers_grow);
    RUN(wrong_calls_change_nothing);
    RUN(a_lost_rank_ends_all);
    RUN(without_memory_to_grow_all_ranks_end);
    RUN(plans_count_what_is_kept);
    RUN(dense_layers_and_tables_share_a_norm_and_a_scale);
    printf("test_shard_keep: %lld runs\n", (long long)runs);
    return test_end("shard/accumulate");
}
