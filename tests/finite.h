/* finite.h: check_finite: a number that is not finite, in each kind of operation, and the message
   that tells of it, word by word. core/operations runs it on the CPU, cuda/device on a device.

   Every case has tensors of ones, puts a number into one of them, and makes a call. */
#ifndef NEO_TEST_FINITE_H
#define NEO_TEST_FINITE_H
#include "test.h"

enum { FINITE_MOST = 12 };
static neo_ctx *finite_ctx;
static neo_tensor finite_t[FINITE_MOST]; /* of the running case */
static int finite_count;

static void finite_set(neo_tensor t, int64_t at, float x) {
    neo_tensor one = neo_tensor_1d((char *)t.data + (size_t)at * neo_dtype_size(t.dtype), t.dtype,
                                   1);
    float number[1] = {x};
    uint16_t narrow[1];
    one.place = t.place;
    neo_floats_encode(finite_ctx, NEO_BF16, number, narrow, 1);
    neo_tensor from = neo_tensor_1d(t.dtype == NEO_F32 ? (void *)number : (void *)narrow, t.dtype,
                                    1);
    CHECK_OK(neo_tensor_copy(finite_ctx, from, one));
}
static neo_tensor finite_new(neo_dtype dtype, int64_t rows, int64_t cols, float x) {
    const int64_t shape[2] = {rows, cols};
    neo_tensor t;
    CHECK_OK(neo_tensor_alloc(finite_ctx, dtype, cols ? 2 : 1, shape, &t));
    for (int64_t i = 0; i < neo_tensor_count(t); i++) finite_set(t, i, x);
    return finite_t[finite_count++] = t;
}
static neo_tensor finite_ones(int64_t rows, int64_t cols) {
    return finite_new(NEO_F32, rows, cols, 1.0f);
}
static neo_tensor finite_ids(int64_t n) {
    int64_t ids[8] = {0, 1, 2, 0, 1, 2, 0, 1};
    neo_tensor t;
    CHECK_OK(neo_tensor_alloc(finite_ctx, NEO_I64, 1, &n, &t));
    CHECK_OK(neo_tensor_copy(finite_ctx, neo_tensor_1d(ids, NEO_I64, n), t));
    return finite_t[finite_count++] = t;
}
static void finite_free(void) {
    while (finite_count > 0) neo_tensor_free(finite_ctx, &finite_t[--finite_count]);
}
#define SAYS(call, expected)                                                                       \
    do {                                                                                           \
        const neo_status finite_status = (call);                                                   \
        if (finite_status != NEO_ERR_NUMERIC || strcmp(neo_last_error(), expected) != 0)           \
            FAIL("%s: %s, '%s', expected '%s'", #call, neo_status_string(finite_status),           \
                 neo_last_error(), expected);                                                      \
    } while (0)

