/* checkpoint.c: a checkpoint is whole or it is not there, whatever happens while it is made.
   Method: saved and loaded states compared bit for bit; a child process killed with SIGKILL at
   random moments of its saves, then the last whole state loaded; one bit flipped at many places of
   every file, and files cut, missing or foreign, each refused with nothing changed; every
   allocation made to fail in turn; a file size limit in place of a full disk; other definitions
   and other tensors refused by name. A differential checkpoint has the rows that a list of all ids
   says, in the bytes that they take; one from elsewhere is refused for each thing wrong in it. */
#if !defined(_WIN32)
#define _DEFAULT_SOURCE 1
#endif
#include "neo_data.h"
#include "common.h"

#if !defined(_WIN32)
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#endif

static void clear(void) {
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command) != 0) FAIL("cannot remove %s", root);
}
static void make_dir(const char *path) {
    char command[4096];
    snprintf(command, sizeof command, "mkdir -p '%s'", path);
    if (system(command) != 0) FAIL("cannot make %s", path);
}
static int exists(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

/* ---- a state whose every bit follows from its step ---- */
enum { ROWS = 500, DIM = 16 };
typedef struct model {
    neo_state *state;
    float table[ROWS * DIM], sums[ROWS], bottom[40], bias[8];
    int64_t step, position[8];
    uint16_t half[5];
    double loss[3], best;
    char words[29]; /* a text of JSON, a struct */
} model;
static void model_add(model *m, neo_state_kind kind, const char *name, neo_tensor t) {
    CHECK_OK(neo_state_add(m->state, kind, name, t));
}
static int model_make(neo_ctx *ctx, model *m) {
    memset(m, 0, sizeof *m);
    if (neo_state_create(ctx, &m->state) != NEO_OK) return 0;
    model_add(m, NEO_STATE_WEIGHT, "bottom.0.weight", neo_tensor_2d(m->bottom, NEO_F32, 8, 5));
    model_add(m, NEO_STATE_WEIGHT, "bottom.0.bias", neo_tensor_1d(m->bias, NEO_F32, 8));
    model_add(m, NEO_STATE_WEIGHT, "bags.C1.weight", neo_tensor_2d(m->table, NEO_F32, ROWS, DIM));
    model_add(m, NEO_STATE_OPTIMIZER, "bags.C1.momentum1", neo_tensor_1d(m->sums, NEO_F32, ROWS));
    model_add(m, NEO_STATE_OPTIMIZER, "optim.half", neo_tensor_1d(m->half, NEO_BF16, 5));
    model_add(m, NEO_STATE_OPTIMIZER, "optim.step", neo_tensor_1d(&m->step, NEO_I64, 1));
    model_add(m, NEO_STATE_PROGRESS, "reader", neo_tensor_1d(m->position, NEO_I64, 8));
    model_add(m, NEO_STATE_PROGRESS, "job.loss", neo_tensor_1d(m->loss, NEO_F64, 3));
    model_add(m, NEO_STATE_OPTIMIZER, "job.best", neo_tensor_nd(&m->best, NEO_F64, 0, NULL));
    model_add(m, NEO_STATE_OPTIMIZER, "job.words", neo_tensor_1d(m->words, NEO_U8, 29));
    CHECK_OK(neo_state_define(m->state, "optimizer", "adagrad \"\\ \xC3\xA9"));
    return 1;
}
static void fill(void *data, size_t bytes, int64_t step, int salt) {
    uint64_t x = (uint64_t)step * 1000003u + (uint64_t)salt;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)data)[i] = (unsigned char)(x >> 56);
    }
}
static void model_fill(model *m, int64_t step) {
    for (int i = 0; i < neo_state_count(m->state); i++) {
        neo_tensor t = neo_state_tensor(m->state, i);
        fill(t.data, neo_tensor_bytes(t), step, i);
    }
}
/* 1: every bit is that of model_fill(step). */
static int model_is(const model *m, int64_t step) {
    static unsigned char want[sizeof m->table];
    for (int i = 0; i < neo_state_count(m->state); i++) {
        neo_tensor t = neo_state_tensor(m->state, i);
        fill(want, neo_tensor_bytes(t), step, i);
        if (memcmp(want, t.data, neo_tensor_bytes(t)) != 0) return 0;
    }
    return 1;
}
static neo_status save(neo_ctx *ctx, model *m, int64_t step, int keep) {
    neo_save_desc desc = {.dir = root, .step = step, .keep = keep};
    model_fill(m, step);
    return neo_save(ctx, &desc, m->state);
}
static neo_difference difference; /* of the last load */
static neo_status load(neo_ctx *ctx, model *m, int64_t step, int64_t *loaded) {
    neo_load_desc desc = {.dir = root, .step = step, .difference = &difference};
    difference = NEO_DIFFERS_NOT;
    return neo_load(ctx, &desc, m->state, loaded);
}

static neo_status load_into(neo_ctx *ctx, neo_state *state) {
    neo_load_desc desc = {.dir = root, .any_definition = 1};
    return neo_load(ctx, &desc, state, NULL);
}

static void save_load(void) {
    static model m;
    neo_ctx *ctx = test_ctx(2, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    int64_t step = -1;
    clear();
    REQUIRE(model_make(ctx, &m));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_NOT_FOUND, root);
    CHECK_OK(save(ctx, &m, 7, 0));
    put(at("/file"), "x", 1); /* a file where the directory should be is not no checkpoint */
    neo_load_desc file = {.dir = at("/file")}, below = {.dir = at("/file/below")};
    CHECK_ERR(neo_load(ctx, &file, m.state, &step), NEO_ERR_IO, "deep/file: cannot list");
    CHECK_ERR(neo_load(ctx, &below, m.state, &step), NEO_ERR_IO, "it is a file, or below one");
    CHECK_ERR(neo_find_checkpoint(at("/file"), &step), NEO_ERR_IO, "it is a file, or below one");
    model_fill(&m, 1);
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 7 && model_is(&m, 7));
    CHECK_OK(save(ctx, &m, 12, 0));
    CHECK_OK(save(ctx, &m, 999999999999, 3));
    for (int i = 0; i < 2; i++) {
        static const int64_t steps[] = {7, 12};
        model_fill(&m, 1);
        CHECK_OK(load(ctx, &m, steps[i], &step));
        CHECK(step == steps[i] && model_is(&m, steps[i]));
    }
    CHECK_OK(load(ctx, &m, -1, NULL));
    CHECK(model_is(&m, 999999999999));
    CHECK_ERR(load(ctx, &m, 8, &step), NEO_ERR_NOT_FOUND,
              "no whole checkpoint of step 8; the newest is of step 999999999999");
    uint64_t digest = neo_state_digest(m.state);
    m.loss[1] += 1; /* progress is in no digest, what follows is */
    CHECK(neo_state_digest(m.state) == digest);
    m.best = m.best == 0.5 ? 1 : 0.5;
    CHECK(neo_state_digest(m.state) != digest);
    CHECK_ERR(save(ctx, &m, -1, 0), NEO_ERR_ARG, "desc.step is -1");
    CHECK_ERR(save(ctx, &m, 1000000000000, 0), NEO_ERR_ARG, "desc.step");
    neo_state_destroy(m.state);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}

static void keep(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step;
    clear();
    REQUIRE(model_make(ctx, &m));
    step = -7;
    CHECK(neo_find_checkpoint(at(""), &step) == NEO_ERR_NOT_FOUND && step == -7);
    for (int64_t s = 10; s <= 50; s += 10) CHECK_OK(save(ctx, &m, s, 0));
    CHECK_OK(neo_find_checkpoint(at(""), &step));
    CHECK_INT(step, 50);
    CHECK(load(ctx, &m, 30, &step) == NEO_ERR_NOT_FOUND); /* 0 keeps two */
    CHECK_OK(load(ctx, &m, 40, &step));
    CHECK(!exists(at("/step-000000000030/manifest.json")) &&
          !exists(at("/step-000000000030.partial/manifest.json")));
    CHECK_OK(save(ctx, &m, 60, -1));
    CHECK_OK(save(ctx, &m, 70, -1));
    for (int64_t s = 40; s <= 70; s += 10) CHECK_OK(load(ctx, &m, s, &step));
    CHECK_OK(save(ctx, &m, 5, 2)); /* not the newest, but just saved */
    CHECK_OK(load(ctx, &m, 5, &step));
    CHECK_OK(load(ctx, &m, 70, &step));
    CHECK(load(ctx, &m, 60, &step) == NEO_ERR_NOT_FOUND);
    CHECK_OK(save(ctx, &m, 80, 1));
    CHECK_OK(load(ctx, &m, 80, &step));
    CHECK(load(ctx, &m, 70, &step) == NEO_ERR_NOT_FOUND);
    CHECK(load(ctx, &m, 5, &step) == NEO_ERR_NOT_FOUND);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

static const char *const file_names[] = {"model-00001-of-00001.safetensors",
                                         "state-00001-of-00001.safetensors",
                                         "model.safetensors.index.json", "manifest.json"};
/* Every byte of the small files and of both headers; every 37th of the rest. */
static void bit_flips(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = -5;
    int flips = 0;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    model_fill(&m, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    for (int f = 0; f < 4; f++) {
        char path[4096];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/step-000000000003/%s", root, file_names[f]);
        unsigned char *data = slurp(path, &size);
        REQUIRE(size > 100 && size < 1 << 20);
        FILE *file = fopen(path, "r+b");
        for (size_t i = 0; i < size; i += i < 1200 ? 1 : 37, flips++) {
            unsigned char byte = (unsigned char)(data[i] ^ 1u << test_random() % 8);
            fseek(file, (long)i, SEEK_SET);
            fputc(byte, file);
            fflush(file);
            neo_status status = load(ctx, &m, 0, &step);
            if (status != NEO_ERR_CORRUPT || !strstr(neo_last_error(), file_names[f]))
                FAIL("%s: byte %zu: %s: %s", file_names[f], i, neo_status_string(status),
                     neo_last_error());
            fseek(file, (long)i, SEEK_SET);
            fputc(data[i], file);
            fflush(file);
        }
        fclose(file);
        free(data);
    }
    CHECK(model_is(&m, 1) && step == -5 && flips > 3000);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(model_is(&m, 3));
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

static void damaged_files(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = -5;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    REQUIRE_OK(save(ctx, &m, 4, 0));
    model_fill(&m, 1);
    for (int f = 0; f < 4; f++) {
        char path[4096], aside[4096 + 8];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/step-000000000004/%s", root, file_names[f]);
        snprintf(aside, sizeof aside, "%s.aside", path);
        unsigned char *data = slurp(path, &size);
        for (size_t n = 0; n < size; n = n < 40 ? n + 1 : n * 2) {
            put(path, data, n);
            CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_CORRUPT, file_names[f]);
        }
        data[size] = '\n';
        put(path, data, size + 1);
        CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_CORRUPT, file_names[f]);
        rename(path, aside);
        if (f < 3) {
            CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_CORRUPT, file_names[f]);
            CHECK(strstr(neo_last_error(), "missing") != NULL);
            CHECK(strstr(neo_last_error(), "; the checkpoint before it is of step 3") != NULL);
        } else { /* without its manifest it does not exist */
            CHECK_OK(load(ctx, &m, 0, &step));
            CHECK(step == 3 && model_is(&m, 3));
            model_fill(&m, 1);
        }
        put(path, data, size);
        remove(aside);
        free(data);
    }
    CHECK(model_is(&m, 1));
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 4 && model_is(&m, 4));
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

