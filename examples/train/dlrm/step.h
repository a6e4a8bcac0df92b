/* step.h: forward, and one step of training, on this rank's samples of a batch. */
#ifndef DLRM_STEP_H
#define DLRM_STEP_H
#include "towers.h"

/* Copies dense numbers and labels of a batch to the device, if there is one; of ids see bring_ids.
   Without dense numbers there is a 1 in their place; of several labels a missing one has weight
   0. */
static neo_status bring(model *m, neo_batch *batch) {
    int given = m->ones.data == NULL;
    if (m->tasks > 1) {
        neo_batch_tasks(m->schema, batch, m->task_label, m->task_weight);
        batch->label = neo_tensor_2d(m->task_label, NEO_F32, batch->size, m->tasks);
        batch->weight = neo_tensor_2d(m->task_weight, NEO_F32, batch->size, m->tasks);
    }
    if (!given) batch->dense = neo_tensor_rows(m->ones, 0, batch->size);
    if (!neo_ctx_device(m->ctx)) return NEO_OK;
    neo_tensor dense = neo_tensor_rows(m->dense_in, 0, batch->size);
    neo_tensor label = neo_tensor_rows(m->label, 0, batch->size);
    if (batch->label.ndim == 1) label = neo_tensor_reshape(label, 1, &batch->size);
    if (given) TRY(neo_tensor_copy(m->ctx, batch->dense, dense));
    TRY(neo_tensor_copy(m->ctx, batch->label, label));
    if (batch->weight.data) {
        neo_tensor weight = neo_tensor_rows(m->weight, 0, batch->size);
        if (batch->weight.ndim == 1) weight = neo_tensor_reshape(weight, 1, &batch->size);
        TRY(neo_tensor_copy(m->ctx, batch->weight, weight));
        batch->weight = weight;
    }
    if (given) batch->dense = dense;
    batch->label = label;
    return NEO_OK;
}

enum { SUM_WORDS = sizeof(batch_sum) / sizeof(int64_t) };

/* Samples [first, ...) of this rank's are the next forward's: what drops follows from their place
   in the whole batch. */
static void drop_from(const model *m, neo_mlp *mlp, int64_t global_size, int64_t first) {
    int leaf = neo_fsdp_piece(m->dense, 0, global_size).first;
    int64_t start = neo_leaf_begin(global_size, neo_ctx_repro_shards(m->ctx), leaf);
    neo_mlp_drop(mlp, m->batch_number, start + first);
}

static neo_status forward_bottom(model *m, const neo_batch *batch, neo_tensor x) {
    TRY(neo_fsdp_forward_begin(m->dense, BOTTOM));
    drop_from(m, m->bottom, batch->global_size, 0);
    TRY(neo_mlp_forward(m->bottom, batch->dense, x));
    return neo_fsdp_forward_end(m->dense, BOTTOM);
}

