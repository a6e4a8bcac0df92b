/* job.c: a training job as it runs for days, on one rank or many: gradients are clipped, epochs end
   with an evaluation, training when that gets no better; checkpoints are saved, also when Ctrl-C or
   a scheduler's SIGTERM ends the job, and the same command goes on with it.

     cc -O2 -I. examples/job.c examples/neo.c -o job -lm -lpthread && ./job CHECKPOINTS 4
     mpicc -DNEO_COMM_MPI -O2 -I. examples/job.c examples/neo.c -o job_mpi -lm -lpthread
     mpirun --oversubscribe -n 4 ./job_mpi CHECKPOINTS     (MPICH: mpirun -n 4)

   An MLP learns from 13 numbers; for embedding tables, and an MLP in shards, see ranks.c. The best
   epoch is in CHECKPOINTS/best. Expect, stopped on the way or not, `state 869c7cf6eaed919a` on 1 to
   8 ranks. */
#include "neo_data.h"
#include "neo_fsdp.h"
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, SAMPLES = 64 * BATCH, TESTS = 32 * BATCH, EPOCHS = 50, PATIENCE = 3 };
enum { DENSE = 13, LEAVES = 8, TRAIN = 0, VALID = 1 };

#define TRY(call) do { neo_status s_ = (call); if (s_ != NEO_OK) return s_; } while (0)

typedef struct job {
    const char *dir;        /* of checkpoints */
    neo_comm *comm; neo_ctx *ctx;
    neo_schema *schema[2];
    neo_reader *reader[2];  /* of this rank's samples */
    neo_params *params; neo_mlp *mlp;
    neo_fsdp *dense;        /* the MLP and its optimizer, on every rank */
    neo_state *state;       /* all of the job that is saved: these two as well */
    neo_position position;
    struct { int64_t epoch, step, best_epoch, best_loss; } at; /* the loss in units of 1e-9 */
    neo_tensor logit, dlogit;
    int stops;              /* a signal has come to a rank; on all ranks */
} job;

static neo_status open_data(job *j) {
    neo_synthetic_desc data[] = {{.samples = SAMPLES}, {.samples = TESTS, .first_sample = SAMPLES}};
    for (int i = 0; i < 2; i++) {
        neo_reader_desc desc = {.batch = BATCH, .shuffle_window = i == TRAIN ? SAMPLES : 0};
        desc.rank = neo_comm_rank(j->comm), desc.world_size = neo_comm_size(j->comm);
        TRY(neo_schema_synthetic(j->ctx, &data[i], &j->schema[i]));
        desc.schema = j->schema[i];
        TRY(neo_reader_open(j->ctx, &desc, &j->reader[i]));
    }
    return NEO_OK;
}

static neo_status create_model(job *j) {
    const int64_t column[2] = {BATCH, 1};
    neo_mlp_desc desc = {.name = "mlp", .width_count = 4, .widths = {DENSE, 64, 64, 1},
                         .max_batch = BATCH, .act = NEO_ACT_RELU};
    TRY(neo_params_create_deferred(j->ctx, &j->params)); /* neo_fsdp has the memory */
    TRY(neo_mlp_create(j->ctx, j->params, &desc, &j->mlp));
    neo_fsdp_unit unit = {.name = "mlp", .params = j->params};
    neo_fsdp_desc dense = {.units = &unit, .unit_count = 1, .mode = NEO_FSDP_DDP,
                           .optim = {.kind = NEO_OPTIM_ADAM, .clip_norm = 1}};
    TRY(neo_tensor_alloc(j->ctx, NEO_F32, 2, column, &j->logit));
    TRY(neo_tensor_alloc(j->ctx, NEO_F32, 2, column, &j->dlogit));
    TRY(neo_fsdp_create(j->comm, &dense, &j->dense));

    neo_tensor position = neo_tensor_1d(j->position.word, NEO_I64, NEO_POSITION_WORDS);
    neo_tensor at = neo_tensor_1d(&j->at, NEO_I64, sizeof j->at / sizeof(int64_t));
    TRY(neo_state_create(j->ctx, &j->state));
    TRY(neo_state_add_fsdp(j->state, j->dense)); /* tables: neo_state_add_shard */
    TRY(neo_state_add(j->state, NEO_STATE_PROGRESS, "position", position));
    return neo_state_add(j->state, NEO_STATE_PROGRESS, "progress", at);
}

#define CUT(t) neo_tensor_rows(t, first, n)

/* A step; a look. sum: the losses of this rank's samples are added. */
static neo_status train_batch(job *j, const neo_batch *batch, neo_exact *sum) {
    neo_loss_desc desc = {.batch = batch->global_size, .sum = sum};
    int64_t first = 0, n, in_batch;
    for (int k = 0; k < neo_fsdp_pieces(j->dense); k++, first += n) { /* 1 of 1, 2, 4, 8 ranks */
        neo_leaves leaves = neo_fsdp_piece(j->dense, k, batch->global_size);
        n = neo_fsdp_samples(j->dense, k, batch->global_size, &in_batch);
        TRY(neo_mlp_forward(j->mlp, CUT(batch->dense), CUT(j->logit)));
        TRY(neo_bce_with_logits(j->ctx, &desc, CUT(j->logit), CUT(batch->label), CUT(j->dlogit),
                                NULL));
        TRY(neo_mlp_backward(j->mlp, &leaves, CUT(j->dlogit), neo_tensor_none()));
        TRY(neo_fsdp_piece_end(j->dense));
    }
    j->at.step++;
    return neo_fsdp_step(j->dense, 0.003f); /* adds the gradients of all ranks, clips, steps */
}
static neo_status test_batch(job *j, const neo_batch *batch, neo_exact *sum) {
    neo_loss_desc desc = {.sum = sum};
    int64_t first = 0, n = batch->size;
    TRY(neo_mlp_forward(j->mlp, batch->dense, CUT(j->logit)));
    return neo_bce_with_logits(j->ctx, &desc, CUT(j->logit), batch->label, neo_tensor_none(), NULL);
}

