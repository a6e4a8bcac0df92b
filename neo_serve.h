/* neo_serve.h: a trained model in a program: predictions with training's bits.

   Copy it beside neo.h, neo_kernels.h, neo_run.h, neo_state.h and neo_data.h. MIT licence: neo.h.

   WHAT IT DOES
     - neo_model: a checkpoint of build/dlrm (any --model) or build/gpt becomes a predictor by the
       description that lies in it, model.json: no shape is repeated. Read-only: any number of
       threads share it
     - neo_scratch: what one thread needs to predict. Samples come as JSON by the names of their
       columns, as raw lines of the training format, or as numbers and ids. Nothing is allocated
     - neo_decoder: a GPT writes on, one sequence with its cache of keys and values
     - neo_frozen: embedding tables that do not change: rows of f32 to i2, in memory or mapped from
       a file, looked up without locks
     - neo_items: the k items of the largest dot product, filtered by attributes

   WHAT IT DOES NOT DO
     - no training: with NEO_INFERENCE, defined everywhere, neo.h has no backward and no optimizer
     - no cache of its own for rows on a disk: a mapped file's pages are the operating system's,
       which keeps those in use
     - several sequences of a GPT in one decoder
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
     Of a GPT:
         neo_decoder_create(model, NULL, &d);                                     one per thread
         neo_decoder_add_text(d, "To be", 5);
         neo_decoder_generate(d, &sampling, 20, tokens, &drawn);  neo_model_byte(model, tokens[0])

   SAME BITS
     A prediction of rows as they were trained is that of the trainer's evaluation, bit for bit: for
     any batch it comes in, any number of threads, any instruction set.

   CONTENTS (grep -nE '^ *>>[a-z0-9-]+ *$|---- >>' neo_serve.h is the map)
     >>frozen >>model >>scratch >>decoder >>items
     >>impl-frozen >>impl-model-json >>impl-net >>impl-model >>impl-scratch >>impl-decoder
     >>impl-items
*/
#ifndef NEO_SERVE_H
#define NEO_SERVE_H

#include "neo_data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------
   >>frozen

   Tables that do not change. A view by value: its memory is the caller's, or a mapped file's, which
   may be larger than the machine's (neo_model_desc.path), and any number of threads look rows up in
   it at once. Rows are those of neo_row_bits (neo_state.h).
   ------------------------------------------------------------------------ */
typedef struct neo_frozen {
    neo_row_bits bits;
    int64_t rows, dim;
    const void *codes;  /* [rows][neo_frozen_row_bytes]; f32 aligned to 4 bytes, f16, bf16 to 2 */
    const float *scale; /* of i8, i4, i2: [rows][2], scale and bias */
    int mean;           /* 1: a bag is the mean of its rows; 0: their sum */
    int32_t row_buckets; /* as of neo_table_desc, for the same sums; 0: 1. Not of i4 and i2 */
} neo_frozen;

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
      "model": "dlrm",           lr, fm, ffm, dlrm, dcnv2, deepfm, wukong; or gpt, see below
      "dim": 16,                 columns of an embedding, as --dim
      "dtype": "f32",            of the products: f32 or bf16
      "rows_dtype": "f32",       of the tables: f32, f16, bf16 or i8; i4, i2 (neo_row_bits) of a
                                 checkpoint to be served alone
      "row_buckets": 1,          as of neo_table_desc
      "keys": {"rows": 0, "evict": "lru", "period": 0, "seed": 1},    where ids are keys: rows of a
                                 table, filled up to a multiple of 32 row_buckets, 0: as many as the
                                 schema says; as of neo_keys; as of neo_ctx_desc. A key without a
                                 row, as one never seen, has its initial row, as in training
      "towers": [0, 1, 0, 1],    where there are any, the tower of each feature
      "hot_rows": [6, 0, 2, 9],  where there are any, how many rows of each feature are a table of
                                 their own: a bag is the sum of its other rows, and of its hot ones
      "warm_rows": [0, 40, 9, 9],    likewise of another, whose sum is added last
      "bottom": [13, 64, 16],    widths of the bottom MLP, or of the linear layer
      "top": [367, 64, 1],       of the top MLP, where there is one
      "cross": {"layers": 3, "rank": 64},     of dcnv2
      "wukong": {"layers": 2, "hidden": 64},  of wukong
      "schema": {"format": "criteo", ...}}    what a sample is: neo_schema_describe
   Of a gpt, besides neo_model, model and dtype:
      "layers": 4, "heads": 4, "width": 128, "context": 64,    as the options of build/gpt
      "weights_dtype": "f32",    f32, or bf16, to which weights are rounded
      "gelu": "erf",             or tanh, as neo_activation; erf where it is not said
      "bytes": [10, 32, 33]}     that the tokens stand for, from token 0 on; or
      "vocabulary": 50257}       tokens of a byte-pair vocabulary, which stand for no bytes
   A file that lacks something is refused by its name, as is a name or a version that this neo does
   not know.
   ------------------------------------------------------------------------ */
typedef struct neo_model neo_model;

typedef struct neo_model_desc {
    const char *dir;   /* of checkpoints, as neo_save_desc.dir; or: */
    const char *path;  /* a file of neo_model_write, which is mapped: pages of its tables are read
                          when they are looked up, one at a time, are shared by all processes that
                          map it, and leave again where memory is short: tables may be larger */
    int64_t step;      /* of dir; 0 and below: the newest whole one */
    neo_row_bits rows; /* of the tables, of dir */
    neo_ctx_desc ctx;  /* allocator, logger, isa; threads are those for loading; device: NULL */
} neo_model_desc;
/* neo_model_load: a predictor from a checkpoint or a file. Memory: the weights, of MLPs twice (then
   with outputs filled up to 4 vectors, 64 by AVX-512), and the dictionaries; for other rows than
   the trained ones, while loading, those too. Of a GPT products' weights twice, then in its dtype.
   Errors   NEO_ERR_NOT_FOUND: no whole checkpoint, or it has no model.json. NEO_ERR_FORMAT: file
            and byte, or the name of what it lacks. NEO_ERR_UNSUPPORTED: the name of what this
            version does not know. NEO_ERR_MISMATCH: a tensor has another shape than model.json
            says. NEO_ERR_ARG: neither dir nor path, or both. NEO_ERR_CORRUPT (of a mapped file a
            key that is not where it belongs, too: of up to 8192 keys of a table all are looked up,
            of more as many), NEO_ERR_IO (also: the checkpoint was removed meanwhile: try again),
            NEO_ERR_MEMORY. *model is NULL then.
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
    int32_t outputs;       /* numbers that a prediction is; of a gpt tokens of its vocabulary */
    int weighted;          /* ids have weights */
    int64_t weight_bytes;  /* of all layers and tables */
    int64_t context;       /* of a gpt: tokens of a sequence, at most; 0: the model is another */
} neo_model_info;
NEO_API neo_model_info neo_model_get_info(const neo_model *model);
/* neo_model_column: the name of column `index` of a sample, as JSON has it: of text by columns
   those of its description; of Criteo I1 .. I13, C1 .. C26; of other formats "dense_0" .., then the
   features' names. NULL: no such index, a label, or a column that is not used. */
NEO_API const char *neo_model_column(const neo_model *model, int32_t index);
/* neo_model_feature: name and rows of a sparse feature, as neo_schema_feature. */
NEO_API neo_feature neo_model_feature(const neo_model *model, int32_t feature);
/* neo_model_table: the table of a feature, a view that stays as long as the model; NULL: no such
   feature. */
NEO_API const neo_frozen *neo_model_table(const neo_model *model, int32_t feature);
/* neo_model_byte: the byte that a token of a gpt stands for. neo_model_token: the token of a byte.
   -1: none, as always of a byte-pair vocabulary. */
NEO_API int neo_model_byte(const neo_model *model, int64_t token);
NEO_API int64_t neo_model_token(const neo_model *model, int byte);
/* neo_model_write: the model as one safetensors file for neo_model_desc.path: weights by name, rows
   as this model has them (i4 and i2 as u8, packed), dictionaries, model.json in its metadata.
   Where ids are keys, the map from keys to rows, too, as it is looked up: loading takes neither
   time nor memory per key. Written to <path>.partial, flushed to disk and renamed.
   Not with NEO_INFERENCE: a program that trains or converts writes it.
   Errors   those of neo_safetensors_write. Threads: any. */
#if !defined(NEO_INFERENCE)
NEO_API neo_status neo_model_write(const neo_model *model, const char *path);
#endif

/* ---------------------------------------------------------------------------
   >>scratch

   What one thread needs to predict by a model that others use too: the samples of a batch, and the
   numbers between layers.
   ------------------------------------------------------------------------ */
typedef struct neo_scratch neo_scratch;
typedef struct neo_scratch_desc {
    int64_t max_batch; /* samples of a batch, at most; 0: 1 */
    int64_t max_ids;   /* of a batch, of all its features; 0: one in each bag, where bags may have
                          several 64, of those 2^15, as many as a line may have, to 2^20 */
    int threads;       /* that one prediction uses, the caller included; 0: 1 */
    int logits;        /* 1: predictions are logits; 0: probabilities */
} neo_scratch_desc;
/* neo_scratch_create: desc NULL: all defaults. The model stays until the scratch is gone.
   Threads  any; the scratch belongs to one thread at a time, and distinct ones are independent.
   Errors   NEO_ERR_ARG, NEO_ERR_MEMORY, NEO_ERR_SYSTEM. NEO_ERR_UNSUPPORTED: the model is a gpt. */
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
   Errors   NEO_ERR_RANGE: an id outside its table (no key is). NEO_ERR_CAPACITY. */
NEO_API neo_status neo_scratch_add(neo_scratch *scratch, const float *dense, const int64_t *ids,
                                   const int32_t *counts, const float *weights);
/* neo_scratch_predict: the samples that were added, in order, to out [count][outputs]; they stay
   until neo_scratch_clear. Allocates nothing.
   Errors   those of the layers. */
NEO_API neo_status neo_scratch_predict(neo_scratch *scratch, float *out);
/* neo_model_predict: a batch as a reader of neo_data.h or you make it, to out [batch][outputs].
   Shapes   dense [B][dense_count] f32, rows contiguous, B <= max_batch; sparse of B samples.
   Errors   NEO_ERR_SHAPE, NEO_ERR_CAPACITY; NEO_ERR_RANGE: an id outside its table (no key is);
            nothing is written. Allocates nothing. */
NEO_API neo_status neo_model_predict(const neo_model *model, neo_scratch *scratch, neo_tensor dense,
                                     const neo_jagged *sparse, float *out);

/* ---------------------------------------------------------------------------
   >>decoder

   A sequence of a GPT: its tokens go through the layers once, as what attention needs of them later
   stays in a cache. Logits are those of the trainer's evaluation, bit for bit, in whatever pieces
   the tokens come.
   ------------------------------------------------------------------------ */
typedef struct neo_decoder neo_decoder;
typedef struct neo_decoder_desc {
    int64_t chunk; /* tokens that go through the layers together, at most; 0: 64 */
    int threads;   /* that one call uses, the caller included; 0: 1 */
} neo_decoder_desc;
/* neo_decoder_create: an empty sequence; desc NULL: all defaults. The model stays until the decoder
   is gone. neo_decoder_bytes: exactly what create takes from the allocator, besides a context of
   these threads; 0 where create would fail.
   Threads  any; the decoder belongs to one thread at a time, and distinct ones are independent.
   Errors   NEO_ERR_ARG, NEO_ERR_MEMORY, NEO_ERR_SYSTEM. NEO_ERR_UNSUPPORTED: no gpt. */
NEO_API NEO__CHECK_UNUSED neo_status neo_decoder_create(const neo_model *model,
                                                        const neo_decoder_desc *desc,
                                                        neo_decoder **decoder);
NEO_API size_t neo_decoder_bytes(const neo_model *model, const neo_decoder_desc *desc);
NEO_API void neo_decoder_destroy(neo_decoder *decoder);
NEO_API void neo_decoder_clear(neo_decoder *decoder); /* no tokens */
NEO_API int64_t neo_decoder_count(const neo_decoder *decoder);
/* neo_decoder_logits: [outputs] of the token behind the last one, for neo_sample; until the next
   call. NULL: there is no token yet. */
NEO_API const float *neo_decoder_logits(const neo_decoder *decoder);
/* neo_decoder_add: tokens behind those that are there; _add_text: the tokens of bytes. Allocates
   nothing.
   Errors   the sequence stays as it was. NEO_ERR_CAPACITY: more tokens than the model's context.
            NEO_ERR_RANGE: no such token, a byte that has none. NEO_ERR_ARG: none at all. */
NEO_API neo_status neo_decoder_add(neo_decoder *decoder, const int64_t *tokens, int64_t count);
NEO_API neo_status neo_decoder_add_text(neo_decoder *decoder, const char *text, size_t bytes);
/* neo_decoder_add_json: a new sequence by an object, in any order, all optional:
     {"prompt": "To be", "tokens": 20, "temperature": 0.8, "top_k": 40, "seed": 1}
   The prompt is a string or an array of tokens, of a byte-pair vocabulary an array, and becomes the
   sequence; of an empty one it begins with a new line (token 0 where there is none; of a byte-pair
   vocabulary the last token; of 50257 to 50304, GPT-2's rounded up, its end of a text, 50256). The
   others are written to *sampling and *tokens, how many shall follow, where they are given.
   Errors   the sequence stays as it was. NEO_ERR_FORMAT: byte and what was expected.
            NEO_ERR_NOT_FOUND: another name. NEO_ERR_CAPACITY, NEO_ERR_RANGE: as above. */
NEO_API neo_status neo_decoder_add_json(neo_decoder *decoder, const char *text, size_t bytes,
                                        neo_sampling *sampling, int64_t *tokens);
/* neo_decoder_generate: up to `count` tokens to tokens, the first drawn at place 0 from the logits
   that are there, each one but the last added. *drawn of them: fewer where the context is full.
   Errors   NEO_ERR_ARG: an argument is NULL, there is no token yet. Allocates nothing. */
NEO_API neo_status neo_decoder_generate(neo_decoder *decoder, const neo_sampling *sampling,
                                        int64_t count, int64_t *tokens, int64_t *drawn);

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
   Numerics products in f32; of every 16th column added in order, the 16 sums by the tree (i and i +
            8, + 4, + 2, + 1). A sum of infinities that cancel counts as -infinity.
   Errors   NEO_ERR_ARG: k below 1, an argument is NULL. NEO_ERR_NUMERIC: the query is not finite.
   Threads  any number on one object. */
NEO_API neo_status neo_items_search(const neo_items *items, const float *query,
                                    const uint64_t *attributes, int count, int64_t k,
                                    neo_hit *hits, int64_t *found);

#ifdef __cplusplus
}
#endif
#endif /* NEO_SERVE_H */

/* =============================================================================
   Stop here if you only want the API: what follows is the implementation.
   ========================================================================== */

#if (defined(NEO_IMPLEMENTATION) || defined(NEO_STATIC)) && !defined(NEO__SERVE_IMPLEMENTED)
#define NEO__SERVE_IMPLEMENTED
#include "neo_data.h" /* its implementation, if it was included without before */
#if !defined(_WIN32)
#include <sys/mman.h>
#endif

NEO_EXACT_BEGIN
NEO__HOST_BEGIN
NEO__COLD_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-frozen

   Rows of f32, f16, bf16 and i8 are looked up by the kernels of neo_bags. Those of i4 and i2 are
   decoded here, some columns at a time, and added in order of position.
   ------------------------------------------------------------------------ */
enum { NEO__FROZEN_COLUMNS = 64 };

NEO__HOT_BEGIN
/* Columns [col, col + n) of a row of i4 or i2. */
static void neo__frozen_decode(const neo_frozen *table, int64_t id, int64_t col, int64_t n,
                               float *to) {
    const unsigned char *row = (const unsigned char *)table->codes +
                               (size_t)id * neo_frozen_row_bytes(table->bits, table->dim);
    const float scale = table->scale[2 * id], bias = table->scale[2 * id + 1];
    if (table->bits == NEO_ROWS_I4) {
        row += col / 2; /* col is even */
        for (int64_t c = 0; c < n; c++)
            to[c] = scale * (float)(row[c / 2] >> 4 * (c % 2) & 15) + bias;
    } else {
        row += col / 4;
        for (int64_t c = 0; c < n; c++)
            to[c] = scale * (float)(row[c / 4] >> 2 * (c % 4) & 3) + bias;
    }
}
static void neo__frozen_pool(const neo_frozen *table, const int64_t *offsets, int64_t bags,
                             const int64_t *ids, const float *weights, float *out,
                             int64_t out_stride) {
    float row[NEO__FROZEN_COLUMNS], sum[NEO__FROZEN_COLUMNS];
    for (int64_t b = 0; b < bags; b++, out += out_stride) {
        for (int64_t col = 0; col < table->dim; col += NEO__FROZEN_COLUMNS) {
            const int64_t n = NEO__MIN(table->dim - col, (int64_t)NEO__FROZEN_COLUMNS);
            memset(sum, 0, sizeof sum);
            for (int64_t k = offsets[b]; k < offsets[b + 1]; k++) {
                neo__frozen_decode(table, ids[k], col, n, row);
                const float w = weights ? weights[k] : 1.0f;
                for (int64_t c = 0; c < n; c++) sum[c] += w * row[c];
            }
            const float count = (float)(offsets[b + 1] - offsets[b]);
            for (int64_t c = 0; c < n; c++)
                out[col + c] = table->mean && count > 0.0f ? sum[c] / count : sum[c];
        }
    }
}
/* A lookup whose ids are inside. */
static void neo__frozen_look(const neo_ctx *ctx, const neo_frozen *table, const int64_t *offsets,
                             int64_t bags, const int64_t *ids, const float *weights, float *out,
                             int64_t out_stride) {
    if (table->bits >= NEO_ROWS_I4) {
        neo__frozen_pool(table, offsets, bags, ids, weights, out, out_stride);
        return;
    }
    NEO__ZERO(neo__bag_rows, store);
    NEO__ZERO(neo__bag_lookup, a);
    store.dtype = neo__row_kinds[table->bits].dtype;
    store.data = (char *)(uintptr_t)table->codes; /* which a lookup only reads */
    store.scale = (float *)(uintptr_t)table->scale;
    store.dim = table->dim;
    store.row_bytes = (int64_t)neo_frozen_row_bytes(table->bits, table->dim);
    store.stride = (uint64_t)table->dim;
    a.store = &store;
    a.table = store.dtype == NEO_F32 ? (const float *)table->codes : NULL;
    a.rows = a.bucket_rows = table->rows;
    a.dim = table->dim;
    a.ids = ids;
    a.weights = weights;
    a.offsets = offsets;
    a.bags = bags;
    a.out = out;
    a.out_stride = out_stride;
    a.mean = table->mean;
    a.pooled = a.inside = 1;
    a.buckets = table->row_buckets > 1 ? table->row_buckets : 1;
    a.bucket_shift = ((double)a.buckets - 0.5) / (double)a.buckets;
    a.bucket_scale = (double)a.buckets / (double)a.bucket_rows;
    a.ahead = neo__bags_fetch_ahead(&a);
    if (neo__bags_are_plain(&a)) ctx->bag->pool(&a);
    else ctx->bag->pool_any(&a);
}
NEO_API neo_status neo_frozen_lookup(const neo_ctx *ctx, const neo_frozen *table,
                                     const int64_t *offsets, int64_t bags, const int64_t *ids,
                                     const float *weights, float *out, int64_t out_stride) {
    NEO__CHECK(ctx && table && table->codes && neo_frozen_row_bytes(table->bits, table->dim) &&
                   (table->scale || table->bits < NEO_ROWS_I8) && bags >= 0 &&
                   (bags == 0 || (offsets && ids && out)),
               NEO_ERR_ARG, "neo_frozen_lookup: an argument is NULL, or the table is malformed");
    for (int64_t b = 0; b < bags; b++) {
        NEO__CHECK(offsets[b] <= offsets[b + 1], NEO_ERR_ARG,
                   "neo_frozen_lookup: offsets decrease at bag %" PRId64, b);
        for (int64_t k = offsets[b]; k < offsets[b + 1]; k++)
            NEO__CHECK((uint64_t)ids[k] < (uint64_t)table->rows, NEO_ERR_RANGE,
                       "neo_frozen_lookup: bag %" PRId64 ": id %" PRId64 " is not in [0, %" PRId64
                       ")", b, ids[k], table->rows);
    }
    neo__fp_state fp = neo__fp_enter();
    neo__frozen_look(ctx, table, offsets, bags, ids, weights, out, out_stride);
    neo__fp_leave(fp);
    return NEO_OK;
}
NEO__HOT_END
/* ---------------------------------------------------------------------------
   >>impl-model-json

   model.json read once, front to back, into a neo__model_json; then what the model of that name
   needs is checked to be there.
   ------------------------------------------------------------------------ */
