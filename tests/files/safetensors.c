/* safetensors.c: the reader believes nothing, the writer's files are read back bit for bit.
   Method: round trips of every dtype and of odd shapes; a table of malformed headers, each refused
   with its reason; every single-byte change and every truncation of a valid header is refused or
   harmless; a file written by Python's safetensors package (golden/safetensors.safetensors, made
   by golden/safetensors_files.py). */
#include "neo_state.h"

#include "common.h"

static neo_ctx *ctx;
/* A file of this header text and that many bytes 0, 1, 2, ... of data. */
static void put_header(const char *path, const char *header, size_t data_bytes) {
    uint64_t n = strlen(header);
    char *file = (char *)malloc(8 + n + data_bytes);
    for (int i = 0; i < 8; i++) file[i] = (char)(n >> 8 * i);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++) file[8 + n + i] = (char)i;
    put(path, file, 8 + n + data_bytes);
    free(file);
}
static void round_trip(void) {
    enum { COUNT = 13 };
    static const int64_t shapes[COUNT][4] = {{3, 5},       {7},       {2, 3, 4}, {5},       {9},
                                             {1, 1, 1, 1}, {4},       {2},       {2, 3, 1}, {0, 3},
                                             {0},          {3, 5, 7}, {0}};
    static const int ndims[COUNT] = {2, 1, 3, 1, 1, 4, 1, 1, 3, 2, 1, 3, 0};
    unsigned char data[COUNT][1024], back[1024];
    neo_tensor tensors[COUNT];
    char names[COUNT][64];
    const char *name_list[COUNT];
    for (int i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < sizeof data[i]; k++) data[i][k] = (unsigned char)test_random();
        int dtype = i % (NEO_DTYPE_COUNT + 1);
        tensors[i] = neo_tensor_nd(data[i], dtype == NEO_DTYPE_COUNT ? NEO_F64 : (neo_dtype)dtype,
                                   ndims[i], shapes[i]);
        snprintf(names[i], sizeof names[i], "t.%d \"quoted\\\" \xC3\xA9\n%s", i,
                 i == 3 ? "\t\x01" : "");
        name_list[i] = names[i];
    }
    static const char *const metadata[] = {"format", "pt", "key \"2\"", "", "b", "value\n"};
    REQUIRE_OK(neo_safetensors_write(ctx, at("a"), name_list, tensors, COUNT, metadata, 3));
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, at("a"), &file));
    CHECK_INT(neo_safetensors_count(file), COUNT);
    for (int i = 0; i < COUNT; i++) {
        int index = neo_safetensors_find(file, names[i]);
        neo_tensor info;
        REQUIRE(index >= 0);
        CHECK(strcmp(neo_safetensors_name(file, index), names[i]) == 0);
        REQUIRE_OK(neo_safetensors_info(file, index, &info));
        CHECK(info.dtype == tensors[i].dtype && info.ndim == tensors[i].ndim && !info.data);
        for (int d = 0; d < info.ndim; d++) CHECK_INT(info.shape[d], tensors[i].shape[d]);
        memset(back, 0xA5, sizeof back);
        neo_tensor into = tensors[i];
        into.data = back + 8;
        CHECK_OK(neo_safetensors_read(file, index, into));
        size_t bytes = neo_tensor_bytes(tensors[i]);
        CHECK_BITS(back + 8, data[i], bytes);
        for (size_t k = 0; k < 8; k++) CHECK(back[k] == 0xA5 && back[8 + bytes + k] == 0xA5);
    }
    CHECK_INT(neo_safetensors_find(file, "none"), -1);
    CHECK(neo_safetensors_name(file, -1) == NULL && neo_safetensors_name(file, COUNT) == NULL);
    CHECK(strcmp(neo_safetensors_metadata(file, "key \"2\""), "") == 0);
    CHECK(strcmp(neo_safetensors_metadata(file, "b"), "value\n") == 0);
    CHECK(neo_safetensors_metadata(file, "c") == NULL);
    neo_safetensors_close(file);
    size_t size;
    unsigned char *raw = slurp(at("a"), &size);
    CHECK(size >= 8 && raw[0] % 8 == 0); /* the data is aligned */
    free(raw);
    remove(at("a"));
}

