/* towers.h: --towers: the tables in towers, each held by a node, where a layer makes one row of a
   tower's pooled rows (neo_towers of neo_fsdp.h; "Disaggregated Multi-Tower"). The model above sees
   a row of every tower instead of one of every feature; only these rows leave the nodes. */
#ifndef DLRM_TOWERS_H
#define DLRM_TOWERS_H
#include "hot.h"

/* Tables of like memory in all towers. affinity: room for count^2. */
static neo_status part_tables(model *m, const neo_bags_desc *bags, int32_t towers,
                              double *affinity) {
    const int32_t count = bags->table_count;
    double *cost = affinity + (size_t)count * (size_t)count;
    for (int32_t t = 0; t < count; t++) cost[t] = (double)bags->tables[t].rows;
    return neo_tower_partition(m->ctx, affinity, cost, count, towers, 0, m->tower);
}

/* Collective. */
static neo_status create_towers(model *m, const options *o, const neo_bags_desc *bags) {
    const size_t count = (size_t)bags->table_count;
    double *affinity = calloc(count * count + count, sizeof *affinity);
    m->tower = calloc(count, sizeof *m->tower);
    neo_plan_desc plan = {.bags = bags, .ids_per_sample = m->ids,
                          .weighted = neo_schema_is_weighted(m->schema),
                          .cluster = {.memory_bytes = o->memory}};
    neo_towers_desc d = {.plan = &plan, .table_tower = m->tower, .tower_count = (int32_t)o->towers,
                         .out_width = o->dim};
    neo_status status = affinity && m->tower ? NEO_OK : out_of_memory();
    if (status == NEO_OK) status = parse_wires(o, &d.wire_forward, &d.wire_backward);
    plan.wire_forward = d.wire_forward, plan.wire_backward = d.wire_backward;
    if (status == NEO_OK) status = part_tables(m, bags, d.tower_count, affinity);
    status = agree(m->comm, status);
    if (status == NEO_OK) status = neo_towers_create(m->data, &d, &m->towers);
    free(affinity);
    return status;
}

/* The layers of this node's towers, and their optimizer over its ranks. Collective in the node. */
static neo_status create_modules(model *m, const options *o) {
    const int held = neo_towers_held(m->towers);
    neo_fsdp_unit units[MAX_TOWERS] = {{0}};
    char names[MAX_TOWERS][32];
    neo_fsdp_desc d = {.units = units, .unit_count = held,
                       .optim = {.name = "modules",
                                 .weight_decay = (float)(o->weight_decay + o->l2),
                                 .l1 = (float)o->l1, .eps = (float)o->eps}};
    neo_bag_optim_kind of_tables;
    neo_status status = parse_dense_shard(o->dense_shard, &d.mode);
    if (status == NEO_OK) status = parse_optimizer(o->optimizer, &d.optim.kind, &of_tables);
    for (int k = 0; status == NEO_OK && k < held; k++) {
        neo_tower t = neo_towers_at(m->towers, k);
        snprintf(names[k], sizeof names[k], "tower.%d", (int)t.tower);
        neo_mlp_desc mlp = {.name = names[k], .width_count = 2, .dtype = m->dtype,
                            .widths = {t.in.shape[1], o->dim}, .last_act = NEO_ACT_RELU,
                            .max_batch = most_samples(neo_towers_comm(m->towers), o->batch)};
        status = neo_params_create_deferred(m->ctx, &m->module_params[k]);
        if (status == NEO_OK)
            status = neo_mlp_create(m->ctx, m->module_params[k], &mlp, &m->modules[k]);
        units[k] = (neo_fsdp_unit){.name = names[k], .params = m->module_params[k]};
    }
    TRY(agree(m->comm, status));
    return neo_fsdp_create(neo_towers_comm(m->towers), &d, &m->units_of_towers);
}

/* Pooled rows of a node's towers to their rows, which are then on their way to the samples. */
static neo_status begin_towers(model *m, const neo_batch *batch) {
    TRY(neo_towers_forward(m->towers, &batch->sparse, batch->global_size));
    for (int k = 0; k < neo_towers_held(m->towers); k++) {
        neo_tower t = neo_towers_at(m->towers, k);
        TRY(neo_fsdp_forward_begin(m->units_of_towers, k));
        TRY(neo_mlp_forward(m->modules[k], t.in, t.out));
        TRY(neo_fsdp_forward_end(m->units_of_towers, k));
    }
    return neo_towers_exchange_begin(m->towers);
}

