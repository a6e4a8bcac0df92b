/* cli.h: the options of a program on the command line.

   A program has a struct named `options` with its values, and a table of rows, one for each option,
   that say where the value lies in the struct. cli_parse fills the struct; cli_print_help prints
   the table. */
#ifndef EXAMPLE_CLI_H
#define EXAMPLE_CLI_H
#include "neo_data.h"
#include "neo_fsdp.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32)
#include <fcntl.h>
#include <unistd.h>
#endif

#define TRY(call)                                                                              \
    do {                                                                                       \
        neo_status try_status = (call);                                                        \
        if (try_status != NEO_OK) return try_status;                                           \
    } while (0)
/* The same, of a call that is a span of the trace. */
#define TRY_SPAN(ctx, name, call)                                                              \
    do {                                                                                       \
        neo_trace_begin(ctx, name, -1);                                                        \
        neo_status span_status = (call);                                                       \
        neo_trace_end(ctx);                                                                    \
        TRY(span_status);                                                                      \
    } while (0)
/* "1 rank", "2 ranks" */
#define PLURAL(n) ((n) == 1 ? "" : "s")
/* An error that the user can put right. */
#define REFUSE(...) return neo_fail(NEO_ERR_ARG, __VA_ARGS__)

static neo_status out_of_memory(void) { return neo_fail(NEO_ERR_MEMORY, "out of memory"); }

/* Types of values: none (a heading of --help), char *, int64_t, double, int64_t that is 0 or 1. */
typedef enum cli_kind { CLI_HEADING, CLI_WORD, CLI_WHOLE, CLI_REAL, CLI_SWITCH } cli_kind;

typedef struct cli_option {
    const char *name; /* or the words of a heading */
    cli_kind kind;
    size_t offset;    /* of the value in `options` */
    const char *argument, *normal; /* normal: the default as text, or NULL */
    double least, most;
    const char *help; /* begins with * if the value is part of the numeric definition */
} cli_option;

#define CLI_GROUP(words) {words, CLI_HEADING, 0, "", NULL, 0, 0, ""}
#define CLI_TEXT(name, field, argument, normal, help) \
    {name, CLI_WORD, offsetof(options, field), argument, normal, 0, 0, help}
#define CLI_COUNT(name, field, argument, normal, least, most, help) \
    {name, CLI_WHOLE, offsetof(options, field), argument, normal, least, most, help}
enum { CLI_AUTO = -1 }; /* the word "auto", of a CLI_COUNT of at least CLI_AUTO */
#define CLI_NUMBER(name, field, argument, normal, most, help) \
    {name, CLI_REAL, offsetof(options, field), argument, normal, 0, most, help}
#define CLI_FLAG(name, field, help) \
    {name, CLI_SWITCH, offsetof(options, field), "", NULL, 0, 1, help}

