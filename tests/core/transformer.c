/* Layers of a transformer: layer norm, RMS norm, embedding, attention, residual sums.

   Values are compared with naive loops in double; gradients with those and with central
   differences; bits over instruction sets, numbers of threads, what else is in the batch, and cuts
   of the leaves (parts added by the tree). The embedding's gradient has an oracle in float that
   follows the documented order. */
#include "common.h"
#include "neo_run.h"

/* ---- contexts: every instruction set, 1 to 8 threads ---- */
static void contexts_make(int shards) {
    static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
    context_count = 0;
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 8; threads++) {
            int best =
                i > 0 && neo_isa_available(isas[i]) && (i == 3 || !neo_isa_available(isas[i + 1]));
            if (neo_isa_available(isas[i]) && (best || threads == 1 + i * 2))
                contexts[context_count++] = test_ctx(threads, isas[i], shards);
        }
}

/* ---- matrices ---- */
static void boxes_free(int count, box *const *b) {
    for (int i = 0; i < count; i++) free(b[i]->block);
}
#define FREE(...)                                                                                  \
    boxes_free((int)(sizeof((box *[]){__VA_ARGS__}) / sizeof(box *)), (box *[]){__VA_ARGS__})
static neo_tensor vec(box b) {
    return neo_tensor_1d(b.t.data, NEO_F32, b.t.shape[0] * b.t.shape[1]);
}
static void near_all(const char *what, neo_tensor got, const double *want, double tol) {
    int64_t bad = 0;
    for (int64_t i = 0; i < got.shape[0]; i++)
        for (int64_t j = 0; j < got.shape[1]; j++) {
            double g = (double)row_of(got, i)[j], w = want[i * got.shape[1] + j];
            if (!(fabs(g - w) <= tol * (1 + fabs(w))) && bad++ == 0)
                FAIL("%s[%d][%d] is %.9g, expected %.9g", what, (int)i, (int)j, g, w);
        }
}

/* ---- norms ---- */
typedef struct norm_case {
    int centered;
    int64_t rows, n;
    neo_tensor x, w, b, y, stats, dy, dx, dw, db;
    float eps;
} norm_case;
static neo_status norm_forward(neo_ctx *ctx, const norm_case *c) {
    return c->centered ? neo_layer_norm_forward(ctx, c->x, c->w, c->b, c->eps, c->y, c->stats)
                       : neo_rms_norm_forward(ctx, c->x, c->w, c->eps, c->y, c->stats);
}
static neo_status norm_backward(neo_ctx *ctx, const neo_leaves *leaves, const norm_case *c) {
    return c->centered
               ? neo_layer_norm_backward(ctx, leaves, c->x, c->w, c->stats, c->dy, c->dx, c->dw,
                                         c->db)
               : neo_rms_norm_backward(ctx, leaves, c->x, c->w, c->stats, c->dy, c->dx, c->dw);
}
static double norm_weight(const norm_case *c, int64_t j) {
    return c->w.data ? (double)((float *)c->w.data)[j] : 1.0;
}
/* y, dx [rows][n], dw, db [n] in double. */
static void norm_reference(const norm_case *c, double *y, double *dx, double *dw, double *db) {
    const int64_t n = c->n;
    for (int64_t j = 0; j < n; j++) dw[j] = db[j] = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        const float *x = row_of(c->x, i), *dy = row_of(c->dy, i);
        double mean = 0, square = 0, sum = 0, sum_z = 0;
        for (int64_t j = 0; j < n; j++) mean += (double)x[j];
        mean = c->centered ? mean / (double)n : 0;
        for (int64_t j = 0; j < n; j++) square += ((double)x[j] - mean) * ((double)x[j] - mean);
        double scale = 1 / sqrt(square / (double)n + (double)c->eps);
        for (int64_t j = 0; j < n; j++) {
            double z = ((double)x[j] - mean) * scale, d = (double)dy[j];
            y[i * n + j] =
                z * norm_weight(c, j) + (c->b.data ? (double)((float *)c->b.data)[j] : 0);
            dw[j] += d * z;
            db[j] += d;
            sum += d * norm_weight(c, j);
            sum_z += d * norm_weight(c, j) * z;
        }
        for (int64_t j = 0; j < n; j++) {
            double z = ((double)x[j] - mean) * scale, g = (double)dy[j] * norm_weight(c, j);
            dx[i * n + j] =
                scale * (g - (c->centered ? sum / (double)n : 0) - z * sum_z / (double)n);
        }
    }
}
static void check_norm(int centered, int weighted, int64_t rows, int64_t n, int64_t pad) {
    box x = box_make(rows, n, pad), y = box_make(rows, n, pad / 2), dy = box_make(rows, n, pad);
    box dx = box_make(rows, n, 2 * pad), w = box_make(1, n, 0), b = box_make(1, n, 0);
    box dw = box_make(1, n, 0), db = box_make(1, n, 0), stats = box_make(rows, centered ? 2 : 1, 0);
    norm_case c = {centered, rows, n, x.t, none, none, y.t, none, dy.t, none, none, none, 1e-5f};
    double *ry = malloc((size_t)(2 * rows * n + 2 * n + 1) * sizeof(double)), *rx = ry + rows * n;
    double *rw = rx + rows * n, *rb = rw + n;
    box fy = y, fx = dx, fw = dw, fb = db;
    uint16_t *halves = malloc((size_t)(rows * (2 * n + pad) + 1) * sizeof *halves);
    if (weighted) c.w = vec(w);
    if (weighted && centered) c.b = vec(b);
    norm_reference(&c, ry, rx, rw, rb);
    for (int i = 0; i < context_count; i++) {
        box gy = box_copy(y), gx = box_copy(dx), gw = box_copy(dw), gb = box_copy(db);
        box gs = box_copy(stats);
        c.y = gy.t, c.dx = gx.t, c.dw = vec(gw), c.db = vec(gb);
        c.stats = centered ? gs.t : vec(gs);
        CHECK_OK(norm_forward(contexts[i], &c));
        CHECK_OK(norm_backward(contexts[i], NULL, &c));
        if (i == 0) {
            near_all("y", gy.t, ry, 2e-6);
            near_all("dx", gx.t, rx,
                     1e-5 * (n < 3 ? 300 : 1)); /* of two columns: a difference of equals */
            near_all("dw", gw.t, rw, 1e-5);
            if (centered) near_all("db", gb.t, rb, 1e-5);
            fy = gy, fx = gx, fw = gw, fb = gb;
        } else {
            if (!box_same(gy, fy) || !box_same(gx, fx) || !box_same(gw, fw) || !box_same(gb, fb))
                FAIL("%s norm [%d][%d]: %s with %d threads has other bits",
                     centered ? "layer" : "RMS", (int)rows, (int)n,
                     neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]));
            FREE(&gy, &gx, &gw, &gb);
        }
        if (i == 0) { /* dx in place of dy */
            box in_place = box_copy(dy);
            c.dy = c.dx = in_place.t, c.dw = c.db = none;
            CHECK_OK(norm_backward(contexts[i], NULL, &c));
            for (int64_t r = 0; r < rows; r++)
                CHECK_BITS(row_of(in_place.t, r), row_of(gx.t, r), n * 4);
            c.dy = dy.t;
            FREE(&in_place);
        }
        /* y of bf16 is y, rounded. */
        neo_tensor half = neo_tensor_2d(halves, NEO_BF16, rows, n), rounded = half;
        half.stride[0] = n + pad, rounded.data = halves + rows * (n + pad);
        c.y = half;
        CHECK_OK(norm_forward(contexts[i], &c));
        CHECK_OK(neo_tensor_convert(contexts[i], fy.t, rounded, NULL));
        for (int64_t r = 0; r < rows; r++)
            CHECK_BITS(halves + r * half.stride[0], (uint16_t *)rounded.data + r * n, n * 2);
        FREE(&gs);
    }
    free(halves);
    FREE(&fy, &fx, &fw, &fb, &x, &y, &dy, &dx, &w, &b, &dw, &db, &stats);
    free(ry);
}
static void norms(void) {
    static const int64_t widths[] = {1, 2, 15, 16, 17, 64, 255, 256, 257, 300, 769};
    static const int64_t heights[] = {0, 1, 3, 37, 400};
    contexts_make(5);
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 11; i++)
            check_norm(kind, i % 3 != 0, heights[(i + kind) % 5], widths[i], i % 2 ? 0 : 6);
    contexts_free();
}
/* Parts of the batch, added by the tree, are the whole; samples of 3 rows. */
static void norm_parts(void) {
    enum { BATCH = 21, T = 3, N = 70, V = 8 };
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, V);
    box x = box_make(BATCH * T, N, 0), dy = box_make(BATCH * T, N, 0),
        y = box_make(BATCH * T, N, 0);
    box stats = box_make(BATCH * T, 2, 0), w = box_make(1, N, 0);
    float dw[N], db[N], part_w[V][N], part_b[V][N];
    norm_case c = {1, BATCH * T, N, x.t, vec(w), none, y.t, stats.t, dy.t, none, none, none, 0.0f};
    neo_leaves all = {BATCH, 0, V, T};
    CHECK_OK(norm_forward(ctx, &c));
    c.dw = neo_tensor_1d(dw, NEO_F32, N), c.db = neo_tensor_1d(db, NEO_F32, N);
    CHECK_OK(norm_backward(ctx, &all, &c));
    for (int parts = 1; parts <= V; parts *= 2) {
        neo_tensor tw[V], tb[V];
        for (int p = 0; p < parts; p++) {
            neo_leaves leaves = {BATCH, p * V / parts, V / parts, T};
            int64_t begin = T * neo_leaf_begin(BATCH, V, leaves.first);
            int64_t count = T * neo_leaf_begin(BATCH, V, leaves.first + leaves.count) - begin;
            norm_case part = c;
            part.x = neo_tensor_rows(x.t, begin, count),
            part.dy = neo_tensor_rows(dy.t, begin, count);
            part.stats = neo_tensor_rows(stats.t, begin, count);
            part.dw = tw[p] = neo_tensor_1d(part_w[p], NEO_F32, N);
            part.db = tb[p] = neo_tensor_1d(part_b[p], NEO_F32, N);
            CHECK_OK(norm_backward(ctx, &leaves, &part));
        }
        CHECK_OK(neo_tree_sum(ctx, tw, parts, tw[0]));
        CHECK_OK(neo_tree_sum(ctx, tb, parts, tb[0]));
        CHECK_BITS(part_w[0], dw, sizeof dw);
        CHECK_BITS(part_b[0], db, sizeof db);
    }
    CHECK_OK(norm_backward(ctx, NULL, &c)); /* leaves that cut samples: another definition */
    CHECK(memcmp(part_w[0], dw, sizeof dw) != 0);
    neo_leaves empty = {BATCH, 2, 0, T};
    c.x = neo_tensor_rows(x.t, 0, 0), c.dy = neo_tensor_rows(dy.t, 0, 0);
    c.stats = neo_tensor_rows(stats.t, 0, 0);
    CHECK_OK(norm_backward(ctx, &empty, &c));
    for (int j = 0; j < N; j++) CHECK(dw[j] == 0.0f && db[j] == 0.0f);
    FREE(&x, &dy, &y, &stats, &w);
    neo_ctx_destroy(ctx);
}

