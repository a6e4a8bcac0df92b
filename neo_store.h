/* neo_store.h: embedding tables larger than memory: rows in a file, below lines in memory; or below
   lines in a GPU's memory, in a file or in the host's.

   Copy it beside neo.h, neo_kernels.h and neo_run.h. MIT licence (at the end of neo.h).

   WHAT IT DOES
     - neo_tier: the rows and optimizer state of a neo_bags lie in a sparse file; a software cache,
       set-associative with 32 ways, LRU or LFU, keeps lines of rows in memory within a budget of
       bytes. A batch's rows are brought before it is looked up or stepped, and stay meanwhile
     - bits do not depend on the size of the cache, its policy, the file or threads: all verbs of
       neo_bags, digests and checkpoints read and write through it
     - rows of the next batches are read while a step computes, rows that have left are written
     - a row has a checksum in the file; full disks, short reads, altered files become a status that
       names table, row, file and offset
     - on a context with a device the lines lie in its memory; the same decisions, and bits

   WHAT IT DOES NOT DO
     - the file is scratch of the running process, as memory is: a run that is killed makes it anew
       from its checkpoint, which holds all rows and is whole at any moment. Nothing else reads it
     - steps of a GPU as a graph (NEO_ERR_UNSUPPORTED): the host must see a batch's ids first

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_store.h"
         #include "neo_store.h"
     It implements neo.h too.
         neo_tier_desc desc = {.path = "rows.tier", .memory_bytes = 1 << 28};
         neo_tier_create(ctx, &desc, &tier);
         bags_desc.tier = tier;
         neo_bags_create(ctx, &bags_desc, &bags);
         ...                                        neo_bags_destroy(bags), then neo_tier_destroy

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_store.h is the map)
     >>tier
     >>impl-tier-file >>impl-tier-lines >>impl-tier
*/
#ifndef NEO_STORE_H
#define NEO_STORE_H

#include "neo_run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>tier

   Rows below memory. The budget is for all that the neo_bags takes: its workspace, lines, keys of
   rows, and what is kept beside them. Each table has room for a batch; the rest they share as
   their tier_share says, evenly where none has one (a plan says it that knows how often rows are
   used: neo_plan_desc.profile). One that is smaller than its part is in memory as a whole, and what
   it leaves goes to the others. neo_bags_bytes tells, to the byte, what create allocates; a batch
   with more ids of one table than its lines can take grows them, which is counted (grow_count).

   THE CACHE. A row has a set, by a hash of its number; 32 lines are a set. A call of forward,
   weight_grad, backward or step needs rows: those that are not there come to empty lines, else in
   place of a line of their set that this call does not need: the one that the oldest call needed
   last (NEO_EVICT_LRU), or that the fewest calls needed and of these the oldest (NEO_EVICT_LFU;
   counts halve every `period` calls); of equals the first. weight_grad and backward of the batch
   that the call before them had find its rows there: they count as that call. A line that was
   changed is written before. Rows that find all lines of their set needed go to lines of overflow,
   until a call comes that needs other rows but not them. Where it takes at most a 16th of the
   table's share, an index of 4 bytes per row says which line a row has: hits are found in half the
   time.

   BELOW A DEVICE the budget is of its memory: all that the neo_bags takes there. The host keeps, in
   memory of its own that neo_bags_bytes counts too, what says which line has a row, rows that are
   read ahead (at most an eighth of the budget), and without a path the records of all rows. It
   finds lines for the ids of a batch: those of one in the device's memory come to it. Rows that
   leave and rows that come pass through slots of pinned memory, a 16th of the budget at most and
   4 MiB; the call goes on when they are there. neo_bags_prefetch reads rows of a batch in host
   memory to the host's memory. A step that is being recorded (neo_cuda_graph_begin) is refused.

   BATCHES AHEAD. neo_bags_prefetch announces batches in order of steps, at most N = `prefetch`
   before the forward of the first, known by its arrays: those of steps 0 .. N - 1 before that of
   step 0, then after that of step s the batch of s + N. One more drops the oldest: so does this one
   where it comes before the forward of s. A thread of the tier finds their lines, or the next call,
   if it comes before; up to 4 batches ahead, forward goes on with these. Rows in no line are read
   to memory of their own, those announced first before others, once rows that have left are
   written. With 2 or more, lines that an announced batch needs stay until its forward, and others
   of their set leave; of rows in overflow those are read again. Where that memory is full, rows
   announced before keep their places; those that find none are asked for again when the next batch
   is announced (up to 4 batches ahead), or left to their batch's own call (refused counts them).
   Announcing changes which rows have lines, and no bit.

   AFTER AN ERROR of the file (NEO_ERR_IO, NEO_ERR_CORRUPT; of rows written behind a call the next
   that moves some tells) rows may be lost: the tier refuses all that follows, with the first
   message. Go on from a checkpoint, with another neo_bags. So it is when a device fails.
   ------------------------------------------------------------------------ */
typedef struct neo_tier_desc {
    const char *path;     /* required: of the file, no link, which is locked, emptied if a tier left
                             it, and removed at the end. Each rank has its own. NULL, on a context
                             with a device alone: rows lie in host memory */
    int64_t memory_bytes; /* required; on a context with a device, of its memory */
    neo_evict evict;      /* not NEO_EVICT_AGE */
    int64_t period;       /* of LFU alone, in calls; 0: counts never halve */
    int queue_depth; /* threads that read and write; 0: 4. Each, and the one that calls, has up to
                        32 reads under way where the system has io_uring (Linux), else one */
    int prefetch;    /* batches (up to 64) that neo_bags_prefetch announces before the first of them
                        is looked up: an eighth of the budget, at most for all their ids, or if it
                        is more, half of what a batch leaves of it, at most for the ids of one and
                        half of those of the others, holds rows that are read, and rows that have
                        left until they are written. LRU: 1 KiB of each table says when batches were
                        looked up; LFU, 2 and more: 4 bytes of each line for how long it stays */
    int no_io_uring; /* 1: reads are calls of pread, one by one, everywhere; for tools that watch
                        them. No bit depends on it */
    int64_t ahead_rows; /* with prefetch: that there is room to read ahead, in place of that rule:
                           what `prefetch` batches miss. 0: the rule */
} neo_tier_desc;
typedef struct neo_tier_stats {
    int64_t lookups, hits; /* ids that forward got for tables not whole in memory; of rows in it */
    int64_t evictions, written, read, first; /* lines that went to another row; rows written, read,
                                                made for the first time */
    int64_t prefetched, late; /* of those read; asked for by neo_bags_prefetch, but not there yet
                                 when they were needed; calls wait for read - prefetched */
    int64_t refused; /* ids of announced batches whose rows found no room to be read ahead */
    int64_t dropped; /* announced batches that were never looked up: one more was announced than
                        `prefetch`, a later one was looked up, or rows were written from outside */
    int64_t ahead_rows; /* rows there is room to read ahead, now */
    int64_t pending; /* asked for, and still to be read: now, by other threads */
    int64_t overflow, grow_count;
    int64_t line_count, memory_bytes; /* of all tables; taken now, rows included, the workspace of
                                         neo_bags not */
    int64_t below_bytes; /* of records that have been written to the file, or to host memory: get
                            counts a bit of each row */
} neo_tier_stats;

/* neo_tier_create: a tier for the next neo_bags whose description has it; for that one alone, until
   it is destroyed. The file is opened by neo_bags_create.
   Errors   NEO_ERR_ARG. NEO_ERR_MEMORY. NEO_ERR_UNSUPPORTED: an address space of 32 bits.
            Of neo_bags_create with a tier: NEO_ERR_ARG: the budget is too small for a batch (the
            least is said), a table has memory of yours. NEO_ERR_IO: the file cannot be made,
            another process has it, or it is not empty and not a tier's.
   neo_tier_destroy: after neo_bags_destroy; before, it leaves the tier alone, with a warning.
   neo_tier_get_stats: since create; of calls that have returned.
   neo_tier_reset_stats: counts from 0 on. */
NEO_API NEO__CHECK_UNUSED neo_status neo_tier_create(neo_ctx *ctx, const neo_tier_desc *desc,
                                                     neo_tier **tier);
NEO_API void neo_tier_destroy(neo_tier *tier);
NEO_API neo_tier_stats neo_tier_get_stats(const neo_tier *tier);
NEO_API void neo_tier_reset_stats(neo_tier *tier);

#ifdef __cplusplus
}
#endif
#endif /* NEO_STORE_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO_INFERENCE) &&             \
    !defined(NEO__STORE_IMPLEMENTED)
#define NEO__STORE_IMPLEMENTED
#include "neo_run.h" /* its implementation, if it was included without before */

NEO_EXACT_BEGIN
NEO__HOST_BEGIN
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-tier-file

   The file holds a mark, then a record of every row that was ever written: weights, scale and bias
   of i8, states, then a CRC-32C of the row's number and these bytes. The rows of a table lie in
   order from a multiple of 4096 on; what was never written is a hole. A bit per row says which rows
   have a record; other rows have their initial values, which are computed.

   Reads and writes go through the system's cache. Around it (O_DIRECT) cold reads took half to all
   of the time, but rows that training reads are written again: a write to a page that is not in the
   cache reads it first, and both took 3 to 8 times as long: bench/results/tiers.md. What a row read
   leaves there, 4 KiB, the system takes back at need.
   ------------------------------------------------------------------------ */
enum {
    NEO__TIER_BATCH = 32,       /* rows that a thread takes at once */
    NEO__TIER_RUN = 4096,       /* bytes of records that lie close, of which it reads all at once */
    NEO__TIER_ROOM = 2 * NEO__TIER_RUN, /* bytes of records that it has at once */
    NEO__TIER_PLACES = 24,      /* bits of a place in a list that is sorted by the file */
    NEO__TIER_BLOCK = 1 << 18,  /* bytes of records that walks over all rows read at once */
    NEO__TIER_HEAD = 4096       /* bytes before the first record */
};
#define NEO__TIER_MARK "neo tier" /* the first bytes of a tier's file */
typedef struct neo__tier_job {
    int64_t row, old; /* old below 0: nothing to write */
    int64_t line, from; /* from: of what was read ahead; below 0: the file, or first values */
    int64_t to;         /* where the old row waits for being written; below 0: it is written now */
    int64_t table;
} neo__tier_job;
/* A row that is read ahead, or written behind the call. */
typedef struct neo__tier_ahead {
    int64_t row;
    int32_t table;
    uint8_t state, batch; /* batch: the last announced one that needs it, modulo 256 */
} neo__tier_ahead;
enum { NEO__AHEAD_VOID, NEO__AHEAD_ASKED, NEO__AHEAD_TAKEN, NEO__AHEAD_READ };
enum { NEO__TIER_MOST_AHEAD = 64, /* announced batches; of so few what they need is kept; */
       NEO__TIER_MOST_SEEN = 4, NEO__TIER_CALLS = 4 * NEO__TIER_MOST_AHEAD }; /* calls known */

/* A thread's io_uring: reads are asked for and answered in memory that it shares with the system,
   two pages of the system's own. */
typedef struct neo__tier_ask { /* struct io_uring_sqe */
    uint8_t what, flags;
    uint16_t priority;
    int32_t file;
    uint64_t offset, to;
    uint32_t bytes, more_flags;
    uint64_t number, unused[3];
} neo__tier_ask;
typedef struct neo__tier_answer { /* struct io_uring_cqe */
    uint64_t number;
    int32_t result;
    uint32_t flags;
} neo__tier_answer;
typedef struct neo__tier_ring {
    int fd; /* plus 1: 0 is none */
    uint32_t asked, answered; /* so far, modulo 2^32 */
    uint32_t ask_mask, answer_mask, *ask_end, *answer_begin, *answer_end;
    neo__tier_ask *asks;
    neo__tier_answer *answers;
    size_t bytes[2]; /* of memory: what says where answers are, too; of asks */
    char *memory;    /* NULL: there is no ring */
} neo__tier_ring;

/* The place of a row on the host: a line, or a slot. */
typedef struct neo__tier_row {
    neo__bag_rows rows;
    float *state[2];
    int64_t at; /* the row's number there */
} neo__tier_row;

typedef struct neo__tier_table {
    int64_t rows, sets, over, over_used, over_next;
    neo__lines map;                /* its keys are rows; behind its lines those of overflow, and one
                                      that is free for a moment */
    int64_t turned; /* lines below this are those of their places turned: see >>impl-tier-lines */
    int turn;       /* log2 of the sets of a block that is turned */
    int64_t base, record; /* in the file; bytes of a record, its checksum last */
    int64_t first_row;    /* rows of the tables before */
    int64_t part[NEO__BAG_BLOCKS]; /* bytes of a row */
    int64_t now;                   /* number of the call */
    int indexed, ahead, is_lru;    /* ahead: batches that are announced at most */
    uint32_t *index;               /* [rows]: see >>impl-tier-lines; or NULL */
    int call_bits;                 /* of its entries, those of a call */
    int64_t learned;               /* the row of it that is looked at next */
    uint8_t *dirty;                /* a line differs from the file */
    uint32_t *needed;              /* LFU: of a line, the last announced batch that needs it; or
                                      NULL. Of LRU it is in map.use */
    uint32_t *calls;               /* LRU: of announced batch k, k % NEO__TIER_CALLS, the call that
                                      looked it up, or 0; or NULL */
    int64_t hand;                  /* the line at which those are looked at next: see there */
    int64_t moves, moves_then;     /* rows that came to lines and left overflow, so far, and when a
                                      batch was last announced */
    uint32_t *over_at;             /* hash table of rows in overflow: number + 1, 0 is empty */
    int64_t over_places;
    uint64_t *written; /* bits */
    uint64_t *line_row; /* map.key in a device's memory, [lines] */
    char *memory;
    size_t bytes, written_bytes;
    neo__init_call init;
    int64_t first_job, jobs; /* of the running call */
    int64_t lookups, hits, evictions, overflow;
    uintptr_t address[NEO__BAG_BLOCKS];
} neo__tier_table;

typedef struct neo__tier_worker {
    struct neo__tier *tier;
    char *record;                 /* [room_bytes] */
    char *at[NEO__TIER_BATCH];    /* in it, records of jobs */
    uint64_t is_read;             /* bits of those that are as the file has them */
    int32_t got[NEO__TIER_BATCH]; /* bytes of the k-th read of a ring; below 0: it failed */
    neo__tier_ring ring;
} neo__tier_worker;

/* The ids of a feature among those of its batch. bare: of an announced one those without a line. */
typedef struct neo__tier_part {
    int64_t begin, table, bare;
} neo__tier_part;
/* The needs of an announced batch, as base.line, row and part have them of a call. */
typedef struct neo__tier_seen {
    int64_t *line, *row, count; /* count below 0: there was no room */
    neo__tier_part *part;
    uint32_t batch;
    int64_t refused; /* ids whose rows there was no room to read ahead */
} neo__tier_seen;

typedef struct neo__tier {
    neo_tier base;
    neo_ctx *ctx;
    neo__live live;
    neo_tier_desc desc;
    char *path;
    neo__file file;
    int is_open;
    char *host; /* without a file: what would be in it, [host_bytes] */
    size_t host_bytes;
    neo__tier_table *tables;
    int64_t table_count, capacity; /* capacity: rows of a call */
    double level;                  /* bytes for a tier_share of 1: see neo__tier_fill */
    char *fixed, *work;
    size_t fixed_bytes, work_bytes;
    int64_t *row;         /* [capacity] of base.line; -1: none */
    neo__tier_part *part; /* [features + 1] */
    int64_t staged;       /* ids of the last call, of which line, row and part are */
    neo__tier_seen seen[NEO__TIER_MOST_SEEN]; /* of batch k % neo__tier_seen_count */
    int is_seen; /* line and row are those of the running batch's announcement */
    int unseen;  /* what the last announced batch needs is to be found, or (2) a thread will */
    const void *ids; /* of the running batch, in host memory, by its offsets; first: the lowest */
    int64_t first, bag_capacity;
    int is_i32;
    /* Below a device: room on the host for a batch that is there (ids: also keys of kept slots);
       pinned, slots in which rows come and go, and lines that they are for; both of these in the
       device's memory, and the batch's lines. */
    int64_t *host_offsets, *host_ids;
    neo__job_line *items, *device_items;
    char *pinned, *device, *slots, *device_slots;
    int64_t slot_count, slot_bytes, first_slot; /* first_slot: the number of the job in slot 0 */
    int64_t *device_lines;
    size_t pinned_bytes, device_bytes, device_work_bytes;
    neo__tier_job *jobs;
    uint64_t *order[2]; /* [capacity]; order[0]: numbers of jobs, in the order in which they run */
    char *block, *records; /* [NEO__TIER_BLOCK]; a record for each thread, and one for the caller */
    int64_t record_bytes, room_bytes; /* room_bytes: of each of records */
    neo_status status; /* of the file */
    char failure[400];
    /* threads */
    neo__mutex lock, writing, walk; /* writing: to the file, of a call; walk: of maps, block and the
                                       last of records: a save in the background reads rows between
                                       steps, and while one computes */
    neo__mutex handing;             /* of jobs, to threads */
    neo__cond wake, done;
    neo__thread *threads;
    neo__tier_worker *workers, caller;
    int thread_count, quit;
    int64_t next, count, finished; /* jobs of the running call */
    int64_t lined;                 /* those that have an order: count, or above it */
    int64_t failed;                /* the first that failed, or INT64_MAX */
    neo_status failed_status;
    char failed_text[400];
    /* rows read ahead. Threads read places ahead_order[ahead_next ..], up to ahead_count, unless
       they are paused: then the caller may change all this, and those up to ahead_end follow when
       they go on. A place that is free, or whose row came to its line, may have a row to write. */
    neo__tier_ahead *ahead;
    uint32_t *ahead_at; /* hash table: number + 1 */
    char *ahead_data;
    int64_t ahead_capacity, ahead_places, ahead_count, ahead_next, ahead_end;
    int64_t ahead_busy;  /* rows that are being read */
    int64_t ahead_bytes; /* of each of ahead_data */
    uint32_t *ahead_free; /* places, [free_count] */
    int64_t free_count;
    int paused;
    uint32_t told, begun; /* batches announced so far, and of these looked up or dropped */
    const void *announced[NEO__TIER_MOST_AHEAD][2]; /* offsets and ids of batch k % most */
    /* rows that left lines for the room of those read ahead, [ahead_capacity]: they are written
       behind the call, before others are read */
    neo__tier_ahead *behind;
    uint64_t *ahead_order, *behind_order; /* places, sorted by the file */
    int64_t behind_count, behind_next, behind_busy;
    int64_t behind_made, behind_free; /* of a call, so far; and places of ahead_free for them */
    neo_status behind_status; /* of the first that failed */
    neo_tier_stats stats;
} neo__tier;

/* A file that is there is emptied only if a tier made it: a path may be mistaken. A run that was
   killed while it wrote the mark left the first part of it. */
