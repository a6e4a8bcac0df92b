/* inside.h: what tests ask of the private parts of neo_fsdp.h. Answers are in the checked neo; a
   test with an implementation of its own includes inside.c instead. */
#ifndef NEO_TEST_INSIDE_H
#define NEO_TEST_INSIDE_H

#include "neo_fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif
typedef struct inside_shard {
    int whole;                           /* one rank alone: it has no groups */
    neo_comm *ids, *rows, *node, *cross; /* groups, NULL where it has none */
    const neo_bags *bags, *replicas;
} inside_shard;
typedef struct inside_fsdp {
    neo_comm *shard, *replica, *all;
} inside_fsdp;
typedef struct inside_part { /* of a table: rows and columns that a rank has */
    int32_t table;
    int64_t first_row, rows, first_col, cols;
} inside_part;
inside_shard inside_of_shard(const neo_shard *shard);
/* Tensor k of a table: its weight, scales and state; 0: there are fewer. */
int inside_tensor(const neo_bags *bags, int32_t table, int k, neo_tensor *x);
/* The part that is table i of shard's bags; 0: there are fewer. */
int inside_part_of(const neo_shard *shard, int32_t i, inside_part *part);
/* Parts of tables, feature by feature, that send pooled rows to a rank. */
int64_t inside_flows(const neo_shard *shard, int rank);
/* neo_table_desc.tier_share as the plan has it of a table. */
double inside_tier_share(const neo_plan *plan, int table);
/* Bytes of a neo_shard itself, with what all ranks know of the plan. */
size_t inside_shard_bytes(neo_ctx *ctx, const neo_plan *plan);
inside_fsdp inside_of_fsdp(const neo_fsdp *f);
int64_t inside_fsdp_elements(const neo_fsdp *f, int unit);
/* Memory of the groups that neo_shard_create has made out of comm, for so many leaves. */
size_t inside_group_bytes(const neo_shard *shard, const neo_comm *comm, int leaves);
#ifdef __cplusplus
}
#endif
#endif
