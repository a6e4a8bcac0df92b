/* ranks.h: ranks that wait for commands, so that a process can let them take steps in turns with
   something else. The file that includes it has the implementation of neo_comm.h, and a function
   that runs one command on every rank. */
#ifndef NEO_PEERS_RANKS_H
#define NEO_PEERS_RANKS_H

#include <pthread.h>

#define SIDE __attribute__((visibility("default")))

/* Run `count` steps on this rank. rank: what the job's set_up has made. */
typedef struct ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread; /* in which neo_comm_init_env runs */
    neo_comm_desc desc;
    neo_status (*set_up)(neo_comm *comm, void **rank);
    neo_status (*work)(void *rank, int command, int64_t count);
    void (*tear_down)(void *rank);
    int64_t order, count; /* number of the last command, and its count */
    int command;          /* 0: stop */
    int ready, done;      /* ranks */
    int over, running;
    neo_status status;
    char error[512];
} ranks;

static void ranks_fail(ranks *r, neo_status status) {
    pthread_mutex_lock(&r->lock);
    if (r->status == NEO_OK) {
        r->status = status;
        snprintf(r->error, sizeof r->error, "%s", neo_last_error());
    }
    pthread_mutex_unlock(&r->lock);
}
static neo_status ranks_main(neo_comm *comm, void *user) {
    ranks *r = (ranks *)user;
    void *rank = NULL;
    neo_status status = r->set_up(comm, &rank);
    if (status != NEO_OK) ranks_fail(r, status);
    for (int64_t seen = 0; status == NEO_OK; seen++) {
        pthread_mutex_lock(&r->lock);
        r->ready += seen == 0;
        r->done++;
        pthread_cond_broadcast(&r->changed);
        while (r->order == seen) pthread_cond_wait(&r->changed, &r->lock);
        int command = r->command;
        int64_t count = r->count;
        pthread_mutex_unlock(&r->lock);
        if (!command) break;
        status = r->work(rank, command, count);
        if (status != NEO_OK) ranks_fail(r, status);
    }
    r->tear_down(rank);
    return status;
}
static void *ranks_thread(void *arg) {
    ranks *r = (ranks *)arg;
    neo_status status = neo_comm_init_env(&r->desc, ranks_main, r);
    if (status != NEO_OK) ranks_fail(r, status);
    pthread_mutex_lock(&r->lock);
    r->over = 1;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}
static int ranks_wait(ranks *r) {
    pthread_mutex_lock(&r->lock);
    while (r->done < r->desc.ranks && !r->over) pthread_cond_wait(&r->changed, &r->lock);
    neo_status status = r->status;
    pthread_mutex_unlock(&r->lock);
    return (int)status;
}
/* Returns when every rank waits for a command. */
static int ranks_start(ranks *r) {
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->order = r->count = 0;
    r->ready = r->done = r->over = 0;
    r->status = NEO_OK;
    if (pthread_create(&r->thread, NULL, ranks_thread, r) != 0) return 1;
    r->running = 1;
    return ranks_wait(r);
}
static int ranks_do(ranks *r, int command, int64_t count) {
    if (!r->running) return 1;
    pthread_mutex_lock(&r->lock);
    r->command = command;
    r->count = count;
    r->done = 0;
    r->order++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return ranks_wait(r);
}
static int ranks_stop(ranks *r) {
    if (!r->running) return 0;
    pthread_mutex_lock(&r->lock);
    r->command = 0;
    r->order++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    r->running = 0;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    return (int)r->status;
}

#endif
