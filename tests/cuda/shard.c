/* shard.c: neo_shard over several ranks, each with a device of its own on one GPU (emulated on the
   CPU, or in `make test-cuda` a real one), against the neo_bags of one rank on the CPU: pooled
   rows, gradients of weights, the digest of weights and optimizer state, bit for bit, under every
   kind of placement, with wires and without; the bytes that it sends, against the same ranks on the
   CPU; what it takes, and that a step takes nothing; that an error of one rank's device reaches
   all. What a plan says of rows in host memory below a device, hits and bytes, is so. With
   NEO_COMM_NCCL: pooled rows over NCCL (emulated: over nccl_on_cpu.cpp). */
#include "shard/common.h"

#include "neo_cuda.cuh"
#include "neo_store.h"

static neo_status open_device(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {0, 1, 0};
    (void)rank, (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}
/* Bags of 0 to 3 ids; a table of few rows; a table that two features share. */
static const Set SMALL = {"small", 4, 5, 3, {64, 40, 5, 90}, {32, 16, 48, 7}, {0, 1, 2, 3, 1}, 0};
static const Set MANY = {"many", 4, 5, 3, {640, 400, 50, 900}, {32, 16, 48, 8}, {0, 1, 2, 3, 1}, 0};

static Case the;
static const Set KEYED = {"keyed", 3, 4, 4, {256, 256, 256}, {48, 32, 7}, {0, 1, 2, 1}, 0};
static int ranks, keeps, spoils, keyed, records, groups = 1; /* of replicas */
static int own_sums; /* over NCCL: its own, see nccl_sums */
static int is_quiet; /* of backward the host hears nothing: see quiet_backward */
static int mixed;    /* odd ranks give bags that repeat as often as they do */
static uint64_t digest[8];
static int64_t grows[8], sent[8]; /* sent: bytes of pooled rows, and the like, on the CPU */
static int64_t summed[8];         /* bytes of sums over ranks, on devices */
static int64_t told[2][8];        /* bytes of ids and what belongs to them; on devices */
static int64_t flows_of[8];
static uint64_t numbers_of[8][MAX_STEPS][2]; /* hashes: out, gradients of weights */

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
/* What a device's calls since `before` had for the host, of gradients of data-parallel tables: that
   of kept ones the number of new slots; what the host tells the device is small beside them. */
static void expect_quiet(const neo_device *device, neo_cuda_stats before, int rank) {
    const neo_cuda_stats now = neo_cuda_get_stats(device);
    int64_t dense = 0;
    (void)rank;
    if (is_quiet > 3) { /* whose ids are on the device: backward */
        EXPECT(now.waits == before.waits && now.fetched == before.fetched);
        return;
    }
    if (is_quiet > 2) { /* of a number for each id, forward, too: nothing comes, ids go */
        EXPECT(now.waits == before.waits && now.fetched == before.fetched);
        EXPECT(now.sent > before.sent);
        return;
    }
    if (is_quiet > 1) { /* cut by columns: new slots, and how many of each table */
        EXPECT(now.waits - before.waits == 2);
        EXPECT(now.fetched - before.fetched < 512 && now.sent - before.sent < 8192);
        return;
    }
    for (int t = 1; t < the.set->tables; t += 2) dense += 4 * the.set->rows[t] * the.set->dims[t];
    EXPECT(now.waits - before.waits <= (keeps ? 2 : 0));
    EXPECT(now.fetched - before.fetched <= (keeps ? 2 * 3 * sizeof(uint64_t) : 0));
    EXPECT((int64_t)(now.sent - before.sent) < dense / 8);
}
/* This rank's batch of a step; with device_ids in the device's memory, ids of one step as i32. */
typedef struct Given {
    Mine m;
    neo_tensor offsets, ids, weights, inverse;
    neo_jagged_buffer *folded; /* with each distinct bag once */
} Given;
static neo_status put(neo_ctx *ctx, const void *from, neo_dtype dtype, int64_t n, neo_tensor *to) {
    const int64_t count = n + 1; /* never none */
    neo_tensor host = neo_tensor_1d((void *)(uintptr_t)from, dtype, n);
    NEO__TRY(neo_tensor_alloc(ctx, dtype, 1, &count, to));
    return n > 0 ? neo_tensor_copy(ctx, host, neo_tensor_slice(*to, 0, 0, n)) : NEO_OK;
}
static neo_status give(neo_ctx *ctx, int s, int rank, Given *given) {
    Mine *m = &given->m;
    memset(given, 0, sizeof *given);
    mine_make(m, &the, s, rank, ranks);
    if (the.bags.inverse && !(mixed && rank % 2)) {
        const int64_t all = m->n * the.set->features;
        const neo_jagged_desc d = {the.set->features, all, m->offsets[all], NEO_I64, the.weighted,
                                   1, NEO_HOST};
        const neo_jagged *part = &m->j;
        TRY(neo_jagged_create(ctx, &d, &given->folded));
        TRY(neo_jagged_stack(given->folded, &part, 1));
        TRY(neo_jagged_dedup(given->folded));
        m->j = *neo_jagged_view(given->folded);
    }
    if (!neo_ctx_device(ctx) || !the.plan.device_ids) return NEO_OK;
    const int64_t bags = neo_jagged_bag_count(&m->j), places = m->n * the.set->features;
    if (s % 2 && !m->j.inverse) shift(m, the.set->features);
    const int64_t ids = m->j.offsets[bags];
    for (int64_t k = 0; k < ids && s == 2 && !m->j.inverse; k++)
        ((int32_t *)m->ids)[k] = (int32_t)m->ids[k];
    if (s == 2 && !m->j.inverse) m->j.id_dtype = NEO_I32;
    TRY(put(ctx, m->j.offsets, NEO_I64, bags + 1, &given->offsets));
    TRY(put(ctx, m->j.ids, m->j.id_dtype, ids, &given->ids));
    TRY(put(ctx, m->j.weights ? m->j.weights : m->weights, NEO_F32, ids, &given->weights));
    if (m->j.inverse) TRY(put(ctx, m->j.inverse, NEO_I32, places, &given->inverse));
    if (m->j.inverse) m->j.inverse = (const int32_t *)given->inverse.data;
    m->j.place = NEO_DEVICE;
    m->j.offsets = (const int64_t *)given->offsets.data;
    m->j.ids = given->ids.data;
    if (m->j.weights) m->j.weights = (const float *)given->weights.data;
    return NEO_OK;
}
static void take_back(neo_ctx *ctx, Given *given) {
    neo_tensor_free(ctx, &given->offsets);
    neo_tensor_free(ctx, &given->ids);
    neo_tensor_free(ctx, &given->weights);
    neo_tensor_free(ctx, &given->inverse);
    neo_jagged_destroy(given->folded);
    mine_free(&given->m);
}
static uint64_t hash_of(const float *x, int64_t n) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}
static neo_status one_step(neo_shard *shard, neo_ctx *ctx, int s, int rank, const Given *given,
                           neo_cuda_graph *graph) {
    Mine m = given[s].m;
    Place out, dout, grad;
    int none = the.tables[0].pooling == NEO_POOL_NONE;
    int64_t ids = m.offsets[m.n * the.set->features] - m.offsets[0], rows = none ? ids : m.n,
            width = none ? the.set->dims[0] : the.width, allocs;
    float *host = malloc(4 * (size_t)(rows * width + 1)), *weights = malloc(4 * (size_t)(ids + 1));
    TRY(take(ctx, rows, width, &out));
    TRY(take(ctx, rows, width, &dout));
    TRY(take(ctx, ids, 1, &grad));
    for (int64_t i = 0; i < rows * width; i++)
        host[i] = none ? (float)((i * 7 + rank) % 13 - 6) * 0.1f : the.dout[s][m.begin * width + i];
    TRY(carry(ctx, dout.t, neo_tensor_2d(host, NEO_F32, rows, width), 0));
    allocs = neo_ctx_memory(ctx).alloc_count;
    int64_t before = neo_shard_get_stats(shard).grow_count;
    neo_cuda_stats heard = {0};
    if (neo_ctx_device(ctx)) heard = neo_cuda_get_stats(neo_ctx_device(ctx));
    if (graph) TRY(neo_cuda_graph_begin(graph));
    TRY(neo_shard_forward(shard, &m.j, the.size[s], out.t));
    const uint64_t launched = graph ? neo_cuda_graph_get_stats(graph).launches : 0;
    if (the.plan.pipeline && s + 1 < the.steps && rank % 2) { /* not at one place on all ranks */
        TRY(neo_shard_prefetch(shard, &given[s + 1].m.j, the.size[s + 1]));
        const int waits = graph && neo_cuda_graph_get_stats(graph).launches > launched;
        if (graph && the.plan.device_ids) /* beside the step, whose last calls are not run yet */
            EXPECT(waits == (the.plan.device_ids == 1));
    }
    if (neo_ctx_device(ctx) && is_quiet != 3) heard = neo_cuda_get_stats(neo_ctx_device(ctx));
    TRY(neo_shard_backward_begin(shard, dout.t));
    if (the.plan.pipeline && s + 1 < the.steps && !(rank % 2))
        TRY(neo_shard_prefetch(shard, &given[s + 1].m.j, the.size[s + 1]));
    if (the.plan.weight_grad) TRY(neo_shard_weight_grad(shard, (float *)grad.all.data));
    TRY(keeps ? neo_shard_accumulate_end(shard) : neo_shard_backward_end(shard, 0.05f));
    if (is_quiet && neo_ctx_device(ctx) && s) expect_quiet(neo_ctx_device(ctx), heard, rank);
    if (keeps) TRY(neo_shard_step(shard, 0.05f));
    if (graph) TRY(neo_cuda_graph_end(graph));
    if (graph) TRY(neo_cuda_graph_wait(graph));
    grows[rank] += neo_shard_get_stats(shard).grow_count - before;
    if (neo_shard_get_stats(shard).grow_count == before)
        EXPECT(neo_ctx_memory(ctx).alloc_count == allocs);
    TRY(carry(ctx, out.t, neo_tensor_2d(host, NEO_F32, rows, width), 1));
    for (int64_t i = 0; i < rows * width && own_sums; i++) {
        const double error = (double)host[i] - (double)the.out[s][m.begin * width + i];
        EXPECT(error <= 1e-5 && error >= -1e-5);
    }
    if (!none && the.plan.sync_every <= 1 && (!own_sums || ranks == 2))
        EXPECT(memcmp(host, the.out[s] + m.begin * width, 4 * (size_t)(rows * width)) == 0);
    neo_tensor grads = neo_tensor_2d(grad.all.data, NEO_F32, ids, 1);
    grads.place = grad.all.place;
    memset(weights, 0, 4 * (size_t)(ids + 1));
    if (the.plan.weight_grad) TRY(carry(ctx, grads, neo_tensor_2d(weights, NEO_F32, ids, 1), 1));
    const uint64_t now[2] = {hash_of(host, rows * width), hash_of(weights, ids)};
    for (int i = 0; i < 2; i++) {
        if (neo_ctx_device(ctx) && sent[rank] >= 0) EXPECT(now[i] == numbers_of[rank][s][i]);
        numbers_of[rank][s][i] = now[i];
    }
    neo_tensor_free(ctx, &out.all);
    neo_tensor_free(ctx, &dout.all);
    neo_tensor_free(ctx, &grad.all);
    free(host), free(weights);
    return NEO_OK;
}
/* A tensor on the wrong side. */
static neo_status refusals(neo_shard *shard, neo_ctx *ctx, int rank) {
    float x[1];
    Given given;
    TRY(give(ctx, 0, rank, &given));
    const Mine m = given.m;
    TRY(neo_shard_forward_begin(shard, &m.j, the.size[0]));
    EXPECT(neo_shard_forward_end(shard, neo_tensor_2d(x, NEO_F32, m.n, the.width)) == NEO_ERR_ARG);
    EXPECT(strstr(neo_last_error(), "out is in host memory"));
    take_back(ctx, &given);
    return NEO_OK;
}
/* Do pooled rows stay on devices? */
static int stays_there(const neo_ctx *ctx) {
    return neo_ctx_device(ctx) != NULL;
}
static size_t group_bytes(const neo_comm_desc *d, int size, int devices) {
    return neo_comm_workspace_bytes(d, size, NEO_BACKEND_THREADS) +
           (devices ? neo_comm_device_bytes(d, size, NEO_BACKEND_THREADS) : 0);
}
/* What rows have sent: the groups' counters. Sums over ranks (of gradients of data-parallel tables)
   go by halves in host memory, where they are small. */
