/* neo_state.h: what a run keeps: named tensors, their digest, checkpoints, safetensors files.

   Copy it beside neo.h, neo_kernels.h and neo_run.h. MIT licence (at the end of neo.h).

   WHAT IT DOES
     - neo_state: weights, optimizer state, positions and values of your own as a list of named
       views, and one digest of all their bits
     - checkpoints that a kill at any moment leaves whole, with metrics that people can read; every
       byte is checked before a load changes anything. One from elsewhere names no path outside its
       directory, and takes memory and time as its size warrants
     - ranks save their parts as one checkpoint; any number of ranks loads it under any other cut;
       neo_export makes one plain file of it
     - differential checkpoints, of the rows of tables that have changed since the one before
     - checkpoints that are written while training goes on
     - safetensors files, read and written, with names mapped and dtypes converted

   WHAT IT DOES NOT DO
     - no pickled files of PyTorch: save safetensors there

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_IMPLEMENTATION            #include "neo_state.h"
         #include "neo_state.h"
     It implements neo.h too; neo_data.h and neo_fsdp.h include it.
         neo_state_create(ctx, &state);
         neo_state_add_params(state, params);
         neo_state_add_optim(state, optim);
         neo_state_add_bags(state, bags);
         neo_state_define(state, "optimizer", "adagrad");
         neo_save(ctx, &(neo_save_desc){.dir = "ckpt", .step = 1000}, state);
         neo_load(ctx, &(neo_load_desc){.dir = "ckpt"}, state, &step);
     examples/one_file_dlrm.c is a trainer that goes on where it was killed.

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_state.h is the map)
     >>state >>checkpoint >>safetensors >>row-bits
     >>impl-json >>impl-state >>impl-group >>impl-safetensors >>impl-row-bits >>impl-checkpoint
     >>impl-saving >>impl-load
*/
#ifndef NEO_STATE_H
#define NEO_STATE_H

#include "neo_run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>state

   Everything that makes up a training run, as a list of named tensors (views): weights, optimizer
   state, step counters, reader position; and the run's numeric definition, as words. The digest,
   checkpoints and resume work on it.
   ------------------------------------------------------------------------ */
typedef struct neo_state neo_state;
typedef enum neo_state_kind {
    NEO_STATE_WEIGHT,    /* in the digest; saved in model-*.safetensors */
    NEO_STATE_OPTIMIZER, /* in the digest; saved in state-*.safetensors */
    NEO_STATE_PROGRESS   /* not in the digest: positions, counts of what was read; saved there
                            too */
} neo_state_kind;
/* neo_state_create: a list of nothing yet. neo_state_destroy: NULL is allowed; tensors stay. */
NEO_API NEO__CHECK_UNUSED neo_status neo_state_create(neo_ctx *ctx, neo_state **state);
NEO_API void neo_state_destroy(neo_state *state);
/* neo_state_add: t is contiguous; its memory must outlive the state. A double is f64[1]
   (neo_tensor_1d(&loss, NEO_F64, 1)); a text or a struct of your own is u8[n], the bytes of its
   array. A reader's position is added as NEO_STATE_PROGRESS, i64[8]; its schema by
   neo_state_add_schema (both are of neo_data.h).
   Errors   NEO_ERR_ARG: the name is taken, empty, reserved ("schema", or one that ends like that of
            a part in a file: "[0:8]", "[0:8,0:4]", "[0:8].rows") or not UTF-8, or t is none, not
            contiguous, or of more than 2^57 elements. */
NEO_API neo_status neo_state_add(neo_state *state, neo_state_kind kind, const char *name,
                                 neo_tensor t);
/* A part of a tensor that ranks hold in parts: a rectangle of a tensor of two dimensions, a run of
   a tensor of one. */
typedef struct neo_part {
    int64_t rows, cols;           /* of the whole tensor; cols 0: it has one dimension */
    int64_t first_row, first_col; /* where the part begins */
    int copy; /* 1: another part has these elements too (one float per row, of a table that is cut
                 by columns): they are loaded, but neither saved nor counted in the digest */
} neo_part;
/* neo_state_add_part: t is this rank's part of the tensor `name`. Parts of all ranks together cover
   the tensor, each element once; a part may be all of it (a table that one rank holds). What
   neo_state_add added is the other case: every rank has all of it, with equal bits.
   Shapes   t [n][m] in a tensor [rows][cols], or [n] in a tensor [rows]; rows may lie apart (a view
            of columns), the elements of a row may not. A part without elements is allowed.
   Errors   NEO_ERR_ARG: as neo_state_add; the part leaves the tensor, overlaps another part that
            was added (neither is a copy), or has another dtype, whole shape or kind than that.
   Each part is an entry of its own for neo_state_count, _name (which repeats) and _tensor. */
NEO_API neo_status neo_state_add_part(neo_state *state, neo_state_kind kind, const char *name,
                                      neo_tensor t, const neo_part *part);
/* neo_state_add_params, _optim, _bags: all tensors of the object, under the names it gives them:
   weights "bottom.0.weight", "bags.<table>.weight"; optimizer state and step counters beside them.
   All or, on an error, none. */
NEO_API neo_status neo_state_add_params(neo_state *state, const neo_params *params);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_state_add_optim(neo_state *state, neo_optim *optim);
NEO_API neo_status neo_state_add_bags(neo_state *state, neo_bags *bags);
/* neo_state_add_metrics: all that metrics have counted, as NEO_STATE_PROGRESS "<name>.sums" ...; of
   ranks the one that updates them adds them. */
NEO_API neo_status neo_state_add_metrics(neo_state *state, const char *name, neo_metrics *metrics);
#endif
/* neo_state_define: a word of the numeric definition, for example ("optimizer", "adagrad"). Saved
   with a checkpoint; loading under another value is refused. What nobody defines may change at a
   resume, and nothing says so: the learning rate, the numbers of an optimizer (its betas,
   weight_decay, clip_norm; Adam or AdamW, whose state has the same names), who leaves a table of
   keys (neo_keys.evict, .period), a loss. A trainer defines those that it wants to keep. Defining a
   key again replaces its value. "repro_shards" and "seed" of the context are defined from the
   start, on a device that has not the CPU's bits "numerics" too, and "<bags>.<table>.row_buckets"
   by _add_bags and _add_shard where it is above 1. Where several differ, a key without a '.' is the
   one that an error names. */
NEO_API neo_status neo_state_define(neo_state *state, const char *key, const char *value);
NEO_API int neo_state_count(const neo_state *state);
NEO_API const char *neo_state_name(const neo_state *state, int index);
NEO_API neo_tensor neo_state_tensor(const neo_state *state, int index);
/* neo_state_look: at the numbers that entry `index` has here. *largest: the largest magnitude,
   infinity if one is not finite. squares (or NULL): their squares are added, each rounded to f32,
   so that the sum is exact: the norm of a table, for instance, is the root of neo_exact_value, and
   where ranks hold parts of it their sums merge to the same bits under every plan (a neo_exact is
   words to all-reduce as I64; what `copy` marks is there twice). Integers, rows of i8 among them,
   and f64 add nothing. Reads every number: for reports, and before a save.
   Errors   NEO_ERR_ARG: no such entry, largest is NULL. NEO_ERR_DEVICE. Threads: uses the
            context's. Allocates nothing. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_state_look(const neo_state *state, int index, float *largest,
                                  neo_exact *squares);
#endif

/* neo_state_digest: 64-bit hash over each weight's and optimizer tensor's name, dtype, shape and
   bytes in its logical layout. A sum of keyed hashes per element, so it depends on no order; NaNs
   count alike. Parts count at their place in the whole: where ranks hold parts this is the digest
   of this rank's, and neo_state_digest_group gives that of all. The formula is at >>impl-state. Of
   NULL, and where a tier's file has failed, it is 0. Threads: uses the context's. */
#if !defined(NEO_INFERENCE)
NEO_API uint64_t neo_state_digest(const neo_state *state);
#endif

/* neo_state_digest_entry: the share of entry `index` in that hash, to find the tensor in which two
   runs differ. Shares of a tensor's parts, from all ranks, add modulo 2^64 to that of the whole
   tensor. Returns 0: it has none (progress, a copy, no such entry); 1: of a whole tensor; 2: of a
   part. Threads: uses the context's. */
NEO_API int neo_state_digest_entry(const neo_state *state, int index, uint64_t *digest);

/* neo_state_digest_group: the digest of the state that all ranks hold together: parts count at
   their place, what every rank has counts once. So it is that of the same state on one rank, under
   any plan. Collective. Takes 80 bytes for each part of all ranks.
   Errors   on all ranks the same, *digest untouched. NEO_ERR_MISMATCH names the tensor and the
            ranks: parts that do not cover it exactly once, or disagree on its dtype or shape; a
            tensor of neo_state_add whose bits are not those of rank 0, or that not all ranks have.
            NEO_ERR_MEMORY; what the group's calls return; what a tier's file has met. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_state_digest_group(const neo_state *state, const neo_group *group,
                                          uint64_t *digest);
#endif

/* ---------------------------------------------------------------------------
   >>checkpoint

   A directory with one subdirectory per checkpoint, step-<12 digits>, and in it
     model-00001-of-00001.safetensors   the weights
     state-00001-of-00001.safetensors   optimizer state, counters, positions, dictionaries
     model.safetensors.index.json       which file holds which weight, as Hugging Face writes it
     model.json                         the model's layers and schema, if neo_save is given them
     manifest.json                      step, numeric definition, sizes and CRC32C; written last
   A checkpoint without a manifest does not exist; so a kill at any moment leaves the previous one.
   step-<12 digits>.partial is being written or removed; one that a killed process left is removed
   by the next save. One process at a time may save into a directory, which neo_save locks for as
   long (a second one gets NEO_ERR_IO; network file systems may not see locks of other hosts);
   others may load from it (one that meets a checkpoint while it is removed gets an error and may
   try again).

   W ranks save one checkpoint together, and any number of ranks loads it, under any cut of the
   tensors, one rank with whole tensors among them:
       state = the parts of this rank (neo_state_add_part), and what every rank has (neo_state_add)
       save.group = &group; neo_save(ctx, &save, state);       every rank, the same step
       load.group = &group; neo_load(ctx, &load, state, NULL); every rank
   Rank k writes model-<k + 1>-of-<W>.safetensors and state-<k + 1>-of-<W>.safetensors with its
   parts; rank 0 also what every rank has, the dictionaries, the index and the manifest, which
   lists the files of all ranks. There a part is the tensor "bags.user.weight[0:100,0:16]" (rows,
   columns), and the file's __metadata__ says under that name where it belongs: "[0,0] of [500,16]
   bags.user.weight"; a part that is all of its tensor keeps the plain name. No rank needs memory
   for more than its own parts. The directory is on one file system that all ranks see.
   A group fails as one: when a rank cannot go on, every rank returns its status and message ("rank
   2: ..."), what was written is removed, and the checkpoint before stays.

   Differential checkpoints. A DLRM is mostly tables, and few of their rows change from one
   checkpoint to the next. With neo_table_desc.track_rows and neo_save_desc.full_every = n, one of n
   is full. Each other one has, of the tracked tables, the rows that have changed since the one
   before, its base, and all else whole. Its manifest names the base by step and checksum; neo_load,
   neo_export and what else reads checkpoints takes such a chain as one, and a base is kept as long
   as one that is kept needs it. In its files "bags.user.weight[0:100,0:16]" is [n][16], the changed
   ones of these 100 rows, and __metadata__ has, under "bags.user.weight[0:100,0:16].rows", "100"
   and the tensor with their numbers in the whole table: ascending, i32 (i64 beyond 2^31 rows), one
   for all tensors of the table in a file. So a changed row takes its bytes, and 4 (8) in each of
   the two files. Keys of a keyed table are whole in each: 16 bytes for a row, 32 with admit. A
   checkpoint is full, too, where what the state was saved to or loaded from last
   is not in this directory, or not of a step before. One that replaces another of its step first
   removes those that build on that.
   ------------------------------------------------------------------------ */
/* A number by name that a checkpoint has beside its tensors: what an evaluation said of it. */
typedef struct neo_metric {
    const char *name; /* UTF-8, not empty */
    double value;
} neo_metric;
enum { NEO_MAX_METRICS = 256 };
typedef struct neo_save_desc {
    const char *dir; /* required; made if missing */
    int64_t step;    /* required, >= 0 */
    int keep;        /* remove all but the newest n (this one included) after a good save; 0: 2;
                        below 0: keep all */
    const neo_group *group; /* the ranks that save together; NULL: this one alone */
    const neo_metric *metrics; /* rank 0's stand in the manifest, "metrics": {"auc": 0.78}, null
                                  for one that is not finite; neo_checkpoint_metric reads them */
    int metric_count;          /* at most NEO_MAX_METRICS, of different names */
    size_t copy_bytes; /* neo_save_begin: room for rows of tracked tables that change before they
                          are written; 0: an eighth of these tables, 16 MiB at least */
    int full_every; /* n: differential checkpoints, each n-th full; 0, 1: all are full, and tracked
                       rows count as changed since the last save with n > 1, or load, as before */
    const char *model; /* rank 0's is the text of model.json there, for programs that load the model
                          (neo_serve.h): JSON in UTF-8; people may change it, so no checksum counts
                          it. NULL: none */
} neo_save_desc;
/* neo_save: write a checkpoint; one of the same step is replaced atomically. When it returns, the
   checkpoint is flushed to disk. Tensors are written from their own memory: it allocates about 16
   KiB, 300 bytes and twice the name per tensor, 40 per checkpoint that is there, the dictionaries,
   in a group 80 bytes for each part of all ranks, and for a differential one 4 or 8 for each
   changed row; not part of a step. A group is checked first as by neo_state_digest_group, but the
   bits of parts are not looked at. An old checkpoint that cannot be removed is only logged.
   Errors   NEO_ERR_IO (a full disk, no permission, ...): the message names the file; earlier
            checkpoints are untouched, and what was written is removed. Also: a rank does not see
            what another one wrote. dir is made if it is missing, with its parents.
            NEO_ERR_MISMATCH: ranks differ in step, definition, or as neo_state_digest_group says.
            NEO_ERR_ARG, NEO_ERR_MEMORY; what the group's calls return. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_save(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state);
#endif

/* neo_save_begin: the checkpoint that neo_save would write, byte for byte, of the state as it is
   now, but a thread writes it while training goes on: call it between two steps. *saving: NULL, or
   an earlier one, which is waited for first; if that fails its error is returned and nothing is
   begun. What begin takes time for is the checks of neo_save and one copy in memory of all but
   tracked rows (neo_table_desc.track_rows). Of these, a step that changes one not yet written first
   copies that row; where the room for such copies is full (desc.copy_bytes) it waits for the
   writer. So tables that fill the memory need no second copy; one that is not tracked does, and so
   do dense layers and tensors of a device.
   neo_save_poll: is it written? Then as neo_save_wait; else *saving stays. neo_save_wait: wait for
   the thread, and make the checkpoint what readers find: a kill before leaves the one before.
   *saving is NULL then, on an error too, and NULL is NEO_OK. All are collective in a group; what a
   poll costs is one sum of a word. neo_save_begin_bytes: the memory that begin takes for copies on
   this rank until then, beside what neo_save takes.
   Until then the state, what it shows and the group must live, and neo_save with full_every,
   neo_load and neo_load_safetensors refuse the state (NEO_ERR_STATE); memory of tracked rows
   changes by steps, neo_bags_set_rows, _put_keys, _drop_keys and _prune_keys alone (or
   neo_bags_note_rows beforehand), that of all else as you like.
   Errors   those of neo_save, from whichever call is next; earlier checkpoints are untouched and no
            changed row is lost to the next one. */
#if !defined(NEO_INFERENCE)
typedef struct neo_saving neo_saving;
NEO_API neo_status neo_save_begin(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state,
                                  neo_saving **saving);
NEO_API neo_status neo_save_poll(neo_saving **saving);
NEO_API neo_status neo_save_wait(neo_saving **saving);
NEO_API size_t neo_save_begin_bytes(const neo_save_desc *desc, const neo_state *state);
#endif

/* neo_find_checkpoint: the step of the newest whole checkpoint in a directory.
   Errors   NEO_ERR_NOT_FOUND: there is none, or no such directory; *step is untouched then.
            NEO_ERR_IO: dir is a file, or cannot be read. */
NEO_API neo_status neo_find_checkpoint(const char *dir, int64_t *step);

/* neo_checkpoint_metric: a metric of a checkpoint; reads the manifest alone. step: 0 and below: the
   newest whole one. value is the one that was saved, to the bit; NaN if that was not finite.
   Errors   NEO_ERR_NOT_FOUND: no such checkpoint, or it has no such metric; those of neo_load.
            *value is untouched then. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_checkpoint_metric(neo_ctx *ctx, const char *dir, int64_t step,
                                         const char *name, double *value);

/* neo_checkpoint_word: a word of the numeric definition of a checkpoint (neo_state_define), as
   "repro_shards", to text [bytes] with a NUL, before there is a context: it makes one for the time.
   step: as above.
   Errors   NEO_ERR_NOT_FOUND: no such checkpoint, or it has no such word; NEO_ERR_CAPACITY: there
            is no room for it; those of neo_load. text is untouched then. */
NEO_API neo_status neo_checkpoint_word(const char *dir, int64_t step, const char *key, char *text,
                                       size_t bytes);

/* neo_checkpoint_counts: what model.json of a checkpoint (neo_save_desc.model) has as a list of
   whole numbers, one of each of `count` features: "hot_rows": [6, 0, 2]. step: as above.
   Errors   NEO_ERR_NOT_FOUND: no such checkpoint, or it has no such list or no model.json.
            NEO_ERR_FORMAT: file and byte that is no JSON, or no list of so many; NEO_ERR_IO,
            NEO_ERR_MEMORY. Some of `to` may have changed then. */
NEO_API neo_status neo_checkpoint_counts(neo_ctx *ctx, const char *dir, int64_t step,
                                         const char *name, int64_t *to, int32_t count);
#endif

/* The subject of neo_load's NEO_ERR_MISMATCH. */
typedef enum neo_difference {
    NEO_DIFFERS_NOT,        /* the ranks' calls */
    NEO_DIFFERS_DEFINITION, /* words of neo_state_define: another way to train */
    NEO_DIFFERS_TENSORS,    /* names, shapes, dtypes: another model */
    NEO_DIFFERS_DICTIONARY  /* words of the schema's dictionaries: other data */
} neo_difference;
typedef struct neo_load_desc {
    const char *dir;    /* required */
    int64_t step;       /* 0 and below: the newest whole one (a checkpoint of step 0 is read only
                           when it is the newest) */
    int any_definition; /* 1: load although the numeric definition differs */
    int weights_only;   /* 1: only NEO_STATE_WEIGHT tensors and schema dictionaries (evaluation);
                           the definition may differ */
    int schema_only;    /* 1: only the dictionaries: they say how many rows the tables have, so a
                           trainer loads them first, makes its tables, and then loads the rest */
    const neo_group *group; /* the ranks that load together, as many as there are now; NULL: this
                               one alone */
    neo_difference *difference; /* NULL, or set by NEO_ERR_MISMATCH, on all ranks alike */
} neo_load_desc;
/* A trainer that goes on where it was killed:
       make ctx, schema, parameters, optimizer, bags, reader
       state = all of them, and a tensor over neo_position's words as NEO_STATE_PROGRESS
       if (neo_find_checkpoint(dir, &step) == NEO_OK) {
           neo_load(ctx, &(neo_load_desc){.dir = dir, .step = step}, state, NULL);
           neo_reader_seek(reader, &position);
       }
       every N steps: position = neo_reader_position(reader); neo_save(ctx, &save, state);
   With dictionaries in the schema, load schema_only first: tables need their rows.
   examples/train/dlrm does this.

   neo_load: read a checkpoint into the tensors of state. Everything is checked (checksums, names,
   shapes, dtypes, definition; no tensor may be missing or too many) before the first byte of state
   changes, so that an error leaves it as it was; only a disk that fails between check and read
   leaves it half loaded (NEO_ERR_IO). loaded_step may be NULL.
   A group shares the check of the files' bytes; then every rank reads the rows and columns that its
   own parts need, no matter how they were cut when they were saved. Its ranks load the step that
   rank 0 finds. A part may be wanted by several ranks, or by none. Memory: headers, one file at a
   time, 8 bytes for each tensor of the files, and about 100 for each part that is read.
   Errors   NEO_ERR_NOT_FOUND: no whole checkpoint there. NEO_ERR_CORRUPT: which file, and how.
            NEO_ERR_MISMATCH: the definition or tensor that differs (desc.difference), with both
            values. NEO_ERR_FORMAT: a manifest or file of another program. NEO_ERR_IO (also: a rank
            does not see what rank 0 sees), NEO_ERR_MEMORY; what the group's calls return. */
NEO_API neo_status neo_load(neo_ctx *ctx, const neo_load_desc *desc, neo_state *state,
                            int64_t *loaded_step);

typedef struct neo_export_desc {
    const char *dir;  /* required: of checkpoints */
    int64_t step;     /* 0 and below: the newest whole one */
    const char *path; /* required: the file to write */
    int with_state;   /* 1: optimizer state and counters too, beside the weights; no dictionaries */
} neo_export_desc;
/* neo_export: a checkpoint of any number of ranks as one safetensors file of whole tensors, which
   any reader opens by name. Checked as by neo_load, but for the definition. One rank calls it; one
   tensor at a time is in memory. The file is whole or as before.
   Errors   those of neo_load and neo_safetensors_write. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_export(neo_ctx *ctx, const neo_export_desc *desc);
#endif

/* ---------------------------------------------------------------------------
   >>safetensors

   The file format of weights (github.com/huggingface/safetensors): a JSON header and the tensors'
   bytes.
   ------------------------------------------------------------------------ */
typedef struct neo_safetensors neo_safetensors; /* an open file */
/* neo_safetensors_open: read and check the header (8-byte length, JSON, offsets that tile the data
   exactly). The file stays open until close. Tensors are numbered in the order of their data.
   Errors   NEO_ERR_FORMAT: file and byte offset, or tensor. NEO_ERR_NOT_FOUND, NEO_ERR_IO,
            NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_safetensors_open(neo_ctx *ctx, const char *path,
                                                          neo_safetensors **file);
NEO_API void neo_safetensors_close(neo_safetensors *file);
NEO_API int neo_safetensors_count(const neo_safetensors *file);
NEO_API const char *neo_safetensors_name(const neo_safetensors *file, int index);
NEO_API int neo_safetensors_find(const neo_safetensors *file, const char *name); /* -1: none */
/* neo_safetensors_metadata: the value of a key of __metadata__, or NULL. */
NEO_API const char *neo_safetensors_metadata(const neo_safetensors *file, const char *key);
/* neo_safetensors_info: dtype and shape (data NULL). NEO_ERR_UNSUPPORTED: a dtype neo has not
   (bool, i16...), or more than NEO_MAX_DIMS dimensions. */
NEO_API neo_status neo_safetensors_info(const neo_safetensors *file, int index, neo_tensor *t);
/* neo_safetensors_read: into t: contiguous, the same shape, the same dtype; among f16, bf16 and
   f32 it converts (to nearest). Errors: NEO_ERR_MISMATCH: shape or dtype, with both;
   NEO_ERR_IO. */
NEO_API neo_status neo_safetensors_read(neo_safetensors *file, int index, neo_tensor t);
/* neo_safetensors_write: names and tensors (contiguous) of one file; metadata: metadata_count
   pairs key, value, key, value ... Written to <path>.partial, flushed to disk and renamed: path is
   whole or as before.
   Errors   NEO_ERR_ARG: a name or key that is there twice or not UTF-8; NEO_ERR_IO,
            NEO_ERR_MEMORY. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_safetensors_write(neo_ctx *ctx, const char *path, const char *const *names,
                                         const neo_tensor *tensors, int count,
                                         const char *const *metadata, int metadata_count);
#endif
/* neo_safetensors_stream: the same of tensors that need not be in memory at one time. tensors say
   dtype and shape; fn points *data at the elements of tensor `index`, one behind the other, valid
   until it is called again. It is asked for each tensor once, in the order of the file: by element
   size, the largest first, then as given. Takes two pointers per tensor.
   Errors   as neo_safetensors_write; what fn returns, and path is as before. */
typedef neo_status (*neo_tensor_fn)(void *user, int index, const void **data);
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_safetensors_stream(neo_ctx *ctx, const char *path, const char *const *names,
                                          const neo_tensor *tensors, int count,
                                          const char *const *metadata, int metadata_count,
                                          neo_tensor_fn fn, void *user);
#endif
/* neo_load_safetensors: fill the weights of state from one file by tensor name. map: pairs {name
   in the file, name in state}, map_count pairs, tried in order after the same name; a '*' in both
   stands for the same text: {"bot_l.*.weight", "bottom.*.weight"}. Tensors of the file that no
   weight asks for are left alone. Every weight must be found unless partial != 0. loaded (may be
   NULL) counts them. f16, bf16 and f32 convert. Of a weight held in parts (neo_state_add_part) the
   file has the whole tensor, and only the parts are read.
   transposed: the file has those weights, of two dimensions, as [cols][rows], as the Conv1D of
   GPT-2 does: {"transformer.h.*.mlp.c_fc.weight", "h.*.mlp.c_fc.weight", 1}. A pair of equal names
   says it of a weight that has the same name in both.
   Errors   NEO_ERR_MISMATCH: shape or dtype; NEO_ERR_NOT_FOUND: names the weight. Nothing changes
            on error, unless the disk fails while reading (NEO_ERR_IO). */
typedef struct neo_name_map {
    const char *file_name, *state_name;
    int transposed;
} neo_name_map;
NEO_API neo_status neo_load_safetensors(neo_ctx *ctx, const char *path, const neo_name_map *map,
                                        int map_count, int partial, neo_state *state, int *loaded);

/* ---------------------------------------------------------------------------
   >>row-bits

   Rows of tables that do not change any more: to be served, or to be saved for that alone. An
   element is
     f32, f16, bf16   itself
     i8               fma(code, scale, bias), code in [-127, 127], as of neo_table_desc
     i4, i2           scale * code + bias, two roundings; codes 0 .. 15 or 0 .. 3, the first of a
                      byte in its low bits
   ------------------------------------------------------------------------ */
typedef enum neo_row_bits {
    NEO_ROWS_TRAINED, /* of neo_model_desc: as the checkpoint has them */
    NEO_ROWS_F32,
    NEO_ROWS_F16,
    NEO_ROWS_BF16,
    NEO_ROWS_I8,
    NEO_ROWS_I4,
    NEO_ROWS_I2
} neo_row_bits;

/* neo_frozen_row_bytes: of a row's codes; 0: no such bits, or dim below 1. */
NEO_API size_t neo_frozen_row_bytes(neo_row_bits bits, int64_t dim);
/* neo_frozen_encode: rows from f32 [rows][dim], rounded to nearest, to codes and scale (of i8, i4,
   i2; else may be NULL). The range of a row's codes is searched greedily: from [min, max] it is cut
   at the end whose cut errs less, 1/200 of it at a time, down to 1/6, and the range of the least
   sum of squares is taken. A row that is not finite (i4, i2: or whose range is not) becomes NaN.
   Errors   NEO_ERR_ARG: an argument is NULL, no such bits, a count below 1. */
NEO_API neo_status neo_frozen_encode(neo_row_bits bits, int64_t rows, int64_t dim,
                                     const float *from, void *codes, float *scale);

/* For neo's other headers: record in a state how a table's pooled sums add where row buckets cut
   them, a part of the numeric definition. */
NEO_API neo_status neo__state_define_buckets(neo_state *state, const char *bags, const char *table,
                                             int32_t row_buckets);

/* For neo's other headers: until the next call (0), neo__state_add_whole adds what a group of ranks
   alone has: 1: on its first rank, 2: on another. */
NEO_API void neo__state_of_group(neo_state *state, int rank);
NEO_API neo_status neo__state_add_whole(neo_state *state, neo_state_kind kind, const char *name,
                                        neo_tensor tensor);
/* For neo's other headers: until the next call (NULL), what is added has rows that are tracked. */
struct neo__row_marks;
NEO_API void neo__state_of_rows(neo_state *state, struct neo__row_marks *marks);

/* For neo's other headers: the memory that neo_safetensors_stream takes for so many tensors. */
NEO_API size_t neo__safetensors_bytes(int count);

/* For neo's other headers: a load that has changed tensors calls fn(user), and a save, before
   anything else, may_save(user), which can refuse (or NULL); make_rows(user) (or NULL) comes before
   any number is looked at, saved or loaded. Kept with the last tensor that was added, if there is
   one. */
NEO_API void neo__state_when_read(neo_state *state, neo_status (*fn)(void *user),
                                  neo_status (*may_save)(void *user), void (*make_rows)(void *user),
                                  void *user);

#ifdef __cplusplus
}
#endif
#endif /* NEO_STATE_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__STATE_IMPLEMENTED)
#define NEO__STATE_IMPLEMENTED
#include "neo_run.h" /* its implementation, if it was included without before */

NEO_EXACT_BEGIN
NEO__HOST_BEGIN
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-json

   Strict JSON (RFC 8259) for headers and manifests. The reader walks a text once, front to back,
   and the caller says which value it expects; there is no tree. Strings are decoded in place (a
   decoded string is never longer than its source), so that reading allocates nothing. Nothing in
   the text is trusted: UTF-8, escapes, numbers, nesting and text behind the end are all checked.
   The writer is neo__out of neo_run.h.
   ------------------------------------------------------------------------ */
typedef struct neo__json {
    char *text; /* strings in it are overwritten by their decoded form, with a NUL behind */
    size_t size, at;
    const char *file; /* for messages */
    uint64_t offset;  /* of text[0] in the file */
    int depth;
} neo__json;
enum { NEO__JSON_DEPTH = 64 };
#define NEO__JSON_BAD 0xFFFFFFFFu /* no character */