static neo_status neo__tier_is_ours(const neo__tier *tier) {
    char head[sizeof NEO__TIER_MARK];
    const int64_t bytes = neo__file_size(&tier->file);
    const size_t size = (size_t)NEO__MAX(0, NEO__MIN(bytes, (int64_t)sizeof head));
    if (bytes == 0) return NEO_OK;
    NEO__TRY(neo__file_read_at(&tier->file, 0, head, size));
    NEO__CHECK(size > 0 && memcmp(head, NEO__TIER_MARK, size) == 0, NEO_ERR_IO,
               "%s: not a tier's file: what is in it would be lost", tier->path);
    return NEO_OK;
}
#if defined(_WIN32)
/* Nobody else may open it; it can be removed while it is open. */
static neo_status neo__tier_open(neo__tier *tier) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(tier->path, wide));
    tier->file.handle = CreateFileW(wide, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_DELETE, NULL,
                                    OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    if (tier->file.handle == INVALID_HANDLE_VALUE)
        return neo__file_fail(tier->path, "open for writing");
    neo_status status = neo__tier_is_ours(tier);
    if (status == NEO_OK && !SetEndOfFile(tier->file.handle)) /* the place is that of the start */
        status = neo__file_fail(tier->path, "empty");
    if (status != NEO_OK) (void)neo__file_close(&tier->file);
    return status;
}
#else
/* The lock is taken before the file is emptied: it may be another run's. */
static neo_status neo__tier_open(neo__tier *tier) {
    struct stat info;
    int fd;
    do {
        fd = open(tier->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    } while (fd < 0 && errno == EINTR);
    NEO__CHECK(fd >= 0 || errno != ELOOP, NEO_ERR_IO,
               "%s: a symbolic link: give the path of the file itself, which is removed at the end",
               tier->path);
    if (fd < 0) return neo__file_fail(tier->path, "open for writing");
    tier->file.fd = fd;
    neo_status status = NEO_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = neo_fail(NEO_ERR_IO, "%s: not a file", tier->path);
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        status = neo_fail(NEO_ERR_IO, "%s: another run, or rank, has this tier file", tier->path);
    else status = neo__tier_is_ours(tier);
    if (status == NEO_OK && ftruncate(fd, 0) != 0) status = neo__file_fail(tier->path, "empty");
    if (status != NEO_OK) (void)neo__file_close(&tier->file);
    return status;
}
#endif

/* ---- many reads by one call ----
   io_uring, by raw system calls: its header may be older than the system, or missing. A read that
   does not give all its bytes is done again by neo__file_read_at, which tells why; and so is every
   read where there is no ring. */
#if defined(__linux__) && !defined(__ILP32__)
#if !defined(__cplusplus)
extern long syscall(long number, ...); /* hidden under _POSIX_C_SOURCE */
#endif
enum { NEO__RING_SETUP = 425, NEO__RING_ENTER, NEO__RING_READ = 22, NEO__RING_WAIT = 1 };
enum { NEO__RING_ALONE = 0x3000 }; /* of one thread, which completes its reads while it waits */
enum { /* words of struct io_uring_params */
    NEO__RING_ASKS, NEO__RING_ANSWERS, NEO__RING_FLAGS, NEO__RING_FEATURES = 5,
    NEO__RING_ASK_END = 11, NEO__RING_ASK_MASK, NEO__RING_ASK_ORDER = 16,
    NEO__RING_ANSWER_BEGIN = 20, NEO__RING_ANSWER_END, NEO__RING_ANSWER_MASK,
    NEO__RING_ANSWER_AT = 25, NEO__RING_WORDS = 30
};
static void neo__tier_ring_close(neo__tier_ring *ring) {
    if (ring->memory) munmap(ring->memory, ring->bytes[0]);
    if (ring->asks) munmap((void *)ring->asks, ring->bytes[1]);
    if (ring->fd > 0) close(ring->fd - 1);
    memset((void *)ring, 0, sizeof *ring);
}
static void *neo__tier_ring_map(const neo__tier_ring *ring, size_t bytes, off_t what) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd - 1, what);
    return at == MAP_FAILED ? NULL : at;
}
static int neo__tier_ring_map_all(neo__tier_ring *ring, const uint32_t *words) {
    const size_t asks = words[NEO__RING_ASK_ORDER] + sizeof(uint32_t) * words[NEO__RING_ASKS],
                 answers = words[NEO__RING_ANSWER_AT] +
                           sizeof(neo__tier_answer) * words[NEO__RING_ANSWERS];
    ring->bytes[0] = NEO__MAX(asks, answers);
    ring->bytes[1] = sizeof *ring->asks * words[NEO__RING_ASKS];
    ring->memory = (char *)neo__tier_ring_map(ring, ring->bytes[0], 0);
    ring->asks = (neo__tier_ask *)neo__tier_ring_map(ring, ring->bytes[1], 0x10000000);
    if (!ring->memory || !ring->asks) return 0;
    uint32_t *order = (uint32_t *)(void *)(ring->memory + words[NEO__RING_ASK_ORDER]);
    for (uint32_t i = 0; i < words[NEO__RING_ASKS]; i++) order[i] = i;
    ring->ask_end = (uint32_t *)(void *)(ring->memory + words[NEO__RING_ASK_END]);
    ring->answer_begin = (uint32_t *)(void *)(ring->memory + words[NEO__RING_ANSWER_BEGIN]);
    ring->answer_end = (uint32_t *)(void *)(ring->memory + words[NEO__RING_ANSWER_END]);
    ring->answers = (neo__tier_answer *)(void *)(ring->memory + words[NEO__RING_ANSWER_AT]);
    ring->ask_mask = *(uint32_t *)(void *)(ring->memory + words[NEO__RING_ASK_MASK]);
    ring->answer_mask = *(uint32_t *)(void *)(ring->memory + words[NEO__RING_ANSWER_MASK]);
    ring->asked = *ring->ask_end;
    ring->answered = *ring->answer_begin;
    return 1;
}
/* alone: this thread alone will use it. The ring is not told of the file, which it would hold, and
   its lock, for a moment longer than a process that is killed. */
static void neo__tier_ring_open(neo__tier_ring *ring, int alone) {
    uint32_t words[NEO__RING_WORDS] = {0};
    words[NEO__RING_FLAGS] = alone ? NEO__RING_ALONE : 0;
    ring->fd = 1 + (int)syscall(NEO__RING_SETUP, (long)NEO__TIER_BATCH, words);
    const int whole = ring->fd > 0 && (words[NEO__RING_FEATURES] & 1) && /* one map for both */
                      words[NEO__RING_ASKS] >= NEO__TIER_BATCH;
    if (whole && neo__tier_ring_map_all(ring, words)) return;
    neo__tier_ring_close(ring);
    if (alone) neo__tier_ring_open(ring, 0); /* the system is older */
}
NEO__HOT_BEGIN
/* Ask for bytes of a file into got[number]. At most NEO__TIER_BATCH before they are waited for. */
static void neo__tier_ring_ask(neo__tier_ring *ring, const neo__file *file, int64_t offset,
                               char *to, int64_t bytes, int64_t number) {
    neo__tier_ask *ask = &ring->asks[ring->asked++ & ring->ask_mask];
    memset(ask, 0, sizeof *ask);
    ask->what = NEO__RING_READ;
    ask->file = file->fd;
    ask->offset = (uint64_t)offset;
    ask->to = (uint64_t)(uintptr_t)to;
    ask->bytes = (uint32_t)bytes;
    ask->number = (uint64_t)number;
}
/* Wait for all that was asked for. After a call that fails there is no ring any more, but what the
   system took is waited for: it writes to memory. */
static void neo__tier_ring_wait(neo__tier_ring *ring, int32_t *got) {
    uint32_t taken = *ring->ask_end, fails = 0;
    __atomic_store_n(ring->ask_end, ring->asked, __ATOMIC_RELEASE);
    while (ring->answered != (fails ? taken : ring->asked)) {
        const uint32_t new_ones = fails ? 0 : ring->asked - taken,
                       all = fails ? 0 : ring->asked - ring->answered;
        const long n = syscall(NEO__RING_ENTER, ring->fd - 1L, (long)new_ones, (long)all,
                               (long)NEO__RING_WAIT, NULL, 0L);
        if (n > 0 && !fails) taken += (uint32_t)n;
        if (n < 0 && errno != EINTR) fails = 1;
        if (fails) neo__thread_yield();
        while (ring->answered != __atomic_load_n(ring->answer_end, __ATOMIC_ACQUIRE)) {
            const neo__tier_answer *a = &ring->answers[ring->answered++ & ring->answer_mask];
            got[a->number] = a->result;
        }
        __atomic_store_n(ring->answer_begin, ring->answered, __ATOMIC_RELEASE);
    }
    if (fails) neo__tier_ring_close(ring);
}
NEO__HOT_END
#else
static void neo__tier_ring_open(neo__tier_ring *ring, int alone) { (void)ring, (void)alone; }
static void neo__tier_ring_close(neo__tier_ring *ring) { (void)ring; }
static void neo__tier_ring_wait(neo__tier_ring *ring, int32_t *got) { (void)ring, (void)got; }
static void neo__tier_ring_ask(neo__tier_ring *ring, const neo__file *file, int64_t offset,
                               char *to, int64_t bytes, int64_t number) {
    (void)ring, (void)file, (void)offset, (void)to, (void)bytes, (void)number;
}
#endif

/* ---- records ---- */
NEO__HOT_BEGIN
static const neo__bag_table *neo__tier_of(const neo__tier *tier, int64_t table) {
    return &tier->base.bags->tables[table];
}
/* Announced batches of which what they need is kept; of many, the last one's is. */
static uint32_t neo__tier_seen_count(const neo__tier *tier) {
    const int ahead = tier->desc.prefetch;
    return ahead <= NEO__TIER_MOST_SEEN ? (uint32_t)ahead : 1;
}
static int neo__tier_on_device(const neo__tier *tier) { return tier->ctx->device != NULL; }
static char *neo__tier_slot(const neo__tier *tier, int64_t i) {
    return neo__tier_on_device(tier) ? tier->slots + i * tier->slot_bytes : NULL;
}
/* slot NULL: the line; else the slot that is for it. The place is written as a whole: a copy of one
   made field by field would wait for all stores before. */
static void neo__tier_row_at(const neo__tier *tier, int64_t table, int64_t line, char *slot,
                             neo__tier_row *place) {
    const neo__job_table *job = &neo__tier_of(tier, table)->job;
    const int64_t *part = tier->tables[table].part;
    place->rows = job->store;
    memcpy(place->state, job->state, sizeof place->state);
    place->at = slot ? 0 : line;
    if (!slot) return;
    place->rows.line_row = NULL;
    for (int k = 0; k < NEO__BAG_BLOCKS; slot += neo__bag_part_room(part[k++]))
        if (k == NEO__BAG_WEIGHTS) place->rows.data = slot;
        else if (k == NEO__BAG_SCALES) place->rows.scale = (float *)(void *)slot;
        else place->state[k - NEO__BAG_STATE] = (float *)(void *)slot;
}
/* A row between a record and its place. */
static void neo__tier_copy(const neo__tier *tier, int64_t table, const neo__tier_row *place,
                           char *to, const char *from) {
    const int64_t *part = tier->tables[table].part;
    char *const at[] = {place->rows.data, (char *)place->rows.scale, (char *)place->state[0],
                        (char *)place->state[1]};
    for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
        if (part[k] == 0) continue;
        char *there = at[k] + place->at * part[k];
        if (to) memcpy(to, there, (size_t)part[k]), to += part[k];
        else memcpy(there, from, (size_t)part[k]), from += part[k];
    }
}
static uint32_t neo__tier_sum(const neo__tier *tier, int64_t table, int64_t row,
                              const char *record) {
    const uint64_t key = (uint64_t)(neo__tier_of(tier, table)->job.first_key + row);
    return neo_crc32c(neo_crc32c(0, &key, sizeof key), record,
                      (size_t)tier->tables[table].record - sizeof(uint32_t));
}
static void neo__tier_seal(const neo__tier *tier, int64_t table, int64_t row, char *record) {
    if (tier->host) return;
    const uint32_t sum = neo__tier_sum(tier, table, row, record);
    memcpy(record + tier->tables[table].record - sizeof sum, &sum, sizeof sum);
}
static neo_status neo__tier_place_fail(const neo__tier *tier, neo_status status, int64_t table,
                                       int64_t row, const char *text) {
    const neo__tier_table *to = &tier->tables[table];
    return neo_fail(status, "%.300s (table '%s', row %" PRId64 ", byte %" PRId64 " of the file)",
                    text, neo__tier_of(tier, table)->name, row, to->base + row * to->record);
}
static neo_status neo__tier_check(const neo__tier *tier, int64_t table, int64_t row,
                                  const char *record) {
    if (tier->host) return NEO_OK;
    const uint32_t sum = neo__tier_sum(tier, table, row, record);
    char text[NEO__PATH_BYTES + 64];
    uint32_t said;
    memcpy(&said, record + tier->tables[table].record - sizeof said, sizeof said);
    if (said == sum) return NEO_OK;
    snprintf(text, sizeof text, "%.200s: the file has been altered", tier->path);
    return neo__tier_place_fail(tier, NEO_ERR_CORRUPT, table, row, text);
}
static int neo__tier_is_written(const neo__tier_table *to, int64_t row) {
    const uint64_t word = __atomic_load_n(&to->written[row / 64], __ATOMIC_RELAXED);
    return (int)(word >> (row % 64) & 1);
}
static int64_t neo__tier_written(const neo__tier_table *to) {
    int64_t count = 0;
    for (int64_t i = 0; i < (to->rows + 63) / 64; i++)
        count += __builtin_popcountll(__atomic_load_n(&to->written[i], __ATOMIC_RELAXED));
    return count;
}
/* `count` records from `row` on, as they are; sealed and checked by others. */
static neo_status neo__tier_io(neo__tier *tier, int64_t table, int64_t row, int64_t count, char *to,
                               const char *from) {
    neo__tier_table *into = &tier->tables[table];
    const int64_t offset = into->base + row * into->record;
    const size_t bytes = (size_t)(count * into->record);
    char text[400];
    neo_status status = NEO_OK;
    if (tier->host) {
        char *there = tier->host + (offset - NEO__TIER_HEAD);
        memcpy(to ? to : there, to ? there : from, bytes);
    } else
        status = to ? neo__file_read_at(&tier->file, offset, to, bytes)
                    : neo__file_write_at(&tier->file, offset, from, bytes);
    if (status != NEO_OK) {
        snprintf(text, sizeof text, "%.300s", neo_last_error());
        return neo__tier_place_fail(tier, status, table, row, text);
    }
    for (int64_t i = row; from && i < row + count; i++)
        __atomic_fetch_or(&into->written[i / 64], UINT64_C(1) << (i % 64), __ATOMIC_RELAXED);
    return NEO_OK;
}
/* The first values of a row, in its place. room: of a row of f32. */
static void neo__tier_first(neo__tier *tier, int64_t table, int64_t row,
                            const neo__tier_row *place, float *room) {
    const neo__bag_table *bag = neo__tier_of(tier, table);
    const neo__bag_rows *store = &place->rows;
    const int64_t line = place->at;
    const neo__lines *keys = bag->keys.desc.on ? &bag->keys.lines : NULL;
    neo__init_call call = tier->tables[table].init;
    char *weights = store->data + line * store->row_bytes;
    const int whole = store->dtype == NEO_F32;
    call.out = whole ? (float *)(void *)weights : room;
    call.first = store->first + (uint64_t)row * store->stride;
    if (keys) call.first = keys->key[row] * store->stride + (uint64_t)bag->keys.job.first_col;
    if (keys && __atomic_load_n(&keys->use[row], __ATOMIC_RELAXED) == 0)
        call.init.kind = NEO_INIT_NONE; /* no key has it: zeros */
    const neo__cpu_part part = {tier->ctx, &call, 0, bag->dim, 0};
    const neo__fp_state fp = neo__fp_enter();
    neo__bag_first_states(bag, place->state, line, 1);
    if (call.init.kind == NEO_INIT_NONE) {
        memset(weights, 0, (size_t)store->row_bytes);
        if (store->scale) memset(store->scale + 2 * line, 0, 2 * sizeof(float));
    } else {
        neo__init_part(&part);
        if (!whole) tier->ctx->bag->encode(store, line, room, NULL);
    }
    neo__fp_leave(fp);
}

/* ---- threads ---- */
/* Numbers of rows among those of all tables, above places in a list: to their order. */
enum { NEO__TIER_DIGIT = 8 };
static uint64_t neo__tier_key(const neo__tier *tier, int64_t table, int64_t row, int64_t place) {
    return (uint64_t)(tier->tables[table].first_row + row) << NEO__TIER_PLACES | (uint64_t)place;
}
static int64_t neo__tier_place(uint64_t key) {
    return (int64_t)(key & ((UINT64_C(1) << NEO__TIER_PLACES) - 1));
}
/* Sort keys, by way of room for as many. */
static void neo__tier_sort(const neo__tier *tier, uint64_t *keys, uint64_t *room, int64_t n) {
    enum { MOST = 5, DIGITS = 1 << NEO__TIER_DIGIT }; /* of more rows, the order is off */
    const neo__tier_table *last = &tier->tables[tier->table_count - 1];
    const int bits = neo__bits_for((uint64_t)(last->first_row + last->rows));
    const int passes = NEO__MIN((bits + NEO__TIER_DIGIT - 1) / NEO__TIER_DIGIT, MOST);
    int64_t count[MOST * DIGITS] = {0};
    uint64_t *from = keys, *to = room;
    if (n < 2) return;
    neo__bag_count_digits(from, 0, n, NEO__TIER_PLACES, NEO__TIER_DIGIT, passes, count);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t *other = to;
        neo__bag_count_to_place(count + pass * DIGITS, DIGITS, 1, 0);
        neo__bag_scatter(to, from, n, NEO__TIER_PLACES + pass * NEO__TIER_DIGIT, NEO__TIER_DIGIT,
                         count + pass * DIGITS);
        to = from;
        from = other;
    }
    if (from != keys) memcpy(keys, from, (size_t)n * sizeof *keys);
}
static char *neo__tier_ahead_at(const neo__tier *tier, int64_t place) {
    return tier->ahead_data + place * tier->ahead_bytes;
}
static int neo__tier_writes(const neo__tier_job *job) { return job->old >= 0 && job->to < 0; }
/* Write the row that leaves, if this call does. */
static neo_status neo__tier_run_old(neo__tier *tier, const neo__tier_job *job, char *slot,
                                    char *record) {
    if (!neo__tier_writes(job)) return NEO_OK;
    neo__tier_row place;
    neo__tier_row_at(tier, job->table, job->line, slot, &place);
    neo__tier_copy(tier, job->table, &place, record, NULL);
    neo__tier_seal(tier, job->table, job->old, record);
    return neo__tier_io(tier, job->table, job->old, 1, NULL, record);
}
/* Bring the row that comes. Rows that were read ahead have been checked. is_read: the record is
   what the file has. */
static neo_status neo__tier_run_job(neo__tier *tier, const neo__tier_job *job, char *slot,
                                    char *record, int is_read) {
    neo__tier_table *of = &tier->tables[job->table];
    neo__tier_row place;
    neo__tier_row_at(tier, job->table, job->line, slot, &place);
    const int swaps = job->to >= 0 && job->to == job->from;
    if (job->old >= 0 && job->to >= 0)
        neo__tier_copy(tier, job->table, &place,
                       swaps ? record : neo__tier_ahead_at(tier, job->to), NULL);
    if (job->row < 0) return NEO_OK;
    if (job->from >= 0) {
        char *from = neo__tier_ahead_at(tier, job->from);
        neo__tier_copy(tier, job->table, &place, NULL, from);
        if (swaps) memcpy(from, record, (size_t)of->record);
        return NEO_OK;
    }
    if (!neo__tier_is_written(of, job->row)) {
        neo__tier_first(tier, job->table, job->row, &place, (float *)(void *)record);
        return NEO_OK;
    }
    if (!is_read) NEO__TRY(neo__tier_io(tier, job->table, job->row, 1, record, NULL));
    NEO__TRY(neo__tier_check(tier, job->table, job->row, record));
    neo__tier_copy(tier, job->table, &place, NULL, record);
    return NEO_OK;
}
/* Ask a ring for `count` rows. */
static void neo__tier_ask_rows(const neo__tier *tier, neo__tier_worker *worker, int64_t table,
                               int64_t row, int64_t count, char *to, int64_t number) {
    const neo__tier_table *of = &tier->tables[table];
    worker->got[number] = -1;
    neo__tier_ring_ask(&worker->ring, &tier->file, of->base + row * of->record, to,
                       count * of->record, number);
}
static const neo__tier_job *neo__tier_sorted_job(const neo__tier *tier, int64_t i) {
    return &tier->jobs[tier->order[0][i]];
}
static int neo__tier_reads(const neo__tier *tier, const neo__tier_job *job) {
    return job->row >= 0 && job->from < 0 &&
           neo__tier_is_written(&tier->tables[job->table], job->row);
}
/* Ask for the memory of the line that a row comes to, while the row is read. */
static void neo__tier_fetch_line(const neo__tier *tier, const neo__tier_job *job) {
    enum { MOST = 1024 };
    const neo__job_table *to = &neo__tier_of(tier, job->table)->job;
    const int64_t *part = tier->tables[job->table].part, bytes = part[NEO__BAG_WEIGHTS];
    for (int64_t at = 0; at < NEO__MIN(bytes, (int64_t)MOST); at += 64)
        __builtin_prefetch(to->store.data + job->line * bytes + at, 1, 2);
    if (part[NEO__BAG_STATE])
        __builtin_prefetch((char *)to->state[0] + job->line * part[NEO__BAG_STATE], 1, 2);
}
/* The end of the jobs from the n-th on in their order whose rows lie close in the file: they are
   one read, with what is between; not where a read is a copy of the host's memory. */
static int64_t neo__tier_run_end(const neo__tier *tier, int64_t n, int64_t end) {
    const neo__tier_job *first = neo__tier_sorted_job(tier, n++);
    const int64_t record = tier->tables[first->table].record;
    int64_t last = first->row;
    for (; !tier->host && neo__tier_reads(tier, first) && n < end; n++) {
        const neo__tier_job *job = neo__tier_sorted_job(tier, n);
        const int is_close = job->table == first->table && job->row > last &&
                             (job->row - first->row + 1) * record <= NEO__TIER_RUN;
        if (!is_close || !neo__tier_reads(tier, job)) break;
        last = job->row;
    }
    return n;
}
/* Records of jobs [begin, end) in their order get places in a worker's memory, and those of rows
   that the jobs bring are read to these, where a ring or one read has several. Returns how many
   there is room for. */
