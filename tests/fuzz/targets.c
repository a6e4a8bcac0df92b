/* targets.c: all fuzz targets, so that neo is compiled once for them. Each is one file beside this
   one, with NAME_seeds and NAME_input; links to the program are called NAME, which says what runs:

     NAME              the seeds and a few thousand plain mutations of each, always the same
     NAME FILE...      these inputs (a crash found elsewhere)
     NAME --write DIR  the seeds as files: a first corpus for libFuzzer

   Or, with -fsanitize=fuzzer and without NEO_FUZZ_MAIN, libFuzzer's program.

   FUZZ_CHECK(x) stops the program when x does not hold, as neo's own assertions do here. */
#define NEO_STATIC
#ifndef NEO_ASSERT
#define NEO_ASSERT(x) FUZZ_CHECK(x)
#endif
#define FUZZ_CHECK(x) ((x) ? (void)0 : fuzz_fail(#x, __FILE__, __LINE__))
static void fuzz_fail(const char *text, const char *file, int line);

#include "neo_plan.h"
#include "neo_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fuzz_fail(const char *text, const char *file, int line) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, text);
    fflush(stderr);
    abort();
}

typedef struct fuzz_seed {
    const void *data;
    size_t size;
} fuzz_seed;
#define FUZZ_TEXT(s)                                                                               \
    { (s), sizeof(s) - 1 } /* text may hold \0 */
#define FUZZ_BYTES(a)                                                                              \
    { (a), sizeof(a) }

/* Text as the lines of a block, the last with its end, as a source leaves them. Returns their
   bytes. */
static size_t fuzz_lines(neo__block *block, const uint8_t *text, size_t bytes) {
    size_t n = bytes;
    memcpy(block->raw, text, n);
    if (n > 0 && block->raw[n - 1] != '\n') block->raw[n++] = '\n';
    memset(block->raw + n, '\n', NEO__BLOCK_PAD);
    block->raw_bytes = n;
    block->bytes = (int64_t)bytes;
    return n;
}
/* A context for targets that need one: made at the first input, silent, one thread. */
static neo_ctx *fuzz_ctx(void) {
    static neo_ctx *ctx;
    if (!ctx) {
        neo_ctx_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.threads = 1;
        if (neo_ctx_create(&desc, &ctx) != NEO_OK) fuzz_fail(neo_last_error(), __FILE__, __LINE__);
    }
    return ctx;
}

/* Dictionaries from a block of bytes, as neo_load does. */
static neo_status fuzz_load_words(neo_schema *s, const void *bytes, size_t count) {
    void *dicts = NULL;
    neo_status status = neo__schema_load(s, bytes, count, &dicts);
    if (status == NEO_OK) neo__schema_install(s, dicts, 1);
    return status;
}

#include "columns.c"
#include "criteo.c"
#include "delimited.c"
#include "http.c"
#include "json.c"
#include "manifest.c"
#include "npy.c"
#include "plan.c"
#include "rows.c"
#include "safetensors.c"
#include "sample.c"
#include "svm.c"

#define TARGET(name)                                                                               \
    { #name, name##_input, name##_seeds, (int)(sizeof name##_seeds / sizeof *name##_seeds) }
static const struct fuzz_target {
    const char *name;
    int (*input)(const uint8_t *data, size_t size);
    const fuzz_seed *seeds;
    int count;
} targets[] = {
    TARGET(columns), TARGET(criteo), TARGET(delimited), TARGET(http), TARGET(json),
    TARGET(manifest), TARGET(npy), TARGET(plan), TARGET(rows), TARGET(safetensors), TARGET(sample),
    TARGET(svm),
}, *target;

static void find_target(const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0) target = &targets[i];
    if (!target) fuzz_fail(path, __FILE__, __LINE__);
}

#ifndef NEO_FUZZ_MAIN
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    find_target((*argv)[0]);
    return 0;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return target->input(data, size); }
#else
enum { FUZZ_ROUNDS = 2000, FUZZ_BYTES_MAX = 1 << 16 };
static uint64_t fuzz_state = 1;
static uint32_t fuzz_random(uint32_t below) {
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((fuzz_state >> 33) % below);
}