enum { NEO__MODEL_VERSION = 1, NEO__MODEL_TOWERS = 256 };
typedef enum neo__meeting { /* of the dense part and the features: as in dlrm's options.h */
    NEO__MEETS_NOTHING, /* a GPT */
    NEO__MEETS_DOTS,    /* pairwise dot products */
    NEO__MEETS_BESIDE,  /* side by side, through a cross network or Wukong layers */
    NEO__MEETS_WEIGHTS, /* sums of weights, one of each id */
    NEO__MEETS_MACHINE, /* a factorization machine */
    NEO__MEETS_AWARE    /* a field-aware one */
} neo__meeting;
typedef struct neo__model_kind {
    const char *name, *bottom;
    neo__meeting meets;
    int crosses, stacks, top;
} neo__model_kind;
static const neo__model_kind neo__model_kinds[] = {
    {"dlrm", "bottom", NEO__MEETS_DOTS, 0, 0, 1},   {"dcnv2", "bottom", NEO__MEETS_BESIDE, 1, 0, 1},
    {"wukong", "bottom", NEO__MEETS_BESIDE, 0, 1, 1}, {"lr", "linear", NEO__MEETS_WEIGHTS, 0, 0, 0},
    {"fm", "linear", NEO__MEETS_MACHINE, 0, 0, 0},
    {"deepfm", "linear", NEO__MEETS_MACHINE, 0, 0, 1},
    {"ffm", "linear", NEO__MEETS_AWARE, 0, 0, 0},
    {"gpt", "", NEO__MEETS_NOTHING, 0, 0, 0}};
enum { NEO__MODEL_KINDS = sizeof neo__model_kinds / sizeof neo__model_kinds[0] };

typedef struct neo__widths {
    int count;
    int64_t width[NEO_MAX_LAYERS + 1];
} neo__widths;
typedef struct neo__model_json {
    const neo__model_kind *kind;
    char *name, *dtype, *rows_dtype; /* name: of the model */
    int64_t version, dim, row_buckets;
    int64_t key_rows, key_period, key_seed; /* key_rows: -1: ids are rows */
    char *evict;
    size_t towers_at; /* of the text; 0: there are none */
    int tower_count;
    int64_t *place; /* [features] of pooled rows, tower by tower */
    int64_t *tower_end; /* [tower_count] of places */
    size_t hot_at[2]; /* of the text; 0: no rows are hot, or warm */
    neo__widths bottom, top;
    int64_t cross_layers, cross_rank, wukong_layers, wukong_hidden; /* -1: not there */
    neo_schema *schema;                                             /* NULL: of a gpt */
    char *weights_dtype, *gelu; /* gelu: or NULL */
    int64_t layers, heads, width, context; /* of a gpt; -1: not there */
    int vocabulary, has_bytes;
    unsigned char byte[256]; /* of a token */
    int16_t token[256];      /* of a byte; -1: none */
} neo__model_json;
static int neo__is_gpt(const neo__model_json *spec) {
    return spec->kind->meets == NEO__MEETS_NOTHING;
}

