/* read.h: reads a model and a cluster. A line is words, # begins a comment; an error names file and
   line, and ends the program.

   A model file, with each line but table, unit and optimizer once:
     batch 65536                      samples of a step over all ranks; required
     bottom_flops 18e6                per sample, forward: dense layers beside the lookup,
     top_flops 71e6                   and after it
     dense_params 5e6                 shared among the two as their flops; or, instead of the three,
     unit bottom beside 13-512-256-64 units whose gradients are reduced by one call, in the order of
     unit cross after flops=4e4 params=0  forward: an MLP's widths, or flops of a sample and
                                      parameters; after: needs pooled rows, beside: does not
     unit pairs after dots=27x16      products of 27 rows of 16 columns, as neo_interact makes them
     skew 1.05                        exponent of the Zipf law of ids; left out: spread evenly
     weighted on                      ids have weights
     distinct 0.4                     share of a rank's bags that differ: dlrm --dedup sends those
     wire bf16 bf16                   how pooled rows and their gradients travel: f32 (default) ...
     optimizer rowwise_adagrad        of the tables that follow: sgd, adagrad, rowwise_adagrad
                                      (default), adam ...
     table NAME 1000000x64 20 buckets=8 pooling=sum dtype=f16 placements=tw,cw
                                      rows x columns, ids per sample; the rest may be left out. In a
                                      name %20 is a blank, and so on
   A cluster file, where K, M, G and T are powers of 1024 of bytes, as KiB, MiB ..., and of all else
   powers of 1000:
     ranks 128 8                      ranks, and ranks of a node, of which the last may have fewer;
                                      required. Buffers are counted for ranks of one thread
     memory 32GiB                     that each may use for tables and what goes with them
     threads 8                        of each, by which buffers grow; 1 unless it is said
     memory_bandwidth 1300e9          bytes per second
     flops 10e12
     local 200e9 2                    links inside a node: bytes per second of a rank, latency in us
     cross 7e9 10                     and between nodes
     cross_exchange 12 25 160 2300    us of an exchange in which a rank sends 4 KiB, 64 KiB, 1 MiB,
                                      16 MiB to other nodes; 0 from where it was not measured;
                                      likewise cross_reduce, local_exchange, local_reduce
     lookup 1.2                       measured factors: see neo_calibration; likewise update, copy,
                                      bucketed, id, sort, row, kept, step, step_near,
                                      cache, others (step_large, of older files, is passed over
                                      with a note)
     dots_far 100 500 150 700         likewise, rows_large, and layer_far of three numbers
     host_bandwidth 25e9              of ranks on GPUs, with rows in host memory: bytes per second
                                      between both; likewise host_row_us, us of a row besides
     rows lookup 7 8 21 27 61 196     measured curves: see neo_calibration.rows; likewise of sgd,
                                      rowwise, adagrad, adam, lookup-table, update-table,
                                      lookup-bag, update-bag (plan --calibrate prints all these)
     layer forward 2e-11 0 1e-10 0 0  seconds of MLPs: see neo_calibration.layer; likewise backward,
                                      last; of products of rows dots, dots-backward; of attention
                                      attention, attention-backward, rest, rest-backward
     pipeline on                      exchanges run beside computation
     device cuda                      the figures are of GPUs (plan --calibrate --device cuda)
     tier dram 24GiB lfu              of copies of tables, and of rows in memory, which come and go
                                      as neo_tier does it (lfu or lru); all others lie in
     tier disk 2TiB 3e9 5             a file: its bytes, bytes per second, and us that a row takes
                                      besides (plan --calibrate --disk measures both)
     jitter 0.05 0.1 0.001 3          chance (--risk): tasks and exchanges take 5 %, 10 % more or
                                      less, one rank in 1,000 computes 3 times as long in a step
     failures 50000 300               hours of a rank between failures; seconds of a restart
     checkpoint 1800 20               seconds between two, and of one

   A what-if changes what the files say: NAME=VALUE. NAME is the first word of a line, of rows and
   tier the first two (tier.dram, rows.lookup), and VALUE the rest of it, as in
   --set "tier.dram=48GiB lfu"; or NAME is one number or word of a line: ranks, ranks_per_node,
   local.bandwidth, local.latency_us, cross.bandwidth, cross.latency_us, wire.forward,
   wire.backward, table.C3.rows, .dim, .ids, .optimizer, .buckets, .pooling, .dtype, .placements,
   unit.top.flops, .params, .dots.
   An optimizer without a table is that of all. */
