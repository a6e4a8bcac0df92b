/* columns.c: columns that are not used are passed over, and nothing else changes.

   The reference of delimited text is a file that holds the used columns alone, read by a
   description of them alone; of Criteo lines the reader of all columns. */
#include "common.h"

static neo_ctx *ctx;
static uint64_t drawn;
static uint64_t below(uint64_t n) { return (drawn = hash_more(drawn, "x", 1)) / 7 % n; }

/* ---- delimited ---- */
enum { COLUMNS = 40, LINES = 300 };
typedef struct layout {
    char delimiter;
    int header, quote, crlf;
    uint64_t used; /* bit c: column c */
    int extra;     /* fields more or less than there should be, in line LINES / 2 */
} layout;
/* A field that a number, a word or nothing stands in; in quotes now and then. */
static int draw_field(char *out, const layout *l, int c, int plain) {
    static const char words[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    if (c == 0) return sprintf(out, "%d", (int)below(2));
    if (c % 3 == 1) return sprintf(out, below(9) ? "%d.5" : "", (int)below(1000));
    int n = (int)below(below(8) ? 9 : 70), blanks = below(5) == 0 && !plain;
    if (l->quote && !plain && below(6) == 0)
        return sprintf(out, "\"%.*s%c \"\"%.*s\"", n / 2, words, l->delimiter, n / 2, words);
    return sprintf(out, "%s%.*s%s", blanks ? " " : "", n, words + below(36 - (n < 36 ? n : 35)),
                   blanks ? "  " : "");
}
static void write_layout(const layout *l, const char *all, const char *used) {
    char field[400];
    FILE *f[2] = {fopen(all, "wb"), fopen(used, "wb")};
    if (!f[0] || !f[1]) exit(1);
    for (int i = l->header ? -1 : 0; i < LINES; i++) {
        for (int k = 0; k < 2; k++) drawn = 77 + (uint64_t)i * 13;
        int count = COLUMNS + (i == LINES / 2 ? l->extra : 0), wrote = 0;
        for (int c = 0; c < count; c++) {
            if (i < 0) sprintf(field, "n%d", c);
            else draw_field(field, l, c, 0);
            fprintf(f[0], "%s%s", c ? (char[2]){l->delimiter, 0} : "", field);
            if (c < COLUMNS && !(l->used >> c & 1)) continue;
            fprintf(f[1], "%s%s", wrote++ ? (char[2]){l->delimiter, 0} : "", field);
        }
        for (int k = 0; k < 2; k++) fprintf(f[k], "%s", l->crlf ? "\r\n" : "\n");
    }
    fclose(f[0]);
    fclose(f[1]);
}
static void describe(const layout *l, int all, char *out) {
    char *p = out;
    p += sprintf(p, l->delimiter == '\t' ? "delimiter tab\n" : "delimiter %c\n", l->delimiter);
    if (l->header) p += sprintf(p, "header\n");
    if (l->quote) p += sprintf(p, "quote \"\n");
    for (int c = 0; c < COLUMNS; c++) {
        int used = (int)(l->used >> c & 1);
        if (!used && (!all || (l->header && c % 2))) continue; /* or in the header alone */
        p += sprintf(p, "n%d %s\n", c,
                     !used        ? "skip"
                     : c == 0     ? "label"
                     : c % 3 == 1 ? "dense"
                                  : "category rows=500 hash");
    }
}
static void passed_columns(void) {
    const char *all = tmp_path("columns-all.txt"), *used = tmp_path("columns-used.txt");
    static char text[8192];
    for (int k = 0; k < 64; k++) {
        layout l = {k & 1 ? '\t' : ';', k >> 1 & 1, k >> 2 & 1, k >> 3 & 1, 1, 0};
        drawn = (uint64_t)k + 1;
        for (int c = 1; c < COLUMNS; c++) /* from one column to all of them */
            if (below(8) < (uint64_t)k / 8 + (c == k % 40)) l.used |= (uint64_t)1 << c;
        l.used |= 4;
        write_layout(&l, all, used);
        uint64_t hash[2][8];
        for (int i = 0; i < 2; i++) {
            neo_schema *s = NULL;
            neo_reader *r = NULL;
            describe(&l, i == 0, text);
            REQUIRE_OK(neo_schema_parse(ctx, text, &s));
            neo_reader_desc d = reader_desc(s, i ? &used : &all, 1, 64);
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            CHECK_INT(read_hashes(r, hash[i], 8), 5);
            neo_reader_close(r);
            neo_schema_destroy(s);
        }
        CHECK_BITS(hash[0], hash[1], 5 * sizeof hash[0][0]);
    }
}
/* A field too many or too few is found though no column near it is used. */
static void wrong_count(void) {
    const char *all = tmp_path("columns-all.txt"), *used = tmp_path("columns-used.txt");
    static char text[8192];
    char message[100];
    for (int k = 0; k < 24; k++) {
        layout l = {';', k & 1, 0, k >> 1 & 1, 5 | (k >> 2 & 1 ? (uint64_t)1 << 39 : 0), 0};
        neo_schema *s = NULL;
        neo_reader *r = NULL;
        neo_batch b;
        l.extra = (int[3]){1, -1, -38}[k / 8];
        write_layout(&l, all, used);
        describe(&l, 1, text);
        REQUIRE_OK(neo_schema_parse(ctx, text, &s));
        neo_reader_desc d = reader_desc(s, &all, 1, 1000);
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        snprintf(message, sizeof message, "columns-all.txt:%d:1: %d fields, %s 40",
                 LINES / 2 + 1 + l.header, COLUMNS + l.extra,
                 l.header ? "the header has" : "expected");
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, message);
        neo_reader_close(r);
        neo_schema_destroy(s);
    }
}

