/* schema.c: schemas and their dictionaries, through the samples a reader
   makes by them.

   Small files are written, read back, and compared with values worked out here;
   every mistake that a column description can hold must give its message, with
   line and column. */
#include "common.h"

static neo_ctx *ctx;

static void criteo_sizes(void) {
    neo_schema *s = NULL;
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_HASH, 1000, NULL, &s));
    CHECK(neo_schema_format(s) == NEO_FORMAT_CRITEO);
    CHECK_INT(neo_schema_dense_count(s), 13);
    CHECK_INT(neo_schema_feature_count(s), 26);
    CHECK(strcmp(neo_schema_feature(s, 0).name, "C1") == 0 &&
          strcmp(neo_schema_feature(s, 25).name, "C26") == 0);
    CHECK_INT(neo_schema_feature(s, 25).rows, 1000);
    CHECK(neo_schema_feature(s, 26).name == NULL && neo_schema_feature(s, -1).name == NULL);
    CHECK(neo_schema_is_fitted(s) && !neo_schema_is_weighted(s));
    neo_schema_destroy(s);
    int64_t rows[26];
    for (int i = 0; i < 26; i++) rows[i] = 10 + i;
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, 0, rows, &s));
    CHECK(!neo_schema_is_fitted(s));
    CHECK_INT(neo_schema_feature(s, 3).rows, 0);
    neo_schema_destroy(s);
    rows[4] = 0;
    CHECK_ERR(neo_schema_criteo(ctx, NEO_IDS_HASH, 0, rows, &s), NEO_ERR_ARG, "C5 has 0 rows");
    CHECK(s == NULL);
    CHECK_ERR(neo_schema_criteo(ctx, NEO_IDS_HASH, -3, NULL, &s), NEO_ERR_ARG, "C1 has -3 rows");
    CHECK_ERR(neo_schema_criteo(ctx, (neo_ids)7, 10, NULL, &s), NEO_ERR_ARG, "ids is 7");
    CHECK_ERR(neo_schema_criteo(NULL, NEO_IDS_HASH, 10, NULL, &s), NEO_ERR_ARG, "NULL");
    neo_schema_destroy(NULL);
}

static const struct {
    const char *text, *message;
} mistakes[] = {
    {"a label\nb dense loud\n", "columns:2:9: expected an option, label, dense, category, "
                                "bucket, cross, list, sample-weight or skip, found 'loud'"},
    {"\xEF\xBB\xBFheader\nb dense clip=5\n", "columns:2:9: expected an option, label"},
    {"a label\nb dense clip=5\n", "columns:2:9: expected an option, label, dense"},
    {"a category hash row=9\n", "found 'row=9' (did you mean rows=?)"},
    {"a list rows=9 sepp=|\n", "found 'sepp=|' (did you mean sep=?)"},
    {"a label\nb\n", "columns:2:2: column 'b': expected what it becomes"},
    {"a label\na skip\n", "columns:2:1: column 'a' is on line 1 already"},
    {"a label label\n", "columns:1:9: a second label of one column"},
    {"a label weight=2\n", "columns:1:1: weight= of the only label: there is no other"},
    {"a label weight=0\nb label\n", "columns:1:9: weight= of a label is above 0"},
    {"a sample-weight\nb sample-weight\n", "columns:2:3: a second sample-weight"},
    {"a label positive=x,,y\n", "columns:1:9: positive= has an empty word"},
    {"a dense shift=much\n", "columns:1:9: expected a number, found 'much'"},
    {"a dense scale=1e99\n", "columns:1:9: expected a number, found '1e99'"},
    {"a dense missing=\n", "columns:1:9: expected a number, found ''"},
    {"a category hash\n", "columns:1:3: a hashed feature needs rows="},
    {"a category rows=1\n",
     "columns:1:12: expected a whole number from 2 to 999999999999999, found '1'"},
    {"a category rows=1000000000000000\n",
     "from 2 to 999999999999999, found '1000000000000000'"},
    {"a category rows=-4\n", "expected a whole number from 2 to 999999999999999, found '-4'"},
    {"a bucket\n", "columns:1:9: bucket needs its edges"},
    {"a bucket 1,2,2\n", "columns:1:14: edges must rise"},
    {"a bucket 1,b\n", "columns:1:12: expected a number, found 'b'"},
    {"a cross\n", "columns:1:8: cross needs the other column"},
    {"a cross b\n", "columns:1:3: a cross needs rows="},
    {"a skip\nb skip\nc cross d rows=4\n", "columns:3:1: cross: there is no column 'd'"},
    {"a list rows=5\n", "columns:1:3: a list needs sep="},
    {"a list sep=ab\n", "columns:1:8: sep= needs one character"},
    {"a list sep=; weight=\n", "columns:1:14: weight= needs one character"},
    {"a list sep=; weight=;\n", "columns:1:3: sep= and weight= are the same"},
    {"a category category\n", "columns:1:12: the column is a feature of words already"},
    {"a skip\nb category list sep=|\n",
     "columns:2:12: the column is a feature of words already, and a list is a category of "
     "several words: write one of them, as in: b list sep=| rows=1000"},
    {"a cross a rows=5 cross a rows=6\n", "columns:1:1: feature 'a_x_a' is there already"},
    {"a list sep=| normalize\n", "columns:1:3: normalize needs weight="},
    {"a list sep=| normalise\n", "found 'normalise' (did you mean normalize?)"},
    {"missing category\na label\n",
     "columns:1:1: 'missing' is a setting: a column of that name stands in double quotes, as "
     "in: \"missing\" category"},
    {"quote category hash\n", "columns:1:1: 'quote' is a setting: a column of that name"},
    {"delimiter skip\n", "columns:1:1: 'delimiter' is a setting: a column of that name"},
    {"\"quote\" catgory\n", "found 'catgory' (did you mean category?)"},
    {"Order Id skip\n", "columns:1:7: expected label, dense, category, bucket, cross, list, "
                        "sample-weight or skip, found 'Id' (a name with spaces or # "
                        "stands in double quotes: "
                        "\"Order Id\")"},
    {"y label\nsize in m dense log\n", "double quotes: \"size in m\")"},
    {"Job #2 category\n", "columns:1:5: column 'Job': expected what it becomes (skip: nothing) "
                          "(a name with spaces or # stands in double quotes: \"Job #...\")"},
    {"\"a\" more dense\n", "found 'more'"},
    {"a dense more dense\n", "found 'more'"},
    {"comment #\na label\n", "columns:1:9: expected what comment lines begin with (# in double "
                             "quotes: comment \"#\")"},
    {"\"a #1\" dens # \"x\"\n", "columns:1:8: expected label, dense"},
    {"a skip\n", "no column is used"},
    {"\n", "no column is used"},
    {"delimiter\na label\n", "expected a delimiter of 1 to 15 bytes"},
    {"delimiter 0123456789abcdef\na label\n", "expected a delimiter of 1 to 15 bytes"},
    {"skip-lines x\na label\n",
     "columns:1:12: expected a whole number from 0 to 999999999999999, found 'x'"},
    {"missing\na label\n", "expected the word that means no value"},
    {"comment\na label\n", "expected what comment lines begin with"},
    {"a label\nmissing ?\n", "columns:2:9: expected label, dense"},
    {"a label\nmissing ?\n", "found '?' ('missing' is a setting: before the columns)"},
    {"a label\nheader\n",
     "columns:2:7: column 'header': expected what it becomes (skip: nothing) "
     "('header' is a setting: before the columns)"},
    {"a dense shft=3\n",
     "columns:1:9: expected an option, label, dense, category, bucket, cross, list, "
     "sample-weight or skip, found 'shft=3' (did you mean shift=?)"},
    {"a categry\n", "found 'categry' (did you mean category?)"},
    {"a category mincount=3\n", "found 'mincount=3' (did you mean min_count=?)"},
    {"city hash rows=100\n", "found 'hash' (hash comes behind what a column is, as category)"},
    {"a dense rows=3\n", "found 'rows=3' (rows= comes behind what a column is"},
    {"a label\r\n\r\nb dens\r\n", "columns:3:3: expected label"},
};
static void description_mistakes(void) {
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        neo_schema *s = NULL;
        CHECK_ERR(neo_schema_parse(ctx, mistakes[i].text, &s), NEO_ERR_FORMAT,
                  mistakes[i].message);
        CHECK(s == NULL);
    }
    neo_schema *s = NULL;
    CHECK_ERR(neo_schema_parse(ctx, "no-such-file", &s), NEO_ERR_NOT_FOUND, "no-such-file");
    CHECK_ERR(neo_schema_parse(ctx, ".", &s), NEO_ERR_IO, "directory");
    const char *path = tmp_path("columns.txt");
    write_text(path, "a label\nb dens\n");
    CHECK_ERR(neo_schema_parse(ctx, path, &s), NEO_ERR_FORMAT, "columns.txt:2:3: expected label");
    write_bytes(path, "\xFF\xFE" "a\0 \0", 6);
    CHECK_ERR(neo_schema_parse(ctx, path, &s), NEO_ERR_FORMAT, "NUL byte (UTF-16? use iconv)");
    write_text(path, "a label\rb dense\r");
    CHECK_ERR(neo_schema_parse(ctx, path, &s), NEO_ERR_FORMAT,
              "columns.txt:1:1: lines that end with \\r alone: use tr");
    neo_reader *r = NULL;
    CHECK_OK(neo_schema_parse(ctx, "a dense\nb skip\n", &s));
    const neo_reader_desc d = {.schema = s, .paths = (const char *const[]){path}, .path_count = 1,
                               .batch = 1};
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_ARG, "no column of the description is a label");
    neo_schema_destroy(s);
}

