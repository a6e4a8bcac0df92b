/* state.c: states of dense parameters in shards. Checkpoints of 4 ranks go on on 1, 3 and 8 in
   another mode, bit for bit; the whole model in one file has the same bytes from any ranks and
   mode, takes the memory that was predicted, and fails on all ranks alike; files of another trainer
   - 16 bits, transposed, under other names - load into parts. As threads; compiled with
   NEO_COMM_MPI, under mpirun: all on its ranks. test_fsdp_state FILE: writes a file, with state,
   for Python to read, and says what is in it. test_fsdp_state FILE FROM: writes what it loads from
   a file of Python's, of transposed weights. */
#include "common.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MODES = 6, SAVED_AT = 2, END_AT = 4, MOST_FILES = 2, WEIGHTS = 2 * LAYERS };
static char folder[200];
static _Thread_local int failing_allocations; /* that many, of this rank's next */

typedef struct Job {
    Config config;
    int first, last;       /* steps to train */
    int load, save;        /* a checkpoint before, after */
    uint64_t begins, ends; /* digests; 0: not known yet, this run finds them */
    int with_state;
    neo_dtype dtype;       /* of the other trainer's file */
    int transposed;
} Job;
static const char *in_folder(const char *name) {
    static _Thread_local char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}
static int speaks(const neo_comm *comm) { return neo_comm_rank(comm) == 0 || launched(); }

/* ---- ways to train ---- */
static const char *choose_mode(Config *c, int mode, int ranks) {
    static const neo_fsdp_mode modes[] = {NEO_FSDP_FULL, NEO_FSDP_ZERO1, NEO_FSDP_ZERO2,
                                          NEO_FSDP_DDP, NEO_FSDP_FULL, NEO_FSDP_DDP};
    int hybrid = mode == 4 && ranks > 1 && LEAVES % ranks == 0;
    c->desc.mode = modes[mode];
    c->desc.factor = hybrid ? ranks / 2 : 0;
    c->bare = mode == 5 ? (1 << UNITS) - 1 : 0;
    return hybrid ? "hybrid" : c->bare ? "ddp without windows" : neo_fsdp_mode_name(modes[mode]);
}
/* 0: the plain one. 1: a frozen unit, a unit on every rank, a loss scale that changes, reductions
   in bf16. */
static Config definition(int which) {
    Config c = config_new();
    c.steps = END_AT;
    if (which == 0) return c;
    c.desc.optim.kind = NEO_OPTIM_SGD;
    c.desc.optim.momentum = 0.9f;
    c.desc.loss_scale = 1024.0f;
    c.desc.loss_scale_window = 3; /* the state says that two were good */
    c.desc.reduce_dtype = NEO_BF16;
    c.desc.param_dtype = NEO_BF16;
    c.freeze = 1 << 3;
    c.replicate = 1 << 4;
    return c;
}
static void *count_alloc(size_t size, size_t align, void *user) {
    void *p;
    (void)user;
    if (failing_allocations && failing_allocations--) return NULL;
    return posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) == 0 ? p
                                                                                          : NULL;
}
static void count_free(void *p, size_t size, void *user) {
    (void)size, (void)user;
    free(p);
}
static int run(Job *job, int ranks, neo_comm_fn fn, const char *what) {
    NEO__ZERO(neo_comm_desc, d);
    d.ctx.repro_shards = LEAVES;
    d.ctx.seed = 7;
    d.ctx.allocator.alloc = count_alloc;
    d.ctx.allocator.free = count_free;
    d.timeout_ms = TEST_PATIENCE_MS;
    int was = failures, bad = run_ranks(ranks, &d, fn, job);
    if (bad || failures != was) fprintf(stderr, "  of: %s on %d ranks\n", what, ranks);
    return bad;
}
static neo_status state_of(neo_comm *comm, neo_fsdp *f, neo_state **state) {
    NEO__TRY(neo_state_create(neo_comm_ctx(comm), state));
    return neo_state_add_fsdp(*state, f);
}

