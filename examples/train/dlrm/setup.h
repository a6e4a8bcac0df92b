/* setup.h: everything a run has before its first step: data, model, state, outputs. */
#ifndef DLRM_SETUP_H
#define DLRM_SETUP_H
#include "../summary.h"
#include "plan_model.h"
#include "train.h"

/* ---- the state: of weights, optimizers and the run, saved and restored ---- */

/* Words that a resumed run must agree with: its numeric definition. */
static neo_status define_numbers(run *r) {
    const options *o = r->o;
    char word[32], tasks[2048] = "";
    const struct { const char *key; int64_t value; } numbers[] = {
        {"row_buckets", row_buckets(r->m.ctx, o)}, {"batch", o->batch}, {"shuffle", o->shuffle}};
    const struct { const char *key, *value; } words[] = {
        {"dtype", o->dtype}, {"rows_dtype", o->rows_dtype}, {"wire_forward", o->wire_forward},
        {"wire_backward", o->wire_backward}, {"optimizer", o->optimizer}, {"model", o->model},
        {r->m.wukong ? "wukong" : "cross",
         r->m.wukong ? o->wukong ? o->wukong : WUKONG : o->cross ? o->cross : CROSS}};
    /* No word for what a DLRM has not. */
    int count = r->m.kind == MODELS ? 5 : r->m.kind->between ? 7 : 6;
    for (int i = 0; i < 3; i++) {
        snprintf(word, sizeof word, "%lld", (long long)numbers[i].value);
        TRY(neo_state_define(r->m.state, numbers[i].key, word));
    }
    for (int i = 0; i < count; i++)
        TRY(neo_state_define(r->m.state, words[i].key, words[i].value));
    for (int t = 0; r->m.tasks > 1 && t < r->m.tasks; t++) {
        neo_label label = neo_schema_label(r->m.schema, t);
        size_t used = strlen(tasks);
        snprintf(tasks + used, sizeof tasks - used, "%s%.90s %.9g", t ? ", " : "", label.name,
                 (double)label.weight);
    }
    if (*tasks) TRY(neo_state_define(r->m.state, "tasks", tasks));
    snprintf(word, sizeof word, "%lld", (long long)o->towers);
    if (o->towers) TRY(neo_state_define(r->m.state, "towers", word));
    snprintf(word, sizeof word, "%.9g", o->dropout);
    if (o->dropout > 0) TRY(neo_state_define(r->m.state, "dropout", word));
    snprintf(tasks, sizeof tasks, "%.40s %lld %lld%s", o->evict,
             (long long)o->admit, (long long)o->key_rows, o->bloom ? " bloom" : "");
    if (o->prune > 0)
        snprintf(tasks + strlen(tasks), sizeof tasks - strlen(tasks), " prune %.9g", o->prune);
    if (o->keys) TRY(neo_state_define(r->m.state, "keys", tasks));
    snprintf(word, sizeof word, "%lld", (long long)o->rows); /* tables of keys do not show it */
    if (o->keys && o->rows) TRY(neo_state_define(r->m.state, "rows", word));
    if (o->hot) TRY(neo_state_define(r->m.state, "hot", o->hot));
    TRY(cli_define_sums(r->m.state, &o->machine, r->me.ranks));
    snprintf(word, sizeof word, "%lld", (long long)o->window);
    return o->window ? neo_state_define(r->m.state, "window", word) : NEO_OK;
}

/* The figures of training, which a resumed run goes on with; on rank 0. */
static neo_status create_window(run *r) {
    neo_metrics_desc d = {.capacity = 1, .window = r->o->window, .binned = 1,
                          .weighted = neo_schema_is_sample_weighted(r->m.schema)};
    const options *o = r->o;
    char name[32];
    if (!d.window || r->me.rank) return NEO_OK;
    if (!reads_only(o) && !o->log && !o->mllog && !o->report && !o->board.dir)
        say(&r->me, "note: --window: its figures are for --log, --mllog, --report and "
                    "--tensorboard, none of which is given\n");
    for (int t = 0; t < r->m.tasks; t++) {
        snprintf(name, sizeof name, "window.%d", t);
        TRY(neo_metrics_create(r->m.ctx, &d, &r->window[t]));
        TRY(neo_state_add_metrics(r->m.state, name, r->window[t]));
    }
    return NEO_OK;
}

