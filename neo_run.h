/* neo_run.h: a run and the world around it: files and checksums, metrics, progress, signals, JSON
   lines, traces, TensorBoard's event files, a report.

   Copy it beside neo.h and neo_kernels.h. MIT licence (at the end of neo.h).

   WHAT IT DOES
     - a check of the gradients of your own layers, by differences
     - metrics of predictions, exact over batches and ranks: AUC, log loss, calibration, by group
     - what a run says meanwhile: a progress bar, lines of JSON, TensorBoard's files
     - a trace of what every rank and thread did when, for Perfetto or simulators of clusters
     - a page with its curves, tables and memory; a stop at a step's end when a signal comes

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_run.h"
         #include "neo_run.h"
     It implements neo.h too; neo_state.h and neo_store.h include it.

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$' neo_run.h is the map)
     >>checksum >>gradcheck >>metrics >>progress >>stop >>jsonl >>trace >>events >>report
     >>files >>impl-crc32c >>impl-out >>impl-gradcheck >>impl-metrics >>impl-progress >>impl-stop
     >>impl-jsonl >>impl-trace >>impl-events >>impl-report
*/
#ifndef NEO_RUN_H
#define NEO_RUN_H

#include "neo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>checksum
   ------------------------------------------------------------------------ */
/* neo_crc32c: the checksum of data, continuing from crc (0 to start). Of "123456789" it is
   0xE3069283. */
NEO_API uint32_t neo_crc32c(uint32_t crc, const void *data, size_t bytes);

#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
   >>gradcheck

   Compares an analytic gradient with central differences of a scalar function.
   ------------------------------------------------------------------------ */
/* forward only, from current values */
typedef neo_status (*neo_gradcheck_fn)(void *user, double *loss);
typedef struct neo_gradcheck_desc {
    neo_gradcheck_fn loss;
    void *user;
    neo_tensor value;    /* f32, contiguous: nudged one element at a time, restored */
    neo_tensor grad;     /* the gradient of loss with respect to value, from your backward */
    double step;         /* 0: 1e-2 (f32 sums are coarse); off by its square where loss bends */
    double rel_tol;      /* 0: 2e-2 */
    double abs_tol;      /* 0: 1e-4 */
    int64_t max_elements;/* 0: all; else that many, spread evenly */
    const char *name;    /* for the message */
    neo_ctx *ctx;        /* of tensors in a device's memory; else not read */
} neo_gradcheck_desc;
typedef struct neo_gradcheck_result {
    int64_t checked, failed;
    int64_t worst_element; /* of the largest |analytic - numeric| / (abs_tol + rel_tol |numeric|) */
    double worst_ratio, analytic, numeric;
} neo_gradcheck_result;
/* neo_gradcheck: Errors NEO_ERR_MISMATCH: some element is off (the message names the worst; result
   is filled). A NaN fails. Errors of loss() are passed on. result may be NULL. */
NEO_API neo_status neo_gradcheck(const neo_gradcheck_desc *desc, neo_gradcheck_result *result);

/* ---------------------------------------------------------------------------
   >>metrics

   Of a binary classifier, over everything seen (lifetime) and over the last samples (window). Sums
   are exact and AUC counts pairs in integers with ties grouped, so the order of updates does not
   matter. On several ranks: one of them updates with the samples of all, in their order (see
   neo_comm_gather_samples in neo_comm.h); all values are then those of one rank.
   ------------------------------------------------------------------------ */
typedef struct neo_metrics neo_metrics;
typedef struct neo_metrics_desc {
    int64_t capacity; /* samples the lifetime AUC can hold (8 bytes each), to 2^32; required */
    int64_t window;   /* samples of the window (13 bytes each at most); 0: no window */
    int weighted;     /* 1: samples have weights (16 bytes each in all, 25 of the window) */
    int binned;       /* 1: beyond capacity auc and pr_auc are those of logits cut to 65,536 bins,
                         2^-11 wide in -16 .. 16 (1 MiB more, for any number of samples) */
} neo_metrics_desc;
typedef struct neo_metric_values {
    int64_t count;
    double auc;         /* NaN: all labels are alike, or, not binned, more than capacity was seen */
    double logloss;     /* mean, natural logarithm */
    double ne;          /* normalized entropy: logloss / entropy of the base rate */
    double calibration; /* sum of predictions / sum of labels; NaN without positive labels */
    double accuracy;    /* a prediction >= 0.5 (a logit >= 0) counts as positive */
    double base_rate;   /* share of positive labels */
    int64_t auc_count;  /* samples in the AUC */
    double pr_auc;      /* average precision, as sklearn's: the sum over distinct scores of recall
                           gained times precision there; NaN without positive labels, and as auc
                           beyond capacity */
    double mse, mae;    /* of predictions: the Brier score, and the mean distance from labels */
    double auc_error;   /* half of the share of pairs that tie in a bin: but for rounding the AUC of
                           uncut logits is no further from auc; 0: it is of no bins; NaN as auc */
} neo_metric_values; /* all NaN while count is 0 */
NEO_API NEO__CHECK_UNUSED neo_status neo_metrics_create(neo_ctx *ctx, const neo_metrics_desc *desc,
                                                        neo_metrics **metrics);
NEO_API void neo_metrics_destroy(neo_metrics *metrics);
NEO_API void neo_metrics_reset(neo_metrics *metrics);
/* neo_metrics_update: logits (before the sigmoid) and labels (0 or 1) of a batch, [B] or [B][1]
   f32. Allocates nothing. Errors: NEO_ERR_SHAPE; NEO_ERR_NUMERIC: a logit that is not finite;
   NEO_ERR_RANGE: a label that is not 0 or 1 (both name the sample; nothing of the batch is
   counted).
   neo_metrics_lifetime, _window: values of all samples since create or reset; of the last `window`
   of them. They sort (about 10 ns per sample). Errors: NEO_ERR_STATE: created without a window. */
NEO_API neo_status neo_metrics_update(neo_metrics *metrics, neo_tensor logit, neo_tensor label);
/* neo_metrics_update_weighted: a sample counts as `weight` samples: a pair in the AUC is worth the
   product of both weights, means divide by the sum of weights. weight: [B] f32 in host memory; a
   sample's numbers are multiplied by it in f32, and the values do not depend on the order of
   samples (but for bins, which add weights in double, in that order). Weights of 1 give the values
   of update; count and auc_count stay samples. Source: sample_weight of sklearn.metrics. Errors: as
   update, and NEO_ERR_STATE: metrics were not created for weights (or, of update, were);
   NEO_ERR_RANGE: a weight below 0 or not finite. */
NEO_API neo_status neo_metrics_update_weighted(neo_metrics *metrics, neo_tensor logit,
                                               neo_tensor label, neo_tensor weight);
NEO_API neo_status neo_metrics_lifetime(neo_metrics *metrics, neo_metric_values *values);
NEO_API neo_status neo_metrics_window(neo_metrics *metrics, neo_metric_values *values);
/* neo_metrics_tensor: part `index` of all that was counted, in host memory, contiguous, and its
   name; none beyond the last. Metrics of the same desc that are given these numbers, as by a
   checkpoint (neo_state_add_metrics), go on as if they had counted them. */
NEO_API neo_tensor neo_metrics_tensor(neo_metrics *metrics, int index, const char **name);
/* neo_auc: of count scores and labels (>= 0.5 is positive), ties grouped. scratch:
   neo_auc_scratch_bytes(count) bytes, 4-byte aligned. NaN when a score is NaN, all labels are
   alike or count is not in 1 .. 2^32. */
NEO_API size_t neo_auc_scratch_bytes(int64_t count);
NEO_API double neo_auc(const float *score, const float *label, int64_t count, void *scratch);

/* neo_grouped: metrics inside groups, as a user's or a query's samples. Sorts samples; their order
   does not matter, so those of several ranks may be gathered in any.
   Errors   NEO_ERR_ARG: samples or values is NULL, count or k below 0. NEO_ERR_NUMERIC: a score
            that is not finite. NEO_ERR_RANGE: a label that is not finite or below 0; both name the
            sample. */
typedef struct neo_grouped_sample {
    int64_t group;
    float score, label; /* auc: >= 0.5 is positive; ndcg: the gain */
} neo_grouped_sample;
typedef struct neo_grouped_values {
    int64_t groups, auc_groups, ndcg_groups; /* all; with both labels; with a gain above 0 */
    double auc;  /* of each group with both labels, weighted by its samples (Zhou et al. 2018,
                    "Deep interest network", section 6.2) */
    double ndcg; /* mean over groups with a gain, of the k highest scores: gains over log2(1 +
                    rank) by those of the best order; equal scores share theirs, as in sklearn
                    (which counts a group without gains as 0) */
} neo_grouped_values; /* NaN without such groups */
NEO_API neo_status neo_grouped(neo_grouped_sample *samples, int64_t count, int64_t k, /* 0: all */
                               neo_grouped_values *values);

/* ---------------------------------------------------------------------------
   >>progress

   One line that rewrites itself on a terminal, plain lines now and then elsewhere. neo prints
   nothing by itself: the text goes to your write function.
   ------------------------------------------------------------------------ */
typedef struct neo_progress {
    void (*write)(const char *text, void *user); /* required */
    void *user;
    int terminal;           /* 1: redraw one line with \r; 0: plain lines */
    const char *label;      /* "train" */
    int64_t total;          /* samples; 0: unknown */
    int64_t first;          /* samples done before begin, as in a resumed run: not in the rate */
    int64_t interval_ms;    /* between lines; 0: 100 on a terminal, 5,000 elsewhere */
    int columns;            /* of the terminal; 0: 80 */
    int ascii;              /* 1: a bar of # and . instead of UTF-8 line characters */
    int hide_loss;          /* 1: there is no loss to show */
    int64_t started_ns, last_ns, done; /* neo's */
    int shown;                         /* neo's */
} neo_progress;
NEO_API void neo_progress_begin(neo_progress *progress);
/* neo_progress_update: done samples so far; shows bar, percent, samples/s, loss, ETA when it is
   time to.
   neo_progress_end: the last line, with the time taken; ends the terminal's line. */
NEO_API void neo_progress_update(neo_progress *progress, int64_t done, double loss);
NEO_API void neo_progress_end(neo_progress *progress, double loss);

/* ---------------------------------------------------------------------------
   >>stop

   Ctrl-C, and the SIGTERM by which a scheduler ends a job, as a question that a training loop asks
   after a step: so that it saves a checkpoint before it ends.
       neo_stop_on_signals();
       while (!neo_stop_signal() && ...) { train a step }
       save a checkpoint; return 128 + neo_stop_signal() from main, as a shell counts signals
   Signals reach ranks at different moments, but they must stop after the same step: let the flag be
   one more word of a sum that they make anyway (examples/train/dlrm/step.h).
   ------------------------------------------------------------------------ */
/* neo_stop_on_signals: from now on the first SIGINT or SIGTERM is kept for neo_stop_signal, and the
   next one of either ends the program at once; within half a second it is the same one, which
   launchers and process groups deliver twice. A call that is blocked in a read or a wait stays so:
   a loop that waits for a pipe sees the signal when data come, or never; the second signal ends
   it. One that the program ignores (SIGINT, in the background of a script) stays ignored. On
   Windows: Ctrl-C counts as SIGINT, Ctrl-Break as SIGTERM. Which one came is neo's only writable
   global besides the text of neo_last_error, as handlers belong to the process; with NEO_STATIC
   every file has its own. A program that does not call this keeps its handlers. Threads: call it
   once, from one. Errors: NEO_ERR_SYSTEM. */
NEO_API neo_status neo_stop_on_signals(void);
/* neo_stop_signal: 0, or the signal that came (2: SIGINT, 15: SIGTERM). Threads: from any. */
NEO_API int neo_stop_signal(void);

/* ---------------------------------------------------------------------------
   >>jsonl

   A log of JSON lines: {"step":100,"loss":0.31,...}. Each line goes to the system in one write
   when it ends, so a killed process leaves whole lines.
   ------------------------------------------------------------------------ */
typedef struct neo_jsonl neo_jsonl;
/* neo_jsonl_open: append != 0 keeps what the file has. Errors: NEO_ERR_NOT_FOUND, NEO_ERR_IO,
   NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_jsonl_open(neo_ctx *ctx, const char *path, int append,
                                                    neo_jsonl **log);
NEO_API void neo_jsonl_close(neo_jsonl *log);
/* Build a line from fields, then end it. Numbers are written so that they read back exactly; a NaN
   or infinity is null, as is a NULL string. Errors are kept and returned by neo_jsonl_end
   (NEO_ERR_CAPACITY: the line is over 4,096 bytes and is not written; NEO_ERR_IO: a full disk, for
   example; the next line may succeed). Allocates nothing. */
NEO_API void neo_jsonl_int(neo_jsonl *log, const char *key, int64_t value);
NEO_API void neo_jsonl_number(neo_jsonl *log, const char *key, double value);
NEO_API void neo_jsonl_string(neo_jsonl *log, const char *key, const char *value);
NEO_API neo_status neo_jsonl_end(neo_jsonl *log);

/* ---------------------------------------------------------------------------
   >>trace

   Where the time of a run goes: spans, each with a begin and an end, of every rank and thread. The
   file is a Chrome trace: https://ui.perfetto.dev or chrome://tracing draw it, and it is JSON.

       neo_trace_create(ctx, &(neo_trace_desc){.group = &group}, &trace);
       for (step ...) {
           neo_trace_begin(ctx, "step", step);
           ...                             neo's calls made here are spans inside this one
           neo_trace_end(ctx);
       }
       neo_trace_write(trace, "t.json");
       neo_trace_destroy(trace);

   neo's own spans, by category (cat):
     call            what is made of others: neo_shard_forward_begin, neo_fsdp_step,
                     neo_bags_backward, neo_reader_next, neo_save ...; and those of neo_trace_begin
     compute         one operation of the context's device, by its function (neo_mlp_forward; a
                     layer of an MLP is one). A GPU's calls end before its work does
     communication   a collective, on the thread that ran it: the rank's own, or its group's. It
                     has the bytes that this rank sent, as the counters of neo_comm.h have them
     wait            the rank's thread waits for an asynchronous collective, of that ticket
   The rank's thread is tid 0, its spans nest. Those that nest in none add up to the time that the
   program gave to them. A span takes two looks at the clock; without a trace neo looks at a
   pointer.
   ------------------------------------------------------------------------ */
typedef struct neo_trace neo_trace;
typedef struct neo_trace_desc {
    int64_t spans;          /* there is room for, 152 bytes each; 0: 65,536. Those that come when it
                               is full are dropped, and counted */
    const neo_group *group; /* ranks whose traces become one file; NULL: this one alone */
} neo_trace_desc;
/* neo_trace_create: record what is done in ctx from here on; all memory is taken here. Collective
   over the group, which stays until the trace is written: clocks are compared here and at the end,
   so that times are rank 0's (a difference within what the comparison can tell counts as none).
   Nothing may be in flight on ctx's groups, here and in neo_trace_destroy.
   Errors   NEO_ERR_STATE: ctx has a trace. NEO_ERR_ARG: spans below 0 or above 2^31, or a group
            that lacks `pass`. NEO_ERR_MEMORY; those of the group. */
NEO_API NEO__CHECK_UNUSED neo_status neo_trace_create(neo_ctx *ctx, const neo_trace_desc *desc,
                                                      neo_trace **trace);
NEO_API void neo_trace_destroy(neo_trace *trace);
/* neo_trace_begin, neo_trace_end: a span of the caller, up to 64 inside each other. name: stays
   valid until the trace is written. number: of a step, for example; below 0: none. Without a trace,
   and on a thread that did not make it, they do nothing. */
NEO_API void neo_trace_begin(neo_ctx *ctx, const char *name, int64_t number);
NEO_API void neo_trace_end(neo_ctx *ctx);
/* neo_trace_write: end the recording, and write the spans of all ranks to rank 0's path. A file
   that was there before is replaced when the new one is whole. Spans that are open end here; on
   another thread than that of neo_trace_create they are dropped, and counted. Collective.
   Errors   NEO_ERR_ARG: path is NULL (on rank 0). NEO_ERR_NOT_FOUND, NEO_ERR_IO; on all ranks.
            Those of the group. */
NEO_API neo_status neo_trace_write(neo_trace *trace, const char *path);
/* neo_trace_write_chakra: end the recording, and write this rank's spans to "<prefix>.<rank>.et" as
   an execution trace of MLCommons' Chakra, which simulators of clusters take. Nodes are the spans
   that have none inside them: COMP_NODE, and so the time between two, by their duration;
   COMM_COLL_NODE by type, bytes of the larger buffer and ranks (pg_name, as "0-3,8");
   COMM_SEND_NODE, COMM_RECV_NODE. A node depends on the one before it on the rank's thread, a
   collective that does not block on the one before its call, and what follows a wait on what was
   waited for. Collective.
   Errors   NEO_ERR_ARG: prefix is NULL. NEO_ERR_NOT_FOUND, NEO_ERR_IO; on all ranks. */
NEO_API neo_status neo_trace_write_chakra(neo_trace *trace, const char *prefix);
/* neo_trace_get_stats: of this rank so far; after a write of all. */
typedef struct neo_trace_stats {
    int64_t spans, dropped; /* recorded; for which there was no room */
    int64_t sent_bytes;     /* of the recorded ones, headers not included */
} neo_trace_stats;
NEO_API neo_trace_stats neo_trace_get_stats(const neo_trace *trace);
/* neo_trace_time: nanoseconds of the spans on this rank's thread of a category ("compute") and name
   (NULL: any) that lie in one called `inside` (NULL: anywhere), so far; *count: how many. One that
   lies in another counts as well as that. */
NEO_API int64_t neo_trace_time(const neo_trace *trace, const char *inside, const char *category,
                               const char *name, int64_t *count);

/* ---------------------------------------------------------------------------
   >>events

   Curves and histograms for TensorBoard (`tensorboard --logdir DIR`): a file of events. Each record
   goes to the system in one write, so a killed process leaves whole ones. Nothing here allocates
   after neo_events_open.
   ------------------------------------------------------------------------ */
typedef struct neo_events neo_events;
/* neo_events_open: a new file in dir, which is there; TensorBoard reads all files of a folder, so a
   run that goes on has one more. Errors: NEO_ERR_NOT_FOUND, NEO_ERR_IO, NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_events_open(neo_ctx *ctx, const char *dir,
                                                     neo_events **events);
NEO_API void neo_events_close(neo_events *events);
/* neo_events_scalar: a point of the curve `tag` ("loss", "valid/auc"); x is kept as f32. Errors:
   NEO_ERR_IO; NEO_ERR_CAPACITY: the tag is too long. */
NEO_API neo_status neo_events_scalar(neo_events *events, const char *tag, int64_t step, double x);

/* Counts of numbers by size: two buckets for each power of two from 2^-28 to 2^12, on either side
   of the one for numbers nearer to 0; larger ones are in the outermost. All of it is integers, so
   histograms of parts add in any order. Zeros: empty. */
enum { NEO_HISTOGRAM_SIDE = 80, NEO_HISTOGRAM_BUCKETS = 2 * NEO_HISTOGRAM_SIDE + 1 };
typedef struct neo_histogram {
    int64_t bucket[NEO_HISTOGRAM_BUCKETS];
    int64_t non_finite;     /* in no bucket and no sum */
    neo_exact sum, squares; /* of squares rounded to f32 */
} neo_histogram;
NEO_API void neo_histogram_add(neo_histogram *histogram, const float *x, int64_t count);
/* neo_histogram_limit: where a bucket ends and the next one begins. */
NEO_API double neo_histogram_limit(int bucket);
/* neo_optim_histograms: weights[i], grads[i] of parameter i of the set, over all ranks, each number
   once; as neo_optim_norms, when. Collective over the optimizer's group.
   Errors   NEO_ERR_ARG: a NULL. NEO_ERR_UNSUPPORTED: a device has them. NEO_ERR_STATE: as
            neo_optim_step. Those of the group. */
NEO_API neo_status neo_optim_histograms(neo_optim *optim, neo_histogram *weights,
                                        neo_histogram *grads);
/* neo_events_histogram: errors as of neo_events_scalar. */
NEO_API neo_status neo_events_histogram(neo_events *events, const char *tag, int64_t step,
                                        const neo_histogram *histogram);

/* ---------------------------------------------------------------------------
   >>report

   One self-contained HTML page with SVG curves and tables; no script, no network.
   ------------------------------------------------------------------------ */
typedef struct neo_report neo_report;
NEO_API NEO__CHECK_UNUSED neo_status neo_report_create(neo_ctx *ctx, const char *title,
                                                       neo_report **report);
NEO_API void neo_report_destroy(neo_report *report);
/* Text is UTF-8 and is escaped. Errors of all calls that add: NEO_ERR_MEMORY (the report stays as
   it was).
   neo_report_fact: a headline figure, for example ("test AUC", "0.9141"); a name given again takes
   the new value. neo_report_note: a paragraph under the title. */
