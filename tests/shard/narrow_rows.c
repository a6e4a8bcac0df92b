/* narrow_rows.c: rows of tables on many ranks, read and written by number.

   The oracle is a neo_bags of each rank's own that sees the same: under every plan, for every
   dtype, to one rank and to all, before, between and after steps, what is read has its bits, and
   what was written trains on alike. Chunks are short here, so that most spans take several. */
#define NEO__SHARD_CHUNK 1000
#include "neo_data.h"
#include "inside.c" /* private names, too */
#include "common.h"
#include "meter.h"

typedef struct Rows {
    Case c;
    meter meter;
    int64_t at; /* the request, or the operation, that fails */
    int rank, ended; /* ended: ranks whose calls were done */
} Rows;

/* The same numbers on all ranks. */
static uint32_t draw(uint32_t *state) { return (*state = *state * 1664525u + 1013904223u) >> 8; }

static int64_t bytes_of(const neo_comm_stats *st, neo_comm_op op) {
    return st->op[op].bytes[NEO_LEVEL_LOCAL] + st->op[op].bytes[NEO_LEVEL_CROSS];
}
/* Numbers of rows [first, first + count) of a table that rank r holds by itself. */
static int64_t held(const Case *c, int t, int64_t first, int64_t count, int r) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->piece_count; i++) {
        const neo_piece *p = &c->pieces[i];
        int64_t row = first > p->first_row ? first : p->first_row,
                end =
                    first + count < p->first_row + p->rows ? first + count : p->first_row + p->rows;
        if (p->table == t && p->rank == r && row < end) n += (end - row) * p->cols;
    }
    return n;
}
static int is_copied(const Case *c, int t) {
    for (int64_t i = 0; i < c->piece_count; i++)
        if (c->pieces[i].table == t) return c->pieces[i].rank == NEO_EVERY_RANK;
    return 0;
}
/* What one call sends, from all ranks: got, or set. */
static neo_status check_bytes(const Case *c, neo_comm *comm, const neo_comm_stats *before,
                              const neo_shard *shard, int t, int64_t first, int64_t count, int root,
                              int set) {
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    int64_t dim = c->set->dims[t], want[4] = {0}, sum[4];
    static const neo_comm_op OPS[] = {NEO_COMM_GATHER, NEO_COMM_ALL_GATHER, NEO_COMM_SCATTER,
                                      NEO_COMM_BROADCAST};
    if (shard->whole) return NEO_OK;
    neo_comm_stats now = neo_comm_get_stats(shard->rows);
    for (int i = 0; i < 4; i++) sum[i] = bytes_of(&now, OPS[i]) - bytes_of(before, OPS[i]);
    if (!is_copied(c, t)) {
        if (root >= 0) want[set ? 2 : 0] = 4 * (count * dim - held(c, t, first, count, root));
        else if (!set) want[1] = 4 * count * dim * (ranks - 1);
    } else if (set && root >= 0) {
        want[3] = 4 * count * dim * (ranks - 1);
    }
    want[1] += 24 * ranks * (ranks - 1); /* statuses, */
    want[3] += 40 * (ranks - 1);         /* and what all must give alike */
    TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, sum, sum, 4, NEO_I64, NULL));
    for (int i = 0; i < 4; i++) EXPECT(sum[i] == want[i]);
    return NEO_OK;
}
static neo_status one_span(const Rows *g, neo_comm *comm, neo_shard *shard, neo_bags *oracle,
                           uint32_t *random, int all) {
    const Case *c = &g->c;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm),
        t = (int)(draw(random) % (uint32_t)c->set->tables);
    int64_t rows = c->set->rows[t], dim = c->set->dims[t],
            first = all ? 0 : draw(random) % (uint32_t)rows;
    int64_t count = all ? rows : draw(random) % (uint32_t)(rows - first + 1);
    int root = (int)(draw(random) % (uint32_t)(ranks + 1)) - 1, set = draw(random) % 3 == 0,
        mine = root < 0 || root == rank;
    size_t bytes = 4 * (size_t)(count * dim);
    float *x = malloc(bytes + 4), *y = malloc(bytes + 4), *had = malloc(bytes + 4);
    neo_comm_stats before;
    memset(&before, 0, sizeof before);
    for (int64_t i = 0; i <= count * dim; i++)
        x[i] = y[i] = had[i] = (float)draw(random) * 0x1p-22f - 2.0f;
    if (!shard->whole) before = neo_comm_get_stats(shard->rows);
    size_t memory = neo_ctx_memory(ctx).bytes;
    if (set) {
        TRY(neo_bags_set_rows(oracle, t, first, count, y));
        TRY(neo_shard_set_rows(shard, t, first, count, root, mine ? x : NULL));
        EXPECT(memcmp(x, had, bytes + 4) == 0);
    } else {
        TRY(neo_bags_get_rows(oracle, t, first, count, y));
        TRY(neo_shard_get_rows(shard, t, first, count, root, x));
        EXPECT(memcmp(x, mine ? y : had, bytes) == 0);
        EXPECT(x[count * dim] == had[count * dim]);
    }
    EXPECT(neo_ctx_memory(ctx).bytes == memory);
    TRY(check_bytes(c, comm, &before, shard, t, first, count, root, set));
    free(x), free(y), free(had);
    return NEO_OK;
}
static neo_status run_rank(neo_comm *comm, void *user) {
    Rows *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm);
    uint32_t random = 17;
    neo_shard *shard;
    neo_bags *oracle;
    TRY(make(c, comm, &shard));
    TRY(neo_bags_create(neo_comm_ctx(comm), &c->bags, &oracle));
    for (int i = 0; i < c->set->tables; i++) TRY(one_span(g, comm, shard, oracle, &random, 1));
    for (int s = 0; s < c->steps; s++) {
        Mine m, next;
        neo_jagged j = whole_batch(c, s);
        neo_tensor all = neo_tensor_2d(NULL, NEO_F32, c->size[s], c->width), out;
        mine_make(&m, c, s, rank, neo_comm_size(comm));
        mine_make(&next, c, (s + 1) % c->steps, rank, neo_comm_size(comm));
        float *x = malloc(4 * (size_t)(m.n * c->width + 1)),
              *y = malloc(4 * (size_t)(c->size[s] * c->width + 1));
        out = neo_tensor_2d(x, NEO_F32, m.n, c->width);
        all.data = y;
        TRY(neo_shard_forward(shard, &m.j, c->size[s], out));
        TRY(neo_bags_forward(oracle, &j, all));
        EXPECT(memcmp(x, y + m.begin * c->width, 4 * (size_t)(m.n * c->width)) == 0);
        if (c->prefetch && s + 1 < c->steps)
            TRY(neo_shard_prefetch(shard, &next.j, c->size[s + 1]));
        TRY(one_span(g, comm, shard, oracle, &random, 0)); /* between forward and backward */
        memcpy(x, c->dout[s] + m.begin * c->width, 4 * (size_t)(m.n * c->width));
        memcpy(y, c->dout[s], 4 * (size_t)(c->size[s] * c->width));
        TRY(neo_shard_backward(shard, out, 0.05f));
        TRY(neo_bags_backward(oracle, &j, all, 0.05f));
        for (int i = 0; i < 4; i++) TRY(one_span(g, comm, shard, oracle, &random, i == 3));
        free(x), free(y);
        mine_free(&m);
        if (c->prefetch &&
            s + 1 <
                /* its arrays are those that were prefetched: the next turn makes others */
                c->steps) {
            float *z = malloc(4 * (size_t)(next.n * c->width + 1));
            neo_jagged k = whole_batch(c, s + 1);
            TRY(neo_shard_forward(shard, &next.j, c->size[s + 1],
                                  neo_tensor_2d(z, NEO_F32, next.n, c->width)));
            float *w = malloc(4 * (size_t)(c->size[s + 1] * c->width + 1));
            TRY(neo_bags_forward(oracle, &k, neo_tensor_2d(w, NEO_F32, c->size[s + 1], c->width)));
            EXPECT(memcmp(z, w + next.begin * c->width, 4 * (size_t)(next.n * c->width)) == 0);
            free(z), free(w);
        }
        mine_free(&next);
    }
    TRY(check_digest(comm, shard, bags_digest(neo_comm_ctx(comm), oracle)));
    neo_bags_destroy(oracle);
    neo_shard_destroy(shard);
    return NEO_OK;
}