/* The gradients of the towers' rows are on their way: from them a step of layers and tables. */
static neo_status end_towers(model *m, int64_t global_size, float lr) {
    part parts[NEO_MAX_SUBTREES];
    const int count = cut_batch(m, m->units_of_towers, global_size, parts);
    TRY(neo_towers_exchange_back_end(m->towers));
    for (int k = neo_towers_held(m->towers) - 1; k >= 0; k--)
        for (int p = 0; p < count; p++) {
            neo_tower t = neo_towers_at(m->towers, k);
            neo_tensor of[4] = {t.in, t.out, t.dout, t.din};
            for (int i = 0; i < 4; i++)
                of[i] = neo_tensor_rows(of[i], parts[p].first, parts[p].rows);
            TRY(neo_fsdp_backward_begin(m->units_of_towers, k, p));
            if (count > 1) TRY(neo_mlp_forward(m->modules[k], of[0], of[1])); /* it remembers one */
            TRY(neo_mlp_backward(m->modules[k], &parts[p].leaves, of[2], of[3]));
            TRY(neo_fsdp_backward_end(m->units_of_towers, k));
        }
    TRY(neo_towers_backward(m->towers, lr));
    return neo_fsdp_step(m->units_of_towers, lr);
}
/* ---- the tables of a step, in towers or on all ranks ---- */

/* Tables that a budget does not hold: say whose it is. */
static neo_status advise_budget(neo_status status) {
    const char *said = status == NEO_OK ? "" : neo_last_error();
    if (!strstr(said, "bytes each would do") && !strstr(said, "a batch of these tables needs"))
        return status;
    return neo_fail(status, "%s: give as many by --memory", said);
}
/* Tables that memory does not hold: say what makes them fit. */
static neo_status advise_memory(const options *o, neo_status status) {
    if (status != NEO_ERR_MEMORY || o->tier) return status;
    return neo_fail(status, "%s: --rows N gives tables fewer rows, --tier FILE --memory BYTES "
                    "keeps them in a file%s", neo_last_error(),
                    o->hot ? "; ids that large come of a wrong --hot, too" : "");
}
/* Collective. */
static neo_status create_tables(model *m, const options *o) {
    neo_plan *plan = NULL, *warm = NULL;
    neo_bags_desc whole = {0}, bags;
    size_t count = (size_t)neo_schema_feature_count(m->schema);
    if (!count) return NEO_OK;
    neo_table_desc *tables = calloc(count, sizeof *tables);
    neo_status mine = tables ? describe_tables(m, o, tables, &whole) : out_of_memory();
    const int apart = o->hot_rows || o->warm_rows;
    if (apart) mine = choose_rows(m, o, &whole, mine);
    do {
        bags = whole;
        neo_plan_destroy(warm);
        warm = NULL;
        if (mine == NEO_OK && apart) mine = split_tables(m, o, &bags);
        mine = agree(m->comm, mine);
        if (mine == NEO_OK && m->hot.features[WARM]) mine = plan_warm(m, o, &bags, &warm);
        if (mine == NEO_OK && !o->towers) mine = make_plan(m, o, &bags, warm, &plan);
    } while (mine == NEO_ERR_CAPACITY && fewer_rows(m, o, &mine));
    if (mine == NEO_OK && apart) mine = alloc_split(m, whole.table_count);
    if (mine == NEO_OK && apart) tell_choice(m, o);
    neo_status status = agree(m->comm, mine);
    if (status == NEO_OK && warm) status = create_warm(m, o, warm);
    neo_plan_destroy(warm);
    if (status == NEO_OK && o->towers) status = create_towers(m, o, &bags);
    else if (status == NEO_OK)
        status = agree(m->comm, advise_memory(o, neo_shard_create(m->data, plan, &m->tables)));
    neo_plan_destroy(plan);
    free(tables);
    return status == NEO_OK && o->towers ? create_modules(m, o) : status;
}

