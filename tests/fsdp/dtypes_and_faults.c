/* dtypes_and_faults.c: dense parameters in shards, beyond the grid of grid.c: narrow dtypes, the
   loss scaler, clipping, frozen units, memory of another context, mistakes and faults. */
#include "common.h"

static void *limited_alloc(size_t bytes, size_t align, void *user);
static void limited_free(void *ptr, size_t bytes, void *user);

/* ---- one way to train, watched ---- */
typedef struct Watch {
    Config config;
    uint64_t digest;        /* of rank 0, after the steps */
    uint64_t norms;         /* hash of the parameters' norms after the last step */
    int check_finite;
    double loss, grad_norm; /* of the last step: all samples */
    float scale;
    int64_t skipped;
    /* 1: the second step is given up in the middle of its forward, 2: of its backward */
    int cancel;
} Watch;

static neo_status give_up(neo_comm *comm, const Config *c, neo_fsdp *f, Model *m, int backwards) {
    neo_leaves part = neo_fsdp_piece(f, 0, c->batch);
    int64_t rows = samples_in(c->batch, part.first, part.count);
    model_load(m, 77, 0, neo_leaf_begin(c->batch, LEAVES, part.first), rows);
    if (backwards) {
        NEO__TRY(forward(comm, c, f, m, rows));
        NEO__TRY(neo_fsdp_backward_begin(f, 5, 0));
        NEO__TRY(layer_backward(neo_comm_ctx(comm), m, &part, 5, rows, 0));
        NEO__TRY(neo_fsdp_backward_end(f, 5));
        NEO__TRY(neo_fsdp_backward_begin(f, 4, 0));
    } else {
        NEO__TRY(neo_fsdp_forward_begin(f, 0));
        NEO__TRY(neo_fsdp_forward_begin(f, 1));
    }
    return neo_fsdp_cancel(f);
}
/* One number of all names and norms. together: the squares of the gradients' norms add up to that
   of the clip norm, if there is one. */
