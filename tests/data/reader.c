/* reader.c: readers of text: what lines become, which lines are refused
   and how that is told, and that batches depend on nothing but the files, the
   seed and the position.

   The reference is the single-threaded, unshuffled reader, itself compared with
   a plain parser here. */
#include "common.h"

#if !defined(_WIN32)
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

static neo_ctx *ctx;
static neo_schema *criteo; /* hash, 1000 rows each */

enum { MOST = 4096 };

/* ---- values ---- */
static const char plain_line[] =
    "1\t1\t-2\t0\t\t100\t7\t999999999999999999\t3\t4\t5\t4095\t4096\t-0\t"
    "000003e7\tffffffff\t\tAbCdEf01\t1\t22\t333\t4444\t55555\t666666\t7777777\t"
    "0\t00000000\t"
    "a\tb\tc\td\te\tf\t10\t11\t12\t13\t14\t15\t\n";
static void criteo_values(void) {
    const char *path = tmp_path("values.tsv");
    char text[2048];
    size_t n = strlen(plain_line);
    memcpy(text, plain_line, n);
    memcpy(text + n, plain_line, n); /* again, with \r\n and label 0 */
    memcpy(text + 2 * n - 1, "\r\n", 3);
    text[n] = '0';
    memcpy(text + 2 * n + 1, plain_line, n - 1); /* again, without \n */
    write_bytes(path, text, 3 * n);
    neo_reader *r = NULL;
    neo_batch b;
    neo_reader_desc d = reader_desc(criteo, &path, 1, 8);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    REQUIRE(b.size == 3 && b.dense.shape[1] == 13 && b.sparse.feature_count == 26);
    const double value[13] = {1, 0, 0, 0, 100, 7, 999999999999999999.0, 3, 4, 5, 4095, 4096, 0};
    const uint32_t word[26] = {0x3e7,  0xffffffff, 0,        0xabcdef01, 1,   0x22, 0x333,
                               0x4444, 0x55555,    0x666666, 0x7777777,  0,   0,    0xa,
                               0xb,    0xc,        0xd,      0xe,        0xf, 0x10, 0x11,
                               0x12,   0x13,       0x14,     0x15,       0};
    for (int i = 0; i < 3; i++) {
        const float *dense = (const float *)b.dense.data + 13 * i;
        CHECK(((const float *)b.label.data)[i] == (i == 1 ? 0.0f : 1.0f));
        for (int k = 0; k < 13; k++) CHECK(dense[k] == (float)log(value[k] + 1.0));
        for (int k = 0; k < 26; k++) {
            int64_t id = ((const int64_t *)b.sparse.ids)[k * 3 + i];
            CHECK_INT(id, k == 2 || k == 25 ? 0 : 1 + word[k] % 999);
            CHECK_INT(b.sparse.offsets[k * 3 + i], k * 3 + i);
        }
    }
    CHECK_INT(b.sparse.offsets[78], 78);
    CHECK(neo_reader_next(r, &b) == NEO_END);
    CHECK(neo_reader_next(r, &b) == NEO_END);
    neo_reader_stats q = neo_reader_get_stats(r);
    CHECK_INT(q.samples, 3);
    CHECK_INT(q.bytes, 3 * n);
    CHECK_INT(q.total_bytes, 3 * n);
    neo_reader_close(r);
}

/* Lines of fields of all lengths, some with a wrong byte: vector instructions make the same samples
   of them as plain C, and refuse the same. */
static uint32_t random_bits(int below) { return test_random() % (uint32_t)below; }
static void criteo_isas(void) {
    static const char odd[] = "\t\n\r -/0:9@AFG`afg\x80\xB0\xC1\x01\x10\x19";
    const char *path = tmp_path("isas.tsv");
    enum { LINES = 3000 };
    static char text[LINES * 512];
    size_t n = 0;
    for (int line = 0; line < LINES; line++) {
        const size_t start = n;
        const int longest = random_bits(4) ? 8 : 19;
        text[n++] = (char)('0' + random_bits(2));
        for (int i = 0; i < 39; i++) {
            text[n++] = '\t';
            if (i < 13 && random_bits(9) == 0) text[n++] = '-';
            for (uint32_t k = random_bits(i < 13 ? longest : 9); k > 0; k--)
                text[n++] = i < 13 ? "0123456789"[random_bits(10)]
                                   : "0123456789abcdefABCDEF"[random_bits(22)];
        }
        if (random_bits(3) == 0)
            text[start + random_bits((int)(n - start))] = odd[random_bits((int)sizeof odd)];
        if (random_bits(4) == 0) text[n++] = '\r';
        text[n++] = '\n';
    }
    write_bytes(path, text, n);
    static float dense[2][LINES * 13], label[2][LINES];
    static int64_t ids[2][LINES * 26], count[2], bad[2];
    for (int isa = 0; isa < 2; isa++) {
        const int64_t rows[26] = {1, 2, 3, 1000, 1 << 20, 0xFFFFFFFF, 1ll << 32, 1ll << 33, 7, 7, 7,
                                  7, 7, 7,    7,       7,          7,         7,         7, 7, 7,
                                  7, 7, 7,    999983,  1 << 30};
        neo_ctx *own = test_ctx(1, isa ? NEO_ISA_BEST : NEO_ISA_SCALAR, 1);
        neo_schema *schema = NULL;
        neo_reader *r = NULL;
        neo_batch b;
        REQUIRE_OK(neo_schema_criteo(own, NEO_IDS_HASH, 1000, rows, &schema));
        neo_reader_desc d = reader_desc(schema, &path, 1, 100);
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(own, &d, &r));
        for (; neo_reader_next(r, &b) == NEO_OK; count[isa] += b.size) {
            const size_t size = (size_t)b.size, at = (size_t)count[isa];
            memcpy(label[isa] + at, b.label.data, 4 * size);
            memcpy(dense[isa] + 13 * at, b.dense.data, 4 * 13 * size);
            memcpy(ids[isa] + 26 * at, b.sparse.ids, 8 * 26 * size);
        }
        bad[isa] = neo_reader_get_stats(r).bad_lines;
        neo_reader_close(r);
        neo_schema_destroy(schema);
        neo_ctx_destroy(own);
    }
    CHECK(count[0] > LINES / 2 && bad[0] > LINES / 9);
    CHECK(count[0] == count[1] && bad[0] == bad[1]);
    CHECK_BITS(label[0], label[1], sizeof label[0]);
    CHECK_BITS(dense[0], dense[1], sizeof dense[0]);
    CHECK_BITS(ids[0], ids[1], sizeof ids[0]);
}

