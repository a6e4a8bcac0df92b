/* state.c: the private parts of checkpoints: CRC32C paths, digest parts, name maps, paths and
   files. Method: known values, a bit-by-bit reference, random cuts, directories made and
   removed. */
#define NEO_STATIC /* as in private.c */
#include "neo_state.h"

#include "test.h"

static uint32_t crc_by_bits(const unsigned char *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}
static void crc(void) {
    unsigned char data[4096];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)test_random();
    CHECK_INT(neo_crc32c(0, "123456789", 9), 0xE3069283u);
    CHECK_INT(neo_crc32c(0, "", 0), 0);
    for (int trial = 0; trial < 300; trial++) {
        size_t begin = test_random() % 64, n = test_random() % (trial < 150 ? 40 : 4000),
               cut = n ? test_random() % n : 0;
        uint32_t want = crc_by_bits(data + begin, n);
        CHECK_INT(neo_crc32c(0, data + begin, n), want);
        CHECK_INT(neo_crc32c(neo_crc32c(0, data + begin, cut), data + begin + cut, n - cut), want);
        CHECK_INT(~neo__crc32c_table(0xFFFFFFFFu, data + begin, n), want);
    }
}

/* A digest is the sum of its parts, wherever they are cut. */
static void digest_parts(void) {
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16, NEO_F8E4M3, NEO_F8E5M2,
                                       NEO_I8,  NEO_I32, NEO_I64,  NEO_U8,     NEO_F64};
    unsigned char data[8 * 1001 + 1];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)test_random();
    for (int d = 0; d <= NEO_DTYPE_COUNT; d++) {
        size_t bytes = neo_dtype_size(dtypes[d]);
        const unsigned char *p = data + 1; /* misaligned */
        uint64_t key = 0x123456789ABCDEFu + (uint64_t)d,
                 whole = neo__digest_part(key, dtypes[d], p, 0, 1001);
        for (int64_t cut = 0; cut <= 1001; cut += 13) {
            uint64_t sum =
                neo__digest_part(key, dtypes[d], p, 0, cut) +
                neo__digest_part(key, dtypes[d], p + (size_t)cut * bytes, cut, 1001 - cut);
            CHECK(sum == whole);
        }
    }
}
/* Every bit pattern of the narrow floats: all NaNs of a type alike, all else different. */
static void digest_nans(void) {
    static const struct {
        neo_dtype dtype;
        uint32_t sign, infinity, count;
    } types[] = {
        {NEO_F16, 0x8000, 0x7C00, 65536},
        {NEO_BF16, 0x8000, 0x7F80, 65536},
        {NEO_F8E4M3, 0x80, 0x7E, 256},
        {NEO_F8E5M2, 0x80, 0x7C, 256},
    };
    for (int k = 0; k < 4; k++) {
        uint32_t nan_bits = types[k].infinity + 1;
        uint64_t nan = neo__digest_part(5, types[k].dtype, &nan_bits, 0, 1);
        for (uint32_t bits = 0; bits < types[k].count; bits++) {
            int is_nan = (bits & ~types[k].sign) > types[k].infinity;
            if ((neo__digest_part(5, types[k].dtype, &bits, 0, 1) == nan) != is_nan)
                FAIL("%s: bits %x", neo_dtype_name(types[k].dtype), bits);
        }
    }
}

/* Of f64 all NaNs are alike too, numbers beside them not; a digest tells f64 from i64. */
static void digest_f64(void) {
    const uint64_t nan[] = {UINT64_C(0x7FF0000000000001), UINT64_C(0x7FF8000000000000),
                            UINT64_C(0xFFFFFFFFFFFFFFFF)},
                   other[] = {UINT64_C(0x7FF0000000000000), UINT64_C(0xFFF0000000000000),
                              UINT64_C(0x7FEFFFFFFFFFFFFF), UINT64_C(0x7FC00001)};
    const uint64_t first = neo__digest_part(5, NEO_F64, nan, 0, 1);
    for (int i = 0; i < 3; i++) CHECK(neo__digest_part(5, NEO_F64, nan + i, 0, 1) == first);
    for (int i = 0; i < 4; i++) CHECK(neo__digest_part(5, NEO_F64, other + i, 0, 1) != first);
    const int64_t shape[] = {1};
    CHECK(neo__digest_key("x", NEO_F64, 1, shape) != neo__digest_key("x", NEO_I64, 1, shape));
}

