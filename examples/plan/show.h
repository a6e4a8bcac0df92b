/* show.h: prints a plan as text and as JSON, and draws it. both: the timelines of its step, one
   after another and pipelined. */
#ifndef PLAN_SHOW_H
#define PLAN_SHOW_H
#include "read.h"

static const char *const PHASES[] = {"ids", "lookup", "forward", "backward", "update"};

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
    int digits = u == 0 || x >= 100 ? 0 : x < 10 ? 2 : 1;
    snprintf(text[at], sizeof text[at], "%.*f %s", digits, x, UNITS[u]);
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
            printf("%s, %lld x %lld, %g ids per sample\n", j->tables[t].name,
                   (long long)j->tables[t].rows, (long long)j->tables[t].dim, j->ids[t]);
            for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n")) printf("    %s\n", p);
        }
        if (neo_plan_warning(plan, t, text, sizeof text)) {
            if (verbose || warned++ < 3) printf("warning: %s\n", text);
        }
    }
    if (warned > 3)
        printf("warning: and %d table%s more (--verbose)\n", warned - 3, PLURAL(warned - 3));
    printf("\nplacement  tables  parameters\n");
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++)
        if (count[p])
            printf("%-9s  %6d  %8.4g  %4.1f %%\n", neo_placement_name((neo_placement)p), count[p],
                   size[p], 100 * size[p] / all);
}
/* Rows that are worth copies, as dlrm --hot-rows auto --warm-rows auto takes them, and what all
   rows take; of a table that the profile does not have, or of replicas, none. copies 0: as without.
   Returns whether it has. */
