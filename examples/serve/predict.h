/* predict.h: the model that is served, its versions, and the answers of a batch. `o` has the
   options: options.h. */
#ifndef EXAMPLE_PREDICT_H
#define EXAMPLE_PREDICT_H
#include "loop.h"
#include <pthread.h>
#include <sys/stat.h>

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)
enum { MAX_SAMPLES = 4096 }; /* of a request */

/* ---- models: one is served; those before it are freed by the last batch that uses them ---- */

typedef struct version {
    neo_model *model;
    neo_model_info info;
    neo_scratch **scratch; /* of each thread; of a gpt NULL, */
    neo_decoder **decoder; /* and this is there */
    int users;             /* batches, and the one that this version is the newest */
} version;
static struct {
    pthread_mutex_t lock;
    version *newest;
    atomic_llong step, loaded, failed;
} models = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void version_free(version *v) {
    for (int i = 0; v && v->scratch && i < o.threads; i++) neo_scratch_destroy(v->scratch[i]);
    for (int i = 0; v && v->decoder && i < o.threads; i++) neo_decoder_destroy(v->decoder[i]);
    if (v) neo_model_free(v->model), free(v->scratch), free(v->decoder), free(v);
}
static version *version_take(void) {
    pthread_mutex_lock(&models.lock);
    version *v = models.newest;
    v->users++;
    pthread_mutex_unlock(&models.lock);
    return v;
}
static void version_leave(version *v) {
    pthread_mutex_lock(&models.lock);
    int left = --v->users;
    pthread_mutex_unlock(&models.lock);
    if (!left) version_free(v);
}
static neo_status version_fill(version *v) {
    struct stat status;
    int is_file = stat(o.model, &status) == 0 && S_ISREG(status.st_mode);
    neo_model_desc model = {.dir = is_file ? NULL : o.model, .path = is_file ? o.model : NULL};
    TRY(neo_model_load(&model, &v->model));
    v->info = neo_model_get_info(v->model);
    neo_scratch_desc desc = {.max_batch = o.batch};
    for (int i = 0; i < o.threads; i++)
        TRY(v->info.context ? neo_decoder_create(v->model, NULL, &v->decoder[i])
                            : neo_scratch_create(v->model, &desc, &v->scratch[i]));
    return NEO_OK;
}
/* Why there is no model, after its path, and where there may be one. */
static void version_complain(void) {
    const char *error = neo_last_error();
    char inside[4096];
    int64_t step;
    fprintf(stderr, strstr(error, o.model) ? "serve: %s%s" : "serve: %s: %s",
            strstr(error, o.model) ? "" : o.model, error);
    snprintf(inside, sizeof inside, "%s/checkpoint", o.model);
    if (!models.newest && neo_find_checkpoint(inside, &step) == NEO_OK)
        fprintf(stderr, "; there is one in %s", inside);
    fputc('\n', stderr);
}
/* The newest checkpoint takes the place of what was served; where it cannot, that stays. */
static neo_status version_load(void) {
    version *v = calloc(1, sizeof *v), *old;
    if (v) v->users = 1, v->scratch = calloc((size_t)o.threads, sizeof *v->scratch);
    if (v) v->decoder = calloc((size_t)o.threads, sizeof *v->decoder);
    neo_status status = v && v->scratch && v->decoder ? version_fill(v)
                                                      : neo_fail(NEO_ERR_MEMORY, "no memory");
    if (status != NEO_OK) {
        version_complain();
        version_free(v);
        atomic_fetch_add(&models.failed, 1);
        return status;
    }
    pthread_mutex_lock(&models.lock);
    old = models.newest, models.newest = v;
    pthread_mutex_unlock(&models.lock);
    atomic_store(&models.step, v->info.step), atomic_fetch_add(&models.loaded, 1);
    if (old) version_leave(old);
    return NEO_OK;
}

/* ---- answers ---- */

typedef struct span { size_t first, count; } span; /* predictions of a request */
typedef struct worker {
    http_loop loop;
    pthread_t thread;
    int index;
    span *spans;
    float *out; /* predictions of a batch */
    size_t count, capacity;
    atomic_llong samples;
} worker;
static worker *workers;

