/* delimited.c: delimited text under descriptions that use everything. The
   first byte chooses one and the options; the rest is a file's text. What comes
   out must keep the schema's promises, looked up or fitted. */

static const char *const descriptions[7] = {
    "missing ?\ncomment |\nage dense shift=38.6 scale=0.07 missing=-1 bucket "
    "20,30,40.5\njob category cross age rows=50\n"
    "gain dense log category rows=5\nword category rows=9 hash\nincome label "
    "positive=>50K,>50K.\n",
    "delimiter ::\nskip-lines 1\nid category\ngenres list sep=| rows=20\ntags "
    "list sep=, rows=7 hash\nrating label\n",
    "delimiter tab\ny label\nx dense log shift=-3 scale=1e30\nz bucket "
    "-1,0,1e-40\n",
    "x list sep=;\n",
    "quote \"\ny label\nx dense\nc category min_count=2 rows=4\nt list sep=; min_count=2\n",
    "quote \"\nheader\nc category\nx dense\ny label\n\"two words\" list sep=; weight=: hash "
    "rows=7 normalize\n",
    "a label positive=y\nw sample-weight\nb label weight=3\nx dense\nt list sep=; rows=5 hash\n",
};
static const fuzz_seed delimited_seeds[] = {
    FUZZ_TEXT("\0|1x3 Cross\n39, clerk, 2174, x, <=50K\n?, ?, , , "
              ">50K.\r\n1e1,a,-5,b,>50K"),
    FUZZ_TEXT("\4"
              "39,clerk,2174,x\n39,clerk,2174,x,q\n39.5.1,clerk,2174,x,q\n"),
    FUZZ_TEXT("\1id::genres::tags::rating\n1::Drama|War::a, "
              "b,,c::0.5\n2::::::1\n1:::x:::1\n"),
    FUZZ_TEXT("\12"
              "1\t1e8\t0.1\n0\t123456789012345678901234567890.5e-20\t1e-"
              "45\n1\t3.4028235e38\t-0\n"),
    FUZZ_TEXT("\3a;b;a;;c\n;\n\na"),
    FUZZ_TEXT("\44" "1,\"2\", \"a,\"\"b\"\"\" ,\"p;q\"\n0,3,\"\",\"\"\"\"\n1,2,5\" ,;\n"),
    FUZZ_TEXT("\51" "c,x,\"two words\",z,y\n\"a\"\"\",1,\"a;b\",,1\n,,,,0\n"),
    FUZZ_TEXT("\51" "c,x,\"two words\",z,y\na,1,\"a:0.5;b : 2;c;:;d:-1e3\",,1\n,,a:2;b;c:0,,0\n"),
    FUZZ_TEXT("\55" "two words,x,c\n1,2,3\n"),
    FUZZ_TEXT("\42" "y,1,0.5,3,a;b\n,2,,4,\nn,0.5,1,-1,;c\ny,-1,0,0,\n"),
    FUZZ_TEXT("\46" "3,4,a;b\n1,2,0.25,4,\n,,1,-1,;c\n5,6\n"),
    FUZZ_TEXT("\7\xEF\xBB\xBF"
              "a;b\n"),
};

static void delimited_check(const neo_schema *s, const neo__block *b) {
    int64_t used = 0;
    FUZZ_CHECK(b->count <= b->capacity && b->id_count <= b->id_capacity);
    for (int64_t i = 0; i < b->count; i++) {
        float *record = neo__block_record(s, b, i);
        const int64_t *ids = neo__record_ids(s, record);
        for (int32_t k = 0; k < s->label_count; k++) {
            const float y = record[neo__record_label(s, k)];
            FUZZ_CHECK((y >= 0.0f && y <= 1.0f) || (s->label_count > 1 && y != y));
        }
        for (int32_t d = 0; d < s->dense_count; d++)
            FUZZ_CHECK(record[1 + d] - record[1 + d] == 0.0f);
        if (s->multi) FUZZ_CHECK(ids[0] == used);
        for (int32_t t = 0; t < s->feature_count; t++) {
            int64_t k = s->multi ? ids[0] + (t ? ids[t] : 0) : 0,
                    end = s->multi ? ids[0] + ids[t + 1] : 1;
            FUZZ_CHECK(k <= end && (!s->multi || end <= b->id_count));
            for (; k < end; k++) {
                int64_t id = s->multi ? b->ids[k] : ids[t];
                FUZZ_CHECK(id >= 0 && id < s->rows[t]);
                FUZZ_CHECK(!s->weighted || b->weights[k] - b->weights[k] == 0.0f);
            }
        }
        if (s->multi) used = ids[0] + ids[s->feature_count];
        FUZZ_CHECK(b->end_offset[i] <= b->raw_bytes &&
                   (i == 0 || b->end_offset[i] > b->end_offset[i - 1]));
    }
    FUZZ_CHECK(!s->multi || used == b->id_count);
}