#if !defined(_WIN32)
/* What other programs leave in the directory is neither read nor removed. */
static void junk(void) {
    static model m;
    static const char *const dirs[] = {"/step-7",
                                       "/step-0000000000010",
                                       "/step-000000000099",
                                       "/other",
                                       "/step-00000000000x",
                                       "/step-000000000098.partial.d",
                                       "/Step-000000000097"};
    static const char *const files[] = {"/step-000000000050",     "/manifest.json",
                                        "/step-000000000051.old", "/.hidden",
                                        "/other/manifest.json",   "/step-7/manifest.json"};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = -5;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) CHECK(mkdir(at(dirs[i]), 0777) == 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) put(at(files[i]), "junk", 4);
    put(at("/step-000000000003/note.txt"), "junk", 4);
    CHECK(symlink("none", at("/step-000000000052")) == 0);
    CHECK(mkdir(at("/step-000000000060.partial"), 0777) == 0); /* ours: cleaned */
    put(at("/step-000000000060.partial/manifest.json"), "junk", 4);
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 3 && model_is(&m, 3));
    CHECK_OK(save(ctx, &m, 5, 0));
    CHECK_OK(save(ctx, &m, 6, 0));
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 6 && model_is(&m, 6));
    CHECK(!exists(at("/step-000000000003/manifest.json")));
    CHECK(!exists(at("/step-000000000060.partial")));
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) CHECK(exists(at(dirs[i])));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) CHECK(exists(at(files[i])));
    CHECK_OK(
        save(ctx, &m, 99, 0)); /* a directory of this step that is no checkpoint is replaced */
    CHECK_OK(load(ctx, &m, 99, &step));
    CHECK_ERR(save(ctx, &m, 50, 0), NEO_ERR_IO, "step-000000000050"); /* a file is in the way */
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK_INT(step, 99);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* A process that died between the two renames of a replacement: the old one is found, then put
   back. */
static void interrupted_replacement(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = -5;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 8, 0));
    CHECK(rename(at("/step-000000000008"), at("/step-000000000008.old")) == 0);
    model_fill(&m, 1);
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 8 && model_is(&m, 8));
    REQUIRE_OK(save(ctx, &m, 9, 0));
    CHECK(exists(at("/step-000000000008/manifest.json")) && !exists(at("/step-000000000008.old")));
    model_fill(&m, 1);
    CHECK_OK(load(ctx, &m, 8, &step));
    CHECK(model_is(&m, 8));
    /* both there: the new one counts */
    CHECK(rename(at("/step-000000000008"), at("/step-000000000009.old")) == 0);
    CHECK_OK(load(ctx, &m, 0, &step));
    CHECK(step == 9 && model_is(&m, 9));
    REQUIRE_OK(save(ctx, &m, 9, 0));
    CHECK(!exists(at("/step-000000000009.old")));
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* Saves steps first, first + 1, ... (each twice, so that replacing is hit too) until killed. */
static void save_forever(int64_t first) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    if (!model_make(ctx, &m)) _exit(3);
    for (int64_t step = first;; step++)
        for (int i = 0; i < 2; i++)
            if (save(ctx, &m, step, 2) != NEO_OK) _exit(4);
}
static void killed(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t newest = 0;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 1, 2));
    int64_t begin = neo_time_ns();
    REQUIRE_OK(save(ctx, &m, 1, 2));
    int64_t took = neo_time_ns() - begin;
    newest = 1;
    int trials = 0, midway = 0, between = 0;
    for (; trials < 80; trials++) {
        fflush(stdout);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) save_forever(newest);
        kill_saving(child, trials % 4 == 0,
                    (int64_t)((double)took * 4 * test_random() / 2147483648.0) + 200000);
        midway += count_ending(".partial") > 0;
        between += count_ending(".old") > 0;
        int64_t step = -1;
        model_fill(&m, 0);
        REQUIRE_OK(load(ctx, &m, 0, &step));
        CHECK(step >= newest && model_is(&m, step));
        newest = step;
    }
    CHECK(midway >= 20);
    if (getenv("TEST_VERBOSE"))
        printf("  %d kills, %d while writing, %d while replacing\n", trials, midway, between);
    REQUIRE_OK(
        save(ctx, &m, newest + 1, 2)); /* a save after all that leaves nothing behind but two */
    CHECK_INT(count_ending(""), 2);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* A limit on the size of files fails writes as a full disk does, at every size of the files. */
static void full_disk(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = -5;
    struct rlimit old, limit;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    static const rlim_t sizes[] = {0, 1, 8, 100, 400, 1000, 4096, 20000, 32000};
    size_t before = neo_ctx_memory(ctx).bytes;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        limit = old;
        limit.rlim_cur = sizes[i];
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        neo_status status = save(ctx, &m, i % 2 ? 3 : 4, 1);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
        if (status != NEO_ERR_IO || !strstr(neo_last_error(), ".safetensors") ||
            !strstr(neo_last_error(), "cannot write"))
            FAIL("limit %d: %s: %s", (int)sizes[i], neo_status_string(status), neo_last_error());
        CHECK(!exists(at("/step-000000000004")) && !exists(at("/step-000000000004.partial")) &&
              !exists(at("/step-000000000003.partial")));
        model_fill(&m, 1);
        CHECK_OK(load(ctx, &m, 0, &step));
        CHECK(step == 3 && model_is(&m, 3));
    }
    signal(SIGXFSZ, handler);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    /* somewhere one cannot write, and a path that is a file */
    neo_save_desc desc = {.dir = "/proc/neo", .step = 1};
    CHECK(neo_save(ctx, &desc, m.state) != NEO_OK && strstr(neo_last_error(), "/proc/neo"));
    desc.dir = at("/step-000000000003/manifest.json");
    CHECK(neo_save(ctx, &desc, m.state) != NEO_OK && strstr(neo_last_error(), "manifest.json"));
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}
#endif

/* ---- other definitions, other tensors ---- */
/* A checkpoint that cannot be looked at (as root that is a link that leads to itself) is no missing
   one: nothing begins anew beside it, and nothing replaces it. */
static void unreadable(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    model m;
    int64_t step = -1;
    char path[4096], command[4200];
    clear();
    if (!model_make(ctx, &m)) return;
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 5}, m.state));
    snprintf(path, sizeof path, "%s/step-000000000007", root);
    if (symlink("step-000000000007", path) != 0) FAIL("symlink");
    CHECK_ERR(neo_find_checkpoint(root, &step), NEO_ERR_IO, "cannot look at");
    CHECK_ERR(neo_load(ctx, &(neo_load_desc){.dir = root}, m.state, &step), NEO_ERR_IO,
              "cannot look at");
    CHECK(step == -1);
    CHECK_ERR(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 7}, m.state), NEO_ERR_IO,
              "in the way");
    CHECK_OK(neo_load(ctx, &(neo_load_desc){.dir = root, .step = 5}, m.state, &step)); /* another */
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 8}, m.state));
    CHECK_OK(neo_find_checkpoint(root, &step));
    CHECK(step == 8);
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 5}, m.state));
    snprintf(command, sizeof command, "rm -rf '%s/step-000000000008'", root);
    if (system(command) != 0) FAIL("rm");
    if (unlink(path) != 0) FAIL("unlink");
    CHECK_OK(neo_find_checkpoint(root, &step));
    CHECK(step == 5);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}
/* A directory has one saver at a time. A lock ends with the file that holds it. */
static void locked(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    model m;
    int64_t step = -1;
    clear();
    if (!model_make(ctx, &m)) return;
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 1}, m.state));
    int other = open(root, O_RDONLY);
    if (flock(other, LOCK_EX | LOCK_NB) != 0) FAIL("flock: neo_save still holds the directory");
    CHECK_ERR(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 2}, m.state), NEO_ERR_IO,
              "somebody else is saving here");
    CHECK_OK(neo_load(ctx, &(neo_load_desc){.dir = root}, m.state, &step));
    CHECK(step == 1);
    close(other);
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 2}, m.state));
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}
/* What neo_load would refuse is not saved: the checkpoint before stays the newest. */
static void long_definition(void) {
    enum { BYTES = 70000000 };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    model m;
    int64_t step = -1;
    char *value = (char *)malloc(BYTES + 1);
    clear();
    if (!model_make(ctx, &m) || !value) return;
    memset(value, 'x', BYTES);
    value[BYTES] = 0;
    CHECK_OK(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 1}, m.state));
    CHECK_OK(neo_state_define(m.state, "long", value));
    CHECK_ERR(neo_save(ctx, &(neo_save_desc){.dir = root, .step = 2, .keep = 1}, m.state),
              NEO_ERR_ARG, "neo_load takes");
    CHECK_OK(neo_find_checkpoint(root, &step));
    CHECK(step == 1);
    free(value);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}
