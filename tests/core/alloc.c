/* alloc.c: memory that is not granted, at every place in turn.

   Method: an allocator that refuses the n-th request (alone, or from there on), for n = 0, 1, 2 ...
   until a run meets no refusal; under it a trainer is created, trained, saved, loaded and
   destroyed. Every refusal must come out as a status with a message, nothing may leak, free must be
   given the size alloc was given, and state that existed before a failed call must be as it was. */
#include "neo_data.h"
#include "test.h"

#include "meter.h"
#include "trainer.h"

#include <sys/stat.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

static char dir[512], path[600];
static const trainer_desc KIND = {NEO_OPTIM_ADAM, NEO_BAG_ROWWISE_ADAGRAD, 1.0f, 1};

typedef neo_status (*scenario)(const neo_ctx_desc *desc);

static uint64_t digest_of(const trainer *t) {
    return t->dlrm.state ? neo_state_digest(t->dlrm.state) : 0;
}
static neo_status run_trainer(const neo_ctx_desc *desc) {
    static trainer t; /* zeroed again by trainer_destroy */
    neo_status status = trainer_create(&t, desc, &KIND);
    if (status == NEO_OK) status = trainer_steps(&t, 3);
    uint64_t before = digest_of(&t);
    neo_save_desc save;
    neo_load_desc load;
    memset(&save, 0, sizeof save);
    memset(&load, 0, sizeof load);
    save.dir = load.dir = dir;
    save.step = t.step;
    if (status == NEO_OK) status = neo_save(t.ctx, &save, t.dlrm.state);
    if (digest_of(&t) != before) FAIL("a save changed the state");
    if (status == NEO_OK) status = trainer_steps(&t, 1);
    before = digest_of(&t);
    if (status == NEO_OK) {
        status = neo_load(t.ctx, &load, t.dlrm.state, NULL);
        if (status != NEO_OK && digest_of(&t) != before) FAIL("a failed load changed the state");
    }
    trainer_destroy(&t);
    return status;
}

/* A context that is destroyed before its objects: said which, calls on them and new ones refused
   without a word of memory, all memory back in the end. */
