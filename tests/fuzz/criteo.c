/* criteo.c: Criteo lines. The first byte chooses options; the rest is a
   file's text. Every line is parsed again here in the plainest way: both must
   accept the same lines and make the same samples of them, with vector
   instructions and without. */

#define INTS "\t1\t-2\t\t4\t5\t60\t700\t8000\t9\t10\t11\t12\t999999999999999999"
#define SHORT "\t1\t-2\t\t4\t5\t60\t700\t8000\t9\t-10\t11\t4096\t12345678"
#define WORDS                                                                  \
  "\t0\tab\tFFFFFFFF\t\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1"  \
  "\t1\t1\t68fd1e64\t"
static const fuzz_seed criteo_seeds[] = {
    FUZZ_TEXT("\0"
              "1" INTS WORDS "\n0" INTS WORDS "\r\n1" INTS WORDS),
    FUZZ_TEXT("\1"
              "1" INTS WORDS "\n\n\r\n2" INTS WORDS "\n0" INTS WORDS "1\n"),
    FUZZ_TEXT("\3" INTS WORDS
              "\n1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13" WORDS "\n"),
    FUZZ_TEXT("\5\xEF\xBB\xBF"
              "1" INTS WORDS "\n"),
    FUZZ_TEXT("\1\0\0\n"),
    FUZZ_TEXT("\1"
              "1" SHORT WORDS "\n0" SHORT WORDS "\r\n1" SHORT WORDS "a\n"),
    FUZZ_TEXT("\11"
              "1" SHORT WORDS "\n0" SHORT WORDS "\r\n1" SHORT WORDS "a\n"),
    FUZZ_TEXT("\3" SHORT WORDS "\n" SHORT WORDS "a\n"),
};

/* The plain parser: 1 if [p, end) is a sample; label, dense (as x + 1) and
 * words (as number + 1). */
static int criteo_plain_line(const char *p, const char *end, int unlabeled,
                      double *label, double *dense, double *word) {
  const char *field[41], *stop[41];
  int n = 0;
  if (memchr(p, 0, (size_t)(end - p)) || end - p > NEO__LINE_BYTES)
    return 0;
  for (const char *q = p;; q++) {
    if (q < end && *q != '\t')
      continue;
    if (n == 41)
      return 0;
    field[n] = p;
    stop[n++] = q;
    if (q == end)
      break;
    p = q + 1;
  }
  if (n != 40 && !(unlabeled && n == 39))
    return 0;
  int at = 40 - n;
  *label = 0;
  if (at == 0) {
    if (stop[0] - field[0] != 1 || (field[0][0] != '0' && field[0][0] != '1'))
      return 0;
    *label = field[0][0] - '0';
  }
  for (int i = 0; i < 13; i++) {
    const char *q = field[1 - at + i], *e = stop[1 - at + i];
    double v = 0;
    int negative = q < e && *q == '-';
    q += negative;
    if (negative && q == e)
      return 0;
    if (e - q > 18)
      return 0;
    for (; q < e; q++) {
      if (*q < '0' || *q > '9')
        return 0;
      v = v * 10 + (*q - '0');
    }
    dense[i] = negative ? 1 : v + 1;
  }
  for (int i = 0; i < 26; i++) {
    const char *q = field[14 - at + i], *e = stop[14 - at + i];
    double v = q < e ? 1 : 0;
    if (e - q > 8)
      return 0;
    uint32_t u = 0;
    for (; q < e; q++) {
      const char *digits = "0123456789abcdef0123456789ABCDEF",
                 *d = *q ? strchr(digits, *q) : NULL;
      if (!d)
        return 0;
      u = u * 16 + (uint32_t)((d - digits) % 16);
    }
    word[i] = v + u;
  }
  return 1;
}

static int criteo_input(const uint8_t *data, size_t size) {
  static neo_schema *schema;
  static neo__block b;
  if (!schema) {
    FUZZ_CHECK(neo_schema_criteo(fuzz_ctx(), NEO_IDS_HASH, 1000, NULL,
                                 &schema) == NEO_OK);
    FUZZ_CHECK(neo__block_create(fuzz_ctx(), schema, 1, &b) == NEO_OK);
  }
  if (size < 1 || size > NEO__CHUNK_BYTES)
    return 0;
  fuzz_ctx()->isa = data[0] & 8 ? NEO_ISA_SCALAR : neo__isa_best();
  NEO__ZERO(neo__parse_options, o);
  o.skip_bad = data[0] & 1;
  o.unlabeled = data[0] >> 1 & 1;
  size_t n = fuzz_lines(&b, data + 1, size - 1);
  b.offset = data[0] & 4 ? 0 : 10;
  FUZZ_CHECK(neo__block_parse(schema, &o, &b) == NEO_OK);
  FUZZ_CHECK(b.count <= b.capacity);

  const char *p = b.raw, *end = p + n;
  int64_t samples = 0, bad = 0;
  if (b.offset == 0 && n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
    p += 3;
  for (; p < end && (o.skip_bad || bad == 0);) {
    const char *stop = memchr(p, '\n', (size_t)(end - p)), *line = p;
    double label, dense[13], word[26];
    p = stop + 1;
    if (stop > line && stop[-1] == '\r')
      stop--;
    if (line == stop)
      continue;
    if (!criteo_plain_line(line, stop, o.unlabeled, &label, dense, word)) {
      bad++;
      continue;
    }
    FUZZ_CHECK(samples < b.count);
    const float *record = neo__block_record(schema, &b, samples);
    const int64_t *ids = neo__record_ids(schema, (void *)(uintptr_t)record);
    FUZZ_CHECK(record[0] == (float)label);
    for (int i = 0; i < 13; i++) {
      double want = log(dense[i]), off = (double)record[1 + i] - want;
      FUZZ_CHECK(off < 3e-6 && off > -3e-6);
    }
    for (int i = 0; i < 26; i++)
      FUZZ_CHECK(ids[i] ==
                 (word[i] > 0 ? 1 + ((int64_t)word[i] - 1) % 999 : 0));
    samples++;
    FUZZ_CHECK(b.end_offset[samples - 1] == (uint32_t)(p - b.raw));
  }
  FUZZ_CHECK(samples == b.count && bad == b.bad);
  return 0;
}
