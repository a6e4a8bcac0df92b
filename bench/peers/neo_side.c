/* neo_side.c: neo's side of the comparisons with peers: plain functions over plain pointers, which
   the scripts call by ctypes in the peer's own process, so that neo and peer take turns.

   As a library:
     cc -O2 -fPIC -shared -I. bench/peers/neo_side.c examples/neo.c -o libneo_side.so -lm -lpthread
   As a program (-DNEO_SIDE_MAIN):  neo_start D BATCH THREADS ROWS makes a DLRM of 26 tables with
                                    lazy_init,
   takes one step of uniform ids, prints a line and leaves: what a process costs before it trains.

   Functions that can fail return 0, or a status that is not; neo_side_error says why. Floats are
   f32 unless said, ids and offsets i64, matrices row-major without gaps. Objects belong to one
   thread at a time. */
#include "../model.h"

#include "../bare.h"
#include "../probe.h"

#define SIDE __attribute__((visibility("default")))

SIDE const char *neo_side_error(void) { return neo_last_error(); }
SIDE const char *neo_side_isa(void) {
    return neo_isa_name(neo_isa_available(NEO_ISA_AVX512) ? NEO_ISA_AVX512
                        : neo_isa_available(NEO_ISA_AVX2) ? NEO_ISA_AVX2
                        : neo_isa_available(NEO_ISA_NEON) ? NEO_ISA_NEON
                                                          : NEO_ISA_SCALAR);
}
/* What multiplies bf16. */
SIDE const char *neo_side_bf16_isa(void) {
    return neo_isa_name(neo_isa_available(NEO_ISA_AMX)          ? NEO_ISA_AMX
                        : neo_isa_available(NEO_ISA_AVX512BF16) ? NEO_ISA_AVX512BF16
                                                                : NEO_ISA_SCALAR);
}
SIDE void *neo_side_ctx(int threads) {
    neo_ctx *ctx = NULL;
    neo_ctx_desc desc = {.threads = threads, .seed = 1};
    return neo_ctx_create(&desc, &ctx) == NEO_OK ? ctx : NULL;
}
SIDE void neo_side_ctx_free(void *ctx) { neo_ctx_destroy((neo_ctx *)ctx); }
/* GFLOP/s of multiply-adds of one core, in one burst of 2 ms. */
SIDE double neo_side_fma(void) { return bench_fma_once(); }
/* The same of what multiplies bf16. */
SIDE double neo_side_bf16(void) { return bench_bf16_once(); }
/* GB/s at which the context's threads read a working set of `bytes` again and again. */
SIDE double neo_side_read(void *ctx, int64_t bytes) {
    return bench_read_rate((neo_ctx *)ctx, bytes);
}

/* ---- dense layers ---- */
typedef void (*sgemm64)(int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                        float beta, float *c, int64_t ldc);

static neo_dtype dtype_of(int bf16) { return bf16 ? NEO_BF16 : NEO_F32; }
/* c = op(a) op(b), `repeats` times; op(a) is [m][k], op(b) [k][n]. All f32, or bf16. */
SIDE int neo_side_gemm(void *ctx, int bf16, int trans_a, int trans_b, int64_t m, int64_t n,
                       int64_t k, void *a, void *b, void *c, int repeats) {
    neo_gemm_desc d = {.trans_a = trans_a, .trans_b = trans_b};
    const neo_dtype t = dtype_of(bf16);
    for (int i = 0; i < repeats; i++)
        BENCH_TRY(neo_gemm(
            (neo_ctx *)ctx, &d, neo_tensor_2d(a, t, trans_a ? k : m, trans_a ? m : k),
            neo_tensor_2d(b, t, trans_b ? n : k, trans_b ? k : n), neo_tensor_2d(c, t, m, n)));
    return 0;
}
/* The same by a BLAS whose cblas_sgemm takes 64-bit sizes. */
SIDE int neo_side_blas(void *sgemm, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                       float *a, float *b, float *c, int repeats) {
    sgemm64 call;
    memcpy(&call, &sgemm, sizeof call);
    for (int i = 0; i < repeats; i++)
        call(101, trans_a ? 112 : 111, trans_b ? 112 : 111, m, n, k, 1.0f, a, trans_a ? m : k, b,
             trans_b ? k : n, 0.0f, c, n);
    return 0;
}
/* y [b][out] = x [b][in] w^T + bias, w [out][in]. All f32, or bf16 with a bias of f32. */
SIDE int neo_side_linear(void *ctx, int bf16, int64_t b, int64_t in, int64_t out, void *x, void *w,
                         float *bias, void *y, int repeats) {
    const neo_dtype t = dtype_of(bf16);
    for (int i = 0; i < repeats; i++)
        BENCH_TRY(neo_linear_forward(
            (neo_ctx *)ctx, neo_tensor_2d(x, t, b, in), neo_tensor_2d(w, t, out, in),
            neo_tensor_1d(bias, NEO_F32, out), NEO_ACT_NONE, neo_tensor_2d(y, t, b, out)));
    return 0;
}
/* dx = dz w and dw = dz^T x; a pointer that is NULL: not computed. All f32, or bf16 with dw of f32.
   */
