/* plan: where to put the embedding tables of a model on a cluster. Reads a model and a cluster as
   text (read.h has their format), searches a plan and prints it: what lies where, what every rank
   holds, what a step will take.

     make
     build/plan examples/plan/models/a1.model examples/plan/clusters/zionex.cluster --verbose
     build/plan examples/plan/models/a1.model examples/plan/clusters/zionex.cluster \
         --ranks 8..4096 --sweep --set cross.bandwidth=25e9 */
#include "disk.h" /* first: it asks the system for more */
#include "../train/device.h"
#include "../train/same_file.h"
#include "sets.h"
#include "sweep.h"
#include "timeline.h"
#include "risk.h"
#include "links.h"
#include <signal.h>

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
        printf("dense_params %g # each multiplied once for a sample\n", 0.5e6 * set->mflops);
        printf("wire bf16 bf16\noptimizer rowwise_adagrad\n");
        for (int k = 0; k < set->tables; k++) {
            printf("table %s_%04d %lldx%lld %lld", name, k, (long long)t[k].rows,
                   (long long)t[k].dim, (long long)t[k].pooling);
            if (t[k].row_buckets > 1) printf(" buckets=%d", t[k].row_buckets);
            printf("\n");
        }
        return 0;
    }
    fprintf(stderr, "plan: --set %s: neither WHAT=VALUE, as batch=64K, nor a1, a2, f1 or i1\n",
            name);
    return 1;
}

static const char HELP[] =
    "plan MODEL CLUSTER [options]: where to put the tables of a model; examples/plan/read.h has "
    "the format of the files\n\n"
    "  --verbose        every table, with why it lies so and not otherwise; every rank\n"
    "  --memory 32GiB   of a rank, instead of what the cluster file says. K, M, G and T of bytes\n"
    "                   are powers of 1024, as KiB, MiB ..., of all else of 1000\n"
    "  --profile FILE   how often rows are used, as dlrm --save-profile counts it: for tiers, and\n"
    "                   to say how many are worth a copy on every rank, or in each node, and what\n"
    "                   they take, for dlrm --hot-rows auto --warm-rows auto; of one plan\n"
    "  --all tw         every table by one placement: tw, cw, rw, dp, twrw, twcw or grid\n"
    "  --plan FILE      no search: this plan\n"
    "  --out FILE       write the plan, for dlrm --plan FILE\n"
    "  --set WHAT=VALUE what if: any line or number of the files, as cross.bandwidth=25e9; often\n"
    "  --svg FILE       draw what every rank holds and does\n"
    "  --timeline FILE  draw the tasks of a step (.svg), or write them as a Chrome trace (.json)\n"
    "  --sweep          for ranks that double: a step, its memory and bytes, and where more ranks\n"
    "                   stop being worth it; a table (--json, --svg: for a program, drawn)\n"
    "  --ranks 8..4096  those of a sweep, by default these; one number: the ranks, instead of the\n"
    "                   cluster file's\n"
    "  --weak           a sweep's batch grows with the ranks, from that of the files\n"
    "  --replicas R     groups of ranks that hold all tables each, as dlrm --replicas; auto: the\n"
    "                   number with the shortest step, and a table of those tried\n"
    "  --sync-every K   of replicas: steps between two averages; 1 (all gradients reach all)\n"
    "  --risk           quantiles of a step, and of a week what counts: by the cluster file's\n"
    "                   jitter, failures and checkpoint\n"
    "  --json           print all of it for a program\n"
    "  --calibrate      measure this machine as a rank instead of what the cluster file says, and\n"
    "                   print it behind the plan, from memory_bandwidth on, as lines for such a\n"
    "                   file in place of its own; mpirun ... plan_mpi: its links, too\n"
    "  --disk FILE      of --calibrate: measures the tier disk, too, by a file that is made there\n"
    "  --device D       of --calibrate: cpu, cuda (links between all GPUs here, too) or cuda:N: a\n"
    "                   GPU's figures, by build/plan_cuda, or with mpirun build/plan_nccl\n"
    "  --set a1         print a generated model file (a1, a2, f1, i1) and stop\n"
    "  --sets CLUSTER   all four there, beside what is recalled of the models they stand for\n";

