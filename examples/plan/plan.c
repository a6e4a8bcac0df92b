/* plan: where to put the embedding tables of a model on a cluster. Reads a model and a cluster as
   text (read.h has their format), searches a plan and prints it: what lies where, what every rank
   holds, what a step will take.

     make
     build/plan examples/plan/models/a1.model examples/plan/clusters/zionex.cluster --verbose */
#include "sets.h"
#include "show.h"

/* ---- a generated set as a model file ---- */
static int print_set(const char *name) {
    static plan_set_table t[PLAN_SET_MOST];
    for (int i = 0; i < PLAN_SET_COUNT; i++) {
        const plan_set *set = &PLAN_SETS[i];
        if (strcmp(set->name, name) != 0) continue;
        plan_set_make(set, t);
        printf("# %s: %d generated tables with %.4g parameters, %g columns and %g ids per bag in "
               "the mean, and\n", name, set->tables, set->parameters, set->dim, set->pooling);
        printf("# %g MFLOP per sample in dense layers (a fifth of them in the bottom MLP). Written "
               "by plan --set %s.\n", set->mflops, name);
        printf("batch 65536\nbottom_flops %g\ntop_flops %g\n", 0.2e6 * set->mflops,
               0.8e6 * set->mflops);
        printf("wire bf16 bf16\noptimizer rowwise_adagrad\n");
        for (int k = 0; k < set->tables; k++) {
            printf("table %s_%04d %lldx%lld %lld", name, k, (long long)t[k].rows,
                   (long long)t[k].dim, (long long)t[k].pooling);
            if (t[k].row_buckets > 1) printf(" buckets=%d", t[k].row_buckets);
            printf("\n");
        }
        return 0;
    }
    fprintf(stderr, "plan: --set %s: not a1, a2, f1 or i1\n", name);
    return 1;
}

static const char HELP[] =
    "plan MODEL CLUSTER [options]: where to put the tables of a model; examples/plan/read.h has "
    "the format of the files\n\n"
    "  --verbose        every table, with why it lies so and not otherwise; every rank\n"
    "  --memory 32GiB   of a rank, instead of what the cluster file says\n"
    "  --all tw         every table by one placement: tw, cw, rw, dp, twrw, twcw or grid\n"
    "  --plan FILE      no search: this plan\n"
    "  --out FILE       write the plan, for dlrm --plan FILE\n"
    "  --svg FILE       draw what every rank holds and does\n"
    "  --json           print all of it for a program\n"
    "  --calibrate      measure this machine as a rank, instead of what the cluster file says, and\n"
    "                   print it as lines of such a file\n"
    "  --set a1         print a generated model file (a1, a2, f1, i1) and stop\n";

/* Options before OPT_VERBOSE have a value. */
enum { OPT_MEMORY, OPT_ALL, OPT_PLAN, OPT_OUT, OPT_SVG, OPT_SET, OPT_VERBOSE, OPT_JSON,
       OPT_CALIBRATE, OPT_HELP, OPTIONS };
static const char *const NAMES[OPTIONS] = {
    "--memory", "--all", "--plan", "--out", "--svg", "--set", "--verbose", "--json", "--calibrate",
    "--help"};
typedef struct command {
    const char *given[OPTIONS]; /* values, or NULL */
    const char *file[2];        /* the model, the cluster */
    int files;
} command;

/* Returns 2 after an error. */
static int parse(int argc, char **argv, command *c) {
    for (int i = 1; i < argc; i++) {
        int k = 0;
        while (k < OPTIONS && strcmp(argv[i], NAMES[k])) k++;
        if (strcmp(argv[i], "-h") == 0) k = OPT_HELP;
        if (k == OPTIONS && (argv[i][0] == '-' || c->files == 2))
            return fprintf(stderr, "plan: %s: no such option (--help lists them)\n", argv[i]), 2;
        if (k < OPT_VERBOSE && i + 1 == argc)
            return fprintf(stderr, "plan: %s: needs a value\n", argv[i]), 2;
        if (k == OPTIONS) c->file[c->files++] = argv[i];
        else c->given[k] = k < OPT_VERBOSE ? argv[++i] : "";
    }
    if (!c->given[OPT_PLAN] || !c->given[OPT_ALL]) return 0;
    fprintf(stderr, "plan: --plan and --all both say where tables are: leave one out\n");
    return 2;
}

