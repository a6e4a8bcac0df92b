/* plan.c: where to put the embedding tables of a model on a cluster. Reads a model and a cluster as text (samples are in
   examples/plans), searches a plan and prints it: what lies where, what every rank holds, what a step will take.

     cc -O2 -I. examples/plan.c -o plan -lm -lpthread
     ./plan examples/plans/a1.model examples/plans/zionex.cluster --svg a1.svg --out a1.plan

   A model file, one thing a line, # begins a comment:
     batch 65536                      samples of a step over all ranks; required
     bottom_flops 18e6                per sample, forward: dense layers beside the lookup; likewise
     top_flops 71e6                   after it
     dense_params 5e6
     wire bf16 bf16                   how pooled rows and their gradients travel: f32 (default), bf16, i8 ...
     optimizer rowwise_adagrad        of the tables that follow: sgd, adagrad, rowwise_adagrad (default), adam ...
     table NAME 1000000x64 20 buckets=8 pooling=sum placements=tw,cw
                                      rows x columns, ids per sample; the rest may be left out
   A cluster file:
     ranks 128 8                      ranks, and ranks of a node; required
     memory 32GiB                     that each may use for tables and what goes with them
     memory_bandwidth 1300e9          bytes per second
     flops 10e12
     local 200e9 2                    links inside a node: bytes per second of a rank, latency in microseconds
     cross 7e9 10                     and between nodes
     lookup 1.2                       measured factors: see neo_calibration; likewise update, copy, bucketed,
                                      id, sort, row, kept
     pipeline on                      exchanges run beside computation */
#define NEO_IMPLEMENTATION
#include "neo_fsdp.h"
#include "plans/sets.h"

enum { WORDS = 16, TEXT = 8192 };

typedef struct job {
    neo_table_desc *tables;
    double *ids;
    unsigned *allowed;
    neo_bags_desc bags;
    neo_plan_desc desc;
    neo_bag_optim_kind optimizer; /* of the tables to come */
} job;

static const char *const OPTIMIZERS[NEO_BAG_OPTIM_COUNT] = {
    "sgd", "adagrad", "rowwise_adagrad", "adam", "partial_adam", "lamb", "partial_lamb", "lars"};
static const char *const PHASES[] = {"ids", "lookup", "forward", "backward", "update"};

/* ---- reading: a line is words; what is wrong is said with file and line ---- */
typedef struct source {
    const char *path;
    int line;
    char text[TEXT];
    char *word[WORDS];
    int words;
} source;