static neo_status neo__json_skip(neo__json *json);
static neo_status neo__json_fail(const neo__json *j, size_t at, const char *what) {
    return neo_fail(NEO_ERR_FORMAT, "%s: byte %" PRIu64 ": %s", j->file, j->offset + at, what);
}
/* The next character that is not white space; 0 at the end. */
static int neo__json_peek(neo__json *j) {
    while (j->at < j->size) {
        char c = j->text[j->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return (unsigned char)c;
        j->at++;
    }
    return 0;
}
static neo_status neo__json_expect(neo__json *j, char c) {
    char what[] = "expected '?'";
    what[10] = c;
    if (neo__json_peek(j) != c) return neo__json_fail(j, j->at, what);
    j->at++;
    return NEO_OK;
}

static int neo__utf8_valid(const char *s) {
    size_t left = strlen(s);
    while (left > 0) {
        int n = neo__utf8_length(s, left);
        if (n == 0) return 0;
        s += n;
        left -= (size_t)n;
    }
    return 1;
}
static size_t neo__utf8_put(char *out, uint32_t c) {
    size_t more = (c >= 0x80) + (size_t)(c >= 0x800) + (c >= 0x10000); /* bytes behind the first */
    uint32_t mark = more == 0 ? 0 : more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
    out[0] = (char)(unsigned char)(mark | c >> 6 * more);
    for (size_t i = 1; i <= more; i++)
        out[i] = (char)(unsigned char)(0x80 | (c >> 6 * (more - i) & 63));
    return more + 1;
}
/* The value of a hexadecimal digit; -1: it is none. */
static int neo__hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hexadecimal digits at j->at; -1 if they are not. */
static int32_t neo__json_hex4(neo__json *j) {
    int32_t value = 0;
    if (j->size - j->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = neo__hex_digit(j->text[j->at + (size_t)i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    j->at += 4;
    return value;
}
/* The escape behind a backslash: its character, or NEO__JSON_BAD. A \u0000 is refused: strings are
   C strings. */
static uint32_t neo__json_escape(neo__json *json) {
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    if (json->at >= json->size) return NEO__JSON_BAD;
    char c = json->text[json->at++];
    const char *known = c ? strchr(plain, c) : NULL;
    if (known) return (uint32_t)meaning[known - plain];
    if (c != 'u') return NEO__JSON_BAD;
    int32_t high = neo__json_hex4(json);
    if (high <= 0 || (high >= 0xDC00 && high < 0xE000)) return NEO__JSON_BAD;
    if (high < 0xD800 || high >= 0xE000) return (uint32_t)high;
    if (json->size - json->at < 2 || json->text[json->at] != '\\' ||
        json->text[json->at + 1] != 'u')
        return NEO__JSON_BAD;
    json->at += 2;
    int32_t low = neo__json_hex4(json);
    if (low < 0xDC00 || low >= 0xE000) return NEO__JSON_BAD;
    return 0x10000u + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
}
/* A string: *out points into the text, decoded, with a NUL behind. */
static neo_status neo__json_string(neo__json *json, char **out) {
    if (neo__json_peek(json) != '"') return neo__json_fail(json, json->at, "expected a string");
    char *to = json->text + ++json->at;
    *out = to;
    while (json->at < json->size) {
        size_t start = json->at;
        unsigned char c = (unsigned char)json->text[json->at];
        if (c == '"') {
            json->at++;
            *to = 0;
            return NEO_OK;
        }
        if (c < 0x20) return neo__json_fail(json, start, "a control character inside a string");
        if (c == '\\') {
            json->at++;
            uint32_t code = neo__json_escape(json);
            if (code == NEO__JSON_BAD)
                return neo__json_fail(json, start, "a bad escape inside a string");
            to += neo__utf8_put(to, code);
            continue;
        }
        int n = neo__utf8_length(json->text + json->at, json->size - json->at);
        if (n == 0) return neo__json_fail(json, start, "a string that is not UTF-8");
        memmove(to, json->text + json->at, (size_t)n);
        to += n;
        json->at += (size_t)n;
    }
    return neo__json_fail(json, json->at, "a string without its closing quote");
}

static void neo__json_digits(const neo__json *j, size_t *at) {
    while (*at < j->size && j->text[*at] >= '0' && j->text[*at] <= '9') ++*at;
}
/* A number's text: grammar checked. *integer: 1 if it has no fraction and no exponent. */
static neo_status neo__json_number(neo__json *json, const char **begin, size_t *length,
                                   int *integer) {
    neo__json_peek(json);
    const char *text = json->text;
    size_t start = json->at, i = start, size = json->size, digits;
    *integer = 1;
    if (i < size && text[i] == '-') i++;
    digits = i;
    neo__json_digits(json, &i);
    if (i == digits) return neo__json_fail(json, i, "expected a number");
    if (text[digits] == '0' && i > digits + 1)
        return neo__json_fail(json, digits + 1, "a number with a leading zero");
    if (i < size && text[i] == '.') {
        digits = ++i;
        *integer = 0;
        neo__json_digits(json, &i);
        if (i == digits) return neo__json_fail(json, i, "expected a digit");
    }
    if (i < size && (text[i] == 'e' || text[i] == 'E')) {
        *integer = 0;
        if (++i < size && (text[i] == '+' || text[i] == '-')) i++;
        digits = i;
        neo__json_digits(json, &i);
        if (i == digits) return neo__json_fail(json, i, "expected a digit");
    }
    *begin = text + start;
    *length = i - start;
    json->at = i;
    return NEO_OK;
}
/* An integer in [0, INT64_MAX]: all that headers and manifests hold. */
static neo_status neo__json_count(neo__json *json, int64_t *out) {
    const char *t = NULL;
    size_t n = 0;
    int integer = 0;
    int64_t value = 0;
    NEO__TRY(neo__json_number(json, &t, &n, &integer));
    size_t start = (size_t)(t - json->text);
    if (!integer || t[0] == '-')
        return neo__json_fail(json, start, "expected an integer, not negative");
    for (size_t i = 0; i < n; i++) {
        int digit = t[i] - '0';
        if (value > (INT64_MAX - digit) / 10)
            return neo__json_fail(json, start, "an integer above 2^63 - 1");
        value = value * 10 + digit;
    }
    *out = value;
    return NEO_OK;
}

/* A number of at most 60 characters as a double, or null, which is NaN. Locales have decimal points
   of their own, which strtod wants. */
static neo_status neo__json_double(neo__json *json, double *out) {
    char point[16], text[80];
    const char *number = NULL;
    size_t count = 0;
    int integer = 0;
    if (neo__json_peek(json) == 'n') {
        *out = neo__f64_bits(UINT64_C(0x7FF8000000000000));
        return neo__json_skip(json);
    }
    NEO__TRY(neo__json_number(json, &number, &count, &integer));
    const size_t start = (size_t)(number - json->text);
    if (count > 60) return neo__json_fail(json, start, "a number of more than 60 characters");
    snprintf(point, sizeof point, "%.1f", 0.5);
    point[strlen(point) - 1] = 0; /* "0." */
    const char *dot = (const char *)memchr(number, '.', count);
    const int head = (int)(dot ? dot - number : (ptrdiff_t)count);
    const int tail = (int)count - head - (dot ? 1 : 0);
    snprintf(text, sizeof text, "%.*s%s%.*s", head, number, dot ? point + 1 : "", tail,
             dot ? dot + 1 : "");
    *out = strtod(text, NULL);
    return *out - *out == 0.0 ? NEO_OK
                              : neo__json_fail(json, start, "a number that no double holds");
}

/* neo__json_open, neo__json_next: walk an array ('[', ']') or, with neo__json_member, an object:
     open(j, '['); for (int i = 0;; i++) { next(j, ']', i, &more); if (!more) break; ... }
     open(j, '{'); for (int i = 0;; i++) { member(j, i, &key); if (!key) break; ... }  */
static neo_status neo__json_open(neo__json *j, char bracket) {
    NEO__TRY(neo__json_expect(j, bracket));
    if (++j->depth > NEO__JSON_DEPTH) return neo__json_fail(j, j->at, "nested too deep");
    return NEO_OK;
}
static neo_status neo__json_next(neo__json *j, char bracket, int index, int *more) {
    *more = neo__json_peek(j) != bracket;
    if (*more) return index > 0 ? neo__json_expect(j, ',') : NEO_OK;
    j->at++;
    j->depth--;
    return NEO_OK;
}
static neo_status neo__json_key(neo__json *j, char **key) {
    NEO__TRY(neo__json_string(j, key));
    return neo__json_expect(j, ':');
}
/* The next member of an object: its key; *key NULL behind the last. */
static neo_status neo__json_member(neo__json *j, int index, char **key) {
    int more = 1;
    *key = NULL;
    NEO__TRY(neo__json_next(j, '}', index, &more));
    return more ? neo__json_key(j, key) : NEO_OK;
}
/* Any value. */
static neo_status neo__json_skip(neo__json *json) {
    int c = neo__json_peek(json), more = 1, integer = 0;
    char *string = NULL, close = c == '{' ? '}' : ']';
    const char *number = NULL;
    size_t length = 0;
    if (c == '"') return neo__json_string(json, &string);
    if (c == '{' || c == '[') {
        NEO__TRY(neo__json_open(json, (char)c));
        for (int i = 0;; i++) {
            NEO__TRY(neo__json_next(json, close, i, &more));
            if (!more) return NEO_OK;
            if (c == '{') NEO__TRY(neo__json_key(json, &string));
            NEO__TRY(neo__json_skip(json));
        }
    }
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (json->size - json->at < n || memcmp(json->text + json->at, words[i], n) != 0) continue;
        json->at += n;
        return NEO_OK;
    }
    return neo__json_number(json, &number, &length, &integer);
}
/* A list of `count` whole numbers, one of each feature. */
static neo_status neo__json_counts(neo__json *json, int32_t count, int64_t *to) {
    int more = 1;
    NEO__TRY(neo__json_open(json, '['));
    for (int32_t i = 0; i <= count; i++) {
        NEO__TRY(neo__json_next(json, ']', i, &more));
        if (more != (i < count))
            return neo__json_fail(json, json->at, "not one number of each feature");
        if (more) NEO__TRY(neo__json_count(json, &to[i]));
    }
    return NEO_OK;
}
/* Nothing but white space may follow. */
static neo_status neo__json_end(neo__json *j) {
    neo__json_peek(j);
    return j->at == j->size
               ? NEO_OK
               : neo__json_fail(j, j->at, "something follows the end of the JSON text");
}
/* A JSON string, quoted; s is UTF-8. */
static void neo__out_string(neo__out *out, const char *s) {
    neo__out_bytes(out, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') neo__out_format(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F) neo__out_format(out, "\\u%04x", c);
        else neo__out_bytes(out, s, 1);
    }
    neo__out_bytes(out, "\"", 1);
}

/* ---------------------------------------------------------------------------
   >>impl-state

   A list of named views, found by name through an open-addressing table of 32-bit slots. Names are
   in the file formats, so they are UTF-8 and unique. Parts of one tensor share its name: the table
   finds the first, which leads to the next ones. Every tensor is also seen as rows x columns (one
   column for one dimension; the first dimension against all others for more than two), and an entry
   as a rectangle of that.

   The digest. All arithmetic modulo 2^64; mix is neo__mix64, MurmurHash3's finaliser:
     mix(x): x ^= x >> 33; x *= 0xFF51AFD7ED558CCD;
             x ^= x >> 33; x *= 0xC4CEB9FE1A85EC53; x ^= x >> 33
     key   of a tensor: k = mix(neo_hash(name)); k = mix(k + dtype + 1); k = mix(k + ndim);
           for each dimension: k = mix(k + extent)
     bits  of an element: its bytes as an unsigned integer; 0x7FC00000 for a NaN of any float type
     part  of a range of elements: sum of mix((key ^ bits * 0xC2B2AE3D27D4EB4F) + (i + 1) *
           0x9E3779B97F4A7C15), i the element's row-major index in the whole, unsharded tensor
     state digest = mix(sum of all parts + mix(sum of mix(key))), both sums over the weights and
           optimizer tensors
   Sums commute, so tensors, shards and threads may come in any order, and parts of ranks add as
   integers.
   ------------------------------------------------------------------------ */
typedef struct neo__rect {
    int64_t row, col, rows, cols;
} neo__rect;
/* Memory that holds a rectangle of a tensor. */
typedef struct neo__slab {
    char *data;
    neo_place memory;
    neo_dtype dtype;
    neo__rect place;
    int64_t step; /* elements from row to row */
} neo__slab;
typedef struct neo__state_entry {
    const char *name;
    uint64_t hash;
    neo_state_kind kind;
    neo_tensor tensor, whole; /* what was given; the tensor it is, or is a part of, without data */
    neo__slab slab;
    int is_part, is_copy; /* is_copy: another part has it too */
    int first, next;      /* entries: the first part of this name; the next one, or -1 */
    neo__row_marks *marks; /* of its rows, if they are tracked */
    neo_status (*read)(void *user); /* called behind a load, or NULL */
    neo_status (*may_save)(void *user); /* and before a save */
    void (*make_rows)(void *user);      /* and before its numbers are needed */
    void *user;
} neo__state_entry;
typedef struct neo__state_word {
    const char *key, *value;
} neo__state_word;
/* The dictionaries of a schema, as checkpoints see them: a block of bytes. neo_state_add_schema of
   neo_data.h fills it. */
typedef struct neo__state_dicts {
    void *schema;
    size_t (*bytes)(const void *schema); /* of the block; 0: not fitted yet */
    neo_status (*save)(const void *schema, void *block);
    /* Check a block and read it, beside the schema. */
    neo_status (*load)(const void *schema, const void *block, size_t bytes, void **read);
    void (*install)(void *schema, void *read, int keep); /* into the schema, or freed (keep 0) */
} neo__state_dicts;
struct neo_state {
    neo_ctx *ctx;
    neo__live live;
    neo__state_entry *entries;
    int count;
    int64_t capacity;
    int32_t *slots; /* entry number + 1, or 0; a power of two of them, at most half of them used */
    int slot_count;
    neo__state_word *words;
    int word_count;
    int64_t word_capacity;
    neo__arena texts;   /* names, keys and values */
    neo__state_dicts dicts; /* schema NULL: none */
    int group; /* of what is added: 0: all ranks have it; a group has it: 1: this is its first rank,
                  2: another */
    neo__row_marks *marks; /* of what is added */
};

/* The tensor in the state file that holds the dictionaries. */
#define NEO__SCHEMA_NAME "schema"

NEO_API neo_status neo_state_create(neo_ctx *ctx, neo_state **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_state_create: state is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_state_create", ctx));
    neo_state *state = (neo_state *)neo__alloc_zero(ctx, sizeof *state);
    NEO__CHECK(state, NEO_ERR_MEMORY, "neo_state_create: no memory for %zu bytes", sizeof *state);
    state->ctx = state->texts.ctx = ctx;
    char shards[32], seed[32];
    snprintf(shards, sizeof shards, "%d", ctx->repro_shards);
    snprintf(seed, sizeof seed, "%" PRIu64, ctx->seed);
    neo_status status = neo_state_define(state, "repro_shards", shards);
    if (status == NEO_OK) status = neo_state_define(state, "seed", seed);
    if (status == NEO_OK && ctx->on->numerics)
        status = neo_state_define(state, "numerics", ctx->on->numerics);
    neo__live_begin(ctx, &state->live, "state", NULL);
    if (status == NEO_OK) *out = state;
    else neo_state_destroy(state);
    return status;
}

/* "[2, 3]" into text, for messages. */
static const char *neo__shape_text(const neo_tensor *t, char text[96]) {
    int n = snprintf(text, 96, "[");
    for (int d = 0; d < t->ndim; d++)
        n += snprintf(text + n, 96 - (size_t)n, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}
static int neo__shapes_equal(const neo_tensor *a, const neo_tensor *b) {
    if (a->ndim != b->ndim) return 0;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return 0;
    return 1;
}
/* A whole tensor as rows x columns. */
static neo__rect neo__rect_whole(const neo_tensor *t) {
    neo__rect all = {0, 0, t->ndim > 0 ? t->shape[0] : 1, 1};
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0) all.rows = 0; /* the product of the others may overflow */
    }
    for (int d = 1; d < t->ndim && all.rows > 0; d++) all.cols *= t->shape[d];
    return all;
}
/* The intersection of two rectangles: without rows and columns if there is none. */
static neo__rect neo__rect_cut(const neo__rect *a, const neo__rect *b) {
    neo__rect cut;
    cut.row = NEO__MAX(a->row, b->row);
    cut.col = NEO__MAX(a->col, b->col);
    cut.rows = NEO__MIN(a->row + a->rows, b->row + b->rows) - cut.row;
    cut.cols = NEO__MIN(a->col + a->cols, b->col + b->cols) - cut.col;
    if (cut.rows <= 0 || cut.cols <= 0) cut.rows = cut.cols = 0;
    return cut;
}
/* Rows for columns. */
static neo__rect neo__rect_turned(const neo__rect *r) {
    neo__rect turned = {r->col, r->row, r->cols, r->rows};
    return turned;
}
static neo__slab neo__slab_whole(const neo_tensor *t) {
    neo__slab slab;
    slab.data = (char *)t->data;
    slab.memory = t->place;
    slab.dtype = t->dtype;
    slab.place = neo__rect_whole(t);
    slab.step = slab.place.cols;
    return slab;
}
/* ---- slabs in a device's memory: they pass through the context's scratch in pieces ---- */
enum {
    NEO__STAGE_SKIP = 1 << 20, /* of the scratch: what files are read into */
    NEO__STAGE_BYTES = NEO__SHARED_SCRATCH_BYTES - NEO__STAGE_SKIP,
    NEO__STAGE_FILE_BYTES = 1 << 18 /* of a tier, which may be all that memory has room for */
};
/* The piece of `all`, of the slab's memory, behind `piece` (rows 0: the first one) that fits the
   stage; 0 at the end. */
static int neo__stage_next(const neo__slab *slab, const neo__rect *all, neo__rect *piece) {
    const int64_t bytes = slab->memory == NEO_FILE ? NEO__STAGE_FILE_BYTES : NEO__STAGE_BYTES,
                  room = bytes / (int64_t)neo_dtype_size(slab->dtype);
    int64_t row = all->row, col = all->col;
    if (piece->rows > 0) {
        row = piece->row, col = piece->col + piece->cols;
        if (col == all->col + all->cols) row += piece->rows, col = all->col;
    }
    if (all->cols == 0 || row >= all->row + all->rows) return 0;
    piece->row = row;
    piece->col = col;
    piece->cols = NEO__MIN(all->col + all->cols - col, room);
    piece->rows = NEO__MIN(all->row + all->rows - row, NEO__MAX(room / all->cols, 1));
    return 1;
}
/* The stage as a slab of that piece: of a tier, the end of the last worker's scratch, which shares
   a page of 2 MiB with what is in use. */
static neo__slab neo__stage_of(neo_ctx *ctx, const neo__slab *slab, const neo__rect *piece) {
    neo__slab stage = *slab;
    stage.data = neo__shared_scratch(ctx);
    if (slab->memory == NEO_FILE) stage.data -= NEO__STAGE_FILE_BYTES;
    else stage.data += NEO__STAGE_SKIP;
    stage.memory = NEO_HOST;
    stage.place = *piece;
    stage.step = piece->cols;
    return stage;
}
/* A piece between the slab and the stage. */
static neo_status neo__stage_move(neo_ctx *ctx, const neo__slab *slab, const neo__slab *stage,
                                  int to_device) {
    const size_t size = neo_dtype_size(slab->dtype);
    int64_t rows = stage->place.rows, width = stage->place.cols;
    char *host = stage->data;
    char *there = slab->data + (size_t)((stage->place.row - slab->place.row) * slab->step +
                                        stage->place.col - slab->place.col) *
                                   size;
    if (width == slab->step) width *= rows, rows = 1;
    for (int64_t r = 0; r < rows;
         r++, host += (size_t)width * size, there += (size_t)slab->step * size) {
        if (to_device)
            NEO__TRY(neo__data_write(ctx, there, slab->memory, host, (size_t)width * size));
        else NEO__TRY(neo__data_read(ctx, host, there, slab->memory, (size_t)width * size));
    }
    return NEO_OK;
}

/* "[0:100,0:16]", or "[0:100]" of one dimension: where an entry is in its tensor. */
static const char *neo__place_text(const neo__state_entry *entry, char text[96]) {
    const neo__rect *r = &entry->slab.place;
    int n = snprintf(text, 96, "[%" PRId64 ":%" PRId64, r->row, r->row + r->rows);
    if (entry->whole.ndim > 1)
        n += snprintf(text + n, 96 - (size_t)n, ",%" PRId64 ":%" PRId64, r->col, r->col + r->cols);
    snprintf(text + n, 96 - (size_t)n, "]");
    return text;
}
/* 1: a name that ends like that of a part in a file. */
static int neo__ends_in_place(const char *name, const char *end) {
    const char *open = strrchr(name, '[');
    if (!open) return 0;
    size_t n = strspn(open + 1, "0123456789:,");
    return n > 0 && strcmp(open + 1 + n, end) == 0 && strchr(open, ':') != NULL;
}
static int neo__ends_as_part(const char *name) { return neo__ends_in_place(name, "]"); }
/* 1: a name in a file of the numbers of changed rows. */
#define NEO__ST_ROWS ".rows"
static int neo__ends_as_rows(const char *name) {
    return neo__ends_in_place(name, "]" NEO__ST_ROWS);
}

/* 1: files can hold the tensor: in one piece, not none (an empty tensor may have no memory), and of
   as many elements as a header is read with. */
static int neo__tensor_is_storable(const neo_tensor *tensor) {
    int64_t product = 1;
    int empty = 0;
    if (neo_dtype_size(tensor->dtype) == 0 || tensor->ndim < 0 || tensor->ndim > NEO_MAX_DIMS)
        return 0;
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] < 0) return 0;
        if (tensor->shape[d] == 0) empty = 1;
        else if (product > INT64_MAX / 64 / tensor->shape[d]) return 0;
        else product *= tensor->shape[d];
    }
    return (tensor->data || empty) && neo_tensor_is_contiguous(*tensor);
}

/* ---- names ---- */
static void neo__state_put_slot(neo_state *state, int entry) {
    uint64_t mask = (uint64_t)state->slot_count - 1, i = state->entries[entry].hash & mask;
    while (state->slots[i]) i = (i + 1) & mask;
    state->slots[i] = entry + 1;
}
static void neo__state_fill_slots(neo_state *state) {
    if (state->slot_count == 0) return;
    memset(state->slots, 0, (size_t)state->slot_count * sizeof *state->slots);
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].first == i) neo__state_put_slot(state, i);
}
/* The first entry of a name, or -1. */
static int neo__state_find(const neo_state *state, const char *name) {
    if (state->slot_count == 0) return -1;
    uint64_t hash = neo_hash(name), mask = (uint64_t)state->slot_count - 1;
    for (uint64_t i = hash & mask; state->slots[i]; i = (i + 1) & mask) {
        const neo__state_entry *entry = &state->entries[state->slots[i] - 1];
        if (entry->hash == hash && strcmp(entry->name, name) == 0) return state->slots[i] - 1;
    }
    return -1;
}
/* Room for one more entry and its slot. */
static neo_status neo__state_reserve(neo_state *state) {
    NEO__TRY(NEO__GROW(state->ctx, state->entries, state->capacity, state->count + 1));
    if (state->slot_count >= 2 * state->capacity) return NEO_OK;
    int count = 32;
    while (count < 2 * state->capacity) count *= 2;
    int32_t *slots = (int32_t *)neo_alloc(state->ctx, (size_t)count * sizeof *slots);
    NEO__CHECK(slots, NEO_ERR_MEMORY, "neo_state_add: no memory for %d slots", count);
    neo_free(state->ctx, state->slots, (size_t)state->slot_count * sizeof *slots);
    state->slots = slots;
    state->slot_count = count;
    neo__state_fill_slots(state);
    return NEO_OK;
}
/* Forget the entries from `count` on: an add of several tensors failed at one of them. */
static void neo__state_truncate(neo_state *state, int count) {
    state->count = count;
    for (int i = 0; i < count; i++)
        if (state->entries[i].next >= count) state->entries[i].next = -1;
    neo__state_fill_slots(state);
}
/* The end of an add of several tensors: after a failure the state is as before. */
static neo_status neo__state_added(neo_state *state, int before, neo_status status) {
    if (status != NEO_OK) neo__state_truncate(state, before);
    return status;
}

static neo_status neo__state_check(const neo_state *state, const char *function,
                                   neo_state_kind kind, const char *name) {
    NEO__CHECK_LIVE(state, function, "state");
    NEO__CHECK(name && name[0], NEO_ERR_ARG, "%s: the name is empty", function);
    NEO__CHECK(kind >= NEO_STATE_WEIGHT && kind <= NEO_STATE_PROGRESS, NEO_ERR_ARG,
               "%s: %s: kind is %d, none of neo_state_kind", function, name, (int)kind);
    NEO__CHECK(neo__utf8_valid(name), NEO_ERR_ARG, "%s: %s: the name is not UTF-8", function, name);
    NEO__CHECK(strcmp(name, NEO__SCHEMA_NAME) != 0 && strcmp(name, "__metadata__") != 0 &&
                   !neo__ends_as_part(name) && !neo__ends_as_rows(name),
               NEO_ERR_ARG, "%s: the name %s is reserved", function, name);
    return NEO_OK;
}
/* One more entry; first: the entry of the same name, or -1. The rest of it is set already. */
static neo_status neo__state_put(neo_state *state, neo__state_entry *entry, const char *name,
                                 int first) {
    NEO__TRY(neo__state_reserve(state));
    entry->name = neo__arena_text(&state->texts, name, strlen(name));
    NEO__CHECK(entry->name, NEO_ERR_MEMORY, "neo_state_add: no memory for the name %s", name);
    entry->hash = neo_hash(name);
    entry->first = first >= 0 ? first : state->count;
    entry->next = -1;
    /* keys of rows come, wait and go without a step of their row */
    entry->marks = entry->whole.dtype == NEO_I64 ? NULL : state->marks;
    state->entries[state->count] = *entry;
    if (first < 0) {
        neo__state_put_slot(state, state->count++);
        return NEO_OK;
    }
    while (state->entries[first].next >= 0) first = state->entries[first].next;
    state->entries[first].next = state->count++;
    return NEO_OK;
}

NEO_API neo_status neo_state_add(neo_state *state, neo_state_kind kind, const char *name,
                                 neo_tensor tensor) {
    NEO__TRY(neo__state_check(state, "neo_state_add", kind, name));
    if (tensor.absent && !tensor.data)
        return neo__no_data("neo_state_add", name, tensor, NEO_ERR_STATE);
    NEO__CHECK(neo__tensor_is_storable(&tensor), NEO_ERR_ARG,
               "neo_state_add: %s: the tensor is none, not contiguous or too large", name);
    if (tensor.place == NEO_DEVICE)
        NEO__TRY(neo__check_place(state->ctx, tensor, "neo_state_add", name));
    NEO__CHECK(neo__state_find(state, name) < 0, NEO_ERR_ARG, "neo_state_add: %s is there already",
               name);
    NEO__ZERO(neo__state_entry, entry);
    entry.kind = kind;
    entry.tensor = tensor;
    entry.whole = neo_tensor_nd(NULL, tensor.dtype, tensor.ndim, tensor.shape);
    entry.slab = neo__slab_whole(&tensor);
    return neo__state_put(state, &entry, name, -1);
}

/* The tensor and its place make sense by themselves. */
static neo_status neo__state_check_part(const neo_ctx *ctx, const char *name,
                                        const neo_tensor *tensor, const neo_part *part) {
    NEO__CHECK(part && (tensor->ndim == 1 || tensor->ndim == 2) &&
                   neo_dtype_size(tensor->dtype) != 0,
               NEO_ERR_ARG,
               "neo_state_add_part: %s: no place, or a tensor that is not [n] or [n][m]", name);
    int flat = tensor->ndim == 1;
    int64_t count = tensor->shape[0], m = flat ? 1 : tensor->shape[1], cols = flat ? 1 : part->cols;
    if (tensor->absent && !tensor->data)
        return neo__no_data("neo_state_add_part", name, *tensor, NEO_ERR_STATE);
    if (tensor->place == NEO_DEVICE)
        NEO__TRY(neo__check_place(ctx, *tensor, "neo_state_add_part", name));
    NEO__CHECK(count >= 0 && m >= 0 && (tensor->data || count == 0 || m == 0), NEO_ERR_ARG,
               "neo_state_add_part: %s: the tensor is none", name);
    NEO__CHECK((m <= 1 || flat || tensor->stride[1] == 1) && (count <= 1 || tensor->stride[0] >= m),
               NEO_ERR_ARG,
               "neo_state_add_part: %s: the elements of a row are not one behind the other", name);
    NEO__CHECK(part->rows >= 1 && cols >= 1 && part->rows <= INT64_MAX / 64 / cols &&
                   (!flat || (part->cols == 0 && part->first_col == 0)),
               NEO_ERR_ARG,
               "neo_state_add_part: %s: a whole of %" PRId64 " rows and %" PRId64
               " columns is none for a part of %d dimensions (1 dimension: 0 columns)",
               name, part->rows, part->cols, (int)tensor->ndim);
    NEO__CHECK(part->first_row >= 0 && count <= part->rows &&
                   part->first_row <= part->rows - count && part->first_col >= 0 && m <= cols &&
                   part->first_col <= cols - m,
               NEO_ERR_ARG,
               "neo_state_add_part: %s: %" PRId64 " x %" PRId64 " elements at row %" PRId64
               ", column %" PRId64 " leave the tensor of %" PRId64 " x %" PRId64,
               name, count, m, part->first_row, part->first_col, part->rows, cols);
    return NEO_OK;
}
/* Check a part against the other parts of the same name. */
static neo_status neo__state_check_parts(const neo_state *state, int first, const char *name,
                                         const neo__state_entry *entry) {
    for (int i = first; i >= 0; i = state->entries[i].next) {
        const neo__state_entry *other = &state->entries[i];
        char a[96], b[96];
        NEO__CHECK(other->is_part, NEO_ERR_ARG,
                   "neo_state_add_part: %s is there already, as a whole", name);
        NEO__CHECK(other->kind == entry->kind && other->whole.dtype == entry->whole.dtype &&
                       neo__shapes_equal(&other->whole, &entry->whole),
                   NEO_ERR_ARG,
                   "neo_state_add_part: %s: a part of %s %s, another one is of %s %s%s", name,
                   neo_dtype_name(entry->whole.dtype), neo__shape_text(&entry->whole, a),
                   neo_dtype_name(other->whole.dtype), neo__shape_text(&other->whole, b),
                   other->kind == entry->kind ? "" : " and another kind");
        NEO__CHECK(other->is_copy || entry->is_copy ||
                       neo__rect_cut(&other->slab.place, &entry->slab.place).rows == 0,
                   NEO_ERR_ARG, "neo_state_add_part: %s: part %s overlaps part %s", name,
                   neo__place_text(entry, a), neo__place_text(other, b));
    }
    return NEO_OK;
}
NEO_API neo_status neo_state_add_part(neo_state *state, neo_state_kind kind, const char *name,
                                      neo_tensor tensor, const neo_part *part) {
    NEO__TRY(neo__state_check(state, "neo_state_add_part", kind, name));
    NEO__TRY(neo__state_check_part(state->ctx, name, &tensor, part));
    int64_t shape[2] = {part->rows, part->cols};
    NEO__ZERO(neo__state_entry, entry);
    entry.kind = kind;
    entry.tensor = tensor;
    entry.is_part = 1;
    entry.is_copy = part->copy != 0;
    entry.whole = neo_tensor_nd(NULL, tensor.dtype, tensor.ndim, shape);
    const neo__rect place = {part->first_row, part->first_col, tensor.shape[0],
                             tensor.ndim == 1 ? 1 : tensor.shape[1]};
    entry.slab = neo__slab_whole(&tensor);
    entry.slab.place = place;
    entry.slab.step = tensor.shape[0] > 1 ? tensor.stride[0] : entry.slab.place.cols;
    int first = neo__state_find(state, name);
    NEO__TRY(neo__state_check_parts(state, first, name, &entry));
    return neo__state_put(state, &entry, name, first);
}

NEO_API neo_status neo_state_add_params(neo_state *state, const neo_params *params) {
    NEO__CHECK(state && params, NEO_ERR_ARG, "neo_state_add_params: an argument is NULL");
    NEO__TRY(neo__check_device(state->ctx, params->ctx, "neo_state_add_params", "params are"));
    int before = state->count;
    neo_status status = NEO_OK;
    for (int i = 0; i < neo_params_count(params) && status == NEO_OK; i++) {
        const neo_param *param = neo_params_at(params, i);
        status = neo_state_add(state, NEO_STATE_WEIGHT, param->name, param->value);
    }
    return neo__state_added(state, before, status);
}

#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_state_add_optim(neo_state *state, neo_optim *optim) {
    NEO__CHECK(state && optim, NEO_ERR_ARG, "neo_state_add_optim: an argument is NULL");
    NEO__TRY(neo__check_device(state->ctx, optim->ctx, "neo_state_add_optim", "optim is"));
    int before = state->count;
    const char *name = NULL;
    neo_status status = NEO_OK;
    for (int i = 0; i < neo_optim_state_count(optim) && status == NEO_OK; i++) {
        neo_tensor t = neo_optim_state_at(optim, i, &name, NULL);
        status = neo_state_add(state, NEO_STATE_OPTIMIZER, name, t);
    }
    return neo__state_added(state, before, status);
}

/* <bags>.<table>.weight, .scale (of i8), .momentum1, .momentum2, those of keys; <bags>.key_step,
   .step. */
static neo_status neo__state_add_table(neo_state *state, neo_bags *bags, int32_t table) {
    static const char *const suffix[] = {"weight", "scale", "momentum1", "momentum2",
                                         "keys",   "used",  "waiting",   "waiting_used",
                                         "filter"};
    char name[1024];
    for (int k = 0; k < 9; k++) {
        neo_tensor t = neo__bags_tensor(bags, table, k);
        if (!t.data && k > 0) continue;
        const int weights = k < 2 || k == 4 || k == 5;
        int n = snprintf(name, sizeof name, "%s.%s.%s", neo__bags_name(bags),
                         neo_bags_table_name(bags, table), suffix[k]);
        NEO__CHECK(n > 0 && n < (int)sizeof name, NEO_ERR_ARG,
                   "neo_state_add_bags: the name %.100s... is too long", name);
        NEO__TRY(
            neo__state_add_whole(state, weights ? NEO_STATE_WEIGHT : NEO_STATE_OPTIMIZER, name, t));
    }
    return NEO_OK;
}
NEO_API void neo__state_of_group(neo_state *state, int rank) { state->group = rank; }
NEO_API void neo__state_of_rows(neo_state *state, neo__row_marks *marks) { state->marks = marks; }
NEO_API neo_status neo__state_add_whole(neo_state *state, neo_state_kind kind, const char *name,
                                        neo_tensor tensor) {
    if (!state->group || !tensor.data) return neo_state_add(state, kind, name, tensor);
    NEO__ZERO(neo_part, part);
    part.rows = tensor.shape[0];
    part.cols = tensor.ndim == 2 ? tensor.shape[1] : 0;
    part.copy = state->group == 2;
    return neo_state_add_part(state, kind, name, tensor, &part);
}
#endif
NEO_API neo_status neo__state_define_buckets(neo_state *state, const char *bags, const char *table,
                                             int32_t row_buckets) {
    char key[1024], text[16];
    if (row_buckets <= 1) return NEO_OK;
    snprintf(key, sizeof key, "%s.%s.row_buckets", bags, table);
    snprintf(text, sizeof text, "%d", (int)row_buckets);
    return neo_state_define(state, key, text);
}
#if !defined(NEO_INFERENCE)
static void neo__state_make_bags(void *bags) { neo__bags_make_all((const neo_bags *)bags); }
NEO_API neo_status neo_state_add_bags(neo_state *state, neo_bags *bags) {
    NEO__CHECK(state && bags, NEO_ERR_ARG, "neo_state_add_bags: an argument is NULL");
    NEO__TRY(neo__check_device(state->ctx, bags->ctx, "neo_state_add_bags", "bags are"));
    int before = state->count;
    neo_status status = NEO_OK;
    for (int32_t i = 0; i < neo_bags_table_count(bags) && status == NEO_OK; i++) {
        const int32_t buckets = bags->sizes.none ? 0 : bags->tables[i].job.buckets;
        status = neo__state_define_buckets(state, neo__bags_name(bags),
                                           neo_bags_table_name(bags, i), buckets);
        neo__state_of_rows(state, neo__bags_marks(bags, i));
        if (status == NEO_OK) status = neo__state_add_table(state, bags, i);
        neo__state_of_rows(state, NULL);
    }
    char name[1024];
    snprintf(name, sizeof name, "%s.key_step", neo__bags_name(bags));
    if (status == NEO_OK && neo__bags_key_steps(bags))
        status = neo_state_add(state, NEO_STATE_WEIGHT, name,
                               neo_tensor_1d(neo__bags_key_steps(bags), NEO_I64, 1));
    snprintf(name, sizeof name, "%s.step", neo__bags_name(bags));
    if (status == NEO_OK)
        status = neo_state_add(state, NEO_STATE_OPTIMIZER, name,
                               neo_tensor_1d(neo__bags_steps(bags), NEO_I64, 1));
    if (status == NEO_OK)
        neo__state_when_read(state, neo__bags_keys_read, NULL, neo__state_make_bags, bags);
    return neo__state_added(state, before, status);
}

NEO_API neo_status neo_state_add_metrics(neo_state *state, const char *name,
                                         neo_metrics *metrics) {
    NEO__CHECK(state && name && metrics, NEO_ERR_ARG,
               "neo_state_add_metrics: an argument is NULL");
    const int before = state->count;
    const char *part_name = NULL;
    char text[1024];
    neo_tensor t;
    neo_status status = NEO_OK;
    for (int i = 0; status == NEO_OK; i++) {
        t = neo_metrics_tensor(metrics, i, &part_name);
        if (!t.data) break;
        NEO__ZERO(neo_part, all);
        all.rows = t.shape[0];
        snprintf(text, sizeof text, "%.900s.%s", name, part_name);
        status = neo_state_add_part(state, NEO_STATE_PROGRESS, text, t, &all);
    }
    return neo__state_added(state, before, status);
}
#endif