/* The machine a job runs on: `options` has a field `machine` for the rows of CLI_MACHINE. */
typedef struct cli_machine {
    char *device, *graph, *sums, *trace, *chakra;
    int64_t ranks, threads, repro_shards, timeout, exact, tf32, check_finite, trace_spans;
    int saved_leaves; /* repro_shards is that of a checkpoint: see cli_choose_leaves */
} cli_machine;
enum { CLI_LEAVES = 8 }; /* the bits of a run are the same on up to so many ranks */
#define CLI_MACHINE                                                                            \
    CLI_GROUP("Machine"),                                                                      \
    CLI_COUNT("ranks", machine.ranks, "W", "1", 1, 1024,                                       \
              "ranks that are threads; mpirun --oversubscribe -n W (MPICH: mpirun -n W) "      \
              "starts as many processes of a program that make mpi has built"),                \
    CLI_COUNT("threads", machine.threads, "N", NULL, 0, 256,                                   \
              "of each rank; 0: the cores of the machine, shared among its ranks (where OpenMPI "\
              "binds a rank to one core, mpirun --bind-to none frees it)"),                    \
    CLI_COUNT("timeout", machine.timeout, "SECONDS", "60", 0, 2e6,                             \
              "a rank that waits longer for another ends the run, while one saves or loads after "\
              "ten times as long; 0: it waits for ever"),                                      \
    CLI_COUNT("repro-shards", machine.repro_shards, "V", NULL, 0, 4096,                        \
              "*leaves of a batch, whose gradients add by a fixed tree: no bit depends on the " \
              "ranks, of which there may be as many; ranks that divide V have even parts. 0: of " \
              "dlrm 8, on a GPU without --exact 16, or the ranks where they are more; of gpt " \
              "the ranks; with --resume the checkpoint's"),                                    \
    CLI_TEXT("device", machine.device, "NAME", "cpu",                                          \
             "cpu; cuda: the GPUs, one for each rank in turn; cuda:1 ...: that GPU for all"),  \
    CLI_FLAG("exact", machine.exact,                                                           \
             "*on a GPU: the bits of the CPU, slower; without, `deterministic` ones"),         \
    CLI_FLAG("tf32", machine.tf32,                                                             \
             "*on a GPU: matrix products of operands rounded to TF32; not with --exact"),      \
    CLI_TEXT("graph", machine.graph, "G", "on", "on a GPU: on (a step is one launch) or off"), \
    CLI_TEXT("sums", machine.sums, "S", "tree",                                                \
             "*over NCCL: tree, with the bits of any number of ranks, or nccl: its own all-reduce "\
             "and reduce-scatter, whose bits depend on the ranks and how they are linked"),    \
    CLI_FLAG("check-finite", machine.check_finite,                                             \
             "look at all numbers: the first NaN or infinity ends the run and is named; slower. " \
             "NEO_CHECK_FINITE=1 in the environment does the same"),                           \
    CLI_TEXT("trace", machine.trace, "FILE", NULL,                                             \
             "the time of compute, communication and waits of every rank and thread, as a "    \
             "Chrome trace: ui.perfetto.dev draws it"),                                        \
    CLI_TEXT("chakra", machine.chakra, "PREFIX", NULL,                                         \
             "the same as Chakra's execution traces, PREFIX.<rank>.et, for simulators"),       \
    CLI_COUNT("trace-spans", machine.trace_spans, "N", "200000", 1, 1e9,                       \
              "room for N spans of each rank, 152 bytes each; later ones are dropped")

/* The checkpoints of a run: a field `saves` for the rows of CLI_SAVES. */
typedef struct cli_saves {
    char *dir, *digests;
    int64_t every, behind, resume, digest_every;
} cli_saves;
#define CLI_SAVES                                                                              \
    CLI_GROUP("Checkpoints"),                                                                  \
    CLI_TEXT("checkpoint", saves.dir, "DIR", NULL,                                             \
             "save here at the end; the newest two stay; a run that has diverged ends unsaved"), \
    CLI_COUNT("every", saves.every, "N", NULL, 0, 1e12, "and every N steps"),                  \
    CLI_FLAG("checkpoint-async", saves.behind,                                                 \
             "write them while training goes on: of tables, rows that change meanwhile are "   \
             "copied; of a GPU, and of dense layers, all is"),                                 \
    CLI_FLAG("resume", saves.resume,                                                           \
             "go on from the newest checkpoint, or from best/ if that is all there is"),       \
    CLI_TEXT("digests", saves.digests, "PREFIX", NULL,                                         \
             "write the digest of every tensor to PREFIX.<rank>: where the bits of two runs "  \
             "part, build/diff PREFIX PREFIX2 names the step and the tensor"),                 \
    CLI_COUNT("digest-every", saves.digest_every, "N", "100", 1, 1e12,                         \
              "of --digests: after every N steps")

/* Curves in TensorBoard: a field `board` for the rows of CLI_BOARD. */
typedef struct cli_board {
    char *dir;
    int64_t histograms;
} cli_board;
#define CLI_BOARD                                                                              \
    CLI_TEXT("tensorboard", board.dir, "DIR", NULL,                                            \
             "loss, metrics, learning rate and throughput as curves of TensorBoard: "          \
             "tensorboard --logdir DIR"),                                                      \
    CLI_COUNT("histograms", board.histograms, "N", NULL, 0, 1e12,                              \
              "there too, every N steps: how large weights and gradients of each dense layer are")