static neo_status neo__model_widths(neo__json *json, neo__widths *widths) {
    int more = 1;
    NEO__TRY(neo__json_open(json, '['));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_next(json, ']', i, &more));
        if (!more) return NEO_OK;
        if (i > NEO_MAX_LAYERS) return neo__json_fail(json, json->at, "too many widths");
        NEO__TRY(neo__json_count(json, &widths->width[i]));
        if (widths->width[i] < 1 || widths->width[i] > INT64_C(1) << 24)
            return neo__json_fail(json, json->at, "a width is not in 1 .. 2^24");
        widths->count = i + 1;
    }
}
/* An object of two counts by name. */
static neo_status neo__model_pair(neo__json *json, const char *name, const char *const keys[2],
                                  int64_t *first, int64_t *second) {
    char *key = NULL;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        int64_t *to = strcmp(key, keys[0]) == 0 ? first : strcmp(key, keys[1]) ? NULL : second;
        NEO__CHECK(to, NEO_ERR_UNSUPPORTED, "%s: %s: \"%.60s\" is not known here", json->file, name,
                   key);
        NEO__TRY(neo__json_count(json, to));
    }
    NEO__CHECK(*first >= 0 && *second >= 0, NEO_ERR_FORMAT, "%s: %s: lacks \"%s\"", json->file,
               name, *first < 0 ? keys[0] : keys[1]);
    return NEO_OK;
}
static neo_status neo__model_vocabulary(neo__json *json, neo__model_json *spec) {
    int more = 1;
    NEO__TRY(neo__json_open(json, '['));
    spec->has_bytes = 1;
    for (spec->vocabulary = 0;; spec->vocabulary++) {
        int64_t byte = 0;
        NEO__TRY(neo__json_next(json, ']', spec->vocabulary, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__json_count(json, &byte));
        if (byte > 255 || spec->token[byte] >= 0)
            return neo__json_fail(json, json->at, "a byte above 255, or one that is there twice");
        spec->byte[spec->vocabulary] = (unsigned char)byte;
        spec->token[byte] = (int16_t)spec->vocabulary;
    }
}
static const char *const neo__evict_names[] = {"lru", "lfu", "age", "score"}; /* as neo_evict */
static neo_status neo__model_keys(neo__json *json, neo__model_json *spec) {
    char *key = NULL;
    NEO__CHECK(neo__json_peek(json) == '{', NEO_ERR_UNSUPPORTED,
               "%s: \"keys\" does not say how rows begin: an older neo has written it", json->file);
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) break;
        if (strcmp(key, "evict") == 0) NEO__TRY(neo__json_string(json, &spec->evict));
        else {
            int64_t *to = strcmp(key, "rows") == 0     ? &spec->key_rows
                          : strcmp(key, "period") == 0 ? &spec->key_period
                          : strcmp(key, "seed") == 0   ? &spec->key_seed
                                                       : NULL;
            NEO__CHECK(to, NEO_ERR_UNSUPPORTED, "%s: keys: \"%.60s\" is not known here",
                       json->file, key);
            NEO__TRY(neo__json_count(json, to));
        }
    }
    int policy = 0;
    while (policy < 4 && spec->evict && strcmp(spec->evict, neo__evict_names[policy])) policy++;
    NEO__CHECK(spec->key_rows >= 0 && spec->key_period >= 0 && spec->key_seed >= 0 && spec->evict,
               NEO_ERR_FORMAT, "%s: keys: \"%s\" is missing", json->file,
               spec->key_rows < 0     ? "rows"
               : spec->key_period < 0 ? "period"
               : spec->key_seed < 0   ? "seed"
                                      : "evict");
    NEO__CHECK(policy < 4, NEO_ERR_UNSUPPORTED, "%s: keys: evict \"%.60s\" is not known here",
               json->file, spec->evict);
    return NEO_OK;
}
static neo_status neo__model_member(neo_ctx *ctx, neo__json *json, const char *key,
                                    neo__model_json *spec) {
    static const char *const cross[2] = {"layers", "rank"}, *const wukong[2] = {"layers", "hidden"};
    if (strcmp(key, "neo_model") == 0) return neo__json_count(json, &spec->version);
    if (strcmp(key, "model") == 0) return neo__json_string(json, &spec->name);
    if (strcmp(key, "dim") == 0) return neo__json_count(json, &spec->dim);
    if (strcmp(key, "dtype") == 0) return neo__json_string(json, &spec->dtype);
    if (strcmp(key, "rows_dtype") == 0) return neo__json_string(json, &spec->rows_dtype);
    if (strcmp(key, "row_buckets") == 0) return neo__json_count(json, &spec->row_buckets);
    if (strcmp(key, "bottom") == 0) return neo__model_widths(json, &spec->bottom);
    if (strcmp(key, "top") == 0) return neo__model_widths(json, &spec->top);
    if (strcmp(key, "cross") == 0)
        return neo__model_pair(json, key, cross, &spec->cross_layers, &spec->cross_rank);
    if (strcmp(key, "wukong") == 0)
        return neo__model_pair(json, key, wukong, &spec->wukong_layers, &spec->wukong_hidden);
    if (strcmp(key, "layers") == 0) return neo__json_count(json, &spec->layers);
    if (strcmp(key, "heads") == 0) return neo__json_count(json, &spec->heads);
    if (strcmp(key, "width") == 0) return neo__json_count(json, &spec->width);
    if (strcmp(key, "context") == 0) return neo__json_count(json, &spec->context);
    if (strcmp(key, "weights_dtype") == 0) return neo__json_string(json, &spec->weights_dtype);
    if (strcmp(key, "gelu") == 0) return neo__json_string(json, &spec->gelu);
    if (strcmp(key, "bytes") == 0 && !spec->vocabulary) return neo__model_vocabulary(json, spec);
    if (strcmp(key, "vocabulary") == 0 && !spec->vocabulary) {
        int64_t tokens = 0;
        NEO__TRY(neo__json_count(json, &tokens));
        if (tokens < 1 || tokens > INT64_C(1) << 24)
            return neo__json_fail(json, json->at, "a vocabulary is not in 1 .. 2^24");
        spec->vocabulary = (int)tokens;
        return NEO_OK;
    }
    if (strcmp(key, "keys") == 0) return neo__model_keys(json, spec);
    if (strcmp(key, "towers") == 0 || strcmp(key, "hot_rows") == 0 ||
        strcmp(key, "warm_rows") == 0) {
        NEO__CHECK(neo__json_peek(json) == '[', NEO_ERR_UNSUPPORTED, "%s: \"%s\" does not say "
                   "which features have them: an older neo has written it", json->file, key);
        *(key[0] == 't' ? &spec->towers_at : &spec->hot_at[key[0] == 'w']) = json->at;
        return neo__json_skip(json);
    }
    if (strcmp(key, "schema") == 0 && !spec->schema)
        return neo__schema_read(ctx, json, &spec->schema);
    return neo_fail(NEO_ERR_UNSUPPORTED, "%s: \"%.60s\" is %s", json->file, key,
                    spec->schema || spec->vocabulary ? "there twice, or not known here"
                                                     : "not known here");
}
static neo_status neo__model_gpt_check(const char *file, const neo__model_json *spec) {
    const struct { const char *name; int64_t value, most; } counts[] = {
        {"layers", spec->layers, 1024}, {"heads", spec->heads, 65536},
        {"width", spec->width, INT64_C(1) << 20}, {"context", spec->context, INT64_C(1) << 24}};
    for (int i = 0; i < 4; i++)
        NEO__CHECK(counts[i].value >= 1 && counts[i].value <= counts[i].most, NEO_ERR_FORMAT,
                   "%s: %s %" PRId64 " is not in 1 .. %" PRId64, file, counts[i].name,
                   counts[i].value, counts[i].most);
    NEO__CHECK(spec->width % spec->heads == 0 && spec->width / spec->heads <= NEO_MAX_HEAD_DIM,
               NEO_ERR_FORMAT, "%s: a width of %" PRId64 " is not whole heads of up to %d columns",
               file, spec->width, (int)NEO_MAX_HEAD_DIM);
    NEO__CHECK(!spec->gelu || strcmp(spec->gelu, "erf") == 0 || strcmp(spec->gelu, "tanh") == 0,
               NEO_ERR_UNSUPPORTED, "%s: gelu \"%.60s\" is neither erf nor tanh", file, spec->gelu);
    NEO__CHECK(strcmp(spec->weights_dtype, "f32") == 0 || strcmp(spec->weights_dtype, "bf16") == 0,
               NEO_ERR_UNSUPPORTED, "%s: weights_dtype \"%.60s\" is neither f32 nor bf16", file,
               spec->weights_dtype);
    return NEO_OK;
}
/* All that the model of this name needs is there, and no more. */
static neo_status neo__model_json_check(const char *file, neo__model_json *spec) {
    const neo__model_kind none = {"", "", NEO__MEETS_NOTHING, -1, -1, -1};
    const neo__model_kind *kind = spec->kind ? spec->kind : &none;
    const int gpt = spec->kind ? neo__is_gpt(spec) : -1, tables = spec->kind ? !gpt : -1;
    const struct { const char *name; int there, wanted; } parts[] = {
        {"neo_model", spec->version >= 0, 1},
        {"model", spec->name != NULL, 1},
        {"dtype", spec->dtype != NULL, 1},
        {"dim", spec->dim >= 0, tables},
        {"rows_dtype", spec->rows_dtype != NULL, tables},
        {"row_buckets", spec->row_buckets >= 0, tables},
        {"bottom", spec->bottom.count > 0, tables},
        {"schema", spec->schema != NULL, tables},
        {"layers", spec->layers >= 0, gpt},
        {"heads", spec->heads >= 0, gpt},
        {"width", spec->width >= 0, gpt},
        {"context", spec->context >= 0, gpt},
        {"weights_dtype", spec->weights_dtype != NULL, gpt},
        {"gelu", spec->gelu != NULL, gpt ? -1 : 0},
        {"bytes", spec->vocabulary > 0, gpt},
        {"top", spec->top.count > 0, kind->top},
        {"cross", spec->cross_layers >= 0, kind->crosses},
        {"wukong", spec->wukong_layers >= 0, kind->stacks}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        NEO__CHECK(parts[i].there || parts[i].wanted <= 0, NEO_ERR_FORMAT, "%s: lacks \"%s\"", file,
                   parts[i].name);
        NEO__CHECK(!parts[i].there || parts[i].wanted, NEO_ERR_FORMAT,
                   "%s: model \"%s\" has no \"%s\"", file, spec->name, parts[i].name);
    }
    NEO__CHECK(spec->version == NEO__MODEL_VERSION, NEO_ERR_UNSUPPORTED,
               "%s: \"neo_model\" is %" PRId64 ", and this program reads %d", file,
               spec->version, (int)NEO__MODEL_VERSION);
    NEO__CHECK(spec->kind, NEO_ERR_UNSUPPORTED, "%s: model \"%.60s\" is not known here", file,
               spec->name);
    NEO__CHECK(strcmp(spec->dtype, "f32") == 0 || strcmp(spec->dtype, "bf16") == 0,
               NEO_ERR_UNSUPPORTED, "%s: dtype \"%.60s\" is neither f32 nor bf16", file,
               spec->dtype);
    NEO__CHECK(!spec->towers_at || spec->kind->meets == NEO__MEETS_DOTS ||
                   spec->kind->meets == NEO__MEETS_BESIDE,
               NEO_ERR_FORMAT, "%s: model \"%s\" has no \"towers\"", file, spec->name);
    NEO__CHECK(!(spec->hot_at[0] || spec->hot_at[1]) || (tables > 0 && spec->key_rows < 0),
               NEO_ERR_FORMAT, "%s: neither keys nor a gpt have \"%s_rows\"", file,
               spec->hot_at[0] ? "hot" : "warm");
    if (neo__is_gpt(spec)) return neo__model_gpt_check(file, spec);
    NEO__CHECK(spec->dim >= 1 && spec->dim <= 65536, NEO_ERR_FORMAT,
               "%s: dim %" PRId64 " is not in 1 .. 65,536", file, spec->dim);
    NEO__CHECK(spec->row_buckets >= 1 && spec->row_buckets <= 4096, NEO_ERR_FORMAT,
               "%s: row_buckets %" PRId64 " is not in 1 .. 4,096", file, spec->row_buckets);
    return NEO_OK;
}
/* text is overwritten, and spec points into it. On failure there is no schema. */
static neo_status neo__model_json_read(neo_ctx *ctx, const char *file, char *text, size_t bytes,
                                       neo__model_json *spec) {
    neo__json json = {text, bytes, 0, file, 0, 0};
    char *key = NULL;
    memset(spec, 0, sizeof *spec);
    spec->version = spec->dim = spec->row_buckets = -1;
    spec->key_rows = spec->key_period = spec->key_seed = -1;
    spec->cross_layers = spec->cross_rank = spec->wukong_layers = spec->wukong_hidden = -1;
    spec->layers = spec->heads = spec->width = spec->context = -1;
    memset(spec->token, 0xFF, sizeof spec->token);
    neo_status status = neo__json_open(&json, '{');
    for (int i = 0; status == NEO_OK; i++) {
        status = neo__json_member(&json, i, &key);
        if (status == NEO_OK && !key) break;
        /* a newer version is named before what it has that this one does not know */
        if (status == NEO_OK && spec->version > NEO__MODEL_VERSION) break;
        if (status == NEO_OK) status = neo__model_member(ctx, &json, key, spec);
    }
    if (status == NEO_OK && spec->version > NEO__MODEL_VERSION)
        status = neo_fail(NEO_ERR_UNSUPPORTED, "%s: \"neo_model\" is %" PRId64
                          ", and this program reads up to %d", file, spec->version,
                          (int)NEO__MODEL_VERSION);
    if (status == NEO_OK) status = neo__json_end(&json);
    for (int i = 0; spec->name && i < NEO__MODEL_KINDS; i++)
        if (strcmp(spec->name, neo__model_kinds[i].name) == 0) spec->kind = &neo__model_kinds[i];
    if (status == NEO_OK) status = neo__model_json_check(file, spec);
    if (status != NEO_OK) neo_schema_destroy(spec->schema), spec->schema = NULL;
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-net

   The dense layers, made of a description in a context: once to learn the names and shapes of their
   weights, and for each scratch, bound to the model's weights.
   ------------------------------------------------------------------------ */
typedef struct neo__net {
    neo_params *params;
    neo_mlp *bottom, *top;
    neo_cross *cross;
    neo_wukong *wukong;
    neo_mlp *tower[NEO__MODEL_TOWERS];
} neo__net;

static void neo__net_destroy(neo__net *net) {
    neo_mlp_destroy(net->top);
    neo_cross_destroy(net->cross);
    neo_wukong_destroy(net->wukong);
    neo_mlp_destroy(net->bottom);
    for (int k = 0; k < NEO__MODEL_TOWERS; k++) neo_mlp_destroy(net->tower[k]);
    neo_params_destroy(net->params);
    memset(net, 0, sizeof *net);
}
/* The dtype of the products. */
static neo_dtype neo__net_dtype(const neo__model_json *spec) {
    return strcmp(spec->dtype, "bf16") ? NEO_F32 : NEO_BF16;
}
/* A logit for each label that was trained: as many as the last MLP ends with. */
static int32_t neo__net_outputs(const neo__model_json *spec) {
    if (neo__is_gpt(spec)) return spec->vocabulary;
    const int linear = spec->kind->meets >= NEO__MEETS_WEIGHTS;
    const neo__widths *widths = linear ? &spec->bottom : &spec->top;
    const int64_t last = widths->count ? widths->width[widths->count - 1] : 1;
    return last < 1 || last > 64 ? 1 : (int32_t)last;
}
/* Rows that the layers see besides x: of features, or of towers. */
static int64_t neo__net_rows(const neo__model_json *spec) {
    return spec->tower_count ? spec->tower_count : neo_schema_feature_count(spec->schema);
}
/* Columns of what the top MLP or the layers before it take. */
static int64_t neo__net_width(const neo__model_json *spec) {
    const int64_t features = neo__net_rows(spec);
    if (spec->kind->meets == NEO__MEETS_DOTS) return neo_interact_width(spec->dim, features, 0);
    if (spec->kind->meets == NEO__MEETS_BESIDE) return (features + 1) * spec->dim;
    return neo_schema_dense_count(spec->schema) +
           neo__net_outputs(spec) * features * (spec->dim - 1);
}
/* Columns of a table: of linear models those of each label side by side. */
static int64_t neo__net_row(const neo__model_json *spec) {
    const int64_t features = neo_schema_feature_count(spec->schema);
    if (spec->kind->meets < NEO__MEETS_WEIGHTS) return spec->dim;
    return neo__net_outputs(spec) *
           (spec->kind->meets == NEO__MEETS_AWARE ? features * spec->dim + 1 : spec->dim);
}
static neo_status neo__net_mlp(neo_ctx *ctx, neo__net *net, const neo__model_json *spec, int top,
                               int64_t max_batch, neo_mlp **mlp) {
    const neo__widths *widths = top ? &spec->top : &spec->bottom;
    const int linear = spec->kind->meets >= NEO__MEETS_WEIGHTS;
    const int32_t dense = neo_schema_dense_count(spec->schema);
    const int64_t in = top ? neo__net_width(spec) : NEO__MAX(dense, 1);
    const int64_t out = top || linear ? neo__net_outputs(spec) : spec->dim;
    NEO__ZERO(neo_mlp_desc, desc);
    desc.name = top ? "top" : spec->kind->bottom;
    desc.width_count = widths->count;
    memcpy(desc.widths, widths->width, sizeof desc.widths);
    desc.max_batch = max_batch;
    desc.act = NEO_ACT_RELU;
    desc.last_act = top || linear ? NEO_ACT_NONE : NEO_ACT_RELU;
    desc.dtype = neo__net_dtype(spec);
    NEO__CHECK(widths->count >= 2 && widths->width[0] == in &&
                   widths->width[widths->count - 1] == out,
               NEO_ERR_MISMATCH,
               "neo_model_load: \"%s\" must begin with %" PRId64 " and end with %" PRId64,
               top ? "top" : "bottom", in, out);
    return neo_mlp_create(ctx, net->params, &desc, mlp);
}
/* Parameters of a gpt, in this order: four, then those of each block. */
enum { NEO__GPT_TOKENS, NEO__GPT_POSITIONS, NEO__GPT_NORM, NEO__GPT_BLOCKS = 4,
       NEO__GPT_NORM_1 = 0, NEO__GPT_QKV = 2, NEO__GPT_PROJECT = 4, NEO__GPT_NORM_2 = 6,
       NEO__GPT_EXPAND = 8, NEO__GPT_CONTRACT = 10, NEO__GPT_PARTS = 12 };
static neo_status neo__net_gpt(neo_params *params, const neo__model_json *spec) {
    static const struct { const char *name; int rows, cols; } parts[NEO__GPT_PARTS] = {
        {"ln_1.weight", 1, 0},        {"ln_1.bias", 1, 0},        {"attn.c_attn.weight", 3, 1},
        {"attn.c_attn.bias", 3, 0},   {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 1, 0},
        {"ln_2.weight", 1, 0},        {"ln_2.bias", 1, 0},        {"mlp.c_fc.weight", 4, 1},
        {"mlp.c_fc.bias", 4, 0},      {"mlp.c_proj.weight", 1, 4}, {"mlp.c_proj.bias", 1, 0}};
    const int64_t w = spec->width;
    const int64_t tokens[2] = {spec->vocabulary, w}, positions[2] = {spec->context, w};
    char name[64];
    NEO__ZERO(neo_init, init);
    NEO__TRY(neo_params_add(params, "wte.weight", 2, tokens, init, NULL));
    NEO__TRY(neo_params_add(params, "wpe.weight", 2, positions, init, NULL));
    NEO__TRY(neo_params_add(params, "ln_f.weight", 1, &w, init, NULL));
    NEO__TRY(neo_params_add(params, "ln_f.bias", 1, &w, init, NULL));
    for (int i = 0; i < spec->layers * NEO__GPT_PARTS; i++) {
        const int part = i % NEO__GPT_PARTS;
        const int64_t shape[2] = {parts[part].rows * w, parts[part].cols * w};
        snprintf(name, sizeof name, "h.%d.%s", i / NEO__GPT_PARTS, parts[part].name);
        NEO__TRY(neo_params_add(params, name, shape[1] ? 2 : 1, shape, init, NULL));
    }
    return NEO_OK;
}
static neo_status neo__net_create(neo_ctx *ctx, const neo__model_json *spec, int64_t max_batch,
                                  neo__net *net) {
    const int gpt = neo__is_gpt(spec);
    const int64_t features = gpt ? 0 : neo__net_rows(spec);
    memset(net, 0, sizeof *net);
    NEO__CHECK(spec->kind->meets < NEO__MEETS_MACHINE || features > 0, NEO_ERR_MISMATCH,
               "neo_model_load: model %s without features", spec->name);
    neo_status status = neo_params_create_deferred(ctx, &net->params);
    if (status == NEO_OK && gpt) status = neo__net_gpt(net->params, spec);
    if (status == NEO_OK && !gpt) status = neo__net_mlp(ctx, net, spec, 0, max_batch, &net->bottom);
    for (int k = 0; status == NEO_OK && k < spec->tower_count; k++) {
        char name[32];
        NEO__ZERO(neo_mlp_desc, desc);
        snprintf(name, sizeof name, "tower.%d", k);
        desc.name = name;
        desc.width_count = 2;
        desc.widths[0] = (spec->tower_end[k] - (k ? spec->tower_end[k - 1] : 0)) * spec->dim;
        desc.widths[1] = spec->dim;
        desc.max_batch = max_batch;
        desc.last_act = NEO_ACT_RELU;
        desc.dtype = neo__net_dtype(spec);
        status = neo_mlp_create(ctx, net->params, &desc, &net->tower[k]);
    }
    if (status == NEO_OK && spec->kind->crosses) {
        NEO__ZERO(neo_cross_desc, desc);
        desc.name = "cross";
        desc.width = neo__net_width(spec);
        desc.rank = spec->cross_rank;
        desc.layers = (int)NEO__MIN(spec->cross_layers, (int64_t)1 << 20);
        desc.max_batch = max_batch;
        desc.dtype = neo__net_dtype(spec);
        status = neo_cross_create(ctx, net->params, &desc, &net->cross);
    }
    if (status == NEO_OK && spec->kind->stacks) {
        NEO__ZERO(neo_wukong_desc, desc);
        desc.name = "wukong";
        desc.features = features + 1;
        desc.dim = spec->dim;
        desc.linear = (features + 1) / 2;
        desc.hidden = spec->wukong_hidden;
        desc.layers = (int)NEO__MIN(spec->wukong_layers, (int64_t)1 << 20);
        desc.max_batch = max_batch;
        desc.dtype = neo__net_dtype(spec);
        status = neo_wukong_create(ctx, net->params, &desc, &net->wukong);
    }
    if (status == NEO_OK && spec->kind->top)
        status = neo__net_mlp(ctx, net, spec, 1, max_batch, &net->top);
    if (status != NEO_OK) neo__net_destroy(net);
    return status;
}

/* ---------------------------------------------------------------------------
   >>impl-model

   A model owns a context, in which it was loaded. Its tensors are in blocks of memory, or in the
   mapped file. Where ids are keys, a table of the file has besides its rows the arrays of
   neo__lines, [rows] each: bags.<feature>.keys and .used i64, .tags u8. There is bags.key_step, and
   in the metadata "key_layout", the version of where a key belongs: another one for another hash.
   ------------------------------------------------------------------------ */
typedef struct neo__held {
    void *data;
    size_t bytes;
} neo__held;
typedef struct neo__weight {
    char *name;
    neo_tensor t;
    void *turned; /* as products want it: in f32 with its bias as panels, see neo_mlp; of a gpt as
                     [in][out], in bf16 as [out][in]; or NULL */
} neo__weight;
/* Rows of a feature that training had in a table of their own, hot or warm. They are in their
   places again, and only their sums stay apart. */
typedef struct neo__hot {
    int64_t *rows; /* [count], rising */
    int64_t count;
    neo_frozen table; /* while loading */
} neo__hot;
struct neo_model {
    neo_ctx *ctx;
    neo_ctx_desc ctx_desc; /* of scratches, but for the threads */
    neo__arena arena;
    neo__model_json json;
    char *text; /* model.json as it was read */
    int64_t step;
    int32_t dense_count, feature_count, column_count;
    char **columns;
    neo__weight *dense; /* [dense_weights] */
    int dense_weights;
    neo_frozen *tables; /* [feature_count] */
    neo__lines *lines;  /* [feature_count] the rows of keys, NULL: ids are rows */
    int64_t key_step;   /* by which keys age */
    neo__hot *hot;      /* [2][feature_count] hot, then warm; NULL: no rows are */
    char **table_names; /* "bags.<feature>" */
    neo__held *held; /* [held_count] */
    int held_count;
    void *map;
    size_t map_bytes;
};

enum { NEO__HOT_KINDS = 2 };
static const char *const neo__hot_words[] = {"hot", "warm"};
/* The rows of feature t of a kind; NULL: it has none. */
static neo__hot *neo__hot_of(const neo_model *model, int kind, int64_t t) {
    neo__hot *hot = model->hot ? model->hot + kind * model->feature_count + t : NULL;
    return hot && hot->count ? hot : NULL;
}

/* Memory that the model keeps. held has room for it. */
static neo_status neo__model_hold(neo_model *model, size_t bytes, void *pointer) {
    void *data = neo_alloc(model->ctx, bytes);
    memcpy(pointer, &data, sizeof data);
    NEO__CHECK(data, NEO_ERR_MEMORY, "neo_model_load: no memory for %zu bytes", bytes);
    model->held[model->held_count].data = data;
    model->held[model->held_count++].bytes = bytes;
    return NEO_OK;
}
NEO_API void neo_model_free(neo_model *model) {
    if (!model) return;
    neo_ctx *ctx = model->ctx;
    neo_schema_destroy(model->json.schema);
    for (int i = 0; i < model->held_count; i++)
        neo_free(ctx, model->held[i].data, model->held[i].bytes);
#if !defined(_WIN32)
    if (model->map) (void)munmap(model->map, model->map_bytes);
#endif
    neo__arena_free(&model->arena);
    neo_free(ctx, model, sizeof *model);
    neo_ctx_destroy(ctx);
}
static char *neo__model_text(neo_model *model, const char *format, ...) NEO__PRINTF(2, 3);
static char *neo__model_text(neo_model *model, const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return neo__arena_text(&model->arena, text, strlen(text));
}

/* The names that JSON has for the columns of a sample. */
static neo_status neo__model_columns(neo_model *model) {
    const neo_schema *schema = model->json.schema;
    const int delimited = schema->format == NEO_FORMAT_DELIMITED;
    const int criteo = schema->format == NEO_FORMAT_CRITEO; /* those of the file, if used */
    const int32_t dense = criteo ? (int32_t)NEO__CRITEO_DENSE : model->dense_count;
    const int32_t count = delimited ? schema->column_count
                          : criteo  ? dense + (int32_t)NEO__CRITEO_FEATURES
                                    : dense + model->feature_count;
    NEO__TRY(NEO__ARENA(&model->arena, model->columns, count + 1));
    for (int32_t i = 0; i < count; i++) {
        const int32_t f = i - dense;
        if (delimited && schema->columns[i].is_label) continue;
        if (criteo && schema->target && schema->target[1 + i] < 0) continue;
        if (delimited) model->columns[i] = neo__model_text(model, "%s", schema->columns[i].name);
        else if (criteo)
            model->columns[i] = neo__model_text(model, f < 0 ? "I%d" : "C%d",
                                                (int)(f < 0 ? i : f) + 1);
        else if (f >= 0) model->columns[i] = neo__model_text(model, "%s", schema->feature_names[f]);
        else model->columns[i] = neo__model_text(model, "dense_%d", (int)i);
        if (!model->columns[i]) return neo_fail(NEO_ERR_MEMORY, "neo_model_load: no memory");
    }
    model->column_count = count;
    return NEO_OK;
}
static neo_row_bits neo__row_bits_of(const char *name) {
    for (int i = NEO_ROWS_F32; i <= NEO_ROWS_I2; i++)
        if (strcmp(name, neo__row_kinds[i].name) == 0) return (neo_row_bits)i;
    return NEO_ROWS_TRAINED;
}
/* Rows of a table; of keys whole sets of lines in each bucket. */
static int64_t neo__model_rows(const neo_model *model, int32_t t) {
    const neo__model_json *spec = &model->json;
    const int64_t of_schema = spec->schema->rows[t];
    if (spec->key_rows < 0) return of_schema;
    const int64_t unit = NEO__LINE_WAYS * NEO__MAX(spec->row_buckets, (int64_t)1);
    const int64_t rows = NEO__MIN(spec->key_rows ? spec->key_rows : of_schema, INT64_MAX - unit);
    return (rows + unit - 1) / unit * unit;
}
/* Lists for the tensors that there will be, and the names and shapes of the dense ones. */
static neo_status neo__model_lists(neo_model *model) {
    neo__net net;
    if (model->json.schema) NEO__TRY(neo__model_columns(model));
    NEO__TRY(neo__net_create(model->ctx, &model->json, 1, &net));
    const int count = model->dense_weights = neo_params_count(net.params);
    const int32_t tables = model->feature_count;
    neo_status status = NEO__ARENA(&model->arena, model->dense, count);
    if (status == NEO_OK) status = NEO__ARENA(&model->arena, model->tables, tables);
    if (status == NEO_OK) status = NEO__ARENA(&model->arena, model->table_names, tables);
    if (status == NEO_OK) status = NEO__ARENA(&model->arena, model->held, 11 * tables + 3);
    if (status == NEO_OK && model->json.key_rows >= 0)
        status = NEO__ARENA(&model->arena, model->lines, tables);
    size_t bytes = 0;
    for (int i = 0; status == NEO_OK && i < count; i++) {
        const neo_param *param = neo_params_at(net.params, i);
        model->dense[i].t = param->value;
        model->dense[i].name = neo__model_text(model, "%s", param->name);
        bytes += ((size_t)neo_tensor_count(param->value) * sizeof(float) + 63) & ~(size_t)63;
        if (!model->dense[i].name) status = neo_fail(NEO_ERR_MEMORY, "neo_model_load: no memory");
    }
    neo__net_destroy(&net);
    char *at = NULL;
    if (status == NEO_OK) status = neo__model_hold(model, bytes, &at);
    for (int i = 0; status == NEO_OK && i < count; i++) {
        neo_tensor *t = &model->dense[i].t;
        t->data = at, t->absent = NULL;
        at += ((size_t)neo_tensor_count(*t) * sizeof(float) + 63) & ~(size_t)63;
    }
    for (int32_t t = 0; status == NEO_OK && t < tables; t++) {
        neo_frozen *table = &model->tables[t];
        table->rows = neo__model_rows(model, t);
        table->dim = neo__net_row(&model->json);
        table->row_buckets = (int32_t)model->json.row_buckets;
        model->table_names[t] = neo__model_text(model, "bags.%s",
                                                model->json.schema->feature_names[t]);
        if (!model->table_names[t]) status = neo_fail(NEO_ERR_MEMORY, "neo_model_load: no memory");
        for (int c = 0; status == NEO_OK && c < NEO__HOT_KINDS; c++) {
            neo__hot *hot = neo__hot_of(model, c, t);
            if (!hot) continue;
            NEO__CHECK(hot->count <= table->rows, NEO_ERR_MISMATCH,
                       "neo_model_load: %s_rows: %" PRId64 " of the %" PRId64 " rows of %s",
                       neo__hot_words[c], hot->count, table->rows, model->table_names[t]);
            hot->table = *table;
            hot->table.rows = hot->count;
        }
    }
    return status;
}
/* The memory of a table of these bits, and its tensors. */
static neo_status neo__model_table(neo_model *model, neo_frozen *table, neo_row_bits bits) {
    const size_t row = neo_frozen_row_bytes(bits, table->dim);
    table->bits = bits;
    NEO__TRY(neo__model_hold(model, neo__size_mul(row, (size_t)table->rows), &table->codes));
    if (bits < NEO_ROWS_I8) return NEO_OK;
    return neo__model_hold(model, neo__size_mul(8, (size_t)table->rows), &table->scale);
}
#define NEO__KEY_LAYOUT "1"
/* The lines of table t, but for their memory. */
static neo__lines *neo__model_lines(neo_model *model, int32_t t) {
    neo__lines *lines = &model->lines[t];
    lines->sets = lines->all_sets = model->tables[t].rows / NEO__LINE_WAYS;
    lines->period = model->json.key_period;
    while (strcmp(model->json.evict, neo__evict_names[lines->evict]))
        lines->evict = (neo_evict)(lines->evict + 1);
    return lines;
}
static neo_status neo__model_hold_lines(neo_model *model, int32_t t) {
    neo__lines *lines = neo__model_lines(model, t);
    const size_t rows = (size_t)model->tables[t].rows;
    NEO__TRY(neo__model_hold(model, neo__size_mul(rows, 8), &lines->key));
    NEO__TRY(neo__model_hold(model, neo__size_mul(rows, 8), &lines->use));
    return neo__model_hold(model, rows, &lines->tag);
}
/* Memory that the model keeps no more. */
static void neo__model_drop(neo_model *model, const void *data) {
    for (int i = 0; data && i < model->held_count; i++) {
        neo__held *held = &model->held[i];
        if (held->data != data) continue;
        neo_free(model->ctx, held->data, held->bytes);
        *held = model->held[--model->held_count];
        return;
    }
}
static neo_tensor neo__frozen_codes(const neo_frozen *table) {
    const int packed = table->bits >= NEO_ROWS_I4;
    const int64_t row = (int64_t)neo_frozen_row_bytes(table->bits, table->dim);
    return neo_tensor_2d((void *)(uintptr_t)table->codes, neo__row_kinds[table->bits].dtype,
                         table->rows, packed ? row : table->dim);
}
static neo_tensor neo__frozen_scale(const neo_frozen *table) {
    return neo_tensor_2d((void *)(uintptr_t)table->scale, NEO_F32, table->rows, 2);
}

static neo_tensor neo__hot_rows(const neo__hot *hot) {
    return neo_tensor_1d(hot->rows, NEO_I64, hot->count);
}
static neo_status neo__hot_check(const neo_model *model, int kind, int32_t t) {
    const neo__hot *hot = neo__hot_of(model, kind, t);
    for (int64_t i = 0; i < hot->count; i++)
        NEO__CHECK(hot->rows[i] >= (i ? hot->rows[i - 1] + 1 : 0) &&
                       hot->rows[i] < model->tables[t].rows,
                   NEO_ERR_FORMAT, "neo_model_load: %s.%s.rows: place %" PRId64 ": %" PRId64
                   " is not in [0, %" PRId64 "), or they do not rise", model->table_names[t],
                   neo__hot_words[kind], i, hot->rows[i], model->tables[t].rows);
    return NEO_OK;
}
/* The hot rows of table t, or the warm ones, to their places. */
static neo_status neo__hot_return(neo_model *model, int kind, int32_t t) {
    const neo_frozen *table = &model->tables[t];
    const neo__hot *hot = neo__hot_of(model, kind, t);
    if (!hot) return NEO_OK;
    const size_t row = neo_frozen_row_bytes(table->bits, table->dim);
    NEO__TRY(neo__hot_check(model, kind, t));
    for (int64_t i = 0; i < hot->count; i++) {
        memcpy((char *)(uintptr_t)table->codes + (size_t)hot->rows[i] * row,
               (const char *)hot->table.codes + (size_t)i * row, row);
        if (table->scale)
            memcpy((float *)(uintptr_t)table->scale + 2 * hot->rows[i], hot->table.scale + 2 * i,
                   2 * sizeof(float));
    }
    neo__model_drop(model, hot->table.codes);
    neo__model_drop(model, hot->table.scale);
    return NEO_OK;
}

/* ---- from a checkpoint ---- */
static neo_status neo__table_add(neo_state *state, const char *of, const char *part,
                                 const neo_frozen *table) {
    char name[1280];
    snprintf(name, sizeof name, part[0] ? "%.155s%s.weight" : "%s%s.weight", of, part);
    NEO__TRY(neo_state_add(state, NEO_STATE_WEIGHT, name, neo__frozen_codes(table)));
    snprintf(name, sizeof name, part[0] ? "%.155s%s.scale" : "%s%s.scale", of, part);
    if (!table->scale) return NEO_OK;
    return neo_state_add(state, NEO_STATE_WEIGHT, name, neo__frozen_scale(table));
}
/* "bags.C1.hot.rows", "warm.C1.warm.rows": warm rows were tables of another neo_shard. */
static neo_status neo__hot_add(const neo_model *model, neo_state *state, int kind, int32_t t) {
    const neo__hot *hot = neo__hot_of(model, kind, t);
    char of[1024], name[1280];
    if (!hot) return NEO_OK;
    snprintf(of, sizeof of, "%.*s%.*s.%s", kind ? 4 : 0, neo__hot_words[kind], kind ? 151 : 155,
             model->table_names[t] + (kind ? 4 : 0), neo__hot_words[kind]);
    snprintf(name, sizeof name, "%s.rows", of);
    NEO__TRY(neo__table_add(state, of, "", &hot->table));
    return neo_state_add(state, NEO_STATE_WEIGHT, name, neo__hot_rows(hot));
}
static neo_status neo__model_add(neo_model *model, neo_state *state) {
    char name[1280];
    neo_status status = NEO_OK;
    if (model->json.schema) status = neo_state_add_schema(state, model->json.schema);
    for (int i = 0; status == NEO_OK && i < model->dense_weights; i++)
        status = neo_state_add(state, NEO_STATE_WEIGHT, model->dense[i].name, model->dense[i].t);
    for (int32_t t = 0; status == NEO_OK && t < model->feature_count; t++) {
        const neo_frozen *table = &model->tables[t];
        const int whole = !neo__hot_of(model, 0, t) && !neo__hot_of(model, 1, t);
        status = neo__table_add(state, model->table_names[t], whole ? "" : ".cold", table);
        for (int c = 0; status == NEO_OK && c < NEO__HOT_KINDS; c++)
            status = neo__hot_add(model, state, c, t);
        for (int used = 0; status == NEO_OK && model->lines && used < 2; used++) {
            const neo__lines *lines = &model->lines[t];
            snprintf(name, sizeof name, "%s.%s", model->table_names[t], used ? "used" : "keys");
            status = neo_state_add(
                state, NEO_STATE_WEIGHT, name,
                neo_tensor_1d(used ? lines->use : lines->key, NEO_I64, table->rows));
        }
    }
    if (status == NEO_OK && model->lines)
        status = neo_state_add(state, NEO_STATE_WEIGHT, "bags.key_step",
                               neo_tensor_1d(&model->key_step, NEO_I64, 1));
    return status;
}
/* Rows of table t as f32, `count` from `first` on. */
static void neo__frozen_floats(const neo_ctx *ctx, const neo_frozen *table, int64_t first,
                               int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t ends[2] = {0, 1}, id = first + i;
        neo__frozen_look(ctx, table, ends, 1, &id, NULL, to + i * table->dim, table->dim);
    }
}
/* Table t with rows of other bits; those as trained are given back. */
static neo_status neo__model_narrow(neo_model *model, int32_t t, neo_row_bits bits) {
    enum { PIECE = 64 };
    const neo_frozen from = model->tables[t];
    const int32_t buckets = from.row_buckets;
    neo_frozen *to = &model->tables[t];
    float *rows = (float *)neo_alloc(model->ctx, (size_t)(PIECE * from.dim) * sizeof(float));
    neo_status status = rows ? NEO_OK : neo_fail(NEO_ERR_MEMORY, "neo_model_load: no memory");
    to->codes = NULL, to->scale = NULL;
    if (status == NEO_OK) status = neo__model_table(model, to, bits);
    to->row_buckets = bits >= NEO_ROWS_I4 ? 1 : buckets;
    const size_t row = neo_frozen_row_bytes(bits, to->dim);
    for (int64_t r = 0; status == NEO_OK && r < from.rows; r += PIECE) {
        const int64_t n = NEO__MIN((int64_t)PIECE, from.rows - r);
        neo__frozen_floats(model->ctx, &from, r, n, rows);
        status = neo_frozen_encode(bits, n, from.dim, rows,
                                   (char *)(uintptr_t)to->codes + (size_t)r * row,
                                   to->scale ? (float *)(uintptr_t)to->scale + 2 * r : NULL);
    }
    neo_free(model->ctx, rows, (size_t)(PIECE * from.dim) * sizeof(float));
    neo__model_drop(model, from.codes);
    neo__model_drop(model, from.scale);
    return status;
}
static neo_status neo__model_read(neo_model *model, const neo_model_desc *desc,
                                  neo_load_desc *load) {
    const int gpt = neo__is_gpt(&model->json);
    const neo_row_bits trained = gpt ? NEO_ROWS_F32 : neo__row_bits_of(model->json.rows_dtype);
    neo_state *state = NULL;
    NEO__CHECK(trained, NEO_ERR_UNSUPPORTED, "%s: model.json: rows_dtype \"%.60s\" is not f32, "
               "f16, bf16, i8, i4 or i2", desc->dir, model->json.rows_dtype);
    for (int32_t t = 0; t < model->feature_count; t++) {
        NEO__TRY(neo__model_table(model, &model->tables[t], trained));
        if (trained >= NEO_ROWS_I4) model->tables[t].row_buckets = 1;
        if (model->lines) NEO__TRY(neo__model_hold_lines(model, t));
        for (int c = 0; c < NEO__HOT_KINDS; c++) {
            neo__hot *hot = neo__hot_of(model, c, t);
            if (!hot) continue;
            NEO__TRY(neo__model_table(model, &hot->table, trained));
            NEO__TRY(neo__model_hold(model, (size_t)hot->count * sizeof(int64_t), &hot->rows));
        }
    }
    NEO__TRY(neo_state_create(model->ctx, &state));
    neo_status status = neo__model_add(model, state);
    if (status == NEO_OK) status = neo_load(model->ctx, load, state, NULL);
    neo_state_destroy(state);
    for (int32_t t = 0; status == NEO_OK && model->lines && t < model->feature_count; t++)
        neo__lines_fresh(&model->lines[t]);
    for (int32_t t = 0; status == NEO_OK && t < NEO__HOT_KINDS * model->feature_count; t++)
        status = neo__hot_return(model, t / model->feature_count, t % model->feature_count);
    for (int32_t t = 0; status == NEO_OK && desc->rows && t < model->feature_count; t++)
        if (desc->rows != trained) status = neo__model_narrow(model, t, desc->rows);
    return status;
}
/* Dictionaries say how many rows tables have. */
static neo_status neo__model_words(neo_model *model, neo_load_desc *load) {
    neo_state *state = NULL;
    if (!model->json.schema || neo_schema_is_fitted(model->json.schema)) return NEO_OK;
    NEO__TRY(neo_state_create(model->ctx, &state));
    neo_status status = neo_state_add_schema(state, model->json.schema);
    load->schema_only = 1;
    if (status == NEO_OK) status = neo_load(model->ctx, load, state, NULL);
    load->schema_only = 0;
    neo_state_destroy(state);
    return status;
}
static neo_status neo__model_hot(neo_model *model, int kind, neo__json *json) {
    const int32_t features = model->feature_count;
    int64_t *counts;
    NEO__TRY(NEO__ARENA(&model->arena, counts, features + 1));
    if (!model->hot)
        NEO__TRY(NEO__ARENA(&model->arena, model->hot, NEO__HOT_KINDS * features + 1));
    NEO__TRY(neo__json_counts(json, features, counts));
    for (int32_t t = 0; t < features; t++) model->hot[kind * features + t].count = counts[t];
    return NEO_OK;
}
/* Which tower each feature is in becomes where its pooled rows go. */
static neo_status neo__model_towers(neo_model *model, neo__json *json) {
    neo__model_json *spec = &model->json;
    const int32_t features = model->feature_count;
    int64_t *tower, at = 0;
    NEO__TRY(NEO__ARENA(&model->arena, tower, features + 1));
    NEO__TRY(NEO__ARENA(&model->arena, spec->place, features + 1));
    NEO__TRY(NEO__ARENA(&model->arena, spec->tower_end, NEO__MODEL_TOWERS));
    NEO__TRY(neo__json_counts(json, features, tower));
    for (int k = 0; at < features; k++) {
        const int64_t first = at;
        for (int32_t t = 0; k < NEO__MODEL_TOWERS && t < features; t++)
            if (tower[t] == k) spec->place[t] = at++;
        NEO__CHECK(at > first, NEO_ERR_FORMAT, "%s: towers: %d has no feature, or is too many",
                   json->file, k);
        spec->tower_end[spec->tower_count++] = at;
    }
    return NEO_OK;
}
/* The description in `text`, of which a copy is kept as it is. */
static neo_status neo__model_describe(neo_model *model, const char *file, const char *text,
                                      size_t bytes) {
    char *parsed = neo__arena_text(&model->arena, text, bytes);
    model->text = neo__arena_text(&model->arena, text, bytes);
    NEO__CHECK(parsed && model->text, NEO_ERR_MEMORY, "neo_model_load: no memory");
    NEO__TRY(neo__model_json_read(model->ctx, file, parsed, bytes, &model->json));
    if (!model->json.schema) return NEO_OK;
    model->dense_count = neo_schema_dense_count(model->json.schema);
    model->feature_count = neo_schema_feature_count(model->json.schema);
    neo__json json = {parsed, bytes, model->json.towers_at, file, 0, 0};
    if (json.at) NEO__TRY(neo__model_towers(model, &json));
    for (int c = 0; c < NEO__HOT_KINDS; c++) {
        json.at = model->json.hot_at[c];
        if (json.at) NEO__TRY(neo__model_hot(model, c, &json));
    }
    model->json.schema->header = 0; /* lines come with all columns in order */
    return NEO_OK;
}
static neo_status neo__model_from_dir(neo_model *model, const neo_model_desc *desc) {
    char dir[NEO__PATH_BYTES], path[NEO__PATH_BYTES], *text = NULL;
    neo__ckpt_search search;
    neo__path_kind kind;
    int64_t bytes = 0;
    NEO__ZERO(neo_load_desc, load);
    NEO__TRY(neo__ckpt_find(desc->dir, desc->step, &search));
    model->step = search.found;
    NEO__TRY(neo__ckpt_path(dir, desc->dir, search.found, search.suffix));
    NEO__TRY(neo__path_join(path, dir, NEO__CKPT_MODEL));
    NEO__TRY(neo__path_look(path, &kind));
    NEO__CHECK(kind != NEO__PATH_NONE, NEO_ERR_NOT_FOUND,
               "%s: is not there: the program that saved this checkpoint does not describe its "
               "model (neo_save_desc.model), or is an older one", path);
    NEO__TRY(neo__file_load(&model->arena, path, NEO__MODEL_JSON_BYTES, &text, &bytes));
    NEO__CHECK(text, NEO_ERR_FORMAT, "%s: no description of a model", path);
    NEO__TRY(neo__model_describe(model, path, text, (size_t)bytes));
    load.dir = desc->dir;
    load.step = search.found;
    load.weights_only = 1;
    NEO__TRY(neo__model_words(model, &load));
    NEO__TRY(neo__model_lists(model));
    return neo__model_read(model, desc, &load);
}

