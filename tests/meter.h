/* meter.h: an allocator for tests. It counts and tags what it hands out, fills it (nothing may rely
   on zeros), refuses the n-th request if asked to, alone or from there on, and sees when free is
   given another size than alloc was. Its user pointer is a meter; it may be called from many
   threads. */
#ifndef TEST_METER_H
#define TEST_METER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct meter {
    int64_t refuse_at; /* -1: never */
    int from_there_on;
    int64_t calls;     /* atomic */
    int64_t live;      /* atomic: blocks handed out */
    int64_t wrong;     /* atomic: frees with another size, or of a foreign pointer */
    int64_t refused;   /* atomic */
} meter;

enum { TAG_BYTES = 128, TAG = 0x6E656F21 };
typedef struct tag {
    void *base;
    size_t size;
    uint32_t magic;
} tag;

static inline void *meter_alloc(size_t size, size_t align, void *user) {
    meter *m = (meter *)user;
    int64_t call = __atomic_fetch_add(&m->calls, 1, __ATOMIC_RELAXED);
    if (m->refuse_at >= 0 && (call == m->refuse_at || (m->from_there_on && call > m->refuse_at))) {
        __atomic_fetch_add(&m->refused, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    char *base = (char *)malloc(size + align + TAG_BYTES);
    if (!base) return NULL;
    uintptr_t at = ((uintptr_t)base + TAG_BYTES + align - 1) / align * align;
    tag t = {base, size, TAG};
    memcpy((char *)at - TAG_BYTES, &t, sizeof t);
    memset((char *)at, 0xA5, size < 4096 ? size : 4096); /* nothing may rely on zeros */
    __atomic_fetch_add(&m->live, 1, __ATOMIC_RELAXED);
    return (void *)at;
}
static inline void meter_free(void *ptr, size_t size, void *user) {
    meter *m = (meter *)user;
    tag t;
    memcpy(&t, (char *)ptr - TAG_BYTES, sizeof t);
    if (t.magic != TAG || t.size != size) {
        __atomic_fetch_add(&m->wrong, 1, __ATOMIC_RELAXED);
        return;
    }
    memset((char *)ptr - TAG_BYTES, 0, sizeof t);
    free(t.base);
    __atomic_fetch_sub(&m->live, 1, __ATOMIC_RELAXED);
}
#endif