/* ---- bad lines ---- */
typedef struct bad_line {
    const char *text, *message; /* text replaces line 3; message after "path:" */
    neo_status status;
} bad_line;
static int logged;
static char first_log[512];
static void count_log(neo_log_level level, const char *message, void *user) {
    (void)user;
    if (level == NEO_LOG_WARNING && logged++ == 0)
        snprintf(first_log, sizeof first_log, "%s", message);
}
static void check_bad(const neo_schema *s, const char *good, const bad_line *bad,
                      size_t text_bytes) {
    const char *path = tmp_path("bad.txt");
    char text[8192], want[600];
    neo_batch b;
    neo_reader *r = NULL;
    int n = snprintf(text, sizeof text, "%s\n%s\n", good, good);
    memcpy(text + n, bad->text, text_bytes);
    n += (int)text_bytes;
    n += snprintf(text + n, sizeof text - (size_t)n, "\n%s", good);
    write_bytes(path, text, (size_t)n);
    snprintf(want, sizeof want, "%s:%s", path, bad->message);
    neo_reader_desc d = reader_desc(s, &path, 1, 2);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), bad->status, want);
    CHECK_ERR(neo_reader_next(r, &b), bad->status, want);
    CHECK(strlen(neo_last_error()) == strlen(want));
    neo_reader_close(r);
    d.skip_bad_lines = 1;
    logged = 0;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int64_t samples = 0;
    while (neo_reader_next(r, &b) == NEO_OK) samples += b.size;
    CHECK_INT(samples, 3);
    CHECK_INT(neo_reader_get_stats(r).bad_lines, 1);
    CHECK_INT(logged, 1);
    CHECK(strncmp(first_log, "skipped: ", 9) == 0 && strcmp(first_log + 9, want) == 0);
    neo_reader_close(r);
}
#define INTS "\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13"
#define WORDS25                                                                                    \
    "\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\t"                   \
    "a"
static void criteo_bad_lines(void) {
    static const bad_line grid[] = {
        {"2" INTS WORDS25 "\ta", "3:1: expected label 0 or 1, found '2'", NEO_ERR_FORMAT},
        {"" INTS WORDS25 "\ta", "3:1: expected label 0 or 1, found ''", NEO_ERR_FORMAT},
        {"10" INTS WORDS25 "\ta", "3:1: expected label 0 or 1, found '10'", NEO_ERR_FORMAT},
        {"1" INTS WORDS25,
         "3:1: 39 fields, expected 40 (criteo: label, 13 integers, 26 hex words, tab-separated)",
         NEO_ERR_FORMAT},
        {"1" INTS WORDS25 "\ta\t",
         "3:1: 41 fields, expected 40 (criteo: label, 13 integers, 26 hex words, tab-separated)",
         NEO_ERR_FORMAT},
        {"1", "3:1: 1 field, expected 40 (criteo: label, 13 integers, 26 hex words, tab-separated)",
         NEO_ERR_FORMAT},
        {" ", "3:1: 1 field, expected 40 (criteo: label, 13 integers, 26 hex words, tab-separated)",
         NEO_ERR_FORMAT},
        {"1\tx\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\ta",
         "3:3: I1: expected an integer of up to 18 digits or nothing, found 'x'", NEO_ERR_FORMAT},
        {"1\t1\t2.5\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\ta",
         "3:5: I2: expected an integer of up to 18 digits or nothing, found "
         "'2.5'",
         NEO_ERR_FORMAT},
        {"1\t1\t-\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\ta",
         "3:5: I2: expected an integer of up to 18 digits or nothing, found '-'", NEO_ERR_FORMAT},
        {"1\t1\t2\t1000000000000000000\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\ta",
         "3:7: I3: expected an integer of up to 18 digits or nothing, found "
         "'1000000000000000000'",
         NEO_ERR_RANGE},
        {"1" INTS "\tg"
         "\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\ta\t"
         "a"
         "\ta",
         "3:33: C1: expected up to 8 hex digits or nothing, found 'g'", NEO_ERR_FORMAT},
        {"1" INTS WORDS25 "\t123456789",
         "3:83: C26: expected up to 8 hex digits or nothing, found '123456789'", NEO_ERR_FORMAT},
        {"1" INTS WORDS25 "\ta ", "3:83: C26: expected up to 8 hex digits or nothing, found 'a '",
         NEO_ERR_FORMAT},
        {"1" INTS WORDS25 "\ta\r\r",
         "3:83: C26: expected up to 8 hex digits or nothing, found 'a?'", NEO_ERR_FORMAT},
        {"1" INTS WORDS25 "\t\033[31m\177aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "3:83: C26: expected up to 8 hex digits or nothing, found "
         "'?[31m?aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'",
         NEO_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++)
        check_bad(criteo, "0" INTS WORDS25 "\ta", &grid[i], strlen(grid[i].text));
    const bad_line nul = {"1" INTS "\0\ta", "3:32: a NUL byte (UTF-16? use iconv)", NEO_ERR_FORMAT};
    check_bad(criteo, "0" INTS WORDS25 "\ta", &nul, 34);
}
static void delimited_bad_lines(void) {
    static const bad_line grid[] = {
        {"1,2", "3:1: 2 fields, expected 4", NEO_ERR_FORMAT},
        {"1,2,a,b,c", "3:1: 5 fields, expected 4", NEO_ERR_FORMAT},
        {"x,2,a,1", "3:1: y: expected a number, found 'x' (words need positive=)", NEO_ERR_FORMAT},
        {"-0.5,2,a,1", "3:1: y: expected a label in [0, 1], found '-0.5'", NEO_ERR_RANGE},
        {" ? ,2,a,1", "3:2: y: the label is missing", NEO_ERR_FORMAT},
        {"1, 2x,a,1", "3:4: x: expected a number, found '2x'", NEO_ERR_FORMAT},
        {"1,1e39,a,1", "3:3: x: expected a number within the range of f32, found '1e39'",
         NEO_ERR_RANGE},
        {"1,3e38,a,1", "3:3: x: shift and scale take '3e38' out of f32's range", NEO_ERR_RANGE},
        {"1,nan,a,1", "3:3: x: expected a number, found 'nan'", NEO_ERR_FORMAT},
        {"1,0x10,a,1", "3:3: x: expected a number, found '0x10'", NEO_ERR_FORMAT},
        {"1,2,a,1;5", "3:7: z: expected a number, found '1;5'", NEO_ERR_FORMAT},
    };
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_parse(ctx,
                                "missing ?\ny label\nx dense scale=4\nc category "
                                "rows=9 hash\nz bucket 1,2\n",
                                &s));
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++)
        check_bad(s, "1,2,a,1", &grid[i], strlen(grid[i].text));
    const bad_line nul = {"1,2,a\0b,1", "3:6: a NUL byte (UTF-16? use iconv)", NEO_ERR_FORMAT};
    check_bad(s, "1,2,a,1", &nul, 9);
    neo_schema_destroy(s);
}
static void long_lines(void) {
    const char *path = tmp_path("long.txt");
    char *text = malloc(400000);
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = NULL;
    REQUIRE(text);
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nc category rows=9 hash\n", &s));
    for (int bytes = 65536; bytes < 390000; bytes = bytes == 65536 ? 65537 : 2 * bytes) {
        size_t n = (size_t)bytes;
        memcpy(text, "1,a\n", 4);
        memset(text + 4, 'a', n);
        memcpy(text + 4, "1,", 2);
        memcpy(text + 4 + n, "\n1,b\n", 6);
        write_bytes(path, text, n + 9);
        neo_reader_desc d = reader_desc(s, &path, 1, 100);
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        REQUIRE_OK(neo_reader_next(r, &b));
        CHECK_INT(b.size, bytes == 65536 ? 3 : 2);
        CHECK(neo_reader_next(r, &b) == NEO_END);
        CHECK_INT(neo_reader_get_stats(r).bad_lines, bytes == 65536 ? 0 : 1);
        CHECK_INT(neo_reader_get_stats(r).bytes, n + 9);
        neo_reader_close(r);
        d.skip_bad_lines = 0;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        if (bytes != 65536)
            CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
                      ":2:65537: the line is over 65536 bytes");
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
    free(text);
}
/* A line without end is an error at its start; where bad lines are skipped, after 1 GiB of it. */
static void endless_line(void) {
    const char *path = "/dev/zero", *text = tmp_path("endless.txt");
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    FILE *f = fopen(path, "rb");
    if (!f) return;
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nc category\n", &s));
    CHECK_ERR(neo_schema_fit(s, &path, 1, 0), NEO_ERR_FORMAT,
              "/dev/zero:1:65537: the line is over 65536 bytes");
    write_text(text, "1,a\n");
    REQUIRE_OK(neo_schema_fit(s, &text, 1, 0));
    for (int skip = 0; skip < 2; skip++) {
        neo_reader_desc d = reader_desc(s, &path, 1, 8);
        d.skip_bad_lines = skip;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
                  skip ? "/dev/zero: a line of over 1073741824 bytes, at byte 0: this is no text"
                       : "/dev/zero:1:65537: the line is over 65536 bytes");
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
}
/* Labels of which none is a word of positive=: fitting fails, a reader tells once; both show the
   labels that there are. */
