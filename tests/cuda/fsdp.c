/* fsdp.c: errors of a device in the windows and steps of a neo_fsdp.

   Two units of one parameter each, two micro-batches a step, gradients copied to the device. A step
   that is recorded for a graph and whose data are wrong (an id, which is found when it runs) takes
   no step and leaves no gradients: all micro-batches done again give the state of a run without it,
   with windows and, as units of DDP stay bound, without. So it is with tables whose gradients are
   kept, and count in the same norm: where that is not finite neither steps.
   Every call of CUDA of a rank's work on gradients fails once, on one of two ranks: no rank waits
   for one that never comes, all have the same outcome, and no rank has stepped alone. The device is
   emulated on the CPU or, in `make test-cuda`, a GPU (the first test). */
#include "shard/common.h"

#include "neo_cuda.cuh"

enum { UNITS = 2, COUNT = 40, MICROS = 2 };
typedef struct Run {
    neo_ctx *ctx;
    neo_fsdp *fsdp;
    neo_params *set[UNITS];
    const neo_param *param[UNITS];
    neo_tensor ids, table, looked;
    int bare; /* without windows */
} Run;

static neo_status open_device(int rank, int local, void *user, neo_device **device) {
    neo_cuda_desc d = {0, 1, 0};
    (void)rank, (void)local, (void)user;
    return neo_cuda_device_create(&d, device);
}
static neo_status run_open(neo_comm *comm, const neo_fsdp_desc *how, Run *r) {
    static const char *const name[UNITS] = {"first", "second"};
    int64_t shape[2] = {10, 6}, count = COUNT;
    neo_fsdp_unit unit[UNITS] = {{0}};
    neo_init init = {NEO_INIT_UNIFORM, -0.5f, 0.5f};
    neo_fsdp_desc d = *how;
    memset(r, 0, sizeof *r);
    r->ctx = neo_comm_ctx(comm);
    for (int u = 0; u < UNITS; u++) {
        TRY(neo_params_create_deferred(r->ctx, &r->set[u]));
        TRY(neo_params_add(r->set[u], name[u], 1, &count, init, &r->param[u]));
        unit[u].name = name[u];
        unit[u].params = r->set[u];
    }
    d.units = unit;
    d.unit_count = UNITS;
    d.micro_batches = MICROS;
    if (!d.optim.kind) d.optim.kind = NEO_OPTIM_ADAM;
    d.optim.name = "optim";
    TRY(neo_fsdp_create(comm, &d, &r->fsdp));
    TRY(neo_tensor_alloc(r->ctx, NEO_F32, 2, shape, &r->table));
    shape[0] = 4;
    TRY(neo_tensor_alloc(r->ctx, NEO_F32, 2, shape, &r->looked));
    TRY(neo_tensor_alloc(r->ctx, NEO_I64, 1, shape, &r->ids));
    return neo_tensor_zero(r->ctx, r->table);
}
static void run_close(Run *r) {
    neo_fsdp_destroy(r->fsdp);
    for (int u = 0; u < UNITS; u++) neo_params_destroy(r->set[u]);
    neo_tensor_free(r->ctx, &r->ids);
    neo_tensor_free(r->ctx, &r->table);
    neo_tensor_free(r->ctx, &r->looked);
}
static neo_status digest_of(neo_comm *comm, Run *r, uint64_t *digest) {
    neo_state *state;
    neo_group group = neo_comm_group(comm);
    TRY(neo_state_create(r->ctx, &state));
    TRY(neo_state_add_fsdp(state, r->fsdp));
    neo_status status = neo_state_digest_group(state, &group, digest);
    neo_state_destroy(state);
    return status;
}
static neo_status forward(Run *r) {
    for (int u = 0; u < UNITS; u++) {
        TRY(neo_fsdp_forward_begin(r->fsdp, u));
        TRY(neo_fsdp_forward_end(r->fsdp, u));
    }
    return NEO_OK;
}
static neo_status gradient(Run *r, int u, int step, int micro, int rank) {
    float g[COUNT];
    for (int i = 0; i < COUNT; i++)
        g[i] = (float)((i * 7 + u * 5 + micro * 3 + rank + step) % 13 - 6) * 0.1f;
    return neo_tensor_copy(r->ctx, neo_tensor_1d(g, NEO_F32, COUNT), r->param[u]->grad);
}
/* A micro-batch of one rank, and behind the last one the step; id: one that is looked up on the
   way. */
