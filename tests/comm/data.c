/* data.c: what a training loop over ranks stands on beside the collectives: one status for all
   ranks, samples and metrics in global order, standard input on every rank. As threads; and,
   compiled with NEO_COMM_MPI, the same under mpirun. With the argument "stdin" it only reads
   numbers from standard input, on all ranks, and prints what they were. */
#include "inside_comm.h"
#include "neo_data.h"
#include "ranks.h"

#include <pthread.h>
#include <signal.h>
#if defined(NEO_COMM_MPI)
#include <mpi.h>
#endif

#if !defined(_WIN32)
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#endif

/* ---- one status ---- */
/* Rank r brings status[r], with text[r] as its reason. */
static neo_status bring(neo_comm *comm, const neo_status *status, const char *const *text) {
    int rank = neo_comm_rank(comm);
    if (status[rank] != NEO_OK && status[rank] != NEO_END)
        (void)neo_fail(status[rank], "%s", text[rank]);
    return neo_comm_agree(comm, status[rank]);
}
static neo_status still_works(neo_comm *comm) {
    int64_t mine = 1 + neo_comm_rank(comm), sum = 0, w = neo_comm_size(comm);
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, &mine, &sum, 1, NEO_I64, NULL));
    EXPECT(comm, sum == w * (w + 1) / 2, "%" PRId64, sum);
    return NEO_OK;
}
static neo_status agreement(neo_comm *comm, void *user) {
    enum { MOST = 16 };
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm);
    neo_status status[MOST];
    static char words[MOST][40];
    const char *text[MOST];
    char want[120];
    (void)user;
    for (int p = 0; p < w; p++) text[p] = words[p];
    for (int p = 0; p < w; p++) {
        status[p] = NEO_OK;
        if (p == rank) snprintf(words[p], sizeof words[p], "the disk of %d is full", p);
    }
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL)); /* words are shared by threads */
    neo_comm_reset_stats(comm);
    EXPECT_OK(comm, bring(comm, status, text));
    neo_comm_stats s = neo_comm_get_stats(comm);
    int64_t sent = s.op[NEO_COMM_ALL_GATHER].bytes[0] + s.op[NEO_COMM_ALL_GATHER].bytes[1];
    EXPECT(comm, sent == 8 * (w - 1) && s.op[NEO_COMM_BROADCAST].calls == 0, "%" PRId64 " bytes",
           sent);
    for (int p = 0; p < w; p++) { /* every rank alone, and with all above it */
        for (int several = 0; several < 2; several++) {
            for (int q = 0; q < w; q++)
                status[q] = q == p             ? NEO_ERR_FORMAT
                            : several && q > p ? NEO_ERR_IO
                            : q % 2            ? NEO_OK
                                               : NEO_END;
            snprintf(want, sizeof want, "rank %d: the disk of %d is full", p, p);
            EXPECT_ERR(comm, bring(comm, status, text), NEO_ERR_FORMAT, want);
            EXPECT(comm, strcmp(neo_last_error(), want) == 0, "%s", neo_last_error());
            EXPECT_OK(comm, still_works(comm));
        }
    }
    for (int p = 0; p < w; p++) status[p] = NEO_END;
    EXPECT(comm, bring(comm, status, text) == NEO_END, "%s", neo_last_error());
    for (int p = 0; p < w && w > 1; p++) { /* one that has not come to its end */
        status[p] = NEO_OK;
        snprintf(want, sizeof want,
                 "%d of %d ranks have come to the end, the others have not: rank", w - 1, w);
        EXPECT_ERR(comm, bring(comm, status, text), NEO_ERR_DIVERGED, want);
        status[p] = NEO_END;
    }
    if (w == 3) {
        status[1] = NEO_OK;
        EXPECT_ERR(comm, bring(comm, status, text), NEO_ERR_DIVERGED,
                   "2 of 3 ranks have come to the end, the others have not: ranks 0, 2");
        status[0] = NEO_OK;
        EXPECT_ERR(comm, bring(comm, status, text), NEO_ERR_DIVERGED,
                   "1 of 3 ranks have come to the end, the others have not: rank 2");
    }
    EXPECT_OK(comm, still_works(comm));
    return NEO_OK;
}
/* Texts of any length, none, and one that names its rank; a group whose ranks are others in the
   job; operations in flight. */