/* ---- embedding ---- */
/* The gradient of element (r, j): leaf by leaf in order, then the tree. */
static float embedding_leaf(const int64_t *ids, neo_tensor dout, int64_t r, int64_t j,
                            int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t i = begin; i < end; i++)
        if (ids[i] == r) sum += row_of(dout, i)[j];
    return sum;
}
static float embedding_tree(const int64_t *ids, neo_tensor dout, int64_t r, int64_t j, int shards,
                            int first, int count) {
    const int64_t n = dout.shape[0];
    if (count == 1)
        return embedding_leaf(ids, dout, r, j, neo_leaf_begin(n, shards, first),
                              neo_leaf_begin(n, shards, first + 1));
    int left = 1;
    while (2 * left < count) left *= 2;
    return embedding_tree(ids, dout, r, j, shards, first, left) +
           embedding_tree(ids, dout, r, j, shards, first + left, count - left);
}
static void check_embedding(int shards, int64_t count, int64_t rows, int64_t dim, int64_t pad) {
    box table = box_make(rows, dim, pad), out = box_make(count, dim, pad),
        dout = box_make(count, dim, pad);
    box dtable = box_make(rows, dim, pad), want = box_copy(dtable), want_add = box_copy(dtable);
    int64_t *ids = malloc((size_t)(count + 1) * 8);
    int32_t *ids32 = malloc((size_t)(count + 1) * 4);
    for (int64_t i = 0; i < count; i++) /* some rows often, some never */
        ids32[i] =
            (int32_t)(ids[i] = (int64_t)(test_random() % 7 ? test_random() % (uint32_t)rows : 0));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < dim; j++) {
            float sum = embedding_tree(ids, dout.t, r, j, shards, 0, shards);
            row_of(want.t, r)[j] = sum;
            row_of(want_add.t, r)[j] += sum;
        }
    for (int i = 0; i < context_count; i++) {
        neo_tensor t =
            i % 2 ? neo_tensor_1d(ids32, NEO_I32, count) : neo_tensor_1d(ids, NEO_I64, count);
        box y = box_copy(out), got = box_copy(dtable), got_add = box_copy(dtable);
        CHECK_OK(neo_embedding_forward(contexts[i], t, table.t, y.t));
        for (int64_t k = 0; k < count; k++) {
            CHECK_BITS(row_of(y.t, k), row_of(table.t, ids[k]), dim * 4);
            memcpy(row_of(y.t, k), row_of(out.t, k), (size_t)dim * 4);
        }
        CHECK(box_same(y, out)); /* nothing beside its rows */
        CHECK_OK(neo_embedding_backward(contexts[i], NULL, t, dout.t, got.t, 0));
        CHECK_OK(neo_embedding_backward(contexts[i], NULL, t, dout.t, got_add.t, 1));
        if (!box_same(got, want) || !box_same(got_add, want_add))
            FAIL("V %d, %d ids, table [%d][%d], %s, %d threads: the gradient differs", shards,
                 (int)count, (int)rows, (int)dim, neo_isa_name(neo_ctx_isa(contexts[i])),
                 neo_ctx_threads(contexts[i]));
        FREE(&y, &got, &got_add);
    }
    FREE(&table, &out, &dout, &dtable, &want, &want_add);
    free(ids), free(ids32);
}
static void embedding(void) {
    static const int shards[] = {1, 2, 5, 8, 64};
    for (int v = 0; v < 5; v++) {
        contexts_make(shards[v]);
        check_embedding(shards[v], 0, 4, 5, 0);
        check_embedding(shards[v], 1, 1, 1, 0);
        check_embedding(shards[v], 50, 13, 17, 3);
        check_embedding(shards[v], 90, 65, 32, 0);
        check_embedding(shards[v], 30, 7, 600, 5);
        contexts_free();
    }
    contexts_make(8);
    check_embedding(8, 40, 3000, 64, 0); /* more rows than fit a worker's scratch */
    contexts_free();
}
static void embedding_parts(void) {
    enum { BATCH = 10, T = 4, R = 9, D = 6, V = 4 };
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, V);
    box dout = box_make(BATCH * T, D, 0);
    int64_t ids[BATCH * T];
    float whole[R * D], part[V][R * D];
    for (int i = 0; i < BATCH * T; i++) ids[i] = test_random() % R;
    neo_leaves all = {BATCH, 0, V, T};
    CHECK_OK(neo_embedding_backward(ctx, &all, neo_tensor_1d(ids, NEO_I64, BATCH * T), dout.t,
                                    neo_tensor_2d(whole, NEO_F32, R, D), 0));
    neo_tensor t[V];
    for (int v = 0; v < V; v++) {
        neo_leaves one = {BATCH, v, 1, T};
        int64_t begin = T * neo_leaf_begin(BATCH, V, v),
                count = T * neo_leaf_begin(BATCH, V, v + 1) - begin;
        t[v] = neo_tensor_2d(part[v], NEO_F32, R, D);
        memset(part[v], 0, sizeof part[v]);
        CHECK_OK(neo_embedding_backward(ctx, &one, neo_tensor_1d(ids + begin, NEO_I64, count),
                                        neo_tensor_rows(dout.t, begin, count), t[v], v % 2));
    }
    CHECK_OK(neo_tree_sum(ctx, t, V, t[0]));
    CHECK_BITS(part[0], whole, sizeof whole);
    neo_leaves empty = {BATCH, 1, 0, T};
    neo_tensor no_ids = neo_tensor_1d(ids, NEO_I64, 0), no_rows = neo_tensor_rows(dout.t, 0, 0);
    CHECK_OK(neo_embedding_backward(ctx, &empty, no_ids, no_rows, t[0], 1));
    CHECK_BITS(part[0], whole, sizeof whole);
    CHECK_OK(neo_embedding_backward(ctx, &empty, no_ids, no_rows, t[0], 0));
    for (int i = 0; i < R * D; i++) CHECK(part[0][i] == 0.0f);
    FREE(&dout);
    neo_ctx_destroy(ctx);
}

