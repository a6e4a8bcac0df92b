/* neo_comm.h: process groups and collectives over threads, MPI or NCCL, with the same bits on all.

   Copy it beside neo.h and neo_kernels.h, and neo_nccl.h if ranks are GPUs over NCCL. MIT licence
   (at the end of neo.h).

   WHAT IT DOES
     - one API over three backends: the ranks of a job are threads of one process (always there),
       MPI processes (NEO_COMM_MPI) or GPUs (NEO_COMM_NCCL)
     - all-reduce, reduce-scatter, all-gather, all-to-all, broadcast, gather, scatter, send, recv,
       barrier; blocking or asynchronous, for every dtype of neo.h
     - the same bits: sums add in the order of the leaf tree of neo.h (see >>leaves there), whatever
       the backend, the number of ranks and the timing
     - narrow wires: rows travel as f16, bf16, f8, i8 or i4 with scales, and errors are measured
     - every byte that is sent is counted, by operation and by level (inside a node, between nodes)
     - faults become a status: a rank that exits, hangs or calls something else is named on every
       survivor; nothing hangs. Lost processes are not restarted

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_comm.h"
         #include "neo_comm.h"
     A trainer is a function that every rank runs; neo_comm_init_env starts it:
         static neo_status train(neo_comm *comm, void *user) { ... neo_comm_all_reduce(...) ... }
         int main(void) {
             neo_comm_desc desc = {.ranks = 4};
             return neo_comm_init_env(&desc, train, NULL) != NEO_OK;
         }
     cc trainer.c -lm -lpthread                        four ranks as threads
     mpicc -DNEO_COMM_MPI trainer.c -lm -lpthread      as many as the launcher starts, OpenMPI's by
                                                       mpirun --oversubscribe -n 4 ./a.out

   WHICH CALL WHEN
     gradients of replicated parameters           all_reduce_leaves (the same bits on any number of
                                                  ranks; all_reduce if they may depend on it)
     gradients of sharded parameters              reduce_scatter, reduce_scatter_leaves
     parameters that are sharded                  all_gather before use
     pooled embedding rows, ids                   all_to_all, all_to_allv
     rows in fewer bits                           the _rows calls with a neo_wire
     a decision of one rank                       broadcast
     a status that all ranks act on               agree: after an error, or at the end of its input
     which samples of a batch are this rank's?    samples
     numbers per sample, for metrics              gather_samples
     lines that come on standard input            neo_comm_input
     how long would it take on slower links?      neo_comm_desc.link and .virtual_clock, and
                                                  neo_comm_sleep for what is computed
     numbers for a report                         gather, or all_reduce of the words of a neo_exact
                                                  x: in and out &x, count sizeof x / 8, NEO_I64

   RULES
     Order      All ranks of a group make the same calls on it in the same order, and each takes the
                group's next number; messages name it: "all_reduce #12".
     Threads    A neo_comm belongs to one thread at a time. Groups of one rank are independent, but
                what one waits for must not wait for the other. Over MPI one thread makes all
                groups, and while an operation is in flight the program makes no MPI call of its
                own, unless MPI was started with MPI_THREAD_MULTIPLE.
     Buffers    An asynchronous call (ticket not NULL) holds them until neo_comm_wait: inputs must
                not be written, outputs not be read. Arrays of counts and a neo_rows are copied, its
                workspace and stats are not. Operations in flight may read the same memory, and one
                may read what an earlier one writes (they run in order). Buffers on a function's
                stack: wait before it returns, on its error paths too (neo_comm_wait_all).
     Ownership  The comm that neo_comm_init_env and neo_comm_spawn give to a function is theirs;
                groups from split, split_nodes and rebuild are the function's, to be destroyed
                before it returns (a thread that returns has left those that are not).
     In place   all_reduce, broadcast: in == out. reduce_scatter: out may be this rank's part of in.
                all_gather: in may be this rank's part of out. all_to_all: in == out is refused.
                Other overlaps are refused where they can be seen.
     Counts     are elements, 64 bits. Zero is allowed everywhere (the ranks still meet).
     Pools      A collective is never called from inside a task of neo_parallel_for.

   BYTES
     With S the bytes of the full buffer and c(W) = (W - 1)/W, a rank sends on average
         reduce_scatter, all_gather   S c(W)
         all_reduce                   2 S c(W)
         all_to_all                   S c(W)              (S: its own send buffer)
     and all ranks together
         broadcast                    (W - 1) S
         gather, scatter              S c(W)              (S: the root's buffer)
     A sum over leaves of which a rank holds P subtrees (see neo_comm_all_reduce_leaves) sends that
     rank's share of the reduce-scatter P times. Headers (96 bytes for each pair of ranks that meet
     in a call) are counted apart, as control bytes.

   A NEW COLLECTIVE, x (example: all_gather)
     1. >>comm-collectives   neo_comm_x; what it sends: BYTES, above
     2. >>comm-stats         its row in neo_comm_op (the first ones reduce, the others do not), and
                             its name in neo__op_names (>>impl-comm-core)
     3. >>impl-comm-calls    neo_comm_x checks its arguments, fills a neo__work and issues it
     4. >>impl-collectives   neo__x_run: rounds of messages; a case in neo__work_run. Threads, MPI
                             and NCCL need nothing more
     5. tests/comm           collectives.c: results on 1 to 8 ranks; groups.c: bytes; faults.c

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_comm.h is the map)
     >>comm-config >>comm >>comm-work >>comm-faults >>comm-collectives >>comm-data >>comm-stats
     >>comm-rows >>impl-comm-types >>impl-comm-core >>impl-comm-device
     >>impl-collectives >>impl-comm-calls >>impl-comm-data >>impl-threads >>impl-spawn >>impl-mpi
     >>impl-comm-env; neo_nccl.h has the NCCL backend
*/
#ifndef NEO_COMM_H
#define NEO_COMM_H

/* ---------------------------------------------------------------------------
   >>comm-config

   Macros a user may define, beside those of neo.h, in the file that implements:
     NEO_IMPLEMENTATION        emits neo.h and neo_comm.h
     NEO_COMM_IMPLEMENTATION   emits neo_comm.h alone (neo.h is implemented in another file)
     NEO_COMM_MPI              with the MPI backend: compile with mpicc
     NEO_COMM_MPI_STAGED       device memory goes through pinned memory, even if MPI takes it
     NEO_COMM_NCCL             with the NCCL backend (neo_nccl.h), for programs that have device
                               buffers: CUDA and NCCL (-I$CUDA/include -L$CUDA/lib64 -lcudart
                               -lnccl)
   ------------------------------------------------------------------------ */
#include "neo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>comm

   A neo_comm is one rank's place in a group of ranks.
   ------------------------------------------------------------------------ */
typedef struct neo_comm neo_comm;

typedef enum neo_comm_backend {
    NEO_BACKEND_THREADS, /* ranks are threads of this process */
    NEO_BACKEND_MPI,
    NEO_BACKEND_NCCL
} neo_comm_backend;

/* The link between two ranks: inside one node, or between nodes. */
typedef enum neo_level { NEO_LEVEL_LOCAL, NEO_LEVEL_CROSS, NEO_LEVEL_COUNT } neo_level;

/* The threads backend can behave as slower links: a message of n bytes takes latency_us +
   n/bandwidth, and a rank sends one at a time on each level, and receives one at a time. */
typedef struct neo_link {
    double latency_us;
    double bandwidth; /* bytes per second; 0: as fast as memory */
} neo_link;

/* Opens a device for a rank's context (as neo_cuda_device_create does); it is destroyed after that.
   local: the rank's place in its node; ranks may share a GPU, but each has a device of its own. */
typedef neo_status (*neo_comm_device_fn)(int rank, int local, void *user, neo_device **device);

/* Who adds, over NCCL, numbers of which each rank has one piece. NCCL adds in an order of its own,
   by the ranks and their links: a numeric class of its own, for a run's definition. */
typedef enum neo_sums {
    NEO_SUMS_TREE, /* neo: the same bits on any ranks and backend */
    NEO_SUMS_NCCL  /* ncclAllReduce; ncclReduceScatter for parts of one size. The rest: neo */
} neo_sums;

/* Zeros are good defaults. */
typedef struct neo_comm_desc {
    neo_ctx_desc ctx;     /* of each rank's context. threads 0: the cores that the ranks of this
                             machine may use, shared among them. repro_shards 0: as many as ranks,
                             on devices at least NEO_DEVICE_SHARDS */
    int ranks;            /* threads backend: how many; 0: 1. With MPI not read */
    int ranks_per_node;   /* ranks [n k, n (k + 1)) are a node; 0: all; MPI: by host name */
    int timeout_ms;       /* a rank that waits longer gives up, in saving and loading after ten
                             times as long; 0: 60,000; below 0: never. Time in which its process was
                             stopped (Ctrl-Z, a suspended job) does not count */
    size_t segment_bytes; /* that MPI, NCCL, devices move and add at a time. 0: 256 KiB; on devices,
                             but by way of pinned memory, 32 MiB of each other rank's piece of a
                             sum, at most 256 MiB */
    int queue_length;     /* asynchronous operations in flight (one more waits); 0: 64 */
    neo_link link[NEO_LEVEL_COUNT]; /* threads: the model; zeros: none */
    int virtual_clock;              /* threads: 1: time is simulated; see neo_comm_time_ns */
    neo_comm_device_fn open_device; /* of each rank's context; NULL: ctx.device, of one rank */
    void *open_user;
    neo_sums sums;
    int agree_every; /* NCCL: see neo_comm_create_nccl; 0: 16 */
} neo_comm_desc;

/* neo_comm_init_env: run fn on every rank of this job. Under mpirun, mpiexec or srun (seen by their
   environment variables) with NEO_COMM_MPI compiled in: once, as one rank of MPI_COMM_WORLD; MPI is
   initialised and finalised if the program has not done so. Else as desc->ranks threads. desc may
   be NULL. A rank whose fn returns an error gives up as by neo_comm_abort, with neo_last_error as
   its reason, also in the groups split from it. Over MPI a rank whose fn has returned waits for the
   others, up to ten times the timeout. Returns the status of fn on this process; of threads that of
   the first rank (in time) that failed, with its message, behind "rank <r>: " where not all ranks
   say the same.
   Errors   NEO_ERR_ARG: a ctx.device for several ranks of a process (each needs one of its own:
            open_device), or open_device gave two ranks the same one; those of open_device.
            NEO_ERR_UNSUPPORTED: started by a launcher with several processes, but without
            NEO_COMM_MPI. NEO_ERR_SYSTEM: the launcher is of another MPI than the program. */
typedef neo_status (*neo_comm_fn)(neo_comm *comm, void *user);
NEO_API neo_status neo_comm_init_env(const neo_comm_desc *desc, neo_comm_fn fn, void *user);

/* neo_comm_spawn: run fn on `ranks` threads, each with a context and a neo_comm of its own.
   rank_status: [ranks], what each returned; or NULL. The result: as neo_comm_init_env. */
NEO_API neo_status neo_comm_spawn(int ranks, const neo_comm_desc *desc, neo_comm_fn fn, void *user,
                                  neo_status *rank_status);

/* neo_comm_create_mpi: a group over all ranks of *mpi_comm (a pointer to an MPI_Comm, which is
   duplicated), in a program that has initialised MPI itself: with MPI_THREAD_SERIALIZED or more,
   else asynchronous operations block where they are called (a warning is logged). Set
   MPI_ERRORS_RETURN on MPI_COMM_WORLD too: MPICH asks it for errors of any communicator. Collective
   over mpi_comm; nothing is in flight on other groups.
   Errors   NEO_ERR_UNSUPPORTED: compiled without NEO_COMM_MPI. NEO_ERR_PEER, NEO_ERR_TIMEOUT:
            another rank failed, or did not come. NEO_ERR_DIVERGED: segment_bytes differ. */
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_create_mpi(neo_ctx *ctx, const neo_comm_desc *desc,
                                                         const void *mpi_comm, neo_comm **comm);
/* neo_comm_create_nccl: a group of the ranks of `host` (threads or MPI) whose buffers are device
   memory. The calls and their bits are the same. Each rank brings a CUDA device of its own, which
   from then on is the current one of the threads that call. host: not needed after: the group has a
   copy of it, on which ranks agree on their calls. Collective over host.
   Stream    cudaStream_t of this device. Transfers run on it, so a call comes after what was put on
             it before (which counts into the timeout); not while it is captured. NULL: one of the
             group's own; then inputs must be there when the call is made. What was called is done
             when the call, or neo_comm_wait, returns: no stream need be waited for.
   Context   host's may have a device (neo_comm_desc.open_device) of the same GPU: then a call
             begins when what was called on it is done, and it makes the sums; without one the
             processor does, by way of pinned memory.
   Order     calls on all groups over NCCL of a rank are launched on its device in the order in
             which they are made. Groups that share ranks must be called in one order on these (one
             thread of a program that is the same on all ranks does so); in another they time out.
   Agreement before each neo_comm_desc.agree_every-th call of a group, a barrier, a call of no
             elements, send and recv, on it and those since the last agreement. What diverges
             between is found then, or when its transfers do not end in time.
   Memory    neo_comm_device_bytes, of the device and pinned.
   Bytes     as above, with no small case; control bytes are those of the agreement.
   Rows      on a narrow wire are coded by the context's device: without one NEO_ERR_UNSUPPORTED.
   Not here  rebuild: NEO_ERR_UNSUPPORTED.
   Errors    NEO_ERR_ARG: no such device, or host is on devices itself. NEO_ERR_MEMORY.
             NEO_ERR_SYSTEM and NEO_ERR_PEER: CUDA or NCCL fail (the message has their words); a
             failed call breaks the group, and NCCL's communicator is aborted. NEO_ERR_UNSUPPORTED:
             compiled without NEO_COMM_NCCL, host has a virtual clock, or two ranks share a GPU. */
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_create_nccl(neo_comm *host, int device, void *stream,
                                                          neo_comm **comm);
/* neo_comm_destroy: NULL is allowed. Waits for what is in flight, unless the group has failed; for
   calls over NCCL that a recorded step passes, too: if they do not come in time, the step fails
   where it is waited for. Not a collective: the other ranks see a rank that left only if they wait
   for it. The group that a rank's function was given is left alone, with a warning. */
NEO_API void neo_comm_destroy(neo_comm *comm);
/* This rank of the group, how many there are, its context, and what carries the messages. */
NEO_API int neo_comm_rank(const neo_comm *comm);
NEO_API int neo_comm_size(const neo_comm *comm);
NEO_API neo_ctx *neo_comm_ctx(const neo_comm *comm);
NEO_API neo_comm_backend neo_comm_get_backend(const neo_comm *comm);
/* neo_comm_node: the node of a rank of this group, counted from 0. neo_comm_world_rank: its rank in
   the group that the job started with (messages use these). */
NEO_API int neo_comm_node(const neo_comm *comm, int rank);
NEO_API int neo_comm_world_rank(const neo_comm *comm, int rank);

/* neo_comm_split: ranks that give the same color (>= 0) form a group, in order of (key, rank); a
   negative color gives NULL. Collective. neo_comm_split_nodes: local: the ranks of this rank's
   node; cross: the ranks at the same place in every node, one per node; NULL: not wanted (by all
   ranks or none).
   Errors   NEO_ERR_UNSUPPORTED (split_nodes): nodes of unequal size, or whose ranks are not
            consecutive. NEO_ERR_STATE: on MPI, two threads make groups at the same time. */
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_split(neo_comm *comm, int color, int key,
                                                    neo_comm **sub);
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_split_nodes(neo_comm *comm, neo_comm **local,
                                                          neo_comm **cross);

/* neo_comm_split_device: as neo_comm_split, a group whose buffers are in memory of the device of
   each rank's context (and so those of groups split from it), but for those of neo_comm_agree and
   neo_comm_group. The calls and their bits are the same. Of a group over NCCL it is neo_comm_split.
   Order     a call begins when all that was called on the context's device before it is done; with
             a ticket it returns before, and the device goes on with what is called meanwhile. Over
             MPI, which moves what is there, a step that is recorded for a graph runs first. Over
             threads and NCCL it passes a call: no host waits, and its result is there for the
             step's later calls, or for all when it is over. A rank's error in its step then comes
             as neo_cuda_graph_begin says, on the others that heard of it as NEO_ERR_PEER; over
             NCCL also that of ranks that do not come within timeout_ms of the host's wait for the
             step. There all ranks record a step or none (NEO_ERR_DIVERGED).
   Transfers threads: copies from device to device. MPI: a CUDA-aware one gets device memory, any
             other pinned memory, in pieces that are copied.
   Sums      are made on the device; with more than 256 subtrees of leaves: NEO_ERR_UNSUPPORTED.
   Memory    neo_comm_device_bytes, on the device and pinned, besides neo_comm_workspace_bytes.
   Rows      on a narrow wire are coded on the device, their workspace is in its memory, and
             neo_rows.stats is NULL (NEO_ERR_UNSUPPORTED).
   Not here  gather_samples of host memory: NEO_ERR_UNSUPPORTED.
   Errors    NEO_ERR_ARG: a rank's context has no device; the others get NEO_ERR_MEMORY. Those of
             neo_comm_split. NEO_ERR_DEVICE in a call, or the error of the step that the device
             records and runs for it (neo_cuda_graph_begin): the group is then broken.
   neo_comm_place: where the buffers of a group are. neo_comm_host: the group below one over NCCL,
   for numbers on the host, which lives as long; any other group itself. */
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_split_device(neo_comm *comm, int color, int key,
                                                           neo_comm **sub);
NEO_API neo_place neo_comm_place(const neo_comm *comm);
NEO_API neo_comm *neo_comm_host(neo_comm *comm);
NEO_API size_t neo_comm_device_bytes(const neo_comm_desc *desc, int ranks,
                                     neo_comm_backend backend);

/* neo_comm_time_ns: the clock of the group: neo_time_ns, or with neo_comm_desc.virtual_clock the
   simulated time of the job, from 0 on. neo_comm_sleep: take ns of it, as a computation would.
   Virtual   Time stands still while any rank computes, and when all wait it jumps to the next
             moment at which one goes on: a message arrives by the link model, neo_comm_sleep ends,
             a timeout strikes (after all else at that moment). So waiting takes no real time, and
             times, timeouts and neo_comm_stats are the same in every run, on any machine.
                 desc.virtual_clock = 1;
                 desc.link[NEO_LEVEL_CROSS] = (neo_link){.latency_us = 20, .bandwidth = 10e9};
             While a rank waits by means of its own (a lock, a loop of neo_comm_test without a
             sleep) no time passes. Only its own thread calls. Not with _input, NCCL and MPI. */
NEO_API int64_t neo_comm_time_ns(const neo_comm *comm);
NEO_API void neo_comm_sleep(neo_comm *comm, int64_t ns);

/* neo_comm_workspace_bytes: exactly what a group of `ranks` takes from each rank's context; NCCL:
   beside its copy of the host group, which takes what a group of that backend does. 0: no such
   group, or its backend is not compiled in. */
NEO_API size_t neo_comm_workspace_bytes(const neo_comm_desc *desc, int ranks,
                                        neo_comm_backend backend);

/* ---------------------------------------------------------------------------
   >>comm-work

   With ticket == NULL a call blocks. Else it starts and gives a ticket; the operations of a group
   run one after another, in order, on a thread of the group's own, while the caller computes (with
   the context of the rank too). A blocking call waits for those before it.
   ------------------------------------------------------------------------ */
typedef int64_t neo_ticket; /* counts this rank's asynchronous calls on the group, from 0 */

/* neo_comm_wait: until this operation (and so all before it) is done; NEO_OK if it went well, even
   if the group has broken since. neo_comm_wait_all: all of them, and the group works.
   neo_comm_test: *done says whether, without waiting. Any number of times for a ticket.
   Errors   those of the operation, or of an earlier one. */
NEO_API neo_status neo_comm_wait(neo_comm *comm, neo_ticket ticket);
NEO_API neo_status neo_comm_wait_all(neo_comm *comm);
NEO_API neo_status neo_comm_test(neo_comm *comm, neo_ticket ticket, int *done);

/* ---------------------------------------------------------------------------
   >>comm-faults

   When a rank does not answer within the timeout, has left, or makes another call than its peers,
   every rank that waits gets one of
       NEO_ERR_TIMEOUT    a peer did not come in time (over MPI also: its process was lost)
       NEO_ERR_PEER       a peer has left or given up: its function returned, or MPI lost it
       NEO_ERR_DIVERGED   a peer called another operation, or with another size, dtype or label
   and a message that names rank, peer, operation (with the count of all parts) and sequence number.
   After a timeout over MPI the peer may itself be waiting for the lost one; threads look which rank
   waits for nobody, or, where all wait for each other, which is in another call, and in which (two
   groups that ranks call in opposite orders). The group is then broken: every later call on it
   returns the same error. Outputs of the failed call are undefined; over MPI its buffers must stay
   until the process ends, as a message may still arrive. An NEO_ERR_ARG breaks nothing and takes no
   number: the call can be made again.
   ------------------------------------------------------------------------ */
/* neo_comm_status: NEO_OK while the group works, else what broke it (and sets neo_last_error). */
NEO_API neo_status neo_comm_status(neo_comm *comm);
/* neo_comm_label: the next call of this rank on the group (also a send or recv; with a ticket too)
   is about `label`, and that of its peers must be: another label, or none, is NEO_ERR_DIVERGED.
   Messages name it: "all_gather #12 (300 f32) of 'h.3'". So calls that look alike and are about
   different things (which layer's parameters are gathered?) are told apart.
   label: copied; of more than 39 bytes the middle is shown, and compared, as a hash. NULL or "":
   none. A call that is refused (NEO_ERR_ARG) leaves it to the next; neo_comm_agree and _split drop
   it. No byte more is sent: headers have room for it. */
NEO_API void neo_comm_label(neo_comm *comm, const char *label);
/* neo_comm_abort: break the group on purpose, so that no rank waits for this one: a rank that
   cannot go on (its disk is full) calls it and returns. message: shown on the others. */
NEO_API void neo_comm_abort(neo_comm *comm, const char *message);
/* neo_comm_rebuild: after a fault, the ranks that are still there form a new group, in the old
   order, without those that do not call it within the timeout. Groups made from the broken one are
   made anew; repro_shards is spread over fewer ranks. These may have been at different steps, and
   what the failed call wrote is undefined: broadcast or load what must be equal. neo_comm_spawn
   still reports the lost rank's status.
   Errors   NEO_ERR_UNSUPPORTED: on MPI and NCCL. NEO_ERR_PEER: the others have gone on without this
            rank. NEO_ERR_STATE: the group is not broken, or this rank has rebuilt it already.
            NEO_ERR_MEMORY: the others go on without this rank. */
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_rebuild(neo_comm *broken, neo_comm **comm);

/* Faults on purpose, for tests of a trainer: what happens to this rank at the group's collective
   number `at` (counted from 0: the #n of messages). Threads backend; delays on MPI too. */
typedef enum neo_fault_kind {
    NEO_FAULT_NONE,
    NEO_FAULT_DELAY, /* it comes `ms` late */
    NEO_FAULT_DROP,  /* what it sends in this operation is lost */
    NEO_FAULT_KILL   /* it is lost: this call and all later ones give NEO_ERR_PEER */
} neo_fault_kind;
typedef struct neo_fault {
    neo_fault_kind kind;
    int64_t at;
    int ms;
} neo_fault;
NEO_API neo_status neo_comm_inject(neo_comm *comm, neo_fault fault);

/* ---------------------------------------------------------------------------
   >>comm-collectives

   W ranks, this one is r. `count` counts elements of dtype. Where an array of counts ([W], the same
   on all ranks unless said) is NULL, all parts have `count` elements; parts lie one after another
   in rank order. Sums of floats add in the order of the leaf tree over the ranks, each rounded to
   dtype (f8 is refused); integers add modulo 2^n. Max and min of floats: a NaN wins.
   Errors   NEO_ERR_ARG: a NULL buffer, a negative count, a root outside the group, overlap: at
            once, before anything is sent. Those of >>comm-faults.
   ------------------------------------------------------------------------ */
typedef enum neo_reduce { NEO_REDUCE_SUM, NEO_REDUCE_MAX, NEO_REDUCE_MIN } neo_reduce;

/* neo_comm_all_reduce: out [count] = the reduction of all in [count], on every rank. */
NEO_API neo_status neo_comm_all_reduce(neo_comm *comm, neo_reduce reduce, const void *in, void *out,
                                       int64_t count, neo_dtype dtype, neo_ticket *ticket);
/* neo_comm_reduce_scatter: part r of the reduction. in [all parts], out [part r]. */
NEO_API neo_status neo_comm_reduce_scatter(neo_comm *comm, neo_reduce reduce, const void *in,
                                           void *out, int64_t count, const int64_t *counts,
                                           neo_dtype dtype, neo_ticket *ticket);
/* neo_comm_all_gather: out [all parts]: part p is rank p's in. */
NEO_API neo_status neo_comm_all_gather(neo_comm *comm, const void *in, void *out, int64_t count,
                                       const int64_t *counts, neo_dtype dtype, neo_ticket *ticket);
/* neo_comm_all_to_all: part p of in goes to part r of rank p's out; W parts of count each.
   neo_comm_all_to_allv: in_counts [W]: elements to each rank; out_counts [W]: from each rank, where
   rank p's in_counts[r] must equal out_counts[p] here. */
NEO_API neo_status neo_comm_all_to_all(neo_comm *comm, const void *in, void *out, int64_t count,
                                       neo_dtype dtype, neo_ticket *ticket);
NEO_API neo_status neo_comm_all_to_allv(neo_comm *comm, const void *in, const int64_t *in_counts,
                                        void *out, const int64_t *out_counts, neo_dtype dtype,
                                        neo_ticket *ticket);
/* neo_comm_broadcast: data [count] of the root, to all. */
NEO_API neo_status neo_comm_broadcast(neo_comm *comm, void *data, int64_t count, neo_dtype dtype,
                                      int root, neo_ticket *ticket);
/* neo_comm_gather: all parts to the root's out; elsewhere out is not read. neo_comm_scatter: part r
   of the root's in; elsewhere in is not read. */
NEO_API neo_status neo_comm_gather(neo_comm *comm, const void *in, void *out, int64_t count,
                                   const int64_t *counts, neo_dtype dtype, int root,
                                   neo_ticket *ticket);
NEO_API neo_status neo_comm_scatter(neo_comm *comm, const void *in, void *out, int64_t count,
                                    const int64_t *counts, neo_dtype dtype, int root,
                                    neo_ticket *ticket);
/* neo_comm_send, neo_comm_recv: between two ranks, which count their messages by themselves. A send
   may wait for its recv, and the operations of a group run one after another, so two ranks that
   both send first wait for each other, with tickets too: use all_to_allv. */
NEO_API neo_status neo_comm_send(neo_comm *comm, const void *data, int64_t count, neo_dtype dtype,
                                 int peer, neo_ticket *ticket);
NEO_API neo_status neo_comm_recv(neo_comm *comm, void *data, int64_t count, neo_dtype dtype,
                                 int peer, neo_ticket *ticket);
/* neo_comm_barrier: returns when all ranks have called it. */
NEO_API neo_status neo_comm_barrier(neo_comm *comm, neo_ticket *ticket);

/* ---- sums over leaves ----
   A step computed over V leaves on W ranks gives each rank the leaves [r V/W, (r + 1) V/W); it
   computes a partial sum for each maximal subtree of the leaf tree inside that range (one, if V/W
   is a power of two; then the plain calls do the same) and hands them over in order.
   neo_comm_subtrees: these subtrees of rank r, as neo_leaves; returns how many (at most
   NEO_MAX_SUBTREES; none if V < W, where the sums below are refused on every rank). Samples of
   subtree t: neo_leaf_begin(batch, V, t.first) up to neo_leaf_begin(batch, V, t.first + t.count).
   Backward passes take it as their `leaves` (set rows_per_sample where a sample is several rows).
   pieces: their sums, one per subtree. The result has the bits of one rank with all V leaves. V =
   neo_ctx_repro_shards of the ranks' contexts must be at least W. f32, f16, bf16, integers. */
enum { NEO_MAX_SUBTREES = 24 };
NEO_API int neo_comm_subtrees(const neo_comm *comm, int rank, int64_t batch,
                              neo_leaves subtree[NEO_MAX_SUBTREES]);
NEO_API neo_status neo_comm_all_reduce_leaves(neo_comm *comm, const void *const *pieces, void *out,
                                              int64_t count, neo_dtype dtype, neo_ticket *ticket);
NEO_API neo_status neo_comm_reduce_scatter_leaves(neo_comm *comm, const void *const *pieces,
                                                  void *out, int64_t count, const int64_t *counts,
                                                  neo_dtype dtype, neo_ticket *ticket);

/* ---- two levels ----
   The same calls over a group whose nodes are equal: bytes between nodes are sent once per node and
   not once per rank. local, cross: of neo_comm_split_nodes. Blocking.
     all_reduce   inside the nodes a reduce-scatter, across them an all-reduce of the part, inside
                  an all-gather. With L ranks in a node and H nodes a rank sends 2 S c(L) inside and
                  2 (S/L) c(H) across. The same bits as the flat call if L is a power of two; else
                  it is refused (NEO_ERR_UNSUPPORTED) for float sums.
     all_to_all   inside by place in the node, then across: S c(L) inside, S c(H) across, in H - 1
                  messages instead of (H - 1) L. workspace: as large as in.
   in, out and workspace may not overlap (all_reduce: in == out may be). */
NEO_API neo_status neo_comm_all_reduce_2level(neo_comm *local, neo_comm *cross, neo_reduce reduce,
                                              const void *in, void *out, int64_t count,
                                              neo_dtype dtype);
NEO_API neo_status neo_comm_reduce_scatter_2level(neo_comm *local, neo_comm *cross,
                                                  neo_reduce reduce, const void *in, void *out,
                                                  int64_t count, neo_dtype dtype, void *workspace);
NEO_API neo_status neo_comm_all_to_all_2level(neo_comm *local, neo_comm *cross, const void *in,
                                              void *out, int64_t count, neo_dtype dtype,
                                              void *workspace);

/* ---------------------------------------------------------------------------
   >>comm-data

   A training loop over ranks: every rank reads its part of every batch (neo_reader_desc.rank), all
   agree on what came of it, and metrics see all samples in their order.
       status = neo_comm_agree(comm, neo_reader_next(reader, &batch));
   ------------------------------------------------------------------------ */
/* neo_comm_agree: one status for all ranks, out of what each brings. Collective.
       all NEO_OK                  NEO_OK
       all NEO_END                 NEO_END
       an error on some ranks      on every rank the status of the lowest of them; neo_last_error is
                                   that rank's, with "rank 2: " before it (its world rank), unless
                                   it begins with "rank "
       some NEO_OK, some NEO_END   NEO_ERR_DIVERGED: the message says which ranks have ended
   An agreed error breaks nothing: the group works as before. Operations in flight are waited for.
   Cost     8 bytes between each two ranks; an error one broadcast of 512 bytes more. Counted as
            all_gather and broadcast. On a group of devices it runs on the host group: control bytes
            of the next call.
   Errors   those of >>comm-faults: each rank has its own reason then; NEO_ERR_PEER where another
            gives up with an agreed error first: the message has both. */