static char logged[512];
static void keep_line(neo_log_level level, const char *text, void *user) {
    (void)level, (void)user;
    snprintf(logged, sizeof logged, "%s", text);
}
static void context_first(void) {
    for (int threads = 1; threads < 3; threads++) {
        meter memory = {.refuse_at = -1};
        neo_ctx_desc desc = {.threads = threads, .allocator = {meter_alloc, meter_free, &memory}};
        neo_ctx *ctx = NULL;
        neo_params *params = NULL, *more = NULL;
        neo_mlp *mlp = NULL;
        neo_tensor t;
        neo_mlp_desc d = {.name = "m", .width_count = 2, .widths = {3, 4}, .max_batch = 2};
        neo_mlp *second = NULL;
        neo_state *state = NULL;
        neo_bags *bags = NULL;
        neo_table_desc table = {.name = "t", .rows = 4, .dim = 2};
        neo_bags_desc b = {.name = "tables", .tables = &table, .table_count = 1, .max_batch = 2,
                           .max_ids = 2};
        const char *list = "1 params, 2 mlp ('m', 'n'), 1 bags ('tables'), 1 state, 1 tensor";
        char text[200], few[12];
        uint64_t digest;
        desc.logger.log = keep_line;
        logged[0] = 0;
        REQUIRE_OK(neo_ctx_create(&desc, &ctx));
        REQUIRE_OK(neo_params_create(ctx, &params));
        REQUIRE_OK(neo_mlp_create(ctx, params, &d, &mlp));
        d.name = "n";
        REQUIRE_OK(neo_mlp_create(ctx, params, &d, &second));
        REQUIRE_OK(neo_bags_create(ctx, &b, &bags));
        REQUIRE_OK(neo_state_create(ctx, &state));
        REQUIRE_OK(neo_tensor_alloc(ctx, NEO_F32, 1, (int64_t[]){100}, &t));
        CHECK_INT(neo_ctx_live(ctx, text, sizeof text), 6);
        CHECK(strcmp(text, list) == 0);
        CHECK_INT(neo_ctx_live(ctx, few, sizeof few), 6);
        CHECK(strcmp(few, "1 params, 2") == 0);
        CHECK_INT(neo_ctx_live(ctx, NULL, 0), 6);
        neo_ctx_destroy(ctx);
        CHECK(strstr(logged, "neo_ctx_destroy: ") && strstr(logged, list));
        neo_ctx_destroy(ctx); /* again: nothing */
        CHECK_ERR(neo_params_create(ctx, &more), NEO_ERR_STATE, "the context is destroyed");
        CHECK(more == NULL);
        CHECK_ERR(neo_tensor_zero(ctx, t), NEO_ERR_STATE, "the context is destroyed");
        CHECK_ERR(neo_mlp_forward(mlp, t, t), NEO_ERR_STATE, "neo_mlp_forward: the context is");
        CHECK_ERR(neo_bags_forward(bags, NULL, t), NEO_ERR_STATE, "the context is destroyed");
        CHECK_ERR(neo_bags_reserve(bags, 100, 100), NEO_ERR_STATE, "the context is destroyed");
        CHECK_ERR(neo_params_add(params, "p", 0, NULL, (neo_init){0}, NULL), NEO_ERR_STATE,
                  "the context is destroyed");
        CHECK_ERR(neo_state_add(state, NEO_STATE_WEIGHT, "t", t), NEO_ERR_STATE,
                  "the context is destroyed");
        CHECK_ERR(neo_state_digest_group(state, NULL, &digest), NEO_ERR_STATE,
                  "the context is destroyed");
        CHECK_ERR(neo_save(ctx, &(neo_save_desc){.dir = "build/none"}, state), NEO_ERR_STATE,
                  "neo_save: the context is destroyed");
        neo_mlp_destroy(mlp);
        neo_mlp_destroy(second);
        neo_bags_destroy(bags);
        neo_state_destroy(state);
        CHECK_INT(neo_ctx_live(ctx, text, sizeof text), 2);
        CHECK(strcmp(text, "1 params, 1 tensor") == 0);
        neo_tensor_free(ctx, &t);
        CHECK(memory.live > 0);
        neo_params_destroy(params);
        CHECK(memory.live == 0);
        REQUIRE_OK(neo_ctx_create(&desc, &ctx)); /* NEO_NO_SIMD: says that it is slow */
        logged[0] = 0;                           /* in order: not a word */
        REQUIRE_OK(neo_params_create(ctx, &params));
        neo_params_destroy(params);
        CHECK_INT(neo_ctx_live(ctx, text, sizeof text), 0);
        CHECK(strcmp(text, "") == 0);
        neo_ctx_destroy(ctx);
        CHECK(logged[0] == 0 && memory.live == 0);
    }
}
static neo_status use_files(neo_ctx *ctx, neo_schema *schema) {
    const char *paths[1];
    neo_reader *reader = NULL;
    neo_reader_desc d;
    neo_batch batch;
    memset(&d, 0, sizeof d);
    paths[0] = path;
    MODEL_TRY(neo_schema_fit(schema, paths, 1, 0));
    d.schema = schema;
    d.paths = paths;
    d.path_count = 1;
    d.batch = 7;
    d.threads = 2;
    d.shuffle_window = 20;
    neo_status status = neo_reader_open(ctx, &d, &reader);
    while (status == NEO_OK) status = neo_reader_next(reader, &batch);
    neo_reader_close(reader);
    return status == NEO_END ? NEO_OK : status;
}
static neo_status run_text(const neo_ctx_desc *desc) {
    neo_ctx *ctx = NULL;
    neo_schema *schema = NULL;
    neo_status status = neo_ctx_create(desc, &ctx);
    if (status == NEO_OK)
        status = neo_schema_parse(ctx,
                                  "delimiter ,\nname category\nage dense log bucket 20,40\n"
                                  "tags list sep=| rows=50 hash\npay label positive=yes\n",
                                  &schema);
    if (status == NEO_OK) status = use_files(ctx, schema);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return status;
}

