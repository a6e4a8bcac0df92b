/* neo_nccl.h: the NCCL backend of neo_comm.h, whose ranks are GPUs.

   Copy it beside neo_comm.h, which includes it where it is implemented with NEO_COMM_NCCL. Programs
   do not, and without that macro it is not needed. MIT licence (at the end of neo.h).

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_nccl.h is the map)
     >>impl-nccl

   Stop here if you only want the API: this file adds nothing to it.
*/
#ifndef NEO__COMM_IMPLEMENTED
#error "neo_nccl.h is a part of neo_comm.h: include neo_comm.h"
#endif

/* ---------------------------------------------------------------------------
   >>impl-nccl

   Ranks are GPUs. NCCL only moves bytes from one rank to another (ncclSend, ncclRecv); what is sent
   when, and in which order sums add, is >>impl-collectives: the bits are those of any backend.

   The host group   empty messages there say what the ranks are about to do, and how much. Most
                    calls only go into a hash and sums of bytes, which the next such message brings,
                    or the first that is sent when such a call is late.
   Order            NCCL's kernels wait on the device for those of other ranks: groups whose kernels
                    come in other orders on other devices may wait for ever. So in its turn a call
                    puts all its transfers on its stream, each behind the last of any group
                    (neo__launches): the order on the device is that of the calls.
   Transfers        started ones queue up; the next finish hands all of them to NCCL as one group,
                    so that none waits for another of this rank. Empty ones are not sent.
   Two streams      transfers run on one (the user's, if there is one), copies and sums on the
                    other. They wait for each other on the device, the host once, at the end.
   Recorded steps   pass a call: nobody waits, its copies and sums are on the device's stream of
                    exchanges, and with the first transfer to a rank goes the word that says stop.
                    If some do not end, who waits for the device gives up (neo__nccl_watch).
   Waiting          a loop (config.blocking = 0) that looks at an event of the stream, at NCCL's
                    asynchronous error, at the host group and at the clock.
   ------------------------------------------------------------------------ */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "neo_comm.h: NEO_COMM_NCCL needs NCCL 2.14 or newer (communicators that do not block)"
#endif
enum { NEO__NCCL_LOOKS = 1000, NEO__NCCL_REST_MS = 2000 }; /* before a nap; to end a group */
#ifndef NEO__NCCL_DRAIN_MS
#define NEO__NCCL_DRAIN_MS NEO__NCCL_REST_MS /* for streams to be done after a failure */
#endif
enum { NEO__BEGUN, NEO__WORKED, NEO__MOVED, NEO__NCCL_EVENTS = 4 }; /* MOVED: two, in turn */
typedef struct neo__nccl {
    int device, owns_stream;
    neo__launches *order; /* of the device, with groups of other ranks */
    ncclComm_t comm; /* NULL: one rank, or over */
    cudaStream_t stream, work;
    cudaEvent_t event[NEO__NCCL_EVENTS];
    neo__xfer **queue; /* [xfer_count] started, not handed to NCCL yet */
    int queued, works; /* works: the next group of transfers waits for the work stream */
    uint64_t launched, followed, before; /* groups of transfers; those that the work stream waits
                                            for; those of earlier calls */
    const neo__work *running;
    neo__call call; /* of it */
    int agreed;
    int passed;       /* a recorded step passes the last call; `watch` looks since the first such */
    neo__lookout watch;
    neo__limit limit; /* of its wait */
    int64_t seen;     /* calls that were finished when `watch` looked last */
    int hangs;        /* NCCL could not be stopped */
    uint64_t past; /* of calls since the last agreement, and the bytes to and from each rank: */
    size_t *owed;  /* [2 size] */
    const void **staged; /* [pieces] */
} neo__nccl;
static void neo__nccl_carve(neo_comm *comm, neo__carve *at) {
    neo__nccl part, *nccl = &part;
    NEO__CARVE(at, comm->nccl, 1);
    if (at->block) nccl = comm->nccl;
    NEO__CARVE(at, nccl->queue, comm->scratch.xfer_count);
    NEO__CARVE(at, nccl->staged, comm->scratch.pieces);
    NEO__CARVE(at, nccl->owed, 2 * comm->size);
}
/* ---- what the libraries say ---- */
static neo_status neo__cuda_status(cudaError_t error, const char *function) {
    if (error == cudaSuccess) return NEO_OK;
    (void)cudaGetLastError(); /* it is reported here: not again at the user's next call */
    return neo_fail(error == cudaErrorMemoryAllocation ? NEO_ERR_MEMORY : NEO_ERR_SYSTEM,
                    "CUDA: %s: %s", function, cudaGetErrorString(error));
}
#define NEO__CUDA(function, ...) NEO__TRY(neo__cuda_status(function(__VA_ARGS__), #function))
static int neo__nccl_good(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}
static neo_status neo__nccl_status(ncclComm_t comm, ncclResult_t result, const char *what) {
    char more[160];
    if (neo__nccl_good(result)) return NEO_OK;
    const char *last = ncclGetLastError(comm);
    snprintf(more, sizeof more, "%s", last ? last : "");
    for (char *p = more; *p; p++)
        if (*p == '\n') *p = ' ';
    return neo_fail(result == ncclRemoteError ? NEO_ERR_PEER : NEO_ERR_SYSTEM, "NCCL: %s: %s%s%s%s",
                    what, ncclGetErrorString(result), more[0] ? " (" : "", more,
                    more[0] ? ")" : "");
}
/* ---- waiting ---- */
static int neo__nccl_heard(neo_comm *comm) {
    if (!neo__comm_over(comm->host)) return 0;
    (void)neo__comm_mark(comm, comm->host->failure.status, comm->host->failure.message);
    return 1;
}
static void neo__nccl_tell(neo_comm *comm) {
    (void)neo__comm_break(comm->host, NULL, comm->failure.status, "%s", comm->failure.message);
}
static neo_status neo__nccl_state(neo__nccl *nccl, ncclResult_t *state) {
    *state = ncclSuccess;
    if (!nccl->comm) return NEO_OK;
    ncclResult_t asked = ncclCommGetAsyncError(nccl->comm, state);
    NEO__TRY(neo__nccl_status(nccl->comm, asked, "ncclCommGetAsyncError"));
    return neo__nccl_status(nccl->comm, *state, "asynchronous error");
}
static neo_status neo__nccl_patience(neo_comm *comm, neo__limit *limit, int turns) {
    if (turns % 16 == 15) {
        NEO__TRY(neo__comm_check(comm, "neo_comm"));
        if (neo__limit_is_over(NULL, limit))
            return neo_fail(NEO_ERR_TIMEOUT, "not done within %d ms", comm->desc.timeout_ms);
    }
    return NEO_OK;
}
/* Until the event has happened; without one: until NCCL has done what it was asked for. Every
   failure is in neo_last_error; that of the group, if others broke it. */