NEO_API void neo__state_when_read(neo_state *state, neo_status (*fn)(void *user),
                                  neo_status (*may_save)(void *user), void (*make_rows)(void *user),
                                  void *user) {
    if (state->count == 0) return;
    state->entries[state->count - 1].read = fn;
    state->entries[state->count - 1].may_save = may_save;
    state->entries[state->count - 1].make_rows = make_rows;
    state->entries[state->count - 1].user = user;
}
static void neo__state_make_rows(const neo_state *state) {
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].make_rows) state->entries[i].make_rows(state->entries[i].user);
}
static neo_status neo__state_was_read(const neo_state *state) {
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].read) NEO__TRY(state->entries[i].read(state->entries[i].user));
    return NEO_OK;
}
static neo_status neo__state_may_save(const neo_state *state) {
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].may_save)
            NEO__TRY(state->entries[i].may_save(state->entries[i].user));
    return NEO_OK;
}
/* Tracked rows that neo_save_begin is still to write must not change but by steps. */
static neo_status neo__state_check_idle(const neo_state *state, const char *function) {
    for (int i = 0; i < state->count; i++)
        NEO__CHECK(!state->entries[i].marks || !state->entries[i].marks->before, NEO_ERR_STATE,
                   "%s: a save of %s is under way: neo_save_wait", function,
                   state->entries[i].name);
    return NEO_OK;
}
NEO_API neo_status neo_state_define(neo_state *state, const char *key, const char *value) {
    NEO__CHECK_LIVE(state, "neo_state_define", "state");
    NEO__CHECK(key && key[0] && value, NEO_ERR_ARG,
               "neo_state_define: an argument is NULL or the key is empty");
    NEO__CHECK(neo__utf8_valid(key) && neo__utf8_valid(value), NEO_ERR_ARG,
               "neo_state_define: %s: the key or its value is not UTF-8", key);
    int at = 0;
    while (at < state->word_count && strcmp(state->words[at].key, key) != 0) at++;
    if (at < state->word_count && strcmp(state->words[at].value, value) == 0) return NEO_OK;
    NEO__TRY(NEO__GROW(state->ctx, state->words, state->word_capacity, at + 1));
    neo__state_word word;
    word.key = at < state->word_count ? state->words[at].key
                                      : neo__arena_text(&state->texts, key, strlen(key));
    word.value = neo__arena_text(&state->texts, value, strlen(value));
    NEO__CHECK(word.key && word.value, NEO_ERR_MEMORY, "neo_state_define: no memory for %s", key);
    state->words[at] = word;
    state->word_count = NEO__MAX(state->word_count, at + 1);
    return NEO_OK;
}

NEO_API void neo_state_destroy(neo_state *state) {
    if (!state) return;
    neo_ctx *ctx = state->ctx;
    neo__live_end(ctx, &state->live);
    neo__arena_free(&state->texts);
    NEO__LIST_FREE(ctx, state->words, state->word_capacity);
    NEO__LIST_FREE(ctx, state->slots, state->slot_count);
    NEO__LIST_FREE(ctx, state->entries, state->capacity);
    neo_free(ctx, state, sizeof *state);
}

NEO_API int neo_state_count(const neo_state *state) { return state->count; }
NEO_API const char *neo_state_name(const neo_state *state, int index) {
    return index >= 0 && index < state->count ? state->entries[index].name : NULL;
}
NEO_API neo_tensor neo_state_tensor(const neo_state *state, int index) {
    neo__state_make_rows(state);
    return index >= 0 && index < state->count ? state->entries[index].tensor : neo_tensor_none();
}
NEO__HOT_BEGIN

/* ---- digest ---- */
#define NEO__DIGEST_INDEX UINT64_C(0x9E3779B97F4A7C15)
#define NEO__DIGEST_BITS UINT64_C(0xC2B2AE3D27D4EB4F)
#define NEO__DIGEST_NAN 0x7FC00000u

static uint64_t neo__digest_key(const char *name, neo_dtype dtype, int ndim, const int64_t *shape) {
    uint64_t key = neo__mix64(neo_hash(name));
    key = neo__mix64(key + (uint64_t)dtype + 1);
    key = neo__mix64(key + (uint64_t)ndim);
    for (int d = 0; d < ndim; d++) key = neo__mix64(key + (uint64_t)shape[d]);
    return key;
}
/* A float's bits: above `infinity`, without the sign, they are a NaN. */
NEO__INLINE uint64_t neo__digest_bits(uint64_t bits, uint64_t sign, uint64_t infinity) {
    return (bits & ~sign) > infinity ? NEO__DIGEST_NAN : bits;
}
#define NEO__DIGEST_LOOP(type, expression)                                                        \
    do {                                                                                          \
        const char *p = (const char *)data;                                                       \
        for (int64_t i = 0; i < count; i++, at += NEO__DIGEST_INDEX) {                            \
            type v;                                                                               \
            memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                       \
            sum += neo__mix64((key ^ (uint64_t)(expression)*NEO__DIGEST_BITS) + at);              \
        }                                                                                         \
    } while (0)
/* neo__digest_part: of `count` elements at data, whose first is element `first` of the whole
   tensor. */
static uint64_t neo__digest_part(uint64_t key, neo_dtype dtype, const void *data, int64_t first,
                                 int64_t count) {
    uint64_t sum = 0, at = ((uint64_t)first + 1) * NEO__DIGEST_INDEX;
    switch (dtype) {
    case NEO_F32: NEO__DIGEST_LOOP(uint32_t, neo__digest_bits(v, 0x80000000u, 0x7F800000u)); break;
    case NEO_F64:
        NEO__DIGEST_LOOP(uint64_t, neo__digest_bits(v, UINT64_C(1) << 63, UINT64_C(0x7FF) << 52));
        break;
    case NEO_F16: NEO__DIGEST_LOOP(uint16_t, neo__digest_bits(v, 0x8000u, 0x7C00u)); break;
    case NEO_BF16: NEO__DIGEST_LOOP(uint16_t, neo__digest_bits(v, 0x8000u, 0x7F80u)); break;
    case NEO_F8E4M3: NEO__DIGEST_LOOP(uint8_t, neo__digest_bits(v, 0x80u, 0x7Eu)); break;
    case NEO_F8E5M2: NEO__DIGEST_LOOP(uint8_t, neo__digest_bits(v, 0x80u, 0x7Cu)); break;
    case NEO_I8:
    case NEO_U8: NEO__DIGEST_LOOP(uint8_t, v); break;
    case NEO_I32: NEO__DIGEST_LOOP(uint32_t, v); break;
    case NEO_I64: NEO__DIGEST_LOOP(uint64_t, v); break;
    case NEO_DTYPE_COUNT: break;
    }
    return sum;
}
#undef NEO__DIGEST_LOOP

typedef struct neo__digest_job {
    const neo__slab *slab;
    uint64_t key;
    int64_t whole_cols, count, tasks;
    uint64_t sum; /* atomic */
} neo__digest_job;
static void neo__digest_task(void *arg, int64_t task, int worker) {
    neo__digest_job *job = (neo__digest_job *)arg;
    const neo__slab *slab = job->slab;
    const neo__rect *place = &slab->place;
    int64_t begin, end, cols = place->cols;
    uint64_t sum = 0;
    (void)worker;
    neo__task_range(job->count, job->tasks, task, 1, &begin, &end);
    if (cols == job->whole_cols && cols == slab->step) cols = job->count; /* in one piece */
    if (begin == end) return;
    int64_t row = begin / cols, col = begin % cols;
    for (int64_t at = begin, n; at < end; at += n, row++, col = 0) {
        n = NEO__MIN(end - at, cols - col);
        int64_t first = (place->row + row) * job->whole_cols + place->col + col;
        sum += neo__digest_part(
            job->key, slab->dtype,
            slab->data + (size_t)(row * slab->step + col) * neo_dtype_size(slab->dtype), first, n);
    }
    __atomic_fetch_add(&job->sum, sum, __ATOMIC_RELAXED);
}
NEO__HOT_END
static uint64_t neo__entry_key(const neo__state_entry *entry) {
    const neo_tensor *whole = &entry->whole;
    return neo__digest_key(entry->name, whole->dtype, whole->ndim, whole->shape);
}
NEO__HOT_BEGIN
static uint64_t neo__slab_digest(neo_ctx *ctx, const neo__state_entry *entry,
                                 const neo__slab *slab) {
    neo__digest_job job;
    job.slab = slab;
    job.key = neo__entry_key(entry);
    job.whole_cols = neo__rect_whole(&entry->whole).cols;
    job.count = slab->place.rows * slab->place.cols;
    job.tasks = neo__task_count(ctx, job.count, 65536);
    job.sum = 0;
    neo__run_tasks(ctx, job.tasks, neo__digest_task, &job, job.count);
    return job.sum;
}
NEO__HOT_END

/* ---- a look at the numbers ---- */
enum { NEO__LOOK = 256 };
typedef struct neo__look_job {
    neo_ctx *ctx;
    const neo__slab *slab;
    int64_t tasks;
    int adds;
    uint32_t largest; /* its bits, without the sign: ordered as the numbers are; atomic */
} neo__look_job;
#if !defined(NEO_INFERENCE)
NEO__HOT_BEGIN
static void neo__look_task(void *arg, int64_t task, int worker) {
    neo__look_job *job = (neo__look_job *)arg;
    const neo__slab *slab = job->slab;
    const int64_t cols = slab->place.cols;
    const size_t size = neo_dtype_size(slab->dtype);
    neo_exact *squares = neo__worker_exact(job->ctx, worker);
    uint32_t largest = 0, old = 0;
    int64_t begin, end, count;
    float x[NEO__LOOK];
    neo__task_range(slab->place.rows * cols, job->tasks, task, 1, &begin, &end);
    for (int64_t at = begin; at < end; at += count) {
        const int64_t row = at / cols, col = at % cols;
        const char *from = slab->data + (size_t)(row * slab->step + col) * size;
        count = NEO__MIN(NEO__MIN(end - at, cols - col), (int64_t)NEO__LOOK);
        if (cols == slab->step) count = NEO__MIN(end - at, (int64_t)NEO__LOOK); /* in one piece */
        neo__decode_float(job->ctx, slab->dtype, from, x, count);
        for (int64_t i = 0; i < count; i++) {
            const uint32_t bits = neo__bits_f32(x[i]) & 0x7FFFFFFFu;
            largest = bits > largest ? bits : largest;
        }
        for (int64_t i = 0; job->adds && i < count; i++) neo_exact_add(squares, x[i] * x[i]);
    }
    old = __atomic_load_n(&job->largest, __ATOMIC_RELAXED);
    while (old < largest && !__atomic_compare_exchange_n(&job->largest, &old, largest, 0,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}
static void neo__slab_look(neo__look_job *job, const neo__slab *slab) {
    job->slab = slab;
    const int64_t count = slab->place.rows * slab->place.cols;
    job->tasks = neo__task_count(job->ctx, count, 65536);
    neo__run_tasks(job->ctx, job->tasks, neo__look_task, job, count);
}
NEO__HOT_END
NEO_API neo_status neo_state_look(const neo_state *state, int index, float *largest,
                                  neo_exact *squares) {
    NEO__CHECK_LIVE(state, "neo_state_look", "state");
    NEO__CHECK(largest && index >= 0 && index < state->count, NEO_ERR_ARG,
               "neo_state_look: %s", largest ? "no such entry" : "largest is NULL");
    const neo__slab *slab = &state->entries[index].slab;
    neo__look_job job = {state->ctx, slab, 0, squares != NULL, 0};
    NEO__ZERO(neo__rect, piece);
    *largest = 0.0f;
    if (!neo__is_float(slab->dtype)) return NEO_OK;
    neo__state_make_rows(state);
    const neo__fp_state fp = neo__fp_enter();
    neo_status status = NEO_OK;
    if (squares) neo__exact_start(state->ctx, 1);
    if (slab->memory == NEO_HOST) neo__slab_look(&job, slab);
    while (slab->memory != NEO_HOST && status == NEO_OK &&
           neo__stage_next(slab, &slab->place, &piece)) {
        neo__slab stage = neo__stage_of(state->ctx, slab, &piece);
        status = neo__stage_move(state->ctx, slab, &stage, 0);
        if (status == NEO_OK) neo__slab_look(&job, &stage);
    }
    neo__fp_leave(fp);
    if (status != NEO_OK) return status;
    *largest = neo__f32_bits(NEO__MIN(job.largest, 0x7F800000u));
    if (squares) neo__exact_finish(state->ctx, 0, squares);
    return NEO_OK;
}
#endif

/* Errors that a digest, which has no status, has met in a tier's file: the tier keeps them. */
static neo_status neo__state_was_seen(const neo_state *state) {
    for (int i = 0; i < state->count; i++)
        if (state->entries[i].slab.memory == NEO_FILE)
            NEO__TRY(neo__data_read(state->ctx, NULL, state->entries[i].slab.data, NEO_FILE, 0));
    return NEO_OK;
}
/* The sum over the elements of an entry; 0 if its memory cannot be read. */
static uint64_t neo__entry_digest(const neo_state *state, const neo__state_entry *entry) {
    const neo__slab *slab = &entry->slab;
    uint64_t sum = 0;
    if (slab->memory == NEO_HOST) return neo__slab_digest(state->ctx, entry, slab);
    NEO__ZERO(neo__rect, piece);
    while (neo__stage_next(slab, &slab->place, &piece)) {
        neo__slab stage = neo__stage_of(state->ctx, slab, &piece);
        if (neo__stage_move(state->ctx, slab, &stage, 0) != NEO_OK) return 0;
        sum += neo__slab_digest(state->ctx, entry, &stage);
    }
    return sum;
}
#if !defined(NEO_INFERENCE)
NEO_API int neo_state_digest_entry(const neo_state *state, int index, uint64_t *digest) {
    if (!state || !digest || index < 0 || index >= state->count) return 0;
    const neo__state_entry *entry = &state->entries[index];
    if (entry->is_copy || entry->kind == NEO_STATE_PROGRESS) return 0;
    neo__state_make_rows(state);
    *digest = neo__entry_digest(state, entry);
    return entry->is_part ? 2 : 1;
}
NEO_API uint64_t neo_state_digest(const neo_state *state) {
    uint64_t parts = 0, keys = 0;
    if (!state) return 0;
    neo__state_make_rows(state);
    for (int i = 0; i < state->count; i++) {
        const neo__state_entry *entry = &state->entries[i];
        if (entry->kind == NEO_STATE_PROGRESS) continue;
        if (!entry->is_copy) parts += neo__entry_digest(state, entry);
        if (entry->first == i) keys += neo__mix64(neo__entry_key(entry));
    }
    return neo__state_was_seen(state) == NEO_OK ? neo__mix64(parts + neo__mix64(keys)) : 0;
}
#endif
/* ---------------------------------------------------------------------------
   >>impl-group

   Ranks that save, load or digest together. They exchange words through the two calls of neo_group:
   a sum in which all but one rank give zeros hands that rank's words to all. Every rank makes the
   same calls in the same order: a step that may fail on one rank alone (an allocation, a file) is
   followed by an agreement before the next sum.

   A save and a digest first check which rank holds which tensor:
   - Replicas (neo_state_add): rank 0 hands out name hash, key and digest of each; the other ranks
     compare with their own.
   - Parts: every rank gets the list of all parts of all ranks. Sorted by name and row, neighbours
     that overlap show by a sweep, and the counts of elements then tell whether all is covered.
   The rank that finds a fault and knows the tensor's name words the message for all.
   ------------------------------------------------------------------------ */
typedef struct neo__meet {
    neo_ctx *ctx;
    neo_group group;
    uint64_t *each; /* a word of every rank: see neo__meet_each */
} neo__meet;
/* A part, as all ranks get to know it. Nothing but words, so that it travels through a sum. */
typedef struct neo__part_words {
    uint64_t name, key, kind, elements; /* elements: of the whole tensor */
    uint64_t rank, entry, row, col, rows, cols;
} neo__part_words;
typedef struct neo__replica_words {
    uint64_t name, key, kind, digest;
} neo__replica_words;
typedef struct neo__census {
    neo__part_words *parts; /* of all ranks, by name, row, column and rank */
    int64_t part_count;
    neo__replica_words *replicas; /* as rank 0 has them */
    int64_t replica_count;
    neo__arena arena; /* of both lists */
} neo__census;
enum { NEO__MEET_WORDS = 1 << 16 }; /* of one sum */

/* Go on together: if a rank cannot, all return the status and message of the lowest such rank. */
static neo_status neo__meet_agree(const neo__meet *meet, neo_status status) {
    if (meet->group.size == 1) return status;
    if (status != NEO_OK)
        status = neo_fail(status, "rank %d: %.480s", meet->group.rank, neo__error_text);
    return meet->group.agree(meet->group.user, status);
}
static neo_status neo__meet_sum(const neo__meet *meet, void *words, int64_t count) {
    uint64_t *w = (uint64_t *)words;
    for (int64_t at = 0; at < count && meet->group.size > 1; at += NEO__MEET_WORDS) {
        int n = (int)NEO__MIN(count - at, (int64_t)NEO__MEET_WORDS);
        NEO__TRY(meet->group.sum(meet->group.user, w + at, n));
    }
    return NEO_OK;
}
/* meet->each[r] = the word of rank r. */
static neo_status neo__meet_each(const neo__meet *meet, uint64_t word) {
    memset(meet->each, 0, (size_t)meet->group.size * sizeof *meet->each);
    meet->each[meet->group.rank] = word;
    return neo__meet_sum(meet, meet->each, meet->group.size);
}
/* A word that must be that of rank 0. */
static neo_status neo__meet_same(const neo__meet *meet, uint64_t word, const char *function,
                                 const char *what) {
    NEO__TRY(neo__meet_each(meet, word));
    neo_status status = NEO_OK;
    if (word != meet->each[0])
        status = neo_fail(NEO_ERR_MISMATCH, "%s: %s differs from that of rank 0", function, what);
    return neo__meet_agree(meet, status);
}
static void neo__meet_end(neo__meet *meet) {
    if (meet->group.patient) meet->group.patient(meet->group.user, 0);
    NEO__LIST_FREE(meet->ctx, meet->each, meet->group.size);
    meet->each = NULL;
}
static neo_status neo__meet_begin(neo__meet *meet, neo_ctx *ctx, const char *function,
                                  const neo_group *group) {
    memset(meet, 0, sizeof *meet);
    meet->ctx = ctx;
    meet->group.size = 1;
    if (group) meet->group = *group;
    int rank = meet->group.rank, size = meet->group.size;
    NEO__CHECK(size >= 1 && rank >= 0 && rank < size, NEO_ERR_ARG,
               "%s: the group has rank %d of %d", function, rank, size);
    NEO__CHECK(size == 1 || (meet->group.agree && meet->group.sum), NEO_ERR_ARG,
               "%s: the group lacks agree or sum", function);
    if (meet->group.patient) meet->group.patient(meet->group.user, 1);
    size_t bytes = neo__size_mul((size_t)size, sizeof *meet->each);
    meet->each = (uint64_t *)neo__alloc_for(ctx, bytes, function);
    neo_status status = neo__meet_agree(meet, meet->each ? NEO_OK : NEO_ERR_MEMORY);
    if (status != NEO_OK) neo__meet_end(meet);
    return status;
}

/* ---- replicas ---- */
/* The entry behind a hash of a name, or NULL. */
static const neo__state_entry *neo__state_find_hash(const neo_state *state, uint64_t hash) {
    if (state->slot_count == 0) return NULL;
    uint64_t mask = (uint64_t)state->slot_count - 1;
    for (uint64_t i = hash & mask; state->slots[i]; i = (i + 1) & mask)
        if (state->entries[state->slots[i] - 1].hash == hash)
            return &state->entries[state->slots[i] - 1];
    return NULL;
}
/* Progress is equal on all ranks when it is saved; a digest may come at any time. */
static int neo__census_takes(const neo__state_entry *entry, int progress) {
    return progress || entry->kind != NEO_STATE_PROGRESS;
}
static neo__replica_words neo__replica_of(const neo_state *state, const neo__state_entry *entry) {
    const neo__replica_words words = {entry->hash, neo__entry_key(entry), (uint64_t)entry->kind,
                                      neo__entry_digest(state, entry)};
    return words;
}
/* 1: this rank has the replica with the same bits. */
static int neo__replica_agrees(const neo_state *state, const neo__replica_words *want) {
    const neo__state_entry *entry = neo__state_find_hash(state, want->name);
    if (!entry || entry->is_part) return 0;
    neo__replica_words mine = neo__replica_of(state, entry);
    return memcmp(&mine, want, sizeof mine) == 0;
}
/* Rank 0 names the ranks whose replica is another: meet->each has 1 for those. */
static neo_status neo__replica_fail(const neo_state *state, const neo__meet *meet,
                                    const char *function, uint64_t hash) {
    char ranks[64];
    int n = 0, more = 0;
    for (int r = 0; r < meet->group.size; r++) {
        if (!meet->each[r]) continue;
        if (n > 40) more++;
        else n += snprintf(ranks + n, sizeof ranks - (size_t)n, "%s%d", n ? ", " : "", r);
    }
    if (more) snprintf(ranks + n, sizeof ranks - (size_t)n, " and %d more", more);
    return neo_fail(NEO_ERR_MISMATCH,
                    "%s: tensor %s is not the same on all ranks: ranks that lack it or hold other "
                    "bits than rank 0: %s",
                    function, neo__state_find_hash(state, hash)->name, ranks);
}
/* Refuse a replica that rank 0 lacks. */
static neo_status neo__replica_extra(const neo_state *state, const neo__census *census,
                                     const char *function, int progress) {
    for (int i = 0; i < state->count; i++) {
        const neo__state_entry *entry = &state->entries[i];
        int64_t k = 0;
        if (entry->is_part || !neo__census_takes(entry, progress)) continue;
        while (k < census->replica_count && census->replicas[k].name != entry->hash) k++;
        NEO__CHECK(k < census->replica_count, NEO_ERR_MISMATCH,
                   "%s: tensor %s is not on rank 0 as it is here, not in parts", function,
                   entry->name);
    }
    return NEO_OK;
}
/* Rank 0's list of replicas on every rank. */
static neo_status neo__replicas_share(const neo_state *state, const neo__meet *meet, int progress,
                                      neo__census *census) {
    int64_t mine = 0, at = 0;
    neo_status status;
    for (int i = 0; i < state->count; i++)
        mine += !state->entries[i].is_part && neo__census_takes(&state->entries[i], progress);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    int64_t count = (int64_t)meet->each[0];
    status = NEO__ARENA(&census->arena, census->replicas, count);
    if (status == NEO_OK) census->replica_count = count;
    for (int i = 0; i < state->count && status == NEO_OK && meet->group.rank == 0; i++)
        if (!state->entries[i].is_part && neo__census_takes(&state->entries[i], progress))
            census->replicas[at++] = neo__replica_of(state, &state->entries[i]);
    NEO__TRY(neo__meet_agree(meet, status));
    return neo__meet_sum(meet, census->replicas, 4 * count);
}
/* Each rank against that list. differs: as many words, zeros. */
static neo_status neo__replicas_compare(const neo_state *state, const neo__meet *meet,
                                        const char *function, int progress,
                                        const neo__census *census, uint64_t *differs) {
    int64_t count = census->replica_count, k = 0;
    int rank = meet->group.rank;
    neo_status status = NEO_OK;
    for (int64_t i = 0; i < count && rank > 0; i++)
        differs[i] = !neo__replica_agrees(state, &census->replicas[i]);
    NEO__TRY(neo__meet_sum(meet, differs, count));
    while (k < count && !differs[k]) k++;
    if (k == count)
        return neo__meet_agree(meet, neo__replica_extra(state, census, function, progress));
    int mine = rank > 0 && !neo__replica_agrees(state, &census->replicas[k]);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    if (rank == 0) status = neo__replica_fail(state, meet, function, census->replicas[k].name);
    return neo__meet_agree(meet, status);
}
static neo_status neo__census_replicas(const neo_state *state, const neo__meet *meet,
                                       const char *function, int progress, neo__census *census) {
    uint64_t *differs;
    NEO__TRY(neo__replicas_share(state, meet, progress, census));
    NEO__TRY(neo__meet_agree(meet, NEO__ARENA(&census->arena, differs, census->replica_count)));
    return neo__replicas_compare(state, meet, function, progress, census, differs);
}

/* ---- parts ---- */
static int neo__part_compare(const void *a, const void *b) {
    const neo__part_words *x = (const neo__part_words *)a, *y = (const neo__part_words *)b;
    if (x->name != y->name) return x->name < y->name ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    if (x->col != y->col) return x->col < y->col ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}
static void neo__part_fill(const neo_state *state, int index, int rank, neo__part_words *out) {
    const neo__state_entry *entry = &state->entries[index];
    const neo__rect *place = &entry->slab.place;
    neo__rect all = neo__rect_whole(&entry->whole);
    out->name = entry->hash;
    out->key = neo__entry_key(entry);
    out->kind = (uint64_t)entry->kind;
    out->elements = (uint64_t)all.rows * (uint64_t)all.cols;
    out->rank = (uint64_t)rank;
    out->entry = (uint64_t)index;
    out->row = (uint64_t)place->row;
    out->col = (uint64_t)place->col;
    out->rows = (uint64_t)place->rows;
    out->cols = (uint64_t)place->cols;
}
static int neo__entry_is_own(const neo__state_entry *entry) {
    return entry->is_part && !entry->is_copy;
}
/* The list of all parts of all ranks, on every rank. */
static neo_status neo__parts_share(const neo_state *state, const neo__meet *meet,
                                   neo__census *census) {
    int64_t mine = 0, total = 0, at = 0;
    for (int i = 0; i < state->count; i++) mine += neo__entry_is_own(&state->entries[i]);
    NEO__TRY(neo__meet_each(meet, (uint64_t)mine));
    for (int r = 0; r < meet->group.size; r++) {
        if (r == meet->group.rank) at = total;
        total += (int64_t)meet->each[r];
    }
    NEO__TRY(neo__meet_agree(meet, NEO__ARENA(&census->arena, census->parts, total)));
    census->part_count = total;
    for (int i = 0; i < state->count; i++)
        if (neo__entry_is_own(&state->entries[i]))
            neo__part_fill(state, i, meet->group.rank, &census->parts[at++]);
    NEO__TRY(neo__meet_sum(meet, census->parts, 10 * total));
    if (total > 1) qsort(census->parts, (size_t)total, sizeof *census->parts, neo__part_compare);
    return NEO_OK;
}
static neo__rect neo__part_rect(const neo__part_words *p) {
    neo__rect rect = {(int64_t)p->row, (int64_t)p->col, (int64_t)p->rows, (int64_t)p->cols};
    return rect;
}
/* Parts [0, count) are those of one tensor: NEO_OK or, on the rank of the first of them, what is
   wrong. fault: on all ranks, whether something is. */
static neo_status neo__parts_check(const neo_state *state, int rank, const char *function,
                                   const neo__part_words *part, int64_t count, int *fault) {
    uint64_t elements = 0;
    int speaks = part->rank == (uint64_t)rank;
    const char *name = speaks ? state->entries[part->entry].name : "";
    for (int64_t i = 0; i < count && !*fault; i++) {
        const neo__part_words *words = &part[i];
        elements += words->rows * words->cols;
        *fault = words->key != part->key || words->kind != part->kind;
        if (*fault && speaks)
            return neo_fail(NEO_ERR_MISMATCH,
                            "%s: tensor %s has another dtype, whole shape or kind on rank %" PRIu64
                            " than on rank %" PRIu64,
                            function, name, words->rank, part->rank);
        for (int64_t k = i + 1; k < count && part[k].row < words->row + words->rows && !*fault;
             k++) {
            neo__rect x = neo__part_rect(words), y = neo__part_rect(&part[k]);
            neo__rect cut = neo__rect_cut(&x, &y);
            *fault = cut.rows > 0;
            if (*fault && speaks)
                return neo_fail(NEO_ERR_MISMATCH,
                                "%s: tensor %s: rows %" PRId64 " to %" PRId64 ", columns %" PRId64
                                " to %" PRId64 " are on rank %" PRIu64 " and on rank %" PRIu64,
                                function, name, cut.row, cut.row + cut.rows - 1, cut.col,
                                cut.col + cut.cols - 1, words->rank, part[k].rank);
        }
    }
    if (*fault || elements == part->elements) return NEO_OK;
    *fault = 1;
    NEO__CHECK(!speaks, NEO_ERR_MISMATCH,
               "%s: tensor %s: the parts of all ranks hold %" PRIu64 " of its %" PRIu64 " elements "
               "(all ranks are those of the group; without one, this rank)",
               function, name, elements, part->elements);
    return NEO_OK;
}
static neo_status neo__census_parts(const neo_state *state, const neo__meet *meet,
                                    const char *function, neo__census *census) {
    NEO__TRY(neo__parts_share(state, meet, census));
    neo_status status = NEO_OK;
    int fault = 0;
    for (int64_t i = 0, end; i < census->part_count && !fault; i = end) {
        for (end = i + 1; end < census->part_count;) {
            if (census->parts[end].name != census->parts[i].name) break;
            end++;
        }
        status =
            neo__parts_check(state, meet->group.rank, function, &census->parts[i], end - i, &fault);
    }
    return neo__meet_agree(meet, status);
}
/* Collect the tensors of all ranks and check that they make one state. */
static neo_status neo__census_take(const neo_state *state, const neo__meet *meet,
                                   const char *function, int progress, neo__census *census) {
    census->arena.ctx = meet->ctx;
    census->arena.function = function;
    NEO__TRY(neo__census_replicas(state, meet, function, progress, census));
    return neo__census_parts(state, meet, function, census);
}

/* ---- digest ---- */
static neo_status neo__digest_meet(const neo_state *state, const neo__meet *meet,
                                   uint64_t *digest) {
    NEO__ZERO(neo__census, census);
    uint64_t sum = 0, keys = 0;
    neo_status status = neo__census_take(state, meet, "neo_state_digest_group", 0, &census);
    for (int i = 0; i < state->count && status == NEO_OK; i++)
        if (neo__entry_is_own(&state->entries[i]) && neo__census_takes(&state->entries[i], 0))
            sum += neo__entry_digest(state, &state->entries[i]);
    if (status == NEO_OK) status = neo__meet_agree(meet, neo__state_was_seen(state));
    if (status == NEO_OK) status = neo__meet_sum(meet, &sum, 1);
    for (int64_t i = 0; i < census.replica_count; i++) {
        sum += census.replicas[i].digest;
        keys += neo__mix64(census.replicas[i].key);
    }
    for (int64_t i = 0; i < census.part_count; i++) {
        const neo__part_words *part = &census.parts[i];
        int again = i > 0 && part[-1].name == part->name;
        if (!again && part->kind != (uint64_t)NEO_STATE_PROGRESS) keys += neo__mix64(part->key);
    }
    if (status == NEO_OK) *digest = neo__mix64(sum + neo__mix64(keys));
    neo__arena_free(&census.arena);
    return status;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_state_digest_group(const neo_state *state, const neo_group *group,
                                          uint64_t *digest) {
    NEO__ENTER(state, "neo_state_digest_group", "state");
    NEO__CHECK(digest, NEO_ERR_ARG, "neo_state_digest_group: digest is NULL");
    neo__meet meet;
    neo__state_make_rows(state);
    NEO__TRY(neo__meet_begin(&meet, state->ctx, "neo_state_digest_group", group));
    neo_status status = neo__digest_meet(state, &meet, digest);
    neo__meet_end(&meet);
    return status;
}
#endif
/* ---------------------------------------------------------------------------
   >>impl-safetensors

   A file is: 8 bytes, the length N of the header (little-endian); N bytes of JSON,
     {"__metadata__": {"key": "value"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets":
     [0, 24]}};
   then the data, which the offset ranges tile without gap or overlap. The reader believes nothing:
   N is bounded by the file and by 100 MB (as the reference implementation), keys are unique, a
   range is exactly as long as dtype and shape say. The writer sorts by element size, so that every
   tensor is aligned, and pads the header with spaces to a multiple of 8. It writes to
   "<path>.partial" and renames.
   ------------------------------------------------------------------------ */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "neo_state.h: its file formats are little-endian, and so must be the machine"
#endif
enum { NEO__ST_HEADER_BYTES = 100000000 };

typedef struct neo__st_dtype {
    const char *name;
    int bits;
    int dtype; /* neo_dtype, or -1: known to the format only */
} neo__st_dtype;
static const neo__st_dtype neo__st_dtypes[] = {
    {"F32", 32, NEO_F32},
    {"F16", 16, NEO_F16},
    {"BF16", 16, NEO_BF16},
    {"F8_E4M3", 8, NEO_F8E4M3},
    {"F8_E5M2", 8, NEO_F8E5M2},
    {"I8", 8, NEO_I8},
    {"I32", 32, NEO_I32},
    {"I64", 64, NEO_I64},
    {"U8", 8, NEO_U8},
    {"F64", 64, NEO_F64},
    {"I16", 16, -1},
    {"U16", 16, -1},
    {"U32", 32, -1},
    {"U64", 64, -1},
    {"BOOL", 8, -1},
    {"C64", 64, -1},
    {"F8_E8M0", 8, -1},
    {"F4", 4, -1},
    {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},
};
enum { NEO__ST_DTYPE_COUNT = sizeof neo__st_dtypes / sizeof neo__st_dtypes[0] };

typedef struct neo__st_tensor {
    const char *name; /* in the header's text */
    int64_t begin, end;
    int64_t shape[NEO_MAX_DIMS];
    int ndim;  /* of the file: may exceed NEO_MAX_DIMS; then shape is not all of it */
    int dtype; /* in neo__st_dtypes */
} neo__st_tensor;
/* An element of a list sorted by name. */
typedef struct neo__st_name {
    const char *name, *value; /* value: of metadata */
    int index;                /* of a tensor */
} neo__st_name;
struct neo_safetensors {
    neo_ctx *ctx;
    neo__live live;
    char *path;
    neo__file file;
    char *header;
    size_t header_bytes;
    int64_t data_offset, data_bytes;
    neo__st_tensor *tensors; /* in the order of their data */
    int count;
    int64_t capacity;
    neo__st_name *by_name;
    neo__st_name *metadata;
    int has_metadata, metadata_count;
    int64_t metadata_capacity;
};

/* ---- reading the header ---- */
static neo_status neo__st_parse_dtype(neo__json *j, neo__st_tensor *t) {
    char *name = NULL;
    size_t at = j->at;
    NEO__TRY(neo__json_string(j, &name));
    for (int i = 0; i < NEO__ST_DTYPE_COUNT; i++) {
        t->dtype = i;
        if (strcmp(name, neo__st_dtypes[i].name) == 0) return NEO_OK;
    }
    return neo__json_fail(j, at, "a dtype the format does not know");
}
/* The shape, and its number of elements. */
static neo_status neo__st_parse_shape(neo__json *json, neo__st_tensor *tensor, int64_t *elements) {
    int more = 1, empty = 0;
    int64_t product = 1;
    NEO__TRY(neo__json_open(json, '['));
    for (tensor->ndim = 0;; tensor->ndim++) {
        int64_t extent = 0;
        NEO__TRY(neo__json_next(json, ']', tensor->ndim, &more));
        if (!more) break;
        NEO__TRY(neo__json_count(json, &extent));
        if (tensor->ndim < NEO_MAX_DIMS) tensor->shape[tensor->ndim] = extent;
        if (extent == 0) empty = 1;
        else if (product > INT64_MAX / 64 / extent)
            return neo__json_fail(json, json->at, "a shape that is too large");
        else product *= extent;
    }
    *elements = empty ? 0 : product;
    return NEO_OK;
}
static neo_status neo__st_parse_range(neo__json *j, neo__st_tensor *t) {
    NEO__TRY(neo__json_expect(j, '['));
    NEO__TRY(neo__json_count(j, &t->begin));
    NEO__TRY(neo__json_expect(j, ','));
    NEO__TRY(neo__json_count(j, &t->end));
    return neo__json_expect(j, ']');
}
/* {"dtype": ..., "shape": ..., "data_offsets": ...}, each once. */
static neo_status neo__st_parse_tensor(neo__json *json, neo__st_tensor *tensor) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int seen = 0;
    int64_t elements = 0;
    size_t start = json->at;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        char *key;
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        size_t at = (size_t)(key - json->text) - 1;
        int k = 0;
        while (k < 3 && strcmp(key, keys[k]) != 0) k++;
        if (k == 3)
            return neo__json_fail(json, at, "a key that is none of dtype, shape, data_offsets");
        if (seen & 1 << k) return neo__json_fail(json, at, "a key that is there twice");
        seen |= 1 << k;
        if (k == 0) NEO__TRY(neo__st_parse_dtype(json, tensor));
        if (k == 1) NEO__TRY(neo__st_parse_shape(json, tensor, &elements));
        if (k == 2) NEO__TRY(neo__st_parse_range(json, tensor));
    }
    if (seen != 7)
        return neo__json_fail(json, start, "a tensor without dtype, shape or data_offsets");
    int64_t bits = elements * neo__st_dtypes[tensor->dtype].bits;
    if (tensor->end < tensor->begin || bits % 8 != 0 || tensor->end - tensor->begin != bits / 8)
        return neo_fail(NEO_ERR_FORMAT,
                        "%s: byte %" PRIu64 ": tensor %s: data_offsets [%" PRId64 ", %" PRId64
                        "] do not hold %" PRId64 " elements of %s",
                        json->file, json->offset + start, tensor->name, tensor->begin, tensor->end,
                        elements, neo__st_dtypes[tensor->dtype].name);
    return NEO_OK;
}
static int neo__st_compare_names(const void *a, const void *b) {
    return strcmp(((const neo__st_name *)a)->name, ((const neo__st_name *)b)->name);
}
/* Sort a list; the name that is in it twice, or NULL. */
static const char *neo__st_sort_names(neo__st_name *list, int count) {
    if (count > 1) qsort(list, (size_t)count, sizeof *list, neo__st_compare_names);
    for (int i = 1; i < count; i++)
        if (strcmp(list[i - 1].name, list[i].name) == 0) return list[i].name;
    return NULL;
}
static const neo__st_name *neo__st_find_name(const neo__st_name *list, int count,
                                             const char *name) {
    neo__st_name key = {name, NULL, 0};
    if (count == 0) return NULL;
    return (const neo__st_name *)bsearch(&key, list, (size_t)count, sizeof *list,
                                         neo__st_compare_names);
}
/* Pairs of strings, in the list sorted by key; equal keys are refused. */
static neo_status neo__st_parse_metadata(neo__json *json, neo_safetensors *file) {
    size_t start = json->at;
    if (file->has_metadata) return neo__json_fail(json, start, "__metadata__ is there twice");
    file->has_metadata = 1;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        char *key, *value;
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        NEO__TRY(neo__json_string(json, &value));
        NEO__TRY(NEO__GROW(file->ctx, file->metadata, file->metadata_capacity,
                           file->metadata_count + 1));
        file->metadata[file->metadata_count].name = key;
        file->metadata[file->metadata_count++].value = value;
    }
    return neo__st_sort_names(file->metadata, file->metadata_count)
               ? neo__json_fail(json, start, "a metadata key that is there twice")
               : NEO_OK;
}

