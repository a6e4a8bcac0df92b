/* comm.c: the collectives of neo_comm.h, over ranks as threads or, compiled with NEO_COMM_MPI and
   started by mpirun, over MPI, there beside the MPI library's own.

     make bench BENCHES=comm                         build/bench/comm [--ranks W] [--quick]: 2 ranks
                                                     as threads
     make mpi && mpirun --oversubscribe -n 2 build/bench/comm_mpi
                                                     (--threads is not read: a rank has one;
                                                     --overlap: only that)

   The table has the columns of NVIDIA's nccl-tests, as its PERFORMANCE.md defines them:
     size    S, bytes of the full buffer: of every rank's data for all_reduce and broadcast, of its
             input for reduce_scatter and all_to_all, of its output for all_gather; of f32, sums for
             the reductions
     time    t of one call: the mean over ranks; of these the median and p99 over calls. Calls
             follow each other without barriers; with a peer in turns: neo, peer, peer, neo
     algbw   S/t
     busbw   algbw times 2 (W - 1)/W for all_reduce, (W - 1)/W for reduce_scatter, all_gather and
             all_to_all, 1 for broadcast: what a link between ranks carries, comparable over W and
             with the hardware's bandwidth
     wrong   elements of all ranks that are not as they should be, in a check before anything is
             timed
     copy    the bytes that must be read and written, per second, in percent of the rate at which
             all ranks copy these buffers at the same time, measured between the calls (from 1 MB
             on). Of a rank:
               all_reduce      S (3 - 1/W): read its part of every rank's input, write the sum; read
                               the other sums, write them. W = 2: own half + peer's half + write
                               half, then read half + write half
               reduce_scatter  S (1 + 1/W): read its part of every input, write the sum
               all_gather      2 S, and all_to_all 2 S: read and write every part, its own too
               broadcast       2 S (W - 1)/W on average: each but the root reads and writes. One
                               core of two is idle
             Ranks that share memory cannot do better. MPI moves data through shared pages or a
             system call.
   Overlap: an asynchronous all_to_all under a computation as long as the call alone. hidden = what
   is saved of the shorter of the two, 100 % at best; exposed = what the call adds to the
   computation. Threads: by the link model, where a transfer takes time but, except for one copy, no
   core. MPI in one machine: the cores that compute also move the data, so that with a rank on every
   core little can be hidden; tests/comm/netns.sh measures it between two hosts with a slow link. */
#include "bench/bench.h"

#include "neo_comm.h"

#if defined(NEO_COMM_MPI)
#include <mpi.h>
#endif

enum {
    MAX_ROUNDS = 2000,
    COPIES = 9,
    MB = 1 << 20,
    COPY_FROM = MB,
    OVERLAP = 2 * MB,
    OVERLAP_MPI = 8 * MB
};

typedef enum subject {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    BROADCAST,
    SUBJECTS
} subject;
static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast"};

static int by_mpi;
static char peer_name[16];    /* "openmpi", "mpich" ... */
static int overlap_only;
static char name_suffix[16];  /* of figures: ".w4"; none for two ranks */

typedef struct member { /* a rank */
    neo_comm *comm;
    int rank, size;
    float *in, *out;
    int64_t count, part;                /* elements of the buffer, and of a rank's part of it */
    int64_t ours[2 * MAX_ROUNDS],
        theirs[2 * MAX_ROUNDS]; /* ns of each call; summed over ranks at the end */
} member;

