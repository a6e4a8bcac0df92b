/* bags.cpp: embedding bags on a device give the CPU's bits.

   The same object is made on a context of the CPU and on one of a device, the kernels of which run
   on the CPU too (cuda_on_cpu.h); compiled by nvcc it runs on a GPU. The same random batches go
   through every call of both; outputs, rows, scales, optimizer states and kept gradients are
   compared by memcmp, errors by their text, memory by the prediction. Tables in a tier have so few
   lines in the device's memory that their rows leave many times. NEO_EMU_SEED picks the order
   in which blocks, warps and lanes run; by default several are tried.

   Built for the emulation by emulator/kernels.cpp,
   or nvcc -x cu -std=c++17 -arch=native -I. -Itests -lcublasLt */
#ifndef NEO_EMU_KERNELS
#define NEO_IMPLEMENTATION
#define NEO_ASSERT(x) ((x) ? (void)0 : abort()) /* of addresses, too: a GPU stops there */
#define NEO__CUDA_WORK_BYTES ((size_t)1 << 16) /* less memory to guard while the host runs */
#define NEO__BAG_STAGE (1 << 13)
#define NEO__BAGS_THREADS 64 /* little work, so that a lane takes several bags */
#define NEO__JOB_PARTS 30    /* fewer than hot_row has */
#endif
#include "test.h"

#include "neo_cuda.cuh"
#include "neo_state.h"
#include "neo_store.h"

#include <string>
#include <vector>

/* ---- random numbers ---- */
static uint64_t state = 1;
static uint64_t rnd() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return neo__mix64(state);
}
static int64_t below(int64_t n) { return (int64_t)(rnd() % (uint64_t)n); }
static int chance(int percent) { return below(100) < percent; }
static float value() { return (float)((double)below(2000001) / 1e6 - 1.0); }

/* ---- the device ---- */
#if defined(NEO_CUDA_ON_CPU)
static const int emulated = 1;
static size_t live_bytes() { return neo_emu_live_bytes(); }
#else
static const int emulated = 0;
static size_t live_bytes() { return 0; }
#endif
static neo_device *gpu;
static neo_status (*gpu_copy)(neo_device *, void *, neo_place, const void *, neo_place, size_t);
static size_t copied_in; /* bytes that calls brought to the device */
static neo_status count_copy(neo_device *d, void *to, neo_place to_place, const void *from,
                             neo_place from_place, size_t bytes) {
    if (to_place == NEO_DEVICE && from_place == NEO_HOST) copied_in += bytes;
    return gpu_copy(d, to, to_place, from, from_place, bytes);
}
static void *to_device(const void *p, size_t bytes) {
    void *d = gpu->alloc(gpu, bytes);
    if (!d || gpu_copy(gpu, d, NEO_DEVICE, p, NEO_HOST, bytes) != NEO_OK) abort();
    return d;
}

/* ---- a model: one description, two objects ---- */
struct Model {
    std::vector<neo_table_desc> tables;
    std::vector<std::string> names;
    std::vector<int32_t> feature_table;
    neo_bags_desc desc = {};
    int shards = 1;
    int is_tiered = 0; /* below the device: 1: in host memory, 2: in a file */
    neo_tier_desc tier_desc = {NULL, 0, NEO_EVICT_LRU, 0, 2, 0, 0, 0}; /* bytes: above the least */
    neo_ctx *ctx[2] = {};
    neo_bags *bags[2] = {};
    neo_tier *tier = NULL;
    neo_memory before[2];

    void add(int64_t rows, int64_t dim, neo_bag_optim_kind kind, neo_dtype dtype = NEO_F32,
             neo_pooling pooling = NEO_POOL_SUM) {
        neo_table_desc t = {};
        t.rows = rows;
        t.dim = dim;
        t.dtype = dtype;
        t.pooling = pooling;
        t.optim.kind = kind;
        tables.push_back(t);
    }
    /* The least that create accepts, by its messages, and what the test adds. */
    void make_tier() {
        const int64_t extra = tier_desc.memory_bytes;
        neo_bags_memory memory;
        tier_desc.path = is_tiered == 2 ? tmp_path("device.tier") : NULL;
        tier_desc.memory_bytes = 1;
        for (int tries = 0; tries < 20; tries++) {
            CHECK_OK(neo_tier_create(ctx[1], &tier_desc, &tier));
            desc.tier = tier;
            const neo_status status = neo_bags_bytes(ctx[1], &desc, &memory);
            if (status == NEO_OK && tries > 0 && extra == 0) return;
            const char *needs = strstr(neo_last_error(), "needs ");
            if (status != NEO_OK) CHECK(status == NEO_ERR_ARG && needs);
            if (status == NEO_OK) break;
            neo_tier_destroy(tier);
            tier_desc.memory_bytes = needs ? strtoll(needs + 6, NULL, 10) : 1 << 20;
        }
        neo_tier_destroy(tier);
        tier_desc.memory_bytes += extra;
        CHECK_OK(neo_tier_create(ctx[1], &tier_desc, &tier));
        desc.tier = tier;
    }
    void make(int64_t max_batch, int64_t max_ids) {
        for (size_t i = 0; i < tables.size(); i++) names.push_back("table" + std::to_string(i));
        for (size_t i = 0; i < tables.size(); i++) tables[i].name = names[i].c_str();
        if (feature_table.empty())
            for (size_t i = 0; i < tables.size(); i++) feature_table.push_back((int32_t)i);
        desc.tables = tables.data();
        desc.table_count = (int32_t)tables.size();
        desc.feature_table = feature_table.data();
        desc.feature_count = (int32_t)feature_table.size();
        desc.max_batch = max_batch;
        desc.max_ids = max_ids;
        for (int k = 0; k < 2; k++) {
            neo_ctx_desc c = {};
            c.threads = 1;
            c.seed = 42;
            c.repro_shards = shards;
            c.device = k ? gpu : NULL;
            CHECK_OK(neo_ctx_create(&c, &ctx[k]));
            neo_bags_memory m;
            if (k && is_tiered) make_tier();
            CHECK_OK(neo_bags_bytes(ctx[k], &desc, &m));
            size_t at = neo_ctx_memory(ctx[k]).bytes, live = live_bytes(),
                   there = neo_ctx_memory(ctx[k]).device_bytes;
            CHECK_OK(neo_bags_create(ctx[k], &desc, &bags[k]));
            before[k] = neo_ctx_memory(ctx[k]);
            if (k && is_tiered)
                CHECK((int64_t)(before[k].device_bytes - there) <= tier_desc.memory_bytes);
            CHECK_INT(before[k].bytes - at, m.weight_bytes + m.state_bytes + m.workspace_bytes);
            live = live_bytes() - live;
            if (emulated) CHECK(k ? live > 0 && live <= before[k].bytes - at : live == 0);
        }
    }
    /* A step has taken no memory. */
    void check_memory() {
        for (int k = 0; k < 2; k++)
            CHECK_INT(neo_ctx_memory(ctx[k]).alloc_count, before[k].alloc_count);
    }
    ~Model() {
        for (int k = 0; k < 2; k++) {
            size_t at = bags[k] ? neo_ctx_memory(ctx[k]).bytes : 0;
            neo_bags_destroy(bags[k]);
            if (k) neo_tier_destroy(tier);
            CHECK(!ctx[k] || neo_ctx_memory(ctx[k]).bytes <= at);
            neo_ctx_destroy(ctx[k]);
        }
    }
    Model() {}
    Model(const Model &) = delete;
};
static void check_tensor(neo_tensor a, neo_tensor b, const char *what, int table,
                         neo_ctx *ctx = NULL) {
    size_t bytes = neo_tensor_bytes(a);
    if (!a.data || !b.data) {
        if (a.data || b.data) FAIL("%s of table %d: only one has it", what, table);
        return;
    }
    CHECK(a.place == NEO_HOST && (b.place == NEO_DEVICE || (ctx && b.place == NEO_FILE)) &&
          neo_tensor_bytes(b) == bytes);
    std::vector<char> got(bytes);
    if (b.place == NEO_FILE) CHECK_OK(neo__data_read(ctx, got.data(), b.data, b.place, bytes));
    else CHECK_OK(gpu_copy(gpu, got.data(), NEO_HOST, b.data, NEO_DEVICE, bytes));
    const char *want = (const char *)a.data;
    for (size_t i = 0; i < bytes; i++)
        if (want[i] != got[i]) {
            FAIL("%s of table %d differs at byte %zu of %zu", what, table, i, bytes);
            return;
        }
}
static void check_same(const Model &m) {
    for (int32_t t = 0; t < (int32_t)m.tables.size(); t++) {
        check_tensor(neo_bags_weight(m.bags[0], t), neo_bags_weight(m.bags[1], t), "weight", t,
                     m.ctx[1]);
        check_tensor(neo_bags_scale(m.bags[0], t), neo_bags_scale(m.bags[1], t), "scale", t,
                     m.ctx[1]);
        for (int k = 0; k < 2; k++)
            check_tensor(neo_bags_state(m.bags[0], t, k), neo_bags_state(m.bags[1], t, k), "state",
                         t, m.ctx[1]);
    }
    neo_bags_stats a = neo_bags_get_stats(m.bags[0]), b = neo_bags_get_stats(m.bags[1]);
    CHECK_INT(b.steps, a.steps);
    CHECK_INT(b.out_of_range, a.out_of_range);
    CHECK_INT(neo_bags_kept_count(m.bags[1]), neo_bags_kept_count(m.bags[0]));
    for (int64_t i = 0; i < neo_bags_kept_count(m.bags[0]); i++) {
        int32_t ta = -1, tb = -2;
        int64_t ra = -1, rb = -2;
        const float *ga = neo_bags_kept_row(m.bags[0], i, &ta, &ra),
                    *gb = neo_bags_kept_row(m.bags[1], i, &tb, &rb);
        if (ta != tb || ra != rb || !gb || memcmp(ga, gb, (size_t)m.tables[(size_t)ta].dim * 4)) {
            FAIL("kept row %" PRId64 ": (%d, %" PRId64 ") and (%d, %" PRId64 "), or its numbers", i,
                 ta, ra, tb, rb);
            return;
        }
    }
}