static int neo__st_compare_ranges(const void *a, const void *b) {
    const neo__st_tensor *x = (const neo__st_tensor *)a, *y = (const neo__st_tensor *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}
/* Order the tensors by their data and by name; ranges must tile the data and names must differ. */
static neo_status neo__st_index(neo_safetensors *file) {
    int count = file->count;
    int64_t at = 0;
    file->by_name = (neo__st_name *)neo__alloc_for(file->ctx, (size_t)count * sizeof *file->by_name,
                                                   file->path);
    if (!file->by_name) return NEO_ERR_MEMORY;
    if (count > 1)
        qsort(file->tensors, (size_t)count, sizeof *file->tensors, neo__st_compare_ranges);
    for (int i = 0; i < count; i++) {
        const neo__st_tensor *t = &file->tensors[i];
        NEO__CHECK(t->begin == at, NEO_ERR_FORMAT,
                   "%s: tensor %s: its data begins at byte %" PRId64
                   " of the data, the one before ends at %" PRId64,
                   file->path, t->name, t->begin, at);
        at = t->end;
        file->by_name[i].name = t->name;
        file->by_name[i].index = i;
    }
    NEO__CHECK(at == file->data_bytes, NEO_ERR_FORMAT,
               "%s: the header describes %" PRId64 " bytes of data, the file has %" PRId64,
               file->path, at, file->data_bytes);
    const char *twice = neo__st_sort_names(file->by_name, count);
    NEO__CHECK(!twice, NEO_ERR_FORMAT, "%s: tensor %s is there twice", file->path, twice);
    return NEO_OK;
}
/* The header's text is in file->header, the sizes are set. */
static neo_status neo__st_parse(neo_safetensors *file) {
    NEO__ZERO(neo__json, json);
    json.text = file->header;
    json.size = file->header_bytes;
    json.file = file->path;
    json.offset = 8;
    if (json.size == 0 || json.text[0] != '{')
        return neo__json_fail(&json, 0, "the header does not begin with '{'");
    NEO__TRY(neo__json_open(&json, '{'));
    for (int i = 0;; i++) {
        char *name;
        NEO__TRY(neo__json_member(&json, i, &name));
        if (!name) break;
        if (strcmp(name, "__metadata__") == 0) {
            NEO__TRY(neo__st_parse_metadata(&json, file));
            continue;
        }
        NEO__TRY(NEO__GROW(file->ctx, file->tensors, file->capacity, file->count + 1));
        neo__st_tensor *t = &file->tensors[file->count++];
        memset(t, 0, sizeof *t);
        t->name = name;
        NEO__TRY(neo__st_parse_tensor(&json, t));
    }
    NEO__TRY(neo__json_end(&json));
    return neo__st_index(file);
}
static neo_status neo__st_read_header(neo_safetensors *file) {
    unsigned char length[8];
    int64_t size = neo__file_size(&file->file);
    NEO__CHECK(size >= 8, NEO_ERR_FORMAT, "%s: not a safetensors file: %s", file->path,
               size < 0 ? "it has no size" : "shorter than 8 bytes");
    NEO__TRY(neo__file_read_at(&file->file, 0, length, 8));
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)length[i] << 8 * i;
    NEO__CHECK(n >= 2 && n <= NEO__ST_HEADER_BYTES && n <= (uint64_t)(size - 8), NEO_ERR_FORMAT,
               "%s: byte 0: not a safetensors file: a header of %" PRIu64
               " bytes cannot be in a file of %" PRId64, file->path, n, size);
    file->data_offset = 8 + (int64_t)n;
    file->data_bytes = size - file->data_offset;
    file->header = (char *)neo__alloc_for(file->ctx, (size_t)n, file->path);
    if (!file->header) return NEO_ERR_MEMORY;
    file->header_bytes = (size_t)n;
    NEO__TRY(neo__file_read_at(&file->file, 8, file->header, (size_t)n));
    return neo__st_parse(file);
}
/* A copy of a string in the context's memory; free with neo__string_free. */
static char *neo__string_copy(neo_ctx *ctx, const char *s) {
    size_t bytes = strlen(s) + 1;
    char *p = (char *)neo_alloc(ctx, bytes);
    if (p) memcpy(p, s, bytes);
    return p;
}
static void neo__string_free(neo_ctx *ctx, char *s) {
    if (s) neo_free(ctx, s, strlen(s) + 1);
}
NEO_API neo_status neo_safetensors_open(neo_ctx *ctx, const char *path, neo_safetensors **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_safetensors_open: file is NULL");
    *out = NULL;
    NEO__TRY(neo__check_ctx("neo_safetensors_open", ctx));
    NEO__CHECK(path, NEO_ERR_ARG, "neo_safetensors_open: path is NULL");
    neo__file handle;
    NEO__TRY(neo__file_open(&handle, path, NEO__FILE_READ));
    neo_safetensors *file = (neo_safetensors *)neo__alloc_zero(ctx, sizeof *file);
    if (!file) {
        (void)neo__file_close(&handle);
        return neo_fail(NEO_ERR_MEMORY, "neo_safetensors_open: %s: no memory", path);
    }
    file->ctx = ctx;
    file->file = handle;
    file->path = neo__string_copy(ctx, path);
    file->file.path = file->path;
    neo_status status = file->path
                            ? neo__st_read_header(file)
                            : neo_fail(NEO_ERR_MEMORY, "neo_safetensors_open: %s: no memory", path);
    neo__live_begin(ctx, &file->live, "safetensors", path);
    if (status == NEO_OK) *out = file;
    else neo_safetensors_close(file);
    return status;
}
NEO_API void neo_safetensors_close(neo_safetensors *file) {
    if (!file) return;
    neo_ctx *ctx = file->ctx;
    neo__live_end(ctx, &file->live);
    neo__file_close(&file->file);
    NEO__LIST_FREE(ctx, file->by_name, file->count);
    NEO__LIST_FREE(ctx, file->metadata, file->metadata_capacity);
    NEO__LIST_FREE(ctx, file->tensors, file->capacity);
    neo_free(ctx, file->header, file->header_bytes);
    neo__string_free(ctx, file->path);
    neo_free(ctx, file, sizeof *file);
}

/* ---- reading ---- */
NEO_API int neo_safetensors_count(const neo_safetensors *file) { return file->count; }
NEO_API const char *neo_safetensors_name(const neo_safetensors *file, int index) {
    return index >= 0 && index < file->count ? file->tensors[index].name : NULL;
}
NEO_API int neo_safetensors_find(const neo_safetensors *file, const char *name) {
    const neo__st_name *found = neo__st_find_name(file->by_name, file->count, name);
    return found ? found->index : -1;
}
NEO_API const char *neo_safetensors_metadata(const neo_safetensors *file, const char *key) {
    const neo__st_name *found = neo__st_find_name(file->metadata, file->metadata_count, key);
    return found ? found->value : NULL;
}
NEO_API neo_status neo_safetensors_info(const neo_safetensors *file, int index,
                                        neo_tensor *tensor) {
    NEO__CHECK(tensor && index >= 0 && index < file->count, NEO_ERR_ARG,
               "neo_safetensors_info: %s: t is NULL or there is no tensor %d", file->path, index);
    const neo__st_tensor *in = &file->tensors[index];
    const neo__st_dtype *dtype = &neo__st_dtypes[in->dtype];
    NEO__CHECK(dtype->dtype >= 0, NEO_ERR_UNSUPPORTED,
               "%s: tensor %s has dtype %s, which neo has not", file->path, in->name, dtype->name);
    NEO__CHECK(in->ndim <= NEO_MAX_DIMS, NEO_ERR_UNSUPPORTED,
               "%s: tensor %s has %d dimensions, more than %d", file->path, in->name, in->ndim,
               NEO_MAX_DIMS);
    *tensor = neo_tensor_nd(NULL, (neo_dtype)dtype->dtype, in->ndim, in->shape);
    return NEO_OK;
}

static int neo__converts(neo_dtype from, neo_dtype to) {
    int wide = from == NEO_F32 || from == NEO_F16 || from == NEO_BF16;
    return from == to || (wide && (to == NEO_F32 || to == NEO_F16 || to == NEO_BF16));
}
/* Check shape and dtype of the whole tensor, as a read would. */
static neo_status neo__st_check(const neo_safetensors *file, int index, const neo_tensor *tensor,
                                int transposed) {
    neo_tensor info, want = *tensor;
    NEO__TRY(neo_safetensors_info(file, index, &info));
    char a[96], b[96];
    const char *name = file->tensors[index].name;
    NEO__CHECK(!transposed || tensor->ndim == 2, NEO_ERR_MISMATCH,
               "%s: tensor %s: a weight of shape %s cannot be transposed in the file: it has not "
               "two dimensions",
               file->path, name, neo__shape_text(tensor, b));
    if (transposed) want.shape[0] = tensor->shape[1], want.shape[1] = tensor->shape[0];
    NEO__CHECK(neo__shapes_equal(&info, &want), NEO_ERR_MISMATCH,
               "%s: tensor %s has shape %s, expected %s%s", file->path, name,
               neo__shape_text(&info, a), neo__shape_text(&want, b),
               transposed ? ", transposed" : "");
    NEO__CHECK(neo__converts(info.dtype, tensor->dtype), NEO_ERR_MISMATCH,
               "%s: tensor %s is %s, expected %s", file->path, name, neo_dtype_name(info.dtype),
               neo_dtype_name(tensor->dtype));
    return NEO_OK;
}
/* A rectangle of a tensor as a file holds it, row by row. */
typedef struct neo__st_rect {
    int64_t offset; /* in the file */
    neo_dtype dtype;
    neo__rect place;
    int64_t numbers, count; /* numbers not 0: of its rows the file has `count`, whose numbers are
                               there, i32 or i64 */
    neo_dtype number_dtype;
} neo__st_rect;
static neo__st_rect neo__st_rect_of(const neo_safetensors *file, int index) {
    NEO__ZERO(neo__st_rect, rect);
    neo_tensor info;
    const neo__st_tensor *t = &file->tensors[index];
    rect.dtype = (neo_dtype)neo__st_dtypes[t->dtype].dtype;
    rect.offset = file->data_offset + t->begin;
    info = neo_tensor_nd(NULL, rect.dtype, t->ndim, t->shape);
    rect.place = neo__rect_whole(&info);
    return rect;
}
/* Rows shorter than this are read several at once, with what lies between them, through a buffer
   of that many bytes. */
enum { NEO__ST_ROW_BYTES = 4096, NEO__ST_BUFFER_BYTES = 1 << 18 };
/* From buffer [rows][width], `step` apart, to memory: elements between its rows and its columns. */
typedef struct neo__st_steps {
    int64_t row, col;
} neo__st_steps;
static neo_status neo__st_scatter(neo_ctx *ctx, char *buffer, neo_dtype from, int64_t step,
                                  char *data, neo_dtype to, neo__st_steps steps, int64_t rows,
                                  int64_t width) {
    size_t size = neo_dtype_size(from);
    if (from != to || steps.col != 1) {
        neo_tensor src = neo_tensor_2d(buffer, from, rows, width);
        neo_tensor dst = neo_tensor_2d(data, to, rows, width);
        src.stride[0] = step;
        dst.stride[0] = steps.row;
        dst.stride[1] = steps.col;
        return neo_tensor_convert(ctx, src, dst, NULL);
    }
    for (int64_t row = 0; row < rows; row++)
        memcpy(data + (size_t)(row * steps.row) * size, buffer + (size_t)(row * step) * size,
               (size_t)width * size);
    return NEO_OK;
}
/* `count` of the row numbers from the first on, as i64. */
enum { NEO__ST_NUMBERS = 4096 };
static neo_status neo__st_read_numbers(const neo__file *file, const neo__st_rect *rect,
                                       int64_t first, int64_t count, int64_t *numbers) {
    const size_t size = neo_dtype_size(rect->number_dtype);
    char *from = (char *)(numbers + count) - (size_t)count * size; /* of i32 at the end */
    NEO__TRY(neo__file_read_at(file, rect->numbers + first * (int64_t)size, from,
                               (size_t)count * size));
    for (int64_t i = 0; size == sizeof(int32_t) && i < count; i++) {
        int32_t number;
        memcpy(&number, from + (size_t)i * size, size);
        numbers[i] = number;
    }
    return NEO_OK;
}
/* Check that the numbers ascend, and are rows of the rectangle. */
static neo_status neo__st_check_numbers(neo_ctx *ctx, const neo_safetensors *file, int index,
                                        const neo__st_rect *rect) {
    int64_t *numbers = (int64_t *)(void *)neo__shared_scratch(ctx), least = rect->place.row;
    for (int64_t at = 0, n; at < rect->count; at += n) {
        n = NEO__MIN(rect->count - at, (int64_t)NEO__ST_NUMBERS);
        NEO__TRY(neo__st_read_numbers(&file->file, rect, at, n, numbers));
        for (int64_t i = 0; i < n; least = numbers[i++] + 1)
            NEO__CHECK(numbers[i] >= least && numbers[i] < rect->place.row + rect->place.rows,
                       NEO_ERR_FORMAT,
                       "%s: tensor %s: row number %" PRId64 " is %" PRId64 ", not in [%" PRId64
                       ", %" PRId64 ")",
                       file->path, file->tensors[index].name, at + i, numbers[i], least,
                       rect->place.row + rect->place.rows);
    }
    return NEO_OK;
}
/* The same of changed rows. Wide ones are read one by one, others through the context's scratch,
   which has their numbers too. */
static neo_status neo__st_read_rows(neo_ctx *ctx, const neo__file *file, const neo__st_rect *rect,
                                    const neo__slab *slab) {
    const neo__rect cut = neo__rect_cut(&rect->place, &slab->place);
    const size_t size = neo_dtype_size(rect->dtype), step = (size_t)rect->place.cols * size,
                 skip = (size_t)(cut.col - rect->place.col) * size, width = (size_t)cut.cols * size;
    int64_t *numbers = (int64_t *)(void *)neo__shared_scratch(ctx);
    char *buffer = (char *)(numbers + NEO__ST_NUMBERS);
    const int wide = step >= NEO__ST_ROW_BYTES;
    const int64_t most = wide ? 1 : NEO__MIN((int64_t)(NEO__ST_BUFFER_BYTES / step),
                                             (int64_t)NEO__ST_NUMBERS);
    for (int64_t at = 0, n; at < rect->count; at += n) {
        n = NEO__MIN(rect->count - at, most);
        NEO__TRY(neo__st_read_numbers(file, rect, at, n, numbers));
        if (numbers[n - 1] < cut.row || numbers[0] >= cut.row + cut.rows) continue;
        if (!wide)
            NEO__TRY(neo__file_read_at(file, rect->offset + at * (int64_t)step, buffer,
                                       (size_t)n * step));
        for (int64_t i = 0; i < n; i++) {
            if (numbers[i] < cut.row || numbers[i] >= cut.row + cut.rows) continue;
            char *to = slab->data + (size_t)((numbers[i] - slab->place.row) * slab->step + cut.col -
                                             slab->place.col) * size;
            for (size_t done = 0, piece; wide && done < width; done += piece) {
                piece = NEO__MIN(width - done, (size_t)NEO__ST_BUFFER_BYTES);
                NEO__TRY(neo__file_read_at(file, rect->offset + at * (int64_t)step +
                                                     (int64_t)(skip + done), buffer, piece));
                NEO__TRY(neo__data_write(ctx, to + done, slab->memory, buffer, piece));
            }
            if (!wide)
                NEO__TRY(neo__data_write(ctx, to, slab->memory, buffer + (size_t)i * step + skip,
                                         width));
        }
    }
    return NEO_OK;
}
/* The part of a slab that a rectangle of the file holds, from the file to memory. transposed: rows
   of memory are columns of the file. The context's scratch is the buffer. */
static neo_status neo__st_read_rect(neo_ctx *ctx, const neo__file *file, const neo__st_rect *rect,
                                    const neo__slab *slab, int transposed) {
    neo__rect place = transposed ? neo__rect_turned(&slab->place) : slab->place; /* in the file */
    neo__rect cut = neo__rect_cut(&rect->place, &place);
    if (cut.rows == 0) return NEO_OK;
    if (rect->numbers) return neo__st_read_rows(ctx, file, rect, slab);
    if (slab->memory != NEO_HOST) { /* by way of the stage */
        neo__rect all = transposed ? neo__rect_turned(&cut) : cut;
        NEO__ZERO(neo__rect, piece);
        while (neo__stage_next(slab, &all, &piece)) {
            neo__slab stage = neo__stage_of(ctx, slab, &piece);
            NEO__TRY(neo__st_read_rect(ctx, file, rect, &stage, transposed));
            NEO__TRY(neo__stage_move(ctx, slab, &stage, 1));
        }
        return NEO_OK;
    }
    const size_t from = neo_dtype_size(rect->dtype), to = neo_dtype_size(slab->dtype);
    const neo__st_steps steps = {transposed ? 1 : slab->step, transposed ? slab->step : 1};
    const int64_t step = rect->place.cols, room = (int64_t)(NEO__ST_BUFFER_BYTES / from);
    int64_t rows = cut.rows, width = cut.cols;
    int64_t at = (cut.row - rect->place.row) * step + cut.col - rect->place.col;
    char *buffer = neo__shared_scratch(ctx), *data = slab->data;
    data += (size_t)((cut.row - place.row) * steps.row + (cut.col - place.col) * steps.col) * to;
    if (!transposed && width == step && width == slab->step) { /* one piece on both sides */
        width *= rows;
        rows = 1;
    }
    int wide = (size_t)width * from >= NEO__ST_ROW_BYTES;
    int direct = !transposed && rect->dtype == slab->dtype && (rows == 1 || wide);
    int64_t piece = direct ? width : NEO__MIN(width, room); /* of a row */
    int64_t batch = direct || (transposed && wide) ? 1 : NEO__MIN((room - piece) / step + 1, rows);
    for (int64_t row = 0; row < rows; row += batch) {
        int64_t n = NEO__MIN(batch, rows - row);
        for (int64_t col = 0, w; col < width; col += w) {
            w = NEO__MIN(piece, width - col);
            int64_t offset = rect->offset + (at + row * step + col) * (int64_t)from;
            char *out = data + (size_t)(row * steps.row + col * steps.col) * to;
            size_t bytes = (size_t)((n - 1) * step + w) * from;
            NEO__TRY(neo__file_read_at(file, offset, direct ? out : buffer, bytes));
            if (direct) continue;
            NEO__TRY(
                neo__st_scatter(ctx, buffer, rect->dtype, step, out, slab->dtype, steps, n, w));
        }
    }
    return NEO_OK;
}
NEO_API neo_status neo_safetensors_read(neo_safetensors *file, int index, neo_tensor tensor) {
    NEO__CHECK_LIVE(file, "neo_safetensors_read", "file");
    NEO__CHECK(index >= 0 && index < file->count, NEO_ERR_ARG,
               "neo_safetensors_read: there is no tensor %d", index);
    NEO__TRY(neo__st_check(file, index, &tensor, 0));
    if (tensor.absent && !tensor.data)
        return neo__no_data("neo_safetensors_read", file->tensors[index].name, tensor,
                            NEO_ERR_STATE);
    NEO__CHECK(neo__tensor_is_storable(&tensor), NEO_ERR_ARG,
               "%s: tensor %s: what to read into is none or not contiguous", file->path,
               file->tensors[index].name);
    if (tensor.place == NEO_DEVICE)
        NEO__TRY(neo__check_place(file->ctx, tensor, "neo_safetensors_read", "t"));
    neo__st_rect rect = neo__st_rect_of(file, index);
    neo__slab slab = neo__slab_whole(&tensor);
    return neo__st_read_rect(file->ctx, &file->file, &rect, &slab, 0);
}

/* ---- writing ---- */
typedef struct neo__st_item {
    const char *name;
    const neo_tensor *tensor;
    const neo_tensor *numbers; /* of the rows that go into the file, as many as the tensor says;
                                  NULL: all */
    int64_t first;             /* the number of the row at its data */
    neo__row_marks *marks;     /* of its rows, if they are tracked */
    struct neo__row_guard *guard; /* if they change while they are written */
    int guarded;                  /* the tensor's number in it */
} neo__st_item;
#if !defined(NEO_INFERENCE)
static void neo__st_put_guarded(neo__out *out, const neo__st_item *item); /* see >>impl-saving */
#endif
static int64_t neo__st_number(const neo_tensor *numbers, int64_t i) {
    return numbers->dtype == NEO_I32 ? ((const int32_t *)numbers->data)[i]
                                     : ((const int64_t *)numbers->data)[i];
}
/* Bytes that the shape takes, with or without data. */
static size_t neo__st_bytes(const neo_tensor *t) {
    int64_t count = NEO__MAX(neo__shape_count(t->ndim, t->shape), 0);
    return neo__size_mul((size_t)count, neo_dtype_size(t->dtype));
}
/* A source of data for tensors that are not in memory. */
typedef struct neo__st_source {
    neo_tensor_fn fn;
    void *user;
    const neo_tensor *tensors; /* what fn counts */
} neo__st_source;
static int neo__st_compare_sizes(const neo__st_item *x, const neo__st_item *y) {
    size_t sx = neo_dtype_size(x->tensor->dtype), sy = neo_dtype_size(y->tensor->dtype);
    return (sx < sy) - (sx > sy);
}
static int neo__st_compare_items(const void *a, const void *b) {
    const neo__st_item *x = (const neo__st_item *)a, *y = (const neo__st_item *)b;
    int sizes = neo__st_compare_sizes(x, y);
    return sizes ? sizes : strcmp(x->name, y->name);
}
/* The order of tensors of one size: that of their array. */
static int neo__st_compare_places(const void *a, const void *b) {
    const neo__st_item *x = (const neo__st_item *)a, *y = (const neo__st_item *)b;
    int sizes = neo__st_compare_sizes(x, y);
    return sizes ? sizes : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}
