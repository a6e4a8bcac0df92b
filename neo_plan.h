/* neo_plan.h: where embedding tables go on a cluster, and what a training step takes there.

   Copy it beside neo.h, neo_kernels.h and neo_comm.h. MIT licence (at the end of neo.h).

   WHAT IT DOES
     - from tables, batch and cluster it decides which rank holds what of which table: table-wise,
       column-wise, row-wise, data-parallel, and their combinations with nodes
     - bytes of every rank, exactly, and seconds of a step by a model that neo_calibrate fits to
       the machine; why each table lies as it does, and not otherwise
     - plans of your own, checked and measured alike; plans as text files
     - how often rows are used, counted from batches: which rows of which tables memory holds where
       the others lie below it (neo_tier), how many ids find theirs there, and what that takes
     - no rank needs to run: a plan for 1,024 of them is made on any machine, the same on each

   WHAT IT DOES NOT DO
     - dense layers: they count as flops and bytes of a step; neo_fsdp_predict of neo_fsdp.h has
       their memory

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_plan.h"
         #include "neo_plan.h"
     It implements neo.h and neo_comm.h too. To train by a plan include "neo_fsdp.h", which brings
     it; NEO_FSDP_IMPLEMENTATION emits both.
         desc.bags = &bags;                     as for neo_bags_create, the batch of all ranks
         desc.cluster.ranks = 128, desc.cluster.ranks_per_node = 8;
         neo_plan_create(ctx, &desc, &plan);
         neo_plan_step_of(plan).plain           seconds
         neo_timeline_create(plan, NULL, 0, 1, &timeline)     the tasks of a pipelined step
         neo_plan_why(plan, table, text, sizeof text);
     examples/plan is a program of it: models and clusters from files.

   GLOSSARY
     placement   how one table lies on the ranks: whole, in slices of columns, in ranges of rows,
                 or copied
     piece       a rectangle of a table on one rank; a plan is a list of pieces
     slice       the pieces of a table with the same columns: together all its rows

   A NEW WAY TO SHARD A TABLE
     neo_placement (>>plan), its name and NEO__PLAN_ROW_BITS and its like (>>impl-plan);
     neo__plan_classify, which knows it by its pieces (>>impl-plan-pieces); into how many parts it
     cuts (>>impl-plan-options); its line in plan files (>>impl-plan-file). Buffers, predictions and
     sharded tables read the list of pieces alone: rectangles on one rank each, or the whole table
     on every rank. tests/shard/common.h: place()

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_plan.h is the map)
     >>plan >>profile >>timeline
     facts     >>impl-plan >>impl-plan-model
     memory    >>impl-shard-map >>impl-shard-lists >>impl-shard-memory
     costs     >>impl-timeline >>impl-plan-buffers >>impl-plan-tier >>impl-plan-predict
               >>impl-plan-pieces
     search    >>impl-plan-options >>impl-plan-place >>impl-plan-improve >>impl-plan-search
     calls     >>impl-plan-why >>impl-plan-file >>impl-profile >>impl-plan-calls >>impl-calibrate
               >>impl-calibrate-device
*/
#ifndef NEO_PLAN_H
#define NEO_PLAN_H

#include "neo_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>plan

   A plan says which rank holds which rectangle of which table. neo_plan_create searches one that
   makes a training step short within the memory of the ranks. Every rank may do it: it depends on
   its input and, as buffers grow with them, ctx's threads. Or rank 0 does (neo_plan_broadcast).

   Where tables may be cut, so that no bit of weights and state depends on the plan:
     columns  at multiples of NEO_PLAN_BLOCK, of NEO_WIRE_BLOCK if a wire is f8, i8 or i4; rows of
              i8 are not cut
     rows     where a bucket of neo_table_desc.row_buckets begins: a table of R buckets has at most
              R ranges of rows. Pooled sums of a table without buckets would depend on the cut: such
              a table is cut only if placements name a row placement, and then anywhere (see
              neo_plan_warning). Under NEO_POOL_NONE, where nothing is summed, anywhere. (A
              neo_shard moves such rows whole: columns are cut only if placements name it.)
   Each slice is cut into rows by itself. Partial sums travel as f32 on any wire: only whole sums
   are rounded to it. Tables of keys are cut where a set of 32 rows begins. None has copies on every
   rank: each would need the ids of all, to say which keys have rows, and do all the work.
   ------------------------------------------------------------------------ */
typedef struct neo_plan neo_plan;
enum { NEO_PLAN_BLOCK = 16 };

typedef enum neo_placement {
    NEO_TABLE_WISE,        /* "tw": the whole table on one rank */
    NEO_COLUMN_WISE,       /* "cw": slices of columns on several ranks */
    NEO_ROW_WISE,          /* "rw": ranges of rows on several ranks or all */
    NEO_DATA_PARALLEL,     /* "dp": a copy on every rank; not of a table of keys */
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
enum { NEO_ROWS_LOOKUP, NEO_ROWS_SGD, NEO_ROWS_ROWWISE, NEO_ROWS_ADAGRAD, NEO_ROWS_ADAM,
       NEO_ROWS_LOOKUP_TABLE, NEO_ROWS_UPDATE_TABLE, NEO_ROWS_LOOKUP_BAG, NEO_ROWS_UPDATE_BAG,
       NEO_ROWS_COUNT };
typedef enum neo_layer_way {
    NEO_LAYER_FORWARD,
    NEO_LAYER_BACKWARD,
    NEO_LAYER_LAST, /* backward, of data whose gradient nobody wants */
    NEO_LAYER_DOTS, /* neo_interact of r rows, as a layer of r x samples, of their columns x r */
    NEO_LAYER_DOTS_BACKWARD,
    NEO_LAYER_ATTENTION, /* causal, as a layer of heads x samples, of a head's columns x length */
    NEO_LAYER_ATTENTION_BACKWARD,
    NEO_LAYER_REST, /* of a transformer's block: 2 norms, 2 neo_add, GELU of 4 times the columns;
                       as a layer of its columns to 1 */
    NEO_LAYER_REST_BACKWARD,
    NEO_LAYER_COUNT
} neo_layer_way;
enum { NEO_CACHE_MOST = 512 << 20 }; /* bytes: the largest cache that neo_calibrate tells */
typedef struct neo_calibration {
    double lookup;   /* bytes: ids, rows read, sums written; 0: 1 */
    double update;   /* of backward and update, over the same bytes; 0: 2 */
    double copy;     /* of packing and adding what travels, and of dense gradients; 0: 1 */
    double bucketed; /* of a lookup in a table with row_buckets, over that in another, of bags of up
                        to 4 ids, more than one; of n ids 4/n of what is above 1, as a bag's sums
                        add once; 0: 1.5 */
    double id;       /* of an id that its sender checks, counts and packs; 0: 64 */
    double sort;     /* of an id in backward, which merges equal ones; 0: 64 */
    double row;      /* of a row that is packed or unpacked by itself; 0: 64 */
    double kept;     /* of a row whose gradient waits for other ranks'; 0: 256 */
    /* Bytes likewise of an id in a lookup, and in backward and update by an optimizer with as much
       state: with 16 and with 128 columns, where the batch had its row before, where that is in a
       cache, and where it is not. Between these along lines; zeros: as by lookup, update, sort.
       Of a table, or a piece of one: what a call takes for it besides. Of a bag, with its ids and
       its sums or their gradients: near, in a cache, and not; zeros: as an id whose row the batch
       had before. */
    double rows[NEO_ROWS_COUNT][2][3];
    double rows_large[2][2]; /* bytes likewise that a row which no cache has takes more where all
                                tables of a rank have 1 GiB, than by rows of 64 MiB: in a lookup,
                                and in an update, with 16 and with 128 columns. Between these along
                                a line; of more bytes as there */
    double step; /* bytes likewise of a dense parameter in its optimizer; 0: not counted */
    double step_near; /* of one that a cache has kept since the last step; 0: as step */
    double cache;     /* bytes that are touched by which a parameter takes as long as half of both,
                         and of tables by which half of the rows are in a cache; 0: 2 MiB. See
                         neo_step_seconds. NEO_CACHE_MOST: no fewer were found to do so */
    double others; /* bytes a second that count as touched besides: others share the cache; 0 */
    double dots_far[2][2]; /* bytes likewise of a row of neo_interact, forward and backward, with
                              16 and with 128 columns, that what was used long before comes from
                              memory: forward what it writes, backward rows and gradients */
    double layer_far[NEO_LAYER_DOTS]; /* bytes likewise of a weight, forward, backward, and last,
                                         that it comes from memory; 0: its own and its gradient's */
    /* Seconds of a layer of an MLP: of a multiply-add; of an element of its input, its weights and
       its output; of a call. Products of rows have no weights, but take so long of a number of
       rows and products beyond 2 MiB, which a core's own cache does not have.
       Columns over which lanes go (forward those of the output, backward of the input) count in
       whole sixteens, above 4, for multiply-adds. Zeros: as by flops. See neo_layer_seconds. */
    double layer[NEO_LAYER_COUNT][5];
} neo_calibration;

/* Calls by which a link is measured: exchanges, and all-reduces, in which a rank sends so many
   bytes to the others of its level in all: NEO_LINK_LEAST, then 16 times as many, and so on. */
enum { NEO_LINK_EXCHANGE, NEO_LINK_REDUCE, NEO_LINK_KINDS, NEO_LINK_SIZES = 4,
       NEO_LINK_LEAST = 4096 };

/* The ranks and their links, for predictions. */
typedef struct neo_cluster {
    int32_t ranks;                  /* required */
    int32_t ranks_per_node;         /* 0: all in one node; ranks [n k, n (k + 1)) are a node */
    int64_t memory_bytes;           /* of a rank, for tables and for training them; 0: no limit */
    double memory_bandwidth;        /* bytes per second, read and written, of a rank; 0: 10e9 */
    double flops;                   /* per second of a rank, in dense layers; 0: 50e9 */
    neo_link link[NEO_LEVEL_COUNT]; /* of a rank, each way; bandwidth 0: 5e9 inside a node, 1e9
                                       between nodes. Threads of one process lend each other their
                                       rows of f32: 1e12 */
    double link_us[NEO_LEVEL_COUNT][NEO_LINK_KINDS][NEO_LINK_SIZES]; /* of such a call, latencies
                                       among them: a timeline's tasks take what lies between along
                                       lines, and beyond by bandwidth. Zeros: by that alone */
    neo_calibration calibration;
    int64_t file_bytes;    /* of the file that each rank has below its memory, where neo_bags_desc
                              has a tier; 0: no limit */
    double file_bandwidth; /* bytes per second, of rows read and written; 0: 1e9 */
    double file_row_us;    /* that a row takes besides, with as many under way as the tier has; 0 */
    double host_bandwidth, host_row_us; /* likewise of a tier without a file: between a device and
                                           its host's memory; 0: 10e9, 0 */
} neo_cluster;

/* A plan follows from these numbers, and the threads of ctx: the same input, the same plan. */
enum { NEO_SYNC_MERGED = -1 };
typedef struct neo_profile neo_profile;
typedef struct neo_plan_desc {
    const neo_bags_desc *bags;      /* required; max_batch and max_ids are those of a batch over
                                       all ranks. Tables without weights of yours. Copied. A tier
                                       stands for that of each rank: alike, of a file each. Copies
                                       of tables and their gradients take of its memory, too */
    const double *ids_per_sample;   /* [features] mean over a batch; NULL: max_ids / (max_batch x
                                       features) */
    neo_cluster cluster;
    neo_wire wire_forward, wire_backward; /* of pooled rows and of their gradients */
    unsigned placements;            /* those allowed, a bit 1u << placement each; 0: all that keep
                                       the bits */
    const unsigned *table_placements; /* [tables] the same for each, 0: as placements; or NULL */
    int pipeline;                   /* 1: the exchanges of a step run beside its computation, with
                                       the buffers of a second batch; up to 64: of as many more,
                                       whose ids neo_shard_prefetch takes, for a tier of as many
                                       (neo_tier_desc.prefetch). Above 1 not with device_ids */
    double dense_flops_bottom;      /* per sample, forward: of dense layers beside the lookup */
    double dense_flops_top;         /* and after it */
    int64_t dense_params;           /* elements of replicated dense parameters */
    double dense_values;            /* numbers per sample that dense layers make, forward: what
                                       a step touches decides which rows a cache keeps */
    int weighted;                   /* 1: batches have a weight per id */
    double skew;                    /* of ids: the exponent of their Zipf law (neo_zipf); 0: they
                                       are spread evenly. Read with cluster.calibration.rows */
    double distinct;                /* share of a rank's bags, with their ids, that differ: of
                                       bags->inverse those alone are sent and looked up; 0: 1 */
    double crowding;                /* most ids that a range of rows gets, over its even share;
                                       0: 1.25. Where there are more, buffers grow */
    int32_t kept_batches;           /* batches, of max_batch samples and ids_per_sample each, whose
                                       gradients the neo_shard may keep between two steps (see
                                       neo_shard_accumulate); 0: none. bags->max_kept_rows is not
                                       read */
    int weight_grad;                /* 1: neo_shard_weight_grad may be called */
    int skip_empty;                 /* 1: pooled rows of bags without an id in a part stay where
                                       they are, both ways; not on a device. No bit depends on
                                       it. Predicted for links: a row an id at most. Threads
                                       then send the rows that they would lend each other */
    int device_ids;                 /* 1: where contexts have a device, batches are in its memory,
                                       and ids go from device to device: the host sees counts
                                       alone. 2: and a batch that is prefetched has been there
                                       since before the last neo_shard_forward_begin: then its ids
                                       go beside the running step. Not with keys, replicas,
                                       data-parallel tables of NEO_POOL_NONE, or weight_grad of
                                       MEAN tables, but on a narrow wire_backward */
    int32_t replicas;               /* groups of cluster.ranks ranks, each with all tables, placed
                                       alike (2D parallel: see >>shard of neo_fsdp.h); 0: 1. Not
                                       with NEO_POOL_NONE, keys, a tier or, but merged,
                                       skip_empty */
    int32_t sync_every;             /* steps after which groups that step by their own samples'
                                       gradients average tables; 0, 1: all gradients reach all.
                                       Above 1: of f32 rows, without kept_batches.
                                       NEO_SYNC_MERGED: all reach all, merged row by row in each
                                       group; on processors */
    const neo_profile *profile;     /* with a tier: how often rows are used; read by create alone.
                                       NULL: as skew says */
} neo_plan_desc;

/* neo_plan_create: search a plan with a short predicted step.
   Errors   NEO_ERR_ARG: a field of desc. NEO_ERR_UNSUPPORTED: a table has none of the placements it
            is allowed (the message names it and says why). NEO_ERR_CAPACITY: it does not fit into
            memory_bytes; the message has the least budget for a rank that is accepted: that and any
            larger one does, each smaller one is refused. (A search finds it; where tables are few,
            none smaller is known to exist.) Of a tier that has no room for a batch: it has bytes of
            the tier's memory that are enough. NEO_ERR_MEMORY.
   Threads  as for everything made from ctx. Cost: 1,000 tables over 1,024 ranks take some 4 s. */
NEO_API NEO__CHECK_UNUSED neo_status neo_plan_create(neo_ctx *ctx, const neo_plan_desc *desc,
                                                     neo_plan **plan);
/* neo_plan_create_uniform: every table by one placement, over as many ranks as it can be cut for,
   spread so that ranks have much the same to do; a table that cannot be placed so is table-wise
   (neo_plan_why says it). A table to which table_placements allow one placement has that one; else
   placements matter only for row cuts of tables without buckets.
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
/* neo_plan_broadcast: rank 0's plan on all ranks of a group, so that one of them searches, or reads
   its file.
       if (neo_comm_rank(comm) == 0) status = neo_plan_create(neo_comm_ctx(comm), &desc, &plan);
       status = neo_plan_broadcast(comm, &desc, status, &plan);
   Collective; the other ranks wait while rank 0 searches, as long as comm's timeout_ms at most.
   desc: alike on all ranks. status: of what the rank has done so far; on rank 0 of making *plan,
   which the others get here; what theirs was before does not count, rank 0's is a plan or NULL.
   Cost     24 bytes and 40 of each piece to each rank but rank 0, counted as broadcast, and three
            calls of neo_comm_agree; each rank predicts for itself.
   Errors   on all ranks one status and message, as neo_comm_agree has them: of a status that is
            none of NEO_OK; NEO_ERR_ARG: desc or plan is NULL; those of neo_plan_create_from, where
            descriptions differ. *plan is NULL then, on all ranks: rank 0's is destroyed. */
NEO_API NEO__CHECK_UNUSED neo_status
neo_plan_broadcast(neo_comm *comm, const neo_plan_desc *desc, neo_status status, neo_plan **plan);
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

/* A rank's memory, and its share of the phases of a step in seconds, without latencies; of replicas
   the most that the ranks at its place in any group take. weight_bytes and state_bytes are exact;
   buffer_bytes are of every plan that neo_shard_create takes (neo_shard_bytes). With a tier they
   are of the lines in memory and what goes with them, the rows in the host's memory below a device
   among that. */
typedef struct neo_plan_rank {
    int64_t weight_bytes, state_bytes, buffer_bytes;
    int64_t file_bytes; /* of its file, once all rows were in it */
    double ids;      /* ids travel to where rows are */
    double lookup;
    double forward;  /* pooled rows travel to where samples are */
    double backward; /* gradients of pooled rows travel back */
    double update;   /* merge and optimizer; row sums between slices; what replicas exchange */
    double seconds;  /* of all these: its load */
} neo_plan_rank;
NEO_API neo_plan_rank neo_plan_rank_of(const neo_plan *plan, int32_t rank);

/* A predicted step in seconds. A phase takes what its last rank ends it after the last has ended
   all before: a rank that is slow in one may be fast in the next, and does not wait in between for
   what it does not need. Dense layers take twice as long backward as forward; their parameters are
   of two units, bottom and top, in proportion to their flops, and reduced in two calls.
     plain      ids + lookup + forward + 3 (bottom + top) + backward + update + reduce
     pipelined  exchanges and reductions run beside computation: a neo_timeline of the two units.
   A search compares drafts by estimates from the slowest ranks; of large models whose ranks are not
   even it makes several plans and keeps that whose step is the shortest. */
typedef struct neo_plan_step {
    double ids, lookup, forward, backward, update; /* with latencies */
    double bottom, top;                            /* forward */
    double reduce;                                 /* of dense gradients, of "dp" tables too */
    double plain, pipelined;
    double balance;                                /* largest load of a rank over the mean */
    int64_t most_bytes;                            /* largest memory of a rank */
    int32_t busiest_rank, fullest_rank;
} neo_plan_step;
NEO_API neo_plan_step neo_plan_step_of(const neo_plan *plan);

/* neo_shard_bytes: exactly what neo_shard_create of neo_fsdp.h asks of the allocator on a rank, the
   groups (see neo_comm_workspace_bytes, and of devices neo_comm_device_bytes) apart. ctx: as that
   of the ranks, for its threads, its repro_shards, and whether it has a device.
   Errors   NEO_ERR_ARG, NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: as neo_shard_create, of the plan. */
typedef struct neo_shard neo_shard;
typedef struct neo_shard_memory {
    size_t file_bytes; /* of a tier's file (neo_bags_memory) */
    size_t weight_bytes, state_bytes; /* of tables */
    size_t exchange_bytes;            /* ids, pooled rows, gradients under way */
    size_t workspace_bytes;           /* of the lookups and updates */
} neo_shard_memory;
NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank,
                                   neo_shard_memory *memory);

/* neo_calibrate: measure this machine as one rank with all threads of ctx (by neo_ctx_time_ns;
   one: by its CPU time): fills in memory_bandwidth, flops and calibration, and leaves the
   rest of *cluster. Takes some 15 seconds and 1.4 GB; where there are but 0.4, rows_large is not
   measured, and no cache above 128 MiB. Links are not. Ranks that share a machine slow each other
   down: let all of them call it at the same time. Ranks measure differently, and plans must not
   differ: broadcast *cluster, or let one rank plan. Where ctx has a device its figures are the
   device's, of calls one by one: a step that is recorded (neo_cuda.cuh) begins short ones sooner.
   Takes 5 GB of its memory.
   Errors: NEO_ERR_MEMORY, NEO_ERR_DEVICE. */
NEO_API neo_status neo_calibrate(neo_ctx *ctx, neo_cluster *cluster);
/* neo_layer_seconds: what a layer of in x out weights takes a rank for so many samples: by
   cluster->calibration.layer, or by flops where that is zeros. bytes: that are touched between two
   uses of its weights and of what it writes: a share of both comes from memory, by
   calibration.cache; about a third of a step's. 0: a cache has all. */
NEO_API double neo_layer_seconds(const neo_cluster *cluster, double samples, int64_t in,
                                 int64_t out, neo_layer_way way, double bytes);
/* neo_step_seconds: what the optimizer of so many dense parameters takes a rank whose step touches
   so many bytes, those of parameters, gradients and states among them, and calibration.others for
   each of its seconds: by calibration.step where these are many, by step_near where a cache keeps
   them. */
NEO_API double neo_step_seconds(const neo_cluster *cluster, double params, double bytes);

/* ---------------------------------------------------------------------------
   >>profile

   How often the rows of tables are used: counted over batches, kept as groups of rows with like
   counts, those that are used most first. By it a plan shares out a tier's memory
   (neo_table_desc.tier_share): a byte goes where it saves most seconds of what is below. Predicted
   hits are those of a cache that holds the rows used most (NEO_EVICT_LFU, of whose 32 lines of a
   set one is for rows that come and go), or those used last (NEO_EVICT_LRU: a row is there if it
   was used in the last n ids, by the n that fills the cache); ids are taken to be drawn by their
   counts. A table in memory as a whole is hit by all. Without a profile and without skew all tables
   have an even share.
   ------------------------------------------------------------------------ */
typedef struct neo_row_use {
    int64_t rows, ids; /* so many rows are used so many times together */
} neo_row_use;
/* neo_profile_create: nothing counted yet, of the tables and features of bags: 4 bytes a row.
   neo_profile_add: the ids of a batch on the host; those outside of their table are not counted.
   neo_profile_uses: groups of a table, of equal counts below 32, above of counts that differ by an
   eighth at most; NULL: it has none. Valid until the next call. *rows, *ids: of the table, or NULL.
   neo_profile_write, neo_profile_read: as text, a line for each table: name, rows, and rows:ids of
   each group. One that was read takes no batches.
       neo-profile 1
       table C1 1460x 3:40112 8:9077 1021:1021
       hot C1 7 1021 0                         its hot rows, if neo_profile_hot has chosen them
   neo_profile_hot: choose, of each table, the n rows that are used most (of equal counts the first;
   none that is not used). neo_profile_rows: those of a table, the most used first; NULL: none.
   Errors   NEO_ERR_ARG; NEO_ERR_MEMORY; NEO_ERR_UNSUPPORTED: a table of keys. Of add: as
            neo_jagged_validate; NEO_ERR_STATE: it was read. Of the files: as those of plans.
   Threads  one at a time. */
NEO_API NEO__CHECK_UNUSED neo_status neo_profile_create(neo_ctx *ctx, const neo_bags_desc *bags,
                                                        neo_profile **profile);
NEO_API neo_status neo_profile_add(neo_profile *profile, const neo_jagged *batch);
NEO_API const neo_row_use *neo_profile_uses(const neo_profile *profile, const char *table,
                                            int64_t *count, int64_t *rows, int64_t *ids);
NEO_API neo_status neo_profile_hot(neo_profile *profile, int64_t n);
NEO_API const int64_t *neo_profile_rows(const neo_profile *profile, const char *table,
                                        int64_t *count);
NEO_API neo_status neo_profile_write(const neo_profile *profile, const char *path);
NEO_API NEO__CHECK_UNUSED neo_status neo_profile_read(neo_ctx *ctx, const char *path,
                                                      neo_profile **profile);
NEO_API void neo_profile_destroy(neo_profile *profile);

/* neo_plan_levels: how many rows of a table, the most used first, are worth a copy on every rank
   (hot rows of neo_fsdp.h), and how many behind them one on each node (warm rows), for the links of
   a plan; by what they take in a step with skip_empty, added over both links, of the W ranks that
   send side by side, L of them in a node, W/L = R nodes. Of a row of c columns that a batch names n
   times, each time in another bag, each rank having as many of the batch and of the rows:
       cold   n (4 + 4 c + its bytes backward): of W parts L - 1 inside a node, W - L across
       warm   as many: of L parts L - 1 inside; 2 (R - 1) (4 c + 1) across
       hot    2 (4 c + 1): L - 1 times inside, W - L times across
   A row is what takes least; of equals the colder. Nodes of unequal ranks: no row is warm.
   most: [NEO_HEAT_COUNT] at most so many rows are hot, and warm; NULL: no limits.
   level: [NEO_HEAT_COUNT] what all rows of each kind take; bytes of sums by rows (the 2 (...) of
   warm and hot ones) and of memory are exact, the others those of ids drawn by their counts.
   Errors   NEO_ERR_ARG: an argument is NULL, or there is no such table. NEO_ERR_UNSUPPORTED: a plan
            of replicas. NEO_ERR_MISMATCH: the profile has none of its name and rows. */
enum { NEO_COLD, NEO_WARM, NEO_HOT, NEO_HEAT_COUNT };
typedef struct neo_row_level {
    int64_t rows, bytes;          /* bytes: of weights and state of all copies */
    double ids;                   /* of a batch */
    double sent[NEO_LEVEL_COUNT]; /* bytes of a step, by all ranks */
    double seconds;               /* that links take for these */
} neo_row_level;
NEO_API neo_status neo_plan_levels(const neo_plan *plan, int32_t table, const neo_profile *profile,
                                   const int64_t *most, neo_row_level *level);

/* neo_plan_tier_of: where the rows of a table lie, over all ranks. Without a tier, or on every
   rank: all in memory. */
typedef struct neo_plan_tier {
    double rows;        /* that memory has room for; of rows in slices the mean */
    double hits;        /* predicted: share of ids whose rows are in memory, once it has filled */
    int64_t file_bytes; /* of the files, once all other rows were in them; */
    int64_t host_bytes; /* of a tier without a file: of host memory, likewise */
} neo_plan_tier;
NEO_API neo_plan_tier neo_plan_tier_of(const neo_plan *plan, int32_t table);

/* ---------------------------------------------------------------------------
   >>timeline

   A step of a plan as tasks on lanes: a rank's computation, its link inside the node, its link to
   other nodes. Tasks are in the order in which a trainer of neo_shard and neo_fsdp starts them, a
   lane runs its own in that order, and each begins when those it waits for have ended. An exchange
   is half of its computation (packing), then both links at the same time, then the other half; sums
   of a node's ranks (twrw, grid) go to other nodes when they are made, and computation waits for
   the node's part. An all-reduce of up to 4 KiB goes up a tree of ranks and down again.
   Steps are played message by message: every rank has its own share, and waits for what it needs
   alone. A task ends when its last rank has ended it, and takes what that is after the last end of
   all that it waits for; one that ends no later is left out. The step is one among others, between
   the ends of two: ranks begin it when they have ended theirs. Where steps differ it is one of
   the mean length.
     plain      one after another: the seconds of neo_plan_step.plain, if the units are the plan's
     pipelined  rows travel beside the units that do not need them, a unit's gradients are reduced
                while earlier units go backward, the ids of the next batch travel from the time that
                rows left. At the end of a step all of it is done
   ------------------------------------------------------------------------ */
typedef enum neo_lane {
    NEO_LANE_COMPUTE,
    NEO_LANE_LOCAL, /* links inside a node, */
    NEO_LANE_CROSS, /* between nodes */
    NEO_LANE_COUNT
} neo_lane;
/* neo_lane_name: "compute", "local", "cross". */
NEO_API const char *neo_lane_name(neo_lane lane);

/* Dense layers whose gradients are reduced by one call, as a unit of neo_fsdp (NEO_FSDP_DDP). */
typedef struct neo_dense_unit {
    const char *name; /* required; copied */
    double flops;     /* per sample, forward */
    int64_t params;   /* elements, f32; 0: nothing is reduced */
    int after;        /* 1: needs pooled rows (interaction, top MLP); 0: runs beside the lookup */
    const int64_t *widths; /* of an MLP, from its input on: seconds are those of neo_layer_seconds,
                              the first unit's input is data. NULL: by flops, backward twice */
    int32_t width_count;
    int64_t dots[2];       /* neo_interact of so many rows (x is one) of so many columns: seconds
                              are as measured (NEO_LAYER_DOTS), or by flops */
} neo_dense_unit;

enum { NEO_TASK_WAITS = 6 };
typedef struct neo_task {
    const char *name;              /* "ids", "lookup", "rows", "gradients", "update"; of a unit
                                      "forward", "backward", "reduce"; "copies": gradients of "dp"
                                      tables are reduced; "replicas": gradients for other groups, or
                                      averages; "step": the optimizer of all units */
    const char *unit;              /* "" */
    neo_lane lane;
    int critical;                  /* 1: of the chain, without a gap, that takes the whole step */
    int32_t after[NEO_TASK_WAITS]; /* tasks that it waits for, of other lanes or its own; -1 */
    double begin, seconds;         /* begin: since the step began */
    double bytes;                  /* that a rank sends, on a link: the most of any */
} neo_task;
typedef struct neo_timeline_sum {
    double seconds;                 /* of the step */
    double steady;                  /* from step to step: the mean of eight */
    double busy[NEO_LANE_COUNT];  /* seconds of its tasks */
    double exposed;                 /* seconds in which a link is waited for: no task computes */
    double bytes[NEO_LANE_COUNT]; /* sent by a rank */
} neo_timeline_sum;
typedef struct neo_timeline neo_timeline;

/* neo_timeline_create: the step of a plan with dense units in the order of forward (units: [count],
   instead of the plan's dense_flops and dense_params; NULL: those, as "bottom" and "top").
   neo_timeline_tasks: in the order of their start on each lane; the timeline's.
   neo_timeline_destroy: NULL is allowed.
   Threads  reads the plan alone; destroy it before the plan's context.
   Errors   NEO_ERR_ARG: a NULL; a unit without a name, or whose number is negative or not finite
            (the message names it). NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_timeline_create(const neo_plan *plan,
                                                         const neo_dense_unit *units, int32_t count,
                                                         int pipelined, neo_timeline **timeline);
NEO_API void neo_timeline_destroy(neo_timeline *timeline);
NEO_API const neo_task *neo_timeline_tasks(const neo_timeline *timeline, int32_t *count);
NEO_API neo_timeline_sum neo_timeline_sum_of(const neo_timeline *timeline);

/* Causes of unequal steps; zeros: none. z: a number of its own by the normal law (a sum of 12
   even ones), for each rank and task of computation, and for each exchange. */
typedef struct neo_jitter {
    double compute;   /* a task takes 1 + compute z times as long, at least a tenth */
    double link;      /* an exchange likewise */
    double straggler; /* share of ranks that in a step compute */
    double slow;      /* so many times as long; 0: 2 */
} neo_jitter;
/* neo_timeline_sample: seconds of `steps` steps, sorted, by chance: every rank computes and sends
   its own share, and goes on when it has what the others sent; a step ends when its last rank has.
   The same seed, the same seconds.
   seconds: [steps].
   Errors   NEO_ERR_ARG: a NULL, no steps, a number that is negative or not finite, or a straggler
            above 1. NEO_ERR_MEMORY. Cost: some 80 ns a task and rank. */
NEO_API neo_status neo_timeline_sample(const neo_timeline *timeline, const neo_jitter *jitter,
                                       uint64_t seed, int64_t steps, double *seconds);

#ifdef __cplusplus
}
#endif
#endif /* NEO_PLAN_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_FSDP_IMPLEMENTATION)) &&    \
    !defined(NEO__PLAN_IMPLEMENTED)
#define NEO__PLAN_IMPLEMENTED
#include "neo.h" /* its shared part, if it was included without an implementation before */

NEO_EXACT_BEGIN
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-plan

   A plan keeps a copy of its description, each table's facts, the pieces (by table, with an index
   by rank) and what they predict. Numbers that decide are doubles, made by + - * / and neo_zipf in
   a fixed order, and ties go to the lower index: every machine makes the same plan.
   ------------------------------------------------------------------------ */
enum { NEO__PLAN_MAX_RANKS = 4096, NEO__PLAN_MAX_KEPT = 1 << 16, NEO__PLAN_CACHE = 2 << 20,
       NEO__PLAN_MOST_AHEAD = 64 };
static const int64_t NEO__PLAN_NO_ROOM = INT64_C(1) << 60;
/* Load of a piece, a table or a rank: seconds of the phases, of spans of them, and bytes. A rank
   goes through a span without a wait for others: a step takes as long as the longest span of a
   rank, not as the slowest ranks of all its phases. */
enum {
    NEO__PLAN_IDS,
    NEO__PLAN_LOOKUP,
    NEO__PLAN_FORWARD,
    NEO__PLAN_BACKWARD,
    NEO__PLAN_UPDATE,
    NEO__PLAN_MEET, /* between groups of replicas: gradients before the update, or averages after */
    NEO__PLAN_PHASES,
    NEO__PLAN_OUT = NEO__PLAN_PHASES, /* until rows are where samples are; without ids, if those
                                         have come beside the step before */
    NEO__PLAN_BACK,    /* from when gradients leave until rows have stepped */
    NEO__PLAN_SECONDS, /* of all phases */
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
    double missing;       /* share of ids whose rows are below memory */
} neo__plan_cut;
/* A piece in its rank's tier: its share of the memory; rows that it has room for, and bytes below
   it, once the sizes are known (0: all rows are in memory). */
typedef struct neo__plan_lines {
    double share, missing;
    int64_t rows, below_bytes;
} neo__plan_lines;
/* Share of a table's ids that hit if so many of its rows are in memory. */
typedef struct neo__plan_point {
    double rows, hits;
} neo__plan_point;

/* Seconds of a lookup, or of backward and update: of an id, a bag and a piece, alone and per
   column. */
typedef struct neo__plan_rate {
    double id, id_col, bag, bag_col;
    double piece, piece_col; /* of a table, besides */
} neo__plan_rate;
typedef struct neo__plan_table {
    const neo_plan *plan;
    const neo_table_desc *desc; /* the plan's copy */
    int64_t rows, dim;
    int64_t blocks;                 /* of columns, that a cut leaves whole */
    int64_t state_fixed, state_col; /* bytes of state per row: fixed + state_col cols */
    int64_t row_fixed, row_col;     /* bytes of a row likewise: its scale, and a number */
    int scaled;                     /* rows of i8, whose one scale is that of all columns */
    int64_t ids_capacity;
    double ids, fresh, cold[2]; /* per sample; see neo__plan_fresh; cold: as neo__plan_cold */
    int32_t features, buckets; /* buckets 0: any row may begin a piece */
    unsigned allowed;          /* placements, bits */
    neo__plan_rate rate[2]; /* of a lookup; of backward and update */
    int none, row_sums,
        loose; /* row_sums: steps need sums along rows; loose: row cuts change bits */
    neo_placement placement;
    int64_t first_piece, piece_count;
    neo__plan_point *curve; /* [points]; with a tier. From none on along lines */
    int32_t points;
    double uses;          /* ids of the table, by the profile, or of a sample */
    double kept, missing; /* of a search: share of rows in memory, of ids that miss */
} neo__plan_table;

/* A piece that memory is poured over: its share of the rows of its table, and what it keeps. */
typedef struct neo__plan_pool {
    const neo__plan_table *table;
    double share, bytes; /* bytes: of a line */
    int64_t cols;
    double rows;
    neo__plan_lines *lines;
} neo__plan_pool;

typedef struct neo__plan_model {
    double batch, ranks;         /* of a group of replicas */
    double distinct;             /* as neo_plan_desc's */
    double groups, merged;       /* replicas; those whose gradients step a row: all, or 1 */
    double to_other;             /* seconds of a byte that comes from the other groups */
    double local, cross;         /* seconds of a byte on a link */
    double to_all;               /* seconds of a byte of an all-to-all's send buffer, on the slower
                                    level: both go at the same time */
    double to_nodes;             /* as to_all, what goes to other nodes only */
    double all_reduce;           /* seconds of a byte of an all-reduce */
    double lookup, update, copy; /* seconds of a byte of memory */
    double id, sort, row, kept;  /* seconds of one */
    double id_bytes;             /* of an id on a link */
    int whole;                   /* one rank with nothing to round: nothing is moved */
    double latency[NEO_LEVEL_COUNT]; /* of an exchange: all its messages are under way at once */
    double latency_of_all[NEO_LEVEL_COUNT]; /* likewise, were all groups one */
    double exchange_latency, reduce_latency; /* of the level with more */
    double reduce;                           /* seconds of the plan's dense units, all-reduced */
} neo__plan_model;

/* Lanes, and what crosses between nodes when sums of a node's ranks are made, or before. */
enum { NEO__PLAN_SUMS = NEO_LANE_COUNT, NEO__PLAN_PARTS };
typedef enum neo__plan_origin {
    NEO__PLAN_SEARCHED, /* 0: so is a plan by default */
    NEO__PLAN_UNIFORM,
    NEO__PLAN_GIVEN
} neo__plan_origin;

struct neo_plan {
    neo_ctx *ctx;
    neo__live live;
    neo_plan_desc desc; /* of copies */
    neo_bags_desc bags;
    neo__plan_model model;
    double large; /* see neo__plan_large */
    neo__plan_origin origin;
    neo_placement uniform;
    neo__plan_table *table;
    int32_t nodes, per_node, last_node; /* last_node: ranks of the last one */
    int32_t per_node_of_all;            /* per_node, were all groups one */
    int64_t block;                      /* columns */
    neo_piece *piece;
    neo__plan_cut *cut; /* of each piece */
    neo__plan_lines *lines; /* likewise, with a tier; */
    neo__plan_pool *pools;  /* and room to share that */
    int64_t tier_bytes;     /* of a rank; 0: there is none */
    int in_file;            /* below it is a file, else the host's memory */
    neo_evict evict;
    int known;              /* how often rows are used */
    int rows_alone;         /* bytes of a load are those of rows in a tier */
    char lacks[600];        /* why a plan has NEO__PLAN_NO_ROOM */
    int64_t piece_count;
    int64_t *rank_first; /* [ranks + 1] into rank_piece */
    int64_t *rank_piece;
    neo__plan_load *load; /* of each rank */
    double part[NEO__PLAN_PHASES][NEO__PLAN_PARTS]; /* seconds of a phase, the most of any rank */
    neo__plan_load *share; /* [NEO__PLAN_PARTS][ranks]: the same of each rank */
    double copy_bytes, copy_rows; /* of gradients of tables on every rank; of them, row marks */
    int cut_rounds;               /* in which slices of rows exchange sums, of a step */
    neo_plan_rank *rank;
    neo_plan_step step;
    neo__arena kept;     /* the description and the facts of its tables */
    neo__arena placed;   /* pieces, and what they predict */
    neo__arena work;     /* of a search or of a reader; freed when it ends */
};

NEO_API void neo_plan_destroy(neo_plan *plan) {
    if (!plan) return;
    neo__live_end(plan->ctx, &plan->live);
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
/* Blocks of columns, each of which has a sum in sums along rows. */
NEO__INLINE int64_t neo__plan_blocks(int64_t cols) {
    return (cols + NEO_PLAN_BLOCK - 1) / NEO_PLAN_BLOCK;
}
static int neo__plan_positive(double x) { return x >= 0.0 && x - x == 0.0; }

/* The numbers of a cluster that may be left 0 for a default. */
typedef struct neo__plan_field {
    const char *name;
    double *value, otherwise;
} neo__plan_field;
enum { NEO__PLAN_FIELDS = 33 };
static void neo__plan_cluster_fields(neo_cluster *cluster, neo__plan_field *to) {
    neo_link *local = &cluster->link[NEO_LEVEL_LOCAL], *cross = &cluster->link[NEO_LEVEL_CROSS];
    neo_calibration *by = &cluster->calibration;
    const neo__plan_field fields[NEO__PLAN_FIELDS] = {
        {"memory_bandwidth", &cluster->memory_bandwidth, 10e9},
        {"flops", &cluster->flops, 50e9},
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
        {"calibration.kept", &by->kept, 256.0},
        {"file_bandwidth", &cluster->file_bandwidth, 1e9},
        {"file_row_us", &cluster->file_row_us, 0.0},
        {"host_bandwidth", &cluster->host_bandwidth, 10e9},
        {"host_row_us", &cluster->host_row_us, 0.0},
        {"calibration.step", &by->step, 0.0},
        {"calibration.step_near", &by->step_near, by->step},
        {"calibration.cache", &by->cache, (double)NEO__PLAN_CACHE},
        {"calibration.others", &by->others, 0.0},
        {"calibration.dots_far[0][0]", &by->dots_far[0][0], 0.0},
        {"calibration.dots_far[0][1]", &by->dots_far[0][1], 0.0},
        {"calibration.dots_far[1][0]", &by->dots_far[1][0], 0.0},
        {"calibration.dots_far[1][1]", &by->dots_far[1][1], 0.0},
        {"calibration.rows_large[0][0]", &by->rows_large[0][0], 0.0},
        {"calibration.rows_large[0][1]", &by->rows_large[0][1], 0.0},
        {"calibration.rows_large[1][0]", &by->rows_large[1][0], 0.0},
        {"calibration.rows_large[1][1]", &by->rows_large[1][1], 0.0},
        {"calibration.layer_far[0]", &by->layer_far[0], 0.0},
        {"calibration.layer_far[1]", &by->layer_far[1], 0.0},
        {"calibration.layer_far[2]", &by->layer_far[2], 0.0}};
    memcpy(to, fields, sizeof fields);
}
static neo_status neo__plan_check_cluster(const neo_cluster *cluster, const char *fn) {
    neo_cluster copy = *cluster;
    neo__plan_field field[NEO__PLAN_FIELDS];
    NEO__CHECK(cluster->ranks >= 1 && cluster->ranks <= NEO__PLAN_MAX_RANKS, NEO_ERR_ARG,
               "%s: cluster.ranks is %d, not in 1 .. %d", fn, cluster->ranks,
               (int)NEO__PLAN_MAX_RANKS);
    NEO__CHECK(cluster->ranks_per_node >= 0, NEO_ERR_ARG, "%s: cluster.ranks_per_node is %d", fn,
               cluster->ranks_per_node);
    NEO__CHECK(cluster->memory_bytes >= 0 && cluster->file_bytes >= 0, NEO_ERR_ARG,
               "%s: cluster.memory_bytes is %" PRId64 ", file_bytes %" PRId64, fn,
               cluster->memory_bytes, cluster->file_bytes);
    neo__plan_cluster_fields(&copy, field);
    for (int i = 0; i < NEO__PLAN_FIELDS; i++)
        NEO__CHECK(neo__plan_positive(*field[i].value), NEO_ERR_ARG,
                   "%s: cluster.%s is %g, not a finite number from 0 up", fn, field[i].name,
                   *field[i].value);
    for (int i = 0; i < NEO__PLAN_FIELDS; i++) /* else seconds are more than a double has */
        NEO__CHECK(field[i].otherwise < 1e9 || *field[i].value == 0.0 || *field[i].value >= 1.0,
                   NEO_ERR_ARG, "%s: cluster.%s is %g a second, not 0 or from 1 up", fn,
                   field[i].name, *field[i].value);
    for (int i = 0; i < NEO_ROWS_COUNT * 6; i++)
        NEO__CHECK(neo__plan_positive(cluster->calibration.rows[i / 6][i / 3 % 2][i % 3]),
                   NEO_ERR_ARG,
                   "%s: a number of cluster.calibration.rows is not finite and from 0 up", fn);
    for (int i = 0; i < 8 * (int)NEO_LEVEL_COUNT; i++) {
        const double *us = &cluster->link_us[i / 8][i / 4 % 2][i % 4];
        NEO__CHECK(neo__plan_positive(*us), NEO_ERR_ARG,
                   "%s: a number of cluster.link_us is not finite and from 0 up", fn);
        NEO__CHECK(i % 4 == 0 || *us <= 0.0 || us[-1] > 0.0, NEO_ERR_ARG,
                   "%s: cluster.link_us has a size behind one that is 0", fn);
    }
    for (int i = 0; i < NEO_LAYER_COUNT * 5; i++)
        NEO__CHECK(neo__plan_positive(cluster->calibration.layer[i / 5][i % 5]), NEO_ERR_ARG,
                   "%s: a number of cluster.calibration.layer is not finite and from 0 up", fn);
    return NEO_OK;
}
static neo_status neo__plan_check_replicas(const neo_plan_desc *desc, const char *fn) {
    const int merged = desc->sync_every == NEO_SYNC_MERGED;
    NEO__CHECK(desc->replicas >= 0 && (desc->sync_every >= 0 || merged) &&
                   desc->replicas <= NEO__PLAN_MAX_RANKS / desc->cluster.ranks,
               NEO_ERR_ARG,
               "%s: replicas is %d, of %d ranks each (all: up to %d), sync_every is %d", fn,
               desc->replicas, desc->cluster.ranks, (int)NEO__PLAN_MAX_RANKS, desc->sync_every);
    if (desc->replicas <= 1) return NEO_OK;
    NEO__CHECK(!desc->bags->tier && (!desc->skip_empty || merged), NEO_ERR_UNSUPPORTED,
               "%s: replicas of tables with %s", fn, desc->bags->tier ? "a tier" : "skip_empty");
    NEO__CHECK(desc->sync_every <= 1 || !desc->kept_batches, NEO_ERR_UNSUPPORTED,
               "%s: kept_batches, and a sync_every of %d: gradients would be a group's alone", fn,
               desc->sync_every);
    for (int32_t t = 0; t < desc->bags->table_count; t++) {
        const neo_table_desc *table = &desc->bags->tables[t];
        NEO__CHECK(!table->keys.on && table->pooling != NEO_POOL_NONE, NEO_ERR_UNSUPPORTED,
                   "%s: table '%s': replicas of a table of %s", fn, table->name,
                   table->keys.on ? "keys" : "NEO_POOL_NONE");
        NEO__CHECK(desc->sync_every <= 1 || table->dtype == NEO_F32, NEO_ERR_UNSUPPORTED,
                   "%s: table '%s': an average of %s rows (sync_every above 1): f32 alone", fn,
                   table->name, neo_dtype_name(table->dtype));
    }
    return NEO_OK;
}
static neo_status neo__plan_check(neo_ctx *ctx, const neo_plan_desc *desc, const char *fn) {
    neo_bags_memory memory;
    NEO__TRY(neo__check_live(ctx, fn, "ctx"));
    NEO__CHECK(desc && desc->bags, NEO_ERR_ARG, "%s: desc or desc->bags is NULL", fn);
    neo_bags_desc bags = *desc->bags;
    bags.tier = NULL; /* that of one rank need not take all */
    NEO__TRY(neo_bags_bytes(ctx, &bags, &memory));
    NEO__CHECK(desc->kept_batches >= 0 && desc->kept_batches <= NEO__PLAN_MAX_KEPT, NEO_ERR_ARG,
               "%s: kept_batches is %d, not in 0 .. %d", fn, desc->kept_batches,
               (int)NEO__PLAN_MAX_KEPT);
    for (int32_t t = 0; t < desc->bags->table_count; t++)
        NEO__CHECK(
            !desc->bags->tables[t].weight, NEO_ERR_ARG,
            "%s: table '%s': a table in pieces cannot lie in memory of yours: give weight NULL", fn,
            desc->bags->tables[t].name);
    for (int32_t f = 0; desc->ids_per_sample && f < neo__plan_features(desc->bags); f++)
        NEO__CHECK(neo__plan_positive(desc->ids_per_sample[f]), NEO_ERR_ARG,
                   "%s: ids_per_sample[%d] is %g, not a finite number from 0 up", fn, f,
                   desc->ids_per_sample[f]);
    NEO__TRY(neo__plan_check_cluster(&desc->cluster, fn));
    NEO__TRY(neo__plan_check_replicas(desc, fn));
    NEO__CHECK((unsigned)desc->wire_forward < NEO_WIRE_COUNT &&
                   (unsigned)desc->wire_backward < NEO_WIRE_COUNT,
               NEO_ERR_ARG, "%s: wire_forward %d or wire_backward %d does not exist", fn,
               (int)desc->wire_forward, (int)desc->wire_backward);
    NEO__CHECK(desc->placements <= NEO__PLAN_ALL_BITS, NEO_ERR_ARG,
               "%s: placements 0x%x has unknown bits", fn, desc->placements);
    for (int32_t t = 0; desc->table_placements && t < desc->bags->table_count; t++)
        NEO__CHECK(desc->table_placements[t] <= NEO__PLAN_ALL_BITS, NEO_ERR_ARG,
                   "%s: table '%s': table_placements 0x%x has unknown bits", fn,
                   desc->bags->tables[t].name, desc->table_placements[t]);
    NEO__CHECK(desc->pipeline >= 0 && desc->pipeline <= NEO__PLAN_MOST_AHEAD, NEO_ERR_ARG,
               "%s: pipeline is %d, not in 0 .. %d", fn, desc->pipeline,
               (int)NEO__PLAN_MOST_AHEAD);
    NEO__CHECK(desc->distinct >= 0.0 && desc->distinct <= 1.0, NEO_ERR_ARG,
               "%s: distinct is %g, not in 0 .. 1", fn, desc->distinct);
    NEO__CHECK(neo__plan_positive(desc->dense_flops_bottom) && desc->dense_params >= 0 &&
                   neo__plan_positive(desc->dense_values) &&
                   neo__plan_positive(desc->dense_flops_top) && neo__plan_positive(desc->skew),
               NEO_ERR_ARG,
               "%s: dense_flops_bottom %g, dense_flops_top %g, dense_params %" PRId64
               ", dense_values %g and skew %g must be from 0 up",
               fn, desc->dense_flops_bottom, desc->dense_flops_top, desc->dense_params,
               desc->dense_values, desc->skew);
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
static neo_status neo__plan_copy(neo_plan *plan, const neo_plan_desc *desc) {
    const neo_bags_desc *from = desc->bags;
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
    plan->desc = *desc;
    plan->bags = *from;
    NEO__TRY(neo__plan_copy_text(plan, &plan->bags.name));
    for (int32_t t = 0; t < tables; t++) {
        table[t] = from->tables[t];
        NEO__TRY(neo__plan_copy_text(plan, &table[t].name));
        allowed[t] = desc->table_placements ? desc->table_placements[t] : 0;
    }
    double even = (double)from->max_ids / ((double)from->max_batch * (double)features);
    for (int32_t f = 0; f < features; f++) {
        feature[f] = from->feature_table ? from->feature_table[f] : f;
        ids[f] = desc->ids_per_sample ? desc->ids_per_sample[f] : even;
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
    const int32_t all = c->ranks * NEO__MAX(d->replicas, 1), per_node = c->ranks_per_node;
    plan->per_node_of_all = per_node == 0 || per_node > all ? all : per_node;
    if (per_node == 0 || per_node > c->ranks) c->ranks_per_node = c->ranks;
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
                 buckets, and more than an id a bag, the less the more ids it has. Where
                 calibration.rows has it, an id takes near + f (cached - near) + c (far - cached),
                 f: share of ids that are the first of their row in the batch, c: whose row no cache
                 has; far grows with tables, by rows_large (in update, of the row: f, as far as a
                 cache does not keep what a step touches, as forward has read it; of its state c, of
                 whole lines of a cache); a piece likewise, besides; a bag cached + e (far -
                 cached), e: as far as a cache does not keep what half a step touches, as forward
                 has had its ids, and backward its sums; before a lookup all of the optimizer's
       forward   rows out w(c) leave for all ranks. A slice of k pieces sends partial sums: 4 c
                 bags; inside a node they add first, so that a piece sends 4 c bags (k-1)/k inside,
                 and w(c) bags/(p k) across
       backward  the same the other way, with w(c) for all, as gradients are no sums
       weights   with weight_grad: rows and gradients are read once more; 4 ids leave, or of a
                 piece that is cut by columns 4 ids (c+15)/16; counted with backward
       update    2 lookup, and the sort of ids; where a step needs sums along rows, gradients of
                 touched rows (at most min(ids, rows)) wait, and a float for 16 columns of each goes
                 to every other slice. With kept_batches gradients of all tables wait
   Links inside a node and between nodes are used at the same time: the slower counts. Ids that a
   rank has for several slices come once. What arrives is as much on all ranks and never more than
   the most that one sends. A rank has B/W of the samples: it checks and packs B/W P s ids for each
   piece (those of slices of columns once), and packs, unpacks and adds up B/W of the rows out of
   all pieces, both ways: a row by itself, and twice its bytes. A table on every rank looks up the
   B/W samples of the rank; its gradient of 4 rows D bytes is all-reduced flat (all ranks to all,
   twice), cleared and read (3 copies); and each rank merges, moves, closes up, keeps and steps
   every row that any rank touched, which takes as long as NEO__PLAN_COPY_ROW rows that wait. On one
   rank nothing is moved, unless wires round. Of R replicas B and W are those of a group; a row that
   steps by all samples takes R times the ids and the update, and R - 1 times 4 C bytes for each
   bag from the other groups; one that is averaged takes the bytes of an all-reduce of it, and so
   do merged gradients, of 4 c + 1 bytes a row, whose rows are kept as those of copies.
   ------------------------------------------------------------------------ */
/* local, cross: seconds of a byte on a link. */
static void neo__plan_model_links(neo_plan *plan, double local, double cross) {
    neo__plan_model *model = &plan->model;
    double w = plan->desc.cluster.ranks, l = plan->per_node;
    model->local = local;
    model->cross = cross;
    model->to_nodes = (w - l) / w * model->cross;
    model->to_all = NEO__MAX((l - 1.0) / w * model->local, model->to_nodes);
    const double all = w * model->groups, of_node = plan->per_node_of_all;
    model->all_reduce =
        2.0 * NEO__MAX((of_node - 1.0) / all * local, (all - of_node) / all * cross);
    const double beside = NEO__MAX(of_node / w, 1.0), others = NEO__MAX(model->groups - 1.0, 1.0);
    model->to_other =
        NEO__MAX((beside - 1.0) / others * local, (model->groups - beside) / others * cross);
}
/* The units of a plan whose caller names none. */
static void neo__plan_units(const neo_plan_desc *desc, neo_dense_unit units[2]) {
    double bottom = desc->dense_flops_bottom, all = bottom + desc->dense_flops_top;
    memset(units, 0, 2 * sizeof *units);
    units[0].name = "bottom";
    units[0].flops = bottom;
    if (all > 0.0) units[0].params = (int64_t)((double)desc->dense_params * (bottom / all));
    units[1].name = "top";
    units[1].flops = desc->dense_flops_top;
    units[1].params = desc->dense_params - units[0].params;
    units[1].after = 1;
}
static void neo__plan_model_make(neo_plan *plan) {
    const neo_cluster *cluster = &plan->desc.cluster;
    neo__plan_model *model = &plan->model;
    neo_dense_unit units[2];
    double w = cluster->ranks, l = plan->per_node;
    model->groups = NEO__MAX(plan->desc.replicas, 1);
    model->merged = plan->desc.sync_every > 1 || plan->desc.sync_every < 0 ? 1.0 : model->groups;
    model->batch = (double)plan->bags.max_batch / model->groups;
    model->distinct =
        plan->bags.inverse && plan->desc.distinct > 0.0 ? plan->desc.distinct : 1.0;
    model->ranks = w;
    neo__plan_model_links(plan, 1.0 / cluster->link[NEO_LEVEL_LOCAL].bandwidth,
                          1.0 / cluster->link[NEO_LEVEL_CROSS].bandwidth);
    model->lookup = cluster->calibration.lookup / cluster->memory_bandwidth;
    model->update = cluster->calibration.update / cluster->memory_bandwidth;
    model->copy = cluster->calibration.copy / cluster->memory_bandwidth;
    model->id = cluster->calibration.id / cluster->memory_bandwidth;
    model->sort = cluster->calibration.sort / cluster->memory_bandwidth;
    model->row = cluster->calibration.row / cluster->memory_bandwidth;
    model->kept = cluster->calibration.kept / cluster->memory_bandwidth;
    model->id_bytes = 4.0;
    for (int32_t t = 0; t < plan->bags.table_count; t++)
        if (plan->bags.tables[t].rows > (int64_t)INT32_MAX + 1 || plan->bags.tables[t].keys.on)
            model->id_bytes = 8.0;
    model->whole = w * model->groups == 1.0 && plan->desc.wire_forward == NEO_WIRE_F32 &&
               plan->desc.wire_backward == NEO_WIRE_F32;
    const double all = w * model->groups, of_node = plan->per_node_of_all;
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) {
        const double latency = cluster->link[level].latency_us * 1e-6;
        if (level == NEO_LEVEL_LOCAL ? l > 1.0 : w > l) model->latency[level] = latency;
        if (level == NEO_LEVEL_LOCAL ? of_node > 1.0 : all > of_node)
            model->latency_of_all[level] = latency;
    }
    model->exchange_latency =
        NEO__MAX(model->latency[NEO_LEVEL_LOCAL], model->latency[NEO_LEVEL_CROSS]);
    model->reduce_latency = 2.0 * NEO__MAX(model->latency_of_all[NEO_LEVEL_LOCAL],
                                           model->latency_of_all[NEO_LEVEL_CROSS]);
    neo__plan_units(&plan->desc, units);
    for (int i = 0; i < 2; i++)
        if (units[i].params > 0)
            model->reduce +=
                4.0 * (double)units[i].params * model->all_reduce + model->reduce_latency;
}

/* Bytes per row of weights and state, as neo_bags takes them: linear in the columns. */
static neo_status neo__plan_row_bytes(neo_plan *plan, const neo_table_desc *table,
                                      neo__plan_table *to) {
    size_t bytes[2], rows[2];
    for (int i = 0; i < 2; i++) {
        neo_table_desc one = *table;
        NEO__ZERO(neo_bags_desc, d);
        neo_bags_memory memory;
        one.rows = table->keys.on ? 2 * NEO__LINE_WAYS : 1;
        one.dim = i + 1;
        one.row_buckets = 0;
        d.tables = &one;
        d.table_count = 1;
        d.max_batch = 1;
        d.max_ids = 1;
        NEO__TRY(neo_bags_bytes(plan->ctx, &d, &memory));
        bytes[i] = memory.state_bytes / (size_t)one.rows;
        rows[i] = memory.weight_bytes / (size_t)one.rows;
    }
    to->row_col = (int64_t)(rows[1] - rows[0]);
    to->row_fixed = (int64_t)rows[0] - to->row_col;
    to->scaled = table->dtype == NEO_I8;
    to->state_col = (int64_t)(bytes[1] - bytes[0]);
    to->state_fixed = (int64_t)bytes[0] - to->state_col;
    return NEO_OK;
}

/* The factor of row_buckets on a lookup's seconds: 1 where a bag is one row, without a weight. It
   is measured of few ids a bag; where there are more, they share the time that adding takes. */
enum { NEO__CALIBRATE_POOLING = 4 };
static double neo__plan_bucketed(const neo__plan_table *t) {
    const int sums = t->plan->desc.weighted || t->ids > t->features;
    const double few = (double)NEO__CALIBRATE_POOLING * t->features,
                 above = t->plan->desc.cluster.calibration.bucketed - 1.0;
    return t->buckets && sums ? 1.0 + above * (few / NEO__MAX(t->ids, few)) : 1.0;
}
static double neo__plan_lookup(const neo__plan_table *t) {
    return t->plan->model.lookup * neo__plan_bucketed(t);
}
/* Share of ids that are the first of their row in a batch: in each of 32 ranges of rows, shorter
   towards the end of the law, r (1 - e^(-n/r)) of the r rows that n ids share. */
static double neo__plan_fresh(double ids, int64_t rows, double skew) {
    double first = 0.0, fresh = 0.0, before = 0.0;
    for (int i = 1; i <= 32; i++) {
        double left = 1.0 - (double)i / 32.0, u = 1.0 - left * left, end = u * (double)rows;
        if (skew > 0.0 && i < 32) end = (double)neo_zipf((float)u, rows, (float)skew);
        double r = end - first, a = r > 0.0 ? ids * (u - before) / r : 0.0;
        fresh += r * (a < 3.4 ? 12.0 * a / (12.0 + 6.0 * a + a * a) : 1.0 - 0.25 / a);
        first = end;
        before = u;
    }
    return ids > 0.0 ? fresh / ids : 0.0;
}
/* Share of ids whose row no cache has: their batch has it for the first time, and those before, so
   many as a cache keeps, had not. */
static double neo__plan_cold(double ids, double kept, int64_t rows, double skew) {
    const double before = kept * ids, all = before + ids;
    return ids > 0.0 ? (all * neo__plan_fresh(all, rows, skew) -
                        before * neo__plan_fresh(before, rows, skew)) / ids
                     : 0.0;
}
/* A line through what is measured at 16 and at 128 columns. */
static void neo__plan_span(double narrow, double wide, double scale, double *at_0,
                           double *per_col) {
    *per_col = NEO__MAX(wide - narrow, 0.0) / 112.0 * scale;
    *at_0 = narrow * scale - 16.0 * *per_col;
}
/* The place of a rank's tables, by their bytes, or what a tier has of them in memory, between those
   that neo_calibrate measures rows of: 0 to 1. */
enum { NEO__CALIBRATE_FLOATS = 16 << 20 }; /* of the smaller tables, and of each of two buffers */
static const double neo__plan_large_bytes = 1073741824.0;
static double neo__plan_large(const neo_plan *plan) {
    const double least = 4.0 * (double)NEO__CALIBRATE_FLOATS;
    double bytes = 0.0;
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        const neo__plan_table *t = &plan->table[i];
        bytes += (double)t->rows * ((double)(t->row_fixed + t->state_fixed) +
                                    (double)(t->row_col + t->state_col) * (double)t->dim);
    }
    bytes /= plan->model.ranks;
    if (plan->tier_bytes) bytes = NEO__MIN(bytes, (double)plan->tier_bytes);
    return NEO__MIN(NEO__MAX(bytes - least, 0.0) / (neo__plan_large_bytes - least), 1.0);
}
/* away: share of what a step touches that no cache keeps. */
static neo__plan_rate neo__plan_rate_of(const neo__plan_table *table, int update, double away) {
    const neo__plan_model *model = &table->plan->model;
    const neo_cluster *cluster = &table->plan->desc.cluster;
    const int state = table->state_col > 4 ? NEO_ROWS_ADAM : table->state_col ? NEO_ROWS_ADAGRAD
                      : table->state_fixed ? NEO_ROWS_ROWWISE : NEO_ROWS_SGD;
    const double *at = cluster->calibration.rows[update ? (int)state : (int)NEO_ROWS_LOOKUP][0],
                 *of_table = cluster->calibration.rows[NEO_ROWS_LOOKUP_TABLE + update][0],
                 *of_bag = cluster->calibration.rows[NEO_ROWS_LOOKUP_BAG + update][0];
    const double buckets = update ? 1.0 : neo__plan_bucketed(table),
                 *more = cluster->calibration.rows_large[update], large = table->plan->large,
                 byte = update ? model->update : neo__plan_lookup(table);
    neo__plan_rate r = {(8.0 + (double)table->row_fixed) * byte + (update ? model->sort : 0.0),
                        (double)table->row_col * byte, 4.0 * byte, 4.0 * byte, 0.0, 0.0};
    double id[2], bag[2], piece[2];
    if (at[0] <= 0.0) return r;
    for (int i = 0; i < 2; i++) {
        const double *x = at + 3 * i, *y = of_table + 3 * i, *z = of_bag + 3 * i,
                     fresh = table->fresh, cold = table->cold[update];
        id[i] = x[0] + fresh * (x[1] - x[0]) + cold * (x[2] + large * more[i] - x[1]);
        piece[i] = y[0] + fresh * (y[1] - y[0]) + cold * (y[2] - y[1]);
        bag[i] = z[0] > 0.0 ? z[1] + away * (z[2] - z[1]) : x[0];
    }
    neo__plan_span(id[0], id[1], buckets / cluster->memory_bandwidth, &r.id, &r.id_col);
    neo__plan_span(bag[0], bag[1], buckets / cluster->memory_bandwidth, &r.bag, &r.bag_col);
    neo__plan_span(piece[0], piece[1], 1.0 / cluster->memory_bandwidth, &r.piece, &r.piece_col);
    return r;
}
/* Bytes of rows, and of pooled rows with their gradients, that a rank's step touches. */
static double neo__plan_touched(const neo_plan *plan) {
    const double samples = plan->model.batch / plan->model.ranks;
    double bytes = 0.0;
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        const neo__plan_table *t = &plan->table[i];
        const double row = (double)(t->row_fixed + t->state_fixed) +
                           (double)(t->row_col + t->state_col) * (double)t->dim;
        bytes += t->fresh * t->ids * samples * row +
                 2.0 * 4.0 * samples * (double)(t->features * t->dim);
    }
    return bytes;
}
static double neo__plan_decay(double x); /* >>impl-plan-tier */
static const double neo__plan_log_2 = 0.6931471805599453;
/* Share of lines that a cache has lost after so many bytes: each takes the place of any. */
static double neo__plan_far(const neo_cluster *cluster, double bytes) {
    const double cache = cluster->calibration.cache > 0.0 ? cluster->calibration.cache
                                                          : (double)NEO__PLAN_CACHE;
    return 1.0 - neo__plan_decay(neo__plan_log_2 * bytes / cache);
}
/* Steps, of so many bytes each, for which a cache keeps a line in the mean. */
static double neo__plan_kept(const neo_cluster *cluster, double touched) {
    return cluster->calibration.cache / (touched * neo__plan_log_2);
}
/* Share of ids in whose update a line is not in a cache: of the row, where a step touches more than
   one keeps, as forward has read it; of its state, where the batches before do not have it. */
static double neo__plan_cold_update(const neo__plan_table *table, double ids, double touched) {
    const int64_t line = 64;
    const neo_plan *plan = table->plan;
    const neo_cluster *cluster = &plan->desc.cluster;
    const int64_t row = table->row_fixed + table->row_col * table->dim,
                  state = table->state_fixed + table->state_col * table->dim;
    const double lines = (double)table->rows * (double)NEO__MIN(state, line) / (double)line,
                 of_row = (double)((row + line - 1) / line),
                 of_state = (double)((state + line - 1) / line),
                 cold = neo__plan_cold(ids, neo__plan_kept(cluster, touched),
                                       (int64_t)NEO__MAX(lines, 1.0), plan->desc.skew);
    return (of_row * table->fresh * neo__plan_far(cluster, touched) +
            of_state * plan->model.distinct * cold) / (of_row + of_state);
}
static void neo__plan_rates(neo_plan *plan) {
    const double distinct = plan->model.distinct, skew = plan->desc.skew,
                 batch = plan->model.batch * plan->model.merged * distinct;
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        neo__plan_table *t = &plan->table[i];
        t->fresh = distinct * neo__plan_fresh(batch * t->ids, t->rows, skew);
    }
    const neo_plan_desc *desc = &plan->desc;
    const double samples = plan->model.batch / plan->model.ranks,
                 params = (double)desc->dense_params, /* 2 flops of each, if none are said */
                 said = desc->dense_flops_bottom + desc->dense_flops_top,
                 flops = 3.0 * samples * (said > 0.0 ? said : 2.0 * params),
                 touched = neo__plan_touched(plan) + 12.0 * params +
                           8.0 * desc->dense_values * samples +
                           desc->cluster.calibration.others * flops / desc->cluster.flops,
                 away = neo__plan_far(&desc->cluster, touched / 2.0 + 6.0 * params);
    plan->large = neo__plan_large(plan);
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        neo__plan_table *t = &plan->table[i];
        t->cold[0] = neo__plan_cold(batch * t->ids, neo__plan_kept(&desc->cluster, touched),
                                    t->rows, skew);
        t->cold[1] = neo__plan_cold_update(t, batch * t->ids, touched);
        t->fresh /= distinct;
        t->rate[0] = neo__plan_rate_of(t, 0, away);
        t->fresh *= distinct; /* backward has all ids */
        t->rate[1] = neo__plan_rate_of(t, 1, neo__plan_far(&desc->cluster, touched / 2.0));
    }
}
static neo_status neo__plan_curves(neo_plan *plan);
static neo_status neo__plan_tables(neo_plan *plan) {
    const neo_bags_desc *bags = &plan->bags;
    double all_ids = 0.0;
    NEO__TRY(NEO__ARENA(&plan->kept, plan->table, bags->table_count));
    if (bags->tier) {
        const neo__tier_budget *budget = neo__tier_budget_of(bags->tier);
        plan->evict = budget->evict;
        plan->tier_bytes = budget->memory_bytes;
        plan->in_file = budget->in_file;
    }
    for (int32_t f = 0; f < bags->feature_count; f++) {
        neo__plan_table *t = &plan->table[bags->feature_table[f]];
        t->features++;
        t->ids += plan->desc.ids_per_sample[f];
        all_ids += plan->desc.ids_per_sample[f];
    }
    for (int32_t i = 0; i < bags->table_count; i++) {
        const neo_table_desc *from = &bags->tables[i];
        neo__plan_table *table = &plan->table[i];
        unsigned mine = plan->desc.table_placements[i], named = mine ? mine : plan->desc.placements;
        int kind = (int)from->optim.kind;
        table->plan = plan;
        table->desc = from;
        table->rows = from->rows;
        table->dim = from->dim;
        table->blocks = (table->dim + plan->block - 1) / plan->block;
        table->none = from->pooling == NEO_POOL_NONE;
        table->loose = !table->none && from->row_buckets <= 1;
        table->buckets =
            table->none || table->loose || from->row_buckets >= table->rows ? 0 : from->row_buckets;
        table->allowed = named      ? named
                     : table->loose ? NEO__PLAN_ALL_BITS & ~(unsigned)NEO__PLAN_ROW_BITS
                                : (unsigned)NEO__PLAN_ALL_BITS;
        if (table->none && !named) table->allowed &= ~(unsigned)NEO__PLAN_COLUMN_BITS;
        table->row_sums = kind == NEO_BAG_ROWWISE_ADAGRAD || kind == NEO_BAG_PARTIAL_ADAM ||
                      kind == NEO_BAG_LAMB || kind == NEO_BAG_PARTIAL_LAMB ||
                      kind == NEO_BAG_LARS_SGD || from->optim.max_norm > 0.0f;
        table->ids_capacity =
            all_ids > 0.0 ? (int64_t)((double)bags->max_ids * (table->ids / all_ids)) + 1 : 1;
        NEO__TRY(neo__plan_row_bytes(plan, from, table));
    }
    neo__plan_rates(plan);
    const neo_status status = plan->tier_bytes ? neo__plan_curves(plan) : NEO_OK;
    plan->known = plan->desc.profile || plan->desc.skew > 0.0;
    plan->desc.profile = NULL; /* read */
    return status;
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

/* ---------------------------------------------------------------------------
   >>impl-shard-map

   What follows from a plan, the same on every rank. A neo_shard works by its map, and has the only
   other use of it: neo_fsdp.h takes from this file what this section and the two that follow
   declare, and neo__plan_hash.

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
    int64_t piece;     /* of the plan */
    double tier_share; /* as neo_table_desc */
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

/* Memory of a known size. */
typedef struct neo__buffer {
    void *data;
    size_t bytes;
} neo__buffer;
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
    int64_t bag_count, first_id, id_count; /* of the caller's arrays when it was prefetched, */
    uint64_t mark;                         /* and of what was in them */
    neo__kept_error error; /* of the check of this rank's batch */
    neo_ticket ticket;
    int64_t all;      /* samples of all groups; global: of this one */
    int64_t *begin;   /* [ranks of all groups + 1]: first sample of each */
    int64_t *start;   /* [ranks + 1]: of the group's, counted from its own first */
    int64_t *sent;    /* [sources]: ids of this rank's batch */
    int aside;        /* beside the running step: see neo__shard_aside */
    /* Counts of ids that are on a device: */
    int64_t *came;    /* [routes][ranks]: came for each from each, */
    int64_t local_ids, given, copied; /* these are in all; of this rank's batch, and of its
                                         data-parallel tables */
    int64_t *given_of;  /* [features]: of this rank's batch */
    neo__buffer places; /* device: of its ids in what leaves, with weight_grad or NEO_POOL_NONE */
    int64_t *offsets; /* of local */
    int32_t *whole;   /* [flows][samples]: see neo__shard_is_late */
    int64_t *bags;    /* [routes + 1], and [routes][samples]: of local with an inverse */
    int32_t *inverse; /* with device_ids on the device */
    neo__buffer ids[2]; /* and weights */
    neo_jagged local; /* for this rank's neo_bags */
} neo__shard_batch;

typedef struct neo__shard_map {
    int ranks;             /* of a group: all that follows is of one */
    int groups, sync;      /* replicas; 1: all gradients reach all, else sync_every, or merged */
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
    int skips;        /* pooled rows of empty bags do not travel */
    int none;         /* NEO_POOL_NONE: rows travel, one for each id */
    int device_ids;   /* of the plan, where there is a device */
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
    neo__shard_batch *batches, *full; /* of a neo_shard: see there */
    size_t bytes;
    neo_ctx *ctx;
} neo__shard_map;

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
static size_t neo__shard_map_layout(neo__shard_map *map, char *block, const neo_bags_desc *desc) {
    neo__carve carve = {block, (sizeof *map + 63) & ~(size_t)63}, *c = &carve;
    int64_t ranks = map->ranks;
    NEO__CARVE(c, map->feature_table, map->feature_count);
    NEO__CARVE(c, map->first_feature, map->table_count + 1);
    NEO__CARVE(c, map->table_features, map->feature_count);
    NEO__CARVE(c, map->feature_col, map->feature_count + 1);
    NEO__CARVE(c, map->ids_per_sample, map->feature_count);
    NEO__CARVE(c, map->tables, map->table_count);
    NEO__CARVE(c, map->parts, map->part_count);
    NEO__CARVE(c, map->flows, map->flow_count);
    NEO__CARVE(c, map->sources, map->flow_count);
    NEO__CARVE(c, map->first_source, map->feature_count + 1);
    NEO__CARVE(c, map->routes, map->route_count);
    NEO__CARVE(c, map->pull, map->route_count);
    NEO__CARVE(c, map->cuts, map->part_count);
    NEO__CARVE(c, map->replicas, map->feature_count);
    NEO__CARVE(c, map->mean_row, map->feature_count);
    NEO__CARVE(c, map->part_begin, ranks + 1);
    NEO__CARVE(c, map->flow_begin, ranks + 1);
    NEO__CARVE(c, map->route_begin, ranks + 1);
    NEO__CARVE(c, map->at_rank, ranks);
    NEO__CARVE(c, map->at_node, map->nodes + 1);
    NEO__CARVE(c, map->mids, map->mid_count);
    NEO__CARVE(c, map->batches, 1 + map->pipeline);
    NEO__CARVE(c, map->full, map->sync == 1 && map->groups > 1 ? 1 + map->pipeline : 0);
    map->desc.name = neo__carve_text(c, "%s", desc->name ? desc->name : "bags");
    for (int32_t t = 0; t < map->table_count; t++) {
        const char *name = neo__carve_text(c, "%s", desc->tables[t].name);
        if (name) map->tables[t].name = name;
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
static int64_t neo__shard_cut_piece(const neo_table_desc *desc, const neo_piece *piece,
                                    int64_t place, int inside, neo__shard_part *to) {
    const int64_t buckets = desc->row_buckets, end_row = piece->first_row + piece->rows;
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
    if (buckets <= 1 || piece->rows >= desc->rows || desc->pooling == NEO_POOL_NONE) { /* no sums */
        if (to) *to = part;
        return 1;
    }
    int64_t first = neo__bucket_of(desc->rows, buckets, piece->first_row);
    int64_t end = neo__bucket_of(desc->rows, buckets, end_row - 1) + 1;
    /* buckets without rows may make a wider subtree */
    while (first > 0 && neo__bucket_begin(desc->rows, buckets, first - 1) == piece->first_row)
        first--;
    while (end < buckets && neo__bucket_begin(desc->rows, buckets, end + 1) == end_row) end++;
    for (int64_t stop; first < end; first = stop) {
        stop = neo__shard_subtree_end(buckets, first, end);
        part.number = first;
        part.first_row = neo__bucket_begin(desc->rows, buckets, first);
        part.rows = neo__bucket_begin(desc->rows, buckets, stop) - part.first_row;
        if (part.rows == 0) continue;
        if (to) to[count] = part;
        count++;
    }
    return count;
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
/* The place of a flow among sorted ones, which have it. */
static int32_t neo__shard_find_flow(const neo__shard_flow *flows, int64_t count, int32_t feature,
                                    int64_t first_row) {
    neo__shard_flow key;
    key.feature = feature;
    key.first_row = first_row;
    return (int32_t)((const neo__shard_flow *)bsearch(&key, flows, (size_t)count, sizeof key,
                                                      neo__shard_flow_order) - flows);
}

/* Every table is looked up by some feature, and its slices are all cut in the same rows. */
static neo_status neo__shard_check_table(const neo__plan_table *table) {
    const neo_piece *p = table->plan->piece + table->first_piece;
    const char *name = table->desc->name;
    int64_t ranges = 1; /* of rows */
    NEO__CHECK(table->features, NEO_ERR_UNSUPPORTED, "neo_shard: table '%s' has no feature", name);
    NEO__CHECK(!table->none || p->cols == table->dim, NEO_ERR_UNSUPPORTED,
               "neo_shard: table '%s' of NEO_POOL_NONE is cut by columns: rows travel whole", name);
    while (ranges < table->piece_count && p[ranges].first_col == p->first_col) ranges++;
    for (int64_t i = 0; i < table->piece_count; i++)
        NEO__CHECK(p[i].first_row == p[i % ranges].first_row && p[i].rows == p[i % ranges].rows,
                   NEO_ERR_UNSUPPORTED,
                   "neo_shard: table '%s': the columns from %" PRId64
                   " are not cut at the same rows as the first",
                   name, p[i].first_col);
    return NEO_OK;
}

/* ---- the map of a plan ---- */

/* As many rows as a neo_bags can keep, of those that would be. */
static int64_t neo__shard_most_kept(double rows) {
    return rows < (double)(INT32_MAX - 1) ? (int64_t)rows : INT32_MAX - 1;
}
/* The caller's description, with tables and names of the map. */
static void neo__shard_map_describe(neo__shard_map *map, const neo_bags_desc *desc) {
    const char *name = map->desc.name;
    map->desc = *desc;
    map->desc.name = name;
    map->desc.tables = map->tables;
    map->desc.max_kept_rows =
        neo__shard_most_kept((double)map->kept_batches * (double)desc->max_ids);
    map->desc.feature_table = map->feature_table;
    map->desc.feature_count = map->feature_count;
    for (int32_t t = 0; t < map->table_count; t++) {
        name = map->tables[t].name;
        map->tables[t] = desc->tables[t];
        map->tables[t].name = name;
        if (map->none) map->tables[t].row_buckets = 0; /* nothing is summed */
    }
}
static void neo__shard_map_features(neo__shard_map *map, const neo_plan *plan) {
    map->feature_col[0] = 0;
    for (int32_t f = 0; f < map->feature_count; f++) {
        int32_t t = map->feature_table[f] = plan->bags.feature_table[f];
        map->feature_col[f + 1] = map->feature_col[f] + map->tables[t].dim;
        map->ids_per_sample[f] = plan->desc.ids_per_sample[f];
        map->first_feature[t + 1]++;
        map->mean_row[f] = map->tables[t].pooling == NEO_POOL_MEAN ? map->mean_count++ : -1;
    }
    for (int32_t t = 0; t < map->table_count; t++)
        map->first_feature[t + 1] += map->first_feature[t];
    for (int32_t f = 0; f < map->feature_count; f++)
        map->table_features[map->first_feature[map->feature_table[f]]++] = f;
    for (int32_t t = map->table_count; t > 0; t--)
        map->first_feature[t] = map->first_feature[t - 1];
    map->first_feature[0] = 0;
}
static void neo__shard_map_parts(neo__shard_map *map, const neo_plan *plan) {
    int64_t count = 0, place = 0;
    map->replica_count = 0;
    for (const neo_piece *p = plan->piece; p < plan->piece + plan->piece_count; p++) {
        const int32_t t = p->table;
        int inside = map->nodes > 1 && plan->cut[p - plan->piece].in_node;
        place = p->first_row > 0 ? place + 1 : 0;
        int64_t first = count;
        if (p->rank != NEO_EVERY_RANK)
            count += neo__shard_cut_piece(&map->tables[t], p, place, inside, map->parts + count);
        for (; first < count; first++) {
            neo__shard_part *part = &map->parts[first];
            part->piece = p - plan->piece;
            if (!plan->tier_bytes) continue;
            part->tier_share =
                plan->lines[part->piece].share * (double)part->rows / (double)p->rows;
            map->tables[t].tier_share = part->tier_share; /* read where one rank has all */
        }
        for (int32_t q = map->first_feature[t];
             p->rank == NEO_EVERY_RANK && q < map->first_feature[t + 1]; q++)
            map->replicas[map->replica_count++] = map->table_features[q];
    }
    if (count > 0) qsort(map->parts, (size_t)count, sizeof *map->parts, neo__shard_part_order);
}
/* One route more, of a part and a feature of its table. */
static void neo__shard_map_route(neo__shard_map *map, int rank, int64_t p, int32_t feature) {
    const neo__shard_part *part = &map->parts[p];
    neo__shard_rank *at = &map->at_rank[rank];
    neo__shard_route *route = &map->routes[map->route_count++];
    neo__shard_flow *flow = &map->flows[map->flow_count++];
    route->feature = feature;
    route->rank = rank;
    route->part = (int32_t)p;
    route->place = map->route_count - 1;
    route->col = at->width;
    route->cols = part->cols;
    route->out_col = map->feature_col[feature] + part->first_col;
    route->number = part->number;
    route->wire[0] =
        part->rows < map->tables[part->table].rows && !map->none ? NEO_WIRE_F32 : map->wire[0];
    route->wire[1] = map->wire[1];
    at->width += part->cols;
    for (int i = 0; i < 2; i++) {
        route->coded[i] = at->coded[i];
        if (!part->inside) at->coded[i] += (int64_t)neo_wire_row_bytes(route->wire[i], part->cols);
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
static void neo__shard_map_rank(neo__shard_map *map, int rank) {
    int64_t first = map->route_count, first_flow = map->flow_count;
    neo__shard_flow *flows = map->flows + first_flow;
    neo__shard_rank *at = &map->at_rank[rank];
    map->flow_begin[rank] = first_flow;
    map->route_begin[rank] = first;
    for (int inside = 0; inside < 2; inside++) {
        at->first_inside = map->route_count;
        at->direct = at->width;
        for (int64_t p = map->part_begin[rank]; p < map->part_begin[rank + 1]; p++) {
            int32_t t = map->parts[p].table;
            for (int32_t q = map->first_feature[t];
                 q < map->first_feature[t + 1] && map->parts[p].inside == inside; q++)
                neo__shard_map_route(map, rank, p, map->table_features[q]);
        }
    }
    int64_t count = neo__shard_unique_flows(flows, map->flow_count - first_flow);
    for (int64_t i = first; i < map->route_count; i++)
        map->routes[i].flow = neo__shard_find_flow(flows, count, map->routes[i].feature,
                                                 map->parts[map->routes[i].part].first_row);
    map->flow_count = first_flow + count;
    for (int64_t i = 0; i < count; i++) {
        flows[i].column = at->columns;
        at->columns += 1 + neo__shard_is_late(map, flows[i].feature);
    }
}
static void neo__shard_map_sources(neo__shard_map *m) {
    neo__shard_copy(m->sources, m->flows, (size_t)m->flow_count * sizeof *m->sources);
    m->source_count = neo__shard_unique_flows(m->sources, m->flow_count);
    for (int64_t u = 0, f = 0; f < m->feature_count; m->first_source[++f] = u)
        while (u < m->source_count && m->sources[u].feature == f) u++;
    for (int64_t i = 0; i < m->flow_count; i++) {
        m->flows[i].source = neo__shard_find_flow(m->sources, m->source_count, m->flows[i].feature,
                                                  m->flows[i].first_row);
        m->sources[m->flows[i].source].copies++;
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
static void neo__shard_map_cuts(neo__shard_map *map) {
    for (int64_t p = 0; p < map->part_count; p++) {
        map->parts[p].place = p;
        if (!neo__shard_is_cut(map, &map->parts[p])) continue;
        int rounds = neo_bag_cut_rounds(&map->tables[map->parts[p].table].optim);
        map->cut_rounds = NEO__MAX(map->cut_rounds, rounds);
        map->cuts[map->cut_count++] = map->parts[p];
    }
    if (map->cut_count > 0)
        qsort(map->cuts, (size_t)map->cut_count, sizeof *map->cuts, neo__shard_cut_order);
    for (int64_t i = 0, end = 0; i < map->cut_count; i = end) {
        while (end < map->cut_count && map->cuts[end].table == map->cuts[i].table &&
               map->cuts[end].first_row == map->cuts[i].first_row)
            end++;
        for (int64_t k = i; k < end; k++) {
            map->parts[map->cuts[k].place].first_slice = i;
            map->parts[map->cuts[k].place].end_slice = end;
        }
    }
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
static void neo__shard_map_mids(neo__shard_map *map) {
    map->mid_count = 0;
    for (int node = 0; node < map->nodes; node++) {
        neo__shard_node *at = &map->at_node[node];
        at->first = map->mid_count;
        for (int64_t i = 0; i < map->route_count; i = neo__shard_pull_end(map, i)) {
            const neo__shard_route *route = &map->pull[i];
            if (!map->parts[route->part].inside || route->rank / map->per_node != node) continue;
            neo__shard_mid *mid = &map->mids[map->mid_count++];
            mid->feature = route->feature;
            mid->col = at->width;
            mid->cols = route->cols;
            mid->out_col = route->out_col;
            mid->first = i;
            mid->end = neo__shard_pull_end(map, i);
            at->width += route->cols;
            for (int w = 0; w < 2; w++) {
                mid->coded[w] = at->coded[w];
                at->coded[w] += (int64_t)neo_wire_row_bytes(map->wire[w], route->cols);
            }
        }
        for (int w = 0; w < 2; w++) at[1].coded_at[w] = at->coded_at[w] + at->coded[w];
    }
    map->at_node[map->nodes].first = map->mid_count;
}
static void neo__shard_count_lists(neo__shard_map *m); /* >>impl-shard-lists */
static void neo__shard_map_fill(neo__shard_map *map, const neo_plan *plan) {
    neo__shard_map_describe(map, &plan->bags);
    neo__shard_map_features(map, plan);
    neo__shard_map_parts(map, plan);
    int64_t part = 0;
    map->route_count = map->flow_count = 0;
    for (int r = 0; r < map->ranks; r++) {
        map->part_begin[r] = part;
        while (part < map->part_count && map->parts[part].rank == r) part++;
        map->part_begin[r + 1] = part;
        neo__shard_map_rank(map, r);
        for (int i = 0; i < 2 && r > 0; i++)
            map->at_rank[r].coded_at[i] =
                map->at_rank[r - 1].coded_at[i] + map->at_rank[r - 1].coded[i];
    }
    map->flow_begin[map->ranks] = map->flow_count;
    map->route_begin[map->ranks] = map->route_count;
    neo__shard_map_sources(map);
    neo__shard_copy(map->pull, map->routes, (size_t)map->route_count * sizeof *map->pull);
    if (map->route_count > 0)
        qsort(map->pull, (size_t)map->route_count, sizeof *map->pull, neo__shard_pull_order);
    neo__shard_map_cuts(map);
    neo__shard_map_mids(map);
    neo__shard_count_lists(map);
}
static void neo__shard_map_destroy(neo__shard_map *m) { neo_free(m->ctx, m, m->bytes); }

/* Count everything, before there is memory for it. */
static void neo__shard_map_measure(neo__shard_map *map, const neo_plan *plan) {
    const neo_plan_desc *desc = &plan->desc;
    const neo_bags_desc *d = &plan->bags;
    map->ranks = desc->cluster.ranks;
    map->groups = NEO__MAX(desc->replicas, 1);
    map->sync = map->groups == 1 ? 1 : desc->sync_every < 0 ? NEO_SYNC_MERGED
                                                               : NEO__MAX(desc->sync_every, 1);
    map->per_node = plan->last_node == plan->per_node ? plan->per_node : map->ranks;
    map->nodes = map->ranks / map->per_node;
    map->table_count = d->table_count;
    map->feature_count = d->feature_count;
    map->wire[0] = desc->wire_forward;
    map->wire[1] = desc->wire_backward;
    map->id_dtype = NEO_I32;
    map->pipeline = desc->pipeline;
    map->weighted = desc->weighted;
    map->kept_batches = desc->kept_batches;
    map->weight_grad = desc->weight_grad;
    map->skips = desc->skip_empty && d->tables[0].pooling != NEO_POOL_NONE;
    map->none = d->tables[0].pooling == NEO_POOL_NONE;
    map->device_ids = neo_ctx_device(map->ctx) ? desc->device_ids : 0;
    map->crowding = desc->crowding > 0.0 ? desc->crowding : 1.25;
    for (int32_t t = 0; t < d->table_count; t++) {
        if (d->tables[t].rows > (int64_t)INT32_MAX + 1 || d->tables[t].keys.on)
            map->id_dtype = NEO_I64;
        if (d->tables[t].pooling == NEO_POOL_MEAN && map->wire[1] == NEO_WIRE_F32)
            map->late = map->weight_grad;
    }
    map->part_count = map->route_count = 0;
    for (const neo_piece *p = plan->piece; p < plan->piece + plan->piece_count; p++) {
        if (p->rank == NEO_EVERY_RANK) continue;
        int64_t parts = neo__shard_cut_piece(&d->tables[p->table], p, 0, 0, NULL);
        map->part_count += parts;
        map->route_count += parts * plan->table[p->table].features;
    }
    map->flow_count = map->route_count;
    map->mid_count = map->nodes > 1 ? map->route_count : 0;
}
/* Ids that stay on devices: not where the host works on them. */
static neo_status neo__shard_check_device_ids(neo_ctx *ctx, const neo_plan *plan) {
    const neo_bags_desc *bags = &plan->bags;
    const char *with = plan->desc.replicas > 1   ? "replicas"
                       : plan->desc.pipeline > 1 ? "a pipeline above 1"
                                                 : NULL;
    for (int32_t t = 0; t < bags->table_count && !with; t++)
        with = bags->tables[t].keys.on ? "tables of keys"
               : plan->desc.weight_grad && bags->tables[t].pooling == NEO_POOL_MEAN &&
                       plan->desc.wire_backward == NEO_WIRE_F32
                   ? "weight_grad, NEO_POOL_MEAN and gradients in f32"
                   : NULL;
    for (const neo_piece *p = plan->piece; p < plan->piece + plan->piece_count && !with; p++)
        if (p->rank == NEO_EVERY_RANK && bags->tables[p->table].pooling == NEO_POOL_NONE)
            with = "data-parallel tables of NEO_POOL_NONE";
    NEO__CHECK(!plan->desc.device_ids || !neo_ctx_device(ctx) || !with, NEO_ERR_UNSUPPORTED,
               "neo_shard: neo_plan_desc.device_ids with %s", with);
    return NEO_OK;
}
static neo_status neo__shard_map_create(neo_ctx *ctx, const neo_plan *plan, neo__shard_map **out) {
    NEO__ZERO(neo__shard_map, sizes);
    *out = NULL;
    NEO__CHECK(!plan->desc.skip_empty || !neo_ctx_device(ctx), NEO_ERR_UNSUPPORTED,
               "neo_shard: neo_plan_desc.skip_empty on a device");
    NEO__TRY(neo__shard_check_device_ids(ctx, plan));
    for (int32_t t = 0; t < plan->bags.table_count; t++)
        NEO__TRY(neo__shard_check_table(&plan->table[t]));
    sizes.ctx = ctx;
    neo__shard_map_measure(&sizes, plan);
    sizes.bytes = neo__shard_map_layout(&sizes, NULL, &plan->bags);
    neo__shard_map *m = (neo__shard_map *)neo__alloc_for(ctx, sizes.bytes, "neo_shard: map");
    if (!m) return NEO_ERR_MEMORY;
    neo__shard_fill((void *)m, 0, sizes.bytes);
    *m = sizes;
    neo__shard_map_layout(m, (char *)m, &plan->bags);
    neo__shard_map_fill(m, plan);
    *out = m;
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-shard-lists

   What a rank does to the rows of its matrices, as lists of blocks (neo__rows_call). They follow
   from the map. Here they are counted, with no memory for them; a neo_shard makes them by the same
   functions and runs them: see >>impl-shard-rows of neo_fsdp.h.
   ------------------------------------------------------------------------ */
/* Lists of work on the rows of a matrix: first those that encode, with what
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
    NEO__SHARD_GIVE,        /* what has come for each id to gradients of weights, on a device */
    NEO__SHARD_LISTS
} neo__shard_list;
typedef struct neo__shard_lister {
    const neo__shard_map *m;
    int rank, of;           /* of: whose rows the next parts are */
    int64_t copies;         /* columns of data-parallel tables */
    neo__rows_block *block; /* NULL: they are counted */
    neo__rows_part *part;
    int64_t blocks, parts;
    int64_t new_blocks, new_parts; /* of the columns that came last: blocks, parts of each */
} neo__shard_lister;

/* Columns of the matrix, each block of which has so many parts; they come next. */
static void neo__shard_list_cols(neo__shard_lister *lister, int64_t col, int64_t cols,
                                 neo_wire round, int32_t lengths, int64_t parts) {
    lister->new_blocks = (cols + NEO_WIRE_BLOCK - 1) / NEO_WIRE_BLOCK;
    lister->new_parts = parts;
    for (int64_t k = 0; k < lister->new_blocks && lister->block; k++) {
        neo__rows_block *b = &lister->block[lister->blocks + k];
        b->col = col + k * NEO_WIRE_BLOCK;
        b->cols = (int32_t)NEO__MIN(cols - k * NEO_WIRE_BLOCK, (int64_t)NEO_WIRE_BLOCK);
        b->round = (int32_t)round;
        b->lengths = lengths;
        b->first = (int32_t)(lister->parts + k * parts);
        b->parts = (int32_t)parts;
    }
    lister->blocks += lister->new_blocks;
    lister->parts += lister->new_blocks * parts;
}
/* Part i of all their blocks. */
static void neo__shard_list_part(neo__shard_lister *lister, int64_t i, int64_t before,
                                 int64_t stride, int64_t at, neo_wire wire, int merges) {
    const int64_t step = (int64_t)neo_wire_row_bytes(wire, NEO_WIRE_BLOCK);
    const int64_t first = lister->parts - lister->new_blocks * lister->new_parts;
    for (int64_t k = 0; k < lister->new_blocks && lister->part; k++) {
        neo__rows_part *p = &lister->part[first + k * lister->new_parts + i];
        p->before = before;
        p->stride = stride;
        p->at = at + k * step;
        p->rank = lister->of;
        p->wire = (int16_t)wire;
        p->merges = (int16_t)merges;
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
    l->of = r->rank;
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
static void neo__shard_list_sum(neo__shard_lister *lister, int64_t first, int64_t end, int inside) {
    const neo__shard_map *map = lister->m;
    int64_t number[NEO__ROWS_STACK];
    int depth = 0;
    for (int64_t i = first; i < end; i++) {
        int before = depth + 1;
        number[depth++] = map->pull[i].number;
        while (depth >= 2 && (i + 1 == end ||
                              neo__tree_level(number[depth - 2], number[depth - 1]) <
                                  neo__tree_level(number[depth - 1], map->pull[i + 1].number))) {
            depth--;
            number[depth - 1] = number[depth];
        }
        if (inside) neo__shard_list_inside(lister, &map->pull[i], i - first, before - depth);
        else neo__shard_list_route(lister, &map->pull[i], 0, i - first, 0, before - depth);
    }
}
/* This rank's direct routes: between local and coded_local. */
static void neo__shard_list_local(neo__shard_lister *l, int way) {
    const neo__shard_map *m = l->m;
    for (int64_t i = m->route_begin[l->rank]; i < m->at_rank[l->rank].first_inside; i++) {
        const neo__shard_route *r = &m->routes[i];
        neo__shard_list_cols(l, r->col, r->cols, NEO_WIRE_F32, -1, 1);
        neo__shard_list_route(l, r, way, 0, 1, 0);
    }
}
/* Gradients that came undivided, in place. Their lengths are neo__shard_batch.whole. */
static void neo__shard_list_divide(neo__shard_lister *l) {
    const neo__shard_map *m = l->m;
    const int64_t floats = (int64_t)sizeof(float);
    for (int64_t i = m->route_begin[l->rank]; i < m->route_begin[l->rank + 1]; i++) {
        const neo__shard_route *r = &m->routes[i];
        if (!neo__shard_is_late(m, r->feature)) continue;
        neo__shard_list_cols(l, r->col, r->cols, NEO_WIRE_F32, r->flow, 1);
        neo__shard_list_part(l, 0, 0, m->at_rank[l->rank].width * floats, r->col * floats,
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
static void neo__shard_list_copies(neo__shard_lister *lister, int way, int divides) {
    const neo__shard_map *m = lister->m;
    const int64_t floats = (int64_t)sizeof(float);
    for (int64_t q = 0, col = 0; q < m->replica_count; q++) {
        int32_t f = m->replicas[q];
        int64_t dim = m->feature_col[f + 1] - m->feature_col[f];
        neo__shard_list_cols(lister, m->feature_col[f], dim, m->wire[way],
                             divides ? m->mean_row[f] : -1, 1);
        neo__shard_list_part(lister, 0, 0, lister->copies * floats, col * floats, NEO_WIRE_F32, 0);
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
static void neo__shard_list_sums(neo__shard_lister *lister, int h, int end, int way, int out) {
    const neo__shard_map *m = lister->m;
    for (; h < end; h++) {
        const neo__shard_node *node = &m->at_node[h];
        for (int64_t q = node->first; q < node[1].first; q++) {
            const neo__shard_mid *mid = &m->mids[q];
            neo__shard_list_cols(lister, out ? mid->out_col : mid->col, mid->cols, NEO_WIRE_F32,
                                 out ? neo__shard_divisor(m, mid->feature, way) : -1, 1);
            neo__shard_list_part(lister, 0, out ? node->coded_at[way] : 0, node->coded[way],
                                 mid->coded[way], m->wire[way], 0);
        }
    }
}
/* A row for each id, or a number, to and from the place that the call says. */
static void neo__shard_list_ids(neo__shard_lister *lister, neo__shard_list list) {
    const neo__shard_map *m = lister->m;
    const int copies = list == NEO__SHARD_COPIES || list == NEO__SHARD_COPIES_BACK,
              way = list == NEO__SHARD_RETURN || list == NEO__SHARD_GET ||
                    list == NEO__SHARD_COPIES_BACK,
              gives = list == NEO__SHARD_GIVE && m->weight_grad;
    const int64_t cols = list == NEO__SHARD_GIVE ? 1 : m->tables[0].dim;
    const neo_wire wire = copies || gives ? NEO_WIRE_F32 : m->wire[way];
    if (!copies && !gives && list != NEO__SHARD_SEND && list != NEO__SHARD_TAKE &&
        list != NEO__SHARD_RETURN && list != NEO__SHARD_GET)
        return;
    neo__shard_list_cols(lister, 0, cols, copies ? m->wire[way] : NEO_WIRE_F32,
                         gives && m->late ? 0 : -1, 1);
    neo__shard_list_part(lister, 0, 0, (int64_t)neo_wire_row_bytes(wire, cols), 0, wire, 0);
}
static void neo__shard_list_one(neo__shard_lister *lister, neo__shard_list list) {
    const neo__shard_map *map = lister->m;
    const int node = lister->rank / map->per_node;
    if (map->none || list == NEO__SHARD_GIVE) { /* the processor has no lists of these */
        if (neo_ctx_device(map->ctx)) neo__shard_list_ids(lister, list);
        return;
    }
    switch (list) {
    case NEO__SHARD_SEND: neo__shard_list_local(lister, 0); return;
    case NEO__SHARD_GET: neo__shard_list_local(lister, 1); return;
    case NEO__SHARD_TAKE: neo__shard_list_take(lister); return;
    case NEO__SHARD_RETURN: neo__shard_list_return(lister); return;
    case NEO__SHARD_DIVIDE: neo__shard_list_divide(lister); return;
    case NEO__SHARD_COPIES: neo__shard_list_copies(lister, 0, 1); return;
    case NEO__SHARD_COPIES_BACK: neo__shard_list_copies(lister, 1, 1); return;
    case NEO__SHARD_COPIES_RAW:
        if (map->late) neo__shard_list_copies(lister, 1, 0);
        return;
    case NEO__SHARD_JOIN: neo__shard_list_mids(lister, node, 1); return;
    case NEO__SHARD_SPREAD: neo__shard_list_mids(lister, node, 0); return;
    case NEO__SHARD_CROSS: neo__shard_list_sums(lister, node, node + 1, 0, 0); return;
    case NEO__SHARD_GET_SUMS: neo__shard_list_sums(lister, node, node + 1, 1, 0); return;
    case NEO__SHARD_TAKE_SUMS: neo__shard_list_sums(lister, 0, map->nodes, 0, 1); return;
    case NEO__SHARD_RETURN_SUMS: neo__shard_list_sums(lister, 0, map->nodes, 1, 1); return;
    default: return;
    }
}
/* Lists of what all ranks have: the planner, which measures every rank, counts them once. */
static int neo__shard_is_common(int list) {
    return list == NEO__SHARD_TAKE || list == NEO__SHARD_RETURN || list == NEO__SHARD_TAKE_SUMS ||
           list == NEO__SHARD_RETURN_SUMS;
}
static void neo__shard_count_lists(neo__shard_map *m) {
    NEO__ZERO(neo__shard_lister, l);
    l.m = m;
    for (int i = 0; i < NEO__SHARD_LISTS; i++)
        if (neo__shard_is_common(i)) neo__shard_list_one(&l, (neo__shard_list)i);
    m->list_blocks = l.blocks;
    m->list_parts = l.parts;
}
/* ---------------------------------------------------------------------------
   >>impl-shard-memory

   A neo_shard, and what it takes of memory. It is made of parts: its groups, two batches, and a
   struct for each thing below. A part has its sizes, which follow from the map and the rank
   (neo__shard_measure), then its arrays, which are carved from one block (neo__shard_layout), or
   buffers that grow when a batch has more ids than planned (neo__shard_growing). So the bytes of
   any rank are known where none runs. What is done with these parts is in neo_fsdp.h: its sections
   are named beside each.
   ------------------------------------------------------------------------ */
/* Ids between ranks: see >>impl-shard-ids. */
typedef struct neo__shard_exchange {
    int64_t flows, routes; /* of this rank */
    int64_t columns;       /* lengths per sample, of all ranks */
    int64_t own_ids, out_ids, in_ids, route_ids, full_ids; /* that the plan expects */
    int64_t batch_ids; /* and of this rank's batch in all */
    int64_t *counts;                     /* [4][all ranks]: of the exchange that is begun */
    char **lent; /* [ranks]: where the rows of this rank's samples are in each rank's memory */
    int32_t *lengths_out, *lengths_in, *source_lengths;
    unsigned char *filled; /* [sources][samples of this rank]: see neo__shard_is_filled */
    int64_t *cursor;  /* [sources]: where the next id goes */
    int64_t *out_at;  /* [groups they go to][flows of all ranks] + 1: where the ids of a flow are
                         in ids_out */
    int64_t *in_at;   /* [all ranks][flows]: and in ids_in */
    neo__buffer out[2], in[2]; /* ids, weights */
    /* Ids that stay on the device are there, with lengths and weights; on the host are: */
    neo__buffer own[2];            /* of the device: ids by source */
    void *joined;                  /* event: a batch has been put together (2); NULL: */
    int has_joined;                /* not yet */
    int64_t *told_out, *told_in; /* status, global_batch, ids of each flow: to, of each rank; with
                                    desc.inverse also bags of each, and ids of each written out */
    int64_t *source_counts;        /* [sources + features], with desc.inverse [sources] more */
    int64_t *table_rows, *source_row; /* [features]; [sources] */
    neo__ids_run *run;             /* [all_runs] */
    int64_t all_runs;
} neo__shard_exchange;

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
    float *all, *local; /* rows of all groups, if their gradients come here; of this one */
    float *inside_out, *inside_in, *mid_out, *copies;
    char *coded_local, *coded_remote, *mid_coded_out, *mid_coded_in;
    int32_t *lengths; /* [mean features][samples of this rank] */
    neo__rows_block *block;
    neo__rows_part *part;
    int32_t *host_lengths; /* lengths, in host memory */
    int32_t *whole; /* of a device: that of neo__shard_batch, where gradients are divided here */
} neo__shard_pooled;

/* Gradients of all rows of a neo_bags: the tables one after another, each [rows][dim], and a mark
   for each row that has one; their sum over ranks; what is kept beside them (row: rows of a table
   that go on their way). See neo__shard_dense_empty. */
typedef struct neo__shard_dense {
    int64_t tables, rows, floats, most_rows, marks;
    int64_t *at; /* [tables][2]: a table's first number, first row */
    float *grads, *sum;
    unsigned char *touched, *parked;
    int64_t *row;
} neo__shard_dense;

/* Data-parallel tables: see >>impl-shard-copies. */
typedef struct neo__shard_copies {
    int64_t features, width, ids, subtrees;
    int64_t *offsets;
    neo__shard_dense dense; /* grads: of each subtree; with sum and touched where pooled rows are */
    neo__buffer ids_of[2]; /* of a batch: ids, weights */
    neo_jagged all;        /* whole: these, of all samples of the running batch */
    int whole;
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
    neo__buffer local, out, in, copies; /* these and the next two are where pooled rows are */
    int64_t grads_out, grads_in, room; /* floats: see >>impl-shard-weights */
    float *row;                        /* [threads][columns], on the CPU */
    neo__buffer grad_out, grad_in;
    int64_t places; /* of a device: see neo__shard_send_places */
    neo__buffer at, host_at;
} neo__shard_per_id;

typedef enum neo__shard_phase {
    NEO__SHARD_IDLE,
    NEO__SHARD_FORWARD, /* begun */
    NEO__SHARD_FORWARDED,
    NEO__SHARD_BACKWARD /* begun */
} neo__shard_phase;

struct neo_shard {
    neo_ctx *ctx;
    neo__live live;
    neo__shard_map *map;
    int rank, slots;       /* rank: in its group */
    int group;             /* of the map's */
    int64_t most, reach;   /* at most: samples of its group; of those whose gradients come here */
    int whole;             /* one rank, f32 wires: bags has all tables, and nothing is moved */
    int64_t share;         /* most samples of this rank */
    neo_comm *ids, *rows;  /* groups of its own: of all, lengths and ids; of the group, all else */
    neo_comm *moves;       /* pooled rows and their gradients: of devices, or `rows` */
    neo_comm *id_moves;    /* of devices: lengths and ids that stay there; or NULL */
    neo_comm *node, *cross; /* ranks of the node; at its place in all nodes; NULL: none add */
    neo_comm *every, *peers; /* all ranks, or `rows`; at this place in all groups, or NULL */
    neo_comm *sums; /* as every, where pooled rows are: of data-parallel tables' gradients */
    neo_bags *bags, *replicas; /* of the parts here; of data-parallel tables; or NULL */
    neo__shard_phase phase;
    neo__shard_batch *batches, *now; /* [slots], a ring; now: that of the running step, */
    int queued;                      /* and so many behind it that were prefetched */
    neo__shard_batch *full; /* of all groups, where their gradients come here */
    neo_tensor dout; /* of the caller, between backward_begin and backward_end */
    int came;        /* then: all gradients of pooled rows are here */
    int lends;       /* ranks reach each other's pooled rows: see >>impl-shard-rows */
    int64_t loan;    /* then: the number of the last forward */
    neo_ticket ticket, move_ticket, cross_ticket;
    neo__shard_exchange exchange;
    neo__shard_pooled pooled;
    neo__shard_copies copies;
    neo__shard_dense merging; /* see >>impl-shard-merge */
    neo__shard_cutting cutting;
    neo__shard_kept kept;
    neo__shard_per_id per_id;
    int made; /* from here on memory that is asked for is counted as growth */
    int64_t steps, grow_count, key_steps; /* key_steps: see neo_bags */
    int64_t synced; /* the step after which replicas were last alike, where they are averaged */
    int64_t ids_given, ids_full; /* see neo_shard_stats */
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
/* Ranks of all groups, and this one among them; groups that get ids, and gradients, of a sample. */
static int neo__shard_all(const neo__shard_map *m) { return m->ranks * m->groups; }
static int neo__shard_place(const neo_shard *s) { return s->group * s->map->ranks + s->rank; }
static int neo__shard_spread(const neo__shard_map *m) { return m->sync == 1 ? m->groups : 1; }
/* Ids of a feature in so many samples that lie in a range of rows: its even share, and some more
   where ids crowd. */
static int64_t neo__shard_expect_rows(const neo__shard_map *m, int32_t feature, int64_t rows,
                                      int64_t samples) {
    double all = (double)m->tables[m->feature_table[feature]].rows,
           part = m->crowding * (double)rows / all;
    if ((double)rows >= all || part > 1.0) part = 1.0;
    return neo__shard_expect(m->ids_per_sample[feature] * part, samples);
}
static void neo__shard_size_exchange(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *exchange = &shard->exchange;
    const int64_t first_flow = map->flow_begin[shard->rank],
                  first_route = map->route_begin[shard->rank];
    exchange->flows = map->flow_begin[shard->rank + 1] - first_flow;
    exchange->routes = map->route_begin[shard->rank + 1] - first_route;
    for (int r = 0; r < map->ranks; r++) exchange->columns += map->at_rank[r].columns;
    for (int32_t f = 0; f < map->feature_count; f++) {
        int64_t ids = neo__shard_expect_own(shard, f), copies = 0;
        for (int64_t u = map->first_source[f]; u < map->first_source[f + 1]; u++)
            copies = NEO__MAX(copies, map->sources[u].copies);
        exchange->own_ids += copies ? ids : 0;
        exchange->batch_ids += ids;
        exchange->out_ids += copies * ids * neo__shard_spread(map);
    }
    if (map->device_ids)
        exchange->all_runs = NEO__MAX(NEO__MAX(map->flow_count, exchange->routes * map->ranks),
                                      (int64_t)map->feature_count);
    for (const neo__shard_flow *f = map->flows + first_flow;
         f < map->flows + first_flow + exchange->flows; f++)
        exchange->in_ids += neo__shard_expect_rows(map, f->feature, f->rows, shard->reach);
    for (const neo__shard_route *r = map->routes + first_route;
         r < map->routes + first_route + exchange->routes; r++) {
        const int64_t rows = map->parts[r->part].rows;
        exchange->route_ids += neo__shard_expect_rows(map, r->feature, rows, shard->most);
        exchange->full_ids += neo__shard_expect_rows(map, r->feature, rows, shard->reach);
    }
}
/* Room for one more table. */
static void neo__shard_dense_add(const neo__shard_map *map, neo__shard_dense *dense, int64_t rows,
                                 int64_t dim) {
    dense->tables++;
    dense->rows += rows;
    dense->floats += rows * dim;
    dense->most_rows = NEO__MAX(dense->most_rows, rows);
    dense->marks = map->kept_batches ? dense->rows : 0;
}
static void neo__shard_size_copies(neo_shard *shard, int leaves) {
    const neo__shard_map *map = shard->map;
    neo__shard_copies *copies = &shard->copies;
    copies->features = map->replica_count;
    copies->subtrees =
        neo__cut_leaves(leaves, neo__shard_all(map), neo__shard_place(shard), 0, NULL);
    for (int64_t i = 0; i < map->replica_count; i++) {
        int32_t f = map->replicas[i], t = map->feature_table[f];
        const neo_table_desc *table = &map->tables[t];
        copies->width += map->none ? 0 : table->dim;
        copies->ids += neo__shard_expect_own(shard, f);
        if (i > 0 && map->feature_table[map->replicas[i - 1]] == t) continue;
        neo__shard_dense_add(map, &copies->dense, table->rows, table->dim);
    }
}
static void neo__shard_size_merging(neo_shard *s) {
    const neo__shard_map *m = s->map;
    for (int64_t p = m->part_begin[s->rank]; p < m->part_begin[s->rank + 1] && m->sync < 0; p++)
        neo__shard_dense_add(m, &s->merging, m->parts[p].rows, m->parts[p].cols);
}
/* Rows of a part that one step can touch, of one batch or of those that are kept. */
static int64_t neo__shard_touches(const neo__shard_map *m, const neo__shard_part *part) {
    int64_t ids = 0, batches = m->kept_batches > 1 ? m->kept_batches : 1;
    for (int32_t q = m->first_feature[part->table]; q < m->first_feature[part->table + 1]; q++)
        ids += neo__shard_expect_rows(m, m->table_features[q], part->rows, m->desc.max_batch);
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
    return 2 * neo__shard_touches(m, part) * neo__plan_blocks(part->cols);
}
static void neo__shard_size_cutting(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    neo__shard_cutting *cutting = &shard->cutting;
    for (int64_t p = map->part_begin[shard->rank]; p < map->part_begin[shard->rank + 1]; p++) {
        const neo__shard_part *part = &map->parts[p];
        if (part->first_slice == part->end_slice) continue;
        int64_t mine = part->first_slice;
        while (map->cuts[mine].rank != shard->rank) mine++;
        cutting->own_rounds =
            NEO__MAX(cutting->own_rounds, neo_bag_cut_rounds(&map->tables[part->table].optim));
        for (int64_t i = part->first_slice; i < part->end_slice; i++) {
            int64_t k = part->first_slice; /* a rank with several slices gets it once */
            while (map->cuts[k].rank != map->cuts[i].rank) k++;
            if (k == i && map->cuts[i].rank != shard->rank)
                cutting->out_floats += neo__shard_cut_floats(map, part);
        }
        for (int64_t i = part->first_slice; i < part->end_slice && map->cuts[mine].place == p; i++)
            if (map->cuts[i].rank !=
                shard->rank) /* what comes is counted by the first slice here */
                cutting->in_floats += neo__shard_cut_floats(map, &map->cuts[i]);
    }
}
/* Floats that a part says of an id whose weight has a gradient. */
static int64_t neo__shard_grad_floats(const neo__shard_part *part) {
    return part->first_col ? neo__plan_blocks(part->cols) : 1;
}
static void neo__shard_size_per_id(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    neo__shard_per_id *per_id = &shard->per_id;
    if (!map->weight_grad && !map->none) return;
    per_id->sources = map->source_count;
    per_id->routes = map->route_count;
    per_id->pairs = map->ranks * shard->exchange.routes;
    if (neo_ctx_device(map->ctx))
        per_id->places =
            shard->exchange.route_ids + (map->late ? 2 : 1) * shard->exchange.batch_ids;
    if (map->none) {
        per_id->dim = map->tables[0].dim;
        per_id->row_bytes = (int64_t)NEO__MAX(neo_wire_row_bytes(map->wire[0], per_id->dim),
                                         neo_wire_row_bytes(map->wire[1], per_id->dim));
    }
    if (!map->weight_grad) return;
    for (int64_t i = 0; i < map->route_count; i++) {
        const neo__shard_part *part = &map->parts[map->routes[i].part];
        int32_t f = map->routes[i].feature;
        int64_t floats = neo__shard_grad_floats(part);
        if (part->first_row == 0) /* all ids of a feature go to the parts of each slice together */
            per_id->grads_in += floats * neo__shard_expect_own(shard, f);
        if (part->rank != shard->rank) continue;
        per_id->grads_out += floats * neo__shard_expect_rows(map, f, part->rows, shard->most);
        if (map->tables[part->table].dtype != NEO_F32 && !neo_ctx_device(map->ctx))
            per_id->room = NEO__MAX(per_id->room, part->cols);
    }
    per_id->room *= neo_ctx_threads(map->ctx);
    per_id->grads_out = NEO__MAX(per_id->grads_out, shard->copies.ids);
}
/* Bytes of a coded row of a rank, in the wider direction. narrow: on wires other than f32 alone. */
static int64_t neo__shard_coded_bytes(const neo__shard_map *m, int rank, int narrow) {
    int64_t most = 0;
    for (int i = 0; i < 2; i++)
        if (m->wire[i] != NEO_WIRE_F32 || !narrow) most = NEO__MAX(most, m->at_rank[rank].coded[i]);
    return most;
}
static void neo__shard_size_nodes(neo_shard *shard, int leaves) {
    const neo__shard_map *map = shard->map;
    neo__shard_pooled *pooled = &shard->pooled;
    const int node = shard->rank / map->per_node;
    if (map->mid_count == 0) return;
    for (int h = 0; h < map->nodes; h++) {
        const int64_t *coded = map->at_node[h].coded;
        pooled->place +=
            neo__shard_share(map->desc.max_batch, leaves, neo__shard_all(map),
                             shard->group * map->ranks + h * map->per_node +
                                 shard->rank % map->per_node);
        pooled->mids_bytes += NEO__MAX(coded[0], coded[1]);
        for (int i = 0; i < 2 && h == node; i++) /* an f32 wire takes mid_out as it lies */
            if (map->wire[i] != NEO_WIRE_F32)
                pooled->mid_bytes = NEO__MAX(pooled->mid_bytes, coded[i]);
    }
    pooled->mid = map->at_node[node].width;
    pooled->inside = neo__shard_inside_cols(map, shard->rank);
    for (int r = node * map->per_node; r < (node + 1) * map->per_node; r++)
        pooled->peers_inside += neo__shard_inside_cols(map, r);
}
static neo__shard_lister neo__shard_lister_of(const neo_shard *s) {
    NEO__ZERO(neo__shard_lister, l);
    l.m = s->map;
    l.rank = s->rank;
    l.copies = s->copies.width;
    return l;
}
static void neo__shard_size_lists(neo_shard *s) {
    neo__shard_lister l = neo__shard_lister_of(s);
    for (int i = 0; i < NEO__SHARD_LISTS; i++)
        if (!neo__shard_is_common(i)) neo__shard_list_one(&l, (neo__shard_list)i);
    s->pooled.blocks = l.blocks + s->map->list_blocks;
    s->pooled.parts = l.parts + s->map->list_parts;
}
static void neo__shard_size_pooled(neo_shard *s, int leaves) {
    const neo__shard_map *m = s->map;
    neo__shard_pooled *p = &s->pooled;
    p->on_device = neo_ctx_device(m->ctx) != NULL;
    neo__shard_size_lists(s);
    if (m->none) return; /* a row for each id, instead of matrices */
    p->width = m->at_rank[s->rank].width;
    p->coded_bytes = neo__shard_coded_bytes(m, s->rank, m->at_rank[s->rank].direct == p->width);
    for (int r = 0; r < m->ranks; r++) p->remote_bytes += neo__shard_coded_bytes(m, r, 0);
    neo__shard_size_nodes(s, leaves);
}
static void neo__shard_take_map(neo_shard *shard, neo__shard_map *map) {
    shard->map = map;
    shard->slots = 1 + map->pipeline;
    shard->now = shard->batches = map->batches;
    shard->full = map->full;
}
/* The sizes of all parts; ctx, map and rank are there. */
static void neo__shard_measure(neo_shard *shard, int leaves) {
    const neo__shard_map *m = shard->map;
    shard->share =
        neo__shard_share(m->desc.max_batch, leaves, neo__shard_all(m), neo__shard_place(shard));
    shard->most = neo__shard_share(m->desc.max_batch, leaves, m->groups, shard->group);
    shard->reach = m->sync == 1 ? m->desc.max_batch : shard->most;
    neo__shard_size_exchange(shard);
    neo__shard_size_copies(shard, leaves);
    neo__shard_size_cutting(shard);
    neo__shard_size_merging(shard);
    neo__shard_size_kept(shard);
    neo__shard_size_per_id(shard);
    neo__shard_size_pooled(shard, leaves);
}

/* ---- arrays, and buffers that grow ---- */
/* Lengths and offsets: in host memory, or, where ids stay on the device, there. */
static void neo__shard_layout_lengths(neo_shard *shard, neo__carve *carve) {
    const neo__shard_map *map = shard->map;
    const int64_t status = map->device_ids ? 0 : neo__shard_all(map); /* goes with lengths */
    neo__shard_exchange *x = &shard->exchange;
    NEO__CARVE(carve, x->lengths_out, status + x->columns * neo__shard_spread(map) * shard->share);
    NEO__CARVE(carve, x->lengths_in,
               status + map->at_rank[shard->rank].columns * shard->reach);
    NEO__CARVE(carve, x->source_lengths, map->source_count * shard->share);
    NEO__CARVE(carve, shard->copies.offsets, shard->copies.features * shard->share + 1);
    for (int i = 0; i < shard->slots && map->device_ids; i++) {
        NEO__CARVE(carve, shard->batches[i].offsets, x->routes * shard->most + 1);
        if (map->desc.inverse)
            NEO__CARVE(carve, shard->batches[i].inverse, x->routes * shard->most);
    }
}
/* Numbers that a rank of so many flows is told: see told_in. */
static int64_t neo__shard_tells(const neo__shard_map *map, int64_t flows) {
    return 2 + (map->desc.inverse ? 3 : 1) * flows;
}
static void neo__shard_layout_dense(neo__carve *carve, neo__shard_dense *dense, int64_t subtrees) {
    NEO__CARVE(carve, dense->grads, subtrees * dense->floats);
    NEO__CARVE(carve, dense->sum, dense->floats);
    NEO__CARVE(carve, dense->touched, dense->rows);
}
/* Room to move them through the host. */
static void neo__shard_layout_moved(neo__carve *carve, neo__shard_dense *dense) {
    NEO__CARVE(carve, dense->at, 2 * dense->tables);
    NEO__CARVE(carve, dense->row, dense->most_rows);
    NEO__CARVE(carve, dense->parked, dense->marks);
}
static void neo__shard_layout_pooled(neo_shard *shard, neo__carve *carve) {
    neo__shard_pooled *pooled = &shard->pooled;
    const int64_t batch = shard->most;
    NEO__CARVE(carve, pooled->all, shard->reach * pooled->width);
    NEO__CARVE(carve, pooled->coded_local, batch * pooled->coded_bytes);
    NEO__CARVE(carve, pooled->coded_remote, shard->share * pooled->remote_bytes);
    NEO__CARVE(carve, pooled->inside_out, batch * pooled->inside);
    NEO__CARVE(carve, pooled->inside_in, pooled->place * pooled->peers_inside);
    NEO__CARVE(carve, pooled->mid_out, pooled->place * pooled->mid);
    NEO__CARVE(carve, pooled->mid_coded_out, pooled->place * pooled->mid_bytes);
    NEO__CARVE(carve, pooled->mid_coded_in, shard->share * pooled->mids_bytes);
    NEO__CARVE(carve, pooled->copies, shard->share * shard->copies.width);
    neo__shard_layout_dense(carve, &shard->copies.dense, shard->copies.subtrees);
    NEO__CARVE(carve, pooled->lengths, shard->map->mean_count * shard->share);
    NEO__CARVE(carve, pooled->whole,
               pooled->on_device && shard->map->late ? shard->exchange.flows * batch : 0);
    NEO__CARVE(carve, pooled->block, pooled->blocks);
    NEO__CARVE(carve, pooled->part, pooled->parts);
    if (shard->map->device_ids) neo__shard_layout_lengths(shard, carve);
}
static void neo__shard_layout_ids(const neo_shard *s, neo__carve *carve, neo__shard_batch *b,
                                  int64_t samples) {
    if (!s->map->device_ids) NEO__CARVE(carve, b->offsets, s->exchange.routes * samples + 1);
    else NEO__CARVE(carve, b->came, s->exchange.routes * s->map->ranks);
    if (s->map->device_ids) NEO__CARVE(carve, b->given_of, s->map->feature_count);
    if (!s->map->desc.inverse) return;
    NEO__CARVE(carve, b->bags, s->exchange.routes + 1);
    if (!s->map->device_ids) NEO__CARVE(carve, b->inverse, s->exchange.routes * samples);
}
static void neo__shard_layout(neo_shard *shard, neo__carve *carve) {
    const neo__shard_map *map = shard->map;
    const int64_t ranks = neo__shard_all(map), spread = neo__shard_spread(map);
    neo__shard_exchange *exchange = &shard->exchange;
    neo__shard_copies *copies = &shard->copies;
    neo__shard_per_id *per_id = &shard->per_id;
    NEO__CARVE(carve, exchange->counts, 4 * ranks);
    NEO__CARVE(carve, exchange->lent, map->ranks);
    if (map->device_ids) {
        const int64_t parts = (map->desc.inverse ? 2 : 1) * map->source_count;
        NEO__CARVE(carve, exchange->told_out,
                   neo__shard_tells(map, map->flow_count) + 2 * (ranks - 1));
        NEO__CARVE(carve, exchange->told_in, neo__shard_tells(map, exchange->flows) * ranks);
        NEO__CARVE(carve, exchange->source_counts, parts + map->feature_count);
        NEO__CARVE(carve, exchange->table_rows, map->feature_count);
        NEO__CARVE(carve, exchange->source_row, map->source_count);
        NEO__CARVE(carve, exchange->run, exchange->all_runs);
    } else {
        neo__shard_layout_lengths(shard, carve);
    }
    NEO__CARVE(carve, exchange->filled, map->skips ? map->source_count * shard->share : 0);
    NEO__CARVE(carve, exchange->cursor, map->source_count);
    NEO__CARVE(carve, exchange->out_at, map->flow_count * spread + 1);
    NEO__CARVE(carve, exchange->in_at, ranks * exchange->flows + 1);
    for (int i = 0; i < shard->slots; i++) {
        neo__shard_batch *b = &shard->batches[i];
        NEO__CARVE(carve, b->begin, ranks + 1);
        NEO__CARVE(carve, b->start, map->ranks + 1);
        NEO__CARVE(carve, b->sent, map->source_count);
        NEO__CARVE(carve, b->whole, map->late ? exchange->flows * shard->most : 0);
        neo__shard_layout_ids(shard, carve, b, shard->most);
        if (spread > 1) neo__shard_layout_ids(shard, carve, &shard->full[i], shard->reach);
    }
    neo__shard_layout_dense(carve, &shard->merging, 1);
    neo__shard_layout_moved(carve, &shard->merging);
    NEO__CARVE(carve, shard->kept.ids, shard->kept.parts);
    NEO__CARVE(carve, per_id->next, per_id->sources);
    NEO__CARVE(carve, per_id->in_at, per_id->routes);
    NEO__CARVE(carve, per_id->out_at, per_id->pairs);
    NEO__CARVE(carve, per_id->row, per_id->room);
    if (shard->pooled.on_device) {
        NEO__CARVE(carve, shard->pooled.host_lengths, map->mean_count * shard->share);
        return;
    }
    neo__shard_layout_moved(carve, &copies->dense);
    neo__shard_layout_pooled(shard, carve);
    shard->pooled.host_lengths = shard->pooled.lengths;
}
/* Every buffer that grows, and what the plan expects of it, in elements. */
enum {
    NEO__SHARD_FIXED_BUFFERS = 18,
    NEO__SHARD_ID_BUFFERS = 8, /* the first of these */
    NEO__SHARD_BUFFERS = NEO__SHARD_FIXED_BUFFERS + 5 * (1 + (int)NEO__PLAN_MOST_AHEAD)
};
typedef struct neo__shard_demand {
    neo__buffer *buffer;
    int64_t count;
    size_t size;
    int there; /* in the device's memory */
} neo__shard_demand;
/* Returns how many there are. */
static int neo__shard_growing(neo_shard *shard, neo__shard_demand out[NEO__SHARD_BUFFERS]) {
    const size_t id = neo_dtype_size(shard->map->id_dtype),
                 weight = shard->map->weighted ? sizeof(float) : 0;
    neo__shard_exchange *exchange = &shard->exchange;
    neo__shard_per_id *per_id = &shard->per_id;
    const int there = shard->map->device_ids;
    const int64_t own_ids = shard->map->device_ids ? exchange->batch_ids : 0;
    const neo__shard_demand all[] = {
        {&exchange->own[0], own_ids, id, 0},
        {&exchange->own[1], own_ids, weight, 0},
        {&exchange->out[0], exchange->out_ids, id, 0},
        {&exchange->out[1], exchange->out_ids, weight, 0},
        {&exchange->in[0], exchange->in_ids, id, 0},
        {&exchange->in[1], exchange->in_ids, weight, 0},
        {&shard->copies.ids_of[0], shard->copies.ids, sizeof(int64_t), 0},
        {&shard->copies.ids_of[1], shard->copies.ids, weight, 0},
        {&shard->cutting.out, shard->cutting.out_floats, sizeof(float), 0},
        {&shard->cutting.in, shard->cutting.in_floats, sizeof(float), 0},
        {&per_id->local, per_id->dim * exchange->route_ids, sizeof(float), 0},
        {&per_id->out, per_id->row_bytes * exchange->route_ids, 1, 0},
        {&per_id->in, per_id->row_bytes * exchange->own_ids, 1, 0},
        {&per_id->copies, per_id->dim * shard->copies.ids, sizeof(float), 0},
        {&per_id->grad_out, per_id->grads_out, sizeof(float), 0},
        {&per_id->grad_in, per_id->grads_in, sizeof(float), 0},
        {&per_id->at, per_id->places, sizeof(int32_t), 0},
        {&per_id->host_at, there ? 0 : per_id->places, sizeof(int32_t), 0},
    };
    int count = NEO__SHARD_FIXED_BUFFERS;
    NEO__STATIC_ASSERT(sizeof all / sizeof *all == NEO__SHARD_FIXED_BUFFERS, "each buffer once");
    memcpy(out, all, sizeof all);
    for (int i = 0; i < NEO__SHARD_ID_BUFFERS; i++) out[i].there = there;
    for (int i = NEO__SHARD_ID_BUFFERS; i < NEO__SHARD_FIXED_BUFFERS - 1; i++)
        out[i].there = shard->pooled.on_device;
    for (int i = 0; i < 2 * shard->slots; i++) {
        neo__shard_batch *b = i % 2 ? shard->full : shard->batches;
        const int64_t ids = i % 2 ? exchange->full_ids : exchange->route_ids;
        if (i % 2 && neo__shard_spread(shard->map) == 1) continue;
        for (int k = 0; k < 2; k++) {
            const neo__shard_demand one = {&b[i / 2].ids[k], ids, k ? weight : id, there};
            out[count++] = one;
        }
    }
    for (int i = 0; i < shard->slots && there; i++) {
        const neo__shard_demand one = {&shard->batches[i].places,
                                       per_id->places ? own_ids : 0, sizeof(int32_t), there};
        out[count++] = one;
    }
    return count;
}
/* Stands for the exchange of sums over whole rows, where memory is measured. */
static neo_status neo__shard_no_sums(void *user, const neo_cut_sums *cuts, int32_t count) {
    (void)user, (void)cuts, (void)count;
    return neo_fail(NEO_ERR_STATE, "neo_shard: no group to sum over");
}
/* This rank's parts as tables of a neo_bags, and their routes as its features. */
static neo_status neo__shard_local_desc(const neo_shard *shard, neo__arena *arena,
                                        neo_bags_desc *desc) {
    const neo__shard_map *map = shard->map;
    const neo__shard_part *parts = map->parts + map->part_begin[shard->rank];
    const neo__shard_route *routes = map->routes + map->route_begin[shard->rank];
    neo_table_desc *tables;
    int32_t *feature_table;
    const int32_t count =
        (int32_t)(map->part_begin[shard->rank + 1] - map->part_begin[shard->rank]);
    NEO__TRY(NEO__ARENA(arena, tables, count));
    NEO__TRY(NEO__ARENA(arena, feature_table, shard->exchange.routes));
    *desc = map->desc;
    for (int32_t i = 0; i < count; i++) {
        neo_table_desc *t = &tables[i];
        *t = map->tables[parts[i].table];
        if (!map->none) t->pooling = NEO_POOL_SUM; /* MEAN is divided by where samples are */
        t->part.rows = t->rows;
        t->part.dim = t->dim;
        t->part.first_row = parts[i].first_row;
        t->part.first_col = parts[i].first_col;
        t->rows = parts[i].rows;
        t->dim = parts[i].cols;
        t->tier_share = parts[i].tier_share;
    }
    for (int64_t i = 0; i < shard->exchange.routes; i++)
        feature_table[i] = (int32_t)(routes[i].part - map->part_begin[shard->rank]);
    desc->tables = tables;
    desc->table_count = count;
    desc->feature_table = feature_table;
    desc->feature_count = (int32_t)shard->exchange.routes;
    desc->max_batch = NEO__MAX(shard->reach, (int64_t)1);
    desc->max_ids = NEO__MAX(shard->exchange.full_ids, (int64_t)1);
    desc->max_kept_rows = map->sync < 0 ? NEO__MAX(shard->merging.rows, (int64_t)1)
                                        : shard->kept.rows;
    desc->bounds = NEO_BOUNDS_ERROR; /* the senders have dropped or clamped */
    desc->cut_sums = neo__shard_no_sums;
    return NEO_OK;
}
/* The data-parallel tables likewise, for this rank's samples. */
static neo_status neo__shard_copies_desc(const neo_shard *shard, neo__arena *arena,
                                         neo_bags_desc *desc) {
    const neo__shard_map *m = shard->map;
    neo_table_desc *tables;
    int32_t *feature_table, count = 0;
    NEO__TRY(NEO__ARENA(arena, tables, shard->copies.features));
    NEO__TRY(NEO__ARENA(arena, feature_table, shard->copies.features));
    *desc = m->desc;
    for (int64_t i = 0; i < shard->copies.features; i++) {
        int32_t t = m->feature_table[m->replicas[i]];
        if (i == 0 || m->feature_table[m->replicas[i - 1]] != t) tables[count++] = m->tables[t];
        if (!m->none) tables[count - 1].pooling = NEO_POOL_SUM;
        feature_table[i] = count - 1;
    }
    desc->tables = tables;
    desc->table_count = count;
    desc->feature_table = feature_table;
    desc->feature_count = (int32_t)shard->copies.features;
    desc->max_batch = NEO__MAX(shard->share, (int64_t)1);
    desc->max_ids = NEO__MAX(shard->copies.ids, (int64_t)1);
    desc->inverse = 0; /* written out on their way */
    desc->max_kept_rows = shard->copies.dense.rows;
    desc->tier = NULL; /* copies are in memory */
    return NEO_OK;
}
/* Both, in memory of the arena; table_count 0: this rank has none. Copies and their gradients take
   of the memory of a tier. */
static neo_status neo__shard_descs(const neo_shard *shard, neo__arena *arena,
                                  neo_bags_desc d[2]) {
    neo__shard_dense dense = shard->copies.dense;
    NEO__ZERO(neo_bags_memory, copies);
    NEO__ZERO(neo__carve, grads);
    NEO__TRY(neo__shard_local_desc(shard, arena, &d[0]));
    NEO__TRY(neo__shard_copies_desc(shard, arena, &d[1]));
    if (!d[0].tier || !d[1].table_count) return NEO_OK;
    NEO__TRY(neo_bags_bytes(shard->ctx, &d[1], &copies));
    neo__shard_layout_dense(&grads, &dense, shard->copies.subtrees);
    d[0].tier_taken += (int64_t)(copies.weight_bytes + copies.state_bytes +
                                 copies.workspace_bytes + grads.at);
    if (d[0].table_count) return NEO_OK; /* neo_bags_bytes says whether they have room, too */
    neo__tier_budget *budget = neo__tier_budget_of(d[0].tier);
    budget->needs_bytes = d[0].tier_taken > budget->memory_bytes ? d[0].tier_taken : 0;
    NEO__CHECK(!budget->needs_bytes, NEO_ERR_ARG,
               "neo_shard: tier: memory_bytes is %" PRId64
               ", a batch of these tables needs %" PRId64, budget->given_bytes, d[0].tier_taken);
    return NEO_OK;
}
/* One rank with nothing to round: the tables as they are. */
static int neo__shard_is_whole(const neo__shard_map *m) {
    return neo__shard_all(m) == 1 && m->wire[0] == NEO_WIRE_F32 && m->wire[1] == NEO_WIRE_F32;
}
/* Copies of tables on every rank: of the last rank, whose batch most others share. */
typedef struct neo__shard_copied {
    int64_t batch, ids;
    neo_bags_memory bags;
} neo__shard_copied;
static neo_status neo__shard_add_bytes(neo_ctx *ctx, const neo_bags_desc *d,
                                       neo__shard_copied *last, neo_shard_memory *memory) {
    if (last->batch != d->max_batch || last->ids != d->max_ids)
        NEO__TRY(neo_bags_bytes(ctx, d, &last->bags));
    last->batch = d->max_batch, last->ids = d->max_ids;
    memory->weight_bytes += last->bags.weight_bytes;
    memory->state_bytes += last->bags.state_bytes;
    memory->workspace_bytes += last->bags.workspace_bytes;
    memory->file_bytes += last->bags.file_bytes;
    return NEO_OK;
}
/* Rows of each piece of a rank that its tier has room for, and bytes below it. desc: of parts, or
   of whole tables. */
static void neo__shard_lines(const neo__shard_map *map, int rank, const neo_bags_desc *desc,
                             neo__plan_lines *lines) {
    for (int64_t i = map->part_begin[rank]; i < map->part_begin[rank + 1]; i++) {
        const neo__shard_part *part = &map->parts[i];
        const int whole = desc == &map->desc;
        const int32_t table = whole ? part->table : (int32_t)(i - map->part_begin[rank]);
        int64_t below;
        const int64_t rows = neo__tier_cached(desc, table, &below), of = desc->tables[table].rows;
        lines[part->piece].rows += whole ? rows * part->rows / of : rows;
        lines[part->piece].below_bytes += whole ? below * part->rows / of : below;
    }
}
/* lines: of the plan's pieces, to be added to; or NULL. */
static neo_status neo__shard_map_bytes(neo_ctx *ctx, neo__shard_map *map, int rank,
                                       neo__shard_copied *copied, neo_shard_memory *memory,
                                       neo__plan_lines *lines) {
    neo_bags_desc desc[2];
    NEO__ZERO(neo__shard_copied, own);
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_shard"};
    NEO__ZERO(neo__carve, work);
    NEO__ZERO(neo_shard, shard);
    neo__shard_fill(memory, 0, sizeof *memory);
    memory->exchange_bytes = sizeof shard + map->bytes;
    if (neo__shard_is_whole(map)) {
        NEO__TRY(neo__shard_add_bytes(ctx, &map->desc, &own, memory));
        if (lines) neo__shard_lines(map, rank, &map->desc, lines);
        return NEO_OK;
    }
    shard.ctx = ctx;
    neo__shard_take_map(&shard, map);
    shard.rank = rank % map->ranks;
    shard.group = rank / map->ranks;
    neo__shard_measure(&shard, NEO__MAX(neo_ctx_repro_shards(ctx), neo__shard_all(map)));
    neo__shard_layout(&shard, &work);
    if (shard.pooled.on_device) neo__shard_layout_pooled(&shard, &work);
    memory->exchange_bytes += work.at;
    const int buffers = neo__shard_growing(&shard, growing);
    for (int i = 0; i < buffers; i++)
        memory->exchange_bytes += (size_t)growing[i].count * growing[i].size;
    neo_status status = neo__shard_descs(&shard, &arena, desc);
    for (int i = 0; i < 2 && status == NEO_OK; i++)
        if (desc[i].table_count)
            status = neo__shard_add_bytes(ctx, &desc[i], i ? copied : &own, memory);
    if (lines && status == NEO_OK) neo__shard_lines(map, shard.rank, &desc[0], lines);
    neo__arena_free(&arena);
    return status;
}
/* The memory of ranks from `first` on: each [count]. NEO_ERR_UNSUPPORTED: a neo_shard cannot place
   the plan. */
static neo_status neo__shard_plan_bytes(neo_ctx *ctx, const neo_plan *plan, int first, int count,
                                        neo_shard_memory *each, neo__plan_lines *lines) {
    neo__shard_map *m;
    NEO__ZERO(neo__shard_copied, copied);
    NEO__TRY(neo__shard_map_create(ctx, plan, &m));
    neo_status status = NEO_OK;
    for (int i = 0; i < count && status == NEO_OK; i++)
        status = neo__shard_map_bytes(ctx, m, first + i, &copied, &each[i], lines);
    neo__shard_map_destroy(m);
    return status;
}
NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank,
                                   neo_shard_memory *memory) {
    NEO__TRY(neo__check_live(ctx, "neo_shard_bytes", "ctx"));
    NEO__CHECK(plan && memory, NEO_ERR_ARG, "neo_shard_bytes: an argument is NULL");
    const int ranks = plan->desc.cluster.ranks * NEO__MAX(plan->desc.replicas, 1);
    NEO__CHECK(rank >= 0 && rank < ranks, NEO_ERR_ARG, "neo_shard_bytes: rank %d of %d", rank,
               ranks);
    return neo__shard_plan_bytes(ctx, plan, rank, 1, memory, NULL);
}

/* ---------------------------------------------------------------------------
   >>impl-timeline

   A task is scheduled when it is added: it begins when the last of its lane and those it waits
   for have ended. So the order of adding is that of a trainer's calls (train_batch of
   examples/train). A task of no seconds is left out: who waits for it waits for what it waited
   for. These tasks have the most seconds of any rank. Ranks then play them, each with its share
   (neo__sample_step), and their ends are the ends of the timeline's tasks (neo__timeline_shape).
   The critical path goes back from the task that ends last, each time to the task whose end was the
   beginning.
   ------------------------------------------------------------------------ */
struct neo_timeline {
    neo_ctx *ctx;
    size_t bytes; /* of this struct, the tasks, the units and their names behind it */
    neo_timeline_sum sum;
    neo_task *task, *each; /* each: with the most seconds of any rank; */
    int32_t *shown;        /* and the task that ends with it: [eaches] */
    int32_t count, eaches;
    int32_t ranks, per_node, all, per_node_of_all, merged; /* the plan's, all: of groups */
    double part[NEO__PLAN_PHASES][NEO__PLAN_PARTS]; /* likewise */
    neo_cluster cluster; /* the plan's, for its links */
    neo__plan_load *share; /* likewise */
};
enum { NEO__TIMELINE_TABLES = 38, NEO__TIMELINE_UNIT = 4, NEO__TIMELINE_MOST_UNITS = 1 << 16 };
static const double NEO__TIMELINE_NONE = 1e-12; /* share of a time that is no time */
enum { NEO__PLAN_TREE_BYTES = 4096 }; /* NEO__SMALL_BYTES */
enum { NEO__LAYER_LANES = 16, NEO__LAYER_FEW = 4 }; /* up to so few columns, lanes go over rows */
typedef struct neo__timeline_build {
    const neo_plan *plan;
    const neo_dense_unit *units;
    int32_t unit_count;
    int pipelined;
    neo_task *task;
    int32_t count, last[NEO_LANE_COUNT]; /* the last task of each lane; -1 */
    int32_t since;   /* the one after which all are, without a pipeline */
    int32_t reduced; /* the last by which a unit's gradients are summed; -1 */
    double apart;    /* bytes between two uses of weights and of what layers write */
} neo__timeline_build;

static const char *const NEO__LANE_NAMES[NEO_LANE_COUNT] = {"compute", "local", "cross"};
NEO_API const char *neo_lane_name(neo_lane lane) {
    return (unsigned)lane < NEO_LANE_COUNT ? NEO__LANE_NAMES[lane] : "unknown";
}

static double neo__timeline_end(const neo__timeline_build *build, int32_t task) {
    return task < 0 ? 0.0 : build->task[task].begin + build->task[task].seconds;
}
/* The task that ends later of two; -1: none. */
static int32_t neo__timeline_later(const neo__timeline_build *build, int32_t x, int32_t y) {
    return neo__timeline_end(build, x) >= neo__timeline_end(build, y) && x >= 0 ? x : y;
}
/* The task beside x, of the same exchange on the other links; -1: none. */
static int32_t neo__timeline_beside(const neo__timeline_build *build, int32_t x) {
    const neo_task *task = build->task;
    for (int32_t local = x - 1; x >= 0 && local <= x; local++) {
        const int32_t cross = local + 1;
        if (local >= 0 && cross < build->count && task[local].lane == NEO_LANE_LOCAL &&
            task[cross].lane == NEO_LANE_CROSS && task[local].name == task[cross].name &&
            task[local].unit == task[cross].unit && task[cross].after[0] != local)
            return local == x ? cross : local;
    }
    return -1;
}
/* x, y: tasks to wait for, or -1. Returns the task, to be waited for. */
static int32_t neo__timeline_add(neo__timeline_build *build, const char *name, const char *unit,
                                 neo_lane lane, double seconds, int32_t x, int32_t y) {
    int32_t before = build->pipelined ? build->last[lane] : build->since;
    if (seconds <= 0.0) return neo__timeline_later(build, x, y);
    neo_task *task = &build->task[build->count];
    memset(task, 0, sizeof *task);
    task->name = name;
    task->unit = unit;
    task->lane = lane;
    task->seconds = seconds;
    const int32_t wait[NEO_TASK_WAITS] = {x, neo__timeline_beside(build, x), y,
                                          neo__timeline_beside(build, y), before,
                                          build->pipelined ? -1
                                                           : neo__timeline_beside(build, before)};
    int32_t last = -1, waits = 0;
    for (int i = 0; i < NEO_TASK_WAITS; i++) {
        int known = wait[i] < 0;
        task->after[i] = -1;
        for (int k = 0; k < waits; k++) known |= task->after[k] == wait[i];
        if (!known) task->after[waits++] = wait[i];
        last = neo__timeline_later(build, last, wait[i]);
    }
    task->begin = neo__timeline_end(build, last);
    build->last[lane] = build->since = build->count;
    return build->count++;
}
/* An exchange on both levels at the same time, or, chained, on one after the other. */
static int32_t neo__timeline_links(neo__timeline_build *build, const char *name, const char *unit,
                                   const double *seconds, const double *bytes, int chained,
                                   int32_t x) {
    const int32_t since = build->since;
    int32_t last = x;
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) {
        const neo_lane lane = level == NEO_LEVEL_LOCAL ? NEO_LANE_LOCAL : NEO_LANE_CROSS;
        const int32_t count = build->count;
        if (!chained) build->since = since;
        int32_t task =
            neo__timeline_add(build, name, unit, lane, seconds[level], chained ? last : x, -1);
        if (build->count > count) build->task[task].bytes = bytes[level];
        last = neo__timeline_later(build, last, task);
    }
    build->since = neo__timeline_later(build, since, last);
    return last;
}
/* Seconds of so many bytes of a call on a link, latencies apart. */
static double neo__timeline_bytes(const neo_cluster *c, int level, int kind, double bytes) {
    const double *us = c->link_us[level][kind],
                 waits = (kind == NEO_LINK_REDUCE ? 2.0 : 1.0) * c->link[level].latency_us;
    double x = 0.0, took = 0.0, next = (double)NEO_LINK_LEAST;
    for (int i = 0; i < NEO_LINK_SIZES && us[i] > 0.0; i++, next *= 16.0) {
        const double end = NEO__MAX((us[i] - waits) * 1e-6, took);
        if (bytes < next) return took + (end - took) * (bytes - x) / (next - x);
        x = next, took = end;
    }
    return took + (bytes - x) / c->link[level].bandwidth;
}
/* Adds the seconds and bytes of an all-reduce of ranks, of_node in a node: scattered and
   gathered, or, of few bytes (returns 1), up a tree of ranks and down again, hop by hop; between
   two ranks at once. */
static int neo__timeline_all_reduce(const neo_plan *plan, double bytes, double ranks,
                                    double of_node, double *seconds, double *sent) {
    const int few = bytes <= (double)NEO__PLAN_TREE_BYTES;
    const double share[NEO_LEVEL_COUNT] = {(of_node - 1.0) / ranks, (ranks - of_node) / ranks},
                 times = few && ranks < 3.0 ? 1.0 : 2.0;
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) {
        const neo_link *link = &plan->desc.cluster.link[level];
        const double latency = link->latency_us * 1e-6,
                     ends = level == NEO_LEVEL_LOCAL ? of_node : ranks / of_node;
        double hops = 0.0;
        for (double k = 1.0; k < ends; k *= 2.0) hops += 1.0;
        /* what was measured of few bytes has the hops in it */
        const int tree = few && plan->desc.cluster.link_us[level][NEO_LINK_REDUCE][0] <= 0.0;
        const double gone = 2.0 * bytes * share[level],
                     takes = tree ? times * hops * bytes / link->bandwidth
                                  : neo__timeline_bytes(&plan->desc.cluster, level, NEO_LINK_REDUCE,
                                                        gone);
        seconds[level] += takes + (tree ? times * hops : 2.0 * (share[level] > 0.0)) * latency;
        sent[level] += gone;
    }
    return few;
}
static int32_t neo__timeline_reduce(neo__timeline_build *build, const char *name, const char *unit,
                                    double bytes, int32_t x) {
    const neo__plan_model *m = &build->plan->model;
    double seconds[NEO_LEVEL_COUNT] = {0.0}, sent[NEO_LEVEL_COUNT] = {0.0};
    const int few = neo__timeline_all_reduce(build->plan, bytes, m->ranks * m->groups,
                                             build->plan->per_node_of_all, seconds, sent);
    return neo__timeline_links(build, name, unit, seconds, sent, few, x);
}
static double neo__timeline_exchange(const neo__timeline_build *build, int level, double bytes,
                                     double times) {
    return neo__timeline_bytes(&build->plan->desc.cluster, level, NEO_LINK_EXCHANGE, bytes) +
           times * build->plan->model.latency[level];
}
/* A phase up to the links, with `times` their latency; and what its rank does after them. */
static int32_t neo__timeline_send(neo__timeline_build *build, const char *name, int phase,
                                  double times, int32_t x) {
    const neo__plan_model *m = &build->plan->model;
    const double *part = build->plan->part[phase];
    const double sums = part[NEO__PLAN_SUMS];
    const int back = sums > 0.0 && phase == NEO__PLAN_BACKWARD; /* then the node's part is last */
    double seconds[NEO_LEVEL_COUNT], sent[NEO_LEVEL_COUNT];
    x = neo__timeline_add(build, name, "", NEO_LANE_COMPUTE, part[NEO_LANE_COMPUTE] / 2.0, x, -1);
    for (int level = 0; level < NEO_LEVEL_COUNT; level++) {
        sent[level] = level == NEO_LEVEL_LOCAL
                          ? part[NEO_LANE_LOCAL] / m->local
                          : (part[NEO_LANE_CROSS] + (back ? sums : 0.0)) / m->cross;
        seconds[level] = neo__timeline_exchange(build, level, sent[level], times);
    }
    if (back) seconds[NEO_LEVEL_LOCAL] = 0.0;
    x = neo__timeline_links(build, name, "", seconds, sent, 0, x);
    seconds[NEO_LEVEL_LOCAL] = 0.0;
    sent[NEO_LEVEL_CROSS] = sums / m->cross;
    seconds[NEO_LEVEL_CROSS] =
        back || sums <= 0.0
            ? 0.0
            : neo__timeline_exchange(build, NEO_LEVEL_CROSS, sent[NEO_LEVEL_CROSS], times);
    return neo__timeline_links(build, name, "", seconds, sent, 0, x);
}
static int32_t neo__timeline_receive(neo__timeline_build *build, const char *name, int phase,
                                     int32_t x, int32_t y) {
    double seconds = build->plan->part[phase][NEO_LANE_COMPUTE] / 2.0;
    return neo__timeline_add(build, name, "", NEO_LANE_COMPUTE, seconds, x, y);
}
enum { NEO__LAYER_NEAR = 1 << 19 }; /* numbers that a core's own cache has room for: 2 MiB */
/* Seconds of neo_interact: of what no cache keeps it takes longer, of up to twice what a core's own
   has room for. That was used as long ago as weights are at least. */
static double neo__timeline_dots(const neo__timeline_build *build, const neo_dense_unit *unit,
                                 int backward) {
    const neo_cluster *cluster = &build->plan->desc.cluster;
    const int64_t rows = unit->dots[0], cols = unit->dots[1];
    const double all = build->plan->model.batch / build->plan->model.ranks * (double)rows,
                 *more = cluster->calibration.dots_far[backward];
    const double numbers = all * ((double)cols + (double)rows / 2.0),
                 room = NEO__MIN(2.0 * (double)NEO__LAYER_NEAR / NEO__MAX(numbers, 1.0), 1.0);
    double row, col;
    neo__plan_span(more[0], more[1], 1.0 / cluster->memory_bandwidth, &row, &col);
    return neo_layer_seconds(cluster, all, cols, rows,
                             backward ? NEO_LAYER_DOTS_BACKWARD : NEO_LAYER_DOTS, 0.0) +
           room * all * NEO__MAX(row + col * (double)cols, 0.0) *
               neo__plan_far(cluster, build->apart);
}
/* Seconds of a unit. */
static double neo__timeline_unit(const neo__timeline_build *build, int32_t k, int backward) {
    const neo_cluster *cluster = &build->plan->desc.cluster;
    const double samples = build->plan->model.batch / build->plan->model.ranks;
    const neo_dense_unit *u = &build->units[k];
    const neo_layer_way dots = backward ? NEO_LAYER_DOTS_BACKWARD : NEO_LAYER_DOTS;
    double seconds = u->flops * samples / cluster->flops * (backward ? 2.0 : 1.0);
    if (u->dots[0] > 0 && cluster->calibration.layer[dots][0] > 0.0)
        seconds = neo__timeline_dots(build, u, backward);
    if (u->width_count > 0) seconds = 0.0;
    for (int32_t l = 0; l + 1 < u->width_count; l++) {
        const neo_layer_way way = !backward      ? NEO_LAYER_FORWARD
                                  : k == 0 && !l ? NEO_LAYER_LAST
                                                 : NEO_LAYER_BACKWARD;
        seconds += neo_layer_seconds(cluster, samples, u->widths[l], u->widths[l + 1], way,
                                     build->apart);
    }
    return seconds;
}
/* The units with or without pooled rows, forward or backward; x: what they wait for. */
static int32_t neo__timeline_units(neo__timeline_build *build, int after, int backward, int32_t x) {
    for (int32_t i = 0; i < build->unit_count; i++) {
        const int32_t k = backward ? build->unit_count - 1 - i : i;
        const neo_dense_unit *u = &build->units[k];
        const double seconds = neo__timeline_unit(build, k, backward);
        if (!u->after != !after) continue;
        x = neo__timeline_add(build, backward ? "backward" : "forward", u->name, NEO_LANE_COMPUTE,
                              seconds, x, -1);
        if (backward && u->params > 0)
            build->reduced = neo__timeline_later(
                build, build->reduced,
                neo__timeline_reduce(build, "reduce", u->name, 4.0 * (double)u->params, x));
    }
    return x;
}
/* A step's share of the averages of the rank that takes longest: an all-reduce of each of its
   tensors, of many bytes and of few; or its merged gradients, and a byte of each row. */
static void neo__timeline_averages(const neo_plan *plan, double (*seconds)[NEO_LEVEL_COUNT],
                                   double (*sent)[NEO_LEVEL_COUNT]) {
    const double ranks = plan->model.ranks, groups = plan->model.groups,
                 of_node = NEO__MIN(NEO__MAX(plan->per_node_of_all / ranks, 1.0), groups);
    const int32_t every = plan->desc.sync_every;
    double longest = -1.0, all;
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++) {
        double took[2][NEO_LEVEL_COUNT] = {{0.0}}, gone[2][NEO_LEVEL_COUNT] = {{0.0}};
        double sums[2] = {0.0, 0.0}; /* of merged gradients */
        for (int64_t i = plan->rank_first[r]; i < plan->rank_first[r + 1]; i++) {
            const int64_t k = plan->rank_piece[i];
            const neo_piece *piece = &plan->piece[k];
            const neo__plan_table *t = &plan->table[piece->table];
            const double rows = (double)piece->rows / plan->cut[k].parts,
                         state[] = {4.0 * (double)piece->cols, (double)t->state_fixed};
            if (piece->rank == NEO_EVERY_RANK) continue;
            sums[0] += 4.0 * (double)piece->rows * (double)piece->cols;
            sums[1] += (double)piece->rows;
            for (int64_t x = 0; every > 1 && x < plan->cut[k].parts * (2 + t->state_col / 4); x++) {
                const double bytes = rows * state[x < plan->cut[k].parts];
                const int few = bytes <= (double)NEO__PLAN_TREE_BYTES;
                if (bytes > 0.0)
                    (void)neo__timeline_all_reduce(plan, bytes, groups, of_node, took[few],
                                                   gone[few]);
            }
        }
        for (int i = 0; i < 2 && every < 0; i++) {
            const int few = sums[i] <= (double)NEO__PLAN_TREE_BYTES;
            (void)neo__timeline_all_reduce(plan, sums[i], groups, of_node, took[few], gone[few]);
        }
        all = NEO__MAX(took[0][0], took[0][1]) + took[1][0] + took[1][1];
        for (int k = 0; k < 2 * NEO_LEVEL_COUNT && all > longest; k++) {
            seconds[k / 2][k % 2] = took[k / 2][k % 2] / NEO__MAX(every, 1);
            sent[k / 2][k % 2] = gone[k / 2][k % 2] / NEO__MAX(every, 1);
        }
        longest = NEO__MAX(longest, all);
    }
}
/* Replicas meet: gradients travel, or averages. */
static int32_t neo__timeline_meet(neo__timeline_build *build, int32_t x) {
    const neo__plan_model *m = &build->plan->model;
    const double *part = build->plan->part[NEO__PLAN_MEET], byte[] = {m->local, m->cross};
    double seconds[2][NEO_LEVEL_COUNT] = {{0.0}}, sent[2][NEO_LEVEL_COUNT] = {{0.0}};
    if (m->groups > m->merged) neo__timeline_averages(build->plan, seconds, sent);
    for (int level = 0; level < NEO_LEVEL_COUNT && m->groups <= m->merged; level++) {
        const double on = part[level == NEO_LEVEL_LOCAL ? NEO_LANE_LOCAL : NEO_LANE_CROSS];
        sent[0][level] = on / byte[level];
        if (on > 0.0)
            seconds[0][level] =
                m->latency_of_all[level] + neo__timeline_bytes(&build->plan->desc.cluster, level,
                                                               NEO_LINK_EXCHANGE, sent[0][level]);
    }
    x = neo__timeline_add(build, "replicas", "", NEO_LANE_COMPUTE, part[NEO_LANE_COMPUTE], x, -1);
    x = neo__timeline_links(build, "replicas", "", seconds[0], sent[0], 0, x);
    return neo__timeline_links(build, "replicas", "", seconds[1], sent[1], 1, x);
}
/* Merge and optimizer; between them sums of rows that are cut by columns travel. Replicas meet
   before, or, where they are averaged, after. */
static void neo__timeline_update(neo__timeline_build *build, int32_t gradients, int32_t copies) {
    const double *part = build->plan->part[NEO__PLAN_UPDATE],
                 *back = build->plan->part[NEO__PLAN_BACKWARD];
    if (back[NEO__PLAN_SUMS] > 0.0) { /* and this thread waits for the node's part */
        const neo__plan_model *m = &build->plan->model;
        const double sent[NEO_LEVEL_COUNT] = {back[NEO_LANE_LOCAL] / m->local, 0.0},
                     seconds[NEO_LEVEL_COUNT] = {
                         neo__timeline_exchange(build, NEO_LEVEL_LOCAL, sent[0], 1.0), 0.0};
        gradients = neo__timeline_later(build, gradients, build->last[NEO_LANE_COMPUTE]);
        gradients = neo__timeline_links(build, "gradients", "", seconds, sent, 0, gradients);
    }
    int32_t x = neo__timeline_receive(build, "gradients", NEO__PLAN_BACKWARD, gradients, -1);
    const int32_t every = build->plan->desc.sync_every;
    if (every <= 1) x = neo__timeline_meet(build, x);
    if (build->plan->cut_rounds) {
        x = neo__timeline_send(build, "update", NEO__PLAN_UPDATE, build->plan->cut_rounds, x);
        x = neo__timeline_receive(build, "update", NEO__PLAN_UPDATE, x, copies);
    } else {
        x = neo__timeline_add(build, "update", "", NEO_LANE_COMPUTE, part[NEO_LANE_COMPUTE], x,
                              copies);
    }
    if (every > 1 && build->plan->model.groups > 1.0)
        (void)neo__timeline_meet(build, x);
}
/* The task that ends last. */
static int32_t neo__timeline_last(const neo__timeline_build *build) {
    int32_t last = -1;
    for (int32_t i = 0; i < build->count; i++) last = neo__timeline_later(build, last, i);
    return last;
}
/* Bytes that a rank's step touches: parameters with their gradients and a state, what layers take
   with its gradients, pooled rows likewise, and rows of tables; and what others do in `seconds`. */
static double neo__timeline_touched(const neo__timeline_build *build, double seconds) {
    const neo_plan *plan = build->plan;
    const double all = plan->model.batch, samples = all / plan->model.ranks;
    double bytes = 0.0;
    for (int32_t i = 0; i < build->unit_count; i++) {
        const neo_dense_unit *u = &build->units[i];
        bytes += 3.0 * 4.0 * (double)u->params + 2.0 * 4.0 * samples * (double)u->dots[0] *
                                                     (double)u->dots[1];
        for (int32_t k = 0; k < u->width_count; k++)
            bytes += 2.0 * 4.0 * samples * (double)u->widths[k];
    }
    return bytes + plan->desc.cluster.calibration.others * seconds + neo__plan_touched(plan);
}
/* Weights and gradients were touched by the optimizer, or forward: a third of a step ago, in the
   mean. */
static double neo__timeline_apart(neo__timeline_build *build) {
    double seconds = 0.0;
    build->apart = 0.0;
    for (int32_t k = 0; k < 2 * build->unit_count; k++)
        seconds += neo__timeline_unit(build, k / 2, k % 2);
    return neo__timeline_touched(build, seconds) / 3.0;
}
static void neo__timeline_run(neo__timeline_build *build) {
    const neo_plan *plan = build->plan;
    const int sums = plan->part[NEO__PLAN_FORWARD][NEO__PLAN_SUMS] > 0.0;
    int32_t ids = -1, rows, top, gradients, copies = -1, inside;
    for (int k = 0; k < NEO_LANE_COUNT; k++) build->last[k] = -1;
    build->since = build->reduced = -1;
    build->count = 0;
    build->apart = neo__timeline_apart(build);
    if (!build->pipelined) ids = neo__timeline_send(build, "ids", NEO__PLAN_IDS, 2.0, -1);
    ids = neo__timeline_receive(build, "ids", NEO__PLAN_IDS, ids, -1); /* pipelined: sent before */
    rows = neo__timeline_add(build, "lookup", "", NEO_LANE_COMPUTE,
                             plan->part[NEO__PLAN_LOOKUP][NEO_LANE_COMPUTE], ids, -1);
    rows = neo__timeline_send(build, "rows", NEO__PLAN_FORWARD, 1.0, rows);
    inside = sums ? build->last[NEO_LANE_LOCAL] : -1; /* a node's sums need this thread */
    if (build->pipelined) (void)neo__timeline_send(build, "ids", NEO__PLAN_IDS, 2.0, inside);
    (void)neo__timeline_units(build, 0, 0, inside);
    rows = neo__timeline_receive(build, "rows", NEO__PLAN_FORWARD, rows, -1);
    top = neo__timeline_units(build, 1, 1, neo__timeline_units(build, 1, 0, rows));
    gradients = neo__timeline_send(build, "gradients", NEO__PLAN_BACKWARD, 1.0, top);
    if (plan->copy_bytes > 0.0) {
        copies = neo__timeline_reduce(build, "copies", "", plan->copy_bytes - plan->copy_rows, top);
        copies = neo__timeline_reduce(build, "copies", "", plan->copy_rows, copies);
    }
    if (!build->pipelined) neo__timeline_update(build, gradients, copies);
    (void)neo__timeline_units(build, 0, 1, -1);
    if (build->pipelined) neo__timeline_update(build, gradients, copies);
    double params = 0.0;
    for (int32_t i = 0; i < build->unit_count; i++) params += (double)build->units[i].params;
    const double ended = neo__timeline_end(build, neo__timeline_last(build));
    (void)neo__timeline_add(build, "step", "", NEO_LANE_COMPUTE,
                            neo_step_seconds(&plan->desc.cluster, params,
                                             neo__timeline_touched(build, ended)),
                            build->reduced, -1);
}
/* Seconds of a step and of its phases: what each takes after all before it. */
static void neo__timeline_phases(const neo_timeline *timeline, neo_plan_step *step) {
    static const char *const names[] = {"ids",      "lookup", "rows",  "gradients", "update",
                                        "replicas", "reduce", "copies"};
    double *const phases[] = {&step->ids,    &step->lookup, &step->forward, &step->backward,
                              &step->update, &step->update, &step->reduce,  &step->reduce};
    double ended = 0.0, end;
    for (int32_t i = 0; i < timeline->count; i++, ended = NEO__MAX(ended, end)) {
        const neo_task *task = &timeline->task[i];
        end = task->begin + task->seconds;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(task->name, names[k])) *phases[k] += NEO__MAX(end - ended, 0.0);
    }
    step->plain = ended;
}
/* The tasks of a step that began at `began`: each ends when its last rank has ended it (ended:
   [each][ranks]), and takes what that is after all that it waits for. One that ends no later is
   left out: who waits for it waits for what it waited for. */
static void neo__timeline_shape(neo_timeline *timeline, double began, const double *ended) {
    NEO__ZERO(neo__timeline_build, build);
    NEO__ZERO(neo_timeline_sum, sum);
    const int32_t ranks = timeline->all;
    build.task = timeline->task;
    for (int32_t i = 0; i < timeline->eaches; i++) {
        const neo_task *each = &timeline->each[i];
        neo_task *task = &build.task[build.count];
        double end = 0.0;
        int32_t last = -1;
        *task = *each;
        for (int k = 0; k < NEO_TASK_WAITS; k++) {
            task->after[k] = each->after[k] < 0 ? -1 : timeline->shown[each->after[k]];
            last = neo__timeline_later(&build, last, task->after[k]);
        }
        for (int32_t r = 0; r < ranks; r++) end = NEO__MAX(end, ended[(int64_t)i * ranks + r]);
        task->begin = neo__timeline_end(&build, last);
        task->seconds = end - began - task->begin;
        timeline->shown[i] = last;
        if (task->seconds <= (end - began) * NEO__TIMELINE_NONE) continue;
        timeline->shown[i] = build.count++;
        sum.busy[task->lane] += task->seconds;
        sum.bytes[task->lane] += task->bytes;
    }
    timeline->count = build.count;
    for (int32_t i = neo__timeline_last(&build), next; i >= 0; i = next) {
        neo_task *task = &build.task[i];
        next = -1;
        task->critical = 1;
        for (int k = 0; k < NEO_TASK_WAITS; k++)
            next = neo__timeline_later(&build, next, task->after[k]);
    }
    sum.seconds = neo__timeline_end(&build, neo__timeline_last(&build));
    sum.exposed = sum.seconds - sum.busy[NEO_LANE_COMPUTE];
    timeline->sum = sum;
}
/* Columns that a product computes: whole vectors, where lanes go over columns. */
static double neo__layer_lanes(int64_t cols) {
    return (double)(cols > NEO__LAYER_FEW ? (cols + NEO__LAYER_LANES - 1) / NEO__LAYER_LANES *
                                                NEO__LAYER_LANES : cols);
}
/* Counts of what a layer does, as calibration.layer has seconds of them. */
static void neo__layer_terms(double *term, double samples, int64_t in, int64_t out,
                             neo_layer_way way) {
    const double i = (double)in, o = (double)out;
    term[0] = samples * (way == NEO_LAYER_FORWARD ? i * neo__layer_lanes(out)
                         : way <= NEO_LAYER_LAST  ? neo__layer_lanes(in) * o
                                                  : i * o);
    const int dots = way == NEO_LAYER_DOTS || way == NEO_LAYER_DOTS_BACKWARD; /* no weights */
    const double beyond = samples * (i + o / 2.0) - (double)NEO__LAYER_NEAR,
                 lanes = dots ? neo__layer_lanes(out) / o : 1.0;
    term[1] = samples * i, term[2] = dots ? NEO__MAX(beyond, 0.0) : i * o, term[3] = samples * o;
    term[4] = 1.0;
    term[0] *= lanes * lanes, term[1] *= lanes, term[3] *= lanes * lanes;
}
/* Layers are calibrated with weights and tensors that a cache has: others come from memory, weights
   backward with their gradients, which are read and written. */
NEO_API double neo_layer_seconds(const neo_cluster *cluster, double samples, int64_t in,
                                 int64_t out, neo_layer_way way, double bytes) {
    const double *by = cluster->calibration.layer[way],
                 flops = cluster->flops > 0.0 ? cluster->flops : 50e9,
                 bandwidth = cluster->memory_bandwidth > 0.0 ? cluster->memory_bandwidth : 10e9;
    double x[5], seconds = 0.0;
    if (by[0] <= 0.0)
        return 2.0 * samples * (double)in * (double)out *
               (way == NEO_LAYER_BACKWARD ? 2.0 : 1.0) / flops;
    neo__layer_terms(x, samples, in, out, way);
    for (int k = 0; k < 5; k++) seconds += by[k] * x[k];
    if (way > NEO_LAYER_LAST) return seconds;
    const double bytes_of = way == NEO_LAYER_FORWARD ? 4.0 : way == NEO_LAYER_LAST ? 8.0 : 12.0,
                 measured = cluster->calibration.layer_far[way],
                 weights = measured > 0.0 ? measured : bytes_of,
                 writes = way == NEO_LAYER_FORWARD ? x[3] : way == NEO_LAYER_BACKWARD ? x[1] : 0.0;
    return seconds + (weights * x[2] + 4.0 * writes) * neo__plan_far(cluster, bytes) / bandwidth;
}
/* A state was touched a step ago, a parameter and its gradient since; but what backward had from
   memory a cache has not kept for the optimizer, either: it keeps what comes again soon. */
NEO_API double neo_step_seconds(const neo_cluster *cluster, double params, double bytes) {
    const neo_calibration *by = &cluster->calibration;
    const double bandwidth = cluster->memory_bandwidth > 0.0 ? cluster->memory_bandwidth : 10e9,
                 cached = by->step_near > 0.0 ? by->step_near : by->step;
    return params * (cached + (by->step - cached) * neo__plan_far(cluster, bytes)) / bandwidth;
}
static neo_status neo__timeline_check(const neo_dense_unit *units, int32_t count, size_t *bytes) {
    const char *fn = "neo_timeline_create";
    NEO__CHECK(count >= 0 && count <= NEO__TIMELINE_MOST_UNITS, NEO_ERR_ARG,
               "%s: %d units, not 0 .. %d", fn, count, (int)NEO__TIMELINE_MOST_UNITS);
    for (int32_t i = 0; i < count; i++) {
        NEO__CHECK(units[i].name, NEO_ERR_ARG, "%s: units[%d].name is NULL", fn, i);
        NEO__CHECK(neo__plan_positive(units[i].flops) && units[i].params >= 0, NEO_ERR_ARG,
                   "%s: unit '%s': flops %g or params %" PRId64 " is negative or not finite", fn,
                   units[i].name, units[i].flops, units[i].params);
        NEO__CHECK(units[i].widths ? units[i].width_count > 1 : units[i].width_count == 0,
                   NEO_ERR_ARG, "%s: unit '%s': %d widths", fn, units[i].name,
                   (int)units[i].width_count);
        NEO__CHECK(units[i].dots[0] >= 0 && units[i].dots[1] >= 0, NEO_ERR_ARG,
                   "%s: unit '%s': a number of dots is negative", fn, units[i].name);
        for (int32_t w = 0; w < units[i].width_count; w++)
            NEO__CHECK(units[i].widths[w] > 0, NEO_ERR_ARG,
                       "%s: unit '%s': width %" PRId64 " is not above 0", fn, units[i].name,
                       units[i].widths[w]);
        *bytes += strlen(units[i].name) + 1;
    }
    return NEO_OK;
}
/* ---- steps in which each rank has its own share, and waits for what it needs alone ----

   Each task has an end on every rank. An exchange is its messages, which a link sends, and takes,
   one after another. Exact up to NEO__SAMPLE_LAST ranks; of more, only the last senders count. */
enum { NEO__SAMPLE_FILL = 4, NEO__SAMPLE_STEADY = 8, NEO__SAMPLE_LAST = 8 };
NEO__HOT_BEGIN
/* From 0 up to 1, and by the normal law. */
static double neo__sample_even(uint64_t *state) {
    return (double)(neo__mix64(*state += 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}
static double neo__sample_times(uint64_t *state, double by) {
    double z = -6.0;
    if (by <= 0.0) return 1.0;
    for (int i = 0; i < 12; i++) z += neo__sample_even(state);
    return NEO__MAX(1.0 + by * z, 0.1);
}
/* An exchange of ranks, each with those outside of its node: start[r] becomes the time at which r
   has sent, and has what all others send. on: [ranks] seconds of what a rank sends, in equal parts,
   or, back, of what comes to it. It goes to the next node first, there to the same place first (see
   neo__peer_in_turn); of the senders, the last hold up others. scratch: [3 ranks + 1]. */
static void neo__sample_exchange(double *start, const double *on, int32_t ranks, int32_t node,
                                 int back, double latency, double *scratch) {
    double *sum = scratch, *ended = scratch + ranks + 1, *later = ended + ranks, first = DBL_MAX;
    int32_t late[NEO__SAMPLE_LAST], lates = 0;
    if (node >= ranks) return; /* there is no other node */
    sum[0] = 0.0; /* of a part for each rank before */
    for (int32_t r = 0; r < ranks; r++) sum[r + 1] = sum[r] + on[r] / (ranks - node);
    for (int32_t r = 0; r < ranks; r++) {
        const int32_t base = r / node * node, end = NEO__MIN(base + node, ranks);
        const double others = sum[ranks] - (sum[end] - sum[base]);
        ended[r] = start[r] + (back ? others : (sum[r + 1] - sum[r]) * (ranks - (end - base)));
        first = NEO__MIN(first, start[r]);
        int32_t at = lates < NEO__SAMPLE_LAST ? lates++ : NEO__SAMPLE_LAST;
        for (; at > 0 && ended[r] > ended[late[at - 1]]; at--)
            if (at < NEO__SAMPLE_LAST) late[at] = late[at - 1];
        if (at < NEO__SAMPLE_LAST) late[at] = r;
    }
    for (int32_t r = 0; r < ranks; r++) {
        const int32_t base = r / node * node, end = NEO__MIN(base + node, ranks);
        const double comes = back ? (sum[r + 1] - sum[r]) * (ranks - (end - base))
                                  : sum[ranks] - (sum[end] - sum[base]);
        double begin[NEO__SAMPLE_LAST], takes[NEO__SAMPLE_LAST],
            at = NEO__MAX(ended[r], lates < ranks ? first + comes : 0.0);
        for (int32_t k = 0; k < lates; k++) {
            const int32_t s = late[k], next = NEO__MIN(s / node * node + node, ranks),
                          from = NEO__MIN(base + s % node, end), turned = r < from;
            const double sent =
                back ? sum[base] - sum[next] + (r < s ? sum[ranks] : 0.0) + sum[r] - sum[from] +
                           (turned ? sum[end] - sum[base] : 0.0)
                     : (sum[s + 1] - sum[s]) * (base - next + (r < s ? ranks : 0) + r - from +
                                                (turned ? end - base : 0));
            begin[k] = start[s] + sent;
            takes[k] = back ? sum[r + 1] - sum[r] : sum[s + 1] - sum[s];
            if (s / node == r / node) takes[k] = 0.0;
        }
        for (int32_t k = 0; k < lates; k++) { /* this rank's link takes one after another */
            double until = begin[k];
            if (late[k] / node == r / node) continue;
            for (int32_t i = 0; i < lates; i++) until += begin[i] >= begin[k] ? takes[i] : 0.0;
            at = NEO__MAX(at, until);
        }
        later[r] = at + latency;
    }
    memcpy(start, later, (size_t)ranks * sizeof *start);
}
/* Members base, base + stride ... of an exchange, n of them, in nodes of so many. */
typedef struct neo__sample_set {
    int32_t base, stride, n, node;
} neo__sample_set;
/* Whether a task's exchange is an all-reduce. */
static int neo__sample_reduces(const neo_task *task) {
    return !strcmp(task->name, "reduce") || !strcmp(task->name, "copies");
}
/* Set i of those in which a task's exchange goes on; n 0: there are no more. */
static neo__sample_set neo__sample_set_of(const neo_timeline *timeline, const neo_task *task,
                                          int sums, int32_t index) {
    const int32_t ranks = timeline->ranks, per_node = timeline->per_node,
                  groups = timeline->all / ranks, nodes = (ranks - 1) / per_node + 1;
    neo__sample_set set = {index * ranks, 1, index < groups ? ranks : 0, per_node};
    if (!strcmp(task->name, "replicas")) {
        set.base = index, set.stride = ranks, set.n = index < ranks ? groups : 0;
        set.node = NEO__MAX(timeline->per_node_of_all / ranks, 1);
    } else if (neo__sample_reduces(task) ||
               (!strcmp(task->name, "ids") && timeline->merged > 1)) {
        set.n = index ? 0 : timeline->all, set.node = timeline->per_node_of_all;
    } else if (sums) { /* between the same places of all nodes */
        const int32_t place = index % per_node, group = index / per_node;
        set.base = group * ranks + place, set.stride = per_node, set.node = 1;
        set.n = group < groups ? nodes - ((nodes - 1) * per_node + place >= ranks) : 0;
    }
    return set;
}
/* Seconds of what a task sends. */
static double neo__sample_takes(const neo_timeline *timeline, const neo_task *task) {
    const int kind = neo__sample_reduces(task) ? NEO_LINK_REDUCE : NEO_LINK_EXCHANGE;
    const double takes = neo__timeline_bytes(
        &timeline->cluster, task->lane == NEO_LANE_LOCAL ? 0 : 1, kind, task->bytes);
    return NEO__MIN(takes, task->seconds); /* averages of replicas: a share of several calls */
}
/* A task on its links, `times` as long. on: [all] seconds of each rank's share. */
static void neo__sample_links(const neo_timeline *timeline, const neo_task *task, int sums,
                              double times, const double *on, double *end, double *scratch) {
    const char *name = task->name;
    const int rounds = neo__sample_reduces(task) ? 2 : 1,
              lengths = !strcmp(name, "ids"), /* which travel first */
              back = lengths || !strcmp(name, "gradients"), local = task->lane == NEO_LANE_LOCAL;
    const double latency =
        times * NEO__MAX(task->seconds - neo__sample_takes(timeline, task), 0.0) /
        (rounds + lengths);
    double *at = scratch, *takes = at + timeline->all;
    for (int32_t set = 0;; set++) {
        const neo__sample_set x = neo__sample_set_of(timeline, task, sums, set);
        if (!x.n) break;
        for (int32_t i = 0; i < x.n; i++) {
            at[i] = end[x.base + i * x.stride];
            takes[i] = on[x.base + i * x.stride] * times;
        }
        const int32_t each = local ? x.node : x.n, node = local ? 1 : x.node;
        for (int32_t i = 0; i < x.n; i += each) {
            const int32_t n = NEO__MIN(each, x.n - i);
            double last = 0.0;
            for (int32_t k = i; k < i + n && lengths; k++) last = NEO__MAX(last, at[k] + latency);
            for (int32_t k = i; k < i + n && lengths && n > node; k++) at[k] = last;
            for (int k = 0; k < rounds; k++)
                neo__sample_exchange(at + i, takes + i, n, node, back, latency,
                                     takes + timeline->all);
        }
        for (int32_t i = 0; i < x.n; i++) end[x.base + i * x.stride] = at[i];
    }
}
/* Seconds of a task's share on each rank; of an all-reduce, of each of its two rounds. Returns 1 if
   it is of sums of nodes. */
static int neo__sample_shares(const neo_timeline *timeline, const neo_task *task, double *on) {
    static const char *const names[NEO__PLAN_PHASES] = {"ids",       "lookup", "rows",
                                                        "gradients", "update", "replicas"};
    const int computes = task->lane == NEO_LANE_COMPUTE;
    const double takes = computes ? task->seconds : neo__sample_takes(timeline, task);
    int p = 0, sums = 0;
    while (p < NEO__PLAN_PHASES && strcmp(names[p], task->name)) p++;
    const double *part = timeline->part[p < NEO__PLAN_PHASES ? p : 0];
    double of[NEO__PLAN_PARTS] = {0.0}, whole = 0.0;
    if (p < NEO__PLAN_PHASES) of[task->lane] = 1.0;
    if (task->lane == NEO_LANE_CROSS && part[NEO__PLAN_SUMS] > 0.0 && p < NEO__PLAN_PHASES) {
        const double by = task->bytes / timeline->cluster.link[NEO_LEVEL_CROSS].bandwidth,
                     off = by - part[NEO__PLAN_SUMS], other = by - part[NEO_LANE_CROSS];
        sums = off * off <= other * other;
        of[NEO__PLAN_SUMS] = sums || p == NEO__PLAN_BACKWARD;
        of[NEO_LANE_CROSS] = !sums || p == NEO__PLAN_BACKWARD;
    }
    for (int k = 0; k < NEO__PLAN_PARTS; k++) whole += of[k] * part[k];
    for (int32_t r = 0; r < timeline->all; r++) {
        double mine = 0.0;
        for (int k = 0; k < NEO__PLAN_PARTS && whole > 0.0; k++)
            mine += of[k] * timeline->share[k * timeline->ranks + r % timeline->ranks].at[p];
        on[r] = whole > 0.0                          ? takes * mine / whole
                : computes || p < NEO__PLAN_PHASES ? takes : takes / 2.0;
    }
    return sums;
}
/* A step that rank r begins at began[r], which becomes its end; returns that of the last. work:
   [tasks + 7][ranks] + 1. */
static double neo__sample_step(const neo_timeline *timeline, const neo_jitter *jitter,
                               uint64_t *state, double *began, double *work) {
    const int32_t ranks = timeline->all;
    double last = 0.0, *slow = work, *on = work + ranks, *scratch = on + ranks,
           *ended = scratch + 5 * ranks + 1;
    for (int32_t r = 0; r < ranks; r++)
        slow[r] = jitter->straggler > 0.0 && neo__sample_even(state) < jitter->straggler
                      ? (jitter->slow > 0.0 ? jitter->slow : 2.0) : 1.0;
    for (int32_t i = 0; i < timeline->eaches; i++) {
        const neo_task *task = &timeline->each[i];
        double *end = ended + (int64_t)i * ranks;
        const int sums = neo__sample_shares(timeline, task, on);
        for (int32_t r = 0; r < ranks; r++) {
            end[r] = began[r];
            for (int k = 0; k < NEO_TASK_WAITS; k++)
                if (task->after[k] >= 0)
                    end[r] = NEO__MAX(end[r], ended[(int64_t)task->after[k] * ranks + r]);
        }
        if (task->lane == NEO_LANE_COMPUTE) {
            for (int32_t r = 0; r < ranks; r++)
                end[r] += on[r] * slow[r] * neo__sample_times(state, jitter->compute);
        } else {
            const double times = neo__sample_times(state, jitter->link);
            neo__sample_links(timeline, task, sums, times, on, end, scratch);
        }
    }
    for (int32_t i = 0; i < timeline->eaches; i++)
        for (int32_t r = 0; r < ranks; r++)
            began[r] = NEO__MAX(began[r], ended[(int64_t)i * ranks + r]);
    for (int32_t r = 0; r < ranks; r++) last = NEO__MAX(last, began[r]);
    return last;
}
NEO__HOT_END
/* Seconds of steps, the pipeline of ranks being full. shaped: gets the tasks of the last, or
   NULL. */
static neo_status neo__sample_steps(const neo_timeline *timeline, const neo_jitter *jitter,
                                    uint64_t seed, int64_t steps, double *seconds,
                                    neo_timeline *shaped) {
    const size_t ranks = (size_t)timeline->all,
                 bytes = (((size_t)timeline->eaches + 8) * ranks + 1) * sizeof(double);
    double *began = (double *)neo__alloc_for(timeline->ctx, bytes, "neo_timeline"), last = 0.0;
    if (!began) return NEO_ERR_MEMORY;
    memset(began, 0, ranks * sizeof *began);
    for (int64_t i = -NEO__SAMPLE_FILL; i < steps; i++) {
        const double end = neo__sample_step(timeline, jitter, &seed, began, began + ranks);
        if (i >= 0) seconds[i] = end - last;
        if (i == steps - 1 && shaped) neo__timeline_shape(shaped, last, began + 8 * ranks + 1);
        last = end;
    }
    neo_free(timeline->ctx, began, bytes);
    return NEO_OK;
}
/* A timeline whose steps have not been played. */
static neo_status neo__timeline_make(const neo_plan *plan, const neo_dense_unit *units,
                                     int32_t count, int pipelined, neo_timeline **timeline) {
    const char *fn = "neo_timeline_create";
    NEO__ZERO(neo__timeline_build, build);
    size_t names = 0;
    NEO__TRY(neo__timeline_check(units, count, &names));
    const size_t tasks = NEO__TIMELINE_TABLES + (size_t)count * NEO__TIMELINE_UNIT,
                 shares = (size_t)NEO__PLAN_PARTS * (size_t)plan->desc.cluster.ranks *
                          sizeof(neo__plan_load),
                 bytes = sizeof(neo_timeline) + 2 * tasks * sizeof(neo_task) + shares +
                         (size_t)count * sizeof(neo_dense_unit) + tasks * sizeof(int32_t) + names;
    neo_timeline *made = (neo_timeline *)neo__alloc_for(plan->ctx, bytes, fn);
    if (!made) return NEO_ERR_MEMORY;
    memset(made, 0, bytes);
    made->ctx = plan->ctx, made->bytes = bytes;
    made->ranks = plan->desc.cluster.ranks, made->per_node = plan->per_node;
    made->all = (int32_t)(plan->model.ranks * plan->model.groups);
    made->per_node_of_all = plan->per_node_of_all, made->merged = (int32_t)plan->model.merged;
    made->task = (neo_task *)(void *)(made + 1);
    made->each = made->task + tasks;
    made->share = (neo__plan_load *)(void *)(made->each + tasks);
    memcpy(made->share, plan->share, shares);
    memcpy(made->part, plan->part, sizeof made->part);
    made->cluster = plan->desc.cluster;
    neo_dense_unit *named = (neo_dense_unit *)(void *)((char *)made->share + shares);
    made->shown = (int32_t *)(void *)(named + count);
    char *text = (char *)(made->shown + tasks);
    for (int32_t i = 0; i < count; i++) {
        const size_t length = strlen(units[i].name) + 1;
        named[i] = units[i];
        named[i].name = (const char *)memcpy(text, units[i].name, length);
        text += length;
    }
    build.plan = plan;
    build.units = named;
    build.unit_count = count;
    build.pipelined = pipelined;
    build.task = made->each;
    neo__timeline_run(&build);
    made->eaches = build.count;
    *timeline = made;
    return NEO_OK;
}
/* Steps of no chance: their mean, and the tasks of the first that takes as long. */
static neo_status neo__timeline_play(neo_timeline *timeline) {
    enum { STEPS = NEO__SAMPLE_STEADY };
    NEO__ZERO(neo_jitter, none);
    double step[STEPS], steady = 0.0;
    int at = 0;
    NEO__TRY(neo__sample_steps(timeline, &none, 0, STEPS, step, NULL));
    for (int i = 0; i < STEPS; i++) steady += step[i] / (double)STEPS;
    for (int i = 1; i < STEPS; i++) {
        const double off = step[i] - steady, least = step[at] - steady;
        if (NEO__MAX(off, -off) < 0.999 * NEO__MAX(least, -least)) at = i;
    }
    NEO__TRY(neo__sample_steps(timeline, &none, 0, at + 1, step, timeline));
    timeline->sum.steady = steady;
    return NEO_OK;
}
NEO_API neo_status neo_timeline_create(const neo_plan *plan, const neo_dense_unit *units,
                                       int32_t count, int pipelined, neo_timeline **timeline) {
    const char *fn = "neo_timeline_create";
    neo_dense_unit own[2];
    NEO__CHECK(timeline, NEO_ERR_ARG, "%s: timeline is NULL", fn);
    *timeline = NULL;
    NEO__CHECK(plan, NEO_ERR_ARG, "%s: plan is NULL", fn);
    if (!units) {
        neo__plan_units(&plan->desc, own);
        units = own;
        count = 2;
    }
    neo_timeline *made;
    NEO__TRY(neo__timeline_make(plan, units, count, pipelined, &made));
    const neo_status status = neo__timeline_play(made);
    if (status != NEO_OK) neo_timeline_destroy(made);
    else *timeline = made;
    return status;
}
NEO_API void neo_timeline_destroy(neo_timeline *timeline) {
    if (timeline) neo_free(timeline->ctx, timeline, timeline->bytes);
}
NEO_API const neo_task *neo_timeline_tasks(const neo_timeline *timeline, int32_t *count) {
    if (count) *count = timeline->count;
    return timeline->task;
}
NEO_API neo_timeline_sum neo_timeline_sum_of(const neo_timeline *timeline) { return timeline->sum; }

static int neo__sample_order(const void *x, const void *y) {
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
NEO_API neo_status neo_timeline_sample(const neo_timeline *timeline, const neo_jitter *jitter,
                                       uint64_t seed, int64_t steps, double *seconds) {
    const char *fn = "neo_timeline_sample";
    NEO__CHECK(timeline && jitter && seconds && steps > 0, NEO_ERR_ARG,
               "%s: an argument is NULL, or no steps are asked for", fn);
    NEO__CHECK(neo__plan_positive(jitter->compute) && neo__plan_positive(jitter->link) &&
                   neo__plan_positive(jitter->straggler) && jitter->straggler <= 1.0 &&
                   neo__plan_positive(jitter->slow),
               NEO_ERR_ARG, "%s: compute %g, link %g, straggler %g or slow %g is out of range", fn,
               jitter->compute, jitter->link, jitter->straggler, jitter->slow);
    NEO__TRY(neo__sample_steps(timeline, jitter, seed, steps, seconds, NULL));
    qsort(seconds, (size_t)steps, sizeof *seconds, neo__sample_order);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-buffers

   Bytes of exchanges and workspace on a rank. The search needs them as a sum over the rank's pieces
   (neo__plan_piece_buffer, neo__plan_copy_buffer) and over all pieces, for the rank's samples
   (neo__plan_sample_buffer). In the end a plan is held to the bytes of its neo_shard, where one can
   be made.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
static int64_t neo__plan_weight_bytes(const neo__plan_table *t, int64_t rows, int64_t cols) {
    return rows * (t->row_fixed + t->row_col * cols);
}
static int64_t neo__plan_piece_state(const neo__plan_table *t, int64_t rows, int64_t cols) {
    return rows * (t->state_fixed + t->state_col * cols);
}
/* Bytes of a line in memory, with its place in the cache; of rows and state of a piece, in a search
   those that memory would hold, at least a batch's. Seconds of an id whose row is read from the
   file, or the host's memory, and of the row that is written in its place. */
static double neo__plan_line_bytes(const neo__plan_table *t, int64_t cols) {
    enum { PLACE = 18 };
    return (double)(neo__plan_weight_bytes(t, 1, cols) + neo__plan_piece_state(t, 1, cols) + PLACE);
}
static double neo__plan_held_bytes(const neo__plan_table *t, int64_t rows, int64_t cols) {
    const double share = (double)rows / (double)t->rows, ids = share * (double)t->ids_capacity,
                 held = NEO__MAX(t->kept * (double)rows, ids);
    if (t->plan->tier_bytes)
        return NEO__MIN(held, (double)rows) * neo__plan_line_bytes(t, cols);
    return (double)neo__plan_weight_bytes(t, rows, cols) +
           (double)neo__plan_piece_state(t, rows, cols);
}
static double neo__plan_miss(const neo__plan_table *t, int64_t cols) {
    const neo_cluster *c = &t->plan->desc.cluster;
    const int in_file = t->plan->in_file;
    const double bandwidth = in_file ? c->file_bandwidth : c->host_bandwidth,
                 row_us = in_file ? c->file_row_us : c->host_row_us;
    return NEO__MIN(2.0 * (neo__plan_line_bytes(t, cols) / bandwidth + row_us * 1e-6),
                    1e100); /* prices are finite */
}
static double neo__plan_wire(neo_wire wire, int64_t cols) {
    return (double)neo_wire_row_bytes(wire, cols);
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
static double neo__plan_piece_buffer(const neo__plan_table *table, const neo__plan_cut *cut) {
    const neo_plan_desc *d = &table->plan->desc;
    neo__plan_flow flow = neo__plan_flow_of(table, cut, (double)table->ids_capacity);
    flow.bags *= table->plan->model.merged, flow.out *= table->plan->model.merged;
    double times = 1.0 + d->pipeline, row = 4.0 * (double)cut->cols;
    double bytes = flow.ids * (times * (double)NEO__PLAN_ID_BYTES + (double)NEO__PLAN_SORT_BYTES) +
                   flow.bags * times * (double)NEO__PLAN_BAG_BYTES;
    bytes += flow.out * (2.0 * row + neo__plan_wire(d->wire_forward, cut->cols) +
                      neo__plan_wire(d->wire_backward, cut->cols));
    if (!table->none) bytes += flow.bags * row; /* gradients, packed for the update */
    if (cut->in_node) bytes += flow.bags / cut->row_parts * row;
    double kept = d->kept_batches, most = kept > 1.0 ? kept * flow.ids : flow.ids;
    if (most > (double)cut->rows) most = (double)cut->rows;
    if (table->row_sums && cut->cols < table->dim) /* gradients wait for the sums of whole rows */
        bytes += most * (row + 64.0 + 8.0 * (double)neo__plan_blocks(cut->cols) *
                                          (1.0 + cut->local + cut->cross));
    else if (kept > 0.0) /* or for the step */
        bytes += most * (row + 64.0);
    if (d->sync_every < 0 && d->replicas > 1) /* merged gradients, their sum, and what is kept */
        bytes += (double)cut->rows * (3.0 * row + 64.0);
    return bytes + 4.0 * flow.ids * neo__plan_grad_floats(table, cut->cols);
}
static double neo__plan_sample_buffer(const neo__plan_table *table, const neo__plan_cut *cut) {
    const neo_plan *plan = table->plan;
    neo__plan_flow f = neo__plan_flow_of(table, cut, (double)table->ids_capacity);
    double times = 1.0 + plan->desc.pipeline;
    int partial = cut->row_parts > 1 && !table->none && !cut->in_node;
    double forward =
        partial ? 4.0 * (double)cut->cols : neo__plan_wire(plan->desc.wire_forward, cut->cols);
    if (cut->in_node) f.out /= cut->row_parts;
    return (times * (8.0 * f.ids + 4.0 * f.bags) +
            4.0 * f.ids * neo__plan_grad_floats(table, cut->cols) +
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
   >>impl-plan-tier

   Rows below memory. Of each table a curve says which share of its ids hits when so many rows are
   in memory: of the rows used most, or, of a cache of those used last, by Che's approximation (H.
   Che, Y. Tung, Z. Wang, 2002): a row that an id is of with probability p is there with 1 - e^(-p
   n), where n ids fill the cache. Both bend downwards. Memory is poured over the curves of a rank's
   pieces to a level: a price, in seconds that a byte saves, which the last row of each just pays. A
   search has one price for all ranks, by which the bytes and misses of a piece are its own; when
   all pieces have places each rank has its own, and then the tier says what fits to the line.
   ------------------------------------------------------------------------ */
enum { NEO__PLAN_CURVE = 384, NEO__PLAN_LAW = 32 };
static const double NEO__PLAN_PRICE = 1.02;
/* e^-x for x from 0 up, to 1e-4 of it where it is not tiny. */
static double neo__plan_decay(double x) {
    const double y = x / 64.0;
    double e = 1.0 - y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0)));
    if (x > 40.0) return 0.0;
    for (int i = 0; i < 6; i++) e *= e;
    return e;
}
/* Rows and shares of ids of a table's groups, those used most first, as points that are not yet
   summed; returns how many, below 0: the profile has another table of the name, or none. */
static int32_t neo__plan_groups(neo__plan_table *table, neo__plan_point *to) {
    const neo_plan_desc *desc = &table->plan->desc;
    const double law = NEO__PLAN_LAW;
    int64_t count = 0, rows = 0, ids = 0;
    double first = 0.0;
    if (desc->profile) {
        const neo_row_use *use = neo_profile_uses(desc->profile, table->desc->name, &count, &rows,
                                                  &ids);
        if (rows != table->rows) return -1;
        table->uses = (double)ids;
        for (int64_t i = 0; i < count; i++) {
            to[i].rows = (double)use[i].rows;
            to[i].hits = (double)use[i].ids / (double)ids;
        }
        return (int32_t)count;
    }
    table->uses = table->ids;
    for (int i = 1; i <= NEO__PLAN_LAW; i++) {
        double left = 1.0 - (double)i / law, u = 1.0 - left * left,
               end = u * (double)table->rows;
        if (desc->skew > 0.0 && i < NEO__PLAN_LAW)
            end = (double)neo_zipf((float)u, table->rows, (float)desc->skew);
        to[count].hits += (2.0 * left + 1.0 / law) / law;
        if (end <= first) continue; /* its ids are of the next group */
        to[count++].rows = end - first;
        first = end;
    }
    return (int32_t)count;
}
/* The groups as the curve of a cache. */
static int32_t neo__plan_curve(const neo__plan_point *group, int32_t groups, neo_evict evict,
                               neo__plan_point *to) {
    neo__plan_point sum = {0.0, 0.0};
    int32_t count = 0;
    const double least = groups ? group[groups - 1].hits / group[groups - 1].rows : 1.0;
    double n = groups ? group[0].rows / group[0].hits / 16.0 : 0.0; /* ids */
    for (; evict == NEO_EVICT_LRU && n * least < 40.0 && count < NEO__PLAN_CURVE - 1; n *= 1.3) {
        sum.rows = sum.hits = 0.0;
        for (int32_t i = 0; i < groups; i++) {
            double there = 1.0 - neo__plan_decay(group[i].hits / group[i].rows * n);
            sum.rows += group[i].rows * there;
            sum.hits += group[i].hits * there;
        }
        to[count++] = sum;
    }
    sum.rows = sum.hits = 0.0;
    for (int32_t i = 0; i < groups; i++) {
        sum.rows += group[i].rows;
        sum.hits += group[i].hits;
        if (evict == NEO_EVICT_LFU || i + 1 == groups) to[count++] = sum;
    }
    return count;
}
static double neo__plan_hits(const neo__plan_table *table, double rows) {
    neo__plan_point from = {0.0, 0.0};
    if (rows >= (double)table->rows || table->points == 0) return 1.0;
    for (int32_t i = 0; i < table->points; from = table->curve[i++])
        if (rows < table->curve[i].rows)
            return from.hits + (table->curve[i].hits - from.hits) * (rows - from.rows) /
                                   (table->curve[i].rows - from.rows);
    return 1.0;
}
/* Rows of a piece of which a byte saves as many seconds as the price, and more. */
static double neo__plan_pool_rows(const neo__plan_pool *pool, double price) {
    const neo__plan_table *table = pool->table;
    const double value = table->uses * neo__plan_miss(table, pool->cols) / pool->bytes;
    double rows = 0.0, hits = 0.0;
    int32_t low = 0, high = value > 0.0 ? table->points : 0;
    while (low < high) { /* the first point that is too dear */
        int32_t i = low + (high - low) / 2;
        rows = i ? table->curve[i - 1].rows : 0.0;
        hits = i ? table->curve[i - 1].hits : 0.0;
        if ((table->curve[i].hits - hits) * value >= price * (table->curve[i].rows - rows))
            low = i + 1;
        else
            high = i;
    }
    return low ? table->curve[low - 1].rows * pool->share : 0.0;
}
static double neo__plan_pools(const neo__plan_pool *pool, int64_t count, double price) {
    double bytes = 0.0;
    for (int64_t i = 0; i < count; i++)
        bytes += neo__plan_pool_rows(&pool[i], price) * pool[i].bytes;
    return bytes;
}
static void neo__plan_pour(neo__plan_pool *pool, int64_t count, double budget) {
    double low = 0.0, high = 1.0, some = 1.0;
    if (neo__plan_pools(pool, count, low) > budget) {
        while (neo__plan_pools(pool, count, high) > budget) high *= 2.0;
        while (high > NEO__MAX(low * NEO__PLAN_PRICE, 1e-300)) { /* like uses: not told apart */
            double price = low + (high - low) / 2.0;
            *(neo__plan_pools(pool, count, price) > budget ? &low : &high) = price;
        }
        const double less = neo__plan_pools(pool, count, high);
        some = (budget - less) / (neo__plan_pools(pool, count, low) - less);
    }
    for (int64_t i = 0; i < count; i++) { /* what is between the two prices is shared */
        const double rows = neo__plan_pool_rows(&pool[i], high);
        pool[i].rows = rows + some * (neo__plan_pool_rows(&pool[i], low) - rows);
    }
}
/* A pool of a piece, or of a table. */
static neo__plan_pool neo__plan_pool_of(const neo__plan_table *table, int64_t rows, int64_t cols) {
    neo__plan_pool pool = {table, (double)rows / (double)table->rows,
                           neo__plan_line_bytes(table, cols), cols, 0.0, NULL};
    return pool;
}
/* Curves of all tables, and what a search takes for them. */
static neo_status neo__plan_curves(neo_plan *plan) {
    const int32_t tables = plan->bags.table_count;
    neo__plan_point *group;
    neo__plan_pool *pool;
    for (int32_t t = 0; t < tables; t++) {
        neo__plan_table *table = &plan->table[t];
        neo__arena_free(&plan->work);
        NEO__TRY(NEO__ARENA(&plan->work, group, NEO__PLAN_CURVE));
        const int32_t groups = neo__plan_groups(table, group);
        NEO__CHECK(groups >= 0, NEO_ERR_MISMATCH,
                   "neo_plan: the profile has no table '%s' of %" PRId64 " rows",
                   table->desc->name, table->rows);
        NEO__TRY(NEO__ARENA(&plan->kept, table->curve, NEO__PLAN_CURVE));
        table->points = neo__plan_curve(group, groups, plan->evict, table->curve);
    }
    NEO__TRY(NEO__ARENA(&plan->work, pool, tables));
    for (int32_t t = 0; t < tables; t++)
        pool[t] = neo__plan_pool_of(&plan->table[t], plan->table[t].rows, plan->table[t].dim);
    neo__plan_pour(pool, tables, (double)plan->tier_bytes * plan->model.ranks);
    for (int32_t t = 0; t < tables; t++) {
        plan->table[t].kept = pool[t].rows / (double)plan->table[t].rows;
        plan->table[t].missing = 1.0 - neo__plan_hits(&plan->table[t], pool[t].rows);
    }
    neo__arena_free(&plan->work);
    return NEO_OK;
}
/* Shares of each rank's memory: as poured, of tables that have none of their own; even where
   nothing is known of the rows. Bytes are those that lines had by the shares before; first all. */
static void neo__plan_share_tiers(neo_plan *plan) {
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++) {
        neo__plan_pool *pool = plan->pools;
        double bytes = 0.0;
        for (int64_t i = plan->rank_first[r]; i < plan->rank_first[r + 1]; i++) {
            const int64_t at = plan->rank_piece[i];
            const neo_piece *p = &plan->piece[at];
            if (p->rank == NEO_EVERY_RANK) continue;
            *pool = neo__plan_pool_of(&plan->table[p->table], p->rows, p->cols);
            pool->lines = &plan->lines[at];
            bytes += (double)pool->lines->rows * pool->bytes;
            pool++;
        }
        const int64_t count = pool - plan->pools;
        neo__plan_pour(plan->pools, count, bytes > 0.0 ? bytes : (double)plan->tier_bytes);
        for (pool = plan->pools; pool < plan->pools + count; pool++) {
            const neo__plan_table *table = pool->table;
            const double own = table->desc->tier_share * pool->share * (double)pool->cols /
                               (double)table->dim, poured = pool->rows * pool->bytes;
            pool->lines->missing = table->missing;
            pool->lines->rows = pool->lines->below_bytes = 0;
            pool->lines->share = own > 0.0 ? own : plan->known ? NEO__MAX(poured, 1.0) : 0.0;
        }
    }
}
/* Misses of the pieces, by the rows that their tiers have room for. */
static void neo__plan_find_hits(neo_plan *plan) {
    const double ways = NEO__LINE_WAYS,
                 used = plan->evict == NEO_EVICT_LFU ? (ways - 1.0) / ways : 1.0;
    for (int64_t i = 0; i < plan->piece_count; i++) {
        const neo_piece *p = &plan->piece[i];
        const neo__plan_table *table = &plan->table[p->table];
        neo__plan_lines *lines = &plan->lines[i];
        const double of = (double)table->rows / (double)p->rows;
        lines->missing = lines->below_bytes
                             ? 1.0 - neo__plan_hits(table, used * (double)lines->rows * of)
                             : 0.0;
    }
}
NEO_API neo_plan_tier neo_plan_tier_of(const neo_plan *plan, int32_t t) {
    NEO_ASSERT(t >= 0 && t < plan->bags.table_count);
    const neo__plan_table *table = &plan->table[t];
    neo_plan_tier tier = {(double)table->rows, 1.0, 0, 0};
    const neo_piece *piece = plan->piece + table->first_piece;
    int64_t *below = plan->in_file ? &tier.file_bytes : &tier.host_bytes;
    if (!plan->tier_bytes || piece->rank == NEO_EVERY_RANK) return tier;
    tier.rows = 0.0;
    for (int64_t i = 0; i < table->piece_count; i++) {
        const neo__plan_lines *lines = &plan->lines[table->first_piece + i];
        const double cols = (double)piece[i].cols / (double)table->dim;
        tier.rows += (double)lines->rows * cols;
        tier.hits -= lines->missing * cols * (double)piece[i].rows / (double)table->rows;
        *below += lines->below_bytes;
    }
    return tier;
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
/* Fills in the spans. */
static neo__plan_load neo__plan_load_total(const neo_plan *plan, neo__plan_load x) {
    const double out = x.at[NEO__PLAN_LOOKUP] + x.at[NEO__PLAN_FORWARD];
    x.at[NEO__PLAN_OUT] = out + (plan->desc.pipeline ? 0.0 : x.at[NEO__PLAN_IDS]);
    x.at[NEO__PLAN_BACK] =
        x.at[NEO__PLAN_BACKWARD] + x.at[NEO__PLAN_UPDATE] + x.at[NEO__PLAN_MEET];
    x.at[NEO__PLAN_SECONDS] = x.at[NEO__PLAN_IDS] + out + x.at[NEO__PLAN_BACK];
    return x;
}
/* The longest span back of `count` ranks of a node whose ranks add partial sums: there they wait
   for each other's gradients. */
static double neo__plan_node_back(const neo__plan_load *load, int32_t count) {
    double most[2] = {0.0, 0.0};
    for (int32_t r = 0; r < count; r++) {
        const double *x = load[r].at, step = x[NEO__PLAN_UPDATE] + x[NEO__PLAN_MEET];
        most[0] = NEO__MAX(most[0], x[NEO__PLAN_BACKWARD]);
        most[1] = NEO__MAX(most[1], step);
    }
    return most[0] + most[1];
}
/* The loads of the slowest ranks. add: partial sums are added inside of nodes. */
static void neo__plan_slowest(const neo_plan *plan, const neo__plan_load *load, int add,
                              double *most) {
    const int32_t ranks = plan->desc.cluster.ranks, node = plan->per_node;
    memset(most, 0, NEO__PLAN_LOADS * sizeof *most);
    neo__plan_most(load, ranks, most);
    for (int32_t r = 0; add && r < ranks; r += node) {
        const double back = neo__plan_node_back(load + r, NEO__MIN(node, ranks - r));
        most[NEO__PLAN_BACK] = NEO__MAX(most[NEO__PLAN_BACK], back);
    }
}

/* Parts that a shard makes of rows of a table: subtrees of its buckets. */
static int32_t neo__plan_parts(const neo__plan_table *t, const neo_piece *p) {
    return (int32_t)neo__shard_cut_piece(t->desc, p, 0, 0, NULL);
}
/* Fewer columns than were measured take as long as 16, if the line says less than nothing for 0. */
static double neo__plan_moved(const neo__plan_rate *r, double ids, double bags, double out,
                              int64_t cols) {
    const double c = (double)(r->id < 0.0 || r->bag < 0.0 ? NEO__MAX(cols, 16) : cols);
    return ids * (r->id + r->id_col * c) + bags * r->bag + out * r->bag_col * c +
           NEO__MAX(r->piece + r->piece_col * (double)cols, 0.0);
}
/* Bytes of an all-reduce of gradients: of a copy on every rank, or a piece of merged replicas; with
   a mark of each row. A row of them, moved and kept, takes as long as so many that wait. (16: 26
   tables of 16 columns and 30 to 3,000 rows.) */
enum { NEO__PLAN_COPY_ROW = 16 };
static double neo__plan_reduced(int64_t rows, int64_t cols) {
    return (double)rows * (4.0 * (double)cols + 1.0);
}
/* The part in it of replicas that do not step by all samples: a step's share of the averages; or
   merged gradients, whose rows are kept. */
static void neo__plan_apart_load(const neo__plan_table *table, const neo__plan_cut *cut, double ids,
                                 double *load) {
    const neo_plan *plan = table->plan;
    const neo__plan_model *model = &plan->model;
    const double groups = model->groups, c = 4.0 * (double)cut->cols;
    if (plan->desc.sync_every >= 0) {
        load[NEO__PLAN_MEET] =
            2.0 * (double)(neo__plan_weight_bytes(table, cut->rows, cut->cols) +
                           neo__plan_piece_state(table, cut->rows, cut->cols)) *
            ((groups - 1.0) / groups * model->to_other + model->copy) /
            NEO__MAX((double)plan->desc.sync_every, 1.0);
        return;
    }
    const double all = NEO__MIN(table->fresh * ids * groups, (double)cut->rows);
    load[NEO__PLAN_MEET] = neo__plan_reduced(cut->rows, cut->cols) *
                           (2.0 * (groups - 1.0) / groups * model->to_other + 3.0 * model->copy);
    load[NEO__PLAN_UPDATE] +=
        all * ((double)NEO__PLAN_COPY_ROW * model->kept + 2.0 * c * model->copy);
}
/* Load of a piece on the rank that holds it. */
static neo__plan_load neo__plan_piece_load(const neo__plan_table *table, const neo__plan_cut *cut) {
    const neo_plan *plan = table->plan;
    const neo__plan_model *model = &plan->model;
    neo__plan_load load;
    neo__plan_flow flow = neo__plan_flow_of(table, cut, model->batch * table->ids);
    double slice = model->batch * table->features, c = 4.0 * (double)cut->cols, k = cut->row_parts;
    double row = (double)(table->row_fixed + table->row_col * cut->cols);
    double index = model->id_bytes * flow.ids * model->distinct + 4.0 * flow.bags;
    double forward = neo__plan_wire(plan->desc.wire_forward, cut->cols);
    double backward = neo__plan_wire(plan->desc.wire_backward, cut->cols);
    const double merged = model->merged, other = merged - 1.0;
    double touched = NEO__MIN(table->fresh * flow.ids * merged, (double)cut->rows);
    const double sent = plan->desc.skip_empty ? NEO__MIN(flow.out, flow.ids) : flow.out;
    load.at[NEO__PLAN_IDS] = index * (model->to_all + other * model->to_other) +
                             (model->whole ? 0.0 : 2.0 * merged * index * model->copy);
    load.at[NEO__PLAN_LOOKUP] =
        neo__plan_moved(&table->rate[0], model->distinct * flow.ids, model->distinct * flow.bags,
                        flow.out, cut->cols);
    load.at[NEO__PLAN_UPDATE] = neo__plan_moved(&table->rate[1], merged * flow.ids,
                                                merged * flow.bags, merged * flow.out, cut->cols);
    load.at[NEO__PLAN_BACKWARD] = sent * backward * model->to_all;
    if (cut->row_parts == 1 || table->none) {
        load.at[NEO__PLAN_FORWARD] = sent * forward * model->to_all;
    } else if (cut->in_node) { /* inside a node bags are packed and added besides */
        double inside = flow.bags * c * ((k - 1.0) / k) * model->local +
                        flow.bags * (2.0 * c * model->copy + model->row);
        load.at[NEO__PLAN_FORWARD] = inside + slice / k * forward * model->to_nodes;
        load.at[NEO__PLAN_BACKWARD] = inside + slice / k * backward * model->to_nodes;
    } else {
        load.at[NEO__PLAN_FORWARD] = sent * c * model->to_all;
    }
    load.at[NEO__PLAN_MEET] = other * flow.out * c * model->to_other;
    if (model->groups > merged) neo__plan_apart_load(table, cut, flow.ids, load.at);
    if (plan->desc.weight_grad)
        load.at[NEO__PLAN_BACKWARD] +=
            (row * flow.ids + c * flow.out) * neo__plan_lookup(table) +
            4.0 * flow.ids * neo__plan_grad_floats(table, cut->cols) * model->to_all;
    if ((table->row_sums && cut->cols < table->dim) || plan->desc.kept_batches)
        load.at[NEO__PLAN_UPDATE] += touched * (model->kept + 2.0 * c * model->copy);
    if (table->row_sums && cut->local + cut->cross > 0)
        load.at[NEO__PLAN_UPDATE] += 4.0 * (double)neo__plan_blocks(cut->cols) * touched *
                                  (cut->local * model->local + cut->cross * model->cross);
    if (cut->missing > 0.0)
        load.at[NEO__PLAN_LOOKUP] += flow.ids * cut->missing * neo__plan_miss(table, cut->cols);
    load.at[NEO__PLAN_BYTES] =
        neo__plan_held_bytes(table, cut->rows, cut->cols) +
        (plan->rows_alone ? 0.0 : neo__plan_piece_buffer(table, cut));
    return neo__plan_load_total(plan, load);
}
/* Load of a piece on every rank, as an owner of samples. */
static neo__plan_load neo__plan_sample_load(const neo__plan_table *table,
                                            const neo__plan_cut *cut) {
    const neo__plan_model *m = &table->plan->model;
    NEO__ZERO(neo__plan_load, x);
    neo__plan_flow f = neo__plan_flow_of(table, cut, m->batch * table->ids);
    if (cut->in_node) f.out = m->batch * table->features / cut->row_parts;
    x.at[NEO__PLAN_BYTES] =
        table->plan->rows_alone ? 0.0 : neo__plan_sample_buffer(table, cut);
    if (m->whole) return x;
    x.at[NEO__PLAN_IDS] =
        m->distinct * f.ids / m->ranks * ((double)cut->cols / (double)table->dim) * m->id;
    x.at[NEO__PLAN_FORWARD] = x.at[NEO__PLAN_BACKWARD] =
        f.out / m->ranks * (2.0 * 4.0 * (double)cut->cols * m->copy + m->row);
    return neo__plan_load_total(table->plan, x);
}
/* Load of a copy on every rank, for each. */
static neo__plan_load neo__plan_copy_load(const neo__plan_table *table) {
    const neo__plan_model *m = &table->plan->model;
    NEO__ZERO(neo__plan_load, load);
    double all = m->batch * m->groups * table->ids, ids = all / m->groups / m->ranks,
           bags = m->batch / m->ranks * table->features;
    double c = 4.0 * (double)table->dim, rows = (double)table->rows, out = table->none ? ids : bags;
    load.at[NEO__PLAN_LOOKUP] = neo__plan_moved(&table->rate[0], m->distinct * ids,
                                                m->distinct * bags, out, table->dim);
    load.at[NEO__PLAN_UPDATE] = neo__plan_moved(&table->rate[1], ids, bags, out, table->dim);
    if (m->ranks * m->groups > 1.0) {
        load.at[NEO__PLAN_FORWARD] = load.at[NEO__PLAN_BACKWARD] =
            bags * (2.0 * c * m->copy + m->row);
        load.at[NEO__PLAN_UPDATE] += 3.0 * c * rows * m->copy;
        load.at[NEO__PLAN_UPDATE] +=
            table->fresh * all * ((double)NEO__PLAN_COPY_ROW * m->kept + 2.0 * c * m->copy);
    }
    load.at[NEO__PLAN_BYTES] = (double)neo__plan_weight_bytes(table, table->rows, table->dim) +
                            (double)neo__plan_piece_state(table, table->rows, table->dim) +
                            neo__plan_copy_buffer(table);
    return neo__plan_load_total(table->plan, load);
}

/* The step of a search. most: of each phase and span, the slowest rank's seconds; reduce_bytes: of
   dense gradients. The slowest ranks of all phases together take longer than a step, as others are
   slow in the next, and the rank with the longest span is mostly faster, as it waits for others:
   spans: how far between the two a step is taken to be, 0 to 1. */
static neo_plan_step neo__plan_step_make(const neo_plan *plan, const double *most,
                                         double reduce_bytes, double spans) {
    const neo__plan_model *model = &plan->model;
    const neo_plan_desc *desc = &plan->desc;
    NEO__ZERO(neo_plan_step, step);
    const double samples = model->batch / model->ranks / desc->cluster.flops,
                 latency = model->exchange_latency;
    step.ids = most[NEO__PLAN_IDS] + 2.0 * latency; /* lengths, then ids */
    step.lookup = most[NEO__PLAN_LOOKUP];
    step.forward = most[NEO__PLAN_FORWARD] + latency;
    step.backward = most[NEO__PLAN_BACKWARD] + latency;
    step.update = most[NEO__PLAN_UPDATE] + most[NEO__PLAN_MEET];
    step.bottom = desc->dense_flops_bottom * samples;
    step.top = desc->dense_flops_top * samples;
    step.reduce = model->reduce;
    if (reduce_bytes > 0.0) /* gradients, and marks of rows */
        step.reduce += reduce_bytes * model->all_reduce + 2.0 * model->reduce_latency;
    const double phases = 1.0 - spans, before = desc->pipeline ? 0.0 : step.ids,
                 out = phases * (before + step.lookup + step.forward) +
                       spans * (most[NEO__PLAN_OUT] + latency + (before > 0.0 ? 2.0 * latency : 0)),
                 back = phases * (step.backward + step.update) +
                        spans * (most[NEO__PLAN_BACK] + latency);
    step.plain = step.ids - before + out + back + 3.0 * (step.bottom + step.top) + step.reduce;
    step.pipelined = NEO__MAX(step.lookup + step.bottom, out) + 3.0 * step.top +
                     NEO__MAX(NEO__MAX(2.0 * step.bottom + step.update, back),
                              NEO__MAX(2.0 * step.bottom, step.backward) + step.reduce);
    step.pipelined =
        NEO__MAX(step.pipelined, step.ids + step.forward + step.backward + step.reduce);
    return step;
}

NEO__HOT_END

/* Fills in plan->cut: the pieces [begin, end) are a slice. */
static void neo__plan_cut_slice(neo_plan *plan, const neo__plan_table *table, int64_t begin,
                                int64_t end) {
    int in_node = end - begin > 1 && plan->nodes > 1 && !table->none;
    int64_t first = table->first_piece, last = first + table->piece_count;
    for (int64_t i = begin; i < end; i++)
        if (plan->piece[i].rank / plan->per_node != plan->piece[begin].rank / plan->per_node)
            in_node = 0;
    for (int64_t i = begin; i < end; i++) {
        const neo_piece *piece = &plan->piece[i];
        neo__plan_cut *cut = &plan->cut[i];
        cut->rows = piece->rows;
        cut->cols = piece->cols;
        cut->row_parts = (int32_t)(end - begin);
        cut->parts = neo__plan_parts(table, piece);
        cut->in_node = in_node;
        if (cut->cols < table->dim)
            plan->cut_rounds =
                NEO__MAX(plan->cut_rounds, neo_bag_cut_rounds(&table->desc->optim));
        cut->missing = plan->tier_bytes ? plan->lines[i].missing : 0.0;
        cut->local = cut->cross = 0;
        for (int64_t k = first; table->row_sums && end - begin < table->piece_count && k < last;
             k++) {
            const neo_piece *q = &plan->piece[k];
            if (q->first_col == piece->first_col || q->rank == piece->rank ||
                q->first_row >= piece->first_row + piece->rows ||
                piece->first_row >= q->first_row + q->rows)
                continue;
            if (q->rank / plan->per_node == piece->rank / plan->per_node)
                cut->local++;
            else
                cut->cross++;
        }
    }
}
/* Seconds of ids on their way that a rank has for another slice of the same rows. */
static double neo__plan_again(const neo_plan *plan, const neo__plan_table *table,
                              int64_t slice, int64_t k) {
    const neo_piece *p = plan->piece;
    for (int64_t i = table->first_piece; i < slice; i++)
        if (p[i].rank == p[k].rank && p[i].first_row == p[k].first_row &&
            p[i].rows == p[k].rows) {
            const neo__plan_model *m = &plan->model;
            neo__plan_flow f = neo__plan_flow_of(table, &plan->cut[k], m->batch * table->ids);
            return (m->id_bytes * m->distinct * f.ids + 4.0 * f.bags) *
                   (m->to_all + (m->merged - 1.0) * m->to_other);
        }
    return 0.0;
}
/* Loads of ranks, but for their bytes, from the pieces; *reduce: bytes of dense gradients. Returns
   the bytes of buffers that a rank has for its samples. */
static double neo__plan_predict_loads(neo_plan *plan, double *reduce) {
    NEO__ZERO(neo__plan_load, all);
    *reduce = plan->copy_rows = 0.0;
    plan->cut_rounds = 0;
    for (int32_t i = 0; i < plan->bags.table_count; i++) {
        const neo__plan_table *table = &plan->table[i];
        const neo_piece *piece = plan->piece;
        int64_t last = table->first_piece + table->piece_count;
        if (piece[table->first_piece].rank == NEO_EVERY_RANK) {
            neo__plan_load x = neo__plan_copy_load(table);
            x.at[NEO__PLAN_BYTES] = 0.0; /* counted as a piece of each rank */
            neo__plan_load_add(&all, &x);
            *reduce += neo__plan_reduced(table->rows, table->dim);
            plan->copy_rows += (double)table->rows;
            continue;
        }
        for (int64_t begin = table->first_piece, end; begin < last; begin = end) {
            for (end = begin; end < last && piece[end].first_col == piece[begin].first_col;) end++;
            neo__plan_cut_slice(plan, table, begin, end);
            for (int64_t k = begin; k < end; k++) {
                neo__plan_load x = neo__plan_piece_load(table, &plan->cut[k]);
                neo__plan_load samples = neo__plan_sample_load(table, &plan->cut[k]);
                x.at[NEO__PLAN_IDS] -= neo__plan_again(plan, table, begin, k);
                neo__plan_load_add(&plan->load[piece[k].rank], &x);
                neo__plan_load_add(&all, &samples);
            }
        }
    }
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++) {
        neo__plan_load_add(&plan->load[r], &all);
        plan->load[r] = neo__plan_load_total(plan, plan->load[r]);
    }
    return all.at[NEO__PLAN_BYTES];
}
/* Why a tier has no room; of copies the largest. */
static void neo__plan_lacks(neo_plan *plan, const char *why) {
    const neo_piece *largest = NULL;
    int64_t most = 0;
    for (const neo_piece *p = plan->piece; p < plan->piece + plan->piece_count; p++) {
        const neo__plan_table *t = &plan->table[p->table];
        const int64_t bytes = neo__plan_weight_bytes(t, p->rows, p->cols) +
                              neo__plan_piece_state(t, p->rows, p->cols);
        if (p->rank == NEO_EVERY_RANK && bytes > most) largest = p, most = bytes;
    }
    size_t at = (size_t)snprintf(plan->lacks, sizeof plan->lacks, "%.300s", why);
    if (largest)
        snprintf(plan->lacks + at, sizeof plan->lacks - at,
                 "; of table '%.150s', %" PRId64 " bytes, every rank has a copy",
                 plan->table[largest->table].desc->name, most);
}
/* Bytes of each rank. Buffers are those of the neo_shard that the plan makes; of a plan that none
   takes, the search's sum, with sample_bytes for the rank's samples. */
static neo_status neo__plan_predict_bytes(neo_plan *plan, double sample_bytes) {
    int32_t ranks = plan->desc.cluster.ranks, all = ranks * NEO__MAX(plan->desc.replicas, 1);
    size_t bytes = (size_t)all * sizeof(neo_shard_memory);
    neo_shard_memory *each = (neo_shard_memory *)neo__alloc_for(plan->ctx, bytes, "neo_plan");
    if (!each) return NEO_ERR_MEMORY;
    const neo_status placed = neo__shard_plan_bytes(plan->ctx, plan, 0, all, each, plan->lines);
    const int lines = plan->tier_bytes && placed == NEO_OK;
    for (int32_t r = 0; r < ranks; r++) {
        neo_plan_rank *rank = &plan->rank[r];
        double buffers = sample_bytes;
        rank->weight_bytes = rank->state_bytes = 0;
        for (int64_t i = plan->rank_first[r]; i < plan->rank_first[r + 1]; i++) {
            int64_t at = plan->rank_piece[i];
            const neo_piece *p = &plan->piece[at];
            const neo__plan_table *t = &plan->table[p->table];
            rank->weight_bytes += neo__plan_weight_bytes(t, p->rows, p->cols);
            rank->state_bytes += neo__plan_piece_state(t, p->rows, p->cols);
            buffers += p->rank == NEO_EVERY_RANK ? neo__plan_copy_buffer(t)
                                                 : neo__plan_piece_buffer(t, &plan->cut[at]);
        }
        rank->buffer_bytes = placed == NEO_OK ? 0 : (int64_t)buffers + 1;
        for (int32_t i = r; i < all && placed == NEO_OK; i += ranks) /* the most of its replicas */
            rank->buffer_bytes =
                NEO__MAX(rank->buffer_bytes,
                         (int64_t)(each[i].exchange_bytes + each[i].workspace_bytes));
        if (!lines) continue;
        rank->weight_bytes = (int64_t)each[r].weight_bytes;
        rank->state_bytes = (int64_t)each[r].state_bytes;
        rank->file_bytes = (int64_t)each[r].file_bytes;
    }
    neo_free(plan->ctx, each, bytes);
    if (plan->tier_bytes && placed != NEO_OK) { /* a tier has no room for a batch: too large */
        plan->rank[0].buffer_bytes = NEO__PLAN_NO_ROOM;
        neo__plan_lacks(plan, neo_last_error());
    }
    return placed == NEO_ERR_MEMORY ? placed : NEO_OK;
}
/* Seconds of each phase on each lane, of each rank and the most of any: loads are linear in what a
   byte takes on a link, so those of a plan whose links take nothing are its computation. */
static void neo__plan_split(neo_plan *plan) {
    const neo__plan_model model = plan->model;
    neo__plan_load *load = plan->load, *at = plan->share;
    const int32_t ranks = plan->desc.cluster.ranks;
    double reduce;
    memset(at, 0, (size_t)NEO__PLAN_PARTS * (size_t)ranks * sizeof *at);
    for (int k = 0; k < NEO__PLAN_PARTS; k++) {
        neo__plan_model_links(plan, k == NEO_LANE_LOCAL ? model.local : 0.0,
                              k == NEO_LANE_CROSS ? model.cross : 0.0);
        plan->model.to_nodes = k == NEO__PLAN_SUMS ? model.to_nodes : 0.0;
        plan->load = at + k * ranks;
        (void)neo__plan_predict_loads(plan, &reduce);
    }
    memset(plan->part, 0, sizeof plan->part);
    for (int p = 0; p < NEO__PLAN_PHASES; p++)
        for (int32_t r = 0; r < ranks; r++)
            for (int k = 0; k < NEO__PLAN_PARTS; k++) {
                double *x = &at[k * ranks + r].at[p];
                *x = NEO__MAX(*x - (k ? at[r].at[p] : 0.0), 0.0);
                plan->part[p][k] = NEO__MAX(plan->part[p][k], *x);
            }
    plan->model = model;
    plan->load = load;
}
static double neo__plan_load_ranks(neo_plan *plan, double *reduce) {
    memset(plan->load, 0, (size_t)plan->desc.cluster.ranks * sizeof *plan->load);
    return neo__plan_predict_loads(plan, reduce);
}
/* Loads and bytes of all ranks. What a tier has beside its rows is known by a first round, its
   lines and so its misses by a second, and these are in the loads. */
static neo_status neo__plan_predict_ranks(neo_plan *plan, double *reduce) {
    if (!plan->tier_bytes)
        return neo__plan_predict_bytes(plan, neo__plan_load_ranks(plan, reduce));
    for (int round = 0; round < 2; round++) {
        neo__plan_share_tiers(plan);
        NEO__TRY(neo__plan_predict_bytes(plan, neo__plan_load_ranks(plan, reduce)));
    }
    neo__plan_find_hits(plan);
    (void)neo__plan_load_ranks(plan, reduce);
    return NEO_OK;
}
static neo_status neo__plan_predict(neo_plan *plan) {
    int32_t ranks = plan->desc.cluster.ranks, busiest = 0, fullest = 0;
    double sum = 0.0, reduce;
    int64_t most_bytes = -1;
    NEO__TRY(neo__plan_predict_ranks(plan, &reduce));
    for (int32_t r = 0; r < ranks; r++) {
        neo_plan_rank *rank = &plan->rank[r];
        const neo__plan_load load = plan->load[r];
        rank->ids = load.at[NEO__PLAN_IDS];
        rank->lookup = load.at[NEO__PLAN_LOOKUP];
        rank->forward = load.at[NEO__PLAN_FORWARD];
        rank->backward = load.at[NEO__PLAN_BACKWARD];
        rank->update = load.at[NEO__PLAN_UPDATE] + load.at[NEO__PLAN_MEET];
        rank->seconds = load.at[NEO__PLAN_SECONDS];
        int64_t bytes = rank->weight_bytes + rank->state_bytes + rank->buffer_bytes;
        if (bytes > most_bytes) most_bytes = bytes, fullest = r;
        if (rank->seconds > plan->rank[busiest].seconds) busiest = r;
        sum += rank->seconds;
    }
    plan->copy_bytes = reduce;
    NEO__ZERO(neo_plan_step, step);
    step.balance = sum > 0.0 ? plan->rank[busiest].seconds * ranks / sum : 1.0;
    step.busiest_rank = busiest;
    step.fullest_rank = fullest;
    step.most_bytes = most_bytes;
    plan->step = step;
    return NEO_OK;
}
/* The seconds of plan->step: those of the two timelines. */
static neo_status neo__plan_predict_step(neo_plan *plan) {
    const double samples = plan->model.batch / plan->model.ranks / plan->desc.cluster.flops;
    neo_plan_step *step = &plan->step;
    neo_dense_unit units[2];
    neo__plan_split(plan);
    neo__plan_units(&plan->desc, units);
    for (int pipelined = 1; pipelined >= 0; pipelined--) {
        neo_timeline *timeline;
        NEO__TRY(neo__timeline_make(plan, units, 2, pipelined, &timeline));
        const neo_status status = neo__timeline_play(timeline);
        if (pipelined) step->pipelined = timeline->sum.seconds;
        else neo__timeline_phases(timeline, step);
        neo_timeline_destroy(timeline);
        NEO__TRY(status);
    }
    step->bottom = plan->desc.dense_flops_bottom * samples;
    step->top = plan->desc.dense_flops_top * samples;
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-pieces

   Rectangles of tables: equal cuts, checks of the caller's own, and the index by rank. Part i of k
   of an equal cut has the blocks (of columns) or buckets (of rows) from i n/k up to (i + 1) n/k
   (neo__bucket_begin). Pieces are kept sorted by table, first column, first row.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
static int64_t neo__plan_row_units(const neo__plan_table *t) {
    const int64_t row = t->desc->keys.on ? NEO__LINE_WAYS : 1;
    return t->buckets ? t->buckets : t->rows / row;
}
static int64_t neo__plan_unit_row(const neo__plan_table *t, int64_t unit) {
    const int64_t row = t->desc->keys.on ? NEO__LINE_WAYS : 1;
    return t->buckets ? neo__bucket_begin(t->rows, t->buckets, unit) : unit * row;
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
#define NEO__PLAN_NO_COPIES "its keys come and go: copies need those of all ranks: take tw or rw"
/* The placement that the rectangles of a table amount to. */
static neo_placement neo__plan_classify(const neo__plan_table *table) {
    const neo_piece *p = table->plan->piece + table->first_piece;
    int32_t per_node = table->plan->per_node, one_node = table->plan->nodes > 1;
    int64_t slices = neo__plan_slices(table);
    for (int64_t i = 1; i < table->piece_count; i++)
        if (p[i].rank / per_node != p[0].rank / per_node) one_node = 0;
    if (p->rank == NEO_EVERY_RANK) return NEO_DATA_PARALLEL;
    if (table->piece_count == 1) return NEO_TABLE_WISE;
    if (slices == 1) return one_node ? NEO_TABLE_ROW_WISE : NEO_ROW_WISE;
    if (slices < table->piece_count) return NEO_GRID;
    return one_node ? NEO_TABLE_COLUMN_WISE : NEO_COLUMN_WISE;
}

/* ---- pieces of the caller: is every element somewhere, once, and every cut allowed? ---- */
static neo_status neo__plan_check_piece(const neo_plan *plan, const neo_piece *piece, int64_t i,
                                        const char *fn) {
    NEO__CHECK(piece->table >= 0 && piece->table < plan->bags.table_count, NEO_ERR_ARG,
               "%s: piece %" PRId64 ": table is %d, there are %d", fn, i, piece->table,
               plan->bags.table_count);
    const neo__plan_table *table = &plan->table[piece->table];
    const char *name = table->desc->name;
    NEO__CHECK(piece->rank >= NEO_EVERY_RANK && piece->rank < plan->desc.cluster.ranks, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": rank is %d, there are %d", fn, name, i,
               piece->rank, plan->desc.cluster.ranks);
    NEO__CHECK(piece->rows > 0 && piece->first_row >= 0 &&
                   piece->first_row <= table->rows - piece->rows && piece->cols > 0 &&
                   piece->first_col >= 0 && piece->first_col <= table->dim - piece->cols,
               NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": rows %" PRId64 "+%" PRId64 ", columns %" PRId64
               "+%" PRId64 " is empty or outside of %" PRId64 " x %" PRId64,
               fn, name, i, piece->first_row, piece->rows, piece->first_col, piece->cols,
               table->rows, table->dim);
    NEO__CHECK(
        piece->rank != NEO_EVERY_RANK || (piece->rows == table->rows && piece->cols == table->dim),
        NEO_ERR_ARG, "%s: table '%s': piece %" PRId64 ": what is on every rank is the whole table",
        fn, name, i);
    NEO__CHECK(piece->cols == table->dim || !table->scaled, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 " has %" PRId64 " of %" PRId64
               " columns: a row of i8 has one scale, cut the table by rows",
               fn, name, i, piece->cols, table->dim);
    NEO__CHECK(piece->first_col % plan->block == 0, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": column %" PRId64
               " is no place to cut: not a multiple of %" PRId64 "%s",
               fn, name, i, piece->first_col, plan->block,
               plan->block == NEO_WIRE_BLOCK ? ", the block of the wire's scales" : "");
    NEO__CHECK(piece->rows == table->rows || !table->loose || (table->allowed & NEO__PLAN_ROW_BITS),
               NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 " has %" PRId64 " of %" PRId64
               " rows, so sums would depend on the "
               "plan: give it row_buckets, or allow it a row placement",
               fn, name, i, piece->rows, table->rows);
    NEO__CHECK(neo__plan_row_begins(table, piece->first_row), NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": row %" PRId64
               " is no place to cut: none of the %d buckets begins there",
               fn, name, i, piece->first_row, table->buckets);
    NEO__CHECK(!table->desc->keys.on || piece->first_row % NEO__LINE_WAYS == 0, NEO_ERR_ARG,
               "%s: table '%s': piece %" PRId64 ": row %" PRId64
               " is no place to cut: a set of 32 rows for keys does not begin there",
               fn, name, i, piece->first_row);
    NEO__CHECK(piece->rank != NEO_EVERY_RANK || !table->desc->keys.on, NEO_ERR_UNSUPPORTED,
               "%s: table '%s': piece %" PRId64 ": %s", fn, name, i, NEO__PLAN_NO_COPIES);
    return NEO_OK;
}
static neo_status neo__plan_hole(const char *fn, const char *name, int64_t row, int64_t col) {
    return neo_fail(NEO_ERR_ARG, "%s: table '%s': row %" PRId64 ", column %" PRId64
                    " is in no piece", fn, name, row, col);
}
/* Pieces [0, count) of a table, sorted: row and col are where the next one has to begin. */
static neo_status neo__plan_check_tiles(const neo__plan_table *table, const neo_piece *piece,
                                        int64_t count, const char *fn) {
    const char *name = table->desc->name;
    int64_t col = 0, row = table->rows;
    NEO__CHECK(count > 0, NEO_ERR_ARG, "%s: table '%s' has no pieces", fn, name);
    for (int64_t i = 0; i < count; i++, piece++) {
        NEO__CHECK(piece->rank != NEO_EVERY_RANK || count == 1, NEO_ERR_ARG,
                   "%s: table '%s' is on every rank, and in other pieces too", fn, name);
        if (i == 0 || piece->first_col != piece[-1].first_col) { /* a slice begins */
            if (row < table->rows) return neo__plan_hole(fn, name, row, piece[-1].first_col);
            if (piece->first_col > col) return neo__plan_hole(fn, name, 0, col);
            NEO__CHECK(piece->first_col == col, NEO_ERR_ARG,
                       "%s: table '%s': column %" PRId64 " (of a piece on rank %d) is inside "
                       "another slice, which ends at column %" PRId64,
                       fn, name, piece->first_col, piece->rank, col);
            row = 0;
            col += piece->cols;
        }
        NEO__CHECK(piece->first_col + piece->cols == col, NEO_ERR_ARG,
                   "%s: table '%s': the pieces at column %" PRId64 " (on ranks %d and %d) differ "
                   "in their columns: cut columns first, then rows",
                   fn, name, piece->first_col, piece[-1].rank, piece->rank);
        if (piece->first_row > row) return neo__plan_hole(fn, name, row, piece->first_col);
        NEO__CHECK(piece->first_row == row, NEO_ERR_ARG,
                   "%s: table '%s': row %" PRId64 ", column %" PRId64
                   " is in two pieces, on ranks %d and %d",
                   fn, name, piece->first_row, piece->first_col, piece[-1].rank, piece->rank);
        row += piece->rows;
    }
    if (row < table->rows) return neo__plan_hole(fn, name, row, piece[-1].first_col);
    return col < table->dim ? neo__plan_hole(fn, name, 0, col) : NEO_OK;
}

/* Makes room for `count` pieces in place of those before; held: with copies on each rank. */
static neo_status neo__plan_hold(neo_plan *plan, int64_t count, int64_t held) {
    int32_t ranks = plan->desc.cluster.ranks;
    neo__arena *placed = &plan->placed;
    neo__arena_free(placed);
    plan->piece_count = count;
    NEO__TRY(NEO__ARENA(placed, plan->piece, count));
    NEO__TRY(NEO__ARENA(placed, plan->cut, count));
    if (plan->tier_bytes) NEO__TRY(NEO__ARENA(placed, plan->lines, count));
    if (plan->tier_bytes) NEO__TRY(NEO__ARENA(placed, plan->pools, count));
    NEO__TRY(NEO__ARENA(placed, plan->rank_first, ranks + 1));
    NEO__TRY(NEO__ARENA(placed, plan->rank_piece, held));
    NEO__TRY(NEO__ARENA(placed, plan->load, ranks));
    NEO__TRY(NEO__ARENA(placed, plan->share, (int)NEO__PLAN_PARTS * ranks));
    return NEO__ARENA(placed, plan->rank, ranks);
}
/* From the sorted pieces: tables, the index by rank, predictions but for the step's seconds. */
static neo_status neo__plan_finish(neo_plan *plan) {
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
    return neo__plan_predict(plan);
}
static neo_status neo__plan_fits_files(const neo_plan *plan, const char *fn) {
    const int64_t most = plan->desc.cluster.file_bytes;
    NEO__CHECK(plan->step.most_bytes < NEO__PLAN_NO_ROOM, NEO_ERR_CAPACITY, "%s: %s", fn,
               plan->lacks);
    for (int32_t r = 0; most && r < plan->desc.cluster.ranks; r++)
        NEO__CHECK(plan->rank[r].file_bytes <= most, NEO_ERR_CAPACITY,
                   "%s: the file of rank %d would have %" PRId64 " bytes, of %" PRId64, fn, r,
                   plan->rank[r].file_bytes, most);
    return NEO_OK;
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
    NEO__TRY(neo__plan_finish(plan));
    NEO__TRY(neo__plan_fits_files(plan, fn));
    NEO__CHECK(!budget || plan->step.most_bytes <= budget, NEO_ERR_CAPACITY,
               "%s: rank %d would need %" PRId64 " bytes, its budget is %" PRId64, fn,
               plan->step.fullest_rank, plan->step.most_bytes, budget);
    return neo__plan_predict_step(plan);
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
    int32_t adds;   /* 1: its partial sums are added inside of nodes */
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
static const char *neo__plan_reason(const neo__plan_table *table, neo_placement placement) {
    const neo_plan *plan = table->plan;
    int bit = 1 << (int)placement, rows = bit & NEO__PLAN_ROW_BITS;
    int cols = bit & NEO__PLAN_COLUMN_BITS, node = bit & NEO__PLAN_NODE_BITS;
    int allowed = (table->allowed & (unsigned)bit) != 0, named = plan->origin == NEO__PLAN_UNIFORM;
    if (rows && table->loose && !allowed)
        return "its sums would depend on the plan, as it has no row_buckets";
    if (!named && cols && table->none && !allowed)
        return "its rows are not pooled: they travel whole";
    if (!named && !allowed) return "not among the placements allowed";
    if (placement == NEO_TABLE_WISE) return NULL;
    if (placement == NEO_DATA_PARALLEL && table->desc->keys.on) return NEO__PLAN_NO_COPIES;
    if (placement == NEO_DATA_PARALLEL && !named && plan->desc.sync_every > 1 &&
        plan->desc.replicas > 1 && table->allowed != (unsigned)bit)
        return "copies step by all gradients in every step, where groups step alone (sync_every)";
    if (placement == NEO_DATA_PARALLEL && plan->desc.replicas > 1) return NULL;
    if (plan->desc.cluster.ranks == 1) return "there is one rank";
    if (node && plan->nodes == 1) return "there is one node";
    if (node && plan->last_node != plan->per_node) return "nodes have different numbers of ranks";
    if (node && placement != NEO_GRID && plan->per_node == 1) return "a node has one rank";
    if (placement == NEO_GRID && plan->per_node == 1)
        return "a node has one rank, so it would be cw";
    if (cols && table->scaled) return "a row of i8 has one scale";
    if (cols && table->blocks < 2)
        return plan->block == NEO_WIRE_BLOCK ? "its columns are one block of 64 (the wire's)"
                                             : "its columns are one block of 16";
    if (rows && neo__plan_row_units(table) < 2) return "it has one row";
    return NULL;
}

NEO__HOT_BEGIN
static neo__plan_cut neo__plan_option_cut(const neo__plan_table *table,
                                          const neo__plan_option *option, int32_t part) {
    neo__plan_cut cut;
    neo_piece p;
    int inside = option->placement == NEO_TABLE_COLUMN_WISE || table->plan->nodes == 1;
    neo__plan_part(table, option->col_parts, option->row_parts, part, &p);
    cut.rows = p.rows;
    cut.cols = p.cols;
    cut.row_parts = option->row_parts;
    cut.parts = neo__plan_parts(table, &p);
    cut.in_node = option->unit == NEO__UNIT_NODE && option->row_parts > 1 && !table->none;
    cut.local = inside ? option->col_parts - 1 : 0;
    cut.cross = inside ? 0 : option->col_parts - 1;
    cut.missing = table->missing;
    return cut;
}
static neo__plan_load neo__plan_part_load(const neo__plan_table *t, const neo__plan_option *o,
                                          int32_t part) {
    const neo__plan_cut cut = neo__plan_option_cut(t, o, part);
    return neo__plan_piece_load(t, &cut);
}
NEO__HOT_END
static void neo__plan_option_cost(const neo__plan_table *table, neo__plan_option *option) {
    double ranks = table->plan->model.ranks;
    NEO__ZERO(neo__plan_load, load);
    NEO__ZERO(neo__plan_load, samples);
    NEO__ZERO(neo__plan_cut, last);
    if (!option->col_parts) {
        option->all = neo__plan_copy_load(table);
        option->reduce_bytes = neo__plan_reduced(table->rows, table->dim);
    }
    for (int32_t i = 0; i < option->col_parts * option->row_parts; i++) {
        const neo__plan_cut cut = neo__plan_option_cut(table, option, i);
        option->adds = cut.in_node;
        if (cut.rows != last.rows || cut.cols != last.cols || cut.parts != last.parts) {
            load = neo__plan_piece_load(table, &cut); /* most parts are like the one before */
            samples = neo__plan_sample_load(table, &cut);
            last = cut;
        }
        neo__plan_load_add(&option->sum, &load);
        neo__plan_load_add(&option->all, &samples);
        neo__plan_most(&load, 1, option->worst.at);
    }
    option->seconds = option->all.at[NEO__PLAN_SECONDS] +
                      option->sum.at[NEO__PLAN_SECONDS] / ranks +
                      option->reduce_bytes * table->plan->model.all_reduce;
    option->peak = option->worst.at[NEO__PLAN_SECONDS] + option->all.at[NEO__PLAN_SECONDS];
    option->bytes = option->sum.at[NEO__PLAN_BYTES] + ranks * option->all.at[NEO__PLAN_BYTES];
    option->most_bytes = option->worst.at[NEO__PLAN_BYTES] + option->all.at[NEO__PLAN_BYTES];
    if (option->unit == NEO__UNIT_ALL) {
        neo__plan_load_add(&option->all, &option->worst);
        memset(&option->worst, 0, sizeof option->worst);
        memset(&option->sum, 0, sizeof option->sum);
    }
}
typedef struct neo__plan_options {
    int32_t count;
    neo__plan_option at[NEO__PLAN_OPTIONS];
} neo__plan_options;
static void neo__plan_option_add(const neo__plan_table *table, neo_placement placement, int unit,
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
    neo__plan_option_cost(table, o);
}
/* Numbers of parts that are tried below the most: 2, 3, 4, 6, 8, 12 ... */
static int64_t neo__plan_next_parts(int64_t n) {
    return (n & (n - 1)) == 0 ? (n == 2 ? 3 : n + n / 2) : n / 3 * 4;
}

/* The options of one placement; `few`: only that with the most parts. */
static void neo__plan_options_of(const neo__plan_table *table, neo_placement placement, int few,
                                 neo__plan_options *to) {
    const neo_plan *plan = table->plan;
    int64_t ranks = plan->desc.cluster.ranks, units = neo__plan_row_units(table);
    int64_t in_node = NEO__MIN(units, plan->per_node), cols = 1, rows = 1; /* at most */
    int by_rows = placement == NEO_ROW_WISE, by_cols = placement == NEO_COLUMN_WISE;
    int unit = 1 << (int)placement & NEO__PLAN_NODE_BITS ? NEO__UNIT_NODE : NEO__UNIT_RANK;
    if (neo__plan_reason(table, placement)) return;
    if (placement == NEO_DATA_PARALLEL) cols = rows = 0, unit = NEO__UNIT_ALL;
    if (by_cols) cols = NEO__MIN(table->blocks, ranks);
    if (placement == NEO_TABLE_COLUMN_WISE) cols = NEO__MIN(table->blocks, plan->per_node);
    if (placement == NEO_TABLE_ROW_WISE || placement == NEO_GRID) rows = in_node;
    if (placement == NEO_GRID) cols = NEO__MIN(table->blocks, plan->nodes);
    if (by_rows) rows = NEO__MIN(units, ranks);
    int64_t most = few ? 0 : by_rows ? rows : by_cols || placement == NEO_GRID ? cols : 0;
    for (int64_t k = 2; k < most; k = by_rows ? 2 * k : neo__plan_next_parts(k))
        neo__plan_option_add(table, placement, unit, by_rows ? 1 : k, by_rows ? k : rows, to);
    if (placement == NEO_ROW_WISE && rows == ranks) unit = NEO__UNIT_ALL;
    neo__plan_option_add(table, placement, unit, cols, rows, to);
}
/* Behind a table's options those of as many slices of columns as these leave out. */
static void neo__plan_options_finer(const neo__plan_table *table, neo__plan_options *to) {
    const int32_t count = to->count;
    for (int32_t i = 0; i < count; i++) {
        const neo__plan_option last = to->at[i];
        if (!(1 << (int)last.placement & NEO__PLAN_COLUMN_BITS) ||
            (i + 1 < count && to->at[i + 1].placement == last.placement))
            continue;
        for (int64_t k = 5, next = 6; k < last.col_parts; k++) {
            if (k == next) next = neo__plan_next_parts(k);
            else
                neo__plan_option_add(table, last.placement, last.unit, k, last.row_parts, to);
        }
    }
}
/* The placement of all tables of a uniform plan, or the one that a table alone has. */
static neo_placement neo__plan_uniform_of(const neo__plan_table *t) {
    const unsigned own = t->plan->desc.table_placements[t - t->plan->table];
    int p = 0;
    while (p < NEO_PLACEMENT_COUNT && own != 1u << p) p++;
    return p < NEO_PLACEMENT_COUNT ? (neo_placement)p : t->plan->uniform;
}
static void neo__plan_options_make(const neo__plan_table *t, neo__plan_options *to) {
    const neo_plan *plan = t->plan;
    to->count = 0;
    if (plan->origin == NEO__PLAN_UNIFORM) {
        neo__plan_options_of(t, neo__plan_uniform_of(t), 1, to);
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

/* The estimate of a step that a search minimises, and the weights of the busiest rank's load in the
   value while the best draft is refined, and then. */
typedef struct neo__plan_way {
    double spans, level, last;
} neo__plan_way;
static const neo__plan_way NEO__PLAN_WAYS[] = {
    {0.5, 0.3, 1.0}, {0.85, 0.3, 1.0}, {0.95, 0.5, 0.5}, {0.0, 0.3, 1.0}};

typedef struct neo__plan_search {
    neo_plan *plan;
    int32_t tables, ranks, nodes, per_node;
    int32_t adding; /* tables of the draft at hand whose partial sums are added inside of nodes */
    neo__plan_options *options; /* [tables] */
    int64_t *seat_first;        /* [tables + 1]: a table's seats are [first, next first), at most */
    int64_t seats;
    neo__plan_draft now, best;
    neo__plan_draft shortest; /* of all ways */
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
    double spans;     /* as of neo__plan_step_make */
    const neo__plan_way *way;
    double enough, limit; /* of levelling: see neo__plan_search_above */
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

/* The key of a rank that gets the load, lower is better; 0: it does not fit. */
static int neo__plan_search_score(neo__plan_search *search, neo__plan_goal goal, int32_t rank,
                                  const neo__plan_load *load, neo__plan_key *key) {
    const neo__plan_load *have = &search->load[rank];
    double bytes = have->at[NEO__PLAN_BYTES] + load->at[NEO__PLAN_BYTES], above = 0.0;
    double seconds = have->at[NEO__PLAN_SECONDS] + load->at[NEO__PLAN_SECONDS];
    search->tried++;
    if (bytes > search->cap) return 0;
    for (int i = 0; i < NEO__PLAN_PHASES; i++) {
        double phase = have->at[i] + load->at[i];
        if (phase > search->target[i]) above += phase - search->target[i];
    }
    key->first = goal == NEO__GOAL_MEMORY ? bytes : above;
    key->second = seconds;
    key->at = rank;
    return 1;
}
/* The `want` best of ranks [begin, end) to search->key, best first; returns how many there are. */
static int32_t neo__plan_search_best(neo__plan_search *search, neo__plan_goal goal,
                                     const neo__plan_load *load, int32_t begin, int32_t end,
                                     int32_t want) {
    int32_t count = 0;
    neo__plan_key key;
    for (int32_t r = begin; r < end; r++) {
        if (!neo__plan_search_score(search, goal, r, load, &key)) continue;
        if (count == want && neo__plan_key_order(&key, &search->key[count - 1]) >= 0) continue;
        int32_t i = count < want ? count++ : count - 1;
        for (; i > 0 && neo__plan_key_order(&key, &search->key[i - 1]) < 0; i--)
            search->key[i] = search->key[i - 1];
        search->key[i] = key;
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
static int neo__plan_search_place_slice(neo__plan_search *search, neo__plan_goal goal,
                                        int64_t table, int32_t first, int32_t parts) {
    const neo__plan_option *option = neo__plan_search_option(search, table);
    const int32_t *seat = search->now.seat + search->seat_first[table];
    neo__plan_key best, node;
    best.at = -1;
    for (node.at = 0; node.at < search->nodes; node.at++) {
        int32_t begin = (int32_t)node.at * search->per_node, taken = 0;
        for (int32_t j = 0; j < first; j += parts) taken |= seat[j] / search->per_node == node.at;
        if (taken || neo__plan_search_best(search, goal, &option->worst, begin,
                                           begin + search->per_node, parts) < parts)
            continue;
        node.first = node.second = 0.0;
        for (int32_t i = 0; i < parts; i++)
            node.first += search->key[i].first, node.second += search->key[i].second;
        if (best.at < 0 || neo__plan_key_order(&node, &best) < 0) best = node;
    }
    if (best.at < 0) return 0;
    int32_t begin = (int32_t)best.at * search->per_node;
    (void)neo__plan_search_best(search, goal, &option->worst, begin, begin + search->per_node,
                                parts);
    for (int32_t i = 0; i < parts; i++) search->key[i].first = search->key[i].second = 0.0;
    qsort(search->key, (size_t)parts, sizeof *search->key, neo__plan_key_order);
    for (int32_t i = 0; i < parts; i++)
        neo__plan_search_put(search, table, first + i, (int32_t)search->key[i].at);
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
static void neo__plan_search_begin(neo__plan_search *search) {
    NEO__ZERO(neo__plan_load, all);
    NEO__ZERO(neo__plan_load, sum);
    search->reduce_bytes = 0.0;
    search->adding = 0;
    for (int32_t t = 0; t < search->tables; t++) {
        const neo__plan_option *o = neo__plan_search_option(search, t);
        search->adding += o->adds;
        neo__plan_load_add(&all, &o->all);
        neo__plan_load_add(&sum, &o->sum);
        search->reduce_bytes += o->reduce_bytes;
    }
    for (int32_t r = 0; r < search->ranks; r++) {
        search->load[r] = all;
        search->load[r].at[NEO__PLAN_BYTES] += search->extra[r];
    }
    for (int i = 0; i < NEO__PLAN_TIMES; i++)
        search->target[i] = all.at[i] + sum.at[i] / search->ranks;
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
static int neo__plan_search_place(neo__plan_search *search, neo__plan_goal goal) {
    neo__plan_search_begin(search);
    if (search->load[0].at[NEO__PLAN_BYTES] > search->cap) return 0;
    neo__plan_search_sort(search, goal == NEO__GOAL_MEMORY ? NEO__PLAN_BYTES : NEO__PLAN_SECONDS);
    for (int nodes = 1; nodes >= 0; nodes--) {
        for (int32_t i = 0; i < search->tables; i++) {
            int64_t t = search->order[i].at;
            if ((neo__plan_search_option(search, t)->unit == NEO__UNIT_NODE) == nodes &&
                !neo__plan_search_place_table(search, goal, t))
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
    neo_plan_step step = neo__plan_step_make(s->plan, most, s->reduce_bytes, s->spans);
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
    double most[NEO__PLAN_LOADS][NEO__PLAN_TOP]; /* the largest loads, and where; of spans back, if
                                                    partial sums are added, in which node */
    int32_t place[NEO__PLAN_LOADS][NEO__PLAN_TOP];
    double value;
} neo__plan_top;
typedef struct neo__plan_move {
    int32_t group, other; /* other: the group it is exchanged for, or -1 */
    int32_t from, to;     /* places */
    double value, phase;  /* afterwards: of the step; of the slower of the two places */
} neo__plan_move;

/* Collects what can move: pieces on ranks (NEO__UNIT_RANK), or slices on nodes (NEO__UNIT_NODE). */
static void neo__plan_search_groups(neo__plan_search *search, int32_t unit) {
    search->groups = 0;
    search->width = unit == NEO__UNIT_NODE ? search->per_node : 1;
    for (int32_t t = 0; t < search->tables; t++) {
        const neo__plan_option *o = neo__plan_search_option(search, t);
        int32_t parts = unit == NEO__UNIT_NODE ? o->pieces / o->slices : 1;
        for (int32_t first = 0; o->unit == unit && first < o->pieces; first += parts) {
            neo__plan_group *g = &search->group[search->groups++];
            g->table = t;
            g->parts = parts;
            g->seat = search->seat_first[t] + first;
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
static void neo__plan_top_find(const neo__plan_search *search, neo__plan_top *top) {
    double all[NEO__PLAN_LOADS] = {0.0};
    memset(top->most, 0, sizeof top->most);
    memset(top->place, -1, sizeof top->place);
    const int adds = search->adding > 0;
    for (int32_t place = 0; place < search->ranks / search->width; place++) {
        double most[NEO__PLAN_LOADS] = {0.0};
        neo__plan_most(search->load + (int64_t)place * search->width, search->width, most);
        for (int p = 0; p < NEO__PLAN_LOADS; p++)
            if (p != NEO__PLAN_BACK || !adds) neo__plan_top_insert(top, p, most[p], place);
    }
    for (int32_t node = 0; adds && node < search->nodes; node++)
        neo__plan_top_insert(top, NEO__PLAN_BACK,
                             neo__plan_node_back(search->load + (int64_t)node * search->per_node,
                                                 search->per_node), node);
    for (int p = 0; p < NEO__PLAN_LOADS; p++) all[p] = top->most[p][0];
    top->value = neo__plan_search_value(search, all);
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
/* The longest span back of the nodes of the two places, with the loads of s->trial. */
static double neo__plan_move_back(const neo__plan_search *search, const neo__plan_move *move) {
    const int32_t width = search->width, per_node = search->per_node;
    double longest = 0.0;
    for (int k = 0; k < 2; k++) {
        const int32_t first = (k ? move->to : move->from) * width / per_node * per_node;
        double most[2] = {0.0, 0.0};
        for (int32_t r = first; r < first + per_node; r++) {
            const int32_t place = r / width;
            const double *x = place == move->from ? search->trial[r % width].at
                              : place == move->to ? search->trial[width + r % width].at
                                                  : search->load[r].at,
                         step = x[NEO__PLAN_UPDATE] + x[NEO__PLAN_MEET];
            most[0] = NEO__MAX(most[0], x[NEO__PLAN_BACKWARD]);
            most[1] = NEO__MAX(most[1], step);
        }
        longest = NEO__MAX(longest, most[0] + most[1]);
    }
    return longest;
}
/* Bytes of a rank above the cap. */
static double neo__plan_search_excess(const neo__plan_search *s, const neo__plan_load *load) {
    double bytes = load->at[NEO__PLAN_BYTES] - s->cap;
    return bytes > 0.0 ? bytes : 0.0;
}
/* The value and the phase of a step after a move; 0: a place is as slow as before, or too full. */
static int neo__plan_move_judge(neo__plan_search *search, const neo__plan_top *top, int p,
                                neo__plan_move *move) {
    double most[NEO__PLAN_LOADS] = {0.0};
    search->tried++;
    const int of_node = p == NEO__PLAN_BACK && search->adding;
    /* The phase alone tells most moves apart. */
    if (search->width == 1 && p != NEO__PLAN_BYTES && !of_node) {
        double x = neo__plan_group_load(search, move->group, p),
               back = move->other < 0 ? 0.0 : neo__plan_group_load(search, move->other, p);
        if (search->load[move->from].at[p] - x + back >= top->most[p][0] ||
            search->load[move->to].at[p] + x - back >= top->most[p][0])
            return 0;
    }
    neo__plan_move_trial(search, move);
    if (p == NEO__PLAN_BYTES) { /* of ranks: what is above the cap less than before */
        double after = neo__plan_search_excess(search, &search->trial[0]) +
                       neo__plan_search_excess(search, &search->trial[1]);
        move->value = after - (neo__plan_search_excess(search, &search->load[move->from]) +
                            neo__plan_search_excess(search, &search->load[move->to]));
        move->phase = 0.0;
        return 1;
    }
    neo__plan_most(search->trial, 2 * search->width, most);
    const int32_t each = search->per_node / search->width; /* places of a node */
    if (search->adding) most[NEO__PLAN_BACK] = neo__plan_move_back(search, move);
    move->phase = most[p];
    if (move->phase >= top->most[p][0] || most[NEO__PLAN_BYTES] > search->cap) return 0;
    for (int i = 0; i < NEO__PLAN_TIMES; i++) {
        int k = 0; /* the slowest place beside the two */
        const int32_t of = i == NEO__PLAN_BACK && search->adding ? each : 1;
        while (k < NEO__PLAN_TOP &&
               (top->place[i][k] == move->from / of || top->place[i][k] == move->to / of))
            k++;
        if (k < NEO__PLAN_TOP && top->most[i][k] > most[i]) most[i] = top->most[i][k];
    }
    move->value = neo__plan_search_value(search, most);
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
/* Makes the best move away from a slowest place of a phase, with a value up to `limit`; 0: none is
   better than to stay. */
static int neo__plan_search_move(neo__plan_search *search, const neo__plan_top *top, int p,
                                 int32_t from, double limit, int64_t *work) {
    neo__plan_move best, move;
    move.from = from;
    best.group = -1;
    best.value = limit;
    best.phase = p == NEO__PLAN_BYTES ? 0.0 : top->most[p][0];
    for (move.group = 0; move.group < search->groups && *work > 0; move.group++) {
        if (neo__plan_group_place(search, move.group) != move.from) continue;
        double load = neo__plan_group_load(search, move.group, p);
        move.other = -1;
        for (move.to = 0; move.to < search->ranks / search->width; move.to++)
            if (move.to != move.from) neo__plan_move_try(search, top, p, move, &best);
        *work -= search->ranks;
        for (move.other = 0; load > 0.0 && move.other < search->groups && *work > 0; move.other++) {
            move.to = neo__plan_group_place(search, move.other);
            if (move.to == move.from) continue;
            if (neo__plan_group_load(search, move.other, p) < load)
                neo__plan_move_try(search, top, p, move, &best);
            *work -= search->width;
        }
    }
    if (best.group < 0) return 0;
    neo__plan_move_apply(search, &best);
    return 1;
}
NEO__HOT_END

/* The rank of a node that is the slowest of a phase. */
static int32_t neo__plan_node_rank(const neo__plan_search *s, int32_t node, int p) {
    int32_t rank = node * s->per_node;
    for (int32_t r = rank; r < (node + 1) * s->per_node; r++)
        if (s->load[r].at[p] > s->load[rank].at[p]) rank = r;
    return rank;
}
/* Moves groups until no phase gets better, that furthest above its mean first. */
static void neo__plan_search_improve_by(neo__plan_search *search, int32_t unit, int64_t work) {
    neo__plan_search_groups(search, unit);
    for (int moved = search->groups > 0; moved && work > 0; work -= 8 * search->ranks) {
        neo__plan_top top;
        double excess[NEO__PLAN_TIMES];
        moved = 0;
        neo__plan_top_find(search, &top);
        for (int p = 0; p < NEO__PLAN_TIMES; p++) excess[p] = top.most[p][0] - search->target[p];
        if (search->spans <= 0.0) excess[NEO__PLAN_OUT] = excess[NEO__PLAN_BACK] = -1.0;
        for (int k = 0; k < NEO__PLAN_TIMES && !moved; k++) {
            int worst = 0;
            for (int p = 1; p < NEO__PLAN_TIMES; p++)
                if (excess[p] > excess[worst]) worst = p;
            if (excess[worst] <= 0.0) break;
            excess[worst] = -1.0;
            const int32_t at = top.place[worst][0];
            if (worst == NEO__PLAN_BACK && search->adding && search->width == 1) {
                for (int i = 0; i < 2 && !moved; i++) /* of a node: two of its ranks */
                    moved = neo__plan_search_move(
                        search, &top, worst,
                        neo__plan_node_rank(search, at, i ? NEO__PLAN_UPDATE : NEO__PLAN_BACKWARD),
                        top.value, &work);
            } else {
                moved = neo__plan_search_move(search, &top, worst, at, top.value, &work);
            }
        }
    }
}
static void neo__plan_search_improve(neo__plan_search *s, int64_t work) {
    neo__plan_search_improve_by(s, NEO__UNIT_NODE, work / 2);
    neo__plan_search_improve_by(s, NEO__UNIT_RANK, work);
    neo__plan_search_improve_by(s, NEO__UNIT_NODE, work / 4);
}
/* Moves pieces away from the fullest rank while less is above the cap; 1: all ranks fit. */
static int neo__plan_search_repair(neo__plan_search *search) {
    neo__plan_top top;
    neo__plan_search_groups(search, NEO__UNIT_RANK);
    for (int64_t work = NEO__PLAN_REPAIR_WORK; work > 0;) {
        neo__plan_top_find(search, &top);
        if (top.most[NEO__PLAN_BYTES][0] <= search->cap) return 1;
        const int32_t fullest = top.place[NEO__PLAN_BYTES][0];
        if (!neo__plan_search_move(search, &top, NEO__PLAN_BYTES, fullest, 0.0, &work)) return 0;
    }
    return 0;
}

/* ---------------------------------------------------------------------------
   >>impl-plan-search

   Two questions: in how many parts is each table, and where do they go? For the first, each table
   takes its cheapest option whose heaviest piece takes at most `bound` seconds; for the second see
   >>impl-plan-place and >>impl-plan-improve. This is done for a row of bounds, and from every
   placement given to all tables; then single tables try other options, as long as that helps. The
   best draft always fits the cap. What a step takes is estimated (neo__plan_step_make), within some
   percent of what ranks take that play it. Ranks that it leaves uneven are levelled: while one has
   too much, a piece leaves it, few tables change places by twos, or a table is cut otherwise,
   whichever of the last two leaves least above. If that does not do, tables are searched by other
   estimates. Steps of all these drafts are played, and the shortest is the plan.
   ------------------------------------------------------------------------ */
/* Limits of what is tried, counted in moves of groups. */
enum {
    NEO__PLAN_START_WORK = 60000,     /* to improve each start */
    NEO__PLAN_REFINE_WORK = 30000000, /* to refine the best start */
    NEO__PLAN_FINAL_WORK = 4000000,   /* to improve the result; of a large model, and to level one
                                         that is uneven, ten times that */
    NEO__PLAN_OPTION_WORK = 1000,     /* to improve after a table changed its option, */
    NEO__PLAN_OPTION_WORK_OF_RANK = 4,   /* and so many more for each rank; */
    NEO__PLAN_ROUNDS = 4,                /* or more, if all options can be tried so many times */
    NEO__PLAN_EXCHANGE_WORK_OF_RANK = 8, /* cost of the change itself, for each rank */
    NEO__PLAN_SMALL = 400,               /* tables x ranks that are searched thoroughly */
    NEO__PLAN_LARGE = 100000,            /* tables x ranks: fewer runs meet a budget */
    NEO__PLAN_FEW = 100,                 /* tables that are cut in any number of slices, where */
    NEO__PLAN_RANKS = 100,               /* there are so many ranks: on fewer it makes none even */
    NEO__PLAN_CHOICES = 2000,            /* of options for all tables: so many are all tried */
    NEO__PLAN_WEIGHINGS = 300000         /* of the least memory, over tables and ranks */
};
enum { NEO__ANY = -1 }; /* placement */
static const double NEO__NO_BOUND = DBL_MAX;
/* The most that the busiest rank's load may be over the mean before ranks are levelled. */
static const double NEO__PLAN_EVEN = 1.05;
/* Over the step of a draft, the most that one whose ranks are level may take. */
static const double NEO__PLAN_LONGER = 1.02;
/* Weight of the busiest rank's load in the value at first; see neo__plan_way. */
static const double NEO__PLAN_LEVEL_START = 0.5;
/* An option is tried in a refinement if it costs at most this share of all tables' seconds more. */
static const double NEO__PLAN_DEARER = 0.2;
/* A draft is better than another if its value is below this share of the other's. */
static const double NEO__PLAN_BETTER = 1.0 - 1e-12;
/* The share of loads above what is enough below which less is above: swaps there and back round. */
static const double NEO__PLAN_LESS = 1.0 - 1e-9;
/* The factor of a cap that is too low, and the share of one to which the right one is searched. */
static const double NEO__PLAN_HIGHER_CAP = 1.15, NEO__PLAN_EXACT_CAP = 1.0 / 256.0;

/* The cheapest of a table's options whose heaviest piece is within a limit, or else that with the
   lightest piece. TIME: cost and limit are seconds; MEMORY: bytes. -1: none fits. */
static int neo__plan_search_pick(const neo__plan_search *search, int32_t table, neo__plan_goal goal,
                                 double limit, int placement) {
    const neo__plan_options *o = &search->options[table];
    neo__plan_key best, key;
    best.at = -1;
    for (key.at = 0; key.at < o->count; key.at++) {
        const neo__plan_option *x = &o->at[key.at];
        double peak = goal == NEO__GOAL_MEMORY ? x->most_bytes : x->peak;
        double cost = goal == NEO__GOAL_MEMORY ? x->bytes : x->seconds;
        if (x->most_bytes > search->cap) continue;
        key.first = (placement != NEO__ANY && (int)x->placement != placement) + (peak > limit);
        key.second = peak > limit ? peak : cost;
        if (best.at < 0 || neo__plan_key_order(&key, &best) < 0) best = key;
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
/* Seats beyond an option's pieces say nothing. */
static void neo__plan_search_copy(const neo__plan_search *s, neo__plan_draft *to,
                                  const neo__plan_draft *from) {
    memcpy(to->choice, from->choice, (size_t)s->tables * sizeof *to->choice);
    for (int32_t t = 0; t < s->tables; t++) {
        const int64_t first = s->seat_first[t];
        const size_t pieces = (size_t)s->options[t].at[from->choice[t]].pieces;
        memcpy(to->seat + first, from->seat + first, pieces * sizeof *to->seat);
        memcpy(to->load + first, from->load + first, pieces * sizeof *to->load);
    }
}
static void neo__plan_search_keep(neo__plan_search *s, double value) {
    s->best_value = value;
    neo__plan_search_copy(s, &s->best, &s->now);
}
/* Improves what was placed, and keeps it if it is the best so far. */
static int neo__plan_search_judge(neo__plan_search *s, int64_t work) {
    double most[NEO__PLAN_LOADS];
    neo__plan_search_improve(s, work);
    neo__plan_slowest(s->plan, s->load, s->adding > 0, most);
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
static void neo__plan_search_starts(neo__plan_search *search) {
    static const double bounds[] = {4.0, 2.0, 1.5, 1.2, 1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05};
    const int count = (int)(sizeof bounds / sizeof *bounds);
    size_t bytes = (size_t)search->tables * sizeof *search->last;
    memset(search->last, -1, bytes);
    for (int i = -1; i < count + NEO_PLACEMENT_COUNT; i++) {
        double bound = i < 0 || i >= count ? NEO__NO_BOUND : bounds[i] * search->mean_cost;
        int placement = i < count ? (int)NEO__ANY : i - count;
        if (!neo__plan_search_choose(search, NEO__GOAL_TIME, bound, placement)) return;
        if (memcmp(search->last, search->now.choice, bytes) == 0) continue;
        memcpy(search->last, search->now.choice, bytes);
        (void)neo__plan_search_consider(search, NEO__PLAN_START_WORK);
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
/* Adds the pieces of a table, times sign, to the loads of their ranks. */
static void neo__plan_search_pieces(neo__plan_search *search, int32_t table, double sign) {
    const int64_t first = search->seat_first[table],
                  end = first + neo__plan_search_option(search, table)->pieces;
    for (int64_t k = first; k < end; k++)
        for (int i = 0; i < NEO__PLAN_LOADS; i++)
            search->load[search->now.seat[k]].at[i] += sign * search->now.load[k].at[i];
}
/* The best draft, placed again but for the pieces of table `but` (-1: all). */
static void neo__plan_search_restore(neo__plan_search *s, int32_t but) {
    neo__plan_search_copy(s, &s->now, &s->best);
    neo__plan_search_begin(s);
    for (int32_t t = 0; t < s->tables; t++)
        if (t != but) neo__plan_search_pieces(s, t, 1.0);
}
/* An option of a table in place of another in what all ranks have to do, beside their pieces, and
   in the means. Returns whether all ranks fit. */
static int neo__plan_search_replace(neo__plan_search *search, const neo__plan_option *old,
                                    const neo__plan_option *now) {
    int fits = 1;
    for (int32_t r = 0; r < search->ranks; r++) {
        neo__plan_load *load = &search->load[r];
        for (int i = 0; i < NEO__PLAN_LOADS; i++) load->at[i] += now->all.at[i] - old->all.at[i];
        fits &= load->at[NEO__PLAN_BYTES] <= search->cap;
    }
    for (int i = 0; i < NEO__PLAN_TIMES; i++)
        search->target[i] +=
            now->all.at[i] - old->all.at[i] + (now->sum.at[i] - old->sum.at[i]) / search->ranks;
    search->reduce_bytes += now->reduce_bytes - old->reduce_bytes;
    search->adding += now->adds - old->adds;
    return fits;
}
/* The best draft with another option for one table, the others where they are. */
static int neo__plan_search_exchange(neo__plan_search *search, int32_t t, int32_t option,
                                     neo__plan_goal goal) {
    const neo__plan_option *of = search->options[t].at;
    neo__plan_search_restore(search, t);
    const int fits = neo__plan_search_replace(search, &of[search->best.choice[t]], &of[option]);
    search->now.choice[t] = option;
    return fits && neo__plan_search_place_table(search, goal, t);
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
static void neo__plan_search_refine(neo__plan_search *search) {
    int64_t around = NEO__PLAN_OPTION_WORK + NEO__PLAN_OPTION_WORK_OF_RANK * search->ranks, all = 0;
    for (int32_t t = 0; t < search->tables; t++) all += search->options[t].count;
    around = NEO__MAX(around, NEO__PLAN_REFINE_WORK / (NEO__PLAN_ROUNDS * all));
    int64_t cost = around + search->seats / 4 + NEO__PLAN_EXCHANGE_WORK_OF_RANK * search->ranks;
    int64_t work = NEO__PLAN_REFINE_WORK;
    search->level = search->way->level;
    search->best_value = -1.0; /* the level is another: the draft is judged anew */
    neo__plan_search_restore(search, -1);
    (void)neo__plan_search_judge(search, around);
    for (int better = 1; better && work > 0;) {
        better = 0;
        neo__plan_search_restore(search, -1);
        neo__plan_search_sort(search, NEO__PLAN_SECONDS);
        for (int32_t i = 0; i < search->tables; i++) search->turn[i] = (int32_t)search->order[i].at;
        for (int32_t i = 0; i < search->tables; i++) {
            int32_t t = search->turn[i];
            for (int32_t k = 0; k < search->options[t].count && work > 0; k++) {
                const neo__plan_option *o = &search->options[t].at[k],
                                       *old = &search->options[t].at[search->best.choice[t]];
                if (o == old || o->most_bytes > search->cap ||
                    o->seconds > old->seconds + NEO__PLAN_DEARER * search->mean_cost)
                    continue;
                better |= neo__plan_search_try_option(search, t, k, around);
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

/* Few tables on many ranks are cut in any number of slices, and change places. */
static int neo__plan_search_is_few(const neo__plan_search *search) {
    return search->tables <= NEO__PLAN_FEW && search->ranks >= NEO__PLAN_RANKS;
}
/* Memory of a search is the plan's, until plan->work is freed. */
static neo_status neo__plan_search_memory(neo__plan_search *search) {
    neo__arena *work = &search->plan->work;
    neo__plan_draft *drafts[] = {&search->now, &search->best, &search->lean.draft,
                                 &search->shortest};
    for (int i = 0; i < 4; i++) {
        NEO__TRY(NEO__ARENA(work, drafts[i]->choice, search->tables));
        NEO__TRY(NEO__ARENA(work, drafts[i]->seat, search->seats));
        NEO__TRY(NEO__ARENA(work, drafts[i]->load, search->seats));
    }
    NEO__TRY(NEO__ARENA(work, search->lean.extra, search->ranks));
    NEO__TRY(NEO__ARENA(work, search->load, search->ranks));
    NEO__TRY(NEO__ARENA(work, search->extra, search->ranks));
    NEO__TRY(NEO__ARENA(work, search->weighed, search->ranks));
    NEO__TRY(NEO__ARENA(work, search->group, search->seats));
    NEO__TRY(NEO__ARENA(work, search->order, search->tables));
    NEO__TRY(NEO__ARENA(work, search->key, search->ranks));
    NEO__TRY(NEO__ARENA(work, search->trial, 2 * search->per_node));
    NEO__TRY(NEO__ARENA(work, search->turn, search->tables));
    return NEO__ARENA(work, search->last, search->tables);
}
static neo_status neo__plan_search_alloc(neo__plan_search *search, neo_plan *plan) {
    memset(search, 0, sizeof *search);
    search->plan = plan;
    search->tables = plan->bags.table_count;
    search->ranks = plan->desc.cluster.ranks;
    search->nodes = plan->nodes;
    search->per_node = plan->per_node;
    search->way = NEO__PLAN_WAYS;
    NEO__TRY(NEO__ARENA(&plan->work, search->options, search->tables));
    NEO__TRY(NEO__ARENA(&plan->work, search->seat_first, search->tables + 1));
    for (int32_t t = 0; t < search->tables; t++) {
        int32_t most = 0;
        neo__plan_options_make(&plan->table[t], &search->options[t]);
        if (neo__plan_search_is_few(search) && plan->origin != NEO__PLAN_UNIFORM)
            neo__plan_options_finer(&plan->table[t], &search->options[t]);
        for (int i = 0; i < search->options[t].count; i++)
            most = NEO__MAX(most, search->options[t].at[i].pieces);
        search->seat_first[t + 1] = search->seat_first[t] + most;
    }
    search->seats = search->seat_first[search->tables];
    return neo__plan_search_memory(search);
}
/* search->best: the best draft within cap; 0 if nothing fits. */
static int neo__plan_search_run(neo__plan_search *search, double cap) {
    search->cap = cap;
    search->best_value = -1.0;
    search->mean_cost = 0.0;
    search->level = NEO__PLAN_LEVEL_START;
    search->spans = search->way->spans;
    if (!neo__plan_search_choose(search, NEO__GOAL_TIME, NEO__NO_BOUND, NEO__ANY)) return 0;
    for (int32_t t = 0; t < search->tables; t++)
        search->mean_cost += neo__plan_search_option(search, t)->seconds;
    neo__plan_search_starts(search);
    if (search->best_value < 0.0 && neo__plan_search_fit(search))
        (void)neo__plan_search_judge(search, NEO__PLAN_START_WORK);
    if (search->best_value < 0.0) return 0;
    neo__plan_search_refine(search);
    const int64_t size = (int64_t)search->tables * search->ranks;
    if (size <= NEO__PLAN_SMALL) neo__plan_search_all(search);
    search->level = search->way->last;
    search->best_value = -1.0;
    neo__plan_search_restore(search, -1);
    (void)neo__plan_search_judge(search, (size > NEO__PLAN_LARGE ? 10 : 1) * NEO__PLAN_FINAL_WORK);
    return 1;
}
/* search->best becomes the plan's pieces. */
static neo_status neo__plan_search_build(neo__plan_search *search) {
    neo_plan *plan = search->plan;
    int64_t count = 0, held = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) NEO__TRY(neo__plan_hold(plan, count, held));
        count = 0;
        for (int32_t t = 0; t < search->tables; t++) {
            const neo__plan_option *o = &search->options[t].at[search->best.choice[t]];
            const int32_t *seats = search->best.seat + search->seat_first[t];
            neo__plan_shape shape = {o->col_parts, o->row_parts,
                                     o->unit == NEO__UNIT_ALL ? NULL : seats};
            if (pass == 1) neo__plan_shape_cut(&plan->table[t], shape, plan->piece + count);
            count += neo__plan_shape_count(shape);
            held += o->col_parts ? neo__plan_shape_count(shape) : search->ranks;
        }
    }
    return neo__plan_finish(plan);
}

/* ---- memory: what a plan takes to the byte, and the least there is ----

   The search adds up an estimate of the buffers; what they take (neo__shard_plan_bytes) is known of
   a whole plan only, and is no sum. So plans are weighed: search->extra is by how much each rank
   was off, and with it the search goes on from there.

   The least memory is searched by itself, whatever the budget: some starts, each levelled; and,
   where there are few tables, from the best of them all that differs by one table or one piece,
   weighed. A budget is refused if it is below what that finds, and only then. As the search does
   not depend on the budget, and may end as soon as it is below it, a plan exists for every budget
   from the least one up. */

/* Builds the best draft, which plan->step then describes; fills in search->weighed and ->spread. */
static neo_status neo__plan_search_weigh(neo__plan_search *search) {
    NEO__TRY(neo__plan_search_build(search));
    neo__plan_search_restore(search, -1);
    search->spread = 0.0;
    for (int32_t r = 0; r < search->ranks; r++) {
        const neo_plan_rank *x = &search->plan->rank[r];
        double bytes = (double)x->weight_bytes + (double)x->state_bytes + (double)x->buffer_bytes;
        search->weighed[r] = bytes - (search->load[r].at[NEO__PLAN_BYTES] - search->extra[r]);
        search->spread += bytes * bytes;
    }
    search->weighings--;
    return NEO_OK;
}
static void neo__plan_search_extra(neo__plan_search *s, const double *extra) {
    for (int32_t r = 0; r < s->ranks; r++) s->extra[r] = extra ? extra[r] : 0.0;
}
/* Weighs what was placed; it becomes lean if it takes less, or as much in its fullest rank and is
   more even. */
static neo_status neo__plan_search_lean_try(neo__plan_search *search, int *better) {
    neo__plan_lean *lean = &search->lean;
    neo__plan_search_keep(search, 0.0);
    NEO__TRY(neo__plan_search_weigh(search));
    int64_t most = search->plan->step.most_bytes;
    int evener = search->spread < lean->spread * NEO__PLAN_BETTER;
    if (lean->bytes >= 0 && (most > lean->bytes || (most == lean->bytes && !evener))) return NEO_OK;
    *better = 1;
    lean->bytes = most;
    lean->spread = search->spread;
    neo__plan_search_copy(search, &lean->draft, &search->now);
    memcpy(lean->extra, search->weighed, (size_t)search->ranks * sizeof *lean->extra);
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
static neo_status neo__plan_search_lean_start(neo__plan_search *search, int64_t enough) {
    static const double shares[] = {1e9, 1.0, 0.7, 0.5, 0.35, 0.25, 0.125, 0.0};
    double mean = 0.0;
    int better;
    (void)neo__plan_search_choose(search, NEO__GOAL_MEMORY, NEO__NO_BOUND, NEO__ANY);
    for (int32_t t = 0; t < search->tables; t++)
        mean += neo__plan_search_option(search, t)->bytes / search->ranks;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        neo__plan_search_extra(search, NULL);
        if (!neo__plan_search_choose(search, NEO__GOAL_MEMORY, shares[i] * mean, NEO__ANY) ||
            !neo__plan_search_place(search, NEO__GOAL_MEMORY))
            continue;
        for (int turn = 0; turn < 3; turn++) {
            NEO__TRY(neo__plan_search_lean_level(search, &better));
            if (search->lean.bytes <= enough) return NEO_OK;
            neo__plan_search_extra(search, search->weighed);
            neo__plan_search_restore(search, -1);
        }
    }
    return NEO_OK;
}
/* Every move of a piece to another rank, alone (other -1) or in exchange for another piece. */
static neo_status neo__plan_search_lean_moves(neo__plan_search *search, int64_t enough,
                                              int *better) {
    neo__plan_move m;
    neo__plan_search_lean_back(search);
    neo__plan_search_groups(search, NEO__UNIT_RANK);
    for (m.group = 0; m.group < search->groups; m.group++) {
        for (m.other = -1; m.other < search->groups; m.other++) {
            int32_t begin = m.other < 0 ? 0 : neo__plan_group_place(search, m.other),
                    end = m.other < 0 ? search->ranks : begin + 1;
            for (m.to = begin; m.to < end && search->lean.bytes > enough; m.to++) {
                m.from = neo__plan_group_place(search, m.group);
                if (!neo__plan_move_allowed(search, &m)) continue;
                neo__plan_move_apply(search, &m);
                NEO__TRY(neo__plan_search_lean_try(search, better));
                neo__plan_search_lean_back(search);
            }
        }
    }
    return NEO_OK;
}
/* Lean becomes what no other option of a table and no move makes less, or at most `enough`. */
static neo_status neo__plan_search_lean_descend(neo__plan_search *search, int64_t enough) {
    for (int better = 1; better && search->weighings > 0 && search->lean.bytes > enough;) {
        better = 0;
        for (int32_t t = 0; t < search->tables; t++) {
            for (int32_t k = 0; k < search->options[t].count && search->lean.bytes > enough; k++) {
                neo__plan_search_lean_back(search);
                if (neo__plan_search_exchange(search, t, k, NEO__GOAL_MEMORY))
                    NEO__TRY(neo__plan_search_lean_level(search, &better));
            }
        }
        NEO__TRY(neo__plan_search_lean_moves(search, enough, &better));
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
   the plan is built. NEO_ERR_CAPACITY: that did not do; *over: bytes by which the cap has to be
   lower, so that it is not found again. */
static neo_status neo__plan_search_fit_budget(neo__plan_search *search, int64_t budget,
                                              double *over) {
    static const int64_t work[] = {2000000, 2000000, 20000, 20000, 0, 0};
    neo_status status = NEO_ERR_CAPACITY;
    double loads[NEO__PLAN_LOADS];
    for (size_t turn = 0; turn < sizeof work / sizeof *work; turn++) {
        NEO__TRY(neo__plan_search_weigh(search));
        int64_t most = search->plan->step.most_bytes;
        if (turn == 0) {
            neo__plan_slowest(search->plan, search->load, search->adding > 0, loads);
            *over = (double)(most - budget) + search->cap - loads[NEO__PLAN_BYTES];
        }
        if (most <= budget) {
            status = NEO_OK;
            break;
        }
        neo__plan_search_extra(search, search->weighed);
        search->cap = (double)budget;
        neo__plan_search_restore(search, -1);
        if (!neo__plan_search_repair(search)) break;
        search->best_value = -1.0;
        (void)neo__plan_search_judge(search, work[turn]);
    }
    neo__plan_search_extra(search, NULL);
    return status;
}
/* Bytes that the fullest rank takes beside those that the search adds up, at most, as seen on a
   plan made quickly. */
static neo_status neo__plan_search_slack(neo__plan_search *search, int64_t budget, double *slack) {
    search->cap = (double)budget;
    *slack = 0.0;
    neo__plan_search_extra(search, NULL);
    if (!neo__plan_search_choose(search, NEO__GOAL_TIME, NEO__NO_BOUND, NEO__ANY) ||
        !neo__plan_search_place_any(search))
        return NEO_OK;
    neo__plan_search_keep(search, 0.0);
    NEO__TRY(neo__plan_search_weigh(search));
    for (int32_t r = 0; r < search->ranks; r++) *slack = NEO__MAX(*slack, search->weighed[r]);
    return NEO_OK;
}
/* A plan within `budget` bytes a rank (0: any). The search's cap is not quite the budget: between a
   cap under which nothing is found and one whose plan is too large, the next is halfway.
   NEO_ERR_CAPACITY: there is none; search->lean.bytes is a budget that would do. */
static neo_status neo__plan_search_attempt(neo__plan_search *search, int64_t budget) {
    double cap = budget ? (double)budget : DBL_MAX, failed = 0.0, over = 0.0, above = 0.0;
    int runs = (int64_t)search->tables * search->ranks > NEO__PLAN_LARGE ? 3 : 8;
    if (!budget)
        return neo__plan_search_run(search, cap) ? neo__plan_search_build(search)
                                                 : NEO_ERR_CAPACITY;
    if (search->way == NEO__PLAN_WAYS) NEO__TRY(neo__plan_search_lean(search, budget));
    if (search->lean.bytes > budget) return NEO_ERR_CAPACITY;
    NEO__TRY(neo__plan_search_slack(search, budget, &above));
    cap -= above;
    for (int i = 0; i < runs; i++) {
        neo__plan_search_extra(search, NULL);
        if (!neo__plan_search_run(search, cap)) {
            failed = cap;
            cap *= NEO__PLAN_HIGHER_CAP;
        } else {
            neo_status status = neo__plan_search_fit_budget(search, budget, &above);
            if (status != NEO_ERR_CAPACITY) return status;
            over = cap;
            cap -= above;
        }
        if (failed > 0.0 && over > 0.0) {
            if (over - failed < over * NEO__PLAN_EXACT_CAP) break;
            cap = failed + (over - failed) / 2.0;
        }
    }
    neo__plan_search_lean_back(search);
    return neo__plan_search_build(search);
}
/* Loads above search->enough times the mean, of all ranks together, over the mean; DBL_MAX: the
   draft at hand is too large, or its value above search->limit. */
static double neo__plan_search_above(const neo__plan_search *search) {
    const double mean = search->target[NEO__PLAN_SECONDS];
    double most[NEO__PLAN_LOADS], above = 0.0;
    neo__plan_slowest(search->plan, search->load, search->adding > 0, most);
    if (most[NEO__PLAN_BYTES] > search->cap ||
        neo__plan_search_value(search, most) > search->limit)
        return DBL_MAX;
    for (int32_t r = 0; r < search->ranks; r++)
        above += NEO__MAX(search->load[r].at[NEO__PLAN_SECONDS] / mean - search->enough, 0.0);
    return above;
}
/* A table of the busiest place, of few tables any, takes the option by which least is above; 0:
   none. The best draft becomes what is at hand. */
static int neo__plan_search_recut(neo__plan_search *search, int32_t place, int64_t *work) {
    int32_t table = -1, option = -1;
    double least = neo__plan_search_above(search) * NEO__PLAN_LESS;
    neo__plan_search_keep(search, 0.0);
    for (int32_t t = 0; t < search->tables && *work > 0; t++) {
        const neo__plan_option *now = &search->options[t].at[search->best.choice[t]];
        const int32_t *seat = search->best.seat + search->seat_first[t];
        int sits = now->pieces == 0 || neo__plan_search_is_few(search);
        for (int32_t i = 0; i < now->pieces; i++) sits |= seat[i] == place;
        for (int32_t k = 0; sits && k < search->options[t].count; k++) {
            *work -= NEO__PLAN_EXCHANGE_WORK_OF_RANK * search->ranks;
            if (k == search->best.choice[t] ||
                !neo__plan_search_exchange(search, t, k, NEO__GOAL_TIME))
                continue;
            const double above = neo__plan_search_above(search);
            if (above < least) least = above, table = t, option = k;
        }
    }
    if (table < 0) neo__plan_search_restore(search, -1);
    else (void)neo__plan_search_exchange(search, table, option, NEO__GOAL_TIME);
    return table >= 0;
}
/* An option of a table like another's; -1: it has none. */
static int32_t neo__plan_search_like(const neo__plan_search *search, int32_t table,
                                     const neo__plan_option *like) {
    const neo__plan_options *o = &search->options[table];
    int32_t k = 0;
    while (k < o->count &&
           (o->at[k].placement != like->placement || o->at[k].col_parts != like->col_parts ||
            o->at[k].row_parts != like->row_parts || o->at[k].unit != like->unit))
        k++;
    return k < o->count ? k : -1;
}
/* Two tables change places: each is cut as the other was, and lies there. Again, they are where
   they were. 0: one of them cannot. */
static int neo__plan_search_swap(neo__plan_search *search, int32_t a, int32_t b) {
    const neo__plan_option *of[2] = {neo__plan_search_option(search, a),
                                     neo__plan_search_option(search, b)};
    const int32_t table[2] = {a, b}, now[2] = {neo__plan_search_like(search, a, of[1]),
                                               neo__plan_search_like(search, b, of[0])};
    const int64_t at[2] = {search->seat_first[a], search->seat_first[b]};
    const int32_t most = NEO__MAX(of[0]->pieces, of[1]->pieces);
    if (a == b || now[0] < 0 || now[1] < 0 || !of[0]->pieces || !of[1]->pieces) return 0;
    for (int k = 0; k < 2; k++) neo__plan_search_pieces(search, table[k], -1.0);
    for (int32_t i = 0; i < most; i++) {
        const int32_t seat[2] = {i < of[0]->pieces ? search->now.seat[at[0] + i] : -1,
                                 i < of[1]->pieces ? search->now.seat[at[1] + i] : -1};
        for (int k = 0; k < 2; k++)
            if (seat[1 - k] >= 0) search->now.seat[at[k] + i] = seat[1 - k];
    }
    for (int k = 0; k < 2; k++) {
        search->now.choice[table[k]] = now[k];
        const neo__plan_option *o = neo__plan_search_option(search, table[k]);
        for (int32_t i = 0; i < o->pieces; i++)
            search->now.load[at[k] + i] =
                neo__plan_part_load(&search->plan->table[table[k]], o, i);
        (void)neo__plan_search_replace(search, of[k], o);
        neo__plan_search_pieces(search, table[k], 1.0);
    }
    return 1;
}
/* Two tables change places, those by which least is above; 0: none. As neo__plan_search_recut. */
static int neo__plan_search_swap_best(neo__plan_search *search, int64_t *work) {
    int32_t best[2] = {-1, -1};
    double least = neo__plan_search_above(search) * NEO__PLAN_LESS;
    neo__plan_search_keep(search, 0.0);
    for (int32_t a = 0; a < search->tables && *work > 0; a++) {
        for (int32_t b = a + 1; b < search->tables; b++) {
            *work -= NEO__PLAN_EXCHANGE_WORK_OF_RANK * search->ranks;
            if (!neo__plan_search_swap(search, a, b)) continue;
            const double above = neo__plan_search_above(search);
            if (above < least) least = above, best[0] = a, best[1] = b;
            (void)neo__plan_search_swap(search, a, b);
        }
    }
    neo__plan_search_restore(search, -1);
    return best[0] >= 0 && neo__plan_search_swap(search, best[0], best[1]);
}
/* While the busiest place has more than search->enough times the mean, groups leave it for others
   that then have less, few tables change places by twos, or a table is cut otherwise: what is above
   becomes less each time. */
static void neo__plan_search_leave(neo__plan_search *search) {
    neo__plan_top top;
    int64_t work = 10 * (int64_t)NEO__PLAN_FINAL_WORK;
    for (int moved = 1, level = 0; moved && work > 0;) {
        moved = 0;
        for (int32_t unit = NEO__UNIT_NODE; unit >= NEO__UNIT_RANK && !moved; unit--) {
            neo__plan_search_groups(search, unit);
            neo__plan_top_find(search, &top);
            level = top.most[NEO__PLAN_SECONDS][0] <=
                    search->enough * search->target[NEO__PLAN_SECONDS];
            if (level) break;
            moved = neo__plan_search_move(search, &top, NEO__PLAN_SECONDS,
                                          top.place[NEO__PLAN_SECONDS][0], search->limit, &work);
        }
        if (moved || level) continue;
        moved = (neo__plan_search_is_few(search) && neo__plan_search_swap_best(search, &work)) ||
                neo__plan_search_recut(search, top.place[NEO__PLAN_SECONDS][0], &work);
    }
    neo__plan_search_keep(search, 0.0);
}
/* Levels the best draft to NEO__PLAN_EVEN times the mean, though its step become up to
   NEO__PLAN_LONGER times as long; what is found is built. */
static neo_status neo__plan_search_even(neo__plan_search *search, int64_t budget) {
    double most[NEO__PLAN_LOADS];
    NEO__TRY(neo__plan_search_weigh(search));
    search->cap = budget ? (double)budget : DBL_MAX;
    search->level = 0.0;
    neo__plan_search_extra(search, search->weighed);
    neo__plan_search_restore(search, -1);
    neo__plan_slowest(search->plan, search->load, search->adding > 0, most);
    const double uneven = most[NEO__PLAN_SECONDS] / search->target[NEO__PLAN_SECONDS];
    /* the search counts ids of two slices of a rank twice */
    search->enough = 0.999 * NEO__PLAN_EVEN * NEO__MIN(uneven / search->plan->step.balance, 1.0);
    search->limit = NEO__PLAN_LONGER * neo__plan_search_value(search, most);
    neo__plan_search_leave(search);
    neo__plan_search_extra(search, NULL);
    return neo__plan_search_build(search);
}
/* Plays the plan that is built: its draft becomes search->shortest if its step is, where uneven
   ranks count as a step that is longer. */
static neo_status neo__plan_search_rate(neo__plan_search *search, int64_t budget, double *least) {
    const neo_plan_step *step = &search->plan->step;
    NEO__TRY(neo__plan_predict_step(search->plan));
    double seconds = search->plan->desc.pipeline ? step->pipelined : step->plain;
    seconds *= 0.9 + 0.1 * step->balance;
    if (step->balance > NEO__PLAN_EVEN) seconds *= NEO__PLAN_LONGER;
    if (seconds >= *least || (budget && step->most_bytes > budget)) return NEO_OK;
    *least = seconds;
    neo__plan_search_copy(search, &search->shortest, &search->best);
    return NEO_OK;
}
/* Searches in one way after the other until ranks are level, each draft levelled if it is not. */
static neo_status neo__plan_search_ways(neo__plan_search *search, int64_t budget) {
    const int ways = (int)(sizeof NEO__PLAN_WAYS / sizeof *NEO__PLAN_WAYS);
    const neo_plan_step *step = &search->plan->step;
    double least = DBL_MAX;
    for (int i = 0; i < ways && (i == 0 || step->balance > NEO__PLAN_EVEN); i++) {
        search->way = NEO__PLAN_WAYS + i;
        NEO__TRY(neo__plan_search_attempt(search, budget));
        if ((int64_t)search->tables * search->ranks <= NEO__PLAN_SMALL) return NEO_OK;
        NEO__TRY(neo__plan_search_rate(search, budget, &least));
        if (step->balance <= NEO__PLAN_EVEN) continue;
        NEO__TRY(neo__plan_search_even(search, budget));
        NEO__TRY(neo__plan_search_rate(search, budget, &least));
    }
    neo__plan_search_copy(search, &search->best, &search->shortest);
    return neo__plan_search_build(search);
}
static int neo__plan_has_below(const neo_plan *plan) {
    int64_t i = 0;
    while (i < plan->piece_count && plan->lines[i].below_bytes == 0) i++;
    return i < plan->piece_count;
}
/* Without copies, of tables that can be placed otherwise. */
static void neo__plan_options_apart(neo__plan_options *options) {
    int32_t count = 0;
    for (int32_t i = 0; i < options->count; i++)
        if (options->at[i].col_parts) options->at[count++] = options->at[i];
    if (count) options->count = count;
}
/* A rank that holds more than its tier waits for rows while others have room, or has no room for a
   batch: again, with no more rows and copies on a rank than its tier takes, and a tenth, as pieces
   are whole; and with less, as a batch takes of it, too. The shortest step that fits is
   kept. Where none does, no table that can be placed otherwise is copied. */
static neo_status neo__plan_search_level(neo__plan_search *search, int64_t budget) {
    neo_plan *plan = search->plan;
    const neo_plan_step *step = &plan->step;
    neo__plan_search level;
    NEO__TRY(neo__plan_predict_step(plan));
    double least = step->most_bytes < NEO__PLAN_NO_ROOM ? step->pipelined : DBL_MAX;
    double cap = 1.1 * (double)plan->tier_bytes;
    int better = 0, apart = 0, found = least == DBL_MAX || neo__plan_has_below(plan);
    if (!found) return NEO_OK;
    plan->rows_alone = 1;
    neo_status status = neo__plan_search_alloc(&level, plan);
    for (int i = 0; i < 8 && status == NEO_OK; i++, cap *= 0.75) {
        if (i < 4 ? !found : least < DBL_MAX) continue;
        if (i == 4) cap = 1.1 * (double)plan->tier_bytes;
        if (i == 7) cap = DBL_MAX;
        for (int32_t t = 0; i == 4 && t < level.tables; t++)
            neo__plan_options_apart(&level.options[t]);
        plan->rows_alone = 1;
        found = neo__plan_search_run(&level, cap);
        plan->rows_alone = 0;
        apart |= found && i >= 4; /* what it lacks is said, if none fits */
        if (found) status = neo__plan_search_build(&level);
        if (found && status == NEO_OK) status = neo__plan_predict_step(plan);
        if (!found || status != NEO_OK || step->pipelined >= least ||
            step->most_bytes > (budget ? budget : NEO__PLAN_NO_ROOM - 1))
            continue;
        least = step->pipelined;
        better = 1;
        neo__plan_search_copy(&level, &level.lean.draft, &level.best);
        if (!neo__plan_has_below(plan)) break;
    }
    plan->rows_alone = 0;
    NEO__TRY(status);
    if (better) neo__plan_search_copy(&level, &level.best, &level.lean.draft);
    return neo__plan_search_build(better || apart ? &level : search);
}
/* "; cw: why not; ..." of the placements that a table is allowed. */
static neo_status neo__plan_no_options(const neo__plan_table *t, const char *fn) {
    char why[400] = "";
    for (int p = 0; p < NEO_PLACEMENT_COUNT && strlen(why) + 100 < sizeof why; p++)
        if (t->allowed & (1u << p))
            neo__append(why, sizeof why, "; %s: %s", NEO__PLACEMENT_NAMES[p],
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
    neo_status status = neo__plan_search_ways(&s, budget);
    if (plan->tier_bytes && (status == NEO_OK || s.lean.bytes >= NEO__PLAN_NO_ROOM))
        status = neo__plan_search_level(&s, budget);
    NEO__CHECK(status != NEO_ERR_CAPACITY, NEO_ERR_CAPACITY,
               "%s: the tables do not fit: %d rank%s with %" PRId64 " bytes each; %" PRId64
               " bytes each would do",
               fn, s.ranks, s.ranks == 1 ? "" : "s", budget, s.lean.bytes);
    neo__arena_free(&plan->work);
    NEO__TRY(status);
    NEO__TRY(neo__plan_fits_files(plan, fn));
    return neo__plan_predict_step(plan);
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
static void neo__plan_table_cost(const neo__plan_table *table, double *mean, double *most,
                                 double *bytes) {
    const neo_plan *plan = table->plan;
    double all = 0.0, sum = 0.0;
    *most = *bytes = 0.0;
    for (int64_t i = table->first_piece; i < table->first_piece + table->piece_count; i++) {
        const neo_piece *p = &plan->piece[i];
        int copies = p->rank == NEO_EVERY_RANK;
        neo__plan_load x = copies ? neo__plan_copy_load(table)
                                  : neo__plan_piece_load(table, &plan->cut[i]);
        double seconds = x.at[NEO__PLAN_SECONDS];
        if (copies) {
            all = seconds + neo__plan_reduced(table->rows, table->dim) * plan->model.all_reduce;
        } else {
            all += neo__plan_sample_load(table, &plan->cut[i]).at[NEO__PLAN_SECONDS];
            sum += seconds;
            if (seconds > *most) *most = seconds;
        }
        if (x.at[NEO__PLAN_BYTES] > *bytes) *bytes = x.at[NEO__PLAN_BYTES];
    }
    *mean = all + sum / plan->model.ranks;
    *most += all;
}
static void neo__plan_why_chosen(const neo__plan_table *table, neo__plan_text *text) {
    const neo_plan *plan = table->plan;
    const neo_piece *piece = plan->piece + table->first_piece;
    double mean, most, bytes;
    int64_t slices = neo__plan_slices(table), pieces = table->piece_count;
    neo__plan_text_add(text, "%s: ", NEO__PLACEMENT_NAMES[table->placement]);
    if (piece->rank == NEO_EVERY_RANK)
        neo__plan_text_add(text, "a copy on every rank");
    else if (pieces == 1)
        neo__plan_text_add(text, "on rank %d", piece->rank);
    else if (slices == 1)
        neo__plan_text_add(text, "%" PRId64 " ranges of rows on ranks ", pieces);
    else if (slices == pieces)
        neo__plan_text_add(text, "%" PRId64 " slices of columns on ranks ", slices);
    else
        neo__plan_text_add(text, "%" PRId64 " slices of columns, %" PRId64 " pieces on ranks ",
                           slices, pieces);
    if (pieces > 1) neo__plan_text_ranks(text, piece, pieces);
    neo__plan_table_cost(table, &mean, &most, &bytes);
    neo__plan_text_add(text, "; takes %s of a rank in the mean, %s at most; %s%s\n",
                       neo__plan_seconds(mean).text, neo__plan_seconds(most).text,
                       neo__plan_bytes(bytes).text,
                       plan->origin == NEO__PLAN_GIVEN ? " (as given)" : "");
    const neo_plan_tier tier = neo_plan_tier_of(plan, (int32_t)(table - plan->table));
    const int64_t below = tier.file_bytes + tier.host_bytes;
    if (below)
        neo__plan_text_add(text, "memory has room for %.0f of its rows, which %.2f %% of its ids "
                           "find there; the others in %s of %s\n", tier.rows,
                           100.0 * tier.hits, neo__plan_bytes((double)below).text,
                           tier.file_bytes ? "a file" : "host memory");
    const neo_placement asked = neo__plan_uniform_of(table);
    if (plan->origin == NEO__PLAN_UNIFORM && asked != table->placement) {
        const char *reason = neo__plan_reason(table, asked);
        neo__plan_text_add(text, "%s was asked for: %s\n", NEO__PLACEMENT_NAMES[asked],
                           reason ? reason : "so many parts amount to the same");
    }
}
/* The reason that a table has not a placement that it could have. */
static void neo__plan_why_rejected(const neo__plan_table *table, neo_placement placement,
                                   neo__plan_text *text) {
    neo__plan_options options;
    const neo_plan *plan = table->plan;
    double budget = (double)plan->desc.cluster.memory_bytes, least = DBL_MAX;
    double mean, most, bytes, all = 0.0;
    const neo__plan_option *best = NULL;
    options.count = 0;
    neo__plan_options_of(table, placement, 0, &options);
    neo__plan_table_cost(table, &mean, &most, &bytes);
    for (int32_t r = 0; r < plan->desc.cluster.ranks; r++)
        all += plan->rank[r].seconds / plan->model.ranks;
    for (int i = 0; i < options.count; i++) {
        least = NEO__MIN(least, options.at[i].most_bytes);
        if (budget > 0.0 && options.at[i].most_bytes > budget) continue;
        if (!best || options.at[i].seconds < best->seconds) best = &options.at[i];
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
static int neo__plan_is_shape(const neo__plan_table *table, int32_t *slices, int32_t *parts) {
    const neo_piece *p = table->plan->piece + table->first_piece;
    int64_t n = table->piece_count, cols = neo__plan_slices(table);
    if (n > NEO__PLAN_MAX_RANKS || n % cols) return 0;
    *slices = (int32_t)cols;
    *parts = (int32_t)(n / cols);
    if (cols > table->blocks || *parts > neo__plan_row_units(table)) return 0;
    for (int64_t i = 0; i < n; i++) {
        neo_piece want = p[i];
        neo__plan_part(table, cols, *parts, i, &want);
        if (neo__plan_piece_order(&want, &p[i]) != 0) return 0;
    }
    return 1;
}
static void neo__plan_write_table(const neo__plan_table *table, neo__plan_text *text) {
    const neo_piece *piece = table->plan->piece + table->first_piece;
    int32_t slices, parts;
    neo__plan_text_add(text, "table ");
    neo__plan_write_name(text, table->desc->name);
    neo__plan_text_add(text, " %" PRId64 "x%" PRId64 " ", table->rows, table->dim);
    if (piece->rank == NEO_EVERY_RANK) {
        neo__plan_text_add(text, "dp\n");
    } else if (neo__plan_is_shape(table, &slices, &parts)) {
        neo__plan_text_add(text, "%s ", NEO__PLACEMENT_NAMES[table->placement]);
        if (table->placement != NEO_GRID) slices = 1, parts = (int32_t)table->piece_count;
        for (int32_t i = 0; i < slices; i++) {
            neo__plan_text_add(text, "%s", i ? "/" : "");
            neo__plan_text_ranks(text, piece + (int64_t)i * parts, parts);
        }
        neo__plan_text_add(text, "\n");
    } else {
        neo__plan_text_add(text, "pieces %" PRId64 "\n", table->piece_count);
        for (int64_t i = 0; i < table->piece_count; i++, piece++)
            neo__plan_text_add(text, "piece %d %" PRId64 "+%" PRId64 " %" PRId64 "+%" PRId64 "\n",
                               piece->rank, piece->first_row, piece->rows, piece->first_col,
                               piece->cols);
    }
}
static neo_status neo__plan_text_open(neo__plan_text *text, const char *path) {
    memset(text, 0, sizeof *text);
    text->file = fopen(path, "wb");
    NEO__CHECK(text->file, errno == ENOENT ? NEO_ERR_NOT_FOUND : NEO_ERR_IO,
               "%s: cannot open for writing: %s", path, strerror(errno));
    return NEO_OK;
}
static neo_status neo__plan_text_close(neo__plan_text *text, const char *path) {
    int bad = ferror(text->file) != 0;
    if (fclose(text->file) != 0) bad = 1;
    NEO__CHECK(!bad, NEO_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    return NEO_OK;
}
NEO_API neo_status neo_plan_write(const neo_plan *plan, const char *path) {
    NEO__CHECK(plan && path, NEO_ERR_ARG, "neo_plan_write: an argument is NULL");
    neo__plan_text f;
    NEO__TRY(neo__plan_text_open(&f, path));
    neo__plan_text_add(&f, "neo-plan 1\nranks %d %d\n", plan->desc.cluster.ranks, plan->per_node);
    for (int32_t t = 0; t < plan->bags.table_count; t++) neo__plan_write_table(&plan->table[t], &f);
    return neo__plan_text_close(&f, path);
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
static const char *neo__plan_word(neo__plan_reader *reader) {
    reader->word = reader->rest + strspn(reader->rest, " \t\r");
    reader->rest = reader->word + strcspn(reader->word, " \t\r");
    if (*reader->rest) *reader->rest++ = 0;
    return reader->word;
}
/* The first word of the next line that has one; 0 at the end of the file. */
static int neo__plan_line(neo__plan_reader *reader) {
    while (reader->at < reader->end) {
        char *stop = (char *)memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
        reader->rest = reader->at;
        reader->at = stop ? stop + 1 : reader->end;
        reader->line++;
        if (stop) *stop = 0;
        reader->rest[strcspn(reader->rest, "#")] = 0;
        if (neo__plan_word(reader)[0]) return 1;
    }
    return 0;
}
#define NEO__PLAN_WANT(cond, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) return neo__plan_line_error(reader, __VA_ARGS__);                             \
    } while (0)
static neo_status neo__plan_line_error(const neo__plan_reader *reader, const char *message,
                                       const char *word) {
    return neo_fail(NEO_ERR_FORMAT, "%s:%" PRId64 ": %s%s%.100s%s", reader->path, reader->line,
                    message, word[0] ? " '" : "", word, word[0] ? "'" : "");
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
static int neo__plan_read_number(neo__plan_reader *reader, int64_t *number) {
    const char *p = neo__plan_word(reader);
    return neo__plan_number(&p, number) && *p == 0;
}
static int neo__plan_read_pair(neo__plan_reader *reader, char sign, int64_t *a, int64_t *b) {
    const char *p = neo__plan_word(reader);
    return neo__plan_number(&p, a) && *p++ == sign && neo__plan_number(&p, b) && *p == 0;
}
/* The byte of two hexadecimal digits; -1: they are none. */
static int neo__plan_hex(const char *p) {
    if (strspn(p, "0123456789abcdefABCDEF") < 2) return -1;
    const char digits[3] = {p[0], p[1], 0};
    return (int)strtol(digits, NULL, 16);
}
/* The next word, a name, in memory of the arena. */
static neo_status neo__plan_read_text(neo__plan_reader *reader, neo__arena *arena, char **name) {
    const char *p = neo__plan_word(reader);
    NEO__TRY(NEO__ARENA(arena, *name, strlen(p) + 1));
    for (size_t n = 0; *p; n++) {
        (*name)[n] = *p++;
        if ((*name)[n] != '%') continue;
        int byte = neo__plan_hex(p);
        NEO__PLAN_WANT(byte > 0, "% begins no byte of two digits in", reader->word);
        (*name)[n] = (char)byte;
        p += 2;
    }
    return NEO_OK;
}
static neo_status neo__plan_read_name(neo__plan_reader *reader) {
    char *name;
    NEO__TRY(neo__plan_read_text(reader, &reader->plan->work, &name));
    for (reader->table = 0; reader->table < reader->plan->bags.table_count; reader->table++)
        if (strcmp(reader->plan->bags.tables[reader->table].name, name) == 0) return NEO_OK;
    return neo_fail(NEO_ERR_MISMATCH, "%s:%" PRId64 ": the model has no table '%.200s'",
                    reader->path, reader->line, name);
}
/* "0,2,5-6/8-9": ranks to reader->ranks; groups: divided by '/', of as many each. */
static neo_status neo__plan_read_ranks(neo__plan_reader *reader, int32_t *groups, int32_t *each) {
    const char *p = neo__plan_word(reader);
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
        NEO__PLAN_WANT(last < reader->plan->desc.cluster.ranks, "there are not so many ranks", "");
        for (; first <= last; first++, in_group++) {
            NEO__PLAN_WANT(count < NEO__PLAN_MAX_RANKS, "too many ranks", "");
            reader->ranks[count++] = (int32_t)first;
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
static neo_status neo__plan_read_room(neo__plan_reader *reader, int64_t more, neo_piece **to) {
    if (reader->count + more > reader->room) {
        neo_piece *pieces;
        NEO__TRY(NEO__ARENA(&reader->plan->work, pieces, 2 * reader->room + more));
        if (reader->count) memcpy(pieces, reader->pieces, (size_t)reader->count * sizeof *pieces);
        reader->pieces = pieces;
        reader->room = 2 * reader->room + more;
    }
    *to = reader->pieces + reader->count;
    reader->count += more;
    return NEO_OK;
}
static neo_status neo__plan_read_cut(neo__plan_reader *reader, neo_placement placement) {
    const neo__plan_table *table = &reader->plan->table[reader->table];
    neo__plan_shape shape = {0, 0, reader->ranks};
    int32_t groups = 0, each = 0;
    if (placement != NEO_DATA_PARALLEL) {
        NEO__TRY(neo__plan_read_ranks(reader, &groups, &each));
        int by_cols = placement == NEO_COLUMN_WISE || placement == NEO_TABLE_COLUMN_WISE;
        NEO__PLAN_WANT(placement == NEO_GRID || groups == 1, "only a grid has slices divided by /",
                       "");
        NEO__PLAN_WANT(placement != NEO_TABLE_WISE || each == 1, "tw has one rank", "");
        shape.col_parts = by_cols ? each : groups;
        shape.row_parts = by_cols ? 1 : each;
        NEO__PLAN_WANT(shape.col_parts <= table->blocks, "it has not so many blocks of columns",
                       "");
        NEO__PLAN_WANT(shape.row_parts <= neo__plan_row_units(table),
                       "it has not so many rows or buckets", "");
    }
    neo_piece *to;
    NEO__TRY(neo__plan_read_room(reader, neo__plan_shape_count(shape), &to));
    neo__plan_shape_cut(table, shape, to);
    return NEO_OK;
}
static neo_status neo__plan_read_table(neo__plan_reader *reader) {
    int64_t rows, cols;
    neo_placement placement = NEO_TABLE_WISE;
    NEO__TRY(neo__plan_read_name(reader));
    const neo__plan_table *t = &reader->plan->table[reader->table];
    const char *name = t->desc->name;
    NEO__PLAN_WANT(!reader->seen[reader->table], "a second line for table", name);
    reader->seen[reader->table] = 1;
    NEO__PLAN_WANT(neo__plan_read_pair(reader, 'x', &rows, &cols), "not rows x dim, as 100x16:",
                   reader->word);
    NEO__CHECK(rows == t->rows && cols == t->dim, NEO_ERR_MISMATCH,
               "%s:%" PRId64 ": table '%s' is %" PRId64 " x %" PRId64 " here, and %" PRId64
               " x %" PRId64 " in the model",
               reader->path, reader->line, name, rows, cols, t->rows, t->dim);
    if (strcmp(neo__plan_word(reader), "pieces") == 0) {
        NEO__PLAN_WANT(neo__plan_read_number(reader, &reader->open) && reader->open > 0,
                       "not a number of pieces:", reader->word);
        return NEO_OK;
    }
    NEO__PLAN_WANT(neo_placement_parse(reader->word, &placement) == NEO_OK,
                   "neither tw, cw, rw, dp, twrw, twcw, grid nor pieces:", reader->word);
    return neo__plan_read_cut(reader, placement);
}
static neo_status neo__plan_read_piece(neo__plan_reader *reader) {
    int64_t rank;
    neo_piece *p;
    NEO__PLAN_WANT(reader->open > 0, "a piece more than were announced", "");
    NEO__TRY(neo__plan_read_room(reader, 1, &p));
    NEO__PLAN_WANT(neo__plan_read_number(reader, &rank) && rank < reader->plan->desc.cluster.ranks,
                   "not a rank of this plan:", reader->word);
    NEO__PLAN_WANT(neo__plan_read_pair(reader, '+', &p->first_row, &p->rows),
                   "not first row + rows, as 0+16:", reader->word);
    NEO__PLAN_WANT(neo__plan_read_pair(reader, '+', &p->first_col, &p->cols),
                   "not first column + columns, as 0+16:", reader->word);
    p->table = reader->table;
    p->rank = (int32_t)rank;
    reader->open--;
    return NEO_OK;
}
static neo_status neo__plan_read_head(neo__plan_reader *reader) {
    int64_t ranks, per_node;
    NEO__PLAN_WANT(neo__plan_line(reader), "a plan begins with 'neo-plan 1'; this file is empty",
                   "");
    NEO__PLAN_WANT(strcmp(reader->word, "neo-plan") == 0,
                   "a plan begins with 'neo-plan 1', not with", reader->word);
    NEO__PLAN_WANT(strcmp(neo__plan_word(reader), "1") == 0, "this version reads format 1, not",
                   reader->word);
    NEO__PLAN_WANT(!neo__plan_word(reader)[0], "more than belongs on the line:", reader->word);
    if (!neo__plan_line(reader)) return NEO_OK;
    NEO__PLAN_WANT(strcmp(reader->word, "ranks") == 0, "the second line is 'ranks', not",
                   reader->word);
    NEO__PLAN_WANT(neo__plan_read_number(reader, &ranks), "not a number of ranks:", reader->word);
    NEO__PLAN_WANT(neo__plan_read_number(reader, &per_node), "not a number of ranks of a node:",
                   reader->word);
    NEO__CHECK(ranks == reader->plan->desc.cluster.ranks, NEO_ERR_MISMATCH,
               "%s:%" PRId64 ": a plan for %" PRId64 " ranks, here are %d", reader->path,
               reader->line, ranks, reader->plan->desc.cluster.ranks);
    NEO__PLAN_WANT(!neo__plan_word(reader)[0], "more than belongs on the line:", reader->word);
    return NEO_OK;
}
static neo_status neo__plan_read_lines(neo__plan_reader *reader) {
    NEO__TRY(neo__plan_read_head(reader));
    while (neo__plan_line(reader)) {
        if (strcmp(reader->word, "piece") == 0) {
            NEO__TRY(neo__plan_read_piece(reader));
        } else {
            NEO__PLAN_WANT(reader->open == 0, "pieces are missing before", reader->word);
            NEO__PLAN_WANT(strcmp(reader->word, "table") == 0,
                           "neither table nor piece:", reader->word);
            NEO__TRY(neo__plan_read_table(reader));
        }
        NEO__PLAN_WANT(!neo__plan_word(reader)[0], "more than belongs on the line:", reader->word);
    }
    NEO__PLAN_WANT(reader->open == 0, "pieces are missing at the end", "");
    for (int32_t t = 0; t < reader->plan->bags.table_count; t++)
        NEO__CHECK(reader->seen[t], NEO_ERR_MISMATCH, "%s: has no line for table '%s'",
                   reader->path, reader->plan->bags.tables[t].name);
    return NEO_OK;
}
/* text: [bytes] and a NUL; it is cut into words. */
static neo_status neo__plan_parse(neo_plan *plan, const char *path, char *text, size_t bytes) {
    neo__plan_reader *reader;
    NEO__TRY(NEO__ARENA(&plan->work, reader, 1));
    reader->plan = plan;
    reader->path = path;
    reader->at = text;
    reader->end = text + bytes;
    NEO__TRY(NEO__ARENA(&plan->work, reader->seen, plan->bags.table_count));
    NEO__TRY(neo__plan_read_lines(reader));
    return neo__plan_fill(plan, reader->pieces, reader->count, path);
}
/* The whole file as text with a NUL behind it, in memory of the arena. */
static neo_status neo__plan_load_file(neo__arena *arena, const char *path, char **text,
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
    neo_status status = NEO__ARENA(arena, *text, size + 1);
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
    neo_status status = neo__plan_load_file(&(*plan)->work, path, &text, &bytes);
    if (status == NEO_OK) status = neo__plan_parse(*plan, path, text, bytes);
    neo__arena_free(&(*plan)->work);
    return neo__plan_done(*plan, status, plan);
}

/* ---------------------------------------------------------------------------
   >>impl-profile

   A count of each row; a group for each count below 32 and for each eighth of an octave above. A
   profile that was read has the groups alone.
   ------------------------------------------------------------------------ */
enum { NEO__PROFILE_EXACT = 32, NEO__PROFILE_GROUPS = NEO__PROFILE_EXACT + 8 * 27 };
typedef struct neo__profile_table {
    const char *name;
    int64_t rows, ids, groups;
    uint32_t *count; /* [rows]; NULL: it was read */
    neo_row_use *use; /* [NEO__PROFILE_GROUPS] */
    int64_t *hot, hot_count;
} neo__profile_table;
struct neo_profile {
    neo_ctx *ctx;
    neo__live live;
    neo__arena kept;
    neo__profile_table *table;
    int32_t tables, features;
    int32_t *feature_table;
};
static neo_status neo__profile_new(neo_ctx *ctx, const char *fn, neo_profile **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "%s: profile is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_live(ctx, fn, "ctx"));
    neo_profile *profile = (neo_profile *)neo__alloc_for(ctx, sizeof *profile, fn);
    if (!profile) return NEO_ERR_MEMORY;
    memset(profile, 0, sizeof *profile);
    profile->ctx = profile->kept.ctx = ctx;
    profile->kept.function = fn;
    neo__live_begin(ctx, &profile->live, "profile", NULL);
    *out = profile;
    return NEO_OK;
}
NEO_API void neo_profile_destroy(neo_profile *profile) {
    if (!profile) return;
    neo__live_end(profile->ctx, &profile->live);
    neo__arena_free(&profile->kept);
    neo_free(profile->ctx, profile, sizeof *profile);
}
static neo_status neo__profile_done(neo_status status, neo_profile **profile) {
    if (status == NEO_OK) return status;
    neo_profile_destroy(*profile);
    *profile = NULL;
    return status;
}
static neo_status neo__profile_tables(neo_profile *profile, const neo_bags_desc *bags) {
    neo__arena *kept = &profile->kept;
    profile->tables = bags->table_count;
    profile->features = neo__plan_features(bags);
    NEO__TRY(NEO__ARENA(kept, profile->table, profile->tables));
    NEO__TRY(NEO__ARENA(kept, profile->feature_table, profile->features));
    for (int32_t f = 0; f < profile->features; f++)
        profile->feature_table[f] = bags->feature_table ? bags->feature_table[f] : f;
    for (int32_t t = 0; t < profile->tables; t++) {
        const neo_table_desc *from = &bags->tables[t];
        neo__profile_table *table = &profile->table[t];
        char *name;
        NEO__CHECK(!from->keys.on, NEO_ERR_UNSUPPORTED,
                   "neo_profile_create: table '%s' has keys: they have no rows of their own",
                   from->name);
        table->rows = from->rows;
        NEO__TRY(NEO__ARENA(kept, name, strlen(from->name) + 1));
        table->name = strcpy(name, from->name);
        NEO__TRY(NEO__ARENA(kept, table->use, NEO__PROFILE_GROUPS));
        NEO__TRY(NEO__ARENA(kept, table->count, from->rows));
    }
    return NEO_OK;
}
NEO_API neo_status neo_profile_create(neo_ctx *ctx, const neo_bags_desc *bags,
                                      neo_profile **profile) {
    neo_bags_memory memory;
    NEO__TRY(neo__profile_new(ctx, "neo_profile_create", profile));
    NEO__ZERO(neo_bags_desc, one);
    if (bags) one = *bags;
    one.tier = NULL;
    neo_status status = neo_bags_bytes(ctx, bags ? &one : NULL, &memory); /* is it a description? */
    if (status == NEO_OK) status = neo__profile_tables(*profile, bags);
    return neo__profile_done(status, profile);
}
NEO_API neo_status neo_profile_add(neo_profile *profile, const neo_jagged *batch) {
    const char *fn = "neo_profile_add";
    NEO__CHECK(profile && batch && batch->place == NEO_HOST, NEO_ERR_ARG,
               "%s: an argument is NULL, or the batch is not on the host", fn);
    NEO__CHECK(profile->feature_table, NEO_ERR_STATE, "%s: the profile was read from a file", fn);
    NEO__CHECK(batch->feature_count == profile->features, NEO_ERR_SHAPE,
               "%s: the batch has %d features, the profile %d", fn, batch->feature_count,
               profile->features);
    NEO__TRY(neo_jagged_validate(batch, NULL));
    for (int32_t f = 0; f < profile->features && neo_jagged_bag_count(batch); f++) {
        neo__profile_table *table = &profile->table[profile->feature_table[f]];
        const int64_t end = batch->offsets[neo__jagged_first_bag(batch, f + 1)];
        for (int64_t k = batch->offsets[neo__jagged_first_bag(batch, f)]; k < end; k++) {
            const int64_t id = batch->id_dtype == NEO_I32 ? ((const int32_t *)batch->ids)[k]
                                                          : ((const int64_t *)batch->ids)[k];
            if (id < 0 || id >= table->rows || table->count[id] == UINT32_MAX) continue;
            table->count[id]++;
            table->ids++;
        }
    }
    return NEO_OK;
}
static int neo__profile_group(uint32_t count) {
    int octave = 5;
    if (count < NEO__PROFILE_EXACT) return (int)count;
    while (octave < 31 && count >> (octave + 1)) octave++;
    return NEO__PROFILE_EXACT + 8 * (octave - 5) + (int)(count >> (octave - 3) & 7);
}
static const neo_row_use *neo__profile_uses(neo__profile_table *table, int64_t *count) {
    if (table->count) {
        neo_row_use use[NEO__PROFILE_GROUPS];
        memset(use, 0, sizeof use);
        for (int64_t r = 0; r < table->rows; r++) {
            neo_row_use *to = &use[neo__profile_group(table->count[r])];
            to->rows++;
            to->ids += table->count[r];
        }
        table->groups = 0;
        for (int i = NEO__PROFILE_GROUPS - 1; i > 0; i--) /* the most used first */
            if (use[i].rows) table->use[table->groups++] = use[i];
    }
    *count = table->groups;
    return table->use;
}
/* NULL: it has no table of the name. */
static neo__profile_table *neo__profile_find(const neo_profile *profile, const char *name) {
    for (int32_t t = 0; profile && name && t < profile->tables; t++)
        if (strcmp(profile->table[t].name, name) == 0) return &profile->table[t];
    return NULL;
}
NEO_API const neo_row_use *neo_profile_uses(const neo_profile *profile, const char *name,
                                            int64_t *count, int64_t *rows, int64_t *ids) {
    neo__profile_table *table = neo__profile_find(profile, name);
    *count = 0;
    if (!table) return NULL;
    if (rows) *rows = table->rows;
    if (ids) *ids = table->ids;
    return neo__profile_uses(table, count);
}
/* The least count of which at most n rows have more; 0: all that are used are among them. */
static uint32_t neo__profile_bar(const neo__profile_table *table, int64_t n) {
    uint32_t least = 0, most = UINT32_MAX; /* no row has more than `most` */
    while (least < most) {
        const uint32_t bar = least + (most - least) / 2;
        int64_t above = 0;
        for (int64_t row = 0; row < table->rows; row++) above += table->count[row] > bar;
        if (above > n) least = bar + 1;
        else most = bar;
    }
    return least;
}
static neo_status neo__profile_choose(neo_profile *profile, neo__profile_table *table, int64_t n) {
    neo__plan_key *key;
    const uint32_t bar = neo__profile_bar(table, n);
    const size_t bytes = (size_t)n * sizeof *key + 1;
    int64_t count = 0;
    NEO__TRY(NEO__ARENA(&profile->kept, table->hot, n));
    table->hot_count = 0;
    key = (neo__plan_key *)neo__alloc_for(profile->ctx, bytes, "neo_profile_hot");
    if (!key) return NEO_ERR_MEMORY;
    for (int equal = 0; equal < 2; equal++)
        for (int64_t row = 0; row < table->rows && count < n; row++) {
            const uint32_t uses = table->count[row];
            if (!uses || (equal ? uses != bar : uses <= bar)) continue;
            key[count].first = -(double)uses, key[count].second = 0.0;
            key[count++].at = row;
        }
    qsort(key, (size_t)count, sizeof *key, neo__plan_key_order);
    for (int64_t i = 0; i < count; i++) table->hot[i] = key[i].at;
    table->hot_count = count;
    neo_free(profile->ctx, key, bytes);
    return NEO_OK;
}
/* Add to *level what each of `rows` rows of one kind takes that a batch names `uses` times.
   Returns the seconds of a row. */
static double neo__plan_level_add(const neo__plan_table *table, int heat, double uses, int64_t rows,
                                  neo_row_level *level) {
    const neo_plan *plan = table->plan;
    const double ranks = plan->desc.cluster.ranks, nodes = plan->nodes, local = plan->per_node,
                 many = (double)rows, sum = 2.0 * neo__plan_reduced(1, table->dim),
                 named = uses * (plan->model.id_bytes + 4.0 * (double)table->dim +
                                 neo__plan_wire(plan->desc.wire_backward, table->dim));
    const double inside[] = {named * (local - 1.0) / ranks, named * (local - 1.0) / local,
                             sum * (local - 1.0)},
                 across[] = {named * (ranks - local) / ranks, sum * (nodes - 1.0),
                             sum * (ranks - local)};
    const int64_t copies[] = {1, plan->nodes, plan->desc.cluster.ranks};
    const double seconds =
        (inside[heat] * plan->model.local + across[heat] * plan->model.cross) / ranks;
    level->rows += rows;
    level->bytes += copies[heat] * (neo__plan_weight_bytes(table, rows, table->dim) +
                                    neo__plan_piece_state(table, rows, table->dim));
    level->ids += many * uses;
    level->sent[NEO_LEVEL_LOCAL] += many * inside[heat];
    level->sent[NEO_LEVEL_CROSS] += many * across[heat];
    level->seconds += many * seconds;
    return seconds;
}
/* Rows of one group: as many as may be of the kind that takes least, the rest of the next. */
static void neo__plan_level_group(const neo__plan_table *table, double uses, int64_t rows,
                                  int64_t *left, neo_row_level *level) {
    const neo_plan *plan = table->plan;
    neo_row_level one[NEO_HEAT_COUNT];
    double takes[NEO_HEAT_COUNT];
    memset(one, 0, sizeof one);
    for (int i = 0; i < NEO_HEAT_COUNT; i++)
        takes[i] = neo__plan_level_add(table, i, uses, 1, &one[i]);
    if (plan->last_node != plan->per_node) left[NEO_WARM] = 0;
    while (rows) {
        int best = NEO_COLD;
        for (int i = NEO_WARM; i < NEO_HEAT_COUNT; i++)
            if (left[i] && takes[i] < takes[best]) best = i;
        const int64_t n = best == NEO_COLD ? rows : NEO__MIN(rows, left[best]);
        (void)neo__plan_level_add(table, best, uses, n, &level[best]);
        left[best] -= best == NEO_COLD ? 0 : n;
        rows -= n;
    }
}
NEO_API neo_status neo_plan_levels(const neo_plan *plan, int32_t t, const neo_profile *profile,
                                   const int64_t *most, neo_row_level *level) {
    static const char *const fn = "neo_plan_levels";
    int64_t groups, rows, ids, left[NEO_HEAT_COUNT];
    NEO__CHECK(plan && profile && level && t >= 0 && t < plan->bags.table_count, NEO_ERR_ARG,
               "%s: an argument is NULL, or there is no table %d", fn, t);
    NEO__CHECK(plan->desc.replicas <= 1, NEO_ERR_UNSUPPORTED,
               "%s: the plan is of %d replicas, which have copies", fn, plan->desc.replicas);
    const neo__plan_table *table = &plan->table[t];
    const neo_row_use *use = neo_profile_uses(profile, table->desc->name, &groups, &rows, &ids);
    NEO__CHECK(use && rows == table->rows, NEO_ERR_MISMATCH,
               "%s: the profile has no table '%s' of %" PRId64 " rows", fn, table->desc->name,
               table->rows);
    const double batch = (double)plan->bags.max_batch * table->ids;
    for (int i = 0; i < NEO_HEAT_COUNT; i++) left[i] = most ? most[i] : INT64_MAX;
    memset(level, 0, NEO_HEAT_COUNT * sizeof *level);
    for (int64_t i = 0; i < groups; rows -= use[i++].rows)
        neo__plan_level_group(table, (double)use[i].ids / (double)use[i].rows *
                                         (batch / (double)ids), use[i].rows, left, level);
    (void)neo__plan_level_add(table, NEO_COLD, 0.0, rows, level); /* those that are not used */
    return NEO_OK;
}
NEO_API neo_status neo_profile_hot(neo_profile *profile, int64_t n) {
    NEO__CHECK(profile && n >= 0, NEO_ERR_ARG, "neo_profile_hot: profile is NULL, or n is below 0");
    NEO__CHECK(profile->feature_table, NEO_ERR_STATE,
               "neo_profile_hot: the profile was read from a file");
    for (neo__profile_table *t = profile->table; t < profile->table + profile->tables; t++)
        NEO__TRY(neo__profile_choose(profile, t, NEO__MIN(n, t->rows)));
    return NEO_OK;
}
NEO_API const int64_t *neo_profile_rows(const neo_profile *profile, const char *name,
                                        int64_t *count) {
    const neo__profile_table *table = neo__profile_find(profile, name);
    *count = table ? table->hot_count : 0;
    return *count ? table->hot : NULL;
}
NEO_API neo_status neo_profile_write(const neo_profile *profile, const char *path) {
    NEO__CHECK(profile && path, NEO_ERR_ARG, "neo_profile_write: an argument is NULL");
    neo__plan_text f;
    NEO__TRY(neo__plan_text_open(&f, path));
    neo__plan_text_add(&f, "neo-profile 1\n");
    for (int32_t t = 0; t < profile->tables; t++) {
        int64_t count;
        const neo_row_use *use = neo__profile_uses(&profile->table[t], &count);
        neo__plan_text_add(&f, "table ");
        neo__plan_write_name(&f, profile->table[t].name);
        neo__plan_text_add(&f, " %" PRId64, profile->table[t].rows);
        for (int64_t i = 0; i < count; i++)
            neo__plan_text_add(&f, " %" PRId64 ":%" PRId64, use[i].rows, use[i].ids);
        neo__plan_text_add(&f, "\n");
        if (!profile->table[t].hot_count) continue;
        neo__plan_text_add(&f, "hot ");
        neo__plan_write_name(&f, profile->table[t].name);
        for (int64_t i = 0; i < profile->table[t].hot_count; i++)
            neo__plan_text_add(&f, " %" PRId64, profile->table[t].hot[i]);
        neo__plan_text_add(&f, "\n");
    }
    return neo__plan_text_close(&f, path);
}
static int neo__profile_row_order(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}
static neo_status neo__profile_hot_line(neo_profile *profile, neo__arena *work,
                                        neo__plan_reader *reader) {
    char *name;
    int64_t *sorted;
    NEO__TRY(neo__plan_read_text(reader, &profile->kept, &name));
    neo__profile_table *t = neo__profile_find(profile, name);
    NEO__PLAN_WANT(t && !t->hot, "not a table above, or its second line of hot rows:", name);
    NEO__TRY(NEO__ARENA(&profile->kept, t->hot, strlen(reader->rest) / 2 + 1));
    for (; reader->rest[strspn(reader->rest, " \t\r")]; t->hot_count++)
        NEO__PLAN_WANT(neo__plan_read_number(reader, &t->hot[t->hot_count]) &&
                           t->hot[t->hot_count] < t->rows, "not a row of the table:", reader->word);
    NEO__TRY(NEO__ARENA(work, sorted, t->hot_count + 1));
    memcpy(sorted, t->hot, (size_t)t->hot_count * sizeof *sorted);
    qsort(sorted, (size_t)t->hot_count, sizeof *sorted, neo__profile_row_order);
    for (int64_t i = 1; i < t->hot_count; i++)
        NEO__PLAN_WANT(sorted[i - 1] < sorted[i], "a hot row twice, of table", name);
    return NEO_OK;
}
static neo_status neo__profile_line(neo_profile *profile, neo__plan_reader *reader) {
    neo__profile_table *table = &profile->table[profile->tables];
    char *name;
    int64_t used = 0;
    NEO__PLAN_WANT(strcmp(reader->word, "table") == 0, "not a table:", reader->word);
    NEO__TRY(neo__plan_read_text(reader, &profile->kept, &name));
    NEO__PLAN_WANT(!neo__profile_find(profile, name), "a second line for table", name);
    table->name = name;
    NEO__PLAN_WANT(neo__plan_read_number(reader, &table->rows) && table->rows > 0,
                   "not a number of rows:", reader->word);
    NEO__TRY(NEO__ARENA(&profile->kept, table->use, NEO__PROFILE_GROUPS));
    while (reader->rest[strspn(reader->rest, " \t\r")]) {
        neo_row_use *use = &table->use[table->groups];
        NEO__PLAN_WANT(table->groups < NEO__PROFILE_GROUPS, "more groups than counts have", "");
        NEO__PLAN_WANT(neo__plan_read_pair(reader, ':', &use->rows, &use->ids) && use->rows > 0 &&
                           use->rows <= table->rows - used && use->ids >= use->rows &&
                           use->ids <= INT64_MAX - table->ids,
                       "not rows of the table and as many ids at least, as 8:9077:", reader->word);
        NEO__PLAN_WANT(!table->groups || (double)use->ids / (double)use->rows <
                                             (double)use[-1].ids / (double)use[-1].rows,
                       "rows that are used more than those before:", reader->word);
        used += use->rows;
        table->ids += use->ids;
        table->groups++;
    }
    profile->tables++;
    return NEO_OK;
}
/* text: as for neo__plan_parse. */
static neo_status neo__profile_parse(neo_profile *profile, neo__arena *work, const char *path,
                                     char *text, size_t bytes) {
    neo__plan_reader *reader;
    size_t lines = 1;
    NEO__TRY(NEO__ARENA(work, reader, 1));
    reader->path = path;
    reader->at = text;
    reader->end = text + bytes;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    NEO__TRY(NEO__ARENA(&profile->kept, profile->table, lines));
    NEO__PLAN_WANT(neo__plan_line(reader) && strcmp(reader->word, "neo-profile") == 0 &&
                       strcmp(neo__plan_word(reader), "1") == 0 && !neo__plan_word(reader)[0],
                   "a profile begins with 'neo-profile 1'", "");
    while (neo__plan_line(reader))
        NEO__TRY(strcmp(reader->word, "hot") ? neo__profile_line(profile, reader)
                                             : neo__profile_hot_line(profile, work, reader));
    return NEO_OK;
}
NEO_API neo_status neo_profile_read(neo_ctx *ctx, const char *path, neo_profile **profile) {
    NEO__ZERO(neo__arena, work);
    NEO__CHECK(path, NEO_ERR_ARG, "neo_profile_read: path is NULL");
    NEO__TRY(neo__profile_new(ctx, "neo_profile_read", profile));
    work.ctx = ctx;
    work.function = "neo_profile_read";
    char *text = NULL;
    size_t bytes = 0;
    neo_status status = neo__plan_load_file(&work, path, &text, &bytes);
    if (status == NEO_OK) status = neo__profile_parse(*profile, &work, path, text, bytes);
    neo__arena_free(&work);
    return neo__profile_done(status, profile);
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
    neo__live_begin(plan->ctx, &plan->live, "plan", NULL);
    *out = plan;
    return NEO_OK;
}
/* uniform below 0: of all placements. */
static neo_status neo__plan_try_once(neo_ctx *ctx, const neo_plan_desc *desc, const char *fn,
                                     int uniform, neo_plan **plan) {
    NEO__TRY(neo__plan_new(ctx, desc, fn, plan));
    if (uniform >= 0) {
        (*plan)->origin = NEO__PLAN_UNIFORM;
        (*plan)->uniform = (neo_placement)uniform;
    }
    return neo__plan_done(*plan, neo__plan_run(*plan, fn), plan);
}
/* With more memory below which rows lie another plan may be the best, which needs more still: of a
   tier that is too small, the message has what is enough for the plan that is found with it. */
static neo_status neo__plan_try(neo_ctx *ctx, const neo_plan_desc *desc, const char *fn,
                                int uniform, neo_plan **plan) {
    enum { TRIES = 16 };
    neo_plan *other = NULL;
    const neo_status status = neo__plan_try_once(ctx, desc, fn, uniform, plan);
    if (status != NEO_ERR_CAPACITY || !desc->bags->tier) return status;
    neo__tier_budget *tier = neo__tier_budget_of(desc->bags->tier);
    neo_status found = status;
    char said[900] = "";
    for (int i = 0; i < TRIES && found == NEO_ERR_CAPACITY && tier->needs_bytes; i++) {
        snprintf(said, sizeof said, "%s", neo_last_error());
        tier->memory_bytes = tier->needs_bytes;
        found = neo__plan_try_once(ctx, desc, fn, uniform, &other);
    }
    const int tried = tier->memory_bytes != tier->given_bytes, lacks = tier->needs_bytes != 0;
    tier->memory_bytes = tier->given_bytes;
    neo_plan_destroy(other);
    if (!tried) return status;
    return neo_fail(status, "%s%s", said, found != NEO_OK && lacks ? ", or more" : "");
}
NEO_API neo_status neo_plan_create(neo_ctx *ctx, const neo_plan_desc *desc, neo_plan **plan) {
    return neo__plan_try(ctx, desc, "neo_plan_create", -1, plan);
}
NEO_API neo_status neo_plan_create_uniform(neo_ctx *ctx, const neo_plan_desc *desc,
                                           neo_placement placement, neo_plan **plan) {
    const char *fn = "neo_plan_create_uniform";
    NEO__CHECK((unsigned)placement < NEO_PLACEMENT_COUNT, NEO_ERR_ARG,
               "%s: placement %d does not exist", fn, (int)placement);
    return neo__plan_try(ctx, desc, fn, (int)placement, plan);
}
/* Words about a plan: pieces, origin, uniform. */
enum { NEO__PLAN_SAID = 3 };
static neo_status neo__plan_take(neo_ctx *ctx, const neo_plan_desc *desc, const int64_t *said,
                                 const neo_piece *pieces, const char *fn, neo_plan **plan) {
    NEO__TRY(neo__plan_new(ctx, desc, fn, plan));
    (*plan)->origin = (neo__plan_origin)said[1];
    (*plan)->uniform = (neo_placement)said[2];
    return neo__plan_done(*plan, neo__plan_fill(*plan, pieces, said[0], fn), plan);
}
NEO_API neo_status neo_plan_create_from(neo_ctx *ctx, const neo_plan_desc *desc,
                                        const neo_piece *pieces, int64_t count, neo_plan **plan) {
    const int64_t said[NEO__PLAN_SAID] = {count, NEO__PLAN_GIVEN, 0};
    return neo__plan_take(ctx, desc, said, pieces, "neo_plan_create_from", plan);
}
/* The others' plans; *pieces: room for those that come. */
static neo_status neo__plan_send(neo_comm *comm, const neo_plan_desc *desc, int64_t *said,
                                 neo_piece **pieces, neo_plan **plan) {
    const int sends = neo_comm_rank(comm) == 0;
    neo_ctx *ctx = neo_comm_ctx(comm);
    NEO__TRY(neo_comm_broadcast(comm, said, NEO__PLAN_SAID, NEO_I64, 0, NULL));
    const size_t bytes = (size_t)said[0] * sizeof **pieces;
    if (!sends) *pieces = (neo_piece *)neo__alloc_for(ctx, bytes, "neo_plan_broadcast");
    NEO__TRY(neo_comm_agree(comm, *pieces ? NEO_OK : NEO_ERR_MEMORY));
    NEO__TRY(neo_comm_broadcast(comm, *pieces, (int64_t)bytes, NEO_U8, 0, NULL));
    return neo_comm_agree(comm, sends ? NEO_OK
                                      : neo__plan_take(ctx, desc, said, *pieces,
                                                       "neo_plan_broadcast", plan));
}
NEO_API neo_status neo_plan_broadcast(neo_comm *comm, const neo_plan_desc *desc, neo_status status,
                                      neo_plan **plan) {
    NEO__CHECK(comm, NEO_ERR_ARG, "neo_plan_broadcast: comm is NULL");
    comm = neo_comm_host(comm);
    const int sends = neo_comm_rank(comm) == 0, alone = neo_comm_size(comm) == 1;
    int64_t said[NEO__PLAN_SAID] = {0, 0, 0};
    neo_piece *pieces = NULL;
    if (plan && !sends) *plan = NULL;
    if (status == NEO_OK && (!desc || !plan || (sends && !*plan)))
        status = neo_fail(NEO_ERR_ARG, "neo_plan_broadcast: %s",
                          !desc ? "desc is NULL" : plan ? "rank 0 has no plan" : "plan is NULL");
    if (plan && *plan) {
        pieces = (*plan)->piece;
        said[0] = (*plan)->piece_count;
        said[1] = (int64_t)(*plan)->origin;
        said[2] = (int64_t)(*plan)->uniform;
    }
    if (!alone) status = neo_comm_agree(comm, status);
    if (!alone && status == NEO_OK) status = neo__plan_send(comm, desc, said, &pieces, plan);
    if (!sends && pieces) neo_free(neo_comm_ctx(comm), pieces, (size_t)said[0] * sizeof *pieces);
    if (status == NEO_OK || !plan) return status;
    neo_plan_destroy(*plan);
    *plan = NULL;
    return status;
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

   A copy of two buffers beyond the caches gives the bandwidth. Tables of two widths and of every
   optimizer's state give what an id takes: of few rows, of as many rows as ids, and of rows that no
   run had before, these of larger tables, too; one more the cost of buckets, and of gradients that
   are kept. Two loops as a
   shard's, over ids and over short rows, give the rest; a product of matrices the flops, layers of
   wide, narrow, short and long shapes a line through their seconds. A block of a transformer finds
   its tensors as a step leaves them. The optimizer steps behind no and more and more other bytes,
   and waits: a cache, and what others on the machine take of it, are those by which its seconds
   follow best. All that is measured takes turns, so that who shares the machine for a while slows
   some runs of each; one counts that is a little below the median.
   ------------------------------------------------------------------------ */
#ifndef NEO__CALIBRATE_RUNS
#define NEO__CALIBRATE_RUNS 9
#define NEO__CALIBRATE_TIMES 16 /* the rows, of tables of 1 GiB */
#endif
enum {
    NEO__CALIBRATE_TURNS = 3, /* in each a third of the runs of all that is measured */
    NEO__CALIBRATE_DIM = 64,
    NEO__CALIBRATE_BUCKETS = 8,
    NEO__CALIBRATE_SLICE = 16,
    NEO__CALIBRATE_IDS = 8192,
    NEO__CALIBRATE_TABLES = 16,
    NEO__CALIBRATE_EDGE = 512,
    NEO__CALIBRATE_NEAR = 2 << 20, NEO__CALIBRATE_FAR = 16 << 20, /* bytes, copied, of layers */
    NEO__CALIBRATE_MS = 16 /* in which others on the machine take most of a larger cache */
};
typedef struct neo__calibrate_job {
    float *memory; /* two buffers */
    int64_t floats, tasks, apart;
} neo__calibrate_job;
static void neo__calibrate_task(void *arg, int64_t i, int worker) {
    const neo__calibrate_job *job = (const neo__calibrate_job *)arg;
    int64_t begin = neo__bucket_begin(job->floats, job->tasks, i),
            end = neo__bucket_begin(job->floats, job->tasks, i + 1);
    (void)worker;
    memcpy(job->memory + job->apart + begin, job->memory + begin,
           (size_t)(end - begin) * sizeof *job->memory);
}
/* The caches as a step's layers leave them, of every thread a share: pages are forgotten, too, and
   threads are awake. */
static void neo__calibrate_others(neo_ctx *ctx, float *memory, int64_t bytes) {
    neo__calibrate_job job = {memory, bytes / 4, neo_ctx_threads(ctx),
                              NEO__MAX(bytes / 4, (int64_t)NEO__CALIBRATE_FLOATS)};
    neo_parallel_for(ctx, job.tasks, neo__calibrate_task, &job);
}
static void neo__calibrate_nothing(void *arg, int64_t i, int worker) {
    (void)arg, (void)i, (void)worker;
}
/* Passes time without memory; threads stay awake, as between two calls of a step. */
static void neo__calibrate_wait(neo_ctx *ctx, double ms) {
    const int64_t until = neo_time_ns() + (int64_t)(ms * 1e6);
    do neo_parallel_for(ctx, neo_ctx_threads(ctx), neo__calibrate_nothing, NULL);
    while (neo_time_ns() < until);
}
/* CPU time of one thread (ctx NULL, or with one), which others on the machine hardly disturb; of
   several the clock of ctx. */
static int64_t neo__calibrate_now(const neo_ctx *ctx) {
#if defined(CLOCK_THREAD_CPUTIME_ID) && !defined(_WIN32)
    struct timespec t;
    if ((!ctx || neo_ctx_threads(ctx) == 1) && !clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t))
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#endif
    return ctx ? neo_ctx_time_ns(ctx) : neo_time_ns();
}
/* Seconds of the same thing, sorted. */
typedef struct neo__calibrate_times {
    double run[NEO__CALIBRATE_RUNS];
    int count;
} neo__calibrate_times;
static void neo__calibrate_put(neo__calibrate_times *to, double took) {
    const double seconds = NEO__MAX(took, 1e-9);
    int i = to->count++;
    for (; i > 0 && to->run[i - 1] > seconds; i--) to->run[i] = to->run[i - 1];
    to->run[i] = seconds;
}
static void neo__calibrate_add(neo__calibrate_times *to, const neo_ctx *ctx, int64_t began) {
    neo__calibrate_put(to, (double)(neo__calibrate_now(ctx) - began) * 1e-9);
}
/* Runs take longer where memory is new, and where others use the machine: of all, the one that
   three eighths took less than. */
static double neo__calibrate_low(const neo__calibrate_times *x) {
    return x->run[x->count * 3 / 8];
}
static const double neo__calibrate_bytes = 4.0 * (double)NEO__CALIBRATE_FLOATS; /* of a buffer */
static void neo__calibrate_copy(neo_ctx *ctx, float *memory, neo__calibrate_times *times) {
    for (int run = 0; run < NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS; run++) {
        int64_t began = neo__calibrate_now(ctx);
        neo__calibrate_others(ctx, memory, (int64_t)neo__calibrate_bytes);
        neo__calibrate_add(times, ctx, began);
    }
}
/* Sets of ids: of few rows, with nothing between two calls (NEAR); of as many rows as ids, and of
   few, behind what leaves all in the largest cache (CACHED, BAG); of rows of each call's own, and
   of few, behind what leaves nothing in a cache (FAR, FAR_BAG). FAR has several ids a bag, so that
   it tells of rows. Those of CACHED are spread over the table: of neighbours a processor fetches
   the next by itself. From LESS_NEAR on: those of few rows, of a part of the ids. */
typedef enum neo__calibrate_set {
    NEO__SET_NEAR, NEO__SET_BAG, NEO__SET_FAR_BAG, NEO__SET_CACHED, NEO__SET_FAR,
    NEO__SET_LESS_NEAR, NEO__SET_LESS_BAG, NEO__SET_LESS_FAR_BAG, NEO__SET_COUNT
} neo__calibrate_set;
enum { NEO__SET_LESS = 4 }; /* the ids over those of the part */
/* A table, and seconds of what is done with it. */
typedef struct neo__calibrate_table {
    int64_t ids, rows, dim, pooling;
    int32_t buckets, count; /* count: alike, the ids are spread over all */
    int kept, sets;         /* sets: the first so many of neo__calibrate_bags */
    neo_bag_optim_kind kind;
    neo__calibrate_times keep; /* as update, with gradients that wait */
    neo__calibrate_times lookup[NEO__SET_COUNT], update[NEO__SET_COUNT];
} neo__calibrate_table;
static int neo__calibrate_is_far(int set) {
    return set == NEO__SET_FAR || set % NEO__SET_LESS_NEAR == NEO__SET_FAR_BAG;
}
/* Leaves caches as a set wants them. */
static void neo__calibrate_before(neo_ctx *ctx, int set, float *memory) {
    if (!memory || set % NEO__SET_LESS_NEAR == NEO__SET_NEAR) return;
    if (neo__calibrate_is_far(set)) {
        neo__calibrate_others(ctx, memory, (int64_t)neo__calibrate_bytes);
        neo__calibrate_wait(ctx, NEO__CALIBRATE_MS);
    } else {
        neo__calibrate_others(ctx, memory, 2 * NEO__CALIBRATE_NEAR); /* of a step, not a layer */
    }
}
static neo_status neo__calibrate_run(neo_ctx *ctx, neo_bags *bags, const neo_jagged *jagged,
                                     neo_tensor out, neo__calibrate_table *table, int set,
                                     float *memory) {
    neo__calibrate_before(ctx, set, memory);
    int64_t began = neo__calibrate_now(ctx);
    NEO__TRY(neo_bags_forward(bags, jagged, out));
    neo__calibrate_add(&table->lookup[set], ctx, began);
    neo__calibrate_before(ctx, set, memory);
    NEO__TRY(neo_tensor_zero(ctx, out)); /* gradients have been made a while ago */
    if (memory && set % NEO__SET_LESS_NEAR != NEO__SET_NEAR)
        neo__calibrate_others(ctx, memory, NEO__CALIBRATE_NEAR);
    began = neo__calibrate_now(ctx);
    NEO__TRY(neo_bags_backward(bags, jagged, out, 1e-3f));
    neo__calibrate_add(&table->update[set], ctx, began);
    if (!table->kept) return NEO_OK;
    began = neo__calibrate_now(ctx);
    NEO__TRY(neo_bags_accumulate(bags, jagged, out, NULL));
    NEO__TRY(neo_bags_step(bags, 1e-3f));
    neo__calibrate_add(&table->keep, ctx, began);
    return NEO_OK;
}
/* The ids of a run, scattered, and bags of them. Rows of FAR are those of no run before. */
static void neo__calibrate_ids(const neo__calibrate_table *table, int set, int run,
                               neo_jagged *batch, int64_t *id) {
    const int64_t ids = set < NEO__SET_LESS_NEAR ? table->ids : table->ids / NEO__SET_LESS,
                  each = ids / table->count,
                  among = set == NEO__SET_FAR      ? table->rows
                          : set == NEO__SET_CACHED ? each
                                                   : each / 32,
                  pooling = table->pooling * (set == NEO__SET_FAR ? NEO__CALIBRATE_POOLING : 1);
    batch->batch = each / pooling;
    for (int64_t i = 0; i < ids; i++) {
        id[i] = (run * each + i % each) * 0x9E3779B1 % among;
        if (set == NEO__SET_CACHED) id[i] = id[i] * 0x9E3779B1 % table->rows;
    }
    for (int64_t i = 0; i <= batch->batch * table->count; i++) id[table->ids + i] = i * pooling;
}
/* All sets, those behind the most first, as others find what they leave; far bags by row-wise state
   alone, as each waits for others on the machine to take a cache. memory NULL: as many rows as
   ids, with nothing between. */
static neo_status neo__calibrate_bags(neo_ctx *ctx, int64_t *id, float *memory,
                                      neo__calibrate_table *t) {
    static const neo__calibrate_set order[] = {
        NEO__SET_FAR, NEO__SET_FAR_BAG, NEO__SET_LESS_FAR_BAG, NEO__SET_BAG, NEO__SET_LESS_BAG,
        NEO__SET_NEAR, NEO__SET_LESS_NEAR, NEO__SET_CACHED};
    const int64_t shape[2] = {t->ids / t->count / t->pooling, t->dim * t->count};
    NEO__ZERO(neo_table_desc, table);
    neo_table_desc tables[NEO__CALIBRATE_TABLES];
    NEO__ZERO(neo_bags_desc, desc);
    NEO__ZERO(neo_jagged, batch);
    neo_bags *bags = NULL;
    neo_tensor out = neo_tensor_none();
    char name[NEO__CALIBRATE_TABLES][12]; /* of any int */
    table.rows = t->rows;
    table.dim = t->dim;
    table.row_buckets = t->buckets;
    table.init.kind = NEO_INIT_CONSTANT;
    table.optim.kind = t->kind;
    for (int i = 0; i < t->count; i++) {
        tables[i] = table;
        tables[i].name = name[i];
        snprintf(name[i], sizeof name[i], "%d", i);
    }
    desc.tables = tables;
    desc.table_count = t->count;
    desc.max_batch = shape[0];
    desc.max_ids = t->ids;
    desc.max_kept_rows = t->kept ? t->ids : 0;
    batch.feature_count = t->count;
    batch.id_dtype = NEO_I64;
    batch.offsets = id + t->ids;
    batch.ids = id;
    neo_status status = neo_bags_create(ctx, &desc, &bags);
    if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &out);
    for (int k = memory ? 0 : NEO__SET_COUNT - 1; k < t->sets; k++) {
        const int set = (int)order[k], less = set == NEO__SET_FAR ? 2 : 1;
        if (less == 1 && neo__calibrate_is_far(set) && t->kind != NEO_BAG_ROWWISE_ADAGRAD) continue;
        const int runs = t->sets == 1 ? (int)NEO__CALIBRATE_RUNS
                                      : (NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS + less - 1) /
                                            less;
        for (int run = 0; run < runs && status == NEO_OK; run++) {
            neo__calibrate_ids(t, set, run, &batch, id);
            status = neo__calibrate_run(ctx, bags, &batch,
                                        neo_tensor_slice(out, 0, 0, batch.batch), t, set, memory);
        }
    }
    neo_tensor_free(ctx, &out);
    neo_bags_destroy(bags);
    return status;
}
/* Seconds of an id that is looked at, counted and placed by its sender. */
static double neo__calibrate_id(const int64_t *id, int32_t *to) {
    NEO__ZERO(neo__calibrate_times, times);
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        int64_t began = neo__calibrate_now(NULL), bad = 0;
        int32_t *length = to + NEO__CALIBRATE_IDS;
        for (int64_t i = 0; i < NEO__CALIBRATE_IDS; i++)
            bad += id[i] < 0 || id[i] >= NEO__CALIBRATE_IDS;
        for (int64_t i = 0; i < NEO__CALIBRATE_IDS; i++)
            length[i / NEO__CALIBRATE_POOLING] += id[i] >= bad;
        for (int64_t i = 0, at = 0; i < NEO__CALIBRATE_IDS; i++)
            if (id[i] >= bad) to[at++] = (int32_t)id[i];
        neo__calibrate_add(&times, NULL, began);
    }
    return neo__calibrate_low(&times) / (double)NEO__CALIBRATE_IDS;
}
/* Seconds of a row of 16 columns that goes from a matrix of its own to its place among those of
   other tables: it has come from another rank, so that no cache has it. memory: two buffers. */
static double neo__calibrate_row(neo_ctx *ctx, float *memory) {
    enum { ROUTES = 16, SAMPLES = NEO__CALIBRATE_IDS / 16, COLS = NEO__CALIBRATE_SLICE,
           ALL = ROUTES * SAMPLES * COLS };
    const float *from = memory + NEO__CALIBRATE_FLOATS - ALL;
    float *to = memory + 2 * NEO__CALIBRATE_FLOATS - ALL;
    NEO__ZERO(neo__calibrate_times, times);
    for (int run = 0; run < NEO__CALIBRATE_RUNS; run++) {
        neo__calibrate_others(ctx, memory, NEO__CALIBRATE_FAR);
        int64_t began = neo__calibrate_now(NULL);
        for (int64_t i = 0; i < SAMPLES; i++)
            for (int64_t k = 0; k < ROUTES; k++)
                memcpy(to + (i * ROUTES + k) * COLS, from + (k * SAMPLES + i) * COLS,
                       (size_t)COLS * sizeof *to);
        neo__calibrate_add(&times, NULL, began);
    }
    return neo__calibrate_low(&times) / (ROUTES * SAMPLES);
}
/* Bytes of an id and of a bag, from those that a call takes for an id of each set, tables apart. */
static void neo__calibrate_curve(const double *took, double *id, double *bag) {
    id[0] = bag[0] = NEO__MAX(took[NEO__SET_NEAR] / 2.0, 1.0);
    bag[1] = NEO__MAX(took[NEO__SET_BAG] - id[0], bag[0]);
    bag[2] = NEO__MAX(took[NEO__SET_FAR_BAG] - id[0], bag[1]);
    id[1] = NEO__MAX(took[NEO__SET_CACHED] - bag[1], id[0]);
    id[2] = NEO__MAX(took[NEO__SET_FAR] - bag[2] / (double)NEO__CALIBRATE_POOLING, id[1]);
}
/* The mean without the least and the most. */
static double neo__calibrate_middle(const double *x, int count) {
    double sum = 0.0, least = x[0], most = x[0];
    for (int i = 0; i < count; i++) {
        sum += x[i];
        least = NEO__MIN(least, x[i]), most = NEO__MAX(most, x[i]);
    }
    return (sum - least - most) / (double)(count - 2);
}
/* Tables of 16 and of 128 columns by every optimizer's state, and large ones of row-wise state. */
enum { NEO__CALIBRATE_KINDS = 4, NEO__CALIBRATE_ROWWISE = 1 };
static neo__calibrate_table neo__calibrate_rows_of(int wide, int kind) {
    static const neo_bag_optim_kind kinds[] = {NEO_BAG_SGD, NEO_BAG_ROWWISE_ADAGRAD,
                                               NEO_BAG_ADAGRAD, NEO_BAG_ADAM,
                                               NEO_BAG_ROWWISE_ADAGRAD};
    const int large = kind == NEO__CALIBRATE_KINDS;
    NEO__ZERO(neo__calibrate_table, table);
    table.dim = wide ? 128 : 16;
    table.count = NEO__CALIBRATE_TABLES;
    table.ids = NEO__CALIBRATE_IDS;
    table.rows = (int64_t)NEO__CALIBRATE_FLOATS / table.dim / table.count;
    if (large) table.rows *= NEO__CALIBRATE_TIMES;
    table.pooling = 1;
    table.sets = large ? 1 : NEO__SET_COUNT;
    table.kind = kinds[kind];
    return table;
}
/* Bytes of an id, of tables of both widths, and of a bag, by row-wise state. What tables take
   besides is what is left of a call with a part of the ids, in the same memory: pages of another
   may be larger. */
static void neo__calibrate_width(const neo__calibrate_table *tables, int wide,
                                 neo_cluster *cluster) {
    enum { KINDS = NEO__CALIBRATE_KINDS, ROWWISE = NEO__CALIBRATE_ROWWISE, TABLE_SETS = 3 };
    static const int of_table[NEO__SET_LESS_NEAR] = {0, 1, 2, 1, 2}; /* by those of these sets */
    const double ids = (double)NEO__CALIBRATE_IDS,
                 all = (double)NEO__CALIBRATE_TABLES,
                 less = (double)NEO__SET_LESS;
    double took[2][NEO__SET_COUNT][KINDS], one[KINDS]; /* bytes of a call; of a table */
    double(*rows)[2][3] = cluster->calibration.rows;
    for (int i = 0; i < KINDS * (int)NEO__SET_COUNT * 2; i++) {
        const int way = i % 2, set = i / 2 % NEO__SET_COUNT, kind = i / 2 / NEO__SET_COUNT,
                  from = neo__calibrate_is_far(set) && set != NEO__SET_FAR ? (int)ROWWISE : kind;
        const neo__calibrate_times *times = way ? tables[from].update : tables[from].lookup;
        took[way][set][kind] = neo__calibrate_low(&times[set]) * cluster->memory_bandwidth;
    }
    for (int way = 0; way < 2; way++) {
        double *table = rows[NEO_ROWS_LOOKUP_TABLE + way][wide];
        const neo__calibrate_times *large = way ? tables[KINDS].update : tables[KINDS].lookup;
        cluster->calibration.rows_large[way][wide] =
            NEO__MAX(neo__calibrate_low(&large[NEO__SET_FAR]) * cluster->memory_bandwidth -
                         took[way][NEO__SET_FAR][ROWWISE], 0.0) / ids;
        for (int k = 0; k < TABLE_SETS; k++) {
            for (int i = 0; i < KINDS; i++)
                one[i] = (less * took[way][NEO__SET_LESS_NEAR + k][i] - took[way][k][i]) /
                         ((less - 1.0) * all);
            table[k] = NEO__MIN(NEO__MAX(neo__calibrate_middle(one, KINDS), 1.0),
                                took[way][k][ROWWISE] / all / 2.0);
        }
        for (int k = 0; k < NEO__SET_LESS_NEAR && !way; k++) /* lookups are all alike */
            took[way][k][ROWWISE] = neo__calibrate_middle(took[way][k], KINDS);
        for (int i = way ? 0 : ROWWISE; i < (way ? KINDS : ROWWISE + 1); i++) {
            double each[NEO__SET_LESS_NEAR], other[3];
            for (int k = 0; k < NEO__SET_LESS_NEAR; k++)
                each[k] = (took[way][k][i] - all * table[of_table[k]]) / ids;
            neo__calibrate_curve(each, rows[way ? (int)NEO_ROWS_SGD + i : 0][wide],
                                 i == ROWWISE ? rows[NEO_ROWS_LOOKUP_BAG + way][wide] : other);
        }
    }
}
/* The factors, from the seconds of all these. */
static void neo__calibrate_factors(neo_cluster *cluster, const neo__calibrate_table *table,
                                   double id, double row) {
    neo_calibration *to = &cluster->calibration;
    double(*at)[3] = to->rows[NEO_ROWS_ROWWISE];
    double bandwidth = cluster->memory_bandwidth, ids = (double)NEO__CALIBRATE_IDS,
           batch = ids / (double)NEO__CALIBRATE_POOLING, row_bytes = 4.0 * (double)table->dim,
           least = 1e-3;
    double bytes = 8.0 * ids + 4.0 * batch + row_bytes * (ids + batch);
    const double lookup = neo__calibrate_low(&table[0].lookup[NEO__SET_CACHED]),
                 kept = neo__calibrate_low(&table[0].keep) -
                        neo__calibrate_low(&table[0].update[NEO__SET_CACHED]);
    to->lookup = lookup * bandwidth / bytes;
    to->update = NEO__MAX((at[1][1] - at[0][1]) / (4.0 * (128.0 - 16.0)), 0.1);
    to->copy = 1.0;
    to->bucketed = NEO__MAX(neo__calibrate_low(&table[1].lookup[NEO__SET_CACHED]) / lookup, 1.0);
    to->sort = NEO__MAX(at[0][1] - to->update * (8.0 + 4.0 * 16.0), least);
    to->id = id * bandwidth;
    to->row = NEO__MAX(row * bandwidth - 2.0 * 4.0 * (double)NEO__CALIBRATE_SLICE, least);
    to->kept = NEO__MAX(kept / ids * bandwidth - 2.0 * row_bytes, least);
}
static neo_status neo__calibrate_flops(neo_ctx *ctx, neo__calibrate_times *times) {
    const int64_t count = NEO__CALIBRATE_EDGE, shape[2] = {count, count};
    neo_tensor tensor[3];
    neo_status status = NEO_OK;
    for (int i = 0; i < 3; i++) {
        tensor[i] = neo_tensor_none();
        if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape, &tensor[i]);
        if (status == NEO_OK) status = neo_tensor_zero(ctx, tensor[i]);
    }
    for (int run = 0; run < NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS && status == NEO_OK; run++) {
        int64_t began = neo__calibrate_now(ctx);
        status = neo_gemm(ctx, NULL, tensor[0], tensor[1], tensor[2]);
        neo__calibrate_add(times, ctx, began);
    }
    for (int i = 0; i < 3; i++) neo_tensor_free(ctx, &tensor[i]);
    return status;
}
/* A layer of `samples`: seconds of each way, behind what a step leaves: other layers, and then its
   optimizer; and, if not NULL, behind more and a wait. */
static neo_status neo__calibrate_layer_run(neo_ctx *ctx, neo_params *params, float *memory,
                                           int64_t samples, int64_t in, int64_t out,
                                           neo__calibrate_times *times,
                                           neo__calibrate_times *away) {
    NEO__ZERO(neo_optim_desc, adagrad);
    neo_optim *optim = NULL;
    const int64_t shape[2][2] = {{samples, in}, {samples, out}};
    NEO__ZERO(neo_mlp_desc, desc);
    neo_mlp *mlp = NULL;
    neo_tensor tensor[4];
    desc.name = "calibrate";
    desc.max_batch = samples;
    desc.width_count = 2;
    desc.widths[0] = in, desc.widths[1] = out;
    desc.act = desc.last_act = NEO_ACT_RELU;
    adagrad.kind = NEO_OPTIM_ADAGRAD;
    neo_status status = neo_mlp_create(ctx, params, &desc, &mlp);
    if (status == NEO_OK) status = neo_optim_create(ctx, params, &adagrad, &optim);
    for (int i = 0; i < 4; i++) {
        tensor[i] = neo_tensor_none();
        if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape[i / 2], &tensor[i]);
        if (status == NEO_OK) status = neo_tensor_zero(ctx, tensor[i]);
    }
    const int ways = NEO_LAYER_DOTS, runs = ways * NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS;
    for (int run = 0; run < (away ? 2 : 1) * runs && status == NEO_OK; run++) {
        const int way = run % ways;
        if (run >= runs) {
            neo__calibrate_others(ctx, memory, NEO__CALIBRATE_FAR);
            neo__calibrate_wait(ctx, NEO__CALIBRATE_MS);
        } else if (way == NEO_LAYER_FORWARD) {
            neo__calibrate_others(ctx, memory, NEO__CALIBRATE_FAR);
            status = neo_optim_step(optim, 1e-3f);
        }
        /* as the layer before, or behind, has just written it */
        if (status == NEO_OK)
            status = neo_tensor_zero(ctx, tensor[way == NEO_LAYER_FORWARD ? 0 : 3]);
        int64_t began = neo__calibrate_now(ctx);
        if (status != NEO_OK) break;
        if (way == NEO_LAYER_FORWARD) status = neo_mlp_forward(mlp, tensor[0], tensor[2]);
        else
            status = neo_mlp_backward(mlp, NULL, tensor[3],
                                      way == NEO_LAYER_LAST ? neo_tensor_none() : tensor[1]);
        neo__calibrate_add(run < runs ? &times[way] : &away[way], ctx, began);
    }
    for (int i = 0; i < 4; i++) neo_tensor_free(ctx, &tensor[i]);
    neo_optim_destroy(optim);
    neo_mlp_destroy(mlp);
    return status;
}
enum { NEO__CALIBRATE_PARAMS = 1 << 16, NEO__CALIBRATE_TENSORS = 16 };
/* A copy of so many MB and a wait, behind which the optimizer runs. */
typedef struct neo__calibrate_behind {
    double mb, ms;
    neo__calibrate_times took, since; /* since: by the wall clock, from the run before to its end */
} neo__calibrate_behind;
/* Adagrad of tensors; all places take turns, so that each has runs at all times. where: their
   values and gradients. slower: seconds of the wall clock in one of ctx's. */
static neo_status neo__calibrate_step_runs(neo_ctx *ctx, float *where, float *memory,
                                           neo__calibrate_behind *at, int count, double *slower) {
    const int64_t shape = NEO__CALIBRATE_PARAMS;
    NEO__ZERO(neo_optim_desc, desc);
    NEO__ZERO(neo_init, ones);
    neo_params *params = NULL;
    neo_optim *optim = NULL;
    char name[12];
    int64_t passed[2] = {0, 1};
    ones.kind = NEO_INIT_CONSTANT, ones.a = 1.0f;
    desc.kind = NEO_OPTIM_ADAGRAD;
    neo_status status = neo_params_create_deferred(ctx, &params);
    for (int i = 0; i < NEO__CALIBRATE_TENSORS && status == NEO_OK; i++) {
        float *value = where + 2 * i * shape;
        snprintf(name, sizeof name, "%d", i);
        status = neo_params_add(params, name, 1, &shape, ones, NULL);
        if (status == NEO_OK)
            status = neo_params_bind(params, i, value, value + shape, NULL);
    }
    if (status == NEO_OK) status = neo_optim_create(ctx, params, &desc, &optim);
    for (int run = 0; run < (NEO__CALIBRATE_RUNS + 1) * count && status == NEO_OK; run++) {
        neo__calibrate_behind *behind = &at[run % count];
        const int64_t left = neo_time_ns();
        neo__calibrate_others(ctx, memory, (int64_t)behind->mb << 20);
        neo__calibrate_wait(ctx, behind->ms);
        const int64_t met = neo_time_ns(), began = neo__calibrate_now(ctx);
        status = neo_optim_step(optim, 1e-3f);
        const int64_t took = neo__calibrate_now(ctx) - began, now = neo_time_ns();
        if (run < count) continue; /* pages are new */
        neo__calibrate_put(&behind->took, 1e-9 * (double)took);
        neo__calibrate_put(&behind->since, 1e-9 * (double)(now - left));
        passed[0] += now - met, passed[1] += took;
    }
    neo_optim_destroy(optim);
    neo_params_destroy(params);
    *slower = NEO__MAX((double)passed[0] / (double)passed[1], 1.0);
    return status;
}
/* Seconds of what a cache has, and has not, by which those of all places follow with the least
   squares of errors in percent; returns their sum. */
static double neo__calibrate_line(const neo__calibrate_behind *at, int count, double params,
                                  const neo_cluster *by, double *cached, double *memory) {
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0, e = 0.0, off = 0.0, least = DBL_MAX;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            const double took = neo__calibrate_low(&at[i].took),
                         bytes = 12.0 * params + 2097152.0 * at[i].mb +
                                 by->calibration.others * neo__calibrate_low(&at[i].since),
                         lost = neo__plan_far(by, bytes), u = (1.0 - lost) / took, v = lost / took;
            a += u * u, b += u * v, c += v * v, d += u, e += v;
            least = NEO__MIN(least, took);
            if (pass) off += (u * *cached + v * *memory - 1.0) * (u * *cached + v * *memory - 1.0);
        }
        if (pass) break;
        *cached = NEO__MAX((d * c - e * b) / NEO__MAX(a * c - b * b, 1e-30), least / 2.0);
        *memory = NEO__MAX((e - b * *cached) / NEO__MAX(c, 1e-30), *cached);
    }
    return off;
}
/* Tensors that a cache has room for, in small pages, as those of most layers: what it keeps of
   larger ones, in huge pages, says nothing of those. The cache, and what others take of it, are
   those by which a line through all that was measured is off least; no cache is larger than what
   was touched at most, beyond which nothing tells how long a parameter takes. pages: room. */
static neo_status neo__calibrate_step(neo_ctx *ctx, float *pages, float *memory,
                                      neo_cluster *cluster) {
    enum { COUNT = 14, SIZES = 56, RATES = 32 }; /* the first: to have a cache filled */
    enum { LARGE = 2 }; /* the last: of those that memory may be lacking for */
    static const double mb[COUNT] = {0, 0, 4, 8, 16, 32, 64, 0, 4, 8, 16, 64, 128, 256},
                        ms[COUNT] = {0, 0, 0, 0, 0, 0, 0, 16, 4, 8, 16, 32, 0, 0};
    const double all = (double)NEO__CALIBRATE_PARAMS * (double)NEO__CALIBRATE_TENSORS,
                 scale = cluster->memory_bandwidth / all;
    neo_calibration *to = &cluster->calibration;
    neo__calibrate_behind at[COUNT];
    neo_cluster by = *cluster;
    const size_t bytes = (size_t)NEO_CACHE_MOST;
    float *wide = (float *)neo_alloc(ctx, bytes);
    const int count = wide ? (int)COUNT : (int)COUNT - (int)LARGE,
              sizes = wide ? (int)SIZES : (int)SIZES - 8 * (int)LARGE;
    double slower, cached, most, off, least = DBL_MAX;
    int best = 0;
    memset(at, 0, sizeof at);
    for (int i = 0; i < COUNT; i++) at[i].mb = mb[i], at[i].ms = ms[i];
    if (wide) memset(wide, 0, bytes);
    const neo_status status =
        neo__calibrate_step_runs(ctx, pages, wide ? wide : memory, at, count, &slower);
    neo_free(ctx, wide, bytes);
    NEO__TRY(status);
    by.calibration.cache = 4194304.0;
    for (int size = 0; size <= sizes; size++, by.calibration.cache *= 1.0905077326652577) {
        by.calibration.others = 0.0; /* an eighth of an octave more; then a quarter */
        for (int rate = 0; rate <= RATES; rate++) {
            off = neo__calibrate_line(at + 1, count - 1, all, &by, &cached, &most);
            if (off < least * (size > best ? 0.95 : 1.0)) { /* else the smaller tells as well */
                least = off, best = size;
                to->step = most * scale, to->step_near = cached * scale;
                to->cache = size < SIZES ? by.calibration.cache : (double)NEO_CACHE_MOST;
                to->others = by.calibration.others * slower;
            }
            by.calibration.others = NEO__MAX(by.calibration.others * 1.189207115002721, 0.25e9);
        }
    }
    return NEO_OK;
}
/* As much as an allocator asks the system for by itself, so that its pages are as small as is
   asked here: what was freed may have been in huge ones. */
static neo_status neo__calibrate_steps(neo_ctx *ctx, float *memory, neo_cluster *cluster) {
    const size_t bytes = (size_t)40 << 20,
                 used = (size_t)8 * NEO__CALIBRATE_PARAMS * NEO__CALIBRATE_TENSORS;
    float *pages = (float *)neo_alloc(ctx, bytes);
    NEO__CHECK(pages, NEO_ERR_MEMORY, "neo_calibrate: no memory for %zu bytes", bytes);
    neo__small_pages(pages, bytes);
    memset(pages, 0, used);
    const neo_status status = neo__calibrate_step(ctx, pages, memory, cluster);
    neo_free(ctx, pages, bytes);
    return status;
}
/* The line through seconds of shapes with the least squares of errors in percent, no slope below
   0: what a multiply-add, an element or a call takes, as far as shapes tell them apart. */
static void neo__calibrate_fit(double (*x)[5], const double *seconds, int count, double *by) {
    memset(by, 0, 5 * sizeof *by);
    for (int pass = 0; pass < 4000; pass++)
        for (int k = 0; k < 5; k++) {
            double off = 0.0, square = 0.0;
            for (int i = 0; i < count; i++) {
                double says = 0.0, slope = x[i][k] / seconds[i];
                for (int j = 0; j < 5; j++) says += by[j] * x[i][j];
                off += slope * (1.0 - says / seconds[i]);
                square += slope * slope;
            }
            by[k] = NEO__MAX(by[k] + off / square, k ? 0.0 : 1e-18); /* 0: as by flops */
        }
}
/* Shapes of layers, each of few and of many samples. */
static const int64_t neo__calibrate_shapes[][2] = {
    {13, 512},    {512, 256}, {256, 64}, {64, 16},   {256, 1},    {367, 512}, {512, 512},
    {1024, 1024}, {128, 128}, {16, 256}, {1024, 16}, {2048, 512}, {512, 2048}};
enum {
    NEO__CALIBRATE_LAYERS = 2 * (int)(sizeof neo__calibrate_shapes / sizeof *neo__calibrate_shapes),
    NEO__CALIBRATE_FAR_LAYER = 14 /* 128 samples of 1024 to 1024, behind more, too */
};
static neo_status neo__calibrate_layers(neo_ctx *ctx, float *memory,
                                        neo__calibrate_times (*times)[NEO_LAYER_DOTS]) {
    neo__calibrate_times *away = times[NEO__CALIBRATE_LAYERS];
    for (int i = 0; i < NEO__CALIBRATE_LAYERS; i++) {
        const int64_t *shape = neo__calibrate_shapes[i / 2];
        neo_params *params = NULL;
        neo_status status = neo_params_create(ctx, &params);
        if (status == NEO_OK)
            status = neo__calibrate_layer_run(ctx, params, memory, i % 2 ? 1024 : 128, shape[0],
                                              shape[1], times[i],
                                              i == NEO__CALIBRATE_FAR_LAYER ? away : NULL);
        neo_params_destroy(params);
        NEO__TRY(status);
    }
    return NEO_OK;
}
/* Share of what a cache loses behind what is measured far. */
static double neo__calibrate_lost(const neo_cluster *by) {
    return neo__plan_far(by, 2.0 * (double)NEO__CALIBRATE_FAR +
                                 1e-3 * (double)NEO__CALIBRATE_MS * by->calibration.others);
}
static void neo__calibrate_layers_fit(neo__calibrate_times (*times)[NEO_LAYER_DOTS],
                                      neo_cluster *cluster) {
    double x[NEO__CALIBRATE_LAYERS][5], seconds[NEO__CALIBRATE_LAYERS];
    const neo__calibrate_times *away = times[NEO__CALIBRATE_LAYERS];
    const double weights = 1024.0 * 1024.0 * neo__calibrate_lost(cluster);
    for (int way = 0; way < NEO_LAYER_DOTS; way++) {
        for (int i = 0; i < NEO__CALIBRATE_LAYERS; i++) {
            const int64_t *shape = neo__calibrate_shapes[i / 2];
            neo__layer_terms(x[i], i % 2 ? 1024.0 : 128.0, shape[0], shape[1], (neo_layer_way)way);
            seconds[i] = neo__calibrate_low(&times[i][way]);
        }
        neo__calibrate_fit(x, seconds, NEO__CALIBRATE_LAYERS, cluster->calibration.layer[way]);
        cluster->calibration.layer_far[way] =
            NEO__MAX((neo__calibrate_low(&away[way]) - seconds[NEO__CALIBRATE_FAR_LAYER]) *
                         cluster->memory_bandwidth / weights, 1e-3);
    }
}
/* neo_interact of n samples, behind what leaves all in the largest cache; then, more, behind what
   leaves less (times[2] on). Tensors are allocated one by one, as a step's. */
static neo_status neo__calibrate_dots_run(neo_ctx *ctx, float *memory, int64_t n, int64_t rows,
                                          int64_t dim, int more, neo__calibrate_times times[4]) {
    const int64_t width = neo_interact_width(dim, rows - 1, 0),
                  shape[3][2] = {{n, dim}, {n, (rows - 1) * dim}, {n, width}};
    const int of_turn = NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS, runs = 2 * of_turn;
    neo_tensor t[6];
    neo_status status = NEO_OK;
    for (int k = 0; k < 6; k++) {
        t[k] = neo_tensor_none();
        if (status == NEO_OK) status = neo_tensor_alloc(ctx, NEO_F32, 2, shape[k % 3], &t[k]);
        if (status == NEO_OK) status = neo_tensor_zero(ctx, t[k]);
    }
    for (int run = 0; run < runs + more * runs && status == NEO_OK; run++) {
        neo__calibrate_others(ctx, memory, run < runs ? NEO__CALIBRATE_NEAR : NEO__CALIBRATE_FAR);
        if (run >= runs) neo__calibrate_wait(ctx, NEO__CALIBRATE_MS);
        for (int k = 0; k < 3 && status == NEO_OK; k++)
            if (k / 2 == run % 2) status = neo_tensor_zero(ctx, t[k]);
        const int64_t began = neo__calibrate_now(ctx);
        if (status == NEO_OK)
            status = run % 2 ? neo_interact_backward(ctx, 0, t[0], t[1], t[2], t[3], t[4])
                             : neo_interact_forward(ctx, 0, t[0], t[1], t[5]);
        neo__calibrate_add(&times[run / runs * 2 + run % 2], ctx, began);
    }
    for (int k = 0; k < 6; k++) neo_tensor_free(ctx, &t[k]);
    return status;
}
/* neo_interact of few and of many rows, narrow and wide; few samples behind more, too. */
enum { NEO__CALIBRATE_DOTS = 12 };
static const int64_t neo__calibrate_dims[] = {16, 128, 64};
static int64_t neo__calibrate_dots_of(int i, int64_t *rows, int64_t *dim, int *more) {
    *rows = i % 4 < 2 ? 27 : 9, *dim = neo__calibrate_dims[i / 4];
    *more = i % 4 == 0 && i / 4 < 2;
    return i % 2 ? 2048 : 128;
}
static neo_status neo__calibrate_dots(neo_ctx *ctx, float *memory,
                                      neo__calibrate_times (*times)[4]) {
    for (int i = 0; i < NEO__CALIBRATE_DOTS; i++) {
        int64_t rows, dim;
        int more;
        const int64_t n = neo__calibrate_dots_of(i, &rows, &dim, &more);
        NEO__TRY(neo__calibrate_dots_run(ctx, memory, n, rows, dim, more, times[i]));
    }
    return NEO_OK;
}
static void neo__calibrate_dots_fit(neo__calibrate_times (*times)[4], neo_cluster *cluster) {
    double x[NEO__CALIBRATE_DOTS][5], seconds[NEO__CALIBRATE_DOTS];
    const double lost = neo__calibrate_lost(cluster);
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < NEO__CALIBRATE_DOTS; i++) {
            int64_t rows, dim;
            int more;
            const double all =
                (double)(neo__calibrate_dots_of(i, &rows, &dim, &more) * rows);
            neo__layer_terms(x[i], all, dim, rows, NEO_LAYER_DOTS);
            seconds[i] = neo__calibrate_low(&times[i][way]);
            if (more)
                cluster->calibration.dots_far[way][i / 4] =
                    NEO__MAX(neo__calibrate_low(&times[i][2 + way]) - seconds[i], 0.0) *
                    cluster->memory_bandwidth / (all * lost);
        }
        neo__calibrate_fit(x, seconds, NEO__CALIBRATE_DOTS,
                           cluster->calibration.layer[NEO_LAYER_DOTS + way]);
    }
}
enum {
    NEO__BLOCK_X, NEO__BLOCK_N1, NEO__BLOCK_QKV, NEO__BLOCK_Y, NEO__BLOCK_MIDDLE, NEO__BLOCK_N2,
    NEO__BLOCK_WIDE, NEO__BLOCK_GELU, NEO__BLOCK_OUT, NEO__BLOCK_DX, NEO__BLOCK_DN,
    NEO__BLOCK_DQKV, NEO__BLOCK_DWIDE, NEO__BLOCK_LSE, NEO__BLOCK_STATS_1, NEO__BLOCK_STATS_2,
    NEO__BLOCK_TENSORS
};
/* Attention of short and of long sequences, and the rest of a block. A block's tensors
   are as a step finds them: what it left behind other blocks comes from memory, what layers beside
   it have just made (zeros, after as much traffic as one of those) is near. */
typedef struct neo__calibrate_block {
    neo_ctx *ctx;
    float *others;
    int64_t n, length, dim, heads;
    int attends; /* alone: the rest is that of another length */
    neo_tensor t[NEO__BLOCK_TENSORS], v[4]; /* of n rows; gain, bias and their gradients */
    neo__calibrate_times *times; /* of attention, forward and backward, and of the rest */
    double took; /* of a rest under way */
} neo__calibrate_block;
/* Leaves a cache as other blocks of a step do. */
static void neo__calibrate_far(const neo__calibrate_block *block) {
    neo__calibrate_others(block->ctx, block->others, NEO__CALIBRATE_FAR);
    neo__calibrate_wait(block->ctx, NEO__CALIBRATE_MS);
}
/* Fill a tensor as the layer beside it does, which has just run. */
static neo_status neo__calibrate_made(neo__calibrate_block *block, int tensor) {
    neo__calibrate_others(block->ctx, block->others, NEO__CALIBRATE_NEAR);
    return neo_tensor_zero(block->ctx, block->t[tensor]);
}
/* Takes the time of a part of the rest. */
static neo_status neo__calibrate_took(neo__calibrate_block *block, int64_t began,
                                       neo_status status) {
    block->took += (double)(neo__calibrate_now(block->ctx) - began) * 1e-9;
    return status;
}
#define NEO__BLOCK_TIMED(block, call)                                                              \
    do {                                                                                           \
        const int64_t block_began = neo__calibrate_now((block)->ctx);                              \
        NEO__TRY(neo__calibrate_took((block), block_began, (call)));                               \
    } while (0)
static neo_status neo__calibrate_forward(neo__calibrate_block *block) {
    neo_tensor *t = block->t, *v = block->v;
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_X));
    NEO__BLOCK_TIMED(block, neo_layer_norm_forward(block->ctx, t[NEO__BLOCK_X], v[0], v[1], 1e-5f,
                                                   t[NEO__BLOCK_N1], t[NEO__BLOCK_STATS_1]));
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_MIDDLE));
    NEO__BLOCK_TIMED(block, neo_add(block->ctx, t[NEO__BLOCK_MIDDLE], t[NEO__BLOCK_X]));
    NEO__BLOCK_TIMED(block, neo_layer_norm_forward(block->ctx, t[NEO__BLOCK_MIDDLE], v[0], v[1],
                                                   1e-5f, t[NEO__BLOCK_N2],
                                                   t[NEO__BLOCK_STATS_2]));
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_WIDE));
    NEO__BLOCK_TIMED(block, neo_activation_forward(block->ctx, NEO_ACT_GELU, t[NEO__BLOCK_WIDE],
                                                   t[NEO__BLOCK_GELU]));
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_OUT));
    NEO__BLOCK_TIMED(block, neo_add(block->ctx, t[NEO__BLOCK_OUT], t[NEO__BLOCK_MIDDLE]));
    return NEO_OK;
}
static neo_status neo__calibrate_norm_back(neo__calibrate_block *block, int x, int stats) {
    neo_tensor *t = block->t, *v = block->v;
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_DN));
    NEO__BLOCK_TIMED(block, neo_layer_norm_backward(block->ctx, NULL, t[x], v[0], t[stats],
                                                t[NEO__BLOCK_DN], t[NEO__BLOCK_DN], v[2], v[3]));
    NEO__BLOCK_TIMED(block, neo_add(block->ctx, t[NEO__BLOCK_DX], t[NEO__BLOCK_DN]));
    return NEO_OK;
}
static neo_status neo__calibrate_backward(neo__calibrate_block *block) {
    neo_tensor *t = block->t;
    NEO__TRY(neo_tensor_zero(block->ctx, t[NEO__BLOCK_DX]));
    NEO__TRY(neo__calibrate_made(block, NEO__BLOCK_DWIDE));
    NEO__BLOCK_TIMED(block, neo_activation_backward(block->ctx, NEO_ACT_GELU, t[NEO__BLOCK_WIDE],
                                                    neo_tensor_none(), t[NEO__BLOCK_DWIDE],
                                                    t[NEO__BLOCK_DWIDE]));
    NEO__TRY(neo__calibrate_norm_back(block, NEO__BLOCK_MIDDLE, NEO__BLOCK_STATS_2));
    return neo__calibrate_norm_back(block, NEO__BLOCK_X, NEO__BLOCK_STATS_1);
}
/* t: of a block. */
static neo_status neo__block_attend(neo_ctx *ctx, const neo_attention_desc *desc,
                                    const neo_tensor *t, int back) {
    neo_tensor q[6];
    const int64_t w = t[NEO__BLOCK_Y].shape[1];
    for (int k = 0; k < 6; k++)
        q[k] = neo_tensor_slice(t[k < 3 ? NEO__BLOCK_QKV : NEO__BLOCK_DQKV], 1, k % 3 * w, w);
    if (!back)
        return neo_attention_forward(ctx, desc, q[0], q[1], q[2], t[NEO__BLOCK_Y],
                                     t[NEO__BLOCK_LSE]);
    return neo_attention_backward(ctx, desc, q[0], q[1], q[2], t[NEO__BLOCK_Y], t[NEO__BLOCK_LSE],
                                  t[NEO__BLOCK_DN], q[3], q[4], q[5]);
}
static neo_status neo__calibrate_attend(neo__calibrate_block *block, int back) {
    NEO__ZERO(neo_attention_desc, desc);
    desc.length = block->length, desc.heads = block->heads, desc.causal = 1;
    if (back) neo__calibrate_far(block);
    NEO__TRY(neo__calibrate_made(block, back ? NEO__BLOCK_DN : NEO__BLOCK_QKV));
    const int64_t began = neo__calibrate_now(block->ctx);
    NEO__TRY(neo__block_attend(block->ctx, &desc, block->t, back));
    neo__calibrate_add(&block->times[back], block->ctx, began);
    return NEO_OK;
}
static neo_status neo__calibrate_rest(neo__calibrate_block *block, int back) {
    if (block->attends) return NEO_OK;
    if (!back) neo__calibrate_far(block);
    block->took = 0.0;
    NEO__TRY(back ? neo__calibrate_backward(block) : neo__calibrate_forward(block));
    neo__calibrate_put(&block->times[2 + back], block->took);
    return NEO_OK;
}
/* Other blocks come once between forward and backward, and once between steps. */
static neo_status neo__calibrate_block_runs(neo__calibrate_block *block) {
    for (int run = 0; run < NEO__CALIBRATE_RUNS / NEO__CALIBRATE_TURNS; run++) {
        NEO__TRY(neo__calibrate_rest(block, 0));
        NEO__TRY(neo__calibrate_attend(block, 0));
        NEO__TRY(neo__calibrate_attend(block, 1));
        NEO__TRY(neo__calibrate_rest(block, 1));
    }
    return NEO_OK;
}
/* Tensor k of a block, zeros: of its rows, and behind these gain, bias and their gradients. */
static neo_status neo__block_tensor(neo_ctx *ctx, const neo__calibrate_block *block, int k,
                                    neo_tensor *to) {
    const int64_t w = block->dim * block->heads,
                  cols[NEO__BLOCK_TENSORS] = {w, w, 3 * w, w, w, w, 4 * w, 4 * w, w, w, w, 3 * w,
                                              4 * w, block->heads, 2, 2};
    const int of_rows = k < NEO__BLOCK_TENSORS;
    const int64_t shape[2] = {of_rows ? block->n : w, of_rows ? cols[k] : 1};
    NEO__TRY(neo_tensor_alloc(ctx, NEO_F32, 1 + of_rows, shape, to));
    return neo_tensor_zero(ctx, *to);
}
/* Tensors are allocated one by one, as a step's: pages of small ones are small. */
static neo_status neo__calibrate_block_run(neo__calibrate_block *block) {
    neo_status status = NEO_OK;
    for (int k = 0; k < NEO__BLOCK_TENSORS + 4; k++) {
        neo_tensor *to =
            k < NEO__BLOCK_TENSORS ? &block->t[k] : &block->v[k - NEO__BLOCK_TENSORS];
        *to = neo_tensor_none();
        if (status == NEO_OK) status = neo__block_tensor(block->ctx, block, k, to);
    }
    if (status == NEO_OK) status = neo__calibrate_block_runs(block);
    for (int k = 0; k < NEO__BLOCK_TENSORS; k++) neo_tensor_free(block->ctx, &block->t[k]);
    for (int k = 0; k < 4; k++) neo_tensor_free(block->ctx, &block->v[k]);
    return status;
}
enum { NEO__CALIBRATE_BLOCKS = 8, NEO__CALIBRATE_RESTS = 4 };
static neo__calibrate_block neo__calibrate_block_of(int i) {
    NEO__ZERO(neo__calibrate_block, block);
    block.n = i & 1 ? 1024 : 256, block.length = i < NEO__CALIBRATE_RESTS ? 64 : 256;
    block.dim = i & 2 ? 64 : 32, block.heads = i & 2 ? 6 : 4;
    block.attends = i >= NEO__CALIBRATE_RESTS;
    return block;
}
static neo_status neo__calibrate_blocks(neo_ctx *ctx, float *memory,
                                        neo__calibrate_times (*times)[4]) {
    for (int i = 0; i < NEO__CALIBRATE_BLOCKS; i++) {
        neo__calibrate_block block = neo__calibrate_block_of(i);
        block.ctx = ctx;
        block.others = memory;
        block.times = times[i];
        NEO__TRY(neo__calibrate_block_run(&block));
    }
    return NEO_OK;
}
static void neo__calibrate_blocks_fit(neo__calibrate_times (*times)[4], neo_calibration *to) {
    double x[NEO__CALIBRATE_BLOCKS][5], seconds[NEO__CALIBRATE_BLOCKS];
    for (int way = 0; way < 4; way++) {
        const int count = way < 2 ? NEO__CALIBRATE_BLOCKS : NEO__CALIBRATE_RESTS;
        for (int i = 0; i < count; i++) {
            const neo__calibrate_block block = neo__calibrate_block_of(i);
            seconds[i] = neo__calibrate_low(&times[i][way]);
            if (way < 2)
                neo__layer_terms(x[i], (double)(block.n * block.heads), block.dim, block.length,
                                 NEO_LAYER_ATTENTION);
            else
                neo__layer_terms(x[i], (double)block.n, block.dim * block.heads, 1,
                                 NEO_LAYER_REST);
        }
        neo__calibrate_fit(x, seconds, count, to->layer[NEO_LAYER_ATTENTION + way]);
    }
}
/* Seconds of all that is measured in turns. */
typedef struct neo__calibrate_found {
    neo__calibrate_times layers[NEO__CALIBRATE_LAYERS + 1][NEO_LAYER_DOTS]; /* the last: far */
    neo__calibrate_times dots[NEO__CALIBRATE_DOTS][4], blocks[NEO__CALIBRATE_BLOCKS][4];
    neo__calibrate_table rows[2][NEO__CALIBRATE_KINDS + 1], table[2];
    neo__calibrate_times copy, flops;
} neo__calibrate_found;
static neo_status neo__calibrate_turn(neo_ctx *ctx, int turn, int64_t *id, float *memory,
                                      neo__calibrate_found *to) {
    neo__calibrate_copy(ctx, memory, &to->copy);
    NEO__TRY(neo__calibrate_flops(ctx, &to->flops));
    NEO__TRY(neo__calibrate_layers(ctx, memory, to->layers));
    NEO__TRY(neo__calibrate_dots(ctx, memory, to->dots));
    NEO__TRY(neo__calibrate_blocks(ctx, memory, to->blocks));
    int lacks = turn > 0; /* large ones take a while to make, and memory that may not be there */
    const int kinds = NEO__CALIBRATE_KINDS + 1;
    for (int i = 0; i < 2 * kinds; i++) {
        neo__calibrate_table *rows = &to->rows[i / kinds][i % kinds];
        if (rows->sets == 1 && lacks) continue;
        const neo_status status = neo__calibrate_bags(ctx, id, memory, rows);
        if (rows->sets > 1 || status != NEO_ERR_MEMORY) NEO__TRY(status);
        else lacks = 1;
    }
    for (int i = 0; i < 2; i++) NEO__TRY(neo__calibrate_bags(ctx, id, NULL, &to->table[i]));
    return NEO_OK;
}
static neo_status neo__calibrate_all(neo__arena *work, neo_cluster *cluster) {
    neo__calibrate_found *found;
    float *memory;
    int64_t *id; /* ids, then offsets */
    NEO__TRY(NEO__ARENA(work, found, 1));
    NEO__TRY(NEO__ARENA(work, memory, 2 * NEO__CALIBRATE_FLOATS));
    NEO__TRY(NEO__ARENA(work, id, 2 * NEO__CALIBRATE_IDS + 1));
    for (int wide = 0; wide < 2; wide++)
        for (int kind = 0; kind <= NEO__CALIBRATE_KINDS; kind++)
            found->rows[wide][kind] = neo__calibrate_rows_of(wide, kind);
    for (int i = 0; i < 2; i++) {
        neo__calibrate_table *table = &found->table[i];
        table->ids = table->rows = NEO__CALIBRATE_IDS;
        table->dim = NEO__CALIBRATE_DIM, table->pooling = NEO__CALIBRATE_POOLING;
        table->sets = NEO__SET_COUNT;
        table->count = 1, table->kind = NEO_BAG_ROWWISE_ADAGRAD;
        table->kept = !i, table->buckets = i ? (int32_t)NEO__CALIBRATE_BUCKETS : 0;
    }
    for (int turn = 0; turn < NEO__CALIBRATE_TURNS; turn++)
        NEO__TRY(neo__calibrate_turn(work->ctx, turn, id, memory, found));
    const double edge = (double)NEO__CALIBRATE_EDGE;
    cluster->memory_bandwidth = 2.0 * neo__calibrate_bytes / neo__calibrate_low(&found->copy);
    cluster->flops = 2.0 * edge * edge * edge / neo__calibrate_low(&found->flops);
    NEO__TRY(neo__calibrate_steps(work->ctx, memory, cluster));
    neo__calibrate_layers_fit(found->layers, cluster);
    neo__calibrate_dots_fit(found->dots, cluster);
    neo__calibrate_blocks_fit(found->blocks, &cluster->calibration);
    for (int wide = 0; wide < 2; wide++) neo__calibrate_width(found->rows[wide], wide, cluster);
    double seconds_row = neo__calibrate_row(work->ctx, memory),
           seconds_id = neo__calibrate_id(id, (int32_t *)(void *)memory);
    neo__calibrate_factors(cluster, found->table, seconds_id, seconds_row);
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-calibrate-device

   The same figures of a device, by calls that fill one. A few follow each other between two looks
   at the clock, each when the device has done all: so what a call takes to begin is in its figure,
   and of tables, whose calls wait for what was found in the ids, in that of a table. Of each width
   and state of tables three calls, all ids as bags, fewer bags, and fewer ids, tell an id, a bag
   and a table apart. Tables have 1 GiB, so that nothing is left for rows_large. A layer's weights
   and the operands of products of rows that a cache has lost take their bytes: nothing shares the
   device, and it reads ahead.
   ------------------------------------------------------------------------ */
#ifndef NEO__CALIBRATE_SHIFT
#define NEO__CALIBRATE_SHIFT 0 /* sizes are halved so often, widths less often: of tests */
#endif
enum {
    NEO__DEVICE_CALLS = NEO__CALIBRATE_SHIFT ? 1 : 8,
    NEO__DEVICE_RUNS = NEO__CALIBRATE_SHIFT ? 1 : NEO__CALIBRATE_RUNS,
    NEO__DEVICE_TURNS = 8, /* lists of ids */
    NEO__DEVICE_IDS = NEO__MAX((1 << 18) >> NEO__CALIBRATE_SHIFT, 64),
    NEO__DEVICE_COPY = (1 << 26) >> NEO__CALIBRATE_SHIFT,   /* floats, */
    NEO__DEVICE_TABLES = (1 << 28) >> NEO__CALIBRATE_SHIFT, /* and of all tables */
    NEO__DEVICE_PARAMS = NEO__MAX((1 << 20) >> NEO__CALIBRATE_SHIFT, 16),
    NEO__DEVICE_EDGE = 4096 >> NEO__CALIBRATE_SHIFT / 2,
    NEO__DEVICE_SAMPLES = 2048, /* and 8 times as many */
    NEO__DEVICE_TENSORS = NEO__BLOCK_TENSORS + 4
};
typedef enum neo__device_kind {
    NEO__DEVICE_COPIES, NEO__DEVICE_GEMM, NEO__DEVICE_LOOKUP, NEO__DEVICE_UPDATE, NEO__DEVICE_KEEP,
    NEO__DEVICE_SPLIT, NEO__DEVICE_STEP, NEO__DEVICE_LAYER /* and on: neo_layer_way */
} neo__device_kind;
/* Calls of a kind, and all that they are of. */
typedef struct neo__device_job {
    neo_ctx *ctx;
    int kind;
    neo_tensor t[NEO__DEVICE_TENSORS];
    neo_jagged batch;
    const int64_t *ids; /* [NEO__DEVICE_TURNS][NEO__DEVICE_IDS], on the device */
    neo_bags *bags;
    neo__split_call *split;
    neo_params *params;
    neo_optim *optim;
    neo_mlp *mlp;
    neo_attention_desc attention;
} neo__device_job;
static int64_t neo__device_size(int64_t size, int halves) { return NEO__MAX(size >> halves, 1); }
/* The rest of a transformer's block: norms, sums, GELU. */
static neo_status neo__device_rest(neo_ctx *ctx, neo_tensor *of, int back) {
    neo_tensor *t = of, *v = of + NEO__BLOCK_TENSORS;
    for (int k = 0; k < 2; k++) {
        const int stats = k ? NEO__BLOCK_STATS_2 : NEO__BLOCK_STATS_1;
        if (back)
            NEO__TRY(neo_layer_norm_backward(ctx, NULL, t[NEO__BLOCK_X], v[0], t[stats],
                                             t[NEO__BLOCK_DN], t[NEO__BLOCK_DN], v[2], v[3]));
        else
            NEO__TRY(neo_layer_norm_forward(ctx, t[NEO__BLOCK_X], v[0], v[1], 1e-5f,
                                            t[NEO__BLOCK_N1], t[stats]));
        NEO__TRY(neo_add(ctx, t[NEO__BLOCK_OUT], t[back ? NEO__BLOCK_DN : NEO__BLOCK_X]));
    }
    if (!back)
        return neo_activation_forward(ctx, NEO_ACT_GELU, t[NEO__BLOCK_WIDE], t[NEO__BLOCK_GELU]);
    return neo_activation_backward(ctx, NEO_ACT_GELU, t[NEO__BLOCK_WIDE], neo_tensor_none(),
                                   t[NEO__BLOCK_DWIDE], t[NEO__BLOCK_DWIDE]);
}
static neo_status neo__device_call(neo__device_job *job, int turn) {
    neo_tensor *t = job->t;
    const int way = job->kind - NEO__DEVICE_LAYER;
    job->batch.ids = job->ids + (int64_t)(turn % NEO__DEVICE_TURNS) * NEO__DEVICE_IDS;
    switch (job->kind) {
    case NEO__DEVICE_COPIES: return neo_tensor_copy(job->ctx, t[0], t[1]);
    case NEO__DEVICE_GEMM: return neo_gemm(job->ctx, NULL, t[0], t[1], t[2]);
    case NEO__DEVICE_LOOKUP: return neo_bags_forward(job->bags, &job->batch, t[0]);
    case NEO__DEVICE_UPDATE: return neo_bags_backward(job->bags, &job->batch, t[0], 1e-3f);
    case NEO__DEVICE_KEEP:
        NEO__TRY(neo_bags_accumulate(job->bags, &job->batch, t[0], NULL));
        return neo_bags_step(job->bags, 1e-3f);
    case NEO__DEVICE_SPLIT: return neo__device_split(job->ctx, job->split, "neo_calibrate");
    case NEO__DEVICE_STEP:
        if (t[0].data) NEO__TRY(neo_tensor_copy(job->ctx, t[0], t[1]));
        return job->optim ? neo_optim_step(job->optim, 1e-3f) : NEO_OK;
    default: break;
    }
    switch (way) {
    case NEO_LAYER_FORWARD: return neo_mlp_forward(job->mlp, t[0], t[2]);
    case NEO_LAYER_BACKWARD: return neo_mlp_backward(job->mlp, NULL, t[3], t[1]);
    case NEO_LAYER_LAST: return neo_mlp_backward(job->mlp, NULL, t[3], neo_tensor_none());
    case NEO_LAYER_DOTS: return neo_interact_forward(job->ctx, 0, t[0], t[1], t[5]);
    case NEO_LAYER_DOTS_BACKWARD:
        return neo_interact_backward(job->ctx, 0, t[0], t[1], t[2], t[3], t[4]);
    case NEO_LAYER_ATTENTION:
    case NEO_LAYER_ATTENTION_BACKWARD:
        return neo__block_attend(job->ctx, &job->attention, t, way - NEO_LAYER_ATTENTION);
    default: return neo__device_rest(job->ctx, t, way - NEO_LAYER_REST);
    }
}
/* Seconds of a call. The first ones load kernels, and grow memory. */
static neo_status neo__device_time(neo__device_job *job, int kind, double *seconds) {
    NEO__ZERO(neo__calibrate_times, times);
    job->kind = kind;
    for (int run = -1, turn = 0; run < (int)NEO__DEVICE_RUNS; run++) {
        NEO__TRY(neo_ctx_synchronize(job->ctx));
        const int64_t began = neo_ctx_time_ns(job->ctx);
        for (int i = 0; i < (int)NEO__DEVICE_CALLS; i++)
            NEO__TRY(neo__device_call(job, turn++));
        NEO__TRY(neo_ctx_synchronize(job->ctx));
        if (run >= 0)
            neo__calibrate_put(&times, 1e-9 * (double)(neo_ctx_time_ns(job->ctx) - began) /
                                           (double)NEO__DEVICE_CALLS);
    }
    *seconds = neo__calibrate_low(&times);
    return NEO_OK;
}
/* Zeros, of some rows and columns, as tensor i of a job; end frees them all. */
static neo_status neo__device_take(neo__device_job *job, int i, int64_t rows, int64_t cols) {
    const int64_t shape[2] = {rows, cols};
    NEO__TRY(neo_tensor_alloc(job->ctx, NEO_F32, 2, shape, &job->t[i]));
    return neo_tensor_zero(job->ctx, job->t[i]);
}
static neo_status neo__device_end(neo__device_job *job, neo_status status) {
    for (int i = 0; i < (int)NEO__DEVICE_TENSORS; i++) neo_tensor_free(job->ctx, &job->t[i]);
    neo_bags_destroy(job->bags), neo_mlp_destroy(job->mlp), neo_optim_destroy(job->optim);
    neo_params_destroy(job->params);
    neo_ctx *ctx = job->ctx;
    memset(job, 0, sizeof *job);
    job->ctx = ctx;
    for (int i = 0; i < (int)NEO__DEVICE_TENSORS; i++) job->t[i] = neo_tensor_none();
    return status;
}

/* ---- memory and products ---- */
/* A copy, and a row of 16 columns among those of other tables that is packed by itself. */
static neo_status neo__device_memory(neo__device_job *job, neo_cluster *to, double *row) {
    const int64_t cols = 16 * NEO__CALIBRATE_SLICE, rows = NEO__DEVICE_COPY / cols;
    double seconds;
    for (int i = 0; i < 2; i++) NEO__TRY(neo__device_take(job, i, rows, cols));
    NEO__TRY(neo__device_time(job, NEO__DEVICE_COPIES, &seconds));
    to->memory_bandwidth = 2.0 * 4.0 * (double)NEO__DEVICE_COPY / seconds;
    for (int i = 0; i < 2; i++) /* not its own: free takes a tensor as it was */
        job->t[2 + i] = job->t[i], job->t[i] = neo_tensor_slice(job->t[i], 1, 0,
                                                                NEO__CALIBRATE_SLICE);
    const neo_status status = neo__device_time(job, NEO__DEVICE_COPIES, &seconds);
    for (int i = 0; i < 2; i++) job->t[i] = job->t[2 + i], job->t[2 + i] = neo_tensor_none();
    *row = seconds / (double)rows;
    return status;
}
static neo_status neo__device_flops(neo__device_job *job, neo_cluster *to) {
    const double edge = (double)NEO__DEVICE_EDGE;
    double seconds;
    for (int i = 0; i < 3; i++) NEO__TRY(neo__device_take(job, i, NEO__DEVICE_EDGE,
                                                          NEO__DEVICE_EDGE));
    NEO__TRY(neo__device_time(job, NEO__DEVICE_GEMM, &seconds));
    to->flops = 2.0 * edge * edge * edge / seconds;
    return NEO_OK;
}

/* ---- tables ---- */
enum { NEO__DEVICE_NEAR, NEO__DEVICE_CACHED, NEO__DEVICE_FAR, NEO__DEVICE_STATES };
enum { NEO__DEVICE_ALL, NEO__DEVICE_POOLED, NEO__DEVICE_FEW, NEO__DEVICE_SHAPES };
/* Tables, and seconds of calls: lookup, update, and that with gradients that wait. */
typedef struct neo__device_table {
    int64_t dim;
    neo_bag_optim_kind kind;
    int32_t buckets;
    int shapes, kept; /* the first shapes alone; kept: and pooled ones wait */
    double took[3][NEO__DEVICE_STATES][NEO__DEVICE_SHAPES], split; /* split: of a sender */
} neo__device_table;
static int64_t neo__device_ids(int state, int shape) {
    return NEO__DEVICE_IDS / (state == NEO__DEVICE_CACHED ? 4 : 1) /
           (shape == NEO__DEVICE_FEW ? (int)NEO__SET_LESS : 1);
}
/* Ids of a state, of all turns, scattered: of few rows, of as many as a cache has, of each turn's
   own. Rows are a power of two. */
static void neo__device_list(int state, int64_t rows, int64_t *id) {
    const int64_t each = neo__device_ids(state, NEO__DEVICE_ALL) / NEO__CALIBRATE_TABLES,
                  among = state == NEO__DEVICE_FAR      ? rows
                          : state == NEO__DEVICE_CACHED ? NEO__MIN(each, rows)
                                                        : NEO__MAX(each / 32, 1);
    for (int64_t i = 0; i < (int64_t)NEO__DEVICE_TURNS * NEO__DEVICE_IDS; i++)
        id[i] = (i / NEO__DEVICE_IDS * each + i % each) * 0x9E3779B1 % among;
}
/* Seconds of what a sender does with ids: looks, counts, and places, in two parts of a table. */
static neo_status neo__device_split_time(neo__device_job *job, int64_t rows, double *seconds) {
    enum { TABLES = NEO__CALIBRATE_TABLES };
    int64_t all[TABLES], first[TABLES + 1], part[2 * TABLES], counts[3 * TABLES];
    NEO__ZERO(neo__split_found, found);
    NEO__ZERO(neo__split_call, call);
    for (int k = 0; k <= (int)TABLES; k++) {
        first[k] = 2 * k;
        if (k == (int)TABLES) break;
        all[k] = rows, part[2 * k] = 0, part[2 * k + 1] = rows / 2;
    }
    NEO__TRY(neo__device_take(job, 3, 2, NEO__DEVICE_IDS)); /* ids of 8 bytes */
    NEO__TRY(neo__device_take(job, 4, 2, NEO__DEVICE_IDS));
    call.batch = &job->batch;
    call.rows = all, call.first_part = first, call.part_row = part;
    call.max_ids = NEO__DEVICE_IDS;
    call.id_dtype = NEO_I64;
    call.ids = job->t[3].data, call.lengths = (int32_t *)job->t[4].data;
    call.counts = counts, call.found = &found;
    job->split = &call;
    const neo_status status = neo__device_time(job, NEO__DEVICE_SPLIT, seconds);
    job->split = NULL;
    neo_tensor_free(job->ctx, &job->t[3]);
    neo_tensor_free(job->ctx, &job->t[4]);
    return status;
}
/* Times of a state, whose ids the device has. t[0]: pooled rows, t[2]: offsets. */
static neo_status neo__device_state(neo__device_job *job, neo__device_table *of, int state,
                                    int64_t rows, int64_t *offsets) {
    const neo_tensor pooled = job->t[0];
    for (int shape = 0; shape < of->shapes; shape++) {
        const int64_t ids = neo__device_ids(state, shape),
                      pooling = shape == NEO__DEVICE_POOLED ? (int)NEO__CALIBRATE_POOLING : 1,
                      bags = ids / pooling;
        neo_tensor host = neo_tensor_1d(offsets, NEO_I64, bags + 1);
        for (int64_t i = 0; i <= bags; i++) offsets[i] = i * pooling;
        NEO__TRY(neo_tensor_copy(job->ctx, host, neo_tensor_slice(job->t[2], 0, 0, bags + 1)));
        job->batch.batch = bags / NEO__CALIBRATE_TABLES;
        job->t[0] = neo_tensor_slice(pooled, 0, 0, job->batch.batch);
        const int ways = of->kept && shape == NEO__DEVICE_POOLED ? 3 : 2;
        neo_status status = NEO_OK;
        for (int way = 0; way < ways && status == NEO_OK; way++)
            status = neo__device_time(job, NEO__DEVICE_LOOKUP + way, &of->took[way][state][shape]);
        job->t[0] = pooled;
        if (ways == 3 && status == NEO_OK) status = neo__device_split_time(job, rows, &of->split);
        NEO__TRY(status);
    }
    return NEO_OK;
}
/* Times of all states, or of the one that a cache has. id: of all turns, then offsets. */
static neo_status neo__device_bags(neo__device_job *job, neo__device_table *of, int only,
                                   int64_t *id) {
    const int64_t turns = NEO__DEVICE_TURNS, ids = NEO__DEVICE_IDS, all = turns * ids,
                  rows = NEO__MAX(NEO__DEVICE_TABLES / of->dim / NEO__CALIBRATE_TABLES, 2),
                  shape[2] = {all, ids + 1};
    neo_table_desc table[NEO__CALIBRATE_TABLES];
    char name[NEO__CALIBRATE_TABLES][12];
    NEO__ZERO(neo_bags_desc, desc);
    memset(table, 0, sizeof table);
    for (int i = 0; i < (int)NEO__CALIBRATE_TABLES; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        table[i].name = name[i];
        table[i].rows = rows, table[i].dim = of->dim;
        table[i].row_buckets = of->buckets;
        table[i].init.kind = NEO_INIT_CONSTANT;
        table[i].optim.kind = of->kind;
    }
    desc.tables = table, desc.table_count = NEO__CALIBRATE_TABLES;
    desc.max_batch = ids / NEO__CALIBRATE_TABLES, desc.max_ids = ids;
    desc.max_kept_rows = of->kept ? ids : 0;
    NEO__TRY(neo_bags_create(job->ctx, &desc, &job->bags));
    NEO__TRY(neo__device_take(job, 0, desc.max_batch, NEO__CALIBRATE_TABLES * of->dim));
    for (int i = 0; i < 2; i++)
        NEO__TRY(neo_tensor_alloc(job->ctx, NEO_I64, 1, &shape[i], &job->t[1 + i]));
    job->ids = (const int64_t *)job->t[1].data;
    job->batch.feature_count = NEO__CALIBRATE_TABLES;
    job->batch.id_dtype = NEO_I64;
    job->batch.offsets = (const int64_t *)job->t[2].data;
    job->batch.place = NEO_DEVICE;
    for (int state = 0; state < (int)NEO__DEVICE_STATES; state++) {
        if (only && state != NEO__DEVICE_CACHED) continue;
        neo__device_list(state, rows, id);
        NEO__TRY(neo_tensor_copy(job->ctx, neo_tensor_1d(id, NEO_I64, all), job->t[1]));
        NEO__TRY(neo__device_state(job, of, state, rows, id + all));
    }
    return NEO_OK;
}
/* Bytes of an id, a bag and a table in a state, from calls of all shapes. */
static void neo__device_solve(const double took[NEO__DEVICE_SHAPES], int state, double scale,
                              double *id, double *bag, double *table) {
    const double ids = (double)neo__device_ids(state, NEO__DEVICE_ALL), less = NEO__SET_LESS,
                 all = (double)NEO__CALIBRATE_TABLES, pooling = NEO__CALIBRATE_POOLING,
                 x = took[NEO__DEVICE_ALL] * scale;
    *table = NEO__MIN(NEO__MAX((less * took[NEO__DEVICE_FEW] * scale - x) / ((less - 1.0) * all),
                               1.0), x / all / 2.0);
    *bag = (x - took[NEO__DEVICE_POOLED] * scale) * pooling / (pooling - 1.0) / ids;
    *id = (x - all * *table) / ids;
    *bag = NEO__MAX(NEO__MIN(*bag, *id / 2.0), 1.0);
    *id = NEO__MAX(*id - *bag, 1.0);
}
/* The curves of a width: see neo_calibration.rows. */
static void neo__device_curves(const neo__device_table *tables, int wide, neo_cluster *to) {
    const neo__device_table *rowwise = &tables[NEO__CALIBRATE_ROWWISE];
    double(*rows)[2][3] = to->calibration.rows, id, bag, table;
    for (int way = 0; way < 2; way++)
        for (int state = 0; state < (int)NEO__DEVICE_STATES; state++) {
            const double ids = (double)neo__device_ids(state, NEO__DEVICE_ALL);
            neo__device_solve(rowwise->took[way][state], state, to->memory_bandwidth, &id, &bag,
                              &table);
            rows[NEO_ROWS_LOOKUP_BAG + way][wide][state] = bag;
            rows[NEO_ROWS_LOOKUP_TABLE + way][wide][state] = table;
            for (int k = 0; k < (way ? (int)NEO__CALIBRATE_KINDS : 1); k++) {
                const double more = tables[k].took[way][state][NEO__DEVICE_ALL] -
                                    rowwise->took[way][state][NEO__DEVICE_ALL];
                rows[way ? (int)NEO_ROWS_SGD + k : (int)NEO_ROWS_LOOKUP][wide][state] =
                    NEO__MAX(id + (way ? more * to->memory_bandwidth / ids : 0.0), 1.0);
            }
        }
    for (int i = 0; i < (int)NEO_ROWS_COUNT; i++) /* what is farther takes no less */
        for (int state = 1; state < (int)NEO__DEVICE_STATES; state++)
            rows[i][wide][state] = NEO__MAX(rows[i][wide][state], rows[i][wide][state - 1]);
}
static void neo__device_factors(const neo__device_table *table, double row, neo_cluster *to) {
    neo_calibration *by = &to->calibration;
    double(*at)[3] = by->rows[NEO_ROWS_ROWWISE];
    const double ids = (double)neo__device_ids(NEO__DEVICE_CACHED, NEO__DEVICE_POOLED),
                 bags = ids / (double)NEO__CALIBRATE_POOLING, scale = to->memory_bandwidth,
                 row_bytes = 4.0 * (double)table->dim, least = 1e-3;
    double lookup[2], took[2];
    for (int i = 0; i < 2; i++) {
        lookup[i] = table[i].took[0][NEO__DEVICE_CACHED][NEO__DEVICE_POOLED];
        took[i] = table[0].took[1 + i][NEO__DEVICE_CACHED][NEO__DEVICE_POOLED];
    }
    by->lookup = lookup[0] * scale / (8.0 * ids + 4.0 * bags + row_bytes * (ids + bags));
    by->update = NEO__MAX((at[1][1] - at[0][1]) / (4.0 * (128.0 - 16.0)), 0.1);
    by->copy = 1.0;
    by->bucketed = NEO__MAX(lookup[1] / lookup[0], 1.0);
    by->id = table[0].split / ids * scale;
    by->sort = NEO__MAX(at[0][1] - by->update * (8.0 + 4.0 * 16.0), least);
    by->row = NEO__MAX(row * scale - 2.0 * 4.0 * (double)NEO__CALIBRATE_SLICE, least);
    by->kept = NEO__MAX((took[1] - took[0]) / ids * scale - 2.0 * row_bytes, least);
    memset(by->rows_large, 0, sizeof by->rows_large);
}
static neo_status neo__device_tables(neo__device_job *job, int64_t *id, double row,
                                     neo_cluster *to) {
    neo__device_table table[NEO__CALIBRATE_KINDS];
    for (int wide = 0; wide < 2; wide++) {
        memset(table, 0, sizeof table);
        for (int k = 0; k < (int)NEO__CALIBRATE_KINDS; k++) {
            table[k].dim = wide ? 128 : 16;
            table[k].kind = neo__calibrate_rows_of(wide, k).kind;
            table[k].shapes = k == NEO__CALIBRATE_ROWWISE ? (int)NEO__DEVICE_SHAPES : 1;
            NEO__TRY(neo__device_end(job, neo__device_bags(job, &table[k], 0, id)));
        }
        neo__device_curves(table, wide, to);
    }
    memset(table, 0, sizeof table);
    for (int i = 0; i < 2; i++) {
        table[i].dim = NEO__CALIBRATE_DIM;
        table[i].kind = NEO_BAG_ROWWISE_ADAGRAD;
        table[i].shapes = NEO__DEVICE_POOLED + 1, table[i].kept = !i;
        table[i].buckets = i ? (int32_t)NEO__CALIBRATE_BUCKETS : 0;
        NEO__TRY(neo__device_end(job, neo__device_bags(job, &table[i], 1, id)));
    }
    neo__device_factors(table, row, to);
    return NEO_OK;
}

/* ---- layers ---- */
static neo_status neo__device_layer(neo__device_job *job, int64_t samples, const int64_t *shape,
                                    double *seconds, int stride) {
    NEO__ZERO(neo_mlp_desc, desc);
    desc.name = "calibrate";
    desc.max_batch = samples;
    desc.width_count = 2;
    desc.widths[0] = shape[0], desc.widths[1] = shape[1];
    desc.act = desc.last_act = NEO_ACT_RELU;
    NEO__TRY(neo_params_create(job->ctx, &job->params));
    NEO__TRY(neo_mlp_create(job->ctx, job->params, &desc, &job->mlp));
    for (int i = 0; i < 4; i++) NEO__TRY(neo__device_take(job, i, samples, shape[i / 2]));
    for (int way = 0; way < (int)NEO_LAYER_DOTS; way++)
        NEO__TRY(neo__device_time(job, NEO__DEVICE_LAYER + way, seconds + way * stride));
    return NEO_OK;
}
static neo_status neo__device_layers(neo__device_job *job, neo_calibration *to) {
    enum { COUNT = NEO__CALIBRATE_LAYERS };
    double x[COUNT][5], seconds[NEO_LAYER_DOTS][COUNT];
    int64_t samples[COUNT], shape[COUNT][2];
    for (int i = 0; i < (int)COUNT; i++) {
        for (int k = 0; k < 2; k++)
            shape[i][k] =
                neo__device_size(neo__calibrate_shapes[i / 2][k], NEO__CALIBRATE_SHIFT / 3);
        samples[i] = neo__device_size(NEO__DEVICE_SAMPLES * (i % 2 ? 8 : 1), NEO__CALIBRATE_SHIFT);
        NEO__TRY(neo__device_end(job, neo__device_layer(job, samples[i], shape[i], &seconds[0][i],
                                                        COUNT)));
    }
    for (int way = 0; way < (int)NEO_LAYER_DOTS; way++) {
        for (int i = 0; i < (int)COUNT; i++)
            neo__layer_terms(x[i], (double)samples[i], shape[i][0], shape[i][1],
                             (neo_layer_way)way);
        neo__calibrate_fit(x, seconds[way], COUNT, to->layer[way]);
    }
    memset(to->layer_far, 0, sizeof to->layer_far); /* their bytes */
    memset(to->dots_far, 0, sizeof to->dots_far);
    return NEO_OK;
}
static neo_status neo__device_dots(neo__device_job *job, neo_calibration *to) {
    double x[NEO__CALIBRATE_DOTS][5], seconds[2][NEO__CALIBRATE_DOTS];
    for (int i = 0; i < (int)NEO__CALIBRATE_DOTS; i++) {
        int64_t rows, dim;
        int more;
        (void)neo__calibrate_dots_of(i, &rows, &dim, &more);
        const int64_t n = neo__device_size(NEO__DEVICE_SAMPLES * (i % 2 ? 8 : 1),
                                           NEO__CALIBRATE_SHIFT),
                      width[3] = {dim, (rows - 1) * dim, neo_interact_width(dim, rows - 1, 0)};
        neo_status status = NEO_OK;
        for (int k = 0; k < 6 && status == NEO_OK; k++)
            status = neo__device_take(job, k, n, width[k % 3]);
        for (int way = 0; way < 2 && status == NEO_OK; way++)
            status = neo__device_time(job, NEO__DEVICE_LAYER + (int)NEO_LAYER_DOTS + way,
                                      &seconds[way][i]);
        NEO__TRY(neo__device_end(job, status));
        neo__layer_terms(x[i], (double)(n * rows), dim, rows, NEO_LAYER_DOTS);
    }
    for (int way = 0; way < 2; way++)
        neo__calibrate_fit(x, seconds[way], NEO__CALIBRATE_DOTS, to->layer[NEO_LAYER_DOTS + way]);
    return NEO_OK;
}
/* Attention and the rest of a transformer's block: tensors as those of neo__calibrate_block. */
static neo_status neo__device_block(neo__device_job *job, const neo__calibrate_block *of,
                                    double *seconds, int stride) {
    for (int k = 0; k < (int)NEO__DEVICE_TENSORS; k++)
        NEO__TRY(neo__block_tensor(job->ctx, of, k, &job->t[k]));
    job->attention.length = of->length, job->attention.heads = of->heads;
    job->attention.causal = 1;
    for (int way = 0; way < (of->attends ? 2 : 4); way++)
        NEO__TRY(neo__device_time(job, NEO__DEVICE_LAYER + (int)NEO_LAYER_ATTENTION + way,
                                  seconds + way * stride));
    return NEO_OK;
}
static neo_status neo__device_blocks(neo__device_job *job, neo_calibration *to) {
    enum { COUNT = NEO__CALIBRATE_BLOCKS };
    double x[2][COUNT][5], seconds[4][COUNT];
    for (int i = 0; i < (int)COUNT; i++) {
        neo__calibrate_block of = neo__calibrate_block_of(i);
        of.length = neo__device_size(of.length, NEO__CALIBRATE_SHIFT / 4);
        of.n = NEO__MAX(16 * of.n >> NEO__CALIBRATE_SHIFT, of.length);
        NEO__TRY(neo__device_end(job, neo__device_block(job, &of, &seconds[0][i], COUNT)));
        neo__layer_terms(x[0][i], (double)(of.n * of.heads), of.dim, of.length,
                         NEO_LAYER_ATTENTION);
        neo__layer_terms(x[1][i], (double)of.n, of.dim * of.heads, 1, NEO_LAYER_REST);
    }
    for (int way = 0; way < 4; way++)
        neo__calibrate_fit(x[way / 2], seconds[way],
                           way < 2 ? (int)COUNT : (int)NEO__CALIBRATE_RESTS,
                           to->layer[NEO_LAYER_ATTENTION + way]);
    return NEO_OK;
}
/* Adagrad behind copies, less these alone: the cache is that by which its seconds follow best. */
static neo_status neo__device_steps(neo__device_job *job, neo_cluster *to) {
    enum { COUNT = 7, SIZES = 56 };
    const int64_t params = NEO__DEVICE_PARAMS;
    const double scale = to->memory_bandwidth / (double)params;
    neo__calibrate_behind at[COUNT];
    neo_cluster by = *to;
    neo_optim *optim;
    NEO__ZERO(neo_optim_desc, desc);
    NEO__ZERO(neo_init, zeros);
    double cached, memory, least = DBL_MAX;
    memset(at, 0, sizeof at);
    zeros.kind = NEO_INIT_CONSTANT;
    desc.kind = NEO_OPTIM_ADAGRAD;
    NEO__TRY(neo_params_create(job->ctx, &job->params));
    NEO__TRY(neo_params_add(job->params, "calibrate", 1, &params, zeros, NULL));
    NEO__TRY(neo_optim_create(job->ctx, job->params, &desc, &job->optim));
    for (int i = 0; i < (int)COUNT; i++) {
        double alone = 0.0, both;
        at[i].mb = i ? (double)(4 << i) : 0.0; /* 8 to 256 MiB */
        for (int k = 0; k < 2 && i; k++)
            NEO__TRY(neo__device_take(job, k, 1, neo__device_size((int64_t)(1 << 20) << i,
                                                                  NEO__CALIBRATE_SHIFT)));
        NEO__TRY(neo__device_time(job, NEO__DEVICE_STEP, &both));
        optim = job->optim, job->optim = NULL;
        const neo_status status = i ? neo__device_time(job, NEO__DEVICE_STEP, &alone) : NEO_OK;
        job->optim = optim;
        for (int k = 0; k < 2; k++) neo_tensor_free(job->ctx, &job->t[k]);
        NEO__TRY(status);
        neo__calibrate_put(&at[i].took, NEO__MAX(both - alone, at[0].took.run[0] / 2.0));
    }
    by.calibration.others = to->calibration.others = 0.0;
    by.calibration.cache = 2097152.0;
    for (int size = 0; size <= (int)SIZES; size++, by.calibration.cache *= 1.0905077326652577) {
        const double off = neo__calibrate_line(at, COUNT, (double)params, &by, &cached, &memory);
        if (off >= least) continue;
        least = off;
        to->calibration.step = memory * scale, to->calibration.step_near = cached * scale;
        to->calibration.cache =
            size < (int)SIZES ? by.calibration.cache : (double)NEO_CACHE_MOST;
    }
    return NEO_OK;
}
/* Factors as a cluster file may have them: of a call that took long for few things, as many. */
static void neo__device_bound(neo_calibration *by) {
    double *const factors[] = {&by->lookup, &by->update, &by->bucketed, &by->id, &by->sort,
                               &by->row, &by->kept, &by->step, &by->step_near};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
        *factors[i] = NEO__MIN(*factors[i], 1e6);
}
static neo_status neo__calibrate_device(neo__arena *work, neo_cluster *to) {
    NEO__ZERO(neo__device_job, job);
    double row;
    int64_t *id;
    job.ctx = work->ctx;
    (void)neo__device_end(&job, NEO_OK); /* tensors are none */
    NEO__TRY(NEO__ARENA(work, id, (NEO__DEVICE_TURNS + 1) * (int64_t)NEO__DEVICE_IDS + 1));
    NEO__TRY(neo__device_end(&job, neo__device_memory(&job, to, &row)));
    NEO__TRY(neo__device_end(&job, neo__device_flops(&job, to)));
    NEO__TRY(neo__device_tables(&job, id, row, to));
    NEO__TRY(neo__device_layers(&job, &to->calibration));
    NEO__TRY(neo__device_dots(&job, &to->calibration));
    NEO__TRY(neo__device_blocks(&job, &to->calibration));
    NEO__TRY(neo__device_end(&job, neo__device_steps(&job, to)));
    neo__device_bound(&to->calibration);
    return NEO_OK;
}
NEO_API neo_status neo_calibrate(neo_ctx *ctx, neo_cluster *cluster) {
    NEO__TRY(neo__check_live(ctx, "neo_calibrate", "ctx"));
    NEO__CHECK(cluster, NEO_ERR_ARG, "neo_calibrate: cluster is NULL");
    NEO__ZERO(neo__arena, work);
    neo_cluster found = *cluster;
    work.ctx = ctx;
    work.function = "neo_calibrate";
    neo_status status = neo_ctx_device(ctx) ? neo__calibrate_device(&work, &found)
                                            : neo__calibrate_all(&work, &found);
    neo__arena_free(&work);
    if (status == NEO_OK) *cluster = found;
    return status;
}

NEO__COLD_END
NEO_EXACT_END
#endif /* implementation */