static neo_status create_state(run *r) {
    model *m = &r->m;
    neo_tensor position = neo_tensor_1d(r->position.word, NEO_I64, NEO_POSITION_WORDS);
    neo_tensor step = neo_tensor_1d(&r->step, NEO_I64, 1);
    TRY(neo_state_create(m->ctx, &m->state));
    TRY(neo_state_add_fsdp(m->state, m->dense));
    if (m->hot.tables) TRY(add_hot_rows(m, r->o));
    if (m->tables) TRY(neo_state_add_shard(m->state, m->tables));
    if (m->hot.warm) TRY(neo_state_add_shard(m->state, m->hot.warm));
    if (m->towers) TRY(neo_state_add_towers(m->state, m->towers, m->units_of_towers));
    TRY(neo_state_add_schema(m->state, m->schema));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "reader.position", position));
    TRY(neo_state_add(m->state, NEO_STATE_PROGRESS, "step", step));
    TRY(create_window(r));
    if (r->o->checkpoint_bits) TRY(create_served(m, r->o));
    return define_numbers(r);
}

/* Loads weights by neo's own names, or by those of facebookresearch/dlrm's PyTorch model. */
static neo_status load_weights(run *r) {
    int32_t tables = neo_schema_feature_count(r->m.schema);
    neo_name_map *map = calloc((size_t)tables + 2, sizeof *map);
    char (*names)[2][160] = calloc((size_t)tables + 1, sizeof *names);
    int loaded = 0;
    neo_status status = map && names ? NEO_OK : out_of_memory();
    if (status == NEO_OK) {
        map[0] = (neo_name_map){"bot_l.*", "bottom.*", 0};
        map[1] = (neo_name_map){"top_l.*", "top.*", 0};
        for (int32_t t = 0; t < tables; t++) {
            const char *name = neo_schema_feature(r->m.schema, t).name;
            snprintf(names[t][0], sizeof names[t][0], "emb_l.%d.weight", t);
            snprintf(names[t][1], sizeof names[t][1], "bags.%s.weight", name);
            map[t + 2] = (neo_name_map){names[t][0], names[t][1], 0};
        }
        status = neo_load_safetensors(r->m.ctx, r->o->load, map, tables + 2, 0, r->m.state,
                                      &loaded);
        if (status == NEO_OK) say(&r->me, "loaded %d tensors from %s\n", loaded, r->o->load);
    }
    free(names);
    free(map);
    return status;
}

/* Reading only needs the weights: state of another --optimizer than this run's is left out. Where
   weights differ too, the option that makes another model is a better message than a shape. */
static neo_status load_otherwise(run *r, neo_load_desc d) {
    static const char *const others[] = {": model is ", ": cross is ", ": wukong is ",
                                          ": tasks is ", ": towers is ", ": hot_rows is ",
                                          ": warm_rows is ", ": checkpoint_bits is "};
    char shapes[1024];
    snprintf(shapes, sizeof shapes, "%s", neo_last_error());
    d.any_definition = 0, d.weights_only = 1;
    neo_status status = neo_load(r->m.ctx, &d, r->m.state, &r->step);
    if (status == NEO_OK)
        say(&r->me, "the checkpoint is of another --optimizer or --window: only its weights are "
                    "loaded\n");
    if (status != NEO_ERR_MISMATCH) return status;
    d.weights_only = 0;
    status = cli_advise_load(&r->me, neo_load(r->m.ctx, &d, r->m.state, &r->step), d.dir,
                             NEO_DIFFERS_NOT, "");
    if (strstr(neo_last_error(), ": it is a checkpoint of ")) return status;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(neo_last_error(), others[i]))
            snprintf(shapes, sizeof shapes, "%s", neo_last_error());
    return neo_fail(NEO_ERR_MISMATCH, "%s: give the options of its training", shapes);
}

