/* svm.c: libsvm and libffm lines. The first byte chooses options; the rest is a file's text. Every
   line is parsed again here in the plainest way: both must accept the same lines and make the same
   samples of them, with vector instructions and without. */

enum { FIELDS = 4, ROWS = 100 };
static const fuzz_seed svm_seeds[] = {
    FUZZ_TEXT("\0" "1 1:1 2:0.5 99:-3e-2\n-1 qid:3 5:1 # comment\r\n+1\n0.25 007:1234567"),
    FUZZ_TEXT("\1" "# first\n1 100:1\n1 x\n0 18446744073709551616:1 2:2\n\n1 2:.5 2:5.\n"),
    FUZZ_TEXT("\5" "1 3:1:1 0:2:0.123456789 3:4:5\n-1\t 1:1:1 \n1 4:1:1\n2 1:1:1\n"),
    FUZZ_TEXT("\7" "1:2:3 1:1:1\n 0:1:1\n1 qid:7 0:99:1e39\n0 0:1:+1 1:2:-0\n"),
    FUZZ_TEXT("\x09" "1 1000:1 9223372036854775807:2\n1 9223372036854775808:1\n"),
    FUZZ_TEXT("\3" "1 1:\0 2:2\n"),
    FUZZ_TEXT("\x0B" "1 1:1 12345678:0.5 99:.1234567 0:5. 7:1234.567\n5:1 6:2\n 5:3\n0 1:.\n0 1:8"),
    FUZZ_TEXT("\x1B" "1 1:1 12345678:0.5 99:.1234567 0:5. 7:1234.567\n5:1 6:2\n 5:3\n0 1:.\n0 1:8"),
    FUZZ_TEXT("\5" "1 0:1:1 1:12:0.25 3:99:7654321 2:7:.5\r\n0 0:1:1.5 1:2:3 \n0 3:7:1\n"),
    FUZZ_TEXT("\3" " # 1\n1#c\n1 qid:3#\n1 1:2#3 4:5\n1 1:#2\n1 1#:2\n\t#\r\n#\0\n1 1:1#\0\n"),
};

static int blank(char c) { return c == ' ' || c == '\t'; }
/* A word of digits and the character after it; -1: there is none, or it is too large. */
static int64_t svm_plain_whole(const char **p, const char *end) {
    uint64_t v = 0;
    const char *from = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        if (v > (uint64_t)(INT64_MAX - (**p - '0')) / 10) return -1;
        v = v * 10 + (uint64_t)(**p - '0');
    }
    return *p == from ? -1 : (int64_t)v;
}
/* A decimal number as the manual has it, by strtof. */
static int svm_plain_number(const char *p, const char *end, float *x) {
    char text[NEO__LINE_BYTES + 1];
    size_t n = (size_t)(end - p);
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789+-.eE", p[i]) || !p[i]) return 0;
    memcpy(text, p, n);
    text[n] = 0;
    char *stop;
    *x = strtof(text, &stop);
    return n > 0 && *stop == 0 && *x - *x == 0.0f;
}
/* 1: a sample, of `count` pairs; 0: a bad line; -1: none. */
static int svm_plain_line(const char *p, const char *end, int ffm, int unlabeled, int modulo,
                      float *label, neo__svm_pair *pairs, int64_t *count) {
    *count = 0;
    *label = 0;
    if (end - p > NEO__LINE_BYTES) return 0;
    const char *comment = (const char *)memchr(p, '#', (size_t)(end - p));
    if (comment) {
        end = comment;
        const char *q = p;
        while (q < end && blank(*q)) q++;
        if (q == end) return -1;
    }
    for (int word = 0;; word++) {
        while (p < end && blank(*p)) p++;
        const char *stop = p;
        while (stop < end && !blank(*stop)) stop++;
        int colons = 0;
        for (const char *q = p; q < stop; q++) colons += *q == ':';
        if (word == 0 && unlabeled && (colons || stop == p)) word = 1;
        else if (word == 0) {
            if (colons || !svm_plain_number(p, stop, label)) return 0;
            if (*label == -1) *label = 0;
            if (!(*label >= 0 && *label <= 1)) return 0;
            p = stop;
            continue;
        }
        if (p == end) return 1;
        if (word == 1 && stop - p >= 4 && memcmp(p, "qid:", 4) == 0 && end - p > 4) {
            p += 4;
            if (svm_plain_whole(&p, stop) < 0 || p != stop) return 0;
            continue;
        }
        int64_t number[2] = {0, 0};
        for (int i = !ffm; i < 2; i++) {
            number[i] = svm_plain_whole(&p, stop);
            if (number[i] < 0 || p == stop || *p++ != ':') return 0;
        }
        neo__svm_pair *pair = &pairs[(*count)++];
        if (!svm_plain_number(p, stop, &pair->weight) || number[0] >= FIELDS) return 0;
        if (!modulo && number[1] >= ROWS) return 0;
        pair->field = (int32_t)number[0];
        pair->id = number[1] % ROWS;
        p = stop;
    }
}