NEO_API neo_status neo_comm_agree(neo_comm *comm, neo_status mine);
/* neo_comm_group: comm for neo_save, neo_load and neo_state_digest_group; valid as long as comm. */
NEO_API neo_group neo_comm_group(neo_comm *comm);

/* neo_comm_samples: of a batch over all ranks this rank holds the samples [*first, *first +
   *count): those of its leaves, as readers deal them out. V = neo_ctx_repro_shards must be that of
   the readers. Not collective.
   Errors   NEO_ERR_ARG: a NULL, batch is negative, V is less than the ranks; nothing is written. */
NEO_API neo_status neo_comm_samples(const neo_comm *comm, int64_t batch, int64_t *first,
                                    int64_t *count);
/* neo_comm_gather_samples: numbers per sample, of all samples of a batch in their order, at the
   root. in: of this rank's samples [neo_batch.size][cols]; out: at the root [batch][cols],
   elsewhere not read; batch: neo_batch.global_size. V: as for neo_comm_samples. Metrics over ranks
   are exactly those of one rank so: of every batch gather logits and labels at rank 0, and
       if (neo_comm_rank(comm) == 0) status = neo_metrics_update(metrics, logits, labels);
       status = neo_comm_agree(comm, status); */
NEO_API neo_status neo_comm_gather_samples(neo_comm *comm, const void *in, void *out, int64_t batch,
                                           int64_t cols, neo_dtype dtype, int root,
                                           neo_ticket *ticket);

/* Standard input for the readers of all ranks: rank 0's process has it (mpirun gives it to that
   one, and threads have one between them), and every rank gets the same bytes, so order, positions
   and errors are the same.
       neo_comm_input *input;
       status = neo_comm_input_open(comm, NULL, &input);
       desc.input = neo_comm_input_source(input);     and "-" among desc.paths
   A thread on each rank hands the bytes on, up to 1 MiB ahead of the reader, in a group of its own:
   neither the caller nor the reader waits for another rank in it. When one rank closes its input,
   or fails, the input of all ends behind the bytes that all have, with NEO_ERR_PEER: all may stop
   in mid-stream after the same batch, and nothing hangs when one stops alone. neo_comm_input_open:
   collective; it makes a group, which has an operation in flight until the input is closed (see
   RULES). path: of rank 0, where NULL is standard input; else a file or named pipe that only rank 0
   need have. neo_comm_input_close: after the reader, at any time, NULL too. Not collective: it
   waits only for the ranks' threads to notice (0.1 s, or the timeout if a process was lost). The
   mpirun of MPICH gives up when more than a pipe holds (64 KiB) waits on standard input: give it a
   named pipe.
   Errors   (open) NEO_ERR_UNSUPPORTED: a group of devices (use its host), a virtual clock, Windows,
            or MPI without MPI_THREAD_SERIALIZED. NEO_ERR_NOT_FOUND, NEO_ERR_IO: rank 0 cannot open
            path. NEO_ERR_MEMORY, NEO_ERR_SYSTEM; on all ranks. (of the reader) NEO_ERR_IO: rank 0
            cannot read; those of >>comm-faults. */
typedef struct neo_comm_input neo_comm_input;
NEO_API NEO__CHECK_UNUSED neo_status neo_comm_input_open(neo_comm *comm, const char *path,
                                                         neo_comm_input **input);
NEO_API neo_input neo_comm_input_source(neo_comm_input *input);
NEO_API void neo_comm_input_close(neo_comm_input *input);

/* ---------------------------------------------------------------------------
   >>comm-stats

   What this rank sent in this group, counted where the bytes leave: per operation and per level.
   ------------------------------------------------------------------------ */
typedef enum neo_comm_op {
    NEO_COMM_ALL_REDUCE,
    NEO_COMM_REDUCE_SCATTER,
    NEO_COMM_ALL_GATHER,
    NEO_COMM_ALL_TO_ALL,
    NEO_COMM_BROADCAST,
    NEO_COMM_GATHER,
    NEO_COMM_SCATTER,
    NEO_COMM_SEND, /* and recv */
    NEO_COMM_BARRIER,
    NEO_COMM_OP_COUNT
} neo_comm_op;
typedef struct neo_comm_counter {
    int64_t calls;
    int64_t time_ns;                   /* they ran; of asynchronous ones on the group's thread */
    int64_t bytes[NEO_LEVEL_COUNT];    /* of data sent */
    int64_t messages[NEO_LEVEL_COUNT]; /* of data sent */
    int64_t control_bytes;             /* headers, barriers; NCCL: the agreement on calls */
} neo_comm_counter;
typedef struct neo_comm_stats {
    neo_comm_counter op[NEO_COMM_OP_COUNT];
    int64_t wait_ns; /* the caller waited: in blocking calls and in neo_comm_wait (exposed time) */
} neo_comm_stats;
/* neo_comm_get_stats: since create or the last reset. Call it when nothing is in flight. */
NEO_API neo_comm_stats neo_comm_get_stats(const neo_comm *comm);
NEO_API void neo_comm_reset_stats(neo_comm *comm);
NEO_API const char *neo_comm_op_name(neo_comm_op op); /* "all_reduce" ... */

/* ---------------------------------------------------------------------------
   >>comm-rows

   Rows on a narrow wire (>>wire of neo.h): collectives over rows of `cols` f32, one after another
   in memory, coded on their way. The coded rows stand in workspace, neo_comm_rows_bytes of it,
   which belongs to the call until it is done; so do stats. A rank's own rows are rounded too.
   ------------------------------------------------------------------------ */
typedef struct neo_rows {
    neo_wire wire;
    int exponent;  /* rows are multiplied by 2^exponent on the wire (loss scaling) */
    int64_t cols;  /* required */
    void *workspace;
    size_t workspace_bytes;
    neo_wire_stats *stats; /* what coding this rank's rows did, added up; or NULL. NULL on a group
                              of devices: neo_wire_encode measures a copy of the rows on the host */
} neo_rows;
/* neo_comm_rows_bytes: workspace for one of the calls below: op NEO_COMM_ALL_TO_ALL,
   NEO_COMM_ALL_GATHER or NEO_COMM_REDUCE_SCATTER; in_rows, out_rows: of this rank's in and out. */
NEO_API size_t neo_comm_rows_bytes(const neo_comm *comm, neo_wire wire, int64_t cols,
                                   neo_comm_op op, int64_t in_rows, int64_t out_rows);
/* As neo_comm_all_to_allv, _all_gather and _reduce_scatter, with rows for elements. reduce_scatter
   adds the decoded rows of all ranks in f32, in the order of the tree over ranks.
   Bytes    those of the plain calls, with neo_wire_row_bytes for a row.
   Errors   those of the plain calls; NEO_ERR_ARG: no such wire, exponent, workspace too small. */
NEO_API neo_status neo_comm_all_to_allv_rows(neo_comm *comm, const neo_rows *rows, const float *in,
                                             const int64_t *in_rows, float *out,
                                             const int64_t *out_rows, neo_ticket *ticket);
NEO_API neo_status neo_comm_all_gather_rows(neo_comm *comm, const neo_rows *rows, const float *in,
                                            float *out, int64_t count, const int64_t *counts,
                                            neo_ticket *ticket);
NEO_API neo_status neo_comm_reduce_scatter_rows(neo_comm *comm, const neo_rows *rows,
                                                const float *in, float *out, int64_t count,
                                                const int64_t *counts, neo_ticket *ticket);
/* For neo_fsdp.h: rows that stay where they are, in groups of threads without a link model. lend:
   as all_to_allv, counted too, but nothing is copied: lent [W] is where each rank's part for this
   one begins, in that rank's memory. return: this rank is done with loan number `loan`, from 1 on,
   and with `wait` all are. bequeath: memory of this rank that is freed when all have left. */
NEO_API int neo__comm_lends(const neo_comm *comm);
NEO_API neo_status neo__comm_lend_rows(neo_comm *comm, char *rows, const int64_t *in_bytes,
                                       const int64_t *out_bytes, char **lent, neo_ticket *ticket);
NEO_API neo_status neo__comm_return(neo_comm *comm, int64_t loan, int wait);
NEO_API void neo__comm_bequeath(neo_comm *comm, void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif /* NEO_COMM_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC) || defined(NEO_COMM_IMPLEMENTATION)) &&    \
    !defined(NEO__COMM_IMPLEMENTED)
#define NEO__COMM_IMPLEMENTED
#include "neo.h" /* its shared part, if it was included without an implementation before */

#if defined(NEO_COMM_MPI)
#include <mpi.h> /* outside extern "C": it may hold C++ */
#if defined(OPEN_MPI) && defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h> /* does it take device memory? */
#endif
#endif
#endif
#if defined(NEO_COMM_NCCL)
#include <cuda_runtime_api.h>
#include <nccl.h>
#endif
#if !defined(_WIN32)
#include <fcntl.h>
#include <poll.h>
#endif

NEO_EXACT_BEGIN
NEO__HOST_BEGIN
NEO__COLD_BEGIN

enum {
    NEO__LEFT = -1, /* pseudo-root: this rank's function has returned */
    NEO__COMM_MAX_RANKS = 4096,
    NEO__COMM_MESSAGE = 400,
    NEO__COMM_LABEL = 40,     /* with its NUL */
    NEO__COMM_LOOKS = 150,    /* before a rank sleeps, if all ranks have a core */
    NEO__COMM_YIELDS = 100,   /* of these: they give the core away, the first ones only pause */
    NEO__COMM_FEW_LOOKS = 20, /* if not; all yield */
    NEO__COMM_NAP_NS = 20000, /* between looks at MPI and NCCL */
    NEO__COMM_LOOK_NS = 500000000 /* between looks at the clock, at most */
};
#ifndef NEO__COMM_DEVICE_PIECE
#define NEO__COMM_DEVICE_PIECE ((size_t)32 << 20) /* of a sum, see neo_comm_desc.segment_bytes */
#endif
#ifndef NEO__LAUNCH_ORDER
#define NEO__LAUNCH_ORDER 1 /* 0, in a test: groups over NCCL launch as they come */
#endif
/* Another thread's number, with all that it wrote before. */
#define NEO__SEE(atomic) __atomic_load_n(&(atomic), __ATOMIC_ACQUIRE)
/* ---------------------------------------------------------------------------
   >>impl-comm-types

   An operation (neo__work) is a few rounds of transfers with peers (neo__xfer) and arithmetic
   between them. What it does is written once, in >>impl-collectives; a transport moves the
   transfers: see >>impl-threads and >>impl-mpi. Every message between two ranks carries the call it
   belongs to (neo__call), so that ranks which diverge find out at the first message.
   ------------------------------------------------------------------------ */
/* As peers must see it too, byte for byte. */
typedef struct neo__call {
    int64_t sequence; /* of the group's collectives; a send's: of its pair */
    int64_t count;    /* elements; 0 where ranks may differ */
    int32_t op, dtype, reduce;
    int32_t root; /* of a sum over leaves of which a rank has several subtrees: leaves */
    int32_t wire, exponent; /* of rows: 1 + wire; else 0 */
    uint64_t past; /* NCCL: a hash of calls not agreed on; last bit: a recorded step passes it */
    char label[NEO__COMM_LABEL]; /* zeros behind its end */
} neo__call;
NEO__STATIC_ASSERT(sizeof(neo__call) == 48 + NEO__COMM_LABEL, "calls are compared byte for byte");
/* The head of the first message of a call between two ranks; its data follow. */
typedef struct neo__header {
    neo__call call;
    int64_t bytes; /* of all data that this call sends this way */
} neo__header;
typedef struct neo__xfer {
    int peer, send;
    int first; /* the first of this call between the two: it carries the call */
    int view;  /* receive: the sender's memory will do, `data` is scratch; 2: for longer */
    int done;
    void *data;
    size_t bytes;
    size_t whole;     /* of the first: all that this call sends this way */
    const void *from; /* of a finished view: where the bytes are, until it is released */
    uint64_t index;   /* threads: number of the message in its ring; NCCL: of its group */
    struct neo__ring *ring;
    struct neo__message *message;
    int copied;       /* threads: only the link model holds it back */
    int arrived;      /* threads: it is at the receiver's link, which may still be busy */
    int held; /* MPI: a receive of data, not posted before the call is agreed to; NCCL: the word
                 that says stop goes with it */
    size_t posted;    /* MPI: bytes of data for which there is, or was, a request */
    int started;      /* MPI: its requests are valid */
    size_t staged;    /* MPI: bytes of device memory whose request is on pinned memory */
#if defined(NEO_COMM_MPI)
    MPI_Request request[3]; /* of the header, of whole blocks, of the rest */
#endif
} neo__xfer;
typedef struct neo__work {
    const char *function; /* the public call */
    neo__call call;
    const void *in;
    void *out;
    int64_t count; /* of one part, where counts are NULL */
    int64_t in_count, out_count; /* elements of this rank's in and out */
    int64_t at; /* where its part begins in the one that has all parts */
    size_t each;   /* bytes of an element; of a coded row */
    neo_rows rows; /* cols 0: no rows */
    const int64_t *in_counts, *out_counts; /* [W], or NULL */
    char **lent;                           /* [W]: all_to_all only says where its parts are */
    int peer, receives;                    /* of send, recv */
    int64_t issued_ns, ticket;             /* for a trace; ticket -1: it blocks */
    int pieces; /* of a sum over leaves; 0: `in` is the one piece */
    const void *piece[NEO_MAX_SUBTREES];
    neo_place place; /* of the buffers */
    int64_t *slot_counts; /* [2 W]: the slot's room for counts */
    void *ready; /* the slot's mark in what the device was called to do before; NULL: no device */
    void *stream, *stop; /* of exchanges that a recorded step passes, and the word that says that it
                            stops, see >>impl-comm-device; or NULL */
    int64_t turn; /* NCCL: its place in the device's launches */
} neo__work;
typedef struct neo__ballot neo__ballot; /* a rank's word about itself when a group is split */
/* How a backend moves transfers. Those after `drop` are of NCCL alone, NULL elsewhere. */
typedef struct neo__transport {
    neo_comm_backend backend;
    /* carve: its own part of the group's block. */
    void (*carve)(neo_comm *comm, neo__carve *at);
    int (*takes_devices)(void); /* messages may be in a device's memory; NULL: they may */
    /* start: begin a transfer. finish: wait for all of these. release: a finished view is not read
       any more; NULL: receives copy. All give NEO_OK or what broke the group. */
    neo_status (*start)(neo_comm *comm, const neo__call *call, neo__xfer *x);
    neo_status (*finish)(neo_comm *comm, const neo__call *call, neo__xfer *x, int count);
    void (*release)(neo_comm *comm, neo__xfer *x);
    /* tell: the peers must know that this rank broke the group. heard: has one said so? */
    void (*tell)(neo_comm *comm);
    int (*heard)(neo_comm *comm);
    /* member: this rank's part of a new group, exchanged as a number; join: take the others' parts.
       leave: this rank takes no part any more; drop: nor does it look at the others' parts. */
    neo_status (*member)(neo_comm *sub, neo_comm *parent, int64_t *token);
    neo_status (*join)(neo_comm *sub, const neo__ballot *members);
    void (*leave)(neo_comm *comm);
    void (*drop)(neo_comm *comm);
    /* agree: do all ranks make this call? (messages carry no call then). come: wait for the user's
       stream; then copy may run outside of a call. copy: inside this rank's device. combine: as
       neo__device_combine. Both only begin, as finish does: settle waits for all of a call. split:
       neo_comm_split, in place of member and join; *sub is NULL. reduce: a sum in an order of the
       library's own; *done: it takes this one. */
    neo_status (*agree)(neo_comm *comm, const neo__work *w);
    neo_status (*come)(neo_comm *comm);
    neo_status (*copy)(neo_comm *comm, void *to, const void *from, size_t bytes);
    neo_status (*combine)(neo_comm *comm, const neo__combine_call *sum);
    neo_status (*split)(neo_comm *comm, int color, int key, neo_comm **sub);
    neo_status (*settle)(neo_comm *comm);
    neo_status (*reduce)(neo_comm *comm, const neo__work *w, int *done);
} neo__transport;
/* Operations [finished, issued) wait or run, on a thread that starts with the first of them. */
typedef struct neo__comm_queue {
    neo__cond changed;
    neo__thread thread;
    int runs, quit, ended, serves; /* the thread; serves: it makes a call, and nobody else does */
    int inline_only; /* MPI serves the user's thread alone: asynchronous calls block */
    int64_t issued, finished, succeeded;
    int64_t passed; /* 1 + the first call that passed, for which no later call waits yet; or 0 */
    neo__work *slot; /* [desc.queue_length], and one for calls that block */
} neo__comm_queue;
/* The first reason why the group does not work. */
typedef struct neo__comm_failure {
    neo_status status;
    char message[NEO__COMM_MESSAGE];
    int broken; /* atomic */
    int lost, rebuilt;
    int unfinished; /* MPI may still use the group's memory: it is never freed */
    neo_fault injected;
} neo__comm_failure;
/* The leaf tree over the ranks. */
typedef struct neo__comm_tree {
    int shards;            /* V */
    int *pieces_of;        /* [size + 1]: subtrees before rank p's */
    int *leaves;           /* [pieces_of[size]]: of each subtree */
    int most;              /* subtrees of a rank */
    int *ones, *identity;  /* [size], [size + 1]: the same where every rank has one piece */
    int one_each;          /* every rank has one subtree, and all are of one size */
    int node_size;         /* ranks of a node, of all if nodes differ; 0: not known yet */
} neo__comm_tree;
/* Memory of the operation that runs. */
typedef struct neo__comm_scratch {
    neo_place place;    /* of its buffers */
    int64_t *offset;    /* [2 (size + 1)]: where parts begin */
    const void **piece; /* [pieces]: of all ranks */
    int pieces;
    neo__xfer *xfer;    /* [xfer_count] */
    int xfer_count;
    size_t segment_bytes[2]; /* in memory of the host, of devices */
    char *segments;          /* MPI: [2][segment_bytes] */
    /* of devices: see >>impl-comm-device */
    char *device, *staging; /* on the device: [2][segment_bytes]; pinned:
                               [2][stage_slots][stage_bytes] */
    size_t stage_bytes;     /* 0: nothing is staged */
    int stage_slots;
    int direct; /* MPI takes device memory */
    int passes; /* recorded steps pass calls */
    void *stream, *stop, *mark[3]; /* the call's; marks: of each half of xfer; of calls' ends */
} neo__comm_scratch;
/* Numbers and label of the next call. */
typedef struct neo__comm_next {
    int64_t sequence;       /* of collectives */
    int64_t *pair_sequence; /* [2 size]: sent to, received from */
    char label[NEO__COMM_LABEL];
    int on_host; /* its numbers are there, whatever the place of the group's buffers */
} neo__comm_next;
/* The threads backend. */
typedef struct neo__comm_threads {
    struct neo__job *job;
    struct neo__seat **seat; /* [size] */
    int ring_length;
    int looks; /* before a rank sleeps */
    int joined;
} neo__comm_threads;

struct neo_comm {
    neo_ctx *ctx;
    neo__live live;
    const neo__transport *transport;
    neo_comm_desc desc;
    size_t bytes; /* of this block */
    int rank, size;
    int *world, *node; /* [size]: world rank and node of each rank */
    neo_place place;   /* of the buffers of coming calls */
    int lent;          /* the job ends it, not its user */
    neo__clock *clock; /* NULL: the real one */
    int patient;       /* atomic: waits take up to ten times as long */
    neo__mutex lock;   /* of queue and failure */
    neo__comm_queue queue;
    neo__comm_failure failure;
    neo__comm_tree tree;
    neo__comm_scratch scratch;
    neo__comm_next next;
    struct neo_comm *parent, *child, *sibling; /* by splits, while both are there */
    neo__comm_threads threads;
    struct neo__mpi *mpi;
    struct neo__nccl *nccl;
    struct neo_comm *host; /* of NCCL: the group of threads or processes beneath; else NULL */
    neo_ticket trace_waited; /* operations before it were waited for in the trace */
    int traced, trace_group; /* the context's trace that knows it, and by which number */
    neo_comm_stats stats;
};

/* ---------------------------------------------------------------------------
   >>impl-comm-core

   Errors that break the group, the queue, the checks of arguments.
   ------------------------------------------------------------------------ */
static const char *const neo__op_names[NEO_COMM_OP_COUNT] = {
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast",
    "gather",     "scatter",        "send",       "barrier"};
/* "all_reduce #12 (1000 f32, sum) of 'h.3'" */
typedef struct neo__call_text {
    char text[150];
} neo__call_text;
static neo__call_text neo__call_name(const neo__call *call) {
    static const char *const reduces[] = {"sum", "max", "min"};
    neo__call_text t;
    char *to = t.text;
    const size_t room = sizeof t.text;
    int known = call->op >= 0 && call->op < (int)NEO_COMM_OP_COUNT && call->dtype >= 0 &&
                call->dtype < (int)NEO_DTYPE_COUNT;
    t.text[0] = 0;
    if (!known) {
        neo__append(to, room, "no call of neo");
        return t;
    }
    const char *dtype = neo_dtype_name((neo_dtype)call->dtype);
    int uneven = call->op == (int)NEO_COMM_ALL_TO_ALL && call->count < 0;
    const char *more = call->op == (int)NEO_COMM_SEND ? "/recv" : uneven ? "v" : "";
    neo__append(to, room, "%s%s #%" PRId64, neo__op_names[call->op], more, call->sequence);
    if (uneven) neo__append(to, room, " (%s)", dtype);
    else if (call->op <= (int)NEO_COMM_REDUCE_SCATTER)
        neo__append(to, room, " (%" PRId64 " %s, %s)", call->count, dtype,
                    reduces[call->reduce % 3]);
    else if (call->op == (int)NEO_COMM_BROADCAST || call->op == (int)NEO_COMM_GATHER ||
             call->op == (int)NEO_COMM_SCATTER)
        neo__append(to, room, " (%" PRId64 " %s, root %d)", call->count, dtype, (int)call->root);
    else if (call->op != (int)NEO_COMM_BARRIER)
        neo__append(to, room, " (%" PRId64 " %s)", call->count, dtype);
    if (call->op <= (int)NEO_COMM_REDUCE_SCATTER && call->root > 0)
        neo__append(to, room, " over %d leaves", (int)call->root);
    if (call->wire > 0 && call->wire <= (int)NEO_WIRE_COUNT)
        neo__append(to, room, " as %s", neo_wire_name((neo_wire)(call->wire - 1)));
    if (call->label[0])
        neo__append(to, room, " of '%.*s'", (int)NEO__COMM_LABEL - 1, call->label);
    if (call->past >> 32)
        neo__append(to, room, " after calls %08x", (unsigned)(call->past >> 32));
    if (call->past & 1) neo__append(to, room, ", recorded");
    return t;
}
/* The reason why the group is broken, if it is the first; from either of its threads. */
static int neo__comm_mark(neo_comm *comm, neo_status status, const char *message) {
    neo__mutex_lock(&comm->lock);
    int first = !comm->failure.broken;
    if (first) {
        comm->failure.status = status;
        snprintf(comm->failure.message, sizeof comm->failure.message, "%s", message);
        __atomic_store_n(&comm->failure.broken, 1, __ATOMIC_RELEASE);
    }
    neo__mutex_unlock(&comm->lock);
    return first;
}
/* The reason, for the caller. */
static neo_status neo__comm_failed(const neo_comm *c) {
    return neo_fail(c->failure.status, "%s", c->failure.message);
}
/* Break the group: the first reason stands, here and on the peers. call: NULL, or named in it. */
NEO__PRINTF(4, 5)
static neo_status neo__comm_break(neo_comm *c, const neo__call *call, neo_status status,
                                  const char *format, ...) {
    char text[NEO__COMM_MESSAGE];
    int at = 0;
    va_list args;
    if (call)
        at = snprintf(text, sizeof text, "rank %d: %s: ", c->world[c->rank],
                      neo__call_name(call).text);
    va_start(args, format);
    vsnprintf(text + at, sizeof text - (size_t)at, format, args);
    va_end(args);
    if (!c->transport->heard(c) && neo__comm_mark(c, status, text)) c->transport->tell(c);
    return neo__comm_failed(c);
}
static int neo__comm_is_broken(const neo_comm *c) { return NEO__SEE(c->failure.broken); }
static int neo__comm_over(neo_comm *c) { return neo__comm_is_broken(c) || c->transport->heard(c); }
static neo_status neo__comm_check(neo_comm *comm, const char *function) {
    NEO__CHECK_LIVE(comm, function, "comm");
    return neo__comm_over(comm) ? neo__comm_failed(comm) : NEO_OK;
}
/* Between looks at MPI and NCCL: after `looks` turns without news a rank sleeps. */
NEO__UNUSED static void neo__comm_nap(int turns, int looks) {
    if (turns < looks) neo__thread_yield();
    else neo__thread_sleep(NEO__COMM_NAP_NS);
}
static neo_status neo__work_run(neo_comm *comm, neo__work *w); /* >>impl-collectives */
/* >>impl-comm-device */
static neo_status neo__comm_device_did(neo_comm *c, const neo__call *call, neo_status status);
static neo_status neo__comm_behind(neo_comm *c, const neo__call *call, int what, void *event);
static neo_status neo__comm_device_make(neo_comm *comm);
static void neo__comm_device_free(neo_comm *comm);

/* The injected fault that strikes in this call. */
static neo_fault_kind neo__comm_fault(const neo_comm *c, const neo__call *call) {
    const neo_fault *fault = &c->failure.injected;
    return fault->at == call->sequence && call->op != (int)NEO_COMM_SEND ? fault->kind
                                                                         : NEO_FAULT_NONE;
}
/* ---- what a trace sees ---- */
/* The world ranks of a group, as "0-3,8". */
static void neo__comm_ranks(const neo_comm *comm, char *text, size_t room) {
    for (int p = 0, end; p < comm->size; p = end) {
        for (end = p + 1; end < comm->size && comm->world[end] == comm->world[end - 1] + 1;) end++;
        const int full = strlen(text) + 12 > room;
        neo__append(text, room, full ? ".." : end > p + 1 ? "%s%d-%d" : "%s%d", p ? "," : "",
                    comm->world[p], comm->world[end - 1]);
        if (full) return;
    }
}
NEO__HOT_BEGIN
/* The context's trace, which knows the group from here on; 0: there is none. */
static int neo__comm_traced(neo_comm *comm) {
    const int trace = neo__ctx_traced(comm->ctx);
    char ranks[40] = "";
    if (!trace || comm->traced == trace) return trace;
    neo__comm_ranks(comm, ranks, sizeof ranks);
    comm->trace_group = neo__trace_group(comm->ctx, ranks);
    comm->traced = trace;
    return trace;
}
/* An operation that has run; before: what was counted of its kind before. */
static void neo__comm_trace(neo_comm *comm, const neo__work *work, int64_t began,
                            const neo_comm_counter *before) {
    const neo__call *call = &work->call;
    const neo_comm_counter *after = &comm->stats.op[call->op];
    NEO__ZERO(neo__span, span);
    span.name = call->op == (int)NEO_COMM_SEND && work->receives ? "recv" : neo__op_names[call->op];
    span.begin_ns = began;
    span.end_ns = neo_time_ns();
    span.issued_ns = work->issued_ns;
    span.number = call->sequence;
    span.ticket = work->ticket;
    span.sent[0] = after->bytes[NEO_LEVEL_LOCAL] - before->bytes[NEO_LEVEL_LOCAL];
    span.sent[1] = after->bytes[NEO_LEVEL_CROSS] - before->bytes[NEO_LEVEL_CROSS];
    span.sent[2] = after->control_bytes - before->control_bytes;
    span.buffer_bytes = NEO__MAX(work->in_count, work->out_count) * (int64_t)work->each;
    span.kind = (int16_t)NEO__SPAN_SENDS;
    span.op = (int16_t)call->op;
    span.group = (int16_t)comm->trace_group;
    span.peer = call->op == (int)NEO_COMM_SEND ? comm->world[work->peer] : -1;
    memcpy(span.label, call->label, sizeof span.label);
    neo__trace_add(comm->ctx, &span);
}
static void neo__comm_trace_wait(neo_comm *comm, int64_t began, neo_ticket ticket) {
    NEO__ZERO(neo__span, span);
    if (!neo__comm_traced(comm)) return;
    span.name = "wait";
    span.begin_ns = began;
    span.end_ns = neo_time_ns();
    span.number = -1;
    span.ticket = ticket;
    span.kind = (int16_t)NEO__SPAN_WAIT;
    span.group = (int16_t)comm->trace_group;
    comm->trace_waited = NEO__MAX(comm->trace_waited, ticket + 1);
    neo__trace_add(comm->ctx, &span);
}
static neo_status neo__comm_begin(neo_comm *comm, neo__work *work) {
    NEO__TRY(neo__comm_check(comm, "neo_comm"));
    const neo_fault_kind fault = neo__comm_fault(comm, &work->call);
    if (fault == NEO_FAULT_DELAY)
        neo_comm_sleep(comm, (int64_t)comm->failure.injected.ms * 1000000);
    if (fault == NEO_FAULT_KILL) {
        char text[NEO__COMM_MESSAGE];
        snprintf(text, sizeof text, "rank %d: lost on purpose at %s", comm->world[comm->rank],
                 neo__call_name(&work->call).text);
        comm->failure.lost = 1;
        (void)neo__comm_mark(comm, NEO_ERR_PEER, text);
        comm->transport->leave(comm);
        return neo__comm_failed(comm);
    }
    comm->scratch.place = work->place;
    comm->scratch.stream = work->stream;
    comm->scratch.stop = work->stop;
    if (comm->transport->agree) return comm->transport->agree(comm, work);
    if (!work->ready || work->place == NEO_HOST) return NEO_OK;
    /* its device becomes the thread's current one, as MPI may want it */
    if (work->stream)
        return neo__comm_behind(comm, &work->call, NEO__ORDER_MOVES_WAIT, work->ready);
    return neo__comm_device_did(comm, &work->call, neo__event_wait(comm->ctx, work->ready));
}
/* Over NCCL a call launches when its turn on the device has come, and the next one then does while
   this one goes on: see >>impl-nccl. A call that fails passes its turn on, too. */
static neo_status neo__comm_execute(neo_comm *comm, neo__work *work) {
    int64_t began = neo__clock_now(comm->clock);
    const int traced = work->issued_ns != 0;
    const int64_t began_real = traced ? neo_time_ns() : 0;
    const neo_comm_counter before = comm->stats.op[work->call.op];
    int64_t *done = comm->nccl && NEO__LAUNCH_ORDER ? &neo__ctx_launches(comm->ctx)->done : NULL;
    for (int turns = 0; done && NEO__SEE(*done) != work->turn; turns++)
        neo__comm_nap(turns, NEO__COMM_LOOKS);
    neo_status status = neo__comm_begin(comm, work);
    if (comm->failure.lost) return status;
    if (status == NEO_OK) status = neo__work_run(comm, work);
    if (done) __atomic_store_n(done, work->turn + 1, __ATOMIC_RELEASE);
    if (status == NEO_OK && comm->transport->settle) status = comm->transport->settle(comm);
    if (status == NEO_OK && work->stream)
        status = neo__comm_behind(comm, &work->call, NEO__ORDER_MOVES, comm->scratch.mark[2]);
    neo_comm_counter *counter = &comm->stats.op[work->call.op];
    counter->calls++;
    counter->time_ns += neo__clock_now(comm->clock) - began;
    if (traced) neo__comm_trace(comm, work, began_real, &before);
    return status;
}
/* ---- the queue ---- */
static void neo__work_done(neo_comm *comm, const neo__work *work, neo_status status) {
    comm->queue.finished++;
    if (work->stream && !comm->queue.passed) comm->queue.passed = comm->queue.finished;
    comm->queue.succeeded += status == NEO_OK;
}
static void neo__comm_main(void *arg) {
    neo_comm *comm = (neo_comm *)arg;
    neo__mutex_lock(&comm->lock);
    for (;;) {
        while (comm->queue.finished == comm->queue.issued && !comm->queue.quit)
            (void)neo__clock_wait(comm->clock, &comm->queue.changed, &comm->lock, 0, 0);
        if (comm->queue.finished == comm->queue.issued) break;
        neo__work *w = &comm->queue.slot[comm->queue.finished % comm->desc.queue_length];
        comm->queue.serves = 1;
        neo__mutex_unlock(&comm->lock);
        neo_status status = neo__comm_execute(comm, w); /* a failure stays in comm->failure */
        neo__mutex_lock(&comm->lock);
        comm->queue.serves = 0;
        neo__work_done(comm, w, status);
        neo__clock_wake(comm->clock, &comm->queue.changed);
    }
    comm->queue.ended = 1;
    neo__clock_wake(comm->clock, &comm->queue.changed);
    neo__mutex_unlock(&comm->lock);
    neo__clock_leave(comm->clock);
}
static neo_status neo__comm_start_thread(neo_comm *comm) {
    neo__clock_enter(comm->clock);
    comm->queue.runs = neo__thread_create(&comm->queue.thread, neo__comm_main, comm);
    if (comm->queue.runs) return NEO_OK;
    neo__clock_leave(comm->clock);
    return neo_fail(NEO_ERR_SYSTEM, "neo_comm: cannot start a thread: %s", strerror(errno));
}
/* The device's next calls come behind what passed. */
static neo_status neo__comm_passed(neo_comm *c) {
    const neo_status status = neo__device_order(c->ctx, NEO__ORDER_WAIT, c->scratch.mark[2], 0);
    return status == NEO_OK && c->nccl ? neo__comm_check(c, "neo_comm") : status;
}
/* Operations before `end` are done; NEO_OK: well, whatever has broken the group since. */
static neo_status neo__comm_drain(neo_comm *comm, int64_t end) {
    const int64_t began_real = neo__ctx_traced(comm->ctx) ? neo_time_ns() : 0;
    neo__mutex_lock(&comm->lock);
    const int waits = comm->queue.finished < end;
    const int64_t began = waits ? neo__clock_now(comm->clock) : 0;
    while (comm->queue.finished < end)
        (void)neo__clock_wait(comm->clock, &comm->queue.changed, &comm->lock, 0, 0);
    const int64_t succeeded = comm->queue.succeeded;
    const int passed = comm->queue.passed && comm->queue.passed <= end;
    if (passed) comm->queue.passed = 0;
    neo__mutex_unlock(&comm->lock);
    if (waits) comm->stats.wait_ns += neo__clock_now(comm->clock) - began;
    if (began_real && (waits || end > comm->trace_waited))
        neo__comm_trace_wait(comm, began_real, end - 1);
    if (succeeded < end) return neo__comm_check(comm, "neo_comm");
    return passed ? neo__comm_passed(comm) : NEO_OK;
}
/* Room for the counts of a call made inside neo: [size], free between calls. */
static int64_t *neo__comm_counts(const neo_comm *c) {
    return c->queue.slot[c->desc.queue_length].slot_counts + c->size;
}
/* The place of the next operation, once it is free. */
static neo_status neo__work_slot(neo_comm *comm, int async, neo__work **slot) {
    neo__comm_queue *q = &comm->queue;
    const int length = comm->desc.queue_length;
    if (async && !q->runs && !q->inline_only) NEO__TRY(neo__comm_start_thread(comm));
    *slot = &q->slot[async ? q->issued % length : length];
    return neo__comm_drain(comm, async ? q->issued - length + 1 : q->issued);
}
/* Fill the slot with a copy; the call takes the next number and the label. */
static void neo__work_place(neo_comm *comm, neo__work *slot, const neo__work *work) {
    const size_t bytes = (size_t)comm->size * sizeof(int64_t);
    const int pair = work->call.op == (int)NEO_COMM_SEND;
    int64_t *counts = slot->slot_counts,
            *pairs = comm->next.pair_sequence + (work->receives ? comm->size : 0);
    void *ready = slot->ready;
    if (work->in_counts) memmove(counts, work->in_counts, bytes);
    if (work->out_counts) memmove(counts + comm->size, work->out_counts, bytes);
    *slot = *work;
    slot->slot_counts = counts;
    slot->ready = ready;
    slot->place = comm->next.on_host ? NEO_HOST : comm->place;
    comm->next.on_host = 0;
    if (work->in_counts) slot->in_counts = counts;
    if (work->out_counts) slot->out_counts = counts + comm->size;
    slot->call.sequence = pair ? pairs[work->peer]++ : comm->next.sequence++;
    if (!comm->next.label[0]) return;
    memcpy(slot->call.label, comm->next.label, sizeof slot->call.label);
    memset(comm->next.label, 0, sizeof comm->next.label);
}
/* Run it now, or hand it to the thread; what the device was called to do before comes first. */
static neo_status neo__work_issue(neo_comm *comm, const neo__work *given, neo_ticket *ticket) {
    neo__work *work = NULL;
    NEO__TRY(neo__work_slot(comm, ticket != NULL, &work));
    neo__work_place(comm, work, given);
    if (neo__comm_traced(comm)) work->issued_ns = neo_time_ns();
    work->ticket = ticket ? comm->queue.issued : -1;
    const int there = work->ready && work->place == NEO_DEVICE;
    if (there && comm->scratch.passes)
        work->stream = neo__device_passes(comm->ctx, &work->stop);
    if (work->stream)
        NEO__TRY(neo__comm_behind(comm, &work->call, NEO__ORDER_CALLS, work->ready));
    else if (there)
        NEO__TRY(neo__comm_device_did(comm, &work->call, neo__event_mark(comm->ctx, work->ready)));
    if (comm->nccl) /* from here on it runs, and so its turn comes to pass */
        work->turn = __atomic_fetch_add(&neo__ctx_launches(comm->ctx)->taken, 1, __ATOMIC_RELAXED);
    if (!ticket) {
        const int64_t *time = &comm->stats.op[work->call.op].time_ns, before = *time;
        neo_status status = neo__comm_execute(comm, work);
        comm->stats.wait_ns += *time - before;
        return status == NEO_OK && work->stream ? neo__comm_passed(comm) : status;
    }
    neo__mutex_lock(&comm->lock);
    *ticket = comm->queue.issued++;
    neo__clock_wake(comm->clock, &comm->queue.changed);
    neo__mutex_unlock(&comm->lock);
    if (comm->queue.inline_only) /* a failure shows when it is waited for, as it would */
        neo__work_done(comm, work, neo__comm_execute(comm, work));
    return NEO_OK;
}
NEO__HOT_END
NEO_API neo_status neo_comm_wait(neo_comm *comm, neo_ticket ticket) {
    NEO__CHECK(comm, NEO_ERR_ARG, "neo_comm_wait: comm is NULL");
    NEO__CHECK(ticket >= 0 && ticket < comm->queue.issued, NEO_ERR_ARG,
               "neo_comm_wait: there is no operation with ticket %" PRId64, ticket);
    return neo__comm_drain(comm, ticket + 1);
}
NEO_API neo_status neo_comm_wait_all(neo_comm *comm) {
    NEO__CHECK(comm, NEO_ERR_ARG, "neo_comm_wait_all: comm is NULL");
    NEO__TRY(neo__comm_drain(comm, comm->queue.issued));
    return neo__comm_check(comm, "neo_comm_wait_all");
}
NEO_API neo_status neo_comm_test(neo_comm *comm, neo_ticket ticket, int *done) {
    NEO__CHECK(comm && done, NEO_ERR_ARG, "neo_comm_test: an argument is NULL");
    NEO__CHECK(ticket >= 0 && ticket < comm->queue.issued, NEO_ERR_ARG,
               "neo_comm_test: there is no operation with ticket %" PRId64, ticket);
    neo__mutex_lock(&comm->lock);
    *done = comm->queue.finished > ticket;
    int well = comm->queue.succeeded > ticket;
    neo__mutex_unlock(&comm->lock);
    return *done && !well ? neo__comm_check(comm, "neo_comm_test") : NEO_OK;
}
/* ---- arguments ---- */
static neo_status neo__check_data(const char *function, const char *name, const void *data,
                                  int64_t count, neo_dtype dtype) {
    NEO__CHECK(dtype >= NEO_F32 && dtype < NEO_DTYPE_COUNT, NEO_ERR_ARG, "%s: no dtype %d",
               function, (int)dtype);
    NEO__CHECK(count >= 0 && (uint64_t)count <= SIZE_MAX / 8, NEO_ERR_ARG,
               "%s: %s has %" PRId64 " elements", function, name, count);
    NEO__CHECK(data || count == 0, NEO_ERR_ARG, "%s: %s is NULL", function, name);
    return NEO_OK;
}
static int64_t neo__part(int64_t count, const int64_t *counts, int p) {
    return counts ? counts[p] : count;
}
/* Elements of all parts; -1 when a count is negative or the sum too large. */
static int64_t neo__parts_total(int size, int64_t count, const int64_t *counts) {
    int64_t total = 0, most = INT64_MAX / 16;
    for (int p = 0; p < size; p++) {
        const int64_t part = neo__part(count, counts, p);
        if (part < 0 || part > most - total) return -1;
        total += part;
    }
    return total;
}
static int neo__overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}
/* A buffer that a call names. */
typedef struct neo__operand {
    const char *name;
    const void *data;
    int64_t count;
} neo__operand;
/* Both are there, and apart from each other. */
static neo_status neo__check_operands(const char *function, neo_dtype dtype, neo__operand a,
                                     neo__operand b) {
    NEO__TRY(neo__check_data(function, a.name, a.data, a.count, dtype));
    NEO__TRY(neo__check_data(function, b.name, b.data, b.count, dtype));
    const size_t size = neo_dtype_size(dtype);
    NEO__CHECK(!neo__overlap(a.data, (size_t)a.count * size, b.data, (size_t)b.count * size),
               NEO_ERR_ARG, "%s: %s and %s overlap", function, a.name, b.name);
    return NEO_OK;
}
/* ---- create, destroy ---- */
/* Leaves [*begin, *end) of rank r. */
static void neo__comm_leaves(int shards, int size, int rank, int *begin, int *end) {
    *begin = (int)((int64_t)shards * rank / size);
    *end = (int)((int64_t)shards * (rank + 1) / size);
}
/* The maximal subtrees of the tree of `shards` leaves inside a rank's leaves, in order; their sizes
   to `leaves` (or NULL). A subtree is an aligned power of two, or reaches to the last leaf. */
