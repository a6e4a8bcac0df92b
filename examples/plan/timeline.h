/* timeline.h: draws the tasks of a step as SVG, or writes them as a trace of Chrome's format, which
   Perfetto and chrome://tracing open. Both have the step one after another, and pipelined. */
#ifndef PLAN_TIMELINE_H
#define PLAN_TIMELINE_H
#include "show.h"

enum { LANE_HEIGHT = 30, LANE_TOP = 46, STEP_HEIGHT = 3 * LANE_HEIGHT + 76 };

/* What a color of the picture stands for. */
static const char *const TASKS[] = {"ids",     "lookup",   "rows",   "gradients",
                                    "update",  "forward",  "backward", "reduce",
                                    "copies",  "replicas", "step"};
static const char *const TASK_COLORS[] = {"#eeca3b", "#4c78a8", "#f58518", "#e45756",
                                          "#72b7b2", "#9bd08f", "#54a24b", "#b279a2",
                                          "#9d9d9d", "#bab0ac", "#d6a5c9"};
enum { TASK_KINDS = sizeof TASKS / sizeof TASKS[0] };
static int task_kind(const neo_task *t) {
    int k = 0;
    while (k + 1 < TASK_KINDS && strcmp(t->name, TASKS[k])) k++;
    return k;
}
static const char *task_name(const neo_task *t) {
    static char text[200];
    snprintf(text, sizeof text, "%.100s%s%s", t->unit, t->unit[0] ? " " : "", t->name);
    return text;
}

static void svg_task(FILE *f, const neo_task *t, double top, double scale) {
    double x = SVG_LEFT + t->begin * scale, y = top + LANE_TOP + t->lane * LANE_HEIGHT,
           width = t->seconds * scale;
    const char *name = task_name(t);
    fprintf(f, "<g><title>");
    xml_text(f, name);
    fprintf(f, ", %s from %s on", seconds(t->seconds), seconds(t->begin));
    if (t->bytes > 0) fprintf(f, ", %s", bytes(t->bytes));
    fprintf(f,
            "</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s/>", x,
            y + 3, width > 0.4 ? width : 0.4, LANE_HEIGHT - 6, TASK_COLORS[task_kind(t)],
            t->critical ? " stroke=\"#000\" stroke-width=\"1.2\"" : "");
    if (width > 6.2 * (double)strlen(name)) {
        fprintf(f, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"10\">",
                x + width / 2, y + LANE_HEIGHT / 2 + 4);
        xml_text(f, name);
        fprintf(f, "</text>");
    }
    fprintf(f, "</g>\n");
}
/* A step below `top`; scale: pixels of a second, the same for both. */
static void svg_step(FILE *f, const neo_timeline *timeline, const char *title, double top,
                     double scale) {
    int32_t count;
    const neo_task *task = neo_timeline_tasks(timeline, &count);
    neo_timeline_sum sum = neo_timeline_sum_of(timeline);
    double foot = top + LANE_TOP + 3 * LANE_HEIGHT;
    fprintf(f,
            "<text x=\"%d\" y=\"%g\"><tspan font-weight=\"bold\">%s: %s</tspan>, of which links "
            "are waited for %s; sent by a rank: %s inside its node, %s to others</text>\n",
            SVG_LEFT, top + 20, title, seconds(sum.seconds), seconds(sum.exposed),
            bytes(sum.bytes[NEO_LANE_LOCAL]), bytes(sum.bytes[NEO_LANE_CROSS]));
    for (int k = 0; k < NEO_LANE_COUNT; k++)
        fprintf(f,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f4f4f4\"/>"
                "<text x=\"%d\" y=\"%g\" text-anchor=\"end\">%s</text>\n",
                SVG_LEFT, (int)top + LANE_TOP + k * LANE_HEIGHT + 1, SVG_BARS, LANE_HEIGHT - 2,
                SVG_LEFT - 6, top + LANE_TOP + (k + 0.5) * LANE_HEIGHT + 4,
                neo_lane_name((neo_lane)k));
    for (int i = 0; i <= 10; i++)
        fprintf(f,
                "<path d=\"M%g %g v%d\" stroke=\"#ccc\"/><text x=\"%g\" y=\"%g\" fill=\"#666\" "
                "text-anchor=\"%s\" font-size=\"9\">%s</text>\n",
                SVG_LEFT + i * 0.1 * SVG_BARS, top + LANE_TOP, 3 * LANE_HEIGHT + 4,
                SVG_LEFT + i * 0.1 * SVG_BARS, foot + 14, i < 10 ? "middle" : "end",
                i ? seconds(i * 0.1 * SVG_BARS / scale) : "0");
    for (int32_t i = 0; i < count; i++) svg_task(f, &task[i], top, scale);
}
static void timeline_svg(FILE *f, neo_timeline *const both[2], const char *const titles[2]) {
    double longest = 1e-12;
    for (int i = 0; i < 2; i++) {
        double x = neo_timeline_sum_of(both[i]).seconds;
        if (x > longest) longest = x;
    }
    svg_open(f, SVG_WIDTH, 2 * STEP_HEIGHT + 40);
    for (int i = 0; i < TASK_KINDS; i++)
        fprintf(f,
                "<rect x=\"%d\" y=\"8\" width=\"10\" height=\"10\" fill=\"%s\"/><text x=\"%d\" "
                "y=\"17\">%s</text>\n",
                SVG_LEFT + 74 * i, TASK_COLORS[i], SVG_LEFT + 74 * i + 14, TASKS[i]);
    fprintf(f,
            "<rect x=\"%d\" y=\"8\" width=\"10\" height=\"10\" fill=\"none\" stroke=\"#000\" "
            "stroke-width=\"1.2\"/><text x=\"%d\" y=\"17\">critical path</text>\n",
            SVG_LEFT + 74 * TASK_KINDS, SVG_LEFT + 74 * TASK_KINDS + 14);
    for (int i = 0; i < 2; i++)
        svg_step(f, both[i], titles[i], 24 + i * STEP_HEIGHT, SVG_BARS / longest);
    fprintf(f, "</svg>\n");
}

