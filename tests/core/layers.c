/* Layers: linear, mlp, dot interaction, factorization machine.

   Bits are compared with plain loops of fmaf that follow the documented order (leaves, then the
   tree, written here by recursion), over instruction sets, threads, shard counts, shapes and row
   strides. Gradients are compared with central differences of the forward pass. */
#include "common.h"

static const neo_isa isas[] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_AVX512, NEO_ISA_NEON};
enum { ISAS = 4 };

static neo_tensor as_vector(neo_tensor row) {
    return neo_tensor_1d(row.data, NEO_F32, row.shape[1]);
}

static void contexts_make(int shards) {
    static const int threads[] = {1, 2, 3, 8};
    context_count = 0;
    if (TEST_WATCHED == 2) { /* races need threads, and are alike on all */
        for (int t = 1; t < 3; t++)
            contexts[context_count++] = test_ctx(threads[t], NEO_ISA_BEST, shards);
        return;
    }
    for (int i = 0; i < ISAS; i++)
        for (int t = 0; t < 4; t++) {
            int wanted =
                isas[i] == NEO_ISA_AVX512 || t == i % 4; /* every count, but not with every path */
            if (wanted && neo_isa_available(isas[i]))
                contexts[context_count++] = test_ctx(threads[t], isas[i], shards);
        }
}

/* ---- sums over leaves, plainly ---- */
typedef struct columns { /* sum of a[i] b[i] by fma; of a[i] where b is NULL */
    const float *a, *b;
    int64_t a_step, b_step, batch;
    int shards;
} columns;
TEST_UNWATCHED static float leaf_sum(const columns *c, int leaf) {
    float sum = 0.0f;
    int64_t begin = leaf * c->batch / c->shards, end = (leaf + 1) * c->batch / c->shards;
    for (int64_t i = begin; i < end; i++)
        sum =
            c->b ? fmaf(c->a[i * c->a_step], c->b[i * c->b_step], sum) : sum + c->a[i * c->a_step];
    return sum;
}
TEST_UNWATCHED static float tree_sum(const columns *c, int first, int count) {
    if (count == 1) return leaf_sum(c, first);
    int left = 1;
    while (2 * left < count) left *= 2;
    return tree_sum(c, first, left) + tree_sum(c, first + left, count - left);
}

TEST_UNWATCHED
static void linear_reference(int shards, neo_tensor x, neo_tensor w, neo_tensor dz, neo_tensor dx,
                             neo_tensor dw, neo_tensor db) {
    int64_t batch = dz.shape[0], in = w.shape[1], out = w.shape[0];
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < in; j++) {
            float sum = 0.0f;
            for (int64_t o = 0; o < out; o++) sum = fmaf(row_of(dz, i)[o], row_of(w, o)[j], sum);
            row_of(dx, i)[j] = sum;
        }
    for (int64_t o = 0; o < out; o++) {
        columns c = {row_of(dz, 0) + o, NULL, dz.stride[0], x.stride[0], batch, shards};
        row_of(db, 0)[o] = tree_sum(&c, 0, shards);
        for (int64_t j = 0; j < in; j++) {
            c.b = row_of(x, 0) + j;
            row_of(dw, o)[j] = tree_sum(&c, 0, shards);
        }
    }
}

static void check_linear(int shards, int64_t batch, int64_t in, int64_t out, int64_t pad) {
    box x = box_make(batch, in, pad), w = box_make(out, in, pad),
        dz = box_make(batch, out, pad / 2);
    box dx = box_make(batch, in, pad), dw = box_make(out, in, pad), db = box_make(1, out, 0);
    box rx = box_copy(dx), rw = box_copy(dw), rb = box_copy(db);
    linear_reference(shards, x.t, w.t, dz.t, rx.t, rw.t, rb.t);
    for (int i = 0; i < context_count; i++) {
        box gx = box_copy(dx), gw = box_copy(dw), gb = box_copy(db);
        CHECK_OK(
            neo_linear_backward(contexts[i], NULL, x.t, w.t, dz.t, gx.t, gw.t, as_vector(gb.t)));
        int ok_x = box_same(gx, rx), ok_w = box_same(gw, rw), ok_b = box_same(gb, rb);
        if (!ok_x || !ok_w || !ok_b)
            FAIL("%s, %d threads, V %d, batch %d, %d -> %d, pad %d:%s%s%s differ",
                 neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]), shards,
                 (int)batch, (int)in, (int)out, (int)pad, ok_x ? "" : " dx", ok_w ? "" : " dw",
                 ok_b ? "" : " db");
        free(gx.block), free(gw.block), free(gb.block);
    }
    free(x.block), free(w.block), free(dz.block), free(dx.block), free(dw.block), free(db.block);
    free(rx.block), free(rw.block), free(rb.block);
}

static void linear_backward_bits(void) {
    static const int shards[] = {1, 2, 3, 5, 8, 13};
    static const int64_t batches[] = {0, 1, 2, 3, 7, 8, 29, 130};
    static const int64_t shapes[][2] = {{1, 1}, {13, 33}, {33, 1}, {5, 14}, {64, 17}, {2, 300}};
    for (int v = 0; v < 6; v++) {
        contexts_make(shards[v]);
        for (int b = 0; b < 8; b++)
            for (int s = 0; s < 6; s++)
                check_linear(shards[v], batches[b], shapes[s][0], shapes[s][1], s & 1 ? 3 : 0);
        contexts_free();
    }
}
/* Leaves longer than a segment of the product, segments with many leaves, many leaves. */
static void linear_backward_long(void) {
    static const int shards[] = {1, 2, 3, 8, 64};
    for (int v = 0; v < 5; v++) {
        contexts_make(shards[v]);
        check_linear(shards[v], 1900, 21, 35, 0);
        check_linear(shards[v], 515, 40, 15, 5);
        check_linear(shards[v], 1100, 13, 163, 3); /* few columns: lanes go over rows */
        check_linear(shards[v], 530, 7, 128, 0);
        check_linear(shards[v], 400, 13, 512, 1);
        if (v < 2) check_linear(shards[v], 8200, 256, 1, 0); /* x of more than caches hold */
        contexts_free();
    }
    contexts_make(4096);
    check_linear(4096, 1500, 5, 200, 0);
    check_linear(4096, 5000, 17, 3, 0);
    contexts_free();
}

static void linear_forward_bits(void) {
    contexts_make(8);
    static const int64_t shapes[][3] = {{1, 1, 1},     {29, 13, 33}, {130, 64, 1},
                                        {70, 520, 40}, {0, 3, 4},    {5, 7, 100}};
    for (int s = 0; s < 6; s++)
        for (int act = 0; act <= NEO_ACT_GELU_TANH; act++) {
            int64_t batch = shapes[s][0], in = shapes[s][1], out = shapes[s][2];
            box x = box_make(batch, in, 2), w = box_make(out, in, 1), b = box_make(1, out, 0),
                y = box_make(batch, out, 3);
            box want = box_copy(y);
            for (int64_t i = 0; i < batch; i++) {
                for (int64_t o = 0; o < out; o++) {
                    float sum = 0.0f;
                    for (int64_t k = 0; k < in; k++)
                        sum = fmaf(row_of(x.t, i)[k], row_of(w.t, o)[k], sum);
                    row_of(want.t, i)[o] = act != NEO_ACT_TANH ? sum + row_of(b.t, 0)[o] : sum;
                }
                neo_tensor row = neo_tensor_1d(row_of(want.t, i), NEO_F32, out);
                CHECK_OK(neo_activation_forward(contexts[0], (neo_activation)act, row, row));
            }
            for (int i = 0; i < context_count; i++) {
                box got = box_copy(y);
                CHECK_OK(neo_linear_forward(contexts[i], x.t, w.t,
                                            act != NEO_ACT_TANH ? as_vector(b.t) : none,
                                            (neo_activation)act, got.t));
                if (!box_same(got, want))
                    FAIL("%s, %d threads: shape %d act %d differs",
                         neo_isa_name(neo_ctx_isa(contexts[i])), neo_ctx_threads(contexts[i]), s,
                         act);
                free(got.block);
            }
            free(x.block), free(w.block), free(b.block), free(y.block), free(want.block);
        }
    contexts_free();
}

