/* predict.c: a model from a checkpoint or a file predicts lines of training data: one probability a
   line, as build/dlrm --predict prints them. For predict.sh.
     predict [options] PATH <lines
   --batch N: samples of a batch; --threads N; --isa X; --rows R; --json: lines become JSON by the
   names of the model's columns, cut at tabs or commas; --write FILE: the model goes there first,
   and the predictions come from that file; --file FILE: from one that is there; --synthetic N:
   instead, the figures of generated samples. */
#include "neo_serve.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DO(call)                                                                                   \
    do {                                                                                           \
        if (call) return fprintf(stderr, "%s\n", neo_last_error()), 1;                             \
    } while (0)
enum { MOST = 1024 };

/* The fields of a line as members of an object, each named as the model's column at its place. Of
   Criteo data the label is first. */
static void to_json(const neo_model *model, char *line, char *json) {
    const int32_t columns = neo_model_get_info(model).column_count;
    const int criteo = strchr(line, '\t') != NULL;
    const char *cut = criteo ? "\t" : ",";
    char *to = json + sprintf(json, "{"), *p = line;
    int members = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (criteo) p = strchr(p, '\t') + 1;
    for (int32_t i = 0; i < columns && p; i++) {
        size_t n = strcspn(p, cut);
        const char *name = neo_model_column(model, i);
        while (n && *p == ' ') p++, n--;
        if (name && n && strncmp(p, "?", n)) {
            int number = n < 9 && strspn(p, "0123456789") == n && (n == 1 || *p != '0');
            to += sprintf(to, "%s\"%s\": %s%.*s%s", members++ ? ", " : "", name,
                          number ? "" : "\"", (int)n, p, number ? "" : "\"");
        }
        p = p[n] ? p + n + 1 : NULL;
    }
    (void)sprintf(to, "}");
}

static int predict(const neo_model *model, int64_t batch, int threads, int json) {
    static char line[70000], text[70000];
    static float out[MOST * 2];
    const int outputs = neo_model_get_info(model).outputs;
    neo_scratch_desc desc = {.max_batch = batch, .threads = threads};
    neo_scratch *s;
    int more = 1;
    DO(neo_scratch_create(model, &desc, &s));
    while (more) {
        neo_scratch_clear(s);
        while (neo_scratch_count(s) < batch && (more = fgets(line, sizeof line, stdin) != NULL)) {
            if (line[0] == '|' || line[0] == '\n') continue;
            if (json) {
                to_json(model, line, text);
                DO(neo_scratch_add_json(s, text, strlen(text)));
            } else {
                DO(neo_scratch_add_line(s, line, strlen(line)));
            }
        }
        DO(neo_scratch_predict(s, out));
        for (int64_t i = 0; i < neo_scratch_count(s) * outputs; i++)
            printf("%.9g%c", (double)out[i], (i + 1) % outputs ? ',' : '\n');
    }
    neo_scratch_destroy(s);
    return 0;
}

#if !defined(NEO_INFERENCE)
/* Figures of the generated samples behind the first `samples`, as build/dlrm takes them. */
static int evaluate(const neo_model *model, int64_t samples) {
    static float out[MOST];
    neo_synthetic_desc synthetic = {.samples = samples / 4 + 1, .first_sample = samples,
                                    .rows = neo_model_feature(model, 0).rows};
    neo_metric_values v;
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader;
    neo_metrics *metrics;
    neo_scratch *s;
    neo_batch batch;
    DO(neo_ctx_create(&(neo_ctx_desc){.threads = 1}, &ctx));
    DO(neo_schema_synthetic(ctx, &synthetic, &schema));
    DO(neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .batch = MOST}, &reader));
    DO(neo_metrics_create(ctx, &(neo_metrics_desc){.capacity = samples}, &metrics));
    DO(neo_scratch_create(model, &(neo_scratch_desc){.max_batch = MOST, .logits = 1}, &s));
    while (neo_reader_next(reader, &batch) == NEO_OK) {
        neo_tensor logits = neo_tensor_2d(out, NEO_F32, batch.size, 1);
        DO(neo_model_predict(model, s, batch.dense, &batch.sparse, out));
        DO(neo_metrics_update(metrics, logits, batch.label));
    }
    DO(neo_metrics_lifetime(metrics, &v));
    printf("auc %.4f logloss %.4f auc %.9f\n", v.auc, v.logloss, v.auc);
    neo_scratch_destroy(s);
    neo_metrics_destroy(metrics);
    neo_reader_close(reader);
    neo_schema_destroy(schema);
    neo_ctx_destroy(ctx);
    return 0;
}
#endif

int main(int argc, char **argv) {
    static const char *const rows[] = {"trained", "f32", "f16", "bf16", "i8", "i4", "i2"};
    const char *write = NULL, *path = argv[argc - 1];
    int64_t batch = 100, synthetic = 0;
    int threads = 1, json = 0;
    neo_model_desc desc = {.dir = path, .ctx = {.threads = 1}};
    neo_model *model;
    for (int i = 1; i + 1 < argc; i++) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--json") == 0) json = 1;
        else if (strcmp(argv[i], "--batch") == 0) batch = atoll(value);
        else if (strcmp(argv[i], "--threads") == 0) threads = atoi(value);
        else if (strcmp(argv[i], "--synthetic") == 0) synthetic = atoll(value);
        else if (strcmp(argv[i], "--write") == 0) write = value;
        else if (strcmp(argv[i], "--file") == 0) desc.dir = NULL, desc.path = value;
        else if (strcmp(argv[i], "--isa") == 0) DO(neo_isa_parse(value, &desc.ctx.isa));
        else if (strcmp(argv[i], "--rows") == 0)
            for (int k = 0; k < 7; k++)
                if (strcmp(value, rows[k]) == 0) desc.rows = (neo_row_bits)k;
    }
    (void)write, (void)synthetic;
    if (batch > MOST) return fprintf(stderr, "--batch: at most %d\n", (int)MOST), 1;
    DO(neo_model_load(&desc, &model));
#if !defined(NEO_INFERENCE)
    if (write) {
        DO(neo_model_write(model, write));
        neo_model_free(model);
        desc.dir = NULL, desc.path = write, desc.rows = NEO_ROWS_TRAINED;
        DO(neo_model_load(&desc, &model));
    }
#endif
    int failed = -1;
#if !defined(NEO_INFERENCE)
    if (synthetic) failed = evaluate(model, synthetic);
#endif
    if (failed < 0) failed = predict(model, batch, threads, json);
    neo_model_free(model);
    return failed;
}