#ifndef PLAN_READ_H
#define PLAN_READ_H
#include "cluster.h"
#include "neo_store.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 16, TEXT = 8192 };
#define PLURAL(n) ((n) == 1 ? "" : "s") /* "1 rank", "2 ranks" */

/* Chance: hours of a rank between failures, seconds of a restart, of and between checkpoints. */
typedef struct risk {
    neo_jitter jitter;
    double mtbf, restart, every, takes;
} risk;
typedef struct job {
    neo_table_desc *tables;
    double *ids;       /* of a sample, for each table */
    unsigned *allowed; /* placements of each table, as bits; 0: all */
    neo_bags_desc bags;
    neo_plan_desc desc;
    neo_bag_optim_kind optimizer; /* of the tables to come */
    neo_dense_unit *units;
    int32_t unit_count;
    neo_tier_desc tier; /* memory_bytes 0: all rows are in memory */
    const neo_profile *profile; /* or NULL */
    int32_t threads;
    int on_device; /* the cluster's figures are of one */
    risk risk;
} job;

typedef struct source {
    const char *path;
    int line; /* 0: an option on the command line */
    char text[TEXT];
    char *word[WORDS];
    int words;
} source;

static void fail_at(const source *s, const char *what, const char *word) {
    fprintf(stderr, s->line ? "plan: %s:%d: " : "plan: %s: ", s->path, s->line);
    fprintf(stderr, "%s%s%s%s\n", what, word[0] ? " '" : "", word, word[0] ? "'" : "");
    exit(1);
}

static void *more(void *p, size_t bytes) {
    p = realloc(p, bytes);
    if (!p) {
        fprintf(stderr, "plan: out of memory\n");
        exit(1);
    }
    return p;
}

/* A number of [least, most], with a unit: see cluster_parse. */
static double number_of(const source *s, const char *text, int is_bytes, double least,
                        double most) {
    double value;
    char what[160];
    if (cluster_parse(text, is_bytes, least, most, &value)) return value;
    snprintf(what, sizeof what, "not a number from %g to %g (K, M, G, T, KiB, MiB, GiB, TiB may "
             "follow, as in 32GiB):", least, most);
    fail_at(s, what, text);
    return 0;
}
static double number(const source *s, const char *text, double least, double most) {
    return number_of(s, text, 0, least, most);
}
/* One that counts something. */
static int64_t whole(const source *s, const char *text, double least, double most) {
    const double value = number(s, text, least, most);
    if (value != (double)(int64_t)value) fail_at(s, "not a whole number:", text);
    return (int64_t)value;
}

static const char *word_at(const source *s, int i) {
    if (i >= s->words) fail_at(s, "more words are wanted after", s->word[0]);
    return s->word[i];
}

static double number_at(const source *s, int i, double least, double most) {
    return number(s, word_at(s, i), least, most);
}
static int64_t whole_at(const source *s, int i, double least, double most) {
    return whole(s, word_at(s, i), least, most);
}

/* Whether word i is the second of two. */
static int either_at(const source *s, int i, const char *const words[2]) {
    char text[64];
    if (strcmp(word_at(s, i), words[1]) == 0) return 1;
    snprintf(text, sizeof text, "neither %s nor %s:", words[0], words[1]);
    if (strcmp(s->word[i], words[0])) fail_at(s, text, s->word[i]);
    return 0;
}

/* ---- lines of a model ---- */

static unsigned placements_of(const source *s, char *names) {
    unsigned bits = 0;
    for (char *name = names, *next; name; name = next) {
        neo_placement p = NEO_TABLE_WISE;
        next = strchr(name, ',');
        if (next) *next++ = 0;
        if (neo_placement_parse(name, &p) != NEO_OK) fail_at(s, "not a placement:", name);
        bits |= 1u << p;
    }
    return bits;
}