static void fail_at(const source *s, const char *what, const char *word) {
    fprintf(stderr, s->line ? "plan: %s:%d: " : "plan: %s: ", s->path, s->line); /* an option has no lines */
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
/* A number of [least, most], with a unit: K, M, G, T, KiB, MiB, GiB, TiB. */
static double number(const source *s, const char *text, double least, double most) {
    static const struct {
        const char *name;
        double factor;
    } UNITS[] = {{"", 1},
                 {"K", 1e3},
                 {"M", 1e6},
                 {"G", 1e9},
                 {"T", 1e12},
                 {"KiB", 1024.0},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    char *end;
    double x = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof UNITS / sizeof UNITS[0]; i++)
        if (strcmp(end, UNITS[i].name) == 0 && x * UNITS[i].factor >= least && x * UNITS[i].factor <= most)
            return x * UNITS[i].factor;
    fail_at(s, "not a number, or out of range (K, M, G, T, KiB, MiB, GiB, TiB may follow, as in 32GiB):", text);
    return 0;
}
static const char *word_at(const source *s, int i) {
    if (i >= s->words) fail_at(s, "more words are wanted after", s->word[0]);
    return s->word[i];
}
static double number_at(const source *s, int i, double least, double most) {
    return number(s, word_at(s, i), least, most);
}
static void add_table(job *j, source *s) {
    int n = j->bags.table_count;
    char *end;
    const char *size = word_at(s, 2);
    j->tables = more(j->tables, ((size_t)n + 1) * sizeof *j->tables);
    j->ids = more(j->ids, ((size_t)n + 1) * sizeof *j->ids);
    j->allowed = more(j->allowed, ((size_t)n + 1) * sizeof *j->allowed);
    neo_table_desc t = {.rows = strtoll(size, &end, 10), .optim.kind = j->optimizer};
    if (end == size || *end != 'x' || t.rows < 1) fail_at(s, "not rows x columns, as 1000x64:", size);
    t.dim = (int64_t)number(s, end + 1, 1, 65536);
    t.name = strcpy(more(NULL, strlen(s->word[1]) + 1), s->word[1]);
    for (int i = 0; i < n; i++)
        if (strcmp(j->tables[i].name, t.name) == 0) fail_at(s, "a second table", t.name);
    j->ids[n] = number_at(s, 3, 0, 1e6);
    j->allowed[n] = 0;
    for (int i = 4; i < s->words; i++) {
        char *value = strchr(s->word[i], '='), *next;
        if (!value) fail_at(s, "not buckets=, pooling= or placements=:", s->word[i]);
        *value++ = 0;
        if (strcmp(s->word[i], "buckets") == 0)
            t.row_buckets = (int32_t)number(s, value, 1, 4096);
        else if (strcmp(s->word[i], "pooling") == 0)
            t.pooling = strcmp(value, "sum") == 0    ? NEO_POOL_SUM
                        : strcmp(value, "mean") == 0 ? NEO_POOL_MEAN
                        : strcmp(value, "none") == 0
                            ? NEO_POOL_NONE
                            : (fail_at(s, "not sum, mean or none:", value), NEO_POOL_SUM);
        else if (strcmp(s->word[i], "placements") == 0)
            for (; value; value = next) {
                neo_placement p = NEO_TABLE_WISE;
                if ((next = strchr(value, ',')) != NULL) *next++ = 0;
                if (neo_placement_parse(value, &p) != NEO_OK) fail_at(s, "not a placement:", value);
                j->allowed[n] |= 1u << p;
            }
        else
            fail_at(s, "not buckets=, pooling= or placements=:", s->word[i]);
    }
    j->tables[n] = t;
    j->bags.table_count++;
}
static neo_wire wire_at(const source *s, int i) {
    neo_wire wire = NEO_WIRE_F32;
    if (neo_wire_parse(word_at(s, i), &wire) != NEO_OK)
        fail_at(s, "not a wire (f32, f16, bf16, i8 ...):", s->word[i]);
    return wire;
}
static int model_line(job *j, source *s) {
    const char *what = s->word[0];
    if (strcmp(what, "table") == 0) {
        add_table(j, s);
        return s->words;
    }
    if (strcmp(what, "batch") == 0)
        j->bags.max_batch = (int64_t)number_at(s, 1, 1, 1e12);
    else if (strcmp(what, "bottom_flops") == 0)
        j->desc.dense_flops_bottom = number_at(s, 1, 0, 1e18);
    else if (strcmp(what, "top_flops") == 0)
        j->desc.dense_flops_top = number_at(s, 1, 0, 1e18);
    else if (strcmp(what, "dense_params") == 0)
        j->desc.dense_params = (int64_t)number_at(s, 1, 0, 1e15);
    else if (strcmp(what, "wire") == 0) {
        j->desc.wire_forward = wire_at(s, 1);
        j->desc.wire_backward = wire_at(s, 2);
        return 3;
    } else if (strcmp(what, "optimizer") == 0) {
        int k = 0;
        while (k < NEO_BAG_OPTIM_COUNT && strcmp(word_at(s, 1), OPTIMIZERS[k])) k++;
        if (k == NEO_BAG_OPTIM_COUNT) fail_at(s, "not an optimizer of tables:", s->word[1]);
        j->optimizer = (neo_bag_optim_kind)k;
    } else
        return 0;
    return 2;
}
static int cluster_line(job *j, source *s) {
    const char *what = s->word[0];
    neo_cluster *c = &j->desc.cluster;
    int local = strcmp(what, "local") == 0;
    if (local || strcmp(what, "cross") == 0) {
        neo_link *link = &c->link[local ? NEO_LEVEL_LOCAL : NEO_LEVEL_CROSS];
        link->bandwidth = number_at(s, 1, 1, 1e15);
        link->latency_us = number_at(s, 2, 0, 1e9);
        return 3;
    }
    if (strcmp(what, "ranks") == 0) {
        c->ranks = (int32_t)number_at(s, 1, 1, 4096);
        c->ranks_per_node = (int32_t)number_at(s, 2, 1, 4096);
        return 3;
    }
    if (strcmp(what, "memory") == 0)
        c->memory_bytes = (int64_t)number_at(s, 1, 1, 1e18);
    else if (strcmp(what, "memory_bandwidth") == 0)
        c->memory_bandwidth = number_at(s, 1, 1, 1e18);
    else if (strcmp(what, "flops") == 0)
        c->flops = number_at(s, 1, 1, 1e21);
    else if (strcmp(what, "lookup") == 0)
        c->calibration.lookup = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "update") == 0)
        c->calibration.update = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "copy") == 0)
        c->calibration.copy = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "bucketed") == 0)
        c->calibration.bucketed = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "id") == 0)
        c->calibration.id = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "sort") == 0)
        c->calibration.sort = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "row") == 0)
        c->calibration.row = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "kept") == 0)
        c->calibration.kept = number_at(s, 1, 1e-6, 1e6);
    else if (strcmp(what, "pipeline") == 0) {
        j->desc.pipeline = strcmp(word_at(s, 1), "on") == 0;
        if (!j->desc.pipeline && strcmp(s->word[1], "off")) fail_at(s, "neither on nor off:", s->word[1]);
    } else
        return 0;
    return 2;
}
/* line: takes a line's words; returns how many it may have, 0 if it does not know the first. */
static void read_file(job *j, const char *path, const char *kind, int (*line)(job *, source *)) {
    source s = {.path = path};
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "plan: %s: cannot open: %s\n", path, strerror(errno));
        exit(1);
    }
    while (fgets(s.text, sizeof s.text, f)) {
        s.line++;
        if (!strchr(s.text, '\n') && !feof(f)) fail_at(&s, "the line is too long", "");
        s.text[strcspn(s.text, "#\r\n")] = 0;
        s.words = 0;
        for (char *p = strtok(s.text, " \t"); p; p = strtok(NULL, " \t")) {
            if (s.words == WORDS) fail_at(&s, "too many words", "");
            s.word[s.words++] = p;
        }
        if (!s.words) continue;
        int most = line(j, &s);
        if (!most) {
            char text[100];
            snprintf(text, sizeof text, "nothing that a %s has:", kind);
            fail_at(&s, text, s.word[0]);
        }
        if (s.words > most) fail_at(&s, "more than belongs on the line:", s.word[most]);
    }
    if (ferror(f)) fail_at(&s, "cannot read on", "");
    fclose(f);
}
static void missing(const char *path, const char *what) {
    fprintf(stderr, "plan: %s: has no %s\n", path, what);
    exit(1);
}

