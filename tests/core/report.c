/* report.c: the HTML report.

   The page is read back and checked as text: every tag closed in order, attributes quoted, user
   text escaped, nothing fetched and no script, curves inside their box, ticks round. Then hostile
   numbers, thinning, memory, files. */
#include "neo_run.h"
#include "test.h"

#include <locale.h>

static const char *path = "build_test_report.html";
static char page[1 << 20];
static void read_page(void) {
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(page, 1, sizeof page - 1, f) : 0;
    page[n] = 0;
    if (f) fclose(f);
}
static void write_and_read(const neo_report *r) {
    CHECK_OK(neo_report_write(r, path));
    read_page();
    remove(path);
}
static neo_report *report(neo_ctx *ctx, const char *title) {
    neo_report *r = NULL;
    CHECK_OK(neo_report_create(ctx, title, &r));
    return r;
}

/* Every element is closed in order; void ones end in "/>"; attribute values are quoted; no stray <
   or >. */
static void check_well_formed(void) {
    char stack[64][16];
    int depth = 0, elements = 0;
    const char *s = page;
    if (strncmp(s, "<!DOCTYPE html>", 15) != 0) FAIL("no doctype");
    for (s += 15; *s; s++) {
        if (*s == '>') {
            FAIL("stray > at %.40s", s);
            return;
        }
        if (*s == '&' && strncmp(s, "&amp;", 5) && strncmp(s, "&lt;", 4) &&
            strncmp(s, "&gt;", 4) && strncmp(s, "&quot;", 6) && strncmp(s, "&#39;", 5))
            FAIL("stray & at %.40s", s);
        if (*s != '<') continue;
        int closing = s[1] == '/';
        size_t n = strspn(s + 1 + closing, "abcdefghijklmnopqrstuvwxyz0123456789");
        char name[16] = "";
        if (n == 0 || n > 15) {
            FAIL("bad tag at %.40s", s);
            return;
        }
        memcpy(name, s + 1 + closing, n);
        elements++;
        s += 1 + (size_t)closing + n;
        int empty = 0;
        while (*s && *s != '>') { /* attributes */
            if (*s == '"') {
                s += 1 + strcspn(s + 1, "\"<");
                if (*s != '"') {
                    FAIL("open quote before %.40s", s);
                    return;
                }
            } else if (*s == '=' && s[1] != '"') {
                FAIL("unquoted attribute at %.40s", s);
            } else if (*s == '<') {
                FAIL("< inside a tag at %.40s", s);
                return;
            }
            empty = *s == '/';
            s++;
        }
        if (closing) {
            if (depth == 0 || strcmp(stack[depth - 1], name) != 0) {
                FAIL("</%s> closes <%s>", name, depth ? stack[depth - 1] : "nothing");
                return;
            }
            depth--;
        } else if (!empty) {
            if (depth == 64) return;
            strcpy(stack[depth++], name);
            if (strcmp(name, "style") == 0)
                s = strstr(s, "</style>") - 1; /* CSS has > of its own */
        }
    }
    CHECK_INT(depth, 0);
    CHECK(elements > 8);
    CHECK(strstr(page, "</html>\n") != NULL);
    static const char *const banned[] = {"http",   "<script", "url(",  "@import", "src=", "href",
                                         "onload", "nan",     "inf\"", "xmlns",   "%s"};
    for (size_t i = 0; i < sizeof banned / sizeof banned[0]; i++)
        if (strstr(page, banned[i])) FAIL("the page has '%s'", banned[i]);
}
/* All coordinates of all paths lie in the box. */
static void check_paths(void) {
    int points = 0;
    for (const char *s = page; (s = strstr(s, " d=\"")) != NULL;) {
        for (s += 4; *s && *s != '"';) {
            char *end;
            double v = strtod(s, &end);
            if (end == s) {
                CHECK(strchr("MLHhZ ", *s) != NULL);
                s++;
                continue;
            }
            CHECK(v >= -0.05 && v <= 1000.05);
            points++;
            s = end;
        }
    }
    for (const char *s = page; (s = strstr(s, "%\"")) != NULL; s++) {
        const char *from = s;
        while (from[-1] == '.' || from[-1] == '-' || (from[-1] >= '0' && from[-1] <= '9')) from--;
        if (from < s) CHECK(atof(from) >= -0.05 && atof(from) <= 100.05);
    }
    CHECK(points > 0);
}
static int count_of(const char *what) {
    int n = 0;
    for (const char *s = page; (s = strstr(s, what)) != NULL; s++) n++;
    return n;
}