static int64_t neo__tier_read_records(neo__tier *tier, int64_t begin, int64_t end,
                                      neo__tier_worker *worker) {
    const int ring = worker->ring.memory && end - begin > 1, lines = !neo__tier_on_device(tier);
    int64_t used = 0, asked = 0, n = begin, bytes[NEO__TIER_BATCH];
    uint64_t jobs[NEO__TIER_BATCH]; /* bits of those that a read is for */
    worker->is_read = 0;
    for (int64_t next; n < end; n = next) {
        const neo__tier_job *job = neo__tier_sorted_job(tier, n);
        const int64_t record = tier->tables[job->table].record, first = job->row;
        const int reads = neo__tier_reads(tier, job);
        next = neo__tier_run_end(tier, n, end);
        const int64_t count = neo__tier_sorted_job(tier, next - 1)->row - first + 1;
        const int64_t room = reads ? (count * record + 63) / 64 * 64 : tier->record_bytes;
        if (used + room > tier->room_bytes) break;
        char *to = worker->record + used;
        used += room;
        for (int64_t i = n; i < next; i++) {
            job = neo__tier_sorted_job(tier, i);
            worker->at[i - begin] = to + (job->row - first) * record;
            if (lines) neo__tier_fetch_line(tier, job);
        }
        const uint64_t all = ((UINT64_C(1) << (next - n)) - 1) << (n - begin);
        if (reads && ring) {
            jobs[asked] = all, bytes[asked] = count * record;
            neo__tier_ask_rows(tier, worker, job->table, first, count, to, asked++);
        } else if (reads && next - n > 1 &&
                   neo__tier_io(tier, job->table, first, count, to, NULL) == NEO_OK)
            worker->is_read |= all;
    }
    if (asked) neo__tier_ring_wait(&worker->ring, worker->got);
    for (int64_t k = 0; k < asked; k++)
        if (worker->got[k] == bytes[k]) worker->is_read |= jobs[k];
    return n - begin;
}
/* Jobs [begin, end) in their order, up to one that fails: what they write, or what they bring. */
static neo_status neo__tier_run_each(neo__tier *tier, int64_t begin, int64_t end,
                                     neo__tier_worker *worker, int writes) {
    neo_status status = NEO_OK;
    int64_t first = begin, there = begin;
    for (int64_t i = begin; i < end && status == NEO_OK; i++) {
        const neo__tier_job *job = neo__tier_sorted_job(tier, i);
        char *slot = neo__tier_slot(tier, i - tier->first_slot);
        if (!writes && i == there) {
            first = i;
            there += neo__tier_read_records(tier, first, end, worker);
        }
        status = writes ? neo__tier_run_old(tier, job, slot, worker->record)
                        : neo__tier_run_job(tier, job, slot, worker->at[i - first],
                                            (int)(worker->is_read >> (i - first) & 1));
        if (status == NEO_OK) continue;
        neo__mutex_lock(&tier->lock);
        if (i < tier->failed) {
            tier->failed = i;
            tier->failed_status = status;
            snprintf(tier->failed_text, sizeof tier->failed_text, "%s", neo_last_error());
        }
        neo__mutex_unlock(&tier->lock);
    }
    return status;
}
/* Without the lock. Rows that leave are written first, by one thread at a time, as systems let one
   write to a file: others would spin there. */
static void neo__tier_run(neo__tier *tier, int64_t begin, int64_t end, neo__tier_worker *worker) {
    neo_status status = NEO_OK;
    int64_t i = begin;
    while (i < end && !neo__tier_writes(neo__tier_sorted_job(tier, i))) i++;
    if (i < end) {
        neo__mutex_lock(&tier->writing);
        status = neo__tier_run_each(tier, i, end, worker, 1);
        neo__mutex_unlock(&tier->writing);
    }
    if (status == NEO_OK) (void)neo__tier_run_each(tier, begin, end, worker, 0);
}
/* A record comes to its place, where it has not been read to that. status: of the read. */
static void neo__tier_is_ahead(neo__tier *tier, int64_t place, const char *from,
                               neo_status status) {
    neo__tier_ahead *a = &tier->ahead[place];
    char *to = neo__tier_ahead_at(tier, place);
    const int good = status == NEO_OK && neo__tier_check(tier, a->table, a->row, from) == NEO_OK;
    if (good && from != to) memcpy(to, from, (size_t)tier->tables[a->table].record);
    a->state = good ? NEO__AHEAD_READ : NEO__AHEAD_VOID;
}
/* Rows close behind each other are read at once, with what is between; the others by a ring. */
static void neo__tier_read_ahead(neo__tier *tier, const int64_t *place, int64_t count,
                                 neo__tier_worker *worker) {
    char *room = worker->record;
    uint32_t asked = 0; /* a bit of each */
    for (int64_t i = 0, next; i < count; i = next) {
        const neo__tier_ahead *first = &tier->ahead[place[i]], *last = first;
        const int64_t record = tier->tables[first->table].record;
        const int64_t end = first->row + NEO__TIER_RUN / record; /* a row before is close */
        for (next = i + 1; next < count; next++) {
            const neo__tier_ahead *a = &tier->ahead[place[next]];
            if (a->table != first->table || a->row <= last->row || a->row >= end) break;
            last = a;
        }
        if (last == first && worker->ring.memory) {
            neo__tier_ask_rows(tier, worker, first->table, first->row, 1,
                               neo__tier_ahead_at(tier, place[i]), i);
            asked |= UINT32_C(1) << i;
            continue;
        }
        const neo_status status = neo__tier_io(tier, first->table, first->row,
                                               last->row - first->row + 1, room, NULL);
        for (; i < next; i++)
            neo__tier_is_ahead(tier, place[i],
                               room + (tier->ahead[place[i]].row - first->row) * record, status);
    }
    if (asked) neo__tier_ring_wait(&worker->ring, worker->got);
    for (int64_t i = 0; asked; i++, asked >>= 1) {
        if (!(asked & 1)) continue;
        const neo__tier_ahead *a = &tier->ahead[place[i]];
        char *to = neo__tier_ahead_at(tier, place[i]);
        const int is_read = worker->got[i] == tier->tables[a->table].record;
        neo__tier_is_ahead(tier, place[i], to,
                           is_read ? NEO_OK : neo__tier_io(tier, a->table, a->row, 1, to, NULL));
    }
}
static int neo__tier_is_behind(const neo__tier *tier) { /* rows are still to be written */
    return tier->behind_next < tier->behind_count || tier->behind_busy;
}
/* Read some rows ahead, with the lock held. 0: there are none, or rows are still to be written:
   one of them may be asked for, or wait in a place that one is asked for. To read the others
   meanwhile gains nothing: bench/results/tiers.md. */
static int neo__tier_take_ahead(neo__tier *tier, neo__tier_worker *worker) {
    int64_t place[NEO__TIER_BATCH], n = 0;
    if (tier->paused || neo__tier_is_behind(tier)) return 0;
    while (n < NEO__TIER_BATCH && tier->ahead_next < tier->ahead_count) {
        place[n] = neo__tier_place(tier->ahead_order[tier->ahead_next++]);
        neo__tier_ahead *a = &tier->ahead[place[n]];
        if (a->state != NEO__AHEAD_ASKED) continue; /* it has come to its line meanwhile */
        a->state = NEO__AHEAD_TAKEN;
        n++;
    }
    if (n == 0) return 0;
    tier->ahead_busy += n;
    neo__mutex_unlock(&tier->lock);
    neo__tier_read_ahead(tier, place, n, worker);
    neo__mutex_lock(&tier->lock);
    tier->ahead_busy -= n;
    if (tier->ahead_busy == 0) neo__cond_broadcast(&tier->done);
    return 1;
}
/* Take some jobs, with the lock held. 0: there are none. */
static int neo__tier_take(neo__tier *tier, neo__tier_worker *worker) {
    const int64_t begin = tier->next, end = NEO__MIN(tier->count, begin + NEO__TIER_BATCH);
    if (begin >= end) return 0;
    tier->next = end;
    neo__mutex_unlock(&tier->lock);
    neo__tier_run(tier, begin, end, worker);
    neo__mutex_lock(&tier->lock);
    tier->finished += end - begin;
    if (tier->finished == tier->count) neo__cond_broadcast(&tier->done);
    return 1;
}
/* Write some of the rows that have left, with the lock held. 0: there are none, or another thread
   writes: systems let one write to a file at a time, and others would spin. */
static int neo__tier_take_behind(neo__tier *tier) {
    const int64_t begin = tier->behind_next,
                  end = NEO__MIN(tier->behind_count, begin + NEO__TIER_BATCH);
    neo_status status = NEO_OK;
    if (begin >= end || tier->behind_busy) return 0;
    tier->behind_next = end;
    tier->behind_busy = 1;
    neo__mutex_unlock(&tier->lock);
    for (int64_t i = begin; i < end && status == NEO_OK; i++) {
        const int64_t place = neo__tier_place(tier->behind_order[i]);
        const neo__tier_ahead *a = &tier->behind[place];
        char *record = neo__tier_ahead_at(tier, place);
        neo__tier_seal(tier, a->table, a->row, record);
        status = neo__tier_io(tier, a->table, a->row, 1, NULL, record);
    }
    neo__mutex_lock(&tier->lock);
    if (status != NEO_OK && tier->behind_status == NEO_OK) {
        tier->behind_status = status;
        snprintf(tier->failed_text, sizeof tier->failed_text, "%s", neo_last_error());
    }
    tier->behind_busy = 0;
    if (end == tier->behind_count) { /* rows may be read ahead now */
        neo__cond_broadcast(&tier->done);
        neo__cond_broadcast(&tier->wake);
    }
    return 1;
}
static void neo__tier_enter(neo__tier *tier);
/* Find what an announced batch needs, with the lock held. 0: it is done, or another thread does. */
static int neo__tier_take_unseen(neo__tier *tier) {
    if (tier->unseen != 1) return 0;
    tier->unseen = 2;
    neo__mutex_unlock(&tier->lock);
    neo__tier_enter(tier);
    neo__mutex_unlock(&tier->walk);
    neo__mutex_lock(&tier->lock);
    return 1;
}
static void neo__tier_thread(void *arg) {
    neo__tier_worker *worker = (neo__tier_worker *)arg;
    neo__tier *t = worker->tier;
    if (t->desc.path && !t->desc.no_io_uring) neo__tier_ring_open(&worker->ring, 1);
    neo__mutex_lock(&t->lock);
    while (!t->quit) {
        if (neo__tier_take(t, worker) || neo__tier_take_unseen(t) || neo__tier_take_behind(t) ||
            neo__tier_take_ahead(t, worker))
            continue;
        neo__cond_wait(&t->wake, &t->lock);
    }
    neo__mutex_unlock(&t->lock);
    neo__tier_ring_close(&worker->ring);
}
/* Threads have all jobs of a call: run some, and wait for the others. */
static neo_status neo__tier_wait_jobs(neo__tier *tier) {
    neo__mutex_lock(&tier->lock);
    while (neo__tier_take(tier, &tier->caller)) continue;
    while (tier->finished < tier->count) neo__cond_wait(&tier->done, &tier->lock);
    neo__mutex_unlock(&tier->lock);
    if (tier->failed == INT64_MAX) return NEO_OK;
    tier->status = tier->failed_status;
    memcpy(tier->failure, tier->failed_text, sizeof tier->failure);
    return tier->status;
}
/* Threads get jobs up to the end-th in their order. Few are left to the thread that calls. */
static void neo__tier_let_run(neo__tier *tier, int64_t end) {
    neo__mutex_lock(&tier->lock);
    tier->count = end;
    if (end - tier->next > NEO__TIER_BATCH) neo__cond_broadcast(&tier->wake);
    neo__mutex_unlock(&tier->lock);
}
static neo_status neo__tier_usable(const neo__tier *tier, const char *fn) {
    if (tier->status == NEO_OK) return NEO_OK;
    return neo_fail(tier->status, "%s: the tier cannot go on: %s", fn, tier->failure);
}
/* A failure outside of jobs. */
static neo_status neo__tier_failed(neo__tier *tier, neo_status status) {
    if (status != NEO_OK && tier->status == NEO_OK) {
        tier->status = status;
        snprintf(tier->failure, sizeof tier->failure, "%s", neo_last_error());
    }
    return status;
}

/* ---- rows read ahead ---- */
static int64_t neo__tier_ahead_place(const neo__tier *tier, int64_t table, int64_t row) {
    const uint64_t mask = (uint64_t)tier->ahead_places - 1;
    uint64_t i = neo__mix64((uint64_t)row * 0x9E3779B97F4A7C15u + (uint64_t)table) & mask;
    for (; tier->ahead_at[i]; i = (i + 1) & mask) {
        const neo__tier_ahead *a = &tier->ahead[tier->ahead_at[i] - 1];
        if (a->row == row && a->table == table) break;
    }
    return (int64_t)i;
}
/* Stop reading ahead, and wait for what is under way: its rows may be written next. */
static void neo__tier_settle(neo__tier *tier) {
    if (tier->ahead_capacity == 0) return;
    neo__mutex_lock(&tier->lock);
    tier->paused = 1;
    while (tier->ahead_busy) neo__cond_wait(&tier->done, &tier->lock);
    neo__mutex_unlock(&tier->lock);
}
/* Go on. */
static void neo__tier_resume(neo__tier *tier) {
    if (!tier->paused) return;
    neo__mutex_lock(&tier->lock);
    tier->paused = 0;
    tier->ahead_count = tier->ahead_end;
    if (tier->ahead_next < tier->ahead_count) neo__cond_broadcast(&tier->wake);
    neo__mutex_unlock(&tier->lock);
}
/* The place of a row that was asked for, or NULL. */
static neo__tier_ahead *neo__tier_ahead_of(const neo__tier *tier, int64_t table, int64_t row) {
    if (tier->ahead_capacity == 0) return NULL;
    const uint32_t i = tier->ahead_at[neo__tier_ahead_place(tier, table, row)];
    return i ? &tier->ahead[i - 1] : NULL;
}
/* Batches from the announced one that is needed till the one that has begun, or below 0. */
static int neo__tier_ahead_by(const neo__tier *tier, const neo__tier_ahead *a) {
    return (int8_t)(uint8_t)(a->batch - tier->begun);
}
/* Wait until all rows that have left are written. */
static neo_status neo__tier_flush(neo__tier *tier) {
    if (tier->behind_count == 0) return NEO_OK;
    neo__mutex_lock(&tier->lock);
    while (neo__tier_is_behind(tier))
        if (!neo__tier_take_behind(tier)) neo__cond_wait(&tier->done, &tier->lock);
    const neo_status status = tier->behind_status;
    neo__mutex_unlock(&tier->lock);
    if (status == NEO_OK) return NEO_OK;
    tier->status = status;
    memcpy(tier->failure, tier->failed_text, sizeof tier->failure);
    return neo_fail(status, "%s", tier->failure);
}
/* While nothing is read: rows that no batch to come needs make room; those to be read stay in
   order. */
static void neo__tier_make_room(neo__tier *tier) {
    int64_t kept = 0;
    if (tier->ahead_capacity == 0) return;
    memset(tier->ahead_at, 0, (size_t)tier->ahead_places * sizeof *tier->ahead_at);
    tier->free_count = 0;
    for (int64_t i = tier->ahead_capacity - 1; i >= 0; i--) {
        neo__tier_ahead *a = &tier->ahead[i];
        if (neo__tier_ahead_by(tier, a) <= 0) a->state = NEO__AHEAD_VOID;
        if (a->state == NEO__AHEAD_VOID) tier->ahead_free[tier->free_count++] = (uint32_t)i;
        else tier->ahead_at[neo__tier_ahead_place(tier, a->table, a->row)] = (uint32_t)i + 1;
    }
    neo__mutex_lock(&tier->lock);
    for (int64_t i = tier->ahead_next; i < tier->ahead_end; i++)
        if (tier->ahead[neo__tier_place(tier->ahead_order[i])].state == NEO__AHEAD_ASKED)
            tier->ahead_order[kept++] = tier->ahead_order[i];
    tier->ahead_next = 0;
    tier->ahead_count = tier->ahead_end = kept;
    neo__mutex_unlock(&tier->lock);
}
static void neo__tier_forget_all(neo__tier *tier) {
    neo__tier_settle(tier);
    tier->stats.dropped += tier->told - tier->begun;
    tier->begun = tier->told;
    neo__tier_make_room(tier);
}
/* While nothing is read: ask for a row that this batch needs, or needs too. 0: there is no room. */
static int neo__tier_ask_ahead(neo__tier *tier, int64_t table, int64_t row, uint32_t batch) {
    const int64_t at = neo__tier_ahead_place(tier, table, row);
    int64_t place = (int64_t)tier->ahead_at[at] - 1;
    if (place >= 0 && tier->ahead[place].state != NEO__AHEAD_VOID) {
        tier->ahead[place].batch = (uint8_t)batch;
        return 1;
    }
    if ((place < 0 && tier->free_count == 0) || tier->ahead_end == tier->ahead_capacity) return 0;
    if (place < 0) place = tier->ahead_free[--tier->free_count];
    const neo__tier_ahead ahead = {row, (int32_t)table, NEO__AHEAD_ASKED, (uint8_t)batch};
    tier->ahead[place] = ahead;
    tier->ahead_at[at] = (uint32_t)place + 1;
    tier->ahead_order[tier->ahead_end++] = neo__tier_key(tier, table, row, place);
    return 1;
}

/* The row that leaves the line of a job, to be written later from this place. */
static void neo__tier_put_behind(neo__tier *tier, neo__tier_job *job, int64_t place) {
    uint64_t *written = &tier->tables[job->table].written[job->old / 64];
    job->to = place;
    tier->behind[place].row = job->old;
    tier->behind[place].table = (int32_t)job->table;
    tier->behind_order[tier->behind_made++] = neo__tier_key(tier, job->table, job->old, place);
    __atomic_fetch_or(written, UINT64_C(1) << (job->old % 64), __ATOMIC_RELAXED);
}
/* The place of a line in `use`, where those of a set lie side by side, and back. */
NEO__INLINE int64_t neo__tier_place_of(const neo__tier_table *to, int64_t line) {
    const int64_t sets = INT64_C(1) << to->turn, way = line >> to->turn & (NEO__LINE_WAYS - 1);
    if (line >= to->turned) return line;
    return (line & -(sets * NEO__LINE_WAYS)) + (line & (sets - 1)) * NEO__LINE_WAYS + way;
}
static int64_t neo__tier_line_at(const neo__tier_table *to, int64_t place) {
    const int64_t sets = INT64_C(1) << to->turn, way = place & (NEO__LINE_WAYS - 1);
    if (place >= to->turned) return place;
    return (place & -(sets * NEO__LINE_WAYS)) + (way << to->turn) +
           (place / NEO__LINE_WAYS & (sets - 1));
}
NEO__INLINE uint64_t *neo__tier_use(const neo__tier_table *to, int64_t line) {
    return to->map.use + neo__tier_place_of(to, line);
}
/* LRU: the last call that needed a line, as far as is known, and announced batch. */
NEO__INLINE void neo__tier_set_use(neo__tier_table *to, int64_t line, int64_t last,
                                   uint32_t batch) {
    __atomic_store_n(neo__tier_use(to, line), (uint64_t)last << 32 | batch, __ATOMIC_RELAXED);
}
/* A row comes to a line: take it, if it was read ahead. */
static void neo__tier_take_row(neo__tier *tier, neo__tier_job *job) {
    neo__tier_table *to = &tier->tables[job->table];
    neo__tier_ahead *a = neo__tier_ahead_of(tier, job->table, job->row);
    if (neo__tier_is_written(to, job->row)) tier->stats.read++;
    else tier->stats.first++;
    if (!a || a->state == NEO__AHEAD_VOID) return;
    if (a->state == NEO__AHEAD_READ) job->from = a - tier->ahead;
    tier->stats.prefetched += job->from >= 0;
    tier->stats.late += job->from < 0;
    const uint32_t batch = tier->begun + (uint32_t)neo__tier_ahead_by(tier, a);
    if (to->is_lru) neo__tier_set_use(to, job->line, to->now, batch);
    else if (to->needed) to->needed[job->line] = batch;
    a->state = NEO__AHEAD_VOID;
}
/* Say what each job does. */
static void neo__tier_see_jobs(neo__tier *tier, neo__tier_job *jobs, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        neo__tier_job *job = &jobs[i];
        tier->stats.written += job->old >= 0;
        if (job->row >= 0) neo__tier_take_row(tier, job);
        if (job->old >= 0 && (job->from >= 0 || tier->behind_free < tier->free_count))
            neo__tier_put_behind(tier, job, job->from >= 0 ? job->from
                                                           : tier->ahead_free[tier->behind_free++]);
    }
}
/* Below a device, rows between the first `count` slots and the lines that items are for. */
static neo_status neo__tier_move_slots(neo__tier *tier, int64_t count, int write) {
    neo_device *on = tier->ctx->on;
    const size_t bytes = (size_t)(count * tier->slot_bytes);
    int64_t some = 0;
    for (int64_t i = 0; i < count; i++) some += tier->items[i].line >= 0;
    if (some == 0) return NEO_OK;
    NEO__TRY(on->copy(on, tier->device_items, NEO_DEVICE, tier->items, NEO_HOST,
                      (size_t)count * sizeof *tier->items));
    if (write)
        NEO__TRY(on->copy(on, tier->device_slots, NEO_DEVICE, tier->slots, NEO_HOST, bytes));
    NEO__TRY(on->bags_lines(on, &tier->base.bags->job, tier->device_items, count,
                            tier->device_slots, tier->slot_bytes, write));
    if (write) return NEO_OK;
    return on->copy(on, tier->slots, NEO_HOST, tier->device_slots, NEO_DEVICE, bytes);
}
/* Jobs in their order, as many at once as there are slots. */
static neo_status neo__tier_run_slots(neo__tier *tier, int64_t count) {
    for (int64_t i = 0, n; i < count; i += n) {
        tier->first_slot = i;
        n = NEO__MIN(count - i, tier->slot_count);
        for (int write = 0; write < 2; write++) {
            for (int64_t k = 0; k < n; k++) {
                const neo__tier_job *job = neo__tier_sorted_job(tier, i + k);
                const int moves = (write ? job->row : job->old) >= 0;
                const neo__job_line item = {job->table, moves ? job->line : -1, job->row};
                tier->items[k] = item;
            }
            if (write) neo__tier_let_run(tier, i + n);
            if (write) NEO__TRY(neo__tier_wait_jobs(tier));
            NEO__TRY(neo__tier_failed(tier, neo__tier_move_slots(tier, n, write)));
        }
    }
    return NEO_OK;
}
/* Before the jobs of a call. */
static neo_status neo__tier_begin_jobs(neo__tier *tier) {
    NEO__TRY(neo__tier_flush(tier));
    neo__mutex_lock(&tier->lock);
    tier->next = tier->count = tier->finished = tier->lined = 0;
    tier->behind_made = tier->behind_free = 0;
    tier->failed = INT64_MAX;
    neo__mutex_unlock(&tier->lock);
    return NEO_OK;
}
/* More jobs of a call, of a table: they run in the order of the file, while lines are given to rows
   of the tables behind it. Threads that do this may have some of several tables at the same time.
   Of a table all at once: rows in order cost up to a third less than in parts of 512, as they lie
   close (bench/results/tiers.md). */