/* ---- a generated set as a model file ---- */
static int print_set(const char *name) {
    static plan_set_table t[PLAN_SET_MOST];
    for (int i = 0; i < PLAN_SET_COUNT; i++) {
        const plan_set *set = &PLAN_SETS[i];
        if (strcmp(set->name, name) != 0) continue;
        plan_set_make(set, t);
        printf(
            "# %s: %d generated tables with %.4g parameters, %g columns and %g ids per bag in the mean, and\n"
            "# %g MFLOP per sample in dense layers (a fifth of them in the bottom MLP). Written by plan --set "
            "%s.\n"
            "batch 65536\nbottom_flops %g\ntop_flops %g\nwire bf16 bf16\noptimizer rowwise_adagrad\n",
            name, set->tables, set->parameters, set->dim, set->pooling, set->mflops, name, 0.2e6 * set->mflops,
            0.8e6 * set->mflops);
        for (int k = 0; k < set->tables; k++) {
            printf("table %s_%04d %lldx%lld %lld", name, k, (long long)t[k].rows, (long long)t[k].dim,
                   (long long)t[k].pooling);
            if (t[k].row_buckets > 1) printf(" buckets=%d", t[k].row_buckets);
            printf("\n");
        }
        return 0;
    }
    fprintf(stderr, "plan: --set %s: not a1, a2, f1 or i1\n", name);
    return 1;
}

