/* sample.c: any bytes as model.json, and as a sample, JSON or a line, for models of four formats: a
   sample that is taken has its ids inside their tables and its numbers finite, one that is not
   leaves the others as they were, and the same bytes always do the same. So do prompts of a GPT. */

#define MODEL(name, rest, schema)                                                                  \
    "{\"neo_model\": 1, \"model\": \"" name "\", \"dim\": 2, \"dtype\": \"f32\", \"rows_dtype\": " \
    "\"f32\", \"row_buckets\": 1, " rest ", \"schema\": " schema "}"
#define ROWS_26 "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7"
static const char *const models[] = {
    MODEL("wukong", "\"bottom\": [2, 2], \"top\": [10, 1], \"wukong\": {\"layers\": 1, "
          "\"hidden\": 3}", "{\"format\": \"delimited\", \"columns\": \"a dense log bucket 1,2\\nb "
          "category hash rows=9\\nc list sep=| weight=: hash rows=5 normalize\\nd dense\\nd2 cross "
          "b rows=9\\ny label\\n\"}"),
    MODEL("fm", "\"bottom\": [13, 1]", "{\"format\": \"criteo\", \"ids\": \"hash\", \"rows\": ["
          ROWS_26 "]}"),
    MODEL("ffm", "\"bottom\": [1, 1]", "{\"format\": \"libffm\", \"dense\": 0, \"modulo\": 0, "
          "\"float_dense\": 0, \"rows\": [5, 6]}"),
    MODEL("dcnv2", "\"bottom\": [2, 2], \"top\": [6, 1], \"cross\": {\"layers\": 2, \"rank\": 1}",
          "{\"format\": \"binary\", \"dense\": 2, \"modulo\": 1, \"float_dense\": 0, \"rows\": [5, "
          "6]}")};
#define GPT                                                                                        \
    "{\"neo_model\": 1, \"model\": \"gpt\", \"layers\": 1, \"heads\": 1, \"width\": 2, "           \
    "\"context\": 4, \"dtype\": \"f32\", \"weights_dtype\": \"f32\", "                             \
    "\"bytes\": [97, 98, 195, 169, 34]}"
enum { MODELS = sizeof models / sizeof models[0] };
static const fuzz_seed sample_seeds[] = {
    FUZZ_TEXT("{\"a\": 3, \"b\": \"x\", \"c\": [\"u:0.5\", \"v\"], \"d\": -1e3, \"d2\": null}"),
    FUZZ_TEXT("3,x,u:0.5|v,-1e3,w,1\n"),
    FUZZ_TEXT("{\"I1\": 5, \"I13\": \"-2\", \"C1\": \"68fd1e64\", \"C26\": null}"),
    FUZZ_TEXT("1\t1\t\t3\t\t\t\t\t\t\t\t\t\t\t68fd1e64\t80e26c9b\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
              "\t\t\t\t\t\t\t\t\ta\n"),
    FUZZ_TEXT("{\"field_0\": {\"3\": 0.5, \"4\": -1}, \"field_1\": [5, 0]}"),
    FUZZ_TEXT("1 0:3:0.5 1:5:1 # more\n"),
    FUZZ_TEXT("{\"dense_0\": 7, \"dense_1\": -5, \"cat_0\": 12, \"cat_1\": [1, 2, 3]}"),
    FUZZ_TEXT(MODEL("lr", "\"bottom\": [13, 1]",
                    "{\"format\": \"npy\", \"dense\": 13, \"modulo\": 1, \"rows\": [3]}")),
    FUZZ_TEXT("{\"neo_model\": 2, \"later\": [1, {\"x\": null}]}"),
    FUZZ_TEXT(GPT),
    FUZZ_TEXT("{\"prompt\": \"a\\u00e9b\", \"tokens\": 3, \"temperature\": 0.5, \"top_k\": 2}"),
    FUZZ_TEXT("{\"seed\": 3, \"prompt\": [0, 1, 4, 2]}"),
};