static void finite_products(void) {
    neo_ctx *ctx = finite_ctx;
    const neo_tensor none = neo_tensor_none();
    neo_gemm_desc d = {0, 0, 0.0f, NEO_ACT_NONE, NULL}, trans = {1, 1, 1.0f, NEO_ACT_NONE, NULL};
    neo_tensor a = finite_ones(3, 4), b = finite_ones(4, 5), c = finite_ones(3, 5);
    CHECK_OK(neo_gemm(ctx, &d, a, b, c));
    finite_set(a, 6, NAN); /* [1][2] */
    SAYS(neo_gemm(ctx, &d, a, b, c), "neo_gemm: c[1][0] is nan, from a[1][2], which is nan");
    finite_set(a, 6, 3e38f), finite_set(b, 11, -3e38f); /* [2][1] */
    SAYS(neo_gemm(ctx, &d, a, b, c), "neo_gemm: c[1][1] is -inf, from finite numbers");
    c = finite_ones(4, 4), finite_set(c, 3, INFINITY); /* added to */
    SAYS(neo_gemm(ctx, &trans, a, finite_ones(4, 3), c),
         "neo_gemm: c[0][3] is inf, from c[0][3], which is inf");
    neo_tensor x = finite_ones(3, 4), w = finite_ones(5, 4), y = finite_ones(3, 5);
    finite_set(w, 7, -INFINITY); /* [1][3] */
    SAYS(neo_linear_forward(ctx, x, w, none, NEO_ACT_NONE, y),
         "neo_linear_forward: y[0][1] is -inf, from w[1][3], which is -inf");
    CHECK_OK(neo_linear_forward(ctx, x, w, none, NEO_ACT_SIGMOID, y)); /* 0, which is finite */
    neo_tensor dz = finite_ones(3, 5), dw = finite_ones(5, 4), db = finite_ones(5, 0);
    finite_set(w, 7, 1.0f), finite_set(dz, 14, NAN); /* [2][4] */
    SAYS(neo_linear_backward(ctx, NULL, x, w, dz, none, dw, none),
         "neo_linear_backward: dw[4][0] is nan, from dz[2][4], which is nan");
    SAYS(neo_linear_backward(ctx, NULL, x, w, dz, none, none, db),
         "neo_linear_backward: dbias[4] is nan, from dz[2][4], which is nan");
    SAYS(neo_linear_backward(ctx, NULL, x, w, dz, finite_ones(3, 4), none, none),
         "neo_linear_backward: dx[2][0] is nan, from dz[2][4], which is nan");
    finite_free();
    neo_tensor wide = finite_ones(3, 4), half = finite_new(NEO_BF16, 3, 4, 1.0f);
    neo_tensor half_w = finite_new(NEO_BF16, 5, 4, 1.0f), half_y = finite_new(NEO_BF16, 3, 5, 1.0f);
    finite_set(half, 5, NAN); /* [1][1] */
    SAYS(neo_linear_forward(ctx, half, half_w, none, NEO_ACT_NONE, half_y),
         "neo_linear_forward: y[1][0] is nan, from x[1][1], which is nan");
    finite_set(wide, 7, 3.4e38f); /* [1][3] */
    SAYS(neo_tensor_convert(ctx, wide, half, NULL),
         "neo_tensor_convert: dst[7] is inf, from finite numbers");
    finite_free();
}

