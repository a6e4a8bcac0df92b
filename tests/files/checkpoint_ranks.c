/* checkpoint_ranks.c: what many ranks save together, any number of ranks loads, bit for bit, or
   nobody does. Method: ranks are threads that meet at a barrier. Tensors of several dtypes are cut
   into random rectangles on W ranks, saved, and loaded under other random cuts on 1, 2, 3 and 8
   ranks and on one without parts; every element, what lies between the rows of a part, and the
   digest are compared. The same of chains of differential checkpoints, of tables whose rows change
   now and then, under a new cut from save to save; and of saves in the background, while all
   tensors change, by a disk that waits until they have. Every file damaged in many ways, every
   system call of a save made to fail on every rank, or to be the last before all ranks die, every
   allocation of a rank refused: all ranks then say the same, nothing changed, and the checkpoint
   before still loads. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#define NEO_STATIC /* as in private_files.c */
#define NEO_NO_SIMD
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a disk that fails ---- */
static __thread int64_t disk_calls, disk_fails_at; /* of this rank; 0: never */
static int disk_kills; /* the failing call is the last one of all ranks */
static int disk_dead;                              /* atomic */
static int disk_fails(void) {
    errno = ENOSPC;
    if (__atomic_load_n(&disk_dead, __ATOMIC_SEQ_CST)) return 1;
    if (++disk_calls != disk_fails_at) return 0;
    if (disk_kills) __atomic_store_n(&disk_dead, 1, __ATOMIC_SEQ_CST);
    return 1;
}
static int disk_waits; /* atomic: nothing is written until it is 0 */
static ssize_t disk_write(int fd, const void *data, size_t bytes) {
    while (__atomic_load_n(&disk_waits, __ATOMIC_SEQ_CST)) usleep(200);
    if (!disk_fails()) return write(fd, data, bytes);
    if (disk_calls == disk_fails_at && write(fd, data, bytes / 2) < 0) return -1; /* torn */
    errno = ENOSPC;
    return -1;
}
static ssize_t disk_pread(int fd, void *data, size_t bytes, off_t at) {
    return disk_fails() ? -1 : pread(fd, data, bytes, at);
}
static int disk_open(const char *path, int flags, ...) {
    if (flags & (O_CREAT | O_TRUNC) && disk_fails()) return -1;
    return open(path, flags, 0666);
}
/* Slow where it is real, and a process that dies loses nothing that it wrote. */
static int disk_fsync(int fd) { return disk_fails() || fd < 0 ? -1 : 0; }
static int disk_rename(const char *from, const char *to) {
    return disk_fails() ? -1 : rename(from, to);
}
static int disk_mkdir(const char *path, mode_t mode) {
    return disk_fails() ? -1 : mkdir(path, mode);
}
static int disk_unlink(const char *path) { return disk_fails() ? -1 : unlink(path); }
static int disk_rmdir(const char *path) { return disk_fails() ? -1 : rmdir(path); }

#define write disk_write
#define pread(fd, data, bytes, at) disk_pread(fd, data, bytes, at)
#define open(...) disk_open(__VA_ARGS__)
#define fsync(fd) disk_fsync(fd)
#define rename(from, to) disk_rename(from, to)
#define mkdir(path, mode) disk_mkdir(path, mode)
#define unlink(path) disk_unlink(path)
#define rmdir(path) disk_rmdir(path)
#include "neo_data.h"
#include "test.h"
#include "meter.h"
#undef write
#undef pread
#undef open
#undef fsync
#undef rename
#undef mkdir
#undef unlink
#undef rmdir
#include "common.h"

static void clear(void) {
    CHECK_OK(neo__tree_remove(root));
    CHECK_OK(neo__dir_make(root));
}
/* ---- ranks that meet ---- */
enum { MAX_RANKS = 8 };
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int size, arrived, turn;
    uint64_t *words[MAX_RANKS];
    int counts[MAX_RANKS]; /* -1: agree */
    neo_status status[MAX_RANKS];
    char text[MAX_RANKS][600];
    int64_t calls;
} meeting;
typedef struct seat {
    meeting *m;
    int rank;
} seat;
/* Ranks that make different calls, or do not come, would hang: the test ends instead. */
static void meet(meeting *m) {
    struct timespec end;
    pthread_mutex_lock(&m->lock);
    int turn = m->turn;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += TEST_PATIENCE_MS / 1000;
    if (++m->arrived == m->size) {
        m->arrived = 0;
        m->turn++;
        pthread_cond_broadcast(&m->wake);
    }
    while (m->turn == turn)
        if (pthread_cond_timedwait(&m->wake, &m->lock, &end) == ETIMEDOUT) {
            printf("FAILED: a rank did not come\n");
            _exit(1);
        }
    pthread_mutex_unlock(&m->lock);
}
static void same_call(const meeting *m) {
    for (int r = 1; r < m->size; r++)
        if (m->counts[r] != m->counts[0]) {
            printf("FAILED: rank %d calls %d, rank 0 %d\n", r, m->counts[r], m->counts[0]);
            _exit(1);
        }
}
static neo_status group_agree(void *user, neo_status mine) {
    const seat *s = (const seat *)user;
    meeting *m = s->m;
    m->status[s->rank] = mine;
    m->counts[s->rank] = -1;
    snprintf(m->text[s->rank], sizeof m->text[0], "%s", neo_last_error());
    meet(m);
    same_call(m);
    int low = 0;
    while (low < m->size - 1 && m->status[low] == NEO_OK) low++;
    neo_status status = m->status[low];
    if (status != NEO_OK) neo_fail(status, "%s", m->text[low]);
    if (s->rank == 0) m->calls++;
    meet(m);
    return status;
}
static neo_status group_sum(void *user, uint64_t *words, int count) {
    const seat *s = (const seat *)user;
    meeting *m = s->m;
    uint64_t *total = (uint64_t *)calloc((size_t)count + 1, sizeof *total);
    m->words[s->rank] = words;
    m->counts[s->rank] = count;
    meet(m);
    same_call(m);
    for (int r = 0; r < m->size; r++)
        for (int i = 0; i < count; i++) total[i] += m->words[r][i];
    if (s->rank == 0) m->calls++;
    meet(m);
    memcpy(words, total, (size_t)count * sizeof *words);
    free(total);
    return NEO_OK;
}

/* ---- tensors ---- */
typedef struct tensor {
    const char *name;
    neo_state_kind kind;
    neo_dtype dtype;
    int ndim;
    int64_t shape[3];
    int cut; /* held in parts */
} tensor;
static const tensor tensors[] = {
    {"bags.user.weight", NEO_STATE_WEIGHT, NEO_F32, 2, {97, 16, 0}, 1},
    {"bags.user.momentum1", NEO_STATE_OPTIMIZER, NEO_F32, 1, {97, 0, 0}, 1},
    {"bags.item.weight", NEO_STATE_WEIGHT, NEO_F16, 2, {40, 12, 0}, 1},
    {"bags.item.momentum1", NEO_STATE_OPTIMIZER, NEO_F32, 2, {40, 12, 0}, 1},
    {"bags.item \"\\ \xC3\xA9.last", NEO_STATE_OPTIMIZER, NEO_I64, 1, {33, 0, 0}, 1},
    {"bags.code.weight", NEO_STATE_WEIGHT, NEO_U8, 2, {50, 7, 0}, 1},
    {"bags.one.weight", NEO_STATE_WEIGHT, NEO_F32, 2, {1, 1, 0}, 1},
    {"reads", NEO_STATE_PROGRESS, NEO_I64, 2, {20, 3, 0}, 1},
    {"wide.weight", NEO_STATE_WEIGHT, NEO_F32, 2, {5, 3000, 0}, 1},
    {"top.0.weight", NEO_STATE_WEIGHT, NEO_F32, 2, {8, 5, 0}, 0},
    {"top.0.bias", NEO_STATE_WEIGHT, NEO_BF16, 1, {8, 0, 0}, 0},
    {"cube", NEO_STATE_OPTIMIZER, NEO_F32, 3, {2, 3, 4}, 0},
    {"none", NEO_STATE_OPTIMIZER, NEO_F32, 2, {0, 4, 0}, 0},
    {"optim.step", NEO_STATE_OPTIMIZER, NEO_I64, 1, {1, 0, 0}, 0},
    {"reader", NEO_STATE_PROGRESS, NEO_I64, 1, {8, 0, 0}, 0},
};
enum {
    TENSORS = sizeof tensors / sizeof tensors[0],
    TOP = 9,
    READER = 14,
    MAX_PIECES = 400,
    GAP = 0x5A
};
static int64_t rows_of(const tensor *t) { return t->shape[0]; }
static int64_t cols_of(const tensor *t) {
    int64_t cols = 1;
    for (int d = 1; d < t->ndim; d++) cols *= t->shape[d];
    return cols;
}
/* Above 1: checkpoints are differential, each chain-th full; then rows of the cut tensors change at
   some steps only. */
static int chain;
/* The step at which a row has changed for the last time. */
static int64_t changed_at(int t, int64_t row, int64_t step) {
    if (chain < 2 || !tensors[t].cut || step > 10000) return step;
    while (step > 0 && neo__mix64((uint64_t)(t * 1000 + row) * 77777 + (uint64_t)step) % 12) step--;
    return step;
}
/* Byte i of a tensor at a step. */
static unsigned char truth(int t, int64_t step, int64_t i) {
    return (unsigned char)(neo__mix64((uint64_t)i * 31 + (uint64_t)step * 1000003 +
                                      (uint64_t)t * 77777) >>
                           56);
}