/* Options before OPT_VERBOSE have a value. */
enum { OPT_MEMORY, OPT_ALL, OPT_PLAN, OPT_OUT, OPT_SVG, OPT_TIMELINE, OPT_RANKS, OPT_SETS, OPT_SET,
       OPT_PROFILE, OPT_REPLICAS, OPT_SYNC, OPT_DISK, OPT_DEVICE, OPT_VERBOSE, OPT_JSON,
       OPT_CALIBRATE, OPT_SWEEP, OPT_WEAK, OPT_RISK, OPT_HELP, OPTIONS };
static const char *const NAMES[OPTIONS] = {
    "--memory", "--all", "--plan", "--out", "--svg", "--timeline", "--ranks", "--sets", "--set",
    "--profile", "--replicas", "--sync-every", "--disk", "--device", "--verbose", "--json",
    "--calibrate", "--sweep", "--weak", "--risk", "--help"};
enum { MOST_SETS = 64 };
typedef struct command {
    const char *given[OPTIONS]; /* values, or NULL */
    const char *file[2];        /* the model, the cluster */
    const char *set[MOST_SETS]; /* what if */
    int files, sets, first, last; /* ranks of a sweep */
    int groups, ranks, per_node;  /* replicas, 0: auto; and all ranks */
    links links;
    device_choice device;
} command;

/* What belongs to a sweep and what does not. Returns 2 after an error. */
static int parse_sweep(command *c) {
    static const int alone[] = {OPT_PLAN,    OPT_OUT,       OPT_TIMELINE,
                                OPT_VERBOSE, OPT_CALIBRATE, OPT_RISK};
    const char *ranks = c->given[OPT_RANKS];
    for (int i = 0; c->given[OPT_SWEEP] && i < 6; i++)
        if (c->given[alone[i]])
            return fprintf(stderr, "plan: %s: of one plan, not of a --sweep\n", NAMES[alone[i]]), 2;
    if (c->given[OPT_SWEEP] && !sweep_range(ranks ? ranks : "8..4096", &c->first, &c->last))
        return fprintf(stderr, "plan: --sweep: wants --ranks FIRST..LAST, of 1 to 4096 and FIRST "
                       "not above LAST, not '%s'\n", ranks), 2;
    if (!c->given[OPT_SWEEP] && ranks && strstr(ranks, ".."))
        return fprintf(stderr, "plan: --ranks %s: a range belongs to a --sweep\n", ranks), 2;
    if (c->given[OPT_RISK] && c->given[OPT_JSON])
        return fprintf(stderr, "plan: --risk: prints no --json\n"), 2;
    if (!c->given[OPT_SWEEP] && c->given[OPT_WEAK])
        return fprintf(stderr, "plan: --weak: belongs to a --sweep\n"), 2;
    if (c->given[OPT_TIMELINE] && timeline_ending(c->given[OPT_TIMELINE])) return 2;
    return 0;
}
/* The sets are models of their own. Returns 2 after an error. */
static int parse_sets(const command *c) {
    for (int k = 0; c->given[OPT_SETS] && k < OPT_HELP; k++)
        if (c->given[k] && k != OPT_SETS && k != OPT_ALL)
            return fprintf(stderr, "plan: %s: of one model, not of --sets\n", NAMES[k]), 2;
    if (c->given[OPT_SETS] && c->files)
        return fprintf(stderr, "plan: %s: leave it out: --sets has models of its own\n",
                       c->file[0]), 2;
    return 0;
}
/* A file that is read is not written, and each that is written is one. Returns 2 after an error. */
static int parse_files(const command *c) {
    const int writes[] = {OPT_OUT, OPT_SVG, OPT_TIMELINE, OPT_DISK};
    const char *reads[] = {c->file[0], c->file[1], c->given[OPT_SETS], c->given[OPT_PLAN],
                           c->given[OPT_PROFILE]};
    for (int i = 0; i < 4; i++) {
        const char *name = c->given[writes[i]], *option = NAMES[writes[i]];
        for (int k = 0; k < 5; k++)
            if (name && reads[k] && is_same_file(name, reads[k]))
                return fprintf(stderr, "plan: %s %s: is read, too: give another name\n", option,
                               name), 2;
        for (int k = 0; k < i; k++)
            if (name && c->given[writes[k]] && is_same_file(name, c->given[writes[k]]))
                return fprintf(stderr, "plan: %s %s: is written by %s, too: give another name\n",
                               option, name, NAMES[writes[k]]), 2;
    }
    return 0;
}
/* Says that there is no such option, and which one begins alike. Returns 2. */
static int no_option(const char *given) {
    int k = 0;
    while (k < OPTIONS && strncmp(given, NAMES[k], 5)) k++;
    return fprintf(stderr, "plan: %s: no such option%s%s%s (--help lists them)\n", given,
                   k < OPTIONS ? "; did you mean " : "", k < OPTIONS ? NAMES[k] : "",
                   k < OPTIONS ? "?" : ""), 2;
}
/* Returns 2 after an error. */
static int parse(int argc, char **argv, command *c) {
    for (int i = 1; i < argc; i++) {
        int k = 0;
        while (k < OPTIONS && strcmp(argv[i], NAMES[k])) k++;
        if (strcmp(argv[i], "-h") == 0) k = OPT_HELP;
        if (k == OPTIONS && (argv[i][0] == '-' || c->files == 2)) return no_option(argv[i]);
        if (k < OPT_VERBOSE && i + 1 == argc)
            return fprintf(stderr, "plan: %s: needs a value\n", argv[i]), 2;
        if (k == OPTIONS) c->file[c->files++] = argv[i];
        else c->given[k] = k < OPT_VERBOSE ? argv[++i] : "";
        if (k != OPT_SET || !strchr(argv[i], '=')) continue;
        c->given[k] = NULL;
        if (c->sets == MOST_SETS)
            return fprintf(stderr, "plan: --set is given more than %d times\n", MOST_SETS), 2;
        c->set[c->sets++] = argv[i];
    }
    if (c->given[OPT_PLAN] && c->given[OPT_ALL]) {
        fprintf(stderr, "plan: --plan and --all both say where tables are: leave one out\n");
        return 2;
    }
    if (c->given[OPT_DEVICE] && !c->given[OPT_CALIBRATE])
        return fprintf(stderr, "plan: --device: is of --calibrate\n"), 2;
    c->device.name = c->given[OPT_DEVICE] ? c->given[OPT_DEVICE] : "cpu";
    if (device_check(c->device.name) != NEO_OK)
        return fprintf(stderr, "plan: %s\n", neo_last_error()), 2;
    return parse_files(c) || parse_sweep(c) || parse_sets(c) ? 2 : 0;
}

