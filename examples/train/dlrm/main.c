/* dlrm: trains a recommendation model (--model: DLRM, arXiv 1906.00091, or another) on one rank or
   many.

     make && build/dlrm --help                                     ranks are threads
     make mpi && mpirun --oversubscribe -n 4 build/dlrm_mpi ...    processes (MPICH: mpirun -n 4)

   Every rank has the MLPs, or a share of them, and computes its samples of each batch. The
   embedding tables lie on the ranks as a plan says.

   With the same options and data the last line, `state <digest of all weights and optimizer
   state>`, is the same on any number of threads, any instruction set, for a run that was killed
   and resumed, and on up to 8 ranks (--repro-shards: more) under any plan.

   Files, each one including the one before: ../cli.h ../job.h ../digests.h ../guard.h ../board.h
   files.h options.h formats.h model.h plan.h towers.h step.h run.h mllog.h eval.h train.h
   describe.h plan_model.h setup.h, ../summary.h. The program in one file: examples/one_file_dlrm.c. */
#include "setup.h"

/* The figures of a task, if there was test data. */
static void print_figures(const run *r, int task) {
    const neo_metric_values *v = &r->test.of[task];
    char name[128], rate[64] = "nothing to do"; /* a resumed run, all of whose steps were done */
    name_task(r, "test", " ", task, name);
    if (!r->tested) return;
    if (r->samples) snprintf(rate, sizeof rate, "samples/s=%.0f", samples_per_s(r));
    if (!(v->base_rate > 0 && v->base_rate < 1)) {
        say(&r->me, "no figures: all labels of the %s data are alike, or it has none, or all "
                    "weights of samples are 0\n", name);
        printf("%s %s\n", name, rate);
    } else {
        printf("%s auc=%.4f logloss=%.4f ne=%.4f", name, v->auc, v->logloss, v->ne);
        if (r->group >= 0)
            printf(" gauc=%.4f ndcg@%lld=%.4f", r->test.groups[task].auc, (long long)r->o->ndcg,
                   r->test.groups[task].ndcg);
        printf(" %s\n", rate);
    }
}

/* Prints the results, on rank 0. */
static neo_status print_results(run *r, uint64_t digest) {
    const int64_t synthetic = r->o->synthetic;
    double auc, logloss;
    if (synthetic) {
        TRY(neo_schema_best(r->m.test_schema, synthetic, synthetic_tests(r->o), &auc,
                            &logloss));
        printf("best possible auc=%.4f logloss=%.4f\n", auc, logloss);
    }
    if (r->o->dedup && r->m.tables) {
        const neo_shard_stats stats = neo_shard_get_stats(r->m.tables);
        say(&r->me, "dedup: of %lld ids of rank 0's samples %lld were sent and looked up "
                    "(--distinct %.3g)\n", (long long)stats.ids_full, (long long)stats.ids_given,
            (double)stats.ids_given / (double)(stats.ids_full + !stats.ids_full));
    }
    if (r->m.report) TRY(write_report(r));
    for (int t = 0; t < r->m.tasks; t++) print_figures(r, t);
    return print_state(digest);
}

/* The end of a run that a signal has stopped. */
static neo_status end_stopped(run *r) {
    int writes = r->me.rank == 0 && r->m.report;
    TRY(agree(r->me.comm, writes ? write_report(r) : NEO_OK));
    cli_end_stopped(&r->me, &r->o->saves, r->step, r->saved);
    return agree(r->me.comm, NEO_OK);
}

/* What the keys of all tables did. Collective. */
static neo_status print_keys(run *r) {
    enum { WORDS = sizeof(neo_key_stats) / sizeof(int64_t) };
    int64_t sum[WORDS] = {0}, word[WORDS];
    neo_key_stats s;
    if (!r->o->keys || !r->m.tables) return NEO_OK;
    for (int32_t t = 0; t < neo_schema_feature_count(r->m.schema); t++) {
        s = neo_shard_key_stats(r->m.tables, t);
        memcpy(word, &s, sizeof word);
        for (int i = 0; i < WORDS; i++) sum[i] += word[i];
    }
    TRY(neo_comm_all_reduce(r->m.comm, NEO_REDUCE_SUM, sum, sum, WORDS, NEO_I64, NULL));
    memcpy(&s, sum, sizeof s);
    if (r->me.rank || !s.lookups) return NEO_OK;
    printf("keys %lld, hits %.2f %%, admitted %lld, evicted %lld; ids that waited %lld, for whom "
           "no row was free %lld\n",
           (long long)s.used, 100.0 * (double)s.hits / (double)s.lookups, (long long)s.admissions,
           (long long)s.evictions, (long long)s.waited, (long long)s.refused);
    return NEO_OK;
}
/* How many ids of tables that are not in memory as a whole found their rows there, and what a
   --profile said. Collective. */