typedef struct cli_program {
    const char *name, *about;
    const cli_option *options;
    int option_count;
    const struct cli_preset *presets; /* of --preset; ended by one without a name; or NULL */
} cli_program;

/* Values that stand in for the defaults of options, as --preset NAME asks. */
typedef struct cli_preset {
    const char *name;
    const char *values[32]; /* option, value, option, value ..., NULL */
} cli_preset;

static neo_status cli_set(const cli_option *option, void *values, const char *text) {
    char *end = NULL, *field = (char *)values + option->offset;
    int64_t whole = 0;
    double value;
    if (option->kind == CLI_WORD) {
        memcpy(field, &text, sizeof text);
        return NEO_OK;
    }
    const double least = option->least < 0 ? 0 : option->least;
    if (option->least < 0 && strcmp(text, "auto") == 0) {
        whole = CLI_AUTO;
        memcpy(field, &whole, sizeof whole);
        return NEO_OK;
    }
    errno = 0;
    if (option->kind == CLI_REAL) value = strtod(text, &end);
    else value = (double)(whole = strtoll(text, &end, 10));
    if (strcmp(option->argument, "BYTES") == 0 && end > text && *end) { /* 64M */
        const char *units = "KMGT", *unit = strchr(units, *end);
        for (const char *u = units; unit && value <= option->most && u <= unit; u++)
            value = (double)(whole *= 1024);
        if (unit) end += strncmp(end + 1, "iB", 2) ? 1 : 3; /* 64MiB, as plan has it */
    }
    if (end == text || *end || errno || !(value >= 0 && value <= option->most))
        REFUSE("--%s %s: not %s number from %g to %.0f%s", option->name, text,
               option->kind == CLI_REAL ? "a" : "a whole", least, option->most,
               option->least < 0 ? ", nor auto"
               : strcmp(option->argument, "BYTES") ? ""
                                                   : ", maybe with K, M, G or T (or KiB ...)");
    if (value < least) REFUSE("--%s must be at least %.0f", option->name, least);
    if (option->kind == CLI_REAL) memcpy(field, &value, sizeof value);
    else memcpy(field, &whole, sizeof whole);
    return NEO_OK;
}

static neo_status cli_defaults(const cli_program *p, void *values) {
    for (int i = 0; i < p->option_count; i++)
        if (p->options[i].normal) TRY(cli_set(&p->options[i], values, p->options[i].normal));
    return NEO_OK;
}

static const cli_option *cli_find(const cli_program *p, const char *word) {
    for (int i = 0; i < p->option_count; i++)
        if (p->options[i].kind != CLI_HEADING && strncmp(word, "--", 2) == 0 &&
            strcmp(word + 2, p->options[i].name) == 0)
            return &p->options[i];
    return NULL;
}

/* The options that the command line gives, by their places in the table; those of a preset are not
   given. */
enum { CLI_MOST_OPTIONS = 256 };
static struct { const cli_program *program; unsigned char given[CLI_MOST_OPTIONS]; } cli_command;
static int cli_is_given(const char *name) {
    const cli_program *p = cli_command.program;
    for (int i = 0; p && i < p->option_count; i++)
        if (cli_command.given[i] && strcmp(p->options[i].name, name) == 0) return 1;
    return 0;
}

/* Opens what the caller has closed of standard input, output and errors: a file of the run would
   get its number, and the run's messages. */
static void cli_open_standard(void) {
#if !defined(_WIN32)
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
#endif
}

/* The option that was last given again with another value, or "". Rank 0 warns of it. */
static char cli_twice[64];

static void cli_look_for_twice(const cli_program *p, int argc, char **argv, int at) {
    for (int i = 1; i < at; i++) {
        const cli_option *option = cli_find(p, argv[i]);
        if (!option || option->kind == CLI_SWITCH) continue;
        if (++i < at && strcmp(argv[i - 1], argv[at]) == 0 && at + 1 < argc &&
            strcmp(argv[i], argv[at + 1]))
            snprintf(cli_twice, sizeof cli_twice, "%s", argv[at]);
    }
}

/* The last --preset of the command line, wherever it stands: the values of all other options come
   after it. */