static neo_status micro_batch(Run *r, int step, int micro, int64_t id) {
    int64_t ids[4] = {3, id, 9, 0};
    TRY(neo_tensor_copy(r->ctx, neo_tensor_1d(ids, NEO_I64, 4), r->ids));
    TRY(neo_embedding_forward(r->ctx, r->ids, r->table, r->looked));
    TRY(forward(r));
    for (int u = UNITS - 1; u >= 0; u--) {
        TRY(neo_fsdp_backward_begin(r->fsdp, u, 0));
        TRY(gradient(r, u, step, micro, 0));
        TRY(neo_fsdp_backward_end(r->fsdp, u));
    }
    return micro == MICROS - 1 ? neo_fsdp_step(r->fsdp, 0.1f) : NEO_OK;
}

/* The same without windows. */
static neo_status bare_micro_batch(Run *r, int step, int micro, int64_t id) {
    int64_t ids[4] = {3, id, 9, 0};
    TRY(neo_tensor_copy(r->ctx, neo_tensor_1d(ids, NEO_I64, 4), r->ids));
    TRY(neo_embedding_forward(r->ctx, r->ids, r->table, r->looked));
    for (int u = 0; u < UNITS; u++) TRY(gradient(r, u, step, micro, 0));
    return micro == MICROS - 1 ? neo_fsdp_step(r->fsdp, 0.1f) : neo_fsdp_piece_end(r->fsdp);
}

/* ---- recorded ---- */
enum { BARE = 5, WAYS = 10 };
static uint64_t digests[WAYS];
static neo_status recorded(Run *r, neo_cuda_graph *graph, int step, int micro, int64_t id) {
    TRY(neo_cuda_graph_begin(graph));
    TRY((r->bare ? bare_micro_batch : micro_batch)(r, step, micro, id));
    return neo_cuda_graph_end(graph);
}
/* way 0: no error. 1: in the second micro-batch, which steps. 2: in the first, found when the
   second is ended. 3: in the first, at once. 4: as 1, and the first is not done again: windows say
   so. BARE and above: these without windows; BARE + 4: as 3, and the first is not done again. Who
   has no windows gives up the step himself, or is told by the next call that ends a piece. */
