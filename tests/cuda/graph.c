/* graph.c: training steps recorded as CUDA graphs (neo_cuda_graph_...) against the same calls
   without one, on the device and on the CPU.

   A small recommendation model with jagged bags, an MLP and a loss trains on batches of varying
   sizes: all three have the same losses and the same digest, bit for bit, whatever changes from
   step to step. Errors of data are found on the device; they have the status and text of the same
   call at once, and no weight has changed. The device is that of neo_cuda.cuh, emulated on the CPU
   or, in `make test-cuda`, a GPU. */
#include "test.h"

#include "model.h"

#include "neo_cuda.cuh"

#ifndef NEO__GRAPH_OPS
#define NEO__GRAPH_OPS 4096 /* as in neo_cuda.cuh */
#define NEO__GRAPH_AGE 1024
#endif
enum { FEATURES = 3, MOST_BATCH = 16, MOST_IDS = 200, WIDTH = 20, STEPS = 14 };

static neo_device *gpu;
#if defined(EMULATED)
void emu_set_order(uint64_t seed);
int64_t emu_ranges(const char *name);
void emu_set_memory(size_t bytes);
#else
static void emu_set_order(uint64_t seed) { (void)seed; }
static void emu_set_memory(size_t bytes) { (void)bytes; }
#endif

/* ---- batches ---- */
typedef struct Batch {
    neo_jagged j;
    int64_t offsets[FEATURES * MOST_BATCH + 1], ids[MOST_IDS];
    float weights[MOST_IDS], label[MOST_BATCH];
} Batch;
static const int64_t ROWS[FEATURES] = {50, 7, 300};

/* Bags of 0 to 4 ids. */
static void make_batch(Batch *b, int64_t size) {
    int64_t k = 0;
    memset(b, 0, sizeof *b);
    for (int64_t i = 0; i < FEATURES * size; i++) {
        for (int n = (int)(test_random() % 5); n > 0; n--, k++) {
            b->ids[k] = (int64_t)test_random() % ROWS[i / size];
            b->weights[k] = test_uniform();
        }
        b->offsets[i + 1] = k;
    }
    for (int64_t i = 0; i < size; i++) b->label[i] = (float)(test_random() % 2);
    b->j.batch = size;
    b->j.feature_count = FEATURES;
    b->j.id_dtype = NEO_I64;
    b->j.offsets = b->offsets;
    b->j.ids = b->ids;
    b->j.weights = b->weights;
}

/* ---- the model ---- */
typedef struct Trainer {
    neo_ctx *ctx;
    model m;               /* tables, and a top on their rows side by side */
    neo_cuda_graph *graph; /* or NULL */
    neo_tensor label;
} Trainer;

static int warnings; /* of copies, by all trainers' contexts since it was 0, */
static char warning[300]; /* and the last of them */
static void note_warning(neo_log_level level, const char *text, void *user) {
    (void)user;
    if (level != NEO_LOG_WARNING || !strstr(text, "pinned memory")) return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", text);
}
static float clip_type; /* of the trainers that are made next, */
static neo_optim_kind dense_kind = NEO_OPTIM_ADAM;
static size_t pool; /* and of their graphs' room */
static void make_model(Trainer *t, float clip_norm) {
    static const char *const names[FEATURES] = {"t0", "t1", "t2"};
    static const int64_t dims[FEATURES] = {8, 8, 4}, top[] = {17, 1};
    static const neo_bag_optim_kind kinds[FEATURES] = {NEO_BAG_ROWWISE_ADAGRAD, NEO_BAG_ADAM,
                                                       NEO_BAG_SGD};
    neo_table_desc tables[FEATURES];
    model_desc d;
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    for (int i = 0; i < FEATURES; i++) {
        tables[i].name = names[i];
        tables[i].rows = ROWS[i];
        tables[i].dim = dims[i];
        tables[i].optim.kind = kinds[i];
        tables[i].pooling = i == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM;
        tables[i].dtype = i == 2 ? NEO_BF16 : NEO_F32;
    }
    d.batch = MOST_BATCH, d.max_ids = MOST_IDS;
    d.tables = tables, d.table_count = FEATURES;
    d.top = top, d.top_count = 2;
    d.optim.kind = dense_kind;
    d.optim.clip_norm = clip_norm;
    d.optim.clip_norm_type = clip_type;
    CHECK_OK(model_create(&t->m, t->ctx, &d));
}
/* device: NULL is the CPU. copy_bytes: of a graph; -1: without one. */
static void make_trainer(Trainer *t, neo_device *device, int shards, float clip_norm,
                         int64_t copy_bytes) {
    const int64_t shape[2] = {MOST_BATCH, 1};
    neo_ctx_desc c;
    memset(t, 0, sizeof *t);
    memset(&c, 0, sizeof c);
    c.threads = 1;
    c.seed = 5;
    c.repro_shards = shards;
    c.device = device;
    c.logger.log = note_warning;
    CHECK_OK(neo_ctx_create(&c, &t->ctx));
    make_model(t, clip_norm);
    CHECK_OK(neo_tensor_alloc(t->ctx, NEO_F32, 2, shape, &t->label));
    CHECK_OK(neo_tensor_zero(t->ctx, t->label));
    if (copy_bytes < 0) return;
    const neo_cuda_graph_desc d = {(size_t)copy_bytes, pool, 0};
    CHECK_OK(neo_cuda_graph_create(device, &d, &t->graph));
}
static void free_trainer(Trainer *t) {
    neo_cuda_graph_destroy(t->graph);
    neo_tensor_free(t->ctx, &t->label);
    model_destroy(&t->m);
    CHECK_INT(neo_ctx_memory(t->ctx).device_bytes, 0);
    neo_ctx_destroy(t->ctx);
}

static neo_status calls_of_a_step(Trainer *t, const Batch *b, float lr, double *loss) {
    neo_tensor host = neo_tensor_2d((void *)(uintptr_t)b->label, NEO_F32, b->j.batch, 1);
    const model_batch batch = {neo_tensor_none(), neo_tensor_rows(t->label, 0, b->j.batch), &b->j};
    MODEL_TRY(neo_tensor_copy(t->ctx, host, batch.label));
    return model_step(&t->m, &batch, lr, loss);
}
/* The batch is written over afterwards, as a reader may do. */
static neo_status step(Trainer *t, const Batch *batch, float lr, double *loss) {
    Batch b = *batch;
    b.j.offsets = b.offsets, b.j.ids = b.ids, b.j.weights = b.weights;
    if (t->graph) MODEL_TRY(neo_cuda_graph_begin(t->graph));
    neo_status status = calls_of_a_step(t, &b, lr, loss);
    memset(&b, 0x55, sizeof b);
    if (status == NEO_OK && t->graph) status = neo_cuda_graph_end(t->graph);
    return status;
}

/* ---- the same bits ---- */

/* Steps of all sizes, a learning rate that changes, now and then a wait. */
static void train(Trainer *t, uint64_t seed, double *losses) {
    static const int64_t sizes[STEPS] = {16, 16, 7, 16, 1, 13, 16, 2, 16, 16, 16, 5, 16, 9};
    Batch b;
    test_seed = seed;
    for (int i = 0; i < STEPS; i++) {
        make_batch(&b, sizes[i]);
        CHECK_OK(step(t, &b, 0.1f / (float)(1 + i), &losses[i]));
        if (t->graph && i % 4 == 1) CHECK_OK(neo_cuda_graph_wait(t->graph));
        if (t->graph && i == 3) { /* a call between two steps comes between them */
            CHECK_OK(neo_scale(t->ctx, t->m.dy, 3.0f, NULL));
        }
    }
    if (t->graph) CHECK_OK(neo_cuda_graph_wait(t->graph));
}
static void test_bits(void) {
    static const struct { int shards; float clip, type; int64_t copy_bytes; neo_optim_kind kind;
    } cases[] = {{4, 0.0f, 2.0f, 1 << 16, NEO_OPTIM_ADAM},
                 {1, 0.05f, 2.0f, 1 << 16, NEO_OPTIM_ADAM},
                 {2, 0.3f, 1.0f, 1 << 16, NEO_OPTIM_ADAM},
                 {1, 0.02f, INFINITY, 1 << 16, NEO_OPTIM_ADAM},
                 {3, 0.0f, 2.0f, 1 << 16, NEO_OPTIM_LAMB}, /* whose norms stay on the device */
                 {1, 0.05f, 2.0f, 1 << 16, NEO_OPTIM_LAMB},
                 {3, 0.0f, 2.0f, 512, NEO_OPTIM_ADAM}}; /* 512: some copies are too big */
    for (int c = 0; c < 7; c++) {
        Trainer t[3];
        double losses[3][STEPS];
        uint64_t digest[3];
        clip_type = cases[c].type, dense_kind = cases[c].kind;
        warnings = 0;
        for (int i = 0; i < 3; i++) {
            make_trainer(&t[i], i ? gpu : NULL, cases[c].shards, cases[c].clip,
                         i == 2 ? cases[c].copy_bytes : -1);
            train(&t[i], 17, losses[i]);
            digest[i] = neo_state_digest(t[i].m.state);
        }
        CHECK(neo_optim_clip_factor(t[0].m.optim) < 1.0f || cases[c].clip == 0.0f);
        for (int i = 1; i < 3; i++) {
            CHECK(neo_optim_clip_factor(t[i].m.optim) == neo_optim_clip_factor(t[0].m.optim));
            CHECK(neo_optim_grad_norm(t[i].m.optim) == neo_optim_grad_norm(t[0].m.optim));
            if (digest[i] != digest[0])
                FAIL("case %d: trainer %d has another digest than the CPU", c, i);
            for (int s = 0; s < STEPS; s++)
                if (memcmp(&losses[i][s], &losses[0][s], sizeof losses[0][s]) != 0)
                    FAIL("case %d, trainer %d, step %d: loss %.17g, on the CPU %.17g", c, i, s,
                         losses[i][s], losses[0][s]);
        }
        const neo_cuda_graph_stats stats = neo_cuda_graph_get_stats(t[2].graph);
        CHECK_INT(stats.steps, STEPS);
        if (cases[c].copy_bytes == 1 << 16) {
            CHECK_INT(stats.launches,
                      STEPS); /* one a step; products of 1 and of 2 rows have other kernels, */
            CHECK(stats.graphs >= 3 && stats.graphs < 9); /* eighths of MOST_IDS other sorts */
            CHECK(stats.updates > 0);
            CHECK_INT(warnings, 0);
        } else {
            CHECK(stats.launches > STEPS);
            CHECK(stats.copy_bytes > 512 && stats.split > 0 && stats.split < 4); /* then it grew */
            CHECK_INT(warnings, 1);
            CHECK(strstr(warning, "its pinned memory had 512") && strstr(warning, "copy_bytes"));
        }
        for (int i = 0; i < 3; i++) free_trainer(&t[i]);
    }
    clip_type = 2.0f, dense_kind = NEO_OPTIM_ADAM;
}
/* Norm and factor are asked for in the step itself: what was recorded runs first. */
static void test_norm_asked(void) {
    Trainer t[2];
    for (int i = 0; i < 2; i++) make_trainer(&t[i], i ? gpu : NULL, 1, 0.05f, i ? 1 << 16 : -1);
    test_seed = 59;
    for (int s = 0; s < 3; s++) {
        Batch b;
        double loss[2], norm[2];
        make_batch(&b, MOST_BATCH);
        for (int i = 0; i < 2; i++) {
            if (i) CHECK_OK(neo_cuda_graph_begin(t[i].graph));
            CHECK_OK(calls_of_a_step(&t[i], &b, 0.1f, &loss[i]));
            norm[i] = s ? (double)neo_optim_clip_factor(t[i].m.optim)
                        : neo_optim_grad_norm(t[i].m.optim);
            CHECK_OK(neo_scale(t[i].ctx, t[i].m.de, (float)norm[i], NULL));
            if (i) CHECK_OK(neo_cuda_graph_end(t[i].graph));
        }
        CHECK(norm[0] == norm[1] && norm[0] > 0.0);
    }
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).launches, 6);
    for (int i = 0; i < 2; i++) free_trainer(&t[i]);
}
/* A gradient that is not finite, at any place of a graph that gets full: the CPU's error, and no
   weight has changed. A getter that has to run what is recorded leaves the error to the next call.
   */
