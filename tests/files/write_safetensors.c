/* write_safetensors.c: one file with every dtype and odd shapes, for another reader to open
   (tests/files/safetensors_python.sh). Element k of every tensor is k - 2, or k where it is
   unsigned. Usage: write_safetensors FILE */
#include "neo_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 14, MOST = 256 };

static neo_status fill(neo_ctx *ctx, neo_tensor t) {
    float values[MOST];
    int64_t shape[4] = {1, 1, 1, 1}, n = neo_tensor_count(t);
    for (int i = 0; i < t.ndim; i++) shape[i] = t.shape[i];
    for (int64_t k = 0; k < n; k++) values[k] = (float)(t.dtype == NEO_U8 ? k : k - 2);
    return neo_tensor_convert(ctx, neo_tensor_nd(values, NEO_F32, t.ndim, shape), t, NULL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        neo_dtype dtype;
        int ndim;
        int64_t shape[4];
    } list[TENSORS] = {
        {"f32", NEO_F32, 2, {3, 5, 0, 0}},
        {"f16", NEO_F16, 1, {7, 0, 0, 0}},
        {"bf16", NEO_BF16, 2, {2, 3, 0, 0}},
        {"f8e4m3", NEO_F8E4M3, 1, {5, 0, 0, 0}},
        {"f8e5m2", NEO_F8E5M2, 1, {5, 0, 0, 0}},
        {"i8", NEO_I8, 1, {9, 0, 0, 0}},
        {"i32", NEO_I32, 3, {2, 2, 2, 0}},
        {"i64", NEO_I64, 1, {4, 0, 0, 0}},
        {"u8", NEO_U8, 1, {3, 0, 0, 0}},
        {"four", NEO_F32, 4, {2, 3, 4, 5}},
        {"empty", NEO_F32, 2, {0, 8, 0, 0}},
        {"scalar", NEO_F32, 0, {0, 0, 0, 0}},
        {"bags.a \"quoted\" \\ name.weight", NEO_F32, 1, {1, 0, 0, 0}},
        {"gr\xc3\xb6\xc3\x9f"
         "e/\xe8\xa1\xa8",
         NEO_F32,
         1,
         {2, 0, 0, 0}},
    };
    static const char *const metadata[] = {"format", "pt", "note", "a \"b\"\n\xc3\xa9"};
    static uint64_t memory[TENSORS][MOST];
    const char *names[TENSORS];
    neo_tensor tensors[TENSORS];
    neo_ctx *ctx = NULL;
    neo_status st = argc == 2 ? neo_ctx_create(NULL, &ctx) : NEO_ERR_ARG;
    for (int i = 0; i < TENSORS && st == NEO_OK; i++) {
        names[i] = list[i].name;
        tensors[i] = neo_tensor_nd(memory[i], list[i].dtype, list[i].ndim, list[i].shape);
        st = fill(ctx, tensors[i]);
    }
    if (st == NEO_OK)
        st = neo_safetensors_write(ctx, argv[1], names, tensors, TENSORS, metadata, 2);
    if (st != NEO_OK) fprintf(stderr, "%s: %s\n", neo_status_string(st), neo_last_error());
    neo_ctx_destroy(ctx);
    return st != NEO_OK;
}