static neo_status run_criteo(const neo_ctx_desc *desc) {
    neo_ctx *ctx = NULL;
    neo_schema *schema = NULL;
    neo_status status = neo_ctx_create(desc, &ctx);
    if (status == NEO_OK) status = neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, 100, NULL, &schema);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return status;
}

static neo_status use_report(neo_report *report) {
    static const char *const cells[] = {"name", "value"};
    for (int i = 0; i < 40; i++)
        MODEL_TRY(neo_report_point(report, i % 2 ? "loss" : "auc", i % 3 ? "train" : "test", i,
                                   1.0 / (1 + i)));
    MODEL_TRY(neo_report_axis(report, "loss", "step", "loss"));
    for (int i = 0; i < 20; i++) MODEL_TRY(neo_report_row(report, "table", cells, 2));
    MODEL_TRY(neo_report_fact(report, "auc", "0.9"));
    return neo_report_write(report, path);
}
static neo_status run_see(const neo_ctx_desc *desc) {
    neo_ctx *ctx = NULL;
    neo_report *report = NULL;
    neo_jsonl *log = NULL;
    neo_tensor t = neo_tensor_none(), back = neo_tensor_none();
    int64_t shape[2] = {3, 5};
    neo_status status = neo_ctx_create(desc, &ctx);
    if (status == NEO_OK) status = neo_report_create(ctx, "title", &report);
    if (status == NEO_OK) status = use_report(report);
    if (status == NEO_OK) status = neo_jsonl_open(ctx, path, 0, &log);
    if (status == NEO_OK) {
        neo_jsonl_int(log, "step", 1);
        status = neo_jsonl_end(log);
    }
    neo_jsonl_close(log);
    if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &t);
    if (status == NEO_OK) status = neo_tensor_zero(ctx, t);
    if (status == NEO_OK) status = neo_npy_write(ctx, path, t);
    if (status == NEO_OK) status = neo_npy_read(ctx, path, &back);
    if (ctx) {
        neo_tensor_free(ctx, &t);
        neo_tensor_free(ctx, &back);
    }
    neo_report_destroy(report);
    neo_ctx_destroy(ctx);
    return status;
}

static neo_status use_safetensors(neo_ctx *ctx, neo_state *state, float *values) {
    static const char *const names[] = {"a.weight", "b"};
    neo_tensor tensors[2];
    neo_safetensors *file = NULL;
    int loaded = 0;
    tensors[0] = neo_tensor_2d(values, NEO_F32, 4, 4);
    tensors[1] = neo_tensor_1d(values + 16, NEO_F32, 8);
    MODEL_TRY(neo_state_add(state, NEO_STATE_WEIGHT, "a.weight", tensors[0]));
    MODEL_TRY(neo_safetensors_write(ctx, path, names, tensors, 2, NULL, 0));
    neo_status status = neo_safetensors_open(ctx, path, &file);
    if (status == NEO_OK) status = neo_safetensors_read(file, 0, tensors[0]);
    neo_safetensors_close(file);
    MODEL_TRY(status);
    return neo_load_safetensors(ctx, path, NULL, 0, 0, state, &loaded);
}
static neo_status run_safetensors(const neo_ctx_desc *desc) {
    float values[24] = {0};
    neo_ctx *ctx = NULL;
    neo_state *state = NULL;
    neo_status status = neo_ctx_create(desc, &ctx);
    if (status == NEO_OK) status = neo_state_create(ctx, &state);
    if (status == NEO_OK) status = use_safetensors(ctx, state, values);
    neo_state_destroy(state);
    neo_ctx_destroy(ctx);
    return status;
}