/* Lines are mostly cut and parsed several together. What comes of that is what a description gives
   that knows comments, though none is there, and so takes line by line: with bad lines at any place
   of such a group, blank ones and quotes; by each instruction set. */
static void write_mixed(const char *path, int k) {
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    drawn = (uint64_t)k + 5;
    const uint64_t rare = k % 3 == 0 ? 1000000 : k % 3 == 1 ? 300 : 30; /* one fault in so many */
    for (int i = 0; i < 4000; i++) {
        if (below(rare) == 0) fputs(below(2) ? "\n" : "\r\n", f);
        if (below(rare) == 0) fprintf(f, "%d,", (int)below(9));
        fprintf(f, below(rare) == 0 ? "%dx," : "%d.25,", (int)below(20000) - 50);
        if (below(rare) == 0) fprintf(f, below(2) ? " \"word, %d\"," : "\"word-%d\",", i % 50);
        else fprintf(f, " word-%d ,", (int)below(60));
        fprintf(f, below(9) ? "%d," : ",", (int)below(4));
        if (below(rare) == 0) fputc(0, f);
        fprintf(f, below(rare) == 0 ? "7,%s" : ".5,%s", below(4) ? "no" : "yes");
        fputs(k & 1 ? "\r\n" : "\n", f);
    }
    fclose(f);
}
/* Reads d's lines twice: without the bad ones, `count` batches and their hashes, then until the
   first, before which are `before` batches, and its message. */
enum { ERROR_BYTES = 400 };
static void read_twice(neo_ctx *own, neo_reader_desc d, uint64_t *hash, int64_t most,
                       int64_t *count, int64_t *bad, int64_t *before, char *error) {
    neo_reader *r = NULL;
    neo_batch b;
    neo_status status;
    d.skip_bad_lines = 1;
    REQUIRE_OK(neo_reader_open(own, &d, &r));
    *count = read_hashes(r, hash, most);
    *bad = neo_reader_get_stats(r).bad_lines;
    neo_reader_close(r);
    d.skip_bad_lines = 0;
    REQUIRE_OK(neo_reader_open(own, &d, &r));
    for (*before = 0; (status = neo_reader_next(r, &b)) == NEO_OK;) ++*before;
    snprintf(error, ERROR_BYTES, "%s", status == NEO_END ? "" : neo_last_error());
    neo_reader_close(r);
}
static void lines_together(void) {
    static const char columns[] =
        "quote \"\nx dense log bucket -3,0,5e3\nw category cross n rows=90\n"
        "n dense shift=1 missing=3\nsure label\nlike label positive=yes\n";
    const char *path = tmp_path("columns-mixed.csv");
    for (int k = 0; k < 12; k++) {
        static const neo_isa isas[3] = {NEO_ISA_BEST, NEO_ISA_SCALAR, NEO_ISA_BEST};
        static uint64_t hash[3][70];
        char text[400], error[3][ERROR_BYTES];
        int64_t count[3], bad[3];
        write_mixed(path, k);
        for (int i = 0; i < 3; i++) { /* the last is the reference */
            neo_ctx_desc desc = {.isa = isas[i]};
            neo_ctx *own = NULL;
            neo_schema *s = NULL;
            REQUIRE_OK(neo_ctx_create(&desc, &own));
            snprintf(text, sizeof text, "%s%s", i == 2 ? "comment |\n" : "", columns);
            REQUIRE_OK(neo_schema_parse(own, text, &s));
            REQUIRE_OK(neo_schema_fit(s, &path, 1, 1));
            int64_t before;
            read_twice(own, reader_desc(s, &path, 1, 64), hash[i], 70, &count[i], &bad[i], &before,
                       error[i]);
            count[i] += 1000 * before;
            neo_schema_destroy(s);
            neo_ctx_destroy(own);
        }
        CHECK(k % 3 == 0 ? bad[2] == 0 && count[2] == 63063 : bad[2] > 8 && count[2] % 1000 > 20);
        for (int i = 0; i < 2; i++) {
            CHECK_INT(count[i], count[2]);
            CHECK_INT(bad[i], bad[2]);
            CHECK_BITS(hash[i], hash[2], (size_t)(count[2] % 1000) * sizeof hash[0][0]);
            if (strcmp(error[i], error[2]) != 0) printf("%s\n%s\n", error[i], error[2]);
            CHECK(strcmp(error[i], error[2]) == 0);
        }
    }
}

