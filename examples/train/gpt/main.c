/* gpt: trains a GPT on a text, character by character, or on tokens of a byte-pair vocabulary, its
   parameters in shards over one rank or many.

     make && build/gpt --help                                     ranks are threads
     make mpi && mpirun --oversubscribe -n 4 build/gpt_mpi ...    processes (MPICH: mpirun -n 4)

   Without arguments it trains 4 blocks of width 128 on examples/data/shakespeare for 2,000 steps,
   by nanoGPT's recipe for a CPU; expect a validation loss of about 1.80. Differences: biases;
   AdamW's decay takes all parameters (neo_optim has one for all), not matrices alone; a learning
   rate of 0.002, not 0.001 (--lr 0.001: 1.90, and 1.88 with --weight-decay 0 besides).

   GPT-2 124M, on tokens that llm.c's dev/data scripts or these lines write (the second file is for
   --tokenizer, to read the sample):

     import tiktoken, numpy as np
     gpt2 = tiktoken.get_encoding("gpt2")
     def write(path, magic, count, data):
         open(path, "wb").write(np.array([magic, 1, count] + [0] * 253, "<i4").tobytes() + data)
     ids = np.array(gpt2.encode_ordinary(open("my.txt").read()), "<u2")
     write("my.bin", 20240520, len(ids), ids.tobytes())
     pieces = map(gpt2.decode_single_token_bytes, range(50257))
     write("gpt2.tokens", 20240328, 50257, b"".join(bytes([len(p)]) + p for p in pieces))

     build/gpt_cuda --preset gpt2-124m --data my.bin --device cuda --tokenizer gpt2.tokens
     build/gpt --preset gpt2-124m --data my.bin --summary           124439808 parameters

   neo_fsdp holds the parameters (--shard): those of a block are whole in memory only while it
   computes, its gradients until they are summed over the ranks.

   With the same options and text the last line, `state <digest of all weights and optimizer
   state>`, is the same on any number of threads, any instruction set, for a run that was killed and
   resumed, and, with --repro-shards given, on up to as many ranks, however they shard. Without it
   there is a leaf for each rank: a batch is computed leaf by leaf, and small leaves take longer (8
   leaves of a batch of 12 sequences by one eighth).

   Files, each one including the one before: ../cli.h ../job.h ../digests.h ../guard.h
   ../board.h model.h step.h options.h run.h. The program in one file: examples/one_file_gpt.c. */
#include "run.h"

static neo_status validate(run *r, double *mean) {
    TRY_SPAN(r->me.ctx, "validation",
             evaluate(&r->t, r->text->train, r->text->length, mean));
    if (r->t.stops) return NEO_OK;
    if (r->o->board.dir)
        TRY(agree(r->me.comm, board_number(r->events, "val_loss", r->step, *mean)));
    return cli_check_loss(&r->me, r->state, r->step, *mean, r->t.fsdp);
}

/* A step's points on the board. */
static neo_status draw_step(run *r, double mean) {
    const int64_t now = neo_time_ns(), sequences = r->o->batch * r->o->accumulate;
    const double seconds = 1e-9 * (double)(now - r->point_ns);
    if (!r->events) return NEO_OK;
    r->point_ns = now;
    TRY(neo_events_scalar(r->events, "loss", r->seen + 1, mean));
    TRY(neo_events_scalar(r->events, "lr", r->seen + 1,
                          (double)neo_schedule_lr(&r->t.schedule, r->seen)));
    return neo_events_scalar(r->events, "samples_per_s", r->seen + 1, (double)sequences / seconds);
}

/* Shows the mean losses of the steps up to `until`, which are over. *mean: the last one. */
static neo_status see_losses(run *r, int64_t until, neo_progress *bar, double *mean) {
    const int64_t sequences = r->o->batch * r->o->accumulate;
    for (; r->seen < until; r->seen++) {
        TRY(sum_loss(&r->t, &r->t.loss[r->seen % 2], mean));
        *mean /= (double)(sequences * r->o->context);
        neo_progress_update(bar, sequences * (r->seen + 1), *mean);
        if (r->o->board.dir) TRY(agree(r->me.comm, draw_step(r, *mean)));
        TRY(cli_check_loss(&r->me, r->state, r->seen + 1, *mean, r->t.fsdp));
    }
    return NEO_OK;
}

/* Keeps the model if its validation loss is the best so far. */
static neo_status keep_best(run *r, double val, int *is_best) {
    *is_best = cli_best_is(&r->best, r->step, val);
    if (*is_best) r->best = (cli_best){r->step, val};
    if (!*is_best || !r->o->saves.dir || !r->o->eval_every) return NEO_OK;
    return cli_best_keep(&r->me, &r->o->saves, r->state, r->step, r->o->lr, &r->best, "");
}

