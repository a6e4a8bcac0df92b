/* operations.h: every operation of struct neo_device, in one list (OPERATIONS, at the end).

   A row of the list is an operation and a function that calls it on the context `on`, by public
   calls where there are, and notes what came of that: statuses, messages, numbers, the bytes of all
   tensors. Contexts that compute the same have noted the same, so operations_run runs a row on
   each of them, on the same inputs, and compares the notes. core/operations does it on threads and
   instruction sets of the CPU, cuda/device on a device against the CPU.

   An operation of struct neo_device without a row does not compile. */
#ifndef NEO_TEST_OPERATIONS_H
#define NEO_TEST_OPERATIONS_H

#define NEO_CUDA_IMPLEMENTATION /* neo.h then declares struct neo_device */
#include "test.h"
#undef NEO_CUDA_IMPLEMENTATION

#include "neo_fsdp.h"
#include "neo_store.h"

static neo_ctx *on;
/* Of a program with devices: how a rank opens one, and how a step of `on` is recorded. */
static neo_comm_device_fn open_device;
static neo_status (*record_begin)(void), (*record_end)(void);

/* ---- notes ---- */
enum { MOST_NOTES = 2048, MOST_TENSORS = 18 };
typedef struct note {
    const char *what;
    int part;
    uint64_t digest;
} note;
static struct {
    int count;
    note of[MOST_NOTES];
} noted;

static uint64_t digest_of(const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}
static void note_digest(const char *what, int part, uint64_t digest) {
    if (noted.count == MOST_NOTES) FAIL("%s: too many notes", what);
    else noted.of[noted.count++] = (note){what, part, digest};
}
static void note_bytes(const char *what, int part, const void *data, size_t bytes) {
    note_digest(what, part, digest_of(data, bytes));
}
static void note_tensor(const char *what, int part, neo_tensor t) {
    neo_tensor host = t;
    const size_t bytes = neo_tensor_bytes(t);
    host.data = malloc(bytes + 1);
    host.place = NEO_HOST;
    CHECK_OK(neo_tensor_copy(on, t, host));
    note_bytes(what, part, host.data, bytes);
    free(host.data);
}
static void note_status(const char *what, neo_status status) {
    const char *text = status == NEO_OK ? "" : neo_last_error();
    note_bytes(what, -(int)status - 1, text, strlen(text));
}

/* ---- calls on tensors ---- */
typedef neo_status (*case_fn)(neo_ctx *ctx, neo_tensor *t, const void *arg);
/* What the next call works on. */
static neo_tensor host[MOST_TENSORS];
static int count;

static neo_tensor add(neo_dtype dtype, int64_t rows, int64_t cols) {
    int64_t shape[2] = {rows, cols};
    neo_tensor t = neo_tensor_nd(NULL, dtype, cols ? 2 : 1, shape);
    t.data = calloc((size_t)(rows * (cols ? cols : 1)) + 1, neo_dtype_size(dtype));
    return host[count++] = t;
}
static neo_tensor numbers(int64_t rows, int64_t cols) {
    neo_tensor t = add(NEO_F32, rows, cols);
    test_fill((float *)t.data, neo_tensor_count(t));
    return t;
}
static neo_tensor halves(int64_t rows, int64_t cols) {
    neo_tensor wide = numbers(rows, cols);
    count--;
    neo_tensor t = add(NEO_BF16, rows, cols);
    neo_floats_encode(on, NEO_BF16, (const float *)wide.data, t.data, neo_tensor_count(t));
    free(wide.data);
    return t;
}
static neo_tensor integers(int64_t n, int64_t below) {
    neo_tensor t = add(NEO_I64, n, 0);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)t.data)[i] = (int64_t)(test_random() % (uint32_t)below);
    return t;
}
/* Makes the call on copies of the tensors, where `on` computes; then forgets them. */
static void call(const char *name, case_fn fn, const void *arg) {
    neo_tensor there[MOST_TENSORS];
    for (int i = 0; i < count; i++) {
        CHECK_OK(neo_tensor_alloc(on, host[i].dtype, host[i].ndim, host[i].shape, &there[i]));
        CHECK_OK(neo_tensor_copy(on, host[i], there[i]));
    }
    note_status(name, fn(on, there, arg));
    for (int i = 0; i < count; i++) {
        note_tensor(name, i, there[i]);
        neo_tensor_free(on, &there[i]);
        free(host[i].data);
    }
    count = 0;
}
#define CALL(fn, arg) call(#fn, fn, arg)

/* ---- tensors ---- */
static neo_status convert(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    return neo_tensor_convert(ctx, t[0], t[1], (const neo_convert_desc *)arg);
}
static neo_status transpose(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    return neo_tensor_copy(ctx, neo_tensor_transpose(t[0], 0, 1), t[1]);
}
static neo_status zero_and_init(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_init *init = (const neo_init *)arg;
    neo_status status = neo_tensor_zero(ctx, t[0]);
    return status == NEO_OK ? neo_tensor_init(ctx, t[1], "w", *init, 5) : status;
}
static neo_status tree_sum(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int parts = *(const int *)arg;
    neo_status status = neo_tree_sum(ctx, t, parts, t[0]);
    for (int i = 1; i < parts && status == NEO_OK; i++) /* which may be overwritten */
        status = neo_tensor_zero(ctx, t[i]);
    return status;
}
static void row_convert(void) {
    static const neo_convert_desc random = {NEO_ROUND_STOCHASTIC, "w", 3, 11};
    for (int to = 0; to < NEO_DTYPE_COUNT; to++) {
        numbers(13, 7);
        add((neo_dtype)to, 13, 7);
        CALL(convert, NULL);
        numbers(13, 7);
        add((neo_dtype)to, 13, 7);
        CALL(convert, &random);
    }
    numbers(13, 7);
    add(NEO_F32, 7, 13);
    CALL(transpose, NULL);
}
static void row_init(void) {
    static const neo_init inits[] = {{NEO_INIT_UNIFORM, -0.5f, 0.25f},
                                     {NEO_INIT_NORMAL, 0.0f, 2.0f},
                                     {NEO_INIT_CONSTANT, 3.0f, 0.0f}};
    for (int i = 0; i < 3; i++) {
        numbers(3, 5);
        numbers(101, 3);
        CALL(zero_and_init, &inits[i]);
    }
}
static void row_tree_sum(void) {
    static const int parts[] = {1, 2, 5, 8};
    for (int i = 0; i < 4; i++) {
        for (int p = 0; p < parts[i]; p++) numbers(33, 0);
        CALL(tree_sum, &parts[i]);
    }
}
static neo_status blend(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    int finite = -1;
    (void)arg;
    neo_status status = neo_add(ctx, t[0], t[1]);
    if (status == NEO_OK) status = neo_add(ctx, t[2], t[1]);
    if (status == NEO_OK) status = neo_scale(ctx, t[0], 0.3f, &finite);
    CHECK_INT(finite, 1);
    if (status == NEO_OK) status = neo_scale(ctx, t[3], 2.0f, &finite);
    CHECK_INT(finite, 0);
    if (status == NEO_OK) status = neo_round(ctx, NEO_BF16, t[0], t[1]);
    if (status == NEO_OK) status = neo_dropout(ctx, "narrow", 2, 3, 0.5f, t[2], t[2]);
    if (status == NEO_OK) status = neo_dropout(ctx, "narrow", 2, 3, 0.1f, t[0], t[2]);
    return status;
}
/* Matrices whose rows lie apart, of widths below, at and above a block of a sum. */
static neo_status blend_rows(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int64_t n = *(const int64_t *)arg;
    neo_tensor x = neo_tensor_slice(t[0], 1, 2, n), y = neo_tensor_slice(t[1], 1, 1, n);
    neo_tensor dx = neo_tensor_slice(t[3], 1, 0, n), dy = neo_tensor_slice(t[4], 1, 3, n);
    neo_status status = neo_add(ctx, x, y);
    if (status == NEO_OK) status = neo_mul(ctx, x, y);
    if (status == NEO_OK) status = neo_addcmul(ctx, neo_tensor_none(), x, y, dy);
    if (status == NEO_OK) status = neo_addcmul(ctx, dy, x, y, x);
    if (status == NEO_OK) status = neo_scale(ctx, x, 0.7f, NULL);
    if (status == NEO_OK) status = neo_dot_forward(ctx, x, y, t[2]);
    if (status == NEO_OK) status = neo_dot_backward(ctx, x, y, t[2], dx, dy);
    if (status == NEO_OK) status = neo_mul(ctx, t[5], t[1]);
    if (status == NEO_OK) status = neo_dropout(ctx, "drop", 3, 77, 0.25f, dx, dy);
    if (status == NEO_OK) status = neo_dropout(ctx, "drop", 4, 0, 0.5f, t[0], t[0]);
    return status;
}
static void row_blend(void) {
    static const int64_t widths[] = {1, 5, 16, 64, 256, 300, 600};
    numbers(1000, 0);
    numbers(1000, 0);
    add(NEO_BF16, 1000, 0);
    ((float *)numbers(300, 0).data)[299] = INFINITY;
    CALL(blend, NULL);
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 2; k++) numbers(9, widths[i] + 3);
        numbers(9, 1);
        for (int k = 0; k < 2; k++) numbers(9, widths[i] + 3);
        add(NEO_BF16, 9, widths[i] + 3);
        CALL(blend_rows, &widths[i]);
    }
}

