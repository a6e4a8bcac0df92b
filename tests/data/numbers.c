/* numbers.c: what readers are made of, from inside: decimal numbers against
   strtof (which is correct in glibc) and against bits worked out by hand, under every
   locale that is installed, logarithms of whole numbers, dictionaries
   saved and loaded from good and damaged bytes, and blocks so small that every
   line meets their borders. */
#define NEO__CHUNK_BYTES 4096
#define NEO__LINE_BYTES 1024
#define NEO_STATIC /* as in private_files.c */
#define NEO_NO_SIMD
#include "common.h"
#include <locale.h>
#include <sys/stat.h>

/* Dictionaries from a block of bytes, as neo_load does. */
static neo_status load_words(neo_schema *s, const void *bytes, size_t count) {
    void *dicts = NULL;
    neo_status status = neo__schema_load(s, bytes, count, &dicts);
    if (status == NEO_OK) neo__schema_install(s, dicts, 1);
    return status;
}

static neo_ctx *ctx;

/* ---- numbers ---- */
static void check_number(const char *text) {
    float want = strtof(text, NULL), got = 0;
    int kind = neo__number(text, strlen(text), &got);
    if (want - want != 0.0f) {
        if (kind != NEO__NUMBER_RANGE) FAIL("%s: not out of range, but %.9g", text, (double)got);
    } else if (kind != NEO__NUMBER_OK || memcmp(&got, &want, 4) != 0) {
        FAIL("%s: kind %d, %.9g, expected %.9g", text, kind, (double)got, (double)want);
    }
}
/* Of up to 8 characters, in memory of just so many bytes: those that the short way takes, right. */
static void few_characters(void) {
    static const char some[] = "0123456789012345678901234567890123456789..-+e x";
    int taken = 0, points = 0;
    for (int i = 0; i < 400000; i++) {
        char text[16];
        const size_t n = 1 + test_random() % 9, most = i % 2 ? 10 : sizeof some - 1;
        for (size_t k = 0; k < n; k++) text[k] = some[test_random() % most];
        if (i % 4 == 1 && n > 1) text[test_random() % n] = '.';
        if (i % 8 == 1 && n > 2) text[0] = '-';
        text[n] = 0;
        char *bytes = (char *)malloc(n);
        float got = 0, want = 0;
        if (!bytes) exit(1);
        memcpy(bytes, text, n);
        const int few = neo__number_few(bytes, n, &got), kind = neo__number(text, n, &want);
        free(bytes);
        if (few && (kind != NEO__NUMBER_OK || memcmp(&got, &want, 4) != 0))
            FAIL("%s: %.9g, expected kind %d, %.9g", text, (double)got, kind, (double)want);
        if (kind == NEO__NUMBER_OK && n <= 8 && !few && !strpbrk(text, "e+") &&
            neo__rounds_once(strtod(text, NULL)))
            FAIL("%s is not taken", text);
        taken += few, points += few && strchr(text, '.') != NULL;
    }
    CHECK(taken > 100000 && points > 50000);
}
static float random_float(void) {
    uint32_t u = test_random() ^ (test_random() << 16);
    float f;
    memcpy(&f, &u, 4);
    return f - f == 0.0f ? f : 1.0f;
}
static void numbers(void) {
    char text[512];
    for (int i = 0; i < 20000; i++) {
        float f = random_float();
        snprintf(text, sizeof text, "%.9g", (double)f);
        check_number(text);
        snprintf(text, sizeof text, "%.17g", (double)f * (1.0 + 1e-9));
        check_number(text);
        snprintf(text, sizeof text, "%u.%08ue%d", test_random() % 1000, test_random() % 100000000,
                 (int)(test_random() % 90) - 50);
        check_number(text);
        snprintf(text, sizeof text, "-%u%09u%09u.%09u", test_random(), test_random() % 1000000000,
                 test_random() % 1000000000, test_random() % 1000000000);
        check_number(text);
        /* halfway between two floats, exactly; and a hair above and below */
        uint32_t u = neo__bits_f32(f) + 1;
        double half = ((double)f + (double)neo__f32_bits(u)) / 2;
        if (half - half != 0.0) continue;
        snprintf(text, sizeof text, "%.200e", half);
        check_number(text);
        char *e = strchr(text, 'e');
        e[-1] = '1';
        check_number(text);
        snprintf(text, sizeof text, "%.17g", half * (1 - 1e-15));
        check_number(text);
    }
    static const char *const plain[] = {"0",
                                        "-0",
                                        "+1",
                                        "1.",
                                        ".5",
                                        "00012",
                                        "1e+3",
                                        "1E-3",
                                        "3.4028235e38",
                                        "3.4028236e38",
                                        "1e-45",
                                        "7e-46",
                                        "7.006492321624085e-46",
                                        "1e-400",
                                        "1e99999999999",
                                        "0e99999999999",
                                        "16777217",
                                        "16777219",
                                        "9007199791611905"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) check_number(plain[i]);
    static const char *const bad[] = {"",    "-",   "+",     ".",    "e5",   "1e",
                                      "1e+", "--1", "1.2.3", "1,5",  "0x1",  "inf",
                                      "nan", "1 ",  " 1",    "1e5x", "1e1.5"};
    float x;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (neo__number(bad[i], strlen(bad[i]), &x) != NEO__NUMBER_BAD)
            FAIL("'%s' is taken for a number", bad[i]);
}