static int neo__subtrees(int shards, int size, int rank, int *leaves) {
    int count = 0, begin, end;
    neo__comm_leaves(shards, size, rank, &begin, &end);
    if (begin == 0 && end == shards) { /* the whole tree, of any size */
        if (leaves) leaves[0] = shards;
        return end > begin;
    }
    while (begin < end) {
        int64_t take = begin ? (begin & -begin) : (int64_t)1 << 30;
        int rest = shards - begin;
        if (take >= rest && end == shards)
            take = rest; /* the ragged right edge is a subtree too */
        else while (take > end - begin) take /= 2;
        if (leaves) leaves[count] = (int)take;
        count++;
        begin += (int)take;
    }
    return count;
}
/* Cleared memory. */
static void *neo__comm_alloc(neo_ctx *ctx, size_t bytes) {
    void *block = neo__alloc_for(ctx, bytes, "neo_comm");
    return block ? memset(block, 0, bytes) : NULL;
}
/* Everything a rank holds for a group, in one block: counted first (block NULL), then placed. */
static size_t neo__comm_layout(neo_comm *c, char *block) {
    neo__carve at = {block, 0};
    const size_t n = (size_t)c->size, slots = (size_t)c->desc.queue_length + 1;
    const int pieces = c->scratch.pieces;
    neo_comm *self;
    int64_t *counts;
    NEO__CARVE(&at, self, 1);
    NEO__CARVE(&at, c->world, n);
    NEO__CARVE(&at, c->node, n);
    NEO__CARVE(&at, c->threads.seat, n);
    NEO__CARVE(&at, c->queue.slot, slots);
    NEO__CARVE(&at, counts, 2 * slots * n);
    NEO__CARVE(&at, c->next.pair_sequence, 2 * n);
    NEO__CARVE(&at, c->tree.pieces_of, n + 1);
    NEO__CARVE(&at, c->tree.leaves, pieces);
    NEO__CARVE(&at, c->tree.ones, n);
    NEO__CARVE(&at, c->tree.identity, n + 1);
    NEO__CARVE(&at, c->scratch.offset, 2 * (n + 1));
    NEO__CARVE(&at, c->scratch.piece, pieces);
    NEO__CARVE(&at, c->scratch.xfer, c->scratch.xfer_count);
    if (c->transport->carve) c->transport->carve(c, &at);
    for (size_t i = 0; block && i < slots; i++) c->queue.slot[i].slot_counts = counts + 2 * i * n;
    return at.at;
}
static neo_comm_desc neo__comm_defaults(const neo_comm_desc *desc) {
    NEO__ZERO(neo_comm_desc, d);
    if (desc) d = *desc;
    if (d.ranks == 0) d.ranks = 1;
    if (d.timeout_ms == 0) d.timeout_ms = 60000;
    if (d.queue_length == 0) d.queue_length = 64;
    if (d.agree_every <= 0) d.agree_every = 16;
    return d;
}
static neo_status neo__comm_desc_check(const neo_comm_desc *desc) {
    NEO__CHECK(desc->ranks >= 1 && desc->ranks <= NEO__COMM_MAX_RANKS, NEO_ERR_ARG,
               "neo_comm: ranks is %d, not in 1 .. %d", desc->ranks, (int)NEO__COMM_MAX_RANKS);
    NEO__CHECK(desc->ranks_per_node >= 0, NEO_ERR_ARG, "neo_comm: ranks_per_node is %d",
               desc->ranks_per_node);
    NEO__CHECK(desc->queue_length >= 1 && desc->queue_length <= 65536, NEO_ERR_ARG,
               "neo_comm: queue_length is %d, not in 1 .. 65536", desc->queue_length);
    NEO__CHECK(!desc->segment_bytes ||
                   (desc->segment_bytes >= 4096 && desc->segment_bytes <= (size_t)1 << 30),
               NEO_ERR_ARG, "neo_comm: segment_bytes is %zu, not in 4096 .. 2^30",
               desc->segment_bytes);
    for (int l = 0; l < NEO_LEVEL_COUNT; l++)
        NEO__CHECK(desc->link[l].latency_us >= 0 && desc->link[l].bandwidth >= 0, NEO_ERR_ARG,
                   "neo_comm: link[%d] is negative or not a number", l);
    return NEO_OK;
}
/* The sizes of a group, 0 before, from its desc, size and shards. Each of two segments has room for
   at least an element of every piece. Returns the bytes of its block. */
static size_t neo__comm_measure(neo_comm *c) {
    for (int r = 0; r < c->size; r++) {
        const int pieces = neo__subtrees(c->tree.shards, c->size, r, NULL);
        c->scratch.pieces += pieces;
        c->tree.most = NEO__MAX(c->tree.most, pieces);
    }
    c->scratch.xfer_count = 2 * (c->scratch.pieces + c->size * NEO_MAX_SUBTREES);
    const size_t least = ((size_t)c->scratch.pieces * 8 + 63) / 64 * 64;
    const size_t others = (size_t)(c->scratch.pieces - 1), all = others * NEO__COMM_DEVICE_PIECE;
    const int staged = c->transport->takes_devices && !c->transport->takes_devices();
    for (int i = 0; i < 2; i++) {
        size_t bytes = c->desc.segment_bytes ? c->desc.segment_bytes : 256 << 10;
        if (i && !staged && !c->desc.segment_bytes)
            bytes = c->size > 1 ? NEO__MIN(all, 8 * NEO__COMM_DEVICE_PIECE) : 0;
        c->scratch.segment_bytes[i] = NEO__MAX((bytes + 63) / 64 * 64, least);
    }
    return neo__comm_layout(c, NULL);
}
/* A group whose transport is still to be joined. */
static neo_status neo__comm_new(neo_ctx *ctx, const neo_comm_desc *desc,
                                const neo__transport *transport, int rank, int size,
                                neo_comm **out) {
    NEO__ZERO(neo_comm, new_one);
    neo_comm *comm;
    *out = NULL;
    new_one.ctx = ctx;
    new_one.transport = transport;
    new_one.desc = *desc;
    new_one.rank = rank;
    new_one.size = size;
    new_one.tree.shards = NEO__MAX(neo_ctx_repro_shards(ctx), size); /* at least a leaf each */
    new_one.bytes = neo__comm_measure(&new_one);
    comm = (neo_comm *)neo__comm_alloc(ctx, new_one.bytes);
    if (!comm) return NEO_ERR_MEMORY;
    *comm = new_one;
    (void)neo__comm_layout(comm, (char *)comm);
    comm->threads.looks = desc->ranks <= neo__core_count() ? NEO__COMM_LOOKS : NEO__COMM_FEW_LOOKS;
    comm->threads.ring_length = comm->tree.most + 2;
    comm->tree.one_each = comm->scratch.pieces == size;
    for (int r = 0; r < size; r++) {
        const int before = comm->tree.pieces_of[r];
        comm->tree.pieces_of[r + 1] =
            before + neo__subtrees(comm->tree.shards, size, r, comm->tree.leaves + before);
        comm->tree.one_each &= comm->tree.leaves[r] == comm->tree.leaves[0];
        comm->tree.ones[r] = 1;
        comm->tree.identity[r + 1] = r + 1;
    }
    neo__mutex_init(&comm->lock);
    neo__cond_init(&comm->queue.changed);
    neo__live_begin(ctx, &comm->live, "comm", NULL);
    *out = comm;
    return NEO_OK;
}
/* Rank `theirs` of a group becomes rank `mine` of one that is made from it. */
static void neo__comm_take_rank(neo_comm *sub, int mine, const neo_comm *from, int theirs) {
    sub->world[mine] = from->world[theirs];
    sub->node[mine] = from->node[theirs];
}
/* The thread, if there is one, ends; in a broken group what still waits in the queue fails. */
static void neo__comm_stop(neo_comm *c) {
    if (!c->queue.runs) return;
    neo__mutex_lock(&c->lock);
    c->queue.quit = 1;
    neo__clock_wake(c->clock, &c->queue.changed);
    while (!c->queue.ended) (void)neo__clock_wait(c->clock, &c->queue.changed, &c->lock, 0, 0);
    neo__mutex_unlock(&c->lock);
    neo__thread_join(&c->queue.thread);
    c->queue.runs = 0;
}
static void neo__comm_free(neo_comm *c) {
    neo__live_end(c->ctx, &c->live);
    neo__comm_device_free(c);
    neo__mutex_destroy(&c->lock);
    neo__cond_destroy(&c->queue.changed);
    if (!c->failure.unfinished) neo_free(c->ctx, c, c->bytes);
}
/* A group knows those split from it: a rank that gives up does so in all. */
static void neo__comm_adopt(neo_comm *parent, neo_comm *child) {
    if (!child) return;
    child->parent = parent;
    child->sibling = parent->child;
    parent->child = child;
}
static void neo__comm_part(neo_comm *c) {
    for (neo_comm *child = c->child; child; child = child->sibling) child->parent = NULL;
    if (!c->parent) return;
    neo_comm **at = &c->parent->child;
    while (*at != c) at = &(*at)->sibling;
    *at = c->sibling;
}
static void neo__comm_end(neo_comm *c) {
    if (!c) return;
    neo__comm_part(c);
    neo__comm_stop(c);
    c->transport->leave(c);
    c->transport->drop(c);
    neo__comm_free(c);
}
/* A group that is not its user's to destroy. */
static void neo__comm_lend(neo_comm *c) {
    c->lent = 1;
    neo__live_end(c->ctx, &c->live);
}
NEO_API void neo_comm_destroy(neo_comm *c) {
    if (c && c->lent)
        neo_log(c->ctx, NEO_LOG_WARNING,
                "neo_comm_destroy: this group ends when the rank's function returns");
    else
        neo__comm_end(c);
}
NEO_API int neo_comm_rank(const neo_comm *comm) { return comm->rank; }
NEO_API int64_t neo_comm_time_ns(const neo_comm *comm) { return neo__clock_now(comm->clock); }
NEO_API void neo_comm_sleep(neo_comm *comm, int64_t ns) {
    neo__clock_sleep(comm->clock, ns, comm->world[comm->rank]);
}
NEO_API int neo_comm_size(const neo_comm *comm) { return comm->size; }
NEO_API neo_ctx *neo_comm_ctx(const neo_comm *comm) { return comm->ctx; }
NEO_API neo_comm_backend neo_comm_get_backend(const neo_comm *c) { return c->transport->backend; }
NEO_API int neo_comm_node(const neo_comm *comm, int rank) {
    return rank >= 0 && rank < comm->size ? comm->node[rank] : -1;
}
NEO_API int neo_comm_world_rank(const neo_comm *comm, int rank) {
    return rank >= 0 && rank < comm->size ? comm->world[rank] : -1;
}
NEO_API neo_comm_stats neo_comm_get_stats(const neo_comm *comm) { return comm->stats; }
NEO_API void neo_comm_reset_stats(neo_comm *comm) { memset(&comm->stats, 0, sizeof comm->stats); }
NEO_API const char *neo_comm_op_name(neo_comm_op op) {
    return op >= 0 && op < NEO_COMM_OP_COUNT ? neo__op_names[op] : "unknown";
}
NEO_API neo_status neo_comm_status(neo_comm *comm) {
    return neo__comm_check(comm, "neo_comm_status");
}
NEO_API void neo_comm_label(neo_comm *comm, const char *label) {
    if (!comm) return;
    size_t length = label ? strlen(label) : 0, most = NEO__COMM_LABEL - 1;
    memset(comm->next.label, 0, sizeof comm->next.label);
    if (length <= most && length > 0) memcpy(comm->next.label, label, length);
    if (length <= most) return;
    uint64_t hash = neo_hash(label);
    snprintf(comm->next.label, sizeof comm->next.label, "%.14s~%08" PRIx32 "~%s", label,
             (uint32_t)(hash ^ hash >> 32), label + length - 15);
}
NEO_API void neo_comm_abort(neo_comm *comm, const char *message) {
    if (!comm) return;
    char own[40]; /* once, also of one that gave up another group before and says why */
    const int begin = snprintf(own, sizeof own, "rank %d has given up: ", comm->world[comm->rank]);
    if (message && strncmp(message, own, (size_t)begin) == 0) message += begin;
    (void)neo__comm_break(comm, NULL, NEO_ERR_PEER, "%s%s", own,
                          message && message[0] ? message : "(no reason given)");
}
/* A rank whose function has failed: in its group, and in those split from it. */
static void neo__comm_give_up(neo_comm *comm, const char *message) {
    neo_comm_abort(comm, message);
    for (neo_comm *child = comm->child; child; child = child->sibling)
        neo__comm_give_up(child, message);
}
NEO_API neo_status neo_comm_inject(neo_comm *comm, neo_fault fault) {
    NEO__CHECK(comm, NEO_ERR_ARG, "neo_comm_inject: comm is NULL");
    NEO__CHECK(fault.kind >= NEO_FAULT_NONE && fault.kind <= NEO_FAULT_KILL && fault.ms >= 0,
               NEO_ERR_ARG, "neo_comm_inject: no fault %d of %d ms", (int)fault.kind, fault.ms);
    NEO__CHECK(comm->transport->backend == NEO_BACKEND_THREADS || fault.kind <= NEO_FAULT_DELAY,
               NEO_ERR_UNSUPPORTED, "neo_comm_inject: only delays on this backend");
    comm->failure.injected = fault;
    return NEO_OK;
}
/* ---- groups out of groups ---- */
/* Its place in the new group, then what it brings. */
struct neo__ballot {
    int64_t color, key, rank;
    int64_t token; /* of the transport */
    int64_t made;  /* 0: no memory; 1: has its part; 2: and MPI takes device memory there */
};
/* The members of one color, sorted by (key, rank), to the front; returns how many. */
static int neo__ballot_members(neo__ballot *b, int size, int64_t color) {
    int n = 0;
    for (int p = 0; p < size; p++) {
        if (b[p].color != color) continue;
        neo__ballot mine = b[p];
        int at = n++;
        for (; at > 0 && b[at - 1].key > mine.key; at--) b[at] = b[at - 1];
        b[at] = mine;
    }
    return n;
}
/* This rank's part of the new group, of which its color's first `members` ballots are. */
static neo_status neo__split_make(neo_comm *comm, const neo__ballot *ballots, int members,
                                  neo_place where, int64_t *token, neo_comm **out) {
    int rank = 0;
    while (ballots[rank].rank != comm->rank) rank++;
    NEO__TRY(neo__comm_new(comm->ctx, &comm->desc, comm->transport, rank, members, out));
    neo_comm *sub = *out;
    for (int p = 0; p < members; p++) neo__comm_take_rank(sub, p, comm, (int)ballots[p].rank);
    sub->clock = comm->clock;
    sub->place = where;
    if (where == NEO_DEVICE) /* two segments of a sum are under way */
        sub->threads.ring_length = 2 * sub->threads.ring_length - 2;
    NEO__TRY(comm->transport->member(sub, comm, token));
    return where == NEO_DEVICE ? neo__comm_device_make(sub) : NEO_OK;
}
/* Two rounds: who goes where; has everyone a part, and are they alike? *exchanged: all know. */
static neo_status neo__split_run(neo_comm *comm, neo__ballot *ballots, int color, int key,
                                 neo_place where, neo_comm **sub, int *exchanged) {
    enum { WORDS = sizeof(neo__ballot) / sizeof(int64_t) };
    NEO__ZERO(neo__ballot, mine);
    neo_status status = NEO_OK;
    mine.color = color < 0 ? -1 : color;
    mine.key = key;
    mine.rank = comm->rank;
    comm->next.on_host = 1;
    NEO__TRY(neo_comm_all_gather(comm, &mine, ballots, WORDS, NULL, NEO_I64, NULL));
    int members = color < 0 ? 0 : neo__ballot_members(ballots, comm->size, color);
    if (members) status = neo__split_make(comm, ballots, members, where, &mine.token, sub);
    mine.made = status == NEO_OK ? 1 + (*sub && (*sub)->scratch.direct) : 0;
    comm->next.on_host = 1;
    NEO__TRY(neo_comm_all_gather(comm, &mine, ballots, WORDS, NULL, NEO_I64, NULL));
    *exchanged = 1;
    NEO__TRY(status);
    for (int p = 0; p < comm->size; p++)
        NEO__CHECK(ballots[p].made, NEO_ERR_MEMORY, "neo_comm_split: rank %d has no memory for it",
                   comm->world[p]);
    if (!*sub) return NEO_OK;
    (void)neo__ballot_members(ballots, comm->size, color);
    for (int p = 0; p < members; p++)
        NEO__CHECK(
            ballots[p].made == mine.made, NEO_ERR_MISMATCH,
            "neo_comm_split_device: MPI takes device memory on some ranks and not on others");
    NEO__TRY(comm->transport->join(*sub, ballots));
    (*sub)->threads.joined = 1;
    return NEO_OK;
}
static neo_status neo__comm_split_place(neo_comm *comm, int color, int key, neo_place where,
                                        neo_comm **sub) {
    NEO__CHECK(sub, NEO_ERR_ARG, "neo_comm_split: sub is NULL");
    *sub = NULL;
    NEO__TRY(neo__comm_check(comm, "neo_comm_split"));
    neo_comm_label(comm, NULL);
    if (comm->transport->split) return comm->transport->split(comm, color, key, sub);
    const size_t bytes = (size_t)comm->size * sizeof(neo__ballot);
    neo__ballot *ballots = (neo__ballot *)neo__alloc_for(comm->ctx, bytes, "neo_comm_split");
    if (!ballots) { /* the others wait for this rank */
        neo_comm_abort(comm, "no memory to split the group");
        return neo_fail(NEO_ERR_MEMORY, "neo_comm_split: no memory for %d ranks", comm->size);
    }
    neo_comm *made = NULL;
    int exchanged = 0;
    neo_status status = neo__split_run(comm, ballots, color, key, where, &made, &exchanged);
    neo_free(comm->ctx, ballots, bytes);
    if (status == NEO_OK) {
        *sub = made;
        neo__comm_adopt(comm, made);
    } else if (made) {
        if (!exchanged) { /* the others may have gone on with it */
            made->threads.joined = 1;
            made->threads.seat[made->rank] = NULL;
        }
        neo_comm_destroy(made);
    }
    return status;
}
NEO_API neo_status neo_comm_split(neo_comm *comm, int color, int key, neo_comm **sub) {
    return neo__comm_split_place(comm, color, key, comm ? comm->place : NEO_HOST, sub);
}
NEO_API neo_status neo_comm_split_device(neo_comm *comm, int color, int key, neo_comm **sub) {
    return neo__comm_split_place(comm, color, key, NEO_DEVICE, sub);
}
NEO_API neo_place neo_comm_place(const neo_comm *comm) { return comm->place; }
NEO_API neo_comm *neo_comm_host(neo_comm *comm) { return comm->host ? comm->host : comm; }
/* Ranks of a node, if nodes are equal and consecutive; else 0. */
static int neo__comm_node_size(const neo_comm *comm) {
    int local = 1;
    while (local < comm->size && comm->node[local] == comm->node[0]) local++;
    if (comm->size % local) return 0;
    for (int p = 0; p < comm->size; p++) {
        int first = p / local * local;
        if (comm->node[p] != comm->node[first]) return 0;
        for (int q = 0; q < first; q += local)
            if (comm->node[q] == comm->node[first]) return 0;
    }
    return local;
}
NEO_API neo_status neo_comm_split_nodes(neo_comm *comm, neo_comm **local, neo_comm **cross) {
    NEO__CHECK(local, NEO_ERR_ARG, "neo_comm_split_nodes: local is NULL");
    *local = NULL;
    if (cross) *cross = NULL;
    NEO__TRY(neo__comm_check(comm, "neo_comm_split_nodes"));
    int size = neo__comm_node_size(comm);
    NEO__CHECK(size, NEO_ERR_UNSUPPORTED,
               "neo_comm_split_nodes: the nodes have unequal numbers of ranks, or a node's ranks "
               "are not consecutive");
    NEO__TRY(neo_comm_split(comm, comm->rank / size, comm->rank, local));
    if (!cross) return NEO_OK;
    neo_status status = neo_comm_split(comm, comm->rank % size, comm->rank, cross);
    if (status != NEO_OK) {
        neo_comm_destroy(*local);
        *local = NULL;
    }
    return status;
}
NEO_API int neo_comm_subtrees(const neo_comm *comm, int rank, int64_t batch,
                              neo_leaves subtree[NEO_MAX_SUBTREES]) {
    if (rank < 0 || rank >= comm->size || neo_ctx_repro_shards(comm->ctx) < comm->size) return 0;
    int first, end;
    neo__comm_leaves(comm->tree.shards, comm->size, rank, &first, &end);
    int n = comm->tree.pieces_of[rank + 1] - comm->tree.pieces_of[rank];
    for (int i = 0; i < n; i++) {
        memset(&subtree[i], 0, sizeof subtree[i]);
        subtree[i].batch = batch;
        subtree[i].first = first;
        subtree[i].count = comm->tree.leaves[comm->tree.pieces_of[rank] + i];
        first += subtree[i].count;
    }
    return n;
}
/* ---------------------------------------------------------------------------
   >>impl-comm-device

   Groups of neo_comm_split_device, which says in what order a call and its device go: the caller
   marks what the device was called to do before (an event of the call's slot), and whoever runs the
   call waits for that first. A send that MPI cannot read is copied to pinned memory (a slot of
   `staging` for each transfer under way), a receive from there, a slot at a time. The pieces of a
   segment of a sum come to `scratch`, on the device, where a kernel adds them. Copies and sums run
   on a stream of the exchanges' own, and are done when they return.

   A recorded step passes exchanges between threads: the same messages, but the host waits for no
   device. What was recorded is launched up to a mark, behind which the stream of exchanges comes.
   A message has a mark of the sender's stream and the word that says that its step stops; the
   receiver's stream waits for the mark, and copies; its own mark goes back with the message, and
   the sender's stream waits for that. A last mark is what later calls of the step wait for. So
   nothing waits on a device for what is not launched yet. Ranks that record and others mix, but not
   in sum_there of a neo_group. Over NCCL the words go as messages: all ranks record, or none.
   ------------------------------------------------------------------------ */