/* A '#' in double quotes is part of a name or a word; it begins a comment elsewhere. */
static neo_reader *read_one(neo_schema **s, const char *columns, const char *text, neo_batch *b);
static void quoted_words_of_descriptions(void) {
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(&s,
                             "comment \"#\"   # lines of a tool\nmissing \"# N/A\"\nheader # one\n"
                             "quote \"   # reads \"fields, in quotes\"\n"
                             "\"Job #2\" category rows=9 hash cross \"Job #2\" rows=5 # \"Job\"\n"
                             " \"# of ads\" dense missing=-1\ny label # its label\n",
                             "y,# of ads,Job #2\n# nothing\n1,# N/A,cook\n0,\"3\",clerk\n", &b);
    REQUIRE(r);
    const float x[2] = {-1, 3};
    REQUIRE(b.size == 2);
    CHECK_BITS(b.dense.data, x, sizeof x);
    CHECK(strcmp(neo_schema_feature(s, 0).name, "Job #2") == 0);
    CHECK(strcmp(neo_schema_feature(s, 1).name, "Job #2_x_Job #2") == 0);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* Descriptions of some MiB take memory by what they say, and time by their length: 14,000 crosses
   have as many names, each of which is looked up. */
static void large_descriptions(void) {
    static char text[4 << 20];
    const char *path = tmp_path("large.columns");
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_schema *s = NULL;
    memset(text, ' ', sizeof text); /* blanks, then empty lines */
    memcpy(text, "y label\n", 8);
    for (int i = 0; i < 2; i++) {
        write_bytes(path, text, sizeof text - 1);
        size_t before = neo_ctx_memory(ctx).bytes;
        REQUIRE_OK(neo_schema_parse(ctx, path, &s));
        neo_schema_destroy(s);
        CHECK(neo_ctx_memory(ctx).peak_bytes - before < 2 * sizeof text);
        CHECK_INT(neo_ctx_memory(ctx).bytes, before);
        memset(text + 8, '\n', sizeof text - 8);
    }
    size_t used = 0;
    for (int i = 0; i < 4096; i++) {
        used += (size_t)snprintf(text + used, 64, "c%d", i);
        for (int k = 0; i < 100 && k < 140; k++)
            used += (size_t)snprintf(text + used, 64, " cross c%d rows=5", 4000 - k);
        used += (size_t)snprintf(text + used, 64, i < 100 ? "\n" : " skip\n");
    }
    REQUIRE_OK(neo_schema_parse(ctx, text, &s));
    CHECK_INT(neo_schema_feature_count(s), 14000);
    CHECK(strcmp(neo_schema_feature(s, 13999).name, "c99_x_c3861") == 0);
    neo_schema_destroy(s);
    CHECK_ERR(neo_schema_parse(ctx, strcat(text, "c skip\n"), &s), NEO_ERR_FORMAT,
              "columns:4097:1: more than 4096 columns");
    used = (size_t)snprintf(text, 64, "y");
    for (int i = 0; i < 20000; i++) used += (size_t)snprintf(text + used, 64, " dense");
    snprintf(text + used, 64, "\n");
    CHECK_ERR(neo_schema_parse(ctx, text, &s), NEO_ERR_FORMAT,
              "become more than 16384 numbers and features");
    for (int i = 0; i < 5000; i++) memcpy(text + 10 * i, "missing a\n", 10);
    CHECK_ERR(neo_schema_parse(ctx, text, &s), NEO_ERR_FORMAT,
              "columns:4097:9: more than 4096 such lines");
    neo_ctx_destroy(ctx);
}

/* One batch of a text through a description; the reader is left open for its
 * batch. */
static neo_reader *read_one(neo_schema **s, const char *columns, const char *text, neo_batch *b) {
    const char *path = tmp_path("one.txt");
    neo_reader *r = NULL;
    write_text(path, text);
    if (!*s && neo_schema_parse(ctx, columns, s) != NEO_OK) return NULL;
    if (!neo_schema_is_fitted(*s) && neo_schema_fit(*s, &path, 1, 0) != NEO_OK) return NULL;
    neo_reader_desc d = reader_desc(*s, &path, 1, 1000);
    if (neo_reader_open(ctx, &d, &r) != NEO_OK) return NULL;
    if (neo_reader_next(r, b) == NEO_OK) return r;
    neo_reader_close(r);
    return NULL;
}
static int64_t bag_id(const neo_batch *b, int feature, int64_t sample, int64_t k) {
    int64_t bag = feature * b->sparse.batch + sample;
    return ((const int64_t *)b->sparse.ids)[b->sparse.offsets[bag] + k];
}
static int64_t bag_length(const neo_batch *b, int feature, int64_t sample) {
    int64_t bag = feature * b->sparse.batch + sample;
    return b->sparse.offsets[bag + 1] - b->sparse.offsets[bag];
}

static void columns_of_every_kind(void) {
    static const char columns[] = "# a description\n"
                                  "missing ?     # no value\n"
                                  "comment |\n"
                                  "\n"
                                  "age    dense shift=30 scale=0.5 missing=-7 bucket 20,30,40\n"
                                  "job    category category_is_not_here_skip\n";
    static const char good[] = "missing ?     # no value\n"
                               "comment |\r\n"
                               "age    dense shift=30 scale=0.5 missing=-7 bucket 20,30,40\n"
                               "job    category cross age rows=50\n"
                               "wage   dense log\n"
                               "word   category rows=100 hash\n"
                               "income label positive=>50K,>50K.\n";
    static const char text[] = "|1x3 Cross validator\n"
                               "39, clerk, 2174, x, <=50K\n"
                               "20, ?, 0, , >50K.\r\n"
                               "?, cook, -5, yy, >50K\n"
                               "19.5, clerk, 1e2, x, <=50K.\n"
                               "\n";
    neo_schema *s = NULL;
    neo_batch b;
    CHECK_ERR(neo_schema_parse(ctx, columns, &s), NEO_ERR_FORMAT,
              "columns:6:17: expected an option, label");
    neo_reader *r = read_one(&s, good, text, &b);
    REQUIRE(r);
    CHECK_INT(neo_schema_dense_count(s), 2);
    CHECK_INT(neo_schema_feature_count(s), 4);
    CHECK(strcmp(neo_schema_feature(s, 0).name, "age_bucket") == 0);
    CHECK(strcmp(neo_schema_feature(s, 2).name, "job_x_age") == 0);
    CHECK_INT(neo_schema_feature(s, 0).rows, 5);
    CHECK_INT(neo_schema_feature(s, 1).rows, 3);
    CHECK_INT(neo_schema_feature(s, 2).rows, 50);
    CHECK_INT(neo_schema_feature(s, 3).rows, 100);
    REQUIRE(b.size == 4);
    const float *dense = b.dense.data, *label = b.label.data;
    const float want[8] = {4.5f,   (float)log(2175.0), -5.0f, 0.0f, -7.0f, 0.0f,
                           -5.25f, (float)log(101.0)};
    for (int i = 0; i < 8; i++) CHECK_NEAR(dense[i], want[i], 1e-6);
    CHECK(label[0] == 0.0f && label[1] == 1.0f && label[2] == 1.0f && label[3] == 0.0f);
    const int64_t bucket[4] = {3, 2, 0, 1}, job[4] = {1, 0, 2, 1};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(bag_length(&b, 0, i), 1);
        CHECK_INT(bag_id(&b, 0, i, 0), bucket[i]);
        CHECK_INT(bag_id(&b, 1, i, 0), job[i]);
        CHECK(bag_id(&b, 2, i, 0) >= 1 && bag_id(&b, 2, i, 0) < 50);
    }
    CHECK_INT(bag_id(&b, 3, 0, 0), 1 + (int64_t)(neo_hash("x") % 99));
    CHECK_INT(bag_id(&b, 3, 1, 0), 0);
    CHECK_INT(bag_id(&b, 3, 2, 0), 1 + (int64_t)(neo_hash("yy") % 99));
    neo_reader_close(r);
    /* the same schema on other text: words never seen are 0 */
    r = read_one(&s, NULL, "1, baker, 1, x, >50K\n1, cook, 1, x, >50K\n", &b);
    REQUIRE(r);
    CHECK_INT(bag_id(&b, 1, 0, 0), 0);
    CHECK_INT(bag_id(&b, 1, 1, 0), 2);
    neo_reader_close(r);
    const char *path = tmp_path("one.txt");
    CHECK_ERR(neo_schema_fit(s, &path, 1, 0), NEO_ERR_STATE, "fitted already");
    neo_schema_destroy(s);
}

