/* safetensors.c: any bytes as a safetensors file, held in memory. A length of the header that
   does not fit is cut to fit, so that mutations reach the header. What opens must tile the data,
   know its names, and say sizes that stay inside. */

/* The length of the header, below 256. */
#define LENGTH(n) n "\0\0\0\0\0\0\0"
static const fuzz_seed safetensors_seeds[] = {
    FUZZ_TEXT(LENGTH("\x02") "{}"),
    FUZZ_TEXT(LENGTH(
        "\x8C") "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,"
                "1],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"I8\",\"shape\":[3],"
                "\"data_offsets\":[8,11]}}12345678123"),
    FUZZ_TEXT(LENGTH("\xA1") "{\"w\":{\"shape\":[],\"data_offsets\":[0,2],\"dtype\":\"BF16\"},"
                             "\"e\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[2,2]},"
                             "\"x\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[2,4]}}1234"),
    FUZZ_TEXT(
        LENGTH("\x7D") "{\"u\":{\"dtype\":\"U8\",\"shape\":[1,2,1,2,1],\"data_offsets\":[0,4]},"
                       "\"\\u0041\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[4,"
                       "5]}}  12345"),
};

static void safetensors_check(const neo_safetensors *file) {
    int64_t at = 0;
    for (int i = 0; i < neo_safetensors_count(file); i++) {
        neo_tensor t;
        FUZZ_CHECK(neo_safetensors_find(file, neo_safetensors_name(file, i)) == i);
        FUZZ_CHECK(file->tensors[i].begin == at && file->tensors[i].end >= at);
        at = file->tensors[i].end;
        if (neo_safetensors_info(file, i, &t) != NEO_OK) continue;
        char byte;
        t.data = &byte;
        FUZZ_CHECK((int64_t)neo_tensor_bytes(t) == file->tensors[i].end - file->tensors[i].begin);
    }
    FUZZ_CHECK(at == file->data_bytes);
    for (int i = 0; i < file->metadata_count; i++)
        FUZZ_CHECK(neo_safetensors_metadata(file, file->metadata[i].name) ==
                   file->metadata[i].value);
}

static int safetensors_input(const uint8_t *data, size_t size) {
    if (size < 8) return 0;
    neo_ctx *ctx = fuzz_ctx();
    size_t before = neo_ctx_memory(ctx).bytes, header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (header > size - 8) header = size - 8;
    neo_safetensors *file = (neo_safetensors *)neo__alloc_zero(ctx, sizeof *file);
    FUZZ_CHECK(file != NULL);
    file->ctx = ctx;
    file->path = neo__string_copy(ctx, "fuzz");
    file->header = (char *)neo_alloc(ctx, header);
    file->header_bytes = header;
    FUZZ_CHECK(file->path && file->header);
    memcpy(file->header, data + 8, header);
    file->data_offset = 8 + (int64_t)header;
    file->data_bytes = (int64_t)(size - 8 - header);
    neo_status status = neo__st_parse(file);
    FUZZ_CHECK(status == NEO_OK || status == NEO_ERR_FORMAT);
    if (status == NEO_OK) safetensors_check(file);
    neo_safetensors_close(file);
    FUZZ_CHECK(neo_ctx_memory(ctx).bytes == before);
    return 0;
}
