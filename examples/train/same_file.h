/* same_file.h: whether two names are of one file. */
#ifndef EXAMPLE_SAME_FILE_H
#define EXAMPLE_SAME_FILE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether two paths lead to one file, which need not be there yet. Devices and pipes do not
   count. */
static int is_same_file(const char *a, const char *b) {
#if defined(_WIN32)
    char whole[2][4096];
    return _fullpath(whole[0], a, 4096) && _fullpath(whole[1], b, 4096) &&
           _stricmp(whole[0], whole[1]) == 0;
#else
    const char *path[2] = {a, b}, *name[2];
    struct stat at[2];
    char folder[4096];
    int there = 0;
    for (int i = 0; i < 2; i++) there += stat(path[i], &at[i]) == 0;
    if (there == 2)
        return S_ISREG(at[0].st_mode) && at[0].st_dev == at[1].st_dev &&
               at[0].st_ino == at[1].st_ino;
    if (there == 1) return 0;
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        name[i] = slash ? slash + 1 : path[i];
        snprintf(folder, sizeof folder, "%.*s.", (int)(name[i] - path[i]), path[i]);
        if (stat(folder, &at[i]) != 0) return 0;
    }
    return strcmp(name[0], name[1]) == 0 && at[0].st_dev == at[1].st_dev &&
           at[0].st_ino == at[1].st_ino;
#endif
}
#endif