static void conversions(void) {
    float f32[6] = {1.0f, -2.5f, 0.0f, 65504.0f, 1e-8f, 3.14159f}, back[6];
    uint16_t f16[6], bf16[6];
    neo_tensor wide = neo_tensor_2d(f32, NEO_F32, 2, 3);
    REQUIRE_OK(neo_tensor_convert(ctx, wide, neo_tensor_2d(f16, NEO_F16, 2, 3), NULL));
    REQUIRE_OK(neo_tensor_convert(ctx, wide, neo_tensor_2d(bf16, NEO_BF16, 2, 3), NULL));
    const char *names[] = {"w"};
    REQUIRE_OK(neo_safetensors_write(ctx, at("c"), names, &wide, 1, NULL, 0));
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, at("c"), &file));
    uint16_t narrow[6];
    CHECK_OK(neo_safetensors_read(file, 0, neo_tensor_2d(narrow, NEO_F16, 2, 3)));
    CHECK_BITS(narrow, f16, sizeof f16);
    CHECK_OK(neo_safetensors_read(file, 0, neo_tensor_2d(narrow, NEO_BF16, 2, 3)));
    CHECK_BITS(narrow, bf16, sizeof bf16);
    CHECK_ERR(neo_safetensors_read(file, 0, neo_tensor_2d(narrow, NEO_I8, 2, 3)), NEO_ERR_MISMATCH,
              "tensor w is f32, expected i8");
    CHECK_ERR(neo_safetensors_read(file, 0, neo_tensor_2d(back, NEO_F32, 3, 2)), NEO_ERR_MISMATCH,
              "tensor w has shape [2, 3], expected [3, 2]");
    CHECK_ERR(neo_safetensors_read(file, 0, neo_tensor_1d(back, NEO_F32, 6)), NEO_ERR_MISMATCH,
              "expected [6]");
    CHECK_ERR(neo_safetensors_read(file, 0, neo_tensor_2d(NULL, NEO_F32, 2, 3)), NEO_ERR_ARG,
              "tensor w");
    CHECK_ERR(neo_safetensors_read(file, 0,
                                   neo_tensor_transpose(neo_tensor_2d(back, NEO_F32, 3, 2), 0, 1)),
              NEO_ERR_ARG, "contiguous");
    CHECK_ERR(neo_safetensors_read(file, 1, wide), NEO_ERR_ARG, "no tensor 1");
    neo_safetensors_close(file);
    remove(at("c"));

    /* many pieces of the conversion buffer */
    enum { N = 10001 };
    float *big = malloc(N * sizeof *big), *big_back = malloc(N * sizeof *big);
    uint16_t *half = malloc(N * sizeof *half);
    test_fill(big, N);
    neo_tensor narrow_big = neo_tensor_1d(half, NEO_BF16, N);
    CHECK_OK(neo_tensor_convert(ctx, neo_tensor_1d(big, NEO_F32, N), narrow_big, NULL));
    CHECK_OK(neo_tensor_convert(ctx, narrow_big, neo_tensor_1d(big, NEO_F32, N), NULL));
    REQUIRE_OK(neo_safetensors_write(ctx, at("c"), names, &narrow_big, 1, NULL, 0));
    REQUIRE_OK(neo_safetensors_open(ctx, at("c"), &file));
    CHECK_OK(neo_safetensors_read(file, 0, neo_tensor_1d(big_back, NEO_F32, N)));
    CHECK_BITS(big, big_back, N * sizeof *big);
    neo_safetensors_close(file);
    remove(at("c"));
    free(big);
    free(big_back);
    free(half);
}