/* ---- from a file ---- */
static neo_status neo__model_map(neo_model *model, const neo_safetensors *file) {
    model->map_bytes = (size_t)(file->data_offset + file->data_bytes);
#if defined(_WIN32)
    char *data = NULL;
    NEO__TRY(neo__model_hold(model, model->map_bytes, &data));
    NEO__TRY(neo__file_read_at(&file->file, 0, data, model->map_bytes));
    model->map = data;
#else
    void *map = mmap(NULL, model->map_bytes, PROT_READ, MAP_SHARED, file->file.fd, 0);
    if (map == MAP_FAILED) return neo__file_fail(file->path, "map");
    (void)posix_madvise(map, model->map_bytes, POSIX_MADV_RANDOM); /* no pages around a row's */
    model->map = map;
#endif
    return NEO_OK;
}
static neo_status neo__model_take(neo_model *model, const neo_safetensors *file, const char *name,
                                  const char *suffix, neo_tensor want, const void *pointer) {
    char whole[1280], a[96], b[96];
    neo_tensor info;
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    const int index = neo_safetensors_find(file, whole);
    NEO__CHECK(index >= 0, NEO_ERR_MISMATCH, "%s: has no tensor %s", file->path, whole);
    NEO__TRY(neo_safetensors_info(file, index, &info));
    NEO__CHECK(info.dtype == want.dtype && neo__shapes_equal(&info, &want), NEO_ERR_MISMATCH,
               "%s: tensor %s is %s %s, expected %s %s", file->path, whole,
               neo_dtype_name(info.dtype), neo__shape_text(&info, a), neo_dtype_name(want.dtype),
               neo__shape_text(&want, b));
    const char *at = (const char *)model->map + file->data_offset + file->tensors[index].begin;
    NEO__CHECK((uintptr_t)at % neo_dtype_size(want.dtype) == 0, NEO_ERR_MISMATCH,
               "%s: tensor %s is not aligned", file->path, whole);
    memcpy((void *)(uintptr_t)pointer, &at, sizeof at);
    return NEO_OK;
}
/* The lines of table t in the file. All sets of a small table, and some all over a large one, are
   looked at: each key is found in its line, and an empty line has no tag. */
static neo_status neo__model_take_lines(neo_model *model, const neo_safetensors *file, int32_t t) {
    enum { SETS = 256 };
    neo__lines *lines = neo__model_lines(model, t);
    const char *name = model->table_names[t];
    const int64_t rows = model->tables[t].rows, sets = NEO__MIN(lines->sets, (int64_t)SETS);
    const neo_tensor words = neo_tensor_1d(NULL, NEO_I64, rows);
    NEO__TRY(neo__model_take(model, file, name, ".keys", words, &lines->key));
    NEO__TRY(neo__model_take(model, file, name, ".used", words, &lines->use));
    NEO__TRY(neo__model_take(model, file, name, ".tags", neo_tensor_1d(NULL, NEO_U8, rows),
                             &lines->tag));
    neo__lines ageless = *lines;
    ageless.evict = NEO_EVICT_LRU;
    for (int64_t i = 0; i < sets * NEO__LINE_WAYS; i++) {
        const int64_t set = lines->sets / sets * (i / NEO__LINE_WAYS);
        const int64_t at = set * NEO__LINE_WAYS + i % NEO__LINE_WAYS;
        const uint64_t key = lines->key[at];
        NEO__CHECK(lines->use[at] ? neo__lines_find(&ageless, key, neo__mix64(key), 0) == at
                                  : !lines->tag[at],
                   NEO_ERR_CORRUPT, "%s: %s.keys: line %" PRId64 ": its key does not belong there",
                   file->path, name, at);
    }
    return NEO_OK;
}
static neo_status neo__model_take_all(neo_model *model, neo_safetensors *file) {
    const char *layout = neo_safetensors_metadata(file, "key_layout");
    const char *rows = neo_safetensors_metadata(file, "rows");
    int bits = 0;
    while (rows && bits <= NEO_ROWS_I2 && strcmp(rows, neo__row_kinds[bits].name)) bits++;
    NEO__CHECK(rows && bits >= NEO_ROWS_F32 && bits <= NEO_ROWS_I2, NEO_ERR_UNSUPPORTED,
               "%s: rows \"%.60s\" are not known here", file->path, rows ? rows : "");
    NEO__CHECK(!model->lines || (layout && strcmp(layout, NEO__KEY_LAYOUT) == 0),
               NEO_ERR_UNSUPPORTED, "%s: key_layout \"%.60s\" is not known here", file->path,
               layout ? layout : "");
    NEO__TRY(neo__model_map(model, file));
    if (model->lines) {
        const int64_t *step = NULL;
        NEO__TRY(neo__model_take(model, file, "bags.", "key_step", neo_tensor_1d(NULL, NEO_I64, 1),
                                 &step));
        model->key_step = *step;
    }
    for (int i = 0; i < model->dense_weights; i++) {
        const int index = neo_safetensors_find(file, model->dense[i].name);
        NEO__CHECK(index >= 0, NEO_ERR_MISMATCH, "%s: has no tensor %s", file->path,
                   model->dense[i].name);
        NEO__TRY(neo_safetensors_read(file, index, model->dense[i].t));
    }
    for (int32_t t = 0; t < model->feature_count; t++) {
        neo_frozen *table = &model->tables[t];
        table->bits = (neo_row_bits)bits;
        if (bits >= NEO_ROWS_I4) table->row_buckets = 1;
        NEO__TRY(neo__model_take(model, file, model->table_names[t], ".weight",
                                 neo__frozen_codes(table), &table->codes));
        if (bits >= NEO_ROWS_I8)
            NEO__TRY(neo__model_take(model, file, model->table_names[t], ".scale",
                                     neo__frozen_scale(table), &table->scale));
        if (model->lines) NEO__TRY(neo__model_take_lines(model, file, t));
        for (int c = 0; c < NEO__HOT_KINDS; c++) {
            neo__hot *hot = neo__hot_of(model, c, t);
            if (!hot) continue;
            NEO__TRY(neo__model_take(model, file, model->table_names[t],
                                     c ? ".warm.rows" : ".hot.rows", neo__hot_rows(hot),
                                     &hot->rows));
            NEO__TRY(neo__hot_check(model, c, t));
        }
    }
    return NEO_OK;
}
static neo_status neo__model_file_words(neo_model *model, neo_safetensors *file) {
    neo_schema *schema = model->json.schema;
    neo_tensor words;
    void *built = NULL, *data = NULL;
    if (!schema || neo_schema_is_fitted(schema)) return NEO_OK;
    const int index = neo_safetensors_find(file, NEO__SCHEMA_NAME);
    NEO__CHECK(index >= 0, NEO_ERR_MISMATCH, "%s: has no tensor %s", file->path, NEO__SCHEMA_NAME);
    NEO__TRY(neo_safetensors_info(file, index, &words));
    NEO__TRY(neo__arena_take(&model->arena, &data, (size_t)words.shape[0]));
    words.data = data;
    NEO__TRY(neo_safetensors_read(file, index, words));
    NEO__TRY(neo__schema_load(schema, data, (size_t)words.shape[0], &built));
    neo__schema_install(schema, built, 1);
    return NEO_OK;
}
static neo_status neo__model_from_file(neo_model *model, const neo_model_desc *desc) {
    neo_safetensors *file = NULL;
    NEO__TRY(neo_safetensors_open(model->ctx, desc->path, &file));
    const char *text = neo_safetensors_metadata(file, NEO__CKPT_MODEL);
    const char *step = neo_safetensors_metadata(file, "step");
    neo_status status = text ? neo__model_describe(model, desc->path, text, strlen(text))
                             : neo_fail(NEO_ERR_NOT_FOUND, "%s: not of neo_model_write: no %s",
                                        desc->path, NEO__CKPT_MODEL);
    for (; step && *step >= '0' && *step <= '9' && model->step < NEO__CKPT_MAX_STEP; step++)
        model->step = model->step * 10 + (*step - '0');
    if (status == NEO_OK) status = neo__model_file_words(model, file);
    if (status == NEO_OK) status = neo__model_lists(model);
    if (status == NEO_OK) status = neo__model_take_all(model, file);
    neo_safetensors_close(file);
    return status;
}

/* Whether products have a copy of this weight. */
static int neo__model_multiplies(const neo__model_json *spec, const neo__weight *weight) {
    const size_t bytes_of_name = strlen(spec->kind->bottom);
    if (weight->t.ndim != 2) return 0;
    if (neo__is_gpt(spec)) return strcmp(weight->name, "wpe.weight") != 0;
    return strncmp(weight->name, "top.", 4) == 0 ||
           (strncmp(weight->name, spec->kind->bottom, bytes_of_name) == 0 &&
            weight->name[bytes_of_name] == '.');
}
/* Floats of a weight [n][k] and its bias as neo__gemm_call.panels, which may skip what the other
   operand has 0 of: weights are finite, no bias is -0. 0: such a product has none. */
static int64_t neo__model_panel_floats(const neo_ctx *ctx, const neo__weight *weight) {
    const float *w = (const float *)weight[0].t.data, *b = (const float *)weight[1].t.data;
    const int64_t lanes = ctx->gemm->lanes, n = weight->t.shape[0], k = weight->t.shape[1];
    float wrong = 0.0f;
    if (n < lanes || n <= NEO__GEMM_SWAP_COLS || k >= NEO__LISTED_PLACES) return 0;
    for (int64_t i = 0; i < n * k; i++) wrong += w[i] * 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (neo__bits_f32(b[i]) == 0x80000000u) return 0;
    return wrong != 0.0f ? 0 : (n + 4 * lanes - 1) / (4 * lanes) * 4 * lanes * (k + 1);
}
static neo_status neo__model_panels(neo_ctx *ctx, const neo__weight *weight, int64_t floats) {
    const int64_t out = weight->t.shape[0], in = weight->t.shape[1];
    const int64_t width = 2 * ctx->gemm->lanes;
    float *panel = (float *)weight->turned;
    memset(panel, 0, (size_t)floats * sizeof *panel);
    for (int64_t p = 0; p < out; p += width, panel += (in + 1) * width) {
        const int64_t cols = NEO__MIN(width, out - p);
        const neo_tensor to = neo_tensor_2d(panel, NEO_F32, in, width);
        NEO__TRY(neo_tensor_copy(
            ctx, neo_tensor_transpose(neo_tensor_slice(weight->t, 0, p, cols), 0, 1),
            neo_tensor_slice(to, 1, 0, cols)));
        memcpy(panel + in * width, (float *)weight[1].t.data + p, (size_t)cols * sizeof *panel);
    }
    return NEO_OK;
}
/* Copies of weights that products need not pack: of one sample packing is most of it. Those of a
   gpt in bf16 need not be converted. */
static neo_status neo__model_turn(neo_model *model) {
    const neo__model_json *spec = &model->json;
    const neo_dtype dtype = neo__net_dtype(spec);
    char *at = NULL;
    size_t bytes = 0;
    if (neo__is_gpt(spec) && strcmp(spec->weights_dtype, "bf16") == 0)
        for (int i = 0; i < model->dense_weights; i++)
            NEO__TRY(neo_round(model->ctx, NEO_BF16, model->dense[i].t, model->dense[i].t));
    if (dtype != NEO_F32 && !neo__is_gpt(spec)) return NEO_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < model->dense_weights; i++) {
            neo__weight *weight = &model->dense[i];
            const neo_tensor t = weight->t;
            if (!neo__model_multiplies(spec, weight)) continue;
            const int64_t count = neo__is_gpt(spec) ? neo_tensor_count(t)
                                                    : neo__model_panel_floats(model->ctx, weight);
            if (!count) continue;
            if (pass) weight->turned = at + bytes;
            if (pass && !neo__is_gpt(spec))
                NEO__TRY(neo__model_panels(model->ctx, weight, count));
            else if (pass && dtype == NEO_F32)
                NEO__TRY(neo_tensor_copy(
                    model->ctx, neo_tensor_transpose(t, 0, 1),
                    neo_tensor_2d(weight->turned, NEO_F32, t.shape[1], t.shape[0])));
            else if (pass)
                NEO__TRY(neo_tensor_convert(
                    model->ctx, t, neo_tensor_2d(weight->turned, dtype, t.shape[0], t.shape[1]),
                    NULL));
            bytes += ((size_t)count * neo_dtype_size(dtype) + 63) & ~(size_t)63;
        }
        if (!pass && bytes) NEO__TRY(neo__model_hold(model, bytes, &at));
        bytes = 0;
    }
    return NEO_OK;
}
NEO_API neo_status neo_model_load(const neo_model_desc *desc, neo_model **out) {
    NEO__CHECK(desc && out, NEO_ERR_ARG, "neo_model_load: an argument is NULL");
    *out = NULL;
    NEO__CHECK(!desc->dir != !desc->path, NEO_ERR_ARG,
               "neo_model_load: give either dir or path");
    NEO__CHECK(desc->rows >= NEO_ROWS_TRAINED && desc->rows <= NEO_ROWS_I2 &&
                   (desc->dir || !desc->rows) && !desc->ctx.device,
               NEO_ERR_ARG, "neo_model_load: desc.rows is out of range or not for a file, or there "
               "is a device");
    neo_ctx *ctx = NULL;
    NEO__TRY(neo_ctx_create(&desc->ctx, &ctx));
    neo_model *model = (neo_model *)neo__alloc_zero(ctx, sizeof *model);
    if (!model) {
        neo_ctx_destroy(ctx);
        return neo_fail(NEO_ERR_MEMORY, "neo_model_load: no memory");
    }
    model->ctx = model->arena.ctx = ctx;
    model->arena.function = "neo_model_load";
    model->ctx_desc = desc->ctx;
    memset(&model->ctx_desc.executor, 0, sizeof model->ctx_desc.executor);
    neo_status status = desc->dir ? neo__model_from_dir(model, desc)
                                  : neo__model_from_file(model, desc);
    if (status == NEO_OK) status = neo__model_turn(model);
    if (status == NEO_OK) {
        *out = model;
        return NEO_OK;
    }
    neo__kept_error error = neo__error_keep(status);
    neo_model_free(model);
    return neo__error_restore(&error);
}
NEO_API neo_model_info neo_model_get_info(const neo_model *model) {
    NEO__ZERO(neo_model_info, info);
    info.kind = model->json.name;
    info.step = model->step;
    info.dense_count = model->dense_count;
    info.feature_count = model->feature_count;
    info.column_count = model->column_count;
    info.outputs = neo__net_outputs(&model->json);
    info.weighted = model->json.schema && neo_schema_is_weighted(model->json.schema);
    info.context = NEO__MAX(model->json.context, (int64_t)0);
    for (int i = 0; i < model->dense_weights; i++)
        info.weight_bytes += (int64_t)neo_tensor_bytes(model->dense[i].t);
    for (int32_t t = 0; t < model->feature_count; t++) {
        const neo_frozen *table = &model->tables[t];
        const size_t row = neo_frozen_row_bytes(table->bits, table->dim) + (table->scale ? 8 : 0);
        info.weight_bytes += (int64_t)row * table->rows;
    }
    return info;
}
NEO_API const char *neo_model_column(const neo_model *model, int32_t index) {
    return index >= 0 && index < model->column_count ? model->columns[index] : NULL;
}
NEO_API neo_feature neo_model_feature(const neo_model *model, int32_t feature) {
    NEO__ZERO(neo_feature, none);
    return model->json.schema ? neo_schema_feature(model->json.schema, feature) : none;
}
NEO_API const neo_frozen *neo_model_table(const neo_model *model, int32_t feature) {
    return feature >= 0 && feature < model->feature_count ? &model->tables[feature] : NULL;
}
NEO_API int neo_model_byte(const neo_model *model, int64_t token) {
    const int there = model->json.has_bytes && token >= 0 && token < model->json.vocabulary;
    return there ? model->json.byte[token] : -1;
}
NEO_API int64_t neo_model_token(const neo_model *model, int byte) {
    return byte >= 0 && byte < 256 ? model->json.token[byte] : -1;
}

