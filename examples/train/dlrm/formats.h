/* formats.h: the formats of data: which options each takes, how --format auto tells them apart, and
   the schema of each. */
#ifndef DLRM_FORMATS_H
#define DLRM_FORMATS_H
#include "options.h"
#include <ctype.h>

typedef struct schema_call {
    neo_ctx *ctx;
    const options *o;
    const char *const *files;
    int count;
    neo_schema **out;
} schema_call;

enum { MOST_MADE = 4 }; /* labels that --synthetic makes */
/* Labels that --tasks gives data which does not say itself how many it has. */
static int count_tasks(const options *o) {
    float weights[MAX_TASKS];
    int count;
    return parse_tasks(o->tasks, weights, &count) == NEO_OK && count ? count : 1;
}

/* ---- the schema of each ---- */

/* Messages of names in --columns begin with the option, not with the function that took them. */
static neo_status chosen_schema(const schema_call *c, int64_t most, const int64_t *each) {
    const neo_status status = neo_schema_criteo_columns(
        c->ctx, NEO_IDS_HASH, most ? most : 100000, each, c->o->columns, c->out);
    const char *what = status == NEO_OK ? NULL : strstr(neo_last_error(), ": ");
    return what ? neo_fail(status, "--columns%s", what) : status;
}
static neo_status criteo_schema(const schema_call *c) {
    int64_t rows[26];
    const int64_t *each = tables_of_preset(c->o, rows) ? rows : NULL, most = c->o->rows;
    if (c->o->columns) return chosen_schema(c, most, each);
    return neo_schema_criteo(c->ctx, NEO_IDS_HASH, most || each ? most : 100000, each, c->out);
}
/* The description of columns, of which the Adult data's lies beside them. */
static neo_status column_schema(const schema_call *c) {
    char path[4096];
    const char *file = c->files[0], *slash = strrchr(file, '/');
    int folder = slash ? (int)(slash - file + 1) : 0;
    if (c->o->columns) return neo_schema_parse(c->ctx, c->o->columns, c->out);
    if (c->o->format[0] == 'd') REFUSE("--format delimited needs --columns FILE");
    if (is_stdin(file)) REFUSE("--format adult from standard input needs --columns FILE");
    snprintf(path, sizeof path, "%.*sadult.columns", folder, file);
    const neo_status status = neo_schema_parse(c->ctx, path, c->out);
    if (status != NEO_ERR_NOT_FOUND) return status;
    return neo_fail(status, "%s: not there: --format adult has its columns beside its data, or "
                    "give --columns FILE", path);
}
/* An error of data: say which option puts it right. An id above the rows that are counted is one
   that test data alone have; rows of raw that do not fill their file, or begin with no label, have
   another size. */
static neo_status advise_data(const options *o, neo_status status) {
    const char *said = status == NEO_OK || status == NEO_END ? "" : neo_last_error();
    if (strstr(said, "the rows of its table") || strstr(said, "rows are counted"))
        return neo_fail(status, "%s: --rows N gives tables their size, with ids modulo N", said);
    if (strstr(said, "no column of the description"))
        REFUSE("%s: no column is a label, as in: click label",
               o->columns ? o->columns : "adult.columns");
    if (o->hot && (strstr(said, "ends inside row") || strstr(said, "a label")))
        return neo_fail(status, "%s: a row is its label (those of --tasks), 13 numbers and the "
                        "ids of --hot %.99s", said, o->hot);
    return status;
}
static neo_status svm_schema(const schema_call *c, int with_fields) {
    neo_libsvm_desc d = {.with_fields = with_fields, .rows = c->o->rows, .modulo = c->o->rows > 0,
                         .paths = c->files, .path_count = c->count,
                         .skip_bad_lines = c->o->bad_lines[0] == 's'};
    for (int i = 0; i < c->count && (with_fields || !c->o->rows); i++)
        if (is_read_once(c->files[i]))
            REFUSE("%s is read once, and the largest %s is found by a pass of its own%s",
                   c->files[i], with_fields ? "field" : "index",
                   with_fields ? "" : ": give --rows");
    return advise_data(c->o, neo_schema_libsvm(c->ctx, &d, c->out));
}
static neo_status libsvm_schema(const schema_call *c) { return svm_schema(c, 0); }
static neo_status libffm_schema(const schema_call *c) { return svm_schema(c, 1); }
/* --rows, or of keys the range of all ids: it need not be counted, nor end where rows would. */
static int64_t range_of_ids(const options *o) {
    return o->keys && !o->rows ? INT64_MAX : o->rows;
}
static int is_there(const char *prefix, const char *name) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s%s", prefix, name);
    FILE *f = length < (int)sizeof path ? fopen(path, "rb") : NULL;
    return f && fclose(f) == 0;
}
static neo_status one_of_several(const char *path, int is_array) {
    REFUSE("%s is %s: --data is what their names begin with, as dir/day_0_", path,
           is_array ? "one of several files" : "no array, and arrays are several files");
}
/* --rows for every feature of arrays, whose number they know themselves. */
typedef neo_status (*arrays_fn)(neo_ctx *ctx, const char *const *prefixes, int count,
                                const int64_t *rows, int modulo, neo_schema **schema);
