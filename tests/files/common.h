/* common.h: what tests of files share: paths below one place, whole files. */
#ifndef FILES_COMMON_H
#define FILES_COMMON_H

#include "../test.h"

#if !defined(_WIN32)
#include <dirent.h>
#endif

static char root[3000]; /* what the paths of the test begin with; set by main */

/* root and name; valid for the next seven calls. */
static inline const char *at(const char *name) {
    static char text[8][4096];
    static int turn;
    char *out = text[turn = (turn + 1) % 8];
    snprintf(out, 4096, "%s%s", root, name);
    return out;
}
static inline void put(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) FAIL("cannot write %s", path);
}
/* The first MiB of a file, to be freed. */
static inline unsigned char *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    unsigned char *data = (unsigned char *)malloc(1 << 20);
    *size = f ? fread(data, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return data;
}
#if !defined(_WIN32)
/* How many entries of the directory end so. */
static inline int count_ending(const char *end) {
    DIR *dir = opendir(root);
    int count = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t n = strlen(e->d_name), k = strlen(end);
        count += n >= k && strcmp(e->d_name + n - k, end) == 0 && e->d_name[0] != '.';
    }
    if (dir) closedir(dir);
    return count;
}
#endif
#endif
