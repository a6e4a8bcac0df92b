/* json.c: any bytes through the JSON reader. What it accepts, it must accept again cut to its
   length, and a string it decodes must be UTF-8 and survive the writer. */

static const fuzz_seed json_seeds[] = {
    FUZZ_TEXT(
        "{\"a\":[1,-2.5e3,true,null,\"x\\u00e9\\ud83d\\ude00\xE2\x82\xAC\"],\"b\":{\"c\":false}}"),
    FUZZ_TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\""),
    FUZZ_TEXT("[[[[[[[[0]]]],9223372036854775807,1E-2]]]]"),
    FUZZ_TEXT(" { \"key\" : [ ] , \"\" : { } } "),
};

static neo__json json_of(char *text, size_t size) {
    neo__json j;
    memset(&j, 0, sizeof j);
    j.text = text;
    j.size = size;
    j.file = "fuzz";
    return j;
}

static int json_input(const uint8_t *data, size_t size) {
    char *text = (char *)malloc(size + 1), *value = NULL, *again = NULL;
    int64_t count = -1;
    if (!text) return 0;
    memcpy(text, data, size);
    neo__json j = json_of(text, size);
    neo_status status = neo__json_skip(&j);
    FUZZ_CHECK(j.at <= size && (status == NEO_OK || status == NEO_ERR_FORMAT));
    if (status == NEO_OK) {
        size_t used = j.at;
        memcpy(text, data, size); /* strings were decoded in place */
        j = json_of(text, used);
        FUZZ_CHECK(neo__json_skip(&j) == NEO_OK && neo__json_end(&j) == NEO_OK && j.depth == 0);
    }
    memcpy(text, data, size);
    j = json_of(text, size);
    if (neo__json_string(&j, &value) == NEO_OK) {
        neo__out out;
        neo__out_begin(&out, NULL);
        FUZZ_CHECK(neo__utf8_valid(value) && strlen(value) < size);
        if (strlen(value) < 600) { /* fits the writer's buffer, escaped */
            char *copy = (char *)malloc(strlen(value) + 1);
            FUZZ_CHECK(copy != NULL);
            memcpy(copy, value, strlen(value) + 1);
            neo__out_string(&out, value);
            FUZZ_CHECK(out.used == out.bytes);
            j = json_of(out.buffer, out.used);
            FUZZ_CHECK(neo__json_string(&j, &again) == NEO_OK && strcmp(again, copy) == 0);
            free(copy);
        }
    }
    memcpy(text, data, size);
    j = json_of(text, size);
    if (neo__json_count(&j, &count) == NEO_OK) FUZZ_CHECK(count >= 0);
    free(text);
    return 0;
}