static void finite_layers(void) {
    neo_ctx *ctx = finite_ctx;
    const neo_tensor none = neo_tensor_none();
    neo_tensor x = finite_ones(3, 4), y = finite_ones(3, 4), w = finite_ones(4, 0);
    neo_tensor b = finite_ones(4, 0), stats = finite_ones(3, 2), dy = finite_ones(3, 4);
    finite_set(x, 5, NAN); /* [1][1] */
    SAYS(neo_activation_forward(ctx, NEO_ACT_GELU, x, y),
         "neo_activation_forward: y[5] is nan, from z[5], which is nan");
    SAYS(neo_activation_forward(ctx, NEO_ACT_GELU, x, x), /* in place */
         "neo_activation_forward: y[5] is nan, from z[5], which is nan");
    SAYS(neo_activation_backward(ctx, NEO_ACT_NONE, none, none, x, y),
         "neo_activation_backward: dz[5] is nan, from dy[5], which is nan");
    SAYS(neo_layer_norm_forward(ctx, x, w, b, 1e-5f, y, stats),
         "neo_layer_norm_forward: y[1][0] is nan, from x[1][1], which is nan");
    finite_set(x, 5, 2.0f), finite_set(w, 3, INFINITY);
    SAYS(neo_rms_norm_forward(ctx, x, w, 1e-5f, y, finite_ones(3, 0)),
         "neo_rms_norm_forward: y[0][3] is inf, from weight[3], which is inf");
    finite_set(w, 3, 1.0f), finite_set(dy, 8, NAN); /* [2][0] */
    CHECK_OK(neo_layer_norm_forward(ctx, x, w, b, 1e-5f, y, stats));
    SAYS(neo_layer_norm_backward(ctx, NULL, x, w, stats, dy, y, none, none),
         "neo_layer_norm_backward: dx[2][0] is nan, from dy[2][0], which is nan");
    SAYS(neo_layer_norm_backward(ctx, NULL, x, w, stats, dy, none, finite_ones(4, 0), b),
         "neo_layer_norm_backward: dweight[0] is nan, from dy[2][0], which is nan");
    finite_free();
    neo_tensor ids = finite_ids(6), table = finite_ones(3, 4), out = finite_ones(6, 4);
    finite_set(table, 9, NAN); /* [2][1] */
    SAYS(neo_embedding_forward(ctx, ids, table, out),
         "neo_embedding_forward: out[2][1] is nan, from table[2][1], which is nan");
    finite_set(out, 21, INFINITY); /* [5][1]; [2][1] is NaN */
    SAYS(neo_embedding_backward(ctx, NULL, ids, out, table, 0),
         "neo_embedding_backward: dtable[2][1] is nan, from dout[2][1], which is nan");
    finite_free();
    const neo_attention_desc d = {3, 2, 1, 0.0f, .dtype = NEO_F32};
    neo_tensor q = finite_ones(3, 4), k = finite_ones(3, 4), v = finite_ones(3, 4);
    neo_tensor lse = finite_ones(3, 2), dq = finite_ones(3, 4), to = finite_ones(3, 4);
    finite_set(v, 3, NAN);
    SAYS(neo_attention_forward(ctx, &d, q, k, v, to, lse),
         "neo_attention_forward: y[0][3] is nan, from v[0][3], which is nan");
    finite_set(v, 3, 1.0f);
    CHECK_OK(neo_attention_forward(ctx, &d, q, k, v, to, lse));
    finite_set(dq, 0, NAN);
    SAYS(neo_attention_backward(ctx, &d, q, k, v, to, lse, dq, finite_ones(3, 4), none, none),
         "neo_attention_backward: dq[0][0] is nan, from dy[0][0], which is nan");
    neo_attention_desc jagged = d; /* row 1 is a sequence, those around it are of none */
    jagged.offsets = neo_tensor_slice(finite_ids(4), 0, 1, 2);
    finite_set(q, 2, NAN), finite_set(k, 8, INFINITY);
    CHECK_OK(neo_attention_forward(ctx, &jagged, q, k, v, to, lse));
    CHECK_OK(neo_attention_backward(ctx, &jagged, q, k, v, to, lse, dq, finite_ones(3, 4), none,
                                    none));
    finite_set(v, 7, NAN);
    SAYS(neo_attention_forward(ctx, &jagged, q, k, v, to, lse),
         "neo_attention_forward: y[1][3] is nan, from v[1][3], which is nan");
    finite_free();
    neo_tensor e = finite_ones(2, 6), z = finite_ones(2, neo_interact_width(3, 2, 0));
    neo_tensor xi = finite_ones(2, 3);
    finite_set(e, 10, 3e38f), finite_set(e, 7, 3e38f); /* [1][4] of one feature, [1][1] */
    SAYS(neo_interact_forward(ctx, 0, xi, e, z),
         "neo_interact_forward: z[1][5] is inf, from finite numbers");
    finite_set(e, 10, 1.0f), finite_set(e, 7, 1.0f);
    CHECK_OK(neo_interact_forward(ctx, 0, xi, e, z));
    finite_set(z, 2, NAN);
    SAYS(neo_interact_backward(ctx, 0, xi, e, z, finite_ones(2, 3), none),
         "neo_interact_backward: dx[0][2] is nan, from dz[0][2], which is nan");
    finite_free();
    neo_tensor rows = finite_ones(2, 6), sums = finite_ones(2, 0), factors = finite_ones(2, 4);
    finite_set(rows, 8, INFINITY); /* the first weight of sample 1 */
    SAYS(neo_fm_forward(ctx, 2, 1, rows, sums, none),
         "neo_fm_forward: y[1] is inf, from e[1][2], which is inf");
    finite_set(rows, 8, 1.0f), finite_set(sums, 1, 1.0f), finite_set(factors, 5, NAN);
    SAYS(neo_fm_backward(ctx, 2, 1, rows, sums, factors, finite_ones(2, 6)),
         "neo_fm_backward: de[1][1] is nan, from dv[1][1], which is nan");
    finite_set(rows, 7, INFINITY); /* of sample 1 the first row's factor for the second */
    SAYS(neo_ffm_forward(ctx, 2, 1, 1, rows, sums),
         "neo_ffm_forward: y[1] is inf, from e[1][1], which is inf");
    finite_set(sums, 1, 1.0f);
    SAYS(neo_ffm_backward(ctx, 2, 1, 1, rows, sums, finite_ones(2, 6)),
         "neo_ffm_backward: de[1][3] is inf, from e[1][1], which is inf");
    finite_free();
}