static void lists_and_long_delimiters(void) {
    static const char columns[] = "delimiter ::\nskip-lines 1\nmissing (none)\n"
                                  "id category rows=3\n"
                                  "name skip\n"
                                  "genres list sep=|\n"
                                  "rating label positive=4,5\n"
                                  "more list sep=, rows=20 hash\n";
    static const char text[] =
        "id::name::genres::rating::more\n"
        "1::A: b::Drama|Comedy::5::p,q\n"
        "2::::(none)::3::\n"
        "1::x:::Comedy |War||Drama::4::p\n" /* "x" + ":" + "Comedy": cut at the
                                                                      first :: */
        "3::z::War::1::q, p ,,r\n";
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(&s, columns, text, &b);
    REQUIRE(r);
    REQUIRE(b.size == 4);
    CHECK_INT(neo_schema_feature(s, 0).rows, 3); /* rows=3: the word 3 came too late */
    const int64_t lengths[4] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) CHECK_INT(bag_length(&b, 1, i), lengths[i]);
    CHECK_INT(bag_id(&b, 0, 0, 0), 1);
    CHECK_INT(bag_id(&b, 0, 1, 0), 2);
    CHECK_INT(bag_id(&b, 0, 2, 0), 1);
    CHECK_INT(bag_id(&b, 0, 3, 0), 0);
    CHECK_INT(bag_id(&b, 1, 0, 0), 1); /* Drama */
    CHECK_INT(bag_id(&b, 1, 0, 1), 2); /* Comedy */
    CHECK_INT(bag_id(&b, 1, 2, 0), 3); /* ":Comedy" */
    CHECK_INT(bag_id(&b, 1, 2, 1), 4); /* War */
    CHECK_INT(bag_id(&b, 1, 2, 2), 1);
    CHECK_INT(bag_id(&b, 1, 3, 0), 4);
    CHECK_INT(bag_length(&b, 2, 0), 2);
    CHECK_INT(bag_length(&b, 2, 1), 0);
    CHECK_INT(bag_length(&b, 2, 3), 3);
    CHECK_INT(bag_id(&b, 2, 3, 1), 1 + (int64_t)(neo_hash("p") % 19));
    const float *label = b.label.data;
    CHECK(label[0] == 1.0f && label[1] == 0.0f && label[2] == 1.0f && label[3] == 0.0f);
    CHECK(b.dense.shape[1] == 0);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