SIDE int neo_side_linear_back(void *ctx, int bf16, int64_t b, int64_t in, int64_t out, void *x,
                              void *w, void *dz, void *dx, float *dw, int repeats) {
    const neo_dtype t = dtype_of(bf16);
    neo_tensor none = neo_tensor_none();
    for (int i = 0; i < repeats; i++)
        BENCH_TRY(neo_linear_backward((neo_ctx *)ctx, NULL, neo_tensor_2d(x, t, b, in),
                                      neo_tensor_2d(w, t, out, in), neo_tensor_2d(dz, t, b, out),
                                      dx ? neo_tensor_2d(dx, t, b, in) : none,
                                      dw ? neo_tensor_2d(dw, NEO_F32, out, in) : none, none));
    return 0;
}

/* The bare loop of a layer's product (bare.h), y, dx or dw by kind 0, 1, 2; c has 14 rows and 32
   columns more. scale: NULL, or what its time is multiplied by, 0 where there is none. */
SIDE int neo_side_bare(void *ctx, int kind, int64_t b, int64_t in, int64_t out, float *x, float *w,
                       float *dz, float *c, double *scale, int repeats) {
    static float *packed;
    static int room; /* threads of the context that had most so far */
    const int threads = neo_ctx_threads((neo_ctx *)ctx);
    if (threads > room) {
        free(packed);
        packed = (float *)bench_alloc((size_t)(threads * BARE_PANELS * 4));
        room = threads;
    }
    bare_product p = {.m = b, .n = out, .k = in, .a = x, .b = w, .c = c, .packed = packed};
    if (kind == 1) p.n = in, p.k = out, p.a = dz;
    if (kind == 2) p.m = out, p.n = in, p.k = b, p.k_major = 1, p.a = dz, p.b = x;
    bare_turn(&p);
    if (scale) *scale = bare_of(&p) ? bare_scale(&p) : 0;
    for (int i = 0; i < repeats; i++) bare_run((neo_ctx *)ctx, &p);
    return 0;
}

/* ---- bags ---- */
/* `weights`: [tables] addresses of rows of dtype (0: f32, 1: f16), used in place; NULL: neo's own
   memory. optim: 0 row-wise Adagrad, 1 Adagrad. buckets: of rows. f16 rows are rounded to
   nearest. */
SIDE void *neo_side_bags(void *ctx, int tables, int64_t rows, int64_t dim, int f16, int optim,
                         int buckets, int64_t max_batch, int64_t max_ids, void *const *weights) {
    neo_table_desc *t = (neo_table_desc *)calloc((size_t)tables, sizeof *t);
    char(*names)[16] = (char(*)[16])calloc((size_t)tables, sizeof *names);
    neo_bags *bags = NULL;
    for (int i = 0; t && names && i < tables; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        t[i] =
            (neo_table_desc){.name = names[i],
                             .rows = rows,
                             .dim = dim,
                             .dtype = f16 ? NEO_F16 : NEO_F32,
                             .row_buckets = buckets,
                             .round_nearest = 1,
                             .weight = weights ? weights[i] : NULL,
                             .optim = {.kind = optim ? NEO_BAG_ADAGRAD : NEO_BAG_ROWWISE_ADAGRAD}};
        if (weights) t[i].init.kind = NEO_INIT_NONE;
    }
    neo_bags_desc d = {
        .tables = t, .table_count = tables, .max_batch = max_batch, .max_ids = max_ids};
    if (!t || !names || neo_bags_create((neo_ctx *)ctx, &d, &bags) != NEO_OK) bags = NULL;
    free(t);
    free(names);
    return bags;
}
SIDE void neo_side_bags_free(void *bags) { neo_bags_destroy((neo_bags *)bags); }
static neo_jagged jagged(int tables, int64_t batch, const int64_t *offsets, const int64_t *ids) {
    neo_jagged j = {.batch = batch,
                    .feature_count = tables,
                    .id_dtype = NEO_I64,
                    .offsets = offsets,
                    .ids = ids};
    return j;
}
/* out, dout [batch][tables dim]; offsets [tables batch + 1], ids of all tables. */
SIDE int neo_side_bags_forward(void *bags, int tables, int64_t batch, const int64_t *offsets,
                               const int64_t *ids, float *out) {
    neo_jagged j = jagged(tables, batch, offsets, ids);
    return (int)neo_bags_forward(
        (neo_bags *)bags, &j,
        neo_tensor_2d(out, NEO_F32, batch, neo_bags_out_width((neo_bags *)bags)));
}
SIDE int neo_side_bags_backward(void *bags, int tables, int64_t batch, const int64_t *offsets,
                                const int64_t *ids, float *dout, float lr) {
    neo_jagged j = jagged(tables, batch, offsets, ids);
    return (int)neo_bags_backward(
        (neo_bags *)bags, &j,
        neo_tensor_2d(dout, NEO_F32, batch, neo_bags_out_width((neo_bags *)bags)), lr);
}
/* k 0: the rows, 1: the optimizer's state. */
SIDE void *neo_side_bags_data(void *bags, int table, int k) {
    return k ? neo_bags_state((neo_bags *)bags, table, 0).data
             : neo_bags_weight((neo_bags *)bags, table).data;
}