/* ---- attention ---- */
static void attention_on_a_cpu_is_f32(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int64_t dim = 8; dim <= 128; dim *= 2) CHECK_INT(neo_attention_dtype(ctx, dim), NEO_F32);
    uint16_t x[32] = {0}, y[32];
    float f[32] = {0}, stats[8];
    const neo_tensor half = neo_tensor_2d(x, NEO_BF16, 4, 8);
    const neo_tensor out = neo_tensor_2d(y, NEO_BF16, 4, 8);
    const neo_tensor wide = neo_tensor_2d(f, NEO_F32, 4, 8), none = neo_tensor_none();
    const neo_attention_desc desc = {.length = 4, .heads = 1, .dtype = NEO_BF16};
    CHECK_ERR(neo_attention_forward(ctx, &desc, half, half, half, out, none), NEO_ERR_UNSUPPORTED,
              "y is bf16, which it may not be for heads of 8 with bf16 here");
    CHECK_ERR(neo_attention_forward(ctx, &desc, half, wide, wide, wide, none), NEO_ERR_SHAPE,
              "q is not f32 [4][8]");
    CHECK_ERR(neo_layer_norm_forward(ctx, half, none, none, 0, out,
                                     neo_tensor_2d(stats, NEO_F32, 4, 2)),
              NEO_ERR_SHAPE, "x is not f32 [4][8]");
    neo_ctx_destroy(ctx);
}
typedef struct attention_case {
    neo_attention_desc desc;
    int64_t batch, dim;
    neo_tensor q, k, v, y, lse, dy, dq, dk, dv;
} attention_case;
static neo_status attention_forward(neo_ctx *ctx, const attention_case *c) {
    return neo_attention_forward(ctx, &c->desc, c->q, c->k, c->v, c->y, c->lse);
}
static neo_status attention_backward(neo_ctx *ctx, const attention_case *c) {
    return neo_attention_backward(ctx, &c->desc, c->q, c->k, c->v, c->y, c->lse, c->dy, c->dq,
                                  c->dk, c->dv);
}
/* One sequence and head in double; outputs are [B T][heads dim] arrays. */
static void attention_reference_head(const attention_case *c, int64_t b, int64_t h, double *y,
                                     double *dq, double *dk, double *dv) {
    const int64_t T = c->desc.length, D = c->dim, cols = c->desc.heads * D;
    const double scale = c->desc.scale != 0 ? (double)c->desc.scale : 1 / sqrt((double)D);
    double *p = malloc((size_t)(2 * T) * sizeof *p), *dp = p + T;
#define AT(t, i) (row_of(t, b *T + (i)) + h * D)
#define TO(x, i) ((x) + (b * T + (i)) * cols + h * D)
    for (int64_t i = 0; i < T; i++) {
        const int64_t seen = c->desc.causal ? i + 1 : T;
        double most = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j < seen; j++) {
            p[j] = 0;
            for (int64_t d = 0; d < D; d++) p[j] += (double)AT(c->q, i)[d] * (double)AT(c->k, j)[d];
            p[j] *= scale;
            most = p[j] > most ? p[j] : most;
        }
        for (int64_t j = 0; j < seen; j++) sum += p[j] = exp(p[j] - most);
        for (int64_t d = 0; d < D; d++) TO(y, i)[d] = 0;
        for (int64_t j = 0; j < seen; j++) {
            p[j] /= sum, dp[j] = 0;
            for (int64_t d = 0; d < D; d++) {
                TO(y, i)[d] += p[j] * (double)AT(c->v, j)[d];
                dp[j] += (double)AT(c->dy, i)[d] * (double)AT(c->v, j)[d];
                TO(dv, j)[d] += p[j] * (double)AT(c->dy, i)[d];
            }
            delta += p[j] * dp[j];
        }
        for (int64_t j = 0; j < seen; j++)
            for (int64_t d = 0; d < D; d++) {
                double ds = p[j] * (dp[j] - delta) * scale;
                TO(dq, i)[d] += ds * (double)AT(c->k, j)[d];
                TO(dk, j)[d] += ds * (double)AT(c->q, i)[d];
            }
    }
    free(p);
}
/* q, k, v are slices of one matrix, and so are dq, dk, dv. */
static void check_attention(int64_t batch, int64_t length, int64_t heads, int64_t dim, int causal,
                            float scale) {
    const int64_t rows = batch * length, cols = heads * dim, size = rows * cols;
    box qkv = box_make(rows, 3 * cols, 2), dqkv = box_make(rows, 3 * cols, 5),
        y = box_make(rows, cols, 3);
    box dy = box_make(rows, cols, 0), lse = box_make(rows, heads, 1), fy = y, fd = dqkv;
    double *want = calloc((size_t)(4 * size), sizeof *want);
    attention_case c = {{length, heads, causal, scale, .dtype = NEO_F32},
                        batch,
                        dim,
                        none,
                        none,
                        none,
                        none,
                        none,
                        dy.t,
                        none,
                        none,
                        none};
    c.q = neo_tensor_slice(qkv.t, 1, 0, cols), c.k = neo_tensor_slice(qkv.t, 1, cols, cols);
    c.v = neo_tensor_slice(qkv.t, 1, 2 * cols, cols);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            attention_reference_head(&c, b, h, want, want + size, want + 2 * size, want + 3 * size);
    for (int i = 0; i < context_count; i++) {
        box gy = box_copy(y), gd = box_copy(dqkv), gl = box_copy(lse);
        c.y = gy.t, c.lse = gl.t, c.dq = neo_tensor_slice(gd.t, 1, 0, cols);
        c.dk = neo_tensor_slice(gd.t, 1, cols, cols),
        c.dv = neo_tensor_slice(gd.t, 1, 2 * cols, cols);
        CHECK_OK(attention_forward(contexts[i], &c));
        CHECK_OK(attention_backward(contexts[i], &c));
        if (i == 0) {
            near_all("y", c.y, want, 2e-6);
            near_all("dq", c.dq, want + size, 5e-6);
            near_all("dk", c.dk, want + 2 * size, 5e-6);
            near_all("dv", c.dv, want + 3 * size, 5e-6);
            fy = gy, fd = gd;
        } else {
            if (!box_same(gy, fy) || !box_same(gd, fd))
                FAIL("T %d, %d heads of %d, causal %d: %s with %d threads has other bits",
                     (int)length, (int)heads, (int)dim, causal,
                     neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]));
            FREE(&gy, &gd);
        }
        FREE(&gl);
    }
    FREE(&fy, &fd, &qkv, &dqkv, &y, &dy, &lse);
    free(want);
}
static void attention(void) {
    static const int64_t lengths[] = {1, 2, 7, 16, 63, 64, 65, 130, 200};
    static const int64_t dims[] = {1, 8, 17, 32, 64, 100, 3, 5, 48};
    contexts_make(1);
    for (int i = 0; i < 9; i++)
        for (int causal = 0; causal < 2; causal++)
            check_attention(1 + i % 3, lengths[i], 1 + (i + causal) % 3, dims[i], causal,
                            i % 4 == 3 ? -0.7f : 0.0f);
    check_attention(1, 70, 1, 512, 1, 0.1f);
    contexts_free();
}
/* Large scores: the maximum is taken off before the exponential, in every tile anew. */
static void attention_large(void) {
    enum { T = 150, D = 4 };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    box q = box_make(T, D, 0), k = box_make(T, D, 0), v = box_make(T, D, 0), y = box_make(T, D, 0);
    box dx = box_make(T, D, 0), dk = box_make(T, D, 0), dv = box_make(T, D, 0),
        lse = box_make(T, 1, 0);
    for (int i = 0; i < T * D; i++)
        ((float *)q.t.data)[i] *= 40, ((float *)k.t.data)[i] *= 40.0f * (float)(i / 256 + 1);
    attention_case c = {{T, 1, 1, 1.0f, .dtype = NEO_F32}, 1, D, q.t, k.t, v.t, y.t, lse.t, v.t,
                        dx.t, dk.t, dv.t};
    static double want[4][T * D];
    memset(want, 0, sizeof want);
    attention_reference_head(&c, 0, 0, want[0], want[1], want[2], want[3]);
    CHECK_OK(attention_forward(ctx, &c));
    CHECK_OK(attention_backward(ctx, &c));
    near_all("y", y.t, want[0], 2e-3); /* scores of thousands have 2^-13 to spare */
    near_all("dv", dv.t, want[3], 2e-3);
    FREE(&q, &k, &v, &y, &dx, &dk, &dv, &lse);
    neo_ctx_destroy(ctx);
}
/* Products that underflow make a sum of -0, which a term of +0 behind it turns to +0: keys that a
   query does not see have such terms, and how many of them are added depends on the instruction
   set, so the sum ends with + 0. */
