/* noalloc.c: a training step asks for no memory.

   Method: the C library's malloc family is replaced in this program by functions that count, so
   that every request is seen, from neo, from its threads, and from what neo calls. After a few
   warm-up steps the counters must stand still over whole epochs: reader, forward, backward,
   optimizers, metrics, progress. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "test.h"

#include "trainer.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define CHECKER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECKER 1
#endif

static int64_t requests; /* of memory, by anyone */
static int64_t request_count(void) { return __atomic_load_n(&requests, __ATOMIC_SEQ_CST); }

#if defined(__GLIBC__) && !defined(CHECKER)
#define COUNTED 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
static void count_one(void) { __atomic_fetch_add(&requests, 1, __ATOMIC_RELAXED); }
void *malloc(size_t size) {
    count_one();
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    count_one();
    return __libc_calloc(count, size);
}
void *realloc(void *p, size_t size) {
    count_one();
    return __libc_realloc(p, size);
}
void *memalign(size_t align, size_t size) {
    count_one();
    return __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size) {
    count_one();
    return __libc_memalign(align, size);
}
void *valloc(size_t size) {
    count_one();
    return __libc_memalign(4096, size);
}
int posix_memalign(void **p, size_t align, size_t size) {
    count_one();
    void *got = __libc_memalign(align, size);
    if (!got) return 12; /* ENOMEM */
    *p = got;
    return 0;
}
#endif

static void discard(const char *text, void *user) { *(size_t *)user += strlen(text); }

/* Two epochs to warm up, then two more with every counter standing still. */
static void steps(const trainer_desc *desc, int threads, int shards) {
    trainer t;
    memset(&t, 0, sizeof t);
    neo_ctx_desc d;
    memset(&d, 0, sizeof d);
    d.threads = threads;
    d.repro_shards = shards;
    REQUIRE_OK(trainer_create(&t, &d, desc));
    size_t written = 0;
    neo_progress bar;
    memset(&bar, 0, sizeof bar);
    bar.write = discard;
    bar.user = &written;
    bar.total = 1000;
    bar.interval_ms = 1;
    neo_progress_begin(&bar);
    int64_t epoch_steps = TRAINER_SAMPLES / TRAINER_BATCH;
    CHECK_OK(trainer_steps(&t, 2 * epoch_steps));
    neo_memory before = neo_ctx_memory(t.ctx);
    int64_t requests_before = request_count();
    for (int64_t i = 0; i < 2 * epoch_steps; i++) {
        CHECK_OK(trainer_steps(&t, 1));
        neo_progress_update(&bar, i, t.loss);
    }
    int64_t requested = request_count() - requests_before;
    neo_memory after = neo_ctx_memory(t.ctx);
    CHECK_INT(requested, 0);
    CHECK_INT(after.alloc_count - before.alloc_count, 0);
    CHECK(after.bytes == before.bytes);
    trainer_destroy(&t);
}

static void counting_works(void) {
#if defined(COUNTED)
    int64_t before = request_count();
    void *volatile p = malloc(10);
    free(p);
    CHECK_INT(request_count() - before, 1);
    neo_ctx *ctx = test_ctx(1, NEO_ISA_BEST, 1);
    CHECK(request_count() - before > 1); /* neo's default allocator is seen */
    neo_ctx_destroy(ctx);
#else
    SKIP("the C library's malloc cannot be replaced here (no glibc, or a sanitizer); neo's own "
         "counter is checked");
#endif
}

static const trainer_desc KINDS[] = {
    {NEO_OPTIM_SGD, NEO_BAG_SGD, 0, 1},         {NEO_OPTIM_ADAGRAD, NEO_BAG_ADAGRAD, 0, 2},
    {NEO_OPTIM_ADAM, NEO_BAG_ADAM, 1.0f, 1},    {NEO_OPTIM_ADAMW, NEO_BAG_PARTIAL_ADAM, 0, 2},
    {NEO_OPTIM_LAMB, NEO_BAG_LAMB, 0, 1},       {NEO_OPTIM_SGD, NEO_BAG_PARTIAL_LAMB, 0, 1},
    {NEO_OPTIM_RMSPROP, NEO_BAG_ROWWISE_ADAGRAD, 0, 1},
    {NEO_OPTIM_SGD, NEO_BAG_LARS_SGD, 0, 1},    {NEO_OPTIM_FTRL, NEO_BAG_FTRL, 0, 1},
};
static void one_thread(void) {
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) steps(&KINDS[i], 1, 1);
}
static void three_threads(void) {
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) steps(&KINDS[i], 3, 1);
}
static void eight_shards(void) {
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) steps(&KINDS[i], 2, 8);
}

int main(void) {
    RUN(counting_works);
    RUN(one_thread);
    RUN(three_threads);
    RUN(eight_shards);
    return test_end("core/noalloc");
}