static void answer_error(http_exchange *e, http_text *text, int status, const char *message) {
    e->status = status, e->type = "application/json", e->text = text->size;
    http_append(text, "{\"error\":\"", 10);
    for (const char *c = message; *c; c++)
        http_print(text, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c < ' ' || *c > '~' ? '?' : *c);
    http_append(text, "\"}\n", 3);
    e->text_size = text->size - e->text;
}
/* The samples of the scratch become predictions. */
static neo_status predict(worker *w, const version *v) {
    size_t n = (size_t)neo_scratch_count(v->scratch[w->index]), outputs = (size_t)v->info.outputs;
    if (w->count + n * outputs > w->capacity) {
        size_t capacity = 2 * (w->count + n * outputs);
        float *out = realloc(w->out, capacity * sizeof *out);
        if (!out) return NEO_ERR_MEMORY;
        w->out = out, w->capacity = capacity;
    }
    if (n) TRY(neo_scratch_predict(v->scratch[w->index], w->out + w->count));
    neo_scratch_clear(v->scratch[w->index]);
    w->count += n * outputs;
    atomic_fetch_add_explicit(&w->samples, (long long)n, memory_order_relaxed);
    return NEO_OK;
}
/* JSON that is no object: its reader would only miss a '{'. */
static neo_status check_object(const char *at, const char *end, const char *expected) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) at++;
    if (at < end && *at == '{') return NEO_OK;
    return neo_fail(NEO_ERR_FORMAT, "expected a JSON object%s", expected);
}
/* The lines of a body become samples; the scratch is emptied where it is full. */
static neo_status add_samples(worker *w, const version *v, http_exchange *e, http_text *text,
                              size_t *count) {
    neo_scratch *scratch = v->scratch[w->index];
    const char *at = e->body, *end = at + e->request.body, *stop;
    char message[600];
    for (int line = 1; at < end; line++, at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        if (strspn(at, " \t\r\n") >= (size_t)(stop - at)) continue;
        neo_status status = check_object(at, stop, " on each line, as {\"column\": value, ...}");
        if (status == NEO_OK) status = neo_scratch_add_json(scratch, at, (size_t)(stop - at));
        if (status == NEO_ERR_CAPACITY && neo_scratch_count(scratch) > 0) {
            TRY(predict(w, v));
            status = neo_scratch_add_json(scratch, at, (size_t)(stop - at));
        }
        if (status != NEO_OK) {
            snprintf(message, sizeof message, "line %d: %s", line, neo_last_error());
            answer_error(e, text, status == NEO_ERR_CAPACITY ? 413 : 400, message);
            return NEO_OK;
        }
        if (++*count > MAX_SAMPLES) {
            answer_error(e, text, 413, "more than 4096 samples in a request");
            return NEO_OK;
        }
    }
    if (!*count) answer_error(e, text, 400, "no sample: expected a JSON object a line");
    return NEO_OK;
}
static void answer_predictions(worker *w, const version *v, http_exchange *e, http_text *text,
                               span s) {
    int outputs = v->info.outputs;
    const float *out = w->out + s.first;
    e->status = 200, e->type = "application/json", e->text = text->size;
    for (size_t i = 0; i < s.count; i++) {
        http_print(text, "{\"prediction\":%s", outputs > 1 ? "[" : "");
        for (int k = 0; k < outputs; k++) http_print(text, k ? ",%.9g" : "%.9g", (double)*out++);
        http_print(text, "%s,\"step\":%lld}\n", outputs > 1 ? "]" : "", (long long)v->info.step);
    }
    e->text_size = text->size - e->text;
}
/* Text as the inside of a JSON string: UTF-8 as it is, other bytes above 127 as U+FFFD. */
static void put_text(http_text *text, const char *at, size_t size) {
    for (const unsigned char *c = (const unsigned char *)at, *end = c + size; c < end;) {
        size_t n = *c < 0x80 ? 1 : *c < 0xC2 || *c > 0xF4 ? 0 : *c < 0xE0 ? 2 : *c < 0xF0 ? 3 : 4;
        int whole = n > 0 && n <= (size_t)(end - c);
        for (size_t i = 1; whole && i < n; i++) whole = (c[i] & 0xC0) == 0x80;
        if (whole && n > 2) /* not longer than it must be, no surrogates, nothing above U+10FFFF */
            whole = !(*c == 0xE0 && c[1] < 0xA0) && !(*c == 0xED && c[1] > 0x9F) &&
                    !(*c == 0xF0 && c[1] < 0x90) && !(*c == 0xF4 && c[1] > 0x8F);
        if (!whole) http_append(text, "\\ufffd", 6);
        else if (*c < ' ' || *c == '"' || *c == '\\') http_print(text, "\\u%04x", *c);
        else http_append(text, c, n);
        c += whole ? n : 1;
    }
}
/* The bytes that do not end inside a character. */
static size_t whole_text(const char *at, size_t size) {
    for (size_t k = 1; k <= 3 && k <= size; k++) {
        unsigned char c = (unsigned char)at[size - k];
        int longer = c >= (k == 1 ? 0xC2 : k == 2 ? 0xE0 : 0xF0);
        if ((c & 0xC0) != 0x80) return longer ? size - k : size;
    }
    return size;
}
/* Tokens [first, end) as the inside of an answer. */
static void put_tokens(http_text *text, const version *v, const int64_t *tokens, int64_t first,
                       int64_t end) {
    char bytes[256];
    int has_bytes = neo_model_byte(v->model, 0) >= 0;
    http_print(text, has_bytes ? "\"text\":\"" : "\"ids\":[");
    for (int64_t i = first, n; i < end; i += n) { /* pieces of whole characters */
        for (n = 0; has_bytes && n < (int64_t)sizeof bytes && i + n < end; n++)
            bytes[n] = (char)neo_model_byte(v->model, tokens[i + n]);
        if (has_bytes && i + n < end) n = (int64_t)whole_text(bytes, (size_t)n);
        if (has_bytes) put_text(text, bytes, (size_t)n);
        else http_print(text, i > first ? ",%lld" : "%lld", (long long)tokens[i]), n = 1;
    }
    http_print(text, has_bytes ? "\"" : "]");
}
/* The end of the tokens from `first` on that make whole characters. */
static int64_t whole_tokens(const version *v, const int64_t *tokens, int64_t first, int64_t end) {
    char bytes[4];
    size_t n = 0;
    if (neo_model_byte(v->model, 0) < 0) return end;
    for (int64_t i = end - first < 4 ? first : end - 4; i < end; i++)
        bytes[n++] = (char)neo_model_byte(v->model, tokens[i]);
    return end - (int64_t)(n - whole_text(bytes, n));
}
/* A piece behind `from` of the text leaves, or stays where the answer is one text. 0: the client is
   gone. */