/* One to four plain edits: flip, overwrite, insert, remove, repeat a piece, cut the end. */
static size_t fuzz_mutate(uint8_t *b, size_t n) {
    static const char marks[] = "\t\n\r ,;|:\"{}[]()'0123456789abcdefAF-+.eE?\0\x7f\xff\x80";
    for (uint32_t edits = 1 + fuzz_random(4); edits > 0; edits--) {
        size_t at = n ? fuzz_random((uint32_t)n) : 0, len = 1 + fuzz_random(8);
        uint8_t mark = (uint8_t)marks[fuzz_random((uint32_t)sizeof marks - 1)];
        if (n == 0 || n + 64 > FUZZ_BYTES_MAX) {
            n = 1;
            b[0] = mark;
            continue;
        }
        if (len > n - at) len = n - at;
        switch (fuzz_random(7)) {
        case 0: b[at] ^= (uint8_t)(1u << fuzz_random(8)); break;
        case 1: b[at] = mark; break;
        case 2: b[at] = (uint8_t)fuzz_random(256); break;
        case 3:
            memmove(b + at + 1, b + at, n - at);
            b[at] = mark;
            n++;
            break;
        case 4:
            memmove(b + at, b + at + len, n - at - len);
            n -= len;
            break;
        case 5:
            memmove(b + at + len, b + at, n - at);
            n += len;
            break;
        default: n = fuzz_random(4) == 0 ? at : n; break;
        }
    }
    return n;
}

/* Inputs are copied to memory of exactly their size, so that a checker sees every step beyond
   it. */
static void fuzz_run(const void *data, size_t size) {
    uint8_t *copy = (uint8_t *)malloc(size ? size : 1);
    if (!copy) fuzz_fail("malloc", __FILE__, __LINE__);
    if (size) memcpy(copy, data, size);
    target->input(copy, size);
    free(copy);
}
static int fuzz_run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        printf("cannot open %s\n", path);
        return 0;
    }
    size_t size = 0, capacity = 0, got = 1;
    uint8_t *data = NULL;
    while (got > 0) {
        if (size == capacity)
            data = (uint8_t *)realloc(data, capacity = capacity ? 2 * capacity : 4096);
        if (!data) fuzz_fail("realloc", __FILE__, __LINE__);
        got = fread(data + size, 1, capacity - size, f);
        size += got;
    }
    fclose(f);
    fuzz_run(data, size);
    free(data);
    return 1;
}
static int fuzz_write_seed(const char *dir, int number, fuzz_seed seed) {
    char path[4096];
    snprintf(path, sizeof path, "%s/seed-%d", dir, number);
    FILE *f = fopen(path, "wb");
    int ok = f && fwrite(seed.data, 1, seed.size, f) == seed.size;
    if (f && fclose(f) != 0) ok = 0;
    if (!ok) printf("cannot write %s\n", path);
    return ok;
}
int main(int argc, char **argv) {
    static uint8_t buffer[FUZZ_BYTES_MAX + 64];
    int ran = 0, failed = 0;
    find_target(argv[0]);
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        for (int i = 0; i < target->count; i++)
            failed += !fuzz_write_seed(argv[2], i, target->seeds[i]);
        return failed != 0;
    }
    for (int i = 1; i < argc; i++) fuzz_run_file(argv[i]) ? ran++ : failed++;
    for (int i = 0; argc < 2 && i < target->count; i++, ran++) {
        const fuzz_seed *seed = &target->seeds[i];
        fuzz_run(seed->data, seed->size);
        for (int round = 0; round < FUZZ_ROUNDS; round++) {
            size_t n = seed->size < FUZZ_BYTES_MAX ? seed->size : FUZZ_BYTES_MAX;
            memcpy(buffer, seed->data, n);
            fuzz_run(buffer, fuzz_mutate(buffer, n));
        }
    }
    printf("fuzz/%s: %d passed, %d failed, 0 skipped\n", target->name, ran, failed);
    return failed != 0;
}
#endif