/* A part that a rank holds; or, whole, what every rank has. */
typedef struct piece {
    int tensor, rank, whole;
    int64_t row, col, rows, cols, step; /* step: elements from row to row */
    unsigned char *data;
    size_t bytes;
    neo__row_marks marks;
    uint64_t bits[2]; /* of its rows */
} piece;
typedef struct world {
    int size;
    neo_ctx *ctx[MAX_RANKS];
    neo_state *state[MAX_RANKS];
    meeting m;
    seat seats[MAX_RANKS];
    neo_group groups[MAX_RANKS];
    piece pieces[MAX_PIECES];
    int piece_count;
    /* of the next operation */
    int op;
    neo_save_desc save;
    neo_load_desc load;
    const char *dirs[MAX_RANKS];           /* NULL: root */
    int64_t steps[MAX_RANKS],
        calls[MAX_RANKS]; /* save of this step there, if not 0; system calls made */
    int fail_rank;
    int64_t fail_at;
    neo_status status[MAX_RANKS];
    char text[MAX_RANKS][600];
    neo_difference difference[MAX_RANKS];
    int64_t loaded[MAX_RANKS];
    uint64_t digest[MAX_RANKS];
    neo_saving *saving[MAX_RANKS];
} world;
enum { SAVE, LOAD, DIGEST, BEGIN, POLL, WAIT };
/* 1: a save is a begin and a wait. */
static int behind;

static void add_piece(world *w, int t, int rank, int whole, int64_t row, int64_t col, int64_t rows,
                      int64_t cols) {
    if (w->piece_count == MAX_PIECES) {
        FAIL("too many pieces");
        return;
    }
    piece *p = &w->pieces[w->piece_count++];
    memset(p, 0, sizeof *p);
    p->tensor = t;
    p->rank = rank;
    p->whole = whole;
    p->row = row;
    p->col = col;
    p->rows = rows;
    p->cols = cols;
    p->step = cols + (whole || test_random() % 2 ? 0 : (int64_t)(test_random() % 5));
    p->bytes = (size_t)(rows * p->step) * neo_dtype_size(tensors[t].dtype);
    p->data = (unsigned char *)malloc(p->bytes + 1);
    memset(p->data, GAP, p->bytes + 1);
}
/* Into rectangles, each on any rank. Many tiny ones now and then. */
static void cut(world *w, int t, int64_t row, int64_t col, int64_t rows, int64_t cols, int depth) {
    int down = (int)(test_random() % 2);
    if (depth == 0 || test_random() % 4 == 0 || (rows < 2 && cols < 2)) {
        add_piece(w, t, (int)(test_random() % (uint32_t)w->size), 0, row, col, rows, cols);
        return;
    }
    if ((down && rows > 1) || cols < 2) {
        int64_t n = 1 + (int64_t)(test_random() % (uint32_t)(rows - 1));
        cut(w, t, row, col, n, cols, depth - 1);
        cut(w, t, row + n, col, rows - n, cols, depth - 1);
    } else {
        int64_t n = 1 + (int64_t)(test_random() % (uint32_t)(cols - 1));
        cut(w, t, row, col, rows, n, depth - 1);
        cut(w, t, row, col + n, rows, cols - n, depth - 1);
    }
}
static neo_tensor view(const piece *p) {
    const tensor *t = &tensors[p->tensor];
    if (p->whole) return neo_tensor_nd(p->data, t->dtype, t->ndim, t->shape);
    neo_tensor v = t->ndim == 1 ? neo_tensor_1d(p->data, t->dtype, p->rows)
                                : neo_tensor_2d(p->data, t->dtype, p->rows, p->cols);
    v.stride[0] = p->step;
    return v;
}
static neo_status add_to_state(world *w, const piece *p) {
    const tensor *t = &tensors[p->tensor];
    neo_part part = {t->shape[0], t->ndim == 1 ? 0 : t->shape[1], p->row, p->col, 0};
    neo_state *s = w->state[p->rank];
    if (chain > 1 && t->cut) neo__state_of_rows(s, (neo__row_marks *)(uintptr_t)&p->marks);
    neo_status status = p->whole ? neo_state_add(s, t->kind, t->name, view(p))
                                 : neo_state_add_part(s, t->kind, t->name, view(p), &part);
    neo__state_of_rows(s, NULL);
    return status;
}
/* States over the pieces as they are now. Odd ranks add in another order. */
static void make_states(world *w) {
    for (int r = 0; r < w->size; r++) {
        neo_state_destroy(w->state[r]);
        w->state[r] = NULL;
        CHECK_OK(neo_state_create(w->ctx[r], &w->state[r]));
        CHECK_OK(neo_state_define(w->state[r], "optimizer", "adagrad"));
        for (int i = 0; i < w->piece_count; i++) {
            piece *p = &w->pieces[r % 2 ? w->piece_count - 1 - i : i];
            p->marks.bits = p->bits;
            p->marks.rows = p->rows;
            if (p->rank == r) CHECK_OK(add_to_state(w, p));
        }
    }
}
static void world_begin(world *w, int size, const neo_allocator *allocator) {
    memset(w, 0, sizeof *w);
    w->size = w->m.size = size;
    pthread_mutex_init(&w->m.lock, NULL);
    pthread_cond_init(&w->m.wake, NULL);
    for (int r = 0; r < size; r++) {
        neo_ctx_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.threads = 1;
        if (allocator) desc.allocator = allocator[r];
        CHECK_OK(neo_ctx_create(&desc, &w->ctx[r]));
        w->seats[r].m = &w->m;
        w->seats[r].rank = r;
        w->groups[r].rank = r;
        w->groups[r].size = size;
        w->groups[r].agree = group_agree;
        w->groups[r].sum = group_sum;
        w->groups[r].user = &w->seats[r];
    }
}
/* depth 0: nothing is cut, but each tensor is on some rank; below 0: plain tensors, without parts.
   */
static void world_make(world *w, int size, int depth, const neo_allocator *allocator) {
    world_begin(w, size, allocator);
    for (int t = 0; t < TENSORS; t++) {
        if (tensors[t].cut && depth >= 0)
            cut(w, t, 0, 0, rows_of(&tensors[t]), cols_of(&tensors[t]), depth);
        else
            for (int r = 0; r < size; r++)
                add_piece(w, t, r, 1, 0, 0, rows_of(&tensors[t]), cols_of(&tensors[t]));
    }
    if (depth > 0) add_piece(w, 0, size - 1, 0, 3, 0, 0, 16); /* nothing, which is allowed */
    make_states(w);
}
static void world_free(world *w) {
    for (int r = 0; r < w->size; r++) {
        neo_state_destroy(w->state[r]);
        neo_ctx_destroy(w->ctx[r]);
    }
    for (int i = 0; i < w->piece_count; i++) free(w->pieces[i].data);
    pthread_mutex_destroy(&w->m.lock);
    pthread_cond_destroy(&w->m.wake);
}
static void world_fill(world *w, int64_t step) {
    for (int i = 0; i < w->piece_count; i++) {
        piece *p = &w->pieces[i];
        int64_t size = (int64_t)neo_dtype_size(tensors[p->tensor].dtype),
                cols = cols_of(&tensors[p->tensor]);
        for (int64_t r = 0; r < p->rows; r++) {
            const int64_t now = changed_at(p->tensor, p->row + r, step);
            for (int64_t b = 0; b < p->cols * size && p->marks.before; b++) {
                const int64_t at = ((p->row + r) * cols + p->col) * size + b;
                const uint64_t row = (uint64_t)r;
                if (p->data[r * p->step * size + b] == truth(p->tensor, now, at)) continue;
                p->marks.before(p->marks.user, &row, 1, 0, NULL);
                break;
            }
            for (int64_t b = 0; b < p->cols * size; b++) {
                const int64_t at = ((p->row + r) * cols + p->col) * size + b;
                unsigned char *to = &p->data[r * p->step * size + b], old = *to;
                if (truth(p->tensor, now, at) == old) continue; /* not written: another may read */
                *to = truth(p->tensor, now, at);
                if (!p->marks.before) p->bits[r / 64] |= UINT64_C(1) << r % 64;
            }
        }
    }
}
/* 1: every bit is that of world_fill(step), and between the rows nothing changed. */
static int world_is(const world *w, int64_t step) {
    for (int i = 0; i < w->piece_count; i++) {
        const piece *p = &w->pieces[i];
        int64_t size = (int64_t)neo_dtype_size(tensors[p->tensor].dtype),
                cols = cols_of(&tensors[p->tensor]);
        for (int64_t r = 0; r < p->rows; r++) {
            const int64_t now = changed_at(p->tensor, p->row + r, step);
            for (int64_t b = 0; b < p->step * size; b++) {
                unsigned char want =
                    b >= p->cols * size
                        ? GAP
                        : truth(p->tensor, now, ((p->row + r) * cols + p->col) * size + b);
                if (p->data[r * p->step * size + b] != want) return 0;
            }
        }
        if (p->data[p->bytes] != GAP) return 0;
    }
    return 1;
}