/* ---- layers ---- */
static neo_status gemm(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    return neo_gemm(ctx, (const neo_gemm_desc *)arg, t[0], t[1], t[2]);
}
static void row_gemm(void) {
    for (int i = 0; i < 8; i++) {
        neo_gemm_desc d = {i & 1, i >> 1 & 1, i & 4 ? 0.5f : 0.0f, NEO_ACT_RELU, NULL};
        const int64_t m = 37, n = 21, k = 50;
        numbers(d.trans_a ? k : m, d.trans_a ? m : k);
        numbers(d.trans_b ? n : k, d.trans_b ? k : n);
        numbers(m, n);
        CALL(gemm, &d);
    }
    for (int i = 0; i < 16; i++) { /* of bf16 */
        neo_gemm_desc d = {i & 1, i >> 1 & 1, i & 4 ? 0.5f : 0.0f, NEO_ACT_RELU, NULL};
        const int64_t m = 37, n = 21, k = 50;
        halves(d.trans_a ? k : m, d.trans_a ? m : k);
        halves(d.trans_b ? n : k, d.trans_b ? k : n);
        if (i & 8) halves(m, n);
        else numbers(m, n);
        CALL(gemm, &d);
    }
}
static neo_status linear(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_activation act = *(const neo_activation *)arg;
    neo_status status = neo_linear_forward(ctx, t[0], t[1], t[2], act, t[3]);
    if (status == NEO_OK) status = neo_activation_forward(ctx, act, t[3], t[4]);
    if (status == NEO_OK) status = neo_activation_backward(ctx, act, t[3], t[4], t[5], t[6]);
    if (status == NEO_OK)
        status = neo_linear_backward(ctx, NULL, t[0], t[1], t[6], t[7], t[8], t[9]);
    return status;
}
/* A layer and its activation, and back through the layer behind it. */
static neo_status linear_act(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_activation act = *(const neo_activation *)arg;
    neo_status status = neo_linear_act_forward(ctx, t[0], t[1], t[2], act, t[3], t[4]);
    if (status == NEO_OK) status = neo_linear_act_backward(ctx, t[5], t[6], act, t[3], t[7]);
    return status;
}
static neo_tensor either(int narrow, int64_t rows, int64_t cols) {
    return narrow ? halves(rows, cols) : numbers(rows, cols);
}
static neo_status narrow_linear(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    neo_status status = neo_linear_forward(ctx, t[0], t[1], t[2], NEO_ACT_TANH, t[3]);
    if (status == NEO_OK)
        status = neo_linear_backward(ctx, NULL, t[0], t[1], t[4], t[5], t[6], t[7]);
    return status;
}
static neo_status narrow_activation(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_activation act = *(const neo_activation *)arg;
    neo_status status = neo_activation_forward(ctx, act, t[0], t[1]);
    if (status == NEO_OK) status = neo_activation_backward(ctx, act, t[0], t[0], t[2], t[3]);
    return status;
}
static void row_linear(void) {
    for (int act = NEO_ACT_NONE; act <= NEO_ACT_GELU_TANH; act++) {
        const neo_activation a = (neo_activation)act;
        numbers(19, 5), halves(19, 5), numbers(19, 5), halves(19, 5);
        CALL(narrow_activation, &a);
        numbers(19, 6), numbers(5, 6), numbers(5, 0); /* x, w, bias */
        numbers(19, 5), numbers(19, 5), numbers(19, 5), numbers(19, 5);
        numbers(19, 6), numbers(5, 6), numbers(5, 0);
        CALL(linear, &a);
    }
    for (int i = 0; i < 9 * 8; i++) { /* f32; bf16, and so bias, z, y and dz */
        const neo_activation a = (neo_activation)(i / 8);
        const int narrow = i % 8 > 0, z = narrow && i & 2, y = narrow && i & 4;
        either(narrow, 19, 6), either(narrow, 5, 6), either(narrow && i & 1, 5, 0);
        either(z, 19, 5), either(y, 19, 5);
        either(narrow, 19, 7), either(narrow, 7, 5), either(y, 19, 5);
        CALL(linear_act, &a);
    }
    for (int i = 0; i < 2; i++) {
        halves(19, 6), halves(5, 6), either(i, 5, 0); /* x, w, bias */
        if (i) halves(19, 5), halves(19, 5), halves(19, 6);
        else numbers(19, 5), halves(19, 5), numbers(19, 6);
        numbers(5, 6), numbers(5, 0);
        CALL(narrow_linear, NULL);
    }
}
static neo_status norms(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    neo_status status = neo_layer_norm_forward(ctx, t[0], t[1], t[2], 1e-5f, t[3], t[4]);
    if (status == NEO_OK)
        status = neo_layer_norm_backward(ctx, NULL, t[0], t[1], t[4], t[5], t[6], t[7], t[8]);
    if (status == NEO_OK) status = neo_rms_norm_forward(ctx, t[0], t[1], 1e-5f, t[3], t[9]);
    if (status == NEO_OK)
        status = neo_rms_norm_backward(ctx, NULL, t[0], t[1], t[9], t[5], t[10], t[7]);
    return status;
}
static void row_norm(void) {
    for (int narrow = 0; narrow < 2; narrow++) {
        numbers(17, 300), numbers(300, 0), numbers(300, 0);
        if (narrow) halves(17, 300);
        else numbers(17, 300);
        numbers(17, 2), numbers(17, 300);
        numbers(17, 300), numbers(300, 0), numbers(300, 0), numbers(17, 0), numbers(17, 300);
        CALL(norms, NULL);
    }
}
static neo_status embedding(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    neo_status status = neo_embedding_forward(ctx, t[0], t[1], t[2]);
    if (status == NEO_OK)
        status = neo_embedding_backward(ctx, NULL, t[0], t[2], t[3], *(const int *)arg);
    return status;
}
static void row_embedding(void) {
    const int none = 0;
    for (int add_to = 0; add_to < 2; add_to++) {
        integers(40, 9);
        numbers(9, 5), numbers(40, 5), numbers(9, 5);
        CALL(embedding, &add_to);
    }
    integers(40, 9); /* an id that is outside: the same message, and nothing is written */
    ((int64_t *)host[0].data)[39] = 9;
    numbers(9, 5), numbers(40, 5), numbers(9, 5);
    CALL(embedding, &none);
}
static neo_status attention(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    neo_attention_desc d = *(const neo_attention_desc *)arg;
    const neo_tensor lse = d.kind == NEO_ATTENTION_SILU ? neo_tensor_none() : t[4];
    neo_attention_bias bias[2];
    neo_leaves leaves = {2, 0, 1, 0};
    memset(bias, 0, sizeof bias);
    if (count > 9) d.offsets = t[count - 1];
    if (count > 12) { /* one by rows, of each head, and one by times, of all */
        bias[0].table = t[9], bias[0].bounds = t[10], bias[0].dtable = t[11], bias[0].each = t[12];
        bias[1].table = t[13], bias[1].bounds = t[10], bias[1].dtable = t[14];
        bias[1].each = t[15], bias[1].times = t[16];
        d.bias = bias, d.bias_count = 2;
        leaves.batch = d.offsets.shape[0] - 1, leaves.count = neo_ctx_repro_shards(ctx);
        d.leaves = &leaves;
    }
    neo_status status = neo_attention_forward(ctx, &d, t[0], t[1], t[2], t[3], lse);
    if (status == NEO_OK)
        status = neo_attention_backward(ctx, &d, t[0], t[1], t[2], t[3], lse, t[5], t[6], t[7],
                                        t[8]);
    return status;
}
static void attention_biases(void) {
    numbers(2, 21);
    int64_t *bounds = (int64_t *)integers(20, 1).data;
    for (int i = 0; i < 20; i++) bounds[i] = i * i - 30;
    numbers(2, 21), numbers(10, 21);
    numbers(1, 21), numbers(1, 21), numbers(10, 21);
    integers(140, 90);
}
static void row_attention(void) {
    static const int64_t offsets[][6] = {{1, 31, 101, 101, 102, 133}, /* and bad ones: the same */
                                         {0, 70, 60, 71, 139, 140},   /* messages, and nothing is */
                                         {0, 69, 140, 140, 140, 140}}; /* written */
    for (int way = 0; way < 14; way++) {
        const int biased = way >= 10, jagged = biased ? 1 : way < 8 ? way >> 2 : way - 6;
        const neo_attention_desc d = {
            70, 2, way & 1, 0.0f, .dtype = NEO_F32,
            .kind = way & 2 ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX};
        for (int i = 0; i < 4; i++) numbers(140, 12);
        numbers(140, 2);
        for (int i = 0; i < 4; i++) numbers(140, 12);
        if (biased) attention_biases();
        if (jagged) memcpy(integers(6, 1).data, offsets[jagged - 1], sizeof offsets[0]);
        CALL(attention, &d);
    }
}
static neo_status interact(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int diagonal = *(const int *)arg;
    neo_status status = neo_interact_forward(ctx, diagonal, t[0], t[1], t[2]);
    if (status == NEO_OK)
        status = neo_interact_backward(ctx, diagonal, t[0], t[1], t[2], t[3], t[4]);
    return status;
}
/* It is made of other operations. */
static neo_status wukong(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    neo_wukong_desc desc = {.name = "w", .features = 5, .dim = 6, .linear = 2, .hidden = 7,
                            .layers = 2, .max_batch = 9, .dtype = *(const neo_dtype *)arg};
    neo_wukong *layers = NULL;
    neo_params *params = NULL;
    neo_status status = neo_params_create(ctx, &params);
    if (status == NEO_OK) status = neo_wukong_create(ctx, params, &desc, &layers);
    if (status == NEO_OK) status = neo_wukong_forward(layers, t[0], t[1]);
    if (status == NEO_OK) status = neo_wukong_backward(layers, NULL, t[2], t[3]);
    for (int i = 0; status == NEO_OK && i < neo_params_count(params); i++)
        note_tensor("gradient", i, neo_params_at(params, i)->grad);
    neo_wukong_destroy(layers);
    neo_params_destroy(params);
    return status;
}
static void row_interact(void) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_BF16};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) numbers(9, 30);
        CALL(wukong, &dtypes[i]);
    }
    for (int diagonal = 0; diagonal < 2; diagonal++) {
        const int64_t width = neo_interact_width(6, 4, diagonal);
        numbers(9, 6), numbers(9, 24), numbers(9, width), numbers(9, 6), numbers(9, 24);
        CALL(interact, &diagonal);
    }
}
static neo_status fm(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int64_t dim = *(const int64_t *)arg;
    const int weighted = dim != 5, both = dim != 16;
    neo_status status = neo_fm_forward(ctx, dim, weighted, t[0], t[1],
                                       both ? t[2] : neo_tensor_none());
    if (status == NEO_OK)
        status = neo_fm_backward(ctx, dim, weighted, t[0], t[3], both ? t[4] : neo_tensor_none(),
                                 t[5]);
    return status;
}
static neo_status ffm(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int64_t dim = *(const int64_t *)arg;
    neo_status status = neo_ffm_forward(ctx, 7, dim, dim != 5, t[0], t[1]);
    if (status == NEO_OK) status = neo_ffm_backward(ctx, 7, dim, dim != 5, t[0], t[2], t[3]);
    return status;
}
static void row_fm(void) {
    static const int64_t dims[] = {0, 1, 5, 15, 16, 300};
    for (int i = 0; i < 6; i++) {
        const int64_t cols = 7 * (dims[i] + (dims[i] != 5)), factors = 7 * dims[i];
        numbers(9, cols), numbers(9, 1), add(NEO_F32, 9, factors);
        numbers(9, 1), numbers(9, factors), numbers(9, cols);
        CALL(fm, &dims[i]);
        const int64_t aware = 7 * (7 * dims[i] + (dims[i] != 5));
        numbers(9, aware), numbers(9, 1), numbers(9, 1), numbers(9, aware);
        CALL(ffm, &dims[i]);
    }
}

