/* towers.c: a recommendation model in towers, for nodes with slow links between them (Disaggregated
   Multi-Tower). A node holds the tables of its towers; of a tower's pooled rows a module makes a
   few columns there, and only these travel to the samples of other nodes.

     cc -O2 -I. examples/towers.c examples/neo.c -o towers -lm -lpthread && ./towers [RANKS [NODES]]

   Expect `state 11a37f253a30383c` on 1, 2, 4 or 8 ranks, on 1, 2 or 4 nodes. */
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, DIM = 16, TABLES = 12, TOWERS = 4, OUT = 8, STEPS = 40, LEAVES = 8 };

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

typedef struct model {
    neo_ctx *ctx;
    neo_comm *comm;
    neo_towers *towers;
    neo_params *module_params[TOWERS], *top_params;
    neo_mlp *module[TOWERS], *top;
    neo_fsdp *modules, *dense; /* of this node's towers, over its ranks; of what all ranks have */
    neo_tensor z, dz, y, dy;   /* all towers' columns of this rank's samples; logits */
} model;

/* Which tables go together: in a trainer neo_tower_affinity says it of pooled rows. Here tables
   with the same remainder have much in common. */
static neo_status part_tables(model *m, int32_t *tower) {
    double affinity[TABLES * TABLES];
    for (int i = 0; i < TABLES * TABLES; i++)
        affinity[i] = i / TABLES % TOWERS == i % TABLES % TOWERS ? 0.9 : 0.1;
    return neo_tower_partition(m->ctx, affinity, NULL, TABLES, TOWERS, 0, tower);
}

static neo_status create_towers(model *m) {
    neo_table_desc tables[TABLES] = {{0}};
    char names[TABLES][16];
    int32_t tower[TABLES];
    neo_bags_desc bags = {.tables = tables, .table_count = TABLES, .max_batch = BATCH,
                          .max_ids = BATCH * TABLES};
    neo_plan_desc plan = {.bags = &bags};
    neo_towers_desc desc = {.plan = &plan, .table_tower = tower, .tower_count = TOWERS,
                            .out_width = OUT};
    for (int t = 0; t < TABLES; t++) {
        snprintf(names[t], sizeof names[t], "c%d", t);
        tables[t].name = names[t];
        tables[t].rows = 100 * (t + 1);
        tables[t].dim = DIM;
        tables[t].row_buckets = LEAVES;
        tables[t].optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    }
    TRY(part_tables(m, tower));
    return neo_towers_create(m->comm, &desc, &m->towers);
}

/* The modules of this node's towers: here a layer with ReLU. */
static neo_status create_modules(model *m) {
    static const char *const names[TOWERS] = {"tower.0", "tower.1", "tower.2", "tower.3"};
    neo_fsdp_unit units[TOWERS] = {{0}};
    neo_fsdp_desc desc = {.units = units, .unit_count = neo_towers_held(m->towers),
                          .mode = NEO_FSDP_FULL,
                          .optim = {.kind = NEO_OPTIM_ADAM, .name = "modules"}};
    for (int k = 0; k < desc.unit_count; k++) {
        neo_tower tower = neo_towers_at(m->towers, k);
        neo_mlp_desc mlp = {.name = names[tower.tower], .width_count = 2,
                            .widths = {tower.in.shape[1], OUT}, .max_batch = BATCH,
                            .last_act = NEO_ACT_RELU};
        TRY(neo_params_create_deferred(m->ctx, &m->module_params[k]));
        TRY(neo_mlp_create(m->ctx, m->module_params[k], &mlp, &m->module[k]));
        units[k] = (neo_fsdp_unit){.name = mlp.name, .params = m->module_params[k]};
    }
    return neo_fsdp_create(neo_towers_comm(m->towers), &desc, &m->modules);
}

static neo_status create_top(model *m, int64_t n) {
    neo_mlp_desc mlp = {.name = "top", .width_count = 3, .widths = {TOWERS * OUT, 32, 1},
                        .max_batch = BATCH, .act = NEO_ACT_RELU};
    neo_fsdp_unit unit = {.name = "top"};
    neo_fsdp_desc desc = {.units = &unit, .unit_count = 1, .mode = NEO_FSDP_DDP,
                          .optim = {.kind = NEO_OPTIM_ADAM}};
    const int64_t wide[2] = {n, TOWERS * OUT}, narrow[2] = {n, 1};
    TRY(neo_params_create_deferred(m->ctx, &m->top_params));
    TRY(neo_mlp_create(m->ctx, m->top_params, &mlp, &m->top));
    unit.params = m->top_params;
    TRY(neo_fsdp_create(m->comm, &desc, &m->dense));
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, wide, &m->z));
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, wide, &m->dz));
    TRY(neo_tensor_alloc(m->ctx, NEO_F32, 2, narrow, &m->y));
    return neo_tensor_alloc(m->ctx, NEO_F32, 2, narrow, &m->dy);
}

