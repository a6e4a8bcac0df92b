/* make_synthetic.c PREFIX SAMPLES ROWS: the samples of `dlrm --synthetic SAMPLES --rows ROWS` as
   files, <PREFIX>{dense,sparse,labels}.npy, and those that it tests with, <PREFIX>test_...: to read
   them takes a fraction of what it takes to make them. */
#include "neo_data.h"
#include <stdio.h>
#include <stdlib.h>

static neo_status write_samples(neo_ctx *ctx, const neo_schema *schema, const char *prefix,
                                const char *part) {
    char path[1024];
    neo_reader *reader = NULL;
    const neo_reader_desc d = {.schema = schema, .batch = 100, .threads = 1};
    snprintf(path, sizeof path, "%s%s", prefix, part);
    neo_status status = neo_reader_open(ctx, &d, &reader);
    if (status == NEO_OK) status = neo_npy_export(ctx, reader, path);
    neo_reader_close(reader);
    return status;
}
int main(int argc, char **argv) {
    neo_ctx *ctx = NULL;
    neo_schema *train = NULL, *test = NULL;
    if (argc != 4) return 2;
    neo_synthetic_desc d = {.samples = atoll(argv[2]), .rows = atoll(argv[3])};
    neo_status status = neo_ctx_create(NULL, &ctx);
    if (status == NEO_OK) status = neo_schema_synthetic(ctx, &d, &train);
    d.first_sample = d.samples, d.samples = d.samples / 4 + 1, d.of = train;
    if (status == NEO_OK) status = neo_schema_synthetic(ctx, &d, &test);
    if (status == NEO_OK) status = write_samples(ctx, train, argv[1], "");
    if (status == NEO_OK) status = write_samples(ctx, test, argv[1], "test_");
    if (status != NEO_OK) printf("%s\n", neo_last_error());
    neo_schema_destroy(test);
    neo_schema_destroy(train);
    neo_ctx_destroy(ctx);
    return status != NEO_OK;
}