/* 8 leaves computed in 1, 2, 4, 8 parts and summed by neo_tree_sum: the bits of the whole. */
static void pieces_of_leaves(void) {
    enum { BATCH = 101, IN = 19, OUT = 37, V = 8 };
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, V);
    box x = box_make(BATCH, IN, 0), w = box_make(OUT, IN, 0), dz = box_make(BATCH, OUT, 0);
    float dw[OUT * IN], db[OUT], part_w[V][OUT * IN], part_b[V][OUT];
    CHECK_OK(neo_linear_backward(ctx, NULL, x.t, w.t, dz.t, none,
                                 neo_tensor_2d(dw, NEO_F32, OUT, IN),
                                 neo_tensor_1d(db, NEO_F32, OUT)));
    for (int parts = 1; parts <= V; parts *= 2) {
        neo_tensor tw[V], tb[V];
        for (int p = 0; p < parts; p++) {
            neo_leaves leaves = {BATCH, p * V / parts, V / parts, 0};
            int64_t begin = neo_leaf_begin(BATCH, V, leaves.first);
            int64_t end = neo_leaf_begin(BATCH, V, leaves.first + leaves.count);
            tw[p] = neo_tensor_2d(part_w[p], NEO_F32, OUT, IN);
            tb[p] = neo_tensor_1d(part_b[p], NEO_F32, OUT);
            CHECK_OK(neo_linear_backward(ctx, &leaves, neo_tensor_rows(x.t, begin, end - begin),
                                         w.t, neo_tensor_rows(dz.t, begin, end - begin), none,
                                         tw[p], tb[p]));
        }
        CHECK_OK(neo_tree_sum(ctx, tw, parts, tw[0]));
        CHECK_OK(neo_tree_sum(ctx, tb, parts, tb[0]));
        CHECK_BITS(part_w[0], dw, sizeof dw);
        CHECK_BITS(part_b[0], db, sizeof db);
    }
    neo_leaves bad = {BATCH, 1, 2, 0}; /* not a subtree */
    CHECK_ERR(neo_linear_backward(ctx, &bad, neo_tensor_rows(x.t, 0, 25), w.t,
                                  neo_tensor_rows(dz.t, 0, 25), none, none, none),
              NEO_ERR_ARG, "subtree");
    free(x.block), free(w.block), free(dz.block);
    neo_ctx_destroy(ctx);
}

/* Samples of several rows: leaf borders lie between samples, rows of a leaf add in order. The
   oracle is the same product with one leaf at a time, added by the tree. An empty part gives zeros.
   */
static void rows_per_sample(void) {
    enum { BATCH = 11, V = 5, T = 7, IN = 19, OUT = 6 };
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, V), *one = test_ctx(1, NEO_ISA_SCALAR, 1);
    box x = box_make(BATCH * T, IN, 0), w = box_make(OUT, IN, 0), dz = box_make(BATCH * T, OUT, 0);
    float dw[OUT * IN], db[OUT], part_w[V][OUT * IN], part_b[V][OUT];
    neo_tensor tdw = neo_tensor_2d(dw, NEO_F32, OUT, IN), tdb = neo_tensor_1d(db, NEO_F32, OUT);
    neo_tensor tw[V], tb[V];
    neo_leaves leaves = {BATCH, 0, V, T};
    CHECK_OK(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, tdb));
    for (int v = 0; v < V; v++) {
        int64_t begin = T * neo_leaf_begin(BATCH, V, v), end = T * neo_leaf_begin(BATCH, V, v + 1);
        tw[v] = neo_tensor_2d(part_w[v], NEO_F32, OUT, IN);
        tb[v] = neo_tensor_1d(part_b[v], NEO_F32, OUT);
        CHECK_OK(neo_linear_backward(one, NULL, neo_tensor_rows(x.t, begin, end - begin), w.t,
                                     neo_tensor_rows(dz.t, begin, end - begin), none, tw[v],
                                     tb[v]));
    }
    CHECK_OK(neo_tree_sum(one, tw, V, tw[0]));
    CHECK_OK(neo_tree_sum(one, tb, V, tb[0]));
    CHECK_BITS(part_w[0], dw, sizeof dw);
    CHECK_BITS(part_b[0], db, sizeof db);
    CHECK_OK(
        neo_linear_backward(ctx, NULL, x.t, w.t, dz.t, none, tw[1], none)); /* leaves of rows */
    CHECK(memcmp(part_w[1], dw, sizeof dw) != 0);

    neo_tensor x0 = neo_tensor_rows(x.t, 0, 0), dz0 = neo_tensor_rows(dz.t, 0, 0);
    leaves.first = 3, leaves.count = 0;
    memset(dw, 1, sizeof dw), memset(db, 1, sizeof db);
    CHECK_OK(neo_linear_backward(ctx, &leaves, x0, w.t, dz0, none, tdw, tdb));
    for (int i = 0; i < OUT * IN; i++) CHECK(dw[i] == 0.0f && db[i % OUT] == 0.0f);
    CHECK_ERR(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, none), NEO_ERR_SHAPE,
              "leaves [3, 3) of 5 hold 0 samples of a batch of 11, 7 rows each; the tensors have "
              "77 rows");
    leaves.first = 0, leaves.count = V, leaves.batch = BATCH * T, leaves.rows_per_sample = 0;
    CHECK_OK(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, none)); /* 0 is 1 */
    CHECK_BITS(part_w[1], dw, sizeof dw);
    leaves.rows_per_sample = 2;
    CHECK_ERR(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, none), NEO_ERR_SHAPE,
              "2 rows each");
    leaves.rows_per_sample = -1;
    CHECK_ERR(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, none), NEO_ERR_ARG,
              "rows_per_sample of the leaves is -1");
    leaves.rows_per_sample = 1, leaves.count = -1;
    CHECK_ERR(neo_linear_backward(ctx, &leaves, x.t, w.t, dz.t, none, tdw, none), NEO_ERR_ARG,
              "-1 leaves from 0");
    free(x.block), free(w.block), free(dz.block);
    neo_ctx_destroy(ctx), neo_ctx_destroy(one);
}

/* ---- gradients: central differences of sum(r * y) ---- */
typedef struct probe {
    neo_status (*forward)(void *user);
    void *user;
    neo_tensor y, r; /* contiguous */
} probe;
static double probe_loss(const probe *p) {
    double sum = 0;
    CHECK_OK(p->forward(p->user));
    for (int64_t i = 0; i < neo_tensor_count(p->y); i++)
        sum += (double)((const float *)p->y.data)[i] * (double)((const float *)p->r.data)[i];
    return sum;
}
static void check_gradient(const char *what, const probe *p, neo_tensor value, neo_tensor grad,
                           double tol) {
    float *v = (float *)value.data;
    const float *g = (const float *)grad.data;
    for (int64_t i = 0; i < neo_tensor_count(value); i++) {
        float old = v[i], step = 1.0f / 128.0f;
        v[i] = old + step;
        double up = probe_loss(p), high = v[i];
        v[i] = old - step;
        double numeric = (up - probe_loss(p)) / (high - (double)v[i]);
        v[i] = old;
        if (!(fabs(numeric - (double)g[i]) <= tol * (1 + fabs(numeric))))
            FAIL("%s[%d] is %g, central difference %g", what, (int)i, (double)g[i], numeric);
    }
}

typedef struct linear_case {
    neo_ctx *ctx;
    neo_tensor x, w, b, y;
} linear_case;
static neo_status linear_forward(void *user) {
    linear_case *c = (linear_case *)user;
    return neo_linear_forward(c->ctx, c->x, c->w, c->b, NEO_ACT_NONE, c->y);
}
static void linear_gradients(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 3);
    box x = box_make(7, 5, 0), w = box_make(4, 5, 0), b = box_make(1, 4, 0), y = box_make(7, 4, 0),
        r = box_make(7, 4, 0);
    box dx = box_make(7, 5, 0), dw = box_make(4, 5, 0), db = box_make(1, 4, 0);
    linear_case c = {ctx, x.t, w.t, as_vector(b.t), y.t};
    probe p = {linear_forward, &c, y.t, r.t};
    CHECK_OK(neo_linear_backward(ctx, NULL, x.t, w.t, r.t, dx.t, dw.t, as_vector(db.t)));
    check_gradient("dx", &p, x.t, dx.t, 1e-4);
    check_gradient("dw", &p, w.t, dw.t, 1e-4);
    check_gradient("db", &p, b.t, db.t, 1e-4);
    free(x.block), free(w.block), free(b.block), free(y.block), free(r.block), free(dx.block),
        free(dw.block), free(db.block);
    neo_ctx_destroy(ctx);
}