NEO_API neo_status neo_report_fact(neo_report *report, const char *name, const char *value);
NEO_API neo_status neo_report_note(neo_report *report, const char *text);
/* neo_report_point: append (x, y) to a curve of a chart; both are made when first named, and only
   then is memory asked for. Curves are thinned (to every second point) beyond 2,048 points, the
   newest is always shown. A point that is not finite leaves a gap. */
NEO_API neo_status neo_report_point(neo_report *report, const char *chart, const char *curve,
                                    double x, double y);
/* neo_report_bar: a bar from begin to end on a lane of a timeline, in the colour of its kind: a
   chart of bars alone. Lanes lie below each other in the order in which they are first named.
   Errors: NEO_ERR_CAPACITY: more than 682 bars of a kind. */
NEO_API neo_status neo_report_bar(neo_report *report, const char *chart, const char *kind,
                                  const char *lane, double begin, double end);
/* neo_report_axis: titles of a chart's axes; NULL for none. */
NEO_API neo_status neo_report_axis(neo_report *report, const char *chart, const char *x_title,
                                   const char *y_title);
/* neo_report_row: append a row of cells to a table; the first row is its header. Columns of
   numbers are set flush right. */
NEO_API neo_status neo_report_row(neo_report *report, const char *table, const char *const *cells,
                                  int count);
/* neo_report_write: the page as it is now; may be called again and again. A report that was there
   before is replaced only when the new one is complete. Errors: NEO_ERR_NOT_FOUND, NEO_ERR_IO. */
NEO_API neo_status neo_report_write(const neo_report *report, const char *path);
#endif

#ifdef __cplusplus
}
#endif
#endif /* NEO_RUN_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__RUN_IMPLEMENTED)
#define NEO__RUN_IMPLEMENTED
#include "neo.h" /* its implementation, if it was included without before */

NEO_EXACT_BEGIN
NEO__HOST_BEGIN
NEO__COLD_BEGIN
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>files

   Files and directories on POSIX and Windows. Paths are UTF-8; offsets and sizes 64-bit. Every
   failure leaves one line in neo_last_error(): "<path>: cannot <verb>: <what the system says>".
   Headers that include this one use what it does not itself (NEO__UNUSED).
   Status   NEO_ERR_NOT_FOUND: no such file or directory. NEO_ERR_ARG: a path that is empty or too
            long. NEO_ERR_IO: all else (permission, full disk, a directory where a file is
            expected).
   ------------------------------------------------------------------------ */
enum { NEO__PATH_BYTES = 4096 };

/* An open file. path is the caller's (kept for messages) and must outlive it. */
typedef struct neo__file {
#if defined(_WIN32)
    HANDLE handle;
#else
    int fd;
#endif
    const char *path;
} neo__file;

typedef enum neo__file_mode {
    NEO__FILE_READ,   /* an existing file (pipes and devices too, without size) */
    NEO__FILE_CREATE, /* for writing, emptied if it exists */
    NEO__FILE_APPEND  /* for writing at the end, made if missing */
} neo__file_mode;

typedef enum neo__path_kind {
    NEO__PATH_NONE, /* nothing there */
    NEO__PATH_FILE,
    NEO__PATH_DIR,
    NEO__PATH_OTHER /* a pipe, a device, ... */
} neo__path_kind;

/* Called by neo__dir_list for each entry ("." and ".." left out); a status other than NEO_OK ends
   the listing and becomes its result. */
typedef neo_status (*neo__dir_fn)(const char *name, void *user);

#define NEO__LOCKED "%s: somebody else is saving here: give each run a directory of its own"

/* Reads and writes go through the system in pieces no larger than this (some systems take an
   int). */
#define NEO__IO_PIECE ((size_t)1 << 30)

/* dir/name into out[NEO__PATH_BYTES]. */
static neo_status neo__path_join(char *out, const char *dir, const char *name) {
    size_t length = strlen(dir);
    int slash = length > 0 && dir[length - 1] != '/';
    int n = snprintf(out, NEO__PATH_BYTES, "%s%s%s", dir, slash ? "/" : "", name);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s...: the path is too long", dir);
    return NEO_OK;
}
/* The directory that holds path, into out[NEO__PATH_BYTES]: "." for a bare name. */
NEO__UNUSED static neo_status neo__path_parent(char *out, const char *path) {
    size_t n = strlen(path);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s: the path is empty or too long",
               path);
    memcpy(out, path, n + 1);
    while (n > 1 && out[n - 1] == '/') n--;
    while (n > 0 && out[n - 1] != '/') n--;
    while (n > 1 && out[n - 1] == '/') n--;
    out[n] = 0;
    if (n == 0) memcpy(out, ".", 2);
    return NEO_OK;
}

#if defined(_WIN32)
static void neo__system_text(unsigned long code, char *text, size_t bytes) {
    DWORD n = FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                             code, 0, text, (DWORD)bytes, NULL);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == '.')) n--;
    if (n > 0) text[n] = 0;
    else snprintf(text, bytes, "system error %lu", code);
}
static neo_status neo__file_fail(const char *path, const char *verb) {
    unsigned long code = GetLastError();
    char text[160];
    neo__system_text(code, text, sizeof text);
    int missing = code == ERROR_FILE_NOT_FOUND || code == ERROR_PATH_NOT_FOUND;
    return neo_fail(missing ? NEO_ERR_NOT_FOUND : NEO_ERR_IO, "%s: cannot %s: %s", path, verb,
                     text);
}
/* UTF-8 to what the system takes. */
static neo_status neo__wide_path(const char *path, wchar_t out[NEO__PATH_BYTES]) {
    int n = path[0] ? MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out,
                                          NEO__PATH_BYTES)
                    : 0;
    NEO__CHECK(n > 0, NEO_ERR_ARG, "%.200s: the path is empty, too long or not UTF-8", path);
    return NEO_OK;
}

static neo_status neo__file_open(neo__file *file, const char *path, neo__file_mode mode) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    DWORD access = mode == NEO__FILE_READ     ? GENERIC_READ
                   : mode == NEO__FILE_CREATE ? GENERIC_WRITE
                                              : FILE_APPEND_DATA;
    DWORD how = mode == NEO__FILE_READ     ? OPEN_EXISTING
                : mode == NEO__FILE_CREATE ? CREATE_ALWAYS
                                           : OPEN_ALWAYS;
    DWORD share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    file->path = path;
    file->handle = CreateFileW(wide, access, share, NULL, how, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file->handle == INVALID_HANDLE_VALUE)
        return neo__file_fail(path, mode == NEO__FILE_READ ? "open" : "open for writing");
    return NEO_OK;
}
NEO__UNUSED static void neo__file_stdin(neo__file *file) {
    file->path = "standard input";
    file->handle = GetStdHandle(STD_INPUT_HANDLE);
}
static neo_status neo__file_some(const neo__file *file, int writes, int64_t offset, void *data,
                                 size_t bytes, size_t *count) {
    NEO__ZERO(OVERLAPPED, place);
    OVERLAPPED *const at = offset < 0 ? NULL : &place;
    DWORD n = 0, most = (DWORD)NEO__MIN(bytes, NEO__IO_PIECE);
    place.Offset = (DWORD)((uint64_t)offset & 0xFFFFFFFFu);
    place.OffsetHigh = (DWORD)((uint64_t)offset >> 32);
    int ok = writes ? WriteFile(file->handle, data, most, &n, at) != 0
                    : ReadFile(file->handle, data, most, &n, at) != 0;
    *count = n;
    if (!ok && !writes) /* the end of a pipe, of a file */
        ok = GetLastError() == ERROR_BROKEN_PIPE || GetLastError() == ERROR_HANDLE_EOF;
    return ok ? NEO_OK : neo__file_fail(file->path, writes ? "write" : "read");
}
NEO__UNUSED static neo_status neo__file_seek(neo__file *file, int64_t offset) {
    LARGE_INTEGER to;
    to.QuadPart = offset;
    return SetFilePointerEx(file->handle, to, NULL, FILE_BEGIN) ? NEO_OK
                                                             : neo__file_fail(file->path, "seek");
}
static int64_t neo__file_size(const neo__file *file) {
    LARGE_INTEGER size;
    if (GetFileType(file->handle) != FILE_TYPE_DISK) return -1;
    if (!GetFileSizeEx(file->handle, &size)) return -1;
    return (int64_t)size.QuadPart;
}
NEO__UNUSED static int64_t neo__file_changed(const neo__file *file) {
    FILETIME t;
    if (!GetFileTime(file->handle, NULL, NULL, &t)) return 0;
    return (int64_t)((uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime);
}
NEO__UNUSED static neo_status neo__file_sync(neo__file *file) {
    return FlushFileBuffers(file->handle) ? NEO_OK : neo__file_fail(file->path, "flush to disk");
}
static neo_status neo__file_close(neo__file *file) {
    HANDLE handle = file->handle;
    file->handle = INVALID_HANDLE_VALUE;
    if (handle == INVALID_HANDLE_VALUE || handle == GetStdHandle(STD_INPUT_HANDLE)) return NEO_OK;
    return CloseHandle(handle) ? NEO_OK : neo__file_fail(file->path, "close");
}
static neo_status neo__path_look(const char *path, neo__path_kind *kind) {
    wchar_t wide[NEO__PATH_BYTES];
    *kind = NEO__PATH_NONE;
    NEO__TRY(neo__wide_path(path, wide));
    DWORD attributes = GetFileAttributesW(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) {
        neo_status status = neo__file_fail(path, "look at");
        return status == NEO_ERR_NOT_FOUND ? NEO_OK : status;
    }
    *kind = !(attributes & FILE_ATTRIBUTE_DIRECTORY)        ? NEO__PATH_FILE
            : attributes & FILE_ATTRIBUTE_REPARSE_POINT ? NEO__PATH_OTHER
                                                        : NEO__PATH_DIR;
    return NEO_OK;
}
static neo_status neo__file_remove(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    return DeleteFileW(wide) ? NEO_OK : neo__file_fail(path, "remove");
}
static neo_status neo__path_rename(const char *from, const char *to) {
    wchar_t a[NEO__PATH_BYTES], b[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(from, a));
    NEO__TRY(neo__wide_path(to, b));
    if (MoveFileExW(a, b, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) return NEO_OK;
    return neo__file_fail(from, "rename");
}
static neo_status neo__dir_make_one(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    if (CreateDirectoryW(wide, NULL)) return NEO_OK;
    DWORD attributes = GetFileAttributesW(wide), there = FILE_ATTRIBUTE_DIRECTORY;
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & there)) return NEO_OK;
    SetLastError(ERROR_ALREADY_EXISTS);
    return neo__file_fail(path, "make the directory");
}
static neo_status neo__dir_remove_one(const char *path) {
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__wide_path(path, wide));
    return RemoveDirectoryW(wide) ? NEO_OK : neo__file_fail(path, "remove the directory");
}
NEO__UNUSED static neo_status neo__dir_lock(neo__file *lock, const char *path) {
    char name[NEO__PATH_BYTES];
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__path_join(name, path, "lock"));
    NEO__TRY(neo__wide_path(name, wide));
    lock->path = path;
    lock->handle = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS,
                               FILE_FLAG_DELETE_ON_CLOSE, NULL);
    NEO__CHECK(lock->handle != INVALID_HANDLE_VALUE || GetLastError() != ERROR_SHARING_VIOLATION,
               NEO_ERR_IO, NEO__LOCKED, path);
    return lock->handle == INVALID_HANDLE_VALUE ? neo__file_fail(name, "lock") : NEO_OK;
}
NEO__UNUSED static void neo__dir_unlock(neo__file *lock) { (void)neo__file_close(lock); }
NEO__UNUSED static int neo__dir_same(const char *a, const char *b) { return strcmp(a, b) == 0; }
/* Windows keeps directories in order by itself. */
NEO__UNUSED static neo_status neo__dir_sync(const char *path) {
    (void)path;
    return NEO_OK;
}
static neo_status neo__dir_list(const char *path, neo__dir_fn fn, void *user) {
    char pattern[NEO__PATH_BYTES], name[3 * MAX_PATH];
    wchar_t wide[NEO__PATH_BYTES];
    NEO__TRY(neo__path_join(pattern, path, "*"));
    NEO__TRY(neo__wide_path(pattern, wide));
    WIN32_FIND_DATAW found;
    HANDLE search = FindFirstFileW(wide, &found);
    if (search == INVALID_HANDLE_VALUE) return neo__file_fail(path, "list the directory");
    neo_status status = NEO_OK;
    do {
        int n = WideCharToMultiByte(CP_UTF8, 0, found.cFileName, -1, name, (int)sizeof name, NULL,
                                    NULL);
        if (n > 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) status = fn(name, user);
    } while (status == NEO_OK && FindNextFileW(search, &found));
    if (status == NEO_OK && GetLastError() != ERROR_NO_MORE_FILES)
        status = neo__file_fail(path, "list the directory");
    FindClose(search);
    return status;
}
#else
static neo_status neo__file_fail(const char *path, const char *verb) {
    int code = errno;
    char text[160];
    text[0] = 0;
    /* The GNU form returns the text, the POSIX form fills the buffer. */
#if defined(_GNU_SOURCE) && (defined(__GLIBC__) || defined(__BIONIC__))
    const char *what = strerror_r(code, text, sizeof text);
#else
    const char *what = strerror_r(code, text, sizeof text) == 0 ? text : "unknown error";
#endif
    return neo_fail(code == ENOENT || code == ENOTDIR ? NEO_ERR_NOT_FOUND : NEO_ERR_IO,
                     "%s: cannot %s: %s", path, verb, what);
}

static int neo__fd_open(const char *path, int flags) {
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}
/* neo__file_open: on failure *f needs no close. A directory is refused. */
static neo_status neo__file_open(neo__file *file, const char *path, neo__file_mode mode) {
    int flags = mode == NEO__FILE_READ ? O_RDONLY
                : mode == NEO__FILE_CREATE ? O_WRONLY | O_CREAT | O_TRUNC
                                           : O_WRONLY | O_CREAT | O_APPEND;
    file->path = path;
    file->fd = -1;
    NEO__CHECK(path[0], NEO_ERR_ARG, "the path of a file is empty");
    file->fd = neo__fd_open(path, flags);
    if (file->fd < 0)
        return neo__file_fail(path, mode == NEO__FILE_READ ? "open" : "open for writing");
    struct stat info;
    if (fstat(file->fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        close(file->fd);
        file->fd = -1;
        return neo_fail(NEO_ERR_IO, "%s: cannot open: is a directory", path);
    }
    return NEO_OK;
}
/* neo__file_stdin: closing it leaves standard input open. */
NEO__UNUSED static void neo__file_stdin(neo__file *file) {
    file->path = "standard input";
    file->fd = 0;
}
static neo_status neo__file_fits(const neo__file *file, int64_t offset) {
    NEO__CHECK((int64_t)(off_t)offset == offset, NEO_ERR_IO,
               "%s: offsets are 32-bit: compile with -D_FILE_OFFSET_BITS=64", file->path);
    return NEO_OK;
}
/* neo__file_some: one call of the system: what it takes or gives, at the offset or (below 0) behind
   what came before. *count 0: the end, or no space. */
static neo_status neo__file_some(const neo__file *file, int writes, int64_t offset, void *data,
                                 size_t bytes, size_t *count) {
    const size_t most = NEO__MIN(bytes, NEO__IO_PIECE);
    const off_t at = (off_t)offset;
    ssize_t n;
    NEO__TRY(neo__file_fits(file, offset));
    do {
        if (writes) n = offset < 0 ? write(file->fd, data, most) : pwrite(file->fd, data, most, at);
        else n = offset < 0 ? read(file->fd, data, most) : pread(file->fd, data, most, at);
    } while (n < 0 && errno == EINTR);
    *count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? neo__file_fail(file->path, writes ? "write" : "read") : NEO_OK;
}
NEO__UNUSED static neo_status neo__file_seek(neo__file *file, int64_t offset) {
    NEO__TRY(neo__file_fits(file, offset));
    if (lseek(file->fd, (off_t)offset, SEEK_SET) >= 0) return NEO_OK;
    return neo__file_fail(file->path, "seek");
}
/* neo__file_size: -1 for what has no size (a pipe, a device). */
static int64_t neo__file_size(const neo__file *file) {
    struct stat info;
    if (fstat(file->fd, &info) != 0 || !S_ISREG(info.st_mode)) return -1;
    return (int64_t)info.st_size;
}
/* neo__file_changed: a number for the time of its last change, as fine as the system tells it. */
NEO__UNUSED static int64_t neo__file_changed(const neo__file *file) {
    struct stat info;
    if (fstat(file->fd, &info) != 0) return 0;
#if defined(__linux__)
    return (int64_t)info.st_mtim.tv_sec * 1000000000 + (int64_t)info.st_mtim.tv_nsec;
#else
    return (int64_t)info.st_mtime * 1000000000;
#endif
}
/* fsync, which on macOS ends at the disk's own cache: F_FULLFSYNC, where there is one, does not. */
NEO__UNUSED static int neo__fd_sync(int fd) {
    int result;
    do {
#if defined(F_FULLFSYNC)
        result = fcntl(fd, F_FULLFSYNC);
        if (result == 0 || errno == EINTR) continue;
#endif
        result = fsync(fd);
    } while (result != 0 && errno == EINTR);
    return result;
}
/* neo__file_sync: return once the bytes are on the disk. */
NEO__UNUSED static neo_status neo__file_sync(neo__file *file) {
    int result = neo__fd_sync(file->fd);
    /* devices and pipes cannot be flushed */
    return result == 0 || errno == EINVAL ? NEO_OK : neo__file_fail(file->path, "flush to disk");
}
/* neo__file_close: a second close is allowed. The system may report a failed write only here. */
static neo_status neo__file_close(neo__file *file) {
    int fd = file->fd;
    file->fd = -1;
    if (fd <= 0 || close(fd) == 0 || errno == EINTR) return NEO_OK;
    return neo__file_fail(file->path, "close");
}
/* neo__path_look: what is at path; links are not followed, and are NEO__PATH_OTHER, unless they
   lead to a file. A path that cannot be looked at (permission, a dead disk) is an error. */
static neo_status neo__path_look(const char *path, neo__path_kind *kind) {
    struct stat info;
    *kind = NEO__PATH_NONE;
    if (lstat(path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR ? NEO_OK : neo__file_fail(path, "look at");
    if (S_ISDIR(info.st_mode)) *kind = NEO__PATH_DIR;
    else if (S_ISLNK(info.st_mode) && stat(path, &info) != 0) *kind = NEO__PATH_OTHER;
    else *kind = S_ISREG(info.st_mode) ? NEO__PATH_FILE : NEO__PATH_OTHER;
    return NEO_OK;
}
static neo_status neo__file_remove(const char *path) {
    return unlink(path) == 0 ? NEO_OK : neo__file_fail(path, "remove");
}
/* neo__path_rename: atomic; an existing file at `to` is replaced. Both on one file system. */
static neo_status neo__path_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? NEO_OK : neo__file_fail(from, "rename");
}
static neo_status neo__dir_make_one(const char *path) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return NEO_OK;
    int code = errno, looked = stat(path, &info);
    if (looked == 0 && S_ISDIR(info.st_mode)) return NEO_OK;
    if (looked != 0 && code == EEXIST && errno != ENOENT) return neo__file_fail(path, "look at");
    errno = code;
    return neo__file_fail(path, "make the directory");
}
static neo_status neo__dir_remove_one(const char *path) {
    return rmdir(path) == 0 ? NEO_OK : neo__file_fail(path, "remove the directory");
}
/* neo__dir_sync: return once the names in the directory are on the disk. */
NEO__UNUSED static neo_status neo__dir_sync(const char *path) {
    const int fd = neo__fd_open(path, O_RDONLY);
    if (fd < 0 && errno == EACCES) return NEO_OK; /* may be written, not read: cannot be flushed */
    if (fd < 0) return neo__file_fail(path, "open the directory");
    int result = neo__fd_sync(fd);
    int failed = result != 0 && errno != EINVAL && errno != EROFS; /* some file systems cannot */
    neo_status status = failed ? neo__file_fail(path, "flush the directory to disk") : NEO_OK;
    close(fd);
    return status;
}
/* neo__dir_lock: hold a directory against other savers, until neo__dir_unlock or the end of this
   process. A file system without locks grants it. */
NEO__UNUSED static neo_status neo__dir_lock(neo__file *lock, const char *path) {
    lock->path = path;
    lock->fd = neo__fd_open(path, O_RDONLY);
    if (lock->fd < 0) return neo__file_fail(path, "open the directory");
    if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return NEO_OK;
    (void)neo__file_close(lock);
    return neo_fail(NEO_ERR_IO, NEO__LOCKED, path);
}
/* Unlocked by hand: a child of a fork may have the file open, too. The last error stays. */
NEO__UNUSED static void neo__dir_unlock(neo__file *lock) {
    (void)flock(lock->fd, LOCK_UN);
    (void)close(lock->fd);
    lock->fd = -1;
}
/* same: 1 if both are one directory. */
NEO__UNUSED static int neo__dir_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
static neo_status neo__dir_list(const char *path, neo__dir_fn fn, void *user) {
    DIR *dir = opendir(path);
    NEO__CHECK(dir || errno != ENOTDIR, NEO_ERR_IO,
               "%s: cannot list the directory: it is a file, or below one", path);
    if (!dir) return neo__file_fail(path, "list the directory");
    neo_status status = NEO_OK;
    while (status == NEO_OK) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0) status = neo__file_fail(path, "list the directory");
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = fn(entry->d_name, user);
    }
    closedir(dir);
    return status;
}
#endif

