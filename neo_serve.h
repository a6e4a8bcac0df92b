/* neo_serve.h: a trained model in a program: predictions with training's bits.

   Copy it beside neo.h, neo_state.h and neo_data.h. MIT licence (at the end of neo.h).

   WHAT IT DOES
     - neo_model: a checkpoint of build/dlrm (any --model) becomes a predictor by the description
       that lies in it, model.json: no shape is repeated. Read-only: any number of threads share it
     - neo_scratch: what one thread needs to predict. Samples come as JSON by the names of their
       columns, as raw lines of the training format, or as numbers and ids. Nothing is allocated
     - neo_frozen: embedding tables that do not change: rows of f32 to i2, in memory or mapped from
       a file, looked up without locks
     - neo_items: the k items of the largest dot product, filtered by attributes

   WHAT IT DOES NOT DO
     - no training: with NEO_INFERENCE, defined everywhere, neo.h has no backward and no optimizer
     - no tables of keys, no rows cached from a disk: training has none either. A mapped file is
       paged by the operating system
     - no server: examples/serve.c is one

   QUICK START
     In exactly one .c file:               In the others:
         #define NEO_INFERENCE                 #define NEO_INFERENCE
         #define NEO_IMPLEMENTATION            #include "neo_serve.h"
         #include "neo_serve.h"
     A program that also trains leaves NEO_INFERENCE out.
         neo_model_load(&(neo_model_desc){.dir = "ckpt"}, &model);
         neo_scratch_create(model, &(neo_scratch_desc){.max_batch = 64}, &s);     one per thread
         neo_scratch_clear(s);
         neo_scratch_add_json(s, text, bytes);        {"age": 39, "workclass": "State-gov"}
         neo_scratch_predict(s, out);                 out[0]: the probability

   SAME BITS
     A prediction of rows as they were trained is that of the trainer's evaluation, bit for bit: for
     any batch it comes in, any number of threads, any instruction set.

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_serve.h is the map)
     >>model >>scratch >>frozen >>items
     >>impl-frozen >>impl-model-json >>impl-model >>impl-scratch >>impl-items
*/
#ifndef NEO_SERVE_H
#define NEO_SERVE_H

#include "neo_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>model

   model.json lies in each checkpoint beside its weights. The trainer writes it (neo_save_desc
   .model); it can be read and changed:
     {"neo_model": 1,            version of this description
      "model": "dlrm",           lr, fm, ffm, dlrm, dcnv2, deepfm, wukong
      "dim": 16,                 columns of an embedding, as --dim
      "dtype": "f32",            of the products: f32 or bf16
      "row_buckets": 1,
      "bottom": [13, 64, 16],    widths of the bottom MLP, or of the linear layer
      "top": [367, 64, 1],       of the top MLP, where there is one
      "cross": {"layers": 3, "rank": 64},     of dcnv2
      "wukong": {"layers": 2, "hidden": 64},  of wukong
      "schema": {"format": "criteo", ...}}    what a sample is: neo_schema_describe
   A file that lacks something is refused by its name, as is a name or a version that this neo does
   not know.
   ------------------------------------------------------------------------ */
typedef struct neo_model neo_model;

typedef enum neo_row_bits {
    NEO_ROWS_TRAINED, /* as the checkpoint has them: f32, f16, bf16 or i8 */
    NEO_ROWS_F32,
    NEO_ROWS_F16,
    NEO_ROWS_BF16,
    NEO_ROWS_I8, /* code * scale + bias, by row; 8 bytes more for a row */
    NEO_ROWS_I4,
    NEO_ROWS_I2
} neo_row_bits;

typedef struct neo_model_desc {
    const char *dir;   /* required: of checkpoints, as neo_save_desc.dir */
    int64_t step;      /* 0 and below: the newest whole one */
    neo_row_bits rows; /* of the tables in memory */
    const char *tables; /* a file of neo_model_write_tables: its rows are mapped, those of the
                           checkpoint are not read. NULL: the checkpoint's */
    neo_ctx_desc ctx;  /* allocator, logger, threads (for loading), isa; device must be NULL */
} neo_model_desc;
/* neo_model_load: a predictor from a checkpoint. Memory: the weights and the dictionaries; while it
   loads also one table as it was trained.
   Errors   NEO_ERR_NOT_FOUND: no whole checkpoint, or it has no model.json. NEO_ERR_FORMAT: file
            and byte, or what it lacks. NEO_ERR_UNSUPPORTED: a newer version, an unknown model.
            NEO_ERR_MISMATCH: a tensor has another shape than model.json says; tables of another
            model. NEO_ERR_CORRUPT, NEO_ERR_IO, NEO_ERR_MEMORY. *model is NULL then.
   Threads  any: it makes a context of its own, which no later call uses. */
NEO_API NEO__CHECK_UNUSED neo_status neo_model_load(const neo_model_desc *desc, neo_model **model);
/* neo_model_free: after all scratches of it. NULL is allowed. Threads: any. */
NEO_API void neo_model_free(neo_model *model);