typedef struct rank_job {
    world *w;
    int rank;
} rank_job;
static void *run_rank(void *arg) {
    const rank_job *job = (const rank_job *)arg;
    world *w = job->w;
    int r = job->rank;
    neo_save_desc save = w->save;
    neo_load_desc load = w->load;
    save.dir = load.dir = w->dirs[r] ? w->dirs[r] : root;
    save.group = load.group = &w->groups[r];
    load.difference = &w->difference[r];
    save.full_every = chain;
    if (w->steps[r]) save.step = w->steps[r];
    disk_calls = 0;
    disk_fails_at = w->fail_at && r == w->fail_rank ? w->fail_at : 0;
    neo_save_desc none = {0};
    char dir[4096];
    const int op = w->op == SAVE && behind ? BEGIN : w->op;
    snprintf(dir, sizeof dir, "%s", save.dir);
    if (op == BEGIN) save.dir = dir; /* begin copies it */
    w->status[r] = op == BEGIN ? neo_save_begin(w->ctx[r], &save, w->state[r], &w->saving[r])
                   : op == POLL ? neo_save_poll(&w->saving[r])
                   : op == WAIT ? neo_save_wait(&w->saving[r])
                   : w->op == SAVE ? neo_save(w->ctx[r], &save, w->state[r])
                   : w->op == LOAD
                       ? neo_load(w->ctx[r], &load, w->state[r], &w->loaded[r])
                       : neo_state_digest_group(w->state[r], &w->groups[r], &w->digest[r]);
    save = none, memset(dir, 0, sizeof dir);
    if (w->op == SAVE && behind && w->status[r] == NEO_OK)
        w->status[r] = neo_save_wait(&w->saving[r]);
    snprintf(w->text[r], sizeof w->text[r], "%s", w->status[r] == NEO_OK ? "" : neo_last_error());
    w->calls[r] = disk_calls;
    disk_fails_at = 0;
    return NULL;
}
/* All ranks do it and say the same. */
static neo_status world_run(world *w, int op) {
    pthread_t threads[MAX_RANKS];
    rank_job jobs[MAX_RANKS];
    w->op = op;
    for (int r = 0; r < w->size; r++) {
        jobs[r].w = w;
        jobs[r].rank = r;
        if (pthread_create(&threads[r], NULL, run_rank, &jobs[r]) != 0) FAIL("no thread");
    }
    for (int r = 0; r < w->size; r++) pthread_join(threads[r], NULL);
    for (int r = 1; r < w->size; r++)
        if (w->status[r] != w->status[0] || strcmp(w->text[r], w->text[0]) != 0)
            FAIL("rank %d: %s: %s; rank 0: %s: %s", r, neo_status_string(w->status[r]), w->text[r],
                 neo_status_string(w->status[0]), w->text[0]);
    if (w->status[0] != NEO_OK) neo_fail(w->status[0], "%s", w->text[0]); /* for CHECK_ERR */
    return w->status[0];
}
static neo_status world_save(world *w, int64_t step) {
    w->save.step = step;
    world_fill(w, step);
    if (!behind) return world_run(w, SAVE);
    __atomic_store_n(&disk_waits, 1, __ATOMIC_SEQ_CST);
    neo_status status = world_run(w, BEGIN);
    if (status == NEO_OK) {
        CHECK_OK(world_run(w, POLL));
        for (int r = 0; r < w->size; r++) CHECK(w->saving[r]);
        world_fill(w, step + 1); /* before anything is written */
    }
    __atomic_store_n(&disk_waits, 0, __ATOMIC_SEQ_CST);
    return status == NEO_OK ? world_run(w, WAIT) : status;
}
/* The newest checkpoint (or the one of w->load.step) loads and is what was saved there. */
static int64_t loads(world *w) {
    world_fill(w, 424242);
    CHECK_OK(world_run(w, LOAD));
    for (int r = 1; r < w->size; r++) CHECK_INT(w->loaded[r], w->loaded[0]);
    if (w->status[0] == NEO_OK && !world_is(w, w->loaded[0]))
        FAIL("what was loaded is not what was saved at step %" PRId64, w->loaded[0]);
    return w->status[0] == NEO_OK ? w->loaded[0] : -1;
}

/* ---- tests ---- */
/* The highest bit of the exponent of one element shows: a NaN does not stay one. */
static void one_bit(world *w, uint64_t digest) {
    piece *p = &w->pieces[test_random() % (uint32_t)w->piece_count];
    if (p->rows * p->cols == 0 || tensors[p->tensor].kind == NEO_STATE_PROGRESS) return;
    p->data[neo_dtype_size(tensors[p->tensor].dtype) - 1] ^= 0x40;
    neo_status status = world_run(w, DIGEST);
    if (p->whole && w->size > 1)
        CHECK(status == NEO_ERR_MISMATCH && strstr(neo_last_error(), tensors[p->tensor].name));
    else CHECK(status == NEO_OK && w->digest[0] != digest);
}
static void any_plan_to_any_plan(void) {
    static const int sizes[] = {1, 2, 3, 8, 1};
    static world saver, loader, plain;
    clear();
    world_make(&plain, 1, -1, NULL);
    for (int64_t trial = 1; trial <= 30; trial++) {
        int depth = (int)(trial % 5), size = trial % 6 == 5 ? 1 : trial % 7 == 6 ? 8 : 4;
        world_make(&saver, size, depth, NULL);
        if (trial % 10 == 0) { /* from one rank without parts */
            world_free(&saver);
            world_make(&saver, 1, -1, NULL);
        }
        CHECK_OK(world_save(&saver, trial));
        world_fill(&plain, trial);
        CHECK_OK(world_run(&saver, DIGEST));
        for (int r = 0; r < saver.size; r++)
            CHECK(saver.digest[r] == neo_state_digest(plain.state[0]));
        for (int i = 0; i < 5; i++) {
            world_make(&loader, sizes[i], i == 4 ? -1 : (int)(test_random() % 6), NULL);
            CHECK_INT(loads(&loader), trial);
            CHECK_OK(world_run(&loader, DIGEST));
            for (int r = 0; r < loader.size; r++) CHECK(loader.digest[r] == saver.digest[0]);
            if (loader.size == 1) CHECK(neo_state_digest(loader.state[0]) == saver.digest[0]);
            if (trial % 3 == 0) one_bit(&loader, saver.digest[0]);
            world_free(&loader);
        }
        world_free(&saver);
    }
    world_free(&plain);
}

/* A chain is loaded, and gone on with, under one cut after the other; each checkpoint of it by
   itself, and exported. */
static void chains(void) {
    static const int sizes[] = {1, 2, 3, 8};
    static world w, loader;
    int full = 0, partly = 0;
    chain = 4;
    for (int trial = 0; trial < 3; trial++) {
        clear();
        for (int64_t step = 1; step <= 12; step++) {
            if (step % 3 == 1) { /* another run goes on */
                if (step > 1) world_free(&w);
                world_make(&w, sizes[test_random() % 4], (int)(test_random() % 6) - 1, NULL);
                w.save.keep = -1;
                if (step > 1) CHECK_INT(loads(&w), step - 1);
            }
            REQUIRE_OK(world_save(&w, step));
            world_make(&loader, sizes[test_random() % 4], (int)(test_random() % 6) - 1, NULL);
            CHECK_INT(loads(&loader), step);
            loader.load.step = 1 + (int64_t)test_random() % step;
            CHECK_INT(loads(&loader), loader.load.step);
            world_free(&loader);
            neo__ckpt_head head;
            char path[4096];
            snprintf(path, sizeof path, "%s/step-%012d", root, (int)step);
            CHECK_OK(neo__ckpt_peek(w.ctx[0], path, step, &head));
            CHECK_INT(head.depth, (step - 1) % 4);
            CHECK_INT(head.base_step, (step - 1) % 4 ? step - 1 : -1);
            full += head.base_step < 0;
            partly += head.base_step >= 0;
        }
        world_free(&w);
    }
    CHECK(full == 9 && partly == 27);
    chain = 0;
}
static void chains_behind(void) {
    behind = 1;
    chains();
    behind = 0;
}
/* Byte for byte what neo_save writes, with tracked tables and without; and rows that find no room
   for their copy, so that what changes them waits for the writer. */
static void behind_as_before(void) {
    static world w, twin;
    char command[8400], other[4096];
    snprintf(other, sizeof other, "%s", at(".behind"));
    snprintf(command, sizeof command, "diff -r '%s' '%s'", root, other);
    for (int trial = 0; trial < 8; trial++) {
        chain = trial % 2 ? 3 : 0;
        clear();
        CHECK_OK(neo__tree_remove(other));
        world_make(&w, 1 + trial % 4, trial - 1, NULL);
        world_begin(&twin, w.size, NULL);
        for (int i = 0; i < w.piece_count; i++) {
            const piece *p = &w.pieces[i];
            add_piece(&twin, p->tensor, p->rank, p->whole, p->row, p->col, p->rows, p->cols);
        }
        make_states(&twin);
        for (int r = 0; r < w.size; r++) twin.dirs[r] = other;
        w.save.keep = twin.save.keep = -1;
        for (int64_t step = 1; step <= 4; step++) {
            behind = 0;
            CHECK_OK(world_save(&w, step));
            if (trial < 6) {
                behind = 1;
                CHECK_OK(world_save(&twin, step));
                continue;
            }
            twin.save.step = step; /* room for one row of each table */
            twin.save.copy_bytes = 1;
            world_fill(&twin, step);
            CHECK_OK(world_run(&twin, BEGIN));
            world_fill(&twin, step + 1);
            for (; twin.saving[0] && !test_errors; usleep(500)) CHECK_OK(world_run(&twin, POLL));
            for (int r = 0; r < w.size; r++) CHECK(!twin.saving[r]);
        }
        if (system(command) != 0) FAIL("trial %d: not the same bytes", trial);
        world_free(&w);
        world_free(&twin);
    }
    CHECK_OK(neo__tree_remove(other));
    behind = chain = 0;
}
/* A disk that fails while training goes on: the next call says so, and no row is lost to the next
   checkpoint. What a save that is under way refuses. */
