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
    int weighted;                   /* 1: batches have a weight per id */
    double dense_flops_bottom, dense_flops_top; /* per sample, forward: dense layers beside and after the lookup */
    int64_t dense_params;           /* elements of replicated dense parameters */
} neo_plan_desc;

/* ------------------------------------------------------------------------------------------------
   >>shard

   The tables of a plan on the ranks of a group, with the verbs of neo_bags. Each rank brings its own samples
   of a global batch, those of its leaves (see >>leaves in neo.h), and gets their pooled rows, whoever holds the
   tables. With V = neo_ctx_repro_shards the weights and optimizer state after a step have the bits of one rank
   with all samples, under every plan (row-wise: with row_buckets).

   A step                                                     what travels (W ranks, a batch of B in all)
     prefetch         the ids of the next batch start           lengths, then ids, to the ranks that hold rows
     forward_begin    look up and pool; pooled rows start       pooled rows, to the ranks of the samples
     forward_end      they are there: out
     backward_begin   gradients of pooled rows start            the same way back; data-parallel tables: sums
     backward_end     merge, one optimizer step per row         sums along rows that are cut by columns
   Between begin and end the caller computes: the bottom MLP, other gradients. prefetch may be left out (the
   ids then travel in forward_begin); forward and backward are begin and end in one.

   BYTES that a rank sends in a step, in the mean over ranks; c(n) = (n - 1)/n. A flow is the ids of one feature
   that go to one rank, of all rows or of the range of rows that it holds: several slices of columns on one rank
   share it. Data-parallel tables have none.
     lengths              B/W (4 flows + 4 W/B) c(W)          the flows to all ranks; 4: a status word
     ids                  4 (ids to all flows)/W c(W)         8 where a table has more than 2^31 rows; weights 4
     forward              B/W (sum over parts and features of row bytes) c(W)
                          row bytes: 4 cols, or neo_wire_row_bytes(wire, cols). A part is a piece of the plan; with
                          row_buckets it may be several, each a subtree of buckets
     backward             as forward
     parts of a table that lie in one node, of several (twrw, grid): instead of that in each direction
                          inside the node B/W H (row bytes) (L - 1) per rank that holds one, across nodes
                          B/W (row bytes) (H - 1)
     row-wise optimizers of tables cut by columns: for each touched row 4 bytes per block of 16 columns, to each
                          other rank that holds columns of the row (LAMB, LARS: 8; partial LAMB: 12; max_norm: 4 more)
     data-parallel        2 (sum of rows (4 cols + 1)) c(W) (with P subtrees of leaves on a rank: 1 + P for 2)
   ------------------------------------------------------------------------------------------------ */
typedef struct neo_shard neo_shard;

/* neo_shard_create: the rank's part of the plan: memory, initial values (those of the whole tables), groups of
   its own. Collective: all ranks with the same plan. The plan may be destroyed after.
   Errors   NEO_ERR_ARG: another number of ranks than the plan's; repro_shards below the number of ranks.
            NEO_ERR_UNSUPPORTED: NEO_POOL_NONE; a table that is not cut as a grid (the same rows in every slice
            of columns). NEO_ERR_MEMORY. If one rank fails, all do, with its message.
   neo_shard_bytes: exactly what create asks of the allocator on rank `rank`, the groups (see
   neo_comm_workspace_bytes) apart. ctx: as that of the ranks, for its threads and repro_shards. */
typedef struct neo_shard_memory {
    size_t weight_bytes, state_bytes; /* of tables */
    size_t exchange_bytes;            /* ids, pooled rows, gradients under way */
    size_t workspace_bytes;           /* of the lookups and updates */
} neo_shard_memory;
NEO_API NEO__CHECK_UNUSED neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan, neo_shard **shard);
NEO_API void neo_shard_destroy(neo_shard *shard);
NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank, neo_shard_memory *memory);

/* The calls of a step. All are collective, also on a rank without samples.
   Shapes    batch: the features of the plan x B_r samples, those of this rank's leaves in a global batch of
             global_batch samples. out, dout [B_r][sum of the features' dims] f32, last stride 1.
   Lifetime  batch (its arrays) from prefetch or forward_begin until backward_end, or the next forward_begin.
   Order     prefetch of the next batch at any point between forward_begin and backward_end, or before;
             forward_begin takes the batch that was prefetched last if it is the same one.
   Numerics  as neo_bags_forward and neo_bags_backward of the whole batch, with wires: MEAN is divided by where
             the samples are, after the forward wire and before the backward wire.
   Errors    those of neo_bags_forward, of whichever rank: all ranks return the status and message of the lowest
             one, and the next call may be made. NEO_ERR_STATE: out of order. NEO_ERR_CAPACITY: more samples
             than the plan's. Those of >>comm-faults: the shard is then broken.
   Memory    nothing is allocated, unless a batch has more ids than planned: then buffers grow, counted. */
NEO_API neo_status neo_shard_prefetch(neo_shard *shard, const neo_jagged *batch, int64_t global_batch);
NEO_API neo_status neo_shard_forward_begin(neo_shard *shard, const neo_jagged *batch, int64_t global_batch);
NEO_API neo_status neo_shard_forward_end(neo_shard *shard, neo_tensor out);
NEO_API neo_status neo_shard_backward_begin(neo_shard *shard, neo_tensor dout);
NEO_API neo_status neo_shard_backward_end(neo_shard *shard, float lr);
NEO_API neo_status neo_shard_forward(neo_shard *shard, const neo_jagged *batch, int64_t global_batch,
                                     neo_tensor out);
NEO_API neo_status neo_shard_backward(neo_shard *shard, neo_tensor dout, float lr);

NEO_API int64_t neo_shard_out_width(const neo_shard *shard);
typedef struct neo_shard_stats {
    int64_t steps;            /* of the optimizer */
    int64_t out_of_range;     /* ids of this rank's samples that were dropped or clamped */
    int64_t grow_count;
    neo_comm_stats ids, rows; /* of the groups: lengths and ids; all else */
    neo_wire_stats forward, backward; /* of rows that this rank coded */
} neo_shard_stats;
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *shard);
NEO_API void neo_shard_reset_stats(neo_shard *shard);
/* neo_state_add_shard: all tensors of the tables, under the names of neo_state_add_bags; each rank adds what
   it holds. */
NEO_API neo_status neo_state_add_shard(neo_state *state, neo_shard *shard);

#ifdef __cplusplus
}
#endif
#endif /* NEO_FSDP_H */

#if defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
struct neo_plan { neo_plan_desc desc; neo_piece *pieces; int64_t count; };
static const neo_plan_desc *neo_plan_desc_of(const neo_plan *p) { return &p->desc; }
static const neo_piece *neo_plan_pieces(const neo_plan *p, int64_t *count) { *count = p->count; return p->pieces; }
/* ------------------------------------------------------------------------------------------------
   >>impl-shard-map

   What follows from a plan, the same on every rank.

   A part is what a rank holds of a table as one table of its neo_bags: a piece of the plan, or, where a piece
   has some of several row buckets, one subtree of them, so that its pooled sum is a node of the table's tree.
   A flow is the ids of one feature inside one range of rows; a rank gets each flow that one of its parts needs
   once. A route is the pooled rows of one part for one feature: `cols` columns of the rows that its rank sends,
   or, backward, gets. The routes of a rank are its parts by its features, in order, and stand one beside the
   other in a matrix of `width` columns with one row per sample.
   ------------------------------------------------------------------------------------------------ */
typedef struct neo__shard_part {
    int32_t table, rank;
    int64_t first_row, rows, first_col, cols;
    int64_t number; /* its place in the tree over parts of the same columns: its first bucket */
    int inside;     /* its columns are in several pieces, all in one node of several: they add there first */
} neo__shard_part;
typedef struct neo__shard_flow {
    int32_t feature;
    int32_t source; /* of a flow that a rank gets: where it is among those that a sender makes */
    int64_t copies; /* of a source: ranks that get it */
    int64_t first_row, rows;
} neo__shard_flow;
typedef struct neo__shard_route {
    int32_t feature, rank, part;
    int32_t flow;       /* of its rank's */
    int64_t col, cols;  /* in the rows of its rank */
    int64_t coded[2];   /* bytes of coded rows before it, per sample: forward, backward */
    int64_t out_col;    /* in the rows of the user */
    int64_t number;     /* as its part's */
    neo_wire wire[2];   /* forward, backward. Partial sums travel as f32: what is rounded is their sum */
} neo__shard_route;
/* What the ranks of a node make of their inside routes: the sums of a slice for one feature. */
typedef struct neo__shard_mid {
    int32_t feature;
    int64_t col, cols;  /* in the rows of its node */
    int64_t coded[2];   /* bytes of coded rows before it, per sample */
    int64_t out_col;
    int64_t first, end; /* its routes, in pull */
} neo__shard_mid;

typedef struct neo__shard_map {
    int ranks;
    int32_t table_count, feature_count;
    int32_t *feature_table;
    int32_t *first_feature, *table_features; /* features by table */
    int64_t *feature_col; /* [features + 1]: in out */
    neo_table_desc *tables;
    char *names;
    neo_bags_desc desc;   /* of all, on these tables */
    double *ids_per_sample;
    neo_wire wire[2];     /* forward, backward */
    neo_dtype id_dtype;   /* on the wire */
    int pipeline, weighted, cut_rounds;
    int nodes, per_node;  /* ranks of a node; nodes is 1 if they are not alike */
    int64_t part_count, route_count, flow_count, source_count, replica_count, mid_count;
    neo__shard_part *parts;     /* by rank, table, column, row */
    neo__shard_flow *flows;     /* by rank, feature, row */
    neo__shard_flow *sources;   /* by feature, row */
    neo__shard_route *routes;   /* by rank, part, feature */
    neo__shard_route *pull;     /* routes by column of out and place in the tree */
    neo__shard_part *cuts;      /* see neo__shard_map_cuts */
    int64_t cut_count;
    int32_t *replicas;    /* features of data-parallel tables, by table */
    int64_t *part_begin, *flow_begin, *route_begin; /* [ranks + 1] */
    int64_t *inside_begin; /* [ranks]: the first of its inside routes: they are the last ones */
    int64_t *width;       /* [ranks]: of the routes together */
    int64_t *direct;      /* [ranks]: of those that are not inside */
    int64_t *remote_col;  /* [ranks]: direct of all ranks before */
    int64_t *coded[2];    /* [ranks]: bytes of a coded row of the direct routes, of each wire */
    neo__shard_mid *mids; /* by node, and out_col */
    int64_t *mid_begin;   /* [nodes + 1] */
    int64_t *mid_width, *mid_coded[2]; /* [nodes] */
    size_t bytes;
    neo_ctx *ctx;
} neo__shard_map;

static void *neo__shard_carve(char *base, size_t *at, int64_t count, size_t size) {
    size_t here = *at;
    *at = here + (((size_t)count * size + 63) & ~(size_t)63);
    return base ? base + here : NULL;
}
/* Memory by layout: counted without a base, placed with one. Names: bytes of text. */
static size_t neo__shard_map_layout(neo__shard_map *m, char *base, size_t names) {
    size_t at = 0;
    int64_t ranks = m->ranks;
    m->feature_table = (int32_t *)neo__shard_carve(base, &at, m->feature_count, sizeof(int32_t));
    m->first_feature = (int32_t *)neo__shard_carve(base, &at, m->table_count + 1, sizeof(int32_t));
    m->table_features = (int32_t *)neo__shard_carve(base, &at, m->feature_count, sizeof(int32_t));
    m->feature_col = (int64_t *)neo__shard_carve(base, &at, m->feature_count + 1, sizeof(int64_t));
    m->ids_per_sample = (double *)neo__shard_carve(base, &at, m->feature_count, sizeof(double));
    m->tables = (neo_table_desc *)neo__shard_carve(base, &at, m->table_count, sizeof(neo_table_desc));
    m->names = (char *)neo__shard_carve(base, &at, (int64_t)names, 1);
    m->parts = (neo__shard_part *)neo__shard_carve(base, &at, m->part_count, sizeof(neo__shard_part));
    m->flows = (neo__shard_flow *)neo__shard_carve(base, &at, m->flow_count, sizeof(neo__shard_flow));
    m->sources = (neo__shard_flow *)neo__shard_carve(base, &at, m->flow_count, sizeof(neo__shard_flow));
    m->routes = (neo__shard_route *)neo__shard_carve(base, &at, m->route_count, sizeof(neo__shard_route));
    m->pull = (neo__shard_route *)neo__shard_carve(base, &at, m->route_count, sizeof(neo__shard_route));
    m->cuts = (neo__shard_part *)neo__shard_carve(base, &at, m->part_count, sizeof(neo__shard_part));
    m->replicas = (int32_t *)neo__shard_carve(base, &at, m->feature_count, sizeof(int32_t));
    m->part_begin = (int64_t *)neo__shard_carve(base, &at, ranks + 1, sizeof(int64_t));
    m->flow_begin = (int64_t *)neo__shard_carve(base, &at, ranks + 1, sizeof(int64_t));
    m->route_begin = (int64_t *)neo__shard_carve(base, &at, ranks + 1, sizeof(int64_t));
    m->width = (int64_t *)neo__shard_carve(base, &at, ranks, sizeof(int64_t));
    m->remote_col = (int64_t *)neo__shard_carve(base, &at, ranks, sizeof(int64_t));
    m->inside_begin = (int64_t *)neo__shard_carve(base, &at, ranks, sizeof(int64_t));
    m->direct = (int64_t *)neo__shard_carve(base, &at, ranks, sizeof(int64_t));
    m->mids = (neo__shard_mid *)neo__shard_carve(base, &at, m->mid_count, sizeof(neo__shard_mid));
    m->mid_begin = (int64_t *)neo__shard_carve(base, &at, m->nodes + 1, sizeof(int64_t));
    m->mid_width = (int64_t *)neo__shard_carve(base, &at, m->nodes, sizeof(int64_t));
    for (int i = 0; i < 2; i++) {
        m->coded[i] = (int64_t *)neo__shard_carve(base, &at, ranks, sizeof(int64_t));
        m->mid_coded[i] = (int64_t *)neo__shard_carve(base, &at, m->nodes, sizeof(int64_t));
    }
    return at;
}

