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
    "lookup", "sgd", "rowwise", "adagrad", "adam", "lookup-table", "update-table", "lookup-bag",
    "update-bag"};
/* The numbers of neo_calibration.layer. */
static const char *const WAYS[NEO_LAYER_COUNT] = {
    "forward", "backward", "last", "dots", "dots-backward", "attention", "attention-backward",
    "rest", "rest-backward"};
/* Optimizers of tables, as neo_bag_optim_kind. */
static const char *const OPTIMIZERS[NEO_BAG_OPTIM_COUNT] = {
    "sgd", "adagrad", "rowwise_adagrad", "adam", "partial_adam", "lamb", "partial_lamb", "lars",
    "ftrl"};
/* What a cluster file has as a name and a number. None is 0 where that would stand for a default:
   the line is left out instead. */
enum { CLUSTER_NUMBERS = 16 };
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
        {"step", &k->step, 0, 1e6},            {"step_near", &k->step_near, 1e-6, 1e6},
        {"cache", &k->cache, 1, 1e15},         {"others", &k->others, 0, 1e18},
        {"host_bandwidth", &c->host_bandwidth, 0, 1e18}, {"host_row_us", &c->host_row_us, 0, 1e9}};
    memcpy(numbers, all, sizeof all);
}

/* A number, perhaps with a unit, and nothing behind it: KiB, MiB, GiB, TiB are powers of 1024; K,
   M, G, T are that, too, of bytes, as in the options of dlrm, and of all else powers of 1000.
   Returns whether it is one of [least, most]. */
static inline int cluster_parse(const char *text, int is_bytes, double least, double most,
                                double *value) {
    static const char units[] = "KMGT";
    char *end;
    *value = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, *end) : NULL;
    const int is_binary = unit && strcmp(end + 1, "iB") == 0;
    for (const char *u = units; unit && u <= unit; u++)
        *value *= is_binary || is_bytes ? 1024.0 : 1000.0;
    if (unit) end += is_binary ? 3 : 1;
    return end != text && !*end && *value >= least && *value <= most;
}
/* Numbers of table rows, by their name. */
static inline int cluster_rows_dtype(const char *name, neo_dtype *dtype) {
    static const neo_dtype known[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_I8};
    int i = 0;
    while (i < 4 && strcmp(name, neo_dtype_name(known[i]))) i++;
    if (i < 4) *dtype = known[i];
    return i < 4;
}
/* Whether number i of a line is of bytes. */
static inline int cluster_is_bytes(const char *what, int i) {
    return i == 0 && (strcmp(what, "memory") == 0 || strcmp(what, "tier") == 0 ||
                      strcmp(what, "cache") == 0);
}
/* Lines of what links take of calls of several sizes: [level][kind]. */
static const char *const LINKS[NEO_LEVEL_COUNT][NEO_LINK_KINDS] = {
    {"local_exchange", "local_reduce"}, {"cross_exchange", "cross_reduce"}};
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
    if (strcmp(what, "dots_far") == 0)
        return *count = 4, (cluster_number){what, c->calibration.dots_far[0], 0, 1e9};
    if (strcmp(what, "layer_far") == 0)
        return *count = 3, (cluster_number){what, c->calibration.layer_far, 0, 1e9};
    if (strcmp(what, "rows_large") == 0)
        return *count = 4, (cluster_number){what, c->calibration.rows_large[0], 0, 1e9};
    for (int i = 0; i < NEO_LEVEL_COUNT * NEO_LINK_KINDS; i++)
        if (strcmp(what, LINKS[i / NEO_LINK_KINDS][i % NEO_LINK_KINDS]) == 0)
            return *count = NEO_LINK_SIZES,
                   (cluster_number){what, c->link_us[i / NEO_LINK_KINDS][i % NEO_LINK_KINDS], 0,
                                    1e12};
    for (int i = 0; i < CLUSTER_NUMBERS; i++)
        if (strcmp(what, numbers[i].name) == 0) return *count = 1, numbers[i];
    return none;
}
/* Whether a line of a file is of what an older plan --calibrate measured, which nothing reads any
   longer: then it is said on stderr. */
