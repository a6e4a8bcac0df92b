/* grid.c: dense parameters in shards train as on one rank, in every mode; what is asked of the
   allocator and sent is what was predicted. As threads; compiled with NEO_COMM_MPI, under
   mpirun. */
#include "common.h"

typedef struct Case {
    Config config;
    uint64_t want;
} Case;

static int64_t sent(const neo_comm_stats *s, neo_comm_op op) {
    return s->op[op].bytes[NEO_LEVEL_LOCAL] + s->op[op].bytes[NEO_LEVEL_CROSS];
}
/* Sums over all ranks, of what was sent and what was predicted for all steps. */
static neo_status check_traffic(neo_comm *comm, const Config *c, neo_fsdp *f,
                                const neo_fsdp_prediction *p) {
    neo_fsdp_stats s = neo_fsdp_get_stats(f);
    double steps = (double)c->steps;
    int64_t all[] = {sent(&s.shard, NEO_COMM_ALL_GATHER),
                     sent(&s.shard, NEO_COMM_REDUCE_SCATTER),
                     sent(&s.replica, NEO_COMM_ALL_REDUCE) + sent(&s.all, NEO_COMM_ALL_REDUCE),
                     (int64_t)(steps * p->all_gather_bytes),
                     (int64_t)(steps * p->reduce_scatter_bytes),
                     (int64_t)(steps * p->all_reduce_bytes)};
    EXPECT(comm, s.shard.op[NEO_COMM_ALL_GATHER].calls == c->steps * p->all_gathers,
           "%d gathers, predicted %d a step", (int)s.shard.op[NEO_COMM_ALL_GATHER].calls,
           (int)p->all_gathers);
    EXPECT(comm, s.gathers == c->steps * p->all_gathers, "%d", (int)s.gathers);
    EXPECT(comm, s.shard.op[NEO_COMM_REDUCE_SCATTER].calls == c->steps * p->reduce_scatters,
           "%d of %d", (int)s.shard.op[NEO_COMM_REDUCE_SCATTER].calls, (int)p->reduce_scatters);
    EXPECT(comm,
           s.replica.op[NEO_COMM_ALL_REDUCE].calls + s.all.op[NEO_COMM_ALL_REDUCE].calls ==
               c->steps * p->all_reduces,
           "%d of %d", (int)s.all.op[NEO_COMM_ALL_REDUCE].calls, (int)p->all_reduces);
    EXPECT(comm, all[0] == all[3] && all[1] == all[4],
           "gathered %d, predicted %d; scattered %d, predicted %d", (int)all[0], (int)all[3],
           (int)all[1], (int)all[4]);
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, all, all, 6, NEO_I64, NULL));
    EXPECT(comm, all[2] == all[5], "all-reduced %d, predicted %d", (int)all[2], (int)all[5]);
    return NEO_OK;
}
static neo_status train(neo_comm *comm, void *user) {
    const Case *k = (const Case *)user;
    const Config *c = &k->config;
    neo_ctx *ctx = neo_comm_ctx(comm);
    Model m;
    neo_fsdp *f;
    neo_fsdp_prediction p;
    uint64_t digest = 0;
    EXPECT_OK(comm, model_create(ctx, c, 1, &m));
    neo_fsdp_desc d = c->desc;
    d.units = m.unit;
    size_t before = neo_ctx_memory(ctx).bytes;
    EXPECT_OK(comm, neo_fsdp_predict(ctx, &d, neo_comm_size(comm), neo_comm_rank(comm), &p));
    EXPECT(comm, neo_ctx_memory(ctx).bytes == before, "predict keeps %d bytes",
           (int)(neo_ctx_memory(ctx).bytes - before));
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    inside_fsdp inside = inside_of_fsdp(f);
    neo_comm *groups[] = {inside.shard, inside.replica, inside.all};
    size_t group_bytes = 0;
    NEO__ZERO(neo_comm_desc, gd);
    gd.ctx.repro_shards = LEAVES;
    for (int i = 0; i < 3; i++)
        if (groups[i])
            group_bytes +=
                neo_comm_workspace_bytes(&gd, neo_comm_size(groups[i]), neo_comm_get_backend(comm));
    EXPECT(comm, neo_ctx_memory(ctx).bytes - before == p.bytes + group_bytes,
           "%zu bytes, predicted %zu and %zu of groups", neo_ctx_memory(ctx).bytes - before,
           p.bytes, group_bytes);
    int64_t calls = 0;
    for (int step = 0; step < c->steps; step++) {
        if (step == 1) calls = neo_ctx_memory(ctx).alloc_count;
        EXPECT_OK(comm, train_step(comm, c, f, &m, step));
    }
    if (c->steps > 1)
        EXPECT(comm, neo_ctx_memory(ctx).alloc_count == calls, "%d allocations in a step",
               (int)(neo_ctx_memory(ctx).alloc_count - calls));
    if (!c->forward_first) NEO__TRY(check_traffic(comm, c, f, &p));
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    EXPECT(comm, digest == k->want, "digest %016llx, want %016llx", (unsigned long long)digest,
           (unsigned long long)k->want);
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}