/* ---- losses ---- */
static double loss_mean;
static neo_exact loss_sum;
typedef struct loss_case {
    int kind;
    float scale;
    int weighted;
} loss_case;
static neo_status loss(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const loss_case *c = (const loss_case *)arg;
    neo_loss_desc d;
    memset(&d, 0, sizeof d);
    d.batch = 50;
    d.sum = &loss_sum;
    d.scale = c->scale;
    if (c->weighted) d.weight = t[3];
    neo_exact_zero(&loss_sum);
    switch (c->kind) {
    case 0: return neo_bce_with_logits(ctx, &d, t[0], t[1], t[2], &loss_mean);
    case 1: return neo_bce(ctx, &d, t[0], t[1], t[2], &loss_mean);
    case 2: return neo_mse(ctx, &d, t[0], t[1], t[2], &loss_mean);
    default: return neo_cross_entropy(ctx, &d, t[0], t[1], t[2], &loss_mean);
    }
}
static void loss_tensors(int kind) {
    if (kind >= 3) {
        numbers(33, 70), integers(33, 70);
        if (kind == 3) numbers(33, 70);
        else halves(33, 70);
        numbers(33, 0);
    } else {
        neo_tensor x = numbers(33, kind == 2 ? 5 : 0), y = numbers(33, kind == 2 ? 5 : 0);
        for (int64_t i = 0; kind == 1 && i < 33; i++)
            ((float *)x.data)[i] = 0.5f + 0.49f * ((float *)x.data)[i];
        for (int64_t i = 0; kind < 2 && i < 33; i++)
            ((float *)y.data)[i] = (float)(test_random() % 2);
        numbers(33, kind == 2 ? 5 : 0), numbers(33, 0);
    }
}
static void loss_call(const loss_case *c) {
    loss_mean = -1.0;
    CALL(loss, c);
    note_bytes("mean", c->kind, &loss_mean, sizeof loss_mean);
    neo_exact_normalize(&loss_sum);
    note_bytes("sum", c->kind, &loss_sum, sizeof loss_sum);
}
static void row_loss(void) {
    for (int i = 0; i < 20; i++) { /* the fifth: cross entropy with a gradient of bf16 */
        const loss_case c = {i % 5, i / 5 % 2 ? 256.0f : 0.0f, i >= 10};
        loss_tensors(c.kind);
        loss_call(&c);
    }
    /* What is outside: the same message, and nothing is written. */
    for (int kind = 0; kind < 5; kind++) {
        const loss_case c = {kind, 0.0f, 0};
        if (kind == 2) continue; /* a target may be any number */
        loss_tensors(kind);
        if (kind >= 3) ((int64_t *)host[1].data)[20] = 70;
        else ((float *)host[1].data)[31] = 1.5f;
        loss_call(&c);
    }
    const loss_case probability = {1, 0.0f, 0};
    loss_tensors(1);
    ((float *)host[0].data)[3] = -0.25f;
    loss_call(&probability);
}

/* ---- optimizers ---- */
typedef struct tuned {
    neo_params *params;
    neo_optim *optim;
    neo_state *state;
    const neo_param *w[2];
} tuned;
static neo_optim_desc optim_desc(int i) {
    neo_optim_desc d;
    memset(&d, 0, sizeof d);
    d.kind = i < 5 ? (neo_optim_kind)i : i == 5 ? NEO_OPTIM_SGD : (neo_optim_kind)(i - 1);
    d.weight_decay = 0.01f;
    d.momentum = i < 5 ? 0.0f : 0.9f;
    d.l1 = 0.01f;
    d.clip_norm = i == 3 ? 0.0f : 0.1f;
    d.clip_norm_type = i == 1 ? 1.0f : i == 2 ? INFINITY : 2.0f;
    return d;
}
static void tuned_make(tuned *o, int i) {
    static const int64_t shapes[2][2] = {{17, 9}, {700, 1}};
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    const neo_optim_desc d = optim_desc(i);
    CHECK_OK(neo_params_create(on, &o->params));
    for (int k = 0; k < 2; k++)
        CHECK_OK(neo_params_add(o->params, k ? "b" : "a", 2, shapes[k], normal, &o->w[k]));
    CHECK_OK(neo_optim_create(on, o->params, &d, &o->optim));
    CHECK_OK(neo_state_create(on, &o->state));
    CHECK_OK(neo_state_add_params(o->state, o->params));
    CHECK_OK(neo_state_add_optim(o->state, o->optim));
}
static void tuned_free(tuned *o) {
    neo_state_destroy(o->state);
    neo_optim_destroy(o->optim);
    neo_params_destroy(o->params);
}
static void tuned_step(tuned *o) {
    for (int k = 0; k < 2; k++) {
        neo_tensor grad = numbers(o->w[k]->grad.shape[0], o->w[k]->grad.shape[1]);
        CHECK_OK(neo_tensor_copy(on, grad, o->w[k]->grad));
        free(grad.data), count = 0;
    }
    CHECK_OK(neo_optim_step(o->optim, 0.05f));
    const double norm = neo_optim_grad_norm(o->optim);
    neo_param_norm norms[2];
    note_bytes("norm", 0, &norm, sizeof norm);
    CHECK_OK(neo_optim_norms(o->optim, norms));
    for (int k = 0; k < 2; k++) note_bytes("norms", k, &norms[k].grad, 2 * sizeof norm);
}
static void row_optim(void) {
    for (int i = 0; i < 8; i++) {
        tuned o;
        tuned_make(&o, i);
        for (int step = 0; step < 3; step++) tuned_step(&o);
        note_digest("optimizer", i, neo_state_digest(o.state));
        tuned_free(&o);
    }
}
/* The norm is asked for while the step is being recorded. */
static void row_recorded(void) {
    const int records = neo_ctx_device(on) != NULL;
    tuned o;
    tuned_make(&o, 0);
    for (int step = 0; step < 2; step++) {
        if (records) CHECK_OK(record_begin());
        tuned_step(&o);
        if (records) CHECK_OK(record_end());
        note_digest("steps", (int)neo_optim_step_count(o.optim), neo_state_digest(o.state));
    }
    tuned_free(&o);
}

/* ---- memory and order ---- */
static neo_status fill(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    return neo_tensor_zero(ctx, neo_tensor_rows(t[0], 2, 5));
}
static void row_memory(void) {
    numbers(9, 7);
    CALL(fill, NULL);
}
static neo_status move(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const size_t bytes = neo_tensor_bytes(t[0]) - 12;
    char *pinned = (char *)neo__pinned_alloc(ctx, bytes);
    void *event = neo__event_make(ctx);
    (void)arg;
    neo_status status = pinned && event ? neo__event_mark(ctx, event) : NEO_ERR_MEMORY;
    if (status == NEO_OK) status = neo__event_wait(ctx, event);
    const char *from = (const char *)t[0].data + 4;
    if (status == NEO_OK) status = neo__device_move(ctx, NEO_DEVICE, pinned, from, bytes, NULL);
    const int aside = neo_ctx_device(ctx) != NULL; /* beside what is queued */
    if (status == NEO_OK) status = neo__event_mark(ctx, event);
    if (status == NEO_OK && aside) status = neo__device_aside(ctx, event);
    if (status == NEO_OK)
        status = neo__device_move(ctx, NEO_DEVICE, t[1].data, pinned, bytes, NULL);
    if (status == NEO_OK) status = neo__event_mark(ctx, event);
    if (status == NEO_OK && aside) status = neo__device_aside(ctx, NULL);
    if (status == NEO_OK) status = neo__event_wait(ctx, event);
    if (status == NEO_OK && aside) status = neo__device_order(ctx, NEO__ORDER_MOVES, event, 0);
    if (status == NEO_OK && aside) status = neo__device_order(ctx, NEO__ORDER_WAIT, event, 0);
    if (status == NEO_OK) status = neo_ctx_synchronize(ctx);
    neo__event_free(ctx, event);
    neo__pinned_free(ctx, pinned, bytes);
    return status;
}
static void row_move(void) {
    numbers(100, 0), numbers(100, 0);
    CALL(move, NULL);
}

/* ---- embedding bags ---- */
enum { BAG_BATCH = 16, BAG_FEATURES = 4, BAG_IDS = 300 };
typedef struct bag_batch {
    neo_jagged j;
    int64_t offsets[BAG_FEATURES * BAG_BATCH + 1], ids[BAG_IDS];
    float weights[BAG_IDS];
} bag_batch;
static const int64_t BAG_ROWS[3] = {30, 40, 25};
static const int32_t BAG_TABLE[BAG_FEATURES] = {0, 1, 2, 1};