static int64_t all_sent(const neo_shard *shard) {
    const neo_shard_stats st = neo_shard_get_stats(shard);
    const neo_comm_stats *of[3] = {&st.rows, &st.node, &st.cross};
    int64_t bytes = 0;
    for (int i = 0; i < 3; i++)
        for (int op = 0; op < (int)NEO_COMM_OP_COUNT; op++)
            if (op != NEO_COMM_ALL_REDUCE)
                bytes += of[i]->op[op].bytes[0] + of[i]->op[op].bytes[1];
    return bytes;
}
static int64_t all_summed(const neo_shard *shard) {
    const neo_comm_counter s = neo_shard_get_stats(shard).rows.op[NEO_COMM_ALL_REDUCE];
    return s.bytes[0] + s.bytes[1];
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
    neo_comm *devices, *data = comm;
#if defined(NEO_COMM_NCCL)
    if (neo_ctx_device(ctx)) TRY(neo_comm_create_nccl(comm, 0, NULL, &data));
#endif
    size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(data, plan, &shard));
    size_t took = neo_ctx_memory(ctx).bytes - before;
    size_t tells = says.weight_bytes + says.state_bytes + says.exchange_bytes +
                   says.workspace_bytes;
    const int whole = inside_of_shard(shard).whole; /* has no groups */
    if (!whole) tells += group_bytes(d, ranks, 0) + group_bytes(d, ranks / groups, 0);
    if (!whole && stays_there(ctx)) tells += group_bytes(d, ranks / groups, 1);
    if (!whole && the.plan.device_ids && neo_ctx_device(ctx)) tells += group_bytes(d, ranks, 1);
    if (groups > 1) tells += group_bytes(d, ranks, 0) + group_bytes(d, groups, stays_there(ctx));
    if (groups > 1 && stays_there(ctx) && inside_of_shard(shard).replicas)
        tells += group_bytes(d, ranks, 1);
    if (inside_of_shard(shard).node)
        tells += group_bytes(d, ranks / NODES, neo_ctx_device(ctx) != NULL) +
                 group_bytes(d, NODES, neo_ctx_device(ctx) != NULL);
    if (data == comm) EXPECT(took == tells); /* NCCL's are not of the context's memory alone */
    neo_shard *none = NULL;
    if (neo_ctx_device(
            ctx)) { /* ids are in host memory: the group that was split is the one to give */
        TRY(neo_comm_split_device(comm, 0, rank, &devices));
        EXPECT(neo_shard_create(devices, plan, &none) == NEO_ERR_ARG && !none);
        EXPECT(strstr(neo_last_error(), "give the group that was split"));
        neo_comm_destroy(devices);
    }
    neo_plan_destroy(plan);
    Given given[MAX_STEPS];
    for (int s = 0; s < the.steps; s++) TRY(give(ctx, s, rank, &given[s]));
    neo_cuda_graph *graph = NULL;
    if (neo_ctx_device(ctx) && records)
        TRY(neo_cuda_graph_create(neo_ctx_device(ctx), NULL, &graph));
    for (int s = 0; s < the.steps; s++) TRY(one_step(shard, ctx, s, rank, given, graph));
    neo_cuda_graph_destroy(graph);
    for (int s = 0; s < the.steps; s++) take_back(ctx, &given[s]);
    if (neo_ctx_device(ctx) && sent[rank] >= 0 && stays_there(ctx))
        EXPECT(sent[rank] == all_sent(shard));
    if (!neo_ctx_device(ctx)) sent[rank] = all_sent(shard);
    summed[rank] = all_summed(shard);
    const neo_comm_counter ids = neo_shard_get_stats(shard).ids.op[NEO_COMM_ALL_TO_ALL];
    told[neo_ctx_device(ctx) != NULL][rank] = ids.bytes[0] + ids.bytes[1];
    for (int r = 0; r < ranks && !whole; r++) flows_of[r] = inside_flows(shard, r);
    EXPECT(!stays_there(ctx) ||
           neo_shard_get_stats(shard).forward.numbers == 0); /* the processor codes nothing */
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_shard(state, shard));
    TRY(neo_state_digest_group(state, &group, &digest[rank]));
    neo_state_destroy(state);
    float rows[5 * 70]; /* a table's rows come to all ranks, and go back */
    TRY(neo_shard_get_rows(shard, 2, 0, 5, NEO_EVERY_RANK, rows));
    TRY(neo_shard_set_rows(shard, 2, 0, 5, ranks - 1, rows));
    if (neo_ctx_device(ctx) && the.tables[0].pooling != NEO_POOL_NONE)
        TRY(refusals(shard, ctx, rank));
    TRY(neo_comm_agree(comm, NEO_OK));
    neo_shard_destroy(shard);
    if (data != comm) neo_comm_destroy(data);
    return NEO_OK;
}
/* On the devices of ranks. NEO_POOL_NONE, replicas that step alone: against the same ranks on the
   CPU, else against one. */
