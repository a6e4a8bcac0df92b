/* faults.c: calls of libc that fail, or end the process: an object for LD_PRELOAD (Linux), with
   which walk.py runs programs.

   FAULT_CALLS  names of functions, as "open,write,fsync"
   FAULT_UNDER  of calls about files only those of a path with these words in it
   FAULT_RANK   only in this rank of mpirun
   FAULT_AT     the n-th of these calls is struck, counted from 1 over all threads; 0: none
   FAULT_TIMES  how many in succession from there on; 0: all
   FAULT_DO     EIO, ENOSPC ...: the call fails so, and does nothing (but a file is closed);
                short: half of what read, pread, write or pwrite was to do is done;
                kill: SIGKILL before the call; torn: SIGKILL after half of it
   FAULT_LOG    this file gets "struck <function> <path>" for each call that is struck, and at the
                exit of the process "called <function> <n>" for each of the functions

   Only calls that the program itself makes count, not those of libraries: MPI is not under attack,
   and neo is linked into the program. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LET = 0, FAIL, SHORT, KILL, TORN };
static const struct {
    const char *name;
    int action, code;
} deeds[] = {{"EIO", FAIL, EIO},       {"ENOSPC", FAIL, ENOSPC}, {"EINTR", FAIL, EINTR},
             {"ENOMEM", FAIL, ENOMEM}, {"EAGAIN", FAIL, EAGAIN}, {"EACCES", FAIL, EACCES},
             {"EMFILE", FAIL, EMFILE}, {"short", SHORT, 0},      {"kill", KILL, 0},
             {"torn", TORN, 0}};
static const char *calls, *under, *log_path;
static long first, times, count; /* count is atomic */
static int action, code, armed;
static uintptr_t text_begin, text_end; /* of the program */
static __thread int inside;
static struct tally {
    const char *name;
    long calls;
} tallies[32]; /* atomic */

static void *real_of(const char *name) { return dlsym(RTLD_NEXT, name); }

static void say(const char *format, ...) {
    char line[4400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...))real_of("open");
    ssize_t (*real_write)(int, const void *, size_t) =
        (ssize_t(*)(int, const void *, size_t))real_of("write");
    int fd = log_path ? real_open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (fd >= 0 && real_write(fd, line, (size_t)n) == n) ((int (*)(int))real_of("close"))(fd);
}
/* Whether `name` is in the list. */
static int listed(const char *name) {
    size_t n = strlen(name);
    for (const char *at = calls; (at = strstr(at, name)) != NULL; at += n)
        if ((at == calls || at[-1] == ',') && (at[n] == ',' || at[n] == 0)) return 1;
    return 0;
}
static void tally(const char *name) {
    for (struct tally *t = tallies; t < tallies + 32; t++) {
        const char *free_slot = NULL;
        if (__atomic_compare_exchange_n(&t->name, &free_slot, name, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            strcmp(free_slot, name) == 0) {
            __atomic_add_fetch(&t->calls, 1, __ATOMIC_RELAXED);
            return;
        }
    }
}
/* What is to be done to this call; errno is set. path NULL: that of fd; "": it is about no file. */
static int struck(const char *name, const char *path, int fd, const void *caller) {
    uintptr_t from = (uintptr_t)caller;
    char link[64], found[4096] = "";
    int keep = errno, deed = LET;
    if (!armed || inside || from < text_begin || from >= text_end || !listed(name)) return LET;
    inside = 1;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, found, sizeof found - 1);
        found[n > 0 ? n : 0] = 0;
        path = n > 0 ? found : "?";
    }
    if (!under || path[0] == 0 || strstr(path, under)) {
        tally(name);
        long at = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
        int hit = first > 0 && at >= first && (times == 0 || at < first + times);
        if (hit) say("struck %s %s\n", name, path);
        if (hit && action == KILL) kill(getpid(), SIGKILL);
        deed = hit ? action : LET;
    }
    inside = 0;
    errno = deed == FAIL ? code : keep;
    return deed;
}

static int find_program(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size, (void)user;
    text_begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t end = begin + info->dlpi_phdr[i].p_memsz;
        if (begin < text_begin) text_begin = begin;
        if (end > text_end) text_end = end;
    }
    return 1; /* it is the first */
}
__attribute__((constructor)) static void begin(void) {
    const char *deed = getenv("FAULT_DO"), *at = getenv("FAULT_AT"), *rank = getenv("FAULT_RANK");
    const char *mine = getenv("OMPI_COMM_WORLD_RANK");
    if (!mine) mine = getenv("PMI_RANK");
    calls = getenv("FAULT_CALLS");
    under = getenv("FAULT_UNDER");
    log_path = getenv("FAULT_LOG");
    first = at ? atol(at) : 0;
    times = getenv("FAULT_TIMES") ? atol(getenv("FAULT_TIMES")) : 1;
    for (size_t i = 0; deed && i < sizeof deeds / sizeof *deeds; i++)
        if (strcmp(deed, deeds[i].name) == 0) action = deeds[i].action, code = deeds[i].code;
    dl_iterate_phdr(find_program, NULL);
    /* Not in the shell or the launcher that starts the program. */
    armed = calls && (!rank || (mine && strcmp(rank, mine) == 0));
}
__attribute__((destructor)) static void end(void) {
    for (int i = 0; armed && tallies[i].name; i++)
        say("called %s %ld\n", tallies[i].name, tallies[i].calls);
}