/* ---- a batch ---- */
struct Batch {
    std::vector<int64_t> offsets, id64, feature_bags;
    std::vector<int32_t> id32;
    std::vector<float> weights;
    neo_jagged j = {}, on_device = {};
    void finish(const Model &m, int64_t batch, int is_i32) {
        j = {};
        j.batch = batch;
        j.feature_count = (int32_t)m.feature_table.size();
        j.id_dtype = is_i32 ? NEO_I32 : NEO_I64;
        for (int64_t id : id64) id32.push_back((int32_t)id);
        id64.push_back(0), id32.push_back(0); /* never empty */
        j.offsets = offsets.data();
        j.ids = is_i32 ? (const void *)id32.data() : id64.data();
        if (!weights.empty()) weights.push_back(0), j.weights = weights.data();
        if (!feature_bags.empty()) j.feature_bags = feature_bags.data();
    }
    /* The same in the device's memory. */
    const neo_jagged *there() {
        if (on_device.offsets) return &on_device;
        on_device = j;
        on_device.place = NEO_DEVICE;
        on_device.offsets = (int64_t *)to_device(offsets.data(), offsets.size() * 8);
        on_device.ids = to_device(j.ids, id64.size() * (j.id_dtype == NEO_I32 ? 4 : 8));
        if (j.weights) on_device.weights = (float *)to_device(weights.data(), weights.size() * 4);
        return &on_device;
    }
    Batch() {}
    Batch(const Batch &) = delete;
    ~Batch() {
        gpu->free(gpu, (void *)on_device.offsets, 0);
        gpu->free(gpu, (void *)on_device.ids, 0);
        gpu->free(gpu, (void *)on_device.weights, 0);
    }
};
struct Shape {
    int64_t batch = 9, length = 5; /* length: the longest bag */
    int weighted = 0, i32 = 0, variable = 0, bad = 0, empty = 20; /* percent */
    int64_t skip = 0; /* the batch begins there in its arrays */
};
static void fill(Batch *b, const Model &m, const Shape &s) {
    for (int64_t i = 0; i < s.skip; i++) b->id64.push_back(-77), b->weights.push_back(NAN);
    b->offsets.push_back(s.skip);
    if (s.variable) b->feature_bags.push_back(0);
    for (int32_t table : m.feature_table) {
        int64_t rows = m.tables[(size_t)table].rows,
                bags = s.variable ? below(s.batch + 1) : s.batch;
        for (int64_t i = 0; i < bags; i++) {
            int64_t n = chance(s.empty) ? 0 : below(s.length + 1);
            for (int64_t k = 0; k < n; k++) {
                int64_t id = chance(50) ? below(rows) : below(NEO__MIN(rows, (int64_t)3));
                if (chance(s.bad)) id = chance(50) ? -1 - below(5) : rows + below(5);
                b->id64.push_back(id);
                b->weights.push_back(chance(10) ? (chance(50) ? 0.0f : -1e-30f) : value());
            }
            b->offsets.push_back((int64_t)b->id64.size());
        }
        if (s.variable) b->feature_bags.push_back((int64_t)b->offsets.size() - 1);
    }
    if (!s.weighted) b->weights.clear();
    b->finish(m, s.batch, s.i32);
}

/* ---- tensors that go with a batch, on both sides ---- */
struct Pair {
    std::vector<float> host;
    neo_tensor t[2];
    Pair(const Model &m, const Batch &b, int64_t pad = 0) {
        int64_t rows = b.j.batch, cols = 0;
        for (int32_t table : m.feature_table) cols += m.tables[(size_t)table].dim;
        if (m.tables[0].pooling == NEO_POOL_NONE)
            rows = b.offsets.back() - b.offsets[0], cols = m.tables[0].dim;
        else if (b.j.feature_bags) {
            rows = 0;
            for (size_t f = 0; f < m.feature_table.size(); f++)
                rows += (b.feature_bags[f + 1] - b.feature_bags[f]) *
                        m.tables[(size_t)m.feature_table[f]].dim;
            cols = 0;
        }
        int64_t width = cols ? cols + pad : 1;
        host.resize((size_t)(rows * width) + 1);
        for (float &x : host) x = chance(10) ? 1e-30f : value(); /* times a small weight it is -0 */
        for (int k = 0; k < 2; k++) {
            void *p = k ? to_device(host.data(), host.size() * 4) : host.data();
            t[k] = cols ? neo_tensor_2d(p, NEO_F32, rows, cols) : neo_tensor_1d(p, NEO_F32, rows);
            if (cols) t[k].stride[0] = width;
            t[k].place = k ? NEO_DEVICE : NEO_HOST;
        }
    }
    Pair(const Pair &) = delete;
    void check(const char *what) {
        std::vector<float> got(host.size());
        CHECK_OK(gpu_copy(gpu, got.data(), NEO_HOST, t[1].data, NEO_DEVICE, got.size() * 4));
        for (size_t i = 0; i < got.size(); i++)
            if (memcmp(&got[i], &host[i], 4)) {
                FAIL("%s differs at %zu of %zu: %.9g, not %.9g", what, i, got.size(),
                     (double)got[i], (double)host[i]);
                return;
            }
    }
    ~Pair() { gpu->free(gpu, t[1].data, 0); }
};

/* ---- one batch through the calls ---- */
static const neo_jagged *side(Batch *b, int k, int place) {
    return k && place ? b->there() : &b->j;
}
static void forward(const Model &m, Batch *b, int place, int64_t pad = 0) {
    Pair out(m, *b, pad);
    for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_forward(m.bags[k], side(b, k, place), out.t[k]));
    out.check("out");
}
static void weight_grad(const Model &m, Batch *b, int place) {
    Pair dout(m, *b);
    size_t ids = (size_t)(b->offsets.back() - b->offsets[0]);
    std::vector<float> want(ids + 1, 7.0f), got(ids + 1);
    float *there = (float *)to_device(want.data(), want.size() * 4);
    CHECK_OK(neo_bags_weight_grad(m.bags[0], &b->j, dout.t[0], want.data()));
    CHECK_OK(neo_bags_weight_grad(m.bags[1], side(b, 1, place), dout.t[1], there));
    CHECK_OK(gpu_copy(gpu, got.data(), NEO_HOST, there, NEO_DEVICE, got.size() * 4));
    CHECK(!memcmp(want.data(), got.data(), got.size() * 4));
    gpu->free(gpu, there, 0);
}
static void backward(const Model &m, Batch *b, int place, int64_t pad = 0) {
    Pair dout(m, *b, pad);
    for (int k = 0; k < 2; k++)
        CHECK_OK(neo_bags_backward(m.bags[k], side(b, k, place), dout.t[k], 0.1f));
}
static void steps(const Model &m, const Shape &s, int count) {
    for (int i = 0; i < count; i++) {
        Batch b;
        fill(&b, m, s);
        int place = i & 1;
        forward(m, &b, place, i % 3 == 2 ? 3 : 0);
        if (i == 0) weight_grad(m, &b, place);
        backward(m, &b, place, i % 3 == 1 ? 4 : 0);
        check_same(m);
        if (test_errors) return;
    }
}