static void check_case(neo_ctx *ctx, const char *what) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES}, .ranks = ranks,
                       .ranks_per_node = ranks % NODES ? 0 : ranks / NODES,
                       .timeout_ms = TEST_PATIENCE_MS,
                       .sums = own_sums ? NEO_SUMS_NCCL : NEO_SUMS_TREE};
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = ranks / groups;
    the.plan.replicas = groups;
    the.plan.cluster.ranks_per_node = d.ranks_per_node ? d.ranks_per_node : ranks;
    the.plan.weighted = the.weighted;
    the.plan.kept_batches = keeps;
    case_data(&the);
    if (spoils) spoil(&the);
    for (int s = 0; keyed && s < the.steps; s++)
        for (int64_t i = 0; i < the.offsets[s][the.set->features * the.size[s]]; i++)
            the.ids[s][i] = (int64_t)(test_random() % 600 * 0x9E3779B97F4A7C15u);
    if (the.tables[0].pooling != NEO_POOL_NONE) case_oracle(&the, ctx);
    memset(wrong, 0, sizeof wrong);
    for (int r = 0; r < 8; r++) sent[r] = -1;
    const int by_ranks = the.tables[0].pooling == NEO_POOL_NONE || the.plan.sync_every > 1;
    neo_status status = by_ranks || the.plan.wire_forward || the.plan.weight_grad
                            ? neo_comm_spawn(ranks, &d, run, &d, NULL)
                            : NEO_OK;
    if (by_ranks) the.digest = digest[0];
    d.open_device = open_device;
    if (status == NEO_OK) status = neo_comm_spawn(ranks, &d, run, &d, NULL);
    if (status != NEO_OK) FAIL("%s on %d ranks: %s", what, ranks, neo_last_error());
    for (int r = 0; r < ranks && status == NEO_OK; r++) {
        if (wrong[r]) FAIL("%s on %d ranks: %d checks of rank %d", what, ranks, wrong[r], r);
        if (own_sums && ranks > 2) CHECK(digest[r] == digest[0] && digest[r] != the.digest);
        else if (digest[r] != the.digest)
            FAIL("%s on %d ranks: the digest of rank %d", what, ranks, r);
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
/* Steps that need sums over whole rows of tables that are cut by columns: one round or several, of
   a batch and of gradients that are kept. */
static void cut_rows_sums(void) {
    static const neo_bag_optim_kind kinds[] = {NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_PARTIAL_ADAM,
                                               NEO_BAG_LAMB, NEO_BAG_PARTIAL_LAMB,
                                               NEO_BAG_LARS_SGD};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 5; i++) {
        ranks = 2 + i % 2;
        case_begin((int)kinds[i], NEO_POOL_SUM);
        case_tables(&the, &SMALL, (int)kinds[i], i % 4, NEO_POOL_SUM);
        keeps = i % 2;
        the.tables[2].dtype = NEO_F16;
        for (int t = 0; t < SMALL.tables; t++)
            place(&the, t, t == 1 ? NEO_ROW_WISE : NEO_COLUMN_WISE, ranks);
        check_case(ctx, "sums over rows that are cut");
    }
    neo_ctx_destroy(ctx);
}
/* Rows without pooling, whole and cut by rows, on every wire, in steps that are recorded, with ids
   that are dropped: nothing comes to the host. */
static void no_pooling(void) {
    static const Set rows = {"rows", 3, 4, 3, {64, 40, 9}, {48, 48, 48}, {0, 1, 2, 1}, 0},
                     wide = {"wide", 3, 4, 3, {64, 40, 9}, {70, 70, 70}, {0, 1, 2, 1}, 0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 6 + (int)NEO_WIRE_COUNT; i++) {
        const int there = i >= 2 + (int)NEO_WIRE_COUNT; /* ids */
        ranks = 2 + i % 4;
        case_begin(NEO_BAG_ADAGRAD, NEO_POOL_NONE);
        case_tables(&the, i % 2 ? &wide : &rows, NEO_BAG_ADAGRAD, 0, NEO_POOL_NONE);
        the.steps = 3;
        if (i > 1) the.plan.wire_forward = (neo_wire)((i - 2) % (int)NEO_WIRE_COUNT);
        if (i > 1) the.plan.wire_backward = (neo_wire)((i + 1) % (int)NEO_WIRE_COUNT);
        records = i == 4;
        spoils = i > 2;
        keeps = i == 5;
        the.plan.pipeline = i == 6;
        if (spoils) the.bags.bounds = i % 2 ? NEO_BOUNDS_DROP : NEO_BOUNDS_CLAMP;
        if (there) the.plan.device_ids = 1 + i % 2, the.plan.pipeline = i % 3 > 0;
        is_quiet = records || keeps ? 0 : !there ? 3 : the.plan.pipeline ? 0 : 4;
        for (int t = 0; t < 3; t++)
            place(&the, t,
                  t == 0            ? NEO_ROW_WISE
                  : t == 1 || there ? NEO_TABLE_WISE
                                    : NEO_DATA_PARALLEL,
                  ranks);
        the.plan.weight_grad = the.weighted = i % 3 == 1;
        check_case(ctx, "rows without pooling");
        is_quiet = spoils = records = 0;
    }
    neo_ctx_destroy(ctx);
}
/* Several in one plan; weights and their gradients, wires, gradients that are kept, a rank alone
   with a wire. */
static void mixtures(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 5; i++) {
        ranks = i == 4 ? 1 : 2 + i % 3;
        case_begin(NEO_BAG_ADAGRAD, i == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.weighted = i < 2;
        the.plan.weight_grad = i < 2;
        keeps = i % 2;
        if (i > 1)
            the.plan.wire_forward = NEO_WIRE_F16,
            the.plan.wire_backward = i == 2 ? NEO_WIRE_I8 : NEO_WIRE_BF16;
        cut_block = i > 1 ? 64 : 16;
        for (int t = 0; t < SMALL.tables; t++)
            if (t == 2) place(&the, t, NEO_DATA_PARALLEL, ranks);
            else place_anyhow(&the, t, ranks);
        check_case(ctx, "a mixture");
    }
    neo_ctx_destroy(ctx);
}

/* Gradients of weights under every placement, of SUM and of MEAN, whose holders divide gradients:
   they stay on devices. */