static void tabs_spaces_and_numbers(void) {
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r =
        read_one(&s, "delimiter tab\ny label\nx dense\n", "0.25\t-1.5e-3\n1\t \n0\t+7.\n", &b);
    REQUIRE(r);
    const float *x = b.dense.data, *y = b.label.data;
    CHECK(y[0] == 0.25f && y[1] == 1.0f && y[2] == 0.0f);
    CHECK(x[2] == 7.0f && x[0] == -1.5e-3f);
    neo_reader_close(r);
    neo_schema_destroy(s);
    s = NULL;
    r = read_one(&s, "delimiter space\nheader\nx dense\ny label\n", "x y\n3 1\n4 0", &b);
    REQUIRE(r);
    x = b.dense.data;
    CHECK(b.size == 2 && x[0] == 3.0f && x[1] == 4.0f);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* ---- quotes ---- */
static void quoted_fields(void) {
    static const char columns[] =
        "quote \"\nmissing ?\ny label positive=yes\nname category rows=99\n"
        "x dense missing=-1\ntags list sep=;\n";
    static const char text[] = "\"yes\",\"a,b\",\"7\",\"p;q,r\"\n"
                               " no , \" say \"\"hi\"\", she said\" ,8,p\r\n"
                               "no,\"?\",?,\"\"\n"
                               "no,\"\"\"\",\"\",\"q,r;\"\"\"\n"
                               "no,5\" tape,9,\"\"\"\"\n"
                               "yes,\"a,b\"\t,1e1,\" p ;;q,r\"";
    const int64_t ids[6] = {1, 2, 0, 3, 4, 1}, lengths[6] = {2, 1, 0, 2, 1, 2};
    const float x[6] = {7, 8, -1, -1, 9, 10}, y[6] = {1, 0, 0, 0, 0, 1};
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(&s, columns, text, &b);
    REQUIRE(r);
    REQUIRE(b.size == 6);
    CHECK_BITS(b.dense.data, x, sizeof x);
    CHECK_BITS(b.label.data, y, sizeof y);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(bag_id(&b, 0, i, 0), ids[i]);
        CHECK_INT(bag_length(&b, 1, i), lengths[i]);
    }
    CHECK_INT(bag_id(&b, 1, 0, 1), 2); /* q,r */
    CHECK_INT(bag_id(&b, 1, 3, 0), 2);
    CHECK_INT(bag_id(&b, 1, 3, 1), 3); /* a quote */
    CHECK_INT(bag_id(&b, 1, 4, 0), 3);
    CHECK_INT(bag_id(&b, 1, 5, 1), 2);
    neo_reader_close(r);
    neo_schema_destroy(s);
    s = NULL; /* the words themselves, as hashes */
    r = read_one(&s, "quote '\ndelimiter ::\nname category rows=1000000 hash\ny label\n",
                 "'it''s :: a :''':: 1\n'':: 0\n' c':: 1\n", &b);
    REQUIRE(r);
    CHECK_INT(bag_id(&b, 0, 0, 0), 1 + (int64_t)(neo_hash("it's :: a :'") % 999999));
    CHECK_INT(bag_id(&b, 0, 1, 0), 0);
    CHECK_INT(bag_id(&b, 0, 2, 0), 1 + (int64_t)(neo_hash(" c") % 999999));
    neo_reader_close(r);
    neo_schema_destroy(s);
}
static void quoted_mistakes(void) {
    static const struct {
        const char *text, *message;
    } grid[] = {
        {"1,\"a\n", ":2:3: the line ends inside quotes that begin here"},
        {"1,\"a\"\"\n", ":2:3: the line ends inside quotes that begin here"},
        {"1,\"\n", ":2:3: the line ends inside quotes that begin here"},
        {"1,\"a\"b\n", ":2:6: text follows the closing quote"},
        {"1,\"a\" \"b\"\n", ":2:6: text follows the closing quote"},
        {"\"x\",a\n", ":2:2: y: expected a number, found 'x'"},
        {"1,\"a,b\",c\n", ":2:1: 3 fields, expected 2"},
    };
    const char *path = tmp_path("quoted.csv");
    char text[256];
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_schema_parse(ctx, "quote \"\ny label\nc category hash rows=9\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 8);
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        snprintf(text, sizeof text, "1,\"b\"\n%s0,c\n", grid[i].text);
        write_text(path, text);
        d.skip_bad_lines = 0;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, grid[i].message);
        neo_reader_close(r);
        d.skip_bad_lines = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        REQUIRE_OK(neo_reader_next(r, &b));
        CHECK_INT(b.size, 2);
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
    static const char *const bad[] = {"quote\na label\n", "quote ''\na label\n",
                                      "quote ,\na label\n"};
    for (int i = 0; i < 3; i++)
        CHECK_ERR(neo_schema_parse(ctx, bad[i], &s), NEO_ERR_FORMAT,
                  "expected one character that is not");
    CHECK_ERR(neo_schema_parse(ctx, "quote '\ndelimiter :'\na label\n", &s), NEO_ERR_FORMAT,
              "columns:2:11: the delimiter holds the quote");
    write_text(path, "\"y\",\"Full \"\"Name\"\"\"\n1,z\n"); /* names in quotes */
    REQUIRE_OK(neo_schema_parse(ctx, "quote \"\nheader\ny label\nName category hash rows=9\n", &s));
    d = reader_desc(s, &path, 1, 8);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
              ":1:1: the header has no column 'Name'; it has 'y', 'Full \"Name\"'");
    neo_reader_close(r);
    write_text(path, "\"y\" , \"Name\",\"z\n1,z,1\n");
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, ":1:14: the line ends inside quotes");
    neo_reader_close(r);
    write_text(path, "\"y\" , \"Name\",\"z\"\n1,z,1\n");
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* ---- headers ---- */
/* Two columns of three, or more, found by name: files of one epoch may have them in other orders,
   and other columns beside them. */
static void header_names(void) {
    const char *paths[3] = {tmp_path("head-a.csv"), tmp_path("head-b.csv"), tmp_path("head-c.csv")};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    write_text(paths[0], "\xEF\xBB\xBF" "y,colour, Job Title ,x\r\n1,red,cook,5\n0,blue,clerk,6\n");
    write_text(paths[1], "id,x,Job Title,colour,y,id\n17,7,cook,green,1,8\n");
    write_text(paths[2], "x,Job Title,colour\n8,clerk,blue\n");
    REQUIRE_OK(neo_schema_parse(ctx, "header\ncolour category\nx dense\ny label\n"
                                     "\"Job Title\" category cross colour rows=90\n", &s));
    CHECK(strcmp(neo_schema_feature(s, 1).name, "Job Title") == 0);
    CHECK(strcmp(neo_schema_feature(s, 2).name, "Job Title_x_colour") == 0);
    REQUIRE_OK(neo_schema_fit(s, paths, 2, 0));
    CHECK_INT(neo_schema_feature(s, 0).rows, 4);
    for (int threads = 1; threads <= 3; threads++) {
        neo_reader_desc d = reader_desc(s, paths, 3, 8);
        const float x[4] = {5, 6, 7, 8}, y[4] = {1, 0, 1, 0};
        const int64_t colour[4] = {1, 2, 3, 2}, job[4] = {1, 2, 1, 2};
        d.threads = threads;
        d.unlabeled = 1;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        REQUIRE_OK(neo_reader_next(r, &b));
        REQUIRE(b.size == 4);
        CHECK_BITS(b.dense.data, x, sizeof x);
        CHECK_BITS(b.label.data, y, sizeof y);
        for (int i = 0; i < 4; i++) {
            CHECK_INT(bag_id(&b, 0, i, 0), colour[i]);
            CHECK_INT(bag_id(&b, 1, i, 0), job[i]);
        }
        neo_reader_close(r);
        d.unlabeled = 0; /* then every file needs the label */
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_ERR(
            neo_reader_next(r, &b), NEO_ERR_FORMAT,
            "head-c.csv:1:1: the header has no column 'y'; it has 'x', 'Job Title', 'colour'");
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
}
static void header_mistakes(void) {
    static const struct {
        const char *text, *message;
    } grid[] = {
        {"a,b\n1,2\n", ":1:1: the header has no column 'x'; it has 'a', 'b'"},
        {"y,x,z,x\n1,2,3,4\n", ":1:7: the header has column 'x' twice"},
        {"1,2\n", ":1:1: the header has no column 'x'"},
        {"x,y,z\n1,1,1\n2,0\n", ":3:1: 2 fields, the header has 3"},
        {"x,y\n1,1,1\n", ":2:1: 3 fields, the header has 2"},
        {"x,y\n1,q\n", ":2:3: y: expected a number, found 'q'"},
        {"x,y\n", "head.csv: holds no sample"},
        {"x,y", "head.csv: holds no sample"},
        {"", "head.csv: holds no sample"},
        {"\nx,y\n", ":1:1: the header has no column 'x'; it has ''"},
        {"x;y\n", "it has 'x;y' (one field: the setting delimiter says what stands between two)"},
        {"a234567890123456789012345678901234567890,b234567890123456789012345678901234567890,"
         "c234567890123456789012345678901234567890,d234567890123456789012345678901234567890,"
         "e234567890123456789012345678901234567890\n", "', ..."},
    };
    const char *path = tmp_path("head.csv");
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_schema_parse(ctx, "header\nx dense\ny label\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 8);
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        write_text(path, grid[i].text);
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, grid[i].message);
        neo_reader_close(r);
    }
    char *text = malloc(300000);
    REQUIRE(text);
    memset(text, 'x', 300000);
    memcpy(text + 70000, "\n1,2\n", 6);
    write_bytes(path, text, 70006);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, ":1:65537: the line is over 65536 bytes");
    neo_reader_close(r);
    write_bytes(path, text + 100000, 200000);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT, ":1:65537: the line is over 65536 bytes");
    neo_reader_close(r);
    memset(text, ',', 5000);
    text[5000] = '\n';
    write_bytes(path, text, 5001);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
              ":1:1: the header names 5001 columns, more than 4096");
    neo_reader_close(r);
    free(text);
    neo_schema_destroy(s);
    CHECK_ERR(neo_schema_parse(ctx, "\"a label\n", &s), NEO_ERR_FORMAT,
              "columns:1:1: expected \"name\"");
    CHECK_ERR(neo_schema_parse(ctx, "\"\" label\n", &s), NEO_ERR_FORMAT,
              "columns:1:1: expected \"name\"");
    CHECK_ERR(neo_schema_parse(ctx, "\"a\"label\n", &s), NEO_ERR_FORMAT,
              "columns:1:1: expected \"name\"");
    REQUIRE_OK(neo_schema_parse(ctx, "\"header\" label\n\"delimiter\" category hash rows=9\n", &s));
    neo_schema_destroy(s);
}
/* A position in the middle of a file, in order and shuffled: the header is read again; behind
 * skipped lines too, and from a file of many blocks. */