/* Of a run that only reads and finds nothing to read: why it does not train. */
static neo_status no_model(const run *r, neo_status status) {
    char why[1024];
    if (status != NEO_ERR_NOT_FOUND || !reads_only(r->o)) return status;
    snprintf(why, sizeof why, "%s", neo_last_error());
    return neo_fail(status, "%s: no model to read, and with %s", why,
                    r->o->eval ? "--eval nothing trains"
                               : "--checkpoint --predict trains only where --resume stands too");
}

static neo_status restore(run *r) {
    const options *o = r->o;
    const char *dir = o->saves.dir;
    int resumes = (int)o->saves.resume, reads = reads_only(o);
    neo_group group = neo_comm_group(r->me.comm);
    if (o->load) TRY(agree(r->me.comm, load_weights(r)));
    if (!dir) return NEO_OK;
    if (!reads && !resumes) return agree(r->me.comm, check_fresh(&o->saves));
    neo_load_desc d = {.dir = dir, .any_definition = reads && !resumes, .group = &group};
    if (resumes && !reads && r->train.reader)
        return cli_go_on(&r->me, &o->saves, d, r->m.state, o->lr,
                         "--data, --rows, --dim, --bottom and --top", &r->step, &r->saved);
    neo_status status = neo_load(r->m.ctx, &d, r->m.state, &r->step);
    if (status == NEO_ERR_MISMATCH && d.any_definition) status = load_otherwise(r, d);
    if (status == NEO_OK) say(&r->me, "loaded step %lld from %s\n", (long long)r->step, dir);
    return no_model(r, status);
}

/* Dictionaries of words come from the training files, or from a checkpoint when only a test file
   is given. */
static neo_status fit_schema(run *r) {
    const job *j = r->job;
    const char *dir = r->o->saves.dir;
    neo_load_desc d = {.dir = dir, .schema_only = 1};
    neo_state *dictionaries;
    if (neo_schema_is_fitted(r->m.schema)) return NEO_OK;
    if (j->train_count && is_stdin(j->train_files[0]))
        REFUSE("words become ids by dictionaries, which need a pass of their own: --data - cannot "
               "give it (category hash rows=N needs none)");
    if (j->train_count && (!reads_only(r->o) || !dir))
        return neo_schema_fit(r->m.schema, j->train_files, j->train_count,
                              r->o->bad_lines[0] == 's');
    if (!dir) REFUSE("words become ids by dictionaries: give --data or --checkpoint");
    TRY(neo_state_create(r->m.ctx, &dictionaries));
    neo_status status = neo_state_add_schema(dictionaries, r->m.schema);
    if (status == NEO_OK) status = neo_load(r->m.ctx, &d, dictionaries, NULL);
    neo_state_destroy(dictionaries);
    return no_model(r, status);
}

/* ---- outputs, on rank 0 ---- */

/* --summary: of a model whose dense layers are made. */
static neo_status print_summary(const run *r) {
    const model *m = &r->m;
    const options *o = r->o;
    static const struct { const char *name; double mlps, tables; } STATE[] = { /* floats, each */
        {"sgd", 0, 0},   {"adagrad", 1, 0}, {"adam", 2, 2},
        {"adamw", 2, 2}, {"lamb", 2, 2},    {"ftrl", 2, 2}, {"adagrad-full", 1, 1}};
    int32_t tables = neo_schema_feature_count(m->schema);
    summary s = {0};
    neo_dtype dtype;
    size_t kind = 0, last = sizeof STATE / sizeof STATE[0] - 1;
    while (kind < last && strcmp(o->optimizer, STATE[kind].name)) kind++;
    TRY(parse_rows_dtype(o->rows_dtype, &dtype));
    for (int i = 0; i < MLPS; i++) summary_params(&s, m->params[i], STATE[kind].mlps, 1, NULL);
    for (int32_t t = 0; t < tables; t++) {
        neo_feature f = neo_schema_feature(m->schema, t);
        const int64_t rows = table_rows(m->ctx, o, f);
        summary_tensor(&s, f.name, dtype, rows, row_width(m->kind, o, tables, m->tasks),
                       STATE[kind].tables, 0);
        if (kind == 1) s.state_bytes += 4.0 * (double)rows; /* row-wise: one float for each */
    }
    if (m->kind->meets == DOTS) s.flops += (double)o->dim * tables * (tables + 1);
    for (int i = 0; i < neo_params_count(m->params[TOP]); i++) {
        neo_tensor w = neo_params_at(m->params[TOP], i)->value; /* of a linear part: each column */
        if (!m->wukong || w.ndim != 2 || w.shape[1] != tables + 1) continue;
        s.flops += (double)(o->dim - 1) * 2.0 * (double)neo_tensor_count(w);
        s.flops += (double)o->dim * (tables + 1) * (tables + 2);
    }
    double each = (double)(o->dim * m->tasks);
    if (m->kind->meets == AWARE) s.flops += each * tables * (tables - 1);
    else if (m->kind->meets >= WEIGHTS) s.flops += 3.0 * each * tables;
    return summary_end(&s, "sample");
}