/* ---- parts ---- */
static int64_t neo__shard_bucket_begin(int64_t rows, int64_t buckets, int64_t b) {
    return b * (rows / buckets) + b * (rows % buckets) / buckets;
}
static int64_t neo__shard_bucket_of(int64_t rows, int64_t buckets, int64_t row) {
    return ((row + 1) * buckets - 1) / rows;
}
/* The widest subtree of the tree over n leaves that begins at `first` and ends by `end`: where it ends. */
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
/* The parts of a piece, to `to` if that is not NULL; returns how many. place: of the piece among those of the
   same columns. */
static int64_t neo__shard_cut_piece(const neo_table_desc *t, const neo_piece *piece, int64_t place, int inside,
                                    neo__shard_part *to) {
    int64_t buckets = t->row_buckets > 1 && piece->rows < t->rows ? t->row_buckets : 0, count = 0;
    int64_t first = buckets ? neo__shard_bucket_of(t->rows, buckets, piece->first_row) : 0;
    int64_t end = buckets ? neo__shard_bucket_of(t->rows, buckets, piece->first_row + piece->rows - 1) + 1 : 1;
    while (first < end) {
        int64_t stop = buckets ? neo__shard_subtree_end(buckets, first, end) : end;
        int64_t row = buckets ? neo__shard_bucket_begin(t->rows, buckets, first) : piece->first_row;
        int64_t rows = buckets ? neo__shard_bucket_begin(t->rows, buckets, stop) - row : piece->rows;
        if (rows > 0) {
            if (to) {
                neo__shard_part *part = &to[count];
                part->table = piece->table;
                part->rank = piece->rank;
                part->first_row = row;
                part->rows = rows;
                part->first_col = piece->first_col;
                part->cols = piece->cols;
                part->number = buckets ? first : place;
                part->inside = inside;
            }
            count++;
        }
        first = stop;
    }
    return count;
}

/* A piece and its place among those of the same columns. */
static int64_t neo__shard_piece_place(const neo_piece *pieces, int64_t i) {
    int64_t place = 0;
    while (i > place && pieces[i - place - 1].table == pieces[i].table &&
           pieces[i - place - 1].first_col == pieces[i].first_col)
        place++;
    return place;
}
/* Whether the slice of piece i is several pieces, all in one node of several. */
static int neo__shard_is_inside(const neo__shard_map *m, const neo_piece *pieces, int64_t count, int64_t i) {
    int64_t first = i - neo__shard_piece_place(pieces, i), n = 0;
    if (m->nodes == 1) return 0;
    for (; first + n < count && pieces[first + n].table == pieces[i].table &&
           pieces[first + n].first_col == pieces[i].first_col;
         n++)
        if (pieces[first + n].rank / m->per_node != pieces[i].rank / m->per_node) return 0;
    return n > 1;
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
        if (to == 0 || neo__shard_flow_order(&flows[to - 1], &flows[i]) != 0) flows[to++] = flows[i];
    return to;
}
static int64_t neo__shard_find_flow(const neo__shard_flow *flows, int64_t count, int32_t feature, int64_t first_row) {
    neo__shard_flow key;
    key.feature = feature;
    key.first_row = first_row;
    int64_t lo = 0;
    for (int64_t n = count; n > 1;) {
        int64_t half = n / 2;
        if (neo__shard_flow_order(&flows[lo + half], &key) <= 0) lo += half, n -= half;
        else n = half;
    }
    return lo;
}

/* Every slice of columns of a table is cut in the same rows. */
static neo_status neo__shard_check_grid(const neo_bags_desc *d, const neo_piece *p, int64_t count) {
    for (int64_t i = 0, slice = 0; i < count; i++) {
        if (i > 0 && p[i].table != p[i - 1].table) slice = i;
        int64_t place = neo__shard_piece_place(p, i), rows = 0;
        while (slice + rows < count && p[slice + rows].table == p[slice].table &&
               p[slice + rows].first_col == p[slice].first_col)
            rows++;
        const neo_piece *like = &p[slice + place];
        NEO__CHECK(place < rows && like->first_row == p[i].first_row && like->rows == p[i].rows &&
                       p[i].cols == p[i - place].cols,
                   NEO_ERR_UNSUPPORTED,
                   "neo_shard: table '%s': the columns from %" PRId64 " are not cut at the same rows as the first",
                   d->tables[p[i].table].name, p[i].first_col);
    }
    return NEO_OK;
}

/* ---- the map of a plan ---- */

static void neo__shard_copy_names(neo__shard_map *m, const neo_bags_desc *d) {
    char *text = m->names;
    size_t bytes = strlen(d->name ? d->name : "bags") + 1;
    memcpy(text, d->name ? d->name : "bags", bytes);
    m->desc = *d;
    m->desc.name = text;
    m->desc.tables = m->tables;
    m->desc.feature_table = m->feature_table;
    m->desc.feature_count = m->feature_count;
    text += bytes;
    for (int32_t t = 0; t < m->table_count; t++) {
        bytes = strlen(d->tables[t].name) + 1;
        memcpy(text, d->tables[t].name, bytes);
        m->tables[t] = d->tables[t];
        m->tables[t].name = text;
        text += bytes;
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
        n += neo__shard_cut_piece(&m->tables[pieces[i].table], &pieces[i], neo__shard_piece_place(pieces, i),
                                  neo__shard_is_inside(m, pieces, count, i), m->parts + n);
    }
    if (n > 0) qsort(m->parts, (size_t)n, sizeof *m->parts, neo__shard_part_order);
    m->replica_count = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t t = pieces[i].table;
        for (int32_t q = m->first_feature[t]; pieces[i].rank == NEO_EVERY_RANK && q < m->first_feature[t + 1]; q++)
            m->replicas[m->replica_count++] = m->table_features[q];
    }
}
/* One route more, of a part and a feature of its table. */
static void neo__shard_map_route(neo__shard_map *m, int rank, int64_t p, int32_t feature) {
    const neo__shard_part *part = &m->parts[p];
    neo__shard_route *r = &m->routes[m->route_count++];
    neo__shard_flow *flow = &m->flows[m->flow_count++];
    r->feature = feature;
    r->rank = rank;
    r->part = (int32_t)p;
    r->col = m->width[rank];
    r->cols = part->cols;
    r->out_col = m->feature_col[feature] + part->first_col;
    r->number = part->number;
    r->wire[0] = part->rows < m->tables[part->table].rows ? NEO_WIRE_F32 : m->wire[0];
    r->wire[1] = m->wire[1];
    m->width[rank] += part->cols;
    for (int i = 0; i < 2; i++) {
        r->coded[i] = m->coded[i][rank];
        if (!part->inside) m->coded[i][rank] += (int64_t)neo_wire_row_bytes(r->wire[i], part->cols);
    }
    flow->feature = feature;
    flow->copies = 0;
    flow->first_row = part->first_row;
    flow->rows = part->rows;
}
/* The routes and flows of a rank: direct ones first. */
static void neo__shard_map_rank(neo__shard_map *m, int rank) {
    int64_t first = m->route_count, first_flow = m->flow_count;
    neo__shard_flow *flows = m->flows + first_flow;
    m->flow_begin[rank] = first_flow;
    m->route_begin[rank] = first;
    m->width[rank] = m->coded[0][rank] = m->coded[1][rank] = 0;
    for (int inside = 0; inside < 2; inside++) {
        m->inside_begin[rank] = m->route_count;
        if (inside) m->direct[rank] = m->width[rank];
        for (int64_t p = m->part_begin[rank]; p < m->part_begin[rank + 1]; p++) {
            int32_t t = m->parts[p].table;
            for (int32_t q = m->first_feature[t]; q < m->first_feature[t + 1] && m->parts[p].inside == inside; q++)
                neo__shard_map_route(m, rank, p, m->table_features[q]);
        }
    }
    int64_t count = neo__shard_unique_flows(flows, m->flow_count - first_flow);
    for (int64_t i = first; i < m->route_count; i++)
        m->routes[i].flow = (int32_t)neo__shard_find_flow(flows, count, m->routes[i].feature,
                                                          m->parts[m->routes[i].part].first_row);
    m->flow_count = first_flow + count;
}
static void neo__shard_map_sources(neo__shard_map *m) {
    memcpy(m->sources, m->flows, (size_t)m->flow_count * sizeof *m->sources);
    m->source_count = neo__shard_unique_flows(m->sources, m->flow_count);
    for (int64_t i = 0; i < m->flow_count; i++) {
        int64_t u = neo__shard_find_flow(m->sources, m->source_count, m->flows[i].feature, m->flows[i].first_row);
        m->flows[i].source = (int32_t)u;
        m->sources[u].copies++;
    }
}
/* Parts of tables that are cut by columns and step by sums along whole rows, by table, row, column: the slices
   of the same rows stand together. */
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
    m->cut_count = 0;
    m->cut_rounds = 0;
    for (int64_t p = 0; p < m->part_count; p++) {
        if (!neo__shard_is_cut(m, &m->parts[p])) continue;
        int rounds = neo_bag_cut_rounds(&m->tables[m->parts[p].table].optim);
        if (rounds > m->cut_rounds) m->cut_rounds = rounds;
        m->cuts[m->cut_count++] = m->parts[p];
    }
    if (m->cut_count > 0) qsort(m->cuts, (size_t)m->cut_count, sizeof *m->cuts, neo__shard_cut_order);
}
/* The slices of the same rows as `part`: cuts [first, *end). */
static int64_t neo__shard_slices(const neo__shard_map *m, const neo__shard_part *part, int64_t *end) {
    int64_t lo = 0;
    for (int64_t n = m->cut_count; n > 1;) { /* the last one that is not after the part */
        int64_t half = n / 2;
        if (neo__shard_cut_order(&m->cuts[lo + half], part) <= 0) lo += half, n -= half;
        else n = half;
    }
    int64_t first = lo;
    while (first > 0 && m->cuts[first - 1].table == part->table && m->cuts[first - 1].first_row == part->first_row)
        first--;
    for (*end = lo + 1; *end < m->cut_count && m->cuts[*end].table == part->table &&
                        m->cuts[*end].first_row == part->first_row;)
        ++*end;
    return first;
}
/* 1: `rank` holds a slice of the same rows as `part`. */
static int neo__shard_shares_rows(const neo__shard_map *m, const neo__shard_part *part, int rank) {
    int64_t end, i = neo__shard_slices(m, part, &end);
    while (i < end && m->cuts[i].rank != rank) i++;
    return i < end;
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
        m->mid_begin[node] = m->mid_count;
        for (int64_t i = 0; i < m->route_count; i = neo__shard_pull_end(m, i)) {
            const neo__shard_route *r = &m->pull[i];
            if (!m->parts[r->part].inside || r->rank / m->per_node != node) continue;
            neo__shard_mid *mid = &m->mids[m->mid_count++];
            mid->feature = r->feature;
            mid->col = m->mid_width[node];
            mid->cols = r->cols;
            mid->out_col = r->out_col;
            mid->first = i;
            mid->end = neo__shard_pull_end(m, i);
            m->mid_width[node] += r->cols;
            for (int w = 0; w < 2; w++) {
                mid->coded[w] = m->mid_coded[w][node];
                m->mid_coded[w][node] += (int64_t)neo_wire_row_bytes(m->wire[w], r->cols);
            }
        }
    }
    m->mid_begin[m->nodes] = m->mid_count;
}
static void neo__shard_map_fill(neo__shard_map *m, const neo_plan_desc *desc, const neo_piece *pieces, int64_t count) {
    neo__shard_copy_names(m, desc->bags);
    neo__shard_map_features(m, desc);
    neo__shard_map_parts(m, pieces, count);
    int64_t part = 0;
    m->route_count = m->flow_count = 0;
    for (int r = 0; r < m->ranks; r++) {
        m->part_begin[r] = part;
        while (part < m->part_count && m->parts[part].rank == r) part++;
        m->part_begin[r + 1] = part;
        neo__shard_map_rank(m, r);
        m->remote_col[r] = r > 0 ? m->remote_col[r - 1] + m->direct[r - 1] : 0;
    }
    m->flow_begin[m->ranks] = m->flow_count;
    m->route_begin[m->ranks] = m->route_count;
    neo__shard_map_sources(m);
    memcpy(m->pull, m->routes, (size_t)m->route_count * sizeof *m->pull);
    if (m->route_count > 0) qsort(m->pull, (size_t)m->route_count, sizeof *m->pull, neo__shard_pull_order);
    neo__shard_map_cuts(m);
    neo__shard_map_mids(m);
}
static void neo__shard_map_destroy(neo__shard_map *m) { neo_free(m->ctx, m, m->bytes); }

/* How much there is of everything, before there is memory for it. */
static size_t neo__shard_map_measure(neo__shard_map *m, const neo_plan_desc *desc, const neo_piece *pieces,
                                     int64_t count) {
    const neo_bags_desc *d = desc->bags;
    size_t names = strlen(d->name ? d->name : "bags") + 1;
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
    for (int32_t t = 0; t < d->table_count; t++) {
        names += strlen(d->tables[t].name) + 1;
        if (d->tables[t].rows > (int64_t)INT32_MAX + 1) m->id_dtype = NEO_I64;
    }
    m->part_count = m->route_count = 0;
    for (int64_t i = 0; i < count; i++) {
        if (pieces[i].rank == NEO_EVERY_RANK) continue;
        const neo_table_desc *t = &d->tables[pieces[i].table];
        int64_t parts = neo__shard_cut_piece(t, &pieces[i], 0, 0, NULL), features = d->feature_table ? 0 : 1;
        for (int32_t f = 0; d->feature_table && f < d->feature_count; f++)
            features += d->feature_table[f] == pieces[i].table;
        m->part_count += parts;
        m->route_count += parts * features;
    }
    m->flow_count = m->route_count;
    m->mid_count = m->nodes > 1 ? m->route_count : 0;
    return names;
}
static neo_status neo__shard_map_create(neo_ctx *ctx, const neo_plan *plan, neo__shard_map **out) {
    NEO__ZERO(neo__shard_map, sizes);
    int64_t count = 0;
    const neo_plan_desc *desc = neo_plan_desc_of(plan);
    const neo_piece *pieces = neo_plan_pieces(plan, &count);
    *out = NULL;
    NEO__CHECK(desc->bags->tables[0].pooling != NEO_POOL_NONE, NEO_ERR_UNSUPPORTED,
               "neo_shard: rows of NEO_POOL_NONE are not moved between ranks: use neo_bags on each");
    NEO__TRY(neo__shard_check_grid(desc->bags, pieces, count));
    size_t names = neo__shard_map_measure(&sizes, desc, pieces, count);
    size_t head = (sizeof sizes + 63) & ~(size_t)63, bytes = head + neo__shard_map_layout(&sizes, NULL, names);
    neo__shard_map *m = (neo__shard_map *)neo_alloc(ctx, bytes);
    NEO__CHECK(m, NEO_ERR_MEMORY, "neo_shard: no memory for %zu bytes of a map", bytes);
    memset((void *)m, 0, bytes);
    *m = sizes;
    m->ctx = ctx;
    m->bytes = bytes;
    neo__shard_map_layout(m, (char *)m + head, names);
    neo__shard_map_fill(m, desc, pieces, count);
    *out = m;
    return NEO_OK;
}
/* ------------------------------------------------------------------------------------------------
   >>impl-shard

   Two matrices carry pooled rows and their gradients: `local`, one row per sample of the global batch, with the
   columns of this rank's routes: what neo_bags pools, and steps by; and `remote`, per rank one row per sample of
   this rank, with the columns of that rank's routes. As ranks hold consecutive samples, the rows of `local` that
   go to a rank are consecutive, and an f32 wire sends them as they lie. Other wires code route after route.

   Ids: a sender makes its sources, the ids of each flow that any rank wants; a rank gets for each of its flows
   the lengths of all bags, then the ids, and puts those of all ranks together in order of sample.
   ------------------------------------------------------------------------------------------------ */