static neo_status graphs(neo_comm *comm, void *user) {
    const int which = *(int *)user, way = which % BARE;
    const char *text = "neo_embedding_forward: the id at position 1 is 10, not in [0, 10)";
    Run r;
    neo_cuda_graph *graph;
    neo_fsdp_desc d = {.mode = NEO_FSDP_DDP, .param_dtype = NEO_BF16};
    int rank = 0;
    TRY(run_open(comm, &d, &r));
    r.bare = which >= BARE;
    TRY(neo_cuda_graph_create(neo_ctx_device(r.ctx), NULL, &graph));
    for (int step = 0; step < 3; step++) {
        const int bad = step == 1 ? way : 0;
        if (bad == 2 || bad == 3 || (bad == 4 && r.bare)) TRY(recorded(&r, graph, step, 0, 10));
        if (bad == 2) {
            EXPECT(recorded(&r, graph, step, 1, 2) == NEO_ERR_RANGE &&
                   strstr(neo_last_error(), text));
        } else if (bad == 3 || (bad == 4 && r.bare)) {
            EXPECT(neo_cuda_graph_wait(graph) == NEO_ERR_RANGE && strstr(neo_last_error(), text));
        }
        if (bad == 1 || (bad == 4 && !r.bare)) {
            TRY(recorded(&r, graph, step, 0, 2));
            TRY(recorded(&r, graph, step, 1, 10));
            EXPECT(neo_cuda_graph_wait(graph) == NEO_ERR_RANGE && strstr(neo_last_error(), text));
        }
        if (bad == 4) {
            TRY(neo_cuda_graph_begin(graph));
            EXPECT((r.bare ? bare_micro_batch : micro_batch)(&r, step, 1, 2) == NEO_ERR_STATE &&
                   strstr(neo_last_error(), r.bare ? "neo_fsdp_step: a recorded call has failed"
                                                   : "had the backward of 1 of 2"));
            TRY(neo_cuda_graph_end(graph));
        }
        if (bad && (r.bare || bad == 4)) TRY(neo_fsdp_cancel(r.fsdp));
        TRY(recorded(&r, graph, step, 0, 2));
        EXPECT(neo_fsdp_get_stats(r.fsdp).steps == step);
        TRY(recorded(&r, graph, step, 1, 2));
        EXPECT(neo_fsdp_get_stats(r.fsdp).steps == step + 1);
    }
    TRY(neo_cuda_graph_wait(graph));
    TRY(digest_of(comm, &r, &digests[which]));
    for (int u = 0; u < UNITS && r.bare; u++) { /* what is bound are the masters, rounded */
        float shown[COUNT];
        double sum = 0;
        TRY(neo_tensor_copy(r.ctx, r.param[u]->value, neo_tensor_1d(shown, NEO_F32, COUNT)));
        for (int i = 0; i < COUNT; i++) {
            uint32_t bits;
            memcpy(&bits, &shown[i], sizeof bits);
            EXPECT((bits & 0xFFFF) == 0);
            sum += fabs((double)shown[i]);
        }
        EXPECT(sum > 0);
    }
    neo_cuda_graph_destroy(graph);
    run_close(&r);
    return NEO_OK;
}
static void test_graphs(void) {
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1}, .open_device = open_device};
    for (int way = 0; way < WAYS; way++) {
        memset(wrong, 0, sizeof wrong);
        if (neo_comm_spawn(1, &d, graphs, &way, NULL) != NEO_OK)
            FAIL("way %d: %s", way, neo_last_error());
        if (wrong[0] || digests[way] != digests[0])
            FAIL("way %d: %d checks, or the digest", way, wrong[0]);
    }
}