/* All bytes, or those up to the end of what is read; *done counts them, from 0. */
static neo_status neo__file_move(const neo__file *file, int writes, int64_t offset, void *data,
                                 size_t bytes, size_t *done) {
    for (size_t n = 1; *done < bytes && n > 0; *done += n)
        NEO__TRY(neo__file_some(file, writes, offset < 0 ? offset : offset + (int64_t)*done,
                                (char *)data + *done, bytes - *done, &n));
    NEO__CHECK(!writes || *done == bytes, NEO_ERR_IO, "%s: cannot write: no space left",
               file->path);
    return NEO_OK;
}
/* neo__file_read: the next bytes; fewer than asked for only at the end of the file or pipe. */
static neo_status neo__file_read(neo__file *file, void *data, size_t bytes, size_t *got) {
    *got = 0;
    return neo__file_move(file, 0, -1, data, bytes, got);
}
/* neo__file_read_at: exactly these bytes, without moving the place of neo__file_read: for several
   threads at once. A file that ends before is NEO_ERR_IO, as is an offset below 0. */
NEO__UNUSED static neo_status neo__file_read_at(const neo__file *file, int64_t offset, void *data,
                                                size_t bytes) {
    size_t got = 0;
    NEO__CHECK(offset >= 0, NEO_ERR_IO, "%s: cannot read at byte %" PRId64, file->path, offset);
    NEO__TRY(neo__file_move(file, 0, offset, data, bytes, &got));
    NEO__CHECK(got == bytes, NEO_ERR_IO, "%s: ends before byte %" PRId64, file->path,
               offset + (int64_t)bytes);
    return NEO_OK;
}
/* neo__file_write_at: all of it there, as neo__file_read_at. neo__file_write: behind the rest. */
static neo_status neo__file_write_at(const neo__file *file, int64_t offset, const void *data,
                                     size_t bytes) {
    size_t done = 0;
    return neo__file_move(file, 1, offset, (void *)(uintptr_t)data, bytes, &done);
}
static neo_status neo__file_write(neo__file *file, const void *data, size_t bytes) {
    return neo__file_write_at(file, -1, data, bytes);
}

NEO__HOT_END
/* neo__dir_make: the directory and those above it, their names flushed to disk; one that exists is
   fine. */
NEO__UNUSED static neo_status neo__dir_make(const char *path) {
    char part[NEO__PATH_BYTES], parent[NEO__PATH_BYTES];
    neo__path_kind kind;
    size_t n = strlen(path);
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s: the path is empty or too long",
               path);
    for (size_t i = 1; i <= n; i++) {
        if ((path[i] && path[i] != '/') || path[i - 1] == '/' || path[i - 1] == ':') continue;
        memcpy(part, path, i);
        part[i] = 0;
        NEO__TRY(neo__path_look(part, &kind));
        NEO__TRY(neo__dir_make_one(part));
        if (kind != NEO__PATH_NONE) continue;
        NEO__TRY(neo__path_parent(parent, part));
        NEO__TRY(neo__dir_sync(parent));
    }
    return NEO_OK;
}

enum { NEO__TREE_DEPTH = 16 };
typedef struct neo__tree_remove_state {
    const char *dir;
    int depth;
} neo__tree_remove_state;
static neo_status neo__tree_remove_at(const char *path, int depth);
static neo_status neo__tree_remove_entry(const char *name, void *user) {
    const neo__tree_remove_state *state = (const neo__tree_remove_state *)user;
    char path[NEO__PATH_BYTES];
    NEO__TRY(neo__path_join(path, state->dir, name));
    return neo__tree_remove_at(path, state->depth + 1);
}
static neo_status neo__tree_remove_at(const char *path, int depth) {
    neo__tree_remove_state state = {path, depth};
    neo__path_kind kind;
    NEO__CHECK(depth < NEO__TREE_DEPTH, NEO_ERR_IO, "%s: cannot remove: too deep", path);
    NEO__TRY(neo__path_look(path, &kind));
    switch (kind) {
    case NEO__PATH_NONE: return NEO_OK;
    case NEO__PATH_DIR:
        NEO__TRY(neo__dir_list(path, neo__tree_remove_entry, &state));
        return neo__dir_remove_one(path);
    default: return neo__file_remove(path);
    }
}
/* neo__tree_remove: a file, or a directory with everything in it (links are removed, not
   followed). Nothing there is fine. Stops at the first failure. */
NEO__UNUSED static neo_status neo__tree_remove(const char *path) {
    return neo__tree_remove_at(path, 0);
}
NEO__HOT_BEGIN
/* A file of up to `most` bytes into an arena; *text NULL: it is longer, or has no size. */
NEO__UNUSED static neo_status neo__file_load(neo__arena *arena, const char *path, int64_t most,
                                             char **text, int64_t *bytes) {
    neo__file file;
    size_t got = 0;
    *text = NULL;
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_READ));
    *bytes = neo__file_size(&file);
    neo_status status = NEO_OK;
    if (*bytes >= 0 && *bytes <= most) {
        status = NEO__ARENA(arena, *text, *bytes);
        if (status == NEO_OK) status = neo__file_read(&file, *text, (size_t)*bytes, &got);
        *bytes = (int64_t)got;
    }
    (void)neo__file_close(&file);
    return status;
}
/* The size of a plain file; -1: there is none at that path. */
NEO__UNUSED static neo_status neo__path_size(const char *path, int64_t *size) {
    neo__file file;
    neo__path_kind kind;
    *size = -1;
    NEO__TRY(neo__path_look(path, &kind));
    if (kind != NEO__PATH_FILE) return NEO_OK;
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_READ));
    *size = neo__file_size(&file);
    return neo__file_close(&file);
}

/* ---------------------------------------------------------------------------
   >>impl-crc32c

   CRC-32C (Castagnoli; reflected polynomial 0x82F63B78), as iSCSI and ext4 use it. With the
   instruction where the machine has one (asked at run time), as all of x86-64 since 2009 and of
   AArch64 servers, phones and laptops; else by a table of what four bits make of the checksum.
   ------------------------------------------------------------------------ */
/* The running checksum, not inverted. */
static uint32_t neo__crc32c_table(uint32_t crc, const unsigned char *p, size_t bytes) {
    static const uint32_t table[16] = {
        0x00000000u, 0x105EC76Fu, 0x20BD8EDEu, 0x30E349B1u, 0x417B1DBCu, 0x5125DAD3u,
        0x61C69362u, 0x7198540Du, 0x82F63B78u, 0x92A8FC17u, 0xA24BB5A6u, 0xB21572C9u,
        0xC38D26C4u, 0xD3D3E1ABu, 0xE330A81Au, 0xF36E6F75u};
    for (; bytes > 0; p++, bytes--) {
        crc ^= *p;
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return crc;
}

#if defined(NEO__X86)
#if defined(__clang__) && __clang_major__ >= 14 /* `zig cc` sets them apart */
__attribute__((target("sse4.2,crc32")))
#else
__attribute__((target("sse4.2")))
#endif
static uint32_t
neo__crc32c_machine(uint32_t crc, const unsigned char *p, size_t bytes) {
    uint64_t wide = crc;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; p++, bytes--) crc = _mm_crc32_u8(crc, *p);
    return crc;
}
static int neo__crc32c_has_machine(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(NEO__ARM) && (defined(__linux__) || defined(__APPLE__))
#if defined(__linux__)
#include <sys/auxv.h>
#endif
/* Inline assembly: compilers declare the intrinsics only when the whole file targets +crc. */
static uint32_t neo__crc32c_machine(uint32_t crc, const unsigned char *p, size_t bytes) {
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; bytes > 0; p++, bytes--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*p));
    return crc;
}
static int neo__crc32c_has_machine(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & (1u << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 1;
#endif
}
#else
#define NEO__CRC32C_TABLE_ONLY 1
#endif

NEO_API uint32_t neo_crc32c(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
#if !defined(NEO__CRC32C_TABLE_ONLY)
    if (neo__crc32c_has_machine()) return ~neo__crc32c_machine(~crc, p, bytes);
#endif
    return ~neo__crc32c_table(~crc, p, bytes);
}
NEO__HOT_END
/* ---------------------------------------------------------------------------
   >>impl-out

   The writer of files: neo__out sends bytes to a file through a small buffer, counting them and
   their CRC32C; without a file it only counts. Text is UTF-8.
   ------------------------------------------------------------------------ */
/* Bytes of the UTF-8 character at s (1 .. 4), or 0: malformed, overlong, a surrogate, above
   U+10FFFF. */
static int neo__utf8_length(const char *s, size_t left) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return 1;
    int count = u[0] >= 0xC2 && u[0] < 0xE0   ? 2
            : u[0] >= 0xE0 && u[0] < 0xF0 ? 3
            : u[0] >= 0xF0 && u[0] < 0xF5 ? 4
                                          : 0;
    if (count == 0 || left < (size_t)count) return 0;
    for (int i = 1; i < count; i++)
        if ((u[i] & 0xC0) != 0x80) return 0;
    if (u[0] == 0xE0 && u[1] < 0xA0) return 0;
    if (u[0] == 0xED && u[1] > 0x9F) return 0;
    if (u[0] == 0xF0 && u[1] < 0x90) return 0;
    if (u[0] == 0xF4 && u[1] > 0x8F) return 0;
    return count;
}
typedef struct neo__out {
    neo__file *file;   /* NULL: count only */
    neo_status status; /* the first failure; later calls do nothing */
    uint32_t crc;
    uint64_t bytes;
    size_t used;
    neo_ctx *ctx; /* of tensors in a device's memory; or NULL */
    char buffer[4096];
} neo__out;

static void neo__out_begin(neo__out *out, neo__file *file) {
    out->file = file;
    out->ctx = NULL;
    out->status = NEO_OK;
    out->crc = 0;
    out->bytes = 0;
    out->used = 0;
}
static neo_status neo__out_flush(neo__out *out) {
    if (out->status == NEO_OK && out->used > 0) {
        out->crc = neo_crc32c(out->crc, out->buffer, out->used);
        if (out->file) out->status = neo__file_write(out->file, out->buffer, out->used);
    }
    out->used = 0;
    return out->status;
}
/* Large data goes straight from its own memory, in pieces that stay in cache between checksum and
   write. */
static void neo__out_bytes(neo__out *out, const void *data, size_t bytes) {
    const char *p = (const char *)data;
    out->bytes += bytes;
    if (bytes <= sizeof out->buffer - out->used) {
        memcpy(out->buffer + out->used, p, bytes);
        out->used += bytes;
        return;
    }
    neo__out_flush(out);
    while (bytes > 0 && out->status == NEO_OK) {
        size_t piece = NEO__MIN(bytes, (size_t)1 << 18);
        out->crc = neo_crc32c(out->crc, p, piece);
        if (out->file) out->status = neo__file_write(out->file, p, piece);
        p += piece;
        bytes -= piece;
    }
}
static void neo__out_text(neo__out *out, const char *text) {
    neo__out_bytes(out, text, strlen(text));
}
static void neo__out_format(neo__out *out, const char *format, ...) NEO__PRINTF(2, 3);
static void neo__out_format(neo__out *out, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    NEO_ASSERT(n >= 0 && n < (int)sizeof text); /* strings of users go through neo__out_string */
    (void)n;
    neo__out_text(out, text);
}
#if !defined(NEO_INFERENCE)
NEO__HOT_BEGIN
/* ---------------------------------------------------------------------------
   >>impl-gradcheck
   ------------------------------------------------------------------------ */
/* Central difference at one element: the step that counts is the one the f32 value really took. */
static neo_status neo__numeric_slope(const neo_gradcheck_desc *desc, int64_t element, double step,
                                     double *slope) {
    double loss[2], at[2];
    float saved, *x = (float *)desc->value.data + element;
    neo_status status = NEO_OK;
    NEO__TRY(neo__data_read(desc->ctx, &saved, x, desc->value.place, sizeof saved));
    for (int side = 0; side < 2 && status == NEO_OK; side++) {
        float moved = (float)((double)saved + (side ? step : -step));
        at[side] = (double)moved;
        status = neo__data_write(desc->ctx, x, desc->value.place, &moved, sizeof moved);
        if (status == NEO_OK) status = desc->loss(desc->user, &loss[side]);
    }
    NEO__TRY(neo__data_write(desc->ctx, x, desc->value.place, &saved, sizeof saved));
    *slope = (loss[1] - loss[0]) / (at[1] - at[0]);
    return status;
}

NEO_API neo_status neo_gradcheck(const neo_gradcheck_desc *desc, neo_gradcheck_result *result) {
    NEO__ZERO(neo_gradcheck_result, r);
    NEO__CHECK(desc && desc->loss, NEO_ERR_ARG, "neo_gradcheck: no loss function");
    NEO__TRY(neo__check_like(desc->ctx, "neo_gradcheck", "value", desc->value, desc->value));
    NEO__TRY(neo__check_like(desc->ctx, "neo_gradcheck", "grad", desc->grad, desc->value));
    double step = desc->step > 0 ? desc->step : 1e-2;
    double rel_tol = desc->rel_tol > 0 ? desc->rel_tol : 2e-2;
    double abs_tol = desc->abs_tol > 0 ? desc->abs_tol : 1e-4;
    const char *name = desc->name ? desc->name : "value";
    int64_t count = neo_tensor_count(desc->value);
    int64_t checks = desc->max_elements > 0 ? NEO__MIN(desc->max_elements, count) : count;
    for (int64_t i = 0; i < checks; i++) {
        int64_t at = (int64_t)((double)i / (double)checks * (double)count);
        float grad;
        NEO__TRY(neo__data_read(desc->ctx, &grad, (const float *)desc->grad.data + at,
                                desc->grad.place, sizeof grad));
        double analytic = (double)grad, numeric = 0.0;
        NEO__TRY(neo__numeric_slope(desc, at, step, &numeric));
        double ratio = fabs(analytic - numeric) / (abs_tol + rel_tol * fabs(numeric));
        /* a NaN is the worst */
        int worse = !(ratio <= r.worst_ratio) && r.worst_ratio == r.worst_ratio;
        r.checked++;
        if (!(ratio <= 1.0)) r.failed++;
        if (worse || i == 0) {
            r.worst_element = at;
            r.worst_ratio = ratio;
            r.analytic = analytic;
            r.numeric = numeric;
        }
    }
    if (result) *result = r;
    NEO__CHECK(r.failed == 0, NEO_ERR_MISMATCH,
               "neo_gradcheck: %s: %" PRId64 " of %" PRId64
               " gradients are off, most at element %" PRId64
               ": %g from backward, %g by differences",
               name, r.failed, r.checked, r.worst_element, r.analytic, r.numeric);
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-metrics

   AUC is the share of (positive, negative) pairs that the score orders rightly, ties counting one
   half: the Mann-Whitney statistic. Scores become integers that sort alike; those of positives
   fill one array from the front, those of negatives from its end, so a sample takes four bytes.
   Both parts are radix sorted and merged, and twice the number of right pairs is an integer.
   ------------------------------------------------------------------------ */
#define NEO__METRICS_CAPACITY ((int64_t)1 << 32) /* twice the pairs stay below 2^63 */

/* Sums over samples; the order of the samples does not matter. All of it is words, as saved. */
typedef struct neo__metric_sums {
    int64_t count, positive, correct;
    int64_t positives, negatives;             /* samples in the AUC */
    neo_exact logloss, square, prediction[2]; /* predictions by label */
    int64_t weighted;                         /* then these stand for the counts: */
    neo_exact weight[2], right;               /* of samples by label; of correct predictions */
} neo__metric_sums;

enum { NEO__BINS = 65536 };
struct neo_metrics {
    neo_ctx *ctx;
    neo__live live;
    int64_t capacity, window;
    int weighted, binned;
    neo__metric_sums lifetime;
    uint32_t *keys; /* [capacity]: positives, free space, negatives */
    uint64_t *pairs, *pair_scratch; /* [capacity] in place of keys: key, then bits of the weight */
    float *ring_logit, *ring_weight; /* [window]: the last samples; weights or NULL */
    uint8_t *ring_label;             /* [window] */
    double *bins; /* [2][NEO__BINS]: weight of negatives, of positives by logit; or none */
    uint32_t *scratch; /* [the larger of capacity and 2 window]; of weights pair_scratch is */
    size_t bytes;        /* of all, in one piece of memory */
};

/* An integer that orders as the float does; -0 and 0 are equal. */
NEO__INLINE uint32_t neo__sort_key(float x) {
    uint32_t u = neo__bits_f32(x + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}
/* Stable, by bytes from the lowest; bytes that are all alike are skipped. scratch: n keys. */
#define NEO__RADIX_SORT(name, key)                                                                 \
    static void name(key *keys, key *scratch, int64_t n) {                                         \
        int64_t count[sizeof(key)][256];                                                           \
        memset(count, 0, sizeof count);                                                            \
        for (int64_t i = 0; i < n; i++)                                                            \
            for (int b = 0; b < (int)sizeof(key); b++) count[b][keys[i] >> 8 * b & 255]++;         \
        key *from = keys, *to = scratch;                                                           \
        for (int b = 0; b < (int)sizeof(key); b++) {                                               \
            if (n == 0 || count[b][from[0] >> 8 * b & 255] == n) continue;                         \
            int64_t at[256], sum = 0;                                                              \
            for (int d = 0; d < 256; d++) {                                                        \
                at[d] = sum;                                                                       \
                sum += count[b][d];                                                                \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++) to[at[from[i] >> 8 * b & 255]++] = from[i];            \
            key *swap = from;                                                                      \
            from = to;                                                                             \
            to = swap;                                                                             \
        }                                                                                          \
        if (from != keys) memcpy(keys, from, (size_t)n * sizeof *keys);                            \
    }
NEO__RADIX_SORT(neo__radix_sort, uint32_t)
NEO__RADIX_SORT(neo__radix_sort_pairs, uint64_t)
#undef NEO__RADIX_SORT
/* AUC and, unless NULL, average precision of unsorted keys; sorts both in place. scratch: as many
   keys as the longer has. */
static double neo__auc_of_keys(uint32_t *pos, int64_t pos_count, uint32_t *neg, int64_t neg_count,
                               uint32_t *scratch, double *average_precision) {
    const double nan = neo__f64_bits(0x7FF8000000000000u);
    double precision = 0.0, precisions = 0.0; /* of this key; of all positives so far */
    neo__radix_sort(pos, scratch, pos_count);
    neo__radix_sort(neg, scratch, neg_count);
    uint64_t twice = 0;
    int64_t below = 0, upto = 0; /* negatives < key, <= key */
    for (int64_t i = 0; i < pos_count; i++) {
        if (i == 0 || pos[i] != pos[i - 1]) {
            below = upto;
            while (below < neg_count && neg[below] < pos[i]) below++;
            upto = below;
            while (upto < neg_count && neg[upto] == pos[i]) upto++;
            precision = (double)(pos_count - i) / (double)(pos_count - i + neg_count - below);
        }
        precisions += precision;
        twice += (uint64_t)(below + upto);
    }
    if (average_precision) *average_precision = pos_count ? precisions / (double)pos_count : nan;
    if (pos_count == 0 || neg_count == 0) return nan;
    return (double)twice / (2.0 * ((double)pos_count * (double)neg_count));
}

/* ---- pairs of a key and, below it, the bits of a weight (at least 0). Sorting by both makes the
   sums independent of the order of samples ---- */
NEO__INLINE uint64_t neo__sort_pair(float x, float weight) {
    return (uint64_t)neo__sort_key(x) << 32 | neo__bits_f32(weight);
}
/* The weight of the pairs whose key is at least `key`, from the highest down to *at. */
static double neo__pairs_down_to(const uint64_t *pairs, int64_t *at, uint64_t key) {
    double sum = 0.0;
    for (; *at > 0 && pairs[*at - 1] >> 32 >= key; --*at)
        sum += (double)neo__f32_bits((uint32_t)pairs[*at - 1]);
    return sum;
}
static double neo__auc_of_pairs(uint64_t *pos, int64_t pos_count, uint64_t *neg, int64_t neg_count,
                                uint64_t *scratch, double *average_precision) {
    const double nan = neo__f64_bits(0x7FF8000000000000u);
    int64_t i = pos_count, j = neg_count;
    double won = 0.0, precisions = 0.0, true_positive = 0.0, above = 0.0;
    neo__radix_sort_pairs(pos, scratch, pos_count);
    neo__radix_sort_pairs(neg, scratch, neg_count);
    double positive = neo__pairs_down_to(pos, &i, 0), negative = neo__pairs_down_to(neg, &j, 0);
    for (i = pos_count, j = neg_count; i > 0;) {
        uint64_t key = pos[i - 1] >> 32;
        double group = neo__pairs_down_to(pos, &i, key);
        above += neo__pairs_down_to(neg, &j, key + 1);
        double equal = neo__pairs_down_to(neg, &j, key);
        true_positive += group;
        won += group * (negative - above - 0.5 * equal);
        above += equal;
        if (group > 0.0) precisions += group * (true_positive / (true_positive + above));
    }
    *average_precision = positive > 0.0 ? precisions / positive : nan;
    return positive > 0.0 && negative > 0.0 ? won / (positive * negative) : nan;
}

/* AUC and average precision where the samples of a bin tie, from the highest bin down. Counts, and
   products of two, are exact to 2^53. */
static double neo__auc_of_bins(const double *bins, double *average_precision, double *error) {
    const double *neg = bins, *pos = bins + NEO__BINS, nan = neo__f64_bits(0x7FF8000000000000u);
    double positive = 0.0, negative = 0.0, won = 0.0, tied = 0.0, precisions = 0.0;
    for (int b = NEO__BINS - 1; b >= 0; b--) {
        won += neg[b] * (positive + 0.5 * pos[b]);
        tied += neg[b] * pos[b];
        positive += pos[b];
        negative += neg[b];
        if (pos[b] > 0.0) precisions += pos[b] * (positive / (positive + negative));
    }
    const int both = positive > 0.0 && negative > 0.0;
    *average_precision = positive > 0.0 ? precisions / positive : nan;
    *error = both ? 0.5 * tied / (positive * negative) : nan;
    return both ? won / (positive * negative) : nan;
}

NEO_API size_t neo_auc_scratch_bytes(int64_t count) {
    return count <= 0 ? 0 : neo__size_mul((size_t)count, 2 * sizeof(uint32_t));
}
NEO_API double neo_auc(const float *score, const float *label, int64_t count, void *scratch) {
    uint32_t *keys = (uint32_t *)scratch;
    int64_t pos = 0, neg = 0;
    if (count <= 0 || count > NEO__METRICS_CAPACITY) return neo__f64_bits(0x7FF8000000000000u);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < count; i++) {
        if (!(score[i] == score[i])) break;
        if (label[i] >= 0.5f) keys[pos++] = neo__sort_key(score[i]);
        else keys[count - ++neg] = neo__sort_key(score[i]);
    }
    double auc = pos + neg < count ? neo__f64_bits(0x7FF8000000000000u)
                                   : neo__auc_of_keys(keys, pos, keys + pos, neg, keys + count,
                                                      NULL);
    neo__fp_leave(fp);
    return auc;
}

NEO__HOT_END
/* Cut the memory of metrics into the object, which is returned, and its arrays. */
static neo_metrics *neo__metrics_layout(neo_metrics *metrics, neo__carve *carve) {
    neo_metrics *object;
    NEO__CARVE(carve, object, 1);
    int64_t keys = metrics->weighted ? 0 : metrics->capacity, pairs = metrics->capacity - keys;
    NEO__CARVE(carve, metrics->pairs, pairs);
    NEO__CARVE(carve, metrics->pair_scratch, pairs ? NEO__MAX(pairs, 2 * metrics->window) : 0);
    NEO__CARVE(carve, metrics->keys, keys);
    NEO__CARVE(carve, metrics->scratch, keys ? NEO__MAX(keys, 2 * metrics->window) : 0);
    NEO__CARVE(carve, metrics->ring_logit, metrics->window);
    NEO__CARVE(carve, metrics->ring_weight, pairs ? metrics->window : 0);
    NEO__CARVE(carve, metrics->ring_label, metrics->window);
    NEO__CARVE(carve, metrics->bins, metrics->binned ? 2 * NEO__BINS : 0);
    return object;
}
NEO_API neo_status neo_metrics_create(neo_ctx *ctx, const neo_metrics_desc *desc,
                                      neo_metrics **out) {
    NEO__CHECK(desc && out, NEO_ERR_ARG, "neo_metrics_create: desc or metrics is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_metrics_create", ctx));
    NEO__CHECK(desc->capacity > 0 && desc->capacity <= NEO__METRICS_CAPACITY, NEO_ERR_ARG,
               "neo_metrics_create: capacity is %" PRId64 ", not in 1 .. 2^32", desc->capacity);
    NEO__CHECK(desc->window >= 0 && desc->window <= NEO__METRICS_CAPACITY, NEO_ERR_ARG,
               "neo_metrics_create: window is %" PRId64 ", not in 0 .. 2^32", desc->window);
    NEO__ZERO(neo_metrics, counted);
    counted.ctx = ctx;
    counted.capacity = desc->capacity;
    counted.window = desc->window;
    counted.lifetime.weighted = counted.weighted = desc->weighted != 0;
    counted.binned = desc->binned != 0;
    neo__carve carve = {NULL, 0};
    (void)neo__metrics_layout(&counted, &carve);
    counted.bytes = carve.at;
    carve.block = (char *)neo__alloc_for(ctx, carve.at, "neo_metrics_create");
    if (!carve.block) return NEO_ERR_MEMORY;
    carve.at = 0;
    neo_metrics *metrics = neo__metrics_layout(&counted, &carve);
    *metrics = counted;
    neo_metrics_reset(metrics);
    neo__live_begin(ctx, &metrics->live, "metrics", NULL);
    *out = metrics;
    return NEO_OK;
}
NEO_API void neo_metrics_destroy(neo_metrics *m) {
    if (!m) return;
    neo__live_end(m->ctx, &m->live);
    neo_free(m->ctx, m, m->bytes);
}
NEO_API void neo_metrics_reset(neo_metrics *m) {
    if (!m) return;
    memset(&m->lifetime, 0, sizeof m->lifetime);
    m->lifetime.weighted = m->weighted;
    if (m->window || m->binned) /* a checkpoint has all of both, which are last in memory */
        memset(m->ring_logit, 0, (size_t)((char *)m + m->bytes - (char *)m->ring_logit));
}
NEO_API neo_tensor neo_metrics_tensor(neo_metrics *metrics, int index, const char **name) {
    static const char *const names[] = {"sums",         "keys",          "pairs", "window.logit",
                                        "window.label", "window.weight", "bins"};
    const int64_t words = (int64_t)sizeof metrics->lifetime / 8, window = metrics->window;
    const int64_t keys = metrics->weighted ? 0 : metrics->capacity;
    const neo_tensor all[] = {neo_tensor_1d(&metrics->lifetime, NEO_I64, words),
                              neo_tensor_1d(metrics->keys, NEO_I32, keys),
                              neo_tensor_1d(metrics->pairs, NEO_I64, metrics->capacity - keys),
                              neo_tensor_1d(metrics->ring_logit, NEO_F32, window),
                              neo_tensor_1d(metrics->ring_label, NEO_U8, window),
                              neo_tensor_1d(metrics->ring_weight, NEO_F32, keys ? 0 : window),
                              neo_tensor_1d(metrics->bins, NEO_F64,
                                            metrics->binned ? 2 * NEO__BINS : 0)};
    for (int i = 0; i < 7; i++) {
        if (all[i].shape[0] == 0 || index-- > 0) continue;
        if (name) *name = names[i];
        return all[i];
    }
    return neo_tensor_none();
}
/* The counts are those of such metrics: a checkpoint may have put others here. */
static neo_status neo__metrics_whole(const neo_metrics *m, const char *fn) {
    const neo__metric_sums *sums = &m->lifetime;
    NEO__CHECK(sums->count >= 0 && sums->positives >= 0 && sums->negatives >= 0 &&
                   sums->positives <= m->capacity && sums->negatives <= m->capacity &&
                   sums->positives + sums->negatives <= NEO__MIN(m->capacity, sums->count) &&
                   sums->weighted == m->weighted,
               NEO_ERR_STATE, "%s: what was loaded into the metrics is of other ones", fn);
    return NEO_OK;
}
NEO__HOT_BEGIN