/* ---- the grid ---- */
enum { PLANS = RANDOM + 1 };
/* dtype: of the rows; 4: each table has another. */
static void begin(Rows *g, int ranks, int plan, neo_pooling pooling, int dtype) {
    static const neo_dtype DTYPES[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    Case *c = &g->c;
    memset(g, 0, sizeof *g);
    cut_block = 16;
    c->steps = 3;
    case_tables(c, &ZIPF, KINDS, -1, pooling);
    case_data(c);
    for (int t = 0; t < c->set->tables; t++)
        c->tables[t].dtype = DTYPES[dtype == 4 ? t % 4 : dtype];
    place_tables(c, plan, ranks);
    plan_of(c, ranks);
    memset(wrong, 0, sizeof wrong);
}
static void run(Rows *g, const char *what, neo_comm_fn fn) {
    spawn_case(&g->c, what, g->c.plan.cluster.ranks, fn, g);
    case_free(&g->c);
}
static void rows_are_those_of_one_rank(void) {
    for (int dtype = 0; dtype < 5; dtype++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int plan = 0; plan < PLANS; plan++) {
                static Rows g;
                char what[100];
                if (!test_grid() && (plan + 2 * dtype + ranks) % 3) continue;
                begin(&g, ranks, plan, plan % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM, dtype);
                g.c.plan.pipeline = g.c.prefetch = (plan + dtype) % 2;
                snprintf(what, sizeof what, "dtype %d, plan %d on %d ranks", dtype, plan, ranks);
                run(&g, what, run_rank);
            }
}

/* ---- what is refused ---- */
/* Every wrong call, of the last rank alone: all have its words, nothing has changed, and the next
   call may be made. */
static neo_status wrong_calls(neo_comm *comm, void *user) {
    Rows *g = user;
    Case *c = &g->c;
    int rank = neo_comm_rank(comm), ranks = neo_comm_size(comm), last = rank == ranks - 1;
    neo_shard *shard;
    neo_bags *oracle;
    Mine m;
    float rows[80] = {0};
    TRY(make(c, comm, &shard));
    TRY(neo_bags_create(neo_comm_ctx(comm), &c->bags, &oracle));
    EXPECT_ERR(neo_shard_get_rows(NULL, 0, 0, 1, 0, rows), NEO_ERR_ARG,
               "neo_shard_get_rows: shard is NULL");
    EXPECT_ERR(neo_shard_set_rows(NULL, 0, 0, 1, 0, rows), NEO_ERR_ARG,
               "neo_shard_set_rows: shard is NULL");
    EXPECT_ERR(neo_shard_get_rows(shard, last ? 7 : 0, 0, 1, 0, rows), NEO_ERR_ARG,
               "neo_shard_get_rows: bags 'bags' has no table 7");
    EXPECT_ERR(neo_shard_get_rows(shard, last ? -1 : 0, 0, 1, 0, rows), NEO_ERR_ARG,
               "neo_shard_get_rows: bags 'bags' has no table -1");
    EXPECT_ERR(neo_shard_set_rows(shard, 0, 0, 1, last ? ranks : 0, rows), NEO_ERR_ARG,
               "neo_shard_set_rows: root is");
    EXPECT_ERR(neo_shard_set_rows(shard, 0, 0, 1, last ? -2 : 0, rows), NEO_ERR_ARG,
               "neo_shard_set_rows: root is -2, there are");
    EXPECT_ERR(neo_shard_set_rows(shard, 0, last ? 64 : 0, 1, 0, rows), NEO_ERR_RANGE,
               "neo_shard_set_rows: table 't0': 1 rows from 64 on, it has 64");
    EXPECT_ERR(neo_shard_get_rows(shard, 0, last ? -1 : 0, 1, 0, rows), NEO_ERR_RANGE,
               "neo_shard_get_rows: table 't0': 1 rows from -1 on, it has 64");
    EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, last ? INT64_MAX : 1, 0, rows), NEO_ERR_RANGE,
               "rows from 0 on, it has 64");
    EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, last ? -1 : 1, 0, rows), NEO_ERR_RANGE,
               "-1 rows from 0 on, it has 64");
    EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, 1, NEO_EVERY_RANK, last ? NULL : rows), NEO_ERR_ARG,
               "neo_shard_get_rows: rows is NULL");
    EXPECT_ERR(neo_shard_set_rows(shard, 0, 0, 1, ranks - 1, last ? NULL : rows), NEO_ERR_ARG,
               "neo_shard_set_rows: rows is NULL");
    if (ranks > 1) {
        char text[100];
        snprintf(text, sizeof text,
                 "rank %d: neo_shard_get_rows: another table, rows or root than on rank 0",
                 ranks - 1);
        EXPECT_ERR(neo_shard_get_rows(shard, last, 0, 1, 0, rows), NEO_ERR_MISMATCH, text);
        EXPECT_ERR(neo_shard_get_rows(shard, 0, last, 1, 0, rows), NEO_ERR_MISMATCH, text);
        EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, 1 + last, NEO_EVERY_RANK, rows),
                   NEO_ERR_MISMATCH, text);
        EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, 1, last, rows), NEO_ERR_MISMATCH, text);
        EXPECT_ERR(last ? neo_shard_get_rows(shard, 0, 0, 1, 0, rows)
                        : neo_shard_set_rows(shard, 0, 0, 1, 0, rows),
                   NEO_ERR_MISMATCH, text);
    }
    mine_make(&m, c, 0, rank, ranks);
    float *out = calloc((size_t)(m.n * c->width + 1), 4);
    neo_tensor o = neo_tensor_2d(out, NEO_F32, m.n, c->width);
    TRY(neo_shard_forward_begin(shard, &m.j, c->size[0]));
    EXPECT_ERR(neo_shard_set_rows(shard, 0, 0, 1, 0, rows), NEO_ERR_STATE,
               "neo_shard_set_rows: call neo_shard_forward_end first");
    TRY(neo_shard_forward_end(shard, o));
    TRY(neo_shard_get_rows(shard, 0, 64, 0, NEO_EVERY_RANK, NULL)); /* nothing */
    TRY(neo_shard_set_rows(shard, 0, 0, 0, 0, NULL));
    TRY(check_digest(comm, shard, bags_digest(neo_comm_ctx(comm), oracle)));
    TRY(neo_shard_backward_begin(shard, o));
    EXPECT_ERR(neo_shard_get_rows(shard, 0, 0, 1, 0, rows), NEO_ERR_STATE,
               "neo_shard_get_rows: call neo_shard_backward_end first");
    TRY(neo_shard_backward_end(shard, 0.05f));
    free(out);
    mine_free(&m);
    neo_bags_destroy(oracle);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void wrong_calls_change_nothing(void) {
    static Rows g;
    for (int ranks = 1; ranks <= 4; ranks++) {
        begin(&g, ranks, ranks % 2 ? MIXED : RANDOM, NEO_POOL_SUM, 0);
        run(&g, "wrong calls", wrong_calls);
    }
}