static void neo__st_put_header(neo__out *out, const neo__st_item *items, int count,
                               const char *const *metadata, int metadata_count) {
    uint64_t at = 0;
    neo__out_text(out, "{\"__metadata__\":{");
    for (int i = 0; i < metadata_count; i++) {
        if (i > 0) neo__out_text(out, ",");
        neo__out_string(out, metadata[2 * i]);
        neo__out_text(out, ":");
        neo__out_string(out, metadata[2 * i + 1]);
    }
    neo__out_text(out, "}");
    for (int i = 0; i < count; i++) {
        const neo_tensor *t = items[i].tensor;
        const char *dtype = "";
        for (int k = 0; k < NEO__ST_DTYPE_COUNT; k++)
            if (neo__st_dtypes[k].dtype == (int)t->dtype) dtype = neo__st_dtypes[k].name;
        neo__out_text(out, ",");
        neo__out_string(out, items[i].name);
        neo__out_format(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
        for (int d = 0; d < t->ndim; d++)
            neo__out_format(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        uint64_t end = at + neo__st_bytes(t);
        neo__out_format(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
        at = end;
    }
    neo__out_text(out, "}");
}
static void neo__st_put_staged(neo__out *out, const neo_tensor *tensor) {
    neo__slab slab = neo__slab_whole(tensor);
    if (tensor->ndim > 0 && tensor->shape[0] > 1 && !neo_tensor_is_contiguous(*tensor))
        slab.step = tensor->stride[0];
    NEO__ZERO(neo__rect, piece);
    while (out->status == NEO_OK && neo__stage_next(&slab, &slab.place, &piece)) {
        neo__slab stage = neo__stage_of(out->ctx, &slab, &piece);
        neo_status status = neo__stage_move(out->ctx, &slab, &stage, 0);
        if (status != NEO_OK) out->status = status;
        else
            neo__out_bytes(out, stage.data,
                           (size_t)(piece.rows * piece.cols) * neo_dtype_size(slab.dtype));
    }
}
/* Some rows of a tensor in the host's memory, or in a file. */
static void neo__st_put_rows(neo__out *out, const neo__st_item *item) {
    const neo_tensor *t = item->tensor;
    const size_t size = neo_dtype_size(t->dtype),
                 width = t->ndim > 1 ? (size_t)t->shape[1] * size : size;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        const int64_t row = neo__st_number(item->numbers, i) - item->first;
        const char *from = (const char *)t->data + (size_t)(row * t->stride[0]) * size;
        if (t->place == NEO_HOST) neo__out_bytes(out, from, width);
        for (size_t done = 0, n; t->place != NEO_HOST && done < width; done += n) {
            char *buffer = (char *)neo__shared_scratch(out->ctx);
            n = NEO__MIN(width - done, (size_t)NEO__ST_BUFFER_BYTES);
            if (out->status == NEO_OK)
                out->status = neo__data_read(out->ctx, buffer, from + done, t->place, n);
            neo__out_bytes(out, buffer, n);
        }
    }
}
/* A tensor of any shape in one piece, or one of 1 or 2 dimensions whose rows lie apart. */
static void neo__st_put_data(neo__out *out, const neo_tensor *tensor) {
    if (tensor->place != NEO_HOST) {
        neo__st_put_staged(out, tensor);
        return;
    }
    if (neo_tensor_is_contiguous(*tensor)) {
        neo__out_bytes(out, tensor->data, neo_tensor_bytes(*tensor));
        return;
    }
    size_t size = neo_dtype_size(tensor->dtype),
           width = tensor->ndim > 1 ? (size_t)tensor->shape[1] * size : size;
    for (int64_t r = 0; r < tensor->shape[0]; r++)
        neo__out_bytes(out, (const char *)tensor->data + (size_t)(r * tensor->stride[0]) * size,
                       width);
}
/* The data of a tensor that the source has. */
static neo_status neo__st_put_asked(neo__out *out, const neo__st_item *item,
                                    const neo__st_source *source) {
    const void *data = NULL;
    size_t bytes = neo__st_bytes(item->tensor);
    NEO__TRY(source->fn(source->user, (int)(item->tensor - source->tensors), &data));
    NEO__CHECK(data || bytes == 0, NEO_ERR_ARG, "neo_safetensors_stream: no data for tensor %s",
               item->name);
    if (bytes > 0) neo__out_bytes(out, data, bytes);
    return out->status;
}
/* A whole file into out. Sorts items: by name if they have data, source is NULL then. The caller
   checked names and tensors. */
static neo_status neo__st_put(neo__out *out, neo__st_item *items, int count,
                              const char *const *metadata, int metadata_count,
                              const neo__st_source *source) {
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items,
              source ? neo__st_compare_places : neo__st_compare_items);
    neo__out length;
    neo__out_begin(&length, NULL);
    neo__st_put_header(&length, items, count, metadata, metadata_count);
    uint64_t bytes = (length.bytes + 7) / 8 * 8;
    NEO__CHECK(bytes <= NEO__ST_HEADER_BYTES, NEO_ERR_CAPACITY,
               "%s: a header of %" PRIu64 " bytes is too long", out->file->path, bytes);
    neo__out_bytes(out, &bytes, 8);
    neo__st_put_header(out, items, count, metadata, metadata_count);
    neo__out_bytes(out, "       ", (size_t)(bytes - length.bytes));
    for (int i = 0; i < count; i++) {
        if (source) NEO__TRY(neo__st_put_asked(out, &items[i], source));
#if !defined(NEO_INFERENCE)
        else if (items[i].guard) neo__st_put_guarded(out, &items[i]);
#endif
        else if (items[i].numbers) neo__st_put_rows(out, &items[i]);
        else neo__st_put_data(out, items[i].tensor);
    }
    return neo__out_flush(out);
}
static int neo__st_compare_item_names(const void *a, const void *b) {
    return strcmp(((const neo__st_item *)a)->name, ((const neo__st_item *)b)->name);
}
/* Check that names differ, and that tensors have data (with a source: a shape). */
static neo_status neo__st_check_items(const char *function, neo__st_item *items, int count,
                                      const neo__st_source *source) {
    static const char there = 0;
    for (int i = 0; i < count; i++) {
        neo_tensor t = *items[i].tensor; /* for the check a tensor of the source has data */
        const char *name = items[i].name;
        NEO__CHECK(name && neo__utf8_valid(name), NEO_ERR_ARG,
                   "%s: the name of tensor %d is NULL or not UTF-8", function, i);
        NEO__CHECK(strcmp(name, "__metadata__") != 0, NEO_ERR_ARG,
                   "%s: the name __metadata__ is reserved", function);
        if (source) t = neo_tensor_nd((void *)(uintptr_t)&there, t.dtype, t.ndim, t.shape);
        if (t.absent && !t.data) return neo__no_data(function, name, t, NEO_ERR_STATE);
        NEO__CHECK(neo__tensor_is_storable(&t), NEO_ERR_ARG,
                   "%s: tensor %s is none or not contiguous", function, name);
        NEO__CHECK(t.place == NEO_HOST, NEO_ERR_ARG,
                   "%s: tensor %s is in a device's memory: neo_tensor_copy it to the host first",
                   function, name);
    }
    if (count > 1) qsort(items, (size_t)count, sizeof *items, neo__st_compare_item_names);
    for (int i = 1; i < count; i++)
        NEO__CHECK(strcmp(items[i - 1].name, items[i].name) != 0, NEO_ERR_ARG,
                   "%s: the name %s is there twice", function, items[i].name);
    return NEO_OK;
}
/* A new file at path: written under another name, flushed to disk, renamed. On failure path is as
   before. */
static neo_status neo__st_write_items(const char *path, neo__st_item *items, int count,
                                      const char *const *metadata, int metadata_count,
                                      const neo__st_source *source) {
    char partial[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    int n = snprintf(partial, sizeof partial, "%s.partial", path);
    NEO__CHECK(n > 0 && n < (int)sizeof partial, NEO_ERR_ARG, "%.200s...: the path is too long",
               path);
    NEO__TRY(neo__file_open(&file, partial, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo_status status = neo__st_put(&out, items, count, metadata, metadata_count, source);
    if (status == NEO_OK) status = neo__file_sync(&file);
    neo_status closed = neo__file_close(&file);
    if (status == NEO_OK) status = closed;
    if (status == NEO_OK) status = neo__path_rename(partial, path);
    if (status == NEO_OK) status = neo__path_parent(partial, path);
    if (status == NEO_OK) return neo__dir_sync(partial);
    neo__kept_error error = neo__error_keep(status);
    (void)neo__file_remove(partial);
    return neo__error_restore(&error);
}
static neo_status neo__st_check_metadata(const char *function, const char *const *metadata,
                                         int count) {
    NEO__CHECK(count >= 0 && (count == 0 || metadata), NEO_ERR_ARG,
               "%s: metadata is NULL or its count negative", function);
    for (int i = 0; i < 2 * count; i++)
        NEO__CHECK(metadata[i] && neo__utf8_valid(metadata[i]), NEO_ERR_ARG,
                   "%s: metadata string %d is NULL or not UTF-8", function, i);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            NEO__CHECK(strcmp(metadata[2 * i], metadata[2 * k]) != 0, NEO_ERR_ARG,
                       "%s: metadata key %s is there twice", function, metadata[2 * i]);
    return NEO_OK;
}
NEO_API size_t neo__safetensors_bytes(int count) {
    return neo__size_mul((size_t)count, sizeof(neo__st_item));
}
static neo_status neo__st_write(const char *function, neo_ctx *ctx, const char *path,
                                const char *const *names, const neo_tensor *tensors, int count,
                                const char *const *metadata, int metadata_count,
                                const neo__st_source *source) {
    NEO__TRY(neo__check_ctx(function, ctx));
    NEO__CHECK(path && count >= 0 && (count == 0 || (names && tensors)), NEO_ERR_ARG,
               "%s: an argument is NULL or count is negative", function);
    NEO__TRY(neo__st_check_metadata(function, metadata, metadata_count));
    size_t bytes = neo__safetensors_bytes(count);
    neo__st_item *items = (neo__st_item *)neo__alloc_for(ctx, bytes, function);
    if (!items) return NEO_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        items[i].name = names[i];
        items[i].tensor = &tensors[i];
        items[i].numbers = NULL;
        items[i].guard = NULL;
    }
    neo_status status = neo__st_check_items(function, items, count, source);
    if (status == NEO_OK)
        status = neo__st_write_items(path, items, count, metadata, metadata_count, source);
    neo_free(ctx, items, bytes);
    return status;
}
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_safetensors_write(neo_ctx *ctx, const char *path, const char *const *names,
                                         const neo_tensor *tensors, int count,
                                         const char *const *metadata, int metadata_count) {
    return neo__st_write("neo_safetensors_write", ctx, path, names, tensors, count, metadata,
                         metadata_count, NULL);
}
NEO_API neo_status neo_safetensors_stream(neo_ctx *ctx, const char *path, const char *const *names,
                                          const neo_tensor *tensors, int count,
                                          const char *const *metadata, int metadata_count,
                                          neo_tensor_fn fn, void *user) {
    neo__st_source source;
    NEO__CHECK(fn, NEO_ERR_ARG, "neo_safetensors_stream: fn is NULL");
    source.fn = fn;
    source.user = user;
    source.tensors = tensors;
    return neo__st_write("neo_safetensors_stream", ctx, path, names, tensors, count, metadata,
                         metadata_count, &source);
}
#endif

/* ---- weights from another trainer ---- */
/* out = `to` with its '*' replaced by what the '*' of `from` stands for in `name`; 0 if from does
   not match or the result is too long. */
static int neo__map_name(const char *from, const char *to, const char *name, char *out,
                         size_t bytes) {
    const char *star = strchr(from, '*'), *to_star = strchr(to, '*');
    size_t n = strlen(name);
    if (!star || !to_star) {
        size_t length = strlen(to);
        if (star || to_star || strcmp(from, name) != 0 || length >= bytes) return 0;
        memcpy(out, to, length + 1);
        return 1;
    }
    size_t head = (size_t)(star - from), tail = strlen(star + 1);
    if (n < head + tail || memcmp(name, from, head) != 0 || strcmp(name + n - tail, star + 1) != 0)
        return 0;
    int length = snprintf(out, bytes, "%.*s%.*s%s", (int)(to_star - to), to, (int)(n - head - tail),
                          name + head, to_star + 1);
    return length >= 0 && (size_t)length < bytes;
}
/* The tensor of the file for a weight, or -1. */
static int neo__st_find_mapped(const neo_safetensors *file, const neo_name_map *map, int map_count,
                               const char *name, int *transposed) {
    char other[1024];
    int same = neo_safetensors_find(file, name);
    *transposed = 0;
    for (int i = 0; i < map_count; i++) {
        if (!neo__map_name(map[i].state_name, map[i].file_name, name, other, sizeof other))
            continue;
        if (same >= 0 && strcmp(other, name) != 0) continue;
        int index = neo_safetensors_find(file, other);
        if (index >= 0) *transposed = map[i].transposed != 0;
        if (index >= 0) return index;
    }
    return same;
}
/* Two passes over the weights: check all of them, then read. */
static neo_status neo__st_load_weights(neo_safetensors *file, const neo_name_map *map,
                                       int map_count, int partial, const neo_state *state,
                                       int *loaded) {
    *loaded = 0; /* the parts of a weight are one */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < state->count; i++) {
            const neo__state_entry *entry = &state->entries[i];
            if (entry->kind != NEO_STATE_WEIGHT) continue;
            int transposed,
                index = neo__st_find_mapped(file, map, map_count, entry->name, &transposed);
            NEO__CHECK(index >= 0 || partial, NEO_ERR_NOT_FOUND,
                       "%s: no tensor for the weight %s, under this name or by the name map",
                       file->path, entry->name);
            if (index < 0) continue;
            if (pass == 0) NEO__TRY(neo__st_check(file, index, &entry->whole, transposed));
            if (pass == 0) continue;
            if (entry->marks) entry->marks->base = 0; /* all rows may change */
            neo__st_rect rect = neo__st_rect_of(file, index);
            NEO__TRY(neo__st_read_rect(file->ctx, &file->file, &rect, &entry->slab, transposed));
            *loaded += entry->first == i;
        }
    }
    return NEO_OK;
}
NEO_API neo_status neo_load_safetensors(neo_ctx *ctx, const char *path, const neo_name_map *map,
                                        int map_count, int partial, neo_state *state, int *loaded) {
    NEO__TRY(neo__check_ctx("neo_load_safetensors", ctx));
    NEO__CHECK(path && state && map_count >= 0 && (map || map_count == 0), NEO_ERR_ARG,
               "neo_load_safetensors: an argument is NULL");
    for (int i = 0; i < map_count; i++) {
        const char *a = map[i].file_name, *b = map[i].state_name;
        const char *star_a = a ? strchr(a, '*') : NULL, *star_b = b ? strchr(b, '*') : NULL;
        NEO__CHECK(
            a && b && !star_a == !star_b &&
                (!star_a || (!strchr(star_a + 1, '*') && !strchr(star_b + 1, '*'))),
            NEO_ERR_ARG,
            "neo_load_safetensors: map[%d] ('%s', '%s') needs one '*' in both names or in none", i,
            a ? a : "NULL", b ? b : "NULL");
    }
    NEO__TRY(neo__state_check_idle(state, "neo_load_safetensors"));
    neo__state_make_rows(state);
    neo_safetensors *file = NULL;
    int count = 0;
    NEO__TRY(neo_safetensors_open(ctx, path, &file));
    neo_status status = neo__st_load_weights(file, map, map_count, partial, state, &count);
    neo_safetensors_close(file);
    if (status == NEO_OK) status = neo__state_was_read(state);
    if (status == NEO_OK && loaded) *loaded = count;
    return status;
}
/* ---------------------------------------------------------------------------
   >>impl-row-bits

   Codes of rows, one row at a time; see neo_frozen_encode.
   ------------------------------------------------------------------------ */
static const struct {
    const char *name;
    int bits;
    neo_dtype dtype; /* of tensors in files */
} neo__row_kinds[] = {{"trained", 0, NEO_F32}, {"f32", 32, NEO_F32},  {"f16", 16, NEO_F16},
                      {"bf16", 16, NEO_BF16},  {"i8", 8, NEO_I8},     {"i4", 4, NEO_U8},
                      {"i2", 2, NEO_U8}};
enum { NEO__RANGE_BINS = 200, NEO__RANGE_LEAST = 32 };

NEO_API size_t neo_frozen_row_bytes(neo_row_bits bits, int64_t dim) {
    if (bits < NEO_ROWS_F32 || bits > NEO_ROWS_I2 || dim < 1) return 0;
    return ((size_t)dim * (size_t)neo__row_kinds[bits].bits + 7) / 8;
}
/* The scale and bias of codes that span [low, high], and the largest code, from 0 (i8: from -127,
   whose bias is the middle). */
static void neo__frozen_range(neo_row_bits bits, float low, float high, float *scale,
                              float *bias) {
    const float half = 0.5f * high - 0.5f * low;
    if (bits == NEO_ROWS_I8) *scale = half / 127.0f, *bias = low + half;
    else *scale = 2.0f * half / (bits == NEO_ROWS_I4 ? 15.0f : 3.0f), *bias = low;
    if (!(*scale >= 0x1p-126f)) *scale = 0.0f;
}
NEO__HOT_BEGIN
NEO__INLINE float neo__frozen_code(neo_row_bits bits, float x, float inverse, float bias) {
    const float low = bits == NEO_ROWS_I8 ? -127.0f : 0.0f;
    const float high = bits == NEO_ROWS_I8 ? 127.0f : bits == NEO_ROWS_I4 ? 15.0f : 3.0f;
    float code = (x - bias) * inverse;
    code = code < low ? low : code > high ? high : code;
    return (code + 12582912.0f) - 12582912.0f; /* to nearest, ties to even */
}
static float neo__frozen_loss(neo_row_bits bits, const float *row, int64_t dim, float low,
                              float high) {
    float scale, bias, sum = 0.0f;
    neo__frozen_range(bits, low, high, &scale, &bias);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t c = 0; c < dim; c++) {
        float error = scale * neo__frozen_code(bits, row[c], inverse, bias) + bias - row[c];
        sum += error * error;
    }
    return sum;
}
static void neo__frozen_search(neo_row_bits bits, const float *row, int64_t dim, float *scale,
                               float *bias) {
    float low = row[0], high = row[0];
    for (int64_t c = 1; c < dim; c++) low = NEO__MIN(low, row[c]), high = NEO__MAX(high, row[c]);
    const float step = (high - low) / (float)NEO__RANGE_BINS;
    float best = neo__frozen_loss(bits, row, dim, low, high), best_low = low, best_high = high;
    for (int bins = NEO__RANGE_BINS; step > 0.0f && bins > NEO__RANGE_LEAST; bins--) {
        const float raised = neo__frozen_loss(bits, row, dim, low + step, high);
        const float lowered = neo__frozen_loss(bits, row, dim, low, high - step);
        if (raised < lowered) low += step;
        else high -= step;
        const float loss = NEO__MIN(raised, lowered);
        if (loss < best) best = loss, best_low = low, best_high = high;
    }
    neo__frozen_range(bits, best_low, best_high, scale, bias);
}
static void neo__frozen_encode_row(neo_row_bits bits, const float *row, int64_t dim, char *codes,
                                   float *scale) {
    const int width = neo__row_kinds[bits].bits, per_byte = 8 / width;
    float wrong = 0.0f;
    for (int64_t c = 0; c < dim; c++) wrong += row[c] - row[c];
    if (wrong != 0.0f) scale[0] = 0.0f, scale[1] = neo__f32_bits(0x7FC00000u);
    else neo__frozen_search(bits, row, dim, &scale[0], &scale[1]);
    const float inverse = scale[0] > 0.0f ? 1.0f / scale[0] : 0.0f;
    memset(codes, 0, neo_frozen_row_bytes(bits, dim));
    for (int64_t c = 0; inverse > 0.0f && c < dim; c++) {
        int code = (int)neo__frozen_code(bits, row[c], inverse, scale[1]);
        if (bits == NEO_ROWS_I8) codes[c] = (char)(signed char)code;
        else {
            unsigned char *byte = (unsigned char *)codes + c / per_byte;
            *byte = (unsigned char)(*byte | code << (int)(c % per_byte) * width);
        }
    }
}
NEO_API neo_status neo_frozen_encode(neo_row_bits bits, int64_t rows, int64_t dim,
                                     const float *from, void *codes, float *scale) {
    const size_t row_bytes = neo_frozen_row_bytes(bits, dim);
    NEO__CHECK(from && codes && row_bytes && rows >= 1 && (scale || bits < NEO_ROWS_I8),
               NEO_ERR_ARG, "neo_frozen_encode: an argument is NULL, or out of range");
    neo__fp_state fp = neo__fp_enter();
    for (int64_t r = 0; r < rows; r++) {
        const float *row = from + r * dim;
        char *to = (char *)codes + (size_t)r * row_bytes;
        if (bits >= NEO_ROWS_I8) {
            neo__frozen_encode_row(bits, row, dim, to, scale + 2 * r);
        } else if (bits == NEO_ROWS_F32) {
            memcpy(to, row, row_bytes);
        } else {
            for (int64_t c = 0; c < dim; c++) {
                uint16_t half = bits == NEO_ROWS_F16 ? neo__f16_from_f32(row[c])
                                                     : neo__bf16_from_f32(row[c]);
                memcpy(to + 2 * c, &half, 2);
            }
        }
    }
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO__HOT_END

/* ---------------------------------------------------------------------------
   >>impl-checkpoint

   Saving. Everything is written into step-<12 digits>.partial, which no reader looks at: the
   safetensors files straight from the tensors' memory, the index, and manifest.json under another
   name, each flushed to disk; then the manifest is renamed, the directory flushed, and the
   directory renamed to step-<12 digits>. A checkpoint of the same step moves to step-<12
   digits>.old for the moment between the two renames; readers accept it there, and the next save
   puts it back if the process died in between. So at every moment the newest whole checkpoint is
   found whole. Old ones are renamed to .partial before they are removed; what a dead process left
   under .partial goes at the next save.

   In a group every rank writes its two files and tells the others their sizes and checksums. Rank 0
   does all the rest: it makes the directory, looks whether it sees each file at its size, makes the
   index from the headers of the files, and commits. The ranks agree before the directory is made
   (who has what: >>impl-group), when it is there, when the files are written, and at the end; when
   they do not, rank 0 removes what was written.

   The manifest is JSON; its last member is the CRC32C of all bytes before that member, so that
   every byte of a checkpoint is under some checksum:
     {"format": "neo-checkpoint", "version": 1, "step": 12, "metrics": {"auc": 0.78, ...},
      "definition": {"repro_shards": "1", ...},
      "files": [{"name": "model-00001-of-00001.safetensors", "bytes": 1, "crc32c": "0a1b2c3d"},
                ...],
      "manifest_crc32c": "0a1b2c3d"}
   Version 2 is one with parts, or of several ranks. Without metrics that member is left out.
   Version 3 is a differential one, with "base_step": 9, "base_crc32c": "0a1b2c3d" (of the base's
   whole manifest, and so of all that is in it) and "depth": 1, the way to the full one. Steps grow
   along a chain, so it ends.

   The marks of tables (neo__row_marks) know the checkpoint that they count from by the same two
   numbers. A save goes on from it where all marks of all ranks agree on one and rank 0 finds its
   chain whole; with success, the marks are cleared and count from the new one. Until then nothing
   about them changes, so that a save that fails loses no row.
   ------------------------------------------------------------------------ */
#define NEO__CKPT_FIRST_STATE "state-00001-of-" /* of rank 0: it has the dictionaries */
#define NEO__CKPT_INDEX "model.safetensors.index.json"
#define NEO__CKPT_MODEL "model.json"
enum { NEO__MODEL_JSON_BYTES = 1 << 26 };
#define NEO__CKPT_MANIFEST "manifest.json"
#define NEO__CKPT_FORMAT "neo-checkpoint"
#define NEO__CKPT_TAIL ",\n \"manifest_crc32c\": \"%08" PRIx32 "\"}\n"
enum { NEO__CKPT_TAIL_BYTES = 34, NEO__CKPT_MANIFEST_BYTES = 1 << 26, NEO__CKPT_NAME_BYTES = 80 };
#define NEO__CKPT_MAX_STEP INT64_C(999999999999)

/* ---- names of steps ---- */
typedef enum neo__ckpt_suffix {
    NEO__CKPT_WHOLE,
    NEO__CKPT_OLD,
    NEO__CKPT_PARTIAL
} neo__ckpt_suffix;
static const char *const neo__ckpt_suffixes[] = {"", ".old", ".partial"};

/* <dir>/step-<step><suffix> into out[NEO__PATH_BYTES]. */
static neo_status neo__ckpt_path(char *out, const char *dir, int64_t step,
                                 neo__ckpt_suffix suffix) {
    char name[64];
    snprintf(name, sizeof name, "step-%012" PRId64 "%s", step, neo__ckpt_suffixes[suffix]);
    return neo__path_join(out, dir, name);
}
/* Read a name made by neo__ckpt_path; 0: it is none. */
static int neo__ckpt_parse_name(const char *name, int64_t *step, neo__ckpt_suffix *suffix) {
    if (strncmp(name, "step-", 5) != 0) return 0;
    *step = 0;
    for (int i = 5; i < 17; i++) {
        if (name[i] < '0' || name[i] > '9') return 0;
        *step = *step * 10 + (name[i] - '0');
    }
    for (int i = 0; i < 3; i++) {
        *suffix = (neo__ckpt_suffix)i;
        if (strcmp(name + 17, neo__ckpt_suffixes[i]) == 0) return 1;
    }
    return 0;
}
/* whole: 1 if the directory holds a manifest. One that cannot be looked at is an error: a
   checkpoint that may be there must not count as none. */
static neo_status neo__ckpt_look(const char *path, int *whole) {
    char manifest[NEO__PATH_BYTES];
    neo__path_kind kind;
    NEO__TRY(neo__path_join(manifest, path, NEO__CKPT_MANIFEST));
    NEO__TRY(neo__path_look(manifest, &kind));
    *whole = kind == NEO__PATH_FILE;
    return NEO_OK;
}

/* ---- files of one checkpoint ---- */
typedef struct neo__ckpt_file {
    char name[NEO__CKPT_NAME_BYTES];
    int64_t bytes;
    uint32_t crc;
    int link; /* of a chain, from its full checkpoint on */
} neo__ckpt_file;

/* The end of a file: its content is in out. Flush it to disk, close it, note size and checksum. */
static neo_status neo__ckpt_finish(neo__out *out, neo_status status, neo__ckpt_file *record) {
    if (status == NEO_OK) status = neo__out_flush(out);
    if (status == NEO_OK) status = neo__file_sync(out->file);
    neo__kept_error error = neo__error_keep(status);
    neo_status closed = neo__file_close(out->file);
    record->bytes = (int64_t)out->bytes;
    record->crc = out->crc;
    return status != NEO_OK ? neo__error_restore(&error) : closed;
}

static const char *const neo__ckpt_apart =
    "all ranks must save into, and load from, one directory of one file system";

/* A file as the ranks tell each other of it; words, so that they travel through a sum. */
typedef struct neo__ckpt_mark {
    uint64_t bytes, crc, data_bytes; /* data_bytes: of the tensors */
} neo__ckpt_mark;
/* The place of a checkpoint in a chain, as its manifest has it. */
typedef struct neo__ckpt_head {
    int64_t step, base_step, depth; /* base_step -1: it is full */
    uint32_t crc, base_crc;         /* of the manifest; of the base's */
    int unknown, stays; /* of what is there when a save begins: the manifest cannot be read; another
                           one needs it */
} neo__ckpt_head;
/* The changed rows of a tracked table. */
typedef struct neo__ckpt_rows {
    neo__row_marks *marks;
    neo_tensor numbers;
    const char *name; /* of numbers in the file at hand; NULL: not there yet */
} neo__ckpt_rows;
/* The tensors of this rank that belong into a file. */
typedef struct neo__ckpt_list {
    neo__st_item *items;   /* room for every tensor, the numbers of changed rows, and the schema */
    const char **metadata; /* room for three pairs, one for every part, two for changed rows */
    int count, pair_count;
} neo__ckpt_list;
/* One save: constants, the lists of the two files, the results. */
typedef struct neo__ckpt_save {
    neo_ctx *ctx;
    const neo_state *state;
    const neo_save_desc *desc;
    neo__meet meet;
    neo__arena arena; /* of all lists but steps */
    char partial[NEO__PATH_BYTES], whole[NEO__PATH_BYTES], old[NEO__PATH_BYTES];
    int part_count;
    neo_tensor schema; /* the dictionaries, or none */
    neo__ckpt_head base; /* step -1: the checkpoint is full */
    neo__ckpt_rows *rows;  /* of a differential one: of each tracked table */
    int row_count;
    neo_tensor *tensors; /* as many rows as have changed, of every entry */
    neo__file lock;    /* of rank 0, on the directory */
    int locked;

    neo__ckpt_list lists[2]; /* of state, of weights */

    neo__ckpt_head *there; /* the whole checkpoints there before, the newest first */
    int there_count;
    int64_t there_capacity;
    neo__ckpt_file *files; /* the model's of every rank, the state's of every rank, the index */
    neo__ckpt_mark *marks; /* of each but the index */
    uint32_t crc;          /* of the manifest, on rank 0 */
} neo__ckpt_save;

static int neo__rects_equal(const neo__rect *a, const neo__rect *b) {
    return a->row == b->row && a->col == b->col && a->rows == b->rows && a->cols == b->cols;
}
/* A printed text in the save's arena; NULL: no memory. */
static const char *neo__ckpt_text(neo__ckpt_save *save, const char *format, ...) NEO__PRINTF(2, 3);
static const char *neo__ckpt_text(neo__ckpt_save *save, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t bytes = (size_t)vsnprintf(NULL, 0, format, again) + 1;
    char *text = (char *)neo__arena_alloc(&save->arena, bytes);
    if (text) vsnprintf(text, bytes, format, args);
    else (void)neo_fail(NEO_ERR_MEMORY, "neo_save: no memory for %zu bytes", bytes);
    va_end(again);
    va_end(args);
    return text;
}
/* The changed rows of an entry for the list of a file, with their numbers where they are not there
   yet. */
static neo_status neo__ckpt_put_rows(neo__ckpt_save *save, neo__ckpt_list *list, int entry,
                                     const char *key) {
    const neo__state_entry *from = &save->state->entries[entry];
    neo__st_item *item = &list->items[list->count++], *next = item + 1;
    neo__ckpt_rows *rows = save->rows;
    while (rows->marks != from->marks) rows++;
    const char *place = neo__ckpt_text(save, "%s" NEO__ST_ROWS, key);
    if (!place) return NEO_ERR_MEMORY;
    if (!rows->name) {
        rows->name = next->name = place;
        next->tensor = &rows->numbers;
        list->count++;
    }
    const char *value =
        neo__ckpt_text(save, "%" PRId64 " %s", from->slab.place.rows, rows->name);
    list->metadata[2 * list->pair_count] = place;
    list->metadata[2 * list->pair_count++ + 1] = value;
    save->tensors[entry] = from->tensor;
    save->tensors[entry].shape[0] = rows->numbers.shape[0];
    item->name = key;
    item->tensor = &save->tensors[entry];
    item->numbers = &rows->numbers;
    item->first = from->slab.place.row;
    return value ? NEO_OK : NEO_ERR_MEMORY;
}
/* A tensor for the list of a file, under the name that it has there. */
static neo_status neo__ckpt_put_item(neo__ckpt_save *save, neo__ckpt_list *list, int index) {
    const neo__state_entry *entry = &save->state->entries[index];
    const int some = save->base.step >= 0 && entry->marks;
    neo__rect all = neo__rect_whole(&entry->whole);
    const neo__rect *place = &entry->slab.place;
    char text[96];
    neo__st_item *item = &list->items[list->count];
    item->name = entry->name;
    item->tensor = &entry->tensor;
    item->marks = entry->marks;
    if (!some) list->count++;
    if (!some && (!entry->is_part || neo__rects_equal(place, &all))) return NEO_OK;
    const char *key = neo__ckpt_text(save, "%s%s", entry->name, neo__place_text(entry, text));
    const char *value =
        entry->whole.ndim == 1
            ? neo__ckpt_text(save, "[%" PRId64 "] of [%" PRId64 "] %s", place->row, all.rows,
                             entry->name)
            : neo__ckpt_text(save, "[%" PRId64 ",%" PRId64 "] of [%" PRId64 ",%" PRId64 "] %s",
                             place->row, place->col, all.rows, all.cols, entry->name);
    if (!key || !value) return NEO_ERR_MEMORY;
    item->name = key;
    list->metadata[2 * list->pair_count] = key;
    list->metadata[2 * list->pair_count++ + 1] = value;
    return some ? neo__ckpt_put_rows(save, list, index, key) : NEO_OK;
}
static neo_status neo__ckpt_list_items(neo__ckpt_save *save, int weights) {
    neo__ckpt_list *list = &save->lists[weights];
    const char *metadata[] = {"format", "pt", "step", NULL, "writer", "neo"}; /* "pt": for loaders
                                                                                 that ask */
    metadata[3] = neo__ckpt_text(save, "%" PRId64, save->desc->step);
    if (!metadata[3]) return NEO_ERR_MEMORY;
    memcpy((void *)list->metadata, metadata, sizeof metadata);
    list->pair_count = 3;
    for (int i = 0; i < save->row_count; i++) save->rows[i].name = NULL;
    for (int i = 0; i < save->state->count; i++) {
        const neo__state_entry *entry = &save->state->entries[i];
        int here = entry->is_part ? neo__entry_is_own(entry) && neo_tensor_count(entry->tensor) > 0
                                  : save->meet.group.rank == 0;
        if (here && (entry->kind == NEO_STATE_WEIGHT) == weights)
            NEO__TRY(neo__ckpt_put_item(save, list, i));
    }
    if (save->schema.data && !weights) {
        list->items[list->count].name = NEO__SCHEMA_NAME;
        list->items[list->count++].tensor = &save->schema;
    }
    return NEO_OK;
}
static neo_status neo__ckpt_write_tensors(neo__ckpt_save *save, int weights, neo__ckpt_file *record,
                                          neo__ckpt_mark *mark) {
    char path[NEO__PATH_BYTES];
    neo__ckpt_list *list = &save->lists[weights];
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    neo__file file;
    neo__out out;
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    out.ctx = save->state->ctx;
    neo_status status = neo__st_put(&out, list->items, list->count, list->metadata,
                                    list->pair_count, NULL);
    NEO__TRY(neo__ckpt_finish(&out, status, record));
    mark->bytes = (uint64_t)record->bytes;
    mark->crc = record->crc;
    for (int i = 0; i < list->count; i++)
        mark->data_bytes += neo__st_bytes(list->items[i].tensor);
    return NEO_OK;
}
/* Rank 0 looks at the file of a rank: there at the size that it was written with. */
static neo_status neo__ckpt_see(const neo__ckpt_save *save, const neo__ckpt_file *record,
                                int rank) {
    char path[NEO__PATH_BYTES];
    int64_t size;
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    NEO__TRY(neo__path_size(path, &size));
    NEO__CHECK(size >= 0, NEO_ERR_IO, "%s: rank 0 does not see what rank %d wrote: %s", path, rank,
               neo__ckpt_apart);
    NEO__CHECK(size == record->bytes, NEO_ERR_IO,
               "%s: rank 0 sees %" PRId64 " bytes, rank %d wrote %" PRId64 ": %s", path, size, rank,
               record->bytes, neo__ckpt_apart);
    return NEO_OK;
}
/* model.safetensors.index.json, as Hugging Face writes it: which file holds which weight. */
static neo_status neo__ckpt_put_index(const neo__ckpt_save *save, neo__out *out) {
    char path[NEO__PATH_BYTES];
    uint64_t total = 0;
    int written = 0, ranks = save->meet.group.size;
    for (int k = 0; k < ranks; k++) total += save->marks[k].data_bytes;
    neo__out_format(
        out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
        total);
    for (int k = 0; k < ranks; k++) {
        neo_safetensors *file = NULL;
        NEO__TRY(neo__path_join(path, save->partial, save->files[k].name));
        NEO__TRY(neo_safetensors_open(save->ctx, path, &file));
        for (int i = 0; i < file->count; i++) {
            neo__out_text(out, written++ ? ",\n    " : "\n    ");
            neo__out_string(out, file->tensors[i].name);
            neo__out_format(out, ": \"%s\"", save->files[k].name);
        }
        neo_safetensors_close(file);
    }
    neo__out_text(out, "\n  }\n}\n");
    return NEO_OK;
}
static neo_status neo__ckpt_write_index(neo__ckpt_save *save, neo__ckpt_file *record) {
    char path[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    NEO__TRY(neo__path_join(path, save->partial, record->name));
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    return neo__ckpt_finish(&out, neo__ckpt_put_index(save, &out), record);
}
#if !defined(NEO_INFERENCE)
static void neo__ckpt_put_metrics(const neo_save_desc *desc, neo__out *out) {
    char number[40];
    if (desc->metric_count > 0) neo__out_text(out, "\"metrics\": {");
    for (int i = 0; i < desc->metric_count; i++) {
        neo__number_text(desc->metrics[i].value, number, sizeof number);
        neo__out_string(out, desc->metrics[i].name);
        neo__out_format(out, ": %s%s", number, i + 1 < desc->metric_count ? ", " : "},\n ");
    }
}
static neo_status neo__ckpt_write_manifest(neo__ckpt_save *save) {
    char path[NEO__PATH_BYTES], temporary[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    neo__ckpt_file record;
    const neo_state *state = save->state;
    int version = save->base.step >= 0                                 ? 3
                  : save->meet.group.size > 1 || save->part_count > 0 ? 2
                                                                      : 1;
    NEO__TRY(neo__path_join(path, save->partial, NEO__CKPT_MANIFEST));
    NEO__TRY(neo__path_join(temporary, save->partial, NEO__CKPT_MANIFEST ".partial"));
    NEO__TRY(neo__file_open(&file, temporary, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo__out_format(
        &out, "{\"format\": \"%s\", \"version\": %d, \"step\": %" PRId64 ",\n ",
        NEO__CKPT_FORMAT, version, save->desc->step);
    if (version == 3)
        neo__out_format(&out,
                        "\"base_step\": %" PRId64 ", \"base_crc32c\": \"%08" PRIx32
                        "\", \"depth\": %" PRId64 ",\n ",
                        save->base.step, save->base.crc, save->base.depth + 1);
    neo__ckpt_put_metrics(save->desc, &out);
    neo__out_text(&out, "\"definition\": {");
    for (int i = 0; i < state->word_count; i++) {
        neo__out_text(&out, i ? ",\n  " : "\n  ");
        neo__out_string(&out, state->words[i].key);
        neo__out_text(&out, ": ");
        neo__out_string(&out, state->words[i].value);
    }
    neo__out_text(&out, "},\n \"files\": [");
    for (int i = 0; i <= 2 * save->meet.group.size; i++)
        neo__out_format(
            &out, "%s{\"name\": \"%s\", \"bytes\": %" PRId64 ", \"crc32c\": \"%08" PRIx32 "\"}",
            i ? ",\n  " : "\n  ", save->files[i].name, save->files[i].bytes, save->files[i].crc);
    neo__out_text(&out, "]");
    neo_status status = neo__out_flush(&out);
    neo__out_format(&out, NEO__CKPT_TAIL, out.crc);
    NEO__TRY(neo__ckpt_finish(&out, status, &record));
    save->crc = record.crc;
    NEO__CHECK(out.bytes <= NEO__CKPT_MANIFEST_BYTES, NEO_ERR_ARG,
               "%s: the definition makes it %" PRIu64 " bytes, and neo_load takes %d", path,
               out.bytes, (int)NEO__CKPT_MANIFEST_BYTES);
    NEO__TRY(neo__path_rename(temporary, path));
    return neo__dir_sync(save->partial);
}
#endif

static neo_status neo__ckpt_peek(neo_ctx *ctx, const char *path, int64_t step,
                                 neo__ckpt_head *head); /* see "reading a manifest" */
/* A checkpoint that is there, or NULL. */
static neo__ckpt_head *neo__ckpt_there(const neo__ckpt_save *save, int64_t step) {
    for (int i = 0; i < save->there_count; i++)
        if (save->there[i].step == step) return &save->there[i];
    return NULL;
}
/* The word by which marks know a checkpoint. */
static uint64_t neo__ckpt_id(int64_t step, uint32_t crc) {
    return neo__mix64((uint64_t)step + 1) + crc;
}

/* ---- the directory ---- */
/* Remove the files of dead saves and note the whole checkpoints. Failures to remove do not
   matter here: a leftover is invisible, and a save that needs its name reports what is wrong. */
static neo_status neo__ckpt_clean(const char *name, void *user) {
    neo__ckpt_save *save = (neo__ckpt_save *)user;
    neo__ckpt_suffix suffix;
    neo__path_kind kind;
    int64_t step = 0;
    int is_whole;
    char path[NEO__PATH_BYTES], whole[NEO__PATH_BYTES];
    if (!neo__ckpt_parse_name(name, &step, &suffix)) return NEO_OK;
    NEO__TRY(neo__ckpt_path(path, save->desc->dir, step, suffix));
    NEO__TRY(neo__ckpt_path(whole, save->desc->dir, step, NEO__CKPT_WHOLE));
    NEO__TRY(neo__path_look(path, &kind));
    if (kind != NEO__PATH_DIR) return NEO_OK;
    if (suffix == NEO__CKPT_PARTIAL) {
        (void)neo__tree_remove(path);
        return NEO_OK;
    }
    if (neo__ckpt_look(whole, &is_whole) != NEO_OK) return NEO_OK; /* left alone */
    if (suffix == NEO__CKPT_OLD) {
        if (is_whole) {
            (void)neo__tree_remove(path);
            return NEO_OK;
        }
        if (neo__ckpt_look(path, &is_whole) != NEO_OK) return NEO_OK;
        if (!is_whole || neo__path_rename(path, whole) != NEO_OK) return NEO_OK;
    }
    if (!is_whole) return NEO_OK;
    if (neo__ckpt_there(save, step)) return NEO_OK; /* a renamed one may be listed twice */
    NEO__TRY(NEO__GROW(save->ctx, save->there, save->there_capacity, save->there_count + 1));
    neo__ckpt_head *head = &save->there[save->there_count++];
    neo_status status = neo__ckpt_peek(save->ctx, whole, step, head);
    head->step = step;
    head->unknown = status != NEO_OK;
    if (head->unknown) head->base_step = -1;
    return status == NEO_ERR_MEMORY ? status : NEO_OK;
}
static int neo__ckpt_compare_down(const void *a, const void *b) {
    int64_t x = ((const neo__ckpt_head *)a)->step, y = ((const neo__ckpt_head *)b)->step;
    return x > y ? -1 : x < y;
}
/* The checkpoint of a step is gone, from one moment to the next. */
static neo_status neo__ckpt_drop(const neo__ckpt_save *save, int64_t step) {
    char from[NEO__PATH_BYTES], to[NEO__PATH_BYTES];
    NEO__TRY(neo__ckpt_path(from, save->desc->dir, step, NEO__CKPT_WHOLE));
    NEO__TRY(neo__ckpt_path(to, save->desc->dir, step, NEO__CKPT_PARTIAL));
    NEO__TRY(neo__path_rename(from, to));
    return neo__tree_remove(to);
}
/* Remove what builds on the checkpoint that is to be replaced, the last first. */
static neo_status neo__ckpt_drop_later(neo__ckpt_save *save) {
    for (int i = 0; i < save->there_count && save->there[i].step > save->desc->step; i++) {
        const neo__ckpt_head *at = &save->there[i];
        while (at && at->base_step > save->desc->step) at = neo__ckpt_there(save, at->base_step);
        if (!at || at->base_step != save->desc->step) continue;
        NEO__TRY(neo__ckpt_drop(save, save->there[i].step));
        save->there[i].stays = 1; /* nothing to remove any more */
    }
    return NEO_OK;
}
/* The directory under its final name. */
static neo_status neo__ckpt_commit(neo__ckpt_save *save) {
    neo__path_kind there;
    NEO__TRY(neo__path_look(save->whole, &there));
    int replaces = there != NEO__PATH_NONE;
    if (replaces) {
        NEO__TRY(neo__ckpt_drop_later(save));
        NEO__TRY(neo__tree_remove(save->old));
        NEO__TRY(neo__path_rename(save->whole, save->old));
    }
    neo_status status = neo__path_rename(save->partial, save->whole);
    if (status != NEO_OK) {
        neo__kept_error error = neo__error_keep(status);
        if (replaces) (void)neo__path_rename(save->old, save->whole);
        return neo__error_restore(&error);
    }
    status = neo__dir_sync(save->desc->dir);
    if (status == NEO_OK && replaces) (void)neo__tree_remove(save->old);
    return status;
}
/* Remove all but the newest `keep`, this one always among them, and what these build on. A failure
   is only logged: the save itself is done. */
static void neo__ckpt_prune(neo__ckpt_save *save) {
    int keep = save->desc->keep == 0 ? 2 : save->desc->keep, kept = 1;
    neo__ckpt_head *at = neo__ckpt_there(save, save->base.step);
    if (keep < 0) return;
    for (; at && !at->stays; at = neo__ckpt_there(save, at->base_step)) at->stays = 1;
    for (int i = 0; i < save->there_count; i++) {
        at = &save->there[i];
        if (at->step == save->desc->step) continue;
        if (kept++ >= keep) break;
        if (at->unknown) return; /* as to what it needs */
        for (; at && !at->stays; at = neo__ckpt_there(save, at->base_step)) at->stays = 1;
    }
    for (int i = 0; i < save->there_count; i++)
        if (save->there[i].step != save->desc->step && !save->there[i].stays &&
            neo__ckpt_drop(save, save->there[i].step) != NEO_OK)
            neo_log(save->ctx, NEO_LOG_WARNING, "neo_save: an old checkpoint stays: %s",
                    neo__error_text);
}

/* ---- neo_save ---- */
/* This rank's two files. */
static neo_status neo__ckpt_write_own(neo__ckpt_save *save) {
    int rank = save->meet.group.rank, ranks = save->meet.group.size;
    neo__path_kind there;
    NEO__TRY(neo__path_look(save->partial, &there));
    NEO__CHECK(there == NEO__PATH_DIR, NEO_ERR_IO,
               "%s: does not see this directory, which rank 0 made: %s", save->partial,
               neo__ckpt_apart);
    for (int weights = 0; weights < 2; weights++) { /* in this order: see >>impl-saving */
        int k = weights ? rank : ranks + rank;
        NEO__TRY(neo__ckpt_write_tensors(save, weights, &save->files[k], &save->marks[k]));
    }
    return ranks > 1 ? neo__dir_sync(save->partial) : NEO_OK;
}
static neo_status neo__ckpt_write_model(const neo__ckpt_save *save) {
    char path[NEO__PATH_BYTES];
    neo__file file;
    neo__out out;
    neo__ckpt_file record;
    if (!save->desc->model) return NEO_OK;
    NEO__TRY(neo__path_join(path, save->partial, NEO__CKPT_MODEL));
    NEO__TRY(neo__file_open(&file, path, NEO__FILE_CREATE));
    neo__out_begin(&out, &file);
    neo__out_text(&out, save->desc->model);
    return neo__ckpt_finish(&out, NEO_OK, &record);
}
/* Finish on rank 0, when the files of all ranks are written. */
#if !defined(NEO_INFERENCE)
static neo_status neo__ckpt_close(neo__ckpt_save *save) {
    int ranks = save->meet.group.size;
    for (int k = 0; k < 2 * ranks; k++) {
        save->files[k].bytes = (int64_t)save->marks[k].bytes;
        save->files[k].crc = (uint32_t)save->marks[k].crc;
        if (k % ranks > 0) NEO__TRY(neo__ckpt_see(save, &save->files[k], k % ranks));
    }
    NEO__TRY(neo__ckpt_write_index(save, &save->files[2 * ranks]));
    NEO__TRY(neo__ckpt_write_model(save));
    NEO__TRY(neo__ckpt_write_manifest(save));
    return neo__ckpt_commit(save);
}
/* Make the directory, and the lists of what goes into this rank's files. */
static neo_status neo__ckpt_open_dir(neo__ckpt_save *save) {
    neo_status status = save->meet.group.rank == 0 ? neo__dir_make_one(save->partial) : NEO_OK;
    for (int weights = 0; weights < 2 && status == NEO_OK; weights++)
        status = neo__ckpt_list_items(save, weights);
    return neo__meet_agree(&save->meet, status);
}
/* This rank's files are written, or why not: on all ranks, with the sizes of all files. */
static neo_status neo__ckpt_share(neo__ckpt_save *save, neo_status status) {
    const neo__meet *meet = &save->meet;
    status = neo__meet_agree(meet, status);
    return status == NEO_OK ? neo__meet_sum(meet, save->marks, 6 * (int64_t)meet->group.size)
                            : status;
}
/* The rest, on rank 0 and any thread. */
static neo_status neo__ckpt_finish_all(neo__ckpt_save *save) {
    if (save->meet.group.rank > 0) return NEO_OK;
    NEO__TRY(neo__ckpt_close(save));
    neo__ckpt_prune(save);
    return NEO_OK;
}
#endif
static neo_status neo__ckpt_prepare_lists(neo__ckpt_save *save) {
    int ranks = save->meet.group.size;
    for (int i = 0; i < save->state->count; i++)
        save->part_count += save->state->entries[i].is_part;
    int tracked = 0;
    for (int i = 0; i < save->state->count; i++) tracked += save->state->entries[i].marks != NULL;
    save->base.step = -1;
    for (int i = 0; i < 2; i++) {
        neo__ckpt_list *list = &save->lists[i];
        NEO__TRY(NEO__ARENA(&save->arena, list->items, save->state->count + tracked + 1));
        NEO__TRY(
            NEO__ARENA(&save->arena, list->metadata, 2 * (3 + save->part_count + 2 * tracked)));
    }
    NEO__TRY(NEO__ARENA(&save->arena, save->rows, tracked));
    NEO__TRY(NEO__ARENA(&save->arena, save->tensors, tracked ? save->state->count : 0));
    NEO__TRY(NEO__ARENA(&save->arena, save->files, 2 * ranks + 1));
    NEO__TRY(NEO__ARENA(&save->arena, save->marks, 2 * ranks));
    for (int k = 0; k < 2 * ranks; k++)
        snprintf(save->files[k].name, sizeof save->files[k].name, "%s-%05d-of-%05d.safetensors",
                 k < ranks ? "model" : "state", k % ranks + 1, ranks);
    snprintf(save->files[2 * ranks].name, sizeof save->files[0].name, "%s", NEO__CKPT_INDEX);
    return NEO_OK;
}
static neo_status neo__ckpt_prepare_dir(neo__ckpt_save *save) {
    neo__path_kind there;
    NEO__TRY(neo__path_look(save->whole, &there));
    NEO__CHECK(there == NEO__PATH_NONE || there == NEO__PATH_DIR, NEO_ERR_IO,
               "%s: is in the way, and is not a directory", save->whole);
    const neo__state_dicts *dicts = &save->state->dicts;
    size_t bytes = dicts->schema ? dicts->bytes(dicts->schema) : 0;
    if (bytes > 0) {
        char *words;
        NEO__TRY(NEO__ARENA(&save->arena, words, bytes));
        NEO__TRY(dicts->save(dicts->schema, words));
        save->schema = neo_tensor_1d(words, NEO_U8, (int64_t)bytes);
    }
    NEO__TRY(neo__dir_make(save->desc->dir));
    NEO__TRY(neo__dir_lock(&save->lock, save->desc->dir));
    save->locked = 1;
    NEO__TRY(neo__dir_list(save->desc->dir, neo__ckpt_clean, save));
    if (save->there_count > 1)
        qsort(save->there, (size_t)save->there_count, sizeof *save->there, neo__ckpt_compare_down);
    return NEO_OK;
}
static uint64_t neo__definition_hash(const neo_state *state) {
    uint64_t hash = 0;
    for (int i = 0; i < state->word_count; i++)
        hash +=
            neo__mix64(neo__mix64(neo_hash(state->words[i].key)) + neo_hash(state->words[i].value));
    return hash;
}
/* Check that the ranks hold one state and save the same step of it. */
static neo_status neo__ckpt_prepare_group(neo__ckpt_save *save) {
    const neo__meet *meet = &save->meet;
    if (meet->group.size == 1 && save->part_count == 0) return NEO_OK;
    NEO__ZERO(neo__census, census);
    NEO__TRY(neo__meet_same(meet, (uint64_t)save->desc->step, "neo_save", "desc.step"));
    NEO__TRY(neo__meet_same(meet, neo__definition_hash(save->state), "neo_save",
                            "the numeric definition"));
    neo_status status = neo__census_take(save->state, meet, "neo_save", 1, &census);
    neo__arena_free(&census.arena);
    return status;
}
/* ---- the base of a differential checkpoint ---- */
/* The numbers of the rows of an entry that have changed. */
static neo_status neo__ckpt_list_rows(neo__ckpt_save *save, const neo__state_entry *entry) {
    const neo__row_marks *marks = entry->marks;
    const int64_t words = (marks->rows + 63) / 64, first = entry->slab.place.row;
    const int wide = entry->whole.shape[0] > INT32_MAX;
    int64_t count = 0, at = 0;
    int32_t *narrow_to = NULL;
    int64_t *wide_to = NULL;
    for (int i = 0; i < save->row_count; i++)
        if (save->rows[i].marks == marks) return NEO_OK;
    for (int64_t i = 0; i < words; i++) count += __builtin_popcountll(marks->bits[i]);
    if (wide) NEO__TRY(NEO__ARENA(&save->arena, wide_to, count));
    else NEO__TRY(NEO__ARENA(&save->arena, narrow_to, count));
    for (int64_t i = 0; i < words; i++)
        for (uint64_t left = marks->bits[i]; left; left &= left - 1, at++) {
            const int64_t row = first + i * 64 + __builtin_ctzll(left);
            if (wide) wide_to[at] = row;
            else narrow_to[at] = (int32_t)row;
        }
    neo__ckpt_rows *rows = &save->rows[save->row_count++];
    rows->marks = entry->marks;
    rows->numbers = wide ? neo_tensor_1d(wide_to, NEO_I64, count)
                         : neo_tensor_1d(narrow_to, NEO_I32, count);
    return NEO_OK;
}
/* The checkpoint that all marks of all ranks count from: its id, or 0. */
static neo_status neo__ckpt_agree_base(const neo__ckpt_save *save, uint64_t *base, int64_t *step) {
    const neo_state *state = save->state;
    const uint64_t none = UINT64_MAX; /* a rank without marks agrees with all */
    uint64_t mine = none;
    *step = 0;
    for (int i = 0; i < state->count; i++) {
        const neo__row_marks *marks = state->entries[i].marks;
        if (!marks) continue;
        mine = mine == none || mine == marks->base ? marks->base : 0;
        *step = marks->base_step;
    }
    *base = none;
    NEO__TRY(neo__meet_each(&save->meet, mine));
    for (int r = 0; r < save->meet.group.size; r++) {
        const uint64_t word = save->meet.each[r];
        if (word != none) *base = *base == none || *base == word ? word : 0;
    }
    NEO__TRY(neo__meet_each(&save->meet, (uint64_t)*step));
    for (int r = 0; r < save->meet.group.size; r++)
        *step = NEO__MAX(*step, (int64_t)save->meet.each[r]);
    if (*base == none) *base = 0;
    return NEO_OK;
}
/* On rank 0: the base if it is there, with its chain, and this checkpoint need not be full; or
   NULL. */
static const neo__ckpt_head *neo__ckpt_base_of(const neo__ckpt_save *save, uint64_t base,
                                               int64_t step) {
    const neo__ckpt_head *head = neo__ckpt_there(save, step), *at, *below;
    if (base == 0 || !head || step >= save->desc->step) return NULL;
    if (neo__ckpt_id(step, head->crc) != base || head->depth + 1 >= save->desc->full_every)
        return NULL;
    for (at = head; at->base_step >= 0; at = below) {
        below = neo__ckpt_there(save, at->base_step);
        if (!below || below->crc != at->base_crc) return NULL;
    }
    return at->unknown ? NULL : head;
}
static neo_status neo__ckpt_prepare_base(neo__ckpt_save *save) {
    const neo__meet *meet = &save->meet;
    const neo_state *state = save->state;
    uint64_t base, words[3] = {0, 0, 0};
    int64_t step;
    const neo__ckpt_head *head = NULL;
    NEO__TRY(neo__meet_same(meet, (uint64_t)save->desc->full_every, "neo_save", "desc.full_every"));
    if (save->desc->full_every <= 1) return NEO_OK;
    NEO__TRY(neo__ckpt_agree_base(save, &base, &step));
    if (meet->group.rank == 0) head = neo__ckpt_base_of(save, base, step);
    if (head) {
        words[0] = 1;
        words[1] = head->crc;
        words[2] = (uint64_t)head->depth;
    }
    NEO__TRY(neo__meet_sum(meet, words, 3));
    if (!words[0]) return NEO_OK;
    save->base.step = step;
    save->base.crc = (uint32_t)words[1];
    save->base.depth = (int64_t)words[2];
    neo_status status = NEO_OK;
    for (int i = 0; i < state->count && status == NEO_OK; i++)
        if (state->entries[i].marks) status = neo__ckpt_list_rows(save, &state->entries[i]);
    return neo__meet_agree(meet, status);
}
/* The marks of a state count from a checkpoint; id 0: from none. */
static void neo__state_marks_from(const neo_state *state, uint64_t id, int64_t step) {
    for (int i = 0; i < state->count; i++) {
        neo__row_marks *marks = state->entries[i].marks;
        if (!marks) continue;
        if (id) memset(marks->bits, 0, (size_t)(marks->rows + 63) / 64 * sizeof *marks->bits);
        marks->base = id;
        marks->base_step = step;
    }
}
/* The id of the checkpoint that a good save has made, on all ranks; 0 where none is to go on from
   it. */
static neo_status neo__ckpt_new_base(const neo__ckpt_save *save, uint64_t *id) {
    uint64_t crc = save->meet.group.rank == 0 ? save->crc : 0;
    *id = 0;
    if (save->desc->full_every <= 1) return NEO_OK;
    NEO__TRY(neo__meet_sum(&save->meet, &crc, 1));
    *id = neo__ckpt_id(save->desc->step, (uint32_t)crc);
    return NEO_OK;
}
static neo_status neo__ckpt_prepare(neo__ckpt_save *save) {
    const neo_save_desc *desc = save->desc;
    const neo__meet *meet = &save->meet;
    neo_status status = neo__ckpt_path(save->partial, desc->dir, desc->step, NEO__CKPT_PARTIAL);
    if (status == NEO_OK)
        status = neo__ckpt_path(save->whole, desc->dir, desc->step, NEO__CKPT_WHOLE);
    if (status == NEO_OK) status = neo__ckpt_path(save->old, desc->dir, desc->step, NEO__CKPT_OLD);
    if (status == NEO_OK) status = neo__state_may_save(save->state);
    if (status == NEO_OK) neo__state_make_rows(save->state);
    if (status == NEO_OK) status = neo__ckpt_prepare_lists(save);
    NEO__TRY(neo__meet_agree(meet, status));
    NEO__TRY(neo__ckpt_prepare_group(save));
    NEO__TRY(neo__meet_agree(meet, meet->group.rank == 0 ? neo__ckpt_prepare_dir(save) : NEO_OK));
    return neo__ckpt_prepare_base(save);
}
static neo_status neo__check_save(const neo_ctx *ctx, const neo_save_desc *desc,
                                  const neo_state *state) {
    NEO__CHECK(ctx && state && desc->dir && desc->dir[0], NEO_ERR_ARG,
               "neo_save: an argument is NULL or desc.dir is empty");
    if (desc->full_every > 1) NEO__TRY(neo__state_check_idle(state, "neo_save"));
    NEO__CHECK(desc->step >= 0 && desc->step <= NEO__CKPT_MAX_STEP, NEO_ERR_ARG,
               "neo_save: desc.step is %" PRId64 ", not in 0 .. %" PRId64, desc->step,
               NEO__CKPT_MAX_STEP);
    NEO__CHECK(desc->metric_count >= 0 && desc->metric_count <= NEO_MAX_METRICS &&
                   (desc->metrics || desc->metric_count == 0),
               NEO_ERR_ARG, "neo_save: desc.metric_count is %d, not in 0 .. %d, or metrics is NULL",
               desc->metric_count, (int)NEO_MAX_METRICS);
    for (int i = 0; i < desc->metric_count; i++) {
        const char *name = desc->metrics[i].name;
        NEO__CHECK(name && name[0] && neo__utf8_valid(name), NEO_ERR_ARG,
                   "neo_save: the name of metric %d is NULL, empty or not UTF-8", i);
        for (int k = 0; k < i; k++)
            NEO__CHECK(strcmp(name, desc->metrics[k].name) != 0, NEO_ERR_ARG,
                       "neo_save: metric %s is there twice", name);
    }
    return NEO_OK;
}
/* ---------------------------------------------------------------------------
   >>impl-saving

   A save that a thread writes. Begin does all that ranks must agree on and lists what goes into
   this rank's two files, and the thread writes them. A poll that finds all ranks' threads done
   tells them each other's sizes, and rank 0's thread does the rest, removing old checkpoints too; a
   wait does it itself. No thread but the caller's makes collective calls.

   All tensors but those of tracked tables are copied when it begins. Rows of these are not: a table
   of most of the memory has no room for a copy, and copying it would take a good part of the time
   of writing it. Its marks are cleared instead, so that a bit that turns from 0 to 1 is the first
   change of a row since then, which a step sees before the row changes: it copies the row's old
   content, of all its tensors, to a log, and sets the bit. The writer takes a row from the table
   where its bit is 0, and from the log where it is 1. One lock of the table makes that safe: a row
   changes only after its bit was set under the lock, and the writer reads rows, a buffer at a time,
   under it. Rows that it has passed in all tensors need no copy: so it writes the
   optimizer's state first, which is often short, and weights then. When the log is full a step
   waits for that. Copies are of rows, not
   of pages or blocks: a batch of random ids touches nearly every block of a table in one step.

   The marks as they were are kept. They come back (with what has changed since) when the save
   fails, and when it is of no chain; else those since the begin count from the new checkpoint.
   ------------------------------------------------------------------------ */
#if !defined(NEO_INFERENCE)
enum { NEO__GUARD_TENSORS = 16, NEO__GUARD_BUFFER = 1 << 16, NEO__GUARD_LEAST = 1 << 24 };
/* A tracked table while its rows are written. */
typedef struct neo__row_guard {
    neo_ctx *ctx;
    neo__row_marks *marks;
    uint64_t *old, base; /* the marks as they were */
    int64_t base_step;
    int some;            /* only rows that are marked in old are written */
    const neo_tensor *tensors[NEO__GUARD_TENSORS];
    size_t widths[NEO__GUARD_TENSORS], at[NEO__GUARD_TENSORS]; /* of a row; in a record */
    int tensor_count;
    int64_t passed[NEO__GUARD_TENSORS]; /* the writer has the rows before this one */
    int left;            /* tensors to be written */
    size_t record;
    int64_t room, used;  /* of the log */
    char *log;
    int64_t *rows;       /* of its records */
    uint32_t *places;    /* hash table of rows: record + 1; 0 is empty; mask + 1 of them */
    uint64_t mask;
    int64_t placed;      /* records that it has; below 0: it is not cleared. All three, and */
    char *buffer;        /* this, are the writer's: a step only adds to the log */
    neo_status status;   /* of a row that could not be copied, with its message */
    char text[400];
    neo__mutex lock;     /* of all that changes here, and of the marks' bits */
    neo__cond wake;      /* the writer has come further */
} neo__row_guard;
struct neo_saving {
    neo__ckpt_save save;
    neo__live live;
    neo_save_desc desc; /* what it points at is in save.arena, but for the group */
    neo_group group;
    neo__thread thread;
    neo__row_guard *guards;
    int guard_count, threaded;
    neo_tensor *copies;
    char *block;
    size_t bytes;
    neo_status status; /* of the thread, with its message */
    char text[NEO__PATH_BYTES];
    int closing; /* the files of all ranks are written; rank 0's thread does the rest */
    int done;    /* atomic: the thread is at its end */
};

/* ---- rows that change ---- */
NEO__HOT_BEGIN
static uint32_t *neo__guard_place(const neo__row_guard *guard, int64_t row) {
    uint64_t i = neo__mix64((uint64_t)row + 1) & guard->mask;
    while (guard->places[i] && guard->rows[guard->places[i] - 1] != row) i = (i + 1) & guard->mask;
    return &guard->places[i];
}
static const char *neo__guard_row(const neo_tensor *tensor, int64_t row) {
    return (const char *)tensor->data +
           (size_t)(row * tensor->stride[0]) * neo_dtype_size(tensor->dtype);
}
/* Places of a table's rows, for one step: row 0 of each tensor, and how far rows are apart. */
typedef struct neo__guarded {
    const char *rows[NEO__GUARD_TENSORS];
    size_t apart[NEO__GUARD_TENSORS];
} neo__guarded;
static void neo__guard_keep(neo__row_guard *guard, const neo__guarded *of, int64_t row) {
    char *record = guard->log + (size_t)guard->used * guard->record;
    for (int k = 0; k < guard->tensor_count && guard->status == NEO_OK; k++) {
        const char *from = of->rows[k] + (size_t)row * of->apart[k];
        const neo_place place = guard->tensors[k]->place;
        if (place == NEO_HOST) memcpy(record + guard->at[k], from, guard->widths[k]);
        else
            guard->status = neo__data_read(guard->ctx, record + guard->at[k], from, place,
                                           guard->widths[k]);
        if (guard->status != NEO_OK)
            snprintf(guard->text, sizeof guard->text, "%s", neo_last_error());
    }
    guard->rows[guard->used++] = row;
}
/* The first `used` records of the log have places. */
static void neo__guard_find(neo__row_guard *guard, int64_t used) {
    if (guard->placed < 0) {
        memset(guard->places, 0, (size_t)(guard->mask + 1) * sizeof *guard->places);
        guard->placed = 0;
    }
    for (; guard->placed < used; guard->placed++)
        *neo__guard_place(guard, guard->rows[guard->placed]) = (uint32_t)guard->placed + 1;
}
/* 1: the writer has still to come by a row. */
static int neo__guard_needs(const neo__row_guard *guard, int64_t row) {
    for (int k = 0; k < guard->tensor_count && guard->left > 0; k++)
        if (row >= guard->passed[k]) return 1;
    return 0;
}
static void neo__guard_before(void *user, const uint64_t *records, int64_t count, int low_bits,
                              const uint64_t *line_row) {
    enum { AHEAD = 16 };
    neo__row_guard *guard = (neo__row_guard *)user;
    neo__guarded of;
    for (int k = 0; k < guard->tensor_count; k++) {
        of.rows[k] = neo__guard_row(guard->tensors[k], 0);
        of.apart[k] = (size_t)(neo__guard_row(guard->tensors[k], 1) - of.rows[k]);
    }
    neo__mutex_lock(&guard->lock);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t at = records[i] >> low_bits, row = line_row ? line_row[at] : at,
                       bit = UINT64_C(1) << row % 64;
        uint64_t *bits = &guard->marks->bits[row / 64];
        for (int k = 0; k < guard->tensor_count && !line_row && i + AHEAD < count; k++)
            __builtin_prefetch(of.rows[k] + (records[i + AHEAD] >> low_bits) * of.apart[k], 1, 2);
        if (*bits & bit) continue;
        const int wanted = !guard->some || guard->old[row / 64] & bit;
        while (wanted && guard->used == guard->room && neo__guard_needs(guard, (int64_t)row))
            neo__cond_wait(&guard->wake, &guard->lock);
        if (wanted && neo__guard_needs(guard, (int64_t)row))
            neo__guard_keep(guard, &of, (int64_t)row);
        *bits |= bit;
    }
    neo__mutex_unlock(&guard->lock);
}
/* A tensor of the table, or (-1) all, need no copies any more. */
static void neo__guard_written(neo__row_guard *guard, int tensor) {
    neo__mutex_lock(&guard->lock);
    if (tensor >= 0) guard->passed[tensor] = guard->marks->rows;
    guard->left = tensor >= 0 ? guard->left - 1 : 0;
    neo__cond_broadcast(&guard->wake);
    neo__mutex_unlock(&guard->lock);
}
static int neo__guard_changed(const neo__row_guard *guard, int64_t row) {
    return (int)(guard->marks->bits[row / 64] >> row % 64 & 1);
}
static int64_t neo__guarded_row(const neo__st_item *item, int64_t i) {
    return item->numbers ? neo__st_number(item->numbers, i) - item->first : i;
}
static void neo__st_put_guarded(neo__out *out, const neo__st_item *item) {
    neo__row_guard *guard = item->guard;
    const size_t width = guard->widths[item->guarded], at = guard->at[item->guarded];
    const int together = neo_tensor_is_contiguous(*item->tensor);
    const int64_t rows = item->tensor->shape[0],
                  most = NEO__MAX((int64_t)(NEO__GUARD_BUFFER / width), (int64_t)1);
    for (int64_t first = 0, n; first < rows && out->status == NEO_OK; first += n) {
        n = NEO__MIN(most, rows - first);
        neo__mutex_lock(&guard->lock);
        const int64_t used = guard->used;
        neo__mutex_unlock(&guard->lock);
        neo__guard_find(guard, used); /* a step need not wait meanwhile */
        neo__mutex_lock(&guard->lock);
        neo__guard_find(guard, guard->used);
        for (int64_t i = 0, run; i < n && guard->status == NEO_OK; i += run) {
            const int64_t row = neo__guarded_row(item, first + i);
            char *to = guard->buffer + (size_t)i * width;
            run = 1;
            if (neo__guard_changed(guard, row)) {
                memcpy(to, guard->log + (*neo__guard_place(guard, row) - 1) * guard->record + at,
                       width);
            } else { /* rows of a file are read together */
                while (i + run < n && together &&
                       neo__guarded_row(item, first + i + run) == row + run &&
                       !neo__guard_changed(guard, row + run))
                    run++;
                out->status = neo__data_read(guard->ctx, to, neo__guard_row(item->tensor, row),
                                             item->tensor->place, (size_t)run * width);
                if (out->status != NEO_OK) break;
            }
            guard->passed[item->guarded] = row + run;
        }
        if (guard->status != NEO_OK) out->status = neo_fail(guard->status, "%s", guard->text);
        if (guard->used == guard->room) neo__cond_broadcast(&guard->wake);
        neo__mutex_unlock(&guard->lock);
        if (out->status == NEO_OK) neo__out_bytes(out, guard->buffer, (size_t)n * width);
    }
    if (out->status == NEO_OK) neo__guard_written(guard, item->guarded);
}
NEO__HOT_END

/* ---- memory ---- */
static size_t neo__row_bytes(const neo_tensor *t) {
    return neo__size_mul(t->ndim > 1 ? (size_t)t->shape[1] : 1, neo_dtype_size(t->dtype));
}
/* The room for copies of a table's rows, of all tables' `total` bytes. */
static void neo__guard_size(const neo_save_desc *desc, size_t record, int64_t rows, size_t total,
                            int64_t *room, int64_t *places) {
    size_t bytes = desc->copy_bytes;
    if (bytes == 0) bytes = NEO__MAX(total / 8, (size_t)NEO__GUARD_LEAST);
    const double share = record ? (double)bytes * (double)rows / (double)total : 0.0;
    *room = record ? NEO__MIN(NEO__MAX((int64_t)share, (int64_t)1), rows) : 0;
    for (*places = *room ? 16 : 0; *places < 2 * *room;) *places *= 2;
}
static size_t neo__copied_bytes(size_t bytes) { return neo__size_add(bytes, 63) & ~(size_t)63; }
/* 1: this rank writes the entry. */
static int neo__entry_is_here(const neo__state_entry *entry, int rank) {
    return entry->is_part ? neo__entry_is_own(entry) && neo_tensor_count(entry->tensor) > 0
                          : rank == 0;
}
/* The tensors of a table, from its first entry on: bytes of a row; 1: `index` is the first. */
static int neo__state_table(const neo_state *state, int index, int rank, size_t *record) {
    const neo__row_marks *marks = state->entries[index].marks;
    *record = 0;
    for (int i = 0; i < state->count && marks; i++) {
        if (state->entries[i].marks != marks) continue;
        if (i < index) return 0;
        if (neo__entry_is_here(&state->entries[i], rank))
            *record += neo__row_bytes(&state->entries[i].tensor);
    }
    return marks != NULL;
}
static size_t neo__saving_total(const neo_state *state, int rank) {
    size_t total = 0, record;
    for (int i = 0; i < state->count; i++)
        if (neo__state_table(state, i, rank, &record))
            total = neo__size_add(
                total, neo__size_mul((size_t)state->entries[i].marks->rows, record));
    return total;
}
NEO_API size_t neo_save_begin_bytes(const neo_save_desc *desc, const neo_state *state) {
    const int rank = desc->group ? desc->group->rank : 0;
    const size_t total = neo__saving_total(state, rank);
    size_t bytes = 0, record, widest = NEO__GUARD_BUFFER;
    int64_t room, places;
    for (int i = 0; i < state->count; i++) {
        const neo__state_entry *entry = &state->entries[i];
        if (!entry->marks && neo__entry_is_here(entry, rank))
            bytes += neo__copied_bytes(neo__st_bytes(&entry->tensor));
        if (entry->marks) widest = NEO__MAX(widest, neo__row_bytes(&entry->tensor));
        if (!neo__state_table(state, i, rank, &record)) continue;
        const int64_t rows = entry->marks->rows;
        neo__guard_size(desc, record, rows, total, &room, &places);
        bytes += neo__copied_bytes((size_t)(rows + 63) / 64 * sizeof(uint64_t)) +
                 neo__copied_bytes((size_t)room * record) +
                 neo__copied_bytes((size_t)room * sizeof(int64_t)) +
                 neo__copied_bytes((size_t)places * sizeof(uint32_t));
    }
    return bytes + neo__copied_bytes(widest);
}

/* ---- begin ---- */
/* Guards of all tracked tables, and copies of all else that is in the lists. */
static void neo__saving_guard(neo_saving *saving, neo__carve *carve, neo__row_guard *guard,
                              size_t total, size_t record) {
    int64_t places;
    neo__guard_size(&saving->desc, record, guard->marks->rows, total, &guard->room, &places);
    NEO__CARVE(carve, guard->old, (guard->marks->rows + 63) / 64);
    guard->placed = -1;
    memcpy(guard->old, guard->marks->bits,
           (size_t)(guard->marks->rows + 63) / 64 * sizeof *guard->old);
    guard->mask = (uint64_t)places - 1;
    guard->ctx = saving->save.ctx;
    guard->some = saving->save.base.step >= 0;
    neo__mutex_init(&guard->lock);
    neo__cond_init(&guard->wake);
}
/* Memory that nobody touches before there are copies lies apart: to bring its pages takes long. */
static void neo__saving_log(neo__carve *carve, neo__row_guard *guard) {
    NEO__CARVE(carve, guard->log, (size_t)guard->room * guard->record);
    NEO__CARVE(carve, guard->rows, guard->room);
    NEO__CARVE(carve, guard->places, guard->room ? guard->mask + 1 : 0);
}
static neo_status neo__saving_copy(neo_saving *saving, neo__carve *carve, neo__st_item *item,
                                   neo_tensor *copy) {
    const neo_tensor *from = item->tensor;
    const size_t bytes = neo__st_bytes(from);
    char *to;
    *copy = neo_tensor_nd(NULL, from->dtype, from->ndim, from->shape);
    NEO__CARVE(carve, to, bytes);
    copy->data = to;
    item->tensor = copy;
    if (neo_tensor_is_contiguous(*from))
        return bytes ? neo__data_read(saving->save.ctx, to, from->data, from->place, bytes)
                     : NEO_OK;
    const size_t width = neo__row_bytes(from);
    for (int64_t row = 0; row < from->shape[0]; row++, to += width)
        NEO__TRY(
            neo__data_read(saving->save.ctx, to, neo__guard_row(from, row), from->place, width));
    return NEO_OK;
}
static neo_status neo__saving_snapshot(neo_saving *saving) {
    neo__ckpt_save *save = &saving->save;
    const neo_state *state = save->state;
    const int rank = save->meet.group.rank;
    const size_t total = neo__saving_total(state, rank);
    size_t record, widest = NEO__GUARD_BUFFER;
    neo__carve carve = {NULL, 0};
    int copies = 0;
    NEO__TRY(NEO__ARENA(&save->arena, saving->guards, state->count));
    NEO__TRY(NEO__ARENA(&save->arena, saving->copies,
                        save->lists[0].count + save->lists[1].count));
    saving->bytes = neo_save_begin_bytes(&saving->desc, state);
    carve.block = (char *)neo__alloc_for(save->ctx, saving->bytes, "neo_save_begin");
    saving->block = carve.block;
    if (!carve.block) return NEO_ERR_MEMORY;
    for (int i = 0; i < state->count; i++) {
        if (state->entries[i].marks)
            widest = NEO__MAX(widest, neo__row_bytes(&state->entries[i].tensor));
        if (!neo__state_table(state, i, rank, &record)) continue;
        neo__row_guard *guard = &saving->guards[saving->guard_count++];
        guard->marks = state->entries[i].marks;
        neo__saving_guard(saving, &carve, guard, total, record);
    }
    char *buffer;
    NEO__CARVE(&carve, buffer, widest);
    for (int i = 0; i < 2 * NEO__MAX(save->lists[0].count, save->lists[1].count); i++) {
        neo__ckpt_list *list = &save->lists[i % 2];
        if (i / 2 >= list->count) continue;
        neo__st_item *item = &list->items[i / 2];
        neo__row_guard *guard = saving->guards;
        while (item->marks && guard->marks != item->marks) guard++;
        if (item->marks) {
            NEO__CHECK(guard->tensor_count < NEO__GUARD_TENSORS, NEO_ERR_UNSUPPORTED,
                       "neo_save_begin: %s: more than %d tensors of one tracked table", item->name,
                       (int)NEO__GUARD_TENSORS);
            const int k = item->guarded = guard->tensor_count++;
            item->guard = guard;
            guard->buffer = buffer;
            guard->tensors[k] = item->tensor;
            guard->widths[k] = neo__row_bytes(item->tensor);
            guard->at[k] = guard->record;
            guard->record += guard->widths[k];
            guard->left++;
        } else if (item->tensor != &save->schema && !neo__ends_as_rows(item->name)) {
            NEO__TRY(neo__saving_copy(saving, &carve, item, &saving->copies[copies++]));
        }
    }
    for (int i = 0; i < saving->guard_count; i++) neo__saving_log(&carve, &saving->guards[i]);
    NEO_ASSERT(carve.at == saving->bytes);
    for (int i = 0; i < saving->guard_count; i++) { /* from here on nothing fails */
        neo__row_guard *guard = &saving->guards[i];
        neo__row_marks *marks = guard->marks;
        guard->base = marks->base;
        guard->base_step = marks->base_step;
        memset(marks->bits, 0, (size_t)(marks->rows + 63) / 64 * sizeof *marks->bits);
        marks->user = guard;
        marks->before = neo__guard_before;
    }
    return NEO_OK;
}
/* The marks are the table's again: after a good save of a chain (id) they count from it. */
static void neo__saving_release(neo_saving *saving, uint64_t id) {
    for (int i = 0; i < saving->guard_count; i++) {
        neo__row_guard *guard = &saving->guards[i];
        neo__row_marks *marks = guard->marks;
        neo__mutex_destroy(&guard->lock);
        neo__cond_destroy(&guard->wake);
        if (!marks->before) continue; /* the snapshot has failed before */
        marks->before = NULL;
        marks->base = id ? id : guard->base;
        marks->base_step = id ? saving->desc.step : guard->base_step;
        for (int64_t k = 0; !id && k < (marks->rows + 63) / 64; k++)
            marks->bits[k] |= guard->old[k];
    }
    saving->guard_count = 0;
}
static void neo__saving_free(neo_saving *saving) {
    neo__ckpt_save *save = &saving->save;
    neo_ctx *ctx = save->ctx;
    neo__live_end(ctx, &saving->live);
    if (save->locked) neo__dir_unlock(&save->lock);
    NEO__LIST_FREE(ctx, save->there, save->there_capacity);
    neo_free(ctx, saving->block, saving->bytes);
    neo__meet_end(&save->meet);
    neo__arena_free(&save->arena);
    neo_free(ctx, saving, sizeof *saving);
}
/* The texts that the caller may change when begin has returned. */
static neo_status neo__saving_own(neo_save_desc *own, neo_group *group, neo__arena *arena,
                                  const neo_save_desc *desc) {
    neo_metric *metrics;
    *own = *desc;
    if (desc->group) *group = *desc->group, own->group = group;
    own->dir = desc->dir ? neo__arena_text(arena, desc->dir, strlen(desc->dir)) : NULL;
    own->model = desc->model ? neo__arena_text(arena, desc->model, strlen(desc->model)) : NULL;
    NEO__TRY(NEO__ARENA(arena, metrics, NEO__MAX(desc->metric_count, 0)));
    for (int i = 0; i < desc->metric_count && desc->metrics; i++) {
        metrics[i] = desc->metrics[i];
        const char *name = metrics[i].name;
        if (name) metrics[i].name = neo__arena_text(arena, name, strlen(name));
        if (name && !metrics[i].name) return NEO_ERR_MEMORY;
    }
    if (desc->metrics) own->metrics = metrics;
    return (desc->dir && !own->dir) || (desc->model && !own->model) ? NEO_ERR_MEMORY : NEO_OK;
}
/* All that comes before this rank's files are written. */
static neo_status neo__saving_make(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state,
                                   int background, neo_saving **out) {
    neo__meet meet;
    NEO__TRY(neo__meet_begin(&meet, ctx, "neo_save", desc->group));
    neo_status status = neo__check_save(ctx, desc, state);
    neo_saving *saving = NULL;
    if (status == NEO_OK && background) status = neo__state_check_idle(state, "neo_save_begin");
    if (status == NEO_OK) {
        saving = (neo_saving *)neo__alloc_for(ctx, sizeof *saving, "neo_save");
        status = saving ? NEO_OK : NEO_ERR_MEMORY;
    }
    status = neo__meet_agree(&meet, status);
    if (!saving) {
        neo__meet_end(&meet);
        return status;
    }
    memset(saving, 0, sizeof *saving);
    neo__ckpt_save *save = &saving->save;
    save->ctx = save->arena.ctx = ctx;
    save->arena.function = "neo_save";
    save->desc = &saving->desc;
    save->state = state;
    save->meet = meet;
    saving->desc = *desc;
    if (status == NEO_OK && background)
        status = neo__meet_agree(
            &meet, neo__saving_own(&saving->desc, &saving->group, &save->arena, desc));
    if (status == NEO_OK) status = neo__ckpt_prepare(save);
    const int prepared = status == NEO_OK;
    if (prepared) status = neo__ckpt_open_dir(save);
    if (status == NEO_OK && background)
        status = neo__meet_agree(&meet, neo__saving_snapshot(saving));
    if (status == NEO_OK) {
        *out = saving;
        return NEO_OK;
    }
    neo__kept_error error = neo__error_keep(status);
    neo__saving_release(saving, 0);
    if (prepared && meet.group.rank == 0) (void)neo__tree_remove(save->partial);
    neo__saving_free(saving);
    return neo__error_restore(&error);
}
/* All that comes after; status: of all ranks. */
static neo_status neo__saving_end(neo_saving *saving, neo_status status) {
    neo__ckpt_save *save = &saving->save;
    uint64_t id = 0;
    if (status == NEO_OK) status = neo__ckpt_new_base(save, &id);
    if (id && saving->guard_count == 0) neo__state_marks_from(save->state, id, save->desc->step);
    neo__kept_error error = neo__error_keep(status);
    if (status != NEO_OK && save->meet.group.rank == 0) (void)neo__tree_remove(save->partial);
    neo__saving_release(saving, id);
    neo__saving_free(saving);
    return status == NEO_OK ? NEO_OK : neo__error_restore(&error);
}
static neo_status neo__saving_finish(neo_saving *saving, neo_status status) {
    neo__ckpt_save *save = &saving->save;
    if (!saving->closing) {
        status = neo__ckpt_share(save, status);
        if (status != NEO_OK) return neo__saving_end(saving, status);
        status = neo__ckpt_finish_all(save);
    }
    return neo__saving_end(saving, neo__meet_agree(&save->meet, status));
}
NEO_API neo_status neo_save(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state) {
    neo_saving *saving = NULL;
    NEO__SPAN(ctx, "neo_save");
    NEO__TRY(neo__check_ctx("neo_save", ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "neo_save: desc is NULL");
    NEO__TRY(neo__saving_make(ctx, desc, state, 0, &saving));
    return neo__saving_finish(saving, neo__ckpt_write_own(&saving->save));
}

/* ---- in the background ---- */
static void neo__saving_work(void *arg) {
    neo_saving *saving = (neo_saving *)arg;
    neo__ckpt_save *save = &saving->save;
    saving->status = saving->closing ? neo__ckpt_finish_all(save) : neo__ckpt_write_own(save);
    if (saving->status != NEO_OK)
        snprintf(saving->text, sizeof saving->text, "%s", neo_last_error());
    for (int i = 0; i < saving->guard_count; i++) neo__guard_written(&saving->guards[i], -1);
    __atomic_store_n(&saving->done, 1, __ATOMIC_RELEASE);
}
static void neo__saving_run(neo_saving *saving) {
    __atomic_store_n(&saving->done, 0, __ATOMIC_RELAXED);
    saving->threaded = neo__thread_create(&saving->thread, neo__saving_work, saving);
    if (!saving->threaded) neo__saving_work(saving);
}
static neo_status neo__saving_join(neo_saving *saving) {
    if (saving->threaded) neo__thread_join(&saving->thread);
    saving->threaded = 0;
    return saving->status == NEO_OK ? NEO_OK : neo_fail(saving->status, "%s", saving->text);
}
NEO_API neo_status neo_save_begin(neo_ctx *ctx, const neo_save_desc *desc, const neo_state *state,
                                  neo_saving **out) {
    NEO__CHECK(out, NEO_ERR_ARG, "neo_save_begin: saving is NULL");
    NEO__TRY(neo_save_wait(out));
    NEO__TRY(neo__check_ctx("neo_save_begin", ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "neo_save_begin: desc is NULL");
    neo_saving *saving = NULL;
    NEO__TRY(neo__saving_make(ctx, desc, state, 1, &saving));
    if (saving->save.meet.group.patient) /* training's own patience, until wait */
        saving->save.meet.group.patient(saving->save.meet.group.user, 0);
    neo__live_begin(ctx, &saving->live, "save", desc->dir);
    neo__saving_run(saving);
    *out = saving;
    return NEO_OK;
}
NEO_API neo_status neo_save_wait(neo_saving **out) {
    neo_saving *saving = out ? *out : NULL;
    if (!saving) return NEO_OK;
    *out = NULL;
    const neo_group *group = &saving->save.meet.group;
    if (group->patient) group->patient(group->user, 1);
    return neo__saving_finish(saving, neo__saving_join(saving));
}
NEO_API neo_status neo_save_poll(neo_saving **out) {
    neo_saving *saving = out ? *out : NULL;
    if (!saving) return NEO_OK;
    uint64_t at_work = !__atomic_load_n(&saving->done, __ATOMIC_ACQUIRE);
    NEO__TRY(neo__meet_sum(&saving->save.meet, &at_work, 1));
    if (at_work) return NEO_OK;
    if (saving->closing) return neo_save_wait(out);
    neo_status status = neo__ckpt_share(&saving->save, neo__saving_join(saving));
    if (status != NEO_OK) {
        *out = NULL;
        return neo__saving_end(saving, status);
    }
    saving->closing = 1;
    if (saving->save.meet.group.rank == 0) neo__saving_run(saving);
    return NEO_OK;
}
#endif

/* ---------------------------------------------------------------------------
   >>impl-load

   Loading reads the files twice: once for the checksums, of which the ranks of a group take turns,
   and, when names, shapes, dtypes and the definition agree too, once into the tensors. Between the
   two every rank goes through all headers, one file at a time, and notes what each rectangle there
   shares with its own parts. To see that these pieces cover a part exactly once it keeps no list of
   them, but adds up their corners: a corner counts as a hash of its place, the first and the last
   with +, the other two with -. Where pieces meet, corners cancel; what stays are the four corners
   of the part, and nothing else, if and (but for a chance of 2^-64) only if each element is covered
   once. Of a chain each checkpoint is checked so, changed rows standing for the rectangle that they
   are of, and the full one is read first. Tensors that no rank asks for come out by a sum over the
   ranks of one word per tensor.
   ------------------------------------------------------------------------ */

/* ---- finding a checkpoint ---- */
typedef struct neo__ckpt_search {
    const char *dir;
    int64_t wanted;                /* 0 and below: the newest */
    int64_t newest, found, before; /* steps; -1: none. before: the newest below found */
    neo__ckpt_suffix suffix;       /* of found */
    int64_t unseen;                /* the newest that cannot be looked at, and why; -1: none */
    neo__kept_error why;
} neo__ckpt_search;
static neo_status neo__ckpt_visit(const char *name, void *user) {
    neo__ckpt_search *search = (neo__ckpt_search *)user;
    neo__ckpt_suffix suffix = NEO__CKPT_WHOLE;
    int64_t step = 0;
    int whole;
    char path[NEO__PATH_BYTES];
    if (!neo__ckpt_parse_name(name, &step, &suffix) || suffix == NEO__CKPT_PARTIAL) return NEO_OK;
    NEO__TRY(neo__ckpt_path(path, search->dir, step, suffix));
    neo_status status = neo__ckpt_look(path, &whole);
    if (status != NEO_OK && search->wanted > 0 && step != search->wanted) return NEO_OK;
    if (status != NEO_OK && step > search->unseen) {
        search->unseen = step;
        search->why = neo__error_keep(status);
    }
    if (status != NEO_OK || !whole) return NEO_OK;
    search->newest = NEO__MAX(search->newest, step);
    int64_t limit = search->wanted > 0 ? search->wanted : search->found;
    if (step < limit || (step > limit && search->wanted > 0)) {
        if (step < limit) search->before = NEO__MAX(search->before, step);
        return NEO_OK;
    }
    if (step == search->found && suffix == NEO__CKPT_OLD) return NEO_OK;
    if (step > search->found) search->before = NEO__MAX(search->before, search->found);
    search->found = step;
    search->suffix = suffix;
    return NEO_OK;
}
static neo_status neo__ckpt_find(const char *dir, int64_t wanted, neo__ckpt_search *search) {
    search->dir = dir;
    search->wanted = wanted;
    search->newest = search->found = search->before = search->unseen = -1;
    search->suffix = NEO__CKPT_WHOLE;
    NEO__TRY(neo__dir_list(dir, neo__ckpt_visit, search));
    if (search->unseen > search->found) return neo__error_restore(&search->why);
    NEO__CHECK(search->newest >= 0, NEO_ERR_NOT_FOUND, "%s: no whole checkpoint here", dir);
    NEO__CHECK(search->found >= 0, NEO_ERR_NOT_FOUND,
               "%s: no whole checkpoint of step %" PRId64 "; the newest is of step %" PRId64, dir,
               wanted, search->newest);
    return NEO_OK;
}

NEO_API neo_status neo_find_checkpoint(const char *dir, int64_t *step) {
    NEO__CHECK(dir && dir[0] && step, NEO_ERR_ARG,
               "neo_find_checkpoint: an argument is NULL or dir is empty");
    neo__ckpt_search search;
    NEO__TRY(neo__ckpt_find(dir, 0, &search));
    *step = search.found;
    return NEO_OK;
}

/* ---- reading a manifest ---- */
/* A rectangle of a file that an entry of the state needs some of. */
typedef struct neo__ckpt_run {
    neo__st_rect rect;
    int file, entry;
} neo__ckpt_run;
/* The elements that the files hold for an entry. */
typedef struct neo__ckpt_cover {
    uint64_t corners;
    int64_t elements;
    int found;
} neo__ckpt_cover;
typedef struct neo__ckpt_load {
    neo_ctx *ctx;
    const neo_load_desc *desc;
    neo_state *state;
    neo__arena arena; /* manifest, covers, text of the dictionaries */
    char dir[NEO__PATH_BYTES], path[NEO__PATH_BYTES]; /* of the step; of the file at hand */
    int64_t step, before; /* before: the step of the checkpoint before this one, or -1 */
    int builds; /* it is differential: the one before may be among those it builds on */
    char *manifest;
    size_t manifest_bytes;
    uint32_t manifest_crc;
    neo__ckpt_head head;     /* of that manifest, but for its step */
    char **links;            /* directories of a chain, its full checkpoint first */
    int link_count, newest;  /* newest: the first file of the last one */
    neo__ckpt_file *files;
    int file_count;
    int64_t file_capacity;
    neo__state_word *words; /* the definition saved */
    int word_count;
    int64_t word_capacity;
    const char *metric; /* that is wanted; or NULL */
    double metric_value;
    int metric_found;
    void *dicts;      /* the dictionaries of the checkpoint, or NULL */
    int any_schema;   /* a rank asks for them */
    neo__meet meet;
    neo__ckpt_cover *covers; /* of every entry */
    neo__ckpt_run *runs;     /* by file */
    int run_count;
    int64_t run_capacity;
    uint64_t *known; /* of each tensor of the files, in their order: 1: it is asked for */
    int known_count;
    int64_t known_capacity;
    uint64_t headers; /* a hash of the names in the headers */
    neo_difference looks_for;
} neo__ckpt_load;

static void neo__ckpt_load_free(neo__ckpt_load *load) {
    neo_ctx *ctx = load->ctx;
    if (load->dicts) load->state->dicts.install(load->state->dicts.schema, load->dicts, 0);
    NEO__LIST_FREE(ctx, load->known, load->known_capacity);
    NEO__LIST_FREE(ctx, load->runs, load->run_capacity);
    NEO__LIST_FREE(ctx, load->words, load->word_capacity);
    NEO__LIST_FREE(ctx, load->files, load->file_capacity);
    neo__arena_free(&load->arena);
}

/* A file name as this program writes them: nothing that could leave the directory. */
static int neo__ckpt_plain_name(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= NEO__CKPT_NAME_BYTES || name[0] == '.') return 0;
    for (; *name; name++) {
        int letter = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
        if (!letter && !(*name >= '0' && *name <= '9') && !strchr("-._", *name)) return 0;
    }
    return 1;
}
/* A scalar member of an object in the manifest: an integer or a string. */
typedef struct neo__ckpt_field {
    const char *key;
    int64_t *count;
    char **text;
} neo__ckpt_field;
/* The value of a member into its field; *seen: fields read, as bits. Unknown members are skipped:
   later versions may add some. */
static neo_status neo__ckpt_parse_field(neo__json *j, const char *key,
                                        const neo__ckpt_field *fields, int count, int *seen) {
    int k = 0;
    while (k < count && strcmp(key, fields[k].key) != 0) k++;
    if (k == count) return neo__json_skip(j);
    if (*seen & 1 << k) return neo__json_fail(j, j->at, "a member that is there twice");
    *seen |= 1 << k;
    return fields[k].count ? neo__json_count(j, fields[k].count)
                           : neo__json_string(j, fields[k].text);
}
static neo_status neo__ckpt_parse_crc(const neo__json *json, size_t start, const char *text,
                                      uint32_t *crc) {
    for (int i = 0; i < 8; i++) {
        int digit = text[i] >= 'A' && text[i] <= 'F' ? -1 : neo__hex_digit(text[i]);
        if (digit < 0) return neo__json_fail(json, start, "crc32c is not 8 hex digits");
        *crc = *crc << 4 | (uint32_t)digit;
    }
    return text[8] ? neo__json_fail(json, start, "crc32c is not 8 hex digits") : NEO_OK;
}
static neo_status neo__ckpt_parse_file(neo__json *json, neo__ckpt_load *load) {
    char *key, *name = NULL, *crc = NULL;
    int64_t bytes = 0;
    const neo__ckpt_field fields[] = {
        {"name", NULL, &name}, {"bytes", &bytes, NULL}, {"crc32c", NULL, &crc}};
    int seen = 0;
    size_t start = json->at;
    NEO__TRY(NEO__GROW(load->ctx, load->files, load->file_capacity, load->file_count + 1));
    neo__ckpt_file *file = &load->files[load->file_count++];
    memset(file, 0, sizeof *file);
    file->link = load->link_count;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        NEO__TRY(neo__ckpt_parse_field(json, key, fields, 3, &seen));
    }
    if (name && !neo__ckpt_plain_name(name))
        return neo__json_fail(json, start, "not a plain file name");
    if (seen != 7) return neo__json_fail(json, start, "a file without name, bytes or crc32c");
    memcpy(file->name, name, strlen(name) + 1);
    file->bytes = bytes;
    return neo__ckpt_parse_crc(json, start, crc, &file->crc);
}
static neo_status neo__ckpt_parse_definition(neo__json *json, neo__ckpt_load *load) {
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        char *key, *value;
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) return NEO_OK;
        NEO__TRY(neo__json_string(json, &value));
        NEO__TRY(NEO__GROW(load->ctx, load->words, load->word_capacity, load->word_count + 1));
        load->words[load->word_count].key = key;
        load->words[load->word_count++].value = value;
    }
}
static neo_status neo__ckpt_parse_metrics(neo__json *json, neo__ckpt_load *load) {
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        double value = 0;
        char *name;
        NEO__TRY(neo__json_member(json, i, &name));
        if (!name) return NEO_OK;
        const size_t start = (size_t)(name - json->text) - 1;
        NEO__TRY(neo__json_double(json, &value));
        if (!load->metric || strcmp(name, load->metric) != 0) continue;
        if (load->metric_found++)
            return neo__json_fail(json, start, "a metric that is there twice");
        load->metric_value = value;
    }
}
static neo_status neo__ckpt_parse_files(neo__json *j, neo__ckpt_load *load) {
    int more = 1;
    NEO__TRY(neo__json_open(j, '['));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_next(j, ']', i, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__ckpt_parse_file(j, load));
    }
}
/* A file, or a word of the definition, that is listed again would be read or compared again. */
static neo_status neo__ckpt_check_unique(neo__ckpt_load *load, const char *path) {
    neo__st_name *names;
    const int files = load->file_count - load->newest;
    NEO__TRY(NEO__ARENA(&load->arena, names, NEO__MAX(files, load->word_count)));
    for (int i = 0; i < files; i++) names[i].name = load->files[load->newest + i].name;
    const char *twice = neo__st_sort_names(names, files);
    if (!twice) {
        for (int i = 0; i < load->word_count; i++) names[i].name = load->words[i].key;
        twice = neo__st_sort_names(names, load->word_count);
    }
    NEO__CHECK(!twice, NEO_ERR_FORMAT, "%s: '%.200s' is there twice", path, twice);
    return NEO_OK;
}
static neo_status neo__ckpt_parse_manifest(neo__json *json, neo__ckpt_load *load) {
    char *key, *format = NULL, *base_crc = NULL;
    int64_t version = 0, step = -1;
    neo__ckpt_head *head = &load->head;
    const neo__ckpt_field fields[] = {{"format", NULL, &format},
                                      {"version", &version, NULL},
                                      {"step", &step, NULL},
                                      {"base_step", &head->base_step, NULL},
                                      {"base_crc32c", NULL, &base_crc},
                                      {"depth", &head->depth, NULL}};
    enum { BASE = 56, DEFINITION = 64, FILES = 128, ALL = 7 + 64 + 128, METRICS = 256 };
    int seen = 0;
    memset(head, 0, sizeof *head);
    head->base_step = -1;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        int list = strcmp(key, "definition") == 0 ? DEFINITION
                   : strcmp(key, "files") == 0    ? FILES
                   : strcmp(key, "metrics") == 0  ? METRICS
                                                  : 0;
        if (list & seen) return neo__json_fail(json, json->at, "a member that is there twice");
        if (list)
            NEO__TRY(list == FILES        ? neo__ckpt_parse_files(json, load)
                     : list == DEFINITION ? neo__ckpt_parse_definition(json, load)
                                          : neo__ckpt_parse_metrics(json, load));
        else NEO__TRY(neo__ckpt_parse_field(json, key, fields, 6, &seen));
        seen |= list;
    }
    NEO__TRY(neo__json_end(json));
    NEO__CHECK((seen & ALL) == ALL && strcmp(format, NEO__CKPT_FORMAT) == 0, NEO_ERR_FORMAT,
               "%s: not the manifest of a neo checkpoint", json->file);
    NEO__CHECK(version >= 1 && version <= 3, NEO_ERR_UNSUPPORTED,
               "%s: format version %" PRId64 ", this program reads 1 to 3", json->file, version);
    NEO__CHECK((seen & BASE) == (version == 3 ? BASE : 0) && head->base_step < step, NEO_ERR_FORMAT,
               "%s: a differential checkpoint (version 3), and no other, has base_step (below its "
               "step), base_crc32c and depth",
               json->file);
    if (base_crc) NEO__TRY(neo__ckpt_parse_crc(json, 0, base_crc, &head->base_crc));
    NEO__CHECK(step == load->step, NEO_ERR_CORRUPT,
               "%s: is of step %" PRId64 ", in a directory of step %" PRId64, json->file, step,
               load->step);
    return neo__ckpt_check_unique(load, json->file);
}
/* manifest.json in memory: its own checksum first, then its members. */
static neo_status neo__ckpt_check_manifest(neo__ckpt_load *load, const char *path) {
    char tail[NEO__CKPT_TAIL_BYTES + 8];
    size_t n = load->manifest_bytes, body = n - NEO__CKPT_TAIL_BYTES;
    int tail_bytes = n < NEO__CKPT_TAIL_BYTES ? -1
                                              : snprintf(tail, sizeof tail, NEO__CKPT_TAIL,
                                                         neo_crc32c(0, load->manifest, body));
    NEO__CHECK(tail_bytes == NEO__CKPT_TAIL_BYTES &&
                   memcmp(load->manifest + body, tail, NEO__CKPT_TAIL_BYTES) == 0,
               NEO_ERR_CORRUPT, "%s: its checksum does not match its content", path);
    NEO__ZERO(neo__json, j);
    j.text = load->manifest;
    j.size = n;
    j.file = path;
    return neo__ckpt_parse_manifest(&j, load);
}
static neo_status neo__ckpt_read_manifest(neo__ckpt_load *load) {
    int64_t bytes;
    NEO__TRY(neo__path_join(load->path, load->dir, NEO__CKPT_MANIFEST));
    NEO__TRY(neo__file_load(&load->arena, load->path, NEO__CKPT_MANIFEST_BYTES, &load->manifest,
                            &bytes));
    NEO__CHECK(load->manifest, NEO_ERR_CORRUPT, "%s: %" PRId64 " bytes are no manifest", load->path,
               bytes);
    load->manifest_bytes = (size_t)bytes;
    load->manifest_crc = neo_crc32c(0, load->manifest, load->manifest_bytes);
    NEO__TRY(neo__ckpt_check_manifest(load, load->path));
    load->head.step = load->step;
    load->head.crc = load->manifest_crc;
    return NEO_OK;
}
/* The head of the checkpoint of a step, in its directory. */
static neo_status neo__ckpt_peek(neo_ctx *ctx, const char *path, int64_t step,
                                 neo__ckpt_head *head) {
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_load"};
    neo__ckpt_load *load;
    NEO__TRY(NEO__ARENA(&arena, load, 1));
    load->ctx = load->arena.ctx = ctx;
    load->arena.function = arena.function;
    load->step = step;
    snprintf(load->dir, sizeof load->dir, "%s", path);
    neo_status status = neo__ckpt_read_manifest(load);
    *head = load->head;
    neo__ckpt_load_free(load);
    neo__arena_free(&arena);
    return status;
}
typedef struct neo__ckpt_link {
    struct neo__ckpt_link *later;
    char dir[NEO__PATH_BYTES];
    neo__ckpt_head head;
} neo__ckpt_link;
/* The manifests of a checkpoint and of all that it builds on, from the full one on. The last one's
   words count. */