static neo_status arrays_schema(const schema_call *c, arrays_fn create) {
    enum { MOST = 65536 }; /* features that neo takes */
    for (int i = 0; i < c->count; i++)
        if (!is_there(c->files[i], "dense.npy") && is_there(c->files[i], ""))
            return one_of_several(c->files[i], strstr(c->files[i], ".np") != NULL);
    const int64_t range = range_of_ids(c->o);
    const int given = range > 0;
    int64_t *rows = given ? malloc(MOST * sizeof *rows) : NULL;
    if (given && !rows) return out_of_memory();
    for (int i = 0; given && i < MOST; i++) rows[i] = range;
    neo_status status = create(c->ctx, c->files, c->count, rows, c->o->rows > 0, c->out);
    free(rows);
    return advise_data(c->o, status);
}
static neo_status npy_schema(const schema_call *c) { return arrays_schema(c, neo_schema_npy); }
static neo_status npz_schema(const schema_call *c) { return arrays_schema(c, neo_schema_npz); }
static neo_status binary_schema(const schema_call *c) {
    neo_binary_desc d = {.rows = range_of_ids(c->o), .modulo = c->o->rows || c->o->preset,
                         .label_count = count_tasks(c->o), .paths = c->files,
                         .path_count = c->count};
    int64_t rows[26];
    if (tables_of_preset(c->o, rows)) d.rows_per_feature = rows;
    return advise_data(c->o, neo_schema_binary(c->ctx, &d, c->out));
}
static neo_status raw_schema(const schema_call *c) {
    neo_binary_desc d = {.rows = range_of_ids(c->o), .modulo = c->o->rows > 0, .paths = c->files,
                         .path_count = c->count, .float_dense = 1,
                         .label_count = count_tasks(c->o)};
    int32_t hot[1024];
    const char *p = c->o->hot;
    if (!p) REFUSE("--format raw needs --hot, how many ids each feature has, as 3,2,1");
    for (;; p++) {
        char *end;
        long long n = strtoll(p, &end, 10);
        if (end == p || (*end && *end != ',') || n < 1 || n > 65536 || d.feature_count == 1024)
            REFUSE("--hot %s: not numbers (1 .. 65536) joined by ','", c->o->hot);
        hot[d.feature_count++] = (int32_t)n;
        p = end;
        if (!*p) break;
    }
    d.ids_per_feature = hot;
    return advise_data(c->o, neo_schema_binary(c->ctx, &d, c->out));
}

typedef struct format {
    const char *name;
    neo_status (*schema)(const schema_call *call);
    int rows, columns, lines; /* it takes --rows, --columns; it is text */
} format;
static const format FORMATS[] = {
    {"criteo", criteo_schema, 1, 1, 1}, {"adult", column_schema, 0, 1, 1},
    {"delimited", column_schema, 0, 1, 1}, {"libsvm", libsvm_schema, 1, 0, 1},
    {"libffm", libffm_schema, 1, 0, 1}, {"npy", npy_schema, 1, 0, 0},
    {"npz", npz_schema, 1, 0, 0}, {"binary", binary_schema, 1, 0, 0}, {"raw", raw_schema, 1, 0, 0},
};
enum { FORMAT_COUNT = sizeof FORMATS / sizeof FORMATS[0] };

/* NULL: there is none. */
static const format *find_format(const char *name) {
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (strcmp(FORMATS[i].name, name) == 0) return &FORMATS[i];
    return NULL;
}

/* ---- --format auto: a look at the first bytes ---- */