/* ---- every optimizer, every dtype ---- */
static neo_bag_optim optim_of(neo_bag_optim_kind kind, int way) {
    neo_bag_optim o = {};
    o.kind = kind;
    int own = kind >= NEO_BAG_LAMB;
    if (own) o.weight_decay = 0.01f, o.l1 = 0.01f;
    if (kind == NEO_BAG_LARS_SGD) o.momentum = 0.9f, o.eta = 0.5f;
    if (way == 0) return o;
    o.eps = 1e-4f;
    o.lr_scale = 0.5f;
    o.initial_accumulator = 0.125f;
    if (way & 1) o.clip_gradient = 0.25f;
    if (way & 2) o.max_norm = 0.5f;
    if (!own) o.decay = way & 4 ? NEO_DECAY_DECOUPLED : NEO_DECAY_L2, o.weight_decay = 0.02f;
    return o;
}
static void optimizers(void) {
    static const neo_dtype dtypes[4] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const int64_t dims[6] = {4, 20, 16, 33, 64, 7};
    for (int kind = 0; kind < NEO_BAG_OPTIM_COUNT; kind++) {
        for (int d = 0; d < 4; d++) {
            Model m;
            m.shards = 1 + (kind + d) % 3;
            for (int way = 0; way < 6; way++) {
                m.add(11 + 3 * way, dims[(way + d) % 6], (neo_bag_optim_kind)kind, dtypes[d],
                      way % 3 == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM);
                m.tables.back().optim = optim_of((neo_bag_optim_kind)kind, way);
                m.tables.back().round_nearest = way == 5;
                if (way == 2)
                    m.tables.back().init.kind = NEO_INIT_CONSTANT, m.tables.back().init.a = 0.5f;
                if (way == 3)
                    m.tables.back().init.kind = NEO_INIT_NORMAL, m.tables.back().init.b = 0.5f;
            }
            m.make(12, 400);
            Shape s;
            s.weighted = d & 1;
            s.i32 = kind & 1;
            check_same(m); /* initial values */
            steps(m, s, 2);
            m.check_memory();
            if (test_errors) {
                FAIL("optimizer %d, dtype %d", kind, d);
                return;
            }
        }
    }
}

/* ---- widths, in registers and not ---- */
static void widths(void) {
    static const int64_t dims[] = {1,  2,   3,   4,   8,   12,  15,  16,   17,   28,
                                   64, 100, 128, 132, 256, 260, 600, 1024, 1028, 1040};
    for (int64_t dim : dims) {
        Model m;
        m.shards = dim % 3 ? 1 : 3;
        m.add(50, dim, NEO_BAG_ROWWISE_ADAGRAD);
        m.add(30, dim, NEO_BAG_ROWWISE_ADAGRAD, NEO_F32, NEO_POOL_MEAN);
        m.add(30, dim, NEO_BAG_SGD, dim % 2 ? NEO_BF16 : NEO_I8);
        m.add(30, dim, NEO_BAG_PARTIAL_LAMB, NEO_F16);
        m.make(16, 900);
        Shape s;
        s.length = 20;
        s.weighted = dim % 5 == 0;
        steps(m, s, 2);
        m.check_memory();
        if (test_errors) {
            FAIL("dim %" PRId64, dim);
            return;
        }
    }
}
/* Steps of row-wise Adagrad and SGD alone, then of every rule: tables of several dtypes and widths
   in one batch, most rows once in it, some by a few records of one leaf or of several. */
static void several_rows(void) {
    static const neo_dtype dtypes[4] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const int64_t dims[] = {4, 12, 20, 32, 36, 64, 100, 128, 132, 256};
    for (int i = 0; i < 20; i++) {
        Model m;
        m.shards = i % 3 == 0 ? 1 : i % 3 == 1 ? 8 : 5;
        const int none = i == 4 || i == 7 || i == 17;
        for (int t = 0; t < 8; t++) {
            neo_bag_optim_kind kind = t & 4 ? NEO_BAG_SGD : NEO_BAG_ROWWISE_ADAGRAD;
            if (i >= 10) kind = (neo_bag_optim_kind)((i + 3 * t) % NEO_BAG_OPTIM_COUNT);
            m.add(40 + 200 * (t % 3), dims[none ? i % 10 : (i + 3 * t) % 10], kind, dtypes[t % 4],
                  none          ? NEO_POOL_NONE
                  : (i + t) % 3 ? NEO_POOL_SUM
                                : NEO_POOL_MEAN);
            if (i >= 10) m.tables.back().optim = optim_of(kind, (i + t) % 6);
            m.tables.back().round_nearest = (i + t / 4) % 2;
        }
        m.feature_table = {0, 1, 2, 3, 4, 5, 6, 7, 3, 0, 5};
        m.desc.bounds = i % 2 ? NEO_BOUNDS_DROP : NEO_BOUNDS_CLAMP;
        m.make(24, 4000);
        Shape s;
        s.batch = 24 - i % 3;
        s.length = 1 + i % 4 * 3;
        s.weighted = i & 1;
        s.bad = i % 4 == 2 ? 10 : 0;
        s.skip = i % 5 == 3 ? 5 : 0;
        steps(m, s, 2);
        m.check_memory();
        if (test_errors) {
            FAIL("case %d", i);
            return;
        }
    }
}
/* Rows whose scratch does not fit into shared memory. */
static void wide_rows(void) {
    Model m;
    m.add(5, 3001, NEO_BAG_PARTIAL_LAMB, NEO_F16);
    m.add(300, 3001, NEO_BAG_ADAM, NEO_I8);
    m.add(300, 64, NEO_BAG_ROWWISE_ADAGRAD);
    m.make(60, 2000);
    Shape s;
    s.batch = 50;
    steps(m, s, 2);
}

/* ---- shapes of batches ---- */
static void shapes(void) {
    for (int i = 0; i < 60; i++) {
        Model m;
        m.shards = i % 4 == 0 ? 1 : i % 4 == 1 ? 3 : i % 4 == 2 ? 8 : 5;
        int none = i % 5 == 4, count = 1 + (int)below(4);
        int64_t dim = 1 + below(40);
        for (int t = 0; t < count; t++) {
            static const neo_dtype dtypes[4] = {NEO_F32, NEO_F32, NEO_BF16, NEO_I8};
            neo_bag_optim_kind kind = chance(50) ? NEO_BAG_ROWWISE_ADAGRAD : NEO_BAG_ADAGRAD;
            m.add(1 + below(60),
                  none         ? dim
                  : chance(50) ? 4 * (1 + below(20))
                               : 1 + below(40),
                  kind, dtypes[below(4)],
                  none         ? NEO_POOL_NONE
                  : chance(40) ? NEO_POOL_MEAN
                               : NEO_POOL_SUM);
            if (!none && chance(30)) m.tables.back().row_buckets = 1 + (int32_t)below(7);
            if (chance(15))
                m.tables.back().init.kind = NEO_INIT_CONSTANT, m.tables.back().init.a = 1e-30f;
        }
        for (int f = 0; f < count + (int)below(5); f++)
            m.feature_table.push_back((int32_t)below(count));
        m.desc.bounds = i % 3 == 0   ? NEO_BOUNDS_ERROR
                        : i % 3 == 1 ? NEO_BOUNDS_DROP
                                     : NEO_BOUNDS_CLAMP;
        m.make(40, 4000);
        for (int n = 0; n < 3; n++) {
            Shape s;
            s.batch = n == 1 ? below(3) : below(40);
            s.length = 1 + below(12);
            s.weighted = chance(50);
            s.i32 = chance(50);
            s.variable = chance(30);
            s.bad = m.desc.bounds == NEO_BOUNDS_ERROR ? 0 : 15;
            s.empty = chance(20) ? 100 : 20;
            s.skip = chance(30) ? 5 : 0;
            steps(m, s, 2);
        }
        m.check_memory();
        if (test_errors) {
            FAIL("case %d", i);
            return;
        }
    }
}

/* ---- rows in many thousand ids; integers, so that a wrong order shows as little as a
   wrong sum does ---- */