static neo_status agreed_texts(neo_comm *comm, void *user) {
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm), last = w - 1;
    static const int lengths[] = {1, 100, 503, 504, 511, 600};
    char text[700], got[700], want[60];
    (void)user;
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
        memset(text, 'a' + (int)k, sizeof text);
        text[lengths[k]] = 0;
        if (rank == last) (void)neo_fail(NEO_ERR_NUMERIC, "%s", text);
        EXPECT(comm,
               neo_comm_agree(comm, rank == last ? NEO_ERR_NUMERIC : NEO_OK) == NEO_ERR_NUMERIC,
               "status");
        snprintf(got, sizeof got, "%s", neo_last_error());
        int head = snprintf(NULL, 0, "rank %d: ", last),
            most = lengths[k] < 511 - head ? lengths[k] : 511 - head;
        EXPECT(comm,
               (int)strlen(got) == head + most && strncmp(got + head, text, (size_t)most) == 0,
               "%d: %.100s", lengths[k], got);
    }
    if (rank == last) (void)neo_fail(NEO_ERR_PEER, "rank 77: all_reduce #3: gone");
    EXPECT_ERR(comm, neo_comm_agree(comm, rank == last ? NEO_ERR_PEER : NEO_OK), NEO_ERR_PEER,
               "rank 77: all_reduce #3: gone");
    EXPECT(comm, strncmp(neo_last_error(), "rank 77", 7) == 0, "%s", neo_last_error());
    EXPECT_ERR(comm, neo_comm_agree(comm, NEO_ERR_PEER), NEO_ERR_PEER,
               "rank 77: all_reduce #3: gone"); /* once more */
    neo_comm *back = NULL;
    EXPECT_OK(comm, neo_comm_split(comm, 0, -rank, &back));
    float x = 1, y = 0;
    neo_ticket ticket;
    EXPECT_OK(comm, neo_comm_all_reduce(back, NEO_REDUCE_SUM, &x, &y, 1, NEO_F32, &ticket));
    if (rank == last) (void)neo_fail(NEO_ERR_RANGE, "an id");
    snprintf(want, sizeof want, "rank %d: an id", last);
    EXPECT_ERR(comm, neo_comm_agree(back, rank == last ? NEO_ERR_RANGE : NEO_END), NEO_ERR_RANGE,
               want);
    EXPECT(comm, y == (float)w, "an operation in flight is waited for");
    neo_comm_destroy(back);
    EXPECT_ERR(comm, neo_comm_agree(NULL, NEO_OK), NEO_ERR_ARG, "comm is NULL");
    EXPECT_OK(comm, still_works(comm));
    return NEO_OK;
}
/* Of a broken group there is no agreement. */
static neo_status no_agreement(neo_comm *comm, void *user) {
    (void)user;
    if (neo_comm_rank(comm) == 1) {
        neo_comm_abort(comm, "on purpose");
        EXPECT_ERR(comm, neo_comm_agree(comm, NEO_OK), NEO_ERR_PEER,
                   "rank 1 has given up: on purpose");
        return NEO_OK;
    }
    EXPECT_ERR(comm, neo_comm_agree(comm, NEO_ERR_IO), NEO_ERR_PEER,
               "rank 1 has given up: on purpose");
    return NEO_OK;
}

/* ---- samples in global order ---- */
enum { SAMPLES = 2003, BATCH = 150, WINDOW = 333 };
static neo_schema *generated(neo_ctx *ctx) {
    neo_synthetic_desc d;
    neo_schema *schema = NULL;
    memset(&d, 0, sizeof d);
    d.samples = SAMPLES;
    d.dense_count = 2;
    d.feature_count = 1;
    d.rows = 20;
    return neo_schema_synthetic(ctx, &d, &schema) == NEO_OK ? schema : NULL;
}
static neo_tensor logits_of(const neo_batch *b, float *logit) {
    for (int64_t i = 0; i < b->size; i++) logit[i] = ((const float *)b->dense.data)[2 * i] - 1.0f;
    return neo_tensor_1d(logit, NEO_F32, b->size);
}
static int same_values(neo_metric_values a, neo_metric_values b) {
    return a.count == b.count && a.auc_count == b.auc_count &&
           memcmp(&a.auc, &b.auc, sizeof a.auc) == 0 &&
           memcmp(&a.logloss, &b.logloss, sizeof a.auc) == 0 &&
           memcmp(&a.ne, &b.ne, sizeof a.auc) == 0 &&
           memcmp(&a.calibration, &b.calibration, sizeof a.auc) == 0 &&
           memcmp(&a.accuracy, &b.accuracy, sizeof a.auc) == 0 &&
           memcmp(&a.base_rate, &b.base_rate, sizeof a.auc) == 0;
}
/* Metrics of one rank that reads all, batch by batch; values: lifetime and window after each batch.
   */