static neo_status hash_norms(neo_comm *comm, neo_fsdp *f, int together, uint64_t *hash) {
    neo_param_norm norm[2 * LAYERS];
    const int count = neo_fsdp_norm_count(f);
    const double all = neo_fsdp_get_stats(f).grad_norm;
    double squares = 0;
    EXPECT(comm, count <= 2 * LAYERS, "%d norms", count);
    NEO__TRY(neo_fsdp_norms(f, norm));
    for (int i = 0; i < count; i++) {
        uint64_t bits[2];
        memcpy(&bits[0], &norm[i].grad, sizeof bits[0]);
        memcpy(&bits[1], &norm[i].weight, sizeof bits[1]);
        *hash = mixed((*hash * 31 + neo_hash(norm[i].name)) ^ bits[0]) * 31 + bits[1];
        squares += norm[i].grad * norm[i].grad;
        EXPECT(comm, norm[i].weight > 0, "%s: weight norm %g", norm[i].name, norm[i].weight);
    }
    if (all > 0 && together)
        EXPECT(comm, fabs(sqrt(squares) / all - 1) < 1e-12, "%g, not %g", sqrt(squares), all);
    return NEO_OK;
}
/* Histograms are of the numbers that norms are of. */
static neo_status check_histograms(neo_comm *comm, neo_fsdp *f) {
    neo_histogram of[4 * LAYERS];
    neo_param_norm norm[2 * LAYERS];
    const int count = neo_fsdp_norm_count(f);
    NEO__TRY(neo_fsdp_norms(f, norm));
    NEO__TRY(neo_fsdp_histograms(f, of, of + count));
    for (int i = 0; i < 2 * count; i++) {
        const double size = i < count ? norm[i].weight : norm[i - count].grad,
                     got = sqrt(neo_exact_value(&of[i].squares));
        EXPECT(comm, of[i].non_finite || fabs(got - size) <= 1e-5 * size, "%s: %g, not %g",
               norm[i % count].name, got, size);
    }
    return NEO_OK;
}
static neo_status watch(neo_comm *comm, void *user) {
    Watch *w = (Watch *)user;
    Config c = w->config;
    Model m;
    neo_fsdp *f;
    uint64_t digest;
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    double loss = 0;
    for (int step = 0; step < c.steps; step++) {
        if (step == 1 && w->cancel) EXPECT_OK(comm, give_up(comm, &c, f, &m, w->cancel - 1));
        EXPECT_OK(comm, train_step(comm, &c, f, &m, step));
        loss = m.loss;
    }
    neo_fsdp_stats s = neo_fsdp_get_stats(f);
    uint64_t norms = 0;
    const float type = c.desc.optim.clip_norm_type;
    const int together = s.skipped == 0 && (type == 0.0f || type == 2.0f);
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    EXPECT_OK(comm, hash_norms(comm, f, together, &norms));
    EXPECT_OK(comm, check_histograms(comm, f));
    neo_fsdp_reset_stats(f);
    EXPECT(comm, neo_fsdp_get_stats(f).steps == 0 && neo_fsdp_get_stats(f).gathers == 0,
           "%d steps", (int)neo_fsdp_get_stats(f).steps);
    if (neo_comm_rank(comm) == 0) {
        w->digest = digest;
        w->norms = norms;
        w->loss = loss;
        w->grad_norm = s.grad_norm;
        w->scale = neo_fsdp_loss_scale(f);
        w->skipped = s.skipped;
    }
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
static neo_comm_desc job(void) {
    NEO__ZERO(neo_comm_desc, d);
    d.ctx.repro_shards = LEAVES;
    d.ctx.seed = 7;
    d.timeout_ms = TEST_PATIENCE_MS;
    return d;
}
static int go(int ranks, Watch *w) {
    neo_comm_desc d = job();
    d.ctx.check_finite = w->check_finite;
    int bad = run_ranks(ranks, &d, watch, w);
    failures += bad;
    return bad;
}
#define SAME(a, b, ...)                                                                            \
    do {                                                                                           \
        checks++;                                                                                  \
        if ((a) != (b))                                                                            \
            failures++, fprintf(stderr, "%s:%d: ", __FILE__, __LINE__),                            \
                fprintf(stderr, __VA_ARGS__);                                                      \
    } while (0)

/* Every number of ranks and mode has the bits of one rank. */
static uint64_t alike(const Config *c, const char *what) {
    static const int ranks[] = {2, 3, 4, 8, 4, 8, 5, 3, 4};
    Watch one = {0};
    one.config = *c;
    go(1, &one);
    for (int i = 0; i < 9; i++) {
        Watch w = {0};
        w.config = *c;
        w.config.desc.mode = (neo_fsdp_mode)(i % NEO_FSDP_MODE_COUNT);
        if (i > 6) w.config.desc.mode = NEO_FSDP_DDP, w.config.bare = (1 << UNITS) - 1;
        if (i >= 4 && i < 6) w.config.desc.mode = NEO_FSDP_FULL, w.config.desc.factor = 2;
        if (w.config.infinite_rank >= 0) w.config.infinite_rank = ranks[i] - 1;
        go(ranks[i], &w);
        SAME(w.digest, one.digest, "%s: %d ranks, %s: %016llx, one rank %016llx\n", what, ranks[i],
             neo_fsdp_mode_name(w.config.desc.mode), (unsigned long long)w.digest,
             (unsigned long long)one.digest);
        SAME(w.norms, one.norms, "%s: %d ranks, %s: norms differ\n", what, ranks[i],
             neo_fsdp_mode_name(w.config.desc.mode));
        SAME(w.grad_norm, one.grad_norm, "%s: norm %.17g and %.17g\n", what, w.grad_norm,
             one.grad_norm);
        SAME(w.scale, one.scale, "%s: scale %g and %g\n", what, (double)w.scale, (double)one.scale);
        SAME(w.skipped, one.skipped, "%s: %d steps skipped, on one rank %d\n", what, (int)w.skipped,
             (int)one.skipped);
    }
    return one.digest;
}

static void narrow(void) {
    static const neo_dtype dtypes[][2] = {
        {NEO_BF16, NEO_BF16}, {NEO_F16, NEO_F32}, {NEO_F32, NEO_BF16}, {NEO_BF16, NEO_F16}};
    for (int i = 0; i < 4; i++) {
        for (int micro = 1; micro <= 2; micro++) {
            Config c = config_new();
            c.desc.param_dtype = dtypes[i][0];
            c.desc.reduce_dtype = dtypes[i][1];
            c.desc.micro_batches = micro;
            c.desc.accumulate = i % 2 ? NEO_ACCUMULATE_AT_END : NEO_ACCUMULATE_EACH;
            c.keep_root = i < 3;
            if (!c.keep_root) c.desc.slots = 3;
            alike(&c, neo_dtype_name(dtypes[i][0]));
        }
    }
    Watch wide = {0}, half = {0}; /* 200 steps over the same samples */
    wide.config = config_new();
    wide.config.steps = 200;
    wide.config.batch = 24;
    wide.config.same_data = 1;
    wide.config.lr = 0.002f;
    half.config = wide.config;
    half.config.desc.param_dtype = half.config.desc.reduce_dtype = NEO_BF16;
    go(1, &wide);
    go(1, &half);
    checks++;
    if (!(fabs(half.loss - wide.loss) <= 0.01 * wide.loss))
        failures++, fprintf(stderr, "narrow: loss %g in bf16, %g in f32\n", half.loss, wide.loss);
    SAME(half.digest == wide.digest, 0, "narrow: bf16 trains as f32\n");
}
/* An infinity on one rank: all skip the step and halve the scale; good steps double it. */
static void scaler(void) {
    Config c = config_new();
    c.desc.loss_scale = 1024.0f;
    c.desc.loss_scale_window = 3;
    c.desc.reduce_dtype = NEO_F16;
    c.steps = 6;
    c.infinite_rank = 0;
    c.infinite_step = 1;
    alike(&c, "scaler");
    Watch w = {0};
    w.config = c;
    go(2, &w);
    SAME(w.skipped, 1, "scaler: %d steps skipped\n", (int)w.skipped);
    SAME(w.scale, 1024.0f, "scaler: scale %g: halved once, doubled once\n", (double)w.scale);
    c.infinite_step = c.infinite_rank = -1; /* a power of two changes no bit */
    c.desc.reduce_dtype = NEO_F32;
    uint64_t scaled = 0, plain = 0;
    for (int i = 0; i < 2; i++) {
        Watch x = {0};
        x.config = c;
        x.config.steps = 2;
        x.config.desc.loss_scale = i ? 0.0f : 1024.0f;
        go(1, &x);
        *(i ? &plain : &scaled) = (uint64_t)(x.loss * 1e15);
    }
    SAME(scaled, plain, "scaler: a scale changes the training\n");
}
/* A norm that is too large makes a step of the size of clip_norm; of one that is not, no
   difference. */
static void clip(void) {
    static const float types[] = {1.0f, 2.0f, INFINITY};
    for (int i = 0; i < 3; i++) {
        Config c = config_new();
        c.desc.optim.kind = NEO_OPTIM_SGD;
        c.desc.optim.weight_decay = 0.0f;
        c.desc.optim.clip_norm_type = types[i];
        c.replicate = 2;
        Watch plain = {0}, loose = {0}, tight = {0};
        plain.config = loose.config = tight.config = c;
        loose.config.desc.optim.clip_norm = 1e6f;
        tight.config.desc.optim.clip_norm = 1e-3f;
        go(3, &plain);
        go(3, &loose);
        go(3, &tight);
        SAME(plain.digest, loose.digest, "clip %g: a norm below the limit changes the step\n",
             (double)types[i]);
        SAME(plain.digest == tight.digest, 0, "clip %g: nothing is clipped\n", (double)types[i]);
        SAME(loose.grad_norm > 1e-3, 1, "clip %g: norm %g\n", (double)types[i], loose.grad_norm);
        alike(&tight.config, "clip");
    }
}
static void frozen(void) {
    Config c = config_new();
    c.freeze = 1 << 3 | 1 << 5;
    uint64_t some = alike(&c, "frozen");
    c.freeze = 0;
    SAME(alike(&c, "free") == some, 0, "frozen: nothing is\n");
    c.freeze = 1; /* the unit that is open around the others */
    c.desc.optim.kind = NEO_OPTIM_LAMB;
    alike(&c, "frozen root");
}
static void cancelled(void) {
    Watch plain = {0};
    plain.config = config_new();
    go(4, &plain);
    for (int i = 1; i <= 2; i++) {
        for (int mode = 0; mode < NEO_FSDP_MODE_COUNT; mode++) {
            Watch w = {0};
            w.config = plain.config;
            w.config.desc.mode = (neo_fsdp_mode)mode;
            w.cancel = i;
            go(4, &w);
            SAME(w.digest, plain.digest, "cancelled: %s\n",
                 neo_fsdp_mode_name((neo_fsdp_mode)mode));
        }
    }
}
static void delayed(void) {
    Watch plain = {0}, late = {0};
    plain.config = config_new();
    late.config = plain.config;
    late.config.delay_ms = 5;
    go(4, &plain);
    go(4, &late);
    SAME(late.digest, plain.digest, "delayed: other bits\n");
}

/* ---- memory of another context ---- */
static neo_status offloaded(neo_comm *comm, void *user) {
    uint64_t digest;
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    neo_ctx *host;
    neo_fsdp_prediction p;
    NEO__ZERO(neo_ctx_desc, hd);
    hd.threads = 1;
    EXPECT_OK(comm, neo_ctx_create(&hd, &host));
    size_t before = neo_ctx_memory(host).bytes;
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    d.host = host;
    EXPECT_OK(comm, neo_fsdp_predict(neo_comm_ctx(comm), &d, neo_comm_size(comm),
                                     neo_comm_rank(comm), &p));
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    EXPECT(comm,
           neo_ctx_memory(host).bytes - before == p.host_bytes &&
               p.host_bytes >= p.master_bytes + p.state_bytes,
           "%zu bytes of the host, predicted %zu", neo_ctx_memory(host).bytes - before,
           p.host_bytes);
    for (int step = 0; step < c.steps; step++) EXPECT_OK(comm, train_step(comm, &c, f, &m, step));
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    EXPECT(comm, digest == *(const uint64_t *)user, "%016llx", (unsigned long long)digest);
    neo_fsdp_destroy(f);
    model_destroy(&m);
    EXPECT(comm, neo_ctx_memory(host).bytes == before, "the host has %zu",
           neo_ctx_memory(host).bytes);
    neo_ctx_destroy(host);
    return NEO_OK;
}

/* ---- tied weights ---- */
/* A table of tokens is also the output layer's weight: its two gradients meet in every leaf. user:
   the digest of one rank, 0 on the first call; the number of rows is 4 ranks + 1 of the largest
   job. */
enum { TIED_DIM = 6, TIED_ROWS = 4 * 8 + 1, TIED_BATCH = 21 };
static neo_status tied_step(neo_comm *comm, neo_fsdp *f, const neo_param *table, int step) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    int64_t ids[TIED_BATCH], next[TIED_BATCH];
    float x[TIED_BATCH * TIED_DIM], dx[TIED_BATCH * TIED_DIM], logit[TIED_BATCH * TIED_ROWS];
    for (int piece = 0; piece < neo_fsdp_pieces(f); piece++) {
        neo_leaves part = neo_fsdp_piece(f, piece, TIED_BATCH);
        int64_t first = neo_leaf_begin(TIED_BATCH, LEAVES, part.first),
                n = samples_in(TIED_BATCH, part.first, part.count);
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (first + i) * (first + i + step) % TIED_ROWS;
            next[i] = (ids[i] * 5 + 2) % TIED_ROWS;
        }
        neo_tensor tokens = neo_tensor_1d(ids, NEO_I64, n), h = rows_of(x, n, TIED_DIM),
                   z = rows_of(logit, n, TIED_ROWS);
        NEO__ZERO(neo_loss_desc, d);
        d.batch = TIED_BATCH;
        NEO__TRY(neo_fsdp_forward_begin(f, 0));
        NEO__TRY(neo_embedding_forward(ctx, tokens, table->value, h));
        NEO__TRY(neo_linear_forward(ctx, h, table->value, neo_tensor_none(), NEO_ACT_NONE, z));
        NEO__TRY(neo_cross_entropy(ctx, &d, z, neo_tensor_1d(next, NEO_I64, n), z, NULL));
        NEO__TRY(neo_fsdp_forward_end(f, 0));
        NEO__TRY(neo_fsdp_backward_begin(f, 0, piece));
        NEO__TRY(neo_linear_backward(ctx, &part, h, table->value, z, rows_of(dx, n, TIED_DIM),
                                     table->grad, neo_tensor_none()));
        NEO__TRY(
            neo_embedding_backward(ctx, &part, tokens, rows_of(dx, n, TIED_DIM), table->grad, 1));
        NEO__TRY(neo_fsdp_backward_end(f, 0));
    }
    return neo_fsdp_step(f, 0.01f);
}
static neo_status tied(neo_comm *comm, void *user) {
    uint64_t digest, *want = (uint64_t *)user;
    neo_fsdp *f;
    neo_params *set;
    const neo_param *table;
    int64_t shape[] = {TIED_ROWS, TIED_DIM};
    neo_init init = {NEO_INIT_NORMAL, 0.0f, 1.0f};
    EXPECT_OK(comm, neo_params_create_deferred(neo_comm_ctx(comm), &set));
    EXPECT_OK(comm, neo_params_add(set, "wte.weight", 2, shape, init, &table));
    neo_fsdp_unit unit = {"tokens", set, 0, 0, 0};
    NEO__ZERO(neo_fsdp_desc, d);
    d.units = &unit;
    d.unit_count = 1;
    d.leaf_pieces = 1;
    d.optim.kind = NEO_OPTIM_ADAMW;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    for (int step = 0; step < 10; step++) EXPECT_OK(comm, tied_step(comm, f, table, step));
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    if (neo_comm_size(comm) == 1) *want = digest;
    EXPECT(comm, digest == *want, "%016llx", (unsigned long long)digest);
    neo_fsdp_destroy(f);
    neo_params_destroy(set);
    return NEO_OK;
}

