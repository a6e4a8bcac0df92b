/* http.c: requests and what the parser of the server makes of them: each whole, and cut at every
   byte, where it is not whole yet or has its error already. */
#include "test.h"
#include "../../examples/serve/http.h"

static const http_limits limits = {200, 64};
#define HOST "Host: a\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: Chunked\r\n\r\n"

static const struct { int status; const char *text; } cases[] = {
    {200, "GET / HTTP/1.1\r\n" HOST "\r\n"},
    {200, "GET / HTTP/1.0\r\n\r\n"},
    {200, "\r\n\r\nGET /a?b HTTP/1.1\r\nHOST:\r\nX:\t \r\n\r\n"},
    {200, "GET http://a:80/b HTTP/1.1\r\n" HOST "\r\n"},
    {200, POST "Content-Length: 2\r\n\r\n{}"},
    {200, POST "Content-Length: 0\r\nExpect: 100-Continue\r\n\r\n"},
    {200, "GET / HTTP/1.9\r\n" HOST "A: \xc3\xa9~ \r\n\r\n"},
    {400, "\x16\x03\x01\x02"},                                  /* TLS */
    {200, CHUNKED "0\r\n\r\n"},
    {200, CHUNKED "2\r\n{}\r\n00A;a=\"b\"\r\n\r\n0\r\n\r\n123\r\n0 \r\nX: a\r\nY:\r\n\r\n"},
    {400, " / HTTP/1.1\r\n" HOST "\r\n"},
    {400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
    {400, "GET / \r\n\r\n"},
    {400, "GET /\r\n"},                                         /* HTTP/0.9 */
    {400, "GET / HTTP/1.1\n" HOST "\r\n"},
    {400, "GET / HTTP/1.x\r\n" HOST "\r\n"},
    {400, "GET /\x01 HTTP/1.1\r\n" HOST "\r\n"},
    {400, "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"},
    {400, "GET / HTTP/1.1\r\n\r\n"},                            /* no host, two hosts */
    {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
    {400, "GET / HTTP/1.0\r\n" HOST HOST "\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n"},      /* folded */
    {400, "GET / HTTP/1.1\r\n" HOST "X: a\x01\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST "X: a\n\r\n"},
    {400, "GET / HTTP/1.1\r\n" HOST "\rX: a\r\n\r\n"},
    {400, POST "Content-Length: \r\n\r\n"},
    {400, POST "Content-Length: +1\r\n\r\na"},
    {400, POST "Content-Length: 1, 1\r\n\r\na"},
    {400, POST "Content-Length: 0x1\r\n\r\na"},
    {400, POST "Content-Length: 18446744073709551617\r\n\r\na"},
    {400, POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na"},
    {400, POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na"},
    {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {400, CHUNKED "\r\n"},
    {400, CHUNKED "-1\r\n"},
    {400, CHUNKED "0x1\r\n"},
    {400, CHUNKED "2\r\n{}}\r\n"},
    {400, CHUNKED "2\n"},
    {400, CHUNKED "0\r\nX\r\n\r\n"},
    {404, "GET http://example HTTP/1.1\r\n" HOST "\r\n"},
    {411, POST "\r\n"},
    {411, "PUT / HTTP/1.1\r\n" HOST "\r\n"},
    {413, POST "Content-Length: 65\r\n\r\n"},
    {413, POST "Content-Length: 999999999999999999\r\n\r\n"},
    {413, CHUNKED "40\r\n"},
    {413, CHUNKED "fffffffffffffffff\r\n"},
    {413, CHUNKED "1\r\na\r\n0\r\nX: 234567890123456789012345678901234567890123456789012345"},
    {417, POST "Content-Length: 1\r\nExpect: 200-ok\r\n\r\n"},
    {501, POST "Transfer-Encoding: gzip\r\n\r\n"},
    {501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n"},
    {501, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
};

static void statuses(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].text;
        size_t size = strlen(text);
        http_request r;
        int status = http_parse(text, size, &limits, &r), was = HTTP_MORE;
        if (status != cases[i].status) FAIL("%zu: %d, not %d", i, status, cases[i].status);
        for (size_t n = 0; n <= size; n++) {
            char *cut = malloc(n + 1); /* a checker sees a step beyond it */
            REQUIRE(cut != NULL);
            memcpy(cut, text, n);
            int early = http_parse(cut, n, &limits, &r);
            if (early != was && was != HTTP_MORE) FAIL("%zu: %d, then %d", i, was, early);
            if (early != HTTP_MORE && early != status) FAIL("%zu: %d at %zu", i, early, n);
            if (n < size && early == HTTP_OK) FAIL("%zu: whole at %zu", i, n);
            was = early;
            free(cut);
        }
    }
}

static void bodies_in_chunks(void) {
    char text[] = CHUNKED "2\r\n{\"\r\n003;x\r\na\":\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nGET";
    char many[9000] = CHUNKED;
    http_request r;
    size_t head = strlen(CHUNKED);
    CHECK_INT(http_parse(text, sizeof text - 1, &limits, &r), HTTP_OK);
    CHECK(r.head == head && r.body == 15 && r.wire == sizeof text - 1 - head - 3);
    http_join(text + r.head, &r);
    CHECK(memcmp(text + r.head, "{\"a\":0123456789", 15) == 0);
    for (int i = 0; i < 1100; i++) memcpy(many + head + 6 * i, "1\r\na\r\n", 6);
    const http_limits wide = {200, 8000};
    CHECK_INT(http_parse(many, head + 6 * 1024, &wide, &r), HTTP_MORE);
    CHECK_INT(http_parse(many, head + 6 * 1025, &wide, &r), 413);
    memcpy(many + head + 6 * 1024, "0\r\n\r\n", 5);
    CHECK_INT(http_parse(many, head + 6 * 1024 + 5, &wide, &r), HTTP_OK);
}

static void limits_of_length(void) {
    char text[600];
    http_request r;
    for (int n = 150; n <= 400; n += 50) { /* a long path, a long field */
        snprintf(text, sizeof text, "GET /%0*d HTTP/1.1\r\n" HOST "\r\n", n, 0);
        CHECK_INT(http_parse(text, strlen(text), &limits, &r), n == 150 ? 200 : 414);
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST "X: %0*d\r\n\r\n", n, 0);
        CHECK_INT(http_parse(text, strlen(text), &limits, &r), n == 150 ? 200 : 431);
    }
    /* the head may have exactly as many bytes as its limit */
    for (int more = 0; more < 2; more++) {
        int n = snprintf(text, sizeof text, "GET /");
        for (; n < 200 + more - 22; n++) text[n] = 'a';
        snprintf(text + n, sizeof text - (size_t)n, " HTTP/1.1\r\n" HOST "\r\n");
        CHECK_INT(strlen(text), 200 + more);
        CHECK_INT(http_parse(text, strlen(text), &limits, &r), more ? 431 : 200);
    }
    memset(text, 'A', sizeof text);
    CHECK_INT(http_parse(text, 33, &limits, &r), 400); /* no method is so long */
}

static void requests(void) {
    const char *text = "\r\nPOST http://h/a/b?c HTTP/1.1\r\nhost: h\r\nContent-length:\t3 \r\n"
                       "Expect: 100-continue\r\n\r\nabcGET / HTTP/1.1\r\n" HOST "\r\n";
    http_request r;
    size_t head = (size_t)(strstr(text, "abc") - text), next = head + 3;
    CHECK_INT(http_parse(text, strlen(text), &limits, &r), 200);
    CHECK(http_is(r.method, "POST") && http_is(r.path, "/a/b") && r.keep_alive && r.expects);
    CHECK_INT(r.head, head);
    CHECK_INT(r.body, 3);
    CHECK_INT(http_parse(text, head + 2, &limits, &r), HTTP_MORE);
    CHECK_INT(r.head, head); /* its head is whole */
    CHECK_INT(http_parse(text, head - 1, &limits, &r), HTTP_MORE);
    CHECK_INT(r.head, 0);
    CHECK_INT(http_parse(text + next, strlen(text) - next, &limits, &r), 200);
    CHECK(http_is(r.method, "GET") && http_is(r.path, "/") && !r.expects);
}

static void keep_alive(void) {
    static const struct { int minor, keeps; const char *value; } rows[] = {
        {1, 1, "x"}, {1, 0, "close"}, {1, 0, "a , Close"}, {1, 1, "closed"}, {0, 0, "x"},
        {0, 1, "Keep-Alive"}, {0, 0, "keep-alive, close"}, {1, 1, ",,"}};
    char text[200];
    http_request r;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "GET / HTTP/1.%d\r\n" HOST "Connection: %s\r\n\r\n",
                 rows[i].minor, rows[i].value);
        CHECK_INT(http_parse(text, strlen(text), &limits, &r), 200);
        if (r.keep_alive != rows[i].keeps) FAIL("%s: %d", rows[i].value, r.keep_alive);
    }
}

int main(void) {
    RUN(statuses);
    RUN(bodies_in_chunks);
    RUN(limits_of_length);
    RUN(requests);
    RUN(keep_alive);
    return test_end("programs/http");
}