/* What follows from the numbers of the files. */
static void finish_job(job *j) {
    double ids = 0;
    for (int t = 0; t < j->bags.table_count; t++) ids += j->ids[t];
    j->bags.tables = j->tables;
    j->bags.max_ids = (int64_t)(ids * (double)j->bags.max_batch) + 1;
    j->desc.bags = &j->bags;
    j->desc.ids_per_sample = j->ids;
    j->desc.table_placements = j->allowed;
    if (j->unit_count) j->desc.dense_params = 0;
    if (j->unit_count) j->desc.dense_flops_bottom = j->desc.dense_flops_top = 0;
    j->desc.dense_values = 0;
    for (int i = 0; i < j->unit_count; i++) {
        const neo_dense_unit *u = &j->units[i];
        j->desc.dense_params += u->params;
        for (int k = 0; k < u->width_count; k++) j->desc.dense_values += (double)u->widths[k];
        *(u->after ? &j->desc.dense_flops_top : &j->desc.dense_flops_bottom) += u->flops;
    }
}
static void read_replicas(job *j, command *c) {
    static const source of[] = {{.path = "--replicas"}, {.path = "--sync-every"}};
    const char *groups = c->given[OPT_REPLICAS], *every = c->given[OPT_SYNC];
    c->groups = 1;
    if (groups)
        c->groups = strcmp(groups, "auto") ? (int)whole(&of[0], groups, 1, 4096) : 0;
    if (every) j->desc.sync_every = (int32_t)whole(&of[1], every, 1, 1e9);
    if (every && c->groups == 1) fail_at(&of[1], "is of --replicas", "");
    c->ranks = j->desc.cluster.ranks, c->per_node = j->desc.cluster.ranks_per_node;
    if (c->groups > 1 && !c->given[OPT_SWEEP] && !sweep_groups(c->ranks, c->per_node, c->groups))
        fail_at(&of[0], "the ranks are not so many groups, of nodes or inside of nodes:", groups);
    if (c->groups > 1 && !c->given[OPT_SWEEP])
        sweep_cluster(j, c->ranks, c->per_node, c->groups);
}
static void read_job(job *j, command *c) {
    const source option = {.path = "--memory"}, size = {.path = "--ranks"},
                 disk = {.path = "--disk"};
    const char *memory = c->given[OPT_MEMORY];
    read_file(j, c->file[0], "model", model_line);
    read_file(j, c->file[1], "cluster", cluster_line);
    if (!j->bags.table_count) missing(c->file[0], "table");
    if (!j->bags.max_batch) missing(c->file[0], "batch");
    if (!j->desc.cluster.ranks) missing(c->file[1], "ranks");
    if (memory) j->desc.cluster.memory_bytes = (int64_t)number_of(&option, memory, 1, 1, 1e18);
    if (c->given[OPT_RANKS] && !c->given[OPT_SWEEP])
        j->desc.cluster.ranks = (int32_t)whole(&size, c->given[OPT_RANKS], 1, 4096);
    for (int i = 0; i < c->sets; i++) what_if(j, c->set[i]);
    read_replicas(j, c);
    if (c->given[OPT_DISK] && (!c->given[OPT_CALIBRATE] || !j->desc.cluster.file_bytes))
        fail_at(&disk, "is of --calibrate, and a cluster with a tier disk", "");
    if (j->unit_count && (j->desc.dense_params || j->desc.dense_flops_bottom > 0 ||
                          j->desc.dense_flops_top > 0)) {
        fprintf(stderr, "plan: %s: has units and also bottom_flops, top_flops or dense_params\n",
                c->file[0]);
        exit(1);
    }
    finish_job(j);
}