/* ---- windows by hand ---- */
/* Units of one vector each, whose gradients are numbers: after a step of SGD their sum is known. */
enum { HAND_UNITS = 3, HAND = 300 };
typedef struct Hand {
    neo_params *set[HAND_UNITS];
    neo_fsdp_unit unit[HAND_UNITS];
    neo_fsdp_desc desc;
    neo_fsdp *f;
} Hand;
static neo_status hand_create(neo_comm *comm, Hand *h, neo_fsdp_mode mode, int64_t empty) {
    static const char *const names[] = {"A", "B", "C"};
    int64_t shape[] = {HAND};
    neo_init init = {NEO_INIT_CONSTANT, 0, 0};
    memset(h, 0, sizeof *h);
    for (int u = 0; u < HAND_UNITS; u++) {
        NEO__TRY(neo_params_create_deferred(neo_comm_ctx(comm), &h->set[u]));
        NEO__TRY(neo_params_add(h->set[u], names[u], 1, shape, init, NULL));
        if (empty)
            NEO__TRY(neo_params_add(h->set[u], u ? u == 1 ? "none" : "nil" : "zero", 1,
                                    &(int64_t){0}, init, NULL));
        h->unit[u].name = names[u];
        h->unit[u].params = h->set[u];
    }
    h->desc.units = h->unit;
    h->desc.unit_count = HAND_UNITS;
    h->desc.mode = mode;
    return NEO_OK;
}
static void hand_destroy(Hand *h) {
    neo_fsdp_destroy(h->f);
    for (int u = 0; u < HAND_UNITS; u++) neo_params_destroy(h->set[u]);
}
static void hand_write(Hand *h, int u, float x) {
    float *grad = (float *)neo_params_at(h->set[u], 0)->grad.data;
    for (int i = 0; i < HAND; i++) grad[i] = x;
}
static neo_status hand_backward(Hand *h, int u, float x) {
    NEO__TRY(neo_fsdp_backward_begin(h->f, u, 0));
    hand_write(h, u, x);
    return neo_fsdp_backward_end(h->f, u);
}
static neo_status hand_expect(neo_comm *comm, Hand *h, int u, float x) {
    EXPECT_OK(comm, neo_fsdp_forward_begin(h->f, u));
    const float *value = (const float *)neo_params_at(h->set[u], 0)->value.data;
    for (int i = 0; i < HAND; i += HAND - 1)
        EXPECT(comm, value[i] == x, "unit %d: %g, want %g", u, (double)value[i], (double)x);
    EXPECT_OK(comm, neo_fsdp_forward_end(h->f, u));
    return NEO_OK;
}
/* Two units that borrow windows are open around one that is kept; then micro-batches, each unit's
   one after another. */