static neo_status use_jagged(neo_jagged_buffer *a, neo_jagged_buffer *b) {
    static const int64_t lengths[] = {1, 2, 0, 3}, ids[] = {1, 2, 3, 4, 5, 6};
    MODEL_TRY(neo_jagged_set(a, 2, lengths, NEO_I64, ids, NEO_I64, NULL));
    MODEL_TRY(neo_jagged_reserve(a, 100, 1000));
    MODEL_TRY(neo_jagged_transpose(b, neo_jagged_view(a)));
    return neo_jagged_slice(b, neo_jagged_view(a), 0, 1);
}
static neo_status run_jagged(const neo_ctx_desc *desc) {
    neo_ctx *ctx = NULL;
    neo_jagged_buffer *a = NULL, *b = NULL;
    neo_jagged_desc d;
    memset(&d, 0, sizeof d);
    d.feature_count = 2;
    d.max_bags = 4;
    d.max_ids = 6;
    d.id_dtype = NEO_I64;
    neo_status status = neo_ctx_create(desc, &ctx);
    if (status == NEO_OK) status = neo_jagged_create(ctx, &d, &a);
    if (status == NEO_OK) status = neo_jagged_create(ctx, &d, &b);
    if (status == NEO_OK) status = use_jagged(a, b);
    neo_jagged_destroy(a);
    neo_jagged_destroy(b);
    neo_ctx_destroy(ctx);
    return status;
}

/* Refuses every request in turn; `stride` skips some of them where a scenario asks often. */
static void sweep(const char *name, scenario run, int from_there_on, int64_t stride) {
    int64_t refused = 0;
    for (int64_t n = 0;; n += stride) {
        meter m = {n, from_there_on, 0, 0, 0, 0};
        neo_ctx_desc d;
        memset(&d, 0, sizeof d);
        d.allocator.alloc = meter_alloc;
        d.allocator.free = meter_free;
        d.allocator.user = &m;
        d.threads = 2;
        neo_status status = run(&d);
        if (m.live != 0) FAIL("%s, request %d refused: %d blocks leak", name, (int)n, (int)m.live);
        if (m.wrong != 0)
            FAIL("%s, request %d refused: %d wrong frees", name, (int)n, (int)m.wrong);
        if (m.calls <= n) { /* none was refused */
            if (status != NEO_OK) FAIL("%s: without a refusal: %s", name, neo_last_error());
            break;
        }
        refused++;
        if (status != NEO_ERR_MEMORY)
            FAIL("%s, request %d refused: status '%s' (%s)", name, (int)n,
                 neo_status_string(status), neo_last_error());
        else if (!neo_last_error()[0])
            FAIL("%s, request %d refused: no message", name, (int)n);
        if (test_errors > 20 || n > 20000) break;
    }
    printf("  %s: %d refusals\n", name, (int)refused);
}

static void write_text(void) {
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < 60; i++)
        fprintf(f, "word%d,%d,a%d|b|c,%s\n", i % 30, i, i, i % 3 ? "yes" : "no");
    CHECK(fclose(f) == 0);
}

static void training(void) { sweep("trainer", run_trainer, 0, 1); }
static void training_from_there_on(void) { sweep("trainer, from there on", run_trainer, 1, 3); }
static void text(void) {
    write_text();
    sweep("text", run_text, 0, 1);
    sweep("text, from there on", run_text, 1, 3);
}
static void criteo(void) { sweep("criteo", run_criteo, 0, 1); }
static void see(void) {
    sweep("report, log, npy", run_see, 0, 1);
    sweep("report, log, npy, from there on", run_see, 1, 1);
}
static void safetensors(void) {
    sweep("safetensors", run_safetensors, 0, 1);
    sweep("safetensors, from there on", run_safetensors, 1, 1);
}
static void jagged(void) { sweep("jagged", run_jagged, 0, 1); }

int main(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/neo_test_alloc", tmp ? tmp : "/tmp");
    snprintf(path, sizeof path, "%s/neo_test_alloc.txt", tmp ? tmp : "/tmp");
    RUN(training);
    RUN(training_from_there_on);
    RUN(text);
    RUN(criteo);
    RUN(see);
    RUN(safetensors);
    RUN(jagged);
    RUN(context_first);
    remove(path);
    return test_end("core/alloc");
}