static int neo__comm_views(const neo_comm *c) {
    return c->transport->release && c->scratch.place == NEO_HOST;
}
static char *neo__comm_segment(const neo_comm *c, int i) {
    char *both = c->scratch.place == NEO_DEVICE ? c->scratch.device : c->scratch.segments;
    return both ? both + (size_t)i * c->scratch.segment_bytes[c->scratch.place == NEO_DEVICE]
                : NULL;
}
/* If the device has failed, why is in neo_last_error, and the others are told. */
static neo_status neo__comm_device_did(neo_comm *c, const neo__call *call, neo_status status) {
    if (status == NEO_OK) return NEO_OK;
    return neo__comm_break(c, call, status, "%.280s", neo_last_error());
}
/* In host memory, inside a device, or from one to another. */
static neo_status neo__comm_move(neo_comm *c, const neo__call *call, void *to, const void *from,
                                 size_t bytes) {
    const neo_status status =
        neo__device_move(c->ctx, c->scratch.place, to, from, bytes, c->scratch.stream);
    return neo__comm_device_did(c, call, status);
}
static neo_status neo__comm_behind(neo_comm *c, const neo__call *call, int what, void *event) {
    return neo__comm_device_did(c, call, neo__device_order(c->ctx, what, event, 0));
}
/* Sends of this call from here on are of another rank's data: the word that goes with them, behind
   this rank's own, says stop where one that was heard does, too. */
static neo_status neo__comm_passes_on(neo_comm *c, const neo__call *call) {
    NEO__TRY(neo__comm_behind(c, call, NEO__ORDER_PASS_ON, c->scratch.stop));
    c->scratch.stop = (int64_t *)c->scratch.stop + 1;
    if (!c->transport->copy) return NEO_OK;
    return c->transport->copy(c, c->scratch.stop, c->scratch.stop, 0); /* sends come behind it */
}
/* The mark behind which the sends of a round are, in the half of xfer where this one is. */
static void *neo__comm_sent(const neo_comm *c, const neo__xfer *x) {
    return c->scratch.mark[x >= c->scratch.xfer + c->scratch.xfer_count / 2];
}
static neo_status neo__comm_events_make(neo_comm *c) {
    const int slots = c->desc.queue_length + 1;
    for (int i = 0; i < slots + 3 && neo_ctx_device(c->ctx); i++) {
        void **at = i < slots ? &c->queue.slot[i].ready : &c->scratch.mark[i - slots];
        *at = neo__event_make(c->ctx);
        if (!*at) return neo_fail(NEO_ERR_DEVICE, "neo_comm: %.280s", neo_last_error());
    }
    return NEO_OK;
}
/* Transfers that may be under way in each half of scratch.xfer have a slot of pinned memory, into
   which a segment of a sum must fit; stage_bytes 0: nothing is staged. */
static void neo__comm_stage(neo_comm *c) {
    int others = c->size > 1 ? c->size - 1 : 1, sums = c->tree.most * others + c->scratch.pieces;
    c->scratch.stage_slots = NEO__MAX(sums, 2 * others);
    c->scratch.stage_bytes = 0;
    if (c->size > 1 && c->transport->takes_devices && !c->transport->takes_devices())
        c->scratch.stage_bytes = (c->scratch.segment_bytes[1] / (size_t)others + 63) / 64 * 64;
    if (c->transport->backend != NEO_BACKEND_NCCL) return;
    c->scratch.stage_slots = 1; /* of sums by the processor */
    c->scratch.stage_bytes = NEO__MIN(c->scratch.segment_bytes[1], (size_t)1 << 20);
}
static neo_status neo__comm_device_make(neo_comm *c) {
    neo_tensor scratch;
    int64_t bytes = 2 * (int64_t)c->scratch.segment_bytes[1];
    NEO__CHECK(neo_ctx_device(c->ctx), NEO_ERR_ARG,
               "neo_comm_split_device: the context of rank %d has no device", c->world[c->rank]);
    NEO__TRY(neo__comm_events_make(c));
    c->scratch.passes = c->transport->release != NULL || c->host != NULL;
    for (int p = 0; p < c->size; p++)
        c->scratch.passes = c->scratch.passes && neo__device_heard(c->ctx, c->world[p]);
    neo__live_inside(c->ctx, 1);
    neo_status status = neo_tensor_alloc(c->ctx, NEO_U8, 1, &bytes, &scratch);
    neo__live_inside(c->ctx, -1);
    NEO__TRY(status);
    c->scratch.device = (char *)scratch.data;
    neo__comm_stage(c);
    c->scratch.direct = c->scratch.stage_bytes == 0;
    if (c->scratch.direct) return NEO_OK;
    size_t all = 2 * (size_t)c->scratch.stage_slots * c->scratch.stage_bytes;
    c->scratch.staging = (char *)neo__pinned_alloc(c->ctx, all);
    NEO__CHECK(c->scratch.staging, NEO_ERR_MEMORY,
               "neo_comm: no memory for %zu pinned bytes", all);
    return NEO_OK;
}
/* Memory that MPI may still use, of a group that has failed, is kept. */
static void neo__comm_device_free(neo_comm *c) {
    neo_tensor scratch =
        neo_tensor_1d(c->scratch.device, NEO_U8, 2 * (int64_t)c->scratch.segment_bytes[1]);
    scratch.place = NEO_DEVICE;
    if (c->scratch.stream) (void)neo__event_wait(c->ctx, c->scratch.mark[2]);
    for (int i = 0; i <= c->desc.queue_length; i++) neo__event_free(c->ctx, c->queue.slot[i].ready);
    for (int i = 0; i < 3; i++) neo__event_free(c->ctx, c->scratch.mark[i]);
    neo__live_inside(c->ctx, 1);
    if (c->scratch.device && !(c->failure.unfinished && c->scratch.direct))
        neo_tensor_free(c->ctx, &scratch);
    neo__live_inside(c->ctx, -1);
    if (c->scratch.staging && !c->failure.unfinished)
        neo__pinned_free(c->ctx, c->scratch.staging,
                         2 * (size_t)c->scratch.stage_slots * c->scratch.stage_bytes);
}
/* ---------------------------------------------------------------------------
   >>impl-collectives

   What every operation does, over any transport. Parts go straight between the rank that has them
   and the rank that needs them, in an order that spreads the load (see neo__peer_in_turn).

   Sums    A reduce-scatter gets every rank's piece of its own part and adds the pieces in the order
           of the leaf tree, block by block: they are pushed on a stack in leaf order, where two
           subtrees of equal size merge, and what is left at the end folds from the right. On MPI
           the pieces come in segments, the next one while one is added; threads read them where
           they are. An all-reduce is a reduce-scatter and an all-gather; up to NEO__SMALL_BYTES it
           goes up the tree to rank 0 and down again, which sends as many bytes in fewer rounds.
   ------------------------------------------------------------------------ */
enum {
    NEO__SMALL_BYTES = 4096 /* of an all-reduce by the tree */
};
NEO__HOT_BEGIN
static neo__combine_call neo__sum_of(const neo__call *call, const void *const *piece,
                                     const int *leaves, int count, void *out, int64_t n) {
    NEO__ZERO(neo__combine_call, sum);
    sum.dtype = (neo_dtype)call->dtype;
    sum.reduce = (int)call->reduce;
    sum.count = count;
    sum.piece = piece;
    sum.leaves = leaves;
    sum.out = out;
    sum.n = n;
    return sum;
}
/* ---- rounds of transfers ---- */
typedef struct neo__round {
    neo__xfer *xfer;
    int count;
} neo__round;
static neo__xfer *neo__round_add(neo__round *r, int peer, int send, const void *data, size_t bytes,
                                 int first, int view) {
    neo__xfer *x = &r->xfer[r->count++];
    memset(x, 0, sizeof *x);
    x->peer = peer;
    x->send = send;
    x->first = first;
    x->view = view;
    x->data = (void *)(uintptr_t)data;
    x->bytes = x->whole = bytes;
    return x;
}
static neo_status neo__round_start(neo_comm *comm, const neo__call *call, neo__round *r) {
    NEO_ASSERT(r->xfer + r->count <= comm->scratch.xfer + comm->scratch.xfer_count);
    if (comm->scratch.stream && !comm->nccl)
        NEO__TRY(neo__comm_behind(comm, call, NEO__ORDER_MOVES, neo__comm_sent(comm, r->xfer)));
    for (int send = 0; send < 2; send++)
        for (int i = 0; i < r->count; i++)
            if (r->xfer[i].send == send) NEO__TRY(comm->transport->start(comm, call, &r->xfer[i]));
    return NEO_OK;
}
/* status: of the work done meanwhile; after an error finish takes back what others might read. */
static neo_status neo__round_finish(neo_comm *c, const neo__call *call, neo__round *r,
                                    neo_status status) {
    neo_status finished = c->transport->finish(c, call, r->xfer, r->count);
    return status == NEO_OK ? finished : status;
}
static neo_status neo__round_run(neo_comm *c, const neo__call *call, neo__round *r) {
    NEO__TRY(neo__round_start(c, call, r));
    return neo__round_finish(c, call, r, NEO_OK);
}
static neo__round neo__round_new(neo_comm *c) {
    const neo__round r = {c->scratch.xfer, 0};
    return r;
}
static int neo__peer(const neo_comm *c, int distance) { return (c->rank + distance) % c->size; }
/* If all send to all: the rank that this one sends to in turn d (1 .. size - 1), or, of, that it
   receives from. Turns go through the places of a node, then node by node through theirs. So in
   each turn all ranks send at one level, and each to another; with r + d the ranks of a node would
   begin with one rank of the next. It is r + d where nodes are not equal and consecutive. */
static int neo__peer_in_turn(neo_comm *c, int d, int of) {
    if (c->tree.node_size == 0) {
        int places = neo__comm_node_size(c);
        c->tree.node_size = places ? places : c->size;
    }
    int places = c->tree.node_size, nodes = c->size / places;
    int node = d / places, place = d % places;
    if (of) {
        node = nodes - node;
        place = places - place;
    }
    return (c->rank / places + node) % nodes * places + (c->rank % places + place) % places;
}
/* A part of each other rank, from or to its place in `data`; own: this rank's part, to each. */
static void neo__round_add_parts(neo_comm *c, neo__round *r, int send, const char *data,
                                 const int64_t *offset, size_t size, int first, int own) {
    for (int d = 1; d < c->size; d++) {
        const int p = neo__peer_in_turn(c, d, !send), part = own ? c->rank : p;
        neo__round_add(r, p, send, data ? data + (size_t)offset[part] * size : NULL,
                       (size_t)(offset[part + 1] - offset[part]) * size, first, 0);
    }
}
/* ---- reduce-scatter ---- */
typedef struct neo__reducing {
    const void *const *mine; /* this rank's pieces, each of all parts */
    const int64_t *offset;   /* [W + 1] of the parts, in elements */
    int64_t segment;         /* elements at a time */
    const int *pieces_of;    /* [W + 1]: pieces before rank p's */
    const int *leaves;       /* of each piece */
    int first_piece, pieces; /* of this rank, among all */
    size_t size;             /* of an element */
} neo__reducing;
/* Elements of a part that are in segment s. */
static int64_t neo__segment_count(const neo__reducing *j, int p, int64_t s) {
    int64_t left = j->offset[p + 1] - j->offset[p] - s * j->segment;
    return left < 0 ? 0 : left < j->segment ? left : j->segment;
}
/* Bytes that rank `from` sends to the owner of part p. */
static size_t neo__reduce_whole(const neo__reducing *j, int p, int from) {
    return (size_t)(j->offset[p + 1] - j->offset[p]) * j->size *
           (size_t)(j->pieces_of[from + 1] - j->pieces_of[from]);
}
static neo_status neo__reduce_start(neo_comm *comm, const neo__call *call, const neo__reducing *j,
                                    int64_t s, neo__round *round) {
    size_t part = (size_t)neo__segment_count(j, comm->rank, s) * j->size;
    char *scratch = neo__comm_segment(comm, (int)(s & 1));
    round->xfer = comm->scratch.xfer + (s & 1) * (comm->scratch.xfer_count / 2);
    round->count = 0;
    for (int d = 1; d < comm->size; d++) {
        int p = neo__peer_in_turn(comm, d, 1);
        for (int k = j->pieces_of[p]; k < j->pieces_of[p + 1] && (s == 0 || part > 0); k++) {
            neo__round_add(round, p, 0, scratch, part, s == 0 && k == j->pieces_of[p],
                           neo__comm_views(comm))
                ->whole = neo__reduce_whole(j, comm->rank, p);
            if (scratch) scratch += (size_t)j->segment * j->size;
        }
    }
    for (int d = 1; d < comm->size; d++) {
        int p = neo__peer_in_turn(comm, d, 0);
        size_t bytes = (size_t)neo__segment_count(j, p, s) * j->size;
        for (int k = 0; k < j->pieces && (s == 0 || bytes > 0); k++)
            neo__round_add(round, p, 1,
                           (const char *)j->mine[k] +
                               (size_t)(j->offset[p] + s * j->segment) * j->size,
                           bytes, s == 0 && k == 0, 0)
                ->whole = neo__reduce_whole(j, p, comm->rank);
    }
    return neo__round_start(comm, call, round);
}
/* The receives are done: add them. The sends still go on. */
static neo_status neo__reduce_finish(neo_comm *comm, const neo__call *call, const neo__reducing *j,
                                     int64_t s, neo__round *r, void *out) {
    int64_t count = neo__segment_count(j, comm->rank, s);
    int receives = 0;
    while (receives < r->count && !r->xfer[receives].send) receives++;
    NEO__TRY(comm->transport->finish(comm, call, r->xfer, receives));
    for (int k = 0; k < j->pieces; k++)
        comm->scratch.piece[j->first_piece + k] =
            (const char *)j->mine[k] + (size_t)(j->offset[comm->rank] + s * j->segment) * j->size;
    for (int i = 0; i < receives;) {
        int p = r->xfer[i].peer;
        for (int k = j->pieces_of[p]; k < j->pieces_of[p + 1]; k++)
            comm->scratch.piece[k] = r->xfer[i++].from;
    }
    char *to = (char *)out + (size_t)(s * j->segment) * j->size;
    neo__combine_call sum = neo__sum_of(call, comm->scratch.piece, j->leaves,
                                        j->pieces_of[comm->size], to, count);
    sum.stream = comm->scratch.stream;
    if (count > 0 && comm->transport->combine) {
        NEO__TRY(comm->transport->combine(comm, &sum));
    } else if (count > 0) {
        neo_status status = neo__comm_device_did(
            comm, call, neo__device_combine(comm->ctx, comm->scratch.place, &sum));
        if (status != NEO_OK) { /* finish takes back what the others might still read */
            (void)comm->transport->finish(comm, call, r->xfer + receives, r->count - receives);
            return status;
        }
    }
    for (int i = 0; i < receives; i++)
        if (r->xfer[i].view) comm->transport->release(comm, &r->xfer[i]);
    return comm->transport->finish(comm, call, r->xfer + receives, r->count - receives);
}
/* out = this rank's part of the sum of all pieces: one per rank, or those of a sum over leaves. */
static neo_status neo__reduce_parts(neo_comm *comm, const neo__work *work, const int64_t *offset,
                                    void *out) {
    const neo__call *call = &work->call;
    neo__reducing j;
    int64_t most = 0;
    j.mine = work->pieces ? work->piece : &work->in;
    j.offset = offset;
    j.size = work->each;
    j.pieces_of = work->pieces ? comm->tree.pieces_of : comm->tree.identity;
    j.leaves = work->pieces ? comm->tree.leaves : comm->tree.ones;
    j.first_piece = j.pieces_of[comm->rank];
    j.pieces = j.pieces_of[comm->rank + 1] - j.first_piece;
    for (int p = 0; p < comm->size; p++)
        most = offset[p + 1] - offset[p] > most ? offset[p + 1] - offset[p] : most;
    j.segment = most;
    if (!neo__comm_views(comm)) {
        /* as many pieces as any rank may receive: cut alike on all */
        const size_t others = (size_t)NEO__MAX(j.pieces_of[comm->size] - 1, 1);
        const size_t room = comm->scratch.segment_bytes[comm->scratch.place == NEO_DEVICE];
        const int64_t fits = (int64_t)(room / others / 64 * 64 / j.size);
        j.segment = NEO__MIN(j.segment, NEO__MAX(fits, 1));
    }
    j.segment = NEO__MAX(j.segment, 1);
    int64_t segments = (most + j.segment - 1) / j.segment;
    neo__round round[2];
    /* Two segments are on their way at a time, once the ranks have agreed; messages do at first. */
    int64_t started = 0;
    for (int64_t s = 0; s == 0 || s < segments; s++) {
        for (; started <= s || (started <= s + 1 && started < segments &&
                                (s > 0 || comm->transport->agree)); started++)
            NEO__TRY(neo__reduce_start(comm, call, &j, started, &round[started & 1]));
        NEO__TRY(neo__reduce_finish(comm, call, &j, s, &round[s & 1], out));
    }
    return NEO_OK;
}
/* ---- all-gather: every rank has its part in out ---- */
static neo_status neo__gather_parts(neo_comm *c, const neo__call *call, size_t size, char *out,
                                    const int64_t *offset, int first) {
    neo__round r = neo__round_new(c);
    neo__round_add_parts(c, &r, 0, out, offset, size, first, 0);
    neo__round_add_parts(c, &r, 1, out, offset, size, first, 1);
    return neo__round_run(c, call, &r);
}
/* ---- all-reduce ---- */
static neo_status neo__one(neo_comm *c, const neo__call *call, int peer, int send, const void *data,
                           size_t bytes) {
    neo__round r = neo__round_new(c);
    neo__round_add(&r, peer, send, data, bytes, 1, 0);
    return neo__round_run(c, call, &r);
}
static const int neo__two_leaves[2] = {1, 1};
/* The data of a root to all, down a binomial tree. */
static neo_status neo__tree_down(neo_comm *c, const neo__call *call, int root, void *data,
                                 size_t bytes) {
    int from_root = (c->rank - root + c->size) % c->size, step = 1;
    while (step < c->size && !(from_root & step)) step *= 2;
    if (from_root) NEO__TRY(neo__one(c, call, neo__peer(c, c->size - step), 0, data, bytes));
    if (from_root && step > 1 && c->scratch.stream) NEO__TRY(neo__comm_passes_on(c, call));
    neo__round r = neo__round_new(c);
    for (step /= 2; step > 0; step /= 2)
        if (from_root + step < c->size)
            neo__round_add(&r, neo__peer(c, step), 1, data, bytes, 1, 0);
    return neo__round_run(c, call, &r);
}
/* Two ranks: each sends all it has, which is as many bytes as two halves there and back. */
static neo_status neo__all_reduce_pair(neo_comm *comm, const neo__call *call, const void *in,
                                       void *out, size_t bytes) {
    char theirs[NEO__SMALL_BYTES], mine[NEO__SMALL_BYTES];
    const void *piece[2];
    neo__round r = neo__round_new(comm);
    mine[0] = theirs[0] = 0;
    if (bytes) memcpy(mine, in, bytes); /* out may be in, which the other reads */
    neo__round_add(&r, 1 - comm->rank, 0, theirs, bytes, 1, 0);
    neo__round_add(&r, 1 - comm->rank, 1, mine, bytes, 1, 0);
    NEO__TRY(neo__round_run(comm, call, &r));
    piece[comm->rank] = mine;
    piece[1 - comm->rank] = theirs;
    const neo__combine_call both = neo__sum_of(call, piece, neo__two_leaves, 2, out, call->count);
    return neo__device_combine(comm->ctx, NEO_HOST, &both);
}
static neo_status neo__all_reduce_tree(neo_comm *comm, const neo__call *call, const void *in,
                                       void *out, size_t bytes) {
    char sum[NEO__SMALL_BYTES], theirs[NEO__SMALL_BYTES];
    const void *piece[2] = {sum, theirs};
    const neo__combine_call both = neo__sum_of(call, piece, neo__two_leaves, 2, sum, call->count);
    int step = 1;
    if (bytes) memcpy(sum, in, bytes);
    for (; step < comm->size && !(comm->rank & step); step *= 2) {
        if (comm->rank + step >= comm->size) continue;
        NEO__TRY(neo__one(comm, call, comm->rank + step, 0, theirs, bytes));
        NEO__TRY(neo__device_combine(comm->ctx, NEO_HOST, &both));
    }
    if (comm->rank) NEO__TRY(neo__one(comm, call, comm->rank - step, 1, sum, bytes));
    NEO__TRY(neo__tree_down(comm, call, 0, sum, bytes));
    if (bytes) memcpy(out, sum, bytes);
    return NEO_OK;
}
static neo_status neo__all_reduce_run(neo_comm *c, const neo__work *work) {
    const neo__call *call = &work->call;
    size_t size = work->each, bytes = (size_t)call->count * size;
    int one_each = !work->pieces || c->tree.one_each;
    const void *mine = work->pieces ? work->piece[0] : work->in;
    if (one_each && bytes <= NEO__SMALL_BYTES && c->scratch.place == NEO_HOST)
        return c->size == 2 ? neo__all_reduce_pair(c, call, mine, work->out, bytes)
                            : neo__all_reduce_tree(c, call, mine, work->out, bytes);
    for (int p = 0; p <= c->size; p++) /* whole blocks of 16 elements, so that sums stay aligned */
        c->scratch.offset[p] = p == c->size ? call->count : call->count / 16 * p / c->size * 16;
    NEO__TRY(neo__reduce_parts(c, work, c->scratch.offset,
                               (char *)work->out + (size_t)c->scratch.offset[c->rank] * size));
    return neo__gather_parts(c, call, work->each, (char *)work->out, c->scratch.offset, 0);
}
NEO__HOT_END

/* ---- the others ---- */
static void neo__offsets_set(const neo_comm *c, int64_t *offset, int64_t count,
                             const int64_t *counts) {
    offset[0] = 0;
    for (int p = 0; p < c->size; p++) offset[p + 1] = offset[p] + neo__part(count, counts, p);
}
/* [W + 1]: where the parts of a call begin. */
static const int64_t *neo__offsets(const neo_comm *c, const neo__work *w) {
    neo__offsets_set(c, c->scratch.offset, w->count, w->in_counts);
    return c->scratch.offset;
}
static neo_status neo__copy_part(neo_comm *c, const neo__call *call, void *to, const void *from,
                                 int64_t count, size_t size) {
    if (count == 0 || to == from) return NEO_OK;
    if (c->transport->copy) return c->transport->copy(c, to, from, (size_t)count * size);
    return neo__comm_move(c, call, to, from, (size_t)count * size);
}
static neo_status neo__all_gather_run(neo_comm *c, const neo__work *w) {
    const int64_t *offset = neo__offsets(c, w);
    NEO__TRY(neo__copy_part(c, &w->call, (char *)w->out + (size_t)offset[c->rank] * w->each, w->in,
                            offset[c->rank + 1] - offset[c->rank], w->each));
    return neo__gather_parts(c, &w->call, w->each, (char *)w->out, offset, 1);
}
static neo_status neo__all_to_all_run(neo_comm *c, const neo__work *work) {
    const neo__call *call = &work->call;
    size_t size = work->each;
    const int64_t *in = neo__offsets(c, work);
    int64_t *out = c->scratch.offset + c->size + 1;
    neo__offsets_set(c, out, work->count, work->out_counts);
    const char *from = (const char *)work->in;
    char *to = (char *)work->out;
    neo__round r = neo__round_new(c);
    neo__round_add_parts(c, &r, 0, to, out, size, 1, 0);
    neo__round_add_parts(c, &r, 1, from, in, size, 1, 0);
    for (int i = 0; i < c->size - 1 && work->lent; i++) r.xfer[i].view = 2;
    NEO__TRY(neo__round_start(c, call, &r));
    const int64_t own = work->lent ? 0 : in[c->rank + 1] - in[c->rank];
    neo_status status = neo__copy_part(c, call, to + (size_t)out[c->rank] * size,
                                       from + (size_t)in[c->rank] * size, own, size);
    NEO__TRY(neo__round_finish(c, call, &r, status));
    for (int i = 0; i < c->size - 1 && work->lent; i++)
        work->lent[r.xfer[i].peer] = (char *)(uintptr_t)r.xfer[i].from;
    if (work->lent) work->lent[c->rank] = to + in[c->rank];
    return NEO_OK;
}
/* gather: all to the root's out; scatter: from the root's in. */
static neo_status neo__rooted_run(neo_comm *c, const neo__work *w, int gather) {
    const neo__call *call = &w->call;
    size_t size = w->each;
    const int64_t *offset = neo__offsets(c, w);
    int64_t mine = offset[c->rank + 1] - offset[c->rank];
    if (c->rank != call->root)
        return neo__one(c, call, call->root, gather, gather ? w->in : w->out, (size_t)mine * size);
    const char *all = gather ? (const char *)w->out : (const char *)w->in;
    neo__round r = neo__round_new(c);
    neo__round_add_parts(c, &r, !gather, all, offset, size, 1, 0);
    NEO__TRY(neo__round_start(c, call, &r));
    char *own = (char *)(uintptr_t)all + (size_t)offset[c->rank] * size;
    neo_status status = neo__copy_part(c, call, gather ? own : w->out, gather ? w->in : own, mine,
                                       size);
    return neo__round_finish(c, call, &r, status);
}
static neo_status neo__barrier_run(neo_comm *c, const neo__work *w) {
    for (int step = 1; step < c->size; step *= 2) {
        neo__round r = neo__round_new(c);
        neo__round_add(&r, neo__peer(c, c->size - step), 0, NULL, 0, 1, 0);
        neo__round_add(&r, neo__peer(c, step), 1, NULL, 0, 1, 0);
        NEO__TRY(neo__round_run(c, &w->call, &r));
    }
    return NEO_OK;
}
/* ---- rows on a narrow wire: a coded row is one element of the plain collectives ---- */
/* All of this rank's rows are coded into the workspace, where coded rows go to all that need them;
   what has come, `pieces` for a row (of a sum: one of each rank), is decoded and added. */