/* The columns of task t in n rows of of_tasks or dof_tasks; of one task: all of e. */
static neo_tensor task_rows(const model *m, neo_tensor by_tasks, neo_tensor e, int64_t t) {
    if (m->tasks == 1) return e;
    int64_t width = e.shape[1] / m->tasks;
    return neo_tensor_slice(neo_tensor_rows(by_tasks, 0, e.shape[0]), 1, t * width, width);
}
/* Between e, whose rows have the columns of each task, and those of task t side by side. */
static neo_status move_task(const model *m, neo_tensor e, neo_tensor of_task, int64_t t,
                            int into_e) {
    const int64_t features = neo_schema_feature_count(m->schema);
    const int64_t width = features ? of_task.shape[1] / features : 0;
    for (int64_t f = 0; m->tasks > 1 && f < features; f++) {
        neo_tensor a = neo_tensor_slice(e, 1, (f * m->tasks + t) * width, width);
        neo_tensor b = neo_tensor_slice(of_task, 1, f * width, width);
        TRY(neo_tensor_copy(m->ctx, into_e ? b : a, into_e ? a : b));
    }
    return NEO_OK;
}
/* Task t's columns of v or dv, in n rows; none where there is none. */
static neo_tensor task_factors(const model *m, neo_tensor v, int64_t t, int64_t n) {
    if (!v.data) return neo_tensor_none();
    int64_t width = v.shape[1] / m->tasks;
    return neo_tensor_slice(neo_tensor_rows(v, 0, n), 1, t * width, width);
}
/* The factorization machine of each task, into its column of wide, and back from that of dlogit. */
static neo_status pair_rows(model *m, neo_tensor e, neo_tensor wide) {
    const int64_t n = e.shape[0], features = neo_schema_feature_count(m->schema);
    for (int64_t t = 0; t < m->tasks; t++) {
        neo_tensor rows = task_rows(m, m->of_tasks, e, t);
        neo_tensor y = m->tasks > 1 ? neo_tensor_rows(m->one, 0, n) : wide;
        TRY(move_task(m, e, rows, t, 0));
        if (m->kind->meets == AWARE)
            TRY(neo_ffm_forward(m->ctx, features, m->factors, 1, rows, y));
        else TRY(neo_fm_forward(m->ctx, m->factors, 1, rows, y, task_factors(m, m->v, t, n)));
        if (m->tasks > 1) TRY(neo_tensor_copy(m->ctx, y, neo_tensor_slice(wide, 1, t, 1)));
    }
    return NEO_OK;
}
static neo_status pair_rows_backward(model *m, neo_tensor e, neo_tensor dlogit, neo_tensor de) {
    const int64_t n = e.shape[0], features = neo_schema_feature_count(m->schema);
    for (int64_t t = 0; t < m->tasks; t++) {
        neo_tensor rows = task_rows(m, m->of_tasks, e, t), dy = dlogit;
        neo_tensor drows = task_rows(m, m->dof_tasks, de, t);
        if (m->tasks > 1) {
            dy = neo_tensor_rows(m->done, 0, n);
            TRY(neo_tensor_copy(m->ctx, neo_tensor_slice(dlogit, 1, t, 1), dy));
        }
        if (m->kind->meets == AWARE)
            TRY(neo_ffm_backward(m->ctx, features, m->factors, 1, rows, dy, drows));
        else
            TRY(neo_fm_backward(m->ctx, m->factors, 1, rows, dy, task_factors(m, m->dv, t, n),
                                drows));
        TRY(move_task(m, de, drows, t, 1));
    }
    return NEO_OK;
}

/* x and e meet, in z or in `wide`; of dcnv2, wukong they are side by side in z already. */
static neo_status interact(model *m, const neo_batch *batch, neo_tensor x, neo_tensor e) {
    int64_t n = batch->size;
    if (m->kind->meets == DOTS)
        return neo_interact_forward(m->ctx, 0, x, e, neo_tensor_rows(m->z, 0, n));
    if (m->kind->meets == BESIDE) return NEO_OK;
    neo_tensor wide = neo_tensor_rows(m->wide, 0, n), given = neo_tensor_rows(m->given, 0, n);
    if (given.data) TRY(neo_tensor_copy(m->ctx, batch->dense, given));
    TRY(pair_rows(m, e, wide));
    return neo_add(m->ctx, wide, x);
}
static neo_status interact_backward(model *m, int64_t n, neo_tensor x, neo_tensor e,
                                    neo_tensor dx, neo_tensor de) {
    if (m->kind->meets == DOTS)
        return neo_interact_backward(m->ctx, 0, x, e, neo_tensor_rows(m->dz, 0, n), dx, de);
    if (m->kind->meets == BESIDE) return NEO_OK;
    return pair_rows_backward(m, e, neo_tensor_rows(m->dlogit, 0, n), de);
}

/* Samples [first, first + n) of z to their logits, and back. */
static neo_status forward_top(model *m, int64_t global_size, int64_t first, int64_t n) {
    neo_tensor z = neo_tensor_rows(m->z, first, n), logit = neo_tensor_rows(m->logit, first, n);
    if (!m->top) return NEO_OK;
    if (m->crossed.data) {
        neo_tensor crossed = neo_tensor_rows(m->crossed, first, n);
        if (m->cross) TRY(neo_cross_forward(m->cross, z, crossed));
        else TRY(neo_wukong_forward(m->wukong, z, crossed));
        z = crossed;
    }
    drop_from(m, m->top, global_size, first);
    TRY(neo_mlp_forward(m->top, z, logit));
    if (!m->wide.data) return NEO_OK;
    return neo_add(m->ctx, logit, neo_tensor_rows(m->wide, first, n));
}
static neo_status backward_top(model *m, const neo_leaves *leaves, int64_t first, int64_t n) {
    neo_tensor dlogit = neo_tensor_rows(m->dlogit, first, n);
    neo_tensor dz = neo_tensor_rows(m->dz, first, n);
    if (!m->top) return NEO_OK;
    if (!m->crossed.data) return neo_mlp_backward(m->top, leaves, dlogit, dz);
    neo_tensor dcrossed = neo_tensor_rows(m->dcrossed, first, n);
    TRY(neo_mlp_backward(m->top, leaves, dlogit, dcrossed));
    if (m->wukong) return neo_wukong_backward(m->wukong, leaves, dcrossed, dz);
    return neo_cross_backward(m->cross, leaves, dcrossed, dz);
}

