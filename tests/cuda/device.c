/* device.c: the public calls of neo.h on a context with a device against one without.

   A case is a function over an array of tensors and a context. It runs on both contexts, on tensors of the same
   contents; then all bytes of all tensors must agree: the device is exact, so it has the CPU's bits. The kernels'
   edge shapes are in cuda/dense and cuda/bags; here it is the way there that counts: shapes, places,
   errors, memory. The device is that of neo_cuda.cuh, emulated on the CPU or, in `make test-cuda`, a GPU. */
#include "test.h"

#include "neo_cuda.cuh"

static neo_device *gpu;
static neo_ctx *cpu_ctx, *gpu_ctx;

/* ---- both contexts ---- */
enum { MOST = 12 };
typedef neo_status (*case_fn)(neo_ctx *ctx, neo_tensor *t, const void *arg);
/* What the next case works on. */
static neo_tensor host[MOST];
static int count;

static neo_ctx *make_ctx(neo_device *device, int shards) {
    neo_ctx_desc d;
    neo_ctx *ctx = NULL;
    memset(&d, 0, sizeof d);
    d.threads = 1;
    d.repro_shards = shards;
    d.seed = 7;
    d.device = device;
    if (neo_ctx_create(&d, &ctx) == NEO_OK) return ctx;
    printf("cannot create a context: %s\n", neo_last_error());
    exit(1);
}
static neo_tensor add(neo_dtype dtype, int64_t rows, int64_t cols) {
    int64_t shape[2] = {rows, cols};
    CHECK_OK(neo_tensor_alloc(cpu_ctx, dtype, cols ? 2 : 1, shape, &host[count]));
    memset(host[count].data, 0, neo_tensor_bytes(host[count]));
    return host[count++];
}
static neo_tensor numbers(int64_t rows, int64_t cols) {
    neo_tensor t = add(NEO_F32, rows, cols);
    test_fill((float *)t.data, neo_tensor_count(t));
    return t;
}
static neo_tensor halves(int64_t rows, int64_t cols) {
    neo_tensor wide = numbers(rows, cols), t = wide;
    count--;
    CHECK_OK(neo_tensor_alloc(cpu_ctx, NEO_BF16, wide.ndim, wide.shape, &t));
    CHECK_OK(neo_tensor_convert(cpu_ctx, wide, t, NULL));
    neo_tensor_free(cpu_ctx, &wide);
    return host[count++] = t;
}
static neo_tensor integers(int64_t n, int64_t below) {
    neo_tensor t = add(NEO_I64, n, 0);
    for (int64_t i = 0; i < n; i++) ((int64_t *)t.data)[i] = (int64_t)(test_random() % (uint32_t)below);
    return t;
}
/* Runs the case on both, compares, and forgets the tensors. Both have the same status and message. */
static void both(const char *name, case_fn fn, const void *arg) {
    neo_tensor there[MOST];
    char text[512], *back;
    for (int i = 0; i < count; i++) {
        CHECK_OK(neo_tensor_alloc(gpu_ctx, host[i].dtype, host[i].ndim, host[i].shape, &there[i]));
        CHECK_OK(neo_tensor_copy(gpu_ctx, host[i], there[i]));
    }
    neo_status here = fn(cpu_ctx, host, arg);
    snprintf(text, sizeof text, "%s", here == NEO_OK ? "" : neo_last_error());
    neo_status status = fn(gpu_ctx, there, arg);
    if (status != here || (status != NEO_OK && strcmp(text, neo_last_error()) != 0))
        FAIL("%s: cpu: %s: %s; device: %s: %s", name, neo_status_string(here), text, neo_status_string(status),
             neo_last_error());
    for (int i = 0; i < count; i++) {
        const size_t bytes = neo_tensor_bytes(host[i]);
        back = (char *)malloc(bytes + 1);
        neo_tensor copy = host[i];
        copy.data = back;
        CHECK_OK(neo_tensor_copy(gpu_ctx, there[i], copy));
        if (memcmp(back, host[i].data, bytes) != 0) FAIL("%s: tensor %d differs", name, i);
        free(back);
        neo_tensor_free(gpu_ctx, &there[i]);
        neo_tensor_free(cpu_ctx, &host[i]);
    }
    count = 0;
}
#define BOTH(fn, arg) both(#fn, fn, arg)

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
    for (int i = 1; i < parts && status == NEO_OK; i++) status = neo_tensor_zero(ctx, t[i]); /* overwritten */
    return status;
}
static void test_tensors(void) {
    static const neo_convert_desc random = {NEO_ROUND_STOCHASTIC, "w", 3, 11};
    static const neo_init inits[] = {{NEO_INIT_UNIFORM, -0.5f, 0.25f}, {NEO_INIT_NORMAL, 0.0f, 2.0f},
                                     {NEO_INIT_CONSTANT, 3.0f, 0.0f}};
    static const int parts[] = {1, 2, 5, 8};
    for (int to = 0; to < NEO_DTYPE_COUNT; to++) {
        numbers(13, 7);
        add((neo_dtype)to, 13, 7);
        BOTH(convert, NULL);
        numbers(13, 7);
        add((neo_dtype)to, 13, 7);
        BOTH(convert, &random);
    }
    numbers(13, 7);
    add(NEO_F32, 7, 13);
    BOTH(transpose, NULL);
    for (int i = 0; i < 3; i++) {
        numbers(3, 5);
        numbers(101, 3);
        BOTH(zero_and_init, &inits[i]);
    }
    for (int i = 0; i < 4; i++) {
        for (int p = 0; p < parts[i]; p++) numbers(33, 0);
        BOTH(tree_sum, &parts[i]);
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
    return status;
}
static void test_blend(void) {
    numbers(1000, 0);
    numbers(1000, 0);
    add(NEO_BF16, 1000, 0);
    ((float *)numbers(300, 0).data)[299] = INFINITY;
    BOTH(blend, NULL);
}

/* ---- layers ---- */
static neo_status gemm(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    return neo_gemm(ctx, (const neo_gemm_desc *)arg, t[0], t[1], t[2]);
}
static neo_status linear(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_activation act = *(const neo_activation *)arg;
    neo_status status = neo_linear_forward(ctx, t[0], t[1], t[2], act, t[3]);
    if (status == NEO_OK) status = neo_activation_forward(ctx, act, t[3], t[4]);
    if (status == NEO_OK) status = neo_activation_backward(ctx, act, t[3], t[4], t[5], t[6]);
    if (status == NEO_OK) status = neo_linear_backward(ctx, NULL, t[0], t[1], t[6], t[7], t[8], t[9]);
    return status;
}
static neo_status narrow_linear(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    neo_status status = neo_linear_forward(ctx, t[0], t[1], t[2], NEO_ACT_TANH, t[3]);
    if (status == NEO_OK) status = neo_linear_backward(ctx, NULL, t[0], t[1], t[4], t[5], t[6], t[7]);
    return status;
}
static void test_products(void) {
    for (int i = 0; i < 8; i++) {
        neo_gemm_desc d = {i & 1, i >> 1 & 1, i & 4 ? 0.5f : 0.0f, NEO_ACT_RELU, NULL};
        const int64_t m = 37, n = 21, k = 50;
        numbers(d.trans_a ? k : m, d.trans_a ? m : k);
        numbers(d.trans_b ? n : k, d.trans_b ? k : n);
        numbers(m, n);
        BOTH(gemm, &d);
    }
    for (int act = NEO_ACT_NONE; act <= NEO_ACT_HARDSWISH; act++) {
        const neo_activation a = (neo_activation)act;
        numbers(19, 6), numbers(5, 6), numbers(5, 0); /* x, w, bias */
        numbers(19, 5), numbers(19, 5), numbers(19, 5), numbers(19, 5);
        numbers(19, 6), numbers(5, 6), numbers(5, 0);
        BOTH(linear, &a);
    }
    for (int i = 0; i < 16; i++) { /* of bf16 */
        neo_gemm_desc d = {i & 1, i >> 1 & 1, i & 4 ? 0.5f : 0.0f, NEO_ACT_RELU, NULL};
        const int64_t m = 37, n = 21, k = 50;
        halves(d.trans_a ? k : m, d.trans_a ? m : k);
        halves(d.trans_b ? n : k, d.trans_b ? k : n);
        if (i & 8) halves(m, n);
        else numbers(m, n);
        BOTH(gemm, &d);
    }
    for (int i = 0; i < 2; i++) {
        halves(19, 6), halves(5, 6), numbers(5, 0); /* x, w, bias */
        if (i) halves(19, 5), halves(19, 5), halves(19, 6);
        else numbers(19, 5), halves(19, 5), numbers(19, 6);
        numbers(5, 6), numbers(5, 0);
        BOTH(narrow_linear, NULL);
    }
}
static neo_status norms(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    (void)arg;
    neo_status status = neo_layer_norm_forward(ctx, t[0], t[1], t[2], 1e-5f, t[3], t[4]);
    if (status == NEO_OK)
        status = neo_layer_norm_backward(ctx, NULL, t[0], t[1], t[4], t[5], t[6], t[7], t[8]);
    if (status == NEO_OK) status = neo_rms_norm_forward(ctx, t[0], t[1], 1e-5f, t[3], t[9]);
    if (status == NEO_OK) status = neo_rms_norm_backward(ctx, NULL, t[0], t[1], t[9], t[5], t[10], t[7]);
    return status;
}
static neo_status embedding(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    neo_status status = neo_embedding_forward(ctx, t[0], t[1], t[2]);
    if (status == NEO_OK)
        status = neo_embedding_backward(ctx, NULL, t[0], t[2], t[3], *(const int *)arg);
    return status;
}
static neo_status attention(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const neo_attention_desc *d = (const neo_attention_desc *)arg;
    neo_status status = neo_attention_forward(ctx, d, t[0], t[1], t[2], t[3], t[4]);
    if (status == NEO_OK)
        status = neo_attention_backward(ctx, d, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]);
    return status;
}
static neo_status interact(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const int diagonal = *(const int *)arg;
    neo_status status = neo_interact_forward(ctx, diagonal, t[0], t[1], t[2]);
    if (status == NEO_OK) status = neo_interact_backward(ctx, diagonal, t[0], t[1], t[2], t[3], t[4]);
    return status;
}
static void test_layers(void) {
    numbers(17, 300), numbers(300, 0), numbers(300, 0), numbers(17, 300), numbers(17, 2), numbers(17, 300);
    numbers(17, 300), numbers(300, 0), numbers(300, 0), numbers(17, 0), numbers(17, 300);
    BOTH(norms, NULL);
    for (int add_to = 0; add_to < 2; add_to++) {
        integers(40, 9);
        numbers(9, 5), numbers(40, 5), numbers(9, 5);
        BOTH(embedding, &add_to);
    }
    for (int causal = 0; causal < 2; causal++) {
        const neo_attention_desc d = {70, 2, causal, 0.0f};
        for (int i = 0; i < 4; i++) numbers(140, 12);
        numbers(140, 2);
        for (int i = 0; i < 4; i++) numbers(140, 12);
        BOTH(attention, &d);
    }
    for (int diagonal = 0; diagonal < 2; diagonal++) {
        const int64_t width = neo_interact_width(6, 4, diagonal);
        numbers(9, 6), numbers(9, 24), numbers(9, width), numbers(9, 6), numbers(9, 24);
        BOTH(interact, &diagonal);
    }
}