static neo_status neo__ckpt_read_chain(neo__ckpt_load *load, const char *root) {
    neo__ckpt_link *at = NULL, *below;
    int count = 0;
    for (;; at = below, count++) {
        NEO__TRY(NEO__ARENA(&load->arena, below, 1));
        below->later = at;
        int64_t step = at ? at->head.base_step : load->step;
        if (at) NEO__TRY(neo__ckpt_path(below->dir, root, step, NEO__CKPT_WHOLE));
        else memcpy(below->dir, load->dir, sizeof below->dir);
        int whole = !at;
        if (at) NEO__TRY(neo__ckpt_look(below->dir, &whole));
        NEO__CHECK(whole, NEO_ERR_CORRUPT, "%s: what it builds on is gone, step %" PRId64, at->dir,
                   step);
        NEO__TRY(neo__ckpt_peek(load->ctx, below->dir, step, &below->head));
        load->builds |= below->head.base_step >= 0;
        NEO__CHECK(!at || at->head.base_crc == below->head.crc, NEO_ERR_CORRUPT,
                   "%s: what it builds on is another checkpoint of step %" PRId64, at->dir, step);
        if (below->head.base_step < 0) break;
    }
    NEO__TRY(NEO__ARENA(&load->arena, load->links, count + 1));
    for (at = below; at; at = at->later) {
        load->links[load->link_count] = at->dir;
        memcpy(load->dir, at->dir, sizeof load->dir);
        load->step = at->head.step;
        load->word_count = 0;
        load->newest = load->file_count;
        NEO__TRY(neo__ckpt_read_manifest(load));
        NEO__CHECK(load->manifest_crc == at->head.crc, NEO_ERR_IO,
                   "%s: changes while it is read", load->dir);
        load->link_count++;
    }
    return NEO_OK;
}
static neo_status neo__ckpt_file_path(neo__ckpt_load *load, const neo__ckpt_file *file) {
    return neo__path_join(load->path, load->links[file->link], file->name);
}

