/* test_device_shard: neo_shard over several ranks, each with a device of its own on one GPU (emulated on the CPU, or in
   `make test-cuda` a real one), against the neo_bags of one rank on the CPU: pooled rows, gradients of weights, the
   digest of weights and optimizer state, bit for bit, under every kind of placement, with wires and without; what it
   takes, and that a step takes nothing. */
#define NEO_IMPLEMENTATION
#include "shard_common.h"

#include "../neo_cuda.cuh"

static neo_status open_device(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {0, 1};
    (void)rank, (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}
/* Bags of 0 to 3 ids; a table of few rows; a table that two features share. */
static const Set SMALL = {"small", 4, 5, 3, {64, 40, 5, 90}, {32, 16, 48, 7}, {0, 1, 2, 3, 1}, 0};

static Case the;
static int ranks, keeps;
static uint64_t digest[8];
static int64_t grows[8];

/* A tensor on the device, or in host memory: rows a little apart. */
typedef struct Place {
    neo_tensor all, t;
} Place;
static neo_status take(neo_ctx *ctx, int64_t rows, int64_t cols, Place *p) {
    int64_t shape[2] = {rows + 1, cols + 3};
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 2, shape, &p->all));
    p->t = p->all;
    p->t.shape[0] = rows;
    p->t.shape[1] = cols;
    return NEO_OK;
}
/* Between a tensor of the context and a dense one of the host; back: to the host. */
static neo_status carry(neo_ctx *ctx, neo_tensor t, neo_tensor dense, int back) {
    neo_tensor there;
    if (neo_tensor_count(dense) == 0) return NEO_OK;
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 2, dense.shape, &there));
    if (!back) NEO__TRY(neo_tensor_copy(ctx, dense, there));
    NEO__TRY(back ? neo_tensor_copy(ctx, t, there) : neo_tensor_copy(ctx, there, t));
    if (back) NEO__TRY(neo_tensor_copy(ctx, there, dense));
    neo_tensor_free(ctx, &there);
    return NEO_OK;
}
static neo_status one_step(neo_shard *shard, neo_ctx *ctx, int s, int rank) {
    Mine m;
    Place out, dout, grad;
    mine_make(&m, &the, s, rank, ranks);
    int none = the.tables[0].pooling == NEO_POOL_NONE;
    int64_t ids = neo_jagged_id_count(&m.j), rows = none ? ids : m.n, width = none ? the.set->dims[0] : the.width, allocs;
    float *host = malloc(4 * (size_t)(rows * width + 1)), *weights = malloc(4 * (size_t)(ids + 1));
    TRY(take(ctx, rows, width, &out));
    TRY(take(ctx, rows, width, &dout));
    TRY(take(ctx, ids, 1, &grad));
    for (int64_t i = 0; i < rows * width; i++)
        host[i] = none ? (float)((i * 7 + rank) % 13 - 6) * 0.1f : the.dout[s][m.begin * width + i];
    TRY(carry(ctx, dout.t, neo_tensor_2d(host, NEO_F32, rows, width), 0));
    allocs = neo_ctx_memory(ctx).alloc_count;
    int64_t before = neo_shard_get_stats(shard).grow_count;
    TRY(neo_shard_forward(shard, &m.j, the.size[s], out.t));
    TRY(neo_shard_backward_begin(shard, dout.t));
    if (the.plan.weight_grad) TRY(neo_shard_weight_grad(shard, (float *)grad.all.data));
    TRY(keeps ? neo_shard_accumulate_end(shard) : neo_shard_backward_end(shard, 0.05f));
    if (keeps) TRY(neo_shard_step(shard, 0.05f));
    grows[rank] += neo_shard_get_stats(shard).grow_count - before;
    if (neo_shard_get_stats(shard).grow_count == before) EXPECT(neo_ctx_memory(ctx).alloc_count == allocs);
    TRY(carry(ctx, out.t, neo_tensor_2d(host, NEO_F32, rows, width), 1));
    if (!none) EXPECT(memcmp(host, the.out[s] + m.begin * width, 4 * (size_t)(rows * width)) == 0);
    neo_tensor_free(ctx, &out.all);
    neo_tensor_free(ctx, &dout.all);
    neo_tensor_free(ctx, &grad.all);
    free(host), free(weights);
    mine_free(&m);
    return NEO_OK;
}
/* A tensor on the wrong side. */
static neo_status refusals(neo_shard *shard, int rank) {
    float x[1];
    Mine m;
    mine_make(&m, &the, 0, rank, ranks);
    TRY(neo_shard_forward_begin(shard, &m.j, the.size[0]));
    EXPECT(neo_shard_forward_end(shard, neo_tensor_2d(x, NEO_F32, m.n, the.width)) == NEO_ERR_ARG);
    EXPECT(strstr(neo_last_error(), "out is in host memory"));
    mine_free(&m);
    return NEO_OK;
}
static neo_status run(neo_comm *comm, void *user) {
    neo_plan *plan;
    neo_shard *shard;
    neo_state *state;
    neo_shard_memory says;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm);
    neo_group group = neo_comm_group(comm);
    const neo_comm_desc *d = user;
    TRY(neo_plan_create_from(ctx, &the.plan, the.pieces, the.piece_count, &plan));
    TRY(neo_shard_bytes(ctx, plan, rank, &says));
    size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(comm, plan, &shard));
    size_t took = neo_ctx_memory(ctx).bytes - before;
    size_t groups = 2 * neo_comm_workspace_bytes(d, ranks, NEO_BACKEND_THREADS);
    if (ranks % NODES || ranks == NODES) /* else inside nodes there may be two groups more */
        EXPECT(took == says.weight_bytes + says.state_bytes + says.exchange_bytes + says.workspace_bytes + groups);
    neo_comm *devices;
    neo_shard *none = NULL;
    if (neo_ctx_device(ctx)) { /* ids are in host memory: the group that was split is the one to give */
        TRY(neo_comm_split_device(comm, 0, rank, &devices));
        EXPECT(neo_shard_create(devices, plan, &none) == NEO_ERR_ARG && !none);
        EXPECT(strstr(neo_last_error(), "give the group that was split"));
        neo_comm_destroy(devices);
    }
    neo_plan_destroy(plan);
    for (int s = 0; s < the.steps; s++) TRY(one_step(shard, ctx, s, rank));
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &group, &digest[rank]));
    neo_state_destroy(state);
    float rows[5 * 48]; /* a table's rows come to all ranks, and go back */
    TRY(neo_shard_get_rows(shard, 2, 0, 5, NEO_EVERY_RANK, rows));
    TRY(neo_shard_set_rows(shard, 2, 0, 5, ranks - 1, rows));
    if (neo_ctx_device(ctx) && the.tables[0].pooling != NEO_POOL_NONE) TRY(refusals(shard, rank));
    TRY(neo_comm_agree(comm, NEO_OK));
    neo_shard_destroy(shard);
    return NEO_OK;
}
/* On the devices of ranks. NEO_POOL_NONE: against the same ranks on the CPU, else against one. */
static void check_case(neo_ctx *ctx, const char *what) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES}, .ranks = ranks,
                       .ranks_per_node = ranks % NODES ? 0 : ranks / NODES};
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = ranks;
    the.plan.cluster.ranks_per_node = d.ranks_per_node ? d.ranks_per_node : ranks;
    the.plan.weighted = the.weighted;
    the.plan.kept_batches = keeps;
    case_data(&the);
    if (the.tables[0].pooling != NEO_POOL_NONE) case_oracle(&the, ctx);
    memset(wrong, 0, sizeof wrong);
    neo_status status = the.tables[0].pooling == NEO_POOL_NONE ? neo_comm_spawn(ranks, &d, run, &d, NULL) : NEO_OK;
    if (the.tables[0].pooling == NEO_POOL_NONE) the.digest = digest[0];
    d.open_device = open_device;
    if (status == NEO_OK) status = neo_comm_spawn(ranks, &d, run, &d, NULL);
    if (status != NEO_OK) FAIL("%s on %d ranks: %s", what, ranks, neo_last_error());
    for (int r = 0; r < ranks && status == NEO_OK; r++) {
        if (wrong[r]) FAIL("%s on %d ranks: %d checks of rank %d", what, ranks, wrong[r], r);
        if (digest[r] != the.digest) FAIL("%s on %d ranks: the digest of rank %d", what, ranks, r);
    }
    case_free(&the);
    memset(&the.plan, 0, sizeof the.plan);
    the.oracle = NULL;
    the.piece_count = 0;
}
static void case_begin(int kind, neo_pooling pooling) {
    the.steps = 2;
    cut_block = 16;
    the.weighted = 0;
    keeps = 0;
    case_tables(&the, &SMALL, kind, 0, pooling);
}