/* Numbers [first, end) of an array to one of the device, which has room for as many, or more. */
static neo_status send_numbers(model *m, const void *from, neo_dtype dtype, int64_t first,
                               int64_t end, neo_tensor *to) {
    const size_t at = (size_t)first * neo_dtype_size(dtype);
    const int64_t room = end + end / 4 + 1;
    if (!to->data || to->dtype != dtype || to->shape[0] < end) {
        neo_tensor_free(m->ctx, to);
        TRY(neo_tensor_alloc(m->ctx, dtype, 1, &room, to));
    }
    if (first == end) return NEO_OK;
    return neo_tensor_copy(m->ctx, neo_tensor_1d((char *)(uintptr_t)from + at, dtype, end - first),
                           neo_tensor_slice(*to, 0, first, end - first));
}
static neo_status send_ids(model *m, const neo_jagged *batch, int turn) {
    neo_jagged *there = &m->there.side[turn].batch;
    neo_tensor *offsets = &m->there.side[turn].offsets, *ids = &m->there.side[turn].ids,
               *weights = &m->there.side[turn].weights, *inverse = &m->there.side[turn].inverse;
    const int64_t bags = neo_jagged_bag_count(batch), none[1] = {0};
    const int64_t *host = bags ? batch->offsets : none;
    TRY(send_numbers(m, host, NEO_I64, 0, bags + 1, offsets));
    TRY(send_numbers(m, batch->ids, batch->id_dtype, host[0], host[bags], ids));
    if (batch->weights)
        TRY(send_numbers(m, batch->weights, NEO_F32, host[0], host[bags], weights));
    if (batch->inverse)
        TRY(send_numbers(m, batch->inverse, NEO_I32, 0, batch->batch * batch->feature_count,
                         inverse));
    *there = *batch;
    there->place = NEO_DEVICE;
    there->offsets = offsets->data, there->ids = ids->data;
    there->weights = batch->weights ? weights->data : NULL;
    there->inverse = batch->inverse ? inverse->data : NULL;
    return NEO_OK;
}
/* Batches become their copies on the device, where tables take ids from there. */
static neo_status put_there(model *m, int turn, int is_there, const neo_jagged **batch) {
    if (!is_there) TRY(send_ids(m, *batch, turn));
    *batch = &m->there.side[turn].batch;
    return NEO_OK;
}
static neo_status bring_ids(model *m, const neo_jagged **batch, const neo_jagged **next) {
    return m->there.on ? put_in_turn(m, &m->there.turns, put_there, batch, next) : NEO_OK;
}
/* How many ids go where is for the host to know, which waits for nothing in a recorded step: ids
   that no step before has sent (of the first batch, without a pipeline of all) set off before it,
   behind the last one. */
static neo_status send_own_ids(model *m, const neo_batch *batch) {
    const neo_jagged *own = &batch->sparse;
    turns *t = &m->there.turns;
    if (!m->there.on || !m->graph || t->ahead) return NEO_OK;
    TRY(put_there(m, t->now, 0, &own));
    TRY(neo_ctx_synchronize(m->ctx)); /* a prefetch is beside other calls */
    t->ahead = 1;
    return neo_shard_prefetch(m->tables, own, batch->global_size);
}
/* Rows of the tables, or of the towers, set off to the samples; with a tier several batches to come
   are told of, else one. */
static neo_status begin_tables(model *m, const neo_batch *batch, const told_batches *next) {
    if (m->towers) return begin_towers(m, batch);
    if (!m->tables) return NEO_OK;
    const neo_jagged *now = &batch->sparse, *then = next->count ? &next->at[0]->sparse : NULL;
    TRY(split_batches(m, &now, &then));
    if (m->hot.warm) TRY(begin_warm_rows(m, batch->global_size, next->at[0]));
    TRY(bring_ids(m, &now, &then));
    TRY(neo_shard_forward_begin(m->tables, now, batch->global_size));
    for (int i = 0; i < next->count; i++)
        TRY(neo_shard_prefetch(m->tables, i ? &next->at[i]->sparse : then,
                               next->at[i]->global_size));
    return NEO_OK;
}
static neo_status take_rows(model *m, neo_tensor e) {
    if (m->towers) return neo_towers_exchange_end(m->towers, e);
    if (m->hot.tables) return take_hot_rows(m, e);
    return m->tables ? neo_shard_forward_end(m->tables, e) : NEO_OK;
}
/* Their gradients set off, and arrive. */
static neo_status return_rows(model *m, neo_tensor de) {
    if (m->towers) return neo_towers_exchange_back_begin(m->towers, de);
    if (m->hot.tables) return return_hot_rows(m, de);
    return m->tables ? neo_shard_backward_begin(m->tables, de) : NEO_OK;
}
static neo_status end_tables(model *m, int64_t global_size, float lr) {
    if (m->towers) return end_towers(m, global_size, lr);
    if (!m->tables) return NEO_OK;
    if (m->hot.warm) TRY(end_warm_rows(m, lr));
    return m->keeps ? neo_shard_accumulate_end(m->tables) : neo_shard_backward_end(m->tables, lr);
}
#endif