/* ---- losses ---- */
static double losses[2];
static neo_exact sums[2];
typedef struct loss_case {
    int kind;
    float scale;
    int weighted;
} loss_case;
static neo_status loss(neo_ctx *ctx, neo_tensor *t, const void *arg) {
    const loss_case *c = (const loss_case *)arg;
    const int at = ctx == gpu_ctx;
    neo_loss_desc d;
    memset(&d, 0, sizeof d);
    d.batch = 50;
    d.sum = &sums[at];
    d.scale = c->scale;
    if (c->weighted) d.weight = t[3];
    neo_exact_zero(&sums[at]);
    switch (c->kind) {
    case 0: return neo_bce_with_logits(ctx, &d, t[0], t[1], t[2], &losses[at]);
    case 1: return neo_bce(ctx, &d, t[0], t[1], t[2], &losses[at]);
    case 2: return neo_mse(ctx, &d, t[0], t[1], t[2], &losses[at]);
    default: return neo_cross_entropy(ctx, &d, t[0], t[1], t[2], &losses[at]);
    }
}
static void loss_tensors(int kind) {
    if (kind == 3) numbers(33, 70), integers(33, 70), numbers(33, 70), numbers(33, 0);
    else {
        neo_tensor x = numbers(33, kind == 2 ? 5 : 0), y = numbers(33, kind == 2 ? 5 : 0);
        for (int64_t i = 0; kind == 1 && i < 33; i++)
            ((float *)x.data)[i] = 0.5f + 0.49f * ((float *)x.data)[i];
        for (int64_t i = 0; kind < 2 && i < 33; i++) ((float *)y.data)[i] = (float)(test_random() % 2);
        numbers(33, kind == 2 ? 5 : 0), numbers(33, 0);
    }
}
static void test_losses(void) {
    for (int i = 0; i < 16; i++) {
        const loss_case c = {i % 4, i & 4 ? 256.0f : 0.0f, i >= 8};
        loss_tensors(c.kind);
        BOTH(loss, &c);
        CHECK_BITS(&losses[0], &losses[1], sizeof(double));
        neo_exact_normalize(&sums[0]);
        neo_exact_normalize(&sums[1]);
        CHECK_BITS(&sums[0], &sums[1], sizeof sums[0]);
    }
    for (int kind = 0; kind < 4; kind++) { /* what is outside: the same message, and nothing is written */
        const loss_case c = {kind, 0.0f, 0};
        loss_tensors(kind);
        if (kind == 2) ((float *)host[1].data)[7] = NAN;
        else if (kind == 3) ((int64_t *)host[1].data)[20] = 70;
        else ((float *)host[1].data)[31] = 1.5f;
        if (kind != 2) BOTH(loss, &c);
        else for (; count > 0;) neo_tensor_free(cpu_ctx, &host[--count]);
    }
    const loss_case probability = {1, 0.0f, 0};
    loss_tensors(1);
    ((float *)host[0].data)[3] = -0.25f;
    BOTH(loss, &probability);
    const int none = 0;
    integers(40, 9);
    ((int64_t *)host[0].data)[39] = 9;
    numbers(9, 5), numbers(40, 5), numbers(9, 5);
    BOTH(embedding, &none);
}