static void hot_row(void) {
    static const int leaves[] = {1, 8, 13};
    for (int shards : leaves) {
        Model m;
        m.shards = shards;
        m.add(40, 32, NEO_BAG_ROWWISE_ADAGRAD);
        m.add(40, 20, NEO_BAG_ADAM, NEO_BF16);
        m.add(3, 9, NEO_BAG_ADAGRAD, NEO_F16); /* a column a lane; leaves with few records */
        m.desc.max_kept_rows = 83;
        m.make(1000, 60000);
        Batch b;
        b.offsets.push_back(0);
        for (int f = 0; f < 3; f++)
            for (int64_t s = 0; s < 1000; s++) {
                int64_t n = f == 0 ? 50 : 3 - f;
                for (int64_t k = 0; k < n; k++)
                    b.id64.push_back(f == 2 ? below(3) : chance(99) ? 17 : below(40));
                b.offsets.push_back((int64_t)b.id64.size());
            }
        b.finish(m, 1000, 0);
        forward(m, &b, 0);
        backward(m, &b, 0);
        check_same(m);
        Pair dout(m, b);
        for (int k = 0; k < 2; k++)
            CHECK_OK(neo_bags_accumulate(m.bags[k], side(&b, k, 1), dout.t[k], NULL));
        check_same(m);
    }
}

/* Without `exact` a leaf of a long run is a tree over chains of 256 records. */
static float tree(const std::vector<float> &x, size_t from, size_t count) {
    size_t half = 1;
    if (count == 1) return x[from];
    while (2 * half < count) half *= 2;
    return tree(x, from, half) + tree(x, from + half, count - half);
}
static float sum_of(const std::vector<std::vector<float>> &leaves) {
    std::vector<float> sums;
    for (const auto &leaf : leaves) {
        std::vector<float> pieces;
        for (size_t i = 0; i < leaf.size(); i++) {
            if (i % 256 == 0) pieces.push_back(0.0f);
            pieces.back() += leaf[i];
        }
        if (!pieces.empty()) sums.push_back(tree(pieces, 0, pieces.size()) + 0.0f);
    }
    return tree(sums, 0, sums.size());
}
static void long_leaves(void) {
    neo_device *const exact = gpu;
    const neo_cuda_desc desc = {0, 0, 0};
    REQUIRE_OK(neo_cuda_device_create(&desc, &gpu));
    for (int shards = 1; shards <= 4; shards += 3) {
        const int64_t samples = 1003, length = 3;
        Model m;
        m.shards = shards;
        m.add(5, 8, NEO_BAG_ADAM), m.add(4, 9, NEO_BAG_ROWWISE_ADAGRAD);
        m.desc.max_kept_rows = 9;
        m.make(samples, 2 * samples * length);
        Batch b;
        b.offsets.push_back(0);
        for (int64_t s = 0; s < 2 * samples; s++) {
            for (int64_t k = 0; k < length; k++) b.id64.push_back(chance(90) ? 1 : below(4));
            b.offsets.push_back((int64_t)b.id64.size());
        }
        b.finish(m, samples, 0);
        Pair dout(m, b);
        CHECK_OK(neo_bags_accumulate(m.bags[1], b.there(), dout.t[1], NULL));
        for (int64_t i = 0; i < neo_bags_kept_count(m.bags[1]); i++) {
            int32_t table = -1;
            int64_t row = -1;
            const float *g = neo_bags_kept_row(m.bags[1], i, &table, &row);
            for (int64_t col = 0; g && col < m.tables[(size_t)table].dim; col++) {
                std::vector<std::vector<float>> leaves((size_t)shards);
                for (int64_t s = 0; s < samples; s++)
                    for (int64_t k = 0; k < length; k++)
                        if (b.id64[(size_t)((table * samples + s) * length + k)] == row)
                            leaves[(size_t)neo__bucket_of(samples, shards, s)].push_back(
                                dout.host[(size_t)(s * 17 + table * 8 + col)]);
                const float want = sum_of(leaves);
                if (!g || memcmp(&g[col], &want, 4)) {
                    FAIL("row %d of table %d: %.9g, not %.9g", (int)row, table, (double)g[col],
                         (double)want);
                    col = INT32_MAX;
                }
            }
        }
        CHECK_INT(neo_bags_kept_count(m.bags[1]), 8);
    }
    neo_cuda_device_destroy(gpu);
    gpu = exact;
}

#if defined(NEO_CUDA_ON_CPU)
/* ---- roundings: floats of every exponent, words at the edges and between ---- */
static void roundings(void) {
    for (int i = 0; i < 400000; i++) {
        neo__floats<4> x;
        uint32_t word[4], half[4], brain[4];
        for (int k = 0; k < 4; k++) {
            const uint32_t bits = (uint32_t)rnd(), near = 90 + (uint32_t)below(56);
            const int any = i % 64 == 0 && chance(50);
            x.v[k] = neo__f32_bits(any ? bits : (bits & 0x807FFFFFu) | near << 23);
            if (chance(5)) x.v[k] = neo__f32_bits(bits & 0xFF000000u);
            word[k] = half[k] = brain[k] = chance(80)   ? (uint32_t)rnd()
                                           : chance(50) ? 0u - (uint32_t)below(3)
                                                        : bits << (19 + below(2)) ^ 0xFFFFFFFFu;
        }
        neo__bags_half_codes(NEO_F16, x, half, true);
        neo__bags_half_codes(NEO_BF16, x, brain, true);
        for (int k = 0; k < 4; k++) {
            const uint32_t is[2] = {half[k / 2] >> 16 * (k % 2) & 65535u,
                                    brain[k / 2] >> 16 * (k % 2) & 65535u};
            if (is[0] != neo__f16_round_scalar(x.v[k], word[k]) ||
                is[1] != neo__bf16_round_scalar(x.v[k], word[k])) {
                FAIL("%.9g by %08x is %04x, %04x", (double)x.v[k], word[k], is[0], is[1]);
                return;
            }
        }
        const float inverse = 1.0f + value() / 2, bias = value();
        for (int k = 0; k < 4; k++) half[k] = word[k], x.v[k] = value() * 130.0f;
        if (chance(10)) x.v[0] = bias, x.v[1] = roundf(x.v[1]) / inverse + bias;
        neo__bags_i8_codes(x, inverse, bias, half, i % 4 != 0);
        for (int k = 0; k < 4; k++)
            if (((half[k] ^ neo__i8_round_scalar(x.v[k], inverse, bias, word[k], i % 4 != 0)) &
                 255u) != 0) {
                FAIL("%.9g by %08x is %02x", (double)x.v[k], word[k], half[k] & 255u);
                return;
            }
    }
}
#endif

/* ---- gradients that are kept ---- */
static void add_grads(const Model &m, int32_t table, int64_t count) {
    int64_t dim = m.tables[(size_t)table].dim, stride = dim + 2;
    std::vector<int64_t> rows;
    std::vector<float> g((size_t)(count * stride) + 1);
    for (float &x : g) x = value();
    for (int64_t i = 0; i < count; i++) rows.push_back(below(m.tables[(size_t)table].rows));
    rows.push_back(0);
    float *there = (float *)to_device(g.data(), g.size() * 4);
    for (int k = 0; k < 2; k++) {
        neo_tensor t = neo_tensor_2d(k ? there : g.data(), NEO_F32, count, dim);
        t.stride[0] = stride;
        t.place = k ? NEO_DEVICE : NEO_HOST;
        CHECK_OK(neo_bags_add_grad(m.bags[k], table, rows.data(), count, t));
    }
    gpu->free(gpu, there, 0);
}
static void kept(void) {
    for (int i = 0; i < 12; i++) {
        Model m;
        m.shards = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 3;
        m.add(30, 12, NEO_BAG_ROWWISE_ADAGRAD);
        m.add(40, 9, (neo_bag_optim_kind)(i % NEO_BAG_OPTIM_COUNT), i % 2 ? NEO_F32 : NEO_I8,
              NEO_POOL_MEAN);
        m.add(25, 40, NEO_BAG_ROWWISE_ADAGRAD);
        m.feature_table = {0, 1, 2, 1, 0};
        m.desc.max_kept_rows = 95;
        m.desc.bounds = i % 2 ? NEO_BOUNDS_DROP : NEO_BOUNDS_CLAMP;
        m.make(16, 300);
        for (int step = 0; step < 3; step++) {
            Shape s;
            s.bad = 10;
            s.weighted = chance(50);
            for (int part = 0; part < 2; part++) {
                Batch b;
                neo_leaves leaves = {16, 0, m.shards, 1};
                s.batch = 16;
                if (m.shards == 4) {
                    leaves.first = 2 * part, leaves.count = 2;
                    s.batch = 8;
                }
                fill(&b, m, s);
                Pair dout(m, b);
                for (int k = 0; k < 2; k++)
                    CHECK_OK(neo_bags_accumulate(m.bags[k], side(&b, k, part), dout.t[k],
                                                 part || step    ? &leaves
                                                 : s.batch == 16 ? NULL
                                                                 : &leaves));
                check_same(m);
            }
            add_grads(m, (int32_t)below(3),
                      step == 2 ? 700 : below(40)); /* 700: more than fit at once */
            check_same(m);
            neo_exact sum[2];
            for (int k = 0; k < 2; k++) {
                memset(&sum[k], 0, sizeof sum[k]);
                CHECK_OK(neo_bags_grad_squares(m.bags[k], &sum[k]));
                CHECK_OK(neo_bags_scale_grads(m.bags[k], 0.37f));
            }
            CHECK(neo_exact_value(&sum[0]) == neo_exact_value(&sum[1]) &&
                  neo_exact_value(&sum[0]) > 0);
            check_same(m);
            if (step == 1) {
                for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_clear(m.bags[k]));
            } else {
                for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_step(m.bags[k], 0.05f));
            }
            check_same(m);
            if (test_errors) {
                FAIL("case %d, step %d", i, step);
                return;
            }
        }
        m.check_memory();
    }
}