/* Every placement, on ranks that are nodes and that are not. */
static void placements(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++) {
        ranks = p % 2 ? 4 : 3;
        if (p == NEO_TABLE_ROW_WISE || p == NEO_GRID) ranks = 4;
        case_begin(KINDS, p % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.tables[1].dtype = NEO_BF16;
        for (int t = 0; t < SMALL.tables; t++) place(&the, t, (neo_placement)p, ranks);
        check_case(ctx, neo_placement_name((neo_placement)p));
    }
    neo_ctx_destroy(ctx);
}
/* Steps that need sums over whole rows of tables that are cut by columns: one round or several, of a batch and of
   gradients that are kept. */
static void cut_rows_sums(void) {
    static const neo_bag_optim_kind kinds[] = {NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_PARTIAL_ADAM, NEO_BAG_LAMB,
                                               NEO_BAG_PARTIAL_LAMB, NEO_BAG_LARS_SGD};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 5; i++) {
        ranks = 2 + i % 2;
        case_begin((int)kinds[i], NEO_POOL_SUM);
        case_tables(&the, &SMALL, (int)kinds[i], i % 4, NEO_POOL_SUM);
        keeps = i % 2;
        the.tables[2].dtype = NEO_F16;
        for (int t = 0; t < SMALL.tables; t++) place(&the, t, t == 1 ? NEO_ROW_WISE : NEO_COLUMN_WISE, ranks);
        check_case(ctx, "sums over rows that are cut");
    }
    neo_ctx_destroy(ctx);
}
/* Rows without pooling, whole and cut by rows. */
static void no_pooling(void) {
    static const Set rows = {"rows", 3, 4, 3, {64, 40, 9}, {48, 48, 48}, {0, 1, 2, 1}, 0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 2; i++) {
        ranks = 2 + i;
        case_begin(NEO_BAG_ADAGRAD, NEO_POOL_NONE);
        case_tables(&the, &rows, NEO_BAG_ADAGRAD, 0, NEO_POOL_NONE);
        for (int t = 0; t < 3; t++) place(&the, t, t == 0 ? NEO_ROW_WISE : t == 1 ? NEO_TABLE_WISE : NEO_DATA_PARALLEL, ranks);
        the.plan.weight_grad = the.weighted = i;
        check_case(ctx, "rows without pooling");
    }
    neo_ctx_destroy(ctx);
}
/* Several in one plan; weights and their gradients, wires, gradients that are kept, a rank alone with a wire. */
static void mixtures(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 5; i++) {
        ranks = i == 4 ? 1 : 2 + i % 3;
        case_begin(NEO_BAG_ADAGRAD, i == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.weighted = i < 2;
        the.plan.weight_grad = i < 2;
        keeps = i % 2;
        if (i > 1) the.plan.wire_forward = NEO_WIRE_F16, the.plan.wire_backward = i == 2 ? NEO_WIRE_I8 : NEO_WIRE_BF16;
        cut_block = i > 1 ? 64 : 16;
        for (int t = 0; t < SMALL.tables; t++)
            if (t == 2) place(&the, t, NEO_DATA_PARALLEL, ranks);
            else place_anyhow(&the, t, ranks);
        check_case(ctx, "a mixture");
    }
    neo_ctx_destroy(ctx);
}

