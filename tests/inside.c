/* inside.c: neo_fsdp.h as the tests implement it, and what inside.h asks of it. */
#ifndef NEO_FSDP_IMPLEMENTATION
#define NEO_FSDP_IMPLEMENTATION
#endif
#include "inside.h"

#include <string.h>

inside_shard inside_of_shard(const neo_shard *shard) {
    inside_shard s = {shard->whole, shard->ids, shard->rows, shard->node};
    return s;
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