/* The format of a line: by its tabs, or the colons of every word behind the first. NULL: none. */
static const char *line_format(const char *p, const char *end) {
    int tabs = 0, words = 0, colons[3] = {0, 0, 0};
    for (const char *q = p; q < end; q++) tabs += *q == '\t';
    if (tabs == 38 || tabs == 39) return "criteo";
    const char *comment = memchr(p, '#', (size_t)(end - p));
    if (comment) end = comment;
    for (int first = 1; p < end; first = 0) {
        int n = 0;
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
        if (p == end) break;
        if (end - p > 4 && memcmp(p, "qid:", 4) == 0) first = 1;
        for (; p < end && *p != ' ' && *p != '\t' && *p != '\r'; p++) n += *p == ':';
        if (first) continue;
        words++;
        if (n < 3) colons[n]++;
    }
    return words && words == colons[1] ? "libsvm" : words && words == colons[2] ? "libffm" : NULL;
}
/* Text of two bytes a character, each second one 0: with its mark, or by its first characters. */
static int is_utf16(const char *bytes, size_t count) {
    const unsigned char *b = (const unsigned char *)bytes;
    if (count > 4 && ((b[0] == 0xff && b[1] == 0xfe) || (b[0] == 0xfe && b[1] == 0xff))) return 1;
    const size_t zero = b[0] ? 1 : 0; /* of each pair */
    size_t i = 0;
    while (i + 2 <= count && i < 64 && !b[i + zero] &&
           (isprint(b[i + 1 - zero]) || isspace(b[i + 1 - zero])))
        i += 2;
    return i >= 8 && (i == 64 || i + 2 > count);
}
/* The format of a file: by the files beside it (npy, npz, adult) or its first line. NULL: it begins
   like none. */
static neo_status look_at(const options *o, const char *path, const char **name) {
    char bytes[1 << 16], folder[4096];
    const char *slash = strrchr(path, '/'), *p = bytes;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 0, path);
    *name = o->columns ? "delimited" : NULL;
    if (*name) return NEO_OK;
    if (is_read_once(path))
        REFUSE("--format auto looks into a file first, and %s is read once", path);
    *name = is_there(path, "sparse_multi_hot.npz") && !is_there(path, "sparse.npy") ? "npz" : "npy";
    if (is_there(path, "dense.npy")) return NEO_OK;
    *name = NULL;
    FILE *f = fopen(path, "rb");
    if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "%s: cannot open: %s", path, strerror(errno));
    size_t count = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    if (count == 0) REFUSE("%s holds no sample", path);
    if (is_utf16(bytes, count))
        REFUSE("%s is UTF-16: iconv -f UTF-16%s -t UTF-8 makes text of it that can be read", path,
               bytes[0] == 0 ? "BE" : bytes[1] == 0 ? "LE" : "");
    if (count > 6 && (strstr(path, ".npz") || memcmp(bytes, "\x93NUMPY", 6) == 0))
        return one_of_several(path, 1);
    if (neo_packing_of(bytes, count).name)
        REFUSE("%s is compressed: %s it into --data - with the --format of its text", path,
               neo_packing_of(bytes, count).unpack);
    if (count >= 160 && memchr(bytes, 0, 160)) *name = o->hot ? "raw" : "binary";
    for (const char *end = p + count, *stop; !*name && p < end; p = stop < end ? stop + 1 : end) {
        stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) /* as far as it was read, in whole words */
            for (stop = end; count == sizeof bytes && stop > p + 1 && stop[-1] != ' ';) stop--;
        while (p < stop && (*p == ' ' || *p == '\t')) p++;
        if (stop - p < 3 || *p == '#') continue; /* a comment, or at most a label */
        *name = line_format(p, stop);
        break;
    }
    if (!*name && is_there(folder, "adult.columns")) *name = "adult";
    return NEO_OK;
}

/* ---- options, and the schema ---- */

