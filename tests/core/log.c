/* log.c: the progress bar and the JSON lines log.

   Progress: the text is collected and looked at: one line that never grows over its columns on a
   terminal, whole lines elsewhere. JSON lines: exact text of lines, escapes, numbers that read
   back, a full disk (/dev/full). Histograms: every number is in the bucket whose limits hold it,
   and those of parts add up. TensorBoard's events: refusals, a full disk;
   tests/programs/board.sh reads them. */
#include "neo_run.h"
#include "test.h"
#include <signal.h>
#include <sys/resource.h>

static char text[1 << 16];
static int writes;
static void collect(const char *s, void *user) {
    (void)user;
    writes++;
    if (strlen(text) + strlen(s) + 1 < sizeof text) strcat(text, s);
}
static neo_progress progress(int terminal) {
    neo_progress p = {.write = collect, .label = "train", .terminal = terminal, .total = 100000};
    text[0] = 0;
    writes = 0;
    return p;
}
static void wait_ms(int64_t ms) {
    int64_t until = neo_time_ns() + ms * 1000000;
    while (neo_time_ns() < until) {}
}
/* Columns of UTF-8 text. */
static int columns(const char *s, const char *end) {
    int n = 0;
    for (; s < end; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static void terminal_bar(void) {
    for (int ascii = 0; ascii < 2; ascii++)
        for (int width = 0; width <= 200; width += 50) {
            neo_progress p = progress(1);
            p.interval_ms = 1;
            p.ascii = ascii;
            p.columns = width;
            neo_progress_begin(&p);
            for (int i = 1; i <= 20; i++) {
                wait_ms(2);
                neo_progress_update(&p, i * 5000, 0.5 / i);
            }
            neo_progress_end(&p, 0.025);
            CHECK_INT(writes, 21);
            CHECK(strstr(text, "\rtrain") == text);
            CHECK(strstr(text, "50%") && strstr(text, "100%") && strstr(text, "50.0k/100k"));
            if (width != 50)
                CHECK(strstr(text, "loss 0.0250") && strstr(text, " samples/s") &&
                      strstr(text, "ETA 0:00"));
            CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one line, ended once */
            for (const char *s = text; s && *s; s = strchr(s + 1, '\r')) {
                const char *end = strchr(s + 1, '\r');
                CHECK(columns(s + 1, end ? end : s + strcspn(s, "\n")) < (width ? width : 80));
            }
            if (ascii)
                for (const char *s = text; *s; s++) CHECK(*s > 0);
        }
}
static void throttled(void) {
    neo_progress p = progress(1);
    p.interval_ms = 3600000;
    neo_progress_begin(&p);
    for (int i = 1; i <= 1000; i++) neo_progress_update(&p, i * 100, 1.0);
    neo_progress_end(&p, 1.0);
    CHECK_INT(writes, 2); /* the first and the last */
    p = progress(0);
    p.interval_ms = 3600000;
    neo_progress_begin(&p);
    for (int i = 1; i <= 1000; i++) neo_progress_update(&p, i * 100, 1.0);
    CHECK_INT(writes, 0);
    neo_progress_end(&p, 1.0);
    CHECK_INT(writes, 1);
}
static void plain_lines(void) {
    neo_progress p = progress(0);
    p.interval_ms = 1;
    neo_progress_begin(&p);
    for (int i = 1; i <= 4; i++) {
        wait_ms(2);
        neo_progress_update(&p, i * 25000, 0.125);
    }
    neo_progress_end(&p, 0.125);
    CHECK(strchr(text, '\r') == NULL);
    int lines = 0;
    for (const char *s = text; (s = strchr(s, '\n')) != NULL; s++) lines++;
    CHECK_INT(lines, 5);
    CHECK(strstr(text, "train  25%  25.0k/100k") == text);
    CHECK(strstr(text, "train 100%  100k samples") != NULL);
    CHECK(strstr(text, "  in ") != NULL); /* 0:00, where nothing stopped it */
}
static void odd_cases(void) {
    neo_progress p = progress(0);
    p.total = 0; /* unknown: no percent, no ETA */
    p.hide_loss = 1;
    neo_progress_begin(&p);
    neo_progress_update(&p, 10, 0);
    neo_progress_end(&p, 0);
    CHECK(strstr(text, "train  10 samples") == text && !strchr(text, '%') &&
          !strstr(text, "loss"));
    p = progress(1);
    p.first = 90000; /* resumed: the rate counts what was done since */
    p.label = NULL;
    neo_progress_begin(&p);
    wait_ms(20);
    neo_progress_update(&p, 95000, (double)NAN);
    CHECK(strstr(text, "95%") && strstr(text, "nan"));
    char *rate = strstr(text, "/100k  ");
    CHECK(rate && atof(rate + 7) > 0 && (atof(rate + 7) < 300 || !strchr(rate + 7, 'k')));
    neo_progress_update(&p, 2000000, 1e300); /* more than the total; a huge loss */
    neo_progress_end(&p, -1e300);
    CHECK(strstr(text, "100%") != NULL);
    p.write = NULL;
    neo_progress_begin(&p);
    neo_progress_update(&p, 1, 1);
    neo_progress_end(&p, 1);
    neo_progress_begin(NULL);
}

/* ---- JSON lines ---- */
static const char *path = "build_test_log.jsonl";
static char file[1 << 18];
static void read_back(void) {
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(file, 1, sizeof file - 1, f) : 0;
    file[n] = 0;
    if (f) fclose(f);
}
static void json_lines(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_jsonl *log;
    REQUIRE_OK(neo_jsonl_open(ctx, path, 0, &log));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    neo_jsonl_int(log, "step", 100);
    neo_jsonl_number(log, "loss", 0.3125);
    neo_jsonl_string(log, "name", "a\"b\\c\n\t\r\b\f\x01/\xC3\xA9");
    CHECK_OK(neo_jsonl_end(log));
    neo_jsonl_number(log, "nan", (double)NAN);
    neo_jsonl_number(log, "inf", (double)-INFINITY);
    neo_jsonl_string(log, "null", NULL);
    neo_jsonl_int(log, "min", INT64_MIN);
    neo_jsonl_string(log, "k\"ey", "\xff\xC0\xAF\xED\xA0\x80\xF0\x9F\x98\x80\xE2\x82");
    CHECK_OK(neo_jsonl_end(log));
    CHECK_OK(neo_jsonl_end(log));
    read_back(); /* lines are in the file before close */
    CHECK(
        strcmp(file,
               "{\"step\":100,\"loss\":0.3125,"
               "\"name\":\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001/\xC3\xA9\"}\n"
               "{\"nan\":null,\"inf\":null,\"null\":null,\"min\":-9223372036854775808,\"k\\\"ey\":"
               "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xF0\x9F"
               "\x98\x80"
               "\xEF\xBF\xBD\xEF\xBF\xBD\"}\n{}\n") == 0);
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    neo_jsonl_close(log);
    REQUIRE_OK(neo_jsonl_open(ctx, path, 1, &log));
    neo_jsonl_int(log, "more", -1);
    CHECK_OK(neo_jsonl_end(log));
    neo_jsonl_close(log);
    neo_jsonl_close(NULL);
    read_back();
    CHECK(strstr(file, "{}\n{\"more\":-1}\n") != NULL);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    remove(path);
    neo_ctx_destroy(ctx);
}
static void json_numbers_read_back(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_jsonl *log;
    REQUIRE_OK(neo_jsonl_open(ctx, path, 0, &log));
    static double x[300];
    for (int i = 0; i < 300; i++) {
        uint64_t u = (uint64_t)test_random() << 33 ^ (uint64_t)test_random() << 11 ^ test_random();
        memcpy(&x[i], &u, 8);
        if (i % 2 || x[i] - x[i] != 0) x[i] = (double)test_uniform();
        if (i < 8)
            x[i] = (double[]){0, 1, -1, 0.1, 1e300, 5e-324, 1.0 / 3, 123456789012345678.0}[i];
        neo_jsonl_number(log, "x", x[i]);
        CHECK_OK(neo_jsonl_end(log));
    }
    neo_jsonl_close(log);
    read_back();
    const char *s = file;
    for (int i = 0; i < 300 && s; i++, s = strchr(s, '\n') + 1) CHECK(strtod(s + 5, NULL) == x[i]);
    CHECK(strstr(file, "{\"x\":0.1}\n") && strstr(file, "{\"x\":1e+300}\n"));
    remove(path);
    neo_ctx_destroy(ctx);
}
static void json_errors(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_jsonl *log;
    static char big[5000];
    memset(big, 'x', sizeof big - 1);
    REQUIRE_OK(neo_jsonl_open(ctx, path, 0, &log));
    for (int room = 4070; room < 4110;
         room++) { /* around the limit: whole or refused, never cut */
        big[room] = 0;
        neo_jsonl_string(log, "k", big);
        neo_status st = neo_jsonl_end(log);
        CHECK(st == (room + 9 <= 4096 ? NEO_OK : NEO_ERR_CAPACITY)); /* {"k":""} and newline */
        big[room] = 'x';
    }
    memset(big, '\n', 3000);
    big[3000] = 0;
    neo_jsonl_string(log, "k", big); /* grows when escaped */
    neo_jsonl_int(log, "after", 1);
    CHECK_ERR(neo_jsonl_end(log), NEO_ERR_CAPACITY, path);
    neo_jsonl_int(log, "ok", 1);
    CHECK_OK(neo_jsonl_end(log));
    neo_jsonl_close(log);
    read_back();
    CHECK(strstr(file, "x\"}\n{\"ok\":1}\n") != NULL);
    remove(path);
    CHECK_ERR(neo_jsonl_open(ctx, "no/such/dir/log.jsonl", 0, &log), NEO_ERR_NOT_FOUND,
              "no/such/dir");
    CHECK(log == NULL);
    CHECK_ERR(neo_jsonl_open(ctx, ".", 0, &log), NEO_ERR_IO, ".");
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}
static void json_full_disk(void) {
    FILE *f = fopen("/dev/full", "wb");
    if (!f) SKIP("no /dev/full here");
    fclose(f);
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_jsonl *log;
    REQUIRE_OK(neo_jsonl_open(ctx, "/dev/full", 1, &log));
    for (int i = 0; i < 3; i++) {
        neo_jsonl_int(log, "step", i);
        CHECK_ERR(neo_jsonl_end(log), NEO_ERR_IO, "/dev/full");
    }
    neo_jsonl_close(log);
    neo_ctx_destroy(ctx);
}

/* Plain C where there are vectors is told once by a context, and not by one that has them. */
static int warnings;
static void count_warnings(neo_log_level level, const char *message, void *user) {
    CHECK(level == NEO_LOG_WARNING && !user);
    snprintf(text, sizeof text, "%s", message);
    warnings++;
}
static void plain_c_is_told(void) {
    const int has_better = neo_isa_available(NEO_ISA_AVX2) || neo_isa_available(NEO_ISA_NEON);
    neo_ctx_desc d = {.threads = 1, .logger = {count_warnings, NULL}};
    neo_ctx *ctx;
    text[0] = 0;
    REQUIRE_OK(neo_ctx_create(&d, &ctx));
    neo_ctx_destroy(ctx);
    if (!has_better) { /* or this test was compiled without them */
        const char *says = "neo was compiled without them";
        CHECK(warnings == 0 || (warnings == 1 && strstr(text, says)));
        return;
    }
    CHECK_INT(warnings, 0);
    d.isa = NEO_ISA_SCALAR;
    REQUIRE_OK(neo_ctx_create(&d, &ctx));
    neo_ctx_destroy(ctx);
    CHECK_INT(warnings, 1);
    CHECK(strstr(text, "neo_ctx_create: computes without vector instructions, which this machine "
                       "has (") == text);
    CHECK(strstr(text, "): neo_ctx_desc.isa says so") != NULL);
}

/* A message of a caller is the logger's, with its level; without a logger it is nobody's. */
static void keep_message(neo_log_level level, const char *message, void *user) {
    snprintf((char *)user, 100, "%d %s", (int)level, message);
}
static void messages(void) {
    char kept[100] = "";
    neo_ctx_desc d = {.threads = 1, .logger = {keep_message, kept}};
    neo_ctx *ctx, *silent;
    REQUIRE_OK(neo_ctx_create(&d, &ctx));
    REQUIRE_OK(neo_ctx_create(NULL, &silent));
    neo_log(ctx, NEO_LOG_INFO, "%d of %s", 3, "four");
    CHECK(strcmp(kept, "0 3 of four") == 0);
    neo_log(ctx, NEO_LOG_WARNING, "%%");
    neo_log(silent, NEO_LOG_WARNING, "nobody hears");
    CHECK(strcmp(kept, "1 %") == 0);
    neo_ctx_destroy(ctx), neo_ctx_destroy(silent);
}

/* ---- histograms and events ---- */
static void histograms(void) {
    static neo_histogram all, part[2];
    float x[] = {0.0f,  -0.0f, 1.0f,   1.5f,  1.4999999f, -1.0f, 0x1p-28f,   0x1p-29f, -0x1p-28f,
                 3e38f, -5e3f, 1e-40f, NAN,   INFINITY,   4096,  4095.9998f, -2.0f,    0.75f};
    const int count = (int)(sizeof x / sizeof x[0]);
    CHECK(neo_histogram_limit(NEO_HISTOGRAM_SIDE) == 0x1p-28);
    CHECK(neo_histogram_limit(NEO_HISTOGRAM_SIDE - 1) == -0x1p-28);
    CHECK(neo_histogram_limit(NEO_HISTOGRAM_BUCKETS - 1) == 4096.0);
    for (int i = 1; i < NEO_HISTOGRAM_BUCKETS; i++)
        CHECK(neo_histogram_limit(i - 1) < neo_histogram_limit(i));
    for (int i = 0; i < count; i++) {
        neo_histogram h = {{0}, 0, {{0}, 0, 0, 0, 0}, {{0}, 0, 0, 0, 0}};
        const double size = fabs((double)x[i]);
        int at = 0, found = 0;
        neo_histogram_add(&h, &x[i], 1);
        neo_histogram_add(&all, &x[i], 1);
        neo_histogram_add(&part[i % 2], &x[i], 1);
        for (int k = 0; k < NEO_HISTOGRAM_BUCKETS; k++)
            if (h.bucket[k]) at = k, found++;
        CHECK(found == (size - size == 0));
        CHECK_INT(h.non_finite, !found);
        if (!found) continue;
        const int mirror = x[i] < 0 ? NEO_HISTOGRAM_BUCKETS - 1 - at : at;
        CHECK(mirror >= NEO_HISTOGRAM_SIDE);
        CHECK(mirror == NEO_HISTOGRAM_SIDE || size >= neo_histogram_limit(mirror - 1));
        CHECK(mirror == NEO_HISTOGRAM_BUCKETS - 1 || size < neo_histogram_limit(mirror));
        CHECK(neo_exact_value(&h.sum) == (double)x[i]);
    }
    for (int k = 0; k < NEO_HISTOGRAM_BUCKETS; k++)
        CHECK_INT(all.bucket[k], part[0].bucket[k] + part[1].bucket[k]);
    CHECK_INT(all.non_finite, 2);
}
/* From here on a write that ends behind so many bytes of a file fails. */
static void files_end_at(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}
/* Writes over what calls have left below this function's frame. */
static void fill_stack(void) {
    volatile char room[1 << 15];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 'z';
}
static void events(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_events *e = NULL;
    char folder[] = "/tmp/neo_events.XXXXXX", tag[9000];
    static neo_histogram h;
    CHECK_ERR(neo_events_open(ctx, NULL, &e), NEO_ERR_ARG, "dir or events is NULL");
    CHECK_ERR(neo_events_open(ctx, "/nowhere", &e), NEO_ERR_NOT_FOUND, "/nowhere/events.out");
    CHECK_ERR(neo_events_scalar(NULL, "x", 1, 2), NEO_ERR_ARG, "events is NULL");
    REQUIRE(mkdtemp(folder));
    REQUIRE_OK(neo_events_open(ctx, folder, &e));
    const int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    CHECK_OK(neo_events_scalar(e, "x", 0, NAN));
    CHECK_OK(neo_events_histogram(e, "empty", -1, &h));
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = 0;
    CHECK_ERR(neo_events_scalar(e, tag, 1, 1), NEO_ERR_CAPACITY, "was not written");
    CHECK_ERR(neo_events_histogram(e, tag, 1, &h), NEO_ERR_CAPACITY, "was not written");
    CHECK_ERR(neo_events_histogram(e, "x", 1, NULL), NEO_ERR_ARG, "is NULL");
    CHECK_OK(neo_events_scalar(e, "x", 2, 1));
    fill_stack(); /* the path of the message is not there */
    files_end_at(20);
    CHECK_ERR(neo_events_scalar(e, "x", 3, 1), NEO_ERR_IO, folder);
    files_end_at(RLIM_INFINITY);
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs);
    neo_events_close(e);
    neo_events_close(NULL);
    CHECK_INT(neo_ctx_live(ctx, NULL, 0), 0);
    neo_ctx_destroy(ctx);
    snprintf(tag, sizeof tag, "rm -r %s", folder);
    CHECK_INT(system(tag), 0);
}

int main(void) {
    RUN(plain_c_is_told);
    RUN(messages);
    RUN(terminal_bar);
    RUN(throttled);
    RUN(plain_lines);
    RUN(odd_cases);
    RUN(json_lines);
    RUN(json_numbers_read_back);
    RUN(json_errors);
    RUN(json_full_disk);
    RUN(histograms);
    RUN(events);
    return test_end("core/log");
}