static void fill_bags(bag_batch *b) {
    int64_t k = 0;
    memset(b, 0, sizeof *b);
    for (int64_t i = 0; i < BAG_FEATURES * BAG_BATCH; i++) {
        for (int n = (int)(test_random() % 5); n > 0; n--, k++) {
            b->ids[k] = (int64_t)test_random() % BAG_ROWS[BAG_TABLE[i / BAG_BATCH]];
            b->weights[k] = test_uniform();
        }
        b->offsets[i + 1] = k;
    }
    b->j.batch = BAG_BATCH;
    b->j.feature_count = BAG_FEATURES;
    b->j.id_dtype = NEO_I64;
    b->j.offsets = b->offsets;
    b->j.ids = b->ids;
    b->j.weights = b->weights;
}
/* Sums along the rows of tables that are cut by columns: here no rank has the others. */
static neo_status own_sums(void *user, const neo_cut_sums *cuts, int32_t cut_count) {
    (void)user;
    for (int32_t i = 0; i < cut_count; i++)
        for (int64_t r = 0; r < cuts[i].sums * cuts[i].rows; r++) {
            cuts[i].total[r] = 0.5f;
            for (int64_t b = 0; b < cuts[i].blocks_per_row; b++)
                cuts[i].total[r] += cuts[i].blocks[r * cuts[i].blocks_per_row + b];
        }
    return NEO_OK;
}
static neo_bags *make_bags(int is_cut) {
    static const neo_bag_optim_kind kinds[2][3] = {
        {NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_ADAM, NEO_BAG_PARTIAL_LAMB},
        {NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_FTRL, NEO_BAG_PARTIAL_LAMB}};
    static const int64_t dims[2][3] = {{12, 9, 40}, {16, 9, 48}};
    neo_table_desc tables[3];
    neo_bags_desc d;
    neo_bags *bags = NULL;
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    for (int t = 0; t < 3; t++) {
        tables[t].name = t == 0 ? "a" : t == 1 ? "b" : "c";
        tables[t].rows = BAG_ROWS[t];
        tables[t].dim = dims[is_cut][t];
        tables[t].optim.kind = kinds[is_cut][t];
        tables[t].optim.l1 = 0.01f;
        tables[t].dtype = t == 0 ? NEO_F32 : t == 1 ? NEO_I8 : NEO_BF16;
        tables[t].pooling = t == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM;
        if (is_cut && t != 1) tables[t].part.rows = BAG_ROWS[t], tables[t].part.dim = 64;
    }
    if (is_cut) d.cut_sums = own_sums;
    d.tables = tables, d.table_count = 3;
    d.feature_table = BAG_TABLE, d.feature_count = BAG_FEATURES;
    d.max_batch = BAG_BATCH, d.max_ids = BAG_IDS;
    d.max_kept_rows = is_cut ? 0 : 95;
    CHECK_OK(neo_bags_create(on, &d, &bags));
    return bags;
}
static void note_bags(const char *what, int part, neo_bags *bags) {
    neo_state *state = NULL;
    CHECK_OK(neo_state_create(on, &state));
    CHECK_OK(neo_state_add_bags(state, bags));
    note_digest(what, part, neo_state_digest(state));
    neo_state_destroy(state);
    for (int64_t i = 0; i < neo_bags_kept_count(bags); i++) {
        int32_t table;
        int64_t row;
        const float *grad = neo_bags_kept_row(bags, i, &table, &row);
        const size_t bytes = sizeof *grad * (size_t)neo_bags_weight(bags, table).shape[1];
        REQUIRE(grad != NULL);
        note_bytes("kept row", (int)(1000 * table + row), grad, bytes);
    }
}
static neo_bags *bags;       /* of the next calls, */
static bag_batch bags_batch; /* and their batch */
/* out, dout, a number per id. */
static neo_status lookup(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)ctx, (void)arg;
    neo_status status = neo_bags_forward(bags, &bags_batch.j, t[0]);
    if (status == NEO_OK)
        status = neo_bags_weight_grad(bags, &bags_batch.j, t[1], (float *)t[2].data);
    return status == NEO_OK ? neo_bags_backward(bags, &bags_batch.j, t[1], 0.05f) : status;
}
static void bag_tensors(void) {
    fill_bags(&bags_batch);
    numbers(BAG_BATCH, neo_bags_out_width(bags)), numbers(BAG_BATCH, neo_bags_out_width(bags));
    numbers(BAG_IDS, 0);
}
static void lookups(int is_cut) {
    float rows[7 * 40];
    bags = make_bags(is_cut);
    for (int step = 0; step < 3; step++) {
        bag_tensors();
        if (step == 1) bags_batch.ids[3] = 1000; /* the same message, and nothing has changed */
        CALL(lookup, NULL);
        note_bags("lookup", step, bags);
    }
    if (!is_cut) {
        CHECK_OK(neo_bags_get_rows(bags, 2, 4, 7, rows));
        note_bytes("rows", 2, rows, sizeof rows);
        CHECK_OK(neo_bags_set_rows(bags, 2, 11, 7, rows));
        note_bags("set rows", 2, bags);
    }
    neo_bags_destroy(bags);
}
static void row_bags(void) { lookups(0); }
static void row_bags_cut(void) { lookups(1); }

/* Rows below a device, most of them in host memory; on the processor all are in reach. Or few rows,
   which keys have. */
static void lines(int keyed) {
    enum { ROWS = 4000, IDS = 100 };
    static int64_t ids[IDS], offsets[IDS + 1];
    const int64_t shape[2] = {IDS, 4};
    neo_tier *tier = NULL;
    neo_bags_memory memory;
    neo_tier_desc least = {NULL, 1, NEO_EVICT_LRU, 0, 0, 0, 0, 0};
    neo_table_desc table;
    neo_bags_desc d;
    neo_jagged batch;
    neo_tensor out;
    memset(&table, 0, sizeof table), memset(&d, 0, sizeof d), memset(&batch, 0, sizeof batch);
    table.name = "t", table.rows = keyed ? 64 : ROWS, table.dim = 4;
    table.optim.kind = NEO_BAG_ADAM, table.keys.on = keyed;
    d.tables = &table, d.table_count = 1, d.max_batch = d.max_ids = IDS;
    const int most = neo_ctx_device(on) && !keyed ? 9 : 0;
    for (int tries = 0; tries < most; tries++) { /* as its messages say */
        CHECK_OK(neo_tier_create(on, &least, &tier));
        d.tier = tier;
        if (neo_bags_bytes(on, &d, &memory) == NEO_OK) break;
        const char *needs = strstr(neo_last_error(), "needs ");
        REQUIRE(needs != NULL);
        least.memory_bytes = strtoll(needs + 6, NULL, 10);
        neo_tier_destroy(tier);
    }
    CHECK_OK(neo_bags_create(on, &d, &bags));
    CHECK_OK(neo_tensor_alloc(on, NEO_F32, 2, shape, &out));
    batch.batch = IDS, batch.feature_count = 1, batch.id_dtype = NEO_I64;
    batch.offsets = offsets, batch.ids = ids;
    for (int64_t i = 0; i < IDS; i++) offsets[i + 1] = i + 1;
    for (int step = 0; step < 10; step++) {
        for (int64_t i = 0; i < IDS; i++) ids[i] = (int64_t)test_random() % (i % 2 ? ROWS : 300);
        CHECK_OK(neo_bags_forward(bags, &batch, out));
        CHECK_OK(neo_bags_backward(bags, &batch, out, 0.05f));
    }
    note_bags("lines", 0, bags);
    if (tier) CHECK(neo_tier_get_stats(tier).read > 100);
    neo_tensor_free(on, &out);
    neo_bags_destroy(bags);
    neo_tier_destroy(tier);
}
static void row_bags_lines(void) { lines(0); }
static void row_bags_first(void) { lines(1); }

static neo_status keep(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    static const int64_t rows[5] = {3, 8, 3, 39, 0};
    neo_status status = neo_bags_accumulate(bags, &bags_batch.j, t[1], NULL);
    (void)ctx, (void)arg;
    return status == NEO_OK ? neo_bags_add_grad(bags, 1, rows, 5, t[3]) : status;
}
static void row_bags_kept(void) {
    bags = make_bags(0);
    for (int step = 0; step < 3; step++) {
        neo_exact sum;
        for (int part = 0; part < 2; part++) {
            bag_tensors();
            numbers(5, 9);
            CALL(keep, NULL);
        }
        neo_exact_zero(&sum);
        CHECK_OK(neo_bags_grad_squares(bags, &sum));
        neo_exact_normalize(&sum);
        note_bytes("squares", step, &sum, sizeof sum);
        CHECK_OK(neo_bags_scale_grads(bags, 0.37f));
        note_bags("kept", step, bags);
        CHECK_OK(step == 1 ? neo_bags_clear(bags) : neo_bags_step(bags, 0.05f));
        note_bags("step of kept", step, bags);
    }
    neo_bags_destroy(bags);
}
/* Gradients of all rows of whole tables, which only a device has in its memory; the processor keeps
   those of the batch. */
static neo_status dense(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int64_t floats = 30 * 12 + 40 * 9 + 25 * 40, marks = (30 + 40 + 25 + 3) / 4;
    const int keeps = *(const int *)arg;
    neo_tensor all, marked;
    if (!neo_ctx_device(ctx)) {
        neo_status status = neo_bags_accumulate(bags, &bags_batch.j, t[1], NULL);
        return status == NEO_OK ? neo_bags_step(bags, 0.05f) : status;
    }
    CHECK_OK(neo_tensor_alloc(ctx, NEO_F32, 1, &floats, &all));
    CHECK_OK(neo_tensor_alloc(ctx, NEO_F32, 1, &marks, &marked));
    float *sums = (float *)all.data;
    unsigned char *rows = (unsigned char *)marked.data;
    neo_status status = neo__bags_dense_sum(bags, &bags_batch.j, t[1], NULL, sums, rows, 1);
    if (status == NEO_OK && keeps) status = neo__bags_dense_keep(bags, sums, rows);
    if (status == NEO_OK && keeps) status = neo_bags_step(bags, 0.05f);
    else if (status == NEO_OK) status = neo__bags_dense_step(bags, sums, rows, 0.05f);
    neo_tensor_free(ctx, &all);
    neo_tensor_free(ctx, &marked);
    return status;
}
static void row_bags_dense(void) {
    bags = make_bags(0);
    for (int step = 0; step < 4; step++) {
        const int keeps = step % 2;
        bag_tensors();
        CALL(dense, &keeps);
        note_bags("dense", step, bags);
    }
    neo_bags_destroy(bags);
}
static neo_status cut_add(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    enum { EACH = 3 };
    const int first = *(const int *)arg;
    const int64_t rows = t[0].shape[0];
    float *total = (float *)t[0].data;
    const float *block = (const float *)t[1].data;
    if (neo_ctx_device(ctx)) return neo__device_cut_add(ctx, total, block, rows, EACH, first);
    for (int64_t i = 0; i < rows; i++) {
        if (first) total[i] = 0.0f;
        for (int k = 0; k < EACH; k++) total[i] += block[i * EACH + k];
    }
    return NEO_OK;
}
static void row_cut_add(void) {
    for (int first = 0; first < 2; first++) {
        numbers(300, 0), numbers(300, 3);
        CALL(cut_add, &first);
    }
}