/* Options that have no effect with a format. */
static neo_status check_known_format(const options *o, const format *f) {
    if (o->rows && !f->rows) REFUSE("--rows: --format %s knows its rows", f->name);
    if (o->columns && (!f->columns || o->synthetic))
        REFUSE("--columns is for --format delimited, adult or criteo, not %s",
               o->synthetic ? "synthetic data" : f->name);
    if (o->tasks && f->lines && !o->synthetic)
        REFUSE("--tasks: --format %s: %s", f->name,
               f->columns && strcmp(f->name, "criteo")
                   ? "the description has them, as in: click label weight=2"
                   : "a line has one label (of --format delimited as many as its columns say)");
    if (o->synthetic && count_tasks(o) > MOST_MADE)
        REFUSE("--tasks %s: %d labels, and generated samples have up to %d", o->tasks,
               count_tasks(o), MOST_MADE);
    if (o->hot && strcmp(f->name, "raw")) REFUSE("--hot is for --format raw, not %s", f->name);
    if (is_stdin(o->data) && !f->lines)
        REFUSE("--format %s cannot come from standard input", f->name);
    return NEO_OK;
}
static neo_status check_format(const options *o) {
    const format *f = find_format(o->format);
    char names[200] = "";
    for (int i = 0; i < FORMAT_COUNT; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", FORMATS[i].name);
    if (!f && strcmp(o->format, "auto")) REFUSE("--format %s: not %sor auto", o->format, names);
    if (o->synthetic && (o->data || o->test))
        REFUSE("--synthetic generates data: leave out --%s", o->data ? "data" : "test");
    if (o->synthetic && !o->no_format)
        REFUSE("--synthetic generates samples, and reads none of --format %s: leave out --format",
               o->format);
    return f ? check_known_format(o, f) : NEO_OK;
}

/* of: what was made of the same options before, or NULL; test may be. */
static neo_status synthetic_schemas(neo_ctx *ctx, const options *o, const neo_schema *of,
                                    neo_schema **train, neo_schema **test) {
    int64_t samples = o->synthetic;
    neo_synthetic_desc d = {
        .samples = samples, .rows = o->rows, .label_count = count_tasks(o), .of = of};
    int64_t rows[26];
    const preset_tables *preset = tables_of_preset(o, rows);
    if (preset) d.rows_per_feature = rows, d.hot = preset->hot;
    TRY(neo_schema_synthetic(ctx, &d, train));
    if (!test) return NEO_OK;
    d = (neo_synthetic_desc){
        .samples = synthetic_tests(o), .first_sample = samples, .of = *train};
    return neo_schema_synthetic(ctx, &d, test);
}
static neo_status create_schema_of_format(const cli_rank *me, neo_ctx *ctx, const options *o,
                                          const char *const *files, int count,
                                          neo_schema **train) {
    const schema_call call = {ctx, o, files, count, train};
    const char *name = o->format;
    for (int i = 0; i < count; i++)
        if (is_directory(files[i]) && !is_there(files[i], "dense.npy"))
            REFUSE("%s is a directory: name its files, or for arrays what their names begin with, "
                   "as DIR/day_0_", files[i]);
    const int told = strcmp(name, "auto") == 0;
    if (told || (o->no_format && !o->columns && !o->hot && !is_read_once(files[0]))) {
        TRY(look_at(o, files[0], &name));
        if (told && !name)
            REFUSE("--format auto: %s begins like no format that it knows", files[0]);
        if (!name) { /* whose reader says what is wrong */
            name = "criteo";
            say(me, "%s is read as --format criteo: it begins like no format (text that a file "
                    "describes: --columns)\n", files[0]);
        } else if (told || strcmp(name, "criteo"))
            say(me, "--format %s, by a look at %s\n", name, files[0]);
    }
    const format *f = find_format(name);
    TRY(check_known_format(o, f));
    return f->schema(&call);
}
/* The schemas of training and test data: one, but for synthetic data. */
static neo_status create_schema(const cli_rank *me, neo_ctx *ctx, const options *o,
                                const neo_schema *generated, const char *const *files, int count,
                                neo_schema **train, neo_schema **test) {
    float weights[MAX_TASKS];
    int tasks;
    TRY(parse_tasks(o->tasks, weights, &tasks));
    if (o->synthetic) TRY(synthetic_schemas(ctx, o, generated, train, test));
    else TRY(create_schema_of_format(me, ctx, o, files, count, train));
    if (!o->synthetic) *test = *train;
    if (neo_schema_label_count(*train) > MAX_TASKS)
        REFUSE("the samples have %d labels, at most %d are tasks",
               (int)neo_schema_label_count(*train), MAX_TASKS);
    return tasks ? neo_schema_weigh_labels(*train, weights, tasks) : NEO_OK;
}
#endif
