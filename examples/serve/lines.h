/* lines.h: raw lines of the training format on standard input; what has come is answered, an
   answer a line. */
#ifndef EXAMPLE_LINES_H
#define EXAMPLE_LINES_H
enum { MAX_LINE = 1 << 16 };

static int print_predictions(worker *w, const version *v) {
    w->count = 0;
    if (predict(w, v) != NEO_OK) return fprintf(stderr, "serve: %s\n", neo_last_error()), 1;
    for (size_t i = 0; i < w->count; i++)
        printf("%.9g%s", (double)w->out[i], (i + 1) % (size_t)v->info.outputs ? "," : "\n");
    return 0;
}
static int answer_lines(void) {
    static char text[MAX_LINE];
    const version *v = models.newest;
    worker w = {.index = 0};
    size_t size = 0, used;
    long long number = 0;
    int bad = 0;
    for (ssize_t n = 1; n > 0;) {
        n = read(0, text + size, sizeof text - size);
        if (n > 0) size += (size_t)n;
        else if (size) text[size++] = '\n'; /* there is room: what is left is no whole buffer */
        for (used = 0; used < size;) {
            char *stop = memchr(text + used, '\n', size - used);
            if (!stop) break;
            size_t bytes = (size_t)(stop - text) - used;
            if (!number && bytes > 2 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) /* of UTF-8 */
                used += 3, bytes -= 3;
            if (neo_scratch_count(v->scratch[0]) == o.batch) bad |= print_predictions(&w, v);
            number++;
            neo_status status = neo_scratch_add_line(v->scratch[0], text + used, bytes);
            if (status == NEO_ERR_CAPACITY) { /* of ids: after those before it */
                bad |= print_predictions(&w, v);
                status = neo_scratch_add_line(v->scratch[0], text + used, bytes);
            }
            if (status != NEO_OK) {
                bad |= print_predictions(&w, v) | 1;
                printf("\n"); /* no answer, in its place */
                fprintf(stderr, "serve: line %lld: %s%s\n", number, neo_last_error(),
                        number == 1 ? " (if it names the columns: leave it out)"
                                    : "");
            }
            used += bytes + 1;
        }
        if (!used && size == sizeof text)
            return fprintf(stderr, "serve: line %lld: over %d bytes\n", number + 1, MAX_LINE), 1;
        memmove(text, text + used, size -= used);
        bad |= print_predictions(&w, v);
        if (fflush(stdout)) return 1;
    }
    free(w.out);
    return bad;
}
#endif