/* Nor of a second one, which a sample may lack. */
static void no_positive_second_label(void) {
    const char *path = tmp_path("second.csv");
    neo_schema *s = NULL;
    write_text(path, "yes,Ja,w\nno,,w\nyes,nein,w\n");
    REQUIRE_OK(neo_schema_parse(ctx, "delimiter ,\ny label positive=yes\nz label positive=ja,Jaa\n"
                                     "c category\n", &s));
    CHECK_ERR(neo_schema_fit(s, &path, 1, 0), NEO_ERR_FORMAT,
              "column 'z': none of 2 labels is 'ja' or another word, as positive= asks: there are "
              "'Ja', 'nein'");
    neo_schema_destroy(s);
}
static void no_positive_label(void) {
    const char *path = tmp_path("negative.csv");
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    for (int variant = 0; variant < 4; variant++) { /* 1: one is positive; 2: with a dictionary */
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        for (int i = 0; i < 101000; i++)
            fprintf(f, "%s,w\n", variant == 1 && i == 90000 ? "yes"
                                 : i % 50000 == 49999       ? "no, \"not\""
                                                            : "Yes");
        fclose(f);
        logged = 0;
        REQUIRE_OK(neo_schema_parse(
            ctx, variant == 2 ? "delimiter ,w\ny label positive=yes,ja\nc category\n"
                              : "delimiter ,w\ny label positive=yes,ja\nc skip\n", &s));
        if (variant == 2) {
            CHECK_ERR(neo_schema_fit(s, &path, 1, 0), NEO_ERR_FORMAT,
                      "column 'y': none of 101000 labels is 'yes' or another word, as positive= "
                      "asks: there are 'Yes', 'no, \"not\"'");
            CHECK_INT(logged, 0);
            CHECK(!neo_schema_is_fitted(s));
            neo_schema_destroy(s);
            continue;
        }
        REQUIRE_OK(neo_schema_fit(s, &path, 1, 0));
        neo_reader_desc d = reader_desc(s, &path, 1, 1000);
        d.threads = 2;
        d.unlabeled = variant == 3;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        while (neo_reader_next(r, &b) == NEO_OK) {
        }
        REQUIRE_OK(neo_reader_epoch(r, 1));
        while (neo_reader_next(r, &b) == NEO_OK) {
        }
        neo_reader_close(r);
        CHECK_INT(logged, variant == 0);
        if (variant == 0 && sizeof(void *) > 4)
            CHECK(strncmp(first_log, "column 'y': none of 10", 22) == 0 &&
                  strstr(first_log, "labels is 'yes' or another word, as positive= asks: there are "
                                    "'Yes', 'no, \"not\"': all are 0"));
        neo_schema_destroy(s);
    }
    write_text(path, "a,w\nb,w\nc,w\nb,w\nd,w\ne,w\n"); /* more than are shown */
    REQUIRE_OK(neo_schema_parse(ctx, "y label positive=yes\nc category\n", &s));
    CHECK_ERR(neo_schema_fit(s, &path, 1, 0), NEO_ERR_FORMAT, "there are 'a', 'b', 'c', 'd', ...");
    write_text(path, "yes,w\n");
    REQUIRE_OK(neo_schema_fit(s, &path, 1, 0));
    neo_schema_destroy(s);
    write_text(path, "no,a\nno,b\n"); /* told at the end of a short file too */
    logged = 0;
    REQUIRE_OK(neo_schema_parse(ctx, "y label positive=yes\nc skip\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 1);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    neo_position at = neo_reader_position(r);
    while (neo_reader_next(r, &b) == NEO_OK) {
    }
    neo_reader_close(r);
    CHECK_INT(logged, 1);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r)); /* but not of the rest of an epoch */
    REQUIRE_OK(neo_reader_seek(r, &at));
    while (neo_reader_next(r, &b) == NEO_OK) {
    }
    neo_reader_close(r);
    CHECK_INT(logged, 1);
    neo_schema_destroy(s);
}
static void no_data(void) {
    neo_reader *r = NULL;
    neo_batch b;
    const char *path = tmp_path("empty.txt"), *paths[2];
    write_text(path, "");
    neo_reader_desc d = reader_desc(criteo, &path, 1, 2);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "empty.txt: holds no sample");
    neo_reader_close(r);
    write_text(path, "\n\r\n\n");
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "empty.txt: holds no sample");
    neo_reader_close(r);
    write_text(path, "no\nsuch\nlines\n");
    d.skip_bad_lines = 1;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "empty.txt: holds no sample");
    neo_reader_close(r);
    paths[0] = tmp_path("some.tsv"); /* the second of two */
    paths[1] = path;
    write_criteo(ctx, paths[0], 0, 5);
    write_text(path, "\n");
    d = reader_desc(criteo, paths, 2, 2);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "empty.txt: holds no sample");
    neo_reader_close(r);
    write_bytes(path, "\x1F\x8B\x08\x00\x00\n", 6);
    d = reader_desc(criteo, &path, 1, 2);
    d.skip_bad_lines = 1;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "empty.txt: is compressed with gzip");
    CHECK(!strstr(neo_last_error(), "neo_"));
    neo_reader_close(r);
    static const char *const packed[][3] = {{"\x1F\x8B", "gzip", "zcat"},
                                            {"\x28\xB5\x2F\xFDx", "zstd", "zstdcat"},
                                            {"\xFD\x37zXZ", "xz", "xzcat"},
                                            {"PK\x03\x04", "zip", "unzip -p"}};
    for (int i = 0; i < 4; i++) {
        const neo_packing of = neo_packing_of(packed[i][0], strlen(packed[i][0]));
        CHECK(of.name && !strcmp(of.name, packed[i][1]) && !strcmp(of.unpack, packed[i][2]));
        CHECK(!neo_packing_of(packed[i][0], 1).name && !neo_packing_of("1\t2\t", 4).name);
    }
    path = "no/such/file.tsv";
    d = reader_desc(criteo, &path, 1, 2);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_NOT_FOUND, "no/such/file.tsv");
    CHECK(r == NULL);
    path = ".";
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_IO, "directory");
}
static void arguments(void) {
    neo_reader *r = NULL;
    const char *path = tmp_path("some.tsv"), *twice[2] = {"-", "-"};
    write_criteo(ctx, path, 0, 5);
    neo_reader_desc d = reader_desc(criteo, &path, 1, 0);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "batch is 0");
    d.batch = 4;
    d.rank = 2;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "rank 2 of 0");
    d.world_size = 2;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "rank 2 of 2");
    d.rank = d.world_size = 0;
    d.threads = -1;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "threads is -1");
    d.threads = 0;
    d.shuffle_window = -1;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "shuffle_window is -1");
    d = reader_desc(criteo, NULL, 0, 4);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "no paths");
    d = reader_desc(criteo, twice, 2, 4);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "twice");
    d = reader_desc(NULL, &path, 1, 4);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "no schema");
    neo_reader_close(NULL);
}