/* ---- rows by number, steps, growth ---- */
static void rows_and_growth(void) {
    static const neo_dtype dtypes[4] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    Model m;
    for (int d = 0; d < 4; d++) m.add(70, 10 + 7 * d, NEO_BAG_PARTIAL_ADAM, dtypes[d]);
    m.make(4, 10);
    for (int32_t t = 0; t < 4; t++) {
        size_t n = (size_t)(31 * m.tables[(size_t)t].dim);
        std::vector<float> to(n), a(n, 1.0f), b(n, 2.0f);
        for (float &x : to) x = 3 * value();
        for (int k = 0; k < 2; k++) {
            CHECK_OK(neo_bags_set_rows(m.bags[k], t, 17, 31, to.data()));
            CHECK_OK(neo_bags_get_rows(m.bags[k], t, 20, 31, k ? b.data() : a.data()));
            CHECK_OK(neo_bags_get_rows(m.bags[k], t, 70, 0, NULL));
            CHECK_ERR(neo_bags_get_rows(m.bags[k], t, 40, 31, a.data()), NEO_ERR_RANGE,
                      "31 rows from 40");
        }
        CHECK(!memcmp(a.data(), b.data(), n * 4));
    }
    for (int k = 0; k < 2; k++) {
        neo_bags_set_steps(m.bags[k], 99);
        CHECK_OK(neo_bags_reserve(m.bags[k], 3, 9));
        CHECK_INT(neo_bags_get_stats(m.bags[k]).grow_count, 0);
        CHECK_OK(neo_bags_reserve(m.bags[k], 20, 900));
        CHECK_INT(neo_bags_get_stats(m.bags[k]).grow_count, 1);
        m.before[k] = neo_ctx_memory(m.ctx[k]);
        neo_bags_memory want;
        neo_bags_desc grown = m.desc;
        grown.max_batch = 20, grown.max_ids = 900;
        CHECK_OK(neo_bags_bytes(m.ctx[k], &grown, &want));
    }
    Shape s;
    s.batch = 20;
    steps(m, s, 3);
    m.check_memory();
}

/* ---- keys beyond 32 bits: the table would be of 2^33 rows; those that are used are in memory ----
   */
static void large_keys(void) {
    enum { USED = 64, DIM = 8 };
    static float host[USED * DIM];
    const int64_t first = ((int64_t)1 << 31) - 20;
    for (float &x : host) x = value();
    float *there = (float *)to_device(host, sizeof host);
    Model m;
    m.shards = 3;
    m.add(40, 12, NEO_BAG_ADAM);
    m.add((int64_t)1 << 33, DIM, NEO_BAG_SGD);
    m.add(40, 16, NEO_BAG_ROWWISE_ADAGRAD);
    m.feature_table = {1, 0, 1, 2};
    m.tables[1].init.kind = NEO_INIT_NONE;
    m.tables[1].part.rows = (int64_t)1 << 34;
    m.tables[1].part.dim = DIM;
    m.tables[1].part.first_row = (int64_t)1 << 33;
    m.desc.max_kept_rows = 400;
    m.desc.bounds = NEO_BOUNDS_DROP;
    /* two objects of two descriptions, as their memory differs */
    for (int k = 0; k < 2; k++) {
        uintptr_t base = (uintptr_t)(k ? there : host) - (uintptr_t)first * DIM * 4;
        m.tables[1].weight = (void *)base;
        if (k == 0) m.make(10, 300);
        else {
            neo_bags_destroy(m.bags[1]);
            CHECK_OK(neo_bags_create(m.ctx[1], &m.desc, &m.bags[1]));
        }
    }
    for (int step = 0; step < 4; step++) {
        Batch b;
        b.offsets.push_back(0);
        for (int32_t table : m.feature_table)
            for (int64_t s = 0; s < 10; s++) {
                for (int64_t n = below(6); n > 0; n--)
                    b.id64.push_back(table != 1   ? below(40)
                                     : chance(10) ? (int64_t)1 << 40
                                                  : first + below(USED));
                b.offsets.push_back((int64_t)b.id64.size());
            }
        b.finish(m, 10, 0);
        forward(m, &b, step & 1);
        if (step < 2) backward(m, &b, step & 1);
        else {
            Pair dout(m, b);
            for (int k = 0; k < 2; k++)
                CHECK_OK(neo_bags_accumulate(m.bags[k], side(&b, k, step & 1), dout.t[k], NULL));
            CHECK_INT(neo_bags_kept_count(m.bags[1]), neo_bags_kept_count(m.bags[0]));
            for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_step(m.bags[k], 0.1f));
        }
        std::vector<float> got(USED * DIM);
        CHECK_OK(gpu_copy(gpu, got.data(), NEO_HOST, there, NEO_DEVICE, sizeof host));
        CHECK(!memcmp(got.data(), host, sizeof host));
        for (int32_t t = 0; t < 3; t += 2) {
            check_tensor(neo_bags_weight(m.bags[0], t), neo_bags_weight(m.bags[1], t), "weight", t);
            check_tensor(neo_bags_state(m.bags[0], t, 0), neo_bags_state(m.bags[1], t, 0), "state",
                         t);
        }
    }
    gpu->free(gpu, there, 0);
}

/* ---- errors ---- */
#define SAME_ERROR(status, call0, call1)                                                           \
    do {                                                                                           \
        neo_status sa = (call0);                                                                   \
        std::string text = neo_last_error();                                                       \
        neo_status sb = (call1);                                                                   \
        if (sa != (status) || sb != (status) || text != neo_last_error())                          \
            FAIL("%d '%s', then %d '%s'", (int)sa, text.c_str(), (int)sb, neo_last_error());       \
    } while (0)
/* Kernels that are launched although the batch was refused, as when nobody waits for that, do
   nothing. */