/* The logits of this rank's samples, without training. */
static neo_status forward(model *m, const neo_batch *batch) {
    int64_t n = batch->size;
    m->batch_number = -1;
    neo_tensor x = neo_tensor_rows(m->x, 0, n), e = neo_tensor_rows(m->e, 0, n);
    TRY(begin_tables(m, batch, &(told_batches){0}));
    TRY(take_rows(m, e));
    TRY(forward_bottom(m, batch, x));
    TRY(interact(m, batch, x, e));
    if (!m->top) return NEO_OK;
    TRY(neo_fsdp_forward_begin(m->dense, TOP));
    TRY(forward_top(m, batch->global_size, 0, n));
    return neo_fsdp_forward_end(m->dense, TOP);
}

/* Forward and backward of the top MLP, and the loss. At its end the gradients of all ranks begin to
   add up. */
static neo_status step_top(model *m, const neo_batch *batch, const part *parts, int count) {
    int64_t samples = batch->global_size ? batch->global_size : 1;
    batch_sum *sum = &m->sum[m->turn];
    neo_loss_desc d = {.batch = samples * m->micro_batches, .sum = &sum->loss};
    neo_exact_zero(&sum->loss);
    sum->stops = neo_stop_signal() != 0;
    for (int k = 0; k < count; k++) {
        int64_t first = parts[k].first, n = parts[k].rows;
        neo_tensor logit = neo_tensor_rows(m->logit, first, n);
        neo_tensor dlogit = neo_tensor_rows(m->dlogit, first, n);
        neo_tensor label = neo_tensor_rows(batch->label, first, n);
        if (batch->weight.data) d.weight = neo_tensor_rows(batch->weight, first, n);
        if (m->top) TRY(neo_fsdp_backward_begin(m->dense, TOP, k));
        TRY_SPAN(m->ctx, "top forward", forward_top(m, batch->global_size, first, n));
        TRY(neo_bce_with_logits(m->ctx, &d, logit, label, dlogit, NULL));
        TRY_SPAN(m->ctx, "top backward", backward_top(m, &parts[k].leaves, first, n));
        if (m->top) TRY(neo_fsdp_backward_end(m->dense, TOP));
    }
    if (neo_comm_size(m->comm) == 1) return NEO_OK;
    if (m->graph) /* the loss is there when the step is over: see sum_loss */
        return neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, &sum->stops, &sum->stops, 1, NEO_I64,
                                   &m->sum_ticket);
    TRY_SPAN(m->ctx, "sums begin", /* of integers, which add in any order; a thread may wake */
             neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, sum, sum, SUM_WORDS, NEO_I64,
                                 &m->sum_ticket));
    return NEO_OK;
}

/* Of a recorded step that is over: its loss of all ranks. */
static neo_status sum_loss(model *m, neo_exact *loss) {
    if (!m->graph || neo_comm_size(m->comm) == 1) return NEO_OK;
    return neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, loss, loss,
                               sizeof *loss / sizeof(int64_t), NEO_I64, NULL);
}

