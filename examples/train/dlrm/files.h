/* files.h: the files that options name: lists of them, the same one under two names, a log that
   goes on. */
#ifndef DLRM_FILES_H
#define DLRM_FILES_H
#include "../board.h"
#include <sys/stat.h>
#if defined(_WIN32)
#define set_length(file, length) _chsize(_fileno(file), length)
#else
#define set_length(file, length) ftruncate(fileno(file), length)
#endif

enum { MAX_FILES = 64 };

/* The end of a message: the reason, if closing the file has found it; earlier writes keep none. */
static const char *why_lost(int error) {
    static char text[128];
    snprintf(text, sizeof text, ": %s", strerror(error));
    return error ? text : "";
}

static int is_stdin(const char *path) { return path && strcmp(path, "-") == 0; }

/* A list of at most so many names, separated by commas; NULL: none. */
static neo_status check_list(const char *option, const char *list, int most) {
    int count = 1;
    if (!list) return NEO_OK;
    for (const char *c = list; *c; c++) {
        count += *c == ',';
        if (*c == ',' && (c == list || c[-1] == ','))
            REFUSE("--%s %s: a name is empty", option, list);
    }
    if (!*list || list[strlen(list) - 1] == ',') REFUSE("--%s '%s': a name is empty", option, list);
    if (count > most) REFUSE("--%s: %d files, at most %d", option, count, most);
    return NEO_OK;
}

static int is_special_file(const char *path) {
#if defined(_WIN32)
    (void)path;
    return 0;
#else
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
#endif
}
static int is_directory(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && (s.st_mode & S_IFMT) == S_IFDIR;
}
/* Standard input or a pipe. A directory is none, and opening it says so. */
static int is_read_once(const char *path) {
    return is_stdin(path) || (is_special_file(path) && !is_directory(path));
}
/* Cuts off the half line that a full disk or a crash has left at the end of a log, so that the
   lines to come stand alone. */
static neo_status cut_half_line(const char *path) {
    long end = 0, at = 0;
    int c, failed;
    if (is_special_file(path)) return NEO_OK; /* a pipe */
    FILE *f = fopen(path, "r+b");
    if (!f) return NEO_OK; /* there is none, or opening it will say why not */
    while ((c = fgetc(f)) != EOF) {
        at++;
        if (c == '\n') end = at;
    }
    failed = ferror(f) || (end < at && set_length(f, end) != 0);
    failed |= fclose(f) != 0;
    if (failed) return neo_fail(NEO_ERR_IO, "--log %s: %s", path, strerror(errno));
    return NEO_OK;
}
#endif
