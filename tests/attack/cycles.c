/* cycles.c: what a process creates and destroys, thousands of times: memory, descriptors and
   threads stay as they were.

   A cycle is a job of 4 ranks that are threads: contexts, groups, a shard of tables, an MLP in an
   fsdp, a reader; one step of training; the state, its digest, and in some cycles a checkpoint
   saved and loaded. Then one context with threads of its own: bags, an MLP and its optimizer, a
   reader, a log, a checkpoint. All memory goes through an allocator that must balance after every
   cycle. The bytes of malloc that are in use, the resident set, descriptors and threads are
   compared with those after the first cycles, where the system is Linux.

     cycles [COUNT]     by default 200 cycles, 100,000 where ATTACK is set; SIGINT and SIGTERM end
                        them early, with the figures so far */
#include "neo_data.h"
#include "neo_fsdp.h"

#include "meter.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

enum { RANKS = 4, LEAVES = 4, BATCH = 16, DIM = 4, DENSE = 5, SPARSE = 3, WARM_UP = 20 };
enum { SAVE_EVERY = 8, HEAP_SLACK = 8 << 10, RESIDENT_SLACK = 4 << 20 };

static int checks, failures;
static meter memory = {-1, 0, 0, 0, 0, 0};
static char folder[512];
#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        checks++;                                                                                  \
        if (cond) break;                                                                           \
        if (failures++ < 20) printf("FAILED "), printf(__VA_ARGS__), printf("\n");                 \
    } while (0)

/* ---- what the system says of this process ---- */
typedef struct usage {
    int64_t heap, resident; /* bytes */
    int files, threads;
} usage;
static int entries(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}
static usage measure(void) {
    usage u = {0, 0, 0, 0};
    long long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lld %lld", &pages, &resident) == 2)
        u.resident = resident * sysconf(_SC_PAGESIZE);
    if (f) fclose(f);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    struct mallinfo2 info = mallinfo2();
    u.heap = (int64_t)(info.uordblks + info.hblkhd);
#endif
    u.files = entries("/proc/self/fd") - 3; /* ".", "..", and the one that reads them */
    u.threads = entries("/proc/self/task") - 2;
    return u;
}

/* ---- a job of ranks ---- */
typedef struct life {
    neo_ctx *ctx;
    neo_comm *comm, *half;
    neo_schema *schema;
    neo_reader *reader;
    neo_shard *shard;
    neo_params *params;
    neo_mlp *mlp;
    neo_fsdp *dense;
    neo_state *state;
    neo_tensor rows, out, grad;
    neo_position position;
} life;