#if !defined(NEO_INFERENCE)
/* The tensors of a file, with a name each; there is room. */
typedef struct neo__model_list {
    neo__arena arena;
    const char **names;
    neo_tensor *tensors;
    int count;
} neo__model_list;
static void neo__model_list_add(neo__model_list *list, const char *name, neo_tensor tensor) {
    list->names[list->count] = name;
    list->tensors[list->count++] = tensor;
}
static neo_status neo__model_list_part(neo__model_list *list, const char *of, const char *part,
                                       neo_tensor tensor) {
    const size_t bytes = strlen(of) + strlen(part) + 1;
    char *name;
    NEO__TRY(NEO__ARENA(&list->arena, name, bytes));
    snprintf(name, bytes, "%s%s", of, part);
    neo__model_list_add(list, name, tensor);
    return NEO_OK;
}
static neo_status neo__model_list_all(const neo_model *model, neo__model_list *list) {
    const neo_schema *schema = model->json.schema;
    const size_t words = schema && schema->dict_count ? neo__schema_save_size(schema) : 0;
    char *data;
    for (int i = 0; i < model->dense_weights; i++)
        neo__model_list_add(list, model->dense[i].name, model->dense[i].t);
    for (int32_t t = 0; t < model->feature_count; t++) {
        const neo_frozen *table = &model->tables[t];
        const char *name = model->table_names[t];
        NEO__TRY(neo__model_list_part(list, name, ".weight", neo__frozen_codes(table)));
        if (table->scale)
            NEO__TRY(neo__model_list_part(list, name, ".scale", neo__frozen_scale(table)));
        if (model->lines) {
            const neo__lines *lines = &model->lines[t];
            const neo_tensor keys = neo_tensor_1d(lines->key, NEO_I64, table->rows);
            const neo_tensor used = neo_tensor_1d(lines->use, NEO_I64, table->rows);
            const neo_tensor tags = neo_tensor_1d(lines->tag, NEO_U8, table->rows);
            NEO__TRY(neo__model_list_part(list, name, ".keys", keys));
            NEO__TRY(neo__model_list_part(list, name, ".used", used));
            NEO__TRY(neo__model_list_part(list, name, ".tags", tags));
        }
        for (int c = 0; c < NEO__HOT_KINDS; c++)
            if (neo__hot_of(model, c, t))
                NEO__TRY(neo__model_list_part(list, name, c ? ".warm.rows" : ".hot.rows",
                                              neo__hot_rows(neo__hot_of(model, c, t))));
    }
    if (model->lines)
        neo__model_list_add(list, "bags.key_step",
                            neo_tensor_1d((void *)(uintptr_t)&model->key_step, NEO_I64, 1));
    if (words) {
        NEO__TRY(NEO__ARENA(&list->arena, data, words));
        NEO__TRY(neo__schema_save(schema, data));
        neo__model_list_add(list, NEO__SCHEMA_NAME, neo_tensor_1d(data, NEO_U8, (int64_t)words));
    }
    return NEO_OK;
}
NEO_API neo_status neo_model_write(const neo_model *model, const char *path) {
    NEO__CHECK(model && path && path[0], NEO_ERR_ARG, "neo_model_write: an argument is NULL");
    NEO__ZERO(neo_ctx_desc, alone);
    neo_ctx *ctx = NULL;
    char step[32];
    alone = model->ctx_desc;
    alone.threads = 1;
    NEO__TRY(neo_ctx_create(&alone, &ctx));
    neo__model_list list = {{ctx, NULL, NULL, 0, "neo_model_write"}, NULL, NULL, 0};
    const int room = model->dense_weights + 5 * model->feature_count + 2;
    const int bits = model->feature_count ? (int)model->tables[0].bits : (int)NEO_ROWS_F32;
    snprintf(step, sizeof step, "%" PRId64, model->step);
    const char *const metadata[] = {NEO__CKPT_MODEL, model->text, "rows", neo__row_kinds[bits].name,
                                    "step", step, "key_layout", NEO__KEY_LAYOUT};
    neo_status status = NEO__ARENA(&list.arena, list.names, room);
    if (status == NEO_OK) status = NEO__ARENA(&list.arena, list.tensors, room);
    if (status == NEO_OK) status = neo__model_list_all(model, &list);
    if (status == NEO_OK)
        status = neo_safetensors_write(ctx, path, list.names, list.tensors, list.count, metadata,
                                       model->lines ? 4 : 3);
    neo__kept_error error = neo__error_keep(status);
    neo__arena_free(&list.arena);
    neo_ctx_destroy(ctx);
    return neo__error_restore(&error);
}
#endif

/* ---------------------------------------------------------------------------
   >>impl-scratch

   Samples are kept one behind the other: dense numbers, and of each (sample, feature) the end of
   its ids. A prediction turns them around, feature by feature; of a single sample both orders are
   one. Text goes through the parser of its format, one line at a time; JSON becomes the fields of a
   line by their names.
   ------------------------------------------------------------------------ */
struct neo_scratch {
    const neo_model *model;
    neo_ctx *ctx;
    neo_schema *schema; /* the model's, which is only read */
    neo__net net;
    neo_scratch_desc desc;
    int64_t count;
    char *memory; /* of all that follows */
    size_t memory_bytes;
    float *dense;    /* [max_batch][dense_count, at least 1] */
    int64_t *ends;   /* [max_batch features + 1] of ids: of sample b, feature t at b features + t */
    int64_t *ids;    /* [max_ids] */
    float *weights;  /* [max_ids] of them, if the model has any */
    int64_t *turned_ends, *turned_ids; /* feature by feature */
    float *turned_weights;
    float *x, *e, *z, *crossed, *wide, *logit, *towered;
    int64_t *key_rows;    /* [max_ids] where ids are keys: their rows, -1: none; where rows are
                             hot: the other ids of a bag, then the hot ones, the warm ones */
    float *hot_weights;   /* [max_ids] of those */
    float *key_sums;      /* [threads][1 + NEO__PART_DEPTH][columns of a table]: a row, sums */
    float *of_task, *one; /* of linear models of several labels: e and y of one */
    neo__block block; /* of one line */
    char *joined;     /* [NEO__LINE_BYTES + 1]: the words of a list */
};

/* Cuts the memory; what the model has not is left out. */
static void neo__scratch_layout(neo_scratch *scratch, neo__carve *carve) {
    const neo__model_json *d = &scratch->model->json;
    const neo_schema *schema = scratch->schema;
    const int64_t n = scratch->desc.max_batch, features = scratch->model->feature_count;
    const int64_t width = neo__net_width(d), pooled = features * neo__net_row(d);
    const int beside = d->kind->meets == NEO__MEETS_BESIDE;
    const int linear = d->kind->meets >= NEO__MEETS_WEIGHTS;
    const int svm = neo__schema_is_svm(schema), weighted = schema->weighted;
    NEO__CARVE(carve, scratch->dense, n * NEO__MAX(scratch->model->dense_count, 1));
    NEO__CARVE(carve, scratch->ends, n * features + 1);
    NEO__CARVE(carve, scratch->ids, scratch->desc.max_ids);
    NEO__CARVE(carve, scratch->turned_ends, n * features + 1);
    NEO__CARVE(carve, scratch->turned_ids, scratch->desc.max_ids);
    if (weighted) NEO__CARVE(carve, scratch->weights, scratch->desc.max_ids);
    if (weighted) NEO__CARVE(carve, scratch->turned_weights, scratch->desc.max_ids);
    if (scratch->model->hot) NEO__CARVE(carve, scratch->hot_weights, scratch->desc.max_ids);
    if (scratch->model->lines || scratch->model->hot) {
        NEO__CARVE(carve, scratch->key_rows, scratch->desc.max_ids);
        NEO__CARVE(carve, scratch->key_sums,
                   scratch->desc.threads * (1 + NEO__PART_DEPTH) * neo__net_row(d));
    }
    if (d->kind->top) NEO__CARVE(carve, scratch->z, n * width);
    if (beside) NEO__CARVE(carve, scratch->crossed, n * width);
    if (!beside) NEO__CARVE(carve, scratch->x, n * (linear ? neo__net_outputs(d) : d->dim));
    if (!beside || d->tower_count) NEO__CARVE(carve, scratch->e, n * pooled);
    if (!beside && d->tower_count) NEO__CARVE(carve, scratch->towered, n * d->tower_count * d->dim);
    if (linear) NEO__CARVE(carve, scratch->wide, n * neo__net_outputs(d));
    if (linear && neo__net_outputs(d) > 1) {
        NEO__CARVE(carve, scratch->of_task, n * pooled / neo__net_outputs(d));
        NEO__CARVE(carve, scratch->one, n);
    }
    NEO__CARVE(carve, scratch->logit, n * neo__net_outputs(&scratch->model->json));
    /* a parser's buffers, of one line */
    scratch->block.capacity = 1;
    scratch->block.id_capacity = !schema->multi ? 0 : features + NEO__CHUNK_BYTES;
    NEO__CARVE(carve, scratch->block.raw, NEO__LINE_BYTES + 1 + NEO__BLOCK_PAD);
    NEO__CARVE(carve, scratch->joined, NEO__LINE_BYTES + 1);
    NEO__CARVE(carve, scratch->block.records, schema->record_bytes);
    NEO__CARVE(carve, scratch->block.ids, scratch->block.id_capacity);
    if (weighted) NEO__CARVE(carve, scratch->block.weights, scratch->block.id_capacity);
    NEO__CARVE(carve, scratch->block.fields,
               NEO__MAX(schema->column_count, scratch->model->column_count));
    if (svm) NEO__CARVE(carve, scratch->block.pairs, NEO__SVM_PAIRS);
}
static neo_status neo__scratch_memory(neo_scratch *scratch) {
    neo__carve carve = {NULL, 0};
    neo__scratch_layout(scratch, &carve);
    scratch->memory_bytes = carve.at;
    scratch->memory =
        (char *)neo__alloc_for(scratch->ctx, scratch->memory_bytes, "neo_scratch_create");
    if (!scratch->memory) return NEO_ERR_MEMORY;
    carve.block = scratch->memory;
    carve.at = 0;
    neo__scratch_layout(scratch, &carve);
    scratch->ends[0] = scratch->turned_ends[0] = 0;
    return NEO_OK;
}
NEO_API void neo_scratch_destroy(neo_scratch *scratch) {
    if (!scratch) return;
    neo_ctx *ctx = scratch->ctx;
    neo__net_destroy(&scratch->net);
    neo_free(ctx, scratch->memory, scratch->memory_bytes);
    neo_free(ctx, scratch, sizeof *scratch);
    neo_ctx_destroy(ctx);
}
static void neo__scratch_turn(neo_scratch *scratch, neo_mlp *mlp) {
    for (int layer = 0; mlp && layer < mlp->layers; layer++)
        for (int i = 0; i < scratch->model->dense_weights; i++)
            if (neo_params_at(scratch->net.params, i) == mlp->weight[layer])
                mlp->panels[layer] = (const float *)scratch->model->dense[i].turned;
}
NEO_API neo_status neo_scratch_create(const neo_model *model, const neo_scratch_desc *desc,
                                      neo_scratch **out) {
    NEO__CHECK(model && out, NEO_ERR_ARG, "neo_scratch_create: an argument is NULL");
    *out = NULL;
    NEO__CHECK(!neo__is_gpt(&model->json), NEO_ERR_UNSUPPORTED,
               "neo_scratch_create: the model is a gpt, which neo_decoder is for");
    NEO__ZERO(neo_scratch_desc, d);
    if (desc) d = *desc;
    if (d.max_batch == 0) d.max_batch = 1;
    if (d.threads == 0) d.threads = 1;
    const int64_t most = INT64_C(1) << 20, least = NEO__LINE_BYTES / 2;
    NEO__CHECK(d.max_batch > 0 && d.max_batch <= most && d.threads > 0 && d.max_ids >= 0 &&
                   d.max_ids <= INT64_C(1) << 40,
               NEO_ERR_ARG, "neo_scratch_create: a number is out of range");
    const int64_t bags = d.max_batch * model->feature_count;
    const neo_schema *schema = model->json.schema;
    const int single = !schema->multi && (schema->format == NEO_FORMAT_CRITEO ||
                                          schema->format == NEO_FORMAT_DELIMITED);
    if (d.max_ids == 0 && !single)
        d.max_ids = NEO__MAX(NEO__MIN(64 * bags, most), NEO__MAX(bags, least));
    if (d.max_ids == 0) d.max_ids = NEO__MAX(bags, 1);
    neo_ctx_desc of_ctx = model->ctx_desc;
    of_ctx.threads = d.threads;
    neo_ctx *ctx = NULL;
    NEO__TRY(neo_ctx_create(&of_ctx, &ctx));
    neo_scratch *scratch = (neo_scratch *)neo__alloc_zero(ctx, sizeof *scratch);
    if (!scratch) {
        neo_ctx_destroy(ctx);
        return neo_fail(NEO_ERR_MEMORY, "neo_scratch_create: no memory");
    }
    scratch->ctx = ctx;
    scratch->model = model;
    scratch->schema = model->json.schema;
    scratch->desc = d;
    neo_status status = neo__scratch_memory(scratch);
    if (status == NEO_OK) status = neo__net_create(ctx, &model->json, d.max_batch, &scratch->net);
    for (int i = 0; status == NEO_OK && i < model->dense_weights; i++)
        status = neo_params_bind(scratch->net.params, i, model->dense[i].t.data, NULL,
                                 "it is frozen");
    if (status == NEO_OK) {
        neo__scratch_turn(scratch, scratch->net.bottom);
        neo__scratch_turn(scratch, scratch->net.top);
        *out = scratch;
        return NEO_OK;
    }
    neo__kept_error error = neo__error_keep(status);
    neo_scratch_destroy(scratch);
    return neo__error_restore(&error);
}
NEO_API void neo_scratch_clear(neo_scratch *scratch) { scratch->count = 0; }
NEO_API int64_t neo_scratch_count(const neo_scratch *scratch) { return scratch->count; }

NEO__HOT_BEGIN
/* ---- samples ---- */