static void finite_elements(void) {
    neo_ctx *ctx = finite_ctx;
    const neo_tensor none = neo_tensor_none();
    neo_tensor x = finite_ones(3, 4), y = finite_ones(3, 4), out = finite_ones(3, 0);
    neo_tensor parts[2];
    int finite = -1;
    finite_set(x, 6, 3e38f), finite_set(y, 6, 3e38f);
    SAYS(neo_add(ctx, x, y), "neo_add: x[1][2] is inf, from finite numbers");
    SAYS(neo_mul(ctx, y, x), "neo_mul: x[1][2] is inf, from y[1][2], which is inf");
    finite_set(y, 6, 1.0f);
    SAYS(neo_addcmul(ctx, finite_ones(3, 4), y, x, finite_ones(3, 4)),
         "neo_addcmul: x[1][2] is inf, from z[1][2], which is inf");
    SAYS(neo_scale(ctx, x, 0.0f, NULL), "neo_scale: x[1][2] is nan, from x[1][2], which is inf");
    CHECK_OK(neo_scale(ctx, x, 2.0f, &finite)); /* the caller asks */
    CHECK_INT(finite, 0);
    SAYS(neo_round(ctx, NEO_BF16, x, y), "neo_round: y[1][2] is nan, from x[1][2], which is nan");
    finite_set(y, 6, 1.0f);
    SAYS(neo_dot_forward(ctx, x, y, out),
         "neo_dot_forward: out[1] is nan, from x[1][2], which is nan");
    SAYS(neo_dot_backward(ctx, x, y, out, finite_ones(3, 4), none),
         "neo_dot_backward: dx or dy[1][0] is nan, from dout[1], which is nan");
    parts[0] = finite_ones(5, 0), parts[1] = finite_ones(5, 0);
    finite_set(parts[1], 3, NAN);
    SAYS(neo_tree_sum(ctx, parts, 2, parts[0]),
         "neo_tree_sum: out[3] is nan, from parts[1][3], which is nan");
    CHECK_OK(neo_tensor_copy(ctx, parts[1], parts[0])); /* copies are not looked at */
    SAYS(neo_check_finite(ctx, "my_layer", "y", parts[1]), "my_layer: y[3] is nan");
    SAYS(neo_check_finite(ctx, "my_layer", "x", x), "my_layer: x[1][2] is nan");
    SAYS(neo_check_finite(ctx, "my_layer", "x", neo_tensor_slice(x, 1, 1, 2)),
         "my_layer: x[1][1] is nan");
    finite_free();
}