static int svm_input(const uint8_t *data, size_t size) {
    static neo_schema *schema[4];
    static neo__block block[4];
    static neo__svm_pair pairs[NEO__SVM_PAIRS];
    if (size < 1 || size > NEO__CHUNK_BYTES) return 0;
    fuzz_ctx()->isa = data[0] & 16 ? NEO_ISA_SCALAR : neo__isa_best();
    int ffm = data[0] >> 2 & 1, modulo = data[0] >> 3 & 1, which = ffm + 2 * modulo;
    neo__block *b = &block[which];
    if (!schema[which]) {
        neo_libsvm_desc d;
        memset(&d, 0, sizeof d);
        d.with_fields = ffm;
        d.fields = ffm ? FIELDS : 0;
        d.rows = ROWS;
        d.modulo = modulo;
        FUZZ_CHECK(neo_schema_libsvm(fuzz_ctx(), &d, &schema[which]) == NEO_OK);
        FUZZ_CHECK(neo__block_create(fuzz_ctx(), schema[which], 1, b) == NEO_OK);
    }
    const neo_schema *s = schema[which];
    NEO__ZERO(neo__parse_options, o);
    o.skip_bad = data[0] & 1;
    o.unlabeled = data[0] >> 1 & 1;
    size_t n = fuzz_lines(b, data + 1, size - 1);
    b->offset = 10;
    FUZZ_CHECK(neo__block_parse(s, &o, b) == NEO_OK);
    FUZZ_CHECK(b->count <= b->capacity && b->id_count <= b->id_capacity);

    const char *p = b->raw, *end = p + n;
    int64_t samples = 0, bad = 0;
    while (p < end && (o.skip_bad || bad == 0)) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p)), *line = p;
        float label;
        int64_t count;
        p = stop + 1;
        if (stop > line && stop[-1] == '\r') stop--;
        if (line == stop) continue;
        int sample = svm_plain_line(line, stop, ffm, o.unlabeled, modulo, &label, pairs, &count);
        bad += sample == 0;
        if (sample != 1) continue;
        FUZZ_CHECK(samples < b->count);
        float *record = neo__block_record(s, b, samples++);
        int64_t *ids = neo__record_ids(s, record), at = ids[0];
        FUZZ_CHECK(record[0] == label && ids[s->feature_count] == count);
        for (int32_t f = 0; f < s->feature_count; f++) {
            for (int64_t i = 0; i < count; i++) {
                if (pairs[i].field != f) continue;
                FUZZ_CHECK(b->ids[at] == pairs[i].id && b->weights[at] == pairs[i].weight);
                at++;
            }
            FUZZ_CHECK(at == ids[0] + ids[1 + f]);
        }
        FUZZ_CHECK(b->end_offset[samples - 1] == (uint32_t)(p - b->raw));
    }
    FUZZ_CHECK(samples == b->count && bad == b->bad);
    for (int i = 0; i < b->issue_count; i++)
        FUZZ_CHECK(strlen(b->issues[i].text) > 0 && b->issues[i].column >= 1);
    return 0;
}