static void test_norm_error(void) {
    static const float bad[3] = {INFINITY, -INFINITY, NAN};
    for (int type = 0; type < 3; type++) {
        Trainer t[2];
        clip_type = type == 0 ? INFINITY : (float)type;
        for (int i = 0; i < 2; i++) make_trainer(&t[i], i ? gpu : NULL, 1, 0.05f, i ? 1 << 16 : -1);
        test_seed = 61;
        for (int left = 0; left < 10; left++) {
            char text[2][512];
            for (int i = 0; i < 2; i++) {
                const neo_tensor grad = neo_params_at(t[i].m.params, 1)->grad; /* a bias */
                float x[64] = {0.0f, bad[left % 3]};
                const uint64_t before = neo_state_digest(t[i].m.state);
                const float norm = (float)neo_optim_grad_norm(t[i].m.optim);
                neo_status status = NEO_OK;
                if (i) CHECK_OK(neo_cuda_graph_begin(t[i].graph));
                for (int k = left; i && k < NEO__GRAPH_OPS; k++)
                    CHECK_OK(neo_scale(t[i].ctx, t[i].m.de, 0.5f, NULL));
                CHECK_OK(neo_tensor_copy(t[i].ctx,
                                         neo_tensor_1d(x, NEO_F32, neo_tensor_count(grad)), grad));
                status = neo_optim_step(t[i].m.optim, 0.1f);
                if (i && left == 9) CHECK((float)neo_optim_grad_norm(t[i].m.optim) == norm);
                if (i && status == NEO_OK) status = neo_cuda_graph_end(t[i].graph);
                if (i && status == NEO_OK) status = neo_cuda_graph_wait(t[i].graph);
                snprintf(text[i], sizeof text[i], "%s", neo_last_error());
                if (status != NEO_ERR_NUMERIC)
                    FAIL("type %d, room for %d, trainer %d: status %d", type, left, i, (int)status);
                CHECK(neo_state_digest(t[i].m.state) == before);
                CHECK((float)neo_optim_grad_norm(t[i].m.optim) == norm);
            }
            if (strcmp(text[1], text[0]) != 0)
                FAIL("type %d, room for %d: %s, on the CPU %s", type, left, text[1], text[0]);
            Batch b; /* and training goes on */
            double loss[2];
            make_batch(&b, MOST_BATCH);
            for (int i = 0; i < 2; i++) CHECK_OK(step(&t[i], &b, 0.1f, &loss[i]));
            CHECK_OK(neo_cuda_graph_wait(t[1].graph));
            CHECK(neo_state_digest(t[1].m.state) == neo_state_digest(t[0].m.state));
        }
        for (int i = 0; i < 2; i++) free_trainer(&t[i]);
    }
    clip_type = 2.0f;
}

/* ---- errors ---- */
typedef enum Wrong { BAD_ID, BAD_ID_BELOW, BAD_OFFSETS, BAD_LABEL, WRONGS } Wrong;
static void spoil(Batch *b, Wrong what) {
    switch (what) {
    case BAD_ID: b->ids[b->offsets[2 * b->j.batch] - 1] = ROWS[1]; break;
    case BAD_ID_BELOW: b->ids[b->offsets[3 * b->j.batch] - 1] = -1; break;
    case BAD_OFFSETS: b->offsets[b->j.batch + 3] = b->offsets[b->j.batch + 2] - 1; break;
    case BAD_LABEL: b->label[5] = 1.5f; break;
    case WRONGS: break;
    }
}
/* The error of the third step in the text of each trainer; `late`: it comes with the next step, of
   another size. */
static void fail_in(Wrong what, int late) {
    char text[3][512];
    neo_status status[3];
    uint64_t after = 0;
    for (int i = 0; i < 3; i++) {
        Trainer t;
        Batch b;
        double loss[4] = {-1.0, -1.0, -1.0, -1.0};
        make_trainer(&t, i ? gpu : NULL, 2, 0.0f, i == 2 ? 1 << 16 : -1);
        test_seed = 23;
        for (int s = 0; s < 2; s++) {
            make_batch(&b, MOST_BATCH);
            CHECK_OK(step(&t, &b, 0.1f, &loss[s]));
        }
        if (t.graph) CHECK_OK(neo_cuda_graph_wait(t.graph));
        const uint64_t before = neo_state_digest(t.m.state);
        make_batch(&b, 12);
        spoil(&b, what);
        status[i] = step(&t, &b, 0.1f, &loss[2]);
        const uint64_t seed = test_seed;
        if (t.graph) {
            CHECK_OK(status[i]);
            make_batch(&b, 7);
            test_seed = seed; /* what follows is the same for all */
            status[i] = late ? step(&t, &b, 0.1f, &loss[3]) : neo_cuda_graph_wait(t.graph);
            snprintf(text[i], sizeof text[i], "%s", neo_last_error());
            CHECK_ERR(neo_cuda_graph_end(t.graph), NEO_ERR_STATE, "no step is being recorded");
            CHECK_OK(neo_cuda_graph_wait(t.graph)); /* it is told once */
            /* The next step was behind it on the device already, and did nothing. */
            CHECK_INT(neo_cuda_graph_get_stats(t.graph).launches, late ? 4 : 3);
        } else {
            snprintf(text[i], sizeof text[i], "%s", neo_last_error());
        }
        CHECK(status[i] != NEO_OK && status[i] == status[0]);
        if (strcmp(text[i], text[0]) != 0)
            FAIL("error %d: trainer %d says: %s; the CPU: %s", (int)what, i, text[i], text[0]);
        CHECK(neo_state_digest(t.m.state) == before);
        CHECK(loss[2] == -1.0 && loss[3] == -1.0);
        make_batch(&b, 11); /* and training goes on */
        CHECK_OK(step(&t, &b, 0.1f, &loss[3]));
        if (t.graph) CHECK_OK(neo_cuda_graph_wait(t.graph));
        CHECK(neo_state_digest(t.m.state) != before && loss[3] > 0.0);
        if (i == 0) after = neo_state_digest(t.m.state);
        CHECK(neo_state_digest(t.m.state) == after);
        free_trainer(&t);
    }
}
static void test_wrong_data(void) {
    for (int what = 0; what < WRONGS; what++)
        for (int late = 0; late < (what == BAD_ID || what == BAD_LABEL ? 2 : 1); late++)
            fail_in((Wrong)what, late);
}
/* Ids of a plain embedding, which nothing waits for. */
static void test_embedding_error(void) {
    Trainer t;
    int64_t shape[2] = {10, 6}, count = 4, ids[4] = {3, 9, 10, -1};
    neo_tensor table, out, there, host = neo_tensor_1d(ids, NEO_I64, 4);
    make_trainer(&t, gpu, 1, 0.0f, 0);
    REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_F32, 2, shape, &table));
    shape[0] = 4;
    REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_F32, 2, shape, &out));
    REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_I64, 1, &count, &there));
    CHECK_OK(neo_tensor_zero(t.ctx, table));
    for (int backward = 0; backward < 2; backward++) {
        CHECK_OK(neo_cuda_graph_begin(t.graph));
        CHECK_OK(neo_tensor_copy(t.ctx, host, there));
        if (backward) CHECK_OK(neo_embedding_backward(t.ctx, NULL, there, out, table, 0));
        else CHECK_OK(neo_embedding_forward(t.ctx, there, table, out));
        CHECK_OK(neo_cuda_graph_end(t.graph));
        CHECK_ERR(neo_cuda_graph_wait(t.graph), NEO_ERR_RANGE,
                  backward ? "neo_embedding_backward: the id at position 2 is 10, not in [0, 10)"
                           : "neo_embedding_forward: the id at position 2 is 10, not in [0, 10)");
    }
    neo_tensor_free(t.ctx, &table);
    neo_tensor_free(t.ctx, &out);
    neo_tensor_free(t.ctx, &there);
    free_trainer(&t);
}

/* Offsets of jagged attention lie on the device and change between launches of one graph; bad ones
   end a step, and the next is as if it had not been. */