enum { NEO__SHARD_ERROR = 512 };

typedef struct neo__shard_buffer {
    void *data;
    size_t bytes;
} neo__shard_buffer;

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
    int64_t global;   /* samples of all ranks */
    neo_status status;
    char error[NEO__SHARD_ERROR];
    neo_ticket ticket;
    int64_t *start;   /* [ranks + 1]: first sample of each rank */
    int64_t *offsets; /* of local */
    neo__shard_buffer ids, weights;
    neo_jagged local; /* for this rank's neo_bags */
} neo__shard_batch;

/* What a rank's memory depends on. */
typedef struct neo__shard_sizes {
    int rank, slots;
    int64_t batch, share, subtrees; /* samples of a global batch; most of this rank; its subtrees of leaves */
    int64_t flows, routes, width; /* of this rank */
    int64_t remote_width;         /* direct routes of all ranks */
    int64_t coded, remote_coded;  /* bytes of a coded row of this rank, and of all, in the wider direction */
    int64_t place;                /* samples of the ranks at the same place in all nodes */
    int64_t inside, peers_inside; /* columns of inside routes, of this rank and of its node */
    int64_t mid, mids, mid_coded, mids_coded; /* of the sums of its node, and of all: columns, bytes */
    int64_t out_ids, own_ids, in_ids, route_ids;
    int64_t replica_features, replica_width, replica_ids, replica_rows, replica_floats, replica_most_rows;
    int64_t cut_out, cut_in; /* floats: see >>impl-shard-cut */
} neo__shard_sizes;

typedef enum neo__shard_phase {
    NEO__SHARD_IDLE,
    NEO__SHARD_FORWARD,  /* begun */
    NEO__SHARD_FORWARDED,
    NEO__SHARD_BACKWARD  /* begun */
} neo__shard_phase;

struct neo_shard {
    neo_ctx *ctx;
    neo__shard_map *map;
    neo_comm *ids, *rows;   /* groups of its own: lengths and ids; all else */
    neo_comm *node, *cross; /* ranks of the node; those at its place in all nodes. NULL: nothing adds inside nodes */
    neo_bags *bags, *replicas; /* of the parts here; of data-parallel tables; or NULL */
    neo__shard_sizes sizes;
    neo__shard_phase phase;
    int current; /* batch of the running step */
    neo__shard_batch batches[2];
    int64_t steps, out_of_range, grow_count;
    neo_wire_stats wire_stats[2];
    neo_ticket ticket, cross_ticket;
    int own_cut_rounds, cut_round; /* rounds of sums that this rank asks for; done in this step */
    size_t work_bytes;
    char *work;
    /* in work */
    int64_t *counts;  /* [4][ranks] */
    int32_t *lengths_out, *lengths_in, *source_lengths;
    int64_t *source_at, *cursor; /* [sources + 1] */
    int64_t *flow_at; /* [ranks][flows]: where the ids of a flow are in ids_in */
    float *local, *remote;
    char *coded_local, *coded_remote;
    float *inside_out, *inside_in, *mid_out, *mid_in; /* see >>impl-shard-nodes */
    char *mid_coded_out, *mid_coded_in;
    int64_t *replica_offsets;
    int64_t *replica_at; /* [tables][2]: a table's first number in dense, and its first row in touched */
    float *replica_out, *dense, *dense_sum;
    unsigned char *touched;
    int64_t *replica_row;
    /* that grow */
    neo__shard_buffer cut_out, cut_in, source_ids, source_weights, ids_out, weights_out, ids_in, weights_in, replica_ids,
        replica_weights;
};

/* ---- sizes and layout ---- */
static int64_t neo__shard_share(int64_t batch, int leaves, int ranks, int rank) {
    int64_t mine = neo_leaf_begin(leaves, ranks, rank + 1) - neo_leaf_begin(leaves, ranks, rank);
    return (batch * mine + leaves - 1) / leaves;
}
static int64_t neo__shard_expect(double ids_per_sample, int64_t samples) {
    double x = ids_per_sample * (double)samples;
    int64_t n = (int64_t)x;
    return n + ((double)n < x);
}
/* Most ranks that get the same flow of a feature. */
static int64_t neo__shard_copies(const neo__shard_map *m, int32_t feature) {
    int64_t most = 0, first = neo__shard_find_flow(m->sources, m->source_count, feature, 0);
    for (int64_t u = first; u < m->source_count && m->sources[u].feature == feature; u++)
        if (m->sources[u].copies > most) most = m->sources[u].copies;
    return most;
}
static void neo__shard_size_replicas(const neo__shard_map *m, neo__shard_sizes *s) {
    s->replica_features = m->replica_count;
    for (int64_t i = 0; i < m->replica_count; i++) {
        int32_t f = m->replicas[i], t = m->feature_table[f];
        const neo_table_desc *table = &m->tables[t];
        s->replica_width += table->dim;
        s->replica_ids += neo__shard_expect(m->ids_per_sample[f] * 1.25, s->share);
        if (i > 0 && m->feature_table[m->replicas[i - 1]] == t) continue;
        s->replica_rows += table->rows;
        s->replica_floats += table->rows * table->dim;
        if (table->rows > s->replica_most_rows) s->replica_most_rows = table->rows;
    }
}
/* Subtrees of the leaf tree that a rank's leaves make. */
static int64_t neo__shard_subtrees(int leaves, int ranks, int rank) {
    int64_t first = neo_leaf_begin(leaves, ranks, rank), end = neo_leaf_begin(leaves, ranks, rank + 1), n = 0;
    for (; first < end; n++) first = neo__shard_subtree_end(leaves, first, end);
    return n;
}
/* Floats of block sums of a part in one round, at most: two sums for each row that a batch can touch. */
static int64_t neo__shard_cut_floats(const neo__shard_map *m, const neo__shard_part *part) {
    int64_t ids = 0;
    for (int32_t q = m->first_feature[part->table]; q < m->first_feature[part->table + 1]; q++)
        ids += neo__shard_expect(m->ids_per_sample[m->table_features[q]], m->desc.max_batch);
    return 2 * (ids < part->rows ? ids : part->rows) * ((part->cols + 15) / 16);
}
static void neo__shard_size_cuts(const neo__shard_map *m, neo__shard_sizes *s) {
    for (int64_t i = 0; i < m->cut_count; i++) {
        const neo__shard_part *part = &m->cuts[i];
        int64_t floats = neo__shard_cut_floats(m, part);
        for (int r = 0; r < m->ranks; r++) {
            if (r == s->rank) continue;
            if (part->rank == s->rank && neo__shard_shares_rows(m, part, r)) s->cut_out += floats;
            if (part->rank == r && neo__shard_shares_rows(m, part, s->rank)) s->cut_in += floats;
        }
    }
}
/* Bytes of a coded row, in the wider direction; an f32 wire needs none, unless columns must be picked out. */
static int64_t neo__shard_coded_bytes(const neo__shard_map *m, int rank, int picked) {
    int64_t most = 0;
    for (int i = 0; i < 2; i++)
        if ((m->wire[i] != NEO_WIRE_F32 || picked) && m->coded[i][rank] > most) most = m->coded[i][rank];
    return most;
}
static void neo__shard_size_rows(const neo__shard_map *m, neo__shard_sizes *s) {
    s->width = m->width[s->rank];
    s->coded = neo__shard_coded_bytes(m, s->rank, m->direct[s->rank] < s->width);
    for (int r = 0; r < m->ranks; r++) {
        s->remote_width += m->direct[r];
        s->remote_coded += neo__shard_coded_bytes(m, r, 0);
    }
}
static void neo__shard_size_nodes(const neo__shard_map *m, int leaves, neo__shard_sizes *s) {
    int node = s->rank / m->per_node;
    if (m->mid_count == 0) return;
    for (int h = 0; h < m->nodes; h++) {
        int64_t coded = 0;
        for (int i = 0; i < 2; i++)
            if (m->wire[i] != NEO_WIRE_F32 && m->mid_coded[i][h] > coded) coded = m->mid_coded[i][h];
        s->place += neo__shard_share(s->batch, leaves, m->ranks, h * m->per_node + s->rank % m->per_node);
        s->mids += m->mid_width[h];
        s->mids_coded += coded;
        if (h == node) s->mid_coded = coded;
    }
    s->mid = m->mid_width[node];
    s->inside = m->width[s->rank] - m->direct[s->rank];
    for (int r = node * m->per_node; r < (node + 1) * m->per_node; r++)
        s->peers_inside += m->width[r] - m->direct[r];
}
static neo__shard_sizes neo__shard_measure(const neo__shard_map *m, int leaves, int rank) {
    NEO__ZERO(neo__shard_sizes, s);
    s.rank = rank;
    s.slots = m->pipeline ? 2 : 1;
    s.batch = m->desc.max_batch;
    s.share = neo__shard_share(s.batch, leaves, m->ranks, rank);
    s.subtrees = neo__shard_subtrees(leaves, m->ranks, rank);
    s.flows = m->flow_begin[rank + 1] - m->flow_begin[rank];
    s.routes = m->route_begin[rank + 1] - m->route_begin[rank];
    neo__shard_size_rows(m, &s);
    neo__shard_size_nodes(m, leaves, &s);
    for (int32_t f = 0; f < m->feature_count; f++) {
        int64_t ids = neo__shard_expect(m->ids_per_sample[f] * 1.25, s.share), copies = neo__shard_copies(m, f);
        s.own_ids += copies ? ids : 0;
        s.out_ids += copies * ids;
    }
    for (int64_t i = m->flow_begin[rank]; i < m->flow_begin[rank + 1]; i++)
        s.in_ids += neo__shard_expect(m->ids_per_sample[m->flows[i].feature], s.batch);
    for (int64_t i = m->route_begin[rank]; i < m->route_begin[rank + 1]; i++)
        s.route_ids += neo__shard_expect(m->ids_per_sample[m->routes[i].feature], s.batch);
    neo__shard_size_replicas(m, &s);
    neo__shard_size_cuts(m, &s);
    return s;
}
static size_t neo__shard_layout(const neo__shard_map *m, const neo__shard_sizes *s, char *base, neo_shard *to) {
    size_t at = 0;
    int64_t ranks = m->ranks;
    to->counts = (int64_t *)neo__shard_carve(base, &at, 4 * ranks, sizeof(int64_t));
    to->lengths_out = (int32_t *)neo__shard_carve(base, &at, ranks + m->flow_count * s->share, sizeof(int32_t));
    to->lengths_in = (int32_t *)neo__shard_carve(base, &at, ranks + s->flows * s->batch, sizeof(int32_t));
    to->source_lengths = (int32_t *)neo__shard_carve(base, &at, m->source_count * s->share, sizeof(int32_t));
    to->source_at = (int64_t *)neo__shard_carve(base, &at, m->source_count + 1, sizeof(int64_t));
    to->cursor = (int64_t *)neo__shard_carve(base, &at, m->source_count + 1, sizeof(int64_t));
    to->flow_at = (int64_t *)neo__shard_carve(base, &at, ranks * s->flows + 1, sizeof(int64_t));
    for (int i = 0; i < s->slots; i++) {
        neo__shard_batch *b = &to->batches[i];
        b->start = (int64_t *)neo__shard_carve(base, &at, ranks + 1, sizeof(int64_t));
        b->offsets = (int64_t *)neo__shard_carve(base, &at, s->routes * s->batch + 1, sizeof(int64_t));
    }
    to->local = (float *)neo__shard_carve(base, &at, s->batch * s->width, sizeof(float));
    to->remote = (float *)neo__shard_carve(base, &at, s->share * s->remote_width, sizeof(float));
    to->coded_local = (char *)neo__shard_carve(base, &at, s->batch * s->coded, 1);
    to->coded_remote = (char *)neo__shard_carve(base, &at, s->share * s->remote_coded, 1);
    to->inside_out = (float *)neo__shard_carve(base, &at, s->batch * s->inside, sizeof(float));
    to->inside_in = (float *)neo__shard_carve(base, &at, s->place * s->peers_inside, sizeof(float));
    to->mid_out = (float *)neo__shard_carve(base, &at, s->place * s->mid, sizeof(float));
    to->mid_in = (float *)neo__shard_carve(base, &at, s->share * s->mids, sizeof(float));
    to->mid_coded_out = (char *)neo__shard_carve(base, &at, s->place * s->mid_coded, 1);
    to->mid_coded_in = (char *)neo__shard_carve(base, &at, s->share * s->mids_coded, 1);
    int64_t bags = s->replica_features * s->share;
    to->replica_offsets = (int64_t *)neo__shard_carve(base, &at, bags + 1, sizeof(int64_t));
    to->replica_at = (int64_t *)neo__shard_carve(base, &at, 2 * s->replica_features, sizeof(int64_t));
    to->replica_out = (float *)neo__shard_carve(base, &at, s->share * s->replica_width, sizeof(float));
    to->dense = (float *)neo__shard_carve(base, &at, s->subtrees * s->replica_floats, sizeof(float));
    to->dense_sum = (float *)neo__shard_carve(base, &at, s->replica_floats, sizeof(float));
    to->touched = (unsigned char *)neo__shard_carve(base, &at, s->replica_rows, 1);
    to->replica_row = (int64_t *)neo__shard_carve(base, &at, s->replica_most_rows, sizeof(int64_t));
    return at;
}
static neo_status neo__shard_cut_sums(void *user, const neo_cut_sums *cuts, int32_t count); /* >>impl-shard-cut */

