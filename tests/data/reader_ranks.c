/* reader_ranks.c: one order of samples on any number of ranks, of which each parses its own.

   The reference is the reader of one rank. The readers of W ranks stand side by side in this one
   thread; what they give, put together in rank order, must be its batches sample by sample, for
   every format, with positions, ends and errors at the same batch. Standard input over ranks is in
   tests/comm/data.c. */
#include "common.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAVES = 8, MOST = 40000 };
static neo_ctx *ctx; /* of LEAVES leaves */

typedef struct source {
    const char *name;
    neo_schema *schema;
    const char *paths[3];
    int path_count, samples, bad; /* without the bad ones */
} source;
enum { CRITEO, LISTS, NPY, BAD_NPY, GENERATED, BAGS, MUCH_CRITEO, MUCH_LISTS, MUCH_SVM, SOURCES };
static source sources[SOURCES];

/* ---- data ---- */
static void keep(source *s, const char *name) {
    char *path = strdup(tmp_path(name));
    if (path) s->paths[s->path_count++] = path;
}
static void make_criteo(source *s) {
    keep(s, "ranks-0.tsv");
    keep(s, "ranks-1.tsv");
    write_criteo(ctx, s->paths[0], 0, 700);
    write_criteo(ctx, s->paths[1], 700, 301);
    FILE *f = fopen(s->paths[0], "ab");
    fprintf(f, "1\tno line\n\n");
    fclose(f);
    s->samples = 1001;
    s->bad = 1; /* a blank line is none */
    CHECK_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 1000, NULL, &s->schema));
}
static void make_lists(source *s) {
    keep(s, "ranks-lists-0.csv");
    keep(s, "ranks-lists-1.csv");
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(s->paths[k], "wb");
        for (int i = 0; i < 6000; i++) {
            if (i % 97 == 3) {
                fprintf(f, "yes,nothing\n");
                s->bad++;
                continue;
            }
            fprintf(f, "%d,%d,", i % 2, i + 10000 * k);
            for (int w = 0; w < i * 7 % 5; w++) fprintf(f, "w%d|", i * w % 100);
            fprintf(f, ",v%d\n", i % 13);
            s->samples++;
        }
        fclose(f);
    }
    CHECK_OK(neo_schema_parse(
        ctx, "y label\nx dense\nw list sep=| rows=50 hash\nv category rows=9 hash\n", &s->schema));
}
/* Enough text for an index: two files, one without its last line end. */
static void make_much_criteo(source *s) {
    keep(s, "ranks-much-0.tsv");
    keep(s, "ranks-much-1.tsv");
    write_criteo(ctx, s->paths[0], 0, 10000);
    write_criteo(ctx, s->paths[1], 10000, 10001);
    FILE *f = fopen(s->paths[0], "r+b");
    fseek(f, -1, SEEK_END);
    long end = ftell(f);
    fclose(f);
    if (truncate(s->paths[0], end)) FAIL("cannot cut %s", s->paths[0]);
    s->samples = 20001;
    CHECK_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 1000, NULL, &s->schema));
}
/* Lines that hold no sample of all kinds, also where files begin and end; lines longer than the
   steps of an index, and than a block before the header. */