static neo_status by_hand(neo_comm *comm, void *user) {
    Hand h;
    float ranks = (float)neo_comm_size(comm);
    (void)user;
    EXPECT_OK(comm, hand_create(comm, &h, NEO_FSDP_FULL, 0));
    h.unit[2].keep = 1;
    EXPECT_OK(comm, neo_fsdp_create(comm, &h.desc, &h.f));
    Hand second = h;
    EXPECT_ERR(comm, neo_fsdp_create(comm, &h.desc, &second.f), NEO_ERR_ARG,
               "'A' of unit 'A' is bound by another owner");
    for (int u = 0; u < HAND_UNITS; u++) EXPECT_OK(comm, neo_fsdp_backward_begin(h.f, u, 0));
    for (int u = HAND_UNITS - 1; u >= 0; u--) {
        hand_write(&h, u, 1.0f);
        EXPECT_OK(comm, neo_fsdp_backward_end(h.f, u));
    }
    EXPECT_OK(comm, neo_fsdp_step(h.f, 1.0f));
    for (int u = 0; u < HAND_UNITS; u++) EXPECT_OK(comm, hand_expect(comm, &h, u, -ranks));
    hand_destroy(&h);
    for (int mode = 0; mode < NEO_FSDP_MODE_COUNT; mode++) {
        EXPECT_OK(comm, hand_create(comm, &h, (neo_fsdp_mode)mode, 1));
        h.desc.micro_batches = 3;
        EXPECT_OK(comm, neo_fsdp_create(comm, &h.desc, &h.f));
        if (mode == NEO_FSDP_DDP && neo_comm_size(comm) > 1) { /* one bucket has all three */
            EXPECT_OK(comm, hand_backward(&h, 1, 1.0f));
            EXPECT_ERR(comm, hand_backward(&h, 1, 1.0f), NEO_ERR_STATE,
                       "unit 'B' begins micro-batch 2 of 3 before other units");
            EXPECT_OK(comm, neo_fsdp_cancel(h.f));
        }
        for (int i = 0; i < 3 * HAND_UNITS; i++) { /* DDP: micro by micro; else unit by unit */
            int u = mode == NEO_FSDP_DDP ? i % HAND_UNITS : i / 3,
                micro = mode == NEO_FSDP_DDP ? i / HAND_UNITS : i % 3;
            EXPECT_OK(comm, hand_backward(&h, u, micro == 0 ? 1.0f : micro == 1 ? 10.0f : 100.0f));
        }
        EXPECT_OK(comm, neo_fsdp_step(h.f, 1.0f));
        for (int u = 0; u < HAND_UNITS; u++)
            EXPECT_OK(comm, hand_expect(comm, &h, u, -111.0f * ranks));
        uint64_t digest,
            *want = (uint64_t *)user + 1; /* parameters without elements are in every state */
        EXPECT_OK(comm, fsdp_digest(comm, h.f, &digest));
        if (neo_comm_size(comm) == 2 && mode == 0 && neo_comm_rank(comm) == 0) *want = digest;
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        if (neo_comm_size(comm) == 2)
            EXPECT(comm, digest == *want, "%016llx", (unsigned long long)digest);
        hand_destroy(&h);
    }
    return NEO_OK;
}
/* The scale stays a number however many steps overflow, or do not. */
static neo_status bounded(neo_comm *comm, void *user) {
    Hand h;
    (void)user;
    EXPECT_OK(comm, hand_create(comm, &h, NEO_FSDP_FULL, 0));
    h.desc.loss_scale = 0x1p-98f;
    h.desc.loss_scale_window = 1;
    EXPECT_OK(comm, neo_fsdp_create(comm, &h.desc, &h.f));
    for (int step = 0; step < 240; step++) {
        for (int u = 0; u < HAND_UNITS; u++)
            EXPECT_OK(comm, hand_backward(&h, u, step < 10 ? INFINITY : 0.0f));
        EXPECT_OK(comm, neo_fsdp_step(h.f, 1.0f));
        if (step == 9)
            EXPECT(comm, neo_fsdp_loss_scale(h.f) == 0x1p-100f, "%g",
                   (double)neo_fsdp_loss_scale(h.f));
    }
    EXPECT(comm, neo_fsdp_loss_scale(h.f) == 0x1p100f, "%g", (double)neo_fsdp_loss_scale(h.f));
    EXPECT(comm, neo_fsdp_get_stats(h.f).skipped == 10, "%d", (int)neo_fsdp_get_stats(h.f).skipped);
    for (int u = 0; u < HAND_UNITS; u++) EXPECT_OK(comm, hand_expect(comm, &h, u, 0.0f));
    hand_destroy(&h);
    return NEO_OK;
}