static void attention_zeros(void) {
    enum { T = 64, D = 3 };
    box q = box_make(T, D, 0), k = box_make(T, D, 0), v = box_make(T, D, 0),
        lse = box_make(T, 1, 0), first;
    for (int64_t i = 0; i < T; i++)
        for (int64_t d = 0; d < D; d++) {
            row_of(q.t, i)[d] = 1;
            row_of(k.t, i)[d] = i == 0 ? -30.0f : 0.0f; /* key 0 weighs e^-90 */
            row_of(v.t, i)[d] = i == 0 ? -1e-20f : i < 40 ? -0.0f : 1.0f;
        }
    contexts_make(1);
    for (int i = 0; i < context_count; i++) {
        box y = box_make(T, D, 0), dq = box_make(T, D, 0), dk = box_make(T, D, 0),
            dv = box_make(T, D, 0);
        attention_case c = {{T, 1, 1, 1.0f, .dtype = NEO_F32}, 1,   D,    q.t,  k.t, v.t, y.t,
                            lse.t,           v.t, dq.t, dk.t, dv.t};
        CHECK_OK(attention_forward(contexts[i], &c));
        CHECK(row_of(y.t, 1)[0] == 0 && !signbit(row_of(y.t, 1)[0]));
        if (i == 0) first = y;
        else {
            if (memcmp(y.t.data, first.t.data, T * D * 4))
                FAIL("%s has other zeros", neo_isa_name(neo_ctx_isa(contexts[i])));
            FREE(&y);
        }
        FREE(&dq, &dk, &dv);
    }
    FREE(&first, &q, &k, &v, &lse);
    contexts_free();
}

/* 0 times infinity: which sums of a causal tile it spoils may not depend on the instruction set. */
static void attention_infinite(void) {
    enum { T = 70, D = 5 };
    box in[4], first[4], lse = box_make(T, 1, 0); /* q, k, v, dy; y, dq, dk, dv */
    for (int i = 0; i < 4; i++) {
        in[i] = box_make(T, D, 0);
        for (int64_t j = 0; j < T * D; j++)
            ((float *)in[i].t.data)[j] = (float)((j * 7 + i) % 11) - 5.0f;
    }
    row_of(in[2].t, 37)[1] = INFINITY;
    row_of(in[3].t, 45)[2] = INFINITY;
    contexts_make(1);
    for (int i = 0; i < context_count; i++) {
        box out[4];
        for (int b = 0; b < 4; b++) out[b] = box_make(T, D, 0);
        attention_case c = {{T, 1, 1, 0.1f, .dtype = NEO_F32}, 1, D, in[0].t, in[1].t, in[2].t,
                            out[0].t, lse.t, in[3].t, out[1].t, out[2].t, out[3].t};
        CHECK_OK(attention_forward(contexts[i], &c));
        CHECK_OK(attention_backward(contexts[i], &c));
        for (int b = 0; b < 4; b++) {
            if (i == 0) first[b] = out[b];
            for (int64_t j = 0; j < T * D; j++) {
                const float x = ((float *)out[b].t.data)[j], y = ((float *)first[b].t.data)[j];
                if (isnan(x) ? !isnan(y) : memcmp(&x, &y, 4) != 0) {
                    FAIL("%s: output %d, row %d: %g, not %g",
                         neo_isa_name(neo_ctx_isa(contexts[i])), b, (int)(j / D), (double)x,
                         (double)y);
                    break;
                }
            }
            if (i > 0) FREE(&out[b]);
        }
    }
    for (int b = 0; b < 4; b++) FREE(&in[b], &first[b]);
    FREE(&lse);
    contexts_free();
}

/* The last queries of sequences give the bits that they have among all, on every path; so do those
   of a beginning of the sequence, as with a cache of keys. */