/* ---- buffers that grow ---- */
static neo_status neo__shard_reserve(neo_shard *s, neo__shard_buffer *b, int64_t count, size_t size) {
    size_t bytes = (size_t)count * size;
    if (bytes <= b->bytes) return NEO_OK;
    void *p = neo_alloc(s->ctx, bytes);
    NEO__CHECK(p, NEO_ERR_MEMORY, "neo_shard: no memory for %zu bytes of ids", bytes);
    if (b->data) s->grow_count++;
    neo_free(s->ctx, b->data, b->bytes);
    b->data = p;
    b->bytes = bytes;
    return NEO_OK;
}
/* Every buffer that grows, and what the plan expects of it, in elements. */
enum { NEO__SHARD_BUFFERS = 14 };
typedef struct neo__shard_demand {
    neo__shard_buffer *buffer;
    int64_t count;
    size_t size;
} neo__shard_demand;
static void neo__shard_demands(neo_shard *s, const neo__shard_map *m, const neo__shard_sizes *z,
                               neo__shard_demand out[NEO__SHARD_BUFFERS]) {
    size_t id = neo_dtype_size(m->id_dtype), weight = m->weighted ? sizeof(float) : 0;
    neo__shard_buffer *buffers[NEO__SHARD_BUFFERS] = {
        &s->source_ids, &s->source_weights, &s->ids_out, &s->weights_out, &s->ids_in, &s->weights_in,
        &s->replica_ids, &s->replica_weights, &s->batches[0].ids, &s->batches[0].weights, &s->batches[1].ids,
        &s->batches[1].weights, &s->cut_out, &s->cut_in};
    int64_t counts[NEO__SHARD_BUFFERS] = {
        z->own_ids, z->own_ids, z->out_ids, z->out_ids, z->in_ids, z->in_ids, z->replica_ids, z->replica_ids,
        z->route_ids, z->route_ids, z->route_ids, z->route_ids, z->cut_out, z->cut_in};
    for (int i = 0; i < NEO__SHARD_BUFFERS; i++) {
        out[i].buffer = buffers[i];
        out[i].count = counts[i];
        out[i].size = i >= 12 ? sizeof(float) : i % 2 ? weight : i == 6 ? sizeof(int64_t) : id;
        if ((i == 10 || i == 11) && z->slots < 2) out[i].count = 0;
    }
}

/* ---- create ---- */

/* This rank's parts as tables of a neo_bags, and their routes as its features; 0: it has none. */
static int neo__shard_local_desc(const neo__shard_map *m, const neo__shard_sizes *z, neo_table_desc *tables,
                                 int32_t *feature_table, neo_bags_desc *d) {
    int64_t first = m->part_begin[z->rank], n = m->part_begin[z->rank + 1] - first;
    *d = m->desc;
    for (int64_t i = 0; i < n; i++) {
        const neo__shard_part *part = &m->parts[first + i];
        const neo_table_desc *whole = &m->tables[part->table];
        tables[i] = *whole;
        tables[i].weight = NULL;
        tables[i].pooling = NEO_POOL_SUM; /* MEAN is divided by where the samples are */
        tables[i].rows = part->rows;
        tables[i].dim = part->cols;
        tables[i].part.rows = whole->rows;
        tables[i].part.dim = whole->dim;
        tables[i].part.first_row = part->first_row;
        tables[i].part.first_col = part->first_col;
    }
    for (int64_t i = 0; i < z->routes; i++)
        feature_table[i] = (int32_t)(m->routes[m->route_begin[z->rank] + i].part - first);
    d->tables = tables;
    d->table_count = (int32_t)n;
    d->feature_table = feature_table;
    d->feature_count = (int32_t)z->routes;
    d->max_batch = z->batch;
    d->max_ids = z->route_ids > 0 ? z->route_ids : 1;
    d->bounds = NEO_BOUNDS_ERROR; /* the senders have dropped or clamped */
    return n > 0;
}
/* The data-parallel tables likewise, for this rank's samples. */
static int neo__shard_replica_desc(const neo__shard_map *m, const neo__shard_sizes *z, neo_table_desc *tables,
                                   int32_t *feature_table, neo_bags_desc *d) {
    int32_t n = 0;
    *d = m->desc;
    for (int64_t i = 0; i < z->replica_features; i++) {
        int32_t t = m->feature_table[m->replicas[i]];
        if (i == 0 || m->feature_table[m->replicas[i - 1]] != t) {
            tables[n] = m->tables[t];
            tables[n].weight = NULL;
            tables[n++].pooling = NEO_POOL_SUM;
        }
        feature_table[i] = n - 1;
    }
    d->tables = tables;
    d->table_count = n;
    d->feature_table = feature_table;
    d->feature_count = (int32_t)z->replica_features;
    d->max_batch = z->share > 0 ? z->share : 1;
    d->max_ids = z->replica_ids > 0 ? z->replica_ids : 1;
    d->max_kept_rows = z->replica_rows;
    return n > 0;
}
/* Both descriptions need lists for as long as a call takes. */
typedef struct neo__shard_lists {
    neo_ctx *ctx;
    neo_table_desc *tables;
    int32_t *feature_table;
    size_t bytes;
} neo__shard_lists;
static neo_status neo__shard_lists_make(neo_ctx *ctx, const neo__shard_map *m, neo__shard_lists *l) {
    int64_t tables = m->part_count + m->table_count, features = m->route_count + m->feature_count;
    size_t table_bytes = ((size_t)tables * sizeof *l->tables + 63) & ~(size_t)63;
    l->ctx = ctx;
    l->bytes = table_bytes + (size_t)features * sizeof *l->feature_table;
    l->tables = (neo_table_desc *)neo_alloc(ctx, l->bytes);
    NEO__CHECK(l->tables, NEO_ERR_MEMORY, "neo_shard: no memory for %zu bytes of lists", l->bytes);
    l->feature_table = (int32_t *)(void *)((char *)l->tables + table_bytes);
    return NEO_OK;
}
static void neo__shard_lists_free(neo__shard_lists *l) { neo_free(l->ctx, l->tables, l->bytes); }

NEO_API neo_status neo_shard_bytes(neo_ctx *ctx, const neo_plan *plan, int rank, neo_shard_memory *memory) {
    neo__shard_map *m;
    neo__shard_lists l;
    neo_bags_desc d;
    neo_bags_memory bags;
    neo__shard_demand demand[NEO__SHARD_BUFFERS];
    NEO__CHECK(ctx && plan && memory, NEO_ERR_ARG, "neo_shard_bytes: an argument is NULL");
    NEO__CHECK(rank >= 0 && rank < neo_plan_desc_of(plan)->cluster.ranks, NEO_ERR_ARG,
               "neo_shard_bytes: rank %d of %d", rank, neo_plan_desc_of(plan)->cluster.ranks);
    NEO__TRY(neo__shard_map_create(ctx, plan, &m));
    NEO__ZERO(neo_shard, s);
    neo__shard_sizes z = neo__shard_measure(m, neo_ctx_repro_shards(ctx), rank);
    memset(memory, 0, sizeof *memory);
    memory->exchange_bytes = sizeof s + m->bytes + neo__shard_layout(m, &z, NULL, &s);
    neo__shard_demands(&s, m, &z, demand);
    for (int i = 0; i < NEO__SHARD_BUFFERS; i++) memory->exchange_bytes += (size_t)demand[i].count * demand[i].size;
    neo_status status = neo__shard_lists_make(ctx, m, &l);
    for (int i = 0; i < 2 && status == NEO_OK; i++) {
        int any = i == 0 ? neo__shard_local_desc(m, &z, l.tables, l.feature_table, &d)
                         : neo__shard_replica_desc(m, &z, l.tables, l.feature_table, &d);
        if (!any) continue;
        d.cut_sums = neo__shard_cut_sums;
        status = neo_bags_bytes(ctx, &d, &bags);
        if (status != NEO_OK) break;
        memory->weight_bytes += bags.weight_bytes;
        memory->state_bytes += bags.state_bytes;
        memory->workspace_bytes += bags.workspace_bytes;
    }
    if (l.tables) neo__shard_lists_free(&l);
    neo__shard_map_destroy(m);
    return status;
}

NEO_API void neo_shard_destroy(neo_shard *s) {
    neo__shard_demand demand[NEO__SHARD_BUFFERS];
    if (!s) return;
    neo_comm_destroy(s->ids);
    neo_comm_destroy(s->rows);
    neo_comm_destroy(s->node);
    neo_comm_destroy(s->cross);
    neo_bags_destroy(s->bags);
    neo_bags_destroy(s->replicas);
    neo_free(s->ctx, s->work, s->work_bytes);
    if (s->map) {
        neo__shard_demands(s, s->map, &s->sizes, demand);
        for (int i = 0; i < NEO__SHARD_BUFFERS; i++)
            neo_free(s->ctx, demand[i].buffer->data, demand[i].buffer->bytes);
        neo__shard_map_destroy(s->map);
    }
    neo_free(s->ctx, s, sizeof *s);
}

/* All that needs no other rank. */
static neo_status neo__shard_make(neo_shard *s, const neo_plan *plan, int rank) {
    neo__shard_lists l;
    neo_bags_desc d;
    neo__shard_demand demand[NEO__SHARD_BUFFERS];
    NEO__TRY(neo__shard_map_create(s->ctx, plan, &s->map));
    const neo__shard_map *m = s->map;
    s->sizes = neo__shard_measure(m, neo_ctx_repro_shards(s->ctx), rank);
    s->work_bytes = neo__shard_layout(m, &s->sizes, NULL, s);
    s->work = (char *)neo_alloc(s->ctx, s->work_bytes);
    NEO__CHECK(s->work, NEO_ERR_MEMORY, "neo_shard_create: no memory for %zu bytes", s->work_bytes);
    neo__shard_layout(m, &s->sizes, s->work, s);
    neo__shard_demands(s, m, &s->sizes, demand);
    for (int i = 0; i < NEO__SHARD_BUFFERS; i++)
        if (demand[i].count > 0 && demand[i].size > 0)
            NEO__TRY(neo__shard_reserve(s, demand[i].buffer, demand[i].count, demand[i].size));
    NEO__TRY(neo__shard_lists_make(s->ctx, m, &l));
    neo_status status = NEO_OK;
    for (int64_t p = m->part_begin[rank]; p < m->part_begin[rank + 1]; p++) {
        int rounds = neo__shard_is_cut(m, &m->parts[p]) ? neo_bag_cut_rounds(&m->tables[m->parts[p].table].optim) : 0;
        if (rounds > s->own_cut_rounds) s->own_cut_rounds = rounds;
    }
    if (neo__shard_local_desc(m, &s->sizes, l.tables, l.feature_table, &d)) {
        d.cut_sums = neo__shard_cut_sums;
        d.cut_sums_user = s;
        status = neo_bags_create(s->ctx, &d, &s->bags);
    }
    if (status == NEO_OK && neo__shard_replica_desc(m, &s->sizes, l.tables, l.feature_table, &d))
        status = neo_bags_create(s->ctx, &d, &s->replicas);
    neo__shard_lists_free(&l);
    return status;
}
NEO_API neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan, neo_shard **out) {
    NEO__CHECK(comm && plan && out, NEO_ERR_ARG, "neo_shard_create: an argument is NULL");
    *out = NULL;
    neo_ctx *ctx = neo_comm_ctx(comm);
    int ranks = neo_comm_size(comm), planned = neo_plan_desc_of(plan)->cluster.ranks;
    NEO__CHECK(planned == ranks, NEO_ERR_ARG, "neo_shard_create: the plan is for %d ranks, the group has %d",
               planned, ranks);
    NEO__CHECK(neo_ctx_repro_shards(ctx) >= ranks, NEO_ERR_ARG,
               "neo_shard_create: repro_shards is %d: it must be at least the %d ranks", neo_ctx_repro_shards(ctx),
               ranks);
    neo_shard *s = (neo_shard *)neo_alloc(ctx, sizeof *s);
    neo_status status = s ? NEO_OK : neo_fail(NEO_ERR_MEMORY, "neo_shard_create: no memory for %zu bytes", sizeof *s);
    if (s) {
        memset((void *)s, 0, sizeof *s);
        s->ctx = ctx;
        status = neo__shard_make(s, plan, neo_comm_rank(comm));
    }
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) {
        status = neo_comm_split(comm, 0, neo_comm_rank(comm), &s->ids);
        if (status == NEO_OK) status = neo_comm_split(comm, 0, neo_comm_rank(comm), &s->rows);
        if (status == NEO_OK && s->map->mid_count) {
            int rank = neo_comm_rank(comm), per_node = s->map->per_node;
            status = neo_comm_split(comm, rank / per_node, rank, &s->node);
            if (status == NEO_OK) status = neo_comm_split(comm, rank % per_node, rank, &s->cross);
        }
    }
    if (status != NEO_OK) {
        neo_shard_destroy(s);
        return status;
    }
    *out = s;
    return NEO_OK;
}

/* ---- ids: what this rank sends ---- */