static void header_resumed(void) {
    static uint64_t want[256], got[256];
    const char *path = tmp_path("head-long.csv");
    neo_schema *s = NULL;
    neo_reader *r = NULL, *again = NULL;
    neo_batch b;
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    fprintf(f, "nothing\nnor here\nunused,x,y\n");
    for (int i = 0; i < 30000; i++) fprintf(f, "something long enough %d,%d,%d\n", i, i * 3, i % 2);
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "skip-lines 2\nheader\ny label\nx dense\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 250);
    for (int window = 0; window < 2; window++) {
        d.shuffle_window = window ? 4000 : 0;
        d.threads = 2;
        REQUIRE_OK(neo_reader_open(ctx, &d, &r));
        CHECK_INT(read_hashes(r, want, 256), 120);
        REQUIRE_OK(neo_reader_epoch(r, 0));
        for (int i = 0; i < 100; i++) {
            REQUIRE_OK(neo_reader_next(r, &b));
            if (i % 33) continue;
            neo_position at = neo_reader_position(r);
            REQUIRE_OK(neo_reader_open(ctx, &d, &again));
            REQUIRE_OK(neo_reader_seek(again, &at));
            CHECK_INT(read_hashes(again, got, 256), 119 - i);
            CHECK_BITS(want + i + 1, got, (size_t)(119 - i) * 8);
            neo_reader_close(again);
        }
        neo_reader_close(r);
    }
    neo_schema_destroy(s);
}

/* A header behind lines that fill many blocks, one of them longer than a block: read from the start
   and from a position. */
static void header_behind_long_lines(void) {
    static uint64_t want[8], got[8];
    const char *path = tmp_path("head-far.csv");
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 5000; i++) fprintf(f, "line %d of a preface, which holds no sample\n", i);
    for (int i = 0; i < 300000; i++) fputc('"', f);
    fprintf(f, "\nx,z,y\n");
    for (int i = 0; i < 1000; i++) fprintf(f, "%d,no,%d\n", i, i % 2);
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "skip-lines 5001\nheader\ny label\nx dense\n", &s));
    neo_reader_desc d = reader_desc(s, &path, 1, 256);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    CHECK(b.size == 256 && ((const float *)b.dense.data)[255] == 255.0f);
    REQUIRE_OK(neo_reader_next(r, &b));
    REQUIRE_OK(neo_reader_next(r, &b));
    neo_position at = neo_reader_position(r);
    CHECK_INT(read_hashes(r, want, 8), 1);
    REQUIRE_OK(neo_reader_seek(r, &at));
    CHECK_INT(read_hashes(r, got, 8), 1);
    CHECK_BITS(want, got, sizeof *got);
    at.word[3] = 7; /* among the lines that hold no sample */
    REQUIRE_OK(neo_reader_seek(r, &at));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_MISMATCH,
              "head-far.csv: the saved position, at byte 7, is not behind the header");
    neo_reader_close(r);
    neo_schema_destroy(s);
    REQUIRE_OK(neo_schema_parse(ctx, "skip-lines 5001\nheader\ny label\nw dense\n", &s));
    d.schema = s;
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    CHECK_ERR(neo_reader_next(r, &b), NEO_ERR_FORMAT,
              "head-far.csv:5002:1: the header has no column 'w'; it has 'x', 'z', 'y'");
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* The settings that a description lacks are named where the data shows it. */
static void settings_that_lack(void) {
    static const struct {
        const char *columns, *text, *message;
    } grid[] = {
        {"y label\nx dense\n", "y,x\n1,2\n", ":1:1: every field is the name of its column (a line "
                                              "of names needs the setting: header)"},
        {"c skip\nx dense\n", "Id,Age\n1,2\n", ":1:4: x: expected a number, found 'Age' (a line of "
                                                "names needs the setting: header)"},
        {"y label\nx dense\n", "1,2\n1,Age\n", ":2:3: x: expected a number, found 'Age'"},
        {"skip-lines 1\ny label\nx dense\n", "title\nz,2\n",
         "found 'z' (words need positive=) (a line of names needs"},
        {"header\ny label\nx dense\n", "y,x\n1,Age\n", ":2:3: x: expected a number, found 'Age'"},
        {"c category\ny label\n", "a,1\n\"b, c\",1\n",
         ":2:1: 3 fields, expected 2 (fields in quotes need the setting: quote \")"},
        {"y label\nx dense\n", "1,\"2\"\n",
         "found '\"2\"' (fields in quotes need the setting: quote \") (a line of names needs"},
        {"y label\nx dense\n", "1,2\r0,3\r",
         ":1:1: 3 fields, expected 2 (it holds \\r: if that alone ends lines, use tr "},
        {"header\ny label\nx dense\n", "y,z\r1,2\r", "it has 'y', 'z?1', '2' (it holds \\r: "},
        {"y label\nx dense\n", "0,1\n1;2\n", ":2:1: 1 field, expected 2; the delimiter is ,"},
        {"delimiter tab\ny label\nx dense\n", "1 2\n", " expected 2; the delimiter is tab"},
        {"quote \"\nc category\ny label\n", "\"a\";1\n",
         ":1:4: text follows the closing quote; the delimiter is ,"},
        {"header\ny label\nx dense\n", "\"y\",\"x\"\n1,2\n",
         "it has '\"y\"', '\"x\"' (fields in quotes need the setting: quote \")"},
        {"y label\nx dense\n", "1,1\nyes,2\n",
         ":2:1: y: expected a number, found 'yes' (words need positive=)"},
        {"delimiter ;\ny label\nx dense\n", "1;3,5\n",
         "x: expected a number, found '3,5', with a comma, not a point"},
        {"quote \"\ny label\nx dense\n", "0,1\n1,\"a\n b\"\n",
         "ends inside quotes that begin here (a field cannot go on in the next line)"},
    };
    const char *path = tmp_path("lack.csv");
    neo_reader *r = NULL;
    neo_batch b;
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        neo_schema *s = NULL;
        write_text(path, grid[i].text);
        REQUIRE_OK(neo_schema_parse(ctx, grid[i].columns, &s));
        neo_status status = neo_schema_fit(s, &path, 1, 0);
        if (neo_schema_is_fitted(s)) {
            neo_reader_desc d = reader_desc(s, &path, 1, 8);
            d.unlabeled = i == 1;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            status = neo_reader_next(r, &b);
            neo_reader_close(r);
        }
        CHECK(status == NEO_ERR_FORMAT);
        const char *found = strstr(neo_last_error(), grid[i].message);
        if (!found) printf("  found: %s\n", neo_last_error());
        CHECK(found && ((i != 2 && i != 4) || strlen(found) == strlen(grid[i].message)));
        neo_schema_destroy(s);
    }
}

/* Dictionaries number words in order of first sight over all files, and a bad
 * line adds none. */