/* ---- mistakes ---- */
static neo_status windows(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    (void)user;
    c.keep_root = 0; /* two slots: the third open unit has no place */
    c.freeze = 1 << 5;
    EXPECT_OK(comm, model_create(ctx, &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    EXPECT_ERR(comm, layer_forward(ctx, &m, 1, 2), NEO_ERR_STATE, "its set is not in memory");
    int64_t live = neo_ctx_live(ctx, NULL, 0);
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    EXPECT(comm, neo_ctx_live(ctx, NULL, 0) == live + 1, "what it made for itself counts");
    EXPECT_ERR(comm, layer_forward(ctx, &m, 1, 2), NEO_ERR_STATE, "unit 'b.1' is not in a window");
    EXPECT_ERR(comm, neo_fsdp_forward_begin(f, UNITS), NEO_ERR_ARG,
               "neo_fsdp_forward_begin: unit 10 of 10");
    EXPECT_ERR(comm, neo_fsdp_forward_begin(f, -1), NEO_ERR_ARG, "unit -1 of 10");
    EXPECT_ERR(comm, neo_fsdp_forward_begin(NULL, 0), NEO_ERR_ARG, "fsdp is NULL");
    EXPECT_ERR(comm, neo_fsdp_forward_end(f, 1), NEO_ERR_STATE,
               "neo_fsdp_forward_end: unit 'b.1' is closed (its _begin comes first)");
    EXPECT_OK(comm, neo_fsdp_forward_begin(f, 1));
    EXPECT_OK(comm, layer_forward(ctx, &m, 1, 2));
    EXPECT_ERR(comm, layer_backward(ctx, &m, NULL, 1, 2, 0), NEO_ERR_STATE,
               "unit 'b.1' is not in a backward window");
    EXPECT_ERR(comm, neo_fsdp_forward_begin(f, 1), NEO_ERR_STATE, "unit 'b.1' is open for forward");
    EXPECT_ERR(comm, neo_fsdp_backward_begin(f, 1, 0), NEO_ERR_STATE,
               "unit 'b.1' is open for forward");
    EXPECT_ERR(comm, neo_fsdp_step(f, 0.1f), NEO_ERR_STATE,
               "neo_fsdp_step: unit 'b.1' is in a window");
    EXPECT_OK(comm, neo_fsdp_forward_begin(f, 2));
    if (neo_comm_size(comm) > 1)
        EXPECT_ERR(comm, neo_fsdp_forward_begin(f, 3), NEO_ERR_CAPACITY,
                   "unit 'b.3' is opened inside the windows of 2 others");
    EXPECT_OK(comm, neo_fsdp_forward_end(f, 2));
    EXPECT_OK(comm, neo_fsdp_forward_end(f, 1));
    EXPECT_ERR(comm, layer_forward(ctx, &m, 1, 2), NEO_ERR_STATE, "unit 'b.1' is not in a window");
    EXPECT_ERR(comm, neo_fsdp_step(f, 0.1f), NEO_ERR_STATE,
               "since the last step unit 'root' had the backward of 0 of 1 micro-batches");
    EXPECT_ERR(comm, neo_fsdp_backward_begin(f, 2, 1 + neo_fsdp_pieces(f)), NEO_ERR_ARG,
               "neo_fsdp_backward_begin: piece");
    EXPECT_OK(comm, neo_fsdp_backward_begin(f, 5, 0));
    EXPECT_ERR(comm, layer_backward(ctx, &m, NULL, 5, 2, 0), NEO_ERR_STATE, "unit 'b.5' is frozen");
    EXPECT_OK(comm, neo_fsdp_backward_end(f, 5));
    for (int i = 0; i < neo_fsdp_pieces(f); i++) {
        neo_leaves part = neo_fsdp_piece(f, i, c.batch);
        int64_t first, rows = neo_fsdp_samples(f, i, c.batch, &first);
        EXPECT(comm,
               rows == samples_in(c.batch, part.first, part.count) &&
                   first == samples_in(c.batch, 0, part.first),
               "%d samples from %d", (int)rows, (int)first);
        EXPECT_OK(comm, neo_fsdp_backward_begin(f, 2, i));
        if (part.count)
            EXPECT_ERR(comm, neo_fsdp_backward_end(f, 2), NEO_ERR_STATE,
                       "no backward has written the gradient of 'layer.2.weight' in unit 'b.2'");
        if (neo_comm_size(comm) > 1)
            EXPECT_ERR(comm, layer_backward(ctx, &m, NULL, 2, rows, 0), NEO_ERR_ARG,
                       "rows are the whole batch, but ranks share it");
        EXPECT_OK(comm, layer_backward(ctx, &m, &part, 2, rows, 0));
        EXPECT_OK(comm, neo_fsdp_backward_end(f, 2));
    }
    EXPECT_ERR(comm, neo_fsdp_piece_end(f), NEO_ERR_STATE,
               "neo_fsdp_piece_end: since the last step unit 'root' had the backward of 0 of 1");
    EXPECT_ERR(comm, neo_fsdp_piece_end(NULL), NEO_ERR_ARG, "neo_fsdp_piece_end: fsdp is NULL");
    EXPECT_ERR(comm, neo_fsdp_backward_begin(f, 2, 0), NEO_ERR_STATE,
               "has had the backward of all 1 micro-batches: neo_fsdp_step comes first");
    EXPECT_OK(comm, neo_fsdp_cancel(f));
    for (int step = 0; step < 2; step++) EXPECT_OK(comm, train_step(comm, &c, f, &m, step));
    neo_fsdp_destroy(f);
    EXPECT_ERR(comm, layer_forward(ctx, &m, 1, 2), NEO_ERR_STATE, "its set is not in memory");
    model_destroy(&m);
    return NEO_OK;
}
/* Units that stay bound, in DDP without windows. user: the digest of one rank; 1: sums in bf16. */
static neo_status mistakes_bare(neo_comm *comm, neo_fsdp *f, const Config *c, Model *m,
                                const neo_fsdp_desc *d) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const int ranks = neo_comm_size(comm), pieces = neo_fsdp_pieces(f);
    const neo_leaves part = neo_fsdp_piece(f, 0, c->batch);
    int64_t first, rows = neo_fsdp_samples(f, 0, c->batch, &first);
    neo_fsdp *second;
    neo_fsdp_prediction p;
    double loss;
    NEO__ZERO(neo_loss_desc, none);
    neo_tensor out = rows_of(m->activation[LAYERS], rows, OUT);
    EXPECT_ERR(comm, neo_fsdp_create(comm, d, &second), NEO_ERR_ARG, "is bound by another owner");
    EXPECT_OK(comm, neo_fsdp_predict(ctx, d, ranks, neo_comm_rank(comm), &p));
    EXPECT_ERR(comm, neo_fsdp_piece_end(f), NEO_ERR_STATE,
               "neo_fsdp_piece_end: no backward has written the gradient of 'layer.0.weight' in "
               "unit 'root'");
    EXPECT_ERR(comm, neo_fsdp_step(f, 0.1f), NEO_ERR_STATE,
               pieces == 1 ? "neo_fsdp_step: no backward has written the gradient of "
                             "'layer.0.weight' in unit 'root'"
                           : "unit 'root' had the backward of 0 of 1 micro-batches, and 0 of");
    for (int i = 0; i < LAYERS; i++) EXPECT_OK(comm, layer_forward(ctx, m, i, rows));
    if (ranks > 1) {
        EXPECT_ERR(comm, layer_backward(ctx, m, NULL, 1, rows, 0), NEO_ERR_ARG,
                   "neo_linear_backward: leaves is NULL");
        EXPECT_ERR(comm, neo_mse(ctx, NULL, out, out, out, &loss), NEO_ERR_ARG,
                   "neo_mse: desc is NULL or its batch 0, which means that the");
        EXPECT_ERR(comm, neo_mse(ctx, &none, out, out, out, NULL), NEO_ERR_ARG, "ranks share it");
    }
    EXPECT_OK(comm, neo_mse(ctx, NULL, out, out, neo_tensor_none(), &loss)); /* only to look */
    EXPECT_OK(comm, neo_fsdp_backward_begin(f, 4, 0)); /* one with a window ... */
    EXPECT_OK(comm, layer_backward(ctx, m, &part, 4, rows, 0));
    EXPECT_ERR(comm, neo_fsdp_step(f, 0.1f), NEO_ERR_STATE, "unit 'b.4' is in a window");
    EXPECT_OK(comm, neo_fsdp_backward_end(f, 4));
    EXPECT_ERR(comm, layer_backward(ctx, m, &part, 4, rows, 0), NEO_ERR_STATE,
               "unit 'b.4' has had its backward (neo_fsdp_piece_end or neo_fsdp_step comes first)");
    for (int i = 0; i < LAYERS; i++) /* ... and one that lacks */
        if (i != 4 && i != 5) EXPECT_OK(comm, layer_backward(ctx, m, &part, i, rows, 0));
    EXPECT_ERR(comm, neo_fsdp_piece_end(f), NEO_ERR_STATE, "'layer.5.weight' in unit 'b.5'");
    EXPECT_OK(comm, layer_backward(ctx, m, &part, 5, rows, 0));
    EXPECT_OK(comm, neo_fsdp_piece_end(f));
    if (pieces == 1)
        EXPECT_ERR(comm, layer_backward(ctx, m, &part, 5, rows, 0), NEO_ERR_STATE,
                   "unit 'b.5' has had its backward");
    return neo_fsdp_cancel(f);
}
static neo_status bare(neo_comm *comm, void *user) {
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    neo_state *state;
    uint64_t digest, *want = (uint64_t *)user;
    c.bare = (1 << UNITS) - 1;
    c.desc.mode = NEO_FSDP_DDP;
    c.desc.param_dtype = NEO_BF16;
    c.desc.reduce_dtype = want[1] ? NEO_BF16 : NEO_F32;
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    neo_fsdp_prediction p;
    EXPECT_OK(comm, neo_fsdp_predict(neo_comm_ctx(comm), &d, neo_comm_size(comm),
                                     neo_comm_rank(comm), &p));
    size_t before = neo_ctx_memory(neo_comm_ctx(comm)).bytes;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    size_t took = neo_ctx_memory(neo_comm_ctx(comm)).bytes - before;
    EXPECT(comm, neo_comm_size(comm) > 1 || took == p.bytes, "%zu of %zu bytes", took, p.bytes);
    EXPECT_OK(comm, neo_state_create(neo_comm_ctx(comm), &state));
    EXPECT_OK(comm, neo_state_add_fsdp(state, f));
    NEO__TRY(mistakes_bare(comm, f, &c, &m, &d));
    for (int step = 0; step < 3; step++) { /* what is shown are the rounded masters */
        float rounded[16 * IN];
        neo_tensor shown = m.weight[0]->value, master = neo_state_tensor(state, 0);
        EXPECT_OK(comm, neo_round(neo_comm_ctx(comm), NEO_BF16, master,
                                  neo_tensor_2d(rounded, NEO_F32, 15, IN)));
        EXPECT(comm, memcmp(rounded, shown.data, neo_tensor_bytes(shown)) == 0, "step %d", step);
        EXPECT(comm, memcmp(master.data, shown.data, neo_tensor_bytes(shown)) != 0, "%d", step);
        EXPECT_OK(comm, train_step(comm, &c, f, &m, step));
    }
    neo_state_destroy(state);
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    if (neo_comm_size(comm) == 1) *want = digest;
    EXPECT(comm, digest == *want, "%016llx", (unsigned long long)digest);
    neo_fsdp_destroy(f);
    EXPECT_ERR(comm, layer_forward(neo_comm_ctx(comm), &m, 1, 2), NEO_ERR_STATE,
               "its set is not in memory");
    model_destroy(&m);
    return NEO_OK;
}
/* An MLP in a frozen unit passes on the gradient of its input, as one that learns. user: the mode.
 */
static neo_status frozen_mlp(neo_comm *comm, void *user) {
    enum { ROWS = 16 };
    neo_ctx *ctx = neo_comm_ctx(comm);
    float x[ROWS * IN], y[ROWS * OUT], dx[2][ROWS * IN];
    neo_params *set[3];
    neo_mlp *mlp[3]; /* that learns; that is frozen; plain, with the values of that */
    neo_fsdp_unit unit[2];
    neo_fsdp *f;
    neo_mlp_desc md;
    memset(&md, 0, sizeof md);
    memset(unit, 0, sizeof unit);
    md.width_count = 3, md.widths[0] = IN, md.widths[1] = 20, md.widths[2] = OUT;
    md.max_batch = ROWS, md.act = NEO_ACT_RELU;
    for (int i = 0; i < 3; i++) {
        md.name = i ? "frozen" : "learns";
        if (i < 2) EXPECT_OK(comm, neo_params_create_deferred(ctx, &set[i]));
        else EXPECT_OK(comm, neo_params_create(ctx, &set[i]));
        EXPECT_OK(comm, neo_mlp_create(ctx, set[i], &md, &mlp[i]));
        if (i < 2) unit[i].name = md.name, unit[i].params = set[i], unit[i].freeze = i;
    }
    NEO__ZERO(neo_fsdp_desc, d);
    d.units = unit, d.unit_count = 2, d.mode = *(const neo_fsdp_mode *)user;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    neo_leaves part = neo_fsdp_piece(f, 0, ROWS);
    int64_t first, n = neo_fsdp_samples(f, 0, ROWS, &first);
    for (int i = 0; i < ROWS * IN; i++) x[i] = float_of(i, 0, 1);
    neo_tensor in = rows_of(x, n, IN), out = rows_of(y, n, OUT);
    for (int u = 0; u < 2; u++) {
        EXPECT_OK(comm, neo_fsdp_forward_begin(f, u));
        EXPECT_OK(comm, neo_mlp_forward(mlp[u], in, out));
        EXPECT_OK(comm, neo_fsdp_forward_end(f, u));
    }
    EXPECT_OK(comm, neo_fsdp_backward_begin(f, 1, 0));
    EXPECT_OK(comm, neo_mlp_backward(mlp[1], &part, out, rows_of(dx[0], n, IN)));
    EXPECT_OK(comm, neo_fsdp_backward_end(f, 1));
    if (d.mode == NEO_FSDP_FULL) /* what lacks because no window is open is still an error */
        EXPECT_ERR(comm, neo_mlp_backward(mlp[0], &part, out, neo_tensor_none()), NEO_ERR_STATE,
                   "unit 'learns' is not in a window");
    EXPECT_OK(comm, neo_mlp_forward(mlp[2], in, out));
    EXPECT_OK(comm, neo_mlp_backward(mlp[2], &part, out, rows_of(dx[1], n, IN)));
    EXPECT(comm, memcmp(dx[0], dx[1], (size_t)(n * IN) * sizeof(float)) == 0, "other bits");
    EXPECT_OK(comm, neo_fsdp_backward_begin(f, 0, 0));
    EXPECT_OK(comm, neo_mlp_backward(mlp[0], &part, out, neo_tensor_none()));
    EXPECT_OK(comm, neo_fsdp_backward_end(f, 0));
    EXPECT_OK(comm, neo_fsdp_step(f, 0.1f));
    neo_fsdp_destroy(f);
    EXPECT(comm, !neo_params_at(set[1], 0)->frozen, "frozen without its owner");
    for (int i = 0; i < 3; i++) neo_mlp_destroy(mlp[i]), neo_params_destroy(set[i]);
    return NEO_OK;
}
/* One rank opens another unit of the same size. */
static neo_status other_order(neo_comm *comm, void *user) {
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    (void)user;
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    d.no_prefetch = 1;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    EXPECT(comm, inside_fsdp_elements(f, 4) == inside_fsdp_elements(f, 5), "%d",
           (int)inside_fsdp_elements(f, 4));
    int rank = neo_comm_rank(comm), odd = rank == neo_comm_size(comm) - 1;
    EXPECT_ERR(comm, neo_fsdp_forward_begin(f, odd ? 5 : 4), NEO_ERR_DIVERGED, "'b.4'");
    EXPECT(comm, strstr(neo_last_error(), "'b.5'") != NULL, "%s", neo_last_error());
    EXPECT(comm, neo_fsdp_forward_begin(f, 1) != NEO_OK, "a broken group goes on");
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
/* One rank computes two units in another order; both are gathered by then, or come in the same
   order. */
static neo_status swapped(neo_comm *comm, void *user) {
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    int rank = neo_comm_rank(comm), odd = rank == 1, late = *(const int *)user;
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    d.mode = late ? NEO_FSDP_DDP : NEO_FSDP_FULL;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    EXPECT_OK(comm, train_step(comm, &c, f, &m, 0));
    neo_status status = NEO_OK;
    for (int k = 0; k < 2 && status == NEO_OK; k++) {
        int unit = odd ? 4 - k : 3 + k;
        status = neo_fsdp_forward_begin(f, unit);
        if (status == NEO_OK) status = neo_fsdp_forward_end(f, unit);
    }
    if (status == NEO_OK) status = train_step(comm, &c, f, &m, 1);
    EXPECT(comm, status == NEO_ERR_DIVERGED, "%s: %s", neo_status_string(status), neo_last_error());
    EXPECT(comm, strstr(neo_last_error(), "b.3") && strstr(neo_last_error(), "b.4"), "%s",
           neo_last_error());
    if (late) { /* nothing has changed, and the group works */
        EXPECT(comm,
               strstr(neo_last_error(),
                      "rank 1: neo_fsdp_step: window 0 of the step is forward of unit 'b.4' "
                      "here, forward of unit 'b.3' on rank 0"),
               "%s", neo_last_error());
        EXPECT_OK(comm, train_step(comm, &c, f, &m, 1));
        EXPECT_OK(comm, train_step(comm, &c, f, &m, 2));
    }
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
/* A rank is lost at one call after another: nobody hangs. */
static neo_status lost(neo_comm *comm, void *user) {
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    neo_fault fault = {NEO_FAULT_KILL, *(const int *)user, 0};
    EXPECT_OK(comm, model_create(neo_comm_ctx(comm), &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    neo_status status =
        neo_fsdp_create(comm, &d, &f); /* others may still be in it when rank 1 is lost */
    EXPECT(comm, status == NEO_OK || neo_comm_rank(comm) != 1, "%s", neo_last_error());
    if (status == NEO_OK && neo_comm_rank(comm) == 1)
        EXPECT_OK(comm, neo_comm_inject(inside_of_fsdp(f).shard, fault));
    for (int step = 0; step < 3 && status == NEO_OK; step++)
        status = train_step(comm, &c, f, &m, step);
    EXPECT(comm, status == NEO_ERR_PEER || status == NEO_ERR_TIMEOUT, "%s",
           neo_status_string(status));
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return status;
}

/* ---- descriptions that are refused ---- */
typedef struct Refusal {
    const char *message;
    neo_status status;
    void (*spoil)(neo_fsdp_desc *d, neo_fsdp_unit *units, int rank);
} Refusal;
static void no_units(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->unit_count = 0, (void)u, (void)rank;
}
static void no_name(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)d, u[2].name = "", (void)rank;
}
static void no_set(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)d, u[2].params = NULL, (void)rank;
}
static void twice(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)d, u[2].params = u[1].params, (void)rank;
}
static void factor(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->factor = 3, (void)u, (void)rank;
}
static void scale(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->loss_scale = 1000.0f, (void)u, (void)rank;
}
static void dtype(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->param_dtype = NEO_I8, (void)u, (void)rank;
}
static void slots(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->slots = -1, (void)u, (void)rank;
}
static void mode(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->mode = NEO_FSDP_MODE_COUNT, (void)u, (void)rank;
}
static void groups(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->accumulate = NEO_ACCUMULATE_IN_GROUPS, d->groups = 3, d->micro_batches = 2, (void)u,
    (void)rank;
}
static void leafwise(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->accumulate = NEO_ACCUMULATE_IN_GROUPS, d->groups = 4, d->micro_batches = 2,
    d->leaf_pieces = 1, (void)u, (void)rank;
}
static void eps(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    d->optim.eps = -1.0f, (void)u, (void)rank;
}
static void one_rank(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)u;
    if (rank == 2) d->slots = 1;
}
static void other_eps(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)u;
    if (rank == 2) d->optim.eps = 1e-3f;
}
static void other_unit(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)d;
    if (rank == 2) u[1].keep = !u[1].keep;
}
static void one_rank_bad(neo_fsdp_desc *d, neo_fsdp_unit *u, int rank) {
    (void)u;
    if (rank == 2) d->slots = -1;
}
static const Refusal refusals[] = {
    {"desc has no units", NEO_ERR_ARG, no_units},
    {"unit 2 has no name", NEO_ERR_ARG, no_name},
    {"params of unit 'b.2' are not a deferred set", NEO_ERR_ARG, no_set},
    {"units 'b.1' and 'b.2' both have a parameter 'layer.1.weight'", NEO_ERR_ARG, twice},
    {"factor is 3, which does not divide the 4 ranks", NEO_ERR_ARG, factor},
    {"loss_scale is 1000, not a power of two", NEO_ERR_ARG, scale},
    {"param_dtype is i8, not f32, f16 or bf16", NEO_ERR_ARG, dtype},
    {"is negative: -1, 0, 0, 0", NEO_ERR_ARG, slots},
    {"no mode 4", NEO_ERR_ARG, mode},
    {"micro-batches that add in 3 groups", NEO_ERR_UNSUPPORTED, groups},
    {"not in 4 groups of 8 leaves", NEO_ERR_UNSUPPORTED, leafwise},
    {"eps is -1", NEO_ERR_ARG, eps},
    {"rank 2: neo_fsdp_create: other slots, no_prefetch, micro_batches", NEO_ERR_MISMATCH,
     one_rank},
    {"another optimizer than rank 0", NEO_ERR_MISMATCH, other_eps},
    {"other units than rank 0", NEO_ERR_MISMATCH, other_unit},
    {"rank 2: neo_fsdp_create: slots", NEO_ERR_ARG, one_rank_bad},
};
static neo_status refused(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    (void)user;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        Config c = config_new();
        Model m;
        neo_fsdp *f = NULL;
        EXPECT_OK(comm, model_create(ctx, &c, 1, &m));
        neo_fsdp_desc d = c.desc;
        d.units = m.unit;
        refusals[i].spoil(&d, m.unit, neo_comm_rank(comm));
        size_t before = neo_ctx_memory(ctx).bytes;
        EXPECT_ERR(comm, neo_fsdp_create(comm, &d, &f), refusals[i].status, refusals[i].message);
        EXPECT_OK(comm,
                  neo_comm_barrier(comm, NULL)); /* the last rank to leave a group takes it away */
        EXPECT(comm, !f && neo_ctx_memory(ctx).bytes == before, "%s: %d bytes are left",
               refusals[i].message, (int)(neo_ctx_memory(ctx).bytes - before));
        model_destroy(&m);
    }
    int64_t cube[] = {2, 2, 2};
    neo_params *set;
    neo_fsdp *f;
    NEO__ZERO(neo_init, init);
    EXPECT_OK(comm, neo_params_create_deferred(ctx, &set));
    EXPECT_OK(comm, neo_params_add(set, "cube", 3, cube, init, NULL));
    neo_fsdp_unit unit = {"u", set, 0, 0, 0};
    NEO__ZERO(neo_fsdp_desc, d);
    d.units = &unit;
    d.unit_count = 1;
    EXPECT_ERR(comm, neo_fsdp_create(comm, &d, &f), NEO_ERR_UNSUPPORTED,
               "'cube' of unit 'u' has 3 dimensions");
    unit.replicate = 1;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    neo_fsdp *second;
    EXPECT_OK(comm, neo_fsdp_forward_begin(f, 0)); /* bound now */
    EXPECT_ERR(comm, neo_fsdp_create(comm, &d, &second), NEO_ERR_ARG,
               "'cube' of unit 'u' is bound by another owner");
    neo_fsdp_destroy(f);
    neo_params_destroy(set);
    return NEO_OK;
}