static void linear_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 2);
    float f[64] = {0};
    neo_tensor x = neo_tensor_2d(f, NEO_F32, 4, 3), w = neo_tensor_2d(f, NEO_F32, 5, 3),
               y = neo_tensor_2d(f, NEO_F32, 4, 5);
    CHECK_ERR(neo_linear_forward(ctx, x, neo_tensor_2d(f, NEO_F32, 5, 2), none, NEO_ACT_NONE, y),
              NEO_ERR_SHAPE, "x is");
    CHECK_ERR(neo_linear_forward(ctx, x, w, neo_tensor_1d(f, NEO_F32, 4), NEO_ACT_NONE, y),
              NEO_ERR_SHAPE, "bias");
    CHECK_ERR(neo_linear_forward(ctx, x, w, none, (neo_activation)9, y), NEO_ERR_ARG,
              "activation 9");
    CHECK_ERR(neo_linear_forward(ctx, none, w, none, NEO_ACT_NONE, y), NEO_ERR_SHAPE, "x is none");
    CHECK_ERR(neo_linear_backward(ctx, NULL, x, w, y, neo_tensor_2d(f, NEO_F32, 4, 4), none, none),
              NEO_ERR_SHAPE, "dx");
    CHECK_ERR(neo_linear_backward(ctx, NULL, x, w, y, none, none, neo_tensor_1d(f, NEO_F32, 3)),
              NEO_ERR_SHAPE, "dbias");
    neo_leaves leaves = {9, 0, 1, 0};
    CHECK_OK(neo_linear_backward(ctx, &leaves, x, w, y, none, none, none)); /* 4 of 9 samples */
    leaves.batch = 12;
    CHECK_ERR(neo_linear_backward(ctx, &leaves, x, w, y, none, none, none), NEO_ERR_SHAPE,
              "6 samples");
    neo_ctx_destroy(ctx);
}

/* ---- mlp ---- */
static neo_mlp_desc mlp_desc(neo_activation act, neo_activation last) {
    neo_mlp_desc d;
    memset(&d, 0, sizeof d);
    d.name = "top";
    d.width_count = 4;
    d.widths[0] = 13, d.widths[1] = 40, d.widths[2] = 21, d.widths[3] = 3;
    d.max_batch = 50;
    d.act = act, d.last_act = last;
    return d;
}

static void mlp_parameters(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL;
    neo_mlp *mlp = NULL;
    REQUIRE_OK(neo_params_create(ctx, &params));
    neo_mlp_desc d = mlp_desc(NEO_ACT_RELU, NEO_ACT_NONE);
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    CHECK_INT(neo_params_count(params), 6);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "top.%d.weight", 2 * i);
        const neo_param *w = neo_params_find(params, name);
        snprintf(name, sizeof name, "top.%d.bias", 2 * i);
        const neo_param *b = neo_params_find(params, name);
        REQUIRE(w && b);
        CHECK(w->value.ndim == 2 && w->value.shape[0] == d.widths[i + 1] &&
              w->value.shape[1] == d.widths[i]);
        CHECK(b->value.ndim == 1 && b->value.shape[0] == d.widths[i + 1]);
        double sum = 0, square = 0, n = (double)neo_tensor_count(w->value);
        for (int64_t k = 0; k < neo_tensor_count(w->value); k++) {
            double v = (double)((float *)w->value.data)[k];
            sum += v, square += v * v;
        }
        double sigma2 = 2.0 / (double)(d.widths[i] + d.widths[i + 1]);
        CHECK_NEAR(sum / n, 0, 5 * sqrt(sigma2 / n));
        CHECK_NEAR(square / n, sigma2, 5 * sigma2 * sqrt(2 / n));
    }
    neo_mlp *again = NULL;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &again), NEO_ERR_ARG, "top.0.weight");
    CHECK(again == NULL);
    neo_mlp_destroy(mlp);
    d.name = "torch", d.init = NEO_MLP_INIT_TORCH;
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    const neo_param *w = neo_params_find(params, "torch.0.weight");
    REQUIRE(w != NULL);
    double largest = 0;
    for (int64_t k = 0; k < neo_tensor_count(w->value); k++)
        largest = fmax(largest, fabs((double)((float *)w->value.data)[k]));
    CHECK(largest <= 1 / sqrt(13.0) + 1e-6 && largest > 0.9 / sqrt(13.0));
    neo_mlp_destroy(mlp);
    d.name = "zero", d.init = NEO_MLP_INIT_ZERO;
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    for (int i = 0; i < neo_params_count(params); i++) {
        const neo_tensor t = neo_params_at(params, i)->value;
        for (int64_t k = 0; !strncmp(neo_params_at(params, i)->name, "zero.", 5) &&
                            k < neo_tensor_count(t); k++)
            CHECK(((float *)t.data)[k] == 0.0f);
    }
    neo_mlp_destroy(mlp);
    d.init = (neo_mlp_init)(NEO_MLP_INIT_ZERO + 1), d.name = "none";
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &again), NEO_ERR_ARG, "unknown initialiser 3");
    neo_mlp_destroy(NULL);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

/* create takes exactly neo_mlp_workspace_bytes besides the parameters, and a step takes nothing. */
/* An mlp on a set without memory: the same names, shapes and initialisers; what has to be there is
   named; in memory from elsewhere it is the same mlp. */
static void mlp_deferred(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL, *plain = NULL;
    neo_mlp *mlp = NULL, *same = NULL;
    neo_optim *optim = NULL;
    neo_mlp_desc d = mlp_desc(NEO_ACT_RELU, NEO_ACT_NONE);
    box x = box_make(4, 13, 0), y = box_make(4, 3, 0), z = box_copy(y), dx = box_make(4, 13, 0);
    REQUIRE_OK(neo_params_create(ctx, &plain));
    REQUIRE_OK(neo_mlp_create(ctx, plain, &d, &same));
    size_t before = neo_ctx_memory(ctx).bytes;
    REQUIRE_OK(neo_params_create_deferred(ctx, &params));
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    CHECK(neo_ctx_memory(ctx).bytes - before <
          neo_mlp_workspace_bytes(&d) + 4096); /* values: 6 KiB */
    CHECK(neo_params_is_deferred(params) && !neo_params_is_deferred(plain));
    CHECK_INT(neo_params_count(params), 6);

    neo_optim_desc sgd;
    memset(&sgd, 0, sizeof sgd);
    CHECK_ERR(neo_optim_create(ctx, params, &sgd, &optim), NEO_ERR_STATE,
              "its set is not in memory");
    CHECK(!optim);
    CHECK_ERR(neo_mlp_forward(mlp, x.t, y.t), NEO_ERR_STATE,
              "neo_mlp_forward: top.0.weight has no data, its set is not in memory");
    CHECK(box_same(y, z));
    neo_init bad = {NEO_INIT_UNIFORM, 1.0f, -1.0f};
    int64_t one = 1;
    CHECK(neo_params_add(params, "bad", 1, &one, bad, NULL) == NEO_ERR_ARG);
    CHECK_INT(neo_params_count(params), 6);
    CHECK_ERR(neo_params_bind(params, 6, NULL, NULL, NULL), NEO_ERR_ARG, "no parameter 6");
    CHECK_ERR(neo_params_bind(plain, 0, NULL, NULL, NULL), NEO_ERR_ARG, "'top.0.weight'");
    CHECK_INT(neo_params_initializer(params, 6).kind, NEO_INIT_NONE);

    static float value[6][1024], grad[6][1024];
    for (int i = 0; i < 6; i++) {
        const neo_param *p = neo_params_at(params, i), *q = neo_params_at(plain, i);
        CHECK(strcmp(p->name, q->name) == 0 && p->value.ndim == q->value.ndim);
        CHECK(!p->value.data && !p->grad.data);
        CHECK_INT(neo_tensor_count(p->value), neo_tensor_count(q->value));
        CHECK_OK(neo_params_bind(params, i, value[i], i == 3 ? NULL : grad[i], "it is held back"));
        CHECK(!p->value.absent && !p->grad.absent == (i != 3));
        CHECK_OK(neo_tensor_init(ctx, p->value, p->name, neo_params_initializer(params, i), 0));
        CHECK_BITS(value[i], q->value.data, neo_tensor_bytes(q->value));
    }
    CHECK_OK(neo_mlp_forward(mlp, x.t, y.t));
    CHECK_OK(neo_mlp_forward(same, x.t, z.t));
    CHECK(box_same(y, z));
    CHECK_ERR(neo_mlp_backward(mlp, NULL, y.t, dx.t), NEO_ERR_STATE,
              "neo_mlp_backward: top.2.bias has no data, it is held back");
    CHECK_OK(neo_params_bind(params, 3, value[3], grad[3], NULL));
    CHECK_OK(neo_mlp_backward(mlp, NULL, y.t, dx.t));
    CHECK_OK(neo_mlp_backward(same, NULL, y.t, none));
    for (int i = 0; i < 6; i++) {
        neo_tensor g = neo_params_at(plain, i)->grad;
        CHECK_BITS(grad[i], g.data, neo_tensor_bytes(g));
    }
    neo_mlp_destroy(mlp), neo_mlp_destroy(same);
    neo_params_destroy(params), neo_params_destroy(plain);
    CHECK_ERR(neo_params_create_deferred(NULL, &params), NEO_ERR_ARG, "ctx is NULL");
    free(x.block), free(y.block), free(z.block), free(dx.block);
    neo_ctx_destroy(ctx);
}

