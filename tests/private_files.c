/* private_files.c: as private.c, of the tests of readers and of checkpoints that give neo small
   blocks and a disk that fails. */
#define NEO__CHUNK_BYTES 4096
#define NEO__LINE_BYTES 1024
#define main ranks_main
#include "files/checkpoint_ranks.c"
#undef main
#define main numbers_main
#include "data/numbers.c"
#undef main

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    (void)argc;
    return strcmp(slash ? slash + 1 : argv[0], "numbers") ? ranks_main() : numbers_main();
}