static neo_status neo__nccl_wait(neo_comm *comm, cudaEvent_t event) {
    neo__limit limit = neo__comm_limit(comm);
    for (int turns = 0;; turns++) {
        ncclResult_t state;
        NEO__TRY(neo__nccl_state(comm->nccl, &state));
        if (event) {
            cudaError_t error = cudaEventQuery(event);
            if (error == cudaSuccess) return NEO_OK;
            if (error != cudaErrorNotReady) return neo__cuda_status(error, "cudaEventQuery");
            (void)cudaGetLastError(); /* older versions keep there that it is not ready */
        } else if (state == ncclSuccess) {
            return NEO_OK;
        }
        NEO__TRY(neo__nccl_patience(comm, &limit, turns));
        neo__comm_nap(turns, NEO__NCCL_LOOKS);
    }
}
/* Is nothing under way on its streams? Waits a little; of a device that has failed: yes. */
static int neo__nccl_rests(neo__nccl *nccl) {
    const cudaEvent_t event = nccl->event[NEO__BEGUN];
    cudaError_t error = cudaSetDevice(nccl->device);
    neo__limit limit = neo__limit_in(NULL, NEO__NCCL_DRAIN_MS);
    for (int i = 0; i < 2 && event && error != cudaErrorNotReady; i++) {
        error = cudaEventRecord(event, i ? nccl->work : nccl->stream);
        if (error == cudaSuccess)
            while ((error = cudaEventQuery(event)) == cudaErrorNotReady &&
                   !neo__limit_is_over(NULL, &limit))
                neo__thread_sleep(NEO__COMM_NAP_NS);
        if (error != cudaSuccess) (void)cudaGetLastError();
    }
    return error != cudaErrorNotReady;
}
/* Calls that passed, and have not come, stop the steps that are behind them. */
static void neo__nccl_abort(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    if (nccl->comm && nccl->watch.look && neo__comm_is_broken(comm) &&
        cudaEventQuery((cudaEvent_t)comm->scratch.mark[2]) != cudaSuccess)
        (void)neo__device_order(comm->ctx, NEO__ORDER_OVER, comm->failure.message,
                                (int)comm->failure.status);
    if (nccl->comm) (void)ncclCommAbort(nccl->comm);
    nccl->comm = NULL;
    nccl->queued = 0;
}
/* ---- before a call: do all ranks make it? ---- */
/* Bytes that rank `from` sends to rank `to`, as this rank, one of them, sees it. */
static size_t neo__nccl_whole(const neo_comm *comm, const neo__work *work, int from, int to) {
    const int pairs = work->call.op == (int)NEO_COMM_ALL_TO_ALL;
    const int64_t *counts = pairs && to == comm->rank ? work->out_counts : work->in_counts;
    int part = neo__in_has_all(work) ? to : from;
    if (pairs) part = to == comm->rank ? from : to;
    return (size_t)neo__part(work->count, counts, part) * work->each;
}
/* Empty messages in the host group carry the call, and how much comes with it there. */
static neo_status neo__nccl_agree_ranks(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    const neo__work *work = nccl->running;
    const int pair = work->call.op == (int)NEO_COMM_SEND;
    neo__round r = neo__round_new(comm->host);
    neo__call call = nccl->call;
    nccl->agreed = 1;
    if (!pair) call.past |= nccl->past & ~(uint64_t)1;
    for (int send = 0; send < 2; send++)
        for (int d = 1; d < comm->size; d++) {
            int p = neo__peer_in_turn(comm, d, !send);
            if (pair && (p != work->peer || send == work->receives)) continue;
            if (send) comm->stats.op[call.op].control_bytes += (int64_t)sizeof(neo__header);
            neo__round_add(&r, p, send, NULL, 0, 1, 0)->whole =
                neo__nccl_whole(comm, work, send ? comm->rank : p, send ? p : comm->rank) +
                (pair ? 0 : nccl->owed[2 * p + send]);
        }
    if (!pair) {
        nccl->past = 0;
        memset(nccl->owed, 0, 2 * (size_t)comm->size * sizeof *nccl->owed);
    }
    neo_status status = neo__round_run(comm->host, &call, &r);
    if (status == NEO_OK) return NEO_OK;
    (void)neo__nccl_heard(comm); /* why */
    neo__nccl_abort(comm);
    return neo__comm_failed(comm);
}
/* A call that the next agreement vouches for. */
static void neo__nccl_owe(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    nccl->agreed = 0;
    for (size_t i = 0; i < sizeof nccl->call; i++)
        nccl->past = (nccl->past ^ ((const unsigned char *)&nccl->call)[i]) * 0x100000001B3u + 1;
    for (int p = 0; p < comm->size; p++)
        for (int send = 0; send < 2 && p != comm->rank; send++)
            nccl->owed[2 * p + send] +=
                neo__nccl_whole(comm, nccl->running, send ? comm->rank : p, send ? p : comm->rank);
}
/* The call is late: the peers of its transfers. */
static neo_status neo__nccl_late(const neo_comm *comm) {
    const neo__xfer *x = comm->scratch.xfer;
    neo__call_text who = {""};
    int first = -1, more = 0;
    for (int i = 0; i < comm->scratch.xfer_count; i++) {
        if (x[i].index <= comm->nccl->before) continue;
        if (first < 0) first = x[i].peer;
        more |= x[i].peer != first;
    }
    if (first >= 0)
        neo__append(who.text, sizeof who.text, "transfers with rank %d %swere ", comm->world[first],
                    more ? "and others " : "");
    return neo_fail(NEO_ERR_TIMEOUT, "%snot done within %d ms", who.text, comm->desc.timeout_ms);
}
/* If the call that runs has failed, neo_last_error says why: break the group, and leave nothing
   under way that still uses the user's memory. Late may be those that made another call. */