/* ---- a whole small model: parameters, MLP, optimizers, digests, checkpoints ---- */
typedef struct model {
    neo_ctx *ctx;
    neo_params *params;
    neo_mlp *mlp;
    neo_optim *optim;
    neo_state *state;
    neo_tensor x, y, dy, dx;
    size_t predicted, before;
} model;
enum { ROWS = 23, IN = 7, OUT = 3 };
static neo_optim_desc optims[7];
static neo_dtype products = NEO_F32; /* of the model, */
static neo_activation first_act = NEO_ACT_GELU, last_act = NEO_ACT_SIGMOID;
static void set_optims(void) {
    memset(optims, 0, sizeof optims);
    for (int i = 0; i < 5; i++) {
        optims[i].kind = (neo_optim_kind)i;
        optims[i].weight_decay = 0.01f;
        optims[i].clip_norm = 0.1f;
        optims[i].clip_norm_type = i == 1 ? 1.0f : i == 2 ? INFINITY : 2.0f;
    }
    optims[1].initial_accumulator = 0.5f;
    optims[5].kind = NEO_OPTIM_SGD, optims[5].momentum = 0.9f, optims[5].nesterov = 1;
    optims[6].kind = NEO_OPTIM_LAMB;
}
static neo_status model_create(model *m, neo_ctx *ctx, const neo_optim_desc *optim) {
    neo_mlp_desc d;
    int64_t in[2] = {ROWS, IN}, out[2] = {ROWS, OUT};
    neo_status status;
    memset(m, 0, sizeof *m);
    memset(&d, 0, sizeof d);
    d.name = "mlp";
    d.width_count = 4;
    d.widths[0] = IN, d.widths[1] = 40, d.widths[2] = 33, d.widths[3] = OUT;
    d.max_batch = ROWS;
    d.act = first_act;
    d.last_act = last_act;
    d.dtype = products;
    m->ctx = ctx;
    if ((status = neo_params_create(ctx, &m->params)) != NEO_OK) return status;
    m->before = neo_ctx_memory(ctx).bytes;
    if ((status = neo_mlp_create(ctx, m->params, &d, &m->mlp)) != NEO_OK) return status;
    m->predicted = neo_mlp_workspace_bytes(&d) + neo_optim_state_bytes(m->params, optim);
    const size_t params = neo_ctx_memory(ctx).bytes - m->before - neo_mlp_workspace_bytes(&d);
    if ((status = neo_optim_create(ctx, m->params, optim, &m->optim)) != NEO_OK) return status;
    CHECK_INT(neo_ctx_memory(ctx).bytes - m->before - params, m->predicted);
    if ((status = neo_state_create(ctx, &m->state)) != NEO_OK) return status;
    if ((status = neo_state_add_params(m->state, m->params)) != NEO_OK) return status;
    if ((status = neo_state_add_optim(m->state, m->optim)) != NEO_OK) return status;
    neo_tensor *t[4] = {&m->x, &m->dx, &m->y, &m->dy};
    for (int i = 0; i < 4 && status == NEO_OK; i++)
        status = neo_tensor_alloc(ctx, NEO_F32, 2, i < 2 ? in : out, t[i]);
    if (status == NEO_OK) status = neo_tensor_init(ctx, m->x, "x", (neo_init){NEO_INIT_NORMAL, 0, 1}, 0);
    if (status == NEO_OK) status = neo_tensor_init(ctx, m->dy, "dy", (neo_init){NEO_INIT_NORMAL, 0, 1}, 0);
    return status;
}
static void model_destroy(model *m) {
    neo_tensor *t[4] = {&m->x, &m->dx, &m->y, &m->dy};
    for (int i = 0; i < 4; i++) neo_tensor_free(m->ctx, t[i]);
    neo_state_destroy(m->state);
    neo_optim_destroy(m->optim);
    neo_mlp_destroy(m->mlp);
    neo_params_destroy(m->params);
}
static void model_step(model *m) {
    const int64_t before = neo_ctx_memory(m->ctx).alloc_count;
    CHECK_OK(neo_mlp_forward(m->mlp, m->x, m->y));
    CHECK_OK(neo_mlp_backward(m->mlp, NULL, m->dy, m->dx));
    CHECK_OK(neo_optim_step(m->optim, 0.05f));
    CHECK_INT(neo_ctx_memory(m->ctx).alloc_count, before);
}
static void models(int from, int end) {
    for (int i = from; i < end; i++)
        for (int shards = 1; shards <= 8; shards += 7) {
            neo_ctx *ctx[2] = {make_ctx(NULL, shards), make_ctx(gpu, shards)};
            model m[2];
            for (int k = 0; k < 2; k++) {
                CHECK_OK(model_create(&m[k], ctx[k], &optims[i]));
                for (int step = 0; step < 3; step++) model_step(&m[k]);
            }
            if (neo_state_digest(m[0].state) != neo_state_digest(m[1].state))
                FAIL("optimizer %d, %d leaves: digests differ", i, shards);
            CHECK_BITS(&(double){neo_optim_grad_norm(m[0].optim)}, &(double){neo_optim_grad_norm(m[1].optim)},
                       sizeof(double));
            CHECK(neo_ctx_memory(ctx[1]).device_bytes > 0 && neo_ctx_memory(ctx[0]).device_bytes == 0);
            for (int k = 0; k < 2; k++) {
                model_destroy(&m[k]);
                CHECK_INT(neo_ctx_memory(ctx[k]).device_bytes, 0);
                neo_ctx_destroy(ctx[k]);
            }
        }
}
static void test_models(void) { models(0, 7); }
/* Of bf16: activations that read z, y or neither; a last layer with and without one. */
static void test_narrow_models(void) {
    static const neo_activation acts[][2] = {{NEO_ACT_RELU, NEO_ACT_NONE}, {NEO_ACT_GELU, NEO_ACT_SIGMOID},
                                             {NEO_ACT_TANH, NEO_ACT_HARDSWISH}, {NEO_ACT_NONE, NEO_ACT_RELU}};
    products = NEO_BF16;
    for (int i = 0; i < 4; i++) {
        first_act = acts[i][0], last_act = acts[i][1];
        models(i, i + 1);
    }
    products = NEO_F32;
    first_act = NEO_ACT_GELU, last_act = NEO_ACT_SIGMOID;
}
/* Saved on one, loaded on the other, and on. */
static void test_checkpoints(void) {
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char path[512];
    for (int from = 0; from < 2; from++) {
        neo_ctx *ctx[2] = {from ? gpu_ctx : cpu_ctx, from ? cpu_ctx : gpu_ctx};
        model m[2];
        neo_save_desc save;
        neo_load_desc load;
        memset(&save, 0, sizeof save);
        memset(&load, 0, sizeof load);
        snprintf(path, sizeof path, "%s/neo_test_device_%d_%d", dir, from, (int)(neo_time_ns() % 1000000007));
        for (int k = 0; k < 2; k++) CHECK_OK(model_create(&m[k], ctx[k], &optims[3]));
        for (int step = 0; step < 2; step++) model_step(&m[0]);
        CHECK(neo_state_digest(m[0].state) != neo_state_digest(m[1].state));
        save.dir = load.dir = path;
        save.step = 2;
        CHECK_OK(neo_save(ctx[0], &save, m[0].state));
        CHECK_OK(neo_load(ctx[1], &load, m[1].state, NULL));
        CHECK(neo_state_digest(m[0].state) == neo_state_digest(m[1].state));
        for (int k = 0; k < 2; k++) model_step(&m[k]);
        CHECK(neo_state_digest(m[0].state) == neo_state_digest(m[1].state));
        for (int k = 0; k < 2; k++) model_destroy(&m[k]);
        char command[600];
        snprintf(command, sizeof command, "rm -rf '%s'", path);
        CHECK_INT(system(command), 0);
    }
}