/* ---- same batches ---- */
static const char *three_files[3];
static void make_three(void) {
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "three-%d.tsv", i);
        three_files[i] = strdup(tmp_path(name));
    }
    write_criteo(ctx, three_files[0], 0, 1500);
    write_criteo(ctx, three_files[1], 1500, 3);
    write_criteo(ctx, three_files[2], 1503, 2500);
}
static neo_reader *open_three(int threads, int64_t window, int64_t batch) {
    neo_reader_desc d = reader_desc(criteo, three_files, 3, batch);
    neo_reader *r = NULL;
    d.threads = threads;
    d.shuffle_window = window;
    d.prefetch = 1 + threads % 3;
    if (neo_reader_open(ctx, &d, &r) != NEO_OK) printf("open: %s\n", neo_last_error());
    return r;
}
/* Samples of text, counted without parsing and without a file beside it, also while batches are
   read ahead; not those of which some may be skipped. */
static void samples_are_counted(void) {
    neo_reader *r = open_three(2, 0, 64);
    neo_batch batch;
    int64_t read = 0, counted = -1;
    char beside[600];
    neo_status status;
    while ((status = neo_reader_next(r, &batch)) == NEO_OK) {
        if (read == 0) CHECK_OK(neo_reader_samples(r, &counted));
        read += batch.size;
    }
    CHECK(status == NEO_END);
    CHECK_INT(counted, read);
    neo_reader_close(r);
    const char *path = tmp_path("counted.tsv");
    write_criteo(ctx, path, 0, 100);
    for (int skips = 0; skips < 2; skips++) {
        neo_reader_desc d = reader_desc(criteo, &path, 1, 10);
        d.skip_bad_lines = skips;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_OK(neo_reader_samples(r, &counted));
        CHECK_INT(counted, skips ? 0 : 100);
        neo_reader_close(r);
    }
    snprintf(beside, sizeof beside, "%s.neoindex", path);
    CHECK(fopen(beside, "rb") == NULL);
}
static void same_for_any_threads(void) {
    static uint64_t want[MOST], got[MOST];
    const int64_t windows[4] = {0, 1, 700, 100000}, batches[3] = {1, 64, 1000};
    for (int w = 0; w < 4; w++) {
        for (int k = 0; k < 3; k++) {
            neo_reader *r = open_three(1, windows[w], batches[k]);
            REQUIRE(r);
            int64_t n = read_hashes(r, want, MOST);
            CHECK_INT(n, (4003 + batches[k] - 1) / batches[k]);
            neo_reader_close(r);
            for (int threads = 2; threads <= 8; threads += threads == 3 ? 5 : 1) {
                r = open_three(threads, windows[w], batches[k]);
                REQUIRE(r);
                CHECK_INT(read_hashes(r, got, MOST), n);
                CHECK_BITS(want, got, (size_t)n * 8);
                neo_reader_close(r);
            }
        }
    }
}
/* Every sample comes once per epoch, in an order of its own in each, inside its
 * window. */