static void test_attention_offsets(void) {
    enum { N = 100, COLS = 8, B = 3, CASES = 6, BAD = 2, PARTS = 8, SIZE = PARTS * N * COLS };
    static const int64_t offsets[CASES][B + 1] = {
        {0, 70, 70, 100}, {5, 6, 40, 90}, {0, 10, 81, 90}, {0, 0, 0, 0}, {30, 31, 32, 33},
        {0, 30, 60, 90}};
    static const char *const text =
        "neo_attention_forward: sequence 1 has rows 10 .. 81, more than a length of 70";
    static float x[SIZE], got[2][SIZE], sums[2][N * 2];
    const int64_t shape[2] = {PARTS * N, COLS}, lse_shape[2] = {N, 2}, count = B + 1;
    Trainer t[2];
    neo_tensor all[2], lse[2], there[2];
    test_seed = 37;
    test_fill(x, SIZE);
    for (int i = 0; i < 2; i++) {
        make_trainer(&t[i], i ? gpu : NULL, 1, 0.0f, i ? 0 : -1);
        REQUIRE_OK(neo_tensor_alloc(t[i].ctx, NEO_F32, 2, shape, &all[i]));
        REQUIRE_OK(neo_tensor_alloc(t[i].ctx, NEO_F32, 2, lse_shape, &lse[i]));
        REQUIRE_OK(neo_tensor_alloc(t[i].ctx, NEO_I64, 1, &count, &there[i]));
        CHECK_OK(neo_tensor_copy(t[i].ctx, neo_tensor_2d(x, NEO_F32, PARTS * N, COLS), all[i]));
        CHECK_OK(neo_tensor_zero(t[i].ctx, lse[i]));
    }
    for (int n = 0; n < 2 * CASES; n++) {
        neo_status status[2];
        emu_set_order((uint64_t)n);
        for (int i = 0; i < 2; i++) {
            const int silu = n >= CASES;
            const int64_t *from = offsets[n % CASES];
            neo_tensor p[PARTS], sum = silu ? neo_tensor_none() : lse[i];
            neo_attention_desc d;
            memset(&d, 0, sizeof d);
            d.length = 70, d.heads = 2, d.causal = 1, d.offsets = there[i];
            d.kind = silu ? NEO_ATTENTION_SILU : NEO_ATTENTION_SOFTMAX;
            for (int k = 0; k < PARTS; k++) p[k] = neo_tensor_rows(all[i], k * N, N);
            if (i) CHECK_OK(neo_cuda_graph_begin(t[i].graph));
            CHECK_OK(neo_tensor_copy(
                t[i].ctx, neo_tensor_1d((void *)(uintptr_t)from, NEO_I64, count), there[i]));
            status[i] = neo_attention_forward(t[i].ctx, &d, p[0], p[1], p[2], p[3], sum);
            if (status[i] == NEO_OK)
                status[i] = neo_attention_backward(t[i].ctx, &d, p[0], p[1], p[2], p[3], sum, p[4],
                                                   p[5], p[6], p[7]);
            if (i) CHECK_OK(neo_cuda_graph_end(t[i].graph));
            if (i) status[i] = neo_cuda_graph_wait(t[i].graph);
            if (n % CASES == BAD)
                CHECK_ERR(status[i], NEO_ERR_RANGE, text);
            else CHECK_OK(status[i]);
            CHECK_OK(neo_tensor_copy(t[i].ctx, all[i],
                                     neo_tensor_2d(got[i], NEO_F32, PARTS * N, COLS)));
            CHECK_OK(neo_tensor_copy(t[i].ctx, lse[i], neo_tensor_2d(sums[i], NEO_F32, N, 2)));
        }
        if (n % CASES == BAD) continue;
        CHECK(memcmp(got[0], got[1], sizeof got[0]) == 0);
        CHECK(memcmp(sums[0], sums[1], sizeof sums[0]) == 0);
    }
    emu_set_order(0);
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).graphs, 2); /* of the softmax, of SiLU */
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).launches, 2 * CASES);
    for (int i = 0; i < 2; i++) {
        neo_tensor_free(t[i].ctx, &all[i]), neo_tensor_free(t[i].ctx, &lse[i]);
        neo_tensor_free(t[i].ctx, &there[i]);
        free_trainer(&t[i]);
    }
}

/* The last kernel of a call finds its errors and leaves its answer, and what it counted in is zeros
   for the next: launches of calls that answer, again and again, and the CPU's bits. */
static void test_ends(void) {
    enum { IDS = 70, ROWS_OF = 40, COLS = 12, ANSWERING = 4 };
    static const int nodes[ANSWERING] = {1, 4, 1, 2}; /* ids, sort, firsts, sums; norm, step */
    neo_tensor t[2][5];
    int64_t ids[IDS];
    float x[IDS * COLS];
    Trainer trainer[2];
    double loss[2] = {0.0, 0.0};
    test_seed = 29;
    for (int i = 0; i < IDS; i++) ids[i] = (int64_t)(test_random() % COLS);
    for (int i = 0; i < IDS * COLS; i++) x[i] = test_uniform() - 0.5f;
    for (int i = 0; i < 2; i++) {
        const int64_t wide[2] = {IDS, COLS}, table[2] = {ROWS_OF, COLS};
        make_trainer(&trainer[i], i ? gpu : NULL, 4, 0.5f, i ? 0 : -1);
        for (int k = 0; k < 5; k++) {
            neo_tensor host = neo_tensor_none();
            REQUIRE_OK(neo_tensor_alloc(trainer[i].ctx, k == 0   ? NEO_I64
                                                        : k == 4 ? NEO_BF16
                                                                 : NEO_F32,
                                        k ? 2 : 1, k == 1 ? table : wide, &t[i][k]));
            host = t[i][k], host.place = NEO_HOST, host.data = k ? (void *)x : (void *)ids;
            if (k < 4) CHECK_OK(neo_tensor_copy(trainer[i].ctx, host, t[i][k]));
            else CHECK_OK(neo_tensor_zero(trainer[i].ctx, t[i][k]));
        }
    }
    const neo_leaves all = {IDS, 0, 4, 0};
    for (int n = 0; n < 3 * ANSWERING; n++) {
        const uint64_t before = neo_cuda_graph_get_stats(trainer[1].graph).nodes;
        emu_set_order((uint64_t)n);
        for (int i = 0; i < 2; i++) {
            neo_ctx *ctx = trainer[i].ctx;
            neo_tensor *v = t[i];
            if (i) CHECK_OK(neo_cuda_graph_begin(trainer[i].graph));
            switch (n % ANSWERING) {
            case 0: CHECK_OK(neo_embedding_forward(ctx, v[0], v[1], v[2])); break;
            case 1: CHECK_OK(neo_embedding_backward(ctx, &all, v[0], v[2], v[1], n % 2)); break;
            case 2:
                CHECK_OK(neo_cross_entropy(ctx, NULL, v[3], v[0], v[n < ANSWERING ? 4 : 2],
                                           &loss[i]));
                break;
            default: CHECK_OK(neo_optim_step(trainer[i].m.optim, 0.01f));
            }
            if (i) CHECK_OK(neo_cuda_graph_end(trainer[i].graph));
            if (i) CHECK_OK(neo_cuda_graph_wait(trainer[i].graph));
        }
        CHECK(loss[0] == loss[1]);
        CHECK_INT(neo_cuda_graph_get_stats(trainer[1].graph).nodes - before, nodes[n % ANSWERING]);
        for (int k = 1; k < 5; k++) {
            static char got[2][IDS * COLS * 4];
            for (int i = 0; i < 2; i++) {
                neo_tensor host = t[i][k];
                host.data = got[i], host.place = NEO_HOST;
                CHECK_OK(neo_tensor_copy(trainer[i].ctx, t[i][k], host));
            }
            CHECK(memcmp(got[0], got[1], neo_tensor_bytes(t[0][k])) == 0);
        }
        CHECK(neo_state_digest(trainer[0].m.state) == neo_state_digest(trainer[1].m.state));
    }
    emu_set_order(0);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 5; k++) neo_tensor_free(trainer[i].ctx, &t[i][k]);
        free_trainer(&trainer[i]);
    }
}
/* What was recorded and left out leaves nothing behind: a step after one with an error, one of a
   graph that is destroyed while it records. The same calls without a graph then do what they do on
   the CPU, which never heard of that step. */
static void test_left_out(void) {
    for (int destroyed = 0; destroyed < 2; destroyed++) {
        Trainer t[2];
        Batch first, bad, out, next;
        double loss[2] = {-1.0, -1.0}, none;
        test_seed = 41;
        make_batch(&first, MOST_BATCH), make_batch(&bad, 12), make_batch(&out, 7),
            make_batch(&next, 7);
        spoil(&bad, BAD_LABEL);
        for (int i = 0; i < 2; i++) {
            make_trainer(&t[i], i ? gpu : NULL, 2, 0.0f, i ? 1 << 16 : -1);
            CHECK_OK(step(&t[i], &first, 0.1f, &none));
        }
        if (destroyed) {
            CHECK_OK(neo_cuda_graph_begin(t[1].graph));
            CHECK_OK(calls_of_a_step(&t[1], &out, 0.1f, &none));
        } else {
            CHECK_OK(step(&t[1], &bad, 0.1f, &none));
            CHECK_ERR(step(&t[1], &out, 0.1f, &none), NEO_ERR_RANGE, "label");
        }
        neo_cuda_graph_destroy(t[1].graph);
        t[1].graph = NULL;
        for (int i = 0; i < 2; i++) CHECK_OK(step(&t[i], &next, 0.1f, &loss[i]));
        CHECK(loss[0] == loss[1] && loss[0] > 0.0);
        CHECK(neo_state_digest(t[0].m.state) == neo_state_digest(t[1].m.state));
        for (int i = 0; i < 2; i++) free_trainer(&t[i]);
    }
}
/* Memory that is freed or grows within a step is there until the step is over: the bits of the CPU
   in one launch, or where `pieces` are more than are kept, in several. */
enum { FREED = 32 }; /* NEO__GRAPH_FREED of neo_cuda.cuh */
static void freed_in(Trainer *t, const Batch *b, int pieces, int64_t ids, double *loss) {
    const int64_t shape[2] = {b->j.batch, 1};
    neo_tensor x, label = neo_tensor_rows(t->label, 0, b->j.batch);
    if (t->graph) CHECK_OK(neo_cuda_graph_begin(t->graph));
    CHECK_OK(calls_of_a_step(t, b, 0.1f, loss));
    for (int k = 0; k < pieces; k++) {
        CHECK_OK(neo_tensor_alloc(t->ctx, NEO_F32, 2, shape, &x));
        CHECK_OK(neo_tensor_copy(t->ctx, label, x));
        CHECK_OK(neo_tensor_copy(t->ctx, x, label));
        neo_tensor_free(t->ctx, &x);
    }
    CHECK_OK(neo_bags_reserve(t->m.bags, MOST_BATCH, ids));
    CHECK_OK(calls_of_a_step(t, b, 0.1f, loss));
    if (t->graph) CHECK_OK(neo_cuda_graph_end(t->graph));
}
static void test_freed(void) {
    Trainer t[2];
    Batch b;
    double loss[2][4];
    for (int i = 0; i < 2; i++) make_trainer(&t[i], i ? gpu : NULL, 2, 0.0f, i ? 1 << 16 : -1);
    test_seed = 43;
    for (int s = 0; s < 4; s++) {
        make_batch(&b, MOST_BATCH);
        for (int i = 0; i < 2; i++)
            freed_in(&t[i], &b, s < 3 ? s : FREED + 1, MOST_IDS + 100 * (s + 1), &loss[i][s]);
        CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).split, s == 3);
    }
    CHECK_OK(neo_cuda_graph_wait(t[1].graph));
    CHECK(memcmp(loss[0], loss[1], sizeof loss[0]) == 0);
    CHECK(neo_state_digest(t[0].m.state) == neo_state_digest(t[1].m.state));
    for (int i = 0; i < 2; i++) free_trainer(&t[i]);
}
/* What a step has freed makes room: in a step without notes, in one with some, and behind its end,
   before anybody waits. */