static neo_status open_outputs(run *r) {
    const options *o = r->o;
    int reads = reads_only(o);
    if (o->report) TRY(check_writable("report", o->report));
    if (o->predict) TRY(check_writable("predict", o->predict));
    if (o->log) TRY(check_writable("log", o->log));
    if (o->saves.dir && !reads) TRY(make_saves(&o->saves));
    TRY(board_open(&r->me, &o->board, &r->events));
    if (!o->log) return NEO_OK;
    if (o->saves.resume || reads) TRY(cut_half_line(o->log));
    TRY(neo_jsonl_open(r->m.ctx, o->log, o->saves.resume || reads, &r->log));
    if (!r->step) return NEO_OK;
    neo_jsonl_int(r->log, reads ? "loaded_step" : "resumed_step", r->step);
    return neo_jsonl_end(r->log);
}

static neo_status report_tensors(run *r) {
    const char *table = r->me.ranks > 1 ? "Tensors of rank 0" : "Tensors";
    TRY(neo_report_row(r->m.report, table, (const char *[]){"name", "dtype", "shape"}, 3));
    for (int i = 0; i < neo_state_count(r->m.state); i++) {
        neo_tensor t = neo_state_tensor(r->m.state, i);
        char shape[96] = "";
        for (int32_t k = 0; k < t.ndim; k++) {
            size_t length = strlen(shape);
            snprintf(shape + length, sizeof shape - length, "%s%lld", k ? " x " : "",
                     (long long)t.shape[k]);
        }
        const char *cells[] = {neo_state_name(r->m.state, i), neo_dtype_name(t.dtype), shape};
        TRY(neo_report_row(r->m.report, table, cells, 3));
    }
    return NEO_OK;
}

/* The figures of a task on the test data, if there is any. */
static neo_status report_figures(run *r, int task) {
    const neo_metric_values *v = &r->test.of[task];
    const struct { const char *name, *format; double value; } facts[] = {
        {"Test AUC", "%.4f", v->auc}, {"Test log loss", "%.4f", v->logloss},
        {"Normalized entropy", "%.4f", v->ne}, {"Calibration", "%.3f", v->calibration},
        {"Accuracy", "%.4f", v->accuracy}, {"PR-AUC", "%.4f", v->pr_auc},
        {"Mean squared error", "%.4f", v->mse}, {"Mean absolute error", "%.4f", v->mae},
        {"Grouped AUC", "%.4f", r->test.groups[task].auc},
        {"Grouped NDCG", "%.4f", r->test.groups[task].ndcg}};
    char name[128], text[64];
    for (int i = 0; v->count && i < (r->group < 0 ? 8 : 10); i++) {
        snprintf(text, sizeof text, facts[i].format, facts[i].value);
        snprintf(name, sizeof name, r->m.tasks > 1 ? "%s, %.90s" : "%s", facts[i].name,
                 neo_schema_label(r->m.schema, task).name);
        TRY(neo_report_fact(r->m.report, name, text));
    }
    return NEO_OK;
}