static void failing_behind(void) {
    static world w, reader;
    chain = 100;
    clear();
    world_make(&w, 3, 2, NULL);
    world_make(&reader, 2, 3, NULL);
    REQUIRE_OK(world_save(&w, 1));
    for (int64_t step = 2; step <= 16; step += 2) {
        const int fails = step % 4 == 0;
        w.save.step = step;
        world_fill(&w, step);
        __atomic_store_n(&disk_waits, 1, __ATOMIC_SEQ_CST);
        REQUIRE_OK(world_run(&w, BEGIN));
        world_fill(&w, step + 1);
        if (step == 2) {
            CHECK_ERR(world_run(&w, LOAD), NEO_ERR_STATE, "is under way: neo_save_wait");
            w.save.step = 3;
            CHECK_ERR(world_run(&w, SAVE), NEO_ERR_STATE, "is under way: neo_save_wait");
        }
        __atomic_store_n(&disk_dead, fails, __ATOMIC_SEQ_CST);
        __atomic_store_n(&disk_waits, 0, __ATOMIC_SEQ_CST);
        for (int r = 0; r < 3; r++)
            while (!__atomic_load_n(&w.saving[r]->done, __ATOMIC_SEQ_CST)) usleep(200);
        __atomic_store_n(&disk_dead, 0, __ATOMIC_SEQ_CST);
        w.save.step = step + 1;
        if (step % 8 == 4) /* a begin says it, and has begun nothing */
            CHECK_ERR(world_run(&w, BEGIN), NEO_ERR_IO, "rank 0: ");
        else if (fails) CHECK_ERR(world_run(&w, WAIT), NEO_ERR_IO, "rank 0: ");
        else CHECK_OK(world_run(&w, WAIT));
        for (int r = 0; r < 3; r++) CHECK(!w.saving[r]);
        CHECK_INT(count_ending(".partial"), 0);
        CHECK_INT(loads(&reader), fails ? step - 1 : step);
        CHECK_OK(world_run(&w, SAVE)); /* of the newest good one */
        neo__ckpt_head head;
        char path[4096];
        snprintf(path, sizeof path, "%s/step-%012d", root, (int)step + 1);
        CHECK_OK(neo__ckpt_peek(w.ctx[0], path, step + 1, &head));
        CHECK_INT(head.base_step, fails ? step - 1 : step);
        CHECK_INT(loads(&reader), step + 1);
    }
    world_free(&w);
    world_free(&reader);
    chain = 0;
}
/* Which checkpoints stay, and what a damaged, missing or replaced one does to those above it. */
static void bases(void) {
    static world w, reader;
    size_t size;
    chain = 4;
    clear();
    world_make(&w, 3, 2, NULL);
    world_make(&reader, 2, 3, NULL);
    w.save.keep = 1;
    for (int64_t step = 1; step <= 9; step++) { /* full: 1, 5, 9 */
        REQUIRE_OK(world_save(&w, step));
        CHECK_INT(loads(&reader), step);
        CHECK_INT(count_ending(""), 1 + (step - 1) % 4);
    }
    w.save.keep = 3; /* at 14 the newest three, 14, 13 (full), 12, and what 12 needs: 11, 10, 9 */
    for (int64_t step = 10; step <= 15; step++) {
        REQUIRE_OK(world_save(&w, step));
        CHECK_INT(count_ending(""), step < 15 ? step - 8 : 3);
    }
    reader.load.step = 11;
    CHECK_ERR(world_run(&reader, LOAD), NEO_ERR_NOT_FOUND, "step 11");
    reader.load.step = 0;
    world_fill(&reader, 424242);
    /* a bit of the base's */
    const char *path = at("/step-000000000013/model-00002-of-00003.safetensors");
    unsigned char *data = slurp(path, &size);
    data[size - 1] ^= 1;
    put(path, data, size);
    CHECK_ERR(world_run(&reader, LOAD), NEO_ERR_CORRUPT, "step-000000000013/model-00002-of-00003");
    CHECK(strstr(neo_last_error(), "before it, on which it may build, is of step 14") != NULL);
    data[size - 1] ^= 1;
    put(path, data, size);
    free(data);
    CHECK(world_is(&reader, 424242));
    CHECK_OK(neo__path_rename(at("/step-000000000014"), at("/elsewhere")));
    CHECK_ERR(world_run(&reader, LOAD), NEO_ERR_CORRUPT,
              "step-000000000015: what it builds on is gone, step 14");
    REQUIRE_OK(world_save(&w, 16)); /* and so it is full */
    CHECK_INT(loads(&reader), 16);
    /* another one of step 14 is not what 15 builds on */
    reader.save = w.save;
    REQUIRE_OK(world_save(&reader, 14));
    reader.load.step = 15;
    CHECK_ERR(world_run(&reader, LOAD), NEO_ERR_CORRUPT, "is another checkpoint of step 14");
    world_free(&w);
    world_free(&reader);
    /* a replaced one takes those above it along */
    clear();
    world_make(&w, 2, 2, NULL);
    world_make(&reader, 2, 3, NULL);
    w.save.keep = -1;
    for (int64_t step = 1; step <= 6; step++) REQUIRE_OK(world_save(&w, step)); /* full: 1, 5 */
    w.load.step = 1;
    CHECK_INT(loads(&w), 1);
    REQUIRE_OK(world_save(&w, 2));
    CHECK_INT(count_ending(""), 4); /* 1, 2, 5, 6 */
    for (int64_t step = 1; step <= 6; step++) {
        reader.load.step = step;
        if (step != 3 && step != 4) CHECK_INT(loads(&reader), step);
    }
    world_free(&w);
    world_free(&reader);
    chain = 0;
}

/* The files of four ranks by name and content. */
static void files(void) {
    static world w;
    clear();
    world_make(&w, 4, 0, NULL);
    for (int i = 0; i < w.piece_count;
         i++) { /* the user table in two parts: on rank 1, and on rank 3 */
        piece *p = &w.pieces[i];
        if (p->tensor == 0) {
            p->rank = 1;
            p->rows = 60;
        } else if (tensors[p->tensor].cut) {
            p->rank = 2;
        }
    }
    add_piece(&w, 0, 3, 0, 60, 0, 37, 16);
    make_states(&w);
    REQUIRE_OK(world_save(&w, 7));
    neo_safetensors *file = NULL;
    REQUIRE_OK(neo_safetensors_open(
        w.ctx[0], at("/step-000000000007/model-00004-of-00004.safetensors"), &file));
    CHECK_INT(neo_safetensors_count(file), 1);
    CHECK(neo_safetensors_find(file, "bags.user.weight[60:97,0:16]") == 0);
    const char *place = neo_safetensors_metadata(file, "bags.user.weight[60:97,0:16]");
    CHECK(place && strcmp(place, "[60,0] of [97,16] bags.user.weight") == 0);
    CHECK(strcmp(neo_safetensors_metadata(file, "step"), "7") == 0);
    CHECK(strcmp(neo_safetensors_metadata(file, "writer"), "neo") == 0);
    neo_safetensors_close(file);
    REQUIRE_OK(neo_safetensors_open(
        w.ctx[0], at("/step-000000000007/model-00001-of-00004.safetensors"), &file));
    CHECK_INT(neo_safetensors_count(file), 2);
    CHECK(neo_safetensors_find(file, "top.0.weight") >= 0 &&
          neo_safetensors_find(file, "top.0.bias") >= 0);
    neo_safetensors_close(file);
    REQUIRE_OK(neo_safetensors_open(
        w.ctx[0], at("/step-000000000007/state-00003-of-00004.safetensors"), &file));
    CHECK(neo_safetensors_find(file, "bags.user.momentum1") >=
          0); /* the whole of it: its plain name */
    neo_safetensors_close(file);
    static char index[4000];
    FILE *f = fopen(at("/step-000000000007/model.safetensors.index.json"), "rb");
    size_t n = f ? fread(index, 1, sizeof index - 1, f) : 0;
    if (f) fclose(f);
    index[n] = 0;
    CHECK(strstr(index, "\"bags.user.weight[60:97,0:16]\": \"model-00004-of-00004.safetensors\""));
    CHECK(strstr(index, "\"bags.user.weight[0:60,0:16]\": \"model-00002-of-00004.safetensors\""));
    CHECK(strstr(index, "\"top.0.bias\": \"model-00001-of-00004.safetensors\""));
    char total[64]; /* f32 97x16 + f16 40x12 + u8 50x7 + f32 1 + f32 5x3000 + f32 8x5 + bf16 8 */
    snprintf(total, sizeof total, "\"total_size\": %d\n",
             97 * 64 + 960 + 350 + 4 + 60000 + 160 + 16);
    CHECK(strstr(index, total));
    CHECK_INT(count_ending(""), 1);
    /* evaluation: the optimizer's files may be gone */
    for (int k = 1; k <= 4; k++) {
        char name[80];
        snprintf(name, sizeof name, "/step-000000000007/state-%05d-of-00004.safetensors", k);
        CHECK(remove(at(name)) == 0);
    }
    static world eval;
    world_make(&eval, 3, 3, NULL);
    world_fill(&eval, 1);
    eval.load.weights_only = 1;
    CHECK_OK(world_run(&eval, LOAD));
    for (int i = 0; i < eval.piece_count; i++) {
        const piece *p = &eval.pieces[i];
        const tensor *t = &tensors[p->tensor];
        int64_t first = (p->row * cols_of(t) + p->col) * (int64_t)neo_dtype_size(t->dtype);
        if (p->bytes > 0)
            CHECK_INT(p->data[0], truth(p->tensor, t->kind == NEO_STATE_WEIGHT ? 7 : 1, first));
    }
    eval.load.weights_only = 0;
    CHECK_ERR(world_run(&eval, LOAD), NEO_ERR_CORRUPT, "rank 0: ");
    CHECK_ERR(world_run(&eval, LOAD), NEO_ERR_CORRUPT, "state-00001-of-00004.safetensors: missing");
    world_free(&eval);
    world_free(&w);
}

/* neo_export: whole tensors under their names, in one file that does without neo; of weights
   alone, or with state. */
