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
     >>frozen >>model >>scratch >>items
     >>impl-frozen >>impl-model-json >>impl-net >>impl-model >>impl-scratch >>impl-items
*/
#ifndef NEO_SERVE_H
#define NEO_SERVE_H

#include "neo_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>frozen

   Tables that do not change. A view by value: its memory is the caller's, and any number of threads
   look rows up in it at once. An element is
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

typedef struct neo_frozen {
    neo_row_bits bits;
    int64_t rows, dim;
    const void *codes;  /* [rows][neo_frozen_row_bytes]; f32 aligned to 4 bytes, f16, bf16 to 2 */
    const float *scale; /* of i8, i4, i2: [rows][2], scale and bias */
    int mean;           /* 1: a bag is the mean of its rows; 0: their sum */
    int32_t row_buckets; /* as of neo_table_desc, for the same sums; 0: 1. Not of i4 and i2 */
} neo_frozen;

/* neo_frozen_row_bytes: of a row's codes; 0: no such bits, or dim below 1. */
NEO_API size_t neo_frozen_row_bytes(neo_row_bits bits, int64_t dim);
/* neo_frozen_encode: rows from f32 [rows][dim], rounded to nearest, to codes and scale (of i8, i4,
   i2; else may be NULL). The range of a row's codes is searched greedily: from [min, max] it is cut
   at the end whose cut errs less, 1/200 of it at a time, down to 1/6, and the range of the least
   sum of squares is taken. A row that is not finite becomes NaN as a whole.
   Errors   NEO_ERR_ARG: an argument is NULL, no such bits, a count below 1. */
NEO_API neo_status neo_frozen_encode(neo_row_bits bits, int64_t rows, int64_t dim,
                                     const float *from, void *codes, float *scale);
/* neo_frozen_lookup: the pooled rows of a feature's bags to out [bags][dim], rows of which begin
   out_stride floats apart. Bag b is ids[offsets[b] .. offsets[b + 1]); weights of ids, or NULL.
   Numerics those of neo_bags_forward; of i4 and i2 products and sums are rounded apart.
   Errors   NEO_ERR_RANGE: an id outside the table: nothing is written. NEO_ERR_ARG.
   Threads  any number on one table and one ctx, of which only the instruction set is read. */
NEO_API neo_status neo_frozen_lookup(const neo_ctx *ctx, const neo_frozen *table,
                                     const int64_t *offsets, int64_t bags, const int64_t *ids,
                                     const float *weights, float *out, int64_t out_stride);

/* ---------------------------------------------------------------------------
   >>model

   model.json lies in each checkpoint beside its weights. The trainer writes it (neo_save_desc
   .model); it can be read and changed:
     {"neo_model": 1,            version of this description
      "model": "dlrm",           lr, fm, ffm, dlrm, dcnv2, deepfm, wukong
      "dim": 16,                 columns of an embedding, as --dim
      "dtype": "f32",            of the products: f32 or bf16
      "rows_dtype": "f32",       of the tables: f32, f16, bf16 or i8
      "row_buckets": 1,          as of neo_table_desc
      "bottom": [13, 64, 16],    widths of the bottom MLP, or of the linear layer
      "top": [367, 64, 1],       of the top MLP, where there is one
      "cross": {"layers": 3, "rank": 64},     of dcnv2
      "wukong": {"layers": 2, "hidden": 64},  of wukong
      "schema": {"format": "criteo", ...}}    what a sample is: neo_schema_describe
   A file that lacks something is refused by its name, as is a name or a version that this neo does
   not know.
   ------------------------------------------------------------------------ */
typedef struct neo_model neo_model;

typedef struct neo_model_desc {
    const char *dir;   /* of checkpoints, as neo_save_desc.dir; or: */
    const char *path;  /* a file of neo_model_write, which is mapped: pages of its tables are read
                          when they are looked up, and shared by all processes that map it */
    int64_t step;      /* of dir; 0 and below: the newest whole one */
    neo_row_bits rows; /* of the tables, of dir */
    neo_ctx_desc ctx;  /* allocator, logger, isa; threads are those for loading; device: NULL */
} neo_model_desc;
/* neo_model_load: a predictor from a checkpoint or a file. Memory: the weights and the
   dictionaries; while it loads other rows than the trained ones also the tables as trained.
   Errors   NEO_ERR_NOT_FOUND: no whole checkpoint, or it has no model.json. NEO_ERR_FORMAT: file
            and byte, or the name of what it lacks. NEO_ERR_UNSUPPORTED: the name of what this
            version does not know. NEO_ERR_MISMATCH: a tensor has another shape than model.json
            says. NEO_ERR_ARG: neither dir nor path, or both. NEO_ERR_CORRUPT, NEO_ERR_IO (also: the
            checkpoint was removed meanwhile: try again), NEO_ERR_MEMORY. *model is NULL then.
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
/* neo_model_write: the model as one safetensors file for neo_model_desc.path: weights by name, rows
   as this model has them (i4 and i2 as u8, packed), dictionaries, model.json in its metadata.
   Written to <path>.partial, flushed to disk and renamed.
   Errors   those of neo_safetensors_write. Threads: any. */
NEO_API neo_status neo_model_write(const neo_model *model, const char *path);

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

/* ---------------------------------------------------------------------------
   >>items

   Retrieval: of many items, whose embeddings are rows of a table, the k of the largest dot product
   with a query. Exact: what is returned is what a loop over all items in f32 returns, ties by the
   lower number first. With codes of i8 beside the rows most items are passed over by a bound on
   their product, and only the rest are looked at in f32.
   Attributes are numbers (neo_hash of a word, say). A query may ask for items that have all of
   some: 64 bits of an item's Bloom filter pass over most others, its list of attributes over the
   rest.
   ------------------------------------------------------------------------ */
typedef struct neo_items neo_items;
typedef struct neo_items_desc {
    const float *rows;   /* [count][dim], required; not copied: they stay until destroy */
    int64_t count, dim;  /* required */
    int i8;              /* 1: make codes of i8, dim + 12 bytes an item */
    const int64_t *attribute_offsets; /* [count + 1]: item i has attributes attributes[offsets[i]
                                         .. offsets[i + 1]); NULL: none. Not copied */
    const uint64_t *attributes;
} neo_items_desc;
/* neo_items_create: ctx gives the memory. Errors: NEO_ERR_ARG (also: offsets that decrease, a row
   that is not finite), NEO_ERR_MEMORY. */
NEO_API NEO__CHECK_UNUSED neo_status neo_items_create(neo_ctx *ctx, const neo_items_desc *desc,
                                                      neo_items **items);
NEO_API void neo_items_destroy(neo_items *items);
typedef struct neo_hit {
    int64_t item;
    float score;
} neo_hit;
/* neo_items_search: the best k of the items that have all `count` attributes, best first, to hits;
   *found of them (fewer than k where not so many have them). Allocates nothing.
   Numerics a score is the sum over 16 columns' chains of fma(q, x, sum), added by the tree (i and i
            + 8, + 4, + 2, + 1).
   Errors   NEO_ERR_ARG: k below 1, an argument is NULL. NEO_ERR_NUMERIC: the query is not finite.
   Threads  any number on one object. */
NEO_API neo_status neo_items_search(const neo_items *items, const float *query,
                                    const uint64_t *attributes, int count, int64_t k,
                                    neo_hit *hits, int64_t *found);

#ifdef __cplusplus
}
#endif
#endif /* NEO_SERVE_H */
