/* manifest.c: any bytes as the body of a checkpoint's manifest. Its own checksum is put right
   first, so that mutations reach the parser; then as they are. Accepted file names must be
   plain. */

static const fuzz_seed manifest_seeds[] = {
    FUZZ_TEXT("{\"format\": \"neo-checkpoint\", \"version\": 1, \"step\": 12,\n"
              " \"definition\": {\n  \"repro_shards\": \"1\",\n  \"seed\": \"0\"},\n \"files\": [\n"
              "  {\"name\": \"model-00001-of-00001.safetensors\", \"bytes\": 366, "
              "\"crc32c\": \"ec0173e4\"},\n"
              "  {\"name\": \"model.safetensors.index.json\", \"bytes\": 175, "
              "\"crc32c\": \"dd414725\"}]"),
    FUZZ_TEXT("{\"files\":[],\"definition\":{},\"step\":12,\"version\":1,"
              "\"format\":\"neo-checkpoint\",\"more\":[1,{\"x\":null}]"),
    FUZZ_TEXT("{\"format\":\"neo-checkpoint\",\"version\":2,\"step\":12,\"metrics\":{\"auc\":0.78,"
              "\"a\":-1.5e-3,\"b\":null},\"definition\":{},\"files\":[]"),
};

static void manifest_run(neo_ctx *ctx, const neo_state *state, const void *data, size_t size) {
    neo_load_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dir = "fuzz";
    neo__ckpt_load *load = (neo__ckpt_load *)neo__alloc_zero(ctx, sizeof *load);
    FUZZ_CHECK(load != NULL);
    load->ctx = load->arena.ctx = ctx;
    load->desc = &desc;
    load->state = (neo_state *)state;
    load->step = 12;
    FUZZ_CHECK(NEO__ARENA(&load->arena, load->manifest, size) == NEO_OK);
    load->manifest_bytes = size;
    memcpy(load->manifest, data, size);
    neo_status status = neo__ckpt_check_manifest(load, "fuzz");
    FUZZ_CHECK(status == NEO_OK || status == NEO_ERR_FORMAT || status == NEO_ERR_CORRUPT ||
               status == NEO_ERR_UNSUPPORTED);
    if (status == NEO_OK) {
        for (int i = 0; i < load->file_count; i++)
            FUZZ_CHECK(!strchr(load->files[i].name, '/') && load->files[i].name[0] != '.' &&
                       load->files[i].bytes >= 0);
        status = neo__ckpt_check_definition(load);
        FUZZ_CHECK(status == NEO_OK || status == NEO_ERR_MISMATCH);
    }
    neo__ckpt_load_free(load);
    neo_free(ctx, load, sizeof *load);
}

static int manifest_input(const uint8_t *data, size_t size) {
    static neo_state *state;
    neo_ctx *ctx = fuzz_ctx();
    if (!state) FUZZ_CHECK(neo_state_create(ctx, &state) == NEO_OK);
    size_t before = neo_ctx_memory(ctx).bytes;
    char *text = (char *)malloc(size + NEO__CKPT_TAIL_BYTES + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    snprintf(text + size, NEO__CKPT_TAIL_BYTES + 1, NEO__CKPT_TAIL, neo_crc32c(0, data, size));
    manifest_run(ctx, state, text, size + NEO__CKPT_TAIL_BYTES);
    manifest_run(ctx, state, data, size);
    free(text);
    FUZZ_CHECK(neo_ctx_memory(ctx).bytes == before);
    return 0;
}