NEO__INLINE int64_t neo__shard_id(const neo_jagged *j, int64_t k) {
    return j->id_dtype == NEO_I32 ? (int64_t)((const int32_t *)j->ids)[k] : ((const int64_t *)j->ids)[k];
}
NEO__INLINE void neo__shard_put_id(const neo__shard_map *m, void *ids, int64_t k, int64_t id) {
    if (m->id_dtype == NEO_I32) ((int32_t *)ids)[k] = (int32_t)id;
    else ((int64_t *)ids)[k] = id;
}
static neo_status neo__shard_bad_id(const neo_shard *s, const neo__shard_batch *b, int32_t f, int64_t k) {
    const neo__shard_map *m = s->map;
    const int64_t *offsets = b->batch.offsets + f * b->batch.batch;
    int64_t sample = 0;
    while (offsets[sample + 1] <= k) sample++;
    return neo_fail(NEO_ERR_RANGE,
                    "neo_shard: bags '%s': table '%s' (feature %d), sample %" PRId64 ", position %" PRId64
                    ": id %" PRId64 " is not in [0, %" PRId64 ")",
                    m->desc.name, m->tables[m->feature_table[f]].name, f, b->start[s->sizes.rank] + sample,
                    k - offsets[sample], neo__shard_id(&b->batch, k), m->tables[m->feature_table[f]].rows);
}
/* Ids of a feature outside its table: an error, or counted. */
static neo_status neo__shard_check_ids(neo_shard *s, const neo__shard_batch *b, int32_t f) {
    const neo_jagged *j = &b->batch;
    int64_t rows = s->map->tables[s->map->feature_table[f]].rows, bad = 0, first_bad = -1;
    int64_t k = j->offsets[f * j->batch], end = j->offsets[(f + 1) * j->batch];
    for (; k < end; k++) {
        int64_t id = neo__shard_id(j, k);
        if (id >= 0 && id < rows) continue;
        if (bad++ == 0) first_bad = k;
    }
    if (bad > 0 && s->map->desc.bounds == NEO_BOUNDS_ERROR) return neo__shard_bad_id(s, b, f, first_bad);
    s->out_of_range += bad;
    return NEO_OK;
}
/* The row an id stands for; -1: none. */
NEO__INLINE int64_t neo__shard_row(neo_bounds bounds, int64_t rows, int64_t id) {
    if (id >= 0 && id < rows) return id;
    if (bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : rows - 1;
}
/* The source in [first, end) that has the row. */
NEO__INLINE int64_t neo__shard_source_of(const neo__shard_flow *sources, int64_t first, int64_t end, int64_t row) {
    while (end - first > 1) {
        int64_t mid = (first + end) / 2;
        if (sources[mid].first_row <= row) first = mid;
        else end = mid;
    }
    return first;
}
/* Lengths and ids of the sources [first, end) of one feature. Two walks: count, then place. */
static void neo__shard_fill_sources(neo_shard *s, const neo__shard_batch *b, int64_t first, int64_t end) {
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &b->batch;
    int32_t f = m->sources[first].feature;
    int64_t rows = m->tables[m->feature_table[f]].rows, samples = j->batch;
    const int64_t *offsets = j->offsets + f * samples;
    float *weights = (float *)s->source_weights.data;
    memset(s->source_lengths + first * samples, 0, (size_t)((end - first) * samples) * sizeof(int32_t));
    for (int64_t i = 0; i < samples; i++)
        for (int64_t k = offsets[i]; k < offsets[i + 1]; k++) {
            int64_t row = neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, k));
            if (row >= 0) s->source_lengths[neo__shard_source_of(m->sources, first, end, row) * samples + i]++;
        }
    for (int64_t u = first; u < end; u++) {
        int64_t n = 0;
        for (int64_t i = 0; i < samples; i++) n += s->source_lengths[u * samples + i];
        s->cursor[u] = s->source_at[u];
        s->source_at[u + 1] = s->source_at[u] + n;
    }
    for (int64_t k = offsets[0]; k < offsets[samples]; k++) {
        int64_t row = neo__shard_row(m->desc.bounds, rows, neo__shard_id(j, k));
        if (row < 0) continue;
        int64_t u = neo__shard_source_of(m->sources, first, end, row), at = s->cursor[u]++;
        neo__shard_put_id(m, s->source_ids.data, at, row - m->sources[u].first_row);
        if (m->weighted) weights[at] = j->weights ? j->weights[k] : 1.0f;
    }
}
static neo_status neo__shard_make_sources(neo_shard *s, const neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const int64_t *offsets = b->batch.offsets;
    int64_t ids = 0, n = b->batch.batch;
    for (int64_t u = 0; u < m->source_count; u++)
        if (u == 0 || m->sources[u].feature != m->sources[u - 1].feature)
            ids += offsets[(m->sources[u].feature + 1) * n] - offsets[m->sources[u].feature * n];
    NEO__TRY(neo__shard_reserve(s, &s->source_ids, ids, neo_dtype_size(m->id_dtype)));
    if (m->weighted) NEO__TRY(neo__shard_reserve(s, &s->source_weights, ids, sizeof(float)));
    s->source_at[0] = 0;
    for (int64_t u = 0, end; u < m->source_count; u = end) {
        end = u + 1;
        while (end < m->source_count && m->sources[end].feature == m->sources[u].feature) end++;
        neo__shard_fill_sources(s, b, u, end);
    }
    return NEO_OK;
}
/* First samples of the ranks in a batch. */
static void neo__shard_place_samples(const neo_shard *s, neo__shard_batch *b) {
    int leaves = neo_ctx_repro_shards(s->ctx), ranks = s->map->ranks;
    for (int r = 0; r <= ranks; r++)
        b->start[r] = neo_leaf_begin(b->global, leaves, (int)neo_leaf_begin(leaves, ranks, r));
}
static neo_status neo__shard_check_batch(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const neo_jagged *j = &b->batch;
    int64_t global = b->global;
    if (global < 0 || global > m->desc.max_batch) b->global = 0; /* so that the exchange of the error has room */
    neo__shard_place_samples(s, b);
    int64_t mine = b->start[s->sizes.rank + 1] - b->start[s->sizes.rank];
    NEO__CHECK(global >= 0 && global <= m->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_shard: bags '%s': a batch of %" PRId64 " samples, planned are %" PRId64, m->desc.name, global,
               m->desc.max_batch);
    NEO__CHECK(!j->feature_bags, NEO_ERR_UNSUPPORTED, "neo_shard: a batch with feature_bags");
    NEO__CHECK(j->feature_count == m->feature_count, NEO_ERR_SHAPE,
               "neo_shard: the batch has %d features, bags '%s' has %d", j->feature_count, m->desc.name,
               m->feature_count);
    NEO__CHECK(j->batch == mine, NEO_ERR_SHAPE,
               "neo_shard: rank %d has %" PRId64 " samples, its leaves hold %" PRId64 " of a batch of %" PRId64,
               s->sizes.rank, j->batch, mine, b->global);
    NEO__CHECK(m->weighted || !j->weights, NEO_ERR_ARG,
               "neo_shard: the batch has weights, the plan's has none (neo_plan_desc.weighted)");
    NEO__TRY(neo_jagged_validate(j, NULL));
    for (int32_t f = 0; f < m->feature_count && j->batch > 0; f++) NEO__TRY(neo__shard_check_ids(s, b, f));
    return neo__shard_make_sources(s, b);
}

/* ---- ids: the exchange ---- */

/* Check the batch, and send the lengths. What is wrong with it travels as a status. */
static neo_status neo__shard_send_lengths(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int64_t *out = s->counts, *in = s->counts + m->ranks, at = 0;
    b->status = neo__shard_check_batch(s, b);
    if (b->status != NEO_OK) snprintf(b->error, sizeof b->error, "%s", neo_last_error());
    int64_t mine = b->start[s->sizes.rank + 1] - b->start[s->sizes.rank];
    for (int r = 0; r < m->ranks; r++) {
        int64_t flows = m->flow_begin[r + 1] - m->flow_begin[r], theirs = b->start[r + 1] - b->start[r];
        out[r] = 1 + flows * mine;
        in[r] = 1 + s->sizes.flows * theirs;
        s->lengths_out[at] = (int32_t)b->status;
        for (int64_t i = 0; i < flows; i++) {
            int32_t *to = s->lengths_out + at + 1 + i * mine;
            const int32_t *from = s->source_lengths + m->flows[m->flow_begin[r] + i].source * mine;
            if (b->status == NEO_OK) memcpy(to, from, (size_t)mine * sizeof *to);
            else memset(to, 0, (size_t)mine * sizeof *to);
        }
        at += out[r];
    }
    b->stage = NEO__SHARD_LENGTHS;
    return neo_comm_all_to_allv(s->ids, s->lengths_out, out, s->lengths_in, in, NEO_I32, &b->ticket);
}
/* Any rank's error becomes everyone's. */
static neo_status neo__shard_agree(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int64_t at = 0;
    int bad = 0;
    for (int r = 0; r < m->ranks; r++) {
        bad |= s->lengths_in[at] != NEO_OK;
        at += 1 + s->sizes.flows * (b->start[r + 1] - b->start[r]);
    }
    if (!bad) return NEO_OK;
    b->stage = NEO__SHARD_EMPTY;
    if (b->status != NEO_OK) neo_fail(b->status, "%s", b->error);
    b->status = neo_comm_agree(s->ids, b->status);
    return b->status;
}
/* Where the ids of every flow will be, as they come from each rank; returns how many there are. */
static int64_t neo__shard_place_flows(neo_shard *s, const neo__shard_batch *b, int64_t *in) {
    const neo__shard_map *m = s->map;
    const int32_t *lengths = s->lengths_in;
    int64_t total = 0, flows = s->sizes.flows;
    for (int r = 0; r < m->ranks; r++) {
        int64_t samples = b->start[r + 1] - b->start[r], before = total;
        lengths++; /* the status */
        for (int64_t i = 0; i < flows; i++, lengths += samples) {
            s->flow_at[r * flows + i] = total;
            for (int64_t k = 0; k < samples; k++) total += lengths[k];
        }
        in[r] = total - before;
    }
    s->flow_at[m->ranks * flows] = total;
    return total;
}
static neo_status neo__shard_send_ids(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int64_t *out = s->counts, *in = s->counts + m->ranks, at = 0, total = 0;
    size_t size = neo_dtype_size(m->id_dtype);
    NEO__TRY(neo_comm_wait(s->ids, b->ticket));
    NEO__TRY(neo__shard_agree(s, b));
    int64_t in_ids = neo__shard_place_flows(s, b, in);
    for (int r = 0; r < m->ranks; r++) {
        out[r] = 0;
        for (int64_t i = m->flow_begin[r]; i < m->flow_begin[r + 1]; i++)
            out[r] += s->source_at[m->flows[i].source + 1] - s->source_at[m->flows[i].source];
        total += out[r];
    }
    NEO__TRY(neo__shard_reserve(s, &s->ids_out, total, size));
    NEO__TRY(neo__shard_reserve(s, &s->ids_in, in_ids, size));
    if (m->weighted) {
        NEO__TRY(neo__shard_reserve(s, &s->weights_out, total, sizeof(float)));
        NEO__TRY(neo__shard_reserve(s, &s->weights_in, in_ids, sizeof(float)));
    }
    for (int64_t i = 0; i < m->flow_count; i++) { /* by rank: as they are sent */
        int64_t from = s->source_at[m->flows[i].source], n = s->source_at[m->flows[i].source + 1] - from;
        memcpy((char *)s->ids_out.data + (size_t)at * size, (char *)s->source_ids.data + (size_t)from * size,
               (size_t)n * size);
        if (m->weighted)
            memcpy((float *)s->weights_out.data + at, (float *)s->source_weights.data + from,
                   (size_t)n * sizeof(float));
        at += n;
    }
    b->stage = NEO__SHARD_IDS;
    NEO__TRY(neo_comm_all_to_allv(s->ids, s->ids_out.data, out, s->ids_in.data, in, m->id_dtype, &b->ticket));
    if (!m->weighted) return NEO_OK;
    return neo_comm_all_to_allv(s->ids, s->weights_out.data, out, s->weights_in.data, in, NEO_F32, &b->ticket);
}
/* The ids are here: put those of all ranks together, route by route. */
static neo_status neo__shard_take_ids(neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int64_t flows = s->sizes.flows, total = 0, bag = 0;
    size_t size = neo_dtype_size(m->id_dtype);
    NEO__TRY(neo_comm_wait(s->ids, b->ticket));
    const neo__shard_route *routes = m->routes + m->route_begin[s->sizes.rank];
    for (int64_t i = 0; i < s->sizes.routes; i++)
        for (int r = 0; r < m->ranks; r++) {
            int64_t at = r * flows + routes[i].flow;
            total += s->flow_at[at + 1] - s->flow_at[at];
        }
    NEO__TRY(neo__shard_reserve(s, &b->ids, total, size));
    if (m->weighted) NEO__TRY(neo__shard_reserve(s, &b->weights, total, sizeof(float)));
    total = 0;
    b->offsets[0] = 0;
    for (int64_t i = 0; i < s->sizes.routes; i++) {
        const int32_t *lengths = s->lengths_in;
        for (int r = 0; r < m->ranks; r++) {
            int64_t samples = b->start[r + 1] - b->start[r], at = r * flows + routes[i].flow;
            int64_t from = s->flow_at[at], n = s->flow_at[at + 1] - from, end = total;
            memcpy((char *)b->ids.data + (size_t)total * size, (char *)s->ids_in.data + (size_t)from * size,
                   (size_t)n * size);
            if (m->weighted)
                memcpy((float *)b->weights.data + total, (float *)s->weights_in.data + from,
                       (size_t)n * sizeof(float));
            for (int64_t k = 0; k < samples; k++)
                b->offsets[++bag] = end += lengths[1 + routes[i].flow * samples + k];
            total += n;
            lengths += 1 + flows * samples;
        }
    }
    b->local.batch = b->global;
    b->local.feature_count = (int32_t)s->sizes.routes;
    b->local.id_dtype = m->id_dtype;
    b->local.offsets = b->offsets;
    b->local.ids = b->ids.data;
    b->local.weights = m->weighted ? (const float *)b->weights.data : NULL;
    b->stage = NEO__SHARD_READY;
    return s->bags ? neo_bags_reserve(s->bags, s->sizes.batch, total) : NEO_OK;
}
/* A rank that cannot go on in the middle of an exchange tells the others why. */
static neo_status neo__shard_give_up(neo_shard *s, neo_status status) {
    char text[NEO__SHARD_ERROR];
    snprintf(text, sizeof text, "%s", neo_last_error());
    neo_comm_abort(s->ids, text);
    neo_comm_abort(s->rows, text);
    return neo_fail(status, "%s", text);
}
/* Bring a batch as far as `stage`. */
static neo_status neo__shard_advance(neo_shard *s, neo__shard_batch *b, neo__shard_stage stage) {
    while (b->stage < stage) {
        neo_status status = b->stage == NEO__SHARD_LENGTHS ? neo__shard_send_ids(s, b) : neo__shard_take_ids(s, b);
        if (status == NEO_OK) continue;
        if (b->stage == NEO__SHARD_EMPTY) return status; /* a bad batch: everyone knows */
        return neo__shard_give_up(s, status);
    }
    return NEO_OK;
}
static neo_status neo__shard_start(neo_shard *s, neo__shard_batch *b, const neo_jagged *batch, int64_t global) {
    b->batch = *batch;
    b->global = global;
    return neo__shard_send_lengths(s, b);
}
/* ------------------------------------------------------------------------------------------------
   >>impl-shard-rows

   Pooled rows and gradients between `local` and `remote`, and between `remote` and the caller's tensors.
   ------------------------------------------------------------------------------------------------ */