/* What a look finds in a whole tensor is what it finds in its parts, whatever the threads. */
static void looks(void) {
    enum { ROWS = 700, COLS = 300 };
    static float data[ROWS * COLS];
    static uint16_t half[ROWS * COLS];
    static const neo_part parts[] = {
        {.rows = ROWS, .cols = COLS},
        {.rows = ROWS, .cols = COLS, .first_col = 11},
        {.rows = ROWS, .cols = COLS, .first_row = 300, .first_col = 11}};
    const float most = 3e9f;
    neo_exact want[2], got;
    float largest;
    for (int k = 0; k < 2; k++) neo_exact_zero(&want[k]);
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        data[i] = i == 5 ? 0 : ldexpf((float)(int32_t)test_random(), (int)(i % 60) - 60);
        if (i == 77 * COLS + 150) data[i] = -most;
        half[i] = neo__f16_from_f32(data[i] * 1e-9f);
        neo_exact_add(&want[0], data[i] * data[i]);
        neo_exact_add(&want[1], neo__f32_from_f16(half[i]) * neo__f32_from_f16(half[i]));
    }
    for (int threads = 1; threads <= 3; threads++) {
        neo_ctx *ctx = NULL;
        neo_state *state = NULL, *cut = NULL;
        REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = threads}, &ctx));
        REQUIRE_OK(neo_state_create(ctx, &state));
        REQUIRE_OK(neo_state_create(ctx, &cut));
        REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "a",
                                 neo_tensor_2d(data, NEO_F32, ROWS, COLS)));
        REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "b",
                                 neo_tensor_2d(half, NEO_F16, ROWS, COLS)));
        REQUIRE_OK(neo_state_add(state, NEO_STATE_PROGRESS, "c",
                                 neo_tensor_2d(half, NEO_I32, ROWS, COLS / 2)));
        for (int k = 0; k < 3; k++) {
            neo_exact_zero(&got);
            CHECK_OK(neo_state_look(state, k, &largest, &got));
            CHECK(neo_exact_value(&got) == (k < 2 ? neo_exact_value(&want[k]) : 0.0));
            if (k != 1) CHECK(largest == (k ? 0.0f : most));
        }
        neo_exact_zero(&got);
        for (int k = 0; k < 3; k++) {
            const int64_t row = parts[k].first_row, col = parts[k].first_col;
            neo_tensor t = neo_tensor_2d(data + row * COLS + col, NEO_F32,
                                         k == 1 ? 300 : ROWS - row, k ? COLS - col : 11);
            t.stride[0] = COLS;
            REQUIRE_OK(neo_state_add_part(cut, NEO_STATE_WEIGHT, "a", t, &parts[k]));
            CHECK_OK(neo_state_look(cut, k, &largest, &got));
            CHECK(largest == most || k != 1);
        }
        CHECK(neo_exact_value(&got) == neo_exact_value(&want[0]));
        data[5] = -INFINITY;
        CHECK_OK(neo_state_look(state, 0, &largest, NULL));
        CHECK(largest == INFINITY);
        data[5] = NAN;
        CHECK_OK(neo_state_look(state, 0, &largest, NULL));
        CHECK(largest == INFINITY);
        data[5] = 0;
        CHECK_ERR(neo_state_look(state, 3, &largest, NULL), NEO_ERR_ARG, "no such entry");
        CHECK_ERR(neo_state_look(state, 0, NULL, NULL), NEO_ERR_ARG, "largest is NULL");
        CHECK_ERR(neo_state_look(NULL, 0, &largest, NULL), NEO_ERR_ARG, "state is NULL");
        neo_state_destroy(cut);
        neo_state_destroy(state);
        neo_ctx_destroy(ctx);
    }
}

