/* sweep.h: the best plan for each of several numbers of ranks, or of groups of them that hold all
   tables: what a step takes, holds and sends there, and up to where more ranks are worth it. */
#ifndef PLAN_SWEEP_H
#define PLAN_SWEEP_H
#include "show.h"
#include <math.h>

enum { SWEEP_MOST = 64 };
/* A doubling of ranks that gains less than this is where a model stops to scale. */
#define SWEEP_GAIN 1.25

typedef struct sweep_row {
    int ranks, replicas, tables[NEO_PLACEMENT_COUNT];
    int64_t batch, needs; /* needs: bytes of a rank that would do, if the tables do not fit; 0: they
                             fit; -1: they do not fit its tiers */
    neo_plan_step step;
    neo_timeline_sum sum;
    double samples;       /* per second */
} sweep_row;
typedef struct sweep {
    sweep_row row[SWEEP_MOST];
    int count, weak, pipelined, scales_to, most_at; /* ranks; 0: none */
} sweep;

/* A..B. Returns 0 if it is no range. */
static int sweep_range(const char *text, int *first, int *last) {
    int end = 0;
    return sscanf(text, "%d..%d%n", first, last, &end) == 2 && !text[end] && *first >= 1 &&
           *first <= *last && *last <= 4096;
}

/* Whether so many groups are of as many ranks each, on whole nodes or parts of one; one always is,
   whose last node may have fewer ranks. */
static int sweep_groups(int ranks, int per_node, int groups) {
    const int each = ranks / groups, node = per_node && per_node < ranks ? per_node : ranks;
    return groups == 1 || (ranks % groups == 0 && (each % node == 0 || node % each == 0));
}
static void sweep_cluster(job *j, int ranks, int per_node, int groups) {
    neo_cluster *c = &j->desc.cluster;
    c->ranks = ranks / groups;
    c->ranks_per_node = per_node && per_node < ranks ? per_node : ranks;
    j->desc.replicas = groups;
}
/* make: a plan for the job. */
static neo_status sweep_fill(neo_ctx *ctx, job *j, sweep_row *row, int pipelined,
                             neo_status (*make)(neo_ctx *, job *, const void *, neo_plan **),
                             const void *user) {
    neo_plan *plan = NULL;
    neo_timeline *timeline = NULL;
    neo_status status = make(ctx, j, user, &plan);
    row->replicas = j->desc.replicas;
    row->ranks = j->desc.cluster.ranks * row->replicas;
    row->batch = j->bags.max_batch;
    if (status == NEO_ERR_CAPACITY) { /* "...; N bytes each would do" */
        const char *needs = strrchr(neo_last_error(), ';');
        row->needs = needs ? strtoll(needs + 1, NULL, 10) : -1;
        return NEO_OK;
    }
    if (status == NEO_OK)
        status = neo_timeline_create(plan, j->units, j->unit_count, pipelined, &timeline);
    if (status == NEO_OK) {
        row->step = neo_plan_step_of(plan);
        row->sum = neo_timeline_sum_of(timeline);
        row->sum.seconds = row->sum.steady;
        row->samples = (double)row->batch / row->sum.seconds;
        for (int t = 0; t < j->bags.table_count; t++) row->tables[neo_plan_placement(plan, t)]++;
    }
    neo_timeline_destroy(timeline);
    neo_plan_destroy(plan);
    return status;
}

/* Where it stops to scale: before the first doubling from a size that fits with too little gain. */
static void sweep_judge(sweep *s) {
    double most = 0;
    int stopped = 0;
    for (int i = 0; i < s->count; i++) {
        const sweep_row *row = &s->row[i], *before = i ? row - 1 : NULL;
        if (row->needs) continue;
        if (row->samples > most) most = row->samples, s->most_at = row->ranks;
        stopped |= before && !before->needs && row->samples < SWEEP_GAIN * before->samples;
        if (!stopped) s->scales_to = row->ranks;
    }
}