NEO__INLINE int64_t neo__shard_samples(const neo__shard_batch *b, int rank) { return b->start[rank + 1] - b->start[rank]; }

/* Rows on their way; way 0: forward, from local to remote; 1: backward, from remote to local. */
typedef struct neo__shard_move {
    neo_shard *s;
    const neo__shard_batch *b;
    int way;
} neo__shard_move;
NEO__INLINE int neo__shard_is_plain(const neo__shard_move *v) { return v->s->map->wire[v->way] == NEO_WIRE_F32; }

/* Code (or decode) n samples of the direct routes of a rank: rows [n][stride] to or from coded. */
static void neo__shard_code(const neo__shard_move *v, int rank, float *rows, int64_t n, int64_t stride, char *coded,
                            int decode) {
    neo_shard *s = v->s;
    for (int64_t i = s->map->route_begin[rank]; i < s->map->inside_begin[rank] && n > 0; i++) {
        const neo__shard_route *r = &s->map->routes[i];
        char *at = coded + n * r->coded[v->way];
        if (decode) neo_wire_decode(s->ctx, r->wire[v->way], 0, at, n, r->cols, stride, rows + r->col);
        else neo_wire_encode(s->ctx, r->wire[v->way], 0, rows + r->col, n, r->cols, stride, at, &s->wire_stats[v->way]);
    }
}
/* Pick the first `cols` of `stride` columns out, or put them back. */
static void neo__shard_pick(float *rows, int64_t n, int64_t stride, int64_t cols, float *picked, int back) {
    for (int64_t i = 0; i < n; i++) {
        float *row = rows + i * stride, *to = picked + i * cols;
        memcpy(back ? row : to, back ? to : row, (size_t)cols * sizeof *to);
    }
}
static void neo__shard_code_local(const neo__shard_move *v, int decode) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int rank = s->sizes.rank;
    int64_t width = s->sizes.width;
    char *coded = s->coded_local;
    if (neo__shard_is_plain(v)) {
        if (m->direct[rank] < width)
            neo__shard_pick(s->local, v->b->start[m->ranks], width, m->direct[rank], (float *)(void *)coded, decode);
        return;
    }
    for (int r = 0; r < m->ranks; r++) {
        int64_t n = neo__shard_samples(v->b, r);
        neo__shard_code(v, rank, s->local + v->b->start[r] * width, n, width, coded, decode);
        coded += n * m->coded[v->way][rank];
    }
}
static void neo__shard_code_remote(const neo__shard_move *v, int decode) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int64_t n = neo__shard_samples(v->b, s->sizes.rank);
    char *coded = s->coded_remote;
    for (int r = 0; r < m->ranks && !neo__shard_is_plain(v); r++) {
        neo__shard_code(v, r, s->remote + n * m->remote_col[r], n, m->direct[r], coded, decode);
        coded += n * m->coded[v->way][r];
    }
}
/* Start the exchange of the direct routes. */
static neo_status neo__shard_exchange(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int plain = neo__shard_is_plain(v), rank = s->sizes.rank;
    int64_t *local = s->counts + 2 * m->ranks, *remote = s->counts + 3 * m->ranks;
    for (int r = 0; r < m->ranks; r++) {
        local[r] = neo__shard_samples(v->b, r) * (plain ? m->direct[rank] : m->coded[v->way][rank]);
        remote[r] = neo__shard_samples(v->b, rank) * (plain ? m->direct[r] : m->coded[v->way][r]);
    }
    void *here = plain && m->direct[rank] == s->sizes.width ? (void *)s->local : (void *)s->coded_local;
    void *there = plain ? (void *)s->remote : (void *)s->coded_remote;
    neo_dtype dtype = plain ? NEO_F32 : NEO_U8;
    if (v->way == 0) {
        neo__shard_code_local(v, 0);
        return neo_comm_all_to_allv(s->rows, here, local, there, remote, dtype, &s->ticket);
    }
    neo__shard_code_remote(v, 0);
    return neo_comm_all_to_allv(s->rows, there, remote, here, local, dtype, &s->ticket);
}

/* ---- between remote and the caller ---- */
typedef struct neo__shard_rows {
    neo_shard *s;
    const neo__shard_batch *b;
    float *out; /* of the caller; or dout */
    int64_t stride, tasks;
} neo__shard_rows;

NEO__INLINE float *neo__shard_remote_row(const neo__shard_rows *k, const neo__shard_route *r, int64_t sample) {
    const neo_shard *s = k->s;
    int64_t mine = neo__shard_samples(k->b, s->sizes.rank);
    return s->remote + mine * s->map->remote_col[r->rank] + sample * s->map->direct[r->rank] + r->col;
}
/* Ids of a bag, before any was dropped, where they divide its sum; else 1. */
NEO__INLINE int64_t neo__shard_divisor(const neo__shard_rows *k, int32_t feature, int64_t sample) {
    const neo__shard_map *m = k->s->map;
    if (m->tables[m->feature_table[feature]].pooling != NEO_POOL_MEAN) return 1;
    const int64_t *offsets = k->b->batch.offsets + feature * k->b->batch.batch + sample;
    return offsets[1] - offsets[0];
}
static int neo__shard_level(int64_t a, int64_t b) { return 63 - __builtin_clzll((uint64_t)(a ^ b)); }
/* The sum of the routes [first, end), which bring parts of the same columns, by the tree; row(user, r) is what
   a route brings, which is used up. */
typedef float *(*neo__shard_row_fn)(const void *user, const neo__shard_route *r, int64_t sample);
static float *neo__shard_join(const neo_shard *s, const neo__shard_route *first, const neo__shard_route *end,
                              neo__shard_row_fn row, const void *user, int64_t sample) {
    enum { DEPTH = 64 };
    float *sum[DEPTH];
    int64_t number[DEPTH];
    int depth = 0;
    for (const neo__shard_route *r = first; r <= end; r++) {
        while (depth >= 2 && (r == end || neo__shard_level(number[depth - 2], number[depth - 1]) <
                                              neo__shard_level(number[depth - 1], r->number))) {
            depth--;
            neo_floats_add(s->ctx, sum[depth - 1], sum[depth], first->cols);
            number[depth - 1] = number[depth];
        }
        if (r == end) break;
        sum[depth] = row(user, r, sample);
        number[depth++] = r->number;
    }
    for (int64_t c = 0; c < first->cols; c++) sum[0][c] += 0.0f;
    return sum[0];
}
/* What a wire makes of a row. */
static void neo__shard_round(const neo_shard *s, neo_wire wire, float *row, int64_t cols) {
    float code[NEO_WIRE_BLOCK + 2];
    for (int64_t c = 0; c < cols && wire != NEO_WIRE_F32; c += NEO_WIRE_BLOCK) {
        int64_t n = cols - c < NEO_WIRE_BLOCK ? cols - c : NEO_WIRE_BLOCK;
        neo_wire_encode(s->ctx, wire, 0, row + c, 1, n, n, code, NULL);
        neo_wire_decode(s->ctx, wire, 0, code, 1, n, n, row + c);
    }
}
static float *neo__shard_remote_row_of(const void *user, const neo__shard_route *r, int64_t sample) {
    return neo__shard_remote_row((const neo__shard_rows *)user, r, sample);
}
/* Pooled columns of a feature, to the caller: out = from, divided for MEAN. */
static void neo__shard_give(const neo__shard_rows *k, int32_t feature, int64_t sample, const float *from, int64_t cols,
                            int64_t out_col) {
    int64_t length = neo__shard_divisor(k, feature, sample);
    float *out = k->out + sample * k->stride + out_col;
    if (length > 1)
        for (int64_t c = 0; c < cols; c++) out[c] = from[c] / (float)length;
    else memcpy(out, from, (size_t)cols * sizeof *out);
}
static void neo__shard_unpack_task(void *arg, int64_t task, int worker) {
    const neo__shard_rows *k = (const neo__shard_rows *)arg;
    const neo__shard_map *m = k->s->map;
    int64_t n = neo__shard_samples(k->b, k->s->sizes.rank), end = n * (task + 1) / k->tasks;
    (void)worker;
    for (int64_t i = n * task / k->tasks; i < end; i++)
        for (int64_t first = 0, stop; first < m->route_count; first = stop) {
            const neo__shard_route *r = &m->pull[first];
            stop = neo__shard_pull_end(m, first);
            if (m->parts[r->part].inside) continue;
            float *row = neo__shard_remote_row(k, r, i);
            if (stop - first > 1) {
                row = neo__shard_join(k->s, r, m->pull + stop, neo__shard_remote_row_of, k, i);
                neo__shard_round(k->s, m->wire[0], row, r->cols);
            }
            neo__shard_give(k, r->feature, i, row, r->cols, r->out_col);
        }
}
/* A gradient of the caller: to = dout, divided for MEAN. */
static void neo__shard_take(const neo__shard_rows *k, int32_t feature, int64_t sample, float *to, int64_t cols,
                            int64_t out_col) {
    int64_t length = neo__shard_divisor(k, feature, sample);
    const float *from = k->out + sample * k->stride + out_col;
    if (length > 1)
        for (int64_t c = 0; c < cols; c++) to[c] = from[c] / (float)length;
    else memcpy(to, from, (size_t)cols * sizeof *to);
}
static void neo__shard_pack_task(void *arg, int64_t task, int worker) {
    const neo__shard_rows *k = (const neo__shard_rows *)arg;
    const neo__shard_map *m = k->s->map;
    int64_t n = neo__shard_samples(k->b, k->s->sizes.rank), end = n * (task + 1) / k->tasks;
    (void)worker;
    for (int64_t i = n * task / k->tasks; i < end; i++)
        for (int64_t q = 0; q < m->route_count; q++) {
            const neo__shard_route *r = &m->routes[q];
            if (m->parts[r->part].inside) continue;
            neo__shard_take(k, r->feature, i, neo__shard_remote_row(k, r, i), r->cols, r->out_col);
        }
}
/* The columns of data-parallel tables: between out and replica_out. */
static void neo__shard_copy_replicas(const neo__shard_rows *k, int to_caller) {
    const neo__shard_map *m = k->s->map;
    int64_t n = neo__shard_samples(k->b, k->s->sizes.rank), width = k->s->sizes.replica_width, col = 0;
    for (int64_t q = 0; q < m->replica_count; q++) {
        int32_t f = m->replicas[q];
        int64_t dim = m->feature_col[f + 1] - m->feature_col[f];
        for (int64_t i = 0; i < n; i++) {
            float *out = k->out + i * k->stride + m->feature_col[f], *row = k->s->replica_out + i * width + col;
            int64_t length = neo__shard_divisor(k, f, i);
            const float *from = to_caller ? row : out;
            float *to = to_caller ? out : row;
            for (int64_t c = 0; c < dim; c++) to[c] = length > 1 ? from[c] / (float)length : from[c];
        }
        col += dim;
    }
}
static neo__shard_rows neo__shard_rows_of(neo_shard *s, neo_tensor t) {
    neo__shard_rows k;
    k.s = s;
    k.b = &s->batches[s->current];
    k.out = (float *)t.data;
    k.stride = t.stride[0];
    int64_t n = neo__shard_samples(k.b, s->sizes.rank);
    k.tasks = neo_ctx_threads(s->ctx) > 1 ? 4 * neo_ctx_threads(s->ctx) : 1;
    if (k.tasks > n) k.tasks = n > 0 ? n : 1;
    return k;
}

/* ---- data-parallel tables ---- */