/* The tiers' memory, as one rank has it; its file is not made. And the profile. */
static neo_status open_tiers(neo_ctx *ctx, job *j, const command *c, neo_tier **tier,
                             neo_profile **profile) {
    const char *file = c->given[OPT_PROFILE];
    j->tier.path = "tier";
    j->tier.prefetch = j->desc.pipeline;
    if (j->desc.cluster.file_bytes && !j->tier.memory_bytes)
        return neo_fail(NEO_ERR_ARG, "tier disk: the cluster has no tier dram");
    if (file && c->given[OPT_REPLICAS])
        return neo_fail(NEO_ERR_ARG, "--profile does not go with --replicas: no rows of theirs get "
                        "copies, nor is there a tier");
    if (file && c->given[OPT_SWEEP] && !j->tier.memory_bytes)
        return neo_fail(NEO_ERR_ARG, "--profile: a --sweep without a tier does not read it: rows "
                        "worth copies are of one plan");
    neo_status status = j->tier.memory_bytes ? neo_tier_create(ctx, &j->tier, tier) : NEO_OK;
    if (status == NEO_OK && file) status = neo_profile_read(ctx, file, profile);
    j->bags.tier = *tier;
    int32_t known = 0;
    int64_t groups, rows;
    for (int32_t t = 0; *profile && t < j->bags.table_count; t++) {
        const neo_table_desc *table = &j->tables[t];
        if (!neo_profile_uses(*profile, table->name, &groups, &rows, NULL)) continue;
        if (rows != table->rows)
            return neo_fail(NEO_ERR_MISMATCH, "--profile %s: it has table '%s' of %lld rows, the "
                            "model of %lld", file, table->name, (long long)rows,
                            (long long)table->rows);
        known++;
    }
    if (*profile && !known)
        return neo_fail(NEO_ERR_MISMATCH, "--profile: it has none of the tables of the model");
    j->profile = *profile;
    j->desc.profile = *tier ? *profile : NULL;
    return status;
}