static const char *sweep_placements(const sweep_row *row) {
    static char text[200];
    size_t at = 0;
    text[0] = 0;
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++)
        if (row->tables[p])
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%s %d", at ? ", " : "",
                                   neo_placement_name((neo_placement)p), row->tables[p]);
    return text;
}
/* by_ranks: what its rows differ in; 0: replicas. */
static void sweep_rows(const sweep *s, int by_ranks) {
    const char *of = by_ranks ? "ranks" : "replicas";
    printf("%s   batch  samples/s      step   exposed  fullest rank    in node  to others  "
           "balance  tables\n", of);
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->row[i];
        printf("%*d %7lld  ", (int)strlen(of), by_ranks ? r->ranks : r->replicas,
               (long long)r->batch);
        if (r->needs < 0) printf("the tables do not fit the tiers\n");
        else if (r->needs > 0)
            printf("the tables do not fit: a rank needs %s\n", bytes((double)r->needs));
        else
            printf("%9.4g %9s %9s  %12s  %9s  %9s  %7.3f  %s", r->samples, seconds(r->sum.seconds),
                   seconds(r->sum.exposed), bytes((double)r->step.most_bytes),
                   bytes(r->sum.bytes[NEO_LANE_LOCAL]), bytes(r->sum.bytes[NEO_LANE_CROSS]),
                   r->step.balance, sweep_placements(r));
        if (!r->needs && by_ranks && r->replicas > 1) printf("; %d replicas", r->replicas);
        if (!r->needs) printf("\n");
    }
}
static void sweep_print(const job *j, const sweep *s) {
    printf("%s, %s; a step is %s\n\n", s->weak ? "the batch grows with the ranks" : "one batch",
           j->desc.cluster.memory_bytes ? "within the memory of a rank" : "memory without limit",
           s->pipelined ? "pipelined" : "one after another (--set pipeline=on: pipelined)");
    sweep_rows(s, 1);
    if (!s->most_at) printf("\nthe tables fit on none of these\n");
    else
        printf("\nscales to %d rank%s (a doubling gains x %g or more); most samples/s with %d\n",
               s->scales_to, PLURAL(s->scales_to), SWEEP_GAIN, s->most_at);
}
static void sweep_json(const sweep *s) {
    printf("{\"pipelined\": %s, \"weak\": %s, \"scales_to\": %d, \"most_at\": %d, \"sizes\": [",
           s->pipelined ? "true" : "false", s->weak ? "true" : "false", s->scales_to, s->most_at);
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->row[i];
        printf("%s\n {\"ranks\": %d, \"replicas\": %d, \"batch\": %lld", i ? "," : "", r->ranks,
               r->replicas, (long long)r->batch);
        if (r->needs) printf(", \"needs_bytes\": %lld}", (long long)r->needs);
        if (r->needs) continue;
        printf(", \"samples_per_second\": %.9g, \"step\": %.9g, \"exposed\": %.9g, \"most_bytes\": "
               "%lld, \"local_bytes\": %.9g, \"cross_bytes\": %.9g, \"balance\": %.9g, "
               "\"tables\": {",
               r->samples, r->sum.seconds, r->sum.exposed, (long long)r->step.most_bytes,
               r->sum.bytes[NEO_LANE_LOCAL], r->sum.bytes[NEO_LANE_CROSS], r->step.balance);
        for (int p = 0, more = 0; p < NEO_PLACEMENT_COUNT; p++)
            if (r->tables[p])
                printf("%s\"%s\": %d", more++ ? ", " : "", neo_placement_name((neo_placement)p),
                       r->tables[p]);
        printf("}}");
    }
    printf("]}\n");
}