/* The fastest loops that touch the same rows (probe.h), chosen here. rows, states: [tables]
   addresses; ids: [batches] of all bags, of `length` each; x [batch][tables dim] is overwritten.
   NULL: there are none for these rows. */
SIDE void *neo_side_probe(void *ctx, int tables, void *const *rows, void *const *states, int f16,
                          int64_t dim, int64_t batch, int64_t length, int batches,
                          const int64_t *const *ids, float *x) {
    const neo_dtype dtype = f16 ? NEO_F16 : NEO_F32;
    if (!probe_possible(dtype, dim) || batches > PROBE_BATCHES) return NULL;
    probe_table *t = (probe_table *)bench_alloc((size_t)tables * sizeof *t);
    probe *p = (probe *)bench_alloc(sizeof *p);
    for (int i = 0; i < tables; i++)
        t[i] = (probe_table){.rows = (char *)rows[i], .state = (float *)states[i]};
    *p = probe_make((neo_ctx *)ctx, dtype, batch, length, dim, t, tables, ids, batches);
    free(t);
    probe_choose(p, 0, x);
    probe_choose(p, 1, x);
    return p;
}
/* Batch i; x: out, or dout of backward, which leaves rows as they are. */
SIDE int neo_side_probe_run(void *p, int backward, int i, float *x) {
    probe_run((probe *)p, backward, i, x, 0.0f);
    return 0;
}
SIDE void neo_side_probe_free(void *p) {
    probe_free((probe *)p);
    free(p);
}

/* ---- DLRM: one training step by the plain objects of neo.h (model.h) ---- */
SIDE void neo_side_dlrm_free(void *m) {
    neo_ctx *ctx = m ? ((model *)m)->ctx : NULL;
    if (m) model_destroy((model *)m);
    neo_ctx_destroy(ctx);
    free(m);
}
/* 13 dense numbers, 26 tables of `rows` rows, one id per sample and table. bottom, top: widths
   after the input, the bottom's last is the tables' dim. Row-wise Adagrad on the tables, Adagrad
   from `initial` on the layers. bf16: what the layers multiply, while their parameters and sums are
   f32. */
SIDE void *neo_side_dlrm(int threads, int bf16, int64_t batch, int64_t rows, const int64_t *bottom,
                         int bottoms, const int64_t *top, int tops, float initial, int lazy_init) {
    int64_t widths[NEO_MAX_LAYERS + 1] = {DENSE}, of_tables[TABLES];
    memcpy(widths + 1, bottom, (size_t)bottoms * sizeof *widths);
    const model_desc d = {.batch = batch,
                          .bottom = widths,
                          .bottom_count = bottoms + 1,
                          .top = top,
                          .top_count = tops,
                          .dtype = dtype_of(bf16),
                          .optim = {.initial_accumulator = initial},
                          .lazy_init = lazy_init,
                          .early = 1};
    neo_ctx *ctx = (neo_ctx *)neo_side_ctx(threads);
    model *m = ctx ? (model *)calloc(1, sizeof *m) : NULL;
    if (m && kaggle_create(m, ctx, d, same_rows(of_tables, rows), 0) == NEO_OK) return m;
    if (m) neo_side_dlrm_free(m);
    else neo_ctx_destroy(ctx);
    return NULL;
}
/* Parameter i of the layers, in order: weight, bias, weight ...; NULL behind the last. */
SIDE void *neo_side_dlrm_param(void *dlrm, int i) {
    model *m = (model *)dlrm;
    return i < neo_params_count(m->params) ? neo_params_at(m->params, i)->value.data : NULL;
}
SIDE void *neo_side_dlrm_table(void *dlrm, int t) {
    return neo_bags_weight(((model *)dlrm)->bags, t).data;
}
/* dense [batch][13], label [batch]; ids [26][batch], offsets [26 batch + 1]; loss: NULL, or the
   mean. */