/* ---- ids by parts of rows, and bags in another order ---- */
enum { IDS_FEATURES = 4, IDS_BATCH = 41, IDS_PARTS = 6, IDS_MOST = 6000 };
static const int64_t IDS_ROWS[] = {50, 7, 1000, 20}, IDS_FIRST[] = {0, 3, 3, 4, 6},
                     IDS_ROW[] = {0, 10, 11, 0, 0, 19};
typedef struct ids_case {
    neo_bounds bounds;
    neo_dtype from, to;
    int weighted, outside, decrease; /* some ids are outside; offsets decrease */
    int64_t before, batch, room;     /* ids before the batch's first; samples; ids that fit */
} ids_case;
static neo_tensor to_host(neo_ctx *ctx, neo_tensor t) {
    neo_tensor back = t;
    back.data = malloc(neo_tensor_bytes(t) + 1);
    back.place = NEO_HOST;
    CHECK_OK(neo_tensor_copy(ctx, t, back));
    return back;
}
static int64_t integer_at(neo_tensor t, int64_t i) {
    return t.dtype == NEO_I32 ? ((const int32_t *)t.data)[i] : ((const int64_t *)t.data)[i];
}
/* ---- what a device does, bag after bag ---- */
/* The part of an id of feature f, and its row less the first one there; -1: it is in none. */
static int64_t split_part(const neo__split_call *call, int32_t f, int64_t id, int64_t *row) {
    int64_t part = call->first_part[f], end = call->first_part[f + 1];
    if ((uint64_t)id >= (uint64_t)call->rows[f]) {
        if (call->bounds == NEO_BOUNDS_DROP) return -1;
        id = id < 0 ? 0 : call->rows[f] - 1;
    }
    if (part == end) return -1;
    while (end - part > 1) {
        const int64_t mid = part + (end - part) / 2;
        if (call->part_row[mid] <= id) part = mid;
        else end = mid;
    }
    *row = id - call->part_row[part];
    return part;
}
/* Returns whether the batch is sound. */
static int split_look(const neo__split_call *call, neo__split_found *found) {
    const neo_jagged *j = call->batch;
    const int64_t bags = neo_jagged_bag_count(j), *offsets = j->offsets;
    found->bag = found->id = -1;
    if (bags == 0) return 1;
    found->first = offsets[0];
    found->ids = offsets[bags] - offsets[0];
    for (int64_t i = 0; i < bags; i++) {
        if (offsets[i] <= offsets[i + 1]) continue;
        found->bag = found->at = i, found->begin = offsets[i], found->what = offsets[i + 1];
        found->feature = i / j->batch, found->sample = i % j->batch;
        return 0;
    }
    if (offsets[0] < 0 || found->ids > call->max_ids) return 0;
    for (int64_t i = 0; i < bags; i++)
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) {
            const int64_t id = neo__jagged_id(j->ids, j->id_dtype == NEO_I32, k);
            if ((uint64_t)id < (uint64_t)call->rows[i / j->batch]) continue;
            if (found->outside++ > 0 || call->bounds != NEO_BOUNDS_ERROR) continue;
            found->id = k - offsets[0];
            found->at = i, found->begin = offsets[i], found->what = id;
            found->feature = i / j->batch, found->sample = i % j->batch;
        }
    return found->id < 0;
}
/* Count the id at offset k of a bag; then, where its part's count has become its first place, put
   it there. */
static void split_id(const neo__split_call *call, int64_t bag, int64_t k, int put) {
    const neo_jagged *j = call->batch;
    const int64_t f = bag / j->batch, id = neo__jagged_id(j->ids, j->id_dtype == NEO_I32, k);
    const size_t size = neo_dtype_size(call->id_dtype);
    int64_t row;
    const int64_t part = split_part(call, (int32_t)f, id, &row);
    if (!put) call->counts[call->first_part[j->feature_count] + f]++;
    if (part < 0 && put && call->places) call->places[k - j->offsets[0]] = -1;
    if (part < 0) return;
    const int64_t at = call->counts[part]++;
    if (put && call->places) call->places[k - j->offsets[0]] = (int32_t)at;
    if (!put) call->lengths[part * j->batch + bag % j->batch]++;
    else neo__int_encode(call->id_dtype, row, (char *)call->ids + (size_t)at * size);
    if (put && call->weights) call->weights[at] = j->weights ? j->weights[k] : 1.0f;
}
static void plain_split(const neo__split_call *call) {
    const neo_jagged *j = call->batch;
    const int64_t parts = call->first_part[j->feature_count], bags = neo_jagged_bag_count(j);
    int64_t *counts = call->counts;
    memset(call->found, 0, sizeof *call->found);
    memset(counts, 0, (size_t)(parts + j->feature_count) * sizeof *counts);
    if (!split_look(call, call->found) || bags == 0) return;
    memset(call->lengths, 0, (size_t)(parts * j->batch) * sizeof *call->lengths);
    for (int put = 0; put < 2; put++) {
        for (int64_t i = 0; i < bags; i++)
            for (int64_t k = j->offsets[i]; k < j->offsets[i + 1]; k++)
                split_id(call, i, k, put);
        for (int64_t p = 0, at = 0; p < parts && !put; p++) {
            const int64_t n = counts[p];
            counts[p] = at, at += n;
        }
    }
    for (int64_t p = parts - 1; p > 0; p--) counts[p] -= counts[p - 1]; /* they had become ends */
}
/* Offsets and lengths; or, `put`, ids. Returns how many there are. */
static int64_t join_runs(const neo__join_call *call, int put) {
    const size_t size = neo_dtype_size(call->id_dtype);
    int64_t at = 0;
    for (const neo__ids_run *run = call->run; run < call->run + call->runs; run++) {
        const neo__ids_source *source = call->source + run->source;
        int64_t from = run->from_id;
        for (int64_t to = run->to; to < run->to + run->bags; to++) {
            const int64_t b =
                run->from + (call->list ? call->list[run->from_id + to - run->to]
                                        : (to - run->to) * run->step);
            const int64_t *offset = source->offsets ? source->offsets + b : NULL;
            const int64_t n = offset ? offset[1] - offset[0]
                                     : neo__jagged_id(source->lengths,
                                                      source->length_dtype == NEO_I32, b);
            if (offset) from = offset[0];
            if (!put && call->to_offsets) call->to_offsets[to] = at;
            if (!put && call->to_lengths) call->to_lengths[to] = (int32_t)n;
            for (int64_t k = 0; k < n && put; k++) {
                const int64_t id =
                    neo__jagged_id(source->ids, source->id_dtype == NEO_I32, from + k);
                neo__int_encode(call->id_dtype, id, (char *)call->to_ids + (size_t)(at + k) * size);
                if (call->to_weights)
                    call->to_weights[at + k] = source->weights ? source->weights[from + k] : 1.0f;
            }
            at += n, from += n;
        }
    }
    if (!put && call->to_offsets) call->to_offsets[call->bags] = at;
    return at;
}
static void plain_join(const neo__join_call *call) {
    if (join_runs(call, 0) <= call->max_ids && call->to_ids) (void)join_runs(call, 1);
}
static void plain_places(const neo__places_call *call) {
    for (const neo__ids_run *run = call->run; run < call->run + call->runs; run++)
        for (int64_t i = 0; i < run->bags; i++)
            call->to[run->to + i] = (int32_t)(run->from + i * run->step);
    for (int64_t i = 0; i < call->ids; i++) {
        int64_t number = call->place[i], part = call->parts - 1;
        while (number >= 0 && call->first[part] > number) part--;
        if (number >= 0) number += call->base[part] - call->first[part];
        call->to[call->count + i] = (int32_t)number;
    }
}
static neo_status split_by(neo_ctx *ctx, const neo__split_call *call) {
    const neo__split_found *found = call->found;
    if (neo_ctx_device(ctx)) return neo__device_split(ctx, call, "split");
    plain_split(call);
    if (found->bag >= 0)
        return neo_fail(NEO_ERR_FORMAT,
                        "split: offsets decrease at feature %d, sample %" PRId64
                        ": offsets[%" PRId64 "] is %" PRId64 ", the next is %" PRId64,
                        (int)found->feature, found->sample, found->at, found->begin, found->what);
    if (found->first < 0)
        return neo_fail(NEO_ERR_FORMAT, "split: offsets[0] is %" PRId64, found->first);
    return NEO_OK;
}
static neo_status join_by(neo_ctx *ctx, const neo__join_call *call) {
    if (neo_ctx_device(ctx)) return neo__device_join(ctx, call);
    plain_join(call);
    return NEO_OK;
}
static neo_status places_by(neo_ctx *ctx, const neo__places_call *call) {
    if (neo_ctx_device(ctx)) return neo__device_places(ctx, call);
    plain_places(call);
    return NEO_OK;
}
/* Part after part, id after id: what a split must have made of offsets, ids, weights. */
static void check_split(neo_ctx *ctx, const ids_case *c, const neo_tensor *there,
                        const int64_t *counts) {
    neo_tensor t[6], places = to_host(ctx, there[12]);
    int64_t at = 0, dropped = -1;
    for (int i = 0; i < 6; i++) t[i] = to_host(ctx, there[i]);
    for (int f = 0; f < IDS_FEATURES; f++)
        for (int64_t p = IDS_FIRST[f]; p < IDS_FIRST[f + 1]; p++) {
            const int64_t end = p + 1 < IDS_FIRST[f + 1] ? IDS_ROW[p + 1] : IDS_ROWS[f], first = at;
            for (int64_t b = 0; b < c->batch; b++) {
                const int64_t *offset = (const int64_t *)t[0].data + f * c->batch + b, before = at;
                for (int64_t k = offset[0]; k < offset[1]; k++) {
                    int64_t id = integer_at(t[1], k);
                    if ((id < 0 || id >= IDS_ROWS[f]) && c->bounds == NEO_BOUNDS_DROP) {
                        CHECK_INT(integer_at(places, k - c->before), dropped);
                        continue;
                    }
                    id = id < 0 ? 0 : id >= IDS_ROWS[f] ? IDS_ROWS[f] - 1 : id;
                    if (id < IDS_ROW[p] || id >= end) continue;
                    CHECK_INT(integer_at(t[4], at), id - IDS_ROW[p]);
                    CHECK_INT(integer_at(places, k - c->before), at);
                    CHECK(((const float *)t[5].data)[at] ==
                          (c->weighted ? ((const float *)t[2].data)[k] : 1.0f));
                    at++;
                }
                CHECK_INT(integer_at(t[3], p * c->batch + b), at - before);
            }
            CHECK_INT(counts[p], at - first);
        }
    for (int i = 0; i < 6; i++) free(t[i].data);
    free(places.data);
}
/* Where a number for each id lies: two runs, then the batch's ids, from 1,000 p on of part p. */
static neo_status place_ids(neo_ctx *ctx, const neo_tensor *t, int64_t ids, const int64_t *counts) {
    const neo__ids_run run[] = {{3, 70, 0, 0, 1, 0, 0, 0}, {0, 9, 0, 3, 1, 0, 0, 0},
                                {2, 80, 0, 3, 6, 0, 0, 0}};
    static const int32_t of_runs[] = {70, 71, 72, 80, 86};
    int64_t first[IDS_PARTS], base[IDS_PARTS];
    for (int64_t p = 0, at = 0; p < IDS_PARTS; at += counts[p++])
        first[p] = at, base[p] = 1000 * p;
    neo__places_call call;
    memset(&call, 0, sizeof call);
    call.run = run, call.runs = 3, call.count = 5, call.place = (const int32_t *)t[12].data;
    call.ids = ids, call.parts = IDS_PARTS, call.first = first, call.base = base;
    call.to = (int32_t *)t[13].data;
    NEO__TRY(places_by(ctx, &call));
    neo_tensor to = to_host(ctx, t[13]), place = to_host(ctx, t[12]);
    for (int i = 0; i < 5; i++) CHECK_INT(integer_at(to, i), of_runs[i]);
    for (int64_t i = 0; i < ids; i++) {
        const int64_t at = integer_at(place, i), is = integer_at(to, 5 + i);
        CHECK(at < 0 ? is == -1 : first[is / 1000] + is % 1000 == at);
    }
    free(to.data), free(place.data);
    return NEO_OK;
}
/* Offsets, ids, weights; of parts lengths, ids, weights; joined offsets, lengths, ids, weights;
   of a batch offsets, ids; places. */
