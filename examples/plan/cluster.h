/* cluster.h: the lines of a cluster file that say how fast a rank computes, as plan --calibrate
   prints them; read.h has the format of all. */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H
#include "neo_plan.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The curves of neo_calibration.rows. */
static const char *const CURVES[NEO_ROWS_COUNT] = {"lookup", "sgd", "rowwise", "adagrad", "adam"};
/* The numbers of neo_calibration.layer. */
static const char *const WAYS[NEO_LAYER_COUNT] = {"forward", "backward", "last", "dots",
                                                     "dots-backward", "attention",
                                                     "attention-backward", "rest",
                                                     "rest-backward"};
/* What a cluster file has as a name and a number. */
enum { CLUSTER_NUMBERS = 11 };
typedef struct cluster_number {
    const char *name;
    double *value, least, most;
} cluster_number;
static void cluster_numbers(neo_cluster *c, cluster_number numbers[CLUSTER_NUMBERS]) {
    neo_calibration *k = &c->calibration;
    const cluster_number all[CLUSTER_NUMBERS] = {
        {"memory_bandwidth", &c->memory_bandwidth, 1, 1e18}, {"flops", &c->flops, 1, 1e21},
        {"lookup", &k->lookup, 1e-6, 1e6},     {"update", &k->update, 1e-6, 1e6},
        {"copy", &k->copy, 1e-6, 1e6},         {"bucketed", &k->bucketed, 1e-6, 1e6},
        {"id", &k->id, 1e-6, 1e6},             {"sort", &k->sort, 1e-6, 1e6},
        {"row", &k->row, 1e-6, 1e6},           {"kept", &k->kept, 1e-6, 1e6},
        {"step", &k->step, 0, 1e6}};
    memcpy(numbers, all, sizeof all);
}

/* Where the numbers of a line go, by its first two words; NULL: it says something else. */
static inline double *cluster_place(neo_cluster *c, const char *what, const char *which,
                                    int *count) {
    cluster_number numbers[CLUSTER_NUMBERS];
    cluster_numbers(c, numbers);
    for (int i = 0; i < NEO_ROWS_COUNT && strcmp(what, "rows") == 0; i++)
        if (strcmp(which, CURVES[i]) == 0) return *count = 6, c->calibration.rows[i][0];
    for (int i = 0; i < NEO_LAYER_COUNT && strcmp(what, "layer") == 0; i++)
        if (strcmp(which, WAYS[i]) == 0) return *count = 5, c->calibration.layer[i];
    for (int i = 0; i < CLUSTER_NUMBERS; i++)
        if (strcmp(what, numbers[i].name) == 0) return *count = 1, numbers[i].value;
    return NULL;
}
/* Reads these lines into *c, and passes over all others. option: it names the file. */
static inline neo_status cluster_read(const char *option, const char *path, neo_cluster *c) {
    char text[1024], what[32], which[32];
    neo_status status = NEO_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--%s %s: %s", option, path, strerror(errno));
    for (int line = 1, count = 0; status == NEO_OK && fgets(text, sizeof text, f); line++) {
        text[strcspn(text, "#")] = 0;
        which[0] = 0;
        if (sscanf(text, "%31s %31s", what, which) < 1) continue;
        double *to = cluster_place(c, what, which, &count);
        const char *p = strstr(text, to && count > 1 ? which : what);
        char *end;
        for (p += strlen(to && count > 1 ? which : what); to && count > 0; count--, p = end) {
            *to = strtod(p, &end);
            if (end == p || !(*to >= 0 && *to < 1e21)) break;
            to++;
        }
        if (to && count > 0)
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: %s %s: %d more numbers from 0 up are wanted",
                              path, line, what, which, count);
    }
    (void)fclose(f);
    return status;
}
#endif