static neo_status cli_apply_preset(const cli_program *p, int argc, char **argv, void *values) {
    const char *name = NULL;
    char word[40];
    for (int i = 1; p->presets && i < argc; i++) {
        const cli_option *option = cli_find(p, argv[i]);
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return NEO_OK;
        if (!option || option->kind == CLI_SWITCH || i + 1 == argc) continue;
        if (strcmp(argv[i++], "--preset") == 0) name = argv[i];
    }
    if (!name) return NEO_OK;
    for (const cli_preset *preset = p->presets; preset->name; preset++) {
        if (strcmp(preset->name, name)) continue;
        for (const char *const *v = preset->values; *v; v += 2) {
            snprintf(word, sizeof word, "--%s", v[0]);
            const cli_option *option = cli_find(p, word);
            if (!option) REFUSE("--preset %s: no option %s", name, word);
            TRY(cli_set(option, values, v[1]));
        }
        return NEO_OK;
    }
    REFUSE("--preset %s: there is none of that name (--help lists them)", name);
}

/* Letters to change, insert or leave out to make b of a. */
static int cli_distance(const char *a, const char *b) {
    int row[40], length = (int)strlen(b);
    if (length > 39) return length;
    for (int k = 0; k <= length; k++) row[k] = k;
    for (; *a; a++) {
        int corner = row[0]++;
        for (int k = 0; k < length; k++) {
            int change = corner + (*a != b[k]), least = row[k] < row[k + 1] ? row[k] : row[k + 1];
            corner = row[k + 1];
            row[k + 1] = change < least + 1 ? change : least + 1;
        }
    }
    return row[length];
}

/* The option that a word was meant to be, or NULL. */
static const cli_option *cli_nearest(const cli_program *p, const char *word) {
    const cli_option *nearest = NULL;
    int best = 3;
    while (*word == '-') word++;
    for (int i = 0; i < p->option_count; i++) {
        int distance = cli_distance(word, p->options[i].name);
        if (p->options[i].kind == CLI_HEADING || distance >= best ||
            2 * distance >= (int)strlen(p->options[i].name))
            continue;
        best = distance, nearest = &p->options[i];
    }
    return nearest;
}

/* Sets `values`, beginning with the defaults; stops at --help. */
static neo_status cli_parse(const cli_program *p, int argc, char **argv, void *values, int *help) {
    cli_open_standard();
    cli_command.program = p;
    TRY(cli_defaults(p, values));
    TRY(cli_apply_preset(p, argc, argv, values));
    for (int i = 1; i < argc; i++) {
        const cli_option *option = cli_find(p, argv[i]);
        *help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (*help) return NEO_OK;
        const cli_option *nearest = option ? NULL : cli_nearest(p, argv[i]);
        if (nearest && !strchr(argv[i], '='))
            REFUSE("%s: no such option; did you mean --%s? (--help lists them)", argv[i],
                   nearest->name);
        if (!option)
            REFUSE("%s: no such option%s (--help lists them)", argv[i],
                   argv[i][0] != '-'       ? ", which begin with --" :
                   strchr(argv[i], '=')    ? "; a value is a word of its own, behind a blank" :
                                             "");
        if (option - p->options < CLI_MOST_OPTIONS) cli_command.given[option - p->options] = 1;
        if (option->kind == CLI_SWITCH) TRY(cli_set(option, values, "1"));
        else if (i + 1 == argc) REFUSE("--%s: needs a value", option->name);
        else if (cli_find(p, argv[i + 1]))
            REFUSE("--%s: needs a value, not the option %s", option->name, argv[i + 1]);
        else {
            cli_look_for_twice(p, argc, argv, i);
            TRY(cli_set(option, values, argv[++i]));
        }
    }
    return NEO_OK;
}

/* Prints words in columns [indent, width), over several lines. */
static void cli_print_wrapped(const char *words, int indent, int width) {
    int column = indent;
    while (*words) {
        int length = (int)strcspn(words, " ");
        if (column > indent && column + 1 + length > width) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        printf("%s%.*s", column > indent ? " " : "", length, words);
        column += length + (column > indent);
        words += length + (words[length] == ' ');
    }
    printf("\n");
}