static void behind_a_refusal(const Model &m, const Pair &t, const Batch &b) {
    neo__bags_job job = m.bags[1]->job;
    std::vector<float> grads(b.id64.size() + 1, 5.0f), got(grads.size());
    float *there = (float *)to_device(grads.data(), grads.size() * 4);
    job.tensor.out = (float *)t.t[1].data;
    job.tensor.dout = job.tensor.out;
    job.tensor.dweights = there;
    job.sorted.leaf_bits = job.sorted.leaf_sort = job.sorted.indirect = job.sorted.packs =
        job.keep = job.add = 0;
    job.sorted.grad_unit = 1;
    job.sorted.leaves.shards = 1;
    job.sorted.leaves.count = 0;
    job.sorted.records = job.batch.most_ids = job.fixed.max_ids;
    CHECK_OK(gpu->bags_forward(gpu, &job));
    CHECK_OK(gpu->bags_weight_grad(gpu, &job));
    CHECK_OK(gpu->bags_records(gpu, &job));
    CHECK_OK(gpu->bags_sort(gpu, &job));
    CHECK_OK(gpu->bags_update(gpu, &job));
    CHECK_OK(gpu_copy(gpu, got.data(), NEO_HOST, there, NEO_DEVICE, got.size() * 4));
    CHECK(got == grads);
    gpu->free(gpu, there, 0);
}
static void errors(void) {
    for (int place = 0; place < 2; place++) {
        Model m;
        m.add(30, 12, NEO_BAG_ROWWISE_ADAGRAD);
        m.add(40, 9, NEO_BAG_ADAM);
        m.feature_table = {0, 1, 0};
        m.desc.max_kept_rows = 6;
        m.make(16, 100);
        Shape s;
        s.empty = 0;
        s.length = 3;
        Batch good, low, high, down, many;
        fill(&good, m, s);
        fill(&low, m, s);
        low.id64[low.id64.size() / 2] = low.id64[low.id64.size() - 3] = -5;
        fill(&high, m, s);
        high.id32[(size_t)high.offsets[9] + 1] = 40;
        high.j.id_dtype = NEO_I32;
        high.j.ids = high.id32.data();
        fill(&down, m, s);
        down.offsets[12] = down.offsets[11] - 1;
        s.batch = 16;
        s.length = 40;
        fill(&many, m, s);
        Pair t(m, good), wide(m, many);
        Batch *bad[2] = {&low, &high};
        for (Batch *b : bad) {
            SAME_ERROR(NEO_ERR_RANGE, neo_bags_forward(m.bags[0], &b->j, t.t[0]),
                       neo_bags_forward(m.bags[1], side(b, 1, place), t.t[1]));
            CHECK(strstr(neo_last_error(), "table 'table") && strstr(neo_last_error(), "position"));
            behind_a_refusal(m, t, *b);
            SAME_ERROR(NEO_ERR_RANGE, neo_bags_backward(m.bags[0], &b->j, t.t[0], 0.1f),
                       neo_bags_backward(m.bags[1], side(b, 1, place), t.t[1], 0.1f));
            SAME_ERROR(NEO_ERR_RANGE, neo_bags_accumulate(m.bags[0], &b->j, t.t[0], NULL),
                       neo_bags_accumulate(m.bags[1], side(b, 1, place), t.t[1], NULL));
        }
        SAME_ERROR(NEO_ERR_FORMAT, neo_bags_forward(m.bags[0], &down.j, t.t[0]),
                   neo_bags_forward(m.bags[1], side(&down, 1, place), t.t[1]));
        CHECK(strstr(neo_last_error(), "offsets decrease at feature 1, sample 2"));
        behind_a_refusal(m, t, down);
        SAME_ERROR(NEO_ERR_CAPACITY, neo_bags_forward(m.bags[0], &many.j, wide.t[0]),
                   neo_bags_forward(m.bags[1], side(&many, 1, place), wide.t[1]));
        SAME_ERROR(NEO_ERR_NUMERIC, neo_bags_backward(m.bags[0], &good.j, t.t[0], INFINITY),
                   neo_bags_backward(m.bags[1], side(&good, 1, place), t.t[1], INFINITY));
        t.check("a tensor after errors");
        check_same(m);
        /* More rows than may be kept: nothing is added, and what was there stays. */
        add_grads(m, 1, 2);
        check_same(m);
        SAME_ERROR(NEO_ERR_CAPACITY, neo_bags_accumulate(m.bags[0], &good.j, t.t[0], NULL),
                   neo_bags_accumulate(m.bags[1], side(&good, 1, place), t.t[1], NULL));
        check_same(m);
        SAME_ERROR(NEO_ERR_STATE, neo_bags_backward(m.bags[0], &good.j, t.t[0], 0.1f),
                   neo_bags_backward(m.bags[1], side(&good, 1, place), t.t[1], 0.1f));
        /* What is kept moves with the workspace. */
        for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_reserve(m.bags[k], 1000, 1000));
        check_same(m);
        add_grads(m, 1, 2);
        check_same(m);
        for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_step(m.bags[k], 0.1f));
        check_same(m);
        /* On the wrong side. */
        CHECK_ERR(neo_bags_forward(m.bags[1], &good.j, t.t[0]), NEO_ERR_ARG,
                  "out is in host memory");
        CHECK_ERR(neo_bags_backward(m.bags[1], &good.j, t.t[0], 0.1f), NEO_ERR_ARG,
                  "dout is in host memory");
        CHECK_ERR(neo_bags_forward(m.bags[0], good.there(), t.t[0]), NEO_ERR_ARG,
                  "the batch is on a device");
        CHECK_ERR(neo_bags_add_grad(m.bags[1], 0, good.id64.data(), 0,
                                    neo_tensor_2d(good.id64.data(), NEO_F32, 0, 12)),
                  NEO_ERR_ARG, "grad is in host memory");
        forward(m, &good, place);
        backward(m, &good, place);
        check_same(m);
    }
}

/* ---- tables cut by columns: the sums along their rows come from elsewhere; or they do not, and
   nothing changes ---- */
static int no_sums;
static neo_status own_sums(void *, const neo_cut_sums *cuts, int32_t count) {
    if (no_sums) return neo_fail(NEO_ERR_PEER, "no sums");
    for (int32_t i = 0; i < count; i++)
        for (int64_t r = 0; r < cuts[i].sums * cuts[i].rows; r++) {
            cuts[i].total[r] = 0.5f; /* of the columns that are elsewhere */
            for (int64_t b = 0; b < cuts[i].blocks_per_row; b++)
                cuts[i].total[r] += cuts[i].blocks[r * cuts[i].blocks_per_row + b];
        }
    return NEO_OK;
}
static void cut_columns(int is_tiered) {
    Model m;
    const int64_t more = is_tiered ? 20 : 1; /* rows */
    m.is_tiered = is_tiered;
    m.add(30 * more, 16, NEO_BAG_ROWWISE_ADAGRAD);
    m.add(20 * more, 48, NEO_BAG_PARTIAL_LAMB, NEO_BF16);
    m.add(25 * more, 8, NEO_BAG_SGD);
    m.tables[0].part.rows = 30 * more, m.tables[0].part.dim = 32;
    m.tables[1].part.rows = 20 * more, m.tables[1].part.dim = 64;
    m.tables[1].optim.max_norm = 0.4f;
    m.desc.cut_sums = own_sums;
    m.make(16, 400);
    Shape s;
    s.batch = 16;
    s.length = 6;
    Batch b;
    fill(&b, m, s);
    Pair t(m, b);
    for (int place = 0; place < 2; place++) {
        no_sums = 1;
        SAME_ERROR(NEO_ERR_PEER, neo_bags_backward(m.bags[0], &b.j, t.t[0], 0.1f),
                   neo_bags_backward(m.bags[1], side(&b, 1, place), t.t[1], 0.1f));
        check_same(m);
        no_sums = 0;
        forward(m, &b, place);
        backward(m, &b, place);
        check_same(m);
    }
}

static void cut_columns(void) { cut_columns(0); }
static void cut_columns_of_a_tier(void) {
    for (int is_tiered = 1; is_tiered < 3; is_tiered++) cut_columns(is_tiered);
}