static neo_pooling pooling_of(const source *s, const char *name) {
    if (strcmp(name, "mean") == 0) return NEO_POOL_MEAN;
    if (strcmp(name, "none") == 0) return NEO_POOL_NONE;
    if (strcmp(name, "sum")) fail_at(s, "not sum, mean or none:", name);
    return NEO_POOL_SUM;
}

static neo_dtype rows_dtype_of(const source *s, const char *name) {
    neo_dtype dtype = NEO_F32;
    if (!cluster_rows_dtype(name, &dtype)) fail_at(s, "not f32, f16, bf16 or i8:", name);
    return dtype;
}

/* A word NAME=VALUE of a table. */
static void set_of_table(const source *s, char *word, neo_table_desc *t, unsigned *allowed) {
    static const char unknown[] = "not buckets=, pooling=, dtype= or placements=:";
    char *value = strchr(word, '=');
    if (!value) fail_at(s, unknown, word);
    *value++ = 0;
    if (strcmp(word, "buckets") == 0) t->row_buckets = (int32_t)whole(s, value, 1, 4096);
    else if (strcmp(word, "pooling") == 0) t->pooling = pooling_of(s, value);
    else if (strcmp(word, "dtype") == 0) t->dtype = rows_dtype_of(s, value);
    else if (strcmp(word, "placements") == 0) *allowed |= placements_of(s, value);
    else fail_at(s, unknown, word);
}

/* A name, in memory of its own. */
static char *name_of(const source *s, const char *word) {
    char *name = more(NULL, strlen(word) + 1), *to = name;
    for (const char *p = word; *p; p++) {
        const char digits[3] = {p[0] == '%' ? p[1] : 0, p[0] == '%' && p[1] ? p[2] : 0, 0};
        *to++ = *p;
        if (*p != '%') continue;
        to[-1] = (char)strtol(digits, NULL, 16);
        if (strspn(digits, "0123456789abcdefABCDEF") != 2 || !to[-1])
            fail_at(s, "% begins no byte of two digits in", word);
        p += 2;
    }
    *to = 0;
    return name;
}

/* No model has as many. What reading and planning take grows with their square. */
enum { MOST_TABLES = 16384 };

static void add_table(job *j, source *s) {
    int n = j->bags.table_count;
    if (n == MOST_TABLES) fail_at(s, "more tables than plan takes, 16384:", word_at(s, 1));
    size_t count = (size_t)n + 1;
    char *end;
    const char *size = word_at(s, 2);
    neo_table_desc t = {.rows = strtoll(size, &end, 10), .optim.kind = j->optimizer};
    if (end == size || *end != 'x' || t.rows < 1)
        fail_at(s, "not rows x columns, as 1000x64:", size);
    t.dim = whole(s, end + 1, 1, 65536);
    t.name = name_of(s, s->word[1]);
    for (int i = 0; i < n; i++)
        if (strcmp(j->tables[i].name, t.name) == 0) fail_at(s, "a second table", t.name);
    j->tables = more(j->tables, count * sizeof *j->tables);
    j->ids = more(j->ids, count * sizeof *j->ids);
    j->allowed = more(j->allowed, count * sizeof *j->allowed);
    j->ids[n] = number_at(s, 3, 0, 1e6);
    j->allowed[n] = 0;
    for (int i = 4; i < s->words; i++) set_of_table(s, s->word[i], &t, &j->allowed[n]);
    j->tables[n] = t;
    j->bags.table_count++;
}

/* ---- dense units ---- */