static void exported(void) {
    for (int with_state = 0; with_state < 2; with_state++) {
        static world w;
        neo_safetensors *file = NULL;
        int expected = 0;
        clear();
        world_make(&w, 4, 3, NULL);
        world_fill(&w, 9);
        REQUIRE_OK(world_save(&w, 9));
        char path[4096];
        snprintf(path, sizeof path, "%s/whole.safetensors", root);
        neo_export_desc desc = {root, 0, path, with_state};
        REQUIRE_OK(neo_export(w.ctx[0], &desc));
        REQUIRE_OK(neo_safetensors_open(w.ctx[0], path, &file));
        for (int t = 0; t < TENSORS; t++) {
            const tensor *tensor = &tensors[t];
            int index = neo_safetensors_find(file, tensor->name);
            int there = with_state || tensor->kind == NEO_STATE_WEIGHT;
            expected += there;
            CHECK((index >= 0) == there);
            static unsigned char bytes[1 << 16];
            neo_tensor all = neo_tensor_nd(bytes, tensor->dtype, tensor->ndim, tensor->shape);
            size_t size =
                (size_t)(rows_of(tensor) * cols_of(tensor)) * neo_dtype_size(tensor->dtype);
            if (index < 0 || size > sizeof bytes) continue;
            CHECK_OK(neo_safetensors_read(file, index, all));
            for (size_t i = 0; i < size; i++)
                if (bytes[i] != truth(t, 9, (int64_t)i)) {
                    FAIL("%s: byte %zu", tensor->name, i);
                    break;
                }
        }
        CHECK_INT(neo_safetensors_count(file), expected);
        neo_safetensors_close(file);
        /* a damaged checkpoint is refused, and the file of before stays */
        FILE *f = fopen(at("/step-000000000009/model-00002-of-00004.safetensors"), "r+b");
        if (f && fseek(f, -1, SEEK_END) == 0 && fputc('x', f) != 'x') FAIL("fputc");
        if (f) fclose(f);
        CHECK_ERR(neo_export(w.ctx[0], &desc), NEO_ERR_CORRUPT, "model-00002-of-00004");
        CHECK_OK(neo_safetensors_open(w.ctx[0], path, &file));
        neo_safetensors_close(file);
        char inside[4300];
        snprintf(inside, sizeof inside, "%s/step-000000000009/manifest.json", root);
        desc.path = inside;
        CHECK_ERR(neo_export(w.ctx[0], &desc), NEO_ERR_ARG, "into the checkpoint");
        desc.path = path;
        desc.step = 3;
        CHECK_ERR(neo_export(w.ctx[0], &desc), NEO_ERR_NOT_FOUND, "step 3");
        desc.path = NULL;
        CHECK_ERR(neo_export(w.ctx[0], &desc), NEO_ERR_ARG, "desc.path");
        world_free(&w);
    }
}
static void refused(world *w, const char *name, const char *how, size_t place) {
    neo_status status = world_run(w, LOAD);
    if (status != NEO_ERR_CORRUPT || !strstr(neo_last_error(), name))
        FAIL("%s: %s %zu: %s: %s", name, how, place, neo_status_string(status), neo_last_error());
}
static void damaged_files(void) {
    static world saver, w;
    int flips = 0;
    clear();
    world_make(&saver, 4, 3, NULL);
    REQUIRE_OK(world_save(&saver, 3));
    REQUIRE_OK(world_save(&saver, 4));
    world_make(&w, 3, 3, NULL);
    world_fill(&w, 1);
    for (int k = 0; k < 10; k++) {
        char name[80];
        snprintf(name, sizeof name, "%s-%05d-of-00004.safetensors", k < 4 ? "model" : "state",
                 k % 4 + 1);
        if (k >= 8)
            snprintf(name, sizeof name, "%s",
                     k == 8 ? "model.safetensors.index.json" : "manifest.json");
        char path[4096];
        size_t size = 0;
        snprintf(path, sizeof path, "%s/step-000000000004/%s", root, name);
        unsigned char *data = slurp(path, &size);
        REQUIRE(size > 50 && size < 1 << 20);
        for (size_t n = 0; n < size; n = n < 4 ? n + 1 : n * 3) {
            put(path, data, n);
            refused(&w, name, "cut to", n);
        }
        put(path, data, size - 1);
        refused(&w, name, "cut to", size - 1);
        data[size] = '\n';
        put(path, data, size + 1);
        refused(&w, name, "longer", size + 1);
        for (size_t i = 0; i < size; i += 1 + test_random() % (size / 24), flips++) {
            unsigned char bit = (unsigned char)(1u << test_random() % 8);
            data[i] ^= bit;
            put(path, data, size);
            refused(&w, name, "a bit at", i);
            data[i] ^= bit;
        }
        CHECK(remove(path) == 0);
        if (k < 9) {
            refused(&w, name, "missing", 0);
            CHECK(strstr(neo_last_error(), "missing"));
            CHECK(strstr(neo_last_error(), "the checkpoint before it is of step 3"));
        } else {
            CHECK_INT(loads(&w), 3);
            world_fill(&w, 1);
        }
        put(path, data, size);
        free(data);
    }
    CHECK(world_is(&w, 1) && flips > 200);
    CHECK_INT(loads(&w), 4);
    world_free(&saver);
    world_free(&w);
}

/* Only ranks 0 and 2 of 4 fail, one at each call: with NEO_FULL all at all. One call in three where
   races are looked for. */
static int half_of_ranks(void) { return TEST_WATCHED || chain || test_grid() == 0; }
#define EVERY_CALL (TEST_WATCHED == 2 ? 3 : test_grid() == 0 ? 2 : 1)
/* ---- failures at every step of a save ---- */
static void failing_disk(void) {
    static world w, reader;
    const int modes = chain ? 2 : 4;
    int failed = 0, late = 0, killed = 0, after = 0;
    world_make(&w, 4, 2, NULL);
    world_make(&reader, 2, 2, NULL);
    for (int mode = 0; mode < modes; mode++) { /* fails or kills; a new step or one that is there */
        for (int rank = 0; rank < 4; rank++) {
            if (half_of_ranks() && rank % 2) continue;
            for (int64_t n = 1 + (mode + rank / 2) % EVERY_CALL;; n += EVERY_CALL) {
                int64_t step = mode / 2 ? 1 : 2;
                clear();
                w.fail_at = 0;
                disk_kills = mode % 2;
                REQUIRE_OK(world_save(&w, 1));
                w.fail_rank = rank;
                w.fail_at = n;
                w.save.step = step;
                world_fill(&w, mode / 2 ? 1 : 2); /* a replaced one has the same content */
                neo_status status = world_run(&w, SAVE);
                int reached = w.calls[rank] >= n, died = disk_dead;
                w.fail_at = 0;
                __atomic_store_n(&disk_dead, 0, __ATOMIC_SEQ_CST);
                if (!reached) {
                    CHECK(status == NEO_OK && n > 5);
                    break;
                }
                int64_t newest = loads(&reader);
                if (newest != step && newest != 1)
                    FAIL("mode %d, rank %d, call %d", mode, rank, (int)n);
                if (status == NEO_OK) CHECK(newest == step);
                else if (status != NEO_ERR_IO)
                    FAIL("%s: %s", neo_status_string(status), neo_last_error());
                if (status != NEO_OK && !died && step == 2) {
                    failed++;
                    late += newest == 2; /* in place already: the directory could not be flushed */
                    CHECK_INT(count_ending(".partial"), 0);
                }
                killed += died;
                after += died && newest == 2;
                CHECK_OK(world_save(&w, 9)); /* and it goes on, leaving no rest */
                CHECK_INT(loads(&reader), 9);
                CHECK_INT(count_ending(".partial") + count_ending(".old"), 0);
            }
        }
    }
    CHECK(EVERY_CALL * failed > 35 >> half_of_ranks() &&
          EVERY_CALL * killed > 20 * modes >> half_of_ranks());
    CHECK(EVERY_CALL > 1 || (late == 1 && after > 0));
    if (getenv("TEST_VERBOSE"))
        printf("  %d failures, %d after the rename; %d deaths, %d with the new one in place\n",
               failed, late, killed, after);
    disk_kills = 0;
    world_free(&w);
    world_free(&reader);
}

static void failing_disk_of_chains(void) {
    chain = 3;
    failing_disk();
    chain = 0;
}

/* Every read of a load fails on every rank. Nothing changed, but for failures behind all checks. */
static void failing_reads(void) {
    static world w;
    int whole = 0, half = 0;
    clear();
    world_make(&w, 3, 2, NULL);
    REQUIRE_OK(world_save(&w, 1));
    for (int rank = 0; rank < 3; rank++) {
        w.fail_rank = rank;
        for (w.fail_at = 1;; w.fail_at++) {
            world_fill(&w, 77);
            neo_status status = world_run(&w, LOAD);
            if (w.calls[rank] < w.fail_at) {
                CHECK(status == NEO_OK && world_is(&w, 1));
                break;
            }
            char who[32];
            snprintf(who, sizeof who, "rank %d: ", rank);
            if (status != NEO_ERR_IO || strncmp(neo_last_error(), who, strlen(who)) != 0)
                FAIL("%s: %s", neo_status_string(status), neo_last_error());
            int same = world_is(&w, 77);
            whole += same;
            half += !same;
        }
    }
    CHECK(whole > 30 && half > 10);
    w.fail_at = 0;
    CHECK_INT(loads(&w), 1);
    world_free(&w);
}

/* A process of four ranks killed at random moments, and in the middle of files. */
static void save_forever(int64_t first) {
    static world w;
    world_make(&w, 4, 3, NULL);
    for (int64_t step = first;; step++)
        for (int i = 0; i < 2 - (chain > 0); i++)
            if (world_save(&w, step) != NEO_OK) _exit(4);
}
static void killed_process(void) {
    static world w, reader;
    int64_t newest = 1;
    int midway = 0;
    clear();
    world_make(&w, 4, 3, NULL);
    world_make(&reader, 3, 3, NULL);
    REQUIRE_OK(world_save(&w, 1));
    for (int trial = 0; trial < (chain ? 16 : 40); trial++) {
        fflush(stdout);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) save_forever(newest);
        kill_saving(child, trial % 4 == 0, 3000000 + test_random() % 20000000);
        midway += count_ending(".partial") > 0;
        int64_t step = loads(&reader);
        CHECK(step >= newest);
        newest = step;
    }
    CHECK(midway >= (chain ? 4 : 10));
    CHECK_OK(world_save(&w, newest + 1));
    /* The newest two and, of a chain, what the older needs: it may be the last delta. */
    CHECK(chain ? count_ending("") <= 1 + chain : count_ending("") == 2);
    world_free(&w);
    world_free(&reader);
}
static void killed_process_of_chains(void) {
    for (behind = 0; behind < 2; behind++) {
        chain = 5;
        killed_process();
    }
    chain = behind = 0;
}

