/* columns.c: column descriptions. One that is accepted is used on a small
   text, which must keep its promises about shapes, and its dictionaries must
   survive being saved and loaded. */

static const fuzz_seed columns_seeds[] = {
    FUZZ_TEXT("missing ?\ncomment |\nage dense shift=38.6 scale=0.07 "
              "missing=-1 bucket 20,30,40.5\n"
              "job category cross age rows=50\ngain dense log category\nincome "
              "label positive=>50K,>50K.\n"),
    FUZZ_TEXT("delimiter ::\nskip-lines 1\nid category\ngenres list sep=| "
              "rows=20\nrating label # stars\n"),
    FUZZ_TEXT("# nothing\nheader\ndelimiter tab\ny label\r\nx dense\nz skip\n"),
    FUZZ_TEXT("quote \"\nheader\nb label\n\"a b\" category cross b rows=9 # x\nc list sep=; "
              "min_count=2\n"),
    FUZZ_TEXT("comment \"#\"\nmissing \"# 1\" # x\n\"a #1\" cross \"a #1\" rows=9 # \"\n"
              "c d list\n"),
    FUZZ_TEXT("c list sep=; weight=: normalize\ny label\nquote category\n"),
    FUZZ_TEXT("a category rows=7 hash\nb cross a rows=9\nc list sep=; rows=4 hash\n"),
};

static int columns_input(const uint8_t *data, size_t size) {
    static const char text[] =
        "a,\"a b\",b,c\n1, 2, x, y, >50K\n?,,,\n1::a|b::0\n1\t2\t3\n0.5;1;2\na\n1,2\n1,2,3\n"
        "1,\"a,\"\"\",0,c;d\n";
    neo_ctx *ctx = fuzz_ctx();
    neo_schema *s = NULL, *none;
    if (size > 16384) return 0;
    FUZZ_CHECK(neo__schema_begin(ctx, "fuzz", NEO_FORMAT_DELIMITED, text, &none, &s) == NEO_OK);
    neo_status st = neo__describe_text(s, "columns",
                                       neo__text_of((const char *)data, (const char *)data + size));
    FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT || st == NEO_ERR_ARG);
    if (st != NEO_OK || s->feature_count > 64) {
        FUZZ_CHECK(st == NEO_OK || strlen(neo_last_error()) > 0);
        neo_schema_destroy(s);
        return 0;
    }
    neo__block b;
    NEO__ZERO(neo__parse_options, o);
    FUZZ_CHECK(neo__block_create(ctx, s, 0, &b) == NEO_OK);
    memcpy(b.raw, text, sizeof text - 1);
    memset(b.raw + sizeof text - 1, '\n', NEO__BLOCK_PAD);
    b.raw_bytes = sizeof text - 1;
    b.skip_lines = s->skip_lines + s->header;
    if (s->header) {
        static neo__text names[NEO__COLUMNS_MAX];
        const char *stop = (const char *)memchr(b.raw, '\n', b.raw_bytes), *path = "fuzz";
        NEO__ZERO(neo__source, source);
        source.schema = s;
        source.options = &o;
        source.paths = &path;
        source.names = names;
        source.head.target = b.head.target;
        o.unlabeled = 1;
        st = neo__head_parse(&source, 0, b.raw, stop);
        FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT);
        b.head = source.head;
        if (st != NEO_OK) b.head.fields = 0;
    }
    o.unlabeled = 0;
    o.skip_bad = 1;
    neo__dict *dicts;
    FUZZ_CHECK(neo__dicts_create(s, &dicts) == NEO_OK);
    o.fit = dicts;
    FUZZ_CHECK(neo__block_parse(s, &o, &b) == NEO_OK);
    int64_t fitted = b.taken;
    for (int32_t f = 0; f < s->feature_count; f++)
        if (s->has_dict[f]) neo__dict_prune(ctx, &dicts[f]);
    neo__schema_install(s, dicts, 1);
    o.fit = NULL;
    memcpy(b.raw, text, sizeof text - 1); /* quotes have moved in it */
    FUZZ_CHECK(neo__block_parse(s, &o, &b) == NEO_OK);
    FUZZ_CHECK(b.count == fitted);
    size_t n = neo__schema_save_size(s);
    void *saved = malloc(n), *again = malloc(n);
    FUZZ_CHECK(saved && again && neo__schema_save(s, saved) == NEO_OK);
    FUZZ_CHECK(fuzz_load_words(s, saved, n) == NEO_OK);
    FUZZ_CHECK(neo__schema_save(s, again) == NEO_OK && memcmp(saved, again, n) == 0);
    free(saved);
    free(again);
    neo__block_destroy(ctx, &b);
    neo_schema_destroy(s);
    return 0;
}