static void make_much_lists(source *s) {
    static char filler[60000];
    memset(filler, 'f', sizeof filler - 1);
    keep(s, "ranks-much-0.csv");
    keep(s, "ranks-much-1.csv");
    for (int k = 0; k < 2; k++) {
        FILE *f = fopen(s->paths[k], "wb");
        fprintf(f, "%sskipped %s%s%s\r\n#no header\r\ny,w,unused,v,x\r\n", k ? "" : "\xEF\xBB\xBF",
                filler, filler, filler);
        for (int i = 0; i < 8000; i++) {
            if (i % 50 == 7) fprintf(f, "\n\r\n#1,a,b,c,%d\n", i);
            if (i % 500 == 9) fprintf(f, "#%.*s\n", i * 7 % 60000, filler);
            fprintf(f, "%d,", i % 2);
            for (int w = 0; w < i * 7 % 5; w++) fprintf(f, "w%d|", i * w % 100);
            fprintf(f, ",%.*s,v%d,%d%s", i == 5000 ? 59000 : 200 + i % 101, filler, i % 13,
                    i + 10000 * k, i % 3 ? "\n" : "\r\n");
            s->samples++;
        }
        fprintf(f, "#the end\n\n\n#really");
        fclose(f);
    }
    CHECK_OK(neo_schema_parse(ctx,
                              "skip-lines 2\nheader\ncomment \"#\"\ny label\nx dense\n"
                              "w list sep=| rows=50 hash\nv category rows=9 hash\n",
                              &s->schema));
}
static void make_much_svm(source *s) {
    const neo_libsvm_desc d = {.rows = 1000};
    keep(s, "ranks-much.svm");
    FILE *f = fopen(s->paths[0], "wb");
    for (int i = 0; i < 18000; i++) {
        if (i % 40 == 3) fprintf(f, "  # a comment %d\n", i);
        fprintf(f, "%d qid:%d", i % 3 == 0, i);
        for (int k = 0; k < 20 + i % 21; k++) fprintf(f, " %d:0.%d", (i + 1) * k % 1000, i % 997);
        fprintf(f, " # and more\n");
    }
    fclose(f);
    s->samples = 18000;
    CHECK_OK(neo_schema_libsvm(ctx, &d, &s->schema));
}
static char *triple(const char *prefix, const char *name) {
    static char path[1100];
    snprintf(path, sizeof path, "%s%s.npy", prefix, name);
    return path;
}
/* bad: a row with an id that no table has, now and then. */
static void make_npy(source *s, const char *first, const char *second, int bad) {
    static float dense[2 * 15000], label[15000];
    static int64_t sparse[3 * 15000];
    const int64_t rows[3] = {101, 103, 107};
    const int files[2] = {15000, 1009}; /* blocks have 6,553 rows */
    keep(s, first);
    keep(s, second);
    for (int k = 0, n = 0; k < 2; k++) {
        for (int i = 0; i < files[k]; i++, n++) {
            dense[2 * i] = (float)n;
            dense[2 * i + 1] = (float)(n % 17);
            label[i] = (float)(n % 3 == 0);
            for (int t = 0; t < 3; t++) sparse[3 * i + t] = (n * (t + 3)) % rows[t];
            if (bad && n % 1000 == 77) sparse[3 * i + n % 3] = 1000, s->bad++;
        }
        CHECK_OK(neo_npy_write(ctx, triple(s->paths[k], "dense"),
                               neo_tensor_2d(dense, NEO_F32, files[k], 2)));
        CHECK_OK(neo_npy_write(ctx, triple(s->paths[k], "sparse"),
                               neo_tensor_2d(sparse, NEO_I64, files[k], 3)));
        CHECK_OK(neo_npy_write(ctx, triple(s->paths[k], "labels"),
                               neo_tensor_1d(label, NEO_F32, files[k])));
    }
    s->samples = 16009 - s->bad;
    CHECK_OK(neo_schema_npy(ctx, s->paths, 2, rows, 0, &s->schema));
}
static void make_generated(source *s, int ids) {
    neo_synthetic_desc d = {.samples = 9001,
                            .seed = 3,
                            .dense_count = 2,
                            .feature_count = 3,
                            .rows = 50,
                            .ids_per_bag = ids};
    s->samples = 9001;
    CHECK_OK(neo_schema_synthetic(ctx, &d, &s->schema));
}
static void make_sources(void) {
    const char *names[SOURCES] = {"criteo",    "lists", "npy",         "bad npy",
                                  "generated", "bags",  "much criteo", "much lists",
                                  "much svm"};
    for (int k = 0; k < SOURCES; k++) sources[k].name = names[k];
    make_criteo(&sources[CRITEO]);
    make_lists(&sources[LISTS]);
    make_npy(&sources[NPY], "ranks0_", "ranks1_", 0);
    make_npy(&sources[BAD_NPY], "ranks-bad0_", "ranks-bad1_", 1);
    make_generated(&sources[GENERATED], 1);
    make_generated(&sources[BAGS], 3);
    make_much_criteo(&sources[MUCH_CRITEO]);
    make_much_lists(&sources[MUCH_LISTS]);
    make_much_svm(&sources[MUCH_SVM]);
}
static neo_reader_desc desc_of(const source *s, int64_t batch) {
    neo_reader_desc d = reader_desc(s->schema, s->paths, s->path_count, batch);
    d.skip_bad_lines = s->bad > 0;
    return d;
}

/* ---- samples ---- */
/* One hash per sample of a batch. */
static void sample_hashes(const neo_batch *b, uint64_t *out) {
    int64_t features = b->sparse.feature_count, dense = b->dense.shape[1];
    const int64_t *o = b->sparse.offsets, *ids = (const int64_t *)b->sparse.ids;
    for (int64_t i = 0; i < b->size; i++) {
        uint64_t h =
            hash_more(1, (const float *)b->dense.data + i * dense, (size_t)dense * sizeof(float));
        h = hash_more(h, (const float *)b->label.data + i, sizeof(float));
        for (int64_t t = 0; t < features; t++) {
            int64_t at = o[t * b->size + i], n = o[t * b->size + i + 1] - at;
            h = hash_more(h, &n, sizeof n);
            h = hash_more(h, ids + at, (size_t)n * sizeof *ids);
        }
        out[i] = h;
    }
}
static int check_shape(const neo_batch *b) {
    return b->dense.shape[0] == b->size && b->label.shape[0] == b->size &&
           b->sparse.batch == b->size &&
           b->sparse.offsets[b->sparse.feature_count * b->size] == neo_jagged_id_count(&b->sparse);
}
typedef struct epoch {
    int64_t batches, samples;
    int64_t size[MOST];
    neo_position at[MOST + 1]; /* before each batch */
    uint64_t hash[MOST];       /* of each sample */
} epoch;
static epoch whole;
/* What one rank reads. */
static void read_whole(neo_reader_desc d, epoch *e) {
    neo_reader *r = NULL;
    neo_batch b;
    neo_status status;
    e->batches = e->samples = 0;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    while (e->at[e->batches] = neo_reader_position(r),
           (status = neo_reader_next(r, &b)) == NEO_OK) {
        CHECK(b.global_size == b.size && check_shape(&b));
        CHECK_INT(b.first, e->samples);
        sample_hashes(&b, e->hash + e->samples);
        e->samples += b.size;
        e->size[e->batches++] = b.size;
    }
    CHECK(status == NEO_END);
    neo_reader_close(r);
}