typedef struct neo_model_info {
    const char *kind;      /* "dlrm", ... */
    int64_t step;          /* of the checkpoint */
    int32_t dense_count;   /* dense numbers of a sample */
    int32_t feature_count; /* sparse features: bags of ids */
    int32_t column_count;  /* what a sample of JSON may name: neo_model_column */
    int32_t outputs;       /* numbers that a prediction is */
    int weighted;          /* ids have weights */
    int64_t weight_bytes;  /* of all layers and tables */
} neo_model_info;
NEO_API neo_model_info neo_model_get_info(const neo_model *model);
/* neo_model_column: the name of column `index` of a sample, as JSON has it: of text by columns
   those of its description, without the label; of Criteo I1 .. I13, C1 .. C26; of other formats
   "dense.0" .., then the features' names. NULL: no such index. */
NEO_API const char *neo_model_column(const neo_model *model, int32_t index);
/* neo_model_feature: name and rows of a sparse feature, as neo_schema_feature. */
NEO_API neo_feature neo_model_feature(const neo_model *model, int32_t feature);
/* neo_model_write_tables: the tables, with rows as this model has them, as a file for
   neo_model_desc.tables. Written to <path>.partial, flushed and renamed. */
NEO_API neo_status neo_model_write_tables(const neo_model *model, const char *path);

/* ---------------------------------------------------------------------------
   >>scratch

   What one thread needs to predict by a model that others use too: the samples of a batch, and the
   numbers between layers.
   ------------------------------------------------------------------------ */
typedef struct neo_scratch neo_scratch;
typedef struct neo_scratch_desc {
    int64_t max_batch; /* samples of a batch, at most; 0: 1 */
    int64_t max_ids;   /* of a batch, of all its features; 0: what 64 ids in each bag take, at most
                          2^20, but at least one in each bag */
    int threads;       /* that one prediction uses, the caller included; 0: 1 */
    int logits;        /* 1: predictions are logits; 0: probabilities */
} neo_scratch_desc;
/* neo_scratch_create: desc NULL: all defaults. The model stays until the scratch is gone.
   Threads  any; the scratch belongs to one thread at a time, and distinct ones are independent.
   Errors   NEO_ERR_ARG, NEO_ERR_MEMORY, NEO_ERR_SYSTEM. */
NEO_API NEO__CHECK_UNUSED neo_status neo_scratch_create(const neo_model *model,
                                                        const neo_scratch_desc *desc,
                                                        neo_scratch **scratch);
NEO_API void neo_scratch_destroy(neo_scratch *scratch);
NEO_API void neo_scratch_clear(neo_scratch *scratch); /* no samples */
NEO_API int64_t neo_scratch_count(const neo_scratch *scratch);

/* neo_scratch_add_json: one more sample: an object of columns by name (neo_model_column), in any
   order. A value is a string or a number, whose text goes through what training did to it (words
   to ids, hashes, logarithms), null (missing, as what is left out), or for a list an array of
   them. Of formats whose ids are as they are, a feature is an id or an array of ids, or where the
   model has weights an object {"3": 0.5}.
   bytes: of the text, which need not end in 0.
   Errors   the samples stay as they were. NEO_ERR_FORMAT: byte and what was expected, or the
            column and its value. NEO_ERR_NOT_FOUND: a name that is no column. NEO_ERR_RANGE: an id
            outside its table. NEO_ERR_CAPACITY: max_batch or max_ids. */
NEO_API neo_status neo_scratch_add_json(neo_scratch *scratch, const char *text, size_t bytes);
/* neo_scratch_add_line: one more sample: a line of the training format, with or without its label,
   with or without its newline. Lines of a file whose first line names the columns have all columns
   of the description, in its order.
   Errors   as add_json; NEO_ERR_FORMAT: a line that holds no sample, as a comment.
            NEO_ERR_UNSUPPORTED: the format has no lines. */
NEO_API neo_status neo_scratch_add_line(neo_scratch *scratch, const char *line, size_t bytes);
/* neo_scratch_add: one more sample: dense [dense_count] (NULL: all 0), as after the reader's
   transform; ids: counts[t] of each feature t, one feature after another; weights of them, or NULL
   for ones. counts NULL: one id of each.
   Errors   NEO_ERR_RANGE: an id outside its table. NEO_ERR_CAPACITY. */
NEO_API neo_status neo_scratch_add(neo_scratch *scratch, const float *dense, const int64_t *ids,
                                   const int32_t *counts, const float *weights);
/* neo_scratch_predict: the samples that were added, in order, to out [count][outputs]; they stay
   until neo_scratch_clear. Allocates nothing.
   Errors   those of the layers. */
NEO_API neo_status neo_scratch_predict(neo_scratch *scratch, float *out);
/* neo_model_predict: a batch as a reader of neo_data.h or you make it, to out [batch][outputs].
   Shapes   dense [B][dense_count] f32, rows contiguous, B <= max_batch; sparse of B samples.
   Errors   NEO_ERR_SHAPE, NEO_ERR_CAPACITY; NEO_ERR_RANGE: an id outside its table; nothing is
            written. Allocates nothing. */
NEO_API neo_status neo_model_predict(const neo_model *model, neo_scratch *scratch, neo_tensor dense,
                                     const neo_jagged *sparse, float *out);

#ifdef __cplusplus
}
#endif
#endif /* NEO_SERVE_H */