static neo_status print_tier(run *r) {
    if (!r->m.tier) return NEO_OK;
    const neo_tier_stats s = neo_tier_get_stats(r->m.tier);
    int64_t sum[4] = {s.lookups, s.hits, s.read, s.first};
    TRY(neo_comm_all_reduce(r->m.comm, NEO_REDUCE_SUM, sum, sum, 4, NEO_I64, NULL));
    if (r->me.rank || !sum[0]) return NEO_OK;
    printf("tier: %lld ids, %.2f %% found their rows in memory", (long long)sum[0],
           100.0 * (double)sum[1] / (double)sum[0]);
    if (r->m.profile) printf(" (%.2f %% once it has filled, by --profile)", 100.0 * r->m.hits);
    printf("; %lld rows were read, %lld new\n", (long long)sum[2], (long long)sum[3]);
    return NEO_OK;
}
static neo_status run_all(void *of_rank) {
    run *r = of_rank;
    neo_group group = neo_comm_group(r->me.comm);
    int has_test = r->job->test_count || r->o->synthetic;
    uint64_t digest;
    TRY(set_up(r));
    if (r->o->summary || only_counts(r->o)) return NEO_OK;
    if (!reads_only(r->o) && r->train.reader) {
        TRY(agree(r->me.comm, mllog_open(r)));
        TRY(cli_advise(&r->me, &r->o->saves, r->m.state, train(r)));
        TRY(agree(r->me.comm, mllog_end(r, NEO_OK)));
    }
    TRY(cli_catch_signals(&r->me));
    if (!r->stopped && (r->o->predict || (!r->tested && has_test))) TRY(evaluate_now(r));
    if (r->stopped) return end_stopped(r);
    char text[DEVICE_TEXT];
    device_text(neo_ctx_device(r->m.ctx), r->m.graph, text); /* the digest reads all rows */
    TRY(neo_state_digest_group(r->m.state, &group, &digest));
    TRY(print_keys(r));
    TRY(print_tier(r));
    if (!r->me.rank && text[0]) printf("%s", text);
    if (r->m.report && text[0]) TRY(neo_report_note(r->m.report, text));
    return agree(r->me.comm, r->me.rank ? NEO_OK : print_results(r, digest));
}

static int64_t sent_by_tables(const neo_shard *tables) {
    const neo_shard_stats s = neo_shard_get_stats(tables);
    return cli_sent(s.ids) + cli_sent(s.rows) + cli_sent(s.node) + cli_sent(s.cross) +
           cli_sent(s.peers);
}
/* Bytes that all groups of the model have sent. */
static int64_t sent_in_groups(const void *of_rank) {
    const model *m = &((const run *)of_rank)->m;
    if (!m->dense) return 0; /* --summary */
    int64_t bytes = sent_by_layers(m->dense);
    if (m->data != m->comm) bytes += cli_sent(neo_comm_get_stats(m->data));
    if (m->tables) bytes += sent_by_tables(m->tables);
    if (m->hot.warm) bytes += sent_by_tables(m->hot.warm);
    if (!m->towers) return bytes;
    if (m->units_of_towers) bytes += sent_by_layers(m->units_of_towers);
    return bytes + sent_by_tables(neo_towers_shard(m->towers)) +
           cli_sent(neo_comm_get_stats(neo_towers_comm(m->towers))) +
           cli_sent(neo_towers_stats(m->towers));
}

static neo_status run_rank(neo_comm *comm, void *user) {
    job *j = user;
    run r = {.me = cli_rank_of(&j->cli, comm), .job = j, .o = &j->o,
             .m = {.comm = comm, .data = comm, .ctx = neo_comm_ctx(comm)}};
    neo_status status = cli_run(&r.me, run_all, sent_in_groups, &r);
    (void)neo_save_wait(&r.me.saving); /* of a run that has failed */
    tear_down(&r);
    neo_trace_destroy(r.me.trace);
    return status;
}

/* Cuts a comma-separated list in place. */
static int split_list(char *text, const char **items, int most) {
    int count = 0;
    for (char *p = text; p && *p && count < most;) {
        items[count++] = p;
        p = strchr(p, ',');
        if (p) *p++ = 0;
    }
    return count;
}

static neo_status parse_job(int argc, char **argv, job *j) {
    options *o = &j->o;
    TRY(cli_parse(&DLRM, argc, argv, o, &j->cli.help));
    if (j->cli.help) return NEO_OK;
    guess_format(o);
    TRY(check_options(o));
    if (!o->dim) o->dim = kind_of(o)->dim;
    TRY(check_words(o));
    const int is_fast = strcmp(o->machine.device, "cpu") && !o->machine.exact;
    cli_choose_leaves(&o->machine, &o->saves, reads_only(o),
                      is_fast ? NEO_DEVICE_SHARDS : CLI_LEAVES);
    TRY(cli_describe(&j->cli, &o->machine, o->seed));
    j->train_count = split_list(o->data, j->train_files, MAX_FILES);
    j->test_count = split_list(o->test, j->test_files, MAX_FILES);
    j->valid_count = split_list(o->valid, j->valid_files, MAX_FILES);
    if (o->nodes > 1) j->cli.comm.ranks_per_node = (int)(o->machine.ranks / o->nodes);
    if (!o->synthetic || o->machine.ranks < 2) return NEO_OK;
    TRY(neo_ctx_create(&(neo_ctx_desc){.threads = 1}, &j->ctx));
    return synthetic_schemas(j->ctx, o, NULL, &j->generated, NULL);
}

int main(int argc, char **argv) {
    static job j = {.cli = {.program = &DLRM, .lock = PTHREAD_MUTEX_INITIALIZER}};
    int status = cli_start(&j.cli, parse_job(argc, argv, &j), run_rank);
    neo_schema_destroy(j.generated);
    neo_ctx_destroy(j.ctx);
    return status;
}