/* ---- updates ---- */
/* A tensor of a device, brought to half of the context's scratch. */
static neo_status neo__metrics_fetch(neo_ctx *ctx, neo_tensor *t, int half) {
    char *room = neo__shared_scratch(ctx) + half * (NEO__SHARED_SCRATCH_BYTES / 2);
    if (t->place == NEO_HOST) return NEO_OK;
    NEO__CHECK(neo_tensor_bytes(*t) <= NEO__SHARED_SCRATCH_BYTES / 2, NEO_ERR_CAPACITY,
               "neo_metrics_update: %" PRId64 " samples of a device, more than %d at once",
               t->shape[0], NEO__SHARED_SCRATCH_BYTES / 2 / (int)sizeof(float));
    NEO__TRY(neo__check_place(ctx, *t, "neo_metrics_update", half ? "label" : "logit"));
    NEO__TRY(neo__data_read(ctx, room, t->data, t->place, neo_tensor_bytes(*t)));
    t->data = room;
    return NEO_OK;
}
/* Check an update; *from_logit and *from_label are its numbers in host memory. */
static neo_status neo__metrics_check(neo_ctx *ctx, neo_tensor logit, neo_tensor label,
                                     const float **from_logit, const float **from_label) {
    NEO__CHECK(neo__given(logit) && neo__given(label), NEO_ERR_ARG,
               "neo_metrics_update: logit or label is none");
    if (!logit.data) return neo__no_data("neo_metrics_update", "logit", logit, NEO_ERR_ARG);
    if (!label.data) return neo__no_data("neo_metrics_update", "label", label, NEO_ERR_ARG);
    NEO__CHECK(logit.dtype == NEO_F32 && label.dtype == NEO_F32, NEO_ERR_SHAPE,
               "neo_metrics_update: logit is %s, label %s, both must be f32",
               neo_dtype_name(logit.dtype), neo_dtype_name(label.dtype));
    NEO__CHECK(logit.ndim >= 1 && label.ndim >= 1 && neo_tensor_is_contiguous(logit) &&
                   neo_tensor_is_contiguous(label) && neo_tensor_count(logit) == logit.shape[0] &&
                   neo_tensor_count(label) == label.shape[0] && logit.shape[0] == label.shape[0],
               NEO_ERR_SHAPE,
               "neo_metrics_update: logit and label must be contiguous [B] or [B][1]");
    NEO__TRY(neo__metrics_fetch(ctx, &logit, 0));
    NEO__TRY(neo__metrics_fetch(ctx, &label, 1));
    const float *x = (const float *)logit.data, *y = (const float *)label.data;
    *from_logit = x;
    *from_label = y;
    for (int64_t i = 0; i < logit.shape[0]; i++) {
        NEO__CHECK(x[i] - x[i] == 0.0f, NEO_ERR_NUMERIC,
                   "neo_metrics_update: logit of sample %" PRId64 " is %g", i, (double)x[i]);
        NEO__CHECK(y[i] == 0.0f || y[i] == 1.0f, NEO_ERR_RANGE,
                   "neo_metrics_update: label of sample %" PRId64 " is %g, not 0 or 1", i,
                   (double)y[i]);
    }
    return NEO_OK;
}
static void neo__metric_sums_add(const neo_ctx *ctx, neo__metric_sums *sums, const float *x,
                                 const float *y, const float *weight, int64_t count) {
    float loss[NEO__RUN], prediction[NEO__RUN];
    for (int64_t at = 0; at < count; at += NEO__RUN) {
        int64_t part = NEO__MIN(count - at, (int64_t)NEO__RUN);
        const float *w = weight ? weight + at : NULL;
        ctx->vec->bce_logits(x + at, y + at, w, 0.0f, loss, NULL, part);
        ctx->vec->act_forward(NEO_ACT_SIGMOID, x + at, prediction, part);
        for (int64_t i = 0; i < part; i++) {
            neo_exact_add(&sums->logloss, loss[i]);
            int positive = y[at + i] > 0.0f;
            int correct = (x[at + i] >= 0.0f) == positive;
            float off = prediction[i] - y[at + i], square = off * off;
            neo_exact_add(&sums->prediction[positive], w ? w[i] * prediction[i] : prediction[i]);
            neo_exact_add(&sums->square, w ? w[i] * square : square);
            sums->positive += positive;
            sums->correct += correct;
            if (w) neo_exact_add(&sums->weight[positive], w[i]);
            if (w && correct) neo_exact_add(&sums->right, w[i]);
        }
    }
    sums->count += count;
}
/* Put samples into the window, which they enter at lifetime.count, and into bins. */
static void neo__metrics_keep(neo_metrics *metrics, const float *x, const float *y,
                              const float *weight, int64_t count) {
    int64_t slot = metrics->window ? metrics->lifetime.count % metrics->window : 0;
    for (int64_t i = 0; i < count && metrics->window; i++) {
        metrics->ring_logit[slot] = x[i];
        metrics->ring_label[slot] = y[i] > 0.0f;
        if (weight) metrics->ring_weight[slot] = weight[i];
        if (++slot == metrics->window) slot = 0;
    }
    for (int64_t i = 0; i < count && metrics->binned; i++) {
        const int half = NEO__BINS / 2;
        const double at = (double)x[i] * (half / 16); /* rounded down: */
        int bin = at < -half ? -half : at < half ? (int)at : half - 1;
        bin -= at < bin && bin > -half;
        metrics->bins[(y[i] > 0.0f ? 3 : 1) * half + bin] += weight ? (double)weight[i] : 1.0;
    }
}
static neo_status neo__metrics_weights(const char *fn, neo_tensor weight, int64_t count) {
    const float *w = (const float *)weight.data;
    NEO__CHECK(weight.ndim >= 1 && weight.dtype == NEO_F32 && weight.place == NEO_HOST &&
                   neo_tensor_is_contiguous(weight) && neo_tensor_count(weight) == count &&
                   (w || count == 0),
               NEO_ERR_SHAPE, "%s: weight must be [B] f32, contiguous, in host memory", fn);
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(w[i] >= 0.0f && w[i] - w[i] == 0.0f, NEO_ERR_RANGE,
                   "%s: weight of sample %" PRId64 " is %g", fn, i, (double)w[i]);
    return NEO_OK;
}
/* weight: NULL, as metrics without weights want it. */
static neo_status neo__metrics_add(neo_metrics *metrics, const char *fn, neo_tensor logit,
                                   neo_tensor label, const neo_tensor *weight) {
    NEO__CHECK_LIVE(metrics, fn, "metrics");
    const float *x = NULL, *y = NULL, *w = weight ? (const float *)weight->data : NULL;
    NEO__CHECK(metrics->weighted || !weight, NEO_ERR_STATE, "%s: metrics have no weights", fn);
    NEO__CHECK(!metrics->weighted || weight, NEO_ERR_STATE,
               "%s: metrics were created for weights", fn);
    NEO__TRY(neo__metrics_whole(metrics, fn));
    NEO__TRY(neo__metrics_check(metrics->ctx, logit, label, &x, &y));
    const int64_t count = logit.shape[0];
    if (weight) NEO__TRY(neo__metrics_weights(fn, *weight, count));
    neo__fp_state fp = neo__fp_enter();
    neo__metric_sums *sums = &metrics->lifetime;
    for (int64_t i = 0; i < count; i++) {
        if (sums->positives + sums->negatives == metrics->capacity) break;
        int64_t to = y[i] > 0.0f ? sums->positives++ : metrics->capacity - ++sums->negatives;
        if (w) metrics->pairs[to] = neo__sort_pair(x[i], w[i]);
        else metrics->keys[to] = neo__sort_key(x[i]);
    }
    neo__metrics_keep(metrics, x, y, w, count);
    neo__metric_sums_add(metrics->ctx, sums, x, y, w, count);
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO_API neo_status neo_metrics_update_weighted(neo_metrics *metrics, neo_tensor logit,
                                               neo_tensor label, neo_tensor weight) {
    return neo__metrics_add(metrics, "neo_metrics_update_weighted", logit, label, &weight);
}
NEO_API neo_status neo_metrics_update(neo_metrics *metrics, neo_tensor logit, neo_tensor label) {
    return neo__metrics_add(metrics, "neo_metrics_update", logit, label, NULL);
}

/* ---- values ---- */
static void neo__metric_values_of(const neo__metric_sums *sums, double auc, int64_t auc_count,
                                  neo_metric_values *values) {
    double nan = neo__f64_bits(0x7FF8000000000000u), n = (double)sums->count,
           p = (double)sums->positive, correct = (double)sums->correct;
    if (sums->weighted) {
        neo_exact all = sums->weight[0];
        neo_exact_merge(&all, &sums->weight[1]);
        n = neo_exact_value(&all);
        p = neo_exact_value(&sums->weight[1]);
        correct = neo_exact_value(&sums->right);
    }
    values->count = sums->count;
    values->auc = auc;
    values->auc_count = auc_count;
    values->auc_error = auc == auc ? 0.0 : nan;
    values->logloss = values->ne = values->calibration = values->accuracy = values->base_rate = nan;
    values->mse = values->mae = nan;
    if (!(n > 0.0)) return;
    values->mse = neo_exact_value(&sums->square) / n;
    values->mae = (p - neo_exact_value(&sums->prediction[1]) +
                   neo_exact_value(&sums->prediction[0])) /
                  n;
    values->logloss = neo_exact_value(&sums->logloss) / n;
    values->accuracy = correct / n;
    values->base_rate = p / n;
    neo_exact prediction = sums->prediction[0];
    neo_exact_merge(&prediction, &sums->prediction[1]);
    if (p > 0.0) values->calibration = neo_exact_value(&prediction) / p;
    if (p > 0.0 && p < n) {
        double rate = p / n, rest = (n - p) / n;
        values->ne = values->logloss / -(rate * neo__log_f64(rate) + rest * neo__log_f64(rest));
    }
}
NEO_API neo_status neo_metrics_lifetime(neo_metrics *metrics, neo_metric_values *values) {
    NEO__CHECK_LIVE(metrics, "neo_metrics_lifetime", "metrics");
    NEO__CHECK(values, NEO_ERR_ARG, "neo_metrics_lifetime: values is NULL");
    NEO__TRY(neo__metrics_whole(metrics, "neo_metrics_lifetime"));
    double auc = neo__f64_bits(0x7FF8000000000000u), error = 0.0;
    neo__fp_state fp = neo__fp_enter();
    values->pr_auc = auc;
    const neo__metric_sums *sums = &metrics->lifetime;
    const int64_t negatives = metrics->capacity - sums->negatives; /* begin there */
    const int beyond = sums->count > metrics->capacity, of_bins = beyond && metrics->binned;
    if (of_bins) {
        auc = neo__auc_of_bins(metrics->bins, &values->pr_auc, &error);
    } else if (beyond) {
    } else if (sums->weighted) {
        auc = neo__auc_of_pairs(metrics->pairs, sums->positives, metrics->pairs + negatives,
                                sums->negatives, metrics->pair_scratch, &values->pr_auc);
    } else {
        auc = neo__auc_of_keys(metrics->keys, sums->positives, metrics->keys + negatives,
                               sums->negatives, metrics->scratch, &values->pr_auc);
    }
    neo__metric_values_of(sums, auc, of_bins ? sums->count : sums->positives + sums->negatives,
                          values);
    if (of_bins) values->auc_error = error;
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO_API neo_status neo_metrics_window(neo_metrics *metrics, neo_metric_values *values) {
    NEO__CHECK_LIVE(metrics, "neo_metrics_window", "metrics");
    NEO__CHECK(values, NEO_ERR_ARG, "neo_metrics_window: values is NULL");
    NEO__CHECK(metrics->window, NEO_ERR_STATE,
               "neo_metrics_window: metrics were created without a window");
    NEO__TRY(neo__metrics_whole(metrics, "neo_metrics_window"));
    const int64_t window = metrics->window, count = NEO__MIN(metrics->lifetime.count, window);
    const float *weight = metrics->weighted ? metrics->ring_weight : NULL;
    uint32_t *keys = metrics->scratch;
    uint64_t *pairs = metrics->pair_scratch;
    int64_t pos = 0, neg = 0;
    NEO__ZERO(neo__metric_sums, sums);
    sums.weighted = weight != NULL;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t at = 0; at < count; at += NEO__RUN) {
        float label[NEO__RUN];
        int64_t part = NEO__MIN(count - at, (int64_t)NEO__RUN);
        for (int64_t i = 0; i < part; i++) {
            label[i] = metrics->ring_label[at + i] ? 1.0f : 0.0f;
            const int64_t to = metrics->ring_label[at + i] ? pos++ : window - ++neg;
            const float x = metrics->ring_logit[at + i];
            if (weight) pairs[to] = neo__sort_pair(x, weight[at + i]);
            else keys[to] = neo__sort_key(x);
        }
        neo__metric_sums_add(metrics->ctx, &sums, metrics->ring_logit + at, label,
                             weight ? weight + at : NULL, part);
    }
    double auc = weight ? neo__auc_of_pairs(pairs, pos, pairs + window - neg, neg, pairs + window,
                                            &values->pr_auc)
                        : neo__auc_of_keys(keys, pos, keys + window - neg, neg, keys + window,
                                           &values->pr_auc);
    neo__metric_values_of(&sums, auc, count, values);
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO__HOT_END

/* ---- groups ---- */
/* By group, then scores from the highest, then labels; nothing else is in a sample, so that any
   order of the samples sorts alike. */
static int neo__grouped_label_order(const void *a, const void *b) {
    const float x = ((const neo_grouped_sample *)a)->label;
    const float y = ((const neo_grouped_sample *)b)->label;
    return (x < y) - (x > y);
}
static int neo__grouped_order(const void *a, const void *b) {
    const neo_grouped_sample *x = (const neo_grouped_sample *)a;
    const neo_grouped_sample *y = (const neo_grouped_sample *)b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return neo__grouped_label_order(a, b);
}
/* Twice the pairs of a group that scores order rightly, by twice all of them; NaN if none are. */
static double neo__grouped_auc(const neo_grouped_sample *sample, int64_t count) {
    uint64_t twice = 0, all[2] = {0, 0}; /* negatives, positives so far */
    for (int64_t i = 0, end; i < count; i = end) {
        uint64_t tied[2] = {0, 0};
        for (end = i; end < count && sample[end].score == sample[i].score; end++)
            tied[sample[end].label >= 0.5f]++;
        twice += (2 * all[1] + tied[1]) * tied[0];
        all[0] += tied[0], all[1] += tied[1];
    }
    return (double)twice / (2.0 * (double)all[0] * (double)all[1]);
}
/* Gains by the logarithm of their ranks: the base does not matter to a ratio. Tied: equal scores
   share the ranks that they fill. */
static double neo__grouped_gain(const neo_grouped_sample *sample, int64_t count, int64_t k,
                                int is_tied) {
    double total = 0.0;
    for (int64_t i = 0, end; i < count && i < k; i = end) {
        double gain = 0.0, weight = 0.0;
        const float score = sample[i].score;
        for (end = i; end == i || (is_tied && end < count && sample[end].score == score); end++) {
            gain += (double)sample[end].label;
            if (end < k) weight += 1.0 / neo__log_f64((double)(end + 2));
        }
        total += gain / (double)(end - i) * weight;
    }
    return total;
}
static void neo__grouped_sum(neo_grouped_sample *sample, int64_t count, int64_t k,
                             neo_grouped_values *values) {
    int64_t end;
    double weight = 0.0;
    for (int64_t i = 0; i < count; i = end, values->groups++) {
        for (end = i + 1; end < count && sample[end].group == sample[i].group;) end++;
        const double auc = neo__grouped_auc(sample + i, end - i);
        const double gain = neo__grouped_gain(sample + i, end - i, k, 1);
        if (auc == auc) {
            values->auc_groups++;
            values->auc += auc * (double)(end - i);
            weight += (double)(end - i);
        }
        qsort(sample + i, (size_t)(end - i), sizeof *sample, neo__grouped_label_order);
        if (!(sample[i].label > 0.0f)) continue;
        values->ndcg_groups++;
        values->ndcg += gain / neo__grouped_gain(sample + i, end - i, k, 0);
    }
    const double nan = neo__f64_bits(0x7FF8000000000000u);
    values->auc = weight > 0.0 ? values->auc / weight : nan;
    values->ndcg = values->ndcg_groups ? values->ndcg / (double)values->ndcg_groups : nan;
}
NEO_API neo_status neo_grouped(neo_grouped_sample *samples, int64_t count, int64_t k,
                               neo_grouped_values *values) {
    NEO__CHECK(values && count >= 0 && (samples || count == 0) && k >= 0, NEO_ERR_ARG,
               "neo_grouped: samples or values is NULL, or count or k is below 0");
    for (int64_t i = 0; i < count; i++) {
        const double score = (double)samples[i].score, label = (double)samples[i].label;
        NEO__CHECK(score - score == 0.0, NEO_ERR_NUMERIC,
                   "neo_grouped: the score of sample %" PRId64 " is %g", i, score);
        NEO__CHECK(label >= 0.0 && label - label == 0.0, NEO_ERR_RANGE,
                   "neo_grouped: the label of sample %" PRId64 " is %g", i, label);
    }
    memset(values, 0, sizeof *values);
    neo__fp_state fp = neo__fp_enter();
    if (count > 1) qsort(samples, (size_t)count, sizeof *samples, neo__grouped_order);
    neo__grouped_sum(samples, count, k ? k : count, values);
    neo__fp_leave(fp);
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-progress

   A line of text: label, bar, share, samples, rate, loss, time left. On a terminal it is drawn over
   itself; elsewhere each one is a line of its own. It is handed to the user's function; nothing is
   printed here.
   ------------------------------------------------------------------------ */
enum { NEO__PROGRESS_BYTES = 1024, NEO__PROGRESS_COLUMNS = 200 };

/* A printed number, whatever decimal point the locale has. */
static void neo__point(char *number) {
    for (char *p = number; *p; p++)
        if (*p == ',') *p = '.';
}
/* Three significant digits and a letter: 950, 1.23k, 45.6M. Room for 32 bytes. */
static void neo__human(double x, char *out) {
    static const char unit[] = {'k', 'M', 'G', 'T', 'P'};
    if (!(x < 1e18)) x = 1e18;
    if (x < 999.5) {
        snprintf(out, 32, "%.0f", x);
        return;
    }
    int u = -1;
    for (; x >= 999.5 && u < 4; u++) x /= 1000.0;
    snprintf(out, 32, "%.*f%c", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, unit[u]);
    neo__point(out);
}
/* 7:05, 2:03:09, 4d 03h. Room for 32 bytes. */
static void neo__duration(double seconds, char *out) {
    int64_t s = seconds < 9e15 ? (int64_t)(seconds + 0.5) : INT64_C(9000000000000000);
    if (s >= 86400) snprintf(out, 32, "%" PRId64 "d %02dh", s / 86400, (int)(s % 86400 / 3600));
    else if (s >= 3600)
        snprintf(out, 32, "%d:%02d:%02d", (int)(s / 3600), (int)(s % 3600 / 60), (int)(s % 60));
    else snprintf(out, 32, "%d:%02d", (int)(s / 60), (int)(s % 60));
}
/* A bar of `columns` characters; block characters take three bytes and have half steps. */
static void neo__bar(const neo_progress *p, double share, int columns, char *out) {
    int halves = (int)(share * 2.0 * columns + 0.5);
    out[0] = 0;
    for (int i = 0; i < columns; i++) {
        const char *full = p->ascii ? "#" : "\xE2\x94\x81", *half = p->ascii ? "." : "\xE2\x95\xB8";
        const char *none = p->ascii ? "." : "\xE2\x94\x80";
        strcat(out, halves >= 2 * i + 2 ? full : halves == 2 * i + 1 ? half : none);
    }
}

/* The text after the bar: samples, rate, loss, time. */
static void neo__progress_tail(const neo_progress *progress, double loss, int final, char *text,
                               size_t bytes) {
    char done[32], total[32], rate[32], time[32];
    double seconds = (double)(progress->last_ns - progress->started_ns) * 1e-9;
    double new_samples = (double)(progress->done - progress->first);
    double per_second = seconds > 0.0 ? new_samples / seconds : 0.0;
    neo__human((double)progress->done, done);
    neo__human((double)progress->total, total);
    neo__human(per_second, rate);
    if (progress->total > 0 && !final) neo__append(text, bytes, "  %s/%s", done, total);
    else neo__append(text, bytes, "  %s samples", done);
    if (new_samples > 0.0) neo__append(text, bytes, "  %s samples/s", rate);
    if (!progress->hide_loss) neo__append(text, bytes, "  loss %.4f", loss);
    if (final) {
        neo__duration(seconds, time);
        neo__append(text, bytes, "  in %s", time);
    } else if (progress->total > 0 && per_second > 0.0) {
        neo__duration((double)NEO__MAX(progress->total - progress->done, (int64_t)0) / per_second,
                      time);
        neo__append(text, bytes, "  ETA %s", time);
    }
}
static void neo__progress_draw(neo_progress *progress, double loss, int final) {
    char line[NEO__PROGRESS_BYTES], tail[256], bar[3 * NEO__PROGRESS_COLUMNS + 1];
    int columns =
        progress->columns > 0 ? NEO__MIN(progress->columns, (int)NEO__PROGRESS_COLUMNS) : 80;
    double share = progress->total > 0 ? (double)progress->done / (double)progress->total : 0.0;
    share = NEO__MIN(NEO__MAX(share, 0.0), 1.0);
    tail[0] = 0;
    if (progress->total > 0) neo__append(tail, sizeof tail, " %3d%%", (int)(share * 100.0));
    neo__progress_tail(progress, loss, final, tail, sizeof tail);
    line[0] = 0;
    if (progress->terminal) neo__append(line, sizeof line, "\r");
    neo__append(line, sizeof line, "%.64s", progress->label ? progress->label : "");
    if (!progress->terminal) {
        neo__append(line, sizeof line, "%s\n", tail);
        progress->write(line, progress->user);
        return;
    }
    /* The bar takes the columns that are left by the longest usual tail, so that it keeps its
       width; the last column stays free: some terminals wrap after it. */
    int head = (int)strlen(line) - 1, used = head + (int)strlen(tail);
    int room = NEO__MIN(columns - 2 - head - NEO__MAX((int)strlen(tail), 61), 40);
    if (progress->total > 0 && room >= 8) {
        neo__bar(progress, share, room, bar);
        neo__append(line, sizeof line, " %s", bar);
        used += 1 + room;
    }
    neo__append(line, sizeof line, "%.*s", NEO__MAX(columns - 1 - used + (int)strlen(tail), 0),
                tail);
    int before = progress->shown; /* blank what a longer line left behind */
    progress->shown = used = NEO__MIN(used, columns - 1);
    if (before > used) neo__append(line, sizeof line, "%*s", before - used, "");
    if (final) neo__append(line, sizeof line, "\n");
    progress->write(line, progress->user);
}

NEO_API void neo_progress_begin(neo_progress *p) {
    if (!p || !p->write) return;
    p->started_ns = p->last_ns = neo_time_ns();
    p->done = p->first;
    p->shown = 0;
}
NEO_API void neo_progress_update(neo_progress *p, int64_t done, double loss) {
    if (!p || !p->write) return;
    int64_t now = neo_time_ns(), ms = p->interval_ms ? p->interval_ms : p->terminal ? 100 : 5000;
    p->done = done;
    if (p->last_ns != p->started_ns && now - p->last_ns < ms * 1000000) return;
    if (p->last_ns == p->started_ns && !p->terminal && now - p->started_ns < ms * 1000000) return;
    p->last_ns = now;
    neo__progress_draw(p, loss, 0);
}
NEO_API void neo_progress_end(neo_progress *p, double loss) {
    if (!p || !p->write) return;
    p->last_ns = neo_time_ns();
    neo__progress_draw(p, loss, 1);
}
/* ---------------------------------------------------------------------------
   >>impl-stop
   ------------------------------------------------------------------------ */
static struct { int64_t at_ns; int number; } neo__stop; /* written by handlers: lock-free */

/* Keeps the first signal. 1: this one is another, half a second later, and ends the program. */
static int neo__stop_take(int number) {
    int64_t now = neo_time_ns();
    if (neo_stop_signal())
        return now - __atomic_load_n(&neo__stop.at_ns, __ATOMIC_RELAXED) > 500000000;
    __atomic_store_n(&neo__stop.at_ns, now, __ATOMIC_RELAXED);
    __atomic_store_n(&neo__stop.number, number, __ATOMIC_RELEASE);
    return 0;
}

#if defined(_WIN32)
static BOOL WINAPI neo__stop_handler(DWORD event) {
    if (event > CTRL_BREAK_EVENT) return FALSE;
    return neo__stop_take(event == CTRL_C_EVENT ? 2 : 15) ? FALSE : TRUE;
}
NEO_API neo_status neo_stop_on_signals(void) {
    NEO__CHECK(SetConsoleCtrlHandler(neo__stop_handler, TRUE), NEO_ERR_SYSTEM,
               "neo_stop_on_signals: error %lu of Windows", (unsigned long)GetLastError());
    return NEO_OK;
}
#else
static void neo__stop_handler(int number) {
    if (!neo__stop_take(number)) return;
    signal(number, SIG_DFL);
    raise(number);
}
NEO_API neo_status neo_stop_on_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = neo__stop_handler;
    action.sa_flags = SA_RESTART;
    for (int i = 0; i < 2; i++) {
        int failed = sigaction(numbers[i], NULL, &before);
        if (!failed && before.sa_handler == SIG_IGN) continue;
        failed |= sigaction(numbers[i], &action, NULL);
        NEO__CHECK(!failed, NEO_ERR_SYSTEM, "neo_stop_on_signals: %s", strerror(errno));
    }
    return NEO_OK;
}
#endif
NEO_API int neo_stop_signal(void) { return __atomic_load_n(&neo__stop.number, __ATOMIC_ACQUIRE); }

/* ---------------------------------------------------------------------------
   >>impl-jsonl

   A line is built in a fixed buffer and goes to the system in one write, so that it is whole in
   the file even when the process is killed after it. A line that a full disk cut short is ended by
   the newline that the next one writes first.
   ------------------------------------------------------------------------ */
enum { NEO__JSONL_BYTES = 4096 };
struct neo_jsonl {
    neo_ctx *ctx;
    neo__live live;
    neo__file file;
    char *path;        /* behind the record */
    size_t bytes;      /* of both */
    neo_status status; /* of the line being built: the first failure */
    int torn;
    size_t used;
    char line[NEO__JSONL_BYTES];
};

NEO_API neo_status neo_jsonl_open(neo_ctx *ctx, const char *path, int append, neo_jsonl **out) {
    NEO__CHECK(path && out, NEO_ERR_ARG, "neo_jsonl_open: path or log is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_jsonl_open", ctx));
    const size_t bytes = sizeof(neo_jsonl) + strlen(path) + 1;
    neo_jsonl *log = (neo_jsonl *)neo__alloc_for(ctx, bytes, "neo_jsonl_open");
    if (!log) return NEO_ERR_MEMORY;
    memset(log, 0, sizeof *log);
    log->ctx = ctx;
    log->bytes = bytes;
    log->path = (char *)(log + 1);
    memcpy(log->path, path, strlen(path) + 1);
    neo_status status =
        neo__file_open(&log->file, log->path, append ? NEO__FILE_APPEND : NEO__FILE_CREATE);
    if (status == NEO_OK) neo__live_begin(ctx, &log->live, "jsonl", path);
    if (status != NEO_OK) neo_free(ctx, log, bytes);
    else *out = log;
    return status;
}
NEO_API void neo_jsonl_close(neo_jsonl *log) {
    if (!log) return;
    neo__live_end(log->ctx, &log->live);
    (void)neo__file_close(&log->file); /* every line was reported when it was written */
    neo_free(log->ctx, log, log->bytes);
}

/* The bytes of the line may not pass its end. */
static void neo__jsonl_text(neo_jsonl *log, const char *text, size_t n) {
    if (log->status != NEO_OK) return;
    if (n > NEO__JSONL_BYTES - log->used) {
        log->status = NEO_ERR_CAPACITY;
        return;
    }
    memcpy(log->line + log->used, text, n);
    log->used += n;
}
/* The character at *text, which goes on behind it, as in a string of JSON: control characters,
   quote and backslash escaped; a byte that is not UTF-8 becomes U+FFFD. Returns the bytes in
   code. */
static size_t neo__json_character(const char **text, char code[8]) {
    const char *s = *text, *brief = strchr("\bb\nn\tt\rr\ff", *s);
    const size_t count = (size_t)neo__utf8_length(s, 4); /* a 0 ends one, too */
    *text += count ? count : 1;
    if (count == 0) return (size_t)snprintf(code, 8, "\xEF\xBF\xBD");
    if (*s == '"' || *s == '\\') return (size_t)snprintf(code, 8, "\\%c", *s);
    if ((unsigned char)*s >= 0x20) return memcpy(code, s, count), count;
    if (brief) return (size_t)snprintf(code, 8, "\\%c", brief[1]);
    return (size_t)snprintf(code, 8, "\\u%04x", (unsigned)*s);
}
/* A string, quotes included. */
static void neo__jsonl_quoted(neo_jsonl *log, const char *s) {
    char code[8];
    neo__jsonl_text(log, "\"", 1);
    while (*s) {
        const size_t count = neo__json_character(&s, code);
        neo__jsonl_text(log, code, count);
    }
    neo__jsonl_text(log, "\"", 1);
}
static void neo__jsonl_key(neo_jsonl *log, const char *key) {
    neo__jsonl_text(log, log->used ? "," : "{", 1);
    neo__jsonl_quoted(log, key ? key : "");
    neo__jsonl_text(log, ":", 1);
}
NEO_API void neo_jsonl_int(neo_jsonl *log, const char *key, int64_t value) {
    char text[32];
    if (!log) return;
    neo__jsonl_key(log, key);
    neo__jsonl_text(log, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}
/* Few digits, but enough to read back as x; whatever decimal point the locale prints. */
static void neo__number_text(double x, char *out, size_t bytes) {
    if (!(x - x == 0.0)) {
        snprintf(out, bytes, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 3 : 1) {
        snprintf(out, bytes, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    neo__point(out);
}
NEO_API void neo_jsonl_number(neo_jsonl *log, const char *key, double value) {
    char text[40];
    if (!log) return;
    neo__jsonl_key(log, key);
    neo__number_text(value, text, sizeof text);
    neo__jsonl_text(log, text, strlen(text));
}
NEO_API void neo_jsonl_string(neo_jsonl *log, const char *key, const char *value) {
    if (!log) return;
    neo__jsonl_key(log, key);
    if (value) neo__jsonl_quoted(log, value);
    else neo__jsonl_text(log, "null", 4);
}
NEO_API neo_status neo_jsonl_end(neo_jsonl *log) {
    NEO__CHECK_LIVE(log, "neo_jsonl_end", "log");
    if (!log->used) neo__jsonl_text(log, "{", 1);
    neo__jsonl_text(log, "}\n", 2);
    neo_status status = log->status;
    size_t used = log->used;
    log->status = NEO_OK;
    log->used = 0;
    NEO__CHECK(status == NEO_OK, status, "%s: a line of more than %d bytes was not written",
               log->path, (int)NEO__JSONL_BYTES);
    if (log->torn) {
        NEO__TRY(neo__file_write(&log->file, "\n", 1));
        log->torn = 0;
    }
    status = neo__file_write(&log->file, log->line, used);
    if (status != NEO_OK) log->torn = 1;
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-trace

   Spans lie in one array, each at the next place when it ends, whatever its thread; a place that
   some thread still writes has no end yet. The rank's own thread has a stack of those that are
   open. Each rank makes text of its spans, block by block, and passes it to rank 0, which writes.

   Clocks: a rank asks rank 0 for its time, and the answer is its own time half way, give or take
   half of the way there and back; of some rounds the shortest counts. Between the comparison at the
   begin and the one at the end the difference changes evenly.
   ------------------------------------------------------------------------ */
/* A file beside path, which becomes it when it is whole; path itself where that is a device. */
static neo_status neo__beside_open(const char *path, const char *function,
                                   char beside[NEO__PATH_BYTES], neo__file *file) {
    neo__path_kind kind;
    NEO__TRY(neo__path_look(path, &kind));
    const int direct = kind == NEO__PATH_OTHER || kind == NEO__PATH_DIR;
    const int length = snprintf(beside, NEO__PATH_BYTES, direct ? "%s" : "%s.tmp", path);
    NEO__CHECK(length > 0 && length < (int)NEO__PATH_BYTES, NEO_ERR_ARG, "%s: the path is too long",
               function);
    return neo__file_open(file, path[0] ? beside : path, NEO__FILE_CREATE);
}
/* written: how the writing went. */
static neo_status neo__beside_close(const char *path, const char *beside, neo__file *file,
                                    neo_status written) {
    const int direct = strcmp(path, beside) == 0;
    neo__kept_error first = neo__error_keep(written);
    neo_status closed = neo__file_close(file);
    if (written == NEO_OK && closed == NEO_OK && !direct) closed = neo__path_rename(beside, path);
    neo__kept_error error = written != NEO_OK ? first : neo__error_keep(closed);
    if (error.status != NEO_OK && !direct) (void)neo__file_remove(beside);
    return neo__error_restore(&error);
}
enum {
    NEO__TRACE_SPANS = 65536,
    NEO__TRACE_ROUNDS = 8,
    NEO__TRACE_BLOCK = 65536,
    NEO__TRACE_LINE = 1024,
    NEO__TRACE_PAST = 4096 /* spans looked back at, at most */
};
typedef struct neo__clock_pair {
    int64_t at_ns, offset_ns; /* rank 0's time is this rank's and offset_ns */
} neo__clock_pair;
struct neo_trace {
    neo__recorder recorder;
    neo_ctx *ctx;
    neo__live live;
    neo_group group;
    size_t bytes; /* of this block */
    int counted;  /* `all` is of all ranks */
    neo__clock_pair clock[2];
    int64_t start_ns;    /* of rank 0's clock: the file's 0 */
    neo_trace_stats all; /* of all ranks */
    char *block;         /* [NEO__TRACE_BLOCK] */
};
static const char *const neo__span_kinds[] = {"call", "compute", "wait", "communication"};

/* Rank 0's time, and its start; the clock of `which` end. */
static neo_status neo__trace_compare(neo_trace *trace, int which) {
    const neo_group *group = &trace->group;
    int64_t best = INT64_MAX;
    for (int r = 1; r < group->size; r++) {
        if (group->rank != 0 && group->rank != r) continue;
        for (int i = 0; i < NEO__TRACE_ROUNDS; i++) {
            int64_t asked = neo_time_ns(), words[2] = {0, 0};
            NEO__TRY(group->pass(group->user, r, 0, words, sizeof words));
            words[0] = neo_time_ns(), words[1] = trace->start_ns;
            NEO__TRY(group->pass(group->user, 0, r, words, sizeof words));
            if (group->rank == 0) continue;
            const int64_t now = neo_time_ns(), way = now - asked;
            const int64_t offset = words[0] - (asked + way / 2);
            if (way >= best) continue;
            best = way;
            trace->start_ns = words[1];
            trace->clock[which].offset_ns = offset > way / 2 || offset < -way / 2 ? offset : 0;
        }
    }
    trace->clock[which].at_ns = neo_time_ns();
    return NEO_OK;
}
/* This rank's time in the file. */
static int64_t neo__trace_time(const neo_trace *t, int64_t ns) {
    const neo__clock_pair *a = &t->clock[0], *b = &t->clock[1];
    double drift = (double)(b->offset_ns - a->offset_ns), between = (double)(b->at_ns - a->at_ns);
    if (between > 0) drift *= (double)(ns - a->at_ns) / between;
    return ns + a->offset_ns + (int64_t)drift - t->start_ns;
}

NEO_API neo_status neo_trace_create(neo_ctx *ctx, const neo_trace_desc *desc, neo_trace **out) {
    const char *fn = "neo_trace_create";
    const int64_t room = desc && desc->spans ? desc->spans : (int64_t)NEO__TRACE_SPANS;
    const neo_group *group = desc && desc->group && desc->group->size > 1 ? desc->group : NULL;
    NEO__CHECK(out, NEO_ERR_ARG, "%s: trace is NULL", fn);
    *out = NULL;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(!ctx->recorder, NEO_ERR_STATE, "%s: the context has a trace already", fn);
    NEO__CHECK(room > 0 && room <= INT64_C(1) << 31, NEO_ERR_ARG,
               "%s: spans is %" PRId64 ": wants 0 to 2^31", fn, room);
    NEO__CHECK(!group || (group->pass && group->agree && group->sum), NEO_ERR_ARG,
               "%s: the group lacks agree, sum or pass", fn);
    const size_t bytes = sizeof(neo_trace) + NEO__TRACE_BLOCK +
                         neo__size_mul((size_t)room, sizeof(neo__span));
    neo_trace *t = (neo_trace *)neo__alloc_for(ctx, bytes, fn);
    if (t) {
        memset(t, 0, sizeof *t);
        t->group.size = 1;
        if (group) t->group = *group;
        t->ctx = ctx;
        t->bytes = bytes;
        t->recorder.thread = neo__span_thread();
        t->recorder.room = room;
        t->recorder.span = (neo__span *)(t + 1);
        t->block = (char *)(t->recorder.span + room);
        t->start_ns = neo_time_ns();
        /* its pages are there, too, from here on */
        for (int64_t i = 0; i < room; i++) t->recorder.span[i].end_ns = 0;
    }
    neo_status status = t ? NEO_OK : NEO_ERR_MEMORY;
    if (group) status = group->agree(group->user, status);
    if (status == NEO_OK) status = neo__trace_compare(t, 0);
    if (status != NEO_OK) {
        if (t) neo_free(ctx, t, bytes);
        return status;
    }
    neo__live_begin(ctx, &t->live, "trace", NULL);
    ctx->traces++;
    __atomic_store_n(&ctx->recorder, &t->recorder, __ATOMIC_RELEASE);
    *out = t;
    return NEO_OK;
}
static void neo__trace_stop(neo_trace *t) {
    neo__recorder *recorder = &t->recorder;
    if (recorder->thread == neo__span_thread())
        while (recorder->depth > 0 && !recorder->over) neo_trace_end(t->ctx);
    recorder->dropped += recorder->depth, recorder->depth = 0; /* of another thread */
    recorder->over = 1;
    if (t->ctx->recorder == &t->recorder)
        __atomic_store_n(&t->ctx->recorder, (neo__recorder *)NULL, __ATOMIC_RELEASE);
}
NEO_API void neo_trace_destroy(neo_trace *t) {
    if (!t) return;
    neo__trace_stop(t);
    neo__live_end(t->ctx, &t->live);
    neo_free(t->ctx, t, t->bytes);
}

NEO_API void neo_trace_begin(neo_ctx *ctx, const char *name, int64_t number) {
    if (ctx) neo__span_begin(ctx, name, number, NEO__SPAN_CALL);
}
NEO_API void neo_trace_end(neo_ctx *ctx) { (void)neo__span_end(ctx, NEO_OK); }
NEO_API neo_trace_stats neo_trace_get_stats(const neo_trace *trace) {
    neo_trace_stats s = trace->all;
    if (trace->counted) return s;
    const int64_t next = __atomic_load_n(&trace->recorder.next, __ATOMIC_RELAXED);
    s.spans = NEO__MIN(next, trace->recorder.room);
    s.dropped = trace->recorder.dropped + next - s.spans;
    for (int64_t i = 0; i < s.spans; i++)
        if (__atomic_load_n(&trace->recorder.span[i].end_ns, __ATOMIC_ACQUIRE))
            s.sent_bytes += trace->recorder.span[i].sent[0] + trace->recorder.span[i].sent[1];
    return s;
}

NEO_API int64_t neo_trace_time(const neo_trace *trace, const char *inside, const char *category,
                               const char *name, int64_t *count) {
    int64_t sum = 0, begin_ns = 0;
    *count = 0;
    /* A span lies before those around it. */
    for (int64_t i = NEO__MIN(trace->recorder.next, trace->recorder.room) - 1; i >= 0; i--) {
        const neo__span *s = &trace->recorder.span[i];
        if (s->thread || !s->end_ns) continue;
        if (inside && strcmp(s->name, inside) == 0 && s->kind == (int)NEO__SPAN_CALL) {
            begin_ns = s->begin_ns;
            continue;
        }
        if (inside && (!begin_ns || s->begin_ns < begin_ns)) begin_ns = 0; /* before it */
        else if (strcmp(neo__span_kinds[s->kind], category) == 0 &&
                 (!name || strcmp(s->name, name) == 0))
            sum += s->end_ns - s->begin_ns, ++*count;
    }
    return sum;
}

/* ---- as text ---- */
/* A string of JSON, without its quotes; what has no room is cut off. */
static void neo__trace_quoted(char *to, size_t room, const char *text) {
    size_t at = 0;
    while (*text && at + 8 < room) at += neo__json_character(&text, to + at);
    to[at] = 0;
}
/* Nanoseconds as microseconds. */
static void neo__trace_us(char text[32], int64_t ns) {
    const char *sign = ns < 0 ? "-" : "";
    const int64_t size = ns < 0 ? -ns : ns;
    snprintf(text, 32, "%s%" PRId64 ".%03d", sign, size / 1000, (int)(size % 1000));
}
/* Line i of this rank: its name, its threads' names, then a span; "" if that is not whole. */
static void neo__trace_line(const neo_trace *trace, int64_t i, char *line) {
    const int groups = NEO__MIN(trace->recorder.groups, (int)NEO__TRACE_GROUPS);
    const int rank = trace->group.rank;
    const char *comma = i == 0 && rank == 0 ? "" : ",\n";
    char name[300], label[100] = "", begin[32], length[32];
    line[0] = 0;
    if (i <= groups + 1) {
        const int thread = (int)i - 1; /* 0: the rank's own */
        snprintf(name, sizeof name, i == 0 ? "rank %d" : "thread of rank %d", rank);
        if (thread > 0)
            snprintf(name, sizeof name, "group %d, of ranks %s", thread - 1,
                     trace->recorder.group_ranks[thread - 1]);
        snprintf(line, NEO__TRACE_LINE,
                 "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                 "\"args\":{\"name\":\"%s\"}}",
                 comma, rank, i == 0 ? 0 : thread, i == 0 ? "process_name" : "thread_name", name);
        return;
    }
    const neo__span *s = &trace->recorder.span[i - groups - 2];
    const int64_t end = __atomic_load_n(&s->end_ns, __ATOMIC_ACQUIRE);
    if (!end) return;
    neo__trace_quoted(name, sizeof name, s->name);
    neo__trace_quoted(label, sizeof label, s->label);
    neo__trace_us(begin, neo__trace_time(trace, s->begin_ns));
    neo__trace_us(length, neo__trace_time(trace, end) - neo__trace_time(trace, s->begin_ns));
    snprintf(line, NEO__TRACE_LINE,
             "%s{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%s,\"dur\":%s,\"name\":\"%s\","
             "\"cat\":\"%s\",\"args\":{",
             comma, rank, s->thread, begin, length, name, neo__span_kinds[s->kind]);
    if (s->kind == NEO__SPAN_SENDS)
        neo__append(line, NEO__TRACE_LINE,
                    "\"local_bytes\":%" PRId64 ",\"cross_bytes\":%" PRId64
                    ",\"control_bytes\":%" PRId64 ",\"buffer_bytes\":%" PRId64 ",",
                    s->sent[0], s->sent[1], s->sent[2], s->buffer_bytes);
    if (s->kind == NEO__SPAN_SENDS && label[0])
        neo__append(line, NEO__TRACE_LINE, "\"of\":\"%s\",", label);
    if (s->kind >= NEO__SPAN_WAIT)
        neo__append(line, NEO__TRACE_LINE, "\"group\":%d,\"ticket\":%" PRId64 ",", s->group,
                    s->ticket);
    if (s->number >= 0) neo__append(line, NEO__TRACE_LINE, "\"number\":%" PRId64 ",", s->number);
    char *last = line + strlen(line) - 1;
    if (*last == ',') *last = 0;
    neo__append(line, NEO__TRACE_LINE, "}}");
}
/* The next lines, from *at on, in t->block; their bytes, 0 when there are no more. */
static size_t neo__trace_text(neo_trace *trace, int64_t *at) {
    const int64_t lines = 2 + NEO__MIN(trace->recorder.groups, (int)NEO__TRACE_GROUPS) +
                          NEO__MIN(trace->recorder.next, trace->recorder.room);
    size_t used = 0;
    for (; *at < lines && used + NEO__TRACE_LINE <= NEO__TRACE_BLOCK; ++*at) {
        neo__trace_line(trace, *at, trace->block + used);
        used += strlen(trace->block + used);
    }
    return used;
}
/* The lines of all ranks, on rank 0 to out, which has failed if it is NULL. */
static neo_status neo__trace_lines(neo_trace *trace, neo__out *out) {
    const neo_group *group = &trace->group;
    for (int r = 0; r < group->size; r++) {
        int64_t at = 0, bytes = 1;
        if (group->rank != 0 && group->rank != r) continue;
        while (bytes > 0) {
            if (group->rank == r) bytes = (int64_t)neo__trace_text(trace, &at);
            if (r > 0) NEO__TRY(group->pass(group->user, r, 0, &bytes, sizeof bytes));
            if (r > 0 && bytes)
                NEO__TRY(group->pass(group->user, r, 0, trace->block, (size_t)bytes));
            if (out) neo__out_bytes(out, trace->block, (size_t)bytes);
        }
    }
    return NEO_OK;
}
/* Ends the recording, once; counts of all ranks. Collective. */
static neo_status neo__trace_end_all(neo_trace *trace) {
    if (trace->recorder.over) return NEO_OK;
    neo__trace_stop(trace);
    neo_trace_stats s = neo_trace_get_stats(trace);
    uint64_t words[3] = {(uint64_t)s.spans, (uint64_t)s.dropped, (uint64_t)s.sent_bytes};
    NEO__TRY(neo__trace_compare(trace, 1));
    if (trace->group.size > 1) NEO__TRY(trace->group.sum(trace->group.user, words, 3));
    s.spans = (int64_t)words[0], s.dropped = (int64_t)words[1], s.sent_bytes = (int64_t)words[2];
    trace->all = s;
    trace->counted = 1;
    return NEO_OK;
}
NEO_API neo_status neo_trace_write(neo_trace *trace, const char *path) {
    NEO__CHECK_LIVE(trace, "neo_trace_write", "trace");
    const int writes = trace->group.rank == 0;
    char beside[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    neo_status status = NEO_OK, passed;
    NEO__TRY(neo__trace_end_all(trace));
    if (writes && !path) status = neo_fail(NEO_ERR_ARG, "neo_trace_write: path is NULL");
    if (writes && path) status = neo__beside_open(path, "neo_trace_write", beside, &file);
    const int open = writes && status == NEO_OK;
    if (open) neo__out_begin(&out, &file);
    if (open) neo__out_text(&out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    neo__kept_error error = neo__error_keep(status);
    passed = neo__trace_lines(trace, open ? &out : NULL);
    if (open) {
        neo__out_format(&out, "],\n\"otherData\":{\"ranks\":%d,\"spans\":%" PRId64,
                        trace->group.size, trace->all.spans);
        neo__out_format(&out, ",\"dropped\":%" PRId64 "}}\n", trace->all.dropped);
        status = neo__beside_close(path, beside, &file, neo__out_flush(&out));
    } else {
        status = neo__error_restore(&error);
    }
    if (passed != NEO_OK || trace->group.size == 1) return passed != NEO_OK ? passed : status;
    return trace->group.agree(trace->group.user, status);
}

/* ---- protobuf, as far as messages of numbers, strings and messages need it ---- */
enum { NEO__PB_BYTES = 8192 };
typedef struct neo__pb {
    size_t used; /* of a message that is too long: more than its room */
    unsigned char data[NEO__PB_BYTES];
} neo__pb;
static void neo__pb_put(neo__pb *m, const void *data, size_t bytes) {
    if (m->used + bytes <= sizeof m->data && bytes) memcpy(m->data + m->used, data, bytes);
    m->used = neo__size_add(m->used, bytes);
}
static void neo__pb_varint(neo__pb *m, uint64_t value) {
    unsigned char byte[10];
    size_t n = 0;
    for (; value > 127; value >>= 7) byte[n++] = (unsigned char)(value | 128);
    byte[n++] = (unsigned char)value;
    neo__pb_put(m, byte, n);
}
static void neo__pb_int(neo__pb *m, int field, int64_t value) {
    neo__pb_varint(m, (uint64_t)field << 3);
    neo__pb_varint(m, (uint64_t)value);
}
static void neo__pb_block(neo__pb *m, int field, const void *data, size_t bytes) {
    neo__pb_varint(m, (uint64_t)field << 3 | 2);
    neo__pb_varint(m, bytes);
    neo__pb_put(m, data, bytes);
}
static void neo__pb_text(neo__pb *m, int field, const char *text) {
    neo__pb_block(m, field, text, strlen(text));
}

/* ---- as Chakra's execution trace: a message GlobalMetadata, then Nodes, each behind its length.
   Fields and their numbers are those of its et_def.proto. ---- */
enum {
    NEO__ET_COMP = 4,
    NEO__ET_SEND = 5,
    NEO__ET_RECV = 6,
    NEO__ET_COLL = 7,
    NEO__ET_INT64 = 9, /* where an attribute has its value */
    NEO__ET_INT32 = 7,
    NEO__ET_BOOL = 27,
    NEO__ET_STRING = 29,
    NEO__ET_WAITS = 16,
    NEO__ET_GAP_NS = 1000 /* shorter times between two spans are no node */
};
/* The last nodes written, of the rank's thread and of each group; those waited for since. */
typedef struct neo__et {
    const neo_trace *trace;
    neo__out *out;
    int64_t last, cursor_ns; /* -1: none; where it ends */
    int64_t of_group[NEO__TRACE_GROUPS];
    int64_t waited[NEO__ET_WAITS];
    int waits;
} neo__et;
static int64_t neo__et_id(int64_t span) { return 2 * span + 1; } /* of the time before it: 2 span */
static void neo__et_attr(neo__pb *node, const char *name, int field, int64_t value,
                         const char *text) {
    neo__pb attr;
    attr.used = 0;
    neo__pb_text(&attr, 1, name);
    if (text) neo__pb_text(&attr, field, text);
    else neo__pb_int(&attr, field, value);
    neo__pb_block(node, 10, attr.data, attr.used);
}
static void neo__et_message(neo__et *et, const neo__pb *message) {
    neo__pb length;
    length.used = 0;
    neo__pb_varint(&length, message->used);
    neo__out_bytes(et->out, length.data, length.used);
    neo__out_bytes(et->out, message->data, message->used);
}
/* after: it depends on these, but -1. */
static void neo__et_node(neo__et *et, int64_t id, const char *name, int type, int64_t begin_ns,
                         int64_t end_ns, const int64_t *after, int count, const neo__span *sends) {
    static const int8_t types[] = {0, 7, 2, 6, 5, 3, 4, 0, 9}; /* by neo_comm_op */
    const neo_trace *trace = et->trace;
    const int64_t begin = neo__trace_time(trace, begin_ns), end = neo__trace_time(trace, end_ns);
    const int64_t us = (NEO__MAX(end, begin) + 500) / 1000 - (NEO__MAX(begin, 0) + 500) / 1000;
    neo__pb node, deps;
    node.used = deps.used = 0;
    neo__pb_int(&node, 1, id);
    neo__pb_text(&node, 2, name);
    neo__pb_int(&node, 3, type);
    for (int i = 0; i < count; i++)
        if (after[i] >= 0) neo__pb_varint(&deps, (uint64_t)after[i]);
    if (deps.used) neo__pb_block(&node, 5, deps.data, deps.used);
    neo__pb_int(&node, 6, (NEO__MAX(begin, 0) + 500) / 1000);
    neo__pb_int(&node, 7, us);
    neo__et_attr(&node, "is_cpu_op", NEO__ET_BOOL, 0, NULL);
    if (sends) {
        const int rank = trace->group.rank, receives = type == NEO__ET_RECV;
        if (type == NEO__ET_COLL)
            neo__et_attr(&node, "comm_type", NEO__ET_INT64, types[sends->op], NULL);
        neo__et_attr(&node, "comm_size", NEO__ET_INT64, sends->buffer_bytes, NULL);
        neo__et_attr(&node, "pg_name", NEO__ET_STRING, 0,
                     trace->recorder.group_ranks[sends->group]);
        if (type != NEO__ET_COLL) {
            neo__et_attr(&node, "comm_src", NEO__ET_INT32, receives ? sends->peer : rank, NULL);
            neo__et_attr(&node, "comm_dst", NEO__ET_INT32, receives ? rank : sends->peer, NULL);
            neo__et_attr(&node, "comm_tag", NEO__ET_INT32, sends->number, NULL);
        }
    }
    neo__et_message(et, &node);
}
/* The nearest span before span i that fits: of the rank's thread, over at ns; or, with a ticket, of
   a group. -1: there is none. */
static int64_t neo__et_before(const neo_trace *trace, int64_t i, int64_t ns, int group,
                              int64_t ticket) {
    const int64_t first = NEO__MAX(i - NEO__TRACE_PAST, 0);
    for (int64_t k = i - 1; k >= first; k--) {
        const neo__span *s = &trace->recorder.span[k];
        if (!s->end_ns || !s->leaf) continue;
        if (ticket < 0 && s->thread == 0 && s->kind != NEO__SPAN_WAIT && s->end_ns <= ns)
            return neo__et_id(k);
        if (ticket >= 0 && s->kind == NEO__SPAN_SENDS && s->group == group && s->ticket == ticket)
            return neo__et_id(k);
    }
    return -1;
}
static void neo__et_span(neo__et *et, int64_t i) {
    const neo__span *s = &et->trace->recorder.span[i];
    const neo__span *sends = s->kind == NEO__SPAN_SENDS ? s : NULL;
    int type = !sends ? NEO__ET_COMP : s->peer < 0 ? NEO__ET_COLL : NEO__ET_SEND;
    if (type == NEO__ET_SEND && strcmp(s->name, "recv") == 0) type = NEO__ET_RECV;
    if (s->thread > 0) {
        int64_t after[2] = {neo__et_before(et->trace, i, s->issued_ns, 0, -1),
                            et->of_group[s->group]};
        neo__et_node(et, neo__et_id(i), s->name, type, s->begin_ns, s->end_ns, after, 2, sends);
        et->of_group[s->group] = neo__et_id(i);
        return;
    }
    int64_t after[NEO__ET_WAITS + 1];
    if (et->last >= 0 && s->begin_ns - et->cursor_ns >= NEO__ET_GAP_NS) {
        memcpy(after, et->waited, sizeof et->waited);
        after[et->waits] = et->last;
        neo__et_node(et, neo__et_id(i) - 1, "between", NEO__ET_COMP, et->cursor_ns, s->begin_ns,
                     after, et->waits + 1, NULL);
        et->last = neo__et_id(i) - 1;
        et->waits = 0;
    }
    et->cursor_ns = s->end_ns;
    if (s->kind == NEO__SPAN_WAIT) {
        const int64_t awaited = neo__et_before(et->trace, i, 0, s->group, s->ticket);
        if (et->waits < NEO__ET_WAITS && awaited >= 0) et->waited[et->waits++] = awaited;
        return;
    }
    memcpy(after, et->waited, sizeof et->waited);
    after[et->waits] = et->last;
    neo__et_node(et, neo__et_id(i), s->name, type, s->begin_ns, s->end_ns, after, et->waits + 1,
                 sends);
    et->last = neo__et_id(i);
    et->waits = 0;
}
static neo_status neo__et_write(const neo_trace *trace, const char *prefix) {
    char path[NEO__PATH_BYTES], beside[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    neo__pb metadata;
    NEO__CHECK(prefix, NEO_ERR_ARG, "neo_trace_write_chakra: prefix is NULL");
    const int length = snprintf(path, sizeof path, "%s.%d.et", prefix, trace->group.rank);
    NEO__CHECK(length > 0 && length < (int)sizeof path, NEO_ERR_ARG,
               "neo_trace_write_chakra: the prefix is too long");
    NEO__TRY(neo__beside_open(path, "neo_trace_write_chakra", beside, &file));
    neo__out_begin(&out, &file);
    NEO__ZERO(neo__et, et);
    et.trace = trace;
    et.out = &out;
    et.last = -1;
    for (int g = 0; g < NEO__TRACE_GROUPS; g++) et.of_group[g] = -1;
    metadata.used = 0;
    neo__pb_text(&metadata, 1, "1.0.0");
    neo__et_message(&et, &metadata);
    const int64_t count = NEO__MIN(trace->recorder.next, trace->recorder.room);
    for (int64_t i = 0; i < count; i++) {
        const neo__span *s = &trace->recorder.span[i];
        if (__atomic_load_n(&s->end_ns, __ATOMIC_ACQUIRE) && s->leaf) neo__et_span(&et, i);
    }
    return neo__beside_close(path, beside, &file, neo__out_flush(&out));
}
NEO_API neo_status neo_trace_write_chakra(neo_trace *trace, const char *prefix) {
    NEO__CHECK_LIVE(trace, "neo_trace_write_chakra", "trace");
    NEO__TRY(neo__trace_end_all(trace));
    neo_status status = neo__et_write(trace, prefix);
    return trace->group.size == 1 ? status : trace->group.agree(trace->group.user, status);
}
/* ---------------------------------------------------------------------------
   >>impl-events

   TensorBoard's files: records of TensorFlow (length, its checksum, data, its checksum; checksums
   are CRC32C, turned and shifted) that hold an Event in protobuf. Fields and their numbers are
   those of event.proto and summary.proto. A record goes to the system in one write.
   ------------------------------------------------------------------------ */
struct neo_events {
    neo_ctx *ctx;
    neo__live live;
    neo__file file;
    char path[NEO__PATH_BYTES]; /* of the file, for its messages */
    double began; /* seconds since 1970 */
    int64_t began_ns;
    neo__pb value, summary, event; /* of the record being made */
};
/* The bytes of a number in the order of little-endian machines. */
static void neo__pb_fixed(neo__pb *m, uint64_t bits, int bytes) {
    unsigned char byte[8];
    for (int i = 0; i < bytes; i++) byte[i] = (unsigned char)(bits >> 8 * i);
    neo__pb_put(m, byte, (size_t)bytes);
}
static void neo__pb_double(neo__pb *m, int field, double x) {
    neo__pb_varint(m, (uint64_t)field << 3 | 1);
    neo__pb_fixed(m, neo__bits_f64(x), 8);
}
static uint32_t neo__events_mask(const void *data, size_t bytes) {
    const uint32_t crc = neo_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}
static neo__pb *neo__events_begin(neo_events *events, int64_t step) {
    neo__pb *event = &events->event;
    event->used = 0;
    neo__pb_double(event, 1, events->began + 1e-9 * (double)(neo_time_ns() - events->began_ns));
    if (step) neo__pb_int(event, 2, step);
    return event;
}
/* The event as a record; built in the room of `summary`. */
static neo_status neo__events_end(neo_events *events) {
    const neo__pb *event = &events->event;
    neo__pb *record = &events->summary;
    record->used = 0;
    neo__pb_fixed(record, event->used, 8);
    neo__pb_fixed(record, neo__events_mask(record->data, 8), 4);
    NEO__CHECK(event->used + record->used + 4 <= NEO__PB_BYTES, NEO_ERR_CAPACITY,
               "neo_events: a record of %zu bytes was not written", event->used);
    neo__pb_put(record, event->data, event->used);
    neo__pb_fixed(record, neo__events_mask(event->data, event->used), 4);
    return neo__file_write(&events->file, record->data, record->used);
}
/* The value that was made, in a summary, in an event. */
static neo_status neo__events_value(neo_events *events, int64_t step) {
    events->summary.used = 0;
    neo__pb_block(&events->summary, 1, events->value.data, events->value.used);
    neo__pb_block(neo__events_begin(events, step), 5, events->summary.data, events->summary.used);
    return neo__events_end(events);
}
NEO_API neo_status neo_events_open(neo_ctx *ctx, const char *dir, neo_events **out) {
    NEO__CHECK(dir && out, NEO_ERR_ARG, "neo_events_open: dir or events is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_events_open", ctx));
    neo_events *events = (neo_events *)neo__alloc_for(ctx, sizeof *events, "neo_events_open");
    if (!events) return NEO_ERR_MEMORY;
    memset(events, 0, sizeof *events);
    events->ctx = ctx;
    events->began = (double)time(NULL);
    events->began_ns = neo_time_ns();
    neo_status status = NEO_OK;
    const int length =
        snprintf(events->path, sizeof events->path, "%s/events.out.tfevents.%010.0f.neo.%09d", dir,
                 events->began, (int)(events->began_ns % 1000000000)); /* a name of its own */
    if (length <= 0 || length >= (int)sizeof events->path)
        status = neo_fail(NEO_ERR_ARG, "neo_events_open: the path is too long");
    if (status == NEO_OK) status = neo__file_open(&events->file, events->path, NEO__FILE_CREATE);
    if (status == NEO_OK) {
        neo__live_begin(ctx, &events->live, "events", dir);
        neo__pb_text(neo__events_begin(events, 0), 3, "brain.Event:2");
        *out = events;
        status = neo__events_end(events);
        if (status == NEO_OK) return NEO_OK;
        *out = NULL;
        neo_events_close(events);
        return status;
    }
    neo_free(ctx, events, sizeof *events);
    return status;
}
NEO_API void neo_events_close(neo_events *events) {
    if (!events) return;
    neo__live_end(events->ctx, &events->live);
    (void)neo__file_close(&events->file); /* every record was reported when it was written */
    neo_free(events->ctx, events, sizeof *events);
}
NEO_API neo_status neo_events_scalar(neo_events *events, const char *tag, int64_t step, double x) {
    NEO__CHECK_LIVE(events, "neo_events_scalar", "events");
    NEO__CHECK(tag, NEO_ERR_ARG, "neo_events_scalar: tag is NULL");
    neo__pb *value = &events->value;
    value->used = 0;
    neo__pb_text(value, 1, tag);
    neo__pb_varint(value, 2 << 3 | 5);
    neo__pb_fixed(value, neo__bits_f32((float)x), 4);
    return neo__events_value(events, step);
}

/* ---- histograms: buckets by exponent and first bit of the mantissa ---- */
enum { NEO__HISTOGRAM_LEAST = (127 - 28) << 1 }; /* the first bucket of a side, as bits >> 22 */
NEO_API void neo_histogram_add(neo_histogram *counts, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t bits = neo__bits_f32(x[i]), size = bits & 0x7FFFFFFFu;
        int at = (int)(size >> 22) - NEO__HISTOGRAM_LEAST;
        if (size >= (uint32_t)NEO__F32_INFINITY) {
            counts->non_finite++;
            continue;
        }
        at = NEO__MIN(NEO__MAX(at, -1), (int)NEO_HISTOGRAM_SIDE - 1) + 1;
        counts->bucket[NEO_HISTOGRAM_SIDE + (bits == size ? at : -at)]++;
        neo_exact_add(&counts->sum, x[i]);
        neo_exact_add(&counts->squares, x[i] * x[i]);
    }
}
NEO_API double neo_histogram_limit(int bucket) {
    const int k = bucket - NEO_HISTOGRAM_SIDE, side = k < 0 ? -k - 1 : k;
    const uint32_t bits = (uint32_t)(side + NEO__HISTOGRAM_LEAST) << 22;
    return k < 0 ? -(double)neo__f32_bits(bits) : (double)neo__f32_bits(bits);
}
NEO_API neo_status neo_optim_histograms(neo_optim *optim, neo_histogram *weights,
                                        neo_histogram *grads) {
    const char *fn = "neo_optim_histograms";
    const int words = (int)(sizeof(neo_histogram) / sizeof(uint64_t));
    NEO__CHECK_LIVE(optim, fn, "optim");
    NEO__CHECK(weights && grads, NEO_ERR_ARG, "%s: weights or grads is NULL", fn);
    NEO__CHECK(!optim->ctx->device, NEO_ERR_UNSUPPORTED, "%s: the parameters are on a device", fn);
    NEO__TRY(neo__optim_bind(optim, fn));
    NEO__TRY(neo__optim_unmoved(optim->params, fn));
    for (int i = 0; i < 2 * optim->param_count; i++) {
        neo_histogram *h = i % 2 ? &grads[i / 2] : &weights[i / 2];
        const neo__optim_span *span = &optim->spans[i / 2];
        memset(h, 0, sizeof *h);
        if (!span->elsewhere) neo_histogram_add(h, i % 2 ? span->grad : span->w, span->count);
        neo_exact_normalize(&h->sum);
        neo_exact_normalize(&h->squares);
        if (optim->group.size == 1) continue;
        NEO__TRY(optim->group.sum(optim->group.user, (uint64_t *)(void *)h, words));
        neo_exact_normalize(&h->sum);
        neo_exact_normalize(&h->squares);
    }
    return NEO_OK;
}
NEO_API neo_status neo_events_histogram(neo_events *events, const char *tag, int64_t step,
                                        const neo_histogram *counts) {
    NEO__CHECK_LIVE(events, "neo_events_histogram", "events");
    NEO__CHECK(tag && counts, NEO_ERR_ARG, "neo_events_histogram: an argument is NULL");
    neo__pb *value = &events->value, *histogram = &events->event, *list = &events->summary;
    int first = NEO_HISTOGRAM_BUCKETS, last = NEO_HISTOGRAM_SIDE;
    int64_t count = 0;
    for (int i = 0; i < NEO_HISTOGRAM_BUCKETS; i++) {
        count += counts->bucket[i];
        if (counts->bucket[i]) first = NEO__MIN(first, i), last = i;
    }
    first = NEO__MIN(first, last);
    histogram->used = value->used = 0;
    neo__pb_double(histogram, 1, first ? neo_histogram_limit(first - 1) : -FLT_MAX);
    neo__pb_double(histogram, 2, neo_histogram_limit(last));
    neo__pb_double(histogram, 3, (double)count);
    neo__pb_double(histogram, 4, neo_exact_value(&counts->sum));
    neo__pb_double(histogram, 5, neo_exact_value(&counts->squares));
    for (int field = 6; field <= 7; field++) { /* upper limits, counts */
        list->used = 0;
        for (int i = first; i <= last; i++) {
            const double number = field == 6 ? neo_histogram_limit(i) : (double)counts->bucket[i];
            neo__pb_fixed(list, neo__bits_f64(number), 8);
        }
        neo__pb_block(histogram, field, list->data, list->used);
    }
    neo__pb_text(value, 1, tag);
    neo__pb_block(value, 5, histogram->data, histogram->used);
    return neo__events_value(events, step);
}
/* ---------------------------------------------------------------------------
   >>impl-report

   The page is plain HTML: cards of facts, charts, tables. A chart's SVG holds only grid lines and
   curves, in a 1000 x 1000 box that is stretched to the frame with strokes that do not scale; its
   labels are HTML placed in percent, so that text keeps its size from a phone to a wide screen.
   Colours are CSS variables, one set for light and one for dark. Facts, charts, curves, tables and
   rows are one kind of item, in lists in the order in which they were first named; their memory is
   an arena.
   ------------------------------------------------------------------------ */
enum { NEO__CURVE_POINTS = 2048, NEO__CURVE_COLORS = 8 };

/* A fact, a note, a chart with its curves, or a table with its rows. */
typedef struct neo__item {
    struct neo__item *next, *parts; /* parts: a chart's curves, a table's rows */
    struct neo__item *lanes; /* of a timeline, whose curves are bars: two points and a gap each */
    char *name;
    char *text[2]; /* a fact's value; a chart's titles of x and y */
    char **cells;  /* a row's */
    int cell_count;
    /* a curve's points: one of `every` of the points seen is kept */
    double *x, *y; /* [NEO__CURVE_POINTS] */
    int count;
    int64_t every, seen;
    double last_x, last_y; /* the newest point, kept or not */
} neo__item;

struct neo_report {
    neo_ctx *ctx;
    neo__live live;
    neo__arena arena;
    char *title;
    neo__item *facts, *notes, *charts, *tables;
};

/* ---- collecting ---- */
/* Set a text of an item, in the place of the old one if it fits: facts may change often. */
static neo_status neo__item_text(neo_report *r, char **text, const char *value) {
    size_t bytes = strlen(value) + 1, room = *text ? (strlen(*text) + 16) & ~(size_t)15 : 0;
    char *copy = *text;
    if (bytes > room) NEO__TRY(NEO__ARENA(&r->arena, copy, (bytes + 15) & ~(size_t)15));
    memcpy(copy, value, bytes);
    *text = copy;
    return NEO_OK;
}
/* *item: that of a list with that name, or a new one. *link points at it, or is the list's end, to
   which the caller adds it when it is complete. */
static neo_status neo__item_get(neo_report *r, neo__item **list, const char *name,
                                neo__item **item, neo__item ***link) {
    NEO__TRY(neo__check_live(r->ctx, "neo_report", "report"));
    while (*list && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    *link = list;
    *item = *list;
    if (*item) return NEO_OK;
    NEO__TRY(NEO__ARENA(&r->arena, *item, 1));
    return neo__item_text(r, &(*item)->name, name);
}

NEO_API neo_status neo_report_create(neo_ctx *ctx, const char *title, neo_report **out) {
    NEO__CHECK(title && out, NEO_ERR_ARG, "neo_report_create: title or report is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_report_create", ctx));
    neo_report *report = (neo_report *)neo__alloc_for(ctx, sizeof *report, "neo_report_create");
    if (!report) return NEO_ERR_MEMORY;
    memset(report, 0, sizeof *report);
    report->ctx = report->arena.ctx = ctx;
    report->arena.function = "neo_report";
    neo_status status = neo__item_text(report, &report->title, title);
    neo__live_begin(ctx, &report->live, "report", title);
    if (status != NEO_OK) neo_report_destroy(report);
    else *out = report;
    return status;
}
NEO_API void neo_report_destroy(neo_report *r) {
    if (!r) return;
    neo__live_end(r->ctx, &r->live);
    neo__arena_free(&r->arena);
    neo_free(r->ctx, r, sizeof *r);
}
NEO_API neo_status neo_report_fact(neo_report *r, const char *name, const char *value) {
    NEO__CHECK(r && name && value, NEO_ERR_ARG, "neo_report_fact: report, name or value is NULL");
    neo__item *fact, **link;
    NEO__TRY(neo__item_get(r, &r->facts, name, &fact, &link));
    NEO__TRY(neo__item_text(r, &fact->text[0], value));
    *link = fact;
    return NEO_OK;
}
NEO_API neo_status neo_report_note(neo_report *r, const char *text) {
    NEO__CHECK(r && text, NEO_ERR_ARG, "neo_report_note: report or text is NULL");
    neo__item *note, **link;
    NEO__TRY(neo__item_get(r, &r->notes, text, &note, &link));
    *link = note;
    return NEO_OK;
}
/* One of `every` points is kept; when there is no room, every other one of those goes. */
static void neo__curve_add(neo__item *curve, double x, double y) {
    curve->last_x = x;
    curve->last_y = y;
    if (curve->seen++ % curve->every != 0) return;
    if (curve->count == NEO__CURVE_POINTS) {
        curve->count /= 2;
        curve->every *= 2;
        for (int i = 0; i < curve->count; i++) {
            curve->x[i] = curve->x[2 * i];
            curve->y[i] = curve->y[2 * i];
        }
        if ((curve->seen - 1) % curve->every != 0) return;
    }
    curve->x[curve->count] = x;
    curve->y[curve->count++] = y;
}
/* A curve of a chart, and with lane_name a lane, which is at *y; what is new is added. */
static neo_status neo__chart_curve(neo_report *report, const char *chart_name,
                                   const char *curve_name, const char *lane_name,
                                   neo__item **curve, double *y) {
    neo__item *chart, *lane, **chart_link, **curve_link, **lane_link = NULL;
    NEO__TRY(neo__item_get(report, &report->charts, chart_name, &chart, &chart_link));
    NEO__TRY(neo__item_get(report, &chart->parts, curve_name, curve, &curve_link));
    if (!*curve_link) {
        NEO__TRY(NEO__ARENA(&report->arena, (*curve)->x, NEO__CURVE_POINTS));
        NEO__TRY(NEO__ARENA(&report->arena, (*curve)->y, NEO__CURVE_POINTS));
        (*curve)->every = 1;
    }
    if (lane_name) {
        NEO__TRY(neo__item_get(report, &chart->lanes, lane_name, &lane, &lane_link));
        *lane_link = lane;
        *y = 0.0;
        for (const neo__item *l = chart->lanes; l != lane; l = l->next) *y -= 1.0;
    }
    *chart_link = chart;
    *curve_link = *curve;
    return NEO_OK;
}
NEO_API neo_status neo_report_point(neo_report *report, const char *chart, const char *curve,
                                    double x, double y) {
    neo__item *to;
    NEO__CHECK(report && chart && curve, NEO_ERR_ARG,
               "neo_report_point: report, chart or curve is NULL");
    NEO__TRY(neo__chart_curve(report, chart, curve, NULL, &to, NULL));
    neo__curve_add(to, x, y);
    return NEO_OK;
}
NEO_API neo_status neo_report_bar(neo_report *report, const char *chart, const char *kind,
                                  const char *lane, double begin, double end) {
    neo__item *to;
    double y;
    NEO__CHECK(report && chart && kind && lane, NEO_ERR_ARG,
               "neo_report_bar: report, chart, kind or lane is NULL");
    NEO__TRY(neo__chart_curve(report, chart, kind, lane, &to, &y));
    NEO__CHECK(to->count <= NEO__CURVE_POINTS - 3, NEO_ERR_CAPACITY,
               "neo_report_bar: chart '%s' has %d bars of kind '%s'", chart, to->count / 3, kind);
    neo__curve_add(to, begin, y);
    neo__curve_add(to, end, y);
    neo__curve_add(to, 1e301, y); /* a gap */
    return NEO_OK;
}
NEO_API neo_status neo_report_axis(neo_report *r, const char *chart_name, const char *x_title,
                                   const char *y_title) {
    NEO__CHECK(r && chart_name, NEO_ERR_ARG, "neo_report_axis: report or chart is NULL");
    neo__item *chart, **link;
    NEO__TRY(neo__item_get(r, &r->charts, chart_name, &chart, &link));
    NEO__TRY(neo__item_text(r, &chart->text[0], x_title ? x_title : ""));
    NEO__TRY(neo__item_text(r, &chart->text[1], y_title ? y_title : ""));
    *link = chart;
    return NEO_OK;
}
NEO_API neo_status neo_report_row(neo_report *report, const char *table_name,
                                  const char *const *cells, int count) {
    NEO__CHECK(report && table_name && (cells || count == 0) && count >= 0, NEO_ERR_ARG,
               "neo_report_row: report, table or cells is NULL, or count < 0");
    neo__item *table, *row, **link, **last;
    NEO__TRY(neo__item_get(report, &report->tables, table_name, &table, &link));
    NEO__TRY(NEO__ARENA(&report->arena, row, 1));
    NEO__TRY(NEO__ARENA(&report->arena, row->cells, count));
    for (int i = 0; i < count; i++)
        NEO__TRY(neo__item_text(report, &row->cells[i], cells[i] ? cells[i] : ""));
    row->cell_count = count;
    for (last = &table->parts; *last;) last = &(*last)->next;
    *link = table;
    *last = row;
    return NEO_OK;
}

/* ---- writing: text and numbers ---- */
/* Text between tags or in a quoted attribute. Control characters become spaces, what is not UTF-8
   U+FFFD. */
static void neo__html_text(neo__out *out, const char *s) {
    const char *end = s + strlen(s);
    while (s < end) {
        size_t count = (size_t)neo__utf8_length(s, (size_t)(end - s));
        switch (*s) {
        case '&': neo__out_text(out, "&amp;"); break;
        case '<': neo__out_text(out, "&lt;"); break;
        case '>': neo__out_text(out, "&gt;"); break;
        case '"': neo__out_text(out, "&quot;"); break;
        case '\'': neo__out_text(out, "&#39;"); break;
        default:
            if (count == 0) neo__out_text(out, "\xEF\xBF\xBD");
            else if ((unsigned char)*s < 0x20 || *s == 0x7F) neo__out_text(out, " ");
            else neo__out_bytes(out, s, count);
        }
        s += count ? count : 1;
    }
}
static void neo__html_element(neo__out *out, const char *open, const char *text,
                              const char *close) {
    neo__out_text(out, open);
    neo__html_text(out, text ? text : "");
    neo__out_text(out, close);
}

/* An axis: [low, high] and round ticks first, first + step, ... */
typedef struct neo__axis {
    double low, high, first, step, unit; /* labels show value/unit */
    const char *suffix;
    int ticks, digits;
} neo__axis;

static void neo__axis_labels(neo__axis *axis) {
    static const struct {
        double unit;
        const char *suffix;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double most = NEO__MAX(fabs(axis->low), fabs(axis->high));
    axis->unit = 1.0;
    axis->suffix = "";
    for (int i = 0; i < 4; i++) {
        if (most < units[i].unit * (i == 3 ? 10.0 : 1.0)) continue;
        axis->unit = units[i].unit;
        axis->suffix = units[i].suffix;
        break;
    }
    axis->digits = 0;
    for (double s = axis->step / axis->unit; s < 0.999999 && axis->digits < 12; s *= 10.0)
        axis->digits++;
}
/* About `wanted` steps of 1, 2 or 5 times a power of ten. widen: move both ends out to ticks. */
static void neo__axis_make(neo__axis *axis, double low, double high, int wanted, int widen) {
    double least = NEO__MAX(fabs(low), fabs(high)) * 1e-9;
    if (!(high - low > least)) { /* one value: give it room */
        double room = fabs(low) > 1e-300 ? fabs(low) : 1.0;
        low -= room;
        high += room;
    }
    if (!widen && low > 0.0 && low < 0.1 * high) low = 0.0;
    double raw = (high - low) / wanted, power = pow(10.0, floor(log10(raw)));
    double lead = raw / power;
    axis->step = power * (lead < 1.42 ? 1.0 : lead < 3.17 ? 2.0 : lead < 7.08 ? 5.0 : 10.0);
    axis->low = low;
    axis->high = high;
    axis->first = ceil(low / axis->step - 1e-9) * axis->step;
    if (widen) {
        axis->low = axis->first = floor(low / axis->step + 1e-9) * axis->step;
        axis->high = ceil(high / axis->step - 1e-9) * axis->step;
    }
    axis->ticks = (int)((axis->high - axis->first) / axis->step + 1.000001);
    axis->ticks = NEO__MIN(NEO__MAX(axis->ticks, 1), 20);
    neo__axis_labels(axis);
}
static double neo__axis_tick(const neo__axis *a, int i) { return a->first + a->step * i; }
/* Room for 64 bytes. */
static void neo__axis_label(const neo__axis *a, int i, char *out) {
    double v = neo__axis_tick(a, i) / a->unit;
    if (fabs(v) < a->step / a->unit * 1e-6) v = 0.0;
    double most = NEO__MAX(fabs(a->low), fabs(a->high)) / a->unit;
    if (v == 0.0) snprintf(out, 64, "0");
    else if (a->digits > 6 || most >= 1e6) snprintf(out, 64, "%.4g", v * a->unit);
    else snprintf(out, 64, "%.*f%s", a->digits, v, a->suffix);
    neo__point(out);
}
/* About four significant digits. Room for 64 bytes. */
static void neo__value_text(double v, char *out) {
    double a = fabs(v);
    if (a >= 1e5 && a < 1e15) {
        neo__human(a, out + (v < 0.0));
        if (v < 0.0) out[0] = '-';
    } else if (a < 1e5 && v == floor(v)) {
        snprintf(out, 64, "%.0f", v);
    } else {
        snprintf(out, 64, a >= 1e15 || a < 1e-4 ? "%.3g" : a < 1e3 ? "%#.4g" : "%.1f", v);
        neo__point(out);
    }
}

/* ---- writing: charts ---- */
NEO__INLINE int neo__drawable(double x, double y) { return fabs(x) < 1e300 && fabs(y) < 1e300; }
/* Points of a curve: those kept, then the newest. */
static int neo__curve_points(const neo__item *c) {
    return c->count + (c->count > 0 && (c->seen - 1) % c->every != 0);
}
static void neo__curve_point(const neo__item *c, int i, double *x, double *y) {
    *x = i < c->count ? c->x[i] : c->last_x;
    *y = i < c->count ? c->y[i] : c->last_y;
}
/* A coordinate, with text around it: format has one %.1f or the like, and no comma. */
static void neo__out_place(neo__out *out, const char *format, double place) {
    char text[64];
    snprintf(text, sizeof text, format, place);
    neo__point(text);
    neo__out_text(out, text);
}
/* The place of a value on an axis, in `scale`ths from its low end. */
static double neo__axis_place(const neo__axis *a, double v, double scale) {
    return (v - a->low) / (a->high - a->low) * scale;
}
/* Axes around all points; 0 when there is nothing to draw. */
static int neo__chart_axes(const neo__item *chart, neo__axis *ax, neo__axis *ay) {
    double box[4] = {1e301, -1e301, 1e301, -1e301};
    for (const neo__item *curve = chart->parts; curve; curve = curve->next)
        for (int i = 0; i < neo__curve_points(curve); i++) {
            double x, y;
            neo__curve_point(curve, i, &x, &y);
            if (!neo__drawable(x, y)) continue;
            box[0] = NEO__MIN(box[0], x);
            box[1] = NEO__MAX(box[1], x);
            box[2] = NEO__MIN(box[2], y);
            box[3] = NEO__MAX(box[3], y);
        }
    if (box[0] > box[1]) return 0;
    neo__axis_make(ax, box[0], box[1], 5, 0);
    neo__axis_make(ay, box[2], box[3], 4, 1);
    if (!chart->lanes) return 1;
    ay->ticks = 0;
    for (const neo__item *lane = chart->lanes; lane; lane = lane->next) ay->ticks++;
    ay->high = 0.5, ay->low = 0.5 - ay->ticks;
    ay->first = 1.0 - ay->ticks, ay->step = 1.0;
    return 1;
}
static void neo__chart_legend(neo__out *out, const neo__item *chart) {
    int color = 0;
    neo__out_text(out, "<ul>");
    for (const neo__item *curve = chart->parts; curve; curve = curve->next, color++) {
        char last[64];
        neo__value_text(curve->last_y, last);
        neo__out_format(out, "<li><i class=\"c%d%s\"></i>", color % NEO__CURVE_COLORS,
                        color >= NEO__CURVE_COLORS ? " dash" : "");
        neo__html_text(out, curve->name);
        if (chart->lanes) neo__out_text(out, "</li>");
        else neo__html_element(out, " <b>", last, "</b></li>");
    }
    neo__out_text(out, "</ul>");
}
/* One path; a point that is not finite leaves a gap, one between two gaps is a dot. */
static void neo__curve_path(neo__out *out, const neo__item *curve, const neo__axis *ax,
                            const neo__axis *ay, int color, const char *kind) {
    char move = 'M';
    neo__out_format(out, "<path class=\"line c%d%s%s\" d=\"", color % NEO__CURVE_COLORS, kind,
                    color >= NEO__CURVE_COLORS ? " dash" : "");
    for (int i = 0; i < neo__curve_points(curve); i++) {
        double x, y;
        neo__curve_point(curve, i, &x, &y);
        int drawn = neo__drawable(x, y);
        if (drawn) {
            neo__out_bytes(out, &move, 1);
            neo__out_place(out, "%.1f", neo__axis_place(ax, x, 1000.0));
            neo__out_place(out, " %.1f", 1000.0 - neo__axis_place(ay, y, 1000.0));
            if (curve->seen == 1) neo__out_text(out, "h0");
        }
        move = drawn ? 'L' : 'M';
    }
    neo__out_text(out, "\" />");
}
/* The label of tick i on the axis upwards; room: 64 bytes. */
static const char *neo__chart_label(const neo__item *chart, const neo__axis *ay, int i,
                                    char *room) {
    const neo__item *lane = chart->lanes;
    if (!lane) neo__axis_label(ay, i, room);
    for (int k = ay->ticks - 1; lane && k > i; k--) lane = lane->next;
    return lane ? lane->name : room;
}
static void neo__chart_frame(neo__out *out, const neo__item *chart, const neo__axis *ax,
                             const neo__axis *ay) {
    char label[64];
    int widest = 1;
    for (int i = 0; i < ay->ticks; i++)
        widest = NEO__MAX(widest, (int)strlen(neo__chart_label(chart, ay, i, label)));
    neo__out_format(out, "<div class=\"plot\" style=\"--n:%d\"><div class=\"frame\"", widest);
    if (chart->lanes) neo__out_format(out, " style=\"height:%dpx\"", 32 * ay->ticks);
    neo__out_text(out, ">\n");
    neo__html_element(
        out,
        "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
        chart->name, "\"><path class=\"grid\" d=\"");
    for (int i = 0; i < ay->ticks; i++)
        neo__out_place(out, "M0 %.1fH1000",
                       1000.0 - neo__axis_place(ay, neo__axis_tick(ay, i), 1000.0));
    neo__out_text(out, "\" /><path class=\"base\" d=\"M0 1000H1000\" />\n");
    int color = 0;
    for (const neo__item *curve = chart->parts; curve; curve = curve->next, color++)
        neo__curve_path(out, curve, ax, ay, color,
                        chart->lanes ? " bar" : curve->seen == 1 ? " dot" : "");
    neo__out_text(out, "</svg>\n");
    for (int i = 0; i < ay->ticks; i++) {
        neo__out_place(out, "<span class=\"y\" style=\"top:%.2f%%\">",
                       100.0 - neo__axis_place(ay, neo__axis_tick(ay, i), 100.0));
        neo__html_element(out, "", neo__chart_label(chart, ay, i, label), "</span>");
    }
    for (int i = 0; i < ax->ticks; i++) {
        neo__axis_label(ax, i, label);
        neo__out_place(out, "<span class=\"x\" style=\"left:%.2f%%\">",
                       neo__axis_place(ax, neo__axis_tick(ax, i), 100.0));
        neo__out_format(out, "%s</span>", label);
    }
    neo__out_text(out, "</div></div>\n");
}
static void neo__figure_write(neo__out *out, const neo__item *chart) {
    neo__axis ax, ay;
    if (!chart->parts) return;
    neo__html_element(out, "<figure><figcaption><h2>", chart->name, "</h2>");
    neo__chart_legend(out, chart);
    neo__out_text(out, "</figcaption>\n");
    if (neo__chart_axes(chart, &ax, &ay)) {
        neo__html_element(out, "<p class=\"yt\">", chart->text[1], "</p>\n");
        neo__chart_frame(out, chart, &ax, &ay);
        neo__html_element(out, "<p class=\"xt\">", chart->text[0], "</p>\n");
    } else {
        neo__out_text(out, "<p class=\"yt\">no finite points</p>\n");
    }
    neo__out_text(out, "</figure>\n");
}
static void neo__chart_write(neo__out *out, const neo__item *chart) {
    if (!chart->lanes) neo__figure_write(out, chart);
}

/* ---- writing: tables ---- */
/* 1: all cells of a column below the header begin like numbers: they are set to the right. */
static int neo__column_is_number(const neo__item *table, int column) {
    int numbers = 0;
    for (const neo__item *row = table->parts->next; row; row = row->next) {
        if (column >= row->cell_count || !row->cells[column][0]) continue;
        if (!strchr("+-.0123456789", row->cells[column][0])) return 0;
        numbers++;
    }
    return numbers > 0;
}
static void neo__table_write(neo__out *out, const neo__item *table) {
    const neo__item *head = table->parts;
    if (!head) return;
    neo__html_element(out,
                      head->cell_count <= 3 ? "<section class=\"table slim\"><h2>"
                                            : "<section class=\"table\"><h2>",
                      table->name, "</h2><div><table>\n");
    for (const neo__item *row = head; row; row = row->next) {
        const char *tag = row == head ? "th" : "td";
        neo__out_text(out, row == head ? "<thead><tr>" : "<tr>");
        for (int i = 0; i < row->cell_count; i++) {
            neo__out_format(out, "<%s%s>", tag,
                            neo__column_is_number(table, i) ? " class=\"n\"" : "");
            neo__html_text(out, row->cells[i]);
            neo__out_format(out, "</%s>", tag);
        }
        neo__out_text(out, row == head ? "</tr></thead><tbody>\n" : "</tr>\n");
    }
    neo__out_text(out, "</tbody></table></div></section>\n");
}

/* ---- writing: the page ---- */
static const char *const neo__report_css[] = {
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#15181e;--soft:#626b7a;",
    "--rule:#e3e6eb;--accent:#2f5fe0;--c0:#2f6bed;--c1:#e8702a;--c2:#119c7c;--c3:#9557e6;",
    "--c4:#d63a74;--c5:#9a7b0e;--c6:#0d93c4;--c7:#6b7688}\n",
    "@media(prefers-color-scheme:dark){:root{--bg:#0d1014;--card:#161a21;--ink:#e9ecf1;",
    "--soft:#949eae;--rule:#272d37;--accent:#86a8ff;--c0:#6f9dff;--c1:#ff9a56;--c2:#43cfa9;",
    "--c3:#bb92ff;--c4:#ff7fa8;--c5:#dcbc4a;--c6:#56c3ee;--c7:#9aa5b5}}\n",
    "*{box-sizing:border-box;margin:0;padding:0}\n",
    "body{background:var(--bg);color:var(--ink);padding:clamp(20px,4vw,48px) clamp(14px,4vw,",
    "40px);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,",
    "sans-serif;-webkit-text-size-adjust:100%;overflow-wrap:anywhere}\n",
    "main{max-width:1120px;margin:0 auto;display:grid;gap:clamp(16px,2.4vw,28px)}\n",
    "header p{color:var(--soft);max-width:72ch}header .mark{color:var(--accent);",
    "font-weight:650;font-size:.8rem;letter-spacing:.09em;text-transform:uppercase}\n",
    "h1{font-size:clamp(1.55rem,4.6vw,2.3rem);line-height:1.15;letter-spacing:-.02em;",
    "font-weight:700;margin:.15em 0 .3em}h2{font-size:1rem;font-weight:650;",
    "letter-spacing:-.005em}\n",
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(150px,44%),1fr));",
    "gap:12px}\n",
    ".facts div,figure,.table{background:var(--card);border:1px solid var(--rule);",
    "border-radius:12px}\n",
    ".facts div{padding:13px 16px 11px}.facts dt{color:var(--soft);font-size:.82rem}",
    ".facts dd{font-size:clamp(1.25rem,3.6vw,1.6rem);font-weight:650;letter-spacing:-.02em;",
    "line-height:1.3;font-variant-numeric:tabular-nums}.facts .long{font-size:1rem}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));",
    "gap:16px}\n",
    ".charts figure:last-child:nth-child(odd){grid-column:1/-1}\n",
    "figure{padding:16px 18px 14px;min-width:0}figcaption{display:flex;flex-wrap:wrap;",
    "gap:4px 20px;justify-content:space-between;align-items:baseline}\n",
    "ul{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;color:var(--soft);",
    "font-size:.85rem}li b{color:var(--ink);font-weight:600;",
    "font-variant-numeric:tabular-nums}li i{display:inline-block;width:18px;",
    "border-top:3px solid;border-radius:2px;margin-right:7px;vertical-align:middle;",
    "position:relative;top:-1px}li i.dash{border-top-style:dashed}\n",
    ".yt,.xt{color:var(--soft);font-size:.76rem;min-height:1.5em}.yt{margin-top:8px}.xt{",
    "text-align:right;padding-right:6px}\n",
    ".plot{font-size:.76rem;padding:10px 10px 24px calc(var(--n)*.6em + 10px)}\n",
    ".frame{position:relative;height:clamp(190px,26vw,260px)}\n",
    "svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}\n",
    "path{fill:none;vector-effect:non-scaling-stroke}.grid{stroke:var(--rule);stroke-width:1}\n",
    ".base{stroke:var(--soft);stroke-width:1;opacity:.55}.line{stroke:currentColor;",
    "stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.line.dash{",
    "stroke-dasharray:6 5}.dot{stroke-width:7}.bar{stroke-width:20;stroke-linecap:butt}\n",
    ".frame span{position:absolute;color:var(--soft);white-space:nowrap;line-height:1;",
    "font-variant-numeric:tabular-nums}.y{right:100%;margin-right:8px;",
    "transform:translateY(-50%)}.x{top:100%;margin-top:9px;transform:translateX(-50%)}\n",
    ".tables{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),",
    "1fr));gap:16px}.table{grid-column:1/-1}.slim+.slim,.slim:has(+.slim){grid-column:auto}\n",
    ".table{padding:16px 0 6px;min-width:0}.table h2{padding:0 18px 8px}.table div{",
    "overflow-x:auto}\n",
    "table{border-collapse:collapse;width:100%;font-size:.88rem;overflow-wrap:normal}\n",
    "th,td{text-align:left;padding:7px 18px;border-top:1px solid var(--rule);",
    "white-space:nowrap}th{color:var(--soft);font-weight:550;border-top:0;font-size:.8rem}.n{",
    "text-align:right;font-variant-numeric:tabular-nums}\n",
    "footer{color:var(--soft);font-size:.78rem}\n",
    ".c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{",
    "color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}\n",
    "@media(max-width:600px){table{font-size:.78rem}th,td{padding:6px 4px;font-size:inherit}",
    "th:first-child,td:first-child{padding-left:18px}th:last-child,td:last-child{",
    "padding-right:18px}th,td:not(.n){white-space:normal}td:not(.n){overflow-wrap:anywhere}}\n",
    "@media print{body{background:#fff}figure,.table,.facts div{break-inside:avoid}}\n",
};

static void neo__report_head(neo__out *out, const neo_report *report) {
    neo__out_text(out,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" />\n");
    neo__html_element(out, "<title>", report->title, "</title>\n<style>\n");
    for (size_t i = 0; i < sizeof neo__report_css / sizeof neo__report_css[0]; i++)
        neo__out_text(out, neo__report_css[i]);
    neo__html_element(
        out, "</style>\n</head>\n<body>\n<main>\n<header><p class=\"mark\">neo report</p><h1>",
        report->title, "</h1>\n");
    for (const neo__item *f = report->notes; f; f = f->next)
        neo__html_element(out, "<p>", f->name, "</p>\n");
    neo__out_text(out, "</header>\n");
}
static void neo__fact_write(neo__out *out, const neo__item *fact) {
    neo__html_element(out, "<div><dt>", fact->name, "</dt>");
    neo__html_element(out, strlen(fact->text[0]) > 12 ? "<dd class=\"long\">" : "<dd>",
                      fact->text[0], "</dd></div>\n");
}
static void neo__items_write(neo__out *out, const char *open, const neo__item *list,
                             void (*write)(neo__out *out, const neo__item *item),
                             const char *close) {
    if (list) neo__out_text(out, open);
    for (const neo__item *item = list; item; item = item->next) write(out, item);
    if (list) neo__out_text(out, close);
}
static void neo__report_body(neo__out *out, const neo_report *report) {
    neo__report_head(out, report);
    neo__items_write(out, "<dl class=\"facts\">\n", report->facts, neo__fact_write, "</dl>\n");
    neo__items_write(out, "<div class=\"charts\">\n", report->charts, neo__chart_write, "</div>\n");
    for (const neo__item *chart = report->charts; chart; chart = chart->next)
        if (chart->lanes) neo__figure_write(out, chart);
    neo__items_write(out, "<div class=\"tables\">\n", report->tables, neo__table_write, "</div>\n");
    neo__out_format(
        out,
        "<footer>neo %s. This page is complete in itself.</footer>\n</main>\n</body>\n</html>\n",
        neo_version());
}
/* To a file beside it that is renamed over the old report when complete; devices and links are
   written directly. */
NEO_API neo_status neo_report_write(const neo_report *report, const char *path) {
    NEO__CHECK(report && path, NEO_ERR_ARG, "neo_report_write: report or path is NULL");
    char beside[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    NEO__TRY(neo__beside_open(path, "neo_report_write", beside, &file));
    neo__out_begin(&out, &file);
    neo__report_body(&out, report);
    return neo__beside_close(path, beside, &file, neo__out_flush(&out));
}
#endif
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