/* Room for one more sample of so many ids. */
static neo_status neo__scratch_room(const neo_scratch *scratch, int64_t ids) {
    const int64_t used = scratch->ends[scratch->count * scratch->model->feature_count];
    NEO__CHECK(scratch->count < scratch->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_scratch_add: max_batch is %" PRId64, scratch->desc.max_batch);
    NEO__CHECK(ids <= scratch->desc.max_ids - used, NEO_ERR_CAPACITY,
               "neo_scratch_add: max_ids is %" PRId64 ", this batch has %" PRId64,
               scratch->desc.max_ids, used + ids);
    return NEO_OK;
}
/* The sample of a parsed record. */
static neo_status neo__scratch_take(neo_scratch *scratch, float *record) {
    const neo_schema *schema = scratch->schema;
    const int32_t features = scratch->model->feature_count, dense = scratch->model->dense_count;
    const int64_t *from = neo__record_ids(schema, record);
    int64_t *end = scratch->ends + scratch->count * features, at = *end;
    const int64_t start = schema->multi ? from[0] : 0;
    const int64_t count = !schema->multi ? features : features ? from[features] : 0;
    NEO__TRY(neo__scratch_room(scratch, count));
    scratch->dense[scratch->count * NEO__MAX(dense, 1)] = 1.0f;
    memcpy(scratch->dense + scratch->count * dense, record + 1, (size_t)dense * sizeof(float));
    for (int32_t t = 0; t < features; t++) end[t + 1] = at + (schema->multi ? from[1 + t] : t + 1);
    if (count)
        memcpy(scratch->ids + at, schema->multi ? scratch->block.ids + start : from,
               (size_t)count * sizeof(int64_t));
    if (schema->weighted && count)
        memcpy(scratch->weights + at, scratch->block.weights + start,
               (size_t)count * sizeof(float));
    scratch->count++;
    return NEO_OK;
}
static void neo__scratch_block(neo_scratch *scratch) {
    neo__block *b = &scratch->block;
    b->id_count = 0;
    memset(b->watch, 0, sizeof b->watch);
    b->offset = b->lines = 1; /* not the first line of a file */
    b->issue_count = NEO__BLOCK_ISSUES;
}
static neo_status neo__scratch_issue(const neo__issue *issue) {
    if (issue->column > 0)
        return neo_fail(issue->status, "column %" PRId64 ": %s", issue->column, issue->text);
    return neo_fail(issue->status, "%s", issue->text);
}
/* The line of `bytes` bytes in the block, whose last is \n. */
static neo_status neo__scratch_parse(neo_scratch *scratch, size_t bytes) {
    neo__block *block = &scratch->block;
    neo__parsed line;
    NEO__ZERO(neo__parse_options, options);
    options.unlabeled = 1;
    line.record = (float *)(void *)block->records;
    line.sample = 0;
    line.fit = NEO_OK;
    block->raw_bytes = bytes;
    neo__scratch_block(scratch);
    memset(block->raw + bytes, '\n', NEO__BLOCK_PAD);
    neo__fp_state fp = neo__fp_enter();
    (void)neo__format_of(scratch->schema)
        ->line(scratch->schema, &options, block, block->raw, &line);
    neo__fp_leave(fp);
    if (line.sample == 0) return neo__scratch_issue(&line.issue);
    NEO__CHECK(line.sample > 0, NEO_ERR_FORMAT, "the line holds no sample");
    return neo__scratch_take(scratch, line.record);
}
NEO_API neo_status neo_scratch_add_line(neo_scratch *scratch, const char *line, size_t bytes) {
    NEO__CHECK(scratch && line, NEO_ERR_ARG, "neo_scratch_add_line: an argument is NULL");
    NEO__CHECK(neo__format_of(scratch->schema)->line, NEO_ERR_UNSUPPORTED,
               "neo_scratch_add_line: format %s has no lines",
               neo__format_names[scratch->schema->format]);
    while (bytes > 0 && (line[bytes - 1] == '\n' || line[bytes - 1] == '\r')) bytes--;
    NEO__CHECK(bytes > 0 && bytes <= NEO__LINE_BYTES, NEO_ERR_FORMAT,
               "the line has %zu bytes, not 1 .. %d", bytes, (int)NEO__LINE_BYTES);
    const char *stop = (const char *)memchr(line, '\n', bytes);
    NEO__CHECK(!stop, NEO_ERR_FORMAT, "column %zu: a second line", (size_t)(stop - line) + 1);
    memcpy(scratch->block.raw, line, bytes);
    scratch->block.raw[bytes] = '\n';
    return neo__scratch_parse(scratch, bytes + 1);
}
NEO_API neo_status neo_scratch_add(neo_scratch *scratch, const float *dense, const int64_t *ids,
                                   const int32_t *counts, const float *weights) {
    NEO__CHECK(scratch && (ids || !scratch->model->feature_count), NEO_ERR_ARG,
               "neo_scratch_add: an argument is NULL");
    const int32_t features = scratch->model->feature_count, numbers = scratch->model->dense_count;
    int64_t total = 0;
    for (int32_t t = 0; t < features; t++) {
        const int64_t count = counts ? counts[t] : 1;
        NEO__CHECK(count >= 0, NEO_ERR_ARG, "neo_scratch_add: counts[%d] is below 0", (int)t);
        total += count;
    }
    NEO__TRY(neo__scratch_room(scratch, total));
    int64_t *end = scratch->ends + scratch->count * features, at = *end, k = 0;
    for (int32_t t = 0; t < features; t++) {
        for (int64_t stop = k + (counts ? counts[t] : 1); k < stop; k++) {
            NEO__CHECK(scratch->model->lines ||
                           (uint64_t)ids[k] < (uint64_t)scratch->schema->rows[t], NEO_ERR_RANGE,
                       "neo_scratch_add: %s: id %" PRId64 " is not in [0, %" PRId64 ")",
                       scratch->schema->feature_names[t], ids[k], scratch->schema->rows[t]);
            scratch->ids[at + k] = ids[k];
            if (scratch->weights) scratch->weights[at + k] = weights ? weights[k] : 1.0f;
        }
        end[t + 1] = at + k;
    }
    float *to = scratch->dense + scratch->count++ * NEO__MAX(numbers, 1);
    for (int32_t i = 0; i < NEO__MAX(numbers, 1); i++)
        to[i] = !numbers ? 1.0f : dense ? dense[i] : 0.0f;
    return NEO_OK;
}

/* ---- JSON ---- */

/* The text of a string or number, null as missing; for a list also an array of them, joined. */
static neo_status neo__json_field(neo_scratch *scratch, neo__json *json, const neo__op *list,
                                  size_t *joined, neo__text *out) {
    const int c = neo__json_peek(json);
    char *string = NULL;
    const char *number = NULL;
    size_t bytes = 0;
    int integer = 0, more = 1;
    if (c == '"') {
        NEO__TRY(neo__json_string(json, &string));
        *out = neo__trim(string, string + strlen(string));
        return NEO_OK;
    }
    if (c == 'n') {
        NEO__TRY(neo__json_skip(json));
        *out = neo__text_of("", "");
        return NEO_OK;
    }
    if (c != '[' || !list) {
        NEO__TRY(neo__json_number(json, &number, &bytes, &integer));
        *out = neo__text_of(number, number + bytes);
        return NEO_OK;
    }
    char *begin = scratch->joined + *joined; /* no longer than its JSON, which is a line at most */
    NEO__TRY(neo__json_open(json, '['));
    for (int i = 0;; i++) {
        neo__text word;
        NEO__TRY(neo__json_next(json, ']', i, &more));
        if (!more) break;
        const size_t at = json->at;
        NEO__TRY(neo__json_field(scratch, json, NULL, joined, &word));
        if (memchr(word.p, list->separator, word.bytes))
            return neo__json_fail(json, at, "a word that has the separator of its list");
        if (i) scratch->joined[(*joined)++] = list->separator;
        memcpy(scratch->joined + *joined, word.p, word.bytes);
        *joined += word.bytes;
    }
    *out = neo__text_of(begin, scratch->joined + *joined);
    return NEO_OK;
}
/* The column of a name; -1: none. guess: where it likely is. */
static int32_t neo__model_find(const neo_model *model, const char *name, int32_t guess) {
    for (int32_t i = 0; i < model->column_count; i++) {
        int32_t k = guess + i < model->column_count ? guess + i : guess + i - model->column_count;
        if (model->columns[k] && strcmp(model->columns[k], name) == 0) return k;
    }
    return -1;
}
/* Bytes of a text to show: no more than 100, and whole characters of UTF-8. */
static int neo__shown(const char *text) {
    int n = 0, last = 0;
    for (; text[n] && n <= 100; n++)
        if ((text[n] & 0xC0) != 0x80) last = n;
    return n > 100 ? last : n;
}
static neo_status neo__json_no_column(const neo_model *model, const char *key) {
    char some[160] = "";
    for (int32_t i = 0; i < model->column_count; i++) {
        const char *name = model->columns[i];
        if (!name) continue;
        const int full = strlen(some) + strlen(name) + 8 > sizeof some; /* and the dots after it */
        neo__append(some, sizeof some, "%s%s", some[0] ? ", " : "", full ? "..." : name);
        if (full) break;
    }
    return neo_fail(NEO_ERR_NOT_FOUND, "\"%.*s\" is no column of this model, which has %s",
                    neo__shown(key), key, some);
}
/* The next member of the object: its column, whose field was not there before. -1: the end. */
static neo_status neo__json_column(neo_scratch *scratch, neo__json *json, int index,
                                   int32_t *column) {
    char *key = NULL;
    NEO__TRY(neo__json_member(json, index, &key));
    const int32_t guess = *column + 1 < scratch->model->column_count ? *column + 1 : 0;
    *column = key ? neo__model_find(scratch->model, key, guess) : -1;
    if (!key) return NEO_OK;
    if (*column < 0) return neo__json_no_column(scratch->model, key);
    NEO__CHECK(!scratch->block.fields[*column].p, NEO_ERR_FORMAT, "\"%.*s\" is there twice",
               neo__shown(key), key);
    return NEO_OK;
}
static const neo__op *neo__list_of(const neo_schema *schema, int32_t column) {
    for (int32_t i = 0; i < schema->op_count; i++)
        if (schema->ops[i].column == column && schema->ops[i].kind == NEO__OP_LIST)
            return &schema->ops[i];
    return NULL;
}
static neo_status neo__json_delimited(neo_scratch *scratch, neo__json *json) {
    const neo_schema *schema = scratch->schema;
    neo__text *fields = scratch->block.fields;
    float *record = (float *)(void *)scratch->block.records;
    neo__issue issue;
    size_t joined = 0;
    int32_t column = -1;
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_column(scratch, json, i, &column));
        if (column < 0) break;
        const neo__op *list = schema->multi ? neo__list_of(schema, column) : NULL;
        NEO__TRY(neo__json_field(scratch, json, list, &joined, &fields[column]));
    }
    NEO__TRY(neo__json_end(json));
    for (int32_t c = 0; c < schema->column_count; c++)
        if (!fields[c].p) fields[c] = neo__text_of("", "");
    neo__scratch_block(scratch);
    issue.column = 0;
    neo__fp_state fp = neo__fp_enter();
    /* columns of a message would be places in a line that there is not */
    const char *line = scratch->block.raw;
    const int64_t good = neo__delimited_ops(schema, &scratch->block, &line, 1, 0, record, &issue);
    neo__fp_leave(fp);
    issue.column = 0;
    return good ? neo__scratch_take(scratch, record) : neo__scratch_issue(&issue);
}
/* As a line without its label. */
static neo_status neo__json_criteo(neo_scratch *scratch, neo__json *json) {
    neo__text *fields = scratch->block.fields;
    char *to = scratch->joined;
    size_t joined = 0, bytes = 0;
    int32_t column = -1;
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_column(scratch, json, i, &column));
        if (column < 0) break;
        const size_t at = json->at;
        neo__text *t = &fields[column];
        NEO__TRY(neo__json_field(scratch, json, NULL, &joined, t));
        for (size_t k = 0; k < t->bytes; k++)
            if ((unsigned char)t->p[k] < 0x20)
                return neo__json_fail(json, at, "a control character in a value");
        bytes += t->bytes;
    }
    NEO__TRY(neo__json_end(json));
    NEO__CHECK(bytes + (size_t)scratch->model->column_count <= NEO__LINE_BYTES, NEO_ERR_FORMAT,
               "the sample is over %d bytes", (int)NEO__LINE_BYTES);
    for (int32_t c = 0; c < scratch->model->column_count; c++) {
        if (fields[c].p) memcpy(to, fields[c].p, fields[c].bytes);
        to += fields[c].p ? fields[c].bytes : 0;
        *to++ = c + 1 < scratch->model->column_count ? '\t' : '\n';
    }
    bytes = (size_t)(to - scratch->joined);
    memcpy(scratch->block.raw, scratch->joined, bytes);
    return neo__scratch_parse(scratch, bytes);
}
/* One id of feature f, and its weight. */
static neo_status neo__json_id(neo_scratch *scratch, int32_t f, int64_t number, float weight) {
    neo__block *block = &scratch->block;
    const int64_t rows = scratch->schema->rows[f];
    const int64_t id = neo__id_fit(number, rows, scratch->schema->modulo);
    NEO__CHECK(id < rows, NEO_ERR_RANGE, "%s: id %" PRId64 " is not in [0, %" PRId64 ")",
               scratch->schema->feature_names[f], number, rows);
    const int64_t used = scratch->ends[scratch->count * scratch->model->feature_count];
    NEO__CHECK(used + block->id_count < scratch->desc.max_ids, NEO_ERR_CAPACITY,
               "max_ids is %" PRId64, scratch->desc.max_ids);
    /* ids lie in the order of the text, and move to their features at the end */
    scratch->turned_ids[block->id_count] = id;
    if (scratch->weights) scratch->turned_weights[block->id_count] = weight;
    block->id_count++;
    return NEO_OK;
}
static neo_status neo__json_weighted(neo_scratch *scratch, neo__json *json, int32_t f) {
    char *key = NULL;
    NEO__TRY(neo__json_open(json, '{'));
    for (int i = 0;; i++) {
        int64_t id = 0;
        double weight = 0;
        NEO__TRY(neo__json_member(json, i, &key));
        if (!key) return NEO_OK;
        const char *p = key;
        for (; *p >= '0' && *p <= '9' && id < INT64_MAX / 16; p++) id = id * 10 + (*p - '0');
        if (p == key || *p) return neo__json_fail(json, json->at, "expected an id before this");
        NEO__TRY(neo__json_double(json, &weight));
        const float w = (float)weight;
        if (!(w - w == 0.0f))
            return neo__json_fail(json, json->at, "expected a weight before this");
        NEO__TRY(neo__json_id(scratch, f, id, w));
    }
}
static neo_status neo__json_ids(neo_scratch *scratch, neo__json *json, int32_t f) {
    const int c = neo__json_peek(json);
    int64_t id = 0;
    int more = 1;
    if (c == 'n') return neo__json_skip(json);
    if (c == '{' && scratch->weights) return neo__json_weighted(scratch, json, f);
    if (c != '[') {
        NEO__TRY(neo__json_count(json, &id));
        return neo__json_id(scratch, f, id, 1.0f);
    }
    NEO__TRY(neo__json_open(json, '['));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_next(json, ']', i, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__json_count(json, &id));
        NEO__TRY(neo__json_id(scratch, f, id, 1.0f));
    }
}
/* A dense number, as a reader of the format makes it. */
static neo_status neo__json_dense(neo_scratch *scratch, neo__json *json, int32_t column, float *x) {
    neo__text t;
    size_t joined = 0;
    NEO__TRY(neo__json_field(scratch, json, NULL, &joined, &t));
    *x = 0.0f;
    if (t.bytes == 0) return NEO_OK;
    NEO__CHECK(neo__number(t.p, t.bytes, x) == NEO__NUMBER_OK, NEO_ERR_FORMAT,
               "%s: expected a number, found %s", scratch->model->columns[column],
               neo__quote(t.p, t.bytes).text);
    if (scratch->schema->format != NEO_FORMAT_BINARY || scratch->schema->float_dense) return NEO_OK;
    const int64_t limit = INT64_C(1) << 31;
    const int whole = *x >= (float)-limit && *x <= (float)limit && *x == (float)(int64_t)*x;
    int64_t n = whole ? (int64_t)*x : limit, digits = 0;
    size_t k = 0;
    while (k < t.bytes && t.p[k] >= '0' && t.p[k] <= '9' && digits < limit)
        digits = digits * 10 + (t.p[k++] - '0');
    if (k == t.bytes) n = digits; /* which an f32 may not hold */
    NEO__CHECK(n < limit, NEO_ERR_FORMAT, "%s: expected an integer of 32 bits, found %s",
               scratch->model->columns[column], neo__quote(t.p, t.bytes).text);
    *x = neo__log_count(scratch->schema, (uint64_t)NEO__MAX(n, (int64_t)0) + 1);
    return NEO_OK;
}
/* Formats whose ids are as they are. */
static neo_status neo__json_plain(neo_scratch *scratch, neo__json *json) {
    const int32_t dense = scratch->model->dense_count, features = scratch->model->feature_count;
    neo__text *fields = scratch->block.fields;
    float *x = scratch->dense + scratch->count * NEO__MAX(dense, 1);
    int32_t column = -1;
    int64_t at = scratch->ends[scratch->count * features];
    NEO__TRY(neo__scratch_room(scratch, 0));
    for (int32_t i = 0; i < NEO__MAX(dense, 1); i++) x[i] = dense ? 0.0f : 1.0f;
    neo__scratch_block(scratch);
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_column(scratch, json, i, &column));
        if (column < 0) break;
        const int64_t before = scratch->block.id_count;
        if (column < dense) NEO__TRY(neo__json_dense(scratch, json, column, &x[column]));
        else NEO__TRY(neo__json_ids(scratch, json, column - dense));
        fields[column].p = (const char *)(scratch->turned_ids + before); /* where its ids are */
        fields[column].bytes = (size_t)(scratch->block.id_count - before);
    }
    NEO__TRY(neo__json_end(json));
    for (int32_t f = 0; f < features; f++) {
        const neo__text *t = &fields[dense + f];
        const int64_t from = t->p ? (const int64_t *)(const void *)t->p - scratch->turned_ids : 0;
        for (int64_t k = 0; k < (int64_t)t->bytes; k++, at++) {
            scratch->ids[at] = scratch->turned_ids[from + k];
            if (scratch->weights) scratch->weights[at] = scratch->turned_weights[from + k];
        }
        scratch->ends[scratch->count * features + f + 1] = at;
    }
    scratch->count++;
    return NEO_OK;
}
NEO_API neo_status neo_scratch_add_json(neo_scratch *scratch, const char *text, size_t bytes) {
    NEO__CHECK(scratch && text, NEO_ERR_ARG, "neo_scratch_add_json: an argument is NULL");
    NEO__CHECK(bytes <= NEO__LINE_BYTES, NEO_ERR_FORMAT, "the sample has %zu bytes, over %d", bytes,
               (int)NEO__LINE_BYTES);
    NEO__CHECK(scratch->count < scratch->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_scratch_add: max_batch is %" PRId64, scratch->desc.max_batch);
    const neo_format format = scratch->schema->format;
    neo__json json = {scratch->block.raw, bytes, 0, "sample", 0, 0};
    const int32_t columns = NEO__MAX(scratch->schema->column_count, scratch->model->column_count);
    memcpy(scratch->block.raw, text, bytes);
    memset(scratch->block.raw + bytes, 0, 1 + NEO__BLOCK_PAD);
    memset(scratch->block.fields, 0, (size_t)columns * sizeof *scratch->block.fields);
    NEO__TRY(neo__json_open(&json, '{'));
    if (format == NEO_FORMAT_DELIMITED) return neo__json_delimited(scratch, &json);
    return format == NEO_FORMAT_CRITEO ? neo__json_criteo(scratch, &json)
                                       : neo__json_plain(scratch, &json);
}

/* ---- predictions ---- */

/* A batch whose ids are inside, feature by feature. */
typedef struct neo__look {
    neo_scratch *scratch;
    const int64_t *ends, *ids;
    const float *weights;
    float *e;
    int64_t n, stride;
} neo__look;
/* The initial row of a key, as training reads it: see "keyed tables" and "narrow rows" of neo.h. */
static void neo__key_initial(const neo_model *model, int64_t t, uint64_t key, float *row) {
    const int64_t dim = model->tables[t].dim;
    const float half = (float)(1.0 / sqrt((double)model->tables[t].rows));
    const neo_row_bits bits = neo__row_bits_of(model->json.rows_dtype);
    const uint64_t first = key * (uint64_t)dim;
    float low = 0.0f, high = 0.0f, scale, bias;
    char name[1280];
    uint32_t word[4];
    memset(row, 0, (size_t)dim * sizeof *row);
    if (model->json.kind->meets == NEO__MEETS_WEIGHTS) return;
    snprintf(name, sizeof name, "%s.weight", model->table_names[t]);
    const uint64_t hash = neo_hash(name);
    for (int64_t c = 0; c < dim; c++) {
        const uint64_t at = first + (uint64_t)c;
        if (c == 0 || at % 4 == 0)
            neo_random_u32x4((uint64_t)model->json.key_seed, hash, 0, NEO_STREAM_INIT, at / 4,
                             word);
        const float unit = (float)(word[at % 4] >> 8) * 0x1p-24f;
        const float x = neo__fma(unit, half + half, -half), top = neo__float_below(half);
        row[c] = NEO__MIN(x, top);
        low = c ? NEO__MIN(low, row[c]) : row[c], high = c ? NEO__MAX(high, row[c]) : row[c];
    }
    neo__frozen_range(NEO_ROWS_I8, low, high, &scale, &bias);
    for (int64_t c = 0; c < dim; c++) {
        if (bits == NEO_ROWS_F16) row[c] = neo__f32_from_f16(neo__f16_from_f32(row[c]));
        if (bits == NEO_ROWS_BF16) row[c] = neo__f32_from_bf16(neo__bf16_from_f32(row[c]));
        if (bits == NEO_ROWS_I8)
            row[c] = neo__fma(scale > 0.0f ? neo__frozen_code(bits, row[c], 1.0f / scale, bias)
                                           : 0.0f, scale, bias);
    }
}
/* The place of a row among the hot or warm ones; -1: it is none. */
static int64_t neo__hot_place(const neo__hot *hot, int64_t id) {
    int64_t low = 0, high = hot ? hot->count : 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (hot->rows[middle] < id) low = middle + 1;
        else high = middle;
    }
    return hot && low < hot->count && hot->rows[low] == id ? low : -1;
}
/* A key is in its set's bucket, a warm row in that of its place among them. */
static int64_t neo__apart_bucket(const neo_model *model, int64_t t, int64_t id) {
    const neo_frozen *table = &model->tables[t];
    const neo__hot *warm = neo__hot_of(model, 1, t);
    const int64_t rows = warm ? warm->count : table->rows;
    return neo__bucket_of(rows, NEO__MAX(table->row_buckets, 1),
                          warm ? neo__hot_place(warm, id) : neo__lines_first((uint64_t)id, rows));
}
/* Bag [k, end) of keys of table t, some of which have no row, or of warm rows: each bucket's sum in
   order of position, then the buckets' by the tree. */
static void neo__key_pool(const neo__look *look, int64_t t, int64_t k, int64_t end, int worker,
                          float *out) {
    const neo_scratch *scratch = look->scratch;
    const neo_frozen *table = &scratch->model->tables[t];
    const int64_t dim = table->dim, begin = k, buckets = NEO__MAX(table->row_buckets, 1);
    float *row = scratch->key_sums + worker * (1 + NEO__PART_DEPTH) * dim, *sums = row + dim;
    int64_t number[NEO__PART_DEPTH], bucket = -1;
    for (int depth = 0;;) {
        int64_t next = INT64_MAX;
        for (k = begin; k < end; k++) {
            const int64_t its = neo__apart_bucket(scratch->model, t, look->ids[k]);
            if (its > bucket) next = NEO__MIN(next, its);
        }
        depth = neo__parts_join(number, depth, next, sums, dim, dim);
        if (next == INT64_MAX) break;
        float *sum = sums + depth * dim;
        number[depth++] = bucket = next;
        memset(sum, 0, (size_t)dim * sizeof *sum);
        for (k = begin; k < end; k++) {
            const uint64_t key = (uint64_t)look->ids[k];
            const int64_t at = scratch->key_rows[k], ends[2] = {0, 1};
            if (neo__apart_bucket(scratch->model, t, look->ids[k]) != bucket) continue;
            if (at < 0) neo__key_initial(scratch->model, t, key, row);
            else neo__frozen_look(scratch->ctx, table, ends, 1, &at, NULL, row, dim);
            const float w = look->weights ? look->weights[k] : 1.0f;
            for (int64_t c = 0; c < dim; c++) sum[c] = neo__fma(w, row[c], sum[c]);
        }
    }
    for (int64_t c = 0; c < dim; c++) {
        const float sum = buckets > 1 ? sums[c] + 0.0f : sums[c];
        out[c] = table->mean && end - begin > 1 ? sum / (float)(end - begin) : sum;
    }
}
/* 0: neither hot nor warm, 1: hot, 2: warm. */
static int neo__hot_kind(const neo_model *model, int64_t t, int64_t id) {
    if (neo__hot_place(neo__hot_of(model, 0, t), id) >= 0) return 1;
    return neo__hot_place(neo__hot_of(model, 1, t), id) >= 0 ? 2 : 0;
}
/* Bag [begin, end) of table t, whose rows are summed in out: with hot or warm ones among several,
   the sum of the others, that of the hot ones, that of the warm ones. As in training a sum of none
   is added, too. */