static neo_status neo__rows_run(neo_comm *comm, const neo__work *w) {
    const neo_ctx *ctx = comm->ctx;
    const neo_place place = comm->scratch.place;
    const int gathers = w->call.op == (int)NEO_COMM_ALL_GATHER;
    const int sums = w->call.op == (int)NEO_COMM_REDUCE_SCATTER;
    neo__work coded = *w;
    char *from = (char *)w->rows.workspace, *to = from;
    if (gathers) from += (size_t)w->at * w->each;
    else to += (size_t)w->in_count * w->each;
    coded.in = from;
    coded.out = to;
    for (int p = 0; p < comm->size && sums; p++) w->slot_counts[comm->size + p] = w->out_count;
    if (sums) coded.out_counts = w->slot_counts + comm->size;
    neo__wire_call encode =
        neo__wire_call_of(w->rows.wire, w->rows.exponent, w->in_count, w->rows.cols, w->in, from);
    encode.stream = comm->scratch.stream;
    neo__wire_call decode =
        neo__wire_call_of(w->rows.wire, w->rows.exponent, w->out_count, w->rows.cols, to, w->out);
    decode.pieces = sums ? comm->size : 1;
    decode.stream = encode.stream;
    decode.piece_bytes = (size_t)decode.rows * w->each;
    NEO__TRY(neo__comm_device_did(comm, &w->call, neo__device_encode(ctx, place, &encode)));
    if (w->rows.stats && place == NEO_HOST) neo__wire_add_stats(ctx, &encode, w->rows.stats);
    NEO__TRY(gathers ? neo__all_gather_run(comm, &coded) : neo__all_to_all_run(comm, &coded));
    if (comm->transport->settle) NEO__TRY(comm->transport->settle(comm));
    return neo__comm_device_did(comm, &w->call, neo__device_decode(ctx, place, &decode));
}
static neo_status neo__work_run(neo_comm *c, neo__work *w) {
    int done = 0;
    if (w->rows.cols) return neo__rows_run(c, w);
    if (w->call.op <= (int)NEO_COMM_REDUCE_SCATTER && c->transport->reduce)
        NEO__TRY(c->transport->reduce(c, w, &done));
    if (done) return NEO_OK;
    switch ((neo_comm_op)w->call.op) {
    case NEO_COMM_ALL_REDUCE: return neo__all_reduce_run(c, w);
    case NEO_COMM_REDUCE_SCATTER: return neo__reduce_parts(c, w, neo__offsets(c, w), w->out);
    case NEO_COMM_ALL_GATHER: return neo__all_gather_run(c, w);
    case NEO_COMM_ALL_TO_ALL: return neo__all_to_all_run(c, w);
    case NEO_COMM_BROADCAST:
        return neo__tree_down(c, &w->call, w->call.root, w->out, (size_t)w->call.count * w->each);
    case NEO_COMM_GATHER: return neo__rooted_run(c, w, 1);
    case NEO_COMM_SCATTER: return neo__rooted_run(c, w, 0);
    case NEO_COMM_SEND:
        return neo__one(c, &w->call, w->peer, !w->receives, w->receives ? w->out : w->in,
                        (size_t)w->call.count * w->each);
    case NEO_COMM_BARRIER: return neo__barrier_run(c, w);
    case NEO_COMM_OP_COUNT: break;
    }
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-comm-calls

   The public calls: check, fill a slot, issue.
   ------------------------------------------------------------------------ */
NEO__HOT_BEGIN
static neo__work neo__work_new(const char *function, neo_comm_op op, const void *in, void *out,
                               int64_t count, const int64_t *counts, neo_dtype dtype) {
    NEO__ZERO(neo__work, w);
    w.function = function;
    w.call.op = (int32_t)op;
    w.call.dtype = (int32_t)dtype;
    w.call.count = w.count = w.in_count = w.out_count = count;
    w.in_counts = counts;
    w.in = in;
    w.out = out;
    w.each = neo_dtype_size(dtype);
    return w;
}
static neo_status neo__check_reduce(const neo__work *w) {
    if (w->call.op > (int)NEO_COMM_REDUCE_SCATTER) return NEO_OK;
    NEO__CHECK(w->call.reduce >= NEO_REDUCE_SUM && w->call.reduce <= NEO_REDUCE_MIN, NEO_ERR_ARG,
               "%s: no reduction %d", w->function, (int)w->call.reduce);
    NEO__CHECK(w->call.reduce != NEO_REDUCE_SUM || ((neo_dtype)w->call.dtype != NEO_F8E4M3 &&
                                                    (neo_dtype)w->call.dtype != NEO_F8E5M2),
               NEO_ERR_UNSUPPORTED,
               "%s: sums of %s: reduce in f16, bf16 or f32, and send rows as f8 (see >>comm-rows)",
               w->function, neo_dtype_name((neo_dtype)w->call.dtype));
    return NEO_OK;
}
static int neo__in_has_all(const neo__work *w) {
    return w->call.op == (int)NEO_COMM_REDUCE_SCATTER || w->call.op == (int)NEO_COMM_SCATTER;
}
/* Counts of a call: in and out are whole, or one of them or both have a part of each rank. */
static neo_status neo__check_parts(neo_comm *comm, neo__work *w) {
    NEO__TRY(neo__comm_check(comm, w->function));
    if (w->call.op == (int)NEO_COMM_ALL_REDUCE) return NEO_OK;
    const int both = w->call.op == (int)NEO_COMM_ALL_TO_ALL;
    const int64_t mine = neo__part(w->count, w->in_counts, comm->rank);
    w->in_count = neo__parts_total(comm->size, w->count, w->in_counts);
    w->out_count = both ? neo__parts_total(comm->size, w->count, w->out_counts) : w->in_count;
    NEO__CHECK(w->in_count >= 0 && w->out_count >= 0, NEO_ERR_ARG,
               "%s: a count is negative, or their sum too large", w->function);
    w->call.count = w->out_counts ? -1 : w->in_count; /* -1: each pair agrees on its own */
    NEO__CHECK(!w->out_counts || mine == w->out_counts[comm->rank], NEO_ERR_ARG,
               "%s: this rank sends itself a part of %" PRId64 ", but expects %" PRId64,
               w->function, mine, w->out_counts[comm->rank]);
    for (int p = 0; p < comm->rank; p++) w->at += neo__part(w->count, w->in_counts, p);
    if (!both && neo__in_has_all(w)) w->out_count = mine;
    else if (!both) w->in_count = mine;
    return NEO_OK;
}
static neo_status neo__check_root(const neo_comm *c, const neo__work *w) {
    NEO__CHECK(w->call.root >= 0 && w->call.root < c->size, NEO_ERR_ARG,
               "%s: root %d is not in a group of %d ranks", w->function, w->call.root, c->size);
    return NEO_OK;
}
/* `part` is the one from element `at` on of `all`, or apart from it. */
static int neo__in_place(const void *all, int64_t all_count, const void *part, int64_t at,
                         int64_t count, size_t size) {
    return (uintptr_t)all + (size_t)at * size == (uintptr_t)part ||
           !neo__overlap(all, (size_t)all_count * size, part, (size_t)count * size);
}
/* One buffer has all parts (only on the root, if any), the other this rank's; or both are whole. */
static neo_status neo__parts_issue(neo_comm *comm, neo__work *w, neo_ticket *ticket) {
    const int op = w->call.op, rooted = op == (int)NEO_COMM_GATHER || op == (int)NEO_COMM_SCATTER;
    const int whole = !rooted || comm->rank == w->call.root, in_has_all = neo__in_has_all(w);
    const neo_dtype dtype = (neo_dtype)w->call.dtype;
    NEO__TRY(neo__check_parts(comm, w));
    NEO__TRY(neo__check_root(comm, w));
    if (whole || !in_has_all)
        NEO__TRY(neo__check_data(w->function, "in", w->in, w->in_count, dtype));
    if (whole || in_has_all)
        NEO__TRY(neo__check_data(w->function, "out", w->out, w->out_count, dtype));
    const int apart =
        in_has_all ? neo__in_place(w->in, w->in_count, w->out, w->at, w->out_count, w->each)
                   : neo__in_place(w->out, w->out_count, w->in, w->at, w->in_count, w->each);
    NEO__CHECK(apart || !whole, NEO_ERR_ARG, "%s: in and out overlap, but not in place",
               w->function);
    NEO__TRY(neo__check_reduce(w));
    return neo__work_issue(comm, w, ticket);
}
NEO_API neo_status neo_comm_all_reduce(neo_comm *c, neo_reduce reduce, const void *in, void *out,
                                       int64_t count, neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_REDUCE, in, out, count, NULL, dtype);
    w.call.reduce = (int32_t)reduce;
    return neo__parts_issue(c, &w, ticket);
}
NEO__HOT_END
NEO_API neo_status neo_comm_reduce_scatter(neo_comm *c, neo_reduce reduce, const void *in,
                                           void *out, int64_t count, const int64_t *counts,
                                           neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_REDUCE_SCATTER, in, out, count, counts, dtype);
    w.call.reduce = (int32_t)reduce;
    return neo__parts_issue(c, &w, ticket);
}
NEO_API neo_status neo_comm_all_gather(neo_comm *c, const void *in, void *out, int64_t count,
                                       const int64_t *counts, neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_GATHER, in, out, count, counts, dtype);
    return neo__parts_issue(c, &w, ticket);
}
NEO_API neo_status neo_comm_gather(neo_comm *c, const void *in, void *out, int64_t count,
                                   const int64_t *counts, neo_dtype dtype, int root,
                                   neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_GATHER, in, out, count, counts, dtype);
    w.call.root = (int32_t)root;
    return neo__parts_issue(c, &w, ticket);
}
NEO_API neo_status neo_comm_scatter(neo_comm *c, const void *in, void *out, int64_t count,
                                    const int64_t *counts, neo_dtype dtype, int root,
                                    neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_SCATTER, in, out, count, counts, dtype);
    w.call.root = (int32_t)root;
    return neo__parts_issue(c, &w, ticket);
}
static neo_status neo__all_to_all_issue(neo_comm *c, neo__work *w, neo_ticket *ticket) {
    NEO__TRY(neo__check_parts(c, w));
    const neo__operand in = {"in", w->in, w->in_count}, out = {"out", w->out, w->out_count};
    NEO__TRY(neo__check_operands(w->function, (neo_dtype)w->call.dtype, in, out));
    return neo__work_issue(c, w, ticket);
}
NEO_API neo_status neo_comm_all_to_all(neo_comm *c, const void *in, void *out, int64_t count,
                                       neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_TO_ALL, in, out, count, NULL, dtype);
    return neo__all_to_all_issue(c, &w, ticket);
}
NEO_API neo_status neo_comm_all_to_allv(neo_comm *c, const void *in, const int64_t *in_counts,
                                        void *out, const int64_t *out_counts, neo_dtype dtype,
                                        neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_TO_ALL, in, out, 0, in_counts, dtype);
    w.out_counts = out_counts;
    NEO__CHECK(in_counts && out_counts, NEO_ERR_ARG, "%s: in_counts or out_counts is NULL",
               w.function);
    return neo__all_to_all_issue(c, &w, ticket);
}
NEO_API neo_status neo_comm_broadcast(neo_comm *c, void *data, int64_t count, neo_dtype dtype,
                                      int root, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_BROADCAST, data, data, count, NULL, dtype);
    w.call.root = (int32_t)root;
    NEO__TRY(neo__comm_check(c, w.function));
    NEO__TRY(neo__check_root(c, &w));
    NEO__TRY(neo__check_data(w.function, "data", data, count, dtype));
    return neo__work_issue(c, &w, ticket);
}
static neo_status neo__pair_issue(neo_comm *comm, const char *function, const void *data,
                                  int64_t count, neo_dtype dtype, int peer, int receives,
                                  neo_ticket *ticket) {
    neo__work w =
        neo__work_new(function, NEO_COMM_SEND, data, (void *)(uintptr_t)data, count, NULL, dtype);
    w.peer = peer;
    w.receives = receives;
    NEO__TRY(neo__comm_check(comm, function));
    NEO__CHECK(peer >= 0 && peer < comm->size && peer != comm->rank, NEO_ERR_ARG,
               "%s: peer %d is not another rank of a group of %d", function, peer, comm->size);
    NEO__TRY(neo__check_data(function, "data", data, count, dtype));
    return neo__work_issue(comm, &w, ticket);
}
NEO_API neo_status neo_comm_send(neo_comm *c, const void *data, int64_t count, neo_dtype dtype,
                                 int peer, neo_ticket *ticket) {
    return neo__pair_issue(c, "neo_comm_send", data, count, dtype, peer, 0, ticket);
}
NEO_API neo_status neo_comm_recv(neo_comm *c, void *data, int64_t count, neo_dtype dtype, int peer,
                                 neo_ticket *ticket) {
    return neo__pair_issue(c, "neo_comm_recv", data, count, dtype, peer, 1, ticket);
}
NEO_API neo_status neo_comm_barrier(neo_comm *c, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_BARRIER, NULL, NULL, 0, NULL, NEO_F32);
    NEO__TRY(neo__comm_check(c, w.function));
    return neo__work_issue(c, &w, ticket);
}
/* ---- sums over leaves ---- */
static neo_status neo__check_leaves(const neo_comm *comm, const char *function) {
    NEO__CHECK(neo_ctx_repro_shards(comm->ctx) >= comm->size, NEO_ERR_ARG,
               "%s: repro_shards is %d, less than the %d ranks", function,
               neo_ctx_repro_shards(comm->ctx), comm->size);
    return NEO_OK;
}
/* A piece may hold out at its place, or be elsewhere. */
static neo_status neo__leaves_issue(neo_comm *comm, neo__work *w, const void *const *pieces,
                                    neo_ticket *ticket) {
    const neo_dtype dtype = (neo_dtype)w->call.dtype;
    NEO__TRY(neo__check_parts(comm, w));
    NEO__TRY(neo__check_data(w->function, "out", w->out, w->out_count, dtype));
    NEO__TRY(neo__check_leaves(comm, w->function));
    NEO__TRY(neo__check_reduce(w));
    NEO__CHECK(pieces, NEO_ERR_ARG, "%s: pieces is NULL", w->function);
    w->pieces = comm->tree.pieces_of[comm->rank + 1] - comm->tree.pieces_of[comm->rank];
    for (int k = 0; k < w->pieces; k++) {
        NEO__TRY(neo__check_data(w->function, "a piece", pieces[k], w->call.count, dtype));
        NEO__CHECK(
            neo__in_place(pieces[k], w->call.count, w->out, w->at, w->out_count, w->each),
            NEO_ERR_ARG, "%s: piece %d and out overlap, but not in place", w->function, k);
        w->piece[k] = pieces[k];
    }
    if (!comm->tree.one_each) w->call.root = (int32_t)comm->tree.shards;
    return neo__work_issue(comm, w, ticket);
}
NEO_API neo_status neo_comm_all_reduce_leaves(neo_comm *c, const void *const *pieces, void *out,
                                              int64_t count, neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_REDUCE, NULL, out, count, NULL, dtype);
    return neo__leaves_issue(c, &w, pieces, ticket);
}
NEO_API neo_status neo_comm_reduce_scatter_leaves(neo_comm *c, const void *const *pieces, void *out,
                                                  int64_t count, const int64_t *counts,
                                                  neo_dtype dtype, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_REDUCE_SCATTER, NULL, out, count, counts, dtype);
    return neo__leaves_issue(c, &w, pieces, ticket);
}
/* ---- rows ---- */
NEO_API size_t neo_comm_rows_bytes(const neo_comm *c, neo_wire wire, int64_t cols, neo_comm_op op,
                                   int64_t in_rows, int64_t out_rows) {
    size_t row = neo_wire_row_bytes(wire, cols), w = (size_t)c->size;
    if (in_rows < 0 || out_rows < 0 || cols < 1) return 0;
    switch (op) {
    case NEO_COMM_ALL_TO_ALL: return ((size_t)in_rows + (size_t)out_rows) * row;
    case NEO_COMM_ALL_GATHER: return (size_t)out_rows * row;
    case NEO_COMM_REDUCE_SCATTER: return ((size_t)in_rows + w * (size_t)out_rows) * row;
    default: return 0;
    }
}
/* w: the call with rows for elements. */
static neo_status neo__rows_issue(neo_comm *c, neo__work *w, const neo_rows *rows,
                                  neo_ticket *ticket) {
    NEO__TRY(neo__check_parts(c, w));
    const int64_t in_rows = w->in_count, out_rows = w->out_count;
    NEO__CHECK(rows, NEO_ERR_ARG, "%s: rows is NULL", w->function);
    NEO__CHECK(c->place == NEO_HOST || neo_ctx_device(c->ctx), NEO_ERR_UNSUPPORTED,
               "%s: the context's device codes the rows of a group over NCCL, and it has none "
               "(neo_comm_desc.open_device)", w->function);
    NEO__CHECK(c->place == NEO_HOST || !rows->stats, NEO_ERR_UNSUPPORTED,
               "%s: no statistics of rows that a device codes (stats must be NULL)", w->function);
    NEO__CHECK(rows->wire >= NEO_WIRE_F32 && rows->wire < NEO_WIRE_COUNT, NEO_ERR_ARG,
               "%s: no wire %d", w->function, (int)rows->wire);
    NEO__CHECK(rows->cols >= 1 && rows->cols <= INT32_MAX, NEO_ERR_ARG, "%s: cols is %" PRId64,
               w->function, rows->cols);
    NEO__CHECK(rows->exponent >= -126 && rows->exponent <= 126, NEO_ERR_ARG,
               "%s: exponent is %d, not in -126 .. 126", w->function, rows->exponent);
    NEO__CHECK(in_rows <= INT64_MAX / 16 / rows->cols && out_rows <= INT64_MAX / 16 / rows->cols,
               NEO_ERR_ARG, "%s: too many rows", w->function);
    NEO__TRY(neo__check_data(w->function, "in", w->in, in_rows * rows->cols, NEO_F32));
    NEO__TRY(neo__check_data(w->function, "out", w->out, out_rows * rows->cols, NEO_F32));
    size_t needs =
        neo_comm_rows_bytes(c, rows->wire, rows->cols, (neo_comm_op)w->call.op, in_rows, out_rows);
    NEO__CHECK(needs == 0 || (rows->workspace && rows->workspace_bytes >= needs), NEO_ERR_ARG,
               "%s: workspace of %zu bytes, needs %zu", w->function,
               rows->workspace ? rows->workspace_bytes : (size_t)0, needs);
    w->rows = *rows;
    w->each = neo_wire_row_bytes(rows->wire, rows->cols);
    w->call.wire = (int32_t)rows->wire + 1;
    w->call.exponent = (int32_t)rows->exponent;
    return neo__work_issue(c, w, ticket);
}
NEO_API neo_status neo_comm_all_to_allv_rows(neo_comm *c, const neo_rows *rows, const float *in,
                                             const int64_t *in_rows, float *out,
                                             const int64_t *out_rows, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_TO_ALL, in, out, 0, in_rows, NEO_F32);
    w.out_counts = out_rows;
    NEO__CHECK(in_rows && out_rows, NEO_ERR_ARG, "%s: in_rows or out_rows is NULL", w.function);
    return neo__rows_issue(c, &w, rows, ticket);
}
NEO_API neo_status neo_comm_all_gather_rows(neo_comm *c, const neo_rows *rows, const float *in,
                                            float *out, int64_t count, const int64_t *counts,
                                            neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_GATHER, in, out, count, counts, NEO_F32);
    return neo__rows_issue(c, &w, rows, ticket);
}
NEO_API neo_status neo_comm_reduce_scatter_rows(neo_comm *c, const neo_rows *rows, const float *in,
                                                float *out, int64_t count, const int64_t *counts,
                                                neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_REDUCE_SCATTER, in, out, count, counts, NEO_F32);
    return neo__rows_issue(c, &w, rows, ticket);
}
/* ---- two levels ---- */
static neo_status neo__check_2level(const char *function, const neo_comm *local,
                                    const neo_comm *cross, neo_reduce reduce, int64_t count,
                                    neo_dtype dtype) {
    NEO__CHECK(local && cross, NEO_ERR_ARG, "%s: local or cross is NULL", function);
    NEO__CHECK(local->place == cross->place, NEO_ERR_ARG,
               "%s: one of local and cross is a group of devices, the other is not", function);
    int floats = dtype != NEO_I8 && dtype != NEO_U8 && dtype != NEO_I32 && dtype != NEO_I64;
    NEO__CHECK(!floats || reduce != NEO_REDUCE_SUM || (local->size & (local->size - 1)) == 0,
               NEO_ERR_UNSUPPORTED,
               "%s: sums of floats over nodes of %d ranks would not have the bits of the flat "
               "call: that needs a power of two", function, local->size);
    const int64_t all = (int64_t)local->size * cross->size;
    NEO__CHECK(count >= 0 && count <= INT64_MAX / 16 / all, NEO_ERR_ARG, "%s: count is %" PRId64,
               function, count);
    return NEO_OK;
}
/* Ranks that wait in the other group must hear that this one has failed. */
static neo_status neo__2level_step(neo_comm *other, neo_status status) {
    const neo__kept_error kept = neo__error_keep(status);
    if (status != NEO_OK) neo_comm_abort(other, kept.text);
    return neo__error_restore(&kept);
}
NEO_API neo_status neo_comm_all_reduce_2level(neo_comm *local, neo_comm *cross, neo_reduce reduce,
                                              const void *in, void *out, int64_t count,
                                              neo_dtype dtype) {
    const neo__operand from = {"in", in, count}, to = {"out", out, count};
    NEO__TRY(neo__check_2level(__func__, local, cross, reduce, count, dtype));
    if (in != out) NEO__TRY(neo__check_operands(__func__, dtype, from, to));
    else NEO__TRY(neo__check_data(__func__, "in", in, count, dtype));
    int64_t *counts = neo__comm_counts(local);
    for (int p = 0; p < local->size; p++)
        counts[p] = count * (p + 1) / local->size - count * p / local->size;
    const int64_t part = counts[local->rank], at = count * local->rank / local->size;
    char *mine = (char *)out + (size_t)at * neo_dtype_size(dtype);
    NEO__TRY(neo__2level_step(
        cross, neo_comm_reduce_scatter(local, reduce, in, mine, 0, counts, dtype, NULL)));
    NEO__TRY(
        neo__2level_step(local, neo_comm_all_reduce(cross, reduce, mine, mine, part, dtype, NULL)));
    return neo__2level_step(cross, neo_comm_all_gather(local, mine, out, 0, counts, dtype, NULL));
}
/* Parts [h][l] -> [l][h], so that what goes to place l of every node lies together. */
static neo_status neo__by_place(neo_comm *c, void *out, const void *in, int nodes, int places,
                                int64_t count, neo_dtype dtype) {
    const size_t bytes = (size_t)count * neo_dtype_size(dtype);
    const char *from = (const char *)in;
    char *to = (char *)out;
    if (bytes == 0) return NEO_OK;
    if (c->transport->come) NEO__TRY(c->transport->come(c));
    if (c->place == NEO_DEVICE && neo_ctx_device(c->ctx)) {
        const int64_t shape[3] = {places, nodes, count};
        neo_tensor src = neo_tensor_nd((void *)(uintptr_t)in, dtype, 3, shape);
        neo_tensor dst = neo_tensor_nd(out, dtype, 3, shape);
        src.stride[0] = count;
        src.stride[1] = places * count;
        src.place = dst.place = NEO_DEVICE;
        return neo_tensor_copy(c->ctx, src, dst);
    }
    for (int l = 0; l < places; l++)
        for (int h = 0; h < nodes; h++) {
            const char *part = from + (size_t)(h * places + l) * bytes;
            NEO__TRY(neo__copy_part(c, NULL, to + (size_t)(l * nodes + h) * bytes, part, 1, bytes));
        }
    if (c->transport->settle) NEO__TRY(c->transport->settle(c));
    return NEO_OK;
}
/* The same; a rank whose device fails at this leaves both groups. */
static neo_status neo__2level_sort(neo_comm *local, neo_comm *cross, void *out, const void *in,
                                   int nodes, int places, int64_t count, neo_dtype dtype) {
    neo_status status = neo__by_place(local, out, in, nodes, places, count, dtype);
    return neo__2level_step(local, neo__2level_step(cross, status));
}
NEO_API neo_status neo_comm_reduce_scatter_2level(neo_comm *local, neo_comm *cross,
                                                  neo_reduce reduce, const void *in, void *out,
                                                  int64_t count, neo_dtype dtype, void *workspace) {
    NEO__TRY(neo__check_2level(__func__, local, cross, reduce, count, dtype));
    const int64_t whole = count * local->size * cross->size;
    const neo__operand from = {"in", in, whole}, to = {"out", out, count};
    const neo__operand work = {"workspace", workspace, whole};
    NEO__TRY(neo__check_operands(__func__, dtype, from, work));
    NEO__TRY(neo__check_operands(__func__, dtype, to, work));
    char *sorted = (char *)workspace;
    char *mine = sorted + (size_t)(local->rank * count * cross->size) * neo_dtype_size(dtype);
    const int64_t part = count * cross->size;
    NEO__TRY(neo__2level_sort(local, cross, sorted, in, cross->size, local->size, count, dtype));
    NEO__TRY(neo__2level_step(
        cross, neo_comm_reduce_scatter(local, reduce, sorted, mine, part, NULL, dtype, NULL)));
    return neo__2level_step(
        local, neo_comm_reduce_scatter(cross, reduce, mine, out, count, NULL, dtype, NULL));
}
NEO_API neo_status neo_comm_all_to_all_2level(neo_comm *local, neo_comm *cross, const void *in,
                                              void *out, int64_t count, neo_dtype dtype,
                                              void *workspace) {
    NEO__TRY(neo__check_2level(__func__, local, cross, NEO_REDUCE_MAX, count, dtype));
    const int places = local->size, nodes = cross->size;
    const int64_t whole = count * places * nodes;
    const neo__operand from = {"in", in, whole}, to = {"out", out, whole};
    const neo__operand work = {"workspace", workspace, whole};
    NEO__TRY(neo__check_operands(__func__, dtype, from, to));
    NEO__TRY(neo__check_operands(__func__, dtype, from, work));
    NEO__TRY(neo__check_operands(__func__, dtype, to, work));
    /* workspace [l][h]: to place l; after the first exchange out [l][h]: from place l of this node,
       for node h; turned to workspace [h][l]: for node h, from place l. */
    NEO__TRY(neo__2level_sort(local, cross, workspace, in, nodes, places, count, dtype));
    NEO__TRY(neo__2level_step(
        cross, neo_comm_all_to_all(local, workspace, out, count * nodes, dtype, NULL)));
    NEO__TRY(neo__2level_sort(local, cross, workspace, out, places, nodes, count, dtype));
    return neo__2level_step(
        local, neo_comm_all_to_all(cross, workspace, out, count * places, dtype, NULL));
}
/* ---------------------------------------------------------------------------
   >>impl-comm-data

   Standard input. The threads of all ranks go through rounds together. In a round each says one
   word: that it has room for a block, that it has none, that it closes; rank 0 also how many bytes
   it has read, the end, or an error. All come to the same by these words: rank 0's block goes to
   all, or nothing happens (then they sleep, longer the longer it lasts, up to 20 ms), or the input
   ends here. As threads always answer, a reader may leave its ring full for as long as it likes.
   ------------------------------------------------------------------------ */