/* Of a GPU, and of its host's memory, or of ctx. */
static neo_status calibrate(neo_ctx *ctx, job *j, const command *c) {
    neo_cluster *to = &j->desc.cluster;
    device_choice choice = c->device;
    neo_ctx_desc desc = {.threads = neo_ctx_threads(ctx)};
    neo_ctx *on = NULL;
    neo_status status = device_open(0, 0, &choice, &desc.device);
    j->on_device = desc.device != NULL; /* whatever the file was of */
    if (!desc.device) return status == NEO_OK ? neo_calibrate(ctx, to) : status;
    status = neo_ctx_create(&desc, &on);
    if (status == NEO_OK) status = neo_calibrate(on, to);
    if (status == NEO_OK) status = disk_measure(on, NULL, &to->host_bandwidth, &to->host_row_us);
    neo_ctx_destroy(on);
    device_close(desc.device);
    return status;
}
static neo_status make_plan(neo_ctx *ctx, job *j, const void *user, neo_plan **plan) {
    const command *c = user;
    const char *file = c->given[OPT_PLAN], *all = c->given[OPT_ALL], *out = c->given[OPT_OUT];
    neo_placement placement = NEO_TABLE_WISE;
    neo_status status = NEO_OK;
    if (c->given[OPT_CALIBRATE]) status = calibrate(ctx, j, c);
    if (status == NEO_OK && c->given[OPT_DISK])
        status = disk_measure(NULL, c->given[OPT_DISK], &j->desc.cluster.file_bandwidth,
                              &j->desc.cluster.file_row_us);
    for (int level = 0; level < NEO_LEVEL_COUNT; level++)
        if (c->links.link[level].bandwidth > 0) {
            j->desc.cluster.link[level] = c->links.link[level];
            memcpy(j->desc.cluster.link_us[level], c->links.us[level], sizeof c->links.us[level]);
        }
    j->threads = neo_ctx_threads(ctx);
    if (status == NEO_OK && all) status = neo_placement_parse(all, &placement);
    if (status != NEO_OK) return status;
    const int is_word = file && neo_placement_parse(file, &placement) == NEO_OK;
    if (file) status = neo_plan_read(ctx, &j->desc, file, plan);
    else if (all) status = neo_plan_create_uniform(ctx, &j->desc, placement, plan);
    else status = neo_plan_create(ctx, &j->desc, plan);
    if (status == NEO_ERR_NOT_FOUND && is_word)
        return neo_fail(status, "--plan %s: no file; one placement of all tables is --all %s",
                        file, file);
    return status == NEO_OK && out ? neo_plan_write(*plan, out) : status;
}

static int check_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return fprintf(stderr, "plan: standard output: could not be written whole\n"), 1;
}