#define T(dtype, shape, range)                                                                    \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" range "]}"
/* A header of many tensors without elements takes memory in proportion; one name twice is found. */
static void many_names(void) {
    enum { COUNT = 20000, ROOM = 64 * COUNT };
    char *text = (char *)malloc(ROOM);
    neo_safetensors *file = NULL;
    for (int twice = 0; twice < 2; twice++) {
        neo_ctx *own = test_ctx(1, NEO_ISA_BEST, 1);
        const size_t before = neo_ctx_memory(own).bytes;
        int n = snprintf(text, ROOM, "{");
        for (int i = 0; i < COUNT; i++)
            n += snprintf(text + n, ROOM - (size_t)n, "%s\"%x\":" T("U8", "0", "0,0"), i ? "," : "",
                          (unsigned)(twice && i == COUNT - 1 ? COUNT / 2 : i));
        snprintf(text + n, ROOM - (size_t)n, "}");
        put_header(at("m"), text, 0);
        neo_status status = neo_safetensors_open(own, at("m"), &file);
        CHECK(neo_ctx_memory(own).peak_bytes - before < 8 * (size_t)n);
        CHECK_INT(status, twice ? NEO_ERR_FORMAT : NEO_OK);
        if (twice) CHECK(strstr(neo_last_error(), "tensor 2710 is there twice"));
        else CHECK_INT(neo_safetensors_count(file), COUNT);
        neo_safetensors_close(file);
        CHECK_INT(neo_ctx_memory(own).bytes, before);
        neo_ctx_destroy(own);
    }
    remove(at("m"));
    free(text);
}
static void malformed_headers(void) {
    static const struct {
        const char *header;
        size_t data;
        neo_status status;
        const char *message;
    } cases[] = {
        {"{}", 0, NEO_OK, ""},
        {"{}   ", 0, NEO_OK, ""},
        {"{\"a\":" T("F32", "2", "0,8") "}", 8, NEO_OK, ""},
        {"{\"a\":" T("F64", "1", "0,8") "}", 8, NEO_OK, ""},
        {"{\"a\":" T("BOOL", "1,2,3,1,1,1", "0,6") "}", 6, NEO_OK, ""},
        {"{\"a\":" T("F4", "6", "0,3") "}", 3, NEO_OK, ""},
        {"{\"b\":" T("U8", "3", "4,7") ",\"a\":" T("F32", "", "0,4") ",\"e\":" T("I64", "0,9",
                                                                                 "4,4") "}",
         7, NEO_OK, ""},
        {"{\"a\":" T("U8", "0,9223372036854775807,9223372036854775807", "0,0") "}", 0,
         NEO_ERR_FORMAT, "too large"},
        {"{}", 1, NEO_ERR_FORMAT, "0 bytes of data, the file has 1"},
        {" {}", 0, NEO_ERR_FORMAT, "does not begin with '{'"},
        {"[]", 0, NEO_ERR_FORMAT, "does not begin with '{'"},
        {"{}x", 0, NEO_ERR_FORMAT, "follows the end"},
        {"{\"a\":1}", 0, NEO_ERR_FORMAT, "expected '{'"},
        {"{\"a\":{}}", 0, NEO_ERR_FORMAT, "without dtype"},
        {"{\"a\":" T("F32", "2", "0,8") ",}", 8, NEO_ERR_FORMAT, "expected a string"},
        {"{\"a\":" T("F32", "2", "0,8") ",\"a\":" T("F32", "2", "8,16") "}", 16, NEO_ERR_FORMAT,
         "tensor a is there twice"},
        {"{\"a\":" T("F32", "2", "0,8") ",\"\\u0061\":" T("F32", "2", "8,16") "}", 16,
         NEO_ERR_FORMAT, "there twice"},
        {"{\"a\":" T("F31", "2", "0,8") "}", 8, NEO_ERR_FORMAT, "dtype"},
        {"{\"a\":" T("F32", "2", "0,7") "}", 7, NEO_ERR_FORMAT,
         "tensor a: data_offsets [0, 7] do not hold 2 elements of F32"},
        {"{\"a\":" T("F4", "5", "0,3") "}", 3, NEO_ERR_FORMAT, "5 elements of F4"},
        {"{\"a\":" T("F32", "2", "8,0") "}", 8, NEO_ERR_FORMAT, "[8, 0]"},
        {"{\"a\":" T("F32", "-2", "0,8") "}", 8, NEO_ERR_FORMAT, "not negative"},
        {"{\"a\":" T("F32", "2.0", "0,8") "}", 8, NEO_ERR_FORMAT, "an integer"},
        {"{\"a\":" T("F32", "4294967296,4294967296,4294967296", "0,8") "}", 8, NEO_ERR_FORMAT,
         "too large"},
        {"{\"a\":" T("F32", "4611686018427387904", "0,0") "}", 0, NEO_ERR_FORMAT, "too large"},
        {"{\"a\":" T("F32", "2", "0,8") "}", 7, NEO_ERR_FORMAT, "8 bytes of data, the file has 7"},
        {"{\"a\":" T("F32", "2", "0,8") "}", 9, NEO_ERR_FORMAT, "8 bytes of data, the file has 9"},
        {"{\"a\":" T("F32", "2", "4,12") "}", 12, NEO_ERR_FORMAT,
         "begins at byte 4 of the data, the one before ends at 0"},
        {"{\"a\":" T("F32", "1", "0,4") ",\"b\":" T("F32", "1", "5,9") "}", 9, NEO_ERR_FORMAT,
         "tensor b"},
        {"{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F32", "1", "4,8") "}", 8, NEO_ERR_FORMAT,
         "tensor b"},
        {"{\"a\":" T("F32", "1", "0,4") ",\"b\":" T("F32", "1", "0,4") "}", 4, NEO_ERR_FORMAT,
         "tensor b"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
         NEO_ERR_FORMAT, "none of dtype"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         NEO_ERR_FORMAT, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, NEO_ERR_FORMAT,
         "expected ']'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, NEO_ERR_FORMAT,
         "expected ','"},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, NEO_OK, ""},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0, NEO_ERR_FORMAT,
         "metadata key that is there twice"},
        {"{\"__metadata__\":{\"a\":1}}", 0, NEO_ERR_FORMAT, "expected a string"},
        {"{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{}}", 0, NEO_ERR_FORMAT, "twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, NEO_ERR_FORMAT, "twice"},
        {"{\"__metadata__\":[]}", 0, NEO_ERR_FORMAT, "expected '{'"},
        {"{\"\xFF\":" T("U8", "1", "0,1") "}", 1, NEO_ERR_FORMAT, "UTF-8"},
        {"{\"a\\u0000b\":" T("U8", "1", "0,1") "}", 1, NEO_ERR_FORMAT, "escape"},
    };
    size_t before = neo_ctx_memory(ctx).bytes;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        neo_safetensors *file = NULL;
        put_header(at("m"), cases[i].header, cases[i].data);
        neo_status status = neo_safetensors_open(ctx, at("m"), &file);
        if (status != cases[i].status ||
            (status != NEO_OK && !strstr(neo_last_error(), cases[i].message)))
            FAIL("%s: %s: %s", cases[i].header, neo_status_string(status),
                 status ? neo_last_error() : "");
        if (status != NEO_OK) CHECK(!file && strstr(neo_last_error(), "test_safetensors.m: "));
        neo_safetensors_close(file);
    }
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    remove(at("m"));
}
/* Files that open, with a tensor that is of another type than asked for, or that neo has not. */
static void unreadable_tensors(void) {
    neo_safetensors *file = NULL;
    neo_tensor t;
    put_header(at("m"), "{\"a\":" T("F64", "1", "0,8") "}", 8);
    REQUIRE_OK(neo_safetensors_open(ctx, at("m"), &file));
    CHECK_OK(neo_safetensors_info(file, 0, &t));
    CHECK(t.dtype == NEO_F64 && t.ndim == 1 && t.shape[0] == 1);
    double wide = 3;
    float narrow = 3;
    CHECK_ERR(neo_safetensors_read(file, 0, neo_tensor_1d(&narrow, NEO_F32, 1)), NEO_ERR_MISMATCH,
              "tensor a is f64, expected f32");
    CHECK_OK(neo_safetensors_read(file, 0, neo_tensor_1d(&wide, NEO_F64, 1)));
    CHECK(wide != 3);
    neo_safetensors_close(file);
    put_header(at("m"), "{\"a\":" T("BOOL", "1,2,3,1,1,1", "0,6") "}", 6);
    REQUIRE_OK(neo_safetensors_open(ctx, at("m"), &file));
    CHECK_ERR(neo_safetensors_info(file, 0, &t), NEO_ERR_UNSUPPORTED, "BOOL");
    neo_safetensors_close(file);
    put_header(at("m"), "{\"a\":" T("U8", "1,1,1,1,1", "0,1") "}", 1);
    REQUIRE_OK(neo_safetensors_open(ctx, at("m"), &file));
    CHECK_ERR(neo_safetensors_info(file, 0, &t), NEO_ERR_UNSUPPORTED, "5 dimensions");
    neo_safetensors_close(file);
    remove(at("m"));
}
static void malformed(void) {
    malformed_headers();
    unreadable_tensors();
}