static void neo__hot_pool(const neo__look *look, int64_t t, int64_t begin, int64_t end, int worker,
                          float *out) {
    const neo_scratch *scratch = look->scratch;
    const neo_model *model = scratch->model;
    neo__look apart = *look;
    neo_frozen table = model->tables[t];
    float *row = scratch->key_sums + worker * (1 + NEO__PART_DEPTH) * table.dim;
    int64_t ends[4] = {begin, begin, begin, begin}, at[3] = {0};
    for (int64_t k = begin; k < end; k++)
        for (int c = neo__hot_kind(model, t, look->ids[k]); c < 3; c++) ends[c + 1]++;
    const int several = ends[1] < end && end - begin > 1;
    apart.ids = scratch->key_rows, apart.weights = look->weights ? scratch->hot_weights : NULL;
    for (int64_t k = begin; several && k < end; k++) {
        const int kind = neo__hot_kind(model, t, look->ids[k]);
        const int64_t to = ends[kind] + at[kind]++;
        scratch->key_rows[to] = look->ids[k];
        if (look->weights) scratch->hot_weights[to] = look->weights[k];
    }
    if (several)
        neo__frozen_look(scratch->ctx, &table, ends, 1, apart.ids, apart.weights, out, table.dim);
    table.row_buckets = 1; /* all ranks have all hot rows */
    for (int c = 1; c < 3; c++) {
        if (!neo__hot_of(model, c - 1, t)) continue;
        memset(row, 0, (size_t)table.dim * sizeof *row);
        if (several && c == 1)
            neo__frozen_look(scratch->ctx, &table, ends + 1, 1, apart.ids, apart.weights, row,
                             table.dim);
        else if (several && ends[2] < end) neo__key_pool(&apart, t, ends[2], end, worker, row);
        for (int64_t i = 0; i < table.dim; i++) out[i] += row[i];
    }
}
static void neo__look_up(void *arg, int64_t t, int worker) {
    const neo__look *look = (const neo__look *)arg;
    const neo_scratch *scratch = look->scratch;
    const neo_model *model = scratch->model;
    const neo_frozen *table = &model->tables[t];
    const int64_t *ends = look->ends + t * look->n, count = ends[look->n] - ends[0];
    float *out = look->e + (model->json.place ? model->json.place[t] : t) * table->dim;
    int64_t *rows = scratch->key_rows, missing = 0;
    if (model->lines) {
        const uint64_t *keys = (const uint64_t *)look->ids + ends[0];
        const int64_t now = NEO__MIN(model->key_step, (int64_t)UINT32_MAX - 1) + 1;
        missing = (NEO__TRAINS ? scratch->ctx->bag->find : neo__lines_find_scalar)(
            &model->lines[t], keys, count, now, 0, rows + ends[0]);
    }
    neo__frozen_look(scratch->ctx, table, ends, missing ? 0 : look->n,
                     model->lines ? rows : look->ids, look->weights, out, look->stride);
    if (neo__hot_of(model, 0, t) || neo__hot_of(model, 1, t))
        for (int64_t b = 0; b < look->n; b++)
            neo__hot_pool(look, t, ends[b], ends[b + 1], worker, out + b * look->stride);
    for (int64_t b = 0; missing && b < look->n; b++, out += look->stride) {
        int whole = 1;
        for (int64_t k = ends[b]; k < ends[b + 1]; k++) whole &= rows[k] >= 0;
        if (whole)
            neo__frozen_look(scratch->ctx, table, ends + b, 1, rows, look->weights, out,
                             look->stride);
        else neo__key_pool(look, t, ends[b], ends[b + 1], worker, out);
    }
}
/* The rows of few samples come into the cache while the bottom layers compute: a lookup of one row
   would wait for it. */
static void neo__look_ahead(const neo__look *look, int64_t features) {
    enum { IDS = 1024, LINE = 64, LINES = 4 };
    if (look->scratch->model->lines) return;
    if (look->ends[look->n * features] - look->ends[0] > IDS) return;
    for (int64_t t = 0; t < features; t++) {
        const neo_frozen *table = &look->scratch->model->tables[t];
        const size_t row_bytes = neo_frozen_row_bytes(table->bits, table->dim);
        for (int64_t k = look->ends[t * look->n]; k < look->ends[(t + 1) * look->n]; k++) {
            const char *row = (const char *)table->codes + (size_t)look->ids[k] * row_bytes;
            for (size_t at = 0; at < row_bytes && at < LINES * LINE; at += LINE)
                __builtin_prefetch(row + at, 0, 3);
            __builtin_prefetch(row + row_bytes - 1, 0, 3);
            if (table->scale) __builtin_prefetch(table->scale + 2 * look->ids[k], 0, 2);
        }
    }
}
/* The machine of label t: e's columns of it to y [n], factors to v. */
static neo_status neo__scratch_pair(neo_scratch *scratch, int64_t t, neo_tensor e, neo_tensor wide,
                                    neo_tensor v) {
    const neo__model_json *d = &scratch->model->json;
    const int64_t n = e.shape[0], tasks = wide.shape[1], features = scratch->model->feature_count;
    const int64_t columns = e.shape[1] / tasks, width = features ? columns / features : 0;
    neo_tensor of_task = e, y = wide;
    if (tasks > 1) {
        of_task = neo_tensor_2d(scratch->of_task, NEO_F32, n, columns);
        y = neo_tensor_2d(scratch->one, NEO_F32, n, 1);
        for (int64_t f = 0; f < features; f++)
            NEO__TRY(neo_tensor_copy(scratch->ctx,
                                     neo_tensor_slice(e, 1, (f * tasks + t) * width, width),
                                     neo_tensor_slice(of_task, 1, f * width, width)));
    }
    if (d->kind->meets == NEO__MEETS_AWARE)
        NEO__TRY(neo_ffm_forward(scratch->ctx, features, d->dim, 1, of_task, y));
    else NEO__TRY(neo_fm_forward(scratch->ctx, d->dim - 1, 1, of_task, y, v));
    if (tasks == 1) return NEO_OK;
    return neo_tensor_copy(scratch->ctx, y, neo_tensor_slice(wide, 1, t, 1));
}
/* x and e meet: in z, or in `wide`. */
static neo_status neo__scratch_meet(neo_scratch *scratch, neo_tensor dense, neo_tensor x,
                                    neo_tensor e, neo_tensor wide) {
    const neo__model_json *d = &scratch->model->json;
    const int64_t n = x.shape[0], width = neo__net_width(d), given = scratch->model->dense_count;
    const int64_t tasks = wide.shape[1], factors = tasks ? (width - given) / tasks : 0;
    neo_tensor v = neo_tensor_none();
    if (d->kind->meets == NEO__MEETS_BESIDE) return NEO_OK;
    neo_tensor z = scratch->z ? neo_tensor_2d(scratch->z, NEO_F32, n, width) : neo_tensor_none();
    if (d->kind->meets == NEO__MEETS_DOTS) return neo_interact_forward(scratch->ctx, 0, x, e, z);
    if (scratch->z && given)
        NEO__TRY(neo_tensor_copy(scratch->ctx, dense, neo_tensor_slice(z, 1, 0, given)));
    for (int64_t t = 0; t < tasks; t++) {
        if (scratch->z) v = neo_tensor_slice(z, 1, given + t * factors, factors);
        NEO__TRY(neo__scratch_pair(scratch, t, e, wide, v));
    }
    return neo_add(scratch->ctx, wide, x);
}
/* The pooled rows of each tower become one row; pooled becomes those of all. */
static neo_status neo__scratch_towers(neo_scratch *scratch, neo_tensor z, neo_tensor *pooled) {
    const neo__model_json *spec = &scratch->model->json;
    const int64_t n = pooled->shape[0], dim = spec->dim, columns = spec->tower_count * dim;
    neo_tensor rows = scratch->towered ? neo_tensor_2d(scratch->towered, NEO_F32, n, columns)
                                       : neo_tensor_slice(z, 1, dim, columns);
    for (int64_t k = 0, at = 0; k < spec->tower_count; at = spec->tower_end[k++]) {
        const int64_t width = (spec->tower_end[k] - at) * dim;
        NEO__TRY(neo_mlp_forward(scratch->net.tower[k],
                                 neo_tensor_slice(*pooled, 1, at * dim, width),
                                 neo_tensor_slice(rows, 1, k * dim, dim)));
    }
    *pooled = rows;
    return NEO_OK;
}
static neo_status neo__scratch_forward(neo_scratch *scratch, neo_tensor dense, neo__look *look,
                                       float *out) {
    const neo__model_json *d = &scratch->model->json;
    const int64_t n = look->n, width = neo__net_width(d), features = scratch->model->feature_count;
    const int64_t pooled = features * neo__net_row(d);
    const int beside = d->kind->meets == NEO__MEETS_BESIDE;
    const int linear = d->kind->meets >= NEO__MEETS_WEIGHTS;
    const int32_t outputs = neo__net_outputs(d);
    neo_tensor z = scratch->z ? neo_tensor_2d(scratch->z, NEO_F32, n, width) : neo_tensor_none();
    neo_tensor x = beside ? neo_tensor_slice(z, 1, 0, d->dim)
                          : neo_tensor_2d(scratch->x, NEO_F32, n, linear ? outputs : d->dim);
    neo_tensor e = scratch->e ? neo_tensor_2d(scratch->e, NEO_F32, n, pooled)
                              : neo_tensor_slice(z, 1, d->dim, pooled);
    neo_tensor logit = neo_tensor_2d(scratch->logit, NEO_F32, n, outputs);
    neo_tensor wide =
        linear ? neo_tensor_2d(scratch->wide, NEO_F32, n, outputs) : neo_tensor_none();
    if (n == 0) return NEO_OK;
    look->e = (float *)e.data;
    look->stride = e.stride[0];
    if (features) neo__look_ahead(look, features);
    NEO__TRY(neo_mlp_forward(scratch->net.bottom, dense, x));
    if (features) {
        neo__fp_state fp = neo__fp_enter();
        if (scratch->desc.threads > 1)
            neo__run_tasks(scratch->ctx, features, neo__look_up, look, n * pooled);
        else for (int64_t t = 0; t < features; t++) neo__look_up(look, t, 0);
        neo__fp_leave(fp);
    }
    if (d->tower_count) NEO__TRY(neo__scratch_towers(scratch, z, &e));
    NEO__TRY(neo__scratch_meet(scratch, dense, x, e, wide));
    if (beside) {
        neo_tensor crossed = neo_tensor_2d(scratch->crossed, NEO_F32, n, width);
        if (scratch->net.cross) NEO__TRY(neo_cross_forward(scratch->net.cross, z, crossed));
        else NEO__TRY(neo_wukong_forward(scratch->net.wukong, z, crossed));
        z = crossed;
    }
    if (scratch->net.top) NEO__TRY(neo_mlp_forward(scratch->net.top, z, logit));
    if (linear && scratch->net.top) NEO__TRY(neo_add(scratch->ctx, logit, wide));
    if (!scratch->net.top) logit = wide;
    neo_tensor to = neo_tensor_2d(out, NEO_F32, n, outputs);
    if (scratch->desc.logits) return neo_tensor_copy(scratch->ctx, logit, to);
    return neo_activation_forward(scratch->ctx, NEO_ACT_SIGMOID, logit, to);
}
NEO_API neo_status neo_scratch_predict(neo_scratch *scratch, float *out) {
    NEO__CHECK(scratch && out, NEO_ERR_ARG, "neo_scratch_predict: an argument is NULL");
    const int64_t n = scratch->count, features = scratch->model->feature_count;
    neo__look look = {scratch, scratch->ends, scratch->ids, scratch->weights, NULL, n, 0};
    if (n > 1) {
        int64_t at = 0;
        for (int64_t t = 0; t < features; t++) {
            for (int64_t b = 0; b < n; b++) {
                const int64_t *end = &scratch->ends[b * features + t];
                for (int64_t k = end[0]; k < end[1]; k++, at++) {
                    scratch->turned_ids[at] = scratch->ids[k];
                    if (scratch->weights) scratch->turned_weights[at] = scratch->weights[k];
                }
                scratch->turned_ends[t * n + b + 1] = at;
            }
        }
        look.ends = scratch->turned_ends, look.ids = scratch->turned_ids;
        look.weights = scratch->turned_weights;
    }
    const int64_t width = NEO__MAX(scratch->model->dense_count, 1);
    return neo__scratch_forward(scratch, neo_tensor_2d(scratch->dense, NEO_F32, n, width), &look,
                                out);
}
NEO_API neo_status neo_model_predict(const neo_model *model, neo_scratch *scratch, neo_tensor dense,
                                     const neo_jagged *sparse, float *out) {
    NEO__CHECK(model && scratch && out && scratch->model == model, NEO_ERR_ARG,
               "neo_model_predict: an argument is NULL, or the scratch is of another model");
    const int32_t features = model->feature_count;
    const int64_t n = features ? sparse ? sparse->batch : -1 : dense.shape[0];
    const int64_t width = NEO__MAX(model->dense_count, 1);
    NEO__CHECK(n >= 0 && (!features || (sparse->feature_count == features &&
                                        !sparse->feature_bags && sparse->place == NEO_HOST)),
               NEO_ERR_SHAPE, "neo_model_predict: the model has %d features, of one batch size",
               (int)features);
    NEO__CHECK(n <= scratch->desc.max_batch, NEO_ERR_CAPACITY,
               "neo_model_predict: %" PRId64 " samples, max_batch is %" PRId64, n,
               scratch->desc.max_batch);
    NEO__CHECK(!model->dense_count || (dense.ndim == 2 && dense.shape[0] == n &&
                                       dense.shape[1] == width),
               NEO_ERR_SHAPE, "neo_model_predict: dense must be [%" PRId64 "][%" PRId64 "]", n,
               width);
    neo__look look = {scratch, scratch->turned_ends, scratch->turned_ids, NULL, NULL, n, 0};
    if (features) {
        NEO__TRY(neo_jagged_validate(sparse, model->lines ? NULL : model->json.schema->rows));
        look.ends = sparse->offsets;
        look.weights = sparse->weights;
        look.ids = (const int64_t *)sparse->ids;
    }
    if (features && (sparse->id_dtype == NEO_I32 || model->lines || model->hot)) {
        const int64_t first = sparse->offsets[0], count = sparse->offsets[n * features] - first;
        NEO__CHECK(count <= scratch->desc.max_ids, NEO_ERR_CAPACITY,
                   "neo_model_predict: %" PRId64 " ids, max_ids is %" PRId64, count,
                   scratch->desc.max_ids);
        for (int64_t k = 0; k < count; k++)
            scratch->turned_ids[k] = neo__jagged_id(sparse->ids, sparse->id_dtype == NEO_I32,
                                                    first + k);
        for (int64_t k = 0; k <= n * features; k++)
            scratch->turned_ends[k] = sparse->offsets[k] - first;
        look.ends = scratch->turned_ends, look.ids = scratch->turned_ids;
        look.weights = sparse->weights ? sparse->weights + first : NULL;
    }
    if (!model->dense_count) {
        for (int64_t b = 0; b < n; b++) scratch->dense[b] = 1.0f;
        scratch->count = 0;
        dense = neo_tensor_2d(scratch->dense, NEO_F32, n, 1);
    }
    return neo__scratch_forward(scratch, dense, &look, out);
}

NEO__HOT_END
/* ---------------------------------------------------------------------------
   >>impl-decoder

   The trainer's forward of the tokens that are new: rows are computed alone but for attention,
   whose keys and values of a block are rows of its cache. Of the last one alone there are logits.
   ------------------------------------------------------------------------ */
enum { NEO__DECODER_CHUNK = 64, NEO__PROMPT_BYTES = 10 /* of a byte, "16777215, " */ };
struct neo_decoder {
    const neo_model *model;
    neo_ctx *ctx;
    int64_t chunk, count; /* count: tokens that are in the cache */
    neo_activation act;
    char *memory;         /* of all that follows */
    size_t memory_bytes;
    float *x, *n, *middle, *qkv, *wide, *stats; /* [chunk][width], ... qkv 3, wide 4 of them */
    uint16_t *narrow;                           /* [chunk][4 width], of products in bf16 */
    float *cache;   /* [layers][context][2 width]: keys, values */
    float *logits;  /* [vocabulary] */
    int64_t *prompt; /* [context] */
    char *text;      /* [text_bytes + 1], of JSON */
    size_t text_bytes;
};
static void neo__decoder_layout(neo_decoder *decoder, neo__carve *carve) {
    const neo__model_json *spec = &decoder->model->json;
    const int64_t rows = decoder->chunk, w = spec->width;
    NEO__CARVE(carve, decoder->x, rows * w);
    NEO__CARVE(carve, decoder->n, rows * w);
    NEO__CARVE(carve, decoder->middle, rows * w);
    NEO__CARVE(carve, decoder->qkv, rows * 3 * w);
    NEO__CARVE(carve, decoder->wide, rows * 4 * w);
    NEO__CARVE(carve, decoder->stats, rows * 2);
    if (neo__net_dtype(spec) != NEO_F32) NEO__CARVE(carve, decoder->narrow, rows * 4 * w);
    NEO__CARVE(carve, decoder->cache, spec->layers * spec->context * 2 * w);
    NEO__CARVE(carve, decoder->logits, spec->vocabulary);
    NEO__CARVE(carve, decoder->prompt, spec->context);
    decoder->text_bytes = (size_t)(NEO__PROMPT_BYTES * spec->context) + 4096;
    NEO__CARVE(carve, decoder->text, decoder->text_bytes + 1);
}
/* The fields that desc gives, and the bytes of the memory. */
static neo_status neo__decoder_plan(const neo_model *model, const neo_decoder_desc *desc,
                                    neo_decoder *decoder) {
    const int64_t chunk = desc && desc->chunk ? desc->chunk : (int64_t)NEO__DECODER_CHUNK;
    neo__carve carve = {NULL, 0};
    memset(decoder, 0, sizeof *decoder);
    NEO__CHECK(neo__is_gpt(&model->json), NEO_ERR_UNSUPPORTED,
               "neo_decoder_create: the model is no gpt, which neo_scratch is for");
    NEO__CHECK(chunk > 0 && (!desc || desc->threads >= 0), NEO_ERR_ARG,
               "neo_decoder_create: a number is out of range");
    decoder->model = model;
    decoder->chunk = NEO__MIN(chunk, model->json.context);
    decoder->act = model->json.gelu && strcmp(model->json.gelu, "tanh") == 0 ? NEO_ACT_GELU_TANH
                                                                             : NEO_ACT_GELU;
    neo__decoder_layout(decoder, &carve);
    decoder->memory_bytes = carve.at;
    return NEO_OK;
}
NEO_API size_t neo_decoder_bytes(const neo_model *model, const neo_decoder_desc *desc) {
    neo_decoder plan;
    if (!model || neo__decoder_plan(model, desc, &plan) != NEO_OK) return 0;
    return sizeof plan + plan.memory_bytes;
}
NEO_API void neo_decoder_destroy(neo_decoder *decoder) {
    if (!decoder) return;
    neo_ctx *ctx = decoder->ctx;
    neo_free(ctx, decoder->memory, decoder->memory_bytes);
    neo_free(ctx, decoder, sizeof *decoder);
    neo_ctx_destroy(ctx);
}
NEO_API neo_status neo_decoder_create(const neo_model *model, const neo_decoder_desc *desc,
                                      neo_decoder **out) {
    NEO__CHECK(model && out, NEO_ERR_ARG, "neo_decoder_create: an argument is NULL");
    *out = NULL;
    neo_decoder plan, *decoder = NULL;
    neo_ctx_desc of_ctx = model->ctx_desc;
    NEO__TRY(neo__decoder_plan(model, desc, &plan));
    of_ctx.threads = desc && desc->threads ? desc->threads : 1;
    NEO__TRY(neo_ctx_create(&of_ctx, &plan.ctx));
    plan.memory = (char *)neo__alloc_for(plan.ctx, plan.memory_bytes, "neo_decoder_create");
    if (plan.memory)
        decoder = (neo_decoder *)neo__alloc_for(plan.ctx, sizeof *decoder, "neo_decoder_create");
    if (!decoder) {
        neo__kept_error error = neo__error_keep(NEO_ERR_MEMORY);
        neo_free(plan.ctx, plan.memory, plan.memory_bytes);
        neo_ctx_destroy(plan.ctx);
        return neo__error_restore(&error);
    }
    neo__carve carve = {plan.memory, 0};
    *decoder = plan;
    neo__decoder_layout(decoder, &carve);
    *out = decoder;
    return NEO_OK;
}
NEO_API void neo_decoder_clear(neo_decoder *decoder) { decoder->count = 0; }
NEO_API int64_t neo_decoder_count(const neo_decoder *decoder) { return decoder->count; }
NEO_API const float *neo_decoder_logits(const neo_decoder *decoder) {
    return decoder->count ? decoder->logits : NULL;
}