static void whole_page(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "DLRM on Adult");
    CHECK_OK(neo_report_note(r, "one paragraph"));
    CHECK_OK(neo_report_fact(r, "test AUC", "0.5"));
    CHECK_OK(neo_report_fact(r, "test AUC", "0.9141"));
    CHECK_OK(neo_report_axis(r, "Loss", "samples", "log loss"));
    for (int i = 0; i <= 100; i++) {
        CHECK_OK(neo_report_point(r, "Loss", "train", i * 1000, 0.3 + 0.4 / (i + 1)));
        CHECK_OK(neo_report_point(r, "Loss", "validation", i * 1000, 0.31 + 0.4 / (i + 1)));
        CHECK_OK(neo_report_point(r, "AUC", "validation", i * 1000, 0.9 - 0.2 / (i + 1)));
    }
    const char *head[] = {"table", "rows"}, *one[] = {"occupation", "16"},
               *two[] = {"country", "1,043"};
    CHECK_OK(neo_report_row(r, "Tables", head, 2));
    CHECK_OK(neo_report_row(r, "Tables", one, 2));
    CHECK_OK(neo_report_row(r, "Tables", two, 2));
    write_and_read(r);
    check_well_formed();
    check_paths();
    CHECK(strstr(page, "<title>DLRM on Adult</title>") && strstr(page, "<h1>DLRM on Adult</h1>"));
    CHECK(strstr(page, "<p>one paragraph</p>"));
    CHECK(strstr(page, "<dt>test AUC</dt><dd>0.9141</dd>") && !strstr(page, "<dd>0.5</dd>"));
    CHECK_INT(count_of("<figure>"), 2);
    CHECK_INT(count_of("class=\"line "), 3);
    CHECK(strstr(page, "train <b>0.3040</b>") != NULL);
    CHECK(strstr(page, ">20k</span>") &&
          strstr(page, ">100k</span>")); /* round ticks, 0 .. 100k */
    CHECK(strstr(page, ">0.3</span>") && strstr(page, ">0.7</span>"));
    CHECK(strstr(page, "<th>table</th><th class=\"n\">rows</th>") != NULL);
    CHECK(strstr(page, "<td>country</td><td class=\"n\">1,043</td>") != NULL);
    CHECK(strstr(page, "prefers-color-scheme:dark") && strstr(page, "name=\"viewport\""));
    neo_report_destroy(r);
    neo_report_destroy(NULL);
    neo_ctx_destroy(ctx);
}

static void empty_page(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "");
    write_and_read(r);
    check_well_formed();
    CHECK_OK(neo_report_row(r, "no cells", NULL, 0));
    CHECK_OK(neo_report_axis(r, "never drawn", "x", NULL));
    write_and_read(r);
    check_well_formed();
    CHECK_INT(count_of("<figure>"), 0);
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

static void text_is_escaped(void) {
    static const char *evil = "<b>&\"quote'\x01\n%s%n</style></p>\xff\xC3\xA9\xF0\x9F\x98\x80";
    static const char *safe = "&lt;b&gt;&amp;&quot;quote&#39;  "
                              "%s%n&lt;/style&gt;&lt;/p&gt;\xEF\xBF\xBD\xC3\xA9\xF0\x9F\x98\x80";
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, evil);
    const char *cells[] = {evil, NULL};
    CHECK_OK(neo_report_note(r, evil));
    CHECK_OK(neo_report_fact(r, evil, evil));
    CHECK_OK(neo_report_point(r, evil, evil, 1, 2));
    CHECK_OK(neo_report_axis(r, evil, evil, evil));
    CHECK_OK(neo_report_row(r, evil, cells, 2));
    CHECK_OK(neo_report_row(r, evil, cells, 2));
    write_and_read(r);
    CHECK_INT(
        count_of(safe),
        13); /* title twice, note, fact twice, chart name twice, curve, 2 axes, table, 2 cells */
    char *percent;
    while ((percent = strstr(page, "%s%n")) != NULL) *percent = '-';
    check_well_formed();
    /* text far longer than any internal buffer */
    static char big[20000];
    memset(big, 'x', sizeof big - 1);
    CHECK_OK(neo_report_fact(r, "big", big));
    CHECK_OK(neo_report_point(r, big, big, 1, 2));
    write_and_read(r);
    CHECK(strstr(page, big) != NULL);
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