static void mlp_memory(void) {
    for (int act = 0; act <= NEO_ACT_GELU_TANH; act++)
        for (int widths = 2; widths <= 4; widths++) {
            neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 8);
            neo_params *params = NULL;
            neo_mlp *mlp = NULL;
            REQUIRE_OK(neo_params_create(ctx, &params));
            neo_mlp_desc d = mlp_desc((neo_activation)act, (neo_activation)((act + widths) % 6));
            d.width_count = widths;
            d.dropout = 0.25f * (float)(act % 3);
            size_t before = neo_ctx_memory(ctx).bytes;
            REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
            box x = box_make(50, d.widths[0], 0), y = box_make(50, d.widths[widths - 1], 0);
            int64_t calls = neo_ctx_memory(ctx).alloc_count;
            neo_mlp_drop(mlp, 0, 0);
            CHECK_OK(neo_mlp_forward(mlp, x.t, y.t));
            CHECK_OK(neo_mlp_backward(mlp, NULL, y.t, x.t));
            CHECK_INT(neo_ctx_memory(ctx).alloc_count, calls);
            size_t with = neo_ctx_memory(ctx).bytes;
            neo_mlp_destroy(mlp);
            size_t without = neo_ctx_memory(ctx).bytes; /* the parameters stay */
            CHECK_INT(with - without, neo_mlp_workspace_bytes(&d));
            CHECK(without > before);
            free(x.block), free(y.block);
            neo_params_destroy(params);
            neo_ctx_destroy(ctx);
        }
}

/* The mlp is its layers one after the other. */
enum { MLP_BATCH = 50, DROP_STEP = 9, DROP_ROW = 1000 };
static void mlp_by_layers(neo_ctx *ctx, neo_params *params, const neo_mlp_desc *d, neo_tensor x,
                          neo_tensor dy, neo_tensor y, neo_tensor dx, float *grads) {
    static const char *const names[] = {"top.0", "top.2"};
    static float z[3][MLP_BATCH * 40], a[3][MLP_BATCH * 40], dz[MLP_BATCH * 40], da[MLP_BATCH * 40];
    static float left[3][MLP_BATCH * 40];
    neo_tensor in[4], tz[3], act[3];
    in[0] = x;
    for (int i = 0; i < 3; i++) {
        tz[i] = neo_tensor_2d(z[i], NEO_F32, MLP_BATCH, d->widths[i + 1]);
        in[i + 1] = act[i] = neo_tensor_2d(a[i], NEO_F32, MLP_BATCH, d->widths[i + 1]);
        CHECK_OK(neo_linear_forward(ctx, in[i], neo_params_at(params, 2 * i)->value,
                                    neo_params_at(params, 2 * i + 1)->value, NEO_ACT_NONE, tz[i]));
        CHECK_OK(neo_activation_forward(ctx, i < 2 ? d->act : d->last_act, tz[i], in[i + 1]));
        if (i == 2 || d->dropout == 0) continue;
        in[i + 1] = neo_tensor_2d(left[i], NEO_F32, MLP_BATCH, d->widths[i + 1]);
        CHECK_OK(neo_dropout(ctx, names[i], DROP_STEP, DROP_ROW, d->dropout, act[i], in[i + 1]));
    }
    CHECK_OK(neo_tensor_copy(ctx, in[3], y));
    neo_tensor up = neo_tensor_2d(da, NEO_F32, MLP_BATCH, 3);
    CHECK_OK(neo_tensor_copy(ctx, dy, up));
    for (int i = 2; i >= 0; i--) {
        neo_tensor t = neo_tensor_2d(dz, NEO_F32, MLP_BATCH, d->widths[i + 1]);
        CHECK_OK(
            neo_activation_backward(ctx, i < 2 ? d->act : d->last_act, tz[i], act[i], up, t));
        if (i < 2 && d->dropout > 0)
            CHECK_OK(neo_dropout(ctx, names[i], DROP_STEP, DROP_ROW, d->dropout, t, t));
        up = i == 0 ? dx : neo_tensor_2d(da, NEO_F32, MLP_BATCH, d->widths[i]);
        int64_t in_width = d->widths[i], out_width = d->widths[i + 1];
        CHECK_OK(
            neo_linear_backward(ctx, NULL, in[i], neo_params_at(params, 2 * i)->value, t, up,
                                neo_tensor_2d(grads, NEO_F32, out_width, in_width),
                                neo_tensor_1d(grads + out_width * in_width, NEO_F32, out_width)));
        grads += out_width * in_width + out_width;
    }
}
static void mlp_against_layers(void) {
    contexts_make(3);
    for (int k = 0; k <= 2 * NEO_ACT_GELU_TANH + 1; k++) {
        const int act = k / 2;
        neo_mlp_desc d = mlp_desc((neo_activation)act, (neo_activation)((act * 5 + 1) % 6));
        d.dropout = k % 2 ? 0.3f : 0;
        box x = box_make(MLP_BATCH, 13, 3), dy = box_make(MLP_BATCH, 3, 2),
            y = box_make(MLP_BATCH, 3, 1);
        box dx = box_make(MLP_BATCH, 13, 4), dy_before = box_copy(dy), want_y = box_copy(y),
            want_dx = box_copy(dx);
        static float grads[13 * 40 + 40 + 40 * 21 + 21 + 21 * 3 + 3];
        for (int i = 0; i < context_count; i++) {
            neo_params *params = NULL;
            neo_mlp *mlp = NULL;
            box got_y = box_copy(y), got_dx = box_copy(dx);
            REQUIRE_OK(neo_params_create(contexts[i], &params));
            REQUIRE_OK(neo_mlp_create(contexts[i], params, &d, &mlp));
            if (i == 0)
                mlp_by_layers(contexts[0], params, &d, x.t, dy.t, want_y.t, want_dx.t, grads);
            neo_mlp_drop(mlp, DROP_STEP, DROP_ROW);
            for (int over = 0; over < 2; over++) { /* then dx takes the place of x */
                box in = box_copy(x);
                const neo_tensor to = over ? in.t : got_dx.t;
                CHECK_OK(neo_mlp_forward(mlp, in.t, got_y.t));
                CHECK_OK(neo_mlp_backward(mlp, NULL, dy.t, to));
                CHECK(box_same(got_y, want_y));
                CHECK(over || box_same(got_dx, want_dx));
                for (int64_t r = 0; r < MLP_BATCH; r++)
                    CHECK_BITS(row_of(to, r), row_of(want_dx.t, r), 13 * sizeof(float));
                CHECK(box_same(dy, dy_before));
                const float *g = grads;
                for (int p = 2; p >= 0; p--)
                    for (int part = 0; part < 2; part++) {
                        neo_tensor t = neo_params_at(params, 2 * p + part)->grad;
                        if (memcmp(t.data, g, neo_tensor_bytes(t)) != 0)
                            FAIL("act %d, %s: gradient %d.%d differs", act,
                                 neo_isa_name(neo_ctx_isa(contexts[i])), p, part);
                        g += neo_tensor_count(t);
                    }
                CHECK_OK(neo_mlp_backward(mlp, NULL, dy.t, none));
                free(in.block);
            }
            neo_mlp_destroy(mlp);
            neo_params_destroy(params);
            free(got_y.block), free(got_dx.block);
        }
        free(x.block), free(dy.block), free(y.block), free(dx.block), free(dy_before.block),
            free(want_y.block), free(want_dx.block);
    }
    contexts_free();
}