static void name_maps(void) {
    static const struct {
        const char *from, *to, *name, *result; /* NULL: no match */
    } cases[] = {
        {"bottom.*.weight", "bot_l.*.weight", "bottom.0.weight", "bot_l.0.weight"},
        {"bottom.*.weight", "bot_l.*.weight", "bottom.0.bias", NULL},
        {"bottom.*", "bot_l.*", "bottom.0.bias", "bot_l.0.bias"},
        {"*", "model.*", "top.2.bias", "model.top.2.bias"},
        {"*.weight", "*.w", "a.weight", "a.w"},
        {"*.weight", "*.w", ".weight", ".w"},
        {"bags.C4.weight", "emb_l.3.weight", "bags.C4.weight", "emb_l.3.weight"},
        {"bags.C4.weight", "emb_l.3.weight", "bags.C40.weight", NULL},
        {"aa*aa", "b*b", "aaa", NULL},
        {"aa*aa", "b*b", "aaaa", "bb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[64];
        int found = neo__map_name(cases[i].from, cases[i].to, cases[i].name, out, sizeof out);
        if (found != (cases[i].result != NULL)) FAIL("case %zu: found %d", i, found);
        if (found && cases[i].result && strcmp(out, cases[i].result) != 0)
            FAIL("case %zu: %s", i, out);
    }
    char tiny[4];
    CHECK(!neo__map_name("a", "abcd", "a", tiny, sizeof tiny));
    CHECK(!neo__map_name("*", "*d", "abc", tiny, sizeof tiny));
}

static neo_status count_entry(const char *name, void *user) {
    (void)name;
    ++*(int *)user;
    return NEO_OK;
}
static neo_status stop_entry(const char *name, void *user) {
    ++*(int *)user;
    return neo_fail(NEO_ERR_CAPACITY, "stopped at %s", name);
}
static char path_text[4096];
/* A path below the directory of this test. */
static const char *at(const char *name) {
    const char *dir = getenv("TMPDIR");
    snprintf(path_text, sizeof path_text, "%s/unit_state.tmp%s", dir ? dir : ".", name);
    return path_text;
}
static neo__path_kind look(const char *path) {
    neo__path_kind kind = NEO__PATH_OTHER;
    CHECK_OK(neo__path_look(path, &kind));
    return kind;
}
static void files(void) {
    char out[NEO__PATH_BYTES], data[16];
    int count = 0;
    neo__file file;
    CHECK_OK(neo__tree_remove(at("")));
    CHECK_OK(neo__dir_make(at("/a//b/c")));
    CHECK_OK(neo__dir_make(at("/a/b/c/")));
    CHECK_INT(look(at("/a/b/c")), NEO__PATH_DIR);
    REQUIRE_OK(neo__file_open(&file, at("/a/f"), NEO__FILE_CREATE));
    CHECK_OK(neo__file_write(&file, "0123456789", 10));
    CHECK_OK(neo__file_sync(&file));
    CHECK_OK(neo__file_close(&file));
    CHECK_OK(neo__file_close(&file));
    char from[4096];
    snprintf(from, sizeof from, "%s", at("/a/f"));
    CHECK_OK(neo__path_rename(from, at("/a/g")));
    CHECK_INT(look(at("/a/f")), NEO__PATH_NONE);
    REQUIRE_OK(neo__file_open(&file, at("/a/g"), NEO__FILE_READ));
    CHECK_INT(neo__file_size(&file), 10);
    CHECK_OK(neo__file_read_at(&file, 3, data, 4));
    CHECK_BITS(data, "3456", 4);
    CHECK_ERR(neo__file_read_at(&file, 8, data, 4), NEO_ERR_IO, "ends before byte 12");
    CHECK_ERR(neo__file_read_at(&file, -1, data, 4), NEO_ERR_IO, "/a/g: cannot read at byte -1");
    CHECK_OK(neo__file_close(&file));
    CHECK_OK(neo__dir_list(at("/a"), count_entry, &count));
    CHECK_INT(count, 2);
    CHECK_ERR(neo__dir_list(at("/a"), stop_entry, &count), NEO_ERR_CAPACITY, "stopped at");
    CHECK_INT(count, 3);
    CHECK_OK(neo__dir_sync(at("")));
    CHECK_ERR(neo__file_open(&file, at("/none"), NEO__FILE_READ), NEO_ERR_NOT_FOUND,
              "unit_state.tmp/none: cannot open");
    CHECK_ERR(neo__file_open(&file, at("/a"), NEO__FILE_READ), NEO_ERR_IO, "is a directory");
    CHECK_ERR(neo__file_open(&file, "", NEO__FILE_READ), NEO_ERR_ARG, "empty");
    CHECK_ERR(neo__dir_list(at("/none"), count_entry, &count), NEO_ERR_NOT_FOUND, "list");
    CHECK_ERR(neo__dir_make(at("/a/g/x")), NEO_ERR_IO, "/a/g");
    CHECK_OK(neo__path_parent(out, "a/b/c"));
    CHECK(strcmp(out, "a/b") == 0);
    CHECK_OK(neo__path_parent(out, "c"));
    CHECK(strcmp(out, ".") == 0);
    CHECK_OK(neo__path_parent(out, "/c"));
    CHECK(strcmp(out, "/") == 0);
    CHECK_OK(neo__tree_remove(at("")));
    CHECK_INT(look(at("")), NEO__PATH_NONE);
    CHECK_OK(neo__tree_remove(at("")));
}

int main(void) {
    RUN(crc);
    RUN(digest_parts);
    RUN(digest_nans);
    RUN(digest_f64);
    RUN(looks);
    RUN(name_maps);
    RUN(files);
    return test_end("files/state");
}