/* ---- many ranks ---- */
typedef struct team {
    neo_reader *reader[LEAVES];
    int ranks;
} team;
static int team_open(team *t, neo_reader_desc d, int ranks) {
    memset(t, 0, sizeof *t);
    t->ranks = ranks;
    d.world_size = ranks;
    for (d.rank = 0; d.rank < ranks; d.rank++)
        if (neo_reader_open(ctx, &d, &t->reader[d.rank]) != NEO_OK) {
            FAIL("open: %s", neo_last_error());
            return 0;
        }
    return 1;
}
static void team_close(team *t) {
    for (int k = 0; k < t->ranks; k++) neo_reader_close(t->reader[k]);
}
/* The epoch of a team from batch `from` on is that of one rank: samples, sizes, positions, the end.
   */
static void team_reads(team *t, int64_t from) {
    int64_t at = 0;
    for (int64_t i = 0; i < from; i++) at += whole.size[i];
    for (int64_t i = from; i <= whole.batches; i++) {
        for (int k = 0; k < t->ranks; k++) {
            static uint64_t hash[MOST];
            neo_batch b;
            neo_position p = neo_reader_position(t->reader[k]);
            CHECK_BITS(&p, &whole.at[i], sizeof p);
            neo_status status = neo_reader_next(t->reader[k], &b);
            if (i == whole.batches) {
                CHECK(status == NEO_END);
                continue;
            }
            REQUIRE_OK(status);
            int64_t all = whole.size[i], begin = neo_leaf_begin(all, LEAVES, k * LEAVES / t->ranks);
            CHECK_INT(b.global_size, all);
            CHECK_INT(b.size, neo_leaf_begin(all, LEAVES, (k + 1) * LEAVES / t->ranks) - begin);
            CHECK_INT(b.first, at + begin);
            CHECK(check_shape(&b));
            sample_hashes(&b, hash);
            CHECK_BITS(hash, whole.hash + at + begin, (size_t)b.size * sizeof *hash);
        }
        if (i < whole.batches) at += whole.size[i];
    }
    CHECK_INT(at, whole.samples);
}
static const int worlds[5] = {1, 2, 3, 4, 8};
static void same_order_on_all_ranks(void) {
    const int64_t batches[4] = {3, 64, 1003, 4096};
    for (int k = 0; k < SOURCES; k++) {
        for (int c = 0; c < 16; c++) {
            neo_reader_desc d = desc_of(&sources[k], batches[c % 4]);
            if (k >= MUCH_CRITEO && !test_grid() && c % 5 != k % 4) continue;
            d.shuffle_window = c & 4 ? 300 : 0;
            d.drop_last = c >= 8;
            d.threads = 1 + c % 3;
            d.hold = c % 3;
            if (d.batch == 3 && k != CRITEO) d.batch = 7;
            int first = 0; /* of the numbers of ranks that are taken */
            const int every = test_grid() ? 1 : TEST_WATCHED == 2 ? 16 : 2 << TEST_WATCHED;
            while ((k + 3 * c + 9 * first) % every) first++;
            if (first >= 5) continue;
            read_whole(d, &whole);
            CHECK_INT(whole.samples,
                      d.drop_last ? sources[k].samples / d.batch * d.batch : sources[k].samples);
            for (int w = first; w < 5; w += every) {
                team t;
                d.threads = 1 + (c + w) % 2;
                if (team_open(&t, d, worlds[w])) team_reads(&t, 0);
                for (int r = 0; r < worlds[w]; r++)
                    CHECK_INT(neo_reader_get_stats(t.reader[r]).bad_lines, sources[k].bad);
                if (c % 8 == 1) { /* again, with a reader that has read */
                    for (int r = 0; r < worlds[w]; r++) CHECK_OK(neo_reader_epoch(t.reader[r], 0));
                    team_reads(&t, 0);
                }
                if (test_errors)
                    printf("  %s: batch %d, case %d, %d ranks\n", sources[k].name, (int)d.batch, c,
                           worlds[w]);
                team_close(&t);
                if (test_errors) return;
            }
        }
    }
}
/* ---- text in parts ---- */
static char *index_of(const char *path) {
    static char name[1100];
    snprintf(name, sizeof name, "%s.neoindex", path);
    return name;
}
/* Bytes of the lines of a file that hold samples, each with its line end. */
static int64_t sample_bytes(const source *s, int skip, const char *comment) {
    int64_t sum = 0;
    for (int i = 0; i < s->path_count; i++) {
        static char line[1 << 18];
        FILE *f = fopen(s->paths[i], "rb");
        for (int n = 0; f && fgets(line, sizeof line, f); n++) {
            size_t first = strspn(line, " ");
            if (n >= skip && !strchr("\r\n", line[first]) && strncmp(line + first, comment, 1))
                sum += (int64_t)strlen(line);
        }
        if (f) fclose(f);
    }
    return sum;
}
/* The ranks parse each line of a sample once: their bytes add up to those of the lines, and each
   has delivered its own. All ranks parse all where bad lines are skipped. */