static void definitions(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1), *eight = test_ctx(1, NEO_ISA_BEST, 8);
    int64_t step;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    model_fill(&m, 1);
    REQUIRE_OK(neo_state_define(m.state, "optimizer", "sgd"));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH,
              "optimizer is 'adagrad \"\\ \xC3\xA9' there, 'sgd' here");
    CHECK_INT(difference, NEO_DIFFERS_DEFINITION);
    REQUIRE_OK(neo_state_define(m.state, "optimizer", "adagrad \"\\ \xC3\xA9"));
    REQUIRE_OK(neo_state_define(m.state, "k", "2"));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH, "k is not defined there, '2' here");
    CHECK(model_is(&m, 1));
    neo_load_desc desc = {.dir = root, .any_definition = 1};
    CHECK_OK(neo_load(ctx, &desc, m.state, &step));
    CHECK(model_is(&m, 3));
    REQUIRE_OK(save(ctx, &m, 4, 0)); /* with k */
    neo_state_destroy(m.state);
    REQUIRE(model_make(ctx, &m));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH, "k is '2' there, not defined here");
    neo_state_destroy(m.state);
    REQUIRE(model_make(eight, &m));
    CHECK_ERR(load(eight, &m, 3, &step), NEO_ERR_MISMATCH, "repro_shards is '1' there, '8' here");
    desc.any_definition = 0;
    desc.weights_only = 1; /* evaluation does not mind */
    desc.step = 3;
    CHECK_OK(neo_load(eight, &desc, m.state, &step));
    CHECK_ERR(neo_state_define(m.state, "", "x"), NEO_ERR_ARG, "key is empty");
    CHECK_ERR(neo_state_define(m.state, "x", "\xFF"), NEO_ERR_ARG, "UTF-8");
    neo_state_destroy(m.state);
    REQUIRE(model_make(ctx, &m)); /* words of the run come before those of a table */
    REQUIRE_OK(neo_state_define(m.state, "t.k", "5"));
    REQUIRE_OK(save(ctx, &m, 5, 0));
    neo_state_destroy(m.state);
    REQUIRE(model_make(ctx, &m));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH, "t.k is '5' there, not defined here");
    REQUIRE_OK(neo_state_define(m.state, "a.k", "6"));
    REQUIRE_OK(neo_state_define(m.state, "k", "2"));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH, "k is not defined there, '2' here");
    CHECK_ERR(load(ctx, &m, 4, &step), NEO_ERR_MISMATCH, "a.k is not defined there, '6' here");
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
    neo_ctx_destroy(eight);
}