typedef struct mlp_case {
    neo_mlp *mlp;
    neo_tensor x, y;
} mlp_case;
static neo_status mlp_forward(void *user) {
    mlp_case *c = (mlp_case *)user;
    return neo_mlp_forward(c->mlp, c->x, c->y);
}
static void mlp_gradients(void) {
    static const neo_activation acts[] = {NEO_ACT_NONE, NEO_ACT_SIGMOID, NEO_ACT_TANH,
                                          NEO_ACT_GELU};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 2);
    for (int i = 0; i < 4;
         i++) { /* relu and hardswish have kinks; mlp_against_layers covers them */
        neo_params *params = NULL;
        neo_mlp *mlp = NULL;
        neo_mlp_desc d = mlp_desc(acts[i], acts[(i + 1) & 3]);
        d.widths[0] = 4, d.widths[1] = 6, d.widths[2] = 5;
        d.dropout = 0.2f * (float)i;
        REQUIRE_OK(neo_params_create(ctx, &params));
        REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
        neo_mlp_drop(mlp, 2, 5);
        box x = box_make(6, 4, 0), y = box_make(6, 3, 0), r = box_make(6, 3, 0),
            dx = box_make(6, 4, 0);
        mlp_case c = {mlp, x.t, y.t};
        probe p = {mlp_forward, &c, y.t, r.t};
        CHECK_OK(neo_mlp_forward(mlp, x.t, y.t));
        CHECK_OK(neo_mlp_backward(mlp, NULL, r.t, dx.t));
        check_gradient("mlp dx", &p, x.t, dx.t, 1e-3);
        for (int k = 0; k < neo_params_count(params); k++) {
            const neo_param *param = neo_params_at(params, k);
            check_gradient(param->name, &p, param->value, param->grad, 1e-3);
        }
        free(x.block), free(y.block), free(r.block), free(dx.block);
        neo_mlp_destroy(mlp);
        neo_params_destroy(params);
    }
    neo_ctx_destroy(ctx);
}

/* Without neo_mlp_drop, and below step 0, nothing is dropped; a backward drops as its forward did,
   whatever is said in between; rows are dropped by their place in the whole batch. */
static void mlp_drops_when_told(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params[2] = {NULL, NULL};
    neo_mlp *mlp[2] = {NULL, NULL};
    neo_mlp_desc d = mlp_desc(NEO_ACT_RELU, NEO_ACT_NONE);
    box x = box_make(40, 13, 0), y = box_make(40, 3, 0), dy = box_make(40, 3, 0);
    box z = box_copy(y), dx = box_make(40, 13, 0), dz = box_copy(dx), kept = box_copy(y);
    for (int i = 0; i < 2; i++) {
        d.dropout = i ? 0.5f : 0;
        REQUIRE_OK(neo_params_create(ctx, &params[i]));
        REQUIRE_OK(neo_mlp_create(ctx, params[i], &d, &mlp[i]));
    }
    neo_mlp_drop(mlp[0], 3, 0);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(neo_mlp_forward(mlp[0], x.t, y.t));
        CHECK_OK(neo_mlp_backward(mlp[0], NULL, dy.t, dx.t));
        CHECK_OK(neo_mlp_forward(mlp[1], x.t, z.t));
        neo_mlp_drop(mlp[1], 3, 0);
        CHECK_OK(neo_mlp_backward(mlp[1], NULL, dy.t, dz.t));
        CHECK(box_same(y, z) && box_same(dx, dz));
        CHECK_OK(neo_mlp_forward(mlp[1], x.t, kept.t));
        CHECK(!box_same(y, kept));
        CHECK_OK(neo_mlp_backward(mlp[1], NULL, dy.t, dz.t));
        CHECK(!box_same(dx, dz));
        neo_mlp_drop(mlp[1], -1, 0);
    }
    for (int64_t at = 0; at < 40; at += 10) {
        neo_mlp_drop(mlp[1], 3, at);
        CHECK_OK(neo_mlp_forward(mlp[1], neo_tensor_rows(x.t, at, 10),
                                 neo_tensor_rows(z.t, at, 10)));
    }
    CHECK(box_same(kept, z));
    for (int i = 0; i < 2; i++) neo_mlp_destroy(mlp[i]), neo_params_destroy(params[i]);
    free(x.block), free(y.block), free(z.block), free(dy.block), free(dx.block), free(dz.block);
    free(kept.block);
    neo_ctx_destroy(ctx);
}

static void mlp_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL;
    neo_mlp *mlp = NULL;
    REQUIRE_OK(neo_params_create(ctx, &params));
    neo_mlp_desc d = mlp_desc(NEO_ACT_RELU, NEO_ACT_NONE);
    d.name = NULL;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_ARG, "name");
    d.name = "m", d.width_count = 1;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_ARG, "width_count is 1");
    d.width_count = 4, d.widths[2] = 0;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_ARG, "widths[2] is 0");
    d.widths[2] = 21, d.max_batch = 0;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_ARG, "max_batch is 0");
    d.max_batch = 5, d.dropout = 1;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_ARG, "dropout is 1, not in [0, 1)");
    d.dropout = 0;
    d.max_batch = INT64_MAX / 4;
    CHECK_ERR(neo_mlp_create(ctx, params, &d, &mlp), NEO_ERR_MEMORY, "no memory");
    CHECK(mlp == NULL);
    CHECK_INT(neo_params_count(params), 0);
    d.max_batch = 4;
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    box x = box_make(5, 13, 0), y = box_make(5, 3, 0);
    CHECK_ERR(neo_mlp_backward(mlp, NULL, y.t, none), NEO_ERR_STATE, "no forward");
    CHECK_ERR(neo_mlp_forward(mlp, x.t, y.t), NEO_ERR_CAPACITY, "max_batch is 4");
    neo_tensor x4 = neo_tensor_rows(x.t, 0, 4), y4 = neo_tensor_rows(y.t, 0, 4);
    CHECK_ERR(neo_mlp_forward(mlp, x4, y.t), NEO_ERR_SHAPE, "y is");
    CHECK(strstr(neo_last_error(), " (mlp 'm')") != NULL);
    CHECK_OK(neo_mlp_forward(mlp, x4, y4));
    CHECK_ERR(neo_mlp_backward(mlp, NULL, y.t, none), NEO_ERR_SHAPE,
              "dy has 5 rows, the last neo_mlp_forward had 4 (mlp 'm')");
    CHECK_OK(neo_mlp_backward(mlp, NULL, y4, none));
    free(x.block), free(y.block);
    neo_mlp_destroy(mlp);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}

/* ---- dot interaction ---- */
static int64_t pair_at(int64_t i, int64_t j, int diagonal) {
    return diagonal ? i * (i + 1) / 2 + j : i * (i - 1) / 2 + j;
}
TEST_UNWATCHED static const float *part_of(neo_tensor x, neo_tensor e, int64_t s, int64_t i) {
    return i == 0 ? row_of(x, s) : row_of(e, s) + (i - 1) * x.shape[1];
}
TEST_UNWATCHED
static void interact_reference(int diagonal, neo_tensor x, neo_tensor e, neo_tensor z,
                               neo_tensor dz, neo_tensor dx, neo_tensor de) {
    const int64_t dim = x.shape[1], n = e.shape[1] / dim + 1;
    for (int64_t s = 0; s < x.shape[0]; s++) {
        memcpy(row_of(z, s), row_of(x, s), (size_t)dim * sizeof(float));
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i + diagonal; j++) {
                float dot = 0.0f;
                for (int64_t d = 0; d < dim; d++)
                    dot = fmaf(part_of(x, e, s, i)[d], part_of(x, e, s, j)[d], dot);
                row_of(z, s)[dim + pair_at(i, j, diagonal)] = dot;
            }
            for (int64_t d = 0; d < dim; d++) {
                const float *g = row_of(dz, s) + dim;
                float sum = i == 0 ? row_of(dz, s)[d] : 0.0f;
                for (int64_t j = 0; j < n; j++) {
                    float factor = j < i   ? g[pair_at(i, j, diagonal)]
                                   : j > i ? g[pair_at(j, i, diagonal)]
                                           : (diagonal ? 2.0f * g[pair_at(i, i, 1)] : 0.0f);
                    sum = fmaf(factor, part_of(x, e, s, j)[d], sum);
                }
                if (i == 0) row_of(dx, s)[d] = sum;
                else row_of(de, s)[(i - 1) * dim + d] = sum;
            }
        }
    }
}
static void check_interact(int64_t batch, int64_t dim, int64_t features, int diagonal,
                           int64_t pad) {
    CHECK(neo_interact_width(INT64_MAX, 2, 0) == -1 && neo_interact_width(2, INT64_MAX, 1) == -1);
    const int64_t width = neo_interact_width(dim, features, diagonal), n = features + 1;
    CHECK_INT(width, dim + n * (n - 1) / 2 + (diagonal ? n : 0));
    box x = box_make(batch, dim, pad), e = box_make(batch, features * dim, 2 * pad),
        z = box_make(batch, width, pad);
    box dz = box_make(batch, width, pad), dx = box_make(batch, dim, pad),
        de = box_make(batch, features * dim, pad);
    box rz = box_copy(z), rx = box_copy(dx), re = box_copy(de);
    interact_reference(diagonal, x.t, e.t, rz.t, dz.t, rx.t, re.t);
    for (int i = 0; i < context_count; i++) {
        box gz = box_copy(z), gx = box_copy(dx), ge = box_copy(de);
        CHECK_OK(neo_interact_forward(contexts[i], diagonal, x.t, e.t, gz.t));
        CHECK_OK(neo_interact_backward(contexts[i], diagonal, x.t, e.t, dz.t, gx.t, ge.t));
        int ok_z = box_same(gz, rz), ok_x = box_same(gx, rx), ok_e = box_same(ge, re);
        memcpy(gx.block, dx.block, (size_t)gx.count * sizeof(float));
        memcpy(ge.block, de.block, (size_t)ge.count * sizeof(float));
        CHECK_OK(neo_interact_backward(contexts[i], diagonal, x.t, e.t, dz.t, gx.t, none));
        CHECK_OK(neo_interact_backward(contexts[i], diagonal, x.t, e.t, dz.t, none, ge.t));
        ok_x &= box_same(gx, rx), ok_e &= box_same(ge, re);
        if (!ok_z || !ok_x || !ok_e)
            FAIL("%s: batch %d, dim %d, features %d, diagonal %d:%s%s%s differ",
                 neo_isa_name(neo_ctx_isa(contexts[i])), (int)batch, (int)dim, (int)features,
                 diagonal, ok_z ? "" : " z", ok_x ? "" : " dx", ok_e ? "" : " de");
        free(gz.block), free(gx.block), free(ge.block);
    }
    free(x.block), free(e.block), free(z.block), free(dz.block), free(dx.block), free(de.block);
    free(rz.block), free(rx.block), free(re.block);
}
static void interact_bits(void) {
    static const int64_t dims[] = {1, 3, 8, 16, 17, 33, 64},
                         features[] = {0, 1, 2, 5, 13, 14, 20, 26, 27, 31, 45};
    contexts_make(1);
    for (int d = 0; d < 7; d++)
        for (int f = 0; f < 11; f++)
            for (int diagonal = 0; diagonal < 2; diagonal++)
                check_interact(d + f == 3 ? 0 : 1 + (d + f) % 4, dims[d], features[f], diagonal,
                               (d + f) % 3);
    check_interact(40, 128, 26, 0, 0);
    check_interact(1, 100001, 2, 0, 0); /* longer than the scratch: in chunks */
    check_interact(1, 100001, 2, 1, 0);
    check_interact(1, 900, 300, 1, 0);
    contexts_free();
}