static neo_status split(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const ids_case *c = (const ids_case *)arg;
    int64_t counts[IDS_PARTS + IDS_FEATURES], at = 0;
    neo__split_found found;
    neo__split_call call;
    neo_jagged j;
    memset(&call, 0, sizeof call), memset(&j, 0, sizeof j);
    j.batch = c->batch, j.feature_count = IDS_FEATURES, j.id_dtype = c->from;
    j.offsets = (const int64_t *)t[0].data, j.ids = t[1].data, j.place = t[0].place;
    if (c->weighted) j.weights = (const float *)t[2].data;
    call.batch = &j, call.rows = IDS_ROWS, call.first_part = IDS_FIRST, call.part_row = IDS_ROW;
    call.bounds = c->bounds, call.max_ids = c->room, call.id_dtype = c->to;
    call.lengths = (int32_t *)t[3].data, call.ids = t[4].data, call.weights = (float *)t[5].data;
    call.counts = counts, call.found = &found, call.places = (int32_t *)t[12].data;
    NEO__TRY(split_by(ctx, &call));
    note_bytes("found", 0, &found, sizeof found);
    note_bytes("counts", 0, counts, sizeof counts);
    if (found.id >= 0 || found.ids > c->room) return NEO_OK;
    check_split(ctx, c, t, counts);
    NEO__TRY(place_ids(ctx, t, found.ids, counts));
    /* The parts, the last first. */
    neo__ids_run run[IDS_PARTS];
    neo__join_call join;
    neo__ids_source source = {0};
    memset(run, 0, sizeof run), memset(&join, 0, sizeof join);
    for (int p = 0; p < IDS_PARTS; p++) {
        const neo__ids_run of = {
            c->batch, p * c->batch, at, (IDS_PARTS - 1 - p) * c->batch, 1, 0, 0, 0};
        run[IDS_PARTS - 1 - p] = of;
        at += counts[p];
    }
    join.run = run, join.runs = IDS_PARTS, join.bags = IDS_PARTS * c->batch;
    source.lengths = call.lengths, source.ids = call.ids, source.weights = call.weights;
    source.length_dtype = NEO_I32, source.id_dtype = join.id_dtype = c->to, join.max_ids = at;
    join.source = &source, join.sources = 1;
    join.to_offsets = (int64_t *)t[6].data, join.to_lengths = (int32_t *)t[7].data;
    join.to_ids = t[8].data, join.to_weights = (float *)t[9].data;
    NEO__TRY(join_by(ctx, &join));
    /* Features 2 and 0 of the batch, without some samples; once more lengths alone. */
    for (int i = 0; i < 2; i++) {
        const int64_t n = c->batch - c->batch / 3;
        const neo__ids_run of = {n, (2 - 2 * i) * c->batch + c->batch / 3, -1, i * n, 1, 0, 0, 0};
        run[i] = of;
    }
    join.runs = 2, join.bags = 2 * (c->batch - c->batch / 3);
    source = neo__ids_source_of(&j), join.id_dtype = c->from;
    join.max_ids = c->room, join.to_offsets = NULL, join.to_lengths = NULL;
    join.to_ids = t[10].data;
    if (!c->weighted) join.to_weights = NULL;
    NEO__TRY(join_by(ctx, &join));
    join.to_ids = NULL, join.to_weights = NULL, join.to_lengths = (int32_t *)t[11].data;
    return join_by(ctx, &join);
}
static void split_tensors(const ids_case *c) {
    const int64_t bags = IDS_FEATURES * c->batch;
    int64_t k = c->before;
    neo_tensor offsets = add(NEO_I64, bags + 1, 0), ids = add(c->from, IDS_MOST, 0);
    ((int64_t *)offsets.data)[0] = k;
    for (int64_t i = 0; i < bags; i++) { /* bags of one id, of none, of some, of many */
        const int64_t f = i / c->batch, n = f == 0 ? 1 : i % 29 == 7 ? 300 : test_random() % 5;
        for (int64_t end = k + n; k < end; k++) {
            int64_t id = (int64_t)test_random() % IDS_ROWS[f];
            if (c->outside && k % 7 == 3) id = k % 2 ? -id - 1 : id + IDS_ROWS[f];
            if (k < 0) continue;
            if (c->from == NEO_I32) ((int32_t *)ids.data)[k] = (int32_t)id;
            else ((int64_t *)ids.data)[k] = id;
        }
        ((int64_t *)offsets.data)[i + 1] = k;
    }
    REQUIRE(k <= IDS_MOST);
    if (c->decrease) ((int64_t *)offsets.data)[c->batch + 2] -= 9;
    numbers(IDS_MOST, 0);
    add(NEO_I32, IDS_PARTS * c->batch + 1, 0), add(c->to, IDS_MOST, 0), numbers(IDS_MOST, 0);
    add(NEO_I64, IDS_PARTS * c->batch + 1, 0);
    add(NEO_I32, IDS_PARTS * c->batch + 1, 0), add(c->to, IDS_MOST, 0), numbers(IDS_MOST, 0);
    add(c->from, IDS_MOST, 0), add(NEO_I32, 2 * c->batch + 1, 0);
    add(NEO_I32, IDS_MOST, 0), add(NEO_I32, IDS_MOST + 5, 0);
}
static void row_ids(void) {
    static const ids_case cases[] = {
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 1, 0, 0, 0, IDS_BATCH, IDS_MOST},
        {NEO_BOUNDS_ERROR, NEO_I32, NEO_I64, 0, 0, 0, 5, IDS_BATCH, IDS_MOST - 5},
        {NEO_BOUNDS_DROP, NEO_I64, NEO_I64, 1, 1, 0, 3, IDS_BATCH, IDS_MOST - 3},
        {NEO_BOUNDS_CLAMP, NEO_I32, NEO_I32, 1, 1, 0, 0, IDS_BATCH, IDS_MOST},
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 0, 1, 0, 3, IDS_BATCH, IDS_MOST - 3}, /* the same id */
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 0, 0, 1, 3, IDS_BATCH, IDS_MOST - 3},
        {NEO_BOUNDS_DROP, NEO_I64, NEO_I32, 0, 1, 0, 0, IDS_BATCH, 50}, /* no room */
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 0, 0, 0, 0, 0, IDS_MOST},
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 1, 0, 0, 0, 1, IDS_MOST},
        {NEO_BOUNDS_ERROR, NEO_I64, NEO_I32, 0, 0, 0, -2, 1, IDS_MOST}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        split_tensors(&cases[i]);
        CALL(split, &cases[i]);
    }
}