static void lengths(void) {
    static const struct {
        unsigned char bytes[10];
        size_t size;
    } cases[] = {
        {{0}, 0},
        {{2, 0, 0, 0, 0, 0, 0}, 7},
        {{0}, 8},
        {{1, 0, 0, 0, 0, 0, 0, 0, '{'}, 9},
        {{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10},
        {{2, 0, 0, 0, 0, 0, 0, 128, '{', '}'}, 10},
        {{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'}, 10},
        {{2, 0, 0, 0, 1, 0, 0, 0, '{', '}'}, 10},
    };
    neo_safetensors *file = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put(at("l"), cases[i].bytes, cases[i].size);
        if (neo_safetensors_open(ctx, at("l"), &file) != NEO_ERR_FORMAT) FAIL("case %zu", i);
        CHECK(file == NULL);
    }
    remove(at("l"));
    CHECK_ERR(neo_safetensors_open(ctx, at("none"), &file), NEO_ERR_NOT_FOUND,
              "test_safetensors.none: cannot open");
    CHECK_ERR(neo_safetensors_open(ctx, ".", &file), NEO_ERR_IO, "is a directory");
    CHECK_ERR(neo_safetensors_open(ctx, "", &file), NEO_ERR_ARG, "empty");
    CHECK_ERR(neo_safetensors_open(ctx, NULL, &file), NEO_ERR_ARG, "NULL");
}

/* Whatever byte of the header changes, open refuses it or gives tensors inside the file. */
static void every_byte(void) {
    float w[6] = {1, 2, 3, 4, 5, 6}, back[64];
    int64_t step = 7;
    neo_tensor tensors[2] = {neo_tensor_2d(w, NEO_F32, 2, 3), neo_tensor_1d(&step, NEO_I64, 1)};
    static const char *const names[] = {"bottom.0.weight", "optim.step"}, *const metadata[] = {
                                                                              "step", "7"};
    size_t size;
    REQUIRE_OK(neo_safetensors_write(ctx, at("e"), names, tensors, 2, metadata, 1));
    unsigned char *file_bytes = slurp(at("e"), &size);
    REQUIRE(size > 8 && size == 8u + file_bytes[0] + 32);
    size_t before = neo_ctx_memory(ctx).bytes;
    for (size_t i = 0; i < size; i++) {
        for (int k = 0; k < 4; k++) {
            static const unsigned char flips[] = {1, 0x20, 0x80, 0xFF};
            neo_safetensors *file = NULL;
            file_bytes[i] ^= flips[k];
            put(at("e"), file_bytes, size);
            file_bytes[i] ^= flips[k];
            if (neo_safetensors_open(ctx, at("e"), &file) != NEO_OK) continue;
            for (int t = 0; t < neo_safetensors_count(file); t++) {
                neo_tensor info;
                if (neo_safetensors_info(file, t, &info) != NEO_OK) continue;
                info.data = back;
                CHECK(neo_tensor_bytes(info) <= 32);
                CHECK_OK(neo_safetensors_read(file, t, info));
            }
            neo_safetensors_close(file);
        }
    }
    for (size_t n = 0; n < size; n++) {
        neo_safetensors *file = NULL;
        put(at("e"), file_bytes, n);
        if (neo_safetensors_open(ctx, at("e"), &file) != NEO_ERR_FORMAT)
            FAIL("truncated to %zu bytes", n);
    }
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    free(file_bytes);
    remove(at("e"));
}

static void writer_errors(void) {
    float w[4] = {1, 2, 3, 4};
    neo_tensor good = neo_tensor_1d(w, NEO_F32, 4), two[2] = {good, good};
    const char *names[2] = {"a", "a"}, *one[1] = {"a"}, *bad[1] = {"\xFF"},
               *reserved[1] = {"__metadata__"};
    const char *pairs[] = {"k", "v", "k", "w"}, *none[] = {"k", NULL};
    neo_tensor strided = neo_tensor_transpose(neo_tensor_2d(w, NEO_F32, 2, 2), 0, 1),
               empty = neo_tensor_none();
    REQUIRE_OK(neo_safetensors_write(ctx, at("w"), one, &good, 1, NULL, 0));
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), names, two, 2, NULL, 0), NEO_ERR_ARG,
              "the name a is there twice");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), bad, &good, 1, NULL, 0), NEO_ERR_ARG, "UTF-8");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), reserved, &good, 1, NULL, 0), NEO_ERR_ARG,
              "reserved");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), one, &strided, 1, NULL, 0), NEO_ERR_ARG,
              "contiguous");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), one, &empty, 1, NULL, 0), NEO_ERR_ARG, "none");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), one, &good, 1, pairs, 2), NEO_ERR_ARG,
              "key k is there twice");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), one, &good, 1, none, 1), NEO_ERR_ARG,
              "metadata string 1");
    CHECK_ERR(neo_safetensors_write(ctx, at("none/w"), one, &good, 1, NULL, 0), NEO_ERR_NOT_FOUND,
              "w.partial: cannot open");
    CHECK_ERR(neo_safetensors_write(ctx, at("w"), one, NULL, 1, NULL, 0), NEO_ERR_ARG, "NULL");
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, at("w"), &file)); /* still the good one */
    CHECK_INT(neo_safetensors_count(file), 1);
    neo_safetensors_close(file);
    CHECK_OK(neo_safetensors_write(ctx, at("w"), NULL, NULL, 0, NULL, 0));
    REQUIRE_OK(neo_safetensors_open(ctx, at("w"), &file));
    CHECK_INT(neo_safetensors_count(file), 0);
    neo_safetensors_close(file);
    remove(at("w"));
}