static void shuffle_is_a_permutation(void) {
    static int32_t order[2][4003];
    static uint8_t seen[4003];
    const char *path = tmp_path("numbers.csv");
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 4003; i++) fprintf(f, "%d\n", i);
    fclose(f);
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_schema_parse(ctx, "x dense\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 32);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "label");
    d.unlabeled = 1;
    d.shuffle_window = 1000; /* 1024: whole batches */
    d.threads = 2;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int moved = 0, differ = 0;
    for (int e = 0; e < 2; e++) {
        int64_t n = 0;
        memset(seen, 0, sizeof seen);
        REQUIRE_OK(neo_reader_epoch(r, 5 + e));
        while (neo_reader_next(r, &b) == NEO_OK) {
            CHECK_INT(b.first, n);
            for (int64_t i = 0; i < b.size; i++, n++) {
                int32_t x = (int32_t)((const float *)b.dense.data)[i];
                REQUIRE(x >= 0 && x < 4003 && n < 4003 && !seen[x]);
                seen[x] = 1;
                order[e][n] = x;
                CHECK(x / 1024 == n / 1024);
                moved += x != n;
                differ += e && x != order[0][n];
            }
        }
        CHECK_INT(n, 4003);
    }
    CHECK(moved > 7900 && differ > 3900);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* Seek to where the reader stood before each batch of an epoch: the rest must
 * be the same. */
static void resume_anywhere(void) {
    static uint64_t want[MOST], got[MOST];
    static neo_position at[MOST];
    const int64_t windows[3] = {0, 300, 100000}, batches[3] = {37, 37, 256};
    for (int w = 0; w < 3; w++) {
        neo_reader *r = open_three(2, windows[w], batches[w]), *again;
        neo_batch b;
        int64_t n = 0;
        REQUIRE(r);
        REQUIRE_OK(neo_reader_epoch(r, 3));
        do at[n] = neo_reader_position(r);
        while (neo_reader_next(r, &b) == NEO_OK && (want[n] = hash_batch(1, &b), ++n) < MOST);
        CHECK_INT(at[n].word[0], 3);
        CHECK_INT(at[n].word[1], 4003);
        for (int64_t i = 0; i <= n; i += 1 + (i > 6 && i < n - 8) * 4) {
            again = open_three(1 + (int)(i % 3), windows[w], batches[w]);
            REQUIRE(again);
            REQUIRE_OK(neo_reader_seek(again, &at[i]));
            neo_position p = neo_reader_position(again);
            CHECK_BITS(&p, &at[i], sizeof p);
            CHECK_INT(read_hashes(again, got, MOST), n - i);
            CHECK_BITS(want + i, got, (size_t)(n - i) * 8);
            neo_reader_close(again);
        }
        REQUIRE_OK(neo_reader_seek(r, &at[2])); /* back, in a reader that has run */
        CHECK_INT(read_hashes(r, got, MOST), n - 2);
        CHECK_BITS(want + 2, got, (size_t)(n - 2) * 8);
        at[1].word[7] ^= 1;
        CHECK_ERR(neo_reader_seek(r, &at[1]), NEO_ERR_MISMATCH, "another schema");
        at[2].word[3] += 1 << 30;
        REQUIRE_OK(neo_reader_seek(r, &at[2]));
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_MISMATCH, "the saved position is at byte");
        for (int i = 1; i < 6; i++) { /* sums with them would leave 64 bits */
            neo_position far = at[3];
            far.word[i] = INT64_MAX - 1;
            if (i != 2) CHECK_ERR(neo_reader_seek(r, &far), NEO_ERR_ARG, "cannot be");
        }
        at[3].word[6] = -1;
        CHECK_ERR(neo_reader_seek(r, &at[3]), NEO_ERR_ARG, "cannot be");
        neo_reader_close(r);
        again = open_three(1, windows[w], batches[w] + 1);
        CHECK_ERR(neo_reader_seek(again, &at[0]), NEO_ERR_MISMATCH, "another");
        neo_reader_close(again);
    }
    neo_reader *r = open_three(1, 0, 100); /* a file that changed under a position */
    neo_batch b;
    for (int i = 0; i < 15; i++) REQUIRE_OK(neo_reader_next(r, &b));
    neo_position p = neo_reader_position(r);
    p.word[3] += 5;
    REQUIRE_OK(neo_reader_seek(r, &p));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_MISMATCH, "no line starts at byte");
    neo_reader_close(r);
}
static long file_bytes(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) return -1;
    long bytes = ftell(f);
    fclose(f);
    return bytes;
}
/* What of a position differs is named; files whose sizes changed are refused. */
static void seek_elsewhere(void) {
    const char *paths[2] = {tmp_path("elsewhere-a.tsv"), tmp_path("elsewhere-b.tsv")};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    write_criteo(ctx, paths[0], 0, 600);
    write_criteo(ctx, paths[1], 600, 600);
    neo_reader_desc d = reader_desc(criteo, paths, 2, 64), other;
    d.shuffle_window = 256;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (int i = 0; i < 3; i++) REQUIRE_OK(neo_reader_next(r, &b));
    neo_position at = neo_reader_position(r);
    neo_reader_close(r);
    static const char *const names[7] = {
        "another batch: it has 64, the reader 128",
        "another shuffle_window: it has 256, the reader 640",
        "another number of files: it has 2, the reader 1",
        "another schema: it has 13 dense numbers and 26 features (criteo), the reader 0 dense "
        "numbers and 0 features (delimited)",
        "another batch (the reader has 128), shuffle_window (the reader has 640)",
        "another shuffle_window: it has 256, the reader 0",
        "another seed: it has 1, the reader 1009",
    };
    neo_ctx_desc c = {0};
    neo_ctx *another = NULL;
    neo_schema *seeded = NULL;
    c.seed = 1009;
    REQUIRE_OK(neo_ctx_create(&c, &another));
    REQUIRE_OK(neo_schema_criteo(another, NEO_IDS_HASH, 1000, NULL, &seeded));
    REQUIRE_OK(neo_schema_parse(ctx, "y label\n", &s));
    for (int i = 0; i < 7; i++) {
        other = d;
        if (i == 0 || i == 4) other.batch = 128;
        if (i == 1 || i == 4) other.shuffle_window = 640;
        if (i == 2) other.path_count = 1;
        if (i == 3) other.schema = s;
        if (i == 5) other.shuffle_window = 0;
        if (i == 6) other.schema = seeded;
        REQUIRE_OK(neo_reader_open(i == 6 ? another : ctx, &other, &r));
        CHECK_ERR(neo_reader_seek(r, &at), NEO_ERR_MISMATCH, names[i]);
        CHECK(strlen(strstr(neo_last_error(), "another")) == strlen(names[i]));
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
    neo_schema_destroy(seeded);
    neo_ctx_destroy(another);
    neo_position old = at; /* as positions were without sizes */
    old.word[2] &= INT32_MAX;
    old.word[6] &= INT32_MAX;
    char was[32];
    snprintf(was, sizeof was, "bytes, had %ld", file_bytes(paths[1]));
    for (int lines = 599; lines <= 601; lines++) {
        write_criteo(ctx, paths[1], 600, lines);
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        if (lines == 600) REQUIRE_OK(neo_reader_seek(r, &at));
        else {
            CHECK_ERR(neo_reader_seek(r, &at), NEO_ERR_MISMATCH, "the files have other sizes");
            CHECK(strstr(neo_last_error(), "elsewhere-b.tsv has ") &&
                  strstr(neo_last_error(), was));
        }
        REQUIRE_OK(neo_reader_seek(r, &old));
        REQUIRE_OK(neo_reader_next(r, &b));
        neo_reader_close(r);
    }
}
static void drop_last_and_small_files(void) {
    neo_reader *r = NULL;
    neo_batch b;
    for (int64_t batch = 1; batch < 9000; batch *= 3) {
        neo_reader_desc d = reader_desc(criteo, three_files, 3, batch);
        d.drop_last = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        int64_t n = 0, samples = 0;
        for (; neo_reader_next(r, &b) == NEO_OK; n++) samples += b.size;
        CHECK_INT(n, 4003 / batch);
        CHECK_INT(samples, 4003 / batch * batch);
        neo_reader_close(r);
    }
}
/* A bad line far down: whole windows before it come first, the same ones for
 * any number of threads. */
static void error_comes_in_order(void) {
    const char *path = tmp_path("late.csv");
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 30000; i++) fprintf(f, i == 20000 ? "%dx\n" : "%d\n", i);
    fclose(f);
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_parse(ctx, "x dense\n", &s));
    for (int threads = 1; threads <= 3; threads++) {
        neo_reader *r = NULL;
        neo_batch b;
        neo_reader_desc d = reader_desc(s, &path, 1, 100);
        d.unlabeled = 1;
        d.threads = threads;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        int64_t samples = 0;
        while (neo_reader_next(r, &b) == NEO_OK) samples += b.size;
        CHECK_INT(samples, 20000 / 600 * 600); /* windows are of 600 here */
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
                  "late.csv:20001:1: x: expected a number, found '20000x'");
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "late.csv:20001:1:");
        REQUIRE_OK(neo_reader_epoch(r, 1)); /* and it can start again */
        REQUIRE_OK(neo_reader_next(r, &b));
        CHECK(((const float *)b.dense.data)[5] == 5.0f);
        neo_reader_close(r);
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        for (samples = 0; neo_reader_next(r, &b) == NEO_OK;) samples += b.size;
        CHECK_INT(samples, 29999);
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
}
static void unlabeled_lines(void) {
    const char *path = tmp_path("unlabeled.tsv");
    neo_reader *r = NULL;
    neo_batch b;
    write_text(path, "1" INTS WORDS25 "\ta\n"
                     "1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\tb\n");
    neo_reader_desc d = reader_desc(criteo, &path, 1, 8);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "unlabeled.tsv:2:1: 39 fields, expected 40");
    neo_reader_close(r);
    d.unlabeled = 1;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    REQUIRE(b.size == 2);
    CHECK(((const float *)b.label.data)[0] == 1.0f && ((const float *)b.label.data)[1] == 0.0f);
    CHECK_BITS(b.dense.data, (const float *)b.dense.data + 13, 13 * 4);
    CHECK_INT(((const int64_t *)b.sparse.ids)[51], 1 + 11);
    neo_reader_close(r);
    write_text(path, "1\t2\t3x\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS25 "\tb\n");
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, "unlabeled.tsv:1:5: I3: expected an integer");
    neo_reader_close(r);
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_parse(ctx, "a dense\ny label\nb dense\n", &s));
    write_text(path, "1,1,2\n3,4\n");
    d.schema = s;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    const float want[4] = {1, 2, 3, 4};
    CHECK_BITS(b.dense.data, want, sizeof want);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void byte_order_mark(void) {
    const char *path = tmp_path("bom.csv");
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    write_text(path, "\xEF\xBB\xBF"
                     "1,2\n0,3\n");
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nx dense\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 8);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 2 && ((const float *)b.label.data)[0] == 1.0f);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* ---- memory ---- */
static void nothing_allocated_while_reading(void) {
    neo_schema *s = NULL;
    neo_reader *r = open_three(3, 500, 64);
    neo_batch b;
    REQUIRE(r);
    int64_t count = neo_ctx_memory(ctx).alloc_count;
    size_t bytes = neo_ctx_memory(ctx).bytes;
    for (int e = 0; e < 3; e++) {
        REQUIRE_OK(neo_reader_epoch(r, e));
        while (neo_reader_next(r, &b) == NEO_OK) CHECK_INT(neo_ctx_memory(ctx).alloc_count, count);
    }
    CHECK_INT(neo_ctx_memory(ctx).bytes, bytes);
    CHECK_INT(neo_reader_get_stats(r).grow_count, 0);
    neo_reader_close(r);
    /* bags of several ids: buffers grow at first, then no more */
    const char *path = tmp_path("lists.csv");
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 4000; i++) {
        fprintf(f, "%d,", i % 2);
        for (int k = 0; k < i * 7 % 12; k++) fprintf(f, "w%d|", i * k % 100);
        fprintf(f, "\n");
    }
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nw list sep=| rows=50 hash\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 50);
    d.shuffle_window = 1000;
    d.threads = 2;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    while (neo_reader_next(r, &b) == NEO_OK) {
    }
    int64_t grown = neo_reader_get_stats(r).grow_count;
    CHECK(grown > 0);
    REQUIRE_OK(neo_reader_epoch(r, 0));
    count = neo_ctx_memory(ctx).alloc_count;
    while (neo_reader_next(r, &b) == NEO_OK) {
    }
    CHECK_INT(neo_ctx_memory(ctx).alloc_count, count);
    CHECK_INT(neo_reader_get_stats(r).grow_count, grown);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* close at every stage of an epoch, with work under way */