typedef struct interact_case {
    neo_ctx *ctx;
    int diagonal;
    neo_tensor x, e, z;
} interact_case;
static neo_status interact_forward(void *user) {
    interact_case *c = (interact_case *)user;
    return neo_interact_forward(c->ctx, c->diagonal, c->x, c->e, c->z);
}
static void interact_gradients(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int diagonal = 0; diagonal < 2; diagonal++) {
        const int64_t width = neo_interact_width(6, 4, diagonal);
        box x = box_make(3, 6, 0), e = box_make(3, 24, 0), z = box_make(3, width, 0),
            r = box_make(3, width, 0);
        box dx = box_make(3, 6, 0), de = box_make(3, 24, 0);
        interact_case c = {ctx, diagonal, x.t, e.t, z.t};
        probe p = {interact_forward, &c, z.t, r.t};
        CHECK_OK(neo_interact_backward(ctx, diagonal, x.t, e.t, r.t, dx.t, de.t));
        check_gradient("interact dx", &p, x.t, dx.t, 1e-3);
        check_gradient("interact de", &p, e.t, de.t, 1e-3);
        free(x.block), free(e.block), free(z.block), free(r.block), free(dx.block), free(de.block);
    }
    neo_ctx_destroy(ctx);
}
/* ---- factorization machines ---- */
TEST_UNWATCHED
static void fm_reference(int64_t dim, int weighted, neo_tensor e, neo_tensor y, neo_tensor v,
                         neo_tensor dy, neo_tensor dv, neo_tensor de) {
    const int64_t cols = dim + weighted, features = e.shape[1] / cols;
    float pairs[256];
    for (int64_t s = 0; s < e.shape[0]; s++) {
        const float *row = row_of(e, s), slope = ((const float *)dy.data)[s];
        float sum = 0.0f, weights = 0.0f;
        for (int64_t d = 0; d < dim; d++) {
            float before = 0.0f, pair = 0.0f;
            for (int64_t f = 0; f < features; f++) {
                pair = fmaf(row[f * cols + d], before, pair);
                before += row[f * cols + d];
                if (v.data) row_of(v, s)[f * dim + d] = row[f * cols + d];
            }
            for (int64_t f = 0; f < features; f++) {
                float rest = before - row[f * cols + d], *to = row_of(de, s) + f * cols + d;
                *to = dv.data ? fmaf(slope, rest, row_of(dv, s)[f * dim + d]) : slope * rest;
            }
            pairs[d % 256] = pair;
            if (d % 256 == 255 || d == dim - 1) sum += test_lanes(pairs, (int)(d % 256) + 1);
        }
        for (int64_t f = 0; f < features && weighted; f++) {
            weights += row[f * cols + dim];
            row_of(de, s)[f * cols + dim] = slope;
        }
        ((float *)y.data)[s] = weighted ? sum + weights : sum;
    }
}
static void check_fm(int64_t batch, int64_t dim, int64_t features, int weighted, int both,
                     int64_t pad) {
    const int64_t cols = features * (dim + weighted), wide = features * dim;
    box e = box_make(batch, cols, pad), y = box_make(batch, 1, 0), v = box_make(batch, wide, pad);
    box dy = box_make(batch, 1, 0), dv = box_make(batch, wide, 2 * pad),
        de = box_make(batch, cols, pad);
    box want_y = box_copy(y), want_v = box_copy(v), want_e = box_copy(de);
    const neo_tensor dv_given = both ? dv.t : none;
    fm_reference(dim, weighted, e.t, want_y.t, both ? want_v.t : none, dy.t, dv_given, want_e.t);
    for (int i = 0; i < context_count; i++) {
        box got_y = box_copy(y), got_v = box_copy(v), got_e = box_copy(de);
        CHECK_OK(neo_fm_forward(contexts[i], dim, weighted, e.t, got_y.t, both ? got_v.t : none));
        CHECK_OK(neo_fm_backward(contexts[i], dim, weighted, e.t, dy.t, dv_given, got_e.t));
        if (!box_same(got_y, want_y) || !box_same(got_v, want_v) || !box_same(got_e, want_e))
            FAIL("%s: fm of batch %d, dim %d, features %d, weights %d, v %d differs",
                 neo_isa_name(neo_ctx_isa(contexts[i])), (int)batch, (int)dim, (int)features,
                 weighted, both);
        free(got_y.block), free(got_v.block), free(got_e.block);
    }
    free(e.block), free(y.block), free(v.block), free(dy.block), free(dv.block), free(de.block);
    free(want_y.block), free(want_v.block), free(want_e.block);
}
static void fm_bits(void) {
    static const int64_t dims[] = {0, 1, 3, 8, 15, 16, 33, 256, 600}, features[] = {0, 1, 2, 26};
    contexts_make(1);
    for (int d = 0; d < 9; d++)
        for (int f = 0; f < 4; f++)
            for (int k = dims[d] ? 0 : 1; k < 4; k += dims[d] ? 1 : 2)
                check_fm(d + f == 3 ? 0 : 1 + (d + f) % 4, dims[d], features[f], k & 1, k >> 1,
                         (d + f) % 3);
    check_fm(700, 15, 26, 1, 1, 0); /* work for several threads */
    contexts_free();
}
TEST_UNWATCHED
static void ffm_reference(int64_t features, int64_t dim, int weighted, neo_tensor e, neo_tensor y,
                          neo_tensor dy, neo_tensor de) {
    const int64_t cols = features * dim + weighted;
    float pairs[256];
    for (int64_t s = 0; s < e.shape[0]; s++) {
        const float *row = row_of(e, s), slope = ((const float *)dy.data)[s];
        float sum = 0.0f, weights = 0.0f, *to = row_of(de, s);
        for (int64_t d = 0; d < dim; d++) {
            float pair = 0.0f;
            for (int64_t f = 0; f < features; f++)
                for (int64_t g = 0; g < features; g++) {
                    const float other = row[g * cols + f * dim + d];
                    to[f * cols + g * dim + d] = f == g ? 0.0f : slope * other;
                    if (g < f) pair = fmaf(row[f * cols + g * dim + d], other, pair);
                }
            pairs[d % 256] = pair;
            if (d % 256 == 255 || d == dim - 1) sum += test_lanes(pairs, (int)(d % 256) + 1);
        }
        for (int64_t f = 0; f < features && weighted; f++) {
            weights += row[(f + 1) * cols - 1];
            to[(f + 1) * cols - 1] = slope;
        }
        ((float *)y.data)[s] = weighted ? sum + weights : sum;
    }
}
static void check_ffm(int64_t batch, int64_t features, int64_t dim, int weighted, int64_t pad) {
    const int64_t wide = features * (features * dim + weighted);
    box e = box_make(batch, wide, pad), y = box_make(batch, 1, 0), dy = box_make(batch, 1, 0),
        de = box_make(batch, wide, 2 * pad);
    box want_y = box_copy(y), want_e = box_copy(de);
    ffm_reference(features, dim, weighted, e.t, want_y.t, dy.t, want_e.t);
    for (int i = 0; i < context_count; i++) {
        box got_y = box_copy(y), got_e = box_copy(de);
        CHECK_OK(neo_ffm_forward(contexts[i], features, dim, weighted, e.t, got_y.t));
        CHECK_OK(neo_ffm_backward(contexts[i], features, dim, weighted, e.t, dy.t, got_e.t));
        if (!box_same(got_y, want_y) || !box_same(got_e, want_e))
            FAIL("%s: ffm of batch %d, features %d, dim %d, weights %d differs",
                 neo_isa_name(neo_ctx_isa(contexts[i])), (int)batch, (int)features, (int)dim,
                 weighted);
        free(got_y.block), free(got_e.block);
    }
    free(e.block), free(y.block), free(dy.block), free(de.block);
    free(want_y.block), free(want_e.block);
}
/* A batch, whole and by parts, against the public random numbers. */
static void check_dropout(int64_t batch, int64_t cols, int64_t first_row, float p, int64_t pad) {
    box x = box_make(batch, cols, pad), y = box_make(batch, cols, 2 * pad), want = box_copy(y);
    const float scale = 1.0f / (1.0f - p);
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < cols; j++) {
            const float u = neo_random_uniform(neo_ctx_seed(contexts[0]), neo_hash("top.1"), 9,
                                               NEO_STREAM_DROPOUT,
                                               (uint64_t)((first_row + i) * cols + j));
            row_of(want.t, i)[j] = u < p ? 0.0f : row_of(x.t, i)[j] * scale;
        }
    for (int i = 0; i < context_count; i++)
        for (int64_t parts = 1; parts <= 3; parts += 2) {
            box got = box_copy(y);
            for (int64_t k = 0; k < parts; k++) {
                const int64_t at = batch * k / parts, count = batch * (k + 1) / parts - at;
                CHECK_OK(neo_dropout(contexts[i], "top.1", 9, first_row + at, p,
                                     neo_tensor_rows(x.t, at, count),
                                     neo_tensor_rows(got.t, at, count)));
            }
            CHECK(box_same(got, want));
            free(got.block);
        }
    free(x.block), free(y.block), free(want.block);
}
static void dropout(void) {
    static const int64_t cols[] = {1, 3, 16, 255, 256, 700};
    contexts_make(1);
    for (int k = 0; k < 6; k++)
        check_dropout(3 * k, cols[k], 5 * k, 0.16f * (float)k, k % 3);
    check_dropout(90, 700, (int64_t)1 << 40, 0.5f, 1); /* work for several threads */
    static float m[100000];
    for (int i = 0; i < 100000; i++) m[i] = 3.0f;
    neo_ctx *ctx = contexts[0];
    const neo_tensor x = neo_tensor_2d(m, NEO_F32, 1000, 100);
    CHECK_ERR(neo_dropout(ctx, "x", 0, 0, 1.0f, x, x), NEO_ERR_ARG, "p is 1, not in [0, 1)");
    CHECK_ERR(neo_dropout(ctx, "x", 0, 0, NAN, x, x), NEO_ERR_ARG, "not in [0, 1)");
    CHECK_ERR(neo_dropout(ctx, "x", -1, 0, 0.5f, x, x), NEO_ERR_ARG, "step -1");
    CHECK_ERR(neo_dropout(ctx, "x", 0, -7, 0.5f, x, x), NEO_ERR_ARG, "first_row -7");
    CHECK_ERR(neo_dropout(ctx, "x", 0, 0, 0.5f, x, neo_tensor_2d(m + 1, NEO_F32, 1000, 100)),
              NEO_ERR_ARG, "x overlaps y");
    CHECK_OK(neo_dropout(ctx, "x", 0, 0, 0.25f, x, x));
    double sum = 0.0;
    for (int i = 0; i < 100000; i++) sum += (double)m[i];
    CHECK(fabs(sum / 100000 - 3.0) < 0.03); /* six deviations; of fixed numbers */
    contexts_free();
}
static void ffm(void) {
    static const int64_t dims[] = {1, 4, 5, 16, 33, 300}, features[] = {1, 2, 3, 26};
    contexts_make(1);
    for (int d = 0; d < 6; d++)
        for (int f = 0; f < (dims[d] < 33 ? 4 : 3); f++)
            check_ffm((d + f) % 5, features[f], dims[d], (d + f) & 1, (d + f) % 3);
    check_ffm(4, 5, 0, 1, 0);
    check_ffm(120, 26, 4, 1, 0); /* work for several threads */
    float m[64] = {0};
    const neo_tensor e = neo_tensor_2d(m, NEO_F32, 2, 10), y = neo_tensor_1d(m + 32, NEO_F32, 2);
    neo_ctx *ctx = contexts[0];
    CHECK_OK(neo_ffm_forward(ctx, 2, 2, 1, e, y));
    CHECK_ERR(neo_ffm_forward(ctx, 0, 2, 1, e, y), NEO_ERR_SHAPE, "neo_ffm_forward: 0 features");
    CHECK_ERR(neo_ffm_forward(ctx, 2, 3, 1, e, y), NEO_ERR_SHAPE, "not whole features of 7");
    CHECK_ERR(neo_ffm_forward(ctx, 4, 0, 1, e, y), NEO_ERR_SHAPE,
              "e has 10 columns, not 4 features of 1");
    CHECK_ERR(neo_ffm_forward(ctx, INT64_MAX, 2, 1, e, y), NEO_ERR_SHAPE, "dim is 2");
    CHECK_ERR(neo_ffm_forward(ctx, 2, 2, 1, e, neo_tensor_1d(m, NEO_F32, 2)), NEO_ERR_ARG,
              "y overlaps e");
    CHECK_ERR(neo_ffm_backward(ctx, 2, 2, 1, e, y, e), NEO_ERR_ARG, "de overlaps e");
    contexts_free();
}
/* Pairs that squares would swallow: 2^14 and 2^-14 meet without loss. */
static void fm_cancels_nothing(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float f[3] = {16384.0f, 0x1p-14f, 0x1p-14f}, y = 0.0f;
    CHECK_OK(neo_fm_forward(ctx, 1, 0, neo_tensor_2d(f, NEO_F32, 1, 3),
                            neo_tensor_1d(&y, NEO_F32, 1), none));
    CHECK(y == 2.0f);
    neo_ctx_destroy(ctx);
}
static void fm_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float f[256] = {0};
    const neo_tensor e = neo_tensor_2d(f, NEO_F32, 2, 12), y = neo_tensor_1d(f + 32, NEO_F32, 2),
                     v = neo_tensor_2d(f + 64, NEO_F32, 2, 8);
    CHECK_OK(neo_fm_forward(ctx, 2, 1, e, y, v));
    CHECK_OK(neo_fm_forward(ctx, 2, 1, e, neo_tensor_2d(f + 32, NEO_F32, 2, 1), none));
    CHECK_ERR(neo_fm_forward(ctx, 4, 1, e, y, none), NEO_ERR_SHAPE,
              "e has 12 columns, not whole features of 5");
    CHECK_ERR(neo_fm_forward(ctx, 0, 0, e, y, none), NEO_ERR_SHAPE, "no weights");
    CHECK_ERR(neo_fm_forward(ctx, -1, 1, e, y, none), NEO_ERR_SHAPE, "dim is -1");
    CHECK_ERR(neo_fm_forward(ctx, 2, 1, y, y, none), NEO_ERR_SHAPE, "e must have two dimensions");
    CHECK_ERR(neo_fm_forward(ctx, 3, 0, e, y, v), NEO_ERR_SHAPE, "v");
    CHECK_ERR(neo_fm_forward(ctx, 2, 1, e, neo_tensor_1d(f + 32, NEO_F32, 3), v), NEO_ERR_SHAPE,
              "y");
    CHECK_ERR(neo_fm_backward(ctx, 2, 1, e, y, none, v), NEO_ERR_SHAPE, "de");
    CHECK_ERR(neo_fm_backward(ctx, 2, 1, e, y, e, neo_tensor_2d(f + 64, NEO_F32, 2, 12)),
              NEO_ERR_SHAPE, "dv");
    CHECK_ERR(neo_fm_forward(ctx, 2, 1, e, neo_tensor_1d(f, NEO_F32, 2), none), NEO_ERR_ARG,
              "y overlaps e");
    CHECK_ERR(neo_fm_backward(ctx, 2, 1, e, y, none, e), NEO_ERR_ARG, "de overlaps e");
    neo_ctx_destroy(ctx);
}