static void other_tensors(void) {
    static model m, other;
    static float extra[4], small[ROWS * DIM];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    model_fill(&m, 1);
    model_add(&m, NEO_STATE_WEIGHT, "top.0.bias", neo_tensor_1d(extra, NEO_F32, 4));
    CHECK_ERR(load(ctx, &m, 0, &step), NEO_ERR_MISMATCH, "it has no tensor top.0.bias");
    CHECK_INT(difference, NEO_DIFFERS_TENSORS);
    CHECK(load(ctx, &m, 7, &step) == NEO_ERR_NOT_FOUND);
    CHECK_INT(difference, NEO_DIFFERS_NOT);
    REQUIRE_OK(save(ctx, &m, 4, 0));
    REQUIRE(model_make(ctx, &other));
    CHECK_ERR(load(ctx, &other, 4, &step), NEO_ERR_MISMATCH, "it has the tensor top.0.bias");
    CHECK_INT(difference, NEO_DIFFERS_TENSORS);
    neo_state_destroy(other.state);
    static const struct {
        neo_state_kind kind;
        neo_dtype dtype;
        int64_t rows, cols;
        const char *message;
    } cases[] = {
        {NEO_STATE_WEIGHT, NEO_F32, ROWS - 1, DIM,
         "bags.C1.weight has shape [500, 16], expected [499, 16]"},
        {NEO_STATE_WEIGHT, NEO_F16, ROWS, DIM, "bags.C1.weight is f32 there, f16 here"},
        {NEO_STATE_WEIGHT, NEO_I32, ROWS, DIM, "bags.C1.weight is f32 there, i32 here"},
        {NEO_STATE_OPTIMIZER, NEO_F32, ROWS, DIM, "it has no tensor bags.C1.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        neo_state *state = NULL;
        REQUIRE_OK(neo_state_create(ctx, &state));
        REQUIRE_OK(
            neo_state_add(state, cases[i].kind, "bags.C1.weight",
                          neo_tensor_2d(small, cases[i].dtype, cases[i].rows, cases[i].cols)));
        neo_load_desc desc = {.dir = root, .step = 3, .any_definition = 1,
                              .difference = &difference};
        difference = NEO_DIFFERS_NOT;
        CHECK_ERR(neo_load(ctx, &desc, state, &step), NEO_ERR_MISMATCH, cases[i].message);
        CHECK_INT(difference, NEO_DIFFERS_TENSORS);
        neo_state_destroy(state);
    }
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) CHECK(small[i] == 0.0f);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

static void weights_only(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t step = 0;
    clear();
    REQUIRE(model_make(ctx, &m));
    REQUIRE_OK(save(ctx, &m, 3, 0));
    /* the optimizer's file may even be gone */
    remove(at("/step-000000000003/state-00001-of-00001.safetensors"));
    static unsigned char want[sizeof m.table];
    model_fill(&m, 1);
    neo_load_desc desc = {.dir = root, .weights_only = 1};
    CHECK_OK(neo_load(ctx, &desc, m.state, &step));
    for (int i = 0; i < neo_state_count(m.state); i++) {
        neo_tensor t = neo_state_tensor(m.state, i);
        const char *name = neo_state_name(m.state, i);
        int weight = strstr(name, "weight") || strstr(name, "bias");
        fill(want, neo_tensor_bytes(t), weight ? 3 : 1, i);
        if (memcmp(want, t.data, neo_tensor_bytes(t)) != 0) FAIL("%s", name);
    }
    desc.weights_only = 0;
    CHECK_ERR(neo_load(ctx, &desc, m.state, &step), NEO_ERR_CORRUPT, "missing");
    desc.schema_only = 1;
    CHECK_ERR(neo_load(ctx, &desc, m.state, &step), NEO_ERR_ARG, "no schema");
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* ---- metrics, and manifests from elsewhere ---- */
static neo_status save_metrics(neo_ctx *ctx, const neo_state *state, const neo_metric *metrics,
                               int count) {
    neo_save_desc desc = {.dir = root, .step = 3, .metrics = metrics, .metric_count = count};
    return neo_save(ctx, &desc, state);
}
static void metrics(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    double back;
    const neo_metric good[] = {{"auc", 0.7812345678901234}, {"log loss", 0.1}, {"small", 5e-324},
                               {"large", -DBL_MAX},         {"zero", -0.0},    {"whole", 12345678},
                               {"\"\xC3\xA9\\", 1e-7},      {"lost", NAN},     {"far", -INFINITY}};
    neo_metric bad[] = {{"a", 1}, {"b", 2}, {"a", 3}};
    clear();
    REQUIRE(model_make(ctx, &m));
    CHECK_OK(save_metrics(ctx, m.state, good, 9));
    for (int i = 0; i < 9; i++) {
        back = 7;
        CHECK_OK(neo_checkpoint_metric(ctx, root, i % 2 ? 3 : 0, good[i].name, &back));
        if (i < 7) CHECK_BITS(&back, &good[i].value, sizeof back);
        else CHECK(back != back);
    }
    size_t size;
    char *text = (char *)slurp(at("/step-000000000003/manifest.json"), &size);
    text[size] = 0;
    CHECK(strstr(text, "\"metrics\": {\"auc\": 0.7812345678901234, \"log loss\": 0.1, "));
    CHECK(strstr(text, "\"lost\": null, \"far\": null},\n \"definition\""));
    free(text);
    CHECK_OK(load(ctx, &m, 3, NULL));
    back = 7;
    CHECK_ERR(neo_checkpoint_metric(ctx, root, 3, "none", &back), NEO_ERR_NOT_FOUND,
              "step-000000000003: it has no metric none");
    CHECK_ERR(neo_checkpoint_metric(ctx, root, 4, "auc", &back), NEO_ERR_NOT_FOUND, "of step 4");
    char word[8] = "before", leaves[32];
    CHECK_OK(neo_checkpoint_word(root, 0, "repro_shards", leaves, sizeof leaves));
    CHECK_INT(strtol(leaves, NULL, 10), neo_ctx_repro_shards(ctx));
    CHECK_OK(neo_checkpoint_word(root, 3, "repro_shards", leaves, strlen(leaves) + 1));
    CHECK_ERR(neo_checkpoint_word(root, 3, "repro_shards", word, strlen(leaves)), NEO_ERR_CAPACITY,
              "step-000000000003: repro_shards takes");
    CHECK_ERR(neo_checkpoint_word(root, 3, "repro", word, sizeof word), NEO_ERR_NOT_FOUND,
              "step-000000000003: its definition has no repro");
    CHECK_ERR(neo_checkpoint_word(root, 4, "repro_shards", word, sizeof word), NEO_ERR_NOT_FOUND,
              "of step 4");
    CHECK_ERR(neo_checkpoint_word(root, 3, NULL, word, sizeof word), NEO_ERR_ARG, "NULL");
    CHECK(strcmp(word, "before") == 0);
    CHECK_ERR(neo_checkpoint_metric(ctx, root, 3, NULL, &back), NEO_ERR_ARG, "NULL");
    CHECK(back == 7);
    CHECK_ERR(save_metrics(ctx, m.state, bad, 3), NEO_ERR_ARG, "metric a is there twice");
    bad[2].name = "";
    CHECK_ERR(save_metrics(ctx, m.state, bad, 3), NEO_ERR_ARG, "the name of metric 2");
    bad[2].name = "\xFF";
    CHECK_ERR(save_metrics(ctx, m.state, bad, 3), NEO_ERR_ARG, "not UTF-8");
    CHECK_ERR(save_metrics(ctx, m.state, bad, NEO_MAX_METRICS + 1), NEO_ERR_ARG, "metric_count");
    CHECK_ERR(save_metrics(ctx, m.state, NULL, 1), NEO_ERR_ARG, "metrics is NULL");
    CHECK_OK(neo_checkpoint_metric(ctx, root, 0, "auc", &back)); /* the good one is still there */
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* What metrics have counted is saved, and those that load it go on with it. Of the digest each
   tensor has a share of its own, but for progress. */
static void counted_metrics(void) {
    enum { COUNT = 400 };
    static float logit[COUNT], label[COUNT];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    const neo_metrics_desc desc = {.capacity = COUNT, .window = 100};
    neo_metrics *metrics[2] = {NULL, NULL};
    neo_metric_values value[2], window[2];
    static model m[2];
    neo_save_desc save = {.dir = root, .step = 8};
    for (int i = 0; i < COUNT; i++) logit[i] = test_uniform(), label[i] = (float)(i % 3 == 0);
    const neo_tensor x = neo_tensor_1d(logit, NEO_F32, COUNT),
                     y = neo_tensor_1d(label, NEO_F32, COUNT);
    clear();
    for (int k = 0; k < 2; k++) {
        REQUIRE(model_make(ctx, &m[k]));
        REQUIRE_OK(neo_metrics_create(ctx, &desc, &metrics[k]));
        CHECK_OK(neo_state_add_metrics(m[k].state, "seen", metrics[k]));
    }
    CHECK_ERR(neo_state_add_metrics(m[0].state, "more", NULL), NEO_ERR_ARG, "is NULL");
    CHECK_OK(neo_metrics_update(metrics[0], neo_tensor_rows(x, 0, 250),
                                neo_tensor_rows(y, 0, 250)));
    uint64_t one = 0, share[2][64];
    int kinds[3] = {0, 0, 0};
    REQUIRE(neo_state_count(m[0].state) <= 64);
    for (int k = 0; k < 2; k++) { /* one number of a table becomes another */
        m[0].table[77] = (float)k;
        for (int i = 0; i < neo_state_count(m[0].state); i++) {
            const int kind = neo_state_digest_entry(m[0].state, i, &share[k][i]);
            const int is_table = !strcmp(neo_state_name(m[0].state, i), "bags.C1.weight");
            kinds[kind]++;
            if (k && kind) CHECK((share[0][i] != share[1][i]) == is_table);
        }
    }
    CHECK_INT(kinds[1], 2 * 8);
    CHECK(kinds[0] >= 2 * 3 && kinds[2] == 0);
    CHECK_INT(neo_state_digest_entry(m[0].state, -1, &one), 0);
    CHECK_OK(neo_save(ctx, &save, m[0].state));
    CHECK_OK(load(ctx, &m[1], 8, NULL));
    for (int k = 0; k < 2; k++) {
        CHECK_OK(neo_metrics_update(metrics[k], neo_tensor_rows(x, 250, 150),
                                    neo_tensor_rows(y, 250, 150)));
        CHECK_OK(neo_metrics_lifetime(metrics[k], &value[k]));
        CHECK_OK(neo_metrics_window(metrics[k], &window[k]));
    }
    CHECK_INT(value[1].count, COUNT);
    CHECK_BITS(&value[0], &value[1], sizeof value[0]);
    CHECK_BITS(&window[0], &window[1], sizeof window[0]);
    for (int k = 0; k < 2; k++) neo_state_destroy(m[k].state), neo_metrics_destroy(metrics[k]);
    neo_ctx_destroy(ctx);
}

/* Lists of model.json, however it is written; what is no list of so many is named with its byte. */
static void counts_of_model_json(void) {
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    int64_t to[3] = {7, 7, 7};
    neo_save_desc desc = {
        .dir = root, .step = 3,
        .model = "{\"a\": {\"hot_rows\": [1]},\n\"hot\\u005Frows\"\n:[ 6 ,0\t,2], \"none\": []}"};
    const struct { const char *model, *text; } bad[] = {
        {"{\"hot_rows\": [6, 0]}", "model.json: byte 19: not one number of each feature"},
        {"{\"hot_rows\": [6, 0, 2, 1]}", "model.json: byte 2"},
        {"{\"hot_rows\": [6, -1, 2]}", "expected an integer, not negative"},
        {"{\"hot_rows\": 6}", "model.json: byte 13: expected '['"},
        {"{\"hot_rows\": [6, 0, 2]", "model.json: byte 22: expected ','"},
        {"[6, 0, 2]", "model.json: byte 0: expected '{'"},
        {" ", "model.json: byte 1"}};
    clear();
    REQUIRE(model_make(ctx, &m));
    CHECK_OK(neo_save(ctx, &desc, m.state));
    CHECK_OK(neo_checkpoint_counts(ctx, root, 3, "hot_rows", to, 3));
    CHECK(to[0] == 6 && to[1] == 0 && to[2] == 2);
    CHECK_OK(neo_checkpoint_counts(ctx, root, 0, "none", to, 0));
    CHECK_ERR(neo_checkpoint_counts(ctx, root, 3, "warm_rows", to, 3), NEO_ERR_NOT_FOUND,
              "model.json: it has no warm_rows");
    CHECK_ERR(neo_checkpoint_counts(ctx, root, 4, "hot_rows", to, 3), NEO_ERR_NOT_FOUND, "step 4");
    CHECK_ERR(neo_checkpoint_counts(ctx, root, 3, NULL, to, 3), NEO_ERR_ARG, "is NULL");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        desc.model = bad[i].model;
        CHECK_OK(neo_save(ctx, &desc, m.state));
        CHECK_ERR(neo_checkpoint_counts(ctx, root, 3, "hot_rows", to, 3), NEO_ERR_FORMAT,
                  bad[i].text);
    }
    desc.model = NULL;
    CHECK_OK(neo_save(ctx, &desc, m.state));
    CHECK_ERR(neo_checkpoint_counts(ctx, root, 3, "hot_rows", to, 3), NEO_ERR_NOT_FOUND,
              "model.json");
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* A manifest of step 12 with this body, whose checksum is right. */
static void put_manifest(const char *body, size_t bytes) {
    char *text = (char *)malloc(bytes + 64);
    memcpy(text, body, bytes);
    int tail = snprintf(text + bytes, 64, ",\n \"manifest_crc32c\": \"%08x\"}\n",
                        (unsigned)neo_crc32c(0, body, bytes));
    make_dir(at("/step-000000000012"));
    put(at("/step-000000000012/manifest.json"), text, bytes + (size_t)tail);
    free(text);
}
#define HEAD "{\"format\": \"neo-checkpoint\", \"version\": 2, \"step\": 12"
#define BASED(step)                                                                                \
    "{\"format\": \"neo-checkpoint\", \"version\": 3, \"step\": 12, \"base_step\": " step
#define NAMED(name) "{\"name\": \"" name "\", \"bytes\": 1, \"crc32c\": \"00000000\"}"
#define WORDS ", \"definition\": {}"
static void manifests_from_elsewhere(void) {
    static const struct {
        const char *body, *message;
    } cases[] = {
        {HEAD WORDS ", \"files\": [" NAMED("../model-1") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("/etc/passwd") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("..") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("C:\\\\model-1") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("a\\u002fb") "]", "not a plain file name"},
        {HEAD WORDS ", \"files\": [" NAMED("model-1") ", " NAMED("model-1") "]",
         "'model-1' is there twice"},
        {HEAD ", \"definition\": {\"a\": \"1\", \"b\": \"1\", \"a\": \"1\"}, \"files\": []",
         "'a' is there twice"},
        {HEAD WORDS WORDS ", \"files\": []", "a member that is there twice"},
        {HEAD WORDS ", \"files\": [], \"step\": 12", "a member that is there twice"},
        {HEAD WORDS ", \"files\": [{\"name\": \"a\", \"name\": \"b\"}]",
         "a member that is there twice"},
        {HEAD WORDS ", \"files\": [], \"base_step\": 3, \"base_crc32c\": \"00000000\", "
                    "\"depth\": 1",
         "a differential checkpoint (version 3), and no other, has base_step"},
        {BASED("3") WORDS ", \"files\": [], \"base_crc32c\": \"00000000\"", "has base_step"},
        {BASED("12") WORDS ", \"files\": [], \"base_crc32c\": \"00000000\", \"depth\": 1",
         "has base_step (below its step)"},
        {BASED("3") WORDS ", \"files\": [], \"base_crc32c\": \"0000000\", \"depth\": 1",
         "crc32c is not 8 hex digits"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": 1, \"auc\": 2}",
         "a metric that is there twice"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": \"1\"}", "expected a number"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": [1]}", "expected a number"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": 01}", "leading zero"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": 1e999}", "that no double holds"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": nil}", "expected a number"},
        {HEAD WORDS ", \"files\": [], \"metrics\": [1]", "expected '{'"},
        {HEAD WORDS ", \"files\": [], \"metrics\": {\"auc\": "
                    "0.1000000000000000000000000000000000000000000000000000000000001}",
         "more than 60 characters"},
    };
    enum { COUNT = sizeof cases / sizeof cases[0], DEEP = 100000, MANY = 100000 };
    static model m;
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    double value = 7;
    clear();
    REQUIRE(model_make(ctx, &m));
    model_fill(&m, 1);
    for (int i = 0; i < COUNT; i++) {
        put_manifest(cases[i].body, strlen(cases[i].body));
        CHECK_ERR(neo_checkpoint_metric(ctx, root, 12, "auc", &value), NEO_ERR_FORMAT,
                  cases[i].message);
        if (!strstr(cases[i].body, "\"auc\": 1, \"auc\"")) /* of which a load wants none */
            CHECK_ERR(load(ctx, &m, 12, NULL), NEO_ERR_FORMAT, cases[i].message);
    }
    CHECK(value == 7 && model_is(&m, 1));
    /* Deep: an end to recursion. Many words: memory that is warranted, and the first one that is
       unknown ends it. */
    static char body[32 * MANY];
    int n = snprintf(body, sizeof body, "%s%s", HEAD, ", \"files\": [], \"more\": ");
    memset(body + n, '[', DEEP);
    put_manifest(body, (size_t)(n + DEEP));
    CHECK_ERR(load(ctx, &m, 12, NULL), NEO_ERR_FORMAT, "nested too deep");
    n = snprintf(body, sizeof body, "%s%s", HEAD,
                 ", \"files\": [], \"definition\": {\"seed\":\"0\"");
    for (int i = 0; i < MANY; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, ",\"%x\":\"\"", (unsigned)i);
    body[n++] = '}';
    put_manifest(body, (size_t)n);
    size_t before = neo_ctx_memory(ctx).bytes;
    CHECK_ERR(load(ctx, &m, 12, NULL), NEO_ERR_MISMATCH, "0 is '' there, not defined here");
    CHECK(neo_ctx_memory(ctx).bytes == before);
    CHECK(neo_ctx_memory(ctx).peak_bytes - before < 12 * (size_t)n);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* A checkpoint of step 12 whose tensors are in one file. */
static size_t put_checkpoint(neo_ctx *ctx, const char *const *names, const neo_tensor *tensors,
                             int count, const char *const *metadata, int pairs) {
    static const char file[] = "/step-000000000012/model-00001-of-00001.safetensors";
    char body[400];
    size_t size;
    make_dir(at("/step-000000000012"));
    CHECK_OK(neo_safetensors_write(ctx, at(file), names, tensors, count, metadata, pairs));
    unsigned char *bytes = slurp(at(file), &size);
    snprintf(body, sizeof body,
             HEAD ", \"definition\": {\"repro_shards\": \"1\", \"seed\": \"0\"}, \"files\": "
                  "[{\"name\": \"%s\", \"bytes\": %zu, \"crc32c\": \"%08x\"}]",
             strrchr(file, '/') + 1, size, (unsigned)neo_crc32c(0, bytes, size));
    put_manifest(body, strlen(body));
    free(bytes);
    return size;
}
/* ---- differential checkpoints ---- */
enum { TABLES = 4, CHANGED_ROWS = 4000, IDS = 60 };
typedef struct tracked {
    neo_bags *bags;
    neo_state *state;
    char hit[TABLES][CHANGED_ROWS]; /* since the last checkpoint, by a list of all ids */
} tracked;
static const struct {
    neo_bag_optim_kind kind;
    neo_dtype dtype;
    int64_t dim, weight_bytes, state_bytes; /* of a row, with the scales of i8 */
    int weights_have_numbers, states_have_numbers;
} tracked_tables[TABLES] = {{NEO_BAG_ROWWISE_ADAGRAD, NEO_F32, 16, 64, 4, 1, 1},
                            {NEO_BAG_ADAM, NEO_BF16, 8, 16, 64, 1, 1},
                            {NEO_BAG_PARTIAL_ADAM, NEO_I8, 20, 28, 84, 1, 1},
                            {NEO_BAG_SGD, NEO_F16, 3, 6, 0, 1, 0}};
static void tracked_make(neo_ctx *ctx, tracked *t, int track) {
    static const char *const names[] = {"a", "b", "c", "d"};
    neo_table_desc tables[TABLES] = {{0}};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TABLES; i++)
        tables[i] = (neo_table_desc){.name = names[i], .rows = CHANGED_ROWS - i,
                                     .dim = tracked_tables[i].dim,
                                     .dtype = tracked_tables[i].dtype,
                                     .optim = {.kind = tracked_tables[i].kind},
                                     .track_rows = track};
    neo_bags_desc desc = {.tables = tables, .table_count = TABLES, .max_batch = IDS,
                          .max_ids = TABLES * IDS, .max_kept_rows = 2 * TABLES * IDS};
    neo_bags_memory memory;
    const size_t before = neo_ctx_memory(ctx).bytes;
    CHECK_OK(neo_bags_bytes(ctx, &desc, &memory));
    CHECK_OK(neo_bags_create(ctx, &desc, &t->bags));
    CHECK_INT(neo_ctx_memory(ctx).bytes - before,
              memory.weight_bytes + memory.state_bytes + memory.workspace_bytes);
    CHECK_OK(neo_state_create(ctx, &t->state));
    CHECK_OK(neo_state_add_bags(t->state, t->bags));
}
static void tracked_free(tracked *t) {
    neo_state_destroy(t->state);
    neo_bags_destroy(t->bags);
}
/* Bags of one id. kept: by two calls that keep, and a step. */
static void tracked_step(tracked *t, int kept, int most) {
    static int64_t ids[TABLES * IDS], offsets[TABLES * IDS + 1];
    static float dout[IDS * 47];
    for (int i = 0; i < IDS * 47; i++) dout[i] = (float)(i % 7) - 3.0f;
    for (int call = 0; call <= kept; call++) {
        for (int i = 0; i < TABLES * IDS; i++) {
            ids[i] = (int64_t)(test_random() % (uint32_t)most);
            offsets[i + 1] = i + 1;
            t->hit[i / IDS][ids[i]] = 1;
        }
        neo_jagged batch = {.feature_count = TABLES, .batch = IDS, .offsets = offsets,
                            .ids = ids, .id_dtype = NEO_I64};
        neo_tensor grad = neo_tensor_2d(dout, NEO_F32, IDS, 47);
        if (!kept) CHECK_OK(neo_bags_backward(t->bags, &batch, grad, 0.1f));
        else CHECK_OK(neo_bags_accumulate(t->bags, &batch, grad, NULL));
    }
    if (kept) CHECK_OK(neo_bags_step(t->bags, 0.1f));
}
static int64_t file_bytes(int64_t step, const char *name, int64_t *header) {
    size_t size;
    uint64_t n = 0;
    char path[100];
    snprintf(path, sizeof path, "/step-%012d/%s", (int)step, name);
    unsigned char *data = slurp(at(path), &size);
    if (size > 8) memcpy(&n, data, 8);
    free(data);
    *header = (int64_t)n + 8;
    return (int64_t)size;
}
/* Numbers of a file against the list. */
static void check_numbers(neo_ctx *ctx, const tracked *t, int64_t step) {
    neo_safetensors *file = NULL;
    char path[100], name[64];
    snprintf(path, sizeof path, "/step-%012d/%s", (int)step, file_names[0]);
    CHECK_OK(neo_safetensors_open(ctx, at(path), &file));
    for (int i = 0; file && i < TABLES; i++) {
        static int32_t numbers[CHANGED_ROWS];
        neo_tensor info;
        int64_t n = 0;
        snprintf(name, sizeof name, "bags.%c.weight[0:%d,0:%d].rows", 'a' + i, CHANGED_ROWS - i,
                 (int)tracked_tables[i].dim);
        const int index = neo_safetensors_find(file, name);
        CHECK(index >= 0);
        if (index < 0 || neo_safetensors_info(file, index, &info) != NEO_OK) continue;
        info.data = numbers;
        CHECK_OK(neo_safetensors_read(file, index, info));
        for (int row = 0; row < CHANGED_ROWS; row++)
            if (t->hit[i][row]) CHECK(n < info.shape[0] && numbers[n++] == row);
        CHECK_INT(info.shape[0], n);
    }
    neo_safetensors_close(file);
}
static void changed_rows(void) {
    static tracked t, plain, back;
    neo_ctx *ctx = test_ctx(3, NEO_ISA_BEST, 1);
    neo_save_desc save = {.dir = root, .full_every = 100, .keep = -1};
    neo_load_desc load = {.dir = root};
    int64_t header, full = 0, all = 0, rows = 0;
    const size_t before = neo_ctx_memory(ctx).bytes;
    clear();
    tracked_make(ctx, &plain, 0);
    tracked_make(ctx, &back, 1);
    tracked_make(ctx, &t, 1);
    for (save.step = 1; save.step <= 9; save.step++) {
        for (int i = 0; i < 3; i++)
            if (save.step != 5) tracked_step(&t, i == 1, save.step == 2 ? 200 : CHANGED_ROWS - 3);
        for (int i = 0; i < TABLES && save.step == 2; i++) { /* 5 % of the rows */
            CHECK_OK(neo_bags_note_rows(t.bags, i, 0, 200));
            memset(t.hit[i], 1, 200);
        }
        if (save.step == 7) { /* by hand */
            float row[20] = {1, 2, 3};
            CHECK_OK(neo_bags_set_rows(t.bags, 2, CHANGED_ROWS - 3, 1, row));
            CHECK_OK(neo_bags_note_rows(t.bags, 0, 64, 3));
            memset(&t.hit[0][64], 1, 3);
            t.hit[2][CHANGED_ROWS - 3] = 1;
            CHECK_ERR(neo_bags_note_rows(t.bags, 0, 1, CHANGED_ROWS), NEO_ERR_RANGE, "rows from 1");
        }
        if (save.step == 4) { /* elsewhere: of no chain */
            neo_save_desc best = {.dir = at("/best"), .step = 4};
            CHECK_OK(neo_save(ctx, &best, t.state));
        }
        CHECK_OK(neo_save(ctx, &save, t.state));
        int64_t weights = 0, states = 8, bytes = 0; /* 8: the count of steps */
        for (int i = 0; i < TABLES; i++)
            for (int row = 0; row < CHANGED_ROWS - i; row++) {
                const int there = save.step == 1 || t.hit[i][row], numbered = save.step > 1;
                weights += there * (tracked_tables[i].weight_bytes +
                                    4 * numbered * tracked_tables[i].weights_have_numbers);
                states += there * (tracked_tables[i].state_bytes +
                                   4 * numbered * tracked_tables[i].states_have_numbers);
                rows += save.step == 2 && there;
            }
        bytes = file_bytes(save.step, file_names[0], &header);
        CHECK_INT(bytes - header, weights);
        if (save.step == 1) full = bytes;
        bytes = file_bytes(save.step, file_names[1], &header);
        CHECK_INT(bytes - header, states);
        if (save.step == 1) all = full + bytes;
        if (save.step == 2)
            CHECK(rows == 800 && 10 * (bytes + file_bytes(2, file_names[0], &header)) <= all);
        if (save.step > 1) check_numbers(ctx, &t, save.step);
        memset(t.hit, 0, sizeof t.hit);
        CHECK_OK(neo_load(ctx, &load, back.state, NULL));
        CHECK(neo_state_digest(back.state) == neo_state_digest(t.state));
    }
    load.step = 1; /* a load of the weights alone, or of a file, leaves no base */
    load.weights_only = 1;
    CHECK_OK(neo_load(ctx, &load, back.state, NULL));
    save.step = 10;
    CHECK_OK(neo_save(ctx, &save, back.state));
    CHECK_INT(file_bytes(10, file_names[0], &header), full);
    save.step = 11; /* what is not tracked is always full, and a chain ends where it is */
    CHECK_OK(neo_save(ctx, &save, plain.state));
    CHECK_INT(file_bytes(11, file_names[0], &header), full);
    save.full_every = 2;
    for (save.step = 12; save.step <= 15; save.step++) {
        CHECK_OK(neo_save(ctx, &save, t.state)); /* 12: on 9, were it not for its depth */
        CHECK((file_bytes(save.step, file_names[0], &header) == full) == (save.step % 2 == 0));
    }
    tracked_free(&plain);
    tracked_free(&back);
    tracked_free(&t);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}
/* Saves while steps of several threads change the rows: what loads is the state of the begin, with
   any room for copies; memory is what was predicted. */
static void trained_meanwhile(void) {
    static tracked t, back;
    static const size_t rooms[] = {0, 1, 20000};
    neo_ctx *ctx = test_ctx(4, NEO_ISA_BEST, 1);
    neo_save_desc save = {.dir = root, .full_every = 3, .keep = 1};
    neo_load_desc load = {.dir = root};
    neo_saving *saving = NULL;
    size_t took[3], predicted[3];
    const size_t before = neo_ctx_memory(ctx).bytes;
    clear();
    tracked_make(ctx, &back, 1);
    tracked_make(ctx, &t, 1);
    for (save.step = 1; save.step <= 12; save.step++) {
        const int room = (int)(save.step % 3);
        save.copy_bytes = rooms[room];
        tracked_step(&t, 0, CHANGED_ROWS - 3);
        const uint64_t digest = neo_state_digest(t.state);
        predicted[room] = neo_save_begin_bytes(&save, t.state);
        const size_t memory = neo_ctx_memory(ctx).bytes;
        CHECK_OK(neo_save_begin(ctx, &save, t.state, &saving));
        took[room] = neo_ctx_memory(ctx).bytes - memory;
        for (int i = 0; i < 12; i++) tracked_step(&t, i % 3 == 0, CHANGED_ROWS - 3);
        for (int i = 0; i < 3 && saving; i++) CHECK_OK(neo_save_poll(&saving));
        CHECK_OK(neo_save_wait(&saving));
        CHECK_INT(neo_ctx_memory(ctx).bytes, memory);
        CHECK_OK(neo_load(ctx, &load, back.state, NULL));
        CHECK(neo_state_digest(back.state) == digest && neo_state_digest(t.state) != digest);
        if (save.step > 9) { /* full, and two of as many rows */
            CHECK(took[room] > predicted[room] && took[room] < predicted[room] + 300000);
            CHECK(predicted[0] > predicted[2] && predicted[2] > predicted[1]);
        }
    }
    CHECK_OK(neo_save_wait(&saving)); /* none is under way */
    CHECK_OK(neo_save_poll(NULL));
    save.dir = at("/none\nof\these");
    save.step = -1;
    CHECK_ERR(neo_save_begin(ctx, &save, t.state, &saving), NEO_ERR_ARG, "desc.step is -1");
    CHECK(!saving);
    tracked_free(&back);
    tracked_free(&t);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}
/* A checkpoint of step 12 on one of step 11, with [rows][4] of [8][4] and what says so. */
static void rows_from_elsewhere(void) {
    static const struct {
        int64_t rows, numbers[3];
        const char *says, *message;
        int wide;
    } cases[] = {
        {3, {1, 2, 7}, "8 n", NULL, 0},
        {3, {1, 2, 7}, "8 n", NULL, 1},
        {3, {1, 2, 8}, "8 n", "row number 2 is 8, not in [3, 8)", 0},
        {3, {1, 1, 7}, "8 n", "row number 1 is 1, not in [2, 8)", 1},
        {3, {-1, 1, 7}, "8 n", "row number 0 is -1, not in [0, 8)", 1},
        {2, {1, 2, 7}, "8 n", "the numbers of its 2 rows are not there", 0},
        {3, {1, 2, 7}, "8 none", "the numbers of its 3 rows are not there", 0},
        {3, {1, 2, 7}, "2 n", "the numbers of its 3 rows are not there", 0},
        {3, {1, 2, 7}, "99999999999999999999 n", "the numbers of its 3 rows are not there", 0},
        {3, {1, 2, 7}, "n", "the numbers of its 3 rows are not there", 0},
        {3, {1, 2, 7}, "9 n", "its place is given as", 0},
        {3, {1, 2, 7}, "8 t[0:8,0:4]", "the numbers of its 3 rows are not there", 0},
        {3, {1, 2, 6}, "7 n", "its files have 28 elements, not each of the 32 once", 0},
    };
    static float x[8 * 4], changed[3 * 4];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_state *state;
    for (int i = 0; i < 12; i++) changed[i] = 100.0f + (float)i;
    clear();
    REQUIRE_OK(neo_state_create(ctx, &state));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "t", neo_tensor_2d(x, NEO_F32, 8, 4)));
    neo_save_desc save = {.dir = root, .step = 11};
    REQUIRE_OK(neo_save(ctx, &save, state));
    size_t size;
    unsigned char *base = slurp(at("/step-000000000011/manifest.json"), &size);
    const unsigned crc = (unsigned)neo_crc32c(0, base, size);
    free(base);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char file[] = "model-00001-of-00001.safetensors";
        int32_t narrow[3];
        for (int k = 0; k < 3; k++) narrow[k] = (int32_t)cases[i].numbers[k];
        const char *names[] = {"t[0:8,0:4]", cases[i].says[0] == '8' ? "t[0:8,0:4].rows" : "n"};
        char says[64];
        snprintf(says, sizeof says, "%s", cases[i].says);
        names[1] = "t[0:8,0:4].rows";
        if (says[strlen(says) - 1] == 'n') /* n stands for the name */
            snprintf(says + strlen(says) - 1, 40, "%s", names[1]);
        const char *metadata[] = {names[0], "[0,0] of [8,4] t", names[1], says};
        neo_tensor tensors[] = {
            neo_tensor_2d(changed, NEO_F32, cases[i].rows, 4),
            neo_tensor_1d(cases[i].wide ? (void *)(uintptr_t)cases[i].numbers : narrow,
                          cases[i].wide ? NEO_I64 : NEO_I32, 3)};
        for (int based = 1; based >= 0; based--) {
            put_checkpoint(ctx, names, tensors, 2, metadata, 2);
            char body[500], path[100];
            snprintf(path, sizeof path, "/step-000000000012/%s", file);
            unsigned char *bytes = slurp(at(path), &size);
            snprintf(body, sizeof body,
                     BASED("11") ", \"base_crc32c\": \"%08x\", \"depth\": 1, "
                     "\"definition\": {\"repro_shards\": \"1\", \"seed\": \"0\"}, \"files\": "
                     "[{\"name\": \"%s\", \"bytes\": %zu, \"crc32c\": \"%08x\"}]",
                     crc, file, size, (unsigned)neo_crc32c(0, bytes, size));
            if (based) put_manifest(body, strlen(body));
            free(bytes);
            memset(x, 0, sizeof x);
            if (!based || cases[i].message) {
                neo_status status = load_into(ctx, state);
                const char *want = based ? cases[i].message : "changed rows in a checkpoint";
                if (status == NEO_OK || (!strstr(neo_last_error(), want) && based))
                    FAIL("case %d, %d: %s: %s", (int)i, based, neo_status_string(status),
                         neo_last_error());
                for (int k = 0; k < 32; k++) CHECK(x[k] == 0.0f);
                if (!based && !cases[i].message) CHECK(strstr(neo_last_error(), want));
                continue;
            }
            CHECK_OK(load_into(ctx, state));
            for (int row = 0, n = 0; row < 8; row++) {
                const int there = n < 3 && cases[i].numbers[n] == row;
                for (int k = 0; k < 4; k++)
                    CHECK(x[row * 4 + k] == (there ? changed[n * 4 + k] : 0.0f));
                n += there;
            }
        }
    }
    neo_state_destroy(state);
    neo_ctx_destroy(ctx);
}