static void neo__tier_hand_over(neo__tier *tier, neo__tier_job *jobs, int64_t count) {
    const int64_t most = INT64_C(1) << NEO__TIER_PLACES;
    if (count == 0) return;
    neo__mutex_lock(&tier->handing);
    for (int64_t n; count > 0; jobs += n, count -= n, tier->lined += n) {
        uint64_t *order = tier->order[0] + tier->lined;
        n = NEO__MIN(count, most);
        neo__tier_see_jobs(tier, jobs, n);
        for (int64_t i = 0; i < n; i++)
            order[i] = neo__tier_key(tier, jobs[i].table,
                                     jobs[i].row >= 0 ? jobs[i].row : jobs[i].old, i);
        neo__tier_sort(tier, order, tier->order[1], n);
        for (int64_t i = 0; i < n; i++)
            order[i] = (uint64_t)(jobs - tier->jobs + neo__tier_place(order[i]));
    }
    if (!neo__tier_on_device(tier)) neo__tier_let_run(tier, tier->lined);
    neo__mutex_unlock(&tier->handing);
}
/* Wait for all jobs of a call. */
static neo_status neo__tier_end_jobs(neo__tier *tier) {
    const int64_t behind = tier->behind_made;
    NEO__TRY(neo__tier_on_device(tier) ? neo__tier_run_slots(tier, tier->lined)
                                       : neo__tier_wait_jobs(tier));
    neo__tier_sort(tier, tier->behind_order, tier->order[1], behind);
    neo__mutex_lock(&tier->lock);
    tier->behind_next = 0;
    tier->behind_count = behind;
    if (behind) neo__cond_broadcast(&tier->wake);
    neo__mutex_unlock(&tier->lock);
    return NEO_OK;
}
/* Run the first `count` jobs. */
static neo_status neo__tier_run_jobs(neo__tier *tier, int64_t count) {
    NEO__TRY(neo__tier_begin_jobs(tier));
    neo__tier_hand_over(tier, tier->jobs, count);
    return neo__tier_end_jobs(tier);
}

/* ---------------------------------------------------------------------------
   >>impl-tier-lines

   Which line has a row. A call numbers itself in `now`; a line whose `used` is that number is
   needed and stays. Two walks over the call's rows: the first finds and marks those that are in
   memory, so that the second, which brings the others, can take the lines of none of them. Tables
   are independent: each is walked by one thread, in the order of its ids. A call with the ids of
   the one before it goes on with that one's lines: they have stayed. So it does where more ids have
   a row than had one, as keys get them; an id of another row begins a call of its own.

   Where there is an index, lines with the same place in their sets lie side by side, for a block of
   sets at a time (turned): sets fill from their first line on, so that rows of a cache that is not
   full lie close. `use` has the lines of a set side by side.

   index[row] is the row's line + 1, 0: none, and in its low bits, of LRU, the call that needed the
   row last, modulo the number of those known, or 0 where `use` of the line says it; else that may
   be older: it is mended where the line would leave by it. A hand passes all rows and tells `use`
   of calls that are half as many ago as are known. Rows without a line have a call that nothing
   reads: so the first walk writes it of all. Of so many lines that few calls were known, `use` has
   the calls.

   Of an announced batch a thread finds the lines, of LRU with its number in the lower half of
   `use`. Its forward compares ids alone, and writes nothing of lines that it hits: the call that
   looked the batch up is known by the number (calls), and stands for the line's last. What is kept
   of it holds, as lines that an announced batch needs stay; where one batch is announced they may
   leave, if a call comes between that moves rows: then forward looks for itself.
   ------------------------------------------------------------------------ */
static int64_t neo__tier_over_place(const neo__tier_table *to, int64_t row) {
    const uint64_t mask = (uint64_t)to->over_places - 1;
    const uint64_t *over = to->map.key + to->sets * NEO__LINE_WAYS;
    uint64_t i = neo__mix64((uint64_t)row) & mask;
    for (; to->over_at[i] && over[to->over_at[i] - 1] != (uint64_t)row;) i = (i + 1) & mask;
    return (int64_t)i;
}
/* The line of a row in overflow, or -1. */
static int64_t neo__tier_find_over(const neo__tier_table *to, int64_t row) {
    if (to->over_used == 0) return -1;
    const int64_t over = (int64_t)to->over_at[neo__tier_over_place(to, row)] - 1;
    return over < 0 ? -1 : to->sets * NEO__LINE_WAYS + over;
}
/* Calls that an index knows: numbers from 1 on stand for them. */
NEO__INLINE int64_t neo__tier_known(const neo__tier_table *to) {
    return (INT64_C(1) << to->call_bits) - 1;
}
/* An entry of the index: its line, -1: none; calls since the one that it has, -1: it has none. */
NEO__INLINE int64_t neo__tier_indexed(const neo__tier_table *to, uint32_t entry) {
    return (int64_t)((uint64_t)entry >> to->call_bits) - 1;
}
static int64_t neo__tier_index_ago(const neo__tier_table *to, uint32_t entry) {
    const int64_t known = neo__tier_known(to), call = (int64_t)entry & known;
    return call ? (to->now + known + 1 - call) % known : -1;
}
static int64_t neo__tier_find(const neo__tier_table *to, int64_t row) {
    if (to->index) return neo__tier_indexed(to, to->index[row]);
    const int64_t line = neo__lines_find(&to->map, (uint64_t)row, neo__mix64((uint64_t)row), 0);
    return line >= 0 ? line : neo__tier_find_over(to, row);
}
/* A call needs a line. */
NEO__INLINE void neo__tier_touch(neo__tier_table *to, int64_t line, int to_step) {
    uint64_t *use = neo__tier_use(to, line);
    if (to_step) to->dirty[line] = 1;
    if (neo__lines_last(*use) == to->now) return;
    if (to->is_lru) neo__tier_set_use(to, line, to->now, (uint32_t)*use);
    else neo__lines_touch(&to->map, use, to->now, 1);
}
static int neo__tier_is_lazy(const neo__tier_table *to) {
    enum { LEAST_BITS = 9 }; /* else a hand would pass many rows in each call */
    return to->index && to->is_lru && to->call_bits >= LEAST_BITS;
}
/* LRU with an index: the calls that it has of the next `count` rows go to `use`, where they are
   `least` ago or more. */
static void neo__tier_learn(neo__tier_table *to, int64_t count, int64_t least) {
    for (; count > 0; count--) {
        const int64_t row = to->learned;
        const uint32_t entry = to->index[row];
        const int64_t ago = neo__tier_index_ago(to, entry), line = neo__tier_indexed(to, entry);
        to->learned = row + 1 < to->rows ? row + 1 : 0;
        if (ago < least) continue;
        const uint64_t use = line >= 0 ? *neo__tier_use(to, line) : 0;
        if (line >= 0 && neo__lines_last(use) < to->now - ago)
            neo__tier_set_use(to, line, to->now - ago, (uint32_t)use);
        to->index[row] = entry & ~(uint32_t)neo__tier_known(to);
    }
}
static int64_t neo__tier_less(int64_t call, int64_t less) { return call > less ? call - less : 1; }
/* Numbers of calls have 32 bits: before they end, all are made less by as much, a multiple of the
   period, so that each later one stays later; those of 2^31 calls ago and more become one. */