static int stream(worker *w, http_exchange *e, http_text *text, size_t from) {
    int left = http_stream(&w->loop, e, text->at + from, text->size - from);
    if (left) text->size = from;
    return left || !e->streams;
}
/* A prompt is continued, up to the model's context; streams: a line for each token as it comes, in
   the end one of what there is to say. */
static void answer_generation(worker *w, const version *v, http_exchange *e, http_text *text,
                              int streams) {
    neo_decoder *decoder = v->decoder[w->index];
    neo_sampling sampling = {.temperature = 0.8};
    int64_t asked = v->info.context, count = 0, told = 0, *tokens = NULL;
    size_t from = text->size;
    int listens = 1;
    neo_status status =
        check_object(e->body, e->body + e->request.body, ", as {\"prompt\": \"To be\"}");
    if (status == NEO_OK)
        status = neo_decoder_add_json(decoder, e->body, e->request.body, &sampling, &asked);
    if (status != NEO_OK) {
        answer_error(e, text, status == NEO_ERR_CAPACITY ? 413 : 400, neo_last_error());
        return;
    }
    int64_t most = asked < v->info.context ? asked : v->info.context;
    tokens = malloc((size_t)(most + 1) * sizeof *tokens);
    if (!tokens) status = neo_fail(NEO_ERR_MEMORY, "no memory");
    e->status = 200, e->text = from;
    e->type = streams ? "application/x-ndjson" : "application/json";
    while (status == NEO_OK && listens && count < most) {
        if (count && neo_decoder_count(decoder) == v->info.context) break;
        if (count) status = neo_decoder_add(decoder, &tokens[count - 1], 1);
        if (status != NEO_OK) break;
        tokens[count] = neo_sample(&sampling, neo_decoder_logits(decoder), v->info.outputs, count);
        count++;
        int64_t end = streams ? whole_tokens(v, tokens, told, count) : told;
        if (end == told) continue;
        size_t piece = text->size;
        http_print(text, "{"), put_tokens(text, v, tokens, told, end), http_print(text, "}\n");
        listens = stream(w, e, text, piece), told = end;
    }
    if (status != NEO_OK && !e->streams) text->size = from, answer_error(e, text, 500,
                                                                          neo_last_error());
    else if (status == NEO_OK && listens) {
        size_t piece = text->size;
        http_print(text, "{");
        if (told < count || !streams)
            put_tokens(text, v, tokens, told, count), http_print(text, ",");
        http_print(text, "\"tokens\":%lld,\"finish\":\"%s\",\"step\":%lld}\n", (long long)count,
                   count == asked ? "length" : "context", (long long)v->info.step);
        if (streams && stream(w, e, text, piece) && e->streams) http_stream(&w->loop, e, "", 0);
        e->text_size = text->size - e->text;
    } else if (e->streams && e->conn->fd >= 0) http_close(&w->loop, e->conn); /* half an answer */
    atomic_fetch_add_explicit(&w->samples, (long long)count, memory_order_relaxed);
    free(tokens);
}
static void answer_metrics(http_exchange *e, http_text *text) {
    long long samples = 0, batches = 0, open = 0, accepted = 0, bytes = 0, all = 0, ns = 0, n;
    e->status = 200, e->type = "text/plain; version=0.0.4", e->text = text->size;
    for (int k = 0; k < HTTP_STATUSES; k++) {
        n = 0;
        for (int i = 0; i < o.threads; i++) n += workers[i].loop.stats.answers[k];
        if (n) http_print(text, "neo_requests_total{status=\"%d\"} %lld\n",
                          http_reasons[k].status, n);
    }
    double most = 0.0001;
    for (int k = 0; k <= HTTP_TIMES; k++, most *= 4) {
        for (int i = 0; i < o.threads; i++) all += workers[i].loop.stats.times[k];
        if (k < HTTP_TIMES)
            http_print(text, "neo_request_seconds_bucket{le=\"%g\"} %lld\n", most, all);
        else http_print(text, "neo_request_seconds_bucket{le=\"+Inf\"} %lld\n", all);
    }
    for (int i = 0; i < o.threads; i++) {
        http_stats *s = &workers[i].loop.stats;
        samples += workers[i].samples, batches += s->batches, open += s->connections;
        accepted += s->accepted, bytes += s->buffer_bytes, ns += s->time_ns;
    }
    http_print(text, "neo_request_seconds_sum %.9g\nneo_request_seconds_count %lld\n"
               "neo_samples_total %lld\nneo_batches_total %lld\nneo_connections %lld\n"
               "neo_connections_total %lld\nneo_buffer_bytes %lld\n",
               (double)ns / 1e9, all, samples, batches, open, accepted, bytes);
    http_print(text, "neo_model_step %lld\nneo_model_loads_total{result=\"ok\"} %lld\n"
               "neo_model_loads_total{result=\"failed\"} %lld\n", models.step, models.loaded,
               models.failed);
    e->text_size = text->size - e->text;
}
/* All of a batch by one version of the model. */
static void answer(void *user, http_exchange *exchanges, int count, http_text *text) {
    worker *w = user;
    version *v = version_take();
    neo_status status = NEO_OK;
    int generates = v->info.context > 0;
    w->count = 0;
    if (!generates) neo_scratch_clear(v->scratch[w->index]);
    for (int i = 0; i < count; i++) {
        http_exchange *e = &exchanges[i];
        int streams = generates && http_is(e->request.path, "/stream");
        int asks = streams || http_is(e->request.path, generates ? "/generate" : "/predict");
        if (e->status != HTTP_MORE) continue;
        if (!asks && !http_is(e->request.path, "/metrics"))
            answer_error(e, text, 404, generates ?
                         "there are POST /generate, POST /stream and GET /metrics" :
                         "there are POST /predict and GET /metrics");
        else if (!http_is(e->request.method, asks ? "POST" : "GET")) {
            answer_error(e, text, 405, !asks ? "/metrics wants GET" :
                         streams ? "/stream wants POST" :
                         generates ? "/generate wants POST" : "/predict wants POST");
            e->fields = asks ? "Allow: POST\r\n" : "Allow: GET\r\n";
        }
        else if (!asks) answer_metrics(e, text);
        else if (generates) answer_generation(w, v, e, text, streams);
        else if (status == NEO_OK) {
            size_t held = (size_t)neo_scratch_count(v->scratch[w->index]);
            w->spans[i] = (span){w->count + held * (size_t)v->info.outputs, 0};
            status = add_samples(w, v, e, text, &w->spans[i].count);
        }
    }
    if (status == NEO_OK && !generates) status = predict(w, v);
    for (int i = 0; i < count; i++) {
        if (exchanges[i].status != HTTP_MORE) continue;
        if (status == NEO_OK) answer_predictions(w, v, &exchanges[i], text, w->spans[i]);
        else answer_error(&exchanges[i], text, 500, neo_last_error());
    }
    version_leave(v);
}
#endif
