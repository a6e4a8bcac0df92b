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
static const char *const CURVES[NEO_ROWS_COUNT] = {
    "lookup", "sgd", "rowwise", "adagrad", "adam", "lookup-table", "update-table"};
/* The numbers of neo_calibration.layer. */
static const char *const WAYS[NEO_LAYER_COUNT] = {
    "forward", "backward", "last", "dots", "dots-backward", "attention", "attention-backward",
    "rest", "rest-backward"};
/* What a cluster file has as a name and a number. */
enum { CLUSTER_NUMBERS = 17 };
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
        {"step", &k->step, 0, 1e6},            {"step_near", &k->step_near, 0, 1e6},
        {"step_large", &k->step_large, 0, 1e6}, {"cache", &k->cache, 0, 1e15},
        {"others", &k->others, 0, 1e18},
        {"host_bandwidth", &c->host_bandwidth, 0, 1e18}, {"host_row_us", &c->host_row_us, 0, 1e9}};
    memcpy(numbers, all, sizeof all);
}

/* A number, perhaps with a unit (K, M, G, T, KiB, MiB, GiB, TiB), and nothing behind it. Returns
   whether it is one of [least, most]. */
static inline int cluster_parse(const char *text, double least, double most, double *value) {
    static const struct { const char *name; double factor; } UNITS[] = {
        {"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"KiB", 1024.0},
        {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
    char *end;
    const double x = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof UNITS / sizeof UNITS[0]; i++) {
        *value = x * UNITS[i].factor;
        if (strcmp(end, UNITS[i].name) == 0) return *value >= least && *value <= most;
    }
    return 0;
}
/* What numbers of a line go where, by its first two words; value NULL: it says something else. */
static inline cluster_number cluster_place(neo_cluster *c, const char *what, const char *which,
                                           int *count) {
    cluster_number numbers[CLUSTER_NUMBERS];
    const cluster_number none = {NULL, NULL, 0, 0};
    cluster_numbers(c, numbers);
    for (int i = 0; i < NEO_ROWS_COUNT && strcmp(what, "rows") == 0; i++)
        if (strcmp(which, CURVES[i]) == 0)
            return *count = 6, (cluster_number){which, c->calibration.rows[i][0], 0, 1e9};
    for (int i = 0; i < NEO_LAYER_COUNT && strcmp(what, "layer") == 0; i++)
        if (strcmp(which, WAYS[i]) == 0)
            return *count = 5, (cluster_number){which, c->calibration.layer[i], 0, 1};
    for (int i = 0; i < CLUSTER_NUMBERS; i++)
        if (strcmp(what, numbers[i].name) == 0) return *count = 1, numbers[i];
    return none;
}
/* The next word of *text, cut off in place, or NULL. (Ranks that are threads read at the same time:
   strtok has one place for all.) */
static inline char *cluster_word(char **text) {
    static const char blanks[] = " \t\r\n";
    char *word = *text + strspn(*text, blanks);
    *text = word + strcspn(word, blanks);
    if (**text) *(*text)++ = 0;
    return *word ? word : NULL;
}
/* First words of the lines that a cluster file has besides. */
static const char *const OTHER_LINES[] = {"ranks", "memory", "threads", "local", "cross",
                                          "pipeline", "tier", "jitter", "failures", "checkpoint"};
static inline int cluster_has(const char *what) {
    int known = what[0] == 0; /* a comment, or nothing */
    for (size_t i = 0; i < sizeof OTHER_LINES / sizeof OTHER_LINES[0]; i++)
        known |= strcmp(what, OTHER_LINES[i]) == 0;
    return known;
}
/* One line of them. Returns 1; 0 if it says something else; -1 if it has not the numbers that are
   wanted: *left of *to are, from *at on (NULL: there is none; of none left: it is one too many). */
static inline int cluster_line_read(neo_cluster *c, char *text, char *what, char *which,
                                    cluster_number *to, int *left, const char **at) {
    text[strcspn(text, "#")] = 0;
    char *word = cluster_word(&text);
    snprintf(what, 32, "%s", word ? word : "");
    word = cluster_word(&text);
    snprintf(which, 32, "%s", word ? word : "");
    *to = cluster_place(c, what, which, left);
    if (!to->value) return 0;
    if (*left > 1) word = cluster_word(&text);
    for (double *value = to->value; *left > 0; (*left)--, word = cluster_word(&text)) {
        *at = word;
        if (!word || !cluster_parse(word, to->least, to->most, value++)) return -1;
    }
    *at = word;
    return word ? -1 : 1;
}
/* Reads these lines into *c, and passes over the others that a cluster has. option: it names the
   file. */
static inline neo_status cluster_read(const char *option, const char *path, neo_cluster *c) {
    char text[8192], what[32], which[32], name[65]; /* name: of a line of numbers */
    const char *at = NULL;
    cluster_number to;
    int line = 0, taken = 0, count = 0;
    neo_status status = NEO_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--%s %s: %s", option, path, strerror(errno));
    while (status == NEO_OK && fgets(text, sizeof text, f)) {
        const int mark = line++ == 0 && strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        const int whole = strchr(text, '\n') || feof(f);
        const int took =
            whole ? cluster_line_read(c, text + mark, what, which, &to, &count, &at) : 0;
        taken |= took;
        if (took < 0)
            snprintf(name, sizeof name, "%s%s%s", what, strcmp(what, to.name) ? " " : "",
                     strcmp(what, to.name) ? which : "");
        if (!whole)
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: the line is too long", path, line);
        else if (took == 0 && !cluster_has(what))
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: nothing that a cluster has: '%s%s%s'",
                              path, line, what, which[0] ? " " : "", which);
        else if (took < 0 && count == 0)
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: %s: more than belongs on the line: '%.40s'",
                              path, line, name, at);
        else if (took < 0 && at)
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: %s: '%.40s' is no number from %g to %g",
                              path, line, name, at, to.least, to.most);
        else if (took < 0)
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: %s: %d more number%s wanted", path, line,
                              name, count, count == 1 ? " is" : "s are");
    }
    if (status == NEO_OK && ferror(f))
        status = neo_fail(NEO_ERR_IO, "--%s %s: %s", option, path, strerror(errno));
    else if (status == NEO_OK && !taken)
        status = neo_fail(NEO_ERR_FORMAT, "--%s %s: no line says how fast a rank computes, as "
                          "'flops 20e9' (plan --calibrate prints them)", option, path);
    (void)fclose(f);
    return status;
}
#endif