static void neo__tier_renumber(neo__tier_table *to) {
    const int64_t half = INT64_C(1) << 31, lines = to->sets * NEO__LINE_WAYS + to->over;
    int64_t less = to->now - half;
    if (to->map.period > 0 && to->map.period <= less) less -= less % to->map.period;
    if (neo__tier_is_lazy(to)) neo__tier_learn(to, to->rows, 0);
    for (int64_t line = 0; line < lines; line++) {
        const uint64_t use = *neo__tier_use(to, line);
        const int64_t last = neo__tier_less(neo__lines_last(use), less);
        if (use) neo__tier_set_use(to, line, last, (uint32_t)use);
    }
    for (int k = 0; to->calls && k < NEO__TIER_CALLS; k++)
        if (to->calls[k]) to->calls[k] = (uint32_t)neo__tier_less((int64_t)to->calls[k], less);
    to->now -= less;
}
/* LRU: the last call that needed a line, as `use` and its announced batch say. */
NEO__INLINE int64_t neo__tier_last_announced(const neo__tier_table *to, uint64_t use) {
    const uint32_t batch = (uint32_t)use;
    const int64_t last = neo__lines_last(use);
    return batch ? NEO__MAX(last, (int64_t)to->calls[batch % NEO__TIER_CALLS]) : last;
}
/* The last call that needed a line. */
static int64_t neo__tier_last(const neo__tier_table *to, int64_t line) {
    const uint64_t use = *neo__tier_use(to, line);
    const int64_t last = to->is_lru ? neo__tier_last_announced(to, use) : neo__lines_last(use);
    if (!neo__tier_is_lazy(to) || last == to->now) return last;
    const int64_t ago = neo__tier_index_ago(to, to->index[to->map.key[line]]);
    return ago < 0 ? last : NEO__MAX(last, to->now - ago);
}
/* Lines of rows, -1 if there is none; negative numbers have none. touches: they will be used. */
enum { NEO__TIER_FIND = 256 };
static void neo__tier_find_many(const neo__tier *tier, const neo__tier_table *to,
                                const int64_t *rows, int64_t n, int touches,
                                int64_t line[NEO__TIER_FIND]) {
    if (!to->index) {
        const uint64_t *keys = (const uint64_t *)rows;
        (void)tier->ctx->bag->find(&to->map, keys, n, to->now, touches, line);
        for (int64_t i = 0; i < n; i++) {
            if (rows[i] < 0) line[i] = -1;
            else if (line[i] < 0) line[i] = neo__tier_find_over(to, rows[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) /* memory is asked for ahead */
        __builtin_prefetch(to->index + NEO__MAX(rows[i], (int64_t)0), 0, 2);
    for (int64_t i = 0; i < n; i++) {
        line[i] = rows[i] < 0 ? -1 : neo__tier_indexed(to, to->index[rows[i]]);
        if (touches) __builtin_prefetch(neo__tier_use(to, NEO__MAX(line[i], (int64_t)0)), 1, 2);
    }
}
/* Lines that a step changes. */
static void neo__tier_mark(neo__tier_table *to, const int64_t *at, int64_t count, int to_step) {
    for (int64_t i = 0; i < count && to_step; i++)
        if (at[i] >= 0) to->dirty[at[i]] = 1;
}
/* First walk of LRU where there is an index, which has the last call. For itself: its loop has all
   it needs in registers. */
static NEO__NOINLINE int64_t neo__tier_find_lazy(const neo__tier_table *to, const int64_t *rows,
                                                 int64_t count, int64_t *at, int64_t *copy) {
    enum { AHEAD = 96 };
    const int64_t fetched = count - AHEAD, known = neo__tier_known(to);
    const uint32_t call = (uint32_t)(to->now % known) + 1, lines = ~(uint32_t)known;
    const int bits = to->call_bits;
    uint32_t *index = to->index;
    int64_t missing = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = rows[i];
        if (i < fetched) __builtin_prefetch(index + rows[i + AHEAD], 1, 2);
        copy[i] = row;
        if (row < 0) {
            at[i] = -1;
            continue;
        }
        const uint32_t line = index[row] & lines;
        index[row] = line | call;
        at[i] = (int64_t)((uint64_t)line >> bits) - 1;
        missing += line == 0;
    }
    return missing;
}
/* First walk. at: the lines of rows that have one; -2 - row for the others, -1 where there is none.
   row: the rows, which may be in `at`. Returns how many have no line. */
static int64_t neo__tier_find_rows(const neo__tier *tier, int64_t table, const int64_t *rows,
                                   int64_t count, int64_t *at, int64_t *row, int to_step) {
    neo__tier_table *to = &tier->tables[table];
    int64_t line[NEO__TIER_FIND], missing = 0;
    if (!neo__tier_is_lazy(to)) memcpy(row, rows, (size_t)count * sizeof *row);
    if (!to->sets) {
        if (at != rows) memcpy(at, rows, (size_t)count * sizeof *at);
        return 0;
    }
    if (neo__tier_is_lazy(to)) {
        missing = neo__tier_find_lazy(to, rows, count, at, row);
        for (int64_t i = 0; i < count && missing; i++)
            if (at[i] < 0 && row[i] >= 0) at[i] = -2 - row[i];
        neo__tier_mark(to, at, count, to_step);
        return missing;
    }
    for (int64_t k = 0, n; k < count; k += n, at += n, row += n) {
        n = NEO__MIN(count - k, (int64_t)NEO__TIER_FIND);
        neo__tier_find_many(tier, to, row, n, 1, line);
        for (int64_t i = 0; i < n; i++) {
            at[i] = line[i] >= 0 ? line[i] : row[i] < 0 ? -1 : -2 - row[i];
            if (line[i] >= 0) neo__tier_touch(to, line[i], to_step);
            else missing += row[i] >= 0;
        }
    }
    return missing;
}
/* A row that comes to a line (below 0: none), and the one that leaves it. */
static void neo__tier_set_job(const neo__tier *tier, neo__tier_job *job, int64_t table,
                              int64_t line, int64_t row) {
    const neo__tier_table *to = &tier->tables[table];
    job->row = row;
    job->old = *neo__tier_use(to, line) && to->dirty[line] ? (int64_t)to->map.key[line] : -1;
    job->line = line;
    job->from = job->to = -1;
    job->table = table;
}
/* With batches announced before others: the last announced one that needs a line's row. */
static uint32_t neo__tier_needed_by(const neo__tier_table *to, int64_t line) {
    return to->is_lru ? (uint32_t)*neo__tier_use(to, line) : to->needed[line];
}
/* An announced batch that has not begun needs the row of a line. */
static int neo__tier_is_needed(const neo__tier *tier, const neo__tier_table *to, int64_t line) {
    return to->ahead > 1 && neo__tier_needed_by(to, line) > tier->begun;
}
/* Rows of overflow that this call does not need leave. */
static neo_status neo__tier_release(neo__tier *tier, int64_t table) {
    neo__tier_table *to = &tier->tables[table];
    const int64_t first = to->sets * NEO__LINE_WAYS;
    int64_t jobs = 0;
    to->over_next = 0;
    if (to->over_used == 0) return NEO_OK;
    memset(to->over_at, 0, (size_t)to->over_places * sizeof *to->over_at);
    to->over_used = 0;
    for (int64_t line = first; line < first + to->over; line++) {
        if (to->map.use[line] == 0) continue;
        if (neo__tier_last(to, line) == to->now) {
            const int64_t place = neo__tier_over_place(to, (int64_t)to->map.key[line]);
            to->over_at[place] = (uint32_t)(line - first + 1);
            to->over_used++;
            continue;
        }
        const int64_t row = (int64_t)to->map.key[line];
        if (to->index) to->index[row] = 0;
        if (neo__tier_is_needed(tier, to, line) &&
            (to->dirty[line] || neo__tier_is_written(to, row)))
            tier->stats.refused +=
                !neo__tier_ask_ahead(tier, table, row, neo__tier_needed_by(to, line));
        if (to->dirty[line]) neo__tier_set_job(tier, &tier->jobs[jobs++], table, line, -1);
        to->map.use[line] = 0;
        to->dirty[line] = 0;
        to->moves++;
        if (jobs == tier->capacity) NEO__TRY(neo__tier_run_jobs(tier, jobs));
        if (jobs == tier->capacity) jobs = 0;
    }
    return neo__tier_run_jobs(tier, jobs);
}
/* neo__lines_victim of LRU, where calls have numbers from 1 on: by no branch, as none could be
   foreseen. Of equal calls the first line is least, and those of this call are most. */
static int64_t neo__tier_oldest(const neo__tier_table *to, uint64_t hash) {
    const int64_t first = neo__lines_set(hash, to->sets) * NEO__LINE_WAYS;
    const uint64_t *use = to->map.use + first;
    uint64_t least[2] = {UINT64_MAX, UINT64_MAX};
    for (uint64_t i = 0; i < NEO__LINE_WAYS; i += 2) {
        const uint64_t one = (use[i] >> 32 << 32) + i, other = (use[i + 1] >> 32 << 32) + i + 1;
        least[0] = NEO__MIN(least[0], one);
        least[1] = NEO__MIN(least[1], other);
    }
    least[0] = NEO__MIN(least[0], least[1]);
    if (neo__lines_last(least[0]) == to->now) return -1;
    return first + (int64_t)(least[0] % NEO__LINE_WAYS);
}
static int64_t neo__tier_victim(const neo__tier *tier, neo__tier_table *to, uint64_t hash) {
    const int is_lru = to->is_lru;
    for (;;) {
        const int64_t place =
            is_lru ? neo__tier_oldest(to, hash) : neo__lines_victim(&to->map, hash, to->now);
        if (place < 0) return place;
        const int64_t line = neo__tier_line_at(to, place);
        const uint64_t use = to->map.use[place];
        if (use == 0) return line;
        if (neo__tier_is_needed(tier, to, line)) { /* as if this call did */
            if (is_lru) neo__tier_set_use(to, line, to->now, (uint32_t)use);
            else neo__lines_touch(&to->map, to->map.use + place, to->now, 0);
            continue;
        }
        int64_t last = is_lru ? neo__tier_last_announced(to, use) : neo__lines_last(use);
        if (last == neo__lines_last(use)) last = neo__tier_last(to, line); /* that reads more */
        if (last == neo__lines_last(use)) return line;
        neo__tier_set_use(to, line, last, (uint32_t)use);
    }
}
/* A line for a row that has none. */
static int64_t neo__tier_give(neo__tier *tier, int64_t table, int64_t row, int to_step) {
    neo__tier_table *to = &tier->tables[table];
    const uint64_t hash = neo__mix64((uint64_t)row);
    int64_t line = neo__tier_victim(tier, to, hash);
    if (line < 0) {
        const int64_t over = to->sets * NEO__LINE_WAYS;
        while (to->map.use[over + to->over_next]) to->over_next++;
        NEO_ASSERT(to->over_next < to->over);
        line = over + to->over_next;
        to->over_at[neo__tier_over_place(to, row)] = (uint32_t)++to->over_next;
        to->over_used++;
        to->overflow++;
    } else {
        to->evictions += *neo__tier_use(to, line) != 0;
        to->map.tag[neo__tier_place_of(to, line)] = neo__lines_tag(hash);
    }
    neo__tier_set_job(tier, &tier->jobs[to->first_job + to->jobs++], table, line, row);
    if (to->index) { /* `use` has the call */
        if (*neo__tier_use(to, line)) to->index[to->map.key[line]] = 0;
        to->index[row] = (uint32_t)((uint64_t)(line + 1) << to->call_bits);
    }
    to->map.key[line] = (uint64_t)row;
    neo__tier_set_use(to, line, to->now, !to->is_lru); /* LFU: a count of 1 */
    to->dirty[line] = (uint8_t)to_step;
    to->moves++;
    if (to->needed) to->needed[line] = 0;
    return line;
}
/* First walk of what an announcement found, whose lines are still those of its rows: rows that had
   none may have come since. Lines of LRU are known to be needed by their announced batch. */
static int64_t neo__tier_find_since(neo__tier_table *to, int64_t *at, int64_t count) {
    int64_t missing = 0;
    for (int64_t i = 0; i < count; i++) {
        if (at[i] == -1 || (at[i] >= 0 && to->is_lru)) continue;
        const int64_t line = at[i] >= 0 ? at[i] : neo__tier_find(to, -2 - at[i]);
        if (line >= 0) neo__tier_touch(to, at[i] = line, 0);
        else missing++;
    }
    return missing;
}
/* A row will be given a line of its set. */
NEO__INLINE void neo__tier_fetch_set(const neo__lines *map, int64_t row) {
    const uint64_t hash = neo__mix64((uint64_t)row);
    const int64_t first = neo__lines_set(hash, map->sets) * NEO__LINE_WAYS;
    neo__lines_fetch(map, hash);
    for (int i = 0; i < NEO__LINE_WAYS; i += 8) __builtin_prefetch(map->key + first + i, 1, 2);
}
/* Second walk. What sets have is asked for ahead. */
static void neo__tier_give_rows(neo__tier *tier, int64_t table, int64_t *at, int64_t count,
                                int to_step) {
    enum { AHEAD = 12 };
    neo__tier_table *to = &tier->tables[table];
    for (int64_t i = 0; i < count; i++) {
        const int64_t next = at[NEO__MIN(i + AHEAD, count - 1)];
        if (next < -1) neo__tier_fetch_set(&to->map, -2 - next);
        if (at[i] >= -1) continue;
        const int64_t row = -2 - at[i], line = neo__tier_find(to, row); /* an id before */
        at[i] = line >= 0 ? line : neo__tier_give(tier, table, row, to_step);
    }
}

/* ---- what an announced batch needs ---- */
/* LRU: an announced batch needs a line. */
NEO__INLINE void neo__tier_announce_line(neo__tier_table *to, int64_t line, uint32_t batch) {
    const uint64_t use = *neo__tier_use(to, line);
    if ((uint32_t)use != batch)
        neo__tier_set_use(to, line, neo__tier_last_announced(to, use), batch);
}
/* Calls of announced batches are forgotten: lines that these needed keep theirs. A hand passes all
   lines while a third of the calls that are known are announced. */
static void neo__tier_pass_lines(const neo__tier *tier, neo__tier_table *to) {
    const int64_t lines = to->sets * NEO__LINE_WAYS + to->over;
    to->calls[tier->told % NEO__TIER_CALLS] = 0;
    for (int64_t n = 3 * lines / NEO__TIER_CALLS; n >= 0; n--) {
        const uint64_t use = *neo__tier_use(to, to->hand);
        if ((uint32_t)use && (uint32_t)use <= tier->begun)
            neo__tier_set_use(to, to->hand, neo__tier_last_announced(to, use), 0);
        to->hand = to->hand + 1 < lines ? to->hand + 1 : 0;
    }
}
/* Rows of a table that the batch announced last needs. line: those found, -2 - row of others and of
   those in overflow, which may leave before, or -1. Returns how many are others. refused: grows by
   those that find no room. */
static int64_t neo__tier_see_rows(neo__tier *tier, int64_t table, const int64_t *row, int64_t n,
                                  int64_t *line, int64_t *refused) {
    neo__tier_table *to = &tier->tables[table];
    const int64_t in_sets = to->sets * NEO__LINE_WAYS;
    int64_t bare = 0;
    neo__tier_find_many(tier, to, row, n, to->is_lru, line);
    for (int64_t i = 0; i < n; i++) {
        if (row[i] < 0) continue;
        if (line[i] >= 0 && to->is_lru) neo__tier_announce_line(to, line[i], tier->told);
        else if (line[i] >= 0 && to->needed) to->needed[line[i]] = tier->told;
        else if (line[i] < 0 && neo__tier_is_written(to, row[i]))
            *refused += !neo__tier_ask_ahead(tier, table, row[i], tier->told);
        if (line[i] >= 0 && line[i] < in_sets) continue;
        line[i] = -2 - row[i];
        bare++;
    }
    return bare;
}
/* Rows of an announced batch that found no room: forwards since may have left some. */
static void neo__tier_ask_again(neo__tier *tier, neo__tier_seen *seen) {
    int64_t refused = 0;
    for (int64_t f = 0; f < tier->base.bags->sizes.features; f++) {
        const neo__tier_part *part = &seen->part[f];
        const neo__tier_table *to = &tier->tables[part->table];
        for (int64_t k = part->begin; to->sets && k < part[1].begin; k++) {
            const int64_t row = -2 - seen->line[k];
            if (row < 0 || !neo__tier_is_written(to, row) || neo__tier_find(to, row) >= 0) continue;
            const neo__tier_ahead *ahead = neo__tier_ahead_of(tier, part->table, row);
            if (ahead && ahead->state != NEO__AHEAD_VOID) continue;
            refused += !neo__tier_ask_ahead(tier, part->table, row, seen->batch);
        }
    }
    tier->stats.refused = NEO__MAX(tier->stats.refused + refused - seen->refused, (int64_t)0);
    seen->refused = refused;
}
/* With `walk` held: find what the batch that was announced last needs, if that is to be done: by a
   thread of the tier, or whoever comes before it. */
static void neo__tier_see(neo__tier *tier) {
    neo__mutex_lock(&tier->lock);
    const int unseen = tier->unseen;
    tier->unseen = 0;
    neo__mutex_unlock(&tier->lock);
    if (!unseen) return;
    neo__tier_seen *seen = &tier->seen[tier->told % neo__tier_seen_count(tier)];
    neo__tier_settle(tier);
    neo__tier_make_room(tier);
    const int64_t before = tier->ahead_end;
    for (uint32_t n = tier->begun + 1; n != tier->told; n++) {
        neo__tier_seen *other = &tier->seen[n % neo__tier_seen_count(tier)];
        if (other->batch == n && other->count > 0 && other->refused)
            neo__tier_ask_again(tier, other);
    }
    seen->refused = 0;
    for (int64_t i = 0; i < tier->table_count; i++) {
        neo__tier_table *to = &tier->tables[i];
        to->moves_then = to->moves;
        if (to->sets && to->calls) neo__tier_pass_lines(tier, to);
    }
    for (int64_t f = 0; f < tier->base.bags->sizes.features && seen->count > 0; f++) {
        neo__tier_part *part = &seen->part[f];
        part->bare = 0;
        for (int64_t k = part->begin, n; tier->tables[part->table].sets && k < part[1].begin;
             k += n) {
            n = NEO__MIN(part[1].begin - k, (int64_t)NEO__TIER_FIND);
            part->bare += neo__tier_see_rows(tier, part->table, seen->row + k, n, seen->line + k,
                                             &seen->refused);
        }
    }
    tier->stats.refused += seen->refused;
    neo__tier_sort(tier, tier->ahead_order + before, tier->order[1],
                   NEO__MIN(tier->ahead_end - before, tier->capacity));
    neo__tier_resume(tier);
}
/* Take `walk`, for a call that the lines of all announced batches may matter to. */
static void neo__tier_enter(neo__tier *tier) {
    neo__mutex_lock(&tier->walk);
    neo__tier_see(tier);
}
NEO__HOT_END

/* ---------------------------------------------------------------------------
   >>impl-tier

   What neo_bags calls (neo__tier_ops), and the layout of memory. Addresses of tensors whose rows
   lie here are numbers that no memory can have: an offset in them says which byte of which row.
   ------------------------------------------------------------------------ */
#define NEO__TIER_ADDRESS ((uintptr_t)((UINT64_C(1) << 56) & UINTPTR_MAX)) /* not canonical */

/* ---- layout ---- */
typedef struct neo__tier_sizes {
    int64_t slots, slot_bytes, bags; /* below a device; bags: of a batch */
    int64_t parts, capacity, threads, tables, record_bytes, room_bytes, ahead, ahead_bytes;
    int64_t ahead_room; /* bytes of the budget that rows read ahead take at most */
    int64_t bags_bytes; /* of the neo_bags, keys among them, without its rows */
} neo__tier_sizes;

static int64_t neo__tier_parts(const neo_table_desc *desc, int64_t part[NEO__BAG_BLOCKS]) {
    int64_t sum = 0;
    part[NEO__BAG_WEIGHTS] = desc->dim * (int64_t)neo_dtype_size(desc->dtype);
    part[NEO__BAG_SCALES] = desc->dtype == NEO_I8 ? 2 * (int64_t)sizeof(float) : 0;
    for (int k = 0; k < 2; k++) {
        const int per = neo__bag_optims[desc->optim.kind].state[k];
        part[NEO__BAG_STATE + k] =
            (per == NEO__BAG_PER_ELEMENT ? desc->dim : per) * (int64_t)sizeof(float);
    }
    for (int k = 0; k < NEO__BAG_BLOCKS; k++) sum += part[k];
    return sum;
}
static void neo__tier_fixed_layout(const neo__tier_sizes *sizes, neo__carve *carve,
                                   neo__tier *tier) {
    NEO__CARVE(carve, tier->tables, sizes->tables);
    NEO__CARVE(carve, tier->part, sizes->parts);
    NEO__CARVE(carve, tier->threads, sizes->threads);
    NEO__CARVE(carve, tier->workers, sizes->threads);
    NEO__CARVE(carve, tier->block, NEO__MAX((int64_t)NEO__TIER_BLOCK, sizes->record_bytes));
    NEO__CARVE(carve, tier->records, (sizes->threads + 1) * sizes->room_bytes);
    tier->ahead_places = neo__bags_slot_places(sizes->ahead);
    NEO__CARVE(carve, tier->ahead, sizes->ahead);
    NEO__CARVE(carve, tier->ahead_at, tier->ahead_places);
    NEO__CARVE(carve, tier->ahead_data, sizes->ahead * sizes->ahead_bytes);
    NEO__CARVE(carve, tier->behind, sizes->ahead);
    NEO__CARVE(carve, tier->ahead_order, sizes->ahead);
    NEO__CARVE(carve, tier->ahead_free, sizes->ahead);
    NEO__CARVE(carve, tier->behind_order, sizes->ahead);
}
static void neo__tier_pinned_layout(const neo__tier_sizes *sizes, neo__carve *carve,
                                    neo__tier *tier) {
    NEO__CARVE(carve, tier->items, sizes->slots);
    NEO__CARVE(carve, tier->slots, sizes->slots * sizes->slot_bytes);
}
static void neo__tier_device_layout(const neo__tier_sizes *sizes, neo__carve *carve,
                                    neo__tier *tier) {
    NEO__CARVE(carve, tier->device_items, sizes->slots);
    NEO__CARVE(carve, tier->device_slots, sizes->slots * sizes->slot_bytes);
}
/* bags: of a batch, below a device. */
static void neo__tier_work_layout(int64_t capacity, int64_t bags, uint32_t seen, neo__carve *carve,
                                  neo__tier *tier) {
    NEO__CARVE(carve, tier->host_offsets, bags);
    NEO__CARVE(carve, tier->host_ids, bags ? capacity : 0);
    NEO__CARVE(carve, tier->base.line, capacity);
    NEO__CARVE(carve, tier->row, capacity);
    NEO__CARVE(carve, tier->jobs, capacity);
    for (int i = 0; i < 2; i++) NEO__CARVE(carve, tier->order[i], capacity);
    for (uint32_t i = 0; i < seen; i++) {
        NEO__CARVE(carve, tier->seen[i].line, capacity);
        NEO__CARVE(carve, tier->seen[i].row, capacity);
        tier->seen[i].count = -1;
    }
}
static int64_t neo__tier_lines_of(const neo__tier_table *to) {
    return to->sets * NEO__LINE_WAYS + to->over + 1;
}
static void neo__tier_table_layout(neo__carve *carve, neo__tier_table *to) {
    const int64_t lines = neo__tier_lines_of(to);
    to->over_places = neo__bags_slot_places(to->over);
    to->call_bits = 32 - neo__bits_for((uint64_t)lines + 1);
    NEO__CARVE(carve, to->map.tag, to->sets * NEO__LINE_WAYS);
    NEO__CARVE(carve, to->map.key, lines);
    NEO__CARVE(carve, to->map.use, lines);
    NEO__CARVE(carve, to->dirty, lines);
    NEO__CARVE(carve, to->over_at, to->over_places);
    NEO__CARVE(carve, to->written, (to->rows + 63) / 64);
    if (to->indexed) NEO__CARVE(carve, to->index, to->rows);
    if (to->ahead > 1 && !to->is_lru) NEO__CARVE(carve, to->needed, lines);
    if (to->ahead && to->is_lru) NEO__CARVE(carve, to->calls, NEO__TIER_CALLS);
}
/* Below a device: which rows lines have, in its memory. */
static size_t neo__tier_line_row_bytes(const neo__tier_table *to) {
    return (size_t)neo__tier_lines_of(to) * sizeof *to->line_row;
}
/* Bytes of the budget for a table with these sets and this overflow. */
static int64_t neo__tier_table_bytes(const neo__tier *tier, const neo_table_desc *desc,
                                     int64_t sets, int64_t over, int indexed) {
    NEO__ZERO(neo__tier_table, table);
    neo__carve count = {NULL, 0};
    int64_t part[NEO__BAG_BLOCKS];
    if (neo__tier_on_device(tier)) /* line_row, and the lines */
        return (sets * NEO__LINE_WAYS + over + 1) *
               (neo__tier_parts(desc, part) + (int64_t)sizeof(uint64_t));
    table.rows = desc->rows;
    table.sets = sets;
    table.over = over;
    table.indexed = indexed;
    table.ahead = tier->desc.prefetch;
    table.is_lru = tier->desc.evict == NEO_EVICT_LRU;
    neo__tier_table_layout(&count, &table);
    return (int64_t)count.at + neo__tier_lines_of(&table) * neo__tier_parts(desc, part);
}
/* Lines of overflow: the ids of a table in a batch, were all features alike. */
static int64_t neo__tier_overflow(const neo_bags_desc *desc, int32_t table) {
    const int64_t features = desc->feature_table ? desc->feature_count : desc->table_count;
    int64_t own = 0;
    for (int32_t f = 0; f < features; f++) own += neo__bags_feature_table(desc, f) == table;
    const int64_t each = NEO__MAX(desc->max_batch, (desc->max_ids + features - 1) / features);
    return NEO__MIN(NEO__MIN(own * each, desc->max_ids), desc->tables[table].rows);
}
static int64_t neo__tier_least(const neo__tier *tier, const neo_bags_desc *desc, int32_t table) {
    return neo__tier_table_bytes(tier, &desc->tables[table], 1, neo__tier_overflow(desc, table), 0);
}
/* The budget's rest, for tables. Below a device it is of the device's memory. */
static int64_t neo__tier_left(const neo__tier *tier, const neo__tier_sizes *sizes) {
    neo__carve count = {NULL, 0}, lines = {NULL, 0};
    NEO__ZERO(neo__tier, none);
    if (neo__tier_on_device(tier)) {
        neo__tier_device_layout(sizes, &count, &none);
        NEO__CARVE(&lines, none.device_lines, sizes->capacity);
    } else {
        neo__tier_fixed_layout(sizes, &count, &none);
        neo__tier_work_layout(sizes->capacity, 0, neo__tier_seen_count(tier), &count, &none);
    }
    return tier->base.budget.memory_bytes - sizes->bags_bytes - (int64_t)(count.at + lines.at);
}
/* Rows that are read ahead: as many as are stated; else as have room in an eighth of the budget,
   or, up to those of a batch and half of those of each more, in half of what is left of it beside
   all that a batch needs: rows that are in lines, or of two batches, take none. What they may take
   grows with the budget, and slower, so that each budget above one that will do does, too. */
static void neo__tier_rows_ahead(const neo__tier *tier, const neo_bags_desc *desc,
                                 neo__tier_sizes *sizes) {
    enum { ROUNDING = 8 * 64 }; /* of the arrays */
    const int64_t each = sizes->ahead_bytes + 2 * (int64_t)sizeof(neo__tier_ahead) + 36;
    const int64_t most = NEO__MIN(tier->desc.prefetch * desc->max_ids,
                                  INT64_C(1) << NEO__TIER_PLACES);
    int64_t left = neo__tier_left(tier, sizes),
            bytes = NEO__MAX(tier->base.budget.memory_bytes - desc->tier_taken, 0) / 8;
    for (int32_t i = 0; i < desc->table_count; i++) {
        int64_t part[NEO__BAG_BLOCKS];
        const neo_table_desc *d = &desc->tables[i];
        left -= NEO__MIN(neo__tier_least(tier, desc, i), d->rows * neo__tier_parts(d, part));
    }
    if (neo__tier_on_device(tier)) left = 0; /* they are in the host's memory */
    const int64_t wanted = (tier->desc.prefetch + 1) * desc->max_ids / 2;
    bytes = NEO__MAX(bytes, NEO__MIN(left / 2, NEO__MIN(wanted, most) * each + ROUNDING));
    sizes->ahead = NEO__MIN(NEO__MAX(bytes - ROUNDING, 0) / each, most);
    if (tier->desc.ahead_rows) sizes->ahead = NEO__MIN(tier->desc.ahead_rows, most);
    if (tier->desc.ahead_rows || bytes > most * each + ROUNDING)
        bytes = sizes->ahead * each + ROUNDING;
    sizes->ahead_room = neo__tier_on_device(tier) ? 0 : bytes;
}
/* Offsets of a batch in a device's memory. */
static int64_t neo__tier_bags(const neo__bag_sizes *bags) {
    const size_t count = neo__size_mul((size_t)bags->max_batch, (size_t)bags->features);
    return bags->device ? (int64_t)count + 1 : 0;
}
static neo__tier_sizes neo__tier_measure(const neo__tier *tier, const neo_ctx *ctx,
                                         const neo_bags_desc *desc) {
    neo__bag_sizes bags = neo__bags_sizes_of(ctx, desc);
    NEO__ZERO(neo__tier_sizes, s);
    int64_t part[NEO__BAG_BLOCKS];
    size_t host, device = 0;
    neo__bags_ask_device(ctx, &bags);
    neo__bags_work_bytes(&bags, &host, &device);
    s.bags_bytes = (int64_t)(bags.device ? device : neo__bags_fixed_bytes(&bags));
    s.bags_bytes += desc->tier_taken;
    s.bags = neo__tier_bags(&bags);
    s.capacity = NEO__MAX(desc->max_ids, neo__bags_kept_rows(&bags));
    s.threads = tier->desc.queue_depth ? tier->desc.queue_depth : 4;
    s.tables = desc->table_count;
    s.parts = (bags.features + 1) * (1 + neo__tier_seen_count(tier));
    for (int32_t i = 0; i < desc->table_count; i++) {
        if (!bags.device) s.bags_bytes += (int64_t)neo__bag_keys_bytes(&desc->tables[i]);
        const int64_t record = neo__tier_parts(&desc->tables[i], part) + 4,
                      room = (int64_t)sizeof(float) * neo__bag_room(desc->tables[i].dim);
        s.record_bytes = NEO__MAX(s.record_bytes, (NEO__MAX(record, room) + 63) / 64 * 64);
        s.ahead_bytes = NEO__MAX(s.ahead_bytes, (record + 7) / 8 * 8);
        int64_t slot = 0;
        for (int k = 0; k < NEO__BAG_BLOCKS; k++) slot += neo__bag_part_room(part[k]);
        s.slot_bytes = NEO__MAX(s.slot_bytes, slot);
    }
    if (bags.device) { /* few of a small budget: less than the cache has lines */
        const int64_t bytes = NEO__MIN(tier->base.budget.memory_bytes / 16, INT64_C(1) << 22);
        s.slots = NEO__MIN(NEO__MAX(bytes / s.slot_bytes, 32), s.capacity);
    }
    s.room_bytes = NEO__MAX(s.record_bytes, (int64_t)NEO__TIER_ROOM);
    if (tier->desc.prefetch) neo__tier_rows_ahead(tier, desc, &s);
    return s;
}
/* Bytes of the budget for a table: what a batch takes and its share, at most all rows. whole: it
   lies in memory as a whole, by its share or as lines would take no less. */
static int64_t neo__tier_share(const neo__tier *tier, const neo_bags_desc *desc, int32_t table,
                               int *whole) {
    const neo_table_desc *d = &desc->tables[table];
    int64_t part[NEO__BAG_BLOCKS];
    const int64_t all = d->rows * neo__tier_parts(d, part),
                  least = neo__tier_least(tier, desc, table);
    const double share = tier->level * (d->tier_share > 0.0 ? d->tier_share : 1.0);
    *whole = (double)least + share >= (double)all;
    return *whole ? all : least + (int64_t)share;
}
static int64_t neo__tier_shares(const neo__tier *tier, const neo_bags_desc *desc) {
    int64_t sum = 0;
    int whole;
    for (int32_t i = 0; i < desc->table_count; i++) sum += neo__tier_share(tier, desc, i, &whole);
    return sum;
}
/* The level at which shares fill the budget. Returns what it lacks for the least of each. */
static int64_t neo__tier_fill(neo__tier *tier, const neo_ctx *ctx, const neo_bags_desc *desc) {
    const neo__tier_sizes sizes = neo__tier_measure(tier, ctx, desc);
    const int64_t left = neo__tier_left(tier, &sizes);
    neo__tier_sizes others = sizes;
    others.ahead = 0;
    const int64_t room = neo__tier_left(tier, &others) - sizes.ahead_room; /* at least */
    tier->level = 0.0;
    const int64_t least = neo__tier_shares(tier, desc);
    double low = 0.0, high = 0.0; /* high: too much, or all rows of each table */
    for (int32_t i = 0; i < desc->table_count && least <= left; i++) {
        const double share = desc->tables[i].tier_share;
        high = NEO__MAX(high, 2.0 * (double)left / (share > 0.0 ? NEO__MAX(share, 1e-18) : 1.0));
    }
    for (int n = 0; n < 100 && least <= left; n++) {
        tier->level = low + (high - low) / 2.0;
        if (neo__tier_shares(tier, desc) <= left) low = tier->level;
        else high = tier->level;
    }
    tier->level = low;
    return NEO__MAX(least - room, (int64_t)0);
}
/* The sets, overflow and index of a table by its share; sets 0: it is in memory. */
static void neo__tier_plan(const neo__tier *tier, const neo_bags_desc *desc, int32_t table,
                           neo__tier_table *to) {
    const neo_table_desc *d = &desc->tables[table];
    int whole;
    const int64_t share = neo__tier_share(tier, desc, table, &whole);
    to->rows = d->rows;
    to->sets = to->over = to->indexed = 0;
    to->ahead = tier->desc.prefetch;
    to->is_lru = tier->desc.evict == NEO_EVICT_LRU;
    if (whole) return;
    const int64_t most = (d->rows + NEO__LINE_WAYS - 1) / NEO__LINE_WAYS;
    int64_t low = 1, high = NEO__MIN(most, INT32_MAX / NEO__LINE_WAYS);
    to->over = neo__tier_overflow(desc, table);
    to->indexed = d->rows <= share / 16 / (int64_t)sizeof *to->index &&
                  neo__tier_table_bytes(tier, d, 1, to->over, 1) <= share;
    while (low < high) { /* the most that fit */
        const int64_t middle = (low + high + 1) / 2;
        if (neo__tier_table_bytes(tier, d, middle, to->over, to->indexed) <= share) low = middle;
        else high = middle - 1;
    }
    to->sets = low;
    to->turned = 0;
    for (to->turn = 0; to->sets >> (to->turn + 4); to->turn++) continue; /* 8 blocks, or 9 .. 15 */
    if (to->indexed && to->turn && !neo__tier_on_device(tier))
        to->turned = (to->sets >> to->turn << to->turn) * NEO__LINE_WAYS;
}
/* Bytes of a table's records. */
static int64_t neo__tier_records(const neo_table_desc *d) {
    int64_t part[NEO__BAG_BLOCKS];
    const int64_t record = neo__tier_parts(d, part) + (int64_t)sizeof(uint32_t);
    return (d->rows * record + 4095) / 4096 * 4096;
}
static int64_t neo__tier_op_cached(neo_tier *base, const neo_bags_desc *desc, int32_t table,
                                   int64_t *below_bytes) {
    const neo_table_desc *d = &desc->tables[table];
    NEO__ZERO(neo__tier_table, to);
    neo__tier_plan((neo__tier *)base, desc, table, &to);
    *below_bytes = to.sets ? neo__tier_records(d) : 0;
    if (to.sets == 0) return d->rows;
    return NEO__MIN(to.sets * NEO__LINE_WAYS, d->rows);
}
/* Tables are asked for in order, from 0 on. */
static int64_t neo__tier_op_lines(neo_tier *base, const neo_ctx *ctx, const neo_bags_desc *desc,
                                  int32_t table) {
    neo__tier *t = (neo__tier *)base;
    NEO__ZERO(neo__tier_table, to);
    if (table == 0) (void)neo__tier_fill(t, ctx, desc);
    neo__tier_plan(t, desc, table, &to);
    return to.sets ? neo__tier_lines_of(&to) : 0;
}
static neo_status neo__tier_op_bytes(neo_tier *base, const neo_ctx *ctx, const neo_bags_desc *desc,
                                     const char *fn, size_t *bytes) {
    neo__tier *t = (neo__tier *)base;
    const neo__tier_sizes sizes = neo__tier_measure(t, ctx, desc);
    NEO__ZERO(neo__tier, none);
    neo__carve count = {NULL, 0};
    size_t device = 0;
    neo__tier_fixed_layout(&sizes, &count, &none);
    neo__tier_work_layout(sizes.capacity, sizes.bags, neo__tier_seen_count(t), &count, &none);
    if (neo__tier_on_device(t)) {
        neo__carve lines = {NULL, 0};
        neo__tier_pinned_layout(&sizes, &count, &none);
        neo__tier_device_layout(&sizes, &count, &none);
        NEO__CARVE(&lines, none.device_lines, sizes.capacity);
        device = lines.at;
    }
    neo__tier_budget *budget = &base->budget;
    const int64_t tried = budget->memory_bytes;
    int64_t needs = tried, lacks = neo__tier_fill(t, ctx, desc);
    for (; lacks > 0 && needs <= INT64_MAX - lacks; lacks = neo__tier_fill(t, ctx, desc))
        budget->memory_bytes = needs += lacks; /* a larger budget reads more ahead */
    budget->memory_bytes = tried;
    budget->needs_bytes = needs > tried ? needs : 0;
    char beside[80] = "";
    if (desc->tier_taken)
        snprintf(beside, sizeof beside, ", with %" PRId64 " of copies of tables",
                 desc->tier_taken);
    NEO__CHECK(needs == tried && lacks == 0, NEO_ERR_ARG,
               "%s: tier '%s': memory_bytes is %" PRId64 ", a batch of these tables needs %" PRId64
               "%s", fn, t->path, budget->given_bytes, needs, beside);
    for (int32_t i = 0; i < desc->table_count; i++) {
        NEO__ZERO(neo__tier_table, table);
        NEO__CHECK(!desc->tables[i].weight, NEO_ERR_ARG,
                   "%s: table '%s': its rows are in memory of yours, and the object has a tier", fn,
                   desc->tables[i].name);
        neo__tier_plan(t, desc, i, &table);
        if (!table.sets) continue;
        neo__tier_table_layout(&count, &table);
        if (neo__tier_on_device(t))
            device += (size_t)neo__tier_lines_of(&table) * sizeof *table.line_row;
        if (!t->desc.path)
            device = neo__size_add(device, (size_t)neo__tier_records(&desc->tables[i]));
    }
    *bytes = neo__size_add(*bytes, neo__size_add(count.at, device));
    return NEO_OK;
}

/* ---- begin, end ---- */
static void neo__tier_op_detach(neo_tier *base) {
    neo__tier *t = (neo__tier *)base;
    struct neo_tier **link = &t->ctx->tiers;
    neo__mutex_lock(&t->lock);
    t->quit = 1;
    neo__cond_broadcast(&t->wake);
    neo__mutex_unlock(&t->lock);
    for (int i = 0; i < t->thread_count; i++) neo__thread_join(&t->threads[i]);
    neo__tier_ring_close(&t->caller.ring);
    for (int64_t i = 0; i < t->table_count && t->tables; i++) {
        neo__tier_table *to = &t->tables[i];
        neo_free(t->ctx, to->memory, to->bytes);
        neo__data_free(t->ctx, to->line_row, neo__tier_line_row_bytes(to));
    }
    neo_free(t->ctx, t->work, t->work_bytes);
    neo_free(t->ctx, t->fixed, t->fixed_bytes);
    neo_free(t->ctx, t->host, t->host_bytes);
    neo__pinned_free(t->ctx, t->pinned, t->pinned_bytes);
    neo__data_free(t->ctx, t->device, t->device_bytes);
    neo__data_free(t->ctx, t->device_lines, t->device_work_bytes);
    while (*link && *link != base) link = &(*link)->next;
    if (*link) *link = base->next;
    if (t->is_open) {
        (void)neo__file_remove(t->path);
        (void)neo__file_close(&t->file);
    }
    base->bags->tier = NULL;
    base->bags = NULL;
    t->fixed = t->work = t->host = t->pinned = t->device = NULL;
    t->device_lines = NULL;
    t->host_bytes = t->pinned_bytes = t->device_bytes = t->device_work_bytes = 0;
    t->tables = NULL;
    t->is_open = t->quit = 0;
    t->thread_count = 0;
    t->status = NEO_OK;
    t->ahead_capacity = t->ahead_count = t->ahead_next = t->ahead_end = t->free_count = 0;
    t->told = t->begun = 0;
    t->paused = t->unseen = 0;
    t->behind_count = t->behind_next = 0;
    t->behind_status = NEO_OK;
}
/* Wait for all threads: memory that they look at may move. */
static neo_status neo__tier_quiet(neo__tier *tier, const char *fn) {
    neo__tier_settle(tier);
    const neo_status status = neo__tier_flush(tier);
    return status == NEO_OK ? NEO_OK : neo_fail(status, "%s: %s", fn, tier->failure);
}
static neo_status neo__tier_work(neo__tier *tier, int64_t capacity, int64_t bags, const char *fn) {
    neo__carve work = {NULL, 0}, lines = {NULL, 0};
    neo__tier none = *tier;
    neo__tier_work_layout(capacity, bags, neo__tier_seen_count(tier), &work, &none);
    NEO__CARVE(&lines, none.device_lines, capacity);
    const size_t bytes = work.at;
    work.block = (char *)neo__alloc_for(tier->ctx, bytes, fn);
    if (!work.block) return NEO_ERR_MEMORY;
    if (bags) lines.block = (char *)neo__data_alloc(tier->ctx, lines.at);
    if (bags && !lines.block) {
        neo_free(tier->ctx, work.block, bytes);
        return neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " ids on the device", fn,
                        capacity);
    }
    work.at = 0;
    neo_free(tier->ctx, tier->work, tier->work_bytes);
    neo__data_free(tier->ctx, tier->device_lines, tier->device_work_bytes);
    neo__tier_work_layout(capacity, bags, neo__tier_seen_count(tier), &work, tier);
    tier->device_lines = (int64_t *)(void *)lines.block;
    tier->device_work_bytes = bags ? lines.at : 0;
    tier->work = work.block;
    tier->work_bytes = bytes;
    tier->capacity = capacity;
    tier->bag_capacity = bags;
    tier->staged = 0;
    return NEO_OK;
}
static neo_status neo__tier_make_line_row(neo__tier *tier, neo__tier_table *to,
                                          const neo__tier_table *old, const char *fn) {
    neo_device *on = tier->ctx->on;
    to->line_row = NULL;
    if (!neo__tier_on_device(tier)) return NEO_OK;
    to->line_row = (uint64_t *)neo__data_alloc(tier->ctx, neo__tier_line_row_bytes(to));
    NEO__CHECK(to->line_row, NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " lines", fn,
               neo__tier_lines_of(to));
    if (!old) return NEO_OK;
    return on->copy(on, to->line_row, NEO_DEVICE, old->line_row, NEO_DEVICE,
                    neo__tier_line_row_bytes(old));
}
/* Memory for a table's lines, in which `old` may have lines already. */
static neo_status neo__tier_make_lines(neo__tier *tier, neo__tier_table *to,
                                       const neo__tier_table *old, const char *fn) {
    neo__carve count = {NULL, 0}, memory = {NULL, 0};
    neo__tier_table_layout(&count, to);
    to->bytes = count.at;
    to->memory = memory.block = (char *)neo__alloc_for(tier->ctx, count.at, fn);
    if (!memory.block) return NEO_ERR_MEMORY;
    memset(memory.block, 0, count.at);
    neo__tier_table_layout(&memory, to);
    if (!old) return NEO_OK;
    const int64_t most = old->sets * NEO__LINE_WAYS;
    const size_t lines = (size_t)(most + old->over);
    memcpy(to->map.tag, old->map.tag, (size_t)most);
    memcpy(to->map.key, old->map.key, lines * sizeof *to->map.key);
    memcpy(to->map.use, old->map.use, lines * sizeof *to->map.use);
    memcpy(to->dirty, old->dirty, lines);
    memcpy(to->written, old->written, (size_t)((to->rows + 63) / 64) * sizeof *to->written);
    if (old->needed) memcpy(to->needed, old->needed, lines * sizeof *to->needed);
    if (old->calls) memcpy(to->calls, old->calls, NEO__TIER_CALLS * sizeof *to->calls);
    for (int64_t i = 0; old->index && i < to->rows; i++) /* calls are in use */
        to->index[i] = (uint32_t)((uint64_t)(neo__tier_indexed(old, old->index[i]) + 1)
                                  << to->call_bits);
    for (int64_t i = 0; i < old->over; i++)
        if (to->map.use[most + i])
            to->over_at[neo__tier_over_place(to, (int64_t)to->map.key[most + i])] =
                (uint32_t)(i + 1);
    return NEO_OK;
}
static neo_status neo__tier_add_tables(neo__tier *tier, const neo_bags_desc *desc, const char *fn) {
    int64_t base = NEO__TIER_HEAD;
    uintptr_t address = NEO__TIER_ADDRESS;
    for (const neo_tier *other = tier->ctx->tiers; other; other = other->next)
        address = NEO__MAX(address, other->end);
    tier->base.begin = address;
    for (int32_t i = 0; i < desc->table_count; i++) {
        neo__tier_table *to = &tier->tables[i];
        to->record = neo__tier_parts(&desc->tables[i], to->part) + (int64_t)sizeof(uint32_t);
        neo__tier_plan(tier, desc, i, to);
        const int64_t lines = to->sets ? neo__tier_lines_of(to) : to->rows;
        NEO__CHECK(neo__tier_of(tier, i)->job.rows == lines, NEO_ERR_DEVICE,
                   "%s: table '%s': the device said what it takes, and then failed", fn,
                   desc->tables[i].name);
        to->first_row = i ? to[-1].first_row + to[-1].rows : 0;
        for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
            to->address[k] = address;
            address += (uintptr_t)(to->rows * to->part[k] + 63) / 64 * 64;
        }
        if (to->sets == 0) continue;
        to->base = base;
        base = (base + to->rows * to->record + 4095) / 4096 * 4096;
        NEO__TRY(neo__tier_make_lines(tier, to, NULL, fn));
        NEO__TRY(neo__tier_make_line_row(tier, to, NULL, fn));
        to->map.sets = to->map.all_sets = to->sets;
        to->map.evict = tier->desc.evict;
        to->map.period = tier->desc.period;
        tier->base.bags->tables[i].job.store.line_row = to->map.key;
        tier->base.bags->tables[i].line_row = to->line_row;
    }
    tier->base.end = address;
    if (!tier->desc.path && base > NEO__TIER_HEAD) {
        tier->host_bytes = (size_t)(base - NEO__TIER_HEAD);
        tier->host = (char *)neo__alloc_for(tier->ctx, tier->host_bytes, fn);
        if (!tier->host) return NEO_ERR_MEMORY;
    }
    return neo__bags_send_tables(tier->base.bags);
}
/* Slots, below a device. */
static neo_status neo__tier_make_slots(neo__tier *tier, const neo__tier_sizes *sizes,
                                       const char *fn) {
    neo__carve pinned = {NULL, 0}, device = {NULL, 0};
    neo__tier none = *tier;
    neo__tier_pinned_layout(sizes, &pinned, &none);
    neo__tier_device_layout(sizes, &device, &none);
    tier->pinned_bytes = pinned.at;
    tier->device_bytes = device.at;
    tier->pinned = pinned.block = (char *)neo__pinned_alloc(tier->ctx, pinned.at);
    tier->device = device.block = (char *)neo__data_alloc(tier->ctx, device.at);
    NEO__CHECK(tier->pinned && tier->device, NEO_ERR_MEMORY,
               "%s: no memory for %" PRId64 " rows on their way to a device", fn, sizes->slots);
    memset(tier->pinned, 0, pinned.at);
    pinned.at = device.at = 0;
    neo__tier_pinned_layout(sizes, &pinned, tier);
    neo__tier_device_layout(sizes, &device, tier);
    return NEO_OK;
}
static neo_status neo__tier_op_attach(neo_tier *base, neo_bags *bags, const neo_bags_desc *desc,
                                      const char *fn) {
    neo__tier *t = (neo__tier *)base;
    NEO__CHECK_LIVE(t, fn, "tier");
    NEO__CHECK(t->ctx == bags->ctx && !base->bags, NEO_ERR_ARG,
               "%s: tier '%s' is of another context, or another neo_bags has it", fn, t->path);
    size_t bytes = 0;
    NEO__TRY(neo__tier_op_bytes(base, t->ctx, desc, fn, &bytes));
    const neo__tier_sizes sizes = neo__tier_measure(t, t->ctx, desc);
    neo__carve count = {NULL, 0}, fixed = {NULL, 0};
    neo__tier none = *t;
    neo__tier_fixed_layout(&sizes, &count, &none);
    fixed.block = (char *)neo__alloc_for(t->ctx, count.at, fn);
    if (!fixed.block) return NEO_ERR_MEMORY;
    memset(fixed.block, 0, count.at);
    neo__tier_fixed_layout(&sizes, &fixed, t);
    for (uint32_t i = 0; i < neo__tier_seen_count(t); i++)
        t->seen[i].part = t->part + (i + 1) * (bags->sizes.features + 1);
    t->fixed = fixed.block;
    t->fixed_bytes = count.at;
    t->table_count = sizes.tables;
    t->record_bytes = sizes.record_bytes;
    t->room_bytes = sizes.room_bytes;
    t->ahead_capacity = sizes.ahead;
    t->ahead_bytes = sizes.ahead_bytes;
    neo__tier_make_room(t);
    t->slot_count = sizes.slots;
    t->slot_bytes = sizes.slot_bytes;
    base->bags = bags;
    bags->tier = base; /* from here on neo_bags_destroy detaches */
    base->next = t->ctx->tiers;
    NEO__TRY(neo__tier_work(t, sizes.capacity, sizes.bags, fn));
    if (neo__tier_on_device(t)) NEO__TRY(neo__tier_make_slots(t, &sizes, fn));
    NEO__TRY(neo__tier_add_tables(t, desc, fn));
    t->ctx->tiers = base;
    t->file.path = t->path;
    if (t->desc.path) {
        NEO__TRY(neo__tier_open(t));
        t->is_open = 1;
        NEO__TRY(neo__file_write_at(&t->file, 0, NEO__TIER_MARK, sizeof NEO__TIER_MARK));
    }
    t->caller.record = t->records + sizes.threads * t->room_bytes;
    if (t->desc.path && !t->desc.no_io_uring) neo__tier_ring_open(&t->caller.ring, 0);
    for (; t->thread_count < sizes.threads; t->thread_count++) {
        neo__tier_worker *w = &t->workers[t->thread_count];
        w->tier = t;
        w->record = t->records + t->thread_count * t->room_bytes;
        NEO__CHECK(neo__thread_create(&t->threads[t->thread_count], neo__tier_thread, w),
                   NEO_ERR_MEMORY, "%s: tier '%s': no thread", fn, t->path);
    }
    return NEO_OK;
}
static void neo__tier_op_init(neo_tier *base, int32_t table, const neo_init *init) {
    neo__tier *t = (neo__tier *)base;
    const neo__bag_table *bag = neo__tier_of(t, table);
    neo_tensor row = neo_tensor_2d(NULL, NEO_F32, 1, bag->dim);
    t->tables[table].init =
        neo__init_call_make(t->ctx, row, bag->weight_name, *init, 0, bag->dim);
    t->tables[table].init.count = t->tables[table].init.cols = bag->dim;
}
static neo_status neo__tier_op_reserve(neo_tier *base, const neo__bag_sizes *sizes) {
    neo__tier *t = (neo__tier *)base;
    const int64_t capacity = NEO__MAX(sizes->max_ids, neo__bags_kept_rows(sizes)),
                  bags = neo__tier_bags(sizes);
    if (capacity <= t->capacity && bags <= t->bag_capacity) return NEO_OK;
    neo__tier_enter(t);
    neo_status status = neo__tier_quiet(t, "neo_bags_reserve");
    if (status == NEO_OK)
        status = neo__tier_work(t, NEO__MAX(capacity, t->capacity), bags, "neo_bags_reserve");
    neo__tier_resume(t);
    neo__mutex_unlock(&t->walk);
    return status;
}
/* More overflow: a batch has that many ids of a table. */
static neo_status neo__tier_grow(neo__tier *tier, int64_t table, int64_t over, const char *fn) {
    neo_bags *bags = tier->base.bags;
    neo__tier_table *to = &tier->tables[table], grown;
    neo__job_table *job = &bags->tables[table].job;
    void *block[NEO__BAG_BLOCKS] = {NULL, NULL, NULL, NULL};
    NEO__TRY(neo__tier_quiet(tier, fn));
    if (neo__tier_is_lazy(to)) neo__tier_learn(to, to->rows, 0);
    grown = *to;
    grown.over = NEO__MIN(NEO__MAX(over, 2 * to->over), to->rows);
    const int64_t lines = neo__tier_lines_of(&grown), before = neo__tier_lines_of(to);
    neo_device *on = tier->ctx->on;
    neo_status status = neo__tier_make_lines(tier, &grown, to, fn);
    grown.line_row = NULL;
    if (status == NEO_OK) status = neo__tier_make_line_row(tier, &grown, to, fn);
    for (int k = 0; k < NEO__BAG_BLOCKS && status == NEO_OK; k++) {
        if (to->part[k] == 0) continue;
        block[k] = neo__data_alloc(tier->ctx, (size_t)(lines * to->part[k]));
        if (block[k])
            status = on->copy(on, block[k], NEO_DEVICE, neo__bag_memory(job, k), NEO_DEVICE,
                              (size_t)((before - 1) * to->part[k]));
        else status = neo_fail(NEO_ERR_MEMORY, "%s: no memory for %" PRId64 " lines", fn, lines);
    }
    for (int k = 0; k < NEO__BAG_BLOCKS; k++) {
        void *out = status == NEO_OK ? neo__bag_memory(job, k) : block[k];
        neo__data_free(tier->ctx, out, (size_t)((status == NEO_OK ? before : lines) * to->part[k]));
    }
    neo_free(tier->ctx, status == NEO_OK ? to->memory : grown.memory,
             status == NEO_OK ? to->bytes : grown.bytes);
    neo__data_free(tier->ctx, status == NEO_OK ? to->line_row : grown.line_row,
                   neo__tier_line_row_bytes(status == NEO_OK ? to : &grown));
    if (status != NEO_OK) return status;
    job->store.data = (char *)block[NEO__BAG_WEIGHTS];
    job->store.scale = (float *)block[NEO__BAG_SCALES];
    job->state[0] = (float *)block[NEO__BAG_STATE];
    job->state[1] = (float *)block[NEO__BAG_STATE + 1];
    job->store.line_row = grown.map.key;
    job->rows = lines;
    *to = grown;
    neo__bag_record_bits(&bags->tables[table], bags->sizes.max_batch,
                         NEO__MAX(bags->sizes.max_ids, bags->kept.capacity));
    tier->stats.grow_count++;
    bags->tables[table].line_row = grown.line_row;
    return neo__bags_send_tables(bags);
}