static void close_early(void) {
    neo_batch b;
    for (int n = 0; n < 12; n++) {
        neo_reader *r = open_three(3, n % 2 ? 200 : 0, 16);
        REQUIRE(r);
        for (int i = 0; i < n * n; i++)
            if (neo_reader_next(r, &b) != NEO_OK) break;
        neo_reader_close(r);
    }
}
/* A schema that is destroyed while two readers use it: they read the same as ever, and the last one
   that is closed frees it. */
static void schema_goes_first(void) {
    static const char description[] = "header\nquote \"\nw list sep=| min_count=2\ny label\n";
    const char *path = tmp_path("goes-first.csv");
    const size_t bytes = neo_ctx_memory(ctx).bytes;
    uint64_t want[8], got[8];
    write_text(path, "y,w\n1,a|b\n0,b\n1,c|a|d\n0,\n1,e\n");
    for (int early = 0; early < 2; early++) {
        neo_schema *schema = NULL;
        neo_reader *reader[2] = {NULL, NULL};
        REQUIRE_OK(neo_schema_parse(ctx, description, &schema));
        REQUIRE_OK(neo_schema_fit(schema, &path, 1, 0));
        const neo_reader_desc desc = reader_desc(schema, &path, 1, 2);
        for (int i = 0; i < 2; i++) REQUIRE_OK(neo_reader_open(ctx, &desc, &reader[i]));
        if (early) neo_schema_destroy(schema);
        CHECK_INT(read_hashes(reader[0], early ? got : want, 8), 3);
        neo_reader_close(reader[0]);
        CHECK_INT(read_hashes(reader[1], got, 8), 3);
        CHECK(memcmp(got, want, 3 * sizeof *got) == 0);
        CHECK(neo_ctx_memory(ctx).bytes > bytes);
        neo_reader_close(reader[1]);
        if (!early) CHECK(neo_ctx_memory(ctx).bytes > bytes);
        if (!early) neo_schema_destroy(schema);
        CHECK_INT(neo_ctx_memory(ctx).bytes, bytes);
    }
}
static int64_t fail_at, alloc_number;
static void *failing_alloc(size_t size, size_t align, void *user) {
    (void)user, (void)align;
    if (__atomic_add_fetch(&alloc_number, 1, __ATOMIC_RELAXED) == fail_at) return NULL;
    char *p = malloc(size + 128); /* aligned by hand: the harness is C11 on every system */
    if (!p) return NULL;
    char *q = (char *)(((uintptr_t)p + 128) & ~(uintptr_t)63);
    memcpy(q - sizeof p, &p, sizeof p);
    return q;
}
static void failing_free(void *ptr, size_t size, void *user) {
    (void)size, (void)user;
    char *p;
    memcpy(&p, (char *)ptr - sizeof p, sizeof p);
    free(p);
}
static neo_status read_lists(neo_ctx *c, const char *path) {
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    neo_status st = neo_schema_parse(
        c, "header\nquote \"\nw list sep=| weight=: min_count=3\ny label positive=1\n", &s);
    if (st == NEO_OK) st = neo_schema_fit(s, &path, 1, 0);
    neo_reader_desc d = reader_desc(s, &path, 1, 50);
    d.shuffle_window = 100;
    d.threads = 2;
    if (st == NEO_OK) st = neo_reader_open(c, &d, &r);
    while (st == NEO_OK) st = neo_reader_next(r, &b);
    neo_reader_close(r);
    neo_schema_destroy(s);
    return st;
}
static void every_allocation_may_fail(void) {
    neo_ctx_desc desc;
    neo_ctx *c = NULL;
    const char *path = tmp_path("lists-head.csv");
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    fprintf(f, "y,not used,w\n");
    for (int i = 0; i < 4000; i++) {
        fprintf(f, "%d,,\"", i % 2);
        for (int k = 0; k < i * 7 % 12; k++) fprintf(f, "w%d:%d|", i * k % 100, k);
        fprintf(f, "\"\n");
    }
    fclose(f);
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc = failing_alloc;
    desc.allocator.free = failing_free;
    desc.threads = 1;
    fail_at = 0;
    REQUIRE_OK(neo_ctx_create(&desc, &c));
    size_t bytes = neo_ctx_memory(c).bytes;
    int failures = 0;
    for (int64_t k = 1;; k++) {
        alloc_number = 0;
        fail_at = k;
        neo_status st = read_lists(c, path);
        CHECK_INT(neo_ctx_memory(c).bytes, bytes);
        if (st == NEO_END) break;
        CHECK(st == NEO_ERR_MEMORY);
        failures++;
        REQUIRE(k < 1000);
    }
    CHECK(failures > 30);
    neo_ctx_destroy(c);
}