static neo_status neo__nccl_did(neo_comm *comm, neo_status status) {
    neo__nccl *nccl = comm->nccl;
    if (status == NEO_OK) return NEO_OK;
    if (status == NEO_ERR_TIMEOUT && !neo__comm_is_broken(comm)) status = neo__nccl_late(comm);
    if (status == NEO_ERR_TIMEOUT && !nccl->agreed && !neo__comm_is_broken(comm)) {
        const neo__kept_error kept = neo__error_keep(status);
        comm->host->desc.timeout_ms = NEO__MIN(comm->desc.timeout_ms, (int)NEO__NCCL_REST_MS / 2);
        (void)neo__nccl_agree_ranks(comm);
        status = neo__error_restore(&kept);
    }
    status = neo__comm_device_did(comm, &nccl->call, status);
    neo__nccl_abort(comm);
    nccl->hangs = !neo__nccl_rests(nccl);
    return status;
}
/* The host waits for the device, where calls have passed: not without an end. Those that have not
   come so far have patience of their own, so that of the wait begins when all have. */
static int neo__nccl_watch(neo__lookout *watch, int turn) {
    neo_comm *comm = (neo_comm *)watch->user;
    neo__nccl *nccl = comm->nccl;
    ncclResult_t state;
    neo__mutex_lock(&comm->lock);
    const int64_t finished = comm->queue.finished;
    const int idle = finished == comm->queue.issued;
    neo__mutex_unlock(&comm->lock);
    if (turn == 0 || !idle || nccl->seen != finished) nccl->limit = neo__comm_limit(comm);
    nccl->seen = finished;
    if (idle && nccl->comm) {
        neo_status status = neo__nccl_state(nccl, &state);
        if (status == NEO_OK) status = neo__nccl_patience(comm, &nccl->limit, turn);
        (void)neo__nccl_did(comm, status);
    }
    return nccl->hangs;
}
/* The stream of the call's copies and sums. */
static cudaStream_t neo__nccl_work(const neo_comm *comm) {
    return comm->scratch.stream ? (cudaStream_t)comm->scratch.stream : comm->nccl->work;
}
/* The streams begin in the user's order, and behind what the context's device was called to do. */
static neo_status neo__nccl_begin(neo_comm *comm, void *ready) {
    neo__nccl *nccl = comm->nccl;
    NEO__CUDA(cudaSetDevice, nccl->device);
    if (ready) NEO__CUDA(cudaStreamWaitEvent, nccl->stream, (cudaEvent_t)ready, 0);
    if (nccl->passed)
        NEO__CUDA(cudaStreamWaitEvent, nccl->stream, (cudaEvent_t)comm->scratch.mark[2], 0);
    NEO__CUDA(cudaEventRecord, nccl->event[NEO__BEGUN], nccl->stream);
    NEO__CUDA(cudaStreamWaitEvent, neo__nccl_work(comm), nccl->event[NEO__BEGUN], 0);
    return NEO_OK;
}
static neo_status neo__nccl_come(neo_comm *comm) {
    comm->nccl->agreed = 1;
    comm->scratch.stream = NULL;
    NEO__TRY(neo__nccl_did(comm, neo__nccl_begin(comm, NULL)));
    return neo__nccl_did(comm, neo__nccl_wait(comm, comm->nccl->event[NEO__BEGUN]));
}
/* The device comes first: if it fails, the others hear of it in the exchange. Rows are coded on a
   stream of the context's device, once they are there. */
