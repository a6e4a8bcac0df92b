/* device.c: a context with a device against one without: every operation (tests/operations.h),
   models, checkpoints, metrics, gradient checks, places and errors.

   The device is exact, so it has the CPU's bits. The kernels' edge shapes are in cuda/dense and
   cuda/bags; here it is the way there that counts. The device is that of neo_cuda.cuh, emulated on
   the CPU or, in `make test-cuda`, a GPU. */
#include "operations.h"

#include "finite.h"

#include "neo_cuda.cuh"

static neo_device *gpu;
static neo_ctx *cpu_ctx, *gpu_ctx;

static int check_finite; /* of the next contexts */
static neo_ctx *make_ctx(neo_device *device, int shards) {
    neo_ctx_desc d;
    neo_ctx *ctx = NULL;
    memset(&d, 0, sizeof d);
    d.threads = 1;
    d.repro_shards = shards;
    d.seed = 7;
    d.device = device;
    d.check_finite = check_finite;
    if (neo_ctx_create(&d, &ctx) == NEO_OK) return ctx;
    printf("cannot create a context: %s\n", neo_last_error());
    exit(1);
}

/* ---- every operation ---- */

/* Calls of a device's operations are counted: a row calls the operation that it is named after. */
static int64_t calls[OP_COUNT];
#define COUNT_CALLS(result, name, parameters, names, fn)                                           \
    static result(*real_##name) parameters;                                                        \
    static result count_##name parameters {                                                        \
        __atomic_fetch_add(&calls[OP_##name], 1, __ATOMIC_RELAXED);                                \
        return real_##name names;                                                                  \
    }
OPERATIONS(COUNT_CALLS)
#define WATCH(result, name, parameters, names, fn)                                                 \
    if (!real_##name) real_##name = d->name;                                                       \
    d->name = count_##name;
static void watch(neo_device *d) { OPERATIONS(WATCH) }

static neo_cuda_graph *graph;
static neo_status begin_step(void) { return neo_cuda_graph_begin(graph); }
static neo_status end_step(void) {
    NEO__TRY(neo_cuda_graph_end(graph));
    return neo_cuda_graph_wait(graph);
}
static neo_status open_watched(int rank, int local, void *user, neo_device **device) {
    const neo_cuda_desc exact = {0, 1, 0};
    (void)rank, (void)local, (void)user;
    NEO__TRY(neo_cuda_device_create(&exact, device));
    watch(*device);
    return NEO_OK;
}
static void forget_calls(void) { memset(calls, 0, sizeof calls); }
static void check_called(int op) {
    if (calls[op] == 0) FAIL("the row of %s does not call it", operations[op].name);
}
static void every_operation(void) {
    neo_ctx *both[2] = {cpu_ctx, gpu_ctx};
    watch(gpu);
    open_device = open_watched;
    record_begin = begin_step, record_end = end_step;
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    operations_run(both, 2, forget_calls, check_called);
    neo_cuda_graph_destroy(graph);
}
/* With check_finite the same bits, also in what would be a graph's step; and what it finds. */
static void every_number(void) {
    check_finite = 1;
    neo_ctx *both[2] = {cpu_ctx, make_ctx(gpu, 3)};
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    operations_run(both, 2, NULL, NULL);
    neo_cuda_graph_destroy(graph);
    finite_run(both[1]);
    neo_ctx_destroy(both[1]);
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
static neo_optim_desc optims[9];
static neo_dtype products = NEO_F32; /* of the model, */
static neo_activation first_act = NEO_ACT_GELU, last_act = NEO_ACT_SIGMOID;
static void set_optims(void) {
    memset(optims, 0, sizeof optims);
    for (int i = 0; i < 7; i++) {
        optims[i].kind = (neo_optim_kind)i;
        optims[i].weight_decay = 0.01f;
        optims[i].clip_norm = 0.1f;
        optims[i].clip_norm_type = i == 1 ? 1.0f : i == 2 ? INFINITY : 2.0f;
    }
    optims[1].initial_accumulator = 0.5f;
    optims[5].momentum = 0.9f, optims[6].l1 = 0.02f;
    optims[7].kind = NEO_OPTIM_SGD, optims[7].momentum = 0.9f, optims[7].nesterov = 1;
    optims[8].kind = NEO_OPTIM_LAMB;
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
    const neo_init normal = {NEO_INIT_NORMAL, 0, 1};
    if (status == NEO_OK) status = neo_tensor_init(ctx, m->x, "x", normal, 0);
    if (status == NEO_OK) status = neo_tensor_init(ctx, m->dy, "dy", normal, 0);
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
            const double norm[2] = {neo_optim_grad_norm(m[0].optim),
                                    neo_optim_grad_norm(m[1].optim)};
            CHECK_BITS(&norm[0], &norm[1], sizeof norm[0]);
            CHECK(neo_ctx_memory(ctx[1]).device_bytes > 0);
            CHECK(neo_ctx_memory(ctx[0]).device_bytes == 0);
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
    static const neo_activation acts[][2] = {{NEO_ACT_RELU, NEO_ACT_NONE},
                                             {NEO_ACT_GELU, NEO_ACT_SIGMOID},
                                             {NEO_ACT_TANH, NEO_ACT_HARDSWISH},
                                             {NEO_ACT_NONE, NEO_ACT_RELU}};
    products = NEO_BF16;
    for (int i = 0; i < 4; i++) {
        first_act = acts[i][0], last_act = acts[i][1];
        models(i, i + 1);
    }
    products = NEO_F32;
    first_act = NEO_ACT_GELU, last_act = NEO_ACT_SIGMOID;
}
/* A checkpoint in a folder of its own: what saves and loads it, and that it goes. */
typedef struct checkpoint {
    char path[512];
    neo_save_desc save;
    neo_load_desc load;
} checkpoint;
static void checkpoint_begin(checkpoint *c, const char *name, int number) {
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    memset(c, 0, sizeof *c);
    snprintf(c->path, sizeof c->path, "%s/neo_test_%s_%d_%d", dir, name, number,
             (int)(neo_time_ns() % 1000000007));
    c->save.dir = c->load.dir = c->path;
}
static void checkpoint_end(const checkpoint *c) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", c->path);
    CHECK_INT(system(command), 0);
}

/* Saved on one, loaded on the other, and on. */
static void test_checkpoints(void) {
    for (int from = 0; from < 2; from++) {
        neo_ctx *ctx[2] = {from ? gpu_ctx : cpu_ctx, from ? cpu_ctx : gpu_ctx};
        model m[2];
        checkpoint c;
        checkpoint_begin(&c, "device", from);
        for (int k = 0; k < 2; k++) CHECK_OK(model_create(&m[k], ctx[k], &optims[3]));
        for (int step = 0; step < 2; step++) model_step(&m[0]);
        CHECK(neo_state_digest(m[0].state) != neo_state_digest(m[1].state));
        c.save.step = 2;
        CHECK_OK(neo_save(ctx[0], &c.save, m[0].state));
        CHECK_OK(neo_load(ctx[1], &c.load, m[1].state, NULL));
        CHECK(neo_state_digest(m[0].state) == neo_state_digest(m[1].state));
        for (int k = 0; k < 2; k++) model_step(&m[k]);
        CHECK(neo_state_digest(m[0].state) == neo_state_digest(m[1].state));
        for (int k = 0; k < 2; k++) model_destroy(&m[k]);
        checkpoint_end(&c);
    }
}

/* A checkpoint of the class as it was, whose bits were others, is refused. */
static void test_earlier_numerics(void) {
    neo_device *device = NULL;
    model m[2];
    checkpoint c;
    checkpoint_begin(&c, "earlier", 0);
    REQUIRE_OK(neo_cuda_device_create(NULL, &device));
    neo_ctx *ctx = make_ctx(device, 3);
    const char *now = device->numerics;
    device->numerics = "deterministic";
    CHECK_OK(model_create(&m[0], ctx, &optims[0]));
    device->numerics = now;
    CHECK_OK(model_create(&m[1], ctx, &optims[0]));
    CHECK_OK(neo_save(ctx, &c.save, m[0].state));
    CHECK_ERR(neo_load(ctx, &c.load, m[1].state, NULL), NEO_ERR_MISMATCH,
              "numerics is 'deterministic' there, 'deterministic 3' here");
    c.load.any_definition = 1;
    CHECK_OK(neo_load(ctx, &c.load, m[1].state, NULL));
    for (int k = 0; k < 2; k++) model_destroy(&m[k]);
    neo_ctx_destroy(ctx);
    neo_cuda_device_destroy(device);
    checkpoint_end(&c);
}
/* A checkpoint says of which class its numbers are. The CPU's bits need no word. */
static void test_numerics(void) {
    static const neo_cuda_desc classes[] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}};
    static const char *const text[] = {"numerics is 'deterministic 3' there, not defined here",
                                       "numerics is 'deterministic 3, tf32' there", NULL};
    for (int i = 0; i < 3; i++) {
        neo_device *device = NULL;
        model m[2];
        checkpoint c;
        checkpoint_begin(&c, "numerics", i);
        REQUIRE_OK(neo_cuda_device_create(&classes[i], &device));
        neo_ctx *ctx = make_ctx(device, 3);
        CHECK_OK(model_create(&m[0], ctx, &optims[0]));
        CHECK_OK(model_create(&m[1], cpu_ctx, &optims[0]));
        model_step(&m[0]);
        CHECK_OK(neo_save(ctx, &c.save, m[0].state));
        if (text[i])
            CHECK_ERR(neo_load(cpu_ctx, &c.load, m[1].state, NULL), NEO_ERR_MISMATCH, text[i]);
        c.load.any_definition = text[i] != NULL;
        CHECK_OK(neo_load(cpu_ctx, &c.load, m[1].state, NULL));
        CHECK(neo_state_digest(m[0].state) == neo_state_digest(m[1].state));
        for (int k = 0; k < 2; k++) model_destroy(&m[k]);
        neo_ctx_destroy(ctx);
        neo_cuda_device_destroy(device);
        checkpoint_end(&c);
    }
    static const neo_cuda_desc both = {0, 1, 1};
    neo_device *none = NULL;
    CHECK_ERR(neo_cuda_device_create(&both, &none), NEO_ERR_ARG, "exact and tf32 are both set");
    neo_ctx *ctx = make_ctx(gpu, 0), *here = make_ctx(NULL, 0);
    neo_ctx *one = make_ctx(gpu, NEO_SHARD_A_RANK), *wrong = NULL;
    CHECK_INT(neo_ctx_repro_shards(ctx), NEO_DEVICE_SHARDS);
    CHECK_INT(neo_ctx_repro_shards(here), 1);
    CHECK_INT(neo_ctx_repro_shards(one), 1);
    neo_ctx_destroy(ctx), neo_ctx_destroy(here), neo_ctx_destroy(one);
    for (int least = 3; least < 40; least += 30) {
        neo_ctx *few = make_ctx(gpu, -least);
        CHECK_INT(neo_ctx_repro_shards(few), least);
        neo_ctx_destroy(few);
    }
    CHECK_ERR(neo_ctx_create(&(neo_ctx_desc){.repro_shards = -4097}, &wrong), NEO_ERR_ARG,
              "repro_shards is -4097");
}

/* ---- metrics, gradient checks ---- */
static void test_metrics(void) {
    float x[100], y[100];
    neo_metric_values v[2];
    for (int i = 0; i < 100; i++) x[i] = test_uniform(), y[i] = (float)(test_random() % 2);
    for (int k = 0; k < 2; k++) {
        neo_ctx *ctx = k ? gpu_ctx : cpu_ctx;
        neo_metrics_desc d = {1000, 10, 0, 0};
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
    const neo_init normal = {NEO_INIT_NORMAL, 0, 1};
    int64_t n = 20;
    double value;
    neo_gradcheck_desc d;
    neo_gradcheck_result r;
    memset(&d, 0, sizeof d);
    s.ctx = gpu_ctx;
    neo_tensor *t[3] = {&s.w, &s.target, &s.grad};
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(neo_tensor_alloc(gpu_ctx, NEO_F32, 1, &n, t[i]));
        CHECK_OK(neo_tensor_init(gpu_ctx, *t[i], i ? "t" : "w", normal, 0));
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
    CHECK_ERR(neo_gemm(gpu_ctx, NULL, there, here, there), NEO_ERR_ARG,
              "neo_gemm: b is in host memory, but the context computes on cuda:0");
    CHECK_ERR(neo_add(gpu_ctx, here, there), NEO_ERR_ARG, "neo_add: x is in host memory");
    CHECK_ERR(neo_add(cpu_ctx, there, here), NEO_ERR_ARG,
              "neo_add: x is in a device's memory, but the context has no device");
    CHECK_ERR(neo_tensor_copy(cpu_ctx, here, there), NEO_ERR_ARG, "dst is in a device's memory");
    CHECK_OK(neo_tensor_convert(gpu_ctx, here, here, NULL)); /* the CPU does that */
    CHECK_OK(neo_tensor_convert(gpu_ctx, here, there, NULL)); /* of one dtype: a copy */
    CHECK_ERR(neo_tensor_copy(gpu_ctx, neo_tensor_slice(here, 1, 0, 2),
                              neo_tensor_slice(there, 1, 0, 2)),
              NEO_ERR_SHAPE, "must be contiguous");
    CHECK_ERR(neo_mse(gpu_ctx, NULL, there, here, neo_tensor_none(), &value), NEO_ERR_ARG,
              "target is in host memory");
    neo_tensor_free(cpu_ctx, &here);
    neo_tensor_free(gpu_ctx, &there);
    CHECK(neo_ctx_device(gpu_ctx) == gpu && neo_ctx_device(cpu_ctx) == NULL);
    CHECK_OK(neo_ctx_synchronize(gpu_ctx));
    CHECK_OK(neo_ctx_synchronize(cpu_ctx));
}
/* A device that its maker destroys before its context, and that before a tensor: each stays as long
   as it is needed, and the emulator's AddressSanitizer sees what is freed too early or never. */
static void test_device_first(void) {
    neo_device *own = NULL;
    neo_tensor t;
    float two[2] = {1, 2}, back[2] = {0, 0};
    CHECK_OK(neo_cuda_device_create(NULL, &own));
    CHECK(neo_cuda_device_count() >= 1 && neo_cuda_ordinal(own) == 0);
    neo_ctx *ctx = make_ctx(own, 1);
    CHECK_OK(neo_tensor_alloc(ctx, NEO_F32, 1, (int64_t[]){2}, &t));
    neo_cuda_device_destroy(own);
    CHECK_OK(neo_tensor_copy(ctx, neo_tensor_1d(two, NEO_F32, 2), t));
    CHECK_OK(neo_tensor_copy(ctx, t, neo_tensor_1d(back, NEO_F32, 2)));
    CHECK(back[0] == 1 && back[1] == 2);
    neo_ctx_destroy(ctx);
    CHECK_ERR(neo_tensor_zero(ctx, t), NEO_ERR_STATE, "the context is destroyed");
    neo_tensor_free(ctx, &t);
}

int main(void) {
    static const neo_cuda_desc exact = {0, 1, 0};
    if (neo_cuda_device_create(&exact, &gpu) != NEO_OK) {
        printf("test_device: cannot create a device: %s\n", neo_last_error());
        return 1;
    }
    cpu_ctx = make_ctx(NULL, 3);
    gpu_ctx = make_ctx(gpu, 3);
    set_optims();
    every_operation();
    RUN(test_models);
    RUN(test_narrow_models);
    RUN(test_checkpoints);
    RUN(test_numerics);
    RUN(test_earlier_numerics);
    RUN(test_metrics);
    RUN(test_gradcheck);
    RUN(test_places);
    RUN(test_device_first);
    every_number();
    CHECK_INT(neo_ctx_memory(gpu_ctx).device_bytes, 0);
    neo_ctx_destroy(gpu_ctx);
    neo_ctx_destroy(cpu_ctx);
    neo_cuda_device_destroy(gpu);
    return test_end("cuda/device");
}