/* Weights of another trainer, under its names. */
static void load_by_name(void) {
    float a[6], b[3], c[4], file_a[6], file_b[3], file_c[4];
    test_fill(file_a, 6);
    test_fill(file_b, 3);
    test_fill(file_c, 4);
    neo_tensor tensors[3] = {neo_tensor_2d(file_a, NEO_F32, 2, 3),
                             neo_tensor_1d(file_b, NEO_F32, 3),
                             neo_tensor_2d(file_c, NEO_F32, 2, 2)};
    static const char *const names[] = {"bot_l.0.weight", "top.2.bias", "emb_l.3.weight"};
    REQUIRE_OK(neo_safetensors_write(ctx, at("n"), names, tensors, 3, NULL, 0));
    neo_state *state = NULL;
    int64_t step = 5;
    REQUIRE_OK(neo_state_create(ctx, &state));
    REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "bottom.0.weight",
                             neo_tensor_2d(a, NEO_F32, 2, 3)));
    REQUIRE_OK(neo_state_add(state, NEO_STATE_WEIGHT, "top.2.bias", neo_tensor_1d(b, NEO_F32, 3)));
    REQUIRE_OK(
        neo_state_add(state, NEO_STATE_WEIGHT, "bags.C4.weight", neo_tensor_2d(c, NEO_F32, 2, 2)));
    REQUIRE_OK(
        neo_state_add(state, NEO_STATE_OPTIMIZER, "optim.step", neo_tensor_1d(&step, NEO_I64, 1)));
    static const neo_name_map map[] = {{"bot_l.*.weight", "bottom.*.weight", 0},
                                       {"emb_l.3.weight", "bags.C4.weight", 0}};
    int loaded = -1;
    memset(a, 0, sizeof a), memset(b, 0, sizeof b), memset(c, 0, sizeof c);
    CHECK_ERR(neo_load_safetensors(ctx, at("n"), map, 1, 0, state, &loaded), NEO_ERR_NOT_FOUND,
              "bags.C4.weight");
    CHECK(loaded == -1 && a[0] == 0 && b[0] == 0);
    CHECK_OK(neo_load_safetensors(ctx, at("n"), map, 2, 0, state, &loaded));
    CHECK_INT(loaded, 3);
    CHECK_BITS(a, file_a, sizeof a);
    CHECK_BITS(b, file_b, sizeof b);
    CHECK_BITS(c, file_c, sizeof c);
    CHECK_INT(step, 5);
    memset(b, 0, sizeof b);
    CHECK_OK(neo_load_safetensors(ctx, at("n"), NULL, 0, 1, state, &loaded));
    CHECK_INT(loaded, 1);
    CHECK_BITS(b, file_b, sizeof b);
    static const neo_name_map wrong_shape[] = {{"emb_l.3.weight", "bottom.0.weight", 0},
                                               {"emb_l.3.weight", "bags.C4.weight", 0}};
    memset(b, 0, sizeof b);
    CHECK_ERR(neo_load_safetensors(ctx, at("n"), wrong_shape, 2, 0, state, NULL), NEO_ERR_MISMATCH,
              "[2, 2], expected [2, 3]");
    CHECK(b[0] == 0);
    static const neo_name_map stars[] = {{"a.*", "b", 0}}, more_stars[] = {{"*.*", "*.*", 0}};
    CHECK_ERR(neo_load_safetensors(ctx, at("n"), stars, 1, 0, state, NULL), NEO_ERR_ARG, "map[0]");
    CHECK_ERR(neo_load_safetensors(ctx, at("n"), more_stars, 1, 0, state, NULL), NEO_ERR_ARG,
              "map[0]");
    CHECK_ERR(neo_load_safetensors(ctx, at("none"), map, 2, 0, state, NULL), NEO_ERR_NOT_FOUND,
              "none");
    neo_state_destroy(state);
    remove(at("n"));
}