/* Outputs that share memory with an input are refused, columns beside it are not. */
static void overlaps(void) {
    enum { B = 4, WIDE = 64 };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_params *params = NULL;
    neo_mlp *mlp = NULL;
    float f[B * WIDE] = {0}, g[WIDE] = {0};
    const neo_tensor all = neo_tensor_2d(f, NEO_F32, B, WIDE), w = neo_tensor_2d(g, NEO_F32, 4, 4);
#define COLS(at, n) neo_tensor_slice(all, 1, at, n)
#define OVER(call, text) CHECK_ERR(call, NEO_ERR_ARG, text " in memory")
    neo_tensor x = COLS(0, 4), y = COLS(4, 4), over = COLS(3, 4);
    neo_tensor b = neo_tensor_1d(f + 4, NEO_F32, 4);
    neo_tensor below = neo_tensor_2d(f + WIDE, NEO_F32, 1, 4), dz = COLS(8, 4), dx = COLS(12, 4);
    CHECK_OK(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, y));
    OVER(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, over), "y overlaps x");
    OVER(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, x), "y overlaps x");
    OVER(neo_linear_forward(ctx, x, w, b, NEO_ACT_NONE, y), "y overlaps bias");
    OVER(neo_linear_forward(ctx, x, COLS(4, 4), none, NEO_ACT_NONE, y), "y overlaps w");
    OVER(neo_linear_forward(ctx, neo_tensor_rows(y, 0, 1), w, none, NEO_ACT_NONE,
                            neo_tensor_rows(y, 0, 1)), "y overlaps x");
    CHECK_OK(neo_linear_forward(ctx, neo_tensor_rows(x, 0, 1), w, none, NEO_ACT_NONE, below));
    CHECK_OK(neo_linear_backward(ctx, NULL, x, w, dz, dx, none, none));
    OVER(neo_linear_backward(ctx, NULL, x, w, dz, dz, none, none), "dx overlaps dz");
    OVER(neo_linear_backward(ctx, NULL, x, w, dz, none, w, none), "dw overlaps w");
    OVER(neo_linear_backward(ctx, NULL, x, w, dz, dx, none, neo_tensor_1d(f + 12, NEO_F32, 4)),
         "dx overlaps dbias");
    OVER(neo_gemm(ctx, NULL, x, w, over), "c overlaps a");
    OVER(neo_gemm(ctx, &(neo_gemm_desc){.bias = f + 4}, x, w, y), "c overlaps bias");
    CHECK_OK(neo_interact_forward(ctx, 0, x, y, COLS(8, 5)));
    OVER(neo_interact_forward(ctx, 0, x, y, COLS(7, 5)), "z overlaps e");
    OVER(neo_interact_forward(ctx, 0, x, y, COLS(3, 5)), "z overlaps x");
    OVER(neo_interact_backward(ctx, 0, x, y, COLS(8, 5), dz, none), "dx overlaps dz");
    OVER(neo_interact_backward(ctx, 0, x, y, COLS(8, 5), COLS(20, 4), COLS(23, 4)),
         "dx overlaps de");
    CHECK_OK(neo_add(ctx, x, x));
    CHECK_OK(neo_add(ctx, x, y));
    OVER(neo_add(ctx, x, over), "x overlaps y");
    OVER(neo_mul(ctx, over, x), "x overlaps y");
    OVER(neo_round(ctx, NEO_BF16, x, over), "x overlaps y");
    OVER(neo_dot_forward(ctx, x, y, neo_tensor_1d(f + 4, NEO_F32, B)), "out overlaps y");
    OVER(neo_dot_backward(ctx, x, y, neo_tensor_1d(g, NEO_F32, B), dz, y), "dy overlaps y");
    neo_tensor line = neo_tensor_1d(f, NEO_F32, 32), shifted = neo_tensor_1d(f + 1, NEO_F32, 32);
    neo_tensor away = neo_tensor_1d(f + 64, NEO_F32, 32);
    neo_tensor ids = neo_tensor_1d(f + 5, NEO_I32, B), first = neo_tensor_1d(f + 68, NEO_I32, B);
    CHECK_OK(neo_activation_forward(ctx, NEO_ACT_RELU, line, line));
    OVER(neo_activation_forward(ctx, NEO_ACT_RELU, line, shifted), "y overlaps z");
    CHECK_OK(neo_activation_backward(ctx, NEO_ACT_RELU, none, away, line, line));
    OVER(neo_activation_backward(ctx, NEO_ACT_RELU, none, away, line, shifted), "dz overlaps dy");
    OVER(neo_activation_backward(ctx, NEO_ACT_GELU, line, none, away, shifted), "dz overlaps z");
    OVER(neo_embedding_forward(ctx, ids, x, y), "out overlaps ids");
    OVER(neo_embedding_forward(ctx, ids, x, over), "out overlaps table");
    OVER(neo_embedding_backward(ctx, NULL, first, x, over, 0), "dtable overlaps dout");
    CHECK_OK(neo_rms_norm_forward(ctx, x, none, 1, x, neo_tensor_1d(g, NEO_F32, B)));
    OVER(neo_rms_norm_forward(ctx, x, none, 1, over, neo_tensor_1d(g, NEO_F32, B)),
         "y overlaps x");
    neo_attention_desc a = {.length = B, .heads = 1};
    CHECK_OK(neo_attention_forward(ctx, &a, x, y, COLS(8, 4), COLS(12, 4), none));
    OVER(neo_attention_forward(ctx, &a, x, y, COLS(8, 4), COLS(10, 4), none), "y overlaps v");
    neo_mlp_desc d = {.name = "m", .width_count = 2, .widths = {4, 4}, .max_batch = B};
    REQUIRE_OK(neo_params_create(ctx, &params));
    REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
    CHECK_OK(neo_mlp_forward(mlp, x, y));
    OVER(neo_mlp_forward(mlp, x, over), "y overlaps x");
    OVER(neo_mlp_backward(mlp, NULL, y, over), "dx overlaps dy");
    CHECK_OK(neo_mlp_backward(mlp, NULL, dz, dx));