/* ---- stage ---- */
typedef struct neo__tier_call {
    neo__tier *t;
    int to_step, bring; /* bring: the second walk */
    int64_t missing;    /* atomic */
} neo__tier_call;
NEO__HOT_BEGIN
/* The rows of `count` ids of a feature, from its k-th on. */
static void neo__tier_rows_of(const neo__tier *tier, const neo__bag_feature *feature, int64_t k,
                              int64_t count, int64_t *to) {
    const neo_bags *bags = tier->base.bags;
    const neo__bag_table *table = &bags->tables[feature->job.table];
    k += feature->first_id;
    if (tier->is_i32)
        for (int64_t i = 0; i < count; i++) to[i] = ((const int32_t *)tier->ids)[k + i];
    else memcpy(to, (const int64_t *)tier->ids + k, (size_t)count * sizeof *to);
    for (int64_t i = 0; i < count && feature->bad; i++) {
        if (to[i] >= 0 && to[i] < table->rows) continue;
        to[i] = table->bounds == NEO_BOUNDS_CLAMP ? (to[i] < 0 ? 0 : table->rows - 1) : -1;
    }
}
/* How many ids of a table have a row and had none in the last call, or the batch's announcement, of
   which the others have what they had; -1: they have not, or lines have moved. */
static int64_t neo__tier_goes_on(const neo__tier *tier, int64_t table) {
    const neo_bags *b = tier->base.bags;
    const neo__bag_table *bag = &b->tables[table];
    const neo__tier_table *to = &tier->tables[table];
    int64_t row[NEO__TIER_FIND], fresh = 0, differ = b->job.tensor.out && !tier->is_seen;
    if (tier->is_seen && to->ahead < 2) differ |= to->moves != to->moves_then;
    for (int32_t q = 0; q < bag->feature_count && !differ; q++) {
        const neo__bag_feature *p = &b->view.features[bag->features[q]];
        const neo__tier_part *part = &tier->part[bag->features[q]];
        const int64_t *was = tier->row + part->begin, *ids = (const int64_t *)tier->ids;
        differ |= part[1].begin > tier->staged || part->begin != p->first_id - tier->first ||
                  part[1].begin != p[1].first_id - tier->first;
        if (differ) break;
        if (p->ids == 0) continue;
        if (!tier->is_i32 && !p->bad &&
            memcmp(ids + p->first_id, was, (size_t)p->ids * sizeof *was) == 0)
            continue;
        for (int64_t k = 0, n; k < p->ids && !differ; k += n, was += n) {
            n = NEO__MIN(p->ids - k, (int64_t)NEO__TIER_FIND);
            neo__tier_rows_of(tier, p, k, n, row);
            for (int64_t i = 0; i < n; i++) {
                fresh += (was[i] < 0) & (row[i] >= 0);
                differ |= (was[i] >= 0) & (row[i] != was[i]);
            }
        }
    }
    return differ ? -1 : fresh;
}
static void neo__tier_table_task(void *arg, int64_t table, int worker) {
    neo__tier_call *call = (neo__tier_call *)arg;
    const neo_bags *b = call->t->base.bags;
    const neo__bag_table *bag = &b->tables[table];
    neo__tier_table *to = &call->t->tables[table];
    const int64_t first = call->t->first;
    const int is_seen = call->t->is_seen;
    int64_t missing = 0, fresh = -1;
    (void)worker;
    if (!call->bring && to->sets) {
        fresh = neo__tier_goes_on(call->t, table);
        if (is_seen && fresh > 0) fresh = -1;
        to->now += fresh < 0 || is_seen;
        if (is_seen && to->calls)
            to->calls[call->t->begun % NEO__TIER_CALLS] = fresh < 0 ? 0 : (uint32_t)to->now;
    }
    for (int32_t q = 0; q < bag->feature_count; q++) {
        const neo__bag_feature *p = &b->view.features[bag->features[q]];
        int64_t *at = call->t->base.line + (p->first_id - first);
        int64_t *row = call->t->row + (p->first_id - first);
        if (p->ids == 0) continue;
        if (call->bring) {
            if (to->sets) neo__tier_give_rows(call->t, table, at, p->ids, call->to_step);
            continue;
        }
        if (fresh == 0 && !is_seen) {
            neo__tier_mark(to, at, p->ids, call->to_step);
            continue;
        }
        if (to->sets && b->job.tensor.out)
            to->lookups += p->ids - (bag->bounds == NEO_BOUNDS_DROP ? p->bad : 0);
        if (fresh == 0) { /* what LRU has found of a batch is known to be needed by it */
            if (!to->is_lru || call->t->part[bag->features[q]].bare)
                missing += neo__tier_find_since(to, at, p->ids);
            continue;
        }
        const int64_t *rows = at;
        if (neo__tier_on_device(call->t) || b->job.batch.is_i32 || p->bad || !to->sets)
            neo__tier_rows_of(call->t, p, 0, p->ids, at);
        else rows = (const int64_t *)b->job.batch.ids + p->first_id; /* as they are */
        missing += neo__tier_find_rows(call->t, table, rows, p->ids, at, row, call->to_step);
    }
    if (call->bring) neo__tier_hand_over(call->t, call->t->jobs + to->first_job, to->jobs);
    if (b->job.tensor.out && !call->bring) to->hits -= missing;
    __atomic_fetch_add(&call->missing, missing, __ATOMIC_RELAXED);
}
NEO__HOT_END
/* Table and row of a kept slot. */
static int32_t neo__tier_kept(const neo__tier *tier, int64_t i, int64_t *row) {
    const neo_bags *b = tier->base.bags;
    const int on_device = neo__tier_on_device(tier);
    const int32_t table =
        on_device ? neo__bags_table_of(b, tier->host_ids[i]) : b->kept.slots[i].table;
    *row = on_device ? tier->host_ids[i] - b->tables[table].job.first_key : b->kept.slots[i].row;
    return table;
}
/* Rows of kept slots, one after another; with jobs at the end, as tables take turns. */
static void neo__tier_kept_walk(neo__tier_call *call) {
    const neo_bags *b = call->t->base.bags;
    for (int64_t i = 0; i < b->kept.count; i++) {
        int64_t row, *at = call->t->base.line + i;
        const int32_t table = neo__tier_kept(call->t, i, &row);
        neo__tier_table *to = &call->t->tables[table];
        if (!call->bring) *at = row;
        if (!to->sets) continue;
        if (call->bring) neo__tier_give_rows(call->t, table, at, 1, call->to_step);
        else
            call->missing += neo__tier_find_rows(call->t, table, at, 1, at, &row, call->to_step);
    }
    for (int64_t i = 0; i < call->t->table_count && call->bring; i++)
        neo__tier_hand_over(call->t, call->t->jobs + call->t->tables[i].first_job,
                            call->t->tables[i].jobs);
}
/* Room for the ids of each table, and for their jobs. */
static neo_status neo__tier_begin(neo__tier *tier, int of_kept, const char *fn) {
    const neo_bags *b = tier->base.bags;
    int64_t first = 0;
    for (int64_t i = 0; i < tier->table_count; i++) tier->tables[i].jobs = 0;
    for (int64_t i = 0, row; of_kept && i < b->kept.count; i++)
        tier->tables[neo__tier_kept(tier, i, &row)].jobs++;
    for (int64_t i = 0; i < tier->table_count; i++) {
        neo__tier_table *to = &tier->tables[i];
        int64_t ids = to->jobs;
        for (int32_t q = 0; !of_kept && q < b->tables[i].feature_count; q++)
            ids += b->view.features[b->tables[i].features[q]].ids;
        to->jobs = 0;
        to->first_job = first;
        first += ids;
        if (!to->sets) continue;
        const int64_t half = neo__tier_known(to) / 2;
        if (neo__tier_is_lazy(to)) neo__tier_learn(to, to->rows / half + 1, half);
        if (to->now >= (int64_t)UINT32_MAX - 1) neo__tier_renumber(to);
        if (NEO__MIN(ids, to->rows) > to->over) NEO__TRY(neo__tier_grow(tier, i, ids, fn));
        to->now += of_kept;
    }
    return NEO_OK;
}
static neo_status neo__tier_bring(neo__tier *tier, const char *fn, int of_kept, int to_step) {
    neo__tier_call call = {tier, to_step, 0, 0};
    const neo_bags *b = tier->base.bags;
    const int64_t end = of_kept ? tier->first : b->view.features[b->sizes.features].first_id;
    const int64_t ns = 16 * (end - tier->first);
    NEO__TRY(neo__tier_usable(tier, fn));
    NEO__TRY(neo__tier_begin(tier, of_kept, fn));
    if (of_kept) neo__tier_kept_walk(&call);
    else neo__run_tasks(tier->ctx, tier->table_count, neo__tier_table_task, &call, ns);
    if (call.missing) {
        neo_status status = NEO_OK;
        neo__tier_settle(tier);
        for (int64_t i = 0; i < tier->table_count && status == NEO_OK; i++)
            status = neo__tier_release(tier, i);
        call.bring = 1;
        if (status == NEO_OK) status = neo__tier_begin_jobs(tier);
        if (status == NEO_OK && of_kept) neo__tier_kept_walk(&call);
        else if (status == NEO_OK)
            neo__run_tasks(tier->ctx, tier->table_count, neo__tier_table_task, &call, ns);
        if (status == NEO_OK) status = neo__tier_end_jobs(tier);
        if (status != NEO_OK) return neo_fail(status, "%s: %s", fn, tier->failure);
    }
    return NEO_OK;
}
/* Below a device: the batch on the host, and what a look on the processor finds of its features.
   The arrays may have changed since a device looked at a copy: no id leads beyond its table. */
