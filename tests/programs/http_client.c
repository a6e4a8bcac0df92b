/* http_client.c: clients for the test of the server, on 127.0.0.1.

     http_client PORT send [half|gone] standard input as it comes, then, with half, the end of
                                       writing; prints what the server sends until it closes. With
                                       gone it does not stay for that
     http_client PORT load N CONNECTIONS DEPTH FILE
                                       N requests of /predict, DEPTH at a time on each connection
                                       that stays open. FILE has lines of a body and the answers
                                       that are right, between tabs; how many there were of each
                                       is printed. Ends early when the server is gone.
     http_client PORT hold N BYTES REFUSED
                                       N connections with the first BYTES of a request each. When
                                       REFUSED of them have an answer, and standard input a byte,
                                       the rest of it on all; prints the statuses that came
     http_client PORT chaos N          N times on one of 32 connections, at random: a piece of
                                       whole, half and broken requests, a read, an end of writing,
                                       an end, a reset
   It fails where a request is lost (the connection ends without its answer, but for what a client
   wrote behind an answer that closes), or an answer is wrong. */
#include "../../neo.h" /* before system headers: it asks for POSIX */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SILENCE_MS = 300000, MAX_ROWS = 4096, MAX_RIGHT = 4, MAX_DEPTH = 64, BUFFER = 1 << 16 };

static int port;
static int fail(const char *what) {
    fprintf(stderr, "http_client: %s: %s\n", what, strerror(errno));
    exit(2);
}
static int dial(void) { /* -1: refused */
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0) fail("socket");
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int send_input(const char *then) {
    struct pollfd p[2] = {{0, POLLIN, 0}, {dial(), POLLIN, 0}};
    static char text[BUFFER];
    if (p[1].fd < 0) return fail("connect");
    for (;;) {
        if (poll(p, 2, SILENCE_MS) <= 0) return fail("silence");
        if (p[1].revents) {
            ssize_t n = recv(p[1].fd, text, sizeof text, 0);
            if (n <= 0) return n < 0; /* 1: a reset */
            fwrite(text, 1, (size_t)n, stdout), fflush(stdout);
        }
        if (p[0].revents) {
            ssize_t n = read(0, text, sizeof text);
            if (n <= 0 && !strcmp(then, "gone")) return close(p[1].fd);
            if (n <= 0 && !strcmp(then, "half")) shutdown(p[1].fd, SHUT_WR);
            if (n <= 0) p[0].fd = -1;
            else if (send(p[1].fd, text, (size_t)n, 0) < 0) p[0].fd = -1;
        }
    }
}

typedef struct row { char *request, *right[MAX_RIGHT]; size_t bytes; } row;
static row rows[MAX_ROWS];
static int row_count;
static long long right_count[MAX_RIGHT], wrong, lost, answered, asked, unread, failures;