enum {
    NEO__AGREE_BYTES = 512,
    NEO__AGREE_LIST = 8, /* ranks named in a message */
    NEO__INPUT_BLOCK = 256 << 10,
    NEO__INPUT_BLOCKS = 4,
    NEO__INPUT_READ_MS = 50,      /* a reader waits for bytes */
    NEO__INPUT_NAP_NS = 200000,   /* the first sleep after a round in which nothing moved */
    NEO__INPUT_NAP_DOUBLINGS = 6, /* and the last */
    NEO__INPUT_NAME = 200         /* of a path, in messages */
};
/* ---- agreement ---- */
/* A rank's message for all, and back into neo_last_error. */
static neo_status neo__agree_on_error(neo_comm *comm, int root, neo_status status) {
    char text[NEO__AGREE_BYTES];
    memset(text, 0, sizeof text);
    if (comm->rank == root) {
        const char *mine = neo_last_error();
        if (!mine[0]) mine = neo_status_string(status);
        if (strncmp(mine, "rank ", 5) == 0) snprintf(text, sizeof text, "%s", mine);
        else snprintf(text, sizeof text, "rank %d: %s", comm->world[comm->rank], mine);
    }
    comm->next.on_host = 1;
    NEO__TRY(neo_comm_broadcast(comm, text, (int64_t)sizeof text, NEO_U8, root, NULL));
    text[sizeof text - 1] = 0;
    return neo_fail(status, "%s", text);
}
static neo_status neo__agree_on_end(const neo_comm *comm, const int64_t *word, int ended) {
    neo__call_text list;
    int named = 0;
    list.text[0] = 0;
    for (int p = 0; p < comm->size && named <= NEO__AGREE_LIST; p++) {
        if (word[p] != (int64_t)NEO_END) continue;
        const char *comma = named++ ? ", " : "";
        if (named > NEO__AGREE_LIST) neo__append(list.text, sizeof list.text, "%s...", comma);
        else neo__append(list.text, sizeof list.text, "%s%d", comma, comm->world[p]);
    }
    return neo_fail(
        NEO_ERR_DIVERGED,
        "neo_comm_agree: %d of %d ranks have come to the end, the others have not: rank%s %s",
        ended, comm->size, ended == 1 ? "" : "s", list.text);
}
/* To the group for numbers on the host. Over NCCL operations in flight use it too. */
static neo_status neo__comm_to_host(neo_comm **comm, const char *function) {
    neo_comm *c = *comm;
    NEO__CHECK_LIVE(c, function, "comm");
    neo_comm_label(c, NULL); /* of a call that was refused on this rank alone */
    *comm = neo_comm_host(c);
    if (*comm == c) return NEO_OK;
    NEO__TRY(neo__comm_drain(c, c->queue.issued));
    return neo__comm_check(c, function);
}
NEO_API neo_status neo_comm_agree(neo_comm *comm, neo_status mine) {
    NEO__TRY(neo__comm_to_host(&comm, __func__));
    int64_t *word = neo__comm_counts(comm), own = (int64_t)mine;
    int ended = 0;
    comm->next.on_host = 1;
    NEO__TRY(neo_comm_all_gather(comm, &own, word, 1, NULL, NEO_I64, NULL));
    for (int p = 0; p < comm->size; p++) {
        if (word[p] != (int64_t)NEO_OK && word[p] != (int64_t)NEO_END)
            return neo__agree_on_error(comm, p, (neo_status)word[p]);
        ended += word[p] == (int64_t)NEO_END;
    }
    if (ended == 0) return NEO_OK;
    return ended == comm->size ? NEO_END : neo__agree_on_end(comm, word, ended);
}
static neo_status neo__group_agree(void *user, neo_status mine) {
    return neo_comm_agree((neo_comm *)user, mine);
}
static neo_status neo__group_sum(void *user, uint64_t *words, int count) {
    neo_comm *comm = (neo_comm *)user;
    NEO__TRY(neo__comm_to_host(&comm, "neo_comm_group"));
    comm->next.on_host = 1;
    return neo_comm_all_reduce(comm, NEO_REDUCE_SUM, words, words, count, NEO_I64, NULL);
}
static void neo__group_patient(void *user, int on) {
    __atomic_store_n(&neo_comm_host((neo_comm *)user)->patient, on, __ATOMIC_RELAXED);
}
static neo_status neo__group_pass(void *user, int from, int to, void *data, size_t bytes) {
    neo_comm *comm = (neo_comm *)user;
    NEO__TRY(neo__comm_to_host(&comm, "neo_comm_group"));
    comm->next.on_host = 1;
    if (comm->rank == from) return neo_comm_send(comm, data, (int64_t)bytes, NEO_U8, to, NULL);
    return neo_comm_recv(comm, data, (int64_t)bytes, NEO_U8, from, NULL);
}
static neo_status neo__group_sum_there(void *user, int64_t *words, int count) {
    return neo_comm_all_reduce((neo_comm *)user, NEO_REDUCE_SUM, words, words, count, NEO_I64,
                               NULL);
}
NEO_API neo_group neo_comm_group(neo_comm *comm) {
    neo_group group;
    group.rank = comm->rank;
    group.size = comm->size;
    group.user = comm;
    group.agree = neo__group_agree;
    group.sum = neo__group_sum;
    group.patient = neo__group_patient;
    group.pass = neo__group_pass;
    group.sum_there = comm->scratch.passes ? neo__group_sum_there : NULL;
    return group;
}
/* ---- samples ---- */
/* Samples of rank r: their number, and the first. */
static int64_t neo__samples_of(const neo_comm *comm, int r, int64_t batch, int64_t *first) {
    int begin, end;
    neo__comm_leaves(comm->tree.shards, comm->size, r, &begin, &end);
    *first = neo_leaf_begin(batch, comm->tree.shards, begin);
    return neo_leaf_begin(batch, comm->tree.shards, end) - *first;
}
NEO_API neo_status neo_comm_samples(const neo_comm *comm, int64_t batch, int64_t *first,
                                    int64_t *count) {
    NEO__CHECK(comm && first && count, NEO_ERR_ARG, "%s: an argument is NULL", __func__);
    NEO__CHECK(batch >= 0, NEO_ERR_ARG, "%s: a batch of %" PRId64, __func__, batch);
    NEO__TRY(neo__check_leaves(comm, __func__));
    *count = neo__samples_of(comm, comm->rank, batch, first);
    return NEO_OK;
}
NEO_API neo_status neo_comm_gather_samples(neo_comm *comm, const void *in, void *out, int64_t batch,
                                           int64_t cols, neo_dtype dtype, int root,
                                           neo_ticket *ticket) {
    NEO__TRY(neo__comm_check(comm, __func__));
    NEO__TRY(neo__check_leaves(comm, __func__));
    NEO__CHECK(batch >= 0 && cols >= 0 && (cols == 0 || batch <= INT64_MAX / 16 / cols),
               NEO_ERR_ARG, "%s: %" PRId64 " samples of %" PRId64 " numbers", __func__, batch,
               cols);
    int64_t *counts = neo__comm_counts(comm), first;
    for (int p = 0; p < comm->size; p++) counts[p] = cols * neo__samples_of(comm, p, batch, &first);
    return neo_comm_gather(comm, in, out, 0, counts, dtype, root, ticket);
}
/* ---- standard input ---- */
/* A rank's word in a round; from rank 0 also a number of bytes, 0 for none yet. */
enum { NEO__INPUT_FULL = -1, NEO__INPUT_CLOSES = -2, NEO__INPUT_END = -3, NEO__INPUT_FAILS = -4 };
struct neo_comm_input {
    neo_comm *group; /* of the thread */
    neo__live live;
    neo__thread thread;
    int thread_runs;
    neo__mutex lock;
    neo__cond changed;
    char data[NEO__INPUT_BLOCKS][NEO__INPUT_BLOCK]; /* a ring */
    int64_t put, got; /* blocks; those in [got, put) are the reader's */
    size_t bytes[NEO__INPUT_BLOCKS], at; /* in block `got`: taken */
    int quit;
    neo_status end; /* NEO_OK: not yet */
    char text[NEO__AGREE_BYTES];
    /* rank 0: where from, what it has read into block `put`, and what came of that */
    int file;
    char name[NEO__INPUT_NAME];
    size_t pending;
    neo_status source;
};
/* Bytes, if some come in time. */
static void neo__input_take(neo_comm_input *in, int wait_ms) {
#if defined(_WIN32)
    (void)wait_ms;
    in->source = NEO_END;
#else
    struct pollfd wait;
    wait.fd = in->file;
    wait.events = POLLIN;
    wait.revents = 0;
    if (poll(&wait, 1, wait_ms) <= 0) return;
    ssize_t n = read(in->file, in->data[in->put % NEO__INPUT_BLOCKS], NEO__INPUT_BLOCK);
    if (n > 0) {
        in->pending = (size_t)n;
    } else if (n == 0) {
        in->source = NEO_END;
    } else if (errno != EINTR && errno != EAGAIN) {
        in->source = NEO_ERR_IO;
        snprintf(in->text, sizeof in->text, "%s: rank %d cannot read: %s", in->name,
                 in->group->world[0], strerror(errno));
    }
#endif
}
/* This rank's word in a round; idle: rounds in which nothing has moved. */
static int64_t neo__input_word(neo_comm_input *in, int idle) {
    neo__mutex_lock(&in->lock);
    int quit = in->quit, full = in->put - in->got == NEO__INPUT_BLOCKS;
    neo__mutex_unlock(&in->lock);
    if (quit) return NEO__INPUT_CLOSES;
    if (full) return NEO__INPUT_FULL;
    if (in->group->rank != 0) return 0;
    if (in->source == NEO_OK && in->pending == 0)
        neo__input_take(in, (int)(((int64_t)NEO__INPUT_NAP_NS << idle) / 1000000));
    if (in->source == NEO_END) return NEO__INPUT_END;
    if (in->source != NEO_OK) return NEO__INPUT_FAILS;
    return (int64_t)in->pending;
}
static void neo__input_nap(neo_comm_input *in, int idle) {
    int64_t until = neo_time_ns() + ((int64_t)NEO__INPUT_NAP_NS << idle);
    neo__mutex_lock(&in->lock);
    int full = in->put - in->got == NEO__INPUT_BLOCKS;
    int waits = in->group->rank == 0 && in->pending == 0 && !full; /* for bytes, instead */
    while (!waits && !in->quit && neo__cond_wait_until(&in->changed, &in->lock, until)) continue;
    neo__mutex_unlock(&in->lock);
}
/* One round. NEO_OK: there will be another; *moved: a block has come. Else how the input ends. */
static neo_status neo__input_round(neo_comm_input *in, int idle, int *moved) {
    neo_comm *group = in->group;
    int64_t mine = neo__input_word(in, idle), *word = neo__comm_counts(group);
    int full = 0;
    *moved = 0;
    NEO__TRY(neo_comm_all_gather(group, &mine, word, 1, NULL, NEO_I64, NULL));
    for (int p = 0; p < group->size; p++) {
        full |= word[p] == NEO__INPUT_FULL;
        if (word[p] == NEO__INPUT_CLOSES)
            return neo_fail(NEO_ERR_PEER, "standard input: rank %d has closed it before its end",
                            group->world[p]);
    }
    const int64_t count = word[0];
    if (count == NEO__INPUT_END) return NEO_END;
    if (count == NEO__INPUT_FAILS) {
        NEO__TRY(neo_comm_broadcast(group, in->text, NEO__AGREE_BYTES, NEO_U8, 0, NULL));
        in->text[NEO__AGREE_BYTES - 1] = 0;
        return neo_fail(NEO_ERR_IO, "%s", in->text);
    }
    if (full || count <= 0) return NEO_OK;
    int block = (int)(in->put % NEO__INPUT_BLOCKS);
    NEO__TRY(neo_comm_broadcast(group, in->data[block], count, NEO_U8, 0, NULL));
    neo__mutex_lock(&in->lock);
    in->bytes[block] = (size_t)count;
    in->put++;
    neo__cond_broadcast(&in->changed);
    neo__mutex_unlock(&in->lock);
    in->pending = 0;
    *moved = 1;
    return NEO_OK;
}
static void neo__input_main(void *arg) {
    neo_comm_input *in = (neo_comm_input *)arg;
    neo_status status = NEO_OK;
    int idle = 0, moved = 1;
    while (status == NEO_OK) {
        if (!moved) neo__input_nap(in, idle);
        status = neo__input_round(in, idle, &moved);
        idle = moved ? 0 : idle < NEO__INPUT_NAP_DOUBLINGS ? idle + 1 : idle;
    }
    neo__mutex_lock(&in->lock);
    in->end = status;
    if (status != NEO_END) snprintf(in->text, sizeof in->text, "%s", neo_last_error());
    neo__cond_broadcast(&in->changed);
    neo__mutex_unlock(&in->lock);
}
static neo_status neo__input_read(void *user, void *buffer, size_t bytes, size_t *got) {
    neo_comm_input *in = (neo_comm_input *)user;
    int64_t until = neo_time_ns() + (int64_t)NEO__INPUT_READ_MS * 1000000;
    *got = 0;
    neo__mutex_lock(&in->lock);
    while (in->got == in->put && in->end == NEO_OK &&
           neo__cond_wait_until(&in->changed, &in->lock, until))
        continue;
    if (in->got == in->put) {
        neo_status end = in->end; /* in->text does not change any more */
        neo__mutex_unlock(&in->lock);
        return end == NEO_OK || end == NEO_END ? end : neo_fail(end, "%s", in->text);
    }
    int block = (int)(in->got % NEO__INPUT_BLOCKS);
    size_t left = in->bytes[block] - in->at;
    *got = left < bytes ? left : bytes;
    neo__mutex_unlock(&in->lock); /* the block is the reader's until it is given back */
    memcpy(buffer, in->data[block] + in->at, *got);
    in->at += *got;
    if (*got < left) return NEO_OK;
    in->at = 0;
    neo__mutex_lock(&in->lock);
    in->got++;
    neo__mutex_unlock(&in->lock);
    return NEO_OK;
}
NEO_API neo_input neo_comm_input_source(neo_comm_input *input) {
    const neo_input source = {neo__input_read, input};
    return source;
}
NEO_API void neo_comm_input_close(neo_comm_input *in) {
    if (!in) return;
    neo__live_end(in->group->ctx, &in->live);
    if (in->thread_runs) {
        neo__mutex_lock(&in->lock);
        in->quit = 1;
        neo__cond_broadcast(&in->changed);
        neo__mutex_unlock(&in->lock);
        neo__thread_join(&in->thread);
    }
    neo_ctx *ctx = in->group->ctx;
    neo_comm_destroy(in->group);
#if !defined(_WIN32)
    if (in->file > 0) close(in->file);
#endif
    neo__mutex_destroy(&in->lock);
    neo__cond_destroy(&in->changed);
    neo_free(ctx, in, sizeof *in);
}
/* This rank's part; the group is the input's from here on. */
static neo_status neo__input_new(neo_comm *group, const char *path, neo_comm_input **out) {
    neo_comm_input *in = (neo_comm_input *)neo_alloc(group->ctx, sizeof *in);
    if (!in) {
        neo_comm_abort(group, "no memory");
        neo_comm_destroy(group);
        return neo_fail(NEO_ERR_MEMORY, "neo_comm_input_open: no memory for %d bytes",
                        (int)NEO__INPUT_BLOCKS * (int)NEO__INPUT_BLOCK);
    }
    memset(in, 0, sizeof *in);
    in->group = group;
    in->file = -1;
    neo__mutex_init(&in->lock);
    neo__cond_init(&in->changed);
    *out = in;
    snprintf(in->name, sizeof in->name, "%s", path ? path : "standard input");
#if !defined(_WIN32) /* opening a named pipe does not wait for its writer; reading does */
    if (group->rank == 0) {
        in->file = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : 0;
        NEO__CHECK(in->file >= 0, errno == ENOENT ? NEO_ERR_NOT_FOUND : NEO_ERR_IO,
                   "neo_comm_input_open: %s: %s", in->name, strerror(errno));
    }
#endif
    in->thread_runs = neo__thread_create(&in->thread, neo__input_main, in);
    NEO__CHECK(in->thread_runs, NEO_ERR_SYSTEM, "neo_comm_input_open: cannot start a thread: %s",
               strerror(errno));
    return NEO_OK;
}
NEO_API neo_status neo_comm_input_open(neo_comm *comm, const char *path, neo_comm_input **input) {
    NEO__CHECK(comm && input, NEO_ERR_ARG, "neo_comm_input_open: comm or input is NULL");
    *input = NULL;
    NEO__CHECK(!comm->host, NEO_ERR_UNSUPPORTED,
               "neo_comm_input_open: not on a group of devices: use the group it was made from");
    NEO__CHECK(!comm->queue.inline_only, NEO_ERR_UNSUPPORTED,
               "neo_comm_input_open: MPI was started without MPI_THREAD_SERIALIZED");
    NEO__CHECK(!comm->clock, NEO_ERR_UNSUPPORTED, "neo_comm_input_open: not with a virtual clock");
#if defined(_WIN32) /* a read cannot be waited for with a time limit */
    return neo_fail(NEO_ERR_UNSUPPORTED, "neo_comm_input_open: not on Windows");
#endif
    neo_comm *group = NULL;
    neo_comm_input *in = NULL;
    NEO__TRY(neo_comm_split(comm, 0, comm->rank, &group));
    neo_status status = neo_comm_agree(comm, neo__input_new(group, path, &in));
    if (status == NEO_OK) {
        neo__live_begin(comm->ctx, &in->live, "comm_input", in->name);
        neo__live_end(comm->ctx, &group->live); /* a part of it */
        *input = in;
        return NEO_OK;
    }
    const neo__kept_error kept = neo__error_keep(status);
    if (in && !in->thread_runs) neo_comm_abort(in->group, kept.text); /* other ranks' wait for it */
    neo_comm_input_close(in);
    return neo__error_restore(&kept);
}
/* ---------------------------------------------------------------------------
   >>impl-threads

   Ranks of one process. A rank has a seat in each group: for every rank that may send to it a ring
   of messages, and a lock to sleep on. A message is only a pointer to the sender's memory: the
   receiver copies from there, or adds straight from there (a view), and then tells the sender,
   which waits until its memory is not read any more. `posted` is written by the sender, `taken` by
   the receiver. A seat, and memory that is lent, lives until every rank of the group has left it.

   Before a rank returns from a broken group, whose others may read what it has posted, it tells all
   seats, and waits for those that read from it just now. A receiver first says that it reads, then
   looks whether it was told; so one of the two sees the other.
   ------------------------------------------------------------------------ */
typedef struct neo__message {
    neo__call call;
    const void *data;
    size_t bytes, whole; /* as of neo__xfer */
    int64_t arrives_ns;  /* atomic; by the link model; 0: at once */
    void *event, *stop;  /* of a recorded step: the sender's mark, its word; else NULL */
    void *copied, *took; /* the receiver's event; NULL, or it: behind its copy */
} neo__message;
typedef struct neo__ring { /* what one rank writes and another reads has a cache line of its own */
    neo__message *message;
    uint64_t posted, sends; /* posted, taken: atomic; sends, receives: each rank's own numbering */
    uint64_t apart[6], taken, apart_too[7], receives;
    int64_t reading, rest[5]; /* atomic: messages that the receiver looks at just now */
} neo__ring;
/* Meeting place of the survivors of a broken group: the seat of its first rank. */
typedef struct neo__rally {
    int asked, closed;
    struct neo__seat **member; /* [size] the new seat of each rank that has asked */
    int *in;            /* [size] its number in the new group, or -1 */
} neo__rally;
typedef struct neo__seat {
    neo_ctx *ctx;
    size_t bytes;
    int size, ring_length;
    int references; /* atomic */
    int left;       /* atomic: the rank does not take part any more */
    int64_t loan;   /* atomic: the last one that it is done with */
    void *heirloom; /* memory that goes with the seat */
    size_t heirloom_bytes;
    neo__mutex lock;
    neo__cond wake;
    int64_t events; /* atomic: changes that the rank may wait for */
    int sleeps;     /* atomic: it is about to, or does */
    int told;       /* atomic: the group is broken, for this reason */
    neo_status told_status;
    char told_message[NEO__COMM_MESSAGE]; /* it parts what others read from what is written often */
    int waits_for;  /* atomic: 1 + the rank it waits for, negated in its queue's thread; 0: none */
    int64_t waits_in; /* atomic: its call then (neo__call_key) */
    /* Link model, of the rank's own: when its last message has left; since when messages arrive
       without a pause, when the last of them has, and how long they all take. */
    int64_t leaves_at[NEO_LEVEL_COUNT], busy_from[NEO_LEVEL_COUNT], busy_until[NEO_LEVEL_COUNT],
        busy_for[NEO_LEVEL_COUNT];
    neo__rally rally;
    struct neo__seat *next; /* in the job's list */
    struct neo__job *job;
    neo__ring *ring; /* [size] from each rank */
} neo__seat;
static size_t neo__seat_layout(neo__seat *seat, char *block, int size, int ring_length) {
    neo__carve at = {block, 0};
    const size_t n = (size_t)size, length = (size_t)ring_length;
    neo__seat *self;
    neo__message *message;
    NEO__CARVE(&at, self, 1);
    NEO__CARVE(&at, seat->ring, n);
    NEO__CARVE(&at, message, n * length);
    NEO__CARVE(&at, seat->rally.member, n);
    NEO__CARVE(&at, seat->rally.in, n);
    for (size_t r = 0; block && r < n; r++) seat->ring[r].message = message + r * length;
    return at.at;
}
static size_t neo__seat_bytes(int size, int ring_length) {
    neo__seat p;
    return neo__seat_layout(&p, NULL, size, ring_length);
}
/* All seats of a job that are not freed yet: a group that breaks while it is made leaves some that
   no rank can be sure to be the last to look at. */
typedef struct neo__job {
    neo_comm_desc desc;
    neo_comm_fn fn;
    void *user;
    int ranks, started;
    int64_t failures; /* atomic */
    struct neo__rank_thread *rank;
    neo__clock *clock; /* NULL: the real one; else &time */
    neo__clock time;
    neo__mutex lock; /* of the list */
    neo__seat *seats;
} neo__job;
typedef struct neo__rank_thread {
    struct neo__job *job;
    int rank;
    neo__thread thread;
    neo_device *device; /* opened for it */
    neo_ctx *ctx;
    neo_comm *comm;
    neo_status status;
    int64_t order; /* in which it failed; 0: it did not */
    char message[NEO__COMM_MESSAGE];
} neo__rank_thread;
static void neo__seat_free(neo__seat *p) {
    for (int i = 0; i < p->size * p->ring_length; i++)
        neo__event_free(p->ctx, p->ring[0].message[i].copied);
    neo__mutex_destroy(&p->lock);
    neo__cond_destroy(&p->wake);
    neo_free(p->ctx, p->heirloom, p->heirloom_bytes);
    neo_free(p->ctx, p, p->bytes);
}
static neo__seat *neo__seat_new(neo__job *job, neo_ctx *ctx, int size, int ring_length) {
    size_t bytes = neo__seat_bytes(size, ring_length);
    neo__seat *seat = (neo__seat *)neo__comm_alloc(ctx, bytes);
    if (!seat) return NULL;
    (void)neo__seat_layout(seat, (char *)seat, size, ring_length);
    seat->ctx = ctx;
    seat->bytes = bytes;
    seat->size = size;
    seat->ring_length = ring_length;
    seat->references = size;
    neo__mutex_init(&seat->lock);
    neo__cond_init(&seat->wake);
    seat->job = job;
    neo__mutex_lock(&job->lock);
    seat->next = job->seats;
    job->seats = seat;
    neo__mutex_unlock(&job->lock);
    return seat;
}
static void neo__seat_drop(neo__seat *p) {
    if (__atomic_sub_fetch(&p->references, 1, __ATOMIC_ACQ_REL) > 0) return;
    neo__mutex_lock(&p->job->lock);
    neo__seat **at = &p->job->seats;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    neo__mutex_unlock(&p->job->lock);
    neo__seat_free(p);
}
NEO__HOT_BEGIN
static void neo__seat_wake(neo__seat *p) {
    neo__mutex_lock(&p->lock);
    __atomic_fetch_add(&p->events, 1, __ATOMIC_RELEASE);
    neo__clock_wake(p->job->clock, &p->wake);
    neo__mutex_unlock(&p->lock);
}
/* A number of a ring, for the seat's rank. This one writes it, then looks whether the other sleeps;
   the other says so, then looks at the number once more: so one of the two sees. */
NEO__INLINE void neo__seat_post(neo__seat *p, uint64_t *number, uint64_t value) {
    __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&p->sleeps, __ATOMIC_SEQ_CST)) neo__seat_wake(p);
}
#define NEO__POSTED(number) __atomic_load_n(&(number), __ATOMIC_SEQ_CST)
/* Sleep until something has changed since `seen` (1), or the time has come (0; if 0: never). */
static int neo__seat_sleep(neo__seat *p, int64_t seen, int64_t until_ns, int order) {
    int in_time = 1;
    neo__mutex_lock(&p->lock);
    while (in_time && NEO__SEE(p->events) == seen)
        in_time = neo__clock_wait(p->job->clock, &p->wake, &p->lock, until_ns, order);
    neo__mutex_unlock(&p->lock);
    return in_time;
}
/* At the same moment messages arrive before timeouts strike. */
static int neo__comm_order(const neo_comm *c, int timeout) {
    return c->world[c->rank] + (timeout ? NEO__COMM_MAX_RANKS : 0);
}
static int neo__threads_heard(neo_comm *c) {
    neo__seat *p = c->threads.seat[c->rank];
    if (!__atomic_load_n(&p->told, __ATOMIC_SEQ_CST)) return 0;
    (void)neo__comm_mark(c, p->told_status, p->told_message);
    return 1;
}
static void neo__threads_tell(neo_comm *comm) {
    for (int r = 0; r < comm->size; r++) {
        neo__seat *p = comm->threads.seat[r];
        neo__mutex_lock(&p->lock);
        if (!p->told) {
            p->told_status = comm->failure.status;
            memcpy(p->told_message, comm->failure.message, sizeof p->told_message);
            __atomic_store_n(&p->told, 1, __ATOMIC_SEQ_CST);
        }
        neo__mutex_unlock(&p->lock);
        neo__seat_wake(p);
    }
}
static int64_t neo__link_ns(const neo_link *link, size_t bytes) {
    return link->bandwidth > 0 ? (int64_t)((double)bytes * 1e9 / link->bandwidth) : 0;
}
static neo_level neo__comm_level(const neo_comm *c, int peer) {
    return c->node[peer] == c->node[c->rank] ? NEO_LEVEL_LOCAL : NEO_LEVEL_CROSS;
}
/* How long a rank waits for another. Time in which this process was stopped does not count: it
   looks at the clock every NEO__COMM_LOOK_NS; if more than twice that is gone, it did not run. */
typedef struct neo__limit {
    int64_t at_ns; /* 0: never */
    int64_t seen_ns;
} neo__limit;
static int neo__comm_timeout_ms(const neo_comm *c) {
    const int64_t ms = c->desc.timeout_ms;
    if (ms <= 0 || !__atomic_load_n(&c->patient, __ATOMIC_RELAXED)) return c->desc.timeout_ms;
    return (int)NEO__MIN(10 * ms, (int64_t)INT32_MAX);
}
static neo__limit neo__limit_in(const neo__clock *k, int64_t timeout_ms) {
    neo__limit l;
    l.seen_ns = neo__clock_now(k);
    l.at_ns = timeout_ms > 0 ? l.seen_ns + timeout_ms * 1000000 : 0;
    return l;
}
static neo__limit neo__comm_limit(const neo_comm *c) {
    return neo__limit_in(c->clock, neo__comm_timeout_ms(c));
}
static int neo__limit_is_over(const neo__clock *k, neo__limit *l) {
    const int64_t now = neo__clock_now(k), gone = now - l->seen_ns;
    if (l->at_ns && gone > 2 * NEO__COMM_LOOK_NS) l->at_ns += gone;
    l->seen_ns = now;
    return l->at_ns && now >= l->at_ns;
}
/* When to look again; 0: never. */
static int64_t neo__limit_look(const neo__limit *l) {
    return l->at_ns ? NEO__MIN(l->at_ns, l->seen_ns + NEO__COMM_LOOK_NS) : 0;
}
/* neo__seat_sleep, also until the time of a look; 0: the limit is over. */
static int neo__seat_wait(const neo_comm *c, neo__seat *p, int64_t seen, neo__limit *l) {
    int woken = neo__seat_sleep(p, seen, neo__limit_look(l), neo__comm_order(c, 1));
    return !neo__limit_is_over(c->clock, l) || woken;
}
static int64_t neo__call_key(const neo__call *call) { return call->sequence * 256 + call->op; }
/* The first in another call, where all ranks wait and most are in this rank's; else `peer`. */
static int neo__threads_odd(neo_comm *c, const neo__call *call, int peer) {
    int odd = peer, others = 0;
    for (int r = c->size - 1; r >= 0; r--) {
        int64_t key = NEO__SEE(c->threads.seat[r]->waits_in);
        if (r == c->rank || key == neo__call_key(call)) continue;
        odd = r;
        others++;
    }
    return 2 * others < c->size ? odd : peer;
}
/* 1 + the rank of the job that a rank waits for, here or by its own thread elsewhere; 0: none.
   in: its call then. */
static int neo__threads_waits(neo_comm *comm, int rank, neo__call_text *in) {
    neo__job *job = comm->threads.job;
    const char *group = "";
    int found = 0;
    int64_t key = 0;
    for (int r = 0; r < comm->size; r++) {
        if (comm->world[r] != rank) continue;
        found = abs(NEO__SEE(comm->threads.seat[r]->waits_for));
        key = NEO__SEE(comm->threads.seat[r]->waits_in);
    }
    neo__mutex_lock(&job->lock);
    for (neo__seat *p = job->seats; p && !found; p = p->next) {
        if (p->ctx != job->rank[rank].ctx) continue;
        found = NEO__MAX(0, NEO__SEE(p->waits_for));
        key = NEO__SEE(p->waits_in);
        group = " of another group";
    }
    neo__mutex_unlock(&job->lock);
    snprintf(in->text, sizeof in->text, "%s%s #%" PRId64 "%s", neo__op_names[key % 256],
             key % 256 == (int)NEO_COMM_SEND ? "/recv" : "", key / 256, group);
    return found;
}
static neo_status neo__threads_late(neo_comm *c, const neo__call *call, const neo__xfer *x) {
    if (NEO__SEE(c->threads.seat[x->peer]->left))
        return neo__comm_break(c, call, NEO_ERR_PEER, "rank %d has left", c->world[x->peer]);
    const int mine = c->world[c->rank];
    neo__call_text in;
    int last = c->world[x->peer], next = -1; /* it may wait for another: which waits for nobody? */
    for (int hop = 0; hop < c->threads.job->ranks && next != mine; hop++) {
        next = neo__threads_waits(c, last, &in) - 1;
        if (next < 0) break;
        if (next != mine) last = next;
    }
    char also[200] = "";
    if (next >= 0) { /* a ring */
        last = c->world[neo__threads_odd(c, call, x->peer)];
        next = neo__threads_waits(c, last, &in) - 1;
        if (next >= 0)
            snprintf(also, sizeof also, "; it waits for rank %d in %s", next, in.text);
    }
    return neo__comm_break(c, call, NEO_ERR_TIMEOUT, "rank %d did not come within %d ms%s", last,
                           neo__comm_timeout_ms(c), also);
}
/* A send that the other reads just now, or that the link model holds back. */
static int neo__threads_on_its_way(neo_comm *c, const neo__xfer *x) {
    return x->send && (NEO__SEE(x->ring->reading) > 0 ||
                       NEO__SEE(x->message->arrives_ns) > neo__clock_now(c->clock));
}
static void neo__seat_waits(neo_comm *c, const neo__call *call, int rank) {
    const int found = c->queue.serves ? -rank - 1 : rank + 1;
    __atomic_store_n(&c->threads.seat[c->rank]->waits_in, neo__call_key(call), __ATOMIC_RELEASE);
    __atomic_store_n(&c->threads.seat[c->rank]->waits_for, found, __ATOMIC_RELEASE);
}
static neo_status neo__threads_send(neo_comm *comm, const neo__call *call, neo__xfer *x) {
    neo__seat *mine = comm->threads.seat[comm->rank], *theirs = comm->threads.seat[x->peer];
    neo__limit limit = {0, 0};
    int in_time = 1;
    x->done = neo__comm_fault(comm, call) == NEO_FAULT_DROP;
    if (x->done) return NEO_OK;
    for (;;) {
        int64_t seen = NEO__SEE(mine->events);
        if (x->index - NEO__POSTED(x->ring->taken) < (uint64_t)theirs->ring_length) break;
        const int left = NEO__SEE(theirs->left); /* read first: ranks tell why, then leave */
        if (neo__threads_heard(comm)) return neo__comm_failed(comm);
        if (left || !in_time) return neo__threads_late(comm, call, x);
        if (!__atomic_exchange_n(&mine->sleeps, 1, __ATOMIC_SEQ_CST)) continue;
        if (!limit.seen_ns) limit = neo__comm_limit(comm);
        in_time = neo__seat_wait(comm, mine, seen, &limit);
    }
    neo_level level = neo__comm_level(comm, x->peer);
    const neo_link *link = &comm->desc.link[level];
    neo__message *m = x->message;
    m->call = *call;
    m->data = x->data;
    m->bytes = x->bytes;
    m->whole = x->whole;
    m->arrives_ns = 0;
    m->event = m->took = NULL;
    m->stop = comm->scratch.stop;
    if (comm->scratch.stream) m->event = neo__comm_sent(comm, x);
    if (link->latency_us > 0 || link->bandwidth > 0) {
        int64_t now = neo__clock_now(comm->clock), *leaves_at = &mine->leaves_at[level];
        *leaves_at = NEO__MAX(*leaves_at, now) + neo__link_ns(link, x->bytes);
        m->arrives_ns = *leaves_at + (int64_t)(link->latency_us * 1000.0);
    }
    x->ring->sends++;
    neo__seat_post(theirs, &x->ring->posted, x->index + 1);
    return NEO_OK;
}
/* This rank gives up: it reads nothing any more, and no other reads what it has posted. */
static neo_status neo__threads_retract(neo_comm *c, neo__xfer *x, int count, neo_status status) {
    for (int i = 0; i < count; i++) {
        if (x[i].send || x[i].view != 1 || !x[i].copied) continue;
        __atomic_fetch_sub(&x[i].ring->reading, 1, __ATOMIC_SEQ_CST);
        x[i].copied = 0;
    }
    neo__threads_tell(c);
    for (int p = 0; p < c->size; p++)
        while (__atomic_load_n(&c->threads.seat[p]->ring[c->rank].reading, __ATOMIC_SEQ_CST) > 0)
            neo__thread_sleep(NEO__COMM_NAP_NS);
    return status;
}
static neo_status neo__threads_start(neo_comm *c, const neo__call *call, neo__xfer *x) {
    neo__seat *seat = c->threads.seat[x->send ? x->peer : c->rank];
    x->ring = &seat->ring[x->send ? c->rank : x->peer];
    x->index = x->send ? x->ring->sends : x->ring->receives++;
    x->message = &x->ring->message[x->index % (uint64_t)seat->ring_length];
    neo_status status = x->send ? neo__threads_send(c, call, x) : NEO_OK;
    return status == NEO_OK ? NEO_OK : neo__threads_retract(c, NULL, 0, status);
}
/* Check: a message belongs to the call that this rank makes. */
static neo_status neo__comm_agree(neo_comm *comm, const neo__call *mine, const neo__call *theirs,
                                  const neo__xfer *x, size_t bytes) {
    int rank = comm->world[comm->rank], peer = comm->world[x->peer];
    int differ = memcmp(mine, theirs, sizeof *mine) != 0;
    if (differ && theirs->root == NEO__LEFT)
        return neo__comm_break(comm, mine, NEO_ERR_PEER, "rank %d has left", peer);
    if (differ && mine->root == NEO__LEFT)
        return neo__comm_break(comm, NULL, NEO_ERR_PEER, "rank %d: %s: rank %d has left", peer,
                               neo__call_name(theirs).text, rank);
    if (differ)
        return neo__comm_break(comm, NULL, NEO_ERR_DIVERGED, "rank %d: %s, but rank %d: %s", rank,
                               neo__call_name(mine).text, peer, neo__call_name(theirs).text);
    if (bytes != x->whole)
        return neo__comm_break(comm, mine, NEO_ERR_DIVERGED,
                               "expects %zu bytes from rank %d, which sends %zu", x->whole, peer,
                               bytes);
    return NEO_OK;
}
static void neo__threads_release(neo_comm *c, neo__xfer *x) {
    __atomic_fetch_sub(&x->ring->reading, 1, __ATOMIC_SEQ_CST);
    neo__seat_post(c->threads.seat[x->peer], &x->ring->taken, x->index + 1);
}
/* When a message that could arrive at `at`, and takes so long, does. The order in which a rank
   looks at messages is not that in which they come, so they share the time since the first of them:
   together they need at least as long as all of them take. */