static neo_scratch *scratches[MODELS];
static neo_decoder *decoder;
static neo_ctx *ctx;
/* A model without weights: enough to parse for. */
static neo_model *make_model(const char *text) {
    neo_ctx_desc desc = {0};
    neo_ctx *own;
    desc.threads = 1;
    FUZZ_CHECK(neo_ctx_create(&desc, &own) == NEO_OK);
    neo_model *model = (neo_model *)neo__alloc_zero(own, sizeof *model);
    FUZZ_CHECK(model != NULL);
    model->ctx = model->arena.ctx = own;
    model->ctx_desc = desc;
    FUZZ_CHECK(neo__model_describe(model, "fuzz", text, strlen(text)) == NEO_OK);
    FUZZ_CHECK(neo__model_lists(model) == NEO_OK);
    return model;
}
static void make_models(void) {
    neo_ctx_desc desc = {0};
    neo_scratch_desc d = {0};
    desc.threads = 1;
    d.max_batch = 2;
    FUZZ_CHECK(neo_ctx_create(&desc, &ctx) == NEO_OK);
    for (int i = 0; i < MODELS; i++)
        FUZZ_CHECK(neo_scratch_create(make_model(models[i]), &d, &scratches[i]) == NEO_OK);
    neo_model *gpt = make_model(GPT);
    for (int i = 0; i < gpt->dense_weights; i++)
        memset(gpt->dense[i].t.data, 0, neo_tensor_bytes(gpt->dense[i].t));
    FUZZ_CHECK(neo__model_turn(gpt) == NEO_OK);
    FUZZ_CHECK(neo_decoder_create(gpt, NULL, &decoder) == NEO_OK);
}
static void sample_prompt(const uint8_t *data, size_t size) {
    neo_sampling sampling = {1, -1, 9};
    const int64_t before = neo_decoder_count(decoder);
    int64_t tokens = -7;
    neo_status status =
        neo_decoder_add_json(decoder, (const char *)data, size, &sampling, &tokens);
    const int64_t count = neo_decoder_count(decoder);
    if (status == NEO_OK) {
        FUZZ_CHECK(count >= 1 && count <= 4 && (tokens >= 0 || tokens == -7));
        FUZZ_CHECK(neo_decoder_logits(decoder)[0] == 0.0f);
    } else FUZZ_CHECK(count == before && tokens == -7 && sampling.seed == 9);
}
static neo_status sample_add(neo_scratch *s, int is_json, const uint8_t *data, size_t size) {
    return is_json ? neo_scratch_add_json(s, (const char *)data, size)
                   : neo_scratch_add_line(s, (const char *)data, size);
}
static void sample_look(const neo_scratch *s) {
    const int32_t features = s->model->feature_count, dense = s->model->dense_count;
    for (int64_t i = 0; i < s->count * dense; i++)
        FUZZ_CHECK(s->dense[i] - s->dense[i] == 0.0f);
    for (int64_t i = 0; i < s->count * features; i++) {
        FUZZ_CHECK(s->ends[i] <= s->ends[i + 1] && s->ends[i + 1] <= s->desc.max_ids);
        for (int64_t k = s->ends[i]; k < s->ends[i + 1]; k++) {
            FUZZ_CHECK(s->ids[k] >= 0 && s->ids[k] < s->schema->rows[i % features]);
            FUZZ_CHECK(!s->weights || s->weights[k] - s->weights[k] == 0.0f);
        }
    }
}

static int sample_input(const uint8_t *data, size_t size) {
    static const uint8_t none[1];
    if (!ctx) make_models();
    if (!size) data = none;
    sample_prompt(data, size);
    for (int i = 0; i < 2 * MODELS; i++) {
        neo_scratch *s = scratches[i / 2];
        neo_scratch_clear(s);
        neo_status status = sample_add(s, i % 2, data, size);
        FUZZ_CHECK(neo_scratch_count(s) == (status == NEO_OK));
        sample_look(s);
        const neo_status second = sample_add(s, i % 2, data, size);
        FUZZ_CHECK(second == status || (status == NEO_OK && second == NEO_ERR_CAPACITY));
        FUZZ_CHECK(neo_scratch_count(s) == (status == NEO_OK) + (second == NEO_OK));
        sample_look(s);
        if (second == NEO_OK)
            FUZZ_CHECK(memcmp(s->dense, s->dense + s->model->dense_count,
                              (size_t)s->model->dense_count * sizeof(float)) == 0);
    }
    char *text = (char *)malloc(size + 1);
    neo__model_json json;
    if (!text) return 0;
    memcpy(text, data, size);
    if (neo__model_json_read(ctx, "fuzz", text, size, &json) == NEO_OK) {
        neo__net net;
        if (json.top.width[0] < 1000 && json.bottom.width[0] < 1000 &&
            neo__net_create(ctx, &json, 1, &net) == NEO_OK)
            neo__net_destroy(&net);
        neo_schema_destroy(json.schema);
    }
    free(text);
    return 0;
}