static neo_status forward_modules(model *m) {
    for (int k = 0; k < neo_towers_held(m->towers); k++) {
        neo_tower tower = neo_towers_at(m->towers, k);
        TRY(neo_fsdp_forward_begin(m->modules, k));
        TRY(neo_mlp_forward(m->module[k], tower.in, tower.out));
        TRY(neo_fsdp_forward_end(m->modules, k));
    }
    return NEO_OK;
}
/* One piece has all leaves of a rank: see check_pieces. */
static neo_status backward_modules(model *m) {
    neo_leaves leaves = neo_fsdp_piece(m->modules, 0, BATCH);
    for (int k = neo_towers_held(m->towers) - 1; k >= 0; k--) {
        neo_tower tower = neo_towers_at(m->towers, k);
        TRY(neo_fsdp_backward_begin(m->modules, k, 0));
        TRY(neo_mlp_backward(m->module[k], &leaves, tower.dout, tower.din));
        TRY(neo_fsdp_backward_end(m->modules, k));
    }
    return NEO_OK;
}

/* On 5 ranks some of the 8 leaves are two pieces of a rank, for which layers go forward and
   backward twice; this example does not. */
static neo_status check_pieces(const model *m) {
    if (neo_fsdp_pieces(m->dense) == 1 && neo_fsdp_pieces(m->modules) == 1) return NEO_OK;
    return neo_fail(NEO_ERR_ARG, "the leaves of a rank are several pieces: 1, 2, 4 or 8 ranks");
}

static neo_status step(model *m, const neo_jagged *batch, neo_tensor labels, float lr) {
    neo_leaves leaves = neo_fsdp_piece(m->dense, 0, BATCH);
    neo_loss_desc loss = {.batch = BATCH};
    TRY(neo_towers_forward(m->towers, batch, BATCH)); /* ids to the nodes, rows inside them */
    TRY(forward_modules(m));
    TRY(neo_towers_exchange(m->towers, m->z)); /* few columns between nodes */
    TRY(neo_mlp_forward(m->top, m->z, m->y));
    TRY(neo_bce_with_logits(m->ctx, &loss, neo_tensor_reshape(m->y, 1, labels.shape), labels,
                            neo_tensor_reshape(m->dy, 1, labels.shape), NULL));
    TRY(neo_mlp_backward(m->top, &leaves, m->dy, m->dz));
    TRY(neo_towers_exchange_back(m->towers, m->dz));
    TRY(backward_modules(m));
    TRY(neo_towers_backward(m->towers, lr));
    TRY(neo_fsdp_step(m->modules, lr));
    return neo_fsdp_step(m->dense, lr);
}

/* A label that the ids of a few tables decide. */
static neo_status train(model *m, int64_t first, int64_t n) {
    int64_t offsets[TABLES * BATCH + 1], ids[TABLES * BATCH];
    float label[BATCH];
    neo_jagged batch = {.batch = n, .feature_count = TABLES, .id_dtype = NEO_I64,
                        .offsets = offsets, .ids = ids};
    for (int64_t i = 0; i <= TABLES * n; i++) offsets[i] = i;
    for (int64_t s = 0; s < STEPS; s++) {
        for (int64_t i = 0; i < TABLES * n; i++)
            ids[i] = (s * BATCH + first + i % n) * (i / n * 7919 + 104729) % (100 * (i / n + 1));
        for (int64_t i = 0; i < n; i++) label[i] = (float)((ids[i] + ids[4 * n + i]) % 2);
        TRY(step(m, &batch, neo_tensor_1d(label, NEO_F32, n), 0.01f));
    }
    return NEO_OK;
}

static neo_status run(neo_comm *comm, void *user) {
    model m = {.ctx = neo_comm_ctx(comm), .comm = comm};
    neo_group all = neo_comm_group(comm);
    neo_state *state;
    int64_t first, n;
    uint64_t digest;
    (void)user;
    TRY(neo_comm_samples(comm, BATCH, &first, &n));
    TRY(create_towers(&m));
    TRY(create_modules(&m));
    TRY(create_top(&m, n));
    TRY(check_pieces(&m));
    TRY(train(&m, first, n));
    TRY(neo_state_create(m.ctx, &state));
    TRY(neo_state_add_fsdp(state, m.dense));
    TRY(neo_state_add_towers(state, m.towers, m.modules)); /* for neo_save and neo_load, too */
    TRY(neo_state_digest_group(state, &all, &digest));
    if (neo_comm_rank(comm) == 0) printf("state %016llx\n", (unsigned long long)digest);
    neo_state_destroy(state);
    neo_tensor *tensors[] = {&m.z, &m.dz, &m.y, &m.dy};
    for (int i = 0; i < 4; i++) neo_tensor_free(m.ctx, tensors[i]);
    neo_fsdp_destroy(m.dense);
    neo_fsdp_destroy(m.modules);
    neo_mlp_destroy(m.top);
    neo_params_destroy(m.top_params);
    for (int k = 0; k < neo_towers_held(m.towers); k++) {
        neo_mlp_destroy(m.module[k]);
        neo_params_destroy(m.module_params[k]);
    }
    neo_towers_destroy(m.towers);
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_comm_desc desc = {.ranks = argc > 1 ? atoi(argv[1]) : 4, .ctx = {.repro_shards = LEAVES}};
    int nodes = argc > 2 ? atoi(argv[2]) : desc.ranks % 2 ? 1 : 2;
    if (argc > 3 || desc.ranks < 1 || nodes < 1 || desc.ranks % nodes)
        return fprintf(stderr, "usage: towers [RANKS [NODES]], NODES divides RANKS\n"), 2;
    desc.ranks_per_node = desc.ranks / nodes;
    if (neo_comm_init_env(&desc, run, NULL) == NEO_OK) return 0;
    fprintf(stderr, "towers: %s\n", neo_last_error());
    return 1;
}
