/* neo_data.h: training data for neo: batches read from files, or generated.

   Copy it beside neo.h, neo_kernels.h, neo_run.h and neo_state.h. MIT licence: see neo.h.

   WHAT IT DOES
     - a schema: the dense numbers and sparse features of a sample, and the dictionaries that turn
       words into ids
     - readers of Criteo TSV, delimited text (CSV with headers and quotes; lists, with weights),
       libsvm and libffm text, .npy arrays and .npz archives (as TorchRec's) and binary records
       (MLPerf's, HugeCTR's Raw), and a generator with a known truth: parsed ahead by threads,
       shuffled, resumed at any batch
     - the same batches in the same order for any number of threads and ranks
     - bad input: an error with file, line and column, or skipped and counted

   WHAT IT DOES NOT DO
     - no compressed files: pipe them to standard input
     - no Parquet: write .npy or text

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_data.h"
         #include "neo_data.h"
     It implements neo.h and neo_state.h too. With ranks: #include "neo_fsdp.h" (or "neo_comm.h")
     beside it.
         neo_schema_criteo(ctx, NEO_IDS_HASH, 100000, NULL, &schema);
         neo_reader_open(ctx, &(neo_reader_desc){.schema = schema, .paths = paths, .path_count = 1,
                                                 .batch = 1024}, &reader);
         while ((status = neo_reader_next(reader, &batch)) == NEO_OK) ... batch.dense, .sparse
     README.md has a complete trainer.

   A NEW FILE FORMAT (example: binary)
     1. >>schema         neo_format, at its end, and a constructor, neo_schema_x
     2. >>impl-x         a new section: neo_schema_x; how a file is opened; of text, a line into a
                         record, of others, where the parts of a row are (>>impl-rows)
     3. >>impl-formats   its row; >>impl-describe: its name; --format: examples/train/dlrm/formats.h
     4. tests/data       a file of the format's own; a target in tests/fuzz

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_data.h is the map)
     >>schema >>reader
     >>impl-schema >>impl-dictionary-file >>impl-number >>impl-columns >>impl-parse >>impl-libsvm
     >>impl-index >>impl-source >>impl-reader >>impl-rows >>impl-npy >>impl-npz >>impl-binary
     >>impl-synthetic >>impl-describe >>impl-formats
*/
#ifndef NEO_DATA_H
#define NEO_DATA_H

#include "neo_state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>schema

   A schema says what one sample of a data source becomes: a label (or several, for as many tasks of
   a model), dense numbers, and for each sparse feature a bag of ids in [0, rows). Readers parse by
   it; trainers size their tables from it; it owns the dictionaries that turn words into ids, so one
   schema serves training and test files. Id 0 of a feature stands for a missing word, and in a
   dictionary for an unseen one too (with min_count that is id 1).
   ------------------------------------------------------------------------ */
typedef struct neo_schema neo_schema;

typedef enum neo_format {
    NEO_FORMAT_CRITEO,    /* label \t 13 integers \t 26 hex words; empty fields allowed */
    NEO_FORMAT_DELIMITED, /* text columns, by a column description */
    NEO_FORMAT_NPY,       /* TorchRec's day_<i>_{dense,sparse,labels}.npy */
    NEO_FORMAT_SYNTHETIC, /* generated, Criteo-like, with a known best AUC */
    NEO_FORMAT_LIBSVM,    /* label index:value index:value ... */
    NEO_FORMAT_LIBFFM,    /* label field:index:value ... */
    NEO_FORMAT_NPZ,       /* npy with MLPerf's day_<i>_sparse_multi_hot.npz */
    NEO_FORMAT_BINARY     /* records of label, dense numbers and ids, 32 bits each */
} neo_format;

typedef enum neo_ids {
    NEO_IDS_HASH,      /* 1 + hash of the word modulo (rows - 1) */
    NEO_IDS_DICTIONARY /* numbered from 1 in order of first sight by neo_schema_fit */
} neo_ids;

typedef struct neo_feature {
    const char *name; /* owned by the schema */
    int64_t rows;     /* ids are in [0, rows); 0 while its dictionary is still to be built */
    /* The words of a dictionary, as neo_schema_fit found them; else 0: */
    int64_t words;    /* with a row of their own */
    int64_t rare;     /* seen fewer than min_count times: they share row 1 */
    int64_t dropped;  /* times that one came for which rows= left no row */
} neo_feature;

/* neo_schema_criteo: 13 dense (log(x + 1), negative and empty ones 0), 26 sparse features C1 ..
   C26, one id each. A word is 1 to 8 hex digits; with NEO_IDS_HASH the id is 1 + its number modulo
   (rows - 1), as the words are hashes already. rows_per_feature: [26] table sizes, or NULL:
   max_rows for all. With NEO_IDS_DICTIONARY these are the largest sizes (words seen after that are
   unseen).
   Errors   NEO_ERR_ARG: a size below 1. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_criteo(neo_ctx *ctx, neo_ids ids, int64_t max_rows,
                                                       const int64_t *rows_per_feature,
                                                       neo_schema **schema);
/* neo_schema_criteo_columns: the same of some columns, as "I1-I5,C1,C14": dense numbers and
   features of the file in its order. Lines have 40 fields all the same, but those that are not
   named are only counted, at several times the speed of parsing, and may hold anything.
   rows_per_feature: [26] still, by the number of the word.
   Errors   NEO_ERR_ARG: another name, or one given twice. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_criteo_columns(neo_ctx *ctx, neo_ids ids,
                                                               int64_t max_rows,
                                                               const int64_t *rows_per_feature,
                                                               const char *columns,
                                                               neo_schema **schema);
/* neo_schema_parse: a column description, as text: one line per column of the file, in order (with
   `header`: of those in use, in any order),
       <name> <what>...          where what is one or more of
     label [positive=W,W]        1 if the field is one of the words; without positive=, a number
                                 in [0, 1]. If no label of the files is one of the words,
                                 neo_schema_fit fails, and a reader logs a warning (of the lines
                                 that it parses)
     label [...] [weight=W]      each of several labels is one task (its loss times W, default 1),
                                 called as its column; a sample may lack some: the field is missing
     dense [log] [shift=a] [scale=b] [missing=c]
                                 (x - a) * b; with log x is first log(x + 1), 0 for x <= 0;
                                 c when the field is missing (default 0)
     category [rows=N]           a dictionary of at most N rows (when they are used up, further
                                 words get id 0, as unseen ones do)
     category ... min_count=N    words that neo_schema_fit sees fewer than N times share one row, of
                                 id 1, and words never seen (or without a row) get that row too:
                                 rare words have trained it, where nothing trains row 0
     category hash rows=N        1 + neo_hash(word) modulo (rows - 1). Of keys (neo_keys in neo.h) N
                                 is the range, up to 999999999999999
     bucket e1,e2,...            a sparse feature: 1 + how many edges are <= x; 0 when missing
     cross <other column> rows=N 1 + a hash of both fields modulo (rows - 1)
     list sep=C ...              several words in one field: a bag, as in "tags list sep=|";
                                 further options are those of category
     list ... weight=D           a word may end in D and a number, its weight in the bag
                                 ("a:0.5|b"): the number is what follows the last D of the word. A
                                 word without D has weight 1, and so have those of other features
     list ... weight=D normalize the weights of a bag are divided by their sum: a table that pools
                                 by NEO_POOL_SUM then gives the weighted mean of its rows. A bag
                                 that neo_jagged_normalize would refuse makes a bad line
     skip                        the column is not used: its text is passed over, as is that of
                                 columns that are in the header alone
     sample-weight               of the sample in loss and metrics (neo_batch.weight): a number of
                                 at least 0; it may be missing where the label is. One column at
                                 most
   The sparse features are in the order of the lines; a feature is called as its column, with
   "_bucket" or "_x_<other>" added for bucket and cross. Before the columns may stand
     delimiter C     text between two fields (default ","); "tab" and "space" stand for those
     quote C         a field that begins with the character C (mostly ") ends at the next single C;
                     two of them stand for one, and delimiters between are text. A line that ends
                     inside is a bad line: a field is part of one line. Without this setting quotes
                     mean nothing
     missing W       a word that means "no value", as an empty field always does; may be repeated
     skip-lines N    the first N lines of every file hold no sample
     header          the next line of every file holds the names of its columns: each column of the
                     description is looked up there by its name, and others of the file are not
                     used. A name that is absent or there twice is an error; only labels may be
                     absent, from files of a reader with `unlabeled`, which then has none
     comment T       lines that begin with T hold no sample; may be repeated
   '#' and what follows it on the line is a comment of the description, at the start of a line or
   after a space. A column's name with spaces, one that begins with '#', or that is a word above,
   stands in double quotes, and so may what follows missing and comment:
       comment "#"
       "Job Title" category
   Spaces and tabs around a field are left out (unless they delimit; inside quotes they stay); blank
   lines hold no sample.
   path_or_text: text if it contains a newline, else the path of a file.
   Errors   NEO_ERR_FORMAT: the message has file:line:column. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_parse(neo_ctx *ctx, const char *path_or_text,
                                                      neo_schema **schema);
/* neo_schema_libsvm: text lines `label index:value index:value ...`, or libffm's `label
   field:index:value ...`. libsvm gives one feature, a bag of the indices with their values as
   weights; libffm one such feature for each field. No dense numbers. Labels are -1 (taken as 0),
   +1, or numbers in [0, 1]. An index is the id as it stands, or modulo the rows. A comment begins
   at #, anywhere in a line, and a line with nothing before it holds no sample; `qid:n` behind the
   label is passed over. */
typedef struct neo_libsvm_desc {
    int with_fields; /* 1: libffm */
    int32_t fields;  /* of libffm: they are numbered below this; 0: found in `paths` */
    int64_t rows;    /* of each table; 0: the largest index of `paths` + 1, where an index above
                        2^31 - 2 is a bad line's (a hash, or damage): give rows, and modulo */
    const int64_t *rows_per_field; /* [fields] or NULL */
    int modulo;                    /* 1: indices are taken modulo rows; 0: an index of rows or
                                      above makes a bad line */
    const char *const *paths;      /* read once for what is 0 above, else not */
    int32_t path_count;
    int skip_bad_lines;            /* of that pass */
} neo_libsvm_desc;
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_libsvm(neo_ctx *ctx, const neo_libsvm_desc *desc,
                                                       neo_schema **schema);
#if !defined(NEO_INFERENCE)
/* neo_schema_npy: for triples <prefix>dense.npy [N, D] (f32, f16, f64 or integers),
   <prefix>sparse.npy [N, T] (i32 or i64), <prefix>labels.npy [N] or [N, L] (numbers in [0, 1]); D,
   T and L are taken from the first triple. rows: [T], or NULL: found by reading the sparse files
   (the largest id + 1; one above 2^31 - 2, a hash or damage: NEO_ERR_RANGE). Ids are taken modulo
   rows if modulo != 0; else one outside is an error of the reader. */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_npy(neo_ctx *ctx, const char *const *prefixes,
                                                    int prefix_count, const int64_t *rows,
                                                    int modulo, neo_schema **schema);
/* neo_schema_npz: the same with <prefix>sparse_multi_hot.npz for the ids, as TorchRec's
   materialize_synthetic_multihot_dataset.py and MLPerf have it: a zip whose members k.npy, for
   feature k, are i32 or i64 [N, hot], stored without compression: hot ids in every sample, another
   number for each feature.
   Errors   NEO_ERR_UNSUPPORTED: a compressed member. NEO_ERR_FORMAT: the file is cut off, or a
            member is not where the directory says (file, member and byte are named). */
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_npz(neo_ctx *ctx, const char *const *prefixes,
                                                    int prefix_count, const int64_t *rows,
                                                    int modulo, neo_schema **schema);
/* neo_schema_binary: records of little-endian 32-bit numbers without any header: label (0 or 1, as
   an integer or as f32), dense numbers, ids (unsigned) feature by feature. By default MLPerf's
   int32[40]: 13 integers, which give log(x + 1), negative ones 0, and 26 ids. With ids_per_feature
   and float_dense HugeCTR's Raw, as its DLRM samples read it (label_count is its label_dim).
   Errors   NEO_ERR_FORMAT: the file ends inside a record (of a reader, too). */
typedef struct neo_binary_desc {
    int32_t dense_count;   /* 0: 13; below 0: none */
    int32_t feature_count; /* 0: 26; below 0: none */
    const int32_t *ids_per_feature; /* [feature_count] in every record, or NULL: one of each */
    int float_dense;                /* 1: dense numbers are f32, taken as they are */
    int32_t label_count;            /* at the start of a record; 0: 1 */
    int64_t rows;                   /* of each table; 0: as found in `paths`, see neo_schema_npy */
    const int64_t *rows_per_feature; /* [feature_count] or NULL */
    int modulo;                     /* as in neo_schema_npy */
    const char *const *paths;       /* may be NULL if rows are given */
    int32_t path_count;
} neo_binary_desc;
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_binary(neo_ctx *ctx, const neo_binary_desc *desc,
                                                       neo_schema **schema);
/* A Criteo-like generator with planted truth: logit = bias + linear dense + one planted weight per
   (feature, id), label ~ Bernoulli(sigmoid(logit)); ids follow a Zipf law per feature. A sample is
   a function of (desc, its number) alone, so any order and any share of them is the same data. */
typedef struct neo_synthetic_desc {
    int64_t samples;        /* per epoch; required */
    uint64_t seed;          /* of the truth and the samples; not the context's */
    int32_t dense_count;    /* 0: 13; below 0: none */
    int32_t feature_count;  /* 0: 26; below 0: none */
    int64_t rows;           /* 0: 10,000; per feature, or see rows_per_feature */
    const int64_t *rows_per_feature; /* [feature_count] or NULL */
    float zipf;             /* exponent; 0: 1.1 */
    int32_t ids_per_bag;    /* mean bag length; 0 or 1: exactly one; else uniform, 0 .. 2 of it */
    float signal;           /* deviation of the planted logit; 0: 1.5 */
    const int32_t *hot;     /* [feature_count], copied: feature t has hot[t] ids in every sample, as
                               MLPerf's multi-hot data: by Zipf's law the first, and the others a
                               function of (seed, t, first), uniform over the rows. NULL: none */
    int64_t first_sample;   /* an epoch is samples [first_sample, first_sample + samples): another
                               range is another data set of the same truth */
    int32_t label_count;    /* to 4; 0: 1. The others are of other mixtures of the truth's parts,
                               each rarer than the one before */
    const neo_schema *of;   /* a schema of this kind: all but samples and first_sample is as there,
                               and made in no time, as the truth's laws are measured already */
} neo_synthetic_desc;
NEO_API NEO__CHECK_UNUSED neo_status neo_schema_synthetic(neo_ctx *ctx,
                                                          const neo_synthetic_desc *desc,
                                                          neo_schema **schema);
#endif
/* neo_schema_destroy: NULL is allowed. Readers may go on: the last that is closed frees it. */
NEO_API void neo_schema_destroy(neo_schema *schema);
NEO_API neo_format neo_schema_format(const neo_schema *schema);
NEO_API int32_t neo_schema_dense_count(const neo_schema *schema);
NEO_API int32_t neo_schema_feature_count(const neo_schema *schema);
/* neo_schema_is_weighted: batches have a weight per id (neo_plan_desc.weighted): a list has
   weight=, or the format is libsvm's or libffm's. */
NEO_API int neo_schema_is_weighted(const neo_schema *schema);
/* neo_schema_is_sample_weighted: batches have a weight per sample: a column is sample-weight. */
NEO_API int neo_schema_is_sample_weighted(const neo_schema *schema);
/* neo_schema_feature: name NULL and rows 0 when there is no such feature. */
NEO_API neo_feature neo_schema_feature(const neo_schema *schema, int32_t feature);
/* neo_schema_describe: the schema as JSON, of which neo_model_load of neo_serve.h makes it again:
   its format with, of text by columns, their description, else the rows of each feature. Words of
   dictionaries are not in it: a checkpoint has them (neo_state_add_schema). Writes up to `bytes`
   bytes with a NUL behind, and returns how many there are without it, as snprintf does. */
NEO_API size_t neo_schema_describe(const neo_schema *schema, char *text, size_t bytes);
/* neo_schema_label_count: labels of a sample, at least 1. neo_schema_label: name NULL and weight 0
   when there is no such label. neo_schema_weigh_labels: the weights of their losses, [count],
   in place of the description's or of 1.
   Errors   NEO_ERR_ARG: another count of labels than the schema's; a weight that is not above 0. */
typedef struct neo_label {
    const char *name; /* its column; else "label", of several "label_0" ...; owned by the schema */
    float weight;     /* of its loss */
} neo_label;
NEO_API int32_t neo_schema_label_count(const neo_schema *schema);
NEO_API neo_label neo_schema_label(const neo_schema *schema, int32_t label);
NEO_API neo_status neo_schema_weigh_labels(neo_schema *schema, const float *weights,
                                           int32_t count);
/* neo_schema_is_fitted: 0 while dictionaries are still to be built. neo_schema_fit: build them
   from these files, one pass (it fixes the features' rows); nothing to do for a schema without
   dictionaries. A loaded checkpoint fits the schema too. skip_bad_lines as in neo_reader_desc.
   With min_count it holds all words of the files, else those that get a row.
   neo_schema_samples: the samples of that pass, for a learning rate that depends on their number; a
   checkpoint has it too. 0: there was none.
   Errors   NEO_ERR_STATE: fitted already. NEO_ERR_FORMAT: none of the labels is a word of positive=
            (the message has the first that there are). Those of a reader. The schema is then as
            before. */
NEO_API int neo_schema_is_fitted(const neo_schema *schema);
NEO_API int64_t neo_schema_samples(const neo_schema *schema);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_schema_fit(neo_schema *schema, const char *const *paths, int path_count,
                                  int skip_bad_lines);
/* neo_schema_best: the AUC and log loss of the first label that a model knowing the planted truth
   reaches on samples [first, first + count) of the synthetic data (numbered as first_sample is): no
   model can be expected to do better. Other schemas: NEO_ERR_UNSUPPORTED. */
NEO_API neo_status neo_schema_best(const neo_schema *schema, int64_t first, int64_t count,
                                   double *auc, double *logloss);
/* neo_synthetic_write_tsv: synthetic samples [first, first + count) as a Criteo TSV file. A schema
   by neo_schema_criteo with NEO_IDS_HASH and the same rows reads back the same numbers and ids.
   Errors   NEO_ERR_UNSUPPORTED: other than 1 label, 13 dense, 26 features of one id and at least 2
            rows. NEO_ERR_IO. */
NEO_API neo_status neo_synthetic_write_tsv(neo_ctx *ctx, const neo_schema *schema,
                                           const char *path, int64_t first, int64_t count);
#endif

/* ---------------------------------------------------------------------------
   >>reader

   Batches from files, parsed ahead by threads of the reader's own. The same batches in the same
   order for any number of threads; a position saved and sought resumes exactly.
   On W ranks there is one global order too: a batch is cut into the leaves of the context (see
   >>leaves), and each rank gets the samples of its leaves. So 1, 2, 3 or 8 ranks see the same
   samples in the same leaves, and a run saved on 4 ranks resumes on 3.
   In file order each rank reads its own part: of formats without lines its rows; of text its lines
   and a few beside them, of which it parses its own only, so all ranks together parse each line
   once; with shuffle_window too, where a rank reads all text and parses the lines of its samples.
   Every rank parses all where bad rows or lines are skipped, as these move all that follow; rows
   with shuffle_window; and text from standard input or a pipe (so all that is unpacked on the way),
   or of less than 4 MiB in all.
   Where lines of text are is looked up once: neo_reader_open on several ranks leaves
   <path>.neoindex beside each file, of 1/2700 of its size, which later ones use while size, time of
   change and both ends of the text are the same. A run whose rank 0 opens its reader before the
   others looks through the text once. Where the file cannot be written, every rank makes the index
   anew at each open, in memory, without a word.
   Text lines end in \n or \r\n; the last one may lack it. A line over 65,536 bytes, one with a NUL
   byte, a wrong number of fields, or a field that is not what it should be is a bad line.
   ------------------------------------------------------------------------ */
typedef struct neo_reader neo_reader;
#if !defined(NEO_INFERENCE)
typedef struct neo_batch { /* views; for how long: neo_reader_desc.hold */
    neo_tensor dense;      /* [B][dense_count] f32 */
    neo_tensor label;      /* [B] f32; of L > 1 labels [B][L], NaN where a sample lacks one */
    neo_tensor weight;     /* [B] f32, of the samples; none: the schema has no sample-weight */
    neo_jagged sparse;     /* feature_count x B, ids i64; weights if neo_schema_is_weighted */
    int64_t first;         /* number of its first sample in the epoch as read, over all ranks */
    int64_t size;          /* B: samples of this rank; 0 where a batch has too few for all */
    int64_t global_size;   /* samples over all ranks: the batch of neo_leaves and of the loss */
} neo_batch;

typedef struct neo_reader_desc {
    const neo_schema *schema; /* required */
    const char *const *paths; /* files in order; "-" is standard input (of text); npy, npz: prefixes
                                 "dir/day_0_"; synthetic: none */
    int32_t path_count;
    int64_t batch;          /* samples per batch, over all ranks; required */
    int drop_last;          /* 1: leave out a last batch that is not full */
    int64_t shuffle_window; /* 0: file order; else samples are permuted inside windows of this many
                               (rounded up to whole batches), keyed by (seed of the context, epoch,
                               window). Two windows are held in memory, on every rank. */
    int skip_bad_lines;     /* 0: a bad line is an error; 1: it is skipped, counted and logged (the
                               first 10 of an epoch) */
    int32_t rank, world_size; /* rank r of W gets leaves [r V/W, (r+1) V/W) of every batch, V being
                                 repro_shards of the context; 0 of 0: all */
    int threads;            /* parsers; 0: 1 */
    int prefetch;           /* batches ready ahead; 0: 4, of small batches up to 16 */
    int unlabeled;          /* 1: text lines, or a description, without the label: label 0 */
    int32_t hold;           /* a batch is valid until so many more calls of neo_reader_next, or one
                               of any other call that moves or closes the reader; 0: 1. 2: batch i +
                               1 can be fetched while batch i is computed on. Each costs one more
                               buffer. */
    int dedup;              /* 1: equal bags of a feature within this rank's part of a batch come
                               once: batch.sparse has an inverse (>>jagged in neo.h) */
    neo_input input;        /* where "-" comes from; read NULL: this process, and one rank */
} neo_reader_desc;

/* neo_reader_open: look at every file, take all memory. Reading starts with the first
   neo_reader_next.
   Errors   NEO_ERR_NOT_FOUND, NEO_ERR_IO: the path is named. NEO_ERR_STATE: the schema is not
            fitted. NEO_ERR_ARG: fewer leaves than ranks; standard input on several ranks without
            desc.input. */
NEO_API NEO__CHECK_UNUSED neo_status neo_reader_open(neo_ctx *ctx, const neo_reader_desc *desc,
                                                     neo_reader **reader);
/* neo_reader_close: at any time; joins the reader's threads. NULL is allowed. */
NEO_API void neo_reader_close(neo_reader *reader);
/* neo_reader_next: the next batch. NEO_END after the last one of an epoch; then neo_reader_epoch
   starts epoch `epoch` (0 is the first) from its beginning (standard input cannot be read twice:
   NEO_ERR_UNSUPPORTED). Allocates nothing, but for features of several ids, whose buffers grow to
   the largest batch.
   Ranks    All get the same number of batches, empty ones included, and NEO_END after the same one.
            A bad line is found at the same batch as by one rank: by all of them, or by the one that
            alone parses it. What only one finds (a bad row, too; its disk fails) the others learn
            by neo_comm_agree on the status.
   Errors   NEO_ERR_FORMAT, NEO_ERR_RANGE: the message has file:line:column and what was expected
            there. NEO_ERR_IO. NEO_ERR_MISMATCH: a file of which a rank reads its part has changed
            since the reader was opened. A file without any sample is NEO_ERR_FORMAT. Whole windows
            of batches before the bad line still come; after an error every further call returns it
            again. */
NEO_API neo_status neo_reader_next(neo_reader *reader, neo_batch *batch);
NEO_API neo_status neo_reader_epoch(neo_reader *reader, int64_t epoch);

/* neo_batch_tasks: what a loss takes of a batch of one label or several: labels, 0 where a sample
   lacks one, and weights, that of the label times the sample's, 0 where it lacks the label: such a
   one has no part in loss and gradient. label, weight: [B][L], for neo_bce_with_logits. */
NEO_API void neo_batch_tasks(const neo_schema *schema, const neo_batch *batch, float *label,
                             float *weight);

/* neo_reader_position: where the next batch starts. neo_reader_seek: continue from there, with the
   same files, batch, window and seed: the same batches follow, on any number of ranks. It is plain
   numbers, the same on all ranks: save it as i64. Seeking in standard input reads forward, and only
   before the first neo_reader_next.
   Errors   NEO_ERR_MISMATCH: made under another format, number of dense numbers or of features,
            batch, window or seed (it says which, and both values where it can), or the files are
            not the same (as far as can be seen: sizes, the place). What columns mean is compared
            where the checkpoint has the schema: neo_state_add_schema. */
enum { NEO_POSITION_WORDS = 8 };
typedef struct neo_position {
    int64_t word[NEO_POSITION_WORDS]; /* [0] epoch, [1] samples read in it over all ranks; others:
                                         the reader's */
} neo_position;
NEO_API neo_position neo_reader_position(const neo_reader *reader);
NEO_API neo_status neo_reader_seek(neo_reader *reader, const neo_position *position);

typedef struct neo_reader_stats {
    int64_t samples;        /* delivered to this rank in this epoch (since a seek: from there on);
                               over all ranks: word[1] of neo_reader_position */
    int64_t bad_lines;      /* skipped in this epoch so far (since a seek: from there on) */
    int64_t bytes;          /* of this epoch up to the delivered batch: for a progress bar */
    int64_t total_bytes;    /* of all files; 0 when unknown */
    int64_t total_samples;  /* of an epoch, over all ranks; 0 when unknown (text without index) */
    int64_t stall_ns;       /* time neo_reader_next waited for a batch, all epochs */
    int64_t stall_count;
    int64_t grow_count;     /* times a buffer grew: only features of several ids do that */
    int64_t parsed_bytes;   /* of the lines that this rank has made samples of, in this epoch and
                               as far as it has read ahead */
} neo_reader_stats;
NEO_API neo_reader_stats neo_reader_get_stats(const neo_reader *reader);
/* neo_reader_samples: those of an epoch over all ranks, at any time. Of text without an index they
   are counted by its line ends, at some GB/s. 0: not known (standard input, pipes,
   skip_bad_lines). Takes 1 MiB from the allocator while it counts.
   Errors   NEO_ERR_IO, NEO_ERR_NOT_FOUND, NEO_ERR_MEMORY; *samples is 0 then. */
NEO_API neo_status neo_reader_samples(neo_reader *reader, int64_t *samples);

/* neo_npy_write, neo_npy_read: one array. read allocates (free with neo_tensor_free); f32, f16,
   i8, i32, i64, u8, C order, little-endian, versions 1 to 3; f64 is read as f32; a scalar as [1].
   Errors   NEO_ERR_FORMAT names file and byte offset. NEO_ERR_UNSUPPORTED: another dtype or order,
            more than NEO_MAX_DIMS dimensions. */
NEO_API neo_status neo_npy_write(neo_ctx *ctx, const char *path, neo_tensor t);
NEO_API NEO__CHECK_UNUSED neo_status neo_npy_read(neo_ctx *ctx, const char *path, neo_tensor *t);
/* neo_npy_export: what is left of a reader's epoch (on several ranks: of this rank's part) as the
   triple <prefix>dense.npy (f32), sparse.npy (i32) and labels.npy (i32 [N, 1]), as TorchRec's.
   Errors   NEO_ERR_UNSUPPORTED: desc.dedup, a feature without exactly one id, weights, several
            labels, one that is not 0 or 1, an id over i32; those of the reader; NEO_ERR_IO. The
            files are then incomplete. */
NEO_API neo_status neo_npy_export(neo_ctx *ctx, neo_reader *reader, const char *prefix);

/* neo_packing_of: how a file is compressed that begins with these bytes: gzip, zstd, xz or zip. */
typedef struct neo_packing {
    const char *name;   /* NULL: by none of these */
    const char *unpack; /* the command that writes what is in FILE, without FILE, as "zcat" */
} neo_packing;
NEO_API neo_packing neo_packing_of(const void *bytes, size_t count);
#endif

/* neo_state_add_schema: the dictionaries, so that a resumed or deployed model maps words to
   the same ids. One schema per state. It may still be unfitted: loading fits it. The text of a
   column description, or the columns chosen of Criteo's, are part of the numeric definition
   (neo_state_define), as "columns". */
NEO_API neo_status neo_state_add_schema(neo_state *state, neo_schema *schema);

#ifdef __cplusplus
}
#endif
#endif /* NEO_DATA_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__DATA_IMPLEMENTED)
#define NEO__DATA_IMPLEMENTED
#include "neo_state.h" /* its implementation, if it was included without before */

NEO_EXACT_BEGIN
NEO__FEW_PASSES
NEO__COLD_BEGIN
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-schema

   A schema says how samples are read: names and sizes of the features, dictionaries, columns. It is
   read-only once made and fitted, so readers share it without locks. Its small parts (names, column
   operations, bucket edges) live in an arena and go with it.

   A parsed sample is a record of fixed size:
     f32 label | f32 dense[dense_count] | i64 id[feature_count]                one id per feature
     f32 label | f32 dense[dense_count] | i64 begin | i64 end[feature_count]   several ids (multi)
   Where samples have weights, f32 weight stands behind the dense numbers, and further labels behind
   these.
   With several ids per feature they lie in a stream beside the records: `begin` is the sample's
   first id there, each end is counted from begin.
   ------------------------------------------------------------------------ */
enum { NEO__CRITEO_DENSE = 13, NEO__CRITEO_FEATURES = 26 };

/* ---- dictionaries: words to ids 1, 2, ... in order of insertion; open addressing. The place of
   ---- a word hangs on a key that no file can know, so no file of colliding words makes this slow.
   ---- No result hangs on it ---- */
typedef struct neo__dict {
    uint64_t key[2];     /* set with the first slots */
    uint64_t *slots;     /* upper half: part of the hash; lower: id, 0 for an empty slot */
    uint64_t slot_count; /* a power of two, or 0 */
    char *bytes;         /* the words, one after another */
    int64_t byte_count, byte_capacity;
    uint64_t *ends; /* ends[id]: where word id ends in bytes; ends[0] = 0 */
    int64_t count, capacity;
    int64_t max_words;
    int64_t min_count; /* 0: none; else ids are one more, and id 1 is that of all other words */
    uint32_t *seen;    /* seen[id]: times, while words are collected with min_count */
    int64_t seen_capacity;
    int64_t rare, dropped; /* see neo_feature */
    int64_t samples;       /* that its words are from */
} neo__dict;

#define NEO__DICT_TAG UINT64_C(0xFFFFFFFF00000000) /* the part of a hash that a slot keeps */

/* Equal to neo_hash for a text without NUL. */
static uint64_t neo__hash_bytes(const void *data, size_t bytes) {
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001B3u;
    return neo__mix64(h);
}
NEO__INLINE void neo__sip_round(uint64_t *v) {
    v[0] += v[1], v[1] = (v[1] << 13 | v[1] >> 51) ^ v[0], v[0] = v[0] << 32 | v[0] >> 32;
    v[2] += v[3], v[3] = (v[3] << 16 | v[3] >> 48) ^ v[2];
    v[0] += v[3], v[3] = (v[3] << 21 | v[3] >> 43) ^ v[0];
    v[2] += v[1], v[1] = (v[1] << 17 | v[1] >> 47) ^ v[2], v[2] = v[2] << 32 | v[2] >> 32;
}
NEO__INLINE void neo__sip_block(uint64_t *v, uint64_t block) {
    v[3] ^= block;
    neo__sip_round(v);
    v[0] ^= block;
}
/* Up to 8 bytes before the end as two halves that may overlap. */
NEO__INLINE uint64_t neo__word_last(const char *word, size_t bytes) {
    const unsigned char *p = (const unsigned char *)word;
    uint32_t half[2];
    if (bytes < 4)
        return bytes ? p[0] | (uint64_t)p[bytes / 2] << 8 | (uint64_t)p[bytes - 1] << 16 : 0;
    memcpy(&half[0], p + bytes - (bytes > 8 ? 8 : bytes), 4);
    memcpy(&half[1], p + bytes - 4, 4);
    return half[0] | (uint64_t)half[1] << 32;
}
/* Up to 8 bytes go through a keyed permutation. More: SipHash-1-3 (Aumasson and Bernstein, 2012),
   the length mixed in after the last 8 bytes. */
static uint64_t neo__dict_hash(const neo__dict *dict, const char *word, size_t bytes) {
    const uint64_t block = neo__word_last(word, bytes);
    uint64_t v[4];
    if (bytes <= 8) return neo__mix64((block ^ dict->key[0]) * (dict->key[1] | 1) + bytes);
    v[0] = dict->key[0] ^ 0x736F6D6570736575u, v[1] = dict->key[1] ^ 0x646F72616E646F6Du;
    v[2] = dict->key[0] ^ 0x6C7967656E657261u, v[3] = dict->key[1] ^ 0x7465646279746573u;
    for (size_t i = 0; i + 8 < bytes; i += 8) {
        uint64_t next;
        memcpy(&next, word + i, 8);
        neo__sip_block(v, next);
    }
    neo__sip_block(v, block);
    v[2] ^= 0xFF ^ (uint64_t)bytes << 8;
    for (int i = 0; i < 3; i++) neo__sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
static void neo__dict_free(neo_ctx *ctx, neo__dict *dict) {
    NEO__LIST_FREE(ctx, dict->slots, dict->slot_count);
    NEO__LIST_FREE(ctx, dict->bytes, dict->byte_capacity);
    NEO__LIST_FREE(ctx, dict->ends, dict->capacity);
    NEO__LIST_FREE(ctx, dict->seen, dict->seen_capacity);
    memset(dict, 0, sizeof *dict);
}
/* The id of a word in a dictionary with slots; 0: not there. */
static int64_t neo__dict_seek(const neo__dict *dict, uint64_t hash, const char *word,
                              size_t bytes) {
    const uint64_t mask = dict->slot_count - 1, tag = hash & NEO__DICT_TAG;
    const uint64_t last = neo__word_last(word, bytes);
    for (uint64_t i = hash & mask; dict->slots[i]; i = (i + 1) & mask) {
        uint64_t id = dict->slots[i] & 0xFFFFFFFFu;
        if ((dict->slots[i] & NEO__DICT_TAG) != tag) continue;
        size_t start = (size_t)dict->ends[id - 1], length = (size_t)dict->ends[id] - start;
        if (length == bytes && (bytes <= 8 ? neo__word_last(dict->bytes + start, bytes) == last
                                           : memcmp(dict->bytes + start, word, bytes) == 0))
            return (int64_t)id;
    }
    return 0;
}
static int64_t neo__dict_find(const neo__dict *dict, const char *word, size_t bytes) {
    if (dict->slot_count == 0) return 0;
    return neo__dict_seek(dict, neo__dict_hash(dict, word, bytes), word, bytes);
}
static void neo__dict_place(uint64_t *slots, uint64_t mask, uint64_t entry, uint64_t hash) {
    uint64_t i = hash & mask;
    while (slots[i]) i = (i + 1) & mask;
    slots[i] = entry;
}
/* Place word `id`. */
static void neo__dict_place_word(const neo__dict *dict, uint64_t *slots, uint64_t mask,
                                 int64_t id) {
    uint64_t start = dict->ends[id - 1];
    uint64_t h = neo__dict_hash(dict, dict->bytes + start, (size_t)(dict->ends[id] - start));
    neo__dict_place(slots, mask, (h & NEO__DICT_TAG) | (uint64_t)id, h);
}
static neo_status neo__dict_rehash(neo_ctx *ctx, neo__dict *dict) {
    uint64_t count = dict->slot_count ? 2 * dict->slot_count : 64;
    uint64_t *slots = (uint64_t *)neo__alloc_zero(ctx, neo__size_mul((size_t)count, sizeof *slots));
    NEO__CHECK(slots, NEO_ERR_MEMORY, "no memory for a dictionary of %" PRId64 " words",
               dict->count);
    if (dict->slot_count == 0) { /* a time to the nanosecond, and places that loaders randomize */
        uint64_t at = (uint64_t)(uintptr_t)slots, stack = (uint64_t)(uintptr_t)&count;
        dict->key[0] = neo__mix64(neo__mix64((uint64_t)neo_time_ns()) ^ at);
        dict->key[1] = neo__mix64(neo__mix64(dict->key[0] ^ (uint64_t)time(NULL)) + stack);
    }
    for (int64_t id = 1; id <= dict->count; id++)
        neo__dict_place_word(dict, slots, count - 1, id);
    NEO__LIST_FREE(ctx, dict->slots, dict->slot_count);
    dict->slots = slots;
    dict->slot_count = count;
    return NEO_OK;
}
/* Insert a word, unless it is there or the dictionary is full. *found: its id; 0: it has none. */
static neo_status neo__dict_add(neo_ctx *ctx, neo__dict *dict, const char *word, size_t bytes,
                                int64_t *found) {
    int64_t end = dict->byte_count + (int64_t)bytes;
    int64_t most = dict->min_count ? (int64_t)0xFFFFFFFE : dict->max_words;
    if ((uint64_t)(dict->count + 1) * 2 > dict->slot_count) NEO__TRY(neo__dict_rehash(ctx, dict));
    uint64_t h = neo__dict_hash(dict, word, bytes);
    *found = neo__dict_seek(dict, h, word, bytes);
    if (*found || dict->count >= most) return NEO_OK;
    NEO__TRY(NEO__GROW(ctx, dict->ends, dict->capacity, dict->count + 2));
    NEO__TRY(NEO__GROW(ctx, dict->bytes, dict->byte_capacity, end));
    memcpy(dict->bytes + dict->byte_count, word, bytes);
    dict->byte_count = end;
    dict->ends[0] = 0;
    dict->ends[++dict->count] = (uint64_t)end;
    *found = dict->count;
    neo__dict_place(dict->slots, dict->slot_count - 1, (h & NEO__DICT_TAG) | (uint64_t)dict->count,
                    h);
    return NEO_OK;
}
/* A word of the samples that the dictionary is made from. */
static neo_status neo__dict_collect(neo_ctx *ctx, neo__dict *dict, const char *word,
                                    size_t bytes) {
    int64_t before = dict->count, id;
    NEO__TRY(neo__dict_add(ctx, dict, word, bytes, &id));
    if (id == 0) dict->dropped++;
    if (id == 0 || !dict->min_count) return NEO_OK;
    NEO__TRY(NEO__GROW(ctx, dict->seen, dict->seen_capacity, id + 1));
    if (dict->count > before) dict->seen[id] = 0;
    if (dict->seen[id] < UINT32_MAX) dict->seen[id]++;
    return NEO_OK;
}
/* Leave only the words seen min_count times, as many as there are rows for. */
static void neo__dict_prune(neo_ctx *ctx, neo__dict *dict) {
    uint64_t from = 0, to = 0;
    int64_t kept = 0;
    for (int64_t id = 1; dict->min_count && id <= dict->count; id++) {
        uint64_t end = dict->ends[id], bytes = end - from;
        if (dict->seen[id] < dict->min_count) {
            dict->rare++;
        } else if (kept == dict->max_words) {
            dict->dropped += dict->seen[id];
        } else {
            memmove(dict->bytes + to, dict->bytes + from, (size_t)bytes);
            to += bytes;
            dict->ends[++kept] = to;
        }
        from = end;
    }
    if (!dict->min_count || dict->count == 0) return;
    dict->count = kept;
    dict->byte_count = (int64_t)to;
    memset(dict->slots, 0, (size_t)dict->slot_count * sizeof *dict->slots);
    for (int64_t id = 1; id <= kept; id++)
        neo__dict_place_word(dict, dict->slots, dict->slot_count - 1, id);
    NEO__LIST_FREE(ctx, dict->seen, dict->seen_capacity);
    dict->seen = NULL;
    dict->seen_capacity = 0;
}
/* x n / 2^64, n <= 2^32 */
NEO__INLINE uint64_t neo__times_high(uint64_t x, uint64_t n) {
    return ((x >> 32) * n + (((x & 0xFFFFFFFFu) * n) >> 32)) >> 32;
}
static char *neo__put_le(char *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *p++ = (char)(unsigned char)(value >> (8 * i));
    return p;
}
NEO__HOT_END

/* ---- the schema ---- */
typedef enum neo__op_kind {
    NEO__OP_LABEL,
    NEO__OP_DENSE,
    NEO__OP_CATEGORY,
    NEO__OP_BUCKET,
    NEO__OP_CROSS,
    NEO__OP_LIST,
    NEO__OP_SAMPLE_WEIGHT
} neo__op_kind;
typedef struct neo__text {
    const char *p;
    size_t bytes;
} neo__text;
/* One output of a column, as its description says. */
typedef struct neo__op {
    neo__op_kind kind;
    int32_t column, other; /* other: the second column of a cross */
    int32_t out;           /* dense or feature number */
    int log;
    int hashed;
    float missing;
    double shift, scale;     /* scale: of a label, its weight; 0: not given */
    int64_t rows, min_count; /* 0: not given */
    char separator, weight;  /* of a list; weight 0: none */
    int normalize;           /* of its weights */
    float *edges;
    int32_t edge_count;
    neo__text *words; /* of a label; NULL: a number */
    int32_t word_count;
} neo__op;
typedef struct neo__column {
    const char *name;
    int32_t line; /* in the description */
    int is_label;
} neo__column;

typedef struct neo__synthetic neo__synthetic;

struct neo_schema {
    neo_ctx *ctx;
    neo__live live;
    neo__arena arena;
    int32_t readers; /* atomic: users of it but one */
    neo_format format;
    int32_t dense_count, feature_count, label_count;
    neo_label *labels; /* [label_count]; NULL: one, called "label", of weight 1 */
    char **feature_names;
    int64_t *rows;
    int64_t *max_rows; /* cap of a dictionary */
    uint8_t *has_dict; /* per feature */
    neo__dict *dicts;  /* [feature_count], used where has_dict */
    int dict_count;
    int fitted;
    int64_t samples;                 /* that fitted it */
    int multi;                       /* a feature may have other than one id */
    int weighted;                    /* ids have weights */
    int sample_weighted;             /* samples have weights */
    size_t ids_offset, record_bytes; /* of a parsed sample */
    double *log_table;               /* log(n), n < NEO__LOG_TABLE */
    float *log_f32;                  /* the same, rounded: half the cache */
    uint64_t *modulus; /* of ids: the rows, of Criteo's 1 fewer; at most 2^32, which changes none */
    uint64_t *inverse; /* 2^64 / modulus, rounded up: n % m is m (n inverse mod 2^64) / 2^64 */
    /* Criteo */
    uint8_t *hex;      /* value of a hex digit, 0xFF for other characters */
    uint8_t *chosen;   /* with target: fields behind the label that are used, integers, then words,
                          each by fours, of which those that lack are the last again */
    uint64_t wanted;   /* with target: bit n: a field that is used may begin or end at delimiter n,
                          or the line at its end */
    /* delimited */
    neo__column *columns;
    neo__op *ops;
    int32_t column_count, op_count, label_columns; /* label_columns: there are so many */
    int32_t *target; /* [column_count]: the column, or below 0 as in neo__head; Criteo: [40], the
                        number of the dense value or feature; NULL: all columns are used */
    char delimiter[16];
    int32_t delimiter_bytes;
    char quote;           /* 0: none */
    uint32_t description; /* CRC-32C of its text, but of Criteo's */
    char *description_text; /* of Criteo's columns the names; or NULL */
    neo__text *missing, *comments;
    int32_t missing_count, comment_count;
    int64_t skip_lines;
    int header; /* the line after those names the columns of its file */
    /* without lines */
    int32_t plane_count;
    int32_t *hot;       /* ids of a sample in each feature, always so many; NULL: one, or by text */
    int64_t sample_ids; /* of all features of a sample at most; 0: one each, or by text */
    int modulo;         /* of ids; libsvm too */
    int float_dense;    /* binary */
    neo__synthetic *synthetic;
};

static neo_status neo__check_between(const char *function, const char *name, int64_t value,
                                     int64_t low, int64_t high) {
    NEO__CHECK(value >= low && value <= high, NEO_ERR_ARG,
               "%s: %s is %" PRId64 ", not in %" PRId64 " .. %" PRId64, function, name, value, low,
               high);
    return NEO_OK;
}
/* A constructor of a schema: begin, features, a name for each, end, done. `from`: what it is made
   of; *schema: the caller's, NULL until it is done. */
static neo_status neo__schema_begin(neo_ctx *ctx, const char *function, neo_format format,
                                    const void *from, neo_schema **schema, neo_schema **out) {
    NEO__CHECK(ctx && from && schema, NEO_ERR_ARG, "%s: an argument is NULL", function);
    *schema = NULL;
    NEO__TRY(neo__check_ctx(function, ctx));
    neo_schema *s = *out = (neo_schema *)neo__alloc_zero(ctx, sizeof *s);
    NEO__CHECK(s, NEO_ERR_MEMORY, "%s: no memory for a schema", function);
    s->ctx = ctx;
    s->arena.ctx = ctx;
    s->arena.function = function;
    s->format = format;
    s->label_count = 1;
    return NEO_OK;
}
/* Labels of a schema, called label_0 ... unless it names them itself. */
static neo_status neo__schema_labels(neo_schema *schema, int64_t count) {
    NEO__CHECK(count >= 1 && count <= 65536, NEO_ERR_ARG, "%s: %" PRId64 " labels, not 1 .. 65,536",
               schema->arena.function, count);
    schema->label_count = (int32_t)count;
    if (count == 1) return NEO_OK;
    NEO__TRY(NEO__ARENA(&schema->arena, schema->labels, count));
    for (int32_t k = 0; k < schema->label_count; k++) {
        char *name;
        NEO__TRY(NEO__ARENA(&schema->arena, name, 24));
        snprintf(name, 24, "label_%d", (int)k);
        schema->labels[k].name = name;
        schema->labels[k].weight = 1.0f;
    }
    return NEO_OK;
}
static neo_status neo__schema_features(neo_schema *schema, int32_t dense, int32_t features) {
    int32_t room = NEO__MAX(features, 1);
    schema->dense_count = dense;
    schema->feature_count = features;
    NEO__TRY(NEO__ARENA(&schema->arena, schema->feature_names, room));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->rows, room));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->max_rows, room));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->has_dict, room));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->dicts, room));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->log_table, NEO__LOG_TABLE));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->log_f32, NEO__LOG_TABLE));
    for (int i = 1; i < NEO__LOG_TABLE; i++) {
        schema->log_table[i] = neo__log_f64((double)i);
        schema->log_f32[i] = (float)schema->log_table[i];
    }
    return NEO_OK;
}
/* The last step that may not fail: sizes, when the dictionaries and `multi` are known. */
static void neo__schema_end(neo_schema *schema) {
    size_t floats = (size_t)(schema->label_count + schema->dense_count + schema->sample_weighted);
    schema->ids_offset = (floats * sizeof(float) + 7) & ~(size_t)7;
    schema->record_bytes = schema->ids_offset +
                           (size_t)(schema->feature_count + (schema->multi != 0)) * sizeof(int64_t);
    schema->dict_count = 0;
    for (int32_t f = 0; f < schema->feature_count; f++) {
        if (!schema->has_dict[f]) continue;
        schema->dict_count++;
        schema->rows[f] = 0;
        int64_t words = schema->max_rows[f] - 1 - (schema->dicts[f].min_count != 0);
        schema->dicts[f].max_words = NEO__MIN(words, (int64_t)0xFFFFFFFE);
    }
    schema->fitted = schema->dict_count == 0;
}
static neo_status neo__schema_name(neo_schema *s, int32_t feature, const char *format, ...)
    NEO__PRINTF(3, 4);
static neo_status neo__schema_name(neo_schema *schema, int32_t feature, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    NEO__CHECK(length > 0 && length < (int)sizeof text, NEO_ERR_ARG,
               "neo_schema_parse: the name %.60s... is too long", text);
    NEO__TRY(NEO__ARENA(&schema->arena, schema->feature_names[feature], length + 1));
    memcpy(schema->feature_names[feature], text, (size_t)length);
    return NEO_OK;
}

NEO_API void neo_schema_destroy(neo_schema *s) {
    if (!s || __atomic_fetch_sub(&s->readers, 1, __ATOMIC_ACQ_REL) > 0) return;
    neo__live_end(s->ctx, &s->live);
    for (int32_t f = 0; s->dicts && f < s->feature_count; f++) neo__dict_free(s->ctx, &s->dicts[f]);
    neo__arena_free(&s->arena);
    neo_free(s->ctx, s, sizeof *s);
}
/* The schema for the caller; after a failure NULL. */
static neo_status neo__schema_done(neo_schema *s, neo_status status, neo_schema **out) {
    *out = status == NEO_OK ? s : NULL;
    if (status == NEO_OK) neo__live_begin(s->ctx, &s->live, "schema", NULL);
    else neo_schema_destroy(s);
    return status;
}
static const char *const neo__format_names[] = {"criteo", "delimited", "npy",    "synthetic",
                                                "libsvm", "libffm",    "npz", "binary"};
NEO_API neo_format neo_schema_format(const neo_schema *s) { return s->format; }
NEO_API int32_t neo_schema_dense_count(const neo_schema *s) { return s->dense_count; }
NEO_API int neo_schema_is_sample_weighted(const neo_schema *s) { return s->sample_weighted; }
NEO_API int32_t neo_schema_feature_count(const neo_schema *s) { return s->feature_count; }
NEO_API int neo_schema_is_weighted(const neo_schema *s) { return s->weighted; }
NEO_API neo_feature neo_schema_feature(const neo_schema *s, int32_t feature) {
    NEO__ZERO(neo_feature, f);
    if (feature < 0 || feature >= s->feature_count) return f;
    f.name = s->feature_names[feature];
    f.rows = s->rows[feature];
    f.words = s->dicts[feature].count;
    f.rare = s->dicts[feature].rare;
    f.dropped = s->dicts[feature].dropped;
    return f;
}
NEO_API int32_t neo_schema_label_count(const neo_schema *s) { return s->label_count; }
NEO_API neo_label neo_schema_label(const neo_schema *s, int32_t label) {
    NEO__ZERO(neo_label, l);
    if (label < 0 || label >= s->label_count) return l;
    if (s->labels) return s->labels[label];
    l.name = "label";
    l.weight = 1.0f;
    return l;
}
NEO_API neo_status neo_schema_weigh_labels(neo_schema *schema, const float *weights,
                                           int32_t count) {
    NEO__CHECK(schema && weights, NEO_ERR_ARG, "neo_schema_weigh_labels: an argument is NULL");
    NEO__CHECK(schema->label_count == count, NEO_ERR_ARG,
               "neo_schema_weigh_labels: %d weights, and the data has %d label%s", count,
               schema->label_count, schema->label_count == 1 ? "" : "s");
    for (int32_t k = 0; k < count; k++)
        NEO__CHECK(weights[k] > 0.0f && weights[k] - weights[k] == 0.0f, NEO_ERR_ARG,
                   "neo_schema_weigh_labels: the weight of label %d is %g", k, (double)weights[k]);
    NEO__CHECK(schema->labels || weights[0] == 1.0f, NEO_ERR_ARG,
               "neo_schema_weigh_labels: the only label has nothing to be weighed against");
    for (int32_t k = 0; schema->labels && k < count; k++) schema->labels[k].weight = weights[k];
    return NEO_OK;
}
NEO_API int neo_schema_is_fitted(const neo_schema *s) { return s->fitted; }
NEO_API int64_t neo_schema_samples(const neo_schema *s) { return s->samples; }

/* "I7" or "C7" at *p, which then is behind it: its field; 0: it is none. */
static int32_t neo__criteo_name(const char **p) {
    const int word = **p == 'C', most = word ? (int)NEO__CRITEO_FEATURES : (int)NEO__CRITEO_DENSE;
    int32_t number = 0;
    if (!word && **p != 'I') return 0;
    for (++*p; **p >= '0' && **p <= '9' && number <= most; ++*p) number = number * 10 + (**p - '0');
    if (number < 1 || number > most) return 0;
    return number + (word ? NEO__CRITEO_DENSE : 0);
}
/* Names, and ranges of them, joined by commas: target[field] 0 where one is named, and for the
   label, else -1. */
static neo_status neo__criteo_named(const char *columns, int32_t *target, int32_t count) {
    for (int32_t i = 0; i < count; i++) target[i] = i ? -1 : 0;
    for (const char *p = columns, *name = p;; name = ++p) {
        int32_t first = neo__criteo_name(&p), last = first;
        if (first && *p == '-') p++, last = neo__criteo_name(&p);
        NEO__CHECK(first && last >= first && (*p == ',' || !*p) &&
                       (first <= NEO__CRITEO_DENSE) == (last <= NEO__CRITEO_DENSE),
                   NEO_ERR_ARG,
                   "neo_schema_criteo_columns: expected names as I1-I5,C1,C14 (I1 to I13, C1 to "
                   "C26), found '%.40s'", name);
        for (int32_t i = first; i <= last; i++) {
            NEO__CHECK(target[i] < 0, NEO_ERR_ARG,
                       "neo_schema_criteo_columns: %c%d is named twice",
                       i <= NEO__CRITEO_DENSE ? 'I' : 'C',
                       i <= NEO__CRITEO_DENSE ? i : i - NEO__CRITEO_DENSE);
            target[i] = 0;
        }
        if (!*p) return NEO_OK;
    }
}
/* Make -n of columns below 0, which are not used: it and the n - 1 behind it. */
static void neo__target_runs(int32_t *target, int32_t count) {
    for (int32_t i = count - 1, run = 0; i >= 0; i--) {
        run = target[i] < 0 ? run + 1 : 0;
        if (run) target[i] = -run;
    }
}
static neo_status neo__schema_moduli(neo_schema *schema) {
    const int32_t room = NEO__MAX(schema->feature_count, 1);
    NEO__TRY(NEO__ARENA(&schema->arena, schema->modulus, room));
    return NEO__ARENA(&schema->arena, schema->inverse, room);
}
static void neo__schema_modulus(neo_schema *schema, int32_t feature, int64_t rows) {
    const uint64_t modulus = (uint64_t)NEO__MIN(rows, (int64_t)1 << 32);
    schema->modulus[feature] = modulus;
    schema->inverse[feature] = modulus ? UINT64_MAX / modulus + (modulus > 1) : 0;
}
/* Names, and sizes as asked for: by feature, the same for all, or (0) as they were found. */
static neo_status neo__schema_sizes(neo_schema *schema, const char *name, int64_t rows,
                                    const int64_t *rows_per_feature) {
    NEO__TRY(neo__schema_moduli(schema));
    for (int32_t f = 0; f < schema->feature_count; f++) {
        NEO__TRY(neo__schema_name(schema, f, name, f));
        if (rows_per_feature) schema->rows[f] = rows_per_feature[f];
        else schema->rows[f] = rows ? rows : NEO__MAX(schema->rows[f], 1);
        NEO__CHECK(schema->rows[f] >= 1, NEO_ERR_ARG,
                   "%s: feature %d has %" PRId64 " rows, fewer than 1", schema->arena.function, f,
                   schema->rows[f]);
        neo__schema_modulus(schema, f, schema->rows[f]);
    }
    neo__schema_end(schema);
    return NEO_OK;
}
static neo_status neo__criteo_init(neo_schema *schema, neo_ids ids, int64_t max_rows,
                                   const int64_t *rows, const char *columns) {
    enum { FIELDS = 1 + NEO__CRITEO_DENSE + NEO__CRITEO_FEATURES };
    const char *function = schema->arena.function;
    int32_t *target, dense = 0, features = 0;
    char names[FIELDS * 4], *end = names;
    NEO__TRY(NEO__ARENA(&schema->arena, target, FIELDS));
    NEO__TRY(neo__criteo_named(columns ? columns : "I1-I13,C1-C26", target, FIELDS));
    for (int i = 1; i < FIELDS; i++) {
        const int word = i > NEO__CRITEO_DENSE;
        if (target[i] < 0) continue;
        target[i] = word ? features++ : dense++;
        end += snprintf(end, 5, ",%c%d", word ? 'C' : 'I', word ? i - NEO__CRITEO_DENSE : i);
    }
    NEO__TRY(neo__schema_features(schema, dense, features));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->hex, 256));
    NEO__TRY(neo__schema_moduli(schema));
    memset(schema->hex, 0xFF, 256);
    for (int i = 0; i < 10; i++) schema->hex['0' + i] = (uint8_t)i;
    for (int i = 0; i < 6; i++) schema->hex['a' + i] = schema->hex['A' + i] = (uint8_t)(10 + i);
    for (int number = 1; number <= NEO__CRITEO_FEATURES; number++) {
        const int32_t f = target[NEO__CRITEO_DENSE + number];
        const int64_t count = rows ? rows[number - 1] : max_rows;
        if (f < 0) continue;
        NEO__CHECK(count >= 1, NEO_ERR_ARG, "%s: C%d has %" PRId64 " rows, fewer than 1", function,
                   number, count);
        NEO__TRY(neo__schema_name(schema, f, "C%d", number));
        schema->rows[f] = schema->max_rows[f] = count;
        neo__schema_modulus(schema, f, count - 1);
        schema->has_dict[f] = ids == NEO_IDS_DICTIONARY;
    }
    neo__target_runs(target, FIELDS);
    if (columns) {
        const int32_t words = (dense + 3) / 4 * 4;
        NEO__TRY(NEO__ARENA(&schema->arena, schema->chosen, words + (features + 3) / 4 * 4));
        schema->wanted = 1 | (uint64_t)3 << (FIELDS - 2); /* the label, and the end */
        for (int i = 1; i < FIELDS; i++) { /* without a label all stand one place before */
            const int word = i > NEO__CRITEO_DENSE, n = word ? features : dense;
            if (target[i] >= 0) schema->wanted |= ((uint64_t)7 << i) >> 2;
            for (int k = target[i]; k >= 0 && k < (n + 3) / 4 * 4; k++)
                schema->chosen[(word ? words : 0) + k] = (uint8_t)(i - 1);
        }
        schema->target = target;
        schema->description_text =
            neo__arena_text(&schema->arena, names + 1, (size_t)(end - names) - 1);
        NEO__CHECK(schema->description_text, NEO_ERR_MEMORY, "%s: no memory for names", function);
    }
    neo__schema_end(schema);
    return NEO_OK;
}
static neo_status neo__criteo_schema(neo_ctx *ctx, const char *function, neo_ids ids,
                                     int64_t max_rows, const int64_t *rows, const char *columns,
                                     neo_schema **schema) {
    neo_schema *s;
    if (schema) *schema = NULL;
    NEO__CHECK(ids == NEO_IDS_HASH || ids == NEO_IDS_DICTIONARY, NEO_ERR_ARG,
               "%s: ids is %d, neither hash nor dictionary", function, (int)ids);
    NEO__TRY(neo__schema_begin(ctx, function, NEO_FORMAT_CRITEO, function, schema, &s));
    return neo__schema_done(s, neo__criteo_init(s, ids, max_rows, rows, columns), schema);
}
NEO_API neo_status neo_schema_criteo(neo_ctx *ctx, neo_ids ids, int64_t max_rows,
                                     const int64_t *rows, neo_schema **schema) {
    return neo__criteo_schema(ctx, "neo_schema_criteo", ids, max_rows, rows, NULL, schema);
}
NEO_API neo_status neo_schema_criteo_columns(neo_ctx *ctx, neo_ids ids, int64_t max_rows,
                                             const int64_t *rows, const char *columns,
                                             neo_schema **schema) {
    NEO__CHECK(columns, NEO_ERR_ARG, "neo_schema_criteo_columns: columns is NULL");
    return neo__criteo_schema(ctx, "neo_schema_criteo_columns", ids, max_rows, rows, columns,
                              schema);
}

/* ---------------------------------------------------------------------------
   >>impl-dictionary-file

   The fitted dictionaries as one block of bytes, for checkpoints. Little-endian:
     "NEODICT2", u64 number of dictionaries, u64 samples that they are from, then for each, in order
     of the features: u32 length and bytes of the feature's name, u64 min_count (0: none), rare,
     dropped, number of words, and for each word in order of its id: u32 length, bytes.
   So equal dictionaries give equal bytes. "NEODICT1", which is read too, has no samples, min_count,
   rare and dropped: all 0.
     neo__schema_save_size  bytes that save writes; 0: not fitted yet, nothing to save
     neo__schema_save       writes exactly that many
     neo__schema_load       reads such a block, checking every length, count and word, beside the
                            schema. A schema that is fitted already must hold the same words
                            (NEO_ERR_MISMATCH; also when the features differ). NEO_ERR_CORRUPT: the
                            bytes are no such block. On failure the schema is as before.
     neo__schema_install    fits the schema by what load has read, or frees that
   ------------------------------------------------------------------------ */
static size_t neo__schema_save_size(const void *schema) {
    const neo_schema *s = (const neo_schema *)schema;
    size_t bytes = 24;
    if (!s->fitted) return 0;
    for (int32_t f = 0; f < s->feature_count; f++)
        if (s->has_dict[f])
            bytes += 36 + strlen(s->feature_names[f]) + 4 * (size_t)s->dicts[f].count +
                     (size_t)s->dicts[f].byte_count;
    return bytes;
}
static char *neo__put_bytes(char *p, const char *data, size_t bytes) {
    p = neo__put_le(p, bytes, 4);
    if (bytes) memcpy(p, data, bytes);
    return p + bytes;
}
static neo_status neo__schema_save(const void *object, void *buf) {
    const neo_schema *schema = (const neo_schema *)object;
    char *p = (char *)buf;
    NEO__CHECK(schema->fitted, NEO_ERR_STATE, "the schema's dictionaries are not built yet");
    memcpy(p, "NEODICT2", 8);
    p = neo__put_le(p + 8, (uint64_t)schema->dict_count, 8);
    p = neo__put_le(p, (uint64_t)schema->samples, 8);
    for (int32_t f = 0; f < schema->feature_count; f++) {
        const neo__dict *dict = &schema->dicts[f];
        if (!schema->has_dict[f]) continue;
        p = neo__put_bytes(p, schema->feature_names[f], strlen(schema->feature_names[f]));
        p = neo__put_le(p, (uint64_t)dict->min_count, 8);
        p = neo__put_le(p, (uint64_t)dict->rare, 8);
        p = neo__put_le(p, (uint64_t)dict->dropped, 8);
        p = neo__put_le(p, (uint64_t)dict->count, 8);
        for (int64_t i = 0; i < dict->count; i++)
            p = neo__put_bytes(p, dict->bytes + dict->ends[i],
                               (size_t)(dict->ends[i + 1] - dict->ends[i]));
    }
    NEO_ASSERT((size_t)(p - (char *)buf) == neo__schema_save_size(schema));
    return NEO_OK;
}

typedef struct neo__bytes_in {
    const char *p, *end;
} neo__bytes_in;
static uint64_t neo__get_le(const char *p, int bytes) {
    uint64_t value = 0;
    while (bytes-- > 0) value = value << 8 | (unsigned char)p[bytes];
    return value;
}
static int neo__take_le(neo__bytes_in *in, int bytes, uint64_t *value) {
    if (in->end - in->p < bytes) return 0;
    *value = neo__get_le(in->p, bytes);
    in->p += bytes;
    return 1;
}
static int neo__take_bytes(neo__bytes_in *in, neo__text *text) {
    uint64_t bytes = 0;
    if (!neo__take_le(in, 4, &bytes) || bytes > (uint64_t)(in->end - in->p)) return 0;
    text->p = in->p;
    text->bytes = (size_t)bytes;
    in->p += bytes;
    return 1;
}
/* A count, which is not negative as an i64. */
static int neo__take_count(neo__bytes_in *in, int64_t *count) {
    uint64_t value = 0;
    int good = neo__take_le(in, 8, &value) && value <= INT64_MAX;
    *count = good ? (int64_t)value : 0;
    return good;
}
/* The dictionary of feature f. */
static neo_status neo__dict_load(const neo_schema *schema, int32_t f, int version,
                                 neo__bytes_in *in, neo__dict *dict) {
    static const char corrupt[] = "the saved dictionary of feature '%s' is damaged";
    const char *name = schema->feature_names[f];
    neo__text text;
    uint64_t count = 0;
    int64_t min_count = 0, id;
    NEO__CHECK(neo__take_bytes(in, &text), NEO_ERR_CORRUPT, corrupt, name);
    NEO__CHECK(text.bytes == strlen(name) && memcmp(text.p, name, text.bytes) == 0,
               NEO_ERR_MISMATCH,
               "the saved dictionary is of feature '%.*s', the schema has '%s' there",
               (int)NEO__MIN(text.bytes, 60), text.p, name);
    NEO__CHECK(version == 1 ||
                   (neo__take_count(in, &min_count) && neo__take_count(in, &dict->rare) &&
                    neo__take_count(in, &dict->dropped)),
               NEO_ERR_CORRUPT, corrupt, name);
    NEO__CHECK(min_count == dict->min_count, NEO_ERR_MISMATCH,
               "the saved dictionary of feature '%s' has min_count=%" PRId64
               " (0: none), the schema has %" PRId64,
               name, min_count, dict->min_count);
    NEO__CHECK(neo__take_le(in, 8, &count) && count <= (uint64_t)(in->end - in->p) / 4,
               NEO_ERR_CORRUPT, corrupt, name);
    NEO__CHECK(count <= (uint64_t)dict->max_words, NEO_ERR_MISMATCH,
               "the saved dictionary of feature '%s' has %" PRIu64
               " words, the schema allows %" PRId64,
               name, count, dict->max_words);
    for (uint64_t i = 0; i < count; i++) {
        int known = neo__take_bytes(in, &text) && text.bytes > 0;
        NEO__CHECK(known && (schema->format != NEO_FORMAT_CRITEO || text.bytes == 4),
                   NEO_ERR_CORRUPT, corrupt, name);
        NEO__TRY(neo__dict_add(schema->ctx, dict, text.p, text.bytes, &id));
        NEO__CHECK(dict->count == (int64_t)i + 1, NEO_ERR_CORRUPT, corrupt, name);
    }
    return NEO_OK;
}
static int neo__dict_equal(const neo__dict *a, const neo__dict *b) {
    if (a->count != b->count || a->byte_count != b->byte_count) return 0;
    return a->count == 0 ||
           (memcmp(a->ends, b->ends, (size_t)(a->count + 1) * sizeof *a->ends) == 0 &&
            memcmp(a->bytes, b->bytes, (size_t)a->byte_count) == 0);
}
static neo_status neo__dicts_load(const neo_schema *schema, neo__dict *dicts, const void *buf,
                                  size_t bytes) {
    neo__bytes_in in;
    uint64_t count = 0;
    int64_t samples = 0;
    in.p = (const char *)buf;
    in.end = in.p + bytes;
    int version = bytes < 16 || memcmp(buf, "NEODICT", 7) != 0 ? 0 : in.p[7] - '0';
    NEO__CHECK(version == 1 || version == 2, NEO_ERR_CORRUPT,
               "the saved dictionaries begin with neither NEODICT1 nor NEODICT2");
    in.p += 8;
    neo__take_le(&in, 8, &count);
    NEO__CHECK(version == 1 || neo__take_count(&in, &samples), NEO_ERR_CORRUPT,
               "the saved dictionaries end early");
    NEO__CHECK(count == (uint64_t)schema->dict_count, NEO_ERR_MISMATCH,
               "%" PRIu64 " dictionaries were saved, the schema has %d", count, schema->dict_count);
    for (int32_t f = 0; f < schema->feature_count; f++) {
        if (!schema->has_dict[f]) continue;
        NEO__TRY(neo__dict_load(schema, f, version, &in, &dicts[f]));
        dicts[f].samples = samples;
        NEO__CHECK(!schema->fitted || neo__dict_equal(&dicts[f], &schema->dicts[f]),
                   NEO_ERR_MISMATCH,
                   "the saved dictionary of feature '%s' holds other words than the schema's",
                   schema->feature_names[f]);
    }
    NEO__CHECK(in.p == in.end, NEO_ERR_CORRUPT, "%zu bytes follow the saved dictionaries",
               (size_t)(in.end - in.p));
    return NEO_OK;
}
static void neo__dicts_free(const neo_schema *schema, neo__dict *dicts) {
    for (int32_t f = 0; f < schema->feature_count; f++) neo__dict_free(schema->ctx, &dicts[f]);
    neo_free(schema->ctx, dicts, (size_t)NEO__MAX(schema->feature_count, 1) * sizeof *dicts);
}
/* Fit the schema by dictionaries built beside it (keep; one that is fitted has the same), or free
   them. */
static void neo__schema_install(void *object, void *built, int keep) {
    neo_schema *schema = (neo_schema *)object;
    neo__dict *dicts = (neo__dict *)built;
    for (int32_t f = 0; keep && !schema->fitted && f < schema->feature_count; f++) {
        if (!schema->has_dict[f]) continue;
        neo__dict before = schema->dicts[f];
        schema->dicts[f] = dicts[f];
        schema->rows[f] = dicts[f].count + 1 + (dicts[f].min_count != 0);
        schema->samples = dicts[f].samples;
        dicts[f] = before;
    }
    if (keep) schema->fitted = 1;
    neo__dicts_free(schema, dicts);
}
/* One dictionary per feature, empty. */
static neo_status neo__dicts_create(const neo_schema *s, neo__dict **out) {
    size_t bytes = (size_t)NEO__MAX(s->feature_count, 1) * sizeof **out;
    *out = (neo__dict *)neo__alloc_zero(s->ctx, bytes);
    NEO__CHECK(*out, NEO_ERR_MEMORY, "no memory for %d dictionaries", s->feature_count);
    for (int32_t f = 0; f < s->feature_count; f++) {
        (*out)[f].max_words = s->dicts[f].max_words;
        (*out)[f].min_count = s->dicts[f].min_count;
    }
    return NEO_OK;
}
static neo_status neo__schema_load(const void *object, const void *buf, size_t bytes, void **out) {
    const neo_schema *schema = (const neo_schema *)object;
    neo__dict *dicts;
    NEO__TRY(neo__dicts_create(schema, &dicts));
    neo_status status = neo__dicts_load(schema, dicts, buf, bytes);
    if (status == NEO_OK) *out = dicts;
    else neo__dicts_free(schema, dicts);
    return status;
}
NEO_API neo_status neo_state_add_schema(neo_state *state, neo_schema *schema) {
    static const neo__state_dicts calls = {NULL, neo__schema_save_size, neo__schema_save,
                                           neo__schema_load, neo__schema_install};
    NEO__CHECK(state && schema, NEO_ERR_ARG, "neo_state_add_schema: an argument is NULL");
    NEO__CHECK(!state->dicts.schema, NEO_ERR_ARG,
               "neo_state_add_schema: the state has a schema already");
    if (schema->description_text) {
        char word[24];
        snprintf(word, sizeof word, "crc32c %08" PRIx32, schema->description);
        NEO__TRY(neo_state_define(state, "columns", schema->format == NEO_FORMAT_CRITEO
                                                        ? schema->description_text : word));
    }
    state->dicts = calls;
    state->dicts.schema = schema;
    return NEO_OK;
}

/* ---------------------------------------------------------------------------
   >>impl-number

   Decimal text to the nearest f32, whatever the locale. Callers are inside neo__fp_enter.
   Fast: up to 2^53 times or over a power of ten up to 10^22, both exact in double, so the double
   is the correctly rounded value; it may be rounded again to float unless it lies exactly between
   two floats (then the digits it lost decide). Slow: strtof, which rounds correctly, on the digits
   as an integer and an exponent: a text without a decimal point is the same in every locale.
   ------------------------------------------------------------------------ */
enum { NEO__NUMBER_DIGITS = 128 /* a number halfway between two floats has at most 113 */ };
typedef struct neo__decimal {
    uint64_t high;    /* value of the first 19 digits */
    int32_t digits;   /* significant digits kept in digit[] */
    int32_t exponent; /* value = 0.d1 d2 d3 ... * 10^exponent */
    int negative;
    int more;                            /* nonzero digits beyond those kept */
    char digit[NEO__NUMBER_DIGITS + 16]; /* room for one more digit and "e-123" */
} neo__decimal;

/* The float nearest to d (d.digits > 0, the value within 1e-46 .. 1e39); ties to even. */
static float neo__decimal_exact(neo__decimal *d) {
    int digits = d->digits;
    if (d->more) d->digit[digits++] = '1'; /* above the digits kept, below the next number of 128 */
    snprintf(d->digit + digits, 13, "e%d", d->exponent - digits);
    return strtof(d->digit, NULL);
}
NEO__HOT_BEGIN

/* Take [p, end) apart. 0: not a number. */
static int neo__decimal_scan(const char *p, const char *end, neo__decimal *decimal) {
    int any = 0, point = 0, high_digits = 0;
    decimal->high = 0;
    decimal->digits = decimal->exponent = decimal->more = 0;
    decimal->negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    for (; p < end; p++) {
        unsigned c = (unsigned)(unsigned char)*p - '0';
        if (*p == '.' && !point) {
            point = 1;
            continue;
        }
        if (c > 9) break;
        any = 1;
        if (decimal->digits == 0 && c == 0) { /* leading zeros */
            decimal->exponent -= point;
            continue;
        }
        if (!point) decimal->exponent++;
        if (high_digits < 19) decimal->high = decimal->high * 10 + c, high_digits++;
        if (decimal->digits < NEO__NUMBER_DIGITS) decimal->digit[decimal->digits++] = *p;
        else if (c) decimal->more = 1;
    }
    if (!any) return 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        int negative = ++p < end && *p == '-', value = 0;
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end) return 0;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            if (value < 1000000) value = value * 10 + (*p - '0');
        decimal->exponent += negative ? -value : value;
    }
    return p == end;
}

/* The n bytes at p, 1 to 8, as the highest of 8; below them are 0. */
NEO__INLINE uint64_t neo__bytes_few(const char *p, uint32_t n) {
    const unsigned char *c = (const unsigned char *)p;
    uint32_t half[2];
    if (n < 4)
        return (uint64_t)c[0] << (64 - 8 * n) | (uint64_t)c[n / 2] << (64 - 8 * (n - n / 2)) |
               (uint64_t)c[n - 1] << 56;
    memcpy(&half[0], p, 4);
    memcpy(&half[1], p + n - 4, 4);
    return (uint64_t)half[0] << (64 - 8 * n) | (uint64_t)half[1] << 32;
}
/* n such bytes as a number, which a point may cut. 0: they are none. */
NEO__INLINE int neo__digits_few(uint64_t x, uint32_t n, int whole, uint32_t *value,
                                uint32_t *decimals) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    x ^= '0' * ones << (64 - 8 * n);
    *decimals = 0;
    if (!whole) {
        uint64_t point = x ^ ('.' ^ '0') * ones; /* its lowest 0 byte */
        point = (point - ones) & ~point & 0x80 * ones;
        if (point && n == 1) return 0;
        const uint64_t upto = point ^ (point - 1); /* the bytes before it and itself */
        *decimals = point ? (uint32_t)__builtin_clzll(point) / 8 : 0;
        x = point ? (x & ~upto) | (x & upto >> 8) << 8 : x;
    }
    if ((x | (x + 6 * ones)) & 0xF0 * ones) return 0;
    x = (x * 10 + (x >> 8)) & UINT64_C(0x00FF00FF00FF00FF); /* of two digits, of four, of all */
    x = (x * 100 + (x >> 16)) & UINT64_C(0x0000FFFF0000FFFF);
    *value = (uint32_t)(x * 10000 + (x >> 32));
    return 1;
}
static const double neo__power[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                      1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                      1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
/* 0: the double lies exactly between two floats. */
NEO__INLINE int neo__rounds_once(double v) {
    return (neo__bits_f64(v) & 0x1FFFFFFFu) != 0x10000000u;
}
/* neo__number for what it mostly is: up to 8 characters without exponent. 0: others, or none. */
NEO__INLINE int neo__number_few(const char *p, size_t bytes, float *x) {
    const int negative = bytes > 1 && *p == '-';
    uint32_t value, decimals;
    p += negative, bytes -= (size_t)negative;
    if (bytes - 1 > 7 || !neo__digits_few(neo__bytes_few(p, (uint32_t)bytes), (uint32_t)bytes, 0,
                                          &value, &decimals))
        return 0;
    const double v = decimals ? (double)value / neo__power[decimals] : (double)value;
    *x = negative ? -(float)v : (float)v;
    return neo__rounds_once(v);
}
enum { NEO__NUMBER_OK, NEO__NUMBER_BAD, NEO__NUMBER_RANGE };
/* neo__number: the text as a float. [+-] digits [. digits] [e [+-] digits]; no other form (no inf,
   nan, hex). A result too large for f32 is NEO__NUMBER_RANGE; one too small is a denormal or 0. */
static int neo__number(const char *text, size_t bytes, float *out) {
    neo__decimal decimal;
    float x = 0.0f;
    *out = 0.0f;
    if (bytes > 1 << 20 || !neo__decimal_scan(text, text + bytes, &decimal)) return NEO__NUMBER_BAD;
    if (decimal.digits > 0 && decimal.exponent > 39) return NEO__NUMBER_RANGE;
    if (decimal.digits > 0 && decimal.exponent >= -46) {
        int scale = decimal.exponent - NEO__MIN(decimal.digits, 19);
        int exact = decimal.digits <= 19 && decimal.high <= (uint64_t)1 << 53 && scale >= -22 &&
                    scale <= 22;
        if (exact) {
            double v = (double)decimal.high;
            v = scale < 0 ? v / neo__power[-scale] : v * neo__power[scale];
            exact = v >= 0x1p-125 && neo__rounds_once(v);
            if (exact) x = (float)v; /* may be infinity */
        }
        if (!exact) x = neo__decimal_exact(&decimal);
        if (neo__bits_f32(x) == 0x7F800000u) return NEO__NUMBER_RANGE;
    }
    *out = decimal.negative ? -x : x;
    return NEO__NUMBER_OK;
}
NEO__HOT_END
/* ---------------------------------------------------------------------------
   >>impl-columns

   The column description (see neo_schema_parse). A neo__line walks its text line by line and word
   by word; a line becomes a column and its operations. Crosses find their other column, and the
   outputs their numbers, when all lines are known. Messages name file, line and column.
   ------------------------------------------------------------------------ */
enum { NEO__COLUMNS_MAX = 4096, NEO__OPS_MAX = 16384, NEO__DESCRIPTION_BYTES = 4 << 20 };

/* A path as a reader names it in messages. */
static const char *neo__path_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- texts ---- */
NEO__HOT_BEGIN
static int neo__is_space(char c) { return c == ' ' || c == '\t'; }
static neo__text neo__text_of(const char *p, const char *end) {
    neo__text t;
    t.p = p;
    t.bytes = (size_t)(end - p);
    return t;
}
static neo__text neo__trim(const char *p, const char *end) {
    while (p < end && neo__is_space(*p)) p++;
    while (end > p && neo__is_space(end[-1])) end--;
    return neo__text_of(p, end);
}
NEO__INLINE int neo__text_equal(neo__text a, neo__text b) {
    if (a.bytes != b.bytes || (a.bytes > 0 && a.p[0] != b.p[0])) return 0;
    return memcmp(a.p, b.p, a.bytes) == 0;
}
/* The part of `rest` up to the next c, which is cut off; 0: nothing is left (rest->p NULL). */
static int neo__text_part(neo__text *rest, char c, neo__text *part) {
    if (!rest->p) return 0;
    const char *end = rest->p + rest->bytes;
    const char *stop = (const char *)memchr(rest->p, c, rest->bytes);
    *part = neo__text_of(rest->p, stop ? stop : end);
    rest->p = stop ? stop + 1 : NULL;
    rest->bytes = stop ? (size_t)(end - stop - 1) : 0;
    return 1;
}
NEO__HOT_END
/* Bytes of the mark of UTF-8 (a byte-order mark) that the text of a file may begin with. */
static int neo__mark_bytes(const char *p, const char *end) {
    return end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}
static int neo__text_is(neo__text t, const char *word) {
    return t.bytes == strlen(word) && memcmp(t.p, word, t.bytes) == 0;
}
/* 1: the text is key=value. */
static int neo__text_value(neo__text t, const char *key, neo__text *value) {
    size_t n = strlen(key);
    if (t.bytes < n + 1 || memcmp(t.p, key, n) != 0 || t.p[n] != '=') return 0;
    *value = neo__text_of(t.p + n + 1, t.p + t.bytes);
    return 1;
}
static size_t neo__text_count(neo__text t, char c) {
    size_t count = 0;
    for (size_t i = 0; i < t.bytes; i++) count += t.p[i] == c;
    return count;
}
/* The part of a text that a message shows: "%.*s", NEO__SHOW(t). */
#define NEO__SHOW(t) (int)NEO__MIN((t).bytes, (size_t)60), (t).p

/* ---- lines of words ---- */
typedef struct neo__line {
    const char *path;            /* for messages */
    int32_t number;              /* from 1 */
    const char *begin, *p, *end; /* the line without its comment; p: what is not read yet */
    const char *at;              /* the word that messages point at */
    int comment;                 /* one was cut off */
    neo__dict columns, features; /* names so far */
} neo__line;

static neo_status neo__line_fail(const neo__line *line, const char *format, ...) NEO__PRINTF(2, 3);
static neo_status neo__line_fail(const neo__line *line, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return neo_fail(NEO_ERR_FORMAT, "%s:%d:%d: %s", line->path, line->number,
                    (int)(line->at - line->begin) + 1, text);
}
/* The end of a line without its comment: a # at the start or behind a blank, outside of a text in
   double quotes. Such a text is the line's first word, or behind cross, missing or comment. */
static const char *neo__line_stop(const char *p, const char *end) {
    for (int text = 1;;) {
        while (p < end && neo__is_space(*p)) p++;
        if (p == end || *p == '#') return p;
        const char *word = p, *stop = NULL;
        if (text && *p == '"') stop = (const char *)memchr(p + 1, '"', (size_t)(end - p - 1));
        for (p = stop ? stop : p; p < end && !neo__is_space(*p);) p++;
        neo__text t = neo__text_of(word, p);
        text = neo__text_is(t, "cross") || neo__text_is(t, "missing") || neo__text_is(t, "comment");
    }
}
/* The next line of `rest`; 0: none. */
static int neo__line_next(neo__line *line, neo__text *rest) {
    neo__text all;
    if (!neo__text_part(rest, '\n', &all)) return 0;
    line->number++;
    line->begin = line->at = line->p = all.p;
    line->end = all.p + all.bytes;
    if (line->end > line->begin && line->end[-1] == '\r') line->end--;
    const char *stop = neo__line_stop(line->begin, line->end);
    line->comment = stop < line->end;
    line->end = stop;
    return 1;
}
/* The next word of the line, which stays unread until neo__line_take; 0: none. */
static int neo__line_peek(neo__line *line, neo__text *word) {
    while (line->p < line->end && neo__is_space(*line->p)) line->p++;
    const char *stop = line->p;
    while (stop < line->end && !neo__is_space(*stop)) stop++;
    *word = neo__text_of(line->p, stop);
    return word->bytes > 0;
}
static int neo__line_take(neo__line *line, neo__text *word) {
    int found = neo__line_peek(line, word);
    line->at = line->p;
    line->p += word->bytes;
    return found;
}
static neo_status neo__line_count(const neo__line *line, neo__text t, int64_t least, int64_t *out) {
    int64_t n = 0;
    int good = t.bytes > 0 && t.bytes <= 15;
    for (size_t i = 0; good && i < t.bytes; i++) {
        good = t.p[i] >= '0' && t.p[i] <= '9';
        n = n * 10 + (t.p[i] - '0');
    }
    if (!good || n < least)
        return neo__line_fail(line, "expected a whole number from %" PRId64 " to 999999999999999, "
                                    "found '%.*s'", least, NEO__SHOW(t));
    *out = n;
    return NEO_OK;
}
static neo_status neo__line_number(const neo__line *line, neo__text t, float *out) {
    if (neo__number(t.p, t.bytes, out) != NEO__NUMBER_OK)
        return neo__line_fail(line, "expected a number, found '%.*s'", NEO__SHOW(t));
    return NEO_OK;
}

static neo_status neo__schema_keep(neo_schema *s, neo__text t, neo__text *out) {
    char *copy = neo__arena_text(&s->arena, t.p, t.bytes);
    NEO__CHECK(copy, NEO_ERR_MEMORY, "neo_schema_parse: no memory for the description");
    out->p = copy;
    out->bytes = t.bytes;
    return NEO_OK;
}

/* ---- columns ---- */
/* A column's name: a word, or text in double quotes. *quoted: it is no setting. 0: none. */
static neo_status neo__line_name(neo__line *line, neo__text *name, int *quoted) {
    *quoted = neo__line_peek(line, name) && name->p[0] == '"';
    line->at = line->p;
    if (*quoted) {
        neo__text rest = neo__text_of(line->p + 1, line->end);
        const char *stop = (const char *)memchr(rest.p, '"', rest.bytes);
        if (!stop || stop == rest.p || (stop + 1 < line->end && !neo__is_space(stop[1])))
            return neo__line_fail(line, "expected \"name\"");
        *name = neo__text_of(rest.p, stop);
        line->p = stop + 1;
    } else {
        line->p += name->bytes;
    }
    return NEO_OK;
}
/* positive=word,word */
static neo_status neo__describe_positive(neo_schema *s, neo__line *line, neo__text list,
                                         neo__op *op) {
    neo__text word;
    NEO__TRY(NEO__ARENA(&s->arena, op->words, neo__text_count(list, ',') + 1));
    while (neo__text_part(&list, ',', &word)) {
        if (word.bytes == 0) return neo__line_fail(line, "positive= has an empty word");
        NEO__TRY(neo__schema_keep(s, word, &op->words[op->word_count++]));
    }
    return NEO_OK;
}
/* The words behind an operation that set it up, up to the first that does not. */
static neo_status neo__describe_options(neo_schema *schema, neo__line *line, neo__op *op) {
    const neo__op_kind kind = op->kind;
    const int dense = kind == NEO__OP_DENSE;
    const int ids = kind == NEO__OP_CATEGORY || kind == NEO__OP_LIST || kind == NEO__OP_CROSS;
    neo__text word, value;
    for (; neo__line_peek(line, &word); line->p = word.p + word.bytes) {
        float number = 0.0f;
        line->at = word.p;
        if (dense && neo__text_is(word, "log")) {
            op->log = 1;
        } else if (dense && neo__text_value(word, "shift", &value)) {
            NEO__TRY(neo__line_number(line, value, &number));
            op->shift = (double)number;
        } else if (dense && neo__text_value(word, "scale", &value)) {
            NEO__TRY(neo__line_number(line, value, &number));
            op->scale = (double)number;
        } else if (dense && neo__text_value(word, "missing", &value)) {
            NEO__TRY(neo__line_number(line, value, &op->missing));
        } else if (ids && kind != NEO__OP_CROSS && neo__text_is(word, "hash")) {
            op->hashed = 1;
        } else if (ids && neo__text_value(word, "rows", &value)) {
            NEO__TRY(neo__line_count(line, value, 2, &op->rows));
        } else if (ids && kind != NEO__OP_CROSS && neo__text_value(word, "min_count", &value)) {
            NEO__TRY(neo__line_count(line, value, 2, &op->min_count));
        } else if (kind == NEO__OP_LIST && neo__text_value(word, "sep", &value)) {
            if (value.bytes != 1) return neo__line_fail(line, "sep= needs one character");
            op->separator = value.p[0];
        } else if (kind == NEO__OP_LIST && neo__text_value(word, "weight", &value)) {
            if (value.bytes != 1) return neo__line_fail(line, "weight= needs one character");
            op->weight = value.p[0];
        } else if (kind == NEO__OP_LIST && neo__text_is(word, "normalize")) {
            op->normalize = 1;
        } else if (kind == NEO__OP_LABEL && !op->words &&
                   neo__text_value(word, "positive", &value)) {
            NEO__TRY(neo__describe_positive(schema, line, value, op));
        } else if (kind == NEO__OP_LABEL && neo__text_value(word, "weight", &value)) {
            NEO__TRY(neo__line_number(line, value, &number));
            if (!(number > 0.0f)) return neo__line_fail(line, "weight= of a label is above 0");
            op->scale = (double)number;
        } else {
            break;
        }
    }
    return NEO_OK;
}
static neo_status neo__describe_bucket(neo_schema *schema, neo__line *line, neo__op *op) {
    neo__text list, word;
    if (!neo__line_take(line, &list))
        return neo__line_fail(line, "bucket needs its edges: e1,e2,...");
    NEO__TRY(NEO__ARENA(&schema->arena, op->edges, neo__text_count(list, ',') + 1));
    while (neo__text_part(&list, ',', &word)) {
        float *edge = &op->edges[op->edge_count];
        line->at = word.p;
        NEO__TRY(neo__line_number(line, word, edge));
        if (op->edge_count > 0 && !(edge[0] > edge[-1]))
            return neo__line_fail(line, "edges must rise");
        op->edge_count++;
    }
    op->rows = (int64_t)op->edge_count + 2;
    return NEO_OK;
}
static const char *const neo__column_kinds[] = {/* in the order of neo__op_kind */
                                                "label",  "dense", "category",
                                                "bucket", "cross", "list", "sample-weight"};
enum { NEO__COLUMN_KINDS = sizeof neo__column_kinds / sizeof neo__column_kinds[0] };
enum {
    NEO__SET_HEADER,
    NEO__SET_SKIP_LINES,
    NEO__SET_DELIMITER,
    NEO__SET_QUOTE,
    NEO__SET_MISSING,
    NEO__SET_COMMENT,
    NEO__SETTINGS
};
static const char *const neo__settings[NEO__SETTINGS] = {"header", "skip-lines", "delimiter",
                                                         "quote",  "missing",    "comment"};
/* The place of a word among `count` of them; count: it is none. */
static int neo__text_among(neo__text word, const char *const *words, int count) {
    int place = 0;
    while (place < count && !neo__text_is(word, words[place])) place++;
    return place;
}
/* The operation called so; NEO__COLUMN_KINDS: none. */
static int neo__column_kind(neo__text word) {
    return neo__text_among(word, neo__column_kinds, NEO__COLUMN_KINDS);
}
/* One operation, its kind just read. */
static neo_status neo__describe_op(neo_schema *schema, neo__line *line, neo__op *op) {
    const char *start = line->at;
    neo__text word;
    if (op->kind == NEO__OP_LABEL) {
        if (schema->columns[op->column].is_label++)
            return neo__line_fail(line, "a second label of one column");
        op->out = schema->label_columns++;
    }
    if (op->kind == NEO__OP_SAMPLE_WEIGHT && schema->sample_weighted++)
        return neo__line_fail(line, "a second sample-weight");
    if (op->kind == NEO__OP_DENSE) op->scale = 1.0;
    if (op->kind == NEO__OP_BUCKET) return neo__describe_bucket(schema, line, op);
    if (op->kind == NEO__OP_CROSS) {
        int quoted;
        NEO__TRY(neo__line_name(line, &word, &quoted));
        if (word.bytes == 0) return neo__line_fail(line, "cross needs the other column");
        NEO__TRY(NEO__ARENA(&schema->arena, op->words, 1));
        NEO__TRY(neo__schema_keep(schema, word, op->words));
    }
    NEO__TRY(neo__describe_options(schema, line, op));
    if (neo__line_peek(line, &word) && !neo__text_is(word, "skip") &&
        neo__column_kind(word) == NEO__COLUMN_KINDS)
        return NEO_OK; /* neo__describe_column refuses that word */
    line->at = start;
    if (op->kind == NEO__OP_CROSS) {
        op->hashed = 1;
        return op->rows ? NEO_OK : neo__line_fail(line, "a cross needs rows=");
    }
    if (op->hashed && op->rows == 0) return neo__line_fail(line, "a hashed feature needs rows=");
    if (op->hashed && op->min_count)
        return neo__line_fail(line, "min_count= needs a dictionary, which hash has not");
    if (op->kind == NEO__OP_LIST && !op->separator)
        return neo__line_fail(line, "a list needs sep=");
    if (op->weight && op->weight == op->separator)
        return neo__line_fail(line, "sep= and weight= are the same");
    if (op->normalize && !op->weight) return neo__line_fail(line, "normalize needs weight=");
    return NEO_OK;
}
/* Letters to change, insert or leave out to make b of a; 99: too long to count. */
static int neo__text_distance(neo__text a, const char *b) {
    int row[24], length = (int)strlen(b);
    if (a.bytes > 23 || length > 23) return 99;
    for (int k = 0; k <= length; k++) row[k] = k;
    for (int i = 0; i < (int)a.bytes; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int k = 0; k < length; k++) {
            int change = corner + (a.p[i] != b[k]);
            corner = row[k + 1];
            row[k + 1] = NEO__MIN(change, NEO__MIN(row[k], corner) + 1);
        }
    }
    return row[length];
}
typedef struct neo__hint {
    char text[96];
} neo__hint;
/* A guess at what was meant by a line that describes no column: a setting, if the name is one and
   not in quotes; the option next to the word; or a name of several words, if an operation is
   further on in the line, or a comment cuts it. */
static neo__hint neo__describe_hint(const neo__line *line, neo__text name, int quoted,
                                    neo__text word) {
    static const char *const options[] = {
        "label",  "dense",  "category",  "bucket",     "cross",  "list",
        "skip",   "log",    "hash",      "rows=",      "sep=",   "missing=",
        "scale=", "shift=", "positive=", "min_count=", "weight=", "normalize",
        "sample-weight"};
    neo__hint hint = {""};
    const int setting = neo__text_among(name, neo__settings, NEO__SETTINGS);
    if (!quoted && setting < NEO__SETTINGS) {
        snprintf(hint.text, sizeof hint.text, " ('%s' is a setting: before the columns)",
                 neo__settings[setting]);
        return hint;
    }
    const char *equal = (const char *)memchr(word.p, '=', word.bytes);
    neo__text key = equal ? neo__text_of(word.p, equal + 1) : word;
    int best = 3;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        int distance = neo__text_distance(key, options[i]);
        if (distance >= best || distance * 2 >= (int)strlen(options[i])) continue;
        best = distance;
        const char *form = distance ? " (did you mean %s?)"
                                    : " (%s comes behind what a column is, as category)";
        snprintf(hint.text, sizeof hint.text, form, options[i]);
    }
    neo__line rest = *line;
    const char *stop = word.bytes ? NULL : line->end;
    for (; best == 3 && !stop && neo__line_take(&rest, &word);)
        if (neo__column_kind(word) < NEO__COLUMN_KINDS || neo__text_is(word, "skip"))
            stop = rest.at;
    if (!quoted && stop && (word.bytes || line->comment))
        snprintf(hint.text, sizeof hint.text,
                 " (a name with spaces or # stands in double quotes: \"%.*s%s\")",
                 NEO__SHOW(neo__trim(name.p, stop)), word.bytes ? "" : " #...");
    return hint;
}
/* Add a name to a set of names: its number, from 0, and whether it is there already. */
static neo_status neo__name_add(neo_ctx *ctx, neo__dict *names, neo__text name, int64_t *number,
                                int *there) {
    int64_t before = names->count;
    names->max_words = (int64_t)0xFFFFFFFE;
    NEO__TRY(neo__dict_add(ctx, names, name.p, name.bytes, number));
    *there = names->count == before;
    --*number;
    return NEO_OK;
}
static neo_status neo__describe_column(neo_schema *schema, neo__line *line, neo__text name,
                                       int quoted) {
    NEO__ZERO(neo__text, word);
    int32_t column = schema->column_count, count = 0;
    int64_t number;
    int there, words = 0;
    if (column == NEO__COLUMNS_MAX)
        return neo__line_fail(line, "more than %d columns", NEO__COLUMNS_MAX);
    NEO__TRY(neo__name_add(schema->ctx, &line->columns, name, &number, &there));
    if (there)
        return neo__line_fail(line, "column '%.*s' is on line %d already", NEO__SHOW(name),
                              schema->columns[number].line);
    NEO__TRY(neo__schema_keep(schema, name, &word));
    schema->columns[column].name = word.p;
    schema->columns[column].line = line->number;
    schema->column_count++;
    for (; neo__line_take(line, &word); count++) {
        if (neo__text_is(word, "skip")) continue;
        int kind = neo__column_kind(word);
        if (kind == NEO__COLUMN_KINDS)
            return neo__line_fail(line,
                                  "expected %slabel, dense, category, bucket, cross, list, "
                                  "sample-weight or skip, found '%.*s'%s",
                                  count ? "an option, " : "", NEO__SHOW(word),
                                  neo__describe_hint(line, count ? neo__text_of("", "") : name,
                                                     quoted || count, word)
                                      .text);
        if ((kind == NEO__OP_CATEGORY || kind == NEO__OP_LIST) && words++)
            return neo__line_fail(line,
                                  "the column is a feature of words already, and a list is a "
                                  "category of several words: write one of them, as in: "
                                  "%.*s list sep=| rows=1000",
                                  NEO__SHOW(name));
        if (schema->op_count == NEO__OPS_MAX)
            return neo__line_fail(line, "the columns become more than %d numbers and features",
                                  NEO__OPS_MAX);
        neo__op *op = &schema->ops[schema->op_count++];
        op->kind = (neo__op_kind)kind;
        op->column = column;
        NEO__TRY(neo__describe_op(schema, line, op));
    }
    if (count == 0)
        return neo__line_fail(line, "column '%.*s': expected what it becomes (skip: nothing)%s",
                              NEO__SHOW(name),
                              neo__describe_hint(line, name, quoted, neo__text_of("", "")).text);
    return NEO_OK;
}

/* One more word of a setting that may be repeated; it may stand in double quotes. */
static neo_status neo__describe_word(neo_schema *schema, neo__line *line, neo__text word,
                                     const char *what, neo__text *list, int32_t *count) {
    if (word.bytes > 2 && word.p[0] == '"' && word.p[word.bytes - 1] == '"') {
        word.p++;
        word.bytes -= 2;
    }
    if (word.bytes == 0) return neo__line_fail(line, "expected %s", what);
    if (*count == NEO__COLUMNS_MAX)
        return neo__line_fail(line, "more than %d such lines", NEO__COLUMNS_MAX);
    return neo__schema_keep(schema, word, &list[(*count)++]);
}
/* The lines before the columns. *known 0: it is none of them. */
static neo_status neo__describe_setting(neo_schema *schema, neo__line *line, neo__text name,
                                        int *known) {
    neo__text rest = neo__trim(line->p, line->end), first;
    const int setting = neo__text_among(name, neo__settings, NEO__SETTINGS);
    *known = setting < NEO__SETTINGS && (setting != NEO__SET_HEADER || rest.bytes == 0);
    if (*known && setting == NEO__SET_HEADER) schema->header = 1;
    if (!*known || setting == NEO__SET_HEADER) return NEO_OK;
    if (neo__line_peek(line, &first) &&
        (neo__text_is(first, "skip") || neo__column_kind(first) < NEO__COLUMN_KINDS)) {
        line->at = name.p;
        return neo__line_fail(line,
                              "'%.*s' is a setting: a column of that name stands in double quotes, "
                              "as in: \"%.*s\" %.*s",
                              NEO__SHOW(name), NEO__SHOW(name), NEO__SHOW(first));
    }
    line->at = rest.p;
    if (setting == NEO__SET_SKIP_LINES)
        return neo__line_count(line, rest, 0, &schema->skip_lines);
    if (setting == NEO__SET_DELIMITER) {
        if (neo__text_is(rest, "tab") || neo__text_is(rest, "space")) {
            rest.p = rest.p[0] == 't' ? "\t" : " ";
            rest.bytes = 1;
        }
        if (rest.bytes < 1 || rest.bytes >= sizeof schema->delimiter)
            return neo__line_fail(line, "expected a delimiter of 1 to %d bytes",
                                  (int)sizeof schema->delimiter - 1);
        if (schema->quote && memchr(rest.p, schema->quote, rest.bytes))
            return neo__line_fail(line, "the delimiter holds the quote");
        memset(schema->delimiter, 0, sizeof schema->delimiter);
        memcpy(schema->delimiter, rest.p, rest.bytes);
        schema->delimiter_bytes = (int32_t)rest.bytes;
        return NEO_OK;
    }
    if (setting == NEO__SET_QUOTE) {
        if (rest.bytes != 1 || memchr(schema->delimiter, rest.p[0], sizeof schema->delimiter))
            return neo__line_fail(line, "expected one character that is not in the delimiter");
        schema->quote = rest.p[0];
        return NEO_OK;
    }
    if (setting == NEO__SET_MISSING)
        return neo__describe_word(schema, line, rest, "the word that means no value",
                                  schema->missing, &schema->missing_count);
    return neo__describe_word(schema, line, rest,
                              "what comment lines begin with (# in double quotes: comment \"#\")",
                              schema->comments, &schema->comment_count);
}

static neo_status neo__describe_lines(neo_schema *schema, neo__line *line, neo__text rest) {
    while (neo__line_next(line, &rest)) {
        neo__text name;
        int known = 0, quoted;
        NEO__TRY(neo__line_name(line, &name, &quoted));
        if (name.bytes == 0) continue;
        if (schema->column_count == 0 && !quoted)
            NEO__TRY(neo__describe_setting(schema, line, name, &known));
        line->at = name.p - quoted;
        if (!known) NEO__TRY(neo__describe_column(schema, line, name, quoted));
    }
    return NEO_OK;
}

/* Give an output its name and its size. */
static neo_status neo__describe_feature(neo_schema *schema, neo__line *line, neo__op *op) {
    const char *name = schema->columns[op->column].name;
    int64_t number;
    int there;
    if (op->kind == NEO__OP_CROSS) {
        const neo__text t = op->words[0];
        number = neo__dict_find(&line->columns, t.p, t.bytes);
        if (number == 0)
            return neo__line_fail(line, "cross: there is no column '%.*s'", NEO__SHOW(t));
        op->other = (int32_t)number - 1;
        NEO__TRY(
            neo__schema_name(schema, op->out, "%s_x_%s", name, schema->columns[op->other].name));
    } else {
        const char *form = op->kind == NEO__OP_BUCKET ? "%s_bucket" : "%s";
        NEO__TRY(neo__schema_name(schema, op->out, form, name));
    }
    name = schema->feature_names[op->out];
    NEO__TRY(neo__name_add(schema->ctx, &line->features, neo__text_of(name, name + strlen(name)),
                           &number, &there));
    if (there) return neo__line_fail(line, "feature '%s' is there already", name);
    schema->rows[op->out] = op->rows;
    schema->max_rows[op->out] = op->rows ? op->rows : (int64_t)0xFFFFFFFF;
    schema->has_dict[op->out] =
        (op->kind == NEO__OP_CATEGORY || op->kind == NEO__OP_LIST) && !op->hashed;
    schema->dicts[op->out].min_count = op->min_count;
    if (op->kind == NEO__OP_LIST) schema->multi = 1;
    if (op->weight) schema->weighted = 1;
    return NEO_OK;
}
/* Which columns an operation looks at. */
static neo_status neo__describe_used(neo_schema *schema) {
    int32_t *target;
    NEO__TRY(NEO__ARENA(&schema->arena, target, schema->column_count));
    for (int32_t c = 0; c < schema->column_count; c++) target[c] = -1;
    for (int32_t i = 0; i < schema->op_count; i++) {
        const neo__op *op = &schema->ops[i];
        target[op->column] = op->column;
        if (op->kind == NEO__OP_CROSS) target[op->other] = op->other;
    }
    neo__target_runs(target, schema->column_count);
    schema->target = target;
    return NEO_OK;
}
static int neo__op_is_feature(const neo__op *op) {
    return op->kind != NEO__OP_LABEL && op->kind != NEO__OP_DENSE &&
           op->kind != NEO__OP_SAMPLE_WEIGHT;
}
static neo_status neo__describe_finish(neo_schema *schema, neo__line *line) {
    int32_t dense = 0, features = 0;
    line->at = line->begin;
    for (int32_t i = 0; i < schema->op_count; i++) {
        neo__op *op = &schema->ops[i];
        if (op->kind == NEO__OP_DENSE) op->out = dense++;
        else if (neo__op_is_feature(op)) op->out = features++;
    }
    if (schema->op_count == 0) return neo__line_fail(line, "no column is used");
    NEO__TRY(neo__schema_features(schema, dense, features));
    NEO__TRY(neo__schema_labels(schema, NEO__MAX(schema->label_columns, 1)));
    for (int32_t i = 0; i < schema->op_count; i++) {
        neo__op *op = &schema->ops[i];
        line->number = schema->columns[op->column].line;
        if (op->kind == NEO__OP_LABEL && op->scale > 0.0 && !schema->labels)
            return neo__line_fail(line, "weight= of the only label: there is no other to weigh it "
                                        "against (a sample's weight is a column: sample-weight)");
        if (op->kind == NEO__OP_LABEL && schema->labels) {
            schema->labels[op->out].name = schema->columns[op->column].name;
            if (op->scale > 0.0) schema->labels[op->out].weight = (float)op->scale;
        }
        if (!neo__op_is_feature(op)) continue;
        NEO__TRY(neo__describe_feature(schema, line, &schema->ops[i]));
    }
    NEO__TRY(neo__describe_used(schema));
    neo__schema_end(schema);
    return NEO_OK;
}
/* A description without empty lines and the blanks that end lines, to `to` (NULL: only counted). */
static size_t neo__describe_squeeze(neo__text text, char *to) {
    const char *const end = text.p + text.bytes;
    size_t used = 0;
    for (const char *p = text.p, *stop; p < end; p = stop + 1) {
        stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        size_t bytes = (size_t)(stop - p);
        while (bytes > 0 && strchr(" \t\r", p[bytes - 1])) bytes--;
        if (bytes == 0) continue;
        if (to) memcpy(to + used, p, bytes);
        used += bytes;
        if (to) to[used] = '\n';
        used++;
    }
    return used;
}
static neo_status neo__describe_text(neo_schema *schema, const char *path, neo__text text) {
    text = neo__text_of(text.p + neo__mark_bytes(text.p, text.p + text.bytes), text.p + text.bytes);
    size_t lines = 1 + neo__text_count(text, '\n');
    size_t words = lines + neo__text_count(text, ' ') + neo__text_count(text, '\t');
    NEO__ZERO(neo__line, line);
    line.path = path;
    line.begin = line.at = text.p;
    const char *wrong = memchr(text.p, 0, text.bytes) ? "a NUL byte (UTF-16? use iconv)" : NULL;
    if (!wrong && lines == 1 && text.bytes > 1 && memchr(text.p, '\r', text.bytes - 1))
        wrong = "lines that end with \\r alone: use tr '\\r' '\\n'";
    NEO__CHECK(!wrong, NEO_ERR_FORMAT, "%s:1:1: %s", path, wrong);
    schema->description = neo_crc32c(0, text.p, text.bytes);
    NEO__TRY(NEO__ARENA(&schema->arena, schema->description_text,
                        neo__describe_squeeze(text, NULL) + 1)); /* for neo_schema_describe */
    (void)neo__describe_squeeze(text, schema->description_text);
    lines = NEO__MIN(lines, (size_t)NEO__COLUMNS_MAX);
    NEO__TRY(NEO__ARENA(&schema->arena, schema->columns, lines));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->ops, NEO__MIN(words, (size_t)NEO__OPS_MAX)));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->missing, lines));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->comments, lines));
    schema->delimiter[0] = ',';
    schema->delimiter_bytes = 1;
    neo_status status = neo__describe_lines(schema, &line, text);
    if (status == NEO_OK) status = neo__describe_finish(schema, &line);
    neo__dict_free(schema->ctx, &line.columns);
    neo__dict_free(schema->ctx, &line.features);
    return status;
}
static neo_status neo__describe_file(neo_schema *schema, const char *path) {
    neo__arena arena = {schema->ctx, NULL, NULL, 0, "neo_schema_parse"};
    char *text;
    int64_t bytes;
    neo__path_kind kind;
    NEO__TRY(neo__path_look(path, &kind));
    NEO__CHECK(kind != NEO__PATH_OTHER, NEO_ERR_FORMAT,
               "%s: not a column description (a pipe, a device or a broken link)", path);
    neo_status status = neo__file_load(&arena, path, NEO__DESCRIPTION_BYTES, &text, &bytes);
    if (status == NEO_OK && !text)
        status = neo_fail(NEO_ERR_FORMAT, "%s: not a column description (a file of up to %d bytes)",
                          path, NEO__DESCRIPTION_BYTES);
    if (status == NEO_OK)
        status = neo__describe_text(schema, path, neo__text_of(text, text + bytes));
    neo__arena_free(&arena);
    return status;
}
NEO_API neo_status neo_schema_parse(neo_ctx *ctx, const char *path_or_text, neo_schema **schema) {
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_parse", NEO_FORMAT_DELIMITED, path_or_text, schema,
                               &s));
    neo__text text = {path_or_text, strlen(path_or_text)};
    neo__fp_state fp = neo__fp_enter();
    neo_status status = strchr(path_or_text, '\n') ? neo__describe_text(s, "columns", text)
                                                   : neo__describe_file(s, path_or_text);
    neo__fp_leave(fp);
    return neo__schema_done(s, status, schema);
}
/* ---------------------------------------------------------------------------
   >>impl-parse

   Text is parsed block by block: whole lines, as the source cut them, always ended by \n and
   followed by 64 more bytes that may be read, so inner loops need no end test: every field stops
   at a \n at the latest. A block's buffers are sized for the worst case (every line as short as it
   can be), so parsing allocates nothing. Lines are counted from the start of the block; the stage
   that puts blocks in order adds the lines before it.
   ------------------------------------------------------------------------ */
#ifndef NEO__CHUNK_BYTES
#define NEO__CHUNK_BYTES 131072 /* of text in a block */
#endif
#ifndef NEO__LINE_BYTES
#define NEO__LINE_BYTES 65536 /* longest line; at most NEO__CHUNK_BYTES / 2 */
#endif
#ifndef NEO__RECORDS_BYTES
#define NEO__RECORDS_BYTES (32 << 20) /* of samples in a block of text, or one more sample */
#endif
#ifndef NEO__LINE_DROP
#define NEO__LINE_DROP (1 << 30) /* longest line that is skipped */
#endif
enum {
    NEO__BLOCK_PAD = 64,
    NEO__BLOCK_ISSUES = 4, /* bad lines of a block that keep their message */
    NEO__ISSUE_TEXT = 208
};

/* A field for a message: in quotes, cut, with a ? for bytes that cannot be shown. */
typedef struct neo__quoted {
    char text[48];
} neo__quoted;
/* Different labels. */
enum { NEO__LABELS = 4 };
typedef struct neo__labels {
    int count; /* one more than there is room for: not all are here */
    neo__quoted label[NEO__LABELS];
} neo__labels;
/* Counts of a label with positive=; of the first labels. */
enum { NEO__WATCHED = 4 };
typedef struct neo__watch {
    int64_t labels, positive;
    neo__labels negative; /* the first others, while none is positive */
} neo__watch;
/* The lines of a file, as its header says. */
typedef struct neo__head {
    int32_t fields;  /* of a line */
    int labeled;     /* the label is among them */
    int32_t *target; /* [fields]: the column of the description that each is; -n: it and the n - 1
                        behind it are not used. NULL: there is no header, and a line has the columns
                        of the description in order */
} neo__head;

enum { NEO__ROW_FILES = 3 }; /* dense, sparse, labels; of records: one */
typedef struct neo__npy_info {
    neo_dtype dtype;
    int f64; /* dtype is then NEO_F32, the file holds doubles */
    int32_t ndim;
    int64_t shape[NEO_MAX_DIMS];
    int64_t data_offset; /* of the first element, in the file */
    size_t item_bytes;
} neo__npy_info;
/* Rows of a file, each of some elements: an array, or a part of records. The planes of a sample are
   label, dense, and either all features or one for each. */
typedef struct neo__plane {
    neo_dtype dtype;
    int f64; /* as in neo__npy_info */
    int is_unsigned; /* NEO_I32 is */
    size_t item_bytes;
    int file;
    int64_t offset;    /* of the first row, in the file */
    int64_t row_bytes; /* from one row to the next */
    int64_t within;    /* not 0: part of the rows of plane 0, at this byte of them */
    size_t at;         /* where a block's rows of it begin in its bytes */
} neo__plane;
enum { NEO__PLANE_LABEL, NEO__PLANE_DENSE, NEO__PLANE_IDS };
/* libsvm, libffm: one index of a line. */
typedef struct neo__svm_pair {
    int64_t id;
    float weight;
    int32_t field;
} neo__svm_pair;
enum { NEO__SVM_PAIRS = NEO__LINE_BYTES / 3 + 1 }; /* "1:1" */
typedef struct neo__svm_sizes neo__svm_sizes;

typedef struct neo__issue {
    neo_status status;
    int64_t line;   /* from 0, in the block */
    int64_t column; /* from 1; 0: the message follows the path directly */
    char text[NEO__ISSUE_TEXT];
} neo__issue;

/* The samples of an epoch that belong to this rank; those of others need not be read or parsed. */
typedef struct neo__share {
    int64_t batch, total;   /* samples of a whole batch, of all */
    int64_t window;         /* from one place that all ranks know to the next */
    int shards, first, end; /* it has leaves [first, end) of them */
    int shuffled;           /* samples change their places within a window */
    uint64_t seed;          /* that with the epoch and a window's number says how */
    int64_t epoch, number;  /* number: of the first window */
} neo__share;

typedef struct neo__block {
    /* from the source */
    char *raw;
    size_t raw_bytes; /* text with its last \n; or rows, plane by plane */
    int32_t file;
    int64_t offset, bytes;   /* in the file; of formats without lines: rows */
    neo__head head;          /* of its file */
    int64_t skip_lines;      /* so many lines at the start hold no sample */
    int file_end;            /* the last block of its file */
    neo__plane *planes;      /* [plane_count] */
    int end;                 /* nothing is left: this block holds nothing */
    const neo__share *share; /* rows or lines to parse; NULL: all */
    int64_t sample;          /* its first one, as the share counts */
    int64_t samples;         /* of its text, bad ones too; with a share */
    int passed;              /* count samples of other ranks, which were not read */
    uint64_t *own;           /* text with a share that is shuffled: a bit for each of the samples */
    neo_status status;       /* of reading */
    char error[NEO__ERROR_BYTES];
    /* from parsing */
    char *records;
    int64_t count, capacity;
    int64_t most_lines; /* of its text; 0: any number */
    int64_t *ids; /* of a schema with several ids per feature */
    float *weights; /* [id_capacity] of them, or NULL */
    int64_t id_count, id_capacity;
    uint32_t *end_offset, *end_line; /* where the next line starts, per sample */
    int64_t lines, together;         /* in the block; to cut next, see neo__delimited_tile */
    int64_t bad;
    int64_t labels;       /* lines that this rank made samples of */
    int64_t parsed_bytes; /* of them */
    neo__watch watch[NEO__WATCHED];
    int failed;           /* stopped at issues[0] */
    int issue_count;
    neo__issue issues[NEO__BLOCK_ISSUES];
    neo__text *fields;    /* scratch: one per column */
    neo__svm_pair *pairs; /* scratch: [NEO__SVM_PAIRS] */
    int64_t taken;       /* samples that have gone on */
    size_t memory_bytes; /* of a block with memory of its own */
} neo__block;

typedef struct neo__parse_options {
    int skip_bad;
    int unlabeled;
    neo__dict *fit; /* [feature_count]: collect words here instead of looking them up; or NULL */
    neo__svm_sizes *sizes; /* libsvm: collect the largest numbers instead of samples; or NULL */
} neo__parse_options;

/* One line of text, made a sample of. */
typedef struct neo__parsed {
    float *record;  /* to be filled */
    int sample;     /* 1: it is one; 0: a bad line, see issue; -1: it holds none (a comment) */
    neo__issue issue;
    neo_status fit; /* of collecting words: NEO_OK or NEO_ERR_MEMORY */
} neo__parsed;

/* The part of a reader that each format has of its own; the table is in >>impl-formats. */
typedef struct neo__source neo__source;
typedef struct neo__format {
    /* Check that every file is there, and find out bytes or samples. */
    neo_status (*look)(neo_reader *reader);
    /* Open the file in turn at the source's offset; NULL: there is no file. */
    neo_status (*begin)(neo__source *source);
    neo_status (*fill)(neo__source *source, neo__block *block); /* its next bytes or rows */
    void (*end)(neo__source *source);
    /* Records of a block's rows; NULL: of its lines, one by one. Returns NEO_ERR_MEMORY only. */
    neo_status (*parse)(const neo_schema *schema, const neo__parse_options *options,
                        neo__block *block);
    /* Text: the line at p; returns where the next begins. The fewest bytes of one, \n included. */
    const char *(*line)(const neo_schema *schema, const neo__parse_options *options,
                        neo__block *block, const char *p, neo__parsed *line);
    size_t (*least)(const neo_schema *schema, int unlabeled);
    /* 1: `line` makes a sample of [p, end), or refuses it; 0: it holds none. NULL: always 1. */
    int (*holds)(const neo_schema *schema, const char *p, const char *end);
} neo__format;
static const neo__format *neo__format_of(const neo_schema *schema);

/* ---- messages ---- */
static void neo__issue_set(neo__issue *e, neo_status status, int64_t column, const char *format,
                           ...) NEO__PRINTF(4, 5);
static void neo__issue_set(neo__issue *e, neo_status status, int64_t column, const char *format,
                           ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    e->status = status;
    e->column = column;
}
static neo__quoted neo__quote(const char *p, size_t bytes) {
    neo__quoted quoted;
    size_t count = 0, most = 40; /* whole characters of so many bytes */
    while (bytes > most && most > 36 && ((unsigned char)p[most] & 0xC0) == 0x80) most--;
    quoted.text[count++] = '\'';
    for (size_t i = 0; i < bytes && i < most; i++) {
        unsigned char c = (unsigned char)p[i];
        quoted.text[count++] = c < 32 || c == 127 ? '?' : (char)c;
    }
    if (bytes > most) memcpy(quoted.text + count, "...", 3), count += 3;
    quoted.text[count++] = '\'';
    quoted.text[count] = 0;
    return quoted;
}
static void neo__labels_add(neo__labels *labels, const neo__quoted *label) {
    for (int i = 0; i < NEO__MIN(labels->count, (int)NEO__LABELS); i++)
        if (strcmp(labels->label[i].text, label->text) == 0) return;
    if (labels->count < NEO__LABELS) labels->label[labels->count] = *label;
    labels->count = NEO__MIN(labels->count, (int)NEO__LABELS) + 1;
}
/* A bad field of an operation: "<column>: <before> 'field' <after>". Returns 0. */
static int neo__op_issue(neo__issue *issue, neo_status status, const neo_schema *schema,
                         const neo__op *op, const char *line, const char *before, neo__text field,
                         const char *after) {
    neo__issue_set(issue, status, field.p - line + 1, "%s: %s %s%s",
                   schema->columns[op->column].name, before,
                   neo__quote(field.p, field.bytes).text, after);
    return 0;
}
/* Not too long, no NUL byte. */
#define NEO__HINT_RETURN " (it holds \\r: if that alone ends lines, use tr '\\r' '\\n')"
static int neo__line_whole(const char *line, const char *end, neo__issue *e) {
    if (end - line > NEO__LINE_BYTES) {
        neo__issue_set(e, NEO_ERR_FORMAT, NEO__LINE_BYTES + 1, "the line is over %d bytes%s",
                       NEO__LINE_BYTES,
                       memchr(line, '\r', NEO__LINE_BYTES) ? NEO__HINT_RETURN : "");
        return 0;
    }
    const char *nul = end > line ? (const char *)memchr(line, 0, (size_t)(end - line)) : NULL;
    if (nul) neo__issue_set(e, NEO_ERR_FORMAT, nul - line + 1, "a NUL byte (UTF-16? use iconv)");
    return nul == NULL;
}

/* ---- the messages of Criteo lines ---- */
enum { NEO__CRITEO_FIELDS = 1 + NEO__CRITEO_DENSE + NEO__CRITEO_FEATURES };

/* Leading characters of t, from `at` on, that are in `set`. */
static size_t neo__text_span(neo__text t, size_t at, const char *set) {
    size_t count = 0;
    while (at + count < t.bytes && t.p[at + count] && strchr(set, t.p[at + count])) count++;
    return count;
}
/* 1: the field is bad, and e says why. */
static int neo__criteo_field_issue(int number, neo__text text, int64_t column, neo__issue *issue) {
    const neo__quoted quoted = neo__quote(text.p, text.bytes);
    const char *shown = quoted.text;
    if (number == 0) {
        if (text.bytes == 1 && (text.p[0] == '0' || text.p[0] == '1')) return 0;
        neo__issue_set(issue, NEO_ERR_FORMAT, column, "expected label 0 or 1, found %s", shown);
    } else if (number <= NEO__CRITEO_DENSE) {
        size_t sign = text.bytes > 0 && text.p[0] == '-',
               digits = neo__text_span(text, sign, "0123456789");
        int whole = digits > 0 && sign + digits == text.bytes;
        if (text.bytes == 0 || (whole && digits <= 18)) return 0;
        neo__issue_set(issue, whole ? NEO_ERR_RANGE : NEO_ERR_FORMAT, column,
                       "I%d: expected an integer of up to 18 digits or nothing, found %s", number,
                       shown);
    } else {
        if (text.bytes <= 8 && neo__text_span(text, 0, "0123456789abcdefABCDEF") == text.bytes)
            return 0;
        neo__issue_set(issue, NEO_ERR_FORMAT, column,
                       "C%d: expected up to 8 hex digits or nothing, found %s",
                       number - NEO__CRITEO_DENSE, shown);
    }
    return 1;
}
/* The fault of a line that the parser refused. */
static void neo__criteo_issue(const neo_schema *schema, const char *line, const char *end,
                              int may_lack_label, neo__issue *issue) {
    neo__text rest = neo__text_of(line, end), field;
    if (!neo__line_whole(line, end, issue)) return;
    int fields = 1 + (int)neo__text_count(rest, '\t'), expected = NEO__CRITEO_FIELDS;
    if (may_lack_label && fields == expected - 1) expected--;
    if (fields != expected) {
        neo__issue_set(issue, NEO_ERR_FORMAT, 1, "%d field%s, expected %d (criteo: label, 13 "
                       "integers, 26 hex words, tab-separated)",
                       fields, fields == 1 ? "" : "s", expected);
        return;
    }
    for (int number = NEO__CRITEO_FIELDS - expected; neo__text_part(&rest, '\t', &field); number++)
        if ((!schema->target || schema->target[number] >= 0) &&
            neo__criteo_field_issue(number, field, field.p - line + 1, issue))
            return;
    neo__issue_set(issue, NEO_ERR_FORMAT, end - line + 1, "expected the end of the line");
}

/* ---- samples ---- */
NEO__HOT_BEGIN
/* The first run of own samples in [from, end): returns its begin (end: there is none); *stop is its
   end. */
static int64_t neo__share_next(const neo__share *share, int64_t from, int64_t end, int64_t *stop) {
    while (from < end) {
        int64_t begin = from / share->batch * share->batch;
        int64_t all = NEO__MIN(share->total - begin, share->batch);
        int64_t a = begin + neo_leaf_begin(all, share->shards, share->first);
        int64_t b = begin + neo_leaf_begin(all, share->shards, share->end);
        if (from < b) {
            *stop = NEO__MIN(b, end);
            return NEO__MIN(NEO__MAX(a, from), end);
        }
        from = begin + share->batch;
    }
    return *stop = end;
}
static float *neo__block_record(const neo_schema *s, const neo__block *b, int64_t sample) {
    return (float *)(void *)(b->records + (size_t)sample * s->record_bytes);
}
static int64_t *neo__record_ids(const neo_schema *s, void *record) {
    return (int64_t *)(void *)((char *)record + s->ids_offset);
}
/* The record of a sample without ids, as of another rank. */
static void neo__record_empty(const neo_schema *schema, const neo__block *block, float *record) {
    int64_t *ids = neo__record_ids(schema, record);
    memset(ids, 0, ((size_t)schema->feature_count + 1) * sizeof *ids);
    ids[0] = block->id_count;
}
/* log n for a whole n in 1 .. 2^62. */
static double neo__log_whole(const double *table, uint64_t n) {
    return n < NEO__LOG_TABLE ? table[n] : neo__log_positive(table, (double)n);
}
/* The same as f32. */
NEO__INLINE float neo__log_count(const neo_schema *schema, uint64_t n) {
    return n < NEO__LOG_TABLE ? schema->log_f32[n]
                              : (float)neo__log_positive(schema->log_table, (double)n);
}

/* ---- Criteo ---- */
/* One integer as a dense value; the place after it, or NULL. */
NEO__INLINE const char *neo__criteo_integer(const neo_schema *schema, const char *p,
                                            float *dense) {
    const int negative = *p == '-';
    uint64_t v = 0;
    unsigned c;
    *dense = 0.0f;
    if (*p == '\t') return p;
    const char *digits = p += negative;
    while ((c = (unsigned)(unsigned char)*p - '0') <= 9) v = v * 10 + c, p++;
    if (p == digits || p - digits > 18) return NULL;
    if (!negative) *dense = neo__log_count(schema, v + 1);
    return p;
}
/* The dense fields; the place after them, or NULL. */
static const char *neo__criteo_dense(const neo_schema *schema, const char *p, float *dense) {
    for (int d = 0; d < NEO__CRITEO_DENSE; d++) {
        p = neo__criteo_integer(schema, p, dense + d);
        if (!p || *p++ != '\t') return NULL;
    }
    return p;
}
/* The words: key[f] is the number, present[f] 0 for an empty one. */
static const char *neo__criteo_words(const uint8_t *hex, const char *text, uint32_t *key,
                                     uint32_t *present) {
    const unsigned char *p = (const unsigned char *)text;
    for (int f = 0; f < NEO__CRITEO_FEATURES; f++) {
        uint32_t a = hex[p[0]], b = hex[p[1]], c = hex[p[2]], d = hex[p[3]];
        uint32_t e = hex[p[4]], g = hex[p[5]], h = hex[p[6]], i = hex[p[7]], v = 0;
        int n = 8;
        if ((a | b | c | d | e | g | h | i) < 16) {
            v = a << 28 | b << 24 | c << 20 | d << 16 | e << 12 | g << 8 | h << 4 | i;
        } else {
            for (n = 0; n < 8 && hex[p[n]] < 16; n++) v = v << 4 | hex[p[n]];
        }
        p += n;
        key[f] = v;
        present[f] = n > 0;
        if (f == NEO__CRITEO_FEATURES - 1) break;
        if (*p++ != '\t') return NULL;
    }
    if (*p == '\r') p++;
    return *p == '\n' ? (const char *)p + 1 : NULL;
}
/* The same for lines as they mostly are, with integers of at most 8 characters; others it leaves to
   the above. Ends of fields are found 64 bytes at a time. Then four fields are made numbers
   together, each moved to the end of 8 bytes, of which those before it become 0. */
#if defined(NEO__X86)
#define NEO__AVX2 __attribute__((target("avx2,bmi,popcnt")))
NEO__AVX2 NEO__INLINE __m256i neo__avx2_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
/* A bit for each of the 64 bytes of a, b that is c. */
NEO__AVX2 NEO__INLINE uint64_t neo__criteo_mask(__m256i a, __m256i b, char c) {
    const __m256i want = _mm256_set1_epi8(c);
    const uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, want));
    const uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(b, want));
    return low | (uint64_t)high << 32;
}
static const int neo__criteo_group[] = {0, 4, 8, 12, 16, 20, 22};
/* Write down that bits of a mask are places from `at` on; returns where the next goes. Up to 3 more
   are written. */
NEO__AVX2 NEO__INLINE uint32_t *neo__avx2_places(uint64_t mask, uint32_t at, uint32_t *to) {
    uint32_t *next = to + _mm_popcnt_u64(mask);
    for (; mask; to += 4) { /* four at a time: how often is easier to predict */
        to[0] = at + (uint32_t)_tzcnt_u64(mask), mask &= mask - 1;
        to[1] = at + (uint32_t)_tzcnt_u64(mask), mask &= mask - 1;
        to[2] = at + (uint32_t)_tzcnt_u64(mask), mask &= mask - 1;
        to[3] = at + (uint32_t)_tzcnt_u64(mask), mask &= mask - 1;
    }
    return next;
}
/* The places of the tabs of a line and then its end, all there are; of too many the first. Of 64
   bytes without a stop whose bit is in wanted (0: all are) they are only counted. A byte of `least`
   becomes 0 if one of the text is, up to there or up to 63 behind. */
enum { NEO__CRITEO_STOPS = NEO__CRITEO_FIELDS + 68 };
NEO__AVX2 NEO__INLINE int neo__criteo_stops(const char *p, uint64_t wanted, uint32_t *stop,
                                            __m256i *least) {
    uint32_t *next = stop;
    for (uint32_t at = 0; next - stop <= NEO__CRITEO_FIELDS; at += 64) {
        const __m256i a = neo__avx2_load(p + at), b = neo__avx2_load(p + at + 32);
        *least = _mm256_min_epu8(*least, _mm256_min_epu8(a, b));
        const uint64_t end = neo__criteo_mask(a, b, '\n');
        const uint64_t mask = (neo__criteo_mask(a, b, '\t') | end) & (end ^ (end - 1));
        if (!wanted || _tzcnt_u64(wanted >> (next - stop)) < (uint64_t)_mm_popcnt_u64(mask))
            next = neo__avx2_places(mask, at, next);
        else next += _mm_popcnt_u64(mask);
        if (end) break;
    }
    return (int)(next - stop);
}
/* Four fields: their characters, less '0', and how many. */
typedef struct neo__criteo_four {
    __m256i text;
    __m128i count;
} neo__criteo_four;
/* The first 8 characters, less '0', from a, b, c, d on. */
NEO__AVX2 NEO__INLINE __m256i neo__criteo_texts(const char *p, uint32_t a, uint32_t b, uint32_t c,
                                                uint32_t d) {
    long long x, y, z, w; /* an array would be written to memory and waited for */
    memcpy(&x, p + a, 8);
    memcpy(&y, p + b, 8);
    memcpy(&z, p + c, 8);
    memcpy(&w, p + d, 8);
    return _mm256_xor_si256(_mm256_setr_epi64x(x, y, z, w), _mm256_set1_epi8('0'));
}
/* Fields one after another. stop[i]: the place of the tab before field i. */
NEO__AVX2 NEO__INLINE neo__criteo_four neo__criteo_next(const char *p, const uint32_t *stop) {
    const __m128i from = _mm_loadu_si128((const __m128i *)(const void *)stop);
    const __m128i to = _mm_loadu_si128((const __m128i *)(const void *)(stop + 1));
    neo__criteo_four four;
    four.text = neo__criteo_texts(p, stop[0] + 1, stop[1] + 1, stop[2] + 1, stop[3] + 1);
    four.count = _mm_add_epi32(_mm_sub_epi32(to, from), _mm_set1_epi32(-1));
    return four;
}
/* Fields at any places. */
NEO__AVX2 NEO__INLINE neo__criteo_four neo__criteo_pick(const char *p, const uint32_t *stop,
                                                        const uint8_t *field) {
    const uint32_t *a = stop + field[0], *b = stop + field[1], *c = stop + field[2],
                   *d = stop + field[3];
    neo__criteo_four four;
    four.text = neo__criteo_texts(p, a[0] + 1, b[0] + 1, c[0] + 1, d[0] + 1);
    four.count = _mm_setr_epi32((int)(a[1] - a[0] - 1), (int)(b[1] - b[0] - 1),
                                (int)(c[1] - c[0] - 1), (int)(d[1] - d[0] - 1));
    return four;
}
/* Characters n bytes long to the end of their 8. */
NEO__AVX2 NEO__INLINE __m256i neo__criteo_move(__m256i x, __m256i n) {
    return _mm256_sllv_epi64(x, _mm256_sub_epi64(_mm256_set1_epi64x(64), _mm256_slli_epi64(n, 3)));
}
/* Four integers, plus 1, and 1 for those below 0. Bits of *bad are set where one is none. */
NEO__AVX2 NEO__INLINE __m256i neo__criteo_integers(neo__criteo_four four, __m256i *bad) {
    const __m256i all = four.text, one = _mm256_set1_epi64x(1);
    const __m256i first = _mm256_and_si256(all, _mm256_set1_epi64x(255));
    const __m256i negative = _mm256_cmpeq_epi64(first, _mm256_set1_epi64x('-' ^ '0'));
    __m256i n = _mm256_cvtepu32_epi64(four.count);
    __m256i x = _mm256_srlv_epi64(all, _mm256_and_si256(negative, _mm256_set1_epi64x(8)));
    const __m256i over = _mm256_cmpgt_epi64(n, _mm256_set1_epi64x(8));
    n = _mm256_add_epi64(n, negative);
    const __m256i empty = _mm256_cmpeq_epi64(n, _mm256_setzero_si256());
    x = neo__criteo_move(x, n);
    *bad = _mm256_or_si256(_mm256_or_si256(*bad, over), _mm256_and_si256(empty, negative));
    *bad = _mm256_or_si256(*bad, _mm256_subs_epu8(x, _mm256_set1_epi8(9)));
    x = _mm256_maddubs_epi16(x, _mm256_set1_epi16(256 + 10));
    x = _mm256_madd_epi16(x, _mm256_set1_epi32(65536 + 100));
    x = _mm256_add_epi64(_mm256_mul_epu32(x, _mm256_set1_epi64x(10000)), _mm256_srli_epi64(x, 32));
    return _mm256_add_epi64(_mm256_andnot_si256(negative, x), one);
}
/* Four words: key is the number, present not 0 if there is one. */
NEO__AVX2 NEO__INLINE void neo__criteo_hex(neo__criteo_four four, uint32_t *key, uint32_t *present,
                                           __m256i *bad) {
    const __m256i lower = _mm256_set1_epi8(0x20), five = _mm256_set1_epi8(5);
    const __m256i n = _mm256_cvtepu32_epi64(four.count), x = neo__criteo_move(four.text, n);
    const __m256i letter = _mm256_sub_epi8(_mm256_or_si256(x, lower),
                                           _mm256_set1_epi8((char)(('a' ^ '0') | 0x20)));
    const __m256i digit = _mm256_subs_epu8(x, _mm256_set1_epi8(9));
    __m256i v = _mm256_min_epu8(x, _mm256_add_epi8(letter, _mm256_set1_epi8(10)));
    *bad = _mm256_or_si256(*bad, _mm256_min_epu8(digit, _mm256_subs_epu8(letter, five)));
    *bad = _mm256_or_si256(*bad, _mm256_cmpgt_epi32(n, _mm256_set1_epi64x(8)));
    v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(256 + 16)); /* pairs, the first the highest */
    v = _mm256_shuffle_epi8(v, _mm256_setr_epi8(6, 4, 2, 0, 14, 12, 10, 8, -1, -1, -1, -1, -1, -1,
                                                -1, -1, 6, 4, 2, 0, 14, 12, 10, 8, -1, -1, -1, -1,
                                                -1, -1, -1, -1));
    _mm_storeu_si128((__m128i *)(void *)key, _mm_unpacklo_epi64(_mm256_castsi256_si128(v),
                                                                _mm256_extracti128_si256(v, 1)));
    _mm_storeu_si128((__m128i *)(void *)present, four.count);
}
/* A line's label and stops, from the tab before I1 on; NULL: it has others than it should. */
NEO__AVX2 NEO__INLINE const uint32_t *neo__criteo_cut(const char *p, uint64_t wanted, int unlabeled,
                                                      float *label, uint32_t *stops,
                                                      const char **next, __m256i *least) {
    stops[0] = UINT32_MAX;
    const int count = neo__criteo_stops(p, wanted, stops + 1, least);
    const int labeled = count == NEO__CRITEO_FIELDS;
    if (!labeled && !(unlabeled && count == NEO__CRITEO_FIELDS - 1)) return NULL;
    *next = p + stops[count] + 1;
    if (labeled && (stops[1] != 1 || (p[0] != '0' && p[0] != '1'))) return NULL;
    stops[count] -= p[stops[count] - 1] == '\r';
    *label = labeled ? (float)(p[0] - '0') : 0.0f;
    return stops + labeled;
}
NEO__AVX2 static const char *neo__criteo_fields_avx2(const neo_schema *schema, int unlabeled,
                                                     const char *p, float *record, uint32_t *key,
                                                     uint32_t *present) {
    static const int dense[] = {0, 4, 8, 9};
    uint32_t stops[1 + NEO__CRITEO_STOPS];
    uint64_t v[NEO__CRITEO_DENSE];
    __m256i bad = _mm256_setzero_si256(), least = bad;
    const char *next;
    const uint32_t *stop = neo__criteo_cut(p, 0, unlabeled, record, stops, &next, &least);
    if (!stop) return NULL;
    for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)(void *)(v + dense[i]),
                            neo__criteo_integers(neo__criteo_next(p, stop + dense[i]), &bad));
    stop += NEO__CRITEO_DENSE;
    for (int i = 0; i < 7; i++) {
        const int f = neo__criteo_group[i];
        neo__criteo_hex(neo__criteo_next(p, stop + f), key + f, present + f, &bad);
    }
    if (!_mm256_testz_si256(bad, bad)) return NULL;
    for (int d = 0; d < NEO__CRITEO_DENSE; d++) record[1 + d] = neo__log_count(schema, v[d]);
    return next;
}
/* The same of chosen columns: a line with no NUL byte that is not too long. */
NEO__AVX2 static const char *neo__criteo_chosen_avx2(const neo_schema *schema, int unlabeled,
                                                     const char *p, float *record, uint32_t *key,
                                                     uint32_t *present) {
    const uint8_t *field = schema->chosen;
    uint32_t stops[1 + NEO__CRITEO_STOPS];
    uint64_t v[4];
    __m256i bad = _mm256_setzero_si256(), least = _mm256_set1_epi8(1);
    const char *next;
    const uint32_t *stop =
        neo__criteo_cut(p, schema->wanted, unlabeled, record, stops, &next, &least);
    if (!stop || next - p > NEO__LINE_BYTES) return NULL;
    least = _mm256_cmpeq_epi8(least, bad);
    for (int32_t d = 0; d < schema->dense_count; field += 4) {
        const __m256i four = neo__criteo_integers(neo__criteo_pick(p, stop, field), &bad);
        _mm256_storeu_si256((__m256i *)(void *)v, four);
        for (int k = 0; k < 4 && d < schema->dense_count; k++, d++)
            record[1 + d] = neo__log_count(schema, v[k]);
    }
    for (int32_t f = 0; f < schema->feature_count; f += 4, field += 4)
        neo__criteo_hex(neo__criteo_pick(p, stop, field), key + f, present + f, &bad);
    bad = _mm256_or_si256(bad, least);
    return _mm256_testz_si256(bad, bad) ? next : NULL;
}
/* Four numbers below 2^32 modulo those of a schema: the quotient by 32 bits of the inverse is at
   most 1 too small. m of 2^32 multiplies as 0, and its quotient is 0; of m = 0 the result is k. */
NEO__AVX2 NEO__INLINE __m256i neo__avx2_remainder(__m256i k, __m256i m, __m256i inverse) {
    const __m256i by = _mm256_srli_epi64(inverse, 32);
    const __m256i quotient = _mm256_srli_epi64(_mm256_mul_epu32(k, by), 32);
    const __m256i x = _mm256_sub_epi64(k, _mm256_mul_epu32(quotient, m));
    return _mm256_min_epu32(x, _mm256_sub_epi64(x, m));
}
/* Words of at least four features to ids, as below. */
NEO__AVX2 NEO__INLINE void neo__criteo_ids_of(const neo_schema *schema, int32_t count,
                                              const uint32_t *key, const uint32_t *present,
                                              int64_t *ids) {
    const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi64x(1);
    for (int32_t i = 0; i < count; i += 4) {
        const int32_t f = NEO__MIN(i, count - 4);
        const __m256i m = neo__avx2_load(schema->modulus + f);
        const __m256i k =
            _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(key + f)));
        const __m256i n =
            _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(present + f)));
        const __m256i none =
            _mm256_or_si256(_mm256_cmpeq_epi64(n, zero), _mm256_cmpeq_epi64(m, zero));
        const __m256i r = neo__avx2_remainder(k, m, neo__avx2_load(schema->inverse + f));
        _mm256_storeu_si256((__m256i *)(void *)(ids + f),
                            _mm256_andnot_si256(none, _mm256_add_epi64(r, one)));
    }
}
NEO__AVX2 static void neo__criteo_ids_avx2(const neo_schema *schema, const uint32_t *key,
                                           const uint32_t *present, int64_t *ids) {
    if (schema->target) neo__criteo_ids_of(schema, schema->feature_count, key, present, ids);
    else neo__criteo_ids_of(schema, NEO__CRITEO_FEATURES, key, present, ids);
}
#endif
static neo_status neo__criteo_fit(const neo_schema *s, neo__dict *fit, const uint32_t *key,
                                  const uint32_t *present) {
    for (int32_t f = 0; f < s->feature_count; f++) {
        char word[4];
        if (!s->has_dict[f] || !present[f]) continue;
        neo__put_le(word, key[f], 4);
        NEO__TRY(neo__dict_collect(s->ctx, &fit[f], word, 4));
    }
    return NEO_OK;
}
/* Words to ids. What the search of a word will read is on its way while others are hashed. */
static void neo__criteo_find(const neo_schema *schema, const uint32_t *key,
                             const uint32_t *present, int64_t *ids) {
    const neo__dict *dicts = schema->dicts;
    uint64_t hash[NEO__CRITEO_FEATURES];
    char word[NEO__CRITEO_FEATURES][4];
    for (int32_t f = 0; f < schema->feature_count; f++) {
        neo__put_le(word[f], key[f], 4);
        hash[f] = neo__dict_hash(&dicts[f], word[f], 4);
        if (dicts[f].slot_count)
            __builtin_prefetch(&dicts[f].slots[hash[f] & (dicts[f].slot_count - 1)]);
    }
    for (int32_t f = 0; f < schema->feature_count; f++) {
        if (dicts[f].count == 0 || !dicts[f].slot_count) continue;
        const uint64_t slot = dicts[f].slots[hash[f] & (dicts[f].slot_count - 1)];
        __builtin_prefetch(&dicts[f].ends[slot & 0xFFFFFFFFu]);
        __builtin_prefetch(&dicts[f].bytes[4 * (slot & 0xFFFFFFFFu)]);
    }
    for (int32_t f = 0; f < schema->feature_count; f++)
        ids[f] = present[f] && dicts[f].slot_count
                     ? neo__dict_seek(&dicts[f], hash[f], word[f], 4) : 0;
}
/* A bit for each of 64 bytes that is c. */
NEO__INLINE uint64_t neo__bytes_equal(const char *p, char c) {
    uint64_t mask = 0;
#if defined(NEO__X86)
    const __m128i want = _mm_set1_epi8(c);
    for (int k = 0; k < 4; k++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * k));
        mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, want)) << (16 * k);
    }
#elif defined(NEO__ARM) && !defined(__AARCH64EB__)
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t want = vdupq_n_u8((uint8_t)c), bit = vld1q_u8(bits);
    uint8x16_t x[4]; /* bits of their own where bytes are c, which add up 8 by 8 */
    for (int k = 0; k < 4; k++)
        x[k] = vandq_u8(vceqq_u8(vld1q_u8((const uint8_t *)p + 16 * k), want), bit);
    x[0] = vpaddq_u8(vpaddq_u8(x[0], x[1]), vpaddq_u8(x[2], x[3]));
    mask = vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(x[0], x[0])), 0);
#else /* what is c becomes 0, and of all bytes only a 0 gets no high bit; those bits side by side */
    const uint64_t ones = UINT64_C(0x0101010101010101), low = 127 * ones;
    for (int k = 0; k < 8; k++) {
        uint64_t x;
        memcpy(&x, p + 8 * k, 8);
        x ^= (unsigned char)c * ones;
        x = ~(((x & low) + low) | x | low) >> 7;
        mask |= (x * UINT64_C(0x0102040810204080)) >> 56 << (8 * k);
    }
#endif
    return mask;
}
/* The text between two delimiters, without blanks around it. */
NEO__INLINE neo__text neo__field_of(const char *from, const char *end, char blank, char other) {
    while (from < end && (*from == blank || *from == other)) from++;
    while (end > from && (end[-1] == blank || end[-1] == other)) end--;
    return neo__text_of(from, end);
}
/* The fields of a line without quotes, by one character: the first `most` as neo__fields puts them,
   or (in_order) field i at i. Delimiters are found 64 bytes at a time, and those between fields
   not used are passed together. *end NULL: it becomes the place of the next \n, and the line ends
   there, or at a \r before it. Returns the number of fields. Up to 63 bytes behind are read. */
NEO__INLINE int32_t neo__fields_used(const char *line, const char **end, char delimiter, char blank,
                                     char other, const int32_t *target, int in_order,
                                     neo__text *fields, int32_t most) {
    const char *from = line, *stop = *end;
    int64_t count = 0, to;
    for (const char *p = line;; p += 64) {
        const uint64_t last = stop ? 0 : neo__bytes_equal(p, '\n');
        uint64_t mask = neo__bytes_equal(p, delimiter);
        if (last) *end = p + __builtin_ctzll(last), mask &= (last - 1) & ~last;
        if (stop && stop - p < 64) mask &= ((uint64_t)1 << (stop - p)) - 1;
        while (mask) {
            int64_t run = 1;
            to = count < most ? target[count] : INT32_MIN;
            if (to < 0 && (run = __builtin_popcountll(mask)) <= -to) {
                from = p + 64 - __builtin_clzll(mask), mask = 0, count += run;
                break; /* all are passed at once */
            }
            if (to < 0) run = -to;
            for (int64_t i = 1; i < run; i++) mask &= mask - 1;
            const char *at = p + __builtin_ctzll(mask);
            mask &= mask - 1;
            if (to >= 0) fields[in_order ? count : to] = neo__field_of(from, at, blank, other);
            from = at + 1;
            count += run;
        }
        if (*end && *end - p <= 64) break;
    }
    if (!stop) stop = *end - (*end > line && (*end)[-1] == '\r');
    to = count < most ? target[count] : -1;
    if (to >= 0) fields[in_order ? count : to] = neo__field_of(from, stop, blank, other);
    return (int32_t)(count + 1);
}
/* The end of the line at p, without \r; *next: where the next begins. */
static const char *neo__text_stop(const neo__block *block, const char *p, const char **next) {
    const char *stop =
        (const char *)memchr(p, '\n', (size_t)(block->raw + block->raw_bytes - p));
    *next = stop + 1;
    return stop > p && stop[-1] == '\r' ? stop - 1 : stop;
}
/* neo__criteo_fields for some of the columns. */
static const char *neo__criteo_chosen(const neo_schema *schema, int unlabeled, const char *p,
                                      float *record, uint32_t *key, uint32_t *present) {
    neo__text fields[NEO__CRITEO_FIELDS];
    const int32_t all = NEO__CRITEO_FIELDS, *target = schema->target;
    const char *end = NULL, *next, *stop;
    const int32_t count = neo__fields_used(p, &end, '\t', '\n', '\n', target, 1, fields, all);
    const int first = unlabeled && count == all - 1;
    int32_t to;
    record[0] = 0.0f;
    next = end + 1;
    end -= end > p && end[-1] == '\r';
    if (first)
        neo__fields_used(p, &end, '\t', '\n', '\n', target + 1, 1, fields + 1, all - 1);
    if (count + first != all || end - p > NEO__LINE_BYTES || memchr(p, 0, (size_t)(end - p)))
        return NULL;
    for (int32_t field = first; field < all; field += to < 0 ? -to : 1) {
        if ((to = target[field]) < 0) continue;
        p = fields[field].p;
        stop = p + fields[field].bytes;
        if (field == 0) {
            if (*p != '0' && *p != '1') return NULL;
            record[0] = (float)(*p++ - '0');
        } else if (field <= NEO__CRITEO_DENSE) {
            p = neo__criteo_integer(schema, p, record + 1 + to);
        } else {
            uint32_t digit;
            key[to] = 0;
            for (; p - fields[field].p < 8 && (digit = schema->hex[(unsigned char)*p]) < 16; p++)
                key[to] = key[to] << 4 | digit;
            present[to] = fields[field].bytes > 0;
        }
        if (p != stop) return NULL;
    }
    return next;
}
/* A good line's label, numbers and words. Returns where the next begins, or NULL: a bad line. */
static const char *neo__criteo_fields(const neo_schema *schema, int unlabeled, const char *p,
                                      float *record, uint32_t *key, uint32_t *present) {
    int labeled = 1;
#if defined(NEO__X86)
    if (schema->ctx->isa >= NEO_ISA_AVX2) {
        const char *next =
            schema->target ? neo__criteo_chosen_avx2(schema, unlabeled, p, record, key, present)
                           : neo__criteo_fields_avx2(schema, unlabeled, p, record, key, present);
        if (next) return next;
    }
#endif
    if (schema->target) return neo__criteo_chosen(schema, unlabeled, p, record, key, present);
    if (unlabeled) {
        int tabs = 0;
        for (const char *q = p; *q != '\n'; q++) tabs += *q == '\t';
        labeled = tabs != NEO__CRITEO_FIELDS - 2;
    }
    record[0] = 0.0f;
    if (labeled) {
        if ((p[0] != '0' && p[0] != '1') || p[1] != '\t') return NULL;
        record[0] = (float)(p[0] - '0');
        p += 2;
    }
    p = neo__criteo_dense(schema, p, record + 1);
    return p ? neo__criteo_words(schema->hex, p, key, present) : NULL;
}
/* A good line into a record; as above. */
static const char *neo__criteo_sample(const neo_schema *schema, const neo__parse_options *options,
                                      const char *p, float *record, neo_status *fit_status) {
    uint32_t key[NEO__CRITEO_FEATURES + 2], present[NEO__CRITEO_FEATURES + 2]; /* whole fours */
    int64_t *ids = neo__record_ids(schema, record);
    p = neo__criteo_fields(schema, options->unlabeled, p, record, key, present);
    if (!p) return NULL;
    if (options->fit) {
        *fit_status = neo__criteo_fit(schema, options->fit, key, present);
    } else if (schema->dict_count) {
        neo__criteo_find(schema, key, present, ids);
#if defined(NEO__X86)
    } else if (schema->ctx->isa >= NEO_ISA_AVX2 && schema->feature_count >= 4) {
        neo__criteo_ids_avx2(schema, key, present, ids);
#endif
    } else {
        for (int32_t f = 0; f < schema->feature_count; f++) {
            const uint64_t m = schema->modulus[f];
            const uint64_t r = neo__times_high(schema->inverse[f] * key[f], m);
            ids[f] = (int64_t)(r + (present[f] != 0 && m != 0));
        }
    }
    return p;
}
static const char *neo__criteo_line(const neo_schema *schema, const neo__parse_options *options,
                                    neo__block *block, const char *p, neo__parsed *line) {
    const char *next = neo__criteo_sample(schema, options, p, line->record, &line->fit);
    line->sample = next != NULL;
    if (!next)
        neo__criteo_issue(schema, p, neo__text_stop(block, p, &next), options->unlabeled,
                          &line->issue);
    return next;
}
static size_t neo__criteo_least(const neo_schema *schema, int unlabeled) {
    (void)schema;
    return (size_t)(NEO__CRITEO_FIELDS + 1 - 2 * (unlabeled != 0));
}

/* ---- delimited ---- */
NEO__INLINE int neo__field_missing(const neo_schema *s, neo__text t) {
    if (t.bytes == 0) return 1;
    for (int32_t i = 0; i < s->missing_count; i++)
        if (neo__text_equal(t, s->missing[i])) return 1;
    return 0;
}
/* The field in quotes that begins at p, moved together where two quotes stand for one. Returns what
   follows it, or NULL: it has no end. */
static const char *neo__field_quoted(char quote, const char *p, const char *end, neo__text *field) {
    char *to = (char *)(uintptr_t)p + 1; /* in the block's own text */
    const char *from = to, *stop;
    while ((stop = (const char *)memchr(from, quote, (size_t)(end - from)))) {
        int pair = stop + 1 < end && stop[1] == quote;
        size_t bytes = (size_t)(stop - from) + (pair ? 1 : 0);
        if (to != from) memmove(to, from, bytes);
        to += bytes;
        from = stop + 1 + pair;
        if (pair) continue;
        *field = neo__text_of(p + 1, to);
        return from;
    }
    return NULL;
}
/* The place of the next delimiter; NULL: there is none. */
static const char *neo__field_stop(neo__text word, const char *p, const char *end) {
    for (;; p++) {
        p = (const char *)memchr(p, word.p[0], (size_t)(end - p));
        if (!p || word.bytes == 1) return p;
        if ((size_t)(end - p) >= word.bytes && memcmp(p, word.p, word.bytes) == 0) return p;
    }
}
static const char *neo__delimiter_name(const neo_schema *s) {
    return strcmp(s->delimiter, "\t") == 0 ? "tab" : strcmp(s->delimiter, " ") == 0 ? "space"
                                                                                    : s->delimiter;
}
/* Cut [line, end) at the delimiters. Returns the number of fields, or -1: quotes are wrong, see
   issue. Of the first `most`, field i goes to fields[target[i]] (below 0: nowhere, as in neo__head;
   no target: to fields[i]). Unless there are quotes those that go nowhere are only counted, and up
   to 63 bytes behind the line are read. */
static int32_t neo__fields(const neo_schema *schema, const char *line, const char *end,
                           const int32_t *target, neo__text *fields, int32_t most,
                           neo__issue *issue) {
    const neo__text word = {schema->delimiter, (size_t)schema->delimiter_bytes};
    const char quote = schema->quote, blank = memchr(word.p, ' ', word.bytes) ? '\t' : ' ',
               other = memchr(word.p, '\t', word.bytes) ? blank : '\t';
    const int passes = target && word.bytes == 1 &&
                       !(quote && memchr(line, quote, (size_t)(end - line)));
    const char *p = line;
    if (passes)
        return neo__fields_used(line, &end, word.p[0], blank, other, target, 0, fields, most);
    for (int32_t count = 0;; count++) {
        const char *stop, *from = p, *to;
        neo__text quoted = {NULL, 0}; /* the field, if it stands in quotes */
        while (from < end && (*from == blank || *from == other)) from++;
        if (quote && from < end && *from == quote) {
            p = neo__field_quoted(quote, from, end, &quoted);
            if (!p) {
                neo__issue_set(issue, NEO_ERR_FORMAT, from - line + 1,
                               "the line ends inside quotes that begin here (a field cannot go on "
                               "in the next line)");
                return -1;
            }
            from = p;
        }
        stop = neo__field_stop(word, p, end);
        to = stop ? stop : end;
        while (to > from && (to[-1] == blank || to[-1] == other)) to--;
        if (quoted.p && to > from) {
            neo__issue_set(issue, NEO_ERR_FORMAT, from - line + 1,
                           "text follows the closing quote; the delimiter is %s",
                           neo__delimiter_name(schema));
            return -1;
        }
        int32_t place = count >= most ? -1 : target ? target[count] : count;
        if (place >= 0) fields[place] = quoted.p ? quoted : neo__text_of(from, to);
        if (!stop) return count + 1;
        p = stop + word.bytes;
    }
}
static int neo__field_number(const neo_schema *schema, const neo__op *op, neo__text text,
                             const char *line, float *x, neo__issue *issue) {
    if (neo__number_few(text.p, text.bytes, x)) return 1;
    int kind = neo__number(text.p, text.bytes, x);
    if (kind == NEO__NUMBER_OK) return 1;
    const char *hint = "";
    if (kind == NEO__NUMBER_BAD && op->kind == NEO__OP_LABEL) hint = " (words need positive=)";
    else if (memchr(text.p, ',', text.bytes)) hint = ", with a comma, not a point";
    if (kind == NEO__NUMBER_BAD)
        return neo__op_issue(issue, NEO_ERR_FORMAT, schema, op, line, "expected a number, found",
                             text, hint);
    return neo__op_issue(issue, NEO_ERR_RANGE, schema, op, line,
                         "expected a number within the range of f32, found", text, hint);
}
/* The place of label k in a record. */
NEO__INLINE int64_t neo__record_label(const neo_schema *schema, int32_t k) {
    return k ? (int64_t)schema->dense_count + schema->sample_weighted + k : 0;
}
static int neo__op_label(const neo_schema *schema, const neo__op *op, neo__text text,
                         const char *line, float *label, neo__issue *issue) {
    if (neo__field_missing(schema, text)) {
        if (schema->label_count > 1) return 1;
        neo__issue_set(issue, NEO_ERR_FORMAT, text.p - line + 1, "%s: the label is missing",
                       schema->columns[op->column].name);
        return 0;
    }
    if (op->words) {
        *label = 0.0f;
        for (int32_t i = 0; i < op->word_count; i++)
            if (neo__text_equal(text, op->words[i])) *label = 1.0f;
        return 1;
    }
    if (!neo__field_number(schema, op, text, line, label, issue)) return 0;
    if (*label >= 0.0f && *label <= 1.0f) return 1;
    return neo__op_issue(issue, NEO_ERR_RANGE, schema, op, line,
                         "expected a label in [0, 1], found", text, "");
}
/* Without a label, what a sample weighs is not known either: 1. */
static int neo__op_sample_weight(const neo_schema *schema, const neo__op *op, neo__text text,
                                 int labeled, const char *line, float *record,
                                 neo__issue *issue) {
    float *weight = &record[1 + schema->dense_count];
    const int missing = neo__field_missing(schema, text);
    if (missing && !labeled) {
        *weight = 1.0f;
        return 1;
    }
    if (missing) {
        neo__issue_set(issue, NEO_ERR_FORMAT, text.p - line + 1, "%s: the weight is missing",
                       schema->columns[op->column].name);
        return 0;
    }
    if (!neo__field_number(schema, op, text, line, weight, issue)) return 0;
    if (*weight >= 0.0f) return 1;
    return neo__op_issue(issue, NEO_ERR_RANGE, schema, op, line,
                         "expected a weight of at least 0, found", text, "");
}
static float neo__op_dense(const neo_schema *s, const neo__op *op, float x) {
    double v = (double)x;
    if (op->log && !(v > 0.0)) {
        v = 0.0;
    } else if (op->log) {
        int few = v < NEO__LOG_TABLE - 1 && (double)(int32_t)v == v;
        v = few ? s->log_table[(int32_t)v + 1] : neo__log_positive(s->log_table, v + 1.0);
    }
    return (float)((v - op->shift) * op->scale);
}
static int64_t neo__op_word(const neo_schema *s, const neo__op *op, neo__text t) {
    if (op->hashed)
        return 1 + (int64_t)(neo__hash_bytes(t.p, t.bytes) % (uint64_t)(op->rows - 1));
    return neo__dict_find(&s->dicts[op->out], t.p, t.bytes) + (op->min_count != 0);
}
static int64_t neo__op_bucket(const neo__op *op, float x) {
    int64_t low = 0; /* edges before it are <= x; a product, as a branch would be hard to predict */
    for (int64_t left = op->edge_count, half; left > 0; left -= half) {
        half = (left + 1) / 2;
        low += half * (op->edges[low + half - 1] <= x);
    }
    return 1 + low;
}
static int64_t neo__op_cross(const neo_schema *s, const neo__op *op, neo__text a, neo__text b) {
    uint64_t ha = neo__field_missing(s, a) ? 0 : neo__hash_bytes(a.p, a.bytes);
    uint64_t hb = neo__field_missing(s, b) ? 0 : neo__hash_bytes(b.p, b.bytes);
    return 1 +
           (int64_t)(neo__mix64(ha + 0x9E3779B97F4A7C15u * (hb | 1)) % (uint64_t)(op->rows - 1));
}
/* The next word of a list field, from *p on, and its weight (p NULL: none stands there). */
static int neo__list_next(const neo__op *op, const char **p, const char *end, neo__text *word,
                          neo__text *weight) {
    while (*p < end) {
        const char *stop = (const char *)memchr(*p, op->separator, (size_t)(end - *p));
        if (!stop) stop = end;
        *word = neo__trim(*p, stop);
        *p = stop + 1;
        weight->p = NULL;
        if (word->bytes == 0) continue;
        const char *at = word->p + word->bytes;
        while (op->weight && at > word->p && at[-1] != op->weight) at--;
        if (op->weight && at > word->p) {
            *weight = neo__trim(at, word->p + word->bytes);
            *word = neo__trim(word->p, at - 1);
        }
        return 1;
    }
    return 0;
}
/* The words of a list, appended to the block's stream. 0: a bad one. */
static int neo__op_list(const neo_schema *schema, const neo__op *op, neo__text text,
                        const char *line, neo__block *block, neo__issue *issue) {
    const char *p = text.p, *end = text.p + text.bytes;
    const int64_t start = block->id_count;
    double sum;
    neo__text word, weight;
    if (neo__field_missing(schema, text)) return 1;
    while (neo__list_next(op, &p, end, &word, &weight)) {
        NEO_ASSERT(block->id_count < block->id_capacity);
        if (schema->weighted) block->weights[block->id_count] = 1.0f;
        if (weight.p &&
            !neo__field_number(schema, op, weight, line, &block->weights[block->id_count], issue))
            return 0;
        if (word.bytes == 0) {
            neo__issue_set(issue, NEO_ERR_FORMAT, word.p - line + 1,
                           "%s: expected a word before the weight %s",
                           schema->columns[op->column].name,
                           neo__quote(weight.p, weight.bytes).text);
            return 0;
        }
        block->ids[block->id_count++] = neo__op_word(schema, op, word);
    }
    if (!op->normalize) return 1;
    float *weights = block->weights + start;
    if (!neo__weights_sum(weights, block->id_count - start, &sum))
        return neo__op_issue(issue, NEO_ERR_RANGE, schema, op, line,
                             "expected weights whose sum is not 0, found", text, "");
    neo__weights_normalize(weights, block->id_count - start, sum, weights);
    return 1;
}
static neo_status neo__delimited_fit(const neo_schema *schema, neo__dict *fit,
                                     const neo__text *fields) {
    for (int32_t i = 0; i < schema->op_count; i++) {
        const neo__op *op = &schema->ops[i];
        if (op->kind != NEO__OP_CATEGORY && op->kind != NEO__OP_LIST) continue;
        neo__text t = fields[op->column], word, weight;
        const char *p = t.p, *end = t.p + t.bytes;
        if (op->hashed || neo__field_missing(schema, t)) continue;
        if (op->kind == NEO__OP_CATEGORY) {
            NEO__TRY(neo__dict_collect(schema->ctx, &fit[op->out], p, t.bytes));
            continue;
        }
        while (neo__list_next(op, &p, end, &word, &weight))
            NEO__TRY(neo__dict_collect(schema->ctx, &fit[op->out], word.p, word.bytes));
    }
    return NEO_OK;
}
/* A label that is missing is NaN. */
static void neo__watch_label(neo__watch *watch, float label, neo__text text) {
    watch->labels += label >= 0.0f;
    watch->positive += label > 0.0f;
    if (label != 0.0f || watch->positive > 0) return;
    neo__quoted negative = neo__quote(text.p, text.bytes);
    neo__labels_add(&watch->negative, &negative);
}
/* One operation on a line's fields. x: the number of its column. 0: a bad field. */
NEO__INLINE int neo__delimited_op(const neo_schema *schema, neo__block *block, const neo__op *op,
                                  const neo__text *fields, const char *line, int labeled,
                                  float x, float *record, neo__issue *issue) {
    const neo__text text = {fields[op->column].p, fields[op->column].bytes};
    int64_t id = 0, *ids = neo__record_ids(schema, record);
    float *label, *dense = &record[1 + op->out];
    switch (op->kind) {
    case NEO__OP_LABEL:
        label = &record[neo__record_label(schema, op->out)];
        *label = schema->label_count > 1 ? neo__f32_bits(0x7FC00000u) : 0.0f;
        if (labeled && !neo__op_label(schema, op, text, line, label, issue)) return 0;
        if (op->words && labeled && op->out < NEO__WATCHED)
            neo__watch_label(&block->watch[op->out], *label, text);
        return 1;
    case NEO__OP_DENSE:
        *dense = op->missing;
        if (neo__field_missing(schema, text)) return 1;
        *dense = neo__op_dense(schema, op, x);
        if (*dense - *dense == 0.0f) return 1;
        return neo__op_issue(issue, NEO_ERR_RANGE, schema, op, line, "shift and scale take", text,
                             " out of f32's range");
    case NEO__OP_SAMPLE_WEIGHT:
        return neo__op_sample_weight(schema, op, text, labeled, line, record, issue);
    case NEO__OP_CATEGORY:
        id = neo__field_missing(schema, text) ? 0 : neo__op_word(schema, op, text);
        break;
    case NEO__OP_BUCKET:
        if (!neo__field_missing(schema, text)) id = neo__op_bucket(op, x);
        break;
    case NEO__OP_CROSS: id = neo__op_cross(schema, op, text, fields[op->other]); break;
    case NEO__OP_LIST:
        if (!neo__op_list(schema, op, text, line, block, issue)) return 0;
        break;
    }
    if (!schema->multi) return ids[op->out] = id, 1;
    if (op->kind != NEO__OP_LIST) {
        if (schema->weighted) block->weights[block->id_count] = 1.0f;
        block->ids[block->id_count++] = id;
    }
    ids[1 + op->out] = block->id_count - ids[0];
    return 1;
}
/* The fields of m lines (of a schema with several ids: one) through the operations, each for all
   lines, as what takes long for one then overlaps with that for others; into records one after
   another. Returns how many lines stand before the first that was found bad. */
enum { NEO__TILE_LINES = 32 };
static int64_t neo__delimited_ops(const neo_schema *schema, neo__block *block,
                                  const char *const *lines, int64_t m, int labeled, float *records,
                                  neo__issue *issue) {
    const int64_t floats = (int64_t)(schema->record_bytes / sizeof *records);
    const neo__text *fields = block->fields;
    int32_t parsed = -1; /* the column whose numbers are in x */
    float x[NEO__TILE_LINES];
    for (int64_t k = 0; k < m; k++) records[k * floats] = x[k] = 0.0f;
    if (schema->multi) neo__record_ids(schema, records)[0] = block->id_count;
    for (int32_t i = 0; i < schema->op_count; i++) {
        const neo__op *op = &schema->ops[i];
        if ((op->kind == NEO__OP_DENSE || op->kind == NEO__OP_BUCKET) && op->column != parsed) {
            parsed = op->column;
            for (int64_t k = 0; k < m; k++) {
                const neo__text *text = &fields[k * schema->column_count + parsed];
                if (!neo__field_missing(schema, *text) &&
                    !neo__field_number(schema, op, *text, lines[k], &x[k], issue))
                    return k;
            }
        }
        for (int64_t k = 0; k < m; k++)
            if (!neo__delimited_op(schema, block, op, fields + k * schema->column_count, lines[k],
                                   labeled, x[k], records + k * floats, issue))
                return k;
    }
    return m;
}
/* Cut a line into the block's fields, one per column of the description; those of labels that are
   not there are empty. 0: their number is wrong. */
static int neo__delimited_cut(const neo_schema *schema, int may_lack_label, neo__block *block,
                              const char *line, const char *end, int *labeled, neo__issue *issue) {
    int32_t columns = schema->column_count, labels = schema->label_columns;
    int32_t expected = schema->header ? block->head.fields : columns;
    const int names = !schema->header && block->offset == 0 && block->lines <= block->skip_lines;
    const int whole = names || (!schema->header && may_lack_label && labels > 0);
    int32_t count = neo__fields(schema, line, end,
                                whole            ? NULL
                                : schema->header ? block->head.target
                                                 : schema->target,
                                block->fields, expected, issue);
    if (count < 0) return 0;
    *labeled = !schema->header || block->head.labeled;
    if (!schema->header && may_lack_label && labels > 0 && count == columns - labels) {
        for (int32_t c = columns, from = count; c-- > 0;)
            if (!schema->columns[c].is_label) block->fields[c] = block->fields[--from];
        *labeled = 0;
    } else if (count != expected) {
        neo__issue_set(issue, NEO_ERR_FORMAT, 1, "%d field%s, %s %d%s%s", count,
                       count == 1 ? "" : "s", schema->header ? "the header has" : "expected",
                       expected, count == 1 ? "; the delimiter is " : "",
                       count == 1 ? neo__delimiter_name(schema) : "");
        return 0;
    }
    for (int32_t c = 0; c < columns && !*labeled; c++)
        if (schema->columns[c].is_label) block->fields[c] = neo__text_of(line, line);
    if (!names) return 1;
    int32_t same = 0;
    for (int32_t c = 0; c < columns; c++)
        same += (schema->columns[c].is_label && !*labeled) ||
                 neo__text_is(block->fields[c], schema->columns[c].name);
    if (same < columns || columns < 2) return 1;
    neo__issue_set(issue, NEO_ERR_FORMAT, 1, "every field is the name of its column");
    return 0;
}
static int neo__delimited_comment(const neo_schema *schema, const char *line, const char *end) {
    for (int32_t i = 0; i < schema->comment_count; i++) {
        neo__text c = schema->comments[i];
        if ((size_t)(end - line) >= c.bytes && memcmp(line, c.p, c.bytes) == 0) return 1;
    }
    return 0;
}
static int neo__delimited_holds(const neo_schema *schema, const char *line, const char *end) {
    neo__issue issue;
    return !neo__delimited_comment(schema, line, end) || !neo__line_whole(line, end, &issue);
}
/* One line of [line, end) into a record. 1: a sample; 0: a bad line; -1: no sample (a comment). */
static int neo__delimited_sample(const neo_schema *schema, const neo__parse_options *options,
                                 neo__block *block, const char *line, const char *end,
                                 float *record, neo__issue *issue, neo_status *fit_status) {
    int labeled;
    if (!neo__line_whole(line, end, issue)) return 0;
    if (neo__delimited_comment(schema, line, end)) return -1;
    if (!neo__delimited_cut(schema, options->unlabeled, block, line, end, &labeled, issue))
        return 0;
    int64_t start = block->id_count;
    if (!neo__delimited_ops(schema, block, &line, 1, labeled, record, issue)) {
        block->id_count = start;
        return 0;
    }
    if (options->fit) {
        block->id_count = start;
        *fit_status = neo__delimited_fit(schema, options->fit, block->fields);
    }
    return 1;
}

/* Samples of the next lines, up to `most`, if they are as lines mostly are; returns where the one
   after them begins. Lines behind one that is not are cut again, so the next call takes fewer. */
static const char *neo__delimited_tile(const neo_schema *schema, const neo__parse_options *options,
                                       neo__block *block, const char *p, int64_t most) {
    const int32_t *target = schema->header ? block->head.target : schema->target;
    const int32_t fields = schema->header ? block->head.fields : schema->column_count;
    const int names = !schema->header && block->offset == 0 && block->lines <= block->skip_lines;
    const int labeled = schema->header ? block->head.labeled
                                       : !options->unlabeled || schema->label_columns == 0;
    const char c = schema->delimiter[0], blank = c == ' ' ? '\t' : ' ',
               other = c == '\t' ? blank : '\t';
    const char *line[NEO__TILE_LINES + 1], *end = block->raw + block->raw_bytes, *stop;
    neo__watch watch[NEO__WATCHED];
    neo__issue issue;
    int64_t m = 0, good;
    if (schema->format != NEO_FORMAT_DELIMITED || schema->multi || options->fit || names ||
        !labeled || schema->comment_count || schema->delimiter_bytes != 1 || c == '\r')
        return p;
    line[0] = p;
    for (most = NEO__MIN(most, block->together); m < most && p < end; line[++m] = p) {
        stop = NULL;
        if (*p == '\n' || (*p == '\r' && p[1] == '\n') ||
            neo__fields_used(p, &stop, c, blank, other, target, 0,
                             block->fields + m * schema->column_count, fields) != fields ||
            stop - p > NEO__LINE_BYTES ||
            (schema->quote && memchr(p, schema->quote, (size_t)(stop - p))))
            break;
        p = stop + 1;
    }
    if (memchr(line[0], 0, (size_t)(p - line[0]))) return block->together = 1, line[0];
    memcpy(watch, block->watch, sizeof watch);
    float *records = neo__block_record(schema, block, block->count);
    while ((good = neo__delimited_ops(schema, block, line, m, 1, records, &issue)) < m)
        m = good, memcpy(block->watch, watch, sizeof watch);
    for (int64_t k = 1; k <= m; k++, block->count++) {
        block->end_offset[block->count] = (uint32_t)(line[k] - block->raw);
        block->end_line[block->count] = (uint32_t)++block->lines;
    }
    block->labels += m;
    block->parsed_bytes += NEO__MIN(line[m] - block->raw, block->bytes) - (line[0] - block->raw);
    block->together = NEO__MIN(NEO__MAX(1, m == most ? 2 * m : m), (int64_t)NEO__TILE_LINES);
    return line[m];
}

#define NEO__HINT_QUOTE " (fields in quotes need the setting: quote \")"
/* Add to a bad line's message what may be wrong with the file: a setting that its description
   lacks, for a line with quotes and for the first one, or other ends of lines. */
static void neo__issue_hint(const neo_schema *schema, const neo__block *block, neo__text line,
                            neo__issue *issue) {
    if (block->issue_count == NEO__BLOCK_ISSUES || line.bytes > NEO__LINE_BYTES) return;
    if (!schema->quote && memchr(line.p, '"', line.bytes))
        neo__append(issue->text, sizeof issue->text, NEO__HINT_QUOTE);
    if (memchr(line.p, '\r', line.bytes))
        neo__append(issue->text, sizeof issue->text, NEO__HINT_RETURN);
    else if (!schema->header && block->offset == 0 && block->lines == block->skip_lines)
        neo__append(issue->text, sizeof issue->text,
                    " (a line of names needs the setting: header)");
}
static const char *neo__delimited_line(const neo_schema *schema, const neo__parse_options *options,
                                       neo__block *block, const char *p, neo__parsed *line) {
    const char *next, *stop = neo__text_stop(block, p, &next);
    line->sample = neo__delimited_sample(schema, options, block, p, stop, line->record,
                                         &line->issue, &line->fit);
    if (line->sample == 0)
        neo__issue_hint(schema, block, neo__text_of(p, stop), &line->issue);
    return next;
}
static size_t neo__delimited_least(const neo_schema *s, int unlabeled) {
    int32_t fields = s->column_count - (unlabeled ? s->label_columns : 0);
    size_t least = (size_t)NEO__MAX(fields - 1, 0) * (size_t)s->delimiter_bytes + 1;
    return NEO__MAX(least, 2);
}

/* ---- a block of text ---- */
static void neo__block_bad(neo__block *b, const neo__parse_options *o, const neo__issue *e) {
    if (b->issue_count < NEO__BLOCK_ISSUES) {
        b->issues[b->issue_count] = *e;
        b->issues[b->issue_count++].line = b->lines;
    }
    b->bad++;
    b->failed = !o->skip_bad;
}
/* Nothing of the block is parsed. */
static void neo__block_clear(neo__block *block) {
    block->failed = block->issue_count = 0;
    block->count = block->id_count = block->lines = block->bad = block->taken = 0;
    block->labels = block->parsed_bytes = 0;
    block->together = NEO__TILE_LINES;
    memset(block->watch, 0, sizeof block->watch);
}
static const char *neo__block_start(neo__block *block) {
    const char *p = block->raw, *end = block->raw + block->raw_bytes;
    if (block->offset == 0) p += neo__mark_bytes(p, end);
    for (; block->lines < block->skip_lines && p < end; block->lines++)
        p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
    return p;
}
/* 1: the line [p, stop), without its \n, is a sample or a bad line; 0: blank, or a comment. */
NEO__INLINE int neo__line_holds(const neo_schema *schema, const char *p, const char *stop) {
    if (stop > p && stop[-1] == '\r') stop--;
    const neo__format *format = neo__format_of(schema);
    return p < stop && (!format->holds || format->holds(schema, p, stop));
}
NEO__INLINE uint64_t neo__bit(const uint64_t *bits, int64_t i) {
    return bits[i / 64] >> i % 64 & 1;
}
/* The next run of own samples of a block with a share, of so many, from sample i on: its begin;
   *stop is its end. */
static int64_t neo__block_mine(const neo__block *b, int64_t i, int64_t count, int64_t *stop) {
    if (b->share->shuffled) {
        while (i < count && !neo__bit(b->own, i)) i++;
        for (*stop = i; *stop < count && neo__bit(b->own, *stop);) ++*stop;
        return i;
    }
    int64_t base = b->sample, mine = neo__share_next(b->share, base + i, base + count, stop);
    *stop -= base;
    return mine - base;
}
/* Pass over the line at *p, which is another rank's. 0: it holds no sample, so it is nobody's. */
static int neo__block_other(const neo_schema *schema, neo__block *block, const char **p) {
    const char *end = block->raw + block->raw_bytes;
    const char *stop = (const char *)memchr(*p, '\n', (size_t)(end - *p));
    if (!neo__line_holds(schema, *p, stop)) return 0;
    if (schema->multi)
        neo__record_empty(schema, block, neo__block_record(schema, block, block->count));
    *p = stop + 1;
    block->end_offset[block->count] = (uint32_t)(*p - block->raw);
    block->end_line[block->count++] = (uint32_t)++block->lines;
    return 1;
}
/* Parses all of the block, which for a format without lines is one of rows. Returns NEO_ERR_MEMORY
   only (while fitting). */
static neo_status neo__block_parse(const neo_schema *schema, const neo__parse_options *options,
                                   neo__block *block) {
    const neo__format *format = neo__format_of(schema);
    if (block->passed) return NEO_OK;
    neo__block_clear(block);
    if (format->parse) return format->parse(schema, options, block);
    const char *p = neo__block_start(block), *end = block->raw + block->raw_bytes;
    int64_t mine = 0, stop = 0;
    neo__parsed line;
    line.fit = NEO_OK;
    while (p < end && !block->failed && line.fit == NEO_OK) {
        if (p[0] == '\n' || (p[0] == '\r' && p[1] == '\n')) { /* blank */
            p += p[0] == '\n' ? 1 : 2;
            block->lines++;
            continue;
        }
        NEO_ASSERT(block->count < block->capacity);
        if (block->share && block->count == stop)
            mine = neo__block_mine(block, block->count, block->samples, &stop);
        if (block->count < mine && neo__block_other(schema, block, &p)) continue;
        if (block->count >= mine) {
            const char *before = p;
            p = neo__delimited_tile(schema, options, block, p,
                                    (block->share ? stop : block->capacity) - block->count);
            if (p > before) continue;
        }
        line.record = neo__block_record(schema, block, block->count);
        const char *next = format->line(schema, options, block, p, &line);
        if (line.sample == 0) neo__block_bad(block, options, &line.issue);
        block->lines++;
        if (line.sample == 1) {
            block->end_offset[block->count] = (uint32_t)(next - block->raw);
            block->end_line[block->count] = (uint32_t)block->lines;
            block->labels++;
            block->parsed_bytes += NEO__MIN(next - block->raw, block->bytes) - (p - block->raw);
            if (options->fit || options->sizes) block->taken++;
            else block->count++;
        }
        p = next;
    }
    return line.fit;
}
NEO__HOT_END
NEO__COLD_END
NEO__HOST_BEGIN
NEO__COLD_BEGIN
/* ---- a block's memory ---- */
/* Bytes of a row of a format without lines, at most; and how many of them are a block. */
static int64_t neo__sample_bytes(const neo_schema *s) {
    return 8 * (s->dense_count + s->label_count + NEO__MAX(s->feature_count, s->sample_ids));
}
static int64_t neo__block_rows(const neo_schema *s) {
    return NEO__MAX(NEO__CHUNK_BYTES / neo__sample_bytes(s), 1);
}
static int neo__schema_is_svm(const neo_schema *s) {
    return s->format == NEO_FORMAT_LIBSVM || s->format == NEO_FORMAT_LIBFFM;
}
/* Samples that a block's text or its rows can hold at most. One whose text could hold more than fit
   into NEO__RECORDS_BYTES is cut shorter. */
static int64_t neo__block_samples(const neo_schema *schema, int unlabeled) {
    const neo__format *format = neo__format_of(schema);
    if (!format->line) return neo__block_rows(schema);
    int64_t most = (int64_t)((NEO__CHUNK_BYTES + 1) / format->least(schema, unlabeled)) + 2;
    return NEO__MIN(most, (int64_t)(NEO__RECORDS_BYTES / schema->record_bytes) + 1);
}
/* Most ids of so many samples of a block. A word of text takes a byte at least. */
static int64_t neo__block_ids(const neo_schema *s, int64_t samples) {
    int64_t text = neo__format_of(s)->line ? NEO__CHUNK_BYTES : 0;
    if (neo__schema_is_svm(s)) return text;
    return samples * NEO__MAX(s->feature_count, s->sample_ids) + text;
}
/* Cut a block's buffers. They are sized for the most samples that it can hold. */
static void neo__block_layout(neo__block *block, const neo_schema *schema, int unlabeled,
                              neo__carve *carve) {
    size_t raw = (size_t)(neo__block_rows(schema) * neo__sample_bytes(schema));
    memset(block, 0, sizeof *block);
    block->capacity = neo__block_samples(schema, unlabeled);
    if (block->capacity == (int64_t)(NEO__RECORDS_BYTES / schema->record_bytes) + 1)
        block->most_lines = block->capacity;
    if (schema->multi) block->id_capacity = neo__block_ids(schema, block->capacity);
    NEO__CARVE(carve, block->raw, NEO__MAX((size_t)NEO__CHUNK_BYTES, raw) + 1 + NEO__BLOCK_PAD);
    NEO__CARVE(carve, block->records, neo__size_mul((size_t)block->capacity, schema->record_bytes));
    NEO__CARVE(carve, block->ids, block->id_capacity);
    if (schema->weighted) NEO__CARVE(carve, block->weights, block->id_capacity);
    NEO__CARVE(carve, block->end_offset, block->capacity);
    NEO__CARVE(carve, block->end_line, block->capacity);
    NEO__CARVE(carve, block->fields, schema->column_count * (int64_t)NEO__TILE_LINES);
    if (schema->header) NEO__CARVE(carve, block->head.target, NEO__COLUMNS_MAX);
    NEO__CARVE(carve, block->planes, schema->plane_count);
    if (neo__format_of(schema)->line) NEO__CARVE(carve, block->own, block->capacity / 64 + 1);
    if (neo__schema_is_svm(schema)) NEO__CARVE(carve, block->pairs, NEO__SVM_PAIRS);
}
/* A block with memory of its own, for one that is not part of a reader. */
static neo_status neo__block_create(neo_ctx *ctx, const neo_schema *schema, int unlabeled,
                                    neo__block *b) {
    neo__carve carve = {NULL, 0};
    neo__block_layout(b, schema, unlabeled, &carve);
    size_t bytes = carve.at;
    carve.block = (char *)neo__alloc_for(ctx, bytes, "a block of samples");
    carve.at = 0;
    if (!carve.block) return NEO_ERR_MEMORY;
    neo__block_layout(b, schema, unlabeled, &carve);
    b->memory_bytes = bytes;
    return NEO_OK;
}
static void neo__block_destroy(neo_ctx *ctx, neo__block *b) {
    neo_free(ctx, b->raw, b->memory_bytes); /* the first of its arrays */
    memset(b, 0, sizeof *b);
}
/* ---------------------------------------------------------------------------
   >>impl-libsvm

   A line is cut into pairs (field, index, value), which then go into the sample's bags: for libffm
   by counting sort, as fields may come in any order.
   ------------------------------------------------------------------------ */
/* The largest numbers of some files. */
struct neo__svm_sizes {
    int64_t *rows, capacity, fields; /* of each field: the largest index + 1 */
    int64_t most; /* of rows */
};
NEO__HOT_BEGIN
/* An id within [0, rows), by its remainder if the schema says so; or as it is, if it is outside. */
static int64_t neo__id_fit(int64_t id, int64_t rows, int modulo) {
    if (!modulo || (id >= 0 && id < rows)) return id;
    if (id >= 0 && id <= (int64_t)UINT32_MAX) return (int64_t)((uint32_t)id % (uint32_t)rows);
    id %= rows;
    return id < 0 ? id + rows : id;
}
/* The end of the word at p. */
static const char *neo__svm_word(const char *p, const char *end) {
    while (p < end && !neo__is_space(*p)) p++;
    return p;
}
/* Digits as a whole number; returns what follows them, or p: there are none, or NULL: above 2^63 -
   1. */
static const char *neo__svm_whole(const char *p, int64_t *value) {
    uint64_t v = 0;
    unsigned c;
    while (*p == '0' && (unsigned)(unsigned char)p[1] - '0' <= 9) p++;
    const char *from = p;
    while ((c = (unsigned)(unsigned char)*p - '0') <= 9) v = v * 10 + c, p++;
    *value = (int64_t)v;
    return p - from > 19 || v > (uint64_t)INT64_MAX ? NULL : p;
}
/* A number up to the next blank. */
static const char *neo__svm_number(const char *text, const char *end, float *x, int *kind) {
    const char *p = neo__svm_word(text, end);
    const size_t bytes = (size_t)(p - text);
    *kind = neo__number_few(text, bytes, x) ? NEO__NUMBER_OK : neo__number(text, bytes, x);
    return p;
}
/* A message about the word at p. Returns -1. */
static int neo__svm_issue(neo__issue *issue, neo_status status, const char *line, const char *p,
                          const char *end, const char *what) {
    neo__issue_set(issue, status, p - line + 1, "%s, found %s", what,
                   neo__quote(p, (size_t)(neo__svm_word(p, end) - p)).text);
    return -1;
}
/* The label at *p, which then is behind it. -1: a bad one. */
static int neo__svm_label(const char *line, const char **p, const char *end, int may_lack,
                          float *label, neo__issue *issue) {
    const char *stop = neo__svm_word(*p, end);
    int kind;
    *label = 0.0f;
    if (stop == *p || memchr(*p, ':', (size_t)(stop - *p))) {
        if (may_lack) return 0;
        neo__issue_set(issue, NEO_ERR_FORMAT, *p - line + 1, "the label is missing");
        return -1;
    }
    neo__svm_number(*p, end, label, &kind);
    if (kind == NEO__NUMBER_BAD)
        return neo__svm_issue(issue, NEO_ERR_FORMAT, line, *p, end, "expected a label");
    if (kind == NEO__NUMBER_OK && *label == -1.0f) *label = 0.0f;
    if (kind != NEO__NUMBER_OK || !(*label >= 0.0f && *label <= 1.0f))
        return neo__svm_issue(issue, NEO_ERR_RANGE, line, *p, end,
                              "expected a label of -1, +1 or in [0, 1]");
    *p = stop;
    return 0;
}
/* The pair at *p, which then is behind it. -1: a bad one. */
static int neo__svm_pair_at(const neo_schema *schema, const neo__parse_options *options,
                            const char *line, const char **p, const char *end, neo__svm_pair *pair,
                            neo__issue *issue) {
    const int fields = schema->format == NEO_FORMAT_LIBFFM;
    const char *expected = fields ? "expected field:index:number" : "expected index:number";
    const char *token = *p, *at = token, *next;
    int64_t number[2] = {0, 0};
    int kind;
    for (int i = !fields; i < 2; i++, at = next + 1) {
        next = neo__svm_whole(at, &number[i]);
        if (!next)
            return neo__svm_issue(issue, NEO_ERR_RANGE, line, at, end,
                                  i ? "expected an index of at most 2^63 - 1"
                                    : "expected a field of at most 2^63 - 1");
        if (next == at || *next != ':')
            return neo__svm_issue(issue, NEO_ERR_FORMAT, line, token, end, expected);
    }
    *p = neo__svm_number(at, end, &pair->weight, &kind);
    if (kind != NEO__NUMBER_OK)
        return neo__svm_issue(
            issue, kind == NEO__NUMBER_BAD ? NEO_ERR_FORMAT : NEO_ERR_RANGE, line, token, end,
            kind == NEO__NUMBER_BAD ? expected : "expected a value within the range of f32");
    const int64_t most = options->sizes ? 65536 : schema->feature_count;
    if (number[0] >= most) {
        neo__issue_set(issue, NEO_ERR_RANGE, token - line + 1,
                       "field %" PRId64 " is not in [0, %" PRId64 ")", number[0], most);
        return -1;
    }
    pair->field = (int32_t)number[0];
    const int64_t rows = options->sizes ? options->sizes->most : schema->rows[pair->field];
    pair->id = neo__id_fit(number[1], rows, schema->modulo);
    if (pair->id < rows) return 0;
    neo__issue_set(issue, NEO_ERR_RANGE, token - line + 1,
                   "index %" PRId64 " is not in [0, %" PRId64 "), %s", number[1], rows,
                   options->sizes ? "from which rows are counted (else give rows, and modulo)"
                                  : "the rows of its table");
    return -1;
}
/* Raise the sizes to those of a line's pairs. */
static neo_status neo__svm_measure(neo_ctx *ctx, neo__svm_sizes *sizes, const neo__svm_pair *pair,
                                   int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        NEO__TRY(NEO__GROW(ctx, sizes->rows, sizes->capacity, pair[i].field + 1));
        while (sizes->fields <= pair[i].field) sizes->rows[sizes->fields++] = 0;
        int64_t *rows = &sizes->rows[pair[i].field];
        *rows = NEO__MAX(*rows, pair[i].id + 1);
    }
    return NEO_OK;
}
#if defined(NEO__X86)
/* Pairs from p on as they mostly are: one blank between them, numbers of up to 8 digits, values of
   up to 7 and a point. Where numbers end is found first, 64 bytes at a time, so that no number
   waits for the one before. -1: others, or bad ones. */
enum { NEO__SVM_STOPS = 1024 };
/* Up to 7 digits are exact in f32, as is the power of ten that divides them, so their quotient is
   the nearest f32. */
static const float neo__svm_power[8] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f};
NEO__AVX2 static int64_t neo__svm_pairs_avx2(const neo_schema *schema, const char *p,
                                             const char *end, neo__svm_pair *pair) {
    const int fields = schema->format == NEO_FORMAT_LIBFFM;
    const __m256i blank = _mm256_set1_epi8(' '), colon = _mm256_set1_epi8(':');
    const uint32_t bytes = (uint32_t)(end - p);
    uint32_t stops[NEO__SVM_STOPS + 68], *last = stops, begin = 0;
    int64_t count = 0;
    for (uint32_t at = 0; at < bytes; at += 64) {
        uint32_t half[2];
        for (int i = 0; i < 2; i++) {
            const __m256i x = neo__avx2_load(p + at + 32 * i);
            half[i] = (uint32_t)_mm256_movemask_epi8(_mm256_or_si256(
                _mm256_cmpeq_epi8(x, colon), _mm256_cmpeq_epi8(_mm256_min_epu8(x, blank), x)));
        }
        uint64_t mask = half[0] | (uint64_t)half[1] << 32;
        if (bytes - at < 64) mask &= ((uint64_t)1 << (bytes - at)) - 1;
        last = neo__avx2_places(mask, at, last);
        if (last - stops >= NEO__SVM_STOPS) return -1;
    }
    *last = bytes;
    for (uint32_t *stop = stops; stop <= last; stop += 2 + fields, count++, pair++) {
        uint32_t number[3] = {0, 0, 0}, decimals = 0;
        if (last - stop < 1 + fields) return -1;
        for (int i = !fields; i < 3; i++) {
            const uint32_t at = stop[i - !fields], n = at - begin;
            uint64_t digits;
            memcpy(&digits, p + begin, 8);
            if (n - 1 > 7 || !neo__digits_few(digits << (64 - 8 * n), n, i < 2, &number[i],
                                              &decimals))
                return -1;
            if (i < 2 ? p[at] != ':' : at < bytes && !neo__is_space(p[at])) return -1;
            begin = at + 1;
            if (i == 2 && n - (decimals > 0) > 7) return -1;
        }
        if ((int64_t)number[0] >= schema->feature_count) return -1;
        const int64_t rows = schema->rows[number[0]];
        pair->field = (int32_t)number[0];
        pair->weight = (float)number[2] / neo__svm_power[decimals];
        pair->id = neo__id_fit(number[1], rows, schema->modulo);
        if (pair->id >= rows) return -1;
    }
    return count;
}
#endif
/* The pairs of a line, as many as block->pairs has; -1: a bad one. */
static int64_t neo__svm_pairs(const neo_schema *schema, const neo__parse_options *options,
                              neo__block *block, const char *line, const char *end, float *label,
                              neo__issue *issue) {
    const char *p = line;
    int64_t count = 0;
    while (p < end && neo__is_space(*p)) p++;
    if (neo__svm_label(line, &p, end, options->unlabeled, label, issue) < 0) return -1;
#if defined(NEO__X86)
    if (schema->ctx->isa >= NEO_ISA_AVX2 && !options->sizes && p < end) {
        count = neo__svm_pairs_avx2(schema, p + neo__is_space(*p), end, block->pairs);
        if (count >= 0) return count;
        count = 0;
    }
#endif
    for (int first = 1;; first = 0) {
        while (p < end && neo__is_space(*p)) p++;
        if (p == end) return count;
        if (first && end - p > 4 && memcmp(p, "qid:", 4) == 0) { /* a query's number: not used */
            int64_t query;
            const char *stop = neo__svm_whole(p + 4, &query);
            if (!stop || stop == p + 4 || (stop < end && !neo__is_space(*stop)))
                return neo__svm_issue(issue, NEO_ERR_FORMAT, line, p, end, "expected qid:number");
            p = stop;
            continue;
        }
        NEO_ASSERT(count < NEO__SVM_PAIRS);
        if (neo__svm_pair_at(schema, options, line, &p, end, &block->pairs[count++], issue) < 0)
            return -1;
    }
}
/* Pairs into the bags of a sample. */
static void neo__svm_place(const neo_schema *schema, neo__block *block, int64_t count,
                           float *record) {
    int64_t *end = neo__record_ids(schema, record) + 1, sum = 0;
    int64_t *ids = block->ids + block->id_count;
    float *weights = block->weights + block->id_count;
    const int32_t fields = schema->feature_count;
    neo__record_empty(schema, block, record);
    block->id_count += count;
    if (fields == 1) {
        for (int64_t i = 0; i < count; i++)
            ids[i] = block->pairs[i].id, weights[i] = block->pairs[i].weight;
        end[0] = count;
        return;
    }
    for (int64_t i = 0; i < count; i++) end[block->pairs[i].field]++;
    for (int32_t f = 0; f < fields; f++) { /* where each begins, which placing moves to its end */
        int64_t n = end[f];
        end[f] = sum;
        sum += n;
    }
    for (int64_t i = 0; i < count; i++) {
        const neo__svm_pair *pair = &block->pairs[i];
        int64_t at = end[pair->field]++;
        ids[at] = pair->id;
        weights[at] = pair->weight;
    }
}
static const char *neo__svm_line(const neo_schema *schema, const neo__parse_options *options,
                                 neo__block *block, const char *p, neo__parsed *line) {
    const char *next, *end = neo__text_stop(block, p, &next);
    line->sample = 0;
    if (end - p > NEO__LINE_BYTES && !neo__line_whole(p, end, &line->issue)) return next;
    const char *comment = end > p ? (const char *)memchr(p, '#', (size_t)(end - p)) : NULL;
    const char *stop = comment ? comment : end, *word = p;
    while (word < stop && neo__is_space(*word)) word++;
    line->sample = -1;
    if (word == comment) return next;
    int64_t count =
        neo__svm_pairs(schema, options, block, p, stop, line->record, &line->issue);
    line->sample = count >= 0;
    if (count < 0 && memchr(p, 0, (size_t)(end - p))) (void)neo__line_whole(p, end, &line->issue);
    if (count < 0) return next;
    if (options->sizes)
        line->fit = neo__svm_measure(schema->ctx, options->sizes, block->pairs, count);
    else neo__svm_place(schema, block, count, line->record);
    return next;
}
static int neo__svm_holds(const neo_schema *schema, const char *p, const char *end) {
    (void)schema;
    if (end - p > NEO__LINE_BYTES) return 1;
    while (p < end && neo__is_space(*p)) p++;
    return p == end || *p != '#';
}
static size_t neo__svm_least(const neo_schema *schema, int unlabeled) {
    (void)schema, (void)unlabeled;
    return 2; /* a label alone */
}
NEO__HOT_END
static neo_status neo__svm_scan(neo_schema *schema, const neo_libsvm_desc *desc,
                                neo__svm_sizes *sizes); /* >>impl-source */
static neo_status neo__svm_init(neo_schema *schema, const neo_libsvm_desc *desc) {
    const int ffm = schema->format == NEO_FORMAT_LIBFFM;
    const int count = desc->rows == 0 && !desc->rows_per_field;
    const int find = count || (ffm && desc->fields == 0);
    neo__svm_sizes sizes = {NULL, 0, 0, count ? INT32_MAX : INT64_MAX};
    neo_status status = NEO_OK;
    schema->multi = schema->weighted = 1;
    NEO__CHECK(desc->fields >= 0 && desc->fields <= 65536 && (ffm || desc->fields <= 1),
               NEO_ERR_ARG, "neo_schema_libsvm: %d fields", desc->fields);
#if defined(NEO_INFERENCE)
    NEO__CHECK(!find, NEO_ERR_UNSUPPORTED, "neo_schema_libsvm: NEO_INFERENCE reads no files");
#else
    if (find) status = neo__svm_scan(schema, desc, &sizes);
#endif
    int64_t features = ffm ? desc->fields ? desc->fields : NEO__MAX(sizes.fields, 1) : 1;
    if (status == NEO_OK) status = neo__schema_features(schema, 0, (int32_t)features);
    for (int64_t f = 0; status == NEO_OK && f < NEO__MIN(sizes.fields, features); f++)
        schema->rows[f] = sizes.rows[f];
    NEO__LIST_FREE(schema->ctx, sizes.rows, sizes.capacity);
    NEO__TRY(status);
    schema->modulo = desc->modulo;
    return neo__schema_sizes(schema, ffm ? "field_%d" : "feature_%d", desc->rows,
                             desc->rows_per_field);
}
NEO_API neo_status neo_schema_libsvm(neo_ctx *ctx, const neo_libsvm_desc *desc,
                                     neo_schema **schema) {
    const int with_fields = desc && desc->with_fields;
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_libsvm",
                               with_fields ? NEO_FORMAT_LIBFFM : NEO_FORMAT_LIBSVM, desc, schema,
                               &s));
    return neo__schema_done(s, neo__svm_init(s, desc), schema);
}
#if !defined(NEO_INFERENCE)
/* ---------------------------------------------------------------------------
   >>impl-index

   Where the samples of a file are: a mark for every 64 KiB or so of text, behind the line of a
   sample, with the samples and lines before it. By it a rank finds its own samples without the text
   before them. It comes of one look for line ends, in a fraction of the time of parsing, and is
   kept beside the text, as <path>.neoindex; little-endian:
     "NEOINDEX", then u64s: 1, bytes of the text, time of its last change in ns, a hash of what says
     which lines hold samples, CRC-32C of its first and last 4 KiB, samples, lines, number of marks;
     for each mark offset, samples, lines; u32 CRC-32C of all that
   One that is damaged or not of this text as it is now is made again. Ranks that write it at once
   write the same bytes. Where it cannot be written it is kept in memory alone.
   A sample is here what a parser makes one of or refuses: with the first bad line reading ends.
   ------------------------------------------------------------------------ */
enum {
    NEO__INDEX_STEP = 65536,
    NEO__INDEX_ENDS = 4096,
    NEO__INDEX_HEAD = 72,
    NEO__INDEX_KEY = 48 /* bytes of the head that say of what it is */
};
#ifndef NEO__INDEX_LEAST
#define NEO__INDEX_LEAST (4 << 20) /* bytes of text: less is parsed faster than found */
#endif
typedef struct neo__mark {
    int64_t offset, samples, lines; /* the last two: before it, in the file */
} neo__mark;
typedef struct neo__index {
    neo__mark *marks;
    int64_t count;
    neo__mark end; /* of the file */
} neo__index;
/* A look for line ends. */
typedef struct neo__scan {
    const neo_schema *schema;
    neo__mark at;
    int64_t skip;      /* lines from here on that hold no sample */
    neo__index *index; /* gets the marks; or NULL */
} neo__scan;
NEO__HOT_BEGIN
/* Whole lines, each with its \n. */
static void neo__scan_lines(neo__scan *scan, const char *p, const char *end) {
    neo__index *index = scan->index;
    int64_t next = !index ? INT64_MAX
                   : index->count ? index->marks[index->count - 1].offset + NEO__INDEX_STEP
                                  : (int64_t)NEO__INDEX_STEP;
    if (scan->at.offset == 0) scan->at.offset = neo__mark_bytes(p, end), p += scan->at.offset;
    while (p < end) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        scan->at.offset += stop + 1 - p;
        scan->at.lines++;
        if (scan->skip > 0) {
            scan->skip--;
        } else if (neo__line_holds(scan->schema, p, stop)) {
            scan->at.samples++;
            if (scan->at.offset >= next) {
                index->marks[index->count++] = scan->at;
                next = scan->at.offset + NEO__INDEX_STEP;
            }
        }
        p = stop + 1;
    }
}
NEO__HOT_END
/* The text from where the scan is up to `end`, by a buffer of a block's bytes and one more. Of a
   line longer than that the beginning is looked at, which is bad enough. */
static neo_status neo__scan_file(neo__scan *scan, const neo__file *file, int64_t end, char *text) {
    int64_t from = scan->at.offset;
    size_t held = 0, cut;
    while (from < end || held > 0) {
        size_t bytes = (size_t)NEO__MIN((int64_t)(NEO__CHUNK_BYTES - held), end - from);
        NEO__TRY(neo__file_read_at(file, from, text + held, bytes));
        from += (int64_t)bytes;
        cut = held += bytes;
        while (cut > 0 && text[cut - 1] != '\n') cut--;
        if (from == end && cut < held) text[cut = held++] = '\n', cut++;
        neo__scan_lines(scan, text, text + cut);
        held -= cut;
        memmove(text, text + cut, held);
        if (held < NEO__CHUNK_BYTES) continue;
        held = NEO__CHUNK_BYTES / 2 + 1;
        scan->at.offset += NEO__CHUNK_BYTES - (int64_t)held;
    }
    scan->at.offset = end;
    return NEO_OK;
}
static uint64_t neo__index_rule(const neo_schema *schema) {
    uint64_t h = neo__mix64((uint64_t)schema->skip_lines * 2 + (uint64_t)schema->header + 1);
    h = neo__mix64(h + (neo__format_of(schema)->holds ? (uint64_t)schema->format : 0));
    for (int32_t i = 0; i < schema->comment_count; i++)
        h = neo__mix64(h + neo__hash_bytes(schema->comments[i].p, schema->comments[i].bytes));
    return neo__mix64(h + NEO__LINE_BYTES);
}
/* The head of a file's index. */
static neo_status neo__index_head(const neo_schema *schema, const neo__file *file, int64_t size,
                                  char *head) {
    char ends[2 * NEO__INDEX_ENDS];
    size_t part = (size_t)NEO__MIN(size, (int64_t)NEO__INDEX_ENDS);
    NEO__TRY(neo__file_read_at(file, 0, ends, part));
    NEO__TRY(neo__file_read_at(file, size - (int64_t)part, ends + part, part));
    memcpy(head, "NEOINDEX", 8);
    head = neo__put_le(head + 8, 1, 8);
    head = neo__put_le(head, (uint64_t)size, 8);
    head = neo__put_le(head, (uint64_t)neo__file_changed(file), 8);
    head = neo__put_le(head, neo__index_rule(schema), 8);
    neo__put_le(head, neo_crc32c(0, ends, 2 * part), 8);
    return NEO_OK;
}
static int neo__mark_take(neo__bytes_in *in, neo__mark *mark) {
    return neo__take_count(in, &mark->offset) && neo__take_count(in, &mark->samples) &&
           neo__take_count(in, &mark->lines);
}
/* The marks of an index that was kept. 0: it is not of this file, or damaged. */
static int neo__index_take(const char *text, int64_t bytes, const char *head, neo__index *index) {
    neo__bytes_in in = {text + NEO__INDEX_KEY, text + bytes};
    neo__mark before = {0, 0, 0};
    uint64_t crc = 0;
    int64_t size = index->end.offset, count = 0;
    if (bytes < NEO__INDEX_HEAD + 4 || memcmp(text, head, NEO__INDEX_KEY) != 0) return 0;
    in.end = text + bytes - 4;
    neo__bytes_in tail = {in.end, text + bytes};
    if (!neo__take_le(&tail, 4, &crc) || crc != neo_crc32c(0, text, (size_t)bytes - 4)) return 0;
    if (!neo__take_count(&in, &index->end.samples) || !neo__take_count(&in, &index->end.lines) ||
        !neo__take_count(&in, &count) || count != (in.end - in.p) / 24 || (in.end - in.p) % 24)
        return 0;
    if (count > size / NEO__INDEX_STEP) return 0;
    for (int64_t i = 0; i < count; i++) {
        neo__mark *mark = &index->marks[i];
        if (!neo__mark_take(&in, mark) || mark->offset <= before.offset || mark->offset > size ||
            mark->samples <= before.samples || mark->samples > index->end.samples)
            return 0;
        before = *mark;
    }
    index->count = count;
    return 1;
}
/* The index kept beside the text. *found 0: there is none that is good. */
static neo_status neo__index_load(neo_ctx *ctx, const char *path, const char *head,
                                  neo__index *index, int *found) {
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_reader_open"};
    neo__path_kind kind = NEO__PATH_NONE;
    char *text = NULL;
    int64_t bytes = 0;
    *found = 0;
    if (neo__path_look(path, &kind) != NEO_OK || kind != NEO__PATH_FILE) return NEO_OK;
    const int64_t most = index->end.offset / NEO__INDEX_STEP * 24 + NEO__INDEX_HEAD + 4;
    neo_status status = neo__file_load(&arena, path, most, &text, &bytes);
    if (status == NEO_OK && text) *found = neo__index_take(text, bytes, head, index);
    neo__arena_free(&arena);
    return status == NEO_ERR_MEMORY ? status : NEO_OK;
}
/* Keep an index beside the text. What fails only makes another open look for it again. */
static void neo__index_keep(const char *path, const char *head, const neo__index *index) {
    char partial[NEO__PATH_BYTES], words[24];
    neo__file file;
    neo__out out;
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    if (n >= (int)sizeof partial || neo__file_open(&file, partial, NEO__FILE_CREATE) != NEO_OK)
        return;
    neo__out_begin(&out, &file);
    neo__out_bytes(&out, head, NEO__INDEX_HEAD);
    for (int64_t i = 0; i < index->count; i++) {
        char *p = neo__put_le(words, (uint64_t)index->marks[i].offset, 8);
        p = neo__put_le(p, (uint64_t)index->marks[i].samples, 8);
        neo__put_le(p, (uint64_t)index->marks[i].lines, 8);
        neo__out_bytes(&out, words, sizeof words);
    }
    neo_status status = neo__out_flush(&out);
    neo__put_le(words, out.crc, 4);
    neo__out_bytes(&out, words, 4);
    if (status == NEO_OK) status = neo__out_flush(&out);
    neo_status closed = neo__file_close(&file);
    if (status != NEO_OK || closed != NEO_OK || neo__path_rename(partial, path) != NEO_OK)
        (void)neo__file_remove(partial);
}
/* The index of a text: the one kept beside it, or a new one, which is then kept if `keeps`. `text`
   as for neo__scan_file. */
static neo_status neo__index_make(const neo_schema *schema, neo__arena *arena, const char *path,
                                  int keeps, char *text, neo__index *index) {
    char head[NEO__INDEX_HEAD], beside[NEO__PATH_BYTES];
    neo__scan scan = {schema, {0, 0, 0}, schema->skip_lines + schema->header, index};
    neo__file file;
    int found = 0, named = snprintf(beside, sizeof beside, "%s.neoindex", path);
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_READ));
    const int64_t size = neo__file_size(&file);
    index->end.offset = size;
    neo_status status =
        size >= 0 ? NEO__ARENA(arena, index->marks, size / NEO__INDEX_STEP + 1)
                  : neo_fail(NEO_ERR_IO, "%s: cannot tell its size", path);
    if (status == NEO_OK) status = neo__index_head(schema, &file, size, head);
    if (status == NEO_OK && named < (int)sizeof beside)
        status = neo__index_load(schema->ctx, beside, head, index, &found);
    if (status == NEO_OK && !found) {
        index->count = 0;
        status = neo__scan_file(&scan, &file, size, text);
    }
    (void)neo__file_close(&file);
    if (status != NEO_OK || found) return status;
    if (index->count && index->marks[index->count - 1].offset > size)
        index->marks[index->count - 1].offset = size; /* of a line without \n */
    index->end = scan.at;
    char *p = neo__put_le(head + NEO__INDEX_KEY, (uint64_t)scan.at.samples, 8);
    p = neo__put_le(p, (uint64_t)scan.at.lines, 8);
    neo__put_le(p, (uint64_t)index->count, 8);
    if (keeps && named < (int)sizeof beside) neo__index_keep(beside, head, index);
    return NEO_OK;
}
/* The last mark with at most so many samples before it; NULL: the start of the file. */
static const neo__mark *neo__index_before(const neo__index *index, int64_t samples) {
    int64_t low = 0, high = index->count; /* marks before low have at most that */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (index->marks[middle].samples <= samples) low = middle + 1;
        else high = middle;
    }
    return low ? &index->marks[low - 1] : NULL;
}
/* ---------------------------------------------------------------------------
   >>impl-source

   A source hands out its files' text in blocks of whole lines, one after another: it fills a
   block, cuts it at the last line end and carries the rest over to the next. Blocks never span
   files. The arrays of a npy triple and synthetic samples are handed out in the same way, by rows;
   with a share, the rows of other ranks are there in number only. So is text, with an index: a
   block of a rank's own text, and what lies beside it up to the next mark, is followed by one that
   was not read, up to the mark before the next own sample, or before one where a window begins, as
   that place is the same on all ranks to the byte.
   One thread at a time.
   ------------------------------------------------------------------------ */
struct neo__source {
    const neo_schema *schema; /* NULL: not made yet */
    neo__arena arena;         /* paths, carry, head, planes, row_path */
    const neo__parse_options *options;
    const char **paths;
    int32_t path_count;
    int32_t file;   /* being read; path_count: all done */
    int64_t offset; /* in it, of the next block: bytes or rows */
    int open;
    int piped;          /* reads may wait for a writer */
    int fed;            /* by input, not by a file */
    neo_input input;    /* of standard input; or none */
    int at_end;         /* of the file: the carry is all that is left */
    int64_t skip_lines; /* lines at the start of the file still to be skipped */
    neo__file handle;
    char *carry; /* [NEO__CHUNK_BYTES + 1] */
    size_t carry_bytes;
    neo__head head;   /* of this file, if the schema has headers */
    neo__text *names; /* [NEO__COLUMNS_MAX] of it */
    int64_t rows;     /* of this file, in a format without lines */
    const int64_t *file_rows; /* of the files before file i, as they were at open; or NULL */
    neo__share *share;        /* or NULL */
    int64_t sample;           /* rows, or samples with an index, handed out since the last seek */
    neo__index *index;        /* [path_count] of text; or NULL: it is read whole */
    neo__mark at;             /* with an index: what has been handed out of this file */
    int sought;               /* since then no file was opened */
    uint32_t *order;          /* [window] with a share that is shuffled: scratch */
    uint64_t *own;            /* a bit for each sample of window `drawn` */
    int64_t drawn;            /* counted since the last seek; -1: none */
    neo__file files[NEO__ROW_FILES];
    neo__plane *planes; /* [plane_count] */
    char *row_path;     /* [NEO__ROW_FILES][NEO__PATH_BYTES] */
    const int *stop;    /* atomic: give up waiting; or NULL */
};

static void neo__source_close_file(neo__source *source) {
    if (source->open) neo__format_of(source->schema)->end(source);
    source->open = 0;
}
static void neo__source_close_text(neo__source *source) {
    if (!source->fed) (void)neo__file_close(&source->handle);
}
static int neo__source_stopped(const neo__source *source) {
    return source->stop && __atomic_load_n(source->stop, __ATOMIC_RELAXED);
}
/* Bytes from the user's function: see neo__source_read_pipe. */
static neo_status neo__source_read_input(neo__source *source, char *data, size_t bytes,
                                         size_t *got) {
    neo_status status = NEO_OK;
    *got = 0;
    while (status == NEO_OK && *got == 0 && !neo__source_stopped(source)) {
        status = source->input.read(source->input.user, data, bytes, got);
        NEO__CHECK(*got <= bytes, NEO_ERR_ARG, "standard input: read gave %zu bytes, asked for %zu",
                   *got, bytes);
    }
    if (status != NEO_OK) *got = 0;
    return status == NEO_END ? NEO_OK : status;
}

/* Bytes of a pipe: what has come so far, waiting for the first; so that a slow writer's lines are
   not held back, and closing the reader need not wait for it. */
static neo_status neo__source_read_pipe(neo__source *source, char *data, size_t bytes,
                                        size_t *got) {
    if (source->fed) return neo__source_read_input(source, data, bytes, got);
#if defined(_WIN32)
    return neo__file_read(&source->handle, data, bytes, got);
#else
    struct pollfd wait;
    wait.fd = source->handle.fd;
    wait.events = POLLIN;
    *got = 0;
    for (;;) {
        int ready = poll(&wait, 1, source->stop ? 50 : -1);
        if (neo__source_stopped(source)) return NEO_OK;
        if (ready <= 0) {
            if (ready < 0 && errno != EINTR)
                return neo__file_fail(source->handle.path, "wait for data");
            continue;
        }
        ssize_t n = read(source->handle.fd, data, bytes);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return neo__file_fail(source->handle.path, "read");
        *got = (size_t)n;
        return NEO_OK;
    }
#endif
}
/* Fewer bytes than asked for: the end (of a pipe: 0 bytes). */
static neo_status neo__source_fill(neo__source *source, char *data, size_t bytes, size_t *got) {
    *got = 0;
    if (!source->piped) {
        NEO__TRY(neo__file_read(&source->handle, data, bytes, got));
        if (*got < bytes) source->at_end = 1;
        return NEO_OK;
    }
    while (*got < bytes) {
        size_t n;
        NEO__TRY(neo__source_read_pipe(source, data + *got, bytes - *got, &n));
        if (n == 0) {
            source->at_end = 1;
            return NEO_OK;
        }
        int line = memchr(data + *got, '\n', n) != NULL;
        *got += n;
        if (line) break; /* something to go on with */
    }
    return NEO_OK;
}
/* The first bytes are no text and no record's label. */
NEO_API neo_packing neo_packing_of(const void *bytes, size_t count) {
    static const struct {
        const char *magic;
        neo_packing packing;
    } known[] = {{"\x1F\x8B", {"gzip", "zcat"}},
                 {"\x28\xB5\x2F\xFD", {"zstd", "zstdcat"}},
                 {"\xFD\x37zXZ", {"xz", "xzcat"}},
                 {"PK\x03\x04", {"zip", "unzip -p"}}};
    const neo_packing none = {NULL, NULL};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t length = strlen(known[i].magic);
        if (count >= length && memcmp(bytes, known[i].magic, length) == 0) return known[i].packing;
    }
    return none;
}
/* An error that says more than that of a bad first line, or of a number of bytes. */
static neo_status neo__source_refuse_compressed(const char *path, const char *text, size_t bytes,
                                                int records) {
    const neo_packing packing = neo_packing_of(text, bytes);
    NEO__CHECK(!packing.name, NEO_ERR_FORMAT, "%s: is compressed with %s: unpack it%s%s%s", path,
               packing.name, records ? "" : "; or pipe it in ('", records ? "" : packing.unpack,
               records ? ""
                       : " FILE |', and '-' as the path), which can be read once: for one "
                         "epoch, with no pass before it for dictionaries or rows");
    return NEO_OK;
}
/* ---- headers ---- */
/* The names of a header for a message, as many as there is room for. */
static void neo__head_show(const neo__text *names, int32_t count, char *out, size_t bytes) {
    out[0] = 0;
    for (int32_t i = 0; i < count; i++) {
        neo__quoted name = neo__quote(names[i].p, names[i].bytes);
        const int full = strlen(out) + strlen(name.text) + 8 > bytes;
        neo__append(out, bytes, "%s%s", i ? ", " : "", full ? "..." : name.text);
        if (full) return;
    }
}
/* The columns of a file, from the line [line, end), at byte `offset` of it, that names them. */
static neo_status neo__head_parse(neo__source *source, int64_t offset, const char *line,
                                  const char *end) {
    const neo_schema *schema = source->schema;
    const char *path = neo__path_name(source->paths[source->file]);
    const int64_t number = schema->skip_lines + 1;
    const int32_t most = NEO__COLUMNS_MAX;
    neo__text *names = source->names;
    neo__head *head = &source->head;
    char shown[200];
    neo__issue issue;
    if (end > line && end[-1] == '\r') end--;
    if (offset == 0) line += neo__mark_bytes(line, end);
    NEO__CHECK(neo__line_whole(line, end, &issue), issue.status, "%s:%" PRId64 ":%" PRId64 ": %s",
               path, number, issue.column, issue.text);
    head->fields = neo__fields(schema, line, end, NULL, names, most, &issue);
    NEO__CHECK(head->fields >= 0, issue.status, "%s:%" PRId64 ":%" PRId64 ": %s", path, number,
               issue.column, issue.text);
    head->labeled = schema->label_columns > 0;
    NEO__CHECK(head->fields <= most, NEO_ERR_FORMAT,
               "%s:%" PRId64 ":1: the header names %d columns, more than %d", path, number,
               head->fields, most);
    for (int32_t i = 0; i < head->fields; i++) head->target[i] = -1;
    for (int32_t c = 0; c < schema->column_count; c++) {
        const char *name = schema->columns[c].name;
        int32_t found = -1;
        for (int32_t i = 0; i < head->fields; i++) {
            if (!neo__text_is(names[i], name)) continue;
            NEO__CHECK(found < 0, NEO_ERR_FORMAT,
                       "%s:%" PRId64 ":%d: the header has column '%.60s' twice", path, number,
                       (int)(names[i].p - line) + 1, name);
            found = i;
        }
        if (found >= 0) {
            if (schema->target[c] >= 0) head->target[found] = c;
        } else if (schema->columns[c].is_label && source->options->unlabeled) {
            head->labeled = 0;
        } else {
            neo__head_show(names, head->fields, shown, sizeof shown);
            int quotes = !schema->quote && end > line && memchr(line, '"', (size_t)(end - line));
            const char *one = " (one field: the setting delimiter says what stands between two)";
            return neo_fail(NEO_ERR_FORMAT,
                            "%s:%" PRId64 ":1: the header has no column '%.60s'; it has %s%s", path,
                            number, name, shown,
                            end > line && memchr(line, '\r', (size_t)(end - line))
                                ? NEO__HINT_RETURN
                                : head->fields == 1 ? one : quotes ? NEO__HINT_QUOTE : "");
        }
    }
    neo__target_runs(head->target, head->fields);
    return NEO_OK;
}
/* Read the header of a file just opened that is to be read from further on. The carry then begins
   with byte *passed of the file. */
static neo_status neo__source_head(neo__source *source, int64_t *passed) {
    const neo_schema *schema = source->schema;
    const char *line, *end, *stop;
    int64_t left = schema->skip_lines;
    *passed = 0;
    for (;;) {
        line = source->carry;
        end = line + source->carry_bytes;
        while ((stop = (const char *)memchr(line, '\n', (size_t)(end - line))) && left > 0) {
            line = stop + 1;
            left--;
        }
        if (stop || source->at_end) break;
        if (left > 0) line = end; /* part of a line that is not read */
        else if (line == source->carry && source->carry_bytes == NEO__CHUNK_BYTES) break;
        source->carry_bytes = (size_t)(end - line);
        memmove(source->carry, line, source->carry_bytes);
        *passed += line - source->carry;
        NEO__CHECK(*passed < source->offset && !neo__source_stopped(source), NEO_ERR_MISMATCH,
                   "%s: the saved position, at byte %" PRId64 ", is not behind the header",
                   neo__path_name(source->paths[source->file]), source->offset);
        size_t got;
        NEO__TRY(neo__source_fill(source, source->carry + source->carry_bytes,
                                  NEO__CHUNK_BYTES - source->carry_bytes, &got));
        source->carry_bytes += got;
    }
    if (!stop && source->at_end && (left > 0 || line == end)) return NEO_OK; /* holds no sample */
    return neo__head_parse(source, *passed + (line - source->carry), line, stop ? stop : end);
}

/* Drop the first `bytes` bytes of a pipe, of which the carry holds the first. */
static neo_status neo__source_drop(neo__source *source, int64_t bytes) {
    size_t held = (size_t)NEO__MIN(bytes, (int64_t)source->carry_bytes), got = 1;
    source->carry_bytes -= held;
    memmove(source->carry, source->carry + held, source->carry_bytes);
    for (int64_t left = bytes - (int64_t)held; left > 0 && got > 0; left -= (int64_t)got)
        NEO__TRY(neo__source_read_pipe(source, source->carry,
                                       (size_t)NEO__MIN(left, (int64_t)NEO__CHUNK_BYTES), &got));
    return NEO_OK;
}
/* Count the samples before the place in a file just opened; the carry is empty. */
static neo_status neo__source_locate(neo__source *source) {
    const neo__index *index = &source->index[source->file];
    const neo_schema *schema = source->schema;
    neo__scan scan = {schema, {0, 0, 0}, schema->skip_lines + schema->header, NULL};
    for (int64_t i = index->count; i > 0 && scan.at.offset == 0; i--)
        if (index->marks[i - 1].offset <= source->offset) scan.at = index->marks[i - 1];
    if (scan.at.offset > 0) scan.skip = 0;
    NEO__TRY(neo__scan_file(&scan, &source->handle, source->offset, source->carry));
    source->at = scan.at;
    if (!source->sought) return NEO_OK;
    source->sought = 0;
    source->drawn = -1;
    source->share->total = -scan.at.samples;
    for (int32_t i = source->file; i < source->path_count; i++)
        source->share->total += source->index[i].end.samples;
    return NEO_OK;
}
static neo_status neo__source_open_text(neo__source *source) {
    const char *path = source->paths[source->file];
    const neo_schema *schema = source->schema;
    int64_t offset = source->offset, passed = 0;
    source->fed = source->input.read && strcmp(path, "-") == 0;
    if (strcmp(path, "-") == 0) neo__file_stdin(&source->handle);
    else NEO__TRY(neo__file_open(&source->handle, path, NEO__FILE_READ));
    source->open = 1;
    source->at_end = 0;
    source->carry_bytes = 0;
    source->skip_lines = offset == 0 ? schema->skip_lines + schema->header : 0;
    int64_t size = source->fed ? -1 : neo__file_size(&source->handle);
    source->piped = size < 0;
    source->head.fields = source->head.labeled = 0;
    if (offset == 0) /* the header is in the first block, or behind it */
        return source->index ? neo__source_locate(source) : NEO_OK;
    if (schema->header) NEO__TRY(neo__source_head(source, &passed));
    if (source->piped) return neo__source_drop(source, NEO__MAX(offset - passed, 0));
    source->carry_bytes = 0;
    source->at_end = 0;
    char before = '\n';
    NEO__CHECK(offset <= size, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " bytes, the saved position is at byte %" PRId64, path, size,
               offset);
    if (offset < size) NEO__TRY(neo__file_read_at(&source->handle, offset - 1, &before, 1));
    NEO__CHECK(before == '\n', NEO_ERR_MISMATCH,
               "%s: no line starts at byte %" PRId64 ", where the saved position is", path, offset);
    if (source->index) NEO__TRY(neo__source_locate(source));
    return neo__file_seek(&source->handle, offset);
}
/* A line longer than a block: keep its beginning (which will be refused for its length, unless it
   holds no sample), drop the rest, if there is a use for what follows. A line of over 1 GiB is
   taken for one without end. */
static neo_status neo__source_drop_line(neo__source *source, neo__block *block) {
    int use = source->options->skip_bad || source->index || /* another rank will refuse it */
              source->skip_lines > source->schema->header;
    while (!source->at_end && use) {
        size_t got;
        NEO__CHECK(block->bytes < NEO__LINE_DROP, NEO_ERR_FORMAT,
                   "%s: a line of over %d bytes, at byte %" PRId64 ": this is no text",
                   neo__path_name(source->paths[source->file]), NEO__LINE_DROP, block->offset);
        NEO__TRY(neo__source_fill(source, source->carry, NEO__CHUNK_BYTES, &got));
        const char *stop = (const char *)memchr(source->carry, '\n', got);
        size_t dropped = stop ? (size_t)(stop + 1 - source->carry) : got;
        block->bytes += (int64_t)dropped;
        if (!stop) {
            if (neo__source_stopped(source)) break;
            continue;
        }
        source->carry_bytes = got - dropped;
        memmove(source->carry, source->carry + dropped, source->carry_bytes);
        return NEO_OK;
    }
    return NEO_OK;
}
/* The bytes of at most so many lines of a text. */
static size_t neo__text_lines(const char *text, size_t bytes, int64_t lines) {
    const char *p = text, *end = text + bytes;
    for (; lines > 0 && p < end; lines--) {
        const char *stop = (const char *)memchr(p, '\n', (size_t)(end - p));
        p = stop ? stop + 1 : end;
    }
    return (size_t)(p - text);
}
static neo_status neo__source_stale(const neo__source *source) {
    return neo_fail(NEO_ERR_MISMATCH, "%s: has changed since the reader was opened",
                    source->paths[source->file]);
}
/* Make a block of the text of other ranks up to the mark. */
static neo_status neo__source_pass(neo__source *source, neo__block *block, const neo__mark *to) {
    char before = 0;
    NEO__TRY(neo__file_read_at(&source->handle, to->offset - 1, &before, 1));
    if (before != '\n') return neo__source_stale(source);
    NEO__TRY(neo__file_seek(&source->handle, to->offset));
    block->passed = 1;
    block->bytes = to->offset - source->offset;
    block->count = to->samples - source->at.samples;
    block->lines = to->lines - source->at.lines;
    source->carry_bytes = 0;
    source->at_end = 0;
    source->sample += block->count;
    source->offset = to->offset;
    source->at = *to;
    return NEO_OK;
}
/* With an index: pass over what is not needed, or say how many bytes from here on a block may have
   so that there is little of that in it. */
static neo_status neo__source_choose(neo__source *source, neo__block *block, size_t *most) {
    const neo__index *index = &source->index[source->file];
    const neo__share *share = source->share;
    const int64_t from = source->sample, here = source->at.samples;
    if (share->shuffled) return NEO_OK;
    int64_t stop, end = NEO__MIN((from / share->window + 1) * share->window, share->total);
    const int64_t own = neo__share_next(share, from, end, &stop);
    const neo__mark *mark = neo__index_before(index, here + own - from);
    if (source->offset > 0 && source->skip_lines == 0 && mark && mark->offset > source->offset)
        return neo__source_pass(source, block, mark);
    mark = neo__index_before(index, here + (own < end ? stop : end) - from - 1);
    mark = mark ? mark + 1 : index->marks;
    if (mark == index->marks + index->count || mark->offset <= source->offset) return NEO_OK;
    *most = (size_t)NEO__MIN((int64_t)*most, mark->offset - source->offset);
    return NEO_OK;
}
static void neo__shuffle(const neo__share *share, int64_t number, uint32_t *order, int64_t count);
/* Which samples of a window, counted since the last seek, end up in this rank's leaves. */
static void neo__source_draw(neo__source *source, int64_t number) {
    const neo__share *share = source->share;
    const int64_t begin = number * share->window;
    const int64_t end = NEO__MIN(begin + share->window, share->total);
    int64_t stop = begin;
    source->drawn = number;
    memset(source->own, 0, (size_t)(share->window / 64 + 1) * sizeof *source->own);
    if (end > begin) neo__shuffle(share, share->number + number, source->order, end - begin);
    for (int64_t i; (i = neo__share_next(share, stop, end, &stop)) < end;)
        for (; i < stop; i++) {
            const uint32_t sample = source->order[i - begin];
            source->own[sample / 64] |= (uint64_t)1 << sample % 64;
        }
}
/* Mark the samples of a block, whose first is sample `from`, that are this rank's. */
static void neo__source_own(neo__source *source, neo__block *block, int64_t from) {
    const int64_t window = source->share->window;
    memset(block->own, 0, (size_t)(block->samples / 64 + 1) * sizeof *block->own);
    for (int64_t i = 0; i < block->samples;) {
        const int64_t number = (from + i) / window, begin = number * window - from;
        const int64_t end = NEO__MIN(begin + window, block->samples);
        if (number != source->drawn) neo__source_draw(source, number);
        for (; i < end; i++) block->own[i / 64] |= neo__bit(source->own, i - begin) << i % 64;
    }
}
/* Count the samples of a block's text, which ends where the source is. */
static neo_status neo__source_count(neo__source *source, neo__block *block) {
    neo__scan scan = {source->schema, source->at, block->skip_lines, NULL};
    neo__scan_lines(&scan, block->raw, block->raw + block->raw_bytes);
    block->samples = scan.at.samples - source->at.samples;
    if (source->share->shuffled) neo__source_own(source, block, source->sample);
    source->sample += block->samples;
    source->at = scan.at;
    source->at.offset = source->offset;
    return block->file_end && scan.at.samples != source->index[block->file].end.samples
               ? neo__source_stale(source)
               : NEO_OK;
}
static neo_status neo__source_text(neo__source *source, neo__block *block) {
    size_t most = NEO__CHUNK_BYTES;
    if (source->index) NEO__TRY(neo__source_choose(source, block, &most));
    if (block->passed) return NEO_OK;
    size_t count = source->carry_bytes, got = 0;
    memcpy(block->raw, source->carry, count);
    source->carry_bytes = 0;
    block->file = source->file;
    block->offset = source->offset;
    if (!source->at_end && count < most)
        NEO__TRY(neo__source_fill(source, block->raw + count, most - count, &got));
    count += got;
    if (count > 0 && count == most && most < NEO__CHUNK_BYTES && block->raw[count - 1] != '\n')
        return neo__source_stale(source);
    if (block->offset == 0)
        NEO__TRY(neo__source_refuse_compressed(neo__path_name(source->paths[block->file]),
                                               block->raw, count, 0));
    size_t cut = count;
    if (!source->at_end)
        while (cut > 0 && block->raw[cut - 1] != '\n') cut--;
    if (block->most_lines) cut = neo__text_lines(block->raw, cut, block->most_lines);
    block->bytes = (int64_t)cut;
    if (cut == 0 && count > 0) {
        if (count < NEO__CHUNK_BYTES) { /* a pipe: part of a line */
            memcpy(source->carry, block->raw, count);
            source->carry_bytes = count;
        } else {
            cut = count;
            block->bytes = (int64_t)count;
            NEO__TRY(neo__source_drop_line(source, block));
        }
    } else {
        source->carry_bytes = count - cut;
        memcpy(source->carry, block->raw + cut, count - cut);
    }
    block->raw_bytes = cut;
    if (cut > 0 && block->raw[cut - 1] != '\n') block->raw[block->raw_bytes++] = '\n';
    memset(block->raw + block->raw_bytes, '\n', NEO__BLOCK_PAD);
    for (const char *p = block->raw, *end = p + block->raw_bytes; p < end && source->skip_lines > 0;
         p++) {
        const char *line = p;
        p = (const char *)memchr(p, '\n', (size_t)(end - p));
        block->skip_lines++;
        if (--source->skip_lines == 0 && source->schema->header)
            NEO__TRY(neo__head_parse(source, block->offset + (line - block->raw), line, p));
    }
    if (block->head.target) {
        block->head.fields = source->head.fields;
        block->head.labeled = source->head.labeled;
        memcpy(block->head.target, source->head.target,
               (size_t)source->head.fields * sizeof *block->head.target);
    }
    source->offset += block->bytes;
    block->file_end = source->at_end && source->carry_bytes == 0;
    return source->index ? neo__source_count(source, block) : NEO_OK;
}

/* neo__source_next: the next block; b->end when there is none. A failure is in b->status too. */
static neo_status neo__source_next(neo__source *source, neo__block *block) {
    neo__block_clear(block);
    block->raw_bytes = 0;
    block->bytes = block->skip_lines = block->samples = 0;
    block->file_end = block->end = block->passed = 0;
    block->file = source->file;
    block->offset = source->offset;
    block->share = source->share;
    block->sample = source->sample;
    block->status = NEO_OK;
    if (source->file == source->path_count) {
        block->end = 1;
        return NEO_OK;
    }
    const neo__format *format = neo__format_of(source->schema);
    if (!source->open && format->begin) block->status = format->begin(source);
    if (block->status == NEO_OK) block->status = format->fill(source, block);
    if (block->status != NEO_OK) {
        memcpy(block->error, neo_last_error(), sizeof block->error);
    } else if (block->file_end) {
        neo__source_close_file(source);
        source->file++;
        source->offset = 0;
    }
    return block->status;
}
/* Start (again) at a place. */
static void neo__source_seek(neo__source *source, int32_t file, int64_t offset) {
    neo__source_close_file(source);
    source->file = file;
    source->offset = offset;
    source->carry_bytes = 0;
    source->at_end = 0;
    source->sample = 0;
    source->sought = 1;
}
static void neo__source_destroy(neo__source *source) {
    if (!source->schema) return;
    neo__source_close_file(source);
    neo__arena_free(&source->arena);
    memset(source, 0, sizeof *source);
}
static neo_status neo__source_create(neo__source *source, const char *function,
                                     const neo_schema *schema, const neo__parse_options *options,
                                     const char *const *paths, int32_t path_count) {
    int input = 0;
    memset(source, 0, sizeof *source);
    source->options = options;
    if (schema->format == NEO_FORMAT_SYNTHETIC) {
        NEO__CHECK(path_count == 0, NEO_ERR_ARG, "%s: synthetic data takes no paths", function);
        source->schema = schema;
        return NEO_OK;
    }
    NEO__CHECK(path_count >= 1 && paths, NEO_ERR_ARG, "%s: no paths", function);
    for (int32_t i = 0; i < path_count; i++) {
        NEO__CHECK(paths[i] && paths[i][0], NEO_ERR_ARG, "%s: path %d is empty", function, i);
        input += strcmp(paths[i], "-") == 0;
    }
    NEO__CHECK(input <= 1, NEO_ERR_ARG, "%s: standard input ('-') is there twice", function);
    NEO__CHECK(input == 0 || neo__format_of(schema)->line, NEO_ERR_ARG,
               "%s: arrays and records cannot come from standard input", function);
    source->schema = schema;
    source->arena.ctx = schema->ctx;
    source->arena.function = function;
    source->path_count = path_count;
    NEO__TRY(NEO__ARENA(&source->arena, source->paths, path_count));
    NEO__TRY(NEO__ARENA(&source->arena, source->carry, NEO__CHUNK_BYTES + 1));
    NEO__TRY(NEO__ARENA(&source->arena, source->row_path, (int)NEO__ROW_FILES * NEO__PATH_BYTES));
    NEO__TRY(NEO__ARENA(&source->arena, source->planes, NEO__MAX(schema->plane_count, 1)));
    if (schema->header) {
        NEO__TRY(NEO__ARENA(&source->arena, source->head.target, NEO__COLUMNS_MAX));
        NEO__TRY(NEO__ARENA(&source->arena, source->names, NEO__COLUMNS_MAX));
    }
    for (int32_t i = 0; i < path_count; i++) {
        source->paths[i] = neo__arena_text(&source->arena, paths[i], strlen(paths[i]));
        NEO__CHECK(source->paths[i], NEO_ERR_MEMORY, "%s: no memory for %d paths", function,
                   path_count);
    }
    return NEO_OK;
}

enum { NEO__LOG_BAD_LINES = 10 };
/* Count over the blocks of a file: lines, samples, bad lines. */
typedef struct neo__tally {
    int64_t line;        /* of the file, at which the block in turn begins */
    int64_t samples;     /* of the file, so far */
    int whole_file;      /* the file was read from its start: it must hold a sample */
    int64_t bad, logged; /* bad lines of all files; those logged */
    int64_t labels;      /* samples of all files */
    neo__watch watch[NEO__WATCHED];
    int whole; /* from the first file's start */
    int told;  /* that there is no positive label */
} neo__tally;
enum { NEO__TALLY_LABELS = 100000 /* samples that hold a positive label, or something is wrong */ };
static void neo__tally_file(neo__tally *tally) {
    tally->line = 1;
    tally->samples = 0;
    tally->whole_file = 1;
}
/* NEO_ERR_FORMAT: no value of a label was one of the words of its positive=. */
static neo_status neo__tally_labels(const neo_schema *schema, const neo__tally *tally) {
    char shown[NEO__LABELS * sizeof(neo__quoted) + 16] = "";
    for (int32_t i = 0; i < schema->op_count; i++) {
        const neo__op *op = &schema->ops[i];
        if (op->kind != NEO__OP_LABEL || !op->words || op->out >= NEO__WATCHED) continue;
        const neo__watch *watch = &tally->watch[op->out];
        if (watch->positive > 0 || watch->labels == 0) continue;
        for (int k = 0; k < watch->negative.count; k++)
            neo__append(shown, sizeof shown, "%s%s", k ? ", " : "",
                        k < NEO__LABELS ? watch->negative.label[k].text : "...");
        return neo_fail(NEO_ERR_FORMAT,
                        "column '%.60s': none of %" PRId64 " labels is '%.*s'%s, as positive= "
                        "asks: there are %s",
                        schema->columns[op->column].name, watch->labels, NEO__SHOW(op->words[0]),
                        op->word_count > 1 ? " or another word" : "", shown);
    }
    return NEO_OK;
}
/* Log that, once. */
static void neo__tally_tell(const neo_schema *schema, neo__tally *tally) {
    if (tally->told || neo__tally_labels(schema, tally) == NEO_OK) return;
    tally->told = 1;
    neo_log(schema->ctx, NEO_LOG_WARNING, "%s: all are 0", neo_last_error());
}
/* Take in a block whose samples are counted: log its bad lines, or fail with the one that stopped
   it. Messages read "file:line:column: message". */
static neo_status neo__tally_block(const neo_schema *schema, neo__tally *tally,
                                   const neo__block *block, const char *path) {
    neo_ctx *ctx = schema->ctx;
    char text[NEO__ERROR_BYTES];
    for (int i = 0; i < block->issue_count; i++) {
        const neo__issue *issue = &block->issues[i];
        if (issue->column == 0) snprintf(text, sizeof text, "%.256s%s", path, issue->text);
        else
            snprintf(text, sizeof text, "%.256s:%" PRId64 ":%" PRId64 ": %s", path,
                     tally->line + issue->line, issue->column, issue->text);
        if (block->failed) return neo_fail(issue->status, "%s", text);
        if (tally->logged++ < NEO__LOG_BAD_LINES)
            neo_log(ctx, NEO_LOG_WARNING, "skipped: %s", text);
    }
    for (int k = 0; k < NEO__WATCHED; k++) {
        const neo__watch *from = &block->watch[k];
        neo__watch *to = &tally->watch[k];
        to->labels += from->labels;
        to->positive += from->positive;
        for (int i = 0; i < NEO__MIN(from->negative.count, (int)NEO__LABELS); i++)
            neo__labels_add(&to->negative, &from->negative.label[i]);
        if (from->negative.count > NEO__LABELS) to->negative.count = NEO__LABELS + 1;
    }
    tally->bad += block->bad;
    tally->line += block->lines;
    tally->labels += block->labels;
    if (tally->labels >= NEO__TALLY_LABELS) neo__tally_tell(schema, tally);
    NEO__CHECK(!block->file_end || !tally->whole_file || tally->samples > 0, NEO_ERR_FORMAT,
               "%s: holds no sample", path);
    return NEO_OK;
}

/* ---- fitting ---- */
typedef struct neo__fit {
    neo__source source;
    neo__block block;
    neo__parse_options options;
    neo__tally tally;
    int64_t samples; /* of all files */
} neo__fit;

static neo_status neo__fit_block(neo_schema *schema, neo__fit *fit) {
    neo__block *block = &fit->block;
    NEO__TRY(neo__source_next(&fit->source, block));
    if (block->end) return NEO_END;
    if (block->offset == 0) neo__tally_file(&fit->tally);
    NEO__TRY(neo__block_parse(schema, &fit->options, block));
    fit->tally.samples += block->taken;
    fit->samples += block->taken;
    return neo__tally_block(schema, &fit->tally, block,
                            neo__path_name(fit->source.paths[block->file]));
}
/* One pass over the files, for what fit->options collects. NEO_END: all of them. */
static neo_status neo__fit_run(neo_schema *schema, const char *function, neo__fit *fit,
                               const char *const *paths, int path_count) {
    fit->tally.told = 1; /* labels are looked at in the end */
    neo__fp_state fp = neo__fp_enter();
    neo_status status =
        neo__source_create(&fit->source, function, schema, &fit->options, paths, path_count);
    if (status == NEO_OK)
        status = neo__block_create(schema->ctx, schema, fit->options.unlabeled, &fit->block);
    while (status == NEO_OK) status = neo__fit_block(schema, fit);
    neo__block_destroy(schema->ctx, &fit->block);
    neo__source_destroy(&fit->source);
    neo__fp_leave(fp);
    return status;
}
/* One pass over the files for the sizes that are not given. */
static neo_status neo__svm_scan(neo_schema *schema, const neo_libsvm_desc *desc,
                                neo__svm_sizes *sizes) {
    NEO__ZERO(neo__fit, fit);
    fit.options.skip_bad = desc->skip_bad_lines;
    fit.options.unlabeled = 1; /* a reader knows better */
    fit.options.sizes = sizes;
    NEO__TRY(neo__schema_features(schema, 0, 1));
    schema->rows[0] = 1;
    neo__schema_end(schema);
    const neo_status status =
        neo__fit_run(schema, schema->arena.function, &fit, desc->paths, desc->path_count);
    return status == NEO_END ? NEO_OK : status;
}
NEO_API neo_status neo_schema_fit(neo_schema *schema, const char *const *paths, int path_count,
                                  int skip_bad_lines) {
    NEO__CHECK_LIVE(schema, "neo_schema_fit", "schema");
    if (schema->dict_count == 0) return NEO_OK;
    NEO__CHECK(!schema->fitted, NEO_ERR_STATE, "neo_schema_fit: the schema is fitted already");
    NEO__ZERO(neo__fit, fit);
    neo__dict *dicts;
    NEO__TRY(neo__dicts_create(schema, &dicts));
    fit.options.skip_bad = skip_bad_lines;
    fit.options.fit = dicts;
    neo_status status = neo__fit_run(schema, "neo_schema_fit", &fit, paths, path_count);
    neo_status labels = status == NEO_END ? neo__tally_labels(schema, &fit.tally) : NEO_OK;
    if (labels != NEO_OK) status = labels;
    for (int32_t f = 0; f < schema->feature_count; f++) {
        if (schema->has_dict[f] && status == NEO_END)
            neo__dict_prune(schema->ctx, &dicts[f]);
        dicts[f].samples = fit.samples;
    }
    neo__schema_install(schema, dicts, status == NEO_END);
    return status == NEO_END ? NEO_OK : status;
}
/* ---------------------------------------------------------------------------
   >>impl-reader

   A pipeline of three stages, run by the reader's threads under one lock, each in order of number:
     blocks   read (one thread at a time) and parsed (many at once) into records;
     windows  filled from the blocks in order (one thread at a time). A window is a whole number of
              batches; the last one of an epoch may be short. Its order is a permutation keyed
              by (seed, epoch, window number), or none;
     slots    this rank's part of batches, gathered from the windows (many at once), handed out in
              order by neo_reader_next.
   Which ranks there are matters to the last stage only: blocks, windows and positions are those of
   the whole stream on all of them.
   Each stage has a fixed number of buffers, and a thread takes the work nearest to the consumer
   that is ready, so memory is bounded, nothing waits in a circle, and what comes out depends on no
   timing. A position is the place in the files where a window starts and how many of its samples
   are used up; resuming reads that window again. Errors end the stream behind the windows
   completed before them.
   Records and arrays in file order are `direct`: where the rows of a batch are is known, so a
   window has none, and a slot is gathered from files that each thread opens for itself, some rows
   at a time, that are in the cache when they are parsed (neo__gather_records). Errors then end it
   behind the batch before them.
   ------------------------------------------------------------------------ */
enum {
    NEO__WINDOWS = 2,
    NEO__WINDOW_LEAST = 512, /* samples: small batches share a window */
    NEO__SHUFFLE_MAX = 1 << 30
};
typedef struct neo__place {
    int32_t file;
    int64_t offset, line; /* line from 1 */
} neo__place;

typedef struct neo__ids {
    int64_t *list, count, capacity;
    float *weights; /* of a schema with weights; or NULL */
    int64_t weight_capacity;
} neo__ids;

typedef enum neo__window_state { NEO__WINDOW_FILLING, NEO__WINDOW_FULL } neo__window_state;
typedef struct neo__window {
    neo__window_state state;
    char *records;   /* [window samples] */
    neo__ids ids;    /* of features with several */
    uint32_t *order; /* of the samples; NULL: as they come */
    int64_t number, count;
    int64_t first; /* number of its first sample in the epoch */
    int64_t batches, assigned, done;
    neo__place begin, end;
    int64_t bad_begin, bad_end; /* bad lines of the epoch before its begin and end */
} neo__window;

typedef enum neo__slot_state {
    NEO__SLOT_FREE,
    NEO__SLOT_BUSY,
    NEO__SLOT_READY,
    NEO__SLOT_OUT
} neo__slot_state;
typedef struct neo__slot {
    neo__slot_state state;
    float *dense, *label, *weight;
    int64_t *offsets;
    int64_t counted; /* offsets[i] is i below this: of one id each they stay */
    int64_t *bags;   /* with desc.dedup: feature_bags, inverse and the table that finds bags */
    int32_t *inverse, *place;
    char *rows, *tile; /* of a direct reader: rows of the file, records made of them */
    int64_t *tile_ids;
    neo__ids ids;
    neo_batch batch;
    neo_position after;
    int64_t bad, bytes;
} neo__slot;

typedef struct neo__reader_thread {
    neo_reader *reader;
    neo__thread thread;
    neo__source source; /* of a direct reader: files that this thread has open */
} neo__reader_thread;

/* The files and their sizes; constant after open. */
typedef struct neo__extent {
    int64_t *bytes_before; /* [files + 1]: bytes of the files before file i; NULL: unknown */
    int64_t *rows_before;  /* [files + 1], npy: rows of them; or NULL */
    int64_t bytes, samples;
    int live; /* standard input or a pipe is among them: it can be read once */
} neo__extent;
/* First stage: the source and its blocks, numbered in the order of the text. */
typedef struct neo__blocks {
    neo__source source;
    neo__parse_options options;
    neo__block *block; /* [count] */
    uint8_t *parsed;   /* per block: waits to be taken */
    int count;
    int64_t read_number, fill_number; /* the next to read, to go into a window */
    int reading, filling;             /* a thread is at it */
    int all_read;
} neo__blocks;
/* Second stage: the windows, and where the next sample for them comes from. */
typedef struct neo__windows {
    neo__window window[NEO__WINDOWS];
    int64_t samples;    /* of a full window; constant */
    int64_t fill, take; /* the next to fill, to gather from */
    int64_t base;       /* number of the first window after a seek */
    int64_t skip;       /* samples of it that are used up */
    neo__place place;   /* end of the last sample that went into a window */
    neo__tally tally;   /* of the file in turn, and of the epoch */
    int64_t seen;       /* samples of the epoch, so far */
} neo__windows;
/* Third stage: batches, gathered into slots and handed out in order. */
typedef struct neo__slots {
    neo__slot *slot; /* [count] */
    int count;
    int hold;                           /* batches that the caller may hold */
    int64_t assign_number, next_number; /* the next batch to gather, to hand out */
    int64_t closed;                     /* batches of the windows filled so far */
} neo__slots;
/* The end of the epoch, or the error that ends it. */
typedef struct neo__reader_end {
    int64_t number; /* batches there are; -1: not known yet */
    neo_status status;
    char text[NEO__ERROR_BYTES];
} neo__reader_end;

struct neo_reader {
    /* constant after open */
    neo_ctx *ctx;
    neo__live live;
    neo_schema *schema;
    neo_reader_desc desc;
    int first_leaf, end_leaf; /* of every batch */
    int direct;               /* see the top of the section */
    neo__share share;         /* the same, where rows of other ranks need not be read */
    neo__extent extent;
    uint64_t check; /* a hash of everything that a position depends on */
    uint32_t parts; /* 31 bits, not 0: a few of a hash of each thing, to name one that differs */
    uint32_t sizes; /* 31 bits of a hash of the files' sizes; 0: unknown */
    char *memory;   /* of all three stages */
    size_t memory_bytes;
    /* threads */
    neo__mutex lock;
    neo__cond work, ready;
    neo__reader_thread *threads;
    int thread_count, started;
    int stop;    /* atomic; workers leave their loop */
    int touched; /* reading has begun */
    /* under the lock, unless one thread is at it alone */
    neo__blocks blocks;
    neo__windows windows;
    neo__slots slots;
    neo__reader_end end;
    int64_t epoch;
    neo_position position;
    neo_reader_stats stats;
};

/* ---- the loops over samples: shuffle, append to a window, gather a batch ---- */
NEO__HOT_BEGIN
/* Fisher-Yates; the number for place i is block i / 2 of the stream, its low or high half. */
static void neo__shuffle(const neo__share *share, int64_t number, uint32_t *order, int64_t count) {
    char name[64];
    uint32_t block[4] = {0, 0, 0, 0};
    uint64_t loaded = (uint64_t)-1;
    snprintf(name, sizeof name, "reader.window.%" PRId64, number);
    neo__random_key key =
        neo__random_key_make(share->seed, neo_hash(name), share->epoch, NEO_STREAM_SHUFFLE);
    for (int64_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        if ((uint64_t)i / 2 != loaded) {
            loaded = (uint64_t)i / 2;
            neo__random_block(&key, loaded, block);
        }
        const uint32_t *half = block + 2 * (i & 1);
        uint64_t j = neo__times_high((uint64_t)half[0] << 32 | half[1], (uint64_t)i + 1);
        uint32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}
/* Room for `count` ids; those in the list are kept. */
static neo_status neo__ids_reserve(neo_reader *r, neo__ids *list, int64_t count) {
    if (r->schema->weighted)
        NEO__TRY(NEO__GROW(r->ctx, list->weights, list->weight_capacity, count));
    if (count <= list->capacity) return NEO_OK;
    if (list->capacity > 0) __atomic_fetch_add(&r->stats.grow_count, 1, __ATOMIC_RELAXED);
    return NEO__GROW(r->ctx, list->list, list->capacity, count);
}
/* Samples [taken, taken + count) of the block to the end of the window. */
static neo_status neo__window_append(neo_reader *reader, neo__window *window, neo__block *block,
                                     int64_t count) {
    const neo_schema *schema = reader->schema;
    char *to = window->records + (size_t)window->count * schema->record_bytes;
    const char *from = block->records + (size_t)block->taken * schema->record_bytes;
    memcpy(to, from, (size_t)count * schema->record_bytes);
    if (schema->multi) {
        int64_t first = neo__record_ids(schema, neo__block_record(schema, block, block->taken))[0];
        int64_t *last =
            neo__record_ids(schema, neo__block_record(schema, block, block->taken + count - 1));
        int64_t ids = last[0] + last[schema->feature_count] - first;
        NEO__TRY(neo__ids_reserve(reader, &window->ids, window->ids.count + ids));
        memcpy(window->ids.list + window->ids.count, block->ids + first,
               (size_t)ids * sizeof(int64_t));
        if (schema->weighted)
            memcpy(window->ids.weights + window->ids.count, block->weights + first,
                   (size_t)ids * sizeof(float));
        for (int64_t i = 0; i < count; i++)
            neo__record_ids(schema, to + (size_t)i * schema->record_bytes)[0] +=
                window->ids.count - first;
        window->ids.count += ids;
    }
    window->count += count;
    block->taken += count;
    return NEO_OK;
}
/* Labels and weight of a record are those of sample i. */
NEO__INLINE void neo__gather_labels(const neo_schema *schema, const float *record, int64_t i,
                                    neo__slot *slot) {
    float *label = slot->label + i * schema->label_count;
    label[0] = record[0];
    for (int32_t k = 1; k < schema->label_count; k++)
        label[k] = record[neo__record_label(schema, k)];
    if (slot->weight) slot->weight[i] = record[1 + schema->dense_count];
}
#if defined(NEO__X86)
/* Ids of 4 n samples, 4 by 4: returns how many features are done. */
NEO__AVX2 static int64_t neo__gather_ids_avx2(const int64_t *const *ids, int64_t n,
                                              int64_t features, int64_t *to, int64_t stride) {
    int64_t t = 0;
    for (; t + 4 <= features; t += 4, to += 4 * stride)
        for (int64_t k = 0; k < 4 * n; k += 4) {
            const __m256i a = neo__avx2_load(ids[k] + t), b = neo__avx2_load(ids[k + 1] + t);
            const __m256i c = neo__avx2_load(ids[k + 2] + t), d = neo__avx2_load(ids[k + 3] + t);
            const __m256i ab = _mm256_unpacklo_epi64(a, b), cd = _mm256_unpacklo_epi64(c, d);
            const __m256i AB = _mm256_unpackhi_epi64(a, b), CD = _mm256_unpackhi_epi64(c, d);
            __m256i *p = (__m256i *)(void *)(to + k);
            _mm256_storeu_si256(p, _mm256_permute2x128_si256(ab, cd, 0x20));
            p = (__m256i *)(void *)(to + stride + k);
            _mm256_storeu_si256(p, _mm256_permute2x128_si256(AB, CD, 0x20));
            p = (__m256i *)(void *)(to + 2 * stride + k);
            _mm256_storeu_si256(p, _mm256_permute2x128_si256(ab, cd, 0x31));
            p = (__m256i *)(void *)(to + 3 * stride + k);
            _mm256_storeu_si256(p, _mm256_permute2x128_si256(AB, CD, 0x31));
        }
    return t;
}
#endif
enum { NEO__GATHER_TILE = 32 };
/* `m` records, each feature of one id, to samples from i on of the `count` of a slot. */
static void neo__gather_tile(const neo_schema *schema, const float *const *records, int64_t i,
                             int64_t m, int64_t count, neo__slot *slot) {
    const int64_t features = schema->feature_count, dense = schema->dense_count;
    const int64_t *ids[NEO__GATHER_TILE];
    for (int64_t k = 0; k < m; k++) {
        neo__gather_labels(schema, records[k], i + k, slot);
        memcpy(slot->dense + (i + k) * dense, records[k] + 1, (size_t)dense * sizeof(float));
        ids[k] = (const int64_t *)(const void *)((const char *)records[k] + schema->ids_offset);
    }
    int64_t t = 0;
#if defined(NEO__X86)
    if (m == NEO__GATHER_TILE && schema->ctx->isa >= NEO_ISA_AVX2)
        t = neo__gather_ids_avx2(ids, NEO__GATHER_TILE / 4, features, slot->ids.list + i, count);
#endif
    for (; t < features; t++)
        for (int64_t k = 0; k < m; k++) slot->ids.list[t * count + i + k] = ids[k][t];
}
/* The offsets of so many bags of one id each. */
static void neo__gather_offsets(neo__slot *slot, int64_t bags) {
    for (; slot->counted <= bags; slot->counted++) slot->offsets[slot->counted] = slot->counted;
}
/* Sample i of a window, in its order. */
NEO__INLINE float *neo__window_record(const neo_schema *schema, const neo__window *window,
                                      int64_t i) {
    const size_t at = window->order ? window->order[i] : (size_t)i;
    return (float *)(void *)(window->records + at * schema->record_bytes);
}
static void neo__gather_fixed(const neo_schema *schema, const neo__window *window, int64_t first,
                              int64_t count, neo__slot *slot) {
    const float *records[NEO__GATHER_TILE];
    for (int64_t i = 0; i < count; i += NEO__GATHER_TILE) {
        const int64_t m = NEO__MIN(count - i, (int64_t)NEO__GATHER_TILE);
        for (int64_t k = 0; k < m; k++)
            records[k] = neo__window_record(schema, window, first + i + k);
        neo__gather_tile(schema, records, i, m, count, slot);
    }
    neo__gather_offsets(slot, schema->feature_count * count);
}
/* `count` rows from number `row` of all files on, see >>impl-binary. */
static neo_status neo__gather_records(neo_reader *reader, neo__source *source, int64_t row,
                                      int64_t count, neo__slot *slot);
static neo_status neo__gather_multi(neo_reader *reader, const neo__window *window, int64_t first,
                                    int64_t count, neo__slot *slot) {
    const neo_schema *schema = reader->schema;
    int64_t features = schema->feature_count, dense = schema->dense_count, total = 0;
    for (int64_t i = 0; i < count; i++) {
        float *record = neo__window_record(schema, window, first + i);
        const int64_t *ends = neo__record_ids(schema, record);
        neo__gather_labels(schema, record, i, slot);
        memcpy(slot->dense + i * dense, record + 1, (size_t)dense * sizeof(float));
        for (int64_t t = 0; t < features; t++)
            slot->offsets[t * count + i + 1] = ends[t + 1] - (t ? ends[t] : 0);
    }
    slot->offsets[0] = 0;
    for (int64_t i = 0; i < features * count; i++)
        slot->offsets[i + 1] = total += slot->offsets[i + 1];
    NEO__TRY(neo__ids_reserve(reader, &slot->ids, total));
    for (int64_t i = 0; i < count; i++) {
        const int64_t *ends =
            neo__record_ids(schema, neo__window_record(schema, window, first + i));
        const int64_t *ids = window->ids.list + ends[0];
        const float *weights = schema->weighted ? window->ids.weights + ends[0] : NULL;
        for (int64_t t = 0; t < features; t++) {
            int64_t from = t ? ends[t] : 0, to = slot->offsets[t * count + i];
            for (int64_t k = from; k < ends[t + 1]; k++) slot->ids.list[to + k - from] = ids[k];
            for (int64_t k = from; weights && k < ends[t + 1]; k++)
                slot->ids.weights[to + k - from] = weights[k];
        }
    }
    return NEO_OK;
}
NEO__HOT_END

/* ---- filling windows ---- */
/* The window is as full as it will be. */
static void neo__window_close(neo_reader *r, neo__window *w) {
    w->end = r->windows.place;
    w->bad_end = r->windows.tally.bad;
    w->batches = r->desc.drop_last ? w->count / r->desc.batch
                                   : (w->count + r->desc.batch - 1) / r->desc.batch;
    if (w->order) neo__shuffle(&r->share, w->number, w->order, w->count);
}
static void neo__window_begin(neo_reader *r, neo__window *w, int64_t number) {
    w->state = NEO__WINDOW_FILLING;
    w->count = w->ids.count = w->batches = w->assigned = w->done = 0;
    w->number = number;
    w->first = r->windows.seen;
    w->begin = r->windows.place;
    w->bad_begin = r->windows.tally.bad;
}
/* One step of the filling thread: from the block in turn into the window in turn. *window_done: it
   is full; *block_done: the block may be used again; *ended: this was all. */
static neo_status neo__reader_fill(neo_reader *reader, neo__block *block, neo__window *window,
                                   int *window_done, int *block_done, int *ended) {
    *window_done = *block_done = *ended = 0;
    if (block->status != NEO_OK) return neo_fail(block->status, "%s", block->error);
    if (block->end) {
        if (reader->windows.tally.whole) neo__tally_tell(reader->schema, &reader->windows.tally);
        neo__window_close(reader, window);
        *ended = *window_done = *block_done = 1;
        return NEO_OK;
    }
    if (block->offset == 0 && block->taken == 0) neo__tally_file(&reader->windows.tally);
    int64_t n = NEO__MIN(block->count - block->taken, reader->windows.samples - window->count);
    if (n > 0) {
        int64_t next = block->bytes, line = block->lines;
        if (block->passed) { /* no window begins within it, and nobody looks at these records */
            NEO_ASSERT(n == block->count);
            window->count += n;
            block->taken += n;
        } else {
            NEO__TRY(neo__window_append(reader, window, block, n));
            next = (int64_t)block->end_offset[block->taken - 1];
            line = (int64_t)block->end_line[block->taken - 1];
        }
        reader->windows.place.file = block->file;
        reader->windows.place.offset = block->offset + NEO__MIN(next, block->bytes);
        reader->windows.place.line = reader->windows.tally.line + line;
        reader->windows.seen += n;
        reader->windows.tally.samples += n;
    }
    if (block->taken == block->count) {
        const char **paths = reader->blocks.source.paths;
        NEO__TRY(neo__tally_block(reader->schema, &reader->windows.tally, block,
                                  paths ? neo__path_name(paths[block->file]) : "synthetic"));
        __atomic_fetch_add(&reader->stats.parsed_bytes, block->parsed_bytes, __ATOMIC_RELAXED);
        *block_done = 1;
    }
    if (window->count == reader->windows.samples) {
        neo__window_close(reader, window);
        *window_done = 1;
    }
    return NEO_OK;
}

/* ---- gathering batches ---- */
static void neo__position_set(const neo_reader *r, neo_position *p, int64_t samples, int64_t window,
                              int64_t used, neo__place place) {
    p->word[0] = r->epoch;
    p->word[1] = samples;
    p->word[2] = (int64_t)r->sizes << 32 | place.file;
    p->word[3] = place.offset;
    p->word[4] = place.line;
    p->word[5] = window;
    p->word[6] = (int64_t)r->parts << 32 | used;
    p->word[7] = (int64_t)r->check;
}
/* Batch k of a window: this rank's share. */
static neo_status neo__reader_gather(neo_reader *reader, neo__source *source,
                                     const neo__window *window, int64_t k, neo__slot *slot) {
    const neo_schema *schema = reader->schema;
    int64_t begin = k * reader->desc.batch,
            all = NEO__MIN(window->count - begin, reader->desc.batch);
    int shards = reader->ctx->repro_shards;
    int64_t first = begin + neo_leaf_begin(all, shards, reader->first_leaf);
    int64_t count = begin + neo_leaf_begin(all, shards, reader->end_leaf) - first;
    const neo__place *place = &window->begin;
    if (reader->direct)
        NEO__TRY(neo__gather_records(
            reader, source, reader->extent.rows_before[place->file] + place->offset + first, count,
            slot));
    else if (schema->multi)
        NEO__TRY(neo__gather_multi(reader, window, first, count, slot));
    else neo__gather_fixed(schema, window, first, count, slot);
    slot->batch.dense = neo_tensor_2d(slot->dense, NEO_F32, count, schema->dense_count);
    slot->batch.label = neo_tensor_2d(slot->label, NEO_F32, count, schema->label_count);
    if (schema->label_count == 1)
        slot->batch.label = neo_tensor_1d(slot->label, NEO_F32, count);
    slot->batch.weight = schema->sample_weighted ? neo_tensor_1d(slot->weight, NEO_F32, count)
                                                 : neo_tensor_none();
    memset(&slot->batch.sparse, 0, sizeof slot->batch.sparse);
    slot->batch.sparse.batch = count;
    slot->batch.sparse.feature_count = schema->feature_count;
    slot->batch.sparse.id_dtype = NEO_I64;
    slot->batch.sparse.offsets = slot->offsets;
    slot->batch.sparse.ids = slot->ids.list;
    slot->batch.sparse.weights = slot->ids.weights;
    if (reader->desc.dedup) {
        neo__jagged_fold(schema->feature_count, count, slot->offsets, slot->ids.list,
                         sizeof(int64_t), slot->ids.weights, slot->bags, slot->inverse,
                         slot->place);
        slot->counted = 0;
        slot->batch.sparse.feature_bags = slot->bags;
        slot->batch.sparse.inverse = slot->inverse;
    }
    slot->batch.first = window->first + first;
    slot->batch.size = count;
    slot->batch.global_size = all;
    int last = k + 1 == window->batches;
    int64_t samples = window->first + begin + all;
    if (last)
        neo__position_set(reader, &slot->after, window->first + window->count, window->number + 1,
                          0, window->end);
    else
        neo__position_set(reader, &slot->after, samples, window->number, begin + all,
                          window->begin);
    slot->bad = last ? window->bad_end : window->bad_begin;
    slot->bytes = 0;
    if (reader->extent.bytes_before) {
        int64_t a = reader->extent.bytes_before[window->begin.file] + window->begin.offset,
                b = reader->extent.bytes_before[window->end.file] + window->end.offset;
        slot->bytes =
            a + (int64_t)((double)(b - a) * (double)(begin + all) / (double)window->count);
    }
    return NEO_OK;
}

/* ---- the threads ---- */
static void neo__reader_finish(neo_reader *r, neo_status status) { /* locked */
    r->end.number = r->slots.closed;
    r->end.status = status;
    if (status != NEO_END) memcpy(r->end.text, neo_last_error(), sizeof r->end.text);
    neo__cond_broadcast(&r->ready);
    neo__cond_broadcast(&r->work);
}
/* The window that batches are gathered from; NULL: none is full. Only windows in [take, fill) are
   looked at: the others belong to the filling thread. */
static neo__window *neo__reader_taken(neo_reader *r) {
    for (; r->windows.take < r->windows.fill; r->windows.take++) {
        neo__window *w = &r->windows.window[r->windows.take % NEO__WINDOWS];
        if (w->assigned < w->batches) return w;
    }
    return NULL;
}
static int neo__reader_try_gather(neo_reader *reader, neo__source *source) { /* locked */
    neo__window *window = neo__reader_taken(reader);
    if (!window) return 0;
    int64_t number = reader->slots.assign_number;
    neo__slot *slot = &reader->slots.slot[number % reader->slots.count];
    if (slot->state != NEO__SLOT_FREE) return 0;
    int64_t k = window->assigned++;
    reader->slots.assign_number++;
    slot->state = NEO__SLOT_BUSY;
    neo__mutex_unlock(&reader->lock);
    neo_status status = neo__reader_gather(reader, source, window, k, slot);
    neo__mutex_lock(&reader->lock);
    if (status != NEO_OK && (reader->end.number < 0 || number < reader->end.number)) {
        reader->slots.closed = number;
        neo__reader_finish(reader, status);
    }
    slot->state = NEO__SLOT_READY;
    window->done++;
    neo__cond_broadcast(&reader->ready);
    if (window->done == window->batches) neo__cond_broadcast(&reader->work);
    return 1;
}
/* The window in turn, if it is free to be filled. */
static neo__window *neo__reader_window(neo_reader *r) {
    neo__window *w = &r->windows.window[r->windows.fill % NEO__WINDOWS];
    if (w->state == NEO__WINDOW_FILLING) return w;
    if (w->done < w->batches) return NULL;
    (void)neo__reader_taken(r); /* step past it: it is used up */
    neo__window_begin(r, w, r->windows.base + r->windows.fill);
    return w;
}
static neo_status neo__window_check_skip(const neo_reader *r, const neo__window *w) {
    NEO__CHECK(r->windows.skip <= w->count, NEO_ERR_MISMATCH,
               "the files hold fewer samples than when the position was saved");
    return NEO_OK;
}
/* The window in turn is full: locked. */
static void neo__reader_filled(neo_reader *r, neo__window *w) {
    w->assigned = w->done =
        NEO__MIN((r->windows.skip + r->desc.batch - 1) / r->desc.batch, w->batches);
    r->windows.skip = 0;
    r->slots.closed += w->batches - w->assigned;
    w->state = NEO__WINDOW_FULL;
    r->windows.fill++;
}
static int neo__reader_try_fill(neo_reader *reader) {
    int slot = (int)(reader->blocks.fill_number % reader->blocks.count);
    if (reader->blocks.filling || reader->end.number >= 0 ||
        reader->blocks.fill_number == reader->blocks.read_number || !reader->blocks.parsed[slot])
        return 0;
    neo__window *window = neo__reader_window(reader);
    if (!window) return 0;
    neo__block *block = &reader->blocks.block[slot];
    int window_done, block_done, ended;
    reader->blocks.filling = 1;
    neo__mutex_unlock(&reader->lock);
    neo_status status = neo__reader_fill(reader, block, window, &window_done, &block_done, &ended);
    if (status == NEO_OK && window_done) status = neo__window_check_skip(reader, window);
    neo__mutex_lock(&reader->lock);
    reader->blocks.filling = 0;
    if (status != NEO_OK) {
        neo__reader_finish(reader, status);
        return 1;
    }
    if (block_done) {
        reader->blocks.parsed[slot] = 0;
        reader->blocks.fill_number++;
    }
    if (window_done) neo__reader_filled(reader, window);
    if (ended) neo__reader_finish(reader, NEO_END);
    neo__cond_broadcast(&reader->work);
    return 1;
}
/* The window in turn of a direct reader, with the places where it begins and ends. */
static neo_status neo__window_pass(neo_reader *reader, neo__window *window, int *ended) {
    neo__place *place = &reader->windows.place;
    const neo__source *source = &reader->blocks.source;
    while (window->count < reader->windows.samples) {
        const int64_t *before = reader->extent.rows_before + place->file;
        const int64_t rows = before[1] - before[0];
        const int64_t n = NEO__MIN(reader->windows.samples - window->count, rows - place->offset);
        NEO__CHECK(rows > 0, NEO_ERR_FORMAT, "%s: holds no sample",
                   neo__path_name(source->paths[place->file]));
        window->count += n;
        place->offset += n;
        reader->windows.seen += n;
        if (place->offset < rows || window->count == reader->windows.samples) continue;
        *ended = place->file + 1 == source->path_count;
        if (*ended) break;
        place->file++;
        place->offset = 0;
    }
    neo__window_close(reader, window);
    return neo__window_check_skip(reader, window);
}
static int neo__reader_try_pass(neo_reader *reader) {
    neo__window *window = reader->end.number < 0 ? neo__reader_window(reader) : NULL;
    int ended = 0;
    if (!window) return 0;
    neo_status status = neo__window_pass(reader, window, &ended);
    if (status != NEO_OK) {
        neo__reader_finish(reader, status);
        return 1;
    }
    neo__reader_filled(reader, window);
    if (ended) neo__reader_finish(reader, NEO_END);
    neo__cond_broadcast(&reader->work);
    return 1;
}
static int neo__reader_try_read(neo_reader *reader) {
    int slot = (int)(reader->blocks.read_number % reader->blocks.count);
    if (reader->blocks.reading || reader->blocks.all_read || reader->end.number >= 0) return 0;
    if (reader->blocks.read_number - reader->blocks.fill_number >= reader->blocks.count) return 0;
    neo__block *block = &reader->blocks.block[slot];
    reader->blocks.reading = 1;
    reader->blocks.parsed[slot] = 0;
    reader->blocks.read_number++;
    neo__mutex_unlock(&reader->lock);
    neo_status status = neo__source_next(&reader->blocks.source, block);
    neo__mutex_lock(&reader->lock);
    reader->blocks.reading = 0;
    if (block->end || status != NEO_OK) reader->blocks.all_read = 1;
    neo__cond_signal(&reader->work); /* another may read on while this one parses */
    neo__mutex_unlock(&reader->lock);
    if (status == NEO_OK && !block->end)
        (void)neo__block_parse(reader->schema, &reader->blocks.options, block);
    neo__mutex_lock(&reader->lock);
    reader->blocks.parsed[slot] = 1;
    neo__cond_broadcast(&reader->work);
    return 1;
}
static void neo__reader_main(void *arg) {
    neo__source *source = &((neo__reader_thread *)arg)->source;
    neo_reader *reader = ((neo__reader_thread *)arg)->reader;
    neo__fp_state fp = neo__fp_enter();
    neo__mutex_lock(&reader->lock);
    while (!__atomic_load_n(&reader->stop, __ATOMIC_RELAXED)) {
        if (neo__reader_try_gather(reader, source) ||
            (reader->direct ? neo__reader_try_pass(reader)
                            : neo__reader_try_fill(reader) || neo__reader_try_read(reader)))
            continue;
        neo__cond_wait(&reader->work, &reader->lock);
    }
    neo__mutex_unlock(&reader->lock);
    if (reader->direct) neo__source_close_file(source);
    neo__fp_leave(fp);
}
static void neo__reader_stop(neo_reader *r) {
    neo__mutex_lock(&r->lock);
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED);
    neo__cond_broadcast(&r->work);
    neo__mutex_unlock(&r->lock);
    for (int i = 0; i < r->started; i++) neo__thread_join(&r->threads[i].thread);
    r->started = 0;
    __atomic_store_n(&r->stop, 0, __ATOMIC_RELAXED);
}
static neo_status neo__reader_start(neo_reader *reader) {
    for (int i = 0; i < reader->thread_count; i++) {
        neo__reader_thread *t = &reader->threads[i];
        t->reader = reader;
        if (!neo__thread_create(&t->thread, neo__reader_main, t)) {
            neo__reader_stop(reader);
            return neo_fail(NEO_ERR_SYSTEM, "neo_reader_next: cannot start thread %d of %d", i + 1,
                            reader->thread_count);
        }
        reader->started = i + 1;
    }
    reader->touched = 1;
    return NEO_OK;
}

/* ---- open, close ---- */
/* Go to a position. The threads are not running. */
static void neo__reader_reset(neo_reader *reader, const neo_position *position) {
    reader->epoch = position->word[0];
    const int64_t used = position->word[6] & INT32_MAX; /* above: sizes and parts, see neo_reader */
    reader->windows.place.file = (int32_t)(position->word[2] & INT32_MAX);
    reader->windows.place.offset = position->word[3];
    reader->windows.place.line = position->word[4];
    reader->windows.base = position->word[5];
    reader->windows.skip = used;
    reader->windows.seen = position->word[1] - used;
    reader->share.epoch = reader->epoch;
    reader->share.number = reader->windows.base;
    const int told = reader->windows.tally.told || reader->desc.unlabeled;
    memset(&reader->windows.tally, 0, sizeof reader->windows.tally);
    reader->windows.tally.told = told;
    reader->windows.tally.line = reader->windows.place.line;
    reader->windows.tally.whole = position->word[1] == 0;
    neo__source_seek(&reader->blocks.source, reader->windows.place.file,
                     reader->windows.place.offset);
    reader->share.total = reader->extent.samples - reader->windows.place.offset; /* of rows */
    if (reader->extent.rows_before)
        reader->share.total -= reader->extent.rows_before[reader->windows.place.file];
    for (int i = 0; i < reader->blocks.count; i++) reader->blocks.parsed[i] = 0;
    reader->blocks.read_number = reader->blocks.fill_number = 0;
    reader->blocks.reading = reader->blocks.filling = reader->blocks.all_read = 0;
    reader->windows.fill = reader->windows.take = 0;
    neo__window_begin(reader, &reader->windows.window[0], reader->windows.base);
    for (int i = 1; i < NEO__WINDOWS; i++) {
        reader->windows.window[i].state = NEO__WINDOW_FULL; /* and used up: free */
        reader->windows.window[i].batches = reader->windows.window[i].done =
            reader->windows.window[i].assigned = 0;
    }
    for (int i = 0; i < reader->slots.count; i++) reader->slots.slot[i].state = NEO__SLOT_FREE;
    reader->slots.assign_number = reader->slots.next_number = reader->slots.closed = 0;
    reader->end.number = -1;
    reader->end.status = NEO_OK;
    reader->position = *position;
    reader->stats.samples = reader->stats.bad_lines = reader->stats.parsed_bytes = 0;
    reader->stats.bytes =
        reader->extent.bytes_before
            ? reader->extent.bytes_before[reader->windows.place.file] + reader->windows.place.offset
            : 0;
}
static void neo__reader_begin(neo_reader *r, int64_t epoch) {
    const neo__place start = {0, 0, 1};
    neo_position position;
    r->epoch = epoch;
    neo__position_set(r, &position, 0, 0, 0, start);
    neo__reader_reset(r, &position);
}
/* No batch, full or not, has more for this rank. */
static size_t neo__slot_samples(const neo_reader *r) {
    int64_t shards = r->ctx->repro_shards, leaves = r->end_leaf - r->first_leaf;
    return (size_t)((r->desc.batch * leaves + shards - 1) / shards);
}
/* Rows that are read at a time, some 64 KiB, and bytes of one, at most. */
static int64_t neo__direct_row_bytes(const neo_schema *s) {
    const int64_t ids = s->hot ? s->sample_ids : s->feature_count;
    return (s->format == NEO_FORMAT_BINARY ? 4 : 8) * (s->label_count + s->dense_count + ids);
}
static int64_t neo__direct_rows(const neo_schema *s) {
    const int64_t tiles = 65536 / NEO__MAX(neo__direct_row_bytes(s), 1) / NEO__GATHER_TILE;
    return NEO__GATHER_TILE * NEO__MAX(tiles, 1);
}
/* Cut the memory of all stages. Lists of ids may grow, so each has memory of its own. */
static void neo__reader_layout(neo_reader *reader, neo__carve *carve) {
    const neo_schema *schema = reader->schema;
    const size_t samples = (size_t)reader->windows.samples, batch = neo__slot_samples(reader);
    NEO__CARVE(carve, reader->threads, reader->thread_count);
    NEO__CARVE(carve, reader->blocks.block, reader->blocks.count);
    NEO__CARVE(carve, reader->blocks.parsed, reader->blocks.count);
    NEO__CARVE(carve, reader->slots.slot, reader->slots.count);
    for (int i = 0; i < reader->blocks.count; i++) {
        neo__block counted;
        neo__block *block = carve->block ? &reader->blocks.block[i] : &counted;
        neo__block_layout(block, schema, reader->desc.unlabeled, carve);
    }
    for (int i = 0; i < reader->thread_count && reader->direct; i++) {
        neo__source counted, *source = carve->block ? &reader->threads[i].source : &counted;
        *source = reader->blocks.source;
        source->share = NULL; /* a slot's rows are all this rank's */
        NEO__CARVE(carve, source->planes, schema->plane_count);
        NEO__CARVE(carve, source->row_path, (int)NEO__ROW_FILES * NEO__PATH_BYTES);
    }
    for (int i = 0; i < NEO__WINDOWS; i++) {
        neo__window *window = &reader->windows.window[i];
        if (reader->direct) continue;
        NEO__CARVE(carve, window->records, neo__size_mul(samples, schema->record_bytes));
        if (reader->desc.shuffle_window) NEO__CARVE(carve, window->order, samples);
    }
    for (int i = 0; i < reader->slots.count; i++) {
        neo__slot counted;
        neo__slot *slot = carve->block ? &reader->slots.slot[i] : &counted;
        memset(slot, 0, sizeof *slot);
        NEO__CARVE(carve, slot->label, neo__size_mul(batch, (size_t)schema->label_count));
        if (schema->sample_weighted) NEO__CARVE(carve, slot->weight, batch);
        NEO__CARVE(carve, slot->dense, neo__size_mul(batch, (size_t)schema->dense_count));
        NEO__CARVE(carve, slot->offsets,
                   neo__size_add(neo__size_mul(batch, (size_t)schema->feature_count), 1));
        if (reader->direct) {
            NEO__CARVE(carve, slot->rows, neo__direct_rows(schema) * neo__direct_row_bytes(schema));
            NEO__CARVE(carve, slot->tile, NEO__GATHER_TILE * schema->record_bytes);
            NEO__CARVE(carve, slot->tile_ids, schema->sample_ids);
        }
        if (!reader->desc.dedup) continue;
        NEO__CARVE(carve, slot->bags, schema->feature_count + 1);
        NEO__CARVE(carve, slot->inverse, neo__size_mul(batch, (size_t)schema->feature_count));
        NEO__CARVE(carve, slot->place, neo__jagged_places((int64_t)batch));
    }
}
static neo_status neo__reader_memory(neo_reader *reader) {
    const neo_schema *schema = reader->schema;
    const int64_t some = (int64_t)schema->feature_count * (schema->multi ? 2 : 1);
    const int64_t ids = schema->hot ? schema->sample_ids : some;
    const int64_t batch = (int64_t)neo__slot_samples(reader);
    neo__carve carve = {NULL, 0};
    neo__reader_layout(reader, &carve);
    reader->memory_bytes = carve.at;
    reader->memory = carve.block = (char *)neo__alloc_for(reader->ctx, carve.at, "neo_reader_open");
    if (!reader->memory) return NEO_ERR_MEMORY;
    carve.at = 0;
    neo__reader_layout(reader, &carve);
    for (int i = 0; i < reader->slots.count; i++)
        NEO__TRY(neo__ids_reserve(reader, &reader->slots.slot[i].ids, ids * batch));
    for (int i = 0; i < NEO__WINDOWS && reader->schema->multi && !reader->direct; i++)
        NEO__TRY(neo__ids_reserve(reader, &reader->windows.window[i].ids,
                                  ids * reader->windows.samples));
    return NEO_OK;
}
static void neo__ids_free(neo_ctx *ctx, neo__ids *ids) {
    NEO__LIST_FREE(ctx, ids->list, ids->capacity);
    NEO__LIST_FREE(ctx, ids->weights, ids->weight_capacity);
}
static void neo__reader_free(neo_reader *r) {
    neo_ctx *ctx = r->ctx;
    for (int i = 0; i < NEO__WINDOWS; i++) neo__ids_free(ctx, &r->windows.window[i].ids);
    for (int i = 0; r->memory && i < r->slots.count; i++) neo__ids_free(ctx, &r->slots.slot[i].ids);
    neo_free(ctx, r->memory, r->memory_bytes);
    neo__source_destroy(&r->blocks.source);
    neo_schema_destroy(r->schema);
    neo_free(ctx, r, sizeof *r);
}
NEO_API void neo_reader_close(neo_reader *r) {
    if (!r) return;
    neo__live_end(r->ctx, &r->live);
    neo__reader_stop(r);
    neo__mutex_destroy(&r->lock);
    neo__cond_destroy(&r->work);
    neo__cond_destroy(&r->ready);
    neo__reader_free(r);
}

static neo_status neo__reader_check(neo_ctx *ctx, const neo_reader_desc *desc) {
    NEO__CHECK(desc->schema, NEO_ERR_ARG, "neo_reader_open: no schema");
    NEO__CHECK(desc->schema->ctx == ctx, NEO_ERR_ARG,
               "neo_reader_open: the schema is of another context");
    NEO__TRY(neo__check_between("neo_reader_open", "batch", desc->batch, 1, NEO__SHUFFLE_MAX));
    NEO__TRY(neo__check_between("neo_reader_open", "shuffle_window", desc->shuffle_window, 0,
                                NEO__SHUFFLE_MAX));
    NEO__TRY(neo__check_between("neo_reader_open", "threads", desc->threads, 0, NEO__MAX_THREADS));
    NEO__TRY(neo__check_between("neo_reader_open", "prefetch", desc->prefetch, 0, 4096));
    NEO__TRY(neo__check_between("neo_reader_open", "hold", desc->hold, 0, 4096));
    int split = desc->world_size > 0 && desc->rank >= 0 && desc->rank < desc->world_size;
    NEO__CHECK(split || (desc->world_size == 0 && desc->rank == 0), NEO_ERR_ARG,
               "neo_reader_open: rank %d of %d", desc->rank, desc->world_size);
    NEO__CHECK(desc->world_size <= neo_ctx_repro_shards(ctx), NEO_ERR_ARG,
               "neo_reader_open: %d ranks share the leaves of a batch, of which there are %d: set "
               "repro_shards of every rank's context to %d or more",
               desc->world_size, neo_ctx_repro_shards(ctx), desc->world_size);
    NEO__CHECK(
        desc->unlabeled || desc->schema->format != NEO_FORMAT_DELIMITED ||
            desc->schema->label_columns > 0,
        NEO_ERR_ARG,
        "neo_reader_open: no column of the description is a label (desc.unlabeled allows it)");
    NEO__CHECK(desc->schema->fitted, NEO_ERR_STATE,
               "neo_reader_open: the schema's dictionaries are not built yet: call "
               "neo_schema_fit, or load "
               "a checkpoint");
    return NEO_OK;
}
/* Check that every file is there, and add up the sizes. */
static neo_status neo__reader_look_text(neo_reader *reader) {
    int32_t count = reader->blocks.source.path_count;
    int64_t *sizes;
    int known = 1, input = 0;
    NEO__TRY(NEO__ARENA(&reader->blocks.source.arena, sizes, count + 1));
    for (int32_t i = 0; i < count; i++) {
        const char *path = reader->blocks.source.paths[i];
        neo__path_kind kind = NEO__PATH_OTHER;
        int64_t size = -1;
        input |= strcmp(path, "-") == 0;
        if (strcmp(path, "-") != 0) NEO__TRY(neo__path_look(path, &kind));
        if (kind != NEO__PATH_OTHER) { /* opening a pipe takes from it */
            neo__file file;
            NEO__TRY(neo__file_open(&file, path, NEO__FILE_READ));
            size = neo__file_size(&file);
            (void)neo__file_close(&file);
            NEO__CHECK(size >= 0, NEO_ERR_IO, "%s: cannot tell its size", path);
        } else {
            reader->extent.live = 1;
        }
        if (size < 0) known = 0;
        sizes[i + 1] = sizes[i] + NEO__MAX(size, 0);
    }
    reader->extent.bytes = known ? sizes[count] : 0;
    reader->extent.bytes_before = known ? sizes : NULL;
    NEO__CHECK(input || !reader->desc.input.read, NEO_ERR_ARG,
               "neo_reader_open: desc.input is set, but no path is '-'");
    NEO__CHECK(
        !input || reader->desc.input.read || reader->desc.world_size == 1, NEO_ERR_ARG,
        "neo_reader_open: standard input ('-') is one process's, and there are %d ranks: set "
        "desc.input (neo_comm_input of neo_comm.h gives it to all)",
        reader->desc.world_size);
    return NEO_OK;
}
/* Enough text, in files that can be sought: a rank parses its own samples, if no bad lines are
   skipped, as these move all that follow. */
static neo_status neo__reader_index(neo_reader *reader) {
    neo__source *source = &reader->blocks.source;
    if (reader->extent.live || reader->desc.skip_bad_lines ||
        reader->extent.bytes < NEO__INDEX_LEAST)
        return NEO_OK;
    NEO__TRY(NEO__ARENA(&source->arena, source->index, source->path_count));
    for (int32_t i = 0; i < source->path_count; i++) {
        neo__index *index = &source->index[i];
        NEO__TRY(neo__index_make(reader->schema, &source->arena, source->paths[i], 1,
                                 source->carry, index));
        reader->extent.samples += index->end.samples;
    }
    source->share = &reader->share;
    if (!reader->desc.shuffle_window) return NEO_OK;
    NEO__TRY(NEO__ARENA(&source->arena, source->order, reader->share.window));
    NEO__TRY(NEO__ARENA(&source->arena, source->own, reader->share.window / 64 + 1));
    return NEO_OK;
}
/* The numbers that a position depends on, and how many bits of a hash of each it keeps. */
enum {
    NEO__READER_SCHEMA, /* format << 48 ^ features << 24 ^ dense numbers */
    NEO__READER_BATCH,
    NEO__READER_WINDOW, /* shuffle_window */
    NEO__READER_SEED,
    NEO__READER_FILES,
    NEO__READER_PARTS
};
typedef struct neo__reader_terms {
    uint64_t of[NEO__READER_PARTS];
} neo__reader_terms;
static const struct {
    const char *name;
    int shift, bits;
} neo__reader_part[NEO__READER_PARTS] = {{"schema", 0, 7},
                                         {"batch", 7, 7},
                                         {"shuffle_window", 14, 7},
                                         {"seed", 21, 5},
                                         {"number of files", 26, 5}};
static neo__reader_terms neo__reader_terms_of(const neo_reader *r) {
    const neo__reader_terms terms = {
        {(uint64_t)r->schema->format << 48 ^ (uint64_t)r->schema->feature_count << 24 ^
             (uint64_t)r->schema->dense_count,
         (uint64_t)r->desc.batch, (uint64_t)r->desc.shuffle_window,
         r->desc.shuffle_window ? r->ctx->seed : 0, (uint64_t)r->blocks.source.path_count}};
    return terms;
}
/* Samples of a window. */
static int64_t neo__reader_span(const neo_reader *r, const neo__reader_terms *t) {
    int64_t least = r->extent.live ? 1 : NEO__WINDOW_LEAST; /* live: do not hold samples back */
    int64_t batch = (int64_t)t->of[NEO__READER_BATCH], window = (int64_t)t->of[NEO__READER_WINDOW];
    return ((window ? window : least) + batch - 1) / batch * batch;
}
static uint64_t neo__reader_key(const neo_reader *r, const neo__reader_terms *t) {
    const uint64_t schema = t->of[NEO__READER_SCHEMA], low = ((uint64_t)1 << 24) - 1;
    const int shuffled = t->of[NEO__READER_WINDOW] != 0;
    uint64_t h = neo__mix64((schema >> 48) + 1);
    h = neo__mix64(h + (schema >> 24 & low) * 4096 + (schema & low));
    h = neo__mix64(h + t->of[NEO__READER_BATCH]);
    h = neo__mix64(h + (uint64_t)neo__reader_span(r, t) * 2 + (uint64_t)shuffled);
    if (shuffled) h = neo__mix64(h + t->of[NEO__READER_SEED]);
    return neo__mix64(h + t->of[NEO__READER_FILES]) >> 1;
}
static uint32_t neo__reader_parts(const neo__reader_terms *t) {
    uint32_t parts = 0;
    for (int i = 0; i < NEO__READER_PARTS; i++) {
        uint64_t hash = neo__mix64(t->of[i] + 1) >> (64 - neo__reader_part[i].bits);
        parts |= (uint32_t)hash << neo__reader_part[i].shift;
    }
    return parts ? parts : 1;
}
static uint32_t neo__reader_sizes(const neo_reader *r) {
    const int64_t *before = r->extent.rows_before ? r->extent.rows_before : r->extent.bytes_before;
    uint64_t hash = 0;
    for (int32_t i = 0; before && i < r->blocks.source.path_count; i++)
        hash = neo__mix64(hash + (uint64_t)(before[i + 1] - before[i]) + 1);
    if (r->schema->synthetic) hash = neo__mix64((uint64_t)r->extent.samples);
    return before || r->schema->synthetic ? (uint32_t)(hash >> 33) | 1 : 0;
}
static neo_status neo__reader_init(neo_reader *reader) {
    neo_reader_desc *desc = &reader->desc;
    NEO__TRY(neo__source_create(&reader->blocks.source, "neo_reader_open", reader->schema,
                                &reader->blocks.options, desc->paths, desc->path_count));
    NEO__TRY(neo__format_of(reader->schema)->look(reader));
    reader->blocks.source.input = desc->input;
    /* In file order a sample's number is its row's, unless bad rows are skipped. */
    int rows = !neo__format_of(reader->schema)->line &&
               (reader->schema->synthetic || !desc->skip_bad_lines);
    reader->share.batch = desc->batch;
    reader->share.shards = reader->ctx->repro_shards;
    reader->share.first = reader->first_leaf;
    reader->share.end = reader->end_leaf;
    reader->share.shuffled = desc->shuffle_window != 0;
    reader->share.seed = reader->ctx->seed;
    const neo__reader_terms terms = neo__reader_terms_of(reader);
    reader->share.window = reader->windows.samples = neo__reader_span(reader, &terms);
    if (rows && desc->world_size > 1 && !desc->shuffle_window)
        reader->blocks.source.share = &reader->share;
    if (neo__format_of(reader->schema)->line && desc->world_size > 1)
        NEO__TRY(neo__reader_index(reader));
    reader->blocks.source.stop = &reader->stop;
    reader->check = neo__reader_key(reader, &terms);
    reader->parts = neo__reader_parts(&terms);
    reader->sizes = neo__reader_sizes(reader);
    NEO__TRY(neo__reader_memory(reader));
    reader->stats.total_bytes = reader->extent.bytes;
    reader->stats.total_samples = reader->extent.samples;
    neo__reader_begin(reader, 0);
    return NEO_OK;
}
NEO_API neo_status neo_reader_open(neo_ctx *ctx, const neo_reader_desc *desc, neo_reader **reader) {
    NEO__CHECK(desc && reader, NEO_ERR_ARG, "neo_reader_open: an argument is NULL");
    *reader = NULL;
    NEO__TRY(neo__check_ctx("neo_reader_open", ctx));
    NEO__TRY(neo__reader_check(ctx, desc));
    neo_reader *r = (neo_reader *)neo__alloc_zero(ctx, sizeof *r);
    NEO__CHECK(r, NEO_ERR_MEMORY, "neo_reader_open: no memory for a reader");
    r->ctx = ctx;
    r->schema = (neo_schema *)(uintptr_t)desc->schema;
    (void)__atomic_fetch_add(&r->schema->readers, 1, __ATOMIC_RELAXED);
    r->desc = *desc;
    if (r->desc.world_size == 0) r->desc.world_size = 1;
    r->first_leaf = (int)((int64_t)ctx->repro_shards * r->desc.rank / r->desc.world_size);
    r->end_leaf = (int)((int64_t)ctx->repro_shards * (r->desc.rank + 1) / r->desc.world_size);
    r->blocks.options.skip_bad = desc->skip_bad_lines;
    r->blocks.options.unlabeled = desc->unlabeled;
    r->thread_count = NEO__MAX(desc->threads, 1);
    r->direct = !neo__format_of(r->schema)->line && !r->schema->synthetic &&
                !desc->shuffle_window && !desc->skip_bad_lines;
    r->blocks.count = r->direct ? 0 : 2 * r->thread_count + 2;
    r->slots.hold = NEO__MAX(desc->hold, 1);
    const int ahead = (int)NEO__MIN(NEO__MAX(2048 / desc->batch, 4), 16);
    r->slots.count = r->slots.hold + (desc->prefetch ? desc->prefetch : ahead);
    neo_status status = neo__reader_init(r);
    if (status != NEO_OK) {
        neo__reader_free(r);
        return status;
    }
    r->desc.paths = NULL; /* the source has copies */
    neo__mutex_init(&r->lock);
    neo__cond_init(&r->work);
    neo__cond_init(&r->ready);
    neo__live_begin(ctx, &r->live, "reader", desc->path_count > 0 ? desc->paths[0] : NULL);
    *reader = r;
    return NEO_OK;
}

/* ---- the caller's side ---- */
NEO_API void neo_batch_tasks(const neo_schema *schema, const neo_batch *batch, float *label,
                             float *weight) {
    const float *from = (const float *)batch->label.data;
    const float *of_sample = (const float *)batch->weight.data;
    const int32_t labels = schema->label_count;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < batch->size * labels; i++) {
        const int has = from[i] == from[i];
        const float w = neo_schema_label(schema, (int32_t)(i % labels)).weight;
        label[i] = has ? from[i] : 0.0f;
        weight[i] = has ? of_sample ? w * of_sample[i / labels] : w : 0.0f;
    }
    neo__fp_leave(fp);
}
NEO_API neo_status neo_reader_next(neo_reader *reader, neo_batch *batch) {
    NEO__ENTER(reader, "neo_reader_next", "reader");
    NEO__CHECK(batch, NEO_ERR_ARG, "neo_reader_next: batch is NULL");
    if (reader->started == 0 && reader->end.number < 0) NEO__TRY(neo__reader_start(reader));
    neo__mutex_lock(&reader->lock);
    if (reader->slots.next_number >= reader->slots.hold) { /* the oldest that the caller may hold */
        neo__slot *oldest =
            &reader->slots
                 .slot[(reader->slots.next_number - reader->slots.hold) % reader->slots.count];
        if (oldest->state == NEO__SLOT_OUT) oldest->state = NEO__SLOT_FREE;
        /* A thread that sleeps is woken for half of the batches ahead, not for each. */
        if (2 * (reader->slots.assign_number - reader->slots.next_number) <=
            reader->slots.count - reader->slots.hold + 1)
            neo__cond_signal(&reader->work);
    }
    neo__slot *slot = &reader->slots.slot[reader->slots.next_number % reader->slots.count];
    int64_t began = 0;
    while (!(slot->state == NEO__SLOT_READY ||
             (reader->end.number >= 0 && reader->slots.next_number >= reader->end.number))) {
        if (!began) {
            began = neo_time_ns();
            reader->stats.stall_count++;
        }
        neo__cond_wait(&reader->ready, &reader->lock);
    }
    if (began) reader->stats.stall_ns += neo_time_ns() - began;
    neo_status status = NEO_OK;
    if (reader->end.number >= 0 && reader->slots.next_number >= reader->end.number) {
        status = reader->end.status;
        if (!reader->blocks.filling) /* by another thread, after an error */
            reader->stats.bad_lines = reader->windows.tally.bad;
        if (status == NEO_END && reader->extent.bytes_before)
            reader->stats.bytes = reader->extent.bytes;
    } else {
        slot->state = NEO__SLOT_OUT;
        reader->slots.next_number++;
        *batch = slot->batch;
        reader->position = slot->after;
        reader->stats.samples += slot->batch.size;
        reader->stats.bad_lines = slot->bad;
        reader->stats.bytes = slot->bytes;
    }
    neo__mutex_unlock(&reader->lock);
    return status == NEO_OK || status == NEO_END ? status
                                                 : neo_fail(status, "%s", reader->end.text);
}
NEO_API neo_status neo_reader_epoch(neo_reader *r, int64_t epoch) {
    NEO__CHECK_LIVE(r, "neo_reader_epoch", "reader");
    NEO__CHECK(epoch >= 0, NEO_ERR_ARG, "neo_reader_epoch: epoch %" PRId64 " is negative", epoch);
    NEO__CHECK(!r->extent.live || !r->touched, NEO_ERR_UNSUPPORTED,
               "neo_reader_epoch: standard input (or a pipe) cannot be read twice");
    neo__reader_stop(r);
    neo__reader_begin(r, epoch);
    return NEO_OK;
}
NEO_API neo_position neo_reader_position(const neo_reader *r) { return r->position; }
/* One number of a position, the others being the reader's: it is not there, but the hash of all of
   them is, which small numbers are tried against. A shuffle_window is known but for its rounding up
   to whole batches. 0: not found. */
static int neo__reader_guess(const neo_reader *reader, const neo_position *position, int part,
                             uint64_t *value) {
    neo__reader_terms terms = neo__reader_terms_of(reader);
    const uint64_t step = part == NEO__READER_WINDOW ? terms.of[NEO__READER_BATCH] : 1;
    for (uint64_t i = part == NEO__READER_BATCH; i < 1 << 21; i++) {
        terms.of[part] = i * step;
        if (part == NEO__READER_SCHEMA) /* a format, features and dense numbers below 512 */
            terms.of[part] = i >> 18 << 48 ^ (i >> 9 & 511) << 24 ^ (i & 511);
        if (part == NEO__READER_WINDOW) terms.of[NEO__READER_SEED] = i ? reader->ctx->seed : 0;
        if (neo__reader_key(reader, &terms) != (uint64_t)position->word[7]) continue;
        *value = terms.of[part];
        return 1;
    }
    return 0;
}
/* One number for a message. */
static void neo__reader_show(int part, uint64_t value, char *out, size_t bytes) {
    if (part == NEO__READER_SCHEMA)
        snprintf(out, bytes, "%d dense numbers and %d features (%s)", (int)(value & 0xFFFFFF),
                 (int)(value >> 24 & 0xFFFFFF), neo__format_names[value >> 48]);
    else snprintf(out, bytes, "%" PRIu64, value);
}
/* The things of a position's that differ from the reader's, as far as its few bits of each show. */
static neo_status neo__reader_mismatch(const neo_reader *reader, const neo_position *position) {
    const neo__reader_terms terms = neo__reader_terms_of(reader);
    const uint32_t parts = (uint32_t)(position->word[6] >> 32);
    char text[400] = "", here[64], there[64];
    for (int i = 0; parts && i < NEO__READER_PARTS; i++) {
        uint32_t mask = (1u << neo__reader_part[i].bits) - 1;
        uint64_t value;
        if (((parts ^ reader->parts) >> neo__reader_part[i].shift & mask) == 0) continue;
        neo__reader_show(i, terms.of[i], here, sizeof here);
        if (neo__reader_guess(reader, position, i, &value)) {
            neo__reader_show(i, value, there, sizeof there);
            return neo_fail(NEO_ERR_MISMATCH,
                            "neo_reader_seek: the position is of another %s: it has %s, the reader "
                            "%s",
                            neo__reader_part[i].name, there, here);
        }
        neo__append(text, sizeof text, "%s%s (the reader has %s)", text[0] ? ", " : "",
                    neo__reader_part[i].name, here);
    }
    return neo_fail(NEO_ERR_MISMATCH, "neo_reader_seek: the position is of another %s",
                    text[0] ? text : "schema, number of files, batch, window or seed");
}
/* The file whose size is another: found, if it is the only one, the first few of the files, and a
   little longer or shorter. */
static neo_status neo__reader_resized(const neo_reader *reader, uint32_t sizes) {
    const int64_t *before =
        reader->extent.rows_before ? reader->extent.rows_before : reader->extent.bytes_before;
    const char *unit = reader->extent.rows_before ? "rows" : "bytes";
    const int32_t files = reader->blocks.source.path_count;
    uint64_t start = 0;
    NEO__CHECK(before, NEO_ERR_MISMATCH,
               "neo_reader_seek: another number of samples was generated when the position was "
               "saved: now %" PRId64,
               reader->extent.samples);
    for (int32_t i = 0; i < NEO__MIN(files, 4); i++) {
        const int64_t now = before[i + 1] - before[i], reach = 1 << 16;
        for (int64_t size = NEO__MAX(now - reach, 0); size < now + reach; size++) {
            uint64_t hash = neo__mix64(start + (uint64_t)size + 1);
            for (int32_t k = i + 1; k < NEO__MIN(files, 4); k++)
                hash = neo__mix64(hash + (uint64_t)(before[k + 1] - before[k]) + 1);
            if (files <= 4 && ((uint32_t)(hash >> 33) | 1) == sizes)
                return neo_fail(NEO_ERR_MISMATCH,
                                "neo_reader_seek: the files have other sizes than when the "
                                "position was saved: %s has %" PRId64 " %s, had %" PRId64,
                                reader->blocks.source.paths[i], now, unit, size);
        }
        start = neo__mix64(start + (uint64_t)now + 1);
    }
    return neo_fail(NEO_ERR_MISMATCH,
                    "neo_reader_seek: the files have other sizes than when the position was saved: "
                    "now %" PRId64 " %s in all",
                    before[files], unit);
}
NEO_API neo_status neo_reader_seek(neo_reader *reader, const neo_position *position) {
    NEO__CHECK_LIVE(reader, "neo_reader_seek", "reader");
    NEO__CHECK(position, NEO_ERR_ARG, "neo_reader_seek: position is NULL");
    const int64_t *w = position->word;
    const int64_t file = w[2] & INT32_MAX, used = w[6] & INT32_MAX;
    const uint32_t sizes = (uint32_t)(w[2] >> 32);
    if (w[7] != (int64_t)reader->check) return neo__reader_mismatch(reader, position);
    if (sizes != 0 && reader->sizes != 0 && sizes != reader->sizes)
        return neo__reader_resized(reader, sizes);
    int good = w[2] >= 0 && file <= reader->blocks.source.path_count &&
               w[6] >= 0 && used < reader->windows.samples && used <= w[1];
    for (int i = 0; i < 6; i++) /* no sum of what follows leaves 64 bits */
        good = good && (i == 2 || (w[i] >= 0 && (i == 0 || w[i] <= INT64_MAX / 4)));
    good = good && (file < reader->blocks.source.path_count || w[3] == 0);
    NEO__CHECK(good, NEO_ERR_ARG, "neo_reader_seek: the position holds numbers that cannot be");
    NEO__CHECK(
        !reader->extent.live || !reader->touched, NEO_ERR_UNSUPPORTED,
        "neo_reader_seek: standard input (or a pipe) cannot be sought once reading has begun");
    neo__reader_stop(reader);
    neo__reader_reset(reader, position);
    return NEO_OK;
}
NEO_API neo_reader_stats neo_reader_get_stats(const neo_reader *r) {
    neo_reader_stats stats = r->stats;
    stats.grow_count = __atomic_load_n(&r->stats.grow_count, __ATOMIC_RELAXED);
    stats.parsed_bytes = __atomic_load_n(&r->stats.parsed_bytes, __ATOMIC_RELAXED);
    return stats;
}
NEO_API neo_status neo_reader_samples(neo_reader *reader, int64_t *samples) {
    const char *fn = "neo_reader_samples";
    NEO__CHECK_LIVE(reader, fn, "reader");
    NEO__CHECK(samples, NEO_ERR_ARG, "%s: samples is NULL", fn);
    const neo__source *source = &reader->blocks.source;
    *samples = reader->stats.total_samples;
    if (*samples || !neo__format_of(reader->schema)->line || !reader->extent.bytes ||
        reader->desc.skip_bad_lines)
        return NEO_OK;
    neo__arena arena = {reader->ctx, NULL, NULL, 0, fn};
    int64_t count = 0;
    char *text = NULL;
    neo_status status = NEO__ARENA(&arena, text, NEO__CHUNK_BYTES + 1);
    for (int32_t i = 0; status == NEO_OK && i < source->path_count; i++) {
        NEO__ZERO(neo__index, index);
        status = neo__index_make(reader->schema, &arena, source->paths[i], 0, text, &index);
        count += index.end.samples;
    }
    neo__arena_free(&arena);
    if (status == NEO_OK) *samples = count;
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-rows

   Formats without lines: a sample is row i of each plane (arrays of triples), or one record of a
   file, whose parts are planes with its length from row to row. Files know their rows, so a rank
   reads its own alone. A bad row is named by file, row and column, all from 0.
   ------------------------------------------------------------------------ */
static neo_status neo__rows_same(const char *path, int64_t rows, int64_t known) {
    NEO__CHECK(rows == known, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " rows, it had %" PRId64 " when the reader was opened", path,
               rows, known);
    return NEO_OK;
}
/* The file just opened has the rows that it had when the reader was opened, and the place. */
static neo_status neo__source_check_rows(const neo__source *source) {
    const char *path = source->paths[source->file];
    NEO__CHECK(source->offset <= source->rows, NEO_ERR_MISMATCH,
               "%s: has %" PRId64 " rows, the saved position is at row %" PRId64, path,
               source->rows, source->offset);
    const int64_t *before = source->file_rows;
    int64_t known = before ? before[source->file + 1] - before[source->file] : source->rows;
    return neo__rows_same(path, source->rows, known);
}
/* Check that every file is there, and count the rows. */
static neo_status neo__reader_look_rows(neo_reader *reader) {
    neo__source *source = &reader->blocks.source;
    int64_t *rows;
    NEO__TRY(NEO__ARENA(&source->arena, rows, source->path_count + 1));
    reader->extent.rows_before = rows;
    for (int32_t i = 0; i < source->path_count; i++) {
        neo__source_seek(source, i, 0);
        NEO__TRY(neo__format_of(source->schema)->begin(source));
        rows[i + 1] = rows[i] + source->rows;
        neo__source_close_file(source);
    }
    reader->extent.samples = rows[source->path_count];
    source->file_rows = rows;
    return NEO_OK;
}
/* `count` rows of a plane, from number `first` on, to `to`: those of the share, and what lies
   between two of its runs if that is less than another read would cost. */
static neo_status neo__source_read_plane(neo__source *source, const neo__plane *plane,
                                         int64_t first, int64_t count, char *to) {
    enum { GAP_BYTES = 16384 };
    const neo__share *share = source->share;
    const int64_t base = source->sample, row = plane->row_bytes;
    int64_t at = 0, end = count, stop = 0, from = plane->offset + first * row;
    while (at < count) {
        if (share) {
            at = neo__share_next(share, base + at, base + count, &stop) - base;
            end = stop - base;
            for (int64_t next = end; next < count;) {
                next = neo__share_next(share, base + next, base + count, &stop) - base;
                if (next == count || (next - end) * row > GAP_BYTES) break;
                next = end = stop - base;
            }
        }
        if (at < end)
            NEO__TRY(neo__file_read_at(&source->files[plane->file], from + at * row, to + at * row,
                                       (size_t)((end - at) * row)));
        at = end;
    }
    return NEO_OK;
}
/* The same of all planes, one behind another; where each begins is in `planes` then. */
static neo_status neo__source_read_rows(neo__source *source, int64_t first, int64_t count, char *to,
                                        neo__plane *planes, size_t *bytes) {
    *bytes = 0;
    for (int32_t k = 0; k < source->schema->plane_count; k++) {
        neo__plane *plane = &planes[k];
        *plane = source->planes[k];
        plane->at = plane->within ? (size_t)plane->within : *bytes;
        if (plane->within) continue;
        NEO__TRY(neo__source_read_plane(source, plane, first, count, to + *bytes));
        *bytes += (size_t)(count * plane->row_bytes);
    }
    return NEO_OK;
}
static neo_status neo__source_rows(neo__source *source, neo__block *block) {
    int64_t count = NEO__MIN(source->rows - source->offset, neo__block_rows(source->schema));
    NEO__TRY(neo__source_read_rows(source, source->offset, count, block->raw, block->planes,
                                   &block->raw_bytes));
    block->bytes = count;
    source->offset += count;
    source->sample += count;
    block->file_end = source->offset == source->rows;
    return NEO_OK;
}
NEO__HOT_BEGIN
static double neo__plane_number(const neo__plane *plane, const char *p) {
    double d;
    float f;
    uint16_t h;
    int64_t l;
    int32_t i;
    if (plane->f64) return memcpy(&d, p, 8), d;
    switch (plane->dtype) {
    case NEO_F32: return memcpy(&f, p, 4), (double)f;
    case NEO_F16: return memcpy(&h, p, 2), (double)neo__f32_from_f16(h);
    case NEO_I32: return memcpy(&i, p, 4), (double)i;
    case NEO_I64: return memcpy(&l, p, 8), (double)l;
    case NEO_I8: return (double)(signed char)*p;
    default: return (double)(unsigned char)*p;
    }
}
static int64_t neo__plane_id(const neo__plane *plane, const char *p) {
    int64_t l;
    int32_t i;
    if (plane->dtype == NEO_I64) return memcpy(&l, p, 8), l;
    memcpy(&i, p, 4);
    return plane->is_unsigned ? (int64_t)(uint32_t)i : (int64_t)i;
}
NEO__INLINE const char *neo__block_row(const neo__block *block, int32_t plane, int64_t i) {
    return block->raw + block->planes[plane].at + i * block->planes[plane].row_bytes;
}
/* Fault of a number: column `column` of its part of the sample; of ids, of feature t there. */
static void neo__row_issue(const neo_schema *schema, neo__issue *issue, int part, int64_t row,
                           int32_t t, int64_t column, const char *format, ...)
    NEO__PRINTF(7, 8);
static void neo__row_issue(const neo_schema *schema, neo__issue *issue, int part, int64_t row,
                           int32_t t, int64_t column, const char *format, ...) {
    char place[120], what[120];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (schema->format == NEO_FORMAT_BINARY) {
        if (part != NEO__PLANE_LABEL) column += schema->label_count;
        if (part == NEO__PLANE_IDS) column += schema->dense_count;
        for (int32_t f = 0; f < t; f++) column += schema->hot ? schema->hot[f] : 1;
        snprintf(place, sizeof place, ": row %" PRId64 ", column %" PRId64, row, column);
    } else if (part == NEO__PLANE_LABEL && schema->label_count == 1) {
        snprintf(place, sizeof place, "labels.npy: row %" PRId64, row);
    } else if (part == NEO__PLANE_LABEL) {
        snprintf(place, sizeof place, "labels.npy: row %" PRId64 ", column %" PRId64, row, column);
    } else if (part == NEO__PLANE_DENSE) {
        snprintf(place, sizeof place, "dense.npy: row %" PRId64 ", column %" PRId64, row, column);
    } else if (schema->format == NEO_FORMAT_NPZ) {
        snprintf(place, sizeof place,
                 "sparse_multi_hot.npz: %d.npy: row %" PRId64 ", column %" PRId64, t, row, column);
    } else {
        snprintf(place, sizeof place, "sparse.npy: row %" PRId64 ", column %d (%.40s)", row, t,
                 schema->feature_names[t]);
    }
    neo__issue_set(issue, NEO_ERR_RANGE, 0, "%s: %s", place, what);
}
/* `count` numbers of a plane from p on as floats. 0: one is not finite. */
static int neo__take_numbers(const neo__plane *plane, const char *p, int64_t count, float *to) {
    uint64_t over = 0, u; /* the top bit of each half, where an exponent is all ones */
    uint32_t last = 0;
    int64_t k = 0;
    for (; k < count && (plane->dtype != NEO_F32 || plane->f64); k++)
        to[k] = (float)neo__plane_number(plane, p + (size_t)k * plane->item_bytes);
    if (k) p = (const char *)to;
    for (k = 0; k + 2 <= count; k += 2) {
        memcpy(&u, p + 4 * k, 8);
        memcpy(&to[k], &u, 8);
        over |= (u & 0x7FFFFFFF7FFFFFFFu) + 0x0080000000800000u;
    }
    if (k < count) memcpy(&last, p + 4 * k, 4), memcpy(&to[k], &last, 4);
    over |= (last & 0x7FFFFFFFu) + 0x00800000u;
    return (over & 0x8000000080000000u) == 0;
}
/* `count` labels of a plane from p on, so many bytes apart. 0: one is not in [0, 1]. */
static int neo__take_labels(const neo_schema *schema, const neo__plane *plane, const char *p,
                            int64_t stride, int64_t count, float *to) {
    int good = 1;
    for (int64_t k = 0; k < count; k++, p += stride) {
        uint32_t y = 2;
        if (plane->dtype == NEO_I32) memcpy(&y, p, 4);
        /* HugeCTR writes labels as integers or as floats: 1.0f is this one. */
        if (y < 2 || (schema->format == NEO_FORMAT_BINARY && y == 0x3F800000)) {
            to[k] = y ? 1.0f : 0.0f;
            continue;
        }
        const double x = neo__plane_number(plane, p);
        good &= x >= 0.0 && x <= 1.0;
        to[k] = (float)x;
    }
    return good;
}
/* Dense numbers of row i: as they are, or of records that hold integers log(x + 1). */
static int neo__row_dense(const neo_schema *schema, const neo__block *block, int64_t i,
                          float *dense, neo__issue *issue) {
    const neo__plane *plane = &block->planes[NEO__PLANE_DENSE];
    const char *p = neo__block_row(block, NEO__PLANE_DENSE, i);
    const int32_t count = schema->dense_count;
    if (schema->format == NEO_FORMAT_BINARY && !schema->float_dense) {
        for (int32_t k = 0; k < count; k++) {
            int32_t x;
            memcpy(&x, p + 4 * k, 4);
            dense[k] = neo__log_count(schema, (uint64_t)NEO__MAX(x, 0) + 1);
        }
        return 1;
    }
    if (neo__take_numbers(plane, p, count, dense)) return 1;
    int32_t k = 0;
    while (dense[k] - dense[k] == 0.0f) k++;
    neo__row_issue(schema, issue, NEO__PLANE_DENSE, block->offset + i, 0, k,
                   "expected a finite number of f32's range");
    return 0;
}
/* `count` ids of i32, each of a table from t on (each_table) or all of table t, by their remainders
   if the schema says so. 0: one is outside. */
NEO__INLINE int neo__take_ids_of(const neo_schema *schema, const char *p, int64_t count,
                                 int is_unsigned, int modulo, int32_t t, int each_table,
                                 int64_t *to) {
    int64_t rows = schema->rows[t];
    uint64_t outside = 0, m = schema->modulus[t], inverse = schema->inverse[t];
    for (int64_t k = 0; k < count; k++) {
        int32_t x;
        memcpy(&x, p + 4 * k, 4);
        int64_t id = is_unsigned ? (int64_t)(uint32_t)x : (int64_t)x;
        if (each_table) rows = schema->rows[t + k];
        if (each_table && modulo) m = schema->modulus[t + k], inverse = schema->inverse[t + k];
        if (modulo) outside |= (uint64_t)id >> 63;
        if (modulo) id = (int64_t)neo__times_high(inverse * (uint64_t)id, m);
        else outside |= (uint64_t)id >= (uint64_t)rows;
        to[k] = id;
    }
    return !outside;
}
#if defined(NEO__X86)
/* The same four at a time, the last four at the end; count >= 4. */
NEO__AVX2 static int neo__take_ids_avx2(const neo_schema *schema, const char *p, int64_t count,
                                        int is_unsigned, int32_t t, int each_table, int64_t *to) {
    __m256i bad = _mm256_setzero_si256(), m = bad, by = bad, last = bad;
    for (int64_t k = 0; k < count; k = k + 4 < count ? NEO__MIN(k + 4, count - 4) : count) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 4 * k));
        __m256i id = is_unsigned ? _mm256_cvtepu32_epi64(x) : _mm256_cvtepi32_epi64(x);
        bad = _mm256_or_si256(bad, id);
        if (each_table) {
            m = neo__avx2_load(schema->modulus + t + k);
            by = neo__avx2_load(schema->inverse + t + k);
            last = neo__avx2_load(schema->rows + t + k);
        } else if (k == 0) {
            m = _mm256_set1_epi64x((int64_t)schema->modulus[t]);
            by = _mm256_set1_epi64x((int64_t)schema->inverse[t]);
            last = _mm256_set1_epi64x(schema->rows[t]);
        }
        if (schema->modulo) id = neo__avx2_remainder(id, m, by);
        else bad = _mm256_or_si256(bad, _mm256_sub_epi64(_mm256_sub_epi64(last, id),
                                                         _mm256_set1_epi64x(1)));
        _mm256_storeu_si256((__m256i *)(void *)(to + k), id);
    }
    return _mm256_movemask_pd(_mm256_castsi256_pd(bad)) == 0; /* no sign */
}
#endif
NEO__INLINE int neo__take_ids(const neo_schema *schema, const char *p, int64_t count,
                              int is_unsigned, int32_t t, int each_table, int64_t *to) {
#if defined(NEO__X86)
    if (schema->ctx->isa >= NEO_ISA_AVX2 && count >= 4)
        return neo__take_ids_avx2(schema, p, count, is_unsigned, t, each_table, to);
#endif
    if (schema->modulo)
        return neo__take_ids_of(schema, p, count, is_unsigned, 1, t, each_table, to);
    if (is_unsigned) return neo__take_ids_of(schema, p, count, 1, 0, t, each_table, to);
    return neo__take_ids_of(schema, p, count, 0, 0, t, each_table, to);
}
/* The ids of a row that lie within their tables, as nearly all do. 0: not all, or not i32. */
static int neo__row_ids_inside(const neo_schema *schema, const neo__block *block, int64_t i,
                               int64_t *to) {
    const int own = schema->plane_count > NEO__PLANE_IDS + 1;
    const neo__plane *plane = &block->planes[NEO__PLANE_IDS];
    const char *p = neo__block_row(block, NEO__PLANE_IDS, i);
    int good = plane->dtype == NEO_I32;
    if (!good) return 0;
    if (!schema->multi && !own)
        return neo__take_ids(schema, p, schema->feature_count, plane->is_unsigned, 0, 1, to);
    for (int32_t t = 0; t < schema->feature_count && good; t++) {
        const int64_t count = schema->hot[t];
        if (own) p = neo__block_row(block, NEO__PLANE_IDS + t, i);
        good = neo__take_ids(schema, p, count, plane->is_unsigned, t, 0, to);
        p += 4 * count;
        to += count;
    }
    return good;
}
/* Ids of row i, one after another, to `to`. 0: one is outside its table. */
static int neo__row_ids(const neo_schema *schema, const neo__block *block, int64_t i, int64_t *to,
                        neo__issue *issue) {
    const int own = schema->plane_count > NEO__PLANE_IDS + 1; /* a plane for each feature */
    const neo__plane *plane = &block->planes[NEO__PLANE_IDS];
    const char *p = neo__block_row(block, NEO__PLANE_IDS, i);
    if (neo__row_ids_inside(schema, block, i, to)) return 1;
    for (int32_t t = 0; t < schema->feature_count; t++) {
        const int64_t rows = schema->rows[t];
        const int32_t count = schema->hot ? schema->hot[t] : 1;
        if (own) plane += t > 0, p = neo__block_row(block, NEO__PLANE_IDS + t, i);
        for (int32_t k = 0; k < count; k++, p += plane->item_bytes) {
            int64_t id = neo__id_fit(neo__plane_id(plane, p), rows, schema->modulo);
            *to++ = id;
            if (id >= 0 && id < rows) continue;
            neo__row_issue(schema, issue, NEO__PLANE_IDS, block->offset + i, t, k,
                           "id %" PRId64 " is not in [0, %" PRId64 "), the rows of its table", id,
                           rows);
            return 0;
        }
    }
    return 1;
}
/* Labels of a row, from p on, into a record, unless it is NULL. 0: one is not in [0, 1]. */
static int neo__row_labels(const neo_schema *schema, const neo__plane *plane, const char *p,
                           int64_t row, float *record, neo__issue *issue) {
    for (int32_t k = 0; k < schema->label_count; k++, p += plane->item_bytes) {
        float label;
        if (!neo__take_labels(schema, plane, p, 0, 1, &label)) {
            neo__row_issue(schema, issue, NEO__PLANE_LABEL, row, 0, k,
                           "expected a label in [0, 1], found %g", neo__plane_number(plane, p));
            return 0;
        }
        if (record) record[neo__record_label(schema, k)] = label;
    }
    return 1;
}
/* Row i of the block into a record. 0: a bad row. */
static int neo__row_sample(const neo_schema *schema, neo__block *block, int64_t i, float *record,
                           neo__issue *issue) {
    int64_t *ids = neo__record_ids(schema, record);
    if (!neo__row_labels(schema, &block->planes[NEO__PLANE_LABEL],
                         neo__block_row(block, NEO__PLANE_LABEL, i), block->offset + i, record,
                         issue))
        return 0;
    if (!neo__row_dense(schema, block, i, record + 1, issue)) return 0;
    if (!schema->multi) return neo__row_ids(schema, block, i, ids, issue);
    if (!neo__row_ids(schema, block, i, block->ids + block->id_count, issue)) return 0;
    ids[0] = block->id_count;
    for (int32_t t = 0, end = 0; t < schema->feature_count; t++)
        ids[1 + t] = end += schema->hot[t];
    block->id_count += schema->sample_ids;
    return 1;
}
static int neo__synthetic_row(const neo_schema *schema, neo__block *block, int64_t i,
                              float *record, neo__issue *issue);
static neo_status neo__block_parse_rows(const neo_schema *schema, const neo__parse_options *options,
                                        neo__block *block) {
    int (*const sample)(const neo_schema *schema, neo__block *block, int64_t i, float *record,
                        neo__issue *issue) =
        schema->synthetic ? neo__synthetic_row : neo__row_sample;
    int64_t mine = 0, stop = block->bytes;
    for (int64_t i = 0; i < block->bytes && !block->failed; i++) {
        float *record = neo__block_record(schema, block, block->count);
        neo__issue issue;
        if (block->share && (i == 0 || i == stop))
            mine = neo__block_mine(block, i, block->bytes, &stop);
        if (i >= mine && !sample(schema, block, i, record, &issue)) {
            neo__block_bad(block, options, &issue);
            continue;
        }
        if (i < mine && schema->multi) neo__record_empty(schema, block, record);
        block->end_offset[block->count] = (uint32_t)(i + 1);
        block->end_line[block->count++] = 0;
    }
    return NEO_OK;
}
NEO__HOT_END

/* ---- the schema ---- */
/* Raise the schema's rows to the largest ids + 1 of `count` rows of a plane that holds those of
   features [first, first + features). labels: those of the same rows, which are looked at first, as
   what begins with none has no ids either; or NULL. */
static neo_status neo__plane_scan(neo_schema *schema, const neo__file *file,
                                  const neo__plane *plane, const neo__plane *labels, int64_t count,
                                  int32_t first, int32_t features) {
    const int64_t row = plane->row_bytes, step = NEO__MAX((int64_t)NEO__CHUNK_BYTES / row, 1);
    const size_t bytes = (size_t)(step * row);
    char *piece = (char *)neo_alloc(schema->ctx, bytes);
    NEO__CHECK(piece, NEO_ERR_MEMORY, "%s: no memory to scan the ids", file->path);
    neo_status status = NEO_OK;
    for (int64_t i = 0; status == NEO_OK && i < count && row > 0; i++) {
        if (i % step == 0)
            status = neo__file_read_at(file, plane->offset + i * row, piece,
                                       (size_t)(NEO__MIN(count - i, step) * row));
        const char *record = piece + i % step * row, *p = record + plane->within;
        neo__issue issue;
        if (status == NEO_OK && labels &&
            !neo__row_labels(schema, labels, record + labels->within, i, NULL, &issue))
            status = neo_fail(issue.status, "%.256s%s", file->path, issue.text);
        for (int32_t t = first; status == NEO_OK && t < first + features; t++)
            for (int32_t k = schema->hot ? schema->hot[t] : 1; k > 0 && status == NEO_OK; k--) {
                int64_t id = neo__plane_id(plane, p);
                if (id < 0 || id >= INT32_MAX)
                    status = neo_fail(NEO_ERR_RANGE, "%s: row %" PRId64 ", column %d (feature %d): "
                                      "id %" PRId64 " is not in [0, 2147483647), from which rows "
                                      "are counted (else give rows, and modulo)", file->path, i,
                                      (int)((p - record) / (int)plane->item_bytes), t, id);
                else schema->rows[t] = NEO__MAX(schema->rows[t], id + 1);
                p += plane->item_bytes;
            }
    }
    neo_free(schema->ctx, piece, bytes);
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-npy

   NumPy's array files: 6 bytes "\x93NUMPY", version (major, minor), the header's length (2 bytes
   in version 1, 4 in 2 and 3), the header - a Python dictionary with the keys descr, fortran_order
   and shape, padded with spaces and ended by \n - and the elements.
   ------------------------------------------------------------------------ */
enum { NEO__NPY_HEADER_BYTES = 65536, NEO__NPY_EXPORT_BYTES = 128, NEO__NPY_MADE_BYTES = 256 };

/* The types of elements, without the mark of byte order before them. */
static const struct {
    char descr[3];
    neo_dtype dtype;
    int f64;
    size_t bytes;
} neo__npy_types[] = {{"f4", NEO_F32, 0, 4}, {"f2", NEO_F16, 0, 2}, {"f8", NEO_F32, 1, 8},
                      {"i1", NEO_I8, 0, 1},  {"u1", NEO_U8, 0, 1},  {"i4", NEO_I32, 0, 4},
                      {"i8", NEO_I64, 0, 8}};
enum { NEO__NPY_TYPES = sizeof neo__npy_types / sizeof neo__npy_types[0] };

typedef struct neo__npy_in {
    const char *path, *begin, *p, *end;
} neo__npy_in;
static neo_status neo__npy_fail(const neo__npy_in *in, neo_status status, const char *what) {
    return neo_fail(status, "%s: byte %d: %s", in->path, (int)(in->p - in->begin), what);
}
static void neo__npy_space(neo__npy_in *in) {
    while (in->p < in->end && (neo__is_space(*in->p) || *in->p == '\n')) in->p++;
}
static int neo__npy_char(neo__npy_in *in, char c) {
    neo__npy_space(in);
    if (in->p == in->end || *in->p != c) return 0;
    in->p++;
    return 1;
}
static int neo__text_starts(const char *p, const char *end, const char *word) {
    size_t bytes = strlen(word);
    return (size_t)(end - p) >= bytes && memcmp(p, word, bytes) == 0;
}
static int neo__npy_string(neo__npy_in *in, neo__text *t) {
    neo__npy_space(in);
    if (in->p == in->end || (*in->p != '\'' && *in->p != '"')) return 0;
    const char *stop = (const char *)memchr(in->p + 1, *in->p, (size_t)(in->end - in->p - 1));
    if (!stop) return 0;
    t->p = in->p + 1;
    t->bytes = (size_t)(stop - t->p);
    in->p = stop + 1;
    return 1;
}
static neo_status neo__npy_descr(neo__npy_in *in, neo__npy_info *info) {
    const char *start = in->p;
    neo__text text;
    if (!neo__npy_string(in, &text))
        return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "descr is not one plain type");
    const char *stop = in->p;
    in->p = start;
    for (int i = 0; text.bytes == 3 && i < NEO__NPY_TYPES; i++) {
        if (memcmp(text.p + 1, neo__npy_types[i].descr, 2) != 0) continue;
        if (text.p[0] == '>' && neo__npy_types[i].bytes > 1)
            return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "big-endian elements are not supported");
        if (!strchr("<=|>", text.p[0])) break;
        in->p = stop;
        info->dtype = neo__npy_types[i].dtype;
        info->f64 = neo__npy_types[i].f64;
        info->item_bytes = neo__npy_types[i].bytes;
        return NEO_OK;
    }
    return neo_fail(NEO_ERR_UNSUPPORTED, "%s: byte %d: elements of type %s are not supported",
                    in->path, (int)(in->p - in->begin), neo__quote(text.p, text.bytes).text);
}
static neo_status neo__npy_shape(neo__npy_in *in, neo__npy_info *info) {
    info->ndim = 0;
    if (!neo__npy_char(in, '('))
        return neo__npy_fail(in, NEO_ERR_FORMAT, "expected ( of the shape");
    while (!neo__npy_char(in, ')')) {
        int64_t count = 0;
        int digits = 0;
        neo__npy_space(in);
        for (; in->p < in->end && *in->p >= '0' && *in->p <= '9'; in->p++, digits++) {
            if (count > (INT64_MAX - 9) / 10)
                return neo__npy_fail(in, NEO_ERR_FORMAT, "the shape overflows");
            count = count * 10 + (*in->p - '0');
        }
        if (digits == 0) return neo__npy_fail(in, NEO_ERR_FORMAT, "expected a length in the shape");
        if (info->ndim == NEO_MAX_DIMS)
            return neo__npy_fail(in, NEO_ERR_UNSUPPORTED, "more than 4 dimensions");
        info->shape[info->ndim++] = count;
        if (neo__npy_char(in, ',')) continue;
        if (!neo__npy_char(in, ')'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected , or ) in the shape");
        break;
    }
    if (info->ndim == 0) info->shape[info->ndim++] = 1;
    return NEO_OK;
}
static neo_status neo__npy_dictionary(neo__npy_in *in, neo__npy_info *info) {
    int seen = 0;
    if (!neo__npy_char(in, '{'))
        return neo__npy_fail(in, NEO_ERR_FORMAT, "expected { of the header");
    while (!neo__npy_char(in, '}')) {
        neo__text key;
        neo__npy_space(in);
        const char *start = in->p;
        if (!neo__npy_string(in, &key))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected a key in quotes");
        const int bit = neo__text_is(key, "descr") + 2 * neo__text_is(key, "fortran_order") +
                        4 * neo__text_is(key, "shape");
        if (bit == 0 || (seen & bit)) {
            in->p = start;
            return neo__npy_fail(in, NEO_ERR_FORMAT,
                                 "expected the keys descr, fortran_order and shape, once each");
        }
        seen |= bit;
        if (!neo__npy_char(in, ':'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected : after the key");
        neo__npy_space(in);
        if (bit == 1) {
            NEO__TRY(neo__npy_descr(in, info));
        } else if (bit == 4) {
            NEO__TRY(neo__npy_shape(in, info));
        } else if (neo__text_starts(in->p, in->end, "False")) {
            in->p += 5;
        } else {
            int fortran = neo__text_starts(in->p, in->end, "True");
            return neo__npy_fail(in, fortran ? NEO_ERR_UNSUPPORTED : NEO_ERR_FORMAT,
                                 fortran ? "Fortran order is not supported"
                                         : "expected True or False");
        }
        if (neo__npy_char(in, ',')) continue;
        if (!neo__npy_char(in, '}'))
            return neo__npy_fail(in, NEO_ERR_FORMAT, "expected , or } in the header");
        break;
    }
    if (seen != 7)
        return neo__npy_fail(in, NEO_ERR_FORMAT, "the header lacks descr, fortran_order or shape");
    neo__npy_space(in);
    return in->p == in->end ? NEO_OK
                            : neo__npy_fail(in, NEO_ERR_FORMAT, "text after the header's }");
}
/* Bytes before the header's text; 0: the 12 bytes at data are not the start of such a file. */
static size_t neo__npy_prefix(const unsigned char *data, size_t *header_bytes) {
    if (memcmp(data, "\x93NUMPY", 6) != 0 || data[6] < 1 || data[6] > 3) return 0;
    *header_bytes = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] == 1) return 10;
    *header_bytes |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    return 12;
}
/* data: at least 12 bytes, and the file's whole header if it is at most NEO__NPY_HEADER_BYTES
   long. */
static neo_status neo__npy_parse(const char *path, const char *data, size_t bytes,
                                 neo__npy_info *info) {
    size_t header = 0;
    neo__npy_in in;
    memset(info, 0, sizeof *info);
    in.path = path;
    in.begin = in.p = data;
    in.end = data + bytes;
    size_t prefix = bytes < 12 ? 0 : neo__npy_prefix((const unsigned char *)data, &header);
    if (prefix == 0)
        return neo__npy_fail(&in, NEO_ERR_FORMAT, "not a NumPy array of version 1 to 3");
    in.p += 8;
    if (header > NEO__NPY_HEADER_BYTES - prefix || header > bytes - prefix)
        return neo__npy_fail(&in, NEO_ERR_FORMAT,
                             "the header is longer than the file, or than 64 KiB");
    in.p = data + prefix;
    in.end = in.p + header;
    NEO__TRY(neo__npy_dictionary(&in, info));
    info->data_offset = (int64_t)(prefix + header);
    size_t size = info->item_bytes;
    for (int i = 0; i < info->ndim; i++) size = neo__size_mul(size, (size_t)info->shape[i]);
    if (size > SIZE_MAX / 2)
        return neo__npy_fail(&in, NEO_ERR_FORMAT, "the array's size overflows");
    return NEO_OK;
}
static int64_t neo__npy_count(const neo__npy_info *info) {
    int64_t n = 1;
    for (int i = 0; i < info->ndim; i++)
        if (info->shape[i] == 0) return 0;
    for (int i = 0; i < info->ndim; i++) n *= info->shape[i];
    return n;
}
/* Open a file, read its header, check its size. The file is closed again on failure. */
static neo_status neo__npy_open(neo_ctx *ctx, neo__file *file, const char *path,
                                neo__npy_info *info) {
    NEO__TRY(neo__file_open(file, path, NEO__FILE_READ));
    char *data = (char *)neo_alloc(ctx, NEO__NPY_HEADER_BYTES);
    size_t got = 0;
    neo_status status = data ? neo__file_read(file, data, NEO__NPY_HEADER_BYTES, &got)
                             : neo_fail(NEO_ERR_MEMORY, "%s: no memory to read the header", path);
    if (status == NEO_OK) status = neo__npy_parse(path, data, got, info);
    neo_free(ctx, data, NEO__NPY_HEADER_BYTES);
    if (status == NEO_OK) {
        int64_t size = neo__file_size(file),
                bytes = neo__npy_count(info) * (int64_t)info->item_bytes;
        if (size != info->data_offset + bytes)
            status = neo_fail(NEO_ERR_FORMAT,
                              "%s: byte %" PRId64 ": %" PRId64
                              " bytes of elements follow, the shape needs %" PRId64,
                              path, info->data_offset, size - info->data_offset, bytes);
    }
    if (status != NEO_OK) (void)neo__file_close(file);
    return status;
}
NEO__HOT_BEGIN

/* ---- single arrays ---- */
static neo_status neo__npy_read_f64(neo_ctx *ctx, const neo__file *file, const neo__npy_info *info,
                                    float *out) {
    enum { PIECE = 4096 };
    double *piece = (double *)neo_alloc(ctx, PIECE * sizeof(double));
    NEO__CHECK(piece, NEO_ERR_MEMORY, "%s: no memory to convert f64", file->path);
    neo_status status = NEO_OK;
    int64_t count = neo__npy_count(info);
    for (int64_t i = 0; status == NEO_OK && i < count; i += PIECE) {
        int64_t n = NEO__MIN(count - i, (int64_t)PIECE);
        status = neo__file_read_at(file, info->data_offset + i * 8, piece, (size_t)n * 8);
        for (int64_t k = 0; status == NEO_OK && k < n; k++) out[i + k] = (float)piece[k];
    }
    neo_free(ctx, piece, PIECE * sizeof(double));
    return status;
}
NEO__HOT_END
NEO_API neo_status neo_npy_read(neo_ctx *ctx, const char *path, neo_tensor *tensor) {
    NEO__TRY(neo__check_ctx("neo_npy_read", ctx));
    NEO__CHECK(path && tensor, NEO_ERR_ARG, "neo_npy_read: an argument is NULL");
    neo__file file;
    neo__npy_info info;
    neo_tensor made = neo_tensor_none();
    *tensor = neo_tensor_none();
    NEO__TRY(neo__npy_open(ctx, &file, path, &info));
    neo_status status = neo_tensor_alloc(ctx, info.dtype, info.ndim, info.shape, &made);
    if (status == NEO_OK) {
        neo__fp_state fp = neo__fp_enter();
        if (info.f64) status = neo__npy_read_f64(ctx, &file, &info, (float *)made.data);
        else status = neo__file_read_at(&file, info.data_offset, made.data, neo_tensor_bytes(made));
        neo__fp_leave(fp);
    }
    (void)neo__file_close(&file);
    if (status == NEO_OK) *tensor = made;
    else neo_tensor_free(ctx, &made);
    return status;
}
/* A header of a multiple of 64 bytes, at least `least`; returns its length. */
static size_t neo__npy_header(char out[NEO__NPY_MADE_BYTES], neo_dtype dtype, int ndim,
                              const int64_t *shape, size_t least) {
    char dims[96] = "";
    int type = 0;
    while (neo__npy_types[type].dtype != dtype) type++;
    for (int i = 0; i < ndim; i++)
        neo__append(dims, sizeof dims, "%s%" PRId64, i ? ", " : "", shape[i]);
    const size_t n =
        10 + (size_t)snprintf(out + 10, NEO__NPY_MADE_BYTES - 10,
                              "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s%s), }",
                              neo__npy_types[type].bytes > 1 ? '<' : '|',
                              neo__npy_types[type].descr, dims, ndim == 1 ? "," : "");
    size_t total = NEO__MAX((n + 1 + 63) / 64 * 64, least);
    memset(out + n, ' ', total - n);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01", 7);
    out[7] = 0;
    neo__put_le(out + 8, total - 10, 2);
    return total;
}
NEO_API neo_status neo_npy_write(neo_ctx *ctx, const char *path, neo_tensor tensor) {
    char header[NEO__NPY_MADE_BYTES];
    NEO__CHECK(ctx && path, NEO_ERR_ARG, "neo_npy_write: an argument is NULL");
    NEO__CHECK(tensor.ndim >= 0 && tensor.ndim <= NEO_MAX_DIMS, NEO_ERR_SHAPE,
               "neo_npy_write: %s: the tensor has %d dimensions, not 0 to %d", path, tensor.ndim,
               NEO_MAX_DIMS);
    NEO__CHECK(tensor.dtype != NEO_BF16 && tensor.dtype != NEO_F8E4M3 && tensor.dtype != NEO_F8E5M2,
               NEO_ERR_UNSUPPORTED, "neo_npy_write: %s: NumPy has no %s", path,
               neo_dtype_name(tensor.dtype));
    NEO__CHECK(tensor.dtype < NEO_DTYPE_COUNT, NEO_ERR_UNSUPPORTED, "neo_npy_write: %s: not of %s",
               path, neo_dtype_name(tensor.dtype));
    NEO__CHECK(neo_tensor_is_contiguous(tensor), NEO_ERR_SHAPE,
               "neo_npy_write: %s: the tensor is not contiguous", path);
    neo__file file;
    size_t n = neo__npy_header(header, tensor.dtype, tensor.ndim, tensor.shape, 0);
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo_status status = neo__file_write(&file, header, n);
    if (status == NEO_OK) status = neo__file_write(&file, tensor.data, neo_tensor_bytes(tensor));
    neo_status closed = neo__file_close(&file);
    return status != NEO_OK ? status : closed;
}

/* ---- triples: arrays for each of dense numbers, ids and labels; see >>impl-rows ---- */
/* File k of a triple. */
static const char *neo__npy_name(neo_format format, int k) {
    return k == 0 ? "dense.npy" : k == 2 ? "labels.npy"
           : format == NEO_FORMAT_NPZ ? "sparse_multi_hot.npz" : "sparse.npy";
}
static neo_status neo__npy_path(char out[NEO__PATH_BYTES], neo_format format, const char *prefix,
                                int k) {
    int n = snprintf(out, NEO__PATH_BYTES, "%s%s", prefix, neo__npy_name(format, k));
    NEO__CHECK(n > 0 && n < NEO__PATH_BYTES, NEO_ERR_ARG, "%.200s...: the path is too long",
               prefix);
    return NEO_OK;
}
/* The arrays of one triple. Those of ids are one for all features, or one for each (npz). */
typedef struct neo__triple {
    neo__file files[NEO__ROW_FILES];
    neo__npy_info dense, labels, *ids;
    int64_t id_count, id_capacity;
    int opened; /* files */
} neo__triple;
static void neo__triple_close(neo_ctx *ctx, neo__triple *triple) {
    for (int k = 0; k < triple->opened; k++) (void)neo__file_close(&triple->files[k]);
    NEO__LIST_FREE(ctx, triple->ids, triple->id_capacity);
    memset(triple, 0, sizeof *triple);
}
static neo_status neo__npz_open(neo_ctx *ctx, const char *path, neo__triple *triple);
/* paths: [NEO__ROW_FILES][NEO__PATH_BYTES], kept while the files are open. What is open after a
   failure is closed by neo__triple_close, too. */
static neo_status neo__triple_open(neo_ctx *ctx, neo_format format, const char *prefix,
                                   char *paths, neo__triple *triple) {
    memset(triple, 0, sizeof *triple);
    for (int k = 0; k < NEO__ROW_FILES; k++) {
        char *path = paths + (size_t)k * NEO__PATH_BYTES;
        NEO__TRY(neo__npy_path(path, format, prefix, k));
        if (k == 1) {
            NEO__TRY(NEO__GROW(ctx, triple->ids, triple->id_capacity, 1));
            if (format == NEO_FORMAT_NPZ) NEO__TRY(neo__npz_open(ctx, path, triple));
            else NEO__TRY(neo__npy_open(ctx, &triple->files[k], path, &triple->ids[0]));
            if (format == NEO_FORMAT_NPY) triple->id_count = 1;
        } else {
            NEO__TRY(neo__npy_open(ctx, &triple->files[k], path,
                                   k == 0 ? &triple->dense : &triple->labels));
        }
        triple->opened = k + 1;
    }
    return NEO_OK;
}
/* The ids of feature t in a sample. */
static int64_t neo__triple_hot(const neo_schema *schema, const neo__triple *triple, int64_t t) {
    return schema->format == NEO_FORMAT_NPZ ? triple->ids[t].shape[1] : 1;
}
/* The triple fits together and, unless it is the first, fits the schema. */
static neo_status neo__triple_check(const neo_schema *schema, const neo__triple *triple,
                                    const char *prefix, int first) {
    const neo__npy_info *dense = &triple->dense, *ids = triple->ids, *labels = &triple->labels;
    const char *name = neo__npy_name(schema->format, 1);
    int64_t features = schema->format == NEO_FORMAT_NPZ ? triple->id_count : ids->shape[1];
    NEO__CHECK(dense->ndim == 2 && ids->ndim == 2, NEO_ERR_SHAPE,
               "%s: dense.npy and %s must have 2 dimensions, they have %d and %d", prefix, name,
               dense->ndim, ids->ndim);
    NEO__CHECK(labels->ndim == 1 || (labels->ndim == 2 && labels->shape[1] >= 1), NEO_ERR_SHAPE,
               "%s: labels.npy must be [N], [N, 1] or [N, labels]", prefix);
    NEO__CHECK(dense->shape[0] == ids->shape[0] && dense->shape[0] == labels->shape[0],
               NEO_ERR_SHAPE,
               "%s: dense.npy, %s and labels.npy have %" PRId64 ", %" PRId64 " and %" PRId64
               " rows",
               prefix, name, dense->shape[0], ids->shape[0], labels->shape[0]);
    NEO__CHECK(ids->dtype == NEO_I32 || ids->dtype == NEO_I64, NEO_ERR_SHAPE,
               "%s: %s holds %s, not i32 or i64", prefix, name, neo_dtype_name(ids->dtype));
    NEO__CHECK(dense->shape[1] <= 65536 && features <= 65536, NEO_ERR_SHAPE,
               "%s: over 65,536 columns", prefix);
    if (first) return NEO_OK;
    NEO__CHECK(schema->dense_count == dense->shape[1] && schema->feature_count == features,
               NEO_ERR_SHAPE,
               "%s: has %" PRId64 " dense and %" PRId64 " sparse columns, the schema %d and %d",
               prefix, dense->shape[1], features, schema->dense_count, schema->feature_count);
    NEO__CHECK((labels->ndim == 1 ? 1 : labels->shape[1]) == schema->label_count, NEO_ERR_SHAPE,
               "%s: labels.npy has %" PRId64 " columns, the schema %d", prefix,
               labels->ndim == 1 ? 1 : labels->shape[1], schema->label_count);
    for (int32_t t = 0; schema->hot && t < schema->feature_count; t++)
        NEO__CHECK(neo__triple_hot(schema, triple, t) == schema->hot[t], NEO_ERR_SHAPE,
                   "%s: %s: %d.npy has %" PRId64 " columns, the schema %d", prefix, name, t,
                   neo__triple_hot(schema, triple, t), schema->hot[t]);
    return NEO_OK;
}
static void neo__triple_plane(const neo__npy_info *info, int file, neo__plane *plane) {
    memset(plane, 0, sizeof *plane);
    plane->dtype = info->dtype;
    plane->f64 = info->f64;
    plane->item_bytes = info->item_bytes;
    plane->file = file;
    plane->offset = info->data_offset;
    plane->row_bytes = (info->ndim == 2 ? info->shape[1] : 1) * (int64_t)info->item_bytes;
}
static neo_status neo__source_open_triple(neo__source *source) {
    const neo_schema *schema = source->schema;
    const char *prefix = source->paths[source->file];
    neo__triple triple;
    neo_status status =
        neo__triple_open(schema->ctx, schema->format, prefix, source->row_path, &triple);
    if (status == NEO_OK) status = neo__triple_check(schema, &triple, prefix, 0);
    if (status == NEO_OK) {
        memcpy(source->files, triple.files, sizeof source->files);
        source->open = 1;
        triple.opened = 0;
        source->rows = triple.dense.shape[0];
        neo__triple_plane(&triple.labels, 2, &source->planes[NEO__PLANE_LABEL]);
        neo__triple_plane(&triple.dense, 0, &source->planes[NEO__PLANE_DENSE]);
        for (int64_t k = 0; k < triple.id_count; k++)
            neo__triple_plane(&triple.ids[k], 1, &source->planes[NEO__PLANE_IDS + k]);
    }
    neo__triple_close(schema->ctx, &triple);
    return status == NEO_OK ? neo__source_check_rows(source) : status;
}
static void neo__source_close_triple(neo__source *source) {
    for (int i = 0; i < NEO__ROW_FILES; i++) (void)neo__file_close(&source->files[i]);
}

/* ---- the schema ---- */
/* Sizes of the schema, by its first triple. */
static neo_status neo__npy_features(neo_schema *schema, const neo__triple *triple) {
    int zipped = schema->format == NEO_FORMAT_NPZ;
    int64_t features = zipped ? triple->id_count : triple->ids->shape[1];
    NEO__TRY(neo__schema_features(schema, (int32_t)triple->dense.shape[1], (int32_t)features));
    NEO__TRY(neo__schema_labels(schema, triple->labels.ndim == 2 ? triple->labels.shape[1] : 1));
    schema->plane_count = NEO__PLANE_IDS + (int32_t)triple->id_count;
    if (!zipped) return NEO_OK;
    NEO__TRY(NEO__ARENA(&schema->arena, schema->hot, NEO__MAX(features, 1)));
    for (int64_t t = 0; t < features; t++) {
        schema->hot[t] = (int32_t)triple->ids[t].shape[1];
        schema->sample_ids += schema->hot[t];
        schema->multi |= schema->hot[t] != 1;
    }
    return NEO_OK;
}
static neo_status neo__npy_schema_triple(neo_schema *schema, const char *prefix, char *paths,
                                         int first, const int64_t *rows) {
    neo__triple triple;
    neo_status status = neo__triple_open(schema->ctx, schema->format, prefix, paths, &triple);
    if (status == NEO_OK) status = neo__triple_check(schema, &triple, prefix, first);
    if (status == NEO_OK && first) status = neo__npy_features(schema, &triple);
    for (int64_t k = 0; status == NEO_OK && !rows && k < triple.id_count; k++) {
        neo__plane plane;
        int all = schema->format == NEO_FORMAT_NPY;
        neo__triple_plane(&triple.ids[k], 1, &plane);
        status = neo__plane_scan(schema, &triple.files[1], &plane, NULL, triple.dense.shape[0],
                                 all ? 0 : (int32_t)k, all ? schema->feature_count : 1);
    }
    neo__triple_close(schema->ctx, &triple);
    return status;
}
static neo_status neo__npy_init(neo_schema *schema, const char *const *prefixes, int count,
                                const int64_t *rows, int modulo) {
    char *paths = (char *)neo_alloc(schema->ctx, (int)NEO__ROW_FILES * NEO__PATH_BYTES);
    NEO__CHECK(paths, NEO_ERR_MEMORY, "%s: no memory", schema->arena.function);
    neo_status status = NEO_OK;
    for (int i = 0; status == NEO_OK && i < count; i++)
        status = neo__npy_schema_triple(schema, prefixes[i], paths, i == 0, rows);
    neo_free(schema->ctx, paths, (int)NEO__ROW_FILES * NEO__PATH_BYTES);
    NEO__TRY(status);
    schema->modulo = modulo != 0;
    return neo__schema_sizes(schema, "cat_%d", 0, rows);
}
static neo_status neo__schema_triples(neo_ctx *ctx, const char *function, neo_format format,
                                      const char *const *prefixes, int prefix_count,
                                      const int64_t *rows, int modulo, neo_schema **schema) {
    neo_schema *s;
    if (schema) *schema = NULL;
    NEO__CHECK(prefix_count >= 1, NEO_ERR_ARG, "%s: there is no prefix", function);
    NEO__TRY(neo__schema_begin(ctx, function, format, prefixes, schema, &s));
    return neo__schema_done(s, neo__npy_init(s, prefixes, prefix_count, rows, modulo), schema);
}
NEO_API neo_status neo_schema_npy(neo_ctx *ctx, const char *const *prefixes, int prefix_count,
                                  const int64_t *rows, int modulo, neo_schema **schema) {
    return neo__schema_triples(ctx, "neo_schema_npy", NEO_FORMAT_NPY, prefixes, prefix_count, rows,
                               modulo, schema);
}
NEO_API neo_status neo_schema_npz(neo_ctx *ctx, const char *const *prefixes, int prefix_count,
                                  const int64_t *rows, int modulo, neo_schema **schema) {
    return neo__schema_triples(ctx, "neo_schema_npz", NEO_FORMAT_NPZ, prefixes, prefix_count, rows,
                               modulo, schema);
}
NEO__HOT_BEGIN

/* ---- export ---- */
typedef struct neo__npy_out {
    neo_ctx *ctx;
    neo__file files[NEO__ROW_FILES];
    char paths[NEO__ROW_FILES][NEO__PATH_BYTES];
    int opened;
    int32_t *cells; /* a batch's labels, then its ids, sample by sample */
    int64_t cell_capacity, rows;
} neo__npy_out;
static neo_status neo__npy_out_batch(neo__npy_out *out, const neo_batch *batch) {
    int64_t count = batch->size, t = batch->sparse.feature_count,
            *ids = (int64_t *)(uintptr_t)batch->sparse.ids;
    const float *label = (const float *)batch->label.data;
    NEO__CHECK(!batch->sparse.inverse, NEO_ERR_UNSUPPORTED,
               "neo_npy_export: the reader gives bags that repeat once (neo_reader_desc.dedup)");
    NEO__CHECK(!batch->sparse.weights, NEO_ERR_UNSUPPORTED,
               "neo_npy_export: ids with weights, which the arrays have no place for");
    NEO__CHECK(batch->label.ndim == 1, NEO_ERR_UNSUPPORTED,
               "neo_npy_export: samples of several labels");
    NEO__TRY(NEO__GROW(out->ctx, out->cells, out->cell_capacity, count * (t + 1)));
    for (int64_t i = 0; i < count; i++) {
        NEO__CHECK(label[i] == 0.0f || label[i] == 1.0f, NEO_ERR_UNSUPPORTED,
                   "neo_npy_export: sample %" PRId64 ": label %g is not 0 or 1", batch->first + i,
                   (double)label[i]);
        out->cells[i] = label[i] == 1.0f;
        for (int64_t k = 0; k < t; k++) {
            int64_t bag = k * count + i, at = batch->sparse.offsets[bag];
            NEO__CHECK(batch->sparse.offsets[bag + 1] == at + 1 && ids[at] <= INT32_MAX,
                       NEO_ERR_UNSUPPORTED,
                       "neo_npy_export: sample %" PRId64 ": feature %" PRId64
                       " has not exactly one id within i32",
                       batch->first + i, k);
            out->cells[count + i * t + k] = (int32_t)ids[at];
        }
    }
    out->rows += count;
    NEO__TRY(neo__file_write(&out->files[0], batch->dense.data, neo_tensor_bytes(batch->dense)));
    NEO__TRY(neo__file_write(&out->files[1], out->cells + count, (size_t)(count * t) * 4));
    return neo__file_write(&out->files[2], out->cells, (size_t)count * 4);
}
NEO__HOT_END
/* The headers, for what has been written; at the start with 0 rows. */
static neo_status neo__npy_out_headers(neo__npy_out *out, const neo_schema *schema) {
    for (int k = 0; k < NEO__ROW_FILES; k++) {
        char header[NEO__NPY_MADE_BYTES];
        int64_t shape[2];
        shape[0] = out->rows;
        shape[1] = k == 0 ? schema->dense_count : k == 1 ? schema->feature_count : 1;
        size_t n =
            neo__npy_header(header, k == 0 ? NEO_F32 : NEO_I32, 2, shape, NEO__NPY_EXPORT_BYTES);
        NEO_ASSERT(n == NEO__NPY_EXPORT_BYTES);
        NEO__TRY(neo__file_seek(&out->files[k], 0));
        NEO__TRY(neo__file_write(&out->files[k], header, n));
    }
    return NEO_OK;
}
static neo_status neo__npy_out_all(neo__npy_out *out, neo_reader *reader, const char *prefix) {
    neo_batch batch;
    neo_status status;
    for (int k = 0; k < NEO__ROW_FILES; k++) {
        NEO__TRY(neo__npy_path(out->paths[k], NEO_FORMAT_NPY, prefix, k));
        NEO__TRY(neo__file_open(&out->files[k], out->paths[k], NEO__FILE_CREATE));
        out->opened = k + 1;
    }
    NEO__TRY(neo__npy_out_headers(out, reader->schema));
    while ((status = neo_reader_next(reader, &batch)) == NEO_OK)
        NEO__TRY(neo__npy_out_batch(out, &batch));
    if (status != NEO_END) return status;
    return neo__npy_out_headers(out, reader->schema);
}
NEO_API neo_status neo_npy_export(neo_ctx *ctx, neo_reader *reader, const char *prefix) {
    NEO__TRY(neo__check_ctx("neo_npy_export", ctx));
    NEO__CHECK(reader && prefix, NEO_ERR_ARG, "neo_npy_export: an argument is NULL");
    neo__npy_out *out = (neo__npy_out *)neo__alloc_zero(ctx, sizeof *out);
    NEO__CHECK(out, NEO_ERR_MEMORY, "neo_npy_export: no memory");
    out->ctx = ctx;
    neo_status status = neo__npy_out_all(out, reader, prefix);
    for (int k = 0; k < out->opened; k++) {
        neo_status closed = neo__file_close(&out->files[k]);
        if (status == NEO_OK) status = closed;
    }
    NEO__LIST_FREE(ctx, out->cells, out->cell_capacity);
    neo_free(ctx, out, sizeof *out);
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-npz

   numpy.savez's files: a zip (PKWARE's APPNOTE 6.3) of members `k.npy`, stored as they are. The
   directory stands at the end: its place is in the end record, or, where numbers pass 32 bits, in
   the zip64 end record that a locator before it names. An entry of it has the member's sizes and
   the place of its local header, after which the member's bytes begin.
   ------------------------------------------------------------------------ */
enum {
    NEO__ZIP_END = 22,
    NEO__ZIP_LOCATOR = 20,
    NEO__ZIP_END64 = 56,
    NEO__ZIP_ENTRY = 46,
    NEO__ZIP_LOCAL = 30,
    NEO__ZIP_TAIL = 65535 + NEO__ZIP_END, /* the end record and the longest comment */
    NEO__ZIP_DIRECTORY = 64 << 20         /* bytes of the largest directory that is read */
};
typedef struct neo__zip {
    const neo__file *file;
    int64_t size;                             /* of the file */
    int64_t directory, directory_bytes, count; /* of entries */
} neo__zip;
typedef struct neo__zip_entry {
    neo__text name;
    int method, flags;
    uint64_t stored, bytes, header;
} neo__zip_entry;

static neo_status neo__zip_fail(const neo__zip *zip, int64_t at, const char *what) {
    return neo_fail(NEO_ERR_FORMAT, "%s: byte %" PRId64 ": %s", zip->file->path, at, what);
}
/* Find the directory by the file's last bytes. tail: scratch of NEO__ZIP_TAIL. */
static neo_status neo__zip_find(neo__zip *zip, char *tail) {
    int64_t bytes = NEO__MIN(zip->size, (int64_t)NEO__ZIP_TAIL), start = zip->size - bytes;
    int64_t i = bytes - NEO__ZIP_END;
    char wide[NEO__ZIP_END64];
    NEO__TRY(neo__file_read_at(zip->file, start, tail, (size_t)bytes));
    while (i >= 0 && (memcmp(tail + i, "PK\5\6", 4) != 0 ||
                      (int64_t)neo__get_le(tail + i + 20, 2) != bytes - NEO__ZIP_END - i))
        i--;
    if (i < 0)
        return neo__zip_fail(zip, zip->size, "no directory of a zip ends here: the file is cut "
                                             "off, or is not of numpy.savez");
    uint64_t count = neo__get_le(tail + i + 10, 2), length = neo__get_le(tail + i + 12, 4),
             at = neo__get_le(tail + i + 16, 4);
    if (i >= NEO__ZIP_LOCATOR && memcmp(tail + i - NEO__ZIP_LOCATOR, "PK\6\7", 4) == 0) {
        uint64_t end = neo__get_le(tail + i - NEO__ZIP_LOCATOR + 8, 8);
        int fits = zip->size >= NEO__ZIP_END64 && end <= (uint64_t)zip->size - NEO__ZIP_END64;
        if (fits) NEO__TRY(neo__file_read_at(zip->file, (int64_t)end, wide, sizeof wide));
        if (!fits || memcmp(wide, "PK\6\6", 4) != 0)
            return neo__zip_fail(zip, start + i - NEO__ZIP_LOCATOR,
                                 "no zip64 end record is where this says");
        count = neo__get_le(wide + 32, 8);
        length = neo__get_le(wide + 40, 8);
        at = neo__get_le(wide + 48, 8);
    }
    if (length > (uint64_t)zip->size || at > (uint64_t)zip->size - length ||
        count > length / NEO__ZIP_ENTRY || length > NEO__ZIP_DIRECTORY)
        return neo__zip_fail(zip, start + i, "the end record gives a directory that cannot be");
    zip->directory = (int64_t)at;
    zip->directory_bytes = (int64_t)length;
    zip->count = (int64_t)count;
    return NEO_OK;
}
/* The entry at p; returns the next one's place, or NULL: it is not whole. */
static const char *neo__zip_entry_at(const char *p, const char *end, neo__zip_entry *entry) {
    if (end - p < NEO__ZIP_ENTRY || memcmp(p, "PK\1\2", 4) != 0) return NULL;
    const uint64_t name = neo__get_le(p + 28, 2), extra = neo__get_le(p + 30, 2),
                   comment = neo__get_le(p + 32, 2);
    if ((uint64_t)(end - p) < NEO__ZIP_ENTRY + name + extra + comment) return NULL;
    entry->flags = (int)neo__get_le(p + 8, 2);
    entry->method = (int)neo__get_le(p + 10, 2);
    entry->name.p = p + NEO__ZIP_ENTRY;
    entry->name.bytes = (size_t)name;
    uint64_t *const numbers[3] = {&entry->bytes, &entry->stored, &entry->header};
    static const int place[3] = {24, 20, 42};
    for (int i = 0; i < 3; i++) *numbers[i] = neo__get_le(p + place[i], 4);
    const char *field = entry->name.p + name, *stop = field + extra;
    while (stop - field >= 4) { /* field 1 has the numbers that pass 32 bits, in this order */
        const char *q = field + 4, *field_end = q + neo__get_le(field + 2, 2);
        if (field_end > stop) return NULL;
        for (int i = 0; neo__get_le(field, 2) == 1 && i < 3; i++) {
            if (*numbers[i] != 0xFFFFFFFFu) continue;
            if (field_end - q < 8) return NULL;
            *numbers[i] = neo__get_le(q, 8);
            q += 8;
        }
        field = field_end;
    }
    return entry->name.p + name + extra + comment;
}
/* k of the name `k.npy`; -1: it is another. */
static int64_t neo__npz_number(neo__text name) {
    int64_t k = 0;
    size_t i = 0;
    for (; i < name.bytes && i < 9 && name.p[i] >= '0' && name.p[i] <= '9'; i++)
        k = k * 10 + (name.p[i] - '0');
    int whole = i > 0 && (name.p[0] != '0' || i == 1);
    return whole && name.bytes == i + 4 && memcmp(name.p + i, ".npy", 4) == 0 ? k : -1;
}
/* The array of a member: [N][hot] in info, or [N] as [N][1]. buffer: of NEO__NPY_HEADER_BYTES. */
static neo_status neo__npz_member(const neo__zip *zip, const neo__zip_entry *entry, char *buffer,
                                  neo__npy_info *info) {
    char path[NEO__PATH_BYTES + 16], local[NEO__ZIP_LOCAL];
    snprintf(path, sizeof path, "%s: %.*s", zip->file->path, (int)entry->name.bytes,
             entry->name.p);
    NEO__CHECK(entry->method == 0 && !(entry->flags & 1), NEO_ERR_UNSUPPORTED,
               "%s: is %s (method %d): numpy.savez stores members as they are, "
               "savez_compressed does not",
               path, entry->flags & 1 ? "encrypted" : "compressed", entry->method);
    const uint64_t size = (uint64_t)zip->size;
    int fits = size >= NEO__ZIP_LOCAL && entry->header <= size - NEO__ZIP_LOCAL;
    if (fits)
        NEO__TRY(neo__file_read_at(zip->file, (int64_t)entry->header, local, sizeof local));
    NEO__CHECK(fits && memcmp(local, "PK\3\4", 4) == 0, NEO_ERR_FORMAT,
               "%s: byte %" PRIu64 ": no member begins here, as the directory says", path,
               entry->header);
    uint64_t at = entry->header + NEO__ZIP_LOCAL + neo__get_le(local + 26, 2) +
                  neo__get_le(local + 28, 2);
    NEO__CHECK(entry->stored == entry->bytes && at <= size && entry->bytes <= size - at,
               NEO_ERR_FORMAT, "%s: byte %" PRIu64 ": %" PRIu64 " bytes do not fit into the file",
               path, at, entry->bytes);
    size_t head = (size_t)NEO__MIN(entry->bytes, (uint64_t)NEO__NPY_HEADER_BYTES);
    NEO__TRY(neo__file_read_at(zip->file, (int64_t)at, buffer, head));
    NEO__TRY(neo__npy_parse(path, buffer, head, info));
    const uint64_t needs =
        (uint64_t)info->data_offset + (uint64_t)neo__npy_count(info) * info->item_bytes;
    NEO__CHECK(needs == entry->bytes, NEO_ERR_FORMAT,
               "%s: has %" PRIu64 " bytes, its shape needs %" PRIu64, path, entry->bytes, needs);
    if (info->ndim == 1) info->shape[info->ndim++] = 1;
    NEO__CHECK(info->ndim == 2 && info->shape[1] >= 1 && info->shape[1] <= 65536 &&
                   (info->dtype == NEO_I32 || info->dtype == NEO_I64),
               NEO_ERR_SHAPE, "%s: expected i32 or i64 of [samples][1 .. 65,536]", path);
    info->data_offset += (int64_t)at;
    return NEO_OK;
}
/* The arrays 0.npy, 1.npy, ... of one length, of the directory [p, end). */
static neo_status neo__npz_members(neo_ctx *ctx, const neo__zip *zip, const char *p,
                                   const char *end, char *buffer, neo__triple *triple) {
    const char *path = zip->file->path, *begin = p;
    neo__zip_entry entry;
    int64_t found = 0;
    for (int64_t i = 0; i < zip->count; i++) {
        const int64_t at = zip->directory + (p - begin);
        p = neo__zip_entry_at(p, end, &entry);
        if (!p) return neo__zip_fail(zip, at, "no whole entry of the directory stands here");
        int64_t k = neo__npz_number(entry.name);
        if (k < 0) continue;
        NEO__CHECK(k < zip->count, NEO_ERR_FORMAT,
                   "%s: has %" PRId64 ".npy, but not all before it", path, k);
        NEO__TRY(NEO__GROW(ctx, triple->ids, triple->id_capacity, k + 1));
        while (triple->id_count <= k) triple->ids[triple->id_count++].item_bytes = 0;
        NEO__CHECK(triple->ids[k].item_bytes == 0, NEO_ERR_FORMAT, "%s: has %" PRId64 ".npy twice",
                   path, k);
        NEO__TRY(neo__npz_member(zip, &entry, buffer, &triple->ids[k]));
        found++;
    }
    for (int64_t k = 0; k < triple->id_count || k == 0; k++) {
        NEO__CHECK(found > 0 && triple->ids[k].item_bytes, NEO_ERR_FORMAT,
                   "%s: has no member %" PRId64 ".npy", path, k);
        NEO__CHECK(triple->ids[k].shape[0] == triple->ids[0].shape[0] &&
                       triple->ids[k].dtype == triple->ids[0].dtype,
                   NEO_ERR_SHAPE,
                   "%s: %" PRId64 ".npy has %" PRId64 " rows of %s, 0.npy %" PRId64 " of %s", path,
                   k, triple->ids[k].shape[0], neo_dtype_name(triple->ids[k].dtype),
                   triple->ids[0].shape[0], neo_dtype_name(triple->ids[0].dtype));
    }
    return NEO_OK;
}
static neo_status neo__npz_open(neo_ctx *ctx, const char *path, neo__triple *triple) {
    neo__file *file = &triple->files[1];
    neo__zip zip = {file, 0, 0, 0, 0};
    size_t scratch = NEO__MAX((size_t)NEO__ZIP_TAIL, (size_t)NEO__NPY_HEADER_BYTES);
    NEO__TRY(neo__file_open(file, path, NEO__FILE_READ));
    zip.size = neo__file_size(file);
    char *buffer = (char *)neo__alloc_for(ctx, scratch, path), *directory = NULL;
    neo_status status = NEO_ERR_MEMORY;
    if (buffer && zip.size < 0)
        status = neo_fail(NEO_ERR_IO, "%s: an archive must be a file, whose size is known", path);
    else if (buffer) status = neo__zip_find(&zip, buffer);
    if (status == NEO_OK) {
        size_t bytes = NEO__MAX((size_t)zip.directory_bytes, 1);
        directory = (char *)neo__alloc_for(ctx, bytes, path);
        status = directory ? neo__file_read_at(file, zip.directory, directory,
                                               (size_t)zip.directory_bytes)
                           : NEO_ERR_MEMORY;
        if (status == NEO_OK)
            status = neo__npz_members(ctx, &zip, directory, directory + zip.directory_bytes,
                                      buffer, triple);
        neo_free(ctx, directory, bytes);
    }
    neo_free(ctx, buffer, scratch);
    if (status != NEO_OK) (void)neo__file_close(file);
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-binary

   Records of 32-bit little-endian numbers without any header: label, dense numbers, ids.
   ------------------------------------------------------------------------ */
/* Plane k of records in file 0. */
static neo__plane neo__binary_plane(const neo_schema *schema, int32_t k) {
    NEO__ZERO(neo__plane, plane);
    plane.dtype = k == NEO__PLANE_DENSE && schema->float_dense ? NEO_F32 : NEO_I32;
    plane.is_unsigned = k == NEO__PLANE_IDS;
    plane.item_bytes = 4;
    plane.row_bytes = 4 * (schema->label_count + schema->dense_count + schema->sample_ids);
    plane.within = k == NEO__PLANE_LABEL   ? 0
                   : k == NEO__PLANE_DENSE ? 4 * (int64_t)schema->label_count
                                           : 4 * ((int64_t)schema->label_count +
                                                  schema->dense_count);
    return plane;
}
/* A file of whole records; it is closed again on failure. */
static neo_status neo__binary_open(const neo_schema *schema, const char *path, neo__file *file,
                                   int64_t *rows) {
    const int64_t row = neo__binary_plane(schema, NEO__PLANE_LABEL).row_bytes;
    NEO__TRY(neo__file_open(file, path, NEO__FILE_READ));
    int64_t size = neo__file_size(file);
    char first[8] = {0};
    neo_status status = size < 8 ? NEO_OK : neo__file_read_at(file, 0, first, 8);
    if (status == NEO_OK) status = neo__source_refuse_compressed(path, first, 8, 1);
    *rows = size / row;
    if (status == NEO_OK && size >= 0 && size % row == 0) return NEO_OK;
    (void)neo__file_close(file);
    NEO__TRY(status);
    NEO__CHECK(size >= 0, NEO_ERR_IO, "%s: cannot tell its size: records need a file", path);
    return neo_fail(NEO_ERR_FORMAT,
                    "%s: byte %" PRId64 ": the file ends inside row %" PRId64
                    " (a row has %" PRId64 " bytes)",
                    path, size, *rows, row);
}
static neo_status neo__source_open_binary(neo__source *source) {
    NEO__TRY(neo__binary_open(source->schema, source->paths[source->file], &source->files[0],
                              &source->rows));
    source->open = 1;
    for (int32_t k = 0; k < source->schema->plane_count; k++)
        source->planes[k] = neo__binary_plane(source->schema, k);
    return neo__source_check_rows(source);
}
static void neo__source_close_binary(neo__source *source) {
    (void)neo__file_close(&source->files[0]);
}

/* ---- records straight into a batch ---- */
NEO__HOT_BEGIN
#if defined(NEO__X86)
/* The ids of a tile of rows from p on, 4 features of 4 samples at a time, the last 4 features at
   the end; 4 features at least. more: another tile follows, for which the places far apart are
   fetched. 0: one is outside its table, or below 0. */
NEO__AVX2 static int neo__gather_words_avx2(const neo_schema *schema, const char *p,
                                            int64_t row_bytes, int is_unsigned, int64_t *to,
                                            int64_t stride, int more) {
    const int64_t features = schema->feature_count;
    const int64_t top = is_unsigned ? (int64_t)UINT32_MAX : (int64_t)INT32_MAX;
    const int modulo = schema->modulo;
    __m128i outside = _mm_setzero_si128();
    for (int64_t t = 0, next; t < features; t = next) {
        uint32_t last[4];
        __m256i m[4], by[4];
        next = t + 4 < features ? NEO__MIN(t + 4, features - 4) : features;
        for (int f = 0; f < 4; f++) {
            last[f] = (uint32_t)(modulo ? top : NEO__MIN(schema->rows[t + f] - 1, top));
            m[f] = _mm256_set1_epi64x((int64_t)schema->modulus[t + f]);
            by[f] = _mm256_set1_epi64x((int64_t)schema->inverse[t + f]);
            for (int k = 0; k < NEO__GATHER_TILE && more; k += 8)
                __builtin_prefetch(to + (t + f) * stride + NEO__GATHER_TILE + k, 1);
        }
        const __m128i limit = _mm_loadu_si128((const __m128i *)(const void *)last);
        __m128i most = limit;
        for (int64_t k = 0; k < NEO__GATHER_TILE; k += 4) {
            __m128i row[4], of[4]; /* of each sample; of each feature */
            for (int64_t i = 0; i < 4; i++) {
                row[i] = _mm_loadu_si128(
                    (const __m128i *)(const void *)(p + (k + i) * row_bytes + 4 * t));
                most = _mm_max_epu32(most, row[i]);
            }
            const __m128i a = _mm_unpacklo_epi32(row[0], row[1]);
            const __m128i b = _mm_unpacklo_epi32(row[2], row[3]);
            const __m128i c = _mm_unpackhi_epi32(row[0], row[1]);
            const __m128i d = _mm_unpackhi_epi32(row[2], row[3]);
            of[0] = _mm_unpacklo_epi64(a, b), of[1] = _mm_unpackhi_epi64(a, b);
            of[2] = _mm_unpacklo_epi64(c, d), of[3] = _mm_unpackhi_epi64(c, d);
            for (int f = 0; f < 4; f++) {
                __m256i id = _mm256_cvtepu32_epi64(of[f]);
                if (modulo) id = neo__avx2_remainder(id, m[f], by[f]);
                _mm256_storeu_si256((__m256i *)(void *)(to + (t + f) * stride + k), id);
            }
        }
        outside = _mm_or_si128(outside, _mm_xor_si128(most, limit));
    }
    return _mm_testz_si128(outside, outside);
}
/* A tile of good rows of one id each. 0: not all are good. */
static int neo__gather_whole(const neo_schema *schema, const neo__block *block, int64_t from,
                             int64_t i, int64_t count, neo__slot *slot) {
    const neo__plane *planes = block->planes, *ids = &planes[NEO__PLANE_IDS];
    const int64_t labels = schema->label_count, dense = schema->dense_count;
    const neo__plane *label = &planes[NEO__PLANE_LABEL];
    const int one = labels == 1; /* all labels of the tile are one call's */
    neo__issue issue;
    if (ids->dtype != NEO_I32) return 0;
    for (int64_t k = 0; k < NEO__GATHER_TILE; k++) {
        if ((k == 0 || !one) &&
            !neo__take_labels(schema, label, neo__block_row(block, NEO__PLANE_LABEL, from + k),
                              one ? label->row_bytes : (int64_t)label->item_bytes,
                              one ? (int64_t)NEO__GATHER_TILE : labels,
                              slot->label + (i + k) * labels))
            return 0;
        if (!neo__row_dense(schema, block, from + k, slot->dense + (i + k) * dense, &issue))
            return 0;
    }
    return neo__gather_words_avx2(schema, neo__block_row(block, NEO__PLANE_IDS, from),
                                  ids->row_bytes, ids->is_unsigned, slot->ids.list + i, count,
                                  i + 2 * NEO__GATHER_TILE <= count);
}
#endif
/* The m rows of the block from `from` on to samples from i on, of `count`. The record of each is
   made in the tile, which stays in the cache. 0: a bad row. */
static int neo__gather_rows(const neo_schema *schema, neo__block *block, int64_t from, int64_t m,
                            int64_t i, int64_t count, neo__slot *slot, neo__issue *issue) {
    const float *records[NEO__GATHER_TILE];
#if defined(NEO__X86)
    if (m == NEO__GATHER_TILE && !schema->multi && schema->feature_count >= 4 &&
        schema->plane_count == NEO__PLANE_IDS + 1 && schema->ctx->isa >= NEO_ISA_AVX2 &&
        neo__gather_whole(schema, block, from, i, count, slot))
        return 1;
#endif
    for (int64_t k = 0; k < m; k++) {
        float *record = (float *)(void *)(slot->tile + (size_t)k * schema->record_bytes);
        records[k] = record;
        block->id_count = 0;
        if (!neo__row_sample(schema, block, from + k, record, issue)) return 0;
        if (!schema->multi) continue;
        neo__gather_labels(schema, record, i + k, slot);
        memcpy(slot->dense + (i + k) * schema->dense_count, record + 1,
               (size_t)schema->dense_count * sizeof(float));
        const int64_t *ids = slot->tile_ids;
        int64_t before = 0; /* ids of the features before */
        for (int32_t t = 0; t < schema->feature_count; t++) {
            const int64_t hot = schema->hot[t];
            int64_t *to = slot->ids.list + before * count + (i + k) * hot;
            for (int64_t n = 0; n < hot; n++) to[n] = *ids++;
            before += hot;
        }
    }
    if (!schema->multi) neo__gather_tile(schema, records, i, m, count, slot);
    return 1;
}
/* Offsets of bags whose features have so many ids each. counted: of so many samples less 1 they are
   there. */
static void neo__gather_hot_offsets(const neo_schema *schema, int64_t count, neo__slot *slot) {
    int64_t *offset = slot->offsets, at = 0;
    if (slot->counted == count + 1) return;
    *offset++ = 0;
    for (int32_t t = 0; t < schema->feature_count; t++)
        for (int64_t i = 0; i < count; i++) *offset++ = at += schema->hot[t];
    slot->counted = count + 1;
}
/* m rows of a plane with an id of each feature, from p on, to samples from i on, of `count`. 0: as
   of neo__take_ids. */
static int neo__gather_words(const neo_schema *schema, const neo__plane *plane, const char *p,
                             int64_t m, int64_t i, int64_t count, neo__slot *slot) {
    int64_t k = 0, *ids = (int64_t *)(void *)slot->tile;
#if defined(NEO__X86)
    for (; k + NEO__GATHER_TILE <= m; k += NEO__GATHER_TILE)
        if (!neo__gather_words_avx2(schema, p + k * plane->row_bytes, plane->row_bytes,
                                    plane->is_unsigned, slot->ids.list + i + k, count,
                                    k + 2 * NEO__GATHER_TILE <= m))
            return 0;
#endif
    for (; k < m; k++) {
        if (!neo__take_ids(schema, p + k * plane->row_bytes, schema->feature_count,
                           plane->is_unsigned, 0, 1, ids))
            return 0;
        for (int32_t t = 0; t < schema->feature_count; t++)
            slot->ids.list[t * count + i + k] = ids[t];
    }
    return 1;
}
/* Whether the arrays of a source are read plane by plane: with a plane for each feature, or tiles
   of ids to turn. */
static int neo__gather_apart(const neo_schema *schema, const neo__source *source) {
    if (schema->plane_count > NEO__PLANE_IDS + 1) return 1;
    return schema->format == NEO_FORMAT_NPY && schema->ctx->isa >= NEO_ISA_AVX2 &&
           schema->feature_count >= 4 && source->planes[NEO__PLANE_IDS].dtype == NEO_I32;
}
/* Rows [row, row + n) of a file of planes to samples from `done` on: plane by plane, as the numbers
   of the batch lie, too. *good = 0: not all are good, or ids are not i32. */
static neo_status neo__gather_planes(const neo_schema *schema, const neo__source *source,
                                     int64_t row, int64_t n, int64_t done, int64_t count,
                                     neo__slot *slot, int *good) {
    const int64_t room = neo__direct_rows(schema) * neo__direct_row_bytes(schema);
    const int own = schema->plane_count > NEO__PLANE_IDS + 1;
    int64_t *ids = slot->ids.list;
    for (int32_t k = 0; k < schema->plane_count && *good; k++) {
        const neo__plane *plane = &source->planes[k];
        const int64_t bytes = plane->row_bytes, width = bytes / (int64_t)plane->item_bytes;
        const int64_t most = room / NEO__MAX(bytes, 1) / NEO__GATHER_TILE * NEO__GATHER_TILE;
        const int as_is = k == NEO__PLANE_DENSE && plane->dtype == NEO_F32 && !plane->f64;
        for (int64_t at = 0, m; at < n && *good; at += m) {
            const int64_t to = (done + at) * width;
            char *p = as_is ? (char *)(slot->dense + to) : slot->rows;
            m = NEO__MIN(most, n - at);
            NEO__TRY(neo__file_read_at(&source->files[plane->file],
                                       plane->offset + (row + at) * bytes, p,
                                       (size_t)(m * bytes)));
            if (k == NEO__PLANE_LABEL)
                *good = neo__take_labels(schema, plane, p, (int64_t)plane->item_bytes, m * width,
                                         slot->label + to);
            else if (k == NEO__PLANE_DENSE)
                *good = neo__take_numbers(plane, p, m * width, slot->dense + to);
            else if (!own)
                *good = neo__gather_words(schema, plane, p, m, done + at, count, slot);
            else
                *good = plane->dtype == NEO_I32 &&
                        neo__take_ids(schema, p, m * width, plane->is_unsigned, k - NEO__PLANE_IDS,
                                      0, ids + to);
        }
        if (k >= NEO__PLANE_IDS) ids += width * count;
    }
    return NEO_OK;
}
static neo_status neo__gather_part(const neo_schema *schema, neo__source *source, int64_t row,
                                   int64_t n, int64_t done, int64_t count, neo__slot *slot) {
    const int64_t most = neo__direct_rows(schema);
    int good = neo__gather_apart(schema, source);
    NEO__ZERO(neo__block, block);
    if (good) NEO__TRY(neo__gather_planes(schema, source, row, n, done, count, slot, &good));
    block.planes = source->planes;
    block.raw = slot->rows;
    block.ids = slot->tile_ids;
    for (int64_t at = 0; at < n && !good; at += most) {
        const int64_t rows = NEO__MIN(most, n - at);
        block.offset = row + at;
        NEO__TRY(neo__source_read_rows(source, block.offset, rows, slot->rows, source->planes,
                                       &block.raw_bytes));
        for (int64_t i = 0; i < rows; i += NEO__GATHER_TILE) {
            const int64_t m = NEO__MIN(rows - i, (int64_t)NEO__GATHER_TILE);
            neo__issue issue;
            if (!neo__gather_rows(schema, &block, i, m, done + at + i, count, slot, &issue))
                return neo_fail(issue.status, "%.256s%s",
                                neo__path_name(source->paths[source->file]), issue.text);
        }
    }
    return NEO_OK;
}
NEO__HOT_END
static neo_status neo__gather_records(neo_reader *reader, neo__source *source, int64_t row,
                                      int64_t count, neo__slot *slot) {
    const neo_schema *schema = reader->schema;
    const int64_t *before = reader->extent.rows_before;
    const int64_t ids = schema->hot ? schema->sample_ids : schema->feature_count;
    int32_t i = 0;
    NEO__TRY(neo__ids_reserve(reader, &slot->ids, ids * count));
    for (int64_t done = 0; done < count; i++) {
        const int64_t first = row + done, n = NEO__MIN(count - done, before[i + 1] - first);
        if (n <= 0) continue;
        if (source->file != i) neo__source_seek(source, i, 0);
        if (!source->open) NEO__TRY(neo__format_of(schema)->begin(source));
        NEO__TRY(neo__gather_part(schema, source, first - before[i], n, done, count, slot));
        done += n;
    }
    if (schema->multi)
        neo__gather_hot_offsets(schema, count, slot);
    else
        neo__gather_offsets(slot, schema->feature_count * count);
    return NEO_OK;
}
static neo_status neo__binary_init(neo_schema *schema, const neo_binary_desc *desc) {
    int32_t dense = desc->dense_count ? desc->dense_count : NEO__CRITEO_DENSE;
    int32_t features = desc->feature_count ? desc->feature_count : NEO__CRITEO_FEATURES;
    dense = NEO__MAX(dense, 0);
    features = NEO__MAX(features, 0);
    NEO__CHECK(dense <= 65536 && features <= 65536, NEO_ERR_ARG,
               "neo_schema_binary: over 65,536 dense numbers or features");
    NEO__TRY(neo__schema_features(schema, dense, features));
    NEO__TRY(neo__schema_labels(schema, desc->label_count ? desc->label_count : 1));
    NEO__TRY(NEO__ARENA(&schema->arena, schema->hot, NEO__MAX(features, 1)));
    for (int32_t t = 0; t < features; t++) {
        schema->hot[t] = desc->ids_per_feature ? desc->ids_per_feature[t] : 1;
        NEO__CHECK(schema->hot[t] >= 1 && schema->hot[t] <= 65536, NEO_ERR_ARG,
                   "neo_schema_binary: feature %d has %d ids, not 1 .. 65,536", t,
                   schema->hot[t]);
        schema->sample_ids += schema->hot[t];
        schema->multi |= schema->hot[t] != 1;
    }
    schema->plane_count = NEO__PLANE_IDS + 1;
    schema->float_dense = desc->float_dense;
    schema->modulo = desc->modulo;
    int find = desc->rows == 0 && !desc->rows_per_feature;
    NEO__CHECK(!find || (desc->paths && desc->path_count >= 1), NEO_ERR_ARG,
               "neo_schema_binary: neither rows nor paths to find them");
    for (int32_t i = 0; find && i < desc->path_count; i++) {
        const neo__plane plane = neo__binary_plane(schema, NEO__PLANE_IDS),
                         labels = neo__binary_plane(schema, NEO__PLANE_LABEL);
        neo__file file;
        int64_t rows;
        NEO__TRY(neo__binary_open(schema, desc->paths[i], &file, &rows));
        neo_status status = neo__plane_scan(schema, &file, &plane, &labels, rows, 0, features);
        (void)neo__file_close(&file);
        NEO__TRY(status);
    }
    return neo__schema_sizes(schema, "cat_%d", desc->rows, desc->rows_per_feature);
}
/* A warning where integers are the bits of floats: of all that are not 0 in the first rows, the
   exponents are those of numbers between 2^-30 and 2^31, as of no integer below 8e8. */
static void neo__binary_look(const neo_schema *schema, const char *path) {
    enum { ROWS = 16, NUMBERS = 64 };
    const int64_t row_bytes = neo__binary_plane(schema, NEO__PLANE_DENSE).row_bytes;
    const int64_t count = NEO__MIN(schema->dense_count, (int32_t)NUMBERS);
    uint32_t word[NUMBERS];
    int64_t rows, floats = 0;
    neo__file file;
    if (neo__binary_open(schema, path, &file, &rows) != NEO_OK) return; /* the reader will say it */
    rows = NEO__MIN(rows, (int64_t)ROWS);
    for (int64_t i = 0; i < rows && floats >= 0; i++) {
        const int64_t at = i * row_bytes + neo__binary_plane(schema, NEO__PLANE_DENSE).within;
        if (neo__file_read_at(&file, at, word, (size_t)count * sizeof *word) != NEO_OK) break;
        for (int64_t k = 0; k < count && floats >= 0; k++) {
            const uint32_t exponent = word[k] >> 23 & 0xFF;
            if (word[k]) floats = exponent >= 97 && exponent < 158 ? floats + 1 : -1;
        }
    }
    (void)neo__file_close(&file);
    if (floats > 0)
        neo_log(schema->ctx, NEO_LOG_WARNING, "%s: its numbers are the bits of floats, and are "
                "read as integers: HugeCTR's Raw has floats (neo_binary_desc.float_dense)", path);
}
NEO_API neo_status neo_schema_binary(neo_ctx *ctx, const neo_binary_desc *desc,
                                     neo_schema **schema) {
    neo_schema *s;
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_binary", NEO_FORMAT_BINARY, desc, schema, &s));
    neo_status status = neo__binary_init(s, desc);
    if (status == NEO_OK && !s->float_dense && desc->paths && desc->path_count > 0)
        neo__binary_look(s, desc->paths[0]);
    return neo__schema_done(s, status, schema);
}
NEO__HOT_BEGIN
/* ---------------------------------------------------------------------------
   >>impl-synthetic

   Sample n draws from the stream (seed, "synthetic.sample", n): block 0 the label, block 1 + d
   dense number d, blocks from (t + 1) 2^32 on the bag of feature t. A dense number is log(x + 1)
   of a whole x with a log-normal law; an id follows Zipf's law. The planted weight of (t, id) is
   its own random number, so that no table of them is kept. Dense and sparse parts of the logit are
   measured on 4,096 samples that nobody else uses (numbers below 0), centred, and scaled to 40 %
   and 60 % of its variance. All arithmetic is in double with neo's own exp and log, so the data is
   the same everywhere.
   ------------------------------------------------------------------------ */
enum { NEO__SYNTHETIC_PROBE = 4096 };
struct neo__synthetic {
    neo_synthetic_desc desc;
    uint64_t sample_name, truth_name, hot_name;
    int64_t most_ids; /* of a bag */
    int32_t *hot;     /* [feature_count] or NULL: the bags' lengths vary */
    double *dense_weight;
    double *zipf_scale; /* per feature; see neo__zipf_id */
    double dense_mean, dense_scale, sparse_mean, sparse_scale, bias;
};
typedef struct neo__synthetic_sums {
    double dense, sparse;
} neo__synthetic_sums;

/* Four words to a number of mean 0 and variance 1: their sum, nearly normal. */
static double neo__near_normal(const uint32_t w[4]) {
    uint64_t sum = (uint64_t)w[0] + w[1] + w[2] + w[3];
    return ((double)sum - 8589934590.0) * (1.7320508075688772 / 4294967296.0);
}
static double neo__synthetic_weight(const neo__synthetic *g, int32_t t, int64_t id) {
    uint32_t w[4];
    neo__random_key key = neo__random_key_make(g->desc.seed, g->truth_name, t, NEO_STREAM_DATA);
    neo__random_block(&key, (uint64_t)id, w);
    return neo__near_normal(w);
}
/* Dense number d: the whole x, at most 2^30. */
static uint32_t neo__synthetic_whole(const neo__random_key *key, int32_t d) {
    uint32_t w[4];
    neo__random_block(key, 1 + (uint64_t)d, w);
    return (uint32_t)neo__exp_near(1.0 + 1.5 * neo__near_normal(w));
}
/* Ids 1 .. n - 1 of a bag whose length is fixed: the row ids[0] of a table of random ids. */
static void neo__synthetic_others(const neo__synthetic *g, int32_t t, int64_t rows, int64_t *ids,
                                  int64_t n) {
    neo__random_key key = neo__random_key_make(g->desc.seed, g->hot_name, t, NEO_STREAM_DATA);
    uint64_t base = (uint64_t)ids[0] * (uint64_t)((n + 2) / 4);
    uint32_t w[4] = {0, 0, 0, 0};
    for (int64_t i = 0; i < n - 1; i++) {
        if (i % 4 == 0) neo__random_block(&key, base + (uint64_t)i / 4, w);
        ids[1 + i] = (int64_t)((double)w[i % 4] * 0x1p-32 * (double)rows);
    }
}
/* The bag of feature t into ids; returns its length. */
static int64_t neo__synthetic_bag(const neo_schema *schema, const neo__random_key *key, int32_t t,
                                  int64_t *ids) {
    const neo__synthetic *generator = schema->synthetic;
    uint64_t base = ((uint64_t)t + 1) << 32;
    uint32_t w[4] = {0, 0, 0, 0};
    int64_t n = 1;
    if (generator->hot) n = generator->hot[t];
    else if (schema->multi) {
        neo__random_block(key, base++, w);
        n = (int64_t)(((uint64_t)w[0] * (uint64_t)(generator->most_ids + 1)) >> 32);
    }
    for (int64_t i = 0; i < n; i++) {
        if (generator->hot && i == 1) {
            neo__synthetic_others(generator, t, schema->rows[t], ids, n);
            break;
        }
        if (i % 4 == 0) neo__random_block(key, base + (uint64_t)i / 4, w);
        ids[i] = neo__zipf_id(schema->log_table, (double)w[i % 4] * 0x1p-32, schema->rows[t],
                              (double)generator->desc.zipf, generator->zipf_scale[t]);
    }
    return n;
}
static neo__random_key neo__synthetic_key(const neo__synthetic *g, int64_t sample) {
    return neo__random_key_make(g->desc.seed, g->sample_name, sample, NEO_STREAM_DATA);
}
/* The unscaled parts of the logit. bag: scratch of most_ids. */
static neo__synthetic_sums neo__synthetic_sum(const neo_schema *schema, int64_t sample,
                                              int64_t *bag) {
    const neo__synthetic *generator = schema->synthetic;
    neo__random_key key = neo__synthetic_key(generator, sample);
    neo__synthetic_sums sums = {0.0, 0.0};
    for (int32_t d = 0; d < schema->dense_count; d++) {
        double x = neo__log_whole(schema->log_table, (uint64_t)neo__synthetic_whole(&key, d) + 1);
        sums.dense += generator->dense_weight[d] * (double)(float)x;
    }
    for (int32_t t = 0; t < schema->feature_count; t++) {
        int64_t n = neo__synthetic_bag(schema, &key, t, bag);
        for (int64_t i = 0; i < n; i++) sums.sparse += neo__synthetic_weight(generator, t, bag[i]);
    }
    return sums;
}
static double neo__synthetic_logit(const neo__synthetic *g, neo__synthetic_sums sums) {
    return g->bias + (sums.dense - g->dense_mean) * g->dense_scale +
           (sums.sparse - g->sparse_mean) * g->sparse_scale;
}
static double neo__synthetic_sigmoid(double z) { return 1.0 / (1.0 + neo__exp_f64(-z)); }
static float neo__synthetic_label(const neo__random_key *key, double logit) {
    uint32_t w[4];
    neo__random_block(key, 0, w);
    return (double)w[0] * 0x1p-32 < neo__synthetic_sigmoid(logit) ? 1.0f : 0.0f;
}
/* All labels of a record: by turns the sparse part against half of the dense, and their sum. */
static void neo__synthetic_labels(const neo_schema *schema, const neo__random_key *key,
                                  neo__synthetic_sums sums, float *record) {
    const neo__synthetic *generator = schema->synthetic;
    const double dense = (sums.dense - generator->dense_mean) * generator->dense_scale;
    double z = neo__synthetic_logit(generator, sums);
    uint32_t w[4];
    record[0] = neo__synthetic_label(key, z);
    if (schema->label_count == 1) return;
    neo__random_block(key, 0, w);
    for (int32_t k = 1; k < schema->label_count; k++) {
        const double logit = z - (k % 2 ? 1.5 * dense : 0.0) - 0.5 * (double)k;
        record[neo__record_label(schema, k)] =
            (double)w[k] * 0x1p-32 < neo__synthetic_sigmoid(logit) ? 1.0f : 0.0f;
    }
}

/* ---- as a source ---- */
static neo_status neo__reader_look_synthetic(neo_reader *reader) {
    reader->blocks.source.path_count = 1; /* as one file */
    reader->extent.samples = reader->schema->synthetic->desc.samples;
    return NEO_OK;
}
static neo_status neo__source_synthetic(neo__source *source, neo__block *b) {
    int64_t total = source->schema->synthetic->desc.samples;
    NEO__CHECK(source->offset <= total, NEO_ERR_MISMATCH,
               "synthetic: has %" PRId64 " samples, the saved position is at %" PRId64, total,
               source->offset);
    b->bytes = NEO__MIN(total - source->offset, neo__block_rows(source->schema));
    source->offset += b->bytes;
    source->sample += b->bytes;
    b->file_end = source->offset == total;
    return NEO_OK;
}
/* Sample i of the block into its record; none is bad. */
static int neo__synthetic_row(const neo_schema *schema, neo__block *block, int64_t i,
                              float *record, neo__issue *issue) {
    const neo__synthetic *generator = schema->synthetic;
    int64_t *ids = neo__record_ids(schema, record), start = block->id_count;
    neo__random_key key =
        neo__synthetic_key(generator, generator->desc.first_sample + block->offset + i);
    neo__synthetic_sums sums = {0.0, 0.0};
    for (int32_t d = 0; d < schema->dense_count; d++) {
        uint64_t whole = neo__synthetic_whole(&key, d);
        record[1 + d] = (float)neo__log_whole(schema->log_table, whole + 1);
        sums.dense += generator->dense_weight[d] * (double)record[1 + d];
    }
    for (int32_t t = 0; t < schema->feature_count; t++) {
        int64_t *bag = schema->multi ? block->ids + block->id_count : ids + t;
        int64_t n = neo__synthetic_bag(schema, &key, t, bag);
        for (int64_t k = 0; k < n; k++) sums.sparse += neo__synthetic_weight(generator, t, bag[k]);
        block->id_count += n;
        if (schema->multi) ids[1 + t] = block->id_count - start;
    }
    if (schema->multi) ids[0] = start;
    neo__synthetic_labels(schema, &key, sums, record);
    (void)issue;
    return 1;
}

/* ---- the schema ---- */
NEO__HOT_END
static neo_status neo__synthetic_measure(neo_schema *schema) {
    neo__synthetic *generator = schema->synthetic;
    double n = (double)NEO__SYNTHETIC_PROBE, signal = (double)generator->desc.signal;
    double dense_square = 0.0, sparse_square = 0.0;
    int64_t *bag = (int64_t *)neo_alloc(schema->ctx, (size_t)generator->most_ids * sizeof(int64_t));
    NEO__CHECK(bag, NEO_ERR_MEMORY, "neo_schema_synthetic: no memory for a bag of %" PRId64,
               generator->most_ids);
    for (int64_t i = 1; i <= NEO__SYNTHETIC_PROBE; i++) {
        neo__synthetic_sums sums = neo__synthetic_sum(schema, -i, bag);
        generator->dense_mean += sums.dense;
        generator->sparse_mean += sums.sparse;
        dense_square += sums.dense * sums.dense;
        sparse_square += sums.sparse * sums.sparse;
    }
    neo_free(schema->ctx, bag, (size_t)generator->most_ids * sizeof(int64_t));
    generator->dense_mean /= n;
    generator->sparse_mean /= n;
    double dense_part = schema->feature_count == 0 ? 1.0 : 0.4,
           sparse_part = schema->dense_count == 0 ? 1.0 : 0.6;
    double dense_var = dense_square / n - generator->dense_mean * generator->dense_mean;
    double sparse_var = sparse_square / n - generator->sparse_mean * generator->sparse_mean;
    if (dense_var > 1e-12) generator->dense_scale = signal * sqrt(dense_part / dense_var);
    if (sparse_var > 1e-12) generator->sparse_scale = signal * sqrt(sparse_part / sparse_var);
    generator->bias = -1.2;
    return NEO_OK;
}
static neo_status neo__synthetic_check(neo_synthetic_desc *desc) {
    if (desc->dense_count == 0) desc->dense_count = NEO__CRITEO_DENSE;
    if (desc->feature_count == 0) desc->feature_count = NEO__CRITEO_FEATURES;
    desc->dense_count = NEO__MAX(desc->dense_count, 0);
    desc->feature_count = NEO__MAX(desc->feature_count, 0);
    if (desc->rows == 0) desc->rows = 10000;
    if (desc->zipf == 0.0f) desc->zipf = 1.1f;
    if (desc->signal == 0.0f) desc->signal = 1.5f;
    if (desc->ids_per_bag == 0) desc->ids_per_bag = 1;
    NEO__CHECK(desc->samples >= 1 && desc->samples <= INT64_MAX / 4, NEO_ERR_ARG,
               "neo_schema_synthetic: samples is %" PRId64 ", it is required", desc->samples);
    NEO__CHECK(desc->first_sample >= 0 && desc->first_sample <= INT64_MAX / 4, NEO_ERR_ARG,
               "neo_schema_synthetic: first_sample %" PRId64 " is out of range",
               desc->first_sample);
    NEO__CHECK(desc->dense_count <= 65536 && desc->feature_count <= 65536, NEO_ERR_ARG,
               "neo_schema_synthetic: over 65,536 dense numbers or features");
    NEO__CHECK(desc->ids_per_bag >= 1 && desc->ids_per_bag <= 65536, NEO_ERR_ARG,
               "neo_schema_synthetic: ids_per_bag is %d, not in 0 .. 65,536", desc->ids_per_bag);
    NEO__CHECK(desc->zipf > 0.0f && desc->zipf <= 100.0f && desc->signal > 0.0f &&
                   desc->signal <= 1000.0f,
               NEO_ERR_ARG, "neo_schema_synthetic: zipf %g or signal %g is out of range",
               (double)desc->zipf, (double)desc->signal);
    NEO__CHECK(desc->label_count >= 0 && desc->label_count <= 4, NEO_ERR_ARG,
               "neo_schema_synthetic: label_count is %d, not in 0 .. 4", desc->label_count);
    return NEO_OK;
}
/* Fixed lengths of bags, which may differ between features. */
static neo_status neo__synthetic_hot(neo_schema *schema, const int32_t *hot) {
    neo__synthetic *generator = schema->synthetic;
    if (!hot) return NEO_OK;
    NEO__TRY(NEO__ARENA(&schema->arena, generator->hot, NEO__MAX(schema->feature_count, 1)));
    schema->sample_ids = 0;
    for (int32_t t = 0; t < schema->feature_count; t++) {
        NEO__CHECK(hot[t] >= 1 && hot[t] <= 65536, NEO_ERR_ARG,
                   "neo_schema_synthetic: hot of feature %d is %d, not in 1 .. 65,536", t, hot[t]);
        generator->hot[t] = hot[t];
        generator->most_ids = NEO__MAX(generator->most_ids, (int64_t)hot[t]);
        schema->sample_ids += hot[t];
    }
    schema->multi = schema->sample_ids > schema->feature_count;
    if (!schema->multi) schema->sample_ids = 0;
    return NEO_OK;
}
static neo_status neo__synthetic_init(neo_schema *schema, const neo_synthetic_desc *desc) {
    neo__synthetic *generator;
    NEO__TRY(neo__schema_features(schema, desc->dense_count, desc->feature_count));
    NEO__TRY(neo__schema_labels(schema, NEO__MAX(desc->label_count, 1)));
    NEO__TRY(NEO__ARENA(&schema->arena, generator, 1));
    schema->synthetic = generator;
    generator->desc = *desc;
    generator->desc.rows_per_feature = NULL;
    generator->desc.hot = NULL;
    generator->desc.of = NULL;
    generator->sample_name = neo_hash("synthetic.sample");
    generator->truth_name = neo_hash("synthetic.truth");
    generator->hot_name = neo_hash("synthetic.hot");
    generator->most_ids = desc->ids_per_bag > 1 ? 2 * (int64_t)desc->ids_per_bag : 1;
    schema->multi = desc->ids_per_bag > 1;
    schema->sample_ids = schema->multi ? desc->feature_count * generator->most_ids : 0;
    NEO__TRY(neo__synthetic_hot(schema, desc->hot));
    NEO__TRY(NEO__ARENA(&schema->arena, generator->dense_weight, desc->dense_count));
    NEO__TRY(NEO__ARENA(&schema->arena, generator->zipf_scale, desc->feature_count));
    for (int32_t i = 0; i < desc->dense_count; i++)
        generator->dense_weight[i] = neo__synthetic_weight(generator, -1, i);
    for (int32_t f = 0; f < desc->feature_count; f++) {
        int64_t rows = desc->rows_per_feature ? desc->rows_per_feature[f] : desc->rows;
        NEO__CHECK(rows >= 1 && rows <= (int64_t)1 << 40, NEO_ERR_ARG,
                   "neo_schema_synthetic: feature %d has %" PRId64 " rows, not in 1 .. 2^40", f,
                   rows);
        NEO__TRY(neo__schema_name(schema, f, "C%d", f + 1));
        schema->rows[f] = rows;
        generator->zipf_scale[f] = neo__zipf_constant(rows, (double)desc->zipf);
    }
    neo__schema_end(schema);
    if (!desc->of) return neo__synthetic_measure(schema);
    const neo__synthetic *measured = desc->of->synthetic;
    generator->dense_mean = measured->dense_mean;
    generator->dense_scale = measured->dense_scale;
    generator->sparse_mean = measured->sparse_mean;
    generator->sparse_scale = measured->sparse_scale;
    generator->bias = measured->bias;
    return NEO_OK;
}
NEO_API neo_status neo_schema_synthetic(neo_ctx *ctx, const neo_synthetic_desc *desc,
                                        neo_schema **schema) {
    NEO__CHECK(ctx && desc && schema, NEO_ERR_ARG, "neo_schema_synthetic: an argument is NULL");
    *schema = NULL;
    neo_synthetic_desc d = *desc;
    neo_schema *s;
    NEO__TRY(neo__synthetic_check(&d));
    if (d.of) {
        NEO__CHECK(d.of->synthetic, NEO_ERR_ARG, "neo_schema_synthetic: `of` is not synthetic");
        d = d.of->synthetic->desc;
        d.samples = desc->samples;
        d.first_sample = desc->first_sample;
        d.rows_per_feature = desc->of->rows;
        d.hot = desc->of->synthetic->hot;
        d.of = desc->of;
    }
    NEO__TRY(neo__schema_begin(ctx, "neo_schema_synthetic", NEO_FORMAT_SYNTHETIC, desc, schema,
                               &s));
    neo__fp_state fp = neo__fp_enter();
    neo_status status = neo__synthetic_init(s, &d);
    neo__fp_leave(fp);
    return neo__schema_done(s, status, schema);
}
NEO__HOT_BEGIN

/* ---- what is best, and as text ---- */
static void neo__synthetic_best(const neo_schema *schema, int64_t first, int64_t count,
                                int64_t *bag, float *score, float *label, double *logloss) {
    double loss = 0.0;
    for (int64_t i = 0; i < count; i++) {
        neo__random_key key = neo__synthetic_key(schema->synthetic, first + i);
        double z =
            neo__synthetic_logit(schema->synthetic, neo__synthetic_sum(schema, first + i, bag));
        score[i] = (float)z;
        label[i] = neo__synthetic_label(&key, z);
        double margin = label[i] > 0.5f ? z : -z, a = margin < 0.0 ? -margin : margin;
        loss += neo__log_f64(1.0 + neo__exp_f64(-a)) + (margin < 0.0 ? a : 0.0);
    }
    *logloss = loss / (double)count;
}
NEO__HOT_END
NEO_API neo_status neo_schema_best(const neo_schema *schema, int64_t first, int64_t count,
                                   double *auc, double *logloss) {
    NEO__CHECK(schema && auc && logloss, NEO_ERR_ARG, "neo_schema_best: an argument is NULL");
    NEO__CHECK(schema->synthetic, NEO_ERR_UNSUPPORTED,
               "neo_schema_best: the data is not synthetic");
    NEO__CHECK(first >= 0 && count >= 1 && count <= (int64_t)1 << 32, NEO_ERR_ARG,
               "neo_schema_best: samples [%" PRId64 ", + %" PRId64 ")", first, count);
    neo__arena arena = {schema->ctx, NULL, NULL, 0, "neo_schema_best"};
    int64_t *bag;
    float *score, *label;
    char *scratch;
    neo_status status = NEO__ARENA(&arena, bag, schema->synthetic->most_ids);
    if (status == NEO_OK) status = NEO__ARENA(&arena, score, count);
    if (status == NEO_OK) status = NEO__ARENA(&arena, label, count);
    if (status == NEO_OK) status = NEO__ARENA(&arena, scratch, neo_auc_scratch_bytes(count));
    if (status == NEO_OK) {
        neo__fp_state fp = neo__fp_enter();
        neo__synthetic_best(schema, first, count, bag, score, label, logloss);
        *auc = neo_auc(score, label, count, scratch);
        neo__fp_leave(fp);
    }
    neo__arena_free(&arena);
    return status;
}
NEO__HOT_BEGIN

static char *neo__put_decimal(char *p, uint32_t value) {
    char digits[10];
    int n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *p++ = digits[--n];
    return p;
}
static char *neo__synthetic_line(const neo_schema *schema, int64_t sample, char *p) {
    const neo__synthetic *generator = schema->synthetic;
    neo__random_key key = neo__synthetic_key(generator, sample);
    int64_t id;
    double z = neo__synthetic_logit(generator, neo__synthetic_sum(schema, sample, &id));
    *p++ = neo__synthetic_label(&key, z) > 0.5f ? '1' : '0';
    for (int32_t d = 0; d < schema->dense_count; d++) {
        *p++ = '\t';
        p = neo__put_decimal(p, neo__synthetic_whole(&key, d));
    }
    for (int32_t t = 0; t < schema->feature_count; t++) {
        neo__synthetic_bag(schema, &key, t, &id);
        *p++ = '\t';
        if (id == 0) continue; /* as a missing word */
        for (int shift = 28; shift >= 0; shift -= 4)
            *p++ = "0123456789abcdef"[((uint64_t)id - 1) >> shift & 15];
    }
    *p++ = '\n';
    return p;
}
NEO__HOT_END
NEO_API neo_status neo_synthetic_write_tsv(neo_ctx *ctx, const neo_schema *schema, const char *path,
                                           int64_t first, int64_t count) {
    enum { BUFFER = 1 << 16, LINE = 1024 };
    NEO__CHECK(ctx && schema && path, NEO_ERR_ARG, "neo_synthetic_write_tsv: an argument is NULL");
    NEO__CHECK(first >= 0 && count >= 0, NEO_ERR_ARG,
               "neo_synthetic_write_tsv: samples [%" PRId64 ", + %" PRId64 ")", first, count);
    int fits = schema->synthetic && !schema->multi && schema->dense_count == NEO__CRITEO_DENSE &&
               schema->label_count == 1 && schema->feature_count == NEO__CRITEO_FEATURES;
    for (int32_t file = 0; fits && file < schema->feature_count; file++)
        fits = schema->rows[file] >= 2 && schema->rows[file] <= (int64_t)1 << 32;
    NEO__CHECK(fits, NEO_ERR_UNSUPPORTED,
               "neo_synthetic_write_tsv: needs synthetic data with a label, 13 dense numbers and "
               "26 features of one id and 2 to 2^32 rows");
    neo__file file;
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    char *buffer = (char *)neo_alloc(ctx, BUFFER), *p = buffer;
    neo_status status =
        buffer ? NEO_OK : neo_fail(NEO_ERR_MEMORY, "%s: no memory for a buffer", path);
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; status == NEO_OK && i < count; i++) {
        p = neo__synthetic_line(schema, first + i, p);
        if (p - buffer < BUFFER - LINE && i + 1 < count) continue;
        status = neo__file_write(&file, buffer, (size_t)(p - buffer));
        p = buffer;
    }
    neo__fp_leave(fp);
    neo_free(ctx, buffer, BUFFER);
    neo_status closed = neo__file_close(&file);
    return status != NEO_OK ? status : closed;
}
#endif /* NEO_INFERENCE */

/* ---------------------------------------------------------------------------
   >>impl-describe

   A schema as JSON and back. What reads it back needs no files: sizes are in the text.
   ------------------------------------------------------------------------ */
/* Text that grows into memory of the caller's, and is counted beyond it. */
typedef struct neo__paper {
    char *text;
    size_t bytes, used;
} neo__paper;
static void neo__paper_put(neo__paper *paper, const char *format, ...) NEO__PRINTF(2, 3);
static void neo__paper_put(neo__paper *paper, const char *format, ...) {
    const size_t left = paper->used < paper->bytes ? paper->bytes - paper->used : 0;
    va_list args;
    va_start(args, format);
    paper->used += (size_t)vsnprintf(left ? paper->text + paper->used : NULL, left, format, args);
    va_end(args);
}
static void neo__paper_string(neo__paper *paper, const char *s) {
    neo__paper_put(paper, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '\n') neo__paper_put(paper, "\\n");
        else if (c == '"' || c == '\\') neo__paper_put(paper, "\\%c", c);
        else if (c < 0x20 || c == 0x7F) neo__paper_put(paper, "\\u%04x", c);
        else neo__paper_put(paper, "%c", c);
    }
    neo__paper_put(paper, "\"");
}
NEO_API size_t neo_schema_describe(const neo_schema *schema, char *text, size_t bytes) {
    const neo_format format = schema->format;
    const int64_t *rows = format == NEO_FORMAT_CRITEO ? schema->max_rows : schema->rows;
    neo__paper paper = {text, bytes, 0};
    neo__paper_put(&paper, "{\"format\": \"%s\"", neo__format_names[format]);
    if (schema->description_text) {
        neo__paper_put(&paper, ", \"columns\": ");
        neo__paper_string(&paper, schema->description_text);
    }
    if (format != NEO_FORMAT_DELIMITED) {
        const int criteo = format == NEO_FORMAT_CRITEO;
        const int32_t count = criteo ? (int32_t)NEO__CRITEO_FEATURES : schema->feature_count;
        if (criteo)
            neo__paper_put(&paper, ", \"ids\": \"%s\"", schema->dict_count ? "dictionary" : "hash");
        else neo__paper_put(&paper, ", \"dense\": %d, \"modulo\": %d, \"float_dense\": %d",
                            (int)schema->dense_count, schema->modulo, schema->float_dense);
        neo__paper_put(&paper, ", \"rows\": [");
        for (int32_t k = 0; k < count; k++) {
            const int32_t f =
                criteo && schema->target ? schema->target[1 + NEO__CRITEO_DENSE + k] : k;
            neo__paper_put(&paper, "%s%" PRId64, k ? ", " : "", f < 0 ? 0 : rows[f]);
        }
        neo__paper_put(&paper, "]");
    }
    neo__paper_put(&paper, "}");
    return paper.used;
}

typedef struct neo__described {
    char *format, *ids, *columns;
    int64_t dense, modulo, float_dense; /* -1: not there */
    int64_t *rows;                      /* [row_count] */
    int64_t row_count, capacity;
} neo__described;
static neo_status neo__described_rows(neo_ctx *ctx, neo__json *json, neo__described *said) {
    int more = 1;
    NEO__CHECK(!said->rows, NEO_ERR_FORMAT, "%s: schema: \"rows\" stands twice", json->file);
    NEO__TRY(neo__json_open(json, '['));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_next(json, ']', i, &more));
        if (!more) return NEO_OK;
        NEO__TRY(NEO__GROW(ctx, said->rows, said->capacity, said->row_count + 1));
        NEO__TRY(neo__json_count(json, &said->rows[said->row_count++]));
    }
}
static neo_status neo__described_members(neo_ctx *ctx, neo__json *json, neo__described *said) {
    char *key = NULL;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) return NEO_OK;
        if (strcmp(key, "format") == 0) NEO__TRY(neo__json_string(json, &said->format));
        else if (strcmp(key, "ids") == 0) NEO__TRY(neo__json_string(json, &said->ids));
        else if (strcmp(key, "columns") == 0) NEO__TRY(neo__json_string(json, &said->columns));
        else if (strcmp(key, "dense") == 0) NEO__TRY(neo__json_count(json, &said->dense));
        else if (strcmp(key, "modulo") == 0) NEO__TRY(neo__json_count(json, &said->modulo));
        else if (strcmp(key, "float_dense") == 0)
            NEO__TRY(neo__json_count(json, &said->float_dense));
        else if (strcmp(key, "rows") == 0) NEO__TRY(neo__described_rows(ctx, json, said));
        else return neo_fail(NEO_ERR_UNSUPPORTED, "%s: schema: \"%.60s\" is not known here",
                             json->file, key);
    }
}
/* Formats that have no constructor without their files. */
static neo_status neo__described_plain(neo_schema *schema, const neo__described *said) {
    const char *name = schema->format == NEO_FORMAT_SYNTHETIC ? "C%d" : "cat_%d";
    NEO__TRY(neo__schema_features(schema, (int32_t)said->dense, (int32_t)said->row_count));
    schema->modulo = said->modulo > 0;
    schema->float_dense = said->float_dense > 0 || schema->format != NEO_FORMAT_BINARY;
    NEO__TRY(neo__schema_sizes(schema, name, 0, said->rows));
    for (int32_t f = 0; schema->format == NEO_FORMAT_SYNTHETIC && f < schema->feature_count; f++)
        NEO__TRY(neo__schema_name(schema, f, name, f + 1));
    return NEO_OK;
}
static neo_status neo__described_make(neo_ctx *ctx, const char *file, neo_format format,
                                      const neo__described *said, neo_schema **out) {
    static const char lacks[] = "%s: schema: a schema of format %s needs \"%s\"";
    const char *name = neo__format_names[format];
    neo_schema *s;
    if (format == NEO_FORMAT_DELIMITED) {
        NEO__CHECK(said->columns && strchr(said->columns, '\n'), NEO_ERR_FORMAT, lacks, file, name,
                   "columns");
        return neo_schema_parse(ctx, said->columns, out);
    }
    NEO__CHECK(said->rows || said->dense > 0, NEO_ERR_FORMAT, lacks, file, name, "rows");
    if (format == NEO_FORMAT_CRITEO) {
        NEO__CHECK(said->row_count == NEO__CRITEO_FEATURES, NEO_ERR_FORMAT,
                   "%s: schema: %" PRId64 " rows, a schema of format criteo has 26", file,
                   said->row_count);
        NEO__CHECK(said->ids, NEO_ERR_FORMAT, lacks, file, name, "ids");
        const int hash = strcmp(said->ids, "hash") == 0;
        const neo_ids ids = hash ? NEO_IDS_HASH : NEO_IDS_DICTIONARY;
        NEO__CHECK(hash || strcmp(said->ids, "dictionary") == 0, NEO_ERR_UNSUPPORTED,
                   "%s: schema: ids \"%.60s\" are not known here", file, said->ids);
        if (said->columns)
            return neo_schema_criteo_columns(ctx, ids, 0, said->rows, said->columns, out);
        return neo_schema_criteo(ctx, ids, 0, said->rows, out);
    }
    NEO__CHECK(said->dense >= 0 && said->modulo >= 0, NEO_ERR_FORMAT, lacks, file, name,
               said->dense < 0 ? "dense" : "modulo");
    NEO__CHECK(said->dense <= 65536 && said->row_count <= 65536, NEO_ERR_FORMAT,
               "%s: schema: over 65,536 dense numbers or features", file);
    if (format == NEO_FORMAT_LIBSVM || format == NEO_FORMAT_LIBFFM) {
        NEO__ZERO(neo_libsvm_desc, desc);
        desc.with_fields = format == NEO_FORMAT_LIBFFM;
        desc.fields = desc.with_fields ? (int32_t)said->row_count : 0;
        desc.rows_per_field = said->rows;
        desc.modulo = said->modulo > 0;
        return neo_schema_libsvm(ctx, &desc, out);
    }
    NEO__TRY(neo__schema_begin(ctx, "neo_model_load", format, said, out, &s));
    return neo__schema_done(s, neo__described_plain(s, said), out);
}
/* The schema that the next value of a JSON text describes. It serves to parse samples, not to open
   a reader of generated ones. */
NEO__UNUSED static neo_status neo__schema_read(neo_ctx *ctx, neo__json *json, neo_schema **out) {
    NEO__ZERO(neo__described, said);
    said.dense = said.modulo = said.float_dense = -1;
    neo_status status = neo__described_members(ctx, json, &said);
    int format = 0;
    const int formats = (int)(sizeof neo__format_names / sizeof *neo__format_names);
    while (said.format && format < formats && strcmp(said.format, neo__format_names[format]))
        format++;
    if (status == NEO_OK && !said.format)
        status = neo_fail(NEO_ERR_FORMAT, "%s: schema: lacks \"format\"", json->file);
    else if (status == NEO_OK && format == formats)
        status = neo_fail(NEO_ERR_UNSUPPORTED, "%s: schema: format \"%.60s\" is not known here",
                          json->file, said.format);
    if (status == NEO_OK)
        status = neo__described_make(ctx, json->file, (neo_format)format, &said, out);
    NEO__LIST_FREE(ctx, said.rows, said.capacity);
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-formats

   What differs between formats, in the order of neo_format.
   ------------------------------------------------------------------------ */
#define NEO__TEXT(LINE, LEAST, HOLDS)                                                              \
    {NEO__TRAIN(neo__reader_look_text), NEO__TRAIN(neo__source_open_text),                         \
     NEO__TRAIN(neo__source_text), NEO__TRAIN(neo__source_close_text), NULL, LINE, LEAST,          \
     NEO__TRAIN(HOLDS)}
#define NEO__ROWS(KIND)                                                                            \
    {NEO__TRAIN(neo__reader_look_rows), NEO__TRAIN(neo__source_open_##KIND),                       \
     NEO__TRAIN(neo__source_rows), NEO__TRAIN(neo__source_close_##KIND),                           \
     NEO__TRAIN(neo__block_parse_rows), NULL, NULL, NULL}
static const neo__format *neo__format_of(const neo_schema *schema) {
    static const neo__format formats[] = {
        NEO__TEXT(neo__criteo_line, neo__criteo_least, NULL),
        NEO__TEXT(neo__delimited_line, neo__delimited_least, neo__delimited_holds),
        NEO__ROWS(triple), /* npy */
        {NEO__TRAIN(neo__reader_look_synthetic), NULL, NEO__TRAIN(neo__source_synthetic), NULL,
         NEO__TRAIN(neo__block_parse_rows), NULL, NULL, NULL},
        NEO__TEXT(neo__svm_line, neo__svm_least, neo__svm_holds), /* libsvm */
        NEO__TEXT(neo__svm_line, neo__svm_least, neo__svm_holds), /* libffm */
        NEO__ROWS(triple),                        /* npz */
        NEO__ROWS(binary),
    };
    return &formats[schema->format];
}
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
