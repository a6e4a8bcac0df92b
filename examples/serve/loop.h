/* loop.h: connections of HTTP/1.1 on one thread, without a lock: several threads run a loop each
   and share the listening socket.

   Requests that are there together are answered together: a batch is run when it is full or `wait`
   milliseconds after its first request came, and answers leave in the order of the requests.
   Memory is bounded by `connections` and `memory`; a connection without bytes has no buffer. Each
   connection has `timeout` for a whole request, for taking its answer and between requests, besides
   what long answers to others take. */
#ifndef EXAMPLE_LOOP_H
#define EXAMPLE_LOOP_H
#include "conn.h"
#if defined(__linux__) && !defined(HTTP_POLL)
#include <sys/epoll.h>
#endif

/* ---- what is ready: epoll, or where there is none poll over all connections ---- */

#if defined(__linux__) && !defined(HTTP_POLL)
static int http_watch_begin(http_loop *loop) { return loop->epoll = epoll_create1(EPOLL_CLOEXEC); }
static void http_watch(http_loop *loop, http_conn *conn, int events) {
    struct epoll_event e = {.events = (events & POLLIN ? EPOLLIN : 0u) |
                                      (events & POLLOUT ? EPOLLOUT : 0u), .data.ptr = conn};
    if (events == conn->events) return;
    int op = !events ? EPOLL_CTL_DEL : conn->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    epoll_ctl(loop->epoll, op, conn->fd, &e);
    conn->events = (short)events;
}
static int http_ready(http_loop *loop, int timeout_ms) {
    struct epoll_event events[HTTP_EVENTS];
    int n = epoll_wait(loop->epoll, events, HTTP_EVENTS, timeout_ms);
    for (int i = 0; i < n; i++) {
        loop->ready[i].conn = events[i].data.ptr;
        loop->ready[i].events = (events[i].events & EPOLLOUT ? POLLOUT : 0) |
                                (events[i].events & ~(unsigned)EPOLLOUT ? POLLIN : 0);
    }
    return n;
}
#else
static int http_watch_begin(http_loop *loop) {
    loop->polled = calloc((size_t)loop->most + 2, sizeof(struct pollfd));
    return loop->polled ? 0 : -1;
}
static void http_watch(http_loop *loop, http_conn *conn, int events) {
    (void)loop, conn->events = (short)events;
}
static int http_ready(http_loop *loop, int timeout_ms) {
    struct pollfd *fds = loop->polled;
    http_conn *conn;
    int n = 0, ready = 0;
    fds[n++] = (struct pollfd){loop->listener.events ? loop->listener.fd : -1, POLLIN, 0};
    fds[n++] = (struct pollfd){loop->wake.events ? loop->wake.fd : -1, POLLIN, 0};
    for (conn = loop->list.next; conn != &loop->list; conn = conn->next)
        fds[n++] = (struct pollfd){conn->events ? conn->fd : -1, conn->events, 0};
    if (poll(fds, (nfds_t)n, timeout_ms) <= 0) return 0;
    conn = &loop->listener;
    for (int i = 0; i < n; i++) {
        if (i == 1) conn = &loop->wake;
        if (i >= 2) conn = i == 2 ? loop->list.next : conn->next;
        if (!fds[i].revents) continue;
        loop->ready[ready].conn = conn;
        loop->ready[ready++].events = (fds[i].revents & POLLOUT) |
                                      (fds[i].revents & ~POLLOUT ? POLLIN : 0);
    }
    return ready;
}
#endif

/* ---- the loop ---- */

/* Answers the batch. */
static void http_run_batch(http_loop *loop) {
    int64_t ns, began = loop->now;
    loop->text.size = 0, loop->text.failed = 0;
    loop->server->answer(loop->user, loop->batch, loop->count, &loop->text);
    atomic_fetch_add_explicit(&loop->stats.batches, 1, memory_order_relaxed);
    ns = http_clock_ns(), loop->now = ns / 1000000;
    if (loop->now - began >= HTTP_LONG_MS) loop->away += loop->now - began;
    for (int i = 0; i < loop->count; i++) {
        http_exchange *e = &loop->batch[i];
        http_conn *conn = e->conn;
        int64_t took = ns - e->came_ns, most = 100000, k = 0;
        if (!e->text_size && !e->streams) http_error_text(e, &loop->text);
        if (loop->text.failed && conn->fd >= 0) http_close(loop, conn);
        if (conn->fd >= 0 && !e->streams) http_answer(loop, conn, e, loop->text.at + e->text);
        while (k < HTTP_TIMES && took > most) k++, most *= 4;
        atomic_fetch_add_explicit(&loop->stats.times[k], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&loop->stats.time_ns, took, memory_order_relaxed);
        if (--conn->pending > 0) continue;
        if (conn->fd < 0) { /* lost meanwhile */
            http_free_in(loop, conn);
            continue;
        }
        if (conn->used == conn->in_size || conn->closing) http_free_in(loop, conn);
        http_flush(loop, conn);
        http_update(loop, conn);
    }
    loop->count = 0;
}