/* Seconds are by flops. */
static void no_widths(neo_dense_unit *u) {
    free((void *)(uintptr_t)u->widths);
    u->widths = NULL;
    u->width_count = 0;
}
/* Widths of an MLP, as 13-512-256: two flops a weight. */
static void mlp_unit(const source *s, char *widths, neo_dense_unit *u) {
    double before = 0;
    int64_t *all = more(NULL, (strlen(widths) / 2 + 2) * sizeof *all);
    no_widths(u);
    u->widths = all;
    for (char *w = widths, *next; w; w = next) {
        next = strchr(w, '-');
        if (next) *next++ = 0;
        double width = (double)whole(s, w, 1, 1e6);
        all[u->width_count++] = (int64_t)width;
        if (before > 0) u->flops += 2 * before * width;
        if (before > 0) u->params += (int64_t)(before * width + width);
        before = width;
    }
}
/* dots=27x16: rows that neo_interact pairs, and their columns. */
static void dots_unit(const source *s, const char *value, neo_dense_unit *u) {
    char *end;
    const double rows = strtod(value, &end);
    if (*end != 'x' || !(rows >= 2 && rows <= 1e6) || rows != (double)(int64_t)rows)
        fail_at(s, "not rows x columns, whole numbers as in 27x16:", value);
    u->dots[0] = (int64_t)rows, u->dots[1] = whole(s, end + 1, 1, 65536);
    u->flops = rows * (rows - 1) * (double)u->dots[1];
    no_widths(u);
}
/* flops=4e4, params=1000 or dots=27x16. */
static void set_of_unit(const source *s, const char *name, const char *value, neo_dense_unit *u) {
    if (strcmp(name, "flops") == 0) u->flops = number(s, value, 0, 1e18), no_widths(u);
    else if (strcmp(name, "params") == 0) u->params = (int64_t)number(s, value, 0, 1e15);
    else if (strcmp(name, "dots") == 0) dots_unit(s, value, u);
    else fail_at(s, "not flops, params or dots:", name);
}
static void add_unit(job *j, source *s) {
    neo_dense_unit u = {.after = strcmp(word_at(s, 2), "after") == 0};
    u.name = name_of(s, s->word[1]);
    if (j->unit_count == 4096) fail_at(s, "more units than plan takes, 4096:", u.name);
    if (!u.after && strcmp(s->word[2], "beside"))
        fail_at(s, "neither beside nor after:", s->word[2]);
    for (int i = 0; i < j->unit_count; i++)
        if (strcmp(j->units[i].name, u.name) == 0) fail_at(s, "a second unit", u.name);
    for (int i = 3; i < s->words || i == 3; i++) {
        char *value = strchr(word_at(s, i), '=');
        if (value) *value++ = 0;
        if (value) set_of_unit(s, s->word[i], value, &u);
        else mlp_unit(s, s->word[i], &u);
    }
    if (u.width_count < 2) no_widths(&u);
    j->units = more(j->units, ((size_t)j->unit_count + 1) * sizeof *j->units);
    j->units[j->unit_count++] = u;
}

static neo_wire wire_at(const source *s, int i) {
    neo_wire wire = NEO_WIRE_F32;
    if (neo_wire_parse(word_at(s, i), &wire) != NEO_OK)
        fail_at(s, "not a wire (f32, f16, bf16, i8 ...):", s->word[i]);
    return wire;
}

static neo_bag_optim_kind optimizer_at(const source *s, int i) {
    int k = 0;
    while (k < NEO_BAG_OPTIM_COUNT && strcmp(word_at(s, i), OPTIMIZERS[k])) k++;
    if (k == NEO_BAG_OPTIM_COUNT) fail_at(s, "not an optimizer of tables:", s->word[i]);
    return (neo_bag_optim_kind)k;
}