/* Texts next to or on the middle between two floats, and the bits of the nearest (ties: the even
   one). */
static void hard_numbers(void) {
    static const struct {
        const char *text;
        uint32_t bits;
    } cases[] = {
        {"16777217", 0x4B800000u},           {"16777217.000000000000000000000001", 0x4B800001u},
        {"16777219", 0x4B800002u},           {"1.00000005960464477539062500", 0x3F800000u},
        {"1.000000059604644775390625001", 0x3F800001u},
        {"1.000000059604644775390624999", 0x3F800000u},
        {"7.0064923216240853546186479164495806564013097093825788587853e-46", 0x00000000u},
        {"7.0064923216240853546186479164495806564013097093825788587854e-46", 0x00000001u},
        {"1.1754943508222875e-38", 0x00800000u},
        {"1.17549428e-38", 0x007FFFFFu},     {"3.4028234663852886e38", 0x7F7FFFFFu},
        {"340282356779733661637539395458142568447", 0x7F7FFFFFu},
        {"8589973e9", 0x59F42448u},          {"0.1", 0x3DCCCCCDu},
    };
    static const char *const locales[] = {"C", "", "de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "ps_AF"};
    for (size_t l = 0; l < sizeof locales / sizeof locales[0]; l++) {
        if (!setlocale(LC_NUMERIC, locales[l])) continue;
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            float x = 0.0f;
            int kind = neo__number(cases[i].text, strlen(cases[i].text), &x);
            uint32_t bits = neo__bits_f32(x);
            if (kind != NEO__NUMBER_OK || bits != cases[i].bits)
                FAIL("%s under '%s': %08x, expected %08x", cases[i].text, locales[l], bits,
                     cases[i].bits);
        }
    }
    setlocale(LC_NUMERIC, "C");
}

static void logarithms(void) {
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 10, NULL, &s));
    uint64_t n = 1;
    for (int i = 0; i < 200000; i++) {
        double want = log((double)n), got = neo__log_whole(s->log_table, n);
        if (!(fabs(got - want) <= 4e-16 * (1 + fabs(want))))
            FAIL("log %" PRIu64 " is %.17g, not %.17g", n, got, want);
        n = i < 20000
                ? n + 1
                : (((uint64_t)test_random() << 32 | test_random()) >> (test_random() % 60)) | 1;
        if (n > 1000000000000000000u) n >>= 8;
    }
    neo_schema_destroy(s);
}
static void hashes_agree(void) {
    CHECK(neo__hash_bytes("", 0) == neo_hash(""));
    CHECK(neo__hash_bytes("Self-emp-not-inc", 16) == neo_hash("Self-emp-not-inc"));
    CHECK(neo__hash_bytes("\xff\x80z", 3) == neo_hash("\xff\x80z"));
}