static neo_status neo__tier_fetch_batch(neo__tier *tier, const char *fn) {
    neo_bags *b = tier->base.bags;
    const neo_jagged *j = &b->view.batch;
    const int64_t bags = b->job.batch.bags, *offsets = j->offsets;
    const size_t size = neo_dtype_size(j->id_dtype);
    if (bags && j->place == NEO_DEVICE) {
        NEO__TRY(neo__bags_fetch(b, tier->host_offsets, j->offsets,
                                 (size_t)(bags + 1) * sizeof *offsets));
        offsets = tier->host_offsets;
    }
    const int64_t first = bags ? offsets[0] : 0, count = bags ? offsets[bags] - first : 0;
    int64_t end = first;
    for (int64_t f = 0; f <= b->sizes.features; f++) {
        neo__bag_feature *p = &b->view.features[f];
        p->first_id = bags ? offsets[p->job.first_bag] : 0;
        NEO__CHECK(p->first_id >= end && p->first_id - first <= tier->capacity, NEO_ERR_FORMAT,
                   "%s: bags '%s': the batch's offsets have changed", fn, b->name);
        end = p->first_id;
        if (f > 0) p[-1].ids = p->first_id - p[-1].first_id;
        p->ids = p->bad = 0;
    }
    tier->first = first;
    tier->ids = j->ids;
    tier->is_i32 = j->id_dtype == NEO_I32;
    if (count && j->place == NEO_DEVICE) {
        NEO__TRY(neo__bags_fetch(b, tier->host_ids, (const char *)j->ids + (size_t)first * size,
                                 (size_t)count * size));
        tier->ids = (const void *)((uintptr_t)tier->host_ids - (uintptr_t)first * size);
    }
    for (int64_t f = 0; f < b->sizes.features; f++) {
        neo__bag_feature *p = &b->view.features[f];
        const int64_t rows = b->tables[p->job.table].rows;
        for (int64_t k = 0; k < p->ids; k++) {
            const int64_t id = neo__jagged_id(tier->ids, tier->is_i32, p->first_id + k);
            p->bad += id < 0 || id >= rows;
        }
    }
    return NEO_OK;
}
/* Below a device: send what its kernels get instead of ids, or of keys of kept slots. */
static neo_status neo__tier_send_lines(neo__tier *tier, int of_kept, int to_step) {
    neo_bags *b = tier->base.bags;
    const int64_t count = of_kept ? b->kept.count : tier->staged;
    const int64_t *from = tier->base.line;
    if (!of_kept && neo__bags_maps_here(b))
        return neo__bags_send_rows(b, from, tier->device_lines, !to_step);
    for (int64_t i = 0, row; of_kept && i < count; i++) {
        const int32_t table = neo__tier_kept(tier, i, &row);
        tier->host_ids[i] = b->tables[table].job.first_key + from[i];
    }
    if (of_kept) from = tier->host_ids;
    if (of_kept) b->job.kept.line_key = (const uint64_t *)(const void *)tier->device_lines;
    return neo__bags_send(b, tier->device_lines, from, (size_t)count * sizeof *from);
}
/* The call's ids, or keys of what is kept, on the host. */
static neo_status neo__tier_see_batch(neo__tier *tier, const char *fn, int of_kept) {
    const neo_bags *b = tier->base.bags;
    const neo__bags_job *job = &b->job;
    const int maps = neo__bags_maps_here(b) && !of_kept; /* the look has found its rows */
    if (neo__tier_on_device(tier) && !maps) {
        NEO__CHECK(!tier->ctx->on->recording, NEO_ERR_UNSUPPORTED,
                   "%s: bags '%s': a step that is recorded cannot bring rows to a device's cache",
                   fn, b->name);
        if (!of_kept) return neo__tier_fetch_batch(tier, fn);
        return neo__bags_fetch(b, tier->host_ids, job->kept.slot_key,
                               (size_t)b->kept.count * sizeof *tier->host_ids);
    }
    tier->first = of_kept ? 0 : b->view.features[0].first_id;
    tier->ids = job->batch.ids;
    if (maps) tier->ids = (const void *)((uintptr_t)b->work.rows - (size_t)tier->first * 8);
    tier->is_i32 = !maps && job->batch.is_i32;
    return NEO_OK;
}
/* An announced batch is looked up; those before it will not be. */
static void neo__tier_batch_begins(neo__tier *tier, const neo_jagged *batch) {
    for (uint32_t n = tier->begun; n != tier->told;) {
        const void *const *at = tier->announced[++n % NEO__TIER_MOST_AHEAD];
        if (at[0] != batch->offsets || at[1] != batch->ids) continue;
        tier->stats.dropped += n - tier->begun - 1;
        tier->begun = n;
        neo__tier_seen *seen = &tier->seen[n % neo__tier_seen_count(tier)];
        tier->is_seen = seen->batch == n && seen->count >= 0;
        if (!tier->is_seen) return;
        int64_t *line = tier->base.line, *row = tier->row;
        neo__tier_part *part = tier->part;
        tier->base.line = seen->line, tier->row = seen->row, tier->part = seen->part;
        tier->staged = seen->count;
        seen->line = line, seen->row = row, seen->part = part, seen->count = -1;
        return;
    }
}
static neo_status neo__tier_op_stage(neo_tier *base, const char *fn, int of_kept, int to_step) {
    neo__tier *t = (neo__tier *)base;
    neo_bags *b = base->bags;
    neo__tier_enter(t);
    t->is_seen = 0;
    if (!of_kept && b->job.tensor.out) neo__tier_batch_begins(t, &b->view.batch);
    neo_status status = neo__tier_see_batch(t, fn, of_kept);
    if (status == NEO_OK) status = neo__tier_bring(t, fn, of_kept, to_step);
    t->staged = 0;
    for (int64_t f = 0; f <= b->sizes.features && status == NEO_OK && !of_kept; f++)
        t->staged = t->part[f].begin = b->view.features[f].first_id - t->first;
    if (status == NEO_OK && neo__tier_on_device(t))
        status = neo__tier_send_lines(t, of_kept, to_step);
    neo__tier_resume(t);
    neo__mutex_unlock(&t->walk);
    if (status != NEO_OK || of_kept) return status;
    neo__bags_job *job = &b->job;
    const int64_t *lines = neo__tier_on_device(t) ? t->device_lines : base->line;
    const int64_t before = t->first - job->batch.id_base;
    job->batch.ids = (const void *)((uintptr_t)lines - (uintptr_t)before * sizeof(int64_t));
    job->batch.is_i32 = 0;
    job->batch.lines = 1;
    return NEO_OK;
}

/* ---- rows one by one, and runs of them ---- */
/* A row into a line or its slot, from the file or its first values. The record is the caller's. */
static neo_status neo__tier_load(neo__tier *tier, int64_t table, int64_t row, int64_t line,
                                 char *slot) {
    neo__tier_job job = {row, -1, line, -1, -1, table};
    return neo__tier_run_job(tier, &job, slot, tier->caller.record, 0);
}
/* Rows of a table one after another. Below a device as many at once as there are slots: of those
   that have lines, these come to the slots before, if `reads`, and go back after, if `writes`. */