static void hostile_numbers(void) {
    static const double values[] = {
        0,           1,      -1,      1e-300,   -1e-300,          1e299,
        -1e299,      1e300,  1.7e308, -1.7e308, (double)INFINITY, (double)-INFINITY,
        (double)NAN, 5e-324, 1e15,    1e15 + 1, 123456789,        0.1,
        0.3};
    enum { N = sizeof values / sizeof values[0] };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            neo_report *r = report(ctx, "numbers");
            CHECK_OK(neo_report_point(r, "chart", "curve", values[i], values[j]));
            CHECK_OK(neo_report_point(r, "chart", "curve", values[j], values[i]));
            CHECK_OK(neo_report_point(r, "chart", "curve", 2, 3));
            CHECK_OK(neo_report_point(r, "chart", "single", values[j], values[i]));
            write_and_read(r);
            char *s; /* the legend may show a value that is not a number */
            while ((s = strstr(page, "<b>nan</b>")) != NULL ||
                   (s = strstr(page, "<b>-nan</b>")) != NULL)
                memcpy(s, "<b>NaN", 6);
            check_well_formed();
            check_paths();
            CHECK(count_of("<span class=\"y\"") >= 2 && count_of("<span class=\"y\"") <= 20);
            neo_report_destroy(r);
        }
    neo_report *r = report(ctx, "nothing finite");
    CHECK_OK(neo_report_point(r, "chart", "curve", 1, (double)NAN));
    write_and_read(r);
    CHECK(strstr(page, "no finite points") != NULL);
    neo_report_destroy(r);
    r = report(ctx, "gap");
    for (int i = 0; i < 9; i++)
        CHECK_OK(neo_report_point(r, "chart", "curve", i, i == 4 ? (double)NAN : i));
    write_and_read(r);
    const char *line = strstr(page, "class=\"line");
    REQUIRE(line);
    int moves = 0;
    for (const char *s = strstr(line, "d=\"") + 3; *s != '"'; s++) moves += *s == 'M';
    CHECK_INT(moves, 2);
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

static void curves_are_thinned(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "long");
    CHECK_OK(neo_report_point(r, "c", "k", 0, 0));
    int64_t allocs = neo_ctx_memory(ctx).alloc_count;
    for (int i = 1; i <= 100001; i++) CHECK_OK(neo_report_point(r, "c", "k", i, i));
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, allocs); /* nothing after the first point */
    write_and_read(r);
    check_well_formed();
    check_paths();
    const char *line = strstr(page, "class=\"line");
    REQUIRE(line);
    int points = 0;
    const char *s = strstr(line, "d=\"") + 3, *last = s;
    for (; *s != '"'; s++)
        if (*s == 'L' || *s == 'M') points++, last = s;
    CHECK(points > 1000 && points <= 2049);
    CHECK(strncmp(last, "L1000.0 ", 8) == 0); /* the newest point is there */
    CHECK(strstr(page, "<b>100k</b>") != NULL);
    neo_report_destroy(r);
    r = report(ctx, "noise"); /* a noisy curve is drawn as it is */
    for (int i = 0; i < 300; i++)
        CHECK_OK(neo_report_point(r, "c", "k", i, (double)test_uniform()));
    write_and_read(r);
    check_well_formed();
    check_paths();
    CHECK_INT(count_of("class=\"line c0\""), 1);
    neo_report_destroy(r);
    r = report(ctx, "many"); /* more curves than colours */
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "k%d", i);
        CHECK_OK(neo_report_point(r, "c", name, 0, i));
        CHECK_OK(neo_report_point(r, "c", name, 1, i));
    }
    write_and_read(r);
    check_well_formed();
    CHECK_INT(count_of("class=\"line "), 20);
    CHECK_INT(count_of("class=\"line c7 dash\""), 1);
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

/* Bars of kinds on lanes, below the curves; a curve of one point is a dot. */
static void timelines(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "step");
    CHECK_OK(neo_report_bar(r, "step", "lookup", "compute", 0, 2));
    CHECK_OK(neo_report_bar(r, "step", "rows", "cross <links>", 2, 5));
    CHECK_OK(neo_report_bar(r, "step", "lookup", "compute", 5, 10));
    CHECK_OK(neo_report_bar(r, "step", "rows", "compute", 4, 5));
    CHECK_OK(neo_report_point(r, "loss", "train", 7, 0.5));
    write_and_read(r);
    check_well_formed();
    check_paths();
    CHECK(strstr(page, "<h2>loss") && strstr(page, "<h2>loss") < strstr(page, "<h2>step"));
    CHECK(strstr(page, "c0 bar\" d=\"M0.0 250.0L200.0 250.0M500.0 250.0L1000.0 250.0\"") != NULL);
    CHECK(strstr(page, "c1 bar\" d=\"M200.0 750.0L500.0 750.0M400.0 250.0L500.0 250.0\"") != NULL);
    CHECK(strstr(page, "top:25.00%\">compute</span>") != NULL);
    CHECK(strstr(page, "top:75.00%\">cross &lt;links&gt;</span>") != NULL);
    CHECK(strstr(page, "lookup</li>") && strstr(page, "class=\"line c0 dot\" d=\"M500.0 "));
    CHECK_INT(count_of("h0\" />"), 1);
    CHECK_ERR(neo_report_bar(r, "step", "rows", NULL, 0, 1), NEO_ERR_ARG, "lane");
    for (int i = 2; i < 682; i++) CHECK_OK(neo_report_bar(r, "step", "rows", "compute", i, i + 1));
    CHECK_ERR(neo_report_bar(r, "step", "rows", "compute", 0, 1), NEO_ERR_CAPACITY, "682 bars");
    write_and_read(r);
    CHECK_INT(count_of(" bar\""), 2);
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