/* Takes the words of a line; returns how many it may have, 0 if the first is unknown. */
static int model_line(job *j, source *s) {
    const char *what = s->word[0];
    if (strcmp(what, "table") == 0) {
        add_table(j, s);
        return s->words;
    }
    if (strcmp(what, "unit") == 0) {
        add_unit(j, s);
        return s->words;
    }
    if (strcmp(what, "wire") == 0) {
        j->desc.wire_forward = wire_at(s, 1);
        j->desc.wire_backward = wire_at(s, 2);
        return 3;
    }
    if (strcmp(what, "batch") == 0) j->bags.max_batch = whole_at(s, 1, 1, 1e12);
    else if (strcmp(what, "bottom_flops") == 0)
        j->desc.dense_flops_bottom = number_at(s, 1, 0, 1e18);
    else if (strcmp(what, "top_flops") == 0) j->desc.dense_flops_top = number_at(s, 1, 0, 1e18);
    else if (strcmp(what, "dense_params") == 0)
        j->desc.dense_params = (int64_t)number_at(s, 1, 0, 1e15);
    else if (strcmp(what, "skew") == 0) j->desc.skew = number_at(s, 1, 0, 100);
    else if (strcmp(what, "weighted") == 0)
        j->desc.weighted = either_at(s, 1, (const char *const[]){"off", "on"});
    else if (strcmp(what, "distinct") == 0)
        j->bags.inverse = 1, j->desc.distinct = number_at(s, 1, 1e-9, 1);
    else if (strcmp(what, "optimizer") == 0) j->optimizer = optimizer_at(s, 1);
    else return 0;
    return 2;
}

/* ---- lines of a cluster ---- */

/* What plan --calibrate prints. Returns the words of the line; 0: it says something else. */
static int measured_line(neo_cluster *c, const source *s) {
    const char *what = s->word[0];
    const int curve = strcmp(what, "rows") == 0, layer = strcmp(what, "layer") == 0;
    const int first = curve || layer ? 2 : 1;
    const char *which = first == 2 ? word_at(s, 1) : "";
    int count = 0;
    const cluster_number to = cluster_place(c, what, which, &count);
    if (!to.value && curve) fail_at(s, "no curve:", which);
    if (!to.value && layer)
        fail_at(s, "no way of a layer (forward, backward, last, dots ...):", which);
    if (!to.value) return 0;
    for (int i = 0; i < count; i++)
        to.value[i] = number_of(s, word_at(s, first + i), cluster_is_bytes(what, i), to.least,
                                to.most);
    return first + count;
}

/* As model_line. */
static int cluster_line(job *j, source *s) {
    const char *what = s->word[0], *which = s->words > 1 ? s->word[1] : "";
    neo_cluster *c = &j->desc.cluster;
    double v[4] = {0};
    const int measured = measured_line(c, s), is_tier = strcmp(what, "tier") == 0;
    if (measured) return measured;
    if (cluster_is_past(s->path, s->line, what)) return s->words;
    if (is_tier) which = word_at(s, 1);
    const cluster_other *line = cluster_find(what, which);
    if (!line && is_tier) fail_at(s, "neither dram nor disk:", which);
    if (!line) return 0;
    for (int i = 0; i < line->count; i++) {
        const double least = line->of[i].least, most = line->of[i].most;
        v[i] = line->is_whole ? (double)whole_at(s, 1 + i, least, most)
                              : number_of(s, word_at(s, 1 + is_tier + i),
                                          cluster_is_bytes(what, i), least, most);
    }
    const int end = 1 + is_tier + line->count;
    const int second = line->words[0] ? either_at(s, end, line->words) : 0;
    if (strcmp(what, "ranks") == 0) c->ranks = (int32_t)v[0], c->ranks_per_node = (int32_t)v[1];
    else if (strcmp(what, "threads") == 0) j->threads = (int32_t)v[0];
    else if (strcmp(what, "memory") == 0) c->memory_bytes = (int64_t)v[0];
    else if (strcmp(what, "jitter") == 0)
        j->risk.jitter = (neo_jitter){.compute = v[0], .link = v[1], .straggler = v[2],
                                      .slow = v[3]};
    else if (strcmp(what, "failures") == 0) j->risk.mtbf = v[0], j->risk.restart = v[1];
    else if (strcmp(what, "checkpoint") == 0) j->risk.every = v[0], j->risk.takes = v[1];
    else if (strcmp(what, "pipeline") == 0) j->desc.pipeline = second;
    else if (strcmp(what, "device") == 0) j->on_device = second;
    else if (!is_tier) {
        neo_link *link = &c->link[what[0] == 'l' ? NEO_LEVEL_LOCAL : NEO_LEVEL_CROSS];
        link->bandwidth = v[0], link->latency_us = v[1];
    } else if (line->words[0]) {
        j->tier.memory_bytes = (int64_t)v[0];
        j->tier.evict = second ? NEO_EVICT_LFU : NEO_EVICT_LRU;
    } else c->file_bytes = (int64_t)v[0], c->file_bandwidth = v[1], c->file_row_us = v[2];
    return end + (line->words[0] != NULL);
}