static void read_rows(const char *path) {
    static char line[BUFFER];
    FILE *f = fopen(path, "r");
    if (!f) fail(path);
    while (row_count < MAX_ROWS && fgets(line, sizeof line, f)) {
        row *r = &rows[row_count++];
        line[strcspn(line, "\n")] = 0;
        char *body = strtok(line, "\t"), *right;
        r->request = malloc(strlen(body) + 200);
        if (!r->request) fail("malloc");
        r->bytes = (size_t)sprintf(r->request, "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                   "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
        for (int k = 0; k < MAX_RIGHT && (right = strtok(NULL, "\t")); k++)
            r->right[k] = strdup(right);
    }
    fclose(f);
}

typedef struct client {
    int fd, first, waiting; /* rows of requests on their way: a ring */
    int ring[MAX_DEPTH];
    size_t size;
    char in[8192];
} client;

/* The bytes of the first answer, 0: it is not whole. */
static size_t whole(client *c, char **body, size_t *bytes, int *closes) {
    c->in[c->size] = 0;
    char *end = strstr(c->in, "\r\n\r\n"), *length = strstr(c->in, "Content-Length: ");
    if (!end || !length || length > end) return 0;
    *bytes = (size_t)atoi(length + 16), *body = end + 4;
    char *close_at = strstr(c->in, "Connection: close");
    *closes = close_at && close_at < end;
    size_t all = (size_t)(*body - c->in) + *bytes;
    return all <= c->size ? all : 0;
}
static void judge(client *c, const char *body, size_t bytes) {
    const row *r = &rows[c->ring[c->first]];
    c->first = (c->first + 1) % MAX_DEPTH, c->waiting--, answered++;
    for (int k = 0; k < MAX_RIGHT && r->right[k]; k++)
        if (strlen(r->right[k]) + 1 == bytes && !memcmp(r->right[k], body, bytes - 1)) {
            right_count[k]++;
            return;
        }
    if (wrong++ < 5) fprintf(stderr, "wrong: %.*s for %s\n", (int)bytes, body, r->request);
}
static void end(client *c, int closed) {
    if (closed) unread += c->waiting;
    else lost += c->waiting;
    close(c->fd);
    c->fd = -1, c->waiting = 0, c->size = 0;
}
static void ask(client *c, long long count, int depth) {
    static char out[BUFFER];
    size_t size = 0;
    while (c->waiting < depth && asked < count && size + 2048 < sizeof out) {
        int k = (int)(asked++ % row_count);
        c->ring[(c->first + c->waiting++) % MAX_DEPTH] = k;
        memcpy(out + size, rows[k].request, rows[k].bytes), size += rows[k].bytes;
    }
    for (size_t sent = 0; sent < size;) { /* blocks: the server reads while it owes no answer */
        ssize_t n = send(c->fd, out + sent, size - sent, 0);
        if (n < 0) return; /* what reading finds: an answer before the end, or none */
        sent += (size_t)n;
    }
}
static void listen_to(client *c) {
    char *body;
    size_t bytes, all;
    int closes = 0;
    ssize_t n = recv(c->fd, c->in + c->size, sizeof c->in - 1 - c->size, 0);
    if (n <= 0) { end(c, 0); return; }
    c->size += (size_t)n;
    while (c->waiting && !closes && (all = whole(c, &body, &bytes, &closes))) {
        judge(c, body, bytes);
        memmove(c->in, c->in + all, c->size -= all);
    }
    if (closes) end(c, 1);
}
static int load(long long count, int connections, int depth) {
    client *clients = calloc((size_t)connections, sizeof *clients);
    struct pollfd *p = calloc((size_t)connections, sizeof *p);
    if (!clients || !p || !row_count || depth > MAX_DEPTH) return fail("load");
    for (int i = 0; i < connections; i++) clients[i].fd = -1;
    for (int gone = 0; !gone || p;) {
        int open = 0;
        for (int i = 0; i < connections; i++) {
            client *c = &clients[i];
            if (c->fd < 0 && !gone && asked < count && (c->fd = dial()) < 0) gone = 1;
            if (c->fd >= 0 && !c->waiting && !gone) ask(c, count, depth);
            if (c->fd >= 0 && !c->waiting) end(c, 1);
            p[i] = (struct pollfd){c->fd, POLLIN, 0};
            open += c->fd >= 0;
        }
        if (!open) break;
        if (poll(p, (nfds_t)connections, SILENCE_MS) <= 0) { failures++; break; }
        for (int i = 0; i < connections; i++)
            if (p[i].revents && clients[i].fd >= 0) listen_to(&clients[i]);
    }
    printf("asked %lld answered %lld lost %lld wrong %lld unread %lld right", asked, answered,
           lost, wrong, unread);
    for (int k = 0; k < MAX_RIGHT && rows[0].right[k]; k++) printf(" %lld", right_count[k]);
    printf("\n");
    free(clients), free(p);
    return lost || wrong || failures;
}

static int hold(int count, size_t bytes, int refused) {
    static const char text[] = "POST /predict HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                               "Content-Length: 2\r\n\r\n{}";
    int *fds = calloc((size_t)count, sizeof *fds), statuses[600] = {0};
    char answer[512];
    if (!fds || bytes >= sizeof text) return fail("hold");
    for (int i = 0; i < count; i++) {
        if ((fds[i] = dial()) < 0) return fail("connect");
        if (send(fds[i], text, bytes, 0) < 0) { /* refused already */ }
    }
    for (int i = count - 1; refused > 0 && i >= 0; i--) { /* the last that came */
        struct pollfd p = {fds[i], POLLIN, 0};
        refused -= poll(&p, 1, SILENCE_MS) > 0;
    }
    if (getchar() == EOF) { /* goes on at a byte or the end of its input */ }
    for (int i = 0; i < count; i++) {
        if (send(fds[i], text + bytes, sizeof text - 1 - bytes, 0) < 0) { /* it has an answer */ }
    }
    for (int i = 0; i < count; i++) {
        struct pollfd p = {fds[i], POLLIN, 0};
        ssize_t n = poll(&p, 1, SILENCE_MS) > 0 ? recv(fds[i], answer, sizeof answer - 1, 0) : -1;
        answer[n > 0 ? n : 0] = 0;
        int status = n > 12 ? atoi(answer + 9) : 0; /* 0: none */
        statuses[status > 0 && status < 600 ? status : 0]++;
        close(fds[i]);
    }
    for (int k = 0; k < 600; k++)
        if (statuses[k]) printf("%d: %d\n", k, statuses[k]);
    free(fds);
    return statuses[0] > 0;
}

static uint64_t chaos_state = 1;
static int chance(int below) {
    chaos_state = chaos_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((chaos_state >> 33) % (uint64_t)below);
}
static int chaos(long long count) {
    static const char *const pieces[] = {
        "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
        "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n{}\n{}",
        "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "POST /predict HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n",
        "{\"age\": 1}", "\r\n"};
    enum { CONNECTIONS = 32, PIECES = sizeof pieces / sizeof *pieces };
    static char text[BUFFER];
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) fds[i] = -1;
    for (; count > 0; count--) {
        int *fd = &fds[chance(CONNECTIONS)], what = chance(16);
        if (*fd < 0 && (*fd = dial()) < 0) return fail("connect");
        fcntl(*fd, F_SETFL, O_NONBLOCK);
        size_t size = 0;
        for (int n = 1 + chance(chance(8) ? 3 : 400); what < 11 && n > 0; n--) {
            const char *piece = pieces[chance(PIECES)];
            size_t all = strlen(piece), from = chance(4) ? 0 : (size_t)chance((int)all);
            memcpy(text + size, piece + from, all - from), size += all - from;
        }
        if (size && !chance(4)) size = (size_t)chance((int)size) + 1;
        if (size && !chance(8)) text[chance((int)size)] = (char)chance(256);
        if (size && send(*fd, text, size, 0) < 0) what = 15; /* it is closed, or full */
        if (what >= 11 && what < 14) while (recv(*fd, text, sizeof text, 0) > 0) {}
        if (what == 14) shutdown(*fd, SHUT_WR);
        if (what < 15 || chance(2)) continue;
        struct linger now = {1, 0};
        if (chance(2)) setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(*fd), *fd = -1;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct rlimit limit;
    signal(SIGPIPE, SIG_IGN);
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    port = argc > 2 ? atoi(argv[1]) : 0;
    if (argc > 2 && !strcmp(argv[2], "send")) return send_input(argc > 3 ? argv[3] : "");
    if (argc == 7 && !strcmp(argv[2], "load")) {
        read_rows(argv[6]);
        return load(atoll(argv[3]), atoi(argv[4]), atoi(argv[5]));
    }
    if (argc == 4 && !strcmp(argv[2], "chaos")) return chaos(atoll(argv[3]));
    if (argc == 6 && !strcmp(argv[2], "hold"))
        return hold(atoi(argv[3]), (size_t)atoi(argv[4]), atoi(argv[5]));
    return fprintf(stderr, "usage: at the top of tests/programs/http_client.c\n"), 2;
}