/* ---- tensors that are asked for one after another ---- */
typedef struct supply {
    neo_tensor tensors[4];
    int asked[4], count, fails_at;
    float buffer[8]; /* one for all: what was given before is overwritten */
} supply;
static neo_status give(void *user, int index, const void **data) {
    supply *s = user;
    if (s->count == s->fails_at) return neo_fail(NEO_ERR_NUMERIC, "the source is dry");
    s->asked[s->count++] = index;
    memset(s->buffer, 0xEE, sizeof s->buffer);
    memcpy(s->buffer, s->tensors[index].data, neo_tensor_bytes(s->tensors[index]));
    *data = s->buffer;
    return NEO_OK;
}
static neo_status give_nothing(void *user, int index, const void **data) {
    (void)user, (void)index, (void)data;
    return NEO_OK;
}
static void streamed(void) {
    float z[6], a[4], c[3];
    int64_t step = 7;
    supply s = {.fails_at = -1};
    test_fill(z, 6);
    test_fill(a, 4);
    test_fill(c, 3);
    s.tensors[0] = neo_tensor_2d(z, NEO_F32, 2, 3);
    s.tensors[1] = neo_tensor_1d(a, NEO_F32, 4);
    s.tensors[2] = neo_tensor_1d(&step, NEO_I64, 1);
    s.tensors[3] = neo_tensor_1d(c, NEO_F32, 3);
    const char *const names[] = {"z", "a", "step", "c"}, *const twice[] = {"z", "a", "z", "c"};
    const char *const metadata[] = {"format", "pt"};
    neo_tensor shapes[4];
    for (int i = 0; i < 4; i++) shapes[i] = s.tensors[i], shapes[i].data = NULL;
    size_t before = neo_ctx_memory(ctx).bytes;
    REQUIRE_OK(neo_safetensors_stream(ctx, at("s"), names, shapes, 4, metadata, 1, give, &s));
    CHECK(s.count == 4 && s.asked[0] == 2 && s.asked[1] == 0 && s.asked[2] == 1 && s.asked[3] == 3);
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, at("s"), &file));
    CHECK(strcmp(neo_safetensors_metadata(file, "format"), "pt") == 0);
    for (int i = 0; i < 4; i++) {
        char back[24];
        neo_tensor t = s.tensors[i];
        t.data = back;
        CHECK_OK(neo_safetensors_read(file, neo_safetensors_find(file, names[i]), t));
        CHECK_BITS(back, s.tensors[i].data, neo_tensor_bytes(t));
        CHECK(strcmp(neo_safetensors_name(file, i), names[s.asked[i]]) == 0);
    }
    neo_safetensors_close(file);
    for (s.fails_at = 0; s.fails_at < 4;
         s.fails_at++) { /* the file is as before, nothing is left */
        s.count = 0;
        CHECK_ERR(neo_safetensors_stream(ctx, at("s"), names, shapes, 3, NULL, 0, give, &s),
                  s.fails_at < 3 ? NEO_ERR_NUMERIC : NEO_OK, s.fails_at < 3 ? "is dry" : "");
        REQUIRE_OK(neo_safetensors_open(ctx, at("s"), &file));
        CHECK_INT(neo_safetensors_count(file), s.fails_at < 3 ? 4 : 3);
        neo_safetensors_close(file);
        FILE *partial = fopen(at("s.partial"), "rb");
        CHECK(!partial);
        if (partial) fclose(partial);
    }
    CHECK_ERR(neo_safetensors_stream(ctx, at("s"), twice, shapes, 4, NULL, 0, give, &s),
              NEO_ERR_ARG, "neo_safetensors_stream: the name z is there twice");
    CHECK_ERR(neo_safetensors_stream(ctx, at("s"), names, shapes, 4, NULL, 0, NULL, &s),
              NEO_ERR_ARG, "fn is NULL");
    CHECK_ERR(neo_safetensors_stream(ctx, at("s"), names, shapes, 4, NULL, 0, give_nothing, &s),
              NEO_ERR_ARG, "no data for tensor step");
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    remove(at("s"));
}

/* A weight that the file has transposed: whole, and in parts of rows, columns and corners; narrow
   rows that are read several at once, and rows wider than the buffer. */