/* Every allocation of every rank is refused once. */
static void refused_memory(void) {
    static world w;
    static meter meters[4];
    neo_allocator allocators[4];
    int64_t live[4];
    int refusals = 0;
    int64_t newest = 1;
    clear();
    for (int r = 0; r < 4; r++) {
        memset(&meters[r], 0, sizeof meters[r]);
        meters[r].refuse_at = -1;
        allocators[r].alloc = meter_alloc;
        allocators[r].free = meter_free;
        allocators[r].user = &meters[r];
    }
    world_make(&w, 4, 2, allocators);
    REQUIRE_OK(world_save(&w, 1));
    for (int r = 0; r < 4; r++) live[r] = meters[r].live;
    for (int op = SAVE; op <= DIGEST; op++) {
        for (int rank = 0; rank < 4; rank++) {
            if (half_of_ranks() && rank % 2) continue;
            for (int64_t n = rank / 2 % EVERY_CALL;; n += EVERY_CALL) {
                w.save.step = newest + 1;
                world_fill(&w, op == LOAD ? 77 : newest + 1);
                meters[rank].refuse_at = meters[rank].calls + n;
                int64_t refused_before = meters[rank].refused;
                neo_status status = world_run(&w, op);
                int reached = meters[rank].refused > refused_before;
                meters[rank].refuse_at = -1;
                for (int r = 0; r < 4; r++) CHECK_INT(meters[r].live, live[r]);
                if (!reached) {
                    CHECK(status == NEO_OK);
                    newest += op == SAVE;
                    break;
                }
                refusals++;
                if (status != NEO_ERR_MEMORY)
                    FAIL("%s: %s", neo_status_string(status), neo_last_error());
                if (op == LOAD) CHECK(world_is(&w, 77));
                if (op == SAVE) CHECK_INT(loads(&w), newest);
            }
        }
    }
    CHECK(EVERY_CALL * refusals > 40);
    world_free(&w);
    for (int r = 0; r < 4; r++) CHECK(meters[r].live == 0 && meters[r].wrong == 0);
}

static void refused_memory_of_chains(void) {
    for (behind = 0; behind < 2; behind++) {
        chain = 1000;
        refused_memory();
    }
    chain = behind = 0;
}

/* ---- memory ---- */
static void memory(void) {
    enum { ROWS = 1 << 17, COLS = 24, BOUND = 64 << 10 };
    static world w;
    size_t bytes = (size_t)ROWS * COLS * 4, most = 0;
    float *table = (float *)malloc(bytes), *back = (float *)calloc(1, bytes);
    REQUIRE(table && back);
    for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++) table[i] = (float)i;
    clear();
    for (int load = 0; load < 2; load++) { /* saved by columns on 3 ranks, loaded by rows on 2 */
        int size = load ? 2 : 3;
        world_begin(&w, size, NULL);
        for (int r = 0; r < size; r++) {
            neo_part part = {ROWS, COLS, load ? r * (ROWS / 2) : 0, load ? 0 : r * 8, 0};
            neo_tensor t = neo_tensor_2d(load ? back : table, NEO_F32, ROWS, COLS);
            t = load ? neo_tensor_rows(t, part.first_row, ROWS / 2)
                     : neo_tensor_slice(t, 1, part.first_col, 8);
            CHECK_OK(neo_state_create(w.ctx[r], &w.state[r]));
            CHECK_OK(neo_state_add_part(w.state[r], NEO_STATE_WEIGHT, "t", t, &part));
        }
        size_t before[3];
        for (int r = 0; r < size; r++) before[r] = neo_ctx_memory(w.ctx[r]).bytes;
        w.save.step = 1;
        CHECK_OK(world_run(&w, load ? LOAD : SAVE));
        CHECK_OK(world_run(&w, DIGEST));
        for (int r = 0; r < size; r++) {
            size_t extra = neo_ctx_memory(w.ctx[r]).peak_bytes - before[r];
            most = extra > most ? extra : most;
            CHECK_INT(neo_ctx_memory(w.ctx[r]).bytes, before[r]);
        }
        world_free(&w);
    }
    CHECK_BITS(table, back, bytes);
    CHECK(most < BOUND);
    if (getenv("TEST_VERBOSE"))
        printf("  a table of %zu bytes: at most %zu more in use\n", bytes, most);
    free(table);
    free(back);
}

/* ---- states that are none ---- */
static void unequal_replicas(void) {
    static world w;
    clear();
    world_make(&w, 4, 2, NULL);
    REQUIRE_OK(world_save(&w, 1));
    for (int i = 0; i < w.piece_count; i++) {
        const piece *p = &w.pieces[i];
        if (p->tensor == TOP && (p->rank == 1 || p->rank == 3)) p->data[17] ^= 4;
    }
    CHECK_ERR(world_run(&w, DIGEST), NEO_ERR_MISMATCH,
              "neo_state_digest_group: tensor top.0.weight is not the same");
    CHECK_ERR(world_run(&w, DIGEST), NEO_ERR_MISMATCH, "bits than rank 0: 1, 3");
    w.save.step = 2;
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH, "neo_save: tensor top.0.weight");
    CHECK_INT(loads(&w), 1);
    for (int i = 0; i < w.piece_count;
         i++) /* a position that differs: not in the digest, but saved */
        if (w.pieces[i].tensor == READER && w.pieces[i].rank == 2) w.pieces[i].data[0] ^= 1;
    CHECK_OK(world_run(&w, DIGEST));
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH, "tensor reader is not the same on all ranks");
    CHECK_INT(count_ending(""), 1);
    world_fill(&w, 5);
    static float x[4];
    CHECK_OK(neo_state_add(w.state[2], NEO_STATE_OPTIMIZER, "extra", neo_tensor_1d(x, NEO_F32, 4)));
    CHECK_ERR(world_run(&w, DIGEST), NEO_ERR_MISMATCH,
              "rank 2: neo_state_digest_group: tensor extra is not on rank 0");
    make_states(&w);
    CHECK_OK(neo_state_add(w.state[0], NEO_STATE_OPTIMIZER, "extra", neo_tensor_1d(x, NEO_F32, 4)));
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH, "tensor extra is not the same");
    CHECK(strstr(neo_last_error(), "rank 0: 1, 2, 3") != NULL);
    make_states(&w);
    CHECK_OK(neo_state_define(w.state[3], "optimizer", "adam"));
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH,
              "rank 3: neo_save: the numeric definition differs");
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH, "rank 3: ");
    CHECK(strstr(neo_last_error(), "optimizer is 'adagrad' there, 'adam' here") != NULL &&
          world_is(&w, 5));
    make_states(&w);
    w.steps[1] = 3;
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH,
              "rank 1: neo_save: desc.step differs from that of rank 0");
    w.steps[1] = -3;
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_ARG, "rank 1: neo_save: desc.step is -3");
    w.steps[1] = 0;
    CHECK_OK(world_run(&w, SAVE));
    world_free(&w);
}
static void covered_not_once(void) {
    static world w;
    clear();
    world_make(&w, 4, 0, NULL);
    CHECK_OK(world_save(&w, 1));
    piece *user = NULL;
    for (int i = 0; i < w.piece_count; i++)
        if (w.pieces[i].tensor == 0) user = &w.pieces[i];
    REQUIRE(user);
    user->rank = 1;
    user->rows = 60; /* 37 rows are on no rank */
    make_states(&w);
    w.save.step = 2;
    for (int op = SAVE; op <= DIGEST; op += DIGEST)
        CHECK_ERR(world_run(&w, op), NEO_ERR_MISMATCH,
                  "tensor bags.user.weight: the parts of all ranks hold 960 of its 1552 elements");
    add_piece(&w, 0, 3, 0, 55, 4, 42, 12); /* too many in one corner, none in another */
    make_states(&w);
    for (int op = SAVE; op <= DIGEST; op += DIGEST)
        CHECK_ERR(
            world_run(&w, op), NEO_ERR_MISMATCH,
            "tensor bags.user.weight: rows 55 to 59, columns 4 to 15 are on rank 1 and on rank 3");
    user->rows = 97;
    w.piece_count--;
    free(w.pieces[w.piece_count].data);
    add_piece(&w, 0, 3, 0, 0, 0, 97, 16); /* two ranks hold all of it */
    make_states(&w);
    CHECK_ERR(world_run(&w, DIGEST), NEO_ERR_MISMATCH,
              "rows 0 to 96, columns 0 to 15 are on rank 1 and on rank 3");
    CHECK_INT(count_ending(""), 1);
    w.piece_count--; /* others think differently of its shape; or have all of it */
    make_states(&w);
    neo_part part = {98, 16, 97, 0, 0};
    static float row[16 * 97];
    neo_tensor last = neo_tensor_2d(row, NEO_F32, 1, 16);
    CHECK_OK(neo_state_add_part(w.state[2], NEO_STATE_WEIGHT, "bags.user.weight", last, &part));
    CHECK_ERR(
        world_run(&w, DIGEST), NEO_ERR_MISMATCH,
        "tensor bags.user.weight has another dtype, whole shape or kind on rank 2 than on rank 1");
    make_states(&w);
    CHECK_OK(neo_state_add(w.state[2], NEO_STATE_WEIGHT, "bags.user.weight",
                           neo_tensor_2d(row, NEO_F32, 97, 16)));
    CHECK_ERR(world_run(&w, SAVE), NEO_ERR_MISMATCH,
              "rank 2: neo_save: tensor bags.user.weight is not on rank 0");
    free(w.pieces[w.piece_count].data);
    world_free(&w);
}

