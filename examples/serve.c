/* serve.c: a trained model behind HTTP. Features by name, what is left out is missing:

     make demo && build/serve --model build/demo/checkpoint --port 18080
     curl -d '{"age":39,"workclass":"State-gov"}' http://127.0.0.1:18080/predict

   Names are those of the columns' description; of Criteo I1 .. I13, C1 .. C26; of other formats
   dense_0 .. and cat_0 .., of libsvm feature_0, of libffm field_0 .., of generated data C1 ..,
   whose values are ids: 3 or [3, 5], or where they have weights {"3":0.5}.

   Of a model of build/gpt: curl -d '{"prompt":"To be","tokens":20}' .../generate, see
   neo_decoder_add_json; the temperature is 0.8 where none is given. A model of tokens takes tokens,
   {"prompt":[464,995]}, and answers {"ids":[11,290]}, which tiktoken's "gpt2" decodes. /stream
   instead of /generate (curl -N) answers a line a character, as it comes, then how it ended.

   One JSON object a line gives one answer a line: {"prediction":0.806642771,"step":1280} (two
   columns of thirteen tell little). GET /metrics is text as Prometheus reads it. A newer
   checkpoint in the directory is loaded beside the old one, then takes its place between two
   batches; SIGHUP loads again at once. SIGTERM and Ctrl-C end the server when the requests that
   have come are answered. With --lines it answers raw lines of the training format from standard
   input instead. */
#include "neo_serve.h"
#include "serve/options.h"
#include "serve/predict.h"
#include "serve/lines.h"
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>

/* A thread for each loop; this one loads models and waits for signals. */

static int signals[2]; /* a pipe: bytes are numbers of signals */
static void on_signal(int number) {
    int kept = errno;
    unsigned char byte = (unsigned char)number;
    if (write(signals[1], &byte, 1) < 0) { /* full: there are enough */ }
    errno = kept;
}
static http_server server;
static void *work(void *of) {
    worker *w = of;
    w->spans = calloc((size_t)o.batch, sizeof *w->spans);
    if (!w->spans || !http_loop_run(&w->loop, &server, w)) {
        fprintf(stderr, "serve: out of memory or descriptors\n");
        on_signal(SIGABRT);
    }
    free(w->spans), free(w->out);
    return NULL;
}

static int listen_at(char *where, size_t size) { /* the socket, and its URL; -1: a message is out */
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char port[16], host[64];
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int fd = -1, on = 1;
    snprintf(port, sizeof port, "%lld", (long long)o.port);
    int error = getaddrinfo(o.host, port, &hints, &found);
    if (!error) fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, SOMAXCONN) ||
        fcntl(fd, F_SETFL, O_NONBLOCK) || getsockname(fd, (struct sockaddr *)&address, &bytes) ||
        getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        fprintf(stderr, "serve: cannot listen at %s, port %lld: %s\n", o.host, (long long)o.port,
                error ? gai_strerror(error) : strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    } else snprintf(where, size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
    if (found) freeaddrinfo(found);
    return fd;
}
/* Descriptors for --connections, or as many connections as there are descriptors for. */
static void fit_connections(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    rlim_t other = 64 + 2 * (rlim_t)o.threads, want = (rlim_t)(o.connections + o.connections / 8);
    if (limit.rlim_cur < want + other) {
        limit.rlim_cur = limit.rlim_max < want + other ? limit.rlim_max : want + other;
        if (setrlimit(RLIMIT_NOFILE, &limit)) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < want + other)
        o.connections = limit.rlim_cur > other + 8 ? (int64_t)(limit.rlim_cur - other) * 8 / 9 : 1;
}
/* Until a signal ends the server. Models are loaded on this thread, beside the requests. */
static void watch(void) {
    struct pollfd readable = {signals[0], POLLIN, 0};
    for (;;) {
        unsigned char number = 0;
        int64_t step;
        int n = poll(&readable, 1, o.reload ? (int)o.reload * 1000 : -1);
        if (n > 0 && read(signals[0], &number, 1) == 1 && number != SIGHUP) return;
        if (n < 0 && errno == EINTR) continue;
        if (number == SIGHUP || (neo_find_checkpoint(o.model, &step) == NEO_OK &&
                                 step != atomic_load(&models.step)))
            (void)version_load();
    }
}
static int serve(void) {
    char where[128];
    int wake[2], started = 0, fd = listen_at(where, sizeof where);
    struct sigaction action = {.sa_handler = on_signal};
    if (fd < 0) return 1;
    if (pipe(wake) || pipe(signals)) return fprintf(stderr, "serve: %s\n", strerror(errno)), 1;
    fcntl(signals[1], F_SETFL, O_NONBLOCK);
    sigaction(SIGTERM, &action, NULL), sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL), signal(SIGPIPE, SIG_IGN);
    server = (http_server){.listener = fd, .wake = wake[0], .limits = {8192, (size_t)o.body << 10},
        .timeout_ms = o.timeout * 1000, .wait_ms = o.wait, .batch = (int)o.batch,
        .connections = (int)((o.connections + o.threads - 1) / o.threads),
        .memory = ((size_t)o.memory << 20) / (size_t)o.threads, .answer = answer};
    for (; started < o.threads; started++) {
        workers[started].index = started;
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started])) break;
    }
    if (started == o.threads) {
        printf("serve: %s, %s at step %lld, up to %lld connections\n", where,
               models.newest->info.kind, (long long)models.step, (long long)o.connections);
        fflush(stdout);
        watch();
        signal(SIGTERM, SIG_DFL), signal(SIGINT, SIG_DFL); /* a second one ends it at once */
    }
    if (write(wake[1], "", 1) != 1) return 1; /* cannot be: the pipe is empty */
    for (int i = 0; i < started; i++) pthread_join(workers[i].thread, NULL);
    close(fd);
    return started < o.threads;
}

int main(int argc, char **argv) {
    int status = parse(argc, argv);
    if (status) return status - 1;
    if (o.lines) o.threads = 1;
    fit_connections();
    workers = calloc((size_t)o.threads, sizeof *workers);
    if (!workers || version_load() != NEO_OK) return 1;
    if (o.lines && models.newest->info.context)
        status = (fprintf(stderr, "serve: --lines: a gpt has none\n"), 1);
    else status = o.lines ? answer_lines() : serve();
    version_leave(models.newest);
    free(workers);
    return status;
}