static neo_status create_schema(neo_ctx *ctx, neo_schema **schema) {
    neo_synthetic_desc desc = {.samples = 8 * BATCH, .dense_count = DENSE,
                               .feature_count = SPARSE, .rows = 50};
    return neo_schema_synthetic(ctx, &desc, schema);
}
static void describe_tables(neo_table_desc *tables, neo_bags_desc *bags) {
    static const char *const names[SPARSE] = {"a", "b", "c"};
    memset(tables, 0, SPARSE * sizeof *tables);
    for (int t = 0; t < SPARSE; t++) {
        tables[t].name = names[t];
        tables[t].rows = 50;
        tables[t].dim = DIM;
        tables[t].row_buckets = LEAVES;
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    memset(bags, 0, sizeof *bags);
    bags->tables = tables;
    bags->table_count = SPARSE;
    bags->max_batch = BATCH;
    bags->max_ids = BATCH * SPARSE;
}
static neo_status create(life *l) {
    neo_table_desc tables[SPARSE];
    neo_bags_desc bags;
    neo_plan *plan;
    const int64_t rows[2] = {BATCH, SPARSE * DIM}, column[2] = {BATCH, 1};
    neo_mlp_desc mlp = {.name = "mlp", .width_count = 3, .widths = {DENSE, 8, 1},
                        .max_batch = BATCH, .act = NEO_ACT_RELU};
    NEO__TRY(neo_comm_split(l->comm, neo_comm_rank(l->comm) % 2, 0, &l->half));
    NEO__TRY(create_schema(l->ctx, &l->schema));
    neo_reader_desc reader = {.schema = l->schema, .batch = BATCH, .shuffle_window = 3 * BATCH,
                              .rank = neo_comm_rank(l->comm), .world_size = RANKS};
    NEO__TRY(neo_reader_open(l->ctx, &reader, &l->reader));
    describe_tables(tables, &bags);
    neo_plan_desc desc = {.bags = &bags, .cluster = {.ranks = RANKS}};
    NEO__TRY(neo_plan_create(l->ctx, &desc, &plan));
    neo_status status = neo_shard_create(l->comm, plan, &l->shard);
    neo_plan_destroy(plan);
    NEO__TRY(status);
    NEO__TRY(neo_params_create_deferred(l->ctx, &l->params));
    NEO__TRY(neo_mlp_create(l->ctx, l->params, &mlp, &l->mlp));
    neo_fsdp_unit unit = {.name = "mlp", .params = l->params};
    neo_fsdp_desc dense = {.units = &unit, .unit_count = 1, .mode = NEO_FSDP_FULL,
                           .optim = {.kind = NEO_OPTIM_ADAM, .clip_norm = 1}};
    NEO__TRY(neo_fsdp_create(l->comm, &dense, &l->dense));
    NEO__TRY(neo_tensor_alloc(l->ctx, NEO_F32, 2, rows, &l->rows));
    NEO__TRY(neo_tensor_alloc(l->ctx, NEO_F32, 2, column, &l->out));
    NEO__TRY(neo_tensor_alloc(l->ctx, NEO_F32, 2, column, &l->grad));
    NEO__TRY(neo_state_create(l->ctx, &l->state));
    NEO__TRY(neo_state_add_shard(l->state, l->shard));
    NEO__TRY(neo_state_add_fsdp(l->state, l->dense));
    return neo_state_add(l->state, NEO_STATE_PROGRESS, "position",
                         neo_tensor_1d(l->position.word, NEO_I64, NEO_POSITION_WORDS));
}
static neo_status train(life *l) {
    neo_batch batch;
    double loss;
    NEO__TRY(neo_reader_next(l->reader, &batch));
    const int64_t n = batch.size;
    neo_tensor rows = neo_tensor_rows(l->rows, 0, n), out = neo_tensor_rows(l->out, 0, n),
               grad = neo_tensor_rows(l->grad, 0, n);
    neo_loss_desc desc = {.batch = batch.global_size};
    NEO__TRY(neo_shard_forward(l->shard, &batch.sparse, batch.global_size, rows));
    NEO__TRY(neo_shard_backward(l->shard, rows, 0.01f));
    neo_leaves leaves = neo_fsdp_piece(l->dense, 0, batch.global_size);
    NEO__TRY(neo_fsdp_backward_begin(l->dense, 0, 0));
    NEO__TRY(neo_mlp_forward(l->mlp, batch.dense, out));
    NEO__TRY(neo_bce_with_logits(l->ctx, &desc, out, batch.label, grad, &loss));
    NEO__TRY(neo_mlp_backward(l->mlp, &leaves, grad, neo_tensor_none()));
    NEO__TRY(neo_fsdp_backward_end(l->dense, 0));
    NEO__TRY(neo_fsdp_step(l->dense, 0.01f));
    return neo_comm_barrier(l->half, NULL);
}
static neo_status keep(life *l, int64_t cycle) {
    neo_group all = neo_comm_group(l->comm);
    uint64_t before = 0, after = 1;
    neo_save_desc save = {.dir = folder, .step = cycle, .group = &all};
    neo_load_desc load = {.dir = folder, .group = &all};
    NEO__TRY(neo_state_digest_group(l->state, &all, &before));
    if (cycle % SAVE_EVERY) return NEO_OK;
    NEO__TRY(neo_save(l->ctx, &save, l->state));
    NEO__TRY(neo_load(l->ctx, &load, l->state, NULL));
    NEO__TRY(neo_state_digest_group(l->state, &all, &after));
    return before == after ? NEO_OK : neo_fail(NEO_ERR_STATE, "another digest after a load");
}
static void destroy(life *l) {
    neo_state_destroy(l->state);
    neo_fsdp_destroy(l->dense);
    neo_shard_destroy(l->shard);
    neo_mlp_destroy(l->mlp);
    neo_params_destroy(l->params);
    neo_reader_close(l->reader);
    neo_schema_destroy(l->schema);
    neo_tensor_free(l->ctx, &l->rows);
    neo_tensor_free(l->ctx, &l->out);
    neo_tensor_free(l->ctx, &l->grad);
    neo_comm_destroy(l->half);
}
static neo_status run_rank(neo_comm *comm, void *user) {
    life l;
    memset(&l, 0, sizeof l);
    l.comm = comm;
    l.ctx = neo_comm_ctx(comm);
    neo_status status = create(&l);
    if (status == NEO_OK) status = train(&l);
    if (status == NEO_OK) status = keep(&l, *(const int64_t *)user);
    destroy(&l);
    return status;
}

/* ---- one context with threads ---- */
typedef struct alone {
    neo_ctx *ctx;
    neo_schema *schema;
    neo_reader *reader;
    neo_bags *bags;
    neo_params *params;
    neo_mlp *mlp;
    neo_optim *optim;
    neo_state *state;
    neo_jsonl *log;
} alone;
static neo_status run_alone(alone *a, int64_t cycle) {
    neo_table_desc tables[SPARSE];
    neo_bags_desc bags;
    neo_batch batch;
    neo_mlp_desc mlp = {.name = "mlp", .width_count = 2, .widths = {DENSE, 1}, .max_batch = BATCH};
    neo_optim_desc optim = {.kind = NEO_OPTIM_ADAGRAD};
    neo_ctx_desc desc = {.threads = 3, .allocator = {meter_alloc, meter_free, &memory}};
    float rows[BATCH * SPARSE * DIM];
    char path[600];
    NEO__TRY(neo_ctx_create(&desc, &a->ctx));
    NEO__TRY(create_schema(a->ctx, &a->schema));
    neo_reader_desc reader = {.schema = a->schema, .batch = BATCH};
    NEO__TRY(neo_reader_open(a->ctx, &reader, &a->reader));
    NEO__TRY(neo_reader_next(a->reader, &batch));
    describe_tables(tables, &bags);
    NEO__TRY(neo_bags_create(a->ctx, &bags, &a->bags));
    neo_tensor out = neo_tensor_2d(rows, NEO_F32, batch.size, SPARSE * DIM);
    NEO__TRY(neo_bags_forward(a->bags, &batch.sparse, out));
    NEO__TRY(neo_bags_backward(a->bags, &batch.sparse, out, 0.01f));
    NEO__TRY(neo_params_create(a->ctx, &a->params));
    NEO__TRY(neo_mlp_create(a->ctx, a->params, &mlp, &a->mlp));
    NEO__TRY(neo_mlp_forward(a->mlp, batch.dense, neo_tensor_2d(rows, NEO_F32, batch.size, 1)));
    NEO__TRY(neo_optim_create(a->ctx, a->params, &optim, &a->optim));
    NEO__TRY(neo_state_create(a->ctx, &a->state));
    NEO__TRY(neo_state_add_params(a->state, a->params));
    NEO__TRY(neo_state_add_optim(a->state, a->optim));
    NEO__TRY(neo_state_add_bags(a->state, a->bags));
    snprintf(path, sizeof path, "%s/log", folder);
    NEO__TRY(neo_jsonl_open(a->ctx, path, 0, &a->log));
    neo_jsonl_int(a->log, "cycle", cycle);
    NEO__TRY(neo_jsonl_end(a->log));
    if (cycle % SAVE_EVERY) return NEO_OK;
    snprintf(path, sizeof path, "%s/alone", folder);
    neo_save_desc save = {.dir = path, .step = cycle};
    neo_load_desc load = {.dir = path};
    NEO__TRY(neo_save(a->ctx, &save, a->state));
    return neo_load(a->ctx, &load, a->state, NULL);
}
static void end_alone(alone *a) {
    neo_jsonl_close(a->log);
    neo_state_destroy(a->state);
    neo_optim_destroy(a->optim);
    neo_mlp_destroy(a->mlp);
    neo_params_destroy(a->params);
    neo_bags_destroy(a->bags);
    neo_reader_close(a->reader);
    neo_schema_destroy(a->schema);
    neo_ctx_destroy(a->ctx);
}

static void cycle(int64_t number) {
    neo_comm_desc desc = {.timeout_ms = -1,
                          .ctx = {.repro_shards = LEAVES,
                                  .allocator = {meter_alloc, meter_free, &memory}}};
    alone a;
    memset(&a, 0, sizeof a);
    neo_status status = neo_comm_spawn(RANKS, &desc, run_rank, &number, NULL);
    CHECK(status == NEO_OK, "cycle %lld: %s", (long long)number, neo_last_error());
    status = run_alone(&a, number);
    CHECK(status == NEO_OK, "cycle %lld, alone: %s", (long long)number, neo_last_error());
    end_alone(&a);
    CHECK(memory.live == 0 && memory.wrong == 0, "cycle %lld: %lld blocks are not freed",
          (long long)number, (long long)memory.live);
}
/* Threads that were joined may still be listed for a moment. */
static usage settled(const usage *first) {
    usage u = measure();
    for (int i = 0; i < 6000 && u.threads > first->threads; i++) {
        usleep(10000);
        u = measure();
    }
    return u;
}

int main(int argc, char **argv) {
    const char *attack = getenv("ATTACK");
    int64_t count = argc > 1 ? atoll(argv[1]) : attack && *attack ? 100000 : 200;
    const char *tmp = getenv("TMPDIR");
    usage first = {0, 0, 0, 0}, most = first;
#if defined(__GLIBC__)
    mallopt(M_ARENA_MAX, 1); /* which arenas threads share is chance */
#endif
    snprintf(folder, sizeof folder, "%s/neo_cycles.%d", tmp ? tmp : "/tmp", (int)getpid());
    if (mkdir(folder, 0777) != 0) return printf("FAILED %s cannot be made\n", folder), 1;
    if (neo_stop_on_signals() != NEO_OK) return printf("FAILED %s\n", neo_last_error()), 1;
    for (int64_t i = 1; i <= count; i++) {
        cycle(i);
        if (neo_stop_signal()) count = i;
        if (i == WARM_UP || i == 1) first = measure();
        if (i <= WARM_UP || (i % 100 && i != count)) continue;
        usage u = settled(&first);
        CHECK(u.files == first.files, "cycle %lld: %d descriptors, at first %d", (long long)i,
              u.files, first.files);
        CHECK(u.threads == first.threads, "cycle %lld: %d threads, at first %d", (long long)i,
              u.threads, first.threads);
        CHECK(u.heap <= first.heap + HEAP_SLACK, "cycle %lld: %lld bytes of malloc, at first %lld",
              (long long)i, (long long)u.heap, (long long)first.heap);
        CHECK(u.resident <= first.resident + RESIDENT_SLACK,
              "cycle %lld: %lld bytes resident, at first %lld", (long long)i, (long long)u.resident,
              (long long)first.resident);
        most = u;
    }
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0, "%s", command);
    printf("attack: %lld cycles: malloc %lld -> %lld bytes, resident %lld -> %lld KiB, "
           "descriptors %d -> %d, threads %d -> %d\n",
           (long long)count, (long long)first.heap, (long long)most.heap,
           (long long)first.resident >> 10, (long long)most.resident >> 10, first.files, most.files,
           first.threads, most.threads);
    printf("attack/cycles: %d passed, %d failed, 0 skipped\n", checks - failures, failures);
    return failures != 0;
}