/* A row of the table; seconds of a step. predicted below 0: by nobody. */
static neo_status report_operation(run *r, const char *name, double predicted, double measured) {
    char text[3][32] = {"", "", ""};
    snprintf(text[1], 32, "%.4f", 1e3 * measured);
    if (!(predicted < 0)) {
        snprintf(text[0], 32, "%.4f", 1e3 * predicted);
        snprintf(text[2], 32, "%+.0f %%", 100 * (predicted / measured - 1));
    }
    return neo_report_row(r->m.report, "A step of rank 0, predicted and measured",
                          (const char *[]){name, text[0], text[1], text[2]}, 4);
}
/* --trace: what a step is made of, as the plan predicts and as its spans have it. */
static neo_status report_operations(run *r) {
    const prediction *p = &r->m.predicted;
    int64_t steps = 0, count, step_ns = 0;
    if (!r->me.trace || !p->step) return NEO_OK;
    step_ns = neo_trace_time(r->me.trace, NULL, "call", "step", &steps);
    if (!steps) return NEO_OK;
    const double second = 1e-9 / (double)steps, step = second * (double)step_ns;
    double rest = step, most = 0;
    const char *off = "";
    for (int i = 0; i < OPERATIONS; i++) {
        int64_t ns = neo_trace_time(r->me.trace, "step", OPERATION[i].category, OPERATION[i].span,
                                    &count);
        const char *name = OPERATION[i].name;
        const double took = second * (double)ns, by = p->seconds[i] > 0 ? p->seconds[i] : -1;
        if (count) TRY(report_operation(r, name, by, took));
        rest -= took;
        if (count && by > 0 && fabs(by - took) > most) off = name, most = fabs(by - took);
    }
    int64_t waits = neo_trace_time(r->me.trace, "step", "wait", NULL, &count);
    waits += neo_trace_time(r->me.trace, "step", "communication", NULL, &count);
    int64_t reads = neo_trace_time(r->me.trace, "step", "call", "neo_reader_next", &count);
    rest -= second * (double)(waits + reads);
    if (waits) TRY(report_operation(r, "communication, waited for", p->exposed,
                                    second * (double)waits));
    TRY(report_operation(r, "reading", -1, second * (double)reads));
    TRY(report_operation(r, "all else", -1, rest));
    char text[64];
    snprintf(text, sizeof text, "%s, by %.4f ms", off, 1e3 * most);
    TRY(neo_report_fact(r->m.report, "Operation predicted worst", text));
    return report_operation(r, "step", p->step, step);
}

static neo_status write_report(run *r) {
    static const char *const charts[] = {"Training loss", "Learning rate", "Test AUC",
                                         "Test log loss", "AUC of training",
                                         "Normalized entropy of training"};
    char text[64];
    for (int t = 0; t < r->m.tasks; t++) TRY(report_figures(r, t));
    snprintf(text, sizeof text, "%.0f", samples_per_s(r));
    TRY(neo_report_fact(r->m.report, "Samples per second", r->samples ? text : "nothing to do"));
    if (r->m.predicted.step > 0) {
        snprintf(text, sizeof text, "%.3f of %.3f ms", 1e3 * r->m.predicted.exposed,
                 1e3 * r->m.predicted.step);
        TRY(neo_report_fact(r->m.report, "Waits for links, predicted", text));
    }
    for (int i = 0; i < (r->window[0] ? 6 : 4); i++)
        TRY(neo_report_axis(r->m.report, charts[i], "step", ""));
    for (int i = 0; r->tier.lookups > 0 && i < 3; i++)
        TRY(neo_report_axis(r->m.report, TIER_CHARTS[i], "step", ""));
    TRY(report_operations(r));
    TRY(report_tensors(r));
    return neo_report_write(r->m.report, r->o->report);
}

/* ---- all of it ---- */

/* [batch][columns] in host memory, also where the context has a device. */
static neo_status host_columns(run *r, int64_t columns, neo_tensor *t) {
    void *data = neo_alloc(r->m.ctx, (size_t)(r->o->batch * columns) * sizeof(float));
    *t = data ? neo_tensor_2d(data, NEO_F32, r->o->batch, columns) : neo_tensor_none();
    return data ? NEO_OK : out_of_memory();
}