static neo_status step_bottom(model *m, const neo_batch *batch, const part *parts, int count) {
    for (int k = 0; k < count; k++) {
        int64_t first = parts[k].first, n = parts[k].rows;
        neo_tensor x = neo_tensor_rows(m->x, first, n), dx = neo_tensor_rows(m->dx, first, n);
        TRY(neo_fsdp_backward_begin(m->dense, BOTTOM, k));
        if (count > 1 || batch->global_size == 0) { /* an MLP remembers one forward pass */
            drop_from(m, m->bottom, batch->global_size, first);
            TRY(neo_mlp_forward(m->bottom, neo_tensor_rows(batch->dense, first, n), x));
        }
        TRY(neo_mlp_backward(m->bottom, &parts[k].leaves, dx, neo_tensor_none()));
        TRY(neo_fsdp_backward_end(m->dense, BOTTOM));
    }
    return NEO_OK;
}

/* The end of a step whose gradients were kept. The MLPs count the batches of a step: those that an
   epoch's last step lacks bring gradients of zero. */
static neo_status step_kept(model *m, float lr) {
    part parts[NEO_MAX_SUBTREES];
    batch_sum sum = m->sum[m->turn];
    neo_batch none = {.dense = neo_tensor_2d(m->x.data, NEO_F32, 0, dense_width(m)),
                      .label = neo_tensor_rows(m->logit, 0, 0)};
    none.dense.place = m->x.place;
    for (; m->kept < m->micro_batches; m->kept++) {
        int count = cut_batch(m, m->dense, 0, parts);
        TRY(step_top(m, &none, parts, count));
        if (neo_comm_size(m->comm) > 1) TRY(neo_comm_wait(m->comm, m->sum_ticket));
        TRY(step_bottom(m, &none, parts, count));
    }
    m->kept = 0;
    m->sum[m->turn] = sum;
    if (!m->tables) return neo_fsdp_step(m->dense, lr);
    if (m->hot.warm) TRY(count_warm_rows(m));
    TRY(neo_fsdp_step_tables(m->dense, m->tables, lr));
    return m->hot.warm ? step_warm_rows(m, lr) : NEO_OK;
}

/* One batch, and the step if `last` (it is the last batch of a step). The sum of its losses, over
   all ranks, is left in m->sum[m->turn] (of a recorded step by sum_loss). With a pipeline rows
   travel between begin and end of the tables' calls while the bottom MLP and the reductions run,
   and the ids of a next batch travel through the whole step. In a graph tables have a lane beside
   that of the bottom MLP and of the dense step. next: none after the last batch of an epoch. */
enum { TABLES_LANE = 1 };
static neo_status train_batch(model *m, neo_batch *batch, const told_batches *next, int last,
                              float lr) {
    part parts[NEO_MAX_SUBTREES];
    TRY(bring(m, batch));
    int count = cut_batch(m, m->dense, batch->global_size, parts), overlap = m->pipeline;
    int64_t n = batch->size;
    neo_tensor x = neo_tensor_rows(m->x, 0, n), dx = neo_tensor_rows(m->dx, 0, n);
    neo_tensor e = neo_tensor_rows(m->e, 0, n), de = neo_tensor_rows(m->de, 0, n);

    graph_join(m->graph);
    graph_lane(m->graph, TABLES_LANE);
    TRY(begin_tables(m, batch, overlap ? next : &(told_batches){0}));
    if (!overlap) TRY(take_rows(m, e));
    graph_lane(m->graph, 0);
    TRY_SPAN(m->ctx, "bottom forward", forward_bottom(m, batch, x));
    graph_join(m->graph);
    if (overlap) TRY(take_rows(m, e));
    TRY(interact(m, batch, x, e));
    TRY(step_top(m, batch, parts, count));
    TRY(interact_backward(m, n, x, e, dx, de));
    graph_join(m->graph);
    graph_lane(m->graph, TABLES_LANE);
    TRY(return_rows(m, de));
    if (!overlap) TRY(end_tables(m, batch->global_size, lr));
    graph_lane(m->graph, 0);
    TRY_SPAN(m->ctx, "bottom backward", step_bottom(m, batch, parts, count));
    graph_lane(m->graph, TABLES_LANE);
    if (overlap) TRY(end_tables(m, batch->global_size, lr));
    graph_lane(m->graph, 0);
    if (m->keeps) graph_join(m->graph);
    if (neo_comm_size(m->comm) > 1) TRY(neo_comm_wait(m->comm, m->sum_ticket));
    if (!m->keeps) return neo_fsdp_step(m->dense, lr);
    m->kept++;
    return last ? step_kept(m, lr) : NEO_OK;
}
#endif