/* ---- memory ---- */
typedef struct Limit {
    size_t left; /* bytes a rank may have */
    int refuse;  /* this call, counted from 1, gets nothing; 0: none */
} Limit;
static Limit limit;
static __thread size_t taken;
static __thread int asked, counting;
static void *limited_alloc(size_t bytes, size_t align, void *user) {
    (void)user;
    if (counting && ++asked == limit.refuse) return NULL;
    if (counting && limit.left && taken + bytes > limit.left) return NULL;
    taken += bytes;
    size_t room = (bytes + align - 1) / align * align;
    return aligned_alloc(align, room ? room : align);
}
static void limited_free(void *ptr, size_t bytes, void *user) {
    (void)user;
    taken -= bytes;
    free(ptr);
}
/* 16 units of 64 KiB; a rank may have less memory than their values alone take. user: the mode. */
enum { TIGHT_UNITS = 16, TIGHT = 16384 };
static neo_status tight_step(neo_fsdp *f, neo_params *const *set) {
    for (int i = 0; i < 2 * TIGHT_UNITS; i++) {
        int u = i < TIGHT_UNITS ? i : 2 * TIGHT_UNITS - 1 - i;
        const neo_param *p = neo_params_at(set[u], 0);
        if (i < TIGHT_UNITS) {
            NEO__TRY(neo_fsdp_forward_begin(f, u));
            NEO__TRY(neo_fsdp_forward_end(f, u));
            continue;
        }
        NEO__TRY(neo_fsdp_backward_begin(f, u, 0));
        for (int k = 0; k < TIGHT; k++)
            ((float *)p->grad.data)[k] = 0.5f * ((const float *)p->value.data)[k];
        NEO__TRY(neo_fsdp_backward_end(f, u));
    }
    return neo_fsdp_step(f, 0.01f);
}
static neo_status tight(neo_comm *comm, void *user) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                        "i", "j", "k", "l", "m", "n", "o", "p"};
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_params *set[TIGHT_UNITS];
    neo_fsdp_unit unit[TIGHT_UNITS];
    neo_fsdp *f;
    int64_t shape[] = {TIGHT};
    neo_init init = {NEO_INIT_UNIFORM, -1, 1};
    NEO__ZERO(neo_fsdp_desc, d);
    memset(unit, 0, sizeof unit);
    for (int u = 0; u < TIGHT_UNITS; u++) {
        EXPECT_OK(comm, neo_params_create_deferred(ctx, &set[u]));
        EXPECT_OK(comm, neo_params_add(set[u], names[u], 1, shape, init, NULL));
        unit[u].name = names[u];
        unit[u].params = set[u];
    }
    d.units = unit;
    d.unit_count = TIGHT_UNITS;
    d.optim.kind = NEO_OPTIM_ADAM;
    d.mode = *(const neo_fsdp_mode *)user;
    taken = 0, counting = 1;
    neo_status status = neo_fsdp_create(comm, &d, &f);
    EXPECT(comm, status == (d.mode == NEO_FSDP_FULL ? NEO_OK : NEO_ERR_MEMORY), "%s: %s",
           neo_fsdp_mode_name(d.mode), neo_last_error());
    for (int step = 0; step < 3 && status == NEO_OK; step++) EXPECT_OK(comm, tight_step(f, set));
    if (status == NEO_OK) neo_fsdp_destroy(f);
    counting = 0;
    for (int u = 0; u < TIGHT_UNITS; u++) neo_params_destroy(set[u]);
    return NEO_OK;
}
static int create_failed;
static neo_status no_memory(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    Config c = config_new();
    Model m;
    neo_fsdp *f;
    (void)user;
    EXPECT_OK(comm, model_create(ctx, &c, 1, &m));
    neo_fsdp_desc d = c.desc;
    d.units = m.unit;
    size_t before = neo_ctx_memory(ctx).bytes;
    asked = 0, counting = neo_comm_rank(comm) == 1;
    neo_status status = neo_fsdp_create(comm, &d, &f);
    counting = 0;
    int64_t bad = status != NEO_OK, sum = 0;
    if (neo_comm_rank(comm) == 0) create_failed = status != NEO_OK;
    if (neo_comm_status(comm) != NEO_OK) { /* no memory to split the group: that breaks it */
        EXPECT(comm, bad, "a broken group makes a neo_fsdp");
        model_destroy(&m);
        return NEO_OK;
    }
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &bad, &sum, 1, NEO_I64, NULL));
    EXPECT(comm, sum == 0 || sum == neo_comm_size(comm), "%d ranks of %d fail", (int)sum,
           neo_comm_size(comm));
    if (status == NEO_OK) neo_fsdp_destroy(f);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    EXPECT(comm, neo_ctx_memory(ctx).bytes == before, "%zu bytes are left",
           neo_ctx_memory(ctx).bytes - before);
    model_destroy(&m);
    return NEO_OK;
}
static int memory(void) {
    int bad = 0;
    neo_comm_desc d = job();
    d.ctx.allocator.alloc = limited_alloc;
    d.ctx.allocator.free = limited_free;
    limit.left = TIGHT_UNITS * TIGHT * sizeof(float) / 16 * 15;
    static const neo_fsdp_mode modes[] = {NEO_FSDP_FULL, NEO_FSDP_DDP, NEO_FSDP_ZERO1};
    for (int i = 0; i < 3; i++) bad += run_ranks(8, &d, tight, (void *)(uintptr_t)&modes[i]);
    limit.left = 0;
    create_failed = 1;
    for (limit.refuse = 1; create_failed && limit.refuse < 200; limit.refuse++)
        bad += run_ranks(3, &d, no_memory, NULL);
    SAME(limit.refuse > 10 && limit.refuse < 200, 1, "memory: %d allocations\n", limit.refuse);
    return bad;
}

