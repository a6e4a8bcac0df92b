/* gpt.c: a GPT from a checkpoint by its model.json: logits of each token are those of a plain
   forward of neo's layers, to the bit, in whatever pieces the tokens come, on threads and
   instruction sets, with weights and products of bf16, by a file too; what decoders take is
   predicted; errors. Samples against build/gpt: gpt.sh. */
#include "golden/gpt_model.h"
#include "neo_serve.h"
#include "test.h"
#include <pthread.h>

enum { VOCABULARY = 11, WIDTH = 40, HEADS = 2, LENGTH = 150, LAYERS = 3 };
static const char BYTES[] = "[10, 97, 98, 99, 100, 101, 102, 103, 32, 255, 34]";
static int64_t ids[LENGTH];
static float want[LENGTH][VOCABULARY];
static char dir[256];
static int by_tanh; /* GELU of what save() makes */

/* Bytes that an allocator has handed out. */
static size_t taken;
static int64_t calls;
static void *take(size_t bytes, size_t align, void *user) {
    void *p = NULL;
    (void)user, taken += bytes, calls++;
    return posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes) ? NULL : p;
}
static void give(void *p, size_t bytes, void *user) {
    (void)user, taken -= p ? bytes : 0;
    free(p);
}
static neo_ctx_desc counted(int threads, neo_isa isa) {
    neo_ctx_desc d = {.threads = threads, .isa = isa};
    d.allocator.alloc = take, d.allocator.free = give;
    return d;
}

/* The logits of all positions. */
static void forward(neo_ctx *ctx, gpt *m) {
    (void)gpt_loss, (void)gpt_backward;
    REQUIRE_OK(gpt_forward(m, neo_tensor_1d(ids, NEO_I64, LENGTH)));
    REQUIRE_OK(neo_tensor_copy(ctx, gpt_rows(m, m->logits),
                               neo_tensor_2d(want, NEO_F32, LENGTH, VOCABULARY)));
}
/* A checkpoint of a model with random weights, in `dir`; want has its logits, by weights rounded to
   weights_dtype. */