/* ---- printing ---- */
static const char *seconds(double x) {
    static char text[8][32];
    static int at;
    at = (at + 1) % 8;
    if (x >= 1)
        snprintf(text[at], sizeof text[at], "%.3g s", x);
    else if (x >= 1e-3)
        snprintf(text[at], sizeof text[at], "%.3g ms", x * 1e3);
    else
        snprintf(text[at], sizeof text[at], "%.3g us", x * 1e6);
    return text[at];
}
static const char *bytes(double x) {
    static char text[8][32];
    static int at;
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; x >= 1024 && u < 4; u++) x /= 1024;
    at = (at + 1) % 8;
    snprintf(text[at], sizeof text[at],
             u && x < 10    ? "%.2f %s"
             : u && x < 100 ? "%.1f %s"
                            : "%.0f %s",
             x, UNITS[u]);
    return text[at];
}
static double rank_bytes(neo_plan_rank r) {
    return (double)r.weight_bytes + (double)r.state_bytes + (double)r.buffer_bytes;
}
static void rank_phases(neo_plan_rank r, double *x) {
    x[0] = r.ids, x[1] = r.lookup, x[2] = r.forward, x[3] = r.backward, x[4] = r.update;
}
static void print_tables(const job *j, const neo_plan *plan, int verbose) {
    int count[NEO_PLACEMENT_COUNT] = {0}, warned = 0;
    double size[NEO_PLACEMENT_COUNT] = {0}, all = 0;
    char text[4000];
    for (int t = 0; t < j->bags.table_count; t++) {
        double n = (double)j->tables[t].rows * (double)j->tables[t].dim;
        count[neo_plan_placement(plan, t)]++;
        size[neo_plan_placement(plan, t)] += n;
        all += n;
        if (verbose) {
            (void)neo_plan_why(plan, t, text, sizeof text);
            printf("%s, %lld x %lld, %g ids per sample\n", j->tables[t].name, (long long)j->tables[t].rows,
                   (long long)j->tables[t].dim, j->ids[t]);
            for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n")) printf("    %s\n", p);
        }
        if (neo_plan_warning(plan, t, text, sizeof text)) {
            if (verbose || warned++ < 3) printf("warning: %s\n", text);
        }
    }
    if (warned > 3) printf("warning: and %d tables more (--verbose)\n", warned - 3);
    printf("\nplacement  tables  parameters\n");
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++)
        if (count[p])
            printf("%-9s  %6d  %8.4g  %4.1f %%\n", neo_placement_name((neo_placement)p), count[p], size[p],
                   100 * size[p] / all);
}
static void print_ranks(const job *j, const neo_plan *plan, int verbose) {
    int ranks = j->desc.cluster.ranks;
    neo_plan_rank sum = {0};
    double load = 0, most = 0, least = 1e300;
    for (int r = 0; r < ranks; r++) {
        neo_plan_rank x = neo_plan_rank_of(plan, r);
        if (verbose && r == 0) printf("\nrank     weights      state    buffers       load\n");
        if (verbose)
            printf("%4d  %10s %10s %10s %10s\n", r, bytes((double)x.weight_bytes), bytes((double)x.state_bytes),
                   bytes((double)x.buffer_bytes), seconds(x.seconds));
        sum.weight_bytes += x.weight_bytes;
        sum.state_bytes += x.state_bytes;
        sum.buffer_bytes += x.buffer_bytes;
        load += x.seconds / ranks;
        if (rank_bytes(x) > most) most = rank_bytes(x);
        if (rank_bytes(x) < least) least = rank_bytes(x);
    }
    neo_plan_step s = neo_plan_step_of(plan);
    printf("\na rank holds %s in the mean (weights %s, state %s, buffers %s), from %s to %s (rank %d)\n",
           bytes(rank_bytes(sum) / ranks), bytes((double)sum.weight_bytes / ranks),
           bytes((double)sum.state_bytes / ranks), bytes((double)sum.buffer_bytes / ranks), bytes(least),
           bytes(most), s.fullest_rank);
    if (j->desc.cluster.memory_bytes) printf("    of %s\n", bytes((double)j->desc.cluster.memory_bytes));
    printf("load of a rank: %s in the mean, %s on rank %d (%.3f of the mean)\n", seconds(load),
           seconds(load * s.balance), s.busiest_rank, s.balance);
    printf("\nstep: ids %s, lookup %s, pooled rows %s, bottom %s, top %s (forward),\n"
           "    gradients %s, update %s, dense gradients %s\n",
           seconds(s.ids), seconds(s.lookup), seconds(s.forward), seconds(s.bottom), seconds(s.top),
           seconds(s.backward), seconds(s.update), seconds(s.reduce));
    printf("    one after another %s, %.4g samples/s; pipelined %s, %.4g samples/s\n", seconds(s.plain),
           (double)j->bags.max_batch / s.plain, seconds(s.pipelined), (double)j->bags.max_batch / s.pipelined);
}