static int delimited_input(const uint8_t *data, size_t size) {
    static neo_schema *schema[7];
    static neo__block block[7];
    if (size < 1 || size > NEO__CHUNK_BYTES) return 0;
    int which = (data[0] >> 5 & 1) ? 4 + NEO__MIN(data[0] & 3, 2) : data[0] & 3;
    neo__block *b = &block[which];
    if (!schema[which]) {
        FUZZ_CHECK(neo_schema_parse(fuzz_ctx(), descriptions[which], &schema[which]) == NEO_OK);
        FUZZ_CHECK(neo__block_create(fuzz_ctx(), schema[which], 1, b) == NEO_OK);
    }
    neo_schema *s = schema[which];
    NEO__ZERO(neo__parse_options, o);
    o.unlabeled = data[0] >> 2 & 1;
    o.skip_bad = 1 ^ (data[0] >> 3 & 1);
    size_t n = fuzz_lines(b, data + 1, size - 1);
    b->skip_lines = s->skip_lines + s->header;
    if (s->header) {
        static neo__text names[NEO__COLUMNS_MAX];
        const char *stop = (const char *)memchr(b->raw, '\n', n + 1), *path = "fuzz";
        NEO__ZERO(neo__source, source);
        source.schema = s;
        source.options = &o;
        source.paths = &path;
        source.names = names;
        source.head.target = b->head.target;
        neo_status st = neo__head_parse(&source, 0, b->raw, stop);
        FUZZ_CHECK(st == NEO_OK || st == NEO_ERR_FORMAT);
        if (st != NEO_OK) return 0;
        b->head = source.head;
    }
    /* fit: collect the words beside the schema, then look them up, then forget
     * them */
    neo__dict *dicts;
    FUZZ_CHECK(neo__dicts_create(s, &dicts) == NEO_OK);
    o.fit = dicts;
    FUZZ_CHECK(neo__block_parse(s, &o, b) == NEO_OK);
    int64_t fitted = b->taken, bad = b->bad;
    for (int32_t f = 0; f < s->feature_count; f++) {
        neo__dict swap = s->dicts[f];
        if (!s->has_dict[f]) continue;
        neo__dict_prune(s->ctx, &dicts[f]);
        s->dicts[f] = dicts[f];
        s->rows[f] = dicts[f].count + 1 + (dicts[f].min_count != 0);
        dicts[f] = swap;
        FUZZ_CHECK(s->rows[f] <= s->max_rows[f]);
    }
    o.fit = NULL;
    memcpy(b->raw, data + 1, size - 1); /* quotes have moved in it */
    FUZZ_CHECK(neo__block_parse(s, &o, b) == NEO_OK);
    FUZZ_CHECK(b->count == fitted && b->bad == bad);
    delimited_check(s, b);
    for (int i = 0; i < b->issue_count; i++)
        FUZZ_CHECK(strlen(b->issues[i].text) > 0 && b->issues[i].column >= 1);
    for (int32_t f = 0; f < s->feature_count; f++) {
        if (!s->has_dict[f]) continue;
        neo__dict_free(s->ctx, &s->dicts[f]);
        s->dicts[f] = dicts[f];
        memset(&dicts[f], 0, sizeof dicts[f]);
    }
    neo__dicts_free(s, dicts);
    return 0;
}