/* ---- dictionaries ---- */
static const char columns[] = "y label\ncolour category rows=40\nthing list "
                              "sep=|\nx category rows=5 hash\n";
static neo_schema *fitted(const char *text) {
    const char *path = tmp_path("dict.csv");
    neo_schema *s = NULL;
    write_text(path, text);
    if (neo_schema_parse(ctx, columns, &s) != NEO_OK || neo_schema_fit(s, &path, 1, 0) != NEO_OK) {
        printf("%s\n", neo_last_error());
        exit(1);
    }
    return s;
}
static void dictionaries_round_trip(void) {
    neo_schema *a = fitted("1,red,ball|box,q\n0,blue,,q\n0,,box|rod|ball,q\n1,green,rod,q\n"),
               *b = NULL, *c = NULL;
    size_t n = neo__schema_save_size(a);
    CHECK_INT(n, 24 + (36 + 6) + (7 + 8 + 9) + (36 + 5) + (8 + 7 + 7));
    char *bytes = malloc(n), *again = malloc(n), *bad = malloc(n + 1);
    REQUIRE(bytes && again && bad);
    REQUIRE_OK(neo__schema_save(a, bytes));
    REQUIRE_OK(neo_schema_parse(ctx, columns, &b));
    CHECK_INT(neo__schema_save_size(b), 0);
    CHECK_ERR(neo__schema_save(b, again), NEO_ERR_STATE, "not built");
    REQUIRE_OK(load_words(b, bytes, n));
    CHECK(neo_schema_is_fitted(b));
    for (int f = 0; f < 3; f++)
        CHECK_INT(neo_schema_feature(b, f).rows, neo_schema_feature(a, f).rows);
    CHECK_INT(neo__schema_save_size(b), n);
    REQUIRE_OK(neo__schema_save(b, again));
    CHECK_BITS(bytes, again, n);
    CHECK_INT(neo__dict_find(&b->dicts[0], "green", 5), 3);
    CHECK_OK(load_words(a, bytes, n)); /* the same words again */
    neo_schema *other = fitted("1,red,box,q\n");
    CHECK_ERR(load_words(other, bytes, n), NEO_ERR_MISMATCH, "'colour' holds other words");
    neo_schema_destroy(other);
    /* every cut and every changed byte: refused, or another dictionary of the
     * same form; never half taken */
    REQUIRE_OK(neo_schema_parse(ctx, columns, &c));
    for (size_t cut = 0; cut < n; cut++) {
        char *part = malloc(cut ? cut : 1); /* of its own size, for checkers of memory */
        REQUIRE(part);
        memcpy(part, bytes, cut);
        CHECK(load_words(c, part, cut) != NEO_OK);
        CHECK(!neo_schema_is_fitted(c) && c->dicts[0].count == 0 && c->rows[0] == 0);
        free(part);
    }
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            neo_schema *d = NULL;
            memcpy(bad, bytes, n);
            bad[i] ^= (char)(1 << bit);
            REQUIRE_OK(neo_schema_parse(ctx, columns, &d));
            neo_status st = load_words(d, bad, n);
            CHECK(st == NEO_OK || st == NEO_ERR_CORRUPT || st == NEO_ERR_MISMATCH);
            if (st == NEO_OK) {
                CHECK_INT(neo__schema_save_size(d), n);
                REQUIRE_OK(neo__schema_save(d, again));
                CHECK_BITS(bad, again, n);
            }
            neo_schema_destroy(d);
        }
    }
    memcpy(bad, bytes, n);
    CHECK_ERR(load_words(c, bad, n + 1), NEO_ERR_CORRUPT, "1 bytes follow");
    neo_schema *plain = NULL;
    REQUIRE_OK(neo_schema_parse(ctx, "y label\n", &plain));
    CHECK_INT(neo__schema_save_size(plain), 24);
    REQUIRE_OK(neo__schema_save(plain, again));
    CHECK_OK(load_words(plain, again, 24));
    CHECK_ERR(load_words(plain, bytes, n), NEO_ERR_MISMATCH,
              "2 dictionaries were saved, the schema has 0");
    neo_schema_destroy(plain);
    neo_schema_destroy(a);
    neo_schema_destroy(b);
    neo_schema_destroy(c);
    free(bytes);
    free(again);
    free(bad);
}
static void many_words(void) {
    neo__dict d;
    char word[16];
    int64_t id;
    memset(&d, 0, sizeof d);
    d.max_words = 50000;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 60000; i++) {
            int n = snprintf(word, sizeof word, "w%d", i);
            REQUIRE_OK(neo__dict_add(ctx, &d, word, (size_t)n, &id));
        }
    }
    CHECK_INT(d.count, 50000);
    for (int i = 0; i < 60000; i++) {
        int n = snprintf(word, sizeof word, "w%d", i);
        CHECK_INT(neo__dict_find(&d, word, (size_t)n), i < 50000 ? i + 1 : 0);
    }
    neo__dict_free(ctx, &d);
}