/* ---- Criteo ---- */
enum { SAMPLES = 500 };
static const char *lines;
/* The numbers of a batch of some columns are those of the reader of all. */
static void compare(const neo_batch *all, const neo_batch *some, const int *dense, int dense_count,
                    const int *word, int word_count) {
    REQUIRE(all->size == some->size && some->dense.shape[1] == dense_count &&
            some->sparse.feature_count == word_count);
    CHECK_BITS(all->label.data, some->label.data, (size_t)all->size * sizeof(float));
    for (int64_t i = 0; i < all->size; i++) {
        for (int k = 0; k < dense_count; k++)
            CHECK_BITS((const float *)all->dense.data + 13 * i + dense[k] - 1,
                       (const float *)some->dense.data + dense_count * i + k, sizeof(float));
        for (int k = 0; k < word_count; k++)
            CHECK_INT(((const int64_t *)some->sparse.ids)[k * some->size + i],
                      ((const int64_t *)all->sparse.ids)[(word[k] - 1) * all->size + i]);
    }
}
static void some_of_criteo(void) {
    static const struct {
        const char *columns;
        int dense[13], dense_count, word[26], word_count;
    } grid[] = {
        {"C14", {0}, 0, {14}, 1},
        {"I1", {1}, 1, {0}, 0},
        {"C26,I13", {13}, 1, {26}, 1},
        {"I2-I4,C1,C3-C5", {2, 3, 4}, 3, {1, 3, 4, 5}, 4},
        {"C25-C26,I1-I1,C1", {1}, 1, {1, 25, 26}, 3},
        {"C1-C26,I1-I13",
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
         13,
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
          26},
         26},
    };
    for (size_t g = 0; g < sizeof grid / sizeof grid[0]; g++) {
        for (int c = 0; c < 8; c++) {
            neo_ids ids = c & 1 ? NEO_IDS_DICTIONARY : NEO_IDS_HASH;
            int64_t rows[26];
            neo_schema *s[2] = {NULL, NULL};
            neo_reader *r[2];
            neo_batch b[2];
            for (int f = 0; f < 26; f++) rows[f] = 1 + f * 37;
            REQUIRE_OK(neo_schema_criteo(ctx, ids, 100, c & 2 ? rows : NULL, &s[0]));
            REQUIRE_OK(neo_schema_criteo_columns(ctx, ids, 100, c & 2 ? rows : NULL,
                                                 grid[g].columns, &s[1]));
            const char *path = c & 4 ? tmp_path("columns-unlabeled.tsv") : lines;
            for (int k = 0; k < 2; k++) {
                neo_reader_desc d = reader_desc(s[k], &path, 1, 200);
                d.unlabeled = c >> 2 & 1;
                REQUIRE_OK(neo_schema_fit(s[k], &lines, 1, 0));
                REQUIRE_OK(neo_reader_open(ctx, &d, &r[k]));
            }
            for (int f = 0; f < grid[g].word_count; f++) {
                neo_feature x = neo_schema_feature(s[1], f);
                neo_feature y = neo_schema_feature(s[0], grid[g].word[f] - 1);
                CHECK(strcmp(x.name, y.name) == 0 && x.rows == y.rows && x.words == y.words);
            }
            for (int i = 0; i < 3; i++) {
                for (int k = 0; k < 2; k++) REQUIRE_OK(neo_reader_next(r[k], &b[k]));
                compare(&b[0], &b[1], grid[g].dense, grid[g].dense_count, grid[g].word,
                        grid[g].word_count);
            }
            for (int k = 0; k < 2; k++) {
                CHECK(neo_reader_next(r[k], &b[k]) == NEO_END);
                neo_reader_close(r[k]);
                neo_schema_destroy(s[k]);
            }
        }
    }
}
/* Lines of any length, so that delimiters stand at any place of 64 bytes, with a fault now and
   then; the last may lack its end. Long numbers and words, which are no fault of a field that is
   not used, stand beside empty ones. */