/* Files whose parts say that they are of a vast tensor, or hold the same elements again and again:
   refused before memory is asked for as they say. */
static void parts_from_elsewhere(void) {
    enum { PARTS = 1000, WIDE = 64 };
    static char names[PARTS][24];
    static const char *list[PARTS], *metadata[2 * PARTS];
    static neo_tensor tensors[PARTS];
    static float x[WIDE], y[WIDE];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_state *state;
    neo_export_desc out = {.dir = root, .path = "build/none/all"};
    clear();
    for (int i = 0; i < PARTS; i++) {
        snprintf(names[i], sizeof names[i], "t%d[0:64]", i);
        list[i] = metadata[2 * i] = names[i];
        metadata[2 * i + 1] = "[0] of [64] t";
        tensors[i] = neo_tensor_1d(x, NEO_F32, WIDE);
    }
    REQUIRE_OK(neo_state_create(ctx, &state));
    for (int i = 0; i < WIDE; i++) /* of which every part of the file has some */
        CHECK_OK(neo_state_add_part(state, NEO_STATE_WEIGHT, "t", neo_tensor_1d(y + i, NEO_F32, 1),
                                    &(neo_part){.rows = WIDE, .first_row = i}));
    size_t size = put_checkpoint(ctx, list, tensors, PARTS, metadata, PARTS);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_load_desc desc = {.dir = root, .any_definition = 1};
    CHECK_ERR(neo_load(ctx, &desc, state, NULL), NEO_ERR_MISMATCH,
              "of tensor t[0:1] its files have 2 elements, not each of the 1 once");
    CHECK(neo_ctx_memory(ctx).bytes == before);
    CHECK(neo_ctx_memory(ctx).peak_bytes - before < 4 * size);
    (void)put_checkpoint(ctx, list, tensors, 1, metadata, 1); /* and a good one */
    CHECK_OK(neo_load(ctx, &desc, state, NULL));
    metadata[1] = "[0] of [144115188075855871] t";
    before = neo_ctx_memory(ctx).peak_bytes;
    (void)put_checkpoint(ctx, list, tensors, 1, metadata, 1);
    CHECK_ERR(neo_export(ctx, &out), NEO_ERR_MISMATCH, "64 elements, not each of the 14411518807");
    CHECK(neo_ctx_memory(ctx).peak_bytes < before + (1 << 20));
    metadata[1] = "[0] of [288230376151711744] t";
    (void)put_checkpoint(ctx, list, tensors, 1, metadata, 1);
    CHECK_ERR(neo_export(ctx, &out), NEO_ERR_FORMAT, "its place is given as");
    neo_state_destroy(state);
    neo_ctx_destroy(ctx);
}
#undef HEAD
#undef NAMED
#undef WORDS

