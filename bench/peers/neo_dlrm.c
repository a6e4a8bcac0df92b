/* neo_dlrm.c: the trainer of examples/train/dlrm on several ranks that are threads, whose steps are
   called from elsewhere by ctypes, on batches that are given.

   cc -O2 -fPIC -shared -I. bench/peers/neo_dlrm.c examples/neo.c -o libneo_dlrm.so \
     -lm -lpthread */
#include "../../examples/train/dlrm/step.h"
#include "ranks.h"

enum { STEPS = 1, DENSE = 13, TABLES = 26, MAX_BATCHES = 16 };
typedef struct rank_of {
    model m;
    int64_t samples, step;
    neo_batch batch[MAX_BATCHES];
    int64_t *offsets, *ids; /* [26 samples + 1], [batches][26][samples] */
} rank_of;
static struct {
    ranks ranks;
    options o;
    int batches, place[TABLES];
    const float *dense, *label; /* [batches][batch][13], [batches][batch] */
    const int64_t *ids;         /* [batches][26][batch] */
    double loss;
} dlrm;

/* This rank's samples of every batch. */
static neo_status make_batches(rank_of *r) {
    int64_t first, n, all = dlrm.o.batch;
    TRY(neo_comm_samples(r->m.comm, all, &first, &n));
    r->samples = n;
    r->offsets = malloc((size_t)(TABLES * n + 1) * sizeof *r->offsets);
    r->ids = malloc((size_t)(dlrm.batches * TABLES * n + 1) * sizeof *r->ids);
    r->m.ids = malloc(TABLES * sizeof *r->m.ids);
    if (!r->offsets || !r->ids || !r->m.ids) return out_of_memory();
    for (int t = 0; t < TABLES; t++) r->m.ids[t] = 1;
    for (int64_t i = 0; i <= TABLES * n; i++) r->offsets[i] = i;
    for (int k = 0; k < dlrm.batches; k++) {
        int64_t *ids = r->ids + k * TABLES * n;
        for (int t = 0; t < TABLES; t++)
            memcpy(ids + t * n, dlrm.ids + (k * TABLES + t) * all + first, (size_t)n * sizeof *ids);
        r->batch[k] = (neo_batch){
            .dense = neo_tensor_2d((float *)(uintptr_t)(dlrm.dense + (k * all + first) * DENSE),
                                   NEO_F32, n, DENSE),
            .label = neo_tensor_1d((float *)(uintptr_t)(dlrm.label + k * all + first), NEO_F32, n),
            .sparse = {.batch = n,
                       .feature_count = TABLES,
                       .id_dtype = NEO_I64,
                       .offsets = r->offsets,
                       .ids = ids},
            .size = n,
            .global_size = all};
    }
    return NEO_OK;
}
static neo_status set_up_rank(neo_comm *comm, void **rank) {
    neo_table_desc tables[TABLES];
    neo_plan *plan = NULL;
    int64_t count;
    rank_of *r = calloc(1, sizeof *r);
    TRY(agree(comm, r ? NEO_OK : out_of_memory()));
    *rank = r;
    memset(tables, 0, sizeof tables);
    r->m.comm = comm, r->m.ctx = neo_comm_ctx(comm);
    neo_status status =
        synthetic_schemas(r->m.ctx, &dlrm.o, NULL, &r->m.schema, &r->m.test_schema);
    if (status == NEO_OK) status = create_dense(&r->m, &dlrm.o);
    if (status == NEO_OK) status = make_batches(r);
    TRY(agree(comm, status));
    TRY(create_units(&r->m, &dlrm.o));
    neo_bags_desc bags;
    TRY(agree(comm, describe_tables(&r->m, &dlrm.o, tables, &bags)));
    status = agree(comm, make_plan(&r->m, &dlrm.o, &bags, NULL, &plan));
    if (status == NEO_OK) status = agree(comm, neo_shard_create(comm, plan, &r->m.tables));
    if (status == NEO_OK && neo_comm_rank(comm) == 0)
        for (int t = 0; t < TABLES; t++) {
            const neo_piece *piece = neo_plan_table_pieces(plan, t, &count);
            dlrm.place[t] = count == 1 ? piece->rank : NEO_EVERY_RANK;
        }
    neo_plan_destroy(plan);
    return status;
}
static neo_status work_rank(void *rank, int command, int64_t count) {
    rank_of *r = rank;
    (void)command;
    for (; count > 0; count--, r->step++) {
        neo_batch batch = r->batch[r->step % dlrm.batches];
        const told_batches next = {{&r->batch[(r->step + 1) % dlrm.batches]}, 1};
        TRY(train_batch(&r->m, &batch, &next, 1, (float)dlrm.o.lr));
    }
    if (neo_comm_rank(r->m.comm) == 0)
        dlrm.loss = neo_exact_value(&r->m.sum[r->m.turn].loss) / (double)dlrm.o.batch;
    return NEO_OK;
}
static void tear_down_rank(void *rank) {
    rank_of *r = rank;
    if (!r) return;
    neo_comm_wait_all(r->m.comm);
    destroy_model(&r->m);
    free(r->offsets);
    free(r->ids);
    free(r);
}

SIDE const char *neo_dlrm_error(void) {
    return dlrm.ranks.error[0] ? dlrm.ranks.error : neo_last_error();
}
/* bottom: "13-...-<dim>", top: "...-1". One thread per rank, tables whole on one rank each, the
   example's defaults else. */
SIDE int neo_dlrm_start(int ranks, int64_t dim, int64_t batch, int64_t rows, const char *bottom,
                        const char *top, const float *dense, const float *label, const int64_t *ids,
                        int batches) {
    static char plan[] = "tw", off[] = "off";
    memset(&dlrm, 0, sizeof dlrm);
    if (batches < 1 || batches > MAX_BATCHES)
        return (int)neo_fail(NEO_ERR_ARG, "1 to %d batches", (int)MAX_BATCHES);
    neo_status status = cli_defaults(&DLRM, &dlrm.o);
    if (status != NEO_OK) return (int)status;
    dlrm.o.plan = plan, dlrm.o.machine.graph = off;
    dlrm.o.bottom = (char *)(uintptr_t)bottom, dlrm.o.top = (char *)(uintptr_t)top;
    dlrm.o.synthetic = dlrm.o.batch = batch, dlrm.o.rows = rows, dlrm.o.dim = dim;
    dlrm.batches = batches, dlrm.dense = dense, dlrm.label = label, dlrm.ids = ids;
    dlrm.ranks.desc = (neo_comm_desc){.ranks = ranks, .ctx = {.threads = 1, .seed = 1}};
    dlrm.ranks.set_up = set_up_rank, dlrm.ranks.work = work_rank,
    dlrm.ranks.tear_down = tear_down_rank;
    return ranks_start(&dlrm.ranks);
}
/* `steps` steps; loss: the mean of the last one's batch, may be NULL. */
SIDE int neo_dlrm_run(int steps, double *loss) {
    int status = ranks_do(&dlrm.ranks, STEPS, steps);
    if (loss) *loss = dlrm.loss;
    return status;
}
/* The rank that has table t; -1: all. */
SIDE int neo_dlrm_place(int t) { return dlrm.place[t]; }
SIDE int neo_dlrm_stop(void) { return ranks_stop(&dlrm.ranks); }
