/* neo_fsdp.h: sharded model state for neo: embedding tables placed by a plan, and dense parameters
   cut in units, over many ranks, with the same bits however they lie.

   Copy it beside neo.h and neo_comm.h. MIT licence (at the end of the file).

   WHAT IT DOES
     - a planner: from tables, batch and cluster it decides what goes where, predicts bytes and
       times, and says why
     - neo_shard: the verbs of neo_bags over tables that lie on many ranks: table-wise, column-wise,
       row-wise, data-parallel, and their combinations with nodes; gradients stepped at once, or
       kept over several batches, clipped by one norm with the dense ones, under one loss scale
     - neo_fsdp: dense parameters, gradients and optimizer state cut over the ranks, gathered unit
       by unit: fully sharded, hybrid, ZeRO-1, ZeRO-2, or copied with bucketed reductions; bytes
       predicted exactly
     - the same bits: weights and optimizer state do not depend on the plan, the mode or the number
       of ranks
     - ids and pooled rows in one exchange each, on wires of 32, 16, 8 or 4 bits
     - checkpoints that any number of ranks loads under any plan; nothing is allocated in a step

   WHAT IT DOES NOT DO
     - batches with feature_bags: pooled rows are one matrix with a row for each sample of all
       features, which ranks cut by samples; a feature with fewer can be filled up with empty bags
     - tables of NEO_POOL_NONE that are cut by columns
     - gradients of your own (neo_bags_add_grad)

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_fsdp.h"
         #include "neo_fsdp.h"
     On every rank (neo_comm_init_env runs a function on each; README.md has a whole program):
         neo_plan_create(ctx, &desc, &plan);      desc.bags as for neo_bags_create, of all ranks
         neo_shard_create(comm, plan, &shard);
         per batch, with this rank's samples of it:
             neo_shard_forward_begin(shard, &batch.sparse, batch.global_size);
             neo_shard_prefetch(shard, &next.sparse, next.global_size);    if desc.pipeline is set
             ... the bottom MLP ...
             neo_shard_forward_end(shard, e);                     e [samples][sum of dims]
             ... interaction, top MLP, loss, and back: de ...
             neo_shard_backward_begin(shard, de);
             ... the bottom MLP's backward, the reduction of dense gradients ...
             neo_shard_backward_end(shard, lr);
     A trainer of dense units is at >>fsdp.

   GLOSSARY
     placement   how one table lies on the ranks: whole, in slices of columns, in ranges of rows,
                 or copied
     piece       a rectangle of a table on one rank; a plan is a list of pieces
     slice       the pieces of a table with the same columns: together all its rows
     unit        dense parameters that are gathered together; its chunks lie on F ranks
     window      from begin to end of a unit's forward or backward: its parameters are whole

   A NEW WAY TO SHARD
     tables    neo_placement (>>plan), its name and NEO__PLAN_ROW_BITS and its like (>>impl-plan);
               neo__plan_classify, which knows it by its pieces (>>impl-plan-pieces); into how many
               parts it cuts (>>impl-plan-options); its line in plan files (>>impl-plan-file).
               Buffers, predictions and sharded tables read the list of pieces alone: rectangles on
               one rank each, or the whole table on every rank. tests/shard/common.h: place()
     dense     neo_fsdp_mode with its bytes (>>fsdp), its name, and what a unit keeps between its
               windows: neo__fsdp_describe_unit (>>impl-fsdp). tests/fsdp/grid.c draws the modes

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_fsdp.h is the map)
     >>fsdp-config >>plan >>shard >>fsdp >>impl-plan >>impl-plan-model >>impl-plan-buffers
     >>impl-plan-predict >>impl-plan-pieces >>impl-plan-options >>impl-plan-place
     >>impl-plan-improve >>impl-plan-search >>impl-plan-why >>impl-plan-file >>impl-plan-calls
     >>impl-calibrate >>impl-shard-map >>impl-shard >>impl-shard-ids >>impl-shard-device
     >>impl-shard-rows >>impl-shard-nodes >>impl-shard-copies >>impl-shard-cut >>impl-shard-none
     >>impl-shard-step >>impl-shard-weights >>impl-shard-keep >>impl-shard-table >>impl-fsdp
     >>impl-fsdp-gather >>impl-fsdp-reduce >>impl-fsdp-step >>impl-fsdp-state
*/
#ifndef NEO_FSDP_H
#define NEO_FSDP_H

/* ---------------------------------------------------------------------------
   >>fsdp-config

   Macros a user may define, beside those of neo.h and neo_comm.h, in the file that implements:
     NEO_IMPLEMENTATION        emits neo.h, neo_comm.h and neo_fsdp.h
     NEO_FSDP_IMPLEMENTATION   emits neo_fsdp.h alone (the others are implemented elsewhere)
   ------------------------------------------------------------------------ */
#include "neo_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>plan

   A plan says which rank holds which rectangle of which table. neo_plan_create searches one that
   makes a training step short within the memory of the ranks. Every rank makes the same plan for
   itself: a plan depends on its input alone.

   Where tables may be cut, so that no bit of weights and state depends on the plan:
     columns  at multiples of NEO_PLAN_BLOCK, of NEO_WIRE_BLOCK if a wire is f8, i8 or i4; rows of
              i8 are not cut
     rows     where a bucket of neo_table_desc.row_buckets begins: a table of R buckets has at most
              R ranges of rows. Pooled sums of a table without buckets would depend on the cut: such
              a table is cut only if placements name a row placement, and then anywhere (see
              neo_plan_warning). Under NEO_POOL_NONE, where nothing is summed, anywhere. (A
              neo_shard moves such rows whole: columns are cut only if placements name it.)
   Each slice is cut into rows by itself. Partial sums travel as f32 whatever the wire: only whole
   sums are rounded to a wire, as in any other plan.
   ------------------------------------------------------------------------ */
typedef struct neo_plan neo_plan;
enum { NEO_PLAN_BLOCK = 16 };

typedef enum neo_placement {
    NEO_TABLE_WISE,        /* "tw": the whole table on one rank */
    NEO_COLUMN_WISE,       /* "cw": slices of columns on several ranks */
    NEO_ROW_WISE,          /* "rw": ranges of rows on several ranks or all */
    NEO_DATA_PARALLEL,     /* "dp": a copy on every rank */
    NEO_TABLE_ROW_WISE,    /* "twrw": on one node of several, ranges of rows over its ranks */
    NEO_TABLE_COLUMN_WISE, /* "twcw": on one node of several, slices of columns over its ranks */
    NEO_GRID,              /* "grid": slices on several nodes, ranges of rows over their ranks */
    NEO_PLACEMENT_COUNT
} neo_placement;
/* neo_placement_name: "tw" ... neo_placement_parse: NEO_ERR_ARG for another word. */
NEO_API const char *neo_placement_name(neo_placement placement);
NEO_API neo_status neo_placement_parse(const char *name, neo_placement *placement);

/* A rectangle of a table on one rank. */
enum { NEO_EVERY_RANK = -1 };
typedef struct neo_piece {
    int32_t table;
    int32_t rank; /* NEO_EVERY_RANK: a copy on each; then the whole table */
    int64_t first_row, rows, first_col, cols;
} neo_piece;

/* Measured times over those of the model (see neo_calibrate): seconds are factor x bytes /
   memory_bandwidth. The last four are bytes: handling one thing takes as long as moving so many,
   whatever its columns. */
typedef struct neo_calibration {
    double lookup;   /* bytes: ids, rows read, sums written; 0: 1 */
    double update;   /* of backward and update, over the same bytes; 0: 2 */
    double copy;     /* of packing and adding what travels, and of dense gradients; 0: 1 */
    double bucketed; /* of a lookup in a table with row_buckets, over that in another; 0: 1.5 */
    double id;       /* of an id that its sender checks, counts and packs; 0: 64 */
    double sort;     /* of an id in backward, which merges equal ones; 0: 64 */
    double row;      /* of a row that is packed or unpacked by itself; 0: 64 */
    double kept;     /* of a row whose gradient waits for other ranks'; 0: 256 */
} neo_calibration;

/* The ranks and their links, for predictions. */
typedef struct neo_cluster {
    int32_t ranks;                  /* required */
    int32_t ranks_per_node;         /* 0: all in one node; ranks [n k, n (k + 1)) are a node */
    int64_t memory_bytes;           /* of a rank, for tables and for training them; 0: no limit */
    double memory_bandwidth;        /* bytes per second, read and written, of a rank; 0: 10e9 */
    double flops;                   /* per second of a rank, in dense layers; 0: 50e9 */
    neo_link link[NEO_LEVEL_COUNT]; /* of a rank, each way; bandwidth 0: 5e9 inside a node, 1e9
                                       between nodes */
    neo_calibration calibration;
} neo_cluster;

/* A plan follows from these numbers alone: the same input, the same plan. */
typedef struct neo_plan_desc {
    const neo_bags_desc *bags;      /* required; max_batch and max_ids are those of a batch over
                                       all ranks. Tables without weights of yours. Copied */
    const double *ids_per_sample;   /* [features] mean over a batch; NULL: max_ids / (max_batch x
                                       features) */
    neo_cluster cluster;
    neo_wire wire_forward, wire_backward; /* of pooled rows and of their gradients */
    unsigned placements;            /* those allowed, a bit 1u << placement each; 0: all that keep
                                       the bits */
    const unsigned *table_placements; /* [tables] the same for each, 0: as placements; or NULL */
    int pipeline;                   /* 1: the exchanges of a step run beside its computation, with
                                       the buffers of a second batch */
    double dense_flops_bottom;      /* per sample, forward: of dense layers beside the lookup */
    double dense_flops_top;         /* and after it */
    int64_t dense_params;           /* elements of replicated dense parameters */
    int weighted;                   /* 1: batches have a weight per id */
    double crowding;                /* most ids that a range of rows gets, over its even share;
                                       0: 1.25. Where there are more, buffers grow */
    int32_t kept_batches;           /* batches, of max_batch samples and ids_per_sample each, whose
                                       gradients the neo_shard may keep between two steps (see
                                       neo_shard_accumulate); 0: none. bags->max_kept_rows is not
                                       read */
    int weight_grad;                /* 1: neo_shard_weight_grad may be called */
} neo_plan_desc;

/* neo_plan_create: search a plan with a short predicted step.
   Errors   NEO_ERR_ARG: a field of desc. NEO_ERR_UNSUPPORTED: a table has none of the placements it
            is allowed (the message names it and says why). NEO_ERR_CAPACITY: it does not fit into
            memory_bytes; the message has the least budget for a rank that is accepted: that and any
            larger one does, each smaller one is refused. (A search finds it; where tables are few,
            none smaller is known to exist.) NEO_ERR_MEMORY.
   Threads  as for everything made from ctx. Cost: 1,000 tables over 1,024 ranks take some 3 s. */
NEO_API NEO__CHECK_UNUSED neo_status neo_plan_create(neo_ctx *ctx, const neo_plan_desc *desc,
                                                     neo_plan **plan);
/* neo_plan_create_uniform: every table by one placement, over as many ranks as it can be cut for,
   spread so that ranks have much the same to do; a table that cannot be placed so is table-wise
   (neo_plan_why says it). desc->placements matter only for row cuts of tables without buckets.
   Errors: as neo_plan_create. */
NEO_API NEO__CHECK_UNUSED neo_status neo_plan_create_uniform(neo_ctx *ctx,
                                                             const neo_plan_desc *desc,
                                                             neo_placement placement,
                                                             neo_plan **plan);
/* neo_plan_create_from: a plan of your own. pieces: [count] in any order.
   Errors   NEO_ERR_ARG: a piece outside its table or the ranks; elements of a table that no piece
            or two pieces have; a cut that is not allowed: the table and the place are named.
            NEO_ERR_CAPACITY: a rank would need more than memory_bytes. */
NEO_API NEO__CHECK_UNUSED neo_status neo_plan_create_from(neo_ctx *ctx, const neo_plan_desc *desc,
                                                          const neo_piece *pieces, int64_t count,
                                                          neo_plan **plan);
/* neo_plan_destroy: NULL is allowed. */
NEO_API void neo_plan_destroy(neo_plan *plan);

/* neo_plan_write: a plan as text. neo_plan_read: for the tables and ranks of desc. A file has one
   line for each table, in any order; # begins a comment, outside of names:
       neo-plan 1                              the format; first
       ranks 8 4                               ranks, and ranks of a node
       table C1 1460x16 tw 3                   name, rows x dim, placement, ranks of its pieces:
       table C2 583x64 cw 0,2,5-6              slices of columns as equal as blocks allow,
       table C3 9000x16 rw 0-7                 ranges of rows as buckets allow (twrw, twcw alike)
       table C4 9000x64 grid 0-3/4-7           slices of columns, and of each the ranges of rows
       table C5 24x16 dp
       table C6 9000x16 pieces 2               other cuts: so many lines of
       piece 1 0+4000 0+16                     rank, first row + rows, first column + columns
   In names, bytes up to blank, and " # %, are written as %XX.
   Errors   NEO_ERR_NOT_FOUND, NEO_ERR_IO. NEO_ERR_FORMAT: file, line and what is wrong.
            NEO_ERR_MISMATCH: the file is for other tables or ranks. Those of
            neo_plan_create_from. */
NEO_API NEO__CHECK_UNUSED neo_status neo_plan_read(neo_ctx *ctx, const neo_plan_desc *desc,
                                                   const char *path, neo_plan **plan);
NEO_API neo_status neo_plan_write(const neo_plan *plan, const char *path);

/* neo_plan_pieces: all pieces, sorted by table, first_col, first_row. neo_plan_table_pieces: those
   of a table. They are the plan's. neo_plan_rank_pieces: the pieces that a rank holds, as places in
   neo_plan_pieces, in rising order, those on every rank among them. */
NEO_API const neo_piece *neo_plan_pieces(const neo_plan *plan, int64_t *count);
NEO_API const neo_piece *neo_plan_table_pieces(const neo_plan *plan, int32_t table, int64_t *count);
NEO_API const int64_t *neo_plan_rank_pieces(const neo_plan *plan, int32_t rank, int64_t *count);
NEO_API neo_placement neo_plan_placement(const neo_plan *plan, int32_t table);
/* neo_plan_desc_of: the plan's description, with copies of its own and defaults filled in; valid as
   long as the plan. */
NEO_API const neo_plan_desc *neo_plan_desc_of(const neo_plan *plan);
/* neo_plan_digest: of tables, ranks and pieces: equal for plans that place alike. */
NEO_API uint64_t neo_plan_digest(const neo_plan *plan);

/* neo_plan_why: for a table, what was chosen, and for each other placement why not; lines of text.
   neo_plan_warning: "sums of table 'x' depend on the plan: ...", or "" if its bits do not.
   text: [bytes], gets as much as fits, with a NUL; NULL if bytes is 0. Return the bytes of the
   whole text without its NUL, as snprintf. */
NEO_API size_t neo_plan_why(const neo_plan *plan, int32_t table, char *text, size_t bytes);
NEO_API size_t neo_plan_warning(const neo_plan *plan, int32_t table, char *text, size_t bytes);

/* A rank's memory, and its share of the phases of a step in seconds, without latencies.
   weight_bytes and state_bytes are exact. */
typedef struct neo_plan_rank {
    int64_t weight_bytes, state_bytes, buffer_bytes;
    double ids;      /* ids travel to where rows are */
    double lookup;
    double forward;  /* pooled rows travel to where samples are */
    double backward; /* gradients of pooled rows travel back */
    double update;   /* merge and optimizer; row sums between slices */
    double seconds;  /* of all these: its load */
} neo_plan_rank;
NEO_API neo_plan_rank neo_plan_rank_of(const neo_plan *plan, int32_t rank);

/* A predicted step in seconds. A phase ends when the slowest rank has done it. Dense layers take
   twice as long backward as forward.
     plain      ids + lookup + forward + 3 (bottom + top) + backward + update + reduce
     pipelined  max(bottom, lookup + forward) + 3 top + max(2 bottom, backward) +
                max(update, reduce), as ids of the next batch travel meanwhile; at least
                ids + forward + backward + reduce, which the links take */
typedef struct neo_plan_step {
    double ids, lookup, forward, backward, update; /* of the slowest rank, with latencies */
    double bottom, top;                            /* forward */
    double reduce;                                 /* of dense gradients, of "dp" tables too */
    double plain, pipelined;
    double balance;                                /* largest load of a rank over the mean */
    int64_t most_bytes;                            /* largest memory of a rank */
    int32_t busiest_rank, fullest_rank;
} neo_plan_step;
NEO_API neo_plan_step neo_plan_step_of(const neo_plan *plan);

/* neo_calibrate: measure this machine as one rank with all threads of ctx: fills in
   memory_bandwidth, flops and calibration, and leaves the rest of *cluster. Takes about two seconds
   and 0.3 GB. Links are not measured. Ranks measure differently, and plans must not differ:
   broadcast *cluster, or let one rank plan.
   Errors: NEO_ERR_MEMORY. */
NEO_API neo_status neo_calibrate(neo_ctx *ctx, neo_cluster *cluster);

/* ---------------------------------------------------------------------------
   >>shard

   The tables of a plan on the ranks of a group, with the verbs of neo_bags. Each rank brings its
   own samples of a global batch, those of its leaves (see >>leaves in neo.h), and gets their pooled
   rows, whoever holds the tables. With V = neo_ctx_repro_shards the weights and optimizer state
   after a step have the bits of one rank with all samples, under every plan (row-wise: with
   row_buckets).

   A step                                             what travels (W ranks, a batch of B in all)
     prefetch        ids of the next batch start      lengths, then ids, to the ranks of the rows
     forward_begin   look up and pool; rows start     pooled rows, to the ranks of the samples
     forward_end     they are there: out
     backward_begin  gradients of the rows start      the same way back; data-parallel tables: sums
     (weight_grad)   gradients of per-id weights      sums along rows, to their ranks
     backward_end    merge, an optimizer step a row   sums along rows that are cut by columns
   or, of several batches before one step (see neo_shard_accumulate)
     accumulate_end  merge, add to what is kept       nothing
     step            an optimizer step a kept row     a status; sums along rows, as above
   Between begin and end the caller computes: the bottom MLP, other gradients. prefetch may be left
   out (the ids then travel in forward_begin); forward and backward are begin and end in one.

   BYTES of data that all ranks together send in a step of B samples, B_r of them on rank r, W
   ranks. A flow is the ids of one feature that go to one rank: those of all rows, or of the range
   of rows that it holds; several slices of columns on one rank share it. A part is a piece of the
   plan, or, of a table with row_buckets that is cut by rows, as much of a piece as is one subtree
   of buckets. A row of c columns takes 4 c bytes, or neo_wire_row_bytes(wire, c); forward, parts of
   the rows of a table send partial sums, 4 c under every wire.
     lengths     for each rank r: 4 (W - 1) + 4 (B - B_r) (flows of r); with weight_grad and an f32
                 backward wire a flow of a MEAN table counts twice
     ids         4 for each id and flow whose rank is not the sample's (8 if a table has more than
                 2^31 rows), and 4 for its weight
     rows        for each part, on rank r, and feature of its table: (B - B_r) row bytes forward,
                 and as many backward
                 NEO_POOL_NONE: for each id that is not dropped, and whose row is another rank's
                 than its sample, row bytes forward, and as many backward
     in nodes    instead of that, for slices of several pieces that lie in one node of several
                 (twrw, grid): inside the node, for each part, 4 c (B - samples of the ranks at its
                 place in all nodes), both ways; across, for each slice, (B - samples of its node)
                 row bytes, both ways
     row sums    of tables cut by columns whose step needs them: for each part, touched row, and
                 other rank that has columns of the row: 4 for each 16 columns; LAMB and LARS 8,
                 partial LAMB 12, max_norm 4 more. A step of gradients that are kept sends them
                 once, of the rows that any of its batches touched
     status      of such a step: 8 between each two ranks
     weights     neo_shard_weight_grad: for each part, feature of its table, and id of it that is
                 one of the part's rows and of another rank's sample: 4, or of a part without the
                 first column 4 for each 16 columns
     dp          2 (W - 1) rows (4 dim + 1) for each table, if W divides repro_shards: a dense
                 gradient is reduced, and a byte for each row, which says whether it was touched
   With B/W samples on each rank these are, per rank, the B sum(D) s, W B D s and so on of the
   papers, times (W - 1)/W.
   ------------------------------------------------------------------------ */
typedef struct neo_shard neo_shard;

/* neo_shard_create: the rank's part of the plan: memory, initial values (those of the whole
   tables), groups of its own. Collective: all ranks with the same plan. The plan may be destroyed
   after.
   Errors   NEO_ERR_ARG: another number of ranks than the plan's; repro_shards below the number of
            ranks. NEO_ERR_MISMATCH: another plan, or other tables, on some rank than on rank 0, and
            which of these; a device on some ranks only.
            NEO_ERR_UNSUPPORTED: a table that is not cut as a grid (the same rows in every slice
            of columns); a table of NEO_POOL_NONE that is cut by columns. NEO_ERR_MEMORY.
            If one rank fails, all do, with its message.
   Devices  Where contexts have one, out and dout are in its memory, and pooled rows go from device
            to device, coded there: over threads and MPI by a group of neo_comm_split_device, over
            NCCL (comm is a group of neo_comm_create_nccl) by that. Ids, and all rows of
            NEO_POOL_NONE or with weight_grad, go through the host.
   neo_shard_bytes: exactly what create asks of the allocator on rank `rank`, the groups (see
   neo_comm_workspace_bytes, and of devices neo_comm_device_bytes) apart. ctx: as that of the ranks,
   for its threads, its repro_shards, and whether it has a device. */
typedef struct neo_shard_memory {
    size_t weight_bytes, state_bytes; /* of tables */
    size_t exchange_bytes;            /* ids, pooled rows, gradients under way */
    size_t workspace_bytes;           /* of the lookups and updates */
} neo_shard_memory;
NEO_API NEO__CHECK_UNUSED neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan,
                                                      neo_shard **shard);
NEO_API void neo_shard_destroy(neo_shard *shard);
NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank,
                                   neo_shard_memory *memory);

/* The calls of a step. All are collective, also on a rank without samples.
   Shapes    batch: the features of the plan x B_r samples, those of this rank's leaves in a global
             batch of global_batch samples. out, dout [B_r][sum of the features' dims] f32, last
             stride 1. NEO_POOL_NONE: [ids of this rank][dim], a row for each id in order.
   Lifetime  batch (its arrays) from prefetch or forward_begin until backward_end, or the next
             forward_begin. dout until backward_end, on one rank, or where weight_grad is called.
   Order     prefetch of the next batch at any point between forward_begin and backward_end, or
             before. The next forward_begin must then be of that batch: the same arrays, not written
             since.
   Numerics  as neo_bags_forward and neo_bags_backward of the whole batch, with wires: MEAN is
             divided by where the samples are, after the forward wire and before the backward wire.
   One rank  with f32 wires moves nothing: it is a neo_bags, at its speed.
   Errors    those of neo_bags_forward, of whichever rank: all ranks return the status and message
             of the lowest one, and the next call may be made. NEO_ERR_STATE (out of order), a NULL
             argument, a wrong out or dout: on this rank alone, for which the others wait until
             their timeout. NEO_ERR_CAPACITY: more samples than the plan's. NEO_ERR_DIVERGED:
             another global_batch on some rank; and those of >>comm-faults: the shard is then
             broken.
   lr        the same on all ranks; nothing checks that, and other rows would step otherwise.
   Memory    nothing is allocated, unless a batch has more ids than planned: then buffers grow,
             counted. */
NEO_API neo_status neo_shard_prefetch(neo_shard *shard, const neo_jagged *batch,
                                      int64_t global_batch);
NEO_API neo_status neo_shard_forward_begin(neo_shard *shard, const neo_jagged *batch,
                                           int64_t global_batch);
NEO_API neo_status neo_shard_forward_end(neo_shard *shard, neo_tensor out);
NEO_API neo_status neo_shard_backward_begin(neo_shard *shard, neo_tensor dout);
NEO_API neo_status neo_shard_backward_end(neo_shard *shard, float lr);
NEO_API neo_status neo_shard_forward(neo_shard *shard, const neo_jagged *batch,
                                     int64_t global_batch, neo_tensor out);
NEO_API neo_status neo_shard_backward(neo_shard *shard, neo_tensor dout, float lr);

/* neo_shard_weight_grad: the gradients of the per-id weights of this rank's batch, as
   neo_bags_weight_grad: dout of a bag . row, where rows have not moved yet. Collective, between
   neo_shard_backward_begin and _end (or neo_shard_accumulate_end): all ranks call it, or none. A
   batch without weights stands for ones. Needs neo_plan_desc.weight_grad, which changes no other
   result.
   Shapes    dweights: as many floats as this rank's batch has ids, counted from its first one.
   Numerics  with an f32 backward wire the bits of neo_bags_weight_grad under every plan. With
             another the gradient is taken as it arrives: divided for MEAN, then rounded, under
             every plan.
   Memory    as a step's: nothing is allocated, unless there are more ids than planned.
   Errors    NEO_ERR_STATE: no backward has begun; the plan has no weight_grad. NEO_ERR_ARG: shard,
             or (of a batch with ids) dweights, is NULL. These on this rank alone, and it may call
             again. Those of >>comm-faults: the shard is then broken. */
NEO_API neo_status neo_shard_weight_grad(neo_shard *shard, float *dweights);

/* ---- unfused: gradients that are kept ----
   As in neo.h: over several micro-batches or losses, and where all gradients must be known before
   any weight moves (clipping by a global norm, loss scaling). Needs neo_plan_desc.kept_batches.
       for each micro-batch { neo_shard_forward ... neo_shard_accumulate(shard, de); }
       neo_shard_step(shard, lr);        or, with dense layers under one norm, neo_fsdp_step_tables

   neo_shard_accumulate_end: instead of neo_shard_backward_end: the gradients of the batch are
   merged per row, and added to those that this rank keeps of its rows. No weight moves; forward of
   the next batch, or its prefetch, may begin. neo_shard_accumulate: backward_begin and this.
   Numerics  every call is of a whole global batch, all leaves of it. With one call per step,
             accumulate and step are neo_shard_backward, bit for bit. Of several calls the merged
             gradients add in order of call, under every plan, as neo_bags_accumulate does on one
             rank: as NEO_ACCUMULATE_EACH of dense units. A batch that is to be summed over its
             leaves as a whole (NEO_ACCUMULATE_AT_END) must be one call.
   Memory    neo_shard_bytes and the plan have room for kept_batches batches of the ids that are
             planned, for as many rows as they can touch at most. Where there are more ids than
             planned, it grows, counted; a rank without memory for it returns NEO_ERR_MEMORY and
             breaks the shard, as in forward: the others get its words.
   Errors    NEO_ERR_CAPACITY: kept_batches batches are kept already. The new one is left out, what
             is kept stays: step or clear. NEO_ERR_STATE: no backward has begun; the plan has no
             kept_batches (then neo_shard_backward_end may still be called). Alike on all ranks.
             While gradients are kept neo_shard_backward_end is NEO_ERR_STATE.

   neo_shard_kept_count: rows whose gradients this rank keeps, those of its copies of data-parallel
   tables among them.
   neo_shard_grad_squares: adds the squares of all gradients that are kept to sum, as
   neo_bags_grad_squares: this rank's share, so that the sum over all ranks has each gradient once.
   Exact: under every plan the same bits as on one rank.
   neo_shard_scale_grads: multiplies them, by the same number on all ranks. neo_shard_clear: forgets
   them, on all ranks. Of these four none is collective: no rank waits for another.
   Errors    NEO_ERR_ARG: an argument is NULL. NEO_ERR_DEVICE, where ranks have devices alone: a
             call of this rank's failed. sum is as before. scale_grads and clear may have changed a
             part: then they, grad_squares and the steps (these on all ranks) are NEO_ERR_STATE
             until a neo_shard_clear of this rank succeeds.

   neo_shard_step: collective: one optimizer step for each row that is kept, on whichever ranks;
   then none is. A step of nothing is one too: it counts (the t of Adam). Not between begin and end
   of a call.
   Errors    on all ranks the status and message of the lowest rank that has one, and nothing has
             changed: NEO_ERR_STATE: the plan has no kept_batches; a call has begun and not ended.
             NEO_ERR_NUMERIC: lr is not finite. Those of >>comm-faults: the shard is then broken.
             NEO_ERR_ARG: shard is NULL, here alone. */
NEO_API neo_status neo_shard_accumulate_end(neo_shard *shard);
NEO_API neo_status neo_shard_accumulate(neo_shard *shard, neo_tensor dout);
NEO_API int64_t neo_shard_kept_count(const neo_shard *shard);
NEO_API neo_status neo_shard_grad_squares(const neo_shard *shard, neo_exact *sum);
NEO_API neo_status neo_shard_scale_grads(neo_shard *shard, float scale);
NEO_API neo_status neo_shard_step(neo_shard *shard, float lr);
NEO_API neo_status neo_shard_clear(neo_shard *shard);

/* neo_shard_get_rows: rows [first, first + count) of a table as f32, [count][dim], whatever its
   dtype and wherever they lie: to rank `root`, or to all with NEO_EVERY_RANK. neo_shard_set_rows:
   writes them, rounded to nearest, where they lie; optimizer state stays as it is. The rows are
   those of rank `root`; with NEO_EVERY_RANK all ranks have the same ones, and nothing travels.
   Elsewhere `rows` is not looked at.
   table: as in the plan's neo_bags_desc. Collective: all ranks with the same numbers. Not between
   begin and end of a call; a batch may have been prefetched.
   Bytes    4 for each number, to each rank that is to have it and does not; nothing for reading
            data-parallel tables. 24 between each two ranks, and 40 from rank 0 to each other, to
            agree.
   Memory   up to 8 MiB (or two rows) from the allocator for as long as the call takes; copies of
            data-parallel tables are read in place.
   Errors   on all ranks the status and message of the lowest rank that has one, and nothing has
            changed: NEO_ERR_RANGE: rows outside the table. NEO_ERR_ARG: no such table or rank, rows
            is NULL. NEO_ERR_STATE: a call has begun and not ended. NEO_ERR_MISMATCH: other numbers
            than rank 0. NEO_ERR_MEMORY. Those of >>comm-faults: the shard is then broken.
            NEO_ERR_ARG: shard is NULL, here alone. */
NEO_API neo_status neo_shard_get_rows(neo_shard *shard, int32_t table, int64_t first, int64_t count,
                                      int root, float *rows);
NEO_API neo_status neo_shard_set_rows(neo_shard *shard, int32_t table, int64_t first, int64_t count,
                                      int root, const float *rows);

NEO_API int64_t neo_shard_out_width(const neo_shard *shard);
typedef struct neo_shard_stats {
    int64_t steps;            /* of the optimizer */
    int64_t out_of_range;     /* ids of this rank's samples that were dropped or clamped */
    int64_t grow_count;
    neo_comm_stats ids, rows;   /* of its groups: lengths and ids; all else, */
    neo_comm_stats node, cross; /* but what adds inside nodes, and crosses then */
    neo_wire_stats forward, backward; /* of rows that this rank's processor coded; none of those of
                                         a device */
} neo_shard_stats;
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *shard);
NEO_API void neo_shard_reset_stats(neo_shard *shard);
/* neo_state_add_shard: all tensors of the tables, under the names of neo_state_add_bags; each rank
   adds what it holds. */
NEO_API neo_status neo_state_add_shard(neo_state *state, neo_shard *shard);

/* ---------------------------------------------------------------------------
   >>fsdp

   Dense parameters, their gradients and the optimizer's state, cut over the ranks of a group: the
   system of "PyTorch FSDP" (arXiv 2304.11277), with windows that a trainer opens and closes itself.
   A unit is a set of parameters that are used together: a block, an MLP. Its parameters lie one
   after another, each at a multiple of 256 elements, are filled up with zeros and cut in F equal
   chunks; a rank holds one chunk of the values (f32 masters), of the gradient and of the
   optimizer's state. In a window the unit's parameters are whole in memory; outside they are absent
   tensors, and a layer that is given one fails with NEO_ERR_STATE and the unit's name.

       neo_params_create_deferred(ctx, &block);       names and shapes, no memory
       ... layers add their parameters to it, as to any set
       neo_fsdp_create(comm, &desc, &fsdp);           desc.units: the sets, in the order of forward
     per step, with this rank's samples of each of k micro-batches:
       for (int piece = 0; piece < neo_fsdp_pieces(fsdp); piece++) {   mostly one
           neo_leaves part = neo_fsdp_piece(fsdp, piece, batch);       its samples
           per unit, in order:  neo_fsdp_forward_begin(fsdp, unit);
                                ... the layers' forward ...
                                neo_fsdp_forward_end(fsdp, unit);
           the loss of these samples, divided by those of all k micro-batches of all ranks
           per unit, backwards: neo_fsdp_backward_begin(fsdp, unit, piece);
                                ... the layers' backward, with &part ...
                                neo_fsdp_backward_end(fsdp, unit);
       }
     neo_fsdp_step(fsdp, lr);
   Windows may nest: a unit with `keep` (embeddings and head) stays open around the blocks. Forward
   may run inside a backward window: activations are recomputed there. A forward window may be
   opened any number of times.

   SAME BITS
   Values begin as those of a neo_params that is not deferred, and after a step they, and the
   optimizer's state, have the bits of one rank with the same numeric definition: V =
   neo_ctx_repro_shards leaves, k micro-batches and how they add, dtypes. One rank without
   micro-batches is neo_optim_step after a backward over all leaves. Micro-batches m = 1 .. k add
     NEO_ACCUMULATE_EACH       tree(1) + tree(2) + ..: each is reduced when its backward ends
     NEO_ACCUMULATE_AT_END     leaf by leaf, then one tree: nothing travels before the last, but a
                               rank holds whole gradients of each of its leaves
     NEO_ACCUMULATE_IN_GROUPS  inside `groups` equal subtrees of the tree, which join at the end:
                               with as many groups as replicas, a reduce-scatter inside the sharding
                               group per micro-batch, and one all-reduce across replicas
   A narrow reduce_dtype rounds every leaf and every sum of two; then a piece is one leaf.

   A STEP
   of units in order sends, per rank, in elements Psi of the units that are cut (filled up), p and r
   bytes per gathered parameter and reduced gradient, in S = k x pieces sweeps, with s slots, R =
   W/F replicas and c(n) = (n - 1)/n:
     NEO_FSDP_FULL   all-gather p c(F) (Psi + S Psi_first + (S - 1) Psi_last): Psi_first are the
                     units without `keep` but the last s, Psi_last those but the first s
     ZERO1, ZERO2    all-gather p c(F) Psi; so do units with `keep`
     all three       reduce-scatter k r c(F) Psi for each subtree of a rank's leaves (one, if V/W is
                     a power of two), and across replicas an all-reduce of k 2 r c(R) Psi/F. AT_END:
                     once instead of k times; IN_GROUPS: across replicas once
     NEO_FSDP_DDP    all-reduce k 2 r c(W) Psi, in buckets of 1 MiB and then 25 MiB, the last units
                     first; units with `replicate` the same, each by itself
   Not counted there: 24 bytes between each two ranks for neo_fsdp_step to compare notes, 128 for a
   clip norm (256 with squares of others), and 256 for each parameter under LAMB.
   Resident are masters, gradients and state, Psi/F each; then `slots` gathered units of the largest
   size, and up to two gradients of it, whole. neo_fsdp_predict says what exactly.
   ------------------------------------------------------------------------ */
typedef struct neo_fsdp neo_fsdp;

typedef enum neo_fsdp_mode {
    NEO_FSDP_FULL,  /* values, gradients, state are cut; F < W: inside groups of F ranks (hybrid) */
    NEO_FSDP_ZERO2, /* gathered values stay from their first window to the step */
    NEO_FSDP_ZERO1, /* and so do whole gradients: state alone is cut for good */
    NEO_FSDP_DDP,   /* nothing is cut */
    NEO_FSDP_MODE_COUNT
} neo_fsdp_mode;
/* neo_fsdp_mode_name: "full", "zero2", "zero1", "ddp". */
NEO_API const char *neo_fsdp_mode_name(neo_fsdp_mode mode);

typedef enum neo_fsdp_accumulate {
    NEO_ACCUMULATE_EACH,
    NEO_ACCUMULATE_AT_END,
    NEO_ACCUMULATE_IN_GROUPS
} neo_fsdp_accumulate;

typedef struct neo_fsdp_unit {
    const char *name;   /* for messages; required */
    neo_params *params; /* deferred, with all its parameters; the neo_fsdp binds them */
    int keep;           /* 1: stays gathered from its first window to the step, beside the slots */
    int replicate;      /* 1: whole on every rank (small parameters): all-reduced */
    int freeze;         /* 1: values do not change; no gradients, no state */
} neo_fsdp_unit;

/* Zeros are good defaults, but for units. */
typedef struct neo_fsdp_desc {
    const neo_fsdp_unit *units; /* in the order of forward; copied */
    int unit_count;             /* required */
    neo_optim_desc optim;       /* over the parameters of all units; group is not read */
    neo_fsdp_mode mode;
    int factor;                 /* F, divides the ranks; 0: all of them */
    int slots;                  /* gathered units (without keep) in memory; 0: 2 */
    int no_prefetch;            /* 1: a unit is gathered when its window opens, else behind the one
                                   before */
    int micro_batches;          /* k; 0: 1 */
    neo_fsdp_accumulate accumulate;
    int groups;                 /* of NEO_ACCUMULATE_IN_GROUPS; 0: the replicas */
    neo_dtype param_dtype;      /* f32, bf16 or f16: windows show masters rounded to it, as f32 */
    neo_dtype reduce_dtype;     /* of gradients on the wire and in their sums. If narrow, a piece is
                                   one leaf: with more leaves than ranks units are gathered more
                                   often */
    int leaf_pieces;            /* 1: a piece is one leaf. For tied weights: where the backward adds
                                   to a gradient in two places, these then meet in each leaf. Costs
                                   whole gradients of each leaf of a rank, if it has several */
    float loss_scale;           /* 0: none; else the first scale of the dynamic loss scaler, a power
                                   of two (65536 is usual): see neo_fsdp_loss_scale */
    int loss_scale_window;      /* good steps until it doubles; 0: 2000 */
    neo_ctx *host;              /* masters, gradients and optimizer state are in its memory, and its
                                   threads step; NULL: comm's context */
} neo_fsdp_desc;

/* Bytes that a rank takes and sends: exactly, but for groups of ranks (neo_comm_workspace_bytes)
   and scratch. */
typedef struct neo_fsdp_prediction {
    size_t master_bytes, grad_bytes, state_bytes; /* of this rank's chunks */
    size_t gathered_bytes; /* slots, kept units, what is under way to them */
    size_t window_bytes;   /* gradients of open windows, under way, or kept for the next piece */
    size_t record_bytes;
    size_t bytes;          /* all of them: what create asks of the allocators */
    size_t host_bytes;     /* of them, of desc.host */
    int64_t elements;      /* of all parameters, filled up */
    /* A step in the order of units: calls, and bytes of data that this rank sends (an all-reduce:
       on average). */
    int64_t all_gathers, reduce_scatters, all_reduces;
    double all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes;
} neo_fsdp_prediction;
/* neo_fsdp_predict: of rank `rank` of `ranks`. ctx: its repro_shards and seed are those of the
   ranks; gives back what it takes. Errors: as neo_fsdp_create, of the description (but for the
   numbers of the optimizer). */
NEO_API neo_status neo_fsdp_predict(neo_ctx *ctx, const neo_fsdp_desc *desc, int ranks, int rank,
                                    neo_fsdp_prediction *prediction);

/* neo_fsdp_create: memory and first values of this rank's part, groups of its own. Collective.
   Errors   NEO_ERR_ARG: the message names unit and field: no units, a set that is not deferred,
            without parameters or bound already, a name that two parameters have, factor does not
            divide the ranks, repro_shards below the ranks. NEO_ERR_UNSUPPORTED: parameters of 0, 3
            or 4 dimensions in a unit that is cut (replicate it); hybrid where the factor or the
            leaves of a rank are not a power of two; groups that are neither a multiple of the ranks
            that cuts the leaves in equal subtrees, nor the replicas of units that are all cut;
            leaf_pieces or a narrow reduce_dtype with groups other than repro_shards.
            NEO_ERR_MISMATCH: another description on some rank. NEO_ERR_MEMORY. If one rank fails,
            all do, with its message.
   neo_fsdp_destroy: NULL is allowed. The sets are absent again, and stay the caller's. */
NEO_API NEO__CHECK_UNUSED neo_status neo_fsdp_create(neo_comm *comm, const neo_fsdp_desc *desc,
                                                     neo_fsdp **fsdp);
NEO_API void neo_fsdp_destroy(neo_fsdp *fsdp);

/* neo_fsdp_pieces: in how many pieces every rank computes a micro-batch: one, unless a rank's
   leaves are several subtrees, or the numeric definition wants smaller sums. neo_fsdp_piece: its
   leaves, in a micro-batch of `batch` samples over all ranks; count 0: none on this rank, which
   opens the windows all the same. Set its rows_per_sample where a sample is several rows.
   neo_fsdp_samples: how many samples that is; *first: the first of them, in the whole micro-batch.
   A caller may run forward for all pieces at once, and in each unit that is not open around others
   backward for one piece after another: then a unit is gathered once for all of them, and a step
   sends less than was predicted. */
NEO_API int neo_fsdp_pieces(const neo_fsdp *fsdp);
NEO_API neo_leaves neo_fsdp_piece(const neo_fsdp *fsdp, int piece, int64_t batch);
NEO_API int64_t neo_fsdp_samples(const neo_fsdp *fsdp, int piece, int64_t batch, int64_t *first);

/* The windows of unit number `unit`. Collective: all ranks open and close the same in the same
   order. begin waits until the unit is gathered, binds its parameters, and starts to gather the
   next one of the order; backward also binds gradients, which the layers write, all of them, with
   the piece's leaves and not NULL. Closing a backward window of the last piece starts the
   reduction.
   Order    of units: any, but the declared one gathers least. Where whole units are reduced (DDP)
            all of them have the backward of a micro-batch before one begins the next.
   Errors   NEO_ERR_STATE: the window is open already, or not open; a piece that has had its
            backward; (backward_end) a gradient that nothing has written: the window stays open.
            NEO_ERR_CAPACITY: more units without `keep` open than slots, or for backward than 2 (1
            with one slot). On this rank alone: the others wait until their timeout.
            NEO_ERR_DIVERGED: ranks open different units; the message names both, here or, if all
            had what they opened, in neo_fsdp_step. Those of >>comm-faults. An error of backward_end
            but NEO_ERR_STATE: the window is closed and its gradients are lost, though what ranks
            exchange goes on as far as it can; neo_fsdp_step is that error then, on all ranks, and
            the next step begins. Where a step that is recorded for a graph fails before backward
            windows in it, the gradients since the last neo_fsdp_step are void, as after
            neo_fsdp_cancel (where that is so on one rank of several, it comes first). */
NEO_API neo_status neo_fsdp_forward_begin(neo_fsdp *fsdp, int unit);
NEO_API neo_status neo_fsdp_forward_end(neo_fsdp *fsdp, int unit);
NEO_API neo_status neo_fsdp_backward_begin(neo_fsdp *fsdp, int unit, int piece);
NEO_API neo_status neo_fsdp_backward_end(neo_fsdp *fsdp, int unit);
/* neo_fsdp_step: waits for the reductions and steps the optimizer on this rank's chunks;
   micro-batches begin anew. With clip_norm the norm is of all gradients. Allocates nothing. With a
   loss scale a step whose gradients are not all finite is skipped on all ranks, and counted. lr is
   the same on all ranks.
   Cost     24 bytes between each two ranks, beside the reductions and what the optimizer asks.
   Errors   NEO_ERR_STATE: a window is open, or a unit lacks windows (the message names it).
            NEO_ERR_NUMERIC: as neo_optim_step. NEO_ERR_DIVERGED: ranks have opened other windows.
            On all ranks, and nothing has changed; the gradients are gone, the next step begins. */
NEO_API neo_status neo_fsdp_step(neo_fsdp *fsdp, float lr);
/* neo_fsdp_step_tables: neo_fsdp_step and neo_shard_step as one: the norm of clip_norm is that of
   all gradients, dense and kept, and limits both; with a loss scale all are divided by it (the loss
   that made the kept ones had it too), and where one is not finite neither steps, on all ranks.
   tables: of the same ranks, all of whose batches since its last step were accumulated.
   Cost     beside both steps: 128 bytes between each two ranks for the norm, 8 for a status.
   Errors   those of neo_shard_step, and NEO_ERR_STATE of neo_fsdp_step: nothing has changed, what
            is kept stays. Others of neo_fsdp_step: nothing has changed; all gradients are gone, the
            next step begins. NEO_ERR_ARG: an argument is NULL (here alone); clip_norm_type is 1 or
            infinity. NEO_ERR_DEVICE: before the units step, on all ranks, as those others. After
            that, here alone: the tables are broken, or, of one rank that has all of them, their
            gradients stay kept: neo_shard_scale_grads by neo_fsdp_clip_factor, neo_shard_step. */
NEO_API neo_status neo_fsdp_step_tables(neo_fsdp *fsdp, neo_shard *tables, float lr);
/* The parts of neo_fsdp_step_tables, for gradients that something else holds.
   neo_fsdp_add_squares: before the step, on every rank: the sum of squares of gradients that no
   other rank adds; in the units of the dense ones, so after a division by the loss scale. They
   count in the norm of this step; with a loss scale a sum that is not finite skips it.
   neo_fsdp_clip_factor: after the step, what it has multiplied dense gradients by, and others
   should be: 1 without clipping, 0 if it was skipped or failed: then others do not step. */
NEO_API void neo_fsdp_add_squares(neo_fsdp *fsdp, const neo_exact *squares);
NEO_API float neo_fsdp_clip_factor(const neo_fsdp *fsdp);
/* neo_fsdp_cancel: give up the step under way: windows close, its gradients are forgotten.
   Collective. */
NEO_API neo_status neo_fsdp_cancel(neo_fsdp *fsdp);
/* neo_fsdp_loss_scale: what to put in neo_loss_desc.scale in this step; 1 without a scaler. It
   halves after a step that overflowed and doubles after loss_scale_window good ones, the same on
   all ranks. */
NEO_API float neo_fsdp_loss_scale(const neo_fsdp *fsdp);

typedef struct neo_fsdp_stats {
    int64_t steps, skipped;              /* taken; not taken for gradients that were not finite */
    int64_t gathers, hits;               /* gathers begun; windows whose unit was there or coming */
    int64_t wait_ns;                     /* windows and steps waited for the wire */
    double grad_norm;                    /* of the last step, before clipping; 0 without clipping */
    neo_comm_stats shard, replica, all;  /* of its groups: F ranks; replicas; all (whole units) */
} neo_fsdp_stats;
NEO_API neo_fsdp_stats neo_fsdp_get_stats(const neo_fsdp *fsdp);
NEO_API void neo_fsdp_reset_stats(neo_fsdp *fsdp);

/* neo_state_add_fsdp: values, optimizer state, step and loss scale, under the names that
   neo_state_add_params and _optim give; each rank adds what it holds. Of the numeric definition it
   defines "micro_batches", "accumulate_groups", "leaf_pieces", "param_dtype" and "reduce_dtype",
   behind the optimizer's name and a dot. What windows gathered in this step is not read again:
   neo_fsdp_cancel comes between windows and a load. */
NEO_API neo_status neo_state_add_fsdp(neo_state *state, neo_fsdp *fsdp);

/* neo_fsdp_write_safetensors: one file with every parameter whole, under its own name, in f32: the
   masters. with_state 1: and the optimizer's state, its step and the loss scaler's, under the names
   of neo_state_add_fsdp. Collective, at any time: values are those after the last step. Rank 0
   writes, to path on its machine; units come to it one after another, in their order, and so they
   lie in the file: its bytes do not depend on ranks and mode. The metadata says "format" "pt", as
   loaders ask. Written to <path>.partial, flushed to disk and renamed. Each rank of the first
   sharding group sends what it has once. neo_load_safetensors reads the weights into any neo_fsdp,
   every rank its part; the optimizer's state it does not read (neo_save and neo_load do).
   Memory   neo_fsdp_write_bytes, taken and given back.
   Errors   on all ranks the same, path is as before, and the group goes on: NEO_ERR_IO (rank 0: a
            full disk ...), NEO_ERR_NOT_FOUND (its folder), NEO_ERR_MEMORY. NEO_ERR_ARG: path is
            NULL on rank 0, or a name is not UTF-8. NEO_ERR_MISMATCH: with_state differs. Those of
            >>comm-faults.
   neo_fsdp_write_bytes: on this rank. Rank 0: the largest unit that is cut, and a list of 100-odd
   bytes for each tensor; with_state, all ranks of its sharding group: a chunk of that unit. Others:
   none. */
NEO_API neo_status neo_fsdp_write_safetensors(neo_fsdp *fsdp, const char *path, int with_state);
NEO_API size_t neo_fsdp_write_bytes(const neo_fsdp *fsdp, int with_state);

#ifdef __cplusplus
}
#endif
#endif /* NEO_FSDP_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_FSDP_IMPLEMENTATION)) &&    \
    !defined(NEO__FSDP_IMPLEMENTED)
#define NEO__FSDP_IMPLEMENTED
#include "neo.h" /* its shared part, if it was included without an implementation before */

#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>

/* Products and sums fuse only where the code says fma: one rounding per written operation. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
NEO__FEW_PASSES
#ifdef __cplusplus
extern "C" {
#endif
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-plan

   A plan keeps a copy of its description, each table's facts, the pieces (by table, with an index
   by rank) and what they predict. Numbers that decide are doubles, made by + - * / alone, in a
   fixed order, and ties go to the lower index: every machine makes the same plan.
   ------------------------------------------------------------------------ */
enum { NEO__PLAN_MAX_RANKS = 4096, NEO__PLAN_MAX_KEPT = 1 << 16 };
/* Load of a piece, a table or a rank: seconds of the phases, and bytes. */
enum {
    NEO__PLAN_IDS,
    NEO__PLAN_LOOKUP,
    NEO__PLAN_FORWARD,
    NEO__PLAN_BACKWARD,
    NEO__PLAN_UPDATE,
    NEO__PLAN_PHASES,
    NEO__PLAN_SECONDS = NEO__PLAN_PHASES, /* of all phases */
    NEO__PLAN_TIMES,
    NEO__PLAN_BYTES = NEO__PLAN_TIMES,
    NEO__PLAN_LOADS
};
typedef struct neo__plan_load {
    double at[NEO__PLAN_LOADS];
} neo__plan_load;

/* A piece as its load sees it: its size, and how its table is cut. */
typedef struct neo__plan_cut {
    int64_t rows, cols;
    int32_t row_parts;    /* pieces of its slice */
    int32_t parts;        /* of this piece: its subtrees of buckets, each with sums of its own */
    int32_t in_node;      /* 1: all of them in one node of several, where partial sums add first */
    int32_t local, cross; /* pieces of other slices that hold its rows, in its node and elsewhere */
} neo__plan_cut;

typedef struct neo__plan_table {
    const neo_plan *plan;
    const neo_table_desc *desc; /* the plan's copy */
    int64_t rows, dim;
    int64_t blocks;                 /* of columns, that a cut leaves whole */
    int64_t state_fixed, state_col; /* bytes of state per row: fixed + state_col cols */
    int64_t row_fixed, row_col;     /* bytes of a row likewise: its scale, and a number */
    int scaled;                     /* rows of i8, whose one scale is that of all columns */
    int64_t ids_capacity;
    double ids;                /* per sample */
    int32_t features, buckets; /* buckets 0: any row may begin a piece */
    unsigned allowed;          /* placements, bits */
    int none, row_sums,
        loose; /* row_sums: steps need sums along rows; loose: row cuts change bits */
    neo_placement placement;
    int64_t first_piece, piece_count;
} neo__plan_table;

typedef struct neo__plan_model {
    double batch, ranks;
    double local, cross;         /* seconds of a byte on a link */
    double to_all;               /* seconds of a byte of an all-to-all's send buffer */
    double to_nodes;             /* as to_all, what goes to other nodes only */
    double all_reduce;           /* seconds of a byte of an all-reduce */
    double lookup, update, copy; /* seconds of a byte of memory */
    double bucketed;             /* lookup of tables with row_buckets */
    double id, sort, row, kept;  /* seconds of one */
    double id_bytes;             /* of an id on a link */
    int whole;                   /* one rank with nothing to round: nothing is moved */
    double exchange_latency, reduce_latency;
} neo__plan_model;

typedef enum neo__plan_origin {
    NEO__PLAN_SEARCHED,
    NEO__PLAN_UNIFORM,
    NEO__PLAN_GIVEN
} neo__plan_origin;

struct neo_plan {
    neo_ctx *ctx;
    neo_plan_desc desc; /* of copies */
    neo_bags_desc bags;
    neo__plan_model model;
    neo__plan_origin origin;
    neo_placement uniform;
    neo__plan_table *table;
    int32_t nodes, per_node, last_node; /* last_node: ranks of the last one */
    int64_t block;                      /* columns */
    neo_piece *piece;
    neo__plan_cut *cut; /* of each piece */
    int64_t piece_count;
    int64_t *rank_first; /* [ranks + 1] into rank_piece */
    int64_t *rank_piece;
    neo__plan_load *load; /* of each rank */
    neo_plan_rank *rank;
    neo_plan_step step;
    neo__arena kept;     /* the description and the facts of its tables */
    neo__arena placed;   /* pieces, and what they predict */
    neo__arena work;     /* of a search or of a reader; freed when it ends */
};

NEO_API void neo_plan_destroy(neo_plan *plan) {
    if (!plan) return;
    neo__arena_free(&plan->work);
    neo__arena_free(&plan->placed);
    neo__arena_free(&plan->kept);
    neo_free(plan->ctx, plan, sizeof *plan);
}

static const char *const NEO__PLACEMENT_NAMES[NEO_PLACEMENT_COUNT] = {"tw",   "cw",   "rw",  "dp",
                                                                      "twrw", "twcw", "grid"};
NEO_API const char *neo_placement_name(neo_placement placement) {
    return (unsigned)placement < NEO_PLACEMENT_COUNT ? NEO__PLACEMENT_NAMES[placement] : "unknown";
}
NEO_API neo_status neo_placement_parse(const char *name, neo_placement *placement) {
    NEO__CHECK(name && placement, NEO_ERR_ARG, "neo_placement_parse: an argument is NULL");
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++) {
        if (strcmp(name, NEO__PLACEMENT_NAMES[p]) == 0) {
            *placement = (neo_placement)p;
            return NEO_OK;
        }
    }
    return neo_fail(NEO_ERR_ARG,
                    "neo_placement_parse: '%.80s' is none of tw, cw, rw, dp, twrw, twcw, grid",
                    name);
}

/* ---- the description: checks and copy ---- */
enum {
    NEO__PLAN_ROW_BITS = 1 << NEO_ROW_WISE | 1 << NEO_TABLE_ROW_WISE | 1 << NEO_GRID,
    NEO__PLAN_COLUMN_BITS = 1 << NEO_COLUMN_WISE | 1 << NEO_TABLE_COLUMN_WISE | 1 << NEO_GRID,
    NEO__PLAN_NODE_BITS = 1 << NEO_TABLE_ROW_WISE | 1 << NEO_TABLE_COLUMN_WISE | 1 << NEO_GRID,
    NEO__PLAN_ALL_BITS = (1 << NEO_PLACEMENT_COUNT) - 1
};
static int32_t neo__plan_features(const neo_bags_desc *bags) {
    return bags->feature_table ? bags->feature_count : bags->table_count;
}
static int neo__plan_positive(double x) { return x >= 0.0 && x - x == 0.0; }

/* The numbers of a cluster that may be left 0 for a default. */
typedef struct neo__plan_field {
    const char *name;
    double *value, otherwise;
} neo__plan_field;
enum { NEO__PLAN_FIELDS = 14 };
static void neo__plan_cluster_fields(neo_cluster *c, neo__plan_field *to) {
    neo_link *local = &c->link[NEO_LEVEL_LOCAL], *cross = &c->link[NEO_LEVEL_CROSS];
    neo_calibration *by = &c->calibration;
    const neo__plan_field fields[NEO__PLAN_FIELDS] = {
        {"memory_bandwidth", &c->memory_bandwidth, 10e9},
        {"flops", &c->flops, 50e9},
        {"link[NEO_LEVEL_LOCAL].latency_us", &local->latency_us, 0.0},
        {"link[NEO_LEVEL_LOCAL].bandwidth", &local->bandwidth, 5e9},
        {"link[NEO_LEVEL_CROSS].latency_us", &cross->latency_us, 0.0},
        {"link[NEO_LEVEL_CROSS].bandwidth", &cross->bandwidth, 1e9},
        {"calibration.lookup", &by->lookup, 1.0},
        {"calibration.update", &by->update, 2.0},
        {"calibration.copy", &by->copy, 1.0},
        {"calibration.bucketed", &by->bucketed, 1.5},
        {"calibration.id", &by->id, 64.0},
        {"calibration.sort", &by->sort, 64.0},
        {"calibration.row", &by->row, 64.0},
        {"calibration.kept", &by->kept, 256.0}};
    memcpy(to, fields, sizeof fields);
}
static neo_status neo__plan_check_cluster(const neo_cluster *c, const char *fn) {
    neo_cluster copy = *c;
    neo__plan_field field[NEO__PLAN_FIELDS];
    NEO__CHECK(c->ranks >= 1 && c->ranks <= NEO__PLAN_MAX_RANKS, NEO_ERR_ARG,
               "%s: cluster.ranks is %d, not in 1 .. %d", fn, c->ranks, (int)NEO__PLAN_MAX_RANKS);
    NEO__CHECK(c->ranks_per_node >= 0, NEO_ERR_ARG, "%s: cluster.ranks_per_node is %d", fn,
               c->ranks_per_node);
    NEO__CHECK(c->memory_bytes >= 0, NEO_ERR_ARG, "%s: cluster.memory_bytes is %" PRId64, fn,
               c->memory_bytes);
    neo__plan_cluster_fields(&copy, field);
    for (int i = 0; i < NEO__PLAN_FIELDS; i++)
        NEO__CHECK(neo__plan_positive(*field[i].value), NEO_ERR_ARG,
                   "%s: cluster.%s is %g, not a finite number from 0 up", fn, field[i].name,
                   *field[i].value);
    return NEO_OK;
}
static neo_status neo__plan_check(neo_ctx *ctx, const neo_plan_desc *d, const char *fn) {
    neo_bags_memory memory;
    NEO__CHECK(ctx && d && d->bags, NEO_ERR_ARG, "%s: ctx, desc or desc->bags is NULL", fn);
    NEO__TRY(neo_bags_bytes(ctx, d->bags, &memory));
    NEO__CHECK(d->kept_batches >= 0 && d->kept_batches <= NEO__PLAN_MAX_KEPT, NEO_ERR_ARG,
               "%s: kept_batches is %d, not in 0 .. %d", fn, d->kept_batches,
               (int)NEO__PLAN_MAX_KEPT);
    for (int32_t t = 0; t < d->bags->table_count; t++)
        NEO__CHECK(
            !d->bags->tables[t].weight, NEO_ERR_ARG,
            "%s: table '%s': a table in pieces cannot lie in memory of yours: give weight NULL", fn,
            d->bags->tables[t].name);
    for (int32_t f = 0; d->ids_per_sample && f < neo__plan_features(d->bags); f++)
        NEO__CHECK(neo__plan_positive(d->ids_per_sample[f]), NEO_ERR_ARG,
                   "%s: ids_per_sample[%d] is %g, not a finite number from 0 up", fn, f,
                   d->ids_per_sample[f]);
    NEO__TRY(neo__plan_check_cluster(&d->cluster, fn));
    NEO__CHECK((unsigned)d->wire_forward < NEO_WIRE_COUNT &&
                   (unsigned)d->wire_backward < NEO_WIRE_COUNT,
               NEO_ERR_ARG, "%s: wire_forward %d or wire_backward %d does not exist", fn,
               (int)d->wire_forward, (int)d->wire_backward);
    NEO__CHECK(d->placements <= NEO__PLAN_ALL_BITS, NEO_ERR_ARG,
               "%s: placements 0x%x has unknown bits", fn, d->placements);
    for (int32_t t = 0; d->table_placements && t < d->bags->table_count; t++)
        NEO__CHECK(d->table_placements[t] <= NEO__PLAN_ALL_BITS, NEO_ERR_ARG,
                   "%s: table '%s': table_placements 0x%x has unknown bits", fn,
                   d->bags->tables[t].name, d->table_placements[t]);
    NEO__CHECK(neo__plan_positive(d->dense_flops_bottom) &&
                   neo__plan_positive(d->dense_flops_top) && d->dense_params >= 0,
               NEO_ERR_ARG,
               "%s: dense_flops_bottom %g, dense_flops_top %g and dense_params %" PRId64
               " must be from 0 up",
               fn, d->dense_flops_bottom, d->dense_flops_top, d->dense_params);
    return NEO_OK;
}

static neo_status neo__plan_copy_text(neo_plan *plan, const char **text) {
    char *copy = NULL;
    if (!*text) return NEO_OK;
    NEO__TRY(NEO__ARENA(&plan->kept, copy, strlen(*text) + 1));
    strcpy(copy, *text);
    *text = copy;
    return NEO_OK;
}
static neo_status neo__plan_copy(neo_plan *plan, const neo_plan_desc *d) {
    const neo_bags_desc *from = d->bags;
    int32_t tables = from->table_count, features = neo__plan_features(from);
    neo__arena *kept = &plan->kept;
    neo_table_desc *table;
    int32_t *feature;
    double *ids;
    unsigned *allowed;
    NEO__TRY(NEO__ARENA(kept, table, tables));
    NEO__TRY(NEO__ARENA(kept, feature, features));
    NEO__TRY(NEO__ARENA(kept, ids, features));
    NEO__TRY(NEO__ARENA(kept, allowed, tables));
    plan->desc = *d;
    plan->bags = *from;
    NEO__TRY(neo__plan_copy_text(plan, &plan->bags.name));
    for (int32_t t = 0; t < tables; t++) {
        table[t] = from->tables[t];
        NEO__TRY(neo__plan_copy_text(plan, &table[t].name));
        allowed[t] = d->table_placements ? d->table_placements[t] : 0;
    }
    double even = (double)from->max_ids / ((double)from->max_batch * (double)features);
    for (int32_t f = 0; f < features; f++) {
        feature[f] = from->feature_table ? from->feature_table[f] : f;
        ids[f] = d->ids_per_sample ? d->ids_per_sample[f] : even;
    }
    plan->bags.tables = table;
    plan->bags.feature_table = feature;
    plan->bags.feature_count = features;
    plan->desc.bags = &plan->bags;
    plan->desc.ids_per_sample = ids;
    plan->desc.table_placements = allowed;
    return NEO_OK;
}

static void neo__plan_defaults(neo_plan *plan) {
    const neo_plan_desc *d = &plan->desc;
    neo_cluster *c = &plan->desc.cluster;
    neo__plan_field field[NEO__PLAN_FIELDS];
    neo__plan_cluster_fields(c, field);
    for (int i = 0; i < NEO__PLAN_FIELDS; i++)
        if (*field[i].value <= 0.0) *field[i].value = field[i].otherwise;
    if (c->ranks_per_node == 0 || c->ranks_per_node > c->ranks) c->ranks_per_node = c->ranks;
    plan->per_node = c->ranks_per_node;
    plan->nodes = (c->ranks + plan->per_node - 1) / plan->per_node;
    plan->last_node = c->ranks - (plan->nodes - 1) * plan->per_node;
    int scaled = d->wire_forward >= NEO_WIRE_F8E4M3 || d->wire_backward >= NEO_WIRE_F8E4M3;
    plan->block = scaled ? (int64_t)NEO_WIRE_BLOCK : (int64_t)NEO_PLAN_BLOCK;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-model

   Seconds of a piece with c columns of a table with n features of P ids per sample, and the share s
   of its rows; B samples over W ranks, L in a node; w(c): bytes of c numbers on a wire. The piece
   is p parts: its subtrees of row buckets, each with pooled rows of its own. Bags: B n p; ids: B P
   s, of i bytes on a link (4, or 8 if a table has more than 2^31 rows); rows out: the bags
   (NEO_POOL_NONE: the ids).
       ids       i ids + 4 bags arrive, of them (L-1)/W from its node and (W-L)/W from others, and
                 are copied
       lookup    8 ids + 4 bags + 4 c (ids + rows out), over the memory bandwidth; more if there are
                 buckets
       forward   rows out w(c) leave for all ranks. A slice of k pieces sends partial sums: 4 c
                 bags; inside a node they add first, so that a piece sends 4 c bags (k-1)/k inside,
                 and w(c) bags/(p k) across
       backward  the same the other way, with w(c) for all, as gradients are no sums
       weights   with weight_grad: rows and gradients are read once more; 4 ids leave, or of a
                 piece that is cut by columns 4 ids (c+15)/16; counted with backward
       update    2 lookup, and the sort of ids; where a step needs sums along rows, gradients of
                 touched rows (at most min(ids, rows)) wait, and a float for 16 columns of each goes
                 to every other slice. With kept_batches gradients of all tables wait
   What arrives is as much on all ranks and never more than the most that one sends. A rank has B/W
   of the samples: it checks and packs B/W P s ids for each piece (those of slices of columns once),
   and packs, unpacks and adds up B/W of the rows out of all pieces, both ways: a row by itself, and
   twice its bytes. A table on every rank looks up the B/W samples of the rank; its gradient of 4
   rows D bytes is all-reduced flat (all ranks to all, twice), cleared and read (3 copies); and rows
   that any rank touched wait and step. On one rank nothing is moved, unless wires round.
   ------------------------------------------------------------------------ */
static void neo__plan_model_make(neo_plan *plan) {
    const neo_cluster *c = &plan->desc.cluster;
    neo__plan_model *m = &plan->model;
    double w = c->ranks, l = plan->per_node;
    double local_us = c->link[NEO_LEVEL_LOCAL].latency_us,
           cross_us = c->link[NEO_LEVEL_CROSS].latency_us;
    m->batch = (double)plan->bags.max_batch;
    m->ranks = w;
    m->local = 1.0 / c->link[NEO_LEVEL_LOCAL].bandwidth;
    m->cross = 1.0 / c->link[NEO_LEVEL_CROSS].bandwidth;
    m->to_nodes = (w - l) / w * m->cross;
    m->to_all = (l - 1.0) / w * m->local + m->to_nodes;
    m->all_reduce = 2.0 * m->to_all;
    m->lookup = c->calibration.lookup / c->memory_bandwidth;
    m->update = c->calibration.update / c->memory_bandwidth;
    m->copy = c->calibration.copy / c->memory_bandwidth;
    m->bucketed = m->lookup * c->calibration.bucketed;
    m->id = c->calibration.id / c->memory_bandwidth;
    m->sort = c->calibration.sort / c->memory_bandwidth;
    m->row = c->calibration.row / c->memory_bandwidth;
    m->kept = c->calibration.kept / c->memory_bandwidth;
    m->id_bytes = 4.0;
    for (int32_t t = 0; t < plan->bags.table_count; t++)
        if (plan->bags.tables[t].rows > (int64_t)INT32_MAX + 1) m->id_bytes = 8.0;
    m->whole = c->ranks == 1 && plan->desc.wire_forward == NEO_WIRE_F32 &&
               plan->desc.wire_backward == NEO_WIRE_F32;
    m->exchange_latency = ((l - 1.0) * local_us + (w - l) * cross_us) * 1e-6;
    m->reduce_latency = 2.0 * m->exchange_latency;
}

/* Bytes per row of weights and state, as neo_bags takes them: linear in the columns. */
static neo_status neo__plan_row_bytes(neo_plan *plan, const neo_table_desc *table,
                                      neo__plan_table *to) {
    size_t bytes[2], rows[2];
    for (int i = 0; i < 2; i++) {
        neo_table_desc one = *table;
        NEO__ZERO(neo_bags_desc, d);
        neo_bags_memory memory;
        one.rows = 1;
        one.dim = i + 1;
        one.row_buckets = 0;
        d.tables = &one;
        d.table_count = 1;
        d.max_batch = 1;
        d.max_ids = 1;
        NEO__TRY(neo_bags_bytes(plan->ctx, &d, &memory));
        bytes[i] = memory.state_bytes;
        rows[i] = memory.weight_bytes;
    }
    to->row_col = (int64_t)(rows[1] - rows[0]);
    to->row_fixed = (int64_t)rows[0] - to->row_col;
    to->scaled = table->dtype == NEO_I8;
    to->state_col = (int64_t)(bytes[1] - bytes[0]);
    to->state_fixed = (int64_t)bytes[0] - to->state_col;
    return NEO_OK;
}

static neo_status neo__plan_tables(neo_plan *plan) {
    const neo_bags_desc *bags = &plan->bags;
    double all_ids = 0.0;
    NEO__TRY(NEO__ARENA(&plan->kept, plan->table, bags->table_count));
    for (int32_t f = 0; f < bags->feature_count; f++) {
        neo__plan_table *t = &plan->table[bags->feature_table[f]];
        t->features++;
        t->ids += plan->desc.ids_per_sample[f];
        all_ids += plan->desc.ids_per_sample[f];
    }
    for (int32_t i = 0; i < bags->table_count; i++) {
        const neo_table_desc *from = &bags->tables[i];
        neo__plan_table *t = &plan->table[i];
        unsigned mine = plan->desc.table_placements[i], named = mine ? mine : plan->desc.placements;
        int kind = (int)from->optim.kind;
        t->plan = plan;
        t->desc = from;
        t->rows = from->rows;
        t->dim = from->dim;
        t->blocks = (t->dim + plan->block - 1) / plan->block;
        t->none = from->pooling == NEO_POOL_NONE;
        t->loose = !t->none && from->row_buckets <= 1;
        t->buckets = t->none || t->loose || from->row_buckets >= t->rows ? 0 : from->row_buckets;
        t->allowed = named      ? named
                     : t->loose ? NEO__PLAN_ALL_BITS & ~(unsigned)NEO__PLAN_ROW_BITS
                                : (unsigned)NEO__PLAN_ALL_BITS;
        if (t->none && !named) t->allowed &= ~(unsigned)NEO__PLAN_COLUMN_BITS;
        t->row_sums = kind == NEO_BAG_ROWWISE_ADAGRAD || kind == NEO_BAG_PARTIAL_ADAM ||
                      kind == NEO_BAG_LAMB || kind == NEO_BAG_PARTIAL_LAMB ||
                      kind == NEO_BAG_LARS_SGD || from->optim.max_norm > 0.0f;
        t->ids_capacity =
            all_ids > 0.0 ? (int64_t)((double)bags->max_ids * (t->ids / all_ids)) + 1 : 1;
        NEO__TRY(neo__plan_row_bytes(plan, from, t));
    }
    return NEO_OK;
}

static neo_status neo__plan_new(neo_ctx *ctx, const neo_plan_desc *desc, const char *fn,
                                neo_plan **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "%s: plan is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__plan_check(ctx, desc, fn));
    neo_plan *plan = (neo_plan *)neo__alloc_for(ctx, sizeof *plan, fn);
    if (!plan) return NEO_ERR_MEMORY;
    memset(plan, 0, sizeof *plan);
    plan->ctx = plan->kept.ctx = plan->placed.ctx = plan->work.ctx = ctx;
    plan->kept.function = plan->placed.function = plan->work.function = "neo_plan";
    neo_status status = neo__plan_copy(plan, desc);
    if (status == NEO_OK) {
        neo__plan_defaults(plan);
        neo__plan_model_make(plan);
        status = neo__plan_tables(plan);
    }
    if (status != NEO_OK) {
        neo_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return NEO_OK;
}

NEO__HOT_BEGIN
static int64_t neo__plan_weight_bytes(const neo__plan_table *t, int64_t rows, int64_t cols) {
    return rows * (t->row_fixed + t->row_col * cols);
}
static int64_t neo__plan_piece_state(const neo__plan_table *t, int64_t rows, int64_t cols) {
    return rows * (t->state_fixed + t->state_col * cols);
}
static double neo__plan_wire(neo_wire wire, int64_t cols) {
    return (double)neo_wire_row_bytes(wire, cols);
}

/* ---------------------------------------------------------------------------
   >>impl-plan-buffers

   Bytes of exchanges and workspace on a rank. The search needs them as a sum over the rank's pieces
   (neo__plan_piece_buffer, neo__plan_copy_buffer) and over all pieces, for the rank's samples
   (neo__plan_sample_buffer). In the end a plan is held to the bytes of its neo_shard, where one can
   be made.
   ------------------------------------------------------------------------ */
static int64_t neo__plan_blocks(int64_t cols) {
    return (cols + NEO_PLAN_BLOCK - 1) / NEO_PLAN_BLOCK;
}
/* Floats of an id that go back to its rank, at most. */
static double neo__plan_grad_floats(const neo__plan_table *t, int64_t cols) {
    return !t->plan->desc.weight_grad ? 0.0 : cols < t->dim ? (double)neo__plan_blocks(cols) : 1.0;
}
/* Bytes of an id on the rank of its row: received, permuted, and in backward's sort. */
enum { NEO__PLAN_ID_BYTES = 16, NEO__PLAN_SORT_BYTES = 28, NEO__PLAN_BAG_BYTES = 12 };

/* Ids of a batch that go to a piece, bags that are pooled there, and the rows that leave it. */
typedef struct neo__plan_flow {
    double ids, bags, out;
} neo__plan_flow;
static neo__plan_flow neo__plan_flow_of(const neo__plan_table *t, const neo__plan_cut *cut,
                                        double ids_of_table) {
    neo__plan_flow f;
    f.ids = ids_of_table * ((double)cut->rows / (double)t->rows);
    f.bags = t->plan->model.batch * t->features * cut->parts;
    f.out = t->none ? f.ids : f.bags;
    return f;
}
static double neo__plan_piece_buffer(const neo__plan_table *t, const neo__plan_cut *cut) {
    const neo_plan_desc *d = &t->plan->desc;
    neo__plan_flow f = neo__plan_flow_of(t, cut, (double)t->ids_capacity);
    double times = d->pipeline ? 2.0 : 1.0, row = 4.0 * (double)cut->cols;
    double bytes = f.ids * (times * (double)NEO__PLAN_ID_BYTES + (double)NEO__PLAN_SORT_BYTES) +
                   f.bags * times * (double)NEO__PLAN_BAG_BYTES;
    bytes += f.out * (2.0 * row + neo__plan_wire(d->wire_forward, cut->cols) +
                      neo__plan_wire(d->wire_backward, cut->cols));
    if (!t->none) bytes += f.bags * row; /* gradients, packed for the update */
    if (cut->in_node) bytes += f.bags / cut->row_parts * row;
    double kept = d->kept_batches, most = kept > 1.0 ? kept * f.ids : f.ids;
    if (most > (double)cut->rows) most = (double)cut->rows;
    if (t->row_sums && cut->cols < t->dim) /* gradients wait for the sums of whole rows */
        bytes += most * (row + 64.0 + 8.0 * (double)neo__plan_blocks(cut->cols) *
                                          (1.0 + cut->local + cut->cross));
    else if (kept > 0.0) /* or for the step */
        bytes += most * (row + 64.0);
    return bytes + 4.0 * f.ids * neo__plan_grad_floats(t, cut->cols);
}
static double neo__plan_sample_buffer(const neo__plan_table *t, const neo__plan_cut *cut) {
    const neo_plan *plan = t->plan;
    neo__plan_flow f = neo__plan_flow_of(t, cut, (double)t->ids_capacity);
    double times = plan->desc.pipeline ? 2.0 : 1.0;
    int partial = cut->row_parts > 1 && !t->none && !cut->in_node;
    double forward =
        partial ? 4.0 * (double)cut->cols : neo__plan_wire(plan->desc.wire_forward, cut->cols);
    if (cut->in_node) f.out /= cut->row_parts;
    return (times * (8.0 * f.ids + 4.0 * f.bags) +
            4.0 * f.ids * neo__plan_grad_floats(t, cut->cols) +
            f.out * (forward + neo__plan_wire(plan->desc.wire_backward, cut->cols))) /
           plan->model.ranks;
}
static double neo__plan_copy_buffer(const neo__plan_table *t) {
    const neo_plan *plan = t->plan;
    double ids = (double)t->ids_capacity / plan->model.ranks,
           bags = plan->model.batch / plan->model.ranks * t->features;
    return ids * (double)NEO__PLAN_SORT_BYTES + bags * 4.0 * (double)t->dim +
           4.0 * (double)t->rows * (double)t->dim + (double)t->rows / 8.0 +
           (plan->desc.kept_batches ? (double)t->rows : 0.0);
}

/* ---------------------------------------------------------------------------
   >>impl-plan-predict

   Seconds and bytes of pieces by the formulas of >>impl-plan-model, of ranks as sums over pieces,
   and of a step as the slowest rank's in each phase. The search and a finished plan use the same
   formulas.
   ------------------------------------------------------------------------ */
static void neo__plan_load_add(neo__plan_load *to, const neo__plan_load *x) {
    for (int i = 0; i < NEO__PLAN_LOADS; i++) to->at[i] += x->at[i];
}
/* Raises `most` to the loads of `count` ranks. */
static void neo__plan_most(const neo__plan_load *load, int32_t count, double *most) {
    for (int32_t r = 0; r < count; r++)
        for (int p = 0; p < NEO__PLAN_LOADS; p++)
            if (load[r].at[p] > most[p]) most[p] = load[r].at[p];
}
static neo__plan_load neo__plan_load_total(neo__plan_load x) {
    x.at[NEO__PLAN_SECONDS] = 0.0;
    for (int i = 0; i < NEO__PLAN_PHASES; i++) x.at[NEO__PLAN_SECONDS] += x.at[i];
    return x;
}

/* Parts that a shard makes of rows of a table: subtrees of its buckets. */
struct neo__shard_part;
static int64_t neo__shard_cut_piece(const neo_table_desc *t, const neo_piece *piece, int64_t place,
                                    int inside, struct neo__shard_part *to);
static int32_t neo__plan_parts(const neo__plan_table *t, const neo_piece *p) {
    if (!t->buckets || p->rows == t->rows) return 1;
    return (int32_t)neo__shard_cut_piece(t->desc, p, 0, 0, NULL);
}
static double neo__plan_lookup(const neo__plan_table *t) {
    return t->buckets ? t->plan->model.bucketed : t->plan->model.lookup;
}
/* Load of a piece on the rank that holds it. */
static neo__plan_load neo__plan_piece_load(const neo__plan_table *t, const neo__plan_cut *cut) {
    const neo_plan *plan = t->plan;
    const neo__plan_model *m = &plan->model;
    neo__plan_load x;
    neo__plan_flow f = neo__plan_flow_of(t, cut, m->batch * t->ids);
    double slice = m->batch * t->features, c = 4.0 * (double)cut->cols, k = cut->row_parts;
    double row = (double)(t->row_fixed + t->row_col * cut->cols);
    double index = m->id_bytes * f.ids + 4.0 * f.bags;
    double moved = 8.0 * f.ids + 4.0 * f.bags + row * f.ids + c * f.out;
    double forward = neo__plan_wire(plan->desc.wire_forward, cut->cols);
    double backward = neo__plan_wire(plan->desc.wire_backward, cut->cols);
    double touched = f.ids < (double)cut->rows ? f.ids : (double)cut->rows;
    x.at[NEO__PLAN_IDS] = index * m->to_all + (m->whole ? 0.0 : 2.0 * index * m->copy);
    x.at[NEO__PLAN_LOOKUP] = moved * neo__plan_lookup(t);
    x.at[NEO__PLAN_UPDATE] = moved * m->update + f.ids * m->sort;
    x.at[NEO__PLAN_BACKWARD] = f.out * backward * m->to_all;
    if (cut->row_parts == 1 || t->none) {
        x.at[NEO__PLAN_FORWARD] = f.out * forward * m->to_all;
    } else if (cut->in_node) { /* inside a node bags are packed and added besides */
        double inside =
            f.bags * c * ((k - 1.0) / k) * m->local + f.bags * (2.0 * c * m->copy + m->row);
        x.at[NEO__PLAN_FORWARD] = inside + slice / k * forward * m->to_nodes;
        x.at[NEO__PLAN_BACKWARD] = inside + slice / k * backward * m->to_nodes;
    } else {
        x.at[NEO__PLAN_FORWARD] = f.bags * c * m->to_all;
    }
    if (plan->desc.weight_grad)
        x.at[NEO__PLAN_BACKWARD] +=
            (row * f.ids + c * f.out) * neo__plan_lookup(t) +
            4.0 * f.ids * neo__plan_grad_floats(t, cut->cols) * m->to_all;
    if ((t->row_sums && cut->cols < t->dim) || plan->desc.kept_batches)
        x.at[NEO__PLAN_UPDATE] += touched * (m->kept + 2.0 * c * m->copy);
    if (t->row_sums && cut->local + cut->cross > 0)
        x.at[NEO__PLAN_UPDATE] += 4.0 * (double)neo__plan_blocks(cut->cols) * touched *
                                  (cut->local * m->local + cut->cross * m->cross);
    x.at[NEO__PLAN_BYTES] = (double)neo__plan_weight_bytes(t, cut->rows, cut->cols) +
                            (double)neo__plan_piece_state(t, cut->rows, cut->cols) +
                            neo__plan_piece_buffer(t, cut);
    return neo__plan_load_total(x);
}
/* Load of a piece on every rank, as an owner of samples. */
static neo__plan_load neo__plan_sample_load(const neo__plan_table *t, const neo__plan_cut *cut) {
    const neo__plan_model *m = &t->plan->model;
    NEO__ZERO(neo__plan_load, x);
    neo__plan_flow f = neo__plan_flow_of(t, cut, m->batch * t->ids);
    if (cut->in_node) f.out = m->batch * t->features / cut->row_parts;
    x.at[NEO__PLAN_BYTES] = neo__plan_sample_buffer(t, cut);
    if (m->whole) return x;
    x.at[NEO__PLAN_IDS] = f.ids / m->ranks * ((double)cut->cols / (double)t->dim) * m->id;
    x.at[NEO__PLAN_FORWARD] = x.at[NEO__PLAN_BACKWARD] =
        f.out / m->ranks * (2.0 * 4.0 * (double)cut->cols * m->copy + m->row);
    return neo__plan_load_total(x);
}
/* Bytes of an all-reduce for a copy on every rank: gradients, and a mark of each row. */
static double neo__plan_copy_reduce(const neo__plan_table *t) {
    return (double)t->rows * (4.0 * (double)t->dim + 1.0);
}
/* Load of a copy on every rank, for each. */
static neo__plan_load neo__plan_copy_load(const neo__plan_table *t) {
    const neo__plan_model *m = &t->plan->model;
    NEO__ZERO(neo__plan_load, x);
    double all = m->batch * t->ids, ids = all / m->ranks, bags = m->batch / m->ranks * t->features;
    double c = 4.0 * (double)t->dim, rows = (double)t->rows,
           row = (double)(t->row_fixed + t->row_col * t->dim),
           moved = 8.0 * ids + 4.0 * bags + row * ids + c * (t->none ? ids : bags);
    x.at[NEO__PLAN_LOOKUP] = moved * neo__plan_lookup(t);
    x.at[NEO__PLAN_UPDATE] = moved * m->update + ids * m->sort;
    if (m->ranks > 1.0) {
        x.at[NEO__PLAN_FORWARD] = x.at[NEO__PLAN_BACKWARD] = bags * (2.0 * c * m->copy + m->row);
        x.at[NEO__PLAN_UPDATE] += 3.0 * c * rows * m->copy;
        x.at[NEO__PLAN_UPDATE] += (all < rows ? all : rows) * (m->kept + 2.0 * c * m->copy);
    }
    x.at[NEO__PLAN_BYTES] = (double)neo__plan_weight_bytes(t, t->rows, t->dim) +
                            (double)neo__plan_piece_state(t, t->rows, t->dim) +
                            neo__plan_copy_buffer(t);
    return neo__plan_load_total(x);
}

/* most: of each phase, the slowest rank's seconds; reduce_bytes: of dense gradients. */
static neo_plan_step neo__plan_step_make(const neo_plan *plan, const double *most,
                                         double reduce_bytes) {
    const neo__plan_model *m = &plan->model;
    const neo_plan_desc *d = &plan->desc;
    NEO__ZERO(neo_plan_step, s);
    double samples = m->batch / m->ranks / d->cluster.flops;
    s.ids = most[NEO__PLAN_IDS] + 2.0 * m->exchange_latency; /* lengths, then ids */
    s.lookup = most[NEO__PLAN_LOOKUP];
    s.forward = most[NEO__PLAN_FORWARD] + m->exchange_latency;
    s.backward = most[NEO__PLAN_BACKWARD] + m->exchange_latency;
    s.update = most[NEO__PLAN_UPDATE];
    s.bottom = d->dense_flops_bottom * samples;
    s.top = d->dense_flops_top * samples;
    s.reduce = (reduce_bytes + 4.0 * (double)d->dense_params) * m->all_reduce;
    if (reduce_bytes > 0.0) s.reduce += 2.0 * m->reduce_latency; /* gradients, and marks of rows */
    if (d->dense_params > 0) s.reduce += m->reduce_latency;
    s.plain = s.ids + s.lookup + s.forward + 3.0 * (s.bottom + s.top) + s.backward + s.update +
              s.reduce;
    s.pipelined = NEO__MAX(s.bottom, s.lookup + s.forward) + 3.0 * s.top;
    s.pipelined += NEO__MAX(2.0 * s.bottom, s.backward);
    s.pipelined += NEO__MAX(s.update, s.reduce);
    s.pipelined = NEO__MAX(s.pipelined, s.ids + s.forward + s.backward + s.reduce);
    return s;
}

NEO__HOT_END

/* Fills in plan->cut: the pieces [begin, end) are a slice. */
static void neo__plan_cut_slice(neo_plan *plan, const neo__plan_table *t, int64_t begin,
                                int64_t end) {
    int in_node = end - begin > 1 && plan->nodes > 1 && !t->none;
    int64_t first = t->first_piece, last = first + t->piece_count;
    for (int64_t i = begin; i < end; i++)
        if (plan->piece[i].rank / plan->per_node != plan->piece[begin].rank / plan->per_node)
            in_node = 0;
    for (int64_t i = begin; i < end; i++) {
        const neo_piece *p = &plan->piece[i];
        neo__plan_cut *cut = &plan->cut[i];
        cut->rows = p->rows;
        cut->cols = p->cols;
        cut->row_parts = (int32_t)(end - begin);
        cut->parts = neo__plan_parts(t, p);
        cut->in_node = in_node;
        for (int64_t k = first; t->row_sums && end - begin < t->piece_count && k < last; k++) {
            const neo_piece *q = &plan->piece[k];
            if (q->first_col == p->first_col || q->rank == p->rank ||
                q->first_row >= p->first_row + p->rows || p->first_row >= q->first_row + q->rows)
                continue;
            if (q->rank / plan->per_node == p->rank / plan->per_node)
                cut->local++;
            else
                cut->cross++;
        }
    }
}
/* Loads of ranks, but for their bytes, from the pieces; *reduce: bytes of dense gradients. Returns
   the bytes of buffers that a rank has for its samples. */
static double neo__plan_predict_loads(neo_plan *plan, double *reduce) {
    NEO__ZERO(neo__plan_load, all);
    *reduce = 0.0;
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        const neo__plan_table *t = &plan->table[i];
        const neo_piece *p = plan->piece;
        int64_t last = t->first_piece + t->piece_count;
        if (p[t->first_piece].rank == NEO_EVERY_RANK) {
            neo__plan_load x = neo__plan_copy_load(t);
            x.at[NEO__PLAN_BYTES] = 0.0; /* counted as a piece of each rank */
            neo__plan_load_add(&all, &x);
            *reduce += neo__plan_copy_reduce(t);
            continue;
        }
        for (int64_t begin = t->first_piece, end; begin < last; begin = end) {
            for (end = begin; end < last && p[end].first_col == p[begin].first_col;) end++;
            neo__plan_cut_slice(plan, t, begin, end);
        }
        for (int64_t k = t->first_piece; k < last; k++) {
            neo__plan_load x = neo__plan_piece_load(t, &plan->cut[k]);
            neo__plan_load samples = neo__plan_sample_load(t, &plan->cut[k]);
            neo__plan_load_add(&plan->load[p[k].rank], &x);
            neo__plan_load_add(&all, &samples);
        }
    }
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++) neo__plan_load_add(&plan->load[r], &all);
    return all.at[NEO__PLAN_BYTES];
}
/* Bytes of each rank. Buffers are those of the neo_shard that the plan makes, or else the search's
   sum, with sample_bytes for the rank's samples. */
static neo_status neo__shard_plan_bytes(neo_ctx *ctx, const neo_plan *plan, neo_shard_memory *each);
static void neo__plan_predict_bytes(neo_plan *plan, double sample_bytes) {
    int32_t ranks = plan->desc.cluster.ranks;
    size_t bytes = (size_t)ranks * sizeof(neo_shard_memory);
    neo_shard_memory *each = (neo_shard_memory *)neo_alloc(plan->ctx, bytes);
    int exact = each && neo__shard_plan_bytes(plan->ctx, plan, each) == NEO_OK;
    for (int32_t r = 0; r < ranks; r++) {
        neo_plan_rank *x = &plan->rank[r];
        double buffers = sample_bytes;
        for (int64_t i = plan->rank_first[r]; i < plan->rank_first[r + 1]; i++) {
            int64_t at = plan->rank_piece[i];
            const neo_piece *p = &plan->piece[at];
            const neo__plan_table *t = &plan->table[p->table];
            x->weight_bytes += neo__plan_weight_bytes(t, p->rows, p->cols);
            x->state_bytes += neo__plan_piece_state(t, p->rows, p->cols);
            buffers += p->rank == NEO_EVERY_RANK ? neo__plan_copy_buffer(t)
                                                 : neo__plan_piece_buffer(t, &plan->cut[at]);
        }
        x->buffer_bytes = exact ? (int64_t)(each[r].exchange_bytes + each[r].workspace_bytes)
                                : (int64_t)buffers + 1;
    }
    neo_free(plan->ctx, each, bytes);
}
static void neo__plan_predict(neo_plan *plan) {
    int32_t ranks = plan->desc.cluster.ranks, busiest = 0, fullest = 0;
    double most[NEO__PLAN_LOADS] = {0.0}, sum = 0.0, reduce;
    int64_t most_bytes = -1;
    neo__plan_predict_bytes(plan, neo__plan_predict_loads(plan, &reduce));
    for (int32_t r = 0; r < ranks; r++) {
        neo_plan_rank *x = &plan->rank[r];
        neo__plan_load load = neo__plan_load_total(plan->load[r]);
        x->ids = load.at[NEO__PLAN_IDS];
        x->lookup = load.at[NEO__PLAN_LOOKUP];
        x->forward = load.at[NEO__PLAN_FORWARD];
        x->backward = load.at[NEO__PLAN_BACKWARD];
        x->update = load.at[NEO__PLAN_UPDATE];
        x->seconds = load.at[NEO__PLAN_SECONDS];
        int64_t bytes = x->weight_bytes + x->state_bytes + x->buffer_bytes;
        if (bytes > most_bytes) most_bytes = bytes, fullest = r;
        if (x->seconds > plan->rank[busiest].seconds) busiest = r;
        sum += x->seconds;
    }
    neo__plan_most(plan->load, ranks, most);
    plan->step = neo__plan_step_make(plan, most, reduce);
    plan->step.balance = sum > 0.0 ? plan->rank[busiest].seconds * ranks / sum : 1.0;
    plan->step.busiest_rank = busiest;
    plan->step.fullest_rank = fullest;
    plan->step.most_bytes = most_bytes;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-pieces

   Rectangles of tables: equal cuts, checks of the caller's own, and the index by rank. Part i of k
   of an equal cut has the blocks (of columns) or buckets (of rows) from i n/k up to (i + 1) n/k
   (neo__bucket_begin). Pieces are kept sorted by table, first column, first row.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
static int64_t neo__plan_row_units(const neo__plan_table *t) {
    return t->buckets ? t->buckets : t->rows;
}
static int64_t neo__plan_unit_row(const neo__plan_table *t, int64_t unit) {
    return t->buckets ? neo__bucket_begin(t->rows, t->buckets, unit) : unit;
}
/* Part i of a table in equal parts, slice by slice: rows and columns of p. */
static void neo__plan_part(const neo__plan_table *t, int64_t col_parts, int64_t row_parts,
                           int64_t i, neo_piece *p) {
    int64_t slice = i / row_parts, range = i % row_parts, units = neo__plan_row_units(t);
    int64_t end = neo__bucket_begin(t->blocks, col_parts, slice + 1) * t->plan->block;
    p->first_col = neo__bucket_begin(t->blocks, col_parts, slice) * t->plan->block;
    p->cols = (end < t->dim ? end : t->dim) - p->first_col;
    p->first_row = neo__plan_unit_row(t, neo__bucket_begin(units, row_parts, range));
    p->rows = neo__plan_unit_row(t, neo__bucket_begin(units, row_parts, range + 1)) - p->first_row;
}
static int neo__plan_row_begins(const neo__plan_table *t, int64_t row) {
    if (!t->buckets) return 1;
    int64_t product = row * t->buckets, bucket = product / t->rows + (product % t->rows != 0);
    return neo__plan_unit_row(t, bucket) == row;
}

/* A table cut into equal parts: col_parts x row_parts pieces, slice by slice; ranks likewise. */
typedef struct neo__plan_shape {
    int32_t col_parts, row_parts; /* 0, 0: a copy on every rank */
    const int32_t *ranks;         /* NULL: part i on rank i */
} neo__plan_shape;
static int64_t neo__plan_shape_count(neo__plan_shape s) {
    return s.col_parts ? (int64_t)s.col_parts * s.row_parts : 1;
}
static void neo__plan_shape_cut(const neo__plan_table *t, neo__plan_shape s, neo_piece *pieces) {
    int32_t copy = !s.col_parts;
    for (int64_t i = 0; i < neo__plan_shape_count(s); i++) {
        pieces[i].table = (int32_t)(t - t->plan->table);
        pieces[i].rank = copy ? NEO_EVERY_RANK : s.ranks ? s.ranks[i] : (int32_t)i;
        neo__plan_part(t, s.col_parts + copy, s.row_parts + copy, i, &pieces[i]);
    }
}
NEO__HOT_END
static int neo__plan_piece_order(const void *x, const void *y) {
    const neo_piece *p = (const neo_piece *)x, *q = (const neo_piece *)y;
    const int64_t a[] = {p->table, p->first_col, p->first_row, p->rank, p->rows, p->cols};
    const int64_t b[] = {q->table, q->first_col, q->first_row, q->rank, q->rows, q->cols};
    for (int i = 0; i < 6; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}
static int64_t neo__plan_slices(const neo__plan_table *t) {
    const neo_piece *p = t->plan->piece + t->first_piece;
    int64_t slices = 1;
    for (int64_t i = 1; i < t->piece_count; i++) slices += p[i].first_col != p[i - 1].first_col;
    return slices;
}
/* The placement that the rectangles of a table amount to. */
static neo_placement neo__plan_classify(const neo__plan_table *t) {
    const neo_piece *p = t->plan->piece + t->first_piece;
    int32_t per_node = t->plan->per_node, one_node = t->plan->nodes > 1;
    int64_t slices = neo__plan_slices(t);
    for (int64_t i = 1; i < t->piece_count; i++)
        if (p[i].rank / per_node != p[0].rank / per_node) one_node = 0;
    if (p->rank == NEO_EVERY_RANK) return NEO_DATA_PARALLEL;
    if (t->piece_count == 1) return NEO_TABLE_WISE;
    if (slices == 1) return one_node ? NEO_TABLE_ROW_WISE : NEO_ROW_WISE;
    if (slices < t->piece_count) return NEO_GRID;
    return one_node ? NEO_TABLE_COLUMN_WISE : NEO_COLUMN_WISE;
}

/* ---- pieces of the caller: is every element somewhere, once, and every cut allowed? ---- */
static neo_status neo__plan_check_piece(const neo_plan *plan, const neo_piece *p, int64_t i,
                                        const char *fn) {
    NEO__CHECK(p->table >= 0 && p->table < plan->bags.table_count, NEO_ERR_ARG,
               "%s: piece %" PRId64 ": table is %d, there are %d", fn, i, p->table,
               plan->bags.table_count);
    const neo__plan_table *t = &plan->table[p->table];
    const char *name = t->desc->name;
    NEO__CHECK(p->rank >= NEO_EVERY_RANK && p->rank < plan->desc.cluster.ranks, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": rank is %d, there are %d", fn, name, i, p->rank,
               plan->desc.cluster.ranks);
    NEO__CHECK(p->rows > 0 && p->first_row >= 0 && p->first_row <= t->rows - p->rows &&
                   p->cols > 0 && p->first_col >= 0 && p->first_col <= t->dim - p->cols,
               NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": rows %" PRId64 "+%" PRId64 ", columns %" PRId64
               "+%" PRId64 " is empty or outside of %" PRId64 " x %" PRId64,
               fn, name, i, p->first_row, p->rows, p->first_col, p->cols, t->rows, t->dim);
    NEO__CHECK(p->rank != NEO_EVERY_RANK || (p->rows == t->rows && p->cols == t->dim), NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": what is on every rank is the whole table", fn,
               name, i);
    NEO__CHECK(p->cols == t->dim || !t->scaled, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 " has %" PRId64 " of %" PRId64
               " columns: a row of i8 has one scale, cut the table by rows",
               fn, name, i, p->cols, t->dim);
    NEO__CHECK(p->first_col % plan->block == 0, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": column %" PRId64
               " is no place to cut: not a multiple of %" PRId64 "%s",
               fn, name, i, p->first_col, plan->block,
               plan->block == NEO_WIRE_BLOCK ? ", the block of the wire's scales" : "");
    NEO__CHECK(p->rows == t->rows || !t->loose || (t->allowed & NEO__PLAN_ROW_BITS), NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 " has %" PRId64 " of %" PRId64
               " rows, so sums would depend on the "
               "plan: give it row_buckets, or allow it a row placement",
               fn, name, i, p->rows, t->rows);
    NEO__CHECK(neo__plan_row_begins(t, p->first_row), NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": row %" PRId64
               " is no place to cut: none of the %d buckets begins "
               "there",
               fn, name, i, p->first_row, t->buckets);
    return NEO_OK;
}
static neo_status neo__plan_hole(const char *fn, const char *name, int64_t row, int64_t col) {
    return neo_fail(NEO_ERR_ARG, "%s: table '%s': row %" PRId64 ", column %" PRId64
                    " is in no piece", fn, name, row, col);
}
/* Pieces [0, count) of a table, sorted: row and col are where the next one has to begin. */
static neo_status neo__plan_check_tiles(const neo__plan_table *t, const neo_piece *p, int64_t count,
                                        const char *fn) {
    const char *name = t->desc->name;
    int64_t col = 0, row = t->rows;
    NEO__CHECK(count > 0, NEO_ERR_ARG, "%s: table '%s' has no pieces", fn, name);
    for (int64_t i = 0; i < count; i++, p++) {
        NEO__CHECK(p->rank != NEO_EVERY_RANK || count == 1, NEO_ERR_ARG,
                   "%s: table '%s' is on every rank, and in other pieces too", fn, name);
        if (i == 0 || p->first_col != p[-1].first_col) { /* a slice begins */
            if (row < t->rows) return neo__plan_hole(fn, name, row, p[-1].first_col);
            if (p->first_col > col) return neo__plan_hole(fn, name, 0, col);
            NEO__CHECK(p->first_col == col, NEO_ERR_ARG,
                       "%s: table '%s': column %" PRId64 " (of a piece on rank %d) is inside "
                       "another slice, which ends at column %" PRId64,
                       fn, name, p->first_col, p->rank, col);
            row = 0;
            col += p->cols;
        }
        NEO__CHECK(p->first_col + p->cols == col, NEO_ERR_ARG,
                   "%s: table '%s': the pieces at column %" PRId64 " (on ranks %d and %d) differ "
                   "in their columns: cut columns first, then rows",
                   fn, name, p->first_col, p[-1].rank, p->rank);
        if (p->first_row > row) return neo__plan_hole(fn, name, row, p->first_col);
        NEO__CHECK(p->first_row == row, NEO_ERR_ARG,
                   "%s: table '%s': row %" PRId64 ", column %" PRId64
                   " is in two pieces, on ranks %d and %d",
                   fn, name, p->first_row, p->first_col, p[-1].rank, p->rank);
        row += p->rows;
    }
    if (row < t->rows) return neo__plan_hole(fn, name, row, p[-1].first_col);
    return col < t->dim ? neo__plan_hole(fn, name, 0, col) : NEO_OK;
}

/* Makes room for `count` pieces in place of those before; held: with copies on each rank. */
static neo_status neo__plan_hold(neo_plan *plan, int64_t count, int64_t held) {
    int32_t ranks = plan->desc.cluster.ranks;
    neo__arena *placed = &plan->placed;
    neo__arena_free(placed);
    plan->piece_count = count;
    NEO__TRY(NEO__ARENA(placed, plan->piece, count));
    NEO__TRY(NEO__ARENA(placed, plan->cut, count));
    NEO__TRY(NEO__ARENA(placed, plan->rank_first, ranks + 1));
    NEO__TRY(NEO__ARENA(placed, plan->rank_piece, held));
    NEO__TRY(NEO__ARENA(placed, plan->load, ranks));
    return NEO__ARENA(placed, plan->rank, ranks);
}
/* From the sorted pieces: tables, the index by rank, predictions. */
static void neo__plan_finish(neo_plan *plan) {
    int32_t ranks = plan->desc.cluster.ranks;
    int64_t *first = plan->rank_first; /* counts, then ends, then begins of the ranks' lists */
    for (int64_t i = plan->piece_count - 1; i >= 0; i--) {
        int32_t rank = plan->piece[i].rank, copy = rank == NEO_EVERY_RANK;
        plan->table[plan->piece[i].table].first_piece = i;
        for (int32_t r = copy ? 0 : rank; r < (copy ? ranks : rank + 1); r++) first[r]++;
    }
    for (int32_t r = 0; r < ranks; r++) first[r + 1] += first[r];
    for (int64_t i = plan->piece_count - 1; i >= 0; i--) {
        int32_t rank = plan->piece[i].rank, copy = rank == NEO_EVERY_RANK;
        for (int32_t r = copy ? 0 : rank; r < (copy ? ranks : rank + 1); r++)
            plan->rank_piece[--first[r]] = i;
    }
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        neo__plan_table *t = &plan->table[i];
        int64_t end =
            i + 1 < plan->bags.table_count ? plan->table[i + 1].first_piece : plan->piece_count;
        t->piece_count = end - t->first_piece;
        t->placement = neo__plan_classify(t);
    }
    neo__plan_predict(plan);
}
static neo_status neo__plan_fill(neo_plan *plan, const neo_piece *pieces, int64_t count,
                                 const char *fn) {
    int64_t held = 0, at = 0, ranks = plan->desc.cluster.ranks;
    int64_t budget = plan->desc.cluster.memory_bytes;
    NEO__CHECK(pieces && count > 0, NEO_ERR_ARG, "%s: no pieces are given", fn);
    for (int64_t i = 0; i < count; i++) {
        NEO__TRY(neo__plan_check_piece(plan, &pieces[i], i, fn));
        held += pieces[i].rank == NEO_EVERY_RANK ? ranks : 1;
    }
    NEO__TRY(neo__plan_hold(plan, count, held));
    memcpy(plan->piece, pieces, (size_t)count * sizeof *pieces);
    qsort(plan->piece, (size_t)count, sizeof *pieces, neo__plan_piece_order);
    for (int32_t t = 0; t < plan->bags.table_count; t++) {
        int64_t begin = at;
        while (at < count && plan->piece[at].table == t) at++;
        NEO__TRY(neo__plan_check_tiles(&plan->table[t], plan->piece + begin, at - begin, fn));
    }
    neo__plan_finish(plan);
    NEO__CHECK(!budget || plan->step.most_bytes <= budget, NEO_ERR_CAPACITY,
               "%s: rank %d would need %" PRId64 " bytes, its budget is %" PRId64, fn,
               plan->step.fullest_rank, plan->step.most_bytes, budget);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-options

   An option is a placement of one table in so many parts, on places still to be chosen: ranks,
   whole nodes, or none where every rank takes part. Its costs do not depend on those places.
   Options are the only cuts that the search knows.
   ------------------------------------------------------------------------ */
enum { NEO__UNIT_ALL, NEO__UNIT_RANK, NEO__UNIT_NODE };
enum { NEO__PLAN_OPTIONS = 48 };
typedef struct neo__plan_option {
    neo_placement placement;
    int32_t col_parts, row_parts; /* 0, 0: a copy on every rank */
    int32_t unit;
    int32_t pieces; /* to be placed; unit ALL: 0 */
    int32_t slices; /* that lie on nodes of their own */
    neo__plan_load worst;     /* the heaviest piece */
    neo__plan_load sum;       /* of all pieces; unit ALL: 0 */
    neo__plan_load all;       /* what the table is for every rank besides */
    double reduce_bytes; /* of gradients */
    double seconds;      /* of a rank in the mean, all phases and all-reduce */
    double peak;         /* seconds of the heaviest piece, or of what is on every rank */
    double bytes;        /* over all ranks */
    double most_bytes;   /* on one rank */
} neo__plan_option;

/* NULL if the table can be placed so, else why not. */
static const char *neo__plan_reason(const neo__plan_table *t, neo_placement placement) {
    const neo_plan *plan = t->plan;
    int bit = 1 << (int)placement, rows = bit & NEO__PLAN_ROW_BITS;
    int cols = bit & NEO__PLAN_COLUMN_BITS, node = bit & NEO__PLAN_NODE_BITS;
    int allowed = (t->allowed & (unsigned)bit) != 0, named = plan->origin == NEO__PLAN_UNIFORM;
    if (rows && t->loose && !allowed)
        return "its sums would depend on the plan, as it has no row_buckets";
    if (!named && cols && t->none && !allowed)
        return "its rows are not pooled: they travel whole";
    if (!named && !allowed) return "not among the placements allowed";
    if (placement == NEO_TABLE_WISE) return NULL;
    if (plan->desc.cluster.ranks == 1) return "there is one rank";
    if (node && plan->nodes == 1) return "there is one node";
    if (node && plan->last_node != plan->per_node) return "nodes have different numbers of ranks";
    if (node && placement != NEO_GRID && plan->per_node == 1) return "a node has one rank";
    if (placement == NEO_GRID && plan->per_node == 1)
        return "a node has one rank, so it would be cw";
    if (cols && t->scaled) return "a row of i8 has one scale";
    if (cols && t->blocks < 2)
        return plan->block == NEO_WIRE_BLOCK ? "its columns are one block of 64 (the wire's)"
                                             : "its columns are one block of 16";
    if (rows && neo__plan_row_units(t) < 2) return "it has one row";
    return NULL;
}

NEO__HOT_BEGIN
static neo__plan_cut neo__plan_option_cut(const neo__plan_table *t, const neo__plan_option *o,
                                          int32_t part) {
    neo__plan_cut cut;
    neo_piece p;
    int inside = o->placement == NEO_TABLE_COLUMN_WISE || t->plan->nodes == 1;
    neo__plan_part(t, o->col_parts, o->row_parts, part, &p);
    cut.rows = p.rows;
    cut.cols = p.cols;
    cut.row_parts = o->row_parts;
    cut.parts = neo__plan_parts(t, &p);
    cut.in_node = o->unit == NEO__UNIT_NODE && o->row_parts > 1 && !t->none;
    cut.local = inside ? o->col_parts - 1 : 0;
    cut.cross = inside ? 0 : o->col_parts - 1;
    return cut;
}
static neo__plan_load neo__plan_part_load(const neo__plan_table *t, const neo__plan_option *o,
                                          int32_t part) {
    const neo__plan_cut cut = neo__plan_option_cut(t, o, part);
    return neo__plan_piece_load(t, &cut);
}
NEO__HOT_END
static void neo__plan_option_cost(const neo__plan_table *t, neo__plan_option *o) {
    double ranks = t->plan->model.ranks;
    NEO__ZERO(neo__plan_load, x);
    NEO__ZERO(neo__plan_load, samples);
    NEO__ZERO(neo__plan_cut, last);
    if (!o->col_parts) {
        o->all = neo__plan_copy_load(t);
        o->reduce_bytes = neo__plan_copy_reduce(t);
    }
    for (int32_t i = 0; i < o->col_parts * o->row_parts; i++) {
        const neo__plan_cut cut = neo__plan_option_cut(t, o, i);
        if (cut.rows != last.rows || cut.cols != last.cols || cut.parts != last.parts) {
            x = neo__plan_piece_load(t, &cut); /* most parts are like the one before */
            samples = neo__plan_sample_load(t, &cut);
            last = cut;
        }
        neo__plan_load_add(&o->sum, &x);
        neo__plan_load_add(&o->all, &samples);
        for (int k = 0; k < NEO__PLAN_LOADS; k++)
            if (x.at[k] > o->worst.at[k]) o->worst.at[k] = x.at[k];
    }
    o->seconds = o->all.at[NEO__PLAN_SECONDS] + o->sum.at[NEO__PLAN_SECONDS] / ranks +
                 o->reduce_bytes * t->plan->model.all_reduce;
    o->peak = o->worst.at[NEO__PLAN_SECONDS] + o->all.at[NEO__PLAN_SECONDS];
    o->bytes = o->sum.at[NEO__PLAN_BYTES] + ranks * o->all.at[NEO__PLAN_BYTES];
    o->most_bytes = o->worst.at[NEO__PLAN_BYTES] + o->all.at[NEO__PLAN_BYTES];
    if (o->unit == NEO__UNIT_ALL) {
        neo__plan_load_add(&o->all, &o->worst);
        memset(&o->worst, 0, sizeof o->worst);
        memset(&o->sum, 0, sizeof o->sum);
    }
}
typedef struct neo__plan_options {
    int32_t count;
    neo__plan_option at[NEO__PLAN_OPTIONS];
} neo__plan_options;
static void neo__plan_option_add(const neo__plan_table *t, neo_placement placement, int unit,
                                 int64_t col_parts, int64_t row_parts, neo__plan_options *to) {
    if (to->count == NEO__PLAN_OPTIONS) return;
    neo__plan_option *o = &to->at[to->count++];
    memset(o, 0, sizeof *o);
    o->placement = placement;
    o->unit = unit;
    o->col_parts = (int32_t)col_parts;
    o->row_parts = (int32_t)row_parts;
    o->pieces = unit == NEO__UNIT_ALL ? 0 : o->col_parts * o->row_parts;
    o->slices = placement == NEO_GRID ? o->col_parts : 1;
    neo__plan_option_cost(t, o);
}
/* Numbers of parts that are tried below the most: 2, 3, 4, 6, 8, 12 ... */
static int64_t neo__plan_next_parts(int64_t n) {
    return (n & (n - 1)) == 0 ? (n == 2 ? 3 : n + n / 2) : n / 3 * 4;
}

/* The options of one placement; `few`: only that with the most parts. */
static void neo__plan_options_of(const neo__plan_table *t, neo_placement placement, int few,
                                 neo__plan_options *to) {
    const neo_plan *plan = t->plan;
    int64_t ranks = plan->desc.cluster.ranks, units = neo__plan_row_units(t);
    int64_t in_node = NEO__MIN(units, plan->per_node), cols = 1, rows = 1; /* at most */
    int by_rows = placement == NEO_ROW_WISE, by_cols = placement == NEO_COLUMN_WISE;
    int unit = 1 << (int)placement & NEO__PLAN_NODE_BITS ? NEO__UNIT_NODE : NEO__UNIT_RANK;
    if (neo__plan_reason(t, placement)) return;
    if (placement == NEO_DATA_PARALLEL) cols = rows = 0, unit = NEO__UNIT_ALL;
    if (by_cols) cols = NEO__MIN(t->blocks, ranks);
    if (placement == NEO_TABLE_COLUMN_WISE) cols = NEO__MIN(t->blocks, plan->per_node);
    if (placement == NEO_TABLE_ROW_WISE || placement == NEO_GRID) rows = in_node;
    if (placement == NEO_GRID) cols = NEO__MIN(t->blocks, plan->nodes);
    if (by_rows) rows = NEO__MIN(units, ranks);
    int64_t most = few ? 0 : by_rows ? rows : by_cols || placement == NEO_GRID ? cols : 0;
    for (int64_t k = 2; k < most; k = by_cols ? neo__plan_next_parts(k) : 2 * k)
        neo__plan_option_add(t, placement, unit, by_rows ? 1 : k, by_rows ? k : rows, to);
    if (placement == NEO_ROW_WISE && rows == ranks) unit = NEO__UNIT_ALL;
    neo__plan_option_add(t, placement, unit, cols, rows, to);
}
static void neo__plan_options_make(const neo__plan_table *t, neo__plan_options *to) {
    const neo_plan *plan = t->plan;
    to->count = 0;
    if (plan->origin == NEO__PLAN_UNIFORM) {
        neo__plan_options_of(t, plan->uniform, 1, to);
        if (to->count == 0) neo__plan_options_of(t, NEO_TABLE_WISE, 1, to);
        return;
    }
    for (int p = 0; p < NEO_PLACEMENT_COUNT; p++)
        neo__plan_options_of(t, (neo_placement)p, 0, to);
}

/* ---------------------------------------------------------------------------
   >>impl-plan-place

   A draft of a plan is an option for each table and a rank for each of its pieces, which have seats
   in one list over all tables. Pieces go to ranks heaviest first: those on whole nodes before those
   on single ranks, which level the load. A piece goes where the phases grow least above their mean,
   then to the least loaded rank; where memory is the goal, to the emptiest rank.
   ------------------------------------------------------------------------ */
typedef enum neo__plan_goal { NEO__GOAL_TIME, NEO__GOAL_MEMORY } neo__plan_goal;
typedef struct neo__plan_key {
    double first, second;
    int64_t at;
} neo__plan_key;
typedef struct neo__plan_draft {
    int32_t *choice, *seat; /* [tables] an option, [seats] a rank */
    neo__plan_load *load;   /* [seats] of a piece */
} neo__plan_draft;
/* A thing that moves as a whole: a piece on a rank, or the pieces that a slice has on a node. */
typedef struct neo__plan_group {
    int32_t table, parts;
    int64_t seat; /* the first */
} neo__plan_group;
/* The draft of the least memory so far. */
typedef struct neo__plan_lean {
    neo__plan_draft draft;
    double *extra; /* as of the search */
    double spread; /* as of the search: lower is more even */
    int64_t bytes; /* of the fullest rank; below 0: none yet */
} neo__plan_lean;

typedef struct neo__plan_search {
    neo_plan *plan;
    int32_t tables, ranks, nodes, per_node;
    neo__plan_options *options; /* [tables] */
    int64_t *seat_first;        /* [tables + 1]: a table's seats are [first, next first), at most */
    int64_t seats;
    neo__plan_draft now, best;
    neo__plan_lean lean;
    double best_value; /* of the best draft; below 0: none yet */
    /* loads of the draft at hand */
    neo__plan_load *load;           /* [ranks] */
    double target[NEO__PLAN_TIMES]; /* means over ranks */
    double reduce_bytes;
    /* limits */
    double cap;       /* bytes of a rank */
    double *extra;    /* [ranks] bytes beside those that the search adds up */
    double *weighed;  /* [ranks] the same, of the plan that was built last; */
    double spread;    /* and the sum of squares of its ranks' bytes */
    double level;     /* weight of the busiest rank's load in the value */
    double mean_cost; /* seconds of all tables by their cheapest options */
    int64_t weighings; /* left */
    int64_t tried;     /* places and moves that were tried, of all the search */
    /* groups of a kind, and the ranks of a place where one sits: 1, or those of a node */
    neo__plan_group *group; /* [seats] */
    int32_t groups, width;
    /* scratch */
    neo__plan_key *order, *key; /* [tables], [ranks] */
    neo__plan_load *trial;      /* [2 per_node] loads of two places after a move */
    int32_t *turn;              /* [tables] in the order of refinement */
    int32_t *last;              /* [tables] the choice that was placed last */
} neo__plan_search;

NEO__HOT_BEGIN
static const neo__plan_option *neo__plan_search_option(const neo__plan_search *s, int64_t table) {
    return &s->options[table].at[s->now.choice[table]];
}
static int neo__plan_key_order(const void *x, const void *y) {
    const neo__plan_key *a = (const neo__plan_key *)x, *b = (const neo__plan_key *)y;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    if (a->second != b->second) return a->second < b->second ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}
static int neo__plan_key_less(const neo__plan_key *a, const neo__plan_key *b) {
    return neo__plan_key_order(a, b) < 0;
}

/* The key of a rank that gets x, lower is better; 0: x does not fit. */
static int neo__plan_search_score(neo__plan_search *s, neo__plan_goal goal, int32_t rank,
                                  const neo__plan_load *x, neo__plan_key *key) {
    const neo__plan_load *have = &s->load[rank];
    double bytes = have->at[NEO__PLAN_BYTES] + x->at[NEO__PLAN_BYTES], above = 0.0;
    double seconds = have->at[NEO__PLAN_SECONDS] + x->at[NEO__PLAN_SECONDS];
    s->tried++;
    if (bytes > s->cap) return 0;
    for (int i = 0; i < NEO__PLAN_PHASES; i++) {
        double phase = have->at[i] + x->at[i];
        if (phase > s->target[i]) above += phase - s->target[i];
    }
    key->first = goal == NEO__GOAL_MEMORY ? bytes : above;
    key->second = seconds;
    key->at = rank;
    return 1;
}
/* The `want` best of ranks [begin, end) to s->key, best first; returns how many there are. */
static int32_t neo__plan_search_best(neo__plan_search *s, neo__plan_goal goal,
                                     const neo__plan_load *x, int32_t begin, int32_t end,
                                     int32_t want) {
    int32_t count = 0;
    neo__plan_key key;
    for (int32_t r = begin; r < end; r++) {
        if (!neo__plan_search_score(s, goal, r, x, &key)) continue;
        if (count == want && !neo__plan_key_less(&key, &s->key[count - 1])) continue;
        int32_t i = count < want ? count++ : count - 1;
        for (; i > 0 && neo__plan_key_less(&key, &s->key[i - 1]); i--) s->key[i] = s->key[i - 1];
        s->key[i] = key;
    }
    return count;
}
static void neo__plan_search_put(neo__plan_search *s, int64_t table, int32_t part, int32_t rank) {
    int64_t seat = s->seat_first[table] + part;
    const neo__plan_option *o = neo__plan_search_option(s, table);
    s->now.seat[seat] = rank;
    s->now.load[seat] = neo__plan_part_load(&s->plan->table[table], o, part);
    neo__plan_load_add(&s->load[rank], &s->now.load[seat]);
}
NEO__HOT_END

/* The later parts of an equal cut are the larger ones, mostly: they get the better ranks. */
static int neo__plan_search_place_ranks(neo__plan_search *s, neo__plan_goal goal, int64_t table) {
    const neo__plan_option *o = neo__plan_search_option(s, table);
    int32_t parts = o->pieces;
    if (neo__plan_search_best(s, goal, &o->worst, 0, s->ranks, parts) < parts) return 0;
    for (int32_t i = 0; i < parts; i++)
        neo__plan_search_put(s, table, i, (int32_t)s->key[parts - 1 - i].at);
    return 1;
}
/* A slice, whose parts are [first, first + parts), to the node whose ranks are the best for it, in
   rising order of ranks. Earlier slices of the table have their nodes. */
static int neo__plan_search_place_slice(neo__plan_search *s, neo__plan_goal goal, int64_t table,
                                        int32_t first, int32_t parts) {
    const neo__plan_option *o = neo__plan_search_option(s, table);
    const int32_t *seat = s->now.seat + s->seat_first[table];
    neo__plan_key best, node;
    best.at = -1;
    for (node.at = 0; node.at < s->nodes; node.at++) {
        int32_t begin = (int32_t)node.at * s->per_node, taken = 0;
        for (int32_t j = 0; j < first; j += parts) taken |= seat[j] / s->per_node == node.at;
        if (taken || neo__plan_search_best(s, goal, &o->worst, begin, begin + s->per_node, parts) <
                         parts)
            continue;
        node.first = node.second = 0.0;
        for (int32_t i = 0; i < parts; i++)
            node.first += s->key[i].first, node.second += s->key[i].second;
        if (best.at < 0 || neo__plan_key_less(&node, &best)) best = node;
    }
    if (best.at < 0) return 0;
    int32_t begin = (int32_t)best.at * s->per_node;
    (void)neo__plan_search_best(s, goal, &o->worst, begin, begin + s->per_node, parts);
    for (int32_t i = 0; i < parts; i++) s->key[i].first = s->key[i].second = 0.0;
    qsort(s->key, (size_t)parts, sizeof *s->key, neo__plan_key_order);
    for (int32_t i = 0; i < parts; i++)
        neo__plan_search_put(s, table, first + i, (int32_t)s->key[i].at);
    return 1;
}
static int neo__plan_search_place_table(neo__plan_search *s, neo__plan_goal goal, int64_t table) {
    const neo__plan_option *o = neo__plan_search_option(s, table);
    int32_t parts = o->pieces / o->slices;
    if (o->unit == NEO__UNIT_RANK) return neo__plan_search_place_ranks(s, goal, table);
    for (int32_t first = 0; first < o->pieces; first += parts)
        if (!neo__plan_search_place_slice(s, goal, table, first, parts)) return 0;
    return 1;
}

/* Loads of ranks before any piece is placed, and the means. */
static void neo__plan_search_begin(neo__plan_search *s) {
    NEO__ZERO(neo__plan_load, all);
    NEO__ZERO(neo__plan_load, sum);
    s->reduce_bytes = 0.0;
    for (int32_t t = 0; t < s->tables; t++) {
        const neo__plan_option *o = neo__plan_search_option(s, t);
        neo__plan_load_add(&all, &o->all);
        neo__plan_load_add(&sum, &o->sum);
        s->reduce_bytes += o->reduce_bytes;
    }
    for (int32_t r = 0; r < s->ranks; r++) {
        s->load[r] = all;
        s->load[r].at[NEO__PLAN_BYTES] += s->extra[r];
    }
    for (int i = 0; i < NEO__PLAN_TIMES; i++) s->target[i] = all.at[i] + sum.at[i] / s->ranks;
}
/* Tables to s->order, those with the largest load `by` of a piece first. */
static void neo__plan_search_sort(neo__plan_search *s, int by) {
    for (int32_t t = 0; t < s->tables; t++) {
        const neo__plan_load *worst = &neo__plan_search_option(s, t)->worst;
        s->order[t].at = t;
        s->order[t].first = -worst->at[by];
        s->order[t].second = -worst->at[NEO__PLAN_BYTES];
    }
    qsort(s->order, (size_t)s->tables, sizeof *s->order, neo__plan_key_order);
}
/* Places every table; 0 if one finds no room. */
static int neo__plan_search_place(neo__plan_search *s, neo__plan_goal goal) {
    neo__plan_search_begin(s);
    if (s->load[0].at[NEO__PLAN_BYTES] > s->cap) return 0;
    neo__plan_search_sort(s, goal == NEO__GOAL_MEMORY ? NEO__PLAN_BYTES : NEO__PLAN_SECONDS);
    for (int nodes = 1; nodes >= 0; nodes--) {
        for (int32_t i = 0; i < s->tables; i++) {
            int64_t t = s->order[i].at;
            if ((neo__plan_search_option(s, t)->unit == NEO__UNIT_NODE) == nodes &&
                !neo__plan_search_place_table(s, goal, t))
                return 0;
        }
    }
    return 1;
}

NEO__HOT_BEGIN
/* The value, which the search minimises: the step, and a little of the busiest rank's load, which
   levels phases that no step waits for and leads out of places where one phase has no better
   neighbour. Pipelined, where a phase may be hidden, also a little of the plain step. */
static double neo__plan_search_value(const neo__plan_search *s, const double *most) {
    neo_plan_step step = neo__plan_step_make(s->plan, most, s->reduce_bytes);
    double value = s->plan->desc.pipeline ? step.pipelined + 0.001 * step.plain : step.plain;
    return value + s->level * most[NEO__PLAN_SECONDS];
}
NEO__HOT_END

/* ---------------------------------------------------------------------------
   >>impl-plan-improve

   Improve a placement by moving one group away from the slowest place of a phase, or exchanging it
   for a group of another place. A place is a rank, where pieces move, or a node, where slices move.
   A move is taken if the predicted step becomes shorter, or stays and the phase's slowest place
   gets faster. By the same moves ranks above the cap are brought below it: the phase is then
   memory. A count limits what is tried, not a clock.
   ------------------------------------------------------------------------ */
enum { NEO__PLAN_REPAIR_WORK = 200000 };
enum { NEO__PLAN_TOP = 3 }; /* as two places change in a move, the slowest other is among three */
typedef struct neo__plan_top {
    double most[NEO__PLAN_LOADS][NEO__PLAN_TOP]; /* the largest loads, and where */
    int32_t place[NEO__PLAN_LOADS][NEO__PLAN_TOP];
    double value;
} neo__plan_top;
typedef struct neo__plan_move {
    int32_t group, other; /* other: the group it is exchanged for, or -1 */
    int32_t from, to;     /* places */
    double value, phase;  /* afterwards: of the step; of the slower of the two places */
} neo__plan_move;

/* Collects what can move: pieces on ranks (NEO__UNIT_RANK), or slices on nodes (NEO__UNIT_NODE). */
static void neo__plan_search_groups(neo__plan_search *s, int32_t unit) {
    s->groups = 0;
    s->width = unit == NEO__UNIT_NODE ? s->per_node : 1;
    for (int32_t t = 0; t < s->tables; t++) {
        const neo__plan_option *o = neo__plan_search_option(s, t);
        int32_t parts = unit == NEO__UNIT_NODE ? o->pieces / o->slices : 1;
        for (int32_t first = 0; o->unit == unit && first < o->pieces; first += parts) {
            neo__plan_group *g = &s->group[s->groups++];
            g->table = t;
            g->parts = parts;
            g->seat = s->seat_first[t] + first;
        }
    }
}
NEO__HOT_BEGIN
static int32_t neo__plan_group_place(const neo__plan_search *s, int32_t group) {
    int32_t rank = s->now.seat[s->group[group].seat];
    return s->width == 1 ? rank : rank / s->width;
}
static double neo__plan_group_load(const neo__plan_search *s, int32_t group, int phase) {
    return s->now.load[s->group[group].seat].at[phase];
}
static void neo__plan_top_insert(neo__plan_top *top, int p, double x, int32_t place) {
    int k = NEO__PLAN_TOP;
    while (k > 0 && (top->place[p][k - 1] < 0 || x > top->most[p][k - 1])) k--;
    if (k == NEO__PLAN_TOP) return;
    for (int j = NEO__PLAN_TOP - 1; j > k; j--)
        top->most[p][j] = top->most[p][j - 1], top->place[p][j] = top->place[p][j - 1];
    top->most[p][k] = x;
    top->place[p][k] = place;
}
static void neo__plan_top_find(const neo__plan_search *s, neo__plan_top *top) {
    double all[NEO__PLAN_LOADS] = {0.0};
    memset(top->most, 0, sizeof top->most);
    memset(top->place, -1, sizeof top->place);
    for (int32_t place = 0; place < s->ranks / s->width; place++) {
        double most[NEO__PLAN_LOADS] = {0.0};
        neo__plan_most(s->load + (int64_t)place * s->width, s->width, most);
        for (int p = 0; p < NEO__PLAN_LOADS; p++) neo__plan_top_insert(top, p, most[p], place);
    }
    for (int p = 0; p < NEO__PLAN_LOADS; p++) all[p] = top->most[p][0];
    top->value = neo__plan_search_value(s, all);
}
/* Does another group of the same table sit at the place? */
static int neo__plan_group_sits(const neo__plan_search *s, int32_t group, int32_t place) {
    const neo__plan_group *g = &s->group[group];
    int64_t begin = s->seat_first[g->table];
    int64_t end = begin + neo__plan_search_option(s, g->table)->pieces;
    for (int64_t i = begin; i < end; i++)
        if ((i < g->seat || i >= g->seat + g->parts) && s->now.seat[i] / s->width == place)
            return 1;
    return 0;
}
static int neo__plan_move_allowed(const neo__plan_search *s, const neo__plan_move *m) {
    return m->to != m->from && !neo__plan_group_sits(s, m->group, m->to) &&
           (m->other < 0 || !neo__plan_group_sits(s, m->other, m->from));
}
/* Adds a group's loads, times sign, to those of a place. */
static void neo__plan_group_add(const neo__plan_search *s, int32_t group, double sign,
                                neo__plan_load *place) {
    const neo__plan_group *g = &s->group[group];
    for (int64_t i = g->seat; i < g->seat + g->parts; i++) {
        neo__plan_load *to = &place[s->width == 1 ? 0 : s->now.seat[i] % s->width];
        for (int k = 0; k < NEO__PLAN_LOADS; k++) to->at[k] += sign * s->now.load[i].at[k];
    }
}
/* Loads of the two places after a move, to s->trial: first those of `from`. */
static void neo__plan_move_trial(neo__plan_search *s, const neo__plan_move *m) {
    neo__plan_load *from = s->trial, *to = s->trial + s->width;
    size_t bytes = (size_t)s->width * sizeof *from;
    memcpy(from, s->load + (int64_t)m->from * s->width, bytes);
    memcpy(to, s->load + (int64_t)m->to * s->width, bytes);
    neo__plan_group_add(s, m->group, -1.0, from);
    neo__plan_group_add(s, m->group, 1.0, to);
    if (m->other < 0) return;
    neo__plan_group_add(s, m->other, -1.0, to);
    neo__plan_group_add(s, m->other, 1.0, from);
}
/* Bytes of a rank above the cap. */
static double neo__plan_search_excess(const neo__plan_search *s, const neo__plan_load *load) {
    double bytes = load->at[NEO__PLAN_BYTES] - s->cap;
    return bytes > 0.0 ? bytes : 0.0;
}
/* The value and the phase of a step after a move; 0: a place is as slow as before, or too full. */
static int neo__plan_move_judge(neo__plan_search *s, const neo__plan_top *top, int p,
                                neo__plan_move *m) {
    double most[NEO__PLAN_LOADS] = {0.0};
    s->tried++;
    if (s->width == 1 && p != NEO__PLAN_BYTES) { /* the phase alone tells most moves apart */
        double x = neo__plan_group_load(s, m->group, p),
               back = m->other < 0 ? 0.0 : neo__plan_group_load(s, m->other, p);
        if (s->load[m->from].at[p] - x + back >= top->most[p][0] ||
            s->load[m->to].at[p] + x - back >= top->most[p][0])
            return 0;
    }
    neo__plan_move_trial(s, m);
    if (p == NEO__PLAN_BYTES) { /* of ranks: what is above the cap less than before */
        double after = neo__plan_search_excess(s, &s->trial[0]) +
                       neo__plan_search_excess(s, &s->trial[1]);
        m->value = after - (neo__plan_search_excess(s, &s->load[m->from]) +
                            neo__plan_search_excess(s, &s->load[m->to]));
        m->phase = 0.0;
        return 1;
    }
    neo__plan_most(s->trial, 2 * s->width, most);
    m->phase = most[p];
    if (m->phase >= top->most[p][0] || most[NEO__PLAN_BYTES] > s->cap) return 0;
    for (int i = 0; i < NEO__PLAN_TIMES; i++) {
        int k = 0; /* the slowest place beside the two */
        while (k < NEO__PLAN_TOP && (top->place[i][k] == m->from || top->place[i][k] == m->to)) k++;
        if (k < NEO__PLAN_TOP && top->most[i][k] > most[i]) most[i] = top->most[i][k];
    }
    m->value = neo__plan_search_value(s, most);
    return 1;
}
static void neo__plan_move_try(neo__plan_search *s, const neo__plan_top *top, int p,
                               neo__plan_move m, neo__plan_move *best) {
    if (!neo__plan_move_judge(s, top, p, &m)) return;
    if (m.value > best->value || (m.value == best->value && m.phase >= best->phase)) return;
    if (neo__plan_move_allowed(s, &m)) *best = m;
}
static void neo__plan_group_reseat(neo__plan_search *s, int32_t group, int32_t place) {
    const neo__plan_group *g = &s->group[group];
    for (int64_t i = g->seat; i < g->seat + g->parts; i++)
        s->now.seat[i] = place * s->width + s->now.seat[i] % s->width;
}
static void neo__plan_move_apply(neo__plan_search *s, const neo__plan_move *m) {
    size_t bytes = (size_t)s->width * sizeof *s->load;
    neo__plan_move_trial(s, m);
    memcpy(s->load + (int64_t)m->from * s->width, s->trial, bytes);
    memcpy(s->load + (int64_t)m->to * s->width, s->trial + s->width, bytes);
    neo__plan_group_reseat(s, m->group, m->to);
    if (m->other >= 0) neo__plan_group_reseat(s, m->other, m->from);
}
/* Makes the best move away from the slowest place of a phase; 0: none is better than to stay. */
static int neo__plan_search_move(neo__plan_search *s, const neo__plan_top *top, int p,
                                 int64_t *work) {
    neo__plan_move best, m;
    m.from = top->place[p][0];
    best.group = -1;
    best.value = p == NEO__PLAN_BYTES ? 0.0 : top->value;
    best.phase = p == NEO__PLAN_BYTES ? 0.0 : top->most[p][0];
    for (m.group = 0; m.group < s->groups && *work > 0; m.group++) {
        if (neo__plan_group_place(s, m.group) != m.from) continue;
        double load = neo__plan_group_load(s, m.group, p);
        m.other = -1;
        for (m.to = 0; m.to < s->ranks / s->width; m.to++)
            if (m.to != m.from) neo__plan_move_try(s, top, p, m, &best);
        *work -= s->ranks;
        for (m.other = 0; load > 0.0 && m.other < s->groups && *work > 0; m.other++) {
            m.to = neo__plan_group_place(s, m.other);
            if (m.to == m.from) continue;
            if (neo__plan_group_load(s, m.other, p) < load)
                neo__plan_move_try(s, top, p, m, &best);
            *work -= s->width;
        }
    }
    if (best.group < 0) return 0;
    neo__plan_move_apply(s, &best);
    return 1;
}
NEO__HOT_END

/* Moves groups until no phase gets better, that furthest above its mean first. */
static void neo__plan_search_improve_by(neo__plan_search *s, int32_t unit, int64_t work) {
    neo__plan_search_groups(s, unit);
    for (int moved = s->groups > 0; moved && work > 0; work -= 8 * s->ranks) {
        neo__plan_top top;
        double excess[NEO__PLAN_TIMES];
        moved = 0;
        neo__plan_top_find(s, &top);
        for (int p = 0; p < NEO__PLAN_TIMES; p++) excess[p] = top.most[p][0] - s->target[p];
        for (int k = 0; k < NEO__PLAN_TIMES && !moved; k++) {
            int worst = 0;
            for (int p = 1; p < NEO__PLAN_TIMES; p++)
                if (excess[p] > excess[worst]) worst = p;
            if (excess[worst] <= 0.0) break;
            excess[worst] = -1.0;
            moved = neo__plan_search_move(s, &top, worst, &work);
        }
    }
}
static void neo__plan_search_improve(neo__plan_search *s, int64_t work) {
    neo__plan_search_improve_by(s, NEO__UNIT_NODE, work / 2);
    neo__plan_search_improve_by(s, NEO__UNIT_RANK, work);
    neo__plan_search_improve_by(s, NEO__UNIT_NODE, work / 4);
}
/* Moves pieces away from the fullest rank while less is above the cap; 1: all ranks fit. */
static int neo__plan_search_repair(neo__plan_search *s) {
    neo__plan_top top;
    neo__plan_search_groups(s, NEO__UNIT_RANK);
    for (int64_t work = NEO__PLAN_REPAIR_WORK; work > 0;) {
        neo__plan_top_find(s, &top);
        if (top.most[NEO__PLAN_BYTES][0] <= s->cap) return 1;
        if (!neo__plan_search_move(s, &top, NEO__PLAN_BYTES, &work)) return 0;
    }
    return 0;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-search

   Two questions: in how many parts is each table, and where do they go? For the first, each table
   takes its cheapest option whose heaviest piece takes at most `bound` seconds; for the second see
   >>impl-plan-place and >>impl-plan-improve. This is done for a row of bounds, and from every
   placement given to all tables; then single tables try other options, as long as that helps. The
   best draft always fits the cap.
   ------------------------------------------------------------------------ */
/* Limits of what is tried, counted in moves of groups. */
enum {
    NEO__PLAN_START_WORK = 60000,     /* to improve each start */
    NEO__PLAN_REFINE_WORK = 30000000, /* to refine the best start */
    NEO__PLAN_FINAL_WORK = 4000000,   /* to improve the result */
    NEO__PLAN_OPTION_WORK = 1000,     /* to improve after a table changed its option, */
    NEO__PLAN_OPTION_WORK_OF_RANK = 4,   /* and so many more for each rank */
    NEO__PLAN_EXCHANGE_WORK_OF_RANK = 8, /* cost of the change itself, for each rank */
    NEO__PLAN_SMALL = 400,               /* tables x ranks that are searched thoroughly */
    NEO__PLAN_LARGE = 100000,            /* tables x ranks whose budget is met by few runs */
    NEO__PLAN_CHOICES = 2000,            /* of options for all tables: so many are all tried */
    NEO__PLAN_WEIGHINGS = 300000         /* of the least memory, over tables and ranks */
};
enum { NEO__ANY = -1 }; /* placement */
static const double NEO__NO_BOUND = DBL_MAX;
/* Weight of the busiest rank's load in the value: at first, and while the best draft is refined. */
static const double NEO__PLAN_LEVEL_START = 0.5, NEO__PLAN_LEVEL_REFINE = 0.1;
/* An option is tried in a refinement if it costs at most this share of all tables' seconds more. */
static const double NEO__PLAN_DEARER = 0.2;
/* A draft is better than another if its value is below this share of the other's. */
static const double NEO__PLAN_BETTER = 1.0 - 1e-12;
/* The factor of a cap that is too low, and the share of one to which the right one is searched. */
static const double NEO__PLAN_HIGHER_CAP = 1.15, NEO__PLAN_EXACT_CAP = 1.0 / 256.0;

/* The cheapest of a table's options whose heaviest piece is within a limit, or else that with the
   lightest piece. TIME: cost and limit are seconds; MEMORY: bytes. -1: none fits. */
static int neo__plan_search_pick(const neo__plan_search *s, int32_t table, neo__plan_goal goal,
                                 double limit, int placement) {
    const neo__plan_options *o = &s->options[table];
    neo__plan_key best, key;
    best.at = -1;
    for (key.at = 0; key.at < o->count; key.at++) {
        const neo__plan_option *x = &o->at[key.at];
        double peak = goal == NEO__GOAL_MEMORY ? x->most_bytes : x->peak;
        double cost = goal == NEO__GOAL_MEMORY ? x->bytes : x->seconds;
        if (x->most_bytes > s->cap) continue;
        key.first = (placement != NEO__ANY && (int)x->placement != placement) + (peak > limit);
        key.second = peak > limit ? peak : cost;
        if (best.at < 0 || neo__plan_key_less(&key, &best)) best = key;
    }
    return (int)best.at;
}
/* An option for every table; 0: a table has none that fits. */
static int neo__plan_search_choose(neo__plan_search *s, neo__plan_goal goal, double limit,
                                   int placement) {
    for (int32_t t = 0; t < s->tables; t++) {
        s->now.choice[t] = neo__plan_search_pick(s, t, goal, limit, placement);
        if (s->now.choice[t] < 0) return 0;
    }
    return 1;
}
static void neo__plan_search_copy(const neo__plan_search *s, neo__plan_draft *to,
                                  const neo__plan_draft *from) {
    memcpy(to->choice, from->choice, (size_t)s->tables * sizeof *to->choice);
    memcpy(to->seat, from->seat, (size_t)s->seats * sizeof *to->seat);
    memcpy(to->load, from->load, (size_t)s->seats * sizeof *to->load);
}
static void neo__plan_search_keep(neo__plan_search *s, double value) {
    s->best_value = value;
    neo__plan_search_copy(s, &s->best, &s->now);
}
/* Improves what was placed, and keeps it if it is the best so far. */
static int neo__plan_search_judge(neo__plan_search *s, int64_t work) {
    double most[NEO__PLAN_LOADS] = {0.0};
    neo__plan_search_improve(s, work);
    neo__plan_most(s->load, s->ranks, most);
    double value = neo__plan_search_value(s, most);
    if (s->best_value >= 0.0 && value >= s->best_value * NEO__PLAN_BETTER) return 0;
    neo__plan_search_keep(s, value);
    return 1;
}
/* Places the choice at hand within the cap: or as if memory were endless, and then repairs. */
static int neo__plan_search_place_any(neo__plan_search *s) {
    double cap = s->cap;
    if (neo__plan_search_place(s, NEO__GOAL_TIME)) return 1;
    s->cap = DBL_MAX;
    int placed = cap < DBL_MAX && neo__plan_search_place(s, NEO__GOAL_MEMORY);
    s->cap = cap;
    return placed && neo__plan_search_repair(s);
}
static int neo__plan_search_consider(neo__plan_search *s, int64_t work) {
    return neo__plan_search_place_any(s) && neo__plan_search_judge(s, work);
}
/* Starts with pieces of up to some seconds, and by each placement for all tables that can have
   it. */
static void neo__plan_search_starts(neo__plan_search *s) {
    static const double bounds[] = {4.0, 2.0, 1.5, 1.2, 1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05};
    const int count = (int)(sizeof bounds / sizeof *bounds);
    size_t bytes = (size_t)s->tables * sizeof *s->last;
    memset(s->last, -1, bytes);
    for (int i = -1; i < count + NEO_PLACEMENT_COUNT; i++) {
        double bound = i < 0 || i >= count ? NEO__NO_BOUND : bounds[i] * s->mean_cost;
        int placement = i < count ? (int)NEO__ANY : i - count;
        if (!neo__plan_search_choose(s, NEO__GOAL_TIME, bound, placement)) return;
        if (memcmp(s->last, s->now.choice, bytes) == 0) continue;
        memcpy(s->last, s->now.choice, bytes);
        (void)neo__plan_search_consider(s, NEO__PLAN_START_WORK);
    }
}
/* The least memory: whether anything fits at all. */
static int neo__plan_search_fit(neo__plan_search *s) {
    static const double shares[] = {1.0, 0.5, 0.25, 0.125, 0.0};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (neo__plan_search_choose(s, NEO__GOAL_MEMORY, shares[i] * s->cap, NEO__ANY) &&
            neo__plan_search_place(s, NEO__GOAL_MEMORY))
            return 1;
    return 0;
}
/* The best draft, placed again but for the pieces of table `but` (-1: all). */
static void neo__plan_search_restore(neo__plan_search *s, int32_t but) {
    neo__plan_search_copy(s, &s->now, &s->best);
    neo__plan_search_begin(s);
    for (int32_t t = 0; t < s->tables; t++) {
        int64_t seat = s->seat_first[t], end = seat + neo__plan_search_option(s, t)->pieces;
        for (; t != but && seat < end; seat++)
            neo__plan_load_add(&s->load[s->now.seat[seat]], &s->now.load[seat]);
    }
}
/* The best draft with another option for one table, the others where they are. */
static int neo__plan_search_exchange(neo__plan_search *s, int32_t t, int32_t option,
                                     neo__plan_goal goal) {
    const neo__plan_option *old = &s->options[t].at[s->best.choice[t]],
                           *o = &s->options[t].at[option];
    int fits = 1;
    neo__plan_search_restore(s, t);
    for (int32_t r = 0; r < s->ranks; r++) {
        neo__plan_load *load = &s->load[r];
        for (int i = 0; i < NEO__PLAN_LOADS; i++) load->at[i] += o->all.at[i] - old->all.at[i];
        fits &= load->at[NEO__PLAN_BYTES] <= s->cap;
    }
    for (int i = 0; i < NEO__PLAN_TIMES; i++)
        s->target[i] += o->all.at[i] - old->all.at[i] + (o->sum.at[i] - old->sum.at[i]) / s->ranks;
    s->reduce_bytes += o->reduce_bytes - old->reduce_bytes;
    s->now.choice[t] = option;
    return fits && neo__plan_search_place_table(s, goal, t);
}
/* Tries an option for one table: the others stay, and of few tables all are also placed anew. */
static int neo__plan_search_try_option(neo__plan_search *s, int32_t t, int32_t option,
                                       int64_t work) {
    int better = neo__plan_search_exchange(s, t, option, NEO__GOAL_TIME) &&
                 neo__plan_search_judge(s, work);
    if ((int64_t)s->tables * s->ranks > NEO__PLAN_SMALL) return better;
    memcpy(s->now.choice, s->best.choice, (size_t)s->tables * sizeof *s->now.choice);
    s->now.choice[t] = option;
    return neo__plan_search_consider(s, work) || better;
}
/* From the best draft: each table in turn, the heaviest first, tries its other options. */
static void neo__plan_search_refine(neo__plan_search *s) {
    int64_t around = NEO__PLAN_OPTION_WORK + NEO__PLAN_OPTION_WORK_OF_RANK * s->ranks;
    int64_t cost = around + s->seats / 4 + NEO__PLAN_EXCHANGE_WORK_OF_RANK * s->ranks;
    int64_t work = NEO__PLAN_REFINE_WORK;
    s->level = NEO__PLAN_LEVEL_REFINE;
    s->best_value = -1.0; /* the level is another: the draft is judged anew */
    neo__plan_search_restore(s, -1);
    (void)neo__plan_search_judge(s, around);
    for (int better = 1; better && work > 0;) {
        better = 0;
        neo__plan_search_restore(s, -1);
        neo__plan_search_sort(s, NEO__PLAN_SECONDS);
        for (int32_t i = 0; i < s->tables; i++) s->turn[i] = (int32_t)s->order[i].at;
        for (int32_t i = 0; i < s->tables; i++) {
            int32_t t = s->turn[i];
            for (int32_t k = 0; k < s->options[t].count && work > 0; k++) {
                const neo__plan_option *o = &s->options[t].at[k],
                                       *old = &s->options[t].at[s->best.choice[t]];
                if (o == old || o->most_bytes > s->cap ||
                    o->seconds > old->seconds + NEO__PLAN_DEARER * s->mean_cost)
                    continue;
                better |= neo__plan_search_try_option(s, t, k, around);
                work -= cost;
            }
        }
    }
}
/* All choices of options, where tables are very few. */
static void neo__plan_search_all(neo__plan_search *s) {
    int64_t count = 1;
    for (int32_t t = 0; t < s->tables && count <= NEO__PLAN_CHOICES; t++)
        count *= s->options[t].count;
    for (int64_t i = 0; count <= NEO__PLAN_CHOICES && i < count; i++) {
        int64_t left = i;
        for (int32_t t = 0; t < s->tables; t++, left /= s->options[t - 1].count)
            s->now.choice[t] = (int32_t)(left % s->options[t].count);
        (void)neo__plan_search_consider(s, NEO__PLAN_OPTION_WORK);
    }
}

/* Memory of a search is the plan's, until plan->work is freed. */
static neo_status neo__plan_search_memory(neo__plan_search *s) {
    neo__arena *work = &s->plan->work;
    neo__plan_draft *drafts[] = {&s->now, &s->best, &s->lean.draft};
    for (int i = 0; i < 3; i++) {
        NEO__TRY(NEO__ARENA(work, drafts[i]->choice, s->tables));
        NEO__TRY(NEO__ARENA(work, drafts[i]->seat, s->seats));
        NEO__TRY(NEO__ARENA(work, drafts[i]->load, s->seats));
    }
    NEO__TRY(NEO__ARENA(work, s->lean.extra, s->ranks));
    NEO__TRY(NEO__ARENA(work, s->load, s->ranks));
    NEO__TRY(NEO__ARENA(work, s->extra, s->ranks));
    NEO__TRY(NEO__ARENA(work, s->weighed, s->ranks));
    NEO__TRY(NEO__ARENA(work, s->group, s->seats));
    NEO__TRY(NEO__ARENA(work, s->order, s->tables));
    NEO__TRY(NEO__ARENA(work, s->key, s->ranks));
    NEO__TRY(NEO__ARENA(work, s->trial, 2 * s->per_node));
    NEO__TRY(NEO__ARENA(work, s->turn, s->tables));
    return NEO__ARENA(work, s->last, s->tables);
}
static neo_status neo__plan_search_alloc(neo__plan_search *s, neo_plan *plan) {
    memset(s, 0, sizeof *s);
    s->plan = plan;
    s->tables = plan->bags.table_count;
    s->ranks = plan->desc.cluster.ranks;
    s->nodes = plan->nodes;
    s->per_node = plan->per_node;
    NEO__TRY(NEO__ARENA(&plan->work, s->options, s->tables));
    NEO__TRY(NEO__ARENA(&plan->work, s->seat_first, s->tables + 1));
    for (int32_t t = 0; t < s->tables; t++) {
        int32_t most = 0;
        neo__plan_options_make(&plan->table[t], &s->options[t]);
        for (int i = 0; i < s->options[t].count; i++)
            most = NEO__MAX(most, s->options[t].at[i].pieces);
        s->seat_first[t + 1] = s->seat_first[t] + most;
    }
    s->seats = s->seat_first[s->tables];
    return neo__plan_search_memory(s);
}
/* s->best: the best draft within cap; 0 if nothing fits. */
static int neo__plan_search_run(neo__plan_search *s, double cap) {
    s->cap = cap;
    s->best_value = -1.0;
    s->mean_cost = 0.0;
    s->level = NEO__PLAN_LEVEL_START;
    if (!neo__plan_search_choose(s, NEO__GOAL_TIME, NEO__NO_BOUND, NEO__ANY)) return 0;
    for (int32_t t = 0; t < s->tables; t++)
        s->mean_cost += neo__plan_search_option(s, t)->seconds;
    neo__plan_search_starts(s);
    if (s->best_value < 0.0 && neo__plan_search_fit(s))
        (void)neo__plan_search_judge(s, NEO__PLAN_START_WORK);
    if (s->best_value < 0.0) return 0;
    neo__plan_search_refine(s);
    if ((int64_t)s->tables * s->ranks <= NEO__PLAN_SMALL) neo__plan_search_all(s);
    neo__plan_search_restore(s, -1);
    (void)neo__plan_search_judge(s, NEO__PLAN_FINAL_WORK);
    return 1;
}
/* s->best becomes the plan's pieces. */
static neo_status neo__plan_search_build(neo__plan_search *s) {
    neo_plan *plan = s->plan;
    int64_t count = 0, held = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) NEO__TRY(neo__plan_hold(plan, count, held));
        count = 0;
        for (int32_t t = 0; t < s->tables; t++) {
            const neo__plan_option *o = &s->options[t].at[s->best.choice[t]];
            const int32_t *seats = s->best.seat + s->seat_first[t];
            neo__plan_shape shape = {o->col_parts, o->row_parts,
                                     o->unit == NEO__UNIT_ALL ? NULL : seats};
            if (pass == 1) neo__plan_shape_cut(&plan->table[t], shape, plan->piece + count);
            count += neo__plan_shape_count(shape);
            held += o->col_parts ? neo__plan_shape_count(shape) : s->ranks;
        }
    }
    neo__plan_finish(plan);
    return NEO_OK;
}

/* ---- memory: what a plan takes to the byte, and the least there is ----

   The search adds up an estimate of the buffers; what they take (neo__shard_plan_bytes) is known of
   a whole plan only, and is no sum. So plans are weighed: s->extra is by how much each rank was
   off, and with it the search goes on from there.

   The least memory is searched by itself, whatever the budget: some starts, each levelled; and,
   where there are few tables, from the best of them all that differs by one table or one piece,
   weighed. A budget is refused if it is below what that finds, and only then. As the search does
   not depend on the budget, and may end as soon as it is below it, a plan exists for every budget
   from the least one up. */

/* Builds the best draft, which plan->step then describes, and fills in s->weighed and s->spread. */
static neo_status neo__plan_search_weigh(neo__plan_search *s) {
    NEO__TRY(neo__plan_search_build(s));
    neo__plan_search_restore(s, -1);
    s->spread = 0.0;
    for (int32_t r = 0; r < s->ranks; r++) {
        const neo_plan_rank *x = &s->plan->rank[r];
        double bytes = (double)x->weight_bytes + (double)x->state_bytes + (double)x->buffer_bytes;
        s->weighed[r] = bytes - (s->load[r].at[NEO__PLAN_BYTES] - s->extra[r]);
        s->spread += bytes * bytes;
    }
    s->weighings--;
    return NEO_OK;
}
static void neo__plan_search_extra(neo__plan_search *s, const double *extra) {
    for (int32_t r = 0; r < s->ranks; r++) s->extra[r] = extra ? extra[r] : 0.0;
}
/* Weighs what was placed; it becomes lean if it takes less, or as much in its fullest rank and is
   more even. */
static neo_status neo__plan_search_lean_try(neo__plan_search *s, int *better) {
    neo__plan_lean *lean = &s->lean;
    neo__plan_search_keep(s, 0.0);
    NEO__TRY(neo__plan_search_weigh(s));
    int64_t most = s->plan->step.most_bytes;
    int evener = s->spread < lean->spread * NEO__PLAN_BETTER;
    if (lean->bytes >= 0 && (most > lean->bytes || (most == lean->bytes && !evener))) return NEO_OK;
    *better = 1;
    lean->bytes = most;
    lean->spread = s->spread;
    neo__plan_search_copy(s, &lean->draft, &s->now);
    memcpy(lean->extra, s->weighed, (size_t)s->ranks * sizeof *lean->extra);
    return NEO_OK;
}
/* Lean becomes the best draft, and is placed. */
static void neo__plan_search_lean_back(neo__plan_search *s) {
    s->best_value = 0.0;
    neo__plan_search_copy(s, &s->best, &s->lean.draft);
    neo__plan_search_extra(s, s->lean.extra);
    neo__plan_search_restore(s, -1);
}
/* Tries the placed draft as it is, and with its ranks levelled. */
static neo_status neo__plan_search_lean_level(neo__plan_search *s, int *better) {
    double sum = 0.0;
    NEO__TRY(neo__plan_search_lean_try(s, better));
    for (int32_t r = 0; r < s->ranks; r++) sum += s->load[r].at[NEO__PLAN_BYTES];
    s->cap = sum / s->ranks;
    (void)neo__plan_search_repair(s);
    s->cap = DBL_MAX;
    return neo__plan_search_lean_try(s, better);
}
/* The starts: the smallest options with pieces up to a limit, which is a share of the least that a
   rank has in the mean. */
static neo_status neo__plan_search_lean_start(neo__plan_search *s, int64_t enough) {
    static const double shares[] = {1e9, 1.0, 0.7, 0.5, 0.35, 0.25, 0.125, 0.0};
    double mean = 0.0;
    int better;
    (void)neo__plan_search_choose(s, NEO__GOAL_MEMORY, NEO__NO_BOUND, NEO__ANY);
    for (int32_t t = 0; t < s->tables; t++)
        mean += neo__plan_search_option(s, t)->bytes / s->ranks;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        neo__plan_search_extra(s, NULL);
        if (!neo__plan_search_choose(s, NEO__GOAL_MEMORY, shares[i] * mean, NEO__ANY) ||
            !neo__plan_search_place(s, NEO__GOAL_MEMORY))
            continue;
        for (int turn = 0; turn < 3; turn++) {
            NEO__TRY(neo__plan_search_lean_level(s, &better));
            if (s->lean.bytes <= enough) return NEO_OK;
            neo__plan_search_extra(s, s->weighed);
            neo__plan_search_restore(s, -1);
        }
    }
    return NEO_OK;
}
/* Every move of a piece to another rank, alone (other -1) or in exchange for another piece. */
static neo_status neo__plan_search_lean_moves(neo__plan_search *s, int64_t enough, int *better) {
    neo__plan_move m;
    neo__plan_search_lean_back(s);
    neo__plan_search_groups(s, NEO__UNIT_RANK);
    for (m.group = 0; m.group < s->groups; m.group++) {
        for (m.other = -1; m.other < s->groups; m.other++) {
            int32_t begin = m.other < 0 ? 0 : neo__plan_group_place(s, m.other),
                    end = m.other < 0 ? s->ranks : begin + 1;
            for (m.to = begin; m.to < end && s->lean.bytes > enough; m.to++) {
                m.from = neo__plan_group_place(s, m.group);
                if (!neo__plan_move_allowed(s, &m)) continue;
                neo__plan_move_apply(s, &m);
                NEO__TRY(neo__plan_search_lean_try(s, better));
                neo__plan_search_lean_back(s);
            }
        }
    }
    return NEO_OK;
}
/* Lean becomes what no other option of a table and no move makes less, or at most `enough`. */
static neo_status neo__plan_search_lean_descend(neo__plan_search *s, int64_t enough) {
    for (int better = 1; better && s->weighings > 0 && s->lean.bytes > enough;) {
        better = 0;
        for (int32_t t = 0; t < s->tables; t++) {
            for (int32_t k = 0; k < s->options[t].count && s->lean.bytes > enough; k++) {
                neo__plan_search_lean_back(s);
                if (neo__plan_search_exchange(s, t, k, NEO__GOAL_MEMORY))
                    NEO__TRY(neo__plan_search_lean_level(s, &better));
            }
        }
        NEO__TRY(neo__plan_search_lean_moves(s, enough, &better));
    }
    return NEO_OK;
}
/* s->lean: the least memory, or at most `enough`. */
static neo_status neo__plan_search_lean(neo__plan_search *s, int64_t enough) {
    s->cap = DBL_MAX;
    s->lean.bytes = -1;
    s->weighings = NEO__PLAN_WEIGHINGS / (s->tables + s->ranks);
    NEO__TRY(neo__plan_search_lean_start(s, enough));
    if ((int64_t)s->tables * s->ranks > NEO__PLAN_SMALL) return NEO_OK;
    return neo__plan_search_lean_descend(s, enough);
}
/* Makes the best draft fit the budget to the byte, by moving pieces of ranks that are above it;
   the plan is built. NEO_ERR_CAPACITY: that did not do; *over: bytes of the fullest rank above it,
   before. */
static neo_status neo__plan_search_fit_budget(neo__plan_search *s, int64_t budget, double *over) {
    static const int64_t work[] = {2000000, 2000000, 20000, 20000, 0, 0};
    neo_status status = NEO_ERR_CAPACITY;
    for (size_t turn = 0; turn < sizeof work / sizeof *work; turn++) {
        NEO__TRY(neo__plan_search_weigh(s));
        int64_t most = s->plan->step.most_bytes;
        if (turn == 0) *over = (double)(most - budget);
        if (most <= budget) {
            status = NEO_OK;
            break;
        }
        neo__plan_search_extra(s, s->weighed);
        s->cap = (double)budget;
        neo__plan_search_restore(s, -1);
        if (!neo__plan_search_repair(s)) break;
        s->best_value = -1.0;
        (void)neo__plan_search_judge(s, work[turn]);
    }
    neo__plan_search_extra(s, NULL);
    return status;
}
/* Bytes that the fullest rank takes beside those that the search adds up, at most, as seen on a
   plan made quickly. */
static neo_status neo__plan_search_slack(neo__plan_search *s, int64_t budget, double *slack) {
    s->cap = (double)budget;
    *slack = 0.0;
    neo__plan_search_extra(s, NULL);
    if (!neo__plan_search_choose(s, NEO__GOAL_TIME, NEO__NO_BOUND, NEO__ANY) ||
        !neo__plan_search_place_any(s))
        return NEO_OK;
    neo__plan_search_keep(s, 0.0);
    NEO__TRY(neo__plan_search_weigh(s));
    for (int32_t r = 0; r < s->ranks; r++) *slack = NEO__MAX(*slack, s->weighed[r]);
    return NEO_OK;
}
/* A plan within `budget` bytes a rank (0: any). The search's cap is not quite the budget: between a
   cap under which nothing is found and one whose plan is too large, the next is halfway.
   NEO_ERR_CAPACITY: there is none; s->lean.bytes is a budget that would do. */
static neo_status neo__plan_search_attempt(neo__plan_search *s, int64_t budget) {
    double cap = budget ? (double)budget : DBL_MAX, failed = 0.0, over = 0.0, above = 0.0;
    int runs = (int64_t)s->tables * s->ranks > NEO__PLAN_LARGE ? 3 : 8;
    if (!budget) return neo__plan_search_run(s, cap) ? neo__plan_search_build(s) : NEO_ERR_CAPACITY;
    NEO__TRY(neo__plan_search_lean(s, budget));
    if (s->lean.bytes > budget) return NEO_ERR_CAPACITY;
    NEO__TRY(neo__plan_search_slack(s, budget, &above));
    cap -= above;
    for (int i = 0; i < runs; i++) {
        neo__plan_search_extra(s, NULL);
        if (!neo__plan_search_run(s, cap)) {
            failed = cap;
            cap *= NEO__PLAN_HIGHER_CAP;
        } else {
            neo_status status = neo__plan_search_fit_budget(s, budget, &above);
            if (status != NEO_ERR_CAPACITY) return status;
            over = cap;
            cap -= above;
        }
        if (failed > 0.0 && over > 0.0) {
            if (over - failed < over * NEO__PLAN_EXACT_CAP) break;
            cap = failed + (over - failed) / 2.0;
        }
    }
    neo__plan_search_lean_back(s);
    return neo__plan_search_build(s);
}
/* "; cw: why not; ..." of the placements that a table is allowed. */
static neo_status neo__plan_no_options(const neo__plan_table *t, const char *fn) {
    char why[400] = "";
    size_t at = 0;
    for (int p = 0; p < NEO_PLACEMENT_COUNT && at + 100 < sizeof why; p++)
        if (t->allowed & (1u << p))
            at += (size_t)snprintf(why + at, sizeof why - at, "; %s: %s", NEO__PLACEMENT_NAMES[p],
                                   neo__plan_reason(t, (neo_placement)p));
    return neo_fail(NEO_ERR_UNSUPPORTED,
                    "%s: table '%s': none of the placements allowed is possible%s", fn,
                    t->desc->name, why);
}
static neo_status neo__plan_run(neo_plan *plan, const char *fn) {
    neo__plan_search s;
    int64_t budget = plan->desc.cluster.memory_bytes;
    NEO__TRY(neo__plan_search_alloc(&s, plan));
    for (int32_t t = 0; t < s.tables; t++)
        if (!s.options[t].count) return neo__plan_no_options(&plan->table[t], fn);
    neo_status status = neo__plan_search_attempt(&s, budget);
    NEO__CHECK(status != NEO_ERR_CAPACITY, NEO_ERR_CAPACITY,
               "%s: the tables do not fit: %d ranks with %" PRId64 " bytes each; %" PRId64
               " bytes each would do",
               fn, s.ranks, budget, s.lean.bytes);
    neo__arena_free(&plan->work);
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-why

   Text about a plan, to memory or to a file: why a table lies as it does, and not otherwise.
   Nothing here decides anything.
   ------------------------------------------------------------------------ */
/* Text goes to a file, or to memory as far as there is room. */
typedef struct neo__plan_text {
    FILE *file;
    char *at;
    size_t bytes, length;
} neo__plan_text;
static void neo__plan_text_add(neo__plan_text *t, const char *format, ...) NEO__PRINTF(2, 3);
static void neo__plan_text_add(neo__plan_text *t, const char *format, ...) {
    va_list args;
    size_t room = t->length < t->bytes ? t->bytes - t->length : 0;
    va_start(args, format);
    int n = t->file ? vfprintf(t->file, format, args)
                    : vsnprintf(room ? t->at + t->length : NULL, room, format, args);
    va_end(args);
    if (n > 0) t->length += (size_t)n;
}
/* An amount with its unit, for one message. */
typedef struct neo__plan_amount {
    char text[32];
} neo__plan_amount;
static neo__plan_amount neo__plan_seconds(double x) {
    neo__plan_amount a;
    const char *unit = x >= 1.0 ? "s" : x >= 1e-3 ? "ms" : "us";
    x *= x >= 1.0 ? 1.0 : x >= 1e-3 ? 1e3 : 1e6;
    snprintf(a.text, sizeof a.text, "%.3g %s", x, unit);
    return a;
}
static neo__plan_amount neo__plan_bytes(double x) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    neo__plan_amount a;
    int u = 0;
    for (; x >= 1024.0 && u < 4; u++) x /= 1024.0;
    int digits = u == 0 || x >= 100.0 ? 0 : x < 10.0 ? 2 : 1;
    snprintf(a.text, sizeof a.text, "%.*f %s", digits, x, units[u]);
    return a;
}
/* Ranks as 0-3,7: of pieces [0, count), which come one by one. */
static void neo__plan_text_ranks(neo__plan_text *t, const neo_piece *p, int64_t count) {
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && p[end].rank == p[end - 1].rank + 1;) end++;
        neo__plan_text_add(t, "%s%d", i ? "," : "", p[i].rank);
        if (end - i > 1) neo__plan_text_add(t, "-%d", p[end - 1].rank);
    }
}
/* Seconds that a table takes of a rank in the mean and of the rank it takes most of; its most
   bytes. */
static void neo__plan_table_cost(const neo__plan_table *t, double *mean, double *most,
                                 double *bytes) {
    const neo_plan *plan = t->plan;
    double all = 0.0, sum = 0.0;
    *most = *bytes = 0.0;
    for (int64_t i = t->first_piece; i < t->first_piece + t->piece_count; i++) {
        const neo_piece *p = &plan->piece[i];
        int copies = p->rank == NEO_EVERY_RANK;
        neo__plan_load x = copies ? neo__plan_copy_load(t)
                                  : neo__plan_piece_load(t, &plan->cut[i]);
        double seconds = x.at[NEO__PLAN_SECONDS];
        if (copies) {
            all = seconds + neo__plan_copy_reduce(t) * plan->model.all_reduce;
        } else {
            all += neo__plan_sample_load(t, &plan->cut[i]).at[NEO__PLAN_SECONDS];
            sum += seconds;
            if (seconds > *most) *most = seconds;
        }
        if (x.at[NEO__PLAN_BYTES] > *bytes) *bytes = x.at[NEO__PLAN_BYTES];
    }
    *mean = all + sum / plan->model.ranks;
    *most += all;
}
static void neo__plan_why_chosen(const neo__plan_table *t, neo__plan_text *text) {
    const neo_plan *plan = t->plan;
    const neo_piece *p = plan->piece + t->first_piece;
    double mean, most, bytes;
    int64_t slices = neo__plan_slices(t), pieces = t->piece_count;
    neo__plan_text_add(text, "%s: ", NEO__PLACEMENT_NAMES[t->placement]);
    if (p->rank == NEO_EVERY_RANK)
        neo__plan_text_add(text, "a copy on every rank");
    else if (pieces == 1)
        neo__plan_text_add(text, "on rank %d", p->rank);
    else if (slices == 1)
        neo__plan_text_add(text, "%" PRId64 " ranges of rows on ranks ", pieces);
    else if (slices == pieces)
        neo__plan_text_add(text, "%" PRId64 " slices of columns on ranks ", slices);
    else
        neo__plan_text_add(text, "%" PRId64 " slices of columns, %" PRId64 " pieces on ranks ",
                           slices, pieces);
    if (pieces > 1) neo__plan_text_ranks(text, p, pieces);
    neo__plan_table_cost(t, &mean, &most, &bytes);
    neo__plan_text_add(text, "; takes %s of a rank in the mean, %s at most; %s%s\n",
                       neo__plan_seconds(mean).text, neo__plan_seconds(most).text,
                       neo__plan_bytes(bytes).text,
                       plan->origin == NEO__PLAN_GIVEN ? " (as given)" : "");
    if (plan->origin == NEO__PLAN_UNIFORM && plan->uniform != t->placement) {
        const char *reason = neo__plan_reason(t, plan->uniform);
        neo__plan_text_add(text, "%s was asked for: %s\n", NEO__PLACEMENT_NAMES[plan->uniform],
                           reason ? reason : "so many parts amount to the same");
    }
}
/* The reason that a table has not a placement that it could have. */
static void neo__plan_why_rejected(const neo__plan_table *t, neo_placement placement,
                                   neo__plan_text *text) {
    neo__plan_options o;
    const neo_plan *plan = t->plan;
    double budget = (double)plan->desc.cluster.memory_bytes, least = DBL_MAX;
    double mean, most, bytes, all = 0.0;
    const neo__plan_option *best = NULL;
    o.count = 0;
    neo__plan_options_of(t, placement, 0, &o);
    neo__plan_table_cost(t, &mean, &most, &bytes);
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++)
        all += plan->rank[r].seconds / plan->model.ranks;
    for (int i = 0; i < o.count; i++) {
        least = NEO__MIN(least, o.at[i].most_bytes);
        if (budget > 0.0 && o.at[i].most_bytes > budget) continue;
        if (!best || o.at[i].seconds < best->seconds) best = &o.at[i];
    }
    if (!best)
        neo__plan_text_add(text, "no memory: %s on a rank, of %s\n", neo__plan_bytes(least).text,
                           neo__plan_bytes(budget).text);
    else if (best->seconds > mean * 1.001)
        neo__plan_text_add(text, "costs more: %s of a rank in the mean%s\n",
                           neo__plan_seconds(best->seconds).text,
                           best->reduce_bytes > 0.0 ? ", with the all-reduce of its gradient" : "");
    else if (best->peak > all)
        neo__plan_text_add(text, "too much for one rank: %s, where a rank has %s in the mean for "
                           "all tables\n", neo__plan_seconds(best->peak).text,
                           neo__plan_seconds(all).text);
    else
        neo__plan_text_add(text, "possible, but the whole step was not shorter, or memory was too "
                           "tight\n");
}
NEO_API size_t neo_plan_why(const neo_plan *plan, int32_t table, char *text, size_t bytes) {
    neo__plan_text out = {NULL, text, bytes, 0};
    if (bytes) text[0] = 0;
    if (!plan || table < 0 || table >= plan->bags.table_count) return 0;
    const neo__plan_table *t = &plan->table[table];
    neo__plan_why_chosen(t, &out);
    for (int p = 0; p < NEO_PLACEMENT_COUNT && plan->origin != NEO__PLAN_UNIFORM; p++) {
        const char *reason = neo__plan_reason(t, (neo_placement)p);
        if ((neo_placement)p == t->placement) continue;
        neo__plan_text_add(&out, "not %s: ", NEO__PLACEMENT_NAMES[p]);
        if (reason)
            neo__plan_text_add(&out, "%s\n", reason);
        else
            neo__plan_why_rejected(t, (neo_placement)p, &out);
    }
    return out.length;
}
NEO_API size_t neo_plan_warning(const neo_plan *plan, int32_t table, char *text, size_t bytes) {
    neo__plan_text out = {NULL, text, bytes, 0};
    if (bytes) text[0] = 0;
    if (!plan || table < 0 || table >= plan->bags.table_count) return 0;
    const neo__plan_table *t = &plan->table[table];
    const neo_piece *p = plan->piece + t->first_piece;
    if (t->loose && p->rows < t->rows)
        neo__plan_text_add(&out, "sums of table '%s' depend on the plan: give it row_buckets",
                           t->desc->name);
    return out.length;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-file

   A file is read once, its lines cut into words in place. Table lines of equal cuts are made by the
   same function as the search's, so that a line of text stands for the same rectangles.
   ------------------------------------------------------------------------ */
static void neo__plan_write_name(neo__plan_text *f, const char *name) {
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        int coded = c <= ' ' || c == 127 || c == '"' || c == '#' || c == '%';
        neo__plan_text_add(f, coded ? "%%%02X" : "%c", c);
    }
}
/* 1: the pieces of a table are those of an equal cut into *slices of *parts pieces. */
static int neo__plan_is_shape(const neo__plan_table *t, int32_t *slices, int32_t *parts) {
    const neo_piece *p = t->plan->piece + t->first_piece;
    int64_t n = t->piece_count, cols = neo__plan_slices(t);
    if (n > NEO__PLAN_MAX_RANKS || n % cols) return 0;
    *slices = (int32_t)cols;
    *parts = (int32_t)(n / cols);
    if (cols > t->blocks || *parts > neo__plan_row_units(t)) return 0;
    for (int64_t i = 0; i < n; i++) {
        neo_piece want = p[i];
        neo__plan_part(t, cols, *parts, i, &want);
        if (neo__plan_piece_order(&want, &p[i]) != 0) return 0;
    }
    return 1;
}
static void neo__plan_write_table(const neo__plan_table *t, neo__plan_text *f) {
    const neo_piece *p = t->plan->piece + t->first_piece;
    int32_t slices, parts;
    neo__plan_text_add(f, "table ");
    neo__plan_write_name(f, t->desc->name);
    neo__plan_text_add(f, " %" PRId64 "x%" PRId64 " ", t->rows, t->dim);
    if (p->rank == NEO_EVERY_RANK) {
        neo__plan_text_add(f, "dp\n");
    } else if (neo__plan_is_shape(t, &slices, &parts)) {
        neo__plan_text_add(f, "%s ", NEO__PLACEMENT_NAMES[t->placement]);
        if (t->placement != NEO_GRID) slices = 1, parts = (int32_t)t->piece_count;
        for (int32_t i = 0; i < slices; i++) {
            neo__plan_text_add(f, "%s", i ? "/" : "");
            neo__plan_text_ranks(f, p + (int64_t)i * parts, parts);
        }
        neo__plan_text_add(f, "\n");
    } else {
        neo__plan_text_add(f, "pieces %" PRId64 "\n", t->piece_count);
        for (int64_t i = 0; i < t->piece_count; i++, p++)
            neo__plan_text_add(f, "piece %d %" PRId64 "+%" PRId64 " %" PRId64 "+%" PRId64 "\n",
                               p->rank, p->first_row, p->rows, p->first_col, p->cols);
    }
}
NEO_API neo_status neo_plan_write(const neo_plan *plan, const char *path) {
    NEO__CHECK(plan && path, NEO_ERR_ARG, "neo_plan_write: an argument is NULL");
    neo__plan_text f = {fopen(path, "wb"), NULL, 0, 0};
    NEO__CHECK(f.file, errno == ENOENT ? NEO_ERR_NOT_FOUND : NEO_ERR_IO,
               "%s: cannot open for writing: %s", path, strerror(errno));
    neo__plan_text_add(&f, "neo-plan 1\nranks %d %d\n", plan->desc.cluster.ranks, plan->per_node);
    for (int32_t t = 0; t < plan->bags.table_count; t++) neo__plan_write_table(&plan->table[t], &f);
    int bad = ferror(f.file) != 0;
    if (fclose(f.file) != 0) bad = 1;
    NEO__CHECK(!bad, NEO_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return NEO_OK;
}

typedef struct neo__plan_reader {
    neo_plan *plan;
    const char *path;
    char *at, *end;    /* text that is left; a NUL stands at its end */
    char *word, *rest; /* the word read last; what is left of its line */
    int64_t line;
    int32_t table;     /* of piece lines; open: how many are still to come */
    int64_t open, count, room;
    neo_piece *pieces; /* [count], with room for `room` */
    uint8_t *seen;     /* [tables] */
    int32_t ranks[NEO__PLAN_MAX_RANKS];
} neo__plan_reader;

/* The next word of the line, "" at its end. */
static const char *neo__plan_word(neo__plan_reader *r) {
    r->word = r->rest + strspn(r->rest, " \t\r");
    r->rest = r->word + strcspn(r->word, " \t\r");
    if (*r->rest) *r->rest++ = 0;
    return r->word;
}
/* The first word of the next line that has one; 0 at the end of the file. */
static int neo__plan_line(neo__plan_reader *r) {
    while (r->at < r->end) {
        char *stop = (char *)memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->rest = r->at;
        r->at = stop ? stop + 1 : r->end;
        r->line++;
        if (stop) *stop = 0;
        r->rest[strcspn(r->rest, "#")] = 0;
        if (neo__plan_word(r)[0]) return 1;
    }
    return 0;
}
#define NEO__PLAN_WANT(cond, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) return neo__plan_line_error(r, __VA_ARGS__);                                  \
    } while (0)
static neo_status neo__plan_line_error(const neo__plan_reader *r, const char *message,
                                       const char *word) {
    return neo_fail(NEO_ERR_FORMAT, "%s:%" PRId64 ": %s%s%.100s%s", r->path, r->line, message,
                    word[0] ? " '" : "", word, word[0] ? "'" : "");
}
/* A whole number at *text, which moves on; 0 if there is none. */
static int neo__plan_number(const char **text, int64_t *number) {
    const char *begin = *text;
    for (*number = 0; **text >= '0' && **text <= '9'; ++*text) {
        if (*number > (INT64_MAX - 9) / 10) return 0;
        *number = *number * 10 + (**text - '0');
    }
    return *text > begin;
}
/* The next word as one number, or as two with a sign between, as 12x34. */
static int neo__plan_read_number(neo__plan_reader *r, int64_t *number) {
    const char *p = neo__plan_word(r);
    return neo__plan_number(&p, number) && *p == 0;
}
static int neo__plan_read_pair(neo__plan_reader *r, char sign, int64_t *a, int64_t *b) {
    const char *p = neo__plan_word(r);
    return neo__plan_number(&p, a) && *p++ == sign && neo__plan_number(&p, b) && *p == 0;
}
/* The byte of two hexadecimal digits; -1: they are none. */
static int neo__plan_hex(const char *p) {
    if (strspn(p, "0123456789abcdefABCDEF") < 2) return -1;
    const char digits[3] = {p[0], p[1], 0};
    return (int)strtol(digits, NULL, 16);
}
static neo_status neo__plan_read_name(neo__plan_reader *r) {
    const char *p = neo__plan_word(r);
    char *name;
    NEO__TRY(NEO__ARENA(&r->plan->work, name, strlen(p) + 1));
    for (size_t n = 0; *p; n++) {
        name[n] = *p++;
        if (name[n] != '%') continue;
        int byte = neo__plan_hex(p);
        NEO__PLAN_WANT(byte > 0, "% begins no byte of two digits in", r->word);
        name[n] = (char)byte;
        p += 2;
    }
    for (r->table = 0; r->table < r->plan->bags.table_count; r->table++)
        if (strcmp(r->plan->bags.tables[r->table].name, name) == 0) return NEO_OK;
    return neo_fail(NEO_ERR_MISMATCH, "%s:%" PRId64 ": the model has no table '%.200s'", r->path,
                    r->line, name);
}
/* "0,2,5-6/8-9": ranks to r->ranks; groups: divided by '/', of as many each. */
static neo_status neo__plan_read_ranks(neo__plan_reader *r, int32_t *groups, int32_t *each) {
    const char *p = neo__plan_word(r);
    int32_t count = 0, in_group = 0;
    *groups = 1;
    *each = 0;
    for (;; p++) {
        int64_t first, last;
        NEO__PLAN_WANT(neo__plan_number(&p, &first), "ranks are wanted, as 0,2,5-6", "");
        last = first;
        if (*p == '-') {
            p++;
            NEO__PLAN_WANT(neo__plan_number(&p, &last) && last >= first,
                           "a range of ranks is wrong", "");
        }
        NEO__PLAN_WANT(last < r->plan->desc.cluster.ranks, "there are not so many ranks", "");
        for (; first <= last; first++, in_group++) {
            NEO__PLAN_WANT(count < NEO__PLAN_MAX_RANKS, "too many ranks", "");
            r->ranks[count++] = (int32_t)first;
        }
        if (*p == ',') continue;
        NEO__PLAN_WANT(*each == 0 || *each == in_group, "slices have different numbers of ranks",
                       "");
        *each = in_group;
        in_group = 0;
        if (*p != '/') break;
        (*groups)++;
    }
    NEO__PLAN_WANT(*p == 0, "ranks are wrong", "");
    return NEO_OK;
}
/* *to: room for `more` pieces behind those read. */
static neo_status neo__plan_read_room(neo__plan_reader *r, int64_t more, neo_piece **to) {
    if (r->count + more > r->room) {
        neo_piece *pieces;
        NEO__TRY(NEO__ARENA(&r->plan->work, pieces, 2 * r->room + more));
        if (r->count) memcpy(pieces, r->pieces, (size_t)r->count * sizeof *pieces);
        r->pieces = pieces;
        r->room = 2 * r->room + more;
    }
    *to = r->pieces + r->count;
    r->count += more;
    return NEO_OK;
}
static neo_status neo__plan_read_cut(neo__plan_reader *r, neo_placement placement) {
    const neo__plan_table *t = &r->plan->table[r->table];
    neo__plan_shape shape = {0, 0, r->ranks};
    int32_t groups = 0, each = 0;
    if (placement != NEO_DATA_PARALLEL) {
        NEO__TRY(neo__plan_read_ranks(r, &groups, &each));
        int by_cols = placement == NEO_COLUMN_WISE || placement == NEO_TABLE_COLUMN_WISE;
        NEO__PLAN_WANT(placement == NEO_GRID || groups == 1, "only a grid has slices divided by /",
                       "");
        NEO__PLAN_WANT(placement != NEO_TABLE_WISE || each == 1, "tw has one rank", "");
        shape.col_parts = by_cols ? each : groups;
        shape.row_parts = by_cols ? 1 : each;
        NEO__PLAN_WANT(shape.col_parts <= t->blocks, "it has not so many blocks of columns", "");
        NEO__PLAN_WANT(shape.row_parts <= neo__plan_row_units(t),
                       "it has not so many rows or buckets", "");
    }
    neo_piece *to;
    NEO__TRY(neo__plan_read_room(r, neo__plan_shape_count(shape), &to));
    neo__plan_shape_cut(t, shape, to);
    return NEO_OK;
}
static neo_status neo__plan_read_table(neo__plan_reader *r) {
    int64_t rows, cols;
    neo_placement placement = NEO_TABLE_WISE;
    NEO__TRY(neo__plan_read_name(r));
    const neo__plan_table *t = &r->plan->table[r->table];
    const char *name = t->desc->name;
    NEO__PLAN_WANT(!r->seen[r->table], "a second line for table", name);
    r->seen[r->table] = 1;
    NEO__PLAN_WANT(neo__plan_read_pair(r, 'x', &rows, &cols), "not rows x dim, as 100x16:",
                   r->word);
    NEO__CHECK(rows == t->rows && cols == t->dim, NEO_ERR_MISMATCH,
               "%s:%" PRId64 ": table '%s' is %" PRId64 " x %" PRId64 " here, and %" PRId64
               " x %" PRId64 " in the model",
               r->path, r->line, name, rows, cols, t->rows, t->dim);
    if (strcmp(neo__plan_word(r), "pieces") == 0) {
        NEO__PLAN_WANT(neo__plan_read_number(r, &r->open) && r->open > 0,
                       "not a number of pieces:", r->word);
        return NEO_OK;
    }
    NEO__PLAN_WANT(neo_placement_parse(r->word, &placement) == NEO_OK,
                   "neither tw, cw, rw, dp, twrw, twcw, grid nor pieces:", r->word);
    return neo__plan_read_cut(r, placement);
}
static neo_status neo__plan_read_piece(neo__plan_reader *r) {
    int64_t rank;
    neo_piece *p;
    NEO__PLAN_WANT(r->open > 0, "a piece more than were announced", "");
    NEO__TRY(neo__plan_read_room(r, 1, &p));
    NEO__PLAN_WANT(neo__plan_read_number(r, &rank) && rank < r->plan->desc.cluster.ranks,
                   "not a rank of this plan:", r->word);
    NEO__PLAN_WANT(neo__plan_read_pair(r, '+', &p->first_row, &p->rows),
                   "not first row + rows, as 0+16:", r->word);
    NEO__PLAN_WANT(neo__plan_read_pair(r, '+', &p->first_col, &p->cols),
                   "not first column + columns, as 0+16:", r->word);
    p->table = r->table;
    p->rank = (int32_t)rank;
    r->open--;
    return NEO_OK;
}
static neo_status neo__plan_read_head(neo__plan_reader *r) {
    int64_t ranks, per_node;
    NEO__PLAN_WANT(neo__plan_line(r), "a plan begins with 'neo-plan 1'; this file is empty", "");
    NEO__PLAN_WANT(strcmp(r->word, "neo-plan") == 0, "a plan begins with 'neo-plan 1', not with",
                   r->word);
    NEO__PLAN_WANT(strcmp(neo__plan_word(r), "1") == 0, "this version reads format 1, not",
                   r->word);
    NEO__PLAN_WANT(!neo__plan_word(r)[0], "more than belongs on the line:", r->word);
    if (!neo__plan_line(r)) return NEO_OK;
    NEO__PLAN_WANT(strcmp(r->word, "ranks") == 0, "the second line is 'ranks', not", r->word);
    NEO__PLAN_WANT(neo__plan_read_number(r, &ranks), "not a number of ranks:", r->word);
    NEO__PLAN_WANT(neo__plan_read_number(r, &per_node), "not a number of ranks of a node:",
                   r->word);
    NEO__CHECK(ranks == r->plan->desc.cluster.ranks, NEO_ERR_MISMATCH,
               "%s:%" PRId64 ": a plan for %" PRId64 " ranks, here are %d", r->path, r->line, ranks,
               r->plan->desc.cluster.ranks);
    NEO__PLAN_WANT(!neo__plan_word(r)[0], "more than belongs on the line:", r->word);
    return NEO_OK;
}
static neo_status neo__plan_read_lines(neo__plan_reader *r) {
    NEO__TRY(neo__plan_read_head(r));
    while (neo__plan_line(r)) {
        if (strcmp(r->word, "piece") == 0) {
            NEO__TRY(neo__plan_read_piece(r));
        } else {
            NEO__PLAN_WANT(r->open == 0, "pieces are missing before", r->word);
            NEO__PLAN_WANT(strcmp(r->word, "table") == 0, "neither table nor piece:", r->word);
            NEO__TRY(neo__plan_read_table(r));
        }
        NEO__PLAN_WANT(!neo__plan_word(r)[0], "more than belongs on the line:", r->word);
    }
    NEO__PLAN_WANT(r->open == 0, "pieces are missing at the end", "");
    for (int32_t t = 0; t < r->plan->bags.table_count; t++)
        NEO__CHECK(r->seen[t], NEO_ERR_MISMATCH, "%s: has no line for table '%s'", r->path,
                   r->plan->bags.tables[t].name);
    return NEO_OK;
}
/* text: [bytes] and a NUL; it is cut into words. */
static neo_status neo__plan_parse(neo_plan *plan, const char *path, char *text, size_t bytes) {
    neo__plan_reader *r;
    NEO__TRY(NEO__ARENA(&plan->work, r, 1));
    r->plan = plan;
    r->path = path;
    r->at = text;
    r->end = text + bytes;
    NEO__TRY(NEO__ARENA(&plan->work, r->seen, plan->bags.table_count));
    NEO__TRY(neo__plan_read_lines(r));
    return neo__plan_fill(plan, r->pieces, r->count, path);
}
/* The whole file as text with a NUL behind it, in working memory of the plan. */
static neo_status neo__plan_load_file(neo_plan *plan, const char *path, char **text,
                                      size_t *bytes) {
    FILE *f = fopen(path, "rb");
    long size = -1;
    NEO__CHECK(f, errno == ENOENT ? NEO_ERR_NOT_FOUND : NEO_ERR_IO, "%s: cannot open: %s", path,
               strerror(errno));
    if (fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    if (size < 0 || size > 1L << 30 || fseek(f, 0, SEEK_SET) != 0) {
        fclose(f);
        return neo_fail(NEO_ERR_IO, "%s: cannot read: no plain file, or larger than 1 GiB", path);
    }
    neo_status status = NEO__ARENA(&plan->work, *text, size + 1);
    *bytes = 0; /* by getc, as with _FORTIFY_SOURCE gcc warns of fread where passes are left out */
    for (int c; status == NEO_OK && *bytes < (size_t)size && (c = getc(f)) != EOF; ++*bytes)
        (*text)[*bytes] = (char)c;
    fclose(f);
    if (status != NEO_OK) return status;
    NEO__CHECK(*bytes == (size_t)size, NEO_ERR_IO, "%s: cannot read to the end", path);
    NEO__CHECK(!memchr(*text, 0, *bytes), NEO_ERR_FORMAT, "%s: has a zero byte: no text file",
               path);
    return NEO_OK;
}
static neo_status neo__plan_done(neo_plan *plan, neo_status status, neo_plan **out);
NEO_API neo_status neo_plan_read(neo_ctx *ctx, const neo_plan_desc *desc, const char *path,
                                 neo_plan **plan) {
    char *text = NULL;
    size_t bytes = 0;
    NEO__CHECK(plan && path, NEO_ERR_ARG, "neo_plan_read: plan or path is NULL");
    NEO__TRY(neo__plan_new(ctx, desc, "neo_plan_read", plan));
    (*plan)->origin = NEO__PLAN_GIVEN;
    neo_status status = neo__plan_load_file(*plan, path, &text, &bytes);
    if (status == NEO_OK) status = neo__plan_parse(*plan, path, text, bytes);
    neo__arena_free(&(*plan)->work);
    return neo__plan_done(*plan, status, plan);
}

/* ---------------------------------------------------------------------------
   >>impl-plan-calls

   The public calls that make a plan and read from it. A plan that cannot be made leaves NULL and an
   error; a finished plan never changes.
   ------------------------------------------------------------------------ */
static neo_status neo__plan_done(neo_plan *plan, neo_status status, neo_plan **out) {
    char text[400];
    *out = NULL;
    if (status != NEO_OK) {
        neo_plan_destroy(plan);
        return status;
    }
    for (int32_t t = 0; t < plan->bags.table_count; t++)
        if (neo_plan_warning(plan, t, text, sizeof text))
            neo_log(plan->ctx, NEO_LOG_WARNING, "%s", text);
    *out = plan;
    return NEO_OK;
}
NEO_API neo_status neo_plan_create(neo_ctx *ctx, const neo_plan_desc *desc, neo_plan **plan) {
    NEO__TRY(neo__plan_new(ctx, desc, "neo_plan_create", plan));
    return neo__plan_done(*plan, neo__plan_run(*plan, "neo_plan_create"), plan);
}
NEO_API neo_status neo_plan_create_uniform(neo_ctx *ctx, const neo_plan_desc *desc,
                                           neo_placement placement, neo_plan **plan) {
    const char *fn = "neo_plan_create_uniform";
    NEO__CHECK((unsigned)placement < NEO_PLACEMENT_COUNT, NEO_ERR_ARG,
               "%s: placement %d does not exist", fn, (int)placement);
    NEO__TRY(neo__plan_new(ctx, desc, fn, plan));
    (*plan)->origin = NEO__PLAN_UNIFORM;
    (*plan)->uniform = placement;
    return neo__plan_done(*plan, neo__plan_run(*plan, fn), plan);
}
NEO_API neo_status neo_plan_create_from(neo_ctx *ctx, const neo_plan_desc *desc,
                                        const neo_piece *pieces, int64_t count, neo_plan **plan) {
    const char *fn = "neo_plan_create_from";
    NEO__TRY(neo__plan_new(ctx, desc, fn, plan));
    (*plan)->origin = NEO__PLAN_GIVEN;
    return neo__plan_done(*plan, neo__plan_fill(*plan, pieces, count, fn), plan);
}

NEO_API const neo_piece *neo_plan_pieces(const neo_plan *plan, int64_t *count) {
    if (count) *count = plan->piece_count;
    return plan->piece;
}
NEO_API const neo_piece *neo_plan_table_pieces(const neo_plan *plan, int32_t table,
                                               int64_t *count) {
    NEO_ASSERT(table >= 0 && table < plan->bags.table_count);
    if (count) *count = plan->table[table].piece_count;
    return plan->piece + plan->table[table].first_piece;
}
NEO_API const int64_t *neo_plan_rank_pieces(const neo_plan *plan, int32_t rank, int64_t *count) {
    NEO_ASSERT(rank >= 0 && rank < plan->desc.cluster.ranks);
    if (count) *count = plan->rank_first[rank + 1] - plan->rank_first[rank];
    return plan->rank_piece + plan->rank_first[rank];
}
NEO_API neo_placement neo_plan_placement(const neo_plan *plan, int32_t table) {
    NEO_ASSERT(table >= 0 && table < plan->bags.table_count);
    return plan->table[table].placement;
}
NEO_API const neo_plan_desc *neo_plan_desc_of(const neo_plan *plan) { return &plan->desc; }
NEO_API neo_plan_rank neo_plan_rank_of(const neo_plan *plan, int32_t rank) {
    NEO_ASSERT(rank >= 0 && rank < plan->desc.cluster.ranks);
    return plan->rank[rank];
}
NEO_API neo_plan_step neo_plan_step_of(const neo_plan *plan) { return plan->step; }
static uint64_t neo__plan_hash(uint64_t hash, uint64_t word) { /* FNV-1a over its bytes */
    for (int i = 0; i < 8; i++) hash = (hash ^ (word >> (8 * i) & 255)) * 0x100000001B3u;
    return hash;
}
NEO_API uint64_t neo_plan_digest(const neo_plan *plan) {
    uint64_t hash = neo__plan_hash(0xCBF29CE484222325u, (uint64_t)plan->desc.cluster.ranks);
    for (int32_t t = 0; t < plan->bags.table_count; t++) {
        hash = neo__plan_hash(hash, neo_hash(plan->bags.tables[t].name));
        hash = neo__plan_hash(hash, (uint64_t)plan->table[t].rows);
        hash = neo__plan_hash(hash, (uint64_t)plan->table[t].dim);
    }
    for (int64_t i = 0; i < plan->piece_count; i++) {
        const neo_piece *p = &plan->piece[i];
        hash = neo__plan_hash(hash, (uint64_t)(uint32_t)p->table << 32 | (uint32_t)p->rank);
        hash = neo__plan_hash(hash, (uint64_t)p->first_row);
        hash = neo__plan_hash(hash, (uint64_t)p->rows);
        hash = neo__plan_hash(hash, (uint64_t)p->first_col);
        hash = neo__plan_hash(hash, (uint64_t)p->cols);
    }
    return hash;
}

/* ---------------------------------------------------------------------------
   >>impl-calibrate

   A copy of two buffers beyond the caches gives the bandwidth; a table with ids of a Zipf law the
   factors of lookup and update, with few columns what an id takes in backward, with buckets theirs,
   with gradients that are kept those; two loops as a shard's, over ids and over short rows, the
   rest; a product of matrices the flops. Each is the best of a few runs.
   ------------------------------------------------------------------------ */
enum {
    NEO__CALIBRATE_RUNS = 4,
    NEO__CALIBRATE_ROWS = 400000,
    NEO__CALIBRATE_DIM = 64,
    NEO__CALIBRATE_NARROW = 8,
    NEO__CALIBRATE_BUCKETS = 8,
    NEO__CALIBRATE_SLICE = 16,
    NEO__CALIBRATE_BATCH = 4096,
    NEO__CALIBRATE_POOLING = 20,
    NEO__CALIBRATE_EDGE = 512
};
enum {
    NEO__CALIBRATE_IDS = NEO__CALIBRATE_BATCH * NEO__CALIBRATE_POOLING,
    NEO__CALIBRATE_FLOATS = 16 << 20 /* of each of the two buffers */
};
typedef struct neo__calibrate_job {
    float *memory; /* two buffers */
    int64_t tasks;
} neo__calibrate_job;
static void neo__calibrate_task(void *arg, int64_t i, int worker) {
    const neo__calibrate_job *job = (const neo__calibrate_job *)arg;
    int64_t begin = neo__bucket_begin(NEO__CALIBRATE_FLOATS, job->tasks, i),
            end = neo__bucket_begin(NEO__CALIBRATE_FLOATS, job->tasks, i + 1);
    (void)worker;
    memcpy(job->memory + NEO__CALIBRATE_FLOATS + begin, job->memory + begin,
           (size_t)(end - begin) * sizeof *job->memory);
}
static double neo__calibrate_least(double best, int64_t began) {
    double seconds = (double)(neo_time_ns() - began) * 1e-9;
    if (seconds < 1e-9) seconds = 1e-9;
    return best == 0.0 || seconds < best ? seconds : best;
}
static double neo__calibrate_copy(neo_ctx *ctx, float *memory) {
    neo__calibrate_job job = {memory, neo_ctx_threads(ctx)};
    double best = 0.0;
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        int64_t began = neo_time_ns();
        neo_parallel_for(ctx, job.tasks, neo__calibrate_task, &job);
        best = neo__calibrate_least(best, began);
    }
    return 2.0 * (double)NEO__CALIBRATE_FLOATS * (double)sizeof(float) / best;
}
/* A table, and seconds of what is done with it. */
typedef struct neo__calibrate_table {
    int64_t dim;
    int32_t buckets;
    int kept;
    double lookup, update, keep; /* keep: as update, with gradients that wait */
} neo__calibrate_table;
static neo_status neo__calibrate_run(neo_bags *bags, const neo_jagged *j, neo_tensor out,
                                     neo__calibrate_table *t) {
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        int64_t began = neo_time_ns();
        NEO__TRY(neo_bags_forward(bags, j, out));
        t->lookup = neo__calibrate_least(t->lookup, began);
        began = neo_time_ns();
        NEO__TRY(neo_bags_backward(bags, j, out, 1e-3f));
        t->update = neo__calibrate_least(t->update, began);
        if (!t->kept) continue;
        began = neo_time_ns();
        NEO__TRY(neo_bags_accumulate(bags, j, out, NULL));
        NEO__TRY(neo_bags_step(bags, 1e-3f));
        t->keep = neo__calibrate_least(t->keep, began);
    }
    return NEO_OK;
}
static neo_status neo__calibrate_bags(neo_ctx *ctx, const int64_t *id, neo__calibrate_table *t) {
    const int64_t shape[2] = {NEO__CALIBRATE_BATCH, t->dim};
    NEO__ZERO(neo_table_desc, table);
    NEO__ZERO(neo_bags_desc, d);
    NEO__ZERO(neo_jagged, batch);
    neo_bags *bags = NULL;
    neo_tensor out = neo_tensor_none();
    table.name = "calibrate";
    table.rows = NEO__CALIBRATE_ROWS;
    table.dim = t->dim;
    table.row_buckets = t->buckets;
    table.init.kind = NEO_INIT_CONSTANT;
    table.optim.kind = NEO_BAG_ROWWISE_ADAGRAD;
    d.tables = &table;
    d.table_count = 1;
    d.max_batch = NEO__CALIBRATE_BATCH;
    d.max_ids = NEO__CALIBRATE_IDS;
    d.max_kept_rows = t->kept ? (int64_t)NEO__CALIBRATE_IDS : 0;
    batch.batch = NEO__CALIBRATE_BATCH;
    batch.feature_count = 1;
    batch.id_dtype = NEO_I64;
    batch.offsets = id + NEO__CALIBRATE_IDS;
    batch.ids = id;
    neo_status status = neo_bags_create(ctx, &d, &bags);
    if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &out);
    if (status == NEO_OK) status = neo__calibrate_run(bags, &batch, out, t);
    neo_tensor_free(ctx, &out);
    neo_bags_destroy(bags);
    return status;
}
/* Seconds of an id that is looked at, counted and placed by its sender. */
static double neo__calibrate_id(const int64_t *id, int32_t *to) {
    double best = 0.0;
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        int64_t began = neo_time_ns(), bad = 0;
        int32_t *length = to + NEO__CALIBRATE_IDS;
        for (int64_t i = 0; i < NEO__CALIBRATE_IDS; i++)
            bad += id[i] < 0 || id[i] >= NEO__CALIBRATE_ROWS;
        for (int64_t i = 0; i < NEO__CALIBRATE_IDS; i++)
            length[i / NEO__CALIBRATE_POOLING] += id[i] >= bad;
        for (int64_t i = 0, at = 0; i < NEO__CALIBRATE_IDS; i++)
            if (id[i] >= bad) to[at++] = (int32_t)id[i];
        best = neo__calibrate_least(best, began);
    }
    return best / (double)NEO__CALIBRATE_IDS;
}
/* Seconds of a row of 16 columns that goes from a matrix of its own to its place among those of
   other tables. */
static double neo__calibrate_row(const float *from, float *to) {
    enum { ROUTES = 16, SAMPLES = NEO__CALIBRATE_BATCH, COLS = NEO__CALIBRATE_SLICE };
    double best = 0.0;
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        int64_t began = neo_time_ns();
        for (int64_t i = 0; i < SAMPLES; i++)
            for (int64_t k = 0; k < ROUTES; k++)
                memcpy(to + (i * ROUTES + k) * COLS, from + (k * SAMPLES + i) * COLS,
                       (size_t)COLS * sizeof *to);
        best = neo__calibrate_least(best, began);
    }
    return best / (ROUTES * SAMPLES);
}
/* The factors, from the seconds of all these. */
static void neo__calibrate_factors(neo_cluster *c, const neo__calibrate_table *t, double id,
                                   double row) {
    const neo__calibrate_table *wide = &t[0], *narrow = &t[1], *cut = &t[2];
    double bandwidth = c->memory_bandwidth, ids = (double)NEO__CALIBRATE_IDS,
           batch = (double)NEO__CALIBRATE_BATCH, row_bytes = 4.0 * (double)wide->dim;
    double index = 8.0 * ids + 4.0 * batch, bytes = index + row_bytes * (ids + batch),
           few = index + 4.0 * (double)narrow->dim * (ids + batch), least = 1e-3;
    double update = (wide->update - narrow->update) / (bytes - few),
           low = 0.1 * wide->update / bytes;
    if (update < low) update = low;
    neo_calibration *to = &c->calibration;
    to->lookup = wide->lookup * bandwidth / bytes;
    to->update = update * bandwidth;
    to->copy = 1.0;
    to->bucketed = cut->lookup > wide->lookup ? cut->lookup / wide->lookup : 1.0;
    to->sort = (narrow->update - update * few) / ids * bandwidth;
    to->id = id * bandwidth;
    to->row = row * bandwidth - 2.0 * 4.0 * (double)NEO__CALIBRATE_SLICE;
    to->kept = (wide->keep - wide->update) / ids * bandwidth - 2.0 * row_bytes;
    if (to->sort < least) to->sort = least;
    if (to->row < least) to->row = least;
    if (to->kept < least) to->kept = least;
}
static neo_status neo__calibrate_flops(neo_ctx *ctx, double *flops) {
    const int64_t n = NEO__CALIBRATE_EDGE, shape[2] = {n, n};
    neo_tensor t[3];
    neo_status status = NEO_OK;
    double best = 0.0;
    for (int i = 0; i < 3; i++) {
        t[i] = neo_tensor_none();
        if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &t[i]);
        if (status == NEO_OK) status = neo_tensor_zero(ctx, t[i]);
    }
    for (int run = 0; run < NEO__CALIBRATE_RUNS && status == NEO_OK; run++) {
        int64_t began = neo_time_ns();
        status = neo_gemm(ctx, NULL, t[0], t[1], t[2]);
        best = neo__calibrate_least(best, began);
    }
    for (int i = 0; i < 3; i++) neo_tensor_free(ctx, &t[i]);
    if (status == NEO_OK) *flops = 2.0 * (double)n * (double)n * (double)n / best;
    return status;
}
static neo_status neo__calibrate_all(neo__arena *work, neo_cluster *c) {
    neo__calibrate_table t[3] = {{NEO__CALIBRATE_DIM, 0, 1, 0.0, 0.0, 0.0},
                                 {NEO__CALIBRATE_NARROW, 0, 0, 0.0, 0.0, 0.0},
                                 {NEO__CALIBRATE_DIM, NEO__CALIBRATE_BUCKETS, 0, 0.0, 0.0, 0.0}};
    float *memory;
    int64_t *id; /* ids, then offsets */
    NEO__TRY(NEO__ARENA(work, memory, 2 * NEO__CALIBRATE_FLOATS));
    NEO__TRY(NEO__ARENA(work, id, NEO__CALIBRATE_IDS + NEO__CALIBRATE_BATCH + 1));
    for (int64_t i = 0; i < NEO__CALIBRATE_IDS; i++)
        id[i] = neo_zipf(
            neo_random_uniform(1, neo_hash("calibrate"), 0, NEO_STREAM_USER, (uint64_t)i),
            NEO__CALIBRATE_ROWS, 1.15f);
    for (int64_t i = 0; i <= NEO__CALIBRATE_BATCH; i++)
        id[NEO__CALIBRATE_IDS + i] = i * NEO__CALIBRATE_POOLING;
    c->memory_bandwidth = neo__calibrate_copy(work->ctx, memory);
    NEO__TRY(neo__calibrate_flops(work->ctx, &c->flops));
    double seconds_row = neo__calibrate_row(memory, memory + NEO__CALIBRATE_FLOATS),
           seconds_id = neo__calibrate_id(id, (int32_t *)(void *)memory);
    for (int i = 0; i < 3; i++) NEO__TRY(neo__calibrate_bags(work->ctx, id, &t[i]));
    neo__calibrate_factors(c, t, seconds_id, seconds_row);
    return NEO_OK;
}
NEO_API neo_status neo_calibrate(neo_ctx *ctx, neo_cluster *cluster) {
    NEO__CHECK(ctx && cluster, NEO_ERR_ARG, "neo_calibrate: an argument is NULL");
    NEO__ZERO(neo__arena, work);
    neo_cluster found = *cluster;
    work.ctx = ctx;
    work.function = "neo_calibrate";
    neo_status status = neo__calibrate_all(&work, &found);
    neo__arena_free(&work);
    if (status == NEO_OK) *cluster = found;
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-map

   What follows from a plan, the same on every rank.

   A part is what a rank holds of a table as one table of its neo_bags: a piece of the plan, or,
   where a piece has some of several row buckets, one subtree of them, so that its pooled sum is a
   node of the table's tree. A flow is the ids of one feature inside one range of rows; a rank gets
   each flow that one of its parts needs once. A route is the pooled rows of one part for one
   feature: `cols` columns of the rows that its rank sends, or, backward, gets. The routes of a rank
   are its parts by its features, in order, and stand one beside the other in a matrix of `width`
   columns with one row per sample.
   ------------------------------------------------------------------------ */
typedef struct neo__shard_part {
    int32_t table, rank;
    int64_t first_row, rows, first_col, cols;
    int64_t number; /* its place in the tree over parts of the same columns: its first bucket */
    int inside;    /* its columns are several pieces, all in one node of several: added there */
    int64_t place; /* in parts */
    int64_t first_slice, end_slice; /* in cuts: those of the same rows; none unless it is one */
} neo__shard_part;
typedef struct neo__shard_flow {
    int32_t feature;
    int32_t source; /* of a flow that a rank gets: where it is among those that a sender makes */
    int64_t copies; /* of a source: ranks that get it */
    int64_t first_row, rows;
    int64_t column; /* lengths before its own, for each sample, of those that its rank gets */
} neo__shard_flow;
typedef struct neo__shard_route {
    int32_t feature, rank, part;
    int32_t flow;      /* of its rank's */
    int64_t place;     /* in routes */
    int64_t col, cols; /* in the rows of its rank */
    int64_t coded[2];  /* bytes of coded rows before it, per sample: forward, backward */
    int64_t out_col;   /* in the rows of the user */
    int64_t number;    /* as its part's */
    neo_wire wire[2];  /* forward, backward. Partial sums travel as f32: their sum is rounded */
} neo__shard_route;
/* Sums that the ranks of a node make of their inside routes: a slice for one feature. */
typedef struct neo__shard_mid {
    int32_t feature;
    int64_t col, cols; /* in the rows of its node */
    int64_t coded[2];  /* bytes of coded rows before it, per sample */
    int64_t out_col;
    int64_t first, end; /* its routes, in pull */
} neo__shard_mid;
/* Columns and bytes that a rank sends of a sample (and, backward, gets), or a node of its sums. */
typedef struct neo__shard_rank {
    int64_t first_inside;          /* of its routes: the inside ones are the last */
    int64_t width, direct;         /* columns of its routes; of those that are not inside */
    int64_t columns;               /* lengths that it gets */
    int64_t coded[2], coded_at[2]; /* bytes of direct routes on each wire; of all ranks before */
} neo__shard_rank;
typedef struct neo__shard_node {
    int64_t first; /* of mids */
    int64_t width;
    int64_t coded[2], coded_at[2];
} neo__shard_node;

typedef struct neo__shard_map {
    int ranks;
    int32_t table_count, feature_count;
    int32_t *feature_table;
    int32_t *first_feature, *table_features; /* features by table */
    int64_t *feature_col;                    /* [features + 1]: in out */
    neo_table_desc *tables;
    neo_bags_desc desc; /* of all, on these tables */
    double *ids_per_sample, crowding;
    neo_wire wire[2];   /* forward, backward */
    neo_dtype id_dtype; /* on the wire */
    int pipeline, weighted, cut_rounds;
    int kept_batches; /* of which gradients may be kept */
    int weight_grad;  /* gradients of per-id weights may be asked for */
    int none;         /* NEO_POOL_NONE: rows travel, one for each id */
    int late;         /* then, with f32 backward: MEAN divides gradients where the rows are */
    int nodes, per_node; /* ranks of a node; nodes is 1 if they are not alike */
    int64_t part_count, route_count, flow_count, source_count, replica_count, mid_count;
    neo__shard_part *parts;   /* by rank, table, column, row */
    neo__shard_flow *flows;   /* by rank, feature, row */
    neo__shard_flow *sources; /* by feature, row */
    int64_t *first_source;    /* [features + 1]: none of a data-parallel table */
    neo__shard_route *routes; /* by rank, part, feature */
    neo__shard_route *pull;   /* routes by column of out and place in the tree */
    neo__shard_part *cuts;    /* see neo__shard_map_cuts */
    int64_t cut_count;
    int32_t *replicas;                              /* features of data-parallel tables, by table */
    int64_t *part_begin, *flow_begin, *route_begin; /* [ranks + 1] */
    neo__shard_rank *at_rank; /* [ranks] */
    neo__shard_node *at_node; /* [nodes + 1] */
    neo__shard_mid *mids;     /* by node, and out_col */
    int32_t *mean_row;        /* [features]: its place among those of MEAN tables; -1: of others */
    int32_t mean_count;
    int64_t list_blocks, list_parts; /* of the lists that are alike on all ranks */
    size_t bytes;
    neo_ctx *ctx;
} neo__shard_map;

/* The group on which ranks tell each other numbers in host memory: below a group over NCCL. */
static neo_status neo__fsdp_host_group(neo_comm **comm, const char *fn) {
    int devices = neo_comm_place(*comm) == NEO_DEVICE;
    NEO__CHECK(
        !devices || neo_ctx_device(neo_comm_ctx(*comm)), NEO_ERR_ARG,
        "%s: comm is a group of devices, but its context has none (neo_comm_desc.open_device)", fn);
    *comm = neo_comm_host(*comm);
    NEO__CHECK(neo_comm_place(*comm) == NEO_HOST, NEO_ERR_ARG,
               "%s: comm is of neo_comm_split_device: give the group that was split", fn);
    return NEO_OK;
}
/* Memory of a known size. */
typedef struct neo__buffer {
    void *data;
    size_t bytes;
} neo__buffer;
/* A buffer as a tensor of bytes, where the context computes. */
static neo_tensor neo__buffer_tensor(neo_ctx *ctx, const neo__buffer *b) {
    neo_tensor t = neo_tensor_1d(b->data, NEO_U8, (int64_t)b->bytes);
    t.place = neo_ctx_device(ctx) ? NEO_DEVICE : NEO_HOST;
    return t;
}
/* Allocate it there; no memory for no bytes. */
static neo_status neo__buffer_take(neo_ctx *ctx, neo__buffer *b, size_t bytes) {
    neo_tensor t;
    int64_t count = (int64_t)bytes;
    if (bytes == 0) return NEO_OK;
    NEO__TRY(neo_tensor_alloc(ctx, NEO_U8, 1, &count, &t));
    b->data = t.data;
    b->bytes = bytes;
    return NEO_OK;
}
static void neo__buffer_give_back(neo_ctx *ctx, neo__buffer *b) {
    neo_tensor t = neo__buffer_tensor(ctx, b);
    if (b->data) neo_tensor_free(ctx, &t);
    b->data = NULL;
}
/* memcpy and memset, of nothing too: then there may be no memory at all. */
static void neo__shard_copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}
static void neo__shard_fill(void *to, int byte, size_t bytes) {
    if (bytes) memset(to, byte, bytes);
}
/* The next bytes as a text: a format with a name in it. */
static const char *neo__carve_text(neo__carve *carve, const char *format, const char *name) {
    size_t bytes = (size_t)snprintf(NULL, 0, format, name) + 1;
    char *text;
    NEO__CARVE(carve, text, bytes);
    if (text) snprintf(text, bytes, format, name);
    return text;
}
/* The arrays and texts of a map, behind it. */
static size_t neo__shard_map_layout(neo__shard_map *m, char *block, const neo_bags_desc *d) {
    neo__carve carve = {block, (sizeof *m + 63) & ~(size_t)63}, *c = &carve;
    int64_t ranks = m->ranks;
    NEO__CARVE(c, m->feature_table, m->feature_count);
    NEO__CARVE(c, m->first_feature, m->table_count + 1);
    NEO__CARVE(c, m->table_features, m->feature_count);
    NEO__CARVE(c, m->feature_col, m->feature_count + 1);
    NEO__CARVE(c, m->ids_per_sample, m->feature_count);
    NEO__CARVE(c, m->tables, m->table_count);
    NEO__CARVE(c, m->parts, m->part_count);
    NEO__CARVE(c, m->flows, m->flow_count);
    NEO__CARVE(c, m->sources, m->flow_count);
    NEO__CARVE(c, m->first_source, m->feature_count + 1);
    NEO__CARVE(c, m->routes, m->route_count);
    NEO__CARVE(c, m->pull, m->route_count);
    NEO__CARVE(c, m->cuts, m->part_count);
    NEO__CARVE(c, m->replicas, m->feature_count);
    NEO__CARVE(c, m->mean_row, m->feature_count);
    NEO__CARVE(c, m->part_begin, ranks + 1);
    NEO__CARVE(c, m->flow_begin, ranks + 1);
    NEO__CARVE(c, m->route_begin, ranks + 1);
    NEO__CARVE(c, m->at_rank, ranks);
    NEO__CARVE(c, m->at_node, m->nodes + 1);
    NEO__CARVE(c, m->mids, m->mid_count);
    m->desc.name = neo__carve_text(c, "%s", d->name ? d->name : "bags");
    for (int32_t t = 0; t < m->table_count; t++) {
        const char *name = neo__carve_text(c, "%s", d->tables[t].name);
        if (name) m->tables[t].name = name;
    }
    return c->at;
}

/* ---- parts ---- */
/* The widest subtree of the tree over n leaves that begins at `first` and ends by `end`: where it
   ends. */
static int64_t neo__shard_subtree_end(int64_t n, int64_t first, int64_t end) {
    int64_t to = first + 1;
    for (int64_t p = 2; first % p == 0; p *= 2) {
        int64_t stop = first + p < n ? first + p : n;
        if (stop > end) break;
        to = stop;
        if (stop == n) break;
    }
    return to;
}
typedef struct neo__leaf_run { int first, count; } neo__leaf_run; /* leaves, or pieces */
/* The leaves of a rank, cut in maximal subtrees, or in runs of `each` leaves if that is not 0.
   Returns how many; to may be NULL. */
static int neo__cut_leaves(int shards, int ranks, int rank, int each, neo__leaf_run *to) {
    int64_t at = neo_leaf_begin(shards, ranks, rank), end = neo_leaf_begin(shards, ranks, rank + 1);
    int count = 0;
    for (int64_t stop; at < end; at = stop, count++) {
        stop = each ? at + each : neo__shard_subtree_end(shards, at, end);
        if (to) to[count].first = (int)at, to[count].count = (int)(stop - at);
    }
    return count;
}
/* The parts of a piece, to `to` if that is not NULL; returns how many. place: of the piece among
   those of the same columns. */
static int64_t neo__shard_cut_piece(const neo_table_desc *t, const neo_piece *piece, int64_t place,
                                    int inside, neo__shard_part *to) {
    const int64_t buckets = t->row_buckets, end_row = piece->first_row + piece->rows;
    int64_t count = 0;
    NEO__ZERO(neo__shard_part, part);
    part.table = piece->table;
    part.rank = piece->rank;
    part.first_row = piece->first_row;
    part.rows = piece->rows;
    part.first_col = piece->first_col;
    part.cols = piece->cols;
    part.number = place;
    part.inside = inside;
    if (buckets <= 1 || piece->rows >= t->rows || t->pooling == NEO_POOL_NONE) { /* no sums */
        if (to) *to = part;
        return 1;
    }
    int64_t first = neo__bucket_of(t->rows, buckets, piece->first_row);
    int64_t end = neo__bucket_of(t->rows, buckets, end_row - 1) + 1;
    /* buckets without rows may make a wider subtree */
    while (first > 0 && neo__bucket_begin(t->rows, buckets, first - 1) == piece->first_row) first--;
    while (end < buckets && neo__bucket_begin(t->rows, buckets, end + 1) == end_row) end++;
    for (int64_t stop; first < end; first = stop) {
        stop = neo__shard_subtree_end(buckets, first, end);
        part.number = first;
        part.first_row = neo__bucket_begin(t->rows, buckets, first);
        part.rows = neo__bucket_begin(t->rows, buckets, stop) - part.first_row;
        if (part.rows == 0) continue;
        if (to) to[count] = part;
        count++;
    }
    return count;
}

/* A slice of a table: the pieces [begin, end) of the same columns. */
static int neo__shard_same_slice(const neo_piece *a, const neo_piece *b) {
    return a->table == b->table && a->first_col == b->first_col;
}
static int64_t neo__shard_slice_begin(const neo_piece *pieces, int64_t i) {
    while (i > 0 && neo__shard_same_slice(&pieces[i - 1], &pieces[i])) i--;
    return i;
}
static int64_t neo__shard_slice_end(const neo_piece *pieces, int64_t count, int64_t i) {
    while (i + 1 < count && neo__shard_same_slice(&pieces[i], &pieces[i + 1])) i++;
    return i + 1;
}
/* Whether the slice of piece i is several pieces, all in one node of several. */
static int neo__shard_is_inside(const neo__shard_map *m, const neo_piece *pieces, int64_t count,
                                int64_t i) {
    int64_t first = neo__shard_slice_begin(pieces, i);
    int64_t end = neo__shard_slice_end(pieces, count, i);
    for (int64_t k = first; k < end; k++)
        if (pieces[k].rank / m->per_node != pieces[i].rank / m->per_node) return 0;
    return m->nodes > 1 && !m->none && end - first > 1;
}
static int neo__shard_part_order(const void *x, const void *y) {
    const neo__shard_part *a = (const neo__shard_part *)x, *b = (const neo__shard_part *)y;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->table != b->table) return a->table < b->table ? -1 : 1;
    if (a->first_col != b->first_col) return a->first_col < b->first_col ? -1 : 1;
    return a->first_row < b->first_row ? -1 : a->first_row > b->first_row;
}
static int neo__shard_flow_order(const void *x, const void *y) {
    const neo__shard_flow *a = (const neo__shard_flow *)x, *b = (const neo__shard_flow *)y;
    if (a->feature != b->feature) return a->feature < b->feature ? -1 : 1;
    return a->first_row < b->first_row ? -1 : a->first_row > b->first_row;
}
/* Sorted flows, each once; returns how many. */
static int64_t neo__shard_unique_flows(neo__shard_flow *flows, int64_t count) {
    int64_t to = 0;
    if (count > 0) qsort(flows, (size_t)count, sizeof *flows, neo__shard_flow_order);
    for (int64_t i = 0; i < count; i++)
        if (to == 0 || neo__shard_flow_order(&flows[to - 1], &flows[i]) != 0)
            flows[to++] = flows[i];
    return to;
}
static int64_t neo__shard_find_flow(const neo__shard_flow *flows, int64_t count, int32_t feature,
                                    int64_t first_row) {
    neo__shard_flow key;
    key.feature = feature;
    key.first_row = first_row;
    int64_t first = 0;
    for (int64_t end = count; end - first > 1;) {
        int64_t mid = (first + end) / 2;
        if (neo__shard_flow_order(&flows[mid], &key) <= 0) first = mid;
        else end = mid;
    }
    return first;
}

/* Every table is looked up by some feature. */
static neo_status neo__shard_check_features(const neo_bags_desc *d) {
    for (int32_t t = 0; t < d->table_count && d->feature_table; t++) {
        int32_t f = 0;
        while (f < d->feature_count && d->feature_table[f] != t) f++;
        NEO__CHECK(f < d->feature_count, NEO_ERR_UNSUPPORTED,
                   "neo_shard: table '%s' has no feature", d->tables[t].name);
    }
    return NEO_OK;
}
/* Every slice of columns of a table is cut in the same rows. */
static neo_status neo__shard_check_grid(const neo_bags_desc *d, const neo_piece *p, int64_t count) {
    for (int64_t i = 0, slice = 0; i < count; i++) {
        const neo_table_desc *t = &d->tables[p[i].table];
        NEO__CHECK(t->pooling != NEO_POOL_NONE || p[i].cols == t->dim, NEO_ERR_UNSUPPORTED,
                   "neo_shard: table '%s' of NEO_POOL_NONE is cut by columns: rows travel whole",
                   t->name);
        if (i > 0 && p[i].table != p[i - 1].table) slice = i;
        int64_t begin = neo__shard_slice_begin(p, i);
        const neo_piece *like = &p[slice + i - begin];
        NEO__CHECK(like < p + neo__shard_slice_end(p, count, slice) &&
                       like->first_row == p[i].first_row && like->rows == p[i].rows &&
                       p[i].cols == p[begin].cols,
                   NEO_ERR_UNSUPPORTED,
                   "neo_shard: table '%s': the columns from %" PRId64
                   " are not cut at the same rows as the first",
                   d->tables[p[i].table].name, p[i].first_col);
    }
    return NEO_OK;
}

/* ---- the map of a plan ---- */

/* As many rows as a neo_bags can keep, of those that would be. */
static int64_t neo__shard_most_kept(double rows) {
    return rows < (double)(INT32_MAX - 1) ? (int64_t)rows : INT32_MAX - 1;
}
/* The caller's description, with tables and names of the map. */
static void neo__shard_map_describe(neo__shard_map *m, const neo_bags_desc *d) {
    const char *name = m->desc.name;
    m->desc = *d;
    m->desc.name = name;
    m->desc.tables = m->tables;
    m->desc.max_kept_rows = neo__shard_most_kept((double)m->kept_batches * (double)d->max_ids);
    m->desc.feature_table = m->feature_table;
    m->desc.feature_count = m->feature_count;
    for (int32_t t = 0; t < m->table_count; t++) {
        name = m->tables[t].name;
        m->tables[t] = d->tables[t];
        m->tables[t].name = name;
        if (m->none) m->tables[t].row_buckets = 0; /* nothing is summed */
    }
}
static void neo__shard_map_features(neo__shard_map *m, const neo_plan_desc *desc) {
    const neo_bags_desc *d = desc->bags;
    double even = (double)d->max_ids / ((double)d->max_batch * (double)m->feature_count);
    m->feature_col[0] = 0;
    for (int32_t f = 0; f < m->feature_count; f++) {
        m->feature_table[f] = d->feature_table ? d->feature_table[f] : f;
        m->feature_col[f + 1] = m->feature_col[f] + d->tables[m->feature_table[f]].dim;
        m->ids_per_sample[f] = desc->ids_per_sample ? desc->ids_per_sample[f] : even;
        m->first_feature[m->feature_table[f] + 1]++;
        m->mean_row[f] =
            m->tables[m->feature_table[f]].pooling == NEO_POOL_MEAN ? m->mean_count++ : -1;
    }
    for (int32_t t = 0; t < m->table_count; t++) m->first_feature[t + 1] += m->first_feature[t];
    for (int32_t f = 0; f < m->feature_count; f++)
        m->table_features[m->first_feature[m->feature_table[f]]++] = f;
    for (int32_t t = m->table_count; t > 0; t--) m->first_feature[t] = m->first_feature[t - 1];
    m->first_feature[0] = 0;
}
static void neo__shard_map_parts(neo__shard_map *m, const neo_piece *pieces, int64_t count) {
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (pieces[i].rank == NEO_EVERY_RANK) continue;
        n += neo__shard_cut_piece(&m->tables[pieces[i].table], &pieces[i],
                                  i - neo__shard_slice_begin(pieces, i),
                                  neo__shard_is_inside(m, pieces, count, i), m->parts + n);
    }
    if (n > 0) qsort(m->parts, (size_t)n, sizeof *m->parts, neo__shard_part_order);
    m->replica_count = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t t = pieces[i].table;
        for (int32_t q = m->first_feature[t];
             pieces[i].rank == NEO_EVERY_RANK && q < m->first_feature[t + 1]; q++)
            m->replicas[m->replica_count++] = m->table_features[q];
    }
}
/* One route more, of a part and a feature of its table. */
static void neo__shard_map_route(neo__shard_map *m, int rank, int64_t p, int32_t feature) {
    const neo__shard_part *part = &m->parts[p];
    neo__shard_rank *at = &m->at_rank[rank];
    neo__shard_route *r = &m->routes[m->route_count++];
    neo__shard_flow *flow = &m->flows[m->flow_count++];
    r->feature = feature;
    r->rank = rank;
    r->part = (int32_t)p;
    r->place = m->route_count - 1;
    r->col = at->width;
    r->cols = part->cols;
    r->out_col = m->feature_col[feature] + part->first_col;
    r->number = part->number;
    r->wire[0] = part->rows < m->tables[part->table].rows && !m->none ? NEO_WIRE_F32 : m->wire[0];
    r->wire[1] = m->wire[1];
    at->width += part->cols;
    for (int i = 0; i < 2; i++) {
        r->coded[i] = at->coded[i];
        if (!part->inside) at->coded[i] += (int64_t)neo_wire_row_bytes(r->wire[i], part->cols);
    }
    flow->feature = feature;
    flow->copies = flow->column = 0;
    flow->first_row = part->first_row;
    flow->rows = part->rows;
}
/* Gradients of the feature travel undivided, and with them the lengths of its whole bags. */
NEO__INLINE int neo__shard_is_late(const neo__shard_map *m, int32_t feature) {
    return m->late && m->tables[m->feature_table[feature]].pooling == NEO_POOL_MEAN;
}
NEO__INLINE int64_t neo__shard_inside_cols(const neo__shard_map *m, int rank) {
    return m->at_rank[rank].width - m->at_rank[rank].direct;
}
/* The routes and flows of a rank: direct ones first. */
static void neo__shard_map_rank(neo__shard_map *m, int rank) {
    int64_t first = m->route_count, first_flow = m->flow_count;
    neo__shard_flow *flows = m->flows + first_flow;
    neo__shard_rank *at = &m->at_rank[rank];
    m->flow_begin[rank] = first_flow;
    m->route_begin[rank] = first;
    for (int inside = 0; inside < 2; inside++) {
        at->first_inside = m->route_count;
        at->direct = at->width;
        for (int64_t p = m->part_begin[rank]; p < m->part_begin[rank + 1]; p++) {
            int32_t t = m->parts[p].table;
            for (int32_t q = m->first_feature[t];
                 q < m->first_feature[t + 1] && m->parts[p].inside == inside; q++)
                neo__shard_map_route(m, rank, p, m->table_features[q]);
        }
    }
    int64_t count = neo__shard_unique_flows(flows, m->flow_count - first_flow);
    for (int64_t i = first; i < m->route_count; i++)
        m->routes[i].flow = (int32_t)neo__shard_find_flow(flows, count, m->routes[i].feature,
                                                          m->parts[m->routes[i].part].first_row);
    m->flow_count = first_flow + count;
    for (int64_t i = 0; i < count; i++) {
        flows[i].column = at->columns;
        at->columns += 1 + neo__shard_is_late(m, flows[i].feature);
    }
}
static void neo__shard_map_sources(neo__shard_map *m) {
    neo__shard_copy(m->sources, m->flows, (size_t)m->flow_count * sizeof *m->sources);
    m->source_count = neo__shard_unique_flows(m->sources, m->flow_count);
    for (int64_t u = 0, f = 0; f < m->feature_count; m->first_source[++f] = u)
        while (u < m->source_count && m->sources[u].feature == f) u++;
    for (int64_t i = 0; i < m->flow_count; i++) {
        int64_t u = neo__shard_find_flow(m->sources, m->source_count, m->flows[i].feature,
                                         m->flows[i].first_row);
        m->flows[i].source = (int32_t)u;
        m->sources[u].copies++;
    }
}
/* Parts of tables that are cut by columns and step by sums along whole rows, by table, row, column:
   the slices of the same rows stand together. */
static int neo__shard_cut_order(const void *x, const void *y) {
    const neo__shard_part *a = (const neo__shard_part *)x, *b = (const neo__shard_part *)y;
    if (a->table != b->table) return a->table < b->table ? -1 : 1;
    if (a->first_row != b->first_row) return a->first_row < b->first_row ? -1 : 1;
    return a->first_col < b->first_col ? -1 : a->first_col > b->first_col;
}
static int neo__shard_is_cut(const neo__shard_map *m, const neo__shard_part *part) {
    const neo_table_desc *t = &m->tables[part->table];
    return part->cols < t->dim && neo_bag_cut_rounds(&t->optim) > 0;
}
static void neo__shard_map_cuts(neo__shard_map *m) {
    for (int64_t p = 0; p < m->part_count; p++) {
        m->parts[p].place = p;
        if (!neo__shard_is_cut(m, &m->parts[p])) continue;
        int rounds = neo_bag_cut_rounds(&m->tables[m->parts[p].table].optim);
        m->cut_rounds = NEO__MAX(m->cut_rounds, rounds);
        m->cuts[m->cut_count++] = m->parts[p];
    }
    if (m->cut_count > 0)
        qsort(m->cuts, (size_t)m->cut_count, sizeof *m->cuts, neo__shard_cut_order);
    for (int64_t i = 0, end = 0; i < m->cut_count; i = end) {
        while (end < m->cut_count && m->cuts[end].table == m->cuts[i].table &&
               m->cuts[end].first_row == m->cuts[i].first_row)
            end++;
        for (int64_t k = i; k < end; k++) {
            m->parts[m->cuts[k].place].first_slice = i;
            m->parts[m->cuts[k].place].end_slice = end;
        }
    }
}
/* 1: `rank` holds a slice of the same rows as `part`. */
static int neo__shard_shares_rows(const neo__shard_map *m, const neo__shard_part *part, int rank) {
    int64_t i = part->first_slice;
    while (i < part->end_slice && m->cuts[i].rank != rank) i++;
    return i < part->end_slice;
}
static int neo__shard_pull_order(const void *x, const void *y) {
    const neo__shard_route *a = (const neo__shard_route *)x, *b = (const neo__shard_route *)y;
    if (a->out_col != b->out_col) return a->out_col < b->out_col ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}
/* The routes in pull that bring the same columns as route i: up to the end. */
static int64_t neo__shard_pull_end(const neo__shard_map *m, int64_t i) {
    int64_t end = i + 1;
    while (end < m->route_count && m->pull[end].out_col == m->pull[i].out_col) end++;
    return end;
}
/* The sums that nodes make. */
static void neo__shard_map_mids(neo__shard_map *m) {
    m->mid_count = 0;
    for (int node = 0; node < m->nodes; node++) {
        neo__shard_node *at = &m->at_node[node];
        at->first = m->mid_count;
        for (int64_t i = 0; i < m->route_count; i = neo__shard_pull_end(m, i)) {
            const neo__shard_route *r = &m->pull[i];
            if (!m->parts[r->part].inside || r->rank / m->per_node != node) continue;
            neo__shard_mid *mid = &m->mids[m->mid_count++];
            mid->feature = r->feature;
            mid->col = at->width;
            mid->cols = r->cols;
            mid->out_col = r->out_col;
            mid->first = i;
            mid->end = neo__shard_pull_end(m, i);
            at->width += r->cols;
            for (int w = 0; w < 2; w++) {
                mid->coded[w] = at->coded[w];
                at->coded[w] += (int64_t)neo_wire_row_bytes(m->wire[w], r->cols);
            }
        }
        for (int w = 0; w < 2; w++) at[1].coded_at[w] = at->coded_at[w] + at->coded[w];
    }
    m->at_node[m->nodes].first = m->mid_count;
}
static void neo__shard_count_lists(neo__shard_map *m); /* >>impl-shard-rows */
static void neo__shard_map_fill(neo__shard_map *m, const neo_plan_desc *desc,
                                const neo_piece *pieces, int64_t count) {
    neo__shard_map_describe(m, desc->bags);
    neo__shard_map_features(m, desc);
    neo__shard_map_parts(m, pieces, count);
    int64_t part = 0;
    m->route_count = m->flow_count = 0;
    for (int r = 0; r < m->ranks; r++) {
        m->part_begin[r] = part;
        while (part < m->part_count && m->parts[part].rank == r) part++;
        m->part_begin[r + 1] = part;
        neo__shard_map_rank(m, r);
        for (int i = 0; i < 2 && r > 0; i++)
            m->at_rank[r].coded_at[i] = m->at_rank[r - 1].coded_at[i] + m->at_rank[r - 1].coded[i];
    }
    m->flow_begin[m->ranks] = m->flow_count;
    m->route_begin[m->ranks] = m->route_count;
    neo__shard_map_sources(m);
    neo__shard_copy(m->pull, m->routes, (size_t)m->route_count * sizeof *m->pull);
    if (m->route_count > 0)
        qsort(m->pull, (size_t)m->route_count, sizeof *m->pull, neo__shard_pull_order);
    neo__shard_map_cuts(m);
    neo__shard_map_mids(m);
    neo__shard_count_lists(m);
}
static void neo__shard_map_destroy(neo__shard_map *m) { neo_free(m->ctx, m, m->bytes); }

/* Count everything, before there is memory for it. */
static void neo__shard_map_measure(neo__shard_map *m, const neo_plan_desc *desc,
                                     const neo_piece *pieces, int64_t count) {
    const neo_bags_desc *d = desc->bags;
    int32_t per_node = desc->cluster.ranks_per_node;
    m->ranks = desc->cluster.ranks;
    m->per_node = per_node > 0 && m->ranks % per_node == 0 ? per_node : m->ranks;
    m->nodes = m->ranks / m->per_node;
    m->table_count = d->table_count;
    m->feature_count = d->feature_table ? d->feature_count : d->table_count;
    m->wire[0] = desc->wire_forward;
    m->wire[1] = desc->wire_backward;
    m->id_dtype = NEO_I32;
    m->pipeline = desc->pipeline;
    m->weighted = desc->weighted;
    m->kept_batches = desc->kept_batches;
    m->weight_grad = desc->weight_grad;
    m->none = d->tables[0].pooling == NEO_POOL_NONE;
    m->crowding = desc->crowding > 0.0 ? desc->crowding : 1.25;
    for (int32_t t = 0; t < d->table_count; t++) {
        if (d->tables[t].rows > (int64_t)INT32_MAX + 1) m->id_dtype = NEO_I64;
        if (d->tables[t].pooling == NEO_POOL_MEAN && m->wire[1] == NEO_WIRE_F32)
            m->late = m->weight_grad;
    }
    m->part_count = m->route_count = 0;
    for (int64_t i = 0; i < count; i++) {
        if (pieces[i].rank == NEO_EVERY_RANK) continue;
        const neo_table_desc *t = &d->tables[pieces[i].table];
        int64_t parts = neo__shard_cut_piece(t, &pieces[i], 0, 0, NULL),
                features = d->feature_table ? 0 : 1;
        for (int32_t f = 0; d->feature_table && f < d->feature_count; f++)
            features += d->feature_table[f] == pieces[i].table;
        m->part_count += parts;
        m->route_count += parts * features;
    }
    m->flow_count = m->route_count;
    m->mid_count = m->nodes > 1 ? m->route_count : 0;
}
static neo_status neo__shard_map_create(neo_ctx *ctx, const neo_plan *plan, neo__shard_map **out) {
    NEO__ZERO(neo__shard_map, sizes);
    int64_t count = 0;
    const neo_plan_desc *desc = neo_plan_desc_of(plan);
    const neo_piece *pieces = neo_plan_pieces(plan, &count);
    *out = NULL;
    NEO__TRY(neo__shard_check_features(desc->bags));
    NEO__TRY(neo__shard_check_grid(desc->bags, pieces, count));
    neo__shard_map_measure(&sizes, desc, pieces, count);
    sizes.ctx = ctx;
    sizes.bytes = neo__shard_map_layout(&sizes, NULL, desc->bags);
    neo__shard_map *m = (neo__shard_map *)neo__alloc_for(ctx, sizes.bytes, "neo_shard: map");
    if (!m) return NEO_ERR_MEMORY;
    neo__shard_fill((void *)m, 0, sizes.bytes);
    *m = sizes;
    neo__shard_map_layout(m, (char *)m, desc->bags);
    neo__shard_map_fill(m, desc, pieces, count);
    *out = m;
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-shard

   Pooled rows and their gradients are a matrix, `local`: one row per sample of the global batch,
   with the columns of this rank's routes. neo_bags pools into it and steps by it. Ranks hold
   consecutive samples, so the rows that go to a rank are consecutive. See >>impl-shard-rows for
   their way, >>impl-shard-ids for that of ids.

   A neo_shard is made of parts: its groups, two batches, and a struct for each thing below. A part
   has its sizes, which follow from the map and the rank (neo__shard_measure), then its arrays,
   which are carved from one block (neo__shard_layout), or buffers that grow when a batch has more
   ids than planned (neo__shard_growing).
   ------------------------------------------------------------------------ */
typedef enum neo__shard_stage {
    NEO__SHARD_EMPTY,
    NEO__SHARD_LENGTHS, /* are on their way */
    NEO__SHARD_IDS,     /* are on their way */
    NEO__SHARD_READY
} neo__shard_stage;
/* A batch whose ids travel, or are here. */
typedef struct neo__shard_batch {
    neo__shard_stage stage;
    neo_jagged batch; /* of the caller */
    int64_t global, asked; /* samples of all ranks; 0 if what was asked for cannot be */
    neo__kept_error error; /* of the check of this rank's batch */
    neo_ticket ticket;
    int64_t *start;   /* [ranks + 1]: first sample of each rank */
    int64_t *sent;    /* [sources]: ids of this rank's batch */
    int64_t *offsets; /* of local */
    int32_t *whole;   /* [flows][samples]: see neo__shard_is_late */
    neo__buffer ids[2]; /* and weights */
    neo_jagged local; /* for this rank's neo_bags */
} neo__shard_batch;

/* Ids between ranks: see >>impl-shard-ids. */
typedef struct neo__shard_exchange {
    int64_t flows, routes; /* of this rank */
    int64_t columns;       /* lengths per sample, of all ranks */
    int64_t own_ids, out_ids, in_ids, route_ids; /* that the plan expects */
    int64_t *counts;                             /* [4][ranks]: of the exchange that is begun */
    int32_t *lengths_out, *lengths_in, *source_lengths;
    int64_t *cursor;  /* [sources]: where the next id goes */
    int64_t *out_at;  /* [flows of all ranks + 1]: where the ids of a flow are in ids_out */
    int64_t *in_at;   /* [ranks][flows]: and in ids_in */
    neo__buffer out[2], in[2]; /* ids, weights */
} neo__shard_exchange;

/* Lists of work on the rows of a matrix (see >>impl-shard-rows): first those that encode, with what
   a wire does to the numbers measured; then others that encode; then those that decode. */
typedef enum neo__shard_list {
    NEO__SHARD_SEND,        /* local to coded_local */
    NEO__SHARD_CROSS,       /* mid_out to mid_coded_out */
    NEO__SHARD_RETURN,      /* dout to coded_remote */
    NEO__SHARD_RETURN_SUMS, /* dout to mid_coded_in */
    NEO__SHARD_COPIES_BACK, /* dout to copies */
    NEO__SHARD_COPIES_RAW,  /* the same, undivided */
    NEO__SHARD_SPREAD,      /* mid_out to inside_in */
    NEO__SHARD_TAKE,        /* coded_remote to out */
    NEO__SHARD_TAKE_SUMS,   /* mid_coded_in to out */
    NEO__SHARD_COPIES,      /* copies to out */
    NEO__SHARD_JOIN,        /* inside_in to mid_out */
    NEO__SHARD_GET,         /* coded_local to local */
    NEO__SHARD_GET_SUMS,    /* mid_coded_out to mid_out */
    NEO__SHARD_DIVIDE,      /* local to local: gradients that are divided here */
    NEO__SHARD_LISTS
} neo__shard_list;
/* Pooled rows between ranks, in memory of the device if on_device: see >>impl-shard-rows and
   >>impl-shard-nodes. */
typedef struct neo__shard_pooled {
    int on_device;
    int64_t width, inside;               /* columns of this rank's routes; of its inside routes */
    int64_t coded_bytes, remote_bytes;   /* per sample: of this rank's rows; of all ranks' */
    int64_t place, peers_inside, mid;    /* samples, columns: see >>impl-shard-nodes */
    int64_t mid_bytes, mids_bytes;       /* per sample: of the sums of its node; of all nodes' */
    int64_t blocks, parts;               /* of all lists */
    int64_t list[NEO__SHARD_LISTS + 1];  /* list i has blocks [list[i], list[i + 1]) */
    neo__buffer memory;                  /* of the device; without one these are in work */
    float *local, *inside_out, *inside_in, *mid_out, *copies;
    char *coded_local, *coded_remote, *mid_coded_out, *mid_coded_in;
    int32_t *lengths; /* [mean features][samples of this rank] */
    neo__rows_block *block;
    neo__rows_part *part;
    int32_t *host_lengths; /* lengths, in host memory */
} neo__shard_pooled;

/* Data-parallel tables: see >>impl-shard-copies. */
typedef struct neo__shard_copies {
    int64_t features, width, ids, rows, floats, most_rows, subtrees, marks;
    int64_t *offsets;
    int64_t *at; /* [tables][2]: a table's first number in dense, first row in touched */
    float *dense, *dense_sum;
    unsigned char *touched, *parked;
    int64_t *row;
    neo__buffer ids_of[2]; /* of a batch: ids, weights */
} neo__shard_copies;

/* Block sums of tables cut by columns: see >>impl-shard-cut. */
typedef struct neo__shard_cutting {
    int64_t out_floats, in_floats;
    int own_rounds, round; /* rounds that this rank asks for; done in this step */
    neo__buffer out, in;
} neo__shard_cutting;

/* Gradients that are kept: see >>impl-shard-keep. */
typedef struct neo__shard_kept {
    int64_t rows, parts;
    int64_t *ids; /* [parts]: of the batches that are kept */
    int batches;
    int torn; /* a part of what is kept has not been scaled or cleared with the rest */
} neo__shard_kept;

/* Numbers that travel for each id: rows of NEO_POOL_NONE, gradients of weights. */
typedef struct neo__shard_per_id {
    int64_t sources, routes, pairs;
    int64_t *next;          /* [sources]: of what has come, the next of a source */
    int64_t *in_at;         /* [routes]: where that of a route begins */
    int64_t *out_at;        /* [ranks][routes of this rank]: where what leaves begins */
    int64_t dim, row_bytes; /* of NEO_POOL_NONE: a row, on the wider wire; else 0 */
    neo__buffer local, out, in, copies;
    int64_t grads_out, grads_in, room; /* floats: see >>impl-shard-weights */
    float *row;                        /* [threads][columns] */
    neo__buffer grad_out, grad_in;
} neo__shard_per_id;

/* Between a device and host memory: see >>impl-shard-device. */
typedef struct neo__shard_bounce {
    int64_t shown_floats, grad_floats, there_floats;
    neo__buffer shown, shown_grads;
    neo__buffer there; /* of the device */
} neo__shard_bounce;

typedef enum neo__shard_phase {
    NEO__SHARD_IDLE,
    NEO__SHARD_FORWARD, /* begun */
    NEO__SHARD_FORWARDED,
    NEO__SHARD_BACKWARD /* begun */
} neo__shard_phase;

struct neo_shard {
    neo_ctx *ctx;
    neo__shard_map *map;
    int rank, slots;
    int whole;             /* one rank, f32 wires: bags has all tables, and nothing is moved */
    int64_t share;         /* most samples of this rank */
    neo_comm *ids, *rows;  /* groups of its own: lengths and ids; all else */
    neo_comm *moves;       /* pooled rows and their gradients: of devices, or `rows` */
    neo_comm *node, *cross; /* ranks of the node; at its place in all nodes; NULL: none add */
    neo_bags *bags, *replicas; /* of the parts here; of data-parallel tables; or NULL */
    neo__shard_phase phase;
    int current; /* batch of the running step */
    neo__shard_batch batches[2];
    neo_tensor dout; /* of the caller, between backward_begin and backward_end */
    int came;        /* then: all gradients of pooled rows are here */
    neo_ticket ticket, move_ticket, cross_ticket;
    neo__shard_exchange exchange;
    neo__shard_pooled pooled;
    neo__shard_copies copies;
    neo__shard_cutting cutting;
    neo__shard_kept kept;
    neo__shard_per_id per_id;
    neo__shard_bounce bounce;
    int made; /* from here on memory that is asked for is counted as growth */
    int64_t steps, grow_count;
    int64_t out_of_range; /* since the last reset; whole: less those of `bags` until then */
    neo_wire_stats wire_stats[2];
    char *work; /* the arrays of all parts, but those of pooled that are on a device */
    size_t work_bytes;
};

/* ---- sizes ---- */
static int64_t neo__shard_share(int64_t batch, int leaves, int ranks, int rank) {
    int64_t mine = neo_leaf_begin(leaves, ranks, rank + 1) - neo_leaf_begin(leaves, ranks, rank);
    return (batch * mine + leaves - 1) / leaves;
}
static int64_t neo__shard_expect(double ids_per_sample, int64_t samples) {
    double x = ids_per_sample * (double)samples;
    int64_t n = (int64_t)x;
    return n + ((double)n < x);
}
/* Ids of a feature in this rank's samples, with some to spare. */
static int64_t neo__shard_expect_own(const neo_shard *s, int32_t feature) {
    return neo__shard_expect(s->map->ids_per_sample[feature] * 1.25, s->share);
}
/* Ids of a feature in a batch that lie in a range of rows: its even share, and some more where ids
   crowd. */
static int64_t neo__shard_expect_rows(const neo__shard_map *m, int32_t feature, int64_t rows) {
    double all = (double)m->tables[m->feature_table[feature]].rows,
           part = m->crowding * (double)rows / all;
    if ((double)rows >= all || part > 1.0) part = 1.0;
    return neo__shard_expect(m->ids_per_sample[feature] * part, m->desc.max_batch);
}
static void neo__shard_size_exchange(neo_shard *s) {
    const neo__shard_map *m = s->map;
    neo__shard_exchange *x = &s->exchange;
    const int64_t first_flow = m->flow_begin[s->rank], first_route = m->route_begin[s->rank];
    x->flows = m->flow_begin[s->rank + 1] - first_flow;
    x->routes = m->route_begin[s->rank + 1] - first_route;
    for (int r = 0; r < m->ranks; r++) x->columns += m->at_rank[r].columns;
    for (int32_t f = 0; f < m->feature_count; f++) {
        int64_t ids = neo__shard_expect_own(s, f), copies = 0;
        for (int64_t u = m->first_source[f]; u < m->first_source[f + 1]; u++)
            copies = NEO__MAX(copies, m->sources[u].copies);
        x->own_ids += copies ? ids : 0;
        x->out_ids += copies * ids;
    }
    for (const neo__shard_flow *f = m->flows + first_flow; f < m->flows + first_flow + x->flows;
         f++)
        x->in_ids += neo__shard_expect_rows(m, f->feature, f->rows);
    for (const neo__shard_route *r = m->routes + first_route;
         r < m->routes + first_route + x->routes; r++)
        x->route_ids += neo__shard_expect_rows(m, r->feature, m->parts[r->part].rows);
}
static void neo__shard_size_copies(neo_shard *s, int leaves) {
    const neo__shard_map *m = s->map;
    neo__shard_copies *c = &s->copies;
    c->features = m->replica_count;
    c->subtrees = neo__cut_leaves(leaves, m->ranks, s->rank, 0, NULL);
    for (int64_t i = 0; i < m->replica_count; i++) {
        int32_t f = m->replicas[i], t = m->feature_table[f];
        const neo_table_desc *table = &m->tables[t];
        c->width += m->none ? 0 : table->dim;
        c->ids += neo__shard_expect_own(s, f);
        if (i > 0 && m->feature_table[m->replicas[i - 1]] == t) continue;
        c->rows += table->rows;
        c->floats += table->rows * table->dim;
        c->most_rows = NEO__MAX(c->most_rows, table->rows);
    }
    c->marks = m->kept_batches ? c->rows : 0;
}
/* Rows of a part that one step can touch, of one batch or of those that are kept. */
static int64_t neo__shard_touches(const neo__shard_map *m, const neo__shard_part *part) {
    int64_t ids = 0, batches = m->kept_batches > 1 ? m->kept_batches : 1;
    for (int32_t q = m->first_feature[part->table]; q < m->first_feature[part->table + 1]; q++)
        ids += neo__shard_expect_rows(m, m->table_features[q], part->rows);
    int64_t rows = part->rows;
    return ids < rows / batches + 1 && ids * batches < rows ? ids * batches : rows;
}
static void neo__shard_size_kept(neo_shard *s) {
    const neo__shard_map *m = s->map;
    double rows = 0.0;
    if (!m->kept_batches) return;
    for (int64_t p = m->part_begin[s->rank]; p < m->part_begin[s->rank + 1]; p++)
        rows += (double)neo__shard_touches(m, &m->parts[p]);
    s->kept.rows = neo__shard_most_kept(rows > 1.0 ? rows : 1.0);
    s->kept.parts = m->part_begin[s->rank + 1] - m->part_begin[s->rank];
}
/* Floats of block sums of a part in one round, at most: two for each row that a step can touch. */
static int64_t neo__shard_cut_floats(const neo__shard_map *m, const neo__shard_part *part) {
    return 2 * neo__shard_touches(m, part) * ((part->cols + 15) / 16);
}
static void neo__shard_size_cutting(neo_shard *s) {
    const neo__shard_map *m = s->map;
    neo__shard_cutting *c = &s->cutting;
    for (int64_t p = m->part_begin[s->rank]; p < m->part_begin[s->rank + 1]; p++) {
        const neo__shard_part *part = &m->parts[p];
        if (part->first_slice == part->end_slice) continue;
        int64_t mine = part->first_slice;
        while (m->cuts[mine].rank != s->rank) mine++;
        c->own_rounds = NEO__MAX(c->own_rounds, neo_bag_cut_rounds(&m->tables[part->table].optim));
        for (int r = 0; r < m->ranks; r++)
            if (r != s->rank && neo__shard_shares_rows(m, part, r))
                c->out_floats += neo__shard_cut_floats(m, part);
        for (int64_t i = part->first_slice; i < part->end_slice && m->cuts[mine].place == p; i++)
            if (m->cuts[i].rank != s->rank) /* what comes is counted by the first slice here */
                c->in_floats += neo__shard_cut_floats(m, &m->cuts[i]);
    }
}
/* Floats that a part says of an id whose weight has a gradient. */
static int64_t neo__shard_grad_floats(const neo__shard_part *part) {
    return part->first_col ? (part->cols + 15) / 16 : 1;
}
static void neo__shard_size_per_id(neo_shard *s) {
    const neo__shard_map *m = s->map;
    neo__shard_per_id *p = &s->per_id;
    if (!m->weight_grad && !m->none) return;
    p->sources = m->source_count;
    p->routes = m->route_count;
    p->pairs = m->ranks * s->exchange.routes;
    if (m->none) {
        p->dim = m->tables[0].dim;
        p->row_bytes = (int64_t)NEO__MAX(neo_wire_row_bytes(m->wire[0], p->dim),
                                         neo_wire_row_bytes(m->wire[1], p->dim));
    }
    if (!m->weight_grad) return;
    for (int64_t i = 0; i < m->route_count; i++) {
        const neo__shard_part *part = &m->parts[m->routes[i].part];
        int32_t f = m->routes[i].feature;
        int64_t floats = neo__shard_grad_floats(part);
        if (part->first_row == 0) /* all ids of a feature go to the parts of each slice together */
            p->grads_in += floats * neo__shard_expect_own(s, f);
        if (part->rank != s->rank) continue;
        p->grads_out += floats * neo__shard_expect_rows(m, f, part->rows);
        if (m->tables[part->table].dtype != NEO_F32 || neo_ctx_device(m->ctx))
            p->room = NEO__MAX(p->room, part->cols);
    }
    p->room *= neo_ctx_threads(m->ctx);
    p->grads_out = NEO__MAX(p->grads_out, s->copies.ids);
}
/* Bytes of a coded row of a rank, in the wider direction. narrow: on wires other than f32 alone. */
static int64_t neo__shard_coded_bytes(const neo__shard_map *m, int rank, int narrow) {
    int64_t most = 0;
    for (int i = 0; i < 2; i++)
        if (m->wire[i] != NEO_WIRE_F32 || !narrow) most = NEO__MAX(most, m->at_rank[rank].coded[i]);
    return most;
}
static void neo__shard_size_nodes(neo_shard *s, int leaves) {
    const neo__shard_map *m = s->map;
    neo__shard_pooled *p = &s->pooled;
    const int node = s->rank / m->per_node;
    if (m->mid_count == 0) return;
    for (int h = 0; h < m->nodes; h++) {
        const int64_t *coded = m->at_node[h].coded;
        p->place += neo__shard_share(m->desc.max_batch, leaves, m->ranks,
                                     h * m->per_node + s->rank % m->per_node);
        p->mids_bytes += NEO__MAX(coded[0], coded[1]);
        for (int i = 0; i < 2 && h == node; i++) /* an f32 wire takes mid_out as it lies */
            if (m->wire[i] != NEO_WIRE_F32) p->mid_bytes = NEO__MAX(p->mid_bytes, coded[i]);
    }
    p->mid = m->at_node[node].width;
    p->inside = neo__shard_inside_cols(m, s->rank);
    for (int r = node * m->per_node; r < (node + 1) * m->per_node; r++)
        p->peers_inside += neo__shard_inside_cols(m, r);
}
static void neo__shard_size_lists(neo_shard *s); /* >>impl-shard-rows */
static void neo__shard_size_pooled(neo_shard *s, int leaves) {
    const neo__shard_map *m = s->map;
    neo__shard_pooled *p = &s->pooled;
    p->on_device = neo_ctx_device(m->ctx) && !m->none && !m->weight_grad;
    if (m->none) return; /* a row for each id, instead of matrices */
    p->width = m->at_rank[s->rank].width;
    p->coded_bytes = neo__shard_coded_bytes(m, s->rank, m->at_rank[s->rank].direct == p->width);
    for (int r = 0; r < m->ranks; r++) p->remote_bytes += neo__shard_coded_bytes(m, r, 0);
    neo__shard_size_nodes(s, leaves);
    neo__shard_size_lists(s);
}
/* The caller's rows (and gradients of weights) in host memory; the most that the device has of rows
   at a time. */
static void neo__shard_size_bounce(neo_shard *s) {
    const neo__shard_map *m = s->map;
    neo__shard_bounce *b = &s->bounce;
    const int64_t dim = s->per_id.dim, copy_ids = s->copies.ids;
    int64_t ids = 0;
    if (!neo_ctx_device(m->ctx)) return;
    for (int64_t i = 0; i < m->replica_count; i++) {
        const neo_table_desc *t = &m->tables[m->feature_table[m->replicas[i]]];
        b->there_floats = NEO__MAX(b->there_floats, t->rows * t->dim);
    }
    if (s->pooled.on_device) return;
    for (int32_t f = 0; f < m->feature_count; f++) ids += neo__shard_expect_own(s, f);
    b->shown_floats = dim ? ids * dim : s->share * m->feature_col[m->feature_count];
    b->grad_floats = m->weight_grad ? ids : 0;
    const int64_t local = dim ? dim * s->exchange.route_ids : m->desc.max_batch * s->pooled.width;
    const int64_t copies = dim ? dim * copy_ids : s->share * s->copies.width;
    b->there_floats = NEO__MAX(NEO__MAX(b->there_floats, b->shown_floats), local);
    b->there_floats = NEO__MAX(b->there_floats, copies + (m->weight_grad ? copy_ids : 0));
}
/* The sizes of all parts; ctx, map and rank are there. */
static void neo__shard_measure(neo_shard *s, int leaves) {
    const neo__shard_map *m = s->map;
    s->slots = m->pipeline ? 2 : 1;
    s->share = neo__shard_share(m->desc.max_batch, leaves, m->ranks, s->rank);
    neo__shard_size_exchange(s);
    neo__shard_size_copies(s, leaves);
    neo__shard_size_cutting(s);
    neo__shard_size_kept(s);
    neo__shard_size_per_id(s);
    neo__shard_size_pooled(s, leaves);
    neo__shard_size_bounce(s);
}

/* ---- arrays, and buffers that grow ---- */
static void neo__shard_layout_pooled(neo_shard *s, neo__carve *c) {
    neo__shard_pooled *p = &s->pooled;
    const int64_t batch = s->map->desc.max_batch;
    NEO__CARVE(c, p->local, batch * p->width);
    NEO__CARVE(c, p->coded_local, batch * p->coded_bytes);
    NEO__CARVE(c, p->coded_remote, s->share * p->remote_bytes);
    NEO__CARVE(c, p->inside_out, batch * p->inside);
    NEO__CARVE(c, p->inside_in, p->place * p->peers_inside);
    NEO__CARVE(c, p->mid_out, p->place * p->mid);
    NEO__CARVE(c, p->mid_coded_out, p->place * p->mid_bytes);
    NEO__CARVE(c, p->mid_coded_in, s->share * p->mids_bytes);
    NEO__CARVE(c, p->copies, s->share * s->copies.width);
    NEO__CARVE(c, p->lengths, s->map->mean_count * s->share);
    NEO__CARVE(c, p->block, p->blocks);
    NEO__CARVE(c, p->part, p->parts);
}
static void neo__shard_layout(neo_shard *s, neo__carve *c) {
    const neo__shard_map *m = s->map;
    const int64_t ranks = m->ranks, batch = m->desc.max_batch;
    neo__shard_exchange *x = &s->exchange;
    neo__shard_copies *d = &s->copies;
    neo__shard_per_id *p = &s->per_id;
    NEO__CARVE(c, x->counts, 4 * ranks);
    NEO__CARVE(c, x->lengths_out, ranks + x->columns * s->share);
    NEO__CARVE(c, x->lengths_in, ranks + m->at_rank[s->rank].columns * batch);
    NEO__CARVE(c, x->source_lengths, m->source_count * s->share);
    NEO__CARVE(c, x->cursor, m->source_count);
    NEO__CARVE(c, x->out_at, m->flow_count + 1);
    NEO__CARVE(c, x->in_at, ranks * x->flows + 1);
    for (int i = 0; i < s->slots; i++) {
        NEO__CARVE(c, s->batches[i].start, ranks + 1);
        NEO__CARVE(c, s->batches[i].sent, m->source_count);
        NEO__CARVE(c, s->batches[i].offsets, x->routes * batch + 1);
        NEO__CARVE(c, s->batches[i].whole, m->late ? x->flows * batch : 0);
    }
    NEO__CARVE(c, d->offsets, d->features * s->share + 1);
    NEO__CARVE(c, d->at, 2 * d->features);
    NEO__CARVE(c, d->dense, d->subtrees * d->floats);
    NEO__CARVE(c, d->dense_sum, d->floats);
    NEO__CARVE(c, d->touched, d->rows);
    NEO__CARVE(c, d->row, d->most_rows);
    NEO__CARVE(c, d->parked, d->marks);
    NEO__CARVE(c, s->kept.ids, s->kept.parts);
    NEO__CARVE(c, p->next, p->sources);
    NEO__CARVE(c, p->in_at, p->routes);
    NEO__CARVE(c, p->out_at, p->pairs);
    NEO__CARVE(c, p->row, p->room);
    if (s->pooled.on_device) {
        NEO__CARVE(c, s->pooled.host_lengths, m->mean_count * s->share);
        return;
    }
    neo__shard_layout_pooled(s, c);
    s->pooled.host_lengths = s->pooled.lengths;
}
static neo_status neo__shard_reserve(neo_shard *s, neo__buffer *b, int64_t count,
                                     size_t size) {
    size_t bytes = (size_t)count * size;
    if (bytes <= b->bytes) return NEO_OK;
    void *p = neo__pinned_alloc(s->ctx, bytes);
    NEO__CHECK(p, NEO_ERR_MEMORY, "neo_shard: no memory for %zu bytes of ids", bytes);
    if (s->made) s->grow_count++;
    neo__pinned_free(s->ctx, b->data, b->bytes);
    b->data = p;
    b->bytes = bytes;
    return NEO_OK;
}
/* Every buffer that grows, and what the plan expects of it, in elements. */
enum { NEO__SHARD_BUFFERS = 20 };
typedef struct neo__shard_demand {
    neo__buffer *buffer;
    int64_t count;
    size_t size;
} neo__shard_demand;
static void neo__shard_growing(neo_shard *s, neo__shard_demand out[NEO__SHARD_BUFFERS]) {
    const size_t id = neo_dtype_size(s->map->id_dtype),
                 weight = s->map->weighted ? sizeof(float) : 0;
    neo__shard_exchange *x = &s->exchange;
    neo__shard_per_id *p = &s->per_id;
    neo__shard_batch *b = s->batches;
    const int64_t next_ids = s->slots > 1 ? x->route_ids : 0;
    const neo__shard_demand all[] = {
        {&x->out[0], x->out_ids, id},
        {&x->out[1], x->out_ids, weight},
        {&x->in[0], x->in_ids, id},
        {&x->in[1], x->in_ids, weight},
        {&b[0].ids[0], x->route_ids, id},
        {&b[0].ids[1], x->route_ids, weight},
        {&b[1].ids[0], next_ids, id},
        {&b[1].ids[1], next_ids, weight},
        {&s->copies.ids_of[0], s->copies.ids, sizeof(int64_t)},
        {&s->copies.ids_of[1], s->copies.ids, weight},
        {&s->cutting.out, s->cutting.out_floats, sizeof(float)},
        {&s->cutting.in, s->cutting.in_floats, sizeof(float)},
        {&p->local, p->dim * x->route_ids, sizeof(float)},
        {&p->out, p->row_bytes * x->route_ids, 1},
        {&p->in, p->row_bytes * x->own_ids, 1},
        {&p->copies, p->dim * s->copies.ids, sizeof(float)},
        {&p->grad_out, p->grads_out, sizeof(float)},
        {&p->grad_in, p->grads_in, sizeof(float)},
        {&s->bounce.shown, s->bounce.shown_floats, sizeof(float)},
        {&s->bounce.shown_grads, s->bounce.grad_floats, sizeof(float)},
    };
    NEO__STATIC_ASSERT(sizeof all / sizeof *all == NEO__SHARD_BUFFERS, "each buffer once");
    memcpy(out, all, sizeof all);
}
static neo_status neo__shard_cut_sums(void *user, const neo_cut_sums *cuts,
                                      int32_t count); /* >>impl-shard-cut */
static neo_status neo__shard_there(neo_shard *s, int64_t floats); /* >>impl-shard-device */
static neo_status neo__shard_make_lists(neo_shard *s); /* >>impl-shard-rows */

/* ---- create ---- */

/* This rank's parts as tables of a neo_bags, and their routes as its features. */
static neo_status neo__shard_local_desc(const neo_shard *s, neo__arena *arena, neo_bags_desc *d) {
    const neo__shard_map *m = s->map;
    const int64_t first = m->part_begin[s->rank], n = m->part_begin[s->rank + 1] - first;
    neo_table_desc *tables;
    int32_t *feature_table;
    NEO__TRY(NEO__ARENA(arena, tables, n));
    NEO__TRY(NEO__ARENA(arena, feature_table, s->exchange.routes));
    *d = m->desc;
    for (int64_t i = 0; i < n; i++) {
        const neo__shard_part *part = &m->parts[first + i];
        neo_table_desc *t = &tables[i];
        *t = m->tables[part->table];
        t->weight = NULL;
        if (!m->none) t->pooling = NEO_POOL_SUM; /* MEAN is divided by where samples are */
        t->part.rows = t->rows;
        t->part.dim = t->dim;
        t->part.first_row = part->first_row;
        t->part.first_col = part->first_col;
        t->rows = part->rows;
        t->dim = part->cols;
    }
    for (int64_t i = 0; i < s->exchange.routes; i++)
        feature_table[i] = (int32_t)(m->routes[m->route_begin[s->rank] + i].part - first);
    d->tables = tables;
    d->table_count = (int32_t)n;
    d->feature_table = feature_table;
    d->feature_count = (int32_t)s->exchange.routes;
    d->max_ids = NEO__MAX(s->exchange.route_ids, (int64_t)1);
    d->max_kept_rows = s->kept.rows;
    d->bounds = NEO_BOUNDS_ERROR; /* the senders have dropped or clamped */
    d->cut_sums = neo__shard_cut_sums;
    d->cut_sums_user = (void *)(uintptr_t)s;
    return NEO_OK;
}
/* The data-parallel tables likewise, for this rank's samples. */
static neo_status neo__shard_copies_desc(const neo_shard *s, neo__arena *arena, neo_bags_desc *d) {
    const neo__shard_map *m = s->map;
    neo_table_desc *tables;
    int32_t *feature_table, n = 0;
    NEO__TRY(NEO__ARENA(arena, tables, s->copies.features));
    NEO__TRY(NEO__ARENA(arena, feature_table, s->copies.features));
    *d = m->desc;
    for (int64_t i = 0; i < s->copies.features; i++) {
        int32_t t = m->feature_table[m->replicas[i]];
        if (i == 0 || m->feature_table[m->replicas[i - 1]] != t) {
            tables[n] = m->tables[t];
            tables[n].weight = NULL;
            if (!m->none) tables[n].pooling = NEO_POOL_SUM;
            n++;
        }
        feature_table[i] = n - 1;
    }
    d->tables = tables;
    d->table_count = n;
    d->feature_table = feature_table;
    d->feature_count = (int32_t)s->copies.features;
    d->max_batch = NEO__MAX(s->share, (int64_t)1);
    d->max_ids = NEO__MAX(s->copies.ids, (int64_t)1);
    d->max_kept_rows = s->copies.rows;
    return NEO_OK;
}
/* Both, in memory of the arena; table_count 0: this rank has none. */
static neo_status neo__shard_descs(const neo_shard *s, neo__arena *arena, neo_bags_desc d[2]) {
    NEO__TRY(neo__shard_local_desc(s, arena, &d[0]));
    return neo__shard_copies_desc(s, arena, &d[1]);
}
/* One rank with nothing to round: the tables as they are. */
static int neo__shard_is_whole(const neo__shard_map *m) {
    return m->ranks == 1 && m->wire[0] == NEO_WIRE_F32 && m->wire[1] == NEO_WIRE_F32;
}
static neo_status neo__shard_add_bytes(neo_ctx *ctx, const neo_bags_desc *d,
                                       neo_shard_memory *memory) {
    neo_bags_memory bags;
    NEO__TRY(neo_bags_bytes(ctx, d, &bags));
    memory->weight_bytes += bags.weight_bytes;
    memory->state_bytes += bags.state_bytes;
    memory->workspace_bytes += bags.workspace_bytes;
    return NEO_OK;
}
static neo_status neo__shard_map_bytes(neo_ctx *ctx, neo__shard_map *m, int rank,
                                       neo_shard_memory *memory) {
    neo_bags_desc d[2];
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_shard"};
    NEO__ZERO(neo__carve, work);
    NEO__ZERO(neo_shard, s);
    neo__shard_fill(memory, 0, sizeof *memory);
    memory->exchange_bytes = sizeof s + m->bytes;
    if (neo__shard_is_whole(m)) return neo__shard_add_bytes(ctx, &m->desc, memory);
    s.ctx = ctx;
    s.map = m;
    s.rank = rank;
    neo__shard_measure(&s, NEO__MAX(neo_ctx_repro_shards(ctx), m->ranks));
    neo__shard_layout(&s, &work);
    if (s.pooled.on_device) neo__shard_layout_pooled(&s, &work);
    memory->exchange_bytes += work.at + (size_t)s.bounce.there_floats * sizeof(float);
    neo__shard_growing(&s, growing);
    for (int i = 0; i < NEO__SHARD_BUFFERS; i++)
        memory->exchange_bytes += (size_t)growing[i].count * growing[i].size;
    neo_status status = neo__shard_descs(&s, &arena, d);
    for (int i = 0; i < 2 && status == NEO_OK; i++)
        if (d[i].table_count) status = neo__shard_add_bytes(ctx, &d[i], memory);
    neo__arena_free(&arena);
    return status;
}
/* The memory of all ranks: each [ranks]. NEO_ERR_UNSUPPORTED: a neo_shard cannot place the plan. */
static neo_status neo__shard_plan_bytes(neo_ctx *ctx, const neo_plan *plan,
                                        neo_shard_memory *each) {
    neo__shard_map *m;
    NEO__TRY(neo__shard_map_create(ctx, plan, &m));
    neo_status status = NEO_OK;
    for (int r = 0; r < m->ranks && status == NEO_OK; r++)
        status = neo__shard_map_bytes(ctx, m, r, &each[r]);
    neo__shard_map_destroy(m);
    return status;
}
NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank,
                                   neo_shard_memory *memory) {
    neo__shard_map *m;
    NEO__CHECK(ctx && plan && memory, NEO_ERR_ARG, "neo_shard_bytes: an argument is NULL");
    NEO__CHECK(rank >= 0 && rank < neo_plan_desc_of(plan)->cluster.ranks, NEO_ERR_ARG,
               "neo_shard_bytes: rank %d of %d", rank, neo_plan_desc_of(plan)->cluster.ranks);
    NEO__TRY(neo__shard_map_create(ctx, plan, &m));
    neo_status status = neo__shard_map_bytes(ctx, m, rank, memory);
    neo__shard_map_destroy(m);
    return status;
}

NEO_API void neo_shard_destroy(neo_shard *s) {
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    if (!s) return;
    if (s->moves != s->rows) neo_comm_destroy(s->moves);
    neo_comm_destroy(s->ids);
    neo_comm_destroy(s->rows);
    neo_comm_destroy(s->node);
    neo_comm_destroy(s->cross);
    neo_bags_destroy(s->bags);
    neo_bags_destroy(s->replicas);
    neo__pinned_free(s->ctx, s->work, s->work_bytes);
    neo__buffer_give_back(s->ctx, &s->bounce.there);
    neo__buffer_give_back(s->ctx, &s->pooled.memory);
    if (s->map) {
        neo__shard_growing(s, growing);
        for (int i = 0; i < NEO__SHARD_BUFFERS; i++)
            neo__pinned_free(s->ctx, growing[i].buffer->data, growing[i].buffer->bytes);
        neo__shard_map_destroy(s->map);
    }
    neo_free(s->ctx, s, sizeof *s);
}

/* Arrays, buffers and lists. */
static neo_status neo__shard_make_work(neo_shard *s) {
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    NEO__ZERO(neo__carve, carve);
    neo__shard_measure(s, neo_ctx_repro_shards(s->ctx));
    neo__shard_layout(s, &carve);
    s->work_bytes = carve.at;
    s->work = carve.block = (char *)neo__pinned_alloc(s->ctx, s->work_bytes);
    NEO__CHECK(s->work, NEO_ERR_MEMORY, "neo_shard_create: no memory for %zu bytes", s->work_bytes);
    carve.at = 0;
    neo__shard_layout(s, &carve);
    neo__shard_fill(s->kept.ids, 0, (size_t)s->kept.parts * sizeof *s->kept.ids);
    neo__shard_growing(s, growing);
    for (int i = 0; i < NEO__SHARD_BUFFERS; i++)
        NEO__TRY(neo__shard_reserve(s, growing[i].buffer, growing[i].count, growing[i].size));
    NEO__TRY(neo__shard_there(s, s->bounce.there_floats));
    return neo__shard_make_lists(s);
}
static neo_status neo__shard_make_bags(neo_shard *s) {
    neo_bags_desc d[2];
    neo_bags **bags[] = {&s->bags, &s->replicas};
    neo__arena arena = {s->ctx, NULL, NULL, 0, "neo_shard_create"};
    neo_status status = neo__shard_descs(s, &arena, d);
    for (int i = 0; i < 2 && status == NEO_OK; i++)
        if (d[i].table_count) status = neo_bags_create(s->ctx, &d[i], bags[i]);
    neo__arena_free(&arena);
    return status;
}
/* All that needs no other rank. *out may be made in part where it fails. */
static neo_status neo__shard_make(neo_comm *comm, const neo_plan *plan, neo_shard **out) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    int ranks = neo_comm_size(comm), planned = neo_plan_desc_of(plan)->cluster.ranks;
    NEO__CHECK(planned == ranks, NEO_ERR_ARG,
               "neo_shard_create: the plan is for %d ranks, the group has %d", planned, ranks);
    NEO__CHECK(neo_ctx_repro_shards(ctx) >= ranks, NEO_ERR_ARG,
               "neo_shard_create: repro_shards is %d: it must be at least the %d ranks",
               neo_ctx_repro_shards(ctx), ranks);
    neo_shard *s = *out = (neo_shard *)neo__alloc_for(ctx, sizeof *s, "neo_shard_create");
    if (!s) return NEO_ERR_MEMORY;
    neo__shard_fill((void *)s, 0, sizeof *s);
    s->ctx = ctx;
    s->rank = neo_comm_rank(comm);
    NEO__TRY(neo__shard_map_create(ctx, plan, &s->map));
    s->whole = neo__shard_is_whole(s->map);
    if (s->whole) return neo_bags_create(ctx, &s->map->desc, &s->bags);
    NEO__TRY(neo__shard_make_work(s));
    return neo__shard_make_bags(s);
}
/* Things that must be alike on all ranks, each as a number: an error says which of them is not. */
enum { NEO__ALIKE_THINGS = 10 };
typedef struct neo__alike {
    uint64_t mark[NEO__ALIKE_THINGS];
    const char *other[NEO__ALIKE_THINGS]; /* what is said where it differs */
    int count;
} neo__alike;
/* The mark of one more thing, to be hashed into; NEO__ALIKE_THINGS at most. */
static uint64_t *neo__alike_add(neo__alike *a, const char *other, uint64_t word) {
    a->other[a->count] = other;
    a->mark[a->count] = word;
    return &a->mark[a->count++];
}
static void neo__alike_numbers(uint64_t *mark, const double *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, &x[i], sizeof word);
        *mark = neo__plan_hash(*mark, word);
    }
}
static neo_status neo__alike_check(neo_comm *comm, const neo__alike *a, const char *fn) {
    uint64_t first[NEO__ALIKE_THINGS];
    memcpy(first, a->mark, sizeof first);
    NEO__TRY(neo_comm_broadcast(comm, first, a->count, NEO_I64, 0, NULL));
    int i = 0;
    while (i < a->count && first[i] == a->mark[i]) i++;
    neo_status status = NEO_OK;
    if (i < a->count) status = neo_fail(NEO_ERR_MISMATCH, "%s: %s", fn, a->other[i]);
    return neo_comm_agree(comm, status);
}
static void neo__shard_mark_table(uint64_t *mark, const neo_table_desc *d) {
    const neo_bag_optim *o = &d->optim;
    const double numbers[] = {
        (double)d->pooling,    (double)d->row_buckets,   (double)d->dtype,     (double)o->kind,
        (double)d->init.kind,  (double)d->round_nearest, (double)o->decay,     (double)d->init.a,
        (double)d->init.b,     (double)o->weight_decay,  (double)o->eps,       (double)o->momentum,
        (double)o->eta,        (double)o->lr_scale,      (double)o->max_norm,  o->beta1,
        (double)o->clip_gradient, (double)o->initial_accumulator,              o->beta2};
    *mark = neo__plan_hash(*mark, neo_hash(d->name));
    neo__alike_numbers(mark, numbers, sizeof numbers / sizeof *numbers);
}
static neo_status neo__shard_check_alike(neo_comm *comm, const neo__shard_map *m,
                                         const neo_plan *plan) {
    const neo_ctx *ctx = neo_comm_ctx(comm);
    NEO__ZERO(neo__alike, alike);
    neo__alike *const a = &alike;
    neo__alike_add(a, "a device on this rank or on rank 0 alone: all have one, or none",
                   neo_ctx_device(ctx) != NULL);
    neo__alike_add(a, "another seed of the context than rank 0", neo_ctx_seed(ctx));
    neo__alike_add(a, "other repro_shards of the context than rank 0",
                   (uint64_t)neo_ctx_repro_shards(ctx));
    uint64_t *mark = neo__alike_add(a, "other bags than rank 0: name, bounds or max_batch",
                                    neo_hash(m->desc.name));
    *mark = neo__plan_hash(*mark, (uint64_t)m->desc.bounds);
    *mark = neo__plan_hash(*mark, (uint64_t)m->desc.max_batch);
    mark = neo__alike_add(a, "other tables of features than rank 0", (uint64_t)m->feature_count);
    for (int32_t f = 0; f < m->feature_count; f++)
        *mark = neo__plan_hash(*mark, (uint64_t)m->feature_table[f]);
    mark = neo__alike_add(
        a, "other tables than rank 0: names, dtypes, pooling, initial values or optimizers",
        (uint64_t)m->table_count);
    for (int32_t t = 0; t < m->table_count; t++) neo__shard_mark_table(mark, &m->tables[t]);
    mark = neo__alike_add(a, "other wires than rank 0", (uint64_t)m->wire[0]);
    *mark = neo__plan_hash(*mark, (uint64_t)m->wire[1]);
    const double options[] = {(double)m->pipeline, (double)m->weighted, (double)m->weight_grad,
                              (double)m->kept_batches, (double)m->per_node};
    mark = neo__alike_add(
        a, "another pipeline, weighted, weight_grad, kept_batches or ranks_per_node than rank 0",
        0);
    neo__alike_numbers(mark, options, sizeof options / sizeof *options);
    neo__alike_add(
        a,
        "another plan than rank 0: of tables of other rows or columns, or of other figures (what "
        "neo_calibrate measures differs: broadcast rank 0's)",
        neo_plan_digest(plan));
    return neo__alike_check(comm, a, "neo_shard_create");
}
/* Groups of its own; data: the one that was given, of devices if it is over NCCL. */
static neo_status neo__shard_split(neo_shard *s, neo_comm *comm, neo_comm *data) {
    int rank = neo_comm_rank(comm), per_node = s->map->per_node;
    neo_comm *from = s->pooled.on_device ? data : comm;
    neo_status (*split)(neo_comm *, int, int, neo_comm **) =
        s->pooled.on_device ? neo_comm_split_device : neo_comm_split;
    NEO__TRY(neo_comm_split(comm, 0, rank, &s->ids));
    NEO__TRY(neo_comm_split(comm, 0, rank, &s->rows));
    s->moves = s->rows;
    if (s->pooled.on_device) NEO__TRY(split(from, 0, rank, &s->moves));
    if (!s->map->mid_count) return NEO_OK;
    NEO__TRY(split(from, rank / per_node, rank, &s->node));
    return split(from, rank % per_node, rank, &s->cross);
}
NEO_API neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan, neo_shard **out) {
    NEO__CHECK(comm && plan && out, NEO_ERR_ARG, "neo_shard_create: an argument is NULL");
    neo_comm *data = comm;
    *out = NULL;
    NEO__TRY(neo__fsdp_host_group(&comm, "neo_shard_create"));
    neo_shard *s = NULL;
    neo_status status = neo_comm_agree(comm, neo__shard_make(comm, plan, &s));
    if (status == NEO_OK) status = neo__shard_check_alike(comm, s->map, plan);
    if (status == NEO_OK && !s->whole) status = neo__shard_split(s, comm, data);
    if (status != NEO_OK) {
        neo_shard_destroy(s);
        return status;
    }
    s->made = 1;
    *out = s;
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-ids

   Ids of a batch, from the ranks of the samples to those of the rows. A sender counts its sources,
   the ids of each flow that any rank wants, and puts them where they leave, once for each rank; a
   rank gets for each of its flows the lengths of all bags, then the ids, and puts those of all
   ranks together, route by route, in order of sample. One batch at a time is between its check and
   NEO__SHARD_READY, so that one exchange serves both batches.
   ------------------------------------------------------------------------ */
static int64_t neo__shard_samples(const neo__shard_batch *b, int rank) {
    return b->start[rank + 1] - b->start[rank];
}
NEO__INLINE int64_t neo__shard_id(const neo_jagged *j, int64_t k) {
    return j->id_dtype == NEO_I32 ? (int64_t)((const int32_t *)j->ids)[k]
                                  : ((const int64_t *)j->ids)[k];
}
static neo_status neo__shard_bad_id(const neo_shard *s, const neo__shard_batch *b, int32_t f,
                                    int64_t k) {
    const neo__shard_map *m = s->map;
    const int64_t *offsets = b->batch.offsets + f * b->batch.batch;
    int64_t sample = 0;
    while (offsets[sample + 1] <= k) sample++;
    return neo_fail(NEO_ERR_RANGE,
                    "neo_shard: bags '%s': table '%s' (feature %d), sample %" PRId64
                    ", position %" PRId64 ": id %" PRId64 " is not in [0, %" PRId64 ")",
                    m->desc.name, m->tables[m->feature_table[f]].name, f,
                    b->start[s->rank] + sample, k - offsets[sample],
                    neo__shard_id(&b->batch, k), m->tables[m->feature_table[f]].rows);
}
NEO__HOT_BEGIN
/* Ids of a feature outside its table; *first: one of them. */
static int64_t neo__shard_count_bad(const neo_jagged *j, int32_t f, int64_t rows, int64_t *first) {
    int64_t bad = 0, k = j->offsets[f * j->batch], end = j->offsets[(f + 1) * j->batch];
    for (; k < end; k++) {
        int64_t id = neo__shard_id(j, k);
        if (id >= 0 && id < rows) continue;
        if (bad++ == 0) *first = k;
    }
    return bad;
}
static int64_t neo__shard_sum_lengths(const int32_t *lengths, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += lengths[i];
    return sum;
}
/* The row an id stands for; -1: none. */
NEO__INLINE int64_t neo__shard_row(neo_bounds bounds, int64_t rows, int64_t id) {
    if (id >= 0 && id < rows) return id;
    if (bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : rows - 1;
}
/* The source of a feature's row. */
NEO__INLINE int64_t neo__shard_source_of(const neo__shard_map *m, int32_t feature, int64_t row) {
    int64_t first = m->first_source[feature], end = m->first_source[feature + 1];
    while (end - first > 1) {
        int64_t mid = (first + end) / 2;
        if (m->sources[mid].first_row <= row) first = mid;
        else end = mid;
    }
    return first;
}
/* Lengths of the sources of a feature, and their ids in all. */
static void neo__shard_count_sources(neo_shard *s, neo__shard_batch *b, int32_t f) {
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &b->batch;
    const int64_t first = m->first_source[f], end = m->first_source[f + 1];
    const int64_t rows = m->tables[m->feature_table[f]].rows, samples = j->batch;
    const int64_t *offsets = j->offsets + f * samples;
    int32_t *lengths = s->exchange.source_lengths;
    neo__shard_fill(lengths + first * samples, 0,
                    (size_t)((end - first) * samples) * sizeof *lengths);
    for (int64_t i = 0; i < samples && first < end; i++)
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) {
            int64_t row = neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, k));
            if (row >= 0) lengths[neo__shard_source_of(m, f, row) * samples + i]++;
        }
    for (int64_t u = first; u < end; u++)
        b->sent[u] = neo__shard_sum_lengths(lengths + u * samples, samples);
}
/* Ids of a feature that has sources, at their cursors. */
static void neo__shard_place_sources(neo_shard *s, const neo__shard_batch *b, int32_t f) {
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &b->batch;
    const int64_t rows = m->tables[m->feature_table[f]].rows, samples = j->batch;
    const int64_t *offsets = j->offsets + f * samples;
    float *weights = (float *)s->exchange.out[1].data;
    void *ids = s->exchange.out[0].data;
    if (m->first_source[f] == m->first_source[f + 1]) return;
    for (int64_t k = offsets[0]; k < offsets[samples]; k++) {
        int64_t row = neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, k));
        if (row < 0) continue;
        int64_t u = neo__shard_source_of(m, f, row), at = s->exchange.cursor[u]++;
        row -= m->sources[u].first_row;
        if (m->id_dtype == NEO_I32) ((int32_t *)ids)[at] = (int32_t)row;
        else ((int64_t *)ids)[at] = row;
        if (m->weighted) weights[at] = j->weights ? j->weights[k] : 1.0f;
    }
}
/* offsets[1 + i] = the sum of all lengths before and of lengths[i], from `at` on. */
static void neo__shard_sum_offsets(const int32_t *lengths, int64_t count, int64_t at,
                                   int64_t *offsets) {
    for (int64_t i = 0; i < count; i++) offsets[1 + i] = at += lengths[i];
}
/* The lengths of the bags of a flow in all ranges of rows, dropped ids among them. */
static void neo__shard_whole_lengths(const neo_jagged *j, int32_t feature, int32_t *lengths) {
    const int64_t *offsets = j->offsets + feature * j->batch;
    for (int64_t i = 0; i < j->batch; i++) lengths[i] = (int32_t)(offsets[i + 1] - offsets[i]);
}
NEO__HOT_END
/* Ids, and their weights, between two buffers. */
static void neo__shard_copy_ids(const neo__shard_map *m, const neo__buffer to[2],
                                int64_t to_at, const neo__buffer from[2], int64_t from_at,
                                int64_t count) {
    const size_t size = neo_dtype_size(m->id_dtype);
    neo__shard_copy((char *)to[0].data + (size_t)to_at * size,
                    (const char *)from[0].data + (size_t)from_at * size, (size_t)count * size);
    if (m->weighted)
        neo__shard_copy((float *)to[1].data + to_at, (const float *)from[1].data + from_at,
                        (size_t)count * sizeof(float));
}
static neo_status neo__shard_reserve_ids(neo_shard *s, neo__buffer b[2], int64_t count) {
    NEO__TRY(neo__shard_reserve(s, &b[0], count, neo_dtype_size(s->map->id_dtype)));
    return s->map->weighted ? neo__shard_reserve(s, &b[1], count, sizeof(float)) : NEO_OK;
}
/* Ids where they leave. Those of a source are placed where its first flow leaves, and copied to the
   others. */
static neo_status neo__shard_place_ids(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    neo__shard_exchange *x = &s->exchange;
    for (int32_t f = 0; f < m->feature_count; f++) neo__shard_count_sources(s, b, f);
    x->out_at[0] = 0;
    for (int64_t i = 0; i < m->flow_count; i++)
        x->out_at[i + 1] = x->out_at[i] + b->sent[m->flows[i].source];
    for (int64_t i = m->flow_count; i-- > 0;) x->cursor[m->flows[i].source] = x->out_at[i];
    NEO__TRY(neo__shard_reserve_ids(s, x->out, x->out_at[m->flow_count]));
    for (int32_t f = 0; f < m->feature_count; f++) neo__shard_place_sources(s, b, f);
    for (int64_t i = 0; i < m->flow_count; i++) {
        int64_t u = m->flows[i].source, first = x->cursor[u] - b->sent[u];
        if (first != x->out_at[i])
            neo__shard_copy_ids(m, x->out, x->out_at[i], x->out, first, b->sent[u]);
    }
    return NEO_OK;
}
/* First samples of the ranks in a batch. */
static void neo__shard_place_samples(const neo_shard *s, neo__shard_batch *b) {
    int leaves = neo_ctx_repro_shards(s->ctx), ranks = s->map->ranks;
    for (int r = 0; r <= ranks; r++)
        b->start[r] = neo_leaf_begin(b->global, leaves, (int)neo_leaf_begin(leaves, ranks, r));
}
/* This rank's part of a batch, of which it should have `mine` samples. */
static neo_status neo__shard_check_batch(const neo_shard *s, const neo_jagged *j, int64_t global,
                                         int64_t mine) {
    const neo__shard_map *m = s->map;
    NEO__CHECK(global >= 0 && global <= m->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_shard: bags '%s': a batch of %" PRId64 " samples, planned are %" PRId64
               " (max_batch counts those of all ranks)",
               m->desc.name, global, m->desc.max_batch);
    NEO__CHECK(!j->feature_bags, NEO_ERR_UNSUPPORTED,
               "neo_shard: a batch with feature_bags: rows travel sample by sample, of all "
               "features alike; fill up with empty bags");
    NEO__CHECK(j->place == NEO_HOST || s->whole, NEO_ERR_UNSUPPORTED,
               "neo_shard: the batch is in a device's memory: ranks exchange ids in host memory, "
               "as readers give them");
    NEO__CHECK(j->feature_count == m->feature_count, NEO_ERR_SHAPE,
               "neo_shard: the batch has %d features, bags '%s' has %d", j->feature_count,
               m->desc.name, m->feature_count);
    NEO__CHECK(j->batch == mine, NEO_ERR_SHAPE,
               "neo_shard: rank %d has %" PRId64 " samples, its leaves hold %" PRId64
               " of a batch of %" PRId64 " (global_batch) in %d leaves (repro_shards)",
               s->rank, j->batch, mine, global, neo_ctx_repro_shards(s->ctx));
    NEO__CHECK(m->weighted || !j->weights, NEO_ERR_ARG,
               "neo_shard: the batch has weights, the plan's has none (neo_plan_desc.weighted)");
    return neo_jagged_validate(j, NULL);
}
/* Check the batch of this rank, and place its ids. */
static neo_status neo__shard_take_batch(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &b->batch;
    if (b->asked < 0 || b->asked > m->desc.max_batch)
        b->global = 0; /* so that the exchange of the error has room */
    neo__shard_place_samples(s, b);
    NEO__TRY(neo__shard_check_batch(s, j, b->asked, neo__shard_samples(b, s->rank)));
    for (int32_t f = 0; f < m->feature_count && j->batch > 0; f++) {
        int64_t first = -1;
        int64_t bad = neo__shard_count_bad(j, f, m->tables[m->feature_table[f]].rows, &first);
        if (bad > 0 && m->desc.bounds == NEO_BOUNDS_ERROR) return neo__shard_bad_id(s, b, f, first);
        s->out_of_range += bad;
    }
    return neo__shard_place_ids(s, b);
}
/* Check the batch, and send the lengths. What is wrong with it travels as a status. */
static neo_status neo__shard_send_lengths(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    neo__shard_exchange *x = &s->exchange;
    int64_t *out = x->counts, *in = x->counts + m->ranks;
    int32_t *at = x->lengths_out;
    b->error = neo__error_keep(neo__shard_take_batch(s, b));
    const int64_t mine = neo__shard_samples(b, s->rank);
    for (int r = 0; r < m->ranks; r++, at += out[r - 1]) {
        out[r] = 1 + m->at_rank[r].columns * mine;
        in[r] = 1 + m->at_rank[s->rank].columns * neo__shard_samples(b, r);
        at[0] = (int32_t)b->error.status;
        neo__shard_fill(at + 1, 0, (size_t)(out[r] - 1) * sizeof *at);
        if (b->error.status != NEO_OK) continue;
        for (int64_t i = m->flow_begin[r]; i < m->flow_begin[r + 1]; i++) {
            const neo__shard_flow *flow = &m->flows[i];
            int32_t *to = at + 1 + flow->column * mine;
            neo__shard_copy(to, x->source_lengths + flow->source * mine, (size_t)mine * sizeof *to);
            if (neo__shard_is_late(m, flow->feature))
                neo__shard_whole_lengths(&b->batch, flow->feature, to + mine);
        }
    }
    b->stage = NEO__SHARD_LENGTHS;
    return neo_comm_all_to_allv(s->ids, x->lengths_out, out, x->lengths_in, in, NEO_I32,
                                &b->ticket);
}
/* The message of a rank in lengths_in: a status, then its samples' lengths, column by column. */
static const int32_t *neo__shard_message(const neo_shard *s, const neo__shard_batch *b, int rank) {
    return s->exchange.lengths_in + rank + s->map->at_rank[s->rank].columns * b->start[rank];
}
static const int32_t *neo__shard_lengths(const neo_shard *s, const neo__shard_batch *b, int rank,
                                         int64_t column) {
    return neo__shard_message(s, b, rank) + 1 + column * neo__shard_samples(b, rank);
}
/* Any rank's error becomes everyone's. */
static neo_status neo__shard_agree(neo_shard *s, neo__shard_batch *b) {
    int bad = 0;
    for (int r = 0; r < s->map->ranks; r++) bad |= *neo__shard_message(s, b, r) != NEO_OK;
    if (!bad) return NEO_OK;
    b->stage = NEO__SHARD_EMPTY;
    b->error.status = neo_comm_agree(s->ids, neo__error_restore(&b->error));
    return b->error.status;
}
/* Places of the ids of every flow, as they come from each rank; returns how many there are. */
static int64_t neo__shard_place_flows(neo_shard *s, const neo__shard_batch *b, int64_t *in) {
    const neo__shard_map *m = s->map;
    const neo__shard_flow *flow = m->flows + m->flow_begin[s->rank];
    const int64_t flows = s->exchange.flows;
    int64_t total = 0;
    for (int r = 0; r < m->ranks; r++) {
        const int64_t before = total;
        for (int64_t i = 0; i < flows; i++) {
            s->exchange.in_at[r * flows + i] = total;
            total += neo__shard_sum_lengths(neo__shard_lengths(s, b, r, flow[i].column),
                                            neo__shard_samples(b, r));
        }
        in[r] = total - before;
    }
    s->exchange.in_at[m->ranks * flows] = total;
    return total;
}
/* The number of lengths follows from global_batch alone, on which nobody has agreed before. */
static neo_status neo__shard_wait_lengths(neo_shard *s, const neo__shard_batch *b) {
    const neo__kept_error kept = neo__error_keep(neo_comm_wait(s->ids, b->ticket));
    if (kept.status != NEO_ERR_DIVERGED) return kept.status;
    return neo_fail(kept.status,
                    "neo_shard: the ranks do not give the same global_batch, which is %" PRId64
                    " here, or do not begin batches in the same order (%s)",
                    b->asked, kept.text);
}
static neo_status neo__shard_send_ids(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    neo__shard_exchange *x = &s->exchange;
    int64_t *out = x->counts, *in = x->counts + m->ranks;
    NEO__TRY(neo__shard_wait_lengths(s, b));
    NEO__TRY(neo__shard_agree(s, b));
    int64_t in_ids = neo__shard_place_flows(s, b, in);
    for (int r = 0; r < m->ranks; r++)
        out[r] = x->out_at[m->flow_begin[r + 1]] - x->out_at[m->flow_begin[r]];
    NEO__TRY(neo__shard_reserve_ids(s, x->in, in_ids));
    b->stage = NEO__SHARD_IDS;
    NEO__TRY(neo_comm_all_to_allv(s->ids, x->out[0].data, out, x->in[0].data, in, m->id_dtype,
                                  &b->ticket));
    if (!m->weighted) return NEO_OK;
    return neo_comm_all_to_allv(s->ids, x->out[1].data, out, x->in[1].data, in, NEO_F32,
                                &b->ticket);
}
/* Lengths of whole bags, of all ranks, where gradients are to be divided here. */
static void neo__shard_take_whole(const neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const neo__shard_flow *flow = m->flows + m->flow_begin[s->rank];
    for (int64_t i = 0; i < s->exchange.flows; i++)
        for (int r = 0; r < m->ranks && neo__shard_is_late(m, flow[i].feature); r++)
            neo__shard_copy(b->whole + i * b->global + b->start[r],
                            neo__shard_lengths(s, b, r, flow[i].column + 1),
                            (size_t)neo__shard_samples(b, r) * sizeof *b->whole);
}
/* The ids are here: put those of all ranks together, route by route. */
static neo_status neo__shard_take_ids(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const neo__shard_exchange *x = &s->exchange;
    const neo__shard_route *route = m->routes + m->route_begin[s->rank];
    const neo__shard_flow *flow = m->flows + m->flow_begin[s->rank];
    int64_t total = 0;
    NEO__TRY(neo_comm_wait(s->ids, b->ticket));
    for (int64_t i = 0; i < x->routes; i++)
        for (int r = 0; r < m->ranks; r++) {
            const int64_t *at = x->in_at + r * x->flows + route[i].flow;
            total += at[1] - at[0];
        }
    NEO__TRY(neo__shard_reserve_ids(s, b->ids, total));
    total = 0;
    b->offsets[0] = 0;
    for (int64_t i = 0; i < x->routes; i++)
        for (int r = 0; r < m->ranks; r++) {
            const int64_t *at = x->in_at + r * x->flows + route[i].flow;
            neo__shard_copy_ids(m, b->ids, total, x->in, at[0], at[1] - at[0]);
            neo__shard_sum_offsets(neo__shard_lengths(s, b, r, flow[route[i].flow].column),
                                   neo__shard_samples(b, r), total,
                                   b->offsets + i * b->global + b->start[r]);
            total += at[1] - at[0];
        }
    neo__shard_take_whole(s, b);
    b->local.batch = b->global;
    b->local.feature_count = (int32_t)x->routes;
    b->local.id_dtype = m->id_dtype;
    b->local.offsets = b->offsets;
    b->local.ids = b->ids[0].data;
    b->local.weights = m->weighted ? (const float *)b->ids[1].data : NULL;
    b->stage = NEO__SHARD_READY;
    return s->bags ? neo_bags_reserve(s->bags, m->desc.max_batch, total) : NEO_OK;
}
/* The status of a call in the middle of an exchange: a rank that fails tells the others why. */
static neo_status neo__shard_or_abort(neo_shard *s, neo_status status) {
    if (status == NEO_OK) return status;
    const neo__kept_error kept = neo__error_keep(status);
    neo_comm *groups[] = {s->ids, s->rows, s->moves, s->node, s->cross};
    for (int i = 0; i < 5; i++) neo_comm_abort(groups[i], kept.text);
    return neo__error_restore(&kept);
}
/* Bring a batch as far as `stage`. */
static neo_status neo__shard_advance(neo_shard *s, neo__shard_batch *b, neo__shard_stage stage) {
    while (b->stage < stage) {
        neo_status status =
            b->stage == NEO__SHARD_LENGTHS ? neo__shard_send_ids(s, b) : neo__shard_take_ids(s, b);
        if (b->stage == NEO__SHARD_EMPTY) return status; /* a bad batch: everyone knows */
        NEO__TRY(neo__shard_or_abort(s, status));
    }
    return NEO_OK;
}
static neo_status neo__shard_start(neo_shard *s, neo__shard_batch *b, const neo_jagged *batch,
                                   int64_t global) {
    b->batch = *batch;
    b->global = b->asked = global;
    return neo__shard_send_lengths(s, b);
}
/* ---------------------------------------------------------------------------
   >>impl-shard-device

   On contexts with a device a rank's rows and optimizer state are in its device's memory, and
   looked up and stepped there. Pooled rows and their gradients stay there, too (see
   >>impl-shard-rows); what else ranks exchange is in pinned host memory, as without a device:

       ids        reader -> exchange -> batch of this rank's parts (neo_bags takes it to the device)
       copies     of data-parallel tables: sums over leaves -> dense -> all-reduce -> neo_bags
   and with NEO_POOL_NONE or gradients of weights
       forward    neo_bags -> there -> local -> exchange, sums -> shown -> the caller's out
       backward   the caller's dout -> shown -> exchange -> local -> there -> neo_bags

   `there` is device memory, the rest host memory; what a step needs is there from the start. A
   table of gradients of a data-parallel table comes row by row: such tables should be small.
   ------------------------------------------------------------------------ */
/* Room for so many floats on the device; what was there is lost if it grows. */
static neo_status neo__shard_there(neo_shard *s, int64_t floats) {
    neo__buffer more = {NULL, 0}, *there = &s->bounce.there;
    if ((size_t)floats * sizeof(float) <= there->bytes) return NEO_OK;
    NEO__TRY(neo__buffer_take(s->ctx, &more, (size_t)floats * sizeof(float)));
    if (s->made) s->grow_count++;
    neo__buffer_give_back(s->ctx, there);
    *there = more;
    return NEO_OK;
}
/* Dense rows as a tensor of `there`, the first of `more` floats. Those of a device, or without one:
   themselves. */
static neo_status neo__shard_rows_there(neo_shard *s, neo_tensor rows, int64_t more,
                                        neo_tensor *t) {
    int64_t floats = neo_tensor_count(rows);
    *t = rows;
    if (!neo_ctx_device(s->ctx) || rows.place == NEO_DEVICE) return NEO_OK;
    NEO__TRY(neo__shard_there(s, floats + more));
    t->data = floats > 0 ? s->bounce.there.data : NULL;
    t->place = NEO_DEVICE;
    return NEO_OK;
}
/* Dense rows as such a tensor, with their numbers. */
static neo_status neo__shard_take_there(neo_shard *s, neo_tensor rows, int64_t more,
                                        neo_tensor *t) {
    NEO__TRY(neo__shard_rows_there(s, rows, more, t));
    return t->data && t->place != rows.place ? neo_tensor_copy(s->ctx, rows, *t) : NEO_OK;
}
/* Rows of pooled numbers, where they are. */
static neo_tensor neo__shard_matrix(const neo_shard *s, float *rows, int64_t count, int64_t cols) {
    neo_tensor t = neo_tensor_2d(rows, NEO_F32, count, cols);
    if (s->pooled.on_device) t.place = NEO_DEVICE;
    return t;
}
/* neo_bags_forward to rows, wherever they are. */
static neo_status neo__shard_look_up(neo_shard *s, neo_bags *bags, const neo_jagged *j,
                                     neo_tensor rows) {
    neo_tensor t;
    NEO__TRY(neo__shard_rows_there(s, rows, 0, &t));
    NEO__TRY(neo_bags_forward(bags, j, t));
    return t.data && t.place != rows.place ? neo_tensor_copy(s->ctx, t, rows) : NEO_OK;
}
/* n floats from one memory to the other. */
static neo_status neo__shard_move_floats(neo_shard *s, const float *from, neo_place from_place,
                                         float *to, neo_place to_place, int64_t n) {
    neo_tensor a = neo_tensor_1d((void *)(uintptr_t)from, NEO_F32, n);
    neo_tensor b = neo_tensor_1d(to, NEO_F32, n);
    a.place = from_place;
    b.place = to_place;
    return n > 0 ? neo_tensor_copy(s->ctx, a, b) : NEO_OK;
}
/* Stand-ins for the caller's rows in host memory: the rows themselves without a device. */
static neo_status neo__shard_show(neo_shard *s, neo_tensor t, neo_tensor *shown) {
    *shown = t;
    if (!neo_ctx_device(s->ctx) || s->pooled.on_device) return NEO_OK;
    NEO__TRY(neo__shard_reserve(s, &s->bounce.shown, neo_tensor_count(t), sizeof(float)));
    *shown = neo_tensor_2d(s->bounce.shown.data, NEO_F32, t.shape[0], t.shape[1]);
    return NEO_OK;
}
/* From there to the caller (back: from the caller), whose rows need not be dense. */
static neo_status neo__shard_bring(neo_shard *s, neo_tensor shown, neo_tensor t, int back) {
    neo_tensor dense;
    if (shown.data == t.data || neo_tensor_count(t) == 0) return NEO_OK;
    NEO__TRY(neo__shard_rows_there(s, shown, 0, &dense));
    if (!back) NEO__TRY(neo_tensor_copy(s->ctx, shown, dense));
    NEO__TRY(back ? neo_tensor_copy(s->ctx, t, dense) : neo_tensor_copy(s->ctx, dense, t));
    return back ? neo_tensor_copy(s->ctx, dense, shown) : NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-shard-rows

   Pooled rows and their gradients, coded, exchanged, and put where they belong:

       forward    neo_bags -> local -SEND-> coded_local => coded_remote -TAKE-> out
                  copies -COPIES-> out
       backward   dout -RETURN-> coded_remote => coded_local -GET-> local -> neo_bags
                  dout -COPIES_BACK-> copies

   What is done to the rows of a matrix is a list of blocks (neo__rows_call), made once. The
   processor runs the lists by neo__cpu_rows, a device by its kernel: then all of this is in its
   memory, and groups of devices move it from there to there. A coded row has all that one rank
   sends of a sample: the rows of a rank are consecutive, in local and in coded_local, and
   coded_remote is, per rank, such rows of this rank's samples. An f32 wire sends local as it lies,
   unless some of its columns are inside a node. Lengths of bags that divide come with the batch.
   ------------------------------------------------------------------------ */
/* ---- the lists ---- */
typedef struct neo__shard_lister {
    const neo__shard_map *m;
    neo__rows_block *block; /* NULL: they are counted */
    neo__rows_part *part;
    int64_t blocks, parts;
    int64_t new_blocks, new_parts; /* of the columns that came last: blocks, parts of each */
} neo__shard_lister;

/* Columns of the matrix, each block of which has so many parts; they come next. */
static void neo__shard_list_cols(neo__shard_lister *l, int64_t col, int64_t cols, neo_wire round,
                                 int32_t lengths, int64_t parts) {
    l->new_blocks = (cols + NEO_WIRE_BLOCK - 1) / NEO_WIRE_BLOCK;
    l->new_parts = parts;
    for (int64_t k = 0; k < l->new_blocks && l->block; k++) {
        neo__rows_block *b = &l->block[l->blocks + k];
        b->col = col + k * NEO_WIRE_BLOCK;
        b->cols = (int32_t)NEO__MIN(cols - k * NEO_WIRE_BLOCK, (int64_t)NEO_WIRE_BLOCK);
        b->round = (int32_t)round;
        b->lengths = lengths;
        b->first = (int32_t)(l->parts + k * parts);
        b->parts = (int32_t)parts;
    }
    l->blocks += l->new_blocks;
    l->parts += l->new_blocks * parts;
}
/* Part i of all their blocks. */
static void neo__shard_list_part(neo__shard_lister *l, int64_t i, int64_t before, int64_t stride,
                                 int64_t at, neo_wire wire, int merges) {
    const int64_t step = (int64_t)neo_wire_row_bytes(wire, NEO_WIRE_BLOCK);
    const int64_t first = l->parts - l->new_blocks * l->new_parts;
    for (int64_t k = 0; k < l->new_blocks && l->part; k++) {
        neo__rows_part *p = &l->part[first + k * l->new_parts + i];
        p->before = before;
        p->stride = stride;
        p->at = at + k * step;
        p->wire = (int32_t)wire;
        p->merges = merges;
    }
}
/* The lengths that divide rows of a feature on a way; -1: none, or the holders divide. */
static int32_t neo__shard_divisor(const neo__shard_map *m, int32_t feature, int way) {
    return way && m->late ? -1 : m->mean_row[feature];
}
/* One route in the rows that come from its rank (local: in those of the rank itself). */
static void neo__shard_list_route(neo__shard_lister *l, const neo__shard_route *r, int way,
                                  int64_t i, int local, int merges) {
    const neo__shard_rank *rank = &l->m->at_rank[r->rank];
    neo__shard_list_part(l, i, local ? 0 : rank->coded_at[way], rank->coded[way], r->coded[way],
                         r->wire[way], merges);
}
/* One route among the inside columns of its node. */
static void neo__shard_list_inside(neo__shard_lister *l, const neo__shard_route *r, int64_t i,
                                   int merges) {
    const neo__shard_map *m = l->m;
    const int64_t floats = (int64_t)sizeof(float);
    int64_t before = 0;
    for (int p = r->rank / m->per_node * m->per_node; p < r->rank; p++)
        before += neo__shard_inside_cols(m, p);
    neo__shard_list_part(l, i, before * floats, neo__shard_inside_cols(m, r->rank) * floats,
                         (r->col - m->at_rank[r->rank].direct) * floats, NEO_WIRE_F32, merges);
}
/* The routes [first, end) of pull, which bring parts of the same columns: they add by the tree of
   their numbers. */
static void neo__shard_list_sum(neo__shard_lister *l, int64_t first, int64_t end, int inside) {
    const neo__shard_map *m = l->m;
    int64_t number[NEO__ROWS_STACK];
    int depth = 0;
    for (int64_t i = first; i < end; i++) {
        int before = depth + 1;
        number[depth++] = m->pull[i].number;
        while (depth >= 2 && (i + 1 == end ||
                              neo__tree_level(number[depth - 2], number[depth - 1]) <
                                  neo__tree_level(number[depth - 1], m->pull[i + 1].number))) {
            depth--;
            number[depth - 1] = number[depth];
        }
        if (inside) neo__shard_list_inside(l, &m->pull[i], i - first, before - depth);
        else neo__shard_list_route(l, &m->pull[i], 0, i - first, 0, before - depth);
    }
}
/* This rank's direct routes: between local and coded_local. */
static void neo__shard_list_local(neo__shard_lister *l, int rank, int way) {
    for (int64_t i = l->m->route_begin[rank]; i < l->m->at_rank[rank].first_inside; i++) {
        const neo__shard_route *r = &l->m->routes[i];
        neo__shard_list_cols(l, r->col, r->cols, NEO_WIRE_F32, -1, 1);
        neo__shard_list_route(l, r, way, 0, 1, 0);
    }
}
/* Gradients that came undivided, in place. Their lengths are neo__shard_batch.whole. */
static void neo__shard_list_divide(neo__shard_lister *l, int rank) {
    const neo__shard_map *m = l->m;
    const int64_t floats = (int64_t)sizeof(float);
    for (int64_t i = m->route_begin[rank]; i < m->route_begin[rank + 1]; i++) {
        const neo__shard_route *r = &m->routes[i];
        if (!neo__shard_is_late(m, r->feature)) continue;
        neo__shard_list_cols(l, r->col, r->cols, NEO_WIRE_F32, r->flow, 1);
        neo__shard_list_part(l, 0, 0, m->at_rank[rank].width * floats, r->col * floats,
                             NEO_WIRE_F32, 0);
    }
}
/* All direct routes: from coded_remote to the caller's rows; and back, undivided if the holders
   divide. */
static void neo__shard_list_take(neo__shard_lister *l) {
    const neo__shard_map *m = l->m;
    for (int64_t i = 0, end; i < m->route_count; i = end) {
        const neo__shard_route *r = &m->pull[i];
        end = neo__shard_pull_end(m, i);
        if (m->parts[r->part].inside) continue;
        neo__shard_list_cols(l, r->out_col, r->cols, end - i > 1 ? m->wire[0] : NEO_WIRE_F32,
                             m->mean_row[r->feature], end - i);
        neo__shard_list_sum(l, i, end, 0);
    }
}
static void neo__shard_list_return(neo__shard_lister *l) {
    const neo__shard_map *m = l->m;
    for (int64_t i = 0; i < m->route_count; i++) {
        const neo__shard_route *r = &m->routes[i];
        if (m->parts[r->part].inside) continue;
        neo__shard_list_cols(l, r->out_col, r->cols, NEO_WIRE_F32,
                             neo__shard_divisor(m, r->feature, 1), 1);
        neo__shard_list_route(l, r, 1, 0, 0, 0);
    }
}
/* Data-parallel tables, rounded as if they had travelled. */
static void neo__shard_list_copies(neo__shard_lister *l, int64_t width, int way, int divides) {
    const neo__shard_map *m = l->m;
    const int64_t floats = (int64_t)sizeof(float);
    for (int64_t q = 0, col = 0; q < m->replica_count; q++) {
        int32_t f = m->replicas[q];
        int64_t dim = m->feature_col[f + 1] - m->feature_col[f];
        neo__shard_list_cols(l, m->feature_col[f], dim, m->wire[way], divides ? m->mean_row[f] : -1,
                             1);
        neo__shard_list_part(l, 0, 0, width * floats, col * floats, NEO_WIRE_F32, 0);
        col += dim;
    }
}
/* The sums of node h; add: from the ranks of the node, else spread to them. */
static void neo__shard_list_mids(neo__shard_lister *l, int h, int add) {
    const neo__shard_map *m = l->m;
    for (int64_t q = m->at_node[h].first; q < m->at_node[h + 1].first; q++) {
        const neo__shard_mid *mid = &m->mids[q];
        neo__shard_list_cols(l, mid->col, mid->cols, NEO_WIRE_F32, -1, mid->end - mid->first);
        if (add) neo__shard_list_sum(l, mid->first, mid->end, 1);
        for (int64_t i = mid->first; i < mid->end && !add; i++)
            neo__shard_list_inside(l, &m->pull[i], i - mid->first, 0);
    }
}
/* The sums of nodes [h, end) in coded rows; out: in the caller's rows, else in mid_out. */
static void neo__shard_list_sums(neo__shard_lister *l, int h, int end, int way, int out) {
    const neo__shard_map *m = l->m;
    for (; h < end; h++) {
        const neo__shard_node *node = &m->at_node[h];
        for (int64_t q = node->first; q < node[1].first; q++) {
            const neo__shard_mid *mid = &m->mids[q];
            neo__shard_list_cols(l, out ? mid->out_col : mid->col, mid->cols, NEO_WIRE_F32,
                                 out ? neo__shard_divisor(m, mid->feature, way) : -1, 1);
            neo__shard_list_part(l, 0, out ? node->coded_at[way] : 0, node->coded[way],
                                 mid->coded[way], m->wire[way], 0);
        }
    }
}
static void neo__shard_list_one(neo__shard_lister *l, const neo_shard *s, neo__shard_list list) {
    const neo__shard_map *m = l->m;
    const int64_t width = s->copies.width;
    const int node = s->rank / m->per_node;
    switch (list) {
    case NEO__SHARD_SEND: neo__shard_list_local(l, s->rank, 0); return;
    case NEO__SHARD_GET: neo__shard_list_local(l, s->rank, 1); return;
    case NEO__SHARD_TAKE: neo__shard_list_take(l); return;
    case NEO__SHARD_RETURN: neo__shard_list_return(l); return;
    case NEO__SHARD_DIVIDE: neo__shard_list_divide(l, s->rank); return;
    case NEO__SHARD_COPIES: neo__shard_list_copies(l, width, 0, 1); return;
    case NEO__SHARD_COPIES_BACK: neo__shard_list_copies(l, width, 1, 1); return;
    case NEO__SHARD_COPIES_RAW:
        if (m->late) neo__shard_list_copies(l, width, 1, 0);
        return;
    case NEO__SHARD_JOIN: neo__shard_list_mids(l, node, 1); return;
    case NEO__SHARD_SPREAD: neo__shard_list_mids(l, node, 0); return;
    case NEO__SHARD_CROSS: neo__shard_list_sums(l, node, node + 1, 0, 0); return;
    case NEO__SHARD_GET_SUMS: neo__shard_list_sums(l, node, node + 1, 1, 0); return;
    case NEO__SHARD_TAKE_SUMS: neo__shard_list_sums(l, 0, m->nodes, 0, 1); return;
    case NEO__SHARD_RETURN_SUMS: neo__shard_list_sums(l, 0, m->nodes, 1, 1); return;
    default: return;
    }
}
static void neo__shard_list_all(neo__shard_lister *l, neo_shard *s) {
    l->m = s->map;
    for (int i = 0; i < NEO__SHARD_LISTS; i++) {
        s->pooled.list[i] = l->blocks;
        neo__shard_list_one(l, s, (neo__shard_list)i);
    }
    s->pooled.list[NEO__SHARD_LISTS] = l->blocks;
}
/* Lists of what all ranks have: the planner, which measures every rank, counts them once. */
static int neo__shard_is_common(int list) {
    return list == NEO__SHARD_TAKE || list == NEO__SHARD_RETURN || list == NEO__SHARD_TAKE_SUMS ||
           list == NEO__SHARD_RETURN_SUMS;
}
static void neo__shard_count_lists(neo__shard_map *m) {
    NEO__ZERO(neo__shard_lister, l);
    NEO__ZERO(neo_shard, any);
    l.m = m;
    for (int i = 0; i < NEO__SHARD_LISTS; i++)
        if (neo__shard_is_common(i)) neo__shard_list_one(&l, &any, (neo__shard_list)i);
    m->list_blocks = l.blocks;
    m->list_parts = l.parts;
}
static void neo__shard_size_lists(neo_shard *s) {
    NEO__ZERO(neo__shard_lister, l);
    l.m = s->map;
    for (int i = 0; i < NEO__SHARD_LISTS; i++)
        if (!neo__shard_is_common(i)) neo__shard_list_one(&l, s, (neo__shard_list)i);
    s->pooled.blocks = l.blocks + s->map->list_blocks;
    s->pooled.parts = l.parts + s->map->list_parts;
}
/* Bytes of host memory to where pooled rows are. */
static neo_status neo__shard_send_there(neo_shard *s, void *there, const void *from,
                                        int64_t bytes) {
    neo_tensor to = neo_tensor_1d(there, NEO_U8, bytes);
    if (s->pooled.on_device) to.place = NEO_DEVICE;
    if (bytes == 0 || there == from) return NEO_OK;
    return neo_tensor_copy(s->ctx, neo_tensor_1d((void *)(uintptr_t)from, NEO_U8, bytes), to);
}
static neo_status neo__shard_fill_lists(neo_shard *s, neo__arena *arena) {
    const neo__shard_pooled *p = &s->pooled;
    NEO__ZERO(neo__shard_lister, l);
    NEO__TRY(NEO__ARENA(arena, l.block, p->blocks));
    NEO__TRY(NEO__ARENA(arena, l.part, p->parts));
    neo__shard_list_all(&l, s);
    NEO_ASSERT(l.blocks == p->blocks && l.parts == p->parts);
    NEO__TRY(neo__shard_send_there(s, p->block, l.block, p->blocks * (int64_t)sizeof *l.block));
    return neo__shard_send_there(s, p->part, l.part, p->parts * (int64_t)sizeof *l.part);
}
/* The lists, and on a device the memory they are in. */
static neo_status neo__shard_make_lists(neo_shard *s) {
    neo__shard_pooled *p = &s->pooled;
    NEO__CHECK(p->parts <= INT32_MAX, NEO_ERR_CAPACITY,
               "neo_shard_create: %" PRId64 " parts of rows", p->parts);
    if (p->on_device) {
        NEO__ZERO(neo__carve, carve);
        neo__shard_layout_pooled(s, &carve);
        NEO__TRY(neo__buffer_take(s->ctx, &p->memory, carve.at));
        carve.block = (char *)p->memory.data;
        carve.at = 0;
        neo__shard_layout_pooled(s, &carve);
    }
    if (p->blocks == 0) return NEO_OK;
    neo__arena arena = {s->ctx, NULL, NULL, 0, "neo_shard_create"};
    neo_status status = neo__shard_fill_lists(s, &arena);
    neo__arena_free(&arena);
    return status;
}

/* ---- the processor's row mover: NEO__ROWS_TILE rows of a block at a time ---- */
enum { NEO__ROWS_TILE = 16, NEO__ROWS_TASKS = 32 };
enum { NEO__ROWS_TILE_BYTES = NEO__ROWS_TILE * NEO_WIRE_BLOCK * 4 }; /* no wire takes more */
typedef struct neo__rows_job {
    const neo_ctx *ctx;
    const neo__rows_call *call;
    int64_t tasks;
    neo_wire_stats stats[NEO__ROWS_TASKS];
} neo__rows_job;
/* Rows of a block: [rows][cols] from `row` on, and the lengths that divide them, or NULL. */
typedef struct neo__rows_tile {
    const neo_ctx *ctx;
    int64_t row, rows, cols;
    const int32_t *lengths;
    neo_wire_stats *stats;
} neo__rows_tile;

NEO__HOT_BEGIN
NEO__INLINE char *neo__rows_place(const neo__rows_call *c, const neo__rows_part *part,
                                  int64_t row) {
    return c->coded + c->rows * part->before + row * part->stride + part->at;
}
/* Rows of a tile between two places, strides in bytes. */
static void neo__rows_copy(const neo__rows_tile *t, char *to, int64_t to_stride, const char *from,
                           int64_t from_stride, size_t bytes) {
    for (int64_t i = 0; i < t->rows; i++, to += to_stride, from += from_stride)
        memcpy(to, from, bytes);
}
static void neo__rows_divide(const neo__rows_tile *t, float *to, int64_t to_stride,
                             const float *from, int64_t from_stride) {
    for (int64_t i = 0; i < t->rows; i++, to += to_stride, from += from_stride) {
        const float length = t->lengths[i] > 1 ? (float)t->lengths[i] : 1.0f;
        if (length > 1.0f)
            for (int64_t c = 0; c < t->cols; c++) to[c] = from[c] / length;
        else
            memcpy(to, from, (size_t)t->cols * sizeof *to);
    }
}
/* Rows as a wire brings them: coded and decoded. */
static void neo__rows_round(const neo__rows_tile *t, neo_wire wire, const float *x, int64_t stride,
                            float *to, int64_t to_stride) {
    char coded[NEO__ROWS_TILE_BYTES];
    neo_wire_encode(t->ctx, wire, 0, x, t->rows, t->cols, stride, coded, NULL);
    neo_wire_decode(t->ctx, wire, 0, coded, t->rows, t->cols, to_stride, to);
}
/* Whole rows as a wire brings them, in place. */
static void neo__shard_round(const neo_shard *s, neo_wire wire, float *rows, int64_t n,
                             int64_t cols) {
    neo__rows_tile t = {s->ctx, 0, 0, 0, NULL, NULL};
    for (int64_t i = 0; i < n && wire != NEO_WIRE_F32; i += NEO__ROWS_TILE)
        for (int64_t c = 0; c < cols; c += NEO_WIRE_BLOCK) {
            float *x = rows + i * cols + c;
            t.rows = NEO__MIN(n - i, (int64_t)NEO__ROWS_TILE);
            t.cols = NEO__MIN(cols - c, (int64_t)NEO_WIRE_BLOCK);
            neo__rows_round(&t, wire, x, cols, x, cols);
        }
}
/* The sum of f32 parts, which are used up, in the order of the list. */
static void neo__rows_sum(const neo__rows_tile *t, const neo__rows_call *c,
                          const neo__rows_part *part, int parts, float *to, int64_t stride) {
    for (int64_t i = 0; i < t->rows; i++, to += stride) {
        float *sum[NEO__ROWS_STACK];
        int depth = 0;
        for (int p = 0; p < parts; p++) {
            sum[depth++] = (float *)(void *)neo__rows_place(c, &part[p], t->row + i);
            for (int k = part[p].merges; k > 0; k--, depth--)
                neo_floats_add(t->ctx, sum[depth - 2], sum[depth - 1], t->cols);
        }
        for (int64_t k = 0; k < t->cols; k++) to[k] = sum[0][k] + 0.0f;
    }
}
static void neo__rows_encode_tile(const neo__rows_tile *t, const neo__rows_call *c,
                                  const neo__rows_block *b) {
    float made[NEO__ROWS_TILE * NEO_WIRE_BLOCK];
    char coded[NEO__ROWS_TILE_BYTES];
    const float *x = c->matrix + t->row * c->stride + b->col;
    int64_t stride = c->stride;
    if (t->lengths) {
        neo__rows_divide(t, made, t->cols, x, stride);
        x = made;
        stride = t->cols;
    }
    if (b->round != NEO__CODE_F32) {
        neo__rows_round(t, (neo_wire)b->round, x, stride, made, t->cols);
        x = made;
        stride = t->cols;
    }
    for (const neo__rows_part *p = c->part + b->first; p < c->part + b->first + b->parts; p++) {
        const neo_wire wire = (neo_wire)p->wire;
        const size_t bytes = neo_wire_row_bytes(wire, t->cols);
        const char *from = (const char *)(const void *)x;
        int64_t step = stride * (int64_t)sizeof *x;
        if (wire != NEO_WIRE_F32 || t->stats) {
            neo_wire_encode(t->ctx, wire, 0, x, t->rows, t->cols, stride, coded, t->stats);
            from = coded;
            step = (int64_t)bytes;
        }
        neo__rows_copy(t, neo__rows_place(c, p, t->row), p->stride, from, step, bytes);
    }
}
static void neo__rows_decode_tile(const neo__rows_tile *t, const neo__rows_call *c,
                                  const neo__rows_block *b) {
    float made[NEO__ROWS_TILE * NEO_WIRE_BLOCK];
    char coded[NEO__ROWS_TILE_BYTES];
    const neo__rows_part *part = c->part + b->first;
    const neo_wire wire = (neo_wire)part->wire;
    const size_t bytes = neo_wire_row_bytes(wire, t->cols);
    const char *from = neo__rows_place(c, part, t->row);
    float *out = c->matrix + t->row * c->stride + b->col;
    float *to = t->lengths ? made : out;
    const int64_t stride = t->lengths ? t->cols : c->stride;
    if (b->parts > 1) {
        NEO_ASSERT(wire == NEO_WIRE_F32);
        neo__rows_sum(t, c, part, b->parts, to, stride);
    } else if (wire != NEO_WIRE_F32) {
        neo__rows_copy(t, coded, (int64_t)bytes, from, part->stride, bytes);
        neo_wire_decode(t->ctx, wire, 0, coded, t->rows, t->cols, stride, to);
    } else {
        neo__rows_copy(t, (char *)(void *)to, stride * (int64_t)sizeof *to, from, part->stride,
                       bytes);
    }
    if (b->round != NEO__CODE_F32) neo__rows_round(t, (neo_wire)b->round, to, stride, to, stride);
    if (t->lengths) neo__rows_divide(t, out, c->stride, to, stride);
}
static void neo__rows_task(void *arg, int64_t task, int worker) {
    neo__rows_job *job = (neo__rows_job *)arg;
    const neo__rows_call *c = job->call;
    const int64_t end = c->rows * (task + 1) / job->tasks;
    neo__rows_tile t;
    (void)worker;
    t.ctx = job->ctx;
    t.stats = c->stats ? &job->stats[task] : NULL;
    for (t.row = c->rows * task / job->tasks; t.row < end; t.row += NEO__ROWS_TILE) {
        t.rows = NEO__MIN(end - t.row, (int64_t)NEO__ROWS_TILE);
        for (const neo__rows_block *b = c->block; b < c->block + c->blocks; b++) {
            t.cols = b->cols;
            t.lengths = b->lengths < 0 ? NULL : c->lengths + b->lengths * c->rows + t.row;
            if (c->encode) neo__rows_encode_tile(&t, c, b);
            else neo__rows_decode_tile(&t, c, b);
        }
    }
}
NEO__HOT_END
/* A list on the processor. Tasks follow from the rows alone, so that sums of errors do, too. */
static void neo__cpu_rows(neo_ctx *ctx, const neo__rows_call *call) {
    NEO__ZERO(neo__rows_job, job);
    job.ctx = ctx;
    job.call = call;
    job.tasks =
        NEO__MIN((call->rows + NEO__ROWS_TILE - 1) / NEO__ROWS_TILE, (int64_t)NEO__ROWS_TASKS);
    neo_parallel_for(ctx, job.tasks, neo__rows_task, &job);
    for (int64_t i = 0; i < job.tasks && call->stats; i++) {
        call->stats->numbers += job.stats[i].numbers;
        call->stats->saturated += job.stats[i].saturated;
        call->stats->non_finite += job.stats[i].non_finite;
        call->stats->error_squares += job.stats[i].error_squares;
        call->stats->squares += job.stats[i].squares;
        call->stats->max_error = NEO__MAX(call->stats->max_error, job.stats[i].max_error);
    }
}

/* ---- a step ---- */
/* Rows on their way; way 0: forward, from local to remote; 1: backward, from remote to local. */
typedef struct neo__shard_move {
    neo_shard *s;
    const neo__shard_batch *b;
    int way;
} neo__shard_move;
static int neo__shard_is_plain(const neo__shard_move *v) {
    return v->s->map->wire[v->way] == NEO_WIRE_F32;
}
static neo_wire_stats *neo__shard_wire_stats(neo_shard *s, int way) {
    return s->map->wire[way] == NEO_WIRE_F32 ? NULL : &s->wire_stats[way];
}
static neo_status neo__shard_run_list(neo_shard *s, neo__shard_list list, float *matrix,
                                      int64_t stride, void *coded, int64_t rows) {
    const neo__shard_pooled *p = &s->pooled;
    const int way = list == NEO__SHARD_RETURN || list == NEO__SHARD_RETURN_SUMS;
    NEO__ZERO(neo__rows_call, c);
    c.encode = list <= NEO__SHARD_SPREAD;
    c.rows = rows;
    c.stride = stride;
    c.matrix = matrix;
    c.coded = (char *)coded;
    c.block = p->block + p->list[list];
    c.blocks = p->list[list + 1] - p->list[list];
    c.part = p->part;
    c.lengths = list == NEO__SHARD_DIVIDE ? s->batches[s->current].whole : p->lengths;
    if (list <= NEO__SHARD_RETURN_SUMS) c.stats = neo__shard_wire_stats(s, way);
    if (c.blocks == 0 || rows == 0) return NEO_OK;
    if (p->on_device) return neo__device_rows(s->ctx, &c);
    neo__cpu_rows(s->ctx, &c);
    return NEO_OK;
}
/* A list between the caller's rows and what has come, or goes. */
static neo_status neo__shard_run_rows(neo_shard *s, neo__shard_list list, neo_tensor rows,
                                      void *coded) {
    return neo__shard_run_list(s, list, (float *)rows.data, rows.stride[0], coded, rows.shape[0]);
}
/* The lengths of the bags that divide. */
static neo_status neo__shard_bag_lengths(neo_shard *s, const neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int64_t n = b->batch.batch;
    for (int32_t f = 0; f < m->feature_count; f++)
        if (m->mean_row[f] >= 0)
            neo__shard_whole_lengths(&b->batch, f, s->pooled.host_lengths + m->mean_row[f] * n);
    return neo__shard_send_there(s, s->pooled.lengths, s->pooled.host_lengths,
                                 m->mean_count * n * (int64_t)sizeof(int32_t));
}
/* Over NCCL one exchange at a time: kernels of two groups, begun in another order on another rank,
   would wait for each other where a device does not run both. */
static neo_status neo__shard_alone(neo_shard *s) {
    if (neo_comm_get_backend(s->moves) != NEO_BACKEND_NCCL) return NEO_OK;
    return neo_comm_wait(s->moves, s->move_ticket);
}
static int neo__shard_sends_local(const neo__shard_move *v) {
    return neo__shard_is_plain(v) && v->s->pooled.inside == 0;
}
static void neo__shard_none_counts(const neo__shard_move *v, int64_t *out,
                                   int64_t *in); /* >>impl-shard-none */
static void neo__shard_none_code(const neo__shard_move *v, int decode);
static void neo__shard_none_rows(neo_shard *s, neo_tensor rows, int back);
/* Start the exchange of the direct routes, or of rows for each id. */
static neo_status neo__shard_exchange_rows(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int64_t *local = s->exchange.counts + 2 * m->ranks, *remote = local + m->ranks;
    void *here = m->none                     ? s->per_id.out.data
                 : neo__shard_sends_local(v) ? (void *)s->pooled.local
                                             : (void *)s->pooled.coded_local;
    void *there = m->none ? s->per_id.in.data : (void *)s->pooled.coded_remote;
    for (int r = 0; r < m->ranks; r++) {
        local[r] = neo__shard_samples(v->b, r) * m->at_rank[s->rank].coded[v->way];
        remote[r] = neo__shard_samples(v->b, s->rank) * m->at_rank[r].coded[v->way];
    }
    if (m->none) neo__shard_none_counts(v, local, remote);
    if (v->way)
        return neo_comm_all_to_allv(s->moves, there, remote, here, local, NEO_U8, &s->move_ticket);
    if (m->none) neo__shard_none_code(v, 0);
    if (!neo__shard_sends_local(v))
        NEO__TRY(neo__shard_run_list(s, NEO__SHARD_SEND, s->pooled.local, s->pooled.width, here,
                                     v->b->global));
    return neo_comm_all_to_allv(s->moves, here, local, there, remote, NEO_U8, &s->move_ticket);
}
static neo_status neo__shard_nodes_send(const neo__shard_move *v); /* >>impl-shard-nodes */
static neo_status neo__shard_nodes_exchange(const neo__shard_move *v);
static neo_status neo__shard_nodes_get(const neo__shard_move *v);

/* The four stages of rows; NEO_POOL_NONE has no lists. From local, begun: */
static neo_status neo__shard_rows_send(const neo__shard_move *v) {
    NEO__TRY(neo__shard_bag_lengths(v->s, v->b));
    NEO__TRY(neo__shard_exchange_rows(v));
    return v->s->node ? neo__shard_nodes_send(v) : NEO_OK;
}
/* ... to the caller's rows; */
static neo_status neo__shard_rows_take(neo_shard *s, neo_tensor out) {
    NEO__TRY(neo_comm_wait(s->moves, s->move_ticket));
    if (s->map->none) neo__shard_none_rows(s, out, 0);
    NEO__TRY(neo__shard_run_rows(s, NEO__SHARD_TAKE, out, s->pooled.coded_remote));
    if (s->node) NEO__TRY(neo_comm_wait(s->cross, s->cross_ticket));
    NEO__TRY(neo__shard_run_rows(s, NEO__SHARD_TAKE_SUMS, out, s->pooled.mid_coded_in));
    return neo__shard_run_rows(s, NEO__SHARD_COPIES, out, s->pooled.copies);
}
/* their gradients back, begun; */
static neo_status neo__shard_rows_return(const neo__shard_move *v, neo_tensor dout) {
    neo_shard *s = v->s;
    if (s->map->none) neo__shard_none_rows(s, dout, 1);
    NEO__TRY(neo__shard_run_rows(s, NEO__SHARD_RETURN, dout, s->pooled.coded_remote));
    NEO__TRY(neo__shard_exchange_rows(v));
    if (s->node) {
        NEO__TRY(neo__shard_run_rows(s, NEO__SHARD_RETURN_SUMS, dout, s->pooled.mid_coded_in));
        NEO__TRY(neo__shard_alone(s));
        NEO__TRY(neo__shard_nodes_exchange(v));
    }
    return neo__shard_run_rows(s, NEO__SHARD_COPIES_BACK, dout, s->pooled.copies);
}
/* ... and to local. */
static neo_status neo__shard_rows_get(const neo__shard_move *v) {
    neo_shard *s = v->s;
    if (s->map->none) neo__shard_none_code(v, 1);
    if (!neo__shard_sends_local(v))
        NEO__TRY(neo__shard_run_list(s, NEO__SHARD_GET, s->pooled.local, s->pooled.width,
                                     s->pooled.coded_local, v->b->global));
    return s->node ? neo__shard_nodes_get(v) : NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-nodes

   Slices whose pieces lie in one node of several: their partial sums add inside the node, and the
   sums cross. Rank (h, l), place l of node h, adds what is for the ranks at place l of every node,
   `place` samples by order of node: from inside_in (per rank of the node [place][its inside
   columns]) to mid_out [place][sums of the node], of which the rows for node h' go to rank (h', l),
   who has those of all nodes in mid_coded_in. Gradients go the same way back. Inside a node all
   rows travel as f32: partial sums, and gradients that the wire has rounded already.

       forward    local -> inside_out => inside_in -JOIN-> mid_out -CROSS-> mid_coded_out
                  => mid_coded_in -TAKE_SUMS-> out
       backward   dout -RETURN_SUMS-> mid_coded_in => mid_coded_out -GET_SUMS-> mid_out
                  -SPREAD-> inside_in => inside_out -> local
   ------------------------------------------------------------------------ */
/* Samples of the ranks at place l. */
static int64_t neo__shard_place_count(const neo_shard *s, const neo__shard_batch *b, int place) {
    int64_t n = 0;
    for (int r = place; r < s->map->ranks; r += s->map->per_node) n += neo__shard_samples(b, r);
    return n;
}
/* This rank's inside columns of local, in order of the places they go to (back: come from). */
static neo_status neo__shard_inside_pick(neo_shard *s, const neo__shard_batch *b, int back) {
    const neo__shard_map *m = s->map;
    const int64_t cols = s->pooled.inside, width = s->pooled.width;
    float *at = s->pooled.inside_out, *local = s->pooled.local + m->at_rank[s->rank].direct;
    for (int place = 0; place < m->per_node && cols > 0; place++)
        for (int r = place; r < m->ranks; r += m->per_node) {
            int64_t n = neo__shard_samples(b, r);
            neo_tensor packed = neo__shard_matrix(s, at, n, cols);
            neo_tensor wide = neo__shard_matrix(s, local + b->start[r] * width, n, cols);
            wide.stride[0] = width;
            if (n > 0)
                NEO__TRY(neo_tensor_copy(s->ctx, back ? packed : wide, back ? wide : packed));
            at += n * cols;
        }
    return NEO_OK;
}
/* Between inside_out and inside_in. */
static neo_status neo__shard_inside_exchange(neo_shard *s, const neo__shard_batch *b, int back) {
    const neo__shard_map *m = s->map;
    const neo__shard_pooled *p = &s->pooled;
    int64_t *out = s->exchange.counts, *in = s->exchange.counts + m->ranks;
    const int first = s->rank / m->per_node * m->per_node;
    for (int l = 0; l < m->per_node; l++) {
        out[l] = neo__shard_place_count(s, b, l) * p->inside;
        in[l] =
            neo__shard_place_count(s, b, s->rank - first) * neo__shard_inside_cols(m, first + l);
    }
    if (back)
        return neo_comm_all_to_allv(s->node, p->inside_in, in, p->inside_out, out, NEO_F32, NULL);
    return neo_comm_all_to_allv(s->node, p->inside_out, out, p->inside_in, in, NEO_F32, NULL);
}
/* Start the exchange of the sums. */
static neo_status neo__shard_nodes_exchange(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    const int node = s->rank / m->per_node, place = s->rank % m->per_node;
    int64_t *out = s->exchange.counts, *in = s->exchange.counts + m->ranks;
    void *here =
        neo__shard_is_plain(v) ? (void *)s->pooled.mid_out : (void *)s->pooled.mid_coded_out;
    void *there = s->pooled.mid_coded_in;
    for (int h = 0; h < m->nodes; h++) {
        out[h] = neo__shard_samples(v->b, h * m->per_node + place) * m->at_node[node].coded[v->way];
        in[h] = neo__shard_samples(v->b, s->rank) * m->at_node[h].coded[v->way];
    }
    if (v->way)
        return neo_comm_all_to_allv(s->cross, there, in, here, out, NEO_U8, &s->cross_ticket);
    return neo_comm_all_to_allv(s->cross, here, out, there, in, NEO_U8, &s->cross_ticket);
}
/* From local, begun; and to local, where the exchange has begun. */
static neo_status neo__shard_nodes_send(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_pooled *p = &s->pooled;
    const int64_t n = neo__shard_place_count(s, v->b, s->rank % s->map->per_node);
    NEO__TRY(neo__shard_inside_pick(s, v->b, 0));
    NEO__TRY(neo__shard_alone(s));
    NEO__TRY(neo__shard_inside_exchange(s, v->b, 0));
    NEO__TRY(neo__shard_run_list(s, NEO__SHARD_JOIN, p->mid_out, p->mid, p->inside_in, n));
    if (!neo__shard_is_plain(v))
        NEO__TRY(neo__shard_run_list(s, NEO__SHARD_CROSS, p->mid_out, p->mid, p->mid_coded_out, n));
    return neo__shard_nodes_exchange(v);
}
static neo_status neo__shard_nodes_get(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_pooled *p = &s->pooled;
    const int64_t n = neo__shard_place_count(s, v->b, s->rank % s->map->per_node);
    NEO__TRY(neo_comm_wait(s->cross, s->cross_ticket));
    if (!neo__shard_is_plain(v))
        NEO__TRY(
            neo__shard_run_list(s, NEO__SHARD_GET_SUMS, p->mid_out, p->mid, p->mid_coded_out, n));
    NEO__TRY(neo__shard_run_list(s, NEO__SHARD_SPREAD, p->mid_out, p->mid, p->inside_in, n));
    NEO__TRY(neo__shard_inside_exchange(s, v->b, 1));
    return neo__shard_inside_pick(s, v->b, 1);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-copies

   Data-parallel tables: every rank has a copy, and pools its own samples. Dense gradients of each
   subtree of this rank's leaves go into a sum over all ranks, by the tree over leaves; every rank
   then steps the touched rows alike.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
/* Features of data-parallel tables, of the caller's samples [begin, end). */
static neo_status neo__shard_copies_batch(neo_shard *s, int64_t begin, int64_t end, neo_jagged *j) {
    const neo__shard_map *m = s->map;
    const neo_jagged *from = &s->batches[s->current].batch;
    const size_t size = neo_dtype_size(from->id_dtype);
    const int64_t n = end - begin;
    int64_t *to = s->copies.offsets;
    neo__buffer *ids = &s->copies.ids_of[0], *weights = &s->copies.ids_of[1];
    to[0] = 0;
    for (int64_t q = 0; q < m->replica_count; q++) {
        const int64_t *offsets = from->offsets + m->replicas[q] * from->batch + begin;
        for (int64_t i = 0; i < n; i++, to++) to[1] = to[0] + offsets[i + 1] - offsets[i];
    }
    NEO__TRY(neo__shard_reserve(s, ids, to[0], size));
    if (from->weights) NEO__TRY(neo__shard_reserve(s, weights, to[0], sizeof(float)));
    NEO__TRY(neo_bags_reserve(s->replicas, n, to[0]));
    for (int64_t q = 0; q < m->replica_count; q++) {
        const int64_t first = from->offsets[m->replicas[q] * from->batch + begin];
        const int64_t at = s->copies.offsets[q * n];
        const size_t count = (size_t)(s->copies.offsets[(q + 1) * n] - at);
        neo__shard_copy((char *)ids->data + (size_t)at * size,
                        (const char *)from->ids + (size_t)first * size, count * size);
        if (from->weights)
            neo__shard_copy((float *)weights->data + at, from->weights + first,
                            count * sizeof(float));
    }
    neo__shard_fill(j, 0, sizeof *j);
    j->batch = end - begin;
    j->feature_count = (int32_t)m->replica_count;
    j->id_dtype = from->id_dtype;
    j->offsets = s->copies.offsets;
    j->ids = ids->data;
    j->weights = from->weights ? (const float *)weights->data : NULL;
    return NEO_OK;
}
static neo_status neo__shard_none_copies(neo_shard *s, const neo_jagged *j, int64_t begin,
                                         int back); /* >>impl-shard-none */
/* Their part of the batch, and rows for their neo_bags; back: with gradients in them. */
static neo_status neo__shard_copies_rows(neo_shard *s, int64_t begin, int64_t end, int back,
                                         neo_jagged *j, neo_tensor *rows) {
    const int64_t width = s->copies.width, dim = s->per_id.dim;
    NEO__TRY(neo__shard_copies_batch(s, begin, end, j));
    *rows = neo__shard_matrix(s, s->pooled.copies + begin * width, j->batch, width);
    if (!s->map->none) return NEO_OK;
    NEO__TRY(neo__shard_none_copies(s, j, begin, back));
    *rows = neo_tensor_2d(s->per_id.copies.data, NEO_F32, neo_jagged_id_count(j), dim);
    return NEO_OK;
}
static neo_status neo__shard_copies_forward(neo_shard *s) {
    neo_jagged j;
    neo_tensor rows;
    NEO__TRY(neo__shard_copies_rows(s, 0, s->batches[s->current].batch.batch, 0, &j, &rows));
    return neo__shard_look_up(s, s->replicas, &j, rows);
}
/* Move gradients that their neo_bags keeps to a table of all rows, and mark these rows. */
static neo_status neo__shard_copies_empty(neo_shard *s, float *dense, unsigned char *marks) {
    for (int64_t i = 0; i < neo_bags_kept_count(s->replicas); i++) {
        int32_t t;
        int64_t row;
        const float *g = neo_bags_kept_row(s->replicas, i, &t, &row);
        if (!g) return NEO_ERR_DEVICE; /* neo_last_error says why */
        int64_t dim = neo_bags_weight(s->replicas, t).shape[1];
        neo__shard_copy(dense + s->copies.at[2 * t] + row * dim, g, (size_t)dim * sizeof *g);
        marks[s->copies.at[2 * t + 1] + row] = 1;
    }
    return neo_bags_clear(s->replicas);
}
/* Dense gradients of one subtree of leaves, and which rows it touched. */
static neo_status neo__shard_copies_grads(neo_shard *s, const neo_leaves *leaves, float *dense) {
    neo_jagged j;
    neo_tensor rows;
    const neo__shard_batch *b = &s->batches[s->current];
    int shards = neo_ctx_repro_shards(s->ctx);
    int64_t mine = b->start[s->rank];
    int64_t begin = neo_leaf_begin(b->global, shards, leaves->first) - mine;
    int64_t end = neo_leaf_begin(b->global, shards, leaves->first + leaves->count) - mine;
    NEO__TRY(neo__shard_copies_rows(s, begin, end, 1, &j, &rows));
    NEO__TRY(neo__shard_take_there(s, rows, 0, &rows));
    NEO__TRY(neo_bags_accumulate(s->replicas, &j, rows, leaves));
    neo__shard_fill(dense, 0, (size_t)s->copies.floats * sizeof *dense);
    return neo__shard_copies_empty(s, dense, s->copies.touched);
}
/* dense_sum has gradients of all rows: those of touched ones, closed up, add to what is kept. */
static neo_status neo__shard_copies_keep(neo_shard *s, const unsigned char *touched) {
    float *sum = s->copies.dense_sum;
    for (int32_t t = 0; t < neo_bags_table_count(s->replicas); t++) {
        neo_tensor w = neo_bags_weight(s->replicas, t);
        int64_t rows = w.shape[0], dim = w.shape[1], n = 0;
        for (int64_t row = 0; row < rows; row++) {
            if (!touched[row]) continue;
            memmove(sum + n * dim, sum + row * dim, (size_t)dim * sizeof *sum);
            s->copies.row[n++] = row;
        }
        neo_tensor grads;
        NEO__TRY(neo__shard_take_there(s, neo_tensor_2d(sum, NEO_F32, n, dim), 0, &grads));
        NEO__TRY(neo_bags_add_grad(s->replicas, t, s->copies.row, n, grads));
        sum += rows * dim;
        touched += rows;
    }
    return NEO_OK;
}
NEO__HOT_END
/* Start the sums of their gradients over all ranks. */
static neo_status neo__shard_copies_backward(neo_shard *s) {
    neo_leaves subtree[NEO_MAX_SUBTREES];
    int64_t floats = 0, rows = 0;
    const void *pieces[NEO_MAX_SUBTREES];
    neo_ticket ignored;
    int count = neo_comm_subtrees(s->rows, s->rank, s->batches[s->current].global, subtree);
    int parks = s->kept.batches > 0;
    neo__shard_fill(s->copies.touched, 0, (size_t)s->copies.rows);
    for (int32_t t = 0; t < neo_bags_table_count(s->replicas); t++) {
        neo_tensor w = neo_bags_weight(s->replicas, t);
        s->copies.at[2 * t] = floats;
        s->copies.at[2 * t + 1] = rows;
        floats += w.shape[0] * w.shape[1];
        rows += w.shape[0];
    }
    if (parks) { /* what is kept waits in dense_sum: neo_bags uses its room next */
        neo__shard_fill(s->copies.parked, 0, (size_t)s->copies.marks);
        NEO__TRY(neo__shard_copies_empty(s, s->copies.dense_sum, s->copies.parked));
    }
    for (int i = 0; i < count; i++) {
        float *dense = s->copies.dense + i * s->copies.floats;
        NEO__TRY(neo__shard_copies_grads(s, &subtree[i], dense));
        pieces[i] = dense;
    }
    if (parks) NEO__TRY(neo__shard_copies_keep(s, s->copies.parked));
    NEO__TRY(neo_comm_all_reduce_leaves(s->rows, pieces, s->copies.dense_sum, s->copies.floats,
                                        NEO_F32, &ignored));
    return neo_comm_all_reduce(s->rows, NEO_REDUCE_MAX, s->copies.touched, s->copies.touched,
                               s->copies.rows, NEO_U8, &s->ticket);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-cut

   Tables cut by columns whose step needs sums over whole rows. A message from one rank to another
   has the block sums of each of the sender's parts that shares rows with one of the receiver's, in
   order of part: [sums][rows][blocks]. All ranks take part in every round, with nothing to say if
   they have no such part.
   ------------------------------------------------------------------------ */
typedef struct neo__shard_talk {
    neo_shard *s;
    const neo_cut_sums *cuts; /* of this rank's parts that ask for something */
    int32_t count;
    int64_t *out, *in; /* [ranks]: floats of messages */
} neo__shard_talk;
static const neo__shard_part *neo__shard_cut_part(const neo__shard_talk *k, int32_t i) {
    const neo__shard_map *m = k->s->map;
    return &m->parts[m->part_begin[k->s->rank] + k->cuts[i].table];
}
NEO__INLINE int64_t neo__shard_blocks(const neo__shard_part *part) {
    return (part->cols + 15) / 16;
}
/* Floats that a slice says in this round: none if no part here that asks has its rows. */
static int64_t neo__shard_cut_said(const neo__shard_talk *k, const neo__shard_part *slice) {
    for (int32_t i = 0; i < k->count; i++) {
        const neo__shard_part *mine = neo__shard_cut_part(k, i);
        if (mine->table == slice->table && mine->first_row == slice->first_row)
            return k->cuts[i].sums * k->cuts[i].rows * neo__shard_blocks(slice);
    }
    return 0;
}
/* Count the floats that go to each rank and come from it; those that go, to `to` if it is there. */
static void neo__shard_cut_pack(const neo__shard_talk *k, float *to) {
    const neo__shard_map *m = k->s->map;
    for (int r = 0; r < m->ranks; r++) {
        k->out[r] = k->in[r] = 0;
        if (r == k->s->rank) continue;
        for (int32_t i = 0; i < k->count; i++) {
            const neo__shard_part *mine = neo__shard_cut_part(k, i);
            const int64_t floats = neo__shard_cut_said(k, mine);
            if (!neo__shard_shares_rows(m, mine, r)) continue;
            k->out[r] += floats;
            if (!to) continue;
            neo__shard_copy(to, k->cuts[i].blocks, (size_t)floats * sizeof *to);
            to += floats;
        }
        for (int64_t p = m->part_begin[r]; p < m->part_begin[r + 1]; p++)
            k->in[r] += neo__shard_cut_said(k, &m->parts[p]);
    }
}
/* The blocks of a slice: this rank's own, or where they are in what has come. */
static const float *neo__shard_cut_find(const neo__shard_talk *k, const neo__shard_part *slice) {
    const neo__shard_map *m = k->s->map;
    const float *at = (const float *)k->s->cutting.in.data;
    for (int32_t i = 0; i < k->count; i++)
        if (neo__shard_cut_part(k, i)->place == slice->place) return k->cuts[i].blocks;
    for (int r = 0; r < slice->rank; r++) at += k->in[r];
    for (int64_t p = m->part_begin[slice->rank]; p < slice->place; p++)
        at += neo__shard_cut_said(k, &m->parts[p]);
    return at;
}
NEO__HOT_BEGIN
/* totals += the blocks of one slice, in order. */
static void neo__shard_cut_add(const neo_cut_sums *cut, const float *blocks, int64_t n) {
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < cut->sums * cut->rows; i++) {
        float sum = cut->total[i];
        for (int64_t k = 0; k < n; k++) sum += blocks[i * n + k];
        cut->total[i] = sum;
    }
    neo__fp_leave(fp);
}
NEO__HOT_END
static neo_status neo__shard_cut_round(neo_shard *s, const neo_cut_sums *cuts, int32_t count) {
    const neo__shard_map *m = s->map;
    const neo__shard_talk k = {s, cuts, count, s->exchange.counts, s->exchange.counts + m->ranks};
    int64_t out_floats = 0, in_floats = 0;
    neo__shard_cut_pack(&k, NULL);
    for (int r = 0; r < m->ranks; r++) out_floats += k.out[r], in_floats += k.in[r];
    NEO__TRY(neo__shard_reserve(s, &s->cutting.out, out_floats, sizeof(float)));
    NEO__TRY(neo__shard_reserve(s, &s->cutting.in, in_floats, sizeof(float)));
    neo__shard_cut_pack(&k, (float *)s->cutting.out.data);
    NEO__TRY(neo_comm_all_to_allv(s->rows, s->cutting.out.data, k.out, s->cutting.in.data, k.in,
                                  NEO_F32, NULL));
    for (int32_t i = 0; i < count; i++) {
        const neo__shard_part *mine = neo__shard_cut_part(&k, i);
        neo__shard_fill(cuts[i].total, 0, (size_t)(cuts[i].sums * cuts[i].rows) * sizeof(float));
        for (int64_t c = mine->first_slice; c < mine->end_slice; c++)
            neo__shard_cut_add(&cuts[i], neo__shard_cut_find(&k, &m->cuts[c]),
                               neo__shard_blocks(&m->cuts[c]));
    }
    return NEO_OK;
}
/* The rounds that this rank has nothing to ask in. */
static neo_status neo__shard_cut_rest(neo_shard *s) {
    while (s->cutting.round < s->map->cut_rounds) {
        s->cutting.round++;
        NEO__TRY(neo__shard_cut_round(s, NULL, 0));
    }
    return NEO_OK;
}
/* Called by neo_bags: see neo_cut_sums. After the last round that it asks for, those of others
   follow, so that all communication of a step is done before anything changes. */
static neo_status neo__shard_cut_sums(void *user, const neo_cut_sums *cuts, int32_t count) {
    neo_shard *s = (neo_shard *)user;
    s->cutting.round++;
    NEO__TRY(neo__shard_cut_round(s, cuts, count));
    return s->cutting.round == s->cutting.own_rounds ? neo__shard_cut_rest(s) : NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-none

   NEO_POOL_NONE: a row for each id. A message from a holder of rows to a rank: route by route of
   the holder, a row for each id that came from the rank, as it sent them; gradients come back in
   the same order. Rows are coded by themselves, so that the rank of the ids finds each in what has
   come: per_id.in_at says where the rows of a route begin, and the next of them belongs to the next
   id of its source. No column is cut and nothing is summed, so each source has one route; a dropped
   id has a row of zeros, which does not travel.
   ------------------------------------------------------------------------ */
static int32_t neo__shard_source_of_route(const neo__shard_map *m, const neo__shard_route *r) {
    return m->flows[m->flow_begin[r->rank] + r->flow].source;
}
/* Places and counts of what comes from each rank, or (out) goes there; returns how much it is. */
static int64_t neo__shard_per_id_count(neo_shard *s, const neo__shard_batch *b, int out,
                                       int64_t *counts) {
    const neo__shard_map *m = s->map;
    int64_t at = 0;
    for (int r = 0; r < m->ranks; r++) {
        const int64_t before = at, first = m->route_begin[out ? s->rank : r];
        for (int64_t i = first; i < m->route_begin[(out ? s->rank : r) + 1]; i++) {
            const int64_t *offsets = b->offsets + (i - first) * b->global;
            const int64_t ids = out ? offsets[b->start[r + 1]] - offsets[b->start[r]]
                                    : b->sent[neo__shard_source_of_route(m, &m->routes[i])];
            if (out) s->per_id.out_at[r * s->exchange.routes + i - first] = at;
            else s->per_id.in_at[i] = at;
            at += ids * neo__shard_grad_floats(&m->parts[m->routes[i].part]);
        }
        counts[r] = at - before;
    }
    return at;
}
/* Rows that the neo_bags of this rank gives, and takes. */
static neo_tensor neo__shard_local_rows(const neo_shard *s, const neo__shard_batch *b) {
    if (s->map->none)
        return neo_tensor_2d(s->per_id.local.data, NEO_F32,
                             b->offsets[s->exchange.routes * b->global], s->per_id.dim);
    return neo__shard_matrix(s, s->pooled.local, b->global, s->pooled.width);
}
/* Room for the rows of a batch. */
static neo_status neo__shard_none_reserve(neo_shard *s, const neo__shard_batch *b) {
    neo__shard_per_id *p = &s->per_id;
    int64_t out = neo__shard_per_id_count(s, b, 1, s->exchange.counts);
    int64_t in = neo__shard_per_id_count(s, b, 0, s->exchange.counts);
    NEO__TRY(neo__shard_reserve(s, &p->local, out * p->dim, sizeof(float)));
    NEO__TRY(neo__shard_reserve(s, &p->out, out * p->row_bytes, 1));
    return neo__shard_reserve(s, &p->in, in * p->row_bytes, 1);
}
/* From local to what leaves; or back. */
static void neo__shard_none_code(const neo__shard_move *v, int decode) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    const neo_wire wire = m->wire[v->way];
    const int64_t dim = s->per_id.dim, bytes = (int64_t)neo_wire_row_bytes(wire, dim);
    for (int r = 0; r < m->ranks; r++)
        for (int64_t i = 0; i < s->exchange.routes; i++) {
            const int64_t *offsets = v->b->offsets + i * v->b->global;
            int64_t first = offsets[v->b->start[r]], n = offsets[v->b->start[r + 1]] - first;
            float *rows = (float *)s->per_id.local.data + first * dim;
            char *at =
                (char *)s->per_id.out.data + s->per_id.out_at[r * s->exchange.routes + i] * bytes;
            if (n == 0) continue;
            if (decode) neo_wire_decode(s->ctx, wire, 0, at, n, dim, dim, rows);
            else
                neo_wire_encode(s->ctx, wire, 0, rows, n, dim, dim, at,
                                neo__shard_wire_stats(s, v->way));
        }
}
/* Bytes that go to each rank, and come. */
static void neo__shard_none_counts(const neo__shard_move *v, int64_t *out, int64_t *in) {
    neo_shard *s = v->s;
    const int64_t bytes = (int64_t)neo_wire_row_bytes(s->map->wire[v->way], s->per_id.dim);
    (void)neo__shard_per_id_count(s, v->b, 1, out);
    (void)neo__shard_per_id_count(s, v->b, 0, in);
    for (int r = 0; r < s->map->ranks; r++) out[r] *= bytes, in[r] *= bytes;
}
/* Work on what travels for each id. rows: of the caller, or (back) their gradients. */
typedef struct neo__shard_id_job {
    neo_shard *s;
    const neo__shard_batch *b;
    float *rows;
    int64_t stride;
    int back;
} neo__shard_id_job;
static neo__shard_id_job neo__shard_job_of(neo_shard *s, neo_tensor t, int back) {
    neo__shard_id_job k = {s, &s->batches[s->current], (float *)t.data, t.stride[0], back};
    return k;
}
NEO__HOT_BEGIN
/* Rows between what comes and the caller's, of one feature. */
static void neo__shard_none_task(void *arg, int64_t feature, int worker) {
    const neo__shard_id_job *k = (const neo__shard_id_job *)arg;
    neo_shard *s = k->s;
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &k->b->batch;
    const neo_wire wire = m->wire[k->back];
    const int32_t f = (int32_t)feature;
    const int64_t dim = s->per_id.dim, bytes = (int64_t)neo_wire_row_bytes(wire, dim);
    const int64_t rows = m->tables[m->feature_table[f]].rows, last = j->offsets[(f + 1) * j->batch];
    (void)worker;
    if (m->first_source[f] == m->first_source[f + 1]) return;
    for (int64_t i = j->offsets[f * j->batch]; i < last; i++) {
        int64_t row = neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, i));
        float *mine = k->rows + (i - j->offsets[0]) * k->stride;
        if (row < 0) {
            if (!k->back) neo__shard_fill(mine, 0, (size_t)dim * sizeof *mine);
            continue;
        }
        char *at = (char *)s->per_id.in.data +
                   s->per_id.next[neo__shard_source_of(m, f, row)]++ * bytes;
        if (k->back)
            neo_wire_encode(s->ctx, wire, 0, mine, 1, dim, dim, at, neo__shard_wire_stats(s, 1));
        else neo_wire_decode(s->ctx, wire, 0, at, 1, dim, dim, mine);
    }
}
/* Rows of a data-parallel table, of the caller's samples [begin, end) of feature f: rounded as if
   they had travelled. */
static float *neo__shard_none_copy(const neo__shard_id_job *k, int32_t f, int64_t begin,
                                   int64_t end, float *rows) {
    const neo_shard *s = k->s;
    const int64_t *offsets = k->b->batch.offsets;
    const int64_t first = offsets[f * k->b->batch.batch + begin], dim = s->per_id.dim;
    const int64_t n = offsets[f * k->b->batch.batch + end] - first;
    float *mine = k->rows + (first - offsets[0]) * k->stride;
    for (int64_t i = 0; i < n && k->back; i++)
        memcpy(rows + i * dim, mine + i * k->stride, (size_t)dim * sizeof *rows);
    neo__shard_round(s, s->map->wire[k->back], rows, n, dim);
    for (int64_t i = 0; i < n && !k->back; i++)
        memcpy(mine + i * k->stride, rows + i * dim, (size_t)dim * sizeof *rows);
    return rows + n * dim;
}
NEO__HOT_END
/* Room for the rows of j, which begins at sample `begin`; back: and their gradients. */
static neo_status neo__shard_none_copies(neo_shard *s, const neo_jagged *j, int64_t begin,
                                         int back) {
    const neo__shard_map *m = s->map;
    NEO__TRY(neo__shard_reserve(s, &s->per_id.copies, neo_jagged_id_count(j) * s->per_id.dim,
                                sizeof(float)));
    neo__shard_id_job k = neo__shard_job_of(s, s->dout, 1);
    float *rows = (float *)s->per_id.copies.data;
    for (int64_t q = 0; q < m->replica_count && back; q++)
        rows = neo__shard_none_copy(&k, m->replicas[q], begin, begin + j->batch, rows);
    return NEO_OK;
}
/* All rows of this rank's ids: to the caller, or back. Features have sources of their own, so each
   may have a thread, unless what a wire does to rows is counted. */
static void neo__shard_none_rows(neo_shard *s, neo_tensor rows, int back) {
    const neo__shard_map *m = s->map;
    neo__shard_id_job k = neo__shard_job_of(s, rows, back);
    float *copies = (float *)s->per_id.copies.data;
    for (int64_t i = 0; i < m->route_count; i++)
        s->per_id.next[neo__shard_source_of_route(m, &m->routes[i])] = s->per_id.in_at[i];
    if (!back || !neo__shard_wire_stats(s, 1))
        neo_parallel_for(s->ctx, m->feature_count, neo__shard_none_task, &k);
    else
        for (int32_t f = 0; f < m->feature_count; f++) neo__shard_none_task(&k, f, 0);
    for (int64_t q = 0; q < m->replica_count && !back; q++)
        copies = neo__shard_none_copy(&k, m->replicas[q], 0, k.b->batch.batch, copies);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-step

   A step: rows leave, are taken, their gradients return, and come (>>impl-shard-rows);
   data-parallel tables go along. One rank with nothing to round (`whole`) calls its neo_bags
   instead. A failure once an exchange has begun ends the groups of all ranks.
   ------------------------------------------------------------------------ */
static neo_status neo__shard_stage_leave(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_move move = {s, b, 0};
    if (s->map->none) NEO__TRY(neo__shard_none_reserve(s, b));
    if (s->bags) NEO__TRY(neo__shard_look_up(s, s->bags, &b->local, neo__shard_local_rows(s, b)));
    NEO__TRY(neo__shard_rows_send(&move));
    return s->replicas ? neo__shard_copies_forward(s) : NEO_OK;
}
static neo_status neo__shard_stage_take(neo_shard *s, neo_tensor out) {
    neo_tensor shown;
    if (s->whole) return neo_bags_forward(s->bags, &s->batches[s->current].local, out);
    NEO__TRY(neo__shard_show(s, out, &shown));
    NEO__TRY(neo__shard_rows_take(s, shown));
    return neo__shard_bring(s, shown, out, 0);
}
static neo_status neo__shard_stage_return(neo_shard *s, neo_tensor dout) {
    const neo__shard_move move = {s, &s->batches[s->current], 1};
    s->dout = dout;
    s->came = s->whole;
    if (s->whole) return NEO_OK;
    NEO__TRY(neo__shard_show(s, dout, &s->dout));
    NEO__TRY(neo__shard_bring(s, s->dout, dout, 1));
    NEO__TRY(neo__shard_rows_return(&move, s->dout));
    return s->replicas ? neo__shard_copies_backward(s) : NEO_OK;
}
static neo_status neo__shard_hurry(neo_shard *s);
/* The gradients of pooled rows are here: in local, and in dense_sum. */
static neo_status neo__shard_stage_come(neo_shard *s) {
    const neo__shard_move move = {s, &s->batches[s->current], 1};
    NEO__TRY(neo__shard_hurry(s));
    if (s->came) return NEO_OK;
    s->came = 1;
    NEO__TRY(neo_comm_wait(s->moves, s->move_ticket));
    if (s->replicas) NEO__TRY(neo_comm_wait(s->rows, s->ticket));
    return neo__shard_rows_get(&move);
}

NEO_API neo_status neo_shard_prefetch(neo_shard *s, const neo_jagged *batch, int64_t global_batch) {
    NEO__CHECK(s && batch, NEO_ERR_ARG, "neo_shard_prefetch: an argument is NULL");
    NEO__CHECK(s->map->pipeline, NEO_ERR_STATE,
               "neo_shard_prefetch: the plan has no second batch (neo_plan_desc.pipeline)");
    if (s->whole) return NEO_OK;
    neo__shard_batch *next = &s->batches[!s->current];
    NEO__CHECK(next->stage == NEO__SHARD_EMPTY, NEO_ERR_STATE,
               "neo_shard_prefetch: a batch is under way already");
    return neo__shard_start(s, next, batch, global_batch);
}
/* Send the ids of the batch that comes next, whose lengths are here by now. If it is a bad one, its
   own forward_begin says so. */
static neo_status neo__shard_hurry(neo_shard *s) {
    neo__shard_batch *next = &s->batches[!s->current];
    if (next->stage != NEO__SHARD_LENGTHS) return NEO_OK;
    neo_status status = neo__shard_advance(s, next, NEO__SHARD_IDS);
    return next->stage == NEO__SHARD_EMPTY ? NEO_OK : status;
}
/* The batch that comes now, its ids on their way. */
static neo_status neo__shard_come(neo_shard *s, const neo_jagged *batch, int64_t global_batch) {
    neo__shard_batch *next = &s->batches[!s->current];
    if (next->stage == NEO__SHARD_EMPTY)
        return neo__shard_start(s, &s->batches[s->current], batch, global_batch);
    NEO__CHECK(next->batch.offsets == batch->offsets && next->batch.ids == batch->ids &&
                   next->batch.batch == batch->batch && next->asked == global_batch,
               NEO_ERR_STATE, "neo_shard_forward_begin: the batch that was prefetched comes first");
    s->current = !s->current;
    return NEO_OK;
}
/* On one rank there is nothing to exchange: forward_end looks up. */
static neo_status neo__shard_whole_begin(neo_shard *s, neo__shard_batch *b, const neo_jagged *batch,
                                         int64_t global_batch) {
    NEO__TRY(neo__shard_check_batch(s, batch, global_batch, global_batch));
    b->batch = b->local = *batch;
    return neo_bags_reserve(s->bags, global_batch, neo_jagged_id_count(batch));
}
/* Neither forward nor backward has begun; `end` ends the latter. */
static neo_status neo__shard_check_idle(const neo_shard *s, const char *fn, const char *end) {
    NEO__CHECK(s->phase == NEO__SHARD_IDLE || s->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "%s: call neo_shard_%s_end first", fn,
               s->phase == NEO__SHARD_FORWARD ? "forward" : end);
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward_begin(neo_shard *s, const neo_jagged *batch,
                                           int64_t global_batch) {
    NEO__CHECK(s && batch, NEO_ERR_ARG, "neo_shard_forward_begin: an argument is NULL");
    NEO__TRY(neo__shard_check_idle(s, "neo_shard_forward_begin", "backward"));
    s->phase = NEO__SHARD_IDLE;
    s->batches[s->current].stage = NEO__SHARD_EMPTY;
    if (s->whole) {
        NEO__TRY(neo__shard_whole_begin(s, &s->batches[s->current], batch, global_batch));
    } else {
        NEO__TRY(neo__shard_come(s, batch, global_batch));
        neo__shard_batch *b = &s->batches[s->current];
        NEO__TRY(neo__shard_advance(s, b, NEO__SHARD_READY));
        NEO__TRY(neo__shard_or_abort(s, neo__shard_stage_leave(s, b)));
    }
    s->phase = NEO__SHARD_FORWARD;
    return NEO_OK;
}
static neo_status neo__shard_check_rows(const neo_shard *s, neo_tensor t, const char *fn,
                                        const char *what) {
    const neo_jagged *j = &s->batches[s->current].batch;
    int64_t n = s->map->none ? neo_jagged_id_count(j) : j->batch, width = neo_shard_out_width(s);
    if (t.absent && !t.data) return neo__no_data(fn, what, t, NEO_ERR_STATE);
    NEO__CHECK(!t.data || (t.place == NEO_DEVICE) == (neo_ctx_device(s->ctx) != NULL), NEO_ERR_ARG,
               "%s: %s is in %s memory, but the context computes %s", fn, what,
               t.place == NEO_DEVICE ? "a device's" : "host",
               t.place == NEO_DEVICE ? "on the processor" : "on a device");
    NEO__CHECK(t.ndim == 2 && t.dtype == NEO_F32 && t.shape[0] == n && t.shape[1] == width &&
                   (t.stride[1] == 1 || width == 1) && (t.data || n == 0),
               NEO_ERR_SHAPE,
               "%s: %s must be f32 [%" PRId64 "][%" PRId64
               "], last stride 1 (%s of this rank; the dims of all "
               "features); it is %s of %d dimensions, [%" PRId64 "][%" PRId64 "]",
               fn, what, n, width, s->map->none ? "ids" : "samples", neo_dtype_name(t.dtype),
               (int)t.ndim, t.ndim > 0 ? t.shape[0] : 0, t.ndim > 1 ? t.shape[1] : 0);
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward_end(neo_shard *s, neo_tensor out) {
    NEO__CHECK(s && s->phase == NEO__SHARD_FORWARD, NEO_ERR_STATE,
               "neo_shard_forward_end: no forward has begun");
    NEO__TRY(neo__shard_check_rows(s, out, "neo_shard_forward_end", "out"));
    if (s->whole) s->phase = NEO__SHARD_IDLE; /* after a bad batch the next one may come */
    NEO__TRY(neo__shard_or_abort(s, neo__shard_stage_take(s, out)));
    s->phase = NEO__SHARD_FORWARDED;
    return neo__shard_hurry(s);
}
NEO_API neo_status neo_shard_backward_begin(neo_shard *s, neo_tensor dout) {
    NEO__CHECK(s && s->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "neo_shard_backward_begin: neo_shard_forward_end has not been called");
    NEO__TRY(neo__shard_check_rows(s, dout, "neo_shard_backward_begin", "dout"));
    NEO__TRY(neo__shard_or_abort(s, neo__shard_stage_return(s, dout)));
    s->phase = NEO__SHARD_BACKWARD;
    return NEO_OK;
}
/* Gradients of pooled rows are here, divided, and ready to be merged. */
static neo_status neo__shard_backward_ready(neo_shard *s) {
    NEO__TRY(neo__shard_stage_come(s));
    return neo__shard_run_list(s, NEO__SHARD_DIVIDE, s->pooled.local, s->pooled.width,
                               s->pooled.local, s->batches[s->current].global);
}
/* One step, of the batch b or (NULL) of what is kept. All that is sent comes before anything
   changes. */
static neo_status neo__shard_update(neo_shard *s, const neo__shard_batch *b, float lr) {
    if (s->whole)
        return b ? neo_bags_backward(s->bags, &b->local, s->dout, lr) : neo_bags_step(s->bags, lr);
    s->cutting.round = 0;
    if (s->bags) neo_bags_set_steps(s->bags, s->steps); /* it may have been loaded */
    if (s->replicas) neo_bags_set_steps(s->replicas, s->steps);
    if (s->cutting.own_rounds == 0) NEO__TRY(neo__shard_cut_rest(s));
    if (s->replicas && b) NEO__TRY(neo__shard_copies_keep(s, s->copies.touched));
    if (s->bags && b) {
        neo_tensor rows;
        NEO__TRY(neo__shard_take_there(s, neo__shard_local_rows(s, b), 0, &rows));
        NEO__TRY(neo_bags_backward(s->bags, &b->local, rows, lr));
    } else if (s->bags) {
        NEO__TRY(neo_bags_step(s->bags, lr));
    }
    if (s->replicas) NEO__TRY(neo_bags_step(s->replicas, lr));
    neo__device_counts(s->ctx, &s->steps);
    s->steps++;
    return NEO_OK;
}
NEO_API neo_status neo_shard_backward_end(neo_shard *s, float lr) {
    NEO__CHECK(s && s->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE,
               "neo_shard_backward_end: no backward has begun");
    NEO__CHECK(s->kept.batches == 0, NEO_ERR_STATE,
               "neo_shard_backward_end: bags '%s': gradients of %d batches are kept: call "
               "neo_shard_accumulate_end, then neo_shard_step, or neo_shard_clear",
               s->map->desc.name, s->kept.batches);
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "neo_shard_backward_end: lr is %g", (double)lr);
    NEO__TRY(neo__shard_or_abort(s, neo__shard_backward_ready(s)));
    NEO__TRY(neo__shard_or_abort(s, neo__shard_update(s, &s->batches[s->current], lr)));
    s->phase = NEO__SHARD_IDLE;
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward(neo_shard *s, const neo_jagged *batch, int64_t global_batch,
                                     neo_tensor out) {
    NEO__TRY(neo_shard_forward_begin(s, batch, global_batch));
    neo_status status = neo_shard_forward_end(s, out);
    if (s->phase == NEO__SHARD_FORWARD) s->phase = NEO__SHARD_IDLE; /* out is wrong: begin again */
    return status;
}
NEO_API neo_status neo_shard_backward(neo_shard *s, neo_tensor dout, float lr) {
    NEO__TRY(neo_shard_backward_begin(s, dout));
    return neo_shard_backward_end(s, lr);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-weights

   The gradient of an id's weight is a product of its row and of a gradient, which are both where
   the row is: what goes back to the id's rank is sums of products. A part with the first column of
   a table says of an id the sum over its blocks of 16 columns, another part its blocks one by one:
   the id's rank adds them to that sum in order of column, as one rank does. A message from a holder
   to a rank: route by route of the holder, the ids that came from the rank, as it sent them:
   [ids][floats].

   So that a gradient can be multiplied before MEAN divides it, dout travels undivided if its wire
   is f32, and the holders divide, by lengths of whole bags that came with the others. On another
   wire what travels, and is multiplied, is divided and rounded.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
/* A block of 16 columns, n of them there: products rounded, by the tree of >>bag-optim. */
NEO__INLINE float neo__shard_block_sum(const float *x, const float *y, int64_t n) {
    float q[16];
    if (n >= 16)
        for (int i = 0; i < 16; i++) q[i] = x[i] * y[i];
    else
        for (int i = 0; i < 16; i++) q[i] = i < n ? x[i] * y[i] : 0.0f;
    for (int i = 0; i < 8; i++) q[i] += q[i + 8];
    for (int i = 0; i < 4; i++) q[i] += q[i + 4];
    return (q[0] + q[2]) + (q[1] + q[3]);
}
/* Floats that a part says of an id: [neo__shard_grad_floats]. */
static void neo__shard_grad_of(const neo__shard_part *part, const float *row, const float *dout,
                               float *to) {
    float sum = 0.0f;
    for (int64_t c = 0; c < part->cols; c += 16) {
        float block = neo__shard_block_sum(row + c, dout + c, part->cols - c);
        sum += block;
        if (part->first_col) *to++ = block;
    }
    if (!part->first_col) *to = sum;
}
/* Ids of one bag of a route, sample g: to `to`; returns where the next bag's go. */
static float *neo__shard_grad_bag(const neo__shard_id_job *k, const neo__shard_route *route,
                                  const int64_t *offsets, int64_t g, float *to, float *room) {
    const neo_shard *s = k->s;
    const neo__shard_part *part = &s->map->parts[route->part];
    int32_t table = (int32_t)(route->part - s->map->part_begin[s->rank]);
    const int64_t next = s->per_id.dim; /* a gradient for each id, or one for all of the bag */
    const float *dout = next ? (const float *)s->per_id.local.data + offsets[0] * next
                             : s->pooled.local + g * s->pooled.width + route->col;
    const float *row = room;
    neo_tensor w = neo_bags_weight(s->bags, table);
    int64_t floats = neo__shard_grad_floats(part);
    for (int64_t i = offsets[0]; i < offsets[1]; i++, to += floats, dout += next) {
        int64_t id = neo__shard_id(&k->b->local, i);
        if (w.dtype == NEO_F32 && w.place == NEO_HOST)
            row = (const float *)w.data + id * part->cols;
        else /* only reads, so threads may */
            (void)neo_bags_get_rows(s->bags, table, id, 1, room);
        neo__shard_grad_of(part, row, dout, to);
    }
    return to;
}
/* A task: what one rank is told of one route. */
static void neo__shard_grad_task(void *arg, int64_t task, int worker) {
    const neo__shard_id_job *k = (const neo__shard_id_job *)arg;
    const neo__shard_batch *b = k->b;
    neo_shard *s = k->s;
    const int64_t i = task % s->exchange.routes, r = task / s->exchange.routes;
    const neo__shard_route *route = &s->map->routes[s->map->route_begin[s->rank] + i];
    float *to = (float *)s->per_id.grad_out.data + s->per_id.out_at[task];
    float *room = s->per_id.row;
    if (room) room += worker * (s->per_id.room / neo_ctx_threads(s->ctx));
    for (int64_t g = b->start[r]; g < b->start[r + 1]; g++)
        to = neo__shard_grad_bag(k, route, b->offsets + i * b->global + g, g, to, room);
}
/* The sums of whole rows, in place of what the parts with the first columns say. */
static void neo__shard_grad_join(neo_shard *s, const neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    float *in = (float *)s->per_id.grad_in.data;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t q = 0; q < m->route_count; q++) { /* by feature and column */
        const neo__shard_route *r = &m->pull[q];
        const neo__shard_part *part = &m->parts[r->part];
        int32_t u = neo__shard_source_of_route(m, r);
        int64_t at = s->per_id.in_at[r->place], n = (part->cols + 15) / 16;
        if (part->first_col == 0) s->per_id.next[u] = at;
        for (int64_t i = 0; i < b->sent[u] && part->first_col; i++) {
            float sum = in[s->per_id.next[u] + i];
            for (int64_t k = 0; k < n; k++) sum += in[at + i * n + k];
            in[s->per_id.next[u] + i] = sum;
        }
    }
    neo__fp_leave(fp);
}
/* Gradients of weights of a feature to the caller, in order of ids: of a data-parallel table from
   `own`, one after another (returns where they end); else (NULL) of what has come. */
static const float *neo__shard_grad_give(const neo__shard_id_job *k, int32_t f, const float *own) {
    const neo__shard_map *m = k->s->map;
    const neo_jagged *j = &k->b->batch;
    const float *in = (const float *)k->s->per_id.grad_in.data;
    const int64_t rows = m->tables[m->feature_table[f]].rows;
    const int64_t *offsets = j->offsets + f * j->batch;
    for (int64_t i = 0; i < j->batch; i++) {
        int64_t length = neo__shard_is_late(m, f) ? offsets[i + 1] - offsets[i] : 1;
        for (int64_t n = offsets[i]; n < offsets[i + 1]; n++) {
            int64_t row = own ? -1 : neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, n));
            float x = own ? *own++ : 0.0f;
            if (row >= 0) x = in[k->s->per_id.next[neo__shard_source_of(m, f, row)]++];
            k->rows[n - j->offsets[0]] = length > 1 ? x / (float)length : x;
        }
    }
    return own;
}
static void neo__shard_grad_give_task(void *arg, int64_t feature, int worker) {
    const neo__shard_id_job *k = (const neo__shard_id_job *)arg;
    const int64_t *first = k->s->map->first_source + feature;
    (void)worker;
    if (first[0] < first[1]) neo__shard_grad_give(k, (int32_t)feature, NULL);
}
NEO__HOT_END
/* Gradients of weights of data-parallel tables: all that they need is on this rank. */
static neo_status neo__shard_grad_replicas(const neo__shard_id_job *k) {
    neo_shard *s = k->s;
    neo_jagged j;
    neo_tensor rows, take;
    NEO__TRY(neo__shard_run_rows(s, NEO__SHARD_COPIES_RAW, s->dout, s->pooled.copies));
    NEO__TRY(neo__shard_copies_rows(s, 0, k->b->batch.batch, 1, &j, &rows));
    int64_t ids = neo_jagged_id_count(&j);
    NEO__TRY(neo__shard_reserve(s, &s->per_id.grad_out, ids, sizeof(float)));
    float *made = (float *)s->per_id.grad_out.data;
    const float *grad = made;
    NEO__TRY(neo__shard_take_there(s, rows, ids, &take));
    if (take.place == NEO_DEVICE) made = (float *)s->bounce.there.data + neo_tensor_count(rows);
    NEO__TRY(neo_bags_weight_grad(s->replicas, &j, take, made));
    if (take.place == NEO_DEVICE)
        NEO__TRY(neo__shard_move_floats(s, made, NEO_DEVICE, (float *)s->per_id.grad_out.data,
                                        NEO_HOST, ids));
    neo__fp_state fp = neo__fp_enter();
    for (int64_t q = 0; q < s->map->replica_count; q++)
        grad = neo__shard_grad_give(k, s->map->replicas[q], grad);
    neo__fp_leave(fp);
    return NEO_OK;
}
static neo_status neo__shard_weight_grads(neo_shard *s, float *dweights) {
    neo__shard_id_job k = {s, &s->batches[s->current], dweights, 1, 0};
    int64_t *out = s->exchange.counts, *in = s->exchange.counts + s->map->ranks;
    NEO__TRY(neo__shard_stage_come(s));
    int64_t out_floats = neo__shard_per_id_count(s, k.b, 1, out);
    int64_t in_floats = neo__shard_per_id_count(s, k.b, 0, in);
    NEO__TRY(neo__shard_reserve(s, &s->per_id.grad_out, out_floats, sizeof(float)));
    NEO__TRY(neo__shard_reserve(s, &s->per_id.grad_in, in_floats, sizeof(float)));
    if (neo_ctx_device(s->ctx)) { /* which one thread at a time may ask */
        neo__fp_state fp = neo__fp_enter();
        for (int64_t i = 0; i < s->per_id.pairs; i++) neo__shard_grad_task(&k, i, 0);
        neo__fp_leave(fp);
    } else {
        neo_parallel_for(s->ctx, s->per_id.pairs, neo__shard_grad_task, &k);
    }
    NEO__TRY(neo_comm_all_to_allv(s->rows, s->per_id.grad_out.data, out, s->per_id.grad_in.data, in,
                                  NEO_F32, NULL));
    neo__shard_grad_join(s, k.b);
    neo_parallel_for(s->ctx, s->map->feature_count, neo__shard_grad_give_task, &k);
    return s->replicas ? neo__shard_grad_replicas(&k) : NEO_OK;
}
/* Gradients of weights to the caller's memory. */
static neo_status neo__shard_show_weight_grads(neo_shard *s, const neo_jagged *batch,
                                               float *dweights) {
    int64_t ids = neo_jagged_id_count(batch);
    if (!neo_ctx_device(s->ctx)) return neo__shard_weight_grads(s, dweights);
    NEO__TRY(neo__shard_reserve(s, &s->bounce.shown_grads, ids, sizeof(float)));
    float *shown = (float *)s->bounce.shown_grads.data;
    NEO__TRY(neo__shard_weight_grads(s, shown));
    return neo__shard_move_floats(s, shown, NEO_HOST, dweights, NEO_DEVICE, ids);
}
NEO_API neo_status neo_shard_weight_grad(neo_shard *s, float *dweights) {
    const char *fn = "neo_shard_weight_grad";
    NEO__CHECK(s, NEO_ERR_ARG, "%s: shard is NULL", fn);
    NEO__CHECK(s->map->weight_grad, NEO_ERR_STATE,
               "%s: the plan has no gradients of weights: give neo_plan_desc.weight_grad", fn);
    NEO__CHECK(s->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE,
               "%s: no backward has begun (call it between neo_shard_backward_begin and _end)", fn);
    const neo_jagged *batch = &s->batches[s->current].batch;
    NEO__CHECK(dweights || neo_jagged_id_count(batch) == 0, NEO_ERR_ARG, "%s: dweights is NULL",
               fn);
    if (s->whole) return neo_bags_weight_grad(s->bags, batch, s->dout, dweights);
    return neo__shard_or_abort(s, neo__shard_show_weight_grads(s, batch, dweights));
}

/* ---------------------------------------------------------------------------
   >>impl-shard-keep

   Gradients that are kept are in the slots of this rank's neo_bags: of its parts, and of its copies
   of data-parallel tables, which every rank has alike once the sums over all ranks are there. The
   neo_bags of copies also merges each subtree of leaves of a batch, before that sum: meanwhile what
   it keeps is parked in dense_sum.

   Room: a part keeps at most as many rows as ids came to it in all batches, and no more than it
   has. What the plan expects of the ids has room from the start; where there come more, it grows
   when a batch is added.
   ------------------------------------------------------------------------ */
/* Room for the rows of one more batch. */
static neo_status neo__shard_keep_room(neo_shard *s, const neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    double rows = 0.0;
    if (s->whole) {
        rows = (double)neo_bags_kept_count(s->bags) + (double)neo_jagged_id_count(&b->batch);
        return neo_bags_reserve_kept(s->bags, neo__shard_most_kept(rows));
    }
    const neo__shard_part *part = m->parts + m->part_begin[s->rank];
    const neo__shard_route *route = m->routes + m->route_begin[s->rank];
    for (int64_t i = 0; i < s->exchange.routes; i++) {
        int64_t p = route[i].part - m->part_begin[s->rank];
        int64_t ids = s->kept.ids[p] + b->offsets[(i + 1) * b->global] - b->offsets[i * b->global];
        s->kept.ids[p] = ids < part[p].rows ? ids : part[p].rows;
    }
    for (int64_t p = 0; p < s->kept.parts; p++) rows += (double)s->kept.ids[p];
    return neo_bags_reserve_kept(s->bags, neo__shard_most_kept(rows));
}
static neo_status neo__shard_keep(neo_shard *s) {
    const neo__shard_batch *b = &s->batches[s->current];
    if (s->replicas) NEO__TRY(neo__shard_copies_keep(s, s->copies.touched));
    if (!s->bags) return NEO_OK;
    NEO__TRY(neo__shard_keep_room(s, b));
    if (s->whole) return neo_bags_accumulate(s->bags, &b->local, s->dout, NULL);
    neo_tensor rows;
    NEO__TRY(neo__shard_take_there(s, neo__shard_local_rows(s, b), 0, &rows));
    return neo_bags_accumulate(s->bags, &b->local, rows, NULL);
}
NEO_API neo_status neo_shard_accumulate_end(neo_shard *s) {
    const char *fn = "neo_shard_accumulate_end";
    NEO__CHECK(s && s->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE, "%s: no backward has begun",
               fn);
    NEO__CHECK(s->map->kept_batches, NEO_ERR_STATE,
               "%s: the plan keeps no gradients: give neo_plan_desc.kept_batches", fn);
    int full = s->kept.batches == s->map->kept_batches;
    NEO__TRY(neo__shard_or_abort(s, neo__shard_backward_ready(s)));
    if (!full) NEO__TRY(neo__shard_or_abort(s, neo__shard_keep(s)));
    s->phase = NEO__SHARD_IDLE;
    NEO__CHECK(!full, NEO_ERR_CAPACITY,
               "%s: bags '%s': gradients of %d batches are kept, as many as planned "
               "(neo_plan_desc.kept_batches): this batch is left out",
               fn, s->map->desc.name, s->kept.batches);
    s->kept.batches++;
    return NEO_OK;
}
NEO_API neo_status neo_shard_accumulate(neo_shard *s, neo_tensor dout) {
    NEO__TRY(neo_shard_backward_begin(s, dout));
    return neo_shard_accumulate_end(s);
}
NEO_API int64_t neo_shard_kept_count(const neo_shard *s) {
    return (s->bags ? neo_bags_kept_count(s->bags) : 0) +
           (s->replicas ? neo_bags_kept_count(s->replicas) : 0);
}
static neo_status neo__shard_check_torn(const neo_shard *s, const char *fn) {
    NEO__CHECK(
        !s->kept.torn, NEO_ERR_STATE,
        "%s: bags '%s': a call of the device has failed in the middle of neo_shard_scale_grads or "
        "neo_shard_clear: what is kept is of no use, call neo_shard_clear",
        fn, s->map->desc.name);
    return NEO_OK;
}
NEO_API neo_status neo_shard_grad_squares(const neo_shard *s, neo_exact *sum) {
    const char *fn = "neo_shard_grad_squares";
    NEO__ZERO(neo_exact, squares);
    NEO__CHECK(s && sum, NEO_ERR_ARG, "%s: shard or sum is NULL", fn);
    NEO__TRY(neo__shard_check_torn(s, fn));
    if (s->bags) NEO__TRY(neo_bags_grad_squares(s->bags, &squares));
    if (s->replicas && s->rank == 0) NEO__TRY(neo_bags_grad_squares(s->replicas, &squares));
    neo_exact_merge(sum, &squares);
    return NEO_OK;
}
NEO_API neo_status neo_shard_scale_grads(neo_shard *s, float scale) {
    const char *fn = "neo_shard_scale_grads";
    NEO__CHECK(s, NEO_ERR_ARG, "%s: shard is NULL", fn);
    NEO__TRY(neo__shard_check_torn(s, fn));
    if (s->bags) NEO__TRY(neo_bags_scale_grads(s->bags, scale));
    neo_status status = s->replicas ? neo_bags_scale_grads(s->replicas, scale) : NEO_OK;
    s->kept.torn = status != NEO_OK && s->bags;
    return status;
}
/* Nothing is kept any more. */
static void neo__shard_keep_none(neo_shard *s) {
    neo__shard_fill(s->kept.ids, 0, (size_t)s->kept.parts * sizeof *s->kept.ids);
    s->kept.batches = s->kept.torn = 0;
}
NEO_API neo_status neo_shard_clear(neo_shard *s) {
    NEO__CHECK(s, NEO_ERR_ARG, "neo_shard_clear: shard is NULL");
    s->kept.torn = 1;
    if (s->bags) NEO__TRY(neo_bags_clear(s->bags));
    if (s->replicas) NEO__TRY(neo_bags_clear(s->replicas));
    neo__shard_keep_none(s);
    return NEO_OK;
}
/* Whether a step can be taken: what all ranks have found. */
static neo_status neo__shard_check_step(const neo_shard *s, const char *fn, float lr) {
    NEO__CHECK(s->map->kept_batches, NEO_ERR_STATE,
               "%s: the plan keeps no gradients: give neo_plan_desc.kept_batches", fn);
    NEO__TRY(neo__shard_check_idle(s, fn, "accumulate"));
    NEO__TRY(neo__shard_check_torn(s, fn));
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "%s: lr is %g", fn, (double)lr);
    return NEO_OK;
}
static neo_status neo__shard_agree_step(neo_shard *s, const char *fn, float lr) {
    neo_status status = neo__shard_check_step(s, fn, lr);
    return s->whole ? status : neo_comm_agree(s->rows, status);
}
static neo_status neo__shard_step_kept(neo_shard *s, float lr) {
    NEO__TRY(neo__shard_or_abort(s, neo__shard_update(s, NULL, lr)));
    neo__shard_keep_none(s); /* the steps of neo_bags have left nothing */
    return NEO_OK;
}
NEO_API neo_status neo_shard_step(neo_shard *s, float lr) {
    NEO__CHECK(s, NEO_ERR_ARG, "neo_shard_step: shard is NULL");
    NEO__TRY(neo__shard_agree_step(s, "neo_shard_step", lr));
    return neo__shard_step_kept(s, lr);
}

/* ---- what a neo_shard tells ---- */
NEO_API int64_t neo_shard_out_width(const neo_shard *s) {
    return s->map->none ? s->map->tables[0].dim : s->map->feature_col[s->map->feature_count];
}
static void neo__shard_add_stats(neo_comm_stats *to, neo_comm_stats more) {
    to->wait_ns += more.wait_ns;
    for (int op = 0; op < (int)NEO_COMM_OP_COUNT; op++) {
        neo_comm_counter *c = &to->op[op], *d = &more.op[op];
        c->calls += d->calls;
        c->time_ns += d->time_ns;
        c->control_bytes += d->control_bytes;
        for (int l = 0; l < (int)NEO_LEVEL_COUNT; l++)
            c->bytes[l] += d->bytes[l], c->messages[l] += d->messages[l];
    }
}
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *s) {
    neo_shard_stats st;
    neo__shard_fill(&st, 0, sizeof st);
    st.steps = s->steps;
    st.out_of_range = s->out_of_range;
    st.grow_count = s->grow_count;
    if (s->bags) st.grow_count += neo_bags_get_stats(s->bags).grow_count;
    if (s->replicas) st.grow_count += neo_bags_get_stats(s->replicas).grow_count;
    if (s->whole) {
        st.steps = neo_bags_get_stats(s->bags).steps;
        st.out_of_range += neo_bags_get_stats(s->bags).out_of_range;
        return st;
    }
    st.ids = neo_comm_get_stats(s->ids);
    st.rows = neo_comm_get_stats(s->rows);
    if (s->moves != s->rows) neo__shard_add_stats(&st.rows, neo_comm_get_stats(s->moves));
    if (s->node) {
        st.node = neo_comm_get_stats(s->node);
        st.cross = neo_comm_get_stats(s->cross);
    }
    st.forward = s->wire_stats[0];
    st.backward = s->wire_stats[1];
    return st;
}
NEO_API void neo_shard_reset_stats(neo_shard *s) {
    s->out_of_range = s->whole ? -neo_bags_get_stats(s->bags).out_of_range : 0;
    neo__shard_fill(s->wire_stats, 0, sizeof s->wire_stats);
    neo_comm *groups[] = {s->ids, s->rows, s->moves, s->node, s->cross};
    for (int i = 0; i < 5; i++)
        if (groups[i]) neo_comm_reset_stats(groups[i]);
}

/* ---- state ---- */
/* The k-th tensor of a table: weights, scales (of i8 rows), states; none if it has no such. */
enum { NEO__SHARD_TENSORS = 4 };
static const char *const neo__shard_tensor_name[] = {"weight", "scale", "momentum1", "momentum2"};
static neo_tensor neo__shard_tensor(const neo_bags *bags, int32_t table, int k) {
    return k == 0   ? neo_bags_weight(bags, table)
           : k == 1 ? neo_bags_scale(bags, table)
                    : neo_bags_state(bags, table, k - 2);
}
/* The place of the k-th tensor t of a part in its table's. One float per row stands in every slice;
   the first has it. */
static neo_part neo__shard_part_place(const neo_shard *s, const neo__shard_part *part, int k,
                                      neo_tensor t) {
    neo_part place;
    const neo_table_desc *table = &s->map->tables[part->table];
    int per_row = k == 1 || t.ndim == 1;
    place.rows = table->rows;
    place.cols = per_row ? (t.ndim == 2 ? t.shape[1] : 0) : table->dim;
    place.first_row = part->first_row;
    place.first_col = per_row ? 0 : part->first_col;
    place.copy = per_row && part->first_col > 0;
    return place;
}
/* The k-th tensor of a table, if it has one; place NULL: it is whole. */
static neo_status neo__shard_add_tensor(neo_state *state, const neo_shard *s, const char *table,
                                        int k, neo_tensor t, const neo_part *place) {
    char name[1024];
    neo_state_kind kind = k < 2 ? NEO_STATE_WEIGHT : NEO_STATE_OPTIMIZER;
    if (!t.data) return NEO_OK;
    int n = snprintf(name, sizeof name, "%s.%s.%s", s->map->desc.name, table,
                     neo__shard_tensor_name[k]);
    NEO__CHECK(n > 0 && n < (int)sizeof name, NEO_ERR_ARG,
               "neo_state_add_shard: the name %.100s... is too long", name);
    return place ? neo_state_add_part(state, kind, name, t, place)
                 : neo_state_add(state, kind, name, t);
}
NEO_API neo_status neo_state_add_shard(neo_state *state, neo_shard *s) {
    NEO__CHECK(state && s, NEO_ERR_ARG, "neo_state_add_shard: an argument is NULL");
    if (s->whole) return neo_state_add_bags(state, s->bags);
    char name[1024];
    int64_t first = s->map->part_begin[s->rank], end = s->map->part_begin[s->rank + 1];
    for (int32_t t = 0; t < s->map->table_count; t++)
        NEO__TRY(neo__state_define_buckets(state, s->map->desc.name, s->map->tables[t].name,
                                           s->map->tables[t].row_buckets));
    for (int k = 0; k < NEO__SHARD_TENSORS; k++) {
        for (int64_t p = first; p < end; p++) {
            const neo__shard_part *part = &s->map->parts[p];
            neo_tensor t = neo__shard_tensor(s->bags, (int32_t)(p - first), k);
            neo_part place = neo__shard_part_place(s, part, k, t);
            const char *table = s->map->tables[part->table].name;
            NEO__TRY(neo__shard_add_tensor(state, s, table, k, t, &place));
        }
        for (int32_t i = 0; s->replicas && i < neo_bags_table_count(s->replicas); i++)
            NEO__TRY(neo__shard_add_tensor(state, s, neo_bags_table_name(s->replicas, i), k,
                                           neo__shard_tensor(s->replicas, i, k), NULL));
    }
    snprintf(name, sizeof name, "%s.step", s->map->desc.name);
    return neo_state_add(state, NEO_STATE_OPTIMIZER, name, neo_tensor_1d(&s->steps, NEO_I64, 1));
}

/* ---------------------------------------------------------------------------
   >>impl-shard-table

   Rows of a table, read and written. What a rank holds of rows [a, b) is a rectangle for each of
   its parts; those of all ranks stand one after another, by rank and part, in what is gathered and
   scattered. Rows go in chunks, so that a table need not fit into the call's memory.
   ------------------------------------------------------------------------ */
#ifndef NEO__SHARD_CHUNK
#define NEO__SHARD_CHUNK (1 << 20) /* floats; tests choose fewer */
#endif

typedef struct neo__shard_span {
    neo_shard *s;
    const char *fn;
    int32_t table;
    int64_t first, count, dim, chunk; /* rows; rows at a time */
    int root, set;
    int wants; /* this rank gets the rows, or knows them */
    float *out;
    const float *in;       /* [count][dim], of get and of set */
    float *packed, *whole; /* [chunk][dim]: of this rank, and of all */
} neo__shard_span;

/* Parts of rows [a, b) on ranks [r, end), one rectangle after another: to out, or from in; returns
   how many floats. */
static int64_t neo__shard_rectangles(const neo__shard_span *k, int r, int end, int64_t a, int64_t b,
                                     float *packed, float *out, const float *in) {
    const neo__shard_map *m = k->s->map;
    int64_t at = 0;
    for (int64_t p = m->part_begin[r]; p < m->part_begin[end]; p++) {
        const neo__shard_part *part = &m->parts[p];
        int64_t row = NEO__MAX(a, part->first_row);
        int64_t last = NEO__MIN(b, part->first_row + part->rows);
        if (part->table != k->table) continue;
        for (; row < last; row++, at += part->cols) {
            int64_t place = (row - k->first) * k->dim + part->first_col;
            size_t bytes = (size_t)part->cols * sizeof *packed;
            if (out) neo__shard_copy(out + place, packed + at, bytes);
            if (in) neo__shard_copy(packed + at, in + place, bytes);
        }
    }
    return at;
}
/* Rectangles of this rank, between packed and its neo_bags. */
static neo_status neo__shard_own_rows(const neo__shard_span *k, int64_t a, int64_t b) {
    const neo__shard_map *m = k->s->map;
    int64_t begin = m->part_begin[k->s->rank];
    float *at = k->packed;
    for (int64_t p = begin; p < m->part_begin[k->s->rank + 1]; p++) {
        const neo__shard_part *part = &m->parts[p];
        int64_t row = NEO__MAX(a, part->first_row);
        int64_t n = NEO__MIN(b, part->first_row + part->rows) - row;
        int32_t t = (int32_t)(p - begin);
        if (part->table != k->table || n <= 0) continue;
        row -= part->first_row;
        if (k->set) NEO__TRY(neo_bags_set_rows(k->s->bags, t, row, n, at));
        else NEO__TRY(neo_bags_get_rows(k->s->bags, t, row, n, at));
        at += n * part->cols;
    }
    return NEO_OK;
}
/* Rows [a, b) of a table whose parts lie on ranks: gathered, or scattered if they are set. */
static neo_status neo__shard_move_chunk(const neo__shard_span *k, int64_t a, int64_t b) {
    const neo_shard *s = k->s;
    const int ranks = s->map->ranks, all = k->root == NEO_EVERY_RANK;
    int64_t *counts = s->exchange.counts;
    for (int r = 0; r < ranks; r++)
        counts[r] = neo__shard_rectangles(k, r, r + 1, a, b, NULL, NULL, NULL);
    if (k->set && all) {
        neo__shard_rectangles(k, s->rank, s->rank + 1, a, b, k->packed, NULL, k->in);
    } else if (k->set) {
        if (k->wants) neo__shard_rectangles(k, 0, ranks, a, b, k->whole, NULL, k->in);
        NEO__TRY(neo_comm_scatter(s->rows, k->whole, k->packed, 0, counts, NEO_F32, k->root, NULL));
    }
    NEO__TRY(neo__shard_own_rows(k, a, b));
    if (k->set) return NEO_OK;
    NEO__TRY(all ? neo_comm_all_gather(s->rows, k->packed, k->whole, 0, counts, NEO_F32, NULL)
                 : neo_comm_gather(s->rows, k->packed, k->whole, 0, counts, NEO_F32, k->root,
                                   NULL));
    if (k->wants) neo__shard_rectangles(k, 0, ranks, a, b, k->whole, k->out, NULL);
    return NEO_OK;
}
/* Rows [a, b) of a data-parallel table, table t of the copies. */
static neo_status neo__shard_set_copies(const neo__shard_span *k, int32_t t, int64_t a, int64_t b) {
    const float *rows = k->whole;
    if (k->wants) rows = k->in + (a - k->first) * k->dim;
    if (k->root != NEO_EVERY_RANK) {
        int64_t floats = (b - a) * k->dim;
        if (k->wants) neo__shard_copy(k->whole, rows, (size_t)floats * sizeof *rows);
        NEO__TRY(neo_comm_broadcast(k->s->rows, k->whole, floats, NEO_F32, k->root, NULL));
    }
    return neo_bags_set_rows(k->s->replicas, t, a, b - a, rows);
}
/* The place of a table among the data-parallel ones, or -1. */
static int32_t neo__shard_copy_of(const neo__shard_map *m, int32_t table) {
    int32_t place = -1;
    for (int64_t i = 0; i < m->replica_count; i++) {
        int32_t t = m->feature_table[m->replicas[i]];
        if (i == 0 || t != m->feature_table[m->replicas[i - 1]]) place++;
        if (t == table) return place;
    }
    return -1;
}
static neo_status neo__shard_move_rows(const neo__shard_span *k) {
    int32_t copy = neo__shard_copy_of(k->s->map, k->table);
    int64_t end = k->first + k->count;
    if (copy >= 0 && !k->set && !k->wants) return NEO_OK;
    if (copy >= 0 && !k->set)
        return neo_bags_get_rows(k->s->replicas, copy, k->first, k->count, k->out);
    for (int64_t a = k->first; a < end; a += k->chunk) {
        int64_t b = NEO__MIN(end, a + k->chunk);
        NEO__TRY(copy >= 0 ? neo__shard_set_copies(k, copy, a, b)
                           : neo__shard_move_chunk(k, a, b));
    }
    return NEO_OK;
}
static neo_status neo__shard_check_span(const neo__shard_span *k) {
    const neo_shard *s = k->s;
    const neo__shard_map *m = s->map;
    NEO__CHECK(k->table >= 0 && k->table < m->table_count, NEO_ERR_ARG,
               "%s: bags '%s' has no table %d", k->fn, m->desc.name, k->table);
    NEO__CHECK(k->root >= NEO_EVERY_RANK && k->root < m->ranks, NEO_ERR_ARG,
               "%s: root is %d, there are %d ranks (NEO_EVERY_RANK: all)", k->fn, k->root,
               m->ranks);
    const neo_table_desc *t = &m->tables[k->table];
    NEO__CHECK(k->first >= 0 && k->count >= 0 && k->first <= t->rows - k->count, NEO_ERR_RANGE,
               "%s: table '%s': %" PRId64 " rows from %" PRId64 " on, it has %" PRId64, k->fn,
               t->name, k->count, k->first, t->rows);
    int mine = k->root == NEO_EVERY_RANK || k->root == s->rank;
    NEO__CHECK(!mine || k->out || k->in || k->count == 0, NEO_ERR_ARG, "%s: rows is NULL", k->fn);
    return neo__shard_check_idle(s, k->fn, "backward");
}
/* Check that all ranks give the same numbers as rank 0. */
static neo_status neo__shard_same_span(const neo__shard_span *k) {
    const int64_t mine[] = {k->table, k->first, k->count, k->root, k->set};
    int64_t first[5];
    memcpy(first, mine, sizeof mine);
    NEO__TRY(neo_comm_broadcast(k->s->rows, first, 5, NEO_I64, 0, NULL));
    NEO__CHECK(memcmp(mine, first, sizeof mine) == 0, NEO_ERR_MISMATCH,
               "%s: another table, rows or root than on rank 0", k->fn);
    return NEO_OK;
}
static neo_status neo__shard_span_run(neo__shard_span *k) {
    neo_shard *s = k->s;
    NEO__CHECK(s, NEO_ERR_ARG, "%s: shard is NULL", k->fn);
    neo_status status = neo__shard_check_span(k);
    if (s->whole) {
        NEO__TRY(status);
        return k->set ? neo_bags_set_rows(s->bags, k->table, k->first, k->count, k->in)
                      : neo_bags_get_rows(s->bags, k->table, k->first, k->count, k->out);
    }
    NEO__TRY(neo_comm_agree(s->rows, status));
    NEO__TRY(neo_comm_agree(s->rows, neo__shard_same_span(k)));
    k->dim = s->map->tables[k->table].dim;
    k->chunk = NEO__MAX((int64_t)NEO__SHARD_CHUNK / k->dim, (int64_t)1);
    k->chunk = NEO__MIN(k->chunk, k->count);
    k->wants = k->root == NEO_EVERY_RANK || k->root == s->rank;
    size_t bytes = 2 * (size_t)(k->chunk * k->dim) * sizeof(float);
    k->packed = bytes ? (float *)neo__alloc_for(s->ctx, bytes, k->fn) : NULL;
    k->whole = k->packed ? k->packed + k->chunk * k->dim : NULL;
    status = neo_comm_agree(s->rows, bytes && !k->packed ? NEO_ERR_MEMORY : NEO_OK);
    if (status == NEO_OK) status = neo__shard_or_abort(s, neo__shard_move_rows(k));
    neo_free(s->ctx, k->packed, bytes);
    return status;
}
static neo__shard_span neo__shard_span_of(neo_shard *s, const char *fn, int32_t table,
                                          int64_t first, int64_t count, int root) {
    NEO__ZERO(neo__shard_span, k);
    k.s = s;
    k.fn = fn;
    k.table = table;
    k.first = first;
    k.count = count;
    k.root = root;
    return k;
}
NEO_API neo_status neo_shard_get_rows(neo_shard *s, int32_t table, int64_t first, int64_t count,
                                      int root, float *rows) {
    neo__shard_span k = neo__shard_span_of(s, "neo_shard_get_rows", table, first, count, root);
    k.out = rows;
    return neo__shard_span_run(&k);
}
NEO_API neo_status neo_shard_set_rows(neo_shard *s, int32_t table, int64_t first, int64_t count,
                                      int root, const float *rows) {
    neo__shard_span k = neo__shard_span_of(s, "neo_shard_set_rows", table, first, count, root);
    k.set = 1;
    k.in = rows;
    return neo__shard_span_run(&k);
}

/* ---------------------------------------------------------------------------
   >>impl-fsdp

   A unit is cut (its chunk is of F) or whole (every rank has all of it). Replicated units are
   whole, all units of DDP, and everything where F is 1: one rank needs no slots and no wire.

   The way of a unit's gradient:
     window    f32, bound in the backward window. A unit that is kept, whole, or whose gradients
               must outlive the window has buffers of its own, one per piece; others borrow those
               of a lane
     narrow    the same in reduce_dtype, if that is not f32: of the unit, if it has several pieces,
               else of the lane
     reduced   this rank's chunk of the sum, unless it can go straight to the gradient
   A lane is one reduction under way. Pieces merge to the maximal subtrees of this rank's leaves
   before they travel. Whole units have their gradients one after another, the last unit first, so
   that a bucket of an all-reduce is a range of elements over any number of units.

   Everything that is allocated is laid out twice by one function: to count (predict) and to place.
   ------------------------------------------------------------------------ */
enum {
    NEO__FSDP_BLOCK = 256, /* elements: parameters, and cuts of units, begin at multiples */
    NEO__FSDP_MAX_UNITS = 1 << 20,
    NEO__FSDP_LANES = 3,
    NEO__FSDP_HISTORY = 256,          /* windows of a step that are remembered one by one */
    NEO__FSDP_FIRST_BUCKET = 1 << 20, /* bytes; DistributedDataParallel's sizes */
    NEO__FSDP_BUCKET = 25 << 20
};
typedef enum neo__fsdp_window {
    NEO__FSDP_CLOSED,
    NEO__FSDP_FORWARD,
    NEO__FSDP_BACKWARD
} neo__fsdp_window;
typedef enum neo__fsdp_presence {
    NEO__FSDP_AWAY,
    NEO__FSDP_COMING,
    NEO__FSDP_HERE
} neo__fsdp_presence;

typedef struct neo__fsdp_unit {
    const char *name, *absent, *no_grad; /* texts of the record */
    neo_params *params;
    int params_count, first_param; /* of the set of shards, which has no frozen ones */
    int keep, whole, frozen;
    int stays, slotted;         /* gathered to `full`, to a slot; neither: the master is whole */
    int own_window, own_narrow; /* has such buffers of its own */
    int borrows;                /* windows of lanes */
    int64_t *begin;             /* [params_count + 1]: where each parameter begins */
    int64_t elements, chunk;    /* filled up; of this rank */
    int64_t at;                 /* whole: its place among the gradients of whole units */
    float *master, *grad;       /* [chunk]; grad NULL if frozen */
    float *full;                /* [elements] */
    float **window;             /* [pieces] or NULL */
    float *scratch;             /* a window for micro-batches after the first, that add to those */
    void **narrow;              /* [pieces] or NULL */
    neo__fsdp_presence presence;
    int slot, stage, lane;      /* -1: none */
    neo_ticket ticket;          /* of the gather */
    neo__fsdp_window open;
    int piece;                  /* of the open backward window, */
    float *bound;               /* and where its gradients are */
    int filled, micro;          /* pieces of this micro-batch, micro-batches of this step: there */
} neo__fsdp_unit;

typedef enum neo__fsdp_lane_state {
    NEO__FSDP_FREE,
    NEO__FSDP_WINDOW,  /* its window is bound */
    NEO__FSDP_SCATTER, /* a reduce-scatter is under way */
    NEO__FSDP_JOIN     /* an all-reduce across replicas */
} neo__fsdp_lane_state;
typedef struct neo__fsdp_lane {
    neo__fsdp_lane_state state;
    int unit;
    float *window;   /* [largest unit] */
    void **narrow;   /* [pieces]: [largest unit] */
    void *reduced;   /* [largest chunk] */
    neo_ticket ticket;
    int64_t since;   /* order of the reductions */
} neo__fsdp_lane;
typedef struct neo__fsdp_bucket {
    int64_t first, count; /* elements of the whole units' gradients */
    int units, waits;     /* in it; of them, those that have not finished this micro-batch */
    int launched;         /* its sum is under way, in the windows of its units */
    int micro;            /* sums that its gradients hold */
    neo_ticket ticket;
} neo__fsdp_bucket;

/* Gradients of this rank's leaves, piece by piece. */
typedef struct neo__fsdp_leaves {
    int pieces, own, subtrees; /* pieces of the rank that has most; of this one */
    neo__leaf_run *piece;      /* [pieces] leaves */
    neo__leaf_run *subtree;    /* [subtrees] pieces of a maximal subtree */
    void **send;               /* [pieces] where the sums of subtrees are */
} neo__fsdp_leaves;
/* Values on their way to windows: see >>impl-fsdp-gather. */
typedef struct neo__fsdp_gather {
    int slots, stages, staged; /* staged: values travel in param_dtype */
    int64_t largest;           /* unit with a slot */
    float **slot;              /* [slots] [largest] */
    void *stage[2];            /* [largest unit that is cut] in param_dtype */
    int *slot_unit;            /* [slots] -1: free */
    int stage_unit[2];
    int backward; /* the last window was one: the sweep goes down */
    int64_t count, hits;
} neo__fsdp_gather;
/* Gradients of cut units on their way: see >>impl-fsdp-reduce. */
typedef struct neo__fsdp_reduce {
    int lanes, windows;                  /* the first lanes have windows to lend */
    int64_t largest_cut, largest_window; /* unit: that is cut; that borrows a window */
    neo__fsdp_lane lane[NEO__FSDP_LANES];
    int64_t count;
} neo__fsdp_reduce;
/* Gradients of whole units, one after another. */
typedef struct neo__fsdp_wholes {
    int64_t elements;
    int buckets, direct;
    float *grad, **window;
    void **narrow;
    neo__fsdp_bucket *bucket;
} neo__fsdp_wholes;
/* Windows that were opened in this step. */
typedef struct neo__fsdp_opened {
    int64_t count;
    uint64_t hash;                    /* of all */
    int32_t first[NEO__FSDP_HISTORY]; /* 2 unit + backward */
} neo__fsdp_opened;
typedef struct neo__fsdp_scale {
    int on; /* there is a loss scaler */
    float scale;
    int64_t good_steps; /* since it changed */
} neo__fsdp_scale;
struct neo_fsdp {
    /* constant */
    neo_ctx *ctx, *host;
    neo_fsdp_desc desc;              /* units: not kept */
    neo_comm *comm;                  /* the user's */
    neo_comm *shard, *replica, *all; /* its own groups, NULL where not needed */
    int ranks, rank, shards, factor, place, replicas;
    int cut;   /* some unit is */
    int local, in_groups, narrow;
    int leafwise; /* pieces are leaves: sums of two are rounded, or tied weights meet there */
    int owner;    /* of the sets: they are bound */
    int unit_count;
    neo__fsdp_unit *unit;
    neo__fsdp_leaves leaves;
    neo_params *runs; /* what this rank has of each parameter that is trained, unit by unit */
    neo_optim *optim;
    neo_group group;
    neo__buffer masters, gathered, windows; /* masters: and gradients */
    size_t record_bytes, runs_bytes, optim_bytes, master_bytes;
    /* changed in a step */
    neo__fsdp_gather gather;
    neo__fsdp_reduce reduce;
    neo__fsdp_wholes whole;
    neo__fsdp_opened opened;
    neo__fsdp_scale scaler;
    int64_t steps, skipped, wait_ns;
    int64_t clipped;       /* the optimizer's steps after the last one; 0: it was not taken */
    int has_squares;       /* of others, for the next step */
    neo_exact squares;
    int64_t calls, seen;   /* of backward windows: differ where some calls had no effect */
    neo__kept_error error; /* of this rank's work on gradients: the step tells all ranks */
};

static void neo__fsdp_free_record(neo_fsdp *f);
static void neo__fsdp_begin_anew(neo_fsdp *f); /* >>impl-fsdp-step */

static int64_t neo__fsdp_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
NEO_API const char *neo_fsdp_mode_name(neo_fsdp_mode mode) {
    static const char *const names[NEO_FSDP_MODE_COUNT] = {"full", "zero2", "zero1", "ddp"};
    return mode >= 0 && mode < NEO_FSDP_MODE_COUNT ? names[mode] : "unknown";
}

/* ---- checks ---- */
static int neo__fsdp_is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }
static neo_status neo__fsdp_check_unit(const neo_fsdp_desc *d, int u, int cut) {
    const neo_fsdp_unit *unit = &d->units[u];
    NEO__CHECK(unit->name && unit->name[0], NEO_ERR_ARG, "neo_fsdp_create: unit %d has no name", u);
    NEO__CHECK(unit->params && neo_params_is_deferred(unit->params), NEO_ERR_ARG,
               "neo_fsdp_create: params of unit '%s' are not a deferred set "
               "(neo_params_create_deferred)",
               unit->name);
    NEO__CHECK(neo_params_count(unit->params) > 0, NEO_ERR_ARG,
               "neo_fsdp_create: unit '%s' has no parameters", unit->name);
    for (int i = 0; i < neo_params_count(unit->params); i++) {
        const neo_param *p = neo_params_at(unit->params, i);
        NEO__CHECK(!p->value.data, NEO_ERR_ARG,
                   "neo_fsdp_create: '%s' of unit '%s' is bound by another owner", p->name,
                   unit->name);
        NEO__CHECK(!cut || p->value.ndim == 1 || p->value.ndim == 2, NEO_ERR_UNSUPPORTED,
                   "neo_fsdp_create: '%s' of unit '%s' has %d dimensions: a unit that is cut has "
                   "parameters of 1 or 2 (set replicate)",
                   p->name, unit->name, (int)p->value.ndim);
        for (int v = 0; v <= u; v++) {
            const neo_param *q = neo_params_find(d->units[v].params, p->name);
            NEO__CHECK(!q || v == u, NEO_ERR_ARG,
                       "neo_fsdp_create: units '%s' and '%s' both have a parameter '%s'",
                       d->units[v].name, unit->name, p->name);
        }
    }
    return NEO_OK;
}
static neo_status neo__fsdp_check_dtype(const char *name, neo_dtype dtype) {
    NEO__CHECK(dtype == NEO_F32 || dtype == NEO_F16 || dtype == NEO_BF16, NEO_ERR_ARG,
               "neo_fsdp_create: %s is %s, not f32, f16 or bf16", name, neo_dtype_name(dtype));
    return NEO_OK;
}
/* Numbers of the description, without units. */
static neo_status neo__fsdp_check(const neo_fsdp_desc *d, int ranks, int rank, int shards) {
    NEO__CHECK(d && d->units && d->unit_count > 0 && d->unit_count <= NEO__FSDP_MAX_UNITS,
               NEO_ERR_ARG, "neo_fsdp_create: desc has no units");
    NEO__CHECK(ranks > 0 && rank >= 0 && rank < ranks, NEO_ERR_ARG,
               "neo_fsdp_create: rank %d of %d", rank, ranks);
    NEO__CHECK(shards >= ranks, NEO_ERR_ARG,
               "neo_fsdp_create: repro_shards is %d: it must be at least the %d ranks", shards,
               ranks);
    NEO__CHECK(!d->optim.name || strlen(d->optim.name) <= 200, NEO_ERR_ARG,
               "neo_fsdp_create: the optimizer's name %.40s... is longer than 200 bytes",
               d->optim.name);
    NEO__CHECK(d->mode >= 0 && d->mode < NEO_FSDP_MODE_COUNT, NEO_ERR_ARG,
               "neo_fsdp_create: no mode %d", (int)d->mode);
    NEO__CHECK(d->factor >= 0 && (d->factor == 0 || ranks % d->factor == 0), NEO_ERR_ARG,
               "neo_fsdp_create: factor is %d, which does not divide the %d ranks", d->factor,
               ranks);
    NEO__CHECK(d->slots >= 0 && d->micro_batches >= 0 && d->groups >= 0 &&
                   d->loss_scale_window >= 0,
               NEO_ERR_ARG,
               "neo_fsdp_create: slots, micro_batches, groups or loss_scale_window is "
               "negative: %d, %d, %d, %d",
               d->slots, d->micro_batches, d->groups, d->loss_scale_window);
    NEO__CHECK(d->accumulate >= NEO_ACCUMULATE_EACH && d->accumulate <= NEO_ACCUMULATE_IN_GROUPS,
               NEO_ERR_ARG, "neo_fsdp_create: no accumulate %d", (int)d->accumulate);
    uint32_t scale = neo__bits_f32(d->loss_scale);
    NEO__CHECK(d->loss_scale == 0.0f || ((scale & 0x7FFFFFu) == 0 && d->loss_scale >= 0x1p-100f &&
                                         d->loss_scale <= 0x1p100f),
               NEO_ERR_ARG,
               "neo_fsdp_create: loss_scale is %g, not a power of two from 2^-100 to 2^100",
               (double)d->loss_scale);
    NEO__TRY(neo__fsdp_check_dtype("param_dtype", d->param_dtype));
    return neo__fsdp_check_dtype("reduce_dtype", d->reduce_dtype);
}
/* Choose how micro-batches add, and check that leaves, ranks and groups allow it. */
static neo_status neo__fsdp_check_sums(neo_fsdp *f, int replicated) {
    neo_fsdp_desc *d = &f->desc;
    int cut = f->factor > 1, shards = f->shards;
    NEO__CHECK(
        !cut || f->replicas == 1 ||
            (shards % f->ranks == 0 && neo__fsdp_is_power(f->factor) &&
             neo__fsdp_is_power(shards / f->ranks)),
        NEO_ERR_UNSUPPORTED,
        "neo_fsdp_create: hybrid sharding by %d of %d ranks over %d leaves: the factor, and the "
        "leaves of a rank, must be powers of two",
        f->factor, f->ranks, shards);
    if (d->accumulate == NEO_ACCUMULATE_EACH || d->micro_batches == 1) d->groups = 1;
    else if (d->accumulate == NEO_ACCUMULATE_AT_END) d->groups = shards;
    else if (d->groups == 0) d->groups = f->replicas;
    if (d->groups == 1) return NEO_OK;
    f->local = d->groups == shards || (d->groups % f->ranks == 0 && shards % d->groups == 0 &&
                                       neo__fsdp_is_power(shards / d->groups));
    f->in_groups = !f->local;
    NEO__CHECK(
        f->local || (cut && d->groups == f->replicas && !replicated), NEO_ERR_UNSUPPORTED,
        "neo_fsdp_create: micro-batches that add in %d groups: neither the %d replicas of units "
        "that are all cut, nor a multiple of the %d ranks that cuts %d leaves in equal subtrees",
        d->groups, f->replicas, f->ranks, shards);
    NEO__CHECK(!f->leafwise || d->groups == shards, NEO_ERR_UNSUPPORTED,
               "neo_fsdp_create: with leaf_pieces or a narrow reduce_dtype micro-batches add each, "
               "or leaf by "
               "leaf, not in %d groups of %d leaves",
               d->groups, shards);
    return NEO_OK;
}

/* ---- pieces ---- */
static void neo__fsdp_make_pieces(neo_fsdp *f) {
    int each = f->local ? f->shards / f->desc.groups : f->leafwise;
    neo__cut_leaves(f->shards, f->ranks, f->rank, each, f->leaves.piece);
    for (int i = f->leaves.own; i < f->leaves.pieces; i++)
        f->leaves.piece[i].first = f->leaves.piece[f->leaves.own - 1].first,
        f->leaves.piece[i].count = 0;
    neo__cut_leaves(f->shards, f->ranks, f->rank, 0, f->leaves.subtree);
    for (int s = 0, i = 0; s < f->leaves.subtrees; s++) { /* leaves to pieces */
        int end = f->leaves.subtree[s].first + f->leaves.subtree[s].count;
        f->leaves.subtree[s].first = i;
        while (i < f->leaves.own && f->leaves.piece[i].first < end) i++;
        f->leaves.subtree[s].count = i - f->leaves.subtree[s].first;
    }
}
static void neo__fsdp_count_pieces(neo_fsdp *f) {
    int each = f->local ? f->shards / f->desc.groups : f->leafwise;
    f->leaves.subtrees = neo__cut_leaves(f->shards, f->ranks, f->rank, 0, NULL);
    f->leaves.own = neo__cut_leaves(f->shards, f->ranks, f->rank, each, NULL);
    for (int r = 0; r < f->ranks; r++) {
        int count = neo__cut_leaves(f->shards, f->ranks, r, each, NULL);
        f->leaves.pieces = NEO__MAX(f->leaves.pieces, count);
    }
}

/* ---- buckets ---- */
/* Ranges of elements that the all-reduces of whole units take, each unit by itself, but for DDP: to
   `to` if that is not NULL; returns how many. */
static int neo__fsdp_cut_buckets(const neo_fsdp *f, neo__fsdp_bucket *to) {
    int64_t size = (int64_t)neo_dtype_size(f->desc.reduce_dtype), at = 0,
            take = NEO__FSDP_FIRST_BUCKET / size;
    int count = 0;
    if (f->desc.mode == NEO_FSDP_DDP && f->ranks > 1) {
        for (; at < f->whole.elements; at += take, take = NEO__FSDP_BUCKET / size, count++)
            if (to) to[count].first = at, to[count].count = NEO__MIN(take, f->whole.elements - at);
        return count;
    }
    for (int i = f->unit_count - 1; i >= 0; i--) {
        const neo__fsdp_unit *u = &f->unit[i];
        if (!u->whole || u->frozen) continue;
        if (to) to[count].first = u->at, to[count].count = u->elements;
        count++;
    }
    return count;
}
static int neo__fsdp_in_bucket(const neo__fsdp_unit *u, const neo__fsdp_bucket *b) {
    return u->whole && !u->frozen && u->at < b->first + b->count && b->first < u->at + u->elements;
}
static void neo__fsdp_count_units(neo_fsdp *f) {
    for (int b = 0; b < f->whole.buckets; b++)
        for (int i = 0; i < f->unit_count; i++)
            f->whole.bucket[b].units += neo__fsdp_in_bucket(&f->unit[i], &f->whole.bucket[b]);
}

/* ---- what follows from the description ---- */
/* The places where the parameters of a unit begin, and where the last one ends, to `begin` if that
   is not NULL; returns the end. */
static int64_t neo__fsdp_offsets(const neo_params *params, int64_t *begin) {
    int64_t at = 0, count = neo_params_count(params);
    for (int i = 0; i < count; i++) {
        if (begin) begin[i] = at;
        at += neo__fsdp_up(neo_tensor_count(neo_params_at(params, i)->value), NEO__FSDP_BLOCK);
    }
    if (begin) begin[count] = at;
    return at;
}
/* A unit's kind and sizes; of its record, but for arrays. */
static neo__fsdp_unit neo__fsdp_describe_unit(const neo_fsdp *f, const neo_fsdp_unit *desc) {
    NEO__ZERO(neo__fsdp_unit, u);
    int64_t factor = f->factor;
    u.params = desc->params;
    u.params_count = neo_params_count(desc->params);
    u.keep = desc->keep != 0;
    u.frozen = desc->freeze != 0;
    u.whole = factor == 1 || desc->replicate;
    if (u.whole) factor = 1;
    u.elements = neo__fsdp_up(neo__fsdp_offsets(desc->params, NULL), NEO__FSDP_BLOCK * factor);
    u.chunk = u.elements / factor;
    u.stays = u.whole ? f->desc.param_dtype != NEO_F32 : u.keep || f->desc.mode != NEO_FSDP_FULL;
    u.slotted = !u.whole && !u.stays;
    u.own_window = !u.frozen && (f->local || u.keep || f->desc.mode == NEO_FSDP_ZERO1 ||
                                 (!f->narrow && (f->leaves.pieces > 1 || u.whole)));
    u.own_narrow = !u.frozen && f->narrow && (u.whole || (f->leaves.pieces > 1 && !f->local));
    u.borrows = !u.frozen && (f->local ? !u.keep && f->desc.micro_batches > 1 : !u.own_window);
    return u;
}
/* Everything that counts arrays: f without them. */
static neo_status neo__fsdp_describe(neo_fsdp *f, neo_ctx *ctx, const neo_fsdp_desc *d, int ranks,
                                     int rank) {
    int shards = neo_ctx_repro_shards(ctx), replicated = 0;
    NEO__TRY(neo__fsdp_check(d, ranks, rank, shards));
    NEO__CHECK(!d->host || !(neo_ctx_device(ctx) || neo_ctx_device(d->host)), NEO_ERR_UNSUPPORTED,
               "neo_fsdp_create: `host` goes with contexts without a device only");
    memset(f, 0, sizeof *f);
    f->ctx = ctx;
    f->host = d->host ? d->host : ctx;
    f->desc = *d;
    f->desc.units = NULL;
    f->desc.slots = d->slots ? d->slots : 2;
    f->desc.micro_batches = d->micro_batches ? d->micro_batches : 1;
    f->desc.loss_scale_window = d->loss_scale_window ? d->loss_scale_window : 2000;
    f->ranks = ranks, f->rank = rank, f->shards = shards;
    f->factor = d->mode == NEO_FSDP_DDP ? 1 : d->factor ? d->factor : ranks;
    f->replicas = ranks / f->factor;
    f->place = rank % f->factor;
    f->unit_count = d->unit_count;
    f->narrow = d->reduce_dtype != NEO_F32;
    f->leafwise = f->narrow || d->leaf_pieces;
    f->scaler.on = d->loss_scale != 0.0f;
    f->scaler.scale = d->loss_scale;
    for (int u = 0; u < d->unit_count; u++) {
        NEO__TRY(neo__fsdp_check_unit(d, u, f->factor > 1 && !d->units[u].replicate));
        replicated |= f->factor > 1 && d->units[u].replicate && !d->units[u].freeze;
    }
    NEO__TRY(neo__fsdp_check_sums(f, replicated));
    neo__fsdp_count_pieces(f);
    f->whole.direct = !f->narrow && f->leaves.pieces == 1 && f->desc.micro_batches == 1;
    int slotted = 0, owns = 0, borrows = 0;
    for (int i = 0; i < d->unit_count; i++) {
        neo__fsdp_unit u = neo__fsdp_describe_unit(f, &d->units[i]);
        slotted += u.slotted;
        borrows |= u.borrows;
        owns |= !u.whole && u.own_window;
        f->cut |= !u.whole;
        f->gather.staged |= !u.whole && f->desc.param_dtype != NEO_F32;
        if (u.whole && !u.frozen) f->whole.elements += u.elements, f->whole.buckets++;
        if (u.slotted) f->gather.largest = NEO__MAX(f->gather.largest, u.elements);
        if (!u.whole) f->reduce.largest_cut = NEO__MAX(f->reduce.largest_cut, u.elements);
        if (u.borrows) f->reduce.largest_window = NEO__MAX(f->reduce.largest_window, u.elements);
    }
    f->gather.slots = NEO__MIN(f->desc.slots, slotted);
    /* Units with windows of their own have a lane that no window takes: closing one always works */
    f->reduce.windows = !borrows ? 0 : f->desc.slots > 1 ? 2 : 1;
    f->reduce.lanes = f->reduce.windows;
    if (owns) f->reduce.lanes += f->reduce.windows || f->desc.slots == 1 ? 1 : 2;
    if (f->desc.mode == NEO_FSDP_DDP && ranks > 1)
        f->whole.buckets = neo__fsdp_cut_buckets(f, NULL);
    return NEO_OK;
}

/* ---- the record ---- */
/* The record's arrays and texts, behind it. */
static size_t neo__fsdp_layout_record(neo_fsdp *f, char *base, const neo_fsdp_desc *d) {
    neo__carve carve = {base, sizeof *f};
    carve.at = (carve.at + 63) & ~(size_t)63;
    NEO__CARVE(&carve, f->unit, f->unit_count);
    for (int i = 0; i < f->unit_count; i++) {
        NEO__ZERO(neo__fsdp_unit, none);
        const neo_fsdp_unit *unit = &d->units[i];
        neo__fsdp_unit *u = base ? &f->unit[i] : &none;
        if (base) *u = neo__fsdp_describe_unit(f, unit);
        NEO__CARVE(&carve, u->begin, neo_params_count(unit->params) + 1);
        NEO__CARVE(&carve, u->window, f->leaves.pieces);
        NEO__CARVE(&carve, u->narrow, f->leaves.pieces);
        u->name = neo__carve_text(&carve, "%s", unit->name);
        u->absent = neo__carve_text(&carve, "unit '%s' is not in a window", unit->name);
        u->no_grad = neo__carve_text(&carve,
                                    unit->freeze ? "unit '%s' is frozen"
                                                 : "unit '%s' is not in a backward window",
                                    unit->name);
    }
    f->desc.optim.name = neo__carve_text(&carve, "%s", d->optim.name ? d->optim.name : "optim");
    NEO__CARVE(&carve, f->leaves.piece, f->leaves.pieces);
    NEO__CARVE(&carve, f->leaves.subtree, f->leaves.subtrees);
    NEO__CARVE(&carve, f->leaves.send, f->leaves.pieces);
    NEO__CARVE(&carve, f->whole.window, f->leaves.pieces);
    NEO__CARVE(&carve, f->whole.narrow, f->leaves.pieces);
    for (int i = 0; i < NEO__FSDP_LANES; i++)
        NEO__CARVE(&carve, f->reduce.lane[i].narrow, f->leaves.pieces);
    NEO__CARVE(&carve, f->gather.slot_unit, f->gather.slots);
    NEO__CARVE(&carve, f->gather.slot, f->gather.slots);
    NEO__CARVE(&carve, f->whole.bucket, f->whole.buckets);
    return carve.at;
}
/* The part of a parameter that is in this rank's chunk: elements [*first, *first + count) of it, at
   *at of the chunk. Returns count. */
static int64_t neo__fsdp_run(const neo_fsdp *f, const neo__fsdp_unit *u, int i, int64_t *first,
                             int64_t *at) {
    int64_t low = u->whole ? 0 : f->place * u->chunk, begin = u->begin[i];
    int64_t end = begin + neo_tensor_count(neo_params_at(u->params, i)->value);
    int64_t from = NEO__MAX(begin, low), to = NEO__MIN(end, low + u->chunk);
    *first = from - begin;
    *at = from - low;
    if (from < to) return to - from;
    *first = *at = 0;
    return 0;
}
/* The set of this rank's runs, over which the optimizer steps. */
static neo_status neo__fsdp_make_runs(neo_fsdp *f) {
    NEO__TRY(neo_params_create_deferred(f->ctx, &f->runs));
    for (int i = 0; i < f->unit_count; i++) {
        neo__fsdp_unit *u = &f->unit[i];
        u->first_param = neo_params_count(f->runs);
        for (int k = 0; k < u->params_count && !u->frozen; k++) {
            const neo_param *p = neo_params_at(u->params, k);
            NEO__ZERO(neo_init, none);
            int64_t first, at, count = neo__fsdp_run(f, u, k, &first, &at);
            if (u->whole)
                NEO__TRY(
                    neo_params_add(f->runs, p->name, p->value.ndim, p->value.shape, none, NULL));
            else NEO__TRY(neo_params_add(f->runs, p->name, 1, &count, none, NULL));
        }
    }
    return NEO_OK;
}
/* ---- memory ---- */
/* Masters and gradients. */
static size_t neo__fsdp_layout_shard(neo_fsdp *f, char *base) {
    neo__carve carve = {base, 0};
    for (int i = 0; i < f->unit_count; i++)
        NEO__CARVE(&carve, f->unit[i].master, f->unit[i].chunk);
    f->master_bytes = carve.at;
    NEO__CARVE(&carve, f->whole.grad, f->whole.elements);
    for (int i = 0; i < f->unit_count; i++) {
        neo__fsdp_unit *u = &f->unit[i];
        if (u->frozen) continue;
        if (!u->whole) NEO__CARVE(&carve, u->grad, u->chunk);
        else if (base) u->grad = f->whole.grad + u->at;
    }
    return carve.at;
}
/* Gathered values. */
static size_t neo__fsdp_layout_gathered(neo_fsdp *f, char *base) {
    neo__carve carve = {base, 0};
    size_t size = neo_dtype_size(f->desc.param_dtype);
    for (int i = 0; i < f->gather.slots; i++)
        NEO__CARVE(&carve, f->gather.slot[i], f->gather.largest);
    for (int i = 0; i < f->unit_count; i++)
        if (f->unit[i].stays)
            NEO__CARVE(&carve, f->unit[i].full, f->unit[i].elements);
    f->gather.stages = !f->gather.staged ? 0 : f->desc.no_prefetch ? 1 : 2;
    for (int i = 0; i < f->gather.stages; i++)
        neo__carve_next(&carve, &f->gather.stage[i], size, (size_t)f->reduce.largest_cut);
    return carve.at;
}
/* Gradients before they are reduced. Units that are whole share arrays, one per piece. */
static size_t neo__fsdp_layout_windows(neo_fsdp *f, char *base) {
    neo__carve carve = {base, 0};
    size_t size = neo_dtype_size(f->desc.reduce_dtype);
    int windows =
        f->narrow && !f->local ? 1 : f->leaves.pieces; /* one serves all pieces that are encoded */
    int shared = !f->narrow || f->local, micro = f->desc.micro_batches > 1;
    for (int p = 0; p < f->leaves.pieces && shared; p++)
        if (f->whole.direct) f->whole.window[p] = f->whole.grad;
        else NEO__CARVE(&carve, f->whole.window[p], f->whole.elements);
    for (int p = 0; p < f->leaves.pieces && f->narrow; p++)
        neo__carve_next(&carve, &f->whole.narrow[p], size, (size_t)f->whole.elements);
    for (int i = 0; i < f->unit_count; i++) {
        neo__fsdp_unit *u = &f->unit[i];
        for (int p = 0; p < f->leaves.pieces && u->own_window; p++) {
            if (u->whole && shared)
                u->window[p] = f->whole.window[p] ? f->whole.window[p] + u->at : NULL;
            else if (p < windows)
                NEO__CARVE(&carve, u->window[p], u->elements);
            else u->window[p] = u->window[0];
        }
        for (int p = 0; p < f->leaves.pieces && u->own_narrow; p++)
            if (!u->whole) neo__carve_next(&carve, &u->narrow[p], size, (size_t)u->elements);
            else if (base) u->narrow[p] = (char *)f->whole.narrow[p] + (size_t)u->at * size;
        if (f->local && micro && u->keep && !u->frozen)
            NEO__CARVE(&carve, u->scratch, u->elements);
    }
    int64_t chunk = f->reduce.largest_cut / f->factor;
    int encode = !f->narrow ? 0 : f->local ? f->leaves.pieces : f->leaves.pieces == 1;
    for (int i = 0; i < f->reduce.lanes; i++) {
        neo__fsdp_lane *lane = &f->reduce.lane[i];
        if (i < f->reduce.windows)
            NEO__CARVE(&carve, lane->window, f->reduce.largest_window);
        for (int p = 0; p < encode; p++)
            neo__carve_next(&carve, &lane->narrow[p], size, (size_t)f->reduce.largest_cut);
        if (f->narrow || (micro && !f->local))
            neo__carve_next(&carve, &lane->reduced, size, (size_t)chunk);
    }
    return carve.at;
}
/* Count what all three take; or place it, where there is memory. */
static void neo__fsdp_layout(neo_fsdp *f) {
    f->masters.bytes = neo__fsdp_layout_shard(f, (char *)f->masters.data);
    f->gathered.bytes = neo__fsdp_layout_gathered(f, (char *)f->gathered.data);
    f->windows.bytes = neo__fsdp_layout_windows(f, (char *)f->windows.data);
}

/* The record of one rank's part, with everything that needs no memory for numbers. */
static neo_status neo__fsdp_make_record(neo_ctx *ctx, const neo_fsdp_desc *d, int ranks, int rank,
                                        neo_fsdp **out) {
    neo_fsdp t;
    NEO__TRY(neo__fsdp_describe(&t, ctx, d, ranks, rank));
    t.record_bytes = neo__fsdp_layout_record(&t, NULL, d);
    neo_fsdp *f = (neo_fsdp *)neo__alloc_for(ctx, t.record_bytes, "neo_fsdp_create");
    if (!f) return NEO_ERR_MEMORY;
    memset(f, 0, t.record_bytes);
    *f = t;
    neo__fsdp_layout_record(f, (char *)f, d);
    neo__fsdp_make_pieces(f);
    int64_t at = 0;
    for (int i = f->unit_count - 1; i >= 0;
         i--) { /* gradients of whole units: the last unit first */
        neo__fsdp_unit *u = &f->unit[i];
        neo__fsdp_offsets(u->params, u->begin);
        if (u->whole && !u->frozen) u->at = at, at += u->elements;
    }
    neo__fsdp_cut_buckets(f, f->whole.bucket);
    neo__fsdp_count_units(f);
    neo__fsdp_begin_anew(f);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_status status = neo__fsdp_make_runs(f);
    f->runs_bytes = neo_ctx_memory(ctx).bytes - before;
    neo__fsdp_layout(f);
    neo_optim_desc optim = f->desc.optim;
    if (f->cut && status == NEO_OK) f->group.size = f->factor, optim.group = &f->group;
    else optim.group = NULL;
    if (status == NEO_OK) f->optim_bytes = neo_optim_state_bytes(f->runs, &optim);
    if (status != NEO_OK) neo__fsdp_free_record(f);
    else *out = f;
    return status;
}

/* ---- predictions ---- */
/* Gathers of a step in the order of units; see the header. */
static void neo__fsdp_predict_gathers(const neo_fsdp *f, neo_fsdp_prediction *p) {
    int64_t sweeps = (int64_t)f->desc.micro_batches * f->leaves.pieces, slotted = 0, seen = 0,
            calls = 0;
    double elements = 0.0, bytes = (double)neo_dtype_size(f->desc.param_dtype);
    for (int i = 0; i < f->unit_count; i++) slotted += f->unit[i].slotted;
    for (int i = 0; i < f->unit_count; i++) {
        const neo__fsdp_unit *u = &f->unit[i];
        int64_t times = !u->whole;
        if (u->slotted) {
            times += seen < slotted - f->gather.slots ? sweeps : 0; /* in each way back */
            times += seen >= f->gather.slots ? sweeps - 1 : 0; /* in each way there but the first */
            seen++;
        }
        calls += times;
        elements += (double)times * (double)(u->elements - u->chunk);
    }
    p->all_gathers = calls;
    p->all_gather_bytes = elements * bytes;
}
/* Elements that rank `rank` sends in an all-reduce of n, of which it has `pieces` sums: parts are
   whole blocks of 16. (A small one sends as much in all, but not the same on each rank.) */
static double neo__fsdp_all_reduce_elements(int64_t n, int ranks, int rank, int pieces) {
    int64_t end = rank + 1 == ranks ? n : n / 16 * (rank + 1) / ranks * 16;
    int64_t part = end - n / 16 * rank / ranks * 16;
    return (double)pieces * (double)(n - part) + (double)(ranks - 1) * (double)part;
}
static void neo__fsdp_predict_reductions(const neo_fsdp *f, neo_fsdp_prediction *p) {
    double size = (double)neo_dtype_size(f->desc.reduce_dtype), pieces = (double)f->leaves.subtrees;
    int64_t times = f->local ? 1 : f->desc.micro_batches, joins = f->in_groups ? 1 : times;
    for (int i = 0; i < f->unit_count; i++) {
        const neo__fsdp_unit *u = &f->unit[i];
        if (u->frozen || u->whole) continue;
        p->reduce_scatters += times;
        p->reduce_scatter_bytes += (double)times * pieces * size * (double)(u->elements - u->chunk);
        if (f->replicas == 1) continue;
        p->all_reduces += joins;
        p->all_reduce_bytes +=
            (double)joins * size *
            neo__fsdp_all_reduce_elements(u->chunk, f->replicas, f->rank / f->factor, 1);
    }
    for (int b = 0; b < f->whole.buckets && f->ranks > 1; b++) {
        p->all_reduces += times;
        p->all_reduce_bytes += (double)times * size *
                               neo__fsdp_all_reduce_elements(f->whole.bucket[b].count, f->ranks,
                                                             f->rank, f->leaves.subtrees);
    }
}
static void neo__fsdp_predict_bytes(const neo_fsdp *f, neo_fsdp_prediction *p) {
    p->master_bytes = f->master_bytes;
    p->grad_bytes = f->masters.bytes - f->master_bytes;
    p->state_bytes = f->optim_bytes;
    p->gathered_bytes = f->gathered.bytes;
    p->window_bytes = f->windows.bytes;
    p->record_bytes = f->record_bytes + f->runs_bytes;
    p->host_bytes = f->host == f->ctx ? 0 : f->masters.bytes + f->optim_bytes;
    p->bytes =
        f->masters.bytes + f->optim_bytes + f->gathered.bytes + f->windows.bytes + p->record_bytes;
    for (int i = 0; i < f->unit_count; i++) p->elements += f->unit[i].elements;
}
NEO_API neo_status neo_fsdp_predict(neo_ctx *ctx, const neo_fsdp_desc *desc, int ranks, int rank,
                                    neo_fsdp_prediction *prediction) {
    neo_fsdp *f;
    NEO__CHECK(ctx && prediction, NEO_ERR_ARG, "neo_fsdp_predict: ctx or prediction is NULL");
    NEO__TRY(neo__fsdp_make_record(ctx, desc, ranks, rank, &f));
    memset(prediction, 0, sizeof *prediction);
    neo__fsdp_predict_bytes(f, prediction);
    neo__fsdp_predict_gathers(f, prediction);
    neo__fsdp_predict_reductions(f, prediction);
    neo__fsdp_free_record(f);
    return NEO_OK;
}

/* ---- create ---- */
static void neo__fsdp_free_record(neo_fsdp *f) {
    neo_params_destroy(f->runs);
    neo_free(f->ctx, f, f->record_bytes);
}
/* The parameters of a unit are at `base` (NULL: absent), their gradients at `grads`. */
static void neo__fsdp_bind(const neo__fsdp_unit *u, float *base, float *grads) {
    for (int i = 0; i < u->params_count; i++) {
        float *grad = base && grads ? grads + u->begin[i] : NULL;
        neo_params_bind(u->params, i, base ? base + u->begin[i] : NULL, grad,
                        base ? u->no_grad : u->absent);
    }
}
/* Zeros, as many as are laid out. */
static neo_status neo__fsdp_take(neo_ctx *ctx, const char *what, neo__buffer *memory) {
    if (memory->bytes == 0) return NEO_OK;
    NEO__CHECK(neo__buffer_take(ctx, memory, memory->bytes) == NEO_OK, NEO_ERR_MEMORY,
               "neo_fsdp_create: no memory for %zu bytes of %s", memory->bytes, what);
    return neo_tensor_zero(ctx, neo__buffer_tensor(ctx, memory));
}
/* ---- work on runs of numbers, where the context computes ---- */
static void *neo__fsdp_place(const void *base, int64_t at, neo_dtype dtype) {
    return base ? (char *)(uintptr_t)base + (size_t)at * neo_dtype_size(dtype) : NULL;
}
/* Elements [at, at + count) of what is at data, in memory of the context. */
static neo_tensor neo__fsdp_numbers(const neo_fsdp *f, const void *data, int64_t at,
                                    neo_dtype dtype, int64_t count) {
    neo_tensor t = neo_tensor_1d(neo__fsdp_place(data, at, dtype), dtype, count);
    t.place = neo_ctx_device(f->ctx) ? NEO_DEVICE : NEO_HOST;
    return t;
}
static neo_status neo__fsdp_init_unit(neo_fsdp *f, const neo__fsdp_unit *u) {
    for (int i = 0; i < u->params_count; i++) {
        const neo_param *p = neo_params_at(u->params, i);
        neo_init init = neo_params_initializer(u->params, i);
        int64_t first, at, count = neo__fsdp_run(f, u, i, &first, &at);
        float *master = u->master + at;
        neo_tensor values = neo__fsdp_numbers(f, master, 0, NEO_F32, count);
        if (count == 0) master = NULL;
        else if (init.kind != NEO_INIT_NONE)
            NEO__TRY(neo_tensor_init(f->ctx, values, p->name, init, first));
        if (!u->frozen)
            NEO__TRY(neo_params_bind(f->runs, u->first_param + i, master,
                                     master ? u->grad + at : NULL, NULL));
    }
    return NEO_OK;
}
/* Memory, first values, the optimizer: of this rank alone. */
static neo_status neo__fsdp_fill(neo_fsdp *f) {
    NEO__TRY(neo__fsdp_take(f->host, "masters and gradients", &f->masters));
    NEO__TRY(neo__fsdp_take(f->ctx, "gathered units", &f->gathered));
    NEO__TRY(neo__fsdp_take(f->ctx, "gradients under way", &f->windows));
    neo__fsdp_layout(f);
    for (int i = 0; i < f->unit_count; i++) NEO__TRY(neo__fsdp_init_unit(f, &f->unit[i]));
    neo_optim_desc optim = f->desc.optim;
    if (f->shard) f->group = neo_comm_group(f->shard);
    optim.group = f->shard ? &f->group : NULL;
    NEO__TRY(neo_optim_create(f->host, f->runs, &optim, &f->optim));
    for (int i = 0; i < f->unit_count; i++)
        for (int k = 0; k < f->unit[i].params_count && !f->unit[i].frozen; k++)
            if (f->unit[i].whole && f->place > 0)
                neo_optim_count_elsewhere(f->optim, f->unit[i].first_param + k);
    f->owner = 1;
    for (int i = 0; i < f->unit_count; i++) neo__fsdp_bind(&f->unit[i], NULL, NULL);
    return NEO_OK;
}
static void neo__fsdp_mark_unit(uint64_t *mark, const neo__fsdp_unit *u) {
    *mark = neo__plan_hash(*mark, (uint64_t)(u->keep * 4 + u->whole * 2 + u->frozen));
    for (int k = 0; k < u->params_count; k++) {
        const neo_param *p = neo_params_at(u->params, k);
        neo_init init = neo_params_initializer(u->params, k);
        *mark = neo__plan_hash(neo__plan_hash(*mark, neo_hash(p->name)), (uint64_t)init.kind);
        const double range[] = {(double)init.a, (double)init.b};
        neo__alike_numbers(mark, range, 2);
        for (int j = 0; j < p->value.ndim; j++)
            *mark = neo__plan_hash(*mark, (uint64_t)p->value.shape[j]);
    }
}
static neo_status neo__fsdp_check_alike(neo_comm *comm, const neo_fsdp *f) {
    const neo_fsdp_desc *d = &f->desc;
    const neo_optim_desc *o = &d->optim;
    const double sharding[] = {(double)d->mode, (double)f->factor, (double)f->shards};
    const double options[] = {(double)d->slots, (double)d->no_prefetch, (double)d->micro_batches,
                              (double)d->groups, (double)d->leaf_pieces};
    const double dtypes[] = {(double)d->param_dtype, (double)d->reduce_dtype,
                             (double)d->loss_scale_window, (double)d->loss_scale};
    const double optim[] = {(double)o->kind,
                            (double)o->nesterov,
                            (double)o->weight_decay,
                            (double)o->momentum,
                            (double)o->dampening,
                            (double)o->lr_decay,
                            (double)o->eps,
                            (double)o->initial_accumulator,
                            o->beta1,
                            (double)o->clip_norm,
                            (double)o->clip_norm_type,
                            o->beta2};
    NEO__ZERO(neo__alike, a);
    neo__alike_add(&a, "another seed of the context than rank 0", neo_ctx_seed(f->ctx));
    uint64_t *mark = neo__alike_add(&a, "another mode or factor than rank 0", 0);
    neo__alike_numbers(mark, sharding, sizeof sharding / sizeof *sharding);
    mark = neo__alike_add(
        &a, "other slots, no_prefetch, micro_batches, groups or leaf_pieces than rank 0", 0);
    neo__alike_numbers(mark, options, sizeof options / sizeof *options);
    mark = neo__alike_add(&a, "another param_dtype, reduce_dtype or loss_scale than rank 0", 0);
    neo__alike_numbers(mark, dtypes, sizeof dtypes / sizeof *dtypes);
    mark = neo__alike_add(&a, "another optimizer than rank 0, or of other options",
                          neo_hash(o->name));
    neo__alike_numbers(mark, optim, sizeof optim / sizeof *optim);
    mark = neo__alike_add(
        &a,
        "other units than rank 0: parameters, shapes, initial values, or what is kept or frozen",
        (uint64_t)f->unit_count);
    for (int i = 0; i < f->unit_count; i++) neo__fsdp_mark_unit(mark, &f->unit[i]);
    return neo__alike_check(comm, &a, "neo_fsdp_create");
}
/* Groups of its own, so that its calls do not wait behind the trainer's; buffers are where the
   context computes. */
static neo_status neo__fsdp_split(neo_fsdp *f, neo_comm *comm) {
    int whole = 0;
    for (int i = 0; i < f->unit_count; i++) whole |= f->unit[i].whole;
    neo_status (*split)(neo_comm *, int, int, neo_comm **) =
        neo_ctx_device(f->ctx) ? neo_comm_split_device : neo_comm_split;
    if (f->cut) NEO__TRY(split(comm, f->rank / f->factor, f->rank, &f->shard));
    if (f->cut && f->replicas > 1) NEO__TRY(split(comm, f->place, f->rank, &f->replica));
    if (whole && f->ranks > 1) NEO__TRY(split(comm, 0, f->rank, &f->all));
    return NEO_OK;
}
/* A set that is in another neo_fsdp has its words where this one's will be. */
static neo_status neo__fsdp_check_owner(const neo_fsdp *f) {
    for (int i = 0; i < f->unit_count; i++) {
        const neo_param *p = neo_params_at(f->unit[i].params, 0);
        NEO__CHECK(!p->value.absent || strncmp(p->value.absent, "unit '", 6) != 0, NEO_ERR_ARG,
                   "neo_fsdp_create: the set of unit '%s' is bound already, by another neo_fsdp",
                   f->unit[i].name);
    }
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_create(neo_comm *comm, const neo_fsdp_desc *desc, neo_fsdp **out) {
    NEO__CHECK(comm && out, NEO_ERR_ARG, "neo_fsdp_create: comm or fsdp is NULL");
    *out = NULL;
    neo_fsdp *f = NULL;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_comm *data = comm;
    NEO__TRY(neo__fsdp_host_group(&comm, "neo_fsdp_create"));
    neo_status status =
        neo__fsdp_make_record(ctx, desc, neo_comm_size(comm), neo_comm_rank(comm), &f);
    if (status == NEO_OK) status = neo__fsdp_check_owner(f);
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) status = neo__fsdp_check_alike(comm, f);
    if (status == NEO_OK) f->comm = comm, status = neo__fsdp_split(f, data);
    if (status == NEO_OK) status = neo_comm_agree(comm, neo__fsdp_fill(f));
    if (status == NEO_OK) *out = f;
    else neo_fsdp_destroy(f);
    return status;
}
NEO__HOT_BEGIN NEO__HOST_BEGIN
/* While a backward window of a unit that learns is open, gradients are of a part of the batch: the
   context refuses leaves NULL, which stand for a whole one. */
static int neo__fsdp_takes_part(const neo_fsdp *f, const neo__fsdp_unit *u) {
    return u->open == NEO__FSDP_BACKWARD && !u->frozen && f->ranks > 1;
}
NEO_API void neo_fsdp_destroy(neo_fsdp *f) {
    if (!f) return;
    neo_comm *groups[] = {f->shard, f->replica, f->all};
    for (int i = 0; i < 3; i++) neo_comm_destroy(groups[i]); /* waits for what is under way */
    for (int i = 0; i < f->unit_count; i++)
        neo__ctx_take_parts(f->ctx, -neo__fsdp_takes_part(f, &f->unit[i]));
    for (int i = 0; i < f->unit_count && f->owner; i++)
        for (int k = 0; k < f->unit[i].params_count; k++)
            neo_params_bind(f->unit[i].params, k, NULL, NULL, NULL);
    neo_optim_destroy(f->optim);
    neo__buffer_give_back(f->host, &f->masters);
    neo__buffer_give_back(f->ctx, &f->gathered);
    neo__buffer_give_back(f->ctx, &f->windows);
    neo__fsdp_free_record(f);
}
static neo_status neo__fsdp_wait(neo_fsdp *f, neo_comm *group, neo_ticket ticket) {
    int64_t began = neo_comm_time_ns(group);
    neo_status status = neo_comm_wait(group, ticket);
    f->wait_ns += neo_comm_time_ns(group) - began;
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-fsdp-gather

   A unit that uses slots takes, of those that no open window uses, a free one, or that of the unit
   which the sweep will need last: on the way forward the first unit, on the way back the last.
   Values in a slot stay good until the step. Values on a narrow wire arrive in a stage.
   ------------------------------------------------------------------------ */
/* One more, of what goes back if a step that is recorded fails before the calls from here on. */
static void neo__fsdp_count(const neo_fsdp *f, int64_t *counter) {
    neo__device_counts(f->ctx, counter);
    ++*counter;
}
/* Once calls have gone back so, gradients hold anything: those of this step are void. */
static neo_status neo__fsdp_recall(neo_fsdp *f) {
    if (f->seen == f->calls) return NEO_OK;
    f->seen = f->calls;
    return neo_fsdp_cancel(f);
}
/* A slot for unit u that may be taken, or -1. */
static int neo__fsdp_find_slot(const neo_fsdp *f, int u) {
    int best = -1;
    for (int i = 0; i < f->gather.slots; i++) {
        int held = f->gather.slot_unit[i];
        if (held < 0) return i;
        if (held == u || f->unit[held].open != NEO__FSDP_CLOSED) continue;
        if (best < 0 || (f->gather.backward ? held > f->gather.slot_unit[best]
                                            : held < f->gather.slot_unit[best]))
            best = i;
    }
    return best;
}
/* The gather of a unit is done, and its values are f32. */
static neo_status neo__fsdp_arrive(neo_fsdp *f, neo__fsdp_unit *u) {
    if (u->presence != NEO__FSDP_COMING) return NEO_OK;
    NEO__TRY(neo__fsdp_wait(f, f->shard, u->ticket));
    float *full = u->slotted ? f->gather.slot[u->slot] : u->full;
    if (u->stage >= 0) {
        neo_tensor came = neo__fsdp_numbers(f, f->gather.stage[u->stage], 0, f->desc.param_dtype,
                                            u->elements);
        neo_tensor to = neo__fsdp_numbers(f, full, 0, NEO_F32, u->elements);
        NEO__TRY(neo_tensor_convert(f->ctx, came, to, NULL));
        f->gather.stage_unit[u->stage] = -1;
        u->stage = -1;
    }
    u->presence = NEO__FSDP_HERE;
    return NEO_OK;
}
/* A stage for unit number `unit`; the gather that has one must arrive if there is none. */
static neo_status neo__fsdp_take_stage(neo_fsdp *f, int unit) {
    int stage = 0;
    for (int i = 1; i < f->gather.stages; i++)
        if (f->gather.stage_unit[stage] >= 0 && f->gather.stage_unit[i] < 0) stage = i;
    if (f->gather.stage_unit[stage] >= 0)
        NEO__TRY(neo__fsdp_arrive(f, &f->unit[f->gather.stage_unit[stage]]));
    f->gather.stage_unit[stage] = unit;
    f->unit[unit].stage = stage;
    return NEO_OK;
}
/* Start to gather a unit that is away, a slotted one to `slot`, in the window of another or its
   own. */
static neo_status neo__fsdp_start(neo_fsdp *f, int unit, int slot, int window) {
    neo__fsdp_unit *u = &f->unit[unit];
    neo_dtype dtype = f->desc.param_dtype;
    neo_tensor master = neo__fsdp_numbers(f, u->master, 0, NEO_F32, u->chunk);
    if (u->whole) {
        if (u->stays)
            NEO__TRY(neo_round(f->ctx, dtype, master,
                               neo__fsdp_numbers(f, u->full, 0, NEO_F32, u->elements)));
        u->presence = NEO__FSDP_HERE;
        return NEO_OK;
    }
    if (u->slotted) {
        int held = f->gather.slot_unit[slot];
        if (held >= 0) {
            NEO__TRY(neo__fsdp_arrive(f, &f->unit[held])); /* it may be under way */
            f->unit[held].presence = NEO__FSDP_AWAY;
            f->unit[held].slot = -1;
        }
        f->gather.slot_unit[slot] = unit;
        u->slot = slot;
    }
    const void *in = u->master;
    void *out = u->slotted ? f->gather.slot[slot] : u->full;
    if (f->gather.staged) {
        NEO__TRY(neo__fsdp_take_stage(f, unit));
        out = f->gather.stage[u->stage];
        neo_tensor own = neo__fsdp_numbers(f, out, f->place * u->chunk, dtype, u->chunk);
        NEO__TRY(neo_tensor_convert(f->ctx, master, own, NULL));
        in = own.data;
    }
    char both[2 * 128 + 8]; /* so that ranks which open other windows find out */
    snprintf(both, sizeof both, "%.128s in %.128s", u->name, f->unit[window].name);
    neo_comm_label(f->shard, window == unit ? u->name : both);
    NEO__TRY(neo_comm_all_gather(f->shard, in, out, u->chunk, NULL, dtype, &u->ticket));
    u->presence = NEO__FSDP_COMING;
    f->gather.count++;
    return NEO_OK;
}
/* Gathers what the next window will want, if there is room. */
static neo_status neo__fsdp_prefetch(neo_fsdp *f, int unit) {
    int next = f->gather.backward ? unit - 1 : unit + 1;
    if (f->desc.no_prefetch || next < 0 || next >= f->unit_count) return NEO_OK;
    neo__fsdp_unit *u = &f->unit[next];
    if (u->whole || u->presence != NEO__FSDP_AWAY) return NEO_OK;
    int slot = u->slotted ? neo__fsdp_find_slot(f, next) : 0;
    return slot < 0 ? NEO_OK : neo__fsdp_start(f, next, slot, unit);
}
/* Gather a unit, and say where its values are. */
static neo_status neo__fsdp_hold(neo_fsdp *f, int unit, float **values) {
    neo__fsdp_unit *u = &f->unit[unit];
    if (u->presence == NEO__FSDP_AWAY) {
        int slot = u->slotted ? neo__fsdp_find_slot(f, unit) : 0;
        NEO__CHECK(slot >= 0, NEO_ERR_CAPACITY,
                   "neo_fsdp: unit '%s' is opened inside the windows of %d others, and there are "
                   "%d slots: "
                   "more slots, or `keep` for the outer unit",
                   u->name, f->gather.slots, f->gather.slots);
        NEO__TRY(neo__fsdp_start(f, unit, slot, unit));
    } else if (!u->whole) {
        f->gather.hits++;
    }
    NEO__TRY(neo__fsdp_arrive(f, u));
    *values = u->slotted ? f->gather.slot[u->slot] : u->stays ? u->full : u->master;
    return NEO_OK;
}
static neo_status neo__fsdp_check_window(neo_fsdp *f, const char *function, int unit,
                                         neo__fsdp_window open) {
    static const char *const state[] = {"closed",
                                        "open for forward (neo_fsdp_forward_end closes it)",
                                        "open for backward (neo_fsdp_backward_end closes it)"};
    NEO__CHECK(f, NEO_ERR_ARG, "%s: fsdp is NULL", function);
    NEO__CHECK(unit >= 0 && unit < f->unit_count, NEO_ERR_ARG, "%s: unit %d of %d", function, unit,
               f->unit_count);
    NEO__TRY(neo__fsdp_recall(f));
    NEO__CHECK(f->unit[unit].open == open, NEO_ERR_STATE, "%s: unit '%s' is %s", function,
               f->unit[unit].name, state[f->unit[unit].open]);
    return NEO_OK;
}
/* Unit number `unit` opens its window. */
static void neo__fsdp_open(neo_fsdp *f, int unit, neo__fsdp_window window) {
    int32_t word = 2 * unit + (window == NEO__FSDP_BACKWARD);
    f->unit[unit].open = window;
    f->opened.hash = neo__plan_hash(f->opened.hash, (uint64_t)word);
    if (f->opened.count < NEO__FSDP_HISTORY) f->opened.first[f->opened.count] = word;
    f->opened.count++;
}
static void neo__fsdp_close(neo_fsdp *f, neo__fsdp_unit *u) {
    neo__ctx_take_parts(f->ctx, -neo__fsdp_takes_part(f, u));
    u->open = NEO__FSDP_CLOSED;
    neo__fsdp_bind(u, NULL, NULL);
}
NEO_API neo_status neo_fsdp_forward_begin(neo_fsdp *f, int unit) {
    float *values;
    NEO__TRY(neo__fsdp_check_window(f, "neo_fsdp_forward_begin", unit, NEO__FSDP_CLOSED));
    f->gather.backward = 0;
    NEO__TRY(neo__fsdp_hold(f, unit, &values));
    neo__fsdp_open(f, unit, NEO__FSDP_FORWARD);
    neo__fsdp_bind(&f->unit[unit], values, NULL);
    neo_status status = neo__fsdp_prefetch(f, unit);
    if (status != NEO_OK) neo__fsdp_close(f, &f->unit[unit]);
    return status;
}
NEO_API neo_status neo_fsdp_forward_end(neo_fsdp *f, int unit) {
    NEO__TRY(neo__fsdp_check_window(f, "neo_fsdp_forward_end", unit, NEO__FSDP_FORWARD));
    neo__fsdp_close(f, &f->unit[unit]);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-fsdp-reduce

   Gradients of a unit when the backward window of a piece closes, and when that of the last piece
   does. If a call of this rank's device fails on the way, the reductions go on all the same, so
   that no rank waits for one that never comes; the step then tells all ranks, and none steps.
   ------------------------------------------------------------------------ */
static neo_status neo__fsdp_finish_lane(neo_fsdp *f, neo__fsdp_lane *lane);
static void neo__fsdp_note(neo_fsdp *f, neo_status status) {
    if (status != NEO_OK && f->error.status == NEO_OK) f->error = neo__error_keep(status);
}
/* Give a unit a free lane among the first `lanes`: if there is none, the reduction that began first
   ends. */
static neo_status neo__fsdp_take_lane(neo_fsdp *f, int unit, int lanes) {
    neo__fsdp_lane *best = NULL;
    for (int i = 0; i < lanes; i++) {
        neo__fsdp_lane *lane = &f->reduce.lane[i];
        if (lane->state == NEO__FSDP_WINDOW) continue;
        if (!best || (best->state != NEO__FSDP_FREE &&
                      (lane->state == NEO__FSDP_FREE || lane->since < best->since)))
            best = lane;
    }
    NEO__CHECK(best, NEO_ERR_CAPACITY,
               "neo_fsdp_backward_begin: unit '%s' is opened inside the backward windows of %d "
               "others: `keep` for the outer unit",
               f->unit[unit].name, lanes);
    NEO__TRY(neo__fsdp_finish_lane(f, best));
    best->unit = unit;
    f->unit[unit].lane = (int)(best - f->reduce.lane);
    return NEO_OK;
}
static void neo__fsdp_free_lane(neo_fsdp *f, neo__fsdp_lane *lane) {
    f->unit[lane->unit].lane = -1;
    lane->state = NEO__FSDP_FREE;
}

/* ---- pieces to subtrees ---- */
/* below += above, elements [at, at + n) of two pieces. */
static void neo__fsdp_merge(neo_fsdp *f, void *below, const void *above, int64_t at, int64_t n) {
    neo_dtype dtype = f->desc.reduce_dtype;
    neo__fsdp_note(f, neo_add(f->ctx, neo__fsdp_numbers(f, below, at, dtype, n),
                              neo__fsdp_numbers(f, above, at, dtype, n)));
}
/* Add the pieces of every maximal subtree, in the order of the leaf tree: to leaves.send. */
static void neo__fsdp_merge_pieces(neo_fsdp *f, void *const *piece, int64_t at, int64_t n) {
    for (int s = 0; s < f->leaves.subtrees; s++) { /* pieces of a subtree are of as many leaves */
        const int count = f->leaves.subtree[s].count;
        void *const *part = piece + f->leaves.subtree[s].first;
        for (int step = 1; step < count; step *= 2)
            for (int i = 0; i + step < count; i += 2 * step)
                neo__fsdp_merge(f, part[i], part[i + step], at, n);
        f->leaves.send[s] = neo__fsdp_place(part[0], at, f->desc.reduce_dtype);
    }
}
/* Sums over leaves, narrowed piece by piece if they were kept in f32. */
static void neo__fsdp_narrow(neo_fsdp *f, const float *window, void *narrow, int64_t at,
                             int64_t n) {
    neo_tensor from = neo__fsdp_numbers(f, window, at, NEO_F32, n);
    neo_tensor to = neo__fsdp_numbers(f, narrow, at, f->desc.reduce_dtype, n);
    neo__fsdp_note(f, neo_tensor_convert(f->ctx, from, to, NULL));
}
static void neo__fsdp_narrow_pieces(neo_fsdp *f, float *const *window, void *const *narrow,
                                    int64_t at, int64_t n) {
    for (int i = 0; i < f->leaves.own; i++) neo__fsdp_narrow(f, window[i], narrow[i], at, n);
}

/* ---- a unit that is cut ---- */
/* The chunk of a sum goes to the gradient: the first of a step is copied, others are added. */
static void neo__fsdp_collect(neo_fsdp *f, const void *sum, float *grad, int64_t n, int micro) {
    neo_tensor from = neo__fsdp_numbers(f, sum, 0, f->desc.reduce_dtype, n);
    neo_tensor to = neo__fsdp_numbers(f, grad, 0, NEO_F32, n);
    if (from.data == to.data) return;
    neo__fsdp_note(f, micro > 0 ? neo_add(f->ctx, to, from)
                                : neo_tensor_convert(f->ctx, from, to, NULL));
}
/* The reduce-scatter of a lane is done: what comes after it begins. */
static neo_status neo__fsdp_advance_lane(neo_fsdp *f, neo__fsdp_lane *lane) {
    neo__fsdp_unit *u = &f->unit[lane->unit];
    void *sum = lane->reduced ? lane->reduced : u->grad;
    neo_dtype dtype = f->desc.reduce_dtype;
    if (lane->state != NEO__FSDP_SCATTER || f->replicas == 1) return NEO_OK;
    NEO__TRY(neo__fsdp_wait(f, f->shard, lane->ticket));
    if (f->in_groups) {
        neo__fsdp_collect(f, sum, u->grad, u->chunk, u->micro - 1);
        if (u->micro < f->desc.micro_batches) {
            neo__fsdp_free_lane(f, lane);
            return NEO_OK;
        }
        sum = u->grad;
    }
    neo_comm_label(f->replica, u->name);
    NEO__TRY(
        neo_comm_all_reduce(f->replica, NEO_REDUCE_SUM, sum, sum, u->chunk, dtype, &lane->ticket));
    lane->state = NEO__FSDP_JOIN;
    return NEO_OK;
}
static neo_status neo__fsdp_finish_lane(neo_fsdp *f, neo__fsdp_lane *lane) {
    NEO__TRY(neo__fsdp_advance_lane(f, lane));
    if (lane->state == NEO__FSDP_FREE) return NEO_OK;
    neo__fsdp_unit *u = &f->unit[lane->unit];
    NEO__TRY(
        neo__fsdp_wait(f, lane->state == NEO__FSDP_JOIN ? f->replica : f->shard, lane->ticket));
    if (lane->reduced && !f->in_groups)
        neo__fsdp_collect(f, lane->reduced, u->grad, u->chunk, f->local ? 0 : u->micro - 1);
    neo__fsdp_free_lane(f, lane);
    return NEO_OK;
}
/* Starts to reduce a unit of which all pieces are there. */
static neo_status neo__fsdp_scatter(neo_fsdp *f, int unit) {
    neo__fsdp_unit *u = &f->unit[unit];
    for (int i = 0; i < f->reduce.lanes; i++) /* replicas join behind the next unit's backward */
        NEO__TRY(neo__fsdp_advance_lane(f, &f->reduce.lane[i]));
    if (u->lane < 0) NEO__TRY(neo__fsdp_take_lane(f, unit, f->reduce.lanes));
    neo__fsdp_lane *lane = &f->reduce.lane[u->lane];
    float *const *window = u->own_window ? u->window : &lane->window;
    void *const *narrow = u->own_narrow ? u->narrow : lane->narrow;
    if (f->narrow && !u->own_narrow)
        neo__fsdp_narrow_pieces(f, window, narrow, 0, u->elements);
    neo__fsdp_merge_pieces(f, f->narrow ? narrow : (void *const *)window, 0, u->elements);
    void *sum = lane->reduced ? lane->reduced : u->grad;
    neo_comm_label(f->shard, u->name);
    if (f->replicas == 1)
        NEO__TRY(neo_comm_reduce_scatter_leaves(f->shard, (const void *const *)f->leaves.send, sum,
                                                u->chunk, NULL, f->desc.reduce_dtype,
                                                &lane->ticket));
    else
        NEO__TRY(neo_comm_reduce_scatter(f->shard, NEO_REDUCE_SUM, f->leaves.send[0], sum, u->chunk,
                                         NULL, f->desc.reduce_dtype, &lane->ticket));
    lane->state = NEO__FSDP_SCATTER;
    lane->since = f->reduce.count++;
    return NEO_OK;
}

/* ---- whole units ---- */
/* Waits for a bucket that was launched; its sum goes to the gradients, and its windows are free. */
static neo_status neo__fsdp_finish_bucket(neo_fsdp *f, neo__fsdp_bucket *b) {
    const void *from = f->narrow ? f->whole.narrow[0] : f->whole.window[0];
    if (!b->launched) return NEO_OK;
    from = neo__fsdp_place(from, b->first, f->desc.reduce_dtype);
    if (f->all) NEO__TRY(neo__fsdp_wait(f, f->all, b->ticket));
    neo__fsdp_collect(f, from, f->whole.grad + b->first, b->count, b->micro);
    b->micro++;
    b->launched = 0;
    b->waits = b->units;
    return NEO_OK;
}
/* A unit is there: launches the buckets of which it was the last. */
static neo_status neo__fsdp_launch_buckets(neo_fsdp *f, const neo__fsdp_unit *u) {
    for (int i = 0; i < f->whole.buckets; i++) {
        neo__fsdp_bucket *b = &f->whole.bucket[i];
        if (!neo__fsdp_in_bucket(u, b) || --b->waits > 0) continue;
        if (f->narrow && f->local)
            neo__fsdp_narrow_pieces(f, f->whole.window, f->whole.narrow, b->first, b->count);
        neo__fsdp_merge_pieces(f, f->narrow ? f->whole.narrow : (void *const *)f->whole.window,
                               b->first, b->count);
        b->launched = 1;
        if (!f->all) continue;
        neo_comm_label(f->all, "a bucket of gradients");
        NEO__TRY(neo_comm_all_reduce_leaves(f->all, (const void *const *)f->leaves.send,
                                            f->leaves.send[0], b->count, f->desc.reduce_dtype,
                                            &b->ticket));
    }
    return NEO_OK;
}

/* ---- backward windows ---- */
/* The window for a piece's gradients. */
static neo_status neo__fsdp_window_of(neo_fsdp *f, int unit, int piece, float **window) {
    neo__fsdp_unit *u = &f->unit[unit];
    int adds = f->local && u->micro > 0; /* to what micro-batches before left in its own */
    *window = u->own_window && !adds ? u->window[piece] : u->scratch;
    if (*window) return NEO_OK;
    NEO__TRY(neo__fsdp_take_lane(f, unit, f->reduce.windows));
    f->reduce.lane[u->lane].state = NEO__FSDP_WINDOW;
    *window = f->reduce.lane[u->lane].window;
    return NEO_OK;
}
/* Gradients of the unit's last micro-batch are on their way in buffers that the next one wants. */
static neo_status neo__fsdp_settle(neo_fsdp *f, neo__fsdp_unit *u) {
    if (u->micro == 0 || u->filled > 0 || f->local) return NEO_OK;
    if (!u->whole)
        return u->lane >= 0 ? neo__fsdp_finish_lane(f, &f->reduce.lane[u->lane]) : NEO_OK;
    for (int i = 0; i < f->whole.buckets; i++) {
        neo__fsdp_bucket *b = &f->whole.bucket[i];
        if (!neo__fsdp_in_bucket(u, b)) continue;
        NEO__CHECK(
            b->launched || b->micro == u->micro, NEO_ERR_STATE,
            "neo_fsdp_backward_begin: unit '%s' begins micro-batch %d of %d before other units "
            "of its bucket have ended the one before",
            u->name, u->micro + 1, f->desc.micro_batches);
        NEO__TRY(neo__fsdp_finish_bucket(f, b));
    }
    return NEO_OK;
}
/* A number that no layer computes, in the first element of every gradient, shows which are not
   written. (Not on a device, where every window would have to wait for it.) */
static const uint32_t neo__fsdp_unwritten = 0x7FA5C3D2u;
static void neo__fsdp_mark_grads(const neo__fsdp_unit *u, float *grads) {
    for (int i = 0; i < u->params_count; i++)
        if (u->begin[i] < u->begin[i + 1])
            memcpy(grads + u->begin[i], &neo__fsdp_unwritten, sizeof(float));
}
static neo_status neo__fsdp_check_written(const neo__fsdp_unit *u) {
    for (int i = 0; i < u->params_count; i++) {
        uint32_t first = 0;
        if (u->begin[i] < u->begin[i + 1]) memcpy(&first, u->bound + u->begin[i], sizeof first);
        NEO__CHECK(
            first != neo__fsdp_unwritten, NEO_ERR_STATE,
            "neo_fsdp_backward_end: no backward has written the gradient of '%s' in unit '%s' "
            "(a parameter without one belongs into a unit with freeze)",
            neo_params_at(u->params, i)->name, u->name);
    }
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_backward_begin(neo_fsdp *f, int unit, int piece) {
    const char *fn = "neo_fsdp_backward_begin";
    float *values, *window = NULL;
    NEO__TRY(neo__fsdp_check_window(f, fn, unit, NEO__FSDP_CLOSED));
    neo__fsdp_unit *u = &f->unit[unit];
    NEO__CHECK(piece >= 0 && piece < f->leaves.pieces, NEO_ERR_ARG, "%s: piece %d of %d", fn, piece,
               f->leaves.pieces);
    NEO__CHECK(
        u->frozen || u->micro < f->desc.micro_batches, NEO_ERR_STATE,
        "%s: unit '%s' has had the backward of all %d micro-batches: neo_fsdp_step comes first", fn,
        u->name, f->desc.micro_batches);
    NEO__CHECK(u->frozen || piece == u->filled, NEO_ERR_STATE,
               "%s: piece %d of unit '%s' where piece %d of its %d is next", fn, piece, u->name,
               u->filled, f->leaves.pieces);
    f->gather.backward = 1;
    NEO__TRY(neo__fsdp_hold(f, unit, &values));
    neo__fsdp_open(f, unit, NEO__FSDP_BACKWARD); /* from here on its slot is not for others */
    neo_status status = neo__fsdp_prefetch(f, unit);
    if (status == NEO_OK && !u->frozen) status = neo__fsdp_settle(f, u);
    if (status == NEO_OK && !u->frozen) status = neo__fsdp_window_of(f, unit, piece, &window);
    neo__ctx_take_parts(f->ctx, neo__fsdp_takes_part(f, u));
    if (status != NEO_OK) {
        neo__fsdp_close(f, u);
        return status;
    }
    neo__fsdp_count(f, &f->calls);
    f->seen = f->calls;
    u->piece = piece;
    u->bound = window;
    if (window && !neo_ctx_device(f->ctx)) neo__fsdp_mark_grads(u, window);
    neo__fsdp_bind(u, values, window);
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_backward_end(neo_fsdp *f, int unit) {
    NEO__TRY(neo__fsdp_check_window(f, "neo_fsdp_backward_end", unit, NEO__FSDP_BACKWARD));
    neo__fsdp_unit *u = &f->unit[unit];
    if (!u->frozen && f->leaves.piece[u->piece].count > 0 && !neo_ctx_device(f->ctx))
        NEO__TRY(neo__fsdp_check_written(u));
    neo__fsdp_close(f, u);
    if (u->frozen) return NEO_OK;
    const neo_status before = f->error.status;
    neo_tensor bound = neo__fsdp_numbers(f, u->bound, 0, NEO_F32, u->elements);
    neo_tensor window = neo__fsdp_numbers(f, u->window[u->piece], 0, NEO_F32, u->elements);
    if (u->own_window && bound.data != window.data)
        neo__fsdp_note(f, neo_add(f->ctx, window, bound));
    if (u->own_narrow && !f->local)
        neo__fsdp_narrow(f, u->bound, u->narrow[u->piece], 0, u->elements);
    neo__fsdp_count(f, &f->calls);
    f->seen = f->calls;
    int last = ++u->filled == f->leaves.pieces;
    int travels = last && (!f->local || u->micro == f->desc.micro_batches - 1);
    if (u->lane >= 0 && (!travels || u->whole)) neo__fsdp_free_lane(f, &f->reduce.lane[u->lane]);
    if (last) u->filled = 0, u->micro++;
    if (travels)
        neo__fsdp_note(f, u->whole ? neo__fsdp_launch_buckets(f, u) : neo__fsdp_scatter(f, unit));
    return before == NEO_OK ? neo__error_restore(&f->error) : NEO_OK; /* once */
}

/* ---- pieces ---- */
NEO_API int neo_fsdp_pieces(const neo_fsdp *f) { return f->leaves.pieces; }
NEO_API neo_leaves neo_fsdp_piece(const neo_fsdp *f, int piece, int64_t batch) {
    NEO__ZERO(neo_leaves, leaves);
    leaves.batch = batch;
    if (piece < 0 || piece >= f->leaves.pieces) return leaves;
    leaves.first = f->leaves.piece[piece].first;
    leaves.count = f->leaves.piece[piece].count;
    return leaves;
}

NEO_API int64_t neo_fsdp_samples(const neo_fsdp *f, int piece, int64_t batch, int64_t *first) {
    neo_leaves leaves = neo_fsdp_piece(f, piece, batch);
    *first = neo_leaf_begin(batch, f->shards, leaves.first);
    return neo_leaf_begin(batch, f->shards, leaves.first + leaves.count) - *first;
}

/* ---------------------------------------------------------------------------
   >>impl-fsdp-step
   ------------------------------------------------------------------------ */
static void neo__fsdp_forget_squares(neo_fsdp *f) {
    f->has_squares = 0;
    neo_exact_zero(&f->squares);
}
/* Forget everything that was gathered or bound. */
static void neo__fsdp_begin_anew(neo_fsdp *f) {
    for (int i = 0; i < f->unit_count; i++) {
        neo__fsdp_unit *u = &f->unit[i];
        if (u->open != NEO__FSDP_CLOSED) neo__fsdp_close(f, u);
        u->presence = NEO__FSDP_AWAY;
        u->slot = u->stage = u->lane = -1;
        u->filled = u->micro = 0;
    }
    for (int i = 0; i < f->gather.slots; i++) f->gather.slot_unit[i] = -1;
    for (int i = 0; i < NEO__FSDP_LANES; i++) f->reduce.lane[i].state = NEO__FSDP_FREE;
    for (int b = 0; b < f->whole.buckets; b++) {
        f->whole.bucket[b].waits = f->whole.bucket[b].units;
        f->whole.bucket[b].launched = f->whole.bucket[b].micro = 0;
    }
    f->error.status = NEO_OK;
    f->gather.stage_unit[0] = f->gather.stage_unit[1] = -1;
    f->gather.backward = 0;
    f->opened.count = 0;
    f->opened.hash = 0;
    neo__fsdp_forget_squares(f);
}
/* Until nothing is under way. */
static neo_status neo__fsdp_drain(neo_fsdp *f) {
    neo_comm *groups[] = {f->shard, f->replica, f->all};
    neo_status status = NEO_OK;
    for (int i = 0; i < 3; i++) {
        neo_status one = groups[i] ? neo_comm_wait_all(groups[i]) : NEO_OK;
        if (status == NEO_OK) status = one;
    }
    return status;
}
NEO_API neo_status neo_fsdp_cancel(neo_fsdp *f) {
    NEO__CHECK(f, NEO_ERR_ARG, "neo_fsdp_cancel: fsdp is NULL");
    neo_status status = neo__fsdp_drain(f);
    neo__fsdp_begin_anew(f);
    return status;
}
/* End every reduction that is under way. */
static neo_status neo__fsdp_finish_all(neo_fsdp *f) {
    for (;;) { /* in the order in which they began */
        neo__fsdp_lane *first = NULL;
        for (int i = 0; i < f->reduce.lanes; i++)
            if (f->reduce.lane[i].state != NEO__FSDP_FREE &&
                (!first || f->reduce.lane[i].since < first->since))
                first = &f->reduce.lane[i];
        if (!first) break;
        NEO__TRY(neo__fsdp_finish_lane(f, first));
    }
    for (int i = 0; i < f->whole.buckets; i++)
        NEO__TRY(neo__fsdp_finish_bucket(f, &f->whole.bucket[i]));
    return NEO_OK;
}
/* All gradients become whole sums. NEO_ERR_STATE: some are not there yet, here alone. Other errors
   are noted: one may be of this rank alone, while others go into the step, which tells all. */
static neo_status neo__fsdp_finish(neo_fsdp *f) {
    int micros = f->desc.micro_batches;
    NEO__TRY(neo__fsdp_recall(f));
    for (int i = 0; i < f->unit_count; i++)
        NEO__CHECK(f->unit[i].open == NEO__FSDP_CLOSED, NEO_ERR_STATE,
                   "neo_fsdp_step: unit '%s' is in a window: neo_fsdp_%s_end comes first",
                   f->unit[i].name, f->unit[i].open == NEO__FSDP_FORWARD ? "forward" : "backward");
    for (int i = 0; i < f->unit_count; i++) {
        const neo__fsdp_unit *u = &f->unit[i];
        NEO__CHECK(u->frozen || u->micro == micros, NEO_ERR_STATE,
                   "neo_fsdp_step: since the last step unit '%s' had the backward of %d of %d "
                   "micro-batches, and %d of %d pieces of one",
                   u->name, u->micro, micros, u->filled, f->leaves.pieces);
    }
    neo__fsdp_note(f, neo__fsdp_finish_all(f));
    if (f->error.status != NEO_OK) (void)neo__fsdp_drain(f); /* that is another consequence of it */
    return NEO_OK;
}
/* Divides the gradients by the loss scale; *infinite: one of this rank's is not finite. */
static neo_status neo__fsdp_unscale_all(neo_fsdp *f, int *infinite) {
    *infinite = 0;
    for (int i = 0; i < neo_params_count(f->runs) && f->scaler.on; i++) {
        const neo_param *p = neo_params_at(f->runs, i);
        int finite = 1;
        if (!p->grad.data) continue;
        NEO__TRY(neo_scale(f->host, p->grad, 1.0f / f->scaler.scale, &finite));
        *infinite |= !finite;
    }
    return NEO_OK;
}
static void neo__fsdp_rescale(neo_fsdp *f, int skip) {
    if (!f->scaler.on) return;
    if (skip) {
        f->scaler.good_steps = 0;
        if (f->scaler.scale > 0x1p-100f) f->scaler.scale *= 0.5f;
    } else if (++f->scaler.good_steps >= f->desc.loss_scale_window) {
        f->scaler.good_steps = 0;
        if (f->scaler.scale < 0x1p100f) f->scaler.scale *= 2.0f;
    }
}
/* Ranks have opened different windows: which is the first that differs from rank 0's. */
static neo_status neo__fsdp_diverged(const neo_fsdp *f) {
    int32_t first[NEO__FSDP_HISTORY],
        most = (int32_t)NEO__MIN(f->opened.count, (int64_t)NEO__FSDP_HISTORY);
    int32_t at = 0;
    neo_status status = NEO_OK;
    memset(first, -1, sizeof first);
    memcpy(first, f->opened.first, (size_t)most * sizeof *first);
    NEO__TRY(neo_comm_broadcast(f->comm, first, NEO__FSDP_HISTORY, NEO_I32, 0, NULL));
    while (at < most && first[at] == f->opened.first[at]) at++;
    int32_t here = at < most ? f->opened.first[at] : -1,
            there = at < NEO__FSDP_HISTORY ? first[at] : -1;
    if (here != there)
        status = neo_fail(
            NEO_ERR_DIVERGED,
            "neo_fsdp_step: window %d of the step is %s of unit '%s' here, %s of unit '%s' on rank "
            "0",
            at, here & 1 ? "backward" : "forward", here < 0 ? "(none)" : f->unit[here / 2].name,
            there & 1 ? "backward" : "forward", there < 0 ? "(none)" : f->unit[there / 2].name);
    status = neo_comm_agree(f->comm, status);
    if (status != NEO_OK) return status;
    return neo_fail(NEO_ERR_DIVERGED,
                    "neo_fsdp_step: ranks have opened different windows in this step, the first %d "
                    "of which agree",
                    (int)NEO__FSDP_HISTORY);
}
/* Ranks tell each other before a step whether they opened the same windows, whether all gradients
   are finite, and whether `status` is an error on one of them. */
static neo_status neo__fsdp_meet(neo_fsdp *f, neo_status status, int infinite, int *skip) {
    int64_t mark = (int64_t)(f->opened.hash >> 1);
    int64_t words[] = {mark, -mark, status != NEO_OK ? 2 : infinite};
    const neo__kept_error error = neo__error_keep(status);
    *skip = infinite;
    if (f->ranks == 1) return status;
    const neo_status met =
        neo_comm_all_reduce(f->comm, NEO_REDUCE_MAX, words, words, 3, NEO_I64, NULL);
    if (met != NEO_OK) return status != NEO_OK ? neo__error_restore(&error) : met;
    if (words[2] == 2) return neo_comm_agree(f->comm, neo__error_restore(&error));
    *skip = words[2] != 0;
    return words[0] == -words[1] ? NEO_OK : neo__fsdp_diverged(f);
}
NEO_API void neo_fsdp_add_squares(neo_fsdp *f, const neo_exact *squares) {
    neo_exact_merge(&f->squares, squares);
    f->has_squares = 1;
}
/* A recorded step may turn out not to be taken: then its count goes back. */
NEO_API float neo_fsdp_clip_factor(const neo_fsdp *f) {
    const float factor = neo_optim_clip_factor(f->optim);
    return f->clipped > 0 && f->clipped == neo_optim_step_count(f->optim) ? factor : 0.0f;
}
/* The squares of all ranks: the first place of every sharding group puts them into its norm. */
static neo_status neo__fsdp_share_squares(neo_fsdp *f) {
    NEO__ZERO(neo_exact, none);
    if (!f->has_squares || f->desc.optim.clip_norm <= 0.0f) return NEO_OK;
    int64_t words = (int64_t)(sizeof f->squares / sizeof(int64_t));
    neo_exact_normalize(&f->squares);
    if (f->ranks > 1)
        NEO__TRY(neo_comm_all_reduce(f->comm, NEO_REDUCE_SUM, &f->squares, &f->squares, words,
                                     NEO_I64, NULL));
    neo_exact_normalize(&f->squares);
    neo_optim_add_squares(f->optim, f->shard && f->place > 0 ? &none : &f->squares);
    return NEO_OK;
}
/* The step of gradients that are whole sums. status: an error until here; then no rank steps. */
static neo_status neo__fsdp_step_sums(neo_fsdp *f, neo_status status, float lr) {
    int skip = 0, infinite = 0;
    double others = neo_exact_value(&f->squares);
    if (status == NEO_OK) status = neo__fsdp_unscale_all(f, &infinite);
    infinite |= f->scaler.on && !(others - others == 0.0);
    status = neo__fsdp_meet(f, status, infinite, &skip);
    if (status == NEO_OK) neo__fsdp_rescale(f, skip);
    if (status == NEO_OK && !skip) status = neo__fsdp_share_squares(f);
    if (status == NEO_OK && !skip) status = neo_optim_step(f->optim, lr);
    neo__fsdp_begin_anew(f);
    if (status == NEO_OK) neo__fsdp_count(f, skip ? &f->skipped : &f->steps);
    if (status == NEO_OK && !skip) f->clipped = neo_optim_step_count(f->optim);
    return status;
}
NEO_API neo_status neo_fsdp_step(neo_fsdp *f, float lr) {
    NEO__CHECK(f, NEO_ERR_ARG, "neo_fsdp_step: fsdp is NULL");
    f->clipped = 0;
    neo_status status = neo__fsdp_finish(f);
    if (status == NEO_OK) return neo__fsdp_step_sums(f, neo__error_restore(&f->error), lr);
    neo__fsdp_forget_squares(f); /* what lacks may still come */
    return status;
}
/* The squares of what tables keep, divided by the loss scale, where the step needs them. */
static neo_status neo__fsdp_tables_squares(neo_fsdp *f, neo_shard *tables) {
    NEO__ZERO(neo_exact, squares);
    NEO__TRY(neo__error_restore(&f->error));
    if (f->scaler.on) NEO__TRY(neo_shard_scale_grads(tables, 1.0f / f->scaler.scale));
    if (!f->scaler.on && f->desc.optim.clip_norm <= 0.0f) return NEO_OK;
    NEO__TRY(neo_shard_grad_squares(tables, &squares));
    neo_fsdp_add_squares(f, &squares);
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_step_tables(neo_fsdp *f, neo_shard *tables, float lr) {
    NEO__CHECK(f && tables, NEO_ERR_ARG, "neo_fsdp_step_tables: an argument is NULL");
    const float type = f->desc.optim.clip_norm_type;
    NEO__CHECK(f->desc.optim.clip_norm <= 0.0f || type == 0.0f || type == 2.0f, NEO_ERR_ARG,
               "neo_fsdp_step_tables: clip_norm_type is %g: with tables it must be 2",
               (double)type);
    const int64_t skipped = f->skipped;
    NEO__TRY(neo__shard_agree_step(tables, "neo_fsdp_step_tables", lr));
    NEO__TRY(neo__fsdp_finish(f)); /* what lacks may still come */
    f->clipped = 0;
    neo_status status = neo__fsdp_step_sums(f, neo__fsdp_tables_squares(f, tables), lr);
    if (status != NEO_OK) {
        const neo__kept_error error = neo__error_keep(status);
        (void)neo_shard_clear(tables); /* where it fails, the next step says so */
        return neo__error_restore(&error);
    }
    if (f->skipped != skipped) return neo_shard_clear(tables);
    const float factor = neo_fsdp_clip_factor(f);
    if (factor != 1.0f) status = neo_shard_scale_grads(tables, factor);
    NEO__TRY(neo__shard_or_abort(tables, status)); /* the units have stepped */
    return neo__shard_step_kept(tables, lr);
}
NEO_API float neo_fsdp_loss_scale(const neo_fsdp *f) {
    return f->scaler.on ? f->scaler.scale : 1.0f;
}
NEO_API neo_fsdp_stats neo_fsdp_get_stats(const neo_fsdp *f) {
    NEO__ZERO(neo_fsdp_stats, s);
    s.steps = f->steps;
    s.skipped = f->skipped;
    s.gathers = f->gather.count;
    s.hits = f->gather.hits;
    s.wait_ns = f->wait_ns;
    s.grad_norm = neo_optim_grad_norm(f->optim);
    if (f->shard) s.shard = neo_comm_get_stats(f->shard);
    if (f->replica) s.replica = neo_comm_get_stats(f->replica);
    if (f->all) s.all = neo_comm_get_stats(f->all);
    return s;
}
NEO_API void neo_fsdp_reset_stats(neo_fsdp *f) {
    neo_comm *groups[] = {f->shard, f->replica, f->all};
    f->steps = f->skipped = f->gather.count = f->gather.hits = f->wait_ns = 0;
    for (int i = 0; i < 3; i++)
        if (groups[i]) neo_comm_reset_stats(groups[i]);
}
NEO__HOST_END NEO__HOT_END
/* ---------------------------------------------------------------------------
   >>impl-fsdp-state

   A run of a parameter's elements is at most three rectangles of it: the end of a row, whole rows,
   the beginning of one.
   ------------------------------------------------------------------------ */
static neo_status neo__fsdp_add_rectangle(neo_state *state, neo_state_kind kind, const char *name,
                                          float *data, neo_place place, const neo_part *part,
                                          int64_t rows, int64_t cols) {
    neo_tensor t =
        part->cols ? neo_tensor_2d(data, NEO_F32, rows, cols) : neo_tensor_1d(data, NEO_F32, rows);
    t.place = place;
    return rows > 0 && cols > 0 ? neo_state_add_part(state, kind, name, t, part) : NEO_OK;
}
/* Elements [first, first + count) of the tensor `whole`, at data. */
static neo_status neo__fsdp_add_run(neo_state *state, neo_state_kind kind, const char *name,
                                    float *data, neo_tensor whole, int64_t first, int64_t count,
                                    int copy) {
    neo_part part;
    int64_t cols = whole.ndim == 2 ? whole.shape[1] : 1;
    part.rows = whole.shape[0];
    part.cols = whole.ndim == 2 ? cols : 0;
    part.copy = copy;
    while (count > 0) {
        int64_t row = first / cols, col = first % cols,
                rows = col || count < cols ? 1 : count / cols;
        int64_t wide = rows == 1 ? NEO__MIN(cols - col, count) : cols;
        part.first_row = row;
        part.first_col = col;
        NEO__TRY(neo__fsdp_add_rectangle(state, kind, name, data, whole.place, &part, rows, wide));
        first += rows * wide, data += rows * wide, count -= rows * wide;
    }
    return NEO_OK;
}
/* One number per element of a parameter: its value, or of the optimizer's state. */
static neo_status neo__fsdp_add_tensor(neo_state *state, neo_state_kind kind, const char *name,
                                       const neo_fsdp *f, const neo__fsdp_unit *u, int i,
                                       float *data) {
    neo_tensor whole = neo_params_at(u->params, i)->value;
    int64_t first, at, count = neo__fsdp_run(f, u, i, &first, &at);
    whole.place = neo_ctx_device(f->host) ? NEO_DEVICE : NEO_HOST;
    if (!u->whole && neo_tensor_count(whole) > 0)
        return neo__fsdp_add_run(state, kind, name, data, whole, first, count,
                                 f->rank >= f->factor);
    whole.data = data ? data : u->master;
    whole.absent = NULL;
    return neo_state_add(state, kind, name, whole);
}
static neo_status neo__fsdp_define(neo_state *state, const neo_fsdp *f) {
    static const char *const word[] = {"micro_batches", "accumulate_groups", "leaf_pieces",
                                       "param_dtype", "reduce_dtype"};
    const neo_fsdp_desc *d = &f->desc;
    const int number[] = {d->micro_batches, d->groups, d->leaf_pieces != 0}; /* groups: 1 is each */
    char key[256], text[32];
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "%s.%s", d->optim.name, word[i]);
        if (i < 3) snprintf(text, sizeof text, "%d", number[i]);
        else
            snprintf(text, sizeof text, "%s",
                     neo_dtype_name(i == 3 ? d->param_dtype : d->reduce_dtype));
        NEO__TRY(neo_state_define(state, key, text));
    }
    return NEO_OK;
}
/* A number of the loss scaler, 0 or 1, and its name. */
static neo_tensor neo__fsdp_scaler(neo_fsdp *f, int i, char name[256]) {
    snprintf(name, 256, "%.200s.%s", f->desc.optim.name, i ? "good_steps" : "loss_scale");
    return i ? neo_tensor_1d(&f->scaler.good_steps, NEO_I64, 1)
             : neo_tensor_1d(&f->scaler.scale, NEO_F32, 1);
}
NEO_API neo_status neo_state_add_fsdp(neo_state *state, neo_fsdp *f) {
    NEO__CHECK(state && f, NEO_ERR_ARG, "neo_state_add_fsdp: an argument is NULL");
    NEO__TRY(neo__fsdp_define(state, f));
    for (int i = 0; i < f->unit_count; i++) {
        const neo__fsdp_unit *u = &f->unit[i];
        for (int k = 0; k < u->params_count; k++) {
            int64_t first, at;
            neo__fsdp_run(f, u, k, &first, &at);
            NEO__TRY(neo__fsdp_add_tensor(state, NEO_STATE_WEIGHT,
                                          neo_params_at(u->params, k)->name, f, u, k,
                                          u->master + at));
        }
    }
    int unit = 0;
    for (int i = 0; i < neo_optim_state_count(f->optim); i++) {
        const char *name;
        int param;
        neo_tensor t = neo_optim_state_at(f->optim, i, &name, &param);
        if (param < 0) {
            NEO__TRY(neo_state_add(state, NEO_STATE_OPTIMIZER, name, t));
            continue;
        }
        while (f->unit[unit].frozen ||
               param >= f->unit[unit].first_param + f->unit[unit].params_count)
            unit++;
        NEO__TRY(neo__fsdp_add_tensor(state, NEO_STATE_OPTIMIZER, name, f, &f->unit[unit],
                                      param - f->unit[unit].first_param, (float *)t.data));
    }
    if (!f->scaler.on) return NEO_OK;
    char name[256];
    for (int i = 0; i < 2; i++) {
        neo_tensor t = neo__fsdp_scaler(f, i, name);
        NEO__TRY(neo_state_add(state, NEO_STATE_OPTIMIZER, name, t));
    }
    return NEO_OK;
}

/* ---- one file ----
   Passes: of each unit its values, then each kind of the optimizer's state. A pass of a cut unit
   is one gather to rank 0, in the group of its place; before it all ranks agree to go on, so
   that an error of rank 0 stops them all there. Ranks of other groups only agree. Rank 0 makes a
   pass when the file asks for its first tensor. */
typedef struct neo__fsdp_writer {
    neo_fsdp *f;
    int kinds;   /* passes of a unit that is trained: 1 and those of the state */
    int numbers; /* tensors that every rank has, behind the others */
    int count;   /* of all tensors */
    size_t bytes;
    float *whole, *chunk; /* [largest unit that is cut], [its chunk] */
    const char **name;    /* [count], of rank 0 */
    neo_tensor *tensor;
    int unit, kind, param; /* what the file asks for next */
    int ended;             /* ranks have agreed on an error */
    char text[2][256];     /* names of the scaler's */
    char *memory;
} neo__fsdp_writer;
static int neo__fsdp_state_kinds(const neo_fsdp *f) {
    int params = neo_params_count(f->runs);
    return params ? (neo_optim_state_count(f->optim) - 1) / params : 0;
}
/* Counts, and if base is not NULL places, what a writer takes. */
static void neo__fsdp_layout_writer(neo__fsdp_writer *w, neo_fsdp *f, int with_state, char *base) {
    neo__carve carve = {base, 0};
    int root = f->rank == 0;
    w->f = f;
    w->kinds = with_state ? 1 + neo__fsdp_state_kinds(f) : 1;
    w->numbers = !with_state ? 0 : f->scaler.on ? 3 : 1;
    w->count = w->numbers + (w->kinds - 1) * neo_params_count(f->runs);
    for (int i = 0; i < f->unit_count; i++) w->count += f->unit[i].params_count;
    int64_t whole = root ? f->reduce.largest_cut : 0;
    int64_t chunk = w->kinds > 1 && f->rank < f->factor ? f->reduce.largest_cut / f->factor : 0;
    NEO__CARVE(&carve, w->whole, whole);
    NEO__CARVE(&carve, w->chunk, chunk);
    NEO__CARVE(&carve, w->name, root ? w->count : 0);
    NEO__CARVE(&carve, w->tensor, root ? w->count : 0);
    w->bytes = carve.at;
}
NEO_API size_t neo_fsdp_write_bytes(const neo_fsdp *f, int with_state) {
    neo__fsdp_writer w;
    neo__fsdp_layout_writer(&w, (neo_fsdp *)(uintptr_t)f, with_state, NULL);
    return w.bytes +
           (f->rank == 0 ? 2 * sizeof(void *) * (size_t)w.count : 0); /* neo_safetensors_stream */
}
static int neo__fsdp_passes(const neo__fsdp_writer *w, const neo__fsdp_unit *u) {
    return u->frozen ? 1 : w->kinds;
}
/* State tensor of a parameter of a unit, of this rank's run of it; kind from 1. */
static neo_tensor neo__fsdp_state_of(const neo__fsdp_writer *w, const neo__fsdp_unit *u, int kind,
                                     int i, const char **name) {
    return neo_optim_state_at(w->f->optim, (u->first_param + i) * (w->kinds - 1) + kind - 1, name,
                              NULL);
}
/* Names and shapes in the order of the passes. */
static void neo__fsdp_list_tensors(neo__fsdp_writer *w) {
    neo_fsdp *f = w->f;
    int at = 0;
    for (int unit = 0; unit < f->unit_count; unit++) {
        const neo__fsdp_unit *u = &f->unit[unit];
        for (int kind = 0; kind < neo__fsdp_passes(w, u); kind++)
            for (int i = 0; i < u->params_count; i++, at++) {
                w->tensor[at] = neo_params_at(u->params, i)->value;
                w->name[at] = neo_params_at(u->params, i)->name;
                if (kind > 0) neo__fsdp_state_of(w, u, kind, i, &w->name[at]);
            }
    }
    if (w->numbers == 0) return;
    w->tensor[at] =
        neo_optim_state_at(f->optim, neo_optim_state_count(f->optim) - 1, &w->name[at], NULL);
    at++;
    for (int i = 0; i + 1 < w->numbers; i++, at++) {
        w->tensor[at] = neo__fsdp_scaler(f, i, w->text[i]);
        w->name[at] = w->text[i];
    }
}
/* A pass: w->whole on rank 0 is the unit's. */
static neo_status neo__fsdp_write_pass(neo__fsdp_writer *w, int unit, int kind) {
    neo_fsdp *f = w->f;
    const neo__fsdp_unit *u = &f->unit[unit];
    if (u->whole) return NEO_OK;
    neo_status status = neo_comm_agree(f->comm, NEO_OK);
    const float *from = u->master;
    if (status == NEO_OK && f->rank >= f->factor) return NEO_OK;
    for (int i = 0; i < u->params_count && kind > 0 && status == NEO_OK; i++) {
        int64_t first, at, count = neo__fsdp_run(f, u, i, &first, &at);
        const void *run = neo__fsdp_state_of(w, u, kind, i, NULL).data;
        if (count > 0) memcpy(w->chunk + at, run, (size_t)count * sizeof(float));
        from = w->chunk;
    }
    if (status == NEO_OK) {
        neo_comm_label(f->shard, u->name);
        status = neo_comm_gather(f->shard, from, w->whole, u->chunk, NULL, NEO_F32, 0, NULL);
    }
    w->ended = status != NEO_OK;
    return status;
}
/* Supply the tensor that the file asks rank 0 for. */
static neo_status neo__fsdp_supply(void *user, int index, const void **data) {
    neo__fsdp_writer *w = (neo__fsdp_writer *)user;
    if (index >= w->count - w->numbers) {
        *data = w->tensor[index].data;
        return NEO_OK;
    }
    const neo__fsdp_unit *u = &w->f->unit[w->unit];
    if (w->param == 0) NEO__TRY(neo__fsdp_write_pass(w, w->unit, w->kind));
    if (!u->whole) *data = w->whole + u->begin[w->param];
    else if (w->kind == 0) *data = u->master + u->begin[w->param];
    else *data = neo__fsdp_state_of(w, u, w->kind, w->param, NULL).data;
    if (++w->param < u->params_count) return NEO_OK;
    w->param = 0;
    if (++w->kind < neo__fsdp_passes(w, u)) return NEO_OK;
    w->kind = 0;
    w->unit++;
    return NEO_OK;
}
static neo_status neo__fsdp_write_root(neo__fsdp_writer *w, const char *path) {
    static const char *const metadata[] = {"format", "pt"};
    neo__fsdp_list_tensors(w);
    return neo_safetensors_stream(w->f->ctx, path, w->name, w->tensor, w->count, metadata, 1,
                                  neo__fsdp_supply, w);
}
static neo_status neo__fsdp_write_others(neo__fsdp_writer *w) {
    for (int unit = 0; unit < w->f->unit_count; unit++)
        for (int kind = 0; kind < neo__fsdp_passes(w, &w->f->unit[unit]); kind++)
            NEO__TRY(neo__fsdp_write_pass(w, unit, kind));
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_write_safetensors(neo_fsdp *f, const char *path, int with_state) {
    const char *fn = "neo_fsdp_write_safetensors";
    NEO__CHECK(f, NEO_ERR_ARG, "%s: fsdp is NULL", fn);
    NEO__CHECK(!neo_ctx_device(f->ctx), NEO_ERR_UNSUPPORTED,
               "%s: units on a device: neo_save writes them", fn);
    NEO__ZERO(neo__fsdp_writer, w);
    neo__fsdp_layout_writer(&w, f, with_state, NULL);
    NEO__ZERO(neo__alike, alike);
    neo__alike_add(&alike, "another with_state than rank 0", with_state != 0);
    NEO__TRY(neo__alike_check(f->comm, &alike, fn));
    neo_status status = NEO_OK;
    if (!path && f->rank == 0) status = neo_fail(NEO_ERR_ARG, "%s: path is NULL", fn);
    if (w.bytes && status == NEO_OK) {
        w.memory = (char *)neo_alloc(f->ctx, w.bytes);
        if (!w.memory)
            status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes", fn, w.bytes);
    }
    status = neo_comm_agree(f->comm, status);
    if (status == NEO_OK) {
        neo__fsdp_layout_writer(&w, f, with_state, w.memory);
        if (w.memory) memset(w.memory, 0, w.bytes); /* gaps between runs travel too */
        status = f->rank == 0 ? neo__fsdp_write_root(&w, path) : neo__fsdp_write_others(&w);
        if (!w.ended) status = neo_comm_agree(f->comm, status);
    }
    neo_free(f->ctx, w.memory, w.bytes);
    return status;
}
NEO__COLD_END

#ifdef __cplusplus
}
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif /* implementation */

/* ---------------------------------------------------------------------------
   MIT License, Copyright (c) 2026 the neo contributors

   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
   associated documentation files (the "Software"), to deal in the Software without restriction,
   including without limitation the rights to use, copy, modify, merge, publish, distribute,
   sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
   furnished to do so, subject to the following conditions: the above copyright notice and this
   permission notice shall be included in all copies or substantial portions of the Software. THE
   SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
   LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
   NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
   DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
   OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
   ------------------------------------------------------------------------ */