static void state_errors(void) {
    static model m;
    float x[4] = {0};
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_tensor t = neo_tensor_1d(x, NEO_F32, 4), none = neo_tensor_none();
    REQUIRE(model_make(ctx, &m));
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "reader", t), NEO_ERR_ARG,
              "reader is there already");
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "", t), NEO_ERR_ARG, "empty");
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "schema", t), NEO_ERR_ARG, "reserved");
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "a\xC0", t), NEO_ERR_ARG, "UTF-8");
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "n", none), NEO_ERR_ARG,
              "n: the tensor is none");
    CHECK_ERR(neo_state_add(m.state, (neo_state_kind)9, "n", t), NEO_ERR_ARG, "kind is 9");
    CHECK_ERR(neo_state_add(NULL, NEO_STATE_WEIGHT, "n", t), NEO_ERR_ARG, "NULL");
    const int64_t huge = (int64_t)1 << 62, none_of[] = {huge, 0, huge}, many[] = {huge, huge};
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "n", neo_tensor_nd(x, NEO_F32, 2, many)),
              NEO_ERR_ARG, "n: the tensor is none, not contiguous or too large");
    CHECK_ERR(neo_state_add(m.state, NEO_STATE_WEIGHT, "n", neo_tensor_nd(x, NEO_F32, 3, none_of)),
              NEO_ERR_ARG, "too large"); /* no header of a file may have it */
    CHECK_INT(neo_state_digest(NULL), 0);
    CHECK_INT(neo_state_count(m.state), 10);
    CHECK(strcmp(neo_state_name(m.state, 0), "bottom.0.weight") == 0);
    CHECK(!neo_state_name(m.state, 10) && !neo_state_name(m.state, -1) &&
          !neo_state_tensor(m.state, 10).data);
    for (int i = 0; i < 5000; i++) { /* names stay unique and found through growth */
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        CHECK_OK(neo_state_add(m.state, NEO_STATE_WEIGHT, name, t));
        CHECK(neo_state_add(m.state, NEO_STATE_WEIGHT, name, t) == NEO_ERR_ARG);
    }
    CHECK_INT(neo_state_count(m.state), 5010);
    neo_state_destroy(m.state);
    neo_ctx_destroy(ctx);
}

