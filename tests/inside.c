/* inside.c: neo_fsdp.h as the tests implement it, and what inside.h asks of it. */
#ifndef NEO_FSDP_IMPLEMENTATION
#define NEO_FSDP_IMPLEMENTATION
#endif
#define NEO__CALIBRATE_RUNS 3 /* of 8 */
#define NEO__CALIBRATE_TIMES 2
#if defined(EMULATED)
#define NEO__CALIBRATE_SHIFT 12
#endif
#include "inside.h"

#include <string.h>

inside_shard inside_of_shard(const neo_shard *shard) {
    inside_shard s = {shard->whole, shard->ids,  shard->rows,    shard->node,
                      shard->cross, shard->bags, shard->replicas};
    return s;
}
int inside_tensor(const neo_bags *bags, int32_t table, int k, neo_tensor *x) {
    *x = neo__bags_tensor(bags, table, k);
    return k < NEO__SHARD_TENSORS;
}
int inside_part_of(const neo_shard *shard, int32_t i, inside_part *part) {
    const int64_t *begin = shard->map->part_begin + shard->rank;
    if (i >= begin[1] - begin[0]) return 0;
    const neo__shard_part *p = &shard->map->parts[begin[0] + i];
    const inside_part of = {p->table, p->first_row, p->rows, p->first_col, p->cols};
    *part = of;
    return 1;
}
int64_t inside_flows(const neo_shard *shard, int rank) {
    return shard->map->flow_begin[rank + 1] - shard->map->flow_begin[rank];
}
double inside_tier_share(const neo_plan *plan, int table) { return plan->lines[table].share; }
size_t inside_shard_bytes(neo_ctx *ctx, const neo_plan *plan) {
    neo__shard_map *map = NULL;
    if (neo__shard_map_create(ctx, plan, &map) != NEO_OK) return 0;
    const size_t bytes = sizeof(neo_shard) + map->bytes;
    neo__shard_map_destroy(map);
    return bytes;
}
inside_fsdp inside_of_fsdp(const neo_fsdp *f) {
    inside_fsdp g = {f->shard, f->replica, f->all};
    return g;
}
int64_t inside_fsdp_elements(const neo_fsdp *f, int unit) { return f->unit[unit].elements; }

size_t inside_group_bytes(const neo_shard *shard, const neo_comm *comm, int leaves) {
    neo_comm_backend backend = neo_comm_get_backend(comm);
    size_t bytes = 0;
    NEO__ZERO(neo_comm_desc, desc);
    desc.ctx.repro_shards = leaves;
    const int ranks = neo_comm_size(comm), groups = shard->map->groups;
    if (!shard->whole)
        bytes = neo_comm_workspace_bytes(&desc, ranks, backend) +
                neo_comm_workspace_bytes(&desc, ranks / groups, backend);
    if (shard->peers)
        bytes += neo_comm_workspace_bytes(&desc, ranks, backend) +
                 neo_comm_workspace_bytes(&desc, groups, backend);
    if (shard->node)
        bytes += neo_comm_workspace_bytes(&desc, shard->map->per_node, backend) +
                 neo_comm_workspace_bytes(&desc, shard->map->nodes, backend);
    return bytes;
}