/* ---- what cannot go on ---- */
/* One rank is lost at some operation of a call: all end. */
static neo_status losing(neo_comm *comm, void *user) {
    Rows *g = user;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    TRY(make(&g->c, comm, &shard)); /* fails where another rank is lost already */
    float *rows = calloc(64000, 4);
    if (rank == g->rank) {
        neo_fault kill = {NEO_FAULT_KILL, g->at, 0};
        TRY(neo_comm_inject(shard->rows, kill));
    }
    neo_status status = neo_shard_get_rows(shard, 3, 0, 100, NEO_EVERY_RANK, rows);
    if (status == NEO_OK) status = neo_shard_set_rows(shard, 3, 0, 100, 1, rows);
    if (status == NEO_OK) __atomic_fetch_add(&g->ended, 1, __ATOMIC_RELAXED);
    else EXPECT(status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT);
    free(rows);
    neo_shard_destroy(shard);
    return status;
}
/* A rank without memory: all say so, and the call may be made again. */
static neo_status starving(neo_comm *comm, void *user) {
    Rows *g = user;
    int rank = neo_comm_rank(comm);
    neo_shard *shard;
    TRY(make(&g->c, comm, &shard));
    float *rows = calloc(64000, 4);
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) g->meter.refuse_at = g->meter.calls + g->at;
    TRY(neo_comm_barrier(comm, NULL));
    EXPECT_ERR(neo_shard_get_rows(shard, 3, 0, 100, 0, rows), NEO_ERR_MEMORY,
               "neo_shard_get_rows: no memory for");
    TRY(neo_shard_get_rows(shard, 3, 0, 100, 0, rows));
    free(rows);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static void what_cannot_go_on(void) {
    static Rows g;
    int killed = 0, apart = 0;
    for (int at = 0;; at++) {
        begin(&g, 3, NEO_ROW_WISE, NEO_POOL_SUM, 0);
        g.at = at;
        g.rank = at % 3;
        CHECK_INT(spawn_ending(NULL, 1, losing, &g), g.ended == 3 ? 1 : g.ended == 0 ? 0 : -1);
        case_free(&g.c);
        if (g.ended == 3) break;
        CHECK(!apart && g.ended < 2); /* not the rank that is lost, nor one that waits for it */
        apart =
            g.ended; /* rank 0 may have its part of the last operation before the other is lost */
        killed++;
    }
    CHECK(killed >= 2 * 4);
    for (int at = 0; at < 3; at++) { /* each rank asks once */
        begin(&g, 3, NEO_ROW_WISE, NEO_POOL_SUM, 0);
        g.at = at;
        g.meter.refuse_at = -1;
        const neo_allocator counted = {meter_alloc, meter_free, &g.meter};
        CHECK_INT(spawn_ending(&counted, 1, starving, &g), 1);
        CHECK(g.meter.refused == 1 && g.meter.wrong == 0 && g.meter.live == 0);
        case_free(&g.c);
    }
}

int main(void) {
    RUN(rows_are_those_of_one_rank);
    RUN(wrong_calls_change_nothing);
    RUN(what_cannot_go_on);
    printf("test_shard_rows: %lld runs\n", (long long)runs);
    return test_end("shard/narrow_rows");
}
