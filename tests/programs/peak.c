/* peak.c FILE COMMAND...: runs a command and writes how much memory it had at most, in KiB, to a
   file. Without huge pages: one is resident as a whole where a block of which little is used was
   touched once, and whether the system has one left is chance. On one core: each counts pages for
   itself, and the kernel's peak lacks what cores have not told it yet. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct rusage used;
    int status = 1;
    if (argc < 3) return 2;
    const pid_t child = fork();
    if (child == 0) {
        cpu_set_t one;
        const int core = sched_getcpu();
        CPU_ZERO(&one);
        CPU_SET((size_t)(core < 0 ? 0 : core), &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) perror("peak: sched_setaffinity");
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) perror("peak: prctl");
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) return 2;
    FILE *f = fopen(argv[1], "w");
    if (!f || fprintf(f, "%ld\n", used.ru_maxrss) < 0 || fclose(f) != 0) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
