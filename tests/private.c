/* private.c: tests of neo.h's private names, so that neo is compiled once for all of them. Each is
   a file with a main of its own; links to the program have their names, which says what runs. */
#undef NEO__WORK_SHARED /* what programs have, for core/short_lists.c */
#define NEO_STATIC
#include "neo_state.h"

#include "test.h"

#define main math_main
#include "core/math.c"
#undef main
#define main json_main
#include "files/json.c"
#undef main
#define main state_main
#include "files/state.c"
#undef main
#define main short_lists_main
#include "core/short_lists.c"
#undef main
#define main lines_main
#include "bags/lines.c"
#undef main

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } tests[] = {{"math", math_main}, {"json", json_main}, {"state", state_main},
                 {"short_lists", short_lists_main}, {"lines", lines_main}};
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    (void)argc;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0) return tests[i].run();
    printf("%s: a link to it says what runs: math, json, state, short_lists or lines\n", name);
    return 1;
}