/* ---- the objects of a trainer ---- */
typedef struct objects {
    neo_params *params;
    neo_optim *optim;
    neo_bags *bags;
    neo_state *state;
    const neo_param *w;
} objects;
static neo_status objects_make(neo_ctx *ctx, neo_optim_kind kind, neo_bag_optim_kind bag_kind,
                               objects *o) {
    static const int64_t shape[] = {3, 5};
    neo_init init = {NEO_INIT_UNIFORM, -1, 1};
    neo_table_desc tables[2] = {
        {.name = "C1", .rows = 20, .dim = 4, .optim = {.kind = bag_kind}},
        {.name = "C2", .rows = 7, .dim = 8, .optim = {.kind = NEO_BAG_SGD}}};
    neo_bags_desc bags = {.tables = tables, .table_count = 2, .max_batch = 4, .max_ids = 16};
    neo_optim_desc optim = {.kind = kind};
    memset(o, 0, sizeof *o);
    neo_status status = neo_params_create(ctx, &o->params);
    if (!status) status = neo_params_add(o->params, "bottom.0.weight", 2, shape, init, &o->w);
    if (!status) status = neo_optim_create(ctx, o->params, &optim, &o->optim);
    if (!status) status = neo_bags_create(ctx, &bags, &o->bags);
    if (!status) status = neo_state_create(ctx, &o->state);
    if (!status) status = neo_state_add_params(o->state, o->params);
    if (!status) status = neo_state_add_optim(o->state, o->optim);
    if (!status) status = neo_state_add_bags(o->state, o->bags);
    return status;
}
static void objects_free(objects *o) {
    neo_state_destroy(o->state);
    neo_bags_destroy(o->bags);
    neo_optim_destroy(o->optim);
    neo_params_destroy(o->params);
}
/* One step whose gradients follow from its number. */
static void objects_step(objects *o, int64_t step) {
    static const int64_t offsets[] = {0, 1, 2, 4, 4, 5, 6, 6, 8};
    int64_t ids[8];
    float out[4 * 12];
    for (int i = 0; i < 8; i++) ids[i] = (step * 5 + i * i) % 7;
    neo_jagged batch = {
        .batch = 4, .feature_count = 2, .id_dtype = NEO_I64, .offsets = offsets, .ids = ids};
    for (int i = 0; i < 4 * 12; i++) out[i] = (float)((step * 31 + i * 7) % 17) * 0.1f - 0.8f;
    for (int i = 0; i < 15; i++)
        ((float *)o->w->grad.data)[i] = (float)((step * 13 + i * 11) % 23) * 0.1f - 1.1f;
    CHECK_OK(neo_bags_backward(o->bags, &batch, neo_tensor_2d(out, NEO_F32, 4, 12), 0.1f));
    CHECK_OK(neo_optim_step(o->optim, 0.01f));
}
/* Trained 5 + 5 steps with a checkpoint between, in new objects: the same bits as 10 in one go. */
static void resume(void) {
    enum { KINDS = NEO_OPTIM_COUNT };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    size_t before = neo_ctx_memory(ctx).bytes;
    clear();
    for (int k = 0; k < NEO_BAG_OPTIM_COUNT; k++) {
        objects a, b;
        REQUIRE_OK(objects_make(ctx, (neo_optim_kind)(k % KINDS), (neo_bag_optim_kind)k, &a));
        REQUIRE_OK(objects_make(ctx, (neo_optim_kind)(k % KINDS), (neo_bag_optim_kind)k, &b));
        CHECK(neo_state_digest(a.state) == neo_state_digest(b.state));
        neo_save_desc save_desc = {.dir = root, .step = 5};
        neo_load_desc load_desc = {.dir = root};
        for (int64_t step = 1; step <= 10; step++) {
            objects_step(&a, step);
            if (step == 5) CHECK_OK(neo_save(ctx, &save_desc, a.state));
        }
        CHECK_OK(neo_load(ctx, &load_desc, b.state, NULL));
        CHECK(neo_state_digest(a.state) != neo_state_digest(b.state));
        for (int64_t step = 6; step <= 10; step++) objects_step(&b, step);
        if (neo_state_digest(a.state) != neo_state_digest(b.state)) FAIL("optimizer %d", k);
        CHECK_INT(neo_optim_step_count(b.optim), 10);
        CHECK_INT(neo_bags_get_stats(b.bags).steps, 10);
        if (k == NEO_BAG_ROWWISE_ADAGRAD) {
            neo_safetensors *file = NULL;
            REQUIRE_OK(neo_safetensors_open(
                ctx, at("/step-000000000005/model-00001-of-00001.safetensors"), &file));
            CHECK(neo_safetensors_find(file, "bottom.0.weight") >= 0);
            CHECK(neo_safetensors_find(file, "bags.C1.weight") >= 0);
            CHECK(neo_safetensors_find(file, "bags.C2.weight") >= 0);
            CHECK_INT(neo_safetensors_count(file), 3);
            CHECK(strcmp(neo_safetensors_metadata(file, "step"), "5") == 0);
            neo_safetensors_close(file);
            REQUIRE_OK(neo_safetensors_open(
                ctx, at("/step-000000000005/state-00001-of-00001.safetensors"), &file));
            CHECK(neo_safetensors_find(file, "bags.C1.momentum1") >= 0);
            CHECK(neo_safetensors_find(file, "bags.step") >= 0);
            CHECK(neo_safetensors_find(file, "optim.step") >= 0);
            neo_safetensors_close(file);
        }
        int count = neo_state_count(a.state); /* adding again: all names are taken, none is added */
        CHECK_ERR(neo_state_add_params(a.state, a.params), NEO_ERR_ARG, "bottom.0.weight");
        CHECK_ERR(neo_state_add_optim(a.state, a.optim), NEO_ERR_ARG, "is there already");
        CHECK_ERR(neo_state_add_bags(a.state, a.bags), NEO_ERR_ARG, "bags.C1.weight");
        CHECK_INT(neo_state_count(a.state), count);
        objects_free(&a);
        objects_free(&b);
    }
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}