/* ---- checkpoints of all ranks ---- */
static neo_status go_on(neo_comm *comm, void *user) {
    Job *job = (Job *)user;
    const Config *c = &job->config;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_group group = neo_comm_group(comm);
    Model m;
    neo_fsdp *f;
    neo_state *state;
    uint64_t digest = 0;
    EXPECT_OK(comm, fsdp_create(comm, c, &m, &f));
    EXPECT_OK(comm, state_of(comm, f, &state));
    if (job->load) {
        int64_t step = 0;
        NEO__ZERO(neo_load_desc, d);
        d.dir = in_folder("checkpoint");
        d.group = &group;
        if (!c->bare) { /* what is gathered before a load is old after it */
            EXPECT_OK(comm, neo_fsdp_forward_begin(f, 0));
            EXPECT_OK(comm, neo_fsdp_forward_end(f, 0));
            EXPECT_OK(comm, neo_fsdp_cancel(f));
        }
        EXPECT_OK(comm, neo_load(ctx, &d, state, &step));
        EXPECT(comm, step == job->first, "step %d", (int)step);
        EXPECT_OK(comm, neo_state_digest_group(state, &group, &digest));
        EXPECT(comm, digest == job->begins, "loaded %016llx, saved was %016llx",
               (unsigned long long)digest, (unsigned long long)job->begins);
    }
    for (int step = job->first; step < job->last; step++)
        EXPECT_OK(comm, train_step(comm, c, f, &m, step));
    EXPECT_OK(comm, neo_state_digest_group(state, &group, &digest));
    if (job->ends)
        EXPECT(comm, digest == job->ends, "trained %016llx, want %016llx",
               (unsigned long long)digest, (unsigned long long)job->ends);
    else if (speaks(comm)) job->ends = digest;
    if (job->save) {
        NEO__ZERO(neo_save_desc, d);
        d.dir = in_folder("checkpoint");
        d.step = job->last;
        d.group = &group;
        EXPECT_OK(comm, neo_save(ctx, &d, state));
    }
    neo_state_destroy(state);
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
static int checkpoints(int which, int mpi) {
    static const int loads[] = {1, 3, 8};
    int bad = 0;
    NEO__ZERO(Job, job);
    Job saved;
    job.config = definition(which);
    job.last = END_AT; /* without a break, and up to the save */
    bad += run(&job, mpi ? mpi : 1, go_on, "training without a break");
    uint64_t end = job.ends;
    job.last = SAVED_AT;
    job.ends = 0;
    bad += run(&job, mpi ? mpi : 1, go_on, "training to the save");
    for (int mode = 0; mode < MODES; mode++) {
        saved = job;
        saved.save = 1;
        const char *from = choose_mode(&saved.config, mode, mpi ? mpi : 4);
        bad += run(&saved, mpi ? mpi : 4, go_on, from);
        for (int i = 0; i < (mpi ? 1 : 3); i++) {
            NEO__ZERO(Job, loaded);
            int ranks = mpi ? mpi : loads[i];
            char what[80];
            loaded.config = job.config;
            snprintf(what, sizeof what, "a checkpoint of %s in %s", from,
                     choose_mode(&loaded.config, (mode + 1 + i) % MODES, ranks));
            loaded.load = 1;
            loaded.begins = job.ends;
            loaded.ends = end;
            loaded.first = SAVED_AT;
            loaded.last = END_AT;
            bad += run(&loaded, ranks, go_on, what);
        }
    }
    return bad;
}

/* ---- the whole model in one file ---- */
static char *reference[2]; /* the file without and with state, of the first run */
static long reference_bytes[2];
static char *read_all(const char *path, long *bytes) {
    FILE *file = fopen(path, "rb");
    *bytes = -1;
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = ftell(file);
    rewind(file);
    char *text = (char *)malloc((size_t)*bytes + 1);
    if (fread(text, 1, (size_t)*bytes, file) != (size_t)*bytes) *bytes = -1;
    fclose(file);
    return text;
}
static int exists(const char *path) { return access(path, F_OK) == 0; }
static int same_as_reference(const char *path, int which) {
    long bytes;
    char *text = read_all(path, &bytes);
    if (text && !reference[which]) {
        reference[which] = text;
        reference_bytes[which] = bytes;
        return 1;
    }
    int same = text && bytes == reference_bytes[which] &&
               memcmp(text, reference[which], (size_t)bytes) == 0;
    free(text);
    return same;
}
static void forget_references(void) {
    for (int i = 0; i < 2; i++) free(reference[i]), reference[i] = NULL;
}
/* By hand: of this model the largest unit is b.2, a matrix of 64 x 48 and 48 numbers, each at a
   multiple of 256. */
static size_t bytes_by_hand(const Config *c, int ranks, int rank, int with_state) {
    int factor = c->desc.mode == NEO_FSDP_DDP ? 1 : c->desc.factor ? c->desc.factor : ranks;
    int frozen = c->freeze ? 2 : 0, kinds = !with_state                           ? 0
                                            : c->desc.optim.kind == NEO_OPTIM_SGD ? 1
                                                                                  : 2;
    size_t count = (size_t)(WEIGHTS + kinds * (WEIGHTS - frozen) +
                            (!with_state              ? 0
                             : c->desc.loss_scale > 0 ? 3
                                                      : 1));
    size_t unit =
        factor == 1
            ? 0
            : (size_t)((64 * 48 + 256 + 256 * factor - 1) / (256 * factor) * (256 * factor)) * 4;
    size_t bytes = with_state && rank < factor ? unit / (size_t)factor : 0;
    if (rank > 0) return bytes;
    size_t names = (count * sizeof(char *) + 63) / 64 * 64,
           shapes = (count * sizeof(neo_tensor) + 63) / 64 * 64;
    return bytes + unit + names + shapes + count * 7 * sizeof(void *); /* of the file's list */
}
static neo_status write_measured(neo_comm *comm, const Config *c, neo_fsdp *f, int with_state) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_memory m = neo_ctx_memory(ctx);
    int rank = neo_comm_rank(comm);
    size_t pad = m.peak_bytes - m.bytes, predicted = neo_fsdp_write_bytes(f, with_state);
    void *fill = pad ? neo_alloc(ctx, pad) : NULL; /* so that the peak is that of the call */
    EXPECT(comm, neo_ctx_memory(ctx).bytes == m.peak_bytes, "%zu", neo_ctx_memory(ctx).bytes);
    EXPECT_OK(comm,
              neo_fsdp_write_safetensors(f, rank == 0 ? in_folder("full") : NULL, with_state));
    size_t took = neo_ctx_memory(ctx).peak_bytes - m.peak_bytes;
    EXPECT(comm, took == predicted, "took %zu bytes, predicted %zu", took, predicted);
    EXPECT(comm, predicted == bytes_by_hand(c, neo_comm_size(comm), rank, with_state),
           "predicted %zu, by hand %zu", predicted,
           bytes_by_hand(c, neo_comm_size(comm), rank, with_state));
    EXPECT(comm, neo_ctx_memory(ctx).bytes == m.peak_bytes, "%zu", neo_ctx_memory(ctx).bytes);
    neo_free(ctx, fill, pad);
    if (rank > 0) return NEO_OK;
    EXPECT(comm, same_as_reference(in_folder("full"), with_state), "with state %d", with_state);
    EXPECT(comm, !exists(in_folder("full.partial")), "it is there");
    return NEO_OK;
}
static neo_status write_files(neo_comm *comm, void *user) {
    const Config *c = &((Job *)user)->config;
    Model m;
    neo_fsdp *f;
    EXPECT_OK(comm, fsdp_create(comm, c, &m, &f));
    for (int step = 0; step < SAVED_AT; step++) EXPECT_OK(comm, train_step(comm, c, f, &m, step));
    NEO__TRY(write_measured(comm, c, f, 0));
    EXPECT_OK(comm,
              neo_fsdp_forward_begin(f, 1)); /* and in a step: others are gathered meanwhile */
    NEO__TRY(write_measured(comm, c, f, 1));
    EXPECT_OK(comm, neo_fsdp_forward_end(f, 1));
    EXPECT_OK(comm, neo_fsdp_cancel(f));
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
/* The file with state has the oracle's bits: read into plain parameters, each tensor as if it were
   a weight. */
static void against_oracle(const Config *c) {
    NEO__ZERO(neo_ctx_desc, d);
    neo_ctx *ctx = NULL;
    neo_optim *optim = NULL;
    neo_state *file = NULL, *state = NULL;
    Model m;
    uint64_t want = 0;
    int loaded = 0;
    d.repro_shards = LEAVES, d.seed = 7, d.threads = 1;
    Config to_save = *c;
    to_save.steps = SAVED_AT;
    neo_status status = neo_ctx_create(&d, &ctx);
    if (status == NEO_OK) status = oracle_digest(ctx, &to_save, 1, &want);
    if (status == NEO_OK) status = model_create(ctx, c, 0, &m);
    if (status == NEO_OK) status = neo_optim_create(ctx, m.set[0], &c->desc.optim, &optim);
    if (status == NEO_OK) status = neo_state_create(ctx, &file);
    if (status == NEO_OK) status = neo_state_create(ctx, &state);
    if (status == NEO_OK) status = neo_state_add_params(state, m.set[0]);
    if (status == NEO_OK) status = neo_state_add_optim(state, optim);
    int count = state ? neo_state_count(state) : 0;
    for (int i = 0; i < count && status == NEO_OK; i++)
        status = neo_state_add(file, NEO_STATE_WEIGHT, neo_state_name(state, i),
                               neo_state_tensor(state, i));
    if (status == NEO_OK)
        status = neo_load_safetensors(ctx, in_folder("full"), NULL, 0, 0, file, &loaded);
    checks++;
    if (status != NEO_OK || loaded != count || neo_state_digest(state) != want) {
        failures++;
        fprintf(stderr, "the file against the oracle: %s, %d of %d tensors\n",
                status ? neo_last_error() : "other bits", loaded, count);
    }
    neo_state_destroy(state);
    neo_state_destroy(file);
    neo_optim_destroy(optim);
    model_destroy(&m);
    neo_ctx_destroy(ctx);
}
static int one_file(int which, int mpi) {
    int bad = 0;
    forget_references();
    for (int ranks = mpi ? mpi : 1; ranks <= (mpi ? mpi : 8); ranks += ranks == 4 ? 4 : 1)
        for (int mode = 0; mode < MODES; mode++) {
            NEO__ZERO(Job, job);
            job.config = definition(which);
            const char *name = choose_mode(&job.config, mode, ranks);
            bad += run(&job, ranks, write_files, name);
            if (which == 0 && ranks == 1 && mode == 0) against_oracle(&job.config);
        }
    return bad;
}

/* ---- what stops one rank stops all ---- */
static neo_status refused(neo_comm *comm, neo_fsdp *f, neo_status want, const char *part,
                          const char *path, int with_state) {
    size_t before = neo_ctx_memory(neo_comm_ctx(comm)).bytes;
    EXPECT_ERR(comm, neo_fsdp_write_safetensors(f, path, with_state), want, part);
    EXPECT(comm, neo_ctx_memory(neo_comm_ctx(comm)).bytes == before, "%zu bytes stay",
           neo_ctx_memory(neo_comm_ctx(comm)).bytes - before);
    EXPECT(comm, !exists(in_folder("full.partial")), "after %s", part);
    return NEO_OK;
}
static neo_status full_disk(neo_comm *comm, neo_fsdp *f, long bytes) {
    struct rlimit old, limit;
    getrlimit(RLIMIT_FSIZE, &old);
    for (int i = 0; i < 6; i++) {
        const long limits[] = {0, 100, 3000, 9000, bytes / 2, bytes - 1};
        limit = old;
        limit.rlim_cur = (rlim_t)limits[i];
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        if (neo_comm_rank(comm) == 0) setrlimit(RLIMIT_FSIZE, &limit);
        neo_status status =
            refused(comm, f, NEO_ERR_IO, "full.partial: cannot write", in_folder("full"), 1);
        if (neo_comm_rank(comm) == 0) setrlimit(RLIMIT_FSIZE, &old);
        NEO__TRY(status);
    }
    return NEO_OK;
}
static neo_status errors(neo_comm *comm, void *user) {
    const Config *c = &((Job *)user)->config;
    int rank = neo_comm_rank(comm), last = neo_comm_size(comm) - 1;
    Model m;
    neo_fsdp *f;
    uint64_t digest = 0;
    long bytes = 0;
    EXPECT_OK(comm, fsdp_create(comm, c, &m, &f));
    for (int step = 0; step < SAVED_AT; step++) EXPECT_OK(comm, train_step(comm, c, f, &m, step));
    EXPECT_OK(comm, neo_fsdp_write_safetensors(f, in_folder("full"), 1));
    char *before = read_all(in_folder("full"), &bytes);
    NEO__TRY(full_disk(comm, f, bytes));
    NEO__TRY(
        refused(comm, f, NEO_ERR_ARG, "path is NULL", rank == 0 ? NULL : in_folder("full"), 0));
    NEO__TRY(refused(comm, f, NEO_ERR_NOT_FOUND, "none/full", in_folder("none/full"), 0));
    if (last > 0)
        NEO__TRY(refused(comm, f, NEO_ERR_MISMATCH,
                         "neo_fsdp_write_safetensors: another with_state than rank 0",
                         in_folder("full"), rank == last));
    for (int fails = 0; fails <= last && c->desc.mode != NEO_FSDP_DDP;
         fails += last > 1 ? last : 1) {
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        failing_allocations = rank == fails && (fails == 0 || !c->desc.factor);
        if (fails && c->desc.factor) break; /* that rank takes nothing */
        NEO__TRY(refused(comm, f, NEO_ERR_MEMORY, "neo_fsdp_write_safetensors: no memory for",
                         in_folder("full"), 1));
        EXPECT(comm, failing_allocations == 0, "%d", failing_allocations);
    }
    EXPECT_ERR(comm, neo_fsdp_write_safetensors(NULL, in_folder("full"), 0), NEO_ERR_ARG,
               "fsdp is NULL");
    long after = 0;
    char *now = read_all(in_folder("full"), &after);
    EXPECT(comm, before && now && after == bytes && memcmp(before, now, (size_t)bytes) == 0,
           "%ld bytes", after);
    free(before);
    free(now);
    for (int step = SAVED_AT; step < END_AT; step++)
        EXPECT_OK(comm, train_step(comm, c, f, &m, step));
    EXPECT_OK(comm, fsdp_digest(comm, f, &digest));
    EXPECT(comm, digest == ((Job *)user)->ends, "digest %016llx", (unsigned long long)digest);
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
static int failures_of_ranks(int mpi) {
    int bad = 0;
    for (int mode = 0; mode < MODES; mode++) {
        NEO__ZERO(Job, job);
        job.config = definition(1);
        job.last = END_AT;
        bad += run(&job, mpi ? mpi : 1, go_on, "training without a break");
        const char *name = choose_mode(&job.config, mode, mpi ? mpi : 4);
        bad += run(&job, mpi ? mpi : 4, errors, name);
    }
    return bad;
}

/* ---- files of another trainer ---- */
static float foreign_value(int layer, int64_t i) {
    return (float)((int)(mixed((uint64_t)(i * 16 + layer)) >> 40 & 511) - 255) * 0.125f;
}
/* Its names are "transformer.h.<layer>.c_fc.weight"; leaves one out, or gives it another shape. */
static neo_status write_foreign(neo_ctx *ctx, const Job *job, int without, int wrong) {
    static char memory[WEIGHTS][WIDEST * WIDEST * sizeof(float)];
    char names[WEIGHTS][64];
    const char *list[WEIGHTS];
    neo_tensor tensors[WEIGHTS];
    int count = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int k = 0; k < 2; k++) {
            int64_t rows = width[i + 1], cols = k ? 1 : width[i];
            if (2 * i + k == without) continue;
            for (int64_t e = 0; e < rows * cols; e++) {
                float x = foreign_value(2 * i + k, e);
                int64_t at = job->transposed ? e % cols * rows + e / cols : e;
                neo_floats_encode(ctx, job->dtype, &x,
                                  memory[count] + (size_t)at * neo_dtype_size(job->dtype), 1);
            }
            snprintf(names[count], sizeof names[count], "transformer.h.%d.c_fc.%s", i,
                     k ? "bias" : "weight");
            list[count] = names[count];
            if (k)
                tensors[count] =
                    neo_tensor_1d(memory[count], job->dtype, rows - (2 * i + k == wrong));
            else if (job->transposed)
                tensors[count] = neo_tensor_2d(memory[count], job->dtype, cols, rows);
            else tensors[count] = neo_tensor_2d(memory[count], job->dtype, rows, cols);
            count++;
        }
    return neo_safetensors_write(ctx, in_folder("foreign"), list, tensors, count, NULL, 0);
}
static int holds_foreign(neo_ctx *ctx, const char *path) {
    neo_safetensors *file = NULL;
    float values[WIDEST * WIDEST];
    int same = neo_safetensors_open(ctx, path, &file) == NEO_OK;
    for (int i = 0; i < WEIGHTS && same; i++) {
        char name[32];
        neo_tensor t;
        snprintf(name, sizeof name, "layer.%d.%s", i / 2, i % 2 ? "bias" : "weight");
        same = neo_safetensors_info(file, neo_safetensors_find(file, name), &t) == NEO_OK;
        t.data = values;
        same = same && neo_safetensors_read(file, neo_safetensors_find(file, name), t) == NEO_OK;
        for (int64_t e = 0; e < neo_tensor_count(t) && same; e++)
            same = values[e] == foreign_value(i, e);
    }
    neo_safetensors_close(file);
    return same;
}
/* Bytes that this process has read; -1: the system does not say. */
static long bytes_read(void) {
    long bytes = -1;
    FILE *file = fopen("/proc/self/io", "r");
    if (file && fscanf(file, "rchar: %ld", &bytes) != 1) bytes = -1;
    if (file) fclose(file);
    return bytes;
}
/* A unit that stays bound shows what was loaded, rounded to 8 bits. */
static int shows_foreign(const Model *m) {
    for (int i = 0; i < WEIGHTS; i++) {
        neo_tensor t = (i % 2 ? m->bias : m->weight)[i / 2]->value;
        for (int64_t e = 0; e < neo_tensor_count(t); e++) {
            double want = (double)foreign_value(i, e), shown = (double)((float *)t.data)[e];
            if (!(fabs(shown - want) <= fabs(want) / 256)) return 0;
        }
    }
    return 1;
}
static neo_status load_foreign(neo_comm *comm, void *user) {
    const Job *job = (const Job *)user;
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_name_map map[] = {{"transformer.h.*.c_fc.weight", "layer.*.weight", job->transposed},
                                {"transformer.h.*.c_fc.bias", "layer.*.bias", 0}};
    Model m;
    neo_fsdp *f;
    neo_state *state;
    long bytes = 0, began = 0;
    int loaded = 0, rank = neo_comm_rank(comm), ranks = neo_comm_size(comm);
    EXPECT_OK(comm, fsdp_create(comm, &job->config, &m, &f));
    EXPECT_OK(comm, state_of(comm, f, &state));
    EXPECT_OK(comm, neo_fsdp_write_safetensors(f, in_folder("full"), 0));
    char *before = rank ? NULL : read_all(in_folder("full"), &bytes);
    for (int what = 0; what < 3; what++) { /* without a tensor; with another shape; whole */
        neo_status status = NEO_OK;
        if (rank == 0) status = write_foreign(ctx, job, what == 0 ? 4 : -1, what == 1 ? 5 : -1);
        EXPECT_OK(comm, neo_comm_agree(comm, status));
        if (rank == 0) began = bytes_read();
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        status = neo_load_safetensors(ctx, in_folder("foreign"), map, 2, 0, state, &loaded);
        if (what == 2) EXPECT(comm, status == NEO_OK, "%s", neo_last_error());
        EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        if (what == 2) break;
        /* A rank that holds nothing of the tensor has nothing to miss. */
        neo_status agreed = neo_comm_agree(comm, status);
        EXPECT(comm,
               agreed == (what == 0 ? NEO_ERR_NOT_FOUND : NEO_ERR_MISMATCH) &&
                   strstr(neo_last_error(), what == 0
                                                ? "layer.2.weight"
                                                : "h.2.c_fc.bias has shape [63], expected [64]"),
               "%s", neo_last_error());
    }
    if (rank == 0 && began >= 0 && !launched() && !job->transposed &&
        job->config.desc.mode == NEO_FSDP_FULL) {
        long read = bytes_read() - began, file = 0;
        free(read_all(in_folder("foreign"), &file));
        EXPECT(comm, read >= 8 * ranks + 2000 && read < file + 2500 * ranks,
               "%ld bytes of %ld are read", read, file);
    }
    if (job->config.bare) EXPECT(comm, shows_foreign(&m), "old values");
    EXPECT_OK(comm, neo_fsdp_write_safetensors(f, in_folder("loaded"), 0));
    if (rank == 0) {
        long now = 0;
        char *after = read_all(in_folder("loaded"), &now);
        EXPECT(comm, holds_foreign(ctx, in_folder("loaded")), "values of %s",
               neo_dtype_name(job->dtype));
        EXPECT(comm, before && after && bytes == now && memcmp(before, after, (size_t)now) != 0,
               "%ld", now);
        free(after);
    }
    free(before);
    neo_state_destroy(state);
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
static int foreign(int mpi) {
    static const int worlds[] = {1, 2, 3, 8};
    static const neo_dtype dtypes[] = {NEO_F32, NEO_F16, NEO_BF16};
    int bad = 0, turn = 0;
    for (int w = 0; w < (mpi ? 1 : 4); w++)
        for (int i = 0; i < 6; i++, turn++) {
            NEO__ZERO(Job, job);
            int ranks = mpi ? mpi : worlds[w];
            job.config = definition(0);
            job.dtype = dtypes[i / 2];
            job.transposed = i % 2;
            choose_mode(&job.config, i == 0 ? 0 : (turn + w) % MODES, ranks);
            if (job.config.bare) job.config.desc.param_dtype = NEO_BF16;
            bad += run(&job, ranks, load_foreign, job.transposed ? "a transposed file" : "a file");
        }
    return bad;
}

/* ---- for Python ---- */
static const char *from_python;
static neo_status load_python(neo_comm *comm, neo_fsdp *f) {
    static const neo_name_map map[] = {{"transformer.h.*.c_fc.weight", "layer.*.weight", 1},
                                       {"transformer.h.*.c_fc.bias", "layer.*.bias", 0}};
    neo_state *state;
    EXPECT_OK(comm, state_of(comm, f, &state));
    EXPECT_OK(comm, neo_load_safetensors(neo_comm_ctx(comm), from_python, map, 2, 0, state, NULL));
    neo_state_destroy(state);
    return NEO_OK;
}
static neo_status write_one(neo_comm *comm, void *user) {
    Job *job = (Job *)user;
    Model m;
    neo_fsdp *f;
    EXPECT_OK(comm, fsdp_create(comm, &job->config, &m, &f));
    if (from_python) NEO__TRY(load_python(comm, f));
    else EXPECT_OK(comm, train_step(comm, &job->config, f, &m, 0));
    EXPECT_OK(comm, neo_fsdp_write_safetensors(f, folder, 1));
    neo_fsdp_destroy(f);
    model_destroy(&m);
    return NEO_OK;
}
/* Of each tensor the name, extents and the sum of its numbers. */
static int for_python(const char *path) {
    NEO__ZERO(Job, job);
    neo_safetensors *file = NULL;
    neo_ctx *ctx = NULL;
    job.config = definition(1);
    snprintf(folder, sizeof folder, "%s", path);
    int bad = run(&job, 3, write_one, "a file for Python") || neo_ctx_create(NULL, &ctx) ||
              neo_safetensors_open(ctx, path, &file);
    for (int i = 0; !bad && i < neo_safetensors_count(file); i++) {
        static double memory[WIDEST * WIDEST]; /* of any dtype */
        neo_tensor t;
        double sum = 0;
        bad = neo_safetensors_info(file, i, &t) != NEO_OK;
        t.data = memory;
        bad = bad || neo_safetensors_read(file, i, t) != NEO_OK;
        for (int64_t e = 0; e < neo_tensor_count(t) && !bad; e++)
            sum += t.dtype == NEO_I64 ? (double)((const int64_t *)t.data)[e]
                                      : (double)((const float *)t.data)[e];
        printf("%s %s %d %d %.17g\n", neo_safetensors_name(file, i), neo_dtype_name(t.dtype),
               (int)t.shape[0], t.ndim > 1 ? (int)t.shape[1] : 0, sum);
    }
    neo_safetensors_close(file);
    neo_ctx_destroy(ctx);
    return bad;
}

int main(int argc, char **argv) {
    int bad = 0, mpi = launched();
    if (argc > 2) from_python = argv[2];
    if (argc > 1) return for_python(argv[1]);
#if defined(NEO_COMM_MPI)
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
#endif
    signal(SIGXFSZ, SIG_IGN);
    snprintf(folder, sizeof folder, "%s/neo-fsdp-state-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)(mpi ? getppid() : getpid())); /* of all processes that mpirun started here */
    mkdir(folder, 0700);
    for (int which = 0; which < 2; which++) {
        bad += checkpoints(which, mpi);
        bad += one_file(which, mpi);
    }
    bad += failures_of_ranks(mpi);
    bad += foreign(mpi);
    forget_references();
    char remove_all[300];
    snprintf(remove_all, sizeof remove_all, "rm -rf '%s'", folder);
    if (system(remove_all) != 0) bad++;
#if defined(NEO_COMM_MPI)
    MPI_Finalize();
#endif
    return ranks_end("fsdp/state", bad);
}