static int64_t neo__seat_arrives(neo__seat *seat, neo_level level, int64_t at, int64_t takes) {
    int64_t begin = at - takes;
    if (begin >= seat->busy_until[level]) {
        seat->busy_from[level] = begin;
        seat->busy_for[level] = 0;
    }
    seat->busy_from[level] = NEO__MIN(seat->busy_from[level], begin);
    seat->busy_for[level] += takes;
    at = NEO__MAX(at, seat->busy_from[level] + seat->busy_for[level]);
    seat->busy_until[level] = NEO__MAX(seat->busy_until[level], at);
    return at;
}
static void neo__comm_count_sent(neo_comm *c, const neo__call *call, const neo__xfer *x) {
    neo_comm_counter *counter = &c->stats.op[call->op];
    neo_level level = neo__comm_level(c, x->peer);
    if (x->first) counter->control_bytes += (int64_t)sizeof(neo__header);
    counter->bytes[level] += (int64_t)x->bytes;
    counter->messages[level] += x->bytes > 0;
}
/* The rank of a message has a recorded step, this one has not: it looks at the word itself. */
static neo_status neo__threads_stopped(neo_comm *comm, const neo__call *call, const neo__xfer *it) {
    int64_t stops = 0;
    NEO__TRY(neo__comm_move(comm, call, &stops, it->message->stop, sizeof stops));
    if (!stops) return NEO_OK;
    return neo__comm_break(comm, call, NEO_ERR_PEER, "rank %d found an error in its recorded step",
                           comm->world[it->peer]);
}
/* A copy of what has come, behind the sender's mark where that has a recorded step, and a mark
   behind it where this rank has one. */
static neo_status neo__threads_copy(neo_comm *comm, const neo__call *call, neo__xfer *it) {
    neo__message *m = it->message;
    void *stream = comm->scratch.stream;
    if (stream && !m->copied && !(m->copied = neo__event_make(comm->ctx)))
        return neo__comm_device_did(comm, call, NEO_ERR_DEVICE);
    if (m->event) NEO__TRY(neo__comm_behind(comm, call, NEO__ORDER_MOVES_WAIT, m->event));
    if (m->stop && stream) {
        void *heard = neo__device_heard(comm->ctx, comm->world[it->peer]);
        NEO__TRY(neo__comm_move(comm, call, heard, m->stop, 1));
    }
    NEO__TRY(neo__comm_move(comm, call, it->data, m->data, it->bytes));
    if (!stream) return m->stop ? neo__threads_stopped(comm, call, it) : NEO_OK;
    m->took = m->copied;
    return neo__comm_behind(comm, call, NEO__ORDER_MOVES, m->took);
}
/* The other has copied it, or will: its mark says when. */
static neo_status neo__threads_taken(neo_comm *comm, const neo__call *call, neo__xfer *x) {
    void *took = x->message->took;
    x->done = 1;
    neo__comm_count_sent(comm, call, x);
    if (took && comm->scratch.stream)
        return neo__comm_behind(comm, call, NEO__ORDER_MOVES_WAIT, took);
    return took ? neo__comm_device_did(comm, call, neo__event_wait(comm->ctx, took)) : NEO_OK;
}
/* A receive whose message may be there. *due: when the link model lets it be done. */
static neo_status neo__threads_receive(neo_comm *c, const neo__call *call, neo__xfer *x,
                                       int64_t *due) {
    neo__seat *mine = c->threads.seat[c->rank];
    neo__ring *ring = x->ring;
    neo__message *m = x->message;
    if (NEO__POSTED(ring->posted) <= x->index) return NEO_OK;
    if (!x->copied) {
        __atomic_fetch_add(&ring->reading, 1, __ATOMIC_SEQ_CST);
        neo_status status = neo__threads_heard(c) ? neo__comm_failed(c)
                                                  : neo__comm_agree(c, call, &m->call, x, m->whole);
        if (status != NEO_OK) {
            __atomic_fetch_sub(&ring->reading, 1, __ATOMIC_SEQ_CST);
            return status;
        }
        x->from = x->view ? m->data : x->data;
        if (!x->view && (x->bytes || m->stop)) status = neo__threads_copy(c, call, x);
        if (x->view != 1) __atomic_fetch_sub(&ring->reading, 1, __ATOMIC_SEQ_CST);
        if (status != NEO_OK) return status;
        x->copied = 1;
    }
    int64_t now = m->arrives_ns ? neo__clock_now(c->clock) : 0;
    if (m->arrives_ns && now >= m->arrives_ns && !x->arrived) {
        neo_level level = neo__comm_level(c, x->peer);
        int64_t takes = neo__link_ns(&c->desc.link[level], x->bytes);
        int64_t done = neo__seat_arrives(mine, level, m->arrives_ns, takes);
        __atomic_store_n(&m->arrives_ns, done, __ATOMIC_RELEASE);
        x->arrived = 1;
    }
    if (now < m->arrives_ns) {
        if (!*due || m->arrives_ns < *due) *due = m->arrives_ns;
        return NEO_OK;
    }
    if (x->view != 1) neo__seat_post(c->threads.seat[x->peer], &ring->taken, x->index + 1);
    x->done = 1;
    return NEO_OK;
}
static neo_status neo__threads_wait(neo_comm *c, const neo__call *call, neo__xfer *x, int count) {
    neo__seat *mine = c->threads.seat[c->rank];
    neo__limit limit = {0, 0}; /* begins where the rank sleeps */
    int looks = c->clock ? 0 : c->threads.looks, in_time = 1, left = 0;
    for (;;) {
        int64_t seen = NEO__SEE(mine->events), due = 0;
        int waits = -1;
        for (int i = 0; i < count; i++) {
            if (x[i].done) continue;
            if (!x[i].send) {
                NEO__TRY(neo__threads_receive(c, call, &x[i], &due));
            } else if (NEO__POSTED(x[i].ring->taken) > x[i].index) {
                NEO__TRY(neo__threads_taken(c, call, &x[i]));
            }
            if (x[i].done) { /* a step forward */
                limit.seen_ns = 0;
                in_time = 1;
            } else if (waits < 0 || NEO__SEE(c->threads.seat[x[i].peer]->left)) {
                waits = i;
            }
        }
        if (waits < 0) return NEO_OK;
        if (neo__threads_heard(c)) return neo__comm_failed(c);
        int held = x[waits].copied; /* by the link model alone */
        if (!held && NEO__SEE(c->threads.seat[x[waits].peer]->left)) {
            if (left == waits + 1) return neo__threads_late(c, call, &x[waits]);
            left = waits + 1; /* it may have come before */
            continue;
        }
        if (!held && !in_time) {
            if (!neo__threads_on_its_way(c, &x[waits]))
                return neo__threads_late(c, call, &x[waits]);
            limit.seen_ns = 0;
            in_time = 1;
        }
        if (looks-- > 0) {
            if (looks >= NEO__COMM_YIELDS) neo__cpu_pause();
            else neo__thread_yield();
            continue;
        }
        if (!__atomic_exchange_n(&mine->sleeps, 1, __ATOMIC_SEQ_CST)) continue;
        if (!limit.seen_ns) limit = neo__comm_limit(c);
        neo__seat_waits(c, call, c->world[x[waits].peer]);
        if (due && (held || !limit.at_ns || due <= limit.at_ns)) {
            (void)neo__seat_sleep(mine, seen, due, neo__comm_order(c, 0));
            limit.seen_ns = neo__clock_now(c->clock);
            in_time = 1;
        } else {
            in_time = neo__seat_wait(c, mine, seen, &limit);
        }
    }
}
static neo_status neo__threads_finish(neo_comm *c, const neo__call *call, neo__xfer *x, int count) {
    neo__seat *mine = c->threads.seat[c->rank];
    neo_status status = neo__threads_wait(c, call, x, count);
    if (NEO__SEE(mine->sleeps)) __atomic_store_n(&mine->sleeps, 0, __ATOMIC_RELAXED);
    neo__seat_waits(c, call, -1);
    return status == NEO_OK ? NEO_OK : neo__threads_retract(c, x, count, status);
}
NEO__HOT_END

static void neo__threads_leave(neo_comm *c) {
    /* A rank that sees this one gone must have seen the reason before, if there is one. */
    if (c->threads.joined && !c->failure.lost && neo__comm_is_broken(c)) neo__threads_tell(c);
    for (int r = 0; r < c->size; r++) {
        if (!c->threads.seat[r]) continue;
        if (c->threads.seat[c->rank])
            __atomic_store_n(&c->threads.seat[c->rank]->left, 1, __ATOMIC_RELEASE);
        neo__seat_wake(c->threads.seat[r]);
    }
}
/* ---- memory that is lent ---- */
NEO_API int neo__comm_lends(const neo_comm *c) {
    int lends = c->transport->backend == NEO_BACKEND_THREADS && c->place == NEO_HOST && !c->clock;
    for (const neo_link *l = c->desc.link; l < c->desc.link + NEO_LEVEL_COUNT; l++)
        lends &= l->latency_us <= 0 && l->bandwidth <= 0;
    return lends;
}
NEO_API neo_status neo__comm_lend_rows(neo_comm *c, char *rows, const int64_t *in_bytes,
                                       const int64_t *out_bytes, char **lent, neo_ticket *ticket) {
    neo__work w = neo__work_new(__func__, NEO_COMM_ALL_TO_ALL, rows, rows, 0, in_bytes, NEO_U8);
    w.out_counts = out_bytes;
    w.lent = lent;
    NEO__TRY(neo__check_parts(c, &w));
    return neo__work_issue(c, &w, ticket);
}
NEO_API void neo__comm_bequeath(neo_comm *comm, void *memory, size_t bytes) {
    neo__seat *mine = comm->threads.seat[comm->rank];
    mine->heirloom = memory;
    mine->heirloom_bytes = bytes;
}
NEO_API neo_status neo__comm_return(neo_comm *comm, int64_t loan, int wait) {
    neo__limit limit = neo__comm_limit(comm);
    __atomic_store_n(&comm->threads.seat[comm->rank]->loan, loan, __ATOMIC_RELEASE);
    for (int p = 0; p < comm->size && wait; p++)
        for (;;) {
            const int left = NEO__SEE(comm->threads.seat[p]->left);
            if (NEO__SEE(comm->threads.seat[p]->loan) >= loan) break;
            if (neo__comm_over(comm)) return neo__comm_failed(comm);
            if (left || neo__limit_is_over(comm->clock, &limit))
                return neo__comm_break(comm, NULL, left ? NEO_ERR_PEER : NEO_ERR_TIMEOUT,
                                       "rank %d: rank %d %s", comm->world[comm->rank],
                                       comm->world[p], left ? "has left" : "keeps what it has");
            neo__thread_sleep(NEO__COMM_NAP_NS);
        }
    return NEO_OK;
}
/* Not used any more by this rank: its hold on all seats goes. */
static void neo__threads_drop(neo_comm *c) {
    for (int r = 0; r < c->size; r++) {
        neo__seat *p = c->threads.seat[r];
        if (p && !c->threads.joined) p->references = 1; /* no other rank knows it */
        if (p) neo__seat_drop(p);
        c->threads.seat[r] = NULL;
    }
}
static neo_status neo__threads_member(neo_comm *sub, neo_comm *parent, int64_t *token) {
    sub->threads.job = parent->threads.job;
    neo__seat *p = neo__seat_new(sub->threads.job, sub->ctx, sub->size, sub->threads.ring_length);
    if (!p) return NEO_ERR_MEMORY;
    sub->threads.seat[sub->rank] = p;
    *token = (int64_t)(intptr_t)p;
    return NEO_OK;
}
static neo_status neo__threads_join(neo_comm *sub, const neo__ballot *members) {
    for (int r = 0; r < sub->size; r++)
        sub->threads.seat[r] = (neo__seat *)(intptr_t)members[r].token;
    return NEO_OK;
}
static const neo__transport neo__threads_transport = {
    NEO_BACKEND_THREADS, NULL, NULL, /* carves nothing */
    neo__threads_start, neo__threads_finish, neo__threads_release,
    neo__threads_tell,  neo__threads_heard,
    neo__threads_member, neo__threads_join, neo__threads_leave, neo__threads_drop,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
};
/* ---- after a fault ---- */
static void neo__rally_close(const neo_comm *c, neo__rally *rally) {
    int n = 0;
    rally->closed = 1;
    for (int r = 0; r < c->size; r++) rally->in[r] = rally->member[r] ? n++ : -1;
    for (int r = 0; r < c->size; r++)
        if (rally->member[r]) rally->member[r]->references = n;
    neo__clock_wake(c->clock, &c->threads.seat[0]->wake);
}
/* Meet at the seat of the group's first rank, which stays there. Returns how many have come. */
static int neo__rally_meet(neo_comm *comm, neo__seat *mine) {
    neo__seat *at = comm->threads.seat[0];
    neo__rally *rally = &at->rally;
    neo__limit limit = neo__comm_limit(comm);
    int in_time = 1;
    neo__mutex_lock(&at->lock);
    if (!rally->closed) {
        rally->member[comm->rank] = mine;
        rally->asked++;
    }
    while (!rally->closed) {
        int expected = 0;
        for (int r = 0; r < comm->size; r++) expected += !NEO__SEE(comm->threads.seat[r]->left);
        if (rally->asked >= expected || !in_time) {
            neo__rally_close(comm, rally);
            break;
        }
        in_time = neo__clock_wait(comm->clock, &at->wake, &at->lock, neo__limit_look(&limit),
                                  neo__comm_order(comm, 1));
        in_time |= !neo__limit_is_over(comm->clock, &limit);
    }
    int came = rally->member[comm->rank] ? rally->asked : 0;
    neo__mutex_unlock(&at->lock);
    return came;
}
static neo_status neo__threads_rebuild(neo_comm *comm, neo_comm **out) {
    neo__seat *mine = neo__seat_new(comm->threads.job, comm->ctx, comm->size, NEO_MAX_SUBTREES + 2);
    if (!mine) {
        neo__threads_leave(comm); /* not to be waited for */
        return NEO_ERR_MEMORY;
    }
    int size = neo__rally_meet(comm, mine);
    const neo__rally *rally = &comm->threads.seat[0]->rally;
    if (size == 0) {
        mine->references = 1;
        neo__seat_drop(mine);
        return neo_fail(
            NEO_ERR_PEER,
            "neo_comm_rebuild: rank %d came too late: the others have gone on without it",
            comm->world[comm->rank]);
    }
    neo_comm *sub = NULL;
    neo_status status =
        neo__comm_new(comm->ctx, &comm->desc, comm->transport, rally->in[comm->rank], size, &sub);
    if (status != NEO_OK) { /* the others have it among them already: it leaves */
        __atomic_store_n(&mine->left, 1, __ATOMIC_RELEASE);
        for (int r = 0; r < comm->size; r++) {
            if (!rally->member[r]) continue;
            neo__seat_wake(rally->member[r]);
            neo__seat_drop(rally->member[r]);
        }
        return status;
    }
    for (int r = 0; r < comm->size; r++) {
        int p = rally->in[r];
        if (p < 0) continue;
        sub->threads.seat[p] = rally->member[r];
        neo__comm_take_rank(sub, p, comm, r);
    }
    sub->clock = comm->clock;
    sub->threads.job = comm->threads.job;
    sub->threads.joined = 1;
    *out = sub;
    return NEO_OK;
}
NEO_API neo_status neo_comm_rebuild(neo_comm *broken, neo_comm **comm) {
    NEO__CHECK(broken && comm, NEO_ERR_ARG, "neo_comm_rebuild: an argument is NULL");
    *comm = NULL;
    NEO__CHECK(
        broken->transport->backend == NEO_BACKEND_THREADS, NEO_ERR_UNSUPPORTED,
        "neo_comm_rebuild: only the threads backend can: start the job again from its checkpoint");
    NEO__CHECK(neo_comm_status(broken) != NEO_OK, NEO_ERR_STATE,
               "neo_comm_rebuild: the group works");
    NEO__CHECK(!broken->failure.rebuilt, NEO_ERR_STATE,
               "neo_comm_rebuild: the group has been rebuilt");
    neo__comm_stop(broken);
    NEO__CHECK(!NEO__SEE(broken->threads.seat[broken->rank]->left), NEO_ERR_PEER,
               "neo_comm_rebuild: rank %d is the lost one", broken->world[broken->rank]);
    neo_status status = neo__threads_rebuild(broken, comm);
    broken->failure.rebuilt = status == NEO_OK;
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-spawn

   The ranks of the threads backend: each has a thread, a context and a seat.
   ------------------------------------------------------------------------ */
static neo_status neo__comm_open_device(const neo_comm_desc *d, int rank, int local,
                                        neo_device **device) {
    *device = NULL;
    NEO__CHECK(!d->ctx.device, NEO_ERR_ARG, "neo_comm: ctx.device and open_device are both given");
    neo_status status = d->open_device(rank, local, d->open_user, device);
    if (status != NEO_OK) *device = NULL;
    return status;
}
static neo_status neo__rank_prepare(neo__job *job, int r) {
    neo__rank_thread *t = &job->rank[r];
    neo_ctx_desc ctx = job->desc.ctx;
    t->job = job;
    t->rank = r;
    if (ctx.threads == 0) ctx.threads = neo__core_share(neo__core_count(), job->ranks);
    if (job->desc.open_device) {
        int per_node = job->desc.ranks_per_node ? job->desc.ranks_per_node : job->ranks;
        NEO__TRY(neo__comm_open_device(&job->desc, r, r % per_node, &ctx.device));
        for (int p = 0; p < r && ctx.device; p++)
            NEO__CHECK(job->rank[p].device != ctx.device, NEO_ERR_ARG,
                       "neo_comm_spawn: open_device gave ranks %d and %d the same device: each "
                       "needs one of its own (they may be of one GPU)", p, r);
        t->device = ctx.device;
    }
    ctx.repro_shards = neo__default_shards(ctx.repro_shards, ctx.device != NULL, job->ranks);
    NEO__TRY(neo_ctx_create(&ctx, &t->ctx));
    NEO__TRY(neo__comm_new(t->ctx, &job->desc, &neo__threads_transport, r, job->ranks, &t->comm));
    neo__comm_lend(t->comm);
    t->comm->clock = job->clock;
    t->comm->threads.job = job;
    for (int p = 0; p < job->ranks; p++) {
        t->comm->world[p] = p;
        t->comm->node[p] = job->desc.ranks_per_node ? p / job->desc.ranks_per_node : 0;
    }
    int64_t token;
    return neo__threads_member(t->comm, t->comm, &token);
}
/* A rank has returned, and lacks in groups that its function did not destroy. */
static void neo__rank_lacks(const neo_comm *comm) {
    for (neo_comm *child = comm->child; child; child = child->sibling) {
        neo__rank_lacks(child);
        neo__comm_stop(child);
        child->transport->leave(child);
    }
}
static void neo__rank_main(void *arg) {
    neo__rank_thread *thread = (neo__rank_thread *)arg;
    thread->status = thread->job->fn(thread->comm, thread->job->user);
    if (thread->status != NEO_OK) {
        const char *why = neo_last_error();
        if (*why) snprintf(thread->message, sizeof thread->message, "%.390s", why);
        else
            snprintf(thread->message, sizeof thread->message,
                     "its function returned '%s' without a message (neo_fail gives one)",
                     neo_status_string(thread->status));
        thread->order = __atomic_add_fetch(&thread->job->failures, 1, __ATOMIC_ACQ_REL);
        if (!thread->comm->failure.lost) neo__comm_give_up(thread->comm, thread->message);
    } else {
        neo__rank_lacks(thread->comm);
    }
    neo__comm_end(thread->comm);
    thread->comm = NULL;
    neo__clock_leave(thread->job->clock);
}
static neo_status neo__job_run(neo__job *job) {
    for (int r = 0; r < job->ranks; r++) NEO__TRY(neo__rank_prepare(job, r));
    for (int r = 0; r < job->ranks; r++) {
        neo_comm *c = job->rank[r].comm;
        for (int p = 0; p < job->ranks; p++)
            c->threads.seat[p] = job->rank[p].comm->threads.seat[p];
        c->threads.joined = 1;
    }
    job->time.running = job->ranks;
    for (; job->started < job->ranks; job->started++) {
        neo__rank_thread *t = &job->rank[job->started];
        if (neo__thread_run(&t->thread, neo__rank_main, t)) continue;
        int error = errno;
        for (int r = job->started; r < job->ranks; r++) { /* the others must not wait for these */
            neo_comm_abort(job->rank[r].comm, "its thread could not be started");
            neo__clock_leave(job->clock);
        }
        return neo_fail(NEO_ERR_SYSTEM, "neo_comm_spawn: cannot start rank %d of %d: %s",
                        job->started, job->ranks, strerror(error));
    }
    return NEO_OK;
}
/* Message of the first rank that failed; with its number, where not all say the same. */
static neo_status neo__job_result(neo__job *job, neo_status status, neo_status *rank_status) {
    const neo__rank_thread *first = NULL;
    int agree = 1;
    for (int r = 0; r < job->started; r++) {
        const neo__rank_thread *t = &job->rank[r];
        if (rank_status) rank_status[r] = t->status;
        if (t->order && (!first || t->order < first->order)) first = t;
    }
    if (status != NEO_OK || !first) return status;
    for (int r = 0; r < job->started; r++)
        agree &= strcmp(job->rank[r].message, first->message) == 0;
    if (agree || strncmp(first->message, "rank ", 5) == 0)
        return neo_fail(first->status, "%s", first->message);
    return neo_fail(first->status, "rank %d: %s", first->rank, first->message);
}
NEO_API neo_status neo_comm_spawn(int ranks, const neo_comm_desc *desc, neo_comm_fn fn, void *user,
                                  neo_status *rank_status) {
    NEO__ZERO(neo__job, job);
    job.desc = neo__comm_defaults(desc);
    job.desc.ranks = job.ranks = ranks;
    job.fn = fn;
    job.user = user;
    NEO__CHECK(fn, NEO_ERR_ARG, "neo_comm_spawn: fn is NULL");
    NEO__TRY(neo__comm_desc_check(&job.desc));
    NEO__CHECK(ranks == 1 || !job.desc.ctx.device, NEO_ERR_ARG,
               "neo_comm_spawn: %d ranks would share one device (ctx.device): give open_device, "
               "which opens one for each (they may be of one GPU)", ranks);
    for (int r = 0; rank_status && r < ranks; r++) rank_status[r] = NEO_ERR_STATE;
    neo_allocator from = job.desc.ctx.allocator;
    size_t bytes = (size_t)ranks * sizeof *job.rank;
    job.rank = (neo__rank_thread *)(from.alloc ? from.alloc(bytes, 64, from.user) : malloc(bytes));
    NEO__CHECK(job.rank, NEO_ERR_MEMORY, "neo_comm_spawn: no memory for %d ranks", ranks);
    memset(job.rank, 0, bytes);
    neo__mutex_init(&job.lock);
    neo__mutex_init(&job.time.lock);
    job.clock = job.desc.virtual_clock ? &job.time : NULL;
    neo_status status = neo__job_run(&job);
    for (int r = 0; r < job.started; r++) neo__thread_join(&job.rank[r].thread);
    for (int r = 0; r < ranks; r++) neo__comm_end(job.rank[r].comm); /* of ranks that never ran */
    while (job.seats) {
        neo__seat *p = job.seats;
        job.seats = p->next;
        neo__seat_free(p);
    }
    for (int r = 0; r < ranks; r++) {
        if (job.rank[r].status != NEO_OK) neo__ctx_hush(job.rank[r].ctx);
        neo_ctx_destroy(job.rank[r].ctx);
        neo__device_release(job.rank[r].device);
    }
    neo__mutex_destroy(&job.lock);
    neo__mutex_destroy(&job.time.lock);
    status = neo__job_result(&job, status, rank_status);
    if (from.alloc) from.free(job.rank, bytes, from.user);
    else free(job.rank);
    return status;
}
#if defined(NEO_COMM_MPI)
/* ---------------------------------------------------------------------------
   >>impl-mpi

   Ranks are MPI processes. Only point-to-point calls are used, none of which blocks, so that a wait
   can look at the clock. All groups of a process share one duplicate of the user's communicator,
   and one lock, under which every MPI call is made (MPI_THREAD_SERIALIZED); a group has three tags:
   calls, data, and the notice that it is broken.

   The first message of a call between two ranks is a header (what is called, how many bytes
   follow), with the data behind it if they are few; more data come in messages of their own, sent
   at the same time and received when the header has been agreed to. Messages of one tag between two
   ranks do not overtake each other, which is all the order that this needs. Data of any size go as
   1 MiB blocks and a rest.
   ------------------------------------------------------------------------ */
enum {
    NEO__MPI_EAGER = NEO__SMALL_BYTES, /* data that ride with the header */
    NEO__MPI_TAGS = 3,
    NEO__MPI_BLOCK = 1 << 20,
    NEO__MPI_WINDOW = 64 << 20, /* more go one after another, so that a rank sees that they move */
    NEO__MPI_LOOKS = 200, /* before a waiting rank sleeps */
    NEO__MPI_DRAIN_NS = 200000000,
    NEO__MPI_DEVICE = -1 /* no error of MPI: the device failed, as neo_last_error says */
};
typedef struct neo__mpi_slip { /* a header with its data */
    neo__header header;
    char data[NEO__MPI_EAGER];
} neo__mpi_slip;
typedef struct neo__mpi_notice {
    int64_t sent_ns; /* of the clock that hosts have in common */
    int32_t status;
    char message[NEO__COMM_MESSAGE];
} neo__mpi_notice;
/* One for the process, shared by its groups. */
typedef struct neo__mpi_shared {
    neo_ctx *ctx;
    MPI_Comm comm;
    MPI_Datatype block;
    neo__mutex lock;
    int references;   /* under the lock */
    int next_context; /* under the lock */
    int most_tag, serialized, broken;
    int unfinished; /* a message to or from a lost rank has no end, nor has MPI_Finalize then */
} neo__mpi_shared;
typedef struct neo__mpi {
    neo__mpi_shared *shared;
    int context, listens;
    MPI_Request notice_in, *notice_out; /* [size] */
    neo__mpi_notice heard, told;
    neo__mpi_slip *out, *in; /* [size] */
    char *agreed;            /* [size] its header of the present call has come, and agrees */
} neo__mpi;
static void neo__mpi_carve(neo_comm *c, neo__carve *at) {
    neo__mpi part, *m = &part;
    NEO__CARVE(at, c->mpi, 1);
    if (at->block) m = c->mpi;
    NEO__CARVE(at, m->out, c->size);
    NEO__CARVE(at, m->in, c->size);
    NEO__CARVE(at, m->notice_out, c->size);
    NEO__CARVE(at, m->agreed, c->size);
    NEO__CARVE(at, c->scratch.segments, 2 * c->scratch.segment_bytes[0]);
    for (int p = 0; at->block && p < c->size; p++) m->notice_out[p] = MPI_REQUEST_NULL;
    m->notice_in = MPI_REQUEST_NULL;
}
static int neo__mpi_started(void) {
    int started = 0, finished = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&finished);
    return started && !finished;
}
static neo_status neo__mpi_broken(neo_comm *c, const neo__call *call, int peer, int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == NEO__MPI_DEVICE) return neo__comm_device_did(c, call, NEO_ERR_DEVICE);
    MPI_Error_string(error, text, &length);
    return neo__comm_break(c, call, NEO_ERR_PEER, "rank %d: MPI: %.200s", c->world[peer], text);
}
static int neo__mpi_tag(const neo_comm *c, int which) {
    return c->mpi->context * NEO__MPI_TAGS + which;
}
/* Does this MPI take addresses of device memory? */
static int neo__mpi_takes_devices(void) {
#if defined(NEO_COMM_MPI_STAGED)
    return 0;
#elif defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support();
#elif defined(MPIX_GPU_SUPPORT_CUDA)
    int is = 0;
    return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &is) == MPI_SUCCESS && is;
#else
    return 0;
#endif
}
/* Data that ride with the header: not those of a device. */
static size_t neo__mpi_eager(const neo_comm *c) {
    return c->scratch.place == NEO_HOST ? (size_t)NEO__MPI_EAGER : 0;
}
/* The pinned memory of a transfer. */
static char *neo__mpi_slot(const neo_comm *c, const neo__xfer *x) {
    int64_t at = x - c->scratch.xfer, second = c->scratch.xfer_count / 2;
    if (at >= second) at += c->scratch.stage_slots - second;
    return c->scratch.staging + (size_t)at * c->scratch.stage_bytes;
}
static int neo__mpi_post(neo_comm *c, neo__xfer *x, int i, void *data, int count, MPI_Datatype type,
                         int which) {
    const MPI_Comm comm = c->mpi->shared->comm;
    const int peer = c->world[x->peer], tag = neo__mpi_tag(c, which);
    return x->send ? MPI_Isend(data, count, type, peer, tag, comm, &x->request[i])
                   : MPI_Irecv(data, count, type, peer, tag, comm, &x->request[i]);
}
/* Under the lock: the next data of a transfer. A segment is never cut, as others follow. */
static int neo__mpi_post_data(neo_comm *c, neo__xfer *x) {
    size_t most = NEO__MPI_WINDOW;
    most = NEO__MAX(most, c->scratch.segment_bytes[c->scratch.place == NEO_DEVICE]);
    most = (most + NEO__MPI_BLOCK - 1) / NEO__MPI_BLOCK * NEO__MPI_BLOCK;
    int staged = c->scratch.place == NEO_DEVICE && !c->scratch.direct;
    if (staged) most = c->scratch.stage_bytes;
    size_t now = x->bytes - x->posted < most ? x->bytes - x->posted : most;
    int blocks = (int)(now / NEO__MPI_BLOCK), rest = (int)(now % NEO__MPI_BLOCK);
    char *at = staged ? neo__mpi_slot(c, x) : (char *)x->data + x->posted;
    int error = MPI_SUCCESS;
    if (staged && x->send &&
        neo__device_move(c->ctx, NEO_DEVICE, at, (char *)x->data + x->posted, now, NULL) != NEO_OK)
        return NEO__MPI_DEVICE;
    x->staged = staged && !x->send ? now : 0;
    if (blocks > 0) error = neo__mpi_post(c, x, 1, at, blocks, c->mpi->shared->block, 1);
    if (rest > 0 && error == MPI_SUCCESS)
        error = neo__mpi_post(c, x, 2, at + (size_t)blocks * NEO__MPI_BLOCK, rest, MPI_BYTE, 1);
    x->posted += now;
    return error;
}
/* Under the lock. Data are not received before the call is agreed to: were they more than expected,
   MPI would take it for a fatal error in some libraries, and write too far in others. */