/* Ids, the distinct ones, where each is among them. */
static neo_status unique(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    int64_t distinct = -1;
    (void)arg;
    NEO__TRY(neo_ids_unique(ctx, t[0], t[1], t[2], &distinct));
    note_bytes("distinct", 0, &distinct, sizeof distinct);
    neo_tensor x[3];
    const int64_t n = t[0].shape[0];
    int64_t used = 0;
    char *seen = calloc((size_t)n + 1, 1);
    for (int i = 0; i < 3; i++) x[i] = to_host(ctx, t[i]);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = integer_at(x[2], i);
        CHECK(at >= 0 && at < distinct);
        CHECK_INT(integer_at(x[1], at), integer_at(x[0], i));
        used += !seen[at];
        seen[at] = 1;
    }
    CHECK_INT(used, distinct);
    for (int64_t i = 1; i < distinct; i++) CHECK(integer_at(x[1], i - 1) < integer_at(x[1], i));
    for (int i = 0; i < 3; i++) free(x[i].data);
    free(seen);
    return neo_tensor_zero(ctx, neo_tensor_slice(t[1], 0, distinct, n - distinct)); /* anything */
}
static void row_unique(void) {
    static const int64_t counts[] = {0, 1, 2, 7, 300, 5000};
    for (int i = 0; i < 24; i++) { /* few of them, many, all alike; below 0 and the ends, too */
        const int64_t n = counts[i / 4], below = i % 4 < 2 ? 40 : i % 4 == 2 ? 1 << 20 : 1;
        const neo_dtype dtype = i % 2 ? NEO_I32 : NEO_I64;
        neo_tensor ids = add(dtype, n, 0);
        for (int64_t k = 0; k < n; k++) {
            int64_t id = (int64_t)(test_random() % (uint32_t)below) - below / 3;
            if (k % 97 == 5) id = dtype == NEO_I32 ? INT32_MIN : k % 2 ? INT64_MIN : INT64_MAX;
            if (dtype == NEO_I32) ((int32_t *)ids.data)[k] = (int32_t)id;
            else ((int64_t *)ids.data)[k] = id;
        }
        add(dtype, n, 0), add(NEO_I32, n, 0);
        CALL(unique, NULL);
    }
    add(NEO_I64, 5, 0), add(NEO_I64, 5, 0), add(NEO_I64, 5, 0); /* no such inverse, */
    CALL(unique, NULL);
    add(NEO_I64, 5, 0), add(NEO_I32, 5, 0), add(NEO_I32, 5, 0); /* nor ids, */
    CALL(unique, NULL);
    add(NEO_I64, 5, 0), add(NEO_I64, 4, 0), add(NEO_I32, 5, 0); /* nor so few */
    CALL(unique, NULL);
}

/* Bags that repeat: found, written out; pooled once each, and trained. */
static neo_status repeats(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_jagged_desc room = {3, 64, 256, NEO_I64, 1, 1, NEO_DEVICE};
    neo_table_desc table;
    neo_bags_desc d;
    neo_jagged_buffer *buffer;
    neo_bags *bags;
    (void)arg;
    memset(&table, 0, sizeof table), memset(&d, 0, sizeof d);
    table.name = "t", table.rows = 9, table.dim = 4;
    table.optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    static const int32_t all_of_it[] = {0, 0, 0};
    d.tables = &table, d.table_count = 1, d.feature_table = all_of_it, d.feature_count = 3;
    d.max_batch = 21, d.max_ids = 256, d.inverse = 1;
    NEO__TRY(neo_jagged_create(ctx, &room, &buffer));
    NEO__TRY(neo_bags_create(ctx, &d, &bags));
    NEO__TRY(neo_jagged_set(buffer, 21, t[0].data, NEO_I64, t[1].data, NEO_I64,
                            (const float *)t[2].data));
    NEO__TRY(neo_jagged_dedup(buffer));
    const neo_jagged *j = neo_jagged_view(buffer);
    note_bytes("bags of features", 0, j->feature_bags, 4 * sizeof *j->feature_bags);
    for (int step = 0; step < 2; step++) {
        NEO__TRY(neo_bags_forward(bags, j, t[3]));
        NEO__TRY(neo_bags_backward(bags, j, t[3], 0.05f));
    }
    neo_bags_destroy(bags), neo_jagged_destroy(buffer);
    return NEO_OK;
}
static void row_repeats(void) {
    neo_tensor lengths = integers(63, 2);
    integers(256, 3);
    neo_tensor weights = numbers(256, 0);
    for (int64_t i = 0; i < 63; i++) ((int64_t *)lengths.data)[i] *= 1 + i / 21;
    for (int64_t i = 0; i < 256; i++) ((float *)weights.data)[i] = 0.5f * (float)(i % 2);
    numbers(21, 12);
    CALL(repeats, NULL);
}

/* ---- ranks: sums of leaves, rows on narrow wires, pooled rows ---- */
enum { RANKS = 2, RANK_ROWS = 5, RANK_COLS = 70, RANK_SUMS = 3, SHARD_BATCH = 12, SHARD_DIM = 64 };
typedef struct rank_notes {
    uint64_t sum, gathered, scattered, pooled, state;
} rank_notes;
static neo_status read_digest(neo_ctx *ctx, neo_tensor t, uint64_t *digest) {
    neo_tensor back = t;
    back.data = malloc(neo_tensor_bytes(t));
    back.place = NEO_HOST;
    neo_status status = neo_tensor_copy(ctx, t, back);
    if (status == NEO_OK) *digest = digest_of(back.data, neo_tensor_bytes(t));
    free(back.data);
    return status;
}
static neo_status rank_rows(neo_comm *comm, rank_notes *notes) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int64_t in_shape[2] = {RANKS * RANK_ROWS, RANK_COLS}, room[1] = {1 << 16};
    const neo_init normal = {NEO_INIT_NORMAL, 0.0f, 3.0f};
    neo_tensor in, out, work;
    neo_rows rows;
    memset(&rows, 0, sizeof rows);
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 2, in_shape, &in));
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 2, in_shape, &out));
    NEO__TRY(neo_tensor_alloc(ctx, NEO_U8, 1, room, &work));
    NEO__TRY(neo_tensor_init(ctx, in, neo_comm_rank(comm) ? "one" : "zero", normal, 0));
    float *from = (float *)in.data, *to = (float *)out.data;
    rows.wire = NEO_WIRE_I8;
    rows.cols = RANK_COLS;
    rows.workspace = work.data, rows.workspace_bytes = (size_t)room[0];
    NEO__TRY(neo_comm_all_reduce(comm, NEO_REDUCE_SUM, from, to, neo_tensor_count(in), NEO_F32,
                                 NULL));
    NEO__TRY(read_digest(ctx, out, &notes->sum));
    NEO__TRY(neo_comm_all_gather_rows(comm, &rows, from, to, RANK_ROWS, NULL, NULL));
    NEO__TRY(read_digest(ctx, out, &notes->gathered));
    NEO__TRY(neo_comm_reduce_scatter_rows(comm, &rows, from, to, RANK_ROWS, NULL, NULL));
    NEO__TRY(read_digest(ctx, out, &notes->scattered));
    neo_tensor_free(ctx, &in);
    neo_tensor_free(ctx, &out);
    neo_tensor_free(ctx, &work);
    return NEO_OK;
}
static neo_status rank_shard_make(neo_comm *comm, neo_shard **shard) {
    neo_table_desc tables[2];
    neo_bags_desc tables_of;
    neo_plan_desc d;
    neo_plan *plan = NULL;
    memset(tables, 0, sizeof tables);
    memset(&tables_of, 0, sizeof tables_of);
    memset(&d, 0, sizeof d);
    for (int t = 0; t < 2; t++) {
        tables[t].name = t ? "b" : "a";
        tables[t].rows = t ? 11 : 60;
        tables[t].dim = SHARD_DIM;
        tables[t].row_buckets = RANKS;
        tables[t].pooling = t ? NEO_POOL_MEAN : NEO_POOL_SUM;
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    tables_of.tables = tables, tables_of.table_count = 2;
    tables_of.max_batch = SHARD_BATCH, tables_of.max_ids = 4 * SHARD_BATCH;
    d.bags = &tables_of;
    d.cluster.ranks = RANKS;
    d.wire_forward = NEO_WIRE_F16, d.wire_backward = NEO_WIRE_I8;
    NEO__TRY(neo_plan_create_uniform(neo_comm_ctx(comm), &d, NEO_ROW_WISE, &plan));
    neo_status status = neo_shard_create(comm, plan, shard);
    neo_plan_destroy(plan);
    return status;
}
/* Two steps; the gradient is what was pooled. */
static neo_status rank_shard(neo_comm *comm, rank_notes *notes) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_group all = neo_comm_group(comm);
    int64_t first, n, offsets[2 * SHARD_BATCH + 1], ids[4 * SHARD_BATCH];
    neo_shard *shard;
    neo_state *state;
    neo_tensor rows;
    neo_jagged j;
    memset(&j, 0, sizeof j);
    NEO__TRY(rank_shard_make(comm, &shard));
    NEO__TRY(neo_comm_samples(comm, SHARD_BATCH, &first, &n));
    const int64_t shape[2] = {n, 2 * SHARD_DIM};
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 2, shape, &rows));
    j.batch = n, j.feature_count = 2, j.id_dtype = NEO_I64;
    j.offsets = offsets, j.ids = ids;
    for (int64_t i = 0; i <= 2 * n; i++) offsets[i] = 2 * i;
    for (int64_t i = 0; i < 4 * n; i++) ids[i] = (first * 13 + i * 7) % (i < 2 * n ? 60 : 11);
    for (int step = 0; step < 2; step++) {
        NEO__TRY(neo_shard_forward(shard, &j, SHARD_BATCH, rows));
        NEO__TRY(neo_shard_backward(shard, rows, 0.05f));
    }
    NEO__TRY(read_digest(ctx, rows, &notes->pooled));
    NEO__TRY(neo_state_create(ctx, &state));
    NEO__TRY(neo_state_add_shard(state, shard));
    NEO__TRY(neo_state_digest_group(state, &all, &notes->state));
    neo_state_destroy(state);
    neo_tensor_free(ctx, &rows);
    neo_shard_destroy(shard);
    return NEO_OK;
}
static neo_status rank_main(neo_comm *comm, void *user) {
    rank_notes *notes = (rank_notes *)user + neo_comm_rank(comm);
    neo_comm *group = comm;
    if (neo_ctx_device(neo_comm_ctx(comm)))
        NEO__TRY(neo_comm_split_device(comm, 0, neo_comm_rank(comm), &group));
    NEO__TRY(rank_rows(group, notes));
    if (group != comm) neo_comm_destroy(group);
    return rank_shard(comm, notes);
}
static void row_ranks(void) {
    rank_notes notes[RANKS];
    neo_comm_desc d;
    memset(notes, 0, sizeof notes);
    memset(&d, 0, sizeof d);
    d.ctx.threads = 1;
    d.ctx.seed = 1;
    d.ctx.repro_shards = RANKS;
    d.timeout_ms = TEST_PATIENCE_MS;
    if (neo_ctx_device(on)) d.open_device = open_device;
    CHECK_OK(neo_comm_spawn(RANKS, &d, rank_main, notes, NULL));
    for (int rank = 0; rank < RANKS; rank++) {
        note_digest("sum of ranks", rank, notes[rank].sum);
        note_digest("gathered rows", rank, notes[rank].gathered);
        note_digest("scattered rows", rank, notes[rank].scattered);
        note_digest("pooled rows", rank, notes[rank].pooled);
        note_digest("tables", rank, notes[rank].state);
    }
}