/* --group: the feature, and room for its ids. */
static neo_status find_group(run *r) {
    const int32_t features = neo_schema_feature_count(r->m.schema);
    size_t bytes = (size_t)r->o->batch * sizeof(int64_t);
    r->group = -1;
    if (!r->o->group) return NEO_OK;
    for (int32_t f = 0; f < features; f++)
        if (strcmp(neo_schema_feature(r->m.schema, f).name, r->o->group) == 0) r->group = f;
    if (r->group < 0)
        REFUSE("--group %s: no sparse feature has that name; the first is %s", r->o->group,
               features ? neo_schema_feature(r->m.schema, 0).name : "none");
    r->own_groups = malloc(bytes);
    r->groups = malloc(bytes);
    return r->own_groups && r->groups ? NEO_OK : out_of_memory();
}

/* The part that a rank makes by itself. */
static neo_status prepare(run *r) {
    const job *j = r->job;
    int trains = j->train_count > 0;
    TRY(cli_check_ranks(&r->me, &r->o->machine));
    if (r->o->profile && !only_counts(r->o)) {
        neo_status status = neo_profile_read(r->m.ctx, r->o->profile, &r->m.profile);
        if (status != NEO_OK) return neo_fail(status, "--profile %s", neo_last_error());
    }
    TRY(create_schema(&r->me, r->m.ctx, r->o, j->generated, trains ? j->train_files : j->test_files,
                      trains ? j->train_count : j->test_count, &r->m.schema, &r->m.test_schema));
    TRY(find_group(r));
    TRY(fit_schema(r));
    TRY(create_dense(&r->m, r->o));
    neo_exact_zero(&r->loss);
    r->own_logits = r->m.logit;
    if (neo_ctx_device(r->m.ctx)) TRY(host_columns(r, r->m.tasks, &r->own_logits));
    if (r->me.rank) return NEO_OK;
    if (neo_schema_is_sample_weighted(r->m.schema)) TRY(host_columns(r, 1, &r->weights));
    for (int i = 0; i < 3; i++) TRY(host_columns(r, 1, &r->column[i]));
    TRY(host_columns(r, r->m.tasks, &r->logits));
    return host_columns(r, r->m.tasks, &r->labels);
}

/* Reads the first batch of the test and the validation data: that a file is missing, or has another
   format, or that memory for figures is, is better known before training than after it.
   Collective. */
static neo_status look_at_tests(run *r) {
    const job *j = r->job;
    neo_metrics *metrics[MAX_TASKS] = {NULL};
    neo_status room = NEO_OK;
    if (j->test_count || j->valid_count || r->o->synthetic) room = create_metrics(r, metrics);
    destroy_metrics(metrics);
    TRY(room);
    for (int is_valid = 0; is_valid < 2; is_valid++) {
        neo_reader_desc d = describe_test(r, is_valid);
        source s = {NULL, NULL};
        neo_batch batch;
        int pipes = 0; /* they can be read once */
        for (int i = 0; i < d.path_count; i++) pipes |= is_read_once(d.paths[i]);
        if (!d.path_count || pipes) continue;
        d.unlabeled = !is_valid && j->valid_count && r->o->predict;
        neo_status status = open_source(r, d, &s);
        if (status == NEO_OK) status = next_of_tests(r, s.reader, &batch);
        close_source(&s);
        if (status != NEO_OK && status != NEO_END) return status;
    }
    return NEO_OK;
}

/* Rows of the table with most that a batch names more than once in the mean, as must all that are
   worth copies; at least `rows`. */
