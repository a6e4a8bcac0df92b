/* http.h: requests of HTTP/1.1 in a buffer, after RFC 9110 and 9112.

   http_parse is a function of bytes alone: the same bytes give the same request, however they came.
   What is wrong is known at the first byte that is, with a status of its own. Bodies have a
   Content-Length or come in chunks, whose framing counts towards the limit of a body. */
#ifndef EXAMPLE_HTTP_H
#define EXAMPLE_HTTP_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HTTP_MORE = 0, HTTP_OK = 200 }; /* of http_parse: not whole yet; whole */
enum { HTTP_CHUNKS = 1024 };           /* of a body, at most: all are looked at when more comes */

typedef struct http_limits {
    size_t head, body; /* bytes of a request: up to its empty line, which counts; after it */
} http_limits;

typedef struct http_word { /* views of the buffer: no 0 at the end */
    const char *at;
    size_t size;
} http_word;

typedef struct http_request {
    http_word method, path; /* path: from its first / to the ?, not decoded */
    size_t head, body;      /* bytes; head 0: it is not whole yet */
    size_t wire;            /* bytes that the body takes: more than it has, if it is in chunks */
    int chunked;            /* the body is in chunks: http_join */
    int minor;              /* of HTTP/1.minor */
    int keep_alive;         /* more requests may follow on the connection */
    int expects;            /* waits for 100 Continue before it sends the body */
} http_request;