/* ---- the file ---- */

/* Cuts a line, whose end is off, into words. */
static void split(source *s) {
    s->words = 0;
    for (char *word, *rest = s->text; (word = cluster_word(&rest)) != NULL;) {
        if (s->words == WORDS) fail_at(s, "too many words", "");
        s->word[s->words++] = word;
    }
}

/* line: model_line or cluster_line. */
static void read_file(job *j, const char *path, const char *kind, int (*line)(job *, source *)) {
    source s = {.path = path};
    static const char *const often[] = {"table", "unit", "optimizer"}; /* of a model */
    char text[100], name[64];
    cluster_seen seen = {.count = 0};
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "plan: %s: cannot open: %s\n", path, strerror(errno));
        exit(1);
    }
    while (fgets(s.text, sizeof s.text, f)) {
        s.line++;
        if (s.line == 1 && (unsigned char)s.text[0] >= 0xFE) /* no byte of UTF-8 */
            fail_at(&s, "is UTF-16: iconv -f UTF-16 -t UTF-8 makes text of it", "");
        if (!strchr(s.text, '\n') && !feof(f)) fail_at(&s, "the line is too long", "");
        if (s.line == 1 && strncmp(s.text, "\xEF\xBB\xBF", 3) == 0) /* a mark of UTF-8 */
            memmove(s.text, s.text + 3, strlen(s.text) - 2);
        s.text[strcspn(s.text, "#\n")] = 0;
        size_t end = strcspn(s.text, "\r");
        if (s.text[end] && s.text[end + 1])
            fail_at(&s, "holds \\r inside: if that alone ends lines, use tr '\\r' '\\n'", "");
        s.text[end] = 0;
        split(&s);
        if (!s.words) continue;
        int most = line(j, &s);
        snprintf(text, sizeof text, "nothing that a %s has:", kind);
        if (!most) fail_at(&s, text, s.word[0]);
        if (s.words > most) fail_at(&s, "more than belongs on the line:", s.word[most]);
        int once = 1;
        for (int i = 0; i < 3 && line == model_line; i++) once &= strcmp(s.word[0], often[i]) != 0;
        const char *second = s.words > 1 ? s.word[1] : "";
        const int before = once ? cluster_again(&seen, s.word[0], second, s.line, name) : 0;
        snprintf(text, sizeof text, "a second line, after line %d:", before);
        if (before) fail_at(&s, text, name);
    }
    if (line == cluster_line) cluster_note_lacks(&seen, "plan:", path);
    if (ferror(f)) fail_at(&s, strerror(errno), "");
    fclose(f);
}

/* ---- what-if ---- */

/* table.NAME.FIELD or unit.NAME.FIELD; name: from NAME on. */
static void set_named(job *j, const source *s, int is_table, char *name, char *value) {
    char *field = strrchr(name, '.');
    int i = 0, count = is_table ? j->bags.table_count : j->unit_count;
    if (!field) fail_at(s, "not table.NAME.FIELD or unit.NAME.FIELD:", name);
    *field++ = 0;
    char *wanted = name_of(s, name);
    while (i < count && strcmp(is_table ? j->tables[i].name : j->units[i].name, wanted)) i++;
    free(wanted);
    if (i == count) fail_at(s, is_table ? "no table has the name" : "no unit has the name", name);
    if (!is_table) {
        set_of_unit(s, field, value, &j->units[i]);
        return;
    }
    neo_table_desc *t = &j->tables[i];
    if (strcmp(field, "rows") == 0) t->rows = whole(s, value, 1, 1e15);
    else if (strcmp(field, "dim") == 0) t->dim = whole(s, value, 1, 65536);
    else if (strcmp(field, "ids") == 0) j->ids[i] = number(s, value, 0, 1e6);
    else if (strcmp(field, "optimizer") == 0) t->optim.kind = optimizer_at(s, 1);
    else {
        char word[TEXT];
        if (strcmp(field, "buckets") && strcmp(field, "pooling") && strcmp(field, "dtype") &&
            strcmp(field, "placements"))
            fail_at(s, "not .rows, .dim, .ids, .optimizer, .buckets, .pooling, .dtype or "
                    ".placements:", field);
        snprintf(word, sizeof word, "%s=%s", field, value);
        if (strcmp(field, "placements") == 0) j->allowed[i] = 0;
        set_of_table(s, word, t, &j->allowed[i]);
    }
}