static void print_json(const job *j, const neo_plan *plan) {
    neo_plan_step s = neo_plan_step_of(plan);
    int64_t count;
    printf("{\"ranks\": %d, \"ranks_per_node\": %d, \"batch\": %lld, \"digest\": \"%016llx\",\n \"step\": "
           "{\"plain\": %.9g, "
           "\"pipelined\": %.9g, \"ids\": %.9g, \"lookup\": %.9g, \"forward\": %.9g, \"bottom\": %.9g, "
           "\"top\": %.9g, "
           "\"backward\": %.9g, \"update\": %.9g, \"reduce\": %.9g, \"balance\": %.9g},\n \"tables\": [",
           j->desc.cluster.ranks, neo_plan_desc_of(plan)->cluster.ranks_per_node, (long long)j->bags.max_batch,
           (unsigned long long)neo_plan_digest(plan), s.plain, s.pipelined, s.ids, s.lookup, s.forward,
           s.bottom, s.top, s.backward, s.update, s.reduce, s.balance);
    for (int t = 0; t < j->bags.table_count; t++) {
        const neo_piece *p = neo_plan_table_pieces(plan, t, &count);
        printf("%s\n  {\"name\": \"", t ? "," : "");
        for (const char *c = j->tables[t].name; *c; c++)
            printf(*c == '"' || *c == '\\' ? "\\%c" : (unsigned char)*c < 32 ? "\\u%04x" : "%c", *c);
        printf("\", \"rows\": %lld, \"dim\": %lld, \"placement\": \"%s\", \"pieces\": [",
               (long long)j->tables[t].rows, (long long)j->tables[t].dim,
               neo_placement_name(neo_plan_placement(plan, t)));
        for (int64_t i = 0; i < count; i++) /* rank, first row, rows, first column, columns */
            printf("%s[%d, %lld, %lld, %lld, %lld]", i ? ", " : "", p[i].rank, (long long)p[i].first_row,
                   (long long)p[i].rows, (long long)p[i].first_col, (long long)p[i].cols);
        printf("]}");
    }
    printf("],\n \"rank\": [");
    for (int r = 0; r < j->desc.cluster.ranks; r++) {
        neo_plan_rank x = neo_plan_rank_of(plan, r);
        printf("%s\n  {\"weight_bytes\": %lld, \"state_bytes\": %lld, \"buffer_bytes\": %lld, \"ids\": %.9g, "
               "\"lookup\": %.9g, "
               "\"forward\": %.9g, \"backward\": %.9g, \"update\": %.9g}",
               r ? "," : "", (long long)x.weight_bytes, (long long)x.state_bytes, (long long)x.buffer_bytes,
               x.ids, x.lookup, x.forward, x.backward, x.update);
    }
    printf("]}\n");
}

/* ---- a picture: a bar for each rank, of memory by placement and of time by phase ---- */
static const char *const COLORS[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2",
                                     "#72b7b2", "#e45756", "#eeca3b", "#9d9d9d"};
enum { SVG_WIDTH = 1000, SVG_BARS = 900, SVG_LEFT = 80, SVG_HEIGHT = 260 };