static void finite_losses(void) {
    neo_ctx *ctx = finite_ctx;
    const neo_tensor none = neo_tensor_none();
    double mean = 0;
    neo_tensor x = finite_ones(5, 0), y = finite_ones(5, 0), dx = finite_ones(5, 0);
    finite_set(x, 3, NAN);
    SAYS(neo_bce_with_logits(ctx, NULL, x, y, dx, &mean),
         "neo_bce_with_logits: dlogit[3] is nan, from logit[3], which is nan");
    SAYS(neo_bce_with_logits(ctx, NULL, x, y, none, &mean),
         "neo_bce_with_logits: the loss is nan, from logit[3], which is nan");
    finite_set(x, 3, 3e30f);
    SAYS(neo_mse(ctx, NULL, x, y, none, &mean), "neo_mse: the loss is inf, from finite numbers");
    finite_set(x, 3, 1.0f), finite_set(y, 2, NAN);
    SAYS(neo_mse(ctx, NULL, x, y, dx, &mean),
         "neo_mse: dpred[2] is nan, from target[2], which is nan");
    neo_tensor logit = finite_ones(5, 3), label = finite_ids(5);
    finite_set(logit, 7, INFINITY); /* [2][1] */
    SAYS(neo_cross_entropy(ctx, NULL, logit, label, logit, &mean),
         "neo_cross_entropy: dlogit[2][0] is nan, from logit[2][1], which is inf");
    logit = finite_new(NEO_BF16, 5, 3, 1.0f);
    CHECK_OK(neo_cross_entropy(ctx, NULL, logit, label, logit, &mean));
    logit = finite_new(NEO_BF16, 5, 3, 1.0f), finite_set(logit, 10, INFINITY); /* [3][1] */
    SAYS(neo_cross_entropy(ctx, NULL, logit, label, logit, &mean),
         "neo_cross_entropy: dlogit[3][0] is nan, from logit[3][1], which is inf");
    finite_free();
}

/* ---- what has names: an MLP's parameters, an optimizer's state ---- */
static void finite_model(void) {
    static const int64_t shape[2] = {2, 3};
    static const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    neo_ctx *ctx = finite_ctx;
    neo_optim_desc adagrad, clipped;
    neo_mlp_desc d;
    neo_params *params, *others;
    neo_mlp *mlp, *narrow;
    neo_optim *optim, *other;
    const neo_param *w;
    memset(&d, 0, sizeof d);
    memset(&adagrad, 0, sizeof adagrad);
    adagrad.kind = NEO_OPTIM_ADAGRAD;
    d.name = "top";
    d.width_count = 3;
    d.widths[0] = 4, d.widths[1] = 3, d.widths[2] = 2;
    d.max_batch = 5;
    d.act = NEO_ACT_GELU;
    CHECK_OK(neo_params_create(ctx, &params));
    CHECK_OK(neo_mlp_create(ctx, params, &d, &mlp));
    CHECK_OK(neo_optim_create(ctx, params, &adagrad, &optim));
    neo_tensor x = finite_ones(5, 4), y = finite_ones(5, 2), none = neo_tensor_none();
    CHECK_OK(neo_mlp_forward(mlp, x, y));
    CHECK_OK(neo_mlp_backward(mlp, NULL, y, none));
    CHECK_OK(neo_optim_step(optim, 0.01f));
    finite_set(x, 13, NAN); /* [3][1] */
    SAYS(neo_mlp_forward(mlp, x, y),
         "neo_mlp_forward: z[3][0] is nan at step 2, with top.0.weight, from x[3][1], which is "
         "nan");
    SAYS(neo_add(ctx, x, x),
         "neo_add: x[3][1] is nan at step 2, after top.0.weight, from x[3][1], which is nan");
    finite_set(x, 13, 1.0f);
    neo_tensor weight = neo_params_find(params, "top.2.weight")->value;
    finite_set(weight, 4, INFINITY); /* [1][1] */
    CHECK_ERR(neo_mlp_forward(mlp, x, y), NEO_ERR_NUMERIC,
              " at step 2, from top.2.weight[1][1], which is inf");
    finite_set(weight, 4, 0.1f);
    CHECK_OK(neo_mlp_forward(mlp, x, y));
    finite_set(y, 3, NAN); /* [1][1] */
    SAYS(neo_mlp_backward(mlp, NULL, y, none),
         "neo_mlp_backward: the gradient of top.2.weight[1][0] is nan at step 2, from dz[1][1], "
         "which is nan");
    SAYS(neo_optim_step(optim, 0.01f),
         "neo_optim_step: the gradient of top.2.weight[1][0] is nan at step 2");
    CHECK_INT(neo_optim_step_count(optim), 1);
    neo_tensor grad = neo_params_find(params, "top.2.weight")->grad;
    for (int64_t i = 0; i < 6; i++) finite_set(grad, i, i == 5 ? 1e30f : 0.0f);
    for (int64_t i = 0; i < 2; i++) finite_set(neo_params_find(params, "top.2.bias")->grad, i, 0);
    SAYS(neo_optim_step(optim, 0.01f),
         "neo_optim_step: sum of top.2.weight[5] is inf at step 2, from finite numbers");
    neo_optim_destroy(optim);
    CHECK_OK(neo_params_create(ctx, &others));
    CHECK_OK(neo_params_add(others, "head", 2, shape, normal, &w));
    memset(&clipped, 0, sizeof clipped);
    clipped.kind = NEO_OPTIM_LAMB, clipped.clip_norm = 1.0f;
    CHECK_OK(neo_optim_create(ctx, others, &clipped, &other));
    finite_set(w->grad, 2, -INFINITY);
    SAYS(neo_optim_step(other, 0.01f),
         "neo_optim_step: the gradient of head[0][2] is -inf at step 1");
    finite_set(w->grad, 2, 1.0f), finite_set(w->value, 3, NAN);
    SAYS(neo_optim_step(other, 0.01f),
         "neo_optim_step: head[1][0] is nan at step 1, from head[1][0], which is nan");
    neo_optim_destroy(other);
    d.name = "low", d.dtype = NEO_BF16;
    CHECK_OK(neo_mlp_create(ctx, others, &d, &narrow));
    finite_set(neo_params_find(others, "low.0.weight")->value, 6, 3.4e38f); /* no bf16 */
    SAYS(neo_mlp_forward(narrow, x, y),
         "neo_mlp_forward: dst[6] is inf, with low.0.weight, from finite numbers");
    neo_mlp_destroy(narrow);
    neo_mlp_destroy(mlp);
    neo_params_destroy(params); /* not the last one made */
    neo_params_destroy(others);
    finite_free();
}