static void weight_grads(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 2 * NEO_PLACEMENT_COUNT; i++) {
        const neo_placement p = (neo_placement)(i / 2);
        ranks = p == NEO_TABLE_ROW_WISE || p == NEO_GRID ? 4 : 2 + i % 3;
        case_begin(NEO_BAG_ADAGRAD, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.steps = 3;
        the.plan.weight_grad = 1;
        the.weighted = i % 3 != 1;
        the.tables[1].dtype = i % 4 == 1 ? NEO_F16 : NEO_F32;
        if (i % 5 == 4) the.plan.wire_backward = NEO_WIRE_BF16;
        the.plan.pipeline = i % 2;
        spoils = i % 4 == 2;
        if (spoils) the.bags.bounds = NEO_BOUNDS_DROP;
        records = i % 4 == 3;
        if (i % 2 == 0 || the.plan.wire_backward) the.plan.device_ids = 1 + (i % 6 == 4);
        is_quiet = records ? 0 : !the.plan.device_ids ? 3 : the.plan.pipeline ? 0 : 4;
        for (int t = 0; t < SMALL.tables; t++)
            if (t != 3) place(&the, t, p, ranks);
            else place(&the, t, NEO_DATA_PARALLEL, ranks);
        check_case(ctx, "gradients of weights");
        is_quiet = spoils = records = 0;
    }
    neo_ctx_destroy(ctx);
}
/* Tables of keys: each rank's host knows the rows of its own. */
static void keys(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    keyed = 1;
    for (int i = 0; i < 2 * NEO_PLACEMENT_COUNT; i++) {
        const neo_placement p = (neo_placement)(i / 2);
        if (p == NEO_DATA_PARALLEL) continue;
        ranks = p == NEO_TABLE_ROW_WISE || p == NEO_GRID ? 4 : 2 + i % 3;
        case_begin(NEO_BAG_ADAGRAD, NEO_POOL_SUM);
        case_tables(&the, &KEYED, i % 3 ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD, 0,
                    i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.steps = 6;
        the.plan.weight_grad = i % 2;
        the.weighted = i % 2;
        the.plan.pipeline = i % 4 == 2;
        keeps = i % 4 == 3;
        records = i % 3 == 1;
        for (int t = 0; t < KEYED.tables; t++) {
            the.tables[t].keys = (neo_keys){1, NEO_EVICT_LRU, 0, t == 1 ? 2 : 0, 0, 0, 0};
            the.tables[t].dtype = t == 1 ? NEO_F16 : NEO_F32;
            place(&the, t, p, ranks);
        }
        check_case(ctx, "keys");
    }
    keyed = records = 0;
    neo_ctx_destroy(ctx);
}
/* Bags that repeat: looked up once on the device of each of their rows. */
static void repeats(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 6; i++) {
        ranks = i == 5 ? 1 : 2 + i % 3;
        case_begin(KINDS, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.bags.inverse = 1;
        the.weighted = i % 3 == 1;
        the.plan.pipeline = i / 2 % 2;
        keeps = i == 3;
        records = i == 4;
        for (int t = 0; t < SMALL.tables; t++)
            place(&the, t,
                  t == 1   ? NEO_DATA_PARALLEL
                  : t == 2 ? NEO_COLUMN_WISE
                           : NEO_ROW_WISE,
                  ranks);
        check_case(ctx, "bags that repeat");
        records = 0;
    }
    the.bags.inverse = 0;
    neo_ctx_destroy(ctx);
}
#if defined(EMULATED)
void emu_set_lazy(int on);
#endif
/* Ids that stay on devices: the bits of ids that do not, under every placement, prefetched, in
   steps that are recorded, ids of both dtypes, some outside, more than planned. */
static void device_ids(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < NEO_PLACEMENT_COUNT + 4; i++) {
        ranks = i == NEO_TABLE_ROW_WISE || i == NEO_GRID ? 4 : 2 + i % 3;
        if (i == NEO_PLACEMENT_COUNT) ranks = 1; /* all tables, as a neo_bags */
        case_begin(KINDS, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.steps = 4;
        the.weighted = i % 3 == 1;
        the.plan.device_ids = 1 + (i % 4 == 1 || i == NEO_PLACEMENT_COUNT + 3);
        the.plan.pipeline = i % 2;
        keeps = i % 4 == 3;
        for (int t = 0; t < SMALL.tables; t++)
            if (i < NEO_PLACEMENT_COUNT && t) place(&the, t, (neo_placement)i, ranks);
            else place(&the, t, t % 2 ? NEO_DATA_PARALLEL : NEO_ROW_WISE, ranks);
        the.bags.bounds = i % 3 == 0 ? NEO_BOUNDS_DROP : i % 3 == 1 ? NEO_BOUNDS_CLAMP
                                                                  : NEO_BOUNDS_ERROR;
        spoils = the.bags.bounds != NEO_BOUNDS_ERROR;
        records = i % 4 == 2 || i == 5 || i == 7;
        if (i > NEO_PLACEMENT_COUNT) the.plan.ids_per_sample = FEW_IDS;
        memset(grows, 0, sizeof grows);
#if defined(EMULATED) && !defined(NEO_COMM_NCCL)
        emu_set_lazy(the.plan.device_ids == 2); /* streams run as far as they are waited for */
#endif
        check_case(ctx, "ids on devices");
#if defined(EMULATED) && !defined(NEO_COMM_NCCL)
        emu_set_lazy(0);
#endif
        spoils = records = 0;
        if (i > NEO_PLACEMENT_COUNT) CHECK(grows[0] > 0);
    }
    neo_ctx_destroy(ctx);
}
/* Bags that repeat, whose ids stay on devices: the bits of the batches written out; some ranks give
   these; what the ranks tell each other, by the formula of >>shard; a backward pass that the host
   hears nothing of. */
static void repeats_there(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < 12; i++) {
        ranks = 1 + i % 4;
        case_begin(KINDS, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.steps = 4;
        the.bags.inverse = 1;
        the.weighted = i % 3 == 1;
        the.plan.device_ids = 1 + i / 2 % 2;
        the.plan.pipeline = i % 3 != 0 && i != 9;
        mixed = i % 5 == 3;
        keeps = i % 4 == 3;
        records = i % 3 == 2;
        is_quiet = i == 9 ? 4 : 0;
        if (i == 5) the.plan.wire_forward = the.plan.wire_backward = NEO_WIRE_BF16;
        for (int t = 0; t < SMALL.tables; t++)
            place(&the, t,
                  i % 4 == 1 ? NEO_ROW_WISE
                  : t == 1   ? NEO_DATA_PARALLEL
                  : t == 2   ? NEO_COLUMN_WISE
                  : i % 2    ? NEO_TABLE_WISE
                             : NEO_ROW_WISE,
                  ranks);
        the.bags.bounds = i % 3 == 0 ? NEO_BOUNDS_DROP : i % 3 == 1 ? NEO_BOUNDS_CLAMP
                                                                  : NEO_BOUNDS_ERROR;
        spoils = the.bags.bounds != NEO_BOUNDS_ERROR;
        if (i == 7) the.plan.ids_per_sample = FEW_IDS;
        memset(grows, 0, sizeof grows);
#if defined(EMULATED) && !defined(NEO_COMM_NCCL)
        emu_set_lazy(the.plan.device_ids == 2);
#endif
        const int steps = the.steps, tells = the.plan.wire_forward != NEO_WIRE_F32;
        check_case(ctx, "bags that repeat, on devices");
#if defined(EMULATED) && !defined(NEO_COMM_NCCL)
        emu_set_lazy(0);
#endif
        int64_t bytes = 0, more = 0;
        for (int r = 0; r < ranks; r++) bytes += told[1][r] - told[0][r];
        for (int r = 0; r < ranks; r++) /* in place of a status of 4 bytes */
            more += (ranks - 1) * (8 * (2 + 3 * flows_of[r]) - 4);
        if (tells) CHECK_INT(bytes, steps * more);
        if (i == 7) CHECK(grows[0] > 0);
        spoils = records = mixed = is_quiet = 0;
    }
    keeps = the.bags.inverse = 0;
    neo_ctx_destroy(ctx);
}
/* An inverse that names no bag, leaves one out, or begins with another than the first. */
static neo_status bad_inverse(neo_comm *comm, void *user) {
    neo_shard *shard;
    Given given;
    Place out;
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int rank = neo_comm_rank(comm);
    (void)user;
    TRY(make(&the, comm, &shard));
    TRY(give(ctx, 0, rank, &given));
    TRY(take(ctx, given.m.n, the.width, &out));
    const int64_t bags = given.m.j.feature_bags[1];
    EXPECT(bags > 1 && bags < given.m.n);
    for (int i = 0; i < 3; i++) {
        static const int32_t bad[] = {-1, 0, 1};
        const int64_t at = i < 2 ? 1 : 0;
        int32_t good[2], now[2];
        neo_tensor there = neo_tensor_slice(given.inverse, 0, at, 1);
        for (int64_t k = 0; k < given.m.n && i == 1; k++) { /* the sample that reads bag 1 first */
            there = neo_tensor_slice(given.inverse, 0, k, 1);
            TRY(neo_tensor_copy(ctx, there, neo_tensor_1d(good, NEO_I32, 1)));
            if (good[0] == 1) break;
        }
        TRY(neo_tensor_copy(ctx, there, neo_tensor_1d(good, NEO_I32, 1)));
        now[0] = i == 1 ? (int32_t)bags - 1 + (bags == 2) : bad[i];
        if (rank == 1) TRY(neo_tensor_copy(ctx, neo_tensor_1d(now, NEO_I32, 1), there));
        EXPECT_ERR(neo_shard_forward(shard, &given.m.j, the.size[0], out.t), NEO_ERR_FORMAT,
                   "samples must read all bags, in order");
        EXPECT(rank == 1 || strstr(neo_last_error(), "rank 1: "));
        TRY(neo_tensor_copy(ctx, neo_tensor_1d(good, NEO_I32, 1), there));
    }
    TRY(neo_shard_forward(shard, &given.m.j, the.size[0], out.t));
    neo_shard_destroy(shard);
    take_back(ctx, &given);
    neo_tensor_free(ctx, &out.all);
    return NEO_OK;
}
#if defined(NEO_COMM_NCCL)
/* Gradients of data-parallel tables by NCCL's own sums: of two ranks the tree's bits, since x + y
   is y + x; of four others, the same on all ranks and in every run, and close. */
static void nccl_sums(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    own_sums = 1;
    for (int i = 0; i < 4; i++) {
        static uint64_t first;
        ranks = i < 2 ? 2 : 4;
        test_seed = i < 2 ? 7 + (uint64_t)i : 7;
        case_begin(NEO_BAG_ROWWISE_ADAGRAD, NEO_POOL_SUM);
        the.steps = 3;
        keeps = i == 1;
        for (int t = 0; t < SMALL.tables; t++)
            place(&the, t, t ? NEO_DATA_PARALLEL : NEO_TABLE_WISE, ranks);
        check_case(ctx, "NCCL's own sums");
        if (i == 2) first = digest[0];
        if (i == 3) CHECK(digest[0] == first);
    }
    own_sums = 0;
    neo_ctx_destroy(ctx);
}
#endif
/* A backward pass whose ids are on devices: neither rows nor gradients, of data-parallel tables
   either, come to the host, which waits for none of its own operations. */
static void quiet_backward(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    is_quiet = 1;
    for (int i = 0; i < 4; i++) {
        ranks = 2 + i % 3; /* 3: several subtrees of leaves */
        case_begin(NEO_BAG_ROWWISE_ADAGRAD, i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        case_tables(&the, &MANY, i == 2 ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD, 0,
                    i % 2 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.steps = 3;
        the.plan.device_ids = 1;
        the.weighted = i == 3;
        keeps = i == 1;
        the.tables[1].dtype = i == 3 ? NEO_I8 : NEO_F32;
        if (i == 3) the.plan.wire_forward = the.plan.wire_backward = NEO_WIRE_BF16;
        for (int t = 0; t < MANY.tables; t++)
            place(&the, t,
                  t % 2 ? NEO_DATA_PARALLEL : t ? NEO_TABLE_WISE : NEO_ROW_WISE, ranks);
        check_case(ctx, "a quiet backward");
        int64_t bytes = 0, numbers = 0, rows = 0; /* by the formula of >>shard */
        for (int r = 0; r < ranks; r++) bytes += summed[r];
        for (int t = 1; t < MANY.tables; t += 2)
            numbers += MANY.rows[t] * MANY.dims[t], rows += MANY.rows[t];
        if (LEAVES % ranks == 0)
            CHECK_INT(bytes, the.steps * 2 * (ranks - 1) * (4 * numbers + rows));
    }
    is_quiet = 2;
    ranks = 2;
    case_begin(NEO_BAG_ROWWISE_ADAGRAD, NEO_POOL_SUM);
    case_tables(&the, &MANY, NEO_BAG_ROWWISE_ADAGRAD, 0, NEO_POOL_SUM);
    the.steps = 3;
    the.plan.device_ids = 1;
    for (int t = 0; t < MANY.tables; t++) place(&the, t, NEO_COLUMN_WISE, ranks);
    check_case(ctx, "a quiet backward of rows that are cut");
    is_quiet = 0;
    neo_ctx_destroy(ctx);
}
/* What is wrong with a batch of one rank is known to all, and the next batch may come. */
static neo_status bad_ids(neo_comm *comm, void *user) {
    neo_shard *shard;
    Given given;
    Place out;
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int rank = neo_comm_rank(comm);
    neo_jagged host;
    (void)user;
    TRY(make(&the, comm, &shard));
    TRY(give(ctx, 0, rank, &given));
    TRY(take(ctx, given.m.n, the.width, &out));
    const int64_t first = given.m.offsets[0], k = first + 4;
    int64_t bag = 0, bad[] = {the.set->rows[0], first - 3};
    while (given.m.offsets[bag + 1] <= k) bag++;
    char text[200];
    snprintf(text, sizeof text,
             "table 't0' (feature 0), sample %d, position %d: id %d is not in [0, %d)",
             (int)(neo_leaf_begin(the.size[0], LEAVES, LEAVES / 2) + bag),
             (int)(k - given.m.offsets[bag]), (int)bad[0], (int)bad[0]);
    if (rank == 0) snprintf(text, sizeof text, "is not in [0, %d)", (int)bad[0]);
    EXPECT(bag < given.m.n);
    for (int i = 0; i < 2; i++) { /* an id, an offset */
        neo_tensor at = neo_tensor_slice(i ? given.offsets : given.ids, 0, i ? 2 : k, 1);
        int64_t good;
        TRY(neo_tensor_copy(ctx, at, neo_tensor_1d(&good, NEO_I64, 1)));
        if (rank == 1) TRY(neo_tensor_copy(ctx, neo_tensor_1d(&bad[i], NEO_I64, 1), at));
        EXPECT_ERR(neo_shard_forward(shard, &given.m.j, the.size[0], out.t),
                   i ? NEO_ERR_FORMAT : NEO_ERR_RANGE, i ? "offsets decrease at feature 0" : text);
        EXPECT(rank == 1 || strstr(neo_last_error(), "rank 1: "));
        TRY(neo_tensor_copy(ctx, neo_tensor_1d(&good, NEO_I64, 1), at));
    }
    host = given.m.j;
    host.place = NEO_HOST;
    EXPECT_ERR(neo_shard_forward(shard, rank ? &given.m.j : &host, the.size[0], out.t),
               NEO_ERR_UNSUPPORTED, "device_ids says it is on the device");
    TRY(neo_shard_forward(shard, &given.m.j, the.size[0], out.t));
    /* One sample less in all, and as many of rank 1: the shard is broken. */
    EXPECT(neo_shard_forward(shard, &given.m.j, the.size[0] - (rank == 1), out.t) != NEO_OK);
    EXPECT(strstr(neo_last_error(), "do not give the same global_batch"));
    neo_shard_destroy(shard);
    take_back(ctx, &given);
    neo_tensor_free(ctx, &out.all);
    return NEO_OK;
}
static neo_status refused_ids(neo_comm *comm, void *user) {
    neo_shard *shard;
    const int rank = neo_comm_rank(comm);
    EXPECT_ERR(make(&the, comm, &shard), NEO_ERR_UNSUPPORTED, (const char *)user);
    return NEO_OK;
}
static void bad_device_ids(void) {
    static const char *const with[] = {
        "device_ids with weight_grad, NEO_POOL_MEAN and gradients in f32",
        "NEO_SYNC_MERGED on a device"};
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES},
                       .ranks = 2,
                       .timeout_ms = TEST_PATIENCE_MS,
                       .open_device = open_device};
    ranks = 2;
    case_begin(NEO_BAG_ADAGRAD, NEO_POOL_SUM);
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = the.plan.cluster.ranks_per_node = ranks;
    the.plan.device_ids = 1;
    for (int t = 0; t < SMALL.tables; t++) place(&the, t, NEO_ROW_WISE, ranks);
    case_data(&the);
    memset(wrong, 0, sizeof wrong);
    CHECK_OK(neo_comm_spawn(ranks, &d, bad_ids, NULL, NULL));
    the.bags.inverse = 1;
    CHECK_OK(neo_comm_spawn(ranks, &d, bad_inverse, NULL, NULL));
    the.bags.inverse = 0;
    for (int i = 0; i < 2; i++) {
        the.plan.weight_grad = i == 0;
        the.tables[0].pooling = i ? NEO_POOL_SUM : NEO_POOL_MEAN;
        the.plan.device_ids = i < 1;
        if (i == 1) { /* two replicas of a rank each */
            the.plan.replicas = ranks, the.plan.sync_every = NEO_SYNC_MERGED;
            the.plan.cluster.ranks = the.plan.cluster.ranks_per_node = 1;
            the.piece_count = 0;
            for (int t = 0; t < SMALL.tables; t++)
                add_piece(&the, t, 0, 0, SMALL.rows[t], 0, SMALL.dims[t]);
        }
        CHECK_OK(neo_comm_spawn(ranks, &d, refused_ids, (void *)(uintptr_t)with[i], NULL));
    }
    check_wrong("bad ids on devices", ranks);
    case_free(&the);
    memset(&the.plan, 0, sizeof the.plan);
    the.piece_count = 0;
}
/* Replicas in two groups of two ranks: by all samples, and averaged every two steps. */
static void replicas(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    ranks = 4, groups = 2;
    for (int i = 0; i < 3; i++) {
        case_begin(NEO_BAG_ADAGRAD, i ? NEO_POOL_SUM : NEO_POOL_MEAN);
        the.weighted = i == 1;
        the.plan.sync_every = i < 2 ? 0 : 2;
        keeps = i == 1;
        for (int t = 0; t < SMALL.tables; t++)
            place(&the, t,
                  t == 0   ? NEO_ROW_WISE
                  : t == 1 ? NEO_COLUMN_WISE
                  : t == 2 ? NEO_DATA_PARALLEL
                           : NEO_TABLE_WISE,
                  ranks / groups);
        check_case(ctx, "replicas");
    }
    groups = 1;
    neo_ctx_destroy(ctx);
}
/* Every wire, on two to five ranks, in nodes and not; MEAN, and kept gradients, too. */
static void wires(void) {
    static const neo_placement places[] = {NEO_TABLE_ROW_WISE, NEO_GRID, NEO_TABLE_COLUMN_WISE,
                                           NEO_ROW_WISE, NEO_COLUMN_WISE};
    static const Set wide = {"wide",          4, 5, 3, {64, 40, 5, 90}, {130, 128, 64, 7},
                             {0, 1, 2, 3, 1}, 0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    for (int i = 0; i < (int)NEO_WIRE_COUNT; i++) {
        ranks = i % 2 ? 4 : i == 0 ? 2 : i == 2 ? 3 : 5;
        case_begin(NEO_BAG_ADAGRAD, i % 3 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        cut_block = 64;
        case_tables(&the, &wide, NEO_BAG_ROWWISE_ADAGRAD, 0, i % 3 ? NEO_POOL_MEAN : NEO_POOL_SUM);
        the.weighted = i == 3;
        keeps = i == 5;
        the.plan.wire_forward = (neo_wire)((i + 1) % (int)NEO_WIRE_COUNT);
        the.plan.wire_backward = (neo_wire)((i + 4) % (int)NEO_WIRE_COUNT);
        for (int t = 0; t < wide.tables; t++)
            if (t == 2) place(&the, t, NEO_DATA_PARALLEL, ranks);
            else if (t == 3) place_anyhow(&the, t, ranks);
            else
                place(&the, t,
                      i % 2 ? places[(i / 2 + t) % 5]
                      : t   ? NEO_ROW_WISE
                            : NEO_COLUMN_WISE,
                      ranks);
        check_case(ctx, "wires");
    }
    neo_ctx_destroy(ctx);
}
/* A device on rank 0 alone: refused on all. */
/* Towers whose module copies: then the columns of all towers are the pooled rows, and gradients
   come back as they went. */
static neo_status towers_step(neo_towers *towers, neo_ctx *ctx, int s, int rank) {
    Mine m;
    Place z, dz;
    mine_make(&m, &the, s, rank, ranks);
    const int64_t count = m.n * the.width;
    float *host = malloc(4 * (size_t)(count + 1));
    memcpy(host, the.dout[s] + m.begin * the.width, 4 * (size_t)count);
    TRY(take(ctx, m.n, the.width, &z));
    TRY(take(ctx, m.n, the.width, &dz));
    TRY(carry(ctx, dz.t, neo_tensor_2d(host, NEO_F32, m.n, the.width), 0));
    TRY(neo_towers_forward(towers, &m.j, the.size[s]));
    for (int k = 0; k < neo_towers_held(towers); k++)
        TRY(neo_tensor_copy(ctx, neo_towers_at(towers, k).in, neo_towers_at(towers, k).out));
    TRY(neo_towers_exchange(towers, z.t));
    TRY(neo_towers_exchange_back(towers, dz.t));
    for (int k = 0; k < neo_towers_held(towers); k++)
        TRY(neo_tensor_copy(ctx, neo_towers_at(towers, k).dout, neo_towers_at(towers, k).din));
    TRY(neo_towers_backward(towers, 0.05f));
    TRY(carry(ctx, z.t, neo_tensor_2d(host, NEO_F32, m.n, the.width), 1));
    EXPECT(memcmp(host, the.out[s] + m.begin * the.width, 4 * (size_t)count) == 0);
    neo_tensor_free(ctx, &z.all);
    neo_tensor_free(ctx, &dz.all);
    free(host);
    mine_free(&m);
    return NEO_OK;
}
static neo_status towers_run(neo_comm *comm, void *user) {
    static const int32_t tower[4] = {0, 1, 2, 3};
    const neo_towers_desc desc = {.plan = &the.plan, .table_tower = tower, .tower_count = 4,
                                  .out_width = 16};
    neo_group group = neo_comm_group(comm);
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_towers *towers;
    neo_state *state;
    (void)user;
    TRY(neo_towers_create(comm, &desc, &towers));
    for (int s = 0; s < the.steps; s++) TRY(towers_step(towers, ctx, s, neo_comm_rank(comm)));
    TRY(neo_state_create(ctx, &state));
    TRY(neo_state_add_towers(state, towers, NULL));
    TRY(neo_state_digest_group(state, &group, &digest[neo_comm_rank(comm)]));
    neo_state_destroy(state);
    neo_towers_destroy(towers);
    return NEO_OK;
}
static void towers(void) {
    static const Set even = {"even", 4, 4, 3, {64, 40, 5, 90}, {16, 16, 16, 16}, {0, 1, 2, 3}, 0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, LEAVES);
    ranks = 4;
    case_begin(NEO_BAG_ADAGRAD, NEO_POOL_SUM);
    case_tables(&the, &even, NEO_BAG_ADAGRAD, 0, NEO_POOL_SUM);
    the.plan.bags = &the.bags;
    case_data(&the);
    case_oracle(&the, ctx);
    memset(wrong, 0, sizeof wrong);
    const neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES},
                             .ranks = ranks, .ranks_per_node = 2, .open_device = open_device,
                             .timeout_ms = TEST_PATIENCE_MS};
    CHECK_OK(neo_comm_spawn(ranks, &d, towers_run, NULL, NULL));
    check_wrong("towers", ranks);
    for (int r = 0; r < ranks; r++) CHECK(digest[r] == the.digest);
    case_free(&the);
    memset(&the.plan, 0, sizeof the.plan);
    the.oracle = NULL;
    neo_ctx_destroy(ctx);
}

static neo_status open_first(int rank, int local, void *user, neo_device **device) {
    *device = NULL;
    return rank ? NEO_OK : open_device(rank, local, user, device);
}
static neo_status not_alike(neo_comm *comm, void *user) {
    neo_plan *plan;
    neo_shard *shard = NULL;
    int rank = neo_comm_rank(comm);
    (void)user;
    TRY(neo_plan_create_from(neo_comm_ctx(comm), &the.plan, the.pieces, the.piece_count, &plan));
    EXPECT(neo_shard_create(comm, plan, &shard) == NEO_ERR_MISMATCH && !shard);
    EXPECT(strstr(neo_last_error(), "all have one, or none"));
    neo_plan_destroy(plan);
    return NEO_OK;
}
static void one_device(void) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES},
                       .ranks = 2,
                       .open_device = open_first};
    ranks = 2;
    case_begin(NEO_BAG_ADAGRAD, NEO_POOL_SUM);
    for (int t = 0; t < SMALL.tables; t++) place(&the, t, NEO_TABLE_WISE, ranks);
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = the.plan.cluster.ranks_per_node = ranks;
    memset(wrong, 0, sizeof wrong);
    CHECK_OK(neo_comm_spawn(ranks, &d, not_alike, NULL, NULL));
    CHECK(!wrong[0] && !wrong[1]);
    memset(&the.plan, 0, sizeof the.plan);
    the.piece_count = 0;
}
#if defined(EMULATED)
/* Calls of CUDA that two steps make fail, each once, on whichever of three ranks: all get an error
   at once (but of what comes behind the last exchange), and nothing is left. */
