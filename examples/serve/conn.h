/* conn.h: one connection of a server: what it reads becomes exchanges of the batch, in order, and
   answers leave as the client takes them. The loop of loop.h calls it. */
#ifndef EXAMPLE_CONN_H
#define EXAMPLE_CONN_H
#include "http.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct http_text {
    char *at;
    size_t size, capacity;
    int failed; /* there was no memory: size is not to be used */
} http_text;

static void http_append(http_text *text, const void *bytes, size_t size) {
    if (size > text->capacity - text->size) {
        size_t capacity = text->capacity < 256 ? 256 : text->capacity;
        while (capacity - text->size < size) capacity *= 2;
        char *at = realloc(text->at, capacity);
        if (!at) { text->failed = 1; return; }
        text->at = at, text->capacity = capacity;
    }
    if (size) memcpy(text->at + text->size, bytes, size);
    text->size += size;
}
static void http_print(http_text *text, const char *format, ...) {
    char line[1024];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    http_append(text, line, n < 0 ? 0 : n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

typedef struct http_conn http_conn;
struct http_conn {
    http_conn *prev, *next;  /* the longest without progress first */
    http_conn *again, *gone; /* the next in these lists of the loop */
    int64_t deadline;        /* by now - away of the loop */
    int fd;          /* -1: closed, kept while something points to it */
    int pending;     /* requests of it in the batch */
    short events;    /* that are watched, as of poll */
    char closing;    /* after the answers on their way; nothing more is read */
    char lingers;    /* closed for writing: reads to the end, or a reset could overtake an answer */
    char eof, continued, is_queued;
    char *in;        /* the first `used` bytes are taken; requests in the batch point into them */
    size_t in_size, in_capacity, used;
    http_text out;
    size_t sent;
};

typedef struct http_exchange {
    http_request request;
    const char *body;
    int status;         /* HTTP_MORE: to be answered; else the loop answers this error */
    const char *type;   /* of the answer, whose text is a part of the text of all answers */
    const char *fields; /* further lines of its head, or NULL */
    size_t text, text_size;
    int streams;        /* its head and pieces are on their way: http_stream */
    http_conn *conn;
    int64_t came_ns;
} http_exchange;

static const struct { int status; const char *reason; } http_reasons[] = {
    {200, "OK"}, {400, "Bad Request"}, {404, "Not Found"}, {405, "Method Not Allowed"},
    {408, "Request Timeout"}, {411, "Length Required"}, {413, "Content Too Large"},
    {414, "URI Too Long"}, {417, "Expectation Failed"}, {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"}, {501, "Not Implemented"}, {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"}};
enum { HTTP_STATUSES = sizeof http_reasons / sizeof http_reasons[0], HTTP_TIMES = 8 };

typedef struct http_stats { /* written by the loop, read by any thread */
    atomic_llong answers[HTTP_STATUSES];
    atomic_llong times[HTTP_TIMES + 1]; /* requests by time: up to 0.1 ms * 4^k, and the others */
    atomic_llong time_ns, batches, accepted, connections, buffer_bytes;
} http_stats;

typedef struct http_server {
    int listener, wake; /* wake: becomes readable when the loops shall end */
    http_limits limits;
    int64_t timeout_ms, wait_ms;
    int batch;       /* requests in one call of answer, at most */
    int connections; /* of one loop; further ones get 503, and are not accepted from 1/8 more on */
    size_t memory;   /* bytes of buffers of one loop */
    /* answer: sets status, type and text of the exchanges that have no status. */
    void (*answer)(void *user, http_exchange *exchanges, int count, http_text *text);
} http_server;

enum { HTTP_EVENTS = 256, HTTP_GRACE_MS = 200, HTTP_LONG_MS = 100 };
typedef struct http_loop {
    const http_server *server;
    void *user;
    http_conn list, listener, wake; /* list: the end of the ring of connections */
    http_conn *again, **again_end;  /* have bytes that were not looked at yet */
    http_conn *gone;                /* closed in this round */
    http_exchange *batch;
    int count, most;                /* of the batch; most: connections that are accepted */
    int turn;                       /* of what is ready: where the next round begins */
    int64_t now, batch_at, accept_at, stop_at; /* in ms; at 0: not set */
    int64_t away; /* ms in long answers, when nobody was listened to: they are nobody's delay */
    http_text text;
    size_t bytes; /* of buffers */
    struct { http_conn *conn; int events; } *ready;
    void *polled; /* poll: its array */
    int epoll, stops;
    char date[32];
    time_t date_of;
    http_stats stats;
} http_loop;

static int64_t http_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Watches for events, of poll; 0: for none. */
static void http_watch(http_loop *loop, http_conn *conn, int events);

static void http_unlink(http_conn *conn) {
    conn->prev->next = conn->next, conn->next->prev = conn->prev;
}
/* Begins its time anew: last in the ring, as all have the same. */
static void http_touch(http_loop *loop, http_conn *conn) {
    if (conn->next) http_unlink(conn);
    conn->prev = loop->list.prev, conn->next = &loop->list;
    conn->prev->next = conn->next->prev = conn;
    conn->deadline = loop->now - loop->away + loop->server->timeout_ms;
}
static void http_queue(http_loop *loop, http_conn *conn) {
    if (conn->is_queued) return;
    conn->is_queued = 1, conn->again = NULL;
    *loop->again_end = conn, loop->again_end = &conn->again;
}
/* Counts a buffer whose size changes. */
static void http_count(http_loop *loop, size_t from, size_t to) {
    loop->bytes = loop->bytes - from + to;
    atomic_store_explicit(&loop->stats.buffer_bytes, (long long)loop->bytes, memory_order_relaxed);
}
static void http_free_in(http_loop *loop, http_conn *conn) {
    http_count(loop, conn->in_capacity, 0);
    free(conn->in);
    conn->in = NULL, conn->in_size = conn->in_capacity = conn->used = 0;
}
static void http_free_out(http_loop *loop, http_conn *conn) {
    http_count(loop, conn->out.capacity, 0);
    free(conn->out.at);
    conn->out = (http_text){0}, conn->sent = 0;
}
static void http_close(http_loop *loop, http_conn *conn) {
    http_watch(loop, conn, 0);
    http_unlink(conn);
    close(conn->fd);
    conn->fd = -1, conn->gone = loop->gone, loop->gone = conn;
    http_free_out(loop, conn);
    if (!conn->pending) http_free_in(loop, conn);
    int left = (int)atomic_fetch_sub(&loop->stats.connections, 1) - 1;
    if (!loop->stops && !loop->accept_at && left < loop->most)
        http_watch(loop, &loop->listener, POLLIN);
}
static void http_update(http_loop *loop, http_conn *conn) {
    if (conn->fd < 0) return;
    size_t most = loop->server->limits.head + loop->server->limits.body;
    int room = conn->in_size < conn->in_capacity ||
               (!conn->pending && (conn->used || conn->in_capacity < most));
    int reads = !conn->eof && !conn->closing && !conn->out.size && !conn->is_queued && room;
    http_watch(loop, conn, (reads || conn->lingers ? POLLIN : 0) | (conn->out.size ? POLLOUT : 0));
}
/* Sends what it can. */
static void http_flush(http_loop *loop, http_conn *conn) {
    while (conn->fd >= 0 && conn->sent < conn->out.size) {
        ssize_t n = send(conn->fd, conn->out.at + conn->sent, conn->out.size - conn->sent, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) { http_close(loop, conn); return; }
        conn->sent += (size_t)n;
    }
    if (conn->fd < 0 || !conn->out.size) return;
    http_free_out(loop, conn);
    http_touch(loop, conn);
    if (conn->closing && conn->eof) http_close(loop, conn);
    else if (conn->closing) conn->lingers = 1, shutdown(conn->fd, SHUT_WR);
    else if (conn->used < conn->in_size || conn->eof) http_queue(loop, conn);
}
/* Puts an answer behind those that are on their way; streams: its body comes in chunks. */
static void http_answer(http_loop *loop, http_conn *conn, const http_exchange *e,
                        const char *text) {
    int i = 0, has_body = !http_is(e->request.method, "HEAD"), status = e->status;
    size_t before = conn->out.capacity;
    time_t t = time(NULL);
    struct tm tm;
    char length[48] = "Transfer-Encoding: chunked";
    while (i < HTTP_STATUSES - 1 && http_reasons[i].status != status) i++;
    atomic_fetch_add_explicit(&loop->stats.answers[i], 1, memory_order_relaxed);
    if (t != loop->date_of && gmtime_r(&t, &tm)) {
        strftime(loop->date, sizeof loop->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        loop->date_of = t;
    }
    if (!e->streams) snprintf(length, sizeof length, "Content-Length: %zu", e->text_size);
    http_print(&conn->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n"
               "%s\r\n%s%s\r\n", status, http_reasons[i].reason, loop->date,
               e->type, length, e->request.keep_alive ?
                   e->request.minor ? "" : "Connection: keep-alive\r\n" : "Connection: close\r\n",
               e->fields ? e->fields : "");
    if (has_body && !e->streams) http_append(&conn->out, text, e->text_size);
    http_count(loop, before, conn->out.capacity);
    if (conn->out.failed || loop->bytes > loop->server->memory) http_close(loop, conn);
}
/* http_stream: a piece of the answer of e, whose status and type are set, leaves at once as a
   chunk; size 0: the last one. 0: it cannot, as the client knows no chunks, has answers before this
   one to come, or is gone: the answer is then one text, or for nobody. */
static int http_stream(http_loop *loop, http_exchange *e, const char *piece, size_t size) {
    http_conn *conn = e->conn;
    int lost = 0;
    if (!e->streams && (!e->request.minor || conn->out.size)) return 0;
    for (const http_exchange *before = loop->batch; !e->streams && before < e; before++)
        if (before->conn == conn) return 0;
    if (conn->fd >= 0 && !e->streams) e->streams = 1, http_answer(loop, conn, e, NULL);
    if (conn->fd < 0) return 0;
    size_t before = conn->out.capacity;
    http_print(&conn->out, "%zx\r\n", size);
    http_append(&conn->out, piece, size);
    http_append(&conn->out, "\r\n", 2);
    while (size && conn->sent < conn->out.size) { /* the last one leaves as all answers do */
        ssize_t n = send(conn->fd, conn->out.at + conn->sent, conn->out.size - conn->sent, 0);
        if (n < 0 && errno == EINTR) continue;
        lost = n < 0 && errno != EAGAIN && errno != EWOULDBLOCK;
        if (n < 0) break; /* no room: with the next piece */
        conn->sent += (size_t)n;
    }
    if (size && conn->sent == conn->out.size) conn->sent = conn->out.size = 0;
    http_count(loop, before, conn->out.capacity);
    if (lost || conn->out.failed || loop->bytes > loop->server->memory) http_close(loop, conn);
    return conn->fd >= 0;
}
/* An error that no program answers, after which the connection ends. */
static void http_error_text(http_exchange *e, http_text *text) {
    int i = 0;
    while (i < HTTP_STATUSES - 1 && http_reasons[i].status != e->status) i++;
    e->type = "application/json", e->text = text->size;
    http_print(text, "{\"error\":\"%s\"}\n", http_reasons[i].reason);
    e->text_size = text->size - e->text;
}
static void http_refuse(http_loop *loop, http_conn *conn, int status) {
    http_exchange e = {.status = status};
    if (status == 503) e.fields = "Retry-After: 1\r\n";
    loop->text.size = 0;
    http_error_text(&e, &loop->text);
    conn->closing = 1;
    http_free_in(loop, conn);
    http_answer(loop, conn, &e, loop->text.at);
    http_flush(loop, conn);
    http_update(loop, conn);
}

/* Takes whole requests into the batch. */
static void http_take(http_loop *loop, http_conn *conn) {
    const http_server *s = loop->server;
    while (!conn->closing && !conn->out.size && (conn->used < conn->in_size || conn->eof)) {
        if (loop->count == s->batch) {
            if (!conn->pending) http_queue(loop, conn); /* else after the batch, that it is in */
            break;
        }
        http_exchange *e = &loop->batch[loop->count];
        const char *at = conn->in + conn->used;
        int status = conn->used < conn->in_size ?
            http_parse(at, conn->in_size - conn->used, &s->limits, &e->request) : HTTP_MORE;
        if (status == HTTP_MORE && conn->eof && conn->used == conn->in_size) {
            conn->closing = 1;
            if (!conn->pending) http_close(loop, conn);
            return;
        }
        if (status == HTTP_MORE && conn->eof) status = 400; /* half a request */
        if (status == HTTP_MORE) {
            if (e->request.expects && e->request.head && !conn->continued && !conn->pending) {
                http_append(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n", 25);
                http_count(loop, 0, conn->out.capacity);
                conn->continued = 1;
            }
            break;
        }
        e->status = status == HTTP_OK ? HTTP_MORE : status;
        e->body = at + e->request.head, e->text_size = 0, e->fields = NULL, e->streams = 0;
        e->conn = conn, e->came_ns = http_clock_ns();
        if (status == HTTP_OK && e->request.chunked)
            http_join(conn->in + conn->used + e->request.head, &e->request);
        if (status == HTTP_OK) conn->used += e->request.head + e->request.wire;
        else conn->used = conn->in_size, e->request.keep_alive = 0;
        if (loop->stops && (conn->used == conn->in_size || loop->now >= loop->stop_at))
            e->request.keep_alive = 0; /* after those that it has sent already */
        conn->closing = !e->request.keep_alive;
        conn->continued = 0, conn->pending++;
        if (loop->count++ == 0) loop->batch_at = loop->now + s->wait_ms;
    }
}

static void http_read(http_loop *loop, http_conn *conn) {
    const http_server *s = loop->server;
    size_t most = s->limits.head + s->limits.body;
    char waste[4096];
    if (conn->lingers) {
        ssize_t n = recv(conn->fd, waste, sizeof waste, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) http_close(loop, conn);
        return;
    }
    if (conn->in_size == conn->in_capacity && conn->used && !conn->pending) { /* half a request */
        memmove(conn->in, conn->in + conn->used, conn->in_size -= conn->used);
        conn->used = 0;
    }
    if (conn->in_size == conn->in_capacity) {
        size_t capacity = conn->in_capacity ? 2 * conn->in_capacity : 1024;
        if (capacity > most) capacity = most;
        if (conn->pending || capacity == conn->in_capacity) return;
        size_t bytes = loop->bytes + capacity - conn->in_capacity; /* 1/8 is for answers */
        char *in = bytes > s->memory / 8 * 7 ? NULL : realloc(conn->in, capacity);
        if (!in) { http_refuse(loop, conn, 503); return; }
        http_count(loop, conn->in_capacity, capacity);
        conn->in = in, conn->in_capacity = capacity;
    }
    ssize_t n = recv(conn->fd, conn->in + conn->in_size, conn->in_capacity - conn->in_size, 0);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        http_close(loop, conn);
        return;
    }
    if (n > 0 && conn->in_size == conn->used) http_touch(loop, conn); /* a request begins */
    if (n > 0) conn->in_size += (size_t)n;
    if (n == 0) conn->eof = 1;
    http_take(loop, conn);
    http_flush(loop, conn);
}
#endif