static void attention_queries(void) {
    enum { B = 2, T = 150, H = 2, D = 20, COLS = H * D };
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 100, 128, 129, T};
    static const int64_t last[] = {1, 2, 30, 64, 81};
    box q = box_make(B * T, COLS, 0), k = box_make(B * T, COLS, 3), v = box_make(B * T, COLS, 1);
    box all = box_make(B * T, COLS, 0), lses = box_make(B * T, H, 0);
    contexts_make(1);
    for (int i = 0; i < context_count; i++)
        for (int causal = 0; causal < 2; causal++) {
            neo_attention_desc d = {T, H, causal, 0, .dtype = NEO_F32};
            CHECK_OK(neo_attention_forward(contexts[i], &d, q.t, k.t, v.t, all.t, lses.t));
            for (int c = 0; c < 9 * 5; c++) {
                const int64_t length = lengths[c / 5], Q = last[c % 5], batch = length == T ? B : 1;
                box some = box_make(batch * Q, COLS, 1), y = box_make(batch * Q, COLS, 2);
                box lse = box_make(batch * Q, H, 0);
                if (Q > length || (length < T && !causal)) { FREE(&some, &y, &lse); continue; }
                for (int64_t r = 0; r < batch * Q; r++)
                    memcpy(row_of(some.t, r), row_of(q.t, r / Q * T + length - Q + r % Q),
                           COLS * 4);
                d.length = length, d.queries = Q;
                CHECK_OK(neo_attention_forward(
                    contexts[i], &d, some.t, neo_tensor_rows(k.t, 0, batch * length),
                    neo_tensor_rows(v.t, 0, batch * length), y.t, lse.t));
                for (int64_t r = 0; r < batch * Q; r++) {
                    const int64_t at = r / Q * T + length - Q + r % Q;
                    if (memcmp(row_of(y.t, r), row_of(all.t, at), COLS * 4) ||
                        memcmp(row_of(lse.t, r), row_of(lses.t, at), H * 4))
                        FAIL("%s, %d threads, causal %d: %d queries of %d: row %d has other bits",
                             neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]),
                             causal, (int)Q, (int)length, (int)r);
                }
                FREE(&some, &y, &lse);
            }
            d.length = T, d.queries = T + 1;
            CHECK(neo_attention_forward(contexts[i], &d, q.t, k.t, v.t, all.t, none) ==
                  NEO_ERR_ARG);
            d.queries = 1;
            CHECK(neo_attention_forward(contexts[i], &d, q.t, k.t, v.t, all.t, none) ==
                  NEO_ERR_SHAPE);
            CHECK(neo_attention_backward(contexts[i], &d, neo_tensor_rows(q.t, 0, B), k.t, v.t,
                                         all.t, lses.t, all.t, none, none, none) ==
                  NEO_ERR_UNSUPPORTED);
        }
    contexts_free();
    FREE(&q, &k, &v, &all, &lses);
}

/* A sequence gives the same bits alone; a causal row does not change with what follows it. */
static void attention_alone(void) {
    enum { B = 3, T = 90, H = 2, D = 20, COLS = H * D };
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 4);
    box q = box_make(B * T, COLS, 0), k = box_make(B * T, COLS, 0), v = box_make(B * T, COLS, 0);
    box dy = box_make(B * T, COLS, 0), y[2], lse[2], dq[2], dk[2], dv[2];
    for (int i = 0; i < 2; i++) {
        y[i] = box_make(B * T, COLS, 0), lse[i] = box_make(B * T, H, 0),
        dq[i] = box_make(B * T, COLS, 0);
        dk[i] = box_make(B * T, COLS, 0), dv[i] = box_make(B * T, COLS, 0);
    }
    attention_case c = {{T, H, 1, 0, .dtype = NEO_F32}, B,     D,    q.t,     k.t,     v.t,
                        y[0].t,       lse[0].t, dy.t, dq[0].t, dk[0].t, dv[0].t};
    CHECK_OK(attention_forward(ctx, &c));
    CHECK_OK(attention_backward(ctx, &c));
#define ONE(t) neo_tensor_rows(t, T, T)
    attention_case one = {{T, H, 1, 0, .dtype = NEO_F32},
                          1,
                          D,
                          ONE(q.t),
                          ONE(k.t),
                          ONE(v.t),
                          ONE(y[1].t),
                          ONE(lse[1].t),
                          ONE(dy.t),
                          ONE(dq[1].t),
                          none,
                          none};
    CHECK_OK(attention_forward(ctx, &one));
    CHECK_OK(attention_backward(ctx, &one)); /* some gradients are not asked for */
    one.dq = none, one.dk = ONE(dk[1].t), one.dv = ONE(dv[1].t);
    CHECK_OK(attention_backward(ctx, &one));
    CHECK_BITS(one.y.data, row_of(y[0].t, T), T * COLS * 4);
    CHECK_BITS(row_of(dq[1].t, T), row_of(dq[0].t, T), T * COLS * 4);
    CHECK_BITS(one.dk.data, row_of(dk[0].t, T), T * COLS * 4);
    CHECK_BITS(one.dv.data, row_of(dv[0].t, T), T * COLS * 4);
    for (int64_t i = T + 50; i < 2 * T; i++)
        for (int64_t j = 0; j < COLS; j++) row_of(k.t, i)[j] += 3, row_of(v.t, i)[j] -= 1;
    one.lse = none;
    CHECK_OK(attention_forward(ctx, &one));
    CHECK_BITS(one.y.data, row_of(y[0].t, T), 50 * COLS * 4);
    CHECK(memcmp(row_of(one.y, 50), row_of(y[0].t, T + 50), COLS * 4) != 0);
    FREE(&q, &k, &v, &dy);
    for (int i = 0; i < 2; i++) FREE(&y[i], &lse[i], &dq[i], &dk[i], &dv[i]);
    neo_ctx_destroy(ctx);
}

