/* tasks.c: lists of tasks (neo__run_tasks). Each task runs once, and a worker has one at a time, on
   more threads than there are cores too, whether threads look for work, sleep or are about to when
   a list comes. A list too short to be shared is the caller's, in order, and not the executor's;
   for a long one a sleeping thread is woken: tasks that wait for each other end. */
#include "test.h"

#include <time.h>

/* Private, in the checked neo. */
void neo__run_tasks(neo_ctx *ctx, int64_t count, neo_task_fn task, void *arg, int64_t ns);

enum { MOST = 64, LONG = 1000000000 /* ns */ };
typedef struct list {
    int64_t count;
    int threads;
    int done[MOST], busy[MOST], wrong; /* atomic */
    int64_t sum;                       /* not atomic: of what lists before have written */
    int64_t value[MOST];
} list;
static void wait_ns(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}
static void one(void *arg, int64_t i, int worker) {
    list *l = (list *)arg;
    int wrong = i < 0 || i >= l->count || worker < 0 || worker >= l->threads;
    if (!wrong) {
        wrong |= __atomic_exchange_n(&l->busy[worker], 1, __ATOMIC_RELAXED) != 0;
        wrong |= __atomic_fetch_add(&l->done[i], 1, __ATOMIC_RELAXED) != 0;
        l->value[i] += l->sum + i; /* what others wrote in the list before, by plain reads */
        __atomic_store_n(&l->busy[worker], 0, __ATOMIC_RELAXED);
    }
    if (wrong) __atomic_store_n(&l->wrong, 1, __ATOMIC_RELAXED);
}
static void each_runs_once(void) {
    static const int threads[] = {1, 2, 3, 8};
    for (int k = 0; k < 4; k++) {
        static list l;
        uint32_t random = 1;
        int64_t sum = 0;
        neo_ctx *ctx;
        memset(&l, 0, sizeof l);
        l.threads = threads[k];
        REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = threads[k]}, &ctx));
        for (int round = 0; round < 3000; round++) {
            random = random * 1664525u + 1013904223u;
            l.count = 1 + (random >> 8) % MOST;
            const int64_t ns = (random >> 16) % 4 ? (random >> 20) % 2 ? LONG : 10000 : 0;
            memset(l.done, 0, sizeof l.done);
            neo__run_tasks(ctx, l.count, one, &l, ns);
            for (int64_t i = 0; i < l.count; i++) CHECK_INT(l.done[i], 1);
            for (int64_t i = 0; i < MOST; i++) sum += l.value[i] * (i + 1) % 1000;
            l.sum = sum % 1000;
            if (random >> 28 == 0) wait_ns((random >> 12) % 200000); /* to where they park */
        }
        CHECK_INT(l.wrong, 0);
        neo_ctx_destroy(ctx); /* some sleep, some do not yet */
        static int64_t first;
        if (k == 0) first = sum;
        CHECK_INT(sum, first);
    }
}

/* Every task waits until as many run as there are threads. */
typedef struct meeting {
    int here, all; /* here: atomic */
} meeting;
static void meet(void *arg, int64_t i, int worker) {
    meeting *m = (meeting *)arg;
    (void)i, (void)worker;
    __atomic_fetch_add(&m->here, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&m->here, __ATOMIC_SEQ_CST) < m->all) wait_ns(1000);
}
static void sleepers_are_woken(void) {
    static const int threads[] = {2, 3, 5};
    for (int k = 0; k < 3; k++) {
        neo_ctx *ctx;
        REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = threads[k]}, &ctx));
        for (int round = 0; round < 200; round++) {
            meeting m = {0, threads[k]};
            neo__run_tasks(ctx, threads[k], meet, &m, LONG);
            CHECK_INT(m.here, threads[k]);
            wait_ns(round % 4 * 40000); /* awake, about to sleep, asleep */
        }
        meeting m = {0, threads[k]};
        wait_ns(1000000);
        neo_parallel_for(ctx, threads[k], meet, &m); /* which knows nothing of its work */
        CHECK_INT(m.here, threads[k]);
        neo_ctx_destroy(ctx);
    }
}

typedef struct log {
    int64_t next;
    int wrong, lists;
} log_of_calls;
static void in_order(void *arg, int64_t i, int worker) {
    log_of_calls *l = (log_of_calls *)arg;
    l->wrong |= i != l->next++ || worker != 0;
}
static void counted(int64_t count, neo_task_fn task, void *arg, void *user) {
    ((log_of_calls *)user)->lists++;
    for (int64_t i = 0; i < count; i++) task(arg, i, 0);
}
static void few_are_the_callers(void) {
    log_of_calls l = {0, 0, 0};
    neo_ctx *ctx;
    REQUIRE_OK(neo_ctx_create(&(neo_ctx_desc){.threads = 4}, &ctx));
    for (int round = 0; round < 1000; round++) {
        l.next = 0;
        neo__run_tasks(ctx, 20, in_order, &l, NEO__WORK_SHARED - 1);
        CHECK_INT(l.next, 20);
    }
    CHECK_INT(l.wrong, 0);
    neo_ctx_destroy(ctx);
    neo_ctx_desc d = {.threads = 4};
    d.executor.run = counted, d.executor.user = &l;
    REQUIRE_OK(neo_ctx_create(&d, &ctx));
    l.next = l.lists = 0;
    neo__run_tasks(ctx, 20, in_order, &l, NEO__WORK_SHARED - 1);
    CHECK_INT(l.lists, 0);
    neo__run_tasks(ctx, 0, in_order, &l, LONG);
    neo__run_tasks(ctx, 1, in_order, &l, LONG); /* one task is the caller's */
    CHECK_INT(l.lists, 0);
    l.next = 0;
    neo__run_tasks(ctx, 20, in_order, &l, NEO__WORK_SHARED);
    CHECK_INT(l.lists, 1);
    CHECK_INT(l.next, 20);
    neo_ctx_destroy(ctx);
}

int main(void) {
    RUN(each_runs_once);
    RUN(sleepers_are_woken);
    RUN(few_are_the_callers);
    return test_end("core/tasks");
}