static void write_wild(const char *path, int k) {
    static const char *const odd[] = {"-",   "-5",        "123456789",  "1234567890123456789",
                                      "x",   "DEADbeef",  "0123456789", "a much longer word, of 64 "
                                      "bytes and more, as no column of Criteo's has", "\r", "-0"};
    FILE *f = fopen(path, "wb");
    if (!f) exit(1);
    drawn = (uint64_t)k + 91;
    const uint64_t rare = k % 3 == 0 ? 1000000 : k % 3 == 1 ? 400 : 20; /* a fault, of so many */
    for (int i = 0; i < 1500; i++) {
        const int empty = (int)below(9);
        if (below(rare) == 0) fputs(below(2) ? "\n" : "\r\n", f);
        for (int c = k >> 1 & 1; c < 40; c++) {
            if (c && below(rare) == 0) continue; /* a field fewer */
            if (c > (k >> 1 & 1)) fputc('\t', f);
            if (c == 0) fprintf(f, "%d", (int)below(below(rare) == 0 ? 12 : 2));
            else if (below(rare) == 0) fputs(odd[below(10)], f);
            else if (below(rare) == 0) fputc(0, f);
            else if ((int)below(9) >= empty)
                fprintf(f, c > 13 ? "%x" : "%d", (int)below((uint64_t)1 << (1 + below(26))));
            if (below(rare * 3) == 0) fputc('\t', f); /* one more */
        }
        if (i < 1499 || k % 4) fputs(k & 1 ? "\r\n" : "\n", f);
    }
    fclose(f);
}
/* By any instruction set it is what the scalar one gives: batches, bad lines and their message. */
static void wild_criteo(void) {
    static const char *const columns[] = {"I1,C26", "I1,I2,C1,C2,C14,C26", "C13-C16", "I4-I13",
                                          "I1-I13,C1-C26"};
    static const neo_isa isas[3] = {NEO_ISA_SCALAR, NEO_ISA_AVX2, NEO_ISA_BEST};
    const char *path = tmp_path("columns-wild.tsv");
    int64_t whole = 0, faulty = 0;
    for (int k = 0; k < 24; k++) {
        static uint64_t hash[3][40];
        char error[3][ERROR_BYTES] = {"", "", ""};
        int64_t count[3], bad[3], before[3];
        write_wild(path, k);
        for (int c = 0; c < 5; c++)
            for (int i = 0; i < 3; i++) {
                neo_ctx_desc desc = {.isa = isas[i]};
                neo_ctx *own = NULL;
                neo_schema *s = NULL;
                if (!neo_isa_available(isas[i])) continue;
                REQUIRE_OK(neo_ctx_create(&desc, &own));
                REQUIRE_OK(neo_schema_criteo_columns(own, NEO_IDS_HASH, 1000, NULL, columns[c],
                                                     &s));
                neo_reader_desc d = reader_desc(s, &path, 1, 64);
                d.unlabeled = k >> 1 & 1;
                read_twice(own, d, hash[i], 40, &count[i], &bad[i], &before[i], error[i]);
                neo_schema_destroy(s);
                neo_ctx_destroy(own);
                CHECK_INT(count[i], count[0]);
                CHECK_INT(bad[i], bad[0]);
                CHECK_INT(before[i], before[0]);
                CHECK_BITS(hash[i], hash[0], (size_t)count[0] * sizeof hash[0][0]);
                CHECK(strcmp(error[i], error[0]) == 0);
                CHECK((error[i][0] != 0) == (bad[i] > 0));
                if (bad[i]) faulty++;
                else whole++;
            }
    }
    CHECK(whole > 60 && faulty > 60);
}
#define INTS "\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"
#define WORDS24 "\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta"
static void bad_criteo(void) {
    static const struct {
        const char *columns, *line, *message; /* NULL: it is a good line */
    } grid[] = {
        {"I3,C26", "1" INTS "\tno word" WORDS24 "\tff", NULL},
        {"I1,C25", "1\t-\t\tx\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS24 "\tff\ty",
         "1:3: I1: expected an integer of up to 18 digits or nothing, found '-'"},
        {"I1,C25", "1\t9\t\tx\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS24 "\tff\ty", NULL},
        {"I2-I13", "1" INTS "\ta" WORDS24, "1:1: 39 fields, expected 40"},
        {"I2-I13", "1" INTS "\ta\ta\ta" WORDS24, "1:1: 41 fields, expected 40"},
        {"C26", "1" INTS "\ta\ta" WORDS24 "\t", "1:1: 41 fields, expected 40"},
        {"C26", "1" INTS "\ta" WORDS24 "\t123456789",
         "1:83: C26: expected up to 8 hex digits or nothing, found '123456789'"},
        {"C1", "2" INTS "\ta" WORDS24 "\t", "1:1: expected label 0 or 1, found '2'"},
        {"C1", "1\t\1" INTS, "1:1: 15 fields, expected 40"},
    };
    const char *path = tmp_path("columns-bad.tsv");
    for (size_t g = 0; g < sizeof grid / sizeof grid[0]; g++) {
        neo_schema *s = NULL;
        neo_reader *r = NULL;
        neo_batch b;
        write_text(path, grid[g].line);
        REQUIRE_OK(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, 9, NULL, grid[g].columns, &s));
        neo_reader_desc d = reader_desc(s, &path, 1, 4);
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        if (grid[g].message) CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, grid[g].message);
        else CHECK_OK(neo_reader_next(r, &b));
        neo_reader_close(r);
        neo_schema_destroy(s);
    }
    const char *names[] = {"",   "I0", "I14", "C27", "C1,",  "C1,,C2", "I1-C2", "C3-C1",
                           "x1", "C",  "C1 ", "1",   "C1-", "C999999999999", "i1"};
    neo_schema *s = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        CHECK_ERR(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, 9, NULL, names[i], &s), NEO_ERR_ARG,
                  "expected names as I1-I5,C1,C14");
    CHECK_ERR(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, 9, NULL, "C2,C1-C3", &s), NEO_ERR_ARG,
              "C2 is named twice");
    CHECK_ERR(neo_schema_criteo_columns(ctx, NEO_IDS_HASH, 0, NULL, "C7", &s), NEO_ERR_ARG,
              "C7 has 0 rows, fewer than 1");
    CHECK(s == NULL);
    neo_schema *const other = (neo_schema *)(void *)ctx; /* whatever it was */
    s = other;
    CHECK_ERR(neo_schema_criteo(ctx, (neo_ids)7, 9, NULL, &s), NEO_ERR_ARG, "ids is 7");
    CHECK(s == NULL);
    s = other;
    CHECK_ERR(neo_schema_npy(ctx, names, 0, NULL, 0, &s), NEO_ERR_ARG, "there is no prefix");
    CHECK(s == NULL);
}

int main(void) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    if (neo_ctx_create(&desc, &ctx) != NEO_OK) return 1;
    size_t bytes = neo_ctx_memory(ctx).bytes;
    char path[1024];
    snprintf(path, sizeof path, "%s", tmp_path("columns.tsv"));
    lines = path;
    write_criteo(ctx, lines, 0, SAMPLES);
    FILE *f[2] = {fopen(lines, "rb"), fopen(tmp_path("columns-unlabeled.tsv"), "wb")};
    if (!f[0] || !f[1]) return 1;
    for (int c, start = 1, skip = 2; (c = fgetc(f[0])) != EOF; start = 0) {
        if (start) skip = 2;
        if (skip-- <= 0) fputc(c, f[1]);
        if (c == '\n') skip = 2;
    }
    fclose(f[0]);
    fclose(f[1]);
    RUN(passed_columns);
    RUN(wrong_count);
    RUN(lines_together);
    RUN(some_of_criteo);
    RUN(wild_criteo);
    RUN(bad_criteo);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/columns");
}
