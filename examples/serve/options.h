/* options.h: the command line of serve. */
#ifndef EXAMPLE_OPTIONS_H
#define EXAMPLE_OPTIONS_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *host;
    int64_t port, threads, batch, wait, timeout, connections, body, memory, reload, lines;
} options;
static const options NORMAL = {NULL, "127.0.0.1", 8080, 1, 256, 0, 10, 10000, 1024, 64, 1, 0};
static options o;

typedef struct option {
    const char *name, *argument;
    void *value; /* const char *, or where most is not 0 int64_t; without argument 1 */
    int64_t least, most;
    const char *help;
} option;
static const option OPTIONS[] = {
    {"model", "PATH", &o.model, 0, 0, "checkpoints: serves the newest; or neo_model_write's file"},
    {"host", "ADDRESS", &o.host, 0, 0, "listens here; 0.0.0.0: on all interfaces"},
    {"port", "N", &o.port, 0, 65535, "that it listens at; 0: a free one"},
    {"threads", "N", &o.threads, 1, 256, "each has connections and a batch of its own"},
    {"batch", "N", &o.batch, 1, 65536, "requests, and samples, predicted together at most"},
    {"wait", "MS", &o.wait, 0, 10000, "that a batch waits for more; 0: it takes what is there"},
    {"timeout", "SECONDS", &o.timeout, 1, 86400, "for a whole request; between requests"},
    {"connections", "N", &o.connections, 1, 1000000, "at most, as far as ulimit -n goes"},
    {"body", "KIB", &o.body, 1, 1 << 20, "of a request, at most"},
    {"memory", "MIB", &o.memory, 1, 1 << 20, "of buffers of all connections, at most"},
    {"reload", "SECONDS", &o.reload, 0, 86400, "between looks for a newer checkpoint; 0: none"},
    {"lines", "", &o.lines, 0, 1, "answers lines of the training format from standard input"}};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof OPTIONS[0] };

/* Prints the default of an option, if it has one. */
static void print_normal(const option *p) {
    const char *normal = (const char *)&NORMAL + ((char *)p->value - (char *)&o);
    if (p->most && *p->argument) printf(" [%lld]", (long long)*(const int64_t *)normal);
    else if (!p->most && *(char *const *)normal) printf(" [%s]", *(char *const *)normal);
    printf("\n");
}
/* 0, or the exit status + 1. */
static int parse(int argc, char **argv) {
    o = NORMAL;
    for (int i = 1; i < argc; i++) {
        int k = 0;
        char *end = "";
        if (!strcmp(argv[i], "--help")) {
            printf("serve: a trained model behind HTTP, or over lines\n\n");
            for (const option *p = OPTIONS; p < OPTIONS + OPTION_COUNT; p++) {
                printf("  --%s %-*s %s", p->name, 20 - (int)strlen(p->name), p->argument, p->help);
                print_normal(p);
            }
            return 1;
        }
        while (k < OPTION_COUNT &&
               (strncmp(argv[i], "--", 2) || strcmp(argv[i] + 2, OPTIONS[k].name))) k++;
        const option *p = &OPTIONS[k];
        if (k == OPTION_COUNT || (*p->argument && ++i == argc))
            return fprintf(stderr, k == OPTION_COUNT ? "serve: %s: no such option (--help)\n" :
                           "serve: %s needs a value\n", argv[k == OPTION_COUNT ? i : i - 1]), 3;
        if (!p->most) { *(const char **)p->value = argv[i]; continue; }
        int64_t value = *p->argument ? strtoll(argv[i], &end, 10) : 1;
        if (end == argv[i] || *end || value < p->least || value > p->most)
            return fprintf(stderr, "serve: --%s %s: not a whole number from %lld to %lld\n",
                           p->name, argv[i], (long long)p->least, (long long)p->most), 3;
        *(int64_t *)p->value = value;
    }
    return o.model ? 0 : (fprintf(stderr, "serve: --model is needed (--help)\n"), 3);
}
#endif