/* ---- gradients: central differences of sum(r * y) ---- */
typedef struct probe {
    neo_status (*forward)(neo_ctx *ctx, const void *user);
    neo_ctx *ctx;
    const void *user;
    neo_tensor y, r;
} probe;
static neo_status probe_loss(void *user, double *loss) {
    const probe *p = (const probe *)user;
    neo_status status = p->forward(p->ctx, p->user);
    *loss = 0;
    for (int64_t i = 0; i < neo_tensor_count(p->y); i++)
        *loss += (double)((float *)p->y.data)[i] * (double)((float *)p->r.data)[i];
    return status;
}
static void check_gradient(const char *name, probe *p, neo_tensor value, neo_tensor grad) {
    neo_gradcheck_desc d;
    memset(&d, 0, sizeof d);
    d.loss = probe_loss, d.user = p, d.value = value, d.grad = grad, d.name = name;
    d.rel_tol = 2e-3, d.abs_tol = 1e-3;
    CHECK_OK(neo_gradcheck(&d, NULL));
}
static neo_status probe_norm(neo_ctx *ctx, const void *user) {
    return norm_forward(ctx, (const norm_case *)user);
}
static neo_status probe_attention(neo_ctx *ctx, const void *user) {
    return attention_forward(ctx, (const attention_case *)user);
}
typedef struct embedding_case {
    neo_tensor ids, table, out;
} embedding_case;
static neo_status probe_embedding(neo_ctx *ctx, const void *user) {
    const embedding_case *c = (const embedding_case *)user;
    return neo_embedding_forward(ctx, c->ids, c->table, c->out);
}
static void gradients(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 2);
    for (int centered = 0; centered < 2; centered++) {
        box x = box_make(5, 9, 0), w = box_make(1, 9, 0), b = box_make(1, 9, 0),
            y = box_make(5, 9, 0);
        box r = box_make(5, 9, 0), s = box_make(5, 1 + centered, 0);
        box dx = box_make(5, 9, 0), dw = box_make(1, 9, 0), db = box_make(1, 9, 0);
        norm_case c = {centered, 5,   9,    x.t,     vec(w),  vec(b), y.t,
                       s.t,      r.t, dx.t, vec(dw), vec(db), 1e-3f};
        if (!centered) c.stats = vec(s);
        probe p = {probe_norm, ctx, &c, y.t, r.t};
        CHECK_OK(norm_forward(ctx, &c));
        CHECK_OK(norm_backward(ctx, NULL, &c));
        check_gradient("norm dx", &p, x.t, dx.t);
        check_gradient("norm dweight", &p, w.t, dw.t);
        if (centered) check_gradient("norm dbias", &p, b.t, db.t);
        FREE(&x, &w, &b, &y, &r, &s, &dx, &dw, &db);
    }
    for (int causal = 0; causal < 2; causal++) {
        box q = box_make(10, 6, 0), k = box_make(10, 6, 0), v = box_make(10, 6, 0),
            y = box_make(10, 6, 0);
        box r = box_make(10, 6, 0), lse = box_make(10, 2, 0);
        box dq = box_make(10, 6, 0), dk = box_make(10, 6, 0), dv = box_make(10, 6, 0);
        attention_case c = {{5, 2, causal, 0, .dtype = NEO_F32}, 2, 3, q.t, k.t, v.t, y.t, lse.t,
                            r.t, dq.t, dk.t, dv.t};
        probe p = {probe_attention, ctx, &c, y.t, r.t};
        CHECK_OK(attention_forward(ctx, &c));
        CHECK_OK(attention_backward(ctx, &c));
        check_gradient("attention dq", &p, q.t, dq.t);
        check_gradient("attention dk", &p, k.t, dk.t);
        check_gradient("attention dv", &p, v.t, dv.t);
        FREE(&q, &k, &v, &y, &r, &lse, &dq, &dk, &dv);
    }
    box table = box_make(4, 3, 0), out = box_make(6, 3, 0), r = box_make(6, 3, 0),
        dt = box_make(4, 3, 0);
    int32_t ids[6] = {1, 3, 1, 0, 3, 1};
    embedding_case c = {neo_tensor_1d(ids, NEO_I32, 6), table.t, out.t};
    probe p = {probe_embedding, ctx, &c, out.t, r.t};
    CHECK_OK(neo_embedding_forward(ctx, c.ids, table.t, out.t));
    CHECK_OK(neo_embedding_backward(ctx, NULL, c.ids, r.t, dt.t, 0));
    check_gradient("embedding dtable", &p, table.t, dt.t);
    FREE(&table, &out, &r, &dt);
    neo_ctx_destroy(ctx);
}

static void residuals(void) {
    contexts_make(1);
    for (int i = 0; i < context_count; i++) {
        enum { N = 70001 };
        float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y),
              *want = malloc(N * sizeof *want);
        test_fill(x, N), test_fill(y, N);
        for (int k = 0; k < N; k++) want[k] = x[k] + y[k];
        CHECK_OK(neo_add(contexts[i], neo_tensor_1d(x, NEO_F32, N), neo_tensor_1d(y, NEO_F32, N)));
        CHECK_BITS(x, want, N * sizeof *x);
        for (int k = 0; k < N; k++) want[k] += want[k];
        CHECK_OK(neo_add(contexts[i], neo_tensor_1d(x, NEO_F32, N), neo_tensor_1d(x, NEO_F32, N)));
        CHECK_BITS(x, want, N * sizeof *x);
        CHECK_ERR(neo_add(contexts[i], neo_tensor_1d(x, NEO_F32, 5), neo_tensor_1d(y, NEO_F32, 6)),
                  NEO_ERR_SHAPE, "neo_add: y has shape[0] 6");
        CHECK_ERR(neo_add(contexts[i], none, none), NEO_ERR_SHAPE, "neo_add: x");
        free(x), free(y), free(want);
    }
    contexts_free();
}

/* Columns of wider matrices: each result against the plain loop, and nothing beside the columns
   is touched. */
static void strided_elements(void) {
    enum { ROWS = 37, WIDE = 300 };
    static const int64_t widths[] = {1, 3, 16, 17, 64, 255, 256, 257, 290};
    contexts_make(1);
    for (int i = 0; i < context_count; i++)
        for (int w = 0; w < 9; w++) {
            static float x[ROWS * WIDE], y[ROWS * WIDE], want[ROWS * WIDE];
            const int64_t n = widths[w];
            test_fill(x, ROWS * WIDE), test_fill(y, ROWS * WIDE);
            neo_tensor tx = neo_tensor_slice(neo_tensor_2d(x, NEO_F32, ROWS, WIDE), 1, 7, n);
            neo_tensor ty = neo_tensor_slice(neo_tensor_2d(y, NEO_F32, ROWS, WIDE), 1, 3, n);
            memcpy(want, x, sizeof x);
            for (int r = 0; r < ROWS; r++)
                for (int k = 0; k < n; k++) {
                    float *to = &want[r * WIDE + 7 + k], from = y[r * WIDE + 3 + k];
                    *to = *to + from;
                    *to = *to * from;
                    *to = *to * 0.3f;
                }
            CHECK_OK(neo_add(contexts[i], tx, ty));
            CHECK_OK(neo_mul(contexts[i], tx, ty));
            CHECK_OK(neo_scale(contexts[i], tx, 0.3f, NULL));
            CHECK_BITS(x, want, sizeof x);
        }
    contexts_free();
}
/* Dots against double, their gradients exactly; a table of all shapes that are refused. */
static void dots(void) {
    enum { ROWS = 19, WIDE = 700 };
    static float x[ROWS * WIDE], y[ROWS * WIDE], out[ROWS], dx[ROWS * WIDE], dy[ROWS * WIDE],
        first[ROWS];
    static const int64_t widths[] = {1, 2, 15, 16, 33, 128, 256, 257, 512, 700};
    contexts_make(1);
    for (int w = 0; w < 10; w++)
        for (int i = 0; i < context_count; i++) {
            const int64_t n = widths[w];
            neo_tensor tx = neo_tensor_slice(neo_tensor_2d(x, NEO_F32, ROWS, WIDE), 1, 0, n);
            neo_tensor ty = neo_tensor_slice(neo_tensor_2d(y, NEO_F32, ROWS, WIDE), 1, WIDE - n, n);
            neo_tensor tdx = neo_tensor_2d(dx, NEO_F32, ROWS, n),
                       tdy = neo_tensor_2d(dy, NEO_F32, ROWS, n);
            neo_tensor tout = neo_tensor_2d(out, NEO_F32, ROWS, 1),
                       flat = neo_tensor_1d(out, NEO_F32, ROWS);
            if (i == 0) test_fill(x, ROWS * WIDE), test_fill(y, ROWS * WIDE);
            CHECK_OK(neo_dot_forward(contexts[i], tx, ty, i % 2 ? tout : flat));
            if (i == 0) memcpy(first, out, sizeof out);
            CHECK_BITS(out, first, sizeof out); /* on every instruction set and number of threads */
            float alone = 0.0f; /* a row by itself */
            CHECK_OK(neo_dot_forward(contexts[i], neo_tensor_rows(tx, 3, 1),
                                     neo_tensor_rows(ty, 3, 1), neo_tensor_1d(&alone, NEO_F32, 1)));
            CHECK_BITS(&alone, &out[3], sizeof alone);
            CHECK_OK(neo_dot_backward(contexts[i], tx, ty, flat, tdx, tdy));
            for (int r = 0; r < ROWS; r++) {
                double sum = 0.0, size = 1e-30;
                for (int64_t k = 0; k < n; k++) {
                    const float a = x[r * WIDE + k], b = y[r * WIDE + WIDE - n + k];
                    sum += (double)a * (double)b, size += fabs((double)a * (double)b);
                    if (dx[r * n + k] != out[r] * b || dy[r * n + k] != out[r] * a)
                        FAIL("gradient %d", r);
                }
                if (!(fabs((double)out[r] - sum) <= 1e-6 * size))
                    FAIL("dot of %d columns: %g, %g", (int)n, (double)out[r], sum);
            }
        }
    neo_ctx *ctx = contexts[0];
    neo_tensor a = neo_tensor_2d(x, NEO_F32, 4, 3), b = neo_tensor_2d(y, NEO_F32, 4, 5),
               o = neo_tensor_1d(out, NEO_F32, 4);
    CHECK_ERR(neo_dot_forward(ctx, a, b, o), NEO_ERR_SHAPE, "neo_dot_forward: y");
    CHECK_ERR(neo_dot_forward(ctx, a, a, neo_tensor_1d(out, NEO_F32, 5)), NEO_ERR_SHAPE,
              "out is not an f32 tensor [4]");
    CHECK_ERR(neo_dot_forward(ctx, o, o, o), NEO_ERR_SHAPE, "not matrices");
    memset(dx, 0, sizeof dx);
    CHECK_ERR(neo_dot_backward(ctx, a, a, o, neo_tensor_2d(dx, NEO_F32, 4, 3), b), NEO_ERR_SHAPE,
              "neo_dot_backward: dy");
    CHECK(dx[0] == 0.0f); /* nothing is written */
    CHECK_ERR(neo_mul(ctx, a, b), NEO_ERR_SHAPE, "neo_mul: y");
    CHECK_OK(
        neo_dot_forward(ctx, neo_tensor_2d(x, NEO_F32, 4, 0), neo_tensor_2d(y, NEO_F32, 4, 0), o));
    for (int r = 0; r < 4; r++) CHECK(out[r] == 0.0f);
    contexts_free();
}