static void cli_print_help(const cli_program *p) {
    char text[512];
    printf("%s: %s\n", p->name, p->about);
    for (int i = 0; i < p->option_count; i++) {
        const cli_option *o = &p->options[i];
        if (o->kind == CLI_HEADING) {
            printf("\n%s\n", o->name);
            continue;
        }
        snprintf(text, sizeof text, o->normal ? "%s [%s]" : "%s", o->help, o->normal);
        printf("  --%s %-*s ", o->name, 22 - (int)strlen(o->name), o->argument);
        cli_print_wrapped(text, 28, 100);
    }
    for (const cli_preset *preset = p->presets; preset && preset->name; preset++) {
        printf("\n--preset %s:\n ", preset->name);
        for (const char *const *v = preset->values; *v; v += 2) printf(" --%s %s", v[0], v[1]);
        printf("\n");
    }
    printf("\nCtrl-C and SIGTERM end a run after the step it is at, with its checkpoint, log and "
           "report;\nthe exit status is then 128 + the signal. A second one ends it at once, also "
           "where it waits for a\npipe. OpenMPI's mpirun kills a second after it: --mca "
           "odls_base_sigkill_timeout 60 gives a large\ncheckpoint a minute.\n");
    printf("\n[]: the default.\n"
           "*: part of the numeric definition: a run that is resumed needs the same value.\n"
           "NEO_ISA=scalar|avx2|avx512|avx512bf16|amx|neon in the environment forces an "
           "instruction set.\n");
}

static neo_status cli_check_either(const char *option, const char *value, const char *first,
                                   const char *second) {
    if (strcmp(value, first) == 0 || strcmp(value, second) == 0) return NEO_OK;
    REFUSE("--%s %s: neither %s nor %s", option, value, first, second);
}

static neo_status cli_check_saves(const cli_saves *s) {
    if ((s->resume || s->every || s->behind) && !s->dir)
        REFUSE("--%s needs --checkpoint",
               s->resume ? "resume" : s->every ? "every" : "checkpoint-async");
    if (s->dir && !s->dir[0]) REFUSE("--checkpoint needs the name of a directory");
    if (cli_is_given("digest-every") && !s->digests) REFUSE("--digest-every needs --digests");
    return NEO_OK;
}

static neo_status cli_check_machine(const cli_machine *m) {
    const int on_cpu = strcmp(m->device, "cpu") == 0;
    TRY(cli_check_either("graph", m->graph, "on", "off"));
    if (m->exact && m->tf32)
        REFUSE("--tf32 and --exact: TF32 has not the bits of the CPU: give one of them");
    if (on_cpu && (m->tf32 || m->exact || strcmp(m->graph, "on")))
        REFUSE("--%s is for a GPU: give --device cuda, too, or leave it out",
               m->tf32 ? "tf32" : m->exact ? "exact" : "graph off");
    if (cli_is_given("trace-spans") && !m->trace && !m->chakra)
        REFUSE("--trace-spans needs --trace or --chakra");
    return NEO_OK;
}

static neo_status cli_check_board(const cli_board *b, const cli_machine *machine) {
    if (b->histograms && !b->dir) REFUSE("--histograms needs --tensorboard");
    if (b->histograms && strcmp(machine->device, "cpu"))
        REFUSE("--histograms are of layers on the CPU, not on --device %s", machine->device);
    return NEO_OK;
}

/* --load is of a file that is there, also of a run that ends before it is read. */
static neo_status cli_check_load(const char *path) {
    int64_t step;
    if (!path) return NEO_OK;
    if (neo_find_checkpoint(path, &step) != NEO_OK) {
        FILE *f = fopen(path, "rb");
        if (!f) return neo_fail(NEO_ERR_NOT_FOUND, "--load %s: %s", path, strerror(errno));
        (void)fclose(f);
        return NEO_OK;
    }
    REFUSE("--load %s: checkpoints of a run, not a safetensors file: give them by --checkpoint "
           "(a gpt's with --resume), or make a file of them: build/merge %s FILE", path, path);
}
#endif