/* ---- checks ---- */
static const char *neo__words_find(const neo__state_word *words, int count, const char *key) {
    for (int i = 0; i < count; i++)
        if (strcmp(words[i].key, key) == 0) return words[i].value;
    return NULL;
}
/* Words of the run, or (of_part) those of a table or another part of it: with a '.' in the key. */
static neo_status neo__ckpt_check_words(const neo__ckpt_load *load, int of_part) {
    const neo_state *state = load->state;
    for (int i = 0; i < load->word_count; i++) /* first, as a file may have millions */
        NEO__CHECK(of_part != !!strchr(load->words[i].key, '.') ||
                       neo__words_find(state->words, state->word_count, load->words[i].key),
                   NEO_ERR_MISMATCH,
                   "%s: saved under another numeric definition: %s is '%s' there, not defined here",
                   load->dir, load->words[i].key, load->words[i].value);
    for (int i = 0; i < state->word_count; i++) {
        const char *key = state->words[i].key, *here = state->words[i].value;
        if (of_part != !!strchr(key, '.')) continue;
        const char *saved = neo__words_find(load->words, load->word_count, key);
        NEO__CHECK(saved && strcmp(saved, here) == 0, NEO_ERR_MISMATCH,
                   "%s: saved under another numeric definition: %s is %s%s%s there, '%s' here",
                   load->dir, key, saved ? "'" : "", saved ? saved : "not defined",
                   saved ? "'" : "", here);
    }
    return NEO_OK;
}
/* The first that differs: a word from which others follow comes before these. */
static neo_status neo__ckpt_check_definition(const neo__ckpt_load *load) {
    if (load->desc->any_definition || load->desc->weights_only || load->desc->schema_only)
        return NEO_OK;
    NEO__TRY(neo__ckpt_check_words(load, 0));
    return neo__ckpt_check_words(load, 1);
}
static int neo__ckpt_starts(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}
/* 1: tensors of this file are asked for. Evaluation reads no optimizer state, but may need
   dictionaries. */