static void print_measured(job *j, const command *c) {
    const int json = c->given[OPT_JSON] != NULL;
    if (!c->given[OPT_CALIBRATE]) return;
    print_cluster(j, json);
    links_print(&c->links, json);
    if (c->given[OPT_DISK]) disk_print(&j->desc.cluster, json);
    if (json) printf("}");
}
static int show(job *j, const neo_plan *plan, neo_timeline *const both[2], const command *c) {
    if (c->given[OPT_JSON]) {
        print_json(j, plan, both);
        print_measured(j, c);
        printf("}\n");
    } else {
        int verbose = c->given[OPT_VERBOSE] != NULL;
        printf("%s: %d table%s on %d rank%s\n", c->file[0], j->bags.table_count,
               PLURAL(j->bags.table_count), j->desc.cluster.ranks,
               PLURAL(j->desc.cluster.ranks));
        print_tables(j, plan, verbose);
        print_levels(j, plan);
        print_ranks(j, plan, both, verbose);
        if (c->given[OPT_RISK] && print_risk(j, both[j->desc.pipeline != 0]) != NEO_OK)
            return fprintf(stderr, "plan: --risk: %s\n", neo_last_error()), 1;
        print_measured(j, c);
    }
    int bad = c->given[OPT_SVG] ? write_svg(j, plan, c->given[OPT_SVG]) : 0;
    if (c->given[OPT_TIMELINE]) bad |= write_timeline(both, c->given[OPT_TIMELINE]);
    return check_stdout() || bad;
}
static int run_one(neo_ctx *ctx, job *j, const command *c) {
    neo_plan *plan = NULL;
    neo_timeline *both[2] = {NULL, NULL};
    neo_status status = make_plan(ctx, j, c, &plan);
    for (int i = 0; i < 2 && status == NEO_OK; i++)
        status = neo_timeline_create(plan, j->units, j->unit_count, i, &both[i]);
    int bad = status != NEO_OK;
    const char *which = status == NEO_ERR_CAPACITY && c->given[OPT_MEMORY] ? "--memory: " : "";
    if (bad) fprintf(stderr, "plan: %s%s\n", which, neo_last_error());
    else bad = show(j, plan, both, c);
    if (status == NEO_ERR_CAPACITY && !c->given[OPT_JSON]) print_measured(j, c), check_stdout();
    neo_timeline_destroy(both[0]);
    neo_timeline_destroy(both[1]);
    neo_plan_destroy(plan);
    return bad;
}
/* The best plan for so many ranks, by replicas; *all, if not NULL: one of each number of them. */
static neo_status best_replicas(neo_ctx *ctx, job *j, const command *c, int ranks, sweep *all,
                                sweep_row *best) {
    const int fits = c->groups && sweep_groups(ranks, c->per_node, c->groups),
              only = fits ? c->groups : c->groups ? 1 : 0;
    neo_status status = NEO_OK;
    int found = 0;
    for (int groups = 1; groups <= ranks && status == NEO_OK; groups++) {
        sweep_row row;
        if (!sweep_groups(ranks, c->per_node, groups) || (only && groups != only)) continue;
        memset(&row, 0, sizeof row);
        sweep_cluster(j, ranks, c->per_node, groups);
        status = sweep_fill(ctx, j, &row, j->desc.pipeline, make_plan, c);
        if (all && all->count < SWEEP_MOST) all->row[all->count++] = row;
        if (!found++ || (!row.needs && (best->needs || row.sum.seconds < best->sum.seconds)))
            *best = row;
    }
    return status;
}
static int run_replicas(neo_ctx *ctx, job *j, const command *c) {
    static sweep s;
    sweep_row best;
    if (best_replicas(ctx, j, c, c->ranks, &s, &best) != NEO_OK)
        return fprintf(stderr, "plan: --replicas %s: %s\n", c->given[OPT_REPLICAS],
                       neo_last_error()), 1;
    if (!c->given[OPT_JSON]) {
        printf("%d rank%s; %s\n\n", c->ranks, PLURAL(c->ranks),
               j->desc.pipeline ? "pipelined" : "one after another");
        sweep_rows(&s, 0);
        printf("\n");
        if (!best.needs)
            printf("shortest step: %d replica%s on %d rank%s each\n\n", best.replicas,
                   PLURAL(best.replicas), c->ranks / best.replicas,
                   PLURAL(c->ranks / best.replicas));
    }
    sweep_cluster(j, c->ranks, c->per_node, best.replicas);
    return run_one(ctx, j, c);
}
/* The sizes of a sweep, which threads share, the largest first: it takes longest. */
typedef struct sweep_work {
    sweep *s;
    const job *job;
    const command *c;
    neo_status status[SWEEP_MOST];
    char says[SWEEP_MOST][400];
} sweep_work;
static void sweep_size(void *arg, int64_t task, int worker) {
    sweep_work *w = arg;
    const int i = w->s->count - 1 - (int)task, ranks = w->c->first << i;
    job j = *w->job;
    const double batch = (double)j.bags.max_batch / j.desc.cluster.ranks;
    const neo_ctx_desc desc = {.threads = j.threads};
    neo_ctx *ctx = NULL;
    (void)worker;
    if (w->s->weak) j.bags.max_batch = (int64_t)(batch * ranks + 0.5);
    if (!j.bags.max_batch) j.bags.max_batch = 1;
    finish_job(&j);
    w->status[i] = neo_ctx_create(&desc, &ctx);
    if (w->status[i] == NEO_OK)
        w->status[i] = best_replicas(ctx, &j, w->c, ranks, NULL, &w->s->row[i]);
    snprintf(w->says[i], sizeof w->says[i], "%s", w->status[i] ? neo_last_error() : "");
    neo_ctx_destroy(ctx);
}
static int run_sweep(neo_ctx *ctx, job *j, const command *c) {
    static sweep s;
    static sweep_work w;
    neo_ctx *all = NULL;
    w = (sweep_work){.s = &s, .job = j, .c = c};
    s.weak = c->given[OPT_WEAK] != NULL;
    s.pipelined = j->desc.pipeline;
    j->threads = neo_ctx_threads(ctx);
    for (int64_t ranks = c->first; ranks <= c->last; ranks *= 2) s.count++;
    const int alone = j->threads > 1 || j->bags.tier;
    if (!alone && neo_ctx_create(&(neo_ctx_desc){0}, &all) != NEO_OK)
        return fprintf(stderr, "plan: %s\n", neo_last_error()), 1;
    if (all) neo_parallel_for(all, s.count, sweep_size, &w);
    else /* a plan's threads are no tasks' of others, and a tier is one thread's */
        for (int i = 0; i < s.count; i++) sweep_size(&w, i, 0);
    neo_ctx_destroy(all);
    for (int i = 0; i < s.count; i++)
        if (w.status[i])
            return fprintf(stderr, "plan: %d rank%s: %s\n", c->first << i, PLURAL(c->first << i),
                           w.says[i]), 1;
    sweep_judge(&s);
    if (c->given[OPT_JSON]) sweep_json(&s);
    else {
        printf("%s: %d table%s; ", c->file[0], j->bags.table_count, PLURAL(j->bags.table_count));
        sweep_print(j, &s);
    }
    int bad = c->given[OPT_SVG] ? sweep_svg(&s, c->given[OPT_SVG]) : 0;
    return check_stdout() || bad;
}