/* To the end of a reader's epoch; in training also to a signal. */
static neo_status read_epoch(job *j, int which, double *mean) {
    neo_status status = NEO_OK;
    neo_batch batch;
    struct { neo_exact loss; int64_t stops; } s; /* integers: they add in any order */
    double loss = 0, samples = 0; /* since the beginning of the epoch, or a resume */
    while ((which == VALID || !j->stops) &&
           (status = neo_reader_next(j->reader[which], &batch)) == NEO_OK) {
        neo_exact_zero(&s.loss);
        TRY((which == TRAIN ? train_batch : test_batch)(j, &batch, &s.loss));
        s.stops = neo_stop_signal() != 0; /* all ranks must stop after the same step */
        TRY(neo_comm_all_reduce(j->comm, NEO_REDUCE_SUM, &s, &s, sizeof s / 8, NEO_I64, NULL));
        j->stops = s.stops > 0;
        loss += neo_exact_value(&s.loss), samples += (double)batch.global_size;
    }
    *mean = samples > 0 ? loss / samples : 0;
    return status == NEO_END ? NEO_OK : status;
}

static neo_status save(job *j, const char *folder, int keep) {
    char dir[4096];
    neo_group all = neo_comm_group(j->comm);
    snprintf(dir, sizeof dir, "%s%s", j->dir, folder);
    j->position = neo_reader_position(j->reader[TRAIN]);
    neo_save_desc desc = {.dir = dir, .step = j->at.step, .keep = keep, .group = &all};
    return neo_save(j->ctx, &desc, j->state);
}

static neo_status end_epoch(job *j, double mean) {
    double valid;
    TRY(neo_reader_epoch(j->reader[VALID], 0)); /* from its beginning */
    TRY(read_epoch(j, VALID, &valid));
    int is_best = j->at.epoch++ == 0 || (int64_t)(valid * 1e9) < j->at.best_loss;
    if (is_best) j->at.best_epoch = j->at.epoch, j->at.best_loss = (int64_t)(valid * 1e9);
    if (neo_comm_rank(j->comm) == 0)
        printf("epoch %d  loss %.4f  validation %.4f%s\n", (int)j->at.epoch, mean, valid,
               is_best ? "  best" : "");
    TRY(neo_reader_epoch(j->reader[TRAIN], j->at.epoch)); /* where a resumed job begins */
    if (is_best) TRY(save(j, "/best", 1));
    return save(j, "", 2);
}

static neo_status train(job *j) {
    neo_group all = neo_comm_group(j->comm);
    uint64_t digest;
    double mean;
    neo_load_desc desc = {.dir = j->dir, .group = &all};
    neo_status status = neo_load(j->ctx, &desc, j->state, NULL);
    if (status != NEO_OK && status != NEO_ERR_NOT_FOUND) return status; /* or there is none yet */
    if (status == NEO_OK) TRY(neo_reader_seek(j->reader[TRAIN], &j->position));
    while (j->at.epoch < EPOCHS && j->at.epoch - j->at.best_epoch < PATIENCE) {
        TRY(read_epoch(j, TRAIN, &mean));
        if (j->stops) return save(j, "", 2);
        TRY(end_epoch(j, mean));
    }
    TRY(neo_state_digest_group(j->state, &all, &digest));
    if (neo_comm_rank(j->comm) == 0) printf("state %016llx\n", (unsigned long long)digest);
    return NEO_OK;
}

static neo_status run(neo_comm *comm, void *dir) {
    job j = {.comm = comm, .ctx = neo_comm_ctx(comm), .dir = dir};
    TRY(open_data(&j));
    TRY(create_model(&j));
    TRY(train(&j)); /* where there is an error the program ends, and its memory with it */
    neo_tensor_free(j.ctx, &j.logit), neo_tensor_free(j.ctx, &j.dlogit);
    neo_state_destroy(j.state);
    neo_fsdp_destroy(j.dense);
    neo_mlp_destroy(j.mlp);
    neo_params_destroy(j.params);
    for (int i = 0; i < 2; i++) neo_reader_close(j.reader[i]), neo_schema_destroy(j.schema[i]);
    return NEO_OK;
}

int main(int argc, char **argv) { /* RANKS: threads; mpirun knows how many it starts */
    neo_comm_desc desc = {.ranks = argc > 2 ? atoi(argv[2]) : 1,
                          .ctx = {.seed = 1, .repro_shards = LEAVES}};
    if (argc < 2 || argc > 3 || argv[1][0] == '-' || desc.ranks < 1)
        return fprintf(stderr, "usage: job CHECKPOINTS [RANKS]\n"), 2;
    neo_status status = neo_stop_on_signals();
    if (status == NEO_OK) status = neo_comm_init_env(&desc, run, argv[1]);
    if (status != NEO_OK) return fprintf(stderr, "job: %s\n", neo_last_error()), 1;
    if (neo_stop_signal()) fprintf(stderr, "job: stopped and saved: the same command goes on\n");
    return neo_stop_signal() ? 128 + neo_stop_signal() : 0;
}