/* Ends the training where --patience is at its end. */
static void look_at_patience(run *r) {
    const options *o = r->o;
    if (!o->patience || r->best.at < 0) return;
    int64_t waited = (r->step - r->best.at) / o->eval_every;
    r->over = waited >= o->patience;
    if (r->over)
        say(&r->me, "no better loss in %lld validation%s: stopped\n", (long long)waited,
            PLURAL(waited));
}

/* Validates, and prints a line, unless a signal ends it. */
static neo_status end_stretch(run *r, double mean) {
    double val;
    int is_best;
    TRY(validate(r, &val));
    if (r->t.stops) return NEO_OK;
    TRY(keep_best(r, val, &is_best));
    cli_line(&r->me, "step %lld  %.1f s  train loss %.4f  %sval loss %.4f\n", (long long)r->step,
             1e-9 * (double)(neo_time_ns() - r->started_ns), mean, is_best ? "best " : "", val);
    r->started_ns = r->point_ns = neo_time_ns();
    look_at_patience(r);
    return NEO_OK;
}

/* One step, and what follows it, but for a validation. */
static neo_status take_step(run *r, neo_progress *bar, double *mean, int *validates) {
    const options *o = r->o;
    if (o->memory) { /* of each step by itself */
        r->sent_before += sent_by_layers(r->t.fsdp);
        neo_fsdp_reset_stats(r->t.fsdp);
    }
    TRY(train_step(&r->t, r->step++));
    r->saved = 0;
    int last = r->step == o->steps;
    int saves = o->saves.every && r->step % o->saves.every == 0 && !last;
    *validates = o->eval_every && r->step % o->eval_every == 0 && !last;
    int over = !r->t.graph || last || saves || *validates || cli_digests_at(&o->saves, r->step);
    if (over) TRY(graph_wait(r->t.graph));
    TRY(see_losses(r, over ? r->step : r->step - 1, bar, mean));
    if (o->memory && last) TRY(count_traffic(r));
    TRY(cli_digest(&r->me, &o->saves, r->state, r->step));
    TRY(board_histograms(&r->me, &o->board, r->events, r->t.fsdp, r->step));
    TRY(cli_save_poll(&r->me, r->step));
    return saves ? save(r) : NEO_OK;
}

static neo_status train(run *r) {
    const options *o = r->o;
    const int64_t sequences = o->batch * o->accumulate;
    double mean = 0;
    neo_progress bar = cli_progress(&r->me, sequences * r->step, sequences * o->steps);
    if (r->step && r->step >= o->steps) {
        say(&r->me, "nothing left to train: the run has had its %lld step%s\n",
            (long long)o->steps, PLURAL(o->steps));
        return NEO_OK;
    }
    r->seen = r->step;
    TRY(cli_digests_begin(&r->me, &o->saves, r->state, r->step));
    r->started_ns = r->point_ns = neo_time_ns();
    r->best.at = -1;
    if (r->step && o->eval_every) TRY(cli_best_read(&r->me, &o->saves, &r->best));
    look_at_patience(r);
    if (r->over) return NEO_OK;
    TRY(cli_catch_signals(&r->me));
    if (o->steps) neo_progress_begin(&bar);
    while (r->step < o->steps && !r->t.stops && !r->over) {
        int validates;
        neo_trace_begin(r->me.ctx, "step", r->step);
        neo_status status = take_step(r, &bar, &mean, &validates);
        neo_trace_end(r->me.ctx);
        TRY(status);
        if (validates) TRY(end_stretch(r, mean));
    }
    TRY(graph_wait(r->t.graph));
    TRY(see_losses(r, r->step, &bar, &mean)); /* of a step that a signal made the last */
    if (o->steps) neo_progress_end(&bar, mean);
    if (!r->saved) TRY(save(r));
    return neo_save_wait(&r->me.saving);
}

/* Prints what a token stands for. */
static void put_token(const text *t, int64_t token) {
    if (!t->is_tokens) putchar(t->letter[token]);
    else if (!t->pieces) printf("%lld ", (long long)token);
    else if (token >= t->piece_count) printf("<%lld>", (long long)token);
    else {
        const unsigned char *piece = t->pieces + t->piece[token];
        fwrite(piece + 1, 1, piece[0], stdout);
    }
}

/* Appends an id to those that the next one depends on, at most --context of them. */
static void push_id(run *r, int64_t *count, int64_t id) {
    int64_t *ids = r->t.m.next_ids;
    if (*count > 0 && *count == r->o->context) {
        --*count;
        memmove(ids, ids + 1, (size_t)*count * sizeof *ids);
    }
    ids[(*count)++] = id;
}