static int neo__mpi_post_receive(neo_comm *c, neo__xfer *x) {
    neo__mpi *m = c->mpi;
    if (x->first) {
        m->agreed[x->peer] = 0;
        x->held = x->bytes > neo__mpi_eager(c);
        x->posted = x->held ? 0 : x->bytes; /* with the header */
        return neo__mpi_post(c, x, 0, &m->in[x->peer], (int)sizeof *m->in, MPI_BYTE, 0);
    }
    x->held = !m->agreed[x->peer];
    return x->held ? MPI_SUCCESS : neo__mpi_post_data(c, x);
}
static int neo__mpi_post_send(neo_comm *c, const neo__call *call, neo__xfer *x) {
    if (!x->first) return neo__mpi_post_data(c, x);
    neo__mpi_slip *slip = &c->mpi->out[x->peer];
    size_t rides = x->bytes <= neo__mpi_eager(c) ? x->bytes : 0;
    slip->header.call = *call;
    slip->header.bytes = (int64_t)x->whole;
    if (rides) memcpy(slip->data, x->data, rides);
    x->posted = rides;
    int error = neo__mpi_post(c, x, 0, slip, (int)(sizeof slip->header + rides), MPI_BYTE, 0);
    return error == MPI_SUCCESS && x->bytes > rides ? neo__mpi_post_data(c, x) : error;
}
/* Under the lock: receive what was sent for a call that has failed, into nothing. */
static void neo__mpi_drain_tag(neo_comm *c, int which) {
    neo__mpi_shared *s = c->mpi->shared;
    MPI_Datatype type = s->block;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Status status;
    int there = 0, count = 0, size = 1;
    int error = MPI_Iprobe(MPI_ANY_SOURCE, neo__mpi_tag(c, which), s->comm, &there, &status);
    if (error != MPI_SUCCESS || !there) return;
    MPI_Get_count(&status, type, &count);
    if (count == MPI_UNDEFINED) MPI_Get_count(&status, type = MPI_BYTE, &count);
    if (count == MPI_UNDEFINED) return;
    MPI_Type_size(type, &size);
    size_t bytes = (size_t)count * (size_t)size + 1;
    char *nothing = (char *)neo_alloc(c->ctx, bytes);
    if (!nothing) return;
    error = MPI_Irecv(nothing, count, type, status.MPI_SOURCE, status.MPI_TAG, s->comm, &r);
    int64_t until = neo_time_ns() + NEO__MPI_DRAIN_NS;
    for (int ended = 0; error == MPI_SUCCESS && !ended && neo_time_ns() < until;)
        error = MPI_Test(&r, &ended, MPI_STATUS_IGNORE);
    if (r == MPI_REQUEST_NULL) neo_free(c->ctx, nothing, bytes);
    else c->failure.unfinished = s->unfinished = 1; /* a lost rank's: MPI has it */
}
static void neo__mpi_drain(neo_comm *c) {
    neo__mpi_drain_tag(c, 0);
    neo__mpi_drain_tag(c, 1);
}
/* Under the lock: see what has ended of a transfer; `cancel` it if it is a receive; when
   the time is `over`, leave the rest to MPI. */
static void neo__mpi_settle(neo_comm *c, neo__xfer *x, int cancel, int over) {
    for (int i = 0; i < 3 && x->started && !x->done; i++) {
        int ended = 0;
        if (x->request[i] == MPI_REQUEST_NULL) continue;
        if (cancel && !x->send) (void)MPI_Cancel(&x->request[i]);
        (void)MPI_Test(&x->request[i], &ended, MPI_STATUS_IGNORE);
        if (!over || x->request[i] == MPI_REQUEST_NULL) continue;
        (void)MPI_Request_free(&x->request[i]);
        c->mpi->shared->unfinished = c->failure.unfinished = 1;
    }
    if (over) x->started = 0;
}
/* The group is broken: receives must not write to the user's memory any more, nor the others read
   from it. All ranks do this at about the same time; each receives into nothing what the others
   sent. What has no end then was for a rank that is lost. */
static void neo__mpi_give_up(neo_comm *c) {
    const int64_t until = neo_time_ns() + NEO__MPI_DRAIN_NS;
    for (int turn = 0, over = 0; !over; turn++) {
        over = turn > 0 && neo_time_ns() >= until;
        neo__mutex_lock(&c->mpi->shared->lock);
        for (int k = 0; k < c->scratch.xfer_count; k++)
            neo__mpi_settle(c, &c->scratch.xfer[k], turn == 0, over);
        if (!over) neo__mpi_drain(c);
        neo__mutex_unlock(&c->mpi->shared->lock);
        if (!over) neo__thread_sleep(NEO__COMM_NAP_NS);
    }
}
static neo_status neo__mpi_start(neo_comm *c, const neo__call *call, neo__xfer *x) {
    x->from = x->data;
    for (int i = 0; i < 3; i++) x->request[i] = MPI_REQUEST_NULL;
    x->started = 1;
    neo__mutex_lock(&c->mpi->shared->lock);
    int error = x->send ? neo__mpi_post_send(c, call, x) : neo__mpi_post_receive(c, x);
    neo__mutex_unlock(&c->mpi->shared->lock);
    if (error == MPI_SUCCESS) return NEO_OK;
    neo_status status = neo__mpi_broken(c, call, x->peer, error);
    neo__mpi_give_up(c);
    return status;
}
/* Look at one transfer, under the lock. *moved: something came or went; *differs: another call. */
static int neo__mpi_look(neo_comm *c, const neo__call *call, neo__xfer *x, int *differs,
                         int *moved) {
    const neo__mpi_slip *slip = &c->mpi->in[x->peer];
    char *agreed = &c->mpi->agreed[x->peer];
    int left = 0;
    for (int i = 0; i < 3; i++) {
        int flag = 0;
        if (x->request[i] == MPI_REQUEST_NULL) continue;
        int error = MPI_Test(&x->request[i], &flag, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS) return error;
        left += !flag;
        *moved |= flag;
        if (!flag || i > 0 || x->send) continue;
        *agreed = memcmp(&slip->header.call, call, sizeof *call) == 0 &&
                  slip->header.bytes == (int64_t)x->whole;
        *differs = !*agreed;
        if (*differs) return MPI_SUCCESS;
        if (x->bytes > 0 && x->bytes <= neo__mpi_eager(c)) memcpy(x->data, slip->data, x->bytes);
    }
    if (x->held && *agreed) {
        x->held = 0;
        return neo__mpi_post_data(c, x);
    }
    if (left > 0 || x->held) return MPI_SUCCESS;
    if (x->staged > 0) { /* it has come: to the device */
        char *to = (char *)x->data + (x->posted - x->staged);
        const char *from = neo__mpi_slot(c, x);
        if (neo__device_move(c->ctx, NEO_DEVICE, to, from, x->staged, NULL) != NEO_OK)
            return NEO__MPI_DEVICE;
        x->staged = 0;
    }
    if (x->posted < x->bytes) return neo__mpi_post_data(c, x);
    x->done = 1;
    return MPI_SUCCESS;
}
static int neo__mpi_heard(neo_comm *c) {
    neo__mpi *m = c->mpi;
    int flag = 0;
    if (!m->listens) return 0;
    neo__mutex_lock(&m->shared->lock);
    if (m->notice_in != MPI_REQUEST_NULL &&
        MPI_Test(&m->notice_in, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        flag = 0;
    neo__mutex_unlock(&m->shared->lock);
    if (!flag) return 0;
    m->heard.message[NEO__COMM_MESSAGE - 1] = 0;
    (void)neo__comm_mark(c, (neo_status)m->heard.status, m->heard.message);
    return 1;
}
static int64_t neo__mpi_date_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
/* Between calls. While the others are in neo__mpi_give_up they must get rid of what they have sent;
   later their memory may be gone, and nothing may be received. */
static int neo__mpi_heard_at_rest(neo_comm *c) {
    int heard = neo__mpi_heard(c);
    while (heard && neo__mpi_date_ns() - c->mpi->heard.sent_ns < NEO__MPI_DRAIN_NS / 2) {
        neo__mutex_lock(&c->mpi->shared->lock);
        neo__mpi_drain(c);
        neo__mutex_unlock(&c->mpi->shared->lock);
        neo__thread_sleep(NEO__COMM_NAP_NS);
    }
    return heard;
}
static void neo__mpi_tell(neo_comm *c) {
    neo__mpi *m = c->mpi;
    m->told.sent_ns = neo__mpi_date_ns();
    m->told.status = (int32_t)c->failure.status;
    memcpy(m->told.message, c->failure.message, sizeof m->told.message);
    neo__mutex_lock(&m->shared->lock);
    for (int p = 0; p < c->size; p++)
        if (p != c->rank)
            (void)MPI_Isend(&m->told, (int)sizeof m->told, MPI_BYTE, c->world[p],
                            neo__mpi_tag(c, 2), m->shared->comm, &m->notice_out[p]);
    neo__mutex_unlock(&m->shared->lock);
}
/* One look at all transfers. *waits: one that is not done, or -1. */
static neo_status neo__mpi_turn(neo_comm *c, const neo__call *call, neo__xfer *x, int count,
                                int *waits, int *moved) {
    *waits = -1;
    for (int i = 0; i < count; i++) {
        const neo__header *header = &c->mpi->in[x[i].peer].header;
        int differs = 0;
        if (x[i].done) continue;
        neo__mutex_lock(&c->mpi->shared->lock);
        int error = neo__mpi_look(c, call, &x[i], &differs, moved);
        neo__mutex_unlock(&c->mpi->shared->lock);
        if (differs) return neo__comm_agree(c, call, &header->call, &x[i], (size_t)header->bytes);
        if (error != MPI_SUCCESS) return neo__mpi_broken(c, call, x[i].peer, error);
        if (!x[i].done) *waits = i;
        else if (x[i].send) neo__comm_count_sent(c, call, &x[i]);
    }
    return NEO_OK;
}
static neo_status neo__mpi_finish(neo_comm *c, const neo__call *call, neo__xfer *x, int count) {
    neo__limit limit = neo__comm_limit(c);
    for (int turns = 0;; turns++) {
        int waits, moved = 0;
        neo_status status = neo__mpi_turn(c, call, x, count, &waits, &moved);
        if (status == NEO_OK && waits < 0) return NEO_OK;
        if (moved) {
            limit = neo__comm_limit(c);
            turns = 0;
        }
        if (status == NEO_OK && turns % 64 == 63 && (neo__comm_is_broken(c) || neo__mpi_heard(c)))
            status = neo__comm_failed(c);
        if (status == NEO_OK && turns % 16 == 15 && neo__limit_is_over(NULL, &limit))
            status = neo__comm_break(c, call, NEO_ERR_TIMEOUT, "rank %d did not come within %d ms",
                                     c->world[x[waits].peer], neo__comm_timeout_ms(c));
        if (status != NEO_OK) {
            neo__mpi_give_up(c);
            return status;
        }
        neo__comm_nap(turns, NEO__MPI_LOOKS);
    }
}
/* ---- groups ---- */
static void neo__mpi_share(neo_comm *sub, neo__mpi_shared *shared, int64_t *token) {
    sub->mpi->shared = shared;
    sub->queue.inline_only = !shared->serialized;
    neo__mutex_lock(&shared->lock);
    shared->references++;
    *token = (int64_t)shared->next_context + 1; /* 0 is no token */
    neo__mutex_unlock(&shared->lock);
}
static neo_status neo__mpi_member(neo_comm *sub, neo_comm *parent, int64_t *token) {
    neo__mpi_share(sub, parent->mpi->shared, token);
    return NEO_OK;
}
/* Start to listen for bad news. */
static neo_status neo__mpi_listen(neo_comm *sub) {
    neo__mpi *m = sub->mpi;
    neo__mutex_lock(&m->shared->lock);
    int taken = m->context < m->shared->next_context;
    if (!taken) m->shared->next_context = m->context + 1;
    int fits = m->context < m->shared->most_tag / NEO__MPI_TAGS, error = MPI_SUCCESS;
    if (fits && !taken)
        error = MPI_Irecv(&m->heard, (int)sizeof m->heard, MPI_BYTE, MPI_ANY_SOURCE,
                          neo__mpi_tag(sub, 2), m->shared->comm, &m->notice_in);
    m->listens = fits && !taken && error == MPI_SUCCESS;
    neo__mutex_unlock(&m->shared->lock);
    NEO__CHECK(!taken, NEO_ERR_STATE,
               "neo_comm: two threads made groups at the same time (over MPI one makes all)");
    NEO__CHECK(m->listens, NEO_ERR_UNSUPPORTED,
               "neo_comm: no message tag is left for another group");
    return NEO_OK;
}
/* The group's number is above all that its members have used. */
static neo_status neo__mpi_join(neo_comm *sub, const neo__ballot *members) {
    for (int p = 0; p < sub->size; p++)
        sub->mpi->context = NEO__MAX(sub->mpi->context, (int)members[p].token - 1);
    return neo__mpi_listen(sub);
}
static void neo__mpi_leave(neo_comm *c) { (void)c; }
static void neo__mpi_unshare(neo__mpi_shared *s, int healthy) {
    if (healthy) { /* MPI waits for the others in this */
        MPI_Type_free(&s->block);
        MPI_Comm_free(&s->comm);
    }
    neo__mutex_destroy(&s->lock);
    neo_free(s->ctx, s, sizeof *s);
}
/* 1: the request ends until then. */
static int neo__mpi_ends(neo__mpi_shared *s, MPI_Request *r, int64_t until) {
    for (;;) {
        neo__mutex_lock(&s->lock);
        int ended = *r == MPI_REQUEST_NULL;
        if (!ended && MPI_Test(r, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) ended = 1;
        neo__mutex_unlock(&s->lock);
        if (ended || neo_time_ns() >= until) return ended;
        neo__thread_sleep(NEO__COMM_NAP_NS);
    }
}
static void neo__mpi_drop(neo_comm *c) {
    neo__mpi *m = c->mpi;
    neo__mpi_shared *s = m->shared;
    int64_t until = neo_time_ns() + 1000000000;
    neo__mutex_lock(&s->lock);
    if (m->notice_in != MPI_REQUEST_NULL) (void)MPI_Cancel(&m->notice_in);
    neo__mutex_unlock(&s->lock);
    int ended = neo__mpi_ends(s, &m->notice_in, until);
    for (int p = 0; p < c->size; p++) /* bad news on their way; not for ever */
        ended &= neo__mpi_ends(s, &m->notice_out[p], until);
    /* Peers that still read this process's memory would be killed by their MPI if it vanished. No
       MPI call here: once a rank has gone, MPICH's ask its launcher, which may be cut off. */
    for (int64_t end = neo_time_ns() + 300000000; c->failure.broken && neo_time_ns() < end;)
        neo__thread_sleep(NEO__COMM_NAP_NS);
    neo__mutex_lock(&s->lock);
    int last = --s->references == 0;
    s->broken |= c->failure.broken;
    s->unfinished |= !ended;
    neo__mutex_unlock(&s->lock);
    if (!ended) c->failure.unfinished = 1;
    if (last) neo__mpi_unshare(s, !s->broken);
}
static const neo__transport neo__mpi_transport = {
    NEO_BACKEND_MPI,  neo__mpi_carve,  neo__mpi_takes_devices,
    neo__mpi_start,   neo__mpi_finish, NULL,
    neo__mpi_tell,    neo__mpi_heard_at_rest,
    neo__mpi_member,  neo__mpi_join,   neo__mpi_leave, neo__mpi_drop,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL,
};
/* Nodes by host name (its hash): the node of a rank is numbered by the first rank on it. */
static neo_status neo__mpi_nodes(neo_comm *c, int ranks_per_node) {
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int64_t *hash = c->scratch.offset;
    int length = 0;
    for (int p = 0; ranks_per_node && p < c->size; p++) c->node[p] = p / ranks_per_node;
    if (ranks_per_node) return NEO_OK;
    int error = MPI_Get_processor_name(name, &length);
    int64_t mine = (int64_t)neo_hash(name);
    if (error != MPI_SUCCESS || MPI_Allgather(&mine, 1, MPI_INT64_T, hash, 1, MPI_INT64_T,
                                              c->mpi->shared->comm) != MPI_SUCCESS)
        return neo_fail(NEO_ERR_SYSTEM, "neo_comm: MPI cannot tell the names of the hosts");
    for (int p = 0, nodes = 0; p < c->size; p++) {
        int first = 0;
        while (hash[first] != hash[p]) first++;
        c->node[p] = first < p ? c->node[first] : nodes++;
    }
    return NEO_OK;
}
static neo_status neo__mpi_share_new(neo_ctx *ctx, MPI_Comm comm, neo__mpi_shared **out) {
    int level = MPI_THREAD_SINGLE, found = 0, *most = NULL;
    MPI_Comm dup;
    NEO__CHECK(MPI_Comm_dup(comm, &dup) == MPI_SUCCESS, NEO_ERR_SYSTEM,
               "neo_comm: MPI_Comm_dup failed");
    neo__mpi_shared *s = (neo__mpi_shared *)neo__comm_alloc(ctx, sizeof *s);
    if (!s) return NEO_ERR_MEMORY;
    s->ctx = ctx;
    s->comm = dup;
    MPI_Comm_set_errhandler(s->comm, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(NEO__MPI_BLOCK, MPI_BYTE, &s->block);
    MPI_Type_commit(&s->block);
    MPI_Comm_get_attr(s->comm, MPI_TAG_UB, (void *)&most, &found);
    MPI_Query_thread(&level);
    s->most_tag = found ? *most : 32767;
    s->serialized = level >= MPI_THREAD_SERIALIZED;
    neo__mutex_init(&s->lock);
    if (!s->serialized)
        neo_log(
            ctx, NEO_LOG_WARNING,
            "neo_comm: MPI was started without MPI_THREAD_SERIALIZED: asynchronous calls block");
    *out = s;
    return NEO_OK;
}
/* Before ranks wait for each other in a new group: is everyone there and well, and alike? */
static neo_status neo__mpi_vote(MPI_Comm comm, const neo_comm_desc *d, neo_status mine) {
    static int64_t say[3], all[3]; /* after a timeout MPI still has them */
    MPI_Request r = MPI_REQUEST_NULL;
    int done = 0, rank = 0;
    neo__limit limit = neo__limit_in(NULL, d->timeout_ms);
    MPI_Comm_rank(comm, &rank);
    say[0] = mine == NEO_OK ? 0 : rank + 1;
    say[1] = (int64_t)d->segment_bytes;
    say[2] = -say[1];
    int error = MPI_Iallreduce(say, all, 3, MPI_INT64_T, MPI_MAX, comm, &r);
    while (error == MPI_SUCCESS && !done) {
        error = MPI_Test(&r, &done, MPI_STATUS_IGNORE);
        if (!done && neo__limit_is_over(NULL, &limit)) break;
        if (!done) neo__thread_sleep(NEO__COMM_NAP_NS);
    }
    if (mine != NEO_OK) return mine;
    NEO__CHECK(error == MPI_SUCCESS, NEO_ERR_PEER, "neo_comm: MPI fails while the group is made");
    NEO__CHECK(done, NEO_ERR_TIMEOUT,
               "neo_comm: rank %d: not all ranks came to make the group within %d ms", rank,
               d->timeout_ms);
    NEO__CHECK(all[0] == 0, NEO_ERR_PEER, "neo_comm: rank %d could not make its part of the group",
               (int)all[0] - 1);
    NEO__CHECK(all[1] == -all[2], NEO_ERR_DIVERGED,
               "neo_comm: rank %d has segment_bytes %" PRId64 ", others have %" PRId64
               " to %" PRId64,
               rank, say[1], -all[2], all[1]);
    return NEO_OK;
}
/* The part of the first group that a rank makes for itself. */
static neo_status neo__mpi_prepare(neo_ctx *ctx, MPI_Comm comm, neo_comm_desc *d,
                                   neo__mpi_shared **shared, neo_comm **group) {
    int rank = 0, size = 1;
    int64_t token;
    NEO__TRY(neo__mpi_share_new(ctx, comm, shared));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    d->ranks = NEO__MIN(size, (int)NEO__COMM_MAX_RANKS);
    NEO__TRY(neo__comm_desc_check(d));
    NEO__CHECK(size <= NEO__COMM_MAX_RANKS, NEO_ERR_UNSUPPORTED,
               "neo_comm_create_mpi: %d ranks, more than %d", size, (int)NEO__COMM_MAX_RANKS);
    NEO__TRY(neo__comm_new(ctx, d, &neo__mpi_transport, rank, size, group));
    neo__mpi_share(*group, *shared, &token);
    (*group)->threads.joined = 1;
    for (int p = 0; p < size; p++) (*group)->world[p] = p;
    return NEO_OK;
}
NEO_API neo_status neo_comm_create_mpi(neo_ctx *ctx, const neo_comm_desc *desc,
                                       const void *mpi_comm, neo_comm **out) {
    NEO__CHECK(ctx && mpi_comm && out, NEO_ERR_ARG, "neo_comm_create_mpi: an argument is NULL");
    *out = NULL;
    NEO__CHECK(neo__mpi_started(), NEO_ERR_STATE, "neo_comm_create_mpi: MPI is not initialised");
    const MPI_Comm comm = *(const MPI_Comm *)mpi_comm;
    neo_comm_desc d = neo__comm_defaults(desc);
    neo__mpi_shared *shared = NULL;
    neo_comm *group = NULL;
    neo_status status = neo__mpi_vote(comm, &d, neo__mpi_prepare(ctx, comm, &d, &shared, &group));
    if (status == NEO_OK) status = neo__mpi_nodes(group, d.ranks_per_node);
    if (status == NEO_OK) status = neo__mpi_listen(group);
    const neo__kept_error kept = neo__error_keep(status);
    if (status == NEO_OK) {
        *out = group;
    } else if (group) {
        group->failure.broken = 1; /* MPI_Comm_free would wait for lost ranks */
        neo__comm_end(group);
    } else if (shared) {
        neo__mpi_unshare(shared, 0);
    }
    return neo__error_restore(&kept);
}
/* Its function has returned: meet the others, as MPI_Finalize would, but hear of faults. A rank
   that still waits for this one in a call finds out. At a second meeting those whose first one went
   well hear whether the others' did. finished: 0 if MPI still has a message of a rank. */
static neo_status neo__mpi_part(neo_comm *c, int *finished) {
    int64_t mine = c->mpi->shared->unfinished, any = 0;
    NEO__ZERO(neo__work, w);
    w.call.op = (int32_t)NEO_COMM_BARRIER;
    w.call.root = NEO__LEFT;
    neo__group_patient(c, 1); /* another may still write its report */
    NEO__TRY(neo__barrier_run(c, &w));
    neo_status status = neo_comm_all_reduce(c, NEO_REDUCE_MAX, &mine, &any, 1, NEO_I64, NULL);
    *finished = status == NEO_OK && !any;
    return status;
}
static int neo__env_processes(void);
/* MPI must see as many processes as the launcher's environment, or each would train alone. */
static neo_status neo__mpi_world_check(void) {
    int size = 1, length = 0, processes = neo__env_processes();
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1 || processes == 1) return NEO_OK;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = 0;
    return neo_fail(
        NEO_ERR_SYSTEM,
        "neo_comm_init_env: the launcher has started %d processes, but MPI (%.60s) sees "
        "one: take the mpirun of the mpicc that compiled this program, or another srun --mpi",
        processes, library);
}
static neo_status neo__mpi_initialise(void) {
    int level = 0;
    NEO__CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) == MPI_SUCCESS,
               NEO_ERR_SYSTEM, "neo_comm_init_env: MPI cannot be initialised");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH asks these handlers for */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);  /* requests of any communicator */
    neo_status status = neo__mpi_world_check();
    if (status != NEO_OK) MPI_Finalize();
    return status;
}
/* This rank's device and context. A launcher may have given each rank cores of its own, or all the
   same: what the ranks of a machine may use is the union. */
static neo_status neo__mpi_context(neo_comm_desc *d, neo_device **device, neo_ctx **ctx) {
    int local = 1, rank = 0, place = 0;
    unsigned char mask[NEO__MASK_BYTES];
    MPI_Comm node;
    neo__core_mask(mask);
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) ==
        MPI_SUCCESS) {
        MPI_Comm_size(node, &local);
        MPI_Comm_rank(node, &place);
        MPI_Allreduce(MPI_IN_PLACE, mask, NEO__MASK_BYTES, MPI_UNSIGNED_CHAR, MPI_BOR, node);
        MPI_Comm_free(&node);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &d->ranks);
    if (d->ctx.threads == 0) d->ctx.threads = neo__core_share(neo__mask_cores(mask), local);
    if (d->open_device) NEO__TRY(neo__comm_open_device(d, rank, place, device));
    if (*device) d->ctx.device = *device;
    d->ctx.repro_shards = neo__default_shards(d->ctx.repro_shards, !!d->ctx.device, d->ranks);
    return neo_ctx_create(&d->ctx, ctx);
}
/* The status of a rank whose function has returned, or what it hears. All finalize, or none. */
static neo_status neo__mpi_end(neo_comm *comm, neo_status status, int *finished) {
    if (status == NEO_OK) status = neo_comm_wait_all(comm);
    if (status == NEO_OK) status = neo__mpi_part(comm, finished);
    const neo__kept_error kept = neo__error_keep(status);
    if (status != NEO_OK) neo__comm_give_up(comm, kept.text);
    return neo__error_restore(&kept);
}
/* One rank of a launcher's job. After a fault MPI is not finalised, which would wait for ever. */
static neo_status neo__mpi_run(const neo_comm_desc *desc, neo_comm_fn fn, void *user) {
    const int starts = !neo__mpi_started();
    const MPI_Comm world = MPI_COMM_WORLD;
    neo_comm_desc d = *desc;
    neo_device *device = NULL;
    neo_ctx *ctx = NULL;
    neo_comm *comm = NULL;
    if (starts) NEO__TRY(neo__mpi_initialise());
    neo_status status = neo__mpi_vote(world, &d, neo__mpi_context(&d, &device, &ctx));
    if (status == NEO_OK) status = neo_comm_create_mpi(ctx, &d, &world, &comm);
    if (comm) neo__comm_lend(comm);
    if (comm) status = fn(comm, user);
    int finished = 0;
    if (comm) status = neo__mpi_end(comm, status, &finished);
    const neo__kept_error kept = neo__error_keep(status);
    neo__comm_end(comm);
    if (ctx && kept.status != NEO_OK) neo__ctx_hush(ctx);
    neo_ctx_destroy(ctx);
    neo__device_release(device);
    if (starts && finished) MPI_Finalize();
    return neo__error_restore(&kept);
}
#else /* NEO_COMM_MPI */
NEO_API neo_status neo_comm_create_mpi(neo_ctx *ctx, const neo_comm_desc *desc,
                                       const void *mpi_comm, neo_comm **comm) {
    (void)ctx, (void)desc, (void)mpi_comm;
    if (comm) *comm = NULL;
    return neo_fail(NEO_ERR_UNSUPPORTED, "neo_comm_create_mpi: compiled without NEO_COMM_MPI");
}
#endif
#if defined(NEO_COMM_NCCL)
#include "neo_nccl.h"
#else /* NEO_COMM_NCCL */
NEO_API neo_status neo_comm_create_nccl(neo_comm *host, int device, void *stream, neo_comm **comm) {
    (void)host, (void)device, (void)stream;
    if (comm) *comm = NULL;
    return neo_fail(NEO_ERR_UNSUPPORTED, "neo_comm_create_nccl: compiled without NEO_COMM_NCCL");
}
#endif

/* ---------------------------------------------------------------------------
   >>impl-comm-env

   How the program was started; the sizes of groups before they are made.
   ------------------------------------------------------------------------ */
/* Processes that a launcher has started beside this one, itself included; 1 without a launcher. */
static int neo__env_processes(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                        "SLURM_STEP_NUM_TASKS"}; /* of srun alone, not of sbatch */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text && atoi(text) > 0) return atoi(text);
    }
    return 1;
}
NEO_API neo_status neo_comm_init_env(const neo_comm_desc *desc, neo_comm_fn fn, void *user) {
    neo_comm_desc d = neo__comm_defaults(desc);
    int processes = neo__env_processes();
#if defined(NEO_COMM_MPI)
    if (processes > 1 || neo__mpi_started()) return neo__mpi_run(&d, fn, user);
#endif
    NEO__CHECK(processes == 1, NEO_ERR_UNSUPPORTED,
               "neo_comm_init_env: a launcher has started %d processes, but this program was "
               "compiled without NEO_COMM_MPI: each would train alone", processes);
    return neo_comm_spawn(d.ranks, &d, fn, user, NULL);
}
/* The sizes of a group as if it were made. Returns the bytes of its block; 0: no such group. */
static size_t neo__comm_predict(const neo_comm_desc *desc, int ranks, neo_comm_backend backend,
                                neo_comm *comm) {
    memset(comm, 0, sizeof *comm);
    if (ranks < 1 || ranks > NEO__COMM_MAX_RANKS) return 0;
    comm->desc = neo__comm_defaults(desc);
    comm->size = ranks;
    const int has_device = comm->desc.open_device || comm->desc.ctx.device;
    const int shards = neo__default_shards(comm->desc.ctx.repro_shards, has_device, ranks);
    comm->tree.shards = NEO__MAX(shards, ranks);
    if (backend == NEO_BACKEND_THREADS) comm->transport = &neo__threads_transport;
#if defined(NEO_COMM_MPI)
    if (backend == NEO_BACKEND_MPI) comm->transport = &neo__mpi_transport;
#endif
#if defined(NEO_COMM_NCCL)
    if (backend == NEO_BACKEND_NCCL) comm->transport = &neo__nccl_transport;
#endif
    return comm->transport ? neo__comm_measure(comm) : 0;
}
NEO_API size_t neo_comm_device_bytes(const neo_comm_desc *desc, int ranks,
                                     neo_comm_backend backend) {
    neo_comm c;
    size_t ring = 0;
    if (!neo__comm_predict(desc, ranks, backend, &c)) return 0;
    neo__comm_stage(&c);
    if (backend == NEO_BACKEND_THREADS) /* a longer ring for the second segment of a sum */
        ring =
            neo__seat_bytes(ranks, 2 * c.tree.most + 2) - neo__seat_bytes(ranks, c.tree.most + 2);
    const size_t staged = (size_t)c.scratch.stage_slots * c.scratch.stage_bytes;
    return 2 * (c.scratch.segment_bytes[1] + staged) + ring;
}
NEO_API size_t neo_comm_workspace_bytes(const neo_comm_desc *desc, int ranks,
                                        neo_comm_backend backend) {
    neo_comm c;
    size_t bytes = neo__comm_predict(desc, ranks, backend, &c);
    if (bytes && backend == NEO_BACKEND_THREADS) bytes += neo__seat_bytes(ranks, c.tree.most + 2);
    return bytes;
}
#undef NEO__SEE
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