static void parsed_once(void) {
    for (int k = MUCH_CRITEO; k <= MUCH_SVM; k++) {
        const source *s = &sources[k];
        const int64_t all = sample_bytes(s, k == MUCH_LISTS ? 3 : 0, k == MUCH_CRITEO ? "?" : "#");
        for (int c = 0; c < 8; c++) {
            if ((k + c) % (1 << TEST_WATCHED)) continue;
            neo_reader_desc d = desc_of(s, c == 0 ? 1000 : c == 1 ? 37 : c < 4 ? 2048 : 256);
            int ranks = c < 5 ? worlds[c] : 4, whole_text = c == 6;
            int64_t sum = 0;
            team t;
            d.threads = 1 + c % 3;
            d.shuffle_window = c == 4 ? 1 : c == 5 ? 7000 : 0;
            d.skip_bad_lines = c == 6;
            read_whole(d, &whole);
            REQUIRE(team_open(&t, d, ranks));
            if (c == 7) { /* from the middle on, where a rank has gone before */
                neo_batch b;
                neo_position p;
                for (int64_t i = 0; i < 9; i++) REQUIRE_OK(neo_reader_next(t.reader[1], &b));
                p = neo_reader_position(t.reader[1]);
                CHECK_BITS(&p, &whole.at[9], sizeof p);
                for (int r = 0; r < ranks; r++) REQUIRE_OK(neo_reader_seek(t.reader[r], &p));
            }
            if (c == 2) { /* another time, with readers that have read */
                team_reads(&t, 0);
                for (int r = 0; r < ranks; r++) REQUIRE_OK(neo_reader_epoch(t.reader[r], 0));
            }
            team_reads(&t, c == 7 ? 9 : 0);
            for (int r = 0; r < ranks; r++) {
                neo_reader_stats q = neo_reader_get_stats(t.reader[r]);
                sum += q.parsed_bytes;
                if (whole_text) CHECK_INT(q.parsed_bytes, all);
                else if (c != 7) CHECK(q.parsed_bytes < all / ranks * 13 / 10 + 60000);
                CHECK_INT(q.total_samples, ranks > 1 && !whole_text ? s->samples : 0);
                CHECK_INT(q.bytes, q.total_bytes);
            }
            if (c != 7 && !whole_text) CHECK_INT(sum, all);
            if (c == 7) CHECK(sum > all * 8 / 10 && sum < all);
            team_close(&t);
        }
    }
}
static size_t read_file(const char *path, char *bytes, size_t most) {
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(bytes, 1, most, f) : 0;
    if (f) fclose(f);
    return n;
}
/* The index that lies beside a text is used if it is good, and made again if not: whatever is
   there, the samples are the same. */