/* part: [ranks][parts]. */
static void svg_chart(FILE *f, double top, const char *title, const char *most_text, int ranks, int parts,
                      const double *part, const char *const *names, double most) {
    double width = (double)SVG_BARS / ranks, gap = width > 4 ? 1 : 0, legend = SVG_LEFT;
    fprintf(f, "<text x=\"%d\" y=\"%g\" font-weight=\"bold\">%s</text>\n", SVG_LEFT, top + 14, title);
    for (int i = 0; i < parts; i++) {
        double used = 0;
        for (int r = 0; r < ranks; r++) used += part[r * parts + i];
        if (used <= 0) continue;
        fprintf(f,
                "<rect x=\"%g\" y=\"%g\" width=\"10\" height=\"10\" fill=\"%s\"/><text x=\"%g\" "
                "y=\"%g\">%s</text>\n",
                legend, top + 23, COLORS[i], legend + 14, top + 32, names[i]);
        legend += 90;
    }
    fprintf(f,
            "<text x=\"%d\" y=\"%g\" text-anchor=\"end\">%s</text><text x=\"%d\" y=\"%g\" "
            "text-anchor=\"end\">0</text>\n",
            SVG_LEFT - 6, top + 50, most_text, SVG_LEFT - 6, top + SVG_HEIGHT);
    fprintf(f, "<path d=\"M%d %g v%g h%d\" fill=\"none\" stroke=\"#999\"/>\n", SVG_LEFT, top + 42,
            SVG_HEIGHT - 42.0, SVG_BARS);
    for (int r = 0; r < ranks; r++) {
        double y = top + SVG_HEIGHT;
        for (int i = 0; i < parts; i++) {
            double h = most > 0 ? part[r * parts + i] / most * (SVG_HEIGHT - 42) : 0;
            if (h <= 0) continue;
            y -= h;
            fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n",
                    SVG_LEFT + r * width, y, width - gap, h, COLORS[i]);
        }
    }
    for (int r = 0; r < ranks; r += (ranks + 15) / 16)
        fprintf(f, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%d</text>\n", SVG_LEFT + (r + 0.5) * width,
                top + SVG_HEIGHT + 14, r);
}
static int write_svg(const job *j, const neo_plan *plan, const char *path) {
    enum { PARTS = NEO_PLACEMENT_COUNT + 1 };
    int ranks = j->desc.cluster.ranks;
    const char *names[PARTS];
    double *memory = more(NULL, (size_t)ranks * PARTS * sizeof *memory),
           *time = more(NULL, (size_t)ranks * 5 * sizeof *time);
    neo_plan_step s = neo_plan_step_of(plan);
    const neo_piece *pieces = neo_plan_pieces(plan, NULL);
    double most = (double)s.most_bytes, load = 0;
    FILE *f = fopen(path, "wb");
    if (!f) {
        fprintf(stderr, "plan: %s: cannot open for writing: %s\n", path, strerror(errno));
        exit(1);
    }
    for (int i = 0; i < NEO_PLACEMENT_COUNT; i++) names[i] = neo_placement_name((neo_placement)i);
    names[NEO_PLACEMENT_COUNT] = "buffers";
    for (int r = 0; r < ranks; r++) {
        int64_t count;
        const int64_t *at = neo_plan_rank_pieces(plan, r, &count);
        neo_plan_rank x = neo_plan_rank_of(plan, r);
        for (int i = 0; i < PARTS; i++) memory[r * PARTS + i] = 0;
        for (int64_t i = 0; i < count; i++) /* state in proportion */
            memory[r * PARTS + neo_plan_placement(plan, pieces[at[i]].table)] +=
                4.0 * (double)pieces[at[i]].rows * (double)pieces[at[i]].cols *
                (1 + (double)x.state_bytes / (double)x.weight_bytes);
        memory[r * PARTS + NEO_PLACEMENT_COUNT] = (double)x.buffer_bytes;
        rank_phases(x, &time[r * 5]);
        if (x.seconds > load) load = x.seconds;
    }
    if (j->desc.cluster.memory_bytes) most = (double)j->desc.cluster.memory_bytes;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            SVG_WIDTH, 2 * SVG_HEIGHT + 80);
    svg_chart(f, 10,
              j->desc.cluster.memory_bytes ? "Memory of each rank, of its budget" : "Memory of each rank",
              bytes(most), ranks, PARTS, memory, names, most);
    svg_chart(f, SVG_HEIGHT + 45, "Load of each rank in a step", seconds(load), ranks, 5, time, PHASES, load);
    fprintf(f, "</svg>\n");
    free(memory);
    free(time);
    int bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        fprintf(stderr, "plan: %s: cannot write\n", path);
        return 1;
    }
    return 0;
}

static const char HELP[] =
    "plan MODEL CLUSTER [options]: where to put the tables of a model; see the comment at the top of "
    "examples/plan.c\n\n"
    "  --verbose        every table, with why it lies so and not otherwise; every rank\n"
    "  --memory 32GiB   of a rank, instead of what the cluster file says\n"
    "  --all tw         every table by one placement: tw, cw, rw, dp, twrw, twcw or grid\n"
    "  --plan FILE      no search: this plan\n"
    "  --out FILE       write the plan, for dlrm --plan FILE\n"
    "  --svg FILE       draw what every rank holds and does\n"
    "  --json           print all of it for a program\n"
    "  --calibrate      measure this machine as a rank, instead of what the cluster file says\n"
    "  --set a1         print a generated model file (a1, a2, f1, i1) and stop\n";