static void bad_parts(void) {
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
    neo_state *s = NULL;
    float x[64] = {0};
    REQUIRE_OK(neo_state_create(ctx, &s));
    neo_tensor t = neo_tensor_2d(x, NEO_F32, 4, 3), one = neo_tensor_1d(x, NEO_F32, 4);
    neo_part whole = {10, 8, 2, 5, 0}, run = {10, 0, 6, 0, 0};
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", t, &whole));
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "u", one, &run));
    static const struct {
        neo_part part;
        const char *message;
    } cases[] = {
        {{10, 8, 5, 3, 0}, "t: part [5:9,3:6] overlaps part [2:6,5:8]"},
        {{10, 8, 7, 5, 0}, "leave the tensor of 10 x 8"},
        {{10, 8, 0, 6, 0}, "leave the tensor of 10 x 8"},
        {{10, 8, -1, 0, 0}, "leave the tensor"},
        {{10, 8, 0, INT64_MAX, 0}, "leave the tensor"},
        {{10, 9, 6, 0, 0}, "t: a part of f32 [10, 9], another one is of f32 [10, 8]"},
        {{0, 8, 0, 0, 0}, "a whole of 0 rows"},
        {{10, 0, 0, 0, 0}, "a whole of 10 rows and 0 columns is none for a part of 2 dimensions"},
        {{INT64_MAX / 4, 8, 0, 0, 0}, "is none for a part"},
        {{10, -8, 0, 0, 0}, "is none for a part"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", t, &cases[i].part), NEO_ERR_ARG,
                  cases[i].message);
    neo_part ok = {10, 8, 6, 0, 0};
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_OPTIMIZER, "t", t, &ok), NEO_ERR_ARG,
              "and another kind");
    neo_tensor half = t, wide = t, narrow = neo_tensor_2d(x, NEO_F32, 4, 3), none = t;
    half.dtype = NEO_F16;
    wide.stride[1] = 2;
    narrow.stride[0] = 2;
    none.data = NULL;
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", half, &ok), NEO_ERR_ARG,
              "a part of f16 [10, 8]");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", wide, &ok), NEO_ERR_ARG,
              "one behind the other");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", narrow, &ok), NEO_ERR_ARG,
              "one behind the other");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", none, &ok), NEO_ERR_ARG,
              "t: the tensor is none");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", t, NULL), NEO_ERR_ARG, "no place");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "u", one, &ok), NEO_ERR_ARG, "0 columns");
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "t[0:2]", t, &ok), NEO_ERR_ARG, "reserved");
    CHECK_ERR(neo_state_add(s, NEO_STATE_WEIGHT, "t[0:2,0:12]", t), NEO_ERR_ARG,
              "the name t[0:2,0:12] is reserved");
    CHECK_ERR(neo_state_add_part(NULL, NEO_STATE_WEIGHT, "t", t, &ok), NEO_ERR_ARG, "NULL");
    CHECK_ERR(neo_state_add(s, NEO_STATE_WEIGHT, "t", t), NEO_ERR_ARG, "t is there already");
    CHECK_OK(neo_state_add(s, NEO_STATE_WEIGHT, "layer[3]", t));
    CHECK_ERR(neo_state_add_part(s, NEO_STATE_WEIGHT, "layer[3]", t, &ok), NEO_ERR_ARG,
              "as a whole");
    CHECK_INT(neo_state_count(s), 3);
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", t, &ok));
    CHECK(neo_state_count(s) == 4 && strcmp(neo_state_name(s, 3), "t") == 0);
    uint64_t digest = 5;
    neo_group bad = {2, 2, group_agree, group_sum, NULL, NULL, NULL, NULL};
    CHECK_ERR(neo_state_digest_group(s, &bad, &digest), NEO_ERR_ARG, "rank 2 of 2");
    bad.rank = 0;
    bad.sum = NULL;
    CHECK_ERR(neo_state_digest_group(s, &bad, &digest), NEO_ERR_ARG, "lacks agree or sum");
    CHECK_ERR(neo_state_digest_group(s, NULL, &digest), NEO_ERR_MISMATCH,
              "the parts of all ranks hold ");
    CHECK(digest == 5);
    neo_state_destroy(s);
    neo_ctx_destroy(ctx);
}

/* ---- other tensors ---- */
static void other_tensors(void) {
    static world saver, w;
    static float x[97 * 16];
    clear();
    world_make(&saver, 4, 3, NULL);
    REQUIRE_OK(world_save(&saver, 3));
    world_make(&w, 3, 3, NULL);
    world_fill(&w, 1);
    neo_part part = {97, 8, 0, 0, 0};
    CHECK_OK(neo_state_add_part(w.state[1], NEO_STATE_WEIGHT, "new",
                                neo_tensor_2d(x, NEO_F32, 97, 8), &part));
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH, "rank 1: ");
    CHECK(strstr(neo_last_error(), "it has no tensor new"));
    for (int r = 0; r < w.size; r++) CHECK_INT(w.difference[r], NEO_DIFFERS_TENSORS);
    for (int t = 0; t < TENSORS; t++) { /* each is missing in the states in turn */
        world some;
        memcpy(&some, &w, sizeof some);
        int n = 0;
        for (int i = 0; i < w.piece_count; i++)
            if (w.pieces[i].tensor != t) some.pieces[n++] = w.pieces[i];
        some.piece_count = n;
        make_states(&some);
        memcpy(w.state, some.state, sizeof w.state);
        for (int r = 0; r < w.size; r++) some.seats[r].m = &w.m;
        neo_status status = world_run(&w, LOAD);
        char want[100];
        snprintf(want, sizeof want, "it has the tensor %s (in ", tensors[t].name);
        if (status != NEO_ERR_MISMATCH || !strstr(neo_last_error(), want))
            FAIL("%s: %s: %s", tensors[t].name, neo_status_string(status), neo_last_error());
    }
    make_states(&w);
    CHECK(world_is(&w, 1));
    neo_state *s = NULL; /* one rank that wants a corner only, and one under other shapes */
    neo_part corner = {97, 16, 90, 3, 0}, other = {98, 16, 90, 3, 0};
    REQUIRE_OK(neo_state_create(w.ctx[0], &s));
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "bags.user.weight",
                                neo_tensor_2d(x, NEO_F32, 7, 2), &other));
    neo_load_desc load;
    memset(&load, 0, sizeof load);
    load.dir = root;
    load.any_definition = 1;
    CHECK_ERR(neo_load(w.ctx[0], &load, s, NULL), NEO_ERR_MISMATCH,
              "tensor bags.user.weight has shape [97, 16], expected [98, 16]");
    neo_state_destroy(s);
    REQUIRE_OK(neo_state_create(w.ctx[0], &s));
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "bags.user.weight",
                                neo_tensor_2d(x, NEO_F32, 7, 2), &corner));
    CHECK_ERR(neo_load(w.ctx[0], &load, s, NULL), NEO_ERR_MISMATCH, "it has the tensor ");
    neo_state_destroy(s);
    CHECK_INT(loads(&w), 3);
    world_free(&saver);
    world_free(&w);
}

/* Ranks that do not share a file system. */
static void apart(void) {
    static world w;
    clear();
    world_make(&w, 3, 2, NULL);
    REQUIRE_OK(world_save(&w, 1));
    w.dirs[2] = at(".elsewhere");
    CHECK_OK(neo__tree_remove(w.dirs[2]));
    CHECK_ERR(world_save(&w, 2), NEO_ERR_IO, "rank 2: ");
    CHECK(strstr(neo_last_error(),
                 "does not see this directory, which rank 0 made: all ranks must save into"));
    char partial[4096];
    snprintf(partial, sizeof partial, "%s/step-%012d.partial", w.dirs[2], 2);
    CHECK_OK(neo__dir_make(partial)); /* what an earlier try left there */
    CHECK_ERR(world_save(&w, 2), NEO_ERR_IO,
              "model-00003-of-00003.safetensors: rank 0 does not see what rank 2 wrote");
    CHECK_INT(count_ending(".partial"), 0);
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_IO, "does not see this checkpoint, which rank 0 found");
    char from[4096], to[4096]; /* a copy without one file */
    snprintf(to, sizeof to, "%s/step-%012d", w.dirs[2], 1);
    CHECK_OK(neo__dir_make(to));
    static const char *const names[] = {"manifest.json", "model-00001-of-00003.safetensors"};
    for (int k = 0; k < 2; k++) {
        size_t size = 0;
        snprintf(from, sizeof from, "%s/step-%012d/%s", root, 1, names[k]);
        snprintf(to, sizeof to, "%s/step-%012d/%s", w.dirs[2], 1, names[k]);
        unsigned char *data = slurp(from, &size);
        put(to, data, size);
        free(data);
    }
    world_fill(&w, 5);
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_IO, "model-00002-of-00003.safetensors: missing");
    CHECK(strstr(neo_last_error(), "rank 0 sees it as it should be: all ranks must"));
    w.dirs[0] = w.dirs[1] = w.dirs[2]; /* another checkpoint of this step */
    w.save.step = 1;
    world_fill(&w, 8);
    CHECK_OK(world_run(&w, SAVE));
    w.dirs[0] = w.dirs[1] = NULL;
    world_fill(&w, 5);
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH,
              "rank 2: neo_load: the manifest differs from that of rank 0");
    CHECK(world_is(&w, 5));
    CHECK_OK(neo__tree_remove(w.dirs[2]));
    w.dirs[2] = NULL;
    CHECK_INT(loads(&w), 1);
    world_free(&w);
}