static void test_freed_room(void) {
    neo_ctx *ctx;
    neo_cuda_graph *graph;
    neo_tensor most, few;
    const neo_ctx_desc desc = {.threads = 1, .device = gpu};
    const int64_t none = 4, all = 10000000; /* over half of the device's memory */
    emu_set_memory((size_t)64 << 20);
    CHECK_OK(neo_ctx_create(&desc, &ctx));
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &graph));
    CHECK_OK(neo_tensor_alloc(ctx, NEO_F32, 1, &none, &few));
    REQUIRE_OK(neo_tensor_alloc(ctx, NEO_F32, 1, &all, &most));
    for (int way = 0; way < 3; way++) {
        CHECK_OK(neo_cuda_graph_begin(graph));
        if (way) CHECK_OK(neo_tensor_zero(ctx, few));
        neo_tensor_free(ctx, &most);
        if (way == 2) CHECK_OK(neo_cuda_graph_end(graph));
        REQUIRE_OK(neo_tensor_alloc(ctx, NEO_F32, 1, &all, &most));
        if (way < 2) CHECK_OK(neo_cuda_graph_end(graph));
        CHECK_OK(neo_cuda_graph_wait(graph));
    }
    neo_tensor_free(ctx, &most);
    neo_tensor_free(ctx, &few);
    neo_cuda_graph_destroy(graph);
    neo_ctx_destroy(ctx);
    emu_set_memory((size_t)2 << 30);
}
/* A call without a status that waits for the step, as more is freed than is kept for its end: its
   error comes with the next one. */
static void test_error_in_free(void) {
    Trainer t;
    Batch b;
    double loss;
    int64_t count = 5;
    neo_tensor x[FREED + 1];
    make_trainer(&t, gpu, 1, 0.0f, 0);
    for (int k = 0; k <= FREED; k++)
        REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_F32, 1, &count, &x[k]));
    test_seed = 47;
    make_batch(&b, 8);
    spoil(&b, BAD_LABEL);
    CHECK_OK(neo_cuda_graph_begin(t.graph));
    CHECK_OK(calls_of_a_step(&t, &b, 0.1f, &loss));
    for (int k = 0; k <= FREED; k++) neo_tensor_free(t.ctx, &x[k]);
    CHECK_ERR(neo_cuda_graph_end(t.graph), NEO_ERR_RANGE, "label of sample 5");
    free_trainer(&t);
}

/* ---- what a step may consist of ---- */

/* A graph is full at any place of a step: the same bits, and the same error. */
static void full_after(Trainer *t, int left, int wrong, uint64_t *launches) {
    Batch b;
    double loss[2];
    char text[512];
    make_batch(&b, MOST_BATCH);
    if (wrong) spoil(&b, wrong == 1 ? BAD_LABEL : BAD_ID);
    neo_status status = step(&t[0], &b, 0.1f, &loss[0]);
    snprintf(text, sizeof text, "%s", wrong ? neo_last_error() : "");
    const uint64_t before = neo_cuda_graph_get_stats(t[1].graph).launches;
    CHECK_OK(neo_cuda_graph_begin(t[1].graph));
    for (int k = left; k < NEO__GRAPH_OPS; k++)
        CHECK_OK(neo_scale(t[1].ctx, t[1].m.de, 0.5f, NULL));
    neo_status there = calls_of_a_step(&t[1], &b, 0.1f, &loss[1]);
    if (there == NEO_OK) there = neo_cuda_graph_end(t[1].graph);
    if (there == NEO_OK) there = neo_cuda_graph_wait(t[1].graph);
    if (there != status || (wrong && strcmp(neo_last_error(), text) != 0))
        FAIL("room for %d: %s, on the CPU %s", left, neo_last_error(), text);
    if (!wrong && loss[0] != loss[1])
        FAIL("room for %d: loss %.17g, on the CPU %.17g", left, loss[1], loss[0]);
    if (neo_state_digest(t[0].m.state) != neo_state_digest(t[1].m.state))
        FAIL("room for %d, error %d: another digest", left, wrong);
    *launches = neo_cuda_graph_get_stats(t[1].graph).launches - before;
}
static void test_full(void) {
    Trainer t[2];
    for (int i = 0; i < 2; i++) make_trainer(&t[i], i ? gpu : NULL, 2, 0.05f, i ? 0 : -1);
    test_seed = 53;
    uint64_t launches = 0;
    for (int left = 0; left < 64; left++)
        for (int wrong = 2; wrong >= 0; wrong--) full_after(t, left, wrong, &launches);
    CHECK_INT(launches, 1); /* in the end all of a step has room */
    for (int i = 0; i < 2; i++) free_trainer(&t[i]);
}

/* ---- gradients that are kept: how many rows they have is for the device to know ---- */
typedef struct Keeper {
    neo_ctx *ctx;
    neo_bags *bags;
    neo_cuda_graph *graph; /* or NULL */
    neo_tensor dout;
} Keeper;
static const int64_t KEPT_DIMS[FEATURES] = {8, 8, 4};
static void make_keeper(Keeper *k, int side, int64_t most_rows) {
    static const char *const names[FEATURES] = {"t0", "t1", "t2"};
    const int64_t shape[2] = {MOST_BATCH, WIDTH};
    neo_table_desc tables[FEATURES];
    neo_bags_desc d;
    neo_ctx_desc c;
    float dout[MOST_BATCH * WIDTH];
    memset(k, 0, sizeof *k);
    memset(tables, 0, sizeof tables);
    memset(&d, 0, sizeof d);
    memset(&c, 0, sizeof c);
    c.threads = 1, c.seed = 5, c.repro_shards = 4, c.device = side ? gpu : NULL;
    CHECK_OK(neo_ctx_create(&c, &k->ctx));
    for (int i = 0; i < FEATURES; i++) {
        tables[i].name = names[i], tables[i].rows = ROWS[i], tables[i].dim = KEPT_DIMS[i];
        tables[i].optim.kind = i ? NEO_BAG_ADAM : NEO_BAG_ROWWISE_ADAGRAD;
        tables[i].pooling = i == 1 ? NEO_POOL_MEAN : NEO_POOL_SUM;
        tables[i].dtype = i == 2 ? NEO_BF16 : NEO_F32;
    }
    d.tables = tables, d.table_count = FEATURES;
    d.max_batch = MOST_BATCH, d.max_ids = MOST_IDS, d.max_kept_rows = most_rows;
    CHECK_OK(neo_bags_create(k->ctx, &d, &k->bags));
    CHECK_OK(neo_tensor_alloc(k->ctx, NEO_F32, 2, shape, &k->dout));
    for (int i = 0; i < MOST_BATCH * WIDTH; i++) dout[i] = (float)(i * 37 % 101 - 50) * 0.01f;
    CHECK_OK(neo_tensor_copy(k->ctx, neo_tensor_2d(dout, NEO_F32, MOST_BATCH, WIDTH), k->dout));
    if (side == 2) CHECK_OK(neo_cuda_graph_create(gpu, NULL, &k->graph));
}
static void free_keeper(Keeper *k) {
    neo_cuda_graph_destroy(k->graph);
    neo_tensor_free(k->ctx, &k->dout);
    neo_bags_destroy(k->bags);
    CHECK_INT(neo_ctx_memory(k->ctx).device_bytes, 0);
    neo_ctx_destroy(k->ctx);
}
static int64_t most_kept; /* 0: as before */
/* A batch's gradients are kept; lr not 0: then all that are, divided by 2, are stepped. */
static neo_status keep(Keeper *k, const Batch *b, float lr) {
    if (k->graph) MODEL_TRY(neo_cuda_graph_begin(k->graph));
    if (most_kept) MODEL_TRY(neo_bags_reserve_kept(k->bags, most_kept));
    MODEL_TRY(neo_bags_accumulate(k->bags, &b->j, neo_tensor_rows(k->dout, 0, b->j.batch), NULL));
    if (lr > 0.0f) MODEL_TRY(neo_bags_scale_grads(k->bags, 0.5f));
    if (lr > 0.0f) MODEL_TRY(neo_bags_step(k->bags, lr));
    return k->graph ? neo_cuda_graph_end(k->graph) : NEO_OK;
}
static neo_status kept_end(Keeper *k, neo_status status) {
    return status == NEO_OK && k->graph ? neo_cuda_graph_wait(k->graph) : status;
}
/* What is kept, and the tables, on both sides. */
static void same_keepers(const Keeper *a, const Keeper *b, const char *when) {
    static float rows[2][300 * 8];
    const int64_t count = neo_bags_kept_count(a->bags);
    if (neo_bags_kept_count(b->bags) != count)
        FAIL("%s: %d rows are kept, not %d", when, (int)neo_bags_kept_count(b->bags), (int)count);
    for (int64_t i = 0; i < count; i++) {
        int32_t table[2];
        int64_t row[2];
        const float *x = neo_bags_kept_row(a->bags, i, &table[0], &row[0]);
        const float *y = neo_bags_kept_row(b->bags, i, &table[1], &row[1]);
        if (!x || !y || table[0] != table[1] || row[0] != row[1] ||
            memcmp(x, y, (size_t)KEPT_DIMS[table[0]] * sizeof *x) != 0) {
            FAIL("%s: kept row %d differs", when, (int)i);
            break;
        }
    }
    for (int t = 0; t < FEATURES; t++) {
        CHECK_OK(neo_bags_get_rows(a->bags, t, 0, ROWS[t], rows[0]));
        CHECK_OK(neo_bags_get_rows(b->bags, t, 0, ROWS[t], rows[1]));
        if (memcmp(rows[0], rows[1], (size_t)(ROWS[t] * KEPT_DIMS[t]) * sizeof(float)) != 0)
            FAIL("%s: table %d differs", when, t);
    }
}
/* Several batches a step, each recorded by itself: no host waits in one, whoever asks between;
   grows: not where their room grows in it, either. */