/* ---- metrics, gradient checks ---- */
static void test_metrics(void) {
    float x[100], y[100];
    neo_metric_values v[2];
    for (int i = 0; i < 100; i++) x[i] = test_uniform(), y[i] = (float)(test_random() % 2);
    for (int k = 0; k < 2; k++) {
        neo_ctx *ctx = k ? gpu_ctx : cpu_ctx;
        neo_metrics_desc d = {1000, 10};
        neo_metrics *metrics = NULL;
        neo_tensor t[2], from[2] = {neo_tensor_1d(x, NEO_F32, 100), neo_tensor_1d(y, NEO_F32, 100)};
        CHECK_OK(neo_metrics_create(ctx, &d, &metrics));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(neo_tensor_alloc(ctx, NEO_F32, 1, from[i].shape, &t[i]));
            CHECK_OK(neo_tensor_copy(ctx, from[i], t[i]));
        }
        CHECK_OK(neo_metrics_update(metrics, t[0], t[1]));
        CHECK_OK(neo_metrics_update(metrics, from[0], t[1])); /* each from where it is */
        CHECK_OK(neo_metrics_lifetime(metrics, &v[k]));
        for (int i = 0; i < 2; i++) neo_tensor_free(ctx, &t[i]);
        neo_metrics_destroy(metrics);
    }
    CHECK_BITS(&v[0], &v[1], sizeof v[0]);
}
typedef struct square {
    neo_ctx *ctx;
    neo_tensor w, target, grad;
} square;
static neo_status square_loss(void *user, double *value) {
    square *s = (square *)user;
    return neo_mse(s->ctx, NULL, s->w, s->target, s->grad, value);
}
static void test_gradcheck(void) {
    square s;
    int64_t n = 20;
    double value;
    neo_gradcheck_desc d;
    neo_gradcheck_result r;
    memset(&d, 0, sizeof d);
    s.ctx = gpu_ctx;
    neo_tensor *t[3] = {&s.w, &s.target, &s.grad};
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(neo_tensor_alloc(gpu_ctx, NEO_F32, 1, &n, t[i]));
        CHECK_OK(neo_tensor_init(gpu_ctx, *t[i], i ? "t" : "w", (neo_init){NEO_INIT_NORMAL, 0, 1}, 0));
    }
    CHECK_OK(square_loss(&s, &value));
    neo_tensor grad = s.grad;
    s.grad = neo_tensor_none();
    d.loss = square_loss;
    d.user = &s;
    d.value = s.w;
    d.grad = grad;
    CHECK_ERR(neo_gradcheck(&d, &r), NEO_ERR_ARG, "in a device's memory");
    d.ctx = gpu_ctx;
    CHECK_OK(neo_gradcheck(&d, &r));
    CHECK_INT(r.checked, 20);
    d.grad = s.target;
    CHECK_ERR(neo_gradcheck(&d, &r), NEO_ERR_MISMATCH, "gradients are off");
    s.grad = grad;
    for (int i = 0; i < 3; i++) neo_tensor_free(gpu_ctx, t[i]);
}

