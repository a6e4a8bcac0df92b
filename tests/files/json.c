/* json.c: the JSON reader and writer behind headers and manifests.
   Method: tables of texts that are and are not JSON (after RFC 8259 and the cases parsers differ
   in), decoded strings compared byte for byte, every prefix of a valid text refused, round trips
   through the writer. */
#define NEO_STATIC /* as in private.c */
#include "neo_state.h"

#include "test.h"

static neo__json json_of(char *text, size_t size) {
    neo__json j;
    memset(&j, 0, sizeof j);
    j.text = text;
    j.size = size;
    j.file = "text";
    return j;
}
/* Parses a copy in memory of exactly its size, so that a sanitizer sees any step beyond. */
static neo_status parse(const char *text, size_t size) {
    char *copy = malloc(size ? size : 1);
    memcpy(copy, text, size);
    neo__json j = json_of(copy, size);
    neo_status status = neo__json_skip(&j);
    if (status == NEO_OK) status = neo__json_end(&j);
    free(copy);
    return status;
}

static void accepts(void) {
    static const char *const good[] = {
        "{}",
        "[]",
        " [ ] ",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "10",
        "1.5",
        "-1.5e+10",
        "1E-2",
        "\"\"",
        "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"",
        "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"",
        "{\"a\":1,\"b\":[1,2,{\"c\":null}]}",
        "\t\r\n {\"a\" : [ 1 , 2 ] } ",
        "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"",
        "[[[[[[[[[[]]]]]]]]]]",
        "\"\x7F\"",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (parse(good[i], strlen(good[i])) != NEO_OK)
            FAIL("refused: %s: %s", good[i], neo_last_error());
}

static void refuses(void) {
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "+1",
        "01",
        "-",
        "-01",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "0x10",
        "1_0",
        "'a'",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud800x\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\n\"",
        "\"\t\"",
        "\"\x1F\"",
        "\"\x80\"",
        "\"\xC0\x80\"",
        "\"\xC1\xBF\"",
        "\"\xC3\"",
        "\"\xC3(\"",
        "\"\xE0\x80\x80\"",
        "\"\xED\xA0\x80\"",
        "\"\xF0\x80\x80\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "\"\xF5\x80\x80\x80\"",
        "\"\xFF\"",
        "\"\xE2\x82\"",
        "{} {}",
        "[] x",
        "1 2",
        "\xEF\xBB\xBF{}",
        "/**/1",
        "\v1",
        "\f1",
        "\"\xF0\x9F\x98\"",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        neo_status status = parse(bad[i], strlen(bad[i]));
        if (status != NEO_ERR_FORMAT) FAIL("got %s for: %s", neo_status_string(status), bad[i]);
        if (!strstr(neo_last_error(), "text: byte ")) FAIL("no place in: %s", neo_last_error());
    }
    CHECK(parse("\"a\0b\"", 5) == NEO_ERR_FORMAT);
    CHECK(parse("1\0", 2) == NEO_ERR_FORMAT);
}

static void prefixes(void) {
    const char *text =
        "{\"a\":[1,-2.5e3,true,null,\"x\\u00e9\\ud83d\\ude00\xE2\x82\xAC\"],\"b\":{\"c\":false}}";
    for (size_t n = 0; n < strlen(text); n++)
        if (parse(text, n) != NEO_ERR_FORMAT) FAIL("accepted a prefix of %zu bytes", n);
    CHECK_OK(parse(text, strlen(text)));
}

static void depth(void) {
    char text[2 * NEO__JSON_DEPTH + 4];
    for (int n = NEO__JSON_DEPTH; n <= NEO__JSON_DEPTH + 1; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        neo_status status = parse(text, 2 * (size_t)n);
        CHECK(status == (n == NEO__JSON_DEPTH ? NEO_OK : NEO_ERR_FORMAT));
    }
    char *deep = malloc(1 << 20);
    memset(deep, '[', 1 << 20);
    CHECK_ERR(parse(deep, 1 << 20), NEO_ERR_FORMAT, "too deep");
    free(deep);
}

static void strings(void) {
    static const struct {
        const char *text, *value;
    } cases[] = {
        {"\"\"", ""},
        {"\"plain\"", "plain"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00!\"", "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!"},
        {"\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"",
         "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF"},
        {"\"\xC3\xA9\\n\xC3\xA9\"", "\xC3\xA9\n\xC3\xA9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128], *value = NULL;
        snprintf(text, sizeof text, "%s", cases[i].text);
        neo__json j = json_of(text, strlen(text));
        CHECK_OK(neo__json_string(&j, &value));
        if (strcmp(value, cases[i].value) != 0) FAIL("case %zu gave '%s'", i, value);
    }
}

static void counts(void) {
    static const struct {
        const char *text;
        neo_status status;
        int64_t value;
    } cases[] = {
        {"0", NEO_OK, 0},
        {"9223372036854775807", NEO_OK, INT64_MAX},
        {"9223372036854775808", NEO_ERR_FORMAT, 0},
        {"18446744073709551616", NEO_ERR_FORMAT, 0},
        {"99999999999999999999999999", NEO_ERR_FORMAT, 0},
        {"-1", NEO_ERR_FORMAT, 0},
        {"-0", NEO_ERR_FORMAT, 0},
        {"1.0", NEO_ERR_FORMAT, 0},
        {"1e3", NEO_ERR_FORMAT, 0},
        {"00", NEO_ERR_FORMAT, 0},
        {"\"1\"", NEO_ERR_FORMAT, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        int64_t value = -7;
        snprintf(text, sizeof text, "%s", cases[i].text);
        neo__json j = json_of(text, strlen(text));
        if (neo__json_count(&j, &value) != cases[i].status) FAIL("%s", cases[i].text);
        if (cases[i].status == NEO_OK) CHECK_INT(value, cases[i].value);
    }
}

/* What the writer escapes, the reader gives back; counts and checksums are those of the bytes. */
static void writer(void) {
    char s[128], *back = NULL;
    size_t n = 0;
    for (int c = 1; c < 128; c++) s[n++] = (char)c;
    s[n] = 0;
    neo__out out;
    neo__out_begin(&out, NULL);
    neo__out_string(&out, s);
    CHECK(out.used == out.bytes && out.used > n + 2); /* still in the buffer */
    CHECK(parse(out.buffer, out.used) == NEO_OK);
    char copy[1024];
    memcpy(copy, out.buffer, out.used);
    neo__json j = json_of(copy, out.used);
    REQUIRE_OK(neo__json_string(&j, &back));
    CHECK(strcmp(back, s) == 0);

    char *big = malloc(1000000);
    for (int i = 0; i < 1000000; i++) big[i] = (char)test_random();
    neo__out_begin(&out, NULL);
    size_t at = 0;
    while (at < 1000000) { /* pieces of all sizes */
        size_t piece = test_random() % 10000;
        if (piece > 1000000 - at) piece = 1000000 - at;
        neo__out_bytes(&out, big + at, piece);
        at += piece;
    }
    CHECK_OK(neo__out_flush(&out));
    CHECK_INT(out.bytes, 1000000);
    CHECK_INT(out.crc, neo_crc32c(0, big, 1000000));
    free(big);
}

int main(void) {
    RUN(accepts);
    RUN(refuses);
    RUN(prefixes);
    RUN(depth);
    RUN(strings);
    RUN(counts);
    RUN(writer);
    return test_end("files/json");
}