/* ---- memory and files ---- */
static int64_t allocs_left;
static void *few_alloc(size_t size, size_t align, void *user) {
    (void)user;
    if (allocs_left-- <= 0) return NULL;
    return aligned_alloc(align, (size + align - 1) / align * align);
}
static void few_free(void *p, size_t size, void *user) {
    (void)size;
    (void)user;
    free(p);
}
static neo_status build(neo_ctx *ctx, neo_report **r) {
    const char *cells[] = {"a", "b", "c"};
    neo_status st = neo_report_create(ctx, "title", r);
    if (st == NEO_OK) st = neo_report_note(*r, "note");
    if (st == NEO_OK) st = neo_report_fact(*r, "fact", "1");
    if (st == NEO_OK) st = neo_report_fact(*r, "fact", "2");
    if (st == NEO_OK) st = neo_report_point(*r, "chart", "curve", 1, 2);
    if (st == NEO_OK) st = neo_report_bar(*r, "bars", "kind", "lane", 1, 2);
    if (st == NEO_OK) st = neo_report_axis(*r, "chart", "x", "y");
    if (st == NEO_OK) st = neo_report_axis(*r, "chart", "x2", "y2");
    if (st == NEO_OK) st = neo_report_row(*r, "table", cells, 3);
    return st;
}
static void every_allocation_may_fail(void) {
    neo_ctx_desc desc = {.allocator = {few_alloc, few_free, NULL}, .threads = 1};
    neo_ctx *ctx;
    allocs_left = 100;
    REQUIRE_OK(neo_ctx_create(&desc, &ctx));
    size_t before = neo_ctx_memory(ctx).bytes;
    int failures = 0;
    for (int allowed = 0; allowed < 100; allowed++) {
        neo_report *r = NULL;
        allocs_left = allowed;
        neo_status st = build(ctx, &r);
        if (st != NEO_OK) {
            CHECK_INT(st, NEO_ERR_MEMORY);
            failures++;
        }
        if (r) write_and_read(r); /* what is there is whole */
        if (r) check_well_formed();
        neo_report_destroy(r);
        CHECK_INT(neo_ctx_memory(ctx).bytes, before);
        if (st == NEO_OK) break;
    }
    CHECK(failures >= 3 &&
          failures < 99); /* the report, its names and texts, the points of the curve */
    neo_ctx_destroy(ctx);
}
/* Paths and numbers are the same where the locale writes 0,5 for a half. */
static void other_locales(void) {
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ru_RU.UTF-8", "de_DE"};
    static char plain[sizeof page];
    int found = 0;
    for (int l = 0; l < 4 && !found; l++) found = setlocale(LC_ALL, locales[l]) != NULL;
    setlocale(LC_ALL, "C");
    if (!found) SKIP("no locale with a decimal comma is installed");
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "comma");
    for (int i = 0; i < 40; i++)
        CHECK_OK(neo_report_point(r, "loss", "train", i * 0.37, 0.5 + i % 7 * 0.123));
    write_and_read(r);
    memcpy(plain, page, sizeof page);
    for (int l = 0; l < 4; l++) {
        if (!setlocale(LC_ALL, locales[l])) continue;
        write_and_read(r);
        setlocale(LC_ALL, "C");
        CHECK(strcmp(plain, page) == 0);
    }
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}
static void files(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_report *r = report(ctx, "first");
    CHECK_OK(neo_report_write(r, path));
    CHECK_OK(neo_report_fact(r, "again", "1"));
    CHECK_OK(neo_report_write(r, path)); /* replaces */
    read_page();
    CHECK(strstr(page, "again") != NULL);
    check_well_formed();
    remove(path);
    CHECK_ERR(neo_report_write(r, "no/such/dir/report.html"), NEO_ERR_NOT_FOUND, "no/such/dir");
    CHECK_ERR(neo_report_write(r, "."), NEO_ERR_IO, ".");
    CHECK_ERR(neo_report_write(r, ""), NEO_ERR_ARG, "empty");
    CHECK_ERR(neo_report_write(r, NULL), NEO_ERR_ARG, "path");
    FILE *f = fopen("/dev/full", "wb");
    if (f) {
        fclose(f);
        CHECK_ERR(neo_report_write(r, "/dev/full"), NEO_ERR_IO, "/dev/full");
    }
    neo_report_destroy(r);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(whole_page);
    RUN(empty_page);
    RUN(text_is_escaped);
    RUN(hostile_numbers);
    RUN(curves_are_thinned);
    RUN(timelines);
    RUN(every_allocation_may_fail);
    RUN(other_locales);
    RUN(files);
    return test_end("core/report");
}