static void fit_order(void) {
    const char *paths[2] = {tmp_path("fit-a.csv"), tmp_path("fit-b.csv")};
    neo_schema *s = NULL;
    write_text(paths[0], "1,red\n0,blue\nbad,green\n1,red\n");
    write_text(paths[1], "0,black\n0,blue\n");
    REQUIRE_OK(neo_schema_parse(ctx, "y label\ncolour category\n", &s));
    CHECK_ERR(neo_schema_fit(s, paths, 2, 0), NEO_ERR_FORMAT,
              "fit-a.csv:3:1: y: expected a number, found 'bad'");
    CHECK(!neo_schema_is_fitted(s));
    neo_reader *r = NULL;
    neo_reader_desc d = reader_desc(s, paths + 1, 1, 4);
    CHECK_ERR(neo_reader_open(ctx, &d, &r), NEO_ERR_STATE, "neo_schema_fit");
    REQUIRE_OK(neo_schema_fit(s, paths, 2, 1));
    CHECK_INT(neo_schema_feature(s, 0).rows, 4);
    neo_batch b;
    r = read_one(&s, NULL, "0,green\n0,black\n0,blue\n0,red\n", &b);
    REQUIRE(r);
    const int64_t want[4] = {0, 3, 2, 1};
    for (int i = 0; i < 4; i++) CHECK_INT(bag_id(&b, 0, i, 0), want[i]);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

/* ---- rare words ---- */
/* neo_schema_feature of a dictionary against what is expected. */
static void check_words(const neo_schema *s, int feature, int64_t rows, int64_t words, int64_t rare,
                        int64_t dropped) {
    neo_feature f = neo_schema_feature(s, feature);
    CHECK_INT(f.rows, rows);
    CHECK_INT(f.words, words);
    CHECK_INT(f.rare, rare);
    CHECK_INT(f.dropped, dropped);
}
static const char rare_columns[] =
    "y label\nc category min_count=2\nd category min_count=3 rows=3\n"
    "e category rows=3\nt list sep=; min_count=2\n";
static const char rare_text[] = "1,rare,p,p,a;b;a\n"
                                "0,red,q,q,a\n"
                                "0,blue,p,r,c;d\n"
                                "1,red,p,r,\n"
                                "1,,q,,d;e\n"
                                "0,blue,q,p,c\n";
static void rare_words(void) {
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(&s, rare_columns, rare_text, &b);
    REQUIRE(r);
    CHECK_INT(neo_schema_samples(s), 6);
    check_words(s, 0, 4, 2, 1, 0); /* 0, the rare words' row, red, blue */
    check_words(s, 1, 3, 1, 0, 3); /* p; no row is left for q */
    check_words(s, 2, 3, 2, 0, 2); /* p, q; r came twice */
    check_words(s, 3, 5, 3, 2, 0); /* a, c, d */
    const int64_t c[6] = {1, 2, 3, 2, 0, 3}, d[6] = {2, 1, 2, 2, 1, 1}, e[6] = {1, 2, 0, 0, 0, 1};
    const int64_t lengths[6] = {3, 1, 2, 0, 2, 1};
    for (int i = 0; i < 6; i++) {
        CHECK_INT(bag_id(&b, 0, i, 0), c[i]);
        CHECK_INT(bag_id(&b, 1, i, 0), d[i]);
        CHECK_INT(bag_id(&b, 2, i, 0), e[i]);
        CHECK_INT(bag_length(&b, 3, i), lengths[i]);
    }
    const int64_t t[9] = {2, 1, 2, 2, 3, 4, 4, 1, 3};
    for (int k = 0; k < 9; k++) CHECK_INT(bag_id(&b, 3, 0, k), t[k]);
    neo_reader_close(r);
    r = read_one(&s, NULL, "0,green,q,z,zz;a\n", &b); /* words never seen: the rare words' row */
    REQUIRE(r);
    CHECK_INT(bag_id(&b, 0, 0, 0), 1);
    CHECK_INT(bag_id(&b, 2, 0, 0), 0);
    CHECK_INT(bag_id(&b, 3, 0, 0), 1);
    CHECK_INT(bag_id(&b, 3, 0, 1), 2);
    neo_reader_close(r);
    neo_schema_destroy(s);
    CHECK_ERR(neo_schema_parse(ctx, "a category min_count=1\n", &s), NEO_ERR_FORMAT,
              "columns:1:12: expected a whole number from 2 to 999999999999999, found '1'");
    CHECK_ERR(neo_schema_parse(ctx, "a category hash rows=9 min_count=2\n", &s), NEO_ERR_FORMAT,
              "columns:1:3: min_count= needs a dictionary");
}
/* Against a plain count of words: many of them, over two files. */
static void rare_words_counted(void) {
    enum { WORDS = 500, LINES = 6000, LEAST = 12 };
    static int count[WORDS], word[LINES], id_of[WORDS];
    const char *paths[2] = {tmp_path("rare-a.csv"), tmp_path("rare-b.csv")};
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    uint32_t state = 1;
    FILE *f = NULL;
    int next = 2, kept = 0, seen = 0;
    for (int i = 0; i < LINES; i++) {
        state = state * 1664525u + 1013904223u;
        word[i] = (int)((state >> 16) % WORDS * ((state >> 8) % WORDS) / WORDS);
        count[word[i]]++;
        if (i % (LINES / 2) == 0) f = fopen(paths[i / (LINES / 2)], "wb");
        REQUIRE(f);
        fprintf(f, "%d,word%d\n", i % 2, word[i]);
        if (i % (LINES / 2) == LINES / 2 - 1) fclose(f);
    }
    for (int i = 0; i < LINES; i++)
        if (id_of[word[i]] == 0) id_of[word[i]] = count[word[i]] < LEAST ? 1 : next++;
    for (int w = 0; w < WORDS; w++) kept += count[w] >= LEAST, seen += count[w] > 0;
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nc category min_count=12\n", &s));
    REQUIRE_OK(neo_schema_fit(s, paths, 2, 0));
    CHECK_INT(neo_schema_samples(s), LINES);
    CHECK(kept > 50 && kept < seen - 50);
    check_words(s, 0, kept + 2, kept, seen - kept, 0);
    neo_reader_desc d = reader_desc(s, paths, 2, LINES);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    for (int i = 0; i < LINES; i++) CHECK_INT(bag_id(&b, 0, i, 0), id_of[word[i]]);
    neo_reader_close(r);
    neo_schema_destroy(s);
}
/* Saved with the schema, and loaded into one of the same description only. */
static void rare_words_saved(void) {
    neo_schema *s = NULL, *again = NULL, *other = NULL;
    neo_state *state = NULL, *load = NULL;
    neo_batch b;
    int64_t step = 0;
    float w[2] = {1, 2};
    char dir[1024];
    snprintf(dir, sizeof dir, "%s-%d", tmp_path("rare-state"), (int)(neo_time_ns() % 1000000));
    neo_save_desc save_desc;
    neo_load_desc load_desc;
    memset(&save_desc, 0, sizeof save_desc);
    memset(&load_desc, 0, sizeof load_desc);
    save_desc.dir = load_desc.dir = dir;
    load_desc.schema_only = 1;
    neo_reader *r = read_one(&s, rare_columns, rare_text, &b);
    REQUIRE(r);
    neo_reader_close(r);
    REQUIRE_OK(neo_state_create(ctx, &state));
    REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 2)));
    REQUIRE_OK(neo_state_add_schema(state, s));
    REQUIRE_OK(neo_save(ctx, &save_desc, state));
    REQUIRE_OK(neo_schema_parse(ctx, rare_columns, &again));
    REQUIRE_OK(neo_state_create(ctx, &load));
    REQUIRE_OK(neo_state_add_schema(load, again));
    REQUIRE_OK(neo_load(ctx, &load_desc, load, &step));
    CHECK_INT(neo_schema_samples(again), 6);
    check_words(again, 0, 4, 2, 1, 0);
    check_words(again, 1, 3, 1, 0, 3);
    check_words(again, 3, 5, 3, 2, 0);
    r = read_one(&again, NULL, "0,blue,p,r,new;d\n", &b);
    REQUIRE(r);
    CHECK_INT(bag_id(&b, 0, 0, 0), 3);
    CHECK_INT(bag_id(&b, 1, 0, 0), 2);
    CHECK_INT(bag_id(&b, 2, 0, 0), 0);
    CHECK_INT(bag_id(&b, 3, 0, 0), 1);
    CHECK_INT(bag_id(&b, 3, 0, 1), 4);
    neo_reader_close(r);
    REQUIRE_OK(neo_load(ctx, &load_desc, load, &step)); /* into what has the same words */
    neo_state_destroy(load);
    REQUIRE_OK(neo_schema_parse(ctx,
                                "y label\nc category min_count=3\nd category min_count=3 rows=3\n"
                                "e category rows=3\nt list sep=; min_count=2\n",
                                &other));
    REQUIRE_OK(neo_state_create(ctx, &load));
    REQUIRE_OK(neo_state_add_schema(load, other));
    CHECK_ERR(neo_load(ctx, &load_desc, load, &step), NEO_ERR_MISMATCH,
              "the saved dictionary of feature 'c' has min_count=2 (0: none), the schema has 3");
    CHECK(!neo_schema_is_fitted(other));
    neo_state_destroy(load);
    neo_state_destroy(state);
    neo_schema_destroy(s);
    neo_schema_destroy(again);
    neo_schema_destroy(other);
}