static void kept_steps(int grows) {
    Keeper k[3];
    test_seed = 67;
    for (int i = 0; i < 3; i++) make_keeper(&k[i], i, grows ? 200 : 300);
    for (int s = 0; s < 12; s++) {
        Batch b;
        make_batch(&b, 1 + (s * 7) % MOST_BATCH);
        most_kept = grows ? 200 + 10 * s : 0;
        for (int i = 0; i < 3; i++) CHECK_OK(keep(&k[i], &b, s % 3 == 2 ? 0.1f : 0.0f));
        if (s % 5 < 3 + grows) continue;
        for (int i = 1; i < 3; i++) same_keepers(&k[0], &k[i], "between steps");
    }
    for (int i = 1; i < 3; i++) same_keepers(&k[0], &k[i], "behind steps");
    const neo_cuda_graph_stats stats = neo_cuda_graph_get_stats(k[2].graph);
    CHECK_INT(stats.steps, 12);
    CHECK_INT(stats.launches, 12);
    CHECK_INT(stats.split, 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(neo_bags_get_stats(k[i].bags).grow_count, grows ? 11 : 0);
    for (int i = 0; i < 3; i++) CHECK_OK(neo_bags_clear(k[i].bags)); /* not in a step */
    for (int i = 1; i < 3; i++) same_keepers(&k[0], &k[i], "behind a clear");
    for (int i = 0; i < 3; i++) free_keeper(&k[i]);
    most_kept = 0;
}
static void test_kept(void) {
    for (int grows = 0; grows < 2; grows++) kept_steps(grows);
}
/* Too many rows, or a bad id: nothing of that batch is kept, what was there stays; late: until it
   is to be stepped by calls behind it, which are left out. */
static void test_kept_errors(void) {
    for (int late = 0; late < 2; late++) {
        for (int wrong = 0; wrong < 2; wrong++) {
            Keeper k[3];
            Batch first, bad, next;
            char text[3][512];
            test_seed = 71;
            make_batch(&first, 3), make_batch(&bad, MOST_BATCH), make_batch(&next, 4);
            if (wrong) bad.ids[0] = 1000;
            for (int i = 0; i < 3; i++) {
                make_keeper(&k[i], i, wrong ? 300 : 32);
                CHECK_OK(keep(&k[i], &first, 0.0f));
                neo_status status = keep(&k[i], &bad, 0.0f);
                if (late && k[i].graph) {
                    CHECK_OK(status);
                    status = keep(&k[i], &next, 0.1f);
                }
                status = kept_end(&k[i], status);
                snprintf(text[i], sizeof text[i], "%s", neo_last_error());
                CHECK(status == (wrong ? NEO_ERR_RANGE : NEO_ERR_CAPACITY));
                if (late && !k[i].graph) CHECK_OK(neo_bags_clear(k[i].bags));
                if (strcmp(text[i], text[0]) != 0) FAIL("'%s', on the CPU '%s'", text[i], text[0]);
            }
            CHECK(late || neo_bags_kept_count(k[0].bags) > 0);
            for (int i = 1; i < 3; i++) same_keepers(&k[0], &k[i], "behind an error");
            for (int i = 0; i < 3; i++) {
                CHECK_OK(kept_end(&k[i], keep(&k[i], &next, 0.1f)));
                CHECK_INT(neo_bags_kept_count(k[i].bags), 0);
                CHECK_OK(kept_end(&k[i], keep(&k[i], &first, 0.0f)));
            }
            CHECK(neo_bags_kept_count(k[0].bags) > 0);
            for (int i = 1; i < 3; i++) same_keepers(&k[0], &k[i], "a step later");
            for (int i = 0; i < 3; i++) free_keeper(&k[i]);
        }
    }
}

/* ---- lanes ---- */
typedef struct Lanes {
    neo_ctx *ctx;
    model m;
    neo_cuda_graph *graph; /* NULL: the CPU */
    neo_tensor dense, label;
} Lanes;
enum { DENSE = 5, DIM = 8 };
static void make_lanes(Lanes *t, neo_device *device) {
    static const int64_t bottom[2] = {DENSE, DIM}, top[2] = {12, 1};
    static const char *const names[FEATURES] = {"t0", "t1", "t2"};
    const int64_t shapes[2][2] = {{MOST_BATCH, DENSE}, {MOST_BATCH, 1}};
    neo_table_desc tables[FEATURES];
    model_desc d;
    neo_ctx_desc c;
    memset(t, 0, sizeof *t), memset(&c, 0, sizeof c);
    memset(tables, 0, sizeof tables), memset(&d, 0, sizeof d);
    c.threads = 1, c.seed = 5, c.repro_shards = 2, c.device = device;
    CHECK_OK(neo_ctx_create(&c, &t->ctx));
    for (int i = 0; i < FEATURES; i++) {
        tables[i].name = names[i], tables[i].rows = ROWS[i], tables[i].dim = DIM;
        tables[i].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    d.batch = MOST_BATCH, d.max_ids = MOST_IDS;
    d.tables = tables, d.table_count = FEATURES;
    d.bottom = bottom, d.bottom_count = 2, d.top = top, d.top_count = 2;
    d.optim.kind = NEO_OPTIM_ADAM, d.optim.clip_norm = 0.05f;
    CHECK_OK(model_create(&t->m, t->ctx, &d));
    CHECK_OK(neo_tensor_alloc(t->ctx, NEO_F32, 2, shapes[0], &t->dense));
    CHECK_OK(neo_tensor_alloc(t->ctx, NEO_F32, 2, shapes[1], &t->label));
    const neo_cuda_graph_desc g = {1 << 16, 0, 3};
    if (device) CHECK_OK(neo_cuda_graph_create(device, &g, &t->graph));
}
static void free_lanes(Lanes *t) {
    neo_cuda_graph_destroy(t->graph);
    neo_tensor_free(t->ctx, &t->dense), neo_tensor_free(t->ctx, &t->label);
    model_destroy(&t->m);
    neo_ctx_destroy(t->ctx);
}
/* What a step of a graph leaves out: a join, which its bits need; or nothing. */
typedef enum Planted { NOTHING, FIRST_JOIN, SECOND_JOIN } Planted;
static void lanes_go(Lanes *t, int lane) {
    if (t->graph && lane < 0) neo_cuda_graph_join(t->graph);
    else if (t->graph) neo_cuda_graph_lane(t->graph, lane);
}
static neo_status lanes_calls(Lanes *t, const Batch *b, float nan_or_1, Planted planted) {
    static const struct { int call, lane; } calls[] = { /* call -1: a join */
        {1, 1}, {0, 0}, {-1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {-1, 0}, {7, 1}, {8, 0},
        {9, 0}};
    const neo_tensor dense = neo_tensor_rows(t->dense, 0, b->j.batch);
    const model_batch batch = {dense, neo_tensor_rows(t->label, 0, b->j.batch), &b->j};
    float x[MOST_BATCH * DENSE];
    for (int i = 0; i < MOST_BATCH * DENSE; i++) x[i] = (float)(i % 7) * 0.25f - 0.5f;
    int joins = 0;
    neo_tensor label = neo_tensor_2d((void *)(uintptr_t)b->label, NEO_F32, b->j.batch, 1);
    MODEL_TRY(neo_tensor_copy(t->ctx, neo_tensor_2d(x, NEO_F32, b->j.batch, DENSE), dense));
    MODEL_TRY(neo_tensor_copy(t->ctx, label, batch.label));
    if (t->graph) neo_cuda_graph_join(t->graph); /* copies are calls of lane 0 */
    for (int i = 0; i < 12; i++) {
        if (calls[i].call < 0 && ++joins == (int)planted) continue;
        lanes_go(t, calls[i].call < 0 ? -1 : calls[i].lane);
        if (calls[i].call == 9) /* after the tables' step, in the notes */
            MODEL_TRY(neo_scale(t->ctx, neo_params_at(t->m.params, 1)->grad, nan_or_1, NULL));
        if (calls[i].call >= 0) MODEL_TRY(model_call(&t->m, &batch, calls[i].call, 0.1f, NULL));
    }
    return NEO_OK;
}
/* The state after four steps, the last with a gradient that is not a number: then the tables have
   been stepped and the layers have not. */
static uint64_t lanes_digest(neo_device *device, uint64_t seed, Planted planted) {
    Lanes t;
    Batch b;
    make_lanes(&t, device);
    emu_set_order(seed);
    test_seed = 71;
    for (int s = 0; s < 4; s++) {
        make_batch(&b, s == 1 ? 9 : MOST_BATCH);
        if (t.graph) CHECK_OK(neo_cuda_graph_begin(t.graph));
        neo_status status = lanes_calls(&t, &b, s == 3 ? NAN : 1.0f, planted);
        if (t.graph) status = neo_cuda_graph_end(t.graph);
        if (t.graph && s == 3) status = neo_cuda_graph_wait(t.graph);
        if (planted == NOTHING && status != (s == 3 ? NEO_ERR_NUMERIC : NEO_OK))
            FAIL("seed %d, step %d: %s", (int)seed, s, neo_last_error());
    }
    if (t.graph && planted == NOTHING)
        CHECK_INT(neo_cuda_graph_get_stats(t.graph).launches, 4);
    const uint64_t digest = neo_state_digest(t.m.state);
    emu_set_order(0);
    free_lanes(&t);
    return digest;
}
/* Operations of lanes run in any order that joins allow: bits and errors are those of the CPU. A
   join that is missing is seen. */
static void test_beside(void) {
    const uint64_t want = lanes_digest(NULL, 0, NOTHING);
    for (uint64_t seed = 0; seed < 6; seed++)
        if (lanes_digest(gpu, seed, NOTHING) != want) FAIL("seed %d: other bits", (int)seed);
#if defined(EMULATED)
    for (int planted = FIRST_JOIN; planted <= SECOND_JOIN; planted++) {
        int others = 0;
        for (uint64_t seed = 1; seed < 9; seed++)
            others += lanes_digest(gpu, seed, (Planted)planted) != want;
        CHECK(others > 0);
    }
#endif
}

/* For a profiler calls are ranges, by their names; without one they are none. */
#if defined(EMULATED)
static void test_ranges(void) {
    static const neo_cuda_desc exact = {0, 1, 0};
    neo_device *one = gpu;
    for (int looks = 0; looks < 2; looks++) {
        Trainer t;
        Batch b;
        double loss;
        if (looks) setenv("NVTX_INJECTION64_PATH", "a profiler's", 1);
        if (looks) CHECK_OK(neo_cuda_device_create(&exact, &one));
        unsetenv("NVTX_INJECTION64_PATH");
        make_trainer(&t, one, 1, 0.0f, 0);
        test_seed = 73;
        make_batch(&b, MOST_BATCH);
        CHECK_OK(step(&t, &b, 0.1f, &loss));
        CHECK_OK(neo_cuda_graph_wait(t.graph));
        CHECK_INT(emu_ranges("neo_bags_forward"), 2 * looks); /* a call, and its operation */
        CHECK_INT(emu_ranges("neo_optim_step"), 2 * looks);
        CHECK_INT(emu_ranges(NULL), 0);
        free_trainer(&t);
    }
    neo_cuda_device_destroy(one);
}
#else
static void test_ranges(void) {}
#endif

/* A batch that lies on the device: what it holds changes between launches of one graph. */
static void test_device_batch(void) {
    Trainer t[2];
    Batch b;
    int64_t counts[3] = {FEATURES * MOST_BATCH + 1, MOST_IDS, MOST_IDS};
    neo_tensor mem[3];
    double loss[2];
    make_trainer(&t[0], NULL, 2, 0.0f, -1);
    make_trainer(&t[1], gpu, 2, 0.0f, 1 << 16);
    for (int k = 0; k < 3; k++)
        REQUIRE_OK(neo_tensor_alloc(t[1].ctx, k == 2 ? NEO_F32 : NEO_I64, 1, &counts[k], &mem[k]));
    test_seed = 31;
    for (int s = 0; s < 5; s++) {
        make_batch(&b, MOST_BATCH);
        CHECK_OK(step(&t[0], &b, 0.1f, &loss[0]));
        CHECK_OK(neo_tensor_copy(t[1].ctx, neo_tensor_1d(b.offsets, NEO_I64, counts[0]), mem[0]));
        CHECK_OK(neo_tensor_copy(t[1].ctx, neo_tensor_1d(b.ids, NEO_I64, counts[1]), mem[1]));
        CHECK_OK(neo_tensor_copy(t[1].ctx, neo_tensor_1d(b.weights, NEO_F32, counts[2]), mem[2]));
        Batch there = b;
        there.j.offsets = (const int64_t *)mem[0].data;
        there.j.ids = mem[1].data;
        there.j.weights = (const float *)mem[2].data;
        there.j.place = NEO_DEVICE;
        CHECK_OK(neo_cuda_graph_begin(t[1].graph));
        CHECK_OK(calls_of_a_step(&t[1], &there, 0.1f, &loss[1]));
        CHECK_OK(neo_cuda_graph_end(t[1].graph));
    }
    CHECK_OK(neo_cuda_graph_wait(t[1].graph));
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).launches, 5);
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).graphs, 1);
    CHECK(neo_state_digest(t[0].m.state) == neo_state_digest(t[1].m.state));
    for (int k = 0; k < 3; k++) neo_tensor_free(t[1].ctx, &mem[k]);
    for (int i = 0; i < 2; i++) free_trainer(&t[i]);
}
/* Sequences of launches of their own; and one that is longer than a graph. */
static void test_sequences(void) {
    Trainer t;
    float x[MOST_BATCH], want = 1.0f;
    make_trainer(&t, gpu, 1, 0.0f, 0);
    for (int i = 0; i < MOST_BATCH; i++) x[i] = 1.0f;
    CHECK_OK(neo_tensor_copy(t.ctx, neo_tensor_2d(x, NEO_F32, MOST_BATCH, 1), t.label));
    for (int i = 0; i < 22; i++) {
        CHECK_OK(neo_cuda_graph_begin(t.graph));
        for (int k = 0; k <= i % 11; k++) {
            const float factor = (i + k) % 2 ? 2.0f : 0.5f;
            CHECK_OK(neo_scale(t.ctx, t.label, factor, NULL));
            want *= factor;
        }
        CHECK_OK(neo_cuda_graph_end(t.graph));
    }
    CHECK_INT(neo_cuda_graph_get_stats(t.graph).nodes, 2 * (11 * 12 / 2));
    const neo_cuda_stats before = neo_cuda_get_stats(gpu);
    CHECK_OK(neo_cuda_graph_begin(t.graph)); /* nothing at all */
    CHECK_OK(neo_cuda_graph_end(t.graph));
    CHECK_OK(neo_tensor_copy(t.ctx, t.label, neo_tensor_2d(x, NEO_F32, MOST_BATCH, 1)));
    for (int i = 0; i < MOST_BATCH; i++) CHECK(x[i] == want);
    CHECK_INT(neo_cuda_graph_get_stats(t.graph).graphs, 11);
    CHECK_INT(neo_cuda_graph_get_stats(t.graph).plain, 0);
    const neo_cuda_stats after = neo_cuda_get_stats(gpu);
    CHECK_INT(after.waits, before.waits + 2); /* of the last step, of the copy to the host */
    CHECK_INT(after.launches, before.launches);
    CHECK_INT(after.own_products, 0); /* with `exact` none is a second choice */
    CHECK_OK(neo_cuda_graph_begin(t.graph));
    for (int k = 0; k < NEO__GRAPH_OPS + 2; k++)
        CHECK_OK(neo_scale(t.ctx, t.label, k % 2 ? 2.0f : 0.5f, NULL));
    CHECK_OK(neo_cuda_graph_end(t.graph));
    CHECK_OK(
        neo_cuda_graph_begin(t.graph)); /* a copy to the host in the middle has what came before */
    CHECK_OK(neo_scale(t.ctx, t.label, 4.0f, NULL));
    CHECK_OK(neo_tensor_copy(t.ctx, t.label, neo_tensor_2d(x, NEO_F32, MOST_BATCH, 1)));
    for (int i = 0; i < MOST_BATCH; i++) CHECK(x[i] == 4.0f * want);
    CHECK_OK(neo_cuda_graph_end(t.graph));
    free_trainer(&t);
}
/* Copies and fills that follow each other are one launch, but where one needs another's bytes. */
static void test_copies(void) {
    enum { N = 64 };
    Trainer t;
    const int64_t n = N;
    neo_tensor a, b;
    float x[N], y[N], got[2][N];
    make_trainer(&t, gpu, 1, 0.0f, 0);
    REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_F32, 1, &n, &a));
    REQUIRE_OK(neo_tensor_alloc(t.ctx, NEO_F32, 1, &n, &b));
    const neo_tensor from[2] = {neo_tensor_1d(x, NEO_F32, N), neo_tensor_1d(y, NEO_F32, N)};
    for (int seed = 0; seed < 6; seed++) {
        for (int i = 0; i < N; i++) x[i] = (float)(seed + i), y[i] = -(float)(seed + i) - 1.0f;
        emu_set_order((uint64_t)seed);
        CHECK_OK(neo_cuda_graph_begin(t.graph));
        CHECK_OK(neo_tensor_zero(t.ctx, a)); /* written again */
        CHECK_OK(neo_tensor_copy(t.ctx, from[0], a));
        CHECK_OK(neo_tensor_copy(t.ctx, a, b)); /* reads what was written */
        CHECK_OK(neo_tensor_copy(t.ctx, from[1], a)); /* writes what was read */
        CHECK_OK(neo_cuda_graph_end(t.graph));
        CHECK_OK(neo_tensor_copy(t.ctx, a, neo_tensor_1d(got[0], NEO_F32, N)));
        CHECK_OK(neo_tensor_copy(t.ctx, b, neo_tensor_1d(got[1], NEO_F32, N)));
        CHECK(memcmp(got[0], y, sizeof y) == 0 && memcmp(got[1], x, sizeof x) == 0);
        CHECK_INT(neo_cuda_graph_get_stats(t.graph).nodes, 5 * seed + 4);
        CHECK_OK(neo_cuda_graph_begin(t.graph)); /* apart: one */
        CHECK_OK(neo_tensor_copy(t.ctx, from[0], a));
        CHECK_OK(neo_tensor_zero(t.ctx, b));
        CHECK_OK(neo_cuda_graph_end(t.graph));
        CHECK_INT(neo_cuda_graph_get_stats(t.graph).launches, 2 * (seed + 1));
    }
    emu_set_order(0);
    neo_tensor_free(t.ctx, &a), neo_tensor_free(t.ctx, &b);
    free_trainer(&t);
}
/* Calls that share a launch, and others that look like them and may not; the CPU's bits in each. */
typedef enum Calls { SUM_NORM, NORM_SUM, NORM_IN_PLACE, GRADS, CONVERTS, CONVERT_TWICE, SUM_OTHER,
                     NORM_OVER_SUM, SUM_INTO_GRAD, SUM_NARROW, OTHER_NARROW,
                     BIAS_NORM, BIASES_NORM, BIAS_TWICE, BIAS_OF_DX, BIAS_INTO_GRAD, BIAS_SUM,
                     BIAS_NARROW, BIAS_OVER_NARROW, DX_NARROW, DX_OTHER, LAYER_NORM, CALLS } Calls;