/* Their features of the caller's samples [begin, end). */
static neo_status neo__shard_replica_batch(neo_shard *s, int64_t begin, int64_t end, neo_jagged *j) {
    const neo__shard_map *m = s->map;
    const neo_jagged *from = &s->batches[s->current].batch;
    int64_t n = from->batch, bag = 0, total = 0;
    size_t size = neo_dtype_size(from->id_dtype);
    for (int64_t q = 0; q < m->replica_count; q++)
        total += from->offsets[m->replicas[q] * n + end] - from->offsets[m->replicas[q] * n + begin];
    NEO__TRY(neo__shard_reserve(s, &s->replica_ids, total, size));
    if (from->weights) NEO__TRY(neo__shard_reserve(s, &s->replica_weights, total, sizeof(float)));
    NEO__TRY(neo_bags_reserve(s->replicas, end - begin, total));
    total = 0;
    s->replica_offsets[0] = 0;
    for (int64_t q = 0; q < m->replica_count; q++) {
        const int64_t *offsets = from->offsets + m->replicas[q] * n + begin;
        int64_t count = offsets[end - begin] - offsets[0];
        memcpy((char *)s->replica_ids.data + (size_t)total * size, (const char *)from->ids + (size_t)offsets[0] * size,
               (size_t)count * size);
        if (from->weights)
            memcpy((float *)s->replica_weights.data + total, from->weights + offsets[0], (size_t)count * sizeof(float));
        for (int64_t i = 1; i <= end - begin; i++) s->replica_offsets[++bag] = total + offsets[i] - offsets[0];
        total += count;
    }
    memset(j, 0, sizeof *j);
    j->batch = end - begin;
    j->feature_count = (int32_t)m->replica_count;
    j->id_dtype = from->id_dtype;
    j->offsets = s->replica_offsets;
    j->ids = s->replica_ids.data;
    j->weights = from->weights ? (const float *)s->replica_weights.data : NULL;
    return NEO_OK;
}
static neo_status neo__shard_replicas_forward(neo_shard *s) {
    neo_jagged j;
    int64_t n = s->batches[s->current].batch.batch;
    NEO__TRY(neo__shard_replica_batch(s, 0, n, &j));
    return neo_bags_forward(s->replicas, &j, neo_tensor_2d(s->replica_out, NEO_F32, n, s->sizes.replica_width));
}
/* Dense gradients of one subtree of leaves, and which rows it touched. */
static neo_status neo__shard_replica_grads(neo_shard *s, const neo_leaves *leaves, float *dense) {
    neo_jagged j;
    const neo__shard_batch *b = &s->batches[s->current];
    int V = neo_ctx_repro_shards(s->ctx);
    int64_t width = s->sizes.replica_width, mine = b->start[s->sizes.rank];
    int64_t begin = neo_leaf_begin(b->global, V, leaves->first) - mine;
    int64_t end = neo_leaf_begin(b->global, V, leaves->first + leaves->count) - mine;
    NEO__TRY(neo__shard_replica_batch(s, begin, end, &j));
    neo_tensor dout = neo_tensor_2d(s->replica_out + begin * width, NEO_F32, end - begin, width);
    NEO__TRY(neo_bags_accumulate(s->replicas, &j, dout, leaves));
    memset(dense, 0, (size_t)s->sizes.replica_floats * sizeof *dense);
    for (int64_t i = 0; i < neo_bags_kept_count(s->replicas); i++) {
        int32_t t;
        int64_t row;
        const float *g = neo_bags_kept_row(s->replicas, i, &t, &row);
        int64_t dim = neo_bags_weight(s->replicas, t).shape[1];
        memcpy(dense + s->replica_at[2 * t] + row * dim, g, (size_t)dim * sizeof *g);
        s->touched[s->replica_at[2 * t + 1] + row] = 1;
    }
    neo_bags_clear(s->replicas);
    return NEO_OK;
}
/* Start the sums of their gradients over all ranks. */
static neo_status neo__shard_replicas_backward(neo_shard *s) {
    neo_leaves subtree[NEO_MAX_SUBTREES];
    int64_t floats = 0, rows = 0;
    const void *pieces[NEO_MAX_SUBTREES];
    neo_ticket ignored;
    int count = neo_comm_subtrees(s->rows, s->sizes.rank, s->batches[s->current].global, subtree);
    memset(s->touched, 0, (size_t)s->sizes.replica_rows);
    for (int32_t t = 0; t < neo_bags_table_count(s->replicas); t++) {
        neo_tensor w = neo_bags_weight(s->replicas, t);
        s->replica_at[2 * t] = floats;
        s->replica_at[2 * t + 1] = rows;
        floats += w.shape[0] * w.shape[1];
        rows += w.shape[0];
    }
    for (int i = 0; i < count; i++) {
        float *dense = s->dense + i * s->sizes.replica_floats;
        NEO__TRY(neo__shard_replica_grads(s, &subtree[i], dense));
        pieces[i] = dense;
    }
    NEO__TRY(neo_comm_all_reduce_leaves(s->rows, pieces, s->dense_sum, s->sizes.replica_floats, NEO_F32, &ignored));
    return neo_comm_all_reduce(s->rows, NEO_REDUCE_MAX, s->touched, s->touched, s->sizes.replica_rows, NEO_U8,
                               &s->ticket);
}
/* The sums are here: those of touched rows, closed up, are the gradients of one step. */
static neo_status neo__shard_replicas_keep(neo_shard *s) {
    float *sum = s->dense_sum;
    const unsigned char *touched = s->touched;
    for (int32_t t = 0; t < neo_bags_table_count(s->replicas); t++) {
        neo_tensor w = neo_bags_weight(s->replicas, t);
        int64_t rows = w.shape[0], dim = w.shape[1], n = 0;
        for (int64_t row = 0; row < rows; row++) {
            if (!touched[row]) continue;
            memmove(sum + n * dim, sum + row * dim, (size_t)dim * sizeof *sum);
            s->replica_row[n++] = row;
        }
        NEO__TRY(neo_bags_add_grad(s->replicas, t, s->replica_row, n, neo_tensor_2d(sum, NEO_F32, n, dim)));
        sum += rows * dim;
        touched += rows;
    }
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-shard-nodes

   Slices whose pieces lie in one node of several: their partial sums add inside the node, and the sums cross.
   Rank (h, l), place l of node h, adds what is for the ranks at place l of every node, `place` samples by order of
   node: from inside_in (per rank of the node [place][its inside columns]) to mid_out [place][sums of the node],
   of which the rows for node h' go to rank (h', l), who has all nodes' in mid_in. Gradients go the same way
   back. Inside a node all rows travel as f32: partial sums, and gradients that the wire has rounded already.
   ------------------------------------------------------------------------------------------------ */