static neo_status metrics_alone(neo_comm *comm, const neo_schema *schema, neo_metrics *m,
                                neo_metric_values *values) {
    neo_reader_desc d;
    neo_reader *reader = NULL;
    neo_batch b;
    float logit[BATCH];
    memset(&d, 0, sizeof d);
    d.schema = schema;
    d.batch = BATCH;
    d.shuffle_window = 400;
    EXPECT_OK(comm, neo_reader_open(neo_comm_ctx(comm), &d, &reader));
    for (int k = 0; neo_reader_next(reader, &b) == NEO_OK; k++) {
        EXPECT_OK(comm, neo_metrics_update(m, logits_of(&b, logit), b.label));
        EXPECT_OK(comm, neo_metrics_lifetime(m, &values[2 * k]));
        EXPECT_OK(comm, neo_metrics_window(m, &values[2 * k + 1]));
    }
    neo_reader_close(reader);
    return NEO_OK;
}
static neo_status metrics_over_ranks(neo_comm *comm, const neo_schema *schema, neo_metrics *m,
                                     const neo_metric_values *want) {
    neo_reader_desc d;
    neo_reader *reader = NULL;
    neo_batch b;
    static float all_logits[BATCH], all_labels[BATCH]; /* of rank 0 alone */
    float logit[BATCH];
    neo_status status;
    int rank = neo_comm_rank(comm), k = 0;
    memset(&d, 0, sizeof d);
    d.schema = schema;
    d.batch = BATCH;
    d.shuffle_window = 400;
    d.rank = rank;
    d.world_size = neo_comm_size(comm);
    EXPECT_OK(comm, neo_reader_open(neo_comm_ctx(comm), &d, &reader));
    for (; (status = neo_comm_agree(comm, neo_reader_next(reader, &b))) == NEO_OK; k++) {
        neo_metric_values now[2];
        int64_t n = b.global_size;
        neo_ticket ticket;
        neo_tensor mine = logits_of(&b, logit);
        EXPECT_OK(comm, neo_comm_gather_samples(comm, mine.data, rank ? NULL : all_logits, n, 1,
                                                NEO_F32, 0, &ticket));
        EXPECT_OK(comm, neo_comm_gather_samples(comm, b.label.data, rank ? NULL : all_labels, n, 1,
                                                NEO_F32, 0, NULL));
        EXPECT_OK(comm, neo_comm_wait(comm, ticket));
        if (rank) continue;
        EXPECT_OK(comm, neo_metrics_update(m, neo_tensor_1d(all_logits, NEO_F32, n),
                                           neo_tensor_1d(all_labels, NEO_F32, n)));
        EXPECT_OK(comm, neo_metrics_lifetime(m, &now[0]));
        EXPECT_OK(comm, neo_metrics_window(m, &now[1]));
        EXPECT(comm, same_values(now[0], want[2 * k]) && same_values(now[1], want[2 * k + 1]),
               "batch %d: AUC %.17g, not %.17g", k, now[0].auc, want[2 * k].auc);
    }
    EXPECT(comm, status == NEO_END && k == (SAMPLES + BATCH - 1) / BATCH, "%d batches: %s", k,
           neo_last_error());
    neo_reader_close(reader);
    return NEO_OK;
}
static neo_status metrics(neo_comm *comm, void *user) {
    neo_metric_values want[2 * (SAMPLES / BATCH + 1)];
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_metrics_desc d = {SAMPLES, WINDOW, 0, 0};
    neo_metrics *one = NULL, *all = NULL;
    neo_schema *schema = generated(ctx);
    (void)user;
    EXPECT(comm, schema, "%s", neo_last_error());
    EXPECT_OK(comm, neo_metrics_create(ctx, &d, &one));
    EXPECT_OK(comm, neo_metrics_create(ctx, &d, &all));
    EXPECT_OK(comm, metrics_alone(comm, schema, one, want));
    EXPECT_OK(comm, metrics_over_ranks(comm, schema, all, want));
    neo_metrics_destroy(one);
    neo_metrics_destroy(all);
    neo_schema_destroy(schema);
    return NEO_OK;
}
/* Rows of any width, to any root, of batches down to none. */
static neo_status samples(neo_comm *comm, void *user) {
    static const int64_t batches[] = {0, 1, 3, 8, 100};
    int w = neo_comm_size(comm), rank = neo_comm_rank(comm),
        shards = neo_ctx_repro_shards(neo_comm_ctx(comm));
    (void)user;
    for (size_t k = 0; k < sizeof batches / sizeof batches[0]; k++) {
        for (int64_t cols = 0; cols <= 3; cols += 3) {
            int64_t n = batches[k], root = (int64_t)k % w, mine[300], all[301], begin = -1,
                    count = -1;
            EXPECT_OK(comm, neo_comm_samples(comm, n, &begin, &count));
            int64_t end = begin + count;
            for (int64_t s = 0; s < n; s++) { /* whose leaf is it in? */
                int leaf = 0, owner = 0;
                while (s >= n * (leaf + 1) / shards) leaf++;
                while (leaf >= shards * (owner + 1) / w) owner++;
                EXPECT(comm, (s >= begin && s < end) == (owner == rank),
                       "sample %" PRId64 " of %" PRId64, s, n);
            }
            EXPECT(comm, count >= 0 && begin >= 0 && end <= n, "[%" PRId64 ", %" PRId64 ")", begin,
                   end);
            for (int64_t i = 0; i < (end - begin) * cols; i++) mine[i] = begin * cols + i;
            memset(all, -1, sizeof all);
            EXPECT_OK(comm, neo_comm_gather_samples(comm, mine, rank == root ? all : NULL, n, cols,
                                                    NEO_I64, (int)root, NULL));
            int good = 1;
            for (int64_t i = 0; i <= n * cols; i++)
                good &= all[i] == (rank == root && i < n * cols ? i : -1);
            EXPECT(comm, good, "%" PRId64 " samples of %" PRId64, n, cols);
        }
    }
    int64_t first = 7, count = 7;
    EXPECT_ERR(comm, neo_comm_gather_samples(comm, NULL, NULL, -1, 1, NEO_F32, 0, NULL),
               NEO_ERR_ARG, "-1 samples of 1 numbers");
    EXPECT_ERR(comm, neo_comm_samples(comm, -1, &first, &count), NEO_ERR_ARG,
               "neo_comm_samples: a batch of -1");
    EXPECT_ERR(comm, neo_comm_samples(comm, 1, NULL, &count), NEO_ERR_ARG,
               "neo_comm_samples: an argument is NULL");
    EXPECT_ERR(comm, neo_comm_samples(comm, 1, &first, NULL), NEO_ERR_ARG,
               "neo_comm_samples: an argument is NULL");
    EXPECT_ERR(comm, neo_comm_samples(NULL, 1, &first, &count), NEO_ERR_ARG,
               "neo_comm_samples: an argument is NULL");
    EXPECT(comm, first == 7 && count == 7, "a refused call has written");
    return NEO_OK;
}
/* repro_shards -N: N leaves, or, of more ranks, one for each. */
enum { LEAST_LEAVES = 5 };
static neo_status least_leaves(neo_comm *comm, void *user) {
    const int ranks = neo_comm_size(comm), leaves = neo_ctx_repro_shards(neo_comm_ctx(comm));
    EXPECT(comm, leaves == (ranks < LEAST_LEAVES ? LEAST_LEAVES : ranks), "the number of leaves");
    return samples(comm, user);
}
static neo_status too_few_leaves(neo_comm *comm, void *user) {
    (void)user;
    EXPECT_ERR(comm, neo_comm_gather_samples(comm, NULL, NULL, 0, 1, NEO_F32, 0, NULL), NEO_ERR_ARG,
               "repro_shards is 1, less than the 2 ranks");
    int64_t first = 7, count = 7;
    EXPECT_ERR(comm, neo_comm_samples(comm, 8, &first, &count), NEO_ERR_ARG,
               "neo_comm_samples: repro_shards is 1, less than the 2 ranks");
    EXPECT(comm, first == 7 && count == 7, "a refused call has written");
    return NEO_OK;
}