static int neo__ckpt_wants(const neo__ckpt_load *load, const char *name) {
    int model = neo__ckpt_starts(name, "model-"), state = neo__ckpt_starts(name, "state-");
    int first = neo__ckpt_starts(name, NEO__CKPT_FIRST_STATE);
    if (load->desc->schema_only) return first;
    if (load->desc->weights_only) return model || (first && load->any_schema);
    return model || state;
}
/* The file at load->path is there, at its size. */
static neo_status neo__ckpt_check_size(neo__ckpt_load *load, const neo__ckpt_file *record) {
    int64_t size;
    NEO__TRY(neo__ckpt_file_path(load, record));
    NEO__TRY(neo__path_size(load->path, &size));
    NEO__CHECK(size >= 0, NEO_ERR_CORRUPT, "%s: missing, the manifest lists it", load->path);
    NEO__CHECK(size == record->bytes, NEO_ERR_CORRUPT,
               "%s: %" PRId64 " bytes, the manifest says %" PRId64, load->path, size,
               record->bytes);
    return NEO_OK;
}
/* Check the checksum of a file. The context's scratch is the buffer: nothing computes now. */
static neo_status neo__ckpt_check_crc(neo__ckpt_load *load, const neo__ckpt_file *record) {
    neo__file file;
    uint32_t crc = 0;
    char *buffer = neo__shared_scratch(load->ctx);
    neo_status status = NEO_OK;
    NEO__TRY(neo__ckpt_file_path(load, record));
    NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
    for (int64_t at = 0; at < record->bytes && status == NEO_OK;) {
        size_t piece = (size_t)NEO__MIN(record->bytes - at, (int64_t)1 << 18);
        status = neo__file_read_at(&file, at, buffer, piece);
        crc = neo_crc32c(crc, buffer, piece);
        at += (int64_t)piece;
    }
    neo__file_close(&file);
    if (status == NEO_OK && crc != record->crc)
        status = neo_fail(NEO_ERR_CORRUPT,
                          "%s: its checksum is %08" PRIx32 ", the manifest says %08" PRIx32,
                          load->path, crc, record->crc);
    return status;
}
/* Check on every rank that all files are there, and on one rank the bytes of each. */
static neo_status neo__ckpt_check_files(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    int all = !load->desc->weights_only && !load->desc->schema_only;
    neo_status status = NEO_OK;
    for (int i = 0; i < load->file_count && status == NEO_OK; i++)
        if (all || neo__ckpt_wants(load, load->files[i].name))
            status = neo__ckpt_check_size(load, &load->files[i]);
    NEO__TRY(neo__meet_each(meet, status != NEO_OK));
    if (status != NEO_OK && !meet->each[0])
        status = neo_fail(NEO_ERR_IO, "%.300s; rank 0 sees it as it should be: %s", neo__error_text,
                          neo__ckpt_apart);
    NEO__TRY(neo__meet_agree(meet, status));
    for (int i = 0; i < load->file_count && status == NEO_OK; i++)
        if (i % meet->group.size == meet->group.rank)
            if (all || neo__ckpt_wants(load, load->files[i].name))
                status = neo__ckpt_check_crc(load, &load->files[i]);
    return neo__meet_agree(meet, status);
}

/* ---- what is in the files ---- */
/* A tensor of a file: which tensor it is, or is a part of, and where. */
typedef struct neo__ckpt_piece {
    const char *name;
    neo_tensor whole;
    neo__st_rect rect;
} neo__ckpt_piece;
/* "[a]" or "[a,b]", as many numbers as there are dimensions; the text behind it, or NULL. */
static const char *neo__ckpt_parse_numbers(const char *text, int ndim, int64_t out[2]) {
    for (int d = 0; d < ndim; d++) {
        if (*text++ != (d ? ',' : '[') || *text < '0' || *text > '9') return NULL;
        for (out[d] = 0; *text >= '0' && *text <= '9'; text++) {
            if (out[d] > INT64_MAX / 10 - 1) return NULL;
            out[d] = out[d] * 10 + (*text - '0');
        }
    }
    return *text == ']' ? text + 1 : NULL;
}
/* The place of a part, as the file's metadata has it under the tensor's name; NULL: no part. */
static const char *neo__ckpt_place_of(const neo_safetensors *file, int index) {
    const char *key = neo_safetensors_name(file, index);
    return neo__ends_as_part(key) ? neo_safetensors_metadata(file, key) : NULL;
}
/* The name of the tensor that a tensor of a file is, or is a part of. */
static const char *neo__ckpt_name_of(const neo_safetensors *file, int index) {
    const char *place = neo__ckpt_place_of(file, index);
    for (int i = 0; i < 2 && place; i++) { /* behind the second bracket */
        place = strchr(place, ']');
        if (place) place++;
    }
    return place && place[0] == ' ' && place[1] ? place + 1 : neo_safetensors_name(file, index);
}
/* If a tensor has changed rows alone: how many rows they are of, and where their numbers are. */
static neo_status neo__ckpt_numbers_of(const neo_safetensors *file, int index,
                                       const neo_tensor *tensor, neo__st_rect *rect) {
    char key[1200];
    const char *name = neo_safetensors_name(file, index), *text = NULL;
    int n = snprintf(key, sizeof key, "%s" NEO__ST_ROWS, name), found = -1;
    neo_tensor numbers = neo_tensor_none();
    if (n < (int)sizeof key) text = neo_safetensors_metadata(file, key);
    if (!text || tensor->ndim < 1) return NEO_OK;
    rect->count = tensor->shape[0];
    rect->place.cols = tensor->ndim == 2 ? tensor->shape[1] : 1; /* of no rows too */
    rect->place.rows = 0;
    for (; *text >= '0' && *text <= '9' && rect->place.rows < INT64_MAX / 1024; text++)
        rect->place.rows = rect->place.rows * 10 + (*text - '0');
    if (*text == ' ') found = neo_safetensors_find(file, text + 1);
    if (found >= 0) NEO__TRY(neo_safetensors_info(file, found, &numbers));
    NEO__CHECK(numbers.ndim == 1 && (numbers.dtype == NEO_I32 || numbers.dtype == NEO_I64) &&
                   numbers.shape[0] == rect->count && rect->count <= rect->place.rows,
               NEO_ERR_FORMAT, "%s: tensor %s: the numbers of its %" PRId64 " rows are not there",
               file->path, name, rect->count);
    rect->number_dtype = numbers.dtype;
    rect->numbers = file->data_offset + file->tensors[found].begin;
    return NEO_OK;
}
static neo_status neo__ckpt_piece_of(const neo_safetensors *file, int index,
                                     neo__ckpt_piece *piece) {
    const char *text = neo__ckpt_place_of(file, index);
    int64_t first[2] = {0, 0}, all[2] = {0, 0};
    NEO__TRY(neo_safetensors_info(file, index, &piece->whole));
    piece->name = neo__ckpt_name_of(file, index);
    piece->rect = neo__st_rect_of(file, index);
    if (!text) return NEO_OK;
    int ndim = piece->whole.ndim, fits = ndim == 1 || ndim == 2;
    NEO__TRY(neo__ckpt_numbers_of(file, index, &piece->whole, &piece->rect));
    if (piece->rect.numbers) piece->whole.shape[0] = piece->rect.place.rows;
    const char *more = fits ? neo__ckpt_parse_numbers(text, ndim, first) : NULL;
    if (more) more = strncmp(more, " of ", 4) == 0 ? more + 4 : NULL;
    if (more) more = neo__ckpt_parse_numbers(more, ndim, all);
    fits = more && more[0] == ' ' && more[1];
    for (int d = 0; d < ndim && fits; d++) {
        int64_t n = piece->whole.shape[d];
        fits = all[d] > 0 && n <= all[d] && first[d] <= all[d] - n &&
               all[0] <= INT64_MAX / 64 / NEO__MAX(all[1], (int64_t)1);
    }
    NEO__CHECK(fits, NEO_ERR_FORMAT, "%s: tensor %s: its place is given as '%.100s'", file->path,
               neo_safetensors_name(file, index), text);
    piece->rect.place.row = first[0];
    piece->rect.place.col = first[1];
    piece->whole = neo_tensor_nd(NULL, piece->whole.dtype, ndim, all);
    return NEO_OK;
}
static uint64_t neo__corner(int64_t row, int64_t col) {
    return neo__mix64(neo__mix64((uint64_t)row + 1) + (uint64_t)col);
}
static uint64_t neo__corners(const neo__rect *r) {
    int64_t row = r->row + r->rows, col = r->col + r->cols;
    return neo__corner(r->row, r->col) - neo__corner(row, r->col) - neo__corner(r->row, col) +
           neo__corner(row, col);
}
/* 1: this tensor of the state is to be loaded. */
static int neo__ckpt_takes(const neo__ckpt_load *load, const neo__state_entry *entry) {
    if (load->desc->schema_only) return 0;
    return !load->desc->weights_only || entry->kind == NEO_STATE_WEIGHT;
}
static neo_status neo__ckpt_fail_cover(const neo__ckpt_load *load, int index) {
    const neo__state_entry *entry = &load->state->entries[index];
    char text[96];
    return neo_fail(NEO_ERR_MISMATCH,
                    "%s: of tensor %s%s its files have %" PRId64
                    " elements, not each of the %" PRId64 " once",
                    load->dir, entry->name, neo__place_text(entry, text),
                    load->covers[index].elements, entry->slab.place.rows * entry->slab.place.cols);
}
/* A tensor of a file against an entry of that name. */
static neo_status neo__ckpt_match(neo__ckpt_load *load, int file, const neo__ckpt_piece *piece,
                                  int index) {
    const neo__state_entry *entry = &load->state->entries[index];
    neo__ckpt_cover *cover = &load->covers[index];
    char a[96], b[96];
    NEO__CHECK(neo__shapes_equal(&piece->whole, &entry->whole), NEO_ERR_MISMATCH,
               "%s: tensor %s has shape %s, expected %s", load->dir, entry->name,
               neo__shape_text(&piece->whole, a), neo__shape_text(&entry->whole, b));
    NEO__CHECK(piece->whole.dtype == entry->whole.dtype, NEO_ERR_MISMATCH,
               "%s: tensor %s is %s there, %s here", load->dir, entry->name,
               neo_dtype_name(piece->whole.dtype), neo_dtype_name(entry->whole.dtype));
    cover->found = 1;
    neo__rect cut = neo__rect_cut(&piece->rect.place, &entry->slab.place);
    if (cut.rows == 0) return NEO_OK;
    cover->elements += cut.rows * cut.cols;
    cover->corners += neo__corners(&cut);
    if (cover->elements > entry->slab.place.rows * entry->slab.place.cols)
        return neo__ckpt_fail_cover(load, index); /* before the list of runs grows beyond that */
    NEO__TRY(NEO__GROW(load->ctx, load->runs, load->run_capacity, load->run_count + 1));
    neo__ckpt_run *run = &load->runs[load->run_count++];
    run->rect = piece->rect;
    run->file = file;
    run->entry = index;
    return NEO_OK;
}
static neo_status neo__ckpt_survey_tensor(neo__ckpt_load *load, int number,
                                          const neo_safetensors *file, int index) {
    const neo_state *state = load->state;
    int weights = neo__ckpt_starts(load->files[number].name, "model-"), entry = -1;
    int schema = !weights && strcmp(neo_safetensors_name(file, index), NEO__SCHEMA_NAME) == 0;
    int rows = neo__ends_as_rows(neo_safetensors_name(file, index));
    if (!schema && !rows) entry = neo__state_find(state, neo__ckpt_name_of(file, index));
    if (entry >= 0 && (state->entries[entry].kind == NEO_STATE_WEIGHT) != weights) entry = -1;
    NEO__TRY(NEO__GROW(load->ctx, load->known, load->known_capacity, load->known_count + 1));
    load->known[load->known_count++] =
        schema ? state->dicts.schema != NULL : rows || entry >= 0;
    load->headers = neo__mix64(load->headers + neo_hash(neo_safetensors_name(file, index)));
    if (entry < 0) return NEO_OK;
    neo__ckpt_piece piece;
    NEO__TRY(neo__ckpt_piece_of(file, index, &piece));
    NEO__CHECK(!piece.rect.numbers || load->files[number].link > 0, NEO_ERR_FORMAT,
               "%s: tensor %s: changed rows in a checkpoint that builds on none", file->path,
               neo_safetensors_name(file, index));
    if (piece.rect.numbers)
        NEO__TRY(neo__st_check_numbers(load->ctx, file, index, &piece.rect));
    for (; entry >= 0; entry = state->entries[entry].next)
        NEO__TRY(neo__ckpt_match(load, number, &piece, entry));
    return NEO_OK;
}
/* 1: the tensors of the file are compared with the state. */
static int neo__ckpt_surveys(const neo__ckpt_load *load, int number) {
    const char *name = load->files[number].name;
    if (!neo__ckpt_wants(load, name) || load->desc->schema_only) return 0;
    return neo__ckpt_starts(name, "model-") || !load->desc->weights_only;
}
static neo_status neo__ckpt_open(neo__ckpt_load *load, int number, neo_safetensors **file) {
    NEO__TRY(neo__ckpt_file_path(load, &load->files[number]));
    return neo_safetensors_open(load->ctx, load->path, file);
}
/* Check that the files hold every element of every entry once. */
static neo_status neo__ckpt_check_cover(const neo__ckpt_load *load) {
    for (int i = 0; i < load->state->count; i++) {
        const neo__state_entry *entry = &load->state->entries[i];
        const neo__ckpt_cover *cover = &load->covers[i];
        const neo__rect *place = &entry->slab.place;
        if (!neo__ckpt_takes(load, entry)) continue;
        NEO__CHECK(cover->found, NEO_ERR_MISMATCH, "%s: it has no tensor %s", load->dir,
                   entry->name);
        if (cover->elements != place->rows * place->cols ||
            (cover->elements > 0 && cover->corners != neo__corners(place)))
            return neo__ckpt_fail_cover(load, i);
    }
    return NEO_OK;
}
static neo_status neo__ckpt_survey(neo__ckpt_load *load) {
    NEO__TRY(NEO__ARENA(&load->arena, load->covers, load->state->count));
    for (int link = 0, i = 0; link < load->link_count; link++) {
        memcpy(load->dir, load->links[link], sizeof load->dir);
        memset(load->covers, 0, (size_t)load->state->count * sizeof *load->covers);
        for (; i < load->file_count && load->files[i].link == link; i++) {
            neo_safetensors *file = NULL;
            if (!neo__ckpt_surveys(load, i)) continue;
            neo_status status = neo__ckpt_open(load, i, &file);
            for (int k = 0; status == NEO_OK && k < file->count; k++)
                status = neo__ckpt_survey_tensor(load, i, file, k);
            neo_safetensors_close(file);
            NEO__TRY(status);
        }
        NEO__TRY(neo__ckpt_check_cover(load));
    }
    return NEO_OK;
}
/* Name tensor number `index` of the files, which no rank asks for. */
static neo_status neo__ckpt_fail_extra(neo__ckpt_load *load, int index) {
    for (int i = 0; i < load->file_count; i++) {
        neo_safetensors *file = NULL;
        if (!neo__ckpt_surveys(load, i)) continue;
        NEO__TRY(neo__ckpt_open(load, i, &file));
        neo_status status = NEO_OK;
        if (index < file->count)
            status =
                neo_fail(NEO_ERR_MISMATCH,
                         "%s: it has the tensor %s (in %s), which this state (in a group: that of "
                         "every rank) has not",
                         load->dir, neo__ckpt_name_of(file, index), load->files[i].name);
        index -= file->count;
        neo_safetensors_close(file);
        NEO__TRY(status);
    }
    return NEO_OK;
}
/* A tensor in the files that the state has not, or has in the other file, is a difference too. */
static neo_status neo__ckpt_check_extra(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    NEO__TRY(neo__meet_same(meet, load->headers, "neo_load", "what is in the files' headers"));
    NEO__TRY(neo__meet_sum(meet, load->known, load->known_count));
    int k = 0;
    while (k < load->known_count && load->known[k]) k++;
    neo_status status = NEO_OK;
    if (k < load->known_count && meet->group.rank == 0) status = neo__ckpt_fail_extra(load, k);
    return neo__meet_agree(meet, status);
}

/* ---- neo_load ---- */
static neo_status neo__ckpt_take_schema(neo__ckpt_load *load, neo_safetensors *file, int index) {
    neo_tensor t;
    NEO__TRY(neo_safetensors_info(file, index, &t));
    NEO__CHECK(t.dtype == NEO_U8 && t.ndim == 1, NEO_ERR_MISMATCH, "%s: the tensor %s is not u8[n]",
               load->dir, NEO__SCHEMA_NAME);
    char *words;
    NEO__TRY(NEO__ARENA(&load->arena, words, t.shape[0]));
    t.data = words;
    NEO__TRY(neo_safetensors_read(file, index, t));
    const neo__state_dicts *dicts = &load->state->dicts;
    return dicts->load(dicts->schema, words, (size_t)t.shape[0], &load->dicts);
}
/* The dictionaries, beside the schema. A checkpoint without any leaves the schema as it is, unless
   only they were wanted. */
static neo_status neo__ckpt_read_schema(neo__ckpt_load *load) {
    if (!load->state->dicts.schema) return NEO_OK;
    for (int i = load->newest; i < load->file_count; i++) {
        neo_safetensors *file = NULL;
        if (!neo__ckpt_starts(load->files[i].name, NEO__CKPT_FIRST_STATE)) continue;
        NEO__TRY(neo__ckpt_open(load, i, &file));
        int index = neo_safetensors_find(file, NEO__SCHEMA_NAME);
        neo_status status = index < 0 ? NEO_OK : neo__ckpt_take_schema(load, file, index);
        neo_safetensors_close(file);
        if (status != NEO_OK || index >= 0) return status;
    }
    NEO__CHECK(!load->desc->schema_only, NEO_ERR_MISMATCH, "%s: it has no dictionaries",
               load->dir);
    return NEO_OK;
}
static neo_status neo__ckpt_read_runs(neo__ckpt_load *load) {
    neo__file file;
    neo_status status = NEO_OK;
    for (int i = 0; i < load->run_count && status == NEO_OK;) {
        int number = load->runs[i].file;
        NEO__TRY(neo__ckpt_file_path(load, &load->files[number]));
        NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
        for (; i < load->run_count && load->runs[i].file == number && status == NEO_OK; i++)
            status = neo__st_read_rect(load->ctx, &file, &load->runs[i].rect,
                                       &load->state->entries[load->runs[i].entry].slab, 0);
        neo__file_close(&file);
    }
    return status;
}
/* The checkpoint that rank 0 finds, for all ranks. */
static neo_status neo__ckpt_choose(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    const neo_load_desc *desc = load->desc;
    neo__ckpt_search search;
    uint64_t words[4] = {0, 0, 0, load->state->dicts.schema ? 1u : 0u};
    uint64_t flags = (desc->any_definition ? 1u : 0u) + (desc->weights_only ? 2u : 0u) +
                     (desc->schema_only ? 4u : 0u);
    NEO__TRY(neo__meet_same(meet, (uint64_t)desc->step * 8 + flags, "neo_load", "desc"));
    neo_status status = NEO_OK;
    if (meet->group.rank == 0) {
        status = neo__ckpt_find(desc->dir, desc->step, &search);
        words[0] = (uint64_t)search.found;
        words[1] = (uint64_t)search.before;
        words[2] = (uint64_t)search.suffix;
    }
    NEO__TRY(neo__meet_agree(meet, status));
    NEO__TRY(neo__meet_sum(meet, words, 4));
    load->any_schema = words[3] > 0;
    load->step = (int64_t)words[0];
    load->before = (int64_t)words[1];
    status = neo__ckpt_path(load->dir, desc->dir, load->step, (neo__ckpt_suffix)words[2]);
    int whole = 1;
    if (status == NEO_OK) status = neo__ckpt_look(load->dir, &whole);
    if (!whole)
        status = neo_fail(NEO_ERR_IO, "%s: does not see this checkpoint, which rank 0 found: %s",
                          load->dir, neo__ckpt_apart);
    return neo__meet_agree(meet, status);
}
static neo_status neo__ckpt_read(neo__ckpt_load *load) {
    const neo__meet *meet = &load->meet;
    NEO__TRY(neo__ckpt_choose(load));
    load->looks_for = NEO_DIFFERS_DEFINITION;
    neo_status status = neo__ckpt_read_chain(load, load->desc->dir);
    if (status == NEO_OK) status = neo__ckpt_check_definition(load);
    NEO__TRY(neo__meet_agree(meet, status));
    load->looks_for = NEO_DIFFERS_NOT;
    NEO__TRY(neo__meet_same(meet, load->manifest_crc, "neo_load", "the manifest"));
    NEO__TRY(neo__ckpt_check_files(load));
    load->looks_for = NEO_DIFFERS_TENSORS;
    NEO__TRY(neo__meet_agree(meet, neo__ckpt_survey(load)));
    NEO__TRY(neo__ckpt_check_extra(load));
    load->looks_for = NEO_DIFFERS_DICTIONARY;
    NEO__TRY(neo__meet_agree(meet, neo__ckpt_read_schema(load)));
    /* from here on state changes */
    const neo__state_dicts *dicts = &load->state->dicts;
    if (load->dicts) dicts->install(dicts->schema, load->dicts, 1);
    load->dicts = NULL;
    const int all = !load->desc->weights_only && !load->desc->schema_only;
    if (!load->desc->schema_only) neo__state_marks_from(load->state, 0, 0);
    status = neo__ckpt_read_runs(load);
    if (status == NEO_OK) status = neo__state_was_read(load->state);
    status = neo__meet_agree(meet, status);
    if (status == NEO_OK && all)
        neo__state_marks_from(load->state, neo__ckpt_id(load->step, load->manifest_crc),
                              load->step);
    return status;
}
static neo_status neo__check_load(const neo_load_desc *desc, const neo_state *state) {
    NEO__CHECK(state && desc->dir && desc->dir[0], NEO_ERR_ARG,
               "neo_load: an argument is NULL or desc.dir is empty");
    NEO__TRY(neo__state_check_idle(state, "neo_load"));
    neo__state_make_rows(state);
    NEO__CHECK(!desc->schema_only || state->dicts.schema, NEO_ERR_ARG,
               "neo_load: desc.schema_only, but the state has no schema");
    return NEO_OK;
}
NEO_API neo_status neo_load(neo_ctx *ctx, const neo_load_desc *desc, neo_state *state,
                            int64_t *loaded_step) {
    NEO__SPAN(ctx, "neo_load");
    NEO__TRY(neo__check_ctx("neo_load", ctx));
    NEO__CHECK(desc, NEO_ERR_ARG, "neo_load: desc is NULL");
    neo__meet meet;
    NEO__TRY(neo__meet_begin(&meet, ctx, "neo_load", desc->group));
    neo_status status = neo__check_load(desc, state);
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_load"};
    neo__ckpt_load *load = NULL;
    if (status == NEO_OK) status = NEO__ARENA(&arena, load, 1);
    status = neo__meet_agree(&meet, status);
    if (load) {
        load->ctx = load->arena.ctx = ctx;
        load->arena.function = arena.function;
        load->desc = desc;
        load->state = state;
        load->before = -1;
        load->meet = meet;
        if (status == NEO_OK) status = neo__ckpt_read(load);
        if (status == NEO_ERR_CORRUPT && load->before >= 0)
            status = neo_fail(status, "%.420s; the checkpoint before it%s is of step %" PRId64,
                              neo__error_text, load->builds ? ", on which it may build," : "",
                              load->before);
        if (status == NEO_OK && loaded_step) *loaded_step = load->step;
        if (status == NEO_ERR_MISMATCH && desc->difference) *desc->difference = load->looks_for;
        neo__ckpt_load_free(load);
    }
    neo__arena_free(&arena);
    neo__meet_end(&meet);
    return status;
}

/* ---- neo_checkpoint_metric ---- */
#if !defined(NEO_INFERENCE)
/* A manifest alone: calls take(load, user) when it is read. */
static neo_status neo__ckpt_look_into(neo_ctx *ctx, const char *dir, int64_t step,
                                      const char *metric,
                                      neo_status (*take)(const neo__ckpt_load *load, void *user),
                                      void *user, const char *fn) {
    neo__arena arena = {ctx, NULL, NULL, 0, fn};
    neo__ckpt_search search;
    neo__ckpt_load *load;
    NEO__TRY(neo__ckpt_find(dir, step, &search));
    NEO__TRY(NEO__ARENA(&arena, load, 1));
    load->ctx = load->arena.ctx = ctx;
    load->arena.function = fn;
    load->metric = metric;
    load->step = search.found;
    neo_status status = neo__ckpt_path(load->dir, dir, search.found, search.suffix);
    if (status == NEO_OK) status = neo__ckpt_read_manifest(load);
    if (status == NEO_OK) status = take(load, user);
    neo__ckpt_load_free(load);
    neo__arena_free(&arena);
    return status;
}
static neo_status neo__ckpt_take_metric(const neo__ckpt_load *load, void *value) {
    NEO__CHECK(load->metric_found, NEO_ERR_NOT_FOUND, "%s: it has no metric %s", load->dir,
               load->metric);
    *(double *)value = load->metric_value;
    return NEO_OK;
}
NEO_API neo_status neo_checkpoint_metric(neo_ctx *ctx, const char *dir, int64_t step,
                                         const char *name, double *value) {
    static const char *const fn = "neo_checkpoint_metric";
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(dir && dir[0] && name && value, NEO_ERR_ARG,
               "%s: an argument is NULL or dir is empty", fn);
    return neo__ckpt_look_into(ctx, dir, step, name, neo__ckpt_take_metric, value, fn);
}
typedef struct neo__ckpt_wanted {
    const char *key;
    char *text;
    size_t bytes;
} neo__ckpt_wanted;
static neo_status neo__ckpt_take_word(const neo__ckpt_load *load, void *user) {
    const neo__ckpt_wanted *wanted = (const neo__ckpt_wanted *)user;
    int i = 0;
    while (i < load->word_count && strcmp(load->words[i].key, wanted->key)) i++;
    NEO__CHECK(i < load->word_count, NEO_ERR_NOT_FOUND, "%s: its definition has no %s", load->dir,
               wanted->key);
    const size_t bytes = strlen(load->words[i].value) + 1;
    NEO__CHECK(bytes <= wanted->bytes, NEO_ERR_CAPACITY, "%s: %s takes %zu bytes, there are %zu",
               load->dir, wanted->key, bytes, wanted->bytes);
    memcpy(wanted->text, load->words[i].value, bytes);
    return NEO_OK;
}
NEO_API neo_status neo_checkpoint_word(const char *dir, int64_t step, const char *key, char *text,
                                       size_t bytes) {
    static const char *const fn = "neo_checkpoint_word";
    NEO__CHECK(dir && dir[0] && key && text, NEO_ERR_ARG, "%s: an argument is NULL or dir is empty",
               fn);
    neo__ckpt_wanted wanted = {key, text, bytes};
    NEO__ZERO(neo_ctx_desc, desc);
    neo_ctx *ctx;
    desc.threads = 1;
    NEO__TRY(neo_ctx_create(&desc, &ctx));
    const neo_status status =
        neo__ckpt_look_into(ctx, dir, step, NULL, neo__ckpt_take_word, &wanted, fn);
    neo_ctx_destroy(ctx);
    return status;
}
#endif

#if !defined(NEO_INFERENCE)
/* Finds a list in the text of a model.json. */
static neo_status neo__ckpt_counts(neo__json *json, const char *name, int64_t *to, int32_t count) {
    char *key = NULL;
    int found = 0;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        if (strcmp(key, name) != 0) NEO__TRY(neo__json_skip(json));
        else NEO__TRY(neo__json_counts(json, count, to));
        found |= strcmp(key, name) == 0;
    }
    NEO__TRY(neo__json_end(json));
    NEO__CHECK(found, NEO_ERR_NOT_FOUND, "%s: it has no %s", json->file, name);
    return NEO_OK;
}
NEO_API neo_status neo_checkpoint_counts(neo_ctx *ctx, const char *dir, int64_t step,
                                         const char *name, int64_t *to, int32_t count) {
    static const char *const fn = "neo_checkpoint_counts";
    char folder[NEO__PATH_BYTES], path[NEO__PATH_BYTES], *text = NULL;
    neo__ckpt_search search;
    int64_t bytes = 0;
    NEO__TRY(neo__check_ctx(fn, ctx));
    NEO__CHECK(dir && dir[0] && name && to && count >= 0, NEO_ERR_ARG,
               "%s: an argument is NULL, dir is empty, or count is below 0", fn);
    NEO__TRY(neo__ckpt_find(dir, step, &search));
    NEO__TRY(neo__ckpt_path(folder, dir, search.found, search.suffix));
    NEO__TRY(neo__path_join(path, folder, NEO__CKPT_MODEL));
    neo__arena arena = {ctx, NULL, NULL, 0, fn};
    neo_status status = neo__file_load(&arena, path, NEO__MODEL_JSON_BYTES, &text, &bytes);
    neo__json json = {text, (size_t)bytes, 0, path, 0, 0};
    if (status == NEO_OK)
        status = text ? neo__ckpt_counts(&json, name, to, count)
                      : neo_fail(NEO_ERR_FORMAT, "%s: no description of a model", path);
    neo__arena_free(&arena);
    return status;
}
#endif

/* ---- neo_export ---- */
typedef struct neo__export {
    neo__ckpt_load load;
    neo_load_desc desc;
    neo_tensor *tensors; /* of the file: whole ones, without data */
    const char **names;
    void *data; /* of the tensor at hand */
    size_t bytes;
} neo__export;
/* An entry without memory for each tensor that a file of the checkpoint holds, whole or in part. */
static neo_status neo__export_list_file(neo__export *job, int number) {
    neo__ckpt_load *load = &job->load;
    neo_safetensors *file = NULL;
    if (!neo__ckpt_surveys(load, number)) return NEO_OK;
    NEO__TRY(neo__ckpt_open(load, number, &file));
    int weights = neo__ckpt_starts(load->files[number].name, "model-");
    neo_status status = NEO_OK;
    for (int k = 0; k < file->count && status == NEO_OK; k++) {
        NEO__ZERO(neo__ckpt_piece, piece);
        if (!weights && strcmp(neo_safetensors_name(file, k), NEO__SCHEMA_NAME) == 0) continue;
        if (neo__ends_as_rows(neo_safetensors_name(file, k))) continue;
        status = neo__ckpt_piece_of(file, k, &piece);
        if (status != NEO_OK || neo__state_find(load->state, piece.name) >= 0) continue;
        NEO__ZERO(neo__state_entry, entry);
        entry.kind = weights ? NEO_STATE_WEIGHT : NEO_STATE_OPTIMIZER;
        entry.tensor = entry.whole = piece.whole;
        entry.slab = neo__slab_whole(&piece.whole);
        status = neo__state_put(load->state, &entry, piece.name, -1);
    }
    neo_safetensors_close(file);
    return status;
}
static void neo__export_release(neo__export *job) {
    if (job->data) neo_free(job->load.ctx, job->data, job->bytes);
    job->data = NULL;
}
static int neo__export_compare_runs(const void *a, const void *b) {
    const neo__ckpt_run *x = (const neo__ckpt_run *)a, *y = (const neo__ckpt_run *)b;
    if (x->entry != y->entry) return x->entry < y->entry ? -1 : 1;
    return (x->file > y->file) - (x->file < y->file); /* along the chain */
}
/* The elements of one tensor, from all files that hold some. */
static neo_status neo__export_read(void *user, int index, const void **data) {
    neo__export *job = (neo__export *)user;
    neo__ckpt_load *load = &job->load;
    neo__slab slab = load->state->entries[index].slab;
    neo__file file;
    neo__export_release(job);
    job->bytes = neo__st_bytes(&job->tensors[index]);
    job->data = neo__alloc_for(load->ctx, job->bytes, "neo_export");
    if (!job->data) return NEO_ERR_MEMORY;
    *data = slab.data = (char *)job->data;
    int first = 0, end = load->run_count; /* the first of its runs, which are together */
    while (first < end) {
        const int middle = first + (end - first) / 2;
        if (load->runs[middle].entry < index) first = middle + 1;
        else end = middle;
    }
    for (; first < load->run_count && load->runs[first].entry == index; first++) {
        const neo__ckpt_run *run = &load->runs[first];
        NEO__TRY(neo__ckpt_file_path(load, &load->files[run->file]));
        NEO__TRY(neo__file_open(&file, load->path, NEO__FILE_READ));
        neo_status status = neo__st_read_rect(load->ctx, &file, &run->rect, &slab, 0);
        neo__file_close(&file);
        NEO__TRY(status);
    }
    return NEO_OK;
}
#if !defined(NEO_INFERENCE)
static neo_status neo__export_write(neo__export *job, const char *path) {
    neo__ckpt_load *load = &job->load;
    const char *const metadata[] = {"format", "pt", "writer", "neo"};
    char parent[NEO__PATH_BYTES];
    NEO__TRY(neo__path_parent(parent, path));
    NEO__TRY(neo__ckpt_choose(load));
    NEO__CHECK(!neo__dir_same(parent, load->dir), NEO_ERR_ARG,
               "neo_export: %s would be written into the checkpoint that it is made of", path);
    NEO__TRY(neo__ckpt_read_chain(load, load->desc->dir));
    NEO__TRY(neo__ckpt_check_files(load));
    for (int i = load->newest; i < load->file_count; i++) NEO__TRY(neo__export_list_file(job, i));
    NEO__TRY(neo__ckpt_survey(load));
    int count = load->state->count;
    if (load->run_count > 1)
        qsort(load->runs, (size_t)load->run_count, sizeof *load->runs, neo__export_compare_runs);
    NEO__TRY(NEO__ARENA(&load->arena, job->tensors, count));
    NEO__TRY(NEO__ARENA(&load->arena, job->names, count));
    for (int i = 0; i < count; i++) {
        job->tensors[i] = load->state->entries[i].whole;
        job->names[i] = load->state->entries[i].name;
    }
    return neo_safetensors_stream(load->ctx, path, job->names, job->tensors, count,
                                  metadata, 2, neo__export_read, job);
}
NEO_API neo_status neo_export(neo_ctx *ctx, const neo_export_desc *desc) {
    NEO__TRY(neo__check_ctx("neo_export", ctx));
    NEO__CHECK(desc && desc->dir && desc->dir[0] && desc->path, NEO_ERR_ARG,
               "neo_export: desc is NULL, or desc.dir or desc.path is missing");
    neo__arena arena = {ctx, NULL, NULL, 0, "neo_export"};
    neo__export *job;
    NEO__TRY(NEO__ARENA(&arena, job, 1));
    neo__ckpt_load *load = &job->load;
    job->desc.dir = desc->dir;
    job->desc.step = desc->step;
    job->desc.weights_only = !desc->with_state;
    load->ctx = load->arena.ctx = ctx;
    load->arena.function = arena.function;
    load->desc = &job->desc;
    load->before = -1;
    neo_status status = neo__meet_begin(&load->meet, ctx, "neo_export", NULL);
    if (status == NEO_OK) {
        status = neo_state_create(ctx, &load->state);
        if (status == NEO_OK) status = neo__export_write(job, desc->path);
        neo__export_release(job);
        if (load->state) neo__ckpt_load_free(load);
        neo_state_destroy(load->state);
        neo__meet_end(&load->meet);
    }
    neo__arena_free(&arena);
    return status;
}
#endif
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