/* Writes the sample. Every rank computes it, as the weights lie on all; rank 0 prints it. */
static neo_status write_sample(run *r) {
    const text *t = r->text;
    const char *prompt = r->o->prompt ? r->o->prompt : "";
    const int newline = t->number['\n'] >= 0 ? t->number['\n'] : 0, prints = r->me.rank == 0;
    /* GPT-2's last token, which stands between texts, also where its vocabulary is rounded up. */
    const int rounded = t->vocabulary >= GPT2 && t->vocabulary <= (GPT2 + 127) / 128 * 128;
    const int last = t->pieces ? t->piece_count - 1 : rounded ? GPT2 - 1 : t->vocabulary - 1;
    const int first = t->is_tokens ? last : newline;
    int64_t count = 0, next;
    const neo_sampling sampling = {r->o->temperature, r->o->top_k, neo_ctx_seed(r->me.ctx)};
    if (prints) printf("---- sample ----\n");
    while ((next = next_of_prompt(t, &prompt)) >= 0) {
        if (prints) put_token(t, next);
        push_id(r, &count, next);
    }
    if (!count) push_id(r, &count, first);
    for (int64_t i = 0; i < r->o->sample; i++) {
        TRY(draw_next(&r->t, count, &sampling, i, &next));
        if (prints) put_token(t, next);
        push_id(r, &count, next);
    }
    if (prints) printf("\n----------------\n");
    return NEO_OK;
}

static neo_status run_all(void *of_rank) {
    run *r = of_rank;
    neo_group group = neo_comm_group(r->me.comm);
    uint64_t digest;
    double val;
    int is_best;
    TRY(set_up(r));
    if (r->o->summary) return NEO_OK;
    int64_t before = r->step;
    TRY(cli_advise(&r->me, &r->o->saves, r->state, train(r)));
    if (!r->t.stops)
        TRY(cli_advise(&r->me, &r->o->saves, r->state, validate(r, &val)));
    if (r->t.stops) {
        cli_end_stopped(&r->me, &r->o->saves, r->step, r->saved);
        return agree(r->me.comm, NEO_OK);
    }
    if (r->step > before) TRY(keep_best(r, val, &is_best));
    if (r->me.rank == 0 && r->o->cluster) print_operations(r);
    if (r->me.rank == 0 && r->o->memory) print_memory(r, r->step > before);
    if (r->me.rank == 0) printf("val loss %.4f\n", val);
    if (r->o->sample) TRY(write_sample(r));
    TRY(neo_state_digest_group(r->state, &group, &digest));
    char words[DEVICE_TEXT];
    device_text(neo_ctx_device(r->me.ctx), r->t.graph, words);
    if (!r->me.rank && words[0]) printf("%s", words);
    return agree(r->me.comm, r->me.rank ? NEO_OK : print_state(digest));
}

/* Bytes that all groups of the model have sent. */
static int64_t sent_in_groups(const void *of_rank) {
    const run *r = of_rank;
    if (!r->t.fsdp) return 0; /* --summary */
    const int64_t bytes = r->sent_before + sent_by_layers(r->t.fsdp);
    return bytes + (r->t.data == r->me.comm ? 0 : cli_sent(neo_comm_get_stats(r->t.data)));
}

static neo_status run_rank(neo_comm *comm, void *user) {
    job *j = user;
    run *r = calloc(1, sizeof *r);
    if (!r) return out_of_memory();
    r->me = cli_rank_of(&j->cli, comm);
    r->o = &j->o;
    r->text = &j->text;
    r->t.data = comm;
    r->t.m.ctx = r->me.ctx;
    neo_status status = cli_run(&r->me, run_all, sent_in_groups, r);
    (void)neo_save_wait(&r->me.saving); /* of a run that has failed */
    tear_down(r);
    neo_trace_destroy(r->me.trace);
    free(r);
    return status;
}

static neo_status parse_job(int argc, char **argv, job *j) {
    TRY(cli_parse(&GPT, argc, argv, &j->o, &j->cli.help));
    if (j->cli.help) return NEO_OK;
    TRY(check_options(&j->o));
    cli_choose_leaves(&j->o.machine, &j->o.saves, 0, 1);
    TRY(cli_describe(&j->cli, &j->o.machine, j->o.seed));
    return read_text(&j->o, &j->text);
}

int main(int argc, char **argv) {
    static job j = {.cli = {.program = &GPT, .lock = PTHREAD_MUTEX_INITIALIZER}};
    int exit_status = cli_start(&j.cli, parse_job(argc, argv, &j), run_rank);
    free(j.text.data);
    free(j.text.pieces);
    free(j.text.piece);
    return exit_status;
}