/* ---- standard input ---- */
#if !defined(_WIN32)
static char lines[1 << 20];
static size_t line_bytes;
static char file_path[200];
enum { LINES = 20000 };
static void make_lines(void) {
    const char *dir = getenv("TMPDIR");
    for (int i = 0; i < LINES; i++) {
        line_bytes += (size_t)sprintf(lines + line_bytes, "%d,%d,", i % 2, i);
        for (int k = 0; k < i * 7 % 4; k++)
            line_bytes += (size_t)sprintf(lines + line_bytes, "w%d|", i * k % 100);
        lines[line_bytes++] = '\n';
        if (i % 1000 == 7) line_bytes += (size_t)sprintf(lines + line_bytes, "no line\n");
    }
    snprintf(file_path, sizeof file_path, "%s/neo-comm-data-%ld.csv", dir ? dir : "/tmp",
             (long)getpid());
    FILE *f = fopen(file_path, "wb");
    if (!f || fwrite(lines, 1, line_bytes, f) != line_bytes || fclose(f) != 0) {
        printf("cannot write %s\n", file_path);
        exit(1);
    }
}
static neo_schema *columns(neo_ctx *ctx) {
    neo_schema *schema = NULL;
    return neo_schema_parse(ctx, "y label\nx dense\nw list sep=| rows=50 hash\n", &schema) == NEO_OK
               ? schema
               : NULL;
}
/* A thread that writes the lines into a pipe which is standard input. */
typedef struct writer {
    pthread_t thread;
    int to, endless, stop; /* stop: atomic */
    size_t piece;
} writer;
static void *writer_main(void *arg) {
    writer *w = (writer *)arg;
    for (size_t at = 0; !__atomic_load_n(&w->stop, __ATOMIC_RELAXED);) {
        struct pollfd p = {.fd = w->to, .events = POLLOUT};
        if (at == line_bytes && !w->endless) break;
        if (at == line_bytes)
            poll(NULL, 0, 10);
        else if (poll(&p, 1, 20) > 0) {
            size_t n = line_bytes - at < w->piece ? line_bytes - at : w->piece;
            ssize_t written = write(w->to, lines + at, n);
            if (written > 0) at += (size_t)written;
        }
    }
    close(w->to);
    return NULL;
}
static int writer_start(writer *w, size_t piece, int endless) {
    int ends[2];
    memset(w, 0, sizeof *w);
    if (pipe(ends) != 0 || dup2(ends[0], 0) < 0) return 0;
    close(ends[0]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    w->to = ends[1];
    w->piece = piece;
    w->endless = endless;
    return pthread_create(&w->thread, NULL, writer_main, w) == 0;
}
static void writer_end(writer *w) {
    __atomic_store_n(&w->stop, 1, __ATOMIC_RELAXED);
    pthread_join(w->thread, NULL);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    close(null);
}
typedef struct input_case {
    size_t piece;
    int endless;
    int64_t shuffle, batch;
    const char *path;
} input_case;
/* A rank's readers: of the file, and of standard input. */
typedef struct pair {
    neo_schema *schema;
    neo_reader *file, *standard;
    neo_comm_input *input;
    int shuffled;
} pair;
static writer feeder; /* of rank 0 */
static neo_status pair_open(neo_comm *comm, const input_case *c, pair *p) {
    neo_reader_desc d;
    const char *paths[1] = {file_path};
    neo_ctx *ctx = neo_comm_ctx(comm);
    memset(p, 0, sizeof *p);
    p->shuffled = c->shuffle != 0;
    p->schema = columns(ctx);
    EXPECT(comm, p->schema, "%s", neo_last_error());
    if (neo_comm_rank(comm) == 0)
        EXPECT(comm, writer_start(&feeder, c->piece, c->endless), "a pipe");
    memset(&d, 0, sizeof d);
    d.schema = p->schema;
    d.paths = paths;
    d.path_count = 1;
    d.batch = c->batch;
    d.shuffle_window = c->shuffle;
    d.skip_bad_lines = 1;
    d.rank = neo_comm_rank(comm);
    d.world_size = neo_comm_size(comm);
    EXPECT_OK(comm, neo_reader_open(ctx, &d, &p->file));
    EXPECT_OK(comm, neo_comm_input_open(comm, c->path, &p->input));
    paths[0] = "-";
    d.threads = 1 + d.rank % 2;
    d.input = neo_comm_input_source(p->input);
    EXPECT_OK(comm, neo_reader_open(ctx, &d, &p->standard));
    return NEO_OK;
}
static void pair_close(neo_comm *comm, pair *p) {
    neo_reader_close(p->standard);
    neo_comm_input_close(p->input);
    neo_reader_close(p->file);
    neo_schema_destroy(p->schema);
    if (neo_comm_rank(comm) == 0) writer_end(&feeder);
}
static int same_batch(const neo_batch *a, const neo_batch *b) {
    int64_t bags = a->sparse.batch * a->sparse.feature_count;
    if (a->size != b->size || a->first != b->first || a->global_size != b->global_size) return 0;
    return memcmp(a->dense.data, b->dense.data, (size_t)a->size * sizeof(float)) == 0 &&
           memcmp(a->label.data, b->label.data, (size_t)a->size * sizeof(float)) == 0 &&
           memcmp(a->sparse.offsets, b->sparse.offsets, (size_t)(bags + 1) * sizeof(int64_t)) ==
               0 &&
           memcmp(a->sparse.ids, b->sparse.ids,
                  (size_t)a->sparse.offsets[bags] * sizeof(int64_t)) == 0;
}
/* Batches as the file's, until `most` or the end. */
static neo_status pair_reads(neo_comm *comm, pair *p, int64_t most, int64_t *count) {
    neo_batch a, b;
    for (*count = 0; *count < most; ++*count) {
        neo_status status = neo_reader_next(p->file, &a), other = neo_reader_next(p->standard, &b);
        if (status != other) failed_with(other);
        EXPECT(comm, status == other, "batch %" PRId64 ": %s, not %s: %s", *count,
               neo_status_string(other), neo_status_string(status), neo_last_error());
        if (status != NEO_OK || other != NEO_OK) return other;
        EXPECT(comm, same_batch(&a, &b), "batch %" PRId64, *count);
        neo_position x = neo_reader_position(p->file), y = neo_reader_position(p->standard);
        EXPECT(comm, x.word[2] >> 32 && y.word[2] >> 32 == 0,
               "the sizes of files, which a stream lacks");
        x.word[2] &= INT32_MAX;
        /* In file order windows of a stream are shorter than those of a file. */
        EXPECT(comm, p->shuffled ? memcmp(&x, &y, sizeof x) == 0 : x.word[1] == y.word[1],
               "position of batch %" PRId64, *count);
    }
    return NEO_OK;
}
/* To the end; a batch of all is of no rank alone. */
static neo_status input_whole(neo_comm *comm, void *user) {
    const input_case *c = (const input_case *)user;
    size_t before = neo_ctx_memory(neo_comm_ctx(comm)).bytes;
    int64_t n = 0;
    pair p;
    EXPECT_OK(comm, pair_open(comm, c, &p));
    EXPECT(comm, pair_reads(comm, &p, INT64_MAX, &n) == NEO_END, "%s", neo_last_error());
    EXPECT(comm, n == (LINES + c->batch - 1) / c->batch, "%" PRId64 " batches", n);
    pair_close(comm, &p);
    EXPECT_OK(comm,
              neo_comm_barrier(comm, NULL)); /* the last to leave a group frees its ranks' seats */
    EXPECT(comm, neo_ctx_memory(neo_comm_ctx(comm)).bytes == before, "a leak");
    return NEO_OK;
}
/* All stop after the same batch, one after another, while bytes still come: each has had all it
   needs, and the first has closed before the next one reads. */
static neo_status input_stopped(neo_comm *comm, void *user) {
    const input_case *c = (const input_case *)user;
    for (int64_t most = 1; most < 14; most += 4) {
        int64_t n = 0;
        pair p;
        EXPECT_OK(comm, pair_open(comm, c, &p));
        int mine = neo_comm_rank(comm);
        if (most % 8 == 5) mine = neo_comm_size(comm) - 1 - mine;
        for (int turn = 0; turn < neo_comm_size(comm); turn++) {
            if (turn == mine) {
                EXPECT_OK(comm, pair_reads(comm, &p, most, &n));
                pair_close(comm, &p);
            }
            EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
        }
    }
    return NEO_OK;
}
/* One stops alone: the others read what came, and are then told. A reader that rests longer than
   the timeout breaks nothing. */
enum { SHORT_MS = 2000 };
static int short_ms; /* the timeout */
static neo_status input_left(neo_comm *comm, void *user) {
    const input_case *c = (const input_case *)user;
    int rank = neo_comm_rank(comm), last = neo_comm_size(comm) - 1;
    char want[100];
    int64_t n = 0;
    pair p;
    EXPECT_OK(comm, pair_open(comm, c, &p));
    EXPECT_OK(comm, pair_reads(comm, &p, 3, &n));
    if (rank == 0) poll(NULL, 0, 2 * short_ms);
    EXPECT_OK(comm, pair_reads(comm, &p, 3, &n));
    neo_batch b;
    neo_status status = NEO_OK;
    while (rank != last && (status = neo_reader_next(p.standard, &b)) == NEO_OK) n++;
    snprintf(want, sizeof want, "standard input: rank %d has closed it before its end", last);
    if (rank != last) EXPECT_ERR(comm, status, NEO_ERR_PEER, want);
    pair_close(comm, &p);
    return NEO_OK;
}
/* Of all processes the most failures, and the worst first one, so that all decide alike. */
static neo_status failures_of_all(neo_comm *comm, void *user) {
    int64_t mine[2] = {failures, failed_by}, most[2] = {0, 0};
    (void)user;
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_MAX, mine, most, 2, NEO_I64, NULL));
    failures = (int)most[0], failed_by = (int)most[1];
    return NEO_OK;
}
/* Rank 0 cannot read; a rank's thread is lost. */
static neo_status input_fails(neo_comm *comm, void *user) {
    input_case c = *(const input_case *)user;
    int rank = neo_comm_rank(comm);
    int64_t n = 0;
    neo_batch b;
    pair p;
    EXPECT_OK(comm, pair_open(comm, &c, &p));
    EXPECT_OK(comm, pair_reads(comm, &p, 3, &n));
    if (rank == 0) { /* in place of the pipe */
        int folder = open("/", O_RDONLY);
        dup2(folder, 0);
        close(folder);
    }
    neo_status status;
    while ((status = neo_reader_next(p.standard, &b)) == NEO_OK) n++;
    EXPECT_ERR(comm, status, NEO_ERR_IO, "standard input: rank 0 cannot read: ");
    pair_close(comm, &p);
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    EXPECT_OK(comm, pair_open(comm, &c, &p));
    EXPECT_OK(comm, pair_reads(comm, &p, 3, &n));
    EXPECT_OK(comm,
              neo_comm_barrier(comm, NULL)); /* a loss does not keep what others have not had yet */
    if (rank == 1) neo_comm_abort(inside_input_group(p.input), "its thread is lost");
    while ((status = neo_reader_next(p.standard, &b)) == NEO_OK) n++;
    EXPECT_ERR(comm, status, NEO_ERR_PEER, "rank 1 has given up: its thread is lost");
    pair_close(comm, &p);
    return NEO_OK;
}
/* From a position that a run on one rank has saved, of a file with the same lines. */
static neo_status input_sought(neo_comm *comm, void *user) {
    const input_case *c = (const input_case *)user;
    neo_reader_desc d;
    neo_reader *one = NULL;
    const char *path = file_path;
    neo_position position;
    neo_batch a;
    int64_t n = 0;
    pair p;
    EXPECT_OK(comm, pair_open(comm, c, &p));
    memset(&d, 0, sizeof d);
    d.schema = p.schema;
    d.paths = &path;
    d.path_count = 1;
    d.batch = c->batch;
    d.shuffle_window = c->shuffle;
    d.skip_bad_lines = 1;
    EXPECT_OK(comm, neo_reader_open(neo_comm_ctx(comm), &d, &one));
    for (int i = 0; i < 31; i++) EXPECT_OK(comm, neo_reader_next(one, &a));
    position = neo_reader_position(one);
    neo_reader_close(one);
    EXPECT_OK(comm, neo_reader_seek(p.file, &position));
    EXPECT_OK(comm, neo_reader_seek(p.standard, &position));
    EXPECT(comm, pair_reads(comm, &p, INT64_MAX, &n) == NEO_END, "%s", neo_last_error());
    EXPECT(comm, n == (LINES + c->batch - 1) / c->batch - 31, "%" PRId64 " batches", n);
    pair_close(comm, &p);
    return NEO_OK;
}
/* A file that rank 0 alone reads, and a named pipe. */
static char pipe_path[220];
static void *fill_pipe(void *arg) {
    int to = open(pipe_path, O_WRONLY); /* waits for the reader */
    (void)arg;
    for (size_t at = 0; to >= 0 && at < line_bytes;) {
        ssize_t n = write(to, lines + at, line_bytes - at < 5000 ? line_bytes - at : 5000);
        if (n <= 0) break;
        at += (size_t)n;
    }
    if (to >= 0) close(to);
    return NULL;
}
static neo_status input_paths(neo_comm *comm, void *user) {
    input_case c = *(const input_case *)user;
    neo_comm_input *input = NULL;
    pthread_t filler;
    EXPECT_ERR(comm, neo_comm_input_open(comm, "/none/such", &input), NEO_ERR_NOT_FOUND,
               "rank 0: neo_comm_input_open: /none/such: ");
    EXPECT(comm, !input, "no input");
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    c.path = neo_comm_rank(comm) == 0 ? file_path : "/only/rank/0/has/it";
    EXPECT_OK(comm, input_whole(comm, &c));
    if (neo_comm_rank(comm) == 0) {
        snprintf(pipe_path, sizeof pipe_path, "%s.pipe", file_path);
        EXPECT(comm, mkfifo(pipe_path, 0600) == 0, "a named pipe");
        EXPECT(comm, pthread_create(&filler, NULL, fill_pipe, NULL) == 0, "a thread");
        c.path = pipe_path;
    }
    EXPECT_OK(comm, input_whole(comm, &c));
    if (neo_comm_rank(comm) == 0) {
        pthread_join(filler, NULL);
        unlink(pipe_path);
    }
    return NEO_OK;
}
/* No memory on one rank: open fails on all, with its words. */
static int64_t refused; /* of rank 1: which allocation from now on */
static void *refusing_alloc(size_t size, size_t align, void *user) {
    void *p = NULL;
    (void)user;
    if (size == inside_input_bytes() &&
        __atomic_add_fetch(&refused, -1, __ATOMIC_RELAXED) == 0)
        return NULL;
    return posix_memalign(&p, align < sizeof p ? sizeof p : align, size ? size : 1) == 0 ? p : NULL;
}
static void refusing_free(void *ptr, size_t size, void *user) {
    (void)size, (void)user;
    free(ptr);
}
static neo_status input_refused(neo_comm *comm, void *user) {
    neo_comm_input *input = NULL;
    size_t before = neo_ctx_memory(neo_comm_ctx(comm)).bytes;
    (void)user;
    EXPECT_ERR(comm, neo_comm_input_open(comm, NULL, &input), NEO_ERR_MEMORY,
               "neo_comm_input_open: no memory for 1048576 bytes");
    EXPECT(comm, strncmp(neo_last_error(), "rank ", 5) == 0 && !input, "%s", neo_last_error());
    EXPECT_OK(comm, neo_comm_barrier(comm, NULL));
    EXPECT(comm, neo_ctx_memory(neo_comm_ctx(comm)).bytes == before, "a leak");
    return still_works(comm);
}
/* Prints what came on standard input: whatever the ranks, the same. */
static neo_status input_digest(neo_comm *comm, void *user) {
    neo_ctx *ctx = neo_comm_ctx(comm);
    neo_schema *schema = NULL;
    neo_comm_input *input = NULL;
    neo_reader *reader = NULL;
    neo_reader_desc d;
    const char *path = "-";
    int64_t mine[2] = {0, 0}, all[2] = {0, 0}; /* samples; their sum with weights of their order */
    neo_batch b;
    neo_status status;
    (void)user;
    EXPECT_OK(comm, neo_schema_parse(ctx, "x dense\n", &schema));
    EXPECT_OK(comm, neo_comm_input_open(comm, NULL, &input));
    memset(&d, 0, sizeof d);
    d.schema = schema;
    d.paths = &path;
    d.path_count = 1;
    d.batch = 100;
    d.unlabeled = 1;
    d.rank = neo_comm_rank(comm);
    d.world_size = neo_comm_size(comm);
    d.input = neo_comm_input_source(input);
    EXPECT_OK(comm, neo_reader_open(ctx, &d, &reader));
    while ((status = neo_comm_agree(comm, neo_reader_next(reader, &b))) == NEO_OK)
        for (int64_t i = 0; i < b.size; i++, mine[0]++)
            mine[1] += (b.first + i + 1) * (int64_t)((const float *)b.dense.data)[i];
    EXPECT(comm, status == NEO_END, "%s", neo_last_error());
    EXPECT_OK(comm, neo_comm_all_reduce(comm, NEO_REDUCE_SUM, mine, all, 2, NEO_I64, NULL));
    if (d.rank == 0) printf("stdin: %" PRId64 " samples, %" PRId64 "\n", all[0], all[1]);
    neo_reader_close(reader);
    neo_comm_input_close(input);
    neo_schema_destroy(schema);
    return NEO_OK;
}
static int standard_input(int w, int mpi) {
    int bad = 0;
    neo_comm_desc d;
    memset(&d, 0, sizeof d);
    d.ctx.repro_shards = 8;
    input_case cases[3] = {
        {100000, 0, 0, 100, NULL}, {3000, 0, 1000, 64, NULL}, {1 << 20, 0, 0, 7777, NULL}};
    for (int k = 0; k < 3; k++) bad += run_ranks(w, &d, input_whole, &cases[k]);
    bad += run_ranks(w, &d, input_sought, &cases[1]);
    bad += run_ranks(w, &d, input_paths, &cases[1]);
    cases[0].endless = cases[1].endless = 1;
    bad += run_ranks(w, &d, input_stopped, &cases[0]);
    if (w == 3) bad += run_ranks(w, &d, input_stopped, &cases[1]);
    if (mpi) bad += run_ranks(w, NULL, failures_of_all, NULL);
    for (int was = -1; (w == 2 || w == 4) && made_again(SHORT_MS, &short_ms, &was);) {
        d.timeout_ms = short_ms, d.ranks = w;
        neo_status status = neo_comm_init_env(&d, input_left, &cases[0]);
        if (status != NEO_OK) failed_with(status), failures++;
        if (mpi) bad += run_ranks(w, NULL, failures_of_all, NULL);
    }
    d.timeout_ms = 0;
    if (w == 2 || w == 3) bad += run_ranks(w, &d, input_fails, &cases[0]);
    if (w == 3 && !mpi) {
        d.ctx.allocator.alloc = refusing_alloc;
        d.ctx.allocator.free = refusing_free;
        for (int k = 1; k <= 3; k++) {
            refused = k;
            bad += run_ranks(w, &d, input_refused, NULL);
        }
    }
    return bad;
}
#else
static void make_lines(void) {}
static int standard_input(int w, int mpi) { return (void)w, (void)mpi, 0; }
#endif