/* ---- rows below lines in the device's memory ---- */
static void keep_and_step(const Model &m, const Shape &s, int place) {
    for (int part = 0; part < 2; part++) {
        Batch b;
        fill(&b, m, s);
        Pair dout(m, b);
        for (int k = 0; k < 2; k++)
            CHECK_OK(neo_bags_accumulate(m.bags[k], side(&b, k, place), dout.t[k], NULL));
    }
    add_grads(m, 2, 30);
    for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_step(m.bags[k], 0.05f));
}
static neo_state *state_of(neo_ctx *ctx, neo_bags *bags) {
    neo_state *s = NULL;
    CHECK_OK(neo_state_create(ctx, &s));
    CHECK_OK(neo_state_add_bags(s, bags));
    return s;
}
/* A checkpoint of one goes on in the other, whose cache has another size. */
static void save_and_load(const Model &m, const Model &to) {
    neo_state *s[2] = {state_of(m.ctx[0], m.bags[0]), state_of(m.ctx[1], m.bags[1])};
    neo_state *t = state_of(to.ctx[1], to.bags[1]);
    CHECK(neo_state_digest(s[0]) == neo_state_digest(s[1]));
    CHECK(neo_state_digest(s[1]) != neo_state_digest(t));
    neo_save_desc save = {};
    neo_load_desc load = {};
    load.dir = save.dir = tmp_path("device_tier");
    CHECK_OK(neo_save(m.ctx[1], &save, s[1]));
    CHECK_OK(neo_load(to.ctx[1], &load, t, NULL));
    CHECK(neo_state_digest(s[0]) == neo_state_digest(t));
    neo_state_destroy(s[0]), neo_state_destroy(s[1]), neo_state_destroy(t);
}
static void describe(Model *m, int i) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    static const int64_t dims[2][3] = {{16, 8, 19}, {16, 16, 16}};
    const neo_pooling pooling = (neo_pooling)(i % 3);
    const int64_t rows[3] = {300 + i, 31, 700};
    m->shards = 1 + i % 4;
    for (int t = 0; t < 3; t++) {
        m->add(rows[t], dims[pooling == NEO_POOL_NONE][t],
               (neo_bag_optim_kind)((i + 4 * t) % NEO_BAG_OPTIM_COUNT), dtypes[(i + t) % 4],
               pooling);
        neo_table_desc *d = &m->tables.back();
        d->optim = optim_of(d->optim.kind, (i + t) % 6);
        d->round_nearest = i % 5 == 4;
        d->row_buckets = pooling == NEO_POOL_NONE ? 0 : i % 5 == 2 ? 70 : i % 5;
        if (i % 6 == 1) d->init.kind = NEO_INIT_NORMAL, d->init.b = 0.1f;
    }
    m->feature_table = {0, 1, 2, 0};
    m->desc.max_kept_rows = 500;
    m->desc.bounds = (neo_bounds)(i / 2 % 3);
    m->tier_desc.evict = (neo_evict)(i % 2);
    m->tier_desc.period = i % 2 ? 20 : 0; /* of LFU */
    m->tier_desc.prefetch = i % 3 == 1 ? 0 : i % 2 ? 3 : 1;
    m->is_tiered = 1 + i / 3 % 2;
}
static void tiers(void) {
    int64_t read = 0, ahead = 0;
    const int cases = 12;
    for (int i = 0; i < cases; i++) {
        Model m;
        describe(&m, i);
        m.tier_desc.memory_bytes = i % 3 * 2000;
        m.make(20, 320);
        for (int step = 0; step < 8; step++) {
            Shape s;
            Batch b;
            s.batch = 1 + 7 * step % 20;
            s.length = 4;
            s.weighted = i & 1;
            s.i32 = step & 1;
            s.variable = i % 4 == 3;
            s.bad = m.desc.bounds == NEO_BOUNDS_ERROR ? 0 : 10;
            s.skip = i % 5 == 3 ? 5 : 0;
            fill(&b, m, s);
            const int place = step % 3 == 1;
            if (step % 4) CHECK_OK(neo_bags_prefetch(m.bags[1], side(&b, 1, place)));
            for (int i = 0; step % 2 && i < 200000 && neo_tier_get_stats(m.tier).pending > 0; i++)
                usleep(50);
            forward(m, &b, place);
            if (step % 4 == 2) weight_grad(m, &b, place);
            if (step % 2) backward(m, &b, place);
            else keep_and_step(m, s, place);
            if (step > 5) check_same(m);
        }
        m.check_memory();
        std::vector<float> row(40), got(row);
        for (float &x : row) x = value();
        for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_set_rows(m.bags[k], 2, 5, 2, row.data()));
        check_same(m);
        for (int k = 0; k < 2; k++)
            CHECK_OK(neo_bags_get_rows(m.bags[k], 2, 5, 2, k ? got.data() : row.data()));
        CHECK(!memcmp(got.data(), row.data(), (size_t)m.tables[2].dim * 8));
        const neo_tier_stats stats = neo_tier_get_stats(m.tier);
        CHECK(stats.evictions > 10 && stats.written > 10 && stats.first > 40);
        CHECK_INT(stats.grow_count, 0);
        read += stats.read, ahead += stats.prefetched;
        if (i % 4 == 0) {
            Model other;
            describe(&other, i);
            other.is_tiered = i % 8 ? 0 : 1;
            other.tier_desc.memory_bytes = 9000;
            other.make(30, 400);
            save_and_load(m, other);
            check_same(m);
        }
        if (test_errors) {
            FAIL("case %d", i);
            return;
        }
    }
    CHECK(read > 20 * cases && ahead > cases);
}
/* All ids of a batch in few sets: others of a set have lines of overflow. A batch with more ids
   than declared for a table grows them, here beyond its rows: no key of its lines is one of the
   table behind it. */
static void lines_grow(void) {
    Model m;
    m.is_tiered = 1;
    m.add(300, 8, NEO_BAG_ADAM, NEO_BF16);
    m.add(300, 8, NEO_BAG_ROWWISE_ADAGRAD);
    m.make(60, 120);
    for (int step = 0; step < 10; step++) {
        Batch b;
        b.offsets.push_back(0);
        for (int f = 0; f < 2; f++)
            for (int i = 0; i < 60; i++) {
                for (int k = 0; k < (step < 5 ? 1 : 10); k++) b.id64.push_back(below(300));
                b.offsets.push_back((int64_t)b.id64.size());
            }
        b.finish(m, 60, 0);
        for (int k = 0; k < 2; k++)
            CHECK_OK(neo_bags_reserve(m.bags[k], 60, b.offsets.back()));
        forward(m, &b, step & 1);
        backward(m, &b, step & 1);
        check_same(m);
    }
    const neo_tier_stats stats = neo_tier_get_stats(m.tier);
    CHECK(stats.overflow > 100 && stats.grow_count > 0 && stats.line_count > 600);
}
static void tier_errors(void) {
    Model m;
    neo_tier *none = NULL;
    m.is_tiered = 1;
    m.add(600, 8, NEO_BAG_ADAM);
    m.make(10, 100);
    neo_tier_desc desc = m.tier_desc;
    CHECK_ERR(neo_tier_create(m.ctx[0], &desc, &none), NEO_ERR_ARG,
              "path is NULL, on a context without a device");
    desc.path = "";
    CHECK_ERR(neo_tier_create(m.ctx[1], &desc, &none), NEO_ERR_ARG, "path is empty");
    desc.path = NULL, desc.memory_bytes = 0;
    CHECK_ERR(neo_tier_create(m.ctx[1], &desc, &none), NEO_ERR_ARG, "memory_bytes");
    desc.memory_bytes = m.tier_desc.memory_bytes / 2;
    CHECK_OK(neo_tier_create(m.ctx[1], &desc, &none));
    m.desc.tier = none;
    neo_bags *bags = NULL;
    CHECK_ERR(neo_bags_create(m.ctx[1], &m.desc, &bags), NEO_ERR_ARG,
              "tier 'host memory': memory_bytes is");
    CHECK(!bags);
    m.desc.tier = m.tier;
    CHECK_ERR(neo_bags_create(m.ctx[1], &m.desc, &bags), NEO_ERR_ARG, "another neo_bags has it");
    neo_tier_destroy(none);
    Batch b;
    fill(&b, m, Shape());
    Pair out(m, b);
    neo_cuda_graph *graph = NULL;
    neo_cuda_graph_desc of = {1 << 16, 0, 1};
    CHECK_OK(neo_cuda_graph_create(gpu, &of, &graph));
    CHECK_OK(neo_cuda_graph_begin(graph));
    CHECK_ERR(neo_bags_forward(m.bags[1], &b.j, out.t[1]), NEO_ERR_UNSUPPORTED,
              "a step that is recorded");
    CHECK_OK(neo_cuda_graph_end(graph));
    neo_cuda_graph_destroy(graph);
    forward(m, &b, 0);
    backward(m, &b, 1);
    check_same(m);
}

/* ---- a batch is copied once ---- */
static void copies(void) {
    Model m;
    m.add(30, 12, NEO_BAG_ROWWISE_ADAGRAD);
    m.add(40, 9, NEO_BAG_SGD);
    m.make(16, 3000);
    Shape s;
    s.batch = 16;
    s.length = 60;
    Batch b, next;
    fill(&b, m, s);
    fill(&next, m, s);
    size_t batch = b.offsets.size() * 8 + (size_t)(b.offsets.back() - b.offsets[0]) * 8;
    size_t rules = 2 * sizeof(neo__job_rule);
    Pair t(m, b);
    copied_in = 0;
    CHECK_OK(neo_bags_forward(m.bags[1], &b.j, t.t[1]));
    CHECK(copied_in >= batch && copied_in < batch + 1000);
    copied_in = 0;
    CHECK_OK(neo_bags_backward(m.bags[1], &b.j, t.t[1], 0.1f));
    CHECK_INT(copied_in, rules);
    copied_in = 0;
    CHECK_OK(neo_bags_backward(m.bags[1], &b.j, t.t[1], 0.1f)); /* forward has not seen it since */
    CHECK_INT(copied_in, batch);
    CHECK_OK(neo_bags_forward(m.bags[1], &b.j, t.t[1]));
    copied_in = 0;
    CHECK_OK(neo_bags_backward(m.bags[1], &next.j, t.t[1], 0.1f)); /* other arrays */
    CHECK(copied_in > 1000);
    copied_in = 0;
    CHECK_OK(neo_bags_forward(m.bags[1], b.there(), t.t[1]));
    CHECK_OK(neo_bags_backward(m.bags[1], b.there(), t.t[1], 0.1f));
    CHECK_INT(copied_in, 0); /* there() copies by gpu_copy: not counted */
    /* The same arrays with other ids, after a backward. */
    Model again;
    again.add(30, 12, NEO_BAG_SGD);
    again.make(16, 3000);
    Batch one;
    s.batch = 10;
    fill(&one, again, s);
    for (int i = 0; i < 3; i++) {
        for (int64_t &id : one.id64) id = (id + 7) % 30;
        if (i != 1) forward(again, &one, 0);
        backward(again, &one, 0);
        check_same(again);
    }
}