/* A unit of one rank that clips, its steps at once on the CPU and recorded on the device. The third has a gradient that
   is not finite: it is not taken, which the recorded one learns late. */
enum { CLIP_COUNT = 300, CLIP_STEPS = 5 };
typedef struct Clipped {
    neo_status status[CLIP_STEPS];
    char text[CLIP_STEPS][300];
    float factor[CLIP_STEPS];
    double norm[CLIP_STEPS];
    int64_t steps;
    float w[CLIP_COUNT];
} Clipped;
static neo_status clipped_step(neo_fsdp *f, neo_ctx *ctx, const neo_param *p, int step) {
    float g[CLIP_COUNT];
    for (int i = 0; i < CLIP_COUNT; i++) g[i] = (float)((i * 7 + step) % 23 - 11) * 0.01f;
    if (step == 2) g[299] = NAN;
    NEO__TRY(neo_fsdp_backward_begin(f, 0, 0));
    NEO__TRY(neo_tensor_copy(ctx, neo_tensor_1d(g, NEO_F32, CLIP_COUNT), p->grad));
    NEO__TRY(neo_fsdp_backward_end(f, 0));
    return neo_fsdp_step(f, 0.1f);
}
static neo_status clips(neo_comm *comm, void *user) {
    Clipped *c = user;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_device *device = (neo_device *)(uintptr_t)neo_ctx_device(ctx);
    int64_t count = CLIP_COUNT;
    const neo_param *p;
    neo_params *params;
    neo_fsdp_unit unit = {.name = "u"};
    neo_fsdp_desc d = {.units = &unit, .unit_count = 1, .optim = {.kind = NEO_OPTIM_ADAMW, .clip_norm = 0.5f}};
    neo_fsdp *f;
    neo_cuda_graph *graph = NULL;
    TRY(neo_params_create_deferred(ctx, &params));
    TRY(neo_params_add(params, "w", 1, &count, (neo_init){NEO_INIT_NORMAL, 0, 1}, &p));
    unit.params = params;
    TRY(neo_fsdp_create(comm, &d, &f));
    if (device) TRY(neo_cuda_graph_create(device, NULL, &graph));
    for (int s = 0; s < CLIP_STEPS; s++) {
        if (graph) TRY(neo_cuda_graph_begin(graph));
        neo_status status = clipped_step(f, ctx, p, s);
        if (graph && status == NEO_OK) status = neo_cuda_graph_end(graph);
        if (graph && status == NEO_OK) status = neo_cuda_graph_wait(graph);
        c->status[s] = status;
        snprintf(c->text[s], sizeof c->text[s], "%s", status == NEO_OK ? "" : neo_last_error());
        c->factor[s] = neo_fsdp_clip_factor(f);
        c->norm[s] = neo_fsdp_get_stats(f).grad_norm;
    }
    c->steps = neo_fsdp_get_stats(f).steps;
    TRY(neo_fsdp_forward_begin(f, 0));
    TRY(neo_tensor_copy(ctx, p->value, neo_tensor_1d(c->w, NEO_F32, count)));
    TRY(neo_fsdp_forward_end(f, 0));
    if (graph) CHECK_INT((int64_t)neo_cuda_graph_get_stats(graph).launches, CLIP_STEPS);
    neo_cuda_graph_destroy(graph);
    neo_fsdp_destroy(f);
    neo_params_destroy(params);
    return NEO_OK;
}
static void recorded_clip(void) {
    static Clipped at_once, recorded;
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 4}};
    CHECK_OK(neo_comm_spawn(1, &d, clips, &at_once, NULL));
    d.open_device = open_device;
    CHECK_OK(neo_comm_spawn(1, &d, clips, &recorded, NULL));
    CHECK(at_once.status[2] == NEO_ERR_NUMERIC && at_once.factor[2] == 0.0f && at_once.steps == CLIP_STEPS - 1);
    CHECK(at_once.factor[1] > 0.0f && at_once.factor[1] < 1.0f);
    CHECK(memcmp(&at_once, &recorded, sizeof at_once) == 0);
}

int main(void) {
    RUN(recorded_clip);
    RUN(placements);
    RUN(cut_rows_sums);
    RUN(no_pooling);
    RUN(mixtures);
    return test_end("test_device_shard");
}