static void kept_index(void) {
    const source *s = &sources[MUCH_LISTS];
    static char good[8192], got[8192];
    neo_reader_desc d = desc_of(s, 500);
    team t;
    read_whole(d, &whole);
    remove(index_of(s->paths[0]));
    read_whole(d, &whole); /* one rank has no use for it */
    CHECK_INT(read_file(index_of(s->paths[0]), good, sizeof good), 0);
    REQUIRE(team_open(&t, d, 2));
    team_close(&t);
    const size_t bytes = read_file(index_of(s->paths[0]), good, sizeof good);
    CHECK(bytes > 500 && bytes < 4000 && memcmp(good, "NEOINDEX\1", 9) == 0);
    for (size_t at = 0; at <= bytes; at += at < 80 ? 8 : 161) { /* a byte wrong, or all behind it */
        for (int cut = 0; cut < 2; cut++) {
            memcpy(got, good, bytes);
            got[at] ^= 64;
            write_bytes(index_of(s->paths[0]), got, cut ? at : bytes);
            REQUIRE(team_open(&t, d, 2));
            team_close(&t);
            CHECK_INT(read_file(index_of(s->paths[0]), got, sizeof got), bytes);
            CHECK_BITS(got, good, bytes);
        }
    }
    REQUIRE(team_open(&t, d, 3));
    team_reads(&t, 0);
    team_close(&t);
    neo_schema *other = NULL; /* lines of another kind hold samples: the index is of no use */
    REQUIRE_OK(neo_schema_parse(ctx,
                                "skip-lines 2\nheader\ncomment \"#\"\ncomment \"0,w\"\ny label\n"
                                "x dense\n",
                                &other));
    d.schema = other;
    read_whole(d, &whole);
    CHECK(whole.samples < s->samples - 1000);
    REQUIRE(team_open(&t, d, 3));
    team_reads(&t, 0);
    team_close(&t);
    neo_schema_destroy(other);
    d.schema = s->schema;
    read_whole(d, &whole);
    remove(index_of(s->paths[0])); /* a folder stands where it would be written */
    char partial[1200];
    snprintf(partial, sizeof partial, "%s.partial", index_of(s->paths[0]));
    CHECK(mkdir(partial, 0777) == 0);
    REQUIRE(team_open(&t, d, 4));
    team_reads(&t, 0);
    team_close(&t);
    CHECK_INT(read_file(index_of(s->paths[0]), got, sizeof got), 0);
    CHECK(rmdir(partial) == 0);
}
/* Lines "label,number" of 100 to 299 bytes, which rise, but fall in [from, to). */
static size_t lines_of(char *text, int count, int bad, int from, int to) {
    size_t n = 0;
    for (int i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, 400, "%s,%*d\n", i == bad ? "no" : "1",
                              97 + (i >= from && i < to ? 199 - i % 200 : i % 200), i);
    return n;
}
/* A text that is not what it was: before a reader opens it the index is made again, behind that
   reading ends. */
static void changed_text(void) {
    enum { LINES = 24000 };
    static char text[6 << 20];
    source s = {.name = "changed", .samples = LINES};
    neo_batch b;
    team t;
    keep(&s, "ranks-changed.csv");
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nx dense\n", &s.schema));
    neo_reader_desc d = desc_of(&s, 1000);
    for (int k = 0; k < 3; k++) { /* of one size; with the same ends; of the same time */
        const int from[3] = {0, 2000, 0}, to[3] = {0, 20000, LINES};
        struct stat before = {0};
        CHECK(k == 0 || stat(s.paths[0], &before) == 0);
        write_bytes(s.paths[0], text, lines_of(text, LINES, -1, from[k], to[k]));
        const struct timespec times[2] = {before.st_mtim, before.st_mtim};
        CHECK(k < 2 || utimensat(AT_FDCWD, s.paths[0], times, 0) == 0);
        read_whole(d, &whole);
        REQUIRE(team_open(&t, d, 2));
        team_reads(&t, 0);
        team_close(&t);
    }
    const size_t n = lines_of(text, LINES, -1, 0, 0);
    for (int change = 0; change < 3; change++) {
        write_bytes(s.paths[0], text, n);
        REQUIRE(team_open(&t, d, 2));
        FILE *f = fopen(s.paths[0], "r+b"); /* a line more, all one byte later, a shorter file */
        REQUIRE(f);
        if (change == 0) fseek(f, 0, SEEK_END), fprintf(f, "1,1\n");
        if (change == 1) fprintf(f, "0"), fwrite(text, 1, n, f);
        fclose(f);
        if (change == 2) CHECK(truncate(s.paths[0], (long)n / 2) == 0);
        for (int r = 0; r < 2; r++) {
            neo_status status;
            while ((status = neo_reader_next(t.reader[r], &b)) == NEO_OK) continue;
            CHECK_ERR(status, change == 2 && status == NEO_ERR_IO ? NEO_ERR_IO : NEO_ERR_MISMATCH,
                      "ranks-changed.csv: ");
        }
        team_close(&t);
    }
    neo_schema_destroy(s.schema);
    free((void *)(uintptr_t)s.paths[0]);
}
/* A bad line stops the rank that parses it at the batch where it stops one rank; the others go on.
   A position behind bad lines that were skipped is good where none is. */