typedef struct neo__tier_walker {
    int64_t table, row, left; /* the one at hand; others behind it */
    int reads, writes;
    int64_t line; /* -1: none */
    char *slot;   /* NULL: it is no device */
    int64_t at, slots;
} neo__tier_walker;
static neo__tier_walker neo__tier_walk_from(int64_t table, int64_t row, int64_t count, int reads,
                                            int writes) {
    const neo__tier_walker w = {table, row - 1, count, reads, writes, -1, NULL, -1, 0};
    return w;
}
/* The next row; 0: there is none, or its slots failed to move (*status). */
static int neo__tier_next(neo__tier *tier, neo__tier_walker *walk, neo_status *status) {
    const neo__tier_table *of = &tier->tables[walk->table];
    walk->row++;
    if (neo__tier_on_device(tier) && ++walk->at == walk->slots) {
        if (walk->slots && walk->writes) *status = neo__tier_move_slots(tier, walk->slots, 1);
        walk->at = 0;
        walk->slots = NEO__MIN(walk->left, tier->slot_count);
        for (int64_t i = 0; i < walk->slots; i++) {
            const int64_t row = walk->row + i;
            const neo__job_line item = {walk->table, neo__tier_find(of, row), row};
            tier->items[i] = item;
        }
        if (*status == NEO_OK && walk->reads) *status = neo__tier_move_slots(tier, walk->slots, 0);
    }
    if (walk->left == 0 || *status != NEO_OK) return 0;
    walk->left--;
    walk->line = neo__tier_find(of, walk->row);
    walk->slot = neo__tier_slot(tier, walk->at);
    return 1;
}
static neo_status neo__tier_one_row(neo__tier *tier, const neo__tier_walker *walk, float *to,
                                    const float *from) {
    const int64_t table = walk->table, row = walk->row;
    neo__tier_table *of = &tier->tables[table];
    const neo__bag_table *bag = neo__tier_of(tier, table);
    const size_t bytes = (size_t)bag->dim * sizeof(float);
    char *record = tier->caller.record;
    const int there = walk->line >= 0;
    const int64_t line = there ? walk->line : neo__tier_lines_of(of) - 1; /* the one to spare */
    if (!there) NEO__TRY(neo__tier_load(tier, table, row, line, walk->slot));
    neo__tier_row place;
    neo__tier_row_at(tier, table, line, walk->slot, &place);
    const neo__bag_rows *store = &place.rows;
    char *at = store->data + place.at * store->row_bytes;
    if (to && store->dtype == NEO_F32) memcpy(to, at, bytes);
    else if (to) tier->ctx->bag->decode(store, place.at, 0, bag->dim, to);
    if (to) return NEO_OK;
    if (store->dtype == NEO_F32) memcpy(at, from, bytes);
    else {
        memcpy(record, from, bytes);
        tier->ctx->bag->encode(store, place.at, (float *)(void *)record, NULL);
    }
    if (there) {
        of->dirty[line] = 1;
        return NEO_OK;
    }
    neo__tier_copy(tier, table, &place, record, NULL);
    neo__tier_seal(tier, table, row, record);
    return neo__tier_io(tier, table, row, 1, NULL, record);
}
static neo_status neo__tier_op_rows(neo_tier *base, int32_t table, int64_t first, int64_t count,
                                    float *to, const float *from) {
    neo__tier *t = (neo__tier *)base;
    const int64_t dim = neo__tier_of(t, table)->dim;
    neo__tier_enter(t); /* threads may read at the same time */
    neo_status status = neo__tier_usable(t, to ? "neo_bags_get_rows" : "neo_bags_set_rows");
    if (from) neo__tier_forget_all(t);
    if (status == NEO_OK) status = neo__tier_flush(t);
    const neo__fp_state fp = neo__fp_enter();
    neo__tier_walker w = neo__tier_walk_from(table, first, count, 1, from != NULL);
    while (status == NEO_OK && neo__tier_next(t, &w, &status)) {
        const int64_t at = (w.row - first) * dim;
        status = neo__tier_one_row(t, &w, to ? to + at : NULL, from ? from + at : NULL);
    }
    neo__fp_leave(fp);
    if (status != NEO_OK) (void)neo__tier_failed(t, status);
    neo__mutex_unlock(&t->walk);
    return status;
}
/* Bytes of a record before the part of a block. */
static int64_t neo__tier_skip(const neo__tier_table *to, int block) {
    int64_t skip = 0;
    for (int k = 0; k < block; k++) skip += to->part[k];
    return skip;
}
/* Records of `count` rows from `row` on into the block, as they are now. only: of first values
   this state alone is wanted, a block's number; below 0: all. */
static neo_status neo__tier_read_block(neo__tier *tier, int64_t table, int64_t row, int64_t count,
                                       int only) {
    neo__tier_table *of = &tier->tables[table];
    int64_t first = count, end = 0;
    for (int64_t i = 0; i < count; i++)
        if (neo__tier_is_written(of, row + i) && neo__tier_find(of, row + i) < 0)
            first = NEO__MIN(first, i), end = i + 1;
    if (first < end)
        NEO__TRY(neo__tier_io(tier, table, row + first, end - first,
                              tier->block + first * of->record, NULL));
    neo_status status = NEO_OK;
    neo__tier_walker w = neo__tier_walk_from(table, row, count, 1, 0);
    while (neo__tier_next(tier, &w, &status)) {
        char *record = tier->block + (w.row - row) * of->record;
        int64_t line = w.line;
        if (line < 0 && neo__tier_is_written(of, w.row)) {
            NEO__TRY(neo__tier_check(tier, table, w.row, record));
            continue;
        }
        if (line < 0 && only >= NEO__BAG_STATE) {
            const float value =
                neo__bag_first_state(neo__tier_of(tier, table), only - (int)NEO__BAG_STATE);
            record += neo__tier_skip(of, only);
            for (int64_t k = 0; k < of->part[only]; k += (int64_t)sizeof value)
                memcpy(record + k, &value, sizeof value);
            continue;
        }
        if (line < 0) {
            line = neo__tier_lines_of(of) - 1;
            NEO__TRY(neo__tier_load(tier, table, w.row, line, w.slot));
        }
        neo__tier_row place;
        neo__tier_row_at(tier, table, line, w.slot, &place);
        neo__tier_copy(tier, table, &place, record, NULL);
    }
    return status;
}
static neo_status neo__tier_write_block(neo__tier *tier, int64_t table, int64_t row,
                                        int64_t count) {
    neo_status status = NEO_OK;
    neo__tier_walker w = neo__tier_walk_from(table, row, count, 0, 1);
    while (neo__tier_next(tier, &w, &status)) {
        char *record = tier->block + (w.row - row) * tier->tables[table].record;
        neo__tier_row place;
        neo__tier_row_at(tier, table, w.line, w.slot, &place);
        if (w.line >= 0) neo__tier_copy(tier, table, &place, NULL, record);
        neo__tier_seal(tier, table, w.row, record);
    }
    NEO__TRY(status);
    return neo__tier_io(tier, table, row, count, NULL, tier->block);
}
static neo_status neo__tier_walk(neo__tier *tier, int64_t table, int block, int64_t at, char *to,
                                 const char *from, int64_t bytes) {
    neo__tier_table *of = &tier->tables[table];
    const int64_t part = of->part[block], most = NEO__MAX(NEO__TIER_BLOCK / of->record, 1);
    const int64_t skip = neo__tier_skip(of, block);
    for (int64_t count; bytes > 0;) {
        const int64_t row = at / part, last = (at + bytes + part - 1) / part;
        count = NEO__MIN(last - row, most);
        NEO__TRY(neo__tier_read_block(tier, table, row, count, to ? block : -1));
        for (int64_t i = 0, n; i < count; i++, at += n, bytes -= n) {
            char *record = tier->block + i * of->record + skip + at % part;
            n = NEO__MIN(part - at % part, bytes);
            if (to) memcpy(to, record, (size_t)n), to += n;
            else memcpy(record, from, (size_t)n), from += n;
        }
        if (!to) NEO__TRY(neo__tier_write_block(tier, table, row, count));
    }
    return NEO_OK;
}
static neo_status neo__tier_op_move(neo_tier *base, uintptr_t at, char *to, const char *from,
                                    size_t bytes) {
    neo__tier *t = (neo__tier *)base;
    int64_t table = t->table_count * NEO__BAG_BLOCKS - 1;
    while (t->tables[table / NEO__BAG_BLOCKS].address[table % NEO__BAG_BLOCKS] > at ||
           t->tables[table / NEO__BAG_BLOCKS].part[table % NEO__BAG_BLOCKS] == 0)
        table--;
    const int block = (int)(table % NEO__BAG_BLOCKS);
    table /= NEO__BAG_BLOCKS;
    neo__tier_enter(t);
    if (from) neo__tier_forget_all(t);
    neo_status status = neo__tier_usable(t, "rows of a tier");
    if (status == NEO_OK) status = neo__tier_flush(t);
    if (status == NEO_OK)
        status = neo__tier_walk(t, table, block, (int64_t)(at - t->tables[table].address[block]),
                                to, from, (int64_t)bytes);
    status = neo__tier_failed(t, status);
    neo__mutex_unlock(&t->walk);
    return status;
}
NEO__HOT_BEGIN
/* The rows of a batch's feature, as tier->row has them. */
static void neo__tier_note_rows(const neo__tier *tier, const neo_jagged *batch,
                                const neo__tier_part *part, int64_t *row) {
    const neo_bags *b = tier->base.bags;
    const neo__bag_keys *keys = &b->tables[part->table].keys;
    const int64_t first = batch->offsets[0] + part->begin, count = part[1].begin - part->begin,
                  rows = tier->tables[part->table].rows;
    if (count == 0) return;
    if (batch->id_dtype == NEO_I32)
        for (int64_t i = 0; i < count; i++) row[i] = ((const int32_t *)batch->ids)[first + i];
    else memcpy(row, (const int64_t *)batch->ids + first, (size_t)count * sizeof *row);
    for (int64_t i = 0, n; i < count && keys->desc.on; i += n) {
        uint64_t key[NEO__TIER_FIND];
        n = NEO__MIN(count - i, (int64_t)NEO__TIER_FIND);
        memcpy(key, row + i, (size_t)n * sizeof *key);
        (void)tier->ctx->bag->find(&keys->lines, key, n, neo__bags_now(b), 0, row + i);
    }
    if (keys->desc.on || !neo__any_outside(row, count, rows)) return;
    for (int64_t i = 0; i < count; i++)
        if ((uint64_t)row[i] >= (uint64_t)rows) row[i] = -1;
}
/* Numbers of announced batches have 32 bits: before they have no more, what is announced is
   dropped, lines learn the calls that they stand for, and they begin anew. */
static void neo__tier_renumber_batches(neo__tier *tier) {
    neo__tier_forget_all(tier);
    for (int64_t i = 0; i < tier->table_count; i++) {
        neo__tier_table *to = &tier->tables[i];
        const int64_t lines = to->sets * NEO__LINE_WAYS + to->over;
        for (int64_t line = 0; to->sets && to->calls && line < lines; line++)
            if ((uint32_t)*neo__tier_use(to, line))
                neo__tier_set_use(to, line, neo__tier_last_announced(to, *neo__tier_use(to, line)),
                                  0);
        if (to->needed) memset(to->needed, 0, (size_t)lines * sizeof *to->needed);
        if (to->calls) memset(to->calls, 0, NEO__TIER_CALLS * sizeof *to->calls);
    }
    tier->told = tier->begun = 0;
    neo__tier_resume(tier);
}
static neo_status neo__tier_op_prefetch(neo_tier *base, const neo_jagged *batch, const char *fn) {
    neo__tier *t = (neo__tier *)base;
    const int64_t bags = neo_jagged_bag_count(batch), count = bags ? neo_jagged_id_count(batch) : 0;
    if (t->ahead_capacity == 0) return NEO_OK;
    NEO__TRY(neo__tier_usable(t, fn));
    neo__tier_enter(t);
    if (t->told == UINT32_MAX) neo__tier_renumber_batches(t);
    if (t->told - t->begun == (uint32_t)t->desc.prefetch) t->begun++, t->stats.dropped++;
    t->told++;
    t->announced[t->told % NEO__TIER_MOST_AHEAD][0] = batch->offsets;
    t->announced[t->told % NEO__TIER_MOST_AHEAD][1] = batch->ids;
    neo__tier_seen *seen = &t->seen[t->told % neo__tier_seen_count(t)];
    seen->batch = t->told;
    seen->count = count <= t->capacity ? count : -1;
    for (int64_t f = 0; f <= base->bags->sizes.features && seen->count > 0; f++) {
        neo__tier_part *part = &seen->part[f];
        part->begin = batch->offsets[neo__jagged_first_bag(batch, f)] - batch->offsets[0];
        part->table = base->bags->view.features[f].job.table; /* of the last one: none */
        if (f) neo__tier_note_rows(t, batch, part - 1, seen->row + part[-1].begin);
    }
    neo__mutex_lock(&t->lock);
    t->unseen = 1;
    neo__cond_signal(&t->wake); /* one of those that wait: it looks for all that there is to do */
    neo__mutex_unlock(&t->lock);
    neo__mutex_unlock(&t->walk);
    return NEO_OK;
}
/* The row is as if it had never been written; what was read ahead is another key's. */
static int64_t neo__tier_op_renew(neo_tier *base, int32_t table, int64_t row) {
    neo__tier *t = (neo__tier *)base;
    neo__tier_table *to = &t->tables[table];
    neo__tier_enter(t);
    const int paused = t->paused;
    (void)neo__tier_flush(t); /* of a failure the next call tells */
    neo__tier_ahead *ahead = neo__tier_ahead_of(t, table, row);
    if (ahead) {
        neo__tier_settle(t);
        ahead->state = NEO__AHEAD_VOID;
        if (!paused) neo__tier_resume(t);
    }
    __atomic_fetch_and(&to->written[row / 64], ~(UINT64_C(1) << (row % 64)), __ATOMIC_RELAXED);
    const int64_t line = neo__tier_find(to, row);
    if (line >= 0) to->dirty[line] = 0;
    neo__mutex_unlock(&t->walk);
    return line;
}
NEO__HOT_END
static void *neo__tier_op_block(neo_tier *base, int32_t table, int block) {
    return (void *)((neo__tier *)base)->tables[table].address[block];
}
static const neo__tier_ops neo__tier_all_ops = {
    neo__tier_op_lines,   neo__tier_op_bytes, neo__tier_op_attach, neo__tier_op_detach,
    neo__tier_op_init,    neo__tier_op_reserve, neo__tier_op_stage, neo__tier_op_rows,
    neo__tier_op_block,   neo__tier_op_move,   neo__tier_op_prefetch, neo__tier_op_cached,
    neo__tier_op_renew};

/* ---- public calls ---- */
NEO_API neo_status neo_tier_create(neo_ctx *ctx, const neo_tier_desc *desc, neo_tier **out) {
    static const char *const fn = "neo_tier_create";
    NEO__CHECK(out, NEO_ERR_ARG, "%s: tier is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "%s: desc is NULL", fn);
    NEO__CHECK(desc->path ? desc->path[0] != 0 : ctx->device != NULL, NEO_ERR_ARG,
               "%s: path is %s", fn, desc->path ? "empty" : "NULL, on a context without a device");
    const struct {
        const char *name;
        int64_t is, least, most;
        const char *more;
    } fields[] = {{"memory_bytes", desc->memory_bytes, 1, INT64_MAX, ""},
                  {"evict", (int64_t)desc->evict, 0, NEO_EVICT_LFU, " (LRU, LFU)"},
                  {"period", desc->period, 0, desc->evict == NEO_EVICT_LFU ? INT64_MAX : 0,
                   desc->evict == NEO_EVICT_LFU ? "" : " with LRU"},
                  {"queue_depth", desc->queue_depth, 0, 256, ""},
                  {"prefetch", desc->prefetch, 0, NEO__TIER_MOST_AHEAD, ""},
                  {"ahead_rows", desc->ahead_rows, 0, desc->prefetch ? INT64_MAX : 0,
                   desc->prefetch ? "" : " without prefetch"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const int64_t least = fields[i].least, most = fields[i].most;
        char range[64];
        if (fields[i].is >= least && fields[i].is <= most) continue;
        if (most == INT64_MAX) snprintf(range, sizeof range, "below %" PRId64, least);
        else if (most == least) snprintf(range, sizeof range, "not %" PRId64, least);
        else snprintf(range, sizeof range, "not from %" PRId64 " to %" PRId64, least, most);
        return neo_fail(NEO_ERR_ARG, "%s: %s is %" PRId64 ", %s%s", fn, fields[i].name,
                        fields[i].is, range, fields[i].more);
    }
    NEO__CHECK(NEO__TIER_ADDRESS != 0, NEO_ERR_UNSUPPORTED, "%s: in an address space of 32 bits",
               fn);
    const char *path = desc->path ? desc->path : "host memory";
    const size_t length = strlen(path) + 1;
    neo__tier *t = (neo__tier *)neo__alloc_for(ctx, sizeof *t + length, fn);
    if (!t) return NEO_ERR_MEMORY;
    memset((void *)t, 0, sizeof *t);
    t->base.ops = &neo__tier_all_ops;
    t->ctx = ctx;
    t->desc = *desc;
    t->base.budget.given_bytes = t->base.budget.memory_bytes = desc->memory_bytes;
    t->base.budget.in_file = desc->path != NULL;
    t->base.budget.evict = desc->evict;
    t->path = (char *)(t + 1);
    memcpy(t->path, path, length);
    neo__mutex_init(&t->lock);
    neo__mutex_init(&t->writing);
    neo__mutex_init(&t->walk);
    neo__mutex_init(&t->handing);
    neo__cond_init(&t->wake);
    neo__cond_init(&t->done);
    neo__live_begin(ctx, &t->live, "tier", t->path);
    *out = &t->base;
    return NEO_OK;
}
NEO_API void neo_tier_destroy(neo_tier *tier) {
    neo__tier *t = (neo__tier *)tier;
    if (!t) return;
    if (tier->bags) { /* its threads wait on what would be destroyed */
        neo_log(t->ctx, NEO_LOG_WARNING, "neo_tier_destroy: '%s': neo_bags_destroy comes first",
                t->path);
        return;
    }
    neo__live_end(t->ctx, &t->live);
    neo__cond_destroy(&t->done);
    neo__cond_destroy(&t->wake);
    neo__mutex_destroy(&t->handing);
    neo__mutex_destroy(&t->walk);
    neo__mutex_destroy(&t->writing);
    neo__mutex_destroy(&t->lock);
    neo_free(t->ctx, t, sizeof *t + strlen(t->path) + 1);
}
NEO_API neo_tier_stats neo_tier_get_stats(const neo_tier *tier) {
    neo__tier *t = (neo__tier *)(uintptr_t)tier;
    neo__tier_enter(t);
    neo_tier_stats s = t->stats;
    neo__mutex_lock(&t->lock);
    s.pending = t->paused ? 0 : t->ahead_count - t->ahead_next + t->ahead_busy;
    neo__mutex_unlock(&t->lock);
    s.ahead_rows = t->ahead_capacity;
    s.memory_bytes = (int64_t)(t->fixed_bytes + t->work_bytes + t->host_bytes + t->pinned_bytes +
                               t->device_bytes + t->device_work_bytes);
    for (int64_t i = 0; i < t->table_count && t->tables; i++) {
        const neo__tier_table *to = &t->tables[i];
        s.lookups += to->lookups;
        s.hits += to->lookups + to->hits;
        s.evictions += to->evictions;
        s.overflow += to->overflow;
        s.line_count += to->sets ? neo__tier_lines_of(to) : 0;
        s.below_bytes += to->sets ? to->record * neo__tier_written(to) : 0;
        s.memory_bytes += (int64_t)to->bytes;
        if (to->line_row) s.memory_bytes += (int64_t)neo__tier_line_row_bytes(to);
        for (int k = 0; k < NEO__BAG_BLOCKS; k++)
            s.memory_bytes += (int64_t)neo__bag_block_bytes(&neo__tier_of(t, i)->job, k);
    }
    neo__mutex_unlock(&t->walk);
    return s;
}
NEO_API void neo_tier_reset_stats(neo_tier *tier) {
    neo__tier *t = (neo__tier *)tier;
    neo__tier_enter(t);
    memset(&t->stats, 0, sizeof t->stats);
    for (int64_t i = 0; i < t->table_count && t->tables; i++) {
        neo__tier_table *to = &t->tables[i];
        to->lookups = to->hits = to->evictions = to->overflow = 0;
    }
    neo__mutex_unlock(&t->walk);
}
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
