/* neo_fsdp.h: sharded model state for neo: embedding tables placed by a plan over many ranks, with the same
   bits under every plan.

   Copy it beside neo.h and neo_comm.h. MIT licence (at the end of the file).

   WHAT IT DOES
     - a planner: from tables, batch and cluster it decides what goes where, predicts bytes and times, and says
       why
     - neo_shard: the verbs of neo_bags over tables that lie on many ranks: table-wise, column-wise, row-wise,
       data-parallel, and their combinations with nodes
     - the same bits: weights and optimizer state do not depend on the plan or the number of ranks
     - ids and pooled rows in one exchange each, on wires of 32, 16, 8 or 4 bits

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_fsdp.h"
         #include "neo_fsdp.h"
*/
#ifndef NEO_FSDP_H
#define NEO_FSDP_H

#include "neo_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
   >>plan

   A plan says which rank holds which rectangle of which table.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_plan neo_plan;

typedef enum neo_placement {
    NEO_TABLE_WISE,        /* "tw": the whole table on one rank */
    NEO_COLUMN_WISE,       /* "cw": slices of columns on several ranks */
    NEO_ROW_WISE,          /* "rw": ranges of rows over all ranks */
    NEO_DATA_PARALLEL,     /* "dp": a copy on every rank */
    NEO_TABLE_ROW_WISE,    /* "twrw": on one node, ranges of rows over its ranks */
    NEO_TABLE_COLUMN_WISE, /* "twcw": on one node, slices of columns over its ranks */
    NEO_GRID,              /* "grid": slices of columns over nodes, ranges of rows over the ranks of each */
    NEO_PLACEMENT_COUNT
} neo_placement;
NEO_API const char *neo_placement_name(neo_placement placement); /* "tw" ... */
/* neo_placement_parse: NEO_ERR_ARG for another word. */
NEO_API neo_status neo_placement_parse(const char *name, neo_placement *placement);

/* A rectangle of a table on one rank. */
enum { NEO_EVERY_RANK = -1 };
typedef struct neo_piece {
    int32_t table;
    int32_t rank; /* NEO_EVERY_RANK: a copy on each; then the whole table */
    int64_t first_row, rows, first_col, cols;
} neo_piece;

/* What the ranks are, for predictions. */
typedef struct neo_cluster {
    int32_t ranks;                  /* required */
    int32_t ranks_per_node;         /* 0: all in one node */
    int64_t memory_bytes;           /* that a rank may give to tables and to what training them takes; 0: no limit */
    double memory_bandwidth;        /* bytes per second that a rank's lookups read; 0: 10e9 */
    double flops;                   /* per second of a rank, in dense layers; 0: 50e9 */
    neo_link link[NEO_LEVEL_COUNT]; /* of a rank, each way; bandwidth 0: 5e9 inside a node, 1e9 between nodes */
} neo_cluster;

/* A plan follows from these numbers alone: the same input, the same plan. */
typedef struct neo_plan_desc {
    const neo_bags_desc *bags;      /* required; max_batch and max_ids are those of a batch over all ranks */
    const double *ids_per_sample;   /* [features] mean over a batch; NULL: max_ids / (max_batch x features) */
    neo_cluster cluster;
    neo_wire wire_forward, wire_backward; /* of pooled rows and of their gradients */
    unsigned placements;            /* those allowed, a bit 1u << placement each; 0: all that keep the bits */
    const unsigned *table_placements; /* [tables] the same for each table, 0: as placements; or NULL */
    int pipeline;                   /* 1: with the buffers of a second batch */
    double dense_flops_bottom, dense_flops_top; /* per sample, forward: dense layers beside and after the lookup */
    int64_t dense_params;           /* elements of replicated dense parameters */
} neo_plan_desc;

#ifdef __cplusplus
}
#endif
#endif /* NEO_FSDP_H */