static void bad_line_of_a_part(void) {
    enum { LINES = 24000 };
    static char text[6 << 20];
    source s = {.name = "bad part"};
    neo_batch b;
    neo_reader *one = NULL;
    team t;
    keep(&s, "ranks-bad-part.csv");
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nx dense\n", &s.schema));
    neo_reader_desc d = desc_of(&s, 1024); /* leaves of 128 */
    const int bad[5] = {0, 127, 128, 9 * 1024 + 300, LINES - 1};
    for (int k = 0; k < 5; k++) {
        const int64_t all = bad[k] < LINES / 1024 * 1024 ? 1024 : LINES % 1024;
        char message[200];
        write_bytes(s.paths[0], text, lines_of(text, LINES, bad[k], 0, 0));
        snprintf(message, sizeof message, "ranks-bad-part.csv:%d:1: y: expected a number",
                 bad[k] + 1);
        int owner = 0;
        while (neo_leaf_begin(all, LEAVES, (owner + 1) * 2) <= bad[k] % 1024) owner++;
        d.skip_bad_lines = 0;
        REQUIRE_OK(neo_reader_open(ctx, &d, &one));
        for (int i = 0; i < bad[k] / 1024; i++) CHECK_OK(neo_reader_next(one, &b));
        CHECK_ERR(neo_reader_next(one, &b), NEO_ERR_FORMAT, message);
        neo_reader_close(one);
        REQUIRE(team_open(&t, d, 4));
        for (int r = 0; r < 4; r++) {
            for (int i = 0; i < bad[k] / 1024; i++) CHECK_OK(neo_reader_next(t.reader[r], &b));
            if (r == owner) CHECK_ERR(neo_reader_next(t.reader[r], &b), NEO_ERR_FORMAT, message);
            else CHECK_OK(neo_reader_next(t.reader[r], &b));
        }
        team_close(&t);
        if (k == 4) continue;
        d.skip_bad_lines = 1;
        read_whole(d, &whole);
        CHECK_INT(whole.samples, LINES - 1);
        d.skip_bad_lines = 0;
        REQUIRE(team_open(&t, d, 3));
        for (int r = 0; r < 3; r++) REQUIRE_OK(neo_reader_seek(t.reader[r], &whole.at[11]));
        team_reads(&t, 11);
        team_close(&t);
    }
    neo_schema_destroy(s.schema);
    free((void *)(uintptr_t)s.paths[0]);
}
/* A last batch of fewer samples than ranks: some get none of it, and still a batch. */
static void short_last_batch(void) {
    neo_reader_desc d = desc_of(&sources[GENERATED], 9001 - 3);
    team t;
    neo_batch b;
    REQUIRE(team_open(&t, d, LEAVES));
    int64_t sum = 0, empty = 0;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < LEAVES; k++) {
            REQUIRE_OK(neo_reader_next(t.reader[k], &b));
            CHECK_INT(b.global_size, i ? 3 : 8998);
            if (i) sum += b.size, empty += b.size == 0;
        }
    CHECK_INT(sum, 3);
    CHECK_INT(empty, 5);
    for (int k = 0; k < LEAVES; k++) CHECK(neo_reader_next(t.reader[k], &b) == NEO_END);
    team_close(&t);
}
/* A position of any rank of any number of them is good for every other number. */
static void resume_on_other_ranks(void) {
    for (int k = 0; k < SOURCES; k++) {
        for (int shuffled = 0; shuffled < 2; shuffled++) {
            neo_reader_desc d = desc_of(&sources[k], k == CRITEO ? 100 : 640);
            d.shuffle_window = shuffled ? 1500 : 0;
            read_whole(d, &whole);
            team four, t;
            neo_batch b;
            REQUIRE(team_open(&four, d, 4));
            for (int64_t i = 0; i <= whole.batches; i += 3) {
                neo_position p = neo_reader_position(four.reader[i % 4]);
                int ranks = worlds[i % 5];
                REQUIRE(team_open(&t, d, ranks));
                for (int r = 0; r < ranks; r++) REQUIRE_OK(neo_reader_seek(t.reader[r], &p));
                team_reads(&t, i);
                team_close(&t);
                for (int n = 0; n < 12 && i + n / 4 < whole.batches; n++)
                    REQUIRE_OK(neo_reader_next(four.reader[n % 4], &b));
            }
            team_close(&four);
        }
    }
    neo_reader_desc d = desc_of(&sources[CRITEO], 100);
    team t;
    REQUIRE(team_open(&t, d, 2));
    neo_position p = neo_reader_position(t.reader[1]);
    team_close(&t);
    d.batch = 50; /* what each of two had: another batch */
    REQUIRE(team_open(&t, d, 2));
    CHECK_ERR(neo_reader_seek(t.reader[0], &p), NEO_ERR_MISMATCH,
              "the position is of another batch");
    team_close(&t);
}
/* Batches stay as they are while they are held, though the threads read on behind them. */
static void held_batches(void) {
    enum { HOLD = 3 };
    static uint64_t then[HOLD][MOST], now[MOST];
    const int which[3] = {LISTS, GENERATED, NPY};
    for (int k = 0; k < 3; k++) {
        for (int hold = 2; hold <= HOLD; hold++) {
            neo_reader_desc d = desc_of(&sources[which[k]], 100);
            neo_batch held[HOLD];
            neo_reader *r = NULL;
            d.hold = hold;
            d.prefetch = 1;
            d.rank = 1;
            d.world_size = 2;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            for (int i = 0; i < 60; i++) {
                REQUIRE_OK(neo_reader_next(r, &held[i % hold]));
                sample_hashes(&held[i % hold], then[i % hold]);
                for (int64_t until = neo_time_ns() + 200000; neo_time_ns() < until;)
                    continue; /* threads come first */
                for (int j = 0; j < hold && j <= i; j++) {
                    sample_hashes(&held[j], now);
                    CHECK_BITS(now, then[j], (size_t)held[j].size * sizeof *now);
                }
            }
            neo_reader_close(r);
        }
    }
}
/* A rank has room for its part of a batch, not for all of it. */
static void memory_of_a_part(void) {
    neo_reader_desc d = desc_of(&sources[GENERATED], 80000);
    size_t before = neo_ctx_memory(ctx).bytes, bytes[2];
    d.prefetch = 6;
    for (int i = 0; i < 2; i++) {
        neo_reader *r = NULL;
        d.world_size = i ? 8 : 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        bytes[i] = neo_ctx_memory(ctx).bytes - before;
        neo_reader_close(r);
    }
    size_t batch = 80000 * (3 * sizeof(float) + 6 * sizeof(int64_t));
    CHECK(bytes[0] - bytes[1] >= 7 * batch / 8 * 7 &&
          bytes[0] - bytes[1] <= 7 * batch / 8 * 7 + 1000);
}
/* Text: a bad line is found by all at the same batch. npy in file order: by the rank that reads it;
   shuffled: by all. */