/* ---- weights ---- */
static float bag_weight(const neo_batch *b, int feature, int64_t sample, int64_t k) {
    return b->sparse.weights[b->sparse.offsets[feature * b->sparse.batch + sample] + k];
}
static void weighted_lists(void) {
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(
        &s, "y label\nc category\nt list sep=| weight=: min_count=2\nu list sep=;\n",
        "1,x,a:0.5|b,p;q\n0,y:2,,\n1,x, b : -1.5 |a| rare:3|c:d:1e1,q:7\n0,x,c:d:0,r\n", &b);
    REQUIRE(r);
    REQUIRE(b.sparse.weights && neo_schema_is_weighted(s));
    CHECK_INT(neo_schema_feature(s, 1).words, 3); /* a, b, c:d */
    const int64_t t[4][4] = {{2, 3}, {0}, {3, 2, 1, 4}, {4}}, length[4] = {2, 0, 4, 1};
    const float weight[4][4] = {{0.5f, 1}, {0}, {-1.5f, 1, 3, 10}, {0}};
    for (int i = 0; i < 4; i++) {
        CHECK_INT(bag_length(&b, 1, i), length[i]);
        for (int k = 0; k < length[i]; k++) {
            CHECK_INT(bag_id(&b, 1, i, k), t[i][k]);
            CHECK(bag_weight(&b, 1, i, k) == weight[i][k]);
        }
        CHECK(bag_weight(&b, 0, i, 0) == 1.0f);
        for (int k = 0; k < bag_length(&b, 2, i); k++) CHECK(bag_weight(&b, 2, i, k) == 1.0f);
    }
    neo_reader_close(r);
    static const struct {
        const char *line, *message;
    } grid[] = {
        {"1,x,a:0.5|b:,p\n", ":1:13: t: expected a number, found ''"},
        {"1,x,a:x|b,p\n", ":1:7: t: expected a number, found 'x'"},
        {"1,x,a:1e99|b,p\n", ":1:7: t: expected a number within the range of f32, found '1e99'"},
        {"1,x,a|:2,p\n", ":1:7: t: expected a word before the weight '2'"},
    };
    for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
        CHECK(read_one(&s, NULL, grid[i].line, &b) == NULL);
        CHECK(strstr(neo_last_error(), grid[i].message));
    }
    neo_schema_destroy(s);
}
/* normalize: weights of a bag sum to 1; those of zeros stay, and what has no sum is a bad line. */
static void normalized_lists(void) {
    neo_schema *s = NULL;
    neo_batch b;
    neo_reader *r = read_one(
        &s, "y label\nc category\nt list sep=| weight=: normalize\nu list sep=; weight=:\n",
        "1,x,a:0.5|b:1.5,p:3\n0,y,,\n1,x,a|b|c,q:2\n0,x,a:0|b:0,r\n1,x,a:-1|b:3,r:4\n", &b);
    REQUIRE(r);
    const float t[5][3] = {{0.25f, 0.75f}, {0}, {1.0f / 3, 1.0f / 3, 1.0f / 3}, {0}, {-0.5f, 1.5f}};
    const float u[5] = {3, 0, 2, 1, 4};
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < bag_length(&b, 1, i); k++) CHECK(bag_weight(&b, 1, i, k) == t[i][k]);
        if (i != 1) CHECK(bag_weight(&b, 2, i, 0) == u[i]);
        CHECK(bag_weight(&b, 0, i, 0) == 1.0f);
    }
    neo_reader_close(r);
    CHECK(read_one(&s, NULL, "1,x,p,\n1,x,a:1|b:-1,r\n", &b) == NULL);
    CHECK(strstr(neo_last_error(),
                 ":2:5: t: expected weights whose sum is not 0, found 'a:1|b:-1'"));
    neo_schema_destroy(s);
}
/* Shuffled, on 1 to 3 ranks and for any threads: each id keeps its weight, and bags sum by it. */
static void weights_travel(void) {
    const char *path = tmp_path("weights.csv");
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 6);
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 3000; i++) {
        fprintf(f, "%d,w%d,", i % 2, i % 11);
        for (int k = 0; k < i % 5; k++)
            fprintf(f, "%s%d:%d", k ? "|" : "", (i * 7 + k) % 40, (i * 7 + k) % 40 + 3);
        fprintf(f, "\n");
    }
    fclose(f);
    REQUIRE_OK(neo_schema_parse(ctx, "y label\nc category\nt list sep=| weight=:\n", &s));
    REQUIRE_OK(neo_schema_fit(s, &path, 1, 0));
    int64_t id_of[40], rows = neo_schema_feature(s, 1).rows; /* in order of first sight */
    memset(id_of, 0, sizeof id_of);
    for (int i = 0, next = 1; i < 3000; i++)
        for (int k = 0; k < i % 5; k++)
            if (!id_of[(i * 7 + k) % 40]) id_of[(i * 7 + k) % 40] = next++;
    float want_weight[64];
    for (int w = 0; w < 40; w++) want_weight[id_of[w]] = (float)(w + 3);
    CHECK_INT(rows, 41);
    for (int variant = 0; variant < 6; variant++) {
        int ranks = 1 + variant % 3;
        int64_t ids = 0;
        for (int rank = 0; rank < ranks; rank++) {
            neo_reader_desc d = reader_desc(s, &path, 1, 100);
            d.rank = rank;
            d.world_size = ranks;
            d.threads = 1 + variant;
            d.shuffle_window = variant < 3 ? 0 : 700;
            REQUIRE_OK(neo_reader_open(ctx, &d, &r));
            while (neo_reader_next(r, &b) == NEO_OK) {
                for (int64_t i = 0; i < b.size; i++) {
                    CHECK(bag_weight(&b, 0, i, 0) == 1.0f);
                    for (int64_t k = 0; k < bag_length(&b, 1, i); k++, ids++)
                        CHECK(bag_weight(&b, 1, i, k) == want_weight[bag_id(&b, 1, i, k)]);
                }
            }
            neo_reader_close(r);
        }
        CHECK_INT(ids, 6000);
    }
    neo_schema_destroy(s);
    neo_ctx_destroy(ctx);
}