static void transposed_case(int rows, int cols, neo_dtype dtype) {
    int64_t count = (int64_t)rows * cols;
    float *values = malloc((size_t)count * sizeof(float)),
          *back = malloc((size_t)count * sizeof(float));
    char *stored = malloc((size_t)count * neo_dtype_size(dtype));
    float bias[3] = {1, 2, 3}, bias_back[3] = {0};
    neo_state *state = NULL;
    int loaded = 0;
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((int)(test_random() % 511) - 255); /* exact in 16 bits */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            neo_floats_encode(ctx, dtype, &values[r * cols + c],
                              stored + (size_t)(c * rows + r) * neo_dtype_size(dtype), 1);
    neo_tensor tensors[2] = {neo_tensor_2d(stored, dtype, cols, rows),
                             neo_tensor_1d(bias, NEO_F32, 3)};
    const char *const names[] = {"h.0.w", "h.0.b"};
    static const neo_name_map map[] = {{"h.*.w", "layer.*.w", 1}, {"h.*.b", "layer.*.b", 0}};
    REQUIRE_OK(neo_safetensors_write(ctx, at("t"), names, tensors, 2, NULL, 0));
    int row = rows / 3, col = cols / 2;
    neo_part parts[] = {{rows, cols, 0, 0, 0}, {rows, cols, row, 0, 0}, {rows, cols, row, col, 0}};
    memset(back, 0xFF, (size_t)count * sizeof(float));
    REQUIRE_OK(neo_state_create(ctx, &state));
    neo_tensor whole = neo_tensor_2d(back, NEO_F32, rows, cols),
               rest = neo_tensor_rows(whole, row, rows - row);
    neo_tensor corners[] = {neo_tensor_rows(whole, 0, row), neo_tensor_slice(rest, 1, 0, col),
                            neo_tensor_slice(rest, 1, col, cols - col)};
    for (int i = 0; i < 3; i++)
        CHECK_OK(neo_state_add_part(state, NEO_STATE_WEIGHT, "layer.0.w", corners[i], &parts[i]));
    CHECK_OK(
        neo_state_add(state, NEO_STATE_WEIGHT, "layer.0.b", neo_tensor_1d(bias_back, NEO_F32, 3)));
    CHECK_OK(neo_load_safetensors(ctx, at("t"), map, 2, 0, state, &loaded));
    CHECK_INT(loaded, 2);
    CHECK_BITS(back, values, (size_t)count * sizeof(float));
    CHECK_BITS(bias_back, bias, sizeof bias);
    neo_state_destroy(state);
    remove(at("t"));
    free(values);
    free(back);
    free(stored);
}
static void transposed(void) {
    static const int sizes[][2] = {{1, 1},   {2, 3},    {7, 1},     {1, 9},     {33, 70},
                                   {300, 5}, {5, 2000}, {2000, 40}, {140000, 2}};
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < 3; d++) transposed_case(sizes[i][0], sizes[i][1], dtypes[d]);
}
/* The same name in file and state; shapes that do not fit; a bias cannot be transposed. */
static void transposed_names(void) {
    float w[6] = {1, 2, 3, 4, 5, 6}, b[3] = {7, 8, 9}, back[6] = {0}, bias[3] = {0};
    neo_tensor tensors[2] = {neo_tensor_2d(w, NEO_F32, 2, 3), neo_tensor_1d(b, NEO_F32, 3)};
    const char *const names[] = {"c.w", "c.b"};
    static const neo_name_map same[] = {{"other.*", "c.*", 0}, {"*.w", "*.w", 1}},
                              all[] = {{"c.*", "c.*", 1}};
    static const neo_name_map later[] = {{"c.w", "d.w", 1}, {"c.*", "d.*", 0}};
    neo_state *state = NULL;
    REQUIRE_OK(neo_safetensors_write(ctx, at("t"), names, tensors, 2, NULL, 0));
    REQUIRE_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "c.w", neo_tensor_2d(back, NEO_F32, 3, 2)));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "c.b", neo_tensor_1d(bias, NEO_F32, 3)));
    CHECK_ERR(neo_load_safetensors(ctx, at("t"), NULL, 0, 0, state, NULL), NEO_ERR_MISMATCH,
              "tensor c.w has shape [2, 3], expected [3, 2]");
    CHECK_ERR(neo_load_safetensors(ctx, at("t"), all, 1, 0, state, NULL), NEO_ERR_MISMATCH,
              "tensor c.b: a weight of shape [3] cannot be transposed");
    CHECK(back[0] == 0 && bias[0] == 0);
    CHECK_OK(neo_load_safetensors(ctx, at("t"), same, 2, 0, state, NULL));
    CHECK(back[0] == 1 && back[1] == 4 && back[2] == 2 && back[3] == 5 && back[4] == 3 &&
          back[5] == 6 && bias[2] == 9);
    neo_state_destroy(state);
    REQUIRE_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "d.w", neo_tensor_2d(back, NEO_F32, 2, 3)));
    CHECK_ERR(neo_load_safetensors(ctx, at("t"), later, 2, 0, state, NULL), NEO_ERR_MISMATCH,
              "tensor c.w has shape [2, 3], expected [3, 2], transposed");
    neo_state_destroy(state);
    remove(at("t"));
}

/* What Python's package wrote: the values are those of golden/safetensors_files.py. */
static void from_python(void) {
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, "tests/golden/safetensors.safetensors", &file));
    CHECK(strcmp(neo_safetensors_metadata(file, "made by"), "safetensors \xE2\x82\xAC") == 0);
    float f[6] = {0};
    int64_t i64[3] = {0};
    uint8_t u8[4] = {0}, e4m3[2] = {0}, e5m2[2] = {0};
    int8_t i8[2] = {0};
    int32_t i32[2] = {0};
    float scalar = 0;
    const struct {
        const char *name;
        neo_tensor t;
    } tensors[] = {
        {"f32", neo_tensor_2d(f, NEO_F32, 2, 3)},
        {"i64", neo_tensor_1d(i64, NEO_I64, 3)},
        {"u8", neo_tensor_2d(u8, NEO_U8, 2, 2)},
        {"i8", neo_tensor_1d(i8, NEO_I8, 2)},
        {"i32", neo_tensor_1d(i32, NEO_I32, 2)},
        {"scalar", neo_tensor_nd(&scalar, NEO_F32, 0, NULL)},
        {"f8e4m3", neo_tensor_1d(e4m3, NEO_F8E4M3, 2)},
        {"f8e5m2", neo_tensor_1d(e5m2, NEO_F8E5M2, 2)},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        CHECK_OK(
            neo_safetensors_read(file, neo_safetensors_find(file, tensors[i].name), tensors[i].t));
    for (int i = 0; i < 6; i++) CHECK(f[i] == (float)i - 2.5f);
    CHECK(i64[0] == INT64_MIN && i64[1] == 0 && i64[2] == INT64_MAX);
    CHECK(u8[0] == 0 && u8[1] == 1 && u8[2] == 254 && u8[3] == 255);
    CHECK(i8[0] == -128 && i8[1] == 127 && i32[0] == INT32_MIN && i32[1] == INT32_MAX &&
          scalar == 0.25f);
    CHECK(e4m3[0] == 0x38 && e4m3[1] == 0xC0 && e5m2[0] == 0x3C && e5m2[1] == 0xC0); /* 1, -2 */
    static const char *const halves[] = {"f16", "bf16"};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(neo_safetensors_read(file, neo_safetensors_find(file, halves[i]),
                                      neo_tensor_1d(f, NEO_F32, 3)));
        CHECK(f[0] == 1.0f && f[1] == -0.5f && f[2] == 96.0f);
    }
    neo_tensor info;
    CHECK_OK(neo_safetensors_info(file, neo_safetensors_find(file, "empty"), &info));
    CHECK(info.ndim == 2 && info.shape[0] == 0 && info.shape[1] == 4);
    double f64 = 0;
    CHECK_OK(neo_safetensors_read(file, neo_safetensors_find(file, "f64"),
                                  neo_tensor_1d(&f64, NEO_F64, 1)));
    CHECK(f64 == 1);
    CHECK_INT(neo_safetensors_count(file), 12);
    neo_safetensors_close(file);
}