/* ---- a picture: samples/s over ranks, both doubling, and bars of the step and of memory ---- */
static double sweep_x(const sweep *s, int i) { return SVG_LEFT + (i + 0.5) * SVG_BARS / s->count; }
static void sweep_title(FILE *f, double top, const char *title) {
    fprintf(f, "<text x=\"%d\" y=\"%g\" font-weight=\"bold\">%s</text>\n", SVG_LEFT, top, title);
}
static void sweep_curve(FILE *f, const sweep *s, double top, double height) {
    double least = 0, most = 0, ideal = 0; /* ideal: of one rank */
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->row[i];
        if (r->needs) continue;
        if (ideal <= 0) ideal = r->samples / r->ranks, least = r->samples;
        if (r->samples < least) least = r->samples;
        if (r->samples > most) most = r->samples;
        if (ideal * r->ranks > most) most = ideal * r->ranks;
    }
    if (most <= 0) most = least = 1; /* none fits */
    double scale = height / (log2(most / least) + 0.5);
    for (int pass = 0; pass < 2; pass++) { /* as if it scaled without end; as it does */
        int begun = 0;
        fprintf(f, "<path d=\"");
        for (int i = 0; i < s->count; i++) {
            const sweep_row *r = &s->row[i];
            double y = pass ? r->samples : ideal * r->ranks;
            if (!r->needs)
                fprintf(f, "%c%.1f %.1f ", begun++ ? 'L' : 'M', sweep_x(s, i),
                        top + height - log2(y / least) * scale);
        }
        fprintf(f, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%d\"/>\n",
                pass ? COLORS[0] : "#bbb", pass + 1);
    }
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->row[i];
        double y = top + height - (r->needs ? 0 : log2(r->samples / least) * scale);
        if (!r->needs)
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>", sweep_x(s, i), y,
                    r->ranks == s->scales_to ? 6 : 3, COLORS[0]);
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", sweep_x(s, i), y - 9);
        if (r->needs) fprintf(f, "does not fit</text>\n");
        else fprintf(f, "%.3g</text>\n", r->samples);
    }
}
/* Two parts of a bar for each size, the lower first. */
static void sweep_bars(FILE *f, const sweep *s, double top, double height,
                       double (*part)(const sweep_row *, int), const char *(*text)(double)) {
    double most = 0, width = 0.6 * SVG_BARS / s->count;
    for (int i = 0; i < s->count; i++) {
        double all = part(&s->row[i], 0) + part(&s->row[i], 1);
        if (all > most && !s->row[i].needs) most = all;
    }
    for (int i = 0; i < s->count; i++) {
        double y = top + height;
        for (int k = 0; k < 2 && !s->row[i].needs; k++) {
            double h = most > 0 ? part(&s->row[i], k) / most * (height - 16) : 0;
            y -= h;
            fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
                    sweep_x(s, i) - width / 2, y, width, h, COLORS[k ? 5 : 2]);
        }
        if (!s->row[i].needs)
            fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                    sweep_x(s, i), y - 4, text(part(&s->row[i], 0) + part(&s->row[i], 1)));
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", sweep_x(s, i),
                top + height + 14, s->row[i].ranks);
    }
}
static double sweep_seconds(const sweep_row *r, int k) {
    return k ? r->sum.exposed : r->sum.busy[NEO_LANE_COMPUTE];
}
static double sweep_memory(const sweep_row *r, int k) {
    return k ? 0 : (double)r->step.most_bytes;
}
static int sweep_svg(const sweep *s, const char *path) {
    FILE *f = open_to_write(path);
    svg_open(f, SVG_WIDTH, 720);
    sweep_title(f, 24, "Samples a second over ranks, both doubling; grey: as if it scaled so on; "
                       "large: up to here it scales");
    sweep_curve(f, s, 50, 230);
    sweep_title(f, 320, "A step: computation (green), links that are waited for (red)");
    sweep_bars(f, s, 330, 150, sweep_seconds, seconds);
    sweep_title(f, 530, "Memory of the fullest rank");
    sweep_bars(f, s, 540, 140, sweep_memory, bytes);
    fprintf(f, "</svg>\n");
    return close_written(f, path);
}
#endif