static void errors_on_ranks(void) {
    neo_batch b;
    team t;
    neo_reader_desc d = desc_of(&sources[LISTS], 600);
    d.skip_bad_lines = 0;
    REQUIRE(team_open(&t, d, 3));
    for (int k = 0; k < 3; k++)
        CHECK_ERR(neo_reader_next(t.reader[k], &b), NEO_ERR_FORMAT,
                  "lists-0.csv:4:1: 2 fields, expected 4");
    team_close(&t);
    d = desc_of(&sources[BAD_NPY], 1000); /* row 77 of every 1000 is bad: in leaf 0 */
    d.skip_bad_lines = 0;
    REQUIRE(team_open(&t, d, 8));
    for (int k = 0; k < 8; k++) {
        if (k == 0)
            CHECK_ERR(neo_reader_next(t.reader[k], &b), NEO_ERR_RANGE,
                      "sparse.npy: row 77, column 2 (");
        else
            for (int i = 0; i < 17; i++) CHECK_OK(neo_reader_next(t.reader[k], &b));
        if (k) CHECK(neo_reader_next(t.reader[k], &b) == NEO_END);
    }
    team_close(&t);
    d.shuffle_window = 5000;
    REQUIRE(team_open(&t, d, 2));
    for (int k = 0; k < 2; k++)
        CHECK_ERR(neo_reader_next(t.reader[k], &b), NEO_ERR_RANGE, "sparse.npy: row 77,");
    team_close(&t);
}
/* An array that has another length than when the reader was opened. */
static void changed_rows(void) {
    source s = {0};
    make_npy(&s, "ranks-changed0_", "ranks-changed1_", 0);
    neo_reader_desc d = desc_of(&s, 100);
    static float data[16020 * 2];
    static int64_t ids[16020 * 3];
    neo_batch b;
    team t;
    REQUIRE(team_open(&t, d, 2));
    CHECK_OK(
        neo_npy_write(ctx, triple(s.paths[0], "dense"), neo_tensor_2d(data, NEO_F32, 15001, 2)));
    CHECK_OK(
        neo_npy_write(ctx, triple(s.paths[0], "sparse"), neo_tensor_2d(ids, NEO_I64, 15001, 3)));
    CHECK_OK(neo_npy_write(ctx, triple(s.paths[0], "labels"), neo_tensor_1d(data, NEO_F32, 15001)));
    CHECK_ERR(neo_reader_next(t.reader[1], &b), NEO_ERR_MISMATCH,
              "has 15001 rows, it had 15000 when the reader");
    team_close(&t);
    neo_schema_destroy(s.schema);
    for (int i = 0; i < s.path_count; i++) free((void *)(uintptr_t)s.paths[i]);
}
static neo_status no_input(void *user, void *buffer, size_t bytes, size_t *got) {
    (void)user, (void)buffer, (void)bytes, (void)got;
    return NEO_END;
}
static void refusals(void) {
    neo_reader *r = NULL;
    neo_reader_desc d = desc_of(&sources[CRITEO], 100);
    d.world_size = 9;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG,
              "9 ranks share the leaves of a batch, of which there are 8: set repro_shards of "
              "every rank's context to 9");
    d.world_size = 8;
    d.rank = 8;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "rank 8 of 8");
    d.rank = 0;
    d.hold = -1;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "hold is -1, not in 0 .. 4096");
    d.hold = 0;
    d.input.read = no_input;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "desc.input is set, but no path is '-'");
    const char *input = "-";
    d.paths = &input;
    d.path_count = 1;
    d.input.read = NULL;
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG,
              "standard input ('-') is one process's, and there are 8 ranks");
    CHECK(r == NULL);
}

