/* inside.h: what tests ask of the private parts of neo_fsdp.h. Answers are in the checked neo; a
   test with an implementation of its own includes inside.c instead. */
#ifndef NEO_TEST_INSIDE_H
#define NEO_TEST_INSIDE_H

#include "neo_fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif
typedef struct inside_shard {
    int whole;                   /* one rank alone: it has no groups */
    neo_comm *ids, *rows, *node; /* groups, NULL where it has none */
} inside_shard;
typedef struct inside_fsdp {
    neo_comm *shard, *replica, *all;
} inside_fsdp;
inside_shard inside_of_shard(const neo_shard *shard);
inside_fsdp inside_of_fsdp(const neo_fsdp *f);
int64_t inside_fsdp_elements(const neo_fsdp *f, int unit);
/* Memory of the groups that neo_shard_create has made out of comm, for so many leaves. */
size_t inside_group_bytes(const neo_shard *shard, const neo_comm *comm, int leaves);
#ifdef __cplusplus
}
#endif
#endif