#define CALLER __builtin_return_address(0)
#define REAL(type, name, ...)                                                                      \
    static type (*real)(__VA_ARGS__);                                                              \
    if (!real) real = (type(*)(__VA_ARGS__))real_of(#name)

int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return struck("open", path, -1, CALLER) ? -1 : real(path, flags, mode);
}
ssize_t read(int fd, void *data, size_t n) {
    REAL(ssize_t, read, int, void *, size_t);
    int deed = struck("read", NULL, fd, CALLER);
    return deed == FAIL ? -1 : real(fd, data, deed && n > 1 ? n / 2 : n);
}
ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    REAL(ssize_t, pread, int, void *, size_t, off_t);
    int deed = struck("pread", NULL, fd, CALLER);
    return deed == FAIL ? -1 : real(fd, data, deed && n > 1 ? n / 2 : n, offset);
}
ssize_t write(int fd, const void *data, size_t n) {
    REAL(ssize_t, write, int, const void *, size_t);
    int deed = struck("write", NULL, fd, CALLER);
    ssize_t done = deed == FAIL ? -1 : real(fd, data, deed && n > 1 ? n / 2 : n);
    if (deed == TORN) kill(getpid(), SIGKILL);
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    int deed = struck("pwrite", NULL, fd, CALLER);
    ssize_t done = deed == FAIL ? -1 : real(fd, data, deed && n > 1 ? n / 2 : n, offset);
    if (deed == TORN) kill(getpid(), SIGKILL);
    return done;
}
/* io_uring_setup is refused: what would be read by it is read by pread. */
long syscall(long number, ...) {
    REAL(long, syscall, long, ...);
    long word[6];
    va_list args;
    if (number == 425) return errno = ENOSYS, -1; /* it has two arguments, no more */
    va_start(args, number);
    for (int i = 0; i < 6; i++) word[i] = va_arg(args, long);
    va_end(args);
    return real(number, word[0], word[1], word[2], word[3], word[4], word[5]);
}
int close(int fd) {
    REAL(int, close, int);
    int deed = struck("close", NULL, fd, CALLER), keep = errno, result = real(fd);
    errno = deed ? keep : errno;
    return deed ? -1 : result;
}

int fclose(FILE *file) {
    REAL(int, fclose, FILE *);
    int deed = struck("fclose", NULL, fileno(file), CALLER), keep = errno, result = real(file);
    errno = deed ? keep : errno;
    return deed ? EOF : result;
}

/* A call about a path or a file, that gives `failed` when it fails. */
#define CALL(type, name, params, args, path, fd, failed)                                           \
    type name params {                                                                             \
        static type(*real) params;                                                                 \
        if (!real) real = (type(*) params)real_of(#name);                                          \
        return struck(#name, path, fd, CALLER) ? failed : real args;                               \
    }
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), path, -1, NULL)
CALL(int, fsync, (int fd), (fd), NULL, fd, -1)
CALL(off_t, lseek, (int fd, off_t offset, int from), (fd, offset, from), NULL, fd, -1)
CALL(int, rename, (const char *from, const char *to), (from, to), from, -1, -1)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), path, -1, -1)
CALL(int, rmdir, (const char *path), (path), path, -1, -1)
CALL(int, unlink, (const char *path), (path), path, -1, -1)
CALL(int, remove, (const char *path), (path), path, -1, -1)
CALL(int, lstat, (const char *path, struct stat *info), (path, info), path, -1, -1)
CALL(int, stat, (const char *path, struct stat *info), (path, info), path, -1, -1)
CALL(int, fstat, (int fd, struct stat *info), (fd, info), NULL, fd, -1)
CALL(DIR *, opendir, (const char *path), (path), path, -1, NULL)
CALL(struct dirent *, readdir, (DIR *dir), (dir), NULL, dirfd(dir), NULL)
CALL(int, flock, (int fd, int how), (fd, how), NULL, fd, -1)
CALL(int, pthread_create,
     (pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *user),
     (thread, attr, fn, user), "", -1, code)

/* The allocators are called before dlsym can be. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { return struck("malloc", "", -1, CALLER) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t each) {
    return struck("calloc", "", -1, CALLER) ? NULL : __libc_calloc(n, each);
}
void *realloc(void *old, size_t n) {
    return struck("realloc", "", -1, CALLER) ? NULL : __libc_realloc(old, n);
}
int posix_memalign(void **block, size_t align, size_t n) {
    if (struck("posix_memalign", "", -1, CALLER)) return ENOMEM;
    *block = __libc_memalign(align, n);
    return *block ? 0 : ENOMEM;
}