/* A number of a line that has several. Returns whether there is one of that name. */
static int set_number(job *j, const source *s) {
    neo_cluster *c = &j->desc.cluster;
    neo_link *local = &c->link[NEO_LEVEL_LOCAL], *cross = &c->link[NEO_LEVEL_CROSS];
    const cluster_number links[] = {{"local.bandwidth", &local->bandwidth, 1, 1e15},
                                    {"local.latency_us", &local->latency_us, 0, 1e9},
                                    {"cross.bandwidth", &cross->bandwidth, 1, 1e15},
                                    {"cross.latency_us", &cross->latency_us, 0, 1e9}};
    const char *name = s->word[0];
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        if (strcmp(name, links[i].name) == 0) {
            *links[i].value = number_at(s, 1, links[i].least, links[i].most);
            return 1;
        }
    if (strcmp(name, "ranks") == 0 && s->words == 2) c->ranks = (int32_t)whole_at(s, 1, 1, 4096);
    else if (strcmp(name, "ranks_per_node") == 0)
        c->ranks_per_node = (int32_t)whole_at(s, 1, 1, 4096);
    else if (strcmp(name, "wire.forward") == 0) j->desc.wire_forward = wire_at(s, 1);
    else if (strcmp(name, "wire.backward") == 0) j->desc.wire_backward = wire_at(s, 1);
    else return 0;
    return 1;
}

/* text: NAME=VALUE. */
static void what_if(job *j, const char *text) {
    static source s;
    char path[100];
    snprintf(path, sizeof path, "--set %.90s", text);
    s = (source){.path = path};
    if (strlen(text) >= TEXT) fail_at(&s, "too long", "");
    strcpy(s.text, text);
    char *value = strchr(s.text, '=');
    if (!value || value == s.text || !value[1]) fail_at(&s, "not NAME=VALUE", "");
    *value = ' ';
    if (strncmp(s.text, "rows.", 5) == 0 || strncmp(s.text, "tier.", 5) == 0) s.text[4] = ' ';
    split(&s);
    int is_table = strncmp(s.word[0], "table.", 6) == 0, most = 2;
    if (s.words < 2) fail_at(&s, "not NAME=VALUE", "");
    if (is_table || strncmp(s.word[0], "unit.", 5) == 0)
        set_named(j, &s, is_table, strchr(s.word[0], '.') + 1, s.word[1]);
    else if (!set_number(j, &s)) {
        most = model_line(j, &s);
        if (!most) most = cluster_line(j, &s);
        if (!most) fail_at(&s, "nothing that a model or a cluster has:", s.word[0]);
        for (int t = 0; t < j->bags.table_count && strcmp(s.word[0], "optimizer") == 0; t++)
            j->tables[t].optim.kind = j->optimizer;
    }
    if (s.words > most) fail_at(&s, "more than belongs there:", s.word[most]);
}

/* A line of a cluster file, with a remark, or, of --json, a member of an object that has others. */
static void print_figures(int json, const char *what, const char *which, int count,
                          const double *x, const char *remark) {
    printf(json ? ",\n  \"%s%s%s\": [" : "%s%s%s ", what, which[0] ? " " : "", which);
    for (int i = 0; i < count; i++) printf("%s%.9g", !i ? "" : json ? ", " : " ", x[i]);
    printf("%s%s", json ? "]" : remark, json ? "" : "\n");
}
static void missing(const char *path, const char *what) {
    fprintf(stderr, "plan: %s: has no %s\n", path, what);
    exit(1);
}
#endif