/* ---- standard input ---- */
#if !defined(_WIN32)
/* A child that writes the file into a pipe in pieces of its own size, and
 * standard input set to that pipe. */
static int feed_stdin(const char *path, size_t piece, int linger_ms, pid_t *child) {
    int ends[2];
    if (pipe(ends) != 0) return 0;
    fflush(stdout);
    *child = fork();
    if (*child == 0) {
        char *buffer = malloc(piece);
        FILE *f = path ? fopen(path, "rb") : NULL;
        size_t n;
        close(ends[0]);
        while (f && buffer && (n = fread(buffer, 1, piece, f)) > 0)
            if (write(ends[1], buffer, n) != (ssize_t)n) break;
        poll(NULL, 0, linger_ms);
        _exit(0);
    }
    close(ends[1]);
    if (dup2(ends[0], 0) < 0) return 0;
    close(ends[0]);
    return *child > 0;
}
static void standard_input(void) {
    static uint64_t want[MOST], got[MOST];
    const char *path = three_files[2], *input = "-";
    pid_t child;
    neo_reader *r = NULL;
    neo_batch b;
    neo_position at;
    neo_reader_desc d = reader_desc(criteo, &path, 1, 50);
    d.shuffle_window = 400;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int64_t n = read_hashes(r, want, MOST);
    REQUIRE_OK(neo_reader_epoch(r, 0));
    for (int i = 0; i < 20; i++) REQUIRE_OK(neo_reader_next(r, &b));
    at = neo_reader_position(r);
    neo_reader_close(r);
    d.paths = &input;
    const size_t pieces[3] = {100000, 1000, 37};
    for (int k = 0; k < 3; k++) {
        REQUIRE(feed_stdin(path, pieces[k], 0, &child));
        d.threads = 1 + k;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_INT(read_hashes(r, got, MOST), n);
        CHECK_BITS(want, got, (size_t)n * 8);
        CHECK_INT(neo_reader_get_stats(r).total_bytes, 0);
        CHECK_ERR(neo_reader_epoch(r, 1), NEO_ERR_UNSUPPORTED, "cannot be read twice");
        CHECK_ERR(neo_reader_seek(r, &at), NEO_ERR_UNSUPPORTED, "once reading has begun");
        neo_reader_close(r);
        waitpid(child, NULL, 0);
    }
    REQUIRE(feed_stdin(path, 5000, 0, &child)); /* resume: reads forward and drops */
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_seek(r, &at));
    CHECK_INT(read_hashes(r, got, MOST), n - 20);
    CHECK_BITS(want + 20, got, (size_t)(n - 20) * 8);
    neo_reader_close(r);
    waitpid(child, NULL, 0);
    /* a writer that does not end: what it wrote is there, and close does not wait
     */
    REQUIRE(feed_stdin(path, 5000, 600000, &child));
    d.shuffle_window = 0;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (int i = 0; i < 50; i++) REQUIRE_OK(neo_reader_next(r, &b)); /* all 2,500 samples */
    neo_reader_close(r);
    CHECK(waitpid(child, NULL, WNOHANG) == 0); /* it still lingers */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