/* ---- a function for standard input ---- */
typedef struct feed {
    const char *text;
    size_t bytes, at, piece;
    int empty, fails; /* calls that bring nothing; the text ends in an error */
} feed;
static neo_status feed_read(void *user, void *buffer, size_t bytes, size_t *got) {
    feed *f = (feed *)user;
    *got = 0;
    if (f->empty++ % 3 == 0) return NEO_OK;
    if (f->fails == 2) return *got = bytes + 1, NEO_OK;
    if (f->at == f->bytes) return f->fails ? neo_fail(NEO_ERR_IO, "the wire is cut") : NEO_END;
    size_t n = f->bytes - f->at;
    if (n > f->piece) n = f->piece;
    if (n > bytes) n = bytes;
    memcpy(buffer, f->text + f->at, n);
    f->at += n;
    *got = n;
    return NEO_OK;
}
static neo_status feed_then_nothing(void *user, void *buffer, size_t bytes, size_t *got) {
    feed *f = (feed *)user;
    *got = 0;
    return f->at < 50000 ? feed_read(user, buffer, bytes, got) : NEO_OK;
}
static void bytes_of_a_function(void) {
    const char *input = "-";
    static char text[1 << 20];
    FILE *f = fopen(sources[LISTS].paths[1], "rb");
    REQUIRE(f);
    size_t bytes = fread(text, 1, sizeof text, f);
    fclose(f);
    neo_reader_desc d = desc_of(&sources[LISTS], 100);
    d.paths = &sources[LISTS].paths[1];
    d.path_count = 1;
    read_whole(d, &whole);
    d.paths = &input;
    const size_t pieces[3] = {1, 1000, 1 << 20};
    for (int k = 0; k < 3; k++) {
        feed part[2] = {{.text = text, .bytes = bytes, .piece = pieces[k]},
                        {.text = text, .bytes = bytes, .piece = 777}};
        static uint64_t hash[MOST];
        neo_reader *r[2] = {NULL, NULL};
        neo_batch b;
        d.world_size = 2;
        for (d.rank = 0; d.rank < 2; d.rank++) {
            d.input.read = feed_read;
            d.input.user = &part[d.rank];
            d.threads = 1 + d.rank;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r[d.rank]));
        }
        int64_t at = 0;
        for (int64_t i = 0; i < whole.batches; i++)
            for (int p = 0; p < 2; p++) {
                REQUIRE_OK(neo_reader_next(r[p], &b));
                sample_hashes(&b, hash);
                CHECK_BITS(hash, whole.hash + at, (size_t)b.size * sizeof *hash);
                at += b.size;
            }
        CHECK_INT(at, whole.samples);
        CHECK(neo_reader_next(r[0], &b) == NEO_END && neo_reader_next(r[1], &b) == NEO_END);
        CHECK_ERR(neo_reader_epoch(r[0], 1), NEO_ERR_UNSUPPORTED, "cannot be read twice");
        neo_reader_close(r[0]);
        neo_reader_close(r[1]);
    }
    d.rank = d.world_size = 0;
    neo_reader *r = NULL;
    neo_batch b;
    feed cut = {.text = text, .bytes = 5000, .piece = 500, .fails = 1};
    d.input.user = &cut;
    d.batch = 10;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    neo_status status;
    int n = 0;
    while ((status = neo_reader_next(r, &b)) == NEO_OK) n++;
    CHECK(n > 10);
    CHECK_ERR(status, NEO_ERR_IO, "the wire is cut");
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_IO, "the wire is cut");
    neo_reader_close(r);
    cut.fails = 2;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_ARG, "standard input: read gave");
    neo_reader_close(r);
    feed endless = {.text = text, .bytes = bytes, .piece = 2000};
    d.input.read = feed_then_nothing; /* closing does not wait for bytes that never come */
    d.input.user = &endless;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    for (int i = 0; i < 10; i++) REQUIRE_OK(neo_reader_next(r, &b));
    neo_reader_close(r);
}

int main(void) {
    neo_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = 2;
    desc.seed = 5;
    desc.repro_shards = LEAVES;
    if (neo_ctx_create(&desc, &ctx) != NEO_OK) return 1;
    size_t bytes = neo_ctx_memory(ctx).bytes;
    RUN(make_sources);
    RUN(same_order_on_all_ranks);
    RUN(parsed_once);
    RUN(kept_index);
    RUN(changed_text);
    RUN(bad_line_of_a_part);
    RUN(short_last_batch);
    RUN(resume_on_other_ranks);
    RUN(held_batches);
    RUN(memory_of_a_part);
    RUN(errors_on_ranks);
    RUN(changed_rows);
    RUN(refusals);
    RUN(bytes_of_a_function);
    for (int k = 0; k < SOURCES; k++) {
        neo_schema_destroy(sources[k].schema);
        for (int i = 0; i < sources[k].path_count; i++)
            free((void *)(uintptr_t)sources[k].paths[i]);
    }
    if (neo_ctx_memory(ctx).bytes != bytes) {
        printf("FAILED leak\n");
        test_failed++;
    }
    neo_ctx_destroy(ctx);
    return test_end("data/reader_ranks");
}