/* ---- small blocks ---- */
/* Lines of every length, some too long, some without a sample, under a heading
 * longer than a block. */
static void borders_of_blocks(void) {
    const char *path = tmp_path("borders.csv");
    static char line[70000];
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    memset(line, 'h', sizeof line);
    for (int i = 0; i < 5; i++) fprintf(f, "%.*s\n", i * 1500, line);
    int64_t good = 0, bad = 0, bytes = 5 + 15000;
    for (int i = 0; i < 3000; i++) {
        int n = i % 50 == 49 ? 900 + i % 9000 : i % 97, end = i % 3 ? 1 : 2;
        if (i == 2999) end = 0;
        fprintf(f, "%d,%.*s%s", i, n, line, end == 2 ? "\r\n" : end ? "\n" : "");
        int digits = snprintf(NULL, 0, "%d", i);
        bytes += digits + 1 + n + end;
        if (digits + 1 + n > NEO__LINE_BYTES)
            bad++;
        else
            good++;
        if (i % 11 == 0 && end) bytes += fprintf(f, i % 2 ? "\n" : "\r\n");
    }
    fclose(f);
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_parse(ctx, "skip-lines 5\nx dense\nw category rows=9 hash\n", &s));
    for (int threads = 1; threads <= 3; threads++) {
        neo_reader *r = NULL;
        neo_batch b;
        neo_reader_desc d = reader_desc(s, &path, 1, 7);
        d.unlabeled = 1;
        d.threads = threads;
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        int64_t n = 0, last = -1;
        neo_position middle = neo_reader_position(r);
        uint64_t want = 1, got = 1;
        while (neo_reader_next(r, &b) == NEO_OK) {
            for (int64_t i = 0; i < b.size; i++) {
                int64_t x = (int64_t)((const float *)b.dense.data)[i];
                CHECK(x > last && x < 3000);
                last = x;
            }
            n += b.size;
            if (n == 1400)
                middle = neo_reader_position(r);
            else if (n > 1400)
                want = hash_batch(want, &b);
        }
        CHECK_INT(last, 2998); /* the last line is too long */
        CHECK_INT(n, good);
        CHECK_INT(neo_reader_get_stats(r).bad_lines, bad);
        CHECK_INT(neo_reader_get_stats(r).bytes, bytes);
        REQUIRE_OK(neo_reader_seek(r, &middle));
        while (neo_reader_next(r, &b) == NEO_OK) got = hash_batch(got, &b);
        CHECK(want == got);
        neo_reader_close(r);
        d.skip_bad_lines = 0;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        neo_status st;
        while ((st = neo_reader_next(r, &b)) == NEO_OK) {
        }
        CHECK(st == NEO_ERR_FORMAT &&
              strstr(neo_last_error(), ":1025: the line is over 1024 bytes"));
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
}