NEO__HOT_BEGIN
/* y = x w^T + b by weight `index`, behind which its bias lies; bias 0: there is none. */
static neo_status neo__decoder_product(neo_decoder *decoder, int index, int bias, neo_tensor x,
                                       neo_tensor y) {
    const neo__weight *weight = &decoder->model->dense[index];
    const int64_t out = weight->t.shape[0], in = weight->t.shape[1];
    const neo_tensor b = bias ? weight[1].t : neo_tensor_none();
    if (decoder->narrow) {
        const neo_tensor w = neo_tensor_2d(weight->turned, NEO_BF16, out, in);
        const neo_tensor narrow = neo_tensor_2d(decoder->narrow, NEO_BF16, x.shape[0], in);
        NEO__TRY(neo_tensor_convert(decoder->ctx, x, narrow, NULL));
        return neo_linear_forward(decoder->ctx, narrow, w, b, NEO_ACT_NONE, y);
    }
    neo__gemm_call call =
        neo__gemm_call_make(x, 0, neo_tensor_2d(weight->turned, NEO_F32, in, out), 0, y);
    call.bias = neo__f32(b);
    return NEO__RUN(decoder->ctx, "neo_decoder_add", gemm, &call);
}
static neo_status neo__decoder_norm(neo_decoder *decoder, int index, neo_tensor x, neo_tensor y) {
    const neo__weight *weight = &decoder->model->dense[index];
    const neo_tensor stats = neo_tensor_2d(decoder->stats, NEO_F32, x.shape[0], 2);
    return neo_layer_norm_forward(decoder->ctx, x, weight->t, weight[1].t, 1e-5f, y, stats);
}
static neo_status neo__decoder_block(neo_decoder *decoder, int block, int64_t n) {
    const neo__model_json *spec = &decoder->model->json;
    const int64_t w = spec->width, length = decoder->count + n;
    const int at = NEO__GPT_BLOCKS + NEO__GPT_PARTS * block;
    const neo_tensor x = neo_tensor_2d(decoder->x, NEO_F32, n, w);
    const neo_tensor y = neo_tensor_2d(decoder->n, NEO_F32, n, w);
    const neo_tensor middle = neo_tensor_2d(decoder->middle, NEO_F32, n, w);
    const neo_tensor qkv = neo_tensor_2d(decoder->qkv, NEO_F32, n, 3 * w);
    const neo_tensor wide = neo_tensor_2d(decoder->wide, NEO_F32, n, 4 * w);
    const neo_tensor cache =
        neo_tensor_2d(decoder->cache + block * spec->context * 2 * w, NEO_F32, length, 2 * w);
    NEO__ZERO(neo_attention_desc, attention);
    attention.length = length, attention.queries = n;
    attention.heads = spec->heads, attention.causal = 1;
    NEO__TRY(neo__decoder_norm(decoder, at + NEO__GPT_NORM_1, x, y));
    NEO__TRY(neo__decoder_product(decoder, at + NEO__GPT_QKV, 1, y, qkv));
    NEO__TRY(neo_tensor_copy(decoder->ctx, neo_tensor_slice(qkv, 1, w, 2 * w),
                             neo_tensor_rows(cache, decoder->count, n)));
    NEO__TRY(neo_attention_forward(decoder->ctx, &attention, neo_tensor_slice(qkv, 1, 0, w),
                                   neo_tensor_slice(cache, 1, 0, w),
                                   neo_tensor_slice(cache, 1, w, w), y, neo_tensor_none()));
    NEO__TRY(neo__decoder_product(decoder, at + NEO__GPT_PROJECT, 1, y, middle));
    NEO__TRY(neo_add(decoder->ctx, middle, x));
    NEO__TRY(neo__decoder_norm(decoder, at + NEO__GPT_NORM_2, middle, y));
    NEO__TRY(neo__decoder_product(decoder, at + NEO__GPT_EXPAND, 1, y, wide));
    NEO__TRY(neo_activation_forward(decoder->ctx, decoder->act, wide, wide));
    NEO__TRY(neo__decoder_product(decoder, at + NEO__GPT_CONTRACT, 1, wide, x));
    return neo_add(decoder->ctx, x, middle);
}
/* Up to `chunk` tokens; last: of those that are added. */
static neo_status neo__decoder_step(neo_decoder *decoder, const int64_t *tokens, int64_t n,
                                    int last) {
    const neo__model_json *spec = &decoder->model->json;
    const neo__weight *dense = decoder->model->dense;
    const neo_tensor x = neo_tensor_2d(decoder->x, NEO_F32, n, spec->width);
    const neo_tensor normed = neo_tensor_2d(decoder->n, NEO_F32, 1, spec->width);
    const neo_tensor logits = neo_tensor_2d(decoder->logits, NEO_F32, 1, spec->vocabulary);
    const neo_tensor places = neo_tensor_rows(dense[NEO__GPT_POSITIONS].t, decoder->count, n);
    const neo_tensor ids = neo_tensor_1d((void *)(uintptr_t)tokens, NEO_I64, n);
    NEO__TRY(neo_embedding_forward(decoder->ctx, ids, dense[NEO__GPT_TOKENS].t, x));
    NEO__TRY(neo_add(decoder->ctx, x, places));
    for (int block = 0; block < spec->layers; block++)
        NEO__TRY(neo__decoder_block(decoder, block, n));
    if (!last) return NEO_OK;
    NEO__TRY(neo__decoder_norm(decoder, NEO__GPT_NORM, neo_tensor_rows(x, n - 1, 1), normed));
    return neo__decoder_product(decoder, NEO__GPT_TOKENS, 0, normed, logits);
}
NEO__HOT_END
NEO_API neo_status neo_decoder_add(neo_decoder *decoder, const int64_t *tokens, int64_t count) {
    NEO__CHECK(decoder && tokens && count >= 1, NEO_ERR_ARG,
               "neo_decoder_add: an argument is NULL, or there are no tokens");
    const neo__model_json *spec = &decoder->model->json;
    const int64_t before = decoder->count;
    NEO__CHECK(count <= spec->context - before, NEO_ERR_CAPACITY,
               "neo_decoder_add: %" PRId64 " tokens after %" PRId64 ", and the model's context is "
               "%" PRId64, count, before, spec->context);
    for (int64_t i = 0; i < count; i++)
        NEO__CHECK(tokens[i] >= 0 && tokens[i] < spec->vocabulary, NEO_ERR_RANGE,
                   "neo_decoder_add: token %" PRId64 " is %" PRId64 ", not in [0, %d)", i,
                   tokens[i], spec->vocabulary);
    neo_status status = NEO_OK;
    for (int64_t i = 0, n; status == NEO_OK && i < count; i += n) {
        n = NEO__MIN(decoder->chunk, count - i);
        status = neo__decoder_step(decoder, tokens + i, n, i + n == count);
        decoder->count += n;
    }
    if (status != NEO_OK) decoder->count = before;
    return status;
}
NEO_API neo_status neo_decoder_generate(neo_decoder *decoder, const neo_sampling *sampling,
                                        int64_t count, int64_t *tokens, int64_t *drawn) {
    NEO__CHECK(decoder && sampling && drawn && decoder->count && (tokens || count <= 0),
               NEO_ERR_ARG, "neo_decoder_generate: an argument is NULL, or there is no token yet");
    const neo__model_json *spec = &decoder->model->json;
    for (*drawn = 0; *drawn < count;) {
        if (*drawn && decoder->count == spec->context) break;
        if (*drawn) NEO__TRY(neo_decoder_add(decoder, tokens + *drawn - 1, 1));
        tokens[*drawn] = neo_sample(sampling, decoder->logits, spec->vocabulary, *drawn);
        ++*drawn;
    }
    return NEO_OK;
}
/* The tokens of bytes, to decoder->prompt. */
static neo_status neo__decoder_tokens(neo_decoder *decoder, const char *text, size_t bytes,
                                      int64_t *count) {
    const neo__model_json *spec = &decoder->model->json;
    NEO__CHECK(spec->has_bytes || !bytes, NEO_ERR_RANGE,
               "tokens of a byte-pair vocabulary stand for no bytes: give an array of them");
    NEO__CHECK(bytes <= (size_t)spec->context, NEO_ERR_CAPACITY,
               "a text of %zu bytes, and the model's context is %" PRId64, bytes, spec->context);
    for (size_t i = 0; i < bytes; i++) {
        decoder->prompt[i] = spec->token[(unsigned char)text[i]];
        size_t from = i, to = i + 1; /* the character that the byte is of */
        if (decoder->prompt[i] >= 0) continue;
        while (from > 0 && (text[from] & 0xC0) == 0x80) from--;
        while (to < bytes && (text[to] & 0xC0) == 0x80) to++;
        return neo_fail(NEO_ERR_RANGE, "byte %zu, %s, is not in the vocabulary of the model", i + 1,
                        neo__quote(text + from, to - from).text);
    }
    *count = (int64_t)bytes;
    return NEO_OK;
}
NEO_API neo_status neo_decoder_add_text(neo_decoder *decoder, const char *text, size_t bytes) {
    int64_t count = 0;
    NEO__CHECK(decoder && text, NEO_ERR_ARG, "neo_decoder_add_text: an argument is NULL");
    NEO__TRY(neo__decoder_tokens(decoder, text, bytes, &count));
    return neo_decoder_add(decoder, decoder->prompt, count);
}
static neo_status neo__decoder_prompt(neo_decoder *decoder, neo__json *json, int64_t *count) {
    char *text = NULL;
    int more = 1;
    if (neo__json_peek(json) == '"') {
        NEO__TRY(neo__json_string(json, &text));
        return neo__decoder_tokens(decoder, text, strlen(text), count);
    }
    if (neo__json_peek(json) != '[')
        return neo__json_fail(json, json->at, "expected a string or an array of tokens");
    NEO__TRY(neo__json_open(json, '['));
    for (*count = 0;; ++*count) {
        int64_t token = 0;
        NEO__TRY(neo__json_next(json, ']', (int)*count, &more));
        if (!more) return NEO_OK;
        NEO__TRY(neo__json_count(json, &token));
        NEO__CHECK(*count < decoder->model->json.context, NEO_ERR_CAPACITY,
                   "a prompt of more tokens than the %" PRId64 " of the model's context",
                   decoder->model->json.context);
        decoder->prompt[*count] = token;
    }
}
NEO_API neo_status neo_decoder_add_json(neo_decoder *decoder, const char *text, size_t bytes,
                                        neo_sampling *sampling, int64_t *tokens) {
    NEO__CHECK(decoder && text && sampling && tokens, NEO_ERR_ARG,
               "neo_decoder_add_json: an argument is NULL");
    NEO__CHECK(bytes <= decoder->text_bytes, NEO_ERR_CAPACITY, "a text of %zu bytes, over %zu",
               bytes, decoder->text_bytes);
    neo__json json = {decoder->text, bytes, 0, "request", 0, 0};
    neo_sampling drawn = *sampling;
    int64_t count = 0, more = *tokens, seed = -1;
    char *key = NULL;
    memcpy(decoder->text, text, bytes);
    decoder->text[bytes] = 0;
    NEO__TRY(neo__json_open(&json, '{'));
    for (int i = 0;; i++) {
        NEO__TRY(neo__json_member(&json, i, &key));
        if (!key) break;
        if (strcmp(key, "prompt") == 0) NEO__TRY(neo__decoder_prompt(decoder, &json, &count));
        else if (strcmp(key, "tokens") == 0) NEO__TRY(neo__json_count(&json, &more));
        else if (strcmp(key, "temperature") == 0) {
            if (neo__json_peek(&json) == 'n') /* of null, which is no number here */
                return neo__json_fail(&json, json.at, "expected a number");
            NEO__TRY(neo__json_double(&json, &drawn.temperature));
        } else if (strcmp(key, "top_k") == 0) NEO__TRY(neo__json_count(&json, &drawn.top_k));
        else if (strcmp(key, "seed") == 0) NEO__TRY(neo__json_count(&json, &seed));
        else return neo_fail(NEO_ERR_NOT_FOUND, "\"%.*s\" is not prompt, tokens, temperature, "
                             "top_k or seed", neo__shown(key), key);
    }
    NEO__TRY(neo__json_end(&json));
    const neo__model_json *spec = &decoder->model->json;
    const int64_t rounded = spec->vocabulary >= 50257 && spec->vocabulary <= 50304;
    const int64_t last = rounded ? 50256 : spec->vocabulary - 1;
    const int64_t first = spec->has_bytes ? spec->token[(int)'\n'] : last;
    if (count == 0) decoder->prompt[count++] = NEO__MAX(first, (int64_t)0);
    if (seed >= 0) drawn.seed = (uint64_t)seed;
    const int64_t before = decoder->count;
    decoder->count = 0;
    neo_status status = neo_decoder_add(decoder, decoder->prompt, count);
    if (status == NEO_OK) *sampling = drawn, *tokens = more;
    else decoder->count = before; /* its cache is as it was: tokens are looked at first */
    return status;
}
NEO__HOT_BEGIN

/* ---------------------------------------------------------------------------
   >>impl-items

   With codes: |q . x - q . x'| <= sum |q| times half a step of the codes, and a little more for
   f32's rounding. A heap of k lower bounds has the least that a hit needs; items whose upper bound
   is below it are passed over, the others scored in f32, whose scores then are the bounds.
   ------------------------------------------------------------------------ */
struct neo_items {
    neo_ctx *ctx;
    neo_items_desc desc;
    neo_frozen codes; /* of i8; or codes NULL */
    float *norm;      /* [count] of i8: the largest error of an element */
    uint64_t *filter; /* [count], with attributes */
};
/* Two bits of 64 for an attribute. */
NEO__INLINE uint64_t neo__items_bits(uint64_t attribute) {
    const uint64_t h = neo__mix64(attribute + 0x9E3779B97F4A7C15u);
    return UINT64_C(1) << (h & 63) | UINT64_C(1) << (h >> 6 & 63);
}
static float neo__items_score(const float *q, const float *x, int64_t dim) {
    float sum[16] = {0};
    int64_t c = 0;
    for (; c + 16 <= dim; c += 16)
        for (int i = 0; i < 16; i++) sum[i] += q[c + i] * x[c + i];
    for (int i = 0; c < dim; c++, i++) sum[i] += q[c] * x[c];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sum[i] += sum[i + half];
    return sum[0];
}
/* Whether item i has all attributes. */
static int neo__items_match(const neo_items *items, int64_t i, uint64_t bits,
                            const uint64_t *attributes, int count) {
    if ((items->filter[i] & bits) != bits) return 0;
    const int64_t *offsets = items->desc.attribute_offsets;
    for (int a = 0; a < count; a++) {
        int64_t k = offsets[i];
        while (k < offsets[i + 1] && items->desc.attributes[k] != attributes[a]) k++;
        if (k == offsets[i + 1]) return 0;
    }
    return 1;
}
/* Hits are a heap whose root is the worst: the lowest score, of equal ones the last item. */
NEO__INLINE int neo__hit_worse(const neo_hit *a, const neo_hit *b) {
    return a->score < b->score || (a->score == b->score && a->item > b->item);
}
static void neo__hit_down(neo_hit *heap, int64_t n, int64_t at) {
    const neo_hit hit = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && neo__hit_worse(&heap[child + 1], &heap[child])) child++;
        if (!neo__hit_worse(&heap[child], &hit)) break;
        heap[at] = heap[child];
    }
    heap[at] = hit;
}
static void neo__hit_add(neo_hit *heap, int64_t *n, int64_t k, neo_hit hit) {
    if (*n == k) {
        if (!neo__hit_worse(&heap[0], &hit)) return;
        heap[0] = hit;
        neo__hit_down(heap, k, 0);
        return;
    }
    int64_t at = (*n)++;
    for (; at > 0 && neo__hit_worse(&hit, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = hit;
}
/* An upper bound of the score of item i by its codes. norm: the sum of |q|, largest: q's largest
   magnitude sum of products' rounding. */
static double neo__items_bound(const neo_items *items, const float *q, double norm, double total,
                               int64_t i) {
    const signed char *code = (const signed char *)items->codes.codes + i * items->desc.dim;
    const float *scale = items->codes.scale + 2 * i;
    float sum[16] = {0};
    const int64_t dim = items->desc.dim;
    int64_t c = 0;
    for (; c + 16 <= dim; c += 16)
        for (int k = 0; k < 16; k++) sum[k] += q[c + k] * (float)code[c + k];
    for (int k = 0; c < dim; c++, k++) sum[k] += q[c] * (float)code[c];
    double dot = 0;
    for (int k = 0; k < 16; k++) dot += (double)sum[k];
    /* rounding: each of the sums of products is off by at most dim 2^-24 of the sum of magnitudes,
       here and in the score, and each product by half of the least number; what may overflow has no
       bound */
    const double magnitude = norm * (128.0 * (double)scale[0] + fabs((double)scale[1]) +
                                     (double)items->norm[i]);
    if (!(magnitude < 0x1p126) || !(norm < 0x1p118)) return (double)INFINITY;
    return dot * (double)scale[0] + total * (double)scale[1] + norm * (double)items->norm[i] +
           (double)(dim + 8) * (magnitude * 0x1p-23 + (1.0 + (double)scale[0]) * 0x1p-149);
}
NEO_API neo_status neo_items_search(const neo_items *items, const float *query,
                                    const uint64_t *attributes, int count, int64_t k,
                                    neo_hit *hits, int64_t *found) {
    NEO__CHECK(items && query && hits && found && k >= 1 && count >= 0 && (attributes || !count),
               NEO_ERR_ARG, "neo_items_search: an argument is NULL or out of range");
    NEO__CHECK(!count || items->filter, NEO_ERR_ARG, "neo_items_search: these items have no "
               "attributes");
    const int64_t dim = items->desc.dim;
    double norm = 0, total = 0;
    float wrong = 0.0f;
    uint64_t bits = 0;
    for (int64_t c = 0; c < dim; c++) {
        wrong += query[c] - query[c];
        norm += fabs((double)query[c]);
        total += (double)query[c];
    }
    NEO__CHECK(wrong == 0.0f, NEO_ERR_NUMERIC, "neo_items_search: the query is not finite");
    for (int a = 0; a < count; a++) bits |= neo__items_bits(attributes[a]);
    *found = 0;
    neo__fp_state fp = neo__fp_enter();
    for (int64_t i = 0; i < items->desc.count; i++) {
        if (count && !neo__items_match(items, i, bits, attributes, count)) continue;
        if (items->codes.codes && *found == k &&
            neo__items_bound(items, query, norm, total, i) < (double)hits[0].score)
            continue;
        neo_hit hit;
        hit.item = i;
        hit.score = neo__items_score(query, items->desc.rows + i * dim, dim);
        if (hit.score != hit.score) hit.score = -INFINITY; /* of infinities that cancel */
        neo__hit_add(hits, found, k, hit);
    }
    neo__fp_leave(fp);
    for (int64_t n = *found; n > 1; n--) { /* the worst to the end, again and again */
        const neo_hit worst = hits[0];
        hits[0] = hits[n - 1];
        neo__hit_down(hits, n - 1, 0);
        hits[n - 1] = worst;
    }
    return NEO_OK;
}
/* The largest difference between an element and what its code stands for, rounded up. */
static float neo__items_error(const neo_items *items, int64_t i) {
    const int64_t dim = items->desc.dim;
    const float *x = items->desc.rows + i * dim, *scale = items->codes.scale + 2 * i;
    const signed char *code = (const signed char *)items->codes.codes + i * dim;
    double most = 0;
    for (int64_t c = 0; c < dim; c++) {
        double error = fabs((double)code[c] * (double)scale[0] + (double)scale[1] - (double)x[c]);
        most = NEO__MAX(most, error);
    }
    return (float)(most * (1.0 + 0x1p-20)) + 0x1p-140f;
}
NEO__HOT_END
static neo_status neo__items_make(neo_items *items) {
    const neo_items_desc *d = &items->desc;
    const size_t count = (size_t)d->count;
    float wrong = 0.0f;
    for (int64_t i = 0; i < d->count; i++) {
        for (int64_t c = 0; c < d->dim; c++) wrong += d->rows[i * d->dim + c] * 0.0f;
        NEO__CHECK(wrong == 0.0f, NEO_ERR_ARG, "neo_items_create: row %" PRId64 " is not finite",
                   i);
        NEO__CHECK(!d->attribute_offsets || d->attribute_offsets[i] <= d->attribute_offsets[i + 1],
                   NEO_ERR_ARG, "neo_items_create: offsets decrease at item %" PRId64, i);
    }
    if (d->attribute_offsets) {
        items->filter = (uint64_t *)neo__alloc_zero(items->ctx, count * sizeof(uint64_t));
        NEO__CHECK(items->filter, NEO_ERR_MEMORY, "neo_items_create: no memory");
        for (int64_t i = 0; i < d->count; i++)
            for (int64_t k = d->attribute_offsets[i]; k < d->attribute_offsets[i + 1]; k++)
                items->filter[i] |= neo__items_bits(d->attributes[k]);
    }
    if (!d->i8) return NEO_OK;
    items->codes.bits = NEO_ROWS_I8;
    items->codes.rows = d->count;
    items->codes.dim = d->dim;
    items->codes.codes = neo_alloc(items->ctx, count * (size_t)d->dim);
    items->codes.scale = (float *)neo_alloc(items->ctx, count * 8);
    items->norm = (float *)neo_alloc(items->ctx, count * 4);
    NEO__CHECK(items->codes.codes && items->codes.scale && items->norm, NEO_ERR_MEMORY,
               "neo_items_create: no memory");
    NEO__TRY(neo_frozen_encode(NEO_ROWS_I8, d->count, d->dim, d->rows,
                               (void *)(uintptr_t)items->codes.codes,
                               (float *)(uintptr_t)items->codes.scale));
    for (int64_t i = 0; i < d->count; i++) items->norm[i] = neo__items_error(items, i);
    return NEO_OK;
}
NEO_API void neo_items_destroy(neo_items *items) {
    if (!items) return;
    neo_ctx *ctx = items->ctx;
    const size_t count = (size_t)items->desc.count;
    neo_free(ctx, items->filter, count * sizeof(uint64_t));
    neo_free(ctx, (void *)(uintptr_t)items->codes.codes, count * (size_t)items->desc.dim);
    neo_free(ctx, (void *)(uintptr_t)items->codes.scale, count * 8);
    neo_free(ctx, items->norm, count * 4);
    neo_free(ctx, items, sizeof *items);
}
NEO_API neo_status neo_items_create(neo_ctx *ctx, const neo_items_desc *desc, neo_items **out) {
    NEO__CHECK(ctx && desc && out, NEO_ERR_ARG, "neo_items_create: an argument is NULL");
    *out = NULL;
    NEO__CHECK(desc->rows && desc->count >= 1 && desc->dim >= 1 && desc->dim <= 65536 &&
                   desc->count <= INT64_MAX / 8 / desc->dim &&
                   (desc->attributes || !desc->attribute_offsets),
               NEO_ERR_ARG, "neo_items_create: a field of desc is NULL or out of range");
    neo_items *items = (neo_items *)neo__alloc_zero(ctx, sizeof *items);
    NEO__CHECK(items, NEO_ERR_MEMORY, "neo_items_create: no memory");
    items->ctx = ctx;
    items->desc = *desc;
    neo_status status = neo__items_make(items);
    if (status == NEO_OK) {
        *out = items;
        return NEO_OK;
    }
    neo__kept_error error = neo__error_keep(status);
    neo_items_destroy(items);
    return neo__error_restore(&error);
}
NEO__COLD_END
NEO__HOST_END
NEO_EXACT_END
#endif /* implementation */
