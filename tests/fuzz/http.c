/* http.c: any bytes through the parser of requests, as they come on a connection: one request after
   another. What is whole stays so without the bytes behind it and is not whole with one byte less;
   any beginning of the bytes is unfinished, or has the result of all of them. */
#include "../../examples/serve/http.h"

#define HOST "Host: a\r\n"
static const fuzz_seed http_seeds[] = {
    FUZZ_TEXT("POST /predict?a=1 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}"),
    FUZZ_TEXT("GET /metrics HTTP/1.0\r\nConnection: Keep-Alive, close\r\n\r\n"),
    FUZZ_TEXT("\r\nGET / HTTP/1.1\r\n" HOST "\r\nGET http://a/b HTTP/1.1\r\n" HOST "\r\n"),
    FUZZ_TEXT("POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"),
    FUZZ_TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    FUZZ_TEXT("PUT * HTTP/1.1\r\n" HOST "content-length:0 \r\nX-\xff: \t\x80 \r\n\r\n"),
};

static int is_status(int status) {
    static const int all[] = {HTTP_MORE, HTTP_OK, 400, 404, 411, 413, 414, 417, 431, 501, 505};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] == status) return 1;
    return 0;
}
static void http_within(http_word word, const char *data, size_t size) {
    if (word.size) FUZZ_CHECK(word.at >= data && word.at + word.size <= data + size);
}

static int http_input(const uint8_t *bytes, size_t size) {
    const http_limits limits = {128, 64};
    const char *data = (const char *)bytes;
    http_request r, part;
    int status = HTTP_OK;
    for (size_t at = 0; at < size && status == HTTP_OK; at += r.head + r.wire) {
        data = (const char *)bytes + at;
        size_t left = size - at;
        status = http_parse(data, left, &limits, &r);
        FUZZ_CHECK(is_status(status));
        for (size_t n = 0; n < left; n += n < 16 ? 1 : n / 8) {
            int early = http_parse(data, n, &limits, &part);
            FUZZ_CHECK(early == HTTP_MORE || early == status);
        }
        if (status != HTTP_OK) break;
        FUZZ_CHECK(r.head >= 16 && r.head <= limits.head && r.body <= limits.body);
        FUZZ_CHECK(r.wire <= limits.body && r.head + r.wire <= left);
        FUZZ_CHECK(memcmp(data + r.head - 4, "\r\n\r\n", 4) == 0);
        http_within(r.method, data, r.head), http_within(r.path, data, r.head);
        FUZZ_CHECK(r.method.size > 0 && r.minor >= 0 && r.minor <= 9);
        FUZZ_CHECK(http_parse(data, r.head + r.wire, &limits, &part) == HTTP_OK);
        FUZZ_CHECK(part.head == r.head && part.body == r.body && part.wire == r.wire);
        FUZZ_CHECK(http_parse(data, r.head + r.wire - 1, &limits, &part) == HTTP_MORE);
        FUZZ_CHECK(part.head == (r.wire ? r.head : 0));
        if (r.chunked) {
            char body[64];
            memcpy(body, data + r.head, r.wire);
            FUZZ_CHECK(r.body < r.wire);
            http_join(body, &r);
        } else FUZZ_CHECK(r.body == r.wire);
    }
    return 0;
}