/* Processes are the two steps, threads the lanes; times are in us. */
static void timeline_trace(FILE *f, neo_timeline *const both[2], const char *const titles[2]) {
    fprintf(f, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    for (int i = 0; i < 2; i++) {
        int32_t count;
        const neo_task *task = neo_timeline_tasks(both[i], &count);
        fprintf(f,
                "%s\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": "
                "{\"name\": \"%s\"}}",
                i ? "," : "", i, titles[i]);
        for (int k = 0; k < NEO_LANE_COUNT; k++)
            fprintf(f,
                    ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
                    "\"args\": {\"name\": \"%s\"}}",
                    i, k, neo_lane_name((neo_lane)k));
        for (int32_t t = 0; t < count; t++) {
            fprintf(f, ",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"", task[t].name);
            json_text(f, task_name(&task[t]));
            fprintf(f,
                    "\", \"pid\": %d, \"tid\": %d, \"ts\": %.9g, \"dur\": %.9g, \"args\": "
                    "{\"bytes\": %.9g, \"critical\": %s}}",
                    i, task[t].lane, task[t].begin * 1e6, task[t].seconds * 1e6, task[t].bytes,
                    task[t].critical ? "true" : "false");
        }
    }
    fprintf(f, "\n]}\n");
}

/* 1: the name says neither svg nor json. */
static int timeline_ending(const char *path) {
    const char *dot = strrchr(path, '.');
    if (dot && (strcmp(dot, ".svg") == 0 || strcmp(dot, ".json") == 0)) return 0;
    return fprintf(stderr, "plan: --timeline %s: ends in neither .svg nor .json\n", path), 1;
}
static int write_timeline(neo_timeline *const both[2], const char *path) {
    static const char *const titles[2] = {"one after another", "pipelined"};
    FILE *f = open_to_write(path);
    if (strcmp(strrchr(path, '.'), ".svg") == 0) timeline_svg(f, both, titles);
    else timeline_trace(f, both, titles);
    return close_written(f, path);
}
#endif