void emu_fail_after(int64_t n);
int emu_failed(void);
int64_t emu_live(void);
static int has_failed, failed[8], exchanged[8], timed_out;
static neo_status some_calls(neo_comm *comm, void *user) {
    neo_plan *plan;
    neo_shard *shard = NULL;
    Mine m;
    Place out, dout;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm);
    mine_make(&m, &the, 0, rank, ranks);
    NEO__TRY(neo_plan_create_from(ctx, &the.plan, the.pieces, the.piece_count, &plan));
    NEO__TRY(take(ctx, m.n, the.width, &out));
    NEO__TRY(take(ctx, m.n, the.width, &dout));
    NEO__TRY(neo_tensor_zero(ctx, dout.all));
    NEO__TRY(neo_shard_create(comm, plan, &shard));
    NEO__TRY(neo_comm_barrier(comm, NULL));
    if (rank == 1) emu_fail_after(*(int64_t *)user);
    NEO__TRY(neo_comm_barrier(comm, NULL));
    neo_status status = NEO_OK;
    for (int s = 0; s < 2 && status == NEO_OK; s++) {
        status = neo_shard_forward(shard, &m.j, the.size[0], out.t);
        if (status == NEO_OK) status = neo_shard_backward_begin(shard, dout.t);
        if (status == NEO_OK) exchanged[rank] = s;
        if (status == NEO_OK) status = neo_shard_backward_end(shard, 0.05f);
    }
    if (status == NEO_OK) status = neo_ctx_synchronize(ctx);
    failed[rank] = status != NEO_OK;
    NEO__TRY(neo_comm_barrier(comm, NULL));
    if (neo_comm_time_ns(comm) > 0) timed_out = 1; /* which moves the virtual clock */
    if (rank == 1) has_failed = emu_failed(), emu_fail_after(0);
    NEO__TRY(neo_comm_barrier(comm, NULL));
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    neo_tensor_free(ctx, &out.all);
    neo_tensor_free(ctx, &dout.all);
    mine_free(&m);
    return NEO_OK;
}
static void faults(void) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES},
                       .ranks = 3,
                       .timeout_ms = TEST_PATIENCE_MS,
                       .virtual_clock = 1,
                       .open_device = open_device};
    int64_t before = emu_live(), at = 1;
    ranks = 3;
    case_begin(NEO_BAG_ADAGRAD, NEO_POOL_MEAN);
    cut_block = 64;
    the.plan.wire_forward = NEO_WIRE_I8, the.plan.wire_backward = NEO_WIRE_BF16;
    for (int t = 0; t < SMALL.tables; t++) place(&the, t, t ? NEO_ROW_WISE : NEO_TABLE_WISE, ranks);
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = the.plan.cluster.ranks_per_node = ranks;
    case_data(&the);
    for (has_failed = 1; has_failed && at < 2000;
         at += 1 + at / 4) { /* thinned out: many are alike */
        memset(exchanged, 0, sizeof exchanged);
        neo_status status = neo_comm_spawn(ranks, &d, some_calls, &at, NULL);
        int all = failed[0] && failed[1] && failed[2], any = failed[0] || failed[1] || failed[2],
            late = any;
        for (int r = 0; r < ranks; r++) late &= !failed[r] || exchanged[r];
        if (status != NEO_OK || emu_live() != before || timed_out ||
            (has_failed ? !all && !late : any))
            FAIL("call %d of CUDA fails: %d %d %d, %s%s: %s; %d objects are left", (int)at,
                 failed[0], failed[1], failed[2], timed_out ? "by a timeout, " : "",
                 neo_status_string(status), neo_last_error(), (int)(emu_live() - before));
    }
    CHECK(at > 50 && at < 2000);
    case_free(&the);
    memset(&the.plan, 0, sizeof the.plan);
    the.piece_count = 0;
}
/* Calls on gradients that are kept, where one call of CUDA fails on rank 0: what it leaves half
   done no rank steps with, until it is cleared. */