#if defined(NEO_CUDA_ON_CPU)
/* ---- every call of CUDA fails once: nothing is lost, and the next object is made ---- */
static void failures(int with_tier) {
    int failed = 0, made = 0;
    for (int n = 1; n < 80 && !made; n++) {
        neo_tier *tier = NULL;
        neo_device *d;
        neo_ctx *ctx;
        neo_bags *bags = NULL, *again = NULL;
        neo_cuda_desc cuda = {0, 1, 0};
        REQUIRE_OK(neo_cuda_device_create(&cuda, &d));
        neo_ctx_desc c = {};
        c.threads = 1;
        c.device = d;
        REQUIRE_OK(neo_ctx_create(&c, &ctx));
        neo_table_desc t[2] = {};
        t[0].name = "a", t[0].rows = 40, t[0].dim = 8, t[0].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
        t[1].name = "b", t[1].rows = 40, t[1].dim = 5, t[1].optim.kind = NEO_BAG_ADAM,
        t[1].dtype = NEO_I8;
        if (with_tier) t[0].rows = t[1].rows = 4000;
        const neo_tier_desc tier_desc = {NULL, 12 << 20, NEO_EVICT_LRU, 0, 1, 1, 0, 0};
        if (with_tier) CHECK_OK(neo_tier_create(ctx, &tier_desc, &tier));
        neo_bags_desc desc = {};
        desc.tier = tier;
        desc.tables = t;
        desc.table_count = 2;
        desc.max_batch = 4;
        desc.max_ids = 40;
        desc.max_kept_rows = 10;
        size_t live = live_bytes(), bytes = neo_ctx_memory(ctx).bytes;
        neo_emu_fail_after(n);
        neo_status status = neo_bags_create(ctx, &desc, &bags);
        neo_emu_fail_after(0);
        if (status == NEO_OK) {
            made = 1;
        } else {
            failed++;
            CHECK(status == NEO_ERR_MEMORY || status == NEO_ERR_DEVICE);
            CHECK(!bags && neo_emu_live_bytes() == live && neo_ctx_memory(ctx).bytes == bytes);
            if (status == NEO_ERR_MEMORY && neo_bags_create(ctx, &desc, &again) != NEO_OK)
                CHECK(d->synchronize(d) == NEO_ERR_DEVICE); /* the device is lost */
        }
        neo_bags_destroy(bags);
        neo_bags_destroy(again);
        neo_tier_destroy(tier);
        neo_ctx_destroy(ctx);
        neo_cuda_device_destroy(d);
    }
    CHECK(failed > 8 && made);
}
static void failures(void) { failures(0), failures(1); }
/* Calls on gradients that are kept, each call of CUDA in them failing once: where one says so,
   nothing has changed and the same call works; a step that has been taken is one, whatever becomes
   of what it forgets. */
static const char *const kept_call_name[] = {"grad_squares", "scale_grads", "clear", "step",
                                             "accumulate"};
static neo_status kept_call(const Model &m, int call, int k, Batch *b, const Pair &dout,
                            neo_exact *sum) {
    switch (call) {
    case 0: return neo_bags_grad_squares(m.bags[k], sum);
    case 1: return neo_bags_scale_grads(m.bags[k], 0.75f);
    case 2: return neo_bags_clear(m.bags[k]);
    case 3: return neo_bags_step(m.bags[k], 0.1f);
    default: return neo_bags_accumulate(m.bags[k], &b->j, dout.t[k], NULL);
    }
}
static void kept_failures(void) {
    for (int call = 0; call < 5; call++) {
        Model m;
        m.add(40, 12, NEO_BAG_ADAM);
        m.add(20, 8, NEO_BAG_ADAGRAD); /* in the same launch */
        m.desc.max_kept_rows = 60;
        m.make(16, 300);
        int failed = 0, told = 0;
        for (int n = 1; n < 60; n++) {
            Shape s;
            Batch b;
            fill(&b, m, s);
            Pair dout(m, b);
            neo_exact sum[2] = {};
            for (int k = 0; k < 2; k++) neo_exact_add(&sum[k], 3.0f);
            for (int k = 0; k < 2 && call < 4; k++)
                CHECK_OK(neo_bags_accumulate(m.bags[k], &b.j, dout.t[k], NULL));
            const int64_t kept = neo_bags_kept_count(m.bags[1]);
            neo_emu_fail_after(n);
            neo_status status = kept_call(m, call, 1, &b, dout, &sum[1]);
            const int has_failed = neo_emu_failed();
            neo_emu_fail_after(0);
            failed += has_failed, told += status != NEO_OK;
            if (status != NEO_OK) {
                CHECK(has_failed && status == NEO_ERR_DEVICE && strstr(neo_last_error(), "cuda:0"));
                CHECK(neo_exact_value(&sum[1]) == 3.0);
                CHECK_INT(neo_bags_kept_count(m.bags[1]), kept);
                check_same(m);
                CHECK_OK(kept_call(m, call, 1, &b, dout, &sum[1]));
            } else CHECK(!has_failed || call == 3);
            CHECK_OK(kept_call(m, call, 0, &b, dout, &sum[0]));
            CHECK(neo_exact_value(&sum[0]) == neo_exact_value(&sum[1]));
            check_same(m);
            for (int k = 0; k < 2 && call != 3; k++) CHECK_OK(neo_bags_clear(m.bags[k]));
            if (test_errors) {
                FAIL("%s, call %d of CUDA", kept_call_name[call], n);
                return;
            }
            if (!has_failed) break;
        }
        CHECK(failed > 0 && failed < 58 &&
              told == failed - (call == 3 ? 3 : 0)); /* 3: of the step's clear */
    }
    Model m;
    neo_exact sum;
    neo_exact_zero(&sum);
    CHECK_ERR(neo_bags_grad_squares(NULL, &sum), NEO_ERR_ARG, "bags is NULL");
    CHECK_ERR(neo_bags_scale_grads(NULL, 1), NEO_ERR_ARG, "neo_bags_scale_grads: bags is NULL");
    CHECK_ERR(neo_bags_clear(NULL), NEO_ERR_ARG, "neo_bags_clear: bags is NULL");
}
#endif

int main(void) {
    const char *seed = getenv("NEO_EMU_SEED");
    for (int order = 0; order < (seed || !emulated ? 1 : 3); order++) {
        const uint64_t number = seed ? strtoull(seed, NULL, 10) : (uint64_t)order;
#if defined(NEO_CUDA_ON_CPU)
        neo_emu_set_order(number);
#endif
        neo_cuda_desc desc = {0, 1, 0};
        if (neo_cuda_device_create(&desc, &gpu) != NEO_OK) {
            printf("%s\n", neo_last_error());
            return 1;
        }
        size_t live = live_bytes();
        gpu_copy = gpu->copy, gpu->copy = count_copy;
        state = number + 1;
        RUN(optimizers);
        RUN(widths);
        RUN(several_rows);
        RUN(wide_rows);
        RUN(shapes);
        RUN(hot_row);
        RUN(long_leaves);
        RUN(kept);
        RUN(rows_and_growth);
        RUN(large_keys);
        RUN(errors);
        RUN(cut_columns);
        RUN(cut_columns_of_a_tier);
        RUN(tiers);
        RUN(lines_grow);
        RUN(tier_errors);
        RUN(copies);
#if defined(NEO_CUDA_ON_CPU)
        RUN(roundings);
        RUN(failures);
        RUN(kept_failures);
#endif
        if (live_bytes() != live) printf("memory of the device was lost\n"), test_failed++;
        neo_cuda_device_destroy(gpu);
    }
    return test_end("cuda/bags");
}