/* ---- one norm over units and tables ---- */
enum { TABLES = 2, ROWS = 30, DIM = 8, SAMPLES = 8, LENGTH = 3 };
typedef struct Joint {
    neo_fsdp_desc how;
    neo_placement placement;
    int spoilt; /* the second step has a gradient that is no number, first */
    uint64_t digest;
    float factor;
} Joint;
typedef struct Joined {
    Run r;
    neo_shard *tables;
    neo_cuda_graph *graph; /* NULL: of the CPU */
    neo_tensor out, dout;
    int64_t n, offsets[TABLES * SAMPLES + 1], ids[TABLES * SAMPLES * LENGTH];
} Joined;
static neo_status joint_open(neo_comm *comm, const Joint *how, Joined *to) {
    neo_table_desc table[TABLES] = {{.name = "a", .rows = ROWS, .dim = DIM},
                                    {.name = "b", .rows = ROWS, .dim = DIM}};
    neo_bags_desc bags = {.tables = table, .table_count = TABLES, .feature_count = TABLES,
                          .max_batch = SAMPLES, .max_ids = TABLES * SAMPLES * LENGTH};
    neo_plan_desc plan_desc = {.bags = &bags, .kept_batches = MICROS};
    neo_plan *plan;
    const int64_t first_shape[2] = {SAMPLES, TABLES * DIM};
    int64_t first;
    memset(to, 0, sizeof *to);
    TRY(run_open(comm, &how->how, &to->r));
    table[1].optim.kind = NEO_BAG_ADAM;
    plan_desc.cluster.ranks = neo_comm_size(comm);
    TRY(neo_plan_create_uniform(to->r.ctx, &plan_desc, how->placement, &plan));
    TRY(neo_shard_create(comm, plan, &to->tables));
    neo_plan_destroy(plan);
    TRY(neo_tensor_alloc(to->r.ctx, NEO_F32, 2, first_shape, &to->out));
    TRY(neo_tensor_alloc(to->r.ctx, NEO_F32, 2, first_shape, &to->dout));
    TRY(neo_comm_samples(comm, SAMPLES, &first, &to->n));
    for (int64_t i = 0, k = 0; i < TABLES * to->n; i++, to->offsets[i] = k)
        for (int q = 0; q < LENGTH; q++, k++)
            to->ids[k] = (i / to->n * 11 + (first + i % to->n) * 7 + q * 5) % ROWS;
    if (!neo_ctx_device(to->r.ctx)) return NEO_OK;
    return neo_cuda_graph_create(neo_ctx_device(to->r.ctx), NULL, &to->graph);
}
static neo_status joint_micro(Joined *j, int step, int micro, int rank, int spoilt) {
    float dout[SAMPLES * TABLES * DIM];
    const neo_jagged batch = {.batch = j->n, .feature_count = TABLES, .offsets = j->offsets,
                              .ids = j->ids, .id_dtype = NEO_I64};
    for (int i = 0; i < (int)j->n * TABLES * DIM; i++)
        dout[i] = (float)((i * 5 + micro * 3 + rank + step) % 11 - 5) * 0.2f;
    if (spoilt) dout[9] = INFINITY;
    if (j->graph) TRY(neo_cuda_graph_begin(j->graph));
    const neo_tensor host = neo_tensor_2d(dout, NEO_F32, j->n, TABLES * DIM);
    TRY(neo_tensor_copy(j->r.ctx, host, neo_tensor_rows(j->dout, 0, j->n)));
    TRY(neo_shard_forward(j->tables, &batch, SAMPLES, neo_tensor_rows(j->out, 0, j->n)));
    TRY(neo_shard_accumulate(j->tables, neo_tensor_rows(j->dout, 0, j->n)));
    TRY(forward(&j->r));
    for (int u = UNITS - 1; u >= 0; u--) {
        TRY(neo_fsdp_backward_begin(j->r.fsdp, u, 0));
        TRY(gradient(&j->r, u, step, micro, rank));
        TRY(neo_fsdp_backward_end(j->r.fsdp, u));
    }
    if (micro == MICROS - 1) TRY(neo_fsdp_step_tables(j->r.fsdp, j->tables, 0.1f));
    return j->graph ? neo_cuda_graph_end(j->graph) : NEO_OK;
}
static neo_status joint_step(Joined *j, int step, int rank, int spoilt) {
    for (int micro = 0; micro < MICROS; micro++)
        TRY(joint_micro(j, step, micro, rank, spoilt && micro == MICROS - 1));
    return j->graph ? neo_cuda_graph_wait(j->graph) : NEO_OK;
}
static neo_status joint(neo_comm *comm, void *user) {
    Joint *how = user;
    Joined j;
    neo_state *state;
    neo_group group = neo_comm_group(comm);
    uint64_t digest;
    const int rank = neo_comm_rank(comm), last = neo_comm_size(comm) - 1;
    TRY(joint_open(comm, how, &j));
    for (int step = 0; step < 3; step++) {
        if (how->spoilt && step == 1) {
            EXPECT(joint_step(&j, step, rank, rank == last) == NEO_ERR_NUMERIC &&
                   strstr(neo_last_error(), "the gradient's norm is inf at step 2"));
            EXPECT(neo_fsdp_get_stats(j.r.fsdp).steps == 1);
            EXPECT(neo_shard_kept_count(j.tables) == 0);
        }
        TRY(joint_step(&j, step, rank, 0));
    }
    if (rank == 0) how->factor = neo_fsdp_clip_factor(j.r.fsdp);
    if (j.graph && last == 0) EXPECT(neo_cuda_graph_get_stats(j.graph).split == 0);
    TRY(neo_state_create(j.r.ctx, &state));
    TRY(neo_state_add_fsdp(state, j.r.fsdp));
    TRY(neo_state_add_shard(state, j.tables));
    TRY(neo_state_digest_group(state, &group, &digest));
    if (rank == 0) how->digest = digest;
    neo_state_destroy(state);
    neo_cuda_graph_destroy(j.graph);
    neo_tensor_free(j.r.ctx, &j.out);
    neo_tensor_free(j.r.ctx, &j.dout);
    neo_shard_destroy(j.tables);
    run_close(&j.r);
    return NEO_OK;
}
/* On the CPU and on devices, with an error and without. */
static void test_joint(void) {
    static const neo_fsdp_mode modes[] = {NEO_FSDP_DDP, NEO_FSDP_FULL, NEO_FSDP_DDP};
    static const neo_placement placed[] = {NEO_TABLE_WISE, NEO_ROW_WISE, NEO_DATA_PARALLEL};
    for (int way = 0; way < 4; way++) {
        Joint how[3];
        const int size = way < 3 ? 2 : 1;
        for (int i = 0; i < 3; i++) {
            neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = 2},
                               .timeout_ms = TEST_PATIENCE_MS,
                               .open_device = i ? open_device : NULL};
            memset(&how[i], 0, sizeof how[i]);
            how[i].how.mode = modes[way % 3];
            how[i].how.optim.clip_norm = 0.5f;
            if (way % 2) how[i].how.optim.kind = NEO_OPTIM_LAMB; /* its norms are ranks', too */
            how[i].placement = placed[way % 3];
            how[i].spoilt = i != 1;
            memset(wrong, 0, sizeof wrong);
            if (neo_comm_spawn(size, &d, joint, &how[i], NULL) != NEO_OK)
                FAIL("way %d, %d: %s", way, i, neo_last_error());
            if (wrong[0] || wrong[1] || how[i].digest != how[0].digest ||
                how[i].factor != how[0].factor)
                FAIL("way %d, %d: %d and %d checks, or the digest, or the factor", way, i, wrong[0],
                     wrong[1]);
        }
        CHECK(how[0].factor > 0.0f && how[0].factor < 1.0f);
    }
}