/* check_finite: what a sum over ranks, a step and a gather make of finite gradients. */
static neo_status finite_step(neo_fsdp *f, neo_params *set, float grad, float lr) {
    NEO__TRY(neo_fsdp_forward_begin(f, 0));
    NEO__TRY(neo_fsdp_forward_end(f, 0));
    NEO__TRY(neo_fsdp_backward_begin(f, 0, 0));
    for (int64_t i = 0; i < 1000; i++) ((float *)neo_params_at(set, 0)->grad.data)[i] = grad;
    NEO__TRY(neo_fsdp_backward_end(f, 0));
    return neo_fsdp_step(f, lr);
}
static neo_status numbers_found(neo_comm *comm, void *user) {
    const int64_t shape[2] = {10, 100};
    const neo_init init = {NEO_INIT_CONSTANT, 1.0f, 0.0f};
    neo_fsdp_unit unit;
    neo_fsdp_desc d;
    neo_params *set;
    neo_fsdp *f;
    (void)user;
    memset(&d, 0, sizeof d);
    memset(&unit, 0, sizeof unit);
    EXPECT_OK(comm, neo_params_create_deferred(neo_comm_ctx(comm), &set));
    EXPECT_OK(comm, neo_params_add(set, "head", 2, shape, init, NULL));
    unit.name = "unit", unit.params = set;
    d.units = &unit, d.unit_count = 1;
    d.optim.kind = NEO_OPTIM_SGD;
    EXPECT_OK(comm, neo_fsdp_create(comm, &d, &f));
    EXPECT_OK(comm, finite_step(f, set, 1.0f, 0.5f));
    EXPECT_ERR(comm, finite_step(f, set, 3e38f, 0.5f), NEO_ERR_NUMERIC,
               "neo_optim_step: the gradient of head[0] is inf at step 2"); /* the sum */
    EXPECT_OK(comm, finite_step(f, set, 1.0f, 0.5f));
    EXPECT_ERR(comm, finite_step(f, set, 1e30f, 1e30f), NEO_ERR_NUMERIC,
               "neo_optim_step: head[0] is -inf at step 3, from finite numbers"); /* each shard */
    EXPECT_ERR(comm, neo_fsdp_forward_begin(f, 0), NEO_ERR_NUMERIC,
               "neo_fsdp_forward_begin: head[0][0] is -inf at step 3");
    neo_fsdp_destroy(f);
    neo_params_destroy(set);
    return NEO_OK;
}