static neo_status keep_batch(neo_shard *shard, const Mine *m, neo_tensor out) {
    TRY(neo_shard_forward(shard, &m->j, the.size[0], out));
    TRY(neo_shard_backward_begin(shard, out));
    return neo_shard_accumulate_end(shard);
}
static neo_status one_failure(neo_comm *comm, neo_shard *shard, int call, int64_t n,
                              int64_t *seen) {
    int rank = neo_comm_rank(comm), torn;
    neo_status status = NEO_OK;
    neo_exact squares;
    neo_exact_zero(&squares);
    TRY(neo_comm_barrier(comm, NULL));
    if (rank == 0) {
        emu_fail_after(n);
        status = call == 0   ? neo_shard_scale_grads(shard, 0.5f)
                 : call == 1 ? neo_shard_clear(shard)
                             : neo_shard_grad_squares(shard, &squares);
        seen[0] = emu_failed();
        emu_fail_after(0);
        EXPECT((status == NEO_OK) == (seen[0] == 0) &&
               (status == NEO_OK || status == NEO_ERR_DEVICE));
        seen[1] = neo_shard_grad_squares(shard, &squares) == NEO_ERR_STATE;
        if (call == 2) EXPECT(seen[1] == 0 && (status == NEO_OK || neo_exact_value(&squares) > 0));
    }
    TRY(neo_comm_broadcast(comm, seen, 2, NEO_I64, 0, NULL));
    torn = (int)seen[1];
    if (torn) {
        EXPECT(neo_shard_step(shard, 0.1f) == NEO_ERR_STATE);
        EXPECT(strstr(neo_last_error(), "what is kept is of no use, call neo_shard_clear"));
        if (rank == 0) EXPECT(neo_shard_scale_grads(shard, 0.5f) == NEO_ERR_STATE);
    } else if (call != 1) {
        TRY(neo_shard_scale_grads(shard, 0.5f));
        TRY(neo_shard_step(shard, 0.1f));
    }
    TRY(neo_shard_clear(shard));
    EXPECT(neo_shard_kept_count(shard) == 0);
    return NEO_OK;
}
static neo_status failing(neo_comm *comm, void *user) {
    neo_plan *plan;
    neo_shard *shard;
    Mine m;
    Place out;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int rank = neo_comm_rank(comm), torn[3] = {0};
    (void)user;
    mine_make(&m, &the, 0, rank, ranks);
    TRY(neo_plan_create_from(ctx, &the.plan, the.pieces, the.piece_count, &plan));
    TRY(neo_shard_create(comm, plan, &shard));
    neo_plan_destroy(plan);
    TRY(take(ctx, m.n, the.width, &out));
    for (int call = 0; call < 3; call++) {
        int64_t seen[2] = {1, 0};
        for (int64_t n = 1; n < 30 && seen[0]; n++) {
            TRY(keep_batch(shard, &m, out.t));
            TRY(one_failure(comm, shard, call, n, seen));
            torn[call] += (int)seen[1];
        }
        EXPECT(!seen[0]);
    }
    EXPECT(torn[0] > 0 && torn[1] > torn[0] && torn[2] == 0);
    neo_shard_destroy(shard);
    neo_tensor_free(ctx, &out.all);
    mine_free(&m);
    return NEO_OK;
}
static void kept_failures(void) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = LEAVES},
                       .ranks = 2,
                       .open_device = open_device};
    ranks = 2;
    test_seed = 1; /* the same calls whatever tests ran before */
    case_begin(NEO_BAG_ADAGRAD, NEO_POOL_SUM);
    for (int t = 0; t < SMALL.tables; t++)
        place(&the, t, t == 2 ? NEO_DATA_PARALLEL : NEO_TABLE_WISE, ranks);
    the.plan.bags = &the.bags;
    the.plan.cluster.ranks = the.plan.cluster.ranks_per_node = ranks;
    the.plan.kept_batches = 1;
    case_data(&the);
    memset(wrong, 0, sizeof wrong);
    if (neo_comm_spawn(ranks, &d, failing, NULL, NULL) != NEO_OK) FAIL("%s", neo_last_error());
    CHECK(wrong[0] == 0 && wrong[1] == 0);
    case_free(&the);
}
#endif
/* A unit of one rank that clips, its steps at once on the CPU and recorded on the device. The third
   has a gradient that is not finite: it is not taken, which the recorded one learns late. */
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
    neo_fsdp_desc d = {
        .units = &unit, .unit_count = 1, .optim = {.kind = NEO_OPTIM_ADAMW, .clip_norm = 0.5f}};
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
    CHECK(at_once.status[2] == NEO_ERR_NUMERIC && at_once.factor[2] == 0.0f &&
          at_once.steps == CLIP_STEPS - 1);
    CHECK(at_once.factor[1] > 0.0f && at_once.factor[1] < 1.0f);
    CHECK(memcmp(&at_once, &recorded, sizeof at_once) == 0);
}