static int64_t rows_of_batches(const run *r, int64_t samples, int64_t rows) {
    for (int32_t t = 0; t < neo_schema_feature_count(r->m.schema); t++) {
        int64_t groups, often = 0;
        const neo_row_use *use = neo_profile_uses(
            r->m.profile, neo_schema_feature(r->m.schema, t).name, &groups, NULL, NULL);
        for (int64_t i = 0; i < groups; i++)
            if ((double)use[i].ids * (double)r->o->batch > (double)use[i].rows * (double)samples)
                often += use[i].rows;
        rows = often > rows ? often : rows;
    }
    return rows;
}
/* Reads up to so many batches and counts ids, and those of each row, if there is a profile. */
static neo_status count_ids(neo_reader *reader, neo_profile *profile, int64_t most, counted *c) {
    neo_batch batch;
    neo_status status = NEO_OK;
    while (status == NEO_OK && most-- > 0) {
        status = neo_reader_next(reader, &batch);
        if (status != NEO_OK) break;
        const neo_jagged *b = &batch.sparse;
        for (int64_t i = 0; i < b->feature_count * b->batch; i++) {
            const int64_t t = i / b->batch, first = b->feature_bags ? b->feature_bags[t] : 0,
                          bag = b->inverse ? first + b->inverse[i] : i;
            c->ids[t] += b->offsets[bag + 1] - b->offsets[bag];
        }
        c->sent += neo_jagged_id_count(b);
        c->samples += batch.size;
        if (profile) status = neo_profile_add(profile, b);
    }
    return status == NEO_END ? NEO_OK : status;
}
/* Every sample has one id in each feature, whatever the data. */
static int has_one_id(const run *r) {
    const neo_format is = neo_schema_format(r->m.schema);
    return is == NEO_FORMAT_CRITEO || is == NEO_FORMAT_NPY ||
           (is == NEO_FORMAT_SYNTHETIC && !r->o->preset);
}
/* Ids of a sample in each feature, for plans and buffers: in the mean of the first samples of
   training data that can be read twice. One each, where none are found (whatever is wrong with data
   is said when it is read) or needed. Collective. */
static neo_status look_at_ids(run *r, neo_reader_desc d) {
    const int32_t features = neo_schema_feature_count(r->m.schema);
    int once = only_counts(r->o) || has_one_id(r);
    counted c = {0, calloc((size_t)features + 1, sizeof(int64_t)), 0};
    source s = {NULL, NULL};
    r->m.ids = calloc((size_t)features + 1, sizeof *r->m.ids);
    neo_status status = agree(r->me.comm, c.ids && r->m.ids ? NEO_OK : out_of_memory());
    for (int32_t f = 0; f < features && status == NEO_OK; f++) r->m.ids[f] = 1;
    for (int i = 0; i < d.path_count; i++) once |= is_read_once(d.paths[i]);
    if (status == NEO_OK && !once && (d.path_count || r->o->synthetic)) {
        d.schema = r->m.schema, d.shuffle_window = 0;
        d.batch = r->o->batch < 1024 ? r->o->batch : 1024;
        neo_status seen = open_source(r, d, &s);
        if (seen == NEO_OK) seen = agree(r->me.comm, count_ids(s.reader, NULL, 1, &c));
        close_source(&s);
        c.ids[features] = c.samples;
        if (seen == NEO_OK)
            status = neo_comm_all_reduce(r->me.comm, NEO_REDUCE_SUM, c.ids, c.ids, features + 1,
                                         NEO_I64, NULL);
        for (int32_t f = 0; f < features && seen == NEO_OK && c.ids[features]; f++)
            r->m.ids[f] = (double)c.ids[f] / (double)c.ids[features];
    }
    free(c.ids);
    return status;
}
/* What was counted goes to the files of --save-profile and --save-plan-model. */
static neo_status write_counts(run *r, const neo_bags_desc *bags, const counted *c) {
    const int64_t hot = r->o->hot_rows, warm = r->o->warm_rows;
    int64_t apart = (hot > 0 ? hot : 0) + (warm > 0 ? warm : 0);
    printf("counted %lld sample%s, %d table%s\n", (long long)c->samples, PLURAL(c->samples),
           (int)bags->table_count, PLURAL(bags->table_count));
    if (r->o->save_plan_model) TRY(write_plan_model(&r->m, r->o, bags, c));
    if (!r->o->save_profile) return NEO_OK;
    if (hot == CLI_AUTO || warm == CLI_AUTO) apart = rows_of_batches(r, c->samples, apart);
    if (hot || warm) TRY(neo_profile_hot(r->m.profile, apart));
    return neo_profile_write(r->m.profile, r->o->save_profile);
}
/* --save-profile, --save-plan-model: a pass over the training data. */
static neo_status count_rows(run *r, neo_reader_desc d) {
    const options *o = r->o;
    const size_t tables = (size_t)neo_schema_feature_count(r->m.schema);
    counted c = {0, NULL, 0};
    neo_bags_desc bags;
    if (r->me.ranks > 1)
        REFUSE("--%s counts on one rank", o->save_profile ? "save-profile" : "save-plan-model");
    if (o->save_profile) TRY(check_writable("save-profile", o->save_profile));
    if (o->save_plan_model) TRY(check_writable("save-plan-model", o->save_plan_model));
    neo_table_desc *table = calloc(tables + 1, sizeof *table);
    c.ids = calloc(tables + 1, sizeof *c.ids);
    neo_status status = table && c.ids ? describe_tables(&r->m, o, table, &bags) : out_of_memory();
    if (status == NEO_OK && o->save_profile)
        status = neo_profile_create(r->m.ctx, &bags, &r->m.profile);
    d.schema = r->m.schema;
    if (status == NEO_OK) status = open_source(r, d, &r->train);
    if (status == NEO_OK) status = count_ids(r->train.reader, r->m.profile, INT64_MAX, &c);
    if (status == NEO_OK) status = write_counts(r, &bags, &c);
    free(table);
    free(c.ids);
    return status;
}