static void save(const char *name, const char *weights_dtype, const char *bytes) {
    const gpt_desc d = {VOCABULARY, WIDTH, HEADS, LENGTH, LAYERS, 1};
    const char *build = getenv("B") ? getenv("B") : "build";
    char text[1024];
    neo_ctx *ctx;
    neo_params *params;
    neo_state *state;
    static gpt m;
    memset(&m, 0, sizeof m);
    REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 1, .seed = 5}, &ctx));
    REQUIRE_OK(neo_params_create(ctx, &params));
    REQUIRE_OK(gpt_create(ctx, params, &d, &m));
    m.by_tanh = by_tanh;
    for (int i = 0; i < neo_params_count(params); i++) { /* no bias of 0, no weights too near 0 */
        const neo_param *p = neo_params_at(params, i);
        float *x = p->value.data;
        for (int64_t k = 0; k < neo_tensor_count(p->value); k++)
            x[k] = 8 * x[k] + 0.03f * (float)((k * 7 + i) % 13 - 6);
    }
    snprintf(text, sizeof text, "mkdir -p '%s/tmp'", build);
    REQUIRE(system(text) == 0);
    snprintf(dir, sizeof dir, "%s/tmp/serve_gpt_%s", build, name);
    snprintf(text, sizeof text,
             "{\"neo_model\": 1, \"model\": \"gpt\", \"layers\": %d, \"heads\": %d, \"width\": %d, "
             "\"context\": %d, \"dtype\": \"f32\", \"weights_dtype\": \"%s\", %s\"bytes\": %s}",
             (int)LAYERS, (int)HEADS, (int)WIDTH, (int)LENGTH, weights_dtype,
             by_tanh ? "\"gelu\": \"tanh\", " : "", bytes);
    REQUIRE_OK(neo_state_create(ctx, &state));
    REQUIRE_OK(neo_state_add_params(state, params));
    REQUIRE_OK(neo_save(ctx, &(neo_save_desc){.dir = dir, .step = 3, .model = text}, state));
    if (strcmp(weights_dtype, "bf16") == 0)
        for (int i = 0; i < neo_params_count(params); i++) {
            const neo_tensor t = neo_params_at(params, i)->value;
            REQUIRE_OK(neo_round(ctx, NEO_BF16, t, t));
        }
    for (int64_t i = 0; i < LENGTH; i++) ids[i] = (i * i + i / 3) % VOCABULARY;
    forward(ctx, &m);
    neo_state_destroy(state);
    gpt_destroy(&m);
    neo_params_destroy(params);
    neo_ctx_destroy(ctx);
}
static neo_model *load(int threads, neo_isa isa) {
    neo_model *model = NULL;
    CHECK_OK(neo_model_load(&(neo_model_desc){.dir = dir, .ctx = counted(threads, isa)}, &model));
    return model;
}
/* Tokens in pieces of `piece`, then one more each. */
static void check(const neo_model *model, int threads, int64_t chunk, int64_t piece) {
    const neo_decoder_desc desc = {.chunk = chunk, .threads = threads};
    neo_decoder *d;
    REQUIRE_OK(neo_decoder_create(model, &desc, &d));
    CHECK(!neo_decoder_logits(d));
    const int64_t before = calls;
    for (int round = 0; round < 2; round++, neo_decoder_clear(d))
        for (int64_t at = 0, n = piece; at < LENGTH; at += n, n = round ? piece : 1) {
            if (n > LENGTH - at) n = LENGTH - at;
            CHECK_OK(neo_decoder_add(d, ids + at, n));
            CHECK_INT(neo_decoder_count(d), at + n);
            if (memcmp(neo_decoder_logits(d), want[at + n - 1], sizeof want[0]))
                FAIL("%d threads, chunk %d, piece %d: logits behind token %d have other bits",
                     threads, (int)chunk, (int)piece, (int)(at + n - 1));
        }
    CHECK_INT(calls, before);
    neo_decoder_destroy(d);
}
static void logits_are_those_of_training(void) {
    static const char *const weights[] = {"f32", "bf16"};
    for (int w = 0; w < 3; w++) {
        by_tanh = w == 2;
        save(by_tanh ? "tanh" : weights[w], weights[w % 2], BYTES);
        by_tanh = 0;
        for (int isa = 0; isa < 2; isa++) {
            neo_model *model = load(1 + isa, isa ? NEO_ISA_SCALAR : NEO_ISA_BEST);
            check(model, 1, 0, 1);
            check(model, 1, 1, 70);
            check(model, 3, 150, 100);
            check(model, 1, 7, 150);
            if (!isa) {
                char path[300];
                snprintf(path, sizeof path, "%s.safetensors", dir);
                CHECK_OK(neo_model_write(model, path));
                neo_model_free(model);
                REQUIRE_OK(neo_model_load(&(neo_model_desc){.path = path}, &model));
                CHECK_INT(neo_model_get_info(model).step, 3);
                check(model, 2, 0, 33);
            }
            neo_model_free(model);
        }
    }
    CHECK_INT(taken, 0);
}
/* Threads with a decoder each share a model. */
static void *decode(void *model) {
    const neo_decoder_desc desc = {.chunk = 40, .threads = 1};
    neo_decoder *d;
    if (neo_decoder_create(model, &desc, &d) != NEO_OK) return "create";
    for (int64_t at = 0; at < LENGTH; at += 30)
        if (neo_decoder_add(d, ids + at, 30) != NEO_OK ||
            memcmp(neo_decoder_logits(d), want[at + 29], sizeof want[0]))
            return "other bits";
    neo_decoder_destroy(d);
    return NULL;
}
static void threads_share_a_model(void) {
    pthread_t threads[8];
    neo_model *model = NULL;
    save("threads", "f32", BYTES);
    REQUIRE_OK(neo_model_load(&(neo_model_desc){.dir = dir}, &model));
    for (int i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, decode, model) == 0);
    for (int i = 0; i < 8; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        if (failed) FAIL("thread %d: %s", i, (const char *)failed);
    }
    neo_model_free(model);
}
static void memory_is_predicted(void) {
    static const neo_decoder_desc descs[] = {{0, 0}, {1, 1}, {150, 1}, {1000, 3}};
    save("memory", "f32", BYTES);
    neo_model *model = load(1, NEO_ISA_BEST);
    for (int i = 0; i < 4; i++) {
        neo_ctx_desc of_ctx = counted(descs[i].threads, NEO_ISA_BEST);
        if (!of_ctx.threads) of_ctx.threads = 1;
        neo_ctx *ctx;
        neo_decoder *d;
        size_t before = taken;
        REQUIRE_OK(neo_ctx_create(&of_ctx, &ctx));
        const size_t of_a_ctx = taken - before;
        neo_ctx_destroy(ctx);
        CHECK_INT(taken, before);
        REQUIRE_OK(neo_decoder_create(model, &descs[i], &d));
        CHECK_INT(taken - before, of_a_ctx + neo_decoder_bytes(model, &descs[i]));
        CHECK_OK(neo_decoder_add(d, ids, LENGTH));
        CHECK_INT(taken - before, of_a_ctx + neo_decoder_bytes(model, &descs[i]));
        neo_decoder_destroy(d);
        CHECK_INT(taken, before);
    }
    neo_model_free(model);
}
static neo_status add_json(neo_decoder *d, const char *text, neo_sampling *s, int64_t *tokens) {
    return neo_decoder_add_json(d, text, strlen(text), s, tokens);
}
static void text_and_json(void) {
    save("text", "f32", BYTES);
    neo_model *model = load(1, NEO_ISA_BEST);
    const neo_model_info info = neo_model_get_info(model);
    neo_sampling s = {0.5, 3, 9};
    int64_t tokens = 20;
    neo_decoder *d;
    float kept[VOCABULARY];
    CHECK(strcmp(info.kind, "gpt") == 0 && info.context == LENGTH && info.outputs == VOCABULARY);
    CHECK_INT(info.weight_bytes, 4 * (VOCABULARY + LENGTH + 2 +
                                      LAYERS * (12 * WIDTH + 13)) * WIDTH);
    CHECK(info.feature_count == 0 && !neo_model_column(model, 0) && !neo_model_table(model, 0) &&
          !neo_model_feature(model, 0).name);
    CHECK(neo_model_byte(model, 9) == 255 && neo_model_byte(model, 11) == -1);
    CHECK(neo_model_token(model, ' ') == 8 && neo_model_token(model, 'z') == -1);
    REQUIRE_OK(neo_decoder_create(model, NULL, &d));
    CHECK_OK(neo_decoder_add_text(d, "ab cab", 6));
    memcpy(kept, neo_decoder_logits(d), sizeof kept);
    CHECK_OK(add_json(d, " {\"prompt\": \"ab\\u0020cab\"}", &s, &tokens));
    CHECK(!memcmp(kept, neo_decoder_logits(d), sizeof kept) && neo_decoder_count(d) == 6);
    CHECK(s.temperature == 0.5 && s.top_k == 3 && s.seed == 9 && tokens == 20);
    CHECK_OK(add_json(d, "{\"seed\": 4, \"prompt\": [1, 2, 8, 3, 1, 2], \"temperature\": 0, "
                         "\"top_k\": 0, \"tokens\": 7}", &s, &tokens));
    CHECK(!memcmp(kept, neo_decoder_logits(d), sizeof kept) && neo_decoder_count(d) == 6);
    CHECK(s.temperature == 0 && s.top_k == 0 && s.seed == 4 && tokens == 7);
#define JSON(text) add_json(d, text, &s, &tokens)
    CHECK_ERR(JSON("{\"prompt\": \"abz\"}"), NEO_ERR_RANGE,
              "byte 3, 'z', is not in the vocabulary");
    CHECK_ERR(JSON("{\"prompt\": [1, 11]}"), NEO_ERR_RANGE, "token 1 is 11, not in [0, 11)");
    CHECK_ERR(JSON("{\"prompt\": [1, 2"), NEO_ERR_FORMAT, "byte");
    CHECK_ERR(JSON("{\"prompt\": \"ab\\u00fc\"}"), NEO_ERR_RANGE, "byte 3, '\xC3\xBC', is not");
    CHECK_ERR(JSON("{\"prompt\": 3}"), NEO_ERR_FORMAT,
              "byte 11: expected a string or an array of tokens");
    CHECK_ERR(JSON("{\"words\": 3}"), NEO_ERR_NOT_FOUND, "\"words\" is not prompt, tokens");
    CHECK_ERR(JSON("{\"seed\": 8, \"tokens\": -1}"), NEO_ERR_FORMAT, "not negative");
    CHECK_ERR(JSON("{\"seed\": 8, \"temperature\": null}"), NEO_ERR_FORMAT, "expected a number");
    CHECK_ERR(JSON("{\"seed\": 8, \"temperature\": NaN}"), NEO_ERR_FORMAT, "expected a number");
    char text[8000];
    memset(text, ' ', sizeof text);
    CHECK_ERR(neo_decoder_add_json(d, text, 7000, &s, &tokens), NEO_ERR_CAPACITY, "7000 bytes");
    CHECK_ERR(neo_decoder_add_text(d, text, 151), NEO_ERR_CAPACITY,
              "a text of 151 bytes, and the model's context is 150");
    CHECK_ERR(neo_decoder_add(d, ids, LENGTH - 5), NEO_ERR_CAPACITY,
              "145 tokens after 6, and the model's context is 150");
    CHECK_ERR(neo_decoder_add(d, ids, 0), NEO_ERR_ARG, "no tokens");
    /* all of them left the sequence and the words alone */
    CHECK(!memcmp(kept, neo_decoder_logits(d), sizeof kept) && neo_decoder_count(d) == 6);
    CHECK(s.seed == 4 && tokens == 7);
    CHECK_OK(JSON("{}"));
    CHECK(neo_decoder_count(d) == 1 && tokens == 7);
    int64_t line = 0;
    memcpy(kept, neo_decoder_logits(d), sizeof kept);
    neo_decoder_clear(d);
    CHECK_OK(neo_decoder_add(d, &line, 1));
    CHECK(!memcmp(kept, neo_decoder_logits(d), sizeof kept));
    /* what is generated is what is drawn and added one by one, up to the context */
    int64_t drawn, out[LENGTH], again[LENGTH];
    s = (neo_sampling){0.9, 0, 3};
    CHECK_ERR(neo_decoder_generate(d, NULL, 1, out, &drawn), NEO_ERR_ARG, "NULL");
    CHECK_OK(neo_decoder_generate(d, &s, 5, out, &drawn));
    CHECK(drawn == 5 && neo_decoder_count(d) == 5);
    neo_decoder_clear(d);
    CHECK_ERR(neo_decoder_generate(d, &s, 1, out, &drawn), NEO_ERR_ARG, "no token yet");
    CHECK_OK(neo_decoder_add(d, &line, 1));
    for (int i = 0; i < LENGTH; i++) {
        again[i] = neo_sample(&s, neo_decoder_logits(d), VOCABULARY, i);
        if (i + 1 < LENGTH) CHECK_OK(neo_decoder_add(d, &again[i], 1));
    }
    CHECK(memcmp(out, again, 5 * sizeof *out) == 0);
    neo_decoder_clear(d);
    CHECK_OK(neo_decoder_add(d, &line, 1));
    const int64_t before = calls;
    CHECK_OK(neo_decoder_generate(d, &s, LENGTH + 9, out, &drawn));
    CHECK(drawn == LENGTH && calls == before && memcmp(out, again, sizeof out) == 0);
    CHECK_OK(neo_decoder_generate(d, &s, 0, NULL, &drawn));
    CHECK_INT(drawn, 0);
    neo_scratch *scratch;
    CHECK_ERR(neo_scratch_create(model, NULL, &scratch), NEO_ERR_UNSUPPORTED, "neo_decoder");
    neo_decoder_destroy(d);
    CHECK_ERR(neo_decoder_create(model, &(neo_decoder_desc){-1, 1}, &d), NEO_ERR_ARG, "range");
    CHECK(!d && neo_decoder_bytes(model, &(neo_decoder_desc){-1, 1}) == 0);
    neo_model_free(model);
}
static void descriptions(void) {
    neo_model *model;
    save("bytes", "f32", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_FORMAT, "twice");
    save("again", "f32", "[1, 2, 3], \"bytes\": [10, 97, 98, 99, 100, 101, 102, 103, 32, 255, 34]");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_UNSUPPORTED,
              "\"bytes\" is there twice");
    save("short", "f32", "[1, 2, 3]");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_MISMATCH,
              "wte.weight");
    save("f64", "f64", BYTES);
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_UNSUPPORTED,
              "weights_dtype \"f64\" is neither f32 nor bf16");
    save("gelu", "f32", "[1], \"gelu\": \"fast\"");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_UNSUPPORTED,
              "gelu \"fast\" is neither erf nor tanh");
    save("words", "f32", "[1], \"vocabulary\": 11");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_UNSUPPORTED,
              "\"vocabulary\" is there twice");
    save("none", "f32", "[]");
    CHECK_ERR(neo_model_load(&(neo_model_desc){.dir = dir}, &model), NEO_ERR_FORMAT,
              "lacks \"bytes\"");
}

int main(void) {
    RUN(logits_are_those_of_training);
    RUN(threads_share_a_model);
    RUN(memory_is_predicted);
    RUN(text_and_json);
    RUN(descriptions);
    return test_end("serve/gpt");
}