SIDE int neo_side_dlrm_step(void *dlrm, float *dense, float *label, const int64_t *offsets,
                            const int64_t *ids, float lr, double *loss) {
    model *m = (model *)dlrm;
    neo_jagged j = jagged(TABLES, m->batch, offsets, ids);
    const model_batch b = {neo_tensor_2d(dense, NEO_F32, m->batch, DENSE),
                           neo_tensor_1d(label, NEO_F32, m->batch), &j};
    return (int)model_step(m, &b, lr, loss);
}

/* ---- reader ---- */
/* Generated samples [first, first + count) as a Criteo TSV file. best [2]: AUC and log loss that
   the planted truth reaches on them, or NULL. */
SIDE int neo_side_write_tsv(const char *path, int64_t first, int64_t count, int64_t rows,
                            double *best) {
    neo_ctx *ctx;
    neo_schema *schema;
    neo_synthetic_desc d = {.samples = count, .rows = rows};
    BENCH_TRY(neo_ctx_create(NULL, &ctx));
    neo_status status = neo_schema_synthetic(ctx, &d, &schema);
    if (status == NEO_OK) {
        status = neo_synthetic_write_tsv(ctx, schema, path, first, count);
        if (status == NEO_OK && best)
            status = neo_schema_best(schema, first, count, &best[0], &best[1]);
        neo_schema_destroy(schema);
    }
    neo_ctx_destroy(ctx);
    return (int)status;
}
/* Read the file once, `threads` parsing threads, all batches to their end. sums [3]: of labels, of
   dense numbers, of ids (as doubles); NULL: batches are only taken. */
SIDE int neo_side_read_tsv(const char *path, int threads, int64_t batch, int64_t rows,
                           int64_t *samples, double *sums) {
    neo_ctx *ctx;
    neo_schema *schema = NULL;
    neo_reader *reader = NULL;
    neo_batch b;
    neo_ctx_desc one = {.threads = 1};
    BENCH_TRY(neo_ctx_create(&one, &ctx));
    neo_status status = neo_schema_criteo(ctx, NEO_IDS_HASH, rows, NULL, &schema);
    neo_reader_desc d = {
        .schema = schema, .paths = &path, .path_count = 1, .batch = batch, .threads = threads};
    if (status == NEO_OK) status = neo_reader_open(ctx, &d, &reader);
    *samples = 0;
    while (status == NEO_OK && (status = neo_reader_next(reader, &b)) == NEO_OK) {
        *samples += b.size;
        if (!sums) continue;
        for (int64_t i = 0; i < b.size; i++) sums[0] += (double)((const float *)b.label.data)[i];
        for (int64_t i = 0; i < b.size * DENSE; i++)
            sums[1] += (double)((const float *)b.dense.data)[i];
        for (int64_t i = 0; i < b.size * TABLES; i++)
            sums[2] += (double)((const int64_t *)b.sparse.ids)[i];
    }
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return status == NEO_END ? 0 : (int)status;
}

#ifdef NEO_SIDE_MAIN
int main(int argc, char **argv) {
    int64_t batch = argc > 2 ? atoll(argv[2]) : 128, dim = argc > 1 ? atoll(argv[1]) : 16;
    const int64_t rows = argc > 4 ? atoll(argv[4]) : 100000;
    const int64_t bottom[] = {512, 256, dim == 16 ? 64 : dim, dim}, top[] = {512, 256, 1};
    double loss = 0;
    void *m =
        neo_side_dlrm(argc > 3 ? atoi(argv[3]) : 1, 0, batch, rows, bottom, 4, top, 3, 0, 1);
    float *dense = (float *)bench_alloc((size_t)(batch * DENSE) * 4),
          *label = (float *)bench_alloc((size_t)batch * 4);
    int64_t *ids = (int64_t *)bench_alloc((size_t)(batch * TABLES) * 8),
            *offsets = (int64_t *)bench_alloc((size_t)(batch * TABLES + 1) * 8);
    bench_fill(dense, batch * DENSE);
    for (int64_t i = 0; i <= batch * TABLES; i++) offsets[i] = i;
    for (int64_t i = 0; i < batch * TABLES; i++)
        ids[i] = (int64_t)(bench_random() % (uint64_t)rows);
    if (!m || neo_side_dlrm_step(m, dense, label, offsets, ids, 0.01f, &loss) != 0 ||
        !isfinite(loss)) {
        printf("failed: %s\n", neo_last_error());
        return 1;
    }
    printf("step %.6f\n", loss);
    fflush(stdout);
    neo_side_dlrm_free(m);
    free(dense), free(label), free(ids), free(offsets);
    return 0;
}
#endif