static inline int cluster_is_past(const char *path, int line, const char *what) {
    if (strcmp(what, "step_large") != 0 || !line) return 0;
    fprintf(stderr, "note: %s:%d: '%s' is of an older plan --calibrate and not read: predictions "
            "are by what the other lines say; calibrate anew\n", path, line, what);
    return 1;
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
/* The names of lines that a file had: first words, of rows, layer and tier with the second. */
enum { CLUSTER_LINES = 100 };
typedef struct cluster_seen {
    int count, on_device, line[CLUSTER_LINES]; /* on_device: the file is of one */
    char name[CLUSTER_LINES][64];
} cluster_seen;
static inline int cluster_line_of(const cluster_seen *seen, const char *name) {
    int i = 0;
    while (i < seen->count && strcmp(seen->name[i], name)) i++;
    return i < seen->count ? seen->line[i] : 0;
}
/* The line before that has this one's name, or 0: then it is noted. */
static inline int cluster_again(cluster_seen *seen, const char *what, const char *which, int line,
                                char name[64]) {
    static const char *const by_two[] = {"rows", "layer", "tier"};
    int two = 0;
    for (int i = 0; i < 3; i++) two |= strcmp(what, by_two[i]) == 0;
    snprintf(name, 64, "%.31s%s%.31s", what, two ? " " : "", two ? which : "");
    const int before = cluster_line_of(seen, name);
    if (before || seen->count == CLUSTER_LINES) return before;
    memcpy(seen->name[seen->count], name, sizeof seen->name[0]);
    seen->line[seen->count++] = line;
    return 0;
}
/* Says on stderr what a file of an older plan --calibrate lacks; says: before its path. */
static inline void cluster_note_lacks(const cluster_seen *seen, const char *says,
                                      const char *path) {
    static const char *const of[][2] = {{"layer dots", "dots_far"},
                                        {"rows lookup", "rows_large"},
                                        {"layer last", "layer_far"}};
    for (int i = 0; i < 3; i++)
        if (cluster_line_of(seen, of[i][0]) && !cluster_line_of(seen, of[i][1]))
            fprintf(stderr, "%s %s: has a line '%s' but none '%s': what that adds is left out of "
                    "predictions; plan --calibrate measures both\n", says, path, of[i][0],
                    of[i][1]);
}
/* The lines that a cluster file has besides: the numbers of each, whole where they count something,
   and behind them one of two words. */
typedef struct cluster_other {
    const char *what, *which; /* which: the second word of the line, or NULL */
    int count, is_whole;
    struct { double least, most; } of[4];
    const char *words[2];
} cluster_other;
static const cluster_other OTHER_LINES[] = {
    {"ranks", NULL, 2, 1, {{1, 4096}, {1, 4096}}, {NULL}},
    {"threads", NULL, 1, 1, {{1, 4096}}, {NULL}},
    {"memory", NULL, 1, 0, {{1, 1e18}}, {NULL}},
    {"local", NULL, 2, 0, {{1, 1e15}, {0, 1e9}}, {NULL}},
    {"cross", NULL, 2, 0, {{1, 1e15}, {0, 1e9}}, {NULL}},
    {"jitter", NULL, 4, 0, {{0, 1}, {0, 1}, {0, 1}, {0, 1e6}}, {NULL}},
    {"failures", NULL, 2, 0, {{1e-3, 1e12}, {0, 1e9}}, {NULL}},
    {"checkpoint", NULL, 2, 0, {{1e-3, 1e12}, {0, 1e9}}, {NULL}},
    {"tier", "disk", 3, 0, {{1, 1e18}, {1, 1e15}, {0, 1e9}}, {NULL}},
    {"tier", "dram", 1, 0, {{1, 1e18}}, {"lru", "lfu"}},
    {"pipeline", NULL, 0, 0, {{0, 0}}, {"off", "on"}},
    {"device", NULL, 0, 0, {{0, 0}}, {"cpu", "cuda"}}};
/* NULL: there is no such line. */
static inline const cluster_other *cluster_find(const char *what, const char *which) {
    for (size_t i = 0; i < sizeof OTHER_LINES / sizeof OTHER_LINES[0]; i++) {
        const cluster_other *o = &OTHER_LINES[i];
        if (strcmp(what, o->what) == 0 && (!o->which || strcmp(which, o->which) == 0)) return o;
    }
    return NULL;
}
/* Reads a line into *c, or checks what it says besides. *measured is set if it was read. */
static inline neo_status cluster_read_line(neo_cluster *c, const char *path, int line, char *text,
                                           cluster_seen *seen, int *measured) {
    char what[32], which[32], name[64];
    int count = 0;
    text[strcspn(text, "#")] = 0;
    char *word = cluster_word(&text);
    if (!word) return NEO_OK;
    snprintf(what, sizeof what, "%s", word);
    word = cluster_word(&text);
    snprintf(which, sizeof which, "%s", word ? word : "");
    if (cluster_is_past(path, line, what)) return NEO_OK;
    cluster_number to = cluster_place(c, what, which, &count);
    const cluster_other *other = to.value ? NULL : cluster_find(what, which);
    if (!to.value && !other)
        return neo_fail(NEO_ERR_FORMAT, "%s:%d: nothing that a cluster has: '%s%s%s'", path, line,
                        what, which[0] ? " " : "", which);
    const int before = cluster_again(seen, what, which, line, name);
    if (before)
        return neo_fail(NEO_ERR_FORMAT, "%s:%d: a second line, after line %d: '%s'", path, line,
                        before, name);
    const int named = other ? other->which != NULL : count > 4; /* curves, layers: by two words */
    const char *space = named ? " " : "";
    if (named) word = cluster_word(&text);
    else which[0] = 0;
    if (other) count = other->count;
    for (int i = 0; i < count; i++, word = cluster_word(&text)) {
        double value;
        if (other) to.least = other->of[i].least, to.most = other->of[i].most;
        if (!word)
            return neo_fail(NEO_ERR_FORMAT, "%s:%d: %s%s%s: %d more number%s wanted", path, line,
                            what, space, which, count - i, count - i == 1 ? " is" : "s are");
        if (!cluster_parse(word, cluster_is_bytes(what, i), to.least, to.most, &value) ||
            (other && other->is_whole && value != (double)(int64_t)value))
            return neo_fail(NEO_ERR_FORMAT, "%s:%d: %s%s%s: '%.40s' is no %snumber from %g to %g",
                            path, line, what, space, which, word,
                            other && other->is_whole ? "whole " : "", to.least, to.most);
        if (to.value) to.value[i] = value;
    }
    const char *const *words = other ? other->words : NULL;
    if (words && words[0]) {
        if (!word || (strcmp(word, words[0]) && strcmp(word, words[1])))
            return neo_fail(NEO_ERR_FORMAT, "%s:%d: %s%s%s: '%.40s' is neither %s nor %s", path,
                            line, what, space, which, word ? word : "", words[0], words[1]);
        if (strcmp(what, "device") == 0) seen->on_device = strcmp(word, words[1]) == 0;
        word = cluster_word(&text);
    }
    if (word)
        return neo_fail(NEO_ERR_FORMAT, "%s:%d: %s%s%s: more than belongs on the line: '%.40s'",
                        path, line, what, space, which, word);
    *measured |= !other;
    return NEO_OK;
}
/* Reads how fast a rank computes into *c; the other lines that a cluster has are only checked.
   option: it names the file. device: as --device, of which a file may be. */
static inline neo_status cluster_read(const char *option, const char *path, const char *device,
                                      neo_cluster *c) {
    char text[8192], says[64];
    cluster_seen seen = {.count = 0};
    int line = 0, measured = 0;
    neo_status status = NEO_OK;
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--%s %s: %s", option, path, strerror(errno));
    while (status == NEO_OK && fgets(text, sizeof text, f)) {
        const int mark = line++ == 0 && strncmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
        if (!strchr(text, '\n') && !feof(f))
            status = neo_fail(NEO_ERR_FORMAT, "%s:%d: the line is too long", path, line);
        else status = cluster_read_line(c, path, line, text + mark, &seen, &measured);
    }
    if (status == NEO_OK && ferror(f))
        status = neo_fail(NEO_ERR_IO, "--%s %s: %s", option, path, strerror(errno));
    else if (status == NEO_OK && !measured)
        status = neo_fail(NEO_ERR_FORMAT, "--%s %s: no line says how fast a rank computes, as "
                          "'flops 20e9' (plan --calibrate prints them)", option, path);
    else if (status == NEO_OK && seen.on_device && strcmp(device, "cpu") == 0)
        status = neo_fail(NEO_ERR_MISMATCH, "--%s %s:%d: 'device cuda': a GPU's figures, and "
                          "--device is cpu", option, path, cluster_line_of(&seen, "device"));
    snprintf(says, sizeof says, "note: --%s", option);
    if (status == NEO_OK) cluster_note_lacks(&seen, says, path);
    (void)fclose(f);
    return status;
}
#endif