/* ---- tables ---- */
static neo_bags *finite_bags(neo_pooling pooling, int64_t kept) {
    static const char *const names[2] = {"user", "item"};
    neo_table_desc tables[2];
    neo_bags_desc d;
    neo_bags *bags = NULL;
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    for (int t = 0; t < 2; t++) {
        tables[t].name = names[t];
        tables[t].rows = 9;
        tables[t].dim = 4;
        tables[t].pooling = pooling;
        tables[t].dtype = t ? NEO_BF16 : NEO_F32;
        tables[t].optim.kind = t ? NEO_BAG_SGD : NEO_BAG_ADAGRAD;
    }
    d.tables = tables, d.table_count = 2;
    d.max_batch = 3, d.max_ids = 12, d.max_kept_rows = kept;
    CHECK_OK(neo_bags_create(finite_ctx, &d, &bags));
    return bags;
}
static void finite_row(neo_bags *bags, int32_t table, int64_t row, float x) {
    const float rows[4] = {1.0f, 1.0f, x, 1.0f};
    CHECK_OK(neo_bags_set_rows(bags, table, row, 1, rows));
}
static void finite_tables(void) {
    static const int64_t offsets[7] = {0, 2, 3, 4, 6, 6, 8}, ids[8] = {1, 5, 2, 7, 3, 3, 8, 0};
    float weights[8] = {1, 1, 1, 1, 1, 1, 1, 1}, row[4];
    neo_jagged j, weighted;
    memset(&j, 0, sizeof j);
    j.batch = 3, j.feature_count = 2, j.id_dtype = NEO_I64;
    j.offsets = offsets, j.ids = ids;
    weighted = j, weighted.weights = weights;
    neo_bags *bags = finite_bags(NEO_POOL_SUM, 0);
    neo_tensor out = finite_ones(3, 8), dout = finite_ones(3, 8), dweights = finite_ones(8, 0);
    finite_row(bags, 1, 3, NAN), finite_row(bags, 0, 4, NAN); /* the batch has no row 4 */
    SAYS(neo_bags_forward(bags, &j, out),
         "neo_bags_forward: out of feature 1 (table 'item') [0][2] is nan at step 1, from table "
         "'item': weight[3][2], which is nan");
    SAYS(neo_bags_weight_grad(bags, &weighted, dout, (float *)dweights.data),
         "neo_bags_weight_grad: dweights[4] is nan at step 1, from table 'item': weight[3][2], "
         "which is nan");
    finite_row(bags, 1, 3, 1.0f);
    CHECK_OK(neo_bags_forward(bags, &j, out));
    finite_set(dout, 9, INFINITY); /* sample 1 of the first feature */
    SAYS(neo_bags_backward(bags, &j, dout, 0.1f),
         "neo_bags_backward: dout of feature 0 (table 'user') [1][1] is inf at step 1");
    CHECK_OK(neo_bags_get_rows(bags, 1, 3, 1, row)); /* nothing has changed */
    CHECK(row[0] == 1.0f && row[3] == 1.0f);
    finite_set(dout, 9, 1.0f);
    CHECK_OK(neo_bags_backward(bags, &j, dout, 0.1f));
    finite_set(dout, 9, 1e30f);
    SAYS(neo_bags_backward(bags, &j, dout, 0.1f),
         "neo_bags_backward: table 'user': momentum1[2][1] is inf at step 2, from finite "
         "numbers");
    neo_bags_destroy(bags);
    bags = finite_bags(NEO_POOL_SUM, 0);
    finite_set(dout, 9, 1.0f);
    SAYS(neo_bags_backward(bags, &j, dout, 3e38f), /* row 3 comes twice */
         "neo_bags_backward: table 'item': weight[3][0] is -inf at step 1, from finite numbers");
    neo_bags_destroy(bags);

    bags = finite_bags(NEO_POOL_NONE, 0);
    neo_tensor each = finite_ones(8, 4);
    finite_row(bags, 0, 7, -INFINITY);
    SAYS(neo_bags_forward(bags, &j, each),
         "neo_bags_forward: out[3][2] is -inf at step 1, from table 'user': weight[7][2], which is "
         "-inf");
    neo_bags_destroy(bags);

    bags = finite_bags(NEO_POOL_MEAN, 18);
    neo_tensor grad = finite_ones(2, 4);
    static const int64_t rows[2] = {3, 6};
    finite_set(dout, 20, NAN);
    SAYS(neo_bags_accumulate(bags, &j, dout, NULL),
         "neo_bags_accumulate: dout of feature 1 (table 'item') [2][0] is nan at step 1");
    CHECK_INT(neo_bags_kept_count(bags), 0);
    finite_set(dout, 20, 1.0f), finite_set(dout, 5, 3e38f);
    weights[4] = weights[5] = 4.0f; /* of row 3 */
    SAYS(neo_bags_accumulate(bags, &weighted, dout, NULL),
         "neo_bags_accumulate: table 'item': the gradient of weight[3][1] is inf at step 1, from "
         "finite numbers");
    CHECK_OK(neo_bags_clear(bags));
    finite_set(grad, 6, NAN);
    SAYS(neo_bags_add_grad(bags, 1, rows, 2, grad),
         "neo_bags_add_grad: grad[1][2] is nan at step 1");
    CHECK_OK(neo_bags_clear(bags));
    finite_set(grad, 6, 3e38f);
    CHECK_OK(neo_bags_add_grad(bags, 1, rows, 2, grad));
    SAYS(neo_bags_step(bags, 100.0f),
         "neo_bags_step: table 'item': weight[6][2] is -inf at step 1, from finite numbers");
    neo_bags_destroy(bags);
    finite_free();
}

static void finite_run(neo_ctx *ctx) {
    finite_ctx = ctx;
    RUN(finite_products);
    RUN(finite_layers);
    RUN(finite_elements);
    RUN(finite_losses);
    RUN(finite_model);
    RUN(finite_tables);
}
#endif