/* A header that comes in pieces, and a position behind it. */
static void header_on_standard_input(void) {
    static uint64_t want[MOST], got[MOST];
    const char *path = tmp_path("head-pipe.csv"), *input = "-";
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    pid_t child;
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    fprintf(f, "a line of another kind\n\"not used\",x,\"y\"\n");
    for (int i = 0; i < 20000; i++) fprintf(f, "\"a, b\",%d,%d\n", i, i % 2);
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "quote \"\nskip-lines 1\nheader\ny label\nx dense\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 100);
    d.shuffle_window = 1000;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    int64_t n = read_hashes(r, want, MOST);
    CHECK_INT(n, 200);
    REQUIRE_OK(neo_reader_epoch(r, 0));
    for (int i = 0; i < 125; i++) REQUIRE_OK(neo_reader_next(r, &b));
    neo_position at = neo_reader_position(r);
    neo_reader_close(r);
    d.paths = &input;
    const size_t pieces[3] = {200000, 1000, 7};
    for (int k = 0; k < 6; k++) {
        int skip = k < 3 ? 0 : 125;
        REQUIRE(feed_stdin(path, pieces[k % 3], 0, &child));
        d.threads = 1 + k % 3;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        if (skip) REQUIRE_OK(neo_reader_seek(r, &at));
        CHECK_INT(read_hashes(r, got, MOST), n - skip);
        CHECK_BITS(want + skip, got, (size_t)(n - skip) * 8);
        neo_reader_close(r);
        waitpid(child, NULL, 0);
    }
    neo_schema_destroy(s);
}
#else
static void header_on_standard_input(void) { SKIP("needs fork"); }
static void standard_input(void) { SKIP("needs fork"); }
#endif

int main(void) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = 2;
    desc.seed = 1;
    desc.logger.log = count_log;
    if (neo_ctx_create(&desc, &ctx) != NEO_OK) return 1;
    if (neo_schema_criteo(ctx, NEO_IDS_HASH, 1000, NULL, &criteo) != NEO_OK) return 1;
    size_t bytes = neo_ctx_memory(ctx).bytes;
    make_three();
    RUN(criteo_values);
    RUN(criteo_isas);
    RUN(criteo_bad_lines);
    RUN(delimited_bad_lines);
    RUN(long_lines);
    RUN(endless_line);
    RUN(no_positive_label);
    RUN(no_positive_second_label);
    RUN(no_data);
    RUN(arguments);
    RUN(samples_are_counted);
    RUN(same_for_any_threads);
    RUN(shuffle_is_a_permutation);
    RUN(resume_anywhere);
    RUN(seek_elsewhere);
    RUN(drop_last_and_small_files);
    RUN(error_comes_in_order);
    RUN(unlabeled_lines);
    RUN(byte_order_mark);
    RUN(nothing_allocated_while_reading);
    RUN(close_early);
    RUN(schema_goes_first);
    RUN(every_allocation_may_fail);
    RUN(standard_input);
    RUN(header_on_standard_input);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_schema_destroy(criteo);
    neo_ctx_destroy(ctx);
    return test_end("data/reader");
}