static void http_accept(http_loop *loop) {
    const http_server *s = loop->server;
    for (int i = 0; i < 64 && atomic_load(&loop->stats.connections) < loop->most; i++) {
        int fd = accept(loop->listener.fd, NULL, NULL), on = 1;
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || loop->stops)) return;
        http_conn *conn = fd < 0 ? NULL : calloc(1, sizeof *conn);
        if (!conn) { /* no descriptors, no memory: later again */
            if (fd >= 0) close(fd);
            http_watch(loop, &loop->listener, 0);
            loop->accept_at = loop->now + 100;
            return;
        }
        fcntl(fd, F_SETFL, O_NONBLOCK), fcntl(fd, F_SETFD, FD_CLOEXEC);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        conn->fd = fd;
        http_touch(loop, conn);
        atomic_fetch_add(&loop->stats.accepted, 1);
        if (atomic_fetch_add(&loop->stats.connections, 1) >= s->connections)
            http_refuse(loop, conn, 503);
        else http_update(loop, conn);
    }
    if (atomic_load(&loop->stats.connections) >= loop->most)
        http_watch(loop, &loop->listener, 0); /* until one closes */
}

static void http_expire(http_loop *loop) {
    const int64_t now = loop->now - loop->away;
    for (http_conn *conn; (conn = loop->list.next) != &loop->list && conn->deadline <= now;) {
        if (conn->pending || conn->is_queued) http_touch(loop, conn);
        else if (conn->in_size && !conn->out.size) http_refuse(loop, conn, 408);
        else http_close(loop, conn);
    }
}
/* Begins to end: what has come to the socket is taken; requests that are on their way have a
   moment to come, and their answers say that the connection closes. */
static void http_stop(http_loop *loop) {
    http_watch(loop, &loop->wake, 0);
    loop->stops = 1, loop->stop_at = loop->now + HTTP_GRACE_MS;
    http_accept(loop);
    shutdown(loop->listener.fd, SHUT_RDWR);
    http_watch(loop, &loop->listener, 0);
}
static void http_close_idle(http_loop *loop) {
    for (http_conn *conn = loop->list.next, *next; conn != &loop->list; conn = next) {
        next = conn->next;
        if (!conn->pending && !conn->in_size && !conn->out.size && !conn->lingers)
            http_close(loop, conn);
    }
}
static int http_wait_ms(const http_loop *loop) {
    int64_t until = INT64_MAX;
    if (loop->list.next != &loop->list) until = loop->list.next->deadline + loop->away;
    if (loop->again) return 0;
    if (loop->count && loop->batch_at < until) until = loop->batch_at;
    if (loop->accept_at && loop->accept_at < until) until = loop->accept_at;
    if (loop->stops && loop->stop_at > loop->now && loop->stop_at < until) until = loop->stop_at;
    if (until == INT64_MAX) return -1;
    return until <= loop->now ? 0 : (int)(until - loop->now);
}
static void http_free_gone(http_loop *loop) {
    http_conn **at = &loop->gone;
    while (*at) {
        http_conn *conn = *at;
        if (conn->pending || conn->is_queued) { at = &conn->gone; continue; }
        *at = conn->gone;
        free(conn);
    }
}

static void http_round(http_loop *loop) {
    int n = http_ready(loop, http_wait_ms(loop));
    http_conn *again = loop->again;
    loop->now = http_clock_ns() / 1000000;
    loop->again = NULL, loop->again_end = &loop->again;
    while (again) {
        http_conn *conn = again;
        again = conn->again, conn->is_queued = 0;
        if (conn->fd < 0) continue;
        http_take(loop, conn);
        http_flush(loop, conn);
        http_update(loop, conn);
    }
    int begin = loop->turn; /* what does not fit into the batch stays ready, and comes first then */
    for (int i = 0; i < n && loop->count < loop->server->batch; i++) {
        http_conn *conn = loop->ready[(begin + i) % n].conn;
        int events = loop->ready[(begin + i) % n].events;
        loop->turn = (begin + i + 1) % n;
        if (conn == &loop->wake) http_stop(loop);
        else if (conn == &loop->listener) http_accept(loop);
        if (conn == &loop->wake || conn == &loop->listener || conn->fd < 0) continue;
        if (events & POLLOUT) http_flush(loop, conn);
        if (conn->fd >= 0 && (events & POLLIN) && (conn->events & POLLIN)) http_read(loop, conn);
        http_update(loop, conn);
    }
    if (loop->accept_at && loop->now >= loop->accept_at && !loop->stops) {
        loop->accept_at = 0;
        http_watch(loop, &loop->listener, POLLIN);
    }
    if (loop->count && (loop->count == loop->server->batch || loop->now >= loop->batch_at))
        http_run_batch(loop);
    http_expire(loop);
    if (loop->stops && loop->now >= loop->stop_at) http_close_idle(loop);
    http_free_gone(loop);
}

/* http_loop_run: until `wake` is readable and the last answer is taken. 0: it could not begin. */
static int http_loop_run(http_loop *loop, const http_server *server, void *user) {
    loop->server = server, loop->user = user, loop->now = http_clock_ns() / 1000000;
    loop->most = server->connections + server->connections / 8 + 1;
    loop->list.next = loop->list.prev = &loop->list;
    loop->again_end = &loop->again;
    loop->batch = calloc((size_t)server->batch, sizeof *loop->batch);
    loop->ready = calloc((size_t)loop->most + HTTP_EVENTS, sizeof *loop->ready);
    int begun = loop->batch && loop->ready && http_watch_begin(loop) >= 0;
    loop->listener.fd = server->listener, loop->wake.fd = server->wake;
    if (begun) http_watch(loop, &loop->listener, POLLIN), http_watch(loop, &loop->wake, POLLIN);
    while (begun && (!loop->stops || loop->list.next != &loop->list)) http_round(loop);
    if (loop->epoll > 0) close(loop->epoll);
    free(loop->text.at), free(loop->polled), free(loop->ready), free(loop->batch);
    return begun;
}
#endif