/* ---- the generated sets beside the models that they stand for ---- */
static void set_job(job *j, const plan_set *set, const char *cluster, const command *c) {
    static plan_set_table t[PLAN_SET_MOST];
    static source line = {.path = "--sets"};
    plan_set_make(set, t);
    for (int k = 0; k < set->tables; k++) {
        snprintf(line.text, TEXT, "table %s_%04d %lldx%lld %lld buckets=%d", set->name, k,
                 (long long)t[k].rows, (long long)t[k].dim, (long long)t[k].pooling,
                 t[k].row_buckets > 1 ? t[k].row_buckets : 0);
        if (t[k].row_buckets <= 1) *strstr(line.text, " buckets") = 0;
        split(&line);
        (void)model_line(j, &line);
    }
    j->bags.max_batch = 65536;
    j->desc.wire_forward = j->desc.wire_backward = NEO_WIRE_BF16;
    j->desc.dense_flops_bottom = 0.2e6 * set->mflops;
    j->desc.dense_flops_top = 0.8e6 * set->mflops;
    j->desc.dense_params = (int64_t)(0.5e6 * set->mflops);
    read_file(j, cluster, "cluster", cluster_line);
    if (!j->desc.cluster.ranks) missing(cluster, "ranks");
    for (int i = 0; i < c->sets; i++) what_if(j, c->set[i]);
    finish_job(j);
}
static void free_job(job *j) {
    for (int t = 0; t < j->bags.table_count; t++) free((void *)(uintptr_t)j->tables[t].name);
    for (int i = 0; i < j->unit_count; i++) {
        free((void *)(uintptr_t)j->units[i].name);
        free((void *)(uintptr_t)j->units[i].widths);
    }
    free(j->tables);
    free(j->ids);
    free(j->allowed);
    free(j->units);
}
static const char SETS_NOTE[] =
    "Predicted: pipelined steps of 65536 samples; fullest rank: tables and their buffers; dense\n"
    "copies: values, gradients and one state of dense layers in f32, on each rank beside that.\n"
    "Recalled of the paper on Neo, not looked up: samples/s of 128 GPUs; parameters, columns and\n"
    "ids in the mean, flops of a sample. Guessed: rows, columns and ids of each table; a fifth of\n"
    "the flops in the bottom MLP; dense parameters, half the flops; the batch. The cluster file\n"
    "says the rest.\n"
    "Distance: here gradients of dense layers are summed flat, over the links between nodes as\n"
    "fast as an all-to-all: see the steps without reductions. Not counted: the optimizer of dense\n"
    "layers, input, launches of kernels, stragglers.\n";