/* ---- schemas without dense numbers, or without sparse features ---- */
/* Numbers of a batch that show whether every sample came: sums of labels, of dense numbers, of
   ids. */
static void add_sums(const neo_batch *b, double sum[4]) {
    int64_t bags = b->sparse.batch * b->sparse.feature_count;
    sum[0] += (double)b->size;
    for (int64_t i = 0; i < b->size; i++) sum[1] += (double)((const float *)b->label.data)[i];
    for (int64_t i = 0; i < b->dense.shape[0] * b->dense.shape[1]; i++)
        sum[2] += (double)((const float *)b->dense.data)[i];
    for (int64_t k = b->sparse.offsets[0]; k < b->sparse.offsets[bags]; k++)
        sum[3] += (double)((const int64_t *)b->sparse.ids)[k];
}
static void one_kind_only(void) {
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 4); /* leaves for two ranks */
    static const struct {
        const char *columns;
        int dense, features;
        double sum[4];
    } grid[] = {
        {"y label\nx dense\nc skip\nt skip\n", 1, 0, {1000, 500, 499500, 0}},
        {"y label\nx skip\nc category\nt skip\n", 0, 1, {1000, 500, 0, 4000}},
        {"y label\nx skip\nc skip\nt list sep=;\n", 0, 1, {1000, 500, 0, 3000}},
        {"header\ny label\nx dense\n", 1, 0, {1000, 500, 499500, 0}},
        {"header\ny label\n", 0, 0, {1000, 500, 0, 0}},
    };
    const char *path = tmp_path("kinds.csv");
    char dir[1024];
    for (size_t k = 0; k < sizeof grid / sizeof grid[0]; k++) {
        int header = grid[k].columns[0] == 'h';
        neo_schema *s = NULL, *again = NULL;
        neo_state *state = NULL, *load = NULL;
        int64_t step = 0;
        float w[2] = {1, 2};
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        if (header) fprintf(f, "y,x,c,t\n");
        for (int i = 0; i < 1000; i++) fprintf(f, "%d,%d,w%d,a;b\n", i % 2, i, i % 7);
        fclose(f);
        REQUIRE_OK(neo_schema_parse(ctx, grid[k].columns, &s));
        REQUIRE_OK(neo_schema_fit(s, &path, 1, 0));
        CHECK_INT(neo_schema_dense_count(s), grid[k].dense);
        CHECK_INT(neo_schema_feature_count(s), grid[k].features);
        for (int variant = 0; variant < 4; variant++) {
            int ranks = variant & 1 ? 2 : 1;
            double sum[4] = {0, 0, 0, 0};
            for (int rank = 0; rank < ranks; rank++) {
                neo_reader_desc d = reader_desc(s, &path, 1, 64);
                neo_reader *r = NULL;
                neo_batch b;
                d.shuffle_window = variant & 2 ? 300 : 0;
                d.rank = rank;
                d.world_size = ranks;
                d.threads = 2;
                REQUIRE_OK(neo_reader_open(ctx, &d, &r));
                while (neo_reader_next(r, &b) == NEO_OK) {
                    CHECK_INT(b.dense.shape[1], grid[k].dense);
                    CHECK_INT(b.sparse.feature_count, grid[k].features);
                    add_sums(&b, sum);
                }
                neo_reader_close(r);
            }
            for (int i = 0; i < 4; i++) {
                if (k == 1 && i == 3) CHECK(sum[i] > 3900 && sum[i] < 4100); /* ids 1 to 7 */
                else CHECK(sum[i] == grid[k].sum[i]);
            }
        }
        snprintf(dir, sizeof dir, "%s-%d", tmp_path("kinds-state"), (int)(neo_time_ns() % 1000000));
        neo_save_desc save_desc;
        neo_load_desc load_desc;
        memset(&save_desc, 0, sizeof save_desc);
        memset(&load_desc, 0, sizeof load_desc);
        save_desc.dir = load_desc.dir = dir;
        REQUIRE_OK(neo_state_create(ctx, &state));
        REQUIRE_OK(neo_state_create(ctx, &load));
        REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 2)));
        REQUIRE_OK(neo_state_add(load, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 2)));
        REQUIRE_OK(neo_schema_parse(ctx, grid[k].columns, &again));
        REQUIRE_OK(neo_state_add_schema(state, s));
        REQUIRE_OK(neo_state_add_schema(load, again));
        REQUIRE_OK(neo_save(ctx, &save_desc, state));
        REQUIRE_OK(neo_load(ctx, &load_desc, load, &step));
        CHECK(neo_schema_is_fitted(again));
        neo_state_destroy(state);
        neo_state_destroy(load);
        neo_schema_destroy(s);
        neo_schema_destroy(again);
    }
    neo_ctx_destroy(ctx);
}

static void criteo_dictionary(void) {
    const char *path = tmp_path("dict.tsv");
    char line[1024];
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    for (int i = 0; i < 4; i++) {
        snprintf(line, sizeof line, "1\t\t\t\t\t\t\t\t\t\t\t\t\t\t%s",
                 i == 2   ? ""
                 : i == 3 ? "AB"
                 : i      ? "ffffffff"
                          : "000000ab");
        fprintf(f, "%s\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\n", line);
    }
    fclose(f);
    neo_schema *s = NULL;
    neo_reader *r = NULL;
    neo_batch b;
    REQUIRE_OK(neo_schema_criteo(ctx, NEO_IDS_DICTIONARY, 100, NULL, &s));
    REQUIRE_OK(neo_schema_fit(s, &path, 1, 0));
    CHECK_INT(neo_schema_feature(s, 0).rows, 3);
    CHECK_INT(neo_schema_feature(s, 1).rows, 1);
    neo_reader_desc d = reader_desc(s, &path, 1, 10);
    REQUIRE_OK(neo_reader_open(ctx, &d, &r));
    REQUIRE_OK(neo_reader_next(r, &b));
    const int64_t want[4] = {1, 2, 0, 1}; /* a word is its number: ab, AB and 000000ab are one */
    for (int i = 0; i < 4; i++) CHECK_INT(bag_id(&b, 0, i, 0), want[i]);
    neo_reader_close(r);
    neo_schema_destroy(s);
}

int main(void) {
    ctx = test_ctx(2, NEO_ISA_BEST, 1);
    RUN(criteo_sizes);
    RUN(description_mistakes);
    RUN(quoted_words_of_descriptions);
    RUN(large_descriptions);
    RUN(columns_of_every_kind);
    RUN(lists_and_long_delimiters);
    RUN(tabs_spaces_and_numbers);
    RUN(quoted_fields);
    RUN(quoted_mistakes);
    RUN(header_names);
    RUN(header_mistakes);
    RUN(header_resumed);
    RUN(header_behind_long_lines);
    RUN(settings_that_lack);
    RUN(fit_order);
    RUN(rare_words);
    RUN(rare_words_counted);
    RUN(rare_words_saved);
    RUN(weighted_lists);
    RUN(normalized_lists);
    RUN(weights_travel);
    RUN(one_kind_only);
    RUN(criteo_dictionary);
    size_t bytes = neo_ctx_memory(ctx).bytes;
    neo_ctx *fresh = test_ctx(2, NEO_ISA_BEST, 1);
    if (bytes != neo_ctx_memory(fresh).bytes) {
        printf("FAILED leak: %zu bytes remain\n", bytes - neo_ctx_memory(fresh).bytes);
        test_failed++;
    }
    neo_ctx_destroy(fresh);
    neo_ctx_destroy(ctx);
    return test_end("data/schema");
}