/* ---- places and errors ---- */
static void test_places(void) {
    int64_t shape[2] = {4, 4};
    neo_tensor here, there;
    double value;
    REQUIRE_OK(neo_tensor_alloc(cpu_ctx, NEO_F32, 2, shape, &here));
    REQUIRE_OK(neo_tensor_alloc(gpu_ctx, NEO_F32, 2, shape, &there));
    CHECK_INT(here.place, NEO_HOST);
    CHECK_INT(there.place, NEO_DEVICE);
    CHECK_INT(neo_tensor_rows(there, 1, 2).place, NEO_DEVICE);
    CHECK_INT(neo_tensor_reshape(there, 1, &(int64_t){16}).place, NEO_DEVICE);
    CHECK_OK(neo_tensor_zero(cpu_ctx, here));
    CHECK_OK(neo_tensor_zero(gpu_ctx, there));
    CHECK_ERR(neo_gemm(gpu_ctx, NULL, there, here, there), NEO_ERR_ARG, "neo_gemm: b is in host memory, but the context computes on cuda:0");
    CHECK_ERR(neo_add(gpu_ctx, here, there), NEO_ERR_ARG, "neo_add: x is in host memory");
    CHECK_ERR(neo_add(cpu_ctx, there, here), NEO_ERR_ARG, "neo_add: x is in a device's memory, but the context has no device");
    CHECK_ERR(neo_tensor_copy(cpu_ctx, here, there), NEO_ERR_ARG, "dst is in a device's memory");
    CHECK_OK(neo_tensor_convert(gpu_ctx, here, here, NULL)); /* the CPU does that */
    CHECK_OK(neo_tensor_convert(gpu_ctx, here, there, NULL)); /* of one dtype: a copy */
    CHECK_ERR(neo_tensor_copy(gpu_ctx, neo_tensor_slice(here, 1, 0, 2), neo_tensor_slice(there, 1, 0, 2)), NEO_ERR_SHAPE,
              "must be contiguous");
    CHECK_ERR(neo_mse(gpu_ctx, NULL, there, here, neo_tensor_none(), &value), NEO_ERR_ARG, "target is in host memory");
    neo_tensor_free(cpu_ctx, &here);
    neo_tensor_free(gpu_ctx, &there);
    CHECK(neo_ctx_device(gpu_ctx) == gpu && neo_ctx_device(cpu_ctx) == NULL);
    CHECK_OK(neo_ctx_synchronize(gpu_ctx));
    CHECK_OK(neo_ctx_synchronize(cpu_ctx));
}

int main(void) {
    static const neo_cuda_desc exact = {0, 1};
    if (neo_cuda_device_create(&exact, &gpu) != NEO_OK) {
        printf("test_device: cannot create a device: %s\n", neo_last_error());
        return 1;
    }
    cpu_ctx = make_ctx(NULL, 3);
    gpu_ctx = make_ctx(gpu, 3);
    set_optims();
    RUN(test_tensors);
    RUN(test_blend);
    RUN(test_products);
    RUN(test_layers);
    RUN(test_losses);
    RUN(test_models);
    RUN(test_narrow_models);
    RUN(test_checkpoints);
    RUN(test_metrics);
    RUN(test_gradcheck);
    RUN(test_places);
    CHECK_INT(neo_ctx_memory(gpu_ctx).device_bytes, 0);
    neo_ctx_destroy(gpu_ctx);
    neo_ctx_destroy(cpu_ctx);
    neo_cuda_device_destroy(gpu);
    return test_end("cuda/device");
}