static int http_is(http_word word, const char *text) {
    return word.size == strlen(text) && memcmp(word.at, text, word.size) == 0;
}
static int http_lower(char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
/* text is in lower case. */
static int http_is_name(http_word word, const char *text) {
    if (word.size != strlen(text)) return 0;
    for (size_t i = 0; i < word.size; i++)
        if (http_lower(word.at[i]) != text[i]) return 0;
    return 1;
}
/* Whether a list between commas has this word. */
static int http_lists(http_word list, const char *text) {
    while (list.size > 0) {
        const char *comma = (const char *)memchr(list.at, ',', list.size);
        http_word word = {list.at, comma ? (size_t)(comma - list.at) : list.size};
        list.at += word.size + (comma != NULL), list.size -= word.size + (comma != NULL);
        while (word.size && (*word.at == ' ' || *word.at == '\t')) word.at++, word.size--;
        while (word.size && strchr(" \t", word.at[word.size - 1])) word.size--;
        if (http_is_name(word, text)) return 1;
    }
    return 0;
}

/* Characters of methods and names of fields; of targets; of values of fields. */
static int http_token(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}
static int http_target(unsigned char c) { return c > ' ' && c < 127; }
static int http_value(unsigned char c) { return c == '\t' || (c >= ' ' && c != 127); }

typedef struct http_cursor {
    const char *at, *end;
    int more; /* the bytes ended: no error yet */
} http_cursor;

static http_word http_span(http_cursor *c, int (*takes)(unsigned char)) {
    http_word word = {c->at, 0};
    while (c->at < c->end && takes((unsigned char)*c->at)) c->at++;
    word.size = (size_t)(c->at - word.at);
    c->more = c->at == c->end;
    return word;
}
/* Whether the text comes next, as far as there are bytes. */
static int http_next(http_cursor *c, const char *text) {
    for (; *text; text++, c->at++) {
        if ((c->more = c->at == c->end)) return 0;
        if (*c->at != *text) return 0;
    }
    return 1;
}

typedef struct http_fields {
    int hosts, lengths, codings, is_chunked, expects, other_expectation, closes, keeps;
    uint64_t length;
} http_fields;

static int http_field(http_fields *f, http_word name, http_word value) {
    if (http_is_name(name, "host")) f->hosts++;
    if (http_is_name(name, "transfer-encoding"))
        f->codings++, f->is_chunked = http_is_name(value, "chunked");
    if (http_is_name(name, "connection"))
        f->closes |= http_lists(value, "close"), f->keeps |= http_lists(value, "keep-alive");
    if (http_is_name(name, "expect"))
        *(http_is_name(value, "100-continue") ? &f->expects : &f->other_expectation) = 1;
    if (http_is_name(name, "content-length")) {
        f->lengths++;
        if (value.size < 1 || value.size > 18) return 400;
        for (size_t i = 0; i < value.size; i++) {
            if (value.at[i] < '0' || value.at[i] > '9') return 400;
            f->length = f->length * 10 + (uint64_t)(value.at[i] - '0');
        }
    }
    return HTTP_OK;
}

/* The line `POST /predict?x HTTP/1.1`. */
static int http_request_line(http_cursor *c, http_request *r) {
    r->method = http_span(c, http_token);
    if (c->more && r->method.size <= 32) return HTTP_MORE;
    if (r->method.size < 1 || r->method.size > 32 || !http_next(c, " ")) return 400;
    r->path = http_span(c, http_target);
    if (c->more) return HTTP_MORE;
    if (r->path.size < 1 || !http_next(c, " ")) return 400;
    if (!http_next(c, "HTTP/")) return c->more ? HTTP_MORE : 400;
    if (!http_next(c, "1.")) return c->more ? HTTP_MORE : 505;
    if ((c->more = c->at == c->end)) return HTTP_MORE;
    if (*c->at < '0' || *c->at > '9') return 400;
    r->minor = *c->at++ - '0';
    if (!http_next(c, "\r\n")) return c->more ? HTTP_MORE : 400;

    if (*r->path.at != '/' && r->path.size > 7 && memcmp(r->path.at, "http://", 7) == 0) {
        const char *slash = (const char *)memchr(r->path.at + 7, '/', r->path.size - 7);
        if (!slash) return 404;
        r->path.size -= (size_t)(slash - r->path.at), r->path.at = slash;
    }
    const char *query = (const char *)memchr(r->path.at, '?', r->path.size);
    if (query) r->path.size = (size_t)(query - r->path.at);
    return HTTP_OK;
}
/* Lines `Name: value` up to the empty one. */
static int http_fields_of(http_cursor *c, http_fields *f) {
    while (!http_next(c, "\r\n")) {
        if (c->more) return HTTP_MORE;
        if (c->at[-1] == '\r') return 400;
        http_word name = http_span(c, http_token);
        if (c->more) return HTTP_MORE;
        if (name.size < 1 || !http_next(c, ":")) return 400;
        http_word value = http_span(c, http_value);
        if (c->more) return HTTP_MORE;
        if (!http_next(c, "\r\n")) return c->more ? HTTP_MORE : 400;
        while (value.size && (*value.at == ' ' || *value.at == '\t')) value.at++, value.size--;
        while (value.size && strchr(" \t", value.at[value.size - 1])) value.size--;
        int status = http_field(f, name, value);
        if (status != HTTP_OK) return status;
    }
    return HTTP_OK;
}

/* The line before a chunk: its bytes, and what nobody asked for. */
static int http_chunk_line(http_cursor *c, size_t *bytes) {
    static const char hex[] = "0123456789abcdef";
    int digits = 0;
    for (*bytes = 0; (c->more = c->at == c->end) == 0; c->at++, digits++) {
        const char *digit = *c->at ? strchr(hex, http_lower(*c->at)) : NULL;
        if (!digit) break;
        if (digits == 16 || *bytes > SIZE_MAX >> 4) return 413;
        *bytes = *bytes << 4 | (size_t)(digit - hex);
    }
    if (c->more) return HTTP_MORE;
    if (!digits || !strchr("\r; \t", *c->at)) return 400;
    http_span(c, http_value);
    if (c->more) return HTTP_MORE;
    return http_next(c, "\r\n") ? HTTP_OK : c->more ? HTTP_MORE : 400;
}
/* A body in chunks, with the fields behind it, which say nothing. */
static int http_chunks(const char *data, size_t size, const http_limits *limits, http_request *r) {
    size_t most = r->head + limits->body, seen = size < most ? size : most, bytes;
    http_cursor c = {data + r->head, data + seen, 0};
    http_fields fields = {0};
    int status = HTTP_OK;
    for (int chunks = 0; status == HTTP_OK; chunks++) {
        status = http_chunk_line(&c, &bytes);
        if (status == HTTP_OK && bytes == 0) {
            status = http_fields_of(&c, &fields);
            r->wire = (size_t)(c.at - data) - r->head;
            break;
        }
        if (status != HTTP_OK) break;
        if (chunks == HTTP_CHUNKS || bytes > most - (size_t)(c.at - data)) return 413;
        r->body += bytes;
        if (bytes > (size_t)(c.end - c.at)) { status = HTTP_MORE; break; }
        c.at += bytes;
        if (!http_next(&c, "\r\n")) status = c.more ? HTTP_MORE : 400;
    }
    return status == HTTP_MORE && seen == most ? 413 : status;
}
/* http_join: the data of a whole body in chunks, moved together at its beginning. */
static void http_join(char *body, const http_request *r) {
    http_cursor c = {body, body + r->wire, 0};
    size_t bytes;
    for (char *to = body; http_chunk_line(&c, &bytes) == HTTP_OK && bytes; to += bytes) {
        memmove(to, c.at, bytes);
        c.at += bytes + 2;
    }
}

/* http_parse: the first request in a buffer. HTTP_OK: it is whole, in head + wire bytes from data.
   HTTP_MORE: it is not; if head is not 0, its head is, and its body begins there. Else the status
   of an error, after which the connection can only be closed. The request points into data. */
static int http_parse(const char *data, size_t size, const http_limits *limits, http_request *r) {
    size_t seen = size < limits->head ? size : limits->head;
    http_cursor c = {data, data + seen, 0};
    http_fields f = {0};
    memset(r, 0, sizeof *r);
    while (c.end - c.at >= 2 && memcmp(c.at, "\r\n", 2) == 0) c.at += 2; /* of the one before */
    if (c.end - c.at == 1 && *c.at == '\r') c.at++; /* of such a line, or an error at the next */
    int status = http_request_line(&c, r), in_line = status == HTTP_MORE;
    if (status == HTTP_OK) status = http_fields_of(&c, &f);
    if (status == HTTP_MORE && seen == limits->head) return in_line ? 414 : 431;
    if (status != HTTP_OK) return status;

    if (r->minor >= 1 ? f.hosts != 1 : f.hosts > 1) return 400;
    if (f.lengths > 1 || (f.lengths && f.codings)) return 400;
    if (f.codings && r->minor < 1) return 400;
    if (f.codings && (f.codings > 1 || !f.is_chunked)) return 501;
    if (f.other_expectation) return 417;
    int has_body = http_is(r->method, "POST") || http_is(r->method, "PUT");
    if (has_body && !f.lengths && !f.codings) return 411;
    if (f.length > limits->body) return 413;
    r->head = (size_t)(c.at - data);
    r->keep_alive = !f.closes && (r->minor >= 1 || f.keeps);
    r->expects = f.expects && r->minor >= 1;
    if ((r->chunked = f.codings) != 0) return http_chunks(data, size, limits, r);
    r->body = r->wire = (size_t)f.length;
    return size - r->head >= r->body ? HTTP_OK : HTTP_MORE;
}
#endif