/* ---- the calls ---- */
static void call_neo(member *m, subject s) {
    neo_comm *c = m->comm;
    switch (s) {
    case ALL_REDUCE:
        BENCH_OK(neo_comm_all_reduce(c, NEO_REDUCE_SUM, m->in, m->out, m->count, NEO_F32, NULL));
        break;
    case REDUCE_SCATTER:
        BENCH_OK(neo_comm_reduce_scatter(c, NEO_REDUCE_SUM, m->in, m->out, m->part, NULL, NEO_F32,
                                         NULL));
        break;
    case ALL_GATHER:
        BENCH_OK(neo_comm_all_gather(c, m->in, m->out, m->part, NULL, NEO_F32, NULL));
        break;
    case ALL_TO_ALL: BENCH_OK(neo_comm_all_to_all(c, m->in, m->out, m->part, NEO_F32, NULL)); break;
    case BROADCAST: BENCH_OK(neo_comm_broadcast(c, m->out, m->count, NEO_F32, 0, NULL)); break;
    case SUBJECTS: break;
    }
}
#if defined(NEO_COMM_MPI)
static void call_peer(member *m, subject s) {
    int count = (int)m->count, part = (int)m->part;
    switch (s) {
    case ALL_REDUCE: MPI_Allreduce(m->in, m->out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(m->in, m->out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(m->in, part, MPI_FLOAT, m->out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(m->in, part, MPI_FLOAT, m->out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST: MPI_Bcast(m->out, count, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    case SUBJECTS: break;
    }
}
static void find_peer(void) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    snprintf(peer_name, sizeof peer_name, "%s",
             strstr(text, "Open MPI") ? "openmpi" : strstr(text, "MPICH") ? "mpich" : "mpi");
}
#else
static void call_peer(member *m, subject s) { (void)m, (void)s; }
static void find_peer(void) {}
#endif
static int64_t ns_of(void (*call)(member *, subject), member *m, subject s) {
    int64_t start = neo_time_ns();
    call(m, s);
    return neo_time_ns() - start;
}
/* Whole numbers of which every sum is exact, so that any order gives the same. */
static float value_of(int rank, int64_t i) {
    return (float)((int)(((uint32_t)i * 31u + (uint32_t)rank * 17u) % 127u) - 63);
}
static float expected(const member *m, subject s, int64_t i) {
    int64_t from = s == ALL_GATHER  ? i / m->part
                   : s == BROADCAST ? 0
                                    : i / m->part,
            at = i % m->part;
    float sum = 0;
    switch (s) {
    case ALL_REDUCE:
        for (int p = 0; p < m->size; p++) sum += value_of(p, i);
        return sum;
    case REDUCE_SCATTER:
        for (int p = 0; p < m->size; p++) sum += value_of(p, m->rank * m->part + i);
        return sum;
    case ALL_GATHER: return value_of((int)from, at);
    case ALL_TO_ALL: return value_of((int)from, m->rank * m->part + at);
    default: return value_of(0, i);
    }
}
static int64_t sum_ranks(member *m, int64_t x) {
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, &x, &x, 1, NEO_I64, NULL));
    return x;
}
/* Wrong elements of all ranks. */
static int64_t check(member *m, subject s, void (*call)(member *, subject)) {
    int64_t wrong = 0, outs = s == REDUCE_SCATTER ? m->part : m->count;
    for (int64_t i = 0; i < m->count; i++) {
        m->in[i] = value_of(m->rank, i);
        m->out[i] = s == BROADCAST && m->rank == 0 ? m->in[i] : NAN;
    }
    call(m, s);
    for (int64_t i = 0; i < outs; i++) wrong += !(m->out[i] == expected(m, s, i));
    return sum_ranks(m, wrong);
}

/* ---- one line of the table ---- */
static double bus_factor(subject s, int w) {
    return s == BROADCAST ? 1.0 : (s == ALL_REDUCE ? 2.0 : 1.0) * (w - 1) / w;
}
/* Bytes that each rank must read and write, on average, for each byte of S. */
static double must_move(subject s, int w) {
    switch (s) {
    case ALL_REDUCE: return 3.0 - 1.0 / w;
    case REDUCE_SCATTER: return 1.0 + 1.0 / w;
    case BROADCAST: return 2.0 * (w - 1) / w;
    default: return 2.0;
    }
}
/* ns in which a rank copies the buffer while all do: the mean over ranks. */
static double copy_ns(member *m) {
    size_t bytes = (size_t)m->count * sizeof(float);
    int repeats = 1 + (int)(16 * MB / bytes); /* more than it takes to leave a barrier */
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    int64_t start = neo_time_ns();
    for (int i = 0; i < repeats; i++) memcpy(m->out, m->in, bytes);
    return (double)sum_ranks(m, (neo_time_ns() - start) / repeats) / m->size;
}
static int choose_rounds(member *m, subject s, int with_peer) {
    int64_t most = MAX_ROUNDS, rounds, once = 0;
    for (int i = 0; i < 3; i++) {
        once = ns_of(call_neo, m, s);
        if (with_peer) once = (once + ns_of(call_peer, m, s)) / 2;
    }
    once = sum_ranks(m, once) / m->size + 1;
    rounds = (bench.quick ? 100000000 : 400000000) / (once * (with_peer ? 4 : 2));
    return (int)(rounds < 5 ? 5 : rounds > most ? most : rounds);
}
/* Fills ours and theirs; returns the shortest time of a copy, 0 if none was made. */
static double run_rounds(member *m, subject s, int with_peer, int rounds) {
    double copy = 0;
    int copies = m->count * (int64_t)sizeof(float) >= COPY_FROM ? COPIES : 0;
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    for (int i = 0; i < rounds; i++) {
        if (copies && i % (rounds / copies + 1) == 0) {
            double once = copy_ns(m);
            if (copy == 0 || once < copy) copy = once;
            BENCH_OK(neo_comm_barrier(m->comm, NULL));
        }
        m->ours[2 * i] = ns_of(call_neo, m, s);
        if (with_peer) {
            m->theirs[2 * i] = ns_of(call_peer, m, s);
            m->theirs[2 * i + 1] = ns_of(call_peer, m, s);
        }
        m->ours[2 * i + 1] = ns_of(call_neo, m, s);
    }
    BENCH_OK(
        neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, m->ours, m->ours, 2 * rounds, NEO_I64, NULL));
    BENCH_OK(neo_comm_all_reduce(m->comm, NEO_REDUCE_SUM, m->theirs, m->theirs, 2 * rounds, NEO_I64,
                                 NULL));
    return copy;
}
static void size_text(char text[16], int64_t bytes) {
    if (bytes >= MB) snprintf(text, 16, "%dMB", (int)(bytes / MB));
    else if (bytes >= 1024) snprintf(text, 16, "%dKB", (int)(bytes / 1024));
    else snprintf(text, 16, "%dB", (int)bytes);
}
/* On rank 0: the row, and for some sizes the figure. */
static void report(const member *m, subject s, int64_t bytes, int with_peer, int rounds,
                   int64_t wrong, double copy) {
    static double t[2 * MAX_ROUNDS], ratio[MAX_ROUNDS], peer[2 * MAX_ROUNDS];
    char size[16], name[64];
    double share = -1, times = 0, real = (double)m->count * sizeof(float);
    for (int i = 0; i < 2 * rounds; i++) {
        t[i] = (double)m->ours[i] / m->size;
        peer[i] = (double)m->theirs[i] / m->size;
    }
    for (int i = 0; i < rounds; i++)
        ratio[i] = (peer[2 * i] + peer[2 * i + 1]) / (t[2 * i] + t[2 * i + 1]);
    double ns = bench_median(t, 2 * rounds), busbw = real / ns * bus_factor(s, m->size);
    if (copy > 0) share = 100 * (real * must_move(s, m->size) / ns) / (2 * real / copy);
    printf("  %11.0f %11.1f %11.1f %8.2f %8.2f %6lld", real, ns / 1000,
           bench_quantile(t, 2 * rounds, 0.99) / 1000, real / ns, busbw, (long long)wrong);
    if (share >= 0) printf(" %7.1f", share);
    else printf(" %7s", "-");
    if (with_peer) {
        times = bench_median(ratio, rounds);
        printf(" %11.1f %7.2f", bench_median(peer, 2 * rounds) / 1000, times);
    }
    printf("\n");
    fflush(stdout);
    if (wrong) bench_fail("a result is wrong");
    if (bytes != 8 && bytes != MB && bytes != 64 * MB) return;
    size_text(size, bytes);
    snprintf(name, sizeof name, "comm.%s%s.%s%s", by_mpi ? "mpi." : "", names[s], size,
             name_suffix);
    bench_spread(t, 2 * rounds);
    if (bytes < MB) bench_report(name, ns / 1000, "us", -1, with_peer ? peer_name : NULL, times);
    else bench_report(name, busbw, "GB/s", share, with_peer ? peer_name : NULL, times);
}

/* ---- overlap ---- */
static void compute(int64_t loops) {
    float sink = 0;
    volatile float keep;
    bench_fma_scalar(loops, &sink);
    keep = sink;
    (void)keep;
}
/* ns of an all_to_all (asynchronous: while this rank computes) and of the computation; sums over
   ranks. */
static int64_t overlap_ns(member *m, int64_t loops, int communicate) {
    neo_ticket ticket;
    BENCH_OK(neo_comm_barrier(m->comm, NULL));
    int64_t start = neo_time_ns();
    if (communicate)
        BENCH_OK(
            neo_comm_all_to_all(m->comm, m->in, m->out, m->part, NEO_F32, loops ? &ticket : NULL));
    if (loops) compute(loops);
    if (communicate && loops) BENCH_OK(neo_comm_wait(m->comm, ticket));
    return sum_ranks(m, neo_time_ns() - start);
}
static void bench_overlap(member *m) {
    enum { ROUNDS = 31 };
    double hidden[ROUNDS], exposed[ROUNDS], alone[ROUNDS];
    int rounds = bench.quick ? 11 : ROUNDS;
    char name[64];
    const int64_t bytes = by_mpi ? OVERLAP_MPI : OVERLAP;
    m->part = bytes / (int64_t)sizeof(float) / m->size;
    int64_t loops = 1000000, communication = 0, computation = 0;
    for (int i = 0; i < 5; i++)
        communication += overlap_ns(m, 0, 1), computation += overlap_ns(m, loops, 0);
    loops = (int64_t)((double)loops * (double)communication / (double)computation) + 1;
    for (int i = 0; i < rounds; i++) {
        double call = (double)overlap_ns(m, 0, 1), work = (double)overlap_ns(m, loops, 0);
        double both = (double)overlap_ns(m, loops, 1);
        alone[i] = call / m->size / 1000;
        hidden[i] = 100 * (call + work - both) / (call < work ? call : work);
        exposed[i] = (both - work) / m->size / 1000;
    }
    if (m->rank != 0) return;
    printf("# an asynchronous all_to_all of %d MB (alone %.0f us) under a computation of the same "
           "length\n",
           (int)(bytes / MB), bench_median(alone, rounds));
    snprintf(name, sizeof name, "comm.%soverlap.hidden%s", by_mpi ? "mpi." : "", name_suffix);
    double share = bench_median(hidden, rounds);
    bench_report(name, share, "percent", -1, NULL, 0);
    snprintf(name, sizeof name, "comm.%soverlap.exposed%s", by_mpi ? "mpi." : "", name_suffix);
    share = bench_median(exposed, rounds);
    bench_spread(exposed, rounds);
    bench_report(name, share, "us", -1, NULL, 0);
}

/* ---- what every rank runs ---- */
static member *member_new(neo_comm *comm, int64_t most_bytes) {
    member *m = (member *)bench_alloc(sizeof *m);
    m->comm = comm;
    m->rank = neo_comm_rank(comm);
    m->size = neo_comm_size(comm);
    m->in = (float *)bench_alloc((size_t)most_bytes + 4 * (size_t)m->size);
    m->out = (float *)bench_alloc((size_t)most_bytes + 4 * (size_t)m->size);
    return m;
}
static void member_free(member *m) {
    free(m->in), free(m->out), free(m);
}
static neo_status run_table(neo_comm *comm, void *user) {
    static const int64_t all[] = {8,  64,     512,     4096,    32768,   262144,
                                  MB, 4 * MB, 16 * MB, 64 * MB, 256 * MB};
    static const int64_t few[] = {8, 4096, 262144, MB, 8 * MB, 64 * MB};
    const int64_t *sizes = bench.quick ? few : all;
    int count = bench.quick ? (int)(sizeof few / sizeof *few) : (int)(sizeof all / sizeof *all);
    member *m = member_new(comm, sizes[count - 1]);
    int mpi = neo_comm_get_backend(comm) == NEO_BACKEND_MPI;
    (void)user;
    if (m->rank == 0 || mpi) { /* threads share these */
        by_mpi = mpi;
        find_peer();
        if (m->size != 2) snprintf(name_suffix, sizeof name_suffix, ".w%d", m->size);
    }
    for (subject s = ALL_REDUCE; s < SUBJECTS && !overlap_only; s = (subject)(s + 1)) {
        if (m->rank == 0) {
            printf("# %s, %d ranks %s%s\n", names[s], m->size, mpi ? "over MPI: " : "as threads",
                   peer_name);
            printf("# %11s %11s %11s %8s %8s %6s %7s", "size B", "time us", "p99 us", "algbw",
                   "busbw", "wrong", "copy %");
            printf(mpi ? " %11s %7s\n" : "\n", "peer us", "ratio");
        }
        for (int i = 0; i < count; i++) {
            m->part = sizes[i] / (int64_t)sizeof(float) / m->size;
            if (m->part == 0) m->part = 1;
            m->count = m->part * m->size;
            int64_t wrong = check(m, s, call_neo);
            if (mpi && check(m, s, call_peer) && m->rank == 0)
                bench_fail("a result of MPI's own is wrong");
            int rounds = choose_rounds(m, s, mpi);
            double copy = run_rounds(m, s, mpi, rounds);
            if (m->rank == 0) report(m, s, sizes[i], mpi, rounds, wrong, copy);
        }
    }
    if (mpi) bench_overlap(m); /* MPI starts but once */
    member_free(m);
    return NEO_OK;
}
static neo_status run_overlap(neo_comm *comm, void *user) {
    member *m = member_new(comm, OVERLAP);
    (void)user;
    bench_overlap(m);
    member_free(m);
    return NEO_OK;
}

int main(int argc, char **argv) {
    neo_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ranks = 2;
    desc.ctx.threads = 1;
    int kept = 1;
    for (int i = 1; i < argc; i++) { /* what bench.h does not know */
        if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc)
            desc.ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--overlap") == 0)
            overlap_only = 1;
        else
            argv[kept++] = argv[i];
    }
    argc = kept;
    argv[argc] = NULL;
    bench_begin(argc, argv);
    if (neo_comm_init_env(&desc, run_table, NULL) != NEO_OK) bench_fail(neo_last_error());
    if (!by_mpi && !bench.failed && desc.ranks > 1) {
        desc.link[NEO_LEVEL_LOCAL].latency_us = 20;
        desc.link[NEO_LEVEL_LOCAL].bandwidth = 1e8; /* half of 2 MB to the other of two: 10 ms */
        if (neo_comm_init_env(&desc, run_overlap, NULL) != NEO_OK) bench_fail(neo_last_error());
    }
    return bench_end();
}