/* ---- rows in host memory below a device ---- */
enum { BELOW_TABLES = 3, BELOW_BATCH = 32, BELOW_EACH = 2, BELOW_STEPS = 120 };
typedef struct Below {
    const neo_comm_desc *comm;
    const char *path; /* of a tier's file, to compare with; NULL: host memory */
    double bandwidth; /* to the host, and to the file */
    int of_file;      /* that bandwidth is the file's */
    neo_plan_tier tier[BELOW_TABLES];
    double lookup;               /* predicted seconds of rank 0 */
    int64_t counted[2], hits[2]; /* of each rank: ids of tables below, those that hit */
} Below;
static const int64_t BELOW_ROWS[BELOW_TABLES] = {8000, 8000, 20};
/* The least that a plan accepts by its message, and room for some rows more. */
static neo_status below_plan(neo_ctx *ctx, neo_bags_desc *bags, neo_plan_desc *desc,
                             const char *path, neo_tier **tier, neo_plan **plan) {
    neo_tier_desc t = {path, 1, NEO_EVICT_LRU, 0, 1, 0, 0, 0};
    for (int tries = 0; tries < 20; tries++) {
        neo_status status;
        TRY(neo_tier_create(ctx, &t, tier));
        bags->tier = *tier;
        status = desc->cluster.ranks > 1
                     ? neo_plan_create_uniform(ctx, desc, NEO_ROW_WISE, plan)
                     : neo_plan_create(ctx, desc, plan);
        if (status == NEO_OK) return NEO_OK;
        const char *needs = strstr(neo_last_error(), "needs ");
        if (!needs) return status;
        t.memory_bytes = strtoll(needs + 6, NULL, 10) + 120000;
        neo_tier_destroy(*tier);
    }
    return neo_fail(NEO_ERR_STATE, "no budget is enough");
}
static neo_status below_rank(neo_comm *comm, void *user) {
    Below *b = user;
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int rank = neo_comm_rank(comm), of = neo_comm_size(comm), mine = BELOW_BATCH / of;
    neo_table_desc tables[BELOW_TABLES] = {{.name = "a"}, {.name = "b"}, {.name = "few"}};
    double each[BELOW_TABLES];
    int64_t offsets[BELOW_TABLES * BELOW_BATCH + 1], ids[BELOW_TABLES * BELOW_BATCH * BELOW_EACH];
    char path[300];
    for (int t = 0; t < BELOW_TABLES; t++) {
        tables[t].rows = BELOW_ROWS[t];
        tables[t].dim = 16;
        tables[t].row_buckets = 2;
        each[t] = BELOW_EACH;
    }
    neo_bags_desc bags = {.tables = tables, .table_count = BELOW_TABLES, .max_batch = BELOW_BATCH,
                          .max_ids = BELOW_TABLES * BELOW_BATCH * BELOW_EACH};
    neo_plan_desc desc = {.bags = &bags, .ids_per_sample = each, .skew = 1.05};
    desc.cluster.ranks = of;
    desc.cluster.host_bandwidth = b->of_file ? 0.0 : b->bandwidth;
    desc.cluster.file_bandwidth = b->of_file ? b->bandwidth : 0.0;
    neo_tier *tier;
    neo_plan *plan;
    neo_shard *shard;
    neo_shard_memory says;
    Place out;
    snprintf(path, sizeof path, "%s.%d", b->path ? b->path : "", rank);
    TRY(below_plan(ctx, &bags, &desc, b->path ? path : NULL, &tier, &plan));
    for (int t = 0; t < BELOW_TABLES; t++) b->tier[t] = neo_plan_tier_of(plan, t);
    b->lookup = neo_plan_rank_of(plan, 0).lookup;
    TRY(neo_shard_bytes(ctx, plan, rank, &says));
    const neo_plan_rank x = neo_plan_rank_of(plan, rank);
    EXPECT(x.weight_bytes == (int64_t)says.weight_bytes);
    EXPECT(x.file_bytes == (int64_t)says.file_bytes);
    EXPECT((says.file_bytes > 0) == (b->path != NULL));
    const size_t before = neo_ctx_memory(ctx).bytes;
    TRY(neo_shard_create(comm, plan, &shard));
    size_t tells = says.weight_bytes + says.state_bytes + says.exchange_bytes +
                   says.workspace_bytes;
    if (of > 1) tells += 2 * group_bytes(b->comm, of, 0) + group_bytes(b->comm, of, 1);
    EXPECT(neo_ctx_memory(ctx).bytes - before == tells);
    TRY(take(ctx, mine, 16 * BELOW_TABLES, &out));
    for (int s = 0; s < 2 * BELOW_STEPS && !b->path; s++) {
        neo_jagged j = {.batch = mine, .feature_count = BELOW_TABLES, .id_dtype = NEO_I64,
                        .offsets = offsets, .ids = ids};
        uint64_t random = ((uint64_t)(s * 2 + rank) + 1) * 0x9E3779B97F4A7C15u;
        for (int64_t k = 0; k <= BELOW_TABLES * mine; k++) offsets[k] = k * BELOW_EACH;
        for (int64_t k = 0; k < BELOW_TABLES * mine * BELOW_EACH; k++) {
            const int64_t rows = BELOW_ROWS[k / (mine * BELOW_EACH)];
            random = random * 6364136223846793005u + 1442695040888963407u;
            const float u = (float)(random >> 40) / 16777216.0f;
            ids[k] = neo_zipf(u, rows, 1.05f) * 7919 % rows;
        }
        if (s == BELOW_STEPS) neo_tier_reset_stats(tier);
        TRY(neo_shard_forward(shard, &j, BELOW_BATCH, out.t));
    }
    const neo_tier_stats stats = neo_tier_get_stats(tier);
    b->counted[rank] = stats.lookups;
    b->hits[rank] = stats.hits;
    neo_tensor_free(ctx, &out.all);
    neo_shard_destroy(shard);
    neo_plan_destroy(plan);
    neo_tier_destroy(tier);
    return NEO_OK;
}
static Below below_run(int of, const char *path, double bandwidth, int of_file) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 4}, .timeout_ms = TEST_PATIENCE_MS,
                       .open_device = open_device};
    Below b = {.comm = &d, .path = path, .bandwidth = bandwidth, .of_file = of_file};
    CHECK_OK(neo_comm_spawn(of, &d, below_rank, &b, NULL));
    return b;
}
/* Tables that no memory has whole are planned as those above a file, but for where the rest is and
   what it takes; hits are as predicted, bytes to the byte. */
