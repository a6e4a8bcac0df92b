/* common.h: what tests of files share: paths below one place, whole files. */
#ifndef FILES_COMMON_H
#define FILES_COMMON_H

#include "../test.h"

#if !defined(_WIN32)
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
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
static inline void sleep_ns(int64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    nanosleep(&t, NULL);
}
/* Kills a process that saves for ever: after so many ns, or, with midway, while a file is half
   written: it is stopped to make sure of that, so that no clock decides. */
static inline void kill_saving(pid_t child, int midway, int64_t ns) {
    int status = 0;
    pid_t changed = 0;
    if (!midway) sleep_ns(ns);
    while (midway) {
        while (count_ending(".partial") == 0 && (changed = waitpid(child, &status, WNOHANG)) == 0)
            sleep_ns(20000);
        if (changed == 0) {
            kill(child, SIGSTOP);
            changed = waitpid(child, &status, WUNTRACED);
        }
        if (changed != child || !WIFSTOPPED(status)) break; /* it has ended by itself */
        if (count_ending(".partial") > 0) break;
        kill(child, SIGCONT);
    }
    if (changed != child || WIFSTOPPED(status)) {
        kill(child, SIGKILL);
        changed = waitpid(child, &status, 0);
    }
    if (changed != child || !WIFSIGNALED(status))
        FAIL("the saving process ended by itself with %d", WEXITSTATUS(status));
}
#endif
#endif