enum { X, MORE, Y, DY, DX, SUM, WEIGHT, BIAS, DW, DB, STATS, LAYER, DLAYER, N0, N1, TENSORS };
/* Sums of the columns of dz, a gradient of a layer's bias, go with the norm that follows: two at
   most, and where none writes what another reads or writes. */
static neo_status bias_sum(neo_ctx *ctx, const neo_leaves *all, const neo_tensor *t, int dz,
                           neo_tensor to) {
    const neo_tensor none = neo_tensor_none(), *from = &t[dz == N0 ? N1 : X];
    neo_tensor w = neo_tensor_rows(*from, 0, 1); /* of a layer with one input */
    w.shape[0] = w.shape[1], w.shape[1] = w.stride[0] = 1;
    to.ndim = 1, to.shape[0] = t[dz].shape[1], to.stride[0] = 1;
    return neo_linear_backward(ctx, all, neo_tensor_slice(*from, 1, 0, 1), w, t[dz], none, none,
                               to);
}
static neo_status bias_calls(neo_ctx *ctx, const neo_tensor *t, Calls calls) {
    const neo_leaves all = {t[X].shape[0], 0, 16, 0};
    const int narrow = calls == BIAS_NARROW || calls == BIAS_OVER_NARROW;
    const int dz = narrow ? N0 : calls == BIAS_OF_DX ? DX : calls == BIAS_SUM ? SUM : MORE;
    if (calls == BIASES_NORM) {
        MODEL_TRY(bias_sum(ctx, &all, t, MORE, t[BIAS])); /* a launch of its own */
        MODEL_TRY(bias_sum(ctx, &all, t, Y, neo_tensor_rows(t[LAYER], 0, 1)));
        MODEL_TRY(bias_sum(ctx, &all, t, SUM, neo_tensor_rows(t[DLAYER], 0, 1)));
    } else {
        if (calls == BIAS_TWICE) MODEL_TRY(bias_sum(ctx, &all, t, Y, t[BIAS]));
        MODEL_TRY(bias_sum(ctx, &all, t, dz, t[calls == BIAS_INTO_GRAD ? DW : BIAS]));
    }
    MODEL_TRY(neo_layer_norm_backward(ctx, &all, t[X], t[WEIGHT], t[STATS], t[DY], t[DX], t[DW],
                                      t[DB]));
    if (calls == BIAS_SUM || narrow) MODEL_TRY(neo_add(ctx, t[SUM], t[DX]));
    if (!narrow) return NEO_OK;
    return neo_tensor_convert(ctx, t[SUM], t[calls == BIAS_NARROW ? N1 : N0], NULL);
}
static neo_status joined_calls(neo_ctx *ctx, const neo_tensor *t, Calls calls) {
    const neo_leaves all = {t[X].shape[0], 0, 16, 0};
    const neo_tensor none = neo_tensor_none();
    switch (calls) {
    case BIAS_NORM:
    case BIASES_NORM:
    case BIAS_TWICE:
    case BIAS_OF_DX:
    case BIAS_INTO_GRAD:
    case BIAS_SUM:
    case BIAS_NARROW:
    case BIAS_OVER_NARROW: return bias_calls(ctx, t, calls);
    case DX_NARROW: /* dx in bf16, too; or another tensor */
    case DX_OTHER:
        MODEL_TRY(neo_layer_norm_backward(ctx, &all, t[X], t[WEIGHT], t[STATS], t[DY], t[DX], t[DW],
                                          t[DB]));
        return neo_tensor_convert(ctx, t[calls == DX_NARROW ? DX : DY], t[N1], NULL);
    case SUM_OTHER:
    case SUM_NORM:
        MODEL_TRY(neo_add(ctx, t[X], t[MORE]));
        return neo_layer_norm_forward(ctx, t[calls == SUM_NORM ? X : DY], t[WEIGHT], t[BIAS], 1e-5f,
                                      t[Y], t[STATS]);
    case NORM_SUM:
    case SUM_NARROW: /* the sum in bf16, too; or another tensor */
    case OTHER_NARROW:
        MODEL_TRY(neo_layer_norm_backward(ctx, &all, t[X], t[WEIGHT], t[STATS], t[DY], t[DX], t[DW],
                                          t[DB]));
        MODEL_TRY(neo_add(ctx, t[SUM], t[DX]));
        if (calls == NORM_SUM) return NEO_OK;
        return neo_tensor_convert(ctx, t[calls == SUM_NARROW ? SUM : DX], t[N1], NULL);
    case NORM_IN_PLACE:
        MODEL_TRY(neo_layer_norm_backward(ctx, &all, t[X], t[WEIGHT], t[STATS], t[DY], t[DY], t[DW],
                                          t[DB]));
        return neo_add(ctx, t[SUM], t[DY]);
    case LAYER_NORM: { /* of a norm and a layer behind it: sums for the layer's bias go with it */
        const neo_leaves leaf = {16 * t[X].shape[0], 0, 1, 0};
        MODEL_TRY(neo_linear_backward(ctx, &leaf, t[X], t[LAYER], t[DY], t[DX], t[DLAYER],
                                      t[BIAS]));
        return neo_layer_norm_backward(ctx, &leaf, t[X], t[WEIGHT], t[STATS], t[DX], t[SUM], t[DW],
                                       t[DB]);
    }
    case GRADS:
        return neo_linear_backward(ctx, &all, t[X], t[LAYER], t[DY], none, t[DLAYER], t[DB]);
    case CONVERTS:
    case CONVERT_TWICE:
        MODEL_TRY(neo_tensor_convert(ctx, t[X], t[N0], NULL));
        return neo_tensor_convert(ctx, t[Y], t[calls == CONVERTS ? N1 : N0], NULL);
    case NORM_OVER_SUM: { /* a row of y is where the sum of another row reads */
        const int64_t rows = t[X].shape[0] - 1;
        neo_tensor part = neo_tensor_rows(t[X], 0, rows);
        MODEL_TRY(neo_add(ctx, part, neo_tensor_rows(t[MORE], 0, rows)));
        return neo_layer_norm_forward(ctx, part, t[WEIGHT], t[BIAS], 1e-5f,
                                      neo_tensor_rows(t[MORE], 1, rows),
                                      neo_tensor_rows(t[STATS], 0, rows));
    }
    case SUM_INTO_GRAD: { /* of one row: dx and a gradient of the norm's weight have one shape */
        const neo_leaves one = {1, 0, 16, 0};
        neo_tensor x = neo_tensor_rows(t[X], 0, 1), dx = neo_tensor_rows(t[DX], 0, 1), dw = dx;
        dw.data = t[DW].data;
        MODEL_TRY(neo_layer_norm_backward(ctx, &one, x, t[WEIGHT], neo_tensor_rows(t[STATS], 0, 1),
                                          neo_tensor_rows(t[DY], 0, 1), dx, t[DW], t[DB]));
        return neo_add(ctx, dw, dx);
    }
    case CALLS: break;
    }
    return NEO_OK;
}
/* Rows of 512 columns are kept in registers; then there is no layer. */
static void joined_check(int cols) {
    enum { ROWS_IN = 70, COLS = 512 }; /* of 16 leaves some have 4 rows, some 5 */
    static const int nodes[CALLS] = {1, 1, 2, 2, 1, 2, 2, 2, 2, 1, 2,
                                     1, 2, 2, 2, 2, 2, 1, 2, 1, 2, 3};
    static float x[ROWS_IN * COLS], got[2][ROWS_IN * COLS];
    Trainer t[2];
    neo_tensor tensor[2][TENSORS];
    test_seed = 71;
    for (int i = 0; i < 2; i++) make_trainer(&t[i], i ? gpu : NULL, 16, 0.0f, i ? 0 : -1);
    for (int k = 0; k < TENSORS; k++) {
        const int wide = k < WEIGHT || k >= N0, layer = k == LAYER || k == DLAYER;
        const int64_t shape[2] = {wide || k == STATS ? ROWS_IN : layer && cols == COLS ? 1 : cols,
                                  k == STATS ? 2 : cols};
        const int dims = wide || layer || k == STATS ? 2 : 1;
        for (int i = 0; i < ROWS_IN * cols; i++) x[i] = test_uniform() - 0.5f;
        for (int i = 0; i < 2; i++) {
            neo_tensor *to = &tensor[i][k], host = neo_tensor_none();
            CHECK_OK(neo_tensor_alloc(t[i].ctx, k < N0 ? NEO_F32 : NEO_BF16, dims, shape, to));
            host = *to, host.data = x, host.place = NEO_HOST;
            if (k < N0) CHECK_OK(neo_tensor_copy(t[i].ctx, host, *to));
            else CHECK_OK(neo_tensor_zero(t[i].ctx, *to));
        }
    }
    for (int calls = 0; calls < CALLS; calls++) {
        const uint64_t before = neo_cuda_graph_get_stats(t[1].graph).nodes;
        if ((calls == GRADS || calls == LAYER_NORM) && cols == COLS) continue;
        CHECK_OK(joined_calls(t[0].ctx, tensor[0], (Calls)calls));
        CHECK_OK(neo_cuda_graph_begin(t[1].graph));
        CHECK_OK(joined_calls(t[1].ctx, tensor[1], (Calls)calls));
        CHECK_OK(neo_cuda_graph_end(t[1].graph));
        CHECK_OK(neo_cuda_graph_wait(t[1].graph));
        const int here = (int)(neo_cuda_graph_get_stats(t[1].graph).nodes - before);
        if (here != nodes[calls])
            FAIL("calls %d are %d launches, not %d", calls, here, nodes[calls]);
        for (int k = 0; k < TENSORS; k++) {
            const size_t bytes = (size_t)neo_tensor_count(tensor[0][k]) * (k < N0 ? 4 : 2);
            for (int i = 0; i < 2; i++) {
                neo_tensor host = tensor[i][k];
                host.data = got[i], host.place = NEO_HOST;
                CHECK_OK(neo_tensor_copy(t[i].ctx, tensor[i][k], host));
            }
            if (memcmp(got[0], got[1], bytes) != 0)
                FAIL("calls %d: tensor %d is not the CPU's", calls, k);
        }
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < TENSORS; k++) neo_tensor_free(t[i].ctx, &tensor[i][k]);
        free_trainer(&t[i]);
    }
}
static void test_joined(void) {
    joined_check(44);
    joined_check(512);
}
/* The residual of bf16: its sum goes with the norm behind it, and its gradient's with the norm
   before, beside sums for a layer's bias; with the bits of calls that are not recorded. */
