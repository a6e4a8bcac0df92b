/* lazy_init.c: rows that get their first values when they are first needed.

   The reference is an object whose rows create makes: after every call of the same calls, outputs,
   rows and states must be its, bit for bit, on any threads and instruction set: over row dtypes,
   optimizers whose state does not begin at 0, parts of tables, ids that are dropped or clamped,
   batches seen by backward alone, gradients that are kept. Rows wait indeed: an allocator marks its
   memory, and the marks of rows that nothing has needed are still there after create and after a
   step; enough forwards leave none. Files and digests of a new object have all rows. */
#include "neo_state.h"

#include "common.h"
#include "digest.h"

enum { MARK = 0xAB, ROWS = 5000, CASES = 8 };
static struct {
    unsigned char *block; /* the largest that an object has taken */
    size_t bytes;
} memory;
static void *marked_alloc(size_t size, size_t align, void *user) {
    void *p = NULL;
    (void)user;
    if (posix_memalign(&p, align < sizeof p ? sizeof p : align, size) != 0) return NULL;
    memset(p, MARK, size);
    if (size > memory.bytes) memory.block = p, memory.bytes = size;
    return p;
}
static void plain_free(void *p, size_t size, void *user) {
    (void)size, (void)user;
    free(p);
}
static neo_ctx *make_ctx(int threads, neo_isa isa) {
    neo_ctx *ctx = NULL;
    neo_ctx_desc desc = {.threads = threads, .isa = neo_isa_available(isa) ? isa : NEO_ISA_BEST,
                         .seed = 7, .allocator = {marked_alloc, plain_free, NULL}};
    CHECK_OK(neo_ctx_create(&desc, &ctx));
    memset(&memory, 0, sizeof memory);
    return ctx;
}

/* ---- the same bits ---- */
static void describe(Model *m, int which) {
    static const neo_dtype dtype[] = {NEO_F32, NEO_F16, NEO_I8, NEO_BF16};
    static const int64_t rows[] = {ROWS, 3, 700, 800}, dims[] = {16, 5, 48, 1100};
    model_init(m, 4, rows, dims, 5, which % 3 == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM);
    for (int t = 0; t < 4; t++) {
        neo_table_desc *d = &m->table[t];
        d->dtype = dtype[(which + t) % 4];
        d->optim.kind = (neo_bag_optim_kind)((which + t) % NEO_BAG_OPTIM_COUNT);
        if (d->optim.kind == NEO_BAG_ADAGRAD || d->optim.kind == NEO_BAG_ROWWISE_ADAGRAD ||
            d->optim.kind == NEO_BAG_FTRL)
            d->optim.initial_accumulator = 0.25f;
        if (which == 2) d->init = (neo_init){.kind = NEO_INIT_NORMAL, .b = 0.5f};
        if (which == 3) d->init = (neo_init){.kind = NEO_INIT_CONSTANT, .a = 2.0f};
    }
    if (which % 4 == 0) { /* columns 16 .. 64 of 100, rows 100 .. 800 of 1000 */
        m->table[2].dtype = which ? NEO_F16 : NEO_F32, m->table[2].optim.kind = NEO_BAG_ADAGRAD;
        m->table[2].part = (neo_table_part){1000, 100, 100, 16};
    }
    m->desc.bounds = which == 5   ? NEO_BOUNDS_DROP
                     : which == 6 ? NEO_BOUNDS_CLAMP
                                  : NEO_BOUNDS_ERROR;
    m->desc.max_kept_rows = 4000;
}
typedef struct Pair {
    neo_ctx *ctx[2];
    neo_bags *bags[2]; /* 0: made by create */
} Pair;
static void compare_rows(const Pair *p, int t, int64_t first, int64_t count, int64_t dim) {
    float *rows[2];
    for (int k = 0; k < 2; k++) {
        rows[k] = malloc((size_t)(count * dim) * sizeof(float));
        CHECK_OK(neo_bags_get_rows(p->bags[k], t, first, count, rows[k]));
    }
    CHECK(memcmp(rows[0], rows[1], (size_t)(count * dim) * sizeof(float)) == 0);
    free(rows[0]);
    free(rows[1]);
}
static void take_batch(const Pair *p, const Model *m, int step) {
    Batch b;
    Out out[2], dout;
    batch_make(&b, m, (BatchKind){40, 3, step % 2, step % 3 == 2, step % 2, step == 4});
    const int64_t ids = neo_jagged_id_count(&b.j);
    if (m->desc.bounds != NEO_BOUNDS_ERROR && ids > 2) {
        batch_set_id(&b, b.offsets[0], -4);
        batch_set_id(&b, b.offsets[0] + ids - 1, 1 << 20);
    }
    out_make(&dout, m, &b.j, 0);
    for (int k = 0; k < 2; k++) {
        neo_bags *bags = p->bags[k];
        out_make(&out[k], m, &b.j, 0);
        memcpy(out[k].data, dout.data, (size_t)dout.count * sizeof(float));
        if (step > 2) CHECK_OK(neo_bags_forward(bags, &b.j, out[k].t));
        if (step == 1 || step == 2) {
            const int64_t row[] = {1, 699};
            static float grad[2 * 48] = {1.0f, 2.0f};
            if (step == 2) CHECK_OK(neo_bags_accumulate(bags, &b.j, dout.t, NULL));
            CHECK_OK(neo_bags_add_grad(bags, 2, row, 2, neo_tensor_2d(grad, NEO_F32, 2, 48)));
            CHECK_OK(neo_bags_step(bags, 0.1f));
        } else CHECK_OK(neo_bags_backward(bags, &b.j, dout.t, 0.1f));
    }
    CHECK(memcmp(out[0].data, out[1].data, (size_t)dout.count * sizeof(float)) == 0);
    for (int k = 0; k < 2; k++) free(out[k].data);
    free(dout.data);
    batch_free(&b);
}
static void same_bits(int which) {
    static const float ones[2 * 48] = {1.0f, 2.0f, 3.0f};
    static float yours[2][ROWS * 16];
    Pair p;
    Model m;
    describe(&m, which);
    for (int k = 0; k < 2; k++) {
        neo_bags_memory bytes;
        p.ctx[k] = make_ctx(k ? 3 : 1, k ? NEO_ISA_BEST : NEO_ISA_SCALAR);
        m.desc.lazy_init = k;
        if (which == 7) m.table[0].dtype = NEO_F32, m.table[0].weight = yours[k];
        CHECK_OK(neo_bags_bytes(p.ctx[k], &m.desc, &bytes));
        const size_t before = neo_ctx_memory(p.ctx[k]).bytes;
        CHECK_OK(neo_bags_create(p.ctx[k], &m.desc, &p.bags[k]));
        CHECK_INT(neo_ctx_memory(p.ctx[k]).bytes - before,
                 bytes.weight_bytes + bytes.state_bytes + bytes.workspace_bytes);
    }
    CHECK(which != 7 || memcmp(yours[0], yours[1], sizeof yours[0]) == 0);
    compare_rows(&p, 2, 650, 50, 48);
    for (int k = 0; k < 2; k++) CHECK_OK(neo_bags_set_rows(p.bags[k], 2, 100, 2, ones));
    for (int step = 0; step < 6; step++) {
        take_batch(&p, &m, step);
        if (step == 5 || which == 2)
            CHECK_INT(bags_digest(p.ctx[0], p.bags[0]), bags_digest(p.ctx[1], p.bags[1]));
    }
    for (int t = 0; t < 4; t++) compare_rows(&p, t, 0, m.table[t].rows, m.table[t].dim);
    for (int k = 0; k < 2; k++) neo_bags_destroy(p.bags[k]), neo_ctx_destroy(p.ctx[k]);
}