static int levels_of(const job *j, const neo_plan *plan, int32_t t, int copies,
                     neo_row_level *level) {
    static const int64_t none[NEO_HEAT_COUNT];
    memset(level, 0, NEO_HEAT_COUNT * sizeof *level);
    if (!j->profile) return 0;
    return neo_plan_levels(plan, t, j->profile, copies ? NULL : none, level) == NEO_OK;
}
static void print_level(const char *name, const neo_row_level *l, double ids) {
    printf("%-14s %11lld  %5.1f %%  %9s  %9s  %9s  %9s\n", name, (long long)l->rows,
           ids > 0 ? 100 * l->ids / ids : 0, bytes((double)l->bytes),
           bytes(l->sent[NEO_LEVEL_LOCAL]), bytes(l->sent[NEO_LEVEL_CROSS]), seconds(l->seconds));
}
static void add_levels(neo_row_level *sum, const neo_row_level *level) {
    for (int i = 0; i < NEO_HEAT_COUNT; i++) {
        sum[i].rows += level[i].rows, sum[i].bytes += level[i].bytes;
        sum[i].ids += level[i].ids, sum[i].seconds += level[i].seconds;
        for (int k = 0; k < NEO_LEVEL_COUNT; k++) sum[i].sent[k] += level[i].sent[k];
    }
}
/* Of each table how many; and what each kind of rows of all tables takes. */
static void print_levels(const job *j, const neo_plan *plan) {
    static const char *const copies[] = {"one", "one a node", "one a rank"};
    neo_row_level level[NEO_HEAT_COUNT], sum[2][NEO_HEAT_COUNT];
    int tables = 0;
    memset(sum, 0, sizeof sum);
    for (int t = 0; t < j->bags.table_count; t++) {
        if (!levels_of(j, plan, t, 1, level)) continue;
        add_levels(sum[1], level);
        if (level[NEO_HOT].rows || level[NEO_WARM].rows) {
            if (!tables++)
                printf("\nby the profile, rows worth a copy on every rank, on every node\n");
            printf("%-14s %9lld %9lld\n", j->tables[t].name, (long long)level[NEO_HOT].rows,
                   (long long)level[NEO_WARM].rows);
        }
        if (levels_of(j, plan, t, 0, level)) add_levels(sum[0], level);
    }
    if (!tables) return;
    printf("\nrows, copies          rows   of ids     memory   in nodes  to others      links; all "
           "ranks, a step\n");
    for (int i = 0; i < NEO_HEAT_COUNT; i++) print_level(copies[i], &sum[1][i], sum[0]->ids);
    print_level("all, if one", sum[0], sum[0]->ids);
}
/* Rows in memory and in files, and how many ids find theirs in memory. */
static void print_tiers(const job *j, const neo_plan *plan) {
    double ids = 0, hits = 0, file = 0, most = 0;
    for (int t = 0; t < j->bags.table_count; t++) {
        const neo_plan_tier x = neo_plan_tier_of(plan, t);
        ids += j->ids[t];
        hits += j->ids[t] * x.hits;
        file += (double)x.file_bytes;
    }
    for (int r = 0; r < j->desc.cluster.ranks; r++) {
        const double x = (double)neo_plan_rank_of(plan, r).file_bytes;
        if (x > most) most = x;
    }
    printf("\ntiers: %.3f %% of ids find their rows in memory, %.4g of a step do not; files have "
           "%s, at most %s of a rank\n", ids > 0 ? 100 * hits / ids : 100,
           (ids - hits) * (double)j->bags.max_batch, bytes(file), bytes(most));
}
static void print_ranks(const job *j, const neo_plan *plan, neo_timeline *const both[2],
                        int verbose) {
    int ranks = j->desc.cluster.ranks;
    neo_plan_rank sum = {0};
    double load = 0, most = 0, least = 1e300;
    for (int r = 0; r < ranks; r++) {
        neo_plan_rank x = neo_plan_rank_of(plan, r);
        if (verbose && r == 0) printf("\nrank     weights      state    buffers       load\n");
        if (verbose)
            printf("%4d  %10s %10s %10s %10s\n", r, bytes((double)x.weight_bytes),
                   bytes((double)x.state_bytes), bytes((double)x.buffer_bytes), seconds(x.seconds));
        sum.weight_bytes += x.weight_bytes;
        sum.state_bytes += x.state_bytes;
        sum.buffer_bytes += x.buffer_bytes;
        load += x.seconds / ranks;
        if (rank_bytes(x) > most) most = rank_bytes(x);
        if (rank_bytes(x) < least) least = rank_bytes(x);
    }
    neo_plan_step s = neo_plan_step_of(plan);
    if (j->bags.tier) print_tiers(j, plan);
    printf("\na rank holds %s in the mean (weights %s, state %s, buffers %s), from %s to %s (rank "
           "%d)\n",
           bytes(rank_bytes(sum) / ranks), bytes((double)sum.weight_bytes / ranks),
           bytes((double)sum.state_bytes / ranks), bytes((double)sum.buffer_bytes / ranks),
           bytes(least), bytes(most), s.fullest_rank);
    if (j->desc.cluster.memory_bytes)
        printf("    of %s\n", bytes((double)j->desc.cluster.memory_bytes));
    printf("load of a rank: %s in the mean, %s on rank %d (%.3f of the mean)\n", seconds(load),
           seconds(load * s.balance), s.busiest_rank, s.balance);
    printf("\nstep: ids %s, lookup %s, pooled rows %s, bottom %s, top %s (forward),\n"
           "    gradients %s, update %s, dense gradients %s\n",
           seconds(s.ids), seconds(s.lookup), seconds(s.forward), seconds(s.bottom), seconds(s.top),
           seconds(s.backward), seconds(s.update), seconds(s.reduce));
    neo_timeline_sum plain = neo_timeline_sum_of(both[0]), piped = neo_timeline_sum_of(both[1]);
    printf("    one after another %s, %.4g samples/s; pipelined %s, %.4g samples/s\n",
           seconds(plain.steady), (double)j->bags.max_batch / plain.steady,
           seconds(piped.steady), (double)j->bags.max_batch / piped.steady);
    printf("    links are waited for %s, pipelined %s; a rank sends %s in its node, %s to others\n",
           seconds(plain.exposed), seconds(piped.exposed), bytes(plain.bytes[NEO_LANE_LOCAL]),
           bytes(plain.bytes[NEO_LANE_CROSS]));
}