/* ---- dictionaries ---- */
static const char *const columns = "delimiter ,\ny label\na category\nb category\n";
static void dictionaries(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    neo_schema *fitted = NULL, *fresh = NULL, *other = NULL;
    neo_state *state = NULL, *again = NULL;
    float w[4] = {1, 2, 3, 4};
    int64_t step = 0;
    size_t before = neo_ctx_memory(ctx).bytes;
    clear();
    REQUIRE_OK(neo_schema_parse(ctx, columns, &fitted));
    REQUIRE_OK(neo_schema_parse(ctx, columns, &fresh));
    REQUIRE_OK(neo_schema_parse(ctx, columns, &other));
    REQUIRE_OK(neo_state_create(ctx, &state));
    REQUIRE_OK(neo_state_create(ctx, &again));
    CHECK_OK(neo_state_add(state, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 4)));
    neo_save_desc save_desc = {.dir = root, .step = 1};
    neo_load_desc load_desc = {.dir = root, .schema_only = 1};
    CHECK_OK(neo_save(ctx, &save_desc, state)); /* makes the directory; has no dictionaries */
    CHECK_OK(neo_state_add_schema(again, fresh));
    CHECK_ERR(neo_state_add_schema(again, fresh), NEO_ERR_ARG, "already");
    CHECK_ERR(neo_load(ctx, &load_desc, again, &step), NEO_ERR_MISMATCH, "no dictionaries");

    static const char lines[] = "1,red,x\n0,green,y\n1,blue,x\n0,red,z\n",
                      other_lines[] = "1,black,x\n0,white,y\n";
    put(at("/data"), lines, sizeof lines - 1);
    const char *paths[] = {at("/data")};
    REQUIRE_OK(neo_schema_fit(fitted, paths, 1, 0));
    CHECK_OK(neo_state_add_schema(state, fitted));
    save_desc.step = 2;
    CHECK_OK(neo_save(ctx, &save_desc, state));
    CHECK(!neo_schema_is_fitted(fresh));
    CHECK_OK(neo_load(ctx, &load_desc, again, &step));
    CHECK(step == 2 && neo_schema_is_fitted(fresh));
    for (int32_t f = 0; f < 2; f++)
        CHECK_INT(neo_schema_feature(fresh, f).rows, neo_schema_feature(fitted, f).rows);
    CHECK_OK(neo_state_add(again, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 4)));
    load_desc.schema_only = 0;
    CHECK_OK(neo_load(ctx, &load_desc, again, &step)); /* with dictionaries that agree */
    load_desc.weights_only = 1;
    CHECK_OK(neo_load(ctx, &load_desc, again, &step));
    neo_state_destroy(again);

    put(at("/data"), other_lines, sizeof other_lines - 1);
    REQUIRE_OK(neo_schema_fit(other, paths, 1, 0));
    REQUIRE_OK(neo_state_create(ctx, &again));
    CHECK_OK(neo_state_add(again, NEO_STATE_WEIGHT, "w", neo_tensor_1d(w, NEO_F32, 4)));
    load_desc.weights_only = 0;
    CHECK_ERR(neo_load(ctx, &load_desc, again, &step), NEO_ERR_MISMATCH, "columns is 'crc32c ");
    load_desc.any_definition = 1;
    CHECK_ERR(neo_load(ctx, &load_desc, again, &step), NEO_ERR_MISMATCH, "the tensor schema");
    load_desc.any_definition = 0;
    CHECK_OK(neo_state_add_schema(again, other));
    w[0] = 9;
    CHECK(neo_load(ctx, &load_desc, again, &step) == NEO_ERR_MISMATCH); /* other words */
    CHECK(w[0] == 9);
    neo_state_destroy(state);
    neo_state_destroy(again);
    neo_schema_destroy(fitted);
    neo_schema_destroy(fresh);
    neo_schema_destroy(other);
    CHECK_INT(neo_ctx_memory(ctx).bytes, before);
    neo_ctx_destroy(ctx);
}

/* ---- every allocation fails once ---- */
typedef struct heap {
    int64_t calls, fail_at, live; /* live: blocks not yet freed */
    size_t bytes;
} heap;
static void *heap_alloc(size_t size, size_t align, void *user) {
    heap *h = user;
    if (++h->calls == h->fail_at) return NULL;
    (void)
        align; /* 64 covers it; the size goes before the block, to be compared when it is freed */
    char *p = malloc(size + 128);
    if (!p) return NULL;
    char *block = p + 64 - ((uintptr_t)p & 63) + 64 - 64;
    if (block - p < 16) block += 64;
    memcpy(block - 8, &p, 8);
    memcpy(block - 16, &size, 8);
    h->live++;
    h->bytes += size;
    return block;
}
static void heap_free(void *ptr, size_t size, void *user) {
    heap *h = user;
    size_t was;
    char *p;
    memcpy(&p, (char *)ptr - 8, 8);
    memcpy(&was, (char *)ptr - 16, 8);
    if (was != size) FAIL("a block of %zu bytes is freed as %zu", was, size);
    h->live--;
    h->bytes -= size;
    free(p);
}
static neo_status add_all(neo_ctx *ctx, const objects *o, neo_state **state) {
    neo_status status = neo_state_create(ctx, state);
    if (!status) status = neo_state_add_params(*state, o->params);
    for (int part = 0; part < 2 && !status; part++) {
        int count = neo_state_count(*state);
        status = part ? neo_state_add_bags(*state, o->bags) : neo_state_add_optim(*state, o->optim);
        if (status) CHECK_INT(neo_state_count(*state), count); /* all or none */
    }
    return status;
}
static neo_status save_and_load(neo_ctx *ctx, model *m, int64_t step) {
    neo_status status = save(ctx, m, step, 0);
    if (status != NEO_OK) return status;
    model_fill(m, 1);
    status = load(ctx, m, 0, NULL);
    if (status == NEO_OK && !model_is(m, step))
        FAIL("step %" PRId64 " is not what was saved", step);
    if (status != NEO_OK && !model_is(m, 1)) FAIL("a failed load changed the state");
    return status;
}
static void failing_allocations(void) {
    static model m;
    heap h = {0};
    neo_ctx_desc desc = {.allocator = {heap_alloc, heap_free, &h}, .threads = 1};
    neo_ctx *ctx = NULL;
    clear();
    REQUIRE_OK(neo_ctx_create(&desc, &ctx));
    REQUIRE(model_make(ctx, &m));
    CHECK_OK(save_and_load(ctx, &m, 2));
    int64_t live = h.live, failures = 0;
    for (int64_t n = 1;; n++) {
        h.calls = 0;
        h.fail_at = n;
        neo_status status = save_and_load(ctx, &m, 3);
        int reached = h.calls >= n;
        h.fail_at = 0;
        CHECK_INT(h.live, live);
        if (!reached) {
            CHECK(status == NEO_OK);
            break;
        }
        failures++;
        if (status != NEO_ERR_MEMORY)
            FAIL("allocation %" PRId64 ": %s", n, neo_status_string(status));
        model_fill(&m, 0); /* what was there before loads still */
        int64_t step = 0;
        CHECK_OK(load(ctx, &m, 0, &step));
        CHECK(model_is(&m, step));
    }
    CHECK(failures >= 15);
    neo_state_destroy(m.state);
    h.fail_at = 0;
    for (int64_t n = 1; n < 100; n++) { /* building a state */
        neo_state *state = NULL;
        float x[2];
        h.calls = 0;
        h.fail_at = n;
        neo_status status = neo_state_create(ctx, &state);
        for (int i = 0; i < 40 && status == NEO_OK; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", i);
            status = neo_state_add(state, NEO_STATE_WEIGHT, name, neo_tensor_1d(x, NEO_F32, 2));
            if (status == NEO_OK) status = neo_state_define(state, name, name);
            if (status != NEO_OK)
                CHECK(neo_state_count(state) == i || neo_state_count(state) == i + 1);
        }
        CHECK(status == (h.calls >= n ? NEO_ERR_MEMORY : NEO_OK));
        neo_state_destroy(state);
        h.fail_at = 0;
    }
    objects o;
    CHECK_OK(objects_make(ctx, NEO_OPTIM_ADAM, NEO_BAG_ADAM, &o));
    neo_status status = NEO_ERR_MEMORY;
    for (int64_t n = 1; status != NEO_OK && n < 100; n++) {
        neo_state *state = NULL;
        h.calls = 0;
        h.fail_at = n;
        status = add_all(ctx, &o, &state);
        CHECK(status == (h.calls >= n ? NEO_ERR_MEMORY : NEO_OK));
        neo_state_destroy(state);
    }
    CHECK(status == NEO_OK);
    objects_free(&o);
    neo_ctx_destroy(ctx);
    CHECK_INT(h.live, 0);
    CHECK_INT(h.bytes, 0);
}

int main(void) {
    const char *dir = getenv("TMPDIR");
    char *deep = root + snprintf(root, 2000, "%s/test_checkpoint.tmp", dir ? dir : ".");
    strcpy(deep, "/deep"); /* so that two levels are to be made */
    RUN(save_load);
    RUN(keep);
    RUN(bit_flips);
    RUN(damaged_files);
#if !defined(_WIN32)
    RUN(junk);
    RUN(interrupted_replacement);
    RUN(killed);
    RUN(full_disk);
    RUN(unreadable);
    RUN(locked);
    RUN(long_definition);
#endif
    RUN(definitions);
    RUN(other_tensors);
    RUN(weights_only);
    RUN(metrics);
    RUN(counted_metrics);
    RUN(counts_of_model_json);
    RUN(manifests_from_elsewhere);
    RUN(parts_from_elsewhere);
    RUN(changed_rows);
    RUN(trained_meanwhile);
    RUN(rows_from_elsewhere);
    RUN(state_errors);
    RUN(resume);
    RUN(dictionaries);
    RUN(failing_allocations);
    *deep = 0;
    clear();
    return test_end("files/checkpoint");
}