/* ---- the list ---- */

/* X(result, operation, its parameters, their names, the function that calls it). Rows of one
   function stand together: it runs once. */
#define OPERATIONS(X)                                                                              \
    X(void *, alloc, (neo_device * d, size_t n), (d, n), row_memory)                               \
    X(void, free, (neo_device * d, void *p, size_t n), (d, p, n), row_memory)                      \
    X(neo_status, copy,                                                                            \
      (neo_device * d, void *to, neo_place at, const void *from, neo_place there, size_t n),       \
      (d, to, at, from, there, n), row_memory)                                                     \
    X(neo_status, fill, (neo_device * d, void *to, int byte, size_t n), (d, to, byte, n),          \
      row_memory)                                                                                  \
    X(void *, host_alloc, (neo_device * d, size_t n), (d, n), row_move)                            \
    X(void, host_free, (neo_device * d, void *p, size_t n), (d, p, n), row_move)                   \
    X(neo_status, synchronize, (neo_device * d), (d), row_move)                                    \
    X(neo_status, move, (neo_device * d, void *to, const void *from, size_t n, void *stream),      \
      (d, to, from, n, stream), row_move)                                                          \
    X(void *, event_make, (neo_device * d), (d), row_move)                                         \
    X(void, event_free, (neo_device * d, void *event), (d, event), row_move)                       \
    X(neo_status, event_mark, (neo_device * d, void *event), (d, event), row_move)                 \
    X(neo_status, event_wait, (neo_device * d, void *event), (d, event), row_move)                 \
    X(neo_status, aside, (neo_device * d, void *event), (d, event), row_move)                      \
    X(neo_status, order, (neo_device * d, int what, void *event, int rank),                        \
      (d, what, event, rank), row_move)                                                            \
    X(void, counts, (neo_device * d, int64_t * counter), (d, counter), row_recorded)               \
    X(void, settle, (neo_device * d), (d), row_recorded)                                           \
    RECORD(X, combine, neo__combine_call, row_ranks)                                               \
    RECORD(X, encode, neo__wire_call, row_ranks)                                                   \
    RECORD(X, decode, neo__wire_call, row_ranks)                                                   \
    RECORD(X, rows, neo__rows_call, row_ranks)                                                     \
    RECORD(X, ids_split, neo__split_call, row_ids)                                                 \
    RECORD(X, ids_join, neo__join_call, row_ids)                                                   \
    RECORD(X, ids_places, neo__places_call, row_ids)                                               \
    RECORD(X, ids_unique, neo__unique_call, row_unique)                                            \
    RECORD(X, ids_fold, neo__fold_call, row_repeats)                                               \
    RECORD(X, bags_spread, neo__bags_job, row_repeats)                                             \
    RECORD(X, gemm, neo__gemm_call, row_gemm)                                                      \
    RECORD(X, linear_grads, neo__linear_grads_call, row_linear)                                    \
    RECORD(X, activation, neo__activation_call, row_linear)                                        \
    RECORD(X, blend, neo__blend_call, row_blend)                                                   \
    RECORD(X, norm, neo__norm_call, row_norm)                                                      \
    RECORD(X, embedding, neo__embedding_call, row_embedding)                                       \
    RECORD(X, attention, neo__attention_call, row_attention)                                       \
    RECORD(X, interact, neo__interact_call, row_interact)                                          \
    RECORD(X, fm, neo__fm_call, row_fm)                                                            \
    RECORD(X, loss, neo__loss_call, row_loss)                                                      \
    RECORD(X, init, neo__init_call, row_init)                                                      \
    RECORD(X, convert, neo__convert_call, row_convert)                                             \
    RECORD(X, tree_sum, neo__tree_sum_call, row_tree_sum)                                          \
    RECORD(X, optim, neo__optim_call, row_optim)                                                   \
    X(size_t, bags_temp_bytes, (neo_device * d, int64_t records, int wide), (d, records, wide),    \
      row_bags)                                                                                    \
    X(neo_status, bags_check,                                                                      \
      (neo_device * d, const neo__bags_job *j, neo__bags_found *found, const neo__later *later),   \
      (d, j, found, later), row_bags)                                                              \
    X(neo_status, bags_told, (neo_device * d, neo__bags_found * found), (d, found), row_bags)      \
    RECORD(X, bags_forward, neo__bags_job, row_bags)                                               \
    RECORD(X, bags_weight_grad, neo__bags_job, row_bags)                                           \
    RECORD(X, bags_records, neo__bags_job, row_bags)                                               \
    RECORD(X, bags_sort, neo__bags_job, row_bags)                                                  \
    RECORD(X, bags_update, neo__bags_job, row_bags)                                                \
    X(neo_status, bags_rows,                                                                       \
      (neo_device * d, const neo__bags_job *j, int t, int64_t first, int64_t n, float *x, int w),  \
      (d, j, t, first, n, x, w), row_bags)                                                         \
    X(neo_status, bags_sort_rows,                                                                  \
      (neo_device * d, const neo__bags_job *j, const int64_t *rows, int64_t key),                  \
      (d, j, rows, key), row_bags_kept)                                                            \
    RECORD(X, bags_step_kept, neo__bags_job, row_bags_kept)                                        \
    X(neo_status, bags_find_slots,                                                                 \
      (neo_device * d, const neo__bags_job *j, int by_value, int64_t *fresh,                       \
       const neo__later *later),                                                                   \
      (d, j, by_value, fresh, later), row_bags_kept)                                               \
    X(neo_status, bags_give_slots, (neo_device * d, const neo__bags_job *j, int by_value),         \
      (d, j, by_value), row_bags_kept)                                                             \
    RECORD(X, bags_drop_slots, neo__bags_job, row_bags_kept)                                       \
    X(neo_status, bags_squares,                                                                    \
      (neo_device * d, const neo__bags_job *j, int64_t first, int64_t n, float *out,               \
       uint64_t *sum),                                                                             \
      (d, j, first, n, out, sum), row_bags_kept)                                                   \
    X(neo_status, bags_first,                                                                      \
      (neo_device * d, const neo__bags_job *j, const int64_t *rows, const uint64_t *keys,          \
       int64_t n),                                                                                 \
      (d, j, rows, keys, n), row_bags_first)                                                       \
    X(neo_status, bags_lines,                                                                      \
      (neo_device * d, const neo__bags_job *j, const neo__job_line *lines, int64_t n, char *slots, \
       int64_t room, int write),                                                                   \
      (d, j, lines, n, slots, room, write), row_bags_lines)                                        \
    RECORD(X, bags_cut_rows, neo__bags_job, row_bags_cut)                                          \
    RECORD(X, bags_cut, neo__bags_job, row_bags_cut)                                               \
    X(neo_status, cut_add,                                                                         \
      (neo_device * d, float *total, const float *blocks, int64_t count, int64_t each, int first), \
      (d, total, blocks, count, each, first), row_cut_add)                                         \
    X(neo_status, bags_dense_slots,                                                                \
      (neo_device * d, const neo__bags_job *j, unsigned char *marks), (d, j, marks),               \
      row_bags_dense)                                                                              \
    X(neo_status, bags_dense_records,                                                              \
      (neo_device * d, const neo__bags_job *j, const unsigned char *marks), (d, j, marks),         \
      row_bags_dense)
/* One that takes a record alone. */
#define RECORD(X, name, record, fn)                                                                \
    X(neo_status, name, (neo_device * d, const record *call), (d, call), fn)

#define OPERATION_NUMBER(result, name, parameters, names, fn) OP_##name,
enum { OPERATIONS(OPERATION_NUMBER) OP_COUNT };
#define OPERATION_ROW(result, name, parameters, names, fn) {#name, fn},
static const struct operation {
    const char *name;
    void (*call)(void);
} operations[OP_COUNT] = {OPERATIONS(OPERATION_ROW)};
/* All members from `destroy`, which is not called on a context, to the end. */
_Static_assert(sizeof(neo_device) - offsetof(neo_device, destroy) ==
                   (OP_COUNT + 1) * sizeof(void (*)(void)),
               "an operation of struct neo_device has no row in OPERATIONS");

/* Runs every row on the contexts and compares. before: is called before a row that calls its
   function, after: after each row; or NULL. */
static void operations_run(neo_ctx *const *contexts, int context_count, void (*before)(void),
                           void (*after)(int op)) {
    static note first[MOST_NOTES];
    for (int op = 0; op < OP_COUNT; op++) {
        const int again = op > 0 && operations[op].call == operations[op - 1].call;
        test_errors = 0;
        test_skip_reason = NULL;
        if (!again && before) before();
        for (int c = 0; c < context_count && !again; c++) {
            const int expected = noted.count;
            on = contexts[c];
            const size_t bytes = neo_ctx_memory(on).bytes;
            noted.count = 0;
            test_seed = 1;
            operations[op].call();
            CHECK(neo_ctx_memory(on).bytes == bytes);
            if (c > 0 && noted.count != expected) FAIL("context %d notes something else", c);
            for (int i = 0; c > 0 && i < expected && i < noted.count; i++)
                if (noted.of[i].digest != first[i].digest || noted.of[i].part != first[i].part)
                    FAIL("context %d: note %d, %s %d, differs", c, i, first[i].what, first[i].part);
            if (c == 0) memcpy(first, noted.of, sizeof first);
        }
        if (after) after(op);
        test_report(operations[op].name);
    }
}
#endif
