/* job.h: a job of many ranks that was started from the command line: what the ranks of a process
   share, what a rank prints, and how the job ends when one of them fails.

   main fills a cli_job and calls cli_start; every rank has a cli_rank and calls cli_run. */
#ifndef EXAMPLE_JOB_H
#define EXAMPLE_JOB_H
#include "cli.h"
#include "device.h"
#include "same_file.h"
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>

#if defined(_WIN32)
#include <direct.h>
#include <io.h>
#define isatty _isatty
#define fileno _fileno
#define make_directory(path) _mkdir(path)
#define replace_file(from, to) (remove(to), rename(from, to))
#else
#include <unistd.h>
#define make_directory(path) mkdir(path, 0777)
#define replace_file(from, to) rename(from, to)
#endif

/* Constant once the ranks have started, but for the last seven fields. */
typedef struct cli_job {
    const cli_program *program;
    neo_comm_desc comm;
    device_choice device;
    int help;
    char refused[1024]; /* why the options are refused, or "" */
    const char *trace, *chakra; /* --trace, --chakra, or NULL */
    int64_t trace_spans;
    char *model;        /* rank 0's, for the checkpoints: see neo_save_desc; or NULL */
    pthread_mutex_t lock;
    uint64_t said[64];  /* hashes of the last lines of the log */
    int said_count;
    int silent;         /* another process speaks for all */
    int told;           /* an error that all ranks have is printed */
    int stopped;        /* 0, or the signal that ended the run */
} cli_job;

typedef struct cli_rank {
    cli_job *job;
    neo_comm *comm;
    neo_ctx *ctx;
    int rank, ranks;
    neo_trace *trace;   /* destroyed when nothing is in flight; or NULL */
    neo_saving *saving; /* a checkpoint that is being written, or NULL */
} cli_rank;

static cli_rank cli_rank_of(cli_job *job, neo_comm *comm) {
    return (cli_rank){.job = job, .comm = comm, .ctx = neo_comm_ctx(comm),
                      .rank = neo_comm_rank(comm), .ranks = neo_comm_size(comm)};
}

/* The statuses of all ranks as one for all: none acts on an error alone. Collective. */
static neo_status agree(neo_comm *comm, neo_status mine) {
    return neo_comm_size(comm) == 1 ? mine : neo_comm_agree(comm, mine);
}