/* Bytes of the UTF-8 character at c; 0: there is none. */
static int utf8_bytes(const unsigned char *c) {
    static const unsigned least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int bytes = c[0] < 0x80 ? 1 : c[0] < 0xC2 ? 0 : c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3
                : c[0] < 0xF5 ? 4 : 0;
    unsigned code = bytes > 1 ? c[0] & (0xFFu >> (bytes + 1)) : c[0];
    for (int i = 1; i < bytes; i++) {
        if ((c[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (c[i] & 0x3Fu);
    }
    if (code < least[bytes] || code > 0x10FFFF || code >> 11 == 0x1B) return 0;
    return bytes;
}

/* Bytes that are no UTF-8 become U+FFFD: JSON has no others. */
static void json_text(FILE *f, const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int bytes = utf8_bytes(c);
        if (*c == '"' || *c == '\\') fprintf(f, "\\%c", *c);
        else if (*c < 32 || !bytes) fprintf(f, "\\u%04x", bytes ? *c : 0xFFFDu);
        else fprintf(f, "%.*s", bytes, (const char *)c);
        c += bytes ? bytes : 1;
    }
}

/* Text in SVG: markup is escaped, bytes that XML does not have become ?. */
static void xml_text(FILE *f, const char *text) {
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        int bytes = utf8_bytes(c);
        if (*c == '<' || *c == '>' || *c == '&' || *c == '"') fprintf(f, "&#%d;", *c);
        else if (*c < 32 || !bytes) fputc('?', f);
        else fprintf(f, "%.*s", bytes, (const char *)c);
        c += bytes ? bytes : 1;
    }
}

/* Its end is left off. */
static void print_json(const job *j, const neo_plan *plan, neo_timeline *const both[2]) {
    neo_plan_step s = neo_plan_step_of(plan);
    int64_t count;
    printf("{\"ranks\": %d, \"ranks_per_node\": %d, \"replicas\": %d, \"batch\": %lld, "
           "\"digest\": \"%016llx\",\n "
           "\"step\": {\"plain\": %.9g, \"pipelined\": %.9g, \"ids\": %.9g, \"lookup\": %.9g, "
           "\"forward\": %.9g, "
           "\"bottom\": %.9g, \"top\": %.9g, \"backward\": %.9g, \"update\": %.9g, "
           "\"reduce\": %.9g, \"balance\": %.9g},\n "
           "\"tables\": [",
           j->desc.cluster.ranks, neo_plan_desc_of(plan)->cluster.ranks_per_node,
           (int)(j->desc.replicas > 1 ? j->desc.replicas : 1), (long long)j->bags.max_batch,
           (unsigned long long)neo_plan_digest(plan),
           neo_timeline_sum_of(both[0]).seconds, neo_timeline_sum_of(both[1]).seconds, s.ids,
           s.lookup, s.forward, s.bottom, s.top, s.backward, s.update, s.reduce, s.balance);
    for (int t = 0; t < j->bags.table_count; t++) {
        const neo_piece *p = neo_plan_table_pieces(plan, t, &count);
        printf("%s\n  {\"name\": \"", t ? "," : "");
        json_text(stdout, j->tables[t].name);
        printf("\", \"rows\": %lld, \"dim\": %lld, \"placement\": \"%s\", \"pieces\": [",
               (long long)j->tables[t].rows, (long long)j->tables[t].dim,
               neo_placement_name(neo_plan_placement(plan, t)));
        for (int64_t i = 0; i < count; i++) /* rank, first row, rows, first column, columns */
            printf("%s[%d, %lld, %lld, %lld, %lld]", i ? ", " : "", p[i].rank,
                   (long long)p[i].first_row, (long long)p[i].rows, (long long)p[i].first_col,
                   (long long)p[i].cols);
        const neo_plan_tier x = neo_plan_tier_of(plan, t);
        neo_row_level level[NEO_HEAT_COUNT];
        (void)levels_of(j, plan, t, 1, level);
        printf("], \"hot_rows\": %lld, \"warm_rows\": %lld, \"rows_in_memory\": %.9g, "
               "\"hits\": %.9g, \"file_bytes\": %lld", (long long)level[NEO_HOT].rows,
               (long long)level[NEO_WARM].rows, x.rows, x.hits, (long long)x.file_bytes);
        for (int i = 0; j->profile && i < NEO_HEAT_COUNT; i++) /* cold, warm, hot */
            printf("%s{\"rows\": %lld, \"bytes\": %lld, \"ids\": %.9g, \"local\": %.9g, "
                   "\"cross\": %.9g, \"seconds\": %.9g}%s", i ? ", " : ",\n   \"copies\": [",
                   (long long)level[i].rows, (long long)level[i].bytes, level[i].ids,
                   level[i].sent[NEO_LEVEL_LOCAL], level[i].sent[NEO_LEVEL_CROSS],
                   level[i].seconds, i == NEO_HOT ? "]" : "");
        printf("}");
    }
    printf("],\n \"rank\": [");
    for (int r = 0; r < j->desc.cluster.ranks; r++) {
        neo_plan_rank x = neo_plan_rank_of(plan, r);
        printf("%s\n  {\"weight_bytes\": %lld, \"state_bytes\": %lld, \"buffer_bytes\": %lld, "
               "\"file_bytes\": %lld, "
               "\"ids\": %.9g, \"lookup\": %.9g, \"forward\": %.9g, \"backward\": %.9g, "
               "\"update\": %.9g}",
               r ? "," : "", (long long)x.weight_bytes, (long long)x.state_bytes,
               (long long)x.buffer_bytes, (long long)x.file_bytes, x.ids, x.lookup, x.forward,
               x.backward, x.update);
    }
    printf("]");
}

/* ---- a picture: a bar for each rank, of memory by placement and of time by phase ---- */
static const char *const COLORS[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2",
                                     "#72b7b2", "#e45756", "#eeca3b", "#9d9d9d"};
enum { SVG_WIDTH = 1000, SVG_BARS = 900, SVG_LEFT = 80, SVG_HEIGHT = 260 };

/* Ends the program if the file cannot be made. */
static FILE *open_to_write(const char *path) {
    FILE *f = fopen(path, "wb");
    if (f) return f;
    fprintf(stderr, "plan: %s: cannot open for writing: %s\n", path, strerror(errno));
    exit(1);
}
static int close_written(FILE *f, const char *path) {
    int bad = ferror(f) != 0;
    errno = 0; /* of earlier writes none is kept */
    if (fclose(f) == 0 && !bad) return 0;
    return fprintf(stderr, "plan: %s: could not be written whole%s%s\n", path, errno ? ": " : "",
                   errno ? strerror(errno) : ""), 1;
}
static void svg_open(FILE *f, int width, int height) {
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height);
}