static neo_status neo__nccl_agree(neo_comm *comm, const neo__work *work) {
    const int op = work->call.op, alone = op == (int)NEO_COMM_SEND || op == (int)NEO_COMM_BARRIER;
    neo__nccl *nccl = comm->nccl;
    nccl->running = work;
    nccl->call = work->call;
    nccl->call.past = work->stream != NULL;
    nccl->agreed = 1;
    nccl->before = nccl->launched;
    nccl->works = work->rows.cols && work->stream;
    if (work->stream && !nccl->watch.look) {
        nccl->watch.look = neo__nccl_watch;
        nccl->watch.user = comm;
        neo__device_watch(comm->ctx, &nccl->watch, 1);
    }
    NEO__TRY(neo__nccl_did(comm, neo__nccl_begin(comm, work->ready)));
    if (alone || work->call.count == 0 || work->call.sequence % comm->desc.agree_every == 0)
        NEO__TRY(neo__nccl_agree_ranks(comm));
    else
        neo__nccl_owe(comm);
    if (!work->rows.cols || work->stream) return NEO_OK;
    return neo__nccl_did(comm, neo__nccl_wait(comm, nccl->event[NEO__BEGUN]));
}
/* ---- transfers ---- */
/* Next on the stream: behind sums and copies, and what any group has launched on the device. */
static neo_status neo__nccl_next(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    nccl->launched++;
    NEO__CUDA(cudaSetDevice, nccl->device);
    if (nccl->works) NEO__CUDA(cudaEventRecord, nccl->event[NEO__WORKED], neo__nccl_work(comm));
    if (nccl->works) NEO__CUDA(cudaStreamWaitEvent, nccl->stream, nccl->event[NEO__WORKED], 0);
    nccl->works = 0;
    if (NEO__LAUNCH_ORDER)
        NEO__CUDA(cudaStreamWaitEvent, nccl->stream, (cudaEvent_t)nccl->order->last, 0);
    return NEO_OK;
}
/* NCCL has been asked; its kernels are on the stream when it is not in progress. */
static neo_status neo__nccl_launched(neo_comm *comm, ncclResult_t asked, const char *what) {
    neo__nccl *nccl = comm->nccl;
    const neo_status status = neo__nccl_status(nccl->comm, asked, what);
    NEO__TRY(neo__nccl_wait(comm, NULL)); /* an error of before comes first */
    NEO__TRY(status);
    NEO__CUDA(cudaEventRecord, nccl->event[NEO__MOVED + (nccl->launched & 1)], nccl->stream);
    if (NEO__LAUNCH_ORDER) NEO__CUDA(cudaEventRecord, (cudaEvent_t)nccl->order->last, nccl->stream);
    return NEO_OK;
}
/* The word to a rank, or from it. */
static ncclResult_t neo__nccl_say(neo_comm *comm, int peer, int send) {
    neo__nccl *nccl = comm->nccl;
    void *heard = neo__device_heard(comm->ctx, comm->world[peer]);
    return send ? ncclSend(comm->scratch.stop, 1, ncclUint8, peer, nccl->comm, nccl->stream)
                : ncclRecv(heard, 1, ncclUint8, peer, nccl->comm, nccl->stream);
}
/* All that is queued, as one group. */
static neo_status neo__nccl_launch(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    if (nccl->queued == 0) return NEO_OK;
    NEO__TRY(neo__nccl_next(comm));
    ncclResult_t result = ncclGroupStart(), end = result;
    for (int i = 0; i < nccl->queued && neo__nccl_good(result); i++) {
        neo__xfer *x = nccl->queue[i];
        x->index = nccl->launched;
        if (x->bytes > 0)
            result =
                x->send ? ncclSend(x->data, x->bytes, ncclUint8, x->peer, nccl->comm, nccl->stream)
                        : ncclRecv(x->data, x->bytes, ncclUint8, x->peer, nccl->comm, nccl->stream);
        if (x->held && neo__nccl_good(result)) result = neo__nccl_say(comm, x->peer, x->send);
    }
    if (neo__nccl_good(end)) end = ncclGroupEnd(); /* whatever has failed: it closes the group */
    nccl->queued = 0;
    return neo__nccl_launched(comm, neo__nccl_good(result) ? end : result, "ncclSend and ncclRecv");
}
static neo_status neo__nccl_start(neo_comm *comm, const neo__call *call, neo__xfer *transfer) {
    neo__nccl *nccl = comm->nccl;
    (void)call;
    transfer->held = transfer->first && comm->scratch.stream;
    transfer->first = 0; /* no header: see neo__nccl_agree_ranks */
    transfer->from = transfer->data;
    NEO_ASSERT(nccl->queued < comm->scratch.xfer_count);
    const neo__xfer *second = comm->scratch.xfer + comm->scratch.xfer_count / 2; /* segment's */
    if (nccl->queued && (nccl->queue[0] < second) != (transfer < second))
        NEO__TRY(neo__nccl_did(comm, neo__nccl_launch(comm)));
    if (transfer->bytes > 0 || transfer->held) nccl->queue[nccl->queued++] = transfer;
    return NEO_OK;
}
/* The work stream waits for these. */
static neo_status neo__nccl_follow(neo_comm *comm, const neo__xfer *x, int count) {
    neo__nccl *nccl = comm->nccl;
    uint64_t group = 0;
    NEO__TRY(neo__nccl_launch(comm));
    for (int i = 0; i < count; i++)
        if (!x[i].done && x[i].index > group) group = x[i].index;
    if (group <= nccl->followed) return NEO_OK;
    nccl->followed = group;
    NEO__CUDA(cudaStreamWaitEvent, neo__nccl_work(comm), nccl->event[NEO__MOVED + (group & 1)], 0);
    return NEO_OK;
}
static neo_status neo__nccl_finish(neo_comm *comm, const neo__call *call, neo__xfer *x, int count) {
    NEO__TRY(neo__nccl_did(comm, neo__nccl_follow(comm, x, count)));
    for (int i = 0; i < count; i++) {
        if (x[i].done) continue;
        x[i].done = 1;
        if (x[i].send) neo__comm_count_sent(comm, call, &x[i]);
    }
    return NEO_OK;
}
/* The end of a call: all is done on both streams, or is where it has passed. */
static neo_status neo__nccl_end(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    const cudaStream_t work = neo__nccl_work(comm);
    NEO__CUDA(cudaSetDevice, nccl->device);
    if (nccl->launched > nccl->followed)
        NEO__CUDA(cudaStreamWaitEvent, work, nccl->event[NEO__MOVED + (nccl->launched & 1)], 0);
    nccl->followed = nccl->launched;
    nccl->works = 0;
    nccl->passed = comm->scratch.stream != NULL;
    if (nccl->passed) return NEO_OK;
    NEO__CUDA(cudaEventRecord, nccl->event[NEO__WORKED], work);
    return neo__nccl_wait(comm, nccl->event[NEO__WORKED]);
}
static neo_status neo__nccl_settle(neo_comm *comm) {
    return neo__nccl_did(comm, neo__nccl_end(comm));
}
/* ---- copies and sums ---- */
static neo_status neo__nccl_move(neo_comm *comm, void *to, const void *from, size_t bytes) {
    neo__nccl *nccl = comm->nccl;
    nccl->works = 1;
    NEO__CUDA(cudaSetDevice, nccl->device);
    NEO__CUDA(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToDevice, neo__nccl_work(comm));
    return NEO_OK;
}
static neo_status neo__nccl_copy(neo_comm *comm, void *to, const void *from, size_t bytes) {
    return neo__nccl_did(comm, neo__nccl_move(comm, to, from, bytes));
}
/* By way of pinned memory, as many elements at a time as fit there. */
static neo_status neo__nccl_sum_staged(neo_comm *comm, const neo__combine_call *sum) {
    neo__nccl *nccl = comm->nccl;
    neo__combine_call part = *sum;
    const size_t size = neo_dtype_size(sum->dtype);
    const size_t fits = comm->scratch.stage_bytes / (size_t)sum->count / 64 * 64 / size;
    const int64_t most = NEO__MAX((int64_t)fits, 1);
    for (int64_t at = 0; at < sum->n; at += most) {
        part.n = NEO__MIN(most, sum->n - at);
        const size_t bytes = (size_t)part.n * size, from = (size_t)at * size;
        for (int k = 0; k < sum->count; k++) {
            char *to = comm->scratch.staging + (size_t)k * (size_t)most * size;
            NEO__CUDA(cudaMemcpyAsync, to, (const char *)sum->piece[k] + from, bytes,
                      cudaMemcpyDeviceToHost, neo__nccl_work(comm));
            nccl->staged[k] = to;
        }
        NEO__CUDA(cudaEventRecord, nccl->event[NEO__WORKED], neo__nccl_work(comm));
        NEO__TRY(neo__nccl_wait(comm, nccl->event[NEO__WORKED]));
        part.piece = nccl->staged;
        part.out = comm->scratch.staging;
        NEO__TRY(neo__device_combine(comm->ctx, NEO_HOST, &part));
        NEO__CUDA(cudaMemcpyAsync, (char *)sum->out + from, part.out, bytes,
                  cudaMemcpyHostToDevice, neo__nccl_work(comm));
    }
    return NEO_OK;
}
static neo_status neo__nccl_sum(neo_comm *comm, const neo__combine_call *sum) {
    neo__combine_call on_work = *sum;
    NEO__CUDA(cudaSetDevice, comm->nccl->device);
    if (sum->count == 1 && sum->out == sum->piece[0]) return NEO_OK;
    if (sum->count == 1)
        return neo__nccl_move(comm, sum->out, sum->piece[0],
                              (size_t)sum->n * neo_dtype_size(sum->dtype));
    comm->nccl->works = 1;
    on_work.stream = (void *)neo__nccl_work(comm);
    if (neo_ctx_device(comm->ctx) && sum->count <= (int)NEO__COMBINE_PIECES)
        return neo__device_combine(comm->ctx, NEO_DEVICE, &on_work);
    return neo__nccl_sum_staged(comm, sum);
}
static neo_status neo__nccl_combine(neo_comm *comm, const neo__combine_call *sum) {
    return neo__nccl_did(comm, neo__nccl_sum(comm, sum));
}
/* A sum of NCCL's own, counted as if parts went straight to where they are added. */
static neo_status neo__nccl_reduce(neo_comm *comm, const neo__work *work, int *done) {
    neo__nccl *nccl = comm->nccl;
    const int dtype = work->call.dtype, scatters = work->call.op == (int)NEO_COMM_REDUCE_SCATTER;
    const ncclDataType_t type = dtype == (int)NEO_F32   ? ncclFloat32
                                : dtype == (int)NEO_F16 ? ncclFloat16
                                                        : ncclBfloat16;
    const void *in = work->pieces ? work->piece[0] : work->in;
    const size_t count = (size_t)work->call.count, part = count / (size_t)comm->size;
    if (comm->desc.sums != NEO_SUMS_NCCL || comm->size == 1 || dtype > (int)NEO_BF16 ||
        work->call.reduce != (int)NEO_REDUCE_SUM || count == 0 ||
        (work->pieces && comm->scratch.pieces > comm->size))
        return NEO_OK;
    for (int p = 0; p < comm->size && scatters; p++)
        if ((size_t)neo__part(work->count, work->in_counts, p) != part) return NEO_OK;
    *done = 1;
    NEO__TRY(neo__nccl_did(comm, neo__nccl_next(comm)));
    ncclResult_t end = ncclGroupStart(), asked = end;
    if (neo__nccl_good(asked))
        asked =
            scatters
                ? ncclReduceScatter(in, work->out, part, type, ncclSum, nccl->comm, nccl->stream)
                : ncclAllReduce(in, work->out, count, type, ncclSum, nccl->comm, nccl->stream);
    for (int i = 0; i < 2 * comm->size && comm->scratch.stream && neo__nccl_good(asked); i++)
        if (i / 2 != comm->rank) asked = neo__nccl_say(comm, i / 2, i % 2);
    if (neo__nccl_good(end)) end = ncclGroupEnd();
    asked = neo__nccl_good(asked) ? end : asked;
    NEO__TRY(neo__nccl_did(comm, neo__nccl_launched(comm, asked, "a sum of its own")));
    for (int p = 0; p < comm->size; p++) {
        NEO__ZERO(neo__xfer, x);
        x.peer = p;
        x.bytes = (scatters ? part : 2 * part) * work->each;
        if (p != comm->rank) neo__comm_count_sent(comm, &work->call, &x);
    }
    return NEO_OK;
}
/* ---- groups ---- */
/* NCCL ends when the ranks of a node do so together; a rank whose peers do not come gives up. */
static void neo__nccl_leave(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    if (nccl->watch.look) neo__device_watch(comm->ctx, &nccl->watch, 0);
    /* Calls that passed are in flight: steps behind one that never comes must have no effect. */
    if (nccl->watch.look && nccl->comm && !neo__comm_is_broken(comm))
        (void)neo__nccl_did(comm, neo__nccl_wait(comm, (cudaEvent_t)comm->scratch.mark[2]));
    comm->host->transport->leave(comm->host);
    if (!nccl->comm) return;
    ncclResult_t state = ncclInternalError;
    (void)cudaSetDevice(nccl->device);
    if (!neo__comm_is_broken(comm)) {
        int64_t until = neo_time_ns() + (int64_t)NEO__NCCL_REST_MS * 1000000;
        state = ncclCommFinalize(nccl->comm);
        for (int turns = 0; state == ncclInProgress && neo_time_ns() < until; turns++) {
            if (ncclCommGetAsyncError(nccl->comm, &state) != ncclSuccess) state = ncclInternalError;
            neo__comm_nap(turns, NEO__NCCL_LOOKS);
        }
    }
    if (state == ncclSuccess) (void)ncclCommDestroy(nccl->comm);
    else neo__nccl_abort(comm);
    nccl->comm = NULL;
}
static void neo__nccl_drop(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    (void)cudaSetDevice(nccl->device);
    /* Freeing waits for the device: not for one that NCCL could not stop. */
    const int rests = !comm->failure.broken || neo__nccl_rests(nccl);
    if (!rests)
        neo_log(comm->ctx, NEO_LOG_WARNING,
                "neo_comm: device %d still runs what has failed: its scratch of %zu bytes is lost",
                nccl->device, 2 * comm->scratch.segment_bytes[1]);
    if (!neo_ctx_device(comm->ctx) && rests) {
        (void)cudaFree(comm->scratch.device);
        (void)cudaFreeHost(comm->scratch.staging);
    }
    if (!neo_ctx_device(comm->ctx) || !rests) comm->scratch.device = comm->scratch.staging = NULL;
    if (nccl->order && --nccl->order->groups == 0) {
        (void)cudaEventDestroy((cudaEvent_t)nccl->order->last);
        nccl->order->last = NULL;
    }
    for (int i = 0; i < NEO__NCCL_EVENTS; i++)
        if (nccl->event[i]) (void)cudaEventDestroy(nccl->event[i]);
    if (nccl->stream && nccl->owns_stream) (void)cudaStreamDestroy(nccl->stream);
    if (nccl->work) (void)cudaStreamDestroy(nccl->work);
    neo_comm_destroy(comm->host);
}
static neo_status neo__nccl_split(neo_comm *comm, int color, int key, neo_comm **out);
static const neo__transport neo__nccl_transport = {
    NEO_BACKEND_NCCL, neo__nccl_carve,  NULL,
    neo__nccl_start,  neo__nccl_finish, NULL,
    neo__nccl_tell,   neo__nccl_heard,
    NULL,             NULL,             neo__nccl_leave, neo__nccl_drop,
    neo__nccl_agree,  neo__nccl_come,   neo__nccl_copy,  neo__nccl_combine,
    neo__nccl_split,  neo__nccl_settle, neo__nccl_reduce,
};
/* Streams, events and memory of this rank's device. */
static neo_status neo__nccl_open(neo_comm *comm, int device, void *stream) {
    neo__nccl *nccl = comm->nccl;
    nccl->device = device;
    cudaError_t error = cudaSetDevice(device);
    if (error == cudaErrorInvalidDevice) {
        (void)cudaGetLastError();
        return neo_fail(NEO_ERR_ARG, "there is no CUDA device %d", device);
    }
    NEO__TRY(neo__cuda_status(error, "cudaSetDevice"));
    nccl->stream = (cudaStream_t)stream;
    if (!stream) {
        NEO__CUDA(cudaStreamCreateWithFlags, &nccl->stream, cudaStreamNonBlocking);
        nccl->owns_stream = 1;
    }
    NEO__CUDA(cudaStreamCreateWithFlags, &nccl->work, cudaStreamNonBlocking);
    for (int i = 0; i < NEO__NCCL_EVENTS; i++)
        NEO__CUDA(cudaEventCreateWithFlags, &nccl->event[i], cudaEventDisableTiming);
    cudaEvent_t last = (cudaEvent_t)neo__ctx_launches(comm->ctx)->last;
    if (!last) NEO__CUDA(cudaEventCreateWithFlags, &last, cudaEventDisableTiming);
    nccl->order = neo__ctx_launches(comm->ctx);
    nccl->order->last = (void *)last;
    nccl->order->groups++;
    if (neo_ctx_device(comm->ctx)) return neo__comm_device_make(comm);
    neo__comm_stage(comm);
    NEO__CUDA(cudaMalloc, (void **)&comm->scratch.device, 2 * comm->scratch.segment_bytes[1]);
    NEO__CUDA(cudaMallocHost, (void **)&comm->scratch.staging, 2 * comm->scratch.stage_bytes);
    return NEO_OK;
}
/* Ranks that share a GPU would wait for each other in NCCL. */
static neo_status neo__nccl_alone(neo_comm *comm) {
    int64_t *gpu = neo__comm_counts(comm), mine;
    char name[32] = "";
    NEO__CUDA(cudaDeviceGetPCIBusId, name, (int)sizeof name, comm->nccl->device);
    mine = (int64_t)(neo_hash(name) + (uint64_t)comm->node[comm->rank]);
    NEO__TRY(neo_comm_all_gather(comm->host, &mine, gpu, 1, NULL, NEO_I64, NULL));
    for (int p = 0; p < comm->size; p++)
        for (int q = 0; q < p; q++)
            NEO__CHECK(gpu[p] != gpu[q], NEO_ERR_UNSUPPORTED,
                       "ranks %d and %d share a GPU, and NCCL wants one for each rank",
                       comm->world[q], comm->world[p]);
    return NEO_OK;
}
/* Meet the others in NCCL. */
static neo_status neo__nccl_connect(neo_comm *comm) {
    neo__nccl *nccl = comm->nccl;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    NEO__ZERO(ncclUniqueId, id);
    if (comm->size == 1) return NEO_OK;
    NEO__TRY(neo__nccl_alone(comm));
    if (comm->rank == 0) NEO__TRY(neo__nccl_status(NULL, ncclGetUniqueId(&id), "ncclGetUniqueId"));
    NEO__TRY(neo_comm_broadcast(comm->host, &id, (int64_t)sizeof id, NEO_U8, 0, NULL));
    config.blocking = 0;
    ncclResult_t result = ncclCommInitRankConfig(&nccl->comm, comm->size, id, comm->rank, &config);
    NEO__TRY(neo__nccl_status(nccl->comm, result, "ncclCommInitRankConfig"));
    NEO__TRY(neo__nccl_wait(comm, NULL));
    return neo_comm_barrier(comm->host, NULL);
}
/* *out: also of a failure, as far as it came; then it owns the host group. */
static neo_status neo__nccl_new(neo_comm *host, int device, void *stream, neo_comm **out) {
    neo_comm *comm;
    NEO__TRY(neo__comm_new(host->ctx, &host->desc, &neo__nccl_transport, host->rank, host->size,
                           &comm));
    comm->host = host;
    comm->place = NEO_DEVICE;
    comm->queue.inline_only = host->queue.inline_only;
    for (int p = 0; p < comm->size; p++) neo__comm_take_rank(comm, p, host, p);
    *out = comm;
    NEO__TRY(neo__nccl_open(comm, device, stream));
    return neo__nccl_connect(comm);
}
/* A group over the ranks of host, which it takes or frees. A rank that fails tells the others. */
static neo_status neo__nccl_over(neo_comm *host, const char *function, int device, void *stream,
                                 neo_comm **out) {
    neo_comm *comm = NULL;
    neo_status status = neo__nccl_new(host, device, stream, &comm);
    if (status == NEO_OK) {
        neo__live_end(host->ctx, &host->live); /* a part of it */
        *out = comm;
        return NEO_OK;
    }
    status = neo__comm_break(host, NULL, status, "rank %d: %s: %.280s", host->world[host->rank],
                             function, neo_last_error());
    const neo__kept_error kept = neo__error_keep(status);
    if (comm) (void)neo__comm_mark(comm, status, kept.text); /* it ends by an abort */
    neo_comm_destroy(comm ? comm : host);
    return neo__error_restore(&kept);
}
static neo_status neo__nccl_split(neo_comm *comm, int color, int key, neo_comm **out) {
    neo__nccl *nccl = comm->nccl;
    neo_comm *host = NULL;
    NEO__TRY(neo__comm_drain(comm, comm->queue.issued)); /* they use the host group */
    neo_status status = neo_comm_split(comm->host, color, key, &host);
    if (status == NEO_OK && host)
        status = neo__nccl_over(host, "neo_comm_split", nccl->device,
                                nccl->owns_stream ? NULL : (void *)nccl->stream, out);
    return status;
}
NEO_API neo_status neo_comm_create_nccl(neo_comm *host, int device, void *stream, neo_comm **comm) {
    NEO__CHECK(host && comm, NEO_ERR_ARG, "neo_comm_create_nccl: an argument is NULL");
    *comm = NULL;
    NEO__CHECK(host->place == NEO_HOST, NEO_ERR_ARG,
               "neo_comm_create_nccl: host is a group of devices itself (see neo_comm_split)");
    NEO__CHECK(!host->clock, NEO_ERR_UNSUPPORTED,
               "neo_comm_create_nccl: not with a virtual clock: NCCL takes real time");
    neo_comm *own = NULL;
    NEO__TRY(neo_comm_split(host, 0, 0, &own));
    return neo__nccl_over(own, "neo_comm_create_nccl", device, stream, comm);
}
#undef NEO__CUDA
