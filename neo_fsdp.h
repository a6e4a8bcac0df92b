/* neo_fsdp.h: sharded model state for neo: embedding tables placed by a plan, and dense parameters
   cut in units, over many ranks, with the same bits however they lie.

   Copy it beside neo.h, neo_kernels.h, neo_run.h, neo_state.h, neo_comm.h, neo_plan.h. MIT: neo.h.

   WHAT IT DOES
     - neo_shard: the verbs of neo_bags over tables that lie on many ranks as a plan says (see
       neo_plan.h); gradients stepped at once, or kept over several batches, clipped by one norm
       with the dense ones, under one loss scale
     - neo_fsdp: dense parameters, gradients and optimizer state cut over the ranks, gathered unit
       by unit: fully sharded, hybrid, ZeRO-1, ZeRO-2; or copied, reduced in buckets, by one call
       of a trainer without windows; bytes predicted exactly
     - replicas of all tables in groups of ranks, exact, or averaged every k steps
     - the same bits: weights and optimizer state do not depend on the plan, the mode or the number
       of ranks
     - ids and pooled rows in one exchange each, on wires of 32, 16, 8 or 4 bits
     - towers of features: pooled rows stay in a node, a module's few columns leave it
     - checkpoints that any number of ranks loads under any plan; nothing is allocated in a step

   WHAT IT DOES NOT DO
     - batches with feature_bags but without an inverse: pooled rows are one matrix with a row for
       each sample of all features, which ranks cut by samples; a feature with fewer can be filled
       up with empty bags
     - tables of NEO_POOL_NONE that are cut by columns
     - gradients of your own (neo_bags_add_grad)

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_fsdp.h"
         #include "neo_fsdp.h"
     On every rank (neo_comm_init_env runs a function on each; a whole program: examples/ranks.c):
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

   GLOSSARY (placements, pieces and slices are in neo_plan.h)
     leaf        one of V = repro_shards equal parts of a batch (>>leaves in neo.h): a rank has V/W
     piece       leaves of a rank that are one subtree of the sum over leaves: its samples have one
                 forward and backward. (Pieces of tables are something else: see neo_plan.h)
     unit        dense parameters that are gathered together; its chunks lie on F ranks
     deferred    a set of parameters with names and shapes, and no memory yet: neo_fsdp_create
                 gives it
     window      from begin to end of a unit's forward or backward: its parameters are whole

   A NEW WAY TO SHARD
     tables    neo_plan.h
     dense     neo_fsdp_mode with its bytes (>>fsdp), its name, and what a unit keeps between its
               windows: neo__fsdp_describe_unit (>>impl-fsdp). tests/fsdp/grid.c draws the modes

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_fsdp.h is the map)
     >>fsdp-config >>shard >>fsdp >>towers
     tables    >>impl-shard >>impl-shard-ids >>impl-shard-device >>impl-shard-rows
               >>impl-shard-nodes >>impl-shard-none >>impl-shard-copies >>impl-shard-cut
               >>impl-shard-merge >>impl-shard-step >>impl-shard-weights >>impl-shard-keep
               >>impl-shard-table
     dense     >>impl-fsdp >>impl-fsdp-gather >>impl-fsdp-reduce >>impl-fsdp-step
               >>impl-fsdp-state
     towers    >>impl-towers
*/
#ifndef NEO_FSDP_H
#define NEO_FSDP_H

/* ---------------------------------------------------------------------------
   >>fsdp-config

   Macros a user may define, beside those of neo.h and neo_comm.h, in the file that implements:
     NEO_IMPLEMENTATION        emits this header, and those that it includes
     NEO_FSDP_IMPLEMENTATION   emits neo_plan.h and neo_fsdp.h; another file implements neo.h,
                               neo_run.h, neo_state.h and neo_comm.h
   ------------------------------------------------------------------------ */
#if defined(NEO_INFERENCE)
#error "NEO_INFERENCE is for programs that only predict: without it for neo_fsdp.h"
#endif
#include "neo_plan.h"
#include "neo_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>shard

   The tables of a plan on the ranks of a group, with the verbs of neo_bags. Each rank brings its
   own samples of a global batch, those of its leaves (see >>leaves in neo.h), and gets their pooled
   rows, whoever holds the tables. With V = neo_ctx_repro_shards the weights and optimizer state
   after a step have the bits of one rank with all samples, under every plan (row-wise: with
   row_buckets).

   A step                                             what travels (W ranks, a batch of B in all)
     prefetch        ids of the next batch start,     lengths, then ids, to the ranks of the rows
                     or of that `pipeline` steps on; with a tier, its rows that are not in memory
                     are read from backward_begin on
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

   REPLICAS (2D parallel; TorchRec's DMPCollection averages likewise): with neo_plan_desc.replicas R
   and cluster.ranks L the comm has R L ranks; ranks [g L, (g + 1) L) are group g, and each group
   has all tables, placed by the plan. Pooled rows travel inside a group alone, however many there
   are. Tables take R times the memory.
     sync_every 0, 1  ids go to every group, and rank p of each gets, in backward_end, the gradients
                      that came to rank p of the others, beside nothing that would hide it: each
                      steps all its rows by all samples, so all groups have the bits of one rank
     NEO_SYNC_MERGED  ids stay in the group; rank p of each merges the gradients of its rows, and
                      these sums, of all its rows, add over the ranks p: the bits of one rank. For
                      tables of fewer rows than a batch has bags. repro_shards must be R times a
                      power of two
     k, above 1       ids stay in the group too. A group steps as a neo_shard whose batch is its own
                      samples, with their gradients times R (as of a loss over its samples alone);
                      after every k-th step weights and state of the replicas become their sum, in
                      the order of groups, times 1/R. The bits depend on R and k, on nothing else
                      that is not part of the definition ("<bags>.sync"); data-parallel tables have
                      all gradients in every step, so which these are is part of it, too
                      ("<bags>.<table>.sync"); neo_plan_create copies none but those to which
                      table_placements allow nothing else. A save while replicas differ is refused.
   Group 0 is saved and counted in digests.

   BYTES of data that all ranks together send in a step of B samples, B_r of them on rank r, W
   ranks. A part is a piece of the plan, or, of a table with row_buckets that is cut by rows, as
   much of a piece as is one subtree of buckets. A flow is the ids of one feature that go to one
   rank: those of all rows, or of a part's; several slices of columns on one rank share it. A row of
   c columns takes 4 c bytes, or neo_wire_row_bytes(wire, c); forward, parts of the rows of a table
   send partial sums, 4 c under every wire.
     lengths     for each rank r: 4 (W - 1) + 4 (B - B_r) (flows of r); with weight_grad and an f32
                 backward wire a flow of a MEAN table counts twice
                 device_ids: 8 (W - 1) (2 + flows of r) in place of 4 (W - 1), or with
                 bags->inverse 8 (W - 1) (2 + 3 flows of r)
     ids         4 for each id and flow whose rank is not the sample's (8 if a table has more than
                 2^31 rows), and 4 for its weight; of bags that repeat on a rank (inverse) once
     rows        for each part, on rank r, and feature of its table: (B - B_r) row bytes forward,
                 and as many backward; with skip_empty only for bags, of samples of other ranks,
                 with an id that is one of the part's rows
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
     replicas    dp as of all R L ranks; rows and what follows them as of each group by itself, its
                 W, r and B; lengths and ids as if rank r of all held what rank r mod L does, or, k
                 above 1 or merged, of each group, and 4 between each two ranks of different ones.
                 Then for each part, feature of its table and sample 4 c (R - 1), or each k steps
                 8 (R - 1) for each number of weights and state, or, merged, for each piece
                 2 (R - 1) rows (4 c + 1)
   HOT ROWS: the few rows of a table that most ids name, on every rank (FlexShard, arXiv
   2301.02959). They are a table of their own beside that of the others: neo_profile_hot finds them,
   neo_jagged_split_hot parts each batch, the plan copies that table (dp) and cuts the other, and
   the sum of both pooled rows is the bag's. So the sum of a bag is the same by any plan, and which
   rows are hot is a part of the model: dlrm --hot-rows saves their numbers in its checkpoints. With
   H hot rows, named by n ids whose sample is on another rank than their row was, a step sends
     ids         4 n less (8 n)
     rows        with skip_empty: row bytes less, both ways, for each part and bag whose ids in the
                 part are all hot
     dp          2 (W - 1) H (4 dim + 1) more
   A row of bags of one id is worth it that a batch of all ranks names more than about W times. Of
   20,000 rows of 16 columns, 16,384 such bags by Zipf's law of 1.05, 8 ranks, rows cut: 15.2 MB a
   step, with skip_empty 2.35, with 200 hot rows, too, 1.40.
   WARM ROWS: those behind them, a table in another neo_shard whose replicas are nodes, merged: each
   node has a copy, cut over its L ranks. With R nodes and M warm rows, named by n ids whose sample
   is on another node than their row was, a step sends between nodes
     ids, rows   as for hot rows, less; inside nodes they travel instead
     merged      2 (R - 1) M (4 dim + 1) more: L times less than hot rows
   neo_plan_levels says by the links how many rows are worth it, and what they take; dlrm --hot-rows
   auto --warm-rows auto is a program. By these formulas, of 200,000 rows of 64 columns, 65,536 such
   bags by Zipf's law of 1.05, 4 nodes of 8 ranks, 7 GB/s across and 200 inside: 25.4 MB a step
   across, with 163 hot rows 14.1, with 8 and 1,145 warm ones 10.2.

   With B/W samples on each rank these are, per rank, the B sum(D) s, W B D s and so on of the
   papers, times (W - 1)/W.
   ------------------------------------------------------------------------ */
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
            NCCL (comm is a group of neo_comm_create_nccl) by that. Ids go through the host, but
            with neo_plan_desc.device_ids: then batches are in the device's memory
            (neo_jagged.place), the host waits for their check, and for how many ids go where, and
            sees nothing else of them; the bits are the same, a group of devices is taken more, and
            a prefetch waits for what the device was called to do before, but with device_ids 2,
            for what it was called to do before the last forward_begin alone. With NEO_POOL_NONE or
            weight_grad the host tells the device the place of each id, or with device_ids how many
            there are in each flow.
   Memory   neo_shard_bytes (>>plan in neo_plan.h). */
NEO_API NEO__CHECK_UNUSED neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan,
                                                      neo_shard **shard);
NEO_API void neo_shard_destroy(neo_shard *shard);

/* The calls of a step. All are collective, also on a rank without samples.
   Shapes    batch: the features of the plan x B_r samples, those of this rank's leaves in a global
             batch of global_batch samples. out, dout [B_r][sum of the features' dims] f32, last
             stride 1. NEO_POOL_NONE: [ids of this rank][dim], a row for each id in order.
   inverse   of a batch, where the plan's bags have neo_bags_desc.inverse: the same bits as of the
             batch written out, under every plan. A bag's ids travel once, and are looked up once by
             a rank; its rows travel for each sample. Ranks may have batches of both kinds.
             NEO_ERR_UNSUPPORTED: with NEO_POOL_NONE or weight_grad.
   dout      of a loss that is divided by global_batch (neo_loss_desc.batch), not by B_r: nothing
             can check that.
   Lifetime  batch (its arrays) from prefetch or forward_begin until backward_end, or the next
             forward_begin. dout until backward_end, on one rank, or where weight_grad is called.
   Order     prefetch of the next batch at any point between forward_begin and backward_end, or
             before; with neo_plan_desc.pipeline N of up to N batches, in order, of which that
             before waits for its ids here (all ranks prefetch as many). The next forward_begin
             must then be of the first of them: the same arrays, not written since; or of one in
             other arrays that was not prefetched, alike on all ranks, for which they wait, as an
             evaluation's. Arrays in host memory that were written since are NEO_ERR_STATE of this
             rank's forward_begin, which ends all: others get its message (a hash of 64 bits sees
             any one word, all else but by chance). Of one rank alone they are looked up as they
             are: nothing has been sent.
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
/* neo_shard_sync: average replicas now, where sync_every has left them apart: before a save and at
   the end of training. Collective; nothing is sent where they are alike.
   Errors   NEO_ERR_STATE: a call has begun and not ended. Those of >>comm-faults: the shard is then
            broken. */
NEO_API neo_status neo_shard_sync(neo_shard *shard);

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
   Exact: under every plan the same bits as on one rank. neo_shard_table_squares: those of one table
   of the plan, as neo_bags_table_squares.
   neo_shard_scale_grads: multiplies them, by the same number on all ranks. neo_shard_clear: forgets
   them, on all ranks. Of these five none is collective: no rank waits for another.
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
NEO_API neo_status neo_shard_table_squares(const neo_shard *shard, int32_t table, neo_exact *sum);
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
   Bytes    4 for each number, to each rank that is to have it and does not (of replicas, written
            by one rank: all to all); nothing for reading data-parallel tables. 24 between each two
            ranks, and 40 from rank 0 to each other, to agree.
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

/* neo_shard_find_keys, _put_keys, _drop_keys, _score_keys, _prune_keys: those of neo_bags; rows are
   the whole table's, as neo_shard_get_rows counts them, and all ranks get the answer.
   Collective: all ranks with the same arguments. Not between begin and end of a call.
   Bytes    of find and put 8 for each key, all-reduced; of prune, where columns of the table are
            cut, its rows, as of neo_shard_get_rows to all ranks; and to agree.
   Memory   of prune, where columns are cut, up to 12 MiB from the allocator meanwhile.
   Errors   on all ranks the status and message of the lowest rank that has one, and nothing has
            changed: those of neo_bags_find_keys; NEO_ERR_STATE: a call has begun and not ended.
            NEO_ERR_MISMATCH: other arguments than rank 0. NEO_ERR_MEMORY. Those of >>comm-faults,
            and of a tier's file: the shard is then broken. */
NEO_API neo_status neo_shard_find_keys(neo_shard *shard, int32_t table, const uint64_t *keys,
                                       int64_t count, int64_t *rows);
NEO_API neo_status neo_shard_put_keys(neo_shard *shard, int32_t table, const uint64_t *keys,
                                      int64_t count, int64_t *rows);
NEO_API neo_status neo_shard_drop_keys(neo_shard *shard, int32_t table, const uint64_t *keys,
                                       int64_t count);
NEO_API neo_status neo_shard_score_keys(neo_shard *shard, int32_t table, const uint64_t *keys,
                                        const float *scores, int64_t count);
NEO_API neo_status neo_shard_prune_keys(neo_shard *shard, int32_t table, float least, int most,
                                        int64_t *pruned);
/* neo_shard_out_width: columns of pooled rows, those of all features. */
NEO_API int64_t neo_shard_out_width(const neo_shard *shard);
typedef struct neo_shard_stats {
    int64_t steps;            /* of the optimizer */
    int64_t out_of_range;     /* ids of this rank's samples that were dropped or clamped; of bags
                                 that repeat once */
    int64_t ids_given, ids_full; /* in this rank's batches with an inverse; written out */
    int64_t grow_count;
    neo_comm_stats ids, rows;   /* of its groups: lengths and ids; all else, */
    neo_comm_stats node, cross; /* but what adds inside nodes, and crosses then, */
    neo_comm_stats peers;       /* and what goes between replicas */
    neo_wire_stats forward, backward; /* of rows that this rank's processor coded; none of those of
                                         a device */
} neo_shard_stats;
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *shard);
NEO_API void neo_shard_reset_stats(neo_shard *shard);
/* neo_shard_key_stats: of a table with keys, this rank's share: those of all ranks add to the
   table's. */
NEO_API neo_key_stats neo_shard_key_stats(const neo_shard *shard, int32_t table);
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

   WITHOUT WINDOWS
   With NEO_FSDP_DDP nothing is cut: parameters and gradients are bound from neo_fsdp_create to
   _destroy, and windows are optional.
       per step:
         for (int piece = 0; piece < neo_fsdp_pieces(fsdp); piece++) {
             neo_leaves part = neo_fsdp_piece(fsdp, piece, batch);   its samples
             ... forward, the loss of these samples as above, backward with &part ...
             neo_fsdp_piece_end(fsdp);      of the last piece neo_fsdp_step does it
         }
         neo_fsdp_step(fsdp, lr);           or neo_fsdp_step_tables: reduces, clips, steps
   So where there is one piece (V/W is a power of two) and one micro-batch the step is the only
   call. A unit that has windows is reduced while others compute; the bits are the same.

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
   size, and up to two gradients of it, whole. DDP: Psi each, and beside them, where dtypes are
   narrow or pieces or micro-batches several, values or gradients of all units. neo_fsdp_predict
   says what exactly.
   ------------------------------------------------------------------------ */
typedef struct neo_fsdp neo_fsdp;

typedef enum neo_fsdp_mode {
    NEO_FSDP_FULL,  /* values, gradients, state are cut; F < W: inside groups of F ranks (hybrid) */
    NEO_FSDP_ZERO2, /* gathered values stay from their first window to the step */
    NEO_FSDP_ZERO1, /* and so do whole gradients: state alone is cut for good */
    NEO_FSDP_DDP,   /* nothing is cut: windows are optional */
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
    int freeze;         /* 1: values do not change; no gradients, no state. neo_mlp_backward goes
                           through it; other layers are given no tensors for its gradients */
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
   Of several ranks: until neo_fsdp_destroy the context's layers refuse leaves NULL, and its losses
   a gradient without desc->batch: both stand for a batch that this rank has alone.
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
   sends less than was predicted.
   neo_fsdp_piece_end: a piece of a micro-batch has had its backward. In DDP the gradients of units
   that had no window in it go their way, and all are bound for the next piece; the reduction of a
   micro-batch ends first. Not needed where all units have windows, in other modes a check that they
   had. Collective, as windows.
   Errors   NEO_ERR_STATE, here alone: a window is open; a unit lacks its window, or a gradient that
            nothing has written (the message names it; a device is not asked): nothing has changed.
            Or a recorded step has failed before: as of windows, below. Others: as backward_end. */
NEO_API int neo_fsdp_pieces(const neo_fsdp *fsdp);
NEO_API neo_status neo_fsdp_piece_end(neo_fsdp *fsdp);
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
            NEO_ERR_CAPACITY (not DDP): more units without `keep` open than slots, or for backward
            than 2 (1 with one slot). On this rank alone: the others wait until their timeout.
            NEO_ERR_DIVERGED: ranks open different units; the message names both, here or, if all
            had what they opened, in neo_fsdp_step. Those of >>comm-faults. An error of backward_end
            but NEO_ERR_STATE: the window is closed and its gradients are lost, though what ranks
            exchange goes on as far as it can; neo_fsdp_step is that error then, on all ranks, and
            the next step begins. Where a step that is recorded for a graph fails before backward
            windows in it, the gradients since the last neo_fsdp_step are void, as after
            neo_fsdp_cancel (where that is so on one rank of several, or units have no windows, it
            comes first). A backward without windows is recorded with what ends its piece. */
NEO_API neo_status neo_fsdp_forward_begin(neo_fsdp *fsdp, int unit);
NEO_API neo_status neo_fsdp_forward_end(neo_fsdp *fsdp, int unit);
NEO_API neo_status neo_fsdp_backward_begin(neo_fsdp *fsdp, int unit, int piece);
NEO_API neo_status neo_fsdp_backward_end(neo_fsdp *fsdp, int unit);
/* neo_fsdp_step: starts the reductions that no window has started, waits for all and steps the
   optimizer on this rank's chunks; micro-batches begin anew. With clip_norm the norm is of all
   gradients. Allocates nothing. With a loss scale a step whose gradients are not all finite is
   skipped on all ranks, and counted. lr is the same on all ranks.
   Cost     24 bytes between each two ranks, beside the reductions and what the optimizer asks.
   Errors   NEO_ERR_STATE: a window is open, a unit lacks windows or pieces, or (DDP) nothing has
            written a gradient: the message names it, here alone, and what lacks may still come.
            NEO_ERR_NUMERIC: as neo_optim_step. NEO_ERR_DIVERGED: ranks have opened other windows.
            On all ranks, and nothing has changed; the gradients are gone, the next step begins. */
NEO_API neo_status neo_fsdp_step(neo_fsdp *fsdp, float lr);
/* neo_fsdp_step_tables: neo_fsdp_step and neo_shard_step as one: the norm of clip_norm is that of
   all gradients, dense and kept, and limits both; with a loss scale all are divided by it (the loss
   that made the kept ones had it too), and where one is not finite neither steps, on all ranks.
   tables: of the same ranks, all of whose batches since its last step were accumulated.
   Cost     beside both steps: 128 bytes between each two ranks for the norm, 8 for a status.
   Errors   those of neo_shard_step, NEO_ERR_STATE of neo_fsdp_step, and of tables that had a
            forward and no gradients: nothing has changed, what is kept stays. Others of
            neo_fsdp_step: nothing has changed; all gradients are gone, the next step begins.
            NEO_ERR_ARG: an argument is NULL (here alone); clip_norm_type is 1 or infinity.
            NEO_ERR_DEVICE: before the units step, on all ranks, as those others. After that, here
            alone: the tables are broken, or, of one rank that has all of them, their gradients
            stay kept: neo_shard_scale_grads by neo_fsdp_clip_factor, neo_shard_step. */
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
/* neo_fsdp_norms: norms[i] = the norms of the gradient (of the last step, over the global batch)
   and of the values of parameter i, whatever its cut, as neo_optim_norms: units in their order,
   those that are not frozen. norms: neo_fsdp_norm_count of them. Collective, after a step and
   before the next backward, which writes where these gradients are.
   Errors   NEO_ERR_ARG: an argument is NULL. Those of the communicator. */
NEO_API int neo_fsdp_norm_count(const neo_fsdp *fsdp);
NEO_API neo_status neo_fsdp_norms(neo_fsdp *fsdp, neo_param_norm *norms);
/* neo_fsdp_histograms: of the same parameters, in the same order and at the same time; see
   neo_optim_histograms. */
NEO_API neo_status neo_fsdp_histograms(neo_fsdp *fsdp, neo_histogram *weights,
                                       neo_histogram *grads);
NEO_API void neo_fsdp_reset_stats(neo_fsdp *fsdp);

/* neo_state_add_fsdp: values, optimizer state, step and loss scale, under the names that
   neo_state_add_params and _optim give; each rank adds what it holds. Of the numeric definition it
   defines "micro_batches", "accumulate_groups", "leaf_pieces", "param_dtype" and "reduce_dtype",
   behind the optimizer's name and a dot. What windows gathered in this step is not read again:
   neo_fsdp_cancel comes between windows and a load. In DDP a load is seen at once: state is not
   loaded after neo_fsdp_destroy. */
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

/* ---------------------------------------------------------------------------
   >>towers

   Towers of features, for clusters whose links between nodes are slow (DMT, "Disaggregated
   Multi-Tower", arXiv 2403.00877). Each table belongs to a tower, and a tower to a node. The rows
   of a tower are pooled and exchanged inside its node, where a module of the caller (any layers)
   makes out_width columns of them; only these columns travel between nodes. With the tables on one
   rank, on many, on one node or on several: the same bits of weights, state and columns.

     per step, with this rank's samples of the batch:
       neo_towers_forward(towers, batch, global_batch);    ids to the nodes, pooled rows inside them
       for (k < neo_towers_held(towers)) { neo_tower t = neo_towers_at(towers, k);
           ... the module of tower t.tower: t.out from t.in ... }
       neo_towers_exchange(towers, z);          z [this rank's samples][towers][out_width]
       ... the layers over z, the loss, and back: dz ...
       neo_towers_exchange_back(towers, dz);
       for (each k) ... the module's backward: t.din from t.dout ...
       neo_towers_backward(towers, lr);         gradients of rows inside the node; a step

   Each of these calls is its begin and end in one. Between them the caller computes what does not
   wait for it: the bottom MLP while rows, then columns travel, its backward while gradients do.

   The modules see the samples of neo_towers_comm, a group of the node's ranks: of a batch those
   that neo_comm_samples says of that group, L ranks of it share the batch of all nodes. Their
   parameters belong in a neo_fsdp over that group, one unit a tower, under the same
   neo_optim_desc.name on all nodes; clipping by a norm would be of this node's towers alone.

   BYTES that all ranks together send in a step of B samples over N nodes (of them across nodes: the
   share (N - 1)/N with equal batches), beside those of neo_shard inside nodes:
     agree       16 between each two ranks
     lengths     4 for each bag whose tower is not this rank's to pool
     ids         of those bags, 4 or 8 for each id, as the batch has them, and 4 for its weight
     rows        forward and backward, for each sample and tower that meet on two ranks,
                 neo_wire_row_bytes(wire, out_width)
   A neo_shard over all nodes sends 4 dim of each table instead of the last, across as many.
   ------------------------------------------------------------------------ */
typedef struct neo_towers neo_towers;
typedef struct neo_towers_desc {
    const neo_plan_desc *plan;  /* required: tables and batches of all ranks (bags, ids_per_sample,
                                   table_placements ...), wires inside nodes. A plan for the tables
                                   of its towers is made on each node: cluster.ranks and
                                   .ranks_per_node are those of the group, pipeline and weight_grad
                                   are not read. Without NEO_POOL_NONE */
    const int32_t *table_tower; /* [plan->bags->table_count] the tower of each table; required */
    int32_t tower_count;        /* required; node n of N has towers [n T/N, (n + 1) T/N) */
    int64_t out_width;          /* columns that each module makes; required */
    neo_wire wire_forward, wire_backward; /* of these columns and their gradients */
} neo_towers_desc;

/* neo_towers_create: collective. Nodes are those of comm (neo_comm_desc.ranks_per_node), of equal
   size. Nothing of desc is needed after.
   Errors   on all ranks: NEO_ERR_ARG: a field, named; a tower without features; fewer towers than
            nodes; repro_shards below the ranks. NEO_ERR_UNSUPPORTED: a table of NEO_POOL_NONE.
            NEO_ERR_MISMATCH: another description than rank 0's. Those of neo_plan_create,
            neo_shard_create, neo_comm_split_nodes.
   Memory   neo_towers_bytes: exactly what it asks of the allocator on rank `rank` of `ranks`, with
            the neo_shard in it, the groups (neo_comm_workspace_bytes: two, and those of the
            neo_shard) apart. */
NEO_API NEO__CHECK_UNUSED neo_status neo_towers_create(neo_comm *comm, const neo_towers_desc *desc,
                                                       neo_towers **towers);
NEO_API void neo_towers_destroy(neo_towers *towers);
NEO_API neo_status neo_towers_bytes(neo_ctx *ctx, const neo_towers_desc *desc, int ranks,
                                    int ranks_per_node, int rank, size_t *bytes);

/* The calls of a step: collective, in the order above; forward may be called again without a
   backward (evaluation).
   Shapes    batch: as for neo_shard_forward, on the host. out, dout [B_r][T out_width] f32, last
             stride 1, where the context computes. in, din [n][sum of dims of the tower's
             features], its features in their order; out, dout [n][out_width]: views, with rows
             apart, of memory that the towers own, for n samples, until the next forward.
   Errors    on all ranks the status and message of the lowest rank that has one: those of
             neo_shard_forward and neo_shard_backward; NEO_ERR_ARG: batch is malformed or has
             weights that plan->weighted does not announce. A NULL argument, calls out of order, a
             wrong out or dout: NEO_ERR_ARG, NEO_ERR_STATE, NEO_ERR_SHAPE here alone, for which the
             others wait until their timeout.
   Lifetime  batch until forward_begin returns.
   Memory    nothing is allocated, unless a batch has more ids than planned: then buffers grow,
             counted in neo_towers_grow_count. */
typedef struct neo_tower {
    int32_t tower;                 /* its number among all */
    neo_tensor in, din, out, dout; /* din, out: to be written by its module */
} neo_tower;
NEO_API neo_status neo_towers_forward_begin(neo_towers *towers, const neo_jagged *batch,
                                            int64_t global_batch);
NEO_API neo_status neo_towers_forward_end(neo_towers *towers);
NEO_API neo_status neo_towers_exchange_begin(neo_towers *towers);
NEO_API neo_status neo_towers_exchange_end(neo_towers *towers, neo_tensor out);
NEO_API neo_status neo_towers_exchange_back_begin(neo_towers *towers, neo_tensor dout);
NEO_API neo_status neo_towers_exchange_back_end(neo_towers *towers);
NEO_API neo_status neo_towers_backward_begin(neo_towers *towers);
NEO_API neo_status neo_towers_backward_end(neo_towers *towers, float lr);
NEO_API neo_status neo_towers_forward(neo_towers *towers, const neo_jagged *batch,
                                      int64_t global_batch);
NEO_API neo_status neo_towers_exchange(neo_towers *towers, neo_tensor out);
NEO_API neo_status neo_towers_exchange_back(neo_towers *towers, neo_tensor dout);
NEO_API neo_status neo_towers_backward(neo_towers *towers, float lr);
NEO_API int neo_towers_held(const neo_towers *towers);
NEO_API neo_tower neo_towers_at(const neo_towers *towers, int k);
/* neo_towers_comm: the group of this node. neo_towers_shard: its tables (statistics, rows by hand).
   neo_towers_stats: of the exchanges between nodes. They are the towers'. */
NEO_API neo_comm *neo_towers_comm(const neo_towers *towers);
NEO_API neo_shard *neo_towers_shard(const neo_towers *towers);
NEO_API neo_comm_stats neo_towers_stats(const neo_towers *towers);
NEO_API int64_t neo_towers_grow_count(const neo_towers *towers);
/* neo_state_add_towers: the tables, and (or NULL) the neo_fsdp of the modules, so that the state of
   all ranks is whole: neo_state_digest_group and checkpoints know no nodes.
   Errors: those of neo_state_add_shard and neo_state_add_fsdp. */
NEO_API neo_status neo_state_add_towers(neo_state *state, neo_towers *towers, neo_fsdp *modules);

/* neo_tower_affinity: affinity [features][features] = the mean over the samples of |cosine| of two
   features' pooled rows, 0 where one is zeros; added up in f64, in order. rows: f32 [samples]
   [features x dim], on the host.
   neo_tower_partition: parts `count` features (or tables) in towers so that those with high
   affinity (above the mean) meet in one: greedily from the dearest on, then by the swap or move
   that helps most, until none does. A tower costs at most (1 + slack) of the even share, or as much
   as the dearest feature; more only where dealing the dearest first finds no room. cost NULL: all
   alike. Deterministic. tower: [count]. Memory: 8 count towers bytes while it runs.
   Errors   NEO_ERR_ARG: a NULL, an empty side, more towers than features, a cost or an affinity
            that is negative or not finite. NEO_ERR_SHAPE. NEO_ERR_MEMORY. */
NEO_API neo_status neo_tower_affinity(neo_ctx *ctx, neo_tensor rows, int32_t features,
                                      double *affinity);
NEO_API neo_status neo_tower_partition(neo_ctx *ctx, const double *affinity, const double *cost,
                                       int32_t count, int32_t towers, double slack,
                                       int32_t *tower);

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
#include "neo_plan.h" /* its implementation, if it was included without before */
#include <math.h>

NEO_EXACT_BEGIN
NEO__FEW_PASSES
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-shard

   Pooled rows and their gradients are a matrix, `local`: one row per sample of the global batch,
   with the columns of this rank's routes. neo_bags pools into it and steps by it. Ranks hold
   consecutive samples, so the rows that go to a rank are consecutive. See >>impl-shard-rows for
   their way, >>impl-shard-ids for that of ids.

   The struct, its sizes and arrays are in neo_plan.h, which predicts them (>>impl-shard-memory
   there); with the map that they follow from (>>impl-shard-map) and the lists of what is done to
   rows (>>impl-shard-lists). Of the planner a neo_shard uses its calls, neo__plan_check and _hash.
   ------------------------------------------------------------------------ */
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
/* A buffer as a tensor of bytes, where the context computes. */
static neo_tensor neo__buffer_tensor(neo_ctx *ctx, const neo__buffer *b) {
    neo_tensor t = neo_tensor_1d(b->data, NEO_U8, (int64_t)b->bytes);
    t.place = neo_ctx_device(ctx) ? NEO_DEVICE : NEO_HOST;
    return t;
}
/* Allocate it there; no memory for no bytes. */
static neo_status neo__buffer_take(neo_ctx *ctx, neo__buffer *buffer, size_t bytes) {
    neo_tensor t;
    int64_t count = (int64_t)bytes;
    if (bytes == 0) return NEO_OK;
    neo__live_inside(ctx, 1);
    neo_status status = neo_tensor_alloc(ctx, NEO_U8, 1, &count, &t);
    neo__live_inside(ctx, -1);
    NEO__TRY(status);
    buffer->data = t.data;
    buffer->bytes = bytes;
    return NEO_OK;
}
static void neo__buffer_give_back(neo_ctx *ctx, neo__buffer *b) {
    neo_tensor t = neo__buffer_tensor(ctx, b);
    neo__live_inside(ctx, 1);
    if (b->data) neo_tensor_free(ctx, &t);
    b->data = NULL;
    neo__live_inside(ctx, -1);
}
static void neo__shard_let_go(neo_shard *s, neo__buffer *buffer, int there) {
    if (there) neo__buffer_give_back(s->ctx, buffer);
    else neo__pinned_free(s->ctx, buffer->data, buffer->bytes);
}
/* Room for so many things of `each` bytes in pinned memory, or, `there`, on the device; what was
   there is lost if it grows. */
static neo_status neo__shard_grow(neo_shard *shard, neo__buffer *buffer, int64_t count, size_t each,
                                  int there) {
    const size_t bytes = (size_t)count * each;
    neo__buffer more = {NULL, bytes};
    if (bytes <= buffer->bytes) return NEO_OK;
    if (there) NEO__TRY(neo__buffer_take(shard->ctx, &more, bytes));
    else more.data = neo__pinned_alloc(shard->ctx, bytes);
    NEO__CHECK(more.data, NEO_ERR_MEMORY, "neo_shard: no memory for %zu bytes of ids", bytes);
    if (shard->made) shard->grow_count++;
    neo__shard_let_go(shard, buffer, there);
    *buffer = more;
    return NEO_OK;
}
static neo_status neo__shard_cut_sums(void *user, const neo_cut_sums *cuts,
                                      int32_t count); /* >>impl-shard-cut */
static neo_status neo__shard_make_lists(neo_shard *s); /* >>impl-shard-rows */

/* The groups of ranks, those that take rows first; each once: NULL, where it is one before, or not
   there. */
enum { NEO__SHARD_ROW_GROUPS = 4, NEO__SHARD_GROUPS = 9 };
static void neo__shard_groups(const neo_shard *s, neo_comm *groups[NEO__SHARD_GROUPS]) {
    neo_comm *const all[NEO__SHARD_GROUPS] = {s->rows,  s->moves,    s->every, s->sums, s->ids,
                                              s->peers, s->id_moves, s->node,  s->cross};
    for (int i = 0; i < NEO__SHARD_GROUPS; i++) {
        groups[i] = all[i];
        for (int k = 0; k < i; k++)
            if (all[k] == all[i]) groups[i] = NULL;
    }
}
NEO_API void neo_shard_destroy(neo_shard *shard) {
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    if (!shard) return;
    neo__live_end(shard->ctx, &shard->live);
    if (shard->lends) neo__comm_bequeath(shard->rows, shard->work, shard->work_bytes);
    neo_comm *groups[NEO__SHARD_GROUPS];
    neo__shard_groups(shard, groups);
    for (int i = NEO__SHARD_GROUPS - 1; i >= 0; i--) neo_comm_destroy(groups[i]);
    neo_bags_destroy(shard->bags);
    neo_bags_destroy(shard->replicas);
    if (shard->exchange.joined) neo__event_free(shard->ctx, shard->exchange.joined);
    if (!shard->lends) neo__pinned_free(shard->ctx, shard->work, shard->work_bytes);
    neo__buffer_give_back(shard->ctx, &shard->pooled.memory);
    if (shard->map) {
        const int buffers = neo__shard_growing(shard, growing);
        for (int i = 0; i < buffers; i++)
            neo__shard_let_go(shard, growing[i].buffer, growing[i].there);
        neo__shard_map_destroy(shard->map);
    }
    neo_free(shard->ctx, shard, sizeof *shard);
}

/* Arrays, buffers and lists. */
static neo_status neo__shard_make_work(neo_shard *shard) {
    neo__shard_demand growing[NEO__SHARD_BUFFERS];
    NEO__ZERO(neo__carve, carve);
    neo__shard_measure(shard, neo_ctx_repro_shards(shard->ctx));
    neo__shard_layout(shard, &carve);
    shard->work_bytes = carve.at;
    shard->work = carve.block = (char *)neo__pinned_alloc(shard->ctx, shard->work_bytes);
    NEO__CHECK(shard->work, NEO_ERR_MEMORY, "neo_shard_create: no memory for %zu bytes",
               shard->work_bytes);
    carve.at = 0;
    neo__shard_layout(shard, &carve);
    neo__shard_fill(shard->kept.ids, 0, (size_t)shard->kept.parts * sizeof *shard->kept.ids);
    const int buffers = neo__shard_growing(shard, growing);
    for (int i = 0; i < buffers; i++)
        NEO__TRY(neo__shard_grow(shard, growing[i].buffer, growing[i].count, growing[i].size,
                                 growing[i].there));
    return neo__shard_make_lists(shard);
}
static neo_status neo__shard_make_bags(neo_shard *shard) {
    neo_bags_desc d[2];
    neo_bags **bags[] = {&shard->bags, &shard->replicas};
    neo__arena arena = {shard->ctx, NULL, NULL, 0, "neo_shard_create"};
    neo_status status = neo__shard_descs(shard, &arena, d);
    d[0].cut_sums = neo__shard_cut_sums;
    d[0].cut_sums_user = shard;
    for (int i = 0; i < 2 && status == NEO_OK; i++)
        if (d[i].table_count) status = neo_bags_create(shard->ctx, &d[i], bags[i]);
    neo__arena_free(&arena);
    if (shard->bags && shard->pooled.on_device) neo__bags_cut_there(shard->bags);
    return status;
}
/* Gradients of a group that is merged add to one subtree of the leaf tree. */
static neo_status neo__shard_check_subtree(const neo_shard *shard) {
    const int leaves = neo_ctx_repro_shards(shard->ctx), groups = shard->map->groups,
              each = leaves / groups;
    NEO__CHECK(shard->map->sync > 0 || (leaves % groups == 0 && (each & (each - 1)) == 0),
               NEO_ERR_UNSUPPORTED,
               "neo_shard_create: repro_shards is %d: for NEO_SYNC_MERGED of %d replicas it must "
               "be %d times a power of two",
               leaves, groups, groups);
    return NEO_OK;
}
/* All that needs no other rank. *out may be made in part where it fails. */
static neo_status neo__shard_make(neo_comm *comm, const neo_plan *plan, neo_shard **out) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    const neo_plan_desc *d = neo_plan_desc_of(plan);
    int ranks = neo_comm_size(comm), groups = NEO__MAX(d->replicas, 1), each = d->cluster.ranks;
    NEO__CHECK(each * groups == ranks, NEO_ERR_ARG,
               "neo_shard_create: the plan is for %d ranks%s, the group has %d", each * groups,
               groups > 1 ? " (replicas of cluster.ranks)" : "", ranks);
    NEO__CHECK(neo_ctx_repro_shards(ctx) >= ranks, NEO_ERR_ARG,
               "neo_shard_create: repro_shards is %d: it must be at least the %d ranks",
               neo_ctx_repro_shards(ctx), ranks);
    neo_shard *s = *out = (neo_shard *)neo__alloc_for(ctx, sizeof *s, "neo_shard_create");
    if (!s) return NEO_ERR_MEMORY;
    neo__shard_fill((void *)s, 0, sizeof *s);
    s->ctx = ctx;
    s->rank = neo_comm_rank(comm) % each;
    s->group = neo_comm_rank(comm) / each;
    neo__shard_map *map;
    NEO__TRY(neo__shard_map_create(ctx, plan, &map));
    neo__shard_take_map(s, map);
    s->whole = neo__shard_is_whole(s->map);
    if (s->whole) return neo_bags_create(ctx, &s->map->desc, &s->bags);
    NEO__TRY(neo__shard_make_work(s));
    NEO__CHECK(s->map->sync > 0 || !neo_ctx_device(ctx), NEO_ERR_UNSUPPORTED,
               "neo_shard_create: NEO_SYNC_MERGED on a device");
    NEO__TRY(neo__shard_check_subtree(s));
    if (s->map->device_ids > 1) {
        s->exchange.joined = neo__event_make(ctx);
        if (!s->exchange.joined) return NEO_ERR_DEVICE; /* neo_last_error says why */
    }
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
static void neo__shard_mark_table(uint64_t *mark, const neo_table_desc *table) {
    const neo_bag_optim *o = &table->optim;
    const neo_keys *keys = &table->keys;
    const double numbers[] = {
        (double)table->pooling, (double)table->row_buckets, (double)table->dtype,
        (double)table->init.kind, (double)table->init.a, (double)table->init.b,
        (double)table->round_nearest, (double)keys->on, (double)keys->evict, (double)keys->period,
        (double)keys->admit, (double)keys->shared, (double)keys->bloom, (double)keys->sums,
        (double)o->kind, (double)o->decay, (double)o->weight_decay, (double)o->eps,
        (double)o->momentum, (double)o->eta, (double)o->lr_scale, (double)o->max_norm,
        (double)o->l1, (double)o->clip_gradient, (double)o->initial_accumulator, o->beta1,
        o->beta2};
    *mark = neo__plan_hash(*mark, neo_hash(table->name));
    neo__alike_numbers(mark, numbers, sizeof numbers / sizeof *numbers);
}
static neo_status neo__shard_check_alike(neo_comm *comm, const neo__shard_map *map,
                                         const neo_plan *plan) {
    const neo_ctx *ctx = neo_comm_ctx(comm);
    NEO__ZERO(neo__alike, alike);
    neo__alike *const a = &alike;
    neo__alike_add(a, "a device on this rank or on rank 0 alone: all have one, or none",
                   neo_ctx_device(ctx) != NULL);
    neo__alike_add(a, "another seed of the context than rank 0", neo_ctx_seed(ctx));
    neo__alike_add(a, "other repro_shards of the context than rank 0",
                   (uint64_t)neo_ctx_repro_shards(ctx));
    uint64_t *mark = neo__alike_add(a, "other bags than rank 0: name, bounds, inverse or max_batch",
                                    neo_hash(map->desc.name));
    *mark = neo__plan_hash(*mark, (uint64_t)map->desc.bounds);
    *mark = neo__plan_hash(*mark, (uint64_t)map->desc.max_batch);
    *mark = neo__plan_hash(*mark, (uint64_t)map->desc.inverse);
    mark = neo__alike_add(a, "other tables of features than rank 0", (uint64_t)map->feature_count);
    for (int32_t f = 0; f < map->feature_count; f++)
        *mark = neo__plan_hash(*mark, (uint64_t)map->feature_table[f]);
    mark = neo__alike_add(
        a, "other tables than rank 0: names, dtypes, pooling, initial values, keys or optimizers",
        (uint64_t)map->table_count);
    for (int32_t t = 0; t < map->table_count; t++) neo__shard_mark_table(mark, &map->tables[t]);
    mark = neo__alike_add(a, "other wires than rank 0", (uint64_t)map->wire[0]);
    *mark = neo__plan_hash(*mark, (uint64_t)map->wire[1]);
    const double options[] = {(double)map->pipeline, (double)map->weighted,
                              (double)map->weight_grad, (double)map->kept_batches,
                              (double)map->skips,       (double)map->per_node,
                              (double)map->device_ids};
    mark = neo__alike_add(a, "another pipeline, weighted, weight_grad, kept_batches, device_ids, "
                             "skip_empty or ranks_per_node than rank 0", 0);
    neo__alike_numbers(mark, options, sizeof options / sizeof *options);
    mark = neo__alike_add(a, "other replicas or sync_every than rank 0", (uint64_t)map->groups);
    *mark = neo__plan_hash(*mark, (uint64_t)map->sync);
    neo__alike_add(
        a,
        "another plan than rank 0: of tables of other rows or columns, or of other figures (what "
        "neo_calibrate measures differs: broadcast rank 0's)",
        neo_plan_digest(plan));
    return neo__alike_check(comm, a, "neo_shard_create");
}
/* Groups of its own; data: the one that was given, of devices if it is over NCCL. */
static neo_status neo__shard_split(neo_shard *shard, neo_comm *comm, neo_comm *data) {
    const int rank = neo_comm_rank(comm), per_node = shard->map->per_node;
    const int first = shard->group * shard->map->ranks, nodes = shard->map->nodes;
    neo_comm *from = shard->pooled.on_device ? data : comm;
    neo_status (*split)(neo_comm *, int, int, neo_comm **) =
        shard->pooled.on_device ? neo_comm_split_device : neo_comm_split;
    NEO__TRY(neo_comm_split(comm, 0, rank, &shard->ids));
    NEO__TRY(neo_comm_split(comm, shard->group, rank, &shard->rows));
    shard->moves = shard->every = shard->rows;
    shard->lends = neo__comm_lends(shard->rows) && !neo_ctx_device(shard->ctx) &&
                   !shard->map->none && !shard->map->skips && shard->map->mid_count == 0 &&
                   shard->map->wire[0] == NEO_WIRE_F32 && shard->map->wire[1] == NEO_WIRE_F32;
    if (shard->map->groups > 1) {
        NEO__TRY(neo_comm_split(comm, 0, rank, &shard->every));
        NEO__TRY(split(from, shard->rank, rank, &shard->peers));
    }
    if (shard->pooled.on_device) NEO__TRY(split(from, shard->group, rank, &shard->moves));
    shard->sums = shard->map->groups > 1 ? shard->every : shard->moves;
    if (shard->map->groups > 1 && shard->pooled.on_device && shard->replicas)
        NEO__TRY(split(from, 0, rank, &shard->sums));
    if (shard->map->device_ids) NEO__TRY(split(from, 0, rank, &shard->id_moves));
    if (!shard->map->mid_count) return NEO_OK;
    NEO__TRY(split(from, shard->group * nodes + shard->rank / per_node, rank, &shard->node));
    return split(from, first + shard->rank % per_node, rank, &shard->cross);
}
NEO_API neo_status neo_shard_create(neo_comm *comm, const neo_plan *plan, neo_shard **out) {
    NEO__CHECK(comm && plan && out, NEO_ERR_ARG, "neo_shard_create: an argument is NULL");
    neo_comm *data = comm;
    *out = NULL;
    NEO__TRY(neo__fsdp_host_group(&comm, "neo_shard_create"));
    neo_shard *shard = NULL;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo__live_inside(ctx, 1);
    neo_status status = neo_comm_agree(comm, neo__shard_make(comm, plan, &shard));
    if (status == NEO_OK) status = neo__shard_check_alike(comm, shard->map, plan);
    if (status == NEO_OK && !shard->whole) status = neo__shard_split(shard, comm, data);
    neo__live_inside(ctx, -1);
    if (status != NEO_OK) {
        neo_shard_destroy(shard);
        return status;
    }
    neo__live_begin(ctx, &shard->live, "shard", shard->map->desc.name);
    shard->made = 1;
    *out = shard;
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-ids

   Ids of a batch, from the ranks of the samples to those of the rows. A sender counts its sources,
   the ids of each flow that any rank wants, and puts them where they leave, once for each rank; a
   rank gets for each of its flows the lengths of all bags, then the ids, and puts those of all
   ranks together, route by route, in order of sample. One batch at a time is between its check and
   NEO__SHARD_READY, so that one exchange serves all batches.

   Of a batch with an inverse the ids of each bag leave once. Where a sample reads a bag that one
   before it on its rank has read, its length is ~u, u being the bag's number on that rank. So the
   lengths take no more bytes, and the receiver numbers the bags of all ranks as they come.
   ------------------------------------------------------------------------ */
static int64_t neo__shard_samples(const neo__shard_batch *b, int rank) {
    return b->start[rank + 1] - b->start[rank];
}
NEO__INLINE int64_t neo__shard_id(const neo_jagged *j, int64_t k) {
    return j->id_dtype == NEO_I32 ? (int64_t)((const int32_t *)j->ids)[k]
                                  : ((const int64_t *)j->ids)[k];
}
static neo_status neo__shard_outside(const neo_shard *shard, const neo__shard_batch *batch,
                                     int32_t f, int64_t sample, int64_t position, int64_t id) {
    const neo__shard_map *m = shard->map;
    const neo_table_desc *table = &m->tables[m->feature_table[f]];
    return neo_fail(NEO_ERR_RANGE,
                    "neo_shard: bags '%s': table '%s' (feature %d), sample %" PRId64
                    ", position %" PRId64 ": id %" PRId64 " is not in [0, %" PRId64 ")",
                    m->desc.name, table->name, f, batch->begin[neo__shard_place(shard)] + sample,
                    position, id, table->rows);
}
static neo_status neo__shard_bad_id(const neo_shard *shard, const neo__shard_batch *batch,
                                    int32_t f, int64_t k) {
    const neo_jagged *j = &batch->batch;
    const int64_t *offsets = j->offsets + neo__jagged_first_bag(j, f);
    int64_t bag = 0, sample = 0;
    while (offsets[bag + 1] <= k) bag++;
    while (neo__jagged_bag(j, f, sample) < neo__jagged_first_bag(j, f) + bag) sample++;
    return neo__shard_outside(shard, batch, f, sample, k - offsets[bag], neo__shard_id(j, k));
}
NEO__HOT_BEGIN
static int64_t neo__shard_sum_lengths(const int32_t *lengths, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += NEO__MAX(lengths[i], 0);
    return sum;
}
/* The row an id stands for, of a key the first of its set; -1: none. */
NEO__INLINE int64_t neo__shard_row(neo_bounds bounds, const neo_table_desc *table, int64_t id) {
    if (table->keys.on) return neo__lines_first((uint64_t)id, table->rows);
    if (id >= 0 && id < table->rows) return id;
    if (bounds == NEO_BOUNDS_DROP) return -1;
    return id < 0 ? 0 : table->rows - 1;
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
/* Lengths of the sources of a feature, and their ids in all. Returns how many ids are outside the
   table; *bad_at: the first of them. */
static int64_t neo__shard_count_sources(neo_shard *shard, neo__shard_batch *batch, int32_t f,
                                        int64_t *bad_at) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *j = &batch->batch;
    const int64_t first = map->first_source[f], end = map->first_source[f + 1];
    const neo_table_desc *table = &map->tables[map->feature_table[f]];
    const int64_t rows = table->keys.on ? 0 : table->rows, samples = j->batch;
    const int64_t *offsets = j->offsets + neo__jagged_first_bag(j, f);
    const int32_t *inverse = j->inverse ? j->inverse + f * samples : NULL;
    int32_t *lengths = shard->exchange.source_lengths;
    int64_t bad = 0, bag = 0;
    neo__shard_fill(lengths + first * samples, 0,
                    (size_t)((end - first) * samples) * sizeof *lengths);
    for (int64_t i = 0; i < samples; i++) {
        if (inverse && inverse[i] < bag) {
            for (int64_t u = first; u < end; u++) lengths[u * samples + i] = ~inverse[i];
            continue;
        }
        for (int64_t k = offsets[bag]; k < offsets[bag + 1]; k++) {
            int64_t id = neo__shard_id(j, k), row = neo__shard_row(map->desc.bounds, table, id);
            if (rows && (id < 0 || id >= rows) && bad++ == 0) *bad_at = k;
            if (row < 0 || first == end) continue;
            lengths[neo__shard_source_of(map, f, row) * samples + i]++;
        }
        bag++;
    }
    for (int64_t u = first; u < end; u++)
        batch->sent[u] = neo__shard_sum_lengths(lengths + u * samples, samples);
    return bad;
}
/* Ids of a feature that has sources, at their cursors. */
static void neo__shard_place_sources(neo_shard *shard, const neo__shard_batch *batch, int32_t f) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *jagged = &batch->batch;
    const neo_table_desc *table = &map->tables[map->feature_table[f]];
    const int64_t begin = jagged->offsets[neo__jagged_first_bag(jagged, f)],
                  end = jagged->offsets[neo__jagged_first_bag(jagged, f + 1)];
    float *weights = (float *)shard->exchange.out[1].data;
    void *ids = shard->exchange.out[0].data;
    if (map->first_source[f] == map->first_source[f + 1]) return;
    for (int64_t k = begin; k < end; k++) {
        const int64_t id = neo__shard_id(jagged, k);
        int64_t row = neo__shard_row(map->desc.bounds, table, id);
        if (row < 0) continue;
        int64_t u = neo__shard_source_of(map, f, row), at = shard->exchange.cursor[u]++;
        row = table->keys.on ? id : row - map->sources[u].first_row;
        if (map->id_dtype == NEO_I32) ((int32_t *)ids)[at] = (int32_t)row;
        else ((int64_t *)ids)[at] = row;
        if (map->weighted) weights[at] = jagged->weights ? jagged->weights[k] : 1.0f;
    }
}
/* offsets[1 + i] = the sum of all lengths before and of lengths[i], from `at` on. */
static void neo__shard_sum_offsets(const int32_t *lengths, int64_t count, int64_t at,
                                   int64_t *offsets) {
    for (int64_t i = 0; i < count; i++) offsets[1 + i] = at += lengths[i];
}
/* The same of lengths some of which stand for bags that are there: bags go from *bags on, and
   inverse says which of them each sample reads, counted from `first`. */
static void neo__shard_number_bags(const int32_t *lengths, int64_t count, int64_t at, int64_t first,
                                   int64_t *offsets, int64_t *bags, int32_t *inverse) {
    const int64_t base = *bags - first;
    for (int64_t i = 0; i < count; i++) {
        inverse[i] = (int32_t)(lengths[i] < 0 ? base + ~lengths[i] : *bags - first);
        if (lengths[i] >= 0) offsets[++*bags] = at += lengths[i];
    }
}
/* The lengths of the bags of a flow in all ranges of rows, dropped ids among them. */
static void neo__shard_whole_lengths(const neo_jagged *j, int32_t feature, int32_t *lengths) {
    for (int64_t i = 0; i < j->batch; i++) {
        const int64_t *offset = j->offsets + neo__jagged_bag(j, feature, i);
        lengths[i] = (int32_t)(offset[1] - offset[0]);
    }
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
    const int there = s->map->device_ids; /* weights first: room for ids is room for weights, too */
    if (s->map->weighted) NEO__TRY(neo__shard_grow(s, &b[1], count, sizeof(float), there));
    return neo__shard_grow(s, &b[0], count, neo_dtype_size(s->map->id_dtype), there);
}
/* Ids where they leave. Those of a source are placed where its first flow leaves, and copied to the
   others. */
static neo_status neo__shard_place_ids(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *x = &shard->exchange;
    const int64_t flows = map->flow_count * neo__shard_spread(map);
    x->out_at[0] = 0;
    for (int64_t i = 0; i < flows; i++)
        x->out_at[i + 1] = x->out_at[i] + batch->sent[map->flows[i % map->flow_count].source];
    for (int64_t i = map->flow_count; i-- > 0;) x->cursor[map->flows[i].source] = x->out_at[i];
    NEO__TRY(neo__shard_reserve_ids(shard, x->out, x->out_at[flows]));
    for (int32_t f = 0; f < map->feature_count; f++) neo__shard_place_sources(shard, batch, f);
    for (int64_t i = 0; i < flows; i++) {
        int64_t u = map->flows[i % map->flow_count].source;
        int64_t first = x->cursor[u] - batch->sent[u];
        if (first != x->out_at[i])
            neo__shard_copy_ids(map, x->out, x->out_at[i], x->out, first, batch->sent[u]);
    }
    return NEO_OK;
}
/* ---- where ids stay on the device (neo_plan_desc.device_ids) ----
   The batch is split there by sources, and joined to flows. Ranks tell each other how many ids each
   flow has, in host memory; then lengths and ids go from device to device, and are joined to
   routes. */
/* A join of so many runs of `run`, of bags of one source. */
static neo__join_call neo__shard_join_of(const neo_shard *s, const neo__ids_source *source,
                                         int64_t runs) {
    NEO__ZERO(neo__join_call, call);
    call.run = s->exchange.run;
    call.runs = runs;
    call.source = source;
    call.sources = 1;
    if (runs > 0) call.bags = call.run[runs - 1].to + call.run[runs - 1].bags;
    call.id_dtype = s->map->id_dtype;
    return call;
}
/* The next run; returns the bags up to its end. */
static int64_t neo__shard_add_run(neo_shard *s, int64_t i, int64_t to, int64_t bags, int64_t from,
                                  int64_t from_id) {
    const neo__ids_run run = {bags, from, from_id, to, 1, 0, 0, 0};
    s->exchange.run[i] = run;
    return to + bags;
}
/* The same: the bags of feature f of this rank's n samples from `begin` on, which is a run of a
   join by neo__shard_own_of. */
static int64_t neo__shard_add_own(neo_shard *s, int64_t i, int64_t to, int64_t n, int32_t f,
                                  int64_t begin) {
    const neo_jagged *j = &s->now->batch;
    const int64_t first = neo__jagged_first_bag(j, f), at = f * j->batch + begin;
    const int64_t end = neo__shard_add_run(s, i, to, n, j->inverse ? first : at, at);
    s->exchange.run[i].listed = neo__jagged_first_bag(j, f + 1) - first;
    return end;
}
static neo__join_call neo__shard_own_of(const neo_shard *s, const neo__ids_source *source,
                                        int64_t runs) {
    neo__join_call call = neo__shard_join_of(s, source, runs);
    call.list = s->now->batch.inverse;
    return call;
}
/* Bags of so many lengths, whose ids and weights are in two buffers. */
static neo__ids_source neo__shard_source(const neo__shard_map *map, const int32_t *lengths,
                                         const neo__buffer from[2]) {
    NEO__ZERO(neo__ids_source, source);
    source.lengths = lengths;
    source.length_dtype = NEO_I32;
    source.ids = from[0].data;
    source.id_dtype = map->id_dtype;
    source.weights = map->weighted ? (const float *)from[1].data : NULL;
    return source;
}
/* Ids and weights to two buffers, which have room for `ids`. */
static void neo__shard_join_to(neo__join_call *call, const neo__buffer to[2], int64_t ids) {
    call->to_ids = to[0].data;
    call->to_weights = call->source->weights ? (float *)to[1].data : NULL;
    call->max_ids = ids;
}
/* The batch of n samples that it makes. Without ids there may be no memory for them. */
static neo_jagged neo__shard_joined(const neo__join_call *call, int64_t n) {
    NEO__ZERO(neo_jagged, jagged);
    jagged.batch = n;
    jagged.id_dtype = call->id_dtype;
    jagged.offsets = call->to_offsets;
    jagged.ids = call->to_ids ? call->to_ids : call->to_offsets;
    jagged.weights = call->to_weights;
    jagged.place = NEO_DEVICE;
    return jagged;
}
/* Ids of a batch that there is room for where it is split. */
static int64_t neo__shard_own_room(const neo_shard *s, const neo__shard_batch *b) {
    const int64_t ids = (int64_t)(s->exchange.own[0].bytes / neo_dtype_size(s->map->id_dtype));
    const int64_t places = (int64_t)(b->places.bytes / sizeof(int32_t));
    return s->per_id.places ? NEO__MIN(ids, places) : ids;
}
static neo_status neo__shard_split_there(neo_shard *shard, const neo__shard_batch *batch,
                                         neo__split_found *found) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *x = &shard->exchange;
    NEO__ZERO(neo__split_call, call);
    for (int32_t f = 0; f < map->feature_count; f++)
        x->table_rows[f] = map->tables[map->feature_table[f]].rows;
    for (int64_t u = 0; u < map->source_count; u++) x->source_row[u] = map->sources[u].first_row;
    call.batch = &batch->batch;
    call.rows = x->table_rows;
    call.first_part = map->first_source;
    call.part_row = x->source_row;
    call.bounds = map->desc.bounds;
    call.max_ids = neo__shard_own_room(shard, batch);
    call.places = shard->per_id.places ? (int32_t *)batch->places.data : NULL;
    call.id_dtype = map->id_dtype;
    call.ids = x->own[0].data;
    call.weights = map->weighted ? (float *)x->own[1].data : NULL;
    call.lengths = x->source_lengths;
    call.counts = x->source_counts;
    call.found = found;
    return neo__device_split(shard->ctx, &call, "neo_shard");
}
static neo_status neo__shard_place_there(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *x = &shard->exchange;
    const int64_t mine = batch->batch.batch;
    neo__split_found found;
    NEO__TRY(neo__shard_split_there(shard, batch, &found));
    if (found.id < 0 && found.ids > neo__shard_own_room(shard, batch)) {
        NEO__TRY(neo__shard_reserve_ids(shard, x->own, found.ids)); /* nothing has been done yet */
        if (shard->per_id.places)
            NEO__TRY(neo__shard_grow(shard, &batch->places, found.ids, sizeof(int32_t), 1));
        NEO__TRY(neo__shard_split_there(shard, batch, &found));
    }
    if (found.id >= 0)
        return neo__shard_outside(shard, batch, (int32_t)found.feature, found.sample,
                                  found.first + found.id - found.begin, found.what);
    shard->out_of_range += found.outside;
    batch->copied = 0;
    batch->given = found.ids;
    if (batch->batch.inverse) shard->ids_given += found.ids;
    for (int32_t f = 0; f < map->feature_count; f++) {
        batch->given_of[f] = x->source_counts[map->source_count + f];
        if (batch->batch.inverse) shard->ids_full += batch->given_of[f];
    }
    for (int64_t q = 0; q < map->replica_count; q++)
        batch->copied += batch->given_of[map->replicas[q]];
    for (int64_t u = 0, at = 0; u < map->source_count; u++) {
        batch->sent[u] = x->source_counts[u];
        x->cursor[u] = at;
        at += batch->sent[u];
    }
    x->out_at[0] = 0;
    for (int64_t i = 0, bags = 0; i < map->flow_count; i++) {
        const int64_t u = map->flows[i].source;
        x->out_at[i + 1] = x->out_at[i] + batch->sent[u];
        bags = neo__shard_add_run(shard, i, bags, mine, u * mine, x->cursor[u]);
    }
    NEO__TRY(neo__shard_reserve_ids(shard, x->out, x->out_at[map->flow_count]));
    const neo__ids_source source = neo__shard_source(map, x->source_lengths, x->own);
    neo__join_call call = neo__shard_join_of(shard, &source, map->flow_count);
    call.to_lengths = x->lengths_out;
    neo__shard_join_to(&call, x->out, x->out_at[map->flow_count]);
    return neo__device_join(shard->ctx, &call);
}
/* Lengths of this rank's bags that divide. */
static neo_status neo__shard_lengths_there(neo_shard *shard) {
    const neo__shard_map *m = shard->map;
    const int64_t n = shard->now->batch.batch;
    if (m->mean_count == 0) return NEO_OK;
    for (int32_t f = 0; f < m->feature_count; f++)
        if (m->mean_row[f] >= 0)
            (void)neo__shard_add_own(shard, m->mean_row[f], m->mean_row[f] * n, n, f, 0);
    const neo__ids_source source = neo__ids_source_of(&shard->now->batch);
    neo__join_call call = neo__shard_own_of(shard, &source, m->mean_count);
    call.to_lengths = shard->pooled.lengths;
    return neo__device_join(shard->ctx, &call);
}
/* Features of data-parallel tables, of n of this rank's samples, from `begin` on. */
static neo_status neo__shard_copies_there(neo_shard *shard, int64_t begin, int64_t n,
                                          neo_jagged *jagged) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *from = &shard->now->batch;
    neo__buffer *to = shard->copies.ids_of;
    const int64_t ids = shard->now->copied;
    for (int64_t q = 0; q < map->replica_count; q++)
        (void)neo__shard_add_own(shard, q, q * n, n, map->replicas[q], begin);
    NEO__TRY(neo__shard_grow(shard, &to[0], ids, neo_dtype_size(from->id_dtype), 1));
    if (from->weights) NEO__TRY(neo__shard_grow(shard, &to[1], ids, sizeof(float), 1));
    NEO__TRY(neo_bags_reserve(shard->replicas, n, ids));
    neo__bags_vouch(shard->replicas, ids);
    const neo__ids_source source = neo__ids_source_of(from);
    neo__join_call call = neo__shard_own_of(shard, &source, map->replica_count);
    call.id_dtype = from->id_dtype;
    call.to_offsets = shard->copies.offsets;
    neo__shard_join_to(&call, to, ids);
    *jagged = neo__shard_joined(&call, n);
    jagged->feature_count = (int32_t)map->replica_count;
    return neo__device_join(shard->ctx, &call);
}
/* The first sample of a rank in a batch; of rank `ranks` the batch. */
static int64_t neo__first_sample(int64_t batch, int leaves, int ranks, int rank) {
    return neo_leaf_begin(batch, leaves, (int)neo_leaf_begin(leaves, ranks, rank));
}
static void neo__shard_place_samples(neo_shard *shard, neo__shard_batch *batch) {
    const int leaves = neo_ctx_repro_shards(shard->ctx), all = neo__shard_all(shard->map);
    const int ranks = shard->map->ranks, first = shard->group * ranks;
    for (int r = 0; r <= all; r++) batch->begin[r] = neo__first_sample(batch->all, leaves, all, r);
    for (int r = 0; r <= ranks; r++)
        batch->start[r] = batch->begin[first + r] - batch->begin[first];
    batch->global = batch->start[ranks];
    if (neo__shard_spread(shard->map) == 1) return;
    neo__shard_batch *full = &shard->full[batch - shard->batches];
    full->start = batch->begin;
    full->global = batch->all;
}
/* Samples whose ids come here, of the ranks before rank r of all; of that rank. */
static int64_t neo__shard_before(const neo_shard *s, const neo__shard_batch *b, int r) {
    const int place = r - s->group * s->map->ranks;
    if (s->map->sync == 1) return b->begin[r];
    return b->start[NEO__MIN(NEO__MAX(place, 0), s->map->ranks)];
}
static int64_t neo__shard_coming(const neo_shard *s, const neo__shard_batch *b, int r) {
    return neo__shard_before(s, b, r + 1) - neo__shard_before(s, b, r);
}
/* The place of a rank's group among those that get this rank's ids, or -1. */
static int neo__shard_turn(const neo_shard *s, int r) {
    const int group = r / s->map->ranks;
    return s->map->sync == 1 ? group : group == s->group ? 0 : -1;
}
/* This rank's part of a batch, of which it should have `mine` samples. */
static neo_status neo__shard_check_batch(const neo_shard *shard, const neo_jagged *jagged,
                                         int64_t global, int64_t mine) {
    const neo__shard_map *map = shard->map;
    NEO__CHECK(global >= 0 && global <= map->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_shard: bags '%s': a batch of %" PRId64 " samples, planned are %" PRId64
               " (max_batch counts those of all ranks)",
               map->desc.name, global, map->desc.max_batch);
    NEO__CHECK(!jagged->inverse || map->desc.inverse, NEO_ERR_STATE,
               "neo_shard: a batch with an inverse, and no room for one: set "
               "neo_bags_desc.inverse of the plan's bags");
    NEO__CHECK(!jagged->inverse || (!map->none && !map->weight_grad), NEO_ERR_UNSUPPORTED,
               "neo_shard: a batch with an inverse, and %s: write it out by neo_jagged_expand",
               map->none ? "tables of NEO_POOL_NONE" : "weight_grad");
    NEO__CHECK(!jagged->feature_bags || jagged->inverse, NEO_ERR_UNSUPPORTED,
               "neo_shard: a batch with feature_bags: rows travel sample by sample, of all "
               "features alike; fill up with empty bags");
    NEO__CHECK(jagged->place == (map->device_ids ? NEO_DEVICE : NEO_HOST) || shard->whole,
               NEO_ERR_UNSUPPORTED, "neo_shard: the batch is in %s",
               map->device_ids ? "host memory: neo_plan_desc.device_ids says it is on the device"
                               : "a device's memory: ranks exchange ids in host memory, as readers "
                                 "give them, without neo_plan_desc.device_ids");
    NEO__CHECK(jagged->feature_count == map->feature_count, NEO_ERR_SHAPE,
               "neo_shard: the batch has %d features, bags '%s' has %d", jagged->feature_count,
               map->desc.name, map->feature_count);
    NEO__CHECK(jagged->batch == mine, NEO_ERR_SHAPE,
               "neo_shard: rank %d has %" PRId64 " samples, its leaves hold %" PRId64
               " of a batch of %" PRId64 " (global_batch) in %d leaves (repro_shards)",
               neo__shard_place(shard), jagged->batch, mine, global,
               neo_ctx_repro_shards(shard->ctx));
    NEO__CHECK(map->weighted || !jagged->weights, NEO_ERR_ARG,
               "neo_shard: the batch has weights, the plan's has none (neo_plan_desc.weighted)");
    return jagged->place == NEO_DEVICE ? NEO_OK : neo_jagged_validate(jagged, NULL);
}
static void neo__shard_count_saved(neo_shard *s, const neo_jagged *j) {
    if (!j->inverse || j->place == NEO_DEVICE) return;
    s->ids_given += neo_jagged_id_count(j);
    s->ids_full += neo_jagged_full_id_count(j);
}
/* Check the batch of this rank, and place its ids. */
static neo_status neo__shard_take_batch(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *m = shard->map;
    const neo_jagged *j = &batch->batch;
    if (batch->asked < 0 || batch->asked > m->desc.max_batch)
        batch->all = 0; /* so that the exchange of the error has room */
    neo__shard_place_samples(shard, batch);
    NEO__TRY(
        neo__shard_check_batch(shard, j, batch->asked, neo__shard_samples(batch, shard->rank)));
    if (m->device_ids) return neo__shard_place_there(shard, batch);
    for (int32_t f = 0; f < m->feature_count; f++) {
        int64_t bad_at = 0, bad = neo__shard_count_sources(shard, batch, f, &bad_at);
        if (bad && m->desc.bounds == NEO_BOUNDS_ERROR)
            return neo__shard_bad_id(shard, batch, f, bad_at);
        shard->out_of_range += bad;
    }
    neo__shard_count_saved(shard, j);
    return neo__shard_place_ids(shard, batch);
}
/* The number of lengths follows from global_batch alone, on which nobody has agreed before. */
static neo_status neo__shard_explain(const neo__shard_batch *b, neo_status status) {
    const neo__kept_error kept = neo__error_keep(status);
    if (status != NEO_ERR_DIVERGED) return status;
    return neo_fail(status,
                    "neo_shard: the ranks do not give the same global_batch, which is %" PRId64
                    " here, or do not begin batches in the same order (%s)",
                    b->asked, kept.text);
}
/* A part of the exchange of a batch. This thread makes it, if it would only wait for another to. */
static neo_status neo__shard_swap_ids(neo_shard *s, neo__shard_batch *b, neo_comm *group,
                                      const void *from, void *to, neo_dtype dtype) {
    const int64_t *out = s->exchange.counts, *in = out + neo__shard_all(s->map);
    neo_ticket *ticket = b == s->now ? NULL : &b->ticket;
    b->ticket = -1;
    return neo__shard_explain(b, neo_comm_all_to_allv(group, from, out, to, in, dtype, ticket));
}
/* ids: their own exchange; else what is sent before. */
static neo_status neo__shard_wait_ids(neo_shard *s, const neo__shard_batch *b, int ids) {
    neo_comm *group = ids && s->id_moves ? s->id_moves : s->ids;
    return b->ticket < 0 ? NEO_OK : neo__shard_explain(b, neo_comm_wait(group, b->ticket));
}
/* A number that a rank is told of a flow: 0: its ids; with an inverse besides 1: its bags, 2: its
   ids as if the batch were written out. */
static int64_t neo__shard_count(const neo_shard *shard, const neo__shard_batch *batch,
                                const neo__shard_flow *flow, int which) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *j = &batch->batch;
    const int64_t *full = shard->exchange.source_counts + map->source_count + map->feature_count;
    if (which == 1)
        return neo__jagged_first_bag(j, flow->feature + 1) -
               neo__jagged_first_bag(j, flow->feature);
    return which && j->inverse ? full[flow->source] : batch->sent[flow->source];
}
/* A status, if the batch is bad, and counts of each flow, whose ids stay on the device. */
static neo_status neo__shard_tell_counts(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *x = &shard->exchange;
    int64_t *out = x->counts, *in = x->counts + map->ranks, *at = x->told_out;
    for (int r = 0; r < map->ranks; r++) {
        const int64_t *flow = map->flow_begin + r, flows = flow[1] - flow[0];
        out[r] = neo__shard_tells(map, flows);
        in[r] = neo__shard_tells(map, x->flows);
        at[0] = (int64_t)batch->error.status;
        at[1] = batch->asked;
        for (int64_t i = 0; i < out[r] - 2; i++)
            at[2 + i] = batch->error.status == NEO_OK
                            ? neo__shard_count(shard, batch, &map->flows[flow[0] + i % flows],
                                               (int)(i / flows))
                            : 0;
        at += out[r];
    }
    NEO__TRY(neo__shard_swap_ids(shard, batch, shard->ids, x->told_out, x->told_in, NEO_I64));
    batch->stage = NEO__SHARD_LENGTHS;
    return NEO_OK;
}
/* Check the batch, and send the lengths. What is wrong with it travels as a status. */
static neo_status neo__shard_send_lengths(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *exchange = &shard->exchange;
    const int all = neo__shard_all(map);
    int64_t *out = exchange->counts, *in = exchange->counts + all;
    int32_t *at = exchange->lengths_out;
    batch->error = neo__error_keep(neo__shard_take_batch(shard, batch));
    if (map->device_ids) return neo__shard_tell_counts(shard, batch);
    const int64_t mine = neo__shard_samples(batch, shard->rank);
    for (int r = 0; r < all; r++, at += out[r - 1]) {
        const int place = r % map->ranks, goes = neo__shard_turn(shard, r) >= 0;
        out[r] = 1 + (goes ? map->at_rank[place].columns * mine : 0);
        in[r] = 1 + map->at_rank[shard->rank].columns * neo__shard_coming(shard, batch, r);
        at[0] = (int32_t)batch->error.status;
        neo__shard_fill(at + 1, 0, (size_t)(out[r] - 1) * sizeof *at);
        if (batch->error.status != NEO_OK || !goes) continue;
        for (int64_t i = map->flow_begin[place]; i < map->flow_begin[place + 1]; i++) {
            const neo__shard_flow *flow = &map->flows[i];
            int32_t *to = at + 1 + flow->column * mine;
            neo__shard_copy(to, exchange->source_lengths + flow->source * mine,
                            (size_t)mine * sizeof *to);
            if (neo__shard_is_late(map, flow->feature))
                neo__shard_whole_lengths(&batch->batch, flow->feature, to + mine);
        }
    }
    NEO__TRY(neo__shard_swap_ids(shard, batch, shard->ids, exchange->lengths_out,
                                 exchange->lengths_in, NEO_I32));
    batch->stage = NEO__SHARD_LENGTHS;
    return NEO_OK;
}
/* A rank's message of that. */
static const int64_t *neo__shard_told(const neo_shard *s, int rank) {
    return s->exchange.told_in + neo__shard_tells(s->map, s->exchange.flows) * rank;
}
static neo_status neo__shard_send_lengths_there(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *x = &shard->exchange;
    int64_t *out = x->counts, *in = x->counts + map->ranks;
    for (int r = 0; r < map->ranks; r++) {
        const int64_t asked = neo__shard_told(shard, r)[1];
        NEO__CHECK(asked == batch->asked, NEO_ERR_DIVERGED,
                   "neo_shard: the ranks do not give the same global_batch, which is %" PRId64
                   " here, %" PRId64 " on rank %d",
                   batch->asked, asked, r);
        out[r] = map->at_rank[r].columns * neo__shard_samples(batch, shard->rank);
        in[r] = map->at_rank[shard->rank].columns * neo__shard_samples(batch, r);
    }
    return neo__shard_swap_ids(shard, batch, shard->id_moves, x->lengths_out, x->lengths_in,
                               NEO_I32);
}
/* The message of a rank, of all, in lengths_in: a status, then its samples' lengths, column by
   column. */
static const int32_t *neo__shard_message(const neo_shard *s, const neo__shard_batch *b, int rank) {
    return s->exchange.lengths_in + rank +
           s->map->at_rank[s->rank].columns * neo__shard_before(s, b, rank);
}
static const int32_t *neo__shard_lengths(const neo_shard *s, const neo__shard_batch *b, int rank,
                                         int64_t column) {
    return neo__shard_message(s, b, rank) + 1 + column * neo__shard_coming(s, b, rank);
}
/* Any rank's error becomes everyone's. */
static neo_status neo__shard_agree(neo_shard *s, neo__shard_batch *b) {
    int bad = 0;
    for (int r = 0; r < neo__shard_all(s->map); r++)
        bad |= s->map->device_ids ? *neo__shard_told(s, r) != NEO_OK
                                  : *neo__shard_message(s, b, r) != NEO_OK;
    if (!bad) return NEO_OK;
    b->stage = NEO__SHARD_EMPTY;
    b->error.status = neo_comm_agree(s->ids, neo__error_restore(&b->error));
    return b->error.status;
}
/* Places of the ids of every flow, as they come from each rank; returns how many there are. */
static int64_t neo__shard_place_flows(neo_shard *shard, const neo__shard_batch *batch,
                                      int64_t *in) {
    const neo__shard_map *map = shard->map;
    const neo__shard_flow *flow = map->flows + map->flow_begin[shard->rank];
    const int64_t flows = shard->exchange.flows;
    const int all = neo__shard_all(map);
    int64_t total = 0;
    for (int r = 0; r < all; r++) {
        const int64_t before = total;
        for (int64_t i = 0; i < flows; i++) {
            shard->exchange.in_at[r * flows + i] = total;
            total += map->device_ids
                         ? neo__shard_told(shard, r)[2 + i]
                         : neo__shard_sum_lengths(
                               neo__shard_lengths(shard, batch, r, flow[i].column),
                               neo__shard_coming(shard, batch, r));
        }
        in[r] = total - before;
    }
    shard->exchange.in_at[all * flows] = total;
    return total;
}
static neo_status neo__shard_send_ids(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    neo__shard_exchange *exchange = &shard->exchange;
    const int all = neo__shard_all(map);
    int64_t *out = exchange->counts, *in = exchange->counts + all;
    NEO__TRY(neo__shard_wait_ids(shard, batch, 0));
    NEO__TRY(neo__shard_agree(shard, batch));
    if (map->device_ids) NEO__TRY(neo__shard_send_lengths_there(shard, batch));
    int64_t in_ids = neo__shard_place_flows(shard, batch, in);
    for (int r = 0; r < all; r++) {
        const int turn = neo__shard_turn(shard, r);
        const int64_t *at = exchange->out_at + NEO__MAX(turn, 0) * map->flow_count;
        const int64_t *flow = map->flow_begin + r % map->ranks;
        out[r] = turn < 0 ? 0 : at[flow[1]] - at[flow[0]];
    }
    NEO__TRY(neo__shard_reserve_ids(shard, exchange->in, in_ids));
    for (int i = 0; i < (map->weighted ? 2 : 1); i++)
        NEO__TRY(neo__shard_swap_ids(shard, batch, shard->id_moves ? shard->id_moves : shard->ids,
                                     exchange->out[i].data, exchange->in[i].data,
                                     i ? NEO_F32 : map->id_dtype));
    batch->stage = NEO__SHARD_IDS;
    return NEO_OK;
}
/* Lengths of whole bags, of all ranks, where gradients are to be divided here. */
static void neo__shard_take_whole(const neo_shard *s, neo__shard_batch *b) {
    const neo__shard_map *m = s->map;
    const neo__shard_flow *flow = m->flows + m->flow_begin[s->rank];
    const int first = s->group * m->ranks;
    for (int64_t i = 0; i < s->exchange.flows; i++)
        for (int r = 0; r < m->ranks && neo__shard_is_late(m, flow[i].feature); r++)
            neo__shard_copy(b->whole + i * b->global + b->start[r],
                            neo__shard_lengths(s, b, first + r, flow[i].column + 1),
                            (size_t)neo__shard_samples(b, r) * sizeof *b->whole);
}
/* Put the ids of `ranks` ranks, from rank `first` of all on, together, route by route: to `to`. */
static neo_status neo__shard_join_ids(neo_shard *shard, const neo__shard_batch *batch,
                                      neo__shard_batch *to, int first, int ranks) {
    const neo__shard_map *map = shard->map;
    const neo__shard_exchange *exchange = &shard->exchange;
    const neo__shard_route *route = map->routes + map->route_begin[shard->rank];
    const neo__shard_flow *flow = map->flows + map->flow_begin[shard->rank];
    int64_t total = 0;
    for (int64_t i = 0; i < exchange->routes; i++)
        for (int r = 0; r < ranks; r++) {
            const int64_t *at = exchange->in_at + (first + r) * exchange->flows + route[i].flow;
            total += at[1] - at[0];
        }
    NEO__TRY(neo__shard_reserve_ids(shard, to->ids, total));
    total = 0;
    to->offsets[0] = 0;
    for (int64_t i = 0, bags = 0; i < exchange->routes; i++)
        for (int r = 0; r < ranks; r++) {
            const int64_t *at = exchange->in_at + (first + r) * exchange->flows + route[i].flow;
            const int64_t sample = i * to->global + to->start[r];
            const int64_t samples = to->start[r + 1] - to->start[r];
            const int32_t *lengths =
                neo__shard_lengths(shard, batch, first + r, flow[route[i].flow].column);
            neo__shard_copy_ids(map, to->ids, total, exchange->in, at[0], at[1] - at[0]);
            if (to->bags) {
                if (r == 0) to->bags[i] = bags;
                neo__shard_number_bags(lengths, samples, total, to->bags[i], to->offsets, &bags,
                                       to->inverse + sample);
                to->bags[i + 1] = bags;
            } else {
                neo__shard_sum_offsets(lengths, samples, total, to->offsets + sample);
            }
            total += at[1] - at[0];
        }
    to->local.feature_bags = to->bags;
    to->local.inverse = to->inverse;
    to->local.batch = to->global;
    to->local.feature_count = (int32_t)exchange->routes;
    to->local.id_dtype = map->id_dtype;
    to->local.offsets = to->offsets;
    to->local.ids = to->ids[0].data;
    to->local.weights = map->weighted ? (const float *)to->ids[1].data : NULL;
    return NEO_OK;
}
/* The same on the device. */
static neo_status neo__shard_join_there(neo_shard *shard, neo__shard_batch *batch) {
    const neo__shard_map *map = shard->map;
    const neo__shard_exchange *x = &shard->exchange;
    const neo__shard_route *route = map->routes + map->route_begin[shard->rank];
    const int64_t columns = map->at_rank[shard->rank].columns;
    int64_t total = 0, full = 0, bags = 0;
    for (int64_t i = 0; i < x->routes; i++) {
        if (batch->bags) batch->bags[i] = bags;
        for (int r = 0; r < map->ranks; r++) {
            const int64_t *at = x->in_at + r * x->flows + route[i].flow;
            const int64_t *told = neo__shard_told(shard, r) + 2 + route[i].flow;
            const int64_t n = neo__shard_samples(batch, r), k = i * map->ranks + r;
            bags = neo__shard_add_run(shard, k, bags, batch->bags ? told[x->flows] : n,
                                      columns * batch->start[r] + route[i].flow * n, at[0]);
            if (batch->bags) {
                x->run[k].feature = (int32_t)i, x->run[k].listed = n;
                x->run[k].step = i * batch->global + batch->start[r];
            }
            batch->came[k] = at[1] - at[0];
            total += at[1] - at[0];
            full += batch->bags ? told[2 * x->flows] : at[1] - at[0];
        }
    }
    if (batch->bags) batch->bags[x->routes] = bags;
    batch->local_ids = total;
    NEO__TRY(neo__shard_reserve_ids(shard, batch->ids, total));
    const neo__ids_source source = neo__shard_source(map, x->lengths_in, x->in);
    neo__join_call call = neo__shard_join_of(shard, &source, x->routes * map->ranks);
    call.to_offsets = batch->offsets;
    call.to_inverse = batch->inverse;
    neo__shard_join_to(&call, batch->ids, total);
    NEO__TRY(neo__device_join(shard->ctx, &call));
    batch->local = neo__shard_joined(&call, batch->global);
    batch->local.feature_count = (int32_t)x->routes;
    batch->local.feature_bags = batch->bags;
    batch->local.inverse = batch->inverse;
    if (x->joined) NEO__TRY(neo__device_order(shard->ctx, NEO__ORDER_CALLS, x->joined, 0));
    shard->exchange.has_joined = x->joined != NULL;
    batch->stage = NEO__SHARD_READY;
    if (!shard->bags) return NEO_OK;
    neo__bags_vouch(shard->bags, full);
    return neo_bags_reserve(shard->bags, shard->reach, full);
}
/* A part of the exchange of a batch: of one that was prefetched (2) beside the running step, behind
   the last batch's own, which reads the same memory. */
static neo_status neo__shard_aside(neo_shard *s, neo__shard_batch *b,
                                   neo_status (*part)(neo_shard *, neo__shard_batch *)) {
    if (!b->aside) return part(s, b);
    NEO__TRY(neo__device_aside(s->ctx, s->exchange.joined));
    const neo_status status = part(s, b);
    (void)neo__device_aside(s->ctx, NULL);
    return status;
}
/* The batch that this rank's rows step by: of all groups, or of its own. */
static neo__shard_batch *neo__shard_stepped(neo_shard *s, neo__shard_batch *b) {
    return neo__shard_spread(s->map) > 1 ? &s->full[b - s->batches] : b;
}
/* The ids are here. */
static neo_status neo__shard_take_ids(neo_shard *shard, neo__shard_batch *batch) {
    const int ranks = shard->map->ranks;
    neo__shard_batch *full = neo__shard_stepped(shard, batch);
    NEO__TRY(neo__shard_wait_ids(shard, batch, 1));
    if (shard->map->device_ids) return neo__shard_join_there(shard, batch);
    NEO__TRY(neo__shard_join_ids(shard, batch, batch, shard->group * ranks, ranks));
    if (full != batch)
        NEO__TRY(neo__shard_join_ids(shard, batch, full, 0, neo__shard_all(shard->map)));
    neo__shard_take_whole(shard, batch);
    batch->stage = NEO__SHARD_READY;
    if (!shard->bags) return NEO_OK;
    const int64_t ids = neo_jagged_full_id_count(&full->local);
    if (shard->pooled.on_device) neo__bags_vouch(shard->bags, ids);
    return neo_bags_reserve(shard->bags, shard->reach, ids);
}
/* The status of a call in the middle of an exchange: a rank that fails tells the others why. */
static neo_status neo__shard_or_abort(neo_shard *s, neo_status status) {
    if (status == NEO_OK) return status;
    const neo__kept_error kept = neo__error_keep(status);
    neo_comm *groups[NEO__SHARD_GROUPS];
    neo__shard_groups(s, groups);
    for (int i = 0; i < NEO__SHARD_GROUPS; i++) neo_comm_abort(groups[i], kept.text);
    return neo__error_restore(&kept);
}
/* Bring a batch as far as `stage`. */
static neo_status neo__shard_advance(neo_shard *s, neo__shard_batch *b, neo__shard_stage stage) {
    while (b->stage < stage) {
        neo_status status = b->stage == NEO__SHARD_LENGTHS
                                ? neo__shard_aside(s, b, neo__shard_send_ids)
                                : neo__shard_take_ids(s, b);
        if (b->stage == NEO__SHARD_EMPTY) return status; /* a bad batch: everyone knows */
        NEO__TRY(neo__shard_or_abort(s, status));
    }
    return NEO_OK;
}
/* A hash of what lies there: of four words at once, as a product waits for the one before. */
static uint64_t neo__shard_hash(uint64_t hash, const void *data, size_t bytes) {
    enum { LANES = 4 };
    const char *from = (const char *)data;
    uint64_t lane[LANES], word[LANES] = {0};
    for (int i = 0; i < LANES; i++) lane[i] = hash + (uint64_t)i;
    for (size_t n; bytes > 0; from += n, bytes -= n) {
        n = NEO__MIN(bytes, sizeof word);
        if (n < sizeof word) memset(word, 0, sizeof word);
        memcpy(word, from, n);
        for (int i = 0; i < LANES; i++) {
            const uint64_t mixed = lane[i] ^ word[i]; /* turned, or high bits would stay there */
            lane[i] = (mixed << 29 | mixed >> 35) * 0x9E3779B97F4A7C15u;
        }
    }
    for (int i = 0; i < LANES; i++) hash = neo__mix64(hash ^ lane[i]);
    return hash;
}
/* The caller's arrays as they are now, as far as they reached when the batch was prefetched. */
static uint64_t neo__shard_mark(const neo__shard_batch *batch) {
    const neo_jagged *j = &batch->batch;
    const size_t id = neo_dtype_size(j->id_dtype), ids = (size_t)batch->id_count;
    const size_t first = (size_t)batch->first_id;
    const size_t offsets = batch->bag_count ? (size_t)batch->bag_count + 1 : 0;
    uint64_t hash = neo__shard_hash(0, j->offsets, offsets * sizeof *j->offsets);
    if (ids) hash = neo__shard_hash(hash, (const char *)j->ids + first * id, ids * id);
    if (ids && j->weights)
        hash = neo__shard_hash(hash, j->weights + first, ids * sizeof *j->weights);
    if (!j->inverse) return hash;
    const size_t features = (size_t)j->feature_count;
    hash = neo__shard_hash(hash, j->feature_bags, (features + 1) * sizeof *j->feature_bags);
    return neo__shard_hash(hash, j->inverse, features * (size_t)j->batch * sizeof *j->inverse);
}
/* A batch that has been prefetched, and is good: notice when its arrays are written. */
static void neo__shard_watch(neo__shard_batch *b) {
    if (b->error.status != NEO_OK || b->batch.place == NEO_DEVICE) return;
    b->bag_count = neo_jagged_bag_count(&b->batch);
    b->first_id = b->bag_count ? b->batch.offsets[0] : 0;
    b->id_count = neo_jagged_id_count(&b->batch);
    b->mark = neo__shard_mark(b);
}
static neo_status neo__shard_start(neo_shard *s, neo__shard_batch *b, const neo_jagged *batch,
                                   int64_t global) {
    b->batch = *batch;
    b->all = b->asked = global;
    b->aside = b != s->now && s->exchange.has_joined;
    return neo__shard_or_abort(s, neo__shard_aside(s, b, neo__shard_send_lengths));
}
/* ---------------------------------------------------------------------------
   >>impl-shard-device

   On contexts with a device a rank's rows and optimizer state are in its device's memory, and
   looked up and stepped there. Pooled rows, rows for each id, gradients of all and sums stay there,
   too (see >>impl-shard-rows). Ids are in pinned host memory, as without a device: reader ->
   exchange -> batch of this rank's parts, which neo_bags takes to the device; with device_ids they
   stay there: see neo__shard_place_there.
   ------------------------------------------------------------------------ */
/* Rows of pooled numbers, where they are. */
static neo_tensor neo__shard_matrix(const neo_shard *s, float *rows, int64_t count, int64_t cols) {
    neo_tensor t = neo_tensor_2d(rows, NEO_F32, count, cols);
    if (s->pooled.on_device) t.place = NEO_DEVICE;
    return t;
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

   Threads of one process lend their rows (`lends`: f32 wires, no link model, no sums in nodes): the
   exchanges move nothing. TAKE reads local of every rank. From then on a sample's rows there are
   its own rank's, which adds in them, and to which RETURN writes their gradients: one copy of a row
   each way. The next look-up writes to local when all ranks have returned the loan: after TAKE, or
   when they begin anew.
   ------------------------------------------------------------------------ */
/* Bytes of host memory to where pooled rows are. */
static neo_status neo__shard_send_there(neo_shard *s, void *there, const void *from,
                                        int64_t bytes) {
    neo_tensor to = neo_tensor_1d(there, NEO_U8, bytes);
    if (s->pooled.on_device) to.place = NEO_DEVICE;
    if (bytes == 0 || there == from) return NEO_OK;
    return neo_tensor_copy(s->ctx, neo_tensor_1d((void *)(uintptr_t)from, NEO_U8, bytes), to);
}
static neo_status neo__shard_fill_lists(neo_shard *shard, neo__arena *arena) {
    neo__shard_pooled *pooled = &shard->pooled;
    neo__shard_lister l = neo__shard_lister_of(shard);
    NEO__TRY(NEO__ARENA(arena, l.block, pooled->blocks));
    NEO__TRY(NEO__ARENA(arena, l.part, pooled->parts));
    for (int i = 0; i < NEO__SHARD_LISTS; i++) {
        pooled->list[i] = l.blocks;
        neo__shard_list_one(&l, (neo__shard_list)i);
    }
    pooled->list[NEO__SHARD_LISTS] = l.blocks;
    NEO_ASSERT(l.blocks == pooled->blocks && l.parts == pooled->parts);
    NEO__TRY(neo__shard_send_there(shard, pooled->block, l.block,
                                   pooled->blocks * (int64_t)sizeof *l.block));
    return neo__shard_send_there(shard, pooled->part, l.part,
                                 pooled->parts * (int64_t)sizeof *l.part);
}
/* The lists, and on a device the memory they are in. */
static neo_status neo__shard_make_lists(neo_shard *shard) {
    neo__shard_pooled *pooled = &shard->pooled;
    NEO__CHECK(pooled->parts <= INT32_MAX, NEO_ERR_CAPACITY,
               "neo_shard_create: %" PRId64 " parts of rows", pooled->parts);
    if (pooled->on_device) {
        NEO__ZERO(neo__carve, carve);
        neo__shard_layout_pooled(shard, &carve);
        NEO__TRY(neo__buffer_take(shard->ctx, &pooled->memory, carve.at));
        carve.block = (char *)pooled->memory.data;
        carve.at = 0;
        neo__shard_layout_pooled(shard, &carve);
    }
    if (pooled->blocks == 0) return NEO_OK;
    neo__arena arena = {shard->ctx, NULL, NULL, 0, "neo_shard_create"};
    neo_status status = neo__shard_fill_lists(shard, &arena);
    neo__arena_free(&arena);
    return status;
}

/* ---- the processor's row mover: NEO__ROWS_TILE rows of a block at a time ---- */
enum { NEO__ROWS_TILE = 16, NEO__ROWS_LANES = 32, NEO__ROWS_TASKS = 32 };
enum { NEO__ROWS_TILE_BYTES = (int)NEO__ROWS_TILE * NEO_WIRE_BLOCK * 4 }; /* no wire takes more */
typedef struct neo__rows_job {
    const neo_ctx *ctx;
    const neo__rows_call *call;
    int64_t tasks;
    int plain; /* neo__rows_are_plain */
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
    char *base = c->lent ? c->lent[part->rank] : c->coded + c->rows * part->before;
    return base + row * part->stride + part->at;
}
/* Blocks of a constant size are moves of vectors, not calls. */
NEO__INLINE void neo__rows_move(char *to, const char *from, size_t bytes) {
    for (; bytes >= 64; bytes -= 64, to += 64, from += 64) memcpy(to, from, 64);
    if (bytes) memcpy(to, from, bytes);
}
/* Rows of a tile between two places, strides in bytes. */
static void neo__rows_copy(const neo__rows_tile *t, char *to, int64_t to_stride, const char *from,
                           int64_t from_stride, size_t bytes) {
    for (int64_t i = 0; i < t->rows; i++, to += to_stride, from += from_stride)
        neo__rows_move(to, from, bytes);
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
typedef float neo__rows_lanes __attribute__((vector_size(64)));
/* to = x + y, n numbers; to may be x. */
NEO__INLINE void neo__rows_add(float *to, const float *x, const float *y, int64_t n) {
    neo__rows_lanes a, b;
    for (; n >= 16; n -= 16, to += 16, x += 16, y += 16) {
        memcpy(&a, x, sizeof a);
        memcpy(&b, y, sizeof b);
        a += b;
        memcpy(to, &a, sizeof a);
    }
    for (int64_t i = 0; i < n; i++) to[i] = x[i] + y[i];
}
/* n columns of a row, from `at` on: the sum of f32 parts in the order of the list. Each number is
   read and written once; sums of some parts stay in the cache. */
NEO__INLINE void neo__rows_sum_some(const neo__rows_call *call, const neo__rows_part *part,
                                    int parts, int64_t row, int64_t at, int64_t n, float *to) {
    static const float zero[NEO__ROWS_LANES] = {0};
    float made[NEO__ROWS_STACK][NEO__ROWS_LANES];
    const float *sum[NEO__ROWS_STACK];
    int depth = 0;
    for (int p = 0; p < parts; p++) {
        sum[depth++] = (const float *)(const void *)neo__rows_place(call, &part[p], row) + at;
        for (int k = part[p].merges; k > 0; k--) {
            depth--;
            neo__rows_add(made[depth - 1], sum[depth - 1], sum[depth], n);
            sum[depth - 1] = made[depth - 1];
        }
    }
    neo__rows_add(to + at, sum[0], zero, n);
}
static void neo__rows_sum(const neo__rows_tile *tile, const neo__rows_call *call,
                          const neo__rows_part *part, int parts, float *to, int64_t stride) {
    for (int64_t row = tile->row; row < tile->row + tile->rows; row++, to += stride) {
        int64_t at = 0;
        for (; at + NEO__ROWS_LANES <= tile->cols; at += NEO__ROWS_LANES)
            neo__rows_sum_some(call, part, parts, row, at, NEO__ROWS_LANES, to);
        if (at < tile->cols)
            neo__rows_sum_some(call, part, parts, row, at, tile->cols - at, to);
    }
}
static void neo__rows_encode_tile(const neo__rows_tile *tile, const neo__rows_call *call,
                                  const neo__rows_block *block) {
    float made[(int)NEO__ROWS_TILE * NEO_WIRE_BLOCK];
    char coded[NEO__ROWS_TILE_BYTES];
    const float *x = call->matrix + tile->row * call->stride + block->col;
    int64_t stride = call->stride;
    if (tile->lengths) {
        neo__rows_divide(tile, made, tile->cols, x, stride);
        x = made;
        stride = tile->cols;
    }
    if (block->round != NEO_WIRE_F32) {
        neo__rows_round(tile, (neo_wire)block->round, x, stride, made, tile->cols);
        x = made;
        stride = tile->cols;
    }
    for (const neo__rows_part *p = call->part + block->first;
         p < call->part + block->first + block->parts; p++) {
        const neo_wire wire = (neo_wire)p->wire;
        const size_t bytes = neo_wire_row_bytes(wire, tile->cols);
        const char *from = (const char *)(const void *)x;
        int64_t step = stride * (int64_t)sizeof *x;
        if (wire != NEO_WIRE_F32 || tile->stats) {
            neo_wire_encode(tile->ctx, wire, 0, x, tile->rows, tile->cols, stride, coded,
                            tile->stats);
            from = coded;
            step = (int64_t)bytes;
        }
        neo__rows_copy(tile, neo__rows_place(call, p, tile->row), p->stride, from, step, bytes);
    }
}
static void neo__rows_decode_tile(const neo__rows_tile *tile, const neo__rows_call *call,
                                  const neo__rows_block *block) {
    float made[(int)NEO__ROWS_TILE * NEO_WIRE_BLOCK];
    char coded[NEO__ROWS_TILE_BYTES];
    const neo__rows_part *part = call->part + block->first;
    const neo_wire wire = (neo_wire)part->wire;
    const size_t bytes = neo_wire_row_bytes(wire, tile->cols);
    const char *from = neo__rows_place(call, part, tile->row);
    float *out = call->matrix + tile->row * call->stride + block->col;
    float *to = tile->lengths ? made : out;
    const int64_t stride = tile->lengths ? tile->cols : call->stride;
    if (block->parts > 1) {
        NEO_ASSERT(wire == NEO_WIRE_F32);
        neo__rows_sum(tile, call, part, block->parts, to, stride);
    } else if (wire != NEO_WIRE_F32) {
        neo__rows_copy(tile, coded, (int64_t)bytes, from, part->stride, bytes);
        neo_wire_decode(tile->ctx, wire, 0, coded, tile->rows, tile->cols, stride, to);
    } else {
        neo__rows_copy(tile, (char *)(void *)to, stride * (int64_t)sizeof *to, from, part->stride,
                       bytes);
    }
    if (block->round != NEO_WIRE_F32)
        neo__rows_round(tile, (neo_wire)block->round, to, stride, to, stride);
    if (tile->lengths) neo__rows_divide(tile, out, call->stride, to, stride);
}
/* Are rows of f32 only copied? Then row after row, so that both sides are gone through in order. */
static int neo__rows_are_plain(const neo__rows_call *call) {
    int plain = !call->stats;
    for (const neo__rows_block *b = call->block; b < call->block + call->blocks && plain; b++)
        plain = b->parts == 1 && b->lengths < 0 && b->round == NEO_WIRE_F32 &&
                call->part[b->first].wire == NEO_WIRE_F32;
    return plain;
}
static void neo__rows_copy_plain(const neo__rows_call *call, int64_t row, int64_t end) {
    for (; row < end; row++)
        for (const neo__rows_block *b = call->block; b < call->block + call->blocks; b++) {
            char *x = (char *)(call->matrix + row * call->stride + b->col);
            char *there = neo__rows_place(call, call->part + b->first, row);
            const size_t bytes = (size_t)b->cols * sizeof(float);
            if (call->encode) neo__rows_move(there, x, bytes);
            else neo__rows_move(x, there, bytes);
        }
}
static void neo__rows_task(void *arg, int64_t task, int worker) {
    neo__rows_job *job = (neo__rows_job *)arg;
    const neo__rows_call *call = job->call;
    const int64_t end = call->rows * (task + 1) / job->tasks;
    neo__rows_tile t;
    (void)worker;
    t.ctx = job->ctx;
    if (job->plain) {
        neo__rows_copy_plain(call, call->rows * task / job->tasks, end);
        return;
    }
    t.stats = call->stats ? &job->stats[task] : NULL;
    for (t.row = call->rows * task / job->tasks; t.row < end; t.row += NEO__ROWS_TILE) {
        t.rows = NEO__MIN(end - t.row, (int64_t)NEO__ROWS_TILE);
        for (const neo__rows_block *b = call->block; b < call->block + call->blocks; b++) {
            t.cols = b->cols;
            t.lengths = b->lengths < 0 ? NULL : call->lengths + b->lengths * call->rows + t.row;
            if (call->encode) neo__rows_encode_tile(&t, call, b);
            else neo__rows_decode_tile(&t, call, b);
        }
    }
}
NEO__HOT_END
/* A list on the processor. Tasks follow from the rows alone, so that sums of errors do, too. */
static void neo__cpu_rows(neo_ctx *ctx, const neo__rows_call *call) {
    NEO__ZERO(neo__rows_job, job);
    job.ctx = ctx;
    job.call = call;
    job.plain = neo__rows_are_plain(call);
    job.tasks =
        NEO__MIN((call->rows + NEO__ROWS_TILE - 1) / NEO__ROWS_TILE, (int64_t)NEO__ROWS_TASKS);
    int64_t cols = 0;
    for (int64_t i = 0; i < call->blocks; i++) cols += call->block[i].cols;
    neo__run_tasks(ctx, job.tasks, neo__rows_task, &job,
                   call->rows * cols / (job.plain ? 4 : 1));
    for (int64_t i = 0; i < job.tasks && call->stats; i++) {
        call->stats->numbers += job.stats[i].numbers;
        call->stats->saturated += job.stats[i].saturated;
        call->stats->non_finite += job.stats[i].non_finite;
        call->stats->error_squares += job.stats[i].error_squares;
        call->stats->squares += job.stats[i].squares;
        call->stats->max_error = NEO__MAX(call->stats->max_error, job.stats[i].max_error);
    }
}

/* ---- rows of empty bags stay (neo_plan_desc.skip_empty) ----
   Both ends of a row know whether its bag has an id in the part: one gave the ids, the other has
   them. So the rows of an exchange close up in place where they leave, and part again where they
   come, with zeros between; nothing else travels. */
static int32_t neo__shard_source_of_route(const neo__shard_map *m, const neo__shard_route *r) {
    return m->flows[m->flow_begin[r->rank] + r->flow].source;
}
/* Which bags of this rank's samples have an id in a source. */
static void neo__shard_fill_sources(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *j = &shard->now->batch;
    unsigned char *filled = shard->exchange.filled;
    neo__shard_fill(filled, 0, (size_t)(map->source_count * j->batch));
    for (int32_t f = 0; f < map->feature_count; f++) {
        const neo_table_desc *table = &map->tables[map->feature_table[f]];
        for (int64_t i = 0; i < j->batch && map->first_source[f] < map->first_source[f + 1]; i++) {
            const int64_t *offset = j->offsets + neo__jagged_bag(j, f, i);
            for (int64_t k = offset[0]; k < offset[1]; k++) {
                const int64_t row = neo__shard_row(map->desc.bounds, table, neo__shard_id(j, k));
                if (row >= 0) filled[neo__shard_source_of(map, f, row) * j->batch + i] = 1;
            }
        }
    }
}
/* Whether a row of a route travels. there: it is of this rank's samples; else of this rank's
   routes, and `sample` counts all. */
NEO__INLINE int neo__shard_is_filled(const neo_shard *s, const neo__shard_route *r, int there,
                                     int64_t sample) {
    const neo__shard_batch *b = s->now;
    if (there)
        return s->exchange.filled[neo__shard_source_of_route(s->map, r) * b->batch.batch + sample];
    const int64_t first = s->map->route_begin[s->rank];
    const int64_t *offset = b->offsets + neo__jagged_bag(&b->local, r->place - first, sample);
    return offset[1] > offset[0];
}
/* Rows of samples [first, end) that rank `holder` holds: closed up, they are the bytes of `packed`
   from `at` on. rows: as they lie where they are not (NULL: they are counted); back: to there, from
   the last on. Returns where the bytes end, or, back, begin. */
static int64_t neo__shard_close_up(const neo_shard *shard, int way, int there, int holder,
                                   int64_t first, int64_t end, char *packed, int64_t at, char *rows,
                                   int back) {
    const neo__shard_map *map = shard->map;
    const neo__shard_route *route = map->routes + map->route_begin[holder];
    const int64_t routes = map->at_rank[holder].first_inside - map->route_begin[holder];
    const int64_t row_bytes = map->at_rank[holder].coded[way], n = (end - first) * routes;
    for (int64_t q = 0; q < n; q++) {
        const int64_t k = back ? n - 1 - q : q, i = k / routes;
        const neo__shard_route *to = &route[k - i * routes];
        const int64_t bytes = (int64_t)neo_wire_row_bytes(to->wire[way], to->cols);
        const int filled = neo__shard_is_filled(shard, to, there, first + i);
        char *row = rows ? rows + i * row_bytes + to->coded[way] : NULL;
        if (filled && back) at -= bytes;
        if (filled && row) memmove(back ? row : packed + at, back ? packed + at : row,
                                   (size_t)bytes);
        if (filled && !back) at += bytes;
        if (!filled && back) memset(row, 0, (size_t)bytes);
    }
    return at;
}
/* All rows of this rank's routes (there: of its samples) close up, or part again. */
static void neo__shard_close_all(const neo_shard *shard, int way, int there, char *rows, int back) {
    const neo__shard_map *map = shard->map;
    const int64_t mine = neo__shard_samples(shard->now, shard->rank);
    const int64_t end = there ? mine : shard->now->global;
    const int first = there ? 0 : shard->rank, last = there ? map->ranks - 1 : shard->rank;
    int64_t at = 0;
    for (int r = first; r <= last && back; r++)
        at = neo__shard_close_up(shard, way, there, r, 0, end, NULL, at, NULL, 0);
    for (int i = first; i <= last; i++) {
        const int r = back ? last - (i - first) : i;
        char *of = there ? rows + mine * map->at_rank[r].coded_at[way] : rows;
        at = neo__shard_close_up(shard, way, there, r, 0, end, rows, at, of, back);
    }
}
/* ---- a step; way 0: forward, from local to remote; 1: backward ---- */
static neo_wire_stats *neo__shard_wire_stats(neo_shard *s, int way) {
    return s->map->wire[way] == NEO_WIRE_F32 ? NULL : &s->wire_stats[way];
}
/* Rows of a list; at, lengths: of each, in memory of the device, or NULL. */
static neo_status neo__shard_run_places(neo_shard *shard, neo__shard_list list, float *matrix,
                                        int64_t stride, void *coded, int64_t rows,
                                        const int32_t *at, const int32_t *lengths) {
    const neo__shard_pooled *pooled = &shard->pooled;
    const int way = list == NEO__SHARD_RETURN || list == NEO__SHARD_RETURN_SUMS;
    NEO__ZERO(neo__rows_call, call);
    call.encode = list <= NEO__SHARD_SPREAD;
    call.rows = rows;
    call.stride = stride;
    call.matrix = matrix;
    call.coded = (char *)coded;
    if (pooled->block) call.block = pooled->block + pooled->list[list];
    call.blocks = pooled->list[list + 1] - pooled->list[list];
    call.part = pooled->part;
    call.lengths = lengths;
    call.at = at;
    if (list <= NEO__SHARD_RETURN_SUMS) call.stats = neo__shard_wire_stats(shard, way);
    if (shard->lends && (list == NEO__SHARD_TAKE || list == NEO__SHARD_RETURN))
        call.lent = shard->exchange.lent;
    if (call.blocks == 0 || rows == 0) return NEO_OK;
    if (pooled->on_device) return neo__device_rows(shard->ctx, &call);
    neo__cpu_rows(shard->ctx, &call);
    return NEO_OK;
}
static neo_status neo__shard_run_list(neo_shard *shard, neo__shard_list list, float *matrix,
                                      int64_t stride, void *coded, int64_t rows) {
    const int32_t *whole = shard->pooled.on_device ? shard->pooled.whole : shard->now->whole;
    return neo__shard_run_places(shard, list, matrix, stride, coded, rows, NULL,
                                 list == NEO__SHARD_DIVIDE ? whole : shard->pooled.lengths);
}
/* A list between the caller's pooled rows and what has come, or goes. */
static neo_status neo__shard_run_rows(neo_shard *s, neo__shard_list list, neo_tensor rows,
                                      void *coded) {
    if (s->map->none) return NEO_OK;
    return neo__shard_run_list(s, list, (float *)rows.data, rows.stride[0], coded, rows.shape[0]);
}
/* The lengths of the bags that divide. */
static neo_status neo__shard_bag_lengths(neo_shard *s) {
    const neo__shard_map *m = s->map;
    int64_t n = s->now->batch.batch;
    if (m->device_ids) return neo__shard_lengths_there(s);
    for (int32_t f = 0; f < m->feature_count; f++)
        if (m->mean_row[f] >= 0)
            neo__shard_whole_lengths(&s->now->batch, f,
                                     s->pooled.host_lengths + m->mean_row[f] * n);
    return neo__shard_send_there(s, s->pooled.lengths, s->pooled.host_lengths,
                                 m->mean_count * n * (int64_t)sizeof(int32_t));
}
/* Over NCCL one exchange at a time: kernels of two groups, begun in another order on another rank,
   would wait for each other where a device does not run both. */
static neo_status neo__shard_alone(neo_shard *s) {
    if (neo_comm_get_backend(s->moves) != NEO_BACKEND_NCCL) return NEO_OK;
    return neo_comm_wait(s->moves, s->move_ticket);
}
/* Rows of f32 leave local, or come to it, as they lie there. */
static int neo__shard_sends_local(const neo_shard *s, int way) {
    return s->map->wire[way] == NEO_WIRE_F32 && s->pooled.inside == 0;
}
/* An exchange between what is here and what is there; back: from there. */
static neo_status neo__shard_swap(neo_comm *group, int back, void *here, const int64_t *local,
                                  void *there, const int64_t *remote, neo_dtype dtype,
                                  neo_ticket *ticket) {
    return back ? neo_comm_all_to_allv(group, there, remote, here, local, dtype, ticket)
                : neo_comm_all_to_allv(group, here, local, there, remote, dtype, ticket);
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
static int64_t neo__shard_place_count(const neo_shard *s, int place) {
    int64_t n = 0;
    for (int r = place; r < s->map->ranks; r += s->map->per_node)
        n += neo__shard_samples(s->now, r);
    return n;
}
/* This rank's inside columns of local, in order of the places they go to (back: come from). */
static neo_status neo__shard_inside_pick(neo_shard *shard, int back) {
    const neo__shard_map *m = shard->map;
    const int64_t cols = shard->pooled.inside, width = shard->pooled.width;
    float *at = shard->pooled.inside_out,
          *local = shard->pooled.local + m->at_rank[shard->rank].direct;
    for (int place = 0; place < m->per_node && cols > 0; place++)
        for (int r = place; r < m->ranks; r += m->per_node) {
            int64_t n = neo__shard_samples(shard->now, r);
            neo_tensor packed = neo__shard_matrix(shard, at, n, cols);
            neo_tensor wide =
                neo__shard_matrix(shard, local + shard->now->start[r] * width, n, cols);
            wide.stride[0] = width;
            if (n > 0)
                NEO__TRY(neo_tensor_copy(shard->ctx, back ? packed : wide, back ? wide : packed));
            at += n * cols;
        }
    return NEO_OK;
}
/* Between inside_out and inside_in. */
static neo_status neo__shard_inside_exchange(neo_shard *shard, int back) {
    const neo__shard_map *m = shard->map;
    const neo__shard_pooled *p = &shard->pooled;
    int64_t *out = shard->exchange.counts, *in = shard->exchange.counts + m->ranks;
    const int first = shard->rank / m->per_node * m->per_node;
    const int64_t mine = neo__shard_place_count(shard, shard->rank - first);
    for (int l = 0; l < m->per_node; l++) {
        out[l] = neo__shard_place_count(shard, l) * p->inside;
        in[l] = mine * neo__shard_inside_cols(m, first + l);
    }
    return neo__shard_swap(shard->node, back, p->inside_out, out, p->inside_in, in, NEO_F32, NULL);
}
/* Start the exchange of the sums. */
static neo_status neo__shard_nodes_exchange(neo_shard *shard, int way) {
    const neo__shard_map *m = shard->map;
    const neo__shard_pooled *p = &shard->pooled;
    const int node = shard->rank / m->per_node, place = shard->rank % m->per_node;
    int64_t *out = shard->exchange.counts, *in = shard->exchange.counts + m->ranks;
    void *here = m->wire[way] == NEO_WIRE_F32 ? (void *)p->mid_out : (void *)p->mid_coded_out;
    for (int h = 0; h < m->nodes; h++) {
        out[h] =
            neo__shard_samples(shard->now, h * m->per_node + place) * m->at_node[node].coded[way];
        in[h] = neo__shard_samples(shard->now, shard->rank) * m->at_node[h].coded[way];
    }
    return neo__shard_swap(shard->cross, way, here, out, p->mid_coded_in, in, NEO_U8,
                           &shard->cross_ticket);
}
/* From local, begun; and to local, where the exchange has begun. */
static neo_status neo__shard_nodes_send(neo_shard *s) {
    const neo__shard_pooled *p = &s->pooled;
    const int64_t n = neo__shard_place_count(s, s->rank % s->map->per_node);
    NEO__TRY(neo__shard_inside_pick(s, 0));
    NEO__TRY(neo__shard_alone(s));
    NEO__TRY(neo__shard_inside_exchange(s, 0));
    NEO__TRY(neo__shard_run_list(s, NEO__SHARD_JOIN, p->mid_out, p->mid, p->inside_in, n));
    if (s->map->wire[0] != NEO_WIRE_F32)
        NEO__TRY(neo__shard_run_list(s, NEO__SHARD_CROSS, p->mid_out, p->mid, p->mid_coded_out, n));
    return neo__shard_nodes_exchange(s, 0);
}
static neo_status neo__shard_nodes_get(neo_shard *s) {
    const neo__shard_pooled *p = &s->pooled;
    const int64_t n = neo__shard_place_count(s, s->rank % s->map->per_node);
    NEO__TRY(neo_comm_wait(s->cross, s->cross_ticket));
    if (s->map->wire[1] != NEO_WIRE_F32)
        NEO__TRY(
            neo__shard_run_list(s, NEO__SHARD_GET_SUMS, p->mid_out, p->mid, p->mid_coded_out, n));
    NEO__TRY(neo__shard_run_list(s, NEO__SHARD_SPREAD, p->mid_out, p->mid, p->inside_in, n));
    NEO__TRY(neo__shard_inside_exchange(s, 1));
    return neo__shard_inside_pick(s, 1);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-none

   NEO_POOL_NONE: a row for each id. A message from a holder of rows to a rank: route by route of
   the holder, a row for each id that came from the rank, as it sent them; gradients come back in
   the same order. Rows are coded by themselves, so that the rank of the ids finds each in what has
   come: per_id.in_at says where the rows of a route begin, and the next of them belongs to the next
   id of its source. No column is cut and nothing is summed, so each source has one route; a dropped
   id has a row of zeros, which does not travel. On a device the lists of >>impl-shard-rows have one
   row for each id, whose place the host has found: neo__shard_send_places.
   ------------------------------------------------------------------------ */
/* Ids of this rank's routes; of those that came from a rank for one of them; of its own batch. */
static int64_t neo__shard_local_ids(const neo_shard *s) {
    const neo__shard_batch *b = s->now;
    return s->map->device_ids ? b->local_ids : b->offsets[s->exchange.routes * b->global];
}
static int64_t neo__shard_ids_from(const neo_shard *s, int64_t route, int rank) {
    const neo__shard_batch *b = s->now;
    if (s->map->device_ids) return b->came[route * s->map->ranks + rank];
    const int64_t *offsets = b->offsets + route * b->global;
    return offsets[b->start[rank + 1]] - offsets[b->start[rank]];
}
static int64_t neo__shard_given_ids(const neo_shard *s) {
    const neo__shard_batch *b = s->now;
    return s->map->device_ids && !s->whole ? b->given : neo_jagged_id_count(&b->batch);
}
/* Places and counts of what comes from each rank, or (out) goes there; returns how much it is. */
static int64_t neo__shard_per_id_count(neo_shard *shard, int out, int64_t *counts) {
    const neo__shard_map *map = shard->map;
    const neo__shard_batch *b = shard->now;
    int64_t at = 0;
    for (int r = 0; r < map->ranks; r++) {
        const int64_t before = at, first = map->route_begin[out ? shard->rank : r];
        for (int64_t i = first; i < map->route_begin[(out ? shard->rank : r) + 1]; i++) {
            const int64_t ids = out ? neo__shard_ids_from(shard, i - first, r)
                                    : b->sent[neo__shard_source_of_route(map, &map->routes[i])];
            if (out) shard->per_id.out_at[r * shard->exchange.routes + i - first] = at;
            else shard->per_id.in_at[i] = at;
            at += ids * neo__shard_grad_floats(&map->parts[map->routes[i].part]);
        }
        counts[r] = at - before;
    }
    return at;
}
/* Rows that the neo_bags of this rank gives, and takes. */
static neo_tensor neo__shard_local_rows(const neo_shard *s) {
    const neo__shard_batch *b = s->now;
    if (s->map->none)
        return neo__shard_matrix(s, (float *)s->per_id.local.data,
                                 neo__shard_local_ids(s), s->per_id.dim);
    return neo__shard_matrix(s, s->pooled.local, b->global, s->pooled.width);
}
/* The next of each source is the first that came of it. */
static void neo__shard_begin_sources(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    for (int64_t i = 0; i < map->route_count; i++)
        if (map->parts[map->routes[i].part].first_col == 0)
            shard->per_id.next[neo__shard_source_of_route(map, &map->routes[i])] =
                shard->per_id.in_at[i];
}
NEO__HOT_BEGIN
/* Places where numbers leave for each id of this rank's routes, in the units of out_at; then where
   those of each of the caller's ids come, -1: nowhere; then (late) the length of its bag, if that
   divides. */
static void neo__shard_fill_places(neo_shard *shard, int32_t *to) {
    const neo__shard_map *map = shard->map;
    const neo__shard_batch *b = shard->now;
    const neo_jagged *j = &b->batch;
    const neo__shard_route *route = map->routes + map->route_begin[shard->rank];
    for (int64_t i = 0; i < shard->exchange.routes; i++)
        for (int r = 0; r < map->ranks; r++) {
            const int64_t *offsets = b->offsets + i * b->global;
            const int64_t floats = neo__shard_grad_floats(&map->parts[route[i].part]);
            int64_t at = shard->per_id.out_at[r * shard->exchange.routes + i];
            for (int64_t k = offsets[b->start[r]]; k < offsets[b->start[r + 1]]; k++, at += floats)
                *to++ = (int32_t)at;
        }
    neo__shard_begin_sources(shard);
    int32_t *lengths = map->late ? to + neo_jagged_id_count(j) : NULL;
    for (int64_t bag = 0; bag < map->feature_count * j->batch; bag++) {
        const int32_t f = (int32_t)(bag / j->batch);
        const neo_table_desc *table = &map->tables[map->feature_table[f]];
        const int travels = map->first_source[f] < map->first_source[f + 1];
        const int64_t length = j->offsets[bag + 1] - j->offsets[bag];
        for (int64_t k = j->offsets[bag]; k < j->offsets[bag + 1]; k++) {
            const int64_t row =
                travels ? neo__shard_row(map->desc.bounds, table, neo__shard_id(j, k)) : -1;
            *to++ = row < 0 ? -1 : (int32_t)shard->per_id.next[neo__shard_source_of(map, f, row)]++;
            if (lengths) *lengths++ = neo__shard_is_late(map, f) ? (int32_t)length : 1;
        }
    }
}
NEO__HOT_END
/* The same where ids are on the device; runs are of ranks and routes that have ids. */
static neo_status neo__shard_make_places(neo_shard *shard) {
    const neo__shard_map *map = shard->map;
    const neo__shard_batch *b = shard->now;
    const neo__shard_route *route = map->routes + map->route_begin[shard->rank];
    neo__shard_exchange *x = &shard->exchange;
    NEO__ZERO(neo__places_call, call);
    for (int64_t i = 0; i < x->routes; i++)
        for (int r = 0; r < map->ranks; r++) {
            const neo__ids_run run = {neo__shard_ids_from(shard, i, r),
                                      shard->per_id.out_at[r * x->routes + i], 0, call.count,
                                      neo__shard_grad_floats(&map->parts[route[i].part]), 0, 0, 0};
            x->run[call.runs++] = run;
            call.count += run.bags;
        }
    neo__shard_begin_sources(shard);
    for (int64_t u = 0, at = 0; u < map->source_count; at += b->sent[u++])
        x->source_counts[u] = at;
    call.run = x->run;
    call.place = (const int32_t *)b->places.data;
    call.ids = b->given;
    call.parts = map->source_count;
    call.first = x->source_counts;
    call.base = shard->per_id.next;
    call.to = (int32_t *)shard->per_id.at.data;
    return neo__device_places(shard->ctx, &call);
}
/* On a device: these, once out_at and in_at are there. */
static neo_status neo__shard_send_places(neo_shard *shard, int64_t out, int64_t in) {
    neo__shard_per_id *p = &shard->per_id;
    const int64_t n = neo__shard_local_ids(shard) +
                      neo__shard_given_ids(shard) * (shard->map->late ? 2 : 1);
    NEO__CHECK(out <= INT32_MAX && in <= INT32_MAX, NEO_ERR_UNSUPPORTED,
               "neo_shard: a batch of %" PRId64 " and %" PRId64 " ids or blocks between devices",
               out, in);
    NEO__TRY(neo__shard_grow(shard, &p->at, n, sizeof(int32_t), 1));
    if (shard->map->device_ids) return neo__shard_make_places(shard);
    NEO__TRY(neo__shard_grow(shard, &p->host_at, n, sizeof(int32_t), 0));
    neo__shard_fill_places(shard, (int32_t *)p->host_at.data);
    return neo__shard_send_there(shard, p->at.data, p->host_at.data, n * (int64_t)sizeof(int32_t));
}
/* Those of the caller's ids. */
static const int32_t *neo__shard_own_places(const neo_shard *s) {
    return (const int32_t *)s->per_id.at.data + neo__shard_local_ids(s);
}
/* Rows of data-parallel tables, of the caller's samples [begin, end), by a list: one behind another
   in `coded`. */
static neo_status neo__shard_run_replicas(neo_shard *shard, neo__shard_list list, neo_tensor rows,
                                          int64_t begin, int64_t end, void *coded) {
    const neo_jagged *j = &shard->now->batch;
    const int64_t ids = neo__shard_given_ids(shard);
    const int32_t *lengths =
        list == NEO__SHARD_GIVE && shard->map->late ? neo__shard_own_places(shard) + ids : NULL;
    float *at = (float *)coded;
    for (int64_t q = 0; q < shard->map->replica_count; q++) {
        const int64_t f = shard->map->replicas[q], *offsets = j->offsets + f * j->batch;
        int64_t first = 0, n = 0;
        if (shard->map->device_ids) { /* of all samples: there are none of NEO_POOL_NONE */
            for (int64_t i = 0; i < f; i++) first += shard->now->given_of[i];
            n = shard->now->given_of[f];
        } else {
            first = offsets[begin] - j->offsets[0], n = offsets[end] - offsets[begin];
        }
        NEO__TRY(neo__shard_run_places(shard, list, (float *)rows.data + first * rows.stride[0],
                                       rows.stride[0], at, n, NULL,
                                       lengths ? lengths + first : NULL));
        at += n * rows.shape[1];
    }
    return NEO_OK;
}
/* Room for the rows of a batch. */
static neo_status neo__shard_none_reserve(neo_shard *s) {
    neo__shard_per_id *p = &s->per_id;
    const int there = s->pooled.on_device;
    int64_t out = neo__shard_per_id_count(s, 1, s->exchange.counts);
    int64_t in = neo__shard_per_id_count(s, 0, s->exchange.counts);
    NEO__TRY(neo__shard_grow(s, &p->local, out * p->dim, sizeof(float), there));
    NEO__TRY(neo__shard_grow(s, &p->out, out, (size_t)p->row_bytes, there));
    NEO__TRY(neo__shard_grow(s, &p->in, in, (size_t)p->row_bytes, there));
    return there ? neo__shard_send_places(s, out, in) : NEO_OK;
}
/* From local to what leaves; back: from there. */
static neo_status neo__shard_none_code(neo_shard *shard, int back) {
    const neo__shard_map *map = shard->map;
    const neo__shard_batch *b = shard->now;
    const neo__shard_per_id *per_id = &shard->per_id;
    const int64_t bytes = (int64_t)neo_wire_row_bytes(map->wire[back], per_id->dim);
    if (shard->pooled.on_device)
        return neo__shard_run_places(shard, back ? NEO__SHARD_GET : NEO__SHARD_SEND,
                                     (float *)per_id->local.data, per_id->dim, per_id->out.data,
                                     neo__shard_local_ids(shard),
                                     (const int32_t *)per_id->at.data, NULL);
    for (int r = 0; r < map->ranks; r++)
        for (int64_t i = 0; i < shard->exchange.routes; i++) {
            const int64_t *offsets = b->offsets + i * b->global;
            int64_t first = offsets[b->start[r]], n = offsets[b->start[r + 1]] - first;
            float *rows = (float *)per_id->local.data + first * per_id->dim;
            char *at =
                (char *)per_id->out.data + per_id->out_at[r * shard->exchange.routes + i] * bytes;
            if (n > 0 && back)
                neo_wire_decode(shard->ctx, map->wire[1], 0, at, n, per_id->dim, per_id->dim, rows);
            else if (n > 0)
                neo_wire_encode(shard->ctx, map->wire[0], 0, rows, n, per_id->dim, per_id->dim, at,
                                neo__shard_wire_stats(shard, 0));
        }
    return NEO_OK;
}
/* Work on what travels for each id. rows: of the caller, or (back) their gradients. */
typedef struct neo__shard_id_job {
    neo_shard *s;
    float *rows;
    int64_t stride;
    int back;
} neo__shard_id_job;
NEO__HOT_BEGIN
/* Rows between what comes and the caller's, of one feature. */
static void neo__shard_none_task(void *arg, int64_t feature, int worker) {
    const neo__shard_id_job *job = (const neo__shard_id_job *)arg;
    neo_shard *shard = job->s;
    const neo__shard_map *map = shard->map;
    const neo_jagged *j = &job->s->now->batch;
    const neo_wire wire = map->wire[job->back];
    const int32_t f = (int32_t)feature;
    const int64_t dim = shard->per_id.dim, bytes = (int64_t)neo_wire_row_bytes(wire, dim);
    const neo_table_desc *table = &map->tables[map->feature_table[f]];
    const int64_t last = j->offsets[(f + 1) * j->batch];
    (void)worker;
    if (map->first_source[f] == map->first_source[f + 1]) return;
    for (int64_t i = j->offsets[f * j->batch]; i < last; i++) {
        int64_t row = neo__shard_row(map->desc.bounds, table, neo__shard_id(j, i));
        float *mine = job->rows + (i - j->offsets[0]) * job->stride;
        if (row < 0) {
            if (!job->back) neo__shard_fill(mine, 0, (size_t)dim * sizeof *mine);
            continue;
        }
        char *at = (char *)shard->per_id.in.data +
                   shard->per_id.next[neo__shard_source_of(map, f, row)]++ * bytes;
        if (job->back)
            neo_wire_encode(shard->ctx, wire, 0, mine, 1, dim, dim, at,
                            neo__shard_wire_stats(shard, 1));
        else neo_wire_decode(shard->ctx, wire, 0, at, 1, dim, dim, mine);
    }
}
/* Rows of a data-parallel table, of the caller's samples [begin, end) of feature f: rounded as if
   they had travelled. */
static float *neo__shard_none_copy(const neo__shard_id_job *job, int32_t f, int64_t begin,
                                   int64_t end, float *rows) {
    const neo_shard *s = job->s;
    const int64_t *offsets = job->s->now->batch.offsets;
    const int64_t first = offsets[f * job->s->now->batch.batch + begin], dim = s->per_id.dim;
    const int64_t n = offsets[f * job->s->now->batch.batch + end] - first;
    float *mine = job->rows + (first - offsets[0]) * job->stride;
    for (int64_t i = 0; i < n && job->back; i++)
        memcpy(rows + i * dim, mine + i * job->stride, (size_t)dim * sizeof *rows);
    neo__shard_round(s, s->map->wire[job->back], rows, n, dim);
    for (int64_t i = 0; i < n && !job->back; i++)
        memcpy(mine + i * job->stride, rows + i * dim, (size_t)dim * sizeof *rows);
    return rows + n * dim;
}
NEO__HOT_END
/* Room for the rows of j, which begins at sample `begin`; back: and their gradients. */
static neo_status neo__shard_none_copies(neo_shard *shard, const neo_jagged *batch, int64_t begin,
                                         int back) {
    const neo__shard_map *m = shard->map;
    const int64_t floats = neo_jagged_id_count(batch) * shard->per_id.dim;
    const int there = shard->pooled.on_device;
    NEO__TRY(neo__shard_grow(shard, &shard->per_id.copies, floats, sizeof(float), there));
    if (there && back)
        return neo__shard_run_replicas(shard, NEO__SHARD_COPIES_BACK, shard->dout, begin,
                                       begin + batch->batch, shard->per_id.copies.data);
    const neo__shard_id_job k = {shard, (float *)shard->dout.data, shard->dout.stride[0], 1};
    float *rows = (float *)shard->per_id.copies.data;
    for (int64_t q = 0; q < m->replica_count && back; q++)
        rows = neo__shard_none_copy(&k, m->replicas[q], begin, begin + batch->batch, rows);
    return NEO_OK;
}
/* All rows of this rank's ids: to the caller, or back. Features have sources of their own, so each
   may have a thread, unless what a wire does to rows is counted. */
static neo_status neo__shard_none_rows(neo_shard *shard, neo_tensor rows, int back) {
    const neo__shard_map *m = shard->map;
    neo__shard_id_job k = {shard, (float *)rows.data, rows.stride[0], back};
    float *copies = (float *)shard->per_id.copies.data;
    if (shard->pooled.on_device) {
        NEO__TRY(neo__shard_run_places(shard, back ? NEO__SHARD_RETURN : NEO__SHARD_TAKE, k.rows,
                                       k.stride, shard->per_id.in.data, rows.shape[0],
                                       neo__shard_own_places(shard), NULL));
        return back ? NEO_OK
                    : neo__shard_run_replicas(shard, NEO__SHARD_COPIES, rows, 0,
                                              shard->now->batch.batch, copies);
    }
    neo__shard_begin_sources(shard);
    const int64_t ids = neo_jagged_id_count(&shard->now->batch);
    if (!back || !neo__shard_wire_stats(shard, 1))
        neo__run_tasks(shard->ctx, m->feature_count, neo__shard_none_task, &k,
                       ids * (16 + shard->per_id.dim / 4));
    else
        for (int32_t f = 0; f < m->feature_count; f++) neo__shard_none_task(&k, f, 0);
    for (int64_t q = 0; q < m->replica_count && !back; q++)
        copies = neo__shard_none_copy(&k, m->replicas[q], 0, shard->now->batch.batch, copies);
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-shard-copies

   Data-parallel tables: every rank has a copy, and pools its own samples. Dense gradients of each
   subtree of this rank's leaves go into a sum over all ranks, by the tree over leaves; every rank
   then steps the touched rows alike. A device merges a subtree's gradients where they lie in dense,
   sums there, and steps from dense.sum; what it keeps is out of the way. Without one, and through
   the host, they are merged as kept gradients, and what is kept is parked meanwhile.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
/* Features of data-parallel tables, of the caller's samples [begin, end). */
static neo_status neo__shard_copies_batch(neo_shard *shard, int64_t begin, int64_t end,
                                          neo_jagged *jagged) {
    const neo__shard_map *map = shard->map;
    const neo_jagged *from = &shard->now->batch;
    const size_t size = neo_dtype_size(from->id_dtype);
    const int64_t n = end - begin;
    int64_t *to = shard->copies.offsets;
    if (map->device_ids) return neo__shard_copies_there(shard, begin, n, jagged);
    neo__buffer *ids = &shard->copies.ids_of[0], *weights = &shard->copies.ids_of[1];
    to[0] = 0;
    for (int64_t q = 0; q < map->replica_count; q++) {
        for (int64_t i = 0; i < n; i++, to++) {
            const int64_t *offset =
                from->offsets + neo__jagged_bag(from, map->replicas[q], begin + i);
            to[1] = to[0] + offset[1] - offset[0];
        }
    }
    NEO__TRY(neo__shard_grow(shard, ids, to[0], size, 0));
    if (from->weights) NEO__TRY(neo__shard_grow(shard, weights, to[0], sizeof(float), 0));
    NEO__TRY(neo_bags_reserve(shard->replicas, n, to[0]));
    if (shard->pooled.on_device) neo__bags_vouch(shard->replicas, to[0]);
    for (int64_t q = 0; q < map->replica_count; q++) {
        const int64_t run = from->inverse ? 1 : n; /* bags that lie one after another */
        for (int64_t i = 0; i < n; i += run) {
            const int64_t first = from->offsets[neo__jagged_bag(from, map->replicas[q], begin + i)];
            const int64_t at = shard->copies.offsets[q * n + i];
            const size_t count = (size_t)(shard->copies.offsets[q * n + i + run] - at);
            neo__shard_copy((char *)ids->data + (size_t)at * size,
                            (const char *)from->ids + (size_t)first * size, count * size);
            if (from->weights)
                neo__shard_copy((float *)weights->data + at, from->weights + first,
                                count * sizeof(float));
        }
    }
    neo__shard_fill(jagged, 0, sizeof *jagged);
    jagged->batch = end - begin;
    jagged->feature_count = (int32_t)map->replica_count;
    jagged->id_dtype = from->id_dtype;
    jagged->offsets = shard->copies.offsets;
    jagged->ids = ids->data;
    jagged->weights = from->weights ? (const float *)weights->data : NULL;
    return NEO_OK;
}
/* Their part of the batch, and rows for their neo_bags; back: with gradients in them. */
static neo_status neo__shard_copies_rows(neo_shard *shard, int64_t begin, int64_t end, int back,
                                         neo_jagged *jagged, neo_tensor *rows) {
    neo__shard_copies *copies = &shard->copies;
    const int64_t width = copies->width, dim = shard->per_id.dim;
    const int all = begin == 0 && end == shard->now->batch.batch;
    const int have = back && all && copies->whole;
    copies->whole = 0;
    if (have) *jagged = copies->all;
    else NEO__TRY(neo__shard_copies_batch(shard, begin, end, jagged));
    copies->whole = all;
    copies->all = *jagged;
    *rows = neo__shard_matrix(shard, shard->pooled.copies + begin * width, jagged->batch, width);
    if (!shard->map->none) return NEO_OK;
    NEO__TRY(neo__shard_none_copies(shard, jagged, begin, back));
    *rows = neo__shard_matrix(shard, (float *)shard->per_id.copies.data,
                              neo_jagged_id_count(jagged), dim);
    return NEO_OK;
}
static neo_status neo__shard_copies_forward(neo_shard *s) {
    neo_jagged j;
    neo_tensor rows;
    NEO__TRY(neo__shard_copies_rows(s, 0, s->now->batch.batch, 0, &j, &rows));
    return neo_bags_forward(s->replicas, &j, rows);
}
/* Move gradients that a neo_bags keeps to `grads`, of all rows, and mark these rows. */
static neo_status neo__shard_dense_empty(const neo__shard_dense *dense, neo_bags *bags,
                                         float *grads, unsigned char *marks) {
    for (int64_t i = 0; i < neo_bags_kept_count(bags); i++) {
        int32_t t;
        int64_t row;
        const float *g = neo_bags_kept_row(bags, i, &t, &row);
        if (!g) return NEO_ERR_DEVICE; /* neo_last_error says why */
        int64_t dim = neo__bags_tensor(bags, t, 0).shape[1];
        neo__shard_copy(grads + dense->at[2 * t] + row * dim, g, (size_t)dim * sizeof *g);
        marks[dense->at[2 * t + 1] + row] = 1;
    }
    return neo_bags_clear(bags);
}
/* Gradients that a neo_bags keeps wait in `sum`: it needs the room next. */
static neo_status neo__shard_dense_park(neo__shard_dense *dense, neo_bags *bags) {
    neo__shard_fill(dense->parked, 0, (size_t)dense->marks);
    return neo__shard_dense_empty(dense, bags, dense->sum, dense->parked);
}
/* The marked rows of `sum`, closed up, add to what a neo_bags keeps. */
static neo_status neo__shard_dense_keep(const neo__shard_dense *dense, neo_bags *bags,
                                        const unsigned char *marks) {
    float *sum = dense->sum;
    for (int32_t t = 0; t < neo_bags_table_count(bags); t++) {
        neo_tensor w = neo__bags_tensor(bags, t, 0);
        int64_t rows = w.shape[0], dim = w.shape[1], n = 0;
        for (int64_t row = 0; row < rows; row++) {
            if (!marks[row]) continue;
            memmove(sum + n * dim, sum + row * dim, (size_t)dim * sizeof *sum);
            dense->row[n++] = row;
        }
        NEO__TRY(neo_bags_add_grad(bags, t, dense->row, n, neo_tensor_2d(sum, NEO_F32, n, dim)));
        sum += rows * dim;
        marks += rows;
    }
    return NEO_OK;
}
/* Dense gradients of one subtree of leaves, and which rows it touched, or (first) it alone. */
static neo_status neo__shard_copies_grads(neo_shard *shard, const neo_leaves *leaves, float *grads,
                                          int first) {
    neo_jagged j;
    neo_tensor rows;
    const neo__shard_dense *dense = &shard->copies.dense;
    const neo__shard_batch *b = shard->now;
    int shards = neo_ctx_repro_shards(shard->ctx);
    int64_t mine = b->begin[neo__shard_place(shard)];
    int64_t begin = neo_leaf_begin(b->all, shards, leaves->first) - mine;
    int64_t end = neo_leaf_begin(b->all, shards, leaves->first + leaves->count) - mine;
    NEO__TRY(neo__shard_copies_rows(shard, begin, end, 1, &j, &rows));
    if (shard->pooled.on_device)
        return neo__bags_dense_sum(shard->replicas, &j, rows, leaves, grads, dense->touched,
                                   first);
    if (first) neo__shard_fill(dense->touched, 0, (size_t)dense->rows);
    NEO__TRY(neo_bags_accumulate(shard->replicas, &j, rows, leaves));
    neo__shard_fill(grads, 0, (size_t)dense->floats * sizeof *grads);
    return neo__shard_dense_empty(dense, shard->replicas, grads, dense->touched);
}
static neo_status neo__shard_copies_keep(neo_shard *shard, const unsigned char *marks) {
    const neo__shard_dense *dense = &shard->copies.dense;
    if (shard->pooled.on_device) return neo__bags_dense_keep(shard->replicas, dense->sum, marks);
    return neo__shard_dense_keep(dense, shard->replicas, marks);
}
NEO__HOT_END
/* Places of the tables. */
static void neo__shard_dense_place(neo__shard_dense *dense, neo_bags *bags) {
    int64_t floats = 0, rows = 0;
    for (int32_t t = 0; t < neo_bags_table_count(bags); t++) {
        neo_tensor w = neo__bags_tensor(bags, t, 0);
        dense->at[2 * t] = floats;
        dense->at[2 * t + 1] = rows;
        floats += w.shape[0] * w.shape[1];
        rows += w.shape[0];
    }
}
/* Start the sums of their gradients over all ranks. */
static neo_status neo__shard_copies_backward(neo_shard *shard) {
    neo_leaves subtree[NEO_MAX_SUBTREES];
    const void *pieces[NEO_MAX_SUBTREES];
    neo_ticket ignored;
    int count = neo_comm_subtrees(shard->every, neo__shard_place(shard), shard->now->all, subtree);
    neo__shard_dense *dense = &shard->copies.dense;
    const int parks = shard->kept.batches > 0 && !shard->pooled.on_device;
    if (!shard->pooled.on_device) neo__shard_dense_place(dense, shard->replicas);
    if (parks) NEO__TRY(neo__shard_dense_park(dense, shard->replicas));
    for (int i = 0; i < count; i++) {
        float *grads = dense->grads + i * dense->floats;
        NEO__TRY(neo__shard_copies_grads(shard, &subtree[i], grads, i == 0));
        pieces[i] = grads;
    }
    if (parks) NEO__TRY(neo__shard_copies_keep(shard, dense->parked));
    if (shard->sums != shard->moves) NEO__TRY(neo__shard_alone(shard));
    NEO__TRY(neo_comm_all_reduce_leaves(shard->sums, pieces, dense->sum, dense->floats, NEO_F32,
                                        &ignored));
    return neo_comm_all_reduce(shard->sums, NEO_REDUCE_MAX, dense->touched, dense->touched,
                               dense->rows, NEO_U8, &shard->ticket);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-cut

   Tables cut by columns whose step needs sums over whole rows. A message from one rank to another
   has the block sums of each of the sender's parts that shares rows with one of the receiver's, in
   order of part: [sums][rows][blocks]; from device to device where pooled rows are there. All ranks
   take part in every round, with nothing to say if they have no such part.
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
/* Floats that a slice sends in this round; 0 where no part here that asks has its rows. */
static int64_t neo__shard_cut_said(const neo__shard_talk *k, const neo__shard_part *slice) {
    for (int32_t i = 0; i < k->count; i++) {
        const neo__shard_part *mine = neo__shard_cut_part(k, i);
        if (mine->table == slice->table && mine->first_row == slice->first_row)
            return k->cuts[i].sums * k->cuts[i].rows * neo__plan_blocks(slice->cols);
    }
    return 0;
}
/* 1: `rank` holds a slice of the same rows as `part`. */
static int neo__shard_shares_rows(const neo__shard_map *m, const neo__shard_part *part, int rank) {
    int64_t i = part->first_slice;
    while (i < part->end_slice && m->cuts[i].rank != rank) i++;
    return i < part->end_slice;
}
/* Count the floats that go to each rank and come from it; those that go, to `to` if it is there. */
static neo_status neo__shard_cut_pack(const neo__shard_talk *talk, float *to) {
    const neo__shard_map *map = talk->s->map;
    for (int r = 0; r < map->ranks; r++) {
        talk->out[r] = talk->in[r] = 0;
        if (r == talk->s->rank) continue;
        for (int32_t i = 0; i < talk->count; i++) {
            const neo__shard_part *mine = neo__shard_cut_part(talk, i);
            const int64_t floats = neo__shard_cut_said(talk, mine);
            if (!neo__shard_shares_rows(map, mine, r)) continue;
            talk->out[r] += floats;
            if (!to || floats == 0) continue;
            float *const blocks = (float *)(uintptr_t)talk->cuts[i].blocks;
            NEO__TRY(neo_tensor_copy(talk->s->ctx, neo__shard_matrix(talk->s, blocks, 1, floats),
                                     neo__shard_matrix(talk->s, to, 1, floats)));
            to += floats;
        }
        for (int64_t p = map->part_begin[r]; p < map->part_begin[r + 1]; p++)
            talk->in[r] += neo__shard_cut_said(talk, &map->parts[p]);
    }
    return NEO_OK;
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
/* totals += the blocks of one slice, in order; first: they were 0. */
static neo_status neo__shard_cut_add(const neo_shard *shard, const neo_cut_sums *cut,
                                     const float *blocks, int64_t n, int first) {
    if (shard->pooled.on_device)
        return neo__device_cut_add(shard->ctx, cut->total, blocks, cut->sums * cut->rows, n, first);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < cut->sums * cut->rows; i++) {
        float sum = first ? 0.0f : cut->total[i];
        for (int64_t k = 0; k < n; k++) sum += blocks[i * n + k];
        cut->total[i] = sum;
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO__HOT_END
static neo_status neo__shard_cut_round(neo_shard *shard, const neo_cut_sums *cuts, int32_t count) {
    const neo__shard_map *map = shard->map;
    const neo__shard_talk talk = {shard, cuts, count, shard->exchange.counts,
                                  shard->exchange.counts + map->ranks};
    const int there = shard->pooled.on_device;
    int64_t out_floats = 0, in_floats = 0;
    NEO__TRY(neo__shard_cut_pack(&talk, NULL));
    for (int r = 0; r < map->ranks; r++) out_floats += talk.out[r], in_floats += talk.in[r];
    NEO__TRY(neo__shard_grow(shard, &shard->cutting.out, out_floats, sizeof(float), there));
    NEO__TRY(neo__shard_grow(shard, &shard->cutting.in, in_floats, sizeof(float), there));
    NEO__TRY(neo__shard_cut_pack(&talk, (float *)shard->cutting.out.data));
    NEO__TRY(neo_comm_all_to_allv(shard->moves, shard->cutting.out.data, talk.out,
                                  shard->cutting.in.data, talk.in, NEO_F32, NULL));
    for (int32_t i = 0; i < count; i++) {
        const neo__shard_part *mine = neo__shard_cut_part(&talk, i);
        for (int64_t c = mine->first_slice; c < mine->end_slice; c++)
            NEO__TRY(neo__shard_cut_add(shard, &cuts[i], neo__shard_cut_find(&talk, &map->cuts[c]),
                                        neo__plan_blocks(map->cuts[c].cols),
                                        c == mine->first_slice));
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
   >>impl-shard-merge

   Replicas whose gradients meet merged (NEO_SYNC_MERGED). A rank merges those of its group's
   samples, row by row: the sums of one subtree of leaves. They add over the ranks at its place in
   all groups, dense, by the tree over leaves, as those of data-parallel tables; each then keeps or
   steps the rows that any group touched, alike. What neo_bags keeps of batches before is parked in
   `sum` meanwhile, as its room is needed to merge.
   ------------------------------------------------------------------------ */
static neo_status neo__shard_merge_keep(neo_shard *shard, const unsigned char *marks) {
    return neo__shard_dense_keep(&shard->merging, shard->bags, marks);
}
static neo_status neo__shard_merge(neo_shard *shard) {
    neo__shard_dense *dense = &shard->merging;
    neo_bags *bags = shard->bags;
    const neo__shard_batch *batch = shard->now;
    const int leaves = neo_ctx_repro_shards(shard->ctx) / shard->map->groups;
    const neo_leaves subtree = {batch->all, shard->group * leaves, leaves, 0};
    const void *piece = dense->grads;
    const int parks = shard->kept.batches > 0;
    neo__shard_dense_place(dense, bags);
    if (parks) NEO__TRY(neo__shard_dense_park(dense, bags));
    NEO__TRY(neo_bags_accumulate(bags, &batch->local, neo__shard_local_rows(shard), &subtree));
    neo__shard_fill(dense->touched, 0, (size_t)dense->rows);
    neo__shard_fill(dense->grads, 0, (size_t)dense->floats * sizeof *dense->grads);
    NEO__TRY(neo__shard_dense_empty(dense, bags, dense->grads, dense->touched));
    if (parks) NEO__TRY(neo__shard_merge_keep(shard, dense->parked));
    NEO__TRY(neo_comm_all_reduce_leaves(shard->peers, &piece, dense->sum, dense->floats, NEO_F32,
                                        NULL));
    return neo_comm_all_reduce(shard->peers, NEO_REDUCE_MAX, dense->touched, dense->touched,
                               dense->rows, NEO_U8, NULL);
}

/* ---------------------------------------------------------------------------
   >>impl-shard-step

   A step: rows leave, are taken, their gradients return, and come (>>impl-shard-rows);
   data-parallel tables go along. One rank with nothing to round (`whole`) calls its neo_bags
   instead. A failure once an exchange has begun ends the groups of all ranks.
   ------------------------------------------------------------------------ */
/* Start the exchange of the direct routes, or of rows for each id. */
static neo_status neo__shard_exchange_rows(neo_shard *shard, int way) {
    const neo__shard_map *map = shard->map;
    const neo__shard_pooled *pooled = &shard->pooled;
    const int as_it_lies = neo__shard_sends_local(shard, way);
    int64_t *local = shard->exchange.counts + 2 * map->ranks, *remote = local + map->ranks;
    void *here = map->none      ? shard->per_id.out.data
                 : as_it_lies ? (void *)pooled->local
                              : (void *)pooled->coded_local;
    void *there = map->none ? shard->per_id.in.data : (void *)pooled->coded_remote;
    const int64_t bytes =
        map->none ? (int64_t)neo_wire_row_bytes(map->wire[way], shard->per_id.dim) : 1;
    for (int r = 0; r < map->ranks; r++) {
        local[r] = neo__shard_samples(shard->now, r) * map->at_rank[shard->rank].coded[way];
        remote[r] = neo__shard_samples(shard->now, shard->rank) * map->at_rank[r].coded[way];
        if (!map->skips) continue;
        const int64_t *start = shard->now->start + r, mine = shard->now->batch.batch;
        local[r] = neo__shard_close_up(shard, way, 0, shard->rank, start[0], start[1], NULL, 0,
                                       NULL, 0);
        remote[r] = neo__shard_close_up(shard, way, 1, r, 0, mine, NULL, 0, NULL, 0);
    }
    if (map->none) {
        (void)neo__shard_per_id_count(shard, 1, local);
        (void)neo__shard_per_id_count(shard, 0, remote);
        for (int r = 0; r < map->ranks; r++) local[r] *= bytes, remote[r] *= bytes;
    }
    if (shard->lends)
        return neo__comm_lend_rows(shard->rows, (char *)pooled->local, way ? remote : local,
                                   way ? local : remote, shard->exchange.lent,
                                   &shard->move_ticket);
    if (map->none && !way) NEO__TRY(neo__shard_none_code(shard, 0));
    else if (!as_it_lies && !way)
        NEO__TRY(neo__shard_run_list(shard, NEO__SHARD_SEND, pooled->local, pooled->width, here,
                                     shard->now->global));
    if (map->skips) neo__shard_close_all(shard, way, way, (char *)(way ? there : here), 0);
    return neo__shard_swap(shard->moves, way, here, local, there, remote, NEO_U8,
                           &shard->move_ticket);
}
/* Rows leave; */
static neo_status neo__shard_leave(neo_shard *shard) {
    neo__shard_pooled *pooled = &shard->pooled;
    const int64_t first = shard->now->begin[shard->group * shard->map->ranks];
    pooled->local = pooled->all;
    if (pooled->all && neo__shard_spread(shard->map) > 1) pooled->local += first * pooled->width;
    if (shard->map->none) NEO__TRY(neo__shard_none_reserve(shard));
    if (shard->lends) NEO__TRY(neo__comm_return(shard->rows, shard->loan++, 1));
    if (shard->bags)
        NEO__TRY(neo_bags_forward(shard->bags, &shard->now->local, neo__shard_local_rows(shard)));
    NEO__TRY(neo__shard_bag_lengths(shard));
    if (shard->map->skips) neo__shard_fill_sources(shard);
    NEO__TRY(neo__shard_exchange_rows(shard, 0));
    if (shard->node) NEO__TRY(neo__shard_nodes_send(shard));
    return shard->replicas ? neo__shard_copies_forward(shard) : NEO_OK;
}
/* ... are taken to the caller's rows; */
static neo_status neo__shard_take(neo_shard *shard, neo_tensor out) {
    const neo__shard_pooled *p = &shard->pooled;
    if (shard->whole) return neo_bags_forward(shard->bags, &shard->now->local, out);
    NEO__TRY(neo_comm_wait(shard->moves, shard->move_ticket));
    if (shard->map->none) NEO__TRY(neo__shard_none_rows(shard, out, 0));
    if (shard->map->skips) neo__shard_close_all(shard, 0, 1, p->coded_remote, 1);
    NEO__TRY(neo__shard_run_rows(shard, NEO__SHARD_TAKE, out, p->coded_remote));
    if (shard->lends) NEO__TRY(neo__comm_return(shard->rows, shard->loan, 0));
    if (shard->node) NEO__TRY(neo_comm_wait(shard->cross, shard->cross_ticket));
    NEO__TRY(neo__shard_run_rows(shard, NEO__SHARD_TAKE_SUMS, out, p->mid_coded_in));
    return neo__shard_run_rows(shard, NEO__SHARD_COPIES, out, p->copies);
}
/* ... their gradients return; */
static neo_status neo__shard_return(neo_shard *shard, neo_tensor dout) {
    const neo__shard_pooled *pooled = &shard->pooled;
    shard->dout = dout;
    shard->came = shard->whole;
    if (shard->whole) return NEO_OK;
    if (shard->map->none) NEO__TRY(neo__shard_none_rows(shard, shard->dout, 1));
    NEO__TRY(neo__shard_run_rows(shard, NEO__SHARD_RETURN, shard->dout, pooled->coded_remote));
    NEO__TRY(neo__shard_exchange_rows(shard, 1));
    if (shard->node) {
        NEO__TRY(
            neo__shard_run_rows(shard, NEO__SHARD_RETURN_SUMS, shard->dout, pooled->mid_coded_in));
        NEO__TRY(neo__shard_alone(shard));
        NEO__TRY(neo__shard_nodes_exchange(shard, 1));
    }
    NEO__TRY(neo__shard_run_rows(shard, NEO__SHARD_COPIES_BACK, shard->dout, pooled->copies));
    return shard->replicas ? neo__shard_copies_backward(shard) : NEO_OK;
}
/* The batch that was prefetched as the i-th behind the running one. */
static neo__shard_batch *neo__shard_ahead(const neo_shard *s, int i) {
    return &s->batches[(s->now - s->batches + i) % s->slots];
}
/* Send the ids of the last batch that was prefetched, if its lengths are here by now. If it is bad,
   its own forward_begin says so. */
static neo_status neo__shard_hurry(neo_shard *s) {
    neo__shard_batch *last = neo__shard_ahead(s, s->queued);
    if (s->queued == 0 || last->stage != NEO__SHARD_LENGTHS) return NEO_OK;
    neo_status status = neo__shard_advance(s, last, NEO__SHARD_IDS);
    return last->stage == NEO__SHARD_EMPTY ? NEO_OK : status;
}
/* ... and come, to local and to dense.sum. */
static neo_status neo__shard_come(neo_shard *shard) {
    const neo__shard_pooled *p = &shard->pooled;
    NEO__TRY(neo__shard_hurry(shard));
    if (shard->came) return NEO_OK;
    shard->came = 1;
    NEO__TRY(neo_comm_wait(shard->moves, shard->move_ticket));
    if (shard->replicas) NEO__TRY(neo_comm_wait(shard->sums, shard->ticket));
    if (shard->map->none) NEO__TRY(neo__shard_none_code(shard, 1));
    if (shard->map->skips)
        neo__shard_close_all(shard, 1, 0,
                             neo__shard_sends_local(shard, 1) ? (char *)p->local : p->coded_local,
                             1);
    if (!shard->map->none && !neo__shard_sends_local(shard, 1))
        NEO__TRY(neo__shard_run_list(shard, NEO__SHARD_GET, p->local, p->width, p->coded_local,
                                     shard->now->global));
    return shard->node ? neo__shard_nodes_get(shard) : NEO_OK;
}

/* Rows of the batches that wait for this forward are read, as one rank has all. */
static neo_status neo__shard_announce(neo_shard *s) {
    const int count = s->queued;
    s->queued = 0;
    for (int i = 1; i <= count; i++)
        NEO__TRY(neo_bags_prefetch(s->bags, &neo__shard_ahead(s, i)->local));
    return NEO_OK;
}
/* The exchange of ids is free for another batch: that whose ids are on their way has them, and its
   rows are read. */
static neo_status neo__shard_land(neo_shard *s) {
    neo__shard_batch *last = neo__shard_ahead(s, s->queued);
    if (s->queued == 0 || last->stage == NEO__SHARD_EMPTY || last->stage == NEO__SHARD_READY)
        return NEO_OK;
    const neo_status status = neo__shard_advance(s, last, NEO__SHARD_READY);
    if (last->stage == NEO__SHARD_EMPTY) return NEO_OK; /* its own forward_begin says why */
    NEO__TRY(status);
    return s->bags ? neo_bags_prefetch(s->bags, &last->local) : NEO_OK;
}
/* Rows of a batch to come are read once its ids are here: all ranks sent them before the layers
   that are between the exchanges. */
static neo_status neo__shard_read_ahead(neo_shard *s) {
    if (!s->map->desc.tier || s->map->device_ids) return NEO_OK;
    return s->queued && neo__shard_ahead(s, s->queued)->stage == NEO__SHARD_IDS
               ? neo__shard_land(s) : NEO_OK;
}
NEO_API neo_status neo_shard_prefetch(neo_shard *shard, const neo_jagged *batch,
                                      int64_t global_batch) {
    NEO__ENTER(shard, "neo_shard_prefetch", "shard");
    NEO__CHECK(batch, NEO_ERR_ARG, "neo_shard_prefetch: batch is NULL");
    NEO__CHECK(shard->map->pipeline, NEO_ERR_STATE,
               "neo_shard_prefetch: the plan has no second batch (neo_plan_desc.pipeline)");
    if (shard->whole) { /* its rows are read while this batch is stepped, behind its own */
        if (shard->phase != NEO__SHARD_FORWARD || shard->queued == shard->map->pipeline)
            NEO__TRY(neo__shard_announce(shard));
        if (shard->phase != NEO__SHARD_FORWARD) return neo_bags_prefetch(shard->bags, batch);
        neo__shard_ahead(shard, ++shard->queued)->local = *batch;
        return NEO_OK;
    }
    NEO__CHECK(shard->queued < shard->map->pipeline, NEO_ERR_STATE,
               "neo_shard_prefetch: as many batches are under way already as the plan has buffers "
               "for: %d (neo_plan_desc.pipeline)", shard->map->pipeline);
    NEO__TRY(neo__shard_land(shard));
    NEO__TRY(neo__shard_start(shard, neo__shard_ahead(shard, shard->queued + 1), batch,
                              global_batch));
    neo__shard_watch(neo__shard_ahead(shard, ++shard->queued));
    return NEO_OK;
}
/* The batch that comes now, its ids on their way. One that was bad begins again; those that were
   prefetched wait for one that was not. */
static neo_status neo__shard_begin(neo_shard *shard, const neo_jagged *batch,
                                   int64_t global_batch) {
    neo__shard_batch *next = neo__shard_ahead(shard, 1);
    const neo_jagged *was = &next->batch;
    const int comes = shard->queued && was->offsets == batch->offsets && was->ids == batch->ids &&
                      was->weights == batch->weights && was->inverse == batch->inverse &&
                      was->batch == batch->batch && next->asked == global_batch;
    if (comes && next->error.status == NEO_OK && was->place == NEO_HOST &&
        next->mark != neo__shard_mark(next))
        return neo__shard_or_abort(
            shard, neo_fail(NEO_ERR_STATE, "neo_shard_forward_begin: rank %d: the batch's arrays "
                            "have been written since neo_shard_prefetch", neo__shard_place(shard)));
    if (!comes || next->stage == NEO__SHARD_EMPTY) NEO__TRY(neo__shard_land(shard));
    if (comes) shard->now = next, shard->queued--;
    return comes && next->stage != NEO__SHARD_EMPTY
               ? NEO_OK : neo__shard_start(shard, shard->now, batch, global_batch);
}
/* Neither forward nor backward has begun; `end` ends the latter. */
static neo_status neo__shard_check_idle(const neo_shard *s, const char *fn, const char *end) {
    NEO__CHECK(s->phase == NEO__SHARD_IDLE || s->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "%s: call neo_shard_%s_end first", fn,
               s->phase == NEO__SHARD_FORWARD ? "forward" : end);
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward_begin(neo_shard *shard, const neo_jagged *batch,
                                           int64_t global_batch) {
    NEO__ENTER(shard, "neo_shard_forward_begin", "shard");
    NEO__CHECK(batch, NEO_ERR_ARG, "neo_shard_forward_begin: batch is NULL");
    NEO__TRY(neo__shard_check_idle(shard, "neo_shard_forward_begin", "backward"));
    shard->phase = NEO__SHARD_IDLE;
    shard->now->stage = NEO__SHARD_EMPTY;
    if (shard->whole) { /* nothing to exchange: forward_end looks up */
        NEO__TRY(neo__shard_check_batch(shard, batch, global_batch, global_batch));
        NEO__TRY(neo__shard_announce(shard)); /* there are some if forward_end was not called */
        shard->now->batch = shard->now->local = *batch;
        const int64_t ids = batch->place == NEO_HOST ? neo_jagged_full_id_count(batch) : 0;
        NEO__TRY(neo_bags_reserve(shard->bags, global_batch, ids));
        neo__shard_count_saved(shard, batch);
    } else {
        NEO__TRY(neo__shard_begin(shard, batch, global_batch));
        NEO__TRY(neo__shard_advance(shard, shard->now, NEO__SHARD_READY));
        NEO__TRY(neo__shard_or_abort(shard, neo__shard_leave(shard)));
    }
    shard->phase = NEO__SHARD_FORWARD;
    return NEO_OK;
}
static neo_status neo__shard_check_rows(const neo_shard *shard, neo_tensor t, const char *fn,
                                        const char *what) {
    const neo_jagged *j = &shard->now->batch;
    const int none = shard->map->none, blind = j->place == NEO_DEVICE && shard->whole;
    int64_t n = none && blind ? t.shape[0] : none ? neo__shard_given_ids(shard) : j->batch,
            width = neo_shard_out_width(shard);
    if (!t.data && (t.absent || t.ndim == 0)) return neo__no_data(fn, what, t, NEO_ERR_SHAPE);
    NEO__CHECK(!t.data || (t.place == NEO_DEVICE) == (neo_ctx_device(shard->ctx) != NULL),
               NEO_ERR_ARG, "%s: %s is in %s memory, but the context computes %s", fn, what,
               t.place == NEO_DEVICE ? "a device's" : "host",
               t.place == NEO_DEVICE ? "on the processor" : "on a device");
    NEO__CHECK(t.ndim == 2 && t.dtype == NEO_F32 && t.shape[0] == n && t.shape[1] == width &&
                   (t.stride[1] == 1 || width == 1) && (t.data || n == 0),
               NEO_ERR_SHAPE,
               "%s: %s must be f32 [%" PRId64 "][%" PRId64
               "], last stride 1 (%s of this rank; the dims of all "
               "features); it is %s of %d dimensions, [%" PRId64 "][%" PRId64 "]",
               fn, what, n, width, shard->map->none ? "ids" : "samples", neo_dtype_name(t.dtype),
               (int)t.ndim, t.ndim > 0 ? t.shape[0] : 0, t.ndim > 1 ? t.shape[1] : 0);
    return NEO_OK;
}
NEO_API neo_status neo_shard_forward_end(neo_shard *shard, neo_tensor out) {
    NEO__ENTER(shard, "neo_shard_forward_end", "shard");
    NEO__CHECK(shard->phase == NEO__SHARD_FORWARD, NEO_ERR_STATE,
               "neo_shard_forward_end: no forward has begun");
    NEO__TRY(neo__shard_check_rows(shard, out, "neo_shard_forward_end", "out"));
    if (shard->whole) shard->phase = NEO__SHARD_IDLE; /* after a bad batch the next one may come */
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_take(shard, out)));
    const neo_status seen = neo_check_finite(shard->ctx, "neo_shard_forward_end", "out", out);
    NEO__TRY(neo__shard_or_abort(shard, seen));
    shard->phase = NEO__SHARD_FORWARDED;
    return shard->whole ? neo__shard_announce(shard) : neo__shard_hurry(shard);
}
NEO_API neo_status neo_shard_backward_begin(neo_shard *shard, neo_tensor dout) {
    NEO__ENTER(shard, "neo_shard_backward_begin", "shard");
    NEO__CHECK(shard->phase == NEO__SHARD_FORWARDED, NEO_ERR_STATE,
               "neo_shard_backward_begin: neo_shard_forward_end has not been called");
    const char *fn = "neo_shard_backward_begin";
    NEO__TRY(neo__shard_check_rows(shard, dout, fn, "dout"));
    NEO__TRY(neo__shard_or_abort(shard, neo_check_finite(shard->ctx, fn, "dout", dout)));
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_return(shard, dout)));
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_read_ahead(shard)));
    shard->phase = NEO__SHARD_BACKWARD;
    return NEO_OK;
}
/* Gradients in local become those of all groups; or, where groups step alone, of a loss over this
   group's samples. */
static neo_status neo__shard_meet_peers(neo_shard *shard) {
    const int groups = shard->map->groups, ranks = shard->map->ranks;
    int64_t *counts = shard->exchange.counts, *begin = shard->now->begin;
    if (shard->map->sync < 0) return neo__shard_merge(shard);
    if (shard->map->sync > 1)
        return neo_scale(shard->ctx, neo__shard_local_rows(shard), (float)groups, NULL);
    for (int g = 0; g < groups; g++, begin += ranks)
        counts[g] = (begin[ranks] - begin[0]) * shard->pooled.width;
    return neo_comm_all_gather(shard->peers, shard->pooled.local, shard->pooled.all, 0, counts,
                               NEO_F32, NULL);
}
/* Gradients of pooled rows are here, divided, and ready to be merged. */
static neo_status neo__shard_backward_ready(neo_shard *s) {
    NEO__TRY(neo__shard_come(s));
    if (s->pooled.on_device && s->map->late)
        NEO__TRY(neo__shard_send_there(s, s->pooled.whole, s->now->whole,
                                       s->exchange.flows * s->now->global *
                                           (int64_t)sizeof *s->pooled.whole));
    NEO__TRY(neo__shard_run_list(s, NEO__SHARD_DIVIDE, s->pooled.local, s->pooled.width,
                                 s->pooled.local, s->now->global));
    return s->peers && s->bags ? neo__shard_meet_peers(s) : NEO_OK;
}
/* The gradients of the batch that this rank's rows step by. */
static neo_tensor neo__shard_step_rows(neo_shard *s) {
    if (neo__shard_spread(s->map) == 1) return neo__shard_local_rows(s);
    return neo__shard_matrix(s, s->pooled.all, s->now->all, s->pooled.width);
}
/* Weights and state of all groups, added in order of the groups, over their number. */
static neo_status neo__shard_average(neo_shard *shard) {
    const float share = 1.0f / (float)shard->map->groups;
    neo_bags *bags = shard->bags;
    for (int32_t i = 0; bags && i < 3 * neo_bags_table_count(bags); i++) {
        const neo_tensor w = neo_bags_weight(bags, i / 3);
        const neo_tensor x = i % 3 ? neo_bags_state(bags, i / 3, i % 3 - 1) : w;
        if (i % 3 == 0) NEO__TRY(neo_bags_note_rows(bags, i / 3, 0, w.shape[0]));
        if (!x.data || neo_tensor_count(x) == 0) continue;
        NEO__TRY(neo_comm_all_reduce(shard->peers, NEO_REDUCE_SUM, x.data, x.data,
                                     neo_tensor_count(x), NEO_F32, NULL));
        NEO__TRY(neo_scale(shard->ctx, x, share, NULL));
    }
    shard->synced = shard->steps;
    return NEO_OK;
}
/* One step, of the batch or (NULL) of what is kept. All that is sent comes before anything
   changes. */
static neo_status neo__shard_update(neo_shard *shard, const neo__shard_batch *batch, float lr) {
    if (shard->whole)
        return batch ? neo_bags_backward(shard->bags, &batch->local, shard->dout, lr)
                     : neo_bags_step(shard->bags, lr);
    shard->cutting.round = 0;
    if (shard->bags) /* they may have been loaded */
        neo__bags_set_clocks(shard->bags, shard->steps, shard->key_steps);
    if (shard->replicas) neo_bags_set_steps(shard->replicas, shard->steps);
    if (shard->cutting.own_rounds == 0) NEO__TRY(neo__shard_cut_rest(shard));
    const int at_once = batch && shard->pooled.on_device;
    if (shard->replicas && batch && !at_once)
        NEO__TRY(neo__shard_copies_keep(shard, shard->copies.dense.touched));
    if (shard->bags && batch && shard->map->sync < 0) {
        NEO__TRY(neo__shard_merge_keep(shard, shard->merging.touched));
        NEO__TRY(neo_bags_step(shard->bags, lr));
    } else if (shard->bags && batch) {
        const neo__shard_batch *stepped = neo__shard_stepped(shard, shard->now);
        NEO__TRY(
            neo_bags_backward(shard->bags, &stepped->local, neo__shard_step_rows(shard), lr));
    } else if (shard->bags) {
        NEO__TRY(neo_bags_step(shard->bags, lr));
    }
    if (shard->replicas && at_once)
        NEO__TRY(neo__bags_dense_step(shard->replicas, shard->copies.dense.sum,
                                      shard->copies.dense.touched, lr));
    else if (shard->replicas) NEO__TRY(neo_bags_step(shard->replicas, lr));
    neo__device_counts(shard->ctx, &shard->steps);
    shard->steps++;
    shard->key_steps++;
    if (shard->map->sync <= 1 || shard->steps % shard->map->sync) return NEO_OK;
    return neo__shard_average(shard);
}
NEO_API neo_status neo_shard_sync(neo_shard *shard) {
    NEO__ENTER(shard, "neo_shard_sync", "shard");
    NEO__TRY(neo__shard_check_idle(shard, "neo_shard_sync", "backward"));
    if (shard->map->sync <= 1 || shard->synced == shard->steps) return NEO_OK;
    return neo__shard_or_abort(shard, neo__shard_average(shard));
}
NEO_API neo_status neo_shard_backward_end(neo_shard *shard, float lr) {
    NEO__ENTER(shard, "neo_shard_backward_end", "shard");
    NEO__CHECK(shard->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE,
               "neo_shard_backward_end: no backward has begun");
    NEO__CHECK(shard->kept.batches == 0, NEO_ERR_STATE,
               "neo_shard_backward_end: bags '%s': gradients of %d batches are kept: call "
               "neo_shard_accumulate_end, then neo_shard_step, or neo_shard_clear",
               shard->map->desc.name, shard->kept.batches);
    NEO__CHECK(lr - lr == 0.0f, NEO_ERR_NUMERIC, "neo_shard_backward_end: lr is %g", (double)lr);
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_backward_ready(shard)));
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_update(shard, shard->now, lr)));
    shard->phase = NEO__SHARD_IDLE;
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
   wire what travels, and is multiplied, is divided and rounded. A device says of an id what its
   neo_bags_weight_grad does, at the place that the host has found.
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
static float *neo__shard_grad_bag(const neo__shard_id_job *job, const neo__shard_route *route,
                                  const int64_t *offsets, int64_t g, float *to, float *room,
                                  int worker) {
    const neo_shard *shard = job->s;
    const neo__shard_part *part = &shard->map->parts[route->part];
    int32_t table = (int32_t)(route->part - shard->map->part_begin[shard->rank]);
    const int64_t next = shard->per_id.dim; /* a gradient for each id, or one for all of the bag */
    const float *dout = next ? (const float *)shard->per_id.local.data + offsets[0] * next
                             : shard->pooled.local + g * shard->pooled.width + route->col;
    const float *row = room;
    neo_tensor w = neo__bags_tensor(shard->bags, table, 0);
    const int keyed = shard->map->tables[part->table].keys.on;
    int64_t floats = neo__shard_grad_floats(part);
    for (int64_t i = offsets[0]; i < offsets[1]; i++, to += floats, dout += next) {
        int64_t id = neo__shard_id(&job->s->now->local, i);
        if (keyed) row = neo__bags_read_key(shard->bags, table, (uint64_t)id, worker);
        else if (w.dtype == NEO_F32 && w.place == NEO_HOST)
            row = (const float *)w.data + id * part->cols;
        else /* only reads, so threads may */
            (void)neo_bags_get_rows(shard->bags, table, id, 1, room);
        neo__shard_grad_of(part, row, dout, to);
    }
    return to;
}
/* A task: what one rank is told of one route. */
static void neo__shard_grad_task(void *arg, int64_t task, int worker) {
    const neo__shard_id_job *k = (const neo__shard_id_job *)arg;
    neo_shard *s = k->s;
    const neo__shard_batch *b = s->now;
    const int64_t i = task % s->exchange.routes, r = task / s->exchange.routes;
    const neo__shard_route *route = &s->map->routes[s->map->route_begin[s->rank] + i];
    float *to = (float *)s->per_id.grad_out.data + s->per_id.out_at[task];
    float *room = s->per_id.row;
    if (room) room += worker * (s->per_id.room / neo_ctx_threads(s->ctx));
    for (int64_t g = b->start[r]; g < b->start[r + 1]; g++)
        to = neo__shard_grad_bag(k, route, b->offsets + i * b->global + g, g, to, room,
                                 worker);
}
/* The sums of whole rows, in place of what the parts with the first columns say. */
static void neo__shard_grad_join(neo_shard *shard, const neo__shard_batch *batch) {
    const neo__shard_map *m = shard->map;
    float *in = (float *)shard->per_id.grad_in.data;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t q = 0; q < m->route_count; q++) { /* by feature and column */
        const neo__shard_route *r = &m->pull[q];
        const neo__shard_part *part = &m->parts[r->part];
        int32_t u = neo__shard_source_of_route(m, r);
        int64_t at = shard->per_id.in_at[r->place], n = neo__plan_blocks(part->cols);
        if (part->first_col == 0) shard->per_id.next[u] = at;
        for (int64_t i = 0; i < batch->sent[u] && part->first_col; i++) {
            float sum = in[shard->per_id.next[u] + i];
            for (int64_t k = 0; k < n; k++) sum += in[at + i * n + k];
            in[shard->per_id.next[u] + i] = sum;
        }
    }
    neo__fp_leave(fp);
}
/* Gradients of weights of a feature to the caller, in order of ids: of a data-parallel table from
   `own`, one after another (returns where they end); else (NULL) of what has come. */
static const float *neo__shard_grad_give(const neo__shard_id_job *job, int32_t f,
                                         const float *own) {
    const neo__shard_map *m = job->s->map;
    const neo_jagged *j = &job->s->now->batch;
    const float *in = (const float *)job->s->per_id.grad_in.data;
    const neo_table_desc *table = &m->tables[m->feature_table[f]];
    const int64_t *offsets = j->offsets + f * j->batch;
    for (int64_t i = 0; i < j->batch; i++) {
        int64_t length = neo__shard_is_late(m, f) ? offsets[i + 1] - offsets[i] : 1;
        for (int64_t n = offsets[i]; n < offsets[i + 1]; n++) {
            int64_t row = own ? -1 : neo__shard_row(m->desc.bounds, table, neo__shard_id(j, n));
            float x = own ? *own++ : 0.0f;
            if (row >= 0) x = in[job->s->per_id.next[neo__shard_source_of(m, f, row)]++];
            job->rows[n - j->offsets[0]] = length > 1 ? x / (float)length : x;
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
/* The caller's gradients of weights, a row each. */
static neo_tensor neo__shard_job_grads(const neo__shard_id_job *job) {
    return neo_tensor_2d(job->rows, NEO_F32, neo__shard_given_ids(job->s), 1);
}
/* Gradients of weights of data-parallel tables: all that they need is on this rank. */
static neo_status neo__shard_grad_replicas(const neo__shard_id_job *job) {
    neo_shard *shard = job->s;
    neo_jagged j;
    neo_tensor rows;
    const int there = shard->pooled.on_device;
    NEO__TRY(neo__shard_run_rows(shard, NEO__SHARD_COPIES_RAW, shard->dout, shard->pooled.copies));
    NEO__TRY(neo__shard_copies_rows(shard, 0, job->s->now->batch.batch, 1, &j, &rows));
    int64_t ids = shard->map->device_ids ? shard->now->copied : neo_jagged_id_count(&j);
    NEO__TRY(neo__shard_grow(shard, &shard->per_id.grad_out, ids, sizeof(float), there));
    float *made = (float *)shard->per_id.grad_out.data;
    const float *grad = made;
    NEO__TRY(neo_bags_weight_grad(shard->replicas, &j, rows, made));
    if (there)
        return neo__shard_run_replicas(shard, NEO__SHARD_GIVE, neo__shard_job_grads(job), 0,
                                       job->s->now->batch.batch, made);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t q = 0; q < shard->map->replica_count; q++)
        grad = neo__shard_grad_give(job, shard->map->replicas[q], grad);
    neo__fp_leave(fp);
    return NEO_OK;
}
/* On a device: what this rank says of ids; and what it has been told, to the caller. */
static neo_status neo__shard_grads_there(neo_shard *shard, int64_t out, int64_t in) {
    float *to = (float *)shard->per_id.grad_out.data;
    if (!shard->map->none) NEO__TRY(neo__shard_send_places(shard, out, in));
    if (!shard->bags) return NEO_OK;
    return neo__bags_weight_grad_at(shard->bags, &shard->now->local, neo__shard_local_rows(shard),
                                    to, (const int32_t *)shard->per_id.at.data);
}
static neo_status neo__shard_grads_taken(const neo__shard_id_job *job) {
    neo_shard *shard = job->s;
    const neo__shard_map *m = shard->map;
    float *in = (float *)shard->per_id.grad_in.data;
    const int32_t *at = neo__shard_own_places(shard);
    const int64_t ids = neo__shard_given_ids(shard);
    for (int64_t q = 0; q < m->route_count; q++) { /* by feature and column */
        const neo__shard_route *r = &m->pull[q];
        const neo__shard_part *part = &m->parts[r->part];
        const int32_t u = neo__shard_source_of_route(m, r);
        const int64_t from = shard->per_id.in_at[r->place], n = shard->now->sent[u];
        if (part->first_col == 0) shard->per_id.next[u] = from;
        else if (n > 0)
            NEO__TRY(neo__device_cut_add(shard->ctx, in + shard->per_id.next[u], in + from, n,
                                         neo__plan_blocks(part->cols), 0));
    }
    NEO__TRY(neo__shard_run_places(shard, NEO__SHARD_GIVE, job->rows, 1, in, ids, at,
                                   m->late ? at + ids : NULL));
    return shard->replicas ? neo__shard_grad_replicas(job) : NEO_OK;
}
static neo_status neo__shard_weight_grads(neo_shard *shard, float *dweights) {
    neo__shard_id_job job = {shard, dweights, 1, 0};
    const int there = shard->pooled.on_device;
    int64_t *out = shard->exchange.counts, *in = shard->exchange.counts + shard->map->ranks;
    NEO__TRY(neo__shard_come(shard));
    int64_t out_floats = neo__shard_per_id_count(shard, 1, out);
    int64_t in_floats = neo__shard_per_id_count(shard, 0, in);
    NEO__TRY(neo__shard_grow(shard, &shard->per_id.grad_out, out_floats, sizeof(float), there));
    NEO__TRY(neo__shard_grow(shard, &shard->per_id.grad_in, in_floats, sizeof(float), there));
    if (there) NEO__TRY(neo__shard_grads_there(shard, out_floats, in_floats));
    else
        neo__run_tasks(shard->ctx, shard->per_id.pairs, neo__shard_grad_task, &job,
                       32 * out_floats); /* rows far apart */
    NEO__TRY(neo_comm_all_to_allv(shard->moves, shard->per_id.grad_out.data, out,
                                  shard->per_id.grad_in.data, in, NEO_F32, NULL));
    if (there) return neo__shard_grads_taken(&job);
    neo__shard_grad_join(shard, shard->now);
    neo__run_tasks(shard->ctx, shard->map->feature_count, neo__shard_grad_give_task, &job,
                   8 * neo_jagged_id_count(&shard->now->batch));
    return shard->replicas ? neo__shard_grad_replicas(&job) : NEO_OK;
}
NEO_API neo_status neo_shard_weight_grad(neo_shard *shard, float *dweights) {
    const char *fn = "neo_shard_weight_grad";
    NEO__CHECK_LIVE(shard, fn, "shard");
    NEO__CHECK(shard->map->weight_grad, NEO_ERR_STATE,
               "%s: the plan has no gradients of weights: give neo_plan_desc.weight_grad", fn);
    NEO__CHECK(shard->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE,
               "%s: no backward has begun (call it between neo_shard_backward_begin and _end)", fn);
    const neo_jagged *batch = &shard->now->batch;
    const int blind = shard->whole && batch->place == NEO_DEVICE;
    NEO__CHECK(dweights || blind || neo__shard_given_ids(shard) == 0, NEO_ERR_ARG,
               "%s: dweights is NULL", fn);
    if (shard->whole) return neo_bags_weight_grad(shard->bags, batch, shard->dout, dweights);
    return neo__shard_or_abort(shard, neo__shard_weight_grads(shard, dweights));
}

/* ---------------------------------------------------------------------------
   >>impl-shard-keep

   Gradients that are kept are in the slots of this rank's neo_bags: of its parts, and of its copies
   of data-parallel tables, which every rank has alike once the sums over all ranks are there. In
   host memory the neo_bags of copies also merges each subtree of leaves of a batch, before that
   sum: meanwhile what it keeps is parked in dense.sum.

   Room: a part keeps at most as many rows as ids came to it in all batches, and no more than it
   has. What the plan expects of the ids has room from the start; where there come more, it grows
   when a batch is added.
   ------------------------------------------------------------------------ */
/* Room for the rows of one more batch. */
static neo_status neo__shard_keep_room(neo_shard *shard, const neo__shard_batch *batch) {
    const neo__shard_map *m = shard->map;
    double rows = 0.0;
    if (shard->whole) {
        const neo_jagged *j = &batch->batch; /* of a device's no more is known */
        const int64_t ids = j->place == NEO_HOST ? neo_jagged_id_count(j) : m->desc.max_ids;
        rows = (double)neo__bags_kept_most(shard->bags) + (double)ids;
        return neo_bags_reserve_kept(shard->bags, neo__shard_most_kept(rows));
    }
    const neo__shard_part *part = m->parts + m->part_begin[shard->rank];
    const neo__shard_route *route = m->routes + m->route_begin[shard->rank];
    for (int64_t i = 0; i < shard->exchange.routes; i++) {
        int64_t p = route[i].part - m->part_begin[shard->rank];
        int64_t ids = shard->kept.ids[p];
        for (int r = 0; r < m->ranks && m->device_ids; r++) ids += batch->came[i * m->ranks + r];
        if (!m->device_ids)
            ids += batch->offsets[neo__jagged_first_bag(&batch->local, i + 1)] -
                    batch->offsets[neo__jagged_first_bag(&batch->local, i)];
        shard->kept.ids[p] = ids < part[p].rows ? ids : part[p].rows;
    }
    for (int64_t p = 0; p < shard->kept.parts; p++) rows += (double)shard->kept.ids[p];
    return neo_bags_reserve_kept(shard->bags, neo__shard_most_kept(rows));
}
static neo_status neo__shard_keep(neo_shard *s) {
    const neo__shard_batch *b = neo__shard_stepped(s, s->now);
    if (s->replicas) NEO__TRY(neo__shard_copies_keep(s, s->copies.dense.touched));
    if (!s->bags) return NEO_OK;
    if (s->map->sync < 0) return neo__shard_merge_keep(s, s->merging.touched);
    NEO__TRY(neo__shard_keep_room(s, b));
    if (s->whole) return neo_bags_accumulate(s->bags, &b->local, s->dout, NULL);
    return neo_bags_accumulate(s->bags, &b->local, neo__shard_step_rows(s), NULL);
}
NEO_API neo_status neo_shard_accumulate_end(neo_shard *shard) {
    NEO__SPAN(shard ? shard->ctx : NULL, "neo_shard_accumulate_end");
    const char *fn = "neo_shard_accumulate_end";
    NEO__CHECK(shard && shard->phase == NEO__SHARD_BACKWARD, NEO_ERR_STATE,
               "%s: no backward has begun", fn);
    NEO__CHECK(shard->map->kept_batches, NEO_ERR_STATE,
               "%s: the plan keeps no gradients: give neo_plan_desc.kept_batches", fn);
    int full = shard->kept.batches == shard->map->kept_batches;
    NEO__TRY(neo__shard_or_abort(shard, neo__shard_backward_ready(shard)));
    if (!full) NEO__TRY(neo__shard_or_abort(shard, neo__shard_keep(shard)));
    shard->phase = NEO__SHARD_IDLE;
    NEO__CHECK(!full, NEO_ERR_CAPACITY,
               "%s: bags '%s': gradients of %d batches are kept, as many as planned "
               "(neo_plan_desc.kept_batches): this batch is left out",
               fn, shard->map->desc.name, shard->kept.batches);
    shard->kept.batches++;
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
    if (s->bags && s->group == 0) NEO__TRY(neo_bags_grad_squares(s->bags, &squares));
    if (s->replicas && neo__shard_place(s) == 0)
        NEO__TRY(neo_bags_grad_squares(s->replicas, &squares));
    neo_exact_merge(sum, &squares);
    return NEO_OK;
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
NEO_API neo_status neo_shard_table_squares(const neo_shard *shard, int32_t table, neo_exact *sum) {
    const char *fn = "neo_shard_table_squares";
    NEO__ZERO(neo_exact, squares);
    NEO__CHECK_LIVE(shard, fn, "shard");
    const neo__shard_map *map = shard->map;
    NEO__CHECK(sum && table >= 0 && table < map->table_count, NEO_ERR_ARG, "%s: %s", fn,
               sum ? "no such table" : "sum is NULL");
    NEO__TRY(neo__shard_check_torn(shard, fn));
    if (shard->whole) return neo_bags_table_squares(shard->bags, table, sum);
    const int64_t first = map->part_begin[shard->rank];
    const int64_t end = shard->group == 0 ? map->part_begin[shard->rank + 1] : first;
    for (int64_t i = first; shard->bags && i < end; i++)
        if (map->parts[i].table == table)
            NEO__TRY(neo_bags_table_squares(shard->bags, (int32_t)(i - first), &squares));
    const int32_t copy = neo__shard_copy_of(map, table);
    if (copy >= 0 && shard->replicas && neo__shard_place(shard) == 0)
        NEO__TRY(neo_bags_table_squares(shard->replicas, copy, &squares));
    neo_exact_merge(sum, &squares);
    return NEO_OK;
}
NEO_API neo_status neo_shard_scale_grads(neo_shard *s, float scale) {
    const char *fn = "neo_shard_scale_grads";
    NEO__CHECK_LIVE(s, fn, "shard");
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
    NEO__CHECK_LIVE(s, "neo_shard_clear", "shard");
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
    return s->whole ? status : neo_comm_agree(s->every, status);
}
static neo_status neo__shard_step_kept(neo_shard *s, float lr) {
    NEO__TRY(neo__shard_or_abort(s, neo__shard_update(s, NULL, lr)));
    neo__shard_keep_none(s); /* the steps of neo_bags have left nothing */
    return NEO_OK;
}
NEO_API neo_status neo_shard_step(neo_shard *s, float lr) {
    NEO__ENTER(s, "neo_shard_step", "shard");
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
NEO_API neo_shard_stats neo_shard_get_stats(const neo_shard *shard) {
    neo_comm *groups[NEO__SHARD_GROUPS];
    neo_shard_stats st;
    neo__shard_fill(&st, 0, sizeof st);
    st.steps = shard->steps;
    st.out_of_range = shard->out_of_range;
    st.grow_count = shard->grow_count;
    st.ids_given = shard->ids_given;
    st.ids_full = shard->ids_full;
    if (shard->bags) st.grow_count += neo_bags_get_stats(shard->bags).grow_count;
    if (shard->replicas) st.grow_count += neo_bags_get_stats(shard->replicas).grow_count;
    if (shard->whole) {
        st.steps = neo_bags_get_stats(shard->bags).steps;
        st.out_of_range += neo_bags_get_stats(shard->bags).out_of_range;
        return st;
    }
    st.ids = neo_comm_get_stats(shard->ids);
    if (shard->id_moves) neo__shard_add_stats(&st.ids, neo_comm_get_stats(shard->id_moves));
    st.rows = neo_comm_get_stats(shard->rows);
    neo__shard_groups(shard, groups);
    for (int i = 1; i < NEO__SHARD_ROW_GROUPS; i++)
        if (groups[i]) neo__shard_add_stats(&st.rows, neo_comm_get_stats(groups[i]));
    if (shard->peers) st.peers = neo_comm_get_stats(shard->peers);
    if (shard->node) {
        st.node = neo_comm_get_stats(shard->node);
        st.cross = neo_comm_get_stats(shard->cross);
    }
    st.forward = shard->wire_stats[0];
    st.backward = shard->wire_stats[1];
    return st;
}
NEO_API neo_key_stats neo_shard_key_stats(const neo_shard *shard, int32_t table) {
    const neo__shard_map *map = shard->map;
    NEO__ZERO(neo_key_stats, sum);
    if (shard->whole) return neo_bags_key_stats(shard->bags, table);
    const int64_t first = map->part_begin[shard->rank], end = map->part_begin[shard->rank + 1];
    for (int64_t p = first; p < end; p++) {
        if (map->parts[p].table != table || map->parts[p].first_col) continue;
        const neo_key_stats part = neo_bags_key_stats(shard->bags, (int32_t)(p - first));
        sum.used += part.used;
        sum.lookups += part.lookups;
        sum.hits += part.hits;
        sum.admissions += part.admissions;
        sum.evictions += part.evictions;
        sum.waited += part.waited;
        sum.refused += part.refused;
    }
    return sum;
}
NEO_API void neo_shard_reset_stats(neo_shard *s) {
    s->ids_given = s->ids_full = 0;
    s->out_of_range = s->whole ? -neo_bags_get_stats(s->bags).out_of_range : 0;
    neo__shard_fill(s->wire_stats, 0, sizeof s->wire_stats);
    neo_comm *groups[NEO__SHARD_GROUPS];
    neo__shard_groups(s, groups);
    for (int i = 0; i < NEO__SHARD_GROUPS; i++)
        if (groups[i]) neo_comm_reset_stats(groups[i]);
}

/* ---- state ---- */
/* The names of neo__bags_tensor. */
enum { NEO__SHARD_TENSORS = 9 };
static const char *const neo__shard_tensor_name[NEO__SHARD_TENSORS] = {
    "weight", "scale", "momentum1", "momentum2", "keys", "used", "waiting", "waiting_used",
    "filter"};
/* The place of the k-th tensor t of a part in its table's. One float per row stands in every slice;
   the first has it. */
static neo_part neo__shard_part_place(const neo_shard *shard, const neo__shard_part *part, int k,
                                      neo_tensor t) {
    neo_part place;
    const neo_table_desc *table = &shard->map->tables[part->table];
    int per_row = k == 1 || t.ndim == 1;
    place.rows = table->rows;
    place.cols = per_row ? (t.ndim == 2 ? t.shape[1] : 0) : table->dim;
    place.first_row = part->first_row;
    place.first_col = per_row ? 0 : part->first_col;
    place.copy = (per_row && part->first_col > 0) || shard->group > 0;
    return place;
}
/* The k-th tensor of table i of a neo_bags, if it has one: of a part, or (NULL) whole. */
static neo_status neo__shard_add_tensor(neo_state *state, const neo_shard *shard, neo_bags *bags,
                                        int32_t i, int k, const neo__shard_part *part) {
    char name[1024];
    const int weights = k < 2 || k == 4 || k == 5;
    const neo_state_kind kind = weights ? NEO_STATE_WEIGHT : NEO_STATE_OPTIMIZER;
    const neo_tensor t = neo__bags_tensor(bags, i, k);
    if (!t.data) return NEO_OK;
    int n = snprintf(name, sizeof name, "%s.%s.%s", shard->map->desc.name,
                     part ? shard->map->tables[part->table].name : neo_bags_table_name(bags, i),
                     neo__shard_tensor_name[k]);
    NEO__CHECK(n > 0 && n < (int)sizeof name, NEO_ERR_ARG,
               "neo_state_add_shard: the name %.100s... is too long", name);
    neo__state_of_rows(state, neo__bags_marks(bags, i));
    neo_status status;
    if (part) {
        const neo_part place = neo__shard_part_place(shard, part, k, t);
        status = neo_state_add_part(state, kind, name, t, &place);
    } else status = neo__state_add_whole(state, kind, name, t);
    neo__state_of_rows(state, NULL);
    return status;
}
static int neo__shard_has_keys(const neo_shard *shard) {
    int keyed = 0;
    for (int32_t t = 0; t < shard->map->table_count; t++) keyed |= shard->map->tables[t].keys.on;
    return keyed;
}
static neo_status neo__shard_was_read(void *user) {
    neo_shard *shard = (neo_shard *)user;
    shard->synced = shard->steps;
    if (!shard->bags) return NEO_OK;
    neo__bags_set_clocks(shard->bags, shard->steps, shard->key_steps);
    return neo__bags_keys_read(shard->bags);
}
static void neo__shard_make_rows(void *user) {
    const neo_shard *shard = (const neo_shard *)user;
    if (shard->bags) neo__bags_make_all(shard->bags);
    if (shard->replicas) neo__bags_make_all(shard->replicas);
}
static neo_status neo__shard_may_save(void *user) {
    const neo_shard *shard = (const neo_shard *)user;
    NEO__CHECK(shard->map->sync <= 1 || shard->synced == shard->steps, NEO_ERR_STATE,
               "bags '%s': replicas differ since step %" PRId64
               ", %" PRId64 " are done: neo_shard_sync comes before a save",
               shard->map->desc.name, shard->synced, shard->steps);
    return NEO_OK;
}
NEO_API neo_status neo_state_add_shard(neo_state *state, neo_shard *shard) {
    NEO__CHECK(state && shard, NEO_ERR_ARG, "neo_state_add_shard: an argument is NULL");
    if (shard->whole) return neo_state_add_bags(state, shard->bags);
    char name[1024];
    int64_t first = shard->map->part_begin[shard->rank],
            end = shard->map->part_begin[shard->rank + 1];
    for (int32_t t = 0; t < shard->map->table_count; t++)
        NEO__TRY(neo__state_define_buckets(state, shard->map->desc.name, shard->map->tables[t].name,
                                           shard->map->tables[t].row_buckets));
    snprintf(name, sizeof name, "%s.sync", shard->map->desc.name);
    char apart[64];
    snprintf(apart, sizeof apart, "%d replicas, every %d steps", shard->map->groups,
             shard->map->sync);
    if (shard->map->sync > 1) NEO__TRY(neo_state_define(state, name, apart));
    for (int32_t t = 0; t < shard->map->table_count && shard->map->sync > 1; t++) {
        if (neo__shard_copy_of(shard->map, t) < 0) continue;
        snprintf(name, sizeof name, "%s.%s.sync", shard->map->desc.name,
                 shard->map->tables[t].name);
        NEO__TRY(neo_state_define(state, name, "every step"));
    }
    for (int k = 0; k < NEO__SHARD_TENSORS; k++) {
        for (int64_t p = first; p < end; p++)
            NEO__TRY(neo__shard_add_tensor(state, shard, shard->bags, (int32_t)(p - first), k,
                                           &shard->map->parts[p]));
        for (int32_t i = 0; shard->replicas && i < neo_bags_table_count(shard->replicas); i++)
            NEO__TRY(neo__shard_add_tensor(state, shard, shard->replicas, i, k, NULL));
    }
    snprintf(name, sizeof name, "%s.key_step", shard->map->desc.name);
    if (neo__shard_has_keys(shard))
        NEO__TRY(neo_state_add(state, NEO_STATE_WEIGHT, name,
                               neo_tensor_1d(&shard->key_steps, NEO_I64, 1)));
    snprintf(name, sizeof name, "%s.step", shard->map->desc.name);
    NEO__TRY(neo_state_add(state, NEO_STATE_OPTIMIZER, name,
                           neo_tensor_1d(&shard->steps, NEO_I64, 1)));
    neo__state_when_read(state, neo__shard_was_read, neo__shard_may_save, neo__shard_make_rows,
                         shard);
    return NEO_OK;
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
static int64_t neo__shard_rectangles(const neo__shard_span *span, int r, int end, int64_t a,
                                     int64_t b, float *packed, float *out, const float *in) {
    const neo__shard_map *m = span->s->map;
    int64_t at = 0;
    for (int64_t p = m->part_begin[r]; p < m->part_begin[end]; p++) {
        const neo__shard_part *part = &m->parts[p];
        int64_t row = NEO__MAX(a, part->first_row);
        int64_t last = NEO__MIN(b, part->first_row + part->rows);
        if (part->table != span->table) continue;
        for (; row < last; row++, at += part->cols) {
            int64_t place = (row - span->first) * span->dim + part->first_col;
            size_t bytes = (size_t)part->cols * sizeof *packed;
            if (out) neo__shard_copy(out + place, packed + at, bytes);
            if (in) neo__shard_copy(packed + at, in + place, bytes);
        }
    }
    return at;
}
/* Rectangles of this rank, between packed and its neo_bags. */
static neo_status neo__shard_own_rows(const neo__shard_span *span, int64_t a, int64_t b) {
    const neo__shard_map *m = span->s->map;
    int64_t begin = m->part_begin[span->s->rank];
    float *at = span->packed;
    for (int64_t p = begin; p < m->part_begin[span->s->rank + 1]; p++) {
        const neo__shard_part *part = &m->parts[p];
        int64_t row = NEO__MAX(a, part->first_row);
        int64_t n = NEO__MIN(b, part->first_row + part->rows) - row;
        int32_t t = (int32_t)(p - begin);
        if (part->table != span->table || n <= 0) continue;
        row -= part->first_row;
        if (span->set) NEO__TRY(neo_bags_set_rows(span->s->bags, t, row, n, at));
        else NEO__TRY(neo_bags_get_rows(span->s->bags, t, row, n, at));
        at += n * part->cols;
    }
    return NEO_OK;
}
/* Rows [a, b) of a table whose parts lie on ranks: gathered, or scattered if they are set. */
static neo_status neo__shard_move_chunk(const neo__shard_span *span, int64_t a, int64_t b) {
    const neo_shard *shard = span->s;
    const int ranks = shard->map->ranks, all = span->root == NEO_EVERY_RANK;
    const int root = all ? 0 : span->root % ranks, group = all ? 0 : span->root / ranks;
    int64_t *counts = shard->exchange.counts;
    for (int r = 0; r < ranks; r++)
        counts[r] = neo__shard_rectangles(span, r, r + 1, a, b, NULL, NULL, NULL);
    if (span->set && all) {
        neo__shard_rectangles(span, shard->rank, shard->rank + 1, a, b, span->packed, NULL,
                              span->in);
    } else if (span->set) {
        if (span->wants) neo__shard_rectangles(span, 0, ranks, a, b, span->whole, NULL, span->in);
        if (!shard->peers)
            NEO__TRY(neo_comm_scatter(shard->rows, span->whole, span->packed, 0, counts, NEO_F32,
                                      root, NULL));
        else
            NEO__TRY(neo_comm_broadcast(shard->every, span->whole, (b - a) * span->dim, NEO_F32,
                                        span->root, NULL));
        const float *mine = span->whole;
        for (int r = 0; r < shard->rank; r++) mine += counts[r];
        if (shard->peers)
            neo__shard_copy(span->packed, mine, (size_t)counts[shard->rank] * sizeof *mine);
    }
    NEO__TRY(neo__shard_own_rows(span, a, b));
    if (span->set || (!all && group != shard->group)) return NEO_OK;
    NEO__TRY(
        all ? neo_comm_all_gather(shard->rows, span->packed, span->whole, 0, counts, NEO_F32, NULL)
            : neo_comm_gather(shard->rows, span->packed, span->whole, 0, counts, NEO_F32, root,
                              NULL));
    if (span->wants) neo__shard_rectangles(span, 0, ranks, a, b, span->whole, span->out, NULL);
    return NEO_OK;
}
/* Rows [a, b) of a data-parallel table, table t of the copies. */
static neo_status neo__shard_set_copies(const neo__shard_span *k, int32_t t, int64_t a, int64_t b) {
    const float *rows = k->whole;
    if (k->wants) rows = k->in + (a - k->first) * k->dim;
    if (k->root != NEO_EVERY_RANK) {
        int64_t floats = (b - a) * k->dim;
        if (k->wants) neo__shard_copy(k->whole, rows, (size_t)floats * sizeof *rows);
        NEO__TRY(neo_comm_broadcast(k->s->every, k->whole, floats, NEO_F32, k->root, NULL));
    }
    return neo_bags_set_rows(k->s->replicas, t, a, b - a, rows);
}
static neo_status neo__shard_move_rows(const neo__shard_span *span) {
    int32_t copy = neo__shard_copy_of(span->s->map, span->table);
    int64_t end = span->first + span->count;
    if (copy >= 0 && !span->set && !span->wants) return NEO_OK;
    if (copy >= 0 && !span->set)
        return neo_bags_get_rows(span->s->replicas, copy, span->first, span->count, span->out);
    for (int64_t a = span->first; a < end; a += span->chunk) {
        int64_t b = NEO__MIN(end, a + span->chunk);
        NEO__TRY(copy >= 0 ? neo__shard_set_copies(span, copy, a, b)
                           : neo__shard_move_chunk(span, a, b));
    }
    return NEO_OK;
}
static neo_status neo__shard_check_span(const neo__shard_span *span) {
    const neo_shard *shard = span->s;
    const neo__shard_map *m = shard->map;
    NEO__CHECK(span->table >= 0 && span->table < m->table_count, NEO_ERR_ARG,
               "%s: bags '%s' has no table %d", span->fn, m->desc.name, span->table);
    NEO__CHECK(span->root >= NEO_EVERY_RANK && span->root < neo__shard_all(m), NEO_ERR_ARG,
               "%s: root is %d, there are %d ranks (NEO_EVERY_RANK: all)", span->fn, span->root,
               neo__shard_all(m));
    const neo_table_desc *t = &m->tables[span->table];
    NEO__CHECK(span->first >= 0 && span->count >= 0 && span->first <= t->rows - span->count,
               NEO_ERR_RANGE,
               "%s: table '%s': %" PRId64 " rows from %" PRId64 " on, it has %" PRId64, span->fn,
               t->name, span->count, span->first, t->rows);
    int mine = span->root == NEO_EVERY_RANK || span->root == neo__shard_place(shard);
    NEO__CHECK(!mine || span->out || span->in || span->count == 0, NEO_ERR_ARG, "%s: rows is NULL",
               span->fn);
    return neo__shard_check_idle(shard, span->fn, "backward");
}
/* Check that all ranks give the same numbers as rank 0; what: they are, for the message. */
static neo_status neo__shard_same(const neo_shard *shard, const int64_t mine[5], const char *what,
                                  const char *fn) {
    int64_t first[5];
    memcpy(first, mine, sizeof first);
    NEO__TRY(neo_comm_broadcast(shard->every, first, 5, NEO_I64, 0, NULL));
    NEO__CHECK(memcmp(mine, first, sizeof first) == 0, NEO_ERR_MISMATCH,
               "%s: another table, %s than on rank 0", fn, what);
    return NEO_OK;
}
static neo_status neo__shard_same_span(const neo__shard_span *k) {
    const int64_t mine[] = {k->table, k->first, k->count, k->root, k->set};
    return neo__shard_same(k->s, mine, "rows or root", k->fn);
}
static neo_status neo__shard_span_run(neo__shard_span *span) {
    neo_shard *shard = span->s;
    NEO__CHECK_LIVE(shard, span->fn, "shard");
    neo_status status = neo__shard_check_span(span);
    if (shard->whole) {
        NEO__TRY(status);
        return span->set
                   ? neo_bags_set_rows(shard->bags, span->table, span->first, span->count, span->in)
                   : neo_bags_get_rows(shard->bags, span->table, span->first, span->count,
                                       span->out);
    }
    NEO__TRY(neo_comm_agree(shard->every, status));
    NEO__TRY(neo_comm_agree(shard->every, neo__shard_same_span(span)));
    span->dim = shard->map->tables[span->table].dim;
    span->chunk = NEO__MAX((int64_t)NEO__SHARD_CHUNK / span->dim, (int64_t)1);
    span->chunk = NEO__MIN(span->chunk, span->count);
    span->wants = span->root == NEO_EVERY_RANK || span->root == neo__shard_place(shard);
    size_t bytes = 2 * (size_t)(span->chunk * span->dim) * sizeof(float);
    span->packed = bytes ? (float *)neo__alloc_for(shard->ctx, bytes, span->fn) : NULL;
    span->whole = span->packed ? span->packed + span->chunk * span->dim : NULL;
    status = neo_comm_agree(shard->every, bytes && !span->packed ? NEO_ERR_MEMORY : NEO_OK);
    if (status == NEO_OK) status = neo__shard_or_abort(shard, neo__shard_move_rows(span));
    neo_free(shard->ctx, span->packed, bytes);
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

/* ---- keys ---- */
typedef enum neo__shard_verb {
    NEO__KEYS_FIND,
    NEO__KEYS_PUT,
    NEO__KEYS_DROP,
    NEO__KEYS_SCORE,
    NEO__KEYS_PRUNE
} neo__shard_verb;
typedef struct neo__shard_keys {
    neo_shard *s;
    const char *fn;
    neo__shard_verb verb;
    int32_t table;
    const uint64_t *keys;
    const float *scores;
    int64_t count, *rows; /* rows: of find and put */
    float least;          /* these two of prune */
    int most;
    int64_t pruned; /* by this rank; of slices the first counts */
} neo__shard_keys;

/* The call of a part, with all keys: those of other parts have no row there. */
static neo_status neo__shard_keys_of(neo__shard_keys *call, neo_bags *bags, int32_t table,
                                     int64_t first_row) {
    int64_t at[256], pruned = 0;
    if (call->verb == NEO__KEYS_DROP)
        return neo_bags_drop_keys(bags, table, call->keys, call->count);
    if (call->verb == NEO__KEYS_SCORE)
        return neo_bags_score_keys(bags, table, call->keys, call->scores, call->count);
    if (call->verb == NEO__KEYS_PRUNE) {
        NEO__TRY(neo_bags_prune_keys(bags, table, call->least, call->most, &pruned));
        call->pruned += pruned;
        return NEO_OK;
    }
    for (int64_t i = 0, n; i < call->count; i += n) {
        const uint64_t *keys = call->keys + i;
        n = NEO__MIN(call->count - i, (int64_t)256);
        NEO__TRY(call->verb == NEO__KEYS_FIND ? neo_bags_find_keys(bags, table, keys, n, at)
                                              : neo_bags_put_keys(bags, table, keys, n, at));
        for (int64_t r = 0; r < n; r++)
            if (at[r] >= 0) call->rows[i + r] = at[r] + first_row;
    }
    return NEO_OK;
}
static neo_status neo__shard_keys_check(const neo__shard_keys *call) {
    const neo_shard *shard = call->s;
    const neo__shard_map *m = shard->map;
    NEO__TRY(neo__shard_check_idle(shard, call->fn, "backward"));
    NEO__CHECK(call->table >= 0 && call->table < m->table_count && m->tables[call->table].keys.on,
               NEO_ERR_ARG, "%s: bags '%s' have no table %d with keys", call->fn, m->desc.name,
               call->table);
    const neo_table_desc *table = &m->tables[call->table];
    const int given = call->keys && (call->rows || call->verb > NEO__KEYS_PUT) &&
                      (call->scores || call->verb != NEO__KEYS_SCORE);
    NEO__CHECK(call->count == 0 || (call->count > 0 && given), NEO_ERR_ARG,
               "%s: table '%s': an argument is NULL, or %" PRId64 " keys", call->fn,
               table->name, call->count);
    if (call->verb == NEO__KEYS_SCORE)
        NEO__TRY(neo__check_scores(call->fn, table->name, (int)table->keys.evict, call->scores,
                                   call->count));
    NEO__CHECK(call->most >= 0 && call->most <= NEO__LINE_WAYS, NEO_ERR_ARG,
               "%s: most is %d, not in 0 .. 32", call->fn, call->most);
    NEO__CHECK(call->least == call->least, NEO_ERR_NUMERIC, "%s: least is nan", call->fn);
    const int changes = call->verb != NEO__KEYS_FIND && call->verb != NEO__KEYS_SCORE;
    NEO__CHECK(!changes || neo_shard_kept_count(shard) == 0, NEO_ERR_STATE,
               "%s: table '%s': gradients are kept: step or clear first", call->fn, table->name);
    return NEO_OK;
}
static neo_status neo__shard_same_keys(const neo__shard_keys *call) {
    const size_t count = (size_t)call->count;
    uint32_t sum = neo_crc32c(neo__bits_f32(call->least), call->keys, count * sizeof *call->keys);
    if (call->scores) sum = neo_crc32c(sum, call->scores, count * sizeof *call->scores);
    const int64_t mine[] = {(int64_t)call->verb, call->table, call->count, call->most, sum};
    return neo__shard_same(call->s, mine, "keys or numbers", call->fn);
}
/* Prune a table whose columns are cut: all ranks see whole rows, `chunk` of them at a time. */
static neo_status neo__shard_prune_cut(neo__shard_keys *call, float *rows, int64_t chunk) {
    neo_shard *shard = call->s;
    const neo__shard_map *m = shard->map;
    const neo_table_desc *table = &m->tables[call->table];
    const int64_t begin = m->part_begin[shard->rank];
    double squares[NEO__LINE_WAYS];
    for (int64_t a = 0, n; a < table->rows; a += n) {
        n = NEO__MIN(chunk, table->rows - a);
        NEO__TRY(neo_shard_get_rows(shard, call->table, a, n, NEO_EVERY_RANK, rows));
        for (int64_t p = begin; p < m->part_begin[shard->rank + 1]; p++) {
            const neo__shard_part *part = &m->parts[p];
            if (part->table != call->table) continue;
            int64_t row = NEO__MAX(a, part->first_row);
            for (; row < NEO__MIN(a + n, part->first_row + part->rows); row += NEO__LINE_WAYS) {
                for (int i = 0; i < NEO__LINE_WAYS; i++)
                    squares[i] = neo__row_squares(rows + (row - a + i) * table->dim, table->dim);
                int64_t gone = 0;
                NEO__TRY(neo__bags_prune_set(shard->bags, (int32_t)(p - begin),
                                             row - part->first_row, squares, call->least,
                                             call->most, &gone));
                if (part->first_col == 0) call->pruned += gone;
            }
        }
    }
    return NEO_OK;
}
static neo_status neo__shard_keys_move(neo__shard_keys *call) {
    neo_shard *shard = call->s;
    const neo__shard_map *m = shard->map;
    const neo_table_desc *table = &m->tables[call->table];
    int cut = 0;
    for (int64_t p = 0; p < m->part_begin[m->ranks] && call->verb == NEO__KEYS_PRUNE; p++)
        cut |= m->parts[p].table == call->table && m->parts[p].cols < table->dim;
    if (cut) {
        const int64_t sets = NEO__MAX(NEO__SHARD_CHUNK / table->dim / NEO__LINE_WAYS, 1);
        const int64_t chunk = NEO__MIN(sets * NEO__LINE_WAYS, table->rows);
        const size_t bytes = (size_t)(chunk * table->dim) * sizeof(float);
        float *rows = (float *)neo__alloc_for(shard->ctx, bytes, call->fn);
        neo_status status = neo_comm_agree(shard->every, rows ? NEO_OK : NEO_ERR_MEMORY);
        if (status == NEO_OK) status = neo__shard_prune_cut(call, rows, chunk);
        neo_free(shard->ctx, rows, bytes);
        return status;
    }
    for (int64_t p = m->part_begin[shard->rank]; p < m->part_begin[shard->rank + 1]; p++)
        if (m->parts[p].table == call->table)
            NEO__TRY(neo__shard_keys_of(call, shard->bags,
                                        (int32_t)(p - m->part_begin[shard->rank]),
                                        m->parts[p].first_row));
    if (!call->rows || call->count == 0) return NEO_OK; /* of none NULL on some ranks alone */
    return neo_comm_all_reduce(shard->every, NEO_REDUCE_MAX, call->rows, call->rows, call->count,
                               NEO_I64, NULL);
}
static neo_status neo__shard_keys_run(neo__shard_keys *call) {
    neo_shard *shard = call->s;
    NEO__CHECK_LIVE(shard, call->fn, "shard");
    neo_status status = neo__shard_keys_check(call);
    if (!shard->whole) status = neo_comm_agree(shard->every, status);
    if (!shard->whole && status == NEO_OK)
        status = neo_comm_agree(shard->every, neo__shard_same_keys(call));
    if (status != NEO_OK) return status;
    for (int64_t i = 0; i < call->count && call->rows; i++) call->rows[i] = -1;
    if (shard->whole) return neo__shard_keys_of(call, shard->bags, call->table, 0);
    return neo__shard_or_abort(shard, neo__shard_keys_move(call));
}
static neo__shard_keys neo__shard_keys_make(neo_shard *shard, const char *fn, neo__shard_verb verb,
                                          int32_t table, const uint64_t *keys, int64_t count,
                                          int64_t *rows) {
    NEO__ZERO(neo__shard_keys, call);
    call.s = shard;
    call.fn = fn;
    call.verb = verb;
    call.table = table;
    call.keys = keys;
    call.count = count;
    call.rows = rows;
    return call;
}
NEO_API neo_status neo_shard_find_keys(neo_shard *s, int32_t table, const uint64_t *keys,
                                       int64_t count, int64_t *rows) {
    neo__shard_keys call = neo__shard_keys_make(s, "neo_shard_find_keys", NEO__KEYS_FIND, table,
                                                keys, count, rows);
    return neo__shard_keys_run(&call);
}
NEO_API neo_status neo_shard_put_keys(neo_shard *s, int32_t table, const uint64_t *keys,
                                      int64_t count, int64_t *rows) {
    neo__shard_keys call = neo__shard_keys_make(s, "neo_shard_put_keys", NEO__KEYS_PUT, table,
                                                keys, count, rows);
    return neo__shard_keys_run(&call);
}
NEO_API neo_status neo_shard_drop_keys(neo_shard *s, int32_t table, const uint64_t *keys,
                                       int64_t count) {
    neo__shard_keys call = neo__shard_keys_make(s, "neo_shard_drop_keys", NEO__KEYS_DROP, table,
                                                keys, count, NULL);
    return neo__shard_keys_run(&call);
}
NEO_API neo_status neo_shard_score_keys(neo_shard *s, int32_t table, const uint64_t *keys,
                                        const float *scores, int64_t count) {
    neo__shard_keys call = neo__shard_keys_make(s, "neo_shard_score_keys", NEO__KEYS_SCORE, table,
                                                keys, count, NULL);
    call.scores = scores;
    return neo__shard_keys_run(&call);
}
NEO_API neo_status neo_shard_prune_keys(neo_shard *shard, int32_t table, float least, int most,
                                        int64_t *pruned) {
    neo__shard_keys call = neo__shard_keys_make(shard, "neo_shard_prune_keys", NEO__KEYS_PRUNE,
                                                table, NULL, 0, NULL);
    call.least = least;
    call.most = most;
    if (pruned) *pruned = 0;
    NEO__TRY(neo__shard_keys_run(&call));
    if (!shard->whole)
        NEO__TRY(neo_comm_all_reduce(shard->every, NEO_REDUCE_SUM, &call.pruned, &call.pruned, 1,
                                     NEO_I64, NULL));
    if (pruned) *pruned = call.pruned;
    return NEO_OK;
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
    float *bound;               /* and where its gradients are (DDP: without a window, too) */
    float *hidden;              /* [params_count]: what marks lie on: see neo__fsdp_mark_grads */
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
    neo__live live;
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
    int always;   /* they are all the time (DDP): windows are optional */
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
static neo_status neo__fsdp_show(neo_fsdp *f); /* >>impl-fsdp-gather */

static int64_t neo__fsdp_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
NEO_API const char *neo_fsdp_mode_name(neo_fsdp_mode mode) {
    static const char *const names[NEO_FSDP_MODE_COUNT] = {"full", "zero2", "zero1", "ddp"};
    return mode >= 0 && mode < NEO_FSDP_MODE_COUNT ? names[mode] : "unknown";
}

/* ---- checks ---- */
static int neo__fsdp_is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }
static neo_status neo__fsdp_check_unit(const neo_fsdp_desc *desc, int u, int cut) {
    const neo_fsdp_unit *unit = &desc->units[u];
    NEO__CHECK(unit->name && unit->name[0], NEO_ERR_ARG, "neo_fsdp_create: unit %d has no name", u);
    NEO__CHECK(unit->params && neo_params_is_deferred(unit->params), NEO_ERR_ARG,
               "neo_fsdp_create: params of unit '%s' are not a deferred set "
               "(neo_params_create_deferred)",
               unit->name);
    NEO__CHECK(neo_params_count(unit->params) > 0, NEO_ERR_ARG,
               "neo_fsdp_create: unit '%s' has no parameters", unit->name);
    for (int i = 0; i < neo_params_count(unit->params); i++) {
        const neo_param *p = neo_params_at(unit->params, i);
        NEO__CHECK(!cut || p->value.ndim == 1 || p->value.ndim == 2, NEO_ERR_UNSUPPORTED,
                   "neo_fsdp_create: '%s' of unit '%s' has %d dimensions: a unit that is cut has "
                   "parameters of 1 or 2 (set replicate)",
                   p->name, unit->name, (int)p->value.ndim);
        for (int v = 0; v <= u; v++) {
            const neo_param *q = neo_params_find(desc->units[v].params, p->name);
            NEO__CHECK(!q || v == u, NEO_ERR_ARG,
                       "neo_fsdp_create: units '%s' and '%s' both have a parameter '%s'",
                       desc->units[v].name, unit->name, p->name);
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
static neo_status neo__fsdp_check(const neo_fsdp_desc *desc, int ranks, int rank, int shards) {
    NEO__CHECK(desc && desc->units && desc->unit_count > 0 &&
                   desc->unit_count <= NEO__FSDP_MAX_UNITS,
               NEO_ERR_ARG, "neo_fsdp_create: desc has no units");
    NEO__CHECK(ranks > 0 && rank >= 0 && rank < ranks, NEO_ERR_ARG,
               "neo_fsdp_create: rank %d of %d", rank, ranks);
    NEO__CHECK(shards >= ranks, NEO_ERR_ARG,
               "neo_fsdp_create: repro_shards is %d: it must be at least the %d ranks", shards,
               ranks);
    NEO__CHECK(!desc->optim.name || strlen(desc->optim.name) <= 200, NEO_ERR_ARG,
               "neo_fsdp_create: the optimizer's name %.40s... is longer than 200 bytes",
               desc->optim.name);
    NEO__CHECK(desc->mode >= 0 && desc->mode < NEO_FSDP_MODE_COUNT, NEO_ERR_ARG,
               "neo_fsdp_create: no mode %d", (int)desc->mode);
    NEO__CHECK(desc->factor >= 0 && (desc->factor == 0 || ranks % desc->factor == 0), NEO_ERR_ARG,
               "neo_fsdp_create: factor is %d, which does not divide the %d ranks", desc->factor,
               ranks);
    NEO__CHECK(desc->slots >= 0 && desc->micro_batches >= 0 && desc->groups >= 0 &&
                   desc->loss_scale_window >= 0,
               NEO_ERR_ARG,
               "neo_fsdp_create: slots, micro_batches, groups or loss_scale_window is "
               "negative: %d, %d, %d, %d",
               desc->slots, desc->micro_batches, desc->groups, desc->loss_scale_window);
    NEO__CHECK(desc->accumulate >= NEO_ACCUMULATE_EACH &&
                   desc->accumulate <= NEO_ACCUMULATE_IN_GROUPS,
               NEO_ERR_ARG, "neo_fsdp_create: no accumulate %d", (int)desc->accumulate);
    uint32_t scale = neo__bits_f32(desc->loss_scale);
    NEO__CHECK(
        desc->loss_scale == 0.0f || ((scale & 0x7FFFFFu) == 0 && desc->loss_scale >= 0x1p-100f &&
                                     desc->loss_scale <= 0x1p100f),
        NEO_ERR_ARG, "neo_fsdp_create: loss_scale is %g, not a power of two from 2^-100 to 2^100",
        (double)desc->loss_scale);
    NEO__TRY(neo__fsdp_check_dtype("param_dtype", desc->param_dtype));
    return neo__fsdp_check_dtype("reduce_dtype", desc->reduce_dtype);
}
/* Choose how micro-batches add, and check that leaves, ranks and groups allow it. */
static neo_status neo__fsdp_check_sums(neo_fsdp *fsdp, int replicated) {
    neo_fsdp_desc *desc = &fsdp->desc;
    int cut = fsdp->factor > 1, shards = fsdp->shards;
    NEO__CHECK(
        !cut || fsdp->replicas == 1 ||
            (shards % fsdp->ranks == 0 && neo__fsdp_is_power(fsdp->factor) &&
             neo__fsdp_is_power(shards / fsdp->ranks)),
        NEO_ERR_UNSUPPORTED,
        "neo_fsdp_create: hybrid sharding by %d of %d ranks over %d leaves: the factor, and the "
        "leaves of a rank, must be powers of two",
        fsdp->factor, fsdp->ranks, shards);
    if (desc->accumulate == NEO_ACCUMULATE_EACH || desc->micro_batches == 1) desc->groups = 1;
    else if (desc->accumulate == NEO_ACCUMULATE_AT_END) desc->groups = shards;
    else if (desc->groups == 0) desc->groups = fsdp->replicas;
    if (desc->groups == 1) return NEO_OK;
    fsdp->local =
        desc->groups == shards || (desc->groups % fsdp->ranks == 0 && shards % desc->groups == 0 &&
                                   neo__fsdp_is_power(shards / desc->groups));
    fsdp->in_groups = !fsdp->local;
    NEO__CHECK(
        fsdp->local || (cut && desc->groups == fsdp->replicas && !replicated), NEO_ERR_UNSUPPORTED,
        "neo_fsdp_create: micro-batches that add in %d groups: neither the %d replicas of units "
        "that are all cut, nor a multiple of the %d ranks that cuts %d leaves in equal subtrees",
        desc->groups, fsdp->replicas, fsdp->ranks, shards);
    NEO__CHECK(!fsdp->leafwise || desc->groups == shards, NEO_ERR_UNSUPPORTED,
               "neo_fsdp_create: with leaf_pieces or a narrow reduce_dtype micro-batches add each, "
               "or leaf by leaf, not in %d groups of %d leaves",
               desc->groups, shards);
    return NEO_OK;
}

/* ---- pieces ---- */
static void neo__fsdp_make_pieces(neo_fsdp *fsdp) {
    int each = fsdp->local ? fsdp->shards / fsdp->desc.groups : fsdp->leafwise;
    neo__cut_leaves(fsdp->shards, fsdp->ranks, fsdp->rank, each, fsdp->leaves.piece);
    for (int i = fsdp->leaves.own; i < fsdp->leaves.pieces; i++)
        fsdp->leaves.piece[i].first = fsdp->leaves.piece[fsdp->leaves.own - 1].first,
        fsdp->leaves.piece[i].count = 0;
    neo__cut_leaves(fsdp->shards, fsdp->ranks, fsdp->rank, 0, fsdp->leaves.subtree);
    for (int s = 0, i = 0; s < fsdp->leaves.subtrees; s++) { /* leaves to pieces */
        int end = fsdp->leaves.subtree[s].first + fsdp->leaves.subtree[s].count;
        fsdp->leaves.subtree[s].first = i;
        while (i < fsdp->leaves.own && fsdp->leaves.piece[i].first < end) i++;
        fsdp->leaves.subtree[s].count = i - fsdp->leaves.subtree[s].first;
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
static int neo__fsdp_cut_buckets(const neo_fsdp *fsdp, neo__fsdp_bucket *to) {
    int64_t size = (int64_t)neo_dtype_size(fsdp->desc.reduce_dtype), at = 0,
            take = NEO__FSDP_FIRST_BUCKET / size;
    int count = 0;
    if (fsdp->desc.mode == NEO_FSDP_DDP && fsdp->ranks > 1) {
        for (; at < fsdp->whole.elements; at += take, take = NEO__FSDP_BUCKET / size, count++)
            if (to)
                to[count].first = at, to[count].count = NEO__MIN(take, fsdp->whole.elements - at);
        return count;
    }
    for (int i = fsdp->unit_count - 1; i >= 0; i--) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
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
static neo__fsdp_unit neo__fsdp_describe_unit(const neo_fsdp *fsdp, const neo_fsdp_unit *desc) {
    NEO__ZERO(neo__fsdp_unit, unit);
    int64_t factor = fsdp->factor;
    unit.params = desc->params;
    unit.params_count = neo_params_count(desc->params);
    unit.keep = desc->keep || fsdp->always;
    unit.frozen = desc->freeze != 0;
    unit.whole = factor == 1 || desc->replicate;
    if (unit.whole) factor = 1;
    unit.elements = neo__fsdp_up(neo__fsdp_offsets(desc->params, NULL), NEO__FSDP_BLOCK * factor);
    unit.chunk = unit.elements / factor;
    unit.stays = unit.whole ? fsdp->desc.param_dtype != NEO_F32
                            : unit.keep || fsdp->desc.mode != NEO_FSDP_FULL;
    unit.slotted = !unit.whole && !unit.stays;
    unit.own_window =
        !unit.frozen && (fsdp->local || unit.keep || fsdp->desc.mode == NEO_FSDP_ZERO1 ||
                         (!fsdp->narrow && (fsdp->leaves.pieces > 1 || unit.whole)));
    unit.own_narrow =
        !unit.frozen && fsdp->narrow && (unit.whole || (fsdp->leaves.pieces > 1 && !fsdp->local));
    unit.borrows = !unit.frozen &&
                   (fsdp->local ? !unit.keep && fsdp->desc.micro_batches > 1 : !unit.own_window);
    return unit;
}
/* Everything that counts arrays: fsdp without them. */
static neo_status neo__fsdp_describe(neo_fsdp *fsdp, neo_ctx *ctx, const neo_fsdp_desc *desc,
                                     int ranks, int rank) {
    int shards = neo_ctx_repro_shards(ctx), replicated = 0;
    NEO__TRY(neo__fsdp_check(desc, ranks, rank, shards));
    NEO__CHECK(!desc->host || !(neo_ctx_device(ctx) || neo_ctx_device(desc->host)),
               NEO_ERR_UNSUPPORTED,
               "neo_fsdp_create: `host` goes with contexts without a device only");
    memset(fsdp, 0, sizeof *fsdp);
    fsdp->ctx = ctx;
    fsdp->host = desc->host ? desc->host : ctx;
    fsdp->desc = *desc;
    fsdp->desc.units = NULL;
    fsdp->desc.slots = desc->slots ? desc->slots : 2;
    fsdp->desc.micro_batches = desc->micro_batches ? desc->micro_batches : 1;
    fsdp->desc.loss_scale_window = desc->loss_scale_window ? desc->loss_scale_window : 2000;
    fsdp->ranks = ranks, fsdp->rank = rank, fsdp->shards = shards;
    fsdp->always = desc->mode == NEO_FSDP_DDP;
    fsdp->factor = fsdp->always ? 1 : desc->factor ? desc->factor : ranks;
    fsdp->replicas = ranks / fsdp->factor;
    fsdp->place = rank % fsdp->factor;
    fsdp->unit_count = desc->unit_count;
    fsdp->narrow = desc->reduce_dtype != NEO_F32;
    fsdp->leafwise = fsdp->narrow || desc->leaf_pieces;
    fsdp->scaler.on = desc->loss_scale != 0.0f;
    fsdp->scaler.scale = desc->loss_scale;
    for (int u = 0; u < desc->unit_count; u++) {
        NEO__TRY(neo__fsdp_check_unit(desc, u, fsdp->factor > 1 && !desc->units[u].replicate));
        replicated |= fsdp->factor > 1 && desc->units[u].replicate && !desc->units[u].freeze;
    }
    NEO__TRY(neo__fsdp_check_sums(fsdp, replicated));
    neo__fsdp_count_pieces(fsdp);
    fsdp->whole.direct = !fsdp->narrow && fsdp->leaves.pieces == 1 && fsdp->desc.micro_batches == 1;
    int slotted = 0, owns = 0, borrows = 0;
    for (int i = 0; i < desc->unit_count; i++) {
        neo__fsdp_unit u = neo__fsdp_describe_unit(fsdp, &desc->units[i]);
        slotted += u.slotted;
        borrows |= u.borrows;
        owns |= !u.whole && u.own_window;
        fsdp->cut |= !u.whole;
        fsdp->gather.staged |= !u.whole && fsdp->desc.param_dtype != NEO_F32;
        if (u.whole && !u.frozen) fsdp->whole.elements += u.elements, fsdp->whole.buckets++;
        if (u.slotted) fsdp->gather.largest = NEO__MAX(fsdp->gather.largest, u.elements);
        if (!u.whole) fsdp->reduce.largest_cut = NEO__MAX(fsdp->reduce.largest_cut, u.elements);
        if (u.borrows)
            fsdp->reduce.largest_window = NEO__MAX(fsdp->reduce.largest_window, u.elements);
    }
    fsdp->gather.slots = NEO__MIN(fsdp->desc.slots, slotted);
    /* Units with windows of their own have a lane that no window takes: closing one always works */
    fsdp->reduce.windows = !borrows ? 0 : fsdp->desc.slots > 1 ? 2 : 1;
    fsdp->reduce.lanes = fsdp->reduce.windows;
    if (owns) fsdp->reduce.lanes += fsdp->reduce.windows || fsdp->desc.slots == 1 ? 1 : 2;
    if (fsdp->desc.mode == NEO_FSDP_DDP && ranks > 1)
        fsdp->whole.buckets = neo__fsdp_cut_buckets(fsdp, NULL);
    return NEO_OK;
}

/* ---- the record ---- */
/* The record's arrays and texts, behind it. */
static size_t neo__fsdp_layout_record(neo_fsdp *fsdp, char *base, const neo_fsdp_desc *desc) {
    neo__carve carve = {base, sizeof *fsdp};
    carve.at = (carve.at + 63) & ~(size_t)63;
    NEO__CARVE(&carve, fsdp->unit, fsdp->unit_count);
    for (int i = 0; i < fsdp->unit_count; i++) {
        NEO__ZERO(neo__fsdp_unit, none);
        const neo_fsdp_unit *unit = &desc->units[i];
        neo__fsdp_unit *u = base ? &fsdp->unit[i] : &none;
        if (base) *u = neo__fsdp_describe_unit(fsdp, unit);
        NEO__CARVE(&carve, u->begin, neo_params_count(unit->params) + 1);
        NEO__CARVE(&carve, u->hidden, neo_params_count(unit->params));
        NEO__CARVE(&carve, u->window, fsdp->leaves.pieces);
        NEO__CARVE(&carve, u->narrow, fsdp->leaves.pieces);
        u->name = neo__carve_text(&carve, "%s", unit->name);
        u->absent = neo__carve_text(&carve, "unit '%s' is not in a window", unit->name);
        u->no_grad = neo__carve_text(
            &carve,
            unit->freeze ? "unit '%s' is frozen"
            : fsdp->always  ? "unit '%s' has had its backward (neo_fsdp_piece_end or neo_fsdp_step "
                           "comes first)"
                         : "unit '%s' is not in a backward window",
            unit->name);
    }
    fsdp->desc.optim.name =
        neo__carve_text(&carve, "%s", desc->optim.name ? desc->optim.name : "optim");
    NEO__CARVE(&carve, fsdp->leaves.piece, fsdp->leaves.pieces);
    NEO__CARVE(&carve, fsdp->leaves.subtree, fsdp->leaves.subtrees);
    NEO__CARVE(&carve, fsdp->leaves.send, fsdp->leaves.pieces);
    NEO__CARVE(&carve, fsdp->whole.window, fsdp->leaves.pieces);
    NEO__CARVE(&carve, fsdp->whole.narrow, fsdp->leaves.pieces);
    for (int i = 0; i < NEO__FSDP_LANES; i++)
        NEO__CARVE(&carve, fsdp->reduce.lane[i].narrow, fsdp->leaves.pieces);
    NEO__CARVE(&carve, fsdp->gather.slot_unit, fsdp->gather.slots);
    NEO__CARVE(&carve, fsdp->gather.slot, fsdp->gather.slots);
    NEO__CARVE(&carve, fsdp->whole.bucket, fsdp->whole.buckets);
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
static neo_status neo__fsdp_make_runs(neo_fsdp *fsdp) {
    NEO__TRY(neo_params_create_deferred(fsdp->ctx, &fsdp->runs));
    for (int i = 0; i < fsdp->unit_count; i++) {
        neo__fsdp_unit *u = &fsdp->unit[i];
        u->first_param = neo_params_count(fsdp->runs);
        for (int k = 0; k < u->params_count && !u->frozen; k++) {
            const neo_param *p = neo_params_at(u->params, k);
            NEO__ZERO(neo_init, none);
            int64_t first, at, count = neo__fsdp_run(fsdp, u, k, &first, &at);
            if (u->whole)
                NEO__TRY(
                    neo_params_add(fsdp->runs, p->name, p->value.ndim, p->value.shape, none, NULL));
            else NEO__TRY(neo_params_add(fsdp->runs, p->name, 1, &count, none, NULL));
        }
    }
    return NEO_OK;
}
/* ---- memory ---- */
/* Masters and gradients. */
static size_t neo__fsdp_layout_shard(neo_fsdp *fsdp, char *base) {
    neo__carve carve = {base, 0};
    for (int i = 0; i < fsdp->unit_count; i++)
        NEO__CARVE(&carve, fsdp->unit[i].master, fsdp->unit[i].chunk);
    fsdp->master_bytes = carve.at;
    NEO__CARVE(&carve, fsdp->whole.grad, fsdp->whole.elements);
    for (int i = 0; i < fsdp->unit_count; i++) {
        neo__fsdp_unit *u = &fsdp->unit[i];
        if (u->frozen) continue;
        if (!u->whole) NEO__CARVE(&carve, u->grad, u->chunk);
        else if (base) u->grad = fsdp->whole.grad + u->at;
    }
    return carve.at;
}
/* Gathered values. */
static size_t neo__fsdp_layout_gathered(neo_fsdp *fsdp, char *base) {
    neo__carve carve = {base, 0};
    size_t size = neo_dtype_size(fsdp->desc.param_dtype);
    for (int i = 0; i < fsdp->gather.slots; i++)
        NEO__CARVE(&carve, fsdp->gather.slot[i], fsdp->gather.largest);
    for (int i = 0; i < fsdp->unit_count; i++)
        if (fsdp->unit[i].stays)
            NEO__CARVE(&carve, fsdp->unit[i].full, fsdp->unit[i].elements);
    fsdp->gather.stages = !fsdp->gather.staged ? 0 : fsdp->desc.no_prefetch ? 1 : 2;
    for (int i = 0; i < fsdp->gather.stages; i++)
        neo__carve_next(&carve, &fsdp->gather.stage[i], size, (size_t)fsdp->reduce.largest_cut);
    return carve.at;
}
/* Gradients before they are reduced. Units that are whole share arrays, one per piece. */
static size_t neo__fsdp_layout_windows(neo_fsdp *fsdp, char *base) {
    neo__carve carve = {base, 0};
    size_t size = neo_dtype_size(fsdp->desc.reduce_dtype);
    /* one serves all pieces that are encoded */
    int windows = fsdp->narrow && !fsdp->local ? 1 : fsdp->leaves.pieces;
    int shared = !fsdp->narrow || fsdp->local, micro = fsdp->desc.micro_batches > 1;
    for (int p = 0; p < fsdp->leaves.pieces && shared; p++)
        if (fsdp->whole.direct) fsdp->whole.window[p] = fsdp->whole.grad;
        else NEO__CARVE(&carve, fsdp->whole.window[p], fsdp->whole.elements);
    for (int p = 0; p < fsdp->leaves.pieces && fsdp->narrow; p++)
        neo__carve_next(&carve, &fsdp->whole.narrow[p], size, (size_t)fsdp->whole.elements);
    for (int i = 0; i < fsdp->unit_count; i++) {
        neo__fsdp_unit *unit = &fsdp->unit[i];
        for (int p = 0; p < fsdp->leaves.pieces && unit->own_window; p++) {
            if (unit->whole && shared)
                unit->window[p] = fsdp->whole.window[p] ? fsdp->whole.window[p] + unit->at : NULL;
            else if (p < windows)
                NEO__CARVE(&carve, unit->window[p], unit->elements);
            else unit->window[p] = unit->window[0];
        }
        for (int p = 0; p < fsdp->leaves.pieces && unit->own_narrow; p++)
            if (!unit->whole)
                neo__carve_next(&carve, &unit->narrow[p], size, (size_t)unit->elements);
            else if (base)
                unit->narrow[p] = (char *)fsdp->whole.narrow[p] + (size_t)unit->at * size;
        if (fsdp->local && micro && unit->keep && !unit->frozen)
            NEO__CARVE(&carve, unit->scratch, unit->elements);
    }
    int64_t chunk = fsdp->reduce.largest_cut / fsdp->factor;
    int encode = !fsdp->narrow ? 0 : fsdp->local ? fsdp->leaves.pieces : fsdp->leaves.pieces == 1;
    for (int i = 0; i < fsdp->reduce.lanes; i++) {
        neo__fsdp_lane *lane = &fsdp->reduce.lane[i];
        if (i < fsdp->reduce.windows)
            NEO__CARVE(&carve, lane->window, fsdp->reduce.largest_window);
        for (int p = 0; p < encode; p++)
            neo__carve_next(&carve, &lane->narrow[p], size, (size_t)fsdp->reduce.largest_cut);
        if (fsdp->narrow || (micro && !fsdp->local))
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
static neo_status neo__fsdp_make_record(neo_ctx *ctx, const neo_fsdp_desc *desc, int ranks,
                                        int rank, neo_fsdp **out) {
    neo_fsdp t;
    NEO__TRY(neo__fsdp_describe(&t, ctx, desc, ranks, rank));
    t.record_bytes = neo__fsdp_layout_record(&t, NULL, desc);
    neo_fsdp *fsdp = (neo_fsdp *)neo__alloc_for(ctx, t.record_bytes, "neo_fsdp_create");
    if (!fsdp) return NEO_ERR_MEMORY;
    memset(fsdp, 0, t.record_bytes);
    *fsdp = t;
    neo__fsdp_layout_record(fsdp, (char *)fsdp, desc);
    neo__fsdp_make_pieces(fsdp);
    int64_t at = 0;
    for (int i = fsdp->unit_count - 1; i >= 0; i--) { /* gradients of whole units: the last first */
        neo__fsdp_unit *u = &fsdp->unit[i];
        neo__fsdp_offsets(u->params, u->begin);
        if (u->whole && !u->frozen) u->at = at, at += u->elements;
    }
    neo__fsdp_cut_buckets(fsdp, fsdp->whole.bucket);
    neo__fsdp_count_units(fsdp);
    neo__fsdp_begin_anew(fsdp);
    size_t before = neo_ctx_memory(ctx).bytes;
    neo_status status = neo__fsdp_make_runs(fsdp);
    fsdp->runs_bytes = neo_ctx_memory(ctx).bytes - before;
    neo__fsdp_layout(fsdp);
    neo_optim_desc optim = fsdp->desc.optim;
    if (fsdp->cut && status == NEO_OK) fsdp->group.size = fsdp->factor, optim.group = &fsdp->group;
    else optim.group = NULL;
    if (status == NEO_OK) fsdp->optim_bytes = neo_optim_state_bytes(fsdp->runs, &optim);
    if (status != NEO_OK) neo__fsdp_free_record(fsdp);
    else *out = fsdp;
    return status;
}

/* ---- predictions ---- */
/* Gathers of a step in the order of units; see the header. */
static void neo__fsdp_predict_gathers(const neo_fsdp *fsdp, neo_fsdp_prediction *prediction) {
    int64_t sweeps = (int64_t)fsdp->desc.micro_batches * fsdp->leaves.pieces, slotted = 0, seen = 0,
            calls = 0;
    double elements = 0.0, bytes = (double)neo_dtype_size(fsdp->desc.param_dtype);
    for (int i = 0; i < fsdp->unit_count; i++) slotted += fsdp->unit[i].slotted;
    for (int i = 0; i < fsdp->unit_count; i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        int64_t times = !u->whole;
        if (u->slotted) {
            /* in each way back; in each way there but the first */
            times += seen < slotted - fsdp->gather.slots ? sweeps : 0;
            times += seen >= fsdp->gather.slots ? sweeps - 1 : 0;
            seen++;
        }
        calls += times;
        elements += (double)times * (double)(u->elements - u->chunk);
    }
    prediction->all_gathers = calls;
    prediction->all_gather_bytes = elements * bytes;
}
/* Elements that rank `rank` sends in an all-reduce of n, of which it has `pieces` sums: parts are
   whole blocks of 16. (A small one sends as much in all, but not the same on each rank.) */
static double neo__fsdp_all_reduce_elements(int64_t n, int ranks, int rank, int pieces) {
    int64_t end = rank + 1 == ranks ? n : n / 16 * (rank + 1) / ranks * 16;
    int64_t part = end - n / 16 * rank / ranks * 16;
    return (double)pieces * (double)(n - part) + (double)(ranks - 1) * (double)part;
}
static void neo__fsdp_predict_reductions(const neo_fsdp *fsdp, neo_fsdp_prediction *prediction) {
    double size = (double)neo_dtype_size(fsdp->desc.reduce_dtype),
           pieces = (double)fsdp->leaves.subtrees;
    int64_t times = fsdp->local ? 1 : fsdp->desc.micro_batches, joins = fsdp->in_groups ? 1 : times;
    for (int i = 0; i < fsdp->unit_count; i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        if (u->frozen || u->whole) continue;
        prediction->reduce_scatters += times;
        prediction->reduce_scatter_bytes +=
            (double)times * pieces * size * (double)(u->elements - u->chunk);
        if (fsdp->replicas == 1) continue;
        prediction->all_reduces += joins;
        prediction->all_reduce_bytes +=
            (double)joins * size *
            neo__fsdp_all_reduce_elements(u->chunk, fsdp->replicas, fsdp->rank / fsdp->factor, 1);
    }
    for (int b = 0; b < fsdp->whole.buckets && fsdp->ranks > 1; b++) {
        prediction->all_reduces += times;
        prediction->all_reduce_bytes +=
            (double)times * size *
            neo__fsdp_all_reduce_elements(fsdp->whole.bucket[b].count, fsdp->ranks, fsdp->rank,
                                          fsdp->leaves.subtrees);
    }
}
static void neo__fsdp_predict_bytes(const neo_fsdp *fsdp, neo_fsdp_prediction *prediction) {
    prediction->master_bytes = fsdp->master_bytes;
    prediction->grad_bytes = fsdp->masters.bytes - fsdp->master_bytes;
    prediction->state_bytes = fsdp->optim_bytes;
    prediction->gathered_bytes = fsdp->gathered.bytes;
    prediction->window_bytes = fsdp->windows.bytes;
    prediction->record_bytes = fsdp->record_bytes + fsdp->runs_bytes;
    prediction->host_bytes = fsdp->host == fsdp->ctx ? 0 : fsdp->masters.bytes + fsdp->optim_bytes;
    prediction->bytes = fsdp->masters.bytes + fsdp->optim_bytes + fsdp->gathered.bytes +
                        fsdp->windows.bytes + prediction->record_bytes;
    for (int i = 0; i < fsdp->unit_count; i++) prediction->elements += fsdp->unit[i].elements;
}
NEO_API neo_status neo_fsdp_predict(neo_ctx *ctx, const neo_fsdp_desc *desc, int ranks, int rank,
                                    neo_fsdp_prediction *prediction) {
    neo_fsdp *f;
    NEO__TRY(neo__check_live(ctx, "neo_fsdp_predict", "ctx"));
    NEO__CHECK(prediction, NEO_ERR_ARG, "neo_fsdp_predict: prediction is NULL");
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
static neo_status neo__fsdp_init_unit(neo_fsdp *fsdp, const neo__fsdp_unit *unit) {
    for (int i = 0; i < unit->params_count; i++) {
        const neo_param *p = neo_params_at(unit->params, i);
        neo_init init = neo_params_initializer(unit->params, i);
        int64_t first, at, count = neo__fsdp_run(fsdp, unit, i, &first, &at);
        float *master = unit->master + at;
        neo_tensor values = neo__fsdp_numbers(fsdp, master, 0, NEO_F32, count);
        if (count == 0) master = NULL;
        else if (init.kind != NEO_INIT_NONE)
            NEO__TRY(neo_tensor_init(fsdp->ctx, values, p->name, init, first));
        if (!unit->frozen)
            NEO__TRY(neo_params_bind(fsdp->runs, unit->first_param + i, master,
                                     master ? unit->grad + at : NULL, NULL));
    }
    return NEO_OK;
}
/* Memory, first values, the optimizer: of this rank alone. */
static neo_status neo__fsdp_fill(neo_fsdp *fsdp) {
    NEO__TRY(neo__fsdp_take(fsdp->host, "masters and gradients", &fsdp->masters));
    NEO__TRY(neo__fsdp_take(fsdp->ctx, "gathered units", &fsdp->gathered));
    NEO__TRY(neo__fsdp_take(fsdp->ctx, "gradients under way", &fsdp->windows));
    neo__fsdp_layout(fsdp);
    for (int i = 0; i < fsdp->unit_count; i++) NEO__TRY(neo__fsdp_init_unit(fsdp, &fsdp->unit[i]));
    neo_optim_desc optim = fsdp->desc.optim;
    if (fsdp->shard) fsdp->group = neo_comm_group(fsdp->shard);
    optim.group = fsdp->shard ? &fsdp->group : NULL;
    NEO__TRY(neo_optim_create(fsdp->host, fsdp->runs, &optim, &fsdp->optim));
    for (int i = 0; i < fsdp->unit_count; i++)
        for (int k = 0; k < fsdp->unit[i].params_count && !fsdp->unit[i].frozen; k++)
            if (fsdp->unit[i].whole && fsdp->place > 0)
                neo_optim_count_elsewhere(fsdp->optim, fsdp->unit[i].first_param + k);
    fsdp->owner = 1;
    for (int i = 0; i < fsdp->unit_count; i++) {
        neo__fsdp_bind(&fsdp->unit[i], NULL, NULL);
        neo__params_freeze(fsdp->unit[i].params, fsdp->unit[i].frozen);
    }
    neo__ctx_take_parts(fsdp->ctx, fsdp->ranks > 1);
    neo__fsdp_begin_anew(fsdp);
    return neo__fsdp_show(fsdp);
}
static void neo__fsdp_mark_unit(uint64_t *mark, const neo__fsdp_unit *unit) {
    *mark = neo__plan_hash(*mark, (uint64_t)(unit->keep * 4 + unit->whole * 2 + unit->frozen));
    for (int k = 0; k < unit->params_count; k++) {
        const neo_param *p = neo_params_at(unit->params, k);
        neo_init init = neo_params_initializer(unit->params, k);
        *mark = neo__plan_hash(neo__plan_hash(*mark, neo_hash(p->name)), (uint64_t)init.kind);
        const double range[] = {(double)init.a, (double)init.b};
        neo__alike_numbers(mark, range, 2);
        for (int j = 0; j < p->value.ndim; j++)
            *mark = neo__plan_hash(*mark, (uint64_t)p->value.shape[j]);
    }
}
static neo_status neo__fsdp_check_alike(neo_comm *comm, const neo_fsdp *fsdp) {
    const neo_fsdp_desc *d = &fsdp->desc;
    const neo_optim_desc *desc = &d->optim;
    const double sharding[] = {(double)d->mode, (double)fsdp->factor, (double)fsdp->shards};
    const double options[] = {(double)d->slots, (double)d->no_prefetch, (double)d->micro_batches,
                              (double)d->groups, (double)d->leaf_pieces};
    const double dtypes[] = {(double)d->param_dtype, (double)d->reduce_dtype,
                             (double)d->loss_scale_window, (double)d->loss_scale};
    const double optim[] = {
        (double)desc->kind, (double)desc->nesterov, (double)desc->weight_decay,
        (double)desc->momentum, (double)desc->dampening, (double)desc->lr_decay, (double)desc->l1,
        (double)desc->eps, desc->beta1, desc->beta2, (double)desc->clip_norm,
        (double)desc->initial_accumulator, (double)desc->clip_norm_type};
    NEO__ZERO(neo__alike, alike);
    neo__alike_add(&alike, "another seed of the context than rank 0", neo_ctx_seed(fsdp->ctx));
    uint64_t *mark = neo__alike_add(&alike, "another mode or factor than rank 0", 0);
    neo__alike_numbers(mark, sharding, sizeof sharding / sizeof *sharding);
    mark = neo__alike_add(
        &alike, "other slots, no_prefetch, micro_batches, groups or leaf_pieces than rank 0", 0);
    neo__alike_numbers(mark, options, sizeof options / sizeof *options);
    mark = neo__alike_add(&alike, "another param_dtype, reduce_dtype or loss_scale than rank 0", 0);
    neo__alike_numbers(mark, dtypes, sizeof dtypes / sizeof *dtypes);
    mark = neo__alike_add(&alike, "another optimizer than rank 0, or of other options",
                          neo_hash(desc->name));
    neo__alike_numbers(mark, optim, sizeof optim / sizeof *optim);
    mark = neo__alike_add(
        &alike,
        "other units than rank 0: parameters, shapes, initial values, or what is kept or frozen",
        (uint64_t)fsdp->unit_count);
    for (int i = 0; i < fsdp->unit_count; i++) neo__fsdp_mark_unit(mark, &fsdp->unit[i]);
    return neo__alike_check(comm, &alike, "neo_fsdp_create");
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
/* A set that is in another neo_fsdp has its words where this one's will be, or memory. */
static neo_status neo__fsdp_check_owner(const neo_fsdp *f) {
    for (int i = 0; i < f->unit_count; i++)
        for (int k = 0; k < f->unit[i].params_count; k++) {
            const neo_param *p = neo_params_at(f->unit[i].params, k);
            NEO__CHECK(p->value.absent && strncmp(p->value.absent, "unit '", 6) != 0, NEO_ERR_ARG,
                       "neo_fsdp_create: '%s' of unit '%s' is bound by another owner", p->name,
                       f->unit[i].name);
        }
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_create(neo_comm *comm, const neo_fsdp_desc *desc, neo_fsdp **out) {
    NEO__CHECK(comm && out, NEO_ERR_ARG, "neo_fsdp_create: comm or fsdp is NULL");
    *out = NULL;
    neo_fsdp *fsdp = NULL;
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_comm *data = comm;
    NEO__TRY(neo__fsdp_host_group(&comm, "neo_fsdp_create"));
    neo__live_inside(ctx, 1);
    neo_status status =
        neo__fsdp_make_record(ctx, desc, neo_comm_size(comm), neo_comm_rank(comm), &fsdp);
    if (status == NEO_OK) status = neo__fsdp_check_owner(fsdp);
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) status = neo__fsdp_check_alike(comm, fsdp);
    if (status == NEO_OK) fsdp->comm = comm, status = neo__fsdp_split(fsdp, data);
    if (status == NEO_OK) status = neo_comm_agree(comm, neo__fsdp_fill(fsdp));
    neo__live_inside(ctx, -1);
    if (status == NEO_OK) neo__live_begin(ctx, &fsdp->live, "fsdp", NULL);
    if (status == NEO_OK) *out = fsdp;
    else neo_fsdp_destroy(fsdp);
    return status;
}
NEO__HOT_BEGIN NEO__HOST_BEGIN
NEO_API void neo_fsdp_destroy(neo_fsdp *fsdp) {
    if (!fsdp) return;
    neo_comm *groups[] = {fsdp->shard, fsdp->replica, fsdp->all};
    neo__live_end(fsdp->ctx, &fsdp->live);
    for (int i = 0; i < 3; i++) neo_comm_destroy(groups[i]); /* waits for what is under way */
    neo__ctx_take_parts(fsdp->ctx, -(fsdp->owner && fsdp->ranks > 1));
    for (int i = 0; i < fsdp->unit_count && fsdp->owner; i++) {
        neo__params_freeze(fsdp->unit[i].params, 0);
        for (int k = 0; k < fsdp->unit[i].params_count; k++)
            neo_params_bind(fsdp->unit[i].params, k, NULL, NULL, NULL);
    }
    neo_optim_destroy(fsdp->optim);
    neo__buffer_give_back(fsdp->host, &fsdp->masters);
    neo__buffer_give_back(fsdp->ctx, &fsdp->gathered);
    neo__buffer_give_back(fsdp->ctx, &fsdp->windows);
    neo__fsdp_free_record(fsdp);
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
    return f->seen == f->calls ? NEO_OK : neo_fsdp_cancel(f);
}
/* A slot for unit u that may be taken, or -1. */
static int neo__fsdp_find_slot(const neo_fsdp *fsdp, int u) {
    int best = -1;
    for (int i = 0; i < fsdp->gather.slots; i++) {
        int held = fsdp->gather.slot_unit[i];
        if (held < 0) return i;
        if (held == u || fsdp->unit[held].open != NEO__FSDP_CLOSED) continue;
        if (best < 0 || (fsdp->gather.backward ? held > fsdp->gather.slot_unit[best]
                                            : held < fsdp->gather.slot_unit[best]))
            best = i;
    }
    return best;
}
/* The gather of a unit is done, and its values are f32. */
static neo_status neo__fsdp_arrive(neo_fsdp *fsdp, neo__fsdp_unit *unit) {
    if (unit->presence != NEO__FSDP_COMING) return NEO_OK;
    NEO__TRY(neo__fsdp_wait(fsdp, fsdp->shard, unit->ticket));
    float *full = unit->slotted ? fsdp->gather.slot[unit->slot] : unit->full;
    if (unit->stage >= 0) {
        neo_tensor came = neo__fsdp_numbers(fsdp, fsdp->gather.stage[unit->stage], 0,
                                            fsdp->desc.param_dtype, unit->elements);
        neo_tensor to = neo__fsdp_numbers(fsdp, full, 0, NEO_F32, unit->elements);
        NEO__TRY(neo_tensor_convert(fsdp->ctx, came, to, NULL));
        fsdp->gather.stage_unit[unit->stage] = -1;
        unit->stage = -1;
    }
    unit->presence = NEO__FSDP_HERE;
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
static float *neo__fsdp_values(const neo__fsdp_unit *u) { return u->stays ? u->full : u->master; }
/* A whole unit's values become those of its masters. */
static neo_status neo__fsdp_round(neo_fsdp *f, neo__fsdp_unit *u) {
    neo_tensor master = neo__fsdp_numbers(f, u->master, 0, NEO_F32, u->chunk);
    neo_tensor full = neo__fsdp_numbers(f, u->full, 0, NEO_F32, u->elements);
    if (u->stays) NEO__TRY(neo_round(f->ctx, f->desc.param_dtype, master, full));
    u->presence = NEO__FSDP_HERE;
    return NEO_OK;
}
/* In DDP, after a step or a load, which change masters. */
static neo_status neo__fsdp_show(neo_fsdp *f) {
    for (int i = 0; i < f->unit_count && f->always; i++)
        NEO__TRY(neo__fsdp_round(f, &f->unit[i]));
    return NEO_OK;
}
static neo_status neo__fsdp_show_again(void *f) { return neo__fsdp_show((neo_fsdp *)f); }
/* Start to gather a unit that is away, a slotted one to `slot`, in the window of another or its
   own. */
static neo_status neo__fsdp_start(neo_fsdp *fsdp, int unit, int slot, int window) {
    neo__fsdp_unit *u = &fsdp->unit[unit];
    neo_dtype dtype = fsdp->desc.param_dtype;
    neo_tensor master = neo__fsdp_numbers(fsdp, u->master, 0, NEO_F32, u->chunk);
    if (u->whole) return neo__fsdp_round(fsdp, u);
    if (u->slotted) {
        int held = fsdp->gather.slot_unit[slot];
        if (held >= 0) {
            NEO__TRY(neo__fsdp_arrive(fsdp, &fsdp->unit[held])); /* it may be under way */
            fsdp->unit[held].presence = NEO__FSDP_AWAY;
            fsdp->unit[held].slot = -1;
        }
        fsdp->gather.slot_unit[slot] = unit;
        u->slot = slot;
    }
    const void *in = u->master;
    void *out = u->slotted ? fsdp->gather.slot[slot] : u->full;
    if (fsdp->gather.staged) {
        NEO__TRY(neo__fsdp_take_stage(fsdp, unit));
        out = fsdp->gather.stage[u->stage];
        neo_tensor own = neo__fsdp_numbers(fsdp, out, fsdp->place * u->chunk, dtype, u->chunk);
        NEO__TRY(neo_tensor_convert(fsdp->ctx, master, own, NULL));
        in = own.data;
    }
    char both[2 * 128 + 8]; /* so that ranks which open other windows find out */
    snprintf(both, sizeof both, "%.128s in %.128s", u->name, fsdp->unit[window].name);
    neo_comm_label(fsdp->shard, window == unit ? u->name : both);
    NEO__TRY(neo_comm_all_gather(fsdp->shard, in, out, u->chunk, NULL, dtype, &u->ticket));
    u->presence = NEO__FSDP_COMING;
    fsdp->gather.count++;
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
static neo_status neo__fsdp_hold(neo_fsdp *fsdp, int unit, float **values) {
    neo__fsdp_unit *u = &fsdp->unit[unit];
    if (u->presence == NEO__FSDP_AWAY) {
        int slot = u->slotted ? neo__fsdp_find_slot(fsdp, unit) : 0;
        NEO__CHECK(slot >= 0, NEO_ERR_CAPACITY,
                   "neo_fsdp: unit '%s' is opened inside the windows of %d others, and there are "
                   "%d slots: more slots, or `keep` for the outer unit",
                   u->name, fsdp->gather.slots, fsdp->gather.slots);
        NEO__TRY(neo__fsdp_start(fsdp, unit, slot, unit));
    } else if (!u->whole) {
        fsdp->gather.hits++;
    }
    NEO__TRY(neo__fsdp_arrive(fsdp, u));
    *values = u->slotted ? fsdp->gather.slot[u->slot] : neo__fsdp_values(u);
    return NEO_OK;
}
static neo_status neo__fsdp_check_window(neo_fsdp *fsdp, const char *function, int unit,
                                         neo__fsdp_window open) {
    static const char *const state[] = {"closed (its _begin comes first)",
                                        "open for forward (neo_fsdp_forward_end closes it)",
                                        "open for backward (neo_fsdp_backward_end closes it)"};
    NEO__CHECK_LIVE(fsdp, function, "fsdp");
    NEO__CHECK(unit >= 0 && unit < fsdp->unit_count, NEO_ERR_ARG, "%s: unit %d of %d", function,
               unit, fsdp->unit_count);
    NEO__TRY(neo__fsdp_recall(fsdp));
    NEO__CHECK(fsdp->unit[unit].open == open, NEO_ERR_STATE, "%s: unit '%s' is %s", function,
               fsdp->unit[unit].name, state[fsdp->unit[unit].open]);
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
static void neo__fsdp_close(const neo_fsdp *f, neo__fsdp_unit *u) {
    u->open = NEO__FSDP_CLOSED;
    if (!f->always) neo__fsdp_bind(u, NULL, NULL);
}
/* With check_finite: the values of a unit that is whole. */
static neo_status neo__fsdp_look(const neo_fsdp *f, const neo__fsdp_unit *u, const char *fn) {
    for (int i = 0; i < u->params_count; i++) {
        const neo_param *p = neo_params_at(u->params, i);
        NEO__TRY(neo_check_finite(f->ctx, fn, p->name, p->value));
    }
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_forward_begin(neo_fsdp *fsdp, int unit) {
    NEO__SPAN(fsdp ? fsdp->ctx : NULL, "neo_fsdp_forward_begin");
    float *values;
    NEO__TRY(neo__fsdp_check_window(fsdp, "neo_fsdp_forward_begin", unit, NEO__FSDP_CLOSED));
    fsdp->gather.backward = 0;
    NEO__TRY(neo__fsdp_hold(fsdp, unit, &values));
    neo__fsdp_open(fsdp, unit, NEO__FSDP_FORWARD);
    if (!fsdp->always) neo__fsdp_bind(&fsdp->unit[unit], values, NULL);
    neo_status status = neo__fsdp_prefetch(fsdp, unit);
    if (status == NEO_OK)
        status = neo__fsdp_look(fsdp, &fsdp->unit[unit], "neo_fsdp_forward_begin");
    if (status != NEO_OK) neo__fsdp_close(fsdp, &fsdp->unit[unit]);
    return status;
}
NEO_API neo_status neo_fsdp_forward_end(neo_fsdp *f, int unit) {
    NEO__SPAN(f ? f->ctx : NULL, "neo_fsdp_forward_end");
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
static neo_status neo__fsdp_take_lane(neo_fsdp *fsdp, int unit, int lanes) {
    neo__fsdp_lane *best = NULL;
    for (int i = 0; i < lanes; i++) {
        neo__fsdp_lane *lane = &fsdp->reduce.lane[i];
        if (lane->state == NEO__FSDP_WINDOW) continue;
        if (!best || (best->state != NEO__FSDP_FREE &&
                      (lane->state == NEO__FSDP_FREE || lane->since < best->since)))
            best = lane;
    }
    NEO__CHECK(best, NEO_ERR_CAPACITY,
               "neo_fsdp_backward_begin: unit '%s' is opened inside the backward windows of %d "
               "others: `keep` for the outer unit",
               fsdp->unit[unit].name, lanes);
    NEO__TRY(neo__fsdp_finish_lane(fsdp, best));
    best->unit = unit;
    fsdp->unit[unit].lane = (int)(best - fsdp->reduce.lane);
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
static neo_status neo__fsdp_advance_lane(neo_fsdp *fsdp, neo__fsdp_lane *lane) {
    neo__fsdp_unit *unit = &fsdp->unit[lane->unit];
    void *sum = lane->reduced ? lane->reduced : unit->grad;
    neo_dtype dtype = fsdp->desc.reduce_dtype;
    if (lane->state != NEO__FSDP_SCATTER || fsdp->replicas == 1) return NEO_OK;
    NEO__TRY(neo__fsdp_wait(fsdp, fsdp->shard, lane->ticket));
    if (fsdp->in_groups) {
        neo__fsdp_collect(fsdp, sum, unit->grad, unit->chunk, unit->micro - 1);
        if (unit->micro < fsdp->desc.micro_batches) {
            neo__fsdp_free_lane(fsdp, lane);
            return NEO_OK;
        }
        sum = unit->grad;
    }
    neo_comm_label(fsdp->replica, unit->name);
    NEO__TRY(neo_comm_all_reduce(fsdp->replica, NEO_REDUCE_SUM, sum, sum, unit->chunk, dtype,
                                 &lane->ticket));
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
static neo_status neo__fsdp_scatter(neo_fsdp *fsdp, int unit) {
    neo__fsdp_unit *u = &fsdp->unit[unit];
    for (int i = 0; i < fsdp->reduce.lanes; i++) /* replicas join behind the next unit's backward */
        NEO__TRY(neo__fsdp_advance_lane(fsdp, &fsdp->reduce.lane[i]));
    if (u->lane < 0) NEO__TRY(neo__fsdp_take_lane(fsdp, unit, fsdp->reduce.lanes));
    neo__fsdp_lane *lane = &fsdp->reduce.lane[u->lane];
    float *const *window = u->own_window ? u->window : &lane->window;
    void *const *narrow = u->own_narrow ? u->narrow : lane->narrow;
    if (fsdp->narrow && !u->own_narrow)
        neo__fsdp_narrow_pieces(fsdp, window, narrow, 0, u->elements);
    neo__fsdp_merge_pieces(fsdp, fsdp->narrow ? narrow : (void *const *)window, 0, u->elements);
    void *sum = lane->reduced ? lane->reduced : u->grad;
    neo_comm_label(fsdp->shard, u->name);
    if (fsdp->replicas == 1)
        NEO__TRY(neo_comm_reduce_scatter_leaves(fsdp->shard, (const void *const *)fsdp->leaves.send,
                                                sum, u->chunk, NULL, fsdp->desc.reduce_dtype,
                                                &lane->ticket));
    else
        NEO__TRY(neo_comm_reduce_scatter(fsdp->shard, NEO_REDUCE_SUM, fsdp->leaves.send[0], sum,
                                         u->chunk, NULL, fsdp->desc.reduce_dtype, &lane->ticket));
    lane->state = NEO__FSDP_SCATTER;
    lane->since = fsdp->reduce.count++;
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
static neo_status neo__fsdp_launch_buckets(neo_fsdp *fsdp, const neo__fsdp_unit *unit) {
    for (int i = 0; i < fsdp->whole.buckets; i++) {
        neo__fsdp_bucket *b = &fsdp->whole.bucket[i];
        if (!neo__fsdp_in_bucket(unit, b) || --b->waits > 0) continue;
        if (fsdp->narrow && fsdp->local)
            neo__fsdp_narrow_pieces(fsdp, fsdp->whole.window, fsdp->whole.narrow, b->first,
                                    b->count);
        neo__fsdp_merge_pieces(
            fsdp, fsdp->narrow ? fsdp->whole.narrow : (void *const *)fsdp->whole.window, b->first,
            b->count);
        b->launched = 1;
        if (!fsdp->all) continue;
        neo_comm_label(fsdp->all, "a bucket of gradients");
        NEO__TRY(neo_comm_all_reduce_leaves(fsdp->all, (const void *const *)fsdp->leaves.send,
                                            fsdp->leaves.send[0], b->count, fsdp->desc.reduce_dtype,
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
static neo_status neo__fsdp_settle(neo_fsdp *fsdp, neo__fsdp_unit *unit) {
    if (unit->micro == 0 || unit->filled > 0 || fsdp->local) return NEO_OK;
    if (!unit->whole)
        return unit->lane >= 0 ? neo__fsdp_finish_lane(fsdp, &fsdp->reduce.lane[unit->lane])
                               : NEO_OK;
    for (int i = 0; i < fsdp->whole.buckets; i++) {
        neo__fsdp_bucket *b = &fsdp->whole.bucket[i];
        if (!neo__fsdp_in_bucket(unit, b)) continue;
        NEO__CHECK(
            b->launched || b->micro == unit->micro, NEO_ERR_STATE,
            "neo_fsdp_backward_begin: unit '%s' begins micro-batch %d of %d before other units "
            "of its bucket have ended the one before",
            unit->name, unit->micro + 1, fsdp->desc.micro_batches);
        NEO__TRY(neo__fsdp_finish_bucket(fsdp, b));
    }
    return NEO_OK;
}
/* A number that no layer computes, in the first element of every gradient, shows which are not
   written. (Not on a device, where every window would have to wait for it.) */
static const uint32_t neo__fsdp_unwritten = 0x7FA5C3D2u;
static void neo__fsdp_mark_grads(const neo__fsdp_unit *u, float *grads) {
    for (int i = 0; i < u->params_count; i++) {
        float *first = grads + u->begin[i];
        if (u->begin[i] == u->begin[i + 1]) continue;
        u->hidden[i] = *first;
        memcpy(first, &neo__fsdp_unwritten, sizeof *first);
    }
}
/* Numbers under marks come up, and at the next call go down again: in DDP gradients of the next
   step are bound, and marked, where those of the last one are. */
static void neo__fsdp_swap_marks(const neo_fsdp *fsdp) {
    for (int i = 0; i < fsdp->unit_count && fsdp->always && !neo_ctx_device(fsdp->ctx); i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        for (int k = 0; k < u->params_count && u->bound; k++) {
            float *first = u->bound + u->begin[k], number;
            if (u->begin[k] == u->begin[k + 1]) continue;
            if (memcmp(first, &neo__fsdp_unwritten, sizeof number) &&
                memcmp(&u->hidden[k], &neo__fsdp_unwritten, sizeof number))
                continue; /* the next step's, written */
            number = *first, *first = u->hidden[k], u->hidden[k] = number;
        }
    }
}
static neo_status neo__fsdp_check_written(const neo_fsdp *fsdp, const neo__fsdp_unit *unit,
                                          const char *fn) {
    if (fsdp->leaves.piece[unit->piece].count == 0 || neo_ctx_device(fsdp->ctx)) return NEO_OK;
    for (int i = 0; i < unit->params_count; i++) {
        uint32_t first = 0;
        if (unit->begin[i] < unit->begin[i + 1])
            memcpy(&first, unit->bound + unit->begin[i], sizeof first);
        NEO__CHECK(
            first != neo__fsdp_unwritten, NEO_ERR_STATE,
            "%s: no backward has written the gradient of '%s' in unit '%s' "
            "(a parameter without one belongs into a unit with freeze)",
            fn, neo_params_at(unit->params, i)->name, unit->name);
    }
    return NEO_OK;
}
/* Bind a unit's values, and the window for the gradients of its next piece. */
static neo_status neo__fsdp_bind_piece(neo_fsdp *fsdp, int unit, float *values) {
    neo__fsdp_unit *u = &fsdp->unit[unit];
    float *window = NULL;
    if (!u->frozen) {
        NEO__TRY(neo__fsdp_settle(fsdp, u));
        NEO__TRY(neo__fsdp_window_of(fsdp, unit, u->filled, &window));
        if (!neo_ctx_device(fsdp->ctx)) neo__fsdp_mark_grads(u, window);
    }
    u->piece = u->filled;
    u->bound = window;
    neo__fsdp_bind(u, values, window);
    return NEO_OK;
}
/* The gradients of the bound piece are there: behind the last piece they travel. */
static void neo__fsdp_end_piece(neo_fsdp *fsdp, int unit) {
    neo__fsdp_unit *u = &fsdp->unit[unit];
    neo_tensor bound = neo__fsdp_numbers(fsdp, u->bound, 0, NEO_F32, u->elements);
    neo_tensor window = neo__fsdp_numbers(fsdp, u->window[u->piece], 0, NEO_F32, u->elements);
    if (u->own_window && bound.data != window.data)
        neo__fsdp_note(fsdp, neo_add(fsdp->ctx, window, bound));
    if (u->own_narrow && !fsdp->local)
        neo__fsdp_narrow(fsdp, u->bound, u->narrow[u->piece], 0, u->elements);
    if (fsdp->always) neo__fsdp_bind(u, neo__fsdp_values(u), NULL);
    u->bound = NULL;
    neo__fsdp_count(fsdp, &fsdp->calls);
    fsdp->seen = fsdp->calls;
    int last = ++u->filled == fsdp->leaves.pieces;
    int travels = last && (!fsdp->local || u->micro == fsdp->desc.micro_batches - 1);
    if (u->lane >= 0 && (!travels || u->whole))
        neo__fsdp_free_lane(fsdp, &fsdp->reduce.lane[u->lane]);
    if (last) u->filled = 0, u->micro++;
    if (travels)
        neo__fsdp_note(fsdp, u->whole ? neo__fsdp_launch_buckets(fsdp, u)
                                      : neo__fsdp_scatter(fsdp, unit));
}
NEO_API neo_status neo_fsdp_backward_begin(neo_fsdp *fsdp, int unit, int piece) {
    NEO__SPAN(fsdp ? fsdp->ctx : NULL, "neo_fsdp_backward_begin");
    const char *fn = "neo_fsdp_backward_begin";
    float *values;
    NEO__TRY(neo__fsdp_check_window(fsdp, fn, unit, NEO__FSDP_CLOSED));
    neo__fsdp_unit *u = &fsdp->unit[unit];
    NEO__CHECK(piece >= 0 && piece < fsdp->leaves.pieces, NEO_ERR_ARG, "%s: piece %d of %d", fn,
               piece, fsdp->leaves.pieces);
    NEO__CHECK(
        u->frozen || u->micro < fsdp->desc.micro_batches, NEO_ERR_STATE,
        "%s: unit '%s' has had the backward of all %d micro-batches: neo_fsdp_step comes first", fn,
        u->name, fsdp->desc.micro_batches);
    NEO__CHECK(u->frozen || piece == u->filled, NEO_ERR_STATE,
               "%s: piece %d of unit '%s' where piece %d of its %d is next", fn, piece, u->name,
               u->filled, fsdp->leaves.pieces);
    fsdp->gather.backward = 1;
    NEO__TRY(neo__fsdp_hold(fsdp, unit, &values));
    neo__fsdp_open(fsdp, unit, NEO__FSDP_BACKWARD); /* from here on its slot is not for others */
    neo_status status = neo__fsdp_prefetch(fsdp, unit);
    if (status == NEO_OK) status = neo__fsdp_bind_piece(fsdp, unit, values);
    if (status != NEO_OK) {
        neo__fsdp_close(fsdp, u);
        return status;
    }
    neo__fsdp_count(fsdp, &fsdp->calls);
    fsdp->seen = fsdp->calls;
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_backward_end(neo_fsdp *f, int unit) {
    NEO__SPAN(f ? f->ctx : NULL, "neo_fsdp_backward_end");
    NEO__TRY(neo__fsdp_check_window(f, "neo_fsdp_backward_end", unit, NEO__FSDP_BACKWARD));
    neo__fsdp_unit *u = &f->unit[unit];
    if (!u->frozen) NEO__TRY(neo__fsdp_check_written(f, u, "neo_fsdp_backward_end"));
    neo__fsdp_close(f, u);
    if (u->frozen) return NEO_OK;
    const neo_status before = f->error.status;
    neo__fsdp_end_piece(f, unit);
    return before == NEO_OK ? neo__error_restore(&f->error) : NEO_OK; /* once */
}

/* ---- pieces ---- */
/* How many pieces a unit has had in this step, with the one that is bound without a window. */
static int neo__fsdp_pieces_had(const neo_fsdp *f, const neo__fsdp_unit *u) {
    return u->micro * f->leaves.pieces + u->filled + (f->always && u->bound);
}
/* Ends the pieces that are bound without a window, if all units then have had `pieces`; 0: as many
   as one of them. An error: nothing has changed, but where what was recorded has failed. */
static neo_status neo__fsdp_end_pieces(neo_fsdp *fsdp, const char *fn, int pieces) {
    int lost = 0; /* gradients, not those of the step before */
    for (int i = 0; i < fsdp->unit_count && fsdp->seen != fsdp->calls; i++)
        lost |= fsdp->unit[i].micro > 0 || fsdp->unit[i].filled > 0;
    NEO__TRY(neo__fsdp_recall(fsdp));
    NEO__CHECK(!lost, NEO_ERR_STATE,
               "%s: a recorded call has failed: the gradients since the last step are void", fn);
    for (int i = 0; i < fsdp->unit_count; i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        NEO__CHECK(u->open == NEO__FSDP_CLOSED, NEO_ERR_STATE,
                   "%s: unit '%s' is in a window: neo_fsdp_%s_end comes first", fn, u->name,
                   u->open == NEO__FSDP_FORWARD ? "forward" : "backward");
        pieces = NEO__MAX(pieces, neo__fsdp_pieces_had(fsdp, u));
    }
    for (int i = 0; i < fsdp->unit_count; i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        if (u->frozen) continue;
        NEO__CHECK(neo__fsdp_pieces_had(fsdp, u) == pieces, NEO_ERR_STATE,
                   "%s: since the last step unit '%s' had the backward of %d of %d micro-batches, "
                   "and %d of %d pieces of one%s",
                   fn, u->name, u->micro, fsdp->desc.micro_batches, u->filled, fsdp->leaves.pieces,
                   fsdp->always ? " (without windows neo_fsdp_piece_end ends a piece)" : "");
        if (fsdp->always && u->bound) NEO__TRY(neo__fsdp_check_written(fsdp, u, fn));
    }
    for (int i = fsdp->unit_count - 1; i >= 0 && fsdp->always; i--)
        if (fsdp->unit[i].bound) neo__fsdp_end_piece(fsdp, i);
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_piece_end(neo_fsdp *f) {
    NEO__CHECK_LIVE(f, "neo_fsdp_piece_end", "fsdp");
    const neo_status before = f->error.status;
    NEO__TRY(neo__fsdp_end_pieces(f, "neo_fsdp_piece_end", 0));
    for (int i = 0; i < f->unit_count && f->always; i++)
        if (f->unit[i].micro < f->desc.micro_batches)
            neo__fsdp_note(f, neo__fsdp_bind_piece(f, i, neo__fsdp_values(&f->unit[i])));
    return before == NEO_OK ? neo__error_restore(&f->error) : NEO_OK;
}
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
static void neo__fsdp_begin_anew(neo_fsdp *fsdp) {
    for (int i = 0; i < fsdp->unit_count; i++) {
        neo__fsdp_unit *u = &fsdp->unit[i];
        if (u->open != NEO__FSDP_CLOSED) neo__fsdp_close(fsdp, u);
        u->presence = NEO__FSDP_AWAY;
        u->slot = u->stage = u->lane = -1;
        u->filled = u->micro = 0;
        if (fsdp->always && fsdp->owner) (void)neo__fsdp_bind_piece(fsdp, i, neo__fsdp_values(u));
    }
    for (int i = 0; i < fsdp->gather.slots; i++) fsdp->gather.slot_unit[i] = -1;
    for (int i = 0; i < NEO__FSDP_LANES; i++) fsdp->reduce.lane[i].state = NEO__FSDP_FREE;
    for (int b = 0; b < fsdp->whole.buckets; b++) {
        fsdp->whole.bucket[b].waits = fsdp->whole.bucket[b].units;
        fsdp->whole.bucket[b].launched = fsdp->whole.bucket[b].micro = 0;
    }
    fsdp->error.status = NEO_OK;
    fsdp->gather.stage_unit[0] = fsdp->gather.stage_unit[1] = -1;
    fsdp->gather.backward = 0;
    fsdp->opened.count = 0;
    fsdp->opened.hash = 0;
    neo__fsdp_forget_squares(fsdp);
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
    NEO__CHECK_LIVE(f, "neo_fsdp_cancel", "fsdp");
    neo_status status = neo__fsdp_drain(f);
    f->seen = f->calls;
    neo__fsdp_begin_anew(f);
    return status;
}
/* End every reduction that is under way. */
static neo_status neo__fsdp_finish_all(neo_fsdp *fsdp) {
    for (;;) { /* in the order in which they began */
        neo__fsdp_lane *first = NULL;
        for (int i = 0; i < fsdp->reduce.lanes; i++)
            if (fsdp->reduce.lane[i].state != NEO__FSDP_FREE &&
                (!first || fsdp->reduce.lane[i].since < first->since))
                first = &fsdp->reduce.lane[i];
        if (!first) break;
        NEO__TRY(neo__fsdp_finish_lane(fsdp, first));
    }
    for (int i = 0; i < fsdp->whole.buckets; i++)
        NEO__TRY(neo__fsdp_finish_bucket(fsdp, &fsdp->whole.bucket[i]));
    return NEO_OK;
}
/* All gradients become whole sums. NEO_ERR_STATE: some are not there yet, here alone. Other errors
   are noted: one may be of this rank alone, while others go into the step, which tells all. */
static neo_status neo__fsdp_finish(neo_fsdp *f) {
    NEO__TRY(neo__fsdp_end_pieces(f, "neo_fsdp_step", f->desc.micro_batches * f->leaves.pieces));
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
static neo_status neo__fsdp_diverged(const neo_fsdp *fsdp) {
    int32_t first[NEO__FSDP_HISTORY],
        most = (int32_t)NEO__MIN(fsdp->opened.count, (int64_t)NEO__FSDP_HISTORY);
    int32_t at = 0;
    neo_status status = NEO_OK;
    memset(first, -1, sizeof first);
    memcpy(first, fsdp->opened.first, (size_t)most * sizeof *first);
    NEO__TRY(neo_comm_broadcast(fsdp->comm, first, NEO__FSDP_HISTORY, NEO_I32, 0, NULL));
    while (at < most && first[at] == fsdp->opened.first[at]) at++;
    int32_t here = at < most ? fsdp->opened.first[at] : -1,
            there = at < NEO__FSDP_HISTORY ? first[at] : -1;
    if (here != there)
        status = neo_fail(
            NEO_ERR_DIVERGED,
            "neo_fsdp_step: window %d of the step is %s of unit '%s' here, %s of unit '%s' on rank "
            "0",
            at, here & 1 ? "backward" : "forward", here < 0 ? "(none)" : fsdp->unit[here / 2].name,
            there & 1 ? "backward" : "forward", there < 0 ? "(none)" : fsdp->unit[there / 2].name);
    status = neo_comm_agree(fsdp->comm, status);
    if (status != NEO_OK) return status;
    return neo_fail(NEO_ERR_DIVERGED,
                    "neo_fsdp_step: ranks have opened different windows in this step, the first %d "
                    "of which agree",
                    (int)NEO__FSDP_HISTORY);
}
/* Ranks tell each other before a step whether they opened the same windows, whether all gradients
   are finite, and whether `status` is an error on one of them. */
static neo_status neo__fsdp_meet(neo_fsdp *fsdp, neo_status status, int infinite, int *skip) {
    int64_t mark = (int64_t)(fsdp->opened.hash >> 1);
    int64_t words[] = {mark, -mark, status != NEO_OK ? 2 : infinite};
    const neo__kept_error error = neo__error_keep(status);
    *skip = infinite;
    if (fsdp->ranks == 1) return status;
    const neo_status met =
        neo_comm_all_reduce(fsdp->comm, NEO_REDUCE_MAX, words, words, 3, NEO_I64, NULL);
    if (met != NEO_OK) return status != NEO_OK ? neo__error_restore(&error) : met;
    if (words[2] == 2) return neo_comm_agree(fsdp->comm, neo__error_restore(&error));
    *skip = words[2] != 0;
    return words[0] == -words[1] ? NEO_OK : neo__fsdp_diverged(fsdp);
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
static neo_status neo__fsdp_share_squares(neo_fsdp *fsdp) {
    NEO__ZERO(neo_exact, none);
    if (!fsdp->has_squares || fsdp->desc.optim.clip_norm <= 0.0f) return NEO_OK;
    int64_t words = (int64_t)(sizeof fsdp->squares / sizeof(int64_t));
    neo_exact_normalize(&fsdp->squares);
    if (fsdp->ranks > 1)
        NEO__TRY(neo_comm_all_reduce(fsdp->comm, NEO_REDUCE_SUM, &fsdp->squares, &fsdp->squares,
                                     words, NEO_I64, NULL));
    neo_exact_normalize(&fsdp->squares);
    neo_optim_add_squares(fsdp->optim, fsdp->shard && fsdp->place > 0 ? &none : &fsdp->squares);
    return NEO_OK;
}
/* The step of gradients that are whole sums. status: an error until here; then no rank steps. */
static neo_status neo__fsdp_step_sums(neo_fsdp *fsdp, neo_status status, float lr) {
    int skip = 0, infinite = 0;
    double others = neo_exact_value(&fsdp->squares);
    if (status == NEO_OK) status = neo__fsdp_unscale_all(fsdp, &infinite);
    infinite |= fsdp->scaler.on && !(others - others == 0.0);
    status = neo__fsdp_meet(fsdp, status, infinite, &skip);
    if (status == NEO_OK) neo__fsdp_rescale(fsdp, skip);
    if (status == NEO_OK && !skip) status = neo__fsdp_share_squares(fsdp);
    if (status == NEO_OK && !skip) status = neo_optim_step(fsdp->optim, lr);
    neo__fsdp_begin_anew(fsdp);
    const neo_status shown = neo__fsdp_show(fsdp);
    if (status == NEO_OK) status = shown;
    if (status == NEO_OK) neo__fsdp_count(fsdp, skip ? &fsdp->skipped : &fsdp->steps);
    if (status == NEO_OK && !skip) fsdp->clipped = neo_optim_step_count(fsdp->optim);
    return status;
}
NEO_API neo_status neo_fsdp_step(neo_fsdp *f, float lr) {
    NEO__ENTER(f, "neo_fsdp_step", "fsdp");
    f->clipped = 0;
    neo_status status = neo__fsdp_finish(f);
    if (status == NEO_OK) return neo__fsdp_step_sums(f, neo__error_restore(&f->error), lr);
    neo__fsdp_forget_squares(f); /* what lacks may still come */
    return status;
}
/* Kept gradients in a recorded norm of a device: their squares, as neo_shard_grad_squares, and the
   norm's factor. */
typedef struct neo__fsdp_joined {
    neo__optim_others others;
    const neo_shard *tables;
    neo_comm *over[2]; /* groups of devices that add up before the norm does: see below */
} neo__fsdp_joined;
static neo_status neo__fsdp_squares_there(void *user, uint64_t *sum) {
    const neo__fsdp_joined *joined = (const neo__fsdp_joined *)user;
    const neo_shard *s = joined->tables;
    const int64_t words = (int64_t)(sizeof(neo_exact) / sizeof *sum);
    NEO__TRY(neo__shard_check_torn(s, "neo_fsdp_step_tables"));
    if (s->bags && s->group == 0) NEO__TRY(neo__bags_squares_there(s->bags, sum));
    if (s->replicas && neo__shard_place(s) == 0)
        NEO__TRY(neo__bags_squares_there(s->replicas, sum));
    for (int i = 0; i < 2 && joined->over[i]; i++)
        NEO__TRY(neo_comm_all_reduce(joined->over[i], NEO_REDUCE_SUM, sum, sum, words, NEO_I64,
                                     NULL));
    return NEO_OK;
}
static neo_status neo__fsdp_scale_there(void *user, const float *factor) {
    const neo_shard *s = ((const neo__fsdp_joined *)user)->tables;
    if (s->bags) NEO__TRY(neo__bags_scale_there(s->bags, factor));
    return s->replicas ? neo__bags_scale_there(s->replicas, factor) : NEO_OK;
}
/* 1: the device takes them; the host need not know. They are added up by a group of all ranks, or
   of a shard and then of its replicas, but where the norm is over a shard of all ranks itself. */
static int neo__fsdp_join_tables(neo_fsdp *fsdp, const neo_shard *tables, neo__fsdp_joined *to) {
    const int itself = fsdp->ranks == 1 || (fsdp->shard && !fsdp->replica);
    int joins = !fsdp->scaler.on && !fsdp->has_squares && (itself || fsdp->all || fsdp->replica);
    to->tables = tables;
    to->over[0] = itself ? NULL : fsdp->all ? fsdp->all : fsdp->shard;
    to->over[1] = itself || fsdp->all ? NULL : fsdp->replica;
    for (int i = 0; i < 2 && to->over[i]; i++)
        joins = joins && neo_comm_group(to->over[i]).sum_there;
    to->others.squares = neo__fsdp_squares_there, to->others.scale = neo__fsdp_scale_there;
    to->others.user = to;
    to->others.meets = !itself;
    to->others.away = !itself && fsdp->shard && fsdp->place > 0;
    return neo__optim_join(fsdp->optim, joins ? &to->others : NULL);
}
/* The squares of what tables keep, divided by the loss scale, where the step needs them. */
static neo_status neo__fsdp_tables_squares(neo_fsdp *f, neo_shard *tables, int joined) {
    NEO__ZERO(neo_exact, squares);
    NEO__TRY(neo__error_restore(&f->error));
    if (joined) return NEO_OK;
    if (f->scaler.on) NEO__TRY(neo_shard_scale_grads(tables, 1.0f / f->scaler.scale));
    if (!f->scaler.on && f->desc.optim.clip_norm <= 0.0f) return NEO_OK;
    NEO__TRY(neo_shard_grad_squares(tables, &squares));
    neo_fsdp_add_squares(f, &squares);
    return NEO_OK;
}
NEO_API neo_status neo_fsdp_step_tables(neo_fsdp *fsdp, neo_shard *tables, float lr) {
    NEO__SPAN(fsdp ? fsdp->ctx : NULL, "neo_fsdp_step_tables");
    NEO__CHECK(fsdp && tables, NEO_ERR_ARG, "neo_fsdp_step_tables: an argument is NULL");
    const float type = fsdp->desc.optim.clip_norm_type;
    NEO__CHECK(fsdp->desc.optim.clip_norm <= 0.0f || type == 0.0f || type == 2.0f, NEO_ERR_ARG,
               "neo_fsdp_step_tables: clip_norm_type is %g: with tables it must be 2",
               (double)type);
    NEO__CHECK(tables->phase != NEO__SHARD_FORWARDED || tables->kept.batches > 0, NEO_ERR_STATE,
               "neo_fsdp_step_tables: bags '%s' had a forward and no gradients since the last "
               "step: neo_shard_accumulate comes first", tables->map->desc.name);
    const int64_t skipped = fsdp->skipped;
    NEO__TRY(neo__shard_agree_step(tables, "neo_fsdp_step_tables", lr));
    NEO__TRY(neo__fsdp_finish(fsdp)); /* what lacks may still come */
    fsdp->clipped = 0;
    neo__fsdp_joined job;
    const int joined = neo__fsdp_join_tables(fsdp, tables, &job);
    neo_status status =
        neo__fsdp_step_sums(fsdp, neo__fsdp_tables_squares(fsdp, tables, joined), lr);
    (void)neo__optim_join(fsdp->optim, NULL);
    if (status != NEO_OK) {
        const neo__kept_error error = neo__error_keep(status);
        (void)neo_shard_clear(tables); /* where it fails, the next step says so */
        return neo__error_restore(&error);
    }
    if (fsdp->skipped != skipped) return neo_shard_clear(tables);
    const float factor = joined ? 1.0f : neo_fsdp_clip_factor(fsdp); /* joined: they are scaled */
    if (factor != 1.0f) status = neo_shard_scale_grads(tables, factor);
    NEO__TRY(neo__shard_or_abort(tables, status)); /* the units have stepped */
    return neo__shard_step_kept(tables, lr);
}
NEO_API float neo_fsdp_loss_scale(const neo_fsdp *f) {
    return f->scaler.on ? f->scaler.scale : 1.0f;
}
NEO_API neo_fsdp_stats neo_fsdp_get_stats(const neo_fsdp *fsdp) {
    NEO__ZERO(neo_fsdp_stats, s);
    s.steps = fsdp->steps;
    s.skipped = fsdp->skipped;
    s.gathers = fsdp->gather.count;
    s.hits = fsdp->gather.hits;
    s.wait_ns = fsdp->wait_ns;
    s.grad_norm = neo_optim_grad_norm(fsdp->optim);
    if (fsdp->shard) s.shard = neo_comm_get_stats(fsdp->shard);
    if (fsdp->replica) s.replica = neo_comm_get_stats(fsdp->replica);
    if (fsdp->all) s.all = neo_comm_get_stats(fsdp->all);
    return s;
}
NEO_API int neo_fsdp_norm_count(const neo_fsdp *f) { return neo_params_count(f->runs); }
NEO_API neo_status neo_fsdp_norms(neo_fsdp *f, neo_param_norm *norms) {
    NEO__CHECK_LIVE(f, "neo_fsdp_norms", "fsdp");
    NEO__CHECK(norms, NEO_ERR_ARG, "neo_fsdp_norms: norms is NULL");
    neo__fsdp_swap_marks(f);
    neo_status status = neo_optim_norms(f->optim, norms);
    neo__fsdp_swap_marks(f);
    return status;
}
NEO_API neo_status neo_fsdp_histograms(neo_fsdp *f, neo_histogram *weights, neo_histogram *grads) {
    NEO__CHECK_LIVE(f, "neo_fsdp_histograms", "fsdp");
    neo__fsdp_swap_marks(f);
    neo_status status = neo_optim_histograms(f->optim, weights, grads);
    neo__fsdp_swap_marks(f);
    return status;
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
                                       const neo_fsdp *fsdp, const neo__fsdp_unit *unit, int i,
                                       float *data) {
    neo_tensor whole = neo_params_at(unit->params, i)->value;
    int64_t first, at, count = neo__fsdp_run(fsdp, unit, i, &first, &at);
    whole.place = neo_ctx_device(fsdp->host) ? NEO_DEVICE : NEO_HOST;
    if (!unit->whole && neo_tensor_count(whole) > 0)
        return neo__fsdp_add_run(state, kind, name, data, whole, first, count,
                                 fsdp->rank >= fsdp->factor);
    whole.data = data ? data : unit->master;
    whole.absent = NULL;
    return neo__state_add_whole(state, kind, name, whole);
}
static neo_status neo__fsdp_define(neo_state *state, const neo_fsdp *fsdp) {
    static const char *const word[] = {"micro_batches", "accumulate_groups", "leaf_pieces",
                                       "param_dtype", "reduce_dtype"};
    const neo_fsdp_desc *d = &fsdp->desc;
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
NEO_API neo_status neo_state_add_fsdp(neo_state *state, neo_fsdp *fsdp) {
    NEO__CHECK(state && fsdp, NEO_ERR_ARG, "neo_state_add_fsdp: an argument is NULL");
    NEO__TRY(neo__fsdp_define(state, fsdp));
    for (int i = 0; i < fsdp->unit_count; i++) {
        const neo__fsdp_unit *u = &fsdp->unit[i];
        for (int k = 0; k < u->params_count; k++) {
            int64_t first, at;
            neo__fsdp_run(fsdp, u, k, &first, &at);
            NEO__TRY(neo__fsdp_add_tensor(state, NEO_STATE_WEIGHT,
                                          neo_params_at(u->params, k)->name, fsdp, u, k,
                                          u->master + at));
        }
    }
    if (fsdp->always) neo__state_when_read(state, neo__fsdp_show_again, NULL, NULL, fsdp);
    int unit = 0;
    for (int i = 0; i < neo_optim_state_count(fsdp->optim); i++) {
        const char *name;
        int param;
        neo_tensor t = neo_optim_state_at(fsdp->optim, i, &name, &param);
        if (param < 0) {
            NEO__TRY(neo_state_add(state, NEO_STATE_OPTIMIZER, name, t));
            continue;
        }
        while (fsdp->unit[unit].frozen ||
               param >= fsdp->unit[unit].first_param + fsdp->unit[unit].params_count)
            unit++;
        NEO__TRY(neo__fsdp_add_tensor(state, NEO_STATE_OPTIMIZER, name, fsdp, &fsdp->unit[unit],
                                      param - fsdp->unit[unit].first_param, (float *)t.data));
    }
    if (!fsdp->scaler.on) return NEO_OK;
    char name[256];
    for (int i = 0; i < 2; i++) {
        neo_tensor t = neo__fsdp_scaler(fsdp, i, name);
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
static void neo__fsdp_layout_writer(neo__fsdp_writer *writer, neo_fsdp *fsdp, int with_state,
                                    char *base) {
    neo__carve carve = {base, 0};
    int root = fsdp->rank == 0;
    writer->f = fsdp;
    writer->kinds = with_state ? 1 + neo__fsdp_state_kinds(fsdp) : 1;
    writer->numbers = !with_state ? 0 : fsdp->scaler.on ? 3 : 1;
    writer->count = writer->numbers + (writer->kinds - 1) * neo_params_count(fsdp->runs);
    for (int i = 0; i < fsdp->unit_count; i++) writer->count += fsdp->unit[i].params_count;
    int64_t whole = root ? fsdp->reduce.largest_cut : 0;
    int64_t chunk = writer->kinds > 1 && fsdp->rank < fsdp->factor
                        ? fsdp->reduce.largest_cut / fsdp->factor
                        : 0;
    NEO__CARVE(&carve, writer->whole, whole);
    NEO__CARVE(&carve, writer->chunk, chunk);
    NEO__CARVE(&carve, writer->name, root ? writer->count : 0);
    NEO__CARVE(&carve, writer->tensor, root ? writer->count : 0);
    writer->bytes = carve.at;
}
NEO_API size_t neo_fsdp_write_bytes(const neo_fsdp *f, int with_state) {
    neo__fsdp_writer w;
    neo__fsdp_layout_writer(&w, (neo_fsdp *)(uintptr_t)f, with_state, NULL);
    return w.bytes + (f->rank == 0 ? neo__safetensors_bytes(w.count) : 0);
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
static void neo__fsdp_list_tensors(neo__fsdp_writer *writer) {
    neo_fsdp *fsdp = writer->f;
    int at = 0;
    for (int unit = 0; unit < fsdp->unit_count; unit++) {
        const neo__fsdp_unit *u = &fsdp->unit[unit];
        for (int kind = 0; kind < neo__fsdp_passes(writer, u); kind++)
            for (int i = 0; i < u->params_count; i++, at++) {
                writer->tensor[at] = neo_params_at(u->params, i)->value;
                writer->name[at] = neo_params_at(u->params, i)->name;
                if (kind > 0) neo__fsdp_state_of(writer, u, kind, i, &writer->name[at]);
            }
    }
    if (writer->numbers == 0) return;
    writer->tensor[at] = neo_optim_state_at(fsdp->optim, neo_optim_state_count(fsdp->optim) - 1,
                                            &writer->name[at], NULL);
    at++;
    for (int i = 0; i + 1 < writer->numbers; i++, at++) {
        writer->tensor[at] = neo__fsdp_scaler(fsdp, i, writer->text[i]);
        writer->name[at] = writer->text[i];
    }
}
/* A pass: writer->whole on rank 0 is the unit's. */
static neo_status neo__fsdp_write_pass(neo__fsdp_writer *writer, int unit, int kind) {
    neo_fsdp *fsdp = writer->f;
    const neo__fsdp_unit *u = &fsdp->unit[unit];
    if (u->whole) return NEO_OK;
    neo_status status = neo_comm_agree(fsdp->comm, NEO_OK);
    const float *from = u->master;
    if (status == NEO_OK && fsdp->rank >= fsdp->factor) return NEO_OK;
    for (int i = 0; i < u->params_count && kind > 0 && status == NEO_OK; i++) {
        int64_t first, at, count = neo__fsdp_run(fsdp, u, i, &first, &at);
        const void *run = neo__fsdp_state_of(writer, u, kind, i, NULL).data;
        if (count > 0) memcpy(writer->chunk + at, run, (size_t)count * sizeof(float));
        from = writer->chunk;
    }
    if (status == NEO_OK) {
        neo_comm_label(fsdp->shard, u->name);
        status =
            neo_comm_gather(fsdp->shard, from, writer->whole, u->chunk, NULL, NEO_F32, 0, NULL);
    }
    writer->ended = status != NEO_OK;
    return status;
}
/* Supply the tensor that the file asks rank 0 for. */
static neo_status neo__fsdp_supply(void *user, int index, const void **data) {
    neo__fsdp_writer *writer = (neo__fsdp_writer *)user;
    if (index >= writer->count - writer->numbers) {
        *data = writer->tensor[index].data;
        return NEO_OK;
    }
    const neo__fsdp_unit *u = &writer->f->unit[writer->unit];
    if (writer->param == 0) NEO__TRY(neo__fsdp_write_pass(writer, writer->unit, writer->kind));
    if (!u->whole) *data = writer->whole + u->begin[writer->param];
    else if (writer->kind == 0) *data = u->master + u->begin[writer->param];
    else *data = neo__fsdp_state_of(writer, u, writer->kind, writer->param, NULL).data;
    if (++writer->param < u->params_count) return NEO_OK;
    writer->param = 0;
    if (++writer->kind < neo__fsdp_passes(writer, u)) return NEO_OK;
    writer->kind = 0;
    writer->unit++;
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
NEO_API neo_status neo_fsdp_write_safetensors(neo_fsdp *fsdp, const char *path, int with_state) {
    const char *fn = "neo_fsdp_write_safetensors";
    NEO__CHECK_LIVE(fsdp, fn, "fsdp");
    NEO__CHECK(!neo_ctx_device(fsdp->ctx), NEO_ERR_UNSUPPORTED,
               "%s: units on a device: neo_save writes them", fn);
    NEO__ZERO(neo__fsdp_writer, writer);
    neo__fsdp_layout_writer(&writer, fsdp, with_state, NULL);
    NEO__ZERO(neo__alike, alike);
    neo__alike_add(&alike, "another with_state than rank 0", with_state != 0);
    NEO__TRY(neo__alike_check(fsdp->comm, &alike, fn));
    neo_status status = NEO_OK;
    if (!path && fsdp->rank == 0) status = neo_fail(NEO_ERR_ARG, "%s: path is NULL", fn);
    if (writer.bytes && status == NEO_OK) {
        writer.memory = (char *)neo_alloc(fsdp->ctx, writer.bytes);
        if (!writer.memory)
            status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %zu bytes", fn, writer.bytes);
    }
    status = neo_comm_agree(fsdp->comm, status);
    if (status == NEO_OK) {
        neo__fsdp_layout_writer(&writer, fsdp, with_state, writer.memory);
        if (writer.memory)
            memset(writer.memory, 0, writer.bytes); /* gaps between runs travel too */
        status =
            fsdp->rank == 0 ? neo__fsdp_write_root(&writer, path) : neo__fsdp_write_others(&writer);
        if (!writer.ended) status = neo_comm_agree(fsdp->comm, status);
    }
    neo_free(fsdp->ctx, writer.memory, writer.bytes);
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-towers

   A node's tables are a neo_shard over the node's ranks, whose batch is the batch of all nodes:
   place t of a node pools the samples that neo_comm_samples gives rank t of so many. These are
   consecutive, as are those of each rank of the whole group, so that what two ranks exchange is one
   run of samples, and all that comes stands in the order of the samples. Ids travel in the order of
   (node, place), features by tower, then samples; columns back in that of (sample, tower).
   ------------------------------------------------------------------------ */
enum { NEO__TOWERS_LENGTHS, NEO__TOWERS_IDS, NEO__TOWERS_WEIGHTS, NEO__TOWERS_GIVEN }; /* to send */
enum {
    NEO__TOWERS_OFFSETS = 2 * NEO__TOWERS_GIVEN, /* after what is sent and what came */
    NEO__TOWERS_BATCH_IDS,
    NEO__TOWERS_BATCH_WEIGHTS,
    NEO__TOWERS_BUFFERS
};
enum { /* what has ended, or (in the second line) has begun */
       NEO__TOWERS_IDLE,
       NEO__TOWERS_FORWARD,
       NEO__TOWERS_EXCHANGED,
       NEO__TOWERS_BACK,
       NEO__TOWERS_IN_FORWARD,
       NEO__TOWERS_IN_EXCHANGE,
       NEO__TOWERS_IN_BACK,
       NEO__TOWERS_IN_BACKWARD
};
struct neo_towers {
    neo_ctx *ctx;
    neo__live live;
    neo_comm *comm, *moves; /* all ranks: ids, on the host; columns, where the context computes */
    neo_comm *local;
    neo_shard *shard;

    /* constant after create */
    int ranks, per_node, rank, nodes, shards;
    int32_t tower_count, first, held; /* held towers from `first` on */
    int32_t feature_count;
    int64_t out_width, max_batch;
    neo_wire wire[2];
    int weighted;
    int32_t *feature;              /* [feature_count] features by tower */
    int32_t *node_feature;         /* [nodes + 1] first of each node in `feature` */
    int64_t *col;                  /* [held + 1] columns of each tower in `rows` */
    int64_t *counts[4];            /* [ranks] to and from each rank: two exchanges at a time */
    int32_t table_count, *buckets; /* of all nodes: row_buckets, */
    char *names;                   /* and names, one after another */
    size_t name_bytes;
    void *block;
    size_t block_bytes;
    neo_tensor rows[2], columns[2], staging; /* pooled rows, module's columns and gradients of both;
                                                columns by node */
    neo_tensor workspace;                    /* of narrow wires */

    /* of the step */
    int phase, made;
    neo__kept_error error; /* of this rank's part of a call that has begun */
    neo_ticket ticket;
    int64_t global, samples, mine, grow_count; /* samples of this place, of this rank */
    neo_jagged batch;
    neo__buffer buffer[NEO__TOWERS_BUFFERS];
    int64_t buffer_bytes[NEO__TOWERS_BUFFERS]; /* planned */
};

/* Samples of a rank of `size`, and the first. */
static int64_t neo__towers_samples(const neo_towers *towers, int size, int rank, int64_t batch,
                                   int64_t *first) {
    *first = neo__first_sample(batch, towers->shards, size, rank);
    return neo__first_sample(batch, towers->shards, size, rank + 1) - *first;
}
/* The most that it can have of any batch up to max_batch. */
static int64_t neo__towers_most(const neo_towers *towers, int size, int rank) {
    const int64_t leaves =
        neo_leaf_begin(towers->shards, size, rank + 1) - neo_leaf_begin(towers->shards, size, rank);
    return (towers->max_batch * leaves + towers->shards - 1) / towers->shards;
}
/* Samples of rank `rank` that place `place` of every node pools; *from: the first of them, counted
   from the rank's first (or, of_place, from the place's). */
static int64_t neo__towers_overlap(const neo_towers *towers, int rank, int place, int of_place,
                                   int64_t *from) {
    int64_t a, b;
    const int64_t na = neo__towers_samples(towers, towers->ranks, rank, towers->global, &a),
                  nb = neo__towers_samples(towers, towers->per_node, place, towers->global, &b);
    const int64_t begin = NEO__MAX(a, b), end = NEO__MIN(a + na, b + nb);
    *from = end > begin ? begin - (of_place ? b : a) : 0;
    return NEO__MAX(end - begin, 0);
}
static int32_t neo__towers_held_by(const neo_towers *towers, int node) {
    return (int32_t)((int64_t)towers->tower_count * (node + 1) / towers->nodes -
                     (int64_t)towers->tower_count * node / towers->nodes);
}
static int neo__towers_place(const neo_towers *towers) { return towers->rank % towers->per_node; }

/* ---- create ---- */
static int32_t neo__towers_table(const neo_bags_desc *bags, int32_t feature) {
    return bags->feature_table ? bags->feature_table[feature] : feature;
}
/* Products of sizes stay below 2^62. */
static neo_status neo__towers_check_sizes(const neo_towers *towers, const neo_towers_desc *desc,
                                          const char *fn) {
    const neo_bags_desc *bags = desc->plan->bags;
    const int32_t features = neo__plan_features(bags);
    const double batch = (double)bags->max_batch, most = 1e17;
    double ids = (double)bags->max_ids / batch, cols = 0.0;
    for (int32_t f = 0; f < features; f++) {
        if (desc->plan->ids_per_sample) ids += desc->plan->ids_per_sample[f];
        cols += (double)bags->tables[neo__towers_table(bags, f)].dim + 2.0;
    }
    cols += (double)desc->tower_count * ((double)desc->out_width + 2.0);
    NEO__CHECK(batch * (cols + ids + (double)towers->shards) < most, NEO_ERR_ARG,
               "%s: %" PRId64 " samples of %g ids and %g columns do not fit in memory", fn,
               bags->max_batch, ids, cols);
    return NEO_OK;
}
static neo_status neo__towers_check(const neo_towers *towers, const neo_towers_desc *desc,
                                    const char *fn) {
    const neo_bags_desc *bags = desc->plan ? desc->plan->bags : NULL;
    NEO__CHECK(bags && bags->tables && bags->table_count > 0 && desc->table_tower, NEO_ERR_ARG,
               "%s: desc lacks plan, plan->bags with its tables, or table_tower", fn);
    NEO__CHECK(desc->out_width > 0 && desc->out_width <= INT32_MAX, NEO_ERR_ARG,
               "%s: out_width is %" PRId64, fn, desc->out_width);
    NEO__CHECK((unsigned)desc->wire_forward < NEO_WIRE_COUNT &&
                   (unsigned)desc->wire_backward < NEO_WIRE_COUNT,
               NEO_ERR_ARG, "%s: no such wire", fn);
    NEO__CHECK(towers->per_node > 0 && towers->ranks % towers->per_node == 0 && towers->rank >= 0 &&
                   towers->rank < towers->ranks,
               NEO_ERR_ARG, "%s: rank %d of %d, %d to a node", fn, towers->rank, towers->ranks,
               towers->per_node);
    NEO__CHECK(towers->shards >= towers->ranks, NEO_ERR_ARG,
               "%s: repro_shards is %d: it must be at least the %d ranks", fn, towers->shards,
               towers->ranks);
    NEO__CHECK(desc->tower_count >= towers->nodes, NEO_ERR_ARG,
               "%s: %d towers on %d nodes: each node needs one", fn, desc->tower_count,
               towers->nodes);
    for (int32_t i = 0; i < bags->table_count; i++) {
        const neo_table_desc *table = &bags->tables[i];
        const char *name = table->name ? table->name : ""; /* refused below */
        NEO__CHECK(desc->table_tower[i] >= 0 && desc->table_tower[i] < desc->tower_count,
                   NEO_ERR_ARG, "%s: table '%s' is of tower %d, there are %d", fn, name,
                   desc->table_tower[i], desc->tower_count);
        NEO__CHECK(table->pooling != NEO_POOL_NONE, NEO_ERR_UNSUPPORTED,
                   "%s: table '%s' is not pooled: a tower's module needs one row for a sample", fn,
                   name);
    }
    neo_plan_desc plan = *desc->plan;
    plan.cluster.ranks = plan.cluster.ranks_per_node = towers->per_node;
    NEO__TRY(neo__plan_check(towers->ctx, &plan, fn));
    NEO__TRY(neo__towers_check_sizes(towers, desc, fn));
    const int32_t features = neo__plan_features(bags);
    for (int32_t tower = 0; tower < desc->tower_count; tower++) {
        int32_t f = 0;
        while (f < features && desc->table_tower[neo__towers_table(bags, f)] != tower) f++;
        NEO__CHECK(f < features, NEO_ERR_ARG, "%s: tower %d has no tables that a feature reads", fn,
                   tower);
    }
    return NEO_OK;
}
static void neo__towers_layout(neo_towers *towers, neo__carve *carve) {
    NEO__CARVE(carve, towers->feature, towers->feature_count);
    NEO__CARVE(carve, towers->node_feature, towers->nodes + 1);
    NEO__CARVE(carve, towers->col, towers->held + 1);
    for (int i = 0; i < 4; i++) NEO__CARVE(carve, towers->counts[i], towers->ranks);
    NEO__CARVE(carve, towers->buckets, towers->table_count);
    NEO__CARVE(carve, towers->names, towers->name_bytes);
}
/* The plan of a node's tables: *plan, made of arrays in the arena. Fills in which features the
   node has, in their order. */
static neo_status neo__towers_plan(neo_towers *towers, const neo_towers_desc *desc,
                                   neo__arena *arena, neo_plan_desc *plan, double *ids_per_sample) {
    const neo_bags_desc *all = desc->plan->bags;
    neo_bags_desc *bags;
    neo_table_desc *tables;
    int32_t *place, *feature_table;
    unsigned *placements;
    double *ids, sum = 0.0;
    const int32_t node = towers->rank / towers->per_node, begin = towers->node_feature[node],
                  count = towers->node_feature[node + 1] - begin;
    NEO__TRY(NEO__ARENA(arena, bags, 1));
    NEO__TRY(NEO__ARENA(arena, tables, all->table_count));
    NEO__TRY(NEO__ARENA(arena, place, all->table_count));
    NEO__TRY(NEO__ARENA(arena, placements, all->table_count));
    NEO__TRY(NEO__ARENA(arena, feature_table, count));
    NEO__TRY(NEO__ARENA(arena, ids, count));
    *plan = *desc->plan;
    *bags = *all;
    bags->tables = tables;
    bags->table_count = 0;
    for (int32_t i = 0; i < all->table_count; i++) {
        if (desc->table_tower[i] < towers->first ||
            desc->table_tower[i] >= towers->first + towers->held)
            continue;
        place[i] = bags->table_count++;
        tables[place[i]] = all->tables[i];
        placements[place[i]] = plan->table_placements ? plan->table_placements[i] : 0;
    }
    for (int32_t k = 0; k < count; k++) {
        const int32_t f = towers->feature[begin + k];
        feature_table[k] = place[neo__towers_table(all, f)];
        ids[k] = plan->ids_per_sample
                     ? plan->ids_per_sample[f]
                     : (double)all->max_ids / (double)all->max_batch / towers->feature_count;
        sum += ids[k];
    }
    bags->feature_table = feature_table;
    bags->feature_count = count;
    const double most = sum * (double)all->max_batch + 1.0;
    bags->max_ids = most < (double)all->max_ids ? (int64_t)most : all->max_ids;
    plan->bags = bags;
    plan->ids_per_sample = ids;
    plan->table_placements = placements;
    plan->cluster.ranks = plan->cluster.ranks_per_node = towers->per_node;
    plan->pipeline = plan->weight_grad = plan->device_ids = 0;
    *ids_per_sample = sum;
    return NEO_OK;
}
/* Features by tower, and columns of this node's towers. */
static void neo__towers_order(neo_towers *towers, const neo_towers_desc *desc) {
    const neo_bags_desc *bags = desc->plan->bags;
    int32_t at = 0, tower = 0;
    int64_t col = 0;
    for (int node = 0; node < towers->nodes; node++) {
        towers->node_feature[node] = at;
        for (int32_t end = tower + neo__towers_held_by(towers, node); tower < end; tower++) {
            const int32_t k = tower - towers->first;
            if (k >= 0 && k < towers->held) towers->col[k] = col;
            for (int32_t f = 0; f < towers->feature_count; f++) {
                const int32_t table = neo__towers_table(bags, f);
                if (desc->table_tower[table] != tower) continue;
                towers->feature[at++] = f;
                if (k >= 0 && k < towers->held) col += bags->tables[table].dim;
            }
        }
    }
    towers->node_feature[towers->nodes] = at;
    towers->col[towers->held] = col;
}
/* Bytes of the buffers, with a quarter more ids than expected. */
static void neo__towers_measure(neo_towers *towers, const neo_bags_desc *bags,
                                double ids_per_sample) {
    const int node = towers->rank / towers->per_node;
    const int64_t mine = neo__towers_most(towers, towers->ranks, towers->rank),
                  samples = neo__towers_most(towers, towers->per_node, neo__towers_place(towers)),
                  features = towers->node_feature[node + 1] - towers->node_feature[node];
    const int64_t ids = (int64_t)(1.25 * (double)bags->max_ids / (double)bags->max_batch *
                                  (double)mine) +
                        1,
                  came = (int64_t)(1.25 * ids_per_sample * (double)samples) + 1;
    const int64_t bags_mine = mine * towers->feature_count, bags_came = samples * features;
    const int64_t bytes[NEO__TOWERS_BUFFERS] = {
        bags_mine * 4,       ids * 8,  towers->weighted ? ids * 4 : 0,
        bags_came * 4,       came * 8, towers->weighted ? came * 4 : 0,
        (bags_came + 1) * 8, came * 8, towers->weighted ? came * 4 : 0};
    memcpy(towers->buffer_bytes, bytes, sizeof bytes);
}
/* Shapes of the tensors that towers own: pooled rows, columns and gradients of both; staging; the
   workspace of narrow wires, as f32. */
enum { NEO__TOWERS_TENSORS = 6 };
static void neo__towers_extents(const neo_towers *towers, int64_t shape[NEO__TOWERS_TENSORS][2]) {
    const int64_t mine = neo__towers_most(towers, towers->ranks, towers->rank),
                  samples = neo__towers_most(towers, towers->per_node, neo__towers_place(towers)),
                  travel = samples * towers->held + mine * towers->tower_count;
    int64_t row = 0;
    for (int back = 0; back < 2; back++)
        if (towers->wire[back] != NEO_WIRE_F32)
            row = NEO__MAX(row,
                           (int64_t)neo_wire_row_bytes(towers->wire[back], towers->out_width) / 4);
    for (int i = 0; i < NEO__TOWERS_TENSORS; i++) {
        shape[i][0] = i < 4 ? samples : i == 4 ? mine : travel;
        shape[i][1] = i < 2    ? towers->col[towers->held]
                      : i < 4  ? towers->held * towers->out_width
                      : i == 4 ? towers->tower_count * towers->out_width
                               : row;
    }
}
/* All that desc says of a rank; `arena` has what plan refers to. */
static neo_status neo__towers_describe(neo_ctx *ctx, const neo_towers_desc *desc,
                                       neo_towers *towers, neo__arena *arena, neo_plan_desc *plan) {
    const char *fn = arena->function;
    towers->ctx = ctx;
    towers->shards = neo_ctx_repro_shards(ctx);
    towers->nodes = towers->per_node > 0 ? towers->ranks / towers->per_node : 0;
    towers->tower_count = desc->tower_count;
    NEO__TRY(neo__towers_check(towers, desc, fn));
    const neo_bags_desc *bags = desc->plan->bags;
    const int64_t node = towers->rank / towers->per_node;
    towers->feature_count = neo__plan_features(bags);
    towers->first = (int32_t)(towers->tower_count * node / towers->nodes);
    towers->held = neo__towers_held_by(towers, (int)node);
    towers->out_width = desc->out_width;
    towers->max_batch = bags->max_batch;
    towers->wire[0] = desc->wire_forward;
    towers->wire[1] = desc->wire_backward;
    towers->weighted = desc->plan->weighted;
    towers->table_count = bags->table_count;
    for (int32_t i = 0; i < bags->table_count; i++)
        towers->name_bytes += strlen(bags->tables[i].name) + 1;
    NEO__ZERO(neo__carve, carve);
    neo__towers_layout(towers, &carve);
    towers->block_bytes = carve.at;
    towers->block = carve.block = (char *)neo__alloc_for(ctx, towers->block_bytes, fn);
    if (!towers->block) return NEO_ERR_MEMORY;
    carve.at = 0;
    neo__towers_layout(towers, &carve);
    neo__towers_order(towers, desc);
    char *name = towers->names;
    for (int32_t i = 0; i < bags->table_count; i++) {
        towers->buckets[i] = bags->tables[i].row_buckets;
        memcpy(name, bags->tables[i].name, strlen(bags->tables[i].name) + 1);
        name += strlen(name) + 1;
    }
    double ids;
    NEO__TRY(neo__towers_plan(towers, desc, arena, plan, &ids));
    neo__towers_measure(towers, bags, ids);
    return NEO_OK;
}
static neo_status neo__towers_reserve(neo_towers *towers, int i, int64_t bytes) {
    neo__buffer *b = &towers->buffer[i];
    if ((size_t)bytes <= b->bytes) return NEO_OK;
    void *p = neo__alloc_for(towers->ctx, (size_t)bytes, "neo_towers");
    if (!p) return NEO_ERR_MEMORY;
    neo_free(towers->ctx, b->data, b->bytes);
    b->data = p;
    b->bytes = (size_t)bytes;
    towers->grow_count += towers->made;
    return NEO_OK;
}
/* Tensor i, in the order of neo__towers_extents. */
static neo_tensor *neo__towers_tensor(neo_towers *towers, int i) {
    return i < 2    ? &towers->rows[i]
           : i < 4  ? &towers->columns[i - 2]
           : i == 4 ? &towers->staging
                    : &towers->workspace;
}
static neo_status neo__towers_make_memory(neo_towers *towers) {
    int64_t shape[NEO__TOWERS_TENSORS][2];
    neo__towers_extents(towers, shape);
    for (int i = 0; i < NEO__TOWERS_TENSORS; i++)
        NEO__TRY(neo_tensor_alloc(towers->ctx, NEO_F32, 2, shape[i],
                                  neo__towers_tensor(towers, i)));
    for (int i = 0; i < NEO__TOWERS_BUFFERS; i++)
        NEO__TRY(neo__towers_reserve(towers, i, towers->buffer_bytes[i]));
    return NEO_OK;
}
/* All that every rank must say alike. */
static neo_status neo__towers_check_alike(neo_comm *comm, const neo_towers *towers,
                                          const neo_towers_desc *desc) {
    const neo_bags_desc *bags = desc->plan->bags;
    NEO__ZERO(neo__alike, alike);
    uint64_t *mark = neo__alike_add(&alike, "other towers, out_width or wires than rank 0",
                                    (uint64_t)desc->tower_count);
    const double numbers[] = {(double)desc->out_width, (double)desc->wire_forward,
                              (double)desc->wire_backward, (double)towers->weighted};
    neo__alike_numbers(mark, numbers, sizeof numbers / sizeof *numbers);
    for (int32_t i = 0; i < bags->table_count; i++)
        *mark = neo__plan_hash(*mark, (uint64_t)desc->table_tower[i]);
    mark = neo__alike_add(&alike, "other tables, features or max_batch than rank 0",
                          (uint64_t)bags->max_batch);
    for (int32_t i = 0; i < bags->table_count; i++) {
        neo__shard_mark_table(mark, &bags->tables[i]);
        *mark = neo__plan_hash(*mark, (uint64_t)bags->tables[i].rows);
        *mark = neo__plan_hash(*mark, (uint64_t)bags->tables[i].dim);
    }
    for (int32_t f = 0; f < towers->feature_count; f++)
        *mark = neo__plan_hash(*mark, (uint64_t)neo__towers_table(bags, f));
    return neo__alike_check(comm, &alike, "neo_towers_create");
}
static neo_status neo__towers_make(neo_comm *comm, neo_comm *data, const neo_towers_desc *desc,
                                   neo_towers *towers) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_towers_create"};
    neo_plan_desc node_desc;
    neo_plan *plan = NULL;
    NEO__TRY(neo_comm_split_nodes(comm, &towers->local, NULL));
    towers->ranks = neo_comm_size(comm);
    towers->rank = neo_comm_rank(comm);
    towers->per_node = neo_comm_size(towers->local);
    neo_status status = neo__towers_describe(ctx, desc, towers, &arena, &node_desc);
    if (status == NEO_OK && neo_comm_rank(towers->local) == 0)
        status = neo_plan_create(ctx, &node_desc, &plan);
    status = neo_plan_broadcast(towers->local, &node_desc, status, &plan);
    if (status == NEO_OK) status = neo__towers_make_memory(towers);
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) status = neo__towers_check_alike(comm, towers, desc);
    if (status == NEO_OK)
        status = neo_comm_agree(comm, neo_shard_create(towers->local, plan, &towers->shard));
    neo_plan_destroy(plan);
    neo__arena_free(&arena);
    NEO__TRY(status);
    NEO__TRY(neo_comm_split(comm, 0, towers->rank, &towers->comm));
    towers->moves = towers->comm;
    if (!neo_ctx_device(ctx)) return NEO_OK;
    return neo_comm_split_device(data, 0, towers->rank, &towers->moves);
}
NEO_API neo_status neo_towers_create(neo_comm *comm, const neo_towers_desc *desc,
                                     neo_towers **made) {
    const char *fn = "neo_towers_create";
    NEO__CHECK(comm && desc && made, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    neo_comm *data = comm;
    *made = NULL;
    NEO__TRY(neo__fsdp_host_group(&comm, fn));
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_towers *towers = (neo_towers *)neo__alloc_for(ctx, sizeof *towers, fn);
    neo_status status = towers ? NEO_OK : NEO_ERR_MEMORY;
    if (towers) neo__shard_fill((void *)towers, 0, sizeof *towers);
    if (towers) towers->ctx = ctx;
    neo__live_inside(ctx, 1);
    status = neo_comm_agree(comm, status);
    if (status == NEO_OK) status = neo__towers_make(comm, data, desc, towers);
    neo__live_inside(ctx, -1);
    if (status != NEO_OK) {
        neo_towers_destroy(towers);
        return status;
    }
    neo__live_begin(ctx, &towers->live, "towers", desc->plan->bags->name);
    towers->made = 1;
    *made = towers;
    return NEO_OK;
}
NEO_API void neo_towers_destroy(neo_towers *towers) {
    if (!towers) return;
    if (towers->made) neo__live_end(towers->ctx, &towers->live);
    neo__live_inside(towers->ctx, 1);
    neo_shard_destroy(towers->shard);
    for (int i = 0; i < NEO__TOWERS_TENSORS; i++)
        neo_tensor_free(towers->ctx, neo__towers_tensor(towers, i));
    for (int i = 0; i < NEO__TOWERS_BUFFERS; i++)
        neo_free(towers->ctx, towers->buffer[i].data, towers->buffer[i].bytes);
    if (towers->moves != towers->comm) neo_comm_destroy(towers->moves);
    neo_comm_destroy(towers->comm);
    neo_comm_destroy(towers->local);
    neo__live_inside(towers->ctx, -1);
    neo_free(towers->ctx, towers->block, towers->block_bytes);
    neo_free(towers->ctx, towers, sizeof *towers);
}
NEO_API neo_status neo_towers_bytes(neo_ctx *ctx, const neo_towers_desc *desc, int ranks,
                                    int ranks_per_node, int rank, size_t *bytes) {
    NEO__CHECK(ctx && desc && bytes, NEO_ERR_ARG, "neo_towers_bytes: an argument is NULL");
    NEO__ZERO(neo_towers, towers);
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_towers_bytes"};
    neo_plan_desc plan_desc;
    neo_plan *plan = NULL;
    neo_shard_memory memory;
    int64_t shape[NEO__TOWERS_TENSORS][2];
    towers.ranks = ranks;
    towers.per_node = ranks_per_node ? ranks_per_node : ranks;
    towers.rank = rank;
    neo_status status = neo__towers_describe(ctx, desc, &towers, &arena, &plan_desc);
    if (status == NEO_OK) status = neo_plan_create(ctx, &plan_desc, &plan);
    if (status == NEO_OK) status = neo_shard_bytes(ctx, plan, neo__towers_place(&towers), &memory);
    if (status == NEO_OK) {
        *bytes = sizeof towers + towers.block_bytes + memory.weight_bytes + memory.state_bytes +
                 memory.exchange_bytes + memory.workspace_bytes;
        neo__towers_extents(&towers, shape);
        for (int i = 0; i < NEO__TOWERS_TENSORS; i++)
            *bytes += NEO__MAX((size_t)(shape[i][0] * shape[i][1]) * sizeof(float),
                               (size_t)1); /* an empty tensor takes a byte */
        for (int i = 0; i < NEO__TOWERS_BUFFERS; i++) *bytes += (size_t)towers.buffer_bytes[i];
    }
    neo_plan_destroy(plan);
    neo__arena_free(&arena);
    neo_free(ctx, towers.block, towers.block_bytes);
    return status;
}

/* ---- ids, to the nodes of their towers ---- */
/* The batch can be sent: what is wrong with it, or not. */
static neo_status neo__towers_check_batch(neo_towers *towers, const neo_jagged *batch,
                                          int64_t global) {
    const char *fn = "neo_towers_forward";
    int64_t first;
    NEO__CHECK(batch->feature_count == towers->feature_count && !batch->feature_bags &&
                   batch->place == NEO_HOST,
               NEO_ERR_ARG,
               "%s: a batch of %d features on the host was expected, without feature_bags", fn,
               towers->feature_count);
    NEO__CHECK(global >= 0 && global <= towers->max_batch, NEO_ERR_CAPACITY,
               "%s: %" PRId64 " samples: max_batch is %" PRId64, fn, global, towers->max_batch);
    const int64_t mine = neo__towers_samples(towers, towers->ranks, towers->rank, global, &first);
    NEO__CHECK(batch->batch == mine, NEO_ERR_ARG,
               "%s: %" PRId64 " samples: of %" PRId64 " this rank has %" PRId64
               " (neo_comm_samples)",
               fn, batch->batch, global, mine);
    NEO__CHECK(towers->weighted || !batch->weights, NEO_ERR_ARG,
               "%s: the batch has weights: set neo_plan_desc.weighted", fn);
    NEO__TRY(neo_jagged_validate(batch, NULL));
    const int64_t ids = neo_jagged_id_count(batch);
    NEO__CHECK(ids <= INT32_MAX, NEO_ERR_CAPACITY, "%s: %" PRId64 " ids on one rank", fn, ids);
    NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_IDS,
                                 ids * (int64_t)neo_dtype_size(batch->id_dtype)));
    if (towers->weighted) NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_WEIGHTS, ids * 4));
    towers->global = global;
    towers->mine = mine;
    towers->samples =
        neo__towers_samples(towers, towers->per_node, neo__towers_place(towers), global, &first);
    return NEO_OK;
}
NEO__HOST_BEGIN
/* counts: lengths and ids for each rank; both in the order in which they travel. */
static void neo__towers_pack(neo_towers *towers, const neo_jagged *batch) {
    const size_t size = neo_dtype_size(batch->id_dtype);
    int32_t *length = (int32_t *)towers->buffer[NEO__TOWERS_LENGTHS].data;
    char *id = (char *)towers->buffer[NEO__TOWERS_IDS].data;
    float *weight = (float *)towers->buffer[NEO__TOWERS_WEIGHTS].data;
    for (int to = 0; to < towers->ranks; to++) {
        const int node = to / towers->per_node;
        int64_t from, ids = 0;
        const int64_t n =
            neo__towers_overlap(towers, towers->rank, to % towers->per_node, 0, &from);
        for (int32_t k = towers->node_feature[node]; k < towers->node_feature[node + 1]; k++) {
            const int64_t *offset = batch->offsets + towers->feature[k] * towers->mine + from;
            const int64_t run = offset[n] - offset[0];
            for (int64_t i = 0; i < n; i++) *length++ = (int32_t)(offset[i + 1] - offset[i]);
            if (run > 0)
                memcpy(id, (const char *)batch->ids + (size_t)offset[0] * size, (size_t)run * size);
            id += (size_t)run * size;
            for (int64_t i = 0; towers->weighted && i < run; i++)
                *weight++ = batch->weights ? batch->weights[offset[0] + i] : 1.0f;
            ids += run;
        }
        towers->counts[0][to] = n * (towers->node_feature[node + 1] - towers->node_feature[node]);
        towers->counts[2][to] = ids;
    }
}
/* The batch of this place, by feature and sample, of what came from each rank. */
static void neo__towers_unpack(neo_towers *towers, neo_dtype id_dtype) {
    const size_t size = neo_dtype_size(id_dtype);
    const int64_t features = towers->batch.feature_count;
    int64_t *offset = (int64_t *)towers->buffer[NEO__TOWERS_OFFSETS].data, from;
    char *to = (char *)towers->buffer[NEO__TOWERS_BATCH_IDS].data;
    float *to_weight = (float *)towers->buffer[NEO__TOWERS_BATCH_WEIGHTS].data;
    const int32_t *length =
        (const int32_t *)towers->buffer[NEO__TOWERS_GIVEN + NEO__TOWERS_LENGTHS].data;
    const char *id = (const char *)towers->buffer[NEO__TOWERS_GIVEN + NEO__TOWERS_IDS].data;
    const float *weight =
        (const float *)towers->buffer[NEO__TOWERS_GIVEN + NEO__TOWERS_WEIGHTS].data;
    offset[0] = 0;
    for (int rank = 0; rank < towers->ranks; rank++) {
        const int64_t n = neo__towers_overlap(towers, rank, neo__towers_place(towers), 1, &from);
        for (int64_t f = 0; f < features; f++)
            for (int64_t i = 0; i < n; i++) offset[f * towers->samples + from + i + 1] = *length++;
    }
    for (int64_t i = 0; i < features * towers->samples; i++) offset[i + 1] += offset[i];
    for (int rank = 0; rank < towers->ranks; rank++) {
        const int64_t n = neo__towers_overlap(towers, rank, neo__towers_place(towers), 1, &from);
        for (int64_t f = 0; f < features; f++) {
            const int64_t begin = offset[f * towers->samples + from],
                          run = offset[f * towers->samples + from + n] - begin;
            if (run == 0) continue;
            memcpy(to + (size_t)begin * size, id, (size_t)run * size);
            id += (size_t)run * size;
            if (!towers->weighted) continue;
            memcpy(to_weight + begin, weight, (size_t)run * sizeof *weight);
            weight += run;
        }
    }
}
NEO__HOST_END
/* Lengths, then ids: counts 0 and 1 of lengths, 2 and 3 of ids. */
static neo_status neo__towers_send_ids(neo_towers *towers, neo_dtype id_dtype) {
    neo__buffer *b = towers->buffer, *came = b + NEO__TOWERS_GIVEN;
    const int64_t features = towers->batch.feature_count;
    int64_t from, ids = 0;
    for (int rank = 0; rank < towers->ranks; rank++)
        towers->counts[1][rank] =
            features * neo__towers_overlap(towers, rank, neo__towers_place(towers), 1, &from);
    NEO__TRY(neo_comm_all_to_allv(towers->comm, b[NEO__TOWERS_LENGTHS].data, towers->counts[0],
                                  came[NEO__TOWERS_LENGTHS].data, towers->counts[1], NEO_I32,
                                  NULL));
    const int32_t *length = (const int32_t *)came[NEO__TOWERS_LENGTHS].data;
    for (int rank = 0; rank < towers->ranks; rank++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < towers->counts[1][rank]; i++) sum += *length++;
        towers->counts[3][rank] = sum;
        ids += sum;
    }
    const int64_t bytes = ids * (int64_t)neo_dtype_size(id_dtype);
    NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_GIVEN + NEO__TOWERS_IDS, bytes));
    NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_BATCH_IDS, bytes));
    NEO__TRY(neo_comm_all_to_allv(towers->comm, b[NEO__TOWERS_IDS].data, towers->counts[2],
                                  came[NEO__TOWERS_IDS].data, towers->counts[3], id_dtype, NULL));
    if (!towers->weighted) return NEO_OK;
    NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_GIVEN + NEO__TOWERS_WEIGHTS, ids * 4));
    NEO__TRY(neo__towers_reserve(towers, NEO__TOWERS_BATCH_WEIGHTS, ids * 4));
    return neo_comm_all_to_allv(towers->comm, b[NEO__TOWERS_WEIGHTS].data, towers->counts[2],
                                came[NEO__TOWERS_WEIGHTS].data, towers->counts[3], NEO_F32, NULL);
}
/* A rank that fails in the middle of an exchange tells the others. */
static neo_status neo__towers_or_abort(neo_towers *towers, neo_status status) {
    if (status == NEO_OK) return status;
    const neo__kept_error kept = neo__error_keep(status);
    neo_comm_abort(towers->comm, kept.text);
    if (towers->moves != towers->comm) neo_comm_abort(towers->moves, kept.text);
    return neo__error_restore(&kept);
}
static neo_status neo__towers_check_phase(const neo_towers *towers, int phase, const char *fn,
                                          const char *first) {
    NEO__CHECK_LIVE(towers, fn, "towers");
    NEO__CHECK(towers->phase == phase, NEO_ERR_STATE, "%s: %s comes first", fn, first);
    return NEO_OK;
}
NEO_API neo_status neo_towers_forward_begin(neo_towers *towers, const neo_jagged *batch,
                                            int64_t global_batch) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_forward_begin");
    NEO__CHECK_LIVE(towers, "neo_towers_forward", "towers");
    NEO__CHECK(batch, NEO_ERR_ARG, "neo_towers_forward: batch is NULL");
    NEO__CHECK(towers->phase != NEO__TOWERS_BACK && towers->phase < NEO__TOWERS_IN_FORWARD,
               NEO_ERR_STATE, "neo_towers_forward: %s comes first",
               towers->phase == NEO__TOWERS_BACK ? "neo_towers_backward"
                                                 : "the end of what has begun");
    const int node = towers->rank / towers->per_node;
    towers->phase = NEO__TOWERS_IDLE;
    NEO__TRY(neo_comm_agree(towers->comm, neo__towers_check_batch(towers, batch, global_batch)));
    neo__towers_pack(towers, batch);
    neo__shard_fill((void *)&towers->batch, 0, sizeof towers->batch);
    towers->batch.batch = towers->samples;
    towers->batch.feature_count = towers->node_feature[node + 1] - towers->node_feature[node];
    towers->batch.id_dtype = batch->id_dtype;
    NEO__TRY(neo__towers_or_abort(towers, neo__towers_send_ids(towers, batch->id_dtype)));
    neo__towers_unpack(towers, batch->id_dtype);
    towers->batch.offsets = (const int64_t *)towers->buffer[NEO__TOWERS_OFFSETS].data;
    towers->batch.ids = towers->buffer[NEO__TOWERS_BATCH_IDS].data;
    if (towers->weighted)
        towers->batch.weights = (const float *)towers->buffer[NEO__TOWERS_BATCH_WEIGHTS].data;
    towers->error =
        neo__error_keep(neo_shard_forward_begin(towers->shard, &towers->batch, towers->global));
    towers->phase = NEO__TOWERS_IN_FORWARD;
    return NEO_OK;
}
NEO_API neo_status neo_towers_forward_end(neo_towers *towers) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_forward_end");
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_IN_FORWARD, "neo_towers_forward_end",
                                     "forward_begin"));
    const neo_tensor rows = neo_tensor_rows(towers->rows[0], 0, towers->samples);
    neo_status status = towers->error.status == NEO_OK ? neo_shard_forward_end(towers->shard, rows)
                                                       : neo__error_restore(&towers->error);
    towers->phase = NEO__TOWERS_IDLE;
    NEO__TRY(neo_comm_agree(towers->comm, status));
    towers->phase = NEO__TOWERS_FORWARD;
    return NEO_OK;
}
NEO_API neo_status neo_towers_forward(neo_towers *towers, const neo_jagged *batch,
                                      int64_t global_batch) {
    NEO__TRY(neo_towers_forward_begin(towers, batch, global_batch));
    return neo_towers_forward_end(towers);
}

/* ---- columns, to the samples and back ---- */
/* Between columns[back] and staging, whose rows are this rank's samples, node by node. */
static neo_status neo__towers_move(neo_towers *towers, int back) {
    int64_t from;
    int64_t *const here = towers->counts[back], *const there = towers->counts[!back];
    for (int rank = 0; rank < towers->ranks; rank++) {
        const int place = rank % towers->per_node, node = rank / towers->per_node;
        here[rank] =
            towers->held * neo__towers_overlap(towers, rank, neo__towers_place(towers), 1, &from);
        there[rank] = neo__towers_held_by(towers, node) *
                      neo__towers_overlap(towers, towers->rank, place, 0, &from);
    }
    const float *in = (const float *)(back ? towers->staging : towers->columns[0]).data;
    float *out = (float *)(back ? towers->columns[1] : towers->staging).data;
    if (towers->wire[back] != NEO_WIRE_F32) {
        NEO__ZERO(neo_rows, rows);
        rows.wire = towers->wire[back];
        rows.cols = towers->out_width;
        rows.workspace = towers->workspace.data;
        rows.workspace_bytes = neo_tensor_bytes(towers->workspace);
        return neo_comm_all_to_allv_rows(towers->moves, &rows, in, towers->counts[0], out,
                                         towers->counts[1], &towers->ticket);
    }
    for (int rank = 0; rank < towers->ranks; rank++)
        here[rank] *= towers->out_width, there[rank] *= towers->out_width;
    return neo_comm_all_to_allv(towers->moves, in, towers->counts[0], out, towers->counts[1],
                                NEO_F32, &towers->ticket);
}
/* Between staging and the caller's matrix of all towers. */
static neo_status neo__towers_interleave(neo_towers *towers, neo_tensor all, int back) {
    int64_t col = 0;
    for (int node = 0; node < towers->nodes; node++) {
        const int64_t cols = neo__towers_held_by(towers, node) * towers->out_width;
        neo_tensor block = neo_tensor_2d((float *)towers->staging.data + towers->mine * col,
                                         NEO_F32, towers->mine, cols);
        block.place = towers->staging.place;
        const neo_tensor slice = neo_tensor_slice(all, 1, col, cols);
        NEO__TRY(back ? neo_tensor_copy(towers->ctx, slice, block)
                      : neo_tensor_copy(towers->ctx, block, slice));
        col += cols;
    }
    return NEO_OK;
}
static neo_status neo__towers_check_all(const neo_towers *towers, neo_tensor all, const char *fn,
                                        const char *name) {
    const int64_t cols = towers->tower_count * towers->out_width;
    NEO__CHECK(all.dtype == NEO_F32 && all.ndim == 2 && all.shape[0] == towers->mine &&
                   all.shape[1] == cols && (cols == 1 || all.stride[1] == 1) &&
                   (all.data || towers->mine == 0),
               NEO_ERR_SHAPE,
               "%s: %s is not f32 [%" PRId64 "][%" PRId64 "] with last stride 1 "
               "(this rank's samples, %d towers of %" PRId64 ")",
               fn, name, towers->mine, cols, towers->tower_count, towers->out_width);
    NEO__CHECK(towers->mine == 0 || all.place == towers->staging.place, NEO_ERR_ARG,
               "%s: %s is not where the context computes", fn, name);
    return NEO_OK;
}
NEO_API neo_status neo_towers_exchange_begin(neo_towers *towers) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_exchange_begin");
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_FORWARD, "neo_towers_exchange_begin",
                                     "forward"));
    NEO__TRY(neo__towers_move(towers, 0));
    towers->phase = NEO__TOWERS_IN_EXCHANGE;
    return NEO_OK;
}
NEO_API neo_status neo_towers_exchange_end(neo_towers *towers, neo_tensor out) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_exchange_end");
    const char *fn = "neo_towers_exchange_end";
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_IN_EXCHANGE, fn, "exchange_begin"));
    NEO__TRY(neo__towers_check_all(towers, out, fn, "out"));
    NEO__TRY(neo_comm_wait(towers->moves, towers->ticket));
    NEO__TRY(neo__towers_interleave(towers, out, 0));
    towers->phase = NEO__TOWERS_EXCHANGED;
    return NEO_OK;
}
NEO_API neo_status neo_towers_exchange(neo_towers *towers, neo_tensor out) {
    const char *fn = "neo_towers_exchange";
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_FORWARD, fn, "forward"));
    NEO__TRY(neo__towers_check_all(towers, out, fn, "out"));
    NEO__TRY(neo_towers_exchange_begin(towers));
    return neo_towers_exchange_end(towers, out);
}
NEO_API neo_status neo_towers_exchange_back_begin(neo_towers *towers, neo_tensor dout) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_exchange_back_begin");
    const char *fn = "neo_towers_exchange_back";
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_EXCHANGED, fn, "exchange"));
    NEO__TRY(neo__towers_check_all(towers, dout, fn, "dout"));
    NEO__TRY(neo__towers_interleave(towers, dout, 1));
    NEO__TRY(neo__towers_move(towers, 1));
    towers->phase = NEO__TOWERS_IN_BACK;
    return NEO_OK;
}
NEO_API neo_status neo_towers_exchange_back_end(neo_towers *towers) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_exchange_back_end");
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_IN_BACK, "neo_towers_exchange_back_end",
                                     "exchange_back_begin"));
    NEO__TRY(neo_comm_wait(towers->moves, towers->ticket));
    towers->phase = NEO__TOWERS_BACK;
    return NEO_OK;
}
NEO_API neo_status neo_towers_exchange_back(neo_towers *towers, neo_tensor dout) {
    NEO__TRY(neo_towers_exchange_back_begin(towers, dout));
    return neo_towers_exchange_back_end(towers);
}
NEO_API neo_status neo_towers_backward_begin(neo_towers *towers) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_backward_begin");
    NEO__TRY(
        neo__towers_check_phase(towers, NEO__TOWERS_BACK, "neo_towers_backward", "exchange_back"));
    const neo_tensor drows = neo_tensor_rows(towers->rows[1], 0, towers->samples);
    towers->error = neo__error_keep(neo_shard_backward_begin(towers->shard, drows));
    towers->phase = NEO__TOWERS_IN_BACKWARD;
    return NEO_OK;
}
NEO_API neo_status neo_towers_backward_end(neo_towers *towers, float lr) {
    NEO__SPAN(towers ? towers->ctx : NULL, "neo_towers_backward_end");
    NEO__TRY(neo__towers_check_phase(towers, NEO__TOWERS_IN_BACKWARD, "neo_towers_backward_end",
                                     "backward_begin"));
    neo_status status = towers->error.status == NEO_OK ? neo_shard_backward_end(towers->shard, lr)
                                                       : neo__error_restore(&towers->error);
    NEO__TRY(neo_comm_agree(towers->comm, status));
    towers->phase = NEO__TOWERS_IDLE;
    return NEO_OK;
}
NEO_API neo_status neo_towers_backward(neo_towers *towers, float lr) {
    NEO__TRY(neo_towers_backward_begin(towers));
    return neo_towers_backward_end(towers, lr);
}
NEO_API int neo_towers_held(const neo_towers *towers) { return towers->held; }
NEO_API neo_tower neo_towers_at(const neo_towers *towers, int k) {
    NEO__ZERO(neo_tower, tower);
    neo_tensor *view[4] = {&tower.in, &tower.din, &tower.out, &tower.dout};
    if (k < 0 || k >= towers->held) k = towers->held; /* views of no columns: calls refuse them */
    tower.tower = towers->first + k;
    for (int i = 0; i < 4; i++) {
        const neo_tensor whole = i < 2 ? towers->rows[i] : towers->columns[i - 2];
        const int64_t first = i < 2 ? towers->col[k] : k * towers->out_width,
                      end = k == towers->held ? first
                            : i < 2           ? towers->col[k + 1]
                                              : first + towers->out_width;
        *view[i] =
            neo_tensor_slice(neo_tensor_rows(whole, 0, towers->samples), 1, first, end - first);
    }
    return tower;
}
NEO_API neo_comm *neo_towers_comm(const neo_towers *towers) { return towers->local; }
NEO_API neo_shard *neo_towers_shard(const neo_towers *towers) { return towers->shard; }
NEO_API neo_comm_stats neo_towers_stats(const neo_towers *towers) {
    neo_comm_stats stats = neo_comm_get_stats(towers->comm);
    if (towers->moves != towers->comm)
        neo__shard_add_stats(&stats, neo_comm_get_stats(towers->moves));
    return stats;
}
NEO_API int64_t neo_towers_grow_count(const neo_towers *towers) {
    return towers->grow_count + neo_shard_get_stats(towers->shard).grow_count;
}
NEO_API neo_status neo_state_add_towers(neo_state *state, neo_towers *towers, neo_fsdp *modules) {
    NEO__CHECK(state && towers, NEO_ERR_ARG, "neo_state_add_towers: an argument is NULL");
    neo_status status = NEO_OK;
    const char *name = towers->names;
    for (int32_t i = 0; i < towers->table_count && status == NEO_OK; i++, name += strlen(name) + 1)
        status = neo__state_define_buckets(state, towers->shard->map->desc.name, name,
                                           towers->buckets[i]);
    if (towers->nodes > 1) neo__state_of_group(state, neo__towers_place(towers) == 0 ? 1 : 2);
    if (status == NEO_OK) status = neo_state_add_shard(state, towers->shard);
    if (status == NEO_OK && modules) status = neo_state_add_fsdp(state, modules);
    neo__state_of_group(state, 0);
    return status;
}

/* ---- which features go together ---- */
NEO_API neo_status neo_tower_affinity(neo_ctx *ctx, neo_tensor rows, int32_t features,
                                      double *affinity) {
    const char *fn = "neo_tower_affinity";
    NEO__CHECK(ctx && affinity, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    NEO__CHECK(rows.data && rows.place == NEO_HOST, NEO_ERR_ARG, "%s: rows is none, or on a device",
               fn);
    NEO__CHECK(rows.dtype == NEO_F32 && rows.ndim == 2 && features > 0 && rows.shape[0] > 0 &&
                   rows.shape[1] % features == 0 && rows.stride[1] == 1,
               NEO_ERR_SHAPE, "%s: rows is not f32 [samples][%d x dim] with stride 1", fn,
               features);
    const int64_t dim = rows.shape[1] / features, samples = rows.shape[0];
    memset(affinity, 0, (size_t)features * (size_t)features * sizeof *affinity);
    for (int64_t s = 0; s < samples; s++) {
        const float *row = (const float *)rows.data + s * rows.stride[0];
        for (int32_t a = 0; a < features; a++) {
            for (int32_t b = 0; b <= a; b++) {
                double ab = 0.0, aa = 0.0, bb = 0.0;
                for (int64_t c = 0; c < dim; c++) {
                    const double x = row[a * dim + c], y = row[b * dim + c];
                    ab += x * y, aa += x * x, bb += y * y;
                }
                if (aa > 0.0 && bb > 0.0)
                    affinity[(int64_t)a * features + b] += fabs(ab) / sqrt(aa * bb);
            }
        }
    }
    for (int32_t a = 0; a < features; a++) {
        for (int32_t b = 0; b <= a; b++) {
            affinity[(int64_t)a * features + b] /= (double)samples;
            affinity[(int64_t)b * features + a] = affinity[(int64_t)a * features + b];
        }
    }
    return NEO_OK;
}
typedef struct neo__parting {
    const double *affinity, *cost;
    int32_t count, towers, *tower, *members; /* of each tower */
    double mean;                             /* affinity of two: less is a reason to part them */
    double most, *load, *pull; /* cost of each tower; [count][towers]: affinity of one to a tower */
} neo__parting;
static double neo__parting_cost(const neo__parting *parts, int32_t i) {
    return parts->cost ? parts->cost[i] : 1.0;
}
static double neo__parting_affinity(const neo__parting *parts, int32_t i, int32_t k) {
    const int64_t n = parts->count;
    return 0.5 * (parts->affinity[i * n + k] + parts->affinity[k * n + i]) - parts->mean;
}
/* To another tower; to or from -1: none. */
static void neo__parting_put(neo__parting *parts, int32_t i, int32_t to) {
    const int32_t from = parts->tower[i];
    for (int32_t k = 0; k < parts->count; k++) {
        if (k == i) continue;
        const double a = neo__parting_affinity(parts, i, k);
        if (from >= 0) parts->pull[(int64_t)k * parts->towers + from] -= a;
        parts->pull[(int64_t)k * parts->towers + to] += a;
    }
    if (from >= 0) parts->load[from] -= neo__parting_cost(parts, i), parts->members[from]--;
    parts->load[to] += neo__parting_cost(parts, i);
    parts->members[to]++;
    parts->tower[i] = to;
}
/* The tower of the dearest that is left: the one that pulls most and has room, or the one with
   least; while as many towers are empty as things are left, an empty one. */
static int32_t neo__parting_choose(const neo__parting *parts, int32_t i, int32_t left) {
    int32_t best = -1, least = 0, empty = 0;
    for (int32_t t = 0; t < parts->towers; t++) empty += parts->members[t] == 0;
    for (int32_t t = 0; t < parts->towers; t++) {
        if (parts->load[t] < parts->load[least]) least = t;
        if (left <= empty && parts->members[t] > 0) continue;
        if (parts->load[t] + neo__parting_cost(parts, i) > parts->most) continue;
        const double *pull = parts->pull + (int64_t)i * parts->towers;
        if (best < 0 || pull[t] > pull[best] ||
            (pull[t] == pull[best] && parts->load[t] < parts->load[best]))
            best = t;
    }
    return best >= 0 ? best : least;
}
/* The move (with < 0) or swap that helps most. 0: none does. */
static int neo__parting_improve(neo__parting *parts, double enough) {
    int32_t one = -1, with = -1, to = -1;
    double most = enough;
    for (int32_t i = 0; i < parts->count; i++) {
        const int32_t from = parts->tower[i];
        const double *pull = parts->pull + (int64_t)i * parts->towers,
                     cost = neo__parting_cost(parts, i);
        for (int32_t t = 0; t < parts->towers && parts->members[from] > 1; t++) {
            const double gain = pull[t] - pull[from];
            if (t != from && gain > most && parts->load[t] + cost <= parts->most)
                most = gain, one = i, with = -1, to = t;
        }
        for (int32_t k = 0; k < i; k++) {
            const int32_t t = parts->tower[k];
            const double *pull_k = parts->pull + (int64_t)k * parts->towers,
                         more = cost - neo__parting_cost(parts, k);
            const double gain = pull[t] - pull[from] + pull_k[from] - pull_k[t] -
                                2.0 * neo__parting_affinity(parts, i, k);
            if (t != from && gain > most && (more <= 0.0 || parts->load[t] + more <= parts->most) &&
                (more >= 0.0 || parts->load[from] - more <= parts->most))
                most = gain, one = i, with = k, to = t;
        }
    }
    if (one < 0) return 0;
    const int32_t from = parts->tower[one];
    neo__parting_put(parts, one, to);
    if (with >= 0) neo__parting_put(parts, with, from);
    return 1;
}
static neo_status neo__parting_check(neo__parting *parts, double *total, double *scale) {
    const char *fn = "neo_tower_partition";
    for (int32_t i = 0; i < parts->count; i++) {
        const double cost = neo__parting_cost(parts, i);
        NEO__CHECK(cost >= 0.0 && cost - cost == 0.0, NEO_ERR_ARG, "%s: cost[%d] is %g", fn, i,
                   cost);
        *total += cost;
        for (int32_t k = 0; k < parts->count; k++) {
            const double a = parts->affinity[(int64_t)i * parts->count + k];
            NEO__CHECK(a >= 0.0 && a - a == 0.0, NEO_ERR_ARG, "%s: affinity[%d][%d] is %g", fn, i,
                       k, a);
            *scale = NEO__MAX(*scale, a);
            if (i != k) parts->mean += a;
        }
    }
    if (parts->count > 1) parts->mean /= (double)parts->count * (parts->count - 1);
    return NEO_OK;
}
NEO_API neo_status neo_tower_partition(neo_ctx *ctx, const double *affinity, const double *cost,
                                       int32_t count, int32_t towers, double slack,
                                       int32_t *tower) {
    const char *fn = "neo_tower_partition";
    NEO__CHECK(ctx && affinity && tower, NEO_ERR_ARG, "%s: an argument is NULL", fn);
    NEO__CHECK(towers > 0 && count >= towers, NEO_ERR_ARG, "%s: %d towers of %d features", fn,
               towers, count);
    NEO__CHECK(slack >= 0.0 && slack - slack == 0.0, NEO_ERR_ARG, "%s: slack is %g", fn, slack);
    NEO__ZERO(neo__parting, parting);
    neo__parting *const parts = &parting;
    neo__arena arena = {ctx, NULL, NULL, 0, fn};
    double total = 0.0, scale = 0.0;
    parts->affinity = affinity;
    parts->cost = cost;
    parts->count = count;
    parts->towers = towers;
    parts->tower = tower;
    NEO__TRY(neo__parting_check(parts, &total, &scale));
    neo_status status = NEO__ARENA(&arena, parts->load, towers);
    if (status == NEO_OK) status = NEO__ARENA(&arena, parts->members, towers);
    if (status == NEO_OK) status = NEO__ARENA(&arena, parts->pull, (int64_t)count * towers);
    if (status == NEO_OK) {
        parts->most = (1.0 + slack) * total / towers;
        for (int32_t i = 0; i < count; i++) {
            parts->most = NEO__MAX(parts->most, neo__parting_cost(parts, i));
            tower[i] = -1;
        }
        for (int32_t left = count; left > 0; left--) {
            int32_t dearest = -1;
            for (int32_t i = 0; i < count; i++)
                if (tower[i] < 0 && (dearest < 0 || neo__parting_cost(parts, i) >
                                                        neo__parting_cost(parts, dearest)))
                    dearest = i;
            neo__parting_put(parts, dearest, neo__parting_choose(parts, dearest, left));
        }
        for (int32_t round = 0; round < 10 * count; round++)
            if (!neo__parting_improve(parts, 1e-9 * scale)) break;
    }
    neo__arena_free(&arena);
    return status;
}
NEO__COLD_END
NEO_EXACT_END
#endif /* implementation */