/* ---- refusals: status, place and value; nothing is written ---- */
static void norm_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 2);
    float f[64] = {0};
    neo_tensor x = neo_tensor_2d(f, NEO_F32, 4, 3), s = neo_tensor_2d(f, NEO_F32, 4, 2);
    neo_tensor v = neo_tensor_1d(f, NEO_F32, 3), bad = neo_tensor_1d(f, NEO_F32, 2);
    neo_tensor away = v;
    away.data = NULL, away.absent = "unit 'h.0' is not gathered";
    CHECK_ERR(neo_layer_norm_forward(ctx, x, bad, v, 0, x, s), NEO_ERR_SHAPE,
              "weight is not an f32 tensor [3]");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, v, bad, 0, x, s), NEO_ERR_SHAPE,
              "bias is not an f32 tensor [3]");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, v, v, -1.0f, x, s), NEO_ERR_ARG, "eps is -1");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, v, v, NAN, x, s), NEO_ERR_ARG, "eps is");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, v, v, 0, s, s), NEO_ERR_SHAPE,
              "y is [4][2], expected [4][3]");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, v, v, 0, x, x), NEO_ERR_SHAPE,
              "stats is [4][3], expected [4][2]");
    CHECK_ERR(neo_rms_norm_forward(ctx, x, v, 0, x, s), NEO_ERR_SHAPE,
              "stats is not an f32 tensor [4], but f32 [4] of 2 dimensions");
    CHECK_ERR(neo_rms_norm_forward(ctx, neo_tensor_2d(f, NEO_F32, 4, 0), none, 0, x, s),
              NEO_ERR_SHAPE, "x has no columns");
    CHECK_ERR(neo_layer_norm_forward(ctx, x, away, v, 0, x, s), NEO_ERR_STATE,
              "neo_layer_norm_forward: weight has no data, unit 'h.0' is not gathered");
    CHECK_ERR(neo_layer_norm_backward(ctx, NULL, x, v, s, x, x, none, away), NEO_ERR_STATE,
              "neo_layer_norm_backward: dbias has no data, unit 'h.0'");
    CHECK_ERR(neo_layer_norm_backward(ctx, NULL, x, v, s, x, x, bad, none), NEO_ERR_SHAPE,
              "dweight is not");
    neo_leaves leaves = {9, 0, 1, 1};
    CHECK_OK(neo_layer_norm_backward(ctx, &leaves, x, v, s, x, none, none, none));
    leaves.rows_per_sample = 2;
    CHECK_ERR(
        neo_layer_norm_backward(ctx, &leaves, x, v, s, x, none, none, none), NEO_ERR_SHAPE,
        "neo_layer_norm_backward: leaves [0, 1) of 2 hold 4 samples of a batch of 9, 2 rows each");
    CHECK_ERR(neo_layer_norm_forward(NULL, x, v, v, 0, x, s), NEO_ERR_ARG, "ctx is NULL");
    neo_ctx_destroy(ctx);
}
static void embedding_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float f[64] = {0}, out[20], before[20];
    int64_t ids[4] = {0, 2, 70, -1};
    int32_t narrow[4] = {0, 1, -3, 2};
    neo_tensor t = neo_tensor_2d(f, NEO_F32, 3, 5), o = neo_tensor_2d(out, NEO_F32, 4, 5);
    neo_tensor wide = neo_tensor_1d(ids, NEO_I64, 4);
    test_fill(out, 20);
    memcpy(before, out, sizeof out);
    CHECK_ERR(neo_embedding_forward(ctx, wide, t, o), NEO_ERR_RANGE,
              "neo_embedding_forward: the id at position 2 is 70, not in [0, 3)");
    CHECK_ERR(neo_embedding_forward(ctx, neo_tensor_1d(narrow, NEO_I32, 4), t, o), NEO_ERR_RANGE,
              "the id at position 2 is -3, not in [0, 3)");
    CHECK_ERR(neo_embedding_backward(ctx, NULL, neo_tensor_1d(ids + 3, NEO_I64, 1),
                                     neo_tensor_rows(t, 0, 1), neo_tensor_rows(o, 0, 3), 0),
              NEO_ERR_RANGE, "neo_embedding_backward: the id at position 0 is -1, not in [0, 3)");
    CHECK_BITS(out, before, sizeof out);
    CHECK_ERR(neo_embedding_forward(ctx, neo_tensor_1d(f, NEO_F32, 4), t, o), NEO_ERR_SHAPE,
              "ids is not a contiguous i32 or i64 tensor [N]");
    CHECK_ERR(neo_embedding_forward(ctx, neo_tensor_1d(NULL, NEO_I64, 4), t, o), NEO_ERR_SHAPE,
              "ids has no data");
    CHECK_ERR(neo_embedding_forward(ctx, neo_tensor_1d(ids, NEO_I64, 2), t, o), NEO_ERR_SHAPE,
              "out is [4][5], expected [2][5]");
    CHECK_ERR(neo_embedding_backward(ctx, NULL, neo_tensor_1d(ids, NEO_I64, 2), t,
                                     neo_tensor_2d(f, NEO_F32, 3, 5), 0),
              NEO_ERR_SHAPE, "dout is [3][5], expected [2][5]");
    t.data = NULL, t.absent = "unit 'wte' is not gathered";
    CHECK_ERR(
        neo_embedding_forward(ctx, neo_tensor_1d(ids, NEO_I64, 2), t, neo_tensor_rows(o, 0, 2)),
        NEO_ERR_STATE, "table has no data, unit 'wte' is not gathered");
    neo_ctx_destroy(ctx);
}
static void attention_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    static float f[8 * 600];
    neo_tensor x = neo_tensor_2d(f, NEO_F32, 8, 6), s = neo_tensor_2d(f, NEO_F32, 8, 2);
    neo_attention_desc d = {4, 2, 1, 0, .dtype = NEO_F32};