int main(int argc, char **argv) {
    int bad = 0, mpi = launched();
    neo_comm_desc digest;
    memset(&digest, 0, sizeof digest);
    digest.ctx.repro_shards = 8;
#if defined(NEO_COMM_MPI)
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
#endif
#if !defined(_WIN32)
    if (argc > 1 && strcmp(argv[1], "stdin") == 0)
        bad = run_ranks(argc > 2 ? atoi(argv[2]) : 3, &digest, input_digest, NULL);
    else
#endif
    {
        (void)argc, (void)argv;
#if !defined(_WIN32)
        signal(SIGPIPE, SIG_IGN);
#endif
        make_lines();
        for (int w = mpi ? mpi : 1; w <= (mpi ? mpi : 8); w++) {
            neo_comm_desc d;
            memset(&d, 0, sizeof d);
            bad += run_ranks(w, &d, agreement, NULL);
            bad += run_ranks(w, &d, agreed_texts, NULL);
            bad += run_ranks(w, &d, metrics, NULL);
            for (d.ctx.repro_shards = w; d.ctx.repro_shards <= 12;
                 d.ctx.repro_shards += 1 + TEST_WATCHED)
                bad += run_ranks(w, &d, samples, NULL);
            d.ctx.repro_shards = 8;
            bad += run_ranks(w, &d, metrics, NULL);
            d.ctx.repro_shards = -LEAST_LEAVES;
            bad += run_ranks(w, &d, least_leaves, NULL);
            d.ctx.repro_shards = 1;
            if (w == 2) bad += run_ranks(w, &d, too_few_leaves, NULL);
            if (w == 3 && !mpi) bad += run_ranks(w, NULL, no_agreement, NULL);
            if (TEST_WATCHED == 2 ? w == 2 || w == 3 || w == 8 : w <= 4 || w == 8)
                bad += standard_input(w, mpi);
        }
#if !defined(_WIN32)
        unlink(file_path);
#endif
    }
#if defined(NEO_COMM_MPI)
    MPI_Finalize();
#endif
    return ranks_end("comm/data", bad);
}