/* part: [ranks][parts]. */
static void svg_chart(FILE *f, double top, const char *title, const char *most_text, int ranks,
                      int parts, const double *part, const char *const *names, double most) {
    double width = (double)SVG_BARS / ranks, gap = width > 4 ? 1 : 0, legend = SVG_LEFT;
    fprintf(f, "<text x=\"%d\" y=\"%g\" font-weight=\"bold\">%s</text>\n", SVG_LEFT, top + 14,
            title);
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
        fprintf(f, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%d</text>\n",
                SVG_LEFT + (r + 0.5) * width, top + SVG_HEIGHT + 14, r);
}
static int write_svg(const job *j, const neo_plan *plan, const char *path) {
    enum { PARTS = NEO_PLACEMENT_COUNT + 1 };
    int ranks = j->desc.cluster.ranks;
    const char *names[PARTS];
    double *memory = more(NULL, (size_t)ranks * PARTS * sizeof *memory);
    double *time = more(NULL, (size_t)ranks * 5 * sizeof *time);
    neo_plan_step s = neo_plan_step_of(plan);
    const neo_piece *pieces = neo_plan_pieces(plan, NULL);
    double most = (double)s.most_bytes, load = 0;
    FILE *f = open_to_write(path);
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
    svg_open(f, SVG_WIDTH, 2 * SVG_HEIGHT + 80);
    svg_chart(f, 10,
              j->desc.cluster.memory_bytes ? "Memory of each rank, of its budget"
                                           : "Memory of each rank",
              bytes(most), ranks, PARTS, memory, names, most);
    svg_chart(f, SVG_HEIGHT + 45, "Load of each rank in a step", seconds(load), ranks, 5, time,
              PHASES, load);
    fprintf(f, "</svg>\n");
    free(memory);
    free(time);
    return close_written(f, path);
}

/* What was measured, as a cluster file has it. */
static void print_cluster(job *j, int json) {
    neo_cluster *c = &j->desc.cluster;
    const neo_calibration *k = &c->calibration;
    cluster_number numbers[CLUSTER_NUMBERS];
    cluster_numbers(c, numbers);
    if (json) printf(",\n \"measured\": {\"threads\": %d", j->threads);
    for (int i = 0; i < CLUSTER_NUMBERS; i++)
        if (*numbers[i].value > 0)
            print_figures(json, numbers[i].name, "", 1, numbers[i].value, "");
    if (!json && k->cache >= NEO_CACHE_MOST)
        printf("# cache: the largest that is told: parameters took longer up to there\n");
    print_figures(json, "dots_far", "", 4, k->dots_far[0], "");
    print_figures(json, "rows_large", "", 4, k->rows_large[0], "");
    print_figures(json, "layer_far", "", 3, k->layer_far, "");
    for (int i = 0; i < NEO_ROWS_COUNT; i++)
        print_figures(json, "rows", CURVES[i], 6, k->rows[i][0], "");
    for (int i = 0; i < NEO_LAYER_COUNT; i++)
        print_figures(json, "layer", WAYS[i], 5, k->layer[i], "");
    if (!json) printf("threads %d\n", j->threads);
    if (j->on_device) printf(json ? ",\n  \"device\": \"cuda\"" : "device cuda\n");
}
#endif