NEO__INLINE int64_t neo__shard_inside_cols(const neo__shard_map *m, int rank) { return m->width[rank] - m->direct[rank]; }
/* Samples of the ranks at place l. */
static int64_t neo__shard_place_count(const neo_shard *s, const neo__shard_batch *b, int place) {
    int64_t n = 0;
    for (int r = place; r < s->map->ranks; r += s->map->per_node) n += neo__shard_samples(b, r);
    return n;
}
/* This rank's inside columns of local, in order of the places they go to or come from. */
static void neo__shard_inside_pick(neo_shard *s, const neo__shard_batch *b, int back) {
    const neo__shard_map *m = s->map;
    int64_t cols = s->sizes.inside, width = s->sizes.width;
    float *at = s->inside_out;
    for (int place = 0; place < m->per_node; place++)
        for (int r = place; r < m->ranks; r += m->per_node) {
            int64_t n = neo__shard_samples(b, r);
            neo__shard_pick(s->local + b->start[r] * width + m->direct[s->sizes.rank], n, width, cols, at, back);
            at += n * cols;
        }
}
/* Between inside_out and inside_in. */
static neo_status neo__shard_inside_exchange(neo_shard *s, const neo__shard_batch *b, int back) {
    const neo__shard_map *m = s->map;
    int64_t *out = s->counts, *in = s->counts + m->ranks;
    int first = s->sizes.rank / m->per_node * m->per_node;
    for (int l = 0; l < m->per_node; l++) {
        out[l] = neo__shard_place_count(s, b, l) * s->sizes.inside;
        in[l] = neo__shard_place_count(s, b, s->sizes.rank - first) * neo__shard_inside_cols(m, first + l);
    }
    if (back) return neo_comm_all_to_allv(s->node, s->inside_in, in, s->inside_out, out, NEO_F32, NULL);
    return neo_comm_all_to_allv(s->node, s->inside_out, out, s->inside_in, in, NEO_F32, NULL);
}
typedef struct neo__shard_place {
    neo_shard *s;
    int64_t samples;
    int64_t *first; /* [ranks of the node]: where their rows begin in inside_in */
} neo__shard_place;
static float *neo__shard_inside_row(const void *user, const neo__shard_route *r, int64_t sample) {
    const neo__shard_place *k = (const neo__shard_place *)user;
    const neo__shard_map *m = k->s->map;
    return k->s->inside_in + k->first[r->rank % m->per_node] + sample * neo__shard_inside_cols(m, r->rank) +
           (r->col - m->direct[r->rank]);
}
static neo__shard_place neo__shard_place_of(neo_shard *s, const neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    int node = s->sizes.rank / m->per_node;
    neo__shard_place k;
    k.s = s;
    k.samples = neo__shard_place_count(s, b, s->sizes.rank % m->per_node);
    k.first = s->counts;
    for (int l = 0; l < m->per_node; l++)
        k.first[l] = l == 0 ? 0 : k.first[l - 1] + k.samples * neo__shard_inside_cols(m, node * m->per_node + l - 1);
    return k;
}
/* inside_in to mid_out: sums; or back: every part gets the gradient. */
static void neo__shard_mid_join(neo_shard *s, const neo__shard_batch *b, int back) {
    const neo__shard_map *m = s->map;
    neo__shard_place k = neo__shard_place_of(s, b);
    int node = s->sizes.rank / m->per_node;
    for (int64_t i = 0; i < k.samples; i++)
        for (int64_t q = m->mid_begin[node]; q < m->mid_begin[node + 1]; q++) {
            const neo__shard_mid *mid = &m->mids[q];
            float *sum = s->mid_out + i * s->sizes.mid + mid->col;
            size_t bytes = (size_t)mid->cols * sizeof *sum;
            if (!back) {
                memcpy(sum, neo__shard_join(s, m->pull + mid->first, m->pull + mid->end, neo__shard_inside_row, &k, i),
                       bytes);
                continue;
            }
            for (int64_t r = mid->first; r < mid->end; r++)
                memcpy(neo__shard_inside_row(&k, &m->pull[r], i), sum, bytes);
        }
}
/* Code, or decode, n samples of the sums of a node. */
static void neo__shard_mid_code(const neo__shard_move *v, int node, float *rows, int64_t n, char *coded, int decode) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    neo_wire wire = m->wire[v->way];
    for (int64_t q = m->mid_begin[node]; q < m->mid_begin[node + 1] && n > 0; q++) {
        const neo__shard_mid *mid = &m->mids[q];
        char *at = coded + n * mid->coded[v->way];
        if (decode) neo_wire_decode(s->ctx, wire, 0, at, n, mid->cols, m->mid_width[node], rows + mid->col);
        else neo_wire_encode(s->ctx, wire, 0, rows + mid->col, n, mid->cols, m->mid_width[node], at, &s->wire_stats[v->way]);
    }
}
/* All of mid_out (of this node, for all nodes), or of mid_in (of all nodes, for this rank). */
static void neo__shard_mid_code_all(const neo__shard_move *v, int out, int decode) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int node = s->sizes.rank / m->per_node, place = s->sizes.rank % m->per_node;
    float *rows = out ? s->mid_out : s->mid_in;
    char *coded = out ? s->mid_coded_out : s->mid_coded_in;
    for (int h = 0; h < m->nodes && !neo__shard_is_plain(v); h++) {
        int64_t n = neo__shard_samples(v->b, out ? h * m->per_node + place : s->sizes.rank);
        int of = out ? node : h;
        neo__shard_mid_code(v, of, rows, n, coded, decode);
        rows += n * m->mid_width[of];
        coded += n * m->mid_coded[v->way][of];
    }
}
static neo_status neo__shard_cross_exchange(const neo__shard_move *v) {
    neo_shard *s = v->s;
    const neo__shard_map *m = s->map;
    int plain = neo__shard_is_plain(v), node = s->sizes.rank / m->per_node;
    int64_t *out = s->counts, *in = s->counts + m->ranks;
    for (int h = 0; h < m->nodes; h++) {
        int64_t theirs = neo__shard_samples(v->b, h * m->per_node + s->sizes.rank % m->per_node);
        out[h] = theirs * (plain ? m->mid_width[node] : m->mid_coded[v->way][node]);
        in[h] = neo__shard_samples(v->b, s->sizes.rank) * (plain ? m->mid_width[h] : m->mid_coded[v->way][h]);
    }
    void *from = plain ? (void *)s->mid_out : (void *)s->mid_coded_out;
    void *to = plain ? (void *)s->mid_in : (void *)s->mid_coded_in;
    neo_dtype dtype = plain ? NEO_F32 : NEO_U8;
    neo__shard_mid_code_all(v, v->way == 0, 0);
    if (v->way == 0) return neo_comm_all_to_allv(s->cross, from, out, to, in, dtype, &s->cross_ticket);
    return neo_comm_all_to_allv(s->cross, to, in, from, out, dtype, &s->cross_ticket);
}
/* Between mid_in and the caller's rows. */
static void neo__shard_mid_rows(const neo__shard_rows *k, int back) {
    neo_shard *s = k->s;
    const neo__shard_map *m = s->map;
    int64_t n = neo__shard_samples(k->b, s->sizes.rank);
    float *rows = s->mid_in;
    for (int h = 0; h < m->nodes; h++, rows += n * m->mid_width[h - 1])
        for (int64_t i = 0; i < n; i++)
            for (int64_t q = m->mid_begin[h]; q < m->mid_begin[h + 1]; q++) {
                const neo__shard_mid *mid = &m->mids[q];
                float *row = rows + i * m->mid_width[h] + mid->col;
                if (back) neo__shard_take(k, mid->feature, i, row, mid->cols, mid->out_col);
                else neo__shard_give(k, mid->feature, i, row, mid->cols, mid->out_col);
            }
}
/* From local to mid_in begun; from mid_in to local begun, and ended. */
static neo_status neo__shard_nodes_forward(const neo__shard_move *v) {
    neo__shard_inside_pick(v->s, v->b, 0);
    NEO__TRY(neo__shard_inside_exchange(v->s, v->b, 0));
    neo__shard_mid_join(v->s, v->b, 0);
    return neo__shard_cross_exchange(v);
}
static neo_status neo__shard_nodes_backward_end(const neo__shard_move *v) {
    NEO__TRY(neo_comm_wait(v->s->cross, v->s->cross_ticket));
    neo__shard_mid_code_all(v, 1, 1);
    neo__shard_mid_join(v->s, v->b, 1);
    NEO__TRY(neo__shard_inside_exchange(v->s, v->b, 1));
    neo__shard_inside_pick(v->s, v->b, 1);
    return NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-shard-cut

   Tables cut by columns whose step needs sums over whole rows. A message from one rank to another has the block
   sums of each of the sender's parts that shares rows with one of the receiver's, in order of part:
   [sums][rows][blocks]. All ranks take part in every round, with nothing to say if they have no such part.
   ------------------------------------------------------------------------------------------------ */
/* What the running round has of a part of this rank: NULL if its step asks for nothing more. */
static const neo_cut_sums *neo__shard_cut_of(const neo_cut_sums *cuts, int32_t count, int64_t table) {
    for (int32_t i = 0; i < count; i++)
        if (cuts[i].table == table) return &cuts[i];
    return NULL;
}
/* The part of this rank that has the rows of `part`. */
static const neo_cut_sums *neo__shard_cut_like(const neo_shard *s, const neo_cut_sums *cuts, int32_t count,
                                               const neo__shard_part *part) {
    const neo__shard_map *m = s->map;
    int64_t first = m->part_begin[s->sizes.rank];
    for (int32_t i = 0; i < count; i++) {
        const neo__shard_part *mine = &m->parts[first + cuts[i].table];
        if (mine->table == part->table && mine->first_row == part->first_row) return &cuts[i];
    }
    return NULL;
}
NEO__INLINE int64_t neo__shard_blocks(const neo__shard_part *part) { return (part->cols + 15) / 16; }

/* How many floats go to each rank and come from it. */
static void neo__shard_cut_counts(const neo_shard *s, const neo_cut_sums *cuts, int32_t count, int64_t *out,
                                  int64_t *in) {
    const neo__shard_map *m = s->map;
    for (int r = 0; r < m->ranks; r++) {
        out[r] = in[r] = 0;
        if (r == s->sizes.rank) continue;
        for (int32_t i = 0; i < count; i++) {
            const neo__shard_part *mine = &m->parts[m->part_begin[s->sizes.rank] + cuts[i].table];
            if (neo__shard_shares_rows(m, mine, r)) out[r] += cuts[i].sums * cuts[i].rows * cuts[i].blocks_per_row;
        }
        for (int64_t p = m->part_begin[r]; p < m->part_begin[r + 1]; p++) {
            const neo_cut_sums *like = neo__shard_cut_like(s, cuts, count, &m->parts[p]);
            if (like) in[r] += like->sums * like->rows * neo__shard_blocks(&m->parts[p]);
        }
    }
}
static void neo__shard_cut_pack(neo_shard *s, const neo_cut_sums *cuts, int32_t count) {
    const neo__shard_map *m = s->map;
    float *to = (float *)s->cut_out.data;
    for (int r = 0; r < m->ranks; r++)
        for (int32_t i = 0; i < count && r != s->sizes.rank; i++) {
            const neo__shard_part *mine = &m->parts[m->part_begin[s->sizes.rank] + cuts[i].table];
            int64_t floats = cuts[i].sums * cuts[i].rows * cuts[i].blocks_per_row;
            if (!neo__shard_shares_rows(m, mine, r)) continue;
            memcpy(to, cuts[i].blocks, (size_t)floats * sizeof *to);
            to += floats;
        }
}
/* The blocks of a slice: this rank's own, or where they are in what has come. */
static const float *neo__shard_cut_find(const neo_shard *s, const neo_cut_sums *cuts, int32_t count,
                                        const neo__shard_part *slice, const int64_t *in) {
    const neo__shard_map *m = s->map;
    const float *at = (const float *)s->cut_in.data;
    int64_t p = m->part_begin[slice->rank];
    if (slice->rank == s->sizes.rank) {
        while (m->parts[p].table != slice->table || m->parts[p].first_row != slice->first_row ||
               m->parts[p].first_col != slice->first_col)
            p++;
        return neo__shard_cut_of(cuts, count, p - m->part_begin[slice->rank])->blocks;
    }
    for (int r = 0; r < slice->rank; r++) at += in[r];
    for (;; p++) {
        const neo__shard_part *part = &m->parts[p];
        const neo_cut_sums *like = neo__shard_cut_like(s, cuts, count, part);
        if (part->table == slice->table && part->first_row == slice->first_row && part->first_col == slice->first_col)
            return at;
        if (like) at += like->sums * like->rows * neo__shard_blocks(part);
    }
}
/* totals += the blocks of one slice, in order. */
static void neo__shard_cut_add(const neo_cut_sums *cut, const float *blocks, int64_t n) {
    for (int64_t i = 0; i < cut->sums * cut->rows; i++) {
        float sum = cut->total[i];
        for (int64_t k = 0; k < n; k++) sum += blocks[i * n + k];
        cut->total[i] = sum;
    }
}
static neo_status neo__shard_cut_round(neo_shard *s, const neo_cut_sums *cuts, int32_t count) {
    const neo__shard_map *m = s->map;
    int64_t *out = s->counts, *in = s->counts + m->ranks, out_floats = 0, in_floats = 0;
    neo__shard_cut_counts(s, cuts, count, out, in);
    for (int r = 0; r < m->ranks; r++) out_floats += out[r], in_floats += in[r];
    NEO__TRY(neo__shard_reserve(s, &s->cut_out, out_floats, sizeof(float)));
    NEO__TRY(neo__shard_reserve(s, &s->cut_in, in_floats, sizeof(float)));
    neo__shard_cut_pack(s, cuts, count);
    NEO__TRY(neo_comm_all_to_allv(s->rows, s->cut_out.data, out, s->cut_in.data, in, NEO_F32, NULL));
    for (int32_t i = 0; i < count; i++) {
        const neo__shard_part *mine = &m->parts[m->part_begin[s->sizes.rank] + cuts[i].table];
        int64_t end, slice = neo__shard_slices(m, mine, &end);
        memset(cuts[i].total, 0, (size_t)(cuts[i].sums * cuts[i].rows) * sizeof(float));
        for (; slice < end; slice++)
            neo__shard_cut_add(&cuts[i], neo__shard_cut_find(s, cuts, count, &m->cuts[slice], in),
                               neo__shard_blocks(&m->cuts[slice]));
    }
    return NEO_OK;
}
/* The rounds that this rank has nothing to ask in. */
static neo_status neo__shard_cut_rest(neo_shard *s) {
    while (s->cut_round < s->map->cut_rounds) {
        s->cut_round++;
        NEO__TRY(neo__shard_cut_round(s, NULL, 0));
    }
    return NEO_OK;
}
/* Called by neo_bags: see neo_cut_sums. After the last round that it asks for, those of others follow, so that
   all communication of a step is done before anything changes. */
static neo_status neo__shard_cut_sums(void *user, const neo_cut_sums *cuts, int32_t count) {
    neo_shard *s = (neo_shard *)user;
    s->cut_round++;
    NEO__TRY(neo__shard_cut_round(s, cuts, count));
    return s->cut_round == s->own_cut_rounds ? neo__shard_cut_rest(s) : NEO_OK;
}

/* ------------------------------------------------------------------------------------------------
   >>impl-shard-step
   ------------------------------------------------------------------------------------------------ */
NEO_API neo_status neo_shard_prefetch(neo_shard *s, const neo_jagged *batch, int64_t global_batch) {
    NEO__CHECK(s && batch, NEO_ERR_ARG, "neo_shard_prefetch: an argument is NULL");
    NEO__CHECK(s->map->pipeline, NEO_ERR_STATE, "neo_shard_prefetch: the plan has no second batch (neo_plan_desc.pipeline)");
    neo__shard_batch *next = &s->batches[!s->current];
    NEO__CHECK(next->stage == NEO__SHARD_EMPTY, NEO_ERR_STATE, "neo_shard_prefetch: a batch is under way already");
    return neo__shard_start(s, next, batch, global_batch);
}
/* Send the ids of the batch that comes next, whose lengths are here by now. If it is a bad one, its own
   forward_begin says so. */
static neo_status neo__shard_hurry(neo_shard *s) {
    neo__shard_batch *next = &s->batches[!s->current];
    if (next->stage != NEO__SHARD_LENGTHS) return NEO_OK;
    neo_status status = neo__shard_advance(s, next, NEO__SHARD_IDS);
    return next->stage == NEO__SHARD_EMPTY ? NEO_OK : status;
}
/* The batch that comes now has been prefetched. */
static int neo__shard_is_next(const neo_shard *s, const neo_jagged *batch) {
    const neo__shard_batch *next = &s->batches[!s->current];
    return next->stage != NEO__SHARD_EMPTY && next->batch.offsets == batch->offsets && next->batch.ids == batch->ids &&
           next->batch.batch == batch->batch;
}
NEO_API neo_status neo_shard_forward_begin(neo_shard *s, const neo_jagged *batch, int64_t global_batch) {
    NEO__CHECK(s && batch, NEO_ERR_ARG, "neo_shard_forward_begin: an argument is NULL");
    NEO__CHECK(s->phase == NEO__SHARD_IDLE || s->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "neo_shard_forward_begin: call neo_shard_%s_end first", s->phase == NEO__SHARD_FORWARD ? "forward" : "backward");
    s->phase = NEO__SHARD_IDLE;
    s->batches[s->current].stage = NEO__SHARD_EMPTY;
    if (neo__shard_is_next(s, batch)) {
        s->current = !s->current;
    } else { /* the exchange has one set of buffers */
        neo__shard_batch *next = &s->batches[!s->current];
        if (next->stage != NEO__SHARD_EMPTY && neo__shard_advance(s, next, NEO__SHARD_READY) != NEO_OK)
            if (next->stage != NEO__SHARD_EMPTY) return neo_comm_status(s->ids);
        NEO__TRY(neo__shard_start(s, &s->batches[s->current], batch, global_batch));
    }
    neo__shard_batch *b = &s->batches[s->current];
    NEO__TRY(neo__shard_advance(s, b, NEO__SHARD_READY));
    neo__shard_move move = {s, b, 0};
    neo_status status = NEO_OK;
    if (s->bags) status = neo_bags_forward(s->bags, &b->local, neo_tensor_2d(s->local, NEO_F32, b->global, s->sizes.width));
    if (status == NEO_OK) status = neo__shard_exchange(&move);
    if (status == NEO_OK && s->node) status = neo__shard_nodes_forward(&move);
    if (status == NEO_OK && s->replicas) status = neo__shard_replicas_forward(s);
    if (status != NEO_OK) return neo__shard_give_up(s, status);
    s->phase = NEO__SHARD_FORWARD;
    return NEO_OK;
}
static neo_status neo__shard_check_rows(const neo_shard *s, neo_tensor t, const char *fn, const char *what) {
    int64_t n = s->batches[s->current].batch.batch, width = neo_shard_out_width(s);
    NEO__CHECK(t.ndim == 2 && t.dtype == NEO_F32 && t.shape[0] == n && t.shape[1] == width &&
                   (t.stride[1] == 1 || width == 1) && (t.data || n == 0),
               NEO_ERR_SHAPE, "%s: %s must be f32 [%" PRId64 "][%" PRId64 "], last stride 1", fn, what, n, width);
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward_end(neo_shard *s, neo_tensor out) {
    NEO__CHECK(s && s->phase == NEO__SHARD_FORWARD, NEO_ERR_STATE, "neo_shard_forward_end: no forward has begun");
    NEO__TRY(neo__shard_check_rows(s, out, "neo_shard_forward_end", "out"));
    neo__shard_batch *b = &s->batches[s->current];
    neo__shard_move move = {s, b, 0};
    neo__shard_rows k = neo__shard_rows_of(s, out);
    NEO__TRY(neo_comm_wait(s->rows, s->ticket));
    neo__shard_code_remote(&move, 1);
    neo_parallel_for(s->ctx, k.tasks, neo__shard_unpack_task, &k);
    if (s->node) {
        NEO__TRY(neo_comm_wait(s->cross, s->cross_ticket));
        neo__shard_mid_code_all(&move, 0, 1);
        neo__shard_mid_rows(&k, 0);
    }
    if (s->replicas) neo__shard_copy_replicas(&k, 1);
    s->phase = NEO__SHARD_FORWARDED;
    return neo__shard_hurry(s);
}
NEO_API neo_status neo_shard_backward_begin(neo_shard *s, neo_tensor dout) {
    NEO__CHECK(s && s->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "neo_shard_backward_begin: neo_shard_forward_end has not been called");
    NEO__TRY(neo__shard_check_rows(s, dout, "neo_shard_backward_begin", "dout"));
    neo__shard_move move = {s, &s->batches[s->current], 1};
    neo__shard_rows k = neo__shard_rows_of(s, dout);
    neo_parallel_for(s->ctx, k.tasks, neo__shard_pack_task, &k);
    neo_status status = neo__shard_exchange(&move);
    if (status == NEO_OK && s->node) {
        neo__shard_mid_rows(&k, 1);
        status = neo__shard_cross_exchange(&move);
    }
    if (status == NEO_OK && s->replicas) {
        neo__shard_copy_replicas(&k, 0);
        status = neo__shard_replicas_backward(s);
    }
    if (status != NEO_OK) return neo__shard_give_up(s, status);
    s->phase = NEO__SHARD_BACKWARD;
    return NEO_OK;
}
NEO_API neo_status neo_shard_backward_end(neo_shard *s, float lr) {
    NEO__CHECK(s && s->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE, "neo_shard_backward_end: no backward has begun");
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "neo_shard_backward_end: lr is %g", (double)lr);
    neo__shard_batch *b = &s->batches[s->current];
    neo__shard_move move = {s, b, 1};
    neo_status status = neo__shard_hurry(s);
    if (status == NEO_OK) status = neo_comm_wait(s->rows, s->ticket);
    if (status == NEO_OK) neo__shard_code_local(&move, 1);
    if (status == NEO_OK && s->node) status = neo__shard_nodes_backward_end(&move);
    s->cut_round = 0;
    if (status == NEO_OK && s->own_cut_rounds == 0) status = neo__shard_cut_rest(s);
    if (status == NEO_OK && s->replicas) status = neo__shard_replicas_keep(s);
    if (status == NEO_OK && s->bags)
        status = neo_bags_backward(s->bags, &b->local,
                                   neo_tensor_2d(s->local, NEO_F32, b->global, s->sizes.width), lr);
    if (status == NEO_OK && s->replicas) status = neo_bags_step(s->replicas, lr);
    if (status != NEO_OK) return neo__shard_give_up(s, status);
    s->steps++;
    s->phase = NEO__SHARD_IDLE;
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward(neo_shard *s, const neo_jagged *batch, int64_t global_batch, neo_tensor out) {
    NEO__TRY(neo_shard_forward_begin(s, batch, global_batch));
    return neo_shard_forward_end(s, out);
}
NEO_API neo_status neo_shard_backward(neo_shard *s, neo_tensor dout, float lr) {
    NEO__TRY(neo_shard_backward_begin(s, dout));
    return neo_shard_backward_end(s, lr);
}

NEO_API int64_t neo_shard_out_width(const neo_shard *s) { return s->map->feature_col[s->map->feature_count]; }
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *s) {
    neo_shard_stats st;
    st.steps = s->steps;
    st.out_of_range = s->out_of_range;
    st.grow_count = s->grow_count;
    st.ids = neo_comm_get_stats(s->ids);
    st.rows = neo_comm_get_stats(s->rows);
    st.forward = s->wire_stats[0];
    st.backward = s->wire_stats[1];
    return st;
}
NEO_API void neo_shard_reset_stats(neo_shard *s) {
    s->out_of_range = 0;
    memset(s->wire_stats, 0, sizeof s->wire_stats);
    neo_comm_reset_stats(s->ids);
    neo_comm_reset_stats(s->rows);
}
#endif