#define FORWARD(q, k, v, y, lse) neo_attention_forward(ctx, &d, q, k, v, y, lse)
    CHECK_ERR(neo_attention_forward(ctx, NULL, x, x, x, x, s), NEO_ERR_ARG, "desc is NULL");
    CHECK_ERR(FORWARD(x, s, x, x, s), NEO_ERR_SHAPE, "k is [8][2], expected [8][6]");
    CHECK_ERR(FORWARD(x, x, s, x, s), NEO_ERR_SHAPE, "v is [8][2]");
    CHECK_ERR(FORWARD(x, x, x, s, s), NEO_ERR_SHAPE, "y is [8][2]");
    CHECK_ERR(FORWARD(x, x, x, x, x), NEO_ERR_SHAPE, "lse is [8][6], expected [8][2]");
    CHECK_ERR(neo_attention_backward(ctx, &d, x, x, x, x, none, x, x, x, x), NEO_ERR_SHAPE,
              "lse is none");
    CHECK_ERR(neo_attention_backward(ctx, &d, x, x, x, x, s, x, x, s, x), NEO_ERR_SHAPE,
              "dk is [8][2]");
    d.length = 3;
    CHECK_ERR(FORWARD(x, x, x, x, s), NEO_ERR_SHAPE, "q has 8 rows, not whole sequences of 3");
    d.length = 0;
    CHECK_ERR(FORWARD(x, x, x, x, s), NEO_ERR_ARG, "a length of 0 and 2 heads");
    d.length = 4, d.heads = 4;
    CHECK_ERR(FORWARD(x, x, x, x, s), NEO_ERR_SHAPE, "q has 6 columns, not whole ones of 4 heads");
    d.heads = 2, d.scale = INFINITY;
    CHECK_ERR(FORWARD(x, x, x, x, s), NEO_ERR_ARG, "scale is inf");
    d.scale = 0, d.dtype = NEO_F16;
    CHECK_ERR(FORWARD(x, x, x, x, s), NEO_ERR_ARG, "dtype f16 is neither f32 nor bf16");
    d.heads = 1, d.dtype = NEO_BF16;
    neo_tensor wide = neo_tensor_2d(f, NEO_F32, 8, 513);
    CHECK_ERR(FORWARD(wide, wide, wide, wide, none), NEO_ERR_UNSUPPORTED,
              "heads of 513 columns, more than 512");
    neo_tensor empty = neo_tensor_2d(NULL, NEO_F32, 0, 6);
    CHECK_OK(FORWARD(empty, empty, empty, empty, none));
    neo_ctx_destroy(ctx);
}

/* Nothing here asks the allocator for memory. */
static void memory(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 4);
    box x = box_make(32, 24, 0), y = box_make(32, 24, 0), s = box_make(32, 2, 0),
        w = box_make(1, 24, 0);
    box d = box_make(1, 24, 0), z = box_make(32, 24, 0);
    int64_t ids[32] = {0}, before = neo_ctx_memory(ctx).alloc_count;
    neo_attention_desc a = {8, 2, 1, 0, .dtype = NEO_F32};
    neo_tensor t = neo_tensor_1d(ids, NEO_I64, 32);
    CHECK_OK(neo_layer_norm_forward(ctx, x.t, vec(w), none, 1e-5f, y.t, s.t));
    CHECK_OK(neo_layer_norm_backward(ctx, NULL, x.t, vec(w), s.t, y.t, y.t, vec(d), none));
    CHECK_OK(neo_embedding_forward(ctx, t, x.t, y.t));
    CHECK_OK(neo_embedding_backward(ctx, NULL, t, y.t, x.t, 1));
    CHECK_OK(neo_attention_forward(ctx, &a, x.t, x.t, x.t, y.t, s.t));
    CHECK_OK(neo_attention_backward(ctx, &a, x.t, x.t, x.t, y.t, s.t, y.t, z.t, none, none));
    CHECK_OK(neo_add(ctx, neo_tensor_rows(x.t, 0, 4), neo_tensor_rows(y.t, 0, 4)));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, before);
    FREE(&x, &y, &s, &w, &d, &z);
    neo_ctx_destroy(ctx);
}

/* Leaves of different numbers of rows, one of none: {V n, v, 1} is leaf v of n rows, and their
   gradients add to that of all rows, here in whole numbers. */
static void uneven_leaves(void) {
    enum { LEAVES = 4, ROWS = 40, IN = 5, OUT = 3 };
    static const int64_t begin[LEAVES + 1] = {0, 10, 10, 14, ROWS};
    static float x[ROWS * IN], dz[ROWS * OUT], w[OUT * IN], part[LEAVES][OUT * IN], sum[OUT * IN];
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, LEAVES);
    neo_tensor parts[LEAVES];
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 37 % 11 - 5);
    for (int i = 0; i < ROWS * OUT; i++) dz[i] = (float)(i * 53 % 7 - 3);
    for (int v = 0; v < LEAVES; v++) {
        const int64_t n = begin[v + 1] - begin[v];
        const neo_leaves leaf = {LEAVES * n, v, 1, 0};
        parts[v] = neo_tensor_2d(part[v], NEO_F32, OUT, IN);
        CHECK_OK(neo_linear_backward(
            ctx, &leaf, neo_tensor_2d(x + begin[v] * IN, NEO_F32, n, IN),
            neo_tensor_2d(w, NEO_F32, OUT, IN),
            neo_tensor_2d(dz + begin[v] * OUT, NEO_F32, n, OUT), none, parts[v], none));
    }
    CHECK_OK(neo_tree_sum(ctx, parts, LEAVES, neo_tensor_2d(sum, NEO_F32, OUT, IN)));
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            float want = 0;
            for (int r = 0; r < ROWS; r++) want += dz[r * OUT + o] * x[r * IN + i];
            CHECK(sum[o * IN + i] == want);
        }
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(norms);
    RUN(norm_parts);
    RUN(uneven_leaves);
    RUN(embedding);
    RUN(embedding_parts);
    RUN(attention);
    RUN(attention_large);
    RUN(attention_zeros);
    RUN(attention_infinite);
    RUN(attention_queries);
    RUN(attention_alone);
    RUN(gradients);
    RUN(residuals);
    RUN(strided_elements);
    RUN(dots);
    RUN(norm_errors);
    RUN(embedding_errors);
    RUN(attention_errors);
    RUN(memory);
    RUN(attention_on_a_cpu_is_f32);
    return test_end("core/transformer");
}