/* ---- rows wait, and all come ---- */
static size_t marked(void) {
    size_t n = 0;
    for (size_t i = 0; i + 64 <= memory.bytes; i += 64) { /* a row of 16 floats, or 16 states */
        size_t k = 0;
        while (k < 64 && memory.block[i + k] == MARK) k++;
        n += k == 64;
    }
    return n;
}
static void rows_wait(int threads) {
    enum { MANY = 70016, FEW = 16 };
    static float out[FEW * 16];
    static int64_t offsets[FEW + 1], ids[FEW];
    const int64_t rows = MANY, dim = 16;
    Model m;
    neo_bags *bags;
    neo_ctx *ctx = make_ctx(threads, NEO_ISA_BEST);
    model_init(&m, 1, &rows, &dim, 1, NEO_POOL_SUM);
    m.table[0].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    m.desc.lazy_init = 1;
    CHECK_OK(neo_bags_create(ctx, &m.desc, &bags));
    const size_t all = memory.bytes / 64;
    CHECK_INT(marked(), all);
    for (int i = 0; i < FEW; i++) offsets[i + 1] = i + 1, ids[i] = MANY - 1 - 50 * i;
    const neo_jagged j = {.batch = FEW, .feature_count = 1, .offsets = offsets, .ids = ids,
                          .id_dtype = NEO_I64};
    CHECK_OK(neo_bags_backward(bags, &j, neo_tensor_2d(out, NEO_F32, FEW, 16), 0.1f));
    size_t left = marked();
    CHECK(left < all && left > all - FEW * 68 - 1); /* what it needs, and no more */
    for (int i = 0; i < 16 && left; i++) {
        CHECK_OK(neo_bags_forward(bags, &j, neo_tensor_2d(out, NEO_F32, FEW, 16)));
        CHECK(marked() < left);
        left = marked();
    }
    CHECK_INT(left, 0);
    neo_bags_destroy(bags);
    neo_ctx_destroy(ctx);
}

static void test_same_bits(void) {
    for (int which = 0; which < CASES; which++) same_bits(which);
}
static void test_rows_wait(void) {
    rows_wait(1);
    rows_wait(3);
}
int main(void) {
    RUN(test_same_bits);
    RUN(test_rows_wait);
    return test_end("bags/lazy_init");
}