static int run_sets(neo_ctx *ctx, const command *c) {
    printf("set  recalled /s  predicted /s  without reductions  fullest rank  dense copies  "
           "balance\n");
    for (int i = 0; i < PLAN_SET_COUNT; i++) {
        const plan_set *set = &PLAN_SETS[i];
        job j = {.optimizer = NEO_BAG_ROWWISE_ADAGRAD};
        sweep_row row[2] = {{.batch = 65536}, {.batch = 65536}};
        neo_status status = NEO_OK;
        set_job(&j, set, c->given[OPT_SETS], c);
        int64_t params = j.desc.dense_params;
        for (int k = 0; k < 2 && status == NEO_OK; k++, j.desc.dense_params = 0)
            status = sweep_fill(ctx, &j, &row[k], 1, make_plan, c);
        free_job(&j);
        if (status != NEO_OK) return fprintf(stderr, "plan: %s\n", neo_last_error()), 1;
        printf("%s   %11.4g  ", set->name, set->stated);
        if (row[0].needs) printf("the tables do not fit: a rank needs %s\n",
                                 bytes((double)row[0].needs));
        else
            printf("%12.4g  %18.4g  %12s  %12s  %7.3f\n", row[0].samples, row[1].samples,
                   bytes((double)row[0].step.most_bytes), bytes(12.0 * (double)params),
                   row[0].step.balance);
    }
    printf("\n%s", SETS_NOTE);
    return check_stdout();
}

int main(int argc, char **argv) {
    static command c; /* zeros */
#if defined(SIGXFSZ)
    signal(SIGXFSZ, SIG_IGN); /* a file over ulimit -f: an error of its write, that names it */
#endif
    int refused = parse(argc, argv, &c);
    if (refused) return refused;
    if (c.given[OPT_HELP]) return printf("%s", HELP), check_stdout();
    if (c.given[OPT_SET]) return print_set(c.given[OPT_SET]) || check_stdout();
    if (argc < 2) return fprintf(stderr, "%s", HELP), 2;
    if (c.files == 1 && !c.given[OPT_SETS])
        return fprintf(stderr, "plan: %s: give a CLUSTER behind it (--help)\n", c.file[0]), 2;
    if (c.files < 2 && !c.given[OPT_SETS])
        return fprintf(stderr, "plan: %s: give a MODEL and a CLUSTER (--help)\n",
                       argv[argc - 1]), 2;

    if (c.given[OPT_CALIBRATE]) {
        const neo_comm_desc one = {.ranks = device_count(c.device.name),
                                   .open_device = device_open, .open_user = &c.device};
        if (neo_comm_init_env(&one, links_measure, &c.links) != NEO_OK)
            return fprintf(stderr, "plan: --calibrate: %s\n", neo_last_error()), 1;
        if (c.links.rank > 0) return 0; /* the first has the rest to do */
    }
    job j = {.optimizer = NEO_BAG_ROWWISE_ADAGRAD};
    neo_ctx *ctx = NULL;
    if (!c.given[OPT_SETS]) read_job(&j, &c);
    neo_tier *tier = NULL;
    neo_profile *profile = NULL;
    if (!j.threads && !c.given[OPT_CALIBRATE]) j.threads = 1; /* the same plan on any machine */
    const neo_ctx_desc desc = {.threads = j.threads};
    int bad = neo_ctx_create(&desc, &ctx) != NEO_OK ||
              open_tiers(ctx, &j, &c, &tier, &profile) != NEO_OK;
    if (bad) fprintf(stderr, "plan: %s\n", neo_last_error());
    else if (c.given[OPT_SETS]) bad = run_sets(ctx, &c);
    else if (c.given[OPT_SWEEP]) bad = run_sweep(ctx, &j, &c);
    else bad = c.groups ? run_one(ctx, &j, &c) : run_replicas(ctx, &j, &c);
    neo_profile_destroy(profile);
    neo_tier_destroy(tier);
    neo_ctx_destroy(ctx);
    free_job(&j);
    return bad;
}