static void read_job(job *j, const command *c) {
    const source option = {.path = "--memory"};
    const char *memory = c->given[OPT_MEMORY];
    double ids = 0;
    read_file(j, c->file[0], "model", model_line);
    read_file(j, c->file[1], "cluster", cluster_line);
    if (!j->bags.table_count) missing(c->file[0], "table");
    if (!j->bags.max_batch) missing(c->file[0], "batch");
    if (!j->desc.cluster.ranks) missing(c->file[1], "ranks");
    if (memory) j->desc.cluster.memory_bytes = (int64_t)number(&option, memory, 1, 1e18);
    for (int t = 0; t < j->bags.table_count; t++) ids += j->ids[t];
    j->bags.tables = j->tables;
    j->bags.max_ids = (int64_t)(ids * (double)j->bags.max_batch) + 1;
    j->desc.bags = &j->bags;
    j->desc.ids_per_sample = j->ids;
    j->desc.table_placements = j->allowed;
}

static neo_status make_plan(neo_ctx *ctx, job *j, const command *c, neo_plan **plan) {
    const char *file = c->given[OPT_PLAN], *all = c->given[OPT_ALL], *out = c->given[OPT_OUT];
    neo_placement placement = NEO_TABLE_WISE;
    neo_status status = NEO_OK;
    if (c->given[OPT_CALIBRATE]) status = neo_calibrate(ctx, &j->desc.cluster);
    if (status == NEO_OK && all) status = neo_placement_parse(all, &placement);
    if (status != NEO_OK) return status;
    if (file) status = neo_plan_read(ctx, &j->desc, file, plan);
    else if (all) status = neo_plan_create_uniform(ctx, &j->desc, placement, plan);
    else status = neo_plan_create(ctx, &j->desc, plan);
    return status == NEO_OK && out ? neo_plan_write(*plan, out) : status;
}

static int check_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return fprintf(stderr, "plan: standard output: could not be written whole\n"), 1;
}

static int show(job *j, const neo_plan *plan, const command *c) {
    if (c->given[OPT_JSON])
        print_json(j, plan);
    else {
        int verbose = c->given[OPT_VERBOSE] != NULL;
        printf("%s: %d tables on %d ranks\n", c->file[0], j->bags.table_count,
               j->desc.cluster.ranks);
        print_tables(j, plan, verbose);
        print_ranks(j, plan, verbose);
        if (c->given[OPT_CALIBRATE]) print_cluster(&j->desc.cluster);
    }
    int bad = c->given[OPT_SVG] ? write_svg(j, plan, c->given[OPT_SVG]) : 0;
    return check_stdout() || bad;
}

int main(int argc, char **argv) {
    static command c; /* zeros */
    int refused = parse(argc, argv, &c);
    if (refused) return refused;
    if (c.given[OPT_HELP]) return printf("%s", HELP), check_stdout();
    if (c.given[OPT_SET]) return print_set(c.given[OPT_SET]) || check_stdout();
    if (c.files < 2) return fprintf(stderr, "%s", HELP), 2;

    job j = {.optimizer = NEO_BAG_ROWWISE_ADAGRAD};
    neo_ctx *ctx = NULL;
    neo_plan *plan = NULL;
    read_job(&j, &c);
    neo_status status = neo_ctx_create(NULL, &ctx);
    if (status == NEO_OK) status = make_plan(ctx, &j, &c, &plan);
    int bad = status != NEO_OK;
    if (bad) fprintf(stderr, "plan: %s\n", neo_last_error());
    else bad = show(&j, plan, &c);
    neo_plan_destroy(plan);
    neo_ctx_destroy(ctx);
    for (int t = 0; t < j.bags.table_count; t++) free((void *)(uintptr_t)j.tables[t].name);
    free(j.tables);
    free(j.ids);
    free(j.allowed);
    return bad;
}