static void below_a_device(void) {
    for (int of = 1; of < 3; of++) {
        const Below host = below_run(of, NULL, 1e9, 0),
                    file = below_run(of, tmp_path("shard.tier"), 1e9, 1);
        double predicted = 0.0;
        int64_t hits = 0, counted = 0;
        for (int t = 0; t < BELOW_TABLES; t++) {
            const neo_plan_tier x = host.tier[t], y = file.tier[t];
            CHECK(x.rows == y.rows && x.hits == y.hits && x.host_bytes == y.file_bytes);
            CHECK(x.file_bytes == 0 && y.host_bytes == 0);
            if (t < 2) CHECK(x.host_bytes > 8000 * 64 && x.rows < 8000 && x.hits < 0.99);
            else CHECK(x.host_bytes == 0 && x.hits == 1.0);
            if (t < 2) predicted += x.hits / 2;
        }
        for (int r = 0; r < of; r++) hits += host.hits[r], counted += host.counted[r];
        CHECK_INT(counted, 2 * BELOW_BATCH * BELOW_EACH * BELOW_STEPS);
        const double error = (double)hits / (double)counted - predicted;
        printf("  %d ranks: hits predicted %.4f, counted %.4f\n", of, predicted,
               (double)hits / (double)counted);
        CHECK(!(error > 0.03) && !(error < -0.03));
        /* A miss is paid for by the link to the host alone. */
        const Below faster = below_run(of, NULL, 4e9, 0), none = below_run(of, NULL, 1e9, 1);
        CHECK(host.lookup > faster.lookup && faster.lookup > none.lookup);
    }
    for (int r = 0; r < 2; r++) CHECK_INT(wrong[r], 0);
}

int main(void) {
#if defined(NEO_COMM_NCCL)
    const int over_nccl = 1;
#else
    const int over_nccl = 0;
#endif
    if (!over_nccl) { /* no call of these is over NCCL */
        RUN(recorded_clip);
        RUN(below_a_device);
        RUN(one_device);
    }
    RUN(placements);
    RUN(towers);
    RUN(wires);
    RUN(cut_rows_sums);
    RUN(no_pooling);
    RUN(mixtures);
    RUN(weight_grads);
    RUN(keys);
    RUN(repeats);
#if defined(NEO_COMM_NCCL)
    RUN(nccl_sums);
#endif
    RUN(device_ids);
    RUN(repeats_there);
    RUN(quiet_backward);
    RUN(bad_device_ids);
    RUN(replicas);
#if defined(EMULATED)
    if (!over_nccl) {
        RUN(faults);
        RUN(kept_failures);
    }
#endif
    return test_end("cuda/shard");
}