int main(int argc, char **argv) {
    static const char *const NAMES[] = {"--memory", "--all",     "--plan", "--out",       "--svg",
                                        "--set",    "--verbose", "--json", "--calibrate", "--help"};
    enum { OPT_MEMORY, OPT_ALL, OPT_PLAN, OPT_OUT, OPT_SVG, OPT_SET, OPT_VERBOSE, OPT_JSON, OPT_CALIBRATE, OPT_HELP, OPTIONS };
    const char *given[OPTIONS] = {0}, *file[2] = {0};
    int files = 0;
    for (int i = 1; i < argc; i++) {
        int k = 0;
        while (k < OPTIONS && strcmp(argv[i], NAMES[k])) k++;
        if (strcmp(argv[i], "-h") == 0) k = OPT_HELP;
        if (k == OPTIONS && (argv[i][0] == '-' || files == 2))
            return fprintf(stderr, "plan: %s: no such option (--help lists them)\n", argv[i]), 2;
        if (k == OPTIONS)
            file[files++] = argv[i];
        else if (k >= OPT_VERBOSE)
            given[k] = "";
        else if (i + 1 == argc)
            return fprintf(stderr, "plan: %s: needs a value\n", argv[i]), 2;
        else
            given[k] = argv[++i];
    }
    if (given[OPT_HELP]) return printf("%s", HELP), 0;
    if (given[OPT_SET]) return print_set(given[OPT_SET]);
    if (files < 2) return fprintf(stderr, "%s", HELP), 2;
    if (given[OPT_PLAN] && given[OPT_ALL]) return fprintf(stderr, "plan: --plan and --all both say where tables are: leave one out\n"), 2;

    job j = {.optimizer = NEO_BAG_ROWWISE_ADAGRAD};
    read_file(&j, file[0], "model", model_line);
    read_file(&j, file[1], "cluster", cluster_line);
    if (!j.bags.table_count) missing(file[0], "table");
    if (!j.bags.max_batch) missing(file[0], "batch");
    if (!j.desc.cluster.ranks) missing(file[1], "ranks");
    if (given[OPT_MEMORY])
        j.desc.cluster.memory_bytes = (int64_t)number(&(source){.path = "--memory"}, given[OPT_MEMORY], 1, 1e18);
    double ids = 0;
    for (int t = 0; t < j.bags.table_count; t++) ids += j.ids[t];
    j.bags.tables = j.tables;
    j.bags.max_ids = (int64_t)(ids * (double)j.bags.max_batch) + 1;
    j.desc.bags = &j.bags;
    j.desc.ids_per_sample = j.ids;
    j.desc.table_placements = j.allowed;

    neo_ctx *ctx = NULL;
    neo_plan *plan = NULL;
    neo_placement all = NEO_TABLE_WISE;
    neo_status status = neo_ctx_create(NULL, &ctx);
    if (status == NEO_OK && given[OPT_CALIBRATE]) status = neo_calibrate(ctx, &j.desc.cluster);
    if (status == NEO_OK && given[OPT_ALL]) status = neo_placement_parse(given[OPT_ALL], &all);
    if (status == NEO_OK)
        status = given[OPT_PLAN]  ? neo_plan_read(ctx, &j.desc, given[OPT_PLAN], &plan)
                 : given[OPT_ALL] ? neo_plan_create_uniform(ctx, &j.desc, all, &plan)
                              : neo_plan_create(ctx, &j.desc, &plan);
    if (status == NEO_OK && given[OPT_OUT]) status = neo_plan_write(plan, given[OPT_OUT]);
    if (status != NEO_OK) return fprintf(stderr, "plan: %s\n", neo_last_error()), 1;
    if (given[OPT_JSON])
        print_json(&j, plan);
    else {
        printf("%s: %d tables on %d ranks\n", file[0], j.bags.table_count, j.desc.cluster.ranks);
        print_tables(&j, plan, given[OPT_VERBOSE] != NULL);
        print_ranks(&j, plan, given[OPT_VERBOSE] != NULL);
    }
    int bad = given[OPT_SVG] ? write_svg(&j, plan, given[OPT_SVG]) : 0;
    neo_plan_destroy(plan);
    neo_ctx_destroy(ctx);
    for (int t = 0; t < j.bags.table_count; t++) free((void *)(uintptr_t)j.tables[t].name);
    free(j.tables);
    free(j.ids);
    free(j.allowed);
    return bad;
}