/* Many tensors: names found, order kept, memory given back. */
static void many(void) {
    enum { COUNT = 3000 };
    static int64_t values[COUNT];
    static char names[COUNT][32];
    static const char *list[COUNT];
    static neo_tensor tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = i;
        snprintf(names[i], sizeof names[i], "table.%d.weight", i * 7919 % COUNT);
        list[i] = names[i];
        tensors[i] = neo_tensor_1d(&values[i], NEO_I64, 1);
    }
    size_t before = neo_ctx_memory(ctx).bytes;
    REQUIRE_OK(neo_safetensors_write(ctx, at("y"), list, tensors, COUNT, NULL, 0));
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(ctx, at("y"), &file));
    for (int i = 0; i < COUNT; i++) {
        int64_t back = -1;
        CHECK_OK(neo_safetensors_read(file, neo_safetensors_find(file, names[i]),
                                      neo_tensor_1d(&back, NEO_I64, 1)));
        CHECK_INT(back, i);
    }
    neo_safetensors_close(file);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    remove(at("y"));
}

/* ---- every allocation fails once ---- */
typedef struct heap {
    int64_t calls, fail_at, live;
} heap;
static void *heap_alloc(size_t size, size_t align, void *user) {
    heap *h = user;
    if (++h->calls == h->fail_at) return NULL;
    h->live++;
    char *p = malloc(size + align + sizeof p), *block = p + sizeof p;
    block += (align - (uintptr_t)block % align) % align;
    memcpy(block - sizeof p, &p, sizeof p); /* what to give back */
    return block;
}
static void heap_free(void *ptr, size_t size, void *user) {
    heap *h = user;
    (void)size;
    h->live--;
    char *p;
    memcpy(&p, (char *)ptr - sizeof p, sizeof p);
    free(p);
}
static neo_status write_and_read(neo_ctx *heap_ctx, const neo_state *state) {
    float w[6] = {1, 2, 3, 4, 5, 6};
    neo_tensor t = neo_tensor_2d(w, NEO_F32, 2, 3);
    static const char *const names[] = {"other.weight"}, *const metadata[] = {"k", "v"};
    static const neo_name_map map[] = {{"other.*", "w.*", 0}};
    neo_safetensors *file = NULL;
    neo_status status = neo_safetensors_write(heap_ctx, at("h"), names, &t, 1, metadata, 1);
    if (!status) status = neo_safetensors_open(heap_ctx, at("h"), &file);
    CHECK((file != NULL) == (status == NEO_OK));
    neo_safetensors_close(file);
    supply s = {.tensors = {t}, .fails_at = -1};
    if (!status)
        status = neo_safetensors_stream(heap_ctx, at("h"), names, &t, 1, metadata, 1, give, &s);
    if (!status)
        status = neo_load_safetensors(heap_ctx, at("h"), map, 1, 0, (neo_state *)state, NULL);
    return status;
}
static void failing_allocations(void) {
    heap h = {0};
    neo_ctx_desc desc = {.allocator = {heap_alloc, heap_free, &h}, .threads = 1};
    neo_ctx *heap_ctx = NULL;
    neo_state *state = NULL;
    uint16_t half[6] = {0};
    REQUIRE_OK(neo_ctx_create(&desc, &heap_ctx));
    REQUIRE_OK(neo_state_create(heap_ctx, &state));
    CHECK_OK(
        neo_state_add(state, NEO_STATE_WEIGHT, "w.weight", neo_tensor_2d(half, NEO_F16, 2, 3)));
    int64_t live = h.live, n = 0;
    neo_status status = NEO_ERR_MEMORY;
    while (status != NEO_OK && n < 100) {
        h.calls = 0;
        h.fail_at = ++n;
        status = write_and_read(heap_ctx, state);
        CHECK(status == NEO_OK || (status == NEO_ERR_MEMORY && half[0] == 0));
        CHECK_INT(h.live, live);
    }
    CHECK(n > 10 && status == NEO_OK && half[0] == 0x3C00);
    neo_state_destroy(state);
    neo_ctx_destroy(heap_ctx);
    CHECK_INT(h.live, 0);
    remove(at("h"));
}

int main(void) {
    const char *dir = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/test_safetensors.", dir ? dir : ".");
    ctx = test_ctx(1, NEO_ISA_BEST, 1);
    RUN(round_trip);
    RUN(conversions);
    RUN(malformed);
    RUN(many_names);
    RUN(lengths);
    RUN(every_byte);
    RUN(writer_errors);
    RUN(load_by_name);
    RUN(streamed);
    RUN(transposed);
    RUN(transposed_names);
    RUN(from_python);
    RUN(many);
    RUN(failing_allocations);
    neo_ctx_destroy(ctx);
    return test_end("files/safetensors");
}