/* Dictionaries: rank 0 saves them, all ranks load them, and one that has others stops all. */
static void dictionaries(void) {
    static world w;
    static const char *const columns = "delimiter ,\ny label\na category\n";
    neo_schema *schema[3] = {NULL, NULL, NULL};
    clear();
    world_make(&w, 3, 2, NULL);
    put(at("/data"), "1,red\n0,green\n1,red\n", 20);
    put(at("/other"), "1,black\n0,white\n1,black\n", 24);
    const char *paths[] = {at("/data")}, *others[] = {at("/other")};
    for (int r = 0; r < 3; r++) {
        REQUIRE_OK(neo_schema_parse(w.ctx[r], columns, &schema[r]));
        CHECK_OK(neo_state_add_schema(w.state[r], schema[r]));
    }
    REQUIRE_OK(neo_schema_fit(schema[0], paths, 1, 0));
    CHECK_OK(world_save(&w, 1));
    REQUIRE_OK(neo_schema_fit(schema[2], others, 1, 0));
    world_fill(&w, 5);
    w.load.schema_only = 1;
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH,
              "rank 2: the saved dictionary of feature 'a' holds other words");
    for (int r = 0; r < w.size; r++) CHECK_INT(w.difference[r], NEO_DIFFERS_DICTIONARY);
    CHECK(!neo_schema_is_fitted(schema[1])); /* a rank that could load has not */
    make_states(&w);
    neo_schema_destroy(schema[2]);
    REQUIRE_OK(neo_schema_parse(w.ctx[2], columns, &schema[2]));
    for (int r = 0; r < 3; r++) CHECK_OK(neo_state_add_schema(w.state[r], schema[r]));
    CHECK_OK(world_run(&w, LOAD));
    for (int r = 0; r < 3; r++)
        CHECK(neo_schema_is_fitted(schema[r]) && neo_schema_feature(schema[r], 0).rows == 3);
    CHECK(world_is(&w, 5));
    w.load.schema_only = 0;
    CHECK_INT(loads(&w), 1);
    make_states(&w); /* one rank alone asks for them: they are checked all the same */
    CHECK_OK(neo_state_add_schema(w.state[1], schema[1]));
    w.load.weights_only = 1;
    CHECK_OK(world_run(&w, LOAD));
    size_t size = 0;
    const char *path = at("/step-000000000001/state-00001-of-00003.safetensors");
    unsigned char *data = slurp(path, &size);
    data[size - 1] ^= 1;
    put(path, data, size);
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_CORRUPT,
              "state-00001-of-00003.safetensors: its checksum");
    data[size - 1] ^= 1;
    put(path, data, size);
    free(data);
    w.load.weights_only = 0;
    make_states(&w);
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH, "columns is 'crc32c ");
    w.load.any_definition = 1;
    CHECK_ERR(world_run(&w, LOAD), NEO_ERR_MISMATCH, "it has the tensor schema");
    for (int r = 0; r < 3; r++) {
        neo_state_destroy(w.state[r]);
        w.state[r] = NULL;
        neo_schema_destroy(schema[r]);
    }
    world_free(&w);
}

/* ---- files of other hands ---- */
static void write_manifest(const char *file) {
    char path[4096], text[1024];
    size_t size = 0;
    snprintf(path, sizeof path, "%s/step-%012d/%s", root, 1, file);
    unsigned char *data = slurp(path, &size);
    int n = snprintf(text, sizeof text,
                     "{\"format\": \"neo-checkpoint\", \"version\": 2, \"step\": 1, "
                     "\"definition\": {}, \"files\": "
                     "[{\"name\": \"%s\", \"bytes\": %zu, \"crc32c\": \"%08" PRIx32 "\"}]",
                     file, size, neo_crc32c(0, data, size));
    n += snprintf(text + n, sizeof text - (size_t)n,
                  ",\n \"manifest_crc32c\": \"%08" PRIx32 "\"}\n", neo_crc32c(0, text, (size_t)n));
    put(at("/step-000000000001/manifest.json"), text, (size_t)n);
    free(data);
}
static void forged_places(void) {
    static const struct {
        const char *a, *b; /* where t[0:2] and t[2:4] are said to be */
        neo_status status;
        const char *message;
    } cases[] = {
        {"[0] of [4] t", "[2] of [4] t", NEO_OK, ""},
        {"[0] of [4] t", "[0] of [4] t", NEO_ERR_MISMATCH,
         "have 4 elements, not each of the 4 once"},
        {"[0] of [4] t", "[1] of [4] t", NEO_ERR_MISMATCH,
         "have 4 elements, not each of the 4 once"},
        {"[0] of [4] t", "[2] of [4] u", NEO_ERR_MISMATCH,
         "have 2 elements, not each of the 4 once"},
        {"[0] of [4] t", "[2] of [5] t", NEO_ERR_MISMATCH, "has shape [5], expected [4]"},
        {"[0] of [4] t", "[3] of [4] t", NEO_ERR_FORMAT,
         "tensor t[2:4]: its place is given as '[3] of [4] t'"},
        {"[0] of [4] t", "[2,0] of [4,1] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[-2] of [4] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[2] of [] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[2] in [4] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[99999999999999999999] of [4] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[9223372036854775807] of [4] t", NEO_ERR_FORMAT, "its place"},
        {"[0] of [4] t", "[2] of [4]t", NEO_ERR_MISMATCH, "not each of the 4 once"},
        {"[0] of [4] t", "", NEO_ERR_MISMATCH, "not each of the 4 once"},
    };
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
    float x[4] = {1, 2, 3, 4}, y[4];
    neo_state *s = NULL;
    clear();
    CHECK_OK(neo__dir_make(at("/step-000000000001")));
    REQUIRE_OK(neo_state_create(ctx, &s));
    CHECK_OK(neo_state_add(s, NEO_STATE_WEIGHT, "t", neo_tensor_1d(y, NEO_F32, 4)));
    neo_load_desc load;
    memset(&load, 0, sizeof load);
    load.dir = root;
    load.any_definition = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *names[] = {"t[0:2]", "t[2:4]"};
        const char *metadata[] = {"t[0:2]", cases[i].a, "t[2:4]", cases[i].b};
        neo_tensor t[2] = {neo_tensor_1d(x, NEO_F32, 2), neo_tensor_1d(x + 2, NEO_F32, 2)};
        memset(y, 0, sizeof y);
        REQUIRE_OK(neo_safetensors_write(ctx,
                                         at("/step-000000000001/model-00001-of-00001.safetensors"),
                                         names, t, 2, metadata, 2));
        write_manifest("model-00001-of-00001.safetensors");
        neo_status status = neo_load(ctx, &load, s, NULL);
        if (status != cases[i].status ||
            (status != NEO_OK && !strstr(neo_last_error(), cases[i].message)))
            FAIL("%s: %s: %s", cases[i].b, neo_status_string(status), neo_last_error());
        for (int k = 0; k < 4; k++) CHECK(y[k] == (status == NEO_OK ? x[k] : 0.0f));
    }
    neo_state_destroy(s);
    neo_ctx_destroy(ctx);
}
/* Weights of another trainer go into parts, converted on the way. */
static void foreign_weights(void) {
    enum { ROWS = 3000, COLS = 40 };
    static uint16_t file[ROWS * COLS];
    static float rows[1000 * COLS], cols[2000 * 7], rest[2000 * 33];
    neo_ctx *ctx = test_ctx(1, NEO_ISA_SCALAR, 1);
    neo_state *s = NULL;
    int loaded = 0;
    clear();
    for (int i = 0; i < ROWS * COLS; i++)
        file[i] = (uint16_t)(0x3C00 + i % 1024); /* 1 + k / 1024 */
    const char *names[] = {"emb.weight"};
    neo_tensor t = neo_tensor_2d(file, NEO_F16, ROWS, COLS);
    REQUIRE_OK(neo_safetensors_write(ctx, at("/w.safetensors"), names, &t, 1, NULL, 0));
    REQUIRE_OK(neo_state_create(ctx, &s));
    neo_part parts[] = {{ROWS, COLS, 0, 0, 0}, {ROWS, COLS, 1000, 0, 0}, {ROWS, COLS, 1000, 7, 0}};
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", neo_tensor_2d(rows, NEO_F32, 1000, COLS),
                                &parts[0]));
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", neo_tensor_2d(cols, NEO_F32, 2000, 7),
                                &parts[1]));
    CHECK_OK(neo_state_add_part(s, NEO_STATE_WEIGHT, "t", neo_tensor_2d(rest, NEO_F32, 2000, 33),
                                &parts[2]));
    neo_name_map map = {"emb.weight", "t", 0};
    CHECK_OK(neo_load_safetensors(ctx, at("/w.safetensors"), &map, 1, 0, s, &loaded));
    CHECK_INT(loaded, 1);
    int wrong = 0;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            float got = r < 1000 ? rows[r * COLS + c]
                        : c < 7  ? cols[(r - 1000) * 7 + c]
                                 : rest[(r - 1000) * 33 + c - 7];
            wrong += got != 1.0f + (float)((r * COLS + c) % 1024) / 1024.0f;
        }
    CHECK_INT(wrong, 0);
    neo_state_destroy(s);
    neo_ctx_destroy(ctx);
}

int main(void) {
    const char *dir = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/unit_checkpoint_ranks.tmp", dir ? dir : ".");
    RUN(any_plan_to_any_plan);
    RUN(chains);
    RUN(chains_behind);
    RUN(behind_as_before);
    RUN(failing_behind);
    RUN(bases);
    RUN(files);
    RUN(exported);
    RUN(damaged_files);
    RUN(failing_disk);
    RUN(failing_disk_of_chains);
    RUN(failing_reads);
    RUN(killed_process);
    RUN(killed_process_of_chains);
    RUN(refused_memory);
    RUN(refused_memory_of_chains);
    RUN(memory);
    RUN(unequal_replicas);
    RUN(covered_not_once);
    RUN(bad_parts);
    RUN(other_tensors);
    RUN(apart);
    RUN(dictionaries);
    RUN(forged_places);
    RUN(foreign_weights);
    CHECK_OK(neo__tree_remove(root));
    return test_end("files/checkpoint_ranks");
}