static neo_status set_up(run *r) {
    const job *j = r->job;
    neo_reader_desc d = {.paths = j->train_files,
                         .path_count = j->train_count, .shuffle_window = r->o->shuffle,
                         .hold = (int)r->o->prefetch + 1}; /* a batch and those ahead */
    neo_status mine = NEO_OK;
    TRY(agree(r->me.comm, prepare(r)));
    if (r->o->summary) return agree(r->me.comm, r->me.rank ? NEO_OK : print_summary(r));
    TRY(look_at_ids(r, d));
    if (only_counts(r->o)) return count_rows(r, d);
    TRY(create_units(&r->m, r->o));
    if (r->me.rank == 0 && r->o->report)
        mine = neo_report_create(r->m.ctx, "neo: DLRM training", &r->m.report);
    TRY(agree(r->me.comm, mine));
    TRY(advise_budget(create_tables(&r->m, r->o)));
    d.schema = r->m.schema;
    if (j->train_count || r->o->synthetic) TRY(open_source(r, d, &r->train));
    if (r->train.reader && !reads_only(r->o)) TRY(look_at_tests(r));
    TRY(agree(r->me.comm, create_state(r)));
    if (r->me.rank == 0) r->me.job->model = describe_model(&r->m, r->o);
    TRY(agree(r->me.comm, r->me.rank || r->me.job->model ? NEO_OK : out_of_memory()));
    TRY(restore(r));
    TRY(check_read_rows(&r->m, r->o->saves.dir));
    return agree(r->me.comm, r->me.rank ? NEO_OK : open_outputs(r));
}

/* After an error, too. */
static void tear_down(run *r) {
    close_source(&r->train);
    neo_jsonl_close(r->log);
    neo_events_close(r->events);
    (void)mllog_end(r, NEO_ERR_STATE); /* of a run that has failed */
    neo_report_destroy(r->m.report);
    if (neo_ctx_device(r->m.ctx)) neo_tensor_free(r->m.ctx, &r->own_logits);
    neo_tensor_free(r->m.ctx, &r->logits);
    neo_tensor_free(r->m.ctx, &r->labels);
    neo_tensor_free(r->m.ctx, &r->weights);
    for (int i = 0; i < 3; i++) neo_tensor_free(r->m.ctx, &r->column[i]);
    for (int t = 0; t < MAX_TASKS; t++) neo_metrics_destroy(r->window[t]);
    free(r->own_groups);
    free(r->groups);
    destroy_hot_rows(&r->m);
    destroy_scores(&r->m.scores);
    destroy_served(&r->m);
    destroy_model(&r->m);
    if (r->me.rank) return;
    free(r->me.job->model);
    r->me.job->model = NULL;
}
#endif