int main(void) {
    int bad = 0, calls[] = {0, 1, 3, 8, 20};
    neo_comm_desc d = job();
    narrow();
    scaler();
    clip();
    frozen();
    cancelled();
    delayed();
    Watch plain = {0};
    plain.config = config_new();
    go(1, &plain);
    for (int w = 1; w <= 3; w++) bad += run_ranks(w, &d, offloaded, &plain.digest);
    Watch looked = plain;
    looked.check_finite = 1;
    go(3, &looked);
    SAME(looked.digest, plain.digest, "check_finite changes the bits\n");
    SAME(looked.norms, plain.norms, "norms of 3 ranks differ\n");
    d.ctx.check_finite = 1;
    bad += run_ranks(2, &d, numbers_found, NULL);
    d.ctx.check_finite = 0;
    uint64_t of_tied = 0;
    for (int w = 1; w <= 8; w++) bad += run_ranks(w, &d, tied, &of_tied);
    uint64_t of_hands[2] = {0, 0};
    for (int w = 1; w <= 4; w *= 2)
        bad += run_ranks(w, &d, by_hand, of_hands) + run_ranks(w, &d, bounded, NULL);
    for (int w = 1; w <= 4; w++) bad += run_ranks(w, &d, windows, NULL);
    for (int mode = 0; mode < NEO_FSDP_MODE_COUNT; mode++)
        for (int w = 1; w <= 2; w++) bad += run_ranks(w, &d, frozen_mlp, &mode);
    for (int narrow_sums = 0; narrow_sums < 2; narrow_sums++) {
        uint64_t of_bare[2] = {0, (uint64_t)narrow_sums};
        for (int w = 1; w <= 4; w++) bad += run_ranks(w, &d, bare, of_bare);
    }
    bad += run_ranks(4, &d, refused, NULL);
    bad += run_ranks(4, &d, other_order, NULL);
    for (int late = 0; late < 2; late++) bad += run_ranks(3, &d, swapped, &late);
    d.virtual_clock = 1;
    for (int i = 0; i < 5; i++) {
        neo_status each[3];
        d.ranks = 3;
        (void)neo_comm_spawn(3, &d, lost, &calls[i], each);
    }
    bad += memory();
    return ranks_end("fsdp/dtypes_and_faults", bad);
}