/* ---- the grid ---- */
static const char *describe(const Config *c, int ranks) {
    static char text[200];
    const neo_fsdp_desc *d = &c->desc;
    snprintf(text, sizeof text,
             "W %d %s factor %d slots %d prefetch %d k %d accumulate %d groups %d bare %x "
             "replicate %d freeze %d %s %s optim %d clip %g "
             "batch %d",
             ranks, neo_fsdp_mode_name(d->mode), d->factor, d->slots, !d->no_prefetch,
             d->micro_batches, (int)d->accumulate, d->groups, (unsigned)c->bare, c->replicate,
             c->freeze,
             neo_dtype_name(d->param_dtype), neo_dtype_name(d->reduce_dtype), (int)d->optim.kind,
             (double)d->optim.clip_norm, c->batch);
    return text;
}
static int run_case(Case *k, int ranks, int threads) {
    NEO__ZERO(neo_comm_desc, d);
    d.ctx.threads = threads;
    d.ctx.repro_shards = LEAVES;
    d.ctx.seed = 7;
    d.timeout_ms = TEST_PATIENCE_MS;
    int was = failures;
    int bad = run_ranks(ranks, &d, train, k);
    if (bad || failures != was) fprintf(stderr, "  of: %s\n", describe(&k->config, ranks));
    return bad;
}
/* The digest that every way to train must have. */
static uint64_t wanted(const Config *c, int groups) {
    NEO__ZERO(neo_ctx_desc, d);
    neo_ctx *ctx;
    uint64_t digest = 0;
    d.repro_shards = LEAVES;
    d.seed = 7;
    d.threads = 1;
    if (neo_ctx_create(&d, &ctx) != NEO_OK) return 0;
    neo_status status = oracle_digest(ctx, c, groups, &digest);
    if (status != NEO_OK) fprintf(stderr, "oracle: %s\n", neo_last_error());
    failures += status != NEO_OK;
    neo_ctx_destroy(ctx);
    return digest;
}
static uint32_t draw(uint64_t *seed, uint32_t n) {
    *seed = mixed(*seed + 0x9E3779B97F4A7C15u);
    return (uint32_t)((*seed >> 33) % n);
}
/* Ways to train under one numeric definition: all in all modes, or a random one of them. */
static void choose(Config *c, int ranks, uint64_t *seed) {
    neo_fsdp_desc *d = &c->desc;
    d->mode = (neo_fsdp_mode)draw(seed, NEO_FSDP_MODE_COUNT);
    d->factor = ranks > 1 && draw(seed, 2) ? 1 << draw(seed, 3) : 0;
    if (d->factor && ranks % d->factor) d->factor = 0;
    if (d->factor && d->factor < ranks && LEAVES % ranks) d->factor = 0;
    d->slots = (int)draw(seed, 4);
    d->no_prefetch = (int)draw(seed, 2);
    c->keep_root = 1;
    c->replicate = draw(seed, 3) == 0 ? 1 << draw(seed, UNITS) : 0;
    c->recompute = (int)draw(seed, 2);
    c->forward_first = draw(seed, 8) == 0;
    static const int bare[] = {0, (1 << UNITS) - 1, 0x155};
    c->bare = d->mode == NEO_FSDP_DDP ? bare[draw(seed, 3)] : 0;
}

/* Draws of options on w ranks. */
static int turns(int w) {
    static const int MORE[] = {10, 60};
    return test_grid() ? MORE[test_grid() - 1] : (w == 8 ? 6 : 4) >> TEST_WATCHED;
}

int main(void) {
    int bad = 0, mpi = launched(), cases = 0;
#if defined(NEO_COMM_MPI)
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
#endif
    uint64_t seed = 1;
    for (int definition = 0; definition < 12; definition++) {
        Case k;
        k.config = config_new();
        neo_fsdp_desc *d = &k.config.desc;
        static const int optims[] = {NEO_OPTIM_ADAMW, NEO_OPTIM_SGD,     NEO_OPTIM_ADAGRAD,
                                     NEO_OPTIM_LAMB,  NEO_OPTIM_RMSPROP, NEO_OPTIM_FTRL};
        d->micro_batches = 1 << definition / 3 % 3;
        d->accumulate = (neo_fsdp_accumulate)(definition % 3);
        d->optim.kind = (neo_optim_kind)optims[definition % 6];
        d->optim.l1 = 1e-3f;
        d->optim.clip_norm = definition % 2 ? 0.05f : 0.0f;
        d->optim.clip_norm_type = definition % 3 == 0   ? 2.0f
                                  : definition % 3 == 1 ? INFINITY
                                                        : 1.0f;
        k.config.batch = definition % 2 ? 13 : 24;
        if (test_grid()) k.config.steps = 10;
        int groups = d->accumulate == NEO_ACCUMULATE_EACH || d->micro_batches < 2 ? 1 : LEAVES;
        if (d->accumulate == NEO_ACCUMULATE_IN_GROUPS) d->groups = groups = 2;
        k.want = wanted(&k.config, groups);
        for (int w = mpi ? mpi : 1; w <= (mpi ? mpi : 8); w++) {
            for (int turn = 0; turn < turns(w); turn++) {
                choose(&k.config, w, &seed);
                if (d->accumulate == NEO_ACCUMULATE_IN_GROUPS && d->micro_batches > 1) {
                    int replicas = d->mode == NEO_FSDP_DDP ? w : d->factor ? w / d->factor : 1;
                    if (replicas == 2 && d->factor > 1) k.config.replicate = 0;
                    else if (2 % w) continue;
                }
                bad += run_case(&k, w, 1 + turn % 2);
                cases++;
            }
        }
    }
    if (!mpi) printf("fsdp: %d runs\n", cases);
#if defined(NEO_COMM_MPI)
    MPI_Finalize();
#endif
    return ranks_end("fsdp/grid", bad);
}