#undef COLS
#undef OVER
    neo_mlp_destroy(mlp);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}
static void interact_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    float f[256] = {0};
    neo_tensor x = neo_tensor_2d(f, NEO_F32, 2, 4), e = neo_tensor_2d(f, NEO_F32, 2, 12),
               z = neo_tensor_2d(f, NEO_F32, 2, 10);
    CHECK_OK(neo_interact_forward(ctx, 0, x, e, neo_tensor_2d(f + 64, NEO_F32, 2, 10)));
    CHECK_ERR(neo_interact_forward(ctx, 1, x, e, z), NEO_ERR_SHAPE, "expected [2][14]");
    CHECK_ERR(neo_interact_forward(ctx, 0, x, neo_tensor_2d(f, NEO_F32, 2, 13), z), NEO_ERR_SHAPE,
              "e is");
    CHECK_ERR(neo_interact_forward(ctx, 0, x, neo_tensor_2d(f, NEO_F32, 3, 12), z), NEO_ERR_SHAPE,
              "e is");
    CHECK_ERR(neo_interact_backward(ctx, 0, x, e, z, neo_tensor_2d(f, NEO_F32, 2, 5), none),
              NEO_ERR_SHAPE, "dx");
    CHECK_ERR(neo_interact_forward(ctx, 0, neo_tensor_2d(f, NEO_F32, 2, 0), e, z), NEO_ERR_SHAPE,
              "no columns");
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(linear_forward_bits);
    RUN(linear_backward_bits);
    RUN(linear_backward_long);
    RUN(pieces_of_leaves);
    RUN(rows_per_sample);
    RUN(linear_gradients);
    RUN(linear_errors);
    RUN(mlp_parameters);
    RUN(mlp_deferred);
    RUN(mlp_memory);
    RUN(mlp_against_layers);
    RUN(mlp_gradients);
    RUN(mlp_drops_when_told);
    RUN(mlp_errors);
    RUN(interact_bits);
    RUN(interact_gradients);
    RUN(interact_errors);
    RUN(fm_bits);
    RUN(ffm);
    RUN(dropout);
    RUN(fm_cancels_nothing);
    RUN(fm_errors);
    RUN(overlaps);
    return test_end("core/layers");
}