/* Prints a message, on rank 0. */
static void say(const cli_rank *me, const char *format, ...) {
    va_list args;
    if (me->rank) return;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

static void write_stderr(const char *text, void *user) {
    (void)user;
    fputs(text, stderr);
    fflush(stderr);
}
static void write_nothing(const char *text, void *user) { (void)text, (void)user; }

/* A progress bar, shown by rank 0. */
static neo_progress cli_progress(const cli_rank *me, int64_t first, int64_t total) {
    return (neo_progress){.label = "train", .first = first, .total = total,
                          .write = me->rank ? write_nothing : write_stderr,
                          .terminal = isatty(fileno(stderr))};
}

/* The logger of neo's warnings. All ranks read all lines of data of which bad ones are skipped, and
   find the same, so a warning is printed once. */
static void cli_log(neo_log_level level, const char *message, void *user) {
    cli_job *job = user;
    uint64_t hash = neo_hash(message);
    int most = sizeof job->said / sizeof job->said[0], is_new = 1;
    pthread_mutex_lock(&job->lock);
    for (int i = 0; i < most; i++) is_new &= job->said[i] != hash;
    if (is_new) job->said[job->said_count++ % most] = hash;
    if (is_new && !job->silent)
        fprintf(stderr, "%s%s\n", level == NEO_LOG_WARNING ? "warning: " : "", message);
    pthread_mutex_unlock(&job->lock);
}

/* Ranks that are threads of this process fit into the machine: a group takes memory for each pair
   of them, and a job has at least four groups of all. */
static neo_status check_memory(const neo_comm_desc *desc) {
#if defined(_SC_PHYS_PAGES) && !defined(NEO_COMM_MPI)
    const double groups = 4.0 * desc->ranks * (double)neo_comm_workspace_bytes(
        desc, desc->ranks, NEO_BACKEND_THREADS);
    const double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (machine > 0 && groups > machine)
        REFUSE("--ranks %d: messages between so many threads take %.0f GB, this machine has %.0f",
               desc->ranks, 1e-9 * groups, 1e-9 * machine);
#endif
    (void)desc;
    return NEO_OK;
}

/* Describes the ranks of the job. */
static neo_status cli_describe(cli_job *job, const cli_machine *machine, int64_t seed) {
    const char *isa = getenv("NEO_ISA"), *looks = getenv("NEO_CHECK_FINITE");
    neo_comm_desc desc = {.ranks = (int)machine->ranks,
                          .ctx = {.seed = (uint64_t)seed, .logger = {cli_log, job}}};
    if (isa && *isa) TRY(neo_isa_parse(isa, &desc.ctx.isa));
    TRY(device_check(machine->device));
    job->device = (device_choice){machine->device, machine->exact != 0, machine->tf32 != 0};
    if (strcmp(machine->device, "cpu") != 0) desc.open_device = device_open;
    if (strcmp(machine->sums, "nccl") == 0) desc.sums = NEO_SUMS_NCCL;
    else if (strcmp(machine->sums, "tree"))
        REFUSE("--sums: '%s' is neither tree nor nccl", machine->sums);
    desc.open_user = &job->device;
    desc.ctx.repro_shards = (int)machine->repro_shards;
    desc.timeout_ms = machine->timeout ? (int)machine->timeout * 1000 : -1;
    desc.ctx.threads = (int)machine->threads;
    desc.ctx.check_finite = machine->check_finite || (looks && strcmp(looks, "0"));
    job->comm = desc;
    job->trace = machine->trace;
    job->chakra = machine->chakra;
    job->trace_spans = machine->trace_spans;
    return check_memory(&desc);
}

/* Leaves of the checkpoint that a run begins with, the newest or the best; 0: none says it. */
static int saved_leaves(const char *dir) {
    static const char key[] = "repro_shards";
    char best[4096], text[32] = "";
    snprintf(best, sizeof best, "%s/best", dir);
    if (neo_checkpoint_word(dir, 0, key, text, sizeof text) != NEO_OK)
        (void)neo_checkpoint_word(best, 0, key, text, sizeof text);
    const long leaves = strtol(text, NULL, 10);
    return leaves > 0 && leaves <= 4096 ? (int)leaves : 0;
}

/* --repro-shards where it is not given: the leaves of the checkpoint that the run begins with, else
   `normal`; of more ranks one for each, but not where the run goes on. reads: it only reads the
   model. */
static void cli_choose_leaves(cli_machine *machine, const cli_saves *saves, int reads,
                              int normal) {
    const int begins = saves->dir && (reads || saves->resume);
    if (machine->repro_shards) return;
    const int saved = begins ? saved_leaves(saves->dir) : 0;
    machine->saved_leaves = saved && saves->resume;
    machine->repro_shards = machine->saved_leaves ? saved : saved ? -saved : -normal;
}

/* Sums by NCCL have other bits on other ranks: a checkpoint says so. */
static neo_status cli_define_sums(neo_state *state, const cli_machine *machine, int ranks) {
    char word[40];
    if (strcmp(machine->sums, "tree") == 0) return NEO_OK;
    snprintf(word, sizeof word, "nccl, %d ranks", ranks);
    return neo_state_define(state, "sums", word);
}

/* The options agree with the ranks that the launcher has started. */
static neo_status cli_check_ranks(const cli_rank *me, const cli_machine *machine) {
    int is_mpi = neo_comm_get_backend(me->comm) == NEO_BACKEND_MPI;
    int leaves = neo_ctx_repro_shards(me->ctx);
    if (is_mpi && machine->ranks > 1 && machine->ranks != me->ranks)
        REFUSE("--ranks %lld, but the launcher has started %d", (long long)machine->ranks,
               me->ranks);
    if (leaves < me->ranks)
        REFUSE("--repro-shards %d%s: must be at least the %d ranks", leaves,
               machine->saved_leaves ? ", of the checkpoint" : "", me->ranks);
    if (machine->repro_shards < -1 && leaves > -machine->repro_shards)
        say(me, "note: --repro-shards is %d for so many ranks, not %lld: the state is not that of "
            "fewer ranks\n", leaves, (long long)-machine->repro_shards);
    return NEO_OK;
}

/* Ends a rank that failed. An error that all ranks have (agreement puts "rank 2: " before it) is
   printed by rank 0, and no rank leaves before that: a launcher ends the job when one does. An
   error of one rank alone breaks the group, because the others would wait for that rank. When a
   rank is lost every process prints its own error. */
static void cli_stop(const cli_rank *me, neo_status status) {
    cli_job *job = me->job;
    int lost = status == NEO_ERR_TIMEOUT || status == NEO_ERR_PEER || status == NEO_ERR_DIVERGED;
    if (me->ranks > 1 && (lost || strncmp(neo_last_error(), "rank ", 5))) {
        neo_comm_abort(me->comm, neo_last_error());
        return;
    }
    say(me, "%s%s: %s\n", isatty(fileno(stderr)) ? "\n" : "", job->program->name, neo_last_error());
    if (me->rank == 0 || job->silent) job->told = 1;
    (void)agree(me->comm, NEO_OK);
}

static neo_status check_stdout(void) {
    if (fflush(stdout) != 0 || ferror(stdout))
        return neo_fail(NEO_ERR_IO, "standard output: could not be written whole");
    return NEO_OK;
}

/* Whether a list of names, separated by commas, has the file. */
static int is_in_list(const char *list, const char *path) {
    char name[4096];
    for (const char *p = list; p && *p; p += *p == ',') {
        int length = (int)strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", length, p);
        if (is_same_file(name, path)) return 1;
        p += length;
    }
    return 0;
}

/* A path that cannot be written is better known before the training than after it. A pipe is not
   opened: its reader would take that for all that comes. */
static neo_status check_writable(const char *option, const char *path) {
    struct stat info;
    const int existed = stat(path, &info) == 0;
    if (existed && S_ISFIFO(info.st_mode)) return NEO_OK;
    FILE *f = fopen(path, "ab");
    if (!f) return neo_fail(NEO_ERR_IO, "--%s: %s: %s", option, path, strerror(errno));
    fclose(f);
    if (!existed) remove(path);
    return NEO_OK;
}

/* Bytes that a group has sent, by its counters. */
static int64_t cli_sent(neo_comm_stats stats) {
    int64_t bytes = 0;
    for (int op = 0; op < NEO_COMM_OP_COUNT; op++)
        for (int level = 0; level < NEO_LEVEL_COUNT; level++)
            bytes += stats.op[op].bytes[level];
    return bytes;
}

static int64_t sent_by_layers(const neo_fsdp *layers) {
    const neo_fsdp_stats s = neo_fsdp_get_stats(layers);
    return cli_sent(s.shard) + cli_sent(s.replica) + cli_sent(s.all);
}

/* --trace and --chakra of a run. sent: of its bytes, by the counters of all its groups but
   me->comm. Collective. */
static neo_status cli_trace_begin(cli_rank *me) {
    const cli_job *job = me->job;
    neo_group group = neo_comm_group(me->comm);
    neo_status mine = NEO_OK;
    char path[4096];
    if (!job->trace && !job->chakra) return NEO_OK;
    if (me->rank == 0 && job->trace) mine = check_writable("trace", job->trace);
    if (mine == NEO_OK && job->chakra) {
        snprintf(path, sizeof path, "%s.%d.et", job->chakra, me->rank);
        mine = check_writable("chakra", path);
    }
    TRY(agree(me->comm, mine));
    TRY(neo_trace_create(me->ctx, &(neo_trace_desc){job->trace_spans, &group}, &me->trace));
    neo_comm_reset_stats(me->comm);
    return NEO_OK;
}
static neo_status cli_trace_end(const cli_rank *me, int64_t sent) {
    sent += cli_sent(neo_comm_get_stats(me->comm));
    if (me->job->trace) TRY(neo_trace_write(me->trace, me->job->trace));
    if (me->job->chakra) TRY(neo_trace_write_chakra(me->trace, me->job->chakra));
    TRY(neo_comm_all_reduce(me->comm, NEO_REDUCE_SUM, &sent, &sent, 1, NEO_I64, NULL));
    const neo_trace_stats all = neo_trace_get_stats(me->trace);
    say(me, "trace: %lld spans with %lld bytes sent; by the counters %lld\n", (long long)all.spans,
        (long long)all.sent_bytes, (long long)sent);
    if (all.dropped)
        say(me, "warning: %lld later spans are not in it: raise --trace-spans\n",
            (long long)all.dropped);
    return NEO_OK;
}

/* Calls body(run), unless the options are refused or ask for help. When it returns, no
   communication uses the buffers of `run` any more. sent: see cli_trace_end. */
static neo_status cli_run(cli_rank *me, neo_status (*body)(void *run),
                          int64_t (*sent)(const void *run), void *run) {
    cli_job *job = me->job;
    neo_status mine = NEO_OK;
    if (neo_comm_get_backend(me->comm) == NEO_BACKEND_MPI) job->silent = me->rank > 0;
    if (job->refused[0]) mine = neo_fail(NEO_ERR_ARG, "%s", job->refused);
    neo_status status = agree(me->comm, mine);
    if (status == NEO_OK && job->help && me->rank == 0) {
        cli_print_help(job->program);
        status = check_stdout();
    }
    if (status == NEO_OK && !job->help) {
        if (cli_twice[0])
            say(me, "%s: warning: %s is given twice: the last one counts\n", job->program->name,
                cli_twice);
        status = cli_trace_begin(me);
        if (status == NEO_OK) status = body(run);
        if (status == NEO_OK && me->trace) status = cli_trace_end(me, sent(run));
    }
    if (status != NEO_OK) cli_stop(me, status);
    neo_comm_wait_all(me->comm);
    return status;
}

/* Starts the ranks. parsed: the status of reading the options. Returns the exit status. */
static int cli_start(cli_job *job, neo_status parsed, neo_comm_fn rank) {
    if (parsed != NEO_OK) snprintf(job->refused, sizeof job->refused, "%s", neo_last_error());
    if (job->refused[0] || job->help) job->comm = (neo_comm_desc){.ranks = 1}; /* enough to print */
#if defined(SIGXFSZ)
    signal(SIGXFSZ, SIG_IGN); /* a file over ulimit -f: an error of its write, that names it */
#endif
    if (neo_comm_init_env(&job->comm, rank, job) == NEO_OK)
        return job->stopped ? 128 + job->stopped : 0;
    if (!job->told) fprintf(stderr, "%s: %s\n", job->program->name, neo_last_error());
    return 1;
}

/* Makes a directory, and those above it. One above that is there need not be ours to write, so a
   failure counts only if nothing can be written in the end: reason has the first. */
static void make_folders(const char *dir, char reason[4352]) {
    char path[4096];
    reason[0] = 0;
    for (size_t i = 1; i <= strlen(dir); i++) {
        if (dir[i] != 0 && dir[i] != '/') continue;
        snprintf(path, sizeof path, "%.*s", (int)i, dir);
        if (make_directory(path) == 0) reason[0] = 0;
        else if (errno != EEXIST && !reason[0])
            snprintf(reason, 4352, "%s cannot be made: %s", path, strerror(errno));
    }
}
static neo_status make_saves(const cli_saves *saves) {
    char path[4096], reason[4352];
    make_folders(saves->dir, reason);
    snprintf(path, sizeof path, "%s/.writable", saves->dir);
    if (check_writable("checkpoint", path) == NEO_OK) {
        remove(path); /* which a run that was killed here may have left */
        return NEO_OK;
    }
    return neo_fail(NEO_ERR_IO, "--checkpoint %s: no directory that can be written: %s",
                    saves->dir, reason[0] ? reason : strerror(errno));
}

/* No run overwrites the checkpoints of another one, nor its best model. */
static neo_status check_fresh(const cli_saves *saves) {
    char best[4096];
    int64_t there = -1;
    snprintf(best, sizeof best, "%s/best", saves->dir);
    neo_status status = neo_find_checkpoint(saves->dir, &there);
    if (status == NEO_ERR_NOT_FOUND) status = neo_find_checkpoint(best, &there);
    if (status != NEO_OK) return status == NEO_ERR_NOT_FOUND ? NEO_OK : status;
    REFUSE("--checkpoint %s: holds step %lld of an earlier run: add --resume to go on with it, "
           "or name another directory", saves->dir, (long long)there);
}

/* The last line that a program prints. */
static neo_status print_state(uint64_t digest) {
    printf("state %016llx\n", (unsigned long long)digest);
    return check_stdout();
}
#endif