enum { H_X, H_MORE, H_Y, H_DY, H_DX, H_FROM, HALVES, H_W = HALVES, H_BIAS, H_DW, H_DB, H_SUM,
       H_STATS, H_ALL };
static neo_status half_calls(neo_ctx *ctx, const neo_tensor *t, int onto) {
    const neo_leaves all = {t[H_X].shape[0], 0, 16, 0};
    neo_tensor w = neo_tensor_rows(t[H_FROM], 0, 1);
    w.shape[0] = w.shape[1], w.shape[1] = w.stride[0] = 1;
    MODEL_TRY(neo_add(ctx, t[H_X], t[H_MORE]));
    MODEL_TRY(neo_layer_norm_forward(ctx, t[H_X], t[H_W], t[H_BIAS], 1e-5f, t[H_Y], t[H_STATS]));
    MODEL_TRY(neo_linear_backward(ctx, &all, neo_tensor_slice(t[H_Y], 1, 0, 1), w, t[H_FROM],
                                  neo_tensor_none(), neo_tensor_none(), t[H_SUM]));
    MODEL_TRY(neo_layer_norm_backward(ctx, &all, t[H_X], t[H_W], t[H_STATS], t[H_DY], t[H_DX],
                                      t[H_DW], t[H_DB]));
    return onto ? neo_add(ctx, t[H_DX], t[H_FROM]) : neo_add(ctx, t[H_FROM], t[H_DX]);
}
static void halves_check(int cols, int onto) {
    enum { ROWS_IN = 70, COLS = 768 };
    static const neo_cuda_desc fast = {0, 0, 0};
    static float x[ROWS_IN * COLS], got[2][ROWS_IN * COLS];
    Trainer t[2];
    neo_device *device;
    neo_tensor tensor[2][H_ALL];
    REQUIRE_OK(neo_cuda_device_create(&fast, &device));
    for (int i = 0; i < 2; i++) make_trainer(&t[i], device, 16, 0.0f, 0);
    for (int k = 0; k < H_ALL; k++) {
        const int half = k < HALVES, stats = k == H_STATS;
        const int64_t shape[2] = {half || stats ? ROWS_IN : cols, stats ? 2 : cols};
        for (int i = 0; i < ROWS_IN * cols; i++) x[i] = test_uniform() - 0.5f;
        for (int i = 0; i < 2; i++) {
            neo_tensor *to = &tensor[i][k], host, f32;
            CHECK_OK(neo_tensor_alloc(t[i].ctx, half ? NEO_BF16 : NEO_F32, half || stats ? 2 : 1,
                                      shape, to));
            CHECK_OK(neo_tensor_alloc(t[i].ctx, NEO_F32, half || stats ? 2 : 1, shape, &f32));
            host = f32, host.data = x, host.place = NEO_HOST;
            CHECK_OK(neo_tensor_copy(t[i].ctx, host, f32));
            CHECK_OK(neo_tensor_convert(t[i].ctx, f32, *to, NULL));
            neo_tensor_free(t[i].ctx, &f32);
        }
    }
    CHECK_OK(half_calls(t[0].ctx, tensor[0], onto));
    CHECK_OK(neo_cuda_graph_begin(t[1].graph));
    CHECK_OK(half_calls(t[1].ctx, tensor[1], onto));
    CHECK_OK(neo_cuda_graph_end(t[1].graph));
    CHECK_OK(neo_cuda_graph_wait(t[1].graph));
    CHECK_INT(neo_cuda_graph_get_stats(t[1].graph).nodes, onto ? 2 : 3);
    for (int k = 0; k < H_ALL; k++) {
        for (int i = 0; i < 2; i++) {
            neo_tensor host = tensor[i][k];
            host.data = got[i], host.place = NEO_HOST;
            CHECK_OK(neo_tensor_copy(t[i].ctx, tensor[i][k], host));
        }
        if (memcmp(got[0], got[1], neo_tensor_bytes(tensor[0][k])) != 0)
            FAIL("%d columns, onto %d: tensor %d has other bits recorded", cols, onto, k);
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < H_ALL; k++) neo_tensor_free(t[i].ctx, &tensor[i][k]);
        free_trainer(&t[i]);
    }
    neo_cuda_device_destroy(device);
}
static void test_halves(void) {
    for (int i = 0; i < 4; i++) halves_check(i / 2 ? 768 : 44, i % 2);
}
/* Steps of `ops` launches. */
static void scales(Trainer *t, int ops, int steps) {
    for (int s = 0; s < steps; s++) {
        CHECK_OK(neo_cuda_graph_begin(t->graph));
        for (int k = 0; k < ops; k++)
            CHECK_OK(neo_scale(t->ctx, t->label, (s + k) % 2 ? 2.0f : 0.5f, NULL));
        CHECK_OK(neo_cuda_graph_end(t->graph));
    }
}
/* What there is no room for runs without a graph; a graph that is old goes for another. */
static void test_room(void) {
    Trainer t;
    neo_cuda_graph_stats s;
    pool = 4430; /* for 7 and for 6 launches of some 296 bytes with arguments, not for 5 more */
    make_trainer(&t, gpu, 1, 0.0f, 0);
    scales(&t, 7, 3);
    scales(&t, 6, 3);
    s = neo_cuda_graph_get_stats(t.graph);
    CHECK(s.graphs == 2 && s.plain == 0);
    scales(&t, 40, 2);
    scales(&t, 5,
           NEO__GRAPH_AGE - 8); /* 7 was used first; from its 3rd launch on it is not old enough */
    s = neo_cuda_graph_get_stats(t.graph);
    if (s.graphs != 2 || s.plain != NEO__GRAPH_AGE - 6)
        FAIL("%d graphs, %d plain", (int)s.graphs, (int)s.plain);
    scales(&t, 5, 10);
    s = neo_cuda_graph_get_stats(t.graph);
    CHECK(s.graphs == 3 && s.plain < NEO__GRAPH_AGE && s.launches == NEO__GRAPH_AGE + 10);
    scales(&t, 6, 1); /* it is there still */
    CHECK_INT(neo_cuda_graph_get_stats(t.graph).graphs, 3);
    free_trainer(&t);
    pool = 0;
}
/* What is taken on the host is what is said, and a step that makes graphs takes nothing more. */
#if defined(COUNT_CALLOC)
static int64_t taken;
void *__wrap_calloc(size_t count, size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    taken += (int64_t)(count * size);
    return __real_calloc(count, size);
}
static void test_host_bytes(void) {
    static const neo_cuda_graph_desc cases[3] = {{0, 0, 0}, {1000, 0, 0}, {70000, 123456, 0}};
    static const size_t pinned[3] = {2 * ((size_t)4 << 20) + 131072, 2 * 1024 + 131072,
                                     2 * 70144 + 131072};
    Trainer t;
    Batch b;
    double loss;
    make_trainer(&t, gpu, 1, 0.05f, -1);
    test_seed = 67;
    for (int c = 0; c < 3; c++) {
        const int64_t before = taken;
        CHECK_OK(neo_cuda_graph_create(gpu, &cases[c], &t.graph));
        CHECK_INT(taken - before, (int64_t)(neo_cuda_graph_host_bytes(&cases[c]) - pinned[c]));
        for (int64_t size = MOST_BATCH; size > 0; size /= 2) {
            make_batch(&b, size);
            const int64_t start = taken;
            CHECK_OK(step(&t, &b, 0.1f, &loss));
            CHECK_OK(neo_cuda_graph_wait(t.graph));
            CHECK_INT(taken - start, 0);
        }
        CHECK(neo_cuda_graph_get_stats(t.graph).graphs > 1);
        neo_cuda_graph_destroy(t.graph);
    }
    t.graph = NULL;
    CHECK(neo_cuda_graph_host_bytes(NULL) == neo_cuda_graph_host_bytes(&cases[0]));
    free_trainer(&t);
}
#else
static void test_host_bytes(void) {}
#endif
static void test_misuse(void) {
    Trainer t;
    Batch b;
    double loss;
    neo_cuda_graph *other = NULL;
    const neo_cuda_graph_desc huge = {SIZE_MAX, 0, 0}, large = {0, SIZE_MAX, 0}, many = {0, 0, 4};
    make_trainer(&t, gpu, 1, 0.0f, 0);
    CHECK_ERR(neo_cuda_graph_create(gpu, &huge, &other), NEO_ERR_ARG, "copy_bytes");
    CHECK_ERR(neo_cuda_graph_create(gpu, &large, &other), NEO_ERR_ARG, "graph_bytes");
    CHECK_ERR(neo_cuda_graph_create(gpu, &many, &other), NEO_ERR_ARG, "lanes is 4, not 0 to 3");
    CHECK_ERR(neo_cuda_graph_create(NULL, NULL, &other), NEO_ERR_ARG, "device is NULL");
    CHECK(other == NULL);
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &other));
    CHECK_ERR(neo_cuda_graph_end(t.graph), NEO_ERR_STATE, "no step is being recorded");
    CHECK_OK(neo_cuda_graph_begin(t.graph));
    CHECK_ERR(neo_cuda_graph_begin(t.graph), NEO_ERR_STATE, "is recording a step already");
    CHECK_ERR(neo_cuda_graph_begin(other), NEO_ERR_STATE, "is recording a step already");
    CHECK_ERR(neo_cuda_graph_end(other), NEO_ERR_STATE, "no step is being recorded");
    CHECK_ERR(neo_cuda_graph_wait(t.graph), NEO_ERR_STATE, "a step is being recorded");
    test_seed = 3;
    make_batch(&b, 16);
    CHECK_OK(calls_of_a_step(&t, &b, 0.1f, &loss));
    const uint64_t before = neo_state_digest(t.m.state); /* it waits: what was recorded has run */
    neo_cuda_graph_destroy(t.graph);                   /* while it records */
    t.graph = other;
    CHECK(neo_state_digest(t.m.state) == before);
    CHECK_OK(step(&t, &b, 0.1f, &loss));
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &other));
    CHECK_ERR(neo_cuda_graph_begin(other), NEO_ERR_STATE, "has not been waited for");
    neo_cuda_graph_destroy(other);
    neo_cuda_graph_destroy(t.graph); /* while a step runs */
    t.graph = NULL;
    CHECK(neo_state_digest(t.m.state) != before);
    CHECK_OK(step(&t, &b, 0.1f, &loss)); /* without a graph */
    /* An argument that is wrong is found at once, and the step goes on without that call. */
    CHECK_OK(neo_cuda_graph_create(gpu, NULL, &t.graph));
    CHECK_OK(neo_cuda_graph_begin(t.graph));
    CHECK_ERR(neo_mlp_forward(t.m.top, t.m.y, t.m.e), NEO_ERR_SHAPE, "mlp");
    CHECK_OK(calls_of_a_step(&t, &b, 0.1f, &loss));
    CHECK_OK(neo_cuda_graph_end(t.graph));
    CHECK_OK(neo_cuda_graph_wait(t.graph));
    b.j.batch = MOST_BATCH + 1; /* beyond what is reserved: the same error as without a graph */
    CHECK_OK(neo_cuda_graph_begin(t.graph));
    CHECK_ERR(neo_bags_forward(t.m.bags, &b.j, t.m.e), NEO_ERR_CAPACITY, "reserved");
    CHECK_OK(neo_cuda_graph_end(t.graph));
    free_trainer(&t);
}

int main(void) {
    static const neo_cuda_desc exact = {0, 1, 0};
    if (neo_cuda_device_create(&exact, &gpu) != NEO_OK) {
        printf("test_device_graph: cannot create a device: %s\n", neo_last_error());
        return 1;
    }
    RUN(test_bits);
    RUN(test_norm_asked);
    RUN(test_norm_error);
    RUN(test_wrong_data);
    RUN(test_embedding_error);
    RUN(test_attention_offsets);
    RUN(test_ends);
    RUN(test_left_out);
    RUN(test_freed);
    RUN(test_freed_room);
    RUN(test_error_in_free);
    RUN(test_full);
    RUN(test_kept);
    RUN(test_kept_errors);
    RUN(test_beside);
    RUN(test_ranges);
    RUN(test_device_batch);
    RUN(test_sequences);
    RUN(test_copies);
    RUN(test_joined);
    RUN(test_halves);
    RUN(test_room);
    RUN(test_host_bytes);
    RUN(test_misuse);
    neo_cuda_device_destroy(gpu);
    return test_end("cuda/graph");
}