#if defined(EMULATED)
/* ---- every call fails once ---- */
void emu_fail_after(int64_t n);
int emu_failed(void);
typedef struct Fault {
    neo_fsdp_desc how;
    int64_t at; /* which call of CUDA; 0: none */
    int failed, told, broken;
    neo_status status[2], late[2];
    uint64_t digest[2];
} Fault;
/* The backward of a micro-batch, *ended: what closing windows gives; the ranks close them one after
   the other, so that it is rank 0 whose call fails. */
static neo_status backward(Run *r, neo_comm *comm, Fault *f, int step, int micro, int fails,
                           neo_status *ended) {
    int rank = neo_comm_rank(comm);
    neo_status status = NEO_OK;
    for (int u = UNITS - 1; u >= 0; u--) {
        if (status == NEO_OK) status = neo_fsdp_backward_begin(r->fsdp, u, 0);
        if (status == NEO_OK) status = gradient(r, u, step, micro, rank);
        for (int turn = 0; turn < 2; turn++) {
            TRY(neo_comm_barrier(comm, NULL));
            if (turn != rank || status != NEO_OK) continue;
            if (fails && rank == 0 && u == 0) emu_fail_after(f->at);
            neo_status one = neo_fsdp_backward_end(r->fsdp, u);
            if (fails && rank == 0 && u == 0) f->failed |= emu_failed(), emu_fail_after(0);
            if (*ended == NEO_OK) *ended = one;
        }
    }
    return status;
}
static neo_status one_step(Run *r, neo_comm *comm, Fault *f, int step, int fails) {
    neo_status status = NEO_OK, ended = NEO_OK;
    for (int micro = 0; micro < MICROS; micro++) {
        if (status == NEO_OK) status = forward(r);
        neo_status one = backward(r, comm, f, step, micro, micro == fails - 1, &ended);
        if (status == NEO_OK) status = one;
    }
    if (ended != NEO_OK) f->told++;
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) return neo_fsdp_step(r->fsdp, 0.1f);
    if (neo_fsdp_cancel(r->fsdp) != NEO_OK) f->broken = 1;
    return status;
}
static neo_status faults(neo_comm *comm, void *user) {
    Fault *f = user;
    Run r;
    int rank = neo_comm_rank(comm);
    TRY(run_open(comm, &f->how, &r));
    TRY(one_step(&r, comm, f, 0, 0));
    f->status[rank] = one_step(&r, comm, f, 1, f->at ? 1 + (int)(f->at % 2) : 0);
    int steps = (int)neo_fsdp_get_stats(r.fsdp).steps;
    EXPECT(steps == 1 + (f->status[rank] == NEO_OK));
    f->late[rank] = f->status[rank] == NEO_OK ? NEO_OK : one_step(&r, comm, f, 1, 0);
    if (f->late[rank] == NEO_OK) TRY(digest_of(comm, &r, &f->digest[rank]));
    run_close(&r);
    EXPECT(neo_comm_time_ns(comm) == 0); /* none has waited for a timeout */
    return NEO_OK;
}
static void test_faults(void) {
    static const neo_fsdp_desc how[] = {
        {.mode = NEO_FSDP_DDP},
        {.mode = NEO_FSDP_FULL, .reduce_dtype = NEO_BF16},
        {.mode = NEO_FSDP_ZERO2, .accumulate = NEO_ACCUMULATE_AT_END}};
    neo_comm_desc d = {.ctx = {.threads = 1, .seed = 1, .repro_shards = 2},
                       .open_device = open_device,
                       .virtual_clock = 1};
    int told = 0;
    for (int h = 0; h < 3; h++) {
        uint64_t want = 0;
        int misses = 0;
        for (int64_t at = 0; at < 120 && misses < 2; at++) {
            Fault f = {.how = how[h], .at = at};
            memset(wrong, 0, sizeof wrong);
            if (neo_comm_spawn(2, &d, faults, &f, NULL) != NEO_OK)
                FAIL("way %d, call %d: %s", h, (int)at, neo_last_error());
            if (at == 0) want = f.digest[0];
            misses = at && !f.failed ? misses + 1 : 0;
            told += f.told;
            const int done =
                f.late[0] == NEO_OK; /* else what ranks exchange is broken, and says so on both */
            if (wrong[0] || wrong[1] || f.status[0] != f.status[1] ||
                done != (f.late[1] == NEO_OK) ||
                (done && (f.digest[0] != want || f.digest[1] != want)) ||
                (f.failed && !f.told && f.status[0] == NEO_OK))
                FAIL("way %d, call %d: failed %d, told %d, status %d %d, again %d %d, digest %d %d",
                     h, (int)at, f.failed, f.told, f.status[0], f.status[1], f.late[0], f.late[1],
                     f.digest[0] == want, f.digest[1] == want);
        }
        CHECK(misses == 2);
    }
    CHECK(told > 3);
}
#endif

int main(void) {
    RUN(test_graphs);
    RUN(test_joint);
#if defined(EMULATED)
    RUN(test_faults);
#endif
    return test_end("cuda/fsdp");
}