/* Words that lie in one place of a table whose hash is the public one (neo_hash, or the mixed
   number of a Criteo word) lie apart in a dictionary: as random words do at half load, where the
   longest run of full slots is near 50. And each dictionary has a key of its own. */
static int64_t longest_run(const neo__dict *dict) {
    int64_t run = 0, most = 0;
    for (uint64_t i = 0; i < 2 * dict->slot_count; i++) {
        run = dict->slots[i % dict->slot_count] ? run + 1 : 0;
        if (run > most) most = run;
    }
    return most;
}
static void words_made_to_collide(void) {
    enum { WORDS = 2000, MASK = 0x1FFF };
    const char *path = tmp_path("collide.txt"), *paths[1] = {path};
    for (int is_criteo = 0; is_criteo < 2; is_criteo++) {
        neo_schema *s[2] = {NULL, NULL};
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        for (uint64_t n = 0, made = 0; made < WORDS; n++) {
            char word[16];
            int bytes = is_criteo ? 0 : snprintf(word, sizeof word, "w%07x", (unsigned)n);
            uint64_t h = is_criteo ? neo__mix64(n) : neo__hash_bytes(word, (size_t)bytes);
            if (h & MASK) continue;
            made++;
            if (!is_criteo) fprintf(f, "0,%s\n", word);
            for (int i = 0; is_criteo && i < 14; i++) fprintf(f, i ? "\t" : "0\t");
            for (int i = 0; is_criteo && i < 26; i++)
                fprintf(f, "%08x%c", (unsigned)n, i < 25 ? '\t' : '\n');
        }
        fclose(f);
        for (int i = 0; i < 2; i++) {
            if (is_criteo)
                REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, 9999, NULL, &s[i]));
            else REQUIRE_OK(neo_schema_parse(ctx, "y label\nc category\n", &s[i]));
            REQUIRE_OK(neo_schema_fit(s[i], paths, 1, 0));
            CHECK_INT(s[i]->dicts[0].count, WORDS);
            CHECK(longest_run(&s[i]->dicts[0]) < WORDS / 4);
        }
        const neo__dict *a = &s[0]->dicts[0], *b = &s[1]->dicts[0];
        CHECK(a->slot_count == b->slot_count && memcmp(a->slots, b->slots, a->slot_count * 8) != 0);
        CHECK_INT(neo__schema_save_size(s[0]), neo__schema_save_size(s[1]));
        CHECK(neo__dict_equal(a, b)); /* the words, in their order */
        neo_schema_destroy(s[0]);
        neo_schema_destroy(s[1]);
    }
}

/* A pipe without a writer: refused, not waited for. */
static void description_from_a_pipe(void) {
    neo_schema *s = NULL;
    const char *path = tmp_path("pipe.columns");
    remove(path);
    REQUIRE(mkfifo(path, 0600) == 0);
    alarm(900); /* ends a test that hangs */
    CHECK_ERR(neo_schema_parse(ctx, path, &s), NEO_ERR_FORMAT, "a pipe, a device");
    alarm(0);
    remove(path);
}

int main(void) {
    ctx = test_ctx(2, NEO_ISA_BEST, 1);
    size_t bytes = neo_ctx_memory(ctx).bytes;
    RUN(numbers);
    RUN(few_characters);
    RUN(hard_numbers);
    RUN(logarithms);
    RUN(hashes_agree);
    RUN(dictionaries_round_trip);
    RUN(many_words);
    RUN(words_made_to_collide);
    RUN(description_from_a_pipe);
    RUN(borders_of_blocks);
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/numbers");
}
